"""A testbed for users who are not root: one host, user-space shaping. UserSpaceTestbed.

    with UserSpaceTestbed(Topology.load("paper")) as testbed:      # up() ... down()
        server = testbed.exec("s1", ["abacus_lab", ...])

Every node is this host. Node i (from 1) has the address 127.N.i.i, N being this testbed's, and is
dialled by node j at 127.N.j.i: there abacus_link_relay, the one process behind it, carries on what
comes to DATA_PORT, at the topology's rates and with its delays. Nothing caps a node's processor.
Other ports are not carried: who wants them dials the node's own address, past all links.
"""

import contextlib
import dataclasses
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from check import Row, flows_of_segment, pairs_to_measure
from machine import MachineError
from testbed import PROJECT
from topology import FRAME_BYTES, PAYLOAD_BYTES, Topology

MARK = "one host, user-space shaping"
RELAY_PROGRAM = "abacus_link_relay"
FOLDERS = "abacus-user-space-"  # and the process that made them
DATA_PORT = 7071
NETWORKS = range(231, 199, -1)  # N: who comes second takes the next one
TOLERANCE = 0.25
DELAY_TOLERANCE_S = 0.0005   # one way: the relay and three processes that wake up
BACKLOG_S = 1.0              # of a flow's beginning: buffers fill, and what fills them is not timed
SECONDS = 1.0
EXCHANGES = 50
PATIENCE_S = 10


def find_relay_program():
    """The built abacus_link_relay: the environment's ABACUS_LINK_RELAY, else that of a preset."""
    given = os.environ.get("ABACUS_LINK_RELAY")
    candidates = [given] if given else [
        PROJECT / "build" / preset / "experiments" / RELAY_PROGRAM for preset in ("release", "dev")]
    for path in candidates:
        if os.access(path, os.X_OK):
            return str(path)
    raise MachineError(f"{RELAY_PROGRAM} is not built: ./dev build release {RELAY_PROGRAM}")


class _Plan:
    """The parts of a topology, a rate each, and through which of them each way goes."""

    def __init__(self, topology):
        self.topology, self.rates, self._part = topology, [], {}
        for node in topology.nodes.values():
            rate = topology.networks[node.network].bandwidth
            self._add(("up", node.name), rate)
            self._add(("down", node.name), rate)
        for link in topology.links:
            self._add((link.a, link.b), link.bandwidth)
            self._add((link.b, link.a), link.bandwidth)
        for network in topology.networks.values():
            if network.shared:  # one for all stations and both directions
                self._add(network.name, network.bandwidth)

    def _add(self, key, rate):
        self._part[key] = len(self.rates)
        self.rates.append(rate)

    def way(self, a, b):
        """Numbers of the parts between two nodes."""
        networks, links = self.topology.way(a, b)
        keys = [("up", a), *(network.name for network in networks if network.shared)]
        keys += [(one.name, other.name) for one, other in zip(networks, networks[1:])]
        return [self._part[key] for key in [*keys, ("down", b)]]

    def words(self, network, port):
        """Arguments of abacus_link_relay."""
        words = [",".join(f"{rate:.0f}" for rate in self.rates)]
        for i, a in enumerate(self.topology.nodes, 1):
            for j, b in enumerate(self.topology.nodes, 1):
                if a == b:
                    continue
                there, back = (",".join(map(str, way)) for way in (self.way(a, b), self.way(b, a)))
                words += [f"127.{network}.{i}.{j}:{port}", f"127.{network}.{j}.{j}:{port}",
                          f"{self.topology.delay_s(a, b) * 1e6:.0f}", there, back]
        return words


def _remove_folders_of_the_dead():
    for place in {Path("/dev/shm"), Path(tempfile.gettempdir())}:
        for path in place.glob(f"{FOLDERS}*.*"):
            pid = path.name[len(FOLDERS):].partition(".")[0]
            if pid.isdecimal() and not Path(f"/proc/{pid}").exists() and \
                    path.lstat().st_uid == os.geteuid():
                shutil.rmtree(path, ignore_errors=True)


class UserSpaceTestbed:
    """One testbed. As a context: up and down. What is left of it ends with this process."""

    user_space = True

    def __init__(self, topology, name=None):
        self.topology, self.name = topology, name or topology.name
        self._relay = self._network = None

    @property
    def folder_prefix(self):
        """Folders of this process whose names begin so, in /dev/shm or for temporary files, go with
        the testbed: where it is killed, the next one of the same user removes them."""
        return f"{FOLDERS}{os.getpid()}."

    def up(self):
        """Starts the relay; raises MachineError, and nothing is left then."""
        _remove_folders_of_the_dead()
        program, plan = find_relay_program(), _Plan(self.topology)
        words = []
        for network in NETWORKS:
            words = self._start(program, plan, network)
            if words is None:
                return
            if "Address already in use" not in words:
                break
        raise MachineError(f"{RELAY_PROGRAM}: {words or 'ended'}")

    def _start(self, program, plan, network):
        """None, or what it said where it did not start."""
        relay = subprocess.Popen([program, *plan.words(network, DATA_PORT)], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with relay.stdout:
            ready = relay.stdout.readline() == b"ready\n"
        if not ready:
            words = relay.communicate()[1].decode(errors="replace").strip()
            return words
        self._relay, self._network = relay, network
        nodes = {name: dataclasses.replace(node, address=f"127.{network}.{i}.{i}")
                 for i, (name, node) in enumerate(self.topology.nodes.items(), 1)}
        self.topology = Topology(self.topology.name, self.topology.networks, self.topology.links,
                                 nodes)
        return None

    def down(self):
        """Ends the relay; not an error where there is none."""
        if self._relay is not None:
            self._relay.kill()
            self._relay.wait()
            self._relay.stdin.close()
            self._relay.stderr.close()
            self._relay = None

    def __enter__(self):
        self.up()
        return self

    def __exit__(self, *_):
        self.down()

    def used(self):
        """What emulates what, and what nothing does, a sentence each."""
        return [f"{MARK}: no privileges are needed, and no claims are made",
                f"{len(self.topology.nodes)} nodes: processes on addresses 127.{self._network}.*",
                f"bandwidth and delay: {RELAY_PROGRAM}, which carries all connections between "
                "nodes; each wire's direction and each shared segment has one rate",
                "control messages (joins, digests, decisions) go past the links",
                "CPU: no quota. Messages, parity and what a filter computes take their time at the "
                "node's share of a core, as they are modelled; all else has a whole core"]

    def ways(self, node):
        """How the addresses begin at which a node dials others."""
        return f"127.{self._network}.{self._number(node)}."

    def dialled(self, a, b):
        """The host at which node `a` dials node `b`."""
        return f"{self.ways(a)}{self._number(b)}"

    def exec(self, node, words, **options):
        """Starts `words` for a node; the subprocess.Popen, `options` being that class's."""
        self._number(node)
        return subprocess.Popen(words, **options)

    def _number(self, node):
        if node not in self.topology.nodes:
            raise MachineError(f"testbed {self.name} has no node {node}; there are: "
                               f"{', '.join(self.topology.nodes)}")
        return list(self.topology.nodes).index(node) + 1

    def check(self, report=print, shares_of=None):
        """Measures what was built: [check.Row]; as Testbed.check, but 25 % are taken for good.

        `shares_of`: nothing is measured, as nodes have no quota.
        """
        report(f"{'what':44} {'wanted':>9} {'measured':>9} unit")
        rows = []
        for row in self._rows() if shares_of is None else ():
            rows.append(row)
            report(f"{row.what:44} {row.wanted:>9} {row.measured:>9.4g} {row.unit:6}"
                   + ("" if row.good else f"  OFF: not within {row.low:.4g} .. {row.high:.4g}"))
        return rows

    def _rows(self):
        topology = self.topology
        pairs = pairs_to_measure(topology)
        for pair in pairs:
            for a, b in (pair, pair[::-1]):
                yield _rate_row(f"{a} -> {b}", topology.bandwidth(a, b),
                                sum(flow_rates(self, [(a, b)])))
        for network in topology.networks.values():
            for flows in flows_of_segment(topology, network) if network.shared else ():
                what = f"segment {network.name}: {', '.join(f'{a} -> {b}' for a, b in flows)}"
                yield _rate_row(what, network.bandwidth, sum(flow_rates(self, flows)))
        for a, b in pairs:
            # 64 bytes have 130 on the wire, and these take their time on an idle link as well.
            wanted = topology.delay_s(a, b) + 8 * 130 / topology.bandwidth(a, b)
            slack = max(TOLERANCE * wanted, DELAY_TOLERANCE_S)
            yield Row(f"delay {a} - {b}", f"{1e3 * wanted:.3g}", 1e3 * one_way_s(self, a, b), "ms",
                      1e3 * (wanted - slack), 1e3 * (wanted + slack))


def _rate_row(what, wanted, rate):
    return Row(what, f"{wanted / 1e6:.4g}", rate / 1e6, "Mbit/s", wanted / 1e6 * (1 - TOLERANCE),
               wanted / 1e6 * (1 + TOLERANCE))


def _connection(testbed, a, b):
    """(the socket at node a, the socket at node b) of a connection over the testbed's links."""
    with socket.create_server((testbed.topology.nodes[b].address, DATA_PORT)) as server:
        server.settimeout(PATIENCE_S)
        near = socket.create_connection((testbed.dialled(a, b), DATA_PORT), PATIENCE_S)
        far, _ = server.accept()
    for end in (near, far):
        end.settimeout(PATIENCE_S)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return near, far


def flow_rates(testbed, flows):
    """bit/s on the wire of each flow (from, to), all at once, computed from what arrives."""
    warm_up_s = BACKLOG_S + 4 * max(testbed.topology.delay_s(*flow) for flow in flows)
    begun = time.monotonic() + warm_up_s
    counts, over = [0] * len(flows), threading.Event()

    def send(near):
        with contextlib.suppress(OSError):  # the receiver has seen enough
            while not over.is_set():
                near.sendall(bytes(64 * 1024))

    def receive(far, i):
        buffer = bytearray(256 * 1024)
        with contextlib.suppress(OSError):  # nothing comes: so it is counted
            while (now := time.monotonic()) < begun + SECONDS:
                count = far.recv_into(buffer)
                counts[i] += count if now >= begun else 0
        over.set()
        far.shutdown(socket.SHUT_RDWR)

    with contextlib.ExitStack() as ends:
        threads = []
        for i, (a, b) in enumerate(flows):
            near, far = _connection(testbed, a, b)
            ends.callback(near.close)
            ends.callback(far.close)
            threads += [threading.Thread(target=send, args=(near,)),
                        threading.Thread(target=receive, args=(far, i))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return [8 * count * FRAME_BYTES / PAYLOAD_BYTES / SECONDS for count in counts]


def one_way_s(testbed, a, b):
    """Half of the median round trip of a small message from `a` to `b` and back."""
    near, far = _connection(testbed, a, b)
    trips = []
    with near, far:
        for _ in range(EXCHANGES):
            begun = time.monotonic()
            near.sendall(b"x" * 64)
            far.sendall(far.recv(64))
            near.recv(64)
            trips.append(time.monotonic() - begun)
    return statistics.median(trips) / 2
