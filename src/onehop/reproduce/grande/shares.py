"""Share of aggregation on the paper's host (Figure 2): needs that host."""

from onehop.reproduce.grande.graphs import TWINS
from onehop.reproduce.rows import Row, missing


def rows() -> list[Row]:
    """The four published shares."""
    return [
        missing(
            f"share of aggregation in a GCN's time, {twin.name}",
            "%",
            twin.aggregation_percent,
            "Needs the paper's Xeon Gold 6138; `onehop bench models` has the shares of this machine.",
        )
        for twin in TWINS
    ]
