"""Figure 6: files over five disks are written in small pieces, or read while one disk is away."""

from lab import Client, Spread


def run(lab, row, placement, seed, quick):
    writes = row["workload"] == "write"
    files = [{"name": f"of-{node}", "bytes": row["file_bytes"] * lab.repetition,
              "stack": lab.profile.stack("raid")} for node in row["clients"]]
    clients = [Client(node, {"kind": "stream", "file": file["name"], "writes": writes,
                             "call_bytes": row["unit_bytes"], "seed": seed + i})
               for i, (node, file) in enumerate(zip(row["clients"], files, strict=True))]
    first, *others = row["servers"]
    spread = Spread(row["disks_of_first"], others, None if writes else row["fails"])
    return lab.run(clients, placement, seed, {"files": files}, first, spread=spread)
