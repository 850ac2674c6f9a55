#!/usr/bin/env python3
"""What ./dev experiment does for who is not root: runs in user space, marked, and claims nothing."""

import sys
import unittest
from unittest import mock

import experiment_main
from definition import ExperimentError
from experiment_main import OK
from fake_world import DRIVER, FakeWorld, make_experiment
from runner import World
from runner_test import NOT, RunnerTest, server_wins
from user_space import MARK


class WithoutRootTest(unittest.TestCase):
    setUp = RunnerTest.setUp
    experiment = RunnerTest.experiment
    in_results = RunnerTest.in_results

    def test_in_user_space_all_is_marked_and_nothing_claimed(self):
        def fallback(*of):
            return {**server_wins(*of), "source": "thread clock"}

        code, said, _ = self.experiment("small", "--runs", "1", "--user-space", claims=NOT,
                                        world=FakeWorld(fallback))
        self.assertEqual(code, OK)
        self.assertIn(f"no claim: {MARK}", said)
        made = self.in_results()
        self.assertEqual(made["testbed"], MARK)
        self.assertEqual(made["manifest"]["emulation"], MARK)
        self.assertEqual(made["experiments"][0]["claims"], [])
        self.assertEqual(len(made["experiments"][0]["placements"]), 3)
        page = (self.results / "report.html").read_text()
        self.assertIn(f'class="warning">Measured without privileges: {MARK}. No claims.', page)
        self.assertIn(f"no claim: {MARK}", page)
        self.assertIn("source 'thread clock', not of eBPF", page)

    def test_records_of_user_space_and_of_the_testbed_do_not_stand_for_each_other(self):
        for words, runs in ((["--user-space"], 3), ([], 3), (["--user-space"], 3),
                            (["--user-space"], 0)):
            code, said, world = self.experiment("small", "--runs", "1", *words)
            self.assertEqual((code, len(world.runs)), (OK, runs), words)
            if "testbed" not in said:
                self.fail(said)
        self.assertNotIn("it is run again", said)
        with self.assertRaisesRegex(ExperimentError, "has no record .*3 of commit c0ffee"):
            self.experiment("small", "--runs", "1", "--report-only")

    def test_a_row_of_other_shares_is_skipped_in_user_space(self):
        make_experiment(self.root)
        path = self.root / "small" / "experiment.toml"
        path.write_text(path.read_text().replace('network = "LAN"',
                                                 'network = "LAN"\nshares = {s1 = "6%"}'))
        code, said, world = self.experiment("small", "--runs", "1", "--user-space")
        self.assertEqual((code, world.runs, world.up), (OK, [], []))
        self.assertRegex(said, "skipped +small/one: .* takes CPU quotas: it takes root")

    def test_an_experiment_that_needs_root_is_skipped_in_user_space(self):
        driver = DRIVER + "\nrun.needs_root = 'it mounts'\n"
        code, said, world = self.experiment("small", "--runs", "1", "--user-space", driver=driver)
        self.assertEqual((code, world.runs, world.up), (OK, [], []))
        self.assertRegex(said, "skipped +small/one: it mounts: it takes root")
        self.assertEqual(len(self.experiment("small", "--runs", "1")[2].runs), 3)

    def test_whoever_is_not_root_is_in_user_space(self):
        for uid, words, wanted in ((1000, [], True), (0, [], False), (0, ["--user-space"], True)):
            with mock.patch("os.geteuid", lambda uid=uid: uid), \
                    mock.patch.object(experiment_main, "run") as run, \
                    mock.patch.object(sys, "argv", ["experiment", "all", *words]):
                experiment_main.main()
            arguments, = run.call_args.args
            self.assertEqual(arguments.user_space, wanted)
            folder = experiment_main.options_of(arguments).results.name
            self.assertEqual(folder, "full-user-space" if wanted else "full")
            self.assertEqual(World("p", arguments.user_space).user_space, wanted)


del RunnerTest  # whose tests are not run here again

if __name__ == "__main__":
    unittest.main()
