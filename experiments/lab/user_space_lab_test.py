"""The lab on a testbed in user space: real processes, whose messages go over shaped links.

    user_space_lab_test.py ABACUS_LAB ABACUS_LINK_RELAY

Times are to be within 25 % of the topology's arithmetic, in one of a few tries: the machine is
shared.
"""

import os
import sys
import unittest
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "testbed")]
from lab import Client, Lab, LabError  # noqa: E402
from topology import FRAME_BYTES, Topology  # noqa: E402
from user_space import PAYLOAD_BYTES, TOLERANCE, UserSpaceTestbed  # noqa: E402

TRIES = 4
TEXT = """
network san bandwidth=100Mbit
network lan bandwidth=8Mbit shared=yes
link lan san bandwidth=8Mbit delay=2ms
node s1 network=san cpu=20% disks=1
node lan1 network=lan cpu=20%
node lan2 network=lan cpu=20%
node san1 network=san cpu=20%
"""
CALLS, CALL_BYTES = 20, 65536
# What a call's bytes take on the segment, and beside: there and back, and four times a frame of the
# paper's nodes with a share of 20 % (paper_node.h).
WIRE_S = 8 * CALL_BYTES * FRAME_BYTES / PAYLOAD_BYTES / 8e6
BESIDE_S = 2 * 0.002 + 0.12 / 0.20 * (4 * 0.2e-3 + 2 * CALL_BYTES * 35e-9)


class UserSpaceLabTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.testbed = UserSpaceTestbed(Topology.parse(TEXT))
        cls.testbed.up()
        cls.addClassCleanup(cls.testbed.down)

    def setUp(self):
        self.lab = Lab(self.testbed, "paper", PROGRAM)
        self.addCleanup(self.lab.end)

    def takes(self, clients, wanted_s):
        """Each client's call takes that long, within 25 %."""
        job = {"kind": "null", "calls": CALLS, "call_bytes": CALL_BYTES}
        for _ in range(TRIES):
            record = self.lab.run([Client(node, job) for node in clients], "client", 1)
            calls_s = [client["elapsed_s"] / CALLS for client in record["clients"]]
            if all(abs(call_s / wanted_s - 1) <= TOLERANCE for call_s in calls_s):
                return
        self.fail(f"a call took {calls_s} s, wanted {wanted_s:.4f}")

    def test_a_call_takes_the_time_of_its_bytes_on_the_segment(self):
        self.takes(["lan1"], WIRE_S + BESIDE_S)

    def test_two_clients_share_the_segment(self):
        # One's bytes are on the wire while the other waits for what is beside the wire. A segment
        # each would take little more than half.
        self.takes(["lan1", "lan2"], 2 * WIRE_S)

    def test_clients_elsewhere_do_not_go_over_the_segment(self):
        # WIRE_S x 8 / 100 and what is beside: 9 ms of 69.
        self.assertLess(self.lab.null_call("san1", calls=CALLS, call_bytes=CALL_BYTES)["ms"],
                        1e3 * WIRE_S / 3)

    def test_an_object_moves_over_the_links_and_its_job_is_done_at_either_place(self):
        job = {"kind": "filter", "file": "data", "pass_share": 0.25}
        took_s = {}
        for placement in ("client", "server"):
            record = self.lab.run([Client("lan1", job)], placement, 1,
                                  {"files": [{"name": "data", "bytes": 1 << 20}]})
            self.assertEqual(record["clients"][0]["operations"], 17)
            self.assertEqual(record["final_placement"], {"lan1/apps.Filter": placement})
            took_s[placement] = record["elapsed_s"]
        wire_s = 8 * (1 << 20) / 8e6
        self.assertGreater(took_s["client"], wire_s)
        self.assertGreater(took_s["server"], wire_s / 4)
        self.assertLess(took_s["server"], took_s["client"] * 0.75)

    def test_what_a_filter_computes_takes_as_long_as_at_its_nodes_share(self):
        job = {"kind": "filter", "file": "data", "pass_share": 0, "cpu_ns_per_byte": 200}
        record = self.lab.run([Client("lan1", job)], "server", 1,
                              {"files": [{"name": "data", "bytes": 1 << 20}]})
        self.assertGreater(record["elapsed_s"], (1 << 20) * 200e-9 / 0.20)

    def test_computing_at_nodes_of_different_speeds_is_refused(self):
        slow = UserSpaceTestbed(Topology.parse(TEXT).with_cpu({"s1": 0.1}))
        with slow, Lab(slow, "paper", PROGRAM) as lab:
            job = {"kind": "filter", "file": "data", "cpu_ns_per_byte": 1}
            with self.assertRaisesRegex(LabError, "needs CPU quotas"):
                lab.run([Client("lan1", job)], "client", 1,
                        {"files": [{"name": "data", "bytes": 4096}]})


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    os.environ["ABACUS_LINK_RELAY"] = os.path.abspath(sys.argv.pop(1))
    unittest.main()
