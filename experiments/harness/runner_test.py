#!/usr/bin/env python3
"""What is run, what is not run again, what is refused; the command and its exit codes."""

import io
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import definition
import experiment_main
import manifest
import results
from definition import ExperimentError
from experiment_main import FAILED, MISUSED, NOT_SHOWN, OK
from fake_world import Measured, DRIVER, FakeWorld, make_experiment, move, record
from progress import Progress, duration
from runner import TESTBED, MachineError, World

COMMAND = [sys.executable, "-B", str(Path(__file__).with_name("experiment_main.py"))]
SHOWN = '{kind = "direction", winner = "server"}'
NOT = '{kind = "direction", winner = "client"}'


def server_wins(row, placement, seed, quick):
    """Every placement takes long enough to claim something."""
    goes = placement == "adaptive"
    return record({"client": 20, "adaptive": 8, "server": 5}[placement],
                  migrations=[move(1, "server")] if goes else [],
                  final_placement={"lan1/apps.Filter": "server"})


class Uneven(FakeWorld):
    """A machine that is as fast as `machines` say when it is measured, and `calls` on its testbeds."""

    def __init__(self, machines, calls):
        super().__init__(server_wins)
        self.machines, self.calls = list(machines), list(calls)

    def machine(self, _):
        return self.machines.pop(0)

    def null_call(self, _, profile, machine):
        return [Measured("a null call", self.calls.pop(0), machine)]


class RunnerTest(unittest.TestCase):

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory(prefix="abacus-harness-")
        self.addCleanup(self._folder.cleanup)
        self.root = Path(self._folder.name)
        self.results = self.root / "results"
        self.commit = "c0ffee"

    def experiment(self, *words, world=None, **made):
        """Runs the command; (exit code, what it said, the world)."""
        if not (self.root / "small").exists() or made:
            make_experiment(self.root, **made)
        world = world or FakeWorld(server_wins)
        out = io.StringIO()
        arguments = experiment_main.parser().parse_intermixed_args(
            [*words, "--results", str(self.results)])
        with mock.patch.object(manifest, "commit", lambda: self.commit), \
                mock.patch("sys.stdout", out):
            code = experiment_main.run(arguments, world, self.root, out)
        return code, out.getvalue(), world

    def in_results(self):
        return json.loads((self.results / "results.json").read_text())

    # --- what is run ---------------------------------------------------------------------------

    def test_each_placement_is_run_so_often_and_with_the_same_seeds(self):
        code, _, world = self.experiment("small", "--runs", "2", claims=SHOWN)
        self.assertEqual(code, OK)
        self.assertEqual(world.runs, [("one", placement, 1000 + run) for run in (1, 2)
                                      for placement in ("client", "adaptive", "server")])
        self.assertEqual(world.up, [("paper", ())])
        self.assertEqual(world.down, world.up)

    def test_quick_is_one_run_of_the_small_size(self):
        seen = []

        def answer(row, placement, seed, quick):
            seen.append((row["bytes"], quick))
            return server_wins(row, placement, seed, quick)

        self.experiment("small", "--quick", world=FakeWorld(answer))
        self.assertEqual(seen, [(10, True)] * 3)

    def test_a_row_with_other_shares_has_a_testbed_of_its_own(self):
        folder = make_experiment(self.root)
        path = folder / "experiment.toml"
        path.write_text(path.read_text() + '[[row]]\nname = "slow"\nnetwork = "LAN"\n'
                        'shares = {s1 = "6%"}\nclients = ["lan1"]\n')
        _, _, world = self.experiment("small", "--runs", "1")
        self.assertEqual(world.up, [("paper", ()), ("paper", (("s1", "6%"),))])
        self.assertEqual(world.up, world.down)
        self.assertEqual(world.checked, [None, ["s1"]], "the first whole, of the second its share")

    def test_a_testbed_is_measured_whole_where_the_one_before_it_was_off(self):
        folder = make_experiment(self.root)
        path = folder / "experiment.toml"
        path.write_text(path.read_text() + '[[row]]\nname = "slow"\nnetwork = "LAN"\n'
                        'shares = {s1 = "6%"}\nclients = ["lan1"]\n')
        _, _, world = self.experiment("small", "--runs", "1", "--despite-testbed",
                                      world=FakeWorld(measured=5.0))
        self.assertEqual(world.checked, [None, None])

    def test_one_row_can_be_run_alone(self):
        folder = make_experiment(self.root)
        path = folder / "experiment.toml"
        path.write_text(path.read_text() + '[[row]]\nname = "two"\nnetwork = "LAN"\n')
        _, _, world = self.experiment("small/two", "--runs", "1")
        self.assertEqual({name for name, _, _ in world.runs}, {"two"})

    def test_a_folder_elsewhere_and_a_row_of_it_can_be_run(self):
        make_experiment(self.root)
        folder = make_experiment(self.root / "of_mine", "mine")
        path = folder / "experiment.toml"
        path.write_text(path.read_text() + '[[row]]\nname = "two"\nnetwork = "LAN"\n')
        for word, rows in ((str(folder), {"one", "two"}), (f"{folder}/two", {"two"})):
            self.commit = word
            _, _, world = self.experiment(word, "--runs", "1")
            self.assertEqual({name for name, _, _ in world.runs}, rows)

    def test_static_runs_of_another_row_stand_for_this_one(self):
        folder = make_experiment(self.root)
        path = folder / "experiment.toml"
        path.write_text(path.read_text() + '[[row]]\nname = "two"\nnetwork = "LAN"\n'
                        f'statics_of = "one"\nclaim = [{SHOWN}]\n')
        code, _, world = self.experiment("small/two", "--runs", "1")
        self.assertEqual(code, OK)
        self.assertEqual([of[:2] for of in world.runs if of[0] == "two"], [("two", "adaptive")])
        two = self.in_results()["experiments"][1]
        self.assertEqual([(of["placement"], of["mean_s"]) for of in two["placements"]],
                         [("client", 20), ("adaptive", 8), ("server", 5)])

    # --- what is not run again -----------------------------------------------------------------

    def test_what_is_there_is_not_run_again_and_this_is_said(self):
        self.experiment("small", "--runs", "2")
        code, said, world = self.experiment("small", "--runs", "3")
        self.assertEqual(code, OK)
        self.assertIn("6 run(s) are there already", said)
        self.assertEqual([seed for _, _, seed in world.runs], [1003] * 3)
        _, _, world = self.experiment("small", "--runs", "3")
        self.assertEqual((world.runs, world.up), ([], []))

    def test_fewer_runs_are_evaluated_where_fewer_are_asked_for(self):
        self.experiment("small", "--runs", "3")
        self.experiment("small", "--runs", "2")
        self.assertEqual([of["runs"] for of in self.in_results()["experiments"][0]["placements"]],
                         [2, 2, 2])

    def test_another_commit_profile_size_or_parameter_is_run_again(self):
        def runs_again(what):
            _, said, world = self.experiment("small", "--runs", "1")
            self.assertEqual(len(world.runs), 3, what)
            self.assertIn(f"of another {what}", said)

        self.experiment("small", "--runs", "1")
        self.commit = "beef"
        runs_again("commit")
        (self.root / "profiles" / "paper.toml").write_text("H_s = 2.0\n")
        runs_again("profile_sha256")
        path = self.root / "small" / "experiment.toml"
        path.write_text(path.read_text().replace("bytes = 100", "bytes = 101"))
        runs_again("row")
        _, said, world = self.experiment("small", "--quick")
        self.assertIn("of another size, row", said)
        self.assertEqual(len(world.runs), 3)

    def test_a_record_that_is_replaced_is_kept_beside(self):
        self.experiment("small", "--runs", "1")
        self.commit = "beef"
        self.experiment("small", "--runs", "1")
        folder = self.results / "raw" / "small" / "one" / "client"
        self.assertEqual(sorted(path.name for path in folder.iterdir()),
                         ["1.json", "1.json.replaced"])
        self.assertEqual(json.loads((folder / "1.json").read_text())["origin"]["commit"], "beef")

    def test_an_interrupted_session_goes_on_where_it_was(self):
        def interrupted(row, placement, seed, quick):
            if (placement, seed) == ("server", 1001):
                raise KeyboardInterrupt
            return server_wins(row, placement, seed, quick)

        world = FakeWorld(interrupted)
        code, said, _ = self.experiment("small", "--runs", "2", world=world)
        self.assertEqual(code, 130)
        self.assertIn("the same command goes on from here", said)
        self.assertEqual(world.up, world.down)
        _, _, world = self.experiment("small", "--runs", "2")
        self.assertEqual(len(world.runs), 4)

    def test_a_file_that_is_no_record_says_how_to_go_on(self):
        self.experiment("small", "--runs", "1")
        path = self.results / "raw" / "small" / "one" / "client" / "1.json"
        for text, wanted in (('{"half', "remove it to run it again"),
                             ('{"run": 1}', "is no raw record: it lacks experiment")):
            path.write_text(text)
            with self.assertRaises(ExperimentError) as raised:
                self.experiment("small", "--runs", "1")
            self.assertIn(wanted, str(raised.exception))
            self.assertIn(str(path), str(raised.exception))

    def test_results_come_from_the_records_alone(self):
        self.experiment("small", "--runs", "1", claims=SHOWN)
        before = self.in_results()["experiments"]
        (self.results / "results.json").unlink()
        code, _, world = self.experiment("small", "--runs", "1", "--report-only")
        self.assertEqual((code, world.runs), (OK, []))
        self.assertEqual(self.in_results()["experiments"], before)
        # Of another commit there is nothing to report, and what is there stays.
        self.commit = "beef"
        with self.assertRaisesRegex(ExperimentError, "this commit .beef.*3 of commit c0ffee, size full"):
            self.experiment("small", "--runs", "1", "--report-only")
        self.assertEqual(self.in_results()["experiments"], before)

    def test_of_the_checks_of_a_testbed_those_of_this_commit_are_told(self):
        for self.commit in ("c0ffee", "beef"):
            self.experiment("small", "--runs", "1")
            check, = self.in_results()["manifest"]["testbed"]
            self.assertEqual(check["commit"], self.commit)

    def rows_in_results(self):
        return [row["name"] for row in self.in_results()["experiments"]]

    def test_results_have_what_other_commands_ran_and_the_exit_code_is_of_this_one(self):
        path = make_experiment(self.root, "other", claims=NOT) / "experiment.toml"
        path.write_text(path.read_text() + '[[row]]\nname = "two"\nnetwork = "LAN"\n')
        code, said, _ = self.experiment("other/two", "small", "--runs", "1", claims=SHOWN)
        self.assertEqual((code, self.rows_in_results()), (OK, ["other/two", "small/one"]))
        self.assertIn("2 of 2 rows ran; 1 of 1 claims hold", said)
        code, said, _ = self.experiment("other/one", "--runs", "1")
        self.assertEqual((code, self.rows_in_results()),
                         (NOT_SHOWN, ["other/one", "other/two", "small/one"]))
        self.assertIn("1 of 1 rows ran; 0 of 1 claims hold", said)
        self.assertIn("2 row(s) that were run before are in the results too", said)
        # What does not hold of a row that was not asked for is in the results, and no matter here.
        code, said, world = self.experiment("small/one", "--runs", "1")
        self.assertEqual((code, world.runs, len(self.rows_in_results())), (OK, [], 3))
        self.assertNotIn("DOES NOT HOLD", said)
        self.assertIn("other/one", (self.results / "report.html").read_text())

    def test_records_that_belong_to_something_else_stay_out_of_the_results_and_do_no_harm(self):
        make_experiment(self.root, "other")
        today = make_experiment(self.root, "today", extra='profile = "modern"\nbeyond = true')
        paper, modern = (self.root / "profiles" / f"{of}.toml" for of in ("paper", "modern"))
        modern.write_text("H_s = 3.0\n")
        self.experiment("today", "--runs", "1")
        self.experiment("small", "--runs", "1")
        self.assertEqual(self.rows_in_results(), ["small/one", "today/one"])
        self.assertEqual(self.in_results()["manifest"]["profile"]["name"], "paper")
        self.assertEqual(len(self.in_results()["manifest"]["other_profiles"]), 1)
        for change, told in (
                (lambda: setattr(self, "commit", "beef"), False),
                (lambda: [of.write_text("H_s = 9.0\n") for of in (paper, modern)], False),
                (modern.unlink, True),
                (lambda: (today / "experiment.toml").write_text("no = TOML"), True)):
            change()
            code, said, _ = self.experiment("other", "--runs", "1")
            self.assertEqual((code, self.rows_in_results()), (OK, ["other/one"]))
            self.assertEqual("today is left out of the results: " in said, told, said)
        self.experiment("small", "--runs", "1")
        record = self.results / "raw" / "small" / "one" / "client" / "1.json"
        record.write_text('{"half')
        code, said, _ = self.experiment("other", "--runs", "1")
        self.assertEqual((code, self.rows_in_results()), (OK, ["other/one"]))
        self.assertIn(f"the rest of small is left out of the results: {record}", said)

    # --- what is refused -----------------------------------------------------------------------

    def test_a_testbed_that_is_off_is_refused_with_what_was_measured(self):
        code, said, world = self.experiment("small", "--runs", "1",
                                            world=FakeWorld(server_wins, measured=8.5))
        self.assertEqual((code, world.runs), (FAILED, []))
        self.assertIn("lan1 -> lan2: 8.5 Mbit/s, wanted 10", said)
        self.assertIn("--despite-testbed", said)
        self.assertEqual(len(world.checked), 2, "one alone may be disturbed")

    def test_despite_testbed_is_in_the_results_and_not_taken_without_it(self):
        off = FakeWorld(server_wins, measured=8.5)
        self.experiment("small", "--runs", "1", "--despite-testbed", world=off)
        self.assertTrue(self.in_results()["manifest"]["options"]["despite_testbed"])
        self.assertEqual(len(self.in_results()["manifest"]["testbed"][0]["off"]), 1)
        self.assertIn("on a testbed that was off", (self.results / "report.html").read_text())
        _, said, world = self.experiment("small", "--runs", "1")
        self.assertIn("of a testbed that was off", said)
        self.assertEqual(len(world.runs), 3)

    def test_a_testbed_that_is_off_after_a_while_takes_back_what_was_run_since(self):
        def answer(row, *others):
            world.measured = 20.0 if len(world.runs) > 3 else 10.0
            return server_wins(row, *others)
        world = FakeWorld(answer, measured=10.0)
        make_experiment(self.root)
        make_experiment(self.root, name="other")
        with mock.patch("runner.MEASURE_AGAIN_S", 0):
            code, said, _ = self.experiment("small", "other", "--runs", "1", world=world)
        self.assertEqual(code, FAILED)
        self.assertEqual((len(world.runs), len(world.checked)), (6, 4))
        self.assertIn("small/one: the testbed is off now: lan1", said)
        self.assertIn("is run again by the same command", said)
        self.assertNotIn("other/one: the testbed", said)
        again = FakeWorld(server_wins)
        self.assertEqual(self.experiment("small", "other", "--runs", "1", world=again)[0], OK)
        self.assertEqual(len(again.runs), 3, "of the row that was taken back")

    def test_a_measurement_that_was_disturbed_alone_takes_nothing_back(self):
        class Disturbed(FakeWorld):
            def testbed(self, *args):
                testbed = super().testbed(*args)
                look = testbed.check

                def check(**options):
                    self.measured = 20.0 if len(self.checked) == self.disturbed else 10.0
                    return look(**options)
                testbed.check = check
                return testbed

        make_experiment(self.root)
        make_experiment(self.root, name="other")
        for disturbed, looks in ((0, 4), (1, 4), (2, 4), (None, 3)):
            world = Disturbed(server_wins)
            world.disturbed = disturbed  # 0: the look before all, 1: after a row, 2: after both
            with mock.patch("runner.MEASURE_AGAIN_S", 0):
                code, said, _ = self.experiment("small", "other", "--runs", "1", world=world)
            self.assertEqual((code, len(world.runs)), (OK, 6), said)
            self.assertEqual(len(world.checked), looks, disturbed)
            self.assertEqual("measured once more" in said, disturbed is not None)
            said_in_report = "did not bear out" in (self.results / "report.html").read_text()
            self.assertEqual(said_in_report, disturbed in (1, 2))
            shutil.rmtree(self.results)

    def test_a_testbed_that_cannot_be_built_is_told_for_every_row(self):
        class Bare(FakeWorld):
            def testbed(self, topology, shares, machine):
                raise MachineError("the testbed takes root")

        code, said, _ = self.experiment("small", "--runs", "1", world=Bare())
        self.assertEqual(code, FAILED)
        self.assertIn("FAILED        small/one: the testbed takes root", said)
        claims = '{kind = "speedup", winner = "server", at_least = 8.0}'
        code, said, _ = self.experiment("small", "--ci", claims=claims, world=Bare())
        self.assertEqual(code, FAILED)
        self.assertIn("FAILED        small/one: the testbed takes root", said)

    def test_what_a_run_that_was_killed_has_left_is_taken_down_and_this_is_said(self):
        said = []
        world = World("abacus_lab", say=said.append)
        for left in (False, True):
            with mock.patch("runner.remove_abandoned", return_value=left) as removed:
                self.assertEqual(world.testbed("paper", {}, 1).name, TESTBED)
            removed.assert_called_once_with(TESTBED)
        self.assertEqual(said, ["a testbed experiment was left by a run that was killed: it is taken "
                                "down"])

    def test_a_lab_that_cannot_be_made_is_told(self):
        class Broken(FakeWorld):
            def lab(self, *_):
                raise RuntimeError("abacus_lab is not built")

        code, said, world = self.experiment("small", "--runs", "1", world=Broken())
        self.assertEqual((code, world.up), (FAILED, world.down))
        self.assertIn("small/one: RuntimeError: abacus_lab is not built", said)

    def test_ci_skips_where_the_testbed_is_off(self):
        claims = '{kind = "speedup", winner = "server", at_least = 3.0}, ' + NOT
        code, said, world = self.experiment("small", "--ci", claims=claims,
                                            world=FakeWorld(server_wins, measured=8.5))
        self.assertEqual((code, world.runs), (OK, []))
        self.assertEqual(world.checked, [None], "CI has no time for two")
        self.assertIn("skipped       small/one: the testbed is off by more than 10 %: lan1", said)
        self.assertIn("\n0 of 1 rows ran; 0 of 0 claims hold; ", said)

    def test_ci_looks_at_direction_of_rows_with_large_ratios_only(self):
        large = '{kind = "speedup", winner = "server", at_least = 8.0}'
        code, _, world = self.experiment("small", "--ci", claims=f"{large}, {SHOWN}")
        self.assertEqual((code, len(world.runs)), (OK, 3))
        claims = self.in_results()["experiments"][0]["claims"]
        self.assertEqual([of["claim"] for of in claims],
                         ["server is the faster static placement"])
        small = '{kind = "speedup", winner = "server", at_least = 1.9}'
        _, _, world = self.experiment("small", "--ci", claims=f"{small}, {SHOWN}")
        self.assertEqual(world.runs, [])

    def test_ci_fails_where_a_run_does(self):
        def fails(row, placement, seed, quick):
            raise RuntimeError("lan1 did not answer")

        claims = '{kind = "speedup", winner = "server", at_least = 3.0}'
        code, said, _ = self.experiment("small", "--ci", claims=claims, world=FakeWorld(fails))
        self.assertEqual(code, FAILED)
        self.assertIn("FAILED        small/one client 1: lan1 did not answer", said)

    def test_ci_fails_by_what_was_measured_on_a_testbed_that_is_good_before_and_after(self):
        large = '{kind = "speedup", winner = "server", at_least = 3.0}, '
        engine = '{kind = "engine", choice = "client", moves_max = 0}'
        for claim, said_of in ((NOT, "client is the faster"), (engine, "the engine stays at")):
            self.commit += "1"
            code, said, world = self.experiment("small", "--ci", claims=large + claim)
            self.assertEqual((code, world.checked), (NOT_SHOWN, [None, None]))
            self.assertIn(f"DOES NOT HOLD small/one: {said_of}", said)
        self.commit = "c0ffe0"  # once, after all runs of the row
        _, _, world = self.experiment("small", "--ci", "--runs", "2")
        self.assertEqual((len(world.runs), world.checked), (6, [None, None]))
        _, _, world = self.experiment("small", "--quick")
        self.assertEqual(world.checked, [None])
        # Where nothing speaks against the row, the testbed is not measured again.
        self.commit = "c0ffef"
        code, _, world = self.experiment("small", "--ci", claims=large + SHOWN)
        self.assertEqual((code, world.checked), (OK, [None]))

    def test_ci_skips_a_row_where_the_testbed_is_off_after_it_and_runs_it_again_then(self):
        def answer(row, placement, seed, quick):
            world.measured = 5.0 if placement == "server" else 9.8
            return server_wins(row, placement, seed, quick)

        world = FakeWorld(answer)
        claims = '{kind = "speedup", winner = "server", at_least = 3.0}, ' + NOT
        code, said, _ = self.experiment("small", "--ci", claims=claims, world=world)
        self.assertEqual(code, OK)
        self.assertRegex(said, "skipped +small/one: client is the faster.*server 5.00 s, client "
                         "20.0 s.*; and the testbed is off now: lan1")
        self.assertNotIn("DOES NOT HOLD small/one: client", said)
        code, _, world = self.experiment("small", "--ci")
        self.assertEqual((code, len(world.runs)), (NOT_SHOWN, 3))

    def test_ci_says_nothing_of_placements_that_are_close(self):
        def close(row, placement, seed, quick):
            return record({"client": 7, "adaptive": 8, "server": 5}[placement])

        claims = '{kind = "speedup", winner = "server", at_least = 3.0}, ' + NOT
        code, said, world = self.experiment("small", "--ci", claims=claims, world=FakeWorld(close))
        self.assertEqual((code, world.checked), (OK, [None]))
        self.assertIn("no claim: the static placements are 1.40 x apart, and less than 1.5 x", said)

    def test_ci_sizes_are_of_rows_that_ci_looks_at(self):
        for name in definition.names(definition.EXPERIMENTS):
            experiment = definition.load(definition.EXPERIMENTS / name)
            sized = [row.path for row in experiment.rows if row.sizes["ci"]]
            self.assertEqual(sized, [row.path for row in results.ci_rows(experiment)])

    def test_ci_skips_a_run_that_failed_where_the_testbed_is_off_by_then(self):
        def fails(row, placement, seed, quick):
            world.measured = 5.0
            raise RuntimeError("lan1 did not answer")

        world = FakeWorld(fails)
        claims = '{kind = "speedup", winner = "server", at_least = 3.0}'
        code, said, _ = self.experiment("small", "--ci", claims=claims, world=world)
        self.assertEqual(code, OK)
        self.assertIn("skipped       small/one client 1: lan1 did not answer; and the testbed is "
                      "off now: lan1", said)

    def test_ci_begins_nothing_that_would_end_late_and_claims_nothing_of_a_part(self):
        claims = '{kind = "speedup", winner = "server", at_least = 3.0}, ' + SHOWN
        clock = [0.0]

        def slow(row, placement, seed, quick):
            clock[0] += 90
            return server_wins(row, placement, seed, quick)

        with mock.patch("runner.time.monotonic", lambda: clock[0]):
            code, said, world = self.experiment("small", "--ci", claims=claims,
                                                world=FakeWorld(slow))
        self.assertEqual((code, len(world.runs)), (OK, 2))
        self.assertIn("skipped       small/one: the 240 s that CI has are over", said)
        self.assertIn("\n0 of 1 rows ran; ", said)
        self.assertIn("no claim: CI has not run it at server", said)
        self.assertEqual(self.in_results()["experiments"][0]["claims"], [])

    def test_ci_takes_a_row_of_each_experiment_first(self):
        options = experiment_main.options_of(experiment_main.parser().parse_args(["all", "--ci"]))
        pairs, _ = experiment_main.select(["all"], definition.EXPERIMENTS, options)
        names = [experiment.name for experiment, _ in pairs]
        many = len(set(names))
        self.assertGreater(many, 2)
        self.assertEqual(len(set(names[:many])), many)

    def test_what_goes_beyond_the_paper_is_left_out_of_quick_and_ci(self):
        grid = '[[row]]\nname = "at"\nnetwork = "LAN"\nstatics_of = "one"\ngrid = {a = [1, 2]}\n' \
               'quick_grid = {a = [2]}\nclients = ["lan1"]\n'
        folder = make_experiment(self.root, name="sweeps", extra="beyond = true")
        path = folder / "experiment.toml"
        path.write_text(path.read_text() + grid)
        make_experiment(self.root)
        selected = {}
        for words in ("all", "all --quick", "all --ci", "sweeps --quick", "sweeps/at",
                      "sweeps/at --quick", "sweeps/at_1"):
            options = experiment_main.options_of(
                experiment_main.parser().parse_args(words.split()))
            pairs, _ = experiment_main.select(words.split()[:1], self.root, options)
            selected[words] = [row.path for _, row in pairs]
        one, cells = "sweeps/one", ["sweeps/at_1", "sweeps/at_2"]
        self.assertEqual(selected, {
            "all": ["small/one", one, *cells], "all --quick": ["small/one"], "all --ci": [],
            "sweeps --quick": [one, cells[1]], "sweeps/at": [one, *cells],
            "sweeps/at --quick": [one, cells[1]], "sweeps/at_1": [one, cells[0]]})
        path.write_text(path.read_text().replace("quick_grid = {a = [2]}", "full_only = true"))
        options = experiment_main.options_of(
            experiment_main.parser().parse_args(["sweeps/at", "--quick"]))
        with self.assertRaisesRegex(ExperimentError, "sweeps/at is too long for --quick"):
            experiment_main.select(["sweeps/at"], self.root, options)

    def test_the_best_of_a_grid_is_of_all_its_cells_whatever_command_ran_them(self):
        folder = make_experiment(self.root, claims='{kind = "near_best", grid = "at", within = 9}')
        path = folder / "experiment.toml"
        path.write_text(path.read_text() + '[[row]]\nname = "at"\nnetwork = "LAN"\n'
                        'statics_of = "one"\ngrid = {a = [1, 2]}\nclients = ["lan1"]\n')
        _, said, _ = self.experiment("small/at_1", "--runs", "1")
        self.assertIn("no claim: 1 of 2 cells of at have been run", said)
        self.experiment("small/at_2", "--runs", "1")
        _, said, _ = self.experiment("small/one", "--runs", "1")
        self.assertIn("the best of 2)", said)

    def test_cells_of_nodes_with_other_shares_are_no_grid_to_be_the_best_of(self):
        class Slow(FakeWorld):
            factor = 1.0

            def machine(self, _):
                return self.factor

        folder = make_experiment(self.root, claims='{kind = "near_best", grid = "at", within = 9}')
        path = folder / "experiment.toml"
        path.write_text(path.read_text() + '[[row]]\nname = "at"\nnetwork = "LAN"\n'
                        'statics_of = "one"\ngrid = {a = [1, 2]}\nclients = ["lan1"]\n')
        slow = Slow(server_wins)
        self.experiment("small/at_1", "small/at_2", "--runs", "1", world=slow)
        for factor, told in ((1.5, "it and the cells of at were run on nodes with 1.00 to 1.50 "
                              "times their shares"), (1.05, "the best of 2)")):
            slow.factor = factor
            shutil.rmtree(self.results / "raw" / "small" / "one")
            _, said, _ = self.experiment("small/one", "--runs", "1", world=slow)
            self.assertIn(told, said)

    def test_simulated_rows_are_of_the_simulator_and_no_others(self):
        def simulated(*of):
            return {**server_wins(*of), "source": "simulator", "notes": ["told by it"]}

        path = make_experiment(self.root, claims=SHOWN) / "experiment.toml"
        code, said, _ = self.experiment("small", "--runs", "1", world=FakeWorld(simulated))
        self.assertEqual(code, FAILED)
        self.assertIn("not said to be simulated = true", said)
        path.write_text(path.read_text().replace('name = "one"', 'name = "one"\nsimulated = true'))
        code, said, _ = self.experiment("small", "--runs", "1")
        self.assertEqual(code, FAILED)
        self.assertIn("its record is not", said)
        # It takes no testbed, nor is the monitor's source refused.
        world = FakeWorld(simulated, measured=5)
        world.machine = mock.Mock(side_effect=MachineError("nobody measures it"))
        code, said, _ = self.experiment("small", "--runs", "1", world=world)
        self.assertEqual(code, OK, said)
        self.assertEqual((world.up, world.checked), ([], []))
        page = (self.results / "report.html").read_text()
        self.assertIn("simulated, on no testbed", page)
        self.assertIn("told by it", page)
        self.assertNotIn("times their shares", page)
        self.assertNotIn("measured on a testbed that was off", page)

    def test_ci_has_a_size_of_its_own_where_a_row_says_so(self):
        claims = '{kind = "speedup", winner = "server", at_least = 3.0}'
        path = make_experiment(self.root, claims=claims) / "experiment.toml"
        path.write_text(path.read_text().replace("ci = {bytes = 5}", "ci = {bytes = 1}"))
        seen = []

        def answer(row, placement, seed, quick):
            seen.append((row["bytes"], quick))
            return server_wins(row, placement, seed, quick)

        self.experiment("small", "--ci", world=FakeWorld(answer))
        self.assertEqual(seen, [(1, True)] * 3)

    def test_figures_of_a_fallback_source_are_refused_unless_asked_for(self):
        def fallback(*of):
            return {**server_wins(*of), "source": "thread clock"}

        code, said, _ = self.experiment("small", "--runs", "1", world=FakeWorld(fallback))
        self.assertEqual(code, FAILED)
        self.assertIn("source 'thread clock'", said)
        self.assertFalse(list((self.results / "raw").rglob("*.json")))
        code, _, _ = self.experiment("small", "--runs", "1", "--allow-fallback",
                                     world=FakeWorld(fallback))
        self.assertEqual(code, OK)
        self.assertIn("not of eBPF", (self.results / "report.html").read_text())
        _, said, world = self.experiment("small", "--runs", "1")
        self.assertIn("it is run again", said)
        self.assertEqual(len(world.runs), 3)

    def test_a_row_that_is_short_claims_nothing_in_quick_size(self):
        def lasts(adaptive_s):
            return FakeWorld(lambda row, placement, seed, quick: record(
                adaptive_s if placement == "adaptive" and seed == 1001 else
                12.0 if placement == "client" else 9.0))

        for i, size in enumerate(("--quick", "--runs=2")):
            for adaptive_s, short in ((2.9, size == "--quick"), (3.0, False)):
                self.commit = f"{i} {adaptive_s}"
                code, said, _ = self.experiment("small", size, claims=NOT, world=lasts(adaptive_s))
                row, = self.in_results()["experiments"]
                self.assertEqual((code, len(row["claims"]), len(row["placements"])),
                                 (OK, 0, 3) if short else (NOT_SHOWN, 1, 3))
                self.assertEqual(short, "no claim: an adaptive run lasted 2.90 observation windows,"
                                 " fewer than 3" in said)

    def test_a_run_that_fails_is_told_and_the_others_go_on(self):
        def fails(row, placement, seed, quick):
            if placement == "adaptive":
                raise RuntimeError("lan1 did not answer")
            return server_wins(row, placement, seed, quick)

        code, said, world = self.experiment("small", "--runs", "1", claims=SHOWN,
                                            world=FakeWorld(fails))
        self.assertEqual((code, len(world.runs)), (FAILED, 3))
        self.assertIn("FAILED: lan1 did not answer", said)
        self.assertEqual(self.in_results()["manifest"]["failures"],
                         [{"run": "small/one adaptive 1", "reason": "lan1 did not answer"}])

    def test_a_driver_that_returns_no_record_fails_with_what_is_wrong(self):
        for answer, wanted in ((lambda *_: None, "run() returned no dict"),
                               (lambda *_: {}, "its record lacks elapsed_s"),
                               (lambda *_: record(0.0), "no elapsed_s or window_s above 0")):
            code, said, _ = self.experiment("small", "--runs", "1", world=FakeWorld(answer))
            self.assertEqual(code, FAILED)
            self.assertIn(wanted, said)

    def test_a_driver_that_cannot_be_loaded_says_why(self):
        for driver, wanted in (("", "no such file"), ("x = 1", "has no function run"),
                               ("import no_such_thing", "ModuleNotFoundError")):
            (make_experiment(self.root) / "driver.py").unlink()
            code, said, _ = self.experiment("small", "--runs", "1", driver=driver)
            self.assertEqual(code, FAILED)
            self.assertIn(wanted, said)
        make_experiment(self.root, driver=DRIVER)

    # --- results and the command ---------------------------------------------------------------

    def test_results_have_the_schema_that_was_agreed(self):
        code, _, _ = self.experiment("small", "--runs", "2", claims=f"{SHOWN}, {NOT}")
        self.assertEqual(code, NOT_SHOWN)
        made = self.in_results()
        self.assertEqual(set(made), {"experiments", "manifest", "profile_sha256"})
        row, = made["experiments"]
        self.assertEqual(row, {
            "name": "small/one", "network": "LAN",
            "placements": [{"placement": of, "mean_s": mean, "ci90_s": 0, "runs": 2}
                           for of, mean in (("client", 20), ("adaptive", 8), ("server", 5))],
            "engine_choice": "server",
            "claims": [{"claim": f"{of} is the faster static placement", "paper": of,
                        "ours": "server 5.00 ± 0.00 s, client 20.0 ± 0.0 s", "holds": holds}
                       for of, holds in (("server", True), ("client", False))]})
        self.assertEqual(len(made["profile_sha256"]), 64)
        self.assertEqual(made["manifest"]["commit"], "c0ffee")
        for key in ("kernel", "cpu", "cores"):
            self.assertTrue(made["manifest"]["machine"][key], key)

    def test_one_run_has_no_interval_in_the_results(self):
        self.experiment("small", "--runs", "1")
        self.assertIsNone(self.in_results()["experiments"][0]["placements"][0]["ci90_s"])

    def test_other_profiles_are_shown_without_claims(self):
        make_experiment(self.root, claims=NOT)
        (self.root / "profiles" / "default.toml").write_text("")
        code, said, _ = self.experiment("small", "--runs", "1", "--profile", "default")
        self.assertEqual(code, OK)
        self.assertIn("the profile default is shown without claims", said)

    def test_an_experiment_with_a_profile_of_its_own_is_held_to_its_claims_with_it_only(self):
        made = make_experiment(self.root, claims=SHOWN,
                               extra='profile = "modern"\nbeyond = true')
        self.assertTrue(made)
        (self.root / "profiles" / "modern.toml").write_text("H_s = 3.0\n")
        code, said, _ = self.experiment("small", "--runs", "1")
        self.assertEqual(code, OK)
        self.assertIn("profile modern, SHA-256", said)
        self.assertIn("holds         small/one: server is the faster static placement (ours ", said)
        claimed, = self.in_results()["experiments"][0]["claims"]
        self.assertEqual((claimed["paper"], claimed["holds"]), ("", True))
        page = (self.results / "report.html").read_text()
        self.assertIn(">expectation<", page)
        self.assertNotIn(">the paper<", page)
        self.assertEqual(self.in_results()["manifest"]["profile"]["text"], "H_s = 3.0\n")
        code, said, world = self.experiment("small", "--runs", "1", "--profile", "paper")
        self.assertEqual((code, len(world.runs)), (OK, 3))
        self.assertIn("the profile paper is shown without claims", said)

    def test_on_a_machine_that_is_slower_than_the_model_nodes_have_larger_shares(self):
        asked = []

        class Slow(FakeWorld):
            def machine(self, profile):
                asked.append(("measured", profile.stem))
                return 1.75

            def testbed(self, topology, shares, machine):
                asked.append(("testbed", machine))
                return super().testbed(topology, shares, machine)

            def null_call(self, _, profile, machine):
                asked.append(("null call", profile.stem, machine))
                return [Measured("CPU time of a null call at a side", 84.0, 84.0)]

            def lab(self, _, profile, machine):
                asked.append(("lab", machine))
                return super().lab()

        make_experiment(self.root, "small")
        code, said, _ = self.experiment("small", "--runs", "1", world=Slow(server_wins))
        self.assertEqual(code, OK)
        self.assertEqual(asked, [("measured", "paper"), ("testbed", 1.75),
                                 ("null call", "paper", 1.75), ("lab", 1.75)])
        self.assertIn("a null call takes 1.75 times the CPU time", said)
        raw = self.results / "raw" / "small"
        self.assertEqual({json.loads(path.read_text())["machine"]
                          for path in raw.rglob("*.json")}, {1.75})
        check, = self.in_results()["manifest"]["testbed"]
        self.assertIn("nodes have 1.75 times the share of a core", check["used"][-1])
        self.assertIn("CPU time of a null call at a side", [row["what"] for row in check["rows"]])

    def test_where_only_a_call_costs_what_it_did_not_the_machine_is_measured_anew(self):
        make_experiment(self.root)
        make_experiment(self.root, name="other")
        # What a call takes when the machine is measured, and at the looks at the testbed; runs that
        # were made; and what nodes have in the records that count.
        for machines, calls, runs, counts in (
                ([1.7, 1.3], [1.3, 1.3, 1.3], 6, {1.3}),             # before all
                ([1.7, 1.3], [1.7, 1.3, 1.3, 1.3, 1.3, 1.3], 9, {1.3}),  # after the first row
                ([1.7, 1.3], [1.7, 1.7, 1.3, 1.3, 1.3, 1.3], 9, {1.7, 1.3})):  # after the second
            world = Uneven(machines, calls)
            with mock.patch("runner.MEASURE_AGAIN_S", 0 if runs > 6 else 900):
                code, said, _ = self.experiment("small", "other", "--runs", "1", world=world)
            self.assertEqual((code, len(world.runs)), (OK, runs), said)
            self.assertEqual(said.count("it is measured anew"), 1, said)
            self.assertIn(f"[{runs}/{runs}]", said)
            self.assertEqual((world.machines, world.calls, world.up), ([], [], world.down), said)
            raw = [json.loads(path.read_text()) for path in (self.results / "raw").rglob("*.json")]
            self.assertEqual((len(raw), {of["machine"] for of in raw}), (6, counts))
            for name in ("small", "other"):
                self.assertEqual(len({of["machine"] for of in raw if of["experiment"] == name}), 1)
            shutil.rmtree(self.results)

    def test_what_failed_before_the_machine_was_measured_anew_is_run_again_and_forgotten(self):
        def fails_once(row, *others):
            if len(world.runs) == 1:
                raise RuntimeError("lan1 did not answer")
            return server_wins(row, *others)

        make_experiment(self.root)
        world = Uneven([1.7, 1.3], [1.7, 1.3, 1.3, 1.3, 1.3])
        world.answer = fails_once
        with mock.patch("runner.MEASURE_AGAIN_S", 0):
            code, said, _ = self.experiment("small", "--runs", "1", world=world)
        self.assertEqual((code, len(world.runs)), (OK, 6), said)
        self.assertIn("FAILED: lan1 did not answer", said)

    def test_a_machine_that_cannot_be_measured_anew_is_told_and_what_is_there_stays(self):
        class Lost(Uneven):
            def machine(self, path):
                if not self.machines:
                    raise MachineError("no testbed comes up")
                return super().machine(path)

        make_experiment(self.root)
        make_experiment(self.root, name="other")
        world = Lost([1.7], [1.7, 1.7, 1.3, 1.3])
        with mock.patch("runner.MEASURE_AGAIN_S", 0):
            code, said, _ = self.experiment("small", "other", "--runs", "1", world=world)
        self.assertEqual((code, len(world.runs)), (FAILED, 6), said)
        self.assertIn("FAILED        small/one: no testbed comes up", said)
        self.assertIn("other/one", {of["name"] for of in self.in_results()["experiments"]})

    def test_what_is_never_twice_the_same_is_refused_and_so_is_what_is_off_otherwise(self):
        never = Uneven([1.3, 1.7] * 2, [2.5] * 8)
        code, said, _ = self.experiment("small", "--runs", "1", world=never)
        self.assertEqual((code, never.runs, never.machines, never.calls), (FAILED, [], [], []), said)
        self.assertIn("small/one: the testbed is off by more than 10 %: a null call", said)
        both = Uneven([1.3], [2.5] * 2)
        both.measured = 5.0
        code, said, _ = self.experiment("small", "--runs", "1", world=both)
        self.assertEqual((code, both.runs, both.machines, both.calls), (FAILED, [], [], []), said)
        self.assertNotIn("measured anew", said)
        claims = '{kind = "speedup", winner = "server", at_least = 3.0}'
        ci = Uneven([1.3], [2.5])
        code, said, _ = self.experiment("small", "--ci", claims=claims, world=ci)
        self.assertEqual((code, ci.runs, ci.machines), (OK, [], []), said)
        self.assertIn("skipped       small/one", said)

    def test_runs_of_nodes_with_other_shares_claim_nothing_together(self):
        class Slow(FakeWorld):
            factor = 1.0

            def machine(self, _):
                return self.factor

        make_experiment(self.root, "small", claims=SHOWN)
        slow = Slow(server_wins)
        for factor, is_claimed in ((1.0, True), (1.09, True), (2.1, False)):
            slow.factor = factor
            code, said, _ = self.experiment("small", "--runs", "1", world=slow)
            self.assertEqual(code, OK)
            self.assertEqual("do not compare" not in said, is_claimed, said)
            row, = self.in_results()["experiments"]
            self.assertEqual(bool(row["claims"]), is_claimed)
            # What is missing is run on the machine as it is then.
            (self.results / "raw" / "small" / "one" / "server" / "1.json").unlink()
        self.assertIn(f"remove {self.results / 'raw' / 'small' / 'one'} and run them again", said)

    def test_topologies_and_profiles_follow_each_other_in_one_command(self):
        make_experiment(self.root, "zz_today",
                        extra='topology = "modern"\nprofile = "modern"\nbeyond = true')
        make_experiment(self.root, "other", extra='profile = "modern"\nbeyond = true')
        (self.root / "profiles" / "modern.toml").write_text("H_s = 3.0\n")
        labs = []

        class Noting(FakeWorld):
            def lab(self, testbed, profile, machine):
                labs.append((testbed.what[0], profile.stem))
                return super().lab(testbed, profile, machine)

        code, _, world = self.experiment("all", "--runs", "1", world=Noting(server_wins))
        self.assertEqual((code, len(world.runs)), (OK, 9))
        self.assertEqual(world.up, [("paper", ()), ("modern", ())])
        self.assertEqual(world.up, world.down)
        self.assertEqual(labs, [("paper", "modern"), ("paper", "paper"), ("modern", "modern")])
        made = self.in_results()["manifest"]
        self.assertEqual([made["profile"]["name"], *(of["name"] for of in made["other_profiles"])],
                         ["paper", "modern"])
        self.assertIn("H_s = 3.0", (self.results / "report.html").read_text())

    def test_what_goes_beyond_the_paper_is_left_out_of_all_quick_and_of_ci(self):
        large = '{kind = "speedup", winner = "server", at_least = 3.0}'
        make_experiment(self.root, "further", extra="beyond = true", claims=large)
        _, said, world = self.experiment("all", "--quick", claims=large)
        self.assertEqual(len(world.runs), 3)
        self.assertIn("further is left out, as it goes beyond the paper: `further --quick`", said)
        self.assertEqual({of["name"] for of in self.in_results()["experiments"]}, {"small/one"})
        for words, ran in ((["further", "--ci"], set()), (["all", "--ci"], {"small/one"})):
            _, said, world = self.experiment(*words)
            self.assertIn("further is left out", said)
            self.assertEqual({of["name"] for of in self.in_results()["experiments"]}, ran)
        _, _, world = self.experiment("further", "--quick")
        self.assertEqual(len(world.runs), 3)

    def test_all_leaves_out_what_cannot_be_run_and_says_so(self):
        make_experiment(self.root, "later", extra='not_runnable = "its layer is not there"')
        code, _, world = self.experiment("all", "--runs", "1")
        self.assertEqual((code, len(world.runs)), (OK, 3))
        self.assertIn("Not run: its layer is not there", (self.results / "report.html").read_text())
        with self.assertRaises(ExperimentError) as raised:
            self.experiment("later")
        self.assertIn("later cannot be run yet: its layer is not there", str(raised.exception))

    def test_list_names_experiments_rows_and_what_cannot_be_run(self):
        make_experiment(self.root, "later", extra='not_runnable = "its layer is not there"')
        _, said, _ = self.experiment("list")
        for wanted in ("small ", "Figure 0: Small", "one", "not runnable yet: its layer"):
            self.assertIn(wanted, said)

    def test_list_has_a_grid_once_and_marks_what_goes_beyond_the_paper(self):
        out = io.StringIO()
        arguments = experiment_main.parser().parse_args(["list"])
        self.assertEqual(experiment_main.run(arguments, out=out), OK)
        said = out.getvalue()
        for grid in ("phases_at", "flicker_at", "set4_at"):
            self.assertEqual(said.count(f"{grid} (25 cells)"), 1)
        self.assertNotIn("phases_at_", said)
        self.assertIn("set1_long (full size)", said)
        self.assertLess(max(len(of) for of in said.splitlines() if of.startswith(" ")), 100)
        for name in definition.names():
            line = next(line for line in said.splitlines() if line.startswith(f"{name} "))
            self.assertEqual(definition.find(name).beyond, line.endswith("(beyond the paper)"))

    def test_check_testbed_tells_and_takes_it_down(self):
        for measured, wanted in ((9.9, OK), (5.0, FAILED)):
            code, _, world = self.experiment("check-testbed", world=FakeWorld(measured=measured))
            self.assertEqual((code, world.down), (wanted, [("paper", ())]))

    def test_bad_input_is_told_with_a_way_out(self):
        for words, wanted in (
                (["figure7_filter"], "unknown experiment 'figure7_filter'; did you mean"),
                (["figure07_filter/set9"], "unknown row 'set9'; did you mean set4?"),
                (["figure07_filter", "--profile", "papr"], "rofile"),
                (["figure07_filter/set1_long", "--quick"], "is too long for --quick"),
                (["compare", "a.json"], "compare takes two"),
                (["compare", "a.json", "b.json"], "a.json: No such file"),
                (["table", "a.json"], "a.json: No such file"),
                (["table", "a.json", "b.json"], "table takes one"),
                (["list", "--runs", "0"], "'0' is no number from 1 to 30"),
                (["list", "--rnus", "1"], "unrecognized arguments")):
            done = subprocess.run([*COMMAND, *words, "--program", "/bin/true"], text=True,
                                  capture_output=True, check=False)
            self.assertEqual(done.returncode, MISUSED, (words, done.stderr))
            self.assertIn(wanted, done.stderr)
            self.assertNotIn("Traceback", done.stderr)

    # --- progress ------------------------------------------------------------------------------

    def test_bar_shows_how_far_it_is_and_fits_the_terminal(self):
        progress = Progress(4, io.StringIO())
        progress.begin("figure/row adaptive 2", 130)
        progress.end("7.0 s")
        progress.begin("figure/row server 2", 130)
        self.assertEqual(progress.line(200), "[######------------------] 1/4 figure/row server 2, "
                         "0 s; 2 min left")
        self.assertEqual(len(progress.line(40)), 39)
        self.assertIn("[1/4] figure/row adaptive 2: 7.0 s", progress.out.getvalue())

    def test_durations_are_rounded_like_a_person_would(self):
        self.assertEqual([duration(of) for of in (12.3, 89, 150, 5400, 7300)],
                         ["12 s", "89 s", "2 min", "1 h 30 min", "2 h 2 min"])


if __name__ == "__main__":
    unittest.main()
