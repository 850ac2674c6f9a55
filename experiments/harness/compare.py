"""Two results.json side by side."""

import json
from pathlib import Path

from definition import ExperimentError
from summary import Summary, number


def read(path):
    """A results.json; raises ExperimentError where it is none."""
    path = Path(path)
    if path.is_dir():
        path = path / "results.json"
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
        rows = {row["name"]: row for row in results["experiments"]}
        for row in rows.values():
            row["placements"] = {of["placement"]: Summary(of["mean_s"], of["ci90_s"], of["runs"])
                                 for of in row["placements"]}
            row["outcomes"] = row["claims"]
            row["claims"] = {of["claim"]: of["holds"] for of in row["claims"]}
            row["engine_choice"]
        return results, rows
    except OSError as error:
        raise ExperimentError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ExperimentError(f"{path}: is no results.json of ./dev experiment "
                              f"({type(error).__name__}: {error})") from error


def _differences_of_conditions(a, b):
    """What besides the code differs, a line each."""
    for name, of in (("profile", lambda results: results["profile_sha256"][:16]),
                     ("paper's node", lambda results:
                      results["manifest"]["profile"]["node_sha256"][:16] or "none"),
                     ("other profiles", lambda results: ", ".join(
                         f"{of['name']} {of['sha256'][:16]}"
                         for of in results["manifest"].get("other_profiles", ())) or "none"),
                     ("testbed", lambda results: results.get("testbed", "root's")),
                     ("commit", lambda results: results["manifest"]["commit"]),
                     ("kernel", lambda results: results["manifest"]["machine"]["kernel"]),
                     ("CPU", lambda results: results["manifest"]["machine"]["cpu"]),
                     ("size", lambda results: "quick" if results["manifest"]["options"]["quick"]
                      else "full")):
        try:
            values = of(a), of(b)
        except (KeyError, TypeError):
            yield f"{name}: not in both files"
            continue
        if values[0] != values[1]:
            yield f"{name}: {values[0]} | {values[1]}"


def _verdict(a, b):
    """Whether B is sure to be another time than A."""
    if a.half is None or b.half is None:
        return "a single run: no interval"
    return "the 90 % intervals overlap" if a.overlaps(b) else "B faster" if b.mean < a.mean \
        else "B slower"


def lines(path_a, path_b):
    """The comparison, line by line."""
    (a, rows_a), (b, rows_b) = read(path_a), read(path_b)
    yield f"A: {path_a}"
    yield f"B: {path_b}"
    yield from _differences_of_conditions(a, b)
    yield ""
    width = max((len(name) for name in rows_a | rows_b), default=4)
    yield f"{'row':{width}} {'placement':9} {'A, s':>18} {'B, s':>18} {'B / A':>6}"
    for name in [name for name in rows_a if name in rows_b]:
        of_a, of_b = rows_a[name]["placements"], rows_b[name]["placements"]
        for placement in [placement for placement in of_a if placement in of_b]:
            x, y = of_a[placement], of_b[placement]
            yield (f"{name:{width}} {placement:9} {x.text(''):>18} {y.text(''):>18} "
                   f"{number(y.mean / x.mean):>6} {_verdict(x, y)}")
        yield from _changes(name, rows_a[name], rows_b[name], width)
    for label, only in (("A", rows_a.keys() - rows_b.keys()), ("B", rows_b.keys() - rows_a.keys())):
        if only:
            yield f"only in {label}: {', '.join(sorted(only))}"


def _changes(name, a, b, width):
    if a["engine_choice"] != b["engine_choice"]:
        yield f"{name:{width}} engine: {a['engine_choice']} | {b['engine_choice']}"
    for claim in a["claims"]:
        holds = a["claims"][claim], b["claims"].get(claim)
        if holds[0] != holds[1]:
            words = ["holds" if of else "no claim" if of is None else "does not hold"
                     for of in holds]
            yield f"{name:{width}} {claim}: {words[0]} | {words[1]}"
