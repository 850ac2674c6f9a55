"""The paper's figures, drawn: bars of three placements, and progress over time. PNG and SVG.

Placements differ by hatch and clients by dash and marker as well as by colour (Okabe and Ito's,
which colour-blind people tell apart), so that a print in grey can be read. The same records give
the same bytes.
"""

import io
import re
import textwrap

from definition import PLACEMENTS
from summary import number

# placement: (label, face, hatch); all edges are dark.
LOOKS = {"client": ("at client", "#ffffff", "////"),
         "adaptive": ("adaptive", "#56b4e9", ""),
         "server": ("at server", "#dcdcdc", "---")}
LINES = (("#0072b2", "-", "o"), ("#d55e00", "--", "s"), ("#009e73", "-.", "^"),
         ("#cc79a7", ":", "D"), ("#000000", "-", "v"), ("#e69f00", "--", "P"),
         ("#56b4e9", "-.", "X"), ("#555555", ":", "*"))
INK, FAINT, PAPER = "#222222", "#8a8a8a", "#d55e00"
MARKS_A_LINE = 9
BAR = 0.27     # of a bar's width, where a group's is 1
LOG_FROM = 30  # times as high is the highest bar or mark as the lowest: then the axis is logarithmic


def _plot():
    """matplotlib.pyplot, set up; raises ImportError where it is not installed."""
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams.update({
        "svg.hashsalt": "abacus", "font.size": 9, "axes.spines.top": False,
        "axes.spines.right": False, "axes.edgecolor": INK, "axes.labelcolor": INK,
        "xtick.color": INK, "ytick.color": INK, "hatch.linewidth": 0.6, "hatch.color": INK,
        "axes.axisbelow": True, "grid.color": "#dddddd", "grid.linewidth": 0.6,
        "legend.frameon": False})
    from matplotlib import pyplot
    return pyplot


def _saved(pyplot, figure):
    """{kind: bytes}, without dates and random ids."""
    made = {}
    for kind in ("svg", "png"):
        out = io.BytesIO()
        figure.savefig(out, format=kind, dpi=160, bbox_inches="tight",
                       metadata={"Date": None} if kind == "svg" else {"Software": None})
        made[kind] = out.getvalue()
    pyplot.close(figure)
    return made


def _bar(axes, at, time, placement, logarithmic, above):
    """`above`: the number stands over this height, too."""
    _, face, hatch = LOOKS[placement]
    axes.bar(at, time.mean, BAR * 0.94, facecolor=face, hatch=hatch, edgecolor=INK, linewidth=0.8)
    if time.half:
        low = min(time.half, time.mean * (0.999 if logarithmic else 1))
        axes.errorbar(at, time.mean, yerr=[[low], [time.half]], color=INK, capsize=2.5,
                      linewidth=0.9, capthick=0.9)
    axes.annotate(number(time.mean), (at, max(time.high, above)), textcoords="offset points",
                  xytext=(0, 2.5), ha="center", va="bottom", fontsize=7, color=INK)


def _paper_mark(axes, at, seconds, text):
    axes.plot([at - BAR / 2, at + BAR / 2], [seconds, seconds], color=PAPER, linewidth=1.8,
              solid_capstyle="butt")
    axes.annotate(text, (at + BAR / 2, seconds), textcoords="offset points", xytext=(-1, -2),
                  ha="right", va="top", fontsize=6, color=PAPER,
                  bbox={"facecolor": "#ffffff", "edgecolor": "none", "pad": 0.4})


def bars(groups, marks=()):
    """Bars of [(title, {placement: Summary})]: elapsed seconds, with their 90 % intervals.

    `marks`: [{placement: (seconds, text)}], one for each group: where the paper has that bar.
    """
    pyplot = _plot()
    means = [time.mean for _, times in groups for time in times.values()]
    means += [seconds for of in marks for seconds, _ in of.values()]
    logarithmic = max(means) > LOG_FROM * min(means)
    figure, axes = pyplot.subplots(figsize=(max(4.2, 0.7 + 1.6 * len(groups)), 3.1))
    for x, (_, times) in enumerate(groups):
        marked = marks[x] if marks else {}
        for placement, time in times.items():
            at = x + (PLACEMENTS.index(placement) - 1) * BAR
            mark_s, _ = marked.get(placement, (0, ""))
            # Over a mark that is near the bar's top, and not far above the bar.
            _bar(axes, at, time, placement, logarithmic, mark_s if mark_s < 1.3 * time.high else 0)
        for placement, (seconds, text) in marked.items():
            _paper_mark(axes, x + (PLACEMENTS.index(placement) - 1) * BAR, seconds, text)
    axes.set_xticks(range(len(groups)), [_wrapped(title) for title, _ in groups])
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.55, len(groups) - 0.45)
    if logarithmic:
        axes.set_yscale("log")
        axes.set_ylim(bottom=min(means) / 2, top=max(means) * 2)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    else:
        axes.set_ylim(bottom=0)
    axes.set_ylabel("elapsed time, s" + (" (logarithmic)" if logarithmic else ""))
    axes.grid(axis="y")
    looks = [LOOKS[placement] for placement in PLACEMENTS
             if any(placement in times for _, times in groups)]
    handles = [pyplot.Rectangle((0, 0), 1, 1, facecolor=face, hatch=hatch, edgecolor=INK,
                                linewidth=0.8) for _, face, hatch in looks]
    labels = [label for label, _, _ in looks]
    if any(marks):
        handles.append(pyplot.Line2D([], [], color=PAPER, linewidth=1.8))
        labels.append("by the paper's ratio to the faster static one")
    columns = 2 if any(marks) and len(groups) < 3 else 4
    axes.legend(handles, labels, ncols=columns, loc="lower center",
                bbox_to_anchor=(0.5, 1.0), fontsize=8, handlelength=1.8)
    return _saved(pyplot, figure)


def progress(record, moves, clients, what):
    """Cumulative operations of up to `clients` clients of one run; below, retries if recorded.

    A vertical line is a move, of the client in whose colour it is drawn.
    """
    pyplot = _plot()
    chosen = [client for client in record["clients"] if client["progress"]][:clients]
    with_retries = any(count for client in chosen
                       for _, count in client.get("retry_progress", []))
    figure, panels = pyplot.subplots(2 if with_retries else 1, 1, sharex=True, squeeze=False,
                                     figsize=(6.6, 4.4 if with_retries else 3.1),
                                     height_ratios=[2, 1] if with_retries else [1])
    panels = [row[0] for row in panels]
    looks = {client["node"]: LINES[i % len(LINES)] for i, client in enumerate(chosen)}
    for axes, curve, label in zip(panels, ("progress", "retry_progress"), (what, "retries")):
        for client in chosen:
            colour, dash, marker = looks[client["node"]]
            points = client.get(curve, [])
            axes.plot([point[0] for point in points], [point[1] for point in points], dash,
                      color=colour, marker=marker, markersize=4, linewidth=1.4,
                      markevery=max(1, len(points) // MARKS_A_LINE), label=client["node"])
        axes.set_ylim(bottom=0)
        axes.set_ylabel(label)
        axes.grid(axis="y")
    shown = [move for move in moves if move["client"] in looks]
    for i, move in enumerate(shown):
        colour, dash, _ = looks[move["client"]]
        for axes in panels:
            axes.axvline(move["t_s"], color=colour, linestyle=dash, linewidth=0.9)
        panels[0].annotate(f"{move['client']} to {move['to']}", (move["t_s"], 1),
                           xycoords=("data", "axes fraction"), textcoords="offset points",
                           xytext=(2, 3 + 9 * (len(shown) - 1 - i)), fontsize=7, color=colour)
    panels[0].legend(loc="upper left", fontsize=8, handlelength=3)
    panels[-1].set_xlim(left=0)
    panels[-1].set_xlabel("elapsed time, s")
    return _saved(pyplot, figure)


def sweep(lines, what, marked, mark):
    """Lines of {label: [(x, ratio)]} over a logarithmic x; a vertical line at `marked`."""
    pyplot = _plot()
    figure, axes = pyplot.subplots(figsize=(6.0, 3.3))
    for (label, points), (colour, dash, marker) in zip(lines.items(), LINES):
        axes.plot([x for x, _ in points], [y for _, y in points], dash, color=colour,
                  marker=marker, markersize=5, linewidth=1.4, label=label)
    axes.set_xscale("log", subs=[2, 5])
    axes.xaxis.set_minor_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylim(bottom=0)
    axes.axhline(1, color=INK, linewidth=0.8)
    axes.axvline(marked, color=FAINT, linestyle=":", linewidth=1)
    axes.annotate(mark, (marked, 0), xycoords=("data", "axes fraction"), fontsize=7,
                  textcoords="offset points", xytext=(3, 4), color=INK)
    axes.grid(axis="y")
    axes.set_xlabel(what)
    axes.set_ylabel("times as long")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=1, fontsize=8, handlelength=3)
    return _saved(pyplot, figure)


def heat_map(cells, titles, default):
    """Cells of {(x, y): ratio}, darker where it is larger, with the number in it.

    `titles`: of x and y. `default`: (x, y) of the cell that is framed and named. Grey alone tells
    as much: cividis falls in lightness all the way. Rectangles and no image, so that the SVG is
    one of lines and text.
    """
    pyplot = _plot()
    import matplotlib
    colours = matplotlib.colormaps["cividis_r"]
    xs, ys = (sorted({cell[i] for cell in cells}) for i in (0, 1))
    low, high = min(cells.values()), max(cells.values())
    figure, axes = pyplot.subplots(figsize=(1.4 + 0.95 * len(xs), 0.9 + 0.6 * len(ys)))
    for (x, y), ratio in cells.items():
        at = xs.index(x), ys.index(y)
        # From the best of all cells to a half more at least, so that noise does not look like much.
        shade = (ratio - low) / max(high - low, 0.5 * low)
        axes.add_patch(pyplot.Rectangle((at[0] - 0.5, at[1] - 0.5), 1, 1, edgecolor="#ffffff",
                                        facecolor=colours(shade), linewidth=1))
        is_default = (x, y) == default
        axes.annotate(f"{ratio:.2f}" + ("\ndefault" if is_default else ""), at, ha="center",
                      va="center", fontsize=9, fontweight="bold" if is_default else "normal",
                      color="#ffffff" if shade > 0.5 else "#000000")
    if default in cells:
        at = xs.index(default[0]), ys.index(default[1])
        for width, colour in ((4, "#000000"), (1.5, "#ffffff")):  # seen on dark and on light
            axes.add_patch(pyplot.Rectangle((at[0] - 0.46, at[1] - 0.43), 0.92, 0.86, fill=False,
                                            edgecolor=colour, linewidth=width))
    axes.set_xlim(-0.5, len(xs) - 0.5)
    axes.set_ylim(-0.5, len(ys) - 0.5)
    axes.set_xticks(range(len(xs)), [f"{x:g}" for x in xs])
    axes.set_yticks(range(len(ys)), [f"{y:g}" for y in ys])
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_xlabel(titles[0])
    axes.set_ylabel(titles[1])
    return _saved(pyplot, figure)


def own(draw, rows):
    """What an experiment's own draw(axes, rows) draws; what it sets holds for this figure only."""
    pyplot = _plot()
    with pyplot.rc_context():
        figure, axes = pyplot.subplots(figsize=(6.0, 3.3))
        try:
            draw(axes, rows)
            return _saved(pyplot, figure)
        finally:
            pyplot.close(figure)


def inline(svg, prefix, label):
    """SVG bytes as an element of a page: ids of its own, a label for who does not see it."""
    text = svg.decode()
    text = text[text.index("<svg"):]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r'(\bid="|href="#|url\(#)', lambda match: f"{match.group(1)}{prefix}-", text)
    # What names the vocabulary of a file; an HTML page knows it.
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    escaped = label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return text.replace("<svg", f'<svg role="img" aria-label="{escaped}"', 1)


def _wrapped(title):
    return "\n".join(textwrap.wrap(title, 16))
