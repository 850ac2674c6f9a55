#!/usr/bin/env python3
"""experiment.toml: the project's own are read; mistakes are told with name, key and a way out."""

import hashlib
import re
import tempfile
import tomllib
import unittest
from pathlib import Path
from unittest import mock

import definition
from definition import ExperimentError
from fake_world import make_experiment

PAPERS = {"figure06_raid", "figure07_filter", "figure08_cache", "figure10_directory",
          "figure12_competition", "false_sharing", "table2_phases"}
BEYOND = {"joint_move", "modern", "phases_sweep", "real_programs", "simulator", "threshold_sweep",
          "two_servers", "wan"}
GRID = """
[[row]]
name = "at"
network = "LAN"
statics_of = "one"
full = {bytes = 100}
quick = {bytes = 10}
grid = {a = [1, 2], b = [5, 6, 7]}
quick_grid = {b = [5]}
"""


class DefinitionTest(unittest.TestCase):

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory(prefix="abacus-harness-")
        self.addCleanup(self._folder.cleanup)
        self.root = Path(self._folder.name)

    def mistakes(self, **made):
        with self.assertRaises(ExperimentError) as raised:
            definition.load(make_experiment(self.root, **made))
        return str(raised.exception)

    def test_every_experiment_of_the_project_can_be_read(self):
        self.assertLessEqual(PAPERS | BEYOND, set(definition.names()))
        for name in definition.names():
            experiment = definition.find(name)
            self.assertEqual(experiment.beyond, name not in PAPERS, name)
            definition.load_profile(experiment.profile)
            self.assertTrue(experiment.rows, name)
            for row in experiment.rows:
                self.assertTrue(row.claims or row.statics_of or row.name == "degraded_lan",
                                f"{row.path} is held to nothing")
            self.assertEqual(experiment.not_runnable, "", name)

    def test_what_the_paper_says_twice_of_a_row_is_the_same_number(self):
        of_table_1 = {(row.path, claim.placement): (claim.fewer_than, claim.at_most,
                                                    row.paper_retries[claim.placement])
                      for row in definition.find("figure10_directory").rows
                      for claim in row.claims if claim.kind == "retries"}
        self.assertEqual(len(of_table_1), 4)
        for where, (fewer_than, at_most, in_table) in of_table_1.items():
            self.assertEqual(at_most if fewer_than is None else fewer_than, in_table, where)

        row = definition.find("table2_phases").row("lan")
        client, adaptive, server = (sum(row.paper_phases[of]) for of in definition.PLACEMENTS)
        optimal = sum(map(min, row.paper_phases["client"], row.paper_phases["server"]))
        words = {claim.kind: claim.paper for claim in row.claims}
        self.assertEqual(words["total"], f"{adaptive / optimal:.1f} x optimal")
        self.assertEqual(words["beats_statics"], f"{client / adaptive:.1f} x over client, "
                         f"{server / adaptive:.0f} x over server")
        self.assertEqual(definition.find("table2_phases").row("lan_no_fast_lane").paper_phases,
                         row.paper_phases)

    def test_beyond_the_paper_claims_have_no_word_of_it(self):
        for name in BEYOND:
            for row in definition.find(name).rows:
                self.assertTrue(row.claims or row.grid, row.path)
                self.assertLessEqual({claim.paper for claim in row.claims}, {""}, row.path)

    def test_an_experiment_is_of_the_paper_and_its_profile_unless_it_says_otherwise(self):
        experiment = definition.load(make_experiment(self.root))
        self.assertEqual((experiment.profile, experiment.beyond), ("paper", False))
        made = make_experiment(self.root, extra='profile = "modern"\nbeyond = true')
        experiment = definition.load(made)
        self.assertEqual((experiment.profile, experiment.beyond), ("modern", True))
        self.assertIn("beyond = 1: wanted is true or false", self.mistakes(extra="beyond = 1"))

    def test_the_template_can_be_read(self):
        self.assertEqual(definition.load(definition.EXPERIMENTS / definition.TEMPLATE).name,
                         "template")

    def test_rows_go_to_drivers_with_the_parameters_of_their_size(self):
        row = definition.load(make_experiment(self.root)).row("one")
        self.assertEqual(row.for_driver(quick=True), {"name": "one", "network": "LAN",
                                                      "clients": ["lan1"], "bytes": 10})
        self.assertEqual(row.for_driver(quick=False)["bytes"], 100)

    def test_paper_comes_in_the_papers_order(self):
        ordered = definition.in_order(definition.find(name) for name in sorted(PAPERS))
        self.assertEqual([of.figure.split()[-1] for of in ordered],
                         ["6", "7", "8", "1", "6.5", "2", "12"])

    def test_unknown_key_names_the_nearest_one(self):
        text = self.mistakes(extra='sektion = "6.3"')
        self.assertIn("small/experiment.toml: unknown key 'sektion'; did you mean section?", text)

    def test_unknown_kind_of_claim_names_row_and_claim(self):
        text = self.mistakes(claims='{kind = "direktion", winner = "server"}')
        self.assertIn("row one, claim 1: unknown kind 'direktion'; did you mean direction?", text)

    def test_wrong_value_says_what_is_wanted(self):
        text = self.mistakes(claims='{kind = "direction", winner = "lan"}')
        self.assertIn('claim 1 (direction): winner = "lan": wanted is one of client, server', text)

    def test_missing_key_is_named(self):
        self.assertIn("claim 1 (speedup): lacks the key at_least, a number above 0",
                      self.mistakes(claims='{kind = "speedup", winner = "client"}'))

    def test_all_mistakes_are_told_at_once(self):
        text = self.mistakes(extra="oops = 1", claims='{kind = "adaptive", within = -1}')
        self.assertEqual(len(text.splitlines()), 2, text)

    def test_retries_want_one_limit(self):
        self.assertIn("one of fewer_than and at_most", self.mistakes(claims='{kind = "retries"}'))

    def test_claims_on_placements_that_are_not_run_are_refused(self):
        folder = make_experiment(self.root, claims='{kind = "direction", winner = "server"}')
        path = folder / "experiment.toml"
        path.write_text(path.read_text() + 'placements = ["adaptive"]\n')
        with self.assertRaises(ExperimentError) as raised:
            definition.load(folder)
        self.assertIn("the row runs adaptive only; add placements or statics_of",
                      str(raised.exception))

    def test_rows_of_one_name_and_rows_that_are_not_there(self):
        folder = make_experiment(self.root, extra='retries = ["two"]')
        path = folder / "experiment.toml"
        path.write_text(path.read_text() +
                        '[[row]]\nname = "one"\nnetwork = "SAN"\nstatics_of = "onn"\n')
        with self.assertRaises(ExperimentError) as raised:
            definition.load(folder)
        text = str(raised.exception)
        for wanted in ("row one: is there twice", "unknown row 'onn'; did you mean one?",
                       "retries: unknown row 'two'"):
            self.assertIn(wanted, text)

    def test_parameter_like_a_key_of_ours_is_taken_for_a_mistake(self):
        folder = make_experiment(self.root)
        path = folder / "experiment.toml"
        path.write_text(path.read_text() + 'placement = ["client"]\n')
        with self.assertRaises(ExperimentError) as raised:
            definition.load(folder)
        self.assertIn("key 'placement' would be handed to the driver; did you mean placements?",
                      str(raised.exception))

    def test_sizes_with_different_keys_are_refused(self):
        folder = make_experiment(self.root)
        path = folder / "experiment.toml"
        path.write_text(path.read_text().replace("quick = {bytes = 10}", "quick = {byte = 10}"))
        with self.assertRaises(ExperimentError) as raised:
            definition.load(folder)
        self.assertIn("full and quick must have the same keys", str(raised.exception))

    def with_grid(self, text=GRID, **made):
        folder = make_experiment(self.root, **made)
        path = folder / "experiment.toml"
        path.write_text(path.read_text() + text)
        return folder

    def test_a_grid_stands_for_a_row_of_each_of_its_cells(self):
        experiment = definition.load(self.with_grid())
        cells = experiment.cells("at")
        self.assertEqual([row.name for row in cells],
                         ["at_1_5", "at_1_6", "at_1_7", "at_2_5", "at_2_6", "at_2_7"])
        self.assertEqual(cells[3].for_driver(quick=True),
                         {"name": "at_2_5", "network": "LAN", "a": 2, "b": 5, "bytes": 10})
        self.assertEqual([row.name for row in cells if not row.full_only], ["at_1_5", "at_2_5"])
        self.assertEqual({row.placements for row in cells}, {("adaptive",)})
        self.assertEqual(experiment.cells(""), [])

    def test_mistakes_of_grids_and_heat_maps_are_told(self):
        heat = ('[[heat_map]]\ngrid = "a"\nx = "a"\ny = "b"\nx_title = "a"\ny_title = "b"\n'
                'default = {a = 1, b = 8}\nfigure = "f"\n')
        for text, wanted in (
                (GRID.replace("b = [5]}", "b = [9]}"), "quick_grid.b has what grid.b has not"),
                (GRID.replace("[1, 2]", "[1, 1]"), "row at: grid = "),
                (GRID.replace("[1, 2]", "[]"), "wanted is a table of lists of whole numbers"),
                (GRID + heat, "heat_map: unknown grid 'a'; did you mean at?"),
                (GRID + heat.replace('"a"', '"at"', 1), "default is no cell of at by a and b"),
                (GRID.replace("a = [1, 2]", "bytes = [1, 2]"), "bytes is given for all sizes")):
            with self.assertRaises(ExperimentError) as raised:
                definition.load(self.with_grid(text))
            self.assertIn(wanted, str(raised.exception))
        with self.assertRaises(ExperimentError) as raised:
            definition.load(self.with_grid(claims='{kind = "near_best", grid = "att", within = 0}'))
        self.assertIn("row one: unknown grid 'att'; did you mean at?", str(raised.exception))

    def test_a_sweep_names_rows_there_are(self):
        text = self.mistakes(
            extra='sweep = {rows = ["two"], phase = "a", what = "b", figure = "c"}')
        self.assertIn("sweep.rows: unknown row 'two'", text)

    def test_broken_toml_is_told_with_its_line(self):
        self.assertRegex(self.mistakes(extra="x = = 1"), r"experiment.toml: .*line 5")

    def test_folder_without_a_file_says_where_to_begin(self):
        with self.assertRaises(ExperimentError) as raised:
            definition.load(self.root / "nothing")
        self.assertIn("template to begin with", str(raised.exception))

    def test_unknown_experiment_and_profile_name_the_nearest(self):
        make_experiment(self.root)
        for wanted, call in (("unknown experiment 'smal'; did you mean small?",
                              lambda: definition.find("smal", self.root)),
                             ("unknown profile 'papr'; did you mean paper?",
                              lambda: definition.load_profile("papr", self.root))):
            with self.assertRaises(ExperimentError) as raised:
                call()
            self.assertIn(wanted, str(raised.exception))

    def test_an_experiment_may_lie_elsewhere(self):
        folder = make_experiment(self.root / "of_mine")
        self.assertEqual(definition.find(str(folder), self.root).name, "small")

    def test_a_profile_with_the_papers_nodes_tells_their_hash_and_another_does_not(self):
        hashes = {name: definition.load_profile(name).node_sha256
                  for name in ("paper", "default", "no_disk", "modern", "programs")}
        self.assertEqual((hashes["modern"], hashes["programs"]), ("", ""))
        self.assertEqual({hashes[name] for name in ("paper", "default", "no_disk")},
                         {hashlib.sha256(definition.PAPER_NODE.read_bytes()).hexdigest()})
        with mock.patch.object(definition, "PAPER_NODE", self.root / "node.h"):
            (self.root / "node.h").write_text("12 %")
            self.assertNotEqual(definition.load_profile("paper").node_sha256, hashes["paper"])

    def test_a_profile_says_how_often_and_whether_in_a_part_of_a_window(self):
        for text, repetition, lane in (
                ("", "not stated", "on, with the engine's own constants"),
                ("[lab]\nrepetition = 5\n[config.planner]\nfast_window = 0.1\n", "5",
                 "on: 10 % of a window may decide;"),
                ("[config.planner]\nfast_window = 1.0\nfast_gain = 2\n", "not stated", "off;")):
            make_experiment(self.root)
            (self.root / "profiles" / "mine.toml").write_text(text)
            facts = dict(definition.load_profile("mine", self.root).facts())
            self.assertTrue(facts["repetition"].startswith(f"{repetition},"), facts)
            self.assertTrue(facts["fast lane"].startswith(lane), facts)

    def test_the_papers_profile_names_all_that_the_engine_decides_by(self):
        named = tomllib.loads(definition.load_profile("paper").text)["config"]
        source = (definition.EXPERIMENTS.parent / "runtime/node/engine_config.cc").read_text()
        placement, planner = (set(re.findall(r"= [^;]*\bfrom\.(\w+)", part))
                              for part in source.split("ToPlannerConfig"))
        self.assertGreater(len(placement), 10)
        self.assertGreater(len(planner), 20)
        self.assertEqual(placement | {"digest_interval"}, set(named["placement"]))
        self.assertEqual(planner, set(named["planner"]))

    def test_the_profile_without_disks_is_the_papers_in_all_else(self):
        paper, other = (tomllib.loads(definition.load_profile(name).text)
                        for name in ("paper", "no_disk"))
        paper["lab"]["disk"] = False
        self.assertEqual(other, paper)

    def test_profiles_hash_is_that_of_its_bytes(self):
        make_experiment(self.root)
        profile = definition.load_profile("paper", self.root)
        self.assertEqual((profile.name, profile.text), ("paper", "H_s = 1.0\n"))
        self.assertEqual(profile.sha256, "6a0e2ea300ef3ced48c5a726d666c89299a36e1f50155464431d063c3667cb75")


if __name__ == "__main__":
    unittest.main()
