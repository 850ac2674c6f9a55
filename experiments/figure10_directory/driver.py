"""Figure 10: clients make files in one directory, or each in one of its own."""

from lab import Client


def run(lab, row, placement, seed, quick):
    shared = row["contention"] == "high"
    # From a cold cache there is something to install: a directory of one client's has as many names
    # as it will make.
    names = 0 if shared else row["inserts"] * lab.repetition
    clients, directories = [], []
    for node in row["clients"]:
        directory = "shared" if shared else f"of-{node}"
        if not shared or not directories:
            directories.append({"name": directory, "names": names})
        clients.append(Client(node, {"kind": "directory", "directory": directory, "prefix": node,
                                     "files": row["inserts"] * lab.repetition}))
    return lab.run(clients, placement, seed, {"directories": directories}, row["server"])
