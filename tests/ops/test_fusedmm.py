import pytest
import torch

import onehop
from onehop import ArgumentError, Graph, reference
from onehop.ops.fusedmm import KERNELS
from tests.ops.comparison import compare
from tests.ops.hostile_graphs import HOSTILE


def check(name, kernel, width, dtype):
    edge_index, num_src, num_dst = HOSTILE[name]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    generator = torch.Generator().manual_seed(0)
    inputs = {
        key: torch.randn(rows, width, generator=generator, dtype=torch.float64).to(dtype)
        for key, rows in (("dst", num_dst), ("src", num_src))
    }
    compare(
        lambda **kw: onehop.fusedmm(graph, kernel=kernel, **kw),
        lambda **kw: reference.fusedmm(edge_index, kernel=kernel, **kw),
        inputs,
        ["dst", "src"],
        # Distances are differences of squared lengths.
        magnitude=float(width),
    )


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_graphs(name, kernel):
    check(name, kernel, 17, torch.float64)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("width", [1, 3, 63, 129])
def test_widths(width, kernel):
    check("random", kernel, width, torch.float32)


def test_a_node_exerts_no_force_on_itself():
    x = torch.randn(9, 5, generator=torch.Generator().manual_seed(0)) * 100
    graph = Graph.from_edge_index(HOSTILE["self_loops"][0])
    assert onehop.fusedmm(graph, x, x, "tdist").abs().max() < 1e-2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernel": "gauss"}, "kernel: expected one of sigmoid, tdist, got 'gauss'"),
        ({"src": torch.ones(3, 5)}, "dst, src: expected matrices of the same width"),
        ({"src": torch.ones(4, 2)}, "src: expected a row for each of the 3 sources"),
        ({"dst": torch.ones(3, 2, dtype=torch.int32)}, "dst: expected float32"),
    ],
)
def test_mistakes_are_named(arguments, message):
    graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
    with pytest.raises(ArgumentError, match=message):
        onehop.fusedmm(
            **{
                "graph": graph,
                "dst": torch.ones(3, 2),
                "src": torch.ones(3, 2),
                "kernel": "tdist",
                **arguments,
            }
        )
