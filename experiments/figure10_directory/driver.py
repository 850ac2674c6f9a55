"""Figure 10: clients make files in one directory, or each in one of its own."""

from lab import Client


def run(lab, row, placement, seed, quick):
    shared = row["contention"] == "high"
    clients, directories = [], []
    for node in row["clients"]:
        directory = "shared" if shared else f"of-{node}"
        if directory not in directories:
            directories.append(directory)
        clients.append(Client(node, {"kind": "directory", "directory": directory, "prefix": node,
                                     "files": row["inserts"] * lab.repetition}))
    return lab.run(clients, placement, seed, {"directories": directories}, row["server"])
