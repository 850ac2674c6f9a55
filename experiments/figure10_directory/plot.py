"""Table 1 as bars: retries under high contention, beside the paper's."""

CAPTION = ("Table 1: retries per 200 inserts at each placement (a symmetric logarithmic scale); the line "
           "is the paper's")
PLACEMENTS = ("client", "adaptive", "server")


def draw(axes, rows):
    """Of the rows that Table 1 is made of, those that were run."""
    labels = []
    for result in rows:
        for placement in PLACEMENTS:
            paper = result.row.paper_retries.get(placement)
            ours = result.evidence.retries(placement)
            if paper is None or ours is None:
                continue
            at = len(labels)
            axes.bar(at, ours.mean, 0.7, facecolor="#ffffff", edgecolor="#222222", hatch="///",
                     yerr=ours.half)
            axes.plot([at - 0.4, at + 0.4], [paper, paper], color="#d55e00", linewidth=1.8)
            axes.annotate(f"{ours.mean:.3g}", (at, ours.mean), textcoords="offset points",
                          xytext=(0, 2.5), ha="center", va="bottom", fontsize=7)
            labels.append(f"{result.row.network}\n{placement}")
    axes.set_xticks(range(len(labels)), labels)
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("retries per 200 inserts")
