"""Calls into the extension. They trust their arguments: shapes, dtypes and devices were checked before."""

from onehop.kernels.cpu.aggregate import aggregate, extremum, extremum_grad_source, extremum_grad_weight
from onehop.kernels.cpu.attention import attend, attend_grad
from onehop.kernels.cpu.edge_softmax import edge_softmax, edge_softmax_grad
from onehop.kernels.cpu.fusedmm import fusedmm
from onehop.kernels.cpu.ordered_weights import in_graph_order
from onehop.kernels.cpu.sddmm import sddmm

__all__ = [
    "aggregate",
    "attend",
    "attend_grad",
    "edge_softmax",
    "edge_softmax_grad",
    "extremum",
    "extremum_grad_source",
    "extremum_grad_weight",
    "fusedmm",
    "in_graph_order",
    "sddmm",
]
