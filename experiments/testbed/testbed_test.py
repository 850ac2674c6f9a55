#!/usr/bin/env python3
"""Small testbeds, built, measured, used and removed; and what the command says of bad input.

usage: testbed_test.py ABACUS_LINK_DELAY [unittest arguments]

Measured values have bounds a factor of 2 away, and a few tries: the machine is shared.
"""

import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path
from unittest import mock

import check
import machine
from machine import MachineError
from testbed import Testbed, _Plan, bucket, delay_line
from topology import HUB, Topology

COMMAND = [sys.executable, "-B", str(Path(__file__).with_name("testbed_main.py"))]
NAME = f"t{os.getpid()}"  # of this run's testbed; other runs have theirs
TRIES = 4
SMALL = """
network fast bandwidth=32Mbit
network segment bandwidth=8Mbit shared=yes
link segment fast bandwidth=8Mbit delay=30ms
node s1 network=fast cpu=20%
node s2 network=fast
node x1 network=segment cpu=8%
node x2 network=segment
node x3 network=segment
node x4 network=segment
"""
TINY = "network n bandwidth=10Mbit\nnode a network=n cpu=10%\nnode b network=n"


def why_not():
    """Why testbeds cannot be made here, found out without this project's code; None: they can."""
    if os.geteuid() != 0:
        return "not root"
    space = f"abacus-probe-{os.getpid()}"
    steps = [["ip", "netns", "add", space], ["ip", "netns", "exec", space, "true"],
             ["ip", "-n", space, "link", "add", "p", "type", "ifb"],
             ["tc", "-n", space, "qdisc", "add", "dev", "p", "root", "tbf", "rate", "1mbit",
              "burst", "3028", "limit", "9999"]]
    try:
        for step in steps:
            done = subprocess.run(step, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                return f"{' '.join(step)}: {done.stderr.strip()}"
    except OSError as error:
        return str(error)
    finally:
        if os.path.exists(f"/run/netns/{space}"):
            subprocess.run(["ip", "netns", "delete", space], capture_output=True, check=False)
    return why_no_cgroups()


def why_no_cgroups():
    """The same of CPU cgroups; in some containers their processes are shown as number 0."""
    points = [words[1] for words in map(str.split, Path("/proc/mounts").read_text().splitlines())
              if words[2] == "cgroup" and "cpu" in words[3].split(",") or words[2] == "cgroup2"
              and "cpu" in Path(words[1], "cgroup.controllers").read_text().split()]
    if not points:
        return "no cgroup controller 'cpu'"
    folder = Path(points[0], f"abacus-probe-{os.getpid()}")
    try:
        folder.mkdir()
    except OSError as error:
        return f"{folder}: {error.strerror}"
    try:
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as probe:
            (folder / "cgroup.procs").write_text(str(probe.pid))
            seen = (folder / "cgroup.procs").read_text().split()
            probe.stdin.close()
        return None if seen == [str(probe.pid)] else "cgroups here do not show their processes"
    except OSError as error:
        return f"{folder}: {error.strerror}"
    finally:
        folder.rmdir()


def has_netem():
    """The same of netem, where testbeds can be made: whether this kernel has it."""
    space = f"abacus-probe-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", space], check=True)
    try:
        tried = subprocess.run(["tc", "-n", space, "qdisc", "add", "dev", "lo", "root", "netem",
                                "delay", "1ms"], capture_output=True, check=False)
        return tried.returncode == 0
    finally:
        subprocess.run(["ip", "netns", "delete", space], check=True)


WHY_NOT = why_not()
if WHY_NOT:
    print(f"SKIPPED, what builds a testbed: {WHY_NOT}")


def left_of(name):
    """What is on the machine of the testbed, by its name alone."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    mark = f"{machine.PREFIX}{name}"
    left = [line.split()[0] for line in listed.stdout.splitlines() if mark in line]
    for root, folders, _ in os.walk("/sys/fs/cgroup"):
        left += [os.path.join(root, folder) for folder in folders if mark in folder]
    for folder in ("/run", "/tmp", "/dev/shm"):
        left += [str(path) for path in Path(folder).glob(f"{mark}*")]
    return left


def wait_until(true):
    """Looks until `true()`; a test that hangs here is ended by its time limit."""
    while not true():
        time.sleep(0.001)


def run_command(*words, **options):
    return subprocess.run([*COMMAND, *words], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=100, check=False, **options)


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Built(unittest.TestCase):
    """One testbed for all of these."""

    @classmethod
    def setUpClass(cls):
        cls.testbed = Testbed(Topology.parse(SMALL), NAME)
        cls.addClassCleanup(cls.testbed.down)
        cls.used = cls.testbed.up()

    def between(self, low, high, measure):
        """One of a few measurements is within the bounds."""
        values = []
        for _ in range(TRIES):
            values.append(measure())
            if low <= values[-1] <= high:
                return
        self.fail(f"not within {low} .. {high}: {values}")

    def rate(self, flows):
        with mock.patch.multiple(check, WARM_UP_S=0.3, SECONDS=0.4):
            return check.total_rate(self.testbed, flows)

    def test_a_switched_link_has_its_bandwidth_each_way(self):
        self.between(16e6, 64e6, lambda: self.rate([("s1", "s2")]))
        self.between(16e6, 64e6, lambda: self.rate([("s2", "s1")]))

    def test_four_stations_share_one_segment(self):
        # A switch would carry 32 Mbit/s of these.
        flows = [("x1", "x2"), ("x2", "x1"), ("x3", "x4"), ("x4", "x3")]
        self.between(4e6, 16e6, lambda: self.rate(flows))

    def test_a_link_between_networks_has_its_delay(self):
        with mock.patch.object(check, "EXCHANGES", 10):
            self.assertGreaterEqual(check.one_way_s(self.testbed, "x1", "s1"), 0.03)
            self.between(0.03, 0.06, lambda: check.one_way_s(self.testbed, "x1", "s1"))
            self.between(0, 0.015, lambda: check.one_way_s(self.testbed, "x1", "x2"))

    def test_nodes_have_their_shares_of_a_core(self):
        def share_of(node):
            return check.cpu_shares(self.testbed, [node], 0.6)[0][node]
        self.between(0.1, 0.4, lambda: share_of("s1"))
        self.between(0.04, 0.16, lambda: share_of("x1"))
        self.between(0.3, 1.1, lambda: share_of("s2"))  # has no limit

    def test_what_emulates_what_is_told(self):
        told = "\n".join(self.used)
        delay = "netem, in the kernel" if has_netem() else "this kernel has no netem: TAP devices"
        for words in ("6 nodes", "shared segment segment", delay, "period 20 ms"):
            self.assertIn(words, told)

    def test_a_command_runs_in_the_namespace_and_the_cgroup(self):
        with self.testbed.exec("s1", ["sh", "-c", "cat /proc/self/cgroup; ip -br addr"],
                               stdout=subprocess.PIPE, text=True) as process:
            said = process.stdout.read()
        self.assertEqual(process.returncode, 0)
        self.assertIn(machine.own_name(NAME, "s1"), said)
        self.assertIn(self.testbed.topology.nodes["s1"].address, said)
        self.assertNotIn(self.testbed.topology.nodes["s2"].address, said)

    def test_a_command_keeps_its_exit_status_and_its_streams(self):
        for words, status in ((["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -9 $$"], -9),
                              (["no-such-program"], 127), (["/proc/self/cmdline"], 126)):
            done = run_command("exec", "--testbed", NAME, "s1", "--", *words)
            self.assertEqual(done.returncode, status, words)
        done = subprocess.run(self.testbed.command("s1", ["tr", "a-z", "A-Z"]), input="words",
                              capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "WORDS")
        # It is ended by a closed pipe like outside of the testbed.
        done = run_command("exec", "--testbed", NAME, "s1", "--", "grep", "SigIgn",
                           "/proc/self/status")
        self.assertEqual(int(done.stdout.split()[1], 16) & 1 << (signal.SIGPIPE - 1), 0)

    def test_a_command_keeps_its_own_dashes(self):
        words = ["echo", "-n", "--", "a", "--"]
        done = run_command("exec", "--testbed", NAME, "s1", "--", *words)
        self.assertEqual(done.stdout, "-- a --")

    def test_nodes_that_are_not_there_are_told_with_those_that_are(self):
        done = run_command("exec", "--testbed", NAME, "s3", "--", "true")
        self.assertEqual(done.returncode, 125)
        self.assertIn("no node s3; there are: s1, s2, x1", done.stderr)

    def test_a_name_is_not_taken_twice(self):
        with self.assertRaisesRegex(MachineError, f"is there already.*down {NAME}"):
            Testbed(Topology.parse(TINY), NAME).up()
        self.assertEqual(self.testbed.exec("s1", ["true"]).wait(), 0)

    def test_it_is_listed_for_programs(self):
        listed = {testbed["name"]: testbed
                  for testbed in json.loads(run_command("list", "--json").stdout)}
        self.assertEqual(listed[NAME]["topology"], "custom")
        nodes = {node["name"]: node for node in listed[NAME]["nodes"]}
        self.assertEqual(list(nodes), ["s1", "s2", "x1", "x2", "x3", "x4"])
        self.assertEqual(nodes["x1"], {
            "name": "x1", "network": "segment", "cpu": 0.08, "disks": 0, "disk_bandwidth": 14e6,
            "disk_seek_s": 0.01, "memory_bytes": None, "address": "10.231.0.3"})
        self.assertIsNone(nodes["s2"]["cpu"])

    def test_it_is_listed_and_another_one_beside_it(self):
        other = Testbed(Topology.parse(TINY), f"{NAME}b")
        with other:
            listed = run_command("list").stdout
            self.assertIn(f"testbed {NAME}:", listed)
            self.assertIn(f"testbed {NAME}b:", listed)
            self.assertEqual(other.exec("a", ["true"]).wait(), 0)
        self.assertEqual(left_of(f"{NAME}b"), [])
        self.assertEqual(self.testbed.exec("s1", ["true"]).wait(), 0)


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Removed(unittest.TestCase):
    def setUp(self):
        self.name = f"{NAME}r"
        self.addCleanup(machine.remove, self.name)
        self.testbed = Testbed(Topology.parse(SMALL), self.name)

    def without_netem(self):
        """Delays are those of abacus_link_delay, whatever this kernel has."""
        patched = mock.patch.object(machine, "can_netem", return_value=False)
        patched.start()
        self.addCleanup(patched.stop)

    def test_what_runs_in_it_goes_with_it(self):
        self.testbed.up()
        # One in its cgroup and namespace, one that left its cgroup, one that left its parent.
        words = ["sh", "-c", "echo $$; exec sleep 1000"]
        inside = self.testbed.exec("s1", words, stdout=subprocess.PIPE)
        space = machine.own_name(self.name, "s2")
        beside = subprocess.Popen(["ip", "netns", "exec", space, *words], stdout=subprocess.PIPE)
        for process in (inside, beside):
            self.addCleanup(process.stdout.close)
            self.assertNotEqual(process.stdout.readline(), b"")  # it is there
        with self.testbed.exec("x2", ["sh", "-c", "setsid sleep 1000 >/dev/null & echo $!"],
                               stdout=subprocess.PIPE) as parent:
            orphan = int(parent.stdout.read())
        self.testbed.down()
        self.assertEqual((inside.wait(), beside.wait()), (-signal.SIGKILL, -signal.SIGKILL))
        wait_until(lambda: not Path(f"/proc/{orphan}/exe").exists())
        self.assertEqual(left_of(self.name), [])
        self.testbed.down()  # a second time is no error

    def test_after_a_kill_in_the_middle_nothing_stays_and_it_can_be_built(self):
        with tempfile.TemporaryDirectory(prefix="abacus-testbed-test-") as folder:
            topology = Path(folder, "small.topology")
            topology.write_text(SMALL, encoding="utf-8")
            for reached in (lambda: machine.read_state(self.name),
                            lambda: len(machine.namespaces(self.name)) >= 3,
                            # Of abacus_link_delay; with netem it is up before it is killed.
                            lambda: machine.state_file(self.name).with_suffix(".log").exists()):
                with subprocess.Popen([*COMMAND, "up", str(topology), "--as", self.name],
                                      stdout=subprocess.DEVNULL) as process:
                    wait_until(lambda: reached() or process.poll() is not None)
                    process.kill()
                self.assertNotEqual(left_of(self.name), [])
                state = machine.read_state(self.name) or {}
                if state.get("status") != "up":  # it was killed in time
                    done = run_command("exec", "--testbed", self.name, "s1", "--", "true")
                    self.assertEqual(done.returncode, 125)
                    self.assertIn("is not whole", done.stderr)
                self.assertEqual(run_command("down", self.name).returncode, 0)
                self.assertEqual(left_of(self.name), [])
        with self.testbed:
            self.assertEqual(self.testbed.exec("x1", ["true"]).wait(), 0)
        self.assertEqual(left_of(self.name), [])

    def test_a_probe_for_netem_that_was_killed_in_the_middle_goes_too(self):
        with tempfile.TemporaryDirectory(prefix="abacus-testbed-test-") as folder:
            tc = Path(folder, "tc")
            tc.write_text('#!/bin/sh\ntouch "$0.asked"\nexec sleep 1000\n', encoding="utf-8")
            tc.chmod(0o755)
            environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
            with subprocess.Popen([*COMMAND, "up", "wan", "--as", self.name], env=environment,
                                  stdout=subprocess.DEVNULL) as process:
                wait_until(lambda: Path(f"{tc}.asked").exists() or process.poll() is not None)
                process.kill()
        self.assertEqual(machine.namespaces(self.name), [(self.name, HUB)])
        self.assertEqual(run_command("down", self.name).returncode, 0)
        self.assertEqual(left_of(self.name), [])

    def test_the_probe_for_netem_says_what_tc_says_and_leaves_nothing(self):
        self.assertEqual(machine.can_netem(self.name, HUB), has_netem())
        self.assertEqual(left_of(self.name), [])

    def test_without_a_delay_nothing_is_asked_of_netem(self):
        with mock.patch.object(machine, "can_netem") as asked:
            with Testbed(Topology.parse(TINY), self.name):
                asked.assert_not_called()

    def test_what_a_holder_left_that_was_killed_is_removed_and_it_can_be_built(self):
        script = textwrap.dedent(f"""
            import sys, time
            from testbed import Testbed
            from topology import Topology
            with Testbed(Topology.parse(sys.argv[1]), {self.name!r}) as testbed:
                inside = testbed.exec("a", ["sleep", "1000"])
                print(inside.pid, flush=True)
                time.sleep(1000)
            """)
        testbed = Testbed(Topology.parse(TINY), self.name)
        with subprocess.Popen([sys.executable, "-B", "-c", script, TINY],
                              cwd=Path(__file__).parent, stdout=subprocess.PIPE) as holder:
            inside = int(holder.stdout.readline())
            self.assertFalse(machine.remove_abandoned(self.name))
            with self.assertRaisesRegex(MachineError, "is there already"):
                testbed.up()
            holder.kill()
            # It has ended, though nobody has asked yet how.
            os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
            with self.assertRaisesRegex(MachineError, "is there already"):
                testbed.up()
            self.assertTrue(machine.remove_abandoned(self.name))
        wait_until(lambda: not Path(f"/proc/{inside}/exe").exists())
        self.assertEqual(left_of(self.name), [])
        self.assertFalse(machine.remove_abandoned(self.name))
        with testbed:
            self.assertEqual(testbed.exec("a", ["true"]).wait(), 0)
        self.assertEqual(left_of(self.name), [])

    def test_files_and_mounts_of_a_program_that_was_killed_go_with_it(self):
        outside = tempfile.TemporaryDirectory(prefix="abacus-testbed-test-")
        self.addCleanup(outside.cleanup)
        kept = Path(outside.name, "kept")
        kept.touch()
        self.testbed.up()
        # A driver: what it started beside the nodes is not its child's child only.
        script = textwrap.dedent(f"""
            import subprocess, sys, tempfile, time
            from testbed import Testbed
            testbed = Testbed.attach({self.name!r})
            for place in ("/dev/shm", "/tmp"):
                folder = tempfile.mkdtemp(prefix=testbed.folder_prefix, dir=place)
                for name, words in (("a b", ["-t", "tmpfs", "none"]),
                                    ("c", ["--bind", sys.argv[1]])):
                    subprocess.run(["mkdir", f"{{folder}}/{{name}}"], check=True)
                    subprocess.run(["mount", *words, f"{{folder}}/{{name}}"], check=True)
                open(f"{{folder}}/a b/file", "w").close()
            other = testbed.beside(["sleep", "1000"], start_new_session=True)
            print(other.pid, flush=True)
            time.sleep(1000)
            """)
        with subprocess.Popen([sys.executable, "-B", "-c", script, outside.name],
                              cwd=Path(__file__).parent, stdout=subprocess.PIPE) as driver:
            other = int(driver.stdout.readline())
            driver.kill()
        for place in ("/dev/shm", "/tmp"):
            self.assertEqual(len(list(Path(place).glob(f"{self.testbed.folder_prefix}*"))), 1)
        self.testbed.down()
        self.assertEqual(left_of(self.name), [])
        self.assertNotIn(self.name, Path("/proc/self/mounts").read_text())
        wait_until(lambda: not Path(f"/proc/{other}/exe").exists())
        self.assertTrue(kept.exists())  # what a folder of it had mounted is not removed

    def test_files_alone_are_found_and_others_names_are_not(self):
        beside = f"{self.name}x"
        self.addCleanup(machine.remove, beside)
        folders = [tempfile.mkdtemp(prefix=machine.folder_prefix(name), dir="/dev/shm")
                   for name in (self.name, beside)]
        self.assertIn(self.name, machine.testbeds())
        listed = run_command("list", "--json")
        self.assertNotIn(self.name, [testbed["name"] for testbed in json.loads(listed.stdout)])
        self.assertIn(f"testbed {self.name} is not whole", listed.stderr)
        with self.assertRaisesRegex(MachineError, "is there already"):
            self.testbed.up()
        self.testbed.down()
        self.assertEqual([Path(folder).exists() for folder in folders], [False, True])

    def test_what_is_made_while_it_is_removed_goes_too(self):
        hub = machine.make_cgroup(self.name, HUB)
        script = ("i=0; while :; do i=$((i + 1)); "
                  f"ip netns add {machine.PREFIX}{self.name}-n$i; done")
        with subprocess.Popen(["sh", "-c", script], stderr=subprocess.DEVNULL,
                              preexec_fn=lambda: machine.join_cgroup(hub)) as maker:
            wait_until(lambda: len(machine.namespaces(self.name)) >= 5)
            machine.remove(self.name)
        self.assertEqual(maker.returncode, -signal.SIGKILL)
        self.assertEqual(left_of(self.name), [])

    def test_a_cut_link_is_measured_as_off(self):
        self.without_netem()
        self.testbed.up()
        hub = next(folder for pair, folder in machine.cgroups(self.name) if pair[1] == HUB)
        self.assertGreaterEqual(check.measured(check.one_way_s, self.testbed, "x1", "s1"), 0.03)
        with mock.patch.object(check, "PATIENCE_S", 1):
            for pid in (hub / "cgroup.procs").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
            wait_until(lambda: not (hub / "cgroup.procs").read_text())
            off = check.measured(check.one_way_s, self.testbed, "x1", "s1")
        self.assertFalse(check.Row("delay", "30", off, "ms", 27, 33).good)
        self.assertTrue(math.isnan(off))

    def test_where_it_cannot_be_built_nothing_stays(self):
        self.without_netem()
        with mock.patch.dict(os.environ, ABACUS_LINK_DELAY="/bin/false"):
            with self.assertRaisesRegex(MachineError, "/bin/false"):
                self.testbed.up()
        self.assertEqual(left_of(self.name), [])
        with mock.patch.dict(os.environ, ABACUS_LINK_DELAY="/nowhere"):
            with self.assertRaisesRegex(MachineError, "is not built"):
                self.testbed.up()
        self.assertEqual(left_of(self.name), [])


class CgroupsOfVersion2(unittest.TestCase):
    """The files that are written, in a folder that stands for the root of the hierarchy."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.control = self.root / "cgroup.subtree_control"
        self.control.write_text("memory")
        for what, value in (("_cgroup_mount", lambda: (self.root, 2, "/")),
                            ("NAMESPACES", self.root / "none"), ("_folders", lambda *_: []),
                            ("HANDED", self.root / "handed"), ("STATES", self.root)):
            patched = mock.patch.object(machine, what, value)
            patched.start()
            self.addCleanup(patched.stop)

    def test_what_was_handed_to_nodes_is_taken_back_with_the_last_testbed(self):
        folder = machine.make_cgroup("one", "s1", 2400, 20000)
        self.assertEqual(self.control.read_text(), "+cpu")
        self.assertEqual((folder / "cpu.max").read_text(), "2400 20000")
        other = machine.make_cgroup("two", "s1")
        for made in (folder, other):  # a kernel's folders go with their files
            shutil.rmtree(made)
            if made is folder:
                machine.remove("one")
                self.assertEqual(self.control.read_text(), "+cpu", "the other one needs it")
        machine.remove("two")
        self.assertEqual(self.control.read_text(), "-cpu")
        self.assertFalse(machine.HANDED.exists())

    def test_what_others_handed_out_stays(self):
        self.control.write_text("cpu memory")
        shutil.rmtree(machine.make_cgroup("one", "s1"))
        machine.remove("one")
        self.assertEqual(self.control.read_text(), "cpu memory")


class Planned(unittest.TestCase):
    """What is asked of ip and tc where the kernel has netem and where not, without a testbed."""

    def setUp(self):
        self.kernel, self.program = (_Plan("t", Topology.parse(SMALL), netem)
                                     for netem in (True, False))

    def test_with_netem_a_link_with_a_delay_is_a_veth_pair_and_no_program_is_started(self):
        hub = machine.own_name("t", HUB)
        pair = f"link add l0a netns {hub} type veth peer name l0b netns {hub}"
        self.assertIn(pair, self.kernel.ip_of_hub())
        self.assertEqual(self.kernel.delay_words(), [])
        self.assertNotIn(pair, self.program.ip_of_hub())
        space = f"/run/netns/{hub}"
        self.assertEqual(self.program.delay_words(), [space, "l0a", space, "l0b", "30000"])
        self.assertEqual([line for line in self.kernel.ip_of_hub() if line != pair],
                         self.program.ip_of_hub(), "nothing else differs")

    def test_netem_lies_within_the_token_buckets_of_both_ends(self):
        lines = self.kernel.tc(self.kernel.hub)
        for end in ("l0a", "l0b"):
            at = lines.index(f"qdisc add dev {end} root handle 1: {bucket(8e6)}") + 1
            self.assertEqual(lines[at:at + 2], [
                f"qdisc add dev {end} parent 1:1 handle 2: netem delay 30000us limit 2167",
                f"qdisc add dev {end} parent 2:1 bfifo limit 100000"])
            del lines[at:at + 2]
        self.assertEqual(lines, self.program.tc(self.program.hub), "nothing else differs")
        for space in self.kernel.addresses:
            self.assertEqual(self.kernel.tc(space), self.program.tc(space))

    def test_nodes_that_are_behind_a_delay_have_netem_on_their_side_too(self):
        topology = Topology.parse("network n bandwidth=1Gbit delay=125us\nnode a network=n")
        plan = _Plan("t", topology, True)
        netem = "parent 1:1 handle 2: netem delay 125us limit 208594"
        for space, device in ((machine.own_name("t", "a"), "eth0"), (plan.hub, "n0")):
            self.assertEqual(plan.tc(space)[1], f"qdisc add dev {device} {netem}")

    def test_netem_has_room_for_what_is_on_its_way_and_for_what_waits(self):
        self.assertEqual(delay_line(20e6, 0.02), "netem delay 20000us limit 5000")
        self.assertEqual(delay_line(64e3, 2), "netem delay 2000000us limit 1359")

    def test_which_of_the_two_is_used_is_told(self):
        self.assertIn("delay: netem, in the kernel (1 of 7 links)", self.kernel.used(1))
        self.assertIn("delay: this kernel has no netem: TAP devices and abacus_link_delay "
                      "(1 of 7 links)", self.program.used(1))

    def probe(self, refuses):
        """What the probe says where one program refuses, and the programs that it ran."""
        ran = []

        def run(command, join):
            ran.append(command[0])
            if command[0] == refuses:
                raise MachineError(f"{refuses} refuses")

        with mock.patch.object(machine, "run", run):
            return machine.can_netem("t", HUB), ran

    def test_the_probe_tells_no_netem_from_no_namespace(self):
        ran = ["ip", "tc", "ip"]  # makes a namespace, tries, and removes it
        self.assertEqual(self.probe(None), (True, ran))
        self.assertEqual(self.probe("tc"), (False, ran))
        with self.assertRaisesRegex(MachineError, "ip refuses"):
            self.probe("ip")


class Held(unittest.TestCase):
    """Who holds a testbed, without one."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="abacus-testbed-test-")
        self.addCleanup(folder.cleanup)
        self.removed = mock.Mock()
        patched = mock.patch.multiple(machine, STATES=Path(folder.name), remove=self.removed)
        patched.start()
        self.addCleanup(patched.stop)

    def test_a_testbed_is_abandoned_where_its_holder_has_ended(self):
        me = machine.this_process()
        for holder, abandoned in (
                (me, False), (None, False),
                ({**me, "started": me["started"] - 1}, True),  # it had the number before
                ({**me, "started": 1, "pids_of": "pid:[1]"}, False)):
            machine.write_state(NAME, {"holder": holder})
            self.assertEqual(machine.remove_abandoned(NAME), abandoned, holder)
        self.removed.assert_called_once_with(NAME)

    def test_nothing_is_abandoned_of_which_nothing_can_be_read(self):
        self.assertFalse(machine.remove_abandoned(NAME))
        for text in ("", "{", "{}"):
            machine.state_file(NAME).write_text(text, encoding="utf-8")
            self.assertFalse(machine.remove_abandoned(NAME), text)

    def test_of_two_that_find_it_abandoned_one_removes_it(self):
        machine.write_state(NAME, {"holder": {**machine.this_process(), "started": 1}})
        self.removed.side_effect = lambda name: self.assertFalse(machine.remove_abandoned(name))
        self.assertTrue(machine.remove_abandoned(NAME))
        self.removed.assert_called_once_with(NAME)

    def test_who_finds_it_abandoned_after_it_was_removed_leaves_what_was_built_since(self):
        holder = {**machine.this_process(), "started": 1}
        machine.write_state(NAME, {"holder": holder})

        def removed_meanwhile(_):
            machine.state_file(NAME).unlink()
            return {"holder": holder}

        with mock.patch.object(machine.json, "load", removed_meanwhile):
            self.assertFalse(machine.remove_abandoned(NAME))
        self.removed.assert_not_called()


class Rates(unittest.TestCase):
    """How check counts, without a testbed."""

    def test_frames_that_come_as_one_count_as_many_as_the_wire_would_have_carried(self):
        def table(size, packets):
            return ("Inter-|   Receive                 |  Transmit\n"
                    " face |bytes    packets errs drop |bytes    packets errs drop\n"
                    "    lo:  999999     999    0    0    999999     999    0    0\n"
                    f"  eth0:{size} {packets}    0    0       660      10    0    0\n")
        self.assertEqual(check.frames_in(table(0, 0), "eth0"), 0)
        self.assertEqual(check.frames_in(table(50 * 1514, 50), "eth0"), 50)
        self.assertEqual(check.frames_in(table(2 * (66 + 45 * 1448), 2), "eth0"), 90)
        self.assertEqual(check.frames_in(table(50 * 1514 + 25 * 66, 75), "eth0"), 50,
                         "acknowledgements carry nothing")
        with self.assertRaisesRegex(MachineError, "no device eth1"):
            check.frames_in(table(0, 0), "eth1")

    def test_flows_are_measured_while_all_of_them_run(self):
        # Two on a segment of 1000 a second; the second begins 0.4 s later, and each is alone for
        # 0.4 s, which counted 1000 x (1 + 0.2 / 1.2) when each was measured in its own time.
        def flow(begun, end, other):
            def come(when):
                alone = min(when, max(begun, other[0])) - begun + max(when - other[1], 0)
                return 1000 * alone + 500 * (when - begun - alone)
            times = [begun + 0.02 * i for i in range(round((end - begun) / 0.02) + 1)]
            return [[when, come(when)] for when in times]
        a, b = (0.0, 2.3), (0.4, 2.7)
        rate = check.common_rate([flow(*a, b), flow(*b, a)], 0.6, 1.2)
        self.assertAlmostEqual(rate, 1000, delta=1)

    def test_flows_that_did_not_run_together_are_not_measured(self):
        apart = [[[0, 0], [1, 10], [2, 20]], [[1.5, 0], [2.5, 10], [3.5, 20]]]
        with self.assertRaisesRegex(MachineError, "too far apart"):
            check.common_rate(apart, 0.3, 0.6)


class Command(unittest.TestCase):
    def refused(self, words, status, *told):
        done = run_command(*words)
        self.assertEqual(done.returncode, status, done.stderr)
        for text in told:
            self.assertIn(text, done.stderr)

    def test_bad_input(self):
        self.refused([], 2, "COMMAND")
        self.refused(["upp"], 2, "invalid choice: 'upp'")
        self.refused(["up"], 2, "TOPOLOGY")
        self.refused(["up", "papr"], 2, "no topology 'papr'; did you mean paper?")
        self.refused(["up", "paper", "--as", "Not-One"], 2, "'Not-One' is no name")
        self.refused(["up", "paper", "--cpu", "s1"], 2, "'s1' is not NODE=SHARE")
        self.refused(["up", "paper", "--cpu", "s1=2%"], 2, "2% is not within 5% and 1600%")
        self.refused(["up", "paper", "--cpu", "s9=6%"], 2, "no node 's9'")
        self.refused(["down", "../../x"], 2, "is no name")
        self.refused(["exec", "s1"], 2, "COMMAND")

    def test_a_faulty_file_is_told_by_line_before_anything_is_made(self):
        with tempfile.TemporaryDirectory(prefix="abacus-testbed-test-") as folder:
            path = Path(folder, f"{NAME}f.topology")
            path.write_text("network a bandwidth=1Mbit\nnode x network=b\n", encoding="utf-8")
            self.refused(["up", str(path)], 2, f"{path}:2: node x: there is no network b")
        self.assertEqual(machine.testbeds().count(f"{NAME}f"), 0)

    def test_without_root_it_says_so(self):
        with mock.patch("os.geteuid", return_value=1000):
            with self.assertRaisesRegex(MachineError, "the testbed takes root.*sudo"):
                Testbed(Topology.parse(TINY), NAME).up()

    def test_the_delay_program_refuses_what_it_cannot_do(self):
        program = os.environ["ABACUS_LINK_DELAY"]
        for words, status, told in (([], 2, "usage:"), (["a", "b", "c", "d"], 2, "usage:"),
                                    (["a", "b", "c", "d", "1ms"], 2, "'1ms' is no delay"),
                                    (["a", "b", "c", "d", "-1"], 2, "'-1' is no delay"),
                                    (["/nowhere", "b", "c", "d", "1"], 1,
                                     "cannot open namespace /nowhere")):
            done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, told in done.stderr), (status, True), done.stderr)


if __name__ == "__main__":
    os.environ["ABACUS_LINK_DELAY"] = os.path.abspath(sys.argv.pop(1))
    unittest.main()
