"""Raw records: one JSON file a run, RESULTS/raw/EXPERIMENT/ROW/PLACEMENT/RUN.json.

Everything that is shown or claimed is worked out from these files and from nothing else. A record
carries where it comes from (commit, profile, size, row), so that one that is there already is known
to belong to what is asked for.
"""

import collections
import hashlib
import json
import os
from pathlib import Path

from definition import PLACEMENTS, ExperimentError

EBPF = "ebpf"
SIMULATOR = "simulator"  # the source of what no testbed was needed for

_NUMBER = (int, float)
_RECORD = {"experiment": str, "row": str, "network": str, "placement": str, "run": int, "seed": int,
           "elapsed_s": _NUMBER, "phases": list, "clients": list, "migrations": list,
           "final_placement": dict, "source": str, "degraded": list, "window_s": _NUMBER}
_LISTS = {"phases": {"name": str, "elapsed_s": _NUMBER},
          "clients": {"node": str, "elapsed_s": _NUMBER, "operations": int, "retries": int,
                      "progress": list},
          "migrations": {"t_s": _NUMBER, "client": str, "object": str, "from": str, "to": str,
                         "explanation": str}}


def _lacks(table, keys):
    """What is wrong with the keys of one table, or None."""
    if not isinstance(table, dict):
        return "is no table"
    for key, kind in keys.items():
        if key not in table:
            return f"lacks {key}"
        if not isinstance(table[key], kind) or isinstance(table[key], bool):
            return f"has {key} = {table[key]!r}"
    return None


def problem_of(record):
    """What makes it no raw record, or None."""
    problem = _lacks(record, _RECORD)
    if problem:
        return problem
    for name, keys in _LISTS.items():
        for i, item in enumerate(record[name], 1):
            problem = _lacks(item, keys)
            if problem:
                return f"{name}, item {i}: {problem}"
    if record["placement"] not in PLACEMENTS:
        return f"has placement = {record['placement']!r}"
    for client in record["clients"]:
        for curve in (client["progress"], client.get("retry_progress", [])):
            if any(len(point) != 2 for point in curve) or curve != sorted(curve):
                return f"client {client['node']}: progress is [[seconds, count so far], ...]"
    if record["elapsed_s"] <= 0 or record["window_s"] <= 0:
        return "has no elapsed_s or window_s above 0"
    return None


def fingerprint(table):
    """A short hash of a table's contents."""
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:16]


def origin(commit, profile_sha256, row, quick, shares, emulation):
    """What a record must agree with to stand for a run of `row` (as its driver gets it)."""
    return {"commit": commit, "profile_sha256": profile_sha256,
            "size": "quick" if quick else "full", "row": fingerprint({**row, "shares": shares}),
            "testbed": emulation}


class Store:
    """The raw records below one results folder."""

    def __init__(self, results):
        self.folder = Path(results) / "raw"

    def path(self, row, placement, run):
        return self.folder / row.experiment / row.name / placement / f"{run}.json"

    def read(self, path):
        """The record in a file; raises ExperimentError where it is none."""
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ExperimentError(f"{path}: {error}; remove it to run it again") from error
        problem = problem_of(record)
        if problem:
            raise ExperimentError(f"{path}: is no raw record: it {problem}; "
                                  "remove it to run it again")
        return record

    def state(self, row, placement, run, wanted):
        """"missing", "there", or in what the record that is there differs from what is wanted."""
        path = self.path(row, placement, run)
        if not path.exists():
            return "missing"
        found = self.read(path).get("origin", {})
        differs = [key for key in wanted if found.get(key) != wanted[key]]
        return "there" if not differs else f"of another {', '.join(differs)}"

    def write(self, row, record):
        """Puts a record in its place, whole or not at all; one that was there is kept beside."""
        path = self.path(row, record["placement"], record["run"])
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._write_beside(path, record)
        if path.exists():
            path.rename(path.with_suffix(".json.replaced"))
        partial.rename(path)

    def add(self, row, placement, run, **what):
        """Adds to a record what became known after its run; nothing where there is none."""
        path = self.path(row, placement, run)
        if path.exists():
            self._write_beside(path, {**self.read(path), **what}).rename(path)

    @staticmethod
    def _write_beside(path, record):
        partial = path.with_suffix(".partial")
        with open(partial, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        return partial

    def told(self):
        """What there is, whatever it is of, in words."""
        counts = collections.Counter(
            (origin.get("commit", "?")[:12], origin.get("size", "?")) for origin in
            (self.read(path).get("origin", {}) for path in self.folder.rglob("*.json")))
        return ", ".join(f"{count} of commit {commit}, size {size}"
                         for (commit, size), count in sorted(counts.items())) or "none"

    def of_row(self, row, wanted, runs_max=None):
        """{placement: [record by run]} of the row; those of another origin are left out."""
        found = {}
        for placement in PLACEMENTS:
            files = [path for path in self.folder.glob(f"{row.path}/{placement}/*.json")
                     if path.stem.isdecimal() and int(path.stem) <= (runs_max or 10**9)]
            records = [self.read(path) for path in sorted(files, key=lambda path: int(path.stem))]
            found[placement] = [record for record in records if record.get("origin") == wanted]
        return found
