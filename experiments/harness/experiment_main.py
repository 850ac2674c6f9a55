"""The command ./dev experiment; `--help` tells its use."""

import argparse
import itertools
import os
import signal
import sys
import textwrap
from pathlib import Path

import compare
import definition
import manifest
import report
import results
import table
from definition import EXPERIMENTS, RUNS_MAX, ExperimentError
from records import Store
from runner import MachineError, Options, Runner, TopologyError, World
from user_space import MARK

OK, FAILED, MISUSED, NOT_SHOWN = 0, 1, 2, 3  # the last: measured, and a claim does not hold
TOPOLOGY = PROFILE = "paper"


ABOUT = """\
The paper's figures and tables, run on the emulated testbed; without root in user space, marked
so, with nothing claimed.

  NAME [NAME ...]   experiments, rows of one (figure07_filter/set1), grids of one, which are all
                    their cells (threshold_sweep/phases_at), or folders of your own
                    (./mine, ./mine/ROW); experiments/template is one to copy, and
                    experiments/README.md tells how
  all               every one; what is there already is not run again. Full size: some 1300 runs,
                    by arithmetic 7 hours for the paper's figures and a day for everything; it may
                    be broken off and goes on. --quick: about 10 minutes, without what goes beyond
                    the paper, which `NAME --quick` runs
  list              what there is
  check-testbed     build the testbed, measure it, remove it
  compare A B       two results.json side by side
  table [A]         paper | ours | holds? of a results.json, as the markdown of
                    experiments/README.md; without A: with empty places"""
EXAMPLES = """\
examples:
  sudo ./dev experiment figure07_filter/set1 --quick     one row, about 2 minutes with measuring
  sudo ./dev experiment all --quick
  sudo ./dev experiment table2_phases --runs 3
  sudo ./dev experiment threshold_sweep/set4_at --quick  the cells of a grid
  ./dev experiment all --report-only                     the report of what is there
  ./dev experiment compare build/experiments/full /tmp/before.json

Exit code: 0, 1 where a run failed, 2 for bad input, 3 where a claim does not hold."""


def parser():
    top = argparse.ArgumentParser(
        prog="./dev experiment", formatter_class=argparse.RawDescriptionHelpFormatter,
        description=ABOUT, epilog=EXAMPLES)
    top.add_argument("words", nargs="+", metavar="WORD", help="see above")
    top.add_argument("--quick", action="store_true", help="small sizes, one run of each")
    top.add_argument("--runs", type=_runs, metavar="N", help="of each placement (5; --quick: 1)")
    top.add_argument("--results", type=Path, metavar="DIR",
                     help="where raw records, results.json and the report go "
                     "(build/experiments/full, or quick)")
    top.add_argument("--profile", default="", metavar="NAME",
                     help="of experiments/profiles, for all experiments (each its own, most of them "
                     "paper); claims are held to an experiment's own only")
    top.add_argument("--seed", type=int, default=1, metavar="N", help="of all random choices (1)")
    top.add_argument("--despite-testbed", action="store_true",
                     help="run on a testbed that is off by more than 10 %% as well, and say so")
    top.add_argument("--allow-fallback", action="store_true",
                     help="take figures of the monitor's fallback sources as well, and say so")
    top.add_argument("--user-space", action="store_true",
                     help=f"{MARK}: without root, or to try this as root. Links are carried by a "
                     "process of ours, nothing caps a processor, the monitor's fallback sources "
                     "are taken, and nothing is claimed")
    top.add_argument("--report-only", action="store_true",
                     help="run nothing: results.json and the report of the records there are")
    top.add_argument("--ci", action="store_true", help="--quick, only rows whose ratio in the "
                     "paper is 2 or more and that have a size for it, as many as five "
                     "minutes allow. It fails where a run does, or the wrong placement wins, or "
                     "the engine chooses wrongly; a row is skipped where the testbed is off "
                     "before it or after it")
    top.add_argument("--program", type=Path, help=argparse.SUPPRESS)  # ./dev gives it
    return top


def _runs(text):
    if not text.isdecimal() or not 1 <= int(text) <= RUNS_MAX:
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 1 to {RUNS_MAX}")
    return int(text)


def options_of(arguments):
    quick = arguments.quick or arguments.ci
    size = "ci" if arguments.ci else "quick" if quick else "full"
    if arguments.profile:  # beside what experiments have been run with their own
        size += f"-{arguments.profile}"
    if arguments.user_space:
        size += "-user-space"
    folder = arguments.results or manifest.PROJECT / "build" / "experiments" / size
    return Options(folder.resolve(), quick, arguments.runs or (1 if quick else 5), arguments.seed,
                   arguments.profile, arguments.despite_testbed, arguments.allow_fallback,
                   arguments.ci, arguments.user_space)


def command_list(root, out):
    for experiment in definition.in_order(definition.load(root / name)
                                          for name in definition.names(root)):
        print(f"{experiment.name:24} {experiment.figure}: {experiment.title}" +
              (" (beyond the paper)" if experiment.beyond else ""), file=out)
        if experiment.not_runnable:
            print(f"{'':24} not runnable yet: {experiment.not_runnable}", file=out)
        for line in textwrap.wrap(", ".join(_row_names(experiment)), 72, break_on_hyphens=False):
            print(f"{'':24} {line}", file=out)
    print("\n`all --quick` has none that go beyond the paper, and no row that says full size.",
          file=out)
    return OK


def _row_names(experiment):
    """As `list` has them: a grid once, for all its cells."""
    for grid, rows in itertools.groupby(experiment.rows, lambda row: row.grid):
        if grid:
            yield f"{grid} ({len(list(rows))} cells)"
        else:
            yield from (row.name + (" (full size)" if row.full_only else "") for row in rows)


def command_check(world, out):
    print(f"testbed {TOPOLOGY}{f', {MARK}' if world.user_space else ''}", file=out)
    machine = world.machine(PROFILE)
    print(f"nodes have {machine:.3g} times the shares of the topology, as a null call takes so many "
          "times the CPU time of the model here", file=out)
    with world.testbed(TOPOLOGY, {}, machine) as testbed:
        rows = [*testbed.check(report=lambda line: print(line, file=out)),
                *world.null_call(testbed, PROFILE, machine)]
        off = [row for row in rows if not row.good]
    for row in off:
        print(manifest.off_text(row), file=out)
    off = len(off)
    print(f"{off} measured value(s) are off" if off else "all is as the topology says", file=out)
    return FAILED if off else OK


def _rows_of(experiment, wanted, options):
    """The rows of the names wanted (none: all), and those whose static runs they use."""
    grids = {row.grid for row in experiment.rows if row.grid}
    for grid in grids.intersection(wanted):
        if not experiment.cells(grid, options.quick):
            raise ExperimentError(f"{experiment.name}/{grid} is too long for --quick")
    wanted = [name for word in wanted for name in
              ([row.name for row in experiment.cells(word, options.quick)]
               if word in grids else [word])]
    names = [row.name for row in experiment.rows]
    for name in wanted:
        if name not in names:
            raise ExperimentError(f"{experiment.name}: {definition.unknown('row', name, names)}")
        if options.quick and experiment.row(name).full_only:
            raise ExperimentError(f"{experiment.name}/{name} is too long for --quick")
    bases = {experiment.row(name).statics_of for name in wanted}
    rows = results.ci_rows(experiment) if options.ci else experiment.rows
    return [row for row in rows if not (options.quick and row.full_only)
            and (not wanted or row.name in wanted or row.name in bases)]


def select(words, root, options, say=lambda text: None):
    """([(experiment, row)] to run, [experiments] that cannot be); says which are left out."""
    if words == ["all"]:
        words = definition.names(root)
        everything = True
    else:
        everything = False
    wanted = {}
    for word in words:
        name, row = word, ""
        if "/" in word and not (Path(word) / definition.FILE).is_file():
            name, _, row = word.rpartition("/")
        wanted.setdefault(name, []).append(row)
    pairs, not_runnable = [], []
    found = {name: definition.find(name, root) for name in wanted}
    rows_wanted = {experiment.name: wanted[name] for name, experiment in found.items()}
    by_experiment = []
    for experiment in definition.in_order(found.values()):
        name, rows = experiment.name, rows_wanted[experiment.name]
        if experiment.not_runnable:
            if not everything:
                raise ExperimentError(f"{name} cannot be run yet: {experiment.not_runnable}")
            not_runnable.append(experiment)
            continue
        if experiment.beyond and (options.ci or everything and options.quick):
            say(f"{name} is left out, as it goes beyond the paper" +
                ("" if options.ci else f": `{name} --quick` runs it"))
            continue
        chosen = [] if "" in rows else rows
        by_experiment.append([(experiment, row) for row in _rows_of(experiment, chosen, options)])
    if options.ci:  # the time may not be enough for all: first a row of each
        by_experiment = itertools.zip_longest(*by_experiment)
    pairs += [pair for pairs_of in by_experiment for pair in pairs_of if pair]
    return pairs, not_runnable


def _profiles(pairs, root, options):
    """{an experiment's name: the Profile that it is run with}."""
    return {experiment.name: definition.load_profile(options.profile or experiment.profile, root)
            for experiment, _ in pairs}


def _beside(pairs, root, options, say):
    """({an experiment's name: [(experiment, row)]} that were not asked for and may have records in
    the results folder, by whatever command; {its name: its Profile}).

    What cannot be read of them is no reason not to do what was asked for: it is said.
    """
    asked = {row.path for _, row in pairs}
    known = {experiment.name: experiment for experiment, _ in pairs}
    found, profiles = {}, {}
    for name in definition.names(root):
        if not (Store(options.results).folder / name).is_dir():
            continue
        try:
            experiment = known.get(name) or definition.load(root / name)
            others = [(experiment, row) for row in _rows_of(experiment, [], options)
                      if row.path not in asked]
            profiles.update(_profiles(others, root, options))
            found[name] = others
        except ExperimentError as error:
            say(f"{name} is left out of the results: {error}")
    return found, profiles


def _collect_beside(beside, runner, options):
    """[RowResult] of them; what is no record is said."""
    found = []
    for name, pairs in beside.items():
        try:
            found += results.collect(pairs, runner.store, runner.wanted, options)
        except ExperimentError as error:
            runner.say(f"the rest of {name} is left out of the results: {error}")
    return found


def _in_order(found):
    """As `all` has them, whatever was asked for."""
    names = [of.name for of in definition.in_order(
        {result.experiment.name: result.experiment for result in found}.values())]
    return sorted(found, key=lambda result: (
        names.index(result.experiment.name),
        [row.name for row in result.experiment.rows].index(result.row.name)))


def command_run(arguments, world, root, out):
    options = options_of(arguments)

    def say(text):
        print(f"experiment: {text}", file=out)

    pairs, not_runnable = select(arguments.words, root, options, say)
    profiles = _profiles(pairs, root, options)
    beside, profiles_beside = _beside(pairs, root, options, say)
    runner = Runner(world, options, {**profiles_beside, **profiles}, manifest.commit(), out)
    jobs = [] if arguments.report_only else runner.jobs(pairs)
    used = list(dict.fromkeys(profiles.values())) or [
        definition.load_profile(options.profile or definition.PAPER_PROFILE, root)]
    for profile in used:
        runner.say(f"profile {profile.hashes}")
    if options.user_space:
        runner.say(f"{MARK}: nothing is claimed; the figures of the testbed take root")
    interrupted = False
    try:
        runner.run(jobs, lambda experiment, row: [
            f"{outcome.claim}: DOES NOT HOLD ({outcome.ours})"
            for result in results.collect([(experiment, row)], runner.store, runner.wanted, options)
            for outcome in result.outcomes if not outcome.holds])
    except KeyboardInterrupt:
        interrupted = True
        runner.say("interrupted; the same command goes on from here")
    found = results.collect(pairs, runner.store, runner.wanted, options)
    if arguments.report_only and not found:  # what is there is not written over with an empty page
        raise ExperimentError(f"{options.results} has no record of what was asked for that is of this "
                              f"commit ({runner.commit[:12]}) and as things were asked for; "
                              f"there are: {runner.store.told()}. Without --report-only it is run")
    have = {result.row.path for result in found}
    missing = [row.path for _, row in pairs if row.path not in have]
    # The folder's results are those of all its records: `all` may have been run before this.
    others = _collect_beside(beside, runner, options)
    used = dict.fromkeys([*used, *(runner.profiles[of.experiment.name] for of in others)])
    made = results.make_manifest(options, runner, used, missing)
    paths = report.write(options.results, _in_order([*found, *others]), not_runnable, made)
    if others:
        runner.say(f"{len(others)} row(s) that were run before are in the results too")
    ran = f"{sum(result.whole for result in found)} of {len(pairs)} rows ran"
    return _tell(found, runner, missing, ran, paths, interrupted, out)


def _tell(found, runner, missing, ran, paths, interrupted, out):
    """The end of a run: claims, what is missing, where the files are; the exit code."""
    outcomes = [(result, outcome) for result in found for outcome in result.outcomes]
    for result, outcome in outcomes:
        print(f"  {'holds' if outcome.holds else 'DOES NOT HOLD':13} {result.row.path}: "
              f"{outcome.claim} (" + (f"paper {outcome.paper}; " if outcome.paper else "") +
              f"ours {outcome.ours})", file=out)
    for result in found:
        if result.no_claim:
            print(f"  {'-':13} {result.row.path}: {result.no_claim}", file=out)
    for path, reason in runner.skipped:
        print(f"  {'skipped':13} {path}: {reason}", file=out)
    for path, reason in runner.failures:
        print(f"  {'FAILED':13} {path}: {reason}", file=out)
    if missing:
        print(f"  no records: {', '.join(missing)}", file=out)
    held = sum(outcome.holds for _, outcome in outcomes)
    print(f"{ran}; {held} of {len(outcomes)} claims hold; " + ", ".join(map(str, paths)), file=out)
    if interrupted:
        return 128 + 2
    if runner.failures:
        return FAILED
    return OK if held == len(outcomes) else NOT_SHOWN


def run(arguments, world=None, root=EXPERIMENTS, out=sys.stdout):
    """What main() does, with the world and the folder of experiments handed in."""
    words = arguments.words
    if words[0] == "compare":
        if len(words) != 3:
            raise ExperimentError("compare takes two: A.json B.json")
        for line in compare.lines(words[1], words[2]):
            print(line, file=out)
        return OK
    if words[0] == "table":
        if len(words) > 2:
            raise ExperimentError("table takes one: A.json, or nothing")
        for line in table.lines((definition.load(root / name) for name in definition.names(root)),
                                *words[1:]):
            print(line, file=out)
        return OK
    if words == ["list"]:
        return command_list(root, out)
    if not world:
        if not arguments.program and not arguments.report_only and words != ["check-testbed"]:
            raise ExperimentError("--program is missing; ./dev experiment gives it")
        world = World(arguments.program, arguments.user_space,
                      lambda text: print(f"experiment: {text}", file=out, flush=True))
    if words == ["check-testbed"]:
        return command_check(world, out)
    return command_run(arguments, world, root, out)


def _interrupt(*_):
    raise KeyboardInterrupt


def main():
    arguments = parser().parse_intermixed_args()
    arguments.user_space |= os.geteuid() != 0
    # timeout(1) and CI end a command so: the testbed is taken down then too, and the report written.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return run(arguments)
    except ExperimentError as error:
        for line in str(error).splitlines():
            print(f"experiment: {line}", file=sys.stderr)
        return MISUSED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (MachineError, TopologyError) as error:
        print(f"experiment: {error}", file=sys.stderr)
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
