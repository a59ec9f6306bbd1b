"""Refusals of propagations, which PyG's own code runs then: sentences, and functions that raise them."""

import torch
from torch import Tensor
from torch.nn import Parameter

from onehop.integrations.rows import Leave as Leave

LEFT_TO_PYG = "PyG is left to report what does not fit"
OUT_OF_RANGE = "a node number is out of range, or there are too many nodes"
VALUES_ELSEWHERE = (
    "edge_index is a sparse matrix, whose values PyG's plain propagate passes as other arguments too"
)
OTHER_OPERANDS = "propagate gets other operands than the message needs"
TOO_SMALL = "its graph has so few edges that PyG's own code is as fast"
FITS_CACHE = "its message is not compiled, and fits in the cache, where PyG's own code is as fast as blocks"
BIPARTITE_BACKWARDS = "bipartite features meet flow='target_to_source'"
OWN_PRODUCT = "edge_index is a sparse matrix, for which PyG has its own code"

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def need(condition: object, sentence: str = LEFT_TO_PYG) -> None:
    """Raises :class:`Leave` with the sentence unless the condition holds."""
    if not condition:
        raise Leave(sentence)


def leave_if(sentence: str | None) -> None:
    """Raises :class:`Leave` if there is a sentence."""
    if sentence is not None:
        raise Leave(sentence)


def is_plain(value: object) -> bool:
    """Return whether a value is a tensor or a parameter, and of no class derived from these."""
    return type(value) is Tensor or type(value) is Parameter
