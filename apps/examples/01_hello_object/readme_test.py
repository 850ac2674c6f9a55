#!/usr/bin/env python3
"""What the project's README shows of this example is what stands in it and what it prints.

usage: readme_test.py README PROGRAM [unittest arguments]
"""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).with_name("hello_object.cc")
README = PROGRAM = ""


def shown(readme):
    """The lines of code that README shows; comments at the margin are the README's own."""
    blocks = re.findall(r"^```cpp\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()
            if line.strip() and not line.startswith("//")]


def first_missing(lines, source):
    """The first of `lines` that does not follow those before it in `source`, or None."""
    rest = iter(source.splitlines())
    return next((line for line in lines if line not in rest), None)


class Readme(unittest.TestCase):
    def test_each_line_of_code_stands_in_the_example_in_that_order(self):
        lines = shown(Path(README).read_text())
        self.assertGreater(len(lines), 10, "the README shows no example")
        self.assertIsNone(first_missing(lines, SOURCE.read_text()))

    def test_what_the_program_prints_is_quoted(self):
        with tempfile.TemporaryDirectory(prefix="abacus-hello-test-") as folder:
            done = subprocess.run([PROGRAM], cwd=folder, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=60, check=True)
        self.assertIn(f"`{done.stdout.strip()}`", Path(README).read_text())

    def test_a_line_that_is_changed_left_out_or_elsewhere_is_found(self):
        source = "a();\nb();\nc();\n"
        self.assertIsNone(first_missing(["a();", "c();"], source))
        self.assertEqual(first_missing(["a();", "B();"], source), "B();")
        self.assertEqual(first_missing(["c();", "a();"], source), "a();")
        self.assertEqual(shown("```\nx\n```\n```cpp\n// Here:\n  a();\n\n```\n"), ["  a();"])


if __name__ == "__main__":
    README, PROGRAM = sys.argv[1:3]
    del sys.argv[1:3]
    unittest.main()
