"""The clock of the near-data units, which the paper does not give, and which decides products."""

from onehop.graph import Graph
from onehop.machines.ndp import Machine, NdpPlan
from onehop.reproduce.grande.graphs import Twin
from onehop.reproduce.rows import Row

CLOCKS_MHZ = (300, 600, 1200, 2400)
# The best speed-up over the host that the paper gives, of whatever graph.
_PAPER_BEST = 4.00


def rows(twin: Twin, graph: Graph, quick: bool) -> list[Row]:
    """Best layer of products over the host, by clock; none for other graphs."""
    if twin.name != "products":
        return []
    found = []
    base = Machine("grande_16")
    for clock in CLOCKS_MHZ:
        machine = base.change(module={"clock_mhz": float(clock)})
        layers = machine.layers(graph, twin.widths, NdpPlan(), record=0)
        found.append(
            Row(
                figure=f"best layer over the host, units at {clock} MHz, {twin.label(quick)}",
                paper=_PAPER_BEST,
                ours=max(layer.baseline.time_ns / layer.time_ns for layer in layers),
                unit="x",
                note="The paper gives neither the clock nor the graph of its best figure.",
            )
        )
    return found
