"""How layers' own messages on graphs too small for a plan are compared with PyG's: bits, errors, records."""

from collections.abc import Callable
from typing import Any, Optional

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.typing import OptTensor

import onehop
from onehop import thresholds
from onehop.integrations.pyg import small_graphs
from onehop.loading import DISTRIBUTED
from tests.integrations.same import assert_identical, outcome

NODES, EDGES, WIDTH = 7, 19, 4
# PyG does not know the shorter way to write it.
Rows = Optional[int]  # noqa: UP045


@pytest.fixture(autouse=True)
def ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)
    # Where onehop.distributed has been imported, PyG's propagate runs inside a context of its own.
    monkeypatch.setattr(DISTRIBUTED, "provided", None)


@pytest.fixture(autouse=True)
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The classes of the layers that ran without PyG's propagate."""
    classes: list[str] = []
    run = small_graphs.Steps.run

    def counted(self: Any, layer: Any, *args: Any) -> Any:
        out = run(self, layer, *args)
        if out is not small_graphs.NOT_RUN:
            classes.append(type(layer).__name__)
        return out

    monkeypatch.setattr(small_graphs.Steps, "run", counted)
    return classes


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def some_edges(nodes: int = NODES, count: int = EDGES) -> Tensor:
    return torch.randint(nodes, (2, count), generator=torch.Generator().manual_seed(3))


class Everything(gnn.MessagePassing):
    """Takes all that PyG collects."""

    calls = 0

    def forward(
        self, x: Any, edge_index: Tensor, z: Any = None, edge_attr: OptTensor = None, size: Any = None
    ) -> Tensor:
        return self.propagate(edge_index, x=x, z=z, edge_attr=edge_attr, size=size)

    def message(
        self,
        x_j: Tensor,
        x_i: OptTensor,
        z_j: OptTensor,
        edge_attr: OptTensor,
        index: Tensor,
        edge_index: Tensor,
        edge_index_i: Tensor,
        edge_index_j: Tensor,
        ptr: OptTensor,
        size_i: Rows,
        size_j: Rows,
        dim_size: Rows,
        scale: float = 2.0,
        missing: OptTensor = None,
    ) -> Tensor:
        Everything.calls += 1
        assert ptr is None
        assert missing is None
        assert size_i == dim_size
        factor = scale + float(size_i or 0) + 3 * float(size_j or 0)
        ends = edge_index[0] - 2 * edge_index[1] + 3 * edge_index_i - 5 * edge_index_j + index
        out = x_j * factor
        for other in (x_i, z_j, edge_attr):
            if other is not None:
                out = out * other + 1
        return out + ends.to(out.dtype).view(
            -1, *[1] * (out.dim() - 1 - (self.node_dim % out.dim()))
        ).expand_as(out)


def recorded(tensor: Any) -> list[str]:
    """The names of the functions that autograd recorded."""
    names, queue = [], [tensor.grad_fn] if isinstance(tensor, Tensor) else []
    while queue:
        node = queue.pop()
        if node is not None:
            # PyG's extrema of few rows are served wherever they are called.
            names.append(node.name().replace("_SumBackward", "ScatterReduceBackward0"))
            queue += [each for each, _ in node.next_functions]
    return names


def trained(layer: Any, *args: Any, **kwargs: Any) -> Callable[[], Any]:
    """Runs a layer, and gives its result, what autograd recorded, and the gradients to all that has one."""
    leaves = [
        each for arg in (*args, *kwargs.values()) for each in (arg if isinstance(arg, tuple) else (arg,))
    ]
    leaves = [each for each in leaves if isinstance(each, Tensor) and each.requires_grad]

    def run() -> Any:
        out = layer(*args, **kwargs)
        if not isinstance(out, Tensor) or not out.requires_grad:
            return out
        weight = numbers(*out.shape, seed=9).to(out.dtype)
        gradients = torch.autograd.grad((out * weight).sum(), leaves, allow_unused=True)
        finite = [None if gradient is None else gradient.nan_to_num() for gradient in gradients]
        return out.detach(), recorded(out), finite

    return run


def compare(run: Callable[[], Any], calls: Any = None) -> Any:
    """Compares bits, records and errors of three calls under the patch, of which the first says why."""

    def counted() -> Any:
        if calls is not None:
            calls.calls = 0
        return outcome(run), None if calls is None else calls.calls

    expected = counted()
    with onehop.patch():
        for _ in range(3):
            assert_identical(counted(), expected)
    return expected[0]
