"""Inserts and scans in turn, as in table 2, in phases of the row's length."""

from lab import Client, table_job


def run(lab, row, placement, seed, quick):
    # The profile's repetition is not for this: the lengths are what is varied.
    phases = [{"name": name, "operations": row["operations"]}
              for name in row["phases"]] * row["pairs"]
    return lab.run([Client(row["clients"][0], table_job(lab, row, phases, seed))], placement, seed,
                   server=row["server"])
