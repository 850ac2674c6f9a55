"""A filter over a file with a cache: both go to the server, or, with `only`, one of them."""

from lab import Client


def run(lab, row, placement, seed, quick):
    job = {"kind": "filter", "file": "data", "pass_share": row["pass_share"],
           "cpu_ns_per_byte": lab.paper_cpu_ns(row["paper_ns_per_byte"]), "only": row.get("only", "")}
    prepare = {"files": [{"name": "data", "bytes": row["file_bytes"] * lab.repetition,
                          "stack": lab.profile.stack("cached")}]}
    return lab.run([Client(row["clients"][0], job)], placement, seed, prepare, row["server"])
