#!/usr/bin/env python3
"""Each experiment's driver understands each of its rows, and treats the placements alike."""

import unittest

import definition
from definition import PLACEMENTS
from runner import World, load_driver

World(None)  # lets drivers import the lab
from lab import Lab, LabError  # noqa: E402
from topology import Topology  # noqa: E402


class NotedLab(Lab):
    """Starts nothing: notes what a driver asks for."""

    def __init__(self, profile):
        super().__init__(testbed=None, profile=profile, program="/bin/false")
        self.asked = None

    def run(self, clients, placement, seed, prepare=None, server="s1", config=None,
            server_config=None, limit_s=600, spread=None):
        self.asked = {"clients": [(client.node, client.job) for client in clients],
                      "placement": placement, "seed": seed, "prepare": prepare, "server": server,
                      "config": config, "server_config": server_config,
                      "spread": spread and vars(spread)}
        return self.asked

# What starts programs of its own, without lab.run(), has a test in its folder.
OWN_PROGRAMS = {"real_programs"}


class DriversTest(unittest.TestCase):

    @staticmethod
    def rows():
        for name in definition.names():
            experiment = definition.find(name)
            if not experiment.not_runnable and name not in OWN_PROGRAMS:
                yield from ((load_driver(experiment), row, experiment) for row in experiment.rows)
        template = definition.load(definition.EXPERIMENTS / definition.TEMPLATE)
        yield load_driver(template), template.rows[0], template

    @staticmethod
    def asked(driver, row, experiment, placement, quick):
        lab = NotedLab(experiment.profile)
        driver(lab, row.for_driver(quick), placement, 7, quick)
        return lab.asked

    def test_every_row_and_size_is_understood(self):
        for driver, row, experiment in self.rows():
            for quick in (False,) if row.full_only else (False, True):
                asked = self.asked(driver, row, experiment, "adaptive", quick)
                self.assertEqual([node for node, _ in asked["clients"]],
                                 row.workload["clients"], row.path)
                self.assertEqual((asked["placement"], asked["server"]), ("adaptive", "s1"))

    def test_placements_differ_by_the_placement_only(self):
        for driver, row, experiment in self.rows():
            asked = [{**self.asked(driver, row, experiment, placement, False), "placement": None}
                     for placement in PLACEMENTS]
            self.assertEqual(asked[0], asked[1], row.path)
            self.assertEqual(asked[0], asked[2], row.path)

    def test_a_row_is_of_nodes_that_its_topology_has(self):
        experiments = [definition.find(name) for name in definition.names()]
        for experiment, row in ((of, row) for of in experiments for row in of.rows):
            nodes = Topology.load(experiment.topology).nodes
            named = {*row.workload["clients"], *row.workload.get("servers", []), *row.shares,
                     row.workload.get("server", "s1"), row.workload.get("console", "s1")}
            self.assertLessEqual(named, nodes.keys(), row.path)

    def test_an_application_that_there_is_not_is_told(self):
        driver, row, experiment = next(of for of in self.rows() if of[2].name == "modern")
        with self.assertRaisesRegex(LabError, "no application greb; there are: filter, grep"):
            driver(NotedLab(experiment.profile), {**row.for_driver(True), "application": "greb"},
                   "client", 1, True)

    def test_the_defaults_cell_of_a_grid_has_the_profiles_constants(self):
        experiment = definition.find("threshold_sweep")
        driver, lab = load_driver(experiment), NotedLab(experiment.profile)
        seen = []
        for heat_map in experiment.heat_maps:
            for row in experiment.cells(heat_map["grid"]):
                config = self.asked(driver, row, experiment, "adaptive", False)["config"]
                placement = config["placement"]
                placement["window"] = placement["window"].replace("1000ms", "1s")
                same = lab.profile.config(**config) == lab.profile.config()
                default = {key: row.workload[key] for key in heat_map["default"]}
                self.assertEqual(same, default == heat_map["default"], row.path)
                digest_ms = int(placement["digest_interval"].removesuffix("ms"))
                self.assertLessEqual(5 * digest_ms, row.workload["window_ms"])
                seen.append(same)
        self.assertEqual((len(seen), sum(seen)), (75, 3))

    def test_quick_is_less_work_or_the_same_and_ci_no_more_than_that(self):
        for _, row, _ in self.rows():
            if row.full_only:
                continue
            for key, quick in row.sizes["quick"].items():
                self.assertLessEqual(quick, row.sizes["full"][key], f"{row.path} {key}")
                self.assertLessEqual(row.sizes["ci"].get(key, 0), quick, f"{row.path} {key}")


if __name__ == "__main__":
    unittest.main()
