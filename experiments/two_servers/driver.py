"""Two filters over files that have a whole copy at each of two servers: which goes where?"""

from lab import Client, Spread


def run(lab, row, placement, seed, quick):
    files = [{"name": f"data-{node}", "bytes": row["file_bytes"] * lab.repetition,
              "stack": row["stack"]} for node in row["clients"]]
    clients = [Client(node, {"kind": "filter", "file": file["name"],
                             "pass_share": row["pass_share"],
                             "cpu_ns_per_byte": lab.paper_cpu_ns(row["paper_ns_per_byte"])})
               for node, file in zip(row["clients"], files, strict=True)]
    first, *others = row["servers"]
    return lab.run(clients, placement, seed, {"files": files}, first, spread=Spread(1, others))
