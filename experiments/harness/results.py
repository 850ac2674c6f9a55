"""What the raw records say, row by row, and results.json."""

import dataclasses
import json
import os
import statistics
from pathlib import Path

import manifest
from claims import WINDOWS_MIN, Evidence, Outcome, evaluate
from definition import PAPER_PROFILE, PLACEMENTS, STATICS
from records import EBPF, SIMULATOR
from runner import unusable
from summary import number, summarize

CI_KINDS = ("direction", "engine")  # CI's machine is not one to measure on
CI_SPEEDUP = 2.0                    # rows whose static placements lie this far apart in the paper
CI_CLEAR = 1.5                      # ours lie this far apart, or CI says nothing of them
# Nodes of one row's runs have shares that differ by no more, or their times do not compare.
SHARES_APART_MAX = 1.1


@dataclasses.dataclass(frozen=True)
class RowResult:
    """A row that has records."""
    experiment: object
    row: object
    evidence: Evidence
    outcomes: tuple  # (Outcome, ...)
    no_claim: str    # why there are none, or ""
    notes: tuple     # what a reader must know of the row's figures

    @property
    def whole(self):
        """Whether there is a run of it at each of its placements."""
        return all(self.evidence.records.get(placement) for placement in self.row.placements)

    def to_json(self):
        """The row as results.json has it."""
        placements = []
        for placement in PLACEMENTS:
            time = self.evidence.time(placement)
            if time:
                placements.append({"placement": placement, "mean_s": round(time.mean, 6),
                                   "ci90_s": None if time.half is None else round(time.half, 6),
                                   "runs": time.runs})
        return {"name": self.row.path, "network": self.row.network, "placements": placements,
                "engine_choice": self.evidence.engine_choice(),
                "claims": [dataclasses.asdict(outcome) for outcome in self.outcomes]}


def paper_speedup(row):
    """The ratio that the paper states for the row, or 0."""
    return max((claim.at_least for claim in row.claims if claim.kind == "speedup"), default=0)


def ci_rows(experiment):
    """The rows that CI looks at: with a size for it, and placements far apart in the paper."""
    return [row for row in experiment.rows if row.sizes["ci"] and not row.full_only and
            paper_speedup(row) >= CI_SPEEDUP]


def _claims(experiment, row, evidence, options):
    """(outcomes, why there are none)."""
    missing = [placement for placement in row.placements if placement not in evidence.records]
    if options.ci and missing:
        return (), f"no claim: CI has not run it at {', '.join(missing)}"
    if options.user_space:
        return (), f"no claim: {options.emulation}"
    wanted = [claim for claim in row.claims if not options.ci or claim.kind in CI_KINDS]
    if options.ci and evidence.speedup() < CI_CLEAR:
        return (), (f"no claim: the static placements are {evidence.speedup():.2f} x apart, and less "
                    f"than {CI_CLEAR:g} x may be noise of CI's machine")
    if not wanted:
        bare = not row.claims and not row.grid
        return (), "nothing is stated to hold this row to" if bare else ""
    factors = _factors(evidence.records)
    if factors[-1] > factors[0] * SHARES_APART_MAX:
        rows = dict.fromkeys((row.statics_of or row.name, row.name))
        return (), (f"no claim: its runs are of nodes with {number(factors[0])} to "
                    f"{number(factors[-1])} times their shares, which do not compare; remove "
                    + " and ".join(str(options.results / "raw" / experiment.name / name)
                                   for name in rows) + " and run them again")
    if options.profile not in ("", experiment.profile):
        return (), f"the profile {options.profile} is shown without claims"
    if options.quick and evidence.short():
        shortest = min(record["elapsed_s"] / record["window_s"] for record in evidence.adaptive())
        return (), (f"no claim: an adaptive run lasted {number(shortest)} observation windows, fewer "
                    f"than {WINDOWS_MIN}")
    for grid in {claim.grid for claim in wanted if claim.kind == "near_best"}:
        cells = experiment.cells(grid, options.quick)
        there = evidence.grids.get(grid, {})
        if len(there) < len(cells):
            return (), f"no claim: {len(there)} of {len(cells)} cells of {grid} have been run"
        shares = sorted({of for cell in there.values() for of in _factors(cell.records)} |
                        set(factors))
        if shares[-1] > shares[0] * SHARES_APART_MAX:
            return (), (f"no claim: it and the cells of {grid} were run on nodes with "
                        f"{number(shares[0])} to {number(shares[-1])} times their shares, which do "
                        f"not compare; run all of {experiment.name} again with another --results")
    outcomes = [evaluate(claim, evidence) for claim in wanted]
    if experiment.beyond:  # what stands in for the paper's word is ours
        outcomes = [dataclasses.replace(outcome, paper=claim.paper)
                    for claim, outcome in zip(wanted, outcomes, strict=True)]
    return tuple(outcomes), ""


def _factors(records):
    """How many times their shares nodes had, in the {placement: records}: each once, rising."""
    return sorted({record.get("machine", 1) for of in records.values() for record in of})


def _simulated(records):
    """What the simulator said of each client, beside the mean of the records; "" where of none."""
    told = next((record["simulated"] for record in records if "simulated" in record), {})
    texts, errors = [], []
    for client, said_s in told.items():
        measured_s = statistics.mean(of["elapsed_s"] for record in records
                                     for of in record["clients"] if of["node"] == client)
        errors.append(said_s / measured_s - 1)
        texts.append(f"{client} {number(said_s)} s for {number(measured_s)} ({errors[-1]:+.0%})")
    return (", ".join(texts) + f"; median error {statistics.median(map(abs, errors)):.0%}"
            if texts else "")


def _notes(records, options):
    """What the records themselves say against their figures."""
    every = [record for of in records.values() for record in of]
    notes = [f"measured on a testbed that was off: {off}"
             for off in sorted({off for record in every for off in record.get("testbed_off", [])})]
    notes += [f"a measurement of the testbed after it, which the next one did not bear out: {off}"
              for off in sorted({off for record in every
                                 for off in record.get("testbed_disturbed", [])})]
    if any(record["source"] == SIMULATOR for record in every):
        notes.append("simulated, on no testbed")
    notes += [f"figures of the monitor's source '{source}', not of eBPF"
              for source in sorted({record["source"] for record in every} - {EBPF, SIMULATOR})]
    notes += [f"degraded: {text}" for text in
              sorted({str(text) for record in every for text in record["degraded"]})]
    factors = _factors(records)
    if factors != [1]:
        notes.append("nodes had " + " to ".join(f"{number(of)}" for of in
                                               dict.fromkeys((factors[0], factors[-1]))) +
                     " times their shares, as a call takes so many times the model's CPU time here")
    baselines = {}
    for record in every:
        if "baseline" in record:
            baselines.setdefault(record["baseline"]["name"], {})[record["seed"]] = \
                record["baseline"]["elapsed_s"]
    notes += [f"{name}: {summarize(by_seed.values()).text()}"
              for name, by_seed in sorted(baselines.items())]
    notes += [f"simulated, {placement}: {text}" for placement, of in records.items()
              if (text := _simulated(of))]
    notes += list(dict.fromkeys(text for record in every for text in record.get("notes", [])))
    counts = {placement: len(of) for placement, of in records.items() if of}
    if set(counts.values()) - {options.runs}:
        notes.append("runs: " + ", ".join(f"{placement} {count} of {options.runs}"
                                          for placement, count in counts.items()))
    return tuple(notes)


def _records(store, row, wanted, options, placements):
    found = store.of_row(row, wanted, options.runs)
    return {placement: [record for record in found[placement] if not unusable(record, row, options)]
            for placement in placements}


def collect(pairs, store, wanted, options):
    """[RowResult] of the [(experiment, row)] that have records; `wanted(row)` is their origin."""
    results, grids = [], {}
    for experiment, row in pairs:
        records = _of_row(experiment, row, store, wanted, options)
        if not any(records.values()):
            continue
        if experiment.name not in grids:
            grids[experiment.name] = _grids(experiment, store, wanted, options)
        evidence = Evidence(records, experiment.object, grids[experiment.name])
        outcomes, why = _claims(experiment, row, evidence, options)
        results.append(RowResult(experiment, row, evidence, outcomes, why,
                                 _notes(records, options)))
    return results


def _of_row(experiment, row, store, wanted, options):
    """{placement: records} of a row, those of its statics_of among them."""
    records = _records(store, row, wanted(row), options, row.placements)
    if row.statics_of and records.get("adaptive"):
        base = experiment.row(row.statics_of)
        records.update(_records(store, base, wanted(base), options, STATICS))
    return {placement: records.get(placement, []) for placement in PLACEMENTS}


def _grids(experiment, store, wanted, options):
    """{grid: {cell: Evidence}} of all cells that have been run, by whatever command."""
    found = {}
    for cell in experiment.rows:
        if not cell.grid or options.quick and cell.full_only:
            continue
        records = _of_row(experiment, cell, store, wanted, options)
        if records["adaptive"]:
            found.setdefault(cell.grid, {})[cell.name] = Evidence(records, experiment.object)
    return found


def _profile(profile):
    return {"name": profile.name, "sha256": profile.sha256, "node_sha256": profile.node_sha256,
            "text": profile.text, "facts": profile.facts()}


def make_manifest(options, runner, profiles, missing):
    """Where the results come from, with all that stands beside the figures.

    `profiles`: those that were used; the first one, the paper's where it is among them, stands for
    all in a comparison.
    """
    first, *others = sorted(profiles, key=lambda of: of.name != PAPER_PROFILE)
    checks = options.results / "testbed.json"
    measured = json.loads(checks.read_text(encoding="utf-8")) if checks.exists() else []
    return {"commit": runner.commit, "date": manifest.now(), "machine": manifest.machine(),
            "options": options.listed(), "emulation": options.emulation,
            "profile": _profile(first), "other_profiles": [_profile(of) for of in others],
            "testbed": [check for check in measured if check.get("commit") == runner.commit],
            "failures": [{"run": run, "reason": reason} for run, reason in runner.failures],
            "skipped": [{"row": row, "reason": reason} for row, reason in runner.skipped],
            "missing": missing}


def to_json(results, made_manifest):
    mark = {"testbed": made_manifest["emulation"]} if made_manifest["options"]["user_space"] else {}
    return {"experiments": [result.to_json() for result in results], **mark,
            "manifest": made_manifest,
            "profile_sha256": made_manifest["profile"]["sha256"]}


def write(path, text):
    """Replaces a file, whole or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


__all__ = ["Outcome", "RowResult", "ci_rows", "collect", "make_manifest", "to_json", "write"]
