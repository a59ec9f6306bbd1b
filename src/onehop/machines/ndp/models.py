"""The host's part of whole models: dense products and elementwise passes of each layer, at given rates."""

from dataclasses import dataclass, replace
from itertools import pairwise

from onehop.errors import check_choice
from onehop.machines.common.checks import check_integer
from onehop.machines.ndp.config import Host
from onehop.machines.ndp.mapping import ELEMENT_BYTES

MODELS = ("gcn", "sage", "gin")


@dataclass(frozen=True, slots=True)
class LayerWork:
    """A layer of a model that aggregates first and then computes on the host.

    Attributes:
        width: Number of columns that the layer aggregates.
        outputs: Number of columns of the layer's output.
        flops: Operations of the layer's dense products per target.
        passed_bytes: Bytes that the layer's elementwise passes read and write per target.
        ns: Time of products and passes per target, on all of the host's cores.
    """

    width: int
    outputs: int
    flops: int
    passed_bytes: int
    ns: float

    @property
    def without_host(self) -> "LayerWork":
        """Return the layer with a host that takes no time."""
        return replace(self, ns=0.0)


def layer_works(model: str, widths: list[int], host: Host) -> list[LayerWork]:
    """Return the layers of a model.

    ``gcn``: the aggregation is scaled at both ends, followed by one product. ``sage``: the mean, a product of
    the mean and a product of the target's own vector; the latter was computed when that vector was made.
    ``gin``: a sum with the target's own vector as a self loop, and two products with an activation between
    them. All layers except the last end with an activation. A bias is part of the pass before it.

    Args:
        model: One of :data:`MODELS`.
        widths: Columns of the features, of each hidden layer's output and of the classes: L + 1 numbers for L
            layers.
        host: The host, which gives the rates.

    Raises:
        ArgumentError: The model is unknown, or a width is not a positive integer.
    """
    check_choice("model", model, MODELS)
    for width in widths:
        check_integer("width", width)
    works = []
    for number, (columns, outputs) in enumerate(pairwise(widths)):
        is_last = number == len(widths) - 2
        one = 2 * columns * outputs
        flops = {"gcn": one, "sage": 2 * one, "gin": one + 2 * outputs * outputs}[model]
        # Each pass reads and writes its numbers: scaling of the aggregated vectors, the sum of two products,
        # activations.
        passes = {"gcn": columns, "sage": columns + outputs, "gin": outputs}[model]
        passes += 0 if is_last else outputs
        passed = 2 * passes * ELEMENT_BYTES
        ns = flops / host.combine_gflops + passed / host.reduce_gbps
        works.append(LayerWork(columns, outputs, flops, passed, ns))
    return works
