"""What a testbed consists of: the text format of a topology, its checks, and the paths in it.

Nothing here touches the machine. The format is told in README.md.
"""

import dataclasses
import difflib
import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "topologies"
SUFFIX = ".topology"

HUB = "hub"  # the namespace of the bridges; no node's name
DEVICE = "eth0"  # of a node, in its namespace
CPU_PERIOD_US = 20_000
CPU_QUOTA_US_MIN = 1_000  # the kernel takes no smaller quota
NODES_MAX = 64
FRAME_BYTES = 1514  # a full Ethernet frame without checksum, which is what token buckets count
PAYLOAD_BYTES = 1448  # of it, where TCP tells its times

_NAME = re.compile(r"[a-z][a-z0-9]{0,11}")
_BITS = {"kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9}
_BYTES = {"kB": 10**3, "MB": 10**6, "GB": 10**9}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


class TopologyError(ValueError):
    """What is wrong with a topology: one line a mistake, each with its FILE:LINE."""


@dataclasses.dataclass(frozen=True)
class Network:
    """A bridge. Each node on it has a link of this bandwidth (bit/s, each way) and one-way delay.

    On a shared one all frames, whoever sends them, go one after the other at this bandwidth.
    """
    name: str
    bandwidth: float
    delay_s: float
    shared: bool
    line: int


@dataclasses.dataclass(frozen=True)
class Link:
    """What joins two networks: bandwidth in bit/s each way, one-way delay."""
    a: str
    b: str
    bandwidth: float
    delay_s: float
    line: int


@dataclasses.dataclass(frozen=True)
class Node:
    """A machine. Disks and memory are for its programs to be told: the kernel knows neither."""
    name: str
    network: str
    cpu: float | None     # share of one core; None: not capped
    disks: int
    disk_bandwidth: float  # bytes/s
    disk_seek_s: float
    memory_bytes: int | None  # what a server gives to its objects
    address: str
    line: int


def _number(text, units, what):
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]+)", text)
    if not match or match.group(2) not in units:
        raise ValueError(f"'{text}' is no {what}: a number and one of {', '.join(units)} is")
    return float(match.group(1)) * units[match.group(2)]


def _within(value, low, high, text, limits):
    if not low <= value <= high:
        raise ValueError(f"{text} is not within {limits}")
    return value


def _bandwidth(text):
    value = _number(text, _BITS, "bandwidth")
    return _within(value, 64e3, 10e9, text, "64kbit and 10Gbit")


def _delay(text):
    return _within(_number(text, _SECONDS, "delay"), 0, 2, text, "0us and 2s")


def _count(text):
    if not text.isdecimal():
        raise ValueError(f"'{text}' is no count")
    return _within(int(text), 0, 16, text, "0 and 16")


def _bytes(text):
    return int(_within(_number(text, _BYTES, "size"), 1, 1e15, text, "1kB and 1000000GB"))


def _disk_bandwidth(text):
    if not text.endswith("/s"):
        raise ValueError(f"'{text}' is no bandwidth of a disk: 14MB/s is")
    return _number(text[:-2], _BYTES, "bandwidth of a disk")


def cpu_share(text):
    """'12%' as 0.12; raises ValueError with what is wrong."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)%", text)
    if not match:
        raise ValueError(f"'{text}' is no share of a core: 12% is")
    low = CPU_QUOTA_US_MIN / CPU_PERIOD_US
    return _within(float(match.group(1)) / 100, low, 16, text, f"{low:.0%} and 1600%")


def _yes_no(text):
    if text not in ("yes", "no"):
        raise ValueError(f"'{text}' is neither yes nor no")
    return text == "yes"


def _name(text):
    if not _NAME.fullmatch(text):
        raise ValueError(f"'{text}' is no name: up to 12 letters and digits, small, a letter first")
    return text


# Statement -> (names that follow it, {key: (parser, default)}); a default of ... must be given.
_STATEMENTS = {
    "network": (1, {"bandwidth": (_bandwidth, ...), "delay": (_delay, 0.0),
                    "shared": (_yes_no, False)}),
    "link": (2, {"bandwidth": (_bandwidth, ...), "delay": (_delay, 0.0)}),
    "node": (1, {"network": (_name, ...), "cpu": (cpu_share, None), "disks": (_count, 0),
                 "disk_bandwidth": (_disk_bandwidth, 14e6), "disk_seek": (_delay, 0.01),
                 "memory": (_bytes, None)}),
}


def _nearest(word, words):
    near = difflib.get_close_matches(word, words, 1, 0.5)
    return f"did you mean {near[0]}? " if near else ""


class _Parser:
    """Collects the statements and every mistake of one file."""

    def __init__(self, file):
        self.file = file
        self.mistakes = []
        self.networks = {}
        self.links = []
        self.nodes = {}

    def wrong(self, line, what):
        self.mistakes.append((line, f"{self.file}:{line}: {what}"))

    def options(self, line, words, keys, statement):
        """The values of `words`, key=value each, or None where one is wrong."""
        values, good = {}, True
        for word in words:
            key, equals, text = word.partition("=")
            if not equals:
                problem = f"'{word}' is no key=value"
            elif key not in keys:
                problem = f"unknown key '{key}' of {statement}; {_nearest(key, keys)}" \
                          f"there are: {', '.join(keys)}"
            elif key in values:
                problem = f"{key} is given twice"
            else:
                try:
                    values[key] = keys[key][0](text)
                    continue
                except ValueError as error:
                    problem = f"{key}: {error}"
            self.wrong(line, problem)
            good = False
            values.setdefault(key, None)
        for key, (_, default) in keys.items():
            if key not in values:
                if default is ...:
                    self.wrong(line, f"{statement} lacks {key}=")
                    good = False
                values[key] = default
        return values if good else None

    def statement(self, line, words):
        kind, *rest = words
        if kind not in _STATEMENTS:
            self.wrong(line, f"unknown statement '{kind}'; {_nearest(kind, _STATEMENTS)}"
                             f"there are: {', '.join(_STATEMENTS)}")
            return
        count, keys = _STATEMENTS[kind]
        names, options = rest[:count], rest[count:]
        if len(names) < count or any("=" in name for name in names):
            self.wrong(line, f"{kind} needs {'two names' if count == 2 else 'a name'} first")
            return
        try:
            names = [_name(name) for name in names]
        except ValueError as error:
            self.wrong(line, str(error))
            return
        values = self.options(line, options, keys, f"{kind} {' '.join(names)}")
        getattr(self, kind)(line, names, values)

    def declare(self, table, kind, name, line, value):
        """Even a faulty statement declares its name, so that one mistake is told once."""
        if name in table:
            self.wrong(line, f"{kind} {name} is there already, in line {table[name][0]}")
        else:
            table[name] = (line, value)

    def network(self, line, names, values):
        value = values and Network(names[0], values["bandwidth"], values["delay"], values["shared"],
                                   line)
        self.declare(self.networks, "network", names[0], line, value)

    def link(self, line, names, values):
        self.links.append((line, names, values and
                           Link(*names, values["bandwidth"], values["delay"], line)))

    def node(self, line, names, values):
        if names[0] == HUB:
            self.wrong(line, f"no node can be called {HUB}: the bridges are there")
        value = values and Node(
            names[0], values["network"], values["cpu"], values["disks"], values["disk_bandwidth"],
            values["disk_seek"], values["memory"], f"10.231.0.{len(self.nodes) + 1}", line)
        self.declare(self.nodes, "node", names[0], line, value)
        if len(self.nodes) == NODES_MAX + 1:
            self.wrong(line, f"more than {NODES_MAX} nodes")

    def check_references(self):
        for line, node in self.nodes.values():
            if node and node.network not in self.networks:
                self.wrong(line, f"node {node.name}: there is no network {node.network}; "
                                 f"{_nearest(node.network, self.networks)}"
                                 f"there are: {', '.join(self.networks) or 'none'}")
        for line, (a, b), _ in self.links:
            for name in (a, b):
                if name not in self.networks:
                    self.wrong(line, f"link: there is no network {name}")
        if not self.nodes:
            self.wrong(1, "there is no node")

    def check_joins(self):
        """The networks are one tree: bridges would send frames round a loop for ever."""
        group = {name: name for name in self.networks}
        for line, (a, b), _ in self.links:
            if a not in group or b not in group:
                continue
            if group[a] == group[b]:
                self.wrong(line, f"link {a} {b} closes a loop of bridges")
            old = group[a]
            group = {name: group[b] if of == old else of for name, of in group.items()}
        names = list(self.networks)
        for name in names[1:]:
            if group[name] != group[names[0]]:
                self.wrong(self.networks[name][0],
                           f"network {name} cannot reach {names[0]}: a link is missing")


class Topology:
    """A topology that was checked. Values are not changed; `with_cpu` gives another one.

    networks, nodes: name -> Network, Node, in the order of the file; links: list of Link.
    """

    def __init__(self, name, networks, links, nodes):
        self.name, self.networks, self.links, self.nodes = name, networks, links, nodes

    @staticmethod
    def parse(text, file="topology", name="custom"):
        """Raises TopologyError with all that is wrong in `text`."""
        parser = _Parser(file)
        for line, raw in enumerate(text.splitlines(), 1):
            words = raw.partition("#")[0].split()
            if words:
                parser.statement(line, words)
        parser.check_references()
        parser.check_joins()
        if parser.mistakes:
            raise TopologyError("\n".join(text for _, text in sorted(parser.mistakes)))
        return Topology(name, {name: value for name, (_, value) in parser.networks.items()},
                        [link for _, _, link in parser.links],
                        {name: value for name, (_, value) in parser.nodes.items()})

    @staticmethod
    def load(which):
        """A topology that comes with the project by its name, any other by the path of its file."""
        path = Path(which)
        if "/" not in str(which) and not path.suffix:
            path = FOLDER / f"{which}{SUFFIX}"
            if not path.exists():
                raise TopologyError(f"no topology '{which}'; {_nearest(which, names())}"
                                    f"there are: {', '.join(names())}, or give the path of a file")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TopologyError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
        if not _NAME.fullmatch(path.stem):
            raise TopologyError(f"{path}: the file's name gives the topology's, and '{path.stem}' "
                                "is none: up to 12 letters and digits, small, a letter first")
        return Topology.parse(text, str(path), path.stem)

    def with_cpu(self, shares):
        """The same with other shares of a core, {node: share}; raises TopologyError."""
        for name in shares:
            if name not in self.nodes:
                raise TopologyError(f"no node '{name}'; {_nearest(name, self.nodes)}"
                                    f"there are: {', '.join(self.nodes)}")
        return Topology(self.name, self.networks, self.links, {
            name: dataclasses.replace(node, cpu=shares.get(name, node.cpu))
            for name, node in self.nodes.items()})

    def to_text(self):
        """The topology in its own format: parse() gives the same again."""
        lines = [f"network {n.name} bandwidth={n.bandwidth / 1e3:.3f}kbit "
                 f"delay={n.delay_s * 1e6:.3f}us shared={'yes' if n.shared else 'no'}"
                 for n in self.networks.values()]
        lines += [f"link {n.a} {n.b} bandwidth={n.bandwidth / 1e3:.3f}kbit "
                  f"delay={n.delay_s * 1e6:.3f}us" for n in self.links]
        for n in self.nodes.values():
            lines.append(f"node {n.name} network={n.network}"
                         + (f" cpu={n.cpu * 100:.3f}%" if n.cpu is not None else "")
                         + f" disks={n.disks} disk_bandwidth={n.disk_bandwidth / 1e3:.3f}kB/s"
                         + f" disk_seek={n.disk_seek_s * 1e6:.3f}us"
                         + (f" memory={n.memory_bytes / 1e3:.3f}kB" if n.memory_bytes else ""))
        return "\n".join(lines) + "\n"

    def way(self, a, b):
        """The networks that a frame from node `a` to `b` crosses, and the links between them."""
        start, goal = self.nodes[a].network, self.nodes[b].network
        ways = [([start], [])]
        while ways:
            networks, links = ways.pop()
            if networks[-1] == goal:
                return [self.networks[name] for name in networks], links
            for link in self.links:
                for here, there in ((link.a, link.b), (link.b, link.a)):
                    if here == networks[-1] and there not in networks:
                        ways.append((networks + [there], links + [link]))
        raise AssertionError("parse() lets no topology through that falls apart")

    def bandwidth(self, a, b):
        """bit/s that one sender at `a` can bring to `b`."""
        networks, links = self.way(a, b)
        crossed = [n for n in networks if n.shared or n in (networks[0], networks[-1])]
        return min(part.bandwidth for part in crossed + links)

    def delay_s(self, a, b):
        """Seconds that are added on the way from `a` to `b`."""
        networks, links = self.way(a, b)
        return networks[0].delay_s + networks[-1].delay_s + sum(link.delay_s for link in links)


def names():
    """The topologies that come with the project."""
    return sorted(path.stem for path in FOLDER.glob(f"*{SUFFIX}"))
