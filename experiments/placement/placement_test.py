#!/usr/bin/env python3
"""Runs the placement experiment's small scenarios, reads what it wrote, and draws it.

    placement_test.py PROGRAM
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

KEYS = {"name", "servers", "consoles", "adaptive", "all_client", "all_server", "best_static",
        "regret", "moves", "phase_changes", "engine_cpu_s", "engine_memory_bytes", "trace"}


def check_sweep(folder, python, plot):
    """What stands in threshold_sweep/README.md of the simulator."""
    cells_file = folder / "cells.json"
    subprocess.run([sys.argv[1], "--sweep", "--json", cells_file], capture_output=True, check=True)
    cells = {(cell["work"], cell["window_s"], cell["b_thresh"]): cell
             for cell in json.loads(cells_file.read_text())}
    assert len(cells) == 75, len(cells)
    for work, within in (("phases", 1.05), ("flicker", 1.05), ("set4", 1.25)):
        best = min(cell["over"] for key, cell in cells.items() if key[0] == work)
        default = cells[work, 1, 0.3]["over"]
        assert default <= within * best, f"{work}: {default} at the default, {best} at best"
    # A gain of a quarter: above a threshold of a tenth, below the default's.
    assert [cells["set4", 1, b]["moves"] for b in (0.05, 0.1, 0.3, 0.5)] == [1, 1, 0, 0]
    drawn = subprocess.run([python, "-B", plot, cells_file, folder], capture_output=True,
                           text=True, check=False)
    assert drawn.returncode in (0, 77), drawn.stderr
    if drawn.returncode == 0:
        for work in ("phases", "flicker", "set4"):
            assert (folder / f"{work}.png").stat().st_size > 1000, work


def main():
    with tempfile.TemporaryDirectory() as folder:
        rows_file = Path(folder) / "rows.json"
        done = subprocess.run([sys.argv[1], "--json", rows_file, "--servers-max", "4"],
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        rows = json.loads(rows_file.read_text())
        assert len(rows) >= 15, f"{len(rows)} scenarios"
        for row in rows:
            assert KEYS <= row.keys(), f"{row['name']}: lacks {KEYS - row.keys()}"
            assert row["name"] in done.stdout, f"{row['name']} is not in the table"
            assert 0.99 <= row["adaptive"] <= 1.3 * row["best_static"], f"{row['name']}: {row}"
        refused = subprocess.run([sys.argv[1], "--no-such"], capture_output=True, check=False)
        assert refused.returncode == 2, refused.returncode

        plot = Path(__file__).with_name("plot.py")
        # Debian's own interpreter has the package; another one may come first in PATH.
        python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
        check_sweep(Path(folder), python, plot)
        drawn = subprocess.run([python, "-B", plot, rows_file, folder],
                               capture_output=True, text=True, check=False)
        if drawn.returncode == 77:
            print(f"plots not drawn: {drawn.stderr.strip()}")
            return 0
        assert drawn.returncode == 0, drawn.stderr
        for name in ("scenarios", "phases", "scale"):
            for kind in ("png", "svg"):
                assert (Path(folder) / f"{name}.{kind}").stat().st_size > 1000, f"{name}.{kind}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
