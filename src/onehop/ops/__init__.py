"""The differentiable operators that users call, registered with torch.library."""

from onehop.ops.aggregate import aggregate
from onehop.ops.attention import attention, gat, gatv2
from onehop.ops.attention_checks import AttentionOptions
from onehop.ops.dropout import dropout
from onehop.ops.edge_softmax import edge_softmax
from onehop.ops.extremum import extremum
from onehop.ops.fusedmm import fusedmm
from onehop.ops.rows import gather, scatter
from onehop.ops.sddmm import sddmm
from onehop.ops.tensor_product import tensor_product

__all__ = [
    "AttentionOptions",
    "aggregate",
    "attention",
    "dropout",
    "edge_softmax",
    "extremum",
    "fusedmm",
    "gat",
    "gather",
    "gatv2",
    "scatter",
    "sddmm",
    "tensor_product",
]
