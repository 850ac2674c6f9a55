#!/usr/bin/env python3
"""Draws what abacus_placement_experiment wrote.

    plot.py ROWS.json OUT_DIR      writes scenarios, phases and scale, each as .png and .svg; of
                                   what --sweep wrote, a heat map of each work
"""

import json
import sys
from pathlib import Path

PLACEMENTS = [("all_client", "all at the client", "#999999"),
              ("all_server", "all at the server", "#555555"),
              ("best_static", "best static", "#4477aa"),
              ("adaptive", "adaptive", "#cc3311")]


def save(figure, out, name):
    for kind in ("png", "svg"):
        # Without dates and random ids the same rows give the same bytes.
        figure.savefig(out / f"{name}.{kind}", dpi=120, bbox_inches="tight",
                       metadata={"Date": None} if kind == "svg" else None)


def draw_scenarios(plt, rows, out):
    """Time over the oracle's, one group of bars a scenario."""
    figure, axes = plt.subplots(figsize=(9, 0.55 * len(rows) + 1))
    for i, (key, label, colour) in enumerate(PLACEMENTS):
        axes.barh([y + 0.2 * (1.5 - i) for y in range(len(rows))], [row[key] for row in rows],
                  height=0.2, label=label, color=colour)
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel("time / the oracle's time")
    axes.legend(loc="lower right")
    save(figure, out, "scenarios")
    plt.close(figure)


def draw_phases(plt, rows, out):
    """Where the first console's object was, in the scenarios that have phases and few moves."""
    rows = [row for row in rows if row["consoles"] == 1 and row["trace"]]
    figure, axes = plt.subplots(len(rows), 1, figsize=(9, 1.1 * len(rows)), squeeze=False)
    for (ax,), row in zip(axes, rows):
        times, places = [0], [row["trace"][0]["from"]]
        for move in row["trace"]:
            times += [move["at_s"]]
            places += [move["to"]]
        ax.step(times + [row["simulated_s"]], places + [places[-1]], where="post", color="#cc3311")
        ax.set_yticks([0, 1], ["client", "server"])
        ax.set_title(row["name"], fontsize=8, loc="left")
    axes[-1][0].set_xlabel("virtual time, s")
    figure.tight_layout()
    save(figure, out, "phases")
    plt.close(figure)


def draw_scale(plt, rows, out):
    """What the engine itself costs as the cluster grows."""
    rows = [row for row in rows if row["servers"] >= 4]
    if not rows:
        return
    consoles = [row["consoles"] for row in rows]
    figure, (time, memory) = plt.subplots(1, 2, figsize=(9, 3))
    time.plot(consoles, [1e6 * row["engine_cpu_s"] / row["decisions"] for row in rows], "o-")
    time.set_ylabel("CPU a decision, us")
    memory.plot(consoles, [row["engine_memory_bytes"] / 1e6 for row in rows], "o-")
    memory.set_ylabel("memory of all planners, MB")
    memory.set_yscale("log")
    for axes in (time, memory):
        axes.set_xscale("log")
        axes.set_xlabel("consoles")
    time.set_ylim(bottom=0)
    figure.tight_layout()
    save(figure, out, "scale")
    plt.close(figure)


def draw_sweep(rows, out):
    """The heat maps of the testbed's sweep, from the simulator's cells."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "harness"))
    import charts
    for work in dict.fromkeys(row["work"] for row in rows):
        cells = {(round(100 * row["b_thresh"]), round(1000 * row["window_s"])): row["over"]
                 for row in rows if row["work"] == work}
        for kind, data in charts.heat_map(cells, ("B_thresh, %", "H, ms"), (30, 1000)).items():
            (out / f"{work}.{kind}").write_bytes(data)


def main():
    if len(sys.argv) != 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        import matplotlib
    except ImportError:
        print("plot.py: python3-matplotlib is not installed", file=sys.stderr)
        return 77
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "abacus"
    from matplotlib import pyplot as plt
    rows = json.loads(Path(sys.argv[1]).read_text())
    out = Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    if "work" in rows[0]:
        draw_sweep(rows, out)
        return 0
    draw_scenarios(plt, rows, out)
    draw_phases(plt, rows, out)
    draw_scale(plt, rows, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
