"""The report: one HTML file that needs nothing else, beside results.json and the plots' files."""

import json

import charts
import results as results_module
import sweeps
import report_parts as parts
from definition import PLACEMENTS, PLOT, STATICS, load_module

TITLE = "abacus: the paper's experiments"


def write(folder, found, not_runnable, made_manifest):
    """Writes results.json, report.html and plots/ into the folder; their paths."""
    plots, problem = _draw(found)
    for name, images in plots.items():
        (folder / "plots").mkdir(parents=True, exist_ok=True)
        for kind in sorted(images.keys() & {"png", "svg"}):
            (folder / "plots" / f"{name}.{kind}").write_bytes(images[kind])
    as_json = results_module.to_json(found, made_manifest)
    results_module.write(folder / "results.json", json.dumps(as_json, indent=1) + "\n")
    page = _page(found, not_runnable, made_manifest, plots, problem)
    results_module.write(folder / "report.html", page)
    return [folder / "results.json", folder / "report.html"]


def by_experiment(found):
    """{name: (experiment, [its RowResult])}, in the order of the results."""
    grouped = {}
    for result in found:
        grouped.setdefault(result.experiment.name, (result.experiment, []))[1].append(result)
    return grouped


def groups_of(results):
    """What charts.bars() draws of rows."""
    return [(result.row.title, {placement: result.evidence.time(placement)
                                for placement in PLACEMENTS if result.evidence.time(placement)})
            for result in results]


def paper_marks_of(result):
    """{placement: (seconds, text)}: where the paper's ratios put a bar of a row, over ours of the
    static placement that is the faster one in the paper. Of a row that claims nothing, or that has
    the other one faster here, none.
    """
    evidence, marks = result.evidence, {}
    if result.no_claim or result.experiment.beyond or \
            not all(evidence.time(placement) for placement in STATICS):
        return marks
    faster, slower = evidence.better()
    base = evidence.time(faster).mean
    for claim in result.row.claims:
        if claim.kind in ("direction", "speedup") and claim.winner != faster:
            return {}
        if claim.kind == "speedup":
            marks[slower] = base * claim.at_least, claim.paper or f"{claim.at_least:g} x"
        elif claim.kind == "speedup_below":
            marks[slower] = base * claim.limit, f"< {claim.limit:g} x"
        elif claim.kind == "adaptive" and not claim.paper and evidence.time("adaptive"):
            marks["adaptive"] = base * (1 + claim.within), f"+ {claim.within:.0%}"
    return marks


def phase_groups_of(result):
    """What charts.bars() draws of a row's phases."""
    phases = {placement: result.evidence.phases(placement) for placement in PLACEMENTS}
    count = max(map(len, phases.values()))
    return [(f"{i + 1}. {next(of[i][0] for of in phases.values() if len(of) > i)}",
             {placement: of[i][1] for placement, of in phases.items() if len(of) > i})
            for i in range(count)]


def _draw(found):
    """({plot's name: {kind: bytes}}, why there are none or "")."""
    plots = {}
    try:
        for name, (experiment, rows) in by_experiment(found).items():
            bars = [result for result in rows if not result.row.grid]
            if bars:
                plots[name] = charts.bars(groups_of(bars), [paper_marks_of(of) for of in bars])
            plots.update(sweeps.draw(experiment, rows))
            own = _own_plot(experiment, rows)
            if own:
                plots[f"{name}-own"] = own
            for result in rows:
                if _has_phases(result):
                    plots[f"{name}-{result.row.name}-phases"] = charts.bars(phase_groups_of(result))
                drawn = _progress_plot(experiment, result)
                if drawn:
                    plots[f"{name}-{result.row.name}-progress"] = drawn
    except ImportError as error:
        return {}, f"No charts: {error}; the Debian package is python3-matplotlib."
    return plots, ""


def _has_phases(result):
    """A job of a single phase is shown by its bars already, and many rows by their own figure."""
    if result.experiment.sweep or result.experiment.heat_maps:
        return False
    return any(len(result.evidence.phases(placement)) > 1 for placement in PLACEMENTS)


def _own_plot(experiment, rows):
    """What the experiment's plot.py draws, with its caption; None where it has none.

    One that is wrong is told in its caption, and costs the report nothing else.
    """
    path = experiment.folder / PLOT
    if not path.is_file():
        return None
    charts.own(lambda axes, rows: None, rows)  # raises ImportError, where nothing can be drawn
    try:
        module = load_module(path, f"plot_of_{experiment.name}")
        return {**charts.own(module.draw, rows), "caption": str(module.CAPTION)}
    except Exception as error:  # somebody else's code
        return {"caption": f"{path}: {type(error).__name__}: {error}"}


def _progress_plot(experiment, result):
    """The curves of the row's first run at the placement that its figure shows, or None."""
    wanted = experiment.progress
    if not wanted or result.row.name not in wanted["rows"]:
        return None
    records = result.evidence.records.get(wanted["placement"], [])
    if not records or not any(client["progress"] for client in records[0]["clients"]):
        return None
    return charts.progress(records[0], result.evidence.moves(records[0]), wanted["clients"],
                           wanted["what"])


def _page(found, not_runnable, made_manifest, plots, problem):
    body = [parts.head_of_page(TITLE, found, made_manifest)]
    if problem:
        body.append(f'<p class="warning">{parts.text(problem)}</p>')
    grouped = by_experiment(found)
    body.append(parts.contents(grouped, not_runnable))
    body.append(parts.overview(found))
    body += [_section(experiment, rows, plots) for experiment, rows in grouped.values()]
    body += [parts.section_not_run(experiment) for experiment in not_runnable]
    body.append(parts.manifest_section(made_manifest))
    return parts.document(TITLE, body)


def _section(experiment, rows, plots):
    """One figure or table of the paper."""
    name = experiment.name
    out = [f'<section id="{name}">', f"<h2>{parts.text(experiment.figure)}: "
           f"{parts.text(experiment.title)}</h2>",
           parts.assumptions(experiment),
           _figure(plots, name, f"{experiment.bars}: elapsed time of each placement" +
                   (", with 90 % confidence intervals" if _intervals(rows) else "")),
           *(_figure(plots, plot, caption) for plot, caption in sweeps.captions(experiment)),
           _figure(plots, f"{name}-own", plots.get(f"{name}-own", {}).get("caption")),
           *sweeps.tables(experiment, rows),
           parts.times_table(rows)]
    for result in rows:
        plot = f"{name}-{result.row.name}"
        if _has_phases(result):
            out += [_figure(plots, f"{plot}-phases",
                            f"{experiment.bars}: the phases, {result.row.title}"),
                    parts.phases_table(result)]
        if experiment.progress:
            out.append(_figure(plots, f"{plot}-progress", f"{experiment.progress['figure']}: "
                               f"progress of the first adaptive run, {result.row.title}. A "
                               "vertical line is a move, in the style of its client's line."))
    if experiment.retries:
        out.append(parts.retries_table([result for result in rows
                                        if result.row.name in experiment.retries]))
    claimed = [result for result in rows if result.outcomes or not result.row.grid]
    out += [parts.claims_table(claimed), parts.decisions(rows), "</section>"]
    return "\n".join(out)


def _intervals(rows):
    return any(time.half is not None for result in rows
               for time in map(result.evidence.time, PLACEMENTS) if time)


def _figure(plots, name, caption):
    if name not in plots:
        return ""
    if "svg" not in plots[name]:
        return f'<p class="warning">{parts.text(caption)}</p>'
    return (f"<figure>{charts.inline(plots[name]['svg'], name, caption)}"
            f"<figcaption>{parts.text(caption)}</figcaption></figure>")
