"""False sharing (6.5): each client writes records of its own, which lie in blocks of all."""

from lab import Client, table_job


def run(lab, row, placement, seed, quick):
    phases = [{"name": "insert", "operations": row["writes"] * lab.repetition}]
    nodes = row["clients"]
    clients = [Client(node, {**table_job(lab, row, phases, seed + i), "first": i,
                             "step": len(nodes), "warm": False})
               for i, node in enumerate(nodes)]
    return lab.run(clients, placement, seed, server=row["server"])
