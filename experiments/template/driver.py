"""What one run of the template does; the harness calls it once for each run and placement."""

from lab import Client


def run(lab, row, placement, seed, quick):
    """Runs `row` at a placement ("client", "adaptive", "server"), and returns the raw record.

    `lab` starts programs on the testbed's nodes (experiments/lab). Raise what goes wrong: nothing
    is retried, and the run stands as failed in the report.
    """
    job = {"kind": "filter", "file": "data", "pass_share": row["pass_share"],
           "cpu_ns_per_byte": lab.paper_cpu_ns(row["paper_ns_per_byte"])}
    prepare = {"files": [{"name": "data", "bytes": row["file_bytes"] * lab.repetition}]}
    return lab.run([Client(row["clients"][0], job)], placement, seed, prepare, row["server"])
