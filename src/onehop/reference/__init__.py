"""The specification of each operator: its call, and one naive torch function, the only oracle of the tests.

The functions work on ``edge_index`` alone, on any device and dtype, and are differentiable by torch itself.
"""

from onehop.reference.aggregate import aggregate
from onehop.reference.arg_extremum import arg_extremum
from onehop.reference.attention import attention, gat, gatv2
from onehop.reference.dropout import dropout, dropout_mask
from onehop.reference.edge_softmax import edge_softmax
from onehop.reference.fusedmm import fusedmm
from onehop.reference.message import message
from onehop.reference.sddmm import sddmm

__all__ = [
    "aggregate",
    "arg_extremum",
    "attention",
    "dropout",
    "dropout_mask",
    "edge_softmax",
    "fusedmm",
    "gat",
    "gatv2",
    "message",
    "sddmm",
]
