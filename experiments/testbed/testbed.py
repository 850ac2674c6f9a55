"""An emulated network of small machines on one Linux host: Testbed.

    from testbed import Testbed
    from topology import Topology

    with Testbed(Topology.load("paper")) as testbed:     # up() ... down()
        server = testbed.exec("s1", ["abacus", "serve", ...])
        host = testbed.topology.nodes["s1"].address

Needs root. Not thread-safe: commands are started with hooks between fork and exec.
"""

import math
import os
import subprocess
import sys
from pathlib import Path

import machine
from machine import MachineError
from topology import CPU_PERIOD_US, DEVICE, FRAME_BYTES, HUB, Topology

PROJECT = Path(__file__).resolve().parents[2]
DELAY_PROGRAM = "abacus_link_delay"
BURST_S = 0.001  # a token bucket holds what passes in this time ...
BURST_FRAMES = 2  # ... but no less than this
QUEUE_S = 0.1    # what waits before a token bucket at most, in time; beyond, frames are dropped
QUEUE_BYTES_MIN = 64 * 1024
FRAME_BYTES_MIN = 60


def find_delay_program():
    """The built abacus_link_delay: the environment's ABACUS_LINK_DELAY, else that of a preset."""
    given = os.environ.get("ABACUS_LINK_DELAY")
    candidates = [Path(given)] if given else [
        PROJECT / "build" / preset / "experiments" / DELAY_PROGRAM for preset in ("release", "dev")]
    for path in candidates:
        if os.access(path, os.X_OK):
            return path
    raise MachineError(f"a link has a delay, this kernel has no netem, and {DELAY_PROGRAM} is not "
                       f"built: ./dev build release {DELAY_PROGRAM}")


def _queue_bytes(bandwidth):
    return max(QUEUE_BYTES_MIN, math.ceil(bandwidth / 8 * QUEUE_S))


def bucket(bandwidth):
    """The words of tc for a token bucket of `bandwidth` bit/s."""
    burst = max(BURST_FRAMES * FRAME_BYTES, math.ceil(bandwidth / 8 * BURST_S))
    return f"tbf rate {bandwidth:.0f}bit burst {burst} limit {_queue_bytes(bandwidth)}"


def delay_line(bandwidth, delay_s):
    """The words of tc for netem, with room for all that a link of `bandwidth` bit/s can hold.

    That is what is on its way and what waits, in the smallest frames: 8 Mbit/s and 30 ms hold
    (30 kB + 100 kB) / 60 B = 2167.
    """
    frames = math.ceil((bandwidth / 8 * delay_s + _queue_bytes(bandwidth)) / FRAME_BYTES_MIN)
    return f"netem delay {delay_s * 1e6:.0f}us limit {frames}"


class _Wire:
    """A link between two ends, each (namespace, device); bit/s and seconds each way."""

    def __init__(self, a, b, bandwidth, delay_s):
        self.a, self.b, self.bandwidth, self.delay_s = a, b, bandwidth, delay_s


class _Plan:
    """The devices of a topology, and the commands of ip and tc that make them.

    netem: whether the kernel delays frames; abacus_link_delay does so where it does not.
    """

    def __init__(self, testbed, topology, netem):
        self.topology = topology
        self.netem = netem
        space = {name: machine.own_name(testbed, name) for name in [HUB, *topology.nodes]}
        hub = space[HUB]
        self.hub = hub
        self.wires = []
        self.ports = {name: [] for name in topology.networks}  # of each network's bridge
        for i, node in enumerate(topology.nodes.values()):
            network = topology.networks[node.network]
            self.ports[node.network].append(f"n{i}")
            self.wires.append(_Wire((space[node.name], DEVICE), (hub, f"n{i}"), network.bandwidth,
                                    network.delay_s))
        for i, link in enumerate(topology.links):
            self.ports[link.a].append(f"l{i}a")
            self.ports[link.b].append(f"l{i}b")
            self.wires.append(_Wire((hub, f"l{i}a"), (hub, f"l{i}b"), link.bandwidth, link.delay_s))
        self.taps = [] if netem else [wire for wire in self.wires if wire.delay_s > 0]
        self.bridges = {name: f"br{i}" for i, name in enumerate(topology.networks)}
        self.shared = {name: f"seg{i}" for i, name in enumerate(topology.networks)
                       if topology.networks[name].shared}
        self.addresses = {space[node.name]: node.address for node in topology.nodes.values()}

    def delay_words(self):
        """Arguments of abacus_link_delay, which makes the TAP devices; none: it is not needed."""
        return [word for wire in self.taps
                for word in (str(machine.NAMESPACES / wire.a[0]), wire.a[1],
                             str(machine.NAMESPACES / wire.b[0]), wire.b[1],
                             f"{wire.delay_s * 1e6:.0f}")]

    def ip_of_hub(self):
        """Makes the bridges, the segments' devices and the wires that are veth; plugs all in."""
        lines = [f"link add {bridge} type bridge mcast_snooping 0"
                 for bridge in self.bridges.values()]
        lines += [f"link add {device} type ifb" for device in self.shared.values()]
        lines += [f"link add {w.a[1]} netns {w.a[0]} type veth peer name {w.b[1]} netns {w.b[0]}"
                  for w in self.wires if w not in self.taps]
        for network, ports in self.ports.items():
            lines += [f"link set {port} master {self.bridges[network]}" for port in ports]
        devices = [*self.bridges.values(), *self.shared.values(),
                   *(port for ports in self.ports.values() for port in ports)]
        # Without addresses of its own no device sends anything of its own.
        lines += [f"link set {device} addrgenmode none" for device in devices]
        return lines + [f"link set {device} up" for device in devices]

    def ip_of_node(self, space):
        return ["link set lo up", f"link set {DEVICE} addrgenmode none",
                f"addr add {self.addresses[space]}/24 dev {DEVICE}", f"link set {DEVICE} up"]

    def tc(self, space):
        """Token buckets where frames leave for a wire; one more for each shared segment.

        A segment takes each frame once, where it comes in from a station or from another network,
        so that all stations and both directions go through its one bucket.
        """
        lines = [line for wire in self.wires for where, device in (wire.a, wire.b) if where == space
                 for line in self._leave(device, wire)]
        for network, device in self.shared.items() if space == self.hub else ():
            lines.append(f"qdisc add dev {device} root "
                         f"{bucket(self.topology.networks[network].bandwidth)}")
            for port in self.ports[network]:
                lines.append(f"qdisc add dev {port} clsact")
                lines.append(f"filter add dev {port} ingress protocol all u32 match u32 0 0 "
                             f"action mirred egress redirect dev {device}")
        return lines

    def _leave(self, device, wire):
        """What frames pass that leave by a device for its wire."""
        yield f"qdisc add dev {device} root handle 1: {bucket(wire.bandwidth)}"
        if self.netem and wire.delay_s > 0:
            # netem takes the place of the bucket's queue, which comes behind it again. It is not
            # around the bucket: before Linux 6.13 (f8d4bc455047) it counts for ever what a bucket
            # within it cuts of large segments, and drops all once these are as many as its limit.
            yield f"qdisc add dev {device} parent 1:1 handle 2: " \
                  f"{delay_line(wire.bandwidth, wire.delay_s)}"
            yield f"qdisc add dev {device} parent 2:1 bfifo limit {_queue_bytes(wire.bandwidth)}"

    def used(self, version):
        """What emulates what, a sentence each."""
        lines = [f"{len(self.addresses)} nodes: network namespaces, joined by {len(self.bridges)} "
                 "bridge(s) in one more",
                 "bandwidth: token buckets (tc tbf) at both ends of each link"]
        lines += [f"shared segment {network}: one ifb and one token bucket for all stations and "
                  "both directions" for network in self.shared]
        delayed = sum(wire.delay_s > 0 for wire in self.wires)
        if delayed:
            how = ("netem, in the kernel" if self.netem else
                   f"this kernel has no netem: TAP devices and {DELAY_PROGRAM}")
            lines.append(f"delay: {how} ({delayed} of {len(self.wires)} links)")
        if delayed < len(self.wires):
            lines.append("links without a delay: veth")
        if any(node.cpu is not None for node in self.topology.nodes.values()):
            lines.append(f"CPU: quota of a cgroup (version {version}), period "
                         f"{CPU_PERIOD_US / 1000:g} ms")
        return lines


class Testbed:
    """One testbed, `name`d like its topology unless told otherwise. As a context: up and down.

    Several stand side by side if their names differ. Nothing of one is known to another, as all
    devices lie in namespaces of its own.
    """

    def __init__(self, topology, name=None):
        self.topology = topology
        self.name = name or topology.name

    @staticmethod
    def attach(name):
        """A testbed that is up. Raises MachineError where it is not, or not whole."""
        state = machine.read_state(name)
        if state is None or state.get("status") != "up":
            known = machine.testbeds()
            if name in known:
                raise MachineError(f"testbed {name} is not whole (its making was cut off, or goes "
                                   f"on): ./dev testbed down {name}")
            raise MachineError(f"no testbed {name} is up; there are: {', '.join(known) or 'none'}")
        topology = Topology.parse(state["text"], machine.state_file(name), state["topology"])
        return Testbed(topology, name)

    def up(self, held=False):
        """Builds it all and returns what emulates what, a line each.

        `held`: for this process, so that it is abandoned once that has ended. Raises MachineError;
        nothing is left then.
        """
        require_root()
        version = machine.cgroup_version()
        refused = MachineError(f"a testbed {self.name} is there already, or was left by a run that "
                               f"was cut off: ./dev testbed down {self.name}, or take another name")
        if self.name in machine.testbeds():
            raise refused
        state = {"status": "building", "topology": self.topology.name,
                 "text": self.topology.to_text(),
                 "holder": machine.this_process() if held else None}
        try:
            machine.write_state(self.name, state, first=True)
        except FileExistsError as error:
            raise refused from error
        try:
            # The hub's cgroup first: all that is run to build the testbed runs in it.
            hub = machine.make_cgroup(self.name, HUB)
            netem = self._has_delay() and machine.can_netem(self.name, HUB, hub)
            plan = _Plan(self.name, self.topology, netem)
            self._build(plan, hub)
            used = plan.used(version)
            machine.write_state(self.name, {**state, "status": "up", "used": used})
        except BaseException:
            machine.remove(self.name)
            raise
        return used

    def down(self):
        """Removes all of it, its processes too; not an error where there is nothing."""
        require_root()
        machine.remove(self.name)

    def command(self, node, words):
        """The words that run `words` on a node: in its namespace and its cgroup."""
        if node not in self.topology.nodes:
            raise MachineError(f"testbed {self.name} has no node {node}; there are: "
                               f"{', '.join(self.topology.nodes)}")
        return [sys.executable, "-B", str(Path(__file__).with_name("testbed_main.py")), "exec",
                "--testbed", self.name, node, "--", *words]

    def exec(self, node, words, **options):
        """Starts `words` on a node; the subprocess.Popen, `options` being that class's."""
        return subprocess.Popen(self.command(node, words), **options)

    @property
    def folder_prefix(self):
        """Folders whose names begin so, in /dev/shm or for temporary files, go with the testbed."""
        return machine.folder_prefix(self.name)

    def beside(self, words, **options):
        """Starts `words` on this machine, with no limits and no node; it goes with the testbed."""
        hub = next(folder for pair, folder in machine.cgroups(self.name)
                   if pair == (self.name, HUB))
        return subprocess.Popen(words, preexec_fn=lambda: machine.join_cgroup(hub), **options)

    def enter(self, node, capped=True):
        """Moves the calling process to a node for good; not `capped`: only into its namespace."""
        machine.enter_namespace(self.name, node)
        if capped:
            folders = [folder for pair, folder in machine.cgroups(self.name)
                       if pair == (self.name, node)]
            if not folders:
                raise MachineError(f"there is no cgroup {machine.own_name(self.name, node)}")
            machine.join_cgroup(folders[0])

    def check(self, report=print, shares_of=None):
        """Measures what was built: [check.Row]. Takes 55 s; wants an idle testbed.

        `shares_of`: only these nodes' shares of a core, in 10 s.
        """
        import check  # it imports this module
        return check.measure(self, report, shares_of)

    def __enter__(self):
        self.up(held=True)
        return self

    def __exit__(self, *_):
        self.down()

    def _has_delay(self):
        return any(part.delay_s > 0
                   for part in [*self.topology.networks.values(), *self.topology.links])

    def _build(self, plan, hub):
        delays = plan.delay_words()
        program = find_delay_program() if delays else None
        for node in self.topology.nodes.values():
            quota_us = None if node.cpu is None else round(node.cpu * CPU_PERIOD_US)
            machine.make_cgroup(self.name, node.name, quota_us, CPU_PERIOD_US)
        for space in [plan.hub, *plan.addresses]:
            machine.run(["ip", "netns", "add", space], join=hub)
        if delays:
            self._start_delays(program, delays, hub)
        machine.run(["ip", "-n", plan.hub, "-batch", "-"], plan.ip_of_hub(), hub)
        for space in plan.addresses:
            machine.run(["ip", "-n", space, "-batch", "-"], plan.ip_of_node(space), hub)
        for space in [plan.hub, *plan.addresses]:
            machine.run(["tc", "-n", space, "-batch", "-"], plan.tc(space), hub)

    def _start_delays(self, program, delays, hub):
        """Runs on after this process: it is found by the hub's cgroup."""
        log = machine.state_file(self.name).with_suffix(".log")
        with open(log, "wb") as errors:
            process = subprocess.Popen(
                [program, *delays], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                start_new_session=True, cwd="/", preexec_fn=lambda: machine.join_cgroup(hub))
        with process.stdout:
            if process.stdout.readline() != b"ready\n":
                process.wait()
                raise MachineError(f"{program}: {log.read_text().strip() or 'ended'}")
        process.returncode = 0  # it is not ours to wait for


def require_root():
    if os.geteuid() != 0:
        raise MachineError("the testbed takes root: it makes network namespaces and cgroups. "
                           "Run it with sudo")
