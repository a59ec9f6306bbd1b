"""The specification of each operator: its call, and one naive torch function, to which tests compare results.

The functions only use ``edge_index``, work on any device and dtype, and are differentiated by torch itself.
"""

from onehop.reference.aggregate import aggregate
from onehop.reference.arg_extremum import arg_extremum
from onehop.reference.attention import attention, gat, gatv2
from onehop.reference.dropout import dropout, dropout_mask
from onehop.reference.edge_softmax import edge_softmax
from onehop.reference.fusedmm import fusedmm
from onehop.reference.message import message
from onehop.reference.sddmm import sddmm
from onehop.reference.tensor_product import tensor_product

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
    "tensor_product",
]
