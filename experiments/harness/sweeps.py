"""Figures of many rows: a curve over the length of phases, and heat maps over a grid."""

import math

import charts
import report_parts as parts
from claims import over
from definition import PLACEMENTS


def _complete(result):
    return all(result.evidence.time(placement) for placement in PLACEMENTS)


def points(experiment, rows):
    """Of the sweep's rows that have all placements, by the length of a phase: a tuple of title,
    seconds of a phase where it is fast, of the optimum, the better static placement and its
    seconds, adaptive's seconds, moves a run. All as measured.
    """
    made = []
    for result in rows:
        if result.row.name not in experiment.sweep["rows"] or not _complete(result):
            continue
        evidence = result.evidence
        optimal = evidence.optimal_phases()
        lasted = [seconds for name, seconds in optimal if name == experiment.sweep["phase"]]
        if not lasted:
            continue
        better = evidence.better()[0]
        moves = [len(evidence.moves(record)) for record in evidence.adaptive()]
        made.append((result.row.title, math.fsum(lasted) / len(lasted),
                     math.fsum(seconds for _, seconds in optimal), better,
                     evidence.time(better).mean, evidence.time("adaptive").mean,
                     math.fsum(moves) / len(moves)))
    return sorted(made, key=lambda point: point[1])


def cells(heat_map, rows):
    """{(x, y): adaptive's time over the optimum or the better static one} of the cells run."""
    return {(result.row.workload[heat_map["x"]], result.row.workload[heat_map["y"]]):
            over(result.evidence, heat_map["over"])
            for result in rows if result.row.grid == heat_map["grid"] and _complete(result)}


def draw(experiment, rows):
    """{plot's name: {kind: bytes}} of an experiment's rows."""
    plots = {}
    if experiment.sweep:
        found = points(experiment, rows)
        if found:
            lines = {"adaptive over the optimum": [(of[1], of[5] / of[2]) for of in found],
                     "adaptive over the better static placement":
                         [(of[1], of[5] / of[4]) for of in found],
                     "the better static placement over the optimum":
                         [(of[1], of[4] / of[2]) for of in found]}
            window_s = next(rows[0].evidence.records[placement][0]["window_s"]
                            for placement in PLACEMENTS if placement in rows[0].evidence.records)
            plots[f"{experiment.name}-sweep"] = charts.sweep(
                lines, experiment.sweep["what"], window_s, f"H = {window_s:g} s")
    for heat_map in experiment.heat_maps:
        found = cells(heat_map, rows)
        if found:
            default = heat_map["default"]
            plots[f"{experiment.name}-{heat_map['grid']}"] = charts.heat_map(
                found, (heat_map["x_title"], heat_map["y_title"]),
                (default[heat_map["x"]], default[heat_map["y"]]))
    return plots


def captions(experiment):
    """[(plot's name, its caption)]; a plot that was not drawn is left out by the report."""
    made = [(f"{experiment.name}-sweep", experiment.sweep["figure"])] if experiment.sweep else []
    for heat_map in experiment.heat_maps:
        base = "the optimum" if heat_map["over"] == "optimal" else "the better static placement"
        caption = (f"{heat_map['figure']}: adaptive's time over that of {base}; darker is slower, "
                   "and the frame is the default")
        made.append((f"{experiment.name}-{heat_map['grid']}", caption))
    return made


def tables(experiment, rows):
    found = points(experiment, rows) if experiment.sweep else []
    return [parts.sweep_table(found)] if found else []
