"""Figure 7: a filter reads a file through; what it passes on and what a byte costs are the row's."""

from lab import Client


def run(lab, row, placement, seed, quick):
    job = {"kind": "filter", "file": "data", "pass_share": row["pass_share"],
           "cpu_ns_per_byte": lab.paper_cpu_ns(row["paper_ns_per_byte"])}
    prepare = {"files": [{"name": "data", "bytes": row["file_bytes"] * lab.repetition}]}
    return lab.run([Client(row["clients"][0], job)], placement, seed, prepare, row["server"])
