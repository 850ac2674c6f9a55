"""A plot of one's own, beside the bars that each experiment has; without this file there is none."""

CAPTION = "Each run's elapsed time, so that one sees what the intervals are made of"


def draw(axes, rows):
    """Draws on matplotlib's `axes`.

    `rows`: of those that were run, `row` (experiment.toml), `evidence.records` ({placement: [raw
    record]}) and what is worked out from them (harness/claims.py, Evidence).
    """
    labels = []
    for result in rows:
        for placement, records in result.evidence.records.items():
            axes.plot([len(labels)] * len(records), [record["elapsed_s"] for record in records], "o",
                      color="#0072b2", fillstyle="none")
            labels.append(f"{result.row.name}\n{placement}")
    axes.set_xticks(range(len(labels)), labels)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("elapsed time, s")
