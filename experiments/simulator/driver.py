"""Beyond the paper: five filters at one server, of which the placement simulator is told too; and
ten of each, which it alone plays."""

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
if str(FOLDER) not in sys.path:
    sys.path.insert(0, str(FOLDER))

import compare_simulator  # noqa: E402
from lab import Client  # noqa: E402

BLOCK_BYTES = 65536  # that a filter reads at a time


def run(lab, row, placement, seed, quick):
    program = Path(lab.program).with_name(compare_simulator.PROGRAM)
    if "server_cores" in row:
        return compare_simulator.record_of_fifty(program, row["server_cores"], placement, quick)
    clients, files = [], []
    for node, pass_share, ns, blocks in zip(row["clients"], row["pass_share"],
                                            row["paper_ns_per_byte"], row["blocks"], strict=True):
        times = row["times_over"] * lab.repetition
        files.append({"name": f"data-{node}", "bytes": blocks * times * BLOCK_BYTES})
        clients.append(Client(node, {
            "kind": "filter", "file": f"data-{node}", "read_bytes": BLOCK_BYTES,
            "pass_share": pass_share, "cpu_ns_per_byte": lab.paper_cpu_ns(ns)}))
    record = lab.run(clients, placement, seed, {"files": files}, row["server"])
    if program.is_file():
        record["simulated"] = compare_simulator.elapsed_of(program, placement, quick)
    else:
        record.setdefault("degraded", []).append(f"the simulator was not asked: no {program.name}")
    return record
