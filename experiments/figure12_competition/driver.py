"""Figure 12: two filters, and a server whose memory holds one of them."""

from lab import Client

TABLE_BYTES = 8 << 20  # what a filter looks its data up in
LATEST_S = 5           # where filter 1 has not moved by then, filter 2 begins all the same


def run(lab, row, placement, seed, quick):
    clients = []
    for node, pass_share in zip(row["clients"], row["pass_share"], strict=True):
        job = {"kind": "filter", "file": f"data-{node}", "pass_share": pass_share,
               "cpu_ns_per_byte": lab.paper_cpu_ns(row["paper_ns_per_byte"]),
               "memory_bytes": TABLE_BYTES}
        first = node == row["clients"][0]
        clients.append(Client(node, job) if first else
                       Client(node, job, start_after_s=LATEST_S, after_move_of=row["clients"][0]))
    prepare = {"files": [{"name": f"data-{node}", "bytes": row["file_bytes"] * lab.repetition}
                         for node in row["clients"]]}
    # Room for the filters that it holds, and half of one more.
    memory = f'{int((row["server_holds"] + 0.5) * TABLE_BYTES)} B'
    return lab.run(clients, placement, seed, prepare, row["server"],
                   server_config={"placement": {"memory_limit": memory}})
