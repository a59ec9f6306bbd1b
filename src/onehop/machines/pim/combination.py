"""Model of the host's work: the time of a model's dense products and of its passes over matrices.

The networks are the networks of the PyGim paper's repository (:mod:`onehop.bench.near_bank` has them in
torch): a linear layer to the hidden width and ReLU; for each layer the convolution, batch normalisation and
ReLU; and a linear layer to the classes. A pass reads or writes one float32 matrix of nodes times hidden
width.
"""

from dataclasses import dataclass

from onehop.errors import ArgumentError, check_choice
from onehop.machines.common.checks import check
from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.parts import Power

KINDS = ("gcn", "gin", "sage")
_ITEM_BYTES = 4
# Number of hidden-by-hidden products in a layer.
_PRODUCTS = {"gcn": 1, "gin": 2, "sage": 2}
# Passes of a layer: normalisation and ReLU read and write. GCN scales before and after the sums. GIN adds its
# input to the sums and has a ReLU between its products. SAGE divides, and adds its two products.
_LAYER_PASSES = {"gcn": 4 + 4, "gin": 4 + 3 + 2, "sage": 4 + 2 + 3}
# Quantising finds the largest magnitude, then reads and writes; dequantising reads and writes.
_QUANTISE_PASSES = 5


@dataclass(frozen=True, slots=True)
class HostWork:
    """Work of the host between aggregations.

    Attributes:
        flops: Multiplications and additions of dense products.
        moved_bytes: Bytes that passes over whole matrices read and write.
    """

    flops: float
    moved_bytes: float

    def time_ns(self, config: PimConfig) -> float:
        """Return the time on a machine's host: products at the product rate, the rest at the memory rate."""
        return self.flops / config.host.product_gflops + self.moved_bytes / config.host.stream_gbps


@dataclass(frozen=True, slots=True)
class Network:
    """Size of a network.

    Attributes:
        kind: One of :data:`KINDS`.
        nodes: Rows of every matrix.
        features: Columns of the input.
        hidden: Columns of every aggregation.
        classes: Columns of the output.
        layers: Number of convolutions.
        quantised: Whether features go to the cores as integers.

    Raises:
        ArgumentError: ``kind`` is unknown, or a number is not an integer of at least 1 (``nodes``: 0).
    """

    kind: str
    nodes: int
    features: int
    hidden: int
    classes: int
    layers: int = 2
    quantised: bool = True

    def __post_init__(self) -> None:
        check_choice("model", self.kind, KINDS)
        check(self, error=ArgumentError, least={"nodes": 0})

    @property
    def work(self) -> HostWork:
        """All work of the host except the aggregations."""
        products = self.hidden * (
            self.features + self.classes + self.layers * _PRODUCTS[self.kind] * self.hidden
        )
        passes = self.layers * (_LAYER_PASSES[self.kind] + self.quantised * _QUANTISE_PASSES)
        # The first ReLU reads and writes.
        passes += 2
        return HostWork(2.0 * self.nodes * products, float(self.nodes * self.hidden * _ITEM_BYTES * passes))

    def time_ns(self, config: PimConfig) -> float:
        """Return the time of the combination on a machine's host."""
        return self.work.time_ns(config)


def combination_energy_nj(power: Power, ranks: int, time_ns: float) -> float:
    """Return the energy of host and ranks while the host combines; the ranks are always powered."""
    return (power.host_w + power.rank_w * ranks) * time_ns
