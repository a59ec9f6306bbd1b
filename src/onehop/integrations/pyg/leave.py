"""Refusals, after which PyG's own code runs: their sentences, exceptions, and functions that raise them."""

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.nn import Parameter

from onehop.integrations.rows import Leave as Leave
from onehop.ops.contexts import autocasts, wraps

LEFT_TO_PYG = "PyG is left to report what does not fit"
SIGNALS = "node_dim is not the first of two dimensions of its operands"
OUT_OF_RANGE = "a node number is out of range, or there are too many nodes"
VALUES_ELSEWHERE = (
    "edge_index is a sparse matrix, whose values PyG's plain propagate passes as other arguments too"
)
EXPLAINED = "an explainer is at work on it"
OTHER_OPERANDS = "propagate gets other operands than the message needs"
TOO_SMALL = "its graph has so few edges that PyG's own code is as fast"
FITS_CACHE = "its message is not compiled, and fits in the cache, where PyG's own code is as fast as blocks"
BIPARTITE_BACKWARDS = "bipartite features meet flow='target_to_source'"
OWN_PRODUCT = "edge_index is a sparse matrix, for which PyG has its own code"

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


class OfSignals(Leave):
    """The operands belong to several signals over one graph."""


class Explained(Leave):
    """An explainer is running on the layer."""


class OtherOperands(Leave):
    """The names of the operands differ from the rule's operands."""


def need(condition: object, sentence: str = LEFT_TO_PYG, kind: type[Leave] = Leave) -> None:
    """Raises ``kind(sentence)`` unless the condition holds."""
    if not condition:
        raise kind(sentence)


def leave_if(sentence: str | None) -> None:
    """Raises :class:`Leave` if the sentence is not None."""
    if sentence is not None:
        raise Leave(sentence)


def is_plain(value: object) -> bool:
    """Return whether a value is a tensor or a parameter, and not of a subclass."""
    return type(value) is Tensor or type(value) is Parameter


TRACED = (FakeTensor, FunctionalTensor)
"""The types of tensors and parameters while ``torch.export`` traces a model."""

EXACT = (torch.float32, torch.float64)
"""The dtypes of features that replaced ``forward`` functions take."""


def are_dense(*tensors: Any, dtype: torch.dtype, dims: int | None = None) -> bool:
    """Return whether all are plain, dense CPU tensors of one dtype, outside of torch.func transforms.

    Args:
        *tensors: The tensors, or any other objects.
        dtype: Their dtype.
        dims: Their number of dimensions; None means any.
    """
    return all(
        is_plain(tensor)
        and tensor.dtype is dtype
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and (dims is None or tensor.dim() == dims)
        for tensor in tensors
    ) and not wraps(*tensors)


def are_features(x: Any, *learned: Tensor, dims: int | None = 2) -> bool:
    """Return whether features and learned tensors are dense, on the CPU, and all float32 or all float64.

    The result is False under autocast, which would convert them.

    Args:
        x: The features.
        *learned: Parameters and other tensors of the same dtype, with any number of dimensions.
        dims: The number of dimensions of the features; None means any.
    """
    return (
        is_plain(x)
        and x.dtype in EXACT
        and are_dense(x, dtype=x.dtype, dims=dims)
        and are_dense(*learned, dtype=x.dtype)
        and not autocasts(x)
    )


def are_numbers(*tensors: Any) -> bool:
    """Return whether all are dense int64 tensors on the CPU that the cache can recognise."""
    return are_dense(*tensors, dtype=torch.int64) and not any(
        type(tensor) is not Tensor or tensor.is_inference() for tensor in tensors
    )
