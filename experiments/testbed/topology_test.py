#!/usr/bin/env python3
"""Topologies: what is read, what is refused and how that is told, ways and plans. Needs no root."""

import tempfile
import unittest
from pathlib import Path

import check
import topology
from testbed import bucket
from topology import Topology, TopologyError

GOOD = """
network a bandwidth=1Mbit  # a comment
network b bandwidth=2Mbit delay=3ms shared=yes
network c bandwidth=4Gbit
link a b bandwidth=512kbit delay=500us
link c a bandwidth=8Mbit delay=1s
node x network=a cpu=12.5% disks=2 disk_bandwidth=14MB/s disk_seek=10ms memory=64MB
node y network=b
node z network=c cpu=100%
"""


class Reading(unittest.TestCase):
    def test_values_have_their_units(self):
        read = Topology.parse(GOOD)
        self.assertEqual(list(read.nodes), ["x", "y", "z"])
        x, y = read.nodes["x"], read.nodes["y"]
        self.assertEqual((x.cpu, x.disks, x.disk_bandwidth, x.disk_seek_s, x.memory_bytes),
                         (0.125, 2, 14e6, 0.01, 64_000_000))
        self.assertEqual((y.cpu, y.disks, y.memory_bytes), (None, 0, None))
        self.assertNotEqual(x.address, y.address)
        b = read.networks["b"]
        self.assertEqual((b.bandwidth, b.delay_s, b.shared), (2e6, 0.003, True))
        self.assertEqual((read.links[0].bandwidth, read.links[0].delay_s), (512e3, 0.0005))

    def test_what_it_writes_it_reads_again(self):
        for text in [GOOD, *(Topology.load(name).to_text() for name in topology.names())]:
            once = Topology.parse(text).to_text()
            self.assertEqual(Topology.parse(once).to_text(), once)
        self.assertIn("cpu=12.500%", Topology.parse(GOOD).to_text())

    def test_those_of_the_project_are_there(self):
        self.assertLessEqual({"paper", "modern", "wan"}, set(topology.names()))
        paper = Topology.load("paper")
        self.assertEqual(len(paper.nodes), 12)
        self.assertTrue(paper.networks["lan"].shared)
        self.assertFalse(paper.networks["san"].shared)

    def test_a_way_is_as_fast_as_its_slowest_part_and_as_long_as_all(self):
        read = Topology.parse(GOOD)
        self.assertEqual(read.bandwidth("x", "y"), 512e3)
        self.assertEqual(read.bandwidth("z", "x"), 1e6)
        self.assertAlmostEqual(read.delay_s("x", "y"), 0.0035)
        self.assertAlmostEqual(read.delay_s("y", "z"), 1.0035)
        self.assertAlmostEqual(Topology.load("wan").delay_s("far1", "s1"), 0.02)

    def test_shares_can_be_others(self):
        read = Topology.parse(GOOD)
        self.assertEqual(read.with_cpu({"x": 0.06}).nodes["x"].cpu, 0.06)
        self.assertEqual(read.nodes["x"].cpu, 0.125)
        with self.assertRaisesRegex(TopologyError, "no node 'q'"):
            read.with_cpu({"q": 0.06})


class Refusing(unittest.TestCase):
    def check(self, text, *told):
        """Each of `told` is a line of what is said, from its start, and there are no others."""
        with self.assertRaises(TopologyError) as caught:
            Topology.parse(text, "some.topology")
        lines = str(caught.exception).splitlines()
        self.assertEqual(len(lines), len(told), lines)
        for line, start in zip(lines, told):
            self.assertTrue(line.startswith(f"some.topology:{start}"), line)

    def test_unknown_words_name_the_nearest(self):
        self.check("network a bandwidth=1Mbit\nnode x netwrk=a network=a",
                   "2: unknown key 'netwrk' of node x; did you mean network?")
        self.check("netwrok a\nnetwork a bandwidth=1Mbit\nnode x network=a",
                   "1: unknown statement 'netwrok'; did you mean network?")
        self.check("network alpha bandwidth=1Mbit\nnode x network=alpa",
                   "2: node x: there is no network alpa; did you mean alpha?")

    def test_names_are_given_once(self):
        self.check("network a bandwidth=1Mbit\nnetwork a bandwidth=2Mbit\nnode x network=a",
                   "2: network a is there already, in line 1")
        self.check("network a bandwidth=1Mbit\nnode x network=a\nnode x network=a",
                   "3: node x is there already, in line 2")

    def test_names_are_fit_for_devices(self):
        self.check("network a bandwidth=1Mbit\nnode x network=a\nnode X-1 network=a",
                   "3: 'X-1' is no name")
        self.check("network a bandwidth=1Mbit\nnode hub network=a", "2: no node can be called hub")
        self.check("network a bandwidth=1Mbit\nnode network=a\nnode x network=a",
                   "2: node needs a name first")

    def test_values_are_told_with_what_they_should_be(self):
        for value, told in (("bandwidth=ten", "bandwidth: 'ten' is no bandwidth"),
                            ("bandwidth=10", "bandwidth: '10' is no bandwidth"),
                            ("bandwidth=1kbit", "bandwidth: 1kbit is not within 64kbit and 10Gbit"),
                            ("bandwidth=1Mbit delay=5", "delay: '5' is no delay"),
                            ("bandwidth=1Mbit delay=3s", "delay: 3s is not within 0us and 2s"),
                            ("bandwidth=1Mbit shared=1", "shared: '1' is neither yes nor no"),
                            ("bandwidth=1Mbit bandwidth=2Mbit", "bandwidth is given twice"),
                            ("bandwidth=1Mbit fast", "'fast' is no key=value"),
                            ("delay=1ms", "network a lacks bandwidth=")):
            self.check(f"network a {value}\nnode x network=a", f"1: {told}")
        for value, told in (("cpu=12", "cpu: '12' is no share"),
                            ("cpu=1%", "cpu: 1% is not within 5% and 1600%"),
                            ("disks=-1", "disks: '-1' is no count"),
                            ("disk_bandwidth=14MB", "disk_bandwidth: '14MB' is no bandwidth"),
                            ("memory=64", "memory: '64' is no size")):
            self.check(f"network a bandwidth=1Mbit\nnode x network=a {value}", f"2: {told}")

    def test_networks_are_one_tree(self):
        nets = "network a bandwidth=1Mbit\nnetwork b bandwidth=1Mbit\nnode x network=a\n"
        self.check(nets, "2: network b cannot reach a: a link is missing")
        self.check(nets + "link a b bandwidth=1Mbit\nlink b a bandwidth=1Mbit",
                   "5: link b a closes a loop")
        self.check(nets + "link a b bandwidth=1Mbit\nlink a a bandwidth=1Mbit",
                   "5: link a a closes a loop")
        self.check(nets + "link a b bandwidth=1Mbit\nlink a c bandwidth=1Mbit",
                   "5: link: there is no network c")

    def test_all_mistakes_are_told_at_once_in_the_order_of_lines(self):
        self.check("node x network=b\nnetwork a bandwidth=x\nfoo",
                   "1: node x: there is no network b", "2: bandwidth: 'x'", "3: unknown statement")

    def test_an_empty_one_and_a_huge_one(self):
        self.check("", "1: there is no node")
        nodes = "\n".join(f"node n{i} network=a" for i in range(topology.NODES_MAX + 1))
        self.check(f"network a bandwidth=1Mbit\n{nodes}", f"{topology.NODES_MAX + 2}: more than")

    def test_files_that_cannot_be_read(self):
        with self.assertRaisesRegex(TopologyError, "no topology 'papr'; did you mean paper"):
            Topology.load("papr")
        with self.assertRaisesRegex(TopologyError, "/nowhere/x.topology: No such file"):
            Topology.load("/nowhere/x.topology")
        with tempfile.TemporaryDirectory() as folder:
            odd = Path(folder, "two words.topology")
            odd.write_text(GOOD, encoding="utf-8")
            with self.assertRaisesRegex(TopologyError, "the file's name gives the topology's"):
                Topology.load(odd)


class Checking(unittest.TestCase):
    def test_every_node_and_link_is_measured(self):
        for name in topology.names():
            read = Topology.load(name)
            pairs = check.pairs_to_measure(read)
            self.assertEqual({node for pair in pairs for node in pair}, set(read.nodes))
            crossed = [link for pair in pairs for link in read.way(*pair)[1]]
            self.assertEqual(set(crossed), set(read.links))
        alone = Topology.parse("network a bandwidth=1Mbit\nnode x network=a")
        self.assertEqual(check.pairs_to_measure(alone), [])

    def test_a_p99_has_a_thousand_samples(self):
        self.assertEqual(check.stall_summary([0.001] * 998 + [5.0]), ("longest stall", 5.0))
        self.assertEqual(check.stall_summary([0.001] * 989 + [2.0] + [5.0] * 10),
                         ("stall p99", 2.0))
        self.assertEqual(check.stall_summary([]), ("longest stall", 0.0))

    def test_a_row_is_good_within_its_bounds(self):
        self.assertTrue(check.Row("x", "10", 10.9, "Mbit/s", 9, 11).good)
        self.assertFalse(check.Row("x", "10", 11.1, "Mbit/s", 9, 11).good)
        self.assertFalse(check.Row("x", "10", 8.9, "Mbit/s", 9, 11).good)

    def test_a_bucket_holds_two_frames_or_a_millisecond(self):
        self.assertEqual(bucket(10e6), "tbf rate 10000000bit burst 3028 limit 125000")
        self.assertEqual(bucket(100e6), "tbf rate 100000000bit burst 12500 limit 1250000")


if __name__ == "__main__":
    unittest.main()
