#!/usr/bin/env python3
"""The demo on small files: its numbers, and what it says when something is wrong.

usage: demo_test.py PROGRAM [unittest arguments]
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = ""
GREP = shutil.which("grep")


class Demo(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="abacus-demo-test-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        lines = (f"line {n}" + (" of the kernel" if n % 500 == 0 else "") for n in range(40000))
        self.text = self.folder / "text"
        self.text.write_text("\n".join(lines) + "\n")
        self.json = self.folder / "numbers.json"

    def fake(self, name, script):
        """Puts a program before all others of its name."""
        programs = self.folder / "programs"
        programs.mkdir(exist_ok=True)
        (programs / name).write_text("#!/bin/sh\n" + script + "\n")
        (programs / name).chmod(0o755)

    def run_demo(self, *arguments, link="loopback"):
        path = f"{self.folder}/programs:{os.environ['PATH']}"
        return subprocess.run(
            [PROGRAM, "--file", self.text, "--link", link, "--json", self.json, *arguments],
            env={**os.environ, "PATH": path}, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=100, check=False)

    def numbers(self, *arguments, **options):
        done = self.run_demo(*arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(self.json.read_text()), done

    def check_schema(self, numbers):
        """Exactly these keys, and values of these types."""
        self.assertEqual(numbers.keys(), {"link", "files"})
        self.assertEqual(numbers["link"].keys(), {"kind", "mbit_s"})
        for of_file in numbers["files"]:
            self.assertEqual(of_file.keys(), {"file", "pattern", "bytes", "expect",
                                              "output_identical", "placements", "explanation"})
            self.assertIsInstance(of_file["explanation"], str)
            self.assertIs(of_file["output_identical"], True)
            self.assertEqual([run["placement"] for run in of_file["placements"]],
                             ["client", "adaptive", "server"])
            for run in of_file["placements"]:
                types = {key: type(value) for key, value in run.items()}
                self.assertEqual(types, {"placement": str, "elapsed_s": float, "link_bytes": int,
                                         "migrations": int, "matches": int})

    def test_few_matches_are_expected_to_move(self):
        numbers, done = self.numbers("--pattern", "kernel", "--link-mbit", "8")
        self.check_schema(numbers)
        self.assertEqual(numbers["link"], {"kind": "loopback", "mbit_s": 8.0})
        of_file = numbers["files"][0]
        self.assertEqual(len(numbers["files"]), 1)
        self.assertEqual((of_file["file"], of_file["pattern"]), ("text", "kernel"))
        self.assertEqual(of_file["bytes"], self.text.stat().st_size)
        self.assertEqual(of_file["expect"], "move")
        self.assertNotEqual(of_file["explanation"], "")
        client, _, server = of_file["placements"]
        self.assertEqual([run["matches"] for run in of_file["placements"]], [80, 80, 80])
        self.assertEqual((client["migrations"], server["migrations"]), (0, 0))
        self.assertGreater(client["link_bytes"], of_file["bytes"])
        self.assertLess(server["link_bytes"], of_file["bytes"])
        self.assertNotIn("stay:", done.stdout)
        self.assertIn("byte for byte", done.stdout)

    def test_where_every_line_matches_it_is_expected_to_stay(self):
        numbers, done = self.numbers("--pattern", "line")
        self.check_schema(numbers)
        of_file = numbers["files"][0]
        self.assertEqual(of_file["expect"], "stay")
        self.assertEqual(of_file["placements"][1]["migrations"], 0, of_file["explanation"])
        self.assertIn("  stay: met\n", done.stdout)

    def test_an_output_that_differs_from_greps_ends_the_demo(self):
        self.fake("grep", "echo '1:something else'")
        done = self.run_demo("--pattern", "kernel")
        self.assertEqual(done.returncode, 1)
        self.assertIn("OUTPUT DIFFERS from GNU grep with grep at client, at output line 1",
                      done.stderr)
        self.assertIn("grep: 1:something else", done.stderr)
        self.assertIn("here: 1:line 0 of the kernel", done.stderr)
        self.assertNotIn("byte for byte", done.stdout)
        self.assertFalse(self.json.exists())

    def test_a_line_end_that_is_missing_is_a_difference(self):
        self.fake("grep", f'{GREP} "$@" | head -c -1')
        done = self.run_demo("--pattern", "kernel")
        self.assertEqual(done.returncode, 1)
        self.assertIn("OUTPUT DIFFERS from GNU grep in its last line end", done.stderr)

    def test_a_grep_that_fails_is_no_comparison(self):
        self.fake("grep", "exit 2")
        done = self.run_demo("--pattern", "kernel")
        self.assertEqual(done.returncode, 1)
        self.assertIn("GNU grep failed", done.stderr)

    def test_without_usable_namespaces_it_takes_loopback_and_says_why(self):
        # As in a container that lets them be made, and nobody run in one.
        self.fake("ip", 'if [ "$2" = exec ]; then echo "mount of /sys failed" >&2; exit 255; fi')
        numbers, done = self.numbers("--pattern", "kernel", link="auto")
        self.assertEqual(numbers["link"]["kind"], "loopback")
        self.assertIn("no network namespaces: ", done.stderr)
        if os.geteuid() == 0:
            self.assertIn("exited with 255: mount of /sys failed", done.stderr)

    def test_namespaces_that_were_asked_for_are_not_replaced(self):
        self.fake("ip", "echo 'not permitted' >&2; exit 1")
        done = self.run_demo(link="namespaces")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "not permitted|root's to make")

    def test_a_file_that_is_not_there_is_named(self):
        self.text = "/nowhere/text"
        done = self.run_demo()
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nowhere/text", done.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
