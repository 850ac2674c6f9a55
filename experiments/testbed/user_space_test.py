#!/usr/bin/env python3
"""Testbeds in user space: what their links carry, how fast, and what becomes of them.

usage: user_space_test.py ABACUS_LINK_RELAY [unittest arguments]

No privileges are needed. Rates are to be within 25 % of the topology's; the machine is shared, so
that a measurement has a few tries.
"""

import hashlib
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

import user_space
from machine import MachineError
from topology import Topology
from user_space import DATA_PORT, TOLERANCE, UserSpaceTestbed, flow_rates, one_way_s

TRIES = 4
SMALL = """
network fast bandwidth=32Mbit
network segment bandwidth=8Mbit shared=yes
network far bandwidth=32Mbit
link segment fast bandwidth=8Mbit
link far fast bandwidth=16Mbit delay=30ms
node s1 network=fast cpu=20%
node s2 network=fast
node x1 network=segment
node x2 network=segment
node f1 network=far
"""


class UserSpaceTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.testbed = UserSpaceTestbed(Topology.parse(SMALL), "small")
        cls.testbed.up()
        cls.addClassCleanup(cls.testbed.down)

    def connect(self, a, b):
        ends = user_space._connection(self.testbed, a, b)
        for end in ends:
            self.addCleanup(end.close)
        return ends

    def measures(self, flows, *wanted_mbit):
        """Each flow's rate is within 25 % of what is wanted, in one of a few tries."""
        for _ in range(TRIES):
            rates = [rate / 1e6 for rate in flow_rates(self.testbed, flows)]
            if all(abs(rate / wanted - 1) <= TOLERANCE for rate, wanted in zip(rates, wanted_mbit)):
                return
        self.fail(f"{rates} Mbit/s, wanted {wanted_mbit}")

    # --- rates and delays ----------------------------------------------------------------------

    def test_a_wire_has_its_rate_in_each_direction_at_once(self):
        self.measures([("s1", "s2"), ("s2", "s1")], 32, 32)

    def test_a_link_between_networks_has_its_rate(self):
        self.measures([("f1", "s1")], 16)
        self.measures([("s1", "f1")], 16)

    def test_two_clients_on_a_shared_segment_share_its_rate(self):
        self.measures([("x1", "s1")], 8)
        self.measures([("x1", "s1"), ("x2", "s2")], 4, 4)

    def test_both_directions_of_a_shared_segment_share_its_rate(self):
        self.measures([("x1", "s1"), ("s2", "x2")], 4, 4)
        self.measures([("x1", "x2"), ("x2", "x1")], 4, 4)

    def test_what_goes_past_a_segment_is_not_slowed_by_it(self):
        self.measures([("x1", "x2"), ("s1", "s2")], 8, 32)

    def test_a_delay_is_that_of_the_way_and_a_message_takes_its_own_time(self):
        for a, b, wanted_ms in (("f1", "s1", 30 + 8e3 * 130 / 16e6), ("s1", "s2", 8e3 * 130 / 32e6),
                                ("x1", "s1", 8e3 * 130 / 8e6)):
            for _ in range(TRIES):
                way_ms = 1e3 * one_way_s(self.testbed, a, b)
                if wanted_ms <= way_ms <= wanted_ms + 1:
                    break
            self.assertGreaterEqual(way_ms, wanted_ms)
            self.assertLessEqual(way_ms, wanted_ms + 1)

    def test_a_testbed_is_as_its_topology_says(self):
        for _ in range(TRIES):
            rows = self.testbed.check(report=lambda line: None)
            if all(row.good for row in rows):
                break
        self.assertEqual([row for row in rows if not row.good], [])
        what = [row.what for row in rows]
        for wanted in ("s1 -> s2", "s2 -> s1", "segment segment: x1 -> x2, x2 -> x1"):
            self.assertIn(wanted, what)
        self.assertTrue(any(of.startswith("delay ") for of in what))

    # --- what is carried -----------------------------------------------------------------------

    def test_bytes_arrive_whole_and_in_order_both_ways_and_then_the_end(self):
        seed = int(os.environ.get("ABACUS_SEED", random.randrange(2**32)))
        rng = random.Random(seed)
        ends = self.connect("s1", "s2")
        pieces = [[rng.randbytes(rng.choice((1, 7, 1447, 1448, 1449, 5000, 70000)))
                   for _ in range(25)] for _ in ends]
        arrived = [hashlib.sha256(), hashlib.sha256()]

        def send(end, parts):
            for part in parts:
                end.sendall(part)
            end.shutdown(socket.SHUT_WR)

        def receive(end, into):
            while data := end.recv(rng.choice((1000, 65536))):
                into.update(data)

        threads = [threading.Thread(target=send, args=(end, parts))
                   for end, parts in zip(ends, pieces)]
        threads += [threading.Thread(target=receive, args=(end, into))
                    for end, into in zip(ends, arrived)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(user_space.PATIENCE_S)
            self.assertFalse(thread.is_alive(), f"seed {seed}")
        for sent, into in zip(pieces, reversed(arrived)):
            self.assertEqual(into.digest(), hashlib.sha256(b"".join(sent)).digest(), f"seed {seed}")

    def test_one_end_may_be_done_while_the_other_goes_on(self):
        near, far = self.connect("s1", "s2")
        near.shutdown(socket.SHUT_WR)
        self.assertEqual(far.recv(1), b"")
        far.sendall(b"still here")
        self.assertEqual(near.recv(100), b"still here")

    def test_a_receiver_that_does_not_read_stops_its_sender_and_nobody_else(self):
        near, _ = self.connect("s1", "s2")
        near.setblocking(False)
        sent, last = 0, time.monotonic()
        while time.monotonic() - last < 1.5:  # the wire's rate empties a full buffer sooner
            if select.select([], [near], [], 0.1)[1]:
                sent, last = sent + near.send(bytes(65536)), time.monotonic()
            self.assertLess(sent, 30 << 20, "what nobody reads is kept")
        self.measures([("s1", "s2")], 32)

    def test_a_connection_that_breaks_is_told_to_the_other_end(self):
        for breaks in (0, 1):
            ends = self.connect("s1", "s2")
            # No lingering: it is reset.
            ends[breaks].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            ends[breaks].close()
            other = ends[1 - breaks]
            try:
                self.assertEqual(other.recv(1), b"")
            except ConnectionResetError:
                pass

    def test_where_nobody_listens_the_caller_sees_its_connection_end(self):
        with socket.create_connection((self.testbed.dialled("s1", "s2"), DATA_PORT)) as near:
            near.settimeout(user_space.PATIENCE_S)
            try:
                self.assertEqual(near.recv(1), b"")
            except ConnectionResetError:
                pass
        self.measures([("s1", "s2")], 32)

    # --- its life ------------------------------------------------------------------------------

    def test_two_stand_side_by_side_and_know_nothing_of_each_other(self):
        with UserSpaceTestbed(Topology.parse(SMALL), "other") as other:
            mine, theirs = (of.topology.nodes["s1"].address for of in (self.testbed, other))
            self.assertNotEqual(mine.split(".")[1], theirs.split(".")[1])
            flows = [("x1", "s1")]
            rates = [0, 0]

            def measure(i, testbed):
                rates[i] = flow_rates(testbed, flows)[0] / 1e6

            for _ in range(TRIES):
                threads = [threading.Thread(target=measure, args=pair)
                           for pair in enumerate((self.testbed, other))]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                if all(abs(rate / 8 - 1) <= TOLERANCE for rate in rates):
                    return
            self.fail(f"{rates} Mbit/s of 8")

    def test_it_ends_with_who_made_it_also_by_sigkill(self):
        code = ("import sys, time\n"
                f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
                "from user_space import UserSpaceTestbed\nfrom topology import Topology\n"
                f"testbed = UserSpaceTestbed(Topology.parse({SMALL!r}))\ntestbed.up()\n"
                "print(testbed._relay.pid, flush=True)\ntime.sleep(60)\n")
        with subprocess.Popen([sys.executable, "-B", "-c", code], stdout=subprocess.PIPE) as maker:
            relay = int(maker.stdout.readline())
            self.assertTrue(Path(f"/proc/{relay}").exists())
            maker.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + user_space.PATIENCE_S
        while not _is_gone(relay):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_folders_of_a_testbed_that_was_killed_go_with_the_next_one(self):
        with subprocess.Popen(["true"]) as dead:
            pass
        folders = [Path(f"/dev/shm/{user_space.FOLDERS}{who}.test{os.getpid()}")
                   for who in (dead.pid, os.getpid(), "someone")]
        for folder in folders:
            (folder / "in it").mkdir(parents=True)
        try:
            with UserSpaceTestbed(Topology.parse(SMALL)) as testbed:
                self.assertTrue(folders[1].name.startswith(testbed.folder_prefix))
                self.assertEqual([folder.exists() for folder in folders], [False, True, True])
        finally:
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)

    def test_what_is_down_is_down_and_can_be_up_again(self):
        testbed = UserSpaceTestbed(Topology.parse(SMALL))
        for _ in range(2):
            testbed.up()
            relay, host = testbed._relay.pid, testbed.dialled("s1", "s2")
            testbed.down()
            testbed.down()
            self.assertTrue(_is_gone(relay))
            with self.assertRaises(OSError):
                socket.create_connection((host, DATA_PORT), 1)

    def test_a_node_that_is_none_is_told(self):
        with self.assertRaisesRegex(MachineError, "no node s9; there are: s1, s2, x1"):
            self.testbed.exec("s9", ["true"])

    def test_each_word_of_the_relay_is_checked(self):
        good = ["1000000", "127.0.0.1:1", "127.0.0.1:2", "0", "0", "0"]
        for i, word, wanted in ((0, "1", "no number from 64000"), (0, "nan", "no number"),
                                (0, "", "no number"), (1, "127.0.0.1", "no address"),
                                (1, "localhost:1", "no address"), (2, "127.0.0.1:0", "no number"),
                                (2, "127.0.0.1:65536", "no number"), (3, "-1", "no number"),
                                (3, "2000001", "no number"), (4, "1", "no number"),
                                (4, "", "no number"), (5, "0,", "no number"),
                                (5, "0.5", "no number"), (1, "192.0.2.1:7071", "cannot listen")):
            words = [*good[:i], word, *good[i + 1:]]
            done = subprocess.run([RELAY, *words], stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, check=False)
            self.assertEqual(done.returncode, 1, words)
            self.assertIn(wanted, done.stderr)
        for words in ([], good[:5], [*good, "x"]):
            done = subprocess.run([RELAY, *words], stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, check=False)
            self.assertEqual((done.returncode, "usage" in done.stderr), (1, True))


def _is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


class PlanTest(unittest.TestCase):

    def test_a_way_goes_through_each_part_once_and_its_opposite_through_others_of_the_wires(self):
        plan = user_space._Plan(Topology.load("paper"))
        lan, san = plan.way("lan1", "s1"), plan.way("s1", "lan1")
        # Its wire, the segment, the link, the server's wire.
        self.assertEqual([plan.rates[part] for part in lan], [10e6, 10e6, 10e6, 100e6])
        self.assertEqual(len(set(lan) & set(san)), 1)
        segment, = set(lan) & set(san)
        self.assertTrue({segment} == set(plan.way("lan2", "lan3")) & set(lan))
        self.assertEqual([plan.rates[part] for part in plan.way("san1", "s1")], [100e6, 100e6])
        self.assertFalse(set(plan.way("san1", "s1")) & set(plan.way("s1", "san1")))

    def test_all_topologies_that_come_with_the_project_can_be_up(self):
        for name in ("paper", "modern", "wan"):
            with UserSpaceTestbed(Topology.load(name)) as testbed:
                self.assertIn(user_space.MARK, testbed.used()[0])


if __name__ == "__main__":
    RELAY = os.environ["ABACUS_LINK_RELAY"] = os.path.abspath(sys.argv.pop(1))
    unittest.main()
