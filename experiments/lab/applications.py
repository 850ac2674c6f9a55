"""A driver for experiments with a row per application: run(), which is what a driver.py has.

A row's `application` says which; what else it has is the application's:

    filter      file_bytes, pass_share, and paper_ns_per_byte (of the paper's node) or
                cpu_ns_per_byte
    grep        file_bytes, line_bytes, pattern: lines have their numbers, and are full of 'a'
    word_count  file_bytes, line_bytes: of that text
    aggregate   file_bytes, line_bytes: the numbers of its lines are added up
    table       phases, records, record_bytes, file_bytes
    directory   inserts: all clients make files in one directory
    raid_write  file_bytes, unit_bytes, servers, disks_of_first
"""

from lab import Client, LabError, Spread, table_job


def run(lab, row, placement, seed, quick):
    application = _APPLICATIONS.get(row["application"])
    if application is None:
        raise LabError(f"there is no application {row['application']}; there are: "
                       f"{', '.join(_APPLICATIONS)}")
    return application(lab, row, placement, seed)


def _filter(lab, row, placement, seed):
    cost = row["cpu_ns_per_byte"] if "cpu_ns_per_byte" in row else \
        lab.paper_cpu_ns(row["paper_ns_per_byte"])
    job = {"kind": "filter", "file": "data", "pass_share": row["pass_share"],
           "cpu_ns_per_byte": cost}
    prepare = {"files": [{"name": "data", "bytes": row["file_bytes"] * lab.repetition}]}
    return lab.run([Client(row["clients"][0], job)], placement, seed, prepare, row["server"])


def _text(lab, row, placement, seed):
    job = {"kind": row["application"], "file": "text"}
    if "pattern" in row:
        job["pattern"] = row["pattern"]
    prepare = {"files": [{"name": "text", "bytes": row["file_bytes"] * lab.repetition,
                          "line_bytes": row["line_bytes"]}]}
    return lab.run([Client(row["clients"][0], job)], placement, seed, prepare, row["server"])


def _table(lab, row, placement, seed):
    phases = [{"name": name, "operations": row["records"] * lab.repetition}
              for name in row["phases"]]
    return lab.run([Client(row["clients"][0], table_job(lab, row, phases, seed))], placement, seed,
                   server=row["server"])


def _directory(lab, row, placement, seed):
    clients = [Client(node, {"kind": "directory", "directory": "shared", "prefix": node,
                             "files": row["inserts"] * lab.repetition})
               for node in row["clients"]]
    return lab.run(clients, placement, seed, {"directories": [{"name": "shared"}]}, row["server"])


def _raid_write(lab, row, placement, seed):
    files = [{"name": "data", "bytes": row["file_bytes"] * lab.repetition,
              "stack": lab.profile.stack("raid")}]
    job = {"kind": "stream", "file": "data", "writes": True, "call_bytes": row["unit_bytes"],
           "seed": seed}
    first, *others = row["servers"]
    return lab.run([Client(row["clients"][0], job)], placement, seed, {"files": files}, first,
                   spread=Spread(row["disks_of_first"], others))


_APPLICATIONS = {"filter": _filter, "grep": _text, "word_count": _text, "aggregate": _text,
                 "table": _table, "directory": _directory, "raid_write": _raid_write}
