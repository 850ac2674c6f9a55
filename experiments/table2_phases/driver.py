"""Table 2: one application inserts, scans, inserts and scans."""

from lab import Client, table_job


def run(lab, row, placement, seed, quick):
    operations = row["records"] * lab.repetition
    phases = [{"name": name, "operations": operations} for name in row["phases"]]
    fast_lane = row.get("fast_lane", lab.fast_lane)
    return lab.run([Client(row["clients"][0], table_job(lab, row, phases, seed))], placement, seed,
                   server=row["server"], server_config=lab.fast_lane_config(fast_lane))
