#!/usr/bin/env python3
"""Plays the worlds of experiments/simulator, and sets what comes out beside made-up records.

    simulator_test.py PROGRAM

It stands beside the program that it runs.
"""

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path

EXPERIMENTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(EXPERIMENTS / "simulator"))
import compare_simulator as compare  # noqa: E402

PROGRAM = None


def told(words):
    """(exit code, what it printed, its errors) of the command."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = compare.main([*words, "--program", PROGRAM])
    return code, out.getvalue(), errors.getvalue()


class SimulatorTest(unittest.TestCase):

    def setUp(self):
        self.row, self.profile = compare.row_of(quick=True)
        self.world = compare.world_of(self.row, self.profile)

    def records(self, results, times, places):
        """A record a placement: {client: seconds}, and {client: place} of the adaptive one."""
        for placement in compare.PLACEMENTS:
            folder = results / "raw" / "simulator" / "five" / placement
            folder.mkdir(parents=True)
            at = {client: places[client] if placement == "adaptive" else placement
                  for client in times[placement]}
            (folder / "1.json").write_text(json.dumps({
                "clients": [{"node": client, "elapsed_s": seconds}
                            for client, seconds in times[placement].items()],
                "final_placement": {f"{client}/apps.Filter": place
                                    for client, place in at.items()},
                "origin": {"size": "quick"}}))

    def simulated(self):
        runs = compare.play(PROGRAM, self.world, compare.PLACEMENTS)
        times = {run["placement"]: {client: of["elapsed_s"] for client, of in
                                    run["clients"].items()} for run in runs}
        return times, {client: of["places"]["apps.Filter"]
                       for client, of in runs[1]["clients"].items()}

    def test_the_profile_is_the_papers_without_its_disk(self):
        paper = tomllib.loads((EXPERIMENTS / "profiles" / "paper.toml").read_text())
        paper["lab"]["disk"] = False
        self.assertEqual(self.profile, paper)

    def test_one_client_alone_takes_what_its_terms_add_up_to(self):
        alone = {**self.world, "clients": self.world["clients"][1:2]}  # san1, 480 blocks
        client, server = compare.play(PROGRAM, alone, ["client", "server"])
        # 10 ns a byte; two ends of 0.4 ms and 35 ns a byte; the wire; a round trip.
        def block_s(data):
            sent = data + 400
            return 65536 * 10e-9 + 2 * (0.0004 + sent * 35e-9) + sent / compare.SAN_BYTES_S + 0.0001
        self.assertAlmostEqual(client["clients"]["san1"]["elapsed_s"], 480 * block_s(65536), 3)
        self.assertAlmostEqual(server["clients"]["san1"]["elapsed_s"], 480 * block_s(0.2 * 65536),
                               3)

    def test_errors_are_of_what_was_measured(self):
        times, places = self.simulated()
        measured = {placement: dict(of) for placement, of in times.items()}
        measured["server"]["san1"] *= 2    # simulated: half of it
        measured["client"]["lan1"] /= 1.5  # simulated: one and a half times
        other = {**places, "san2": "server"}
        with tempfile.TemporaryDirectory() as folder:
            self.records(Path(folder), measured, other)
            code, text, _ = told(["compare", folder])
        self.assertEqual(code, 0)
        self.assertIn("all: median error 0%, worst -50% (server, san1)", text)
        self.assertIn("client: median error 0%, worst +50% (client, lan1)", text)
        self.assertIn("places chosen by the engine: 4 of 5 the same", text)
        self.assertEqual(text.count("**differs**"), 1)

    def test_records_that_are_missing_or_of_two_sizes_are_refused(self):
        times, places = self.simulated()
        with tempfile.TemporaryDirectory() as folder:
            code, _, errors = told(["compare", folder])
            self.assertEqual(code, 1)
            self.assertIn("there are no records in", errors)
            self.records(Path(folder), times, places)
            path = Path(folder) / "raw/simulator/five/server/1.json"
            path.write_text(path.read_text().replace('"quick"', '"full"'))
            code, _, errors = told(["compare", folder])
            self.assertEqual(code, 1)
            self.assertIn("quick and of full", errors)

    def test_what_the_readme_expects_is_what_is_simulated(self):
        code, text, _ = told(["predict", "--quick"])
        self.assertEqual(code, 0)
        readme = (EXPERIMENTS / "simulator" / "README.md").read_text()
        for line in text.splitlines()[2:-1]:
            cells = line.split(" | ")[:4]
            self.assertIn(" | ".join(cells), readme)

    def test_fifty_are_played_adaptively_near_the_best_fixed_choice(self):
        for cores in compare.SERVER_CORES:
            runs, best, _ = compare.fifty(PROGRAM, self.row, self.profile, cores)
            mean_s = {placement: run["mean_elapsed_s"] for placement, run in runs.items()}
            self.assertEqual(runs["adaptive"]["ended"], 50)
            self.assertLess(mean_s["adaptive"], mean_s["client"])
            self.assertLess(mean_s["adaptive"], mean_s["server"])
            self.assertLess(mean_s["adaptive"], 1.1 * best["mean_elapsed_s"], cores)
            self.assertGreaterEqual(best["slowdown"], 1)
        code, text, _ = told(["fifty", "--quick"])
        self.assertEqual(code, 0)
        self.assertEqual(len(text.splitlines()), 2 + len(compare.SERVER_CORES))

    def test_a_row_of_fifty_is_a_record_of_each_placement(self):
        for placement in compare.PLACEMENTS:
            record = compare.record_of_fifty(PROGRAM, 10, placement, True)
            self.assertEqual(len(record["clients"]), 50)
            self.assertEqual("best fixed" in " ".join(record["notes"]), placement == "adaptive")
            self.assertEqual(bool(record["migrations"]), placement == "adaptive")

    def test_worlds_that_are_wrong_are_refused_by_name(self):
        def refused(**changes):
            with self.assertRaises(compare.CompareError) as raised:
                compare.play(PROGRAM, {**self.world, **changes}, ["client"])
            return str(raised.exception)
        self.assertIn("there is no node", refused(nodes=self.world["nodes"][1:]))
        self.assertIn("digest_s", refused(digest_s=0.001))
        self.assertIn("an edge less", refused(clients=[{**self.world["clients"][0], "edges": []}]))
        with self.assertRaisesRegex(compare.CompareError, "there is no client nobody"):
            compare.play(PROGRAM, self.world, [["nobody"]])
        with self.assertRaisesRegex(compare.CompareError, "there is no placement nowhere"):
            compare.play(PROGRAM, self.world, ["nowhere"])
        self.assertEqual(subprocess.run([PROGRAM, "--no-such"], capture_output=True,
                                        check=False).returncode, 2)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
