#!/usr/bin/env python3
"""Each experiment's driver understands each of its rows, and treats the placements alike."""

import unittest

import definition
from definition import PLACEMENTS
from runner import World, load_driver

World(None)  # lets drivers import the lab
from lab import Lab  # noqa: E402


class NotedLab(Lab):
    """Starts nothing: notes what a driver asks for."""

    def __init__(self):
        super().__init__(testbed=None, profile="paper", program="/bin/false")
        self.asked = None

    def run(self, clients, placement, seed, prepare=None, server="s1", config=None,
            server_config=None, limit_s=600, spread=None):
        self.asked = {"clients": [(client.node, client.job) for client in clients],
                      "placement": placement, "seed": seed, "prepare": prepare, "server": server,
                      "config": config, "server_config": server_config,
                      "spread": spread and vars(spread)}
        return self.asked


class DriversTest(unittest.TestCase):

    @staticmethod
    def rows():
        for name in definition.names():
            experiment = definition.find(name)
            # One that starts programs of its own, without lab.run(), has a test in its folder.
            if not experiment.not_runnable and not list(experiment.folder.glob("*_test.py")):
                yield from ((load_driver(experiment), row) for row in experiment.rows)
        template = definition.load(definition.EXPERIMENTS / definition.TEMPLATE)
        yield load_driver(template), template.rows[0]

    @staticmethod
    def asked(driver, row, placement, quick):
        lab = NotedLab()
        driver(lab, row.for_driver(quick), placement, 7, quick)
        return lab.asked

    def test_every_row_and_size_is_understood(self):
        for driver, row in self.rows():
            for quick in (False,) if row.full_only else (False, True):
                asked = self.asked(driver, row, "adaptive", quick)
                self.assertEqual([node for node, _ in asked["clients"]],
                                 row.workload["clients"], row.path)
                self.assertEqual((asked["placement"], asked["server"]), ("adaptive", "s1"))

    def test_placements_differ_by_the_placement_only(self):
        for driver, row in self.rows():
            asked = [{**self.asked(driver, row, placement, False), "placement": None}
                     for placement in PLACEMENTS]
            self.assertEqual(asked[0], asked[1], row.path)
            self.assertEqual(asked[0], asked[2], row.path)

    def test_quick_is_less_work_or_the_same_and_ci_no_more_than_that(self):
        for driver, row in self.rows():
            if row.full_only:
                continue
            for key, quick in row.sizes["quick"].items():
                self.assertLessEqual(quick, row.sizes["full"][key], f"{row.path} {key}")
                self.assertLessEqual(row.sizes["ci"].get(key, 0), quick, f"{row.path} {key}")


if __name__ == "__main__":
    unittest.main()
