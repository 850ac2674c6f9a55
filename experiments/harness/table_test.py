#!/usr/bin/env python3
"""The table of README.md: made from results.json, and of the rows that there are."""

import json
import tempfile
import unittest
from pathlib import Path

import definition
import table
from definition import EXPERIMENTS, ExperimentError


def cells(line):
    return [cell.strip() for cell in line.strip("|").split(" | ")]


class TableTest(unittest.TestCase):

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory(prefix="abacus-harness-")
        self.addCleanup(self._folder.cleanup)
        self.path = Path(self._folder.name) / "results.json"
        self.experiments = [definition.find(name) for name in definition.names()]

    def made(self, *claims, placements=(("client", 15.6), ("adaptive", 4.03), ("server", 3.06))):
        """{row: cells} of results with figure 7's first set."""
        self.path.write_text(json.dumps({
            "experiments": [{
                "name": "figure07_filter/set1", "network": "LAN", "engine_choice": "server",
                "placements": [{"placement": of, "mean_s": mean, "ci90_s": 0.1, "runs": 5}
                               for of, mean in placements],
                "claims": [{"claim": f"it is {what}", "paper": "", "ours": ours, "holds": holds}
                           for what, ours, holds in claims]}],
            "manifest": {"commit": "c0ffee" * 6, "date": "today", "options": {
                "quick": False, "runs": 5, "despite_testbed": True},
                "machine": {"cpu": "x", "cores": 2},
                "profile": {"name": "paper", "sha256": "a" * 64}}}))
        self.lines = list(table.lines(self.experiments, self.path))
        return {cells(line)[0]: cells(line) for line in self.lines if line.startswith("| `")}

    def test_a_row_has_its_figures_and_the_ratios_that_the_paper_speaks_of(self):
        row = self.made(("server", "server", True))["`figure07_filter/set1`"]
        self.assertEqual(row[2:], ["15.6 ± 0.1", "4.03 ± 0.10", "3.06 ± 0.10", "server, 5.10 x",
                                   "+32 %", "server", "yes"])
        self.assertIn("Full sizes, 5 run(s)", self.lines[0])
        self.assertIn("A testbed that was off was not refused", self.lines[0])

    def test_what_does_not_hold_is_told_with_what_was_measured(self):
        row = self.made(("fast", "server: 4.80 x", False), ("server", "server", True),
                        ("rare", "15.5 | 3", False))["`figure07_filter/set1`"]
        self.assertEqual(" | ".join(row[8:]), "1 of 3; not: it is fast (server: 4.80 x); "
                         "it is rare (15.5 \\| 3)")
        row = self.made()["`figure07_filter/set1`"]
        self.assertEqual(row[-1], "no claim")

    def test_what_was_not_run_leaves_its_places_empty(self):
        rows = self.made(placements=(("client", 5), ("adaptive", 5)))
        self.assertEqual(rows["`figure07_filter/set1`"][4:7], ["–", "–", "–"])
        self.assertEqual(set(rows["`figure07_filter/set2`"][2:]), {"–"})

    def test_every_row_of_the_paper_is_there_with_what_it_is_held_to(self):
        lines = [cells(line) for line in table.lines(self.experiments)][2:]
        paths = [row.path for experiment in self.experiments if not experiment.beyond
                 for row in experiment.rows]
        self.assertEqual(sorted(line[0].strip("`") for line in lines), sorted(paths))
        said = {line[0].strip("`"): line[1] for line in lines}
        self.assertEqual(said["figure07_filter/set1"], "server; 5 x; within 25%; move to server")
        self.assertIn("adaptive < 6.66 retries of 200", said["figure10_directory/high_lan"])
        self.assertEqual({path for path, word in said.items() if word in ("", table.NONE)},
                         {"figure06_raid/degraded_lan", "table2_phases/lan_no_fast_lane"})

    def test_the_readmes_table_has_these_rows_and_claims(self):
        text = (EXPERIMENTS / "README.md").read_text(encoding="utf-8")
        begin = text.index("| " + " | ".join(table.HEAD))
        pasted = [cells(line)[:2] for line in text[begin:text.index("\n\n", begin)].split("\n")]
        self.assertEqual(pasted, [cells(line)[:2] for line in table.lines(self.experiments)])

    def test_what_is_no_results_file_is_refused(self):
        with self.assertRaisesRegex(ExperimentError, "No such file"):
            list(table.lines(self.experiments, self.path))


if __name__ == "__main__":
    unittest.main()
