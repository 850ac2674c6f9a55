#!/usr/bin/env python3
"""The applications of the paper's experiments stay small, and say nothing of where they run."""

import re
import unittest
from pathlib import Path

APPS = Path(__file__).resolve().parents[1]
LINES_MAX = 199  # each is under 200 lines, header and source together
# grep is the object; the matcher below it is a library that knows no objects.
APPLICATIONS = {name: f"{name}/*" for name in (
    "column_aggregate", "directory_insert", "filter", "multiphase", "table", "word_count")}
APPLICATIONS["grep"] = "grep/grep_object.*"
# All that an application may include: of this room other applications only, as what is beside them
# knows nodes.
ALLOWED = re.compile(rf"runtime/(base|object)/|objfs/|absl/|apps/({'|'.join(APPLICATIONS)})/")


def sources(pattern):
    return sorted(path for path in APPS.glob(pattern) if path.suffix in (".h", ".cc")
                  and not path.stem.endswith(("_test", "_benchmark", "_fuzz")))


class WorkloadsSourceTest(unittest.TestCase):

    def test_each_is_under_200_lines(self):
        for name, pattern in APPLICATIONS.items():
            files = sources(pattern)
            self.assertEqual({path.suffix for path in files}, {".h", ".cc"}, name)
            lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
            self.assertLessEqual(lines, LINES_MAX, name)

    def test_none_includes_what_knows_nodes_or_placement(self):
        for name, pattern in APPLICATIONS.items():
            for path in sources(pattern):
                included = re.findall(r'#include "([^"]+)"', path.read_text(encoding="utf-8"))
                self.assertTrue(included, path)
                self.assertEqual([of for of in included if not ALLOWED.match(of)], [], path)


if __name__ == "__main__":
    unittest.main()
