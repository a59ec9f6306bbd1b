"""Sparse matrices for tests of the patch, and ways to call a layer with them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from tests.integrations.pyg.layers import CASES, NODES
from tests.integrations.same import same

LAYOUTS = ("csr", "csc", "coo", "uncoalesced")

WARNINGS = ("ignore:Sparse:UserWarning", "ignore:Converting sparse tensor to CSR format:UserWarning")
"""Torch says once in a process what it thinks of sparse matrices, and PyG what of their layouts."""


def entries(edge_index: Tensor) -> Tensor:
    """[2, E]: rows and columns of the transposed adjacency, each entry once, in order."""
    return edge_index.flip(0).unique(dim=1).contiguous()


def matrix(
    layout: str,
    at: Tensor,
    values: Tensor,
    shape: tuple[int, int] = (NODES, NODES),
    index: torch.dtype = torch.int64,
) -> Tensor:
    """A sparse matrix, with gradients to the values; the values of CSC are in the order of CSC."""
    at = at.clone()
    if layout == "uncoalesced":
        again = torch.cat([at, at[:, :5]], 1)
        return torch.sparse_coo_tensor(again, torch.cat([values, values[:5]]), shape)
    if layout == "coo":
        return torch.sparse_coo_tensor(at, values, shape, is_coalesced=True)
    if layout == "csc":
        at = at[:, at[1].argsort(stable=True)].flip(0)
    rowptr = torch.zeros(shape[layout == "csc"] + 1, dtype=torch.int64)
    rowptr[1:] = torch.bincount(at[0], minlength=shape[layout == "csc"]).cumsum(0)
    make = torch.sparse_csr_tensor if layout == "csr" else torch.sparse_csc_tensor
    return make(rowptr.to(index), at[1].to(index), values, shape)


def model_of(name: str, dtype: torch.dtype = torch.float64) -> torch.nn.Module:
    torch.manual_seed(0)
    return CASES[name].make().to(dtype)


def _checkpointed(conv: torch.nn.Module, x: Tensor, adjacency: Any) -> Any:
    x = x.clone().requires_grad_()
    checkpoint(conv, x, adjacency, use_reentrant=False).sum().backward()
    return x.grad


CONTEXTS: dict[str, Callable[..., Tensor]] = {
    "autocast": lambda conv, x, adjacency: torch.autocast("cpu", torch.bfloat16)(conv)(x, adjacency),
    "grad": lambda conv, x, adjacency: torch.func.grad(lambda x: conv(x, adjacency).sum())(x),
    "inference": lambda conv, x, adjacency: torch.inference_mode()(conv)(x, adjacency),
    "made in inference": torch.inference_mode()(lambda conv, x, adjacency: conv(x, adjacency.clone())),
    "checkpointed": _checkpointed,
}
"""Ways to call a layer."""


def assert_same_in_context(context: str, model: torch.nn.Module, x: Tensor, adjacency: Any) -> None:
    """The patch gives what PyG gives in a context: the same result, or the same error."""
    # Autocast rounds to 8 bits.
    close = {"rtol": 0.02, "atol": 0.05} if context == "autocast" else {"rtol": 1e-5, "atol": 1e-5}
    same(lambda: CONTEXTS[context](model, x, adjacency), times=3, errors=True, **close)
