#!/usr/bin/env python3
"""What the placement simulator says of the testbed's five clients, and of fifty.

    compare_simulator.py predict [--quick] [--program FILE]    five clients, simulated
    compare_simulator.py compare RESULTS [--program FILE]      beside what was measured, with errors
    compare_simulator.py fifty [--quick] [--program FILE]      ten of each client, simulated

RESULTS: the folder in which `./dev experiment simulator` left its records (build/experiments/full).
FILE: abacus_placement_play (that of a preset). Tables are Markdown.

The simulator is told what experiment.toml, the profile, paper_node.h and the topology say, and what
`testbed check` measured of the network before this was written (testbed/README.md). Nothing is
fitted.
"""

import argparse
import itertools
import json
import math
import re
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXPERIMENTS = HERE.parent
PROGRAM = "abacus_placement_play"
PLACEMENTS = ("client", "adaptive", "server")
MOBILE = "apps.Filter"

# testbed/README.md, "What `check` measures": wire rates of 99.8 of 100 Mbit/s on the SAN and 9.72
# of 10 between LAN and SAN, of which 1448 of 1514 bytes are payload; 0.05 ms one way.
PAYLOAD = 1448 / 1514
SAN_BYTES_S = 99.8e6 / 8 * PAYLOAD
LAN_BYTES_S = 9.72e6 / 8 * PAYLOAD
ROUND_TRIP_S = 2 * 0.00005
# Of a message beside its data: header, names, offsets. An assumption, 7 us of a processor.
OTHER_BYTES = 200
BLOCK_BYTES = 65536
DURATION_S = 3600  # of virtual time; a run ends with its last client


class CompareError(Exception):
    """What is wrong, for people."""


def paper_node():
    """{"frame_work": s, "byte_work": s} at the paper's node, from the model's one place."""
    text = (EXPERIMENTS / "lab" / "paper_node.h").read_text(encoding="utf-8")
    frame = re.search(r"kFrame = absl::Microseconds\((\d+)\)", text)
    byte = re.search(r"kByteNs = ([\d.]+);", text)
    if not frame or not byte:
        raise CompareError("paper_node.h has no kFrame or kByteNs")
    return {"frame_work": float(frame[1]) * 1e-6, "byte_work": float(byte[1]) * 1e-9}


def row_of(quick):
    """The experiment's row with its size, and its profile."""
    experiment = tomllib.loads((HERE / "experiment.toml").read_text(encoding="utf-8"))
    row = experiment["row"][0]
    profile = EXPERIMENTS / "profiles" / f"{experiment['profile']}.toml"
    return ({**row, **row["quick" if quick else "full"]},
            tomllib.loads(profile.read_text(encoding="utf-8")))


def world_of(row, profile, of_each=1, server_cores=1.0):
    """What abacus_placement_play is told: `of_each` clients of each kind at one server, which has
    that many processors, and network cards, like the paper's."""
    placement = profile["config"]["placement"]
    node = {"rate": 1, "cores": 1, "nic_bytes_s": SAN_BYTES_S, "is_server": False, **paper_node()}
    world = {"duration_s": DURATION_S, "digest_s": _seconds(placement["digest_interval"]),
             "window_s": _seconds(placement["window"]), "threshold": placement["threshold"],
             "nodes": [{**node, "name": row["server"], "cores": server_cores, "is_server": True,
                        "nic_bytes_s": SAN_BYTES_S * server_cores}],
             "links": [], "clients": []}
    for i, kind in itertools.product(range(of_each), range(len(row["clients"]))):
        name = row["clients"][kind] + (f"-{i}" if of_each > 1 else "")
        lan = name.startswith("lan")
        world["nodes"].append({**node, "name": name})
        world["links"].append({"a": name, "b": row["server"], "round_trip_s": ROUND_TRIP_S,
                               "bandwidth_bytes_s": LAN_BYTES_S if lan else SAN_BYTES_S})
        work = BLOCK_BYTES * row["paper_ns_per_byte"][kind] * 1e-9
        world["clients"].append({
            "name": name, "node": name, "server": row["server"],
            "units": row["blocks"][kind] * row["times_over"] * profile["lab"]["repetition"],
            "objects": [{"class": "console", "work": 0}, {"class": MOBILE, "work": work},
                        {"class": "storage", "work": 0}],
            "edges": [_call(row["pass_share"][kind] * BLOCK_BYTES), _call(BLOCK_BYTES)]})
    return world


def _call(reply_bytes):
    return {"calls": 1, "request_bytes": OTHER_BYTES, "reply_bytes": reply_bytes + OTHER_BYTES}


def _seconds(text):
    return float(text[:-2]) / 1000 if text.endswith("ms") else float(text.rstrip("s"))


def play(program, world, runs):
    """What the simulator says of each of the runs."""
    done = subprocess.run([program], input=json.dumps({**world, "runs": runs}),
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompareError(done.stderr.strip())
    return json.loads(done.stdout)


def elapsed_of(program, placement, quick):
    """{client: seconds that the simulator says it takes}."""
    (run,) = play(program, world_of(*row_of(quick)), [placement])
    return {client: told["elapsed_s"] for client, told in run["clients"].items()}


# --- five clients ---------------------------------------------------------------------------------

def measured_of(results):
    """({placement: {client: (mean seconds, {places})}}, whether they are of quick size)."""
    found, quick = {}, set()
    for placement in PLACEMENTS:
        folder = Path(results) / "raw" / HERE.name / "five" / placement
        records = [json.loads(path.read_text(encoding="utf-8"))
                   for path in sorted(folder.glob("*.json"))]
        if not records:
            raise CompareError(f"there are no records in {folder}")
        quick.update(record["origin"]["size"] == "quick" for record in records)
        found[placement] = {
            client["node"]: (
                statistics.mean(other["elapsed_s"] for record in records
                                for other in record["clients"] if other["node"] == client["node"]),
                {record["final_placement"][f"{client['node']}/{MOBILE}"] for record in records})
            for client in records[0]["clients"]}
    if len(quick) != 1:
        raise CompareError(f"{results} has records of quick and of full size")
    return found, quick.pop()


def compared(simulated, measured):
    """[(placement, client, measured s, simulated s, error, measured places, simulated place)]."""
    rows = []
    for run in simulated:
        for client, (elapsed_s, places) in measured[run["placement"]].items():
            told = run["clients"][client]
            rows.append((run["placement"], client, elapsed_s, told["elapsed_s"],
                         told["elapsed_s"] / elapsed_s - 1, places, told["places"][MOBILE]))
    return rows


def table_of(rows):
    """The comparison as Markdown, with its median and its worst error."""
    lines = ["| placement | client | measured | simulated | error | ends: measured, simulated |",
             "| --- | --- | --- | --- | --- | --- |"]
    for placement, client, measured_s, simulated_s, error, places, place in rows:
        same = "" if places == {place} else " **differs**"
        lines.append(f"| {placement} | {client} | {measured_s:.2f} s | {simulated_s:.2f} s | "
                     f"{error:+.0%} | {' or '.join(sorted(places))}, {place}{same} |")
    for placement in ("", *PLACEMENTS):
        errors = [row for row in rows if placement in ("", row[0])]
        worst = max(errors, key=lambda row: abs(math.log1p(row[4])))
        lines.append(f"\n{placement or 'all'}: median error "
                     f"{statistics.median(abs(row[4]) for row in errors):.0%}, worst "
                     f"{worst[4]:+.0%} ({worst[0]}, {worst[1]})")
    chosen = [row for row in rows if row[0] == "adaptive"]
    agree = sum(row[5] == {row[6]} for row in chosen)
    lines.append(f"\nplaces chosen by the engine: {agree} of {len(chosen)} the same")
    return "\n".join(lines)


def predicted(simulated):
    names = " | ".join(run["placement"] for run in simulated)
    lines = [f"| client | {names} | adaptive ends |", "| --- " * (len(simulated) + 2) + "|"]
    adaptive = next(run for run in simulated if run["placement"] == "adaptive")
    for client in simulated[0]["clients"]:
        times = " | ".join(f"{run['clients'][client]['elapsed_s']:.2f} s" for run in simulated)
        moves = [f"{move['to']} at {move['at_s']:.1f} s" for move in adaptive["moves"]
                 if move["client"] == client]
        lines.append(f"| {client} | {times} | {adaptive['clients'][client]['places'][MOBILE]}"
                     f"{' (' + ', '.join(moves) + ')' if moves else ''} |")
    longest = [max(of["elapsed_s"] for of in run["clients"].values()) for run in simulated]
    lines.append("| all | " + " | ".join(f"{of:.2f} s" for of in longest) + " | |")
    return "\n".join(lines)


# --- fifty ----------------------------------------------------------------------------------------

OF_EACH = 10
SERVER_CORES = (10, 5, 2)


def ways(kinds):
    """Every set of kinds whose filters are at the server."""
    return [set(of) for size in range(len(kinds) + 1)
            for of in itertools.combinations(kinds, size)]


def fifty(program, row, profile, cores, placements=PLACEMENTS):
    """({placement: its run}, the run of the best fixed choice, the kinds at the server there)."""
    world = world_of(row, profile, OF_EACH, cores)
    if "adaptive" not in placements:  # nothing is held against the best choice
        return {run["placement"]: run for run in play(program, world, placements)}, None, []
    names = [client["name"] for client in world["clients"]]
    sets = ways(row["clients"])
    runs = play(program, world, [*placements, *(
        [name for name in names if name.rsplit("-", 1)[0] in of] for of in sets)])
    fixed = list(zip(runs[len(placements):], sets, strict=True))
    best, kinds = min(fixed, key=lambda of: of[0]["mean_elapsed_s"])
    return {run["placement"]: run for run in runs[:len(placements)]}, best, sorted(kinds)


def record_of_fifty(program, cores, placement, quick):
    """The raw record of a placement, as a driver returns it; its time is the mean of the clients'."""
    row, profile = row_of(quick)
    of, best, kinds = fifty(program, row, profile, cores, [placement])
    run, clients = of[placement], of[placement]["clients"]
    mean_s = run["mean_elapsed_s"]
    notes = ["times are means over the clients"]
    if placement == "adaptive":
        notes.append(
            f"the best fixed choice has all of {', '.join(kinds) or 'none'} at the server: "
            f"{best['mean_elapsed_s']:.1f} s, adaptive {mean_s / best['mean_elapsed_s'] - 1:+.1%}; "
            f"each alone where it is best: adaptive takes {run['slowdown']:.2f} times that")
    return {
        "elapsed_s": mean_s, "phases": [], "source": "simulator", "degraded": [], "notes": notes,
        "window_s": _seconds(profile["config"]["placement"]["window"]), "explanations": {},
        "clients": [{"node": name, "elapsed_s": told["elapsed_s"], "retries": 0, "progress": [],
                     "operations": row["blocks"][row["clients"].index(name.rsplit("-", 1)[0])]
                     * row["times_over"] * profile["lab"]["repetition"]}
                    for name, told in clients.items()],
        "migrations": [{"t_s": move["at_s"], "client": move["client"], "object": MOBILE,
                        "from": "client" if move["to"] == "server" else "server",
                        "to": move["to"], "explanation": move["explanation"]}
                       for move in run["moves"]],
        "final_placement": {f"{name}/{MOBILE}": told["places"][MOBILE]
                            for name, told in clients.items()}}


def table_of_fifty(told):
    """The {cores: what fifty() tells of them} as Markdown."""
    lines = ["| server | client | server | best fixed: at the server | adaptive | over the best | "
             "moves | over the oracle |", "| --- " * 8 + "|"]
    for cores, (runs, best, kinds) in told.items():
        client_s, adaptive_s, server_s, best_s = (
            run["mean_elapsed_s"] for run in (*(runs[of] for of in PLACEMENTS), best))
        lines.append(
            f"| {cores} x | {client_s:.1f} s | {server_s:.1f} s | "
            f"{best_s:.1f} s: {', '.join(kinds) or 'none'} | "
            f"{adaptive_s:.1f} s | {adaptive_s / best_s - 1:+.1%} | "
            f"{len(runs['adaptive']['moves'])} | {runs['adaptive']['slowdown']:.2f} x |")
    return "\n".join(lines)


def find_program():
    for preset in ("release", "dev"):
        path = EXPERIMENTS.parent / "build" / preset / "experiments" / PROGRAM
        if path.is_file():
            return path
    raise CompareError(f"{PROGRAM} is not built: ./dev build release {PROGRAM}")


def main(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("predict", "compare", "fifty"))
    parser.add_argument("results", nargs="?", help="of compare: the folder with the records")
    parser.add_argument("--quick", action="store_true", help="quick sizes")
    parser.add_argument("--program", metavar="FILE")
    arguments = parser.parse_args(words)
    if (arguments.what == "compare") != (arguments.results is not None):
        parser.error("compare, and it alone, wants a folder of results")
    try:
        program = arguments.program or find_program()
        if arguments.what == "fifty":
            row, profile = row_of(arguments.quick)
            print(table_of_fifty({cores: fifty(program, row, profile, cores)
                                  for cores in SERVER_CORES}))
        elif arguments.what == "predict":
            print(predicted(play(program, world_of(*row_of(arguments.quick)), PLACEMENTS)))
        else:
            measured, quick = measured_of(arguments.results)
            print(table_of(compared(play(program, world_of(*row_of(quick)), PLACEMENTS),
                                    measured)))
    except (CompareError, OSError) as error:
        print(f"compare_simulator: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
