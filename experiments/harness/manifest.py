"""What a result was measured on: commit, machine, testbed as measured, profile, options."""

import hashlib
import math
import os
import platform
import subprocess
import time
from pathlib import Path

from definition import EXPERIMENTS, ExperimentError

PROJECT = EXPERIMENTS.parent
PROSE = ":(exclude,glob)**/*.md"  # what cannot change a measurement


def _git(*words):
    done = subprocess.run(["git", "-c", f"safe.directory={PROJECT}", "-C", str(PROJECT), *words],
                          capture_output=True, check=False)
    if done.returncode != 0:
        raise ExperimentError(f"git {' '.join(words)}: {done.stderr.decode().strip()}; results "
                              "are of a commit, so experiments need the repository")
    return done.stdout


def commit():
    """The last commit that changed more than prose; where files differ from the newest one, also a
    hash of how, prose apart."""
    head = _git("rev-list", "-1", "HEAD", "--", ".", PROSE).decode().strip()
    changed = hashlib.sha256(_git("diff", "HEAD", "--", ".", PROSE))
    new = _git("ls-files", "-z", "--others", "--exclude-standard", "--", ".", PROSE)
    for name in filter(None, new.decode().split("\0")):
        changed.update(name.encode() + (PROJECT / name).read_bytes())
    clean = hashlib.sha256()
    return head if changed.digest() == clean.digest() else f"{head}+{changed.hexdigest()[:12]}"


def _first(path, key):
    """The value of the first `key : value` line of a file in /proc, or ""."""
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def machine():
    """This machine, as whoever reads a figure wants to know it."""
    return {"kernel": platform.release(), "architecture": platform.machine(),
            "cpu": _first("/proc/cpuinfo", "model name") or platform.processor() or "unknown",
            "cores": len(os.sched_getaffinity(0)),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "system": _first_line("/etc/os-release", "PRETTY_NAME="),
            "python": platform.python_version()}


def _first_line(path, begin):
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line[len(begin):].strip('"') for line in lines if line.startswith(begin)), "")


def now():
    return time.strftime("%Y-%m-%d %H:%M:%S %z")


def checked(of_commit, topology, shares, used, rows):
    """What a check of a testbed measured, as JSON has it."""
    return {"commit": of_commit, "topology": topology, "shares": shares, "date": now(), "used": used,
            "off": [off_text(row) for row in rows if not row.good],
            "rows": [{"what": row.what, "wanted": row.wanted, "unit": row.unit,
                      "measured": None if math.isnan(row.measured) else row.measured,
                      "good": row.good} for row in rows]}


def off_text(row):
    return (f"{row.what}: {row.measured:.4g} {row.unit}, wanted {row.wanted} "
            f"({row.low:.4g} to {row.high:.4g})")
