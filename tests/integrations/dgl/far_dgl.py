"""DGL's graphs as if on the device "far", for DGL that knows CPUs alone.

What onehop and DGL's layers in Python ask a graph for, where it is, its edges and degrees, is answered with
tensors of the device. DGL's own kernels would find no memory there, so that whatever is left to them fails.
"""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

from onehop.bench.peers.dgl import help_import
from tests.far_device import far, near

help_import()

import dgl  # noqa: E402
from dgl.heterograph_index import HeteroGraphIndex  # noqa: E402

DEVICE = far(torch.empty(0)).device


def _answered_there(name: str) -> Any:
    theirs = getattr(HeteroGraphIndex, name)

    def ours(self: Any, *args: Any) -> Any:
        found = theirs(self, *map(near, args))
        return tuple(map(far, found)) if isinstance(found, tuple) else far(found)

    return mock.patch.object(HeteroGraphIndex, name, ours)


@contextlib.contextmanager
def graphs_there() -> Iterator[None]:
    """Within it, graphs that were made outside are on the device. None may have been used outside."""
    with contextlib.ExitStack() as stack:
        for name in ("edges", "has_nodes", "in_degrees", "out_degrees"):
            stack.enter_context(_answered_there(name))
        stack.enter_context(mock.patch.object(dgl.backend, "to_backend_ctx", return_value=DEVICE))
        yield
