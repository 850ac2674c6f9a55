"""Measures a testbed that is up, and compares it with its topology.

Network measurements run in the nodes' namespaces but outside of their CPU quotas, which would else
be what is measured; they are done in children that this process forks.
"""

import dataclasses
import json
import math
import os
import signal
import socket
import statistics
import sys
import time

import machine
from machine import MachineError
from topology import CPU_PERIOD_US, DEVICE, FRAME_BYTES, PAYLOAD_BYTES

TOLERANCE = 0.10
DELAY_TOLERANCE_S = 0.0002   # one way: what the kernel and the wake-up of two processes take
WARM_UP_S = 0.3              # until TCP is up to speed and buckets are empty; twice that if slow
SECONDS = 0.6                # of measuring a flow; twice that if slow
SKEW_S = 0.5                 # by which flows that are measured together may begin apart
SAMPLE_S = 0.02              # between two looks at what has come
PATIENCE_S = 10             # for a peer that does not answer
EXCHANGES = 200
EXCHANGES_S_MAX = 3.0
STALL_S_MIN = 0.002          # a gap in a spinning program from here on is a stall
P99_SAMPLES_MIN = 1000       # with fewer the longest is told instead
CPU_S = 2.0                  # of spinning
STALLS_S_MAX = 6.0
STALLS_PER_S = 28            # of one node, at least: one in nearly two periods
_CLOCK_MONOTONIC_COARSE = 6  # its resolution is the kernel's tick
PORT = 5001


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table; `low` and `high` bound what is taken for good."""
    what: str
    wanted: str
    measured: float
    unit: str
    low: float
    high: float

    @property
    def good(self):
        return self.low <= self.measured <= self.high


# --- children in nodes ---------------------------------------------------------------------------

class Child:
    """A function that runs in a node, in a process of its own; its value comes back as JSON."""

    def __init__(self, testbed, node, capped, function, *arguments):
        self.node = node
        self._read, write = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(self._read)
                machine.die_with_parent()
                testbed.enter(node, capped)
                os.write(write, json.dumps(function(*arguments)).encode())
                code = 0
            except BaseException as error:  # nothing may get from here into the parent's code
                print(f"testbed: measuring on {node}: {error or repr(error)}", file=sys.stderr)
                sys.stderr.flush()
            finally:
                os._exit(code)
        os.close(write)

    def result(self):
        """Waits for the value; raises MachineError where the child failed."""
        pipe, self._read = os.fdopen(self._read, "rb"), None
        with pipe:
            text = pipe.read()
        _, status = os.waitpid(self.pid, 0)
        self.pid = None
        if status != 0:
            raise MachineError(f"a measurement on {self.node} failed")
        return json.loads(text)

    def stop(self):
        """Ends it where it still runs; its value is lost."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = None
        if self._read is not None:
            os.close(self._read)
            self._read = None


def _in_children(children):
    """Their values, in order; all are gone afterwards, also where one failed."""
    try:
        return [child.result() for child in children]
    finally:
        for child in children:
            child.stop()


def _connect(host, port):
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection((host, port), PATIENCE_S)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)  # who listens there has just been started


def _send(host, port):
    with _connect(host, port) as peer:
        data = bytes(256 * 1024)
        try:
            while True:
                peer.sendall(data)
        except OSError:
            return None  # the receiver has seen enough


def frames_in(devices, name):
    """How many full frames of TCP have come to a device, by the kernel's table of devices.

    Of frames that came to it as one, with the headers of one, as segments do that are cut by no
    bucket on their way, those count that the wire would have carried.
    """
    for line in devices.splitlines():
        device, _, counts = line.partition(":")
        if device.strip() == name:
            size, packets = (int(count) for count in counts.split()[:2])
            return (size - packets * (FRAME_BYTES - PAYLOAD_BYTES)) / PAYLOAD_BYTES
    raise MachineError(f"there is no device {name}")


def _frames_in():
    with open("/proc/net/dev", encoding="ascii") as devices:  # of this process's namespace
        return frames_in(devices.read(), DEVICE)


def _receive(port, seconds):
    """[[when, frames that had come]] of a flow of full frames, from its beginning on.

    Bytes that the socket hands on would not do: behind a frame that a full bucket dropped, what
    comes waits until that is sent again, and is then handed on at once. That were up to 0.45 MB
    here, and 12 Mbit/s of 10. Nor would its count of segments: where a program of ours carries the
    frames (testbed.py), 64 KiB may be one.
    """
    with socket.create_server(("", port)) as server:
        server.settimeout(PATIENCE_S)
        peer, _ = server.accept()
    with peer:
        peer.settimeout(SAMPLE_S)
        buffer = bytearray(1024 * 1024)
        samples = [[time.monotonic(), _frames_in()]]
        end = samples[0][0] + seconds
        while samples[-1][0] < end:
            try:
                if peer.recv_into(buffer) == 0:
                    raise ConnectionError("the sender has ended")
            except TimeoutError:
                pass  # it waits for what was dropped
            now = time.monotonic()
            if now >= samples[-1][0] + SAMPLE_S:
                samples.append([now, _frames_in()])
        return samples


def _answer(port):
    with socket.create_server(("", port)) as server:
        server.settimeout(PATIENCE_S)
        peer, _ = server.accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with peer:
        while data := peer.recv(64):
            peer.sendall(data)


def _ask(host, port):
    """Median of the round trips of small messages, in seconds."""
    with _connect(host, port) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        trips, deadline = [], time.monotonic() + EXCHANGES_S_MAX
        while len(trips) < EXCHANGES and time.monotonic() < deadline:
            begun = time.monotonic()
            peer.sendall(b"x" * 64)
            peer.recv(64)
            trips.append(time.monotonic() - begun)
        return statistics.median(trips)


def _spin(seconds):
    """(share of a core that it got, its stalls in seconds)."""
    stalls, threshold = [], round(STALL_S_MIN * 1e9)
    last = time.monotonic_ns()
    end = last + round(seconds * 1e9)
    begun, begun_cpu = last, time.process_time_ns()
    while last < end:
        now = time.monotonic_ns()
        if now - last > threshold:
            stalls.append((now - last) / 1e9)
        last = now
    return (time.process_time_ns() - begun_cpu) / (last - begun), stalls


# --- measurements --------------------------------------------------------------------------------

def _at(samples, when):
    """The frames that had come at a time within the samples, on the line between two of them."""
    later = next(i for i in range(1, len(samples)) if samples[i][0] >= when)
    (t0, n0), (t1, n1) = samples[later - 1:later + 1]
    return n0 + (n1 - n0) * (when - t0) / (t1 - t0)


def common_rate(flows, warm_up_s, seconds):
    """Frames a second of all flows in sum, while all of them ran; each: samples of _receive.

    One that began earlier than the other, or ends later, has a shared segment for itself then:
    measured in times of their own they would have more than there is. Raises MachineError where
    they did not run together for `seconds`.
    """
    begun = max(samples[0][0] for samples in flows) + warm_up_s
    end = min(samples[-1][0] for samples in flows)
    if end < begun + seconds:
        raise MachineError("flows that are measured together began too far apart")
    return sum(_at(samples, end) - _at(samples, begun) for samples in flows) / (end - begun)


def total_rate(testbed, flows):
    """bit/s on the wire of the flows (from, to), all at once, in sum; without acknowledgements."""
    delay_s = max(testbed.topology.delay_s(*flow) for flow in flows)
    bandwidth = min(testbed.topology.bandwidth(*flow) for flow in flows)
    slow = 1 if bandwidth >= 50e6 else 2
    warm_up_s, seconds = slow * WARM_UP_S + 40 * delay_s, slow * SECONDS
    skew_s = SKEW_S if len(flows) > 1 else 0
    children = []
    try:
        for i, (_, b) in enumerate(flows):
            children.append(Child(testbed, b, False, _receive, PORT + i,
                                  warm_up_s + seconds + skew_s))
        receivers = list(children)
        for i, (a, b) in enumerate(flows):
            host = testbed.topology.nodes[b].address
            children.append(Child(testbed, a, False, _send, host, PORT + i))
        samples = [receiver.result() for receiver in receivers]
    finally:
        for child in children:
            child.stop()
    return 8 * FRAME_BYTES * common_rate(samples, warm_up_s, seconds)


def one_way_s(testbed, a, b):
    """Half of the median round trip from `a` to `b` and back."""
    host = testbed.topology.nodes[b].address
    _, trip = _in_children([Child(testbed, b, False, _answer, PORT),
                            Child(testbed, a, False, _ask, host, PORT)])
    return trip / 2


def cpu_shares(testbed, nodes, seconds):
    """({node: share of a core}, all stalls in seconds) of nodes that spin at once."""
    values = _in_children([Child(testbed, node, True, _spin, seconds) for node in nodes])
    return ({node: share for node, (share, _) in zip(nodes, values)},
            [stall for _, stalls in values for stall in stalls])


def stall_summary(stalls):
    """('stall p99', seconds), or ('longest stall', seconds) where there are too few for a p99."""
    if not stalls:
        return "longest stall", 0.0
    if len(stalls) < P99_SAMPLES_MIN:
        return "longest stall", max(stalls)
    return "stall p99", sorted(stalls)[math.ceil(0.99 * len(stalls)) - 1]


# --- the whole check -----------------------------------------------------------------------------

def pairs_to_measure(topology):
    """Pairs of nodes such that every node and every link between networks is in one."""
    pairs, seen = [], set()

    def add(a, b):
        if a != b and (a, b) not in pairs and (b, a) not in pairs:
            pairs.append((a, b))
            seen.update((a, b))

    on = {name: [n.name for n in topology.nodes.values() if n.network == name]
          for name in topology.networks}
    for nodes in on.values():
        for a, b in zip(nodes[::2], nodes[1::2]):
            add(a, b)
    for link in topology.links:
        across = [(a, b) for a in topology.nodes for b in topology.nodes
                  if a < b and link in topology.way(a, b)[1]]
        if across:
            add(*min(across, key=lambda pair: len(topology.way(*pair)[1])))
    for node in topology.nodes:
        if node not in seen:
            add(node, next(other for other in [*on[topology.nodes[node].network], *topology.nodes]
                           if other != node or len(topology.nodes) == 1))
    return pairs


def flows_of_segment(topology, network):
    """Sets of two flows, in opposite directions, that must share the segment's one bandwidth."""
    inside = [n.name for n in topology.nodes.values() if n.network == network.name]
    outside = [n.name for n in topology.nodes.values() if n.network != network.name]
    sets = [[(inside[0], inside[1]), (inside[1], inside[0])]] if len(inside) >= 2 else []
    if inside and outside:
        sets.append([(inside[0], outside[0]), (outside[0], inside[-1])])
    return sets


def _bandwidth_row(what, wanted, measured):
    return Row(what, f"{wanted / 1e6:.4g}", measured / 1e6, "Mbit/s",
               wanted / 1e6 * (1 - TOLERANCE), wanted / 1e6 * (1 + TOLERANCE))


def measured(function, *arguments):
    """The function's value, or NaN, which no bounds hold, where it could not be measured."""
    try:
        return function(*arguments)
    except MachineError:
        return math.nan


def _network_rows(testbed):
    topology = testbed.topology
    for pair in pairs_to_measure(topology):
        for a, b in (pair, pair[::-1]):
            yield _bandwidth_row(f"{a} -> {b}", topology.bandwidth(a, b),
                                 measured(total_rate, testbed, [(a, b)]))
    for network in topology.networks.values():
        for flows in flows_of_segment(topology, network) if network.shared else ():
            what = f"segment {network.name}: {', '.join(f'{a} -> {b}' for a, b in flows)}"
            yield _bandwidth_row(what, network.bandwidth, measured(total_rate, testbed, flows))
    for a, b in pairs_to_measure(topology):
        wanted = topology.delay_s(a, b)
        slack = max(TOLERANCE * wanted, DELAY_TOLERANCE_S)
        trip = measured(one_way_s, testbed, a, b)
        yield Row(f"delay {a} - {b}", f"{1e3 * wanted:.3g}", 1e3 * trip, "ms",
                  1e3 * (wanted - slack), 1e3 * (wanted + slack))


def _spin_in_groups(testbed, nodes, belongs, seconds):
    """({node: share}, stalls): as many nodes spin at once as `belongs` lets into a group."""
    shares, stalls, waiting = {}, [], list(nodes)
    while waiting:
        group = [waiting.pop(0)]
        while waiting and belongs([*group, waiting[0]]):
            group.append(waiting.pop(0))
        of_group, stalls_of_group = cpu_shares(testbed, [node.name for node in group], seconds)
        shares.update(of_group)
        stalls += stalls_of_group
    return shares, stalls


def stall_limit_s(cpu):
    """How long a program that only computes can stand still at a share of a core.

    The kernel looks at a quota Q once a tick T, so that a program overruns it by up to T, and pays
    this back in the periods P after: P (1 + T / Q). At 12 % and 250 ticks a second that is
    20 ms x (1 + 4 / 2.4) = 53 ms; where ticks were exact, it were 17.6 ms.
    """
    period_s = CPU_PERIOD_US / 1e6
    return period_s * (1 + time.clock_getres(_CLOCK_MONOTONIC_COARSE) / (cpu * period_s))


def _cpu_rows(testbed, only=None):
    """Shares while many nodes are busy; stalls with a core for each: only the quota's own."""
    cores = len(os.sched_getaffinity(0))
    capped = [node for node in testbed.topology.nodes.values()
              if node.cpu is not None and (only is None or node.name in only)]
    shares, _ = _spin_in_groups(testbed, capped, lambda group: sum(node.cpu for node in group)
                                <= 0.8 * cores, CPU_S)
    for node in capped:
        yield Row(f"CPU of {node.name}", f"{node.cpu:.3g}", shares[node.name], "core",
                  node.cpu * (1 - TOLERANCE), node.cpu * (1 + TOLERANCE))
    seconds = min(STALLS_S_MAX, P99_SAMPLES_MIN / (STALLS_PER_S * max(1, len(capped))))
    _, stalls = _spin_in_groups(testbed, capped, lambda group: len(group) <= cores, seconds)
    if stalls:
        name, value = stall_summary(stalls)
        limit_ms = 1e3 * stall_limit_s(min(node.cpu for node in capped))
        yield Row(f"{name} ({len(stalls)} stalls)", f"<= {limit_ms:.0f}", 1e3 * value, "ms", 0,
                  limit_ms * (1 + TOLERANCE))


def measure(testbed, report=print, shares_of=None):
    """Measures everything; `report` gets each line of the table when it is known. The rows.

    `shares_of`: only these nodes' shares of a core, where all else was measured before.
    """
    report(f"{'what':44} {'wanted':>9} {'measured':>9} unit")
    rows = []
    for rows_of in ((_network_rows(testbed), _cpu_rows(testbed)) if shares_of is None
                    else (_cpu_rows(testbed, shares_of),)):
        for row in rows_of:
            rows.append(row)
            tell(row, report)
    return rows


def tell(row, report=print):
    """A line of the table."""
    report(f"{row.what:44} {row.wanted:>9} {row.measured:>9.4g} {row.unit:6}"
           + ("" if row.good else f"  OFF: not within {row.low:.4g} .. {row.high:.4g}"))
