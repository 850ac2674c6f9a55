#!/usr/bin/env python3
"""Real programs on loopback, and what they are made of; no root but for mounts where FUSE wants it.

    real_programs_test.py PROGRAM ABACUS      abacus_lab, abacus
"""

import dataclasses
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent / folder) for folder in ("real_programs", "lab", "harness")]
import definition  # noqa: E402
import driver  # noqa: E402
import programs  # noqa: E402
from lab import Lab, LabError, Loopback  # noqa: E402
from records import problem_of  # noqa: E402
from volume import find_abacus  # noqa: E402

EXPERIMENT = definition.find("real_programs")
MOUNTS = os.access("/dev/fuse", os.W_OK)
SMALL = {"files": 30, "bytes": 1 << 20, "images": 2, "transactions": 4, "rows_each": 20}


def row(name):
    made = EXPERIMENT.row(name).for_driver(quick=True)
    return {**made, **{key: value for key, value in SMALL.items() if key in made}}


def left():
    """What runs leave behind where they are not cleaned up."""
    return sorted(str(path) for path in Path(tempfile.gettempdir()).glob(f"{Loopback.folder_prefix}*")), \
        [line for line in Path("/proc/self/mounts").read_text().splitlines()
         if "abacus-lab-" in line]


class RunTest(unittest.TestCase):
    def setUp(self):
        if not MOUNTS:
            self.skipTest("there is no /dev/fuse to mount with")
        folder = tempfile.TemporaryDirectory(prefix="abacus-real-test-")
        self.addCleanup(folder.cleanup)
        for patched in (mock.patch.dict(os.environ, ABACUS=ABACUS),
                        mock.patch.object(tempfile, "tempdir", folder.name)):
            patched.start()
            self.addCleanup(patched.stop)
        self.lab = Lab(Loopback(), "programs", PROGRAM)
        self.addCleanup(self.forget)

    @staticmethod
    def forget():
        for inputs in driver._kept.values():
            inputs.remove()
        driver._kept.clear()

    def run_row(self, name, placement, **changes):
        record = driver.run(self.lab, {**row(name), **changes}, placement, 7, True)
        named = {**record, "experiment": "e", "row": name, "network": "LAN",
                 "placement": placement, "run": 1, "seed": 7}
        self.assertIsNone(problem_of(named))
        self.assertGreater(record["baseline"]["elapsed_s"], 0)
        return record

    def with_words(self, name, words):
        """The program of a row, started as something else."""
        changed = dataclasses.replace(programs.PROGRAMS[name], words=lambda row, seed: words)
        return mock.patch.dict(programs.PROGRAMS, {name: changed})

    def test_a_file_that_is_held_is_where_it_is_pinned(self):
        for placement in ("client", "adaptive", "server"):
            record = self.run_row("wc_mount", placement)
            if placement != "adaptive":
                self.assertEqual(record["final_placement"], {"lan1/objfs.CacheLayer": placement,
                                                             "lan1/objfs.Directory": placement})
                self.assertEqual(record["migrations"], [])
            # All of it crosses wherever the objects are: the program is at the client.
            self.assertGreater(record["clients"][0]["link_bytes"], SMALL["bytes"])
        self.assertEqual(len(driver._kept), 1, "placements have the same inputs")
        self.forget()
        self.assertEqual(left(), ([], []))

    def test_a_search_sends_what_matches_or_all(self):
        bytes_of = {placement: self.run_row("csv_app", placement)["clients"][0]["link_bytes"]
                    for placement in ("client", "server")}
        self.assertGreater(bytes_of["client"], SMALL["bytes"])
        self.assertLess(bytes_of["server"], SMALL["bytes"] / 4)
        there = self.run_row("grep_app", "server")
        self.assertEqual(there["final_placement"], {"lan1/apps.Grep": "server"})
        self.assertLess(there["clients"][0]["link_bytes"], SMALL["bytes"] / 4)

    def test_a_count_and_a_sum_send_a_few_numbers_or_all(self):
        for name, moves in (("wc_app", "apps.WordCount"), ("sum_app", "apps.ColumnAggregate")):
            records = {placement: self.run_row(name, placement)
                       for placement in ("client", "server")}
            for placement, record in records.items():
                self.assertEqual(record["final_placement"], {f"lan1/{moves}": placement})
                self.assertEqual(record["migrations"], [])
            link_bytes = {placement: record["clients"][0]["link_bytes"]
                          for placement, record in records.items()}
            self.assertGreater(link_bytes["client"], SMALL["bytes"])
            self.assertLess(link_bytes["server"], SMALL["bytes"] / 4)
        self.forget()
        self.assertEqual(left(), ([], []))

    def test_an_application_that_prints_something_else_is_a_wrong_result(self):
        with self.with_words("sum_app", ["echo", "rows   0"]), \
                self.assertRaisesRegex(LabError, "a wrong result: line 1"):
            self.run_row("sum_app", "client")
        self.forget()
        self.assertEqual(left(), ([], []))

    def test_programs_that_write_do_so_wherever_the_objects_are(self):
        for name in ("sqlite", "thumbnails", "grep_tree"):
            if name == "thumbnails" and subprocess.run([sys.executable, "-c", "import PIL"],
                                                       capture_output=True).returncode:
                continue
            for placement in ("client", "server"):
                record = self.run_row(name, placement)
                self.assertIn(placement, record["final_placement"].values())

    def test_a_wrong_result_fails_and_leaves_nothing(self):
        with self.with_words("wc", ["pwd"]), self.assertRaisesRegex(LabError, "a wrong result: line 1"):
            self.run_row("wc_mount", "client")
        self.forget()
        self.assertEqual(left(), ([], []))

    def test_a_program_that_fails_is_told_and_leaves_nothing(self):
        fails_there = ["bash", "-c", "[[ $PWD != */mount ]] || { echo no good >&2; exit 3; }"]
        with self.with_words("wc", fails_there), \
                self.assertRaisesRegex(LabError, r"no good \(exit code 3\)"):
            self.run_row("wc_mount", "client")
        self.forget()
        self.assertEqual(left(), ([], []))

    def test_a_mount_whose_process_is_killed_is_taken_away(self):
        kills = ["bash", "-c", "[[ $PWD != */mount ]] || for i in /proc/[0-9]*; do "
                 "if tr '\\0' ' ' <$i/cmdline 2>/dev/null | grep -q \"mount .*$PWD --fore\"; then "
                 "kill -9 ${i#/proc/}; exit 1; fi; done"]
        with self.with_words("wc", kills), self.assertRaisesRegex(LabError, "exit code 1"):
            self.run_row("wc_mount", "client")
        self.forget()
        self.assertEqual(left(), ([], []))


class PartsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="abacus-real-test-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def printed(self, words):
        return subprocess.run(words, cwd=self.folder, capture_output=True, check=True,
                              text=True).stdout

    def test_every_row_names_a_program_and_what_it_takes(self):
        for one in EXPERIMENT.rows:
            self.assertIn(one.workload["program"], programs.PROGRAMS)
            self.assertTrue(programs.PROGRAMS[one.workload["program"]].words(row(one.name), 1))
            for key, quick in one.sizes["quick"].items():
                self.assertLess(quick, one.sizes["full"][key], one.path)

    def test_every_application_is_one_whose_class_is_known(self):
        apps = {name: of.app for name, of in programs.PROGRAMS.items() if of.app}
        self.assertEqual(set(apps), {"grep_app", "wc_app", "csv_app", "sum_app"})
        for name, app in apps.items():
            self.assertIn(app[0], driver.CLASSES, name)

    def test_a_row_of_an_application_has_the_sizes_of_the_mounts(self):
        for app, mount in (("grep_app", "grep_mount"), ("wc_app", "wc_mount"),
                           ("csv_app", "csv_mount"), ("sum_app", "csv_mount")):
            self.assertEqual(EXPERIMENT.row(app).sizes, EXPERIMENT.row(mount).sizes, app)
            self.assertEqual(EXPERIMENT.row(app).claims, EXPERIMENT.row("grep_app").claims, app)

    def test_a_twentieth_of_a_table_is_the_regions_and_the_sum_is_right(self):
        programs.table(self.folder, {"bytes": 1 << 20}, 3)
        rows = [line.split(",") for line in (self.folder / "data.csv").read_text().splitlines()]
        ours = [of for of in rows if of[2] == programs.REGION]
        self.assertAlmostEqual(len(ours) / len(rows), 1 / 20, delta=0.01)
        count, units, turnover = self.printed(programs._awk(None, 0)).split()
        self.assertEqual((int(count), int(units)), (len(ours), sum(int(of[4]) for of in ours)))
        self.assertAlmostEqual(float(turnover),
                               sum(int(of[4]) * float(of[5]) for of in ours), delta=1)
        all_units = [int(of[4]) for of in ours]
        self.assertEqual(self.printed(programs._sum(None, 0)),
                         f"rows   {len(ours)}\nsum    {sum(all_units)}\nleast  {min(all_units)}\n"
                         f"most   {max(all_units)}\n")

    def test_a_text_has_its_size_and_a_tree_is_made_up_where_there_is_none(self):
        with mock.patch.object(programs, "DOCUMENTATION", self.folder / "nowhere"):
            notes = programs.text_file(self.folder, {"bytes": 40 << 20}, 1)
            self.assertIn("generated", notes[0])
            self.assertEqual((self.folder / "doc.txt").stat().st_size, 40 << 20)
            programs.documentation_tree(self.folder, {"files": 50}, 1)
        self.assertEqual(len(list((self.folder / "sources").rglob("*.txt"))), 50)
        self.assertIn(programs.PATTERN, self.printed(["grep", "-r", programs.PATTERN, "sources"]))

    def test_the_database_says_the_same_each_time(self):
        words = [sys.executable, "-B", programs.JOBS, "sqlite"]
        one, two = (self.printed([*words, name, "3", "20", "5"]) for name in ("a.db", "b.db"))
        self.assertEqual(one, two)
        self.assertEqual(one.splitlines()[-2], "ok")

    def test_places_tell_a_class_that_is_at_both(self):
        self.assertEqual(driver.places("c", [("A", "client"), ("A", "client"), ("B", "server")]),
                         {"c/A": "client", "c/B": "server"})
        self.assertEqual(driver.places("c", [("A", "client"), ("A", "server"), ("A", "server")]),
                         {"c, 1 at the client/A": "client", "c, 2 at the server/A": "server"})

    def test_what_is_missing_is_named_with_what_brings_it(self):
        lab = Lab(Loopback(), "programs", self.folder / "experiments" / "abacus_lab")
        with mock.patch.dict(os.environ):
            os.environ.pop("ABACUS", None)
            with self.assertRaisesRegex(LabError, "./dev build release abacus"):
                find_abacus(lab)
        with mock.patch.object(sys, "executable", "/bin/false"), \
                self.assertRaisesRegex(LabError, "apt-get install python3-pil"):
            programs.need_pil()


if __name__ == "__main__":
    ABACUS = sys.argv.pop(2)
    PROGRAM = sys.argv.pop(1)
    unittest.main()
