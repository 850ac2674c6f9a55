"""Figure 8: records are inserted into, or read from, a file with a cache, at random."""

from lab import Client, table_job


def run(lab, row, placement, seed, quick):
    phases = [{"name": row["operation"], "operations": row["records"] * lab.repetition}]
    return lab.run([Client(row["clients"][0], table_job(lab, row, phases, seed))], placement, seed,
                   server=row["server"])
