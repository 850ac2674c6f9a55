"""The table `paper | ours | holds?` of all rows of the paper's experiments, as markdown: what stands
in ../README.md is pasted from it and not typed."""

import compare
import definition
from claims import OPERATIONS, stated
from definition import PLACEMENTS
from summary import number

HEAD = ("row", "the paper", "client, s", "adaptive, s", "server, s", "faster static",
        "adaptive over it", "engine", "holds?")
NONE = "–"


def papers_word(row):
    """What is claimed of a row, in the paper's words where it has any."""
    words = []
    for claim in row.claims:
        word = stated(claim)[1]
        if claim.kind == "retries":
            sign = "<" if claim.fewer_than is not None else "<="
            word = f"{claim.placement} {sign} {word} retries of {OPERATIONS}"
        words.append(word)
    return "; ".join(words) or NONE


def _ours(row):
    """The cells of a row of results.json."""
    times = row["placements"]
    cells = [times[placement].text("") if placement in times else NONE for placement in PLACEMENTS]
    ratio = over = NONE
    if {"client", "server"} <= times.keys():
        faster, slower = sorted(("client", "server"), key=lambda of: times[of].mean)
        ratio = f"{faster}, {number(times[slower].mean / times[faster].mean)} x"
        if "adaptive" in times:
            over = f"{100 * (times['adaptive'].mean / times[faster].mean - 1):+.0f} %"
    return [*cells, ratio, over, row["engine_choice"], _holds(row["outcomes"])]


def _holds(outcomes):
    if not outcomes:
        return "no claim"
    missed = [f"{of['claim']} ({of['ours']})" for of in outcomes if not of["holds"]]
    if not missed:
        return "yes"
    return f"{len(outcomes) - len(missed)} of {len(outcomes)}; not: " + "; ".join(missed)


def lines(experiments, path=None):
    """The table, line by line, with what it is of before it; without `path`: of nothing yet."""
    rows = {}
    if path:
        results, rows = compare.read(path)
        made = results["manifest"]
        options = made["options"]
        yield (f"{'Quick sizes' if options['quick'] else 'Full sizes'}, {options['runs']} run(s) of "
               f"each placement, {made['date']}, commit {made['commit'][:12]}, "
               f"{made['machine']['cpu']}, {made['machine']['cores']} cores; profile "
               f"{made['profile']['name']}, SHA-256 {made['profile']['sha256'][:16]}." +
               (" A testbed that was off was not refused." if options["despite_testbed"] else ""))
        yield ""
    yield _line(HEAD)
    yield _line(["---"] * len(HEAD))
    for experiment in definition.in_order(of for of in experiments if not of.beyond):
        for row in experiment.rows:
            ours = _ours(rows[row.path]) if row.path in rows else [NONE] * (len(HEAD) - 2)
            yield _line([f"`{row.path}`", papers_word(row), *ours])


def _line(cells):
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
