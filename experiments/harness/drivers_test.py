#!/usr/bin/env python3
"""Each experiment's driver understands each of its rows, and treats the placements alike."""

import unittest
from unittest import mock

import definition
from definition import PLACEMENTS
from records import SIMULATOR, problem_of
from runner import World, load_driver

World(None)  # lets drivers import the lab
from lab import LIMIT_S, Lab, LabError, null_call_nodes, null_call_row  # noqa: E402
from topology import Topology, cpu_share  # noqa: E402


class NotedLab(Lab):
    """Starts nothing: notes what a driver asks for."""

    def __init__(self, profile):
        super().__init__(testbed=None, profile=profile, program="/bin/false")
        self.asked = None

    def run(self, clients, placement, seed, prepare=None, server="s1", config=None,
            server_config=None, limit_s=LIMIT_S, spread=None):
        self.asked = {"clients": [(client.node, client.job) for client in clients],
                      "placement": placement, "seed": seed, "prepare": prepare, "server": server,
                      "config": config, "server_config": server_config, "limit_s": limit_s,
                      "spread": spread and vars(spread)}
        return self.asked


BLOCK_BYTES = 8192       # what an insert writes through, and a change of a directory reads or writes
READ_BYTES = 65536       # of a filter and its like, where the job does not say
MESSAGES_S = 0.8e-3      # of the paper's node, a call's four ends of frames
BYTE_S = 2 * 35e-9       # and of each byte of it, at both ends
DIRECTORY_TRIES = 2.5    # of an insert that meets three others' (README.md of figure10_directory)
RAID_BLOCKS = 4          # of a small write: two are read and two are written


def work_of(job, files):
    """[(calls, bytes that cross, seconds of a whole core)] of a job, by where its objects are.

    What is at least as much with them at the client stands alone.
    """
    kind = job["kind"]
    if kind == "table":
        inserts, scans = (sum(phase["operations"] for phase in job["phases"]
                              if phase["name"] == name) for name in ("insert", "scan"))
        return [(inserts, inserts * BLOCK_BYTES, 0), (inserts + scans, 0, 0)]
    if kind == "directory":
        count = job["files"] * 4 * DIRECTORY_TRIES
        return [(count, count * BLOCK_BYTES / 2, 0)]
    size = files[job["file"]]
    if kind == "stream":
        times = RAID_BLOCKS if job["writes"] else 1
        return [(times * size / job["call_bytes"], times * size, 0)]
    return [(size / job.get("read_bytes", READ_BYTES), size,
             size * job.get("cpu_ns_per_byte", 0) * 1e-9)]


def least_s(asked, row, topology):
    """Seconds that the slower static placement of a run takes at least, by arithmetic.

    Every client for itself, but for the bytes of those that share a segment.
    """
    server = asked["server"]
    files = {file["name"]: file["bytes"] for file in (asked["prepare"] or {}).get("files", [])}
    cores = {name: node.cpu for name, node in topology.nodes.items()}
    cores.update({name: cpu_share(share) for name, share in row.shares.items()})
    wire, alone = {}, {}
    for name, job in asked["clients"]:
        segment = topology.way(name, server)[0][0]
        for place, (calls, crossed, core_s) in enumerate(work_of(job, files)):
            way = place, segment.name if segment.shared else name
            wire[way] = wire.get(way, 0) + 8 * crossed / topology.bandwidth(name, server)
            alone[place] = max(alone.get(place, 0), crossed * BYTE_S
                               + calls * (MESSAGES_S + 2 * topology.delay_s(name, server))
                               + core_s / min(cores[name], cores[server]))
    return max(alone[way[0]] + seconds for way, seconds in wire.items())


# What starts programs of its own, without lab.run(), has a test in its folder.
OWN_PROGRAMS = {"real_programs"}


class NullCallTest(unittest.TestCase):

    def test_a_node_that_a_row_makes_slower_does_not_tell_what_a_null_call_costs(self):
        paper = Topology.load("paper")
        self.assertEqual(null_call_nodes(paper), ("san1", "s1"))
        self.assertEqual(null_call_nodes(paper.with_cpu({"s1": 0.06})), ("san1", "s2"))
        self.assertEqual(null_call_nodes(paper.with_cpu({"san1": 0.06})), ("s2", "s1"))
        self.assertEqual(null_call_nodes(Topology.load("wan")), ("s2", "s1"))

    def test_nodes_that_are_faster_than_the_papers_are_off_too(self):
        for took_us, topology, machine, good in (
                (96, "paper", 2, True), (88, "paper", 2, True), (104, "paper", 2, True),
                (84, "paper", 2, False), (108, "paper", 2, False),
                (84, "wan", 2, True), (108, "wan", 2, False),
                (30, "paper", 1, True), (54, "paper", 1, False)):
            row = null_call_row(took_us, topology, machine)
            self.assertEqual(row.good, good, row)


class SimulatedTest(unittest.TestCase):

    def test_rows_of_fifty_are_records_of_what_the_simulator_says(self):
        experiment = definition.find("simulator")
        driver = load_driver(experiment)
        compare_simulator = driver.__globals__["compare_simulator"]

        def says(program, world, runs):  # each kind is the faster the more of others are with it
            told = []
            for run in runs:
                clients = {of["name"]: {"elapsed_s": 100.0 - len(run), "places": {
                    "apps.Filter": "server"}} for of in world["clients"]}
                told.append({"placement": run, "clients": clients, "slowdown": 1.5,
                             "mean_elapsed_s": 100.0 - len(run), "moves": [
                                 {"at_s": 1.5, "client": "lan1-0", "to": "server",
                                  "explanation": "why"}]})
            return told

        rows = [row for row in experiment.rows if row.simulated]
        self.assertEqual([row.workload["server_cores"] for row in rows],
                         list(compare_simulator.SERVER_CORES))
        with mock.patch.object(compare_simulator, "play", says):
            record = driver(NotedLab(experiment.profile), rows[0].for_driver(False), "adaptive", 7,
                            False)
        made = {**record, "experiment": "simulator", "row": "fifty_10", "network": "", "run": 1,
                "placement": "adaptive", "seed": 7}
        self.assertIsNone(problem_of(made))
        self.assertEqual((len(record["clients"]), record["source"], record["elapsed_s"]),
                         (50, SIMULATOR, 92.0))
        # Blocks of lan1, four times over, five times repeated.
        self.assertEqual(record["clients"][0]["operations"], 48 * 4 * 5)
        move, = record["migrations"]
        self.assertEqual((move["client"], move["from"], move["to"], move["t_s"]),
                         ("lan1-0", "client", "server", 1.5))
        self.assertIn("lan1, san1, san2, san3, san4 at the server: 50.0 s, adaptive +84.0%",
                      record["notes"][1])
        self.assertEqual(len(record["final_placement"]), 50)


class DriversTest(unittest.TestCase):

    @staticmethod
    def rows():
        for name in definition.names():
            experiment = definition.find(name)
            if not experiment.not_runnable and name not in OWN_PROGRAMS:
                yield from ((load_driver(experiment), row, experiment) for row in experiment.rows
                            if not row.simulated)
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
            named = {*row.workload.get("clients", []), *row.workload.get("servers", []), *row.shares,
                     row.workload.get("server", "s1"), row.workload.get("console", "s1")}
            self.assertLessEqual(named, nodes.keys(), row.path)

    def test_the_time_that_a_run_has_is_twice_what_it_takes_at_least(self):
        longest = {}
        for driver, row, experiment in self.rows():
            topology = Topology.load(experiment.topology)
            for quick in (False,) if row.full_only else (False, True):
                asked = self.asked(driver, row, experiment, "client", quick)
                took_s = least_s(asked, row, topology)
                self.assertLessEqual(2 * took_s, asked["limit_s"], f"{row.path}: {took_s:.0f} s")
                longest[row.path] = max(took_s, longest.get(row.path, 0))
        # The arithmetic agrees with what was measured of the paper's sizes: 614 s by the rate of
        # the quick run, some 400 s in set 3, and 445 s.
        for path, measured_s in (("figure07_filter/set1_long", 614), ("figure07_filter/set3", 400),
                                 ("figure08_cache/insert_lan_long", 445)):
            self.assertAlmostEqual(longest[path] / measured_s, 1, delta=0.2, msg=path)

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

    def test_quick_and_ci_are_less_work_or_the_same(self):
        for _, row, _ in self.rows():
            if row.full_only:
                continue
            for key, quick in row.sizes["quick"].items():
                self.assertLessEqual(quick, row.sizes["full"][key], f"{row.path} {key}")
                # CI says something of few rows only, and its may be longer than a quick one.
                self.assertLessEqual(row.sizes["ci"].get(key, 0), row.sizes["full"][key],
                                     f"{row.path} {key}")


if __name__ == "__main__":
    unittest.main()
