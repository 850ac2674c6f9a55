"""Runs what is asked for and not there yet, on a testbed that was measured before.

The world (testbed and lab) is handed in, so that tests run without root.
"""

import dataclasses
import json
import os
import sys
import time
from pathlib import Path

import manifest
from definition import EXPERIMENTS, ExperimentError, load_module
from progress import Progress, duration
from records import EBPF, SIMULATOR, Store, origin, problem_of
from summary import number

sys.path.insert(0, str(EXPERIMENTS / "testbed"))
import machine  # noqa: E402  of the testbed's folder
import user_space  # noqa: E402
from machine import MachineError, remove_abandoned  # noqa: E402
from topology import TopologyError  # noqa: E402

# One at a time on a machine: the name is taken by whoever runs experiments.
TESTBED = "experiment"
# What CI gives experiments, the measuring of the testbed included: no run begins that would, by the
# longest one so far, end later, and busy machines run fewer rows. Measuring it again, where a claim
# does not hold, comes on top: five minutes in all.
CI_TIME_S = 240
# A testbed is measured again when a row has ended and so long has gone by; a machine that others have
# come to meanwhile is off then. CI's runs are over before, and it has rules of its own.
MEASURE_AGAIN_S = 900
# How often a command measures the machine anew where only a call costs there what it did not before.
CALIBRATIONS_MAX = 3


@dataclasses.dataclass(frozen=True)
class Options:
    """What was asked for, besides which experiments."""
    results: Path
    quick: bool = False
    runs: int = 5
    seed: int = 1
    profile: str = ""  # of all experiments; empty: each its own
    despite_testbed: bool = False
    allow_fallback: bool = False
    ci: bool = False
    user_space: bool = False

    @property
    def takes_fallback(self):
        """Without privileges there is no eBPF, and nothing is claimed of what is measured."""
        return self.allow_fallback or self.user_space

    @property
    def emulation(self):
        return user_space.MARK if self.user_space else "network namespaces and CPU quotas"

    @property
    def tolerance(self):
        return "25 %" if self.user_space else "10 %"

    def listed(self):
        return {"quick": self.quick, "runs": self.runs, "seed": self.seed, "profile": self.profile,
                "despite_testbed": self.despite_testbed, "allow_fallback": self.allow_fallback,
                "ci": self.ci, "user_space": self.user_space}


@dataclasses.dataclass(frozen=True)
class Job:
    experiment: object
    row: object
    placement: str
    run: int

    @property
    def text(self):
        return f"{self.row.path} {self.placement} {self.run}"


class UnusableError(ExperimentError):
    """A record is as it should be, and may not be used as things were asked for."""


class World:
    """The real one: ./dev testbed's, or one in user space, and the lab's processes on it."""

    def __init__(self, program, user_space=False, say=lambda text: None):
        self.program, self.user_space, self.say = program, user_space, say
        sys.path.insert(0, str(EXPERIMENTS / "lab"))  # drivers import from it

    def machine(self, profile):
        """How much slower this machine is than the model of a profile's nodes; 1: it is not.

        Measured on the paper's testbed, which is up for it, with the shares that calls over loopback
        ask for. Where nothing caps a processor it is of no account. Raises MachineError.
        """
        from lab import Profile, measure_machine
        if self.user_space or not Profile.load(profile).has_paper_nodes:
            return 1
        over_loopback = measure_machine(profile, self.program)
        with self.testbed("paper", {}, over_loopback) as testbed:
            return measure_machine(profile, self.program, testbed, over_loopback)

    def testbed(self, topology, shares, machine):
        """A context: up and down, nodes with `machine` times their shares.

        What a run that was killed has left is taken down before, so that the same command goes on
        from there. Raises MachineError or TopologyError.
        """
        from testbed import Testbed
        from topology import Topology, cpu_share
        made = Topology.load(topology)
        if shares:
            made = made.with_cpu({node: cpu_share(share) for node, share in shares.items()})
        if self.user_space:  # of a name that no testbed of root's has
            return user_space.UserSpaceTestbed(made, f"user{os.getuid()}")
        made = made.with_cpu({name: node.cpu * machine for name, node in made.nodes.items()
                              if node.cpu})
        if remove_abandoned(TESTBED):
            self.say(f"a testbed {TESTBED} was left by a run that was killed: it is taken down")
        return Testbed(made, TESTBED)

    def null_call(self, testbed, profile, machine):
        """[the row of a check that tells what a call costs there], none without the paper's nodes."""
        from lab import check_null_call
        if self.user_space:  # nothing caps a processor
            return []
        return check_null_call(testbed, profile, self.program, machine)

    def used(self, testbed):
        """What emulates what on a testbed that is up, a sentence each."""
        return testbed.used() if self.user_space else machine.read_state(testbed.name)["used"]

    def lab(self, testbed, profile, machine):
        """What drivers run their programs with, as a context."""
        from lab import Lab
        return Lab(testbed, profile, self.program, machine)


def load_driver(experiment):
    """The `run` of an experiment's driver.py; raises ExperimentError."""
    path = experiment.driver
    if not path.is_file():
        raise ExperimentError(f"{path}: no such file; experiments/template has one to begin with")
    module = load_module(path, f"driver_of_{experiment.name}")
    if not callable(getattr(module, "run", None)):
        raise ExperimentError(f"{path}: has no function run(lab, row, placement, seed, quick)")
    return module.run


class Runner:
    """Does the jobs of some experiments' rows; afterwards `failures` says what did not succeed."""

    def __init__(self, world, options, profiles, commit, out=sys.stderr):
        """`profiles`: {an experiment's name: the Profile that it is run with}."""
        self.world, self.options, self.out = world, options, out
        self.profiles, self.commit = profiles, commit
        self.store = Store(options.results)
        self.failures, self.skipped = [], []
        self._took_s = {}
        self._measured = set()  # topologies, by this command, and good
        self._measured_at = 0   # the last one, on the monotonic clock
        self._since = []        # the jobs that were done since
        self._machines = {}     # by the path of a profile
        self._calls_only = False  # the last measurement was off in what a call costs, and in nothing else
        self._calibrations_left = CALIBRATIONS_MAX
        self._put_off = []      # jobs for when the machine has been measured anew
        self._begun = time.monotonic()
        self._against = None

    def wanted(self, row):
        """The origin that a record of the row must have."""
        return origin(self.commit, self.profiles[row.experiment].sha256, self._for_driver(row),
                      self.options.quick, row.shares, self.options.emulation)

    def jobs(self, pairs):
        """[(experiment, row)] as the jobs that are left, those of one testbed together."""
        left, there = [], 0
        for experiment, row in pairs:
            for run in range(1, self.options.runs + 1):
                # Placements in turn, so that what changes slowly on the machine meets them all.
                for placement in row.placements:
                    state = self._state(row, placement, run)
                    if state == "there":
                        there += 1
                        continue
                    if state != "missing":
                        self.say(f"{row.path} {placement} {run}: the record that is there is "
                                 f"{state}; it is run again")
                    left.append(Job(experiment, row, placement, run))
        if there:
            self.say(f"{there} run(s) are there already, of this commit, profile and size: "
                     f"not run again ({self.store.folder})")
        keys = list(dict.fromkeys(self._testbed_of(job) for job in left))
        return sorted(left, key=lambda job: keys.index(self._testbed_of(job)))

    def run(self, jobs, against=lambda experiment, row: []):
        """Does them. A run that fails is noted, and the others go on.

        `against`: what a row's records say against it, in words. In CI it is asked when the row has
        been run: where there is something and the testbed is off by then, the row is skipped.
        """
        self._against = against
        drivers = self._drivers(jobs)
        jobs = [job for job in jobs if job.experiment.name in drivers]
        if self.options.user_space:
            jobs = self._without_root(jobs, drivers)
        progress = Progress(len(jobs), self.out)
        while jobs:
            key = self._testbed_of(jobs[0])
            here = [job for job in jobs if self._testbed_of(job) == key]
            jobs = jobs[len(here):]
            if key is None:
                self._simulate(here, jobs, drivers, progress)
                continue
            try:
                with self.world.testbed(key[0], dict(key[1]), key[2]) as testbed:
                    self._run_on(testbed, key, here, jobs, drivers, progress)
            except (MachineError, TopologyError) as error:  # it cannot be built: nobody's noise
                here = [job for job in here if job not in self._put_off]
                self._refuse(here, str(error), excused=False)
                progress.total -= len(here)
            jobs = self._take_up(progress) + jobs

    def _take_up(self, progress):
        """The jobs that were put off, now that the machine has been measured anew for them."""
        put_off, self._put_off = self._put_off, []
        names = {name for job in put_off for name in (job.text, job.row.path)}
        self.failures = [failure for failure in self.failures if failure[0] not in names]
        try:
            for path in {self._profile_path(job) for job in put_off}:
                before = self._machines.pop(path)
                try:
                    self._machine(path)
                finally:
                    self._machines.setdefault(path, before)
        except MachineError as error:
            self._refuse(put_off, str(error), excused=False)
            progress.total -= len(put_off)
            return []
        return put_off

    def _simulate(self, here, later, drivers, progress):
        """The jobs of rows that take no testbed."""
        for i, job in enumerate(here):
            progress.begin(job.text, self._expected_s(here[i:] + later))
            with self.world.lab(None, self._profile_path(job), 1) as lab:
                progress.end(self._one(job, lab, drivers[job.experiment.name], []))

    def _without_root(self, jobs, drivers):
        """Those that can be done; the others are skipped, as they cannot be on this testbed."""
        left, reasons = [], {}
        for job in jobs:
            why = getattr(drivers[job.experiment.name], "needs_root", "")
            if job.row.shares:
                why = "its nodes are to have other shares of a core, which takes CPU quotas"
            (reasons.setdefault(f"{why}: it takes root", []) if why else left).append(job)
        for reason, of in reasons.items():
            self._refuse(of, reason, skips=True)
        return left

    def _run_on(self, testbed, key, here, later, drivers, progress):
        """The jobs of one testbed, which is up."""
        off, _ = self._check_well(testbed, key, self._profile_path(here[0]))
        if off and not self.options.despite_testbed:
            if self._calibrates_again():
                self._put_off += here
                return
            self._refuse(here, f"the testbed is off by more than {self.options.tolerance}: "
                         f"{'; '.join(off)}")
            self.say("other load on the machine is the usual cause; --despite-testbed runs all the "
                     "same, and the results say so")
            progress.total -= len(here)
            return
        paths = list(dict.fromkeys(self._profile_path(job) for job in here))
        for path in paths:
            with_it = [job for job in here if self._profile_path(job) == path]
            here = [job for job in here if job not in with_it]
            if self._put_off:
                self._put_off += with_it
                continue
            if off and not self.options.despite_testbed:  # it was good, and is so no more
                self._refuse(with_it, f"the testbed is off now: {'; '.join(off)}")
                progress.total -= len(with_it)
                continue
            off = self._run_with(path, testbed, key, with_it, here + later, drivers, progress, off)

    def _profile_path(self, job):
        return self.profiles[job.experiment.name].path

    def _run_with(self, profile_path, testbed, key, here, later, drivers, progress, off):
        """The jobs of one testbed and one profile; what of the testbed was off in the end."""
        try:
            made = self.world.lab(testbed, profile_path, key[2])
        except Exception as error:  # of the lab, which is somebody else's code
            self._refuse(here, f"{type(error).__name__}: {error}", excused=False)
            progress.total -= len(here)
            return off
        with made as lab:
            for i, job in enumerate(here):
                if self._ci_time_is_over():
                    self._refuse(here[i:], f"the {CI_TIME_S} s that CI has are over")
                    progress.total -= len(here[i:])
                    break
                progress.begin(job.text, self._expected_s(here[i:] + later))
                failed = len(self.failures)
                try:
                    outcome = self._one(job, lab, drivers[job.experiment.name], off)
                except BaseException:
                    progress.clear()
                    raise
                progress.end(outcome)
                self._since.append(job)
                left = here[i + 1:]
                if self._is_to_be_measured(job, left):
                    off = self._check_again(testbed, key, profile_path, left, progress)
                    if off:
                        break
                if self.options.ci and len(self.failures) > failed:
                    self._excuse(testbed, key, profile_path)
                if self.options.ci and all(job.row is not later.row for later in here[i + 1:]):
                    self._doubt(job, testbed, key, profile_path)
        return off

    def _is_to_be_measured(self, job, left):
        """Whether the testbed is, now that `job` is done and `left` are not."""
        return not self.options.ci and not self.options.despite_testbed and \
            all(job.row is not later.row for later in left) and \
            time.monotonic() - self._measured_at > MEASURE_AGAIN_S

    def _check_again(self, testbed, key, profile_path, left, progress):
        """What is off by now; then the records since it was good are taken back, and these jobs and
        `left` are put off or refused."""
        since = self._since
        self._measured.clear()
        off, disturbed = self._check_well(testbed, key, profile_path)
        if disturbed:
            for job in since:
                self.store.add(job.row, job.placement, job.run, testbed_disturbed=disturbed)
        if off:
            for job in since:
                self.store.path(job.row, job.placement, job.run).unlink(missing_ok=True)
            if self._calibrates_again():
                self.say(f"{len(since)} run(s) since it was measured before do not count, and are run "
                         "again")
                self._put_off += since + left
                progress.total += len(since)
                return off
            progress.total -= len(left)
            self._refuse(since + left, f"the testbed is off now: {'; '.join(off)}; what was run since "
                         "it was measured before does not count, and is run again by the same command")
        return off

    def _calibrates_again(self):
        """Whether the machine is to be measured anew, now that a testbed is off.

        A virtual machine may be a third faster or slower than minutes before, and stay so. Then nodes
        are to have other shares, and the testbed that they have them on is measured like any other.
        CI has no time for it.
        """
        if not self._calls_only or self.options.ci or self._calibrations_left == 0:
            return False
        self._calibrations_left -= 1
        self._measured.clear()  # it is another testbed then, and all of it is measured
        self.say("only a call costs what it did not when the machine was measured: it is measured anew")
        return True

    def _ci_time_is_over(self):
        longest_s = max(self._took_s.values(), default=0)
        return self.options.ci and time.monotonic() - self._begun + longest_s > CI_TIME_S

    def _excuse(self, testbed, key, profile_path):
        """The run that failed last is skipped where the machine has become too busy for it."""
        self._measured.clear()
        off = self._check(testbed, key, profile_path)
        if off:
            path, reason = self.failures.pop()
            self.skipped.append((path, f"{reason}; and the testbed is off now: {'; '.join(off)}"))

    def _doubt(self, job, testbed, key, profile_path):
        """Takes a row's records back that say something against it on a testbed that is off now."""
        against = self._against(job.experiment, job.row)
        if not against:
            return
        self.say(f"{job.row.path}: {'; '.join(against)}: is the testbed as it was?")
        self._measured.clear()
        off = self._check(testbed, key, profile_path)
        if off:
            for run in range(1, self.options.runs + 1):
                for placement in job.row.placements:
                    self.store.path(job.row, placement, run).unlink(missing_ok=True)
            self.skipped.append((job.row.path, f"{'; '.join(against)}; and the testbed is off now: "
                                 f"{'; '.join(off)}"))

    def _for_driver(self, row):
        return row.for_driver(self.options.quick, self.options.ci)

    def say(self, text):
        print(f"experiment: {text}", file=self.out, flush=True)

    def _state(self, row, placement, run):
        state = self.store.state(row, placement, run, self.wanted(row))
        if state == "there":
            record = self.store.read(self.store.path(row, placement, run))
            self._took_s[row.path, placement] = record["elapsed_s"]
            return unusable(record, row, self.options) or "there"
        return state

    def _testbed_of(self, job):
        """Topology, shares and machine, None where the job takes no testbed."""
        if job.row.simulated:
            return None
        return (job.experiment.topology, tuple(sorted(job.row.shares.items())),
                self._machine(self._profile_path(job)))

    def _machine(self, profile_path):
        if profile_path not in self._machines:
            factor = self._machines[profile_path] = self.world.machine(profile_path)
            if factor > 1:
                self.say(f"a null call takes {factor:.3g} times the CPU time that the model of the "
                         "nodes has: so many times are their shares")
        return self._machines[profile_path]

    def _drivers(self, jobs):
        """{name: run} of the jobs' experiments; one without a driver is a failure."""
        drivers = {}
        for experiment in {job.experiment.name: job.experiment for job in jobs}.values():
            try:
                drivers[experiment.name] = load_driver(experiment)
            except ExperimentError as error:
                self.failures.append((experiment.name, str(error)))
                self.say(str(error))
        return drivers

    def _check_well(self, testbed, key, profile_path):
        """What is off, and what was off in a measurement that the next one did not bear out.

        What disturbs a measurement alone takes a minute; so the testbed is off where two in a row
        are, in whatever value. CI has no time for the second one, and --despite-testbed no need.
        """
        off = self._check(testbed, key, profile_path)
        if not off or self.options.ci or self.options.despite_testbed:
            return off, []
        self.say("the testbed is measured once more: it is off where two measurements in a row are")
        again = self._check(testbed, key, profile_path)
        return again, [] if again else off

    def _check(self, testbed, key, profile_path):
        """Measures the testbed, keeps what was measured, and returns what is off.

        Of a second one that differs from the first in shares of a core, these only.
        """
        topology, shares, machine = key[0], dict(key[1]), key[2]
        shares_of = list(shares) if shares and topology in self._measured else None
        self.say(f"testbed {topology}{', ' + str(shares) if shares else ''}: measuring "
                 + (f"the shares of {', '.join(shares_of)}, as the rest was" if shares_of
                    else "it (55 s)"))
        rows = testbed.check(report=lambda line: None, shares_of=shares_of)
        calls = self.world.null_call(testbed, profile_path, machine)
        self._calls_only = all(row.good for row in rows) and not all(row.good for row in calls)
        rows = [*rows, *calls]
        used = [*self.world.used(testbed),
                f"nodes have {machine:.3g} times the share of a core that the topology says, as a "
                "null call takes so many times the CPU time of the model here"]
        self._measured_at, self._since = time.monotonic(), []
        result = manifest.checked(self.commit, topology, shares, used, rows)
        path = self.options.results / "testbed.json"
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([*kept, result], indent=1), encoding="utf-8")
        for line in result["off"]:
            self.say(f"the testbed is off: {line}")
        if not result["off"]:
            self._measured.add(topology)
            self.say(f"the testbed is as its topology says ({len(rows)} measured values)")
        return result["off"]

    def _refuse(self, jobs, reason, excused=True, skips=False):
        """None of these jobs can be done; CI goes on without them where the machine is why.

        `skips`: it is no failure elsewhere either.
        """
        skips = skips or self.options.ci and excused
        for path in dict.fromkeys(job.row.path for job in jobs):
            (self.skipped if skips else self.failures).append((path, reason))
        self.say(f"{len(jobs)} run(s) are {'skipped' if skips else 'refused'}: {reason}")

    def _expected_s(self, jobs):
        known = list(self._took_s.values())
        if not known:
            return None
        mean = sum(known) / len(known)
        return sum(self._took_s.get((job.row.path, job.placement), mean) for job in jobs)

    def _one(self, job, lab, driver, off):
        """Runs it; how it went, in words."""
        begun = time.monotonic()
        try:
            record = self._record(job, lab, driver, off)
        except UnusableError as error:  # as this machine has no better source, always
            self._refuse([job], str(error))
            return f"no use: {error}"
        except Exception as error:  # of a driver, which is somebody else's code
            self.failures.append((job.text, str(error) or type(error).__name__))
            return f"FAILED: {error or type(error).__name__}"
        took_s = time.monotonic() - begun
        self._took_s[job.row.path, job.placement] = took_s
        moves = len(record["migrations"])
        return f"{number(record['elapsed_s'])} s, {moves} move{'' if moves == 1 else 's'}" + (
            f"; with preparation {duration(took_s)}" if took_s > 2 * record["elapsed_s"] else "")

    def _record(self, job, lab, driver, off):
        seed = 1000 * self.options.seed + job.run  # the same at each placement
        row = self._for_driver(job.row)
        record = driver(lab, row, job.placement, seed, self.options.quick)
        if not isinstance(record, dict):
            raise ExperimentError(f"{job.experiment.driver}: run() returned no dict")
        record = {**record, "experiment": job.row.experiment, "row": job.row.name,
                  "network": job.row.network, "placement": job.placement, "run": job.run,
                  "seed": seed, "origin": self.wanted(job.row), "testbed_off": off,
                  "machine": 1 if job.row.simulated else self._machine(self._profile_path(job)),
                  "date": manifest.now()}
        problem = problem_of(record)
        if problem:
            raise ExperimentError(f"{job.experiment.driver}: its record {problem}")
        problem = unusable(record, job.row, self.options)
        if problem:
            raise UnusableError(problem)
        self.store.write(job.row, record)
        return record


def unusable(record, row, options):
    """Why a record of the row may not be used as things were asked for, or None."""
    if (record["source"] == SIMULATOR) != row.simulated:
        return ("the row is said to be simulated, and its record is not" if row.simulated else
                "it is the simulator's, and the row is not said to be simulated = true")
    if record["source"] not in (EBPF, SIMULATOR) and not options.takes_fallback:
        return (f"its figures come from the monitor's source '{record['source']}' and not from "
                "eBPF (`abacus doctor` says why); --allow-fallback takes them")
    if record.get("testbed_off") and not options.despite_testbed:
        return f"of a testbed that was off ({'; '.join(record['testbed_off'])})"
    return None
