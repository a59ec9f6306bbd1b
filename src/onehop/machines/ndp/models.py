"""The host's part of whole models: products and elementwise passes of each layer, at stated rates."""

from dataclasses import dataclass, replace
from itertools import pairwise

from onehop.errors import check_choice
from onehop.machines.common.checks import check_integer
from onehop.machines.ndp.config import Host
from onehop.machines.ndp.mapping import ELEMENT_BYTES

MODELS = ("gcn", "sage", "gin")


@dataclass(frozen=True, slots=True)
class LayerWork:
    """A layer, aggregation first.

    Attributes:
        width: Columns that it aggregates.
        outputs: Columns that it makes of them.
        flops: Operations of its dense products, for one target.
        passed_bytes: Bytes that its elementwise passes read and write, for one target.
        ns: Time of both for one target, on all of the host's cores.
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
    """The layers of a model.

    ``gcn``: aggregates scaled by both ends, one product. ``sage``: the mean, a product of it and one of the
    target's own vector; the latter was at hand when that vector was made. ``gin``: sum with the target's own
    vector as a self loop, two products with an activation between them. All but the last layer end with an
    activation. A bias is part of the pass before.

    Args:
        model: One of :data:`MODELS`.
        widths: Columns of the features, of what each layer but the last makes, and of the classes: L + 1 for
            L layers.
        host: Its rates.

    Raises:
        ArgumentError: An unknown model, or a width that is not a positive integer.
    """
    check_choice("model", model, MODELS)
    for width in widths:
        check_integer("width", width)
    works = []
    for number, (columns, outputs) in enumerate(pairwise(widths)):
        is_last = number == len(widths) - 2
        one = 2 * columns * outputs
        flops = {"gcn": one, "sage": 2 * one, "gin": one + 2 * outputs * outputs}[model]
        # Each pass reads and writes its numbers: scaling of what was aggregated, the sum of two products,
        # activations.
        passes = {"gcn": columns, "sage": columns + outputs, "gin": outputs}[model]
        passes += 0 if is_last else outputs
        passed = 2 * passes * ELEMENT_BYTES
        ns = flops / host.combine_gflops + passed / host.reduce_gbps
        works.append(LayerWork(columns, outputs, flops, passed, ns))
    return works
