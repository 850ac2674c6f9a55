"""The pieces of the report's page: tables and lists, as HTML text."""

import html
import math

from claims import OPERATIONS
from definition import PLACEMENTS
from summary import number

STYLE = """
:root { color-scheme: light; --ink: #1d1d1f; --soft: #5f6368; --rule: #d9dce0; --tint: #f5f6f7; }
body { margin: 0 auto; max-width: 60rem; padding: 2.5rem 1.5rem 4rem; color: var(--ink);
  background: #fff;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.7rem; font-weight: 600; margin: 0 0 .3rem; letter-spacing: -.01em; }
h2 { font-size: 1.2rem; font-weight: 600; margin: 3rem 0 .6rem; padding-top: 1rem;
  border-top: 1px solid var(--rule); }
h3 { font-size: .95rem; font-weight: 600; margin: 1.6rem 0 .4rem; }
p, ul { margin: .5rem 0; } .soft, figcaption { color: var(--soft); } .soft { font-size: .9rem; }
table { border-collapse: collapse; margin: .6rem 0 1.2rem; width: 100%; font-size: .87rem; }
th { text-align: left; font-weight: 600; border-bottom: 1.5px solid var(--ink);
  vertical-align: bottom; }
td, th { padding: .3rem .7rem .3rem 0; } td { border-bottom: 1px solid var(--rule);
  vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.n + td:not(.n), th.n + th:not(.n) { padding-left: 1rem; }
td.paper { color: var(--soft); }
tr.group td { border-bottom-color: var(--ink); font-weight: 600; padding-top: .7rem; }
.holds, .fails { white-space: nowrap; font-weight: 600; }
.holds { color: #00603d; } .fails { color: #a3320b; }
figure { margin: 1.2rem 0; text-align: center; break-inside: avoid; }
figure svg { max-width: 100%; height: auto; } figcaption { font-size: .85rem; margin-top: .3rem; }
.warning { border-left: 4px solid #a3320b; padding: .4rem .8rem; background: var(--tint); }
nav ul { list-style: none; padding: 0; columns: 2; } a { color: #0a58a8; text-decoration: none; }
a:hover { text-decoration: underline; }
details { margin: .6rem 0; } summary { cursor: pointer; font-weight: 600; font-size: .95rem; }
pre { background: var(--tint); padding: .8rem 1rem; overflow-x: auto; font-size: .8rem;
  line-height: 1.4; } code { font-size: .92em; overflow-wrap: anywhere; }
.why { font-size: .85rem; }
@media print { body { max-width: none; padding: 0; font-size: 10pt; } a { color: inherit; }
  h2 { break-after: avoid; } tr { break-inside: avoid; } nav { display: none; }
  details::details-content { content-visibility: visible; block-size: auto; } }
""".strip()

PAPER_WINDOW_S = 1.0  # H of section 6.1
REPEATED_PHASE = "insert"  # by which the profile's repetition is chosen (lab/README.md)

WORDS = {"client": "at client", "adaptive": "adaptive", "server": "at server"}


def text(value):
    return html.escape(str(value), quote=False)


def table(head, rows, numeric=()):
    """An HTML table; cells are HTML. Columns `numeric` are flush right."""
    def cell(tag, i, value):
        return f'<{tag} class="n">{value}</{tag}>' if i in numeric else f"<{tag}>{value}</{tag}>"
    out = ["<table><thead><tr>", *(cell("th", i, of) for i, of in enumerate(head)),
           "</tr></thead><tbody>"]
    for row in rows:
        out.append(row if isinstance(row, str) else
                   "<tr>" + "".join(cell("td", i, of) for i, of in enumerate(row)) + "</tr>")
    return "".join([*out, "</tbody></table>"])


def verdict(holds):
    return '<span class="holds">✓ holds</span>' if holds else \
        '<span class="fails">✗ does not hold</span>'


def document(title, body):
    return "\n".join(["<!DOCTYPE html>", '<html lang="en"><head><meta charset="utf-8">',
                      '<meta name="viewport" content="width=device-width, initial-scale=1">',
                      f"<title>{text(title)}</title>", f"<style>{STYLE}</style></head><body>",
                      *filter(None, body), "</body></html>", ""])


def head_of_page(title, found, made):
    outcomes = [outcome for result in found for outcome in result.outcomes]
    held = sum(outcome.holds for outcome in outcomes)
    count = f"{held} of {len(outcomes)} claims"
    options = made["options"]
    size = "quick, smaller sizes" if options["quick"] else \
        "full: the paper's sizes, as often over as the profile says"
    runs = "a single run of each placement, so without confidence intervals" \
        if options["runs"] == 1 else f"{options['runs']} runs of each placement, means with 90 % " \
        "confidence intervals"
    out = [f"<header><h1>{text(title)}</h1>",
           f'<p class="soft">{text(made["date"])} · commit <code>{text(made["commit"])}</code> · '
           f'profile {text(made["profile"]["name"])}, SHA-256 '
           f'<code>{text(made["profile"]["sha256"])}</code></p>',
           f"<p>Dynamic function placement, measured again: <strong>{count} hold</strong> "
           f"({size}; {runs}).</p>" if outcomes else
           f"<p>Dynamic function placement, measured again; no claims ({size}; {runs}).</p>"]
    warnings = []
    if options["user_space"]:
        warnings.append(f"Measured without privileges: {made['emulation']}. No claims.")
    if options["despite_testbed"]:
        warnings.append("Run with --despite-testbed: a testbed that was off was not refused.")
    if options["allow_fallback"]:
        warnings.append("Run with --allow-fallback: figures need not come from eBPF.")
    warnings += [f"Failed: {of['run']}: {of['reason']}" for of in made["failures"]]
    warnings += [f"Skipped: {of['row']}: {of['reason']}" for of in made["skipped"]]
    if made["missing"]:
        warnings.append(f"Without records: {', '.join(made['missing'])}.")
    out += [f'<p class="warning">{text(of)}</p>' for of in warnings]
    return "\n".join([*out, "</header>"])


def contents(grouped, not_runnable):
    items = [f'<li><a href="#{name}">{text(experiment.figure)}: {text(experiment.title)}</a></li>'
             for name, (experiment, _) in grouped.items()]
    items += [f'<li><a href="#{of.name}">{text(of.figure)}: not run</a></li>'
              for of in not_runnable]
    items.append('<li><a href="#manifest">Machine, testbed, profile</a></li>')
    return f"<nav><ul>{''.join(items)}</ul></nav>"


def overview(found):
    rows = []
    for result in found:
        times = [result.evidence.time(placement) for placement in PLACEMENTS]
        held = sum(outcome.holds for outcome in result.outcomes)
        count = len(result.outcomes)
        claims = "no claim" if not count else \
            f'<span class="{"holds" if held == count else "fails"}">' \
            f'{"✓" if held == count else "✗"} {held} of {count}</span>'
        rows.append([f'<a href="#{result.experiment.name}">{text(result.row.path)}</a>',
                     text(result.row.network), *(number(time.mean) if time else "–"
                                                 for time in times),
                     text(result.evidence.engine_choice()), claims])
    return table(["row", "network", "at client, s", "adaptive, s", "at server, s",
                  "engine's choice", "claims"], rows, numeric=(2, 3, 4))


def assumptions(experiment):
    where = f"The paper's section {text(experiment.section)}. " if experiment.section else ""
    if not experiment.assumptions:
        return f'<p class="soft">{where}</p>' if where else ""
    items = "".join(f"<li>{text(of)}</li>" for of in experiment.assumptions)
    return f'<div class="soft">{where}Assumptions:<ul>{items}</ul></div>'


def section_not_run(experiment):
    return (f'<section id="{experiment.name}"><h2>{text(experiment.figure)}: '
            f"{text(experiment.title)}</h2><p>Not run: {text(experiment.not_runnable)}.</p>"
            "</section>")


def times_table(results):
    """Means with intervals, and the two ratios that the paper speaks of."""
    rows = []
    for result in results:
        evidence = result.evidence
        times = {placement: evidence.time(placement) for placement in PLACEMENTS}
        ratio = over = "–"
        if times["client"] and times["server"]:
            ratio = f"{number(evidence.speedup())} x ({evidence.better()[0]})"
            if times["adaptive"]:
                best = times[evidence.better()[0]].mean
                over = f"{times['adaptive'].mean / best - 1:+.1%}"
        runs = "/".join(str(time.runs) for time in times.values() if time)
        rows.append([text(result.row.title), text(result.row.network),
                     *(time.text("") if time else "–" for time in times.values()), ratio, over,
                     runs])
        rows += [f'<tr><td colspan="8" class="soft">{text(note)}</td></tr>'
                 for note in result.notes]
    return table(["", "network", *(f"{WORDS[of]}, s" for of in PLACEMENTS), "faster static",
                  "adaptive over it", "runs"], rows, numeric=(2, 3, 4, 5, 6, 7))


def phases_table(result):
    """Table 2: a line a placement, and the optimum that nobody ran; the paper's below each."""
    evidence = result.evidence
    names = next(evidence.phases(placement) for placement in PLACEMENTS
                 if evidence.phases(placement))
    rows, paper = [], result.row.paper_phases

    def of_paper(seconds):
        return '<tr><td class="paper">the paper</td>' + "".join(
            f'<td class="n paper">{value:.2f}</td>' for value in [*seconds, sum(seconds)]) + "</tr>"

    for placement in result.row.placements:
        phases = evidence.phases(placement)
        if not phases:
            continue
        rows.append([WORDS[placement], *(time.text("") for _, time in phases),
                     evidence.time(placement).text("")])
        if placement in paper:
            rows.append(of_paper(paper[placement]))
    optimal = [seconds for _, seconds in evidence.optimal_phases()]
    if optimal:
        rows.append(["optimal", *map(number, optimal), number(math.fsum(optimal))])
        if {"client", "server"} <= paper.keys():
            rows.append(of_paper([min(pair) for pair in zip(paper["client"], paper["server"])]))
    return f"<h3>Phases, {text(result.row.title)}, s</h3>" + table(
        ["", *(text(name) for name, _ in names), "total"], rows,
        numeric=range(1, len(names) + 2)) + _windows_note(evidence, paper) + \
        repetition_note(evidence, paper)


def sweep_table(points):
    """What the curve is made of: (title, seconds of a phase, of the optimum, better static,
    adaptive, moves a run)."""
    rows = []
    for title, phase_s, optimal_s, better, static_s, adaptive_s, moves in points:
        rows.append([text(title), number(phase_s), number(optimal_s),
                     f"{number(static_s)} ({text(better)})", number(adaptive_s),
                     f"{adaptive_s / optimal_s:.2f}", f"{adaptive_s / static_s:.2f}",
                     number(moves)])
    return table(["", "a phase, s", "optimal, s", "better static, s", "adaptive, s",
                  "x optimal", "x better static", "moves a run"], rows, numeric=range(1, 8))


def _windows_note(evidence, paper):
    """How long phases last where they are fast, in windows: what the engine has to see them by."""
    window_s = next(iter(evidence.records.values()))[0]["window_s"]
    lasts = []
    for placement in ("server", "client"):
        for i, (name, time) in enumerate(evidence.phases(placement)):
            other = dict(enumerate(evidence.phases("client" if placement == "server" else
                                                   "server"))).get(i)
            if not other or time.mean > other[1].mean or any(of.startswith(name) for of in lasts):
                continue
            theirs = f" (the paper's {paper[placement][i] / PAPER_WINDOW_S:.1f})" \
                if placement in paper else ""
            lasts.append(f"{name} {WORDS[placement]} {number(time.mean / window_s)}{theirs}")
    return f'<p class="soft">In observation windows: {text(", ".join(lasts))}.</p>' if lasts else ""


def repetition_note(evidence, paper):
    """Where the profile's repetition is not the smallest with which inserts at the server last as
    many windows as the paper's. Of full sizes: others are not the paper's work.
    """
    records = evidence.records.get("server", [])
    if "server" not in paper or not records or "repetition" not in records[0] or \
            records[0].get("origin", {}).get("size") != "full":
        return ""
    repetition, window_s = records[0]["repetition"], records[0]["window_s"]
    inserts = [(time.mean / window_s, theirs / PAPER_WINDOW_S) for (name, time), theirs in
               zip(evidence.phases("server"), paper["server"]) if name == REPEATED_PHASE]
    enough = max((math.ceil(repetition * theirs / ours) for ours, theirs in inserts), default=0)
    if enough in (0, repetition):
        return ""
    lasts = min(ours * enough / repetition for ours, _ in inserts)
    return (f'<p class="warning">The repetition is {repetition}. The smallest with which an '
            f"{REPEATED_PHASE} phase at the server lasts as many windows as the paper's is {enough} "
            f"here ({number(lasts)} windows).</p>")


def retries_table(results):
    """Table 1: retries by placement, ours and the paper's, a pair of columns a row."""
    if not results:
        return ""
    head = [""]
    for result in results:
        head += [f"{text(result.row.network)}: ours", "the paper"]
    rows = []
    for placement in PLACEMENTS:
        row = [WORDS[placement]]
        for result in results:
            ours = result.evidence.retries(placement)
            paper = result.row.paper_retries.get(placement)
            half = f" ± {ours.half:.2f}" if ours and ours.half is not None else ""
            row += ["–" if not ours else f"{ours.mean:.2f}{half}",
                    "–" if paper is None else f"{paper:.2f}"]
        rows.append(row)
    return f"<h3>Table 1: retries per {OPERATIONS} inserts</h3>" + \
        table(head, rows, numeric=range(1, len(head)))


def claims_table(results):
    rows = []
    for result in results:
        network = result.row.network
        where = "" if network in result.row.title else f", {network}"
        rows.append(f'<tr class="group"><td colspan="4">{text(result.row.title + where)}</td></tr>')
        rows += [[text(of.claim), text(of.paper), text(of.ours), verdict(of.holds)]
                 for of in result.outcomes]
        if result.no_claim:
            rows.append(f'<tr><td colspan="4" class="soft">{text(result.no_claim)}</td></tr>')
    beyond = all(result.experiment.beyond for result in results)
    head = ["expectation" if beyond else "claim", "" if beyond else "the paper", "ours",
            "holds?" if beyond else "claim holds?"]
    if not any(result.outcomes for result in results):
        head = ["", "", "", ""]
    return "<h3>Claims</h3>" + table(head, rows)


def decisions(results):
    """Every move of every run, with the engine's own explanation of it.

    Open: browsers that do not know ::details-content print what is open and nothing else.
    """
    rows, count = [], 0
    for result in results:
        for placement, records in result.evidence.records.items():
            for record in records:
                moves = sorted(record["migrations"], key=lambda move: move["t_s"])
                count += len(moves)
                if not moves and placement != "adaptive":
                    continue
                rows.append(f'<tr class="group"><td colspan="4">{text(result.row.title)}, '
                            f"{WORDS[placement]}, run {record['run']}: {_moves(len(moves))}"
                            "</td></tr>")
                rows += [[number(move["t_s"]), f"{text(move['client'])}: {text(move['object'])}",
                          f"{text(move['from'])} → {text(move['to'])}",
                          f'<span class="why">{text(move["explanation"])}</span>']
                         for move in moves]
                if placement == "adaptive":
                    rows += _last_words(record)
    return f"<details open><summary>Decision log ({_moves(count)})</summary>" + \
        table(["at, s", "object", "move", "why"], rows, numeric=(0,)) + "</details>"


def _moves(count):
    return f"{count} move{'' if count == 1 else 's'}"


def _last_words(record):
    """What the engine said last of each object: why it is where it is at the end."""
    return [["end", text(key.replace("/", ": ", 1)),
             text(f"at {record['final_placement'].get(key, 'unknown')}"),
             f'<span class="why">{text(why)}</span>']
            for key, why in sorted(record.get("explanations", {}).items())]


def _profile_facts(profile):
    yield "profile", f"{profile['name']}, SHA-256 {profile['sha256']}"
    if profile["node_sha256"]:
        yield "its nodes", f"lab/paper_node.h, SHA-256 {profile['node_sha256']}"
    yield from profile["facts"]


def manifest_section(made):
    machine, options = made["machine"], made["options"]
    profiles = [made["profile"], *made["other_profiles"]]
    facts = [("date", made["date"]), ("commit", made["commit"]), ("seed", options["seed"]),
             ("kernel", f"{machine['kernel']}, {machine['architecture']}"),
             ("system", machine["system"]), ("CPU", f"{machine['cpu']}, {machine['cores']} cores"),
             ("memory", f"{machine['memory_bytes'] / 2**30:.1f} GiB"),
             ("testbed", made["emulation"]),
             ("options", ", ".join(f"{key} = {value}" for key, value in options.items())),
             *(fact for of in profiles for fact in _profile_facts(of))]
    out = ['<section id="manifest"><h2>Machine, testbed, profile</h2>',
           table(["", ""], [[key, text(value)] for key, value in facts])]
    for check in made["testbed"]:
        shares = "".join(f", {node} {share}" for node, share in check["shares"].items())
        off = f"{len(check['off'])} off" if check["off"] else "nothing off"
        rows = [[text(row["what"]), text(row["wanted"]),
                 "–" if row["measured"] is None else f"{row['measured']:.4g}", text(row["unit"]),
                 "" if row["good"] else '<span class="fails">✗ off</span>']
                for row in check["rows"]]
        out.append(f"<details><summary>Testbed {text(check['topology'] + shares)}, measured "
                   f"{text(check['date'])}: {len(check['rows'])} values, {off}</summary>"
                   + "".join(f'<p class="soft">{text(line)}</p>' for line in check["used"])
                   + table(["what", "wanted", "measured", "", ""], rows, numeric=(1, 2))
                   + "</details>")
    out += [f"<details open><summary>Profile {text(of['name'])}</summary>"
            f"<pre>{text(of['text'])}</pre></details>" for of in profiles]
    return "\n".join([*out, "</section>"])
