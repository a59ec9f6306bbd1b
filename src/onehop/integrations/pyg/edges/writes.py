"""Detection of writes to an index between a forward and its backward pass, which autograd reports in PyG."""

from typing import Any

import torch
from torch import Tensor

from onehop.ops.contexts import saving_is_watched


def watch(index: Any, out: Any) -> None:
    """Makes the backward pass of a result raise if the index of its edges is written to in the meantime.

    PyG's gathers and scatters save the index, and autograd compares its version. Here a graph is kept instead
    of the index, so the gradient would silently belong to the old edges.

    Args:
        index: The edges, or an index or bounds of rows; anything but a dense tensor is ignored.
        out: The result over the index; a tensor without autograd history is ignored.

    Raises:
        RuntimeError: The index was made in inference mode, so torch cannot save it.
    """
    if type(index) is not Tensor or index.layout is not torch.strided:
        return
    # Tensors that pass through saved-tensor hooks, as in activation checkpointing, have no version to
    # compare.
    if not isinstance(out, Tensor) or out.grad_fn is None or saving_is_watched():
        return
    if index.is_inference():
        out.index_select(0, index[..., :0].flatten())  # raises torch's error
        return
    # This is another tensor object, which stays the same if the user swaps tensors.
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
