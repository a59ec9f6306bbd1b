"""Calls into the extension. They trust their arguments: shapes, dtypes and devices were checked before."""

from onehop.kernels.cpu.aggregate import aggregate, extremum, extremum_grad_source, extremum_grad_weight
from onehop.kernels.cpu.ordered_weights import in_graph_order
from onehop.kernels.cpu.sddmm import sddmm

__all__ = [
    "aggregate",
    "extremum",
    "extremum_grad_source",
    "extremum_grad_weight",
    "in_graph_order",
    "sddmm",
]
