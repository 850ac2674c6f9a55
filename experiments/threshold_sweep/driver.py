"""Two works of the paper under a window and a threshold of the row's."""

from lab import Client, table_job

DIGESTS_A_WINDOW = 5
DIGEST_MS_MAX = 200


def engine_config(row):
    """Sections of the configuration; none where the row leaves the profile's constants."""
    if "window_ms" not in row:
        return {}
    window_ms, threshold = row["window_ms"], row["threshold_percent"] / 100
    digest_ms = min(DIGEST_MS_MAX, window_ms // DIGESTS_A_WINDOW)
    return {"placement": {"window": f"{window_ms}ms", "threshold": threshold,
                          "digest_interval": f"{digest_ms}ms"},
            "planner": {"settled_thresh": threshold}}


def run(lab, row, placement, seed, quick):
    prepare = {}
    if "pass_share" in row:
        job = {"kind": "filter", "file": "data", "pass_share": row["pass_share"],
               "cpu_ns_per_byte": lab.paper_cpu_ns(row["paper_ns_per_byte"])}
        prepare = {"files": [{"name": "data", "bytes": row["file_bytes"] * lab.repetition}]}
    else:
        job = table_job(lab, row, [{"name": name, "operations": row["operations"]}
                                   for name in row["phases"]] * row["pairs"], seed)
    record = lab.run([Client(row["clients"][0], job)], placement, seed, prepare, row["server"],
                     config=engine_config(row))
    if "window_ms" in row:
        record["window_s"] = row["window_ms"] / 1000
    return record
