"""For tests: a testbed that is none, and records made up from a row."""

import contextlib
import random
import textwrap
from pathlib import Path

DRIVER = """
def run(lab, row, placement, seed, quick):
    return lab.run(row, placement, seed, quick)
"""


class Measured:
    """A row of a testbed's check."""

    def __init__(self, what, measured, wanted=10.0):
        self.what, self.measured, self.unit, self.wanted = what, measured, "Mbit/s", f"{wanted:g}"
        self.low, self.high = 0.9 * wanted, 1.1 * wanted
        self.good = self.low <= measured <= self.high


class FakeTestbed:
    name = "fake"

    def __init__(self, world, topology, shares):
        self.world, self.what = world, (topology, tuple(sorted(shares.items())))

    def __enter__(self):
        self.world.up.append(self.what)
        return self

    def __exit__(self, *_):
        self.world.down.append(self.what)

    def check(self, report=print, shares_of=None):
        self.world.checked.append(shares_of)
        rows = [Measured("lan1 -> lan2", self.world.measured), Measured("s1 -> s2", 10.0)]
        report("checked")
        return rows


class FakeWorld:
    """`answer(row, placement, seed, quick)` is what a driver returns; it may raise."""

    user_space = False

    def __init__(self, answer=None, measured=9.8):
        self.answer, self.measured = answer or made_up, measured
        self.up, self.down, self.checked, self.runs = [], [], [], []

    def machine(self, _):
        return 1

    def null_call(self, *_):
        return []

    def testbed(self, topology, shares, machine):
        return FakeTestbed(self, topology, shares)

    def used(self, _):
        return ["nothing is emulated: a test"]

    def lab(self, *_):
        return contextlib.nullcontext(self)

    def run(self, row, placement, seed, quick):
        self.runs.append((row["name"], placement, seed))
        return self.answer(row, placement, seed, quick)


def record(elapsed_s, **others):
    """A raw record as a driver returns it, with one client that makes even progress."""
    made = {"elapsed_s": elapsed_s, "phases": [], "migrations": [], "source": "ebpf",
            "degraded": [], "window_s": 1.0,
            "explanations": {"lan1/apps.Filter": "Staying: <nothing> is better"},
            "final_placement": {"lan1/apps.Filter": "client"},
            "clients": [client("lan1", elapsed_s)]}
    return {**made, **others}


def client(node, elapsed_s, operations=200, retries=0, progress=None):
    steps = 20
    return {"node": node, "elapsed_s": elapsed_s, "operations": operations, "retries": retries,
            "progress": progress if progress is not None else
            [[elapsed_s * i / steps, operations * i // steps] for i in range(steps + 1)]}


def move(t_s, to, node="lan1", what="apps.Filter", why="it pays: 1 s < 2 s & \"more\""):
    return {"t_s": t_s, "client": node, "object": what,
            "from": "client" if to == "server" else "server", "to": to, "explanation": why}


def made_up(row, placement, seed, _):
    """A plausible record of any row of the project's own experiments."""
    rng = random.Random(f"{seed} {row['name']} {placement}")
    times = {"client": 20.0, "server": 6.0, "adaptive": 7.0}
    if "scan" in row["name"] or "set3" in row["name"]:
        times = {"client": 5.0, "server": 9.0 if "set3" in row["name"] else 200.0, "adaptive": 5.0}
    elapsed = times[placement] * rng.uniform(0.97, 1.03)
    goes = placement == "adaptive" and times["server"] < times["client"]
    what = "apps.Filter" if "pass_share" in row else \
        "objfs.Directory" if "inserts" in row else \
        "objfs.Raid5Layer" if "disks_of_first" in row else "objfs.CacheLayer"
    clients, moves, ends = [], [], {}
    for i, node in enumerate(row["clients"]):
        points, tried, done, retries = [], [], 0.0, 0.0
        moved_s = 1.5 + i
        for step in range(41):
            t = elapsed * step / 40
            fast = placement == "server" or goes and t > moved_s
            done += (9 if fast else 3) * (1 + 0.1 * i) * rng.uniform(0.8, 1.2)
            retries += 0 if fast else rng.uniform(0, 4)
            points.append([t, int(done)])
            tried.append([t, int(retries) if "inserts" in row else 0])
        if goes:
            moves.append(move(moved_s, "server", node, what))
        at = "server" if goes or placement == "server" else "client"
        ends[f"{node}/{what}"] = at
        clients.append({**client(node, elapsed, int(done), int(retries), points),
                        "retry_progress": tried})
    scan = 0.005 if placement == "client" else 0.05  # a cache there answers
    phases = [{"name": name, "elapsed_s": elapsed * (0.45 if name == "insert" else scan)}
              for name in row.get("phases", [row["operation"]] if "operation" in row else [])]
    return record(elapsed, clients=clients, migrations=moves, final_placement=ends, phases=phases)


def make_experiment(root, name="small", extra="", claims="", driver=DRIVER):
    """A folder with one row of one experiment, and a profile; the experiment's folder."""
    folder = Path(root) / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "experiment.toml").write_text(textwrap.dedent(f"""
        title = "Small"
        figure = "Figure 0"
        object = "apps.Filter"
        {extra}
        [[row]]
        name = "one"
        network = "LAN"
        clients = ["lan1"]
        full = {{bytes = 100}}
        quick = {{bytes = 10}}
        ci = {{bytes = 5}}
        claim = [{claims}]
        """), encoding="utf-8")
    if driver:
        (folder / "driver.py").write_text(driver, encoding="utf-8")
    profiles = Path(root) / "profiles"
    profiles.mkdir(exist_ok=True)
    (profiles / "paper.toml").write_text("H_s = 1.0\n", encoding="utf-8")
    return folder
