"""The command ./dev testbed; `--help` tells its use."""

import argparse
import dataclasses
import json
import math
import os
import signal
import sys
from pathlib import Path

import check
import machine
from machine import MachineError
from testbed import Testbed, require_root
from topology import Topology, TopologyError, cpu_share, names

EXEC_FAILED, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127  # as env(1) and nice(1) have them


def only_testbed():
    """The name of the one that is there."""
    found = machine.testbeds()
    if len(found) != 1:
        raise MachineError("no testbed is up" if not found else
                           f"several testbeds are up, name one: {', '.join(found)}")
    return found[0]


def assignment(text):
    """NODE=SHARE as (node, share), for argparse."""
    node, equals, share = text.partition("=")
    try:
        if not equals:
            raise ValueError(f"'{text}' is not NODE=SHARE, such as s1=6%")
        return node, cpu_share(share)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def describe(testbed):
    """Lines that tell the testbed's networks and nodes."""
    topology = testbed.topology
    for network in topology.networks.values():
        kind = "one half-duplex segment" if network.shared else "switched"
        yield f"  network {network.name}: {network.bandwidth / 1e6:g} Mbit/s, {kind}" + \
            (f", {network.delay_s * 1e3:g} ms to each node" if network.delay_s else "")
    for link in topology.links:
        yield f"  link {link.a} - {link.b}: {link.bandwidth / 1e6:g} Mbit/s, " \
              f"{link.delay_s * 1e3:g} ms"
    for node in topology.nodes.values():
        parts = [f"  node {node.name:8} {node.address:12} on {node.network}"]
        if node.cpu is not None:
            parts.append(f"{node.cpu:.3g} of a core")
        if node.disks:
            parts.append(f"{node.disks} disk(s) of {node.disk_bandwidth / 1e6:g} MB/s and "
                         f"{node.disk_seek_s * 1e3:g} ms")
        if node.memory_bytes:
            parts.append(f"{node.memory_bytes / 1e6:g} MB for objects")
        yield ", ".join(parts)


def command_up(arguments):
    topology = Topology.load(arguments.topology).with_cpu(dict(arguments.cpu))
    testbed = Testbed(topology, arguments.name)
    used = testbed.up()
    print(f"testbed {testbed.name} is up: topology {topology.name}")
    print("\n".join([*describe(testbed), *(f"  {line}" for line in used)]))
    cores = len(os.sched_getaffinity(0))
    share = sum(node.cpu or 0 for node in topology.nodes.values())
    if share > cores:
        print(f"  WARNING: the nodes' shares are {share:.3g} cores in sum, and the machine has "
              f"{cores}: they get less when all are busy")
    return 0


def command_down(arguments):
    require_root()
    wanted = arguments.names
    if arguments.all:
        wanted = machine.testbeds()
    elif not wanted:
        wanted = [only_testbed()]
    for name in wanted:
        there = name in machine.testbeds()
        machine.remove(name)
        print(f"testbed {name} is down" if there else f"there is nothing of a testbed {name}")
    return 0


def as_json(testbed):
    """What `list --json` tells of a testbed: its nodes have the fields and units of Node."""
    nodes = [dataclasses.asdict(node) for node in testbed.topology.nodes.values()]
    for node in nodes:
        del node["line"]
    return {"name": testbed.name, "topology": testbed.topology.name, "nodes": nodes}


def command_list_json():
    whole = []
    for name in machine.testbeds():
        try:
            whole.append(as_json(Testbed.attach(name)))
        except MachineError as error:
            print(f"testbed: {error}", file=sys.stderr)
    print(json.dumps(whole, indent=1))
    return 0


def command_list(arguments):
    if arguments.json:
        return command_list_json()
    for name in machine.testbeds():
        try:
            testbed = Testbed.attach(name)
        except MachineError as error:
            print(error)
            continue
        print(f"testbed {name}: topology {testbed.topology.name}")
        print("\n".join([*describe(testbed),
                         *(f"  {line}" for line in machine.read_state(name)["used"])]))
    return 0


def command_check(arguments):
    require_root()
    testbed = Testbed.attach(arguments.name or only_testbed())
    off = sum(not row.good for row in testbed.check())
    if arguments.lab:
        tell_null_call(testbed, arguments.lab)
    print(f"testbed {testbed.name}: " + (f"{off} measured value(s) are off" if off else
                                         "all is as its topology says"))
    return 1 if off else 0


def tell_null_call(testbed, program):
    """It is the machine's, and not what was built: nothing that could be off.

    The lab is built on testbeds: only this command knows it.
    """
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
    import lab
    rows = lab.check_null_call(testbed, lab.PAPER_PROFILE, program, 1)
    for row in rows:
        check.tell(dataclasses.replace(row, high=math.inf))
        if not row.good:
            print(f"  what the paper's nodes take, {row.measured / lab.NULL_CALL_US:.3g} times over, as "
                  "this machine is so: experiments give nodes so many times these shares")


def command_words(arguments):
    """The command after `--`: argparse takes away a `--` of the command's own as well."""
    given = sys.argv[sys.argv.index("--") + 1:] if "--" in sys.argv else []
    return given if len(given) >= len(arguments.words) else arguments.words


def command_exec(arguments):
    words = command_words(arguments)
    try:
        require_root()
        testbed = Testbed.attach(arguments.testbed or only_testbed())
        testbed.command(arguments.node, [])  # says which nodes there are
        testbed.enter(arguments.node)
    except MachineError as error:
        print(f"testbed: {error}", file=sys.stderr)
        return EXEC_FAILED
    try:
        os.execvp(words[0], words)
    except OSError as error:
        print(f"testbed: {words[0]}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE


def parser():
    top = argparse.ArgumentParser(prog="./dev testbed", description="An emulated network of small "
                                  "machines: network namespaces, token buckets, CPU quotas.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(name, function, **options):
        made = commands.add_parser(name, **options)
        made.set_defaults(function=function)
        return made

    up = command("up", command_up, help="build one and print what was built")
    up.add_argument("topology", metavar="TOPOLOGY", help=f"{', '.join(names())}, or a file")
    up.add_argument("--as", dest="name", type=testbed_name, metavar="NAME",
                    help="the testbed's name (the topology's)")
    up.add_argument("--cpu", type=assignment, action="append", default=[], metavar="NODE=SHARE",
                    help="another share of a core for a node, such as s1=6%%")
    down = command("down", command_down, help="remove one, and whatever runs in it")
    down.add_argument("names", nargs="*", type=testbed_name, metavar="NAME",
                      help="(the only one that there is)")
    down.add_argument("--all", action="store_true", help="every one on this machine")
    measure = command("check", command_check,
                      help="measure it; exit code 1 where it is off by 10 %%")
    measure.add_argument("name", nargs="?", type=testbed_name, metavar="NAME",
                         help="(the only one that is up)")
    measure.add_argument("--lab", help=argparse.SUPPRESS)  # ./dev gives it: for the null call
    listing = command("list", command_list, help="what is up")
    listing.add_argument("--json", action="store_true", help="for programs: an array of {name, "
                         "topology, nodes: [{name, network, address, cpu, disks, memory_bytes, "
                         "...}]}; what is not whole is told on stderr only")
    execute = command("exec", command_exec, help="run a command on a node",
                      usage="./dev testbed exec [--testbed NAME] NODE -- COMMAND [ARGUMENT ...]")
    execute.add_argument("--testbed", type=testbed_name, metavar="NAME",
                         help="(the only one that is up)")
    execute.add_argument("node", metavar="NODE")
    execute.add_argument("words", nargs="+", metavar="COMMAND")
    return top


def testbed_name(text):
    """A testbed's name follows the rule of a topology's: it is part of other names."""
    try:
        return Topology.parse(f"network n bandwidth=1Mbit\nnode {text} network=n") and text
    except TopologyError as error:
        raise argparse.ArgumentTypeError(f"'{text}' is no name: up to 12 letters and digits, "
                                         "small, a letter first") from error


def main():
    # Python ignores it, and what is run on a node would inherit that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    arguments = parser().parse_args()
    try:
        return arguments.function(arguments)
    except TopologyError as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 2
    except MachineError as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
