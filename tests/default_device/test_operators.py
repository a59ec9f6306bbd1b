"""Every operator, its gradients and its random numbers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import onehop
from onehop import Graph
from onehop.kernels.triton import availability
from tests.default_device.ways import EDGES, HEADS, NODES, WIDTH, assert_same_bits, new_graph, number
from tests.ops.checking import On, gradients
from tests.ops.operators import CASES, results


def recorded(name: str, **more: Any) -> Callable[[], list[Tensor]]:
    """Results and gradients of an operator, on a graph of which nothing is kept."""
    on = On(name, "random", torch.float32)
    pulled = on.pulled()

    def run() -> list[Tensor]:
        graph = Graph.from_edge_index(on.edge_index, size=(on.graph.num_src, on.num_dst))
        leaves = [leaf.detach().requires_grad_() for leaf in on.leaves]
        out = results(on.case.fast, graph, **dict(zip(on.names, leaves, strict=True)), **more)
        return [*(each.detach() for each in out), *gradients(out, leaves, pulled)]

    return run


def dropped_out() -> list[Tensor]:
    """Dropout whose seed is drawn from torch's own numbers, and the numbers that come after."""
    torch.manual_seed(7)
    rows = number(NODES, HEADS, WIDTH)
    return [onehop.attention(new_graph(), rows, rows, rows, dropout=0.5), torch.rand(3, device="cpu")]


def masked() -> list[Tensor]:
    rows = number(NODES, HEADS, WIDTH)
    return [onehop.attention(new_graph(), rows, rows, rows, edge_mask=number(EDGES, HEADS))]


OTHERS: dict[str, Callable[[], list[Tensor]]] = {
    "sum by the reference": recorded("sum, one scale", backend="reference"),
    "dropout by the reference": recorded("attention, edges", backend="reference"),
    "dropout": dropped_out,
    "mask": masked,
    "no columns": lambda: [onehop.sddmm(new_graph(), number(NODES, HEADS, 0), number(NODES, HEADS, 0))],
    "large outputs": lambda: [onehop.aggregate(new_graph(), number(NODES, 8192))],
}


@pytest.mark.parametrize("name", CASES)
def test_same_bits_whatever_the_default_device(name: str, elsewhere: Callable[[], Any]) -> None:
    assert_same_bits(recorded(name), elsewhere)


@pytest.mark.parametrize("name", OTHERS)
def test_options_whatever_the_default_device(name: str, elsewhere: Callable[[], Any]) -> None:
    assert_same_bits(OTHERS[name], elsewhere)


@pytest.mark.skipif(availability.not_installed() is not None, reason="no triton for them")
@pytest.mark.usefixtures("interpreter")
# Interpreted, on CPU tensors.
@pytest.mark.parametrize("name", ["sum, scaled", "max, weighted", "gat, weights"])
def test_same_bits_from_the_kernels_of_gpus(name: str, elsewhere: Callable[[], Any]) -> None:
    assert_same_bits(recorded(name, backend="triton"), elsewhere)
