#!/usr/bin/env python3
"""The report of all of the paper's figures, from made-up records; comparing two results."""

import hashlib
import html.parser
import io
import json
import re
import shutil
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import charts
import compare
import definition
import experiment_main
import manifest
import report
import report_parts
import results
import sweeps
from claims import Evidence
from definition import EXPERIMENTS, ExperimentError
from fake_world import DRIVER, FakeWorld, made_up, make_experiment
from fake_world import record as fake_record
from runner import Options
from summary import summarize

PAPERS = {"figure06_raid", "figure07_filter", "figure08_cache", "figure10_directory",
          "table2_phases", "figure12_competition", "false_sharing"}
SWEPT = {"phases_sweep", "threshold_sweep"}
BARS = PAPERS | SWEPT
SWEEPS = {"phases_sweep-sweep", "threshold_sweep-phases_at", "threshold_sweep-flicker_at",
          "threshold_sweep-set4_at"}
PLOTS = BARS | SWEEPS | {
    "figure10_directory-own",
    "figure10_directory-high_san-progress", "figure12_competition-lan-progress",
    "table2_phases-lan-phases", "table2_phases-lan_no_fast_lane-phases"}
PAPER_NODE_SHA256 = hashlib.sha256(
    (EXPERIMENTS / "lab" / "paper_node.h").read_bytes()).hexdigest()
VOID = {"meta", "br", "hr", "img", "link"}


class Page(html.parser.HTMLParser):
    """What of a page can be checked without a browser."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.wrong, self.count = [], [], [], [], {}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href", "action", "data", "srcset"):
                self.links.append(value)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def run(root, results, *words, world=None):
    out = io.StringIO()
    arguments = experiment_main.parser().parse_intermixed_args([*words, "--results", str(results)])
    with mock.patch.object(manifest, "commit", lambda: "c0ffee"), mock.patch("sys.stderr", out):
        experiment_main.run(arguments, world or FakeWorld(), root, out)


class ReportTest(unittest.TestCase):

    def assert_has(self, text, wanted):
        """assertIn, without the whole page in its message."""
        self.assertTrue(wanted in text, f"{wanted!r} is not in the page")

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="abacus-harness-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.root = Path(cls.folder.name) / "experiments"
        for name in BARS:
            (cls.root / name).mkdir(parents=True)
            for file in ("experiment.toml", definition.PLOT):
                if (EXPERIMENTS / name / file).is_file():
                    shutil.copy(EXPERIMENTS / name / file, cls.root / name)
            (cls.root / name / "driver.py").write_text(DRIVER)
        (cls.root / "profiles").mkdir()
        (cls.root / "profiles" / "paper.toml").write_text(
            "# <frozen> & stated\n[lab]\npaper_node = true\nrepetition = 7\n"
            "[config.planner]\nfast_window = 0.05\nfast_gain = 2\n")
        cls.results = Path(cls.folder.name) / "results"
        run(cls.root, cls.results, "all", "--runs", "3")
        cls.text = (cls.results / "report.html").read_text()
        cls.page = Page(cls.text)

    def test_page_needs_nothing_from_elsewhere(self):
        self.assertEqual(re.findall(r"https?:|//[a-z]+\.|@import|<script|<link|<iframe", self.text),
                         [])
        self.assertEqual([link for link in self.page.links if not link.startswith("#")], [])
        self.assertEqual(re.findall(r"url\((?!#)[^)]*\)", self.text), [])

    def test_page_is_well_formed_and_its_links_lead_somewhere(self):
        self.assertEqual((self.page.open, self.page.wrong), ([], []))
        self.assertEqual(len(self.page.ids), len(set(self.page.ids)), "an id is there twice")
        targets = [link[1:] for link in self.page.links] + re.findall(r"url\(#([^)]*)\)", self.text)
        self.assertEqual(set(targets) - set(self.page.ids), set())

    def test_every_figure_is_there_in_the_page_and_as_files(self):
        self.assertEqual(self.page.count["svg"], len(PLOTS))
        files = {path.name for path in (self.results / "plots").iterdir()}
        self.assertEqual(files, {f"{name}.{kind}" for name in PLOTS for kind in ("png", "svg")})
        for name in PLOTS:
            png = (self.results / "plots" / f"{name}.png").read_bytes()
            self.assertTrue(png.startswith(b"\x89PNG") and len(png) > 5000, name)
            self.assertIn("<svg", (self.results / "plots" / f"{name}.svg").read_text(), name)
        for figure in ("Figure 7", "Figure 8", "Figure 10", "Table 1", "Figure 11", "Table 2",
                       "Figure 12", "Section 6.5", "Figure 6"):
            self.assert_has(self.text, figure)

    def test_every_row_and_claim_is_in_the_page_and_in_the_results(self):
        made = {row["name"]: row for row in
                json.loads((self.results / "results.json").read_text())["experiments"]}
        for name in BARS:
            for row in definition.find(name).rows:
                self.assertEqual(len(made[row.path]["claims"]), len(row.claims), row.path)
                self.assert_has(self.text, f">{row.path}</a>")
        self.assertEqual(self.text.count("claim holds?"), len(PAPERS))
        self.assertEqual(self.text.count("<th>holds?"), len(SWEPT))
        held = sum(of["holds"] for row in made.values() for of in row["claims"])
        self.assertEqual(self.text.count("✓ holds</span>"), held)
        self.assertEqual(self.text.count("✗ does not hold</span>"),
                         sum(len(row["claims"]) for row in made.values()) - held)

    def test_papers_numbers_stand_beside_ours(self):
        for number in ("26.03", "70.73", "16.30", "125.50", "27.33", "34.52"):
            self.assert_has(self.text, f">{number}<")
        for windows in (r"insert at server \S+ \(the paper's 7\.8\)",
                        r"scan at client \S+ \(the paper's 0\.4\)"):
            self.assertTrue(re.search(windows, self.text), windows)

    def test_decisions_are_told_with_their_explanations(self):
        self.assert_has(self.text, 'it pays: 1 s &lt; 2 s &amp; "more"')
        self.assert_has(self.text, "Staying: &lt;nothing&gt; is better")
        records = [json.loads(path.read_text())
                   for path in (self.results / "raw").rglob("*.json")]
        words = sum(len(record["migrations"]) for record in records)
        words += sum(len(record["explanations"]) for record in records
                     if record["placement"] == "adaptive")
        self.assertEqual(self.text.count('<span class="why">'), words)

    def test_what_can_be_closed_is_printed(self):
        printed = self.text.partition("@media print")[2].partition("</style>")[0]
        self.assertIn("details::details-content { content-visibility: visible;", printed)
        self.assertEqual(re.findall("<details><summary>(?!Testbed)[^<]*", self.text), [])
        self.assertEqual(self.text.count("<details open><summary>Decision log"), len(BARS))

    def test_manifest_tells_commit_machine_testbed_and_profile(self):
        for wanted in ("c0ffee", manifest.machine()["kernel"], "lan1 -&gt; lan2",
                       "s1 6%", "# &lt;frozen&gt; &amp; stated", "repetition</td><td>7,",
                       "fast lane</td><td>on: 5 % of a window may decide where the gain is over 2 x",
                       f"lab/paper_node.h, SHA-256 {PAPER_NODE_SHA256}"):
            self.assert_has(self.text, wanted)
        made = json.loads((self.results / "results.json").read_text())
        self.assertEqual(made["manifest"]["profile"]["node_sha256"], PAPER_NODE_SHA256)

    def test_bars_differ_by_more_than_colour(self):
        hatches = [hatch for _, _, hatch in charts.LOOKS.values()]
        self.assertEqual(len(set(hatches)), len(hatches))
        self.assertEqual(len({line[1:] for line in charts.LINES}), len(charts.LINES))

    def test_the_papers_ratios_are_marked_on_our_bars(self):
        def marks(path, no_claim="", **seconds):
            name, row = path.split("/")
            experiment = definition.find(name)
            found = Evidence({placement: [fake_record(of)] for placement, of in seconds.items()})
            return report.paper_marks_of(results.RowResult(experiment, experiment.row(row), found,
                                                           (), no_claim, ()))

        self.assertEqual(marks("figure06_raid/write_lan", client=90, adaptive=22, server=20),
                         {"client": (52, "2.6 x"), "adaptive": (22, "+ 10%")})
        self.assertEqual(marks("figure06_raid/degraded_san", client=10, server=15),
                         {"server": (20, "almost 2 x")})
        # The paper has the client faster.
        self.assertEqual(marks("figure06_raid/write_san", client=20, adaptive=20, server=10), {})
        self.assertEqual(marks("figure07_filter/set4", client=15, server=10),
                         {"client": (13, "< 1.3 x")})
        self.assertEqual(marks("figure07_filter/set4", adaptive=15, server=10), {})
        # The paper has no number of it, and of what goes beyond it nothing at all.
        self.assertEqual(marks("figure07_filter/set1_long", client=9, adaptive=5, server=4), {})
        self.assertEqual(marks("joint_move/lan", client=9, adaptive=5, server=4), {})
        self.assertEqual(marks("figure06_raid/write_lan", "no claim: why", client=90, server=20), {})
        self.assertEqual(marks("figure08_cache/scan_lan", client=1, adaptive=1, server=90),
                         {"server": (40, "40 x")})
        with mock.patch.dict(charts._plot().rcParams, {"svg.fonttype": "none"}):
            drawn = [charts.bars([("one", {"client": summarize([90.0])})], of)["svg"].decode()
                     for of in ((), [{"client": (52, "2.6 x")}], [{}])]
        self.assertEqual([text.count(">2.6 x</text>") for text in drawn], [0, 1, 0])
        self.assertEqual([text.count("the paper's ratio") for text in drawn], [0, 1, 0])

    def test_same_records_give_the_same_plots(self):
        again = Path(self.folder.name) / "again"
        shutil.copytree(self.results / "raw", again / "raw")
        run(self.root, again, "figure07_filter", "phases_sweep", "threshold_sweep", "--runs", "3",
            "--report-only")
        for name in SWEEPS | {"figure07_filter"}:
            for kind in ("svg", "png"):
                self.assertEqual((again / "plots" / f"{name}.{kind}").read_bytes(),
                                 (self.results / "plots" / f"{name}.{kind}").read_bytes(), name)

    def test_the_default_is_held_to_all_cells_that_were_run(self):
        made = {row["name"]: row for row in
                json.loads((self.results / "results.json").read_text())["experiments"]}
        for work in ("phases", "flicker", "set4"):
            self.assertIn("the best of 25)", made[f"threshold_sweep/{work}"]["claims"][0]["ours"])

    def test_a_heat_map_has_each_cells_number_and_marks_the_default(self):
        with mock.patch.dict(charts._plot().rcParams, {"svg.fonttype": "none"}):
            text = charts.heat_map({(5, 250): 1.07, (30, 250): 1.234, (5, 1000): 2.5,
                                    (30, 1000): 1.5}, ("B", "H"), (30, 1000))["svg"].decode()
        for number in ("1.07", "1.23", "2.50", "1.50"):
            self.assert_has(text, f">{number}</text>")
        self.assertEqual(text.count(">default</text>"), 1)
        self.assertNotIn("<image", text)

    def test_a_heat_maps_colours_are_told_apart_in_grey(self):
        import matplotlib
        shades = [matplotlib.colormaps["cividis_r"](i / 20) for i in range(21)]
        grey = [0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b, _ in shades]
        self.assertEqual(grey, sorted(grey, reverse=True))

    def test_a_sweep_is_of_what_was_measured(self):
        experiment = definition.find("phases_sweep")
        found = {row.name: Evidence({placement: [fake_record(seconds, phases=[
            {"name": "insert", "elapsed_s": insert}, {"name": "scan", "elapsed_s": scan}])]
            for placement, seconds, insert, scan in of}, experiment.object)
            for row, of in zip(experiment.rows, (
                (("client", 8, 8, 0), ("adaptive", 3, 2, 1), ("server", 4, 2.5, 1.5)),
                (("client", 4, 4, 0), ("adaptive", 2, 1, 1), ("server", 1.8, 1, 0.8)),
                (("client", 4, 4, 0), ("server", 1.8, 1, 0.8))))}
        rows = [results.RowResult(experiment, row, found[row.name], (), "", ())
                for row in experiment.rows[:3]]
        self.assertEqual(sweeps.points(experiment, rows),
                         [("1 s", 1, 1, "server", 1.8, 2, 0),
                          ("0.5 s", 2.5, 2.5, "server", 4, 3, 0)])

    def test_another_repetition_than_the_smallest_that_will_do_is_told(self):
        row = definition.find("table2_phases").row("lan")

        def note(insert_s, size="full", repetition=5, window_s=1.0, **others):
            phases = [{"name": name, "elapsed_s": insert_s} for name in row.workload["phases"]]
            made = fake_record(4 * insert_s, phases=phases, repetition=repetition,
                               window_s=window_s, origin={"size": size}, **others)
            return report_parts.repetition_note(Evidence({"server": [made]}), row.paper_phases)

        # The paper's last 7.76 windows: four times would do from 9.7 s on, and five no more below it.
        for insert_s, enough in ((7.7, 6), (7.8, 5), (9.6, 5), (9.8, 4), (13.35, 3)):
            wanted = f"as the paper's is {enough} here" if enough != 5 else ""
            self.assertIn(wanted, note(insert_s), insert_s)
            self.assertEqual(bool(wanted), bool(note(insert_s)), insert_s)
        self.assertIn("is 3 here (8.01 windows)", note(13.35))
        self.assertIn("is 3 here", note(2 * 13.35, window_s=2.0))
        self.assertEqual(note(8.0, repetition=3), "")
        self.assertEqual(note(13.35, size="quick"), "")
        self.assertEqual(report_parts.repetition_note(Evidence({"client": [fake_record(9)]}),
                                                      row.paper_phases), "")

    def test_a_baseline_is_told_once_a_seed(self):
        base = {"name": "on the local disk", "elapsed_s": 1.5}
        records = {placement: [{**fake_record(9), "seed": 1, "baseline": base}]
                   for placement in ("client", "server")}
        notes = results._notes(records, Options(Path("nowhere"), runs=1))
        self.assertEqual(notes, ("on the local disk: 1.50 s",))

    def test_what_the_simulator_said_stands_beside_what_was_measured(self):
        def made(seed, *seconds):
            clients = [{"node": f"san{i}", "elapsed_s": of} for i, of in enumerate(seconds, 1)]
            return {**fake_record(9), "seed": seed, "clients": clients,
                    "simulated": {"san1": 3.0, "san2": 8.0}}
        records = {"client": [made(1, 3.0, 9.0), made(2, 5.0, 11.0)], "server": []}
        notes = results._notes(records, Options(Path("nowhere"), runs=2))
        self.assertEqual(notes, ("simulated, client: san1 3.00 s for 4.00 (-25%), san2 8.00 s for "
                                 "10.0 (-20%); median error 22%",))

    def test_a_folders_own_plot_is_in_the_page_and_a_wrong_one_is_told(self):
        root = Path(self.folder.name) / "own"
        page = root / "results" / "report.html"
        folder = make_experiment(root, "mine")
        for text, wanted in (
                ('CAPTION = "A <line>"\ndef draw(axes, rows):\n    axes.plot([len(rows)], [2])\n',
                 "A &lt;line&gt;"),
                ("def draw(axes, rows): 1 / 0\n", "plot.py: ZeroDivisionError: division by zero"),
                ("CAPTION = 3 +\n", "plot.py: ExperimentError"), ("\n", "plot.py: AttributeError"),
                ("def draw(axes, rows): import not_there\n", "plot.py: ModuleNotFoundError")):
            (folder / "plot.py").write_text(text)
            run(root, root / "results", "mine", "--runs", "1")
            self.assertEqual((Page(page.read_text()).open, Page(page.read_text()).wrong), ([], []))
            self.assert_has(page.read_text(), wanted)
            self.assert_has(page.read_text(), "mine/one")
        self.assertTrue((root / "results" / "plots" / "mine-own.png").is_file())
        self.assertNotIn("plot.py:", self.text)  # the project's own
        self.assert_has(self.text, "Table 1: retries per 200 inserts at each placement")

    def test_a_page_without_matplotlib_says_what_to_install(self):
        bare = Path(self.folder.name) / "bare"
        with mock.patch.object(charts, "_plot", side_effect=ImportError("No module")):
            run(self.root, bare, "figure07_filter", "--runs", "1")
        text = (bare / "report.html").read_text()
        self.assert_has(text, "python3-matplotlib")
        self.assert_has(text, "figure07_filter/set1")

    def test_a_row_that_lacks_a_placement_is_shown_as_far_as_it_goes(self):
        def fails(row, placement, seed, quick):
            if placement == "server":
                raise RuntimeError("no server <here>")
            return made_up(row, placement, seed, quick)

        half = Path(self.folder.name) / "half"
        run(self.root, half, "all", "--runs", "1", world=FakeWorld(fails))
        text = (half / "report.html").read_text()
        self.assertEqual((Page(text).open, Page(text).wrong), ([], []))
        self.assert_has(text, "no server &lt;here&gt;")
        self.assert_has(text, "not run: server")


class CompareTest(unittest.TestCase):

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory(prefix="abacus-harness-")
        self.addCleanup(self._folder.cleanup)
        self.root = Path(self._folder.name)

    def write(self, name, adaptive, holds=True, profile="a" * 64, row="figure/one"):
        path = self.root / name
        path.write_text(json.dumps({
            "experiments": [{
                "name": row, "network": "LAN", "engine_choice": "server" if holds else "client",
                "placements": [{"placement": "adaptive", "mean_s": adaptive[0],
                                "ci90_s": adaptive[1], "runs": 5}],
                "claims": [{"claim": "it is", "paper": "", "ours": "", "holds": holds}]}],
            "profile_sha256": profile,
            "manifest": {"commit": name, "machine": {"kernel": "6", "cpu": "x"},
                         "options": {"quick": False}}}))
        return str(path)

    def compared(self, a, b):
        return "\n".join(compare.lines(a, b))

    def test_times_are_set_side_by_side_with_what_is_sure(self):
        a = self.write("a", (10, 0.5))
        for b, wanted in (((5, 0.4), "0.500 B faster"), ((20, 1), "2.00 B slower"),
                          ((10.4, 0.3), "1.04 the 90 % intervals overlap"),
                          ((9, None), "0.900 a single run: no interval")):
            text = self.compared(a, self.write("b", b))
            self.assertRegex(text, rf"figure/one adaptive +10\.0 ± 0\.5 .*{re.escape(wanted)}")

    def test_what_changed_is_told(self):
        text = self.compared(self.write("a", (10, 1)),
                             self.write("b", (10, 1), holds=False, profile="b" * 64))
        for wanted in ("profile: aaaaaaaaaaaaaaaa | bbbbbbbbbbbbbbbb", "commit: a | b",
                       "it is: holds | does not hold", "engine: server | client"):
            self.assertIn(wanted, text)
        self.assertNotIn("kernel", text)

    def test_rows_of_one_file_only_are_named(self):
        text = self.compared(self.write("a", (10, 1)), self.write("b", (1, 1), row="figure/two"))
        self.assertIn("only in A: figure/one", text)
        self.assertIn("only in B: figure/two", text)

    def test_a_folder_of_results_will_do(self):
        self.write("results.json", (10, 1))
        self.assertIn("figure/one", self.compared(str(self.root), str(self.root)))

    def test_what_is_no_results_file_is_refused(self):
        path = self.root / "x.json"
        for text in ("{", "[]", '{"experiments": [{}]}'):
            path.write_text(text)
            with self.assertRaises(ExperimentError) as raised:
                self.compared(str(path), str(path))
            self.assertIn("is no results.json", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
