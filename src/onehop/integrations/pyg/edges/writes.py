"""Writes to an index between a forward pass and its backward pass, which autograd reports in PyG."""

from typing import Any

import torch
from torch import Tensor

from onehop.ops.contexts import saving_is_watched


def watch(index: Any, out: Any) -> None:
    """Has the backward pass of a result raise if the index of its edges is written to in the meantime.

    PyG's gathers and scatters save the index, and autograd compares its version. Here a graph is kept in
    place of the index, so that the gradient would be that of the edges as they were.

    Args:
        index: The edges, or the ends or bounds of entries; all but a dense tensor is left alone.
        out: What was made over them; a tensor without a history is left alone.

    Raises:
        RuntimeError: The index was made in inference mode: torch cannot save it.
    """
    if type(index) is not Tensor or index.layout is not torch.strided:
        return
    # What passes through hooks, as in activation checkpointing, has no version that autograd compares.
    if not isinstance(out, Tensor) or out.grad_fn is None or saving_is_watched():
        return
    if index.is_inference():
        out.index_select(0, index[..., :0].flatten())  # raises torch's error
        return
    # Another object, which stays what it is if the user swaps tensors.
    index = index.detach()
    version = index._version

    def check(*_: Any) -> None:
        if index._version != version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace "
                f"operation: [{index.type()} {list(index.shape[-1:])}] is at version {index._version}; "
                f"expected version {version} instead. Hint: an index of edges was written to after the "
                "forward pass that read it."
            )

    out.grad_fn.register_prehook(check)
