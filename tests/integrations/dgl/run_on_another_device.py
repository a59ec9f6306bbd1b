"""DGL's operators and layers on a device that is not the CPU, through the GPU's kernels, interpreted.

A program of its own, for a process can have one such device. Results and gradients are compared with those of
the CPU's kernels under the patch, which other tests compare with DGL's own. Prints a line for each case, with
what ran on the backend. Numbers are multiples of a quarter in float64, so that many tie.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import onehop
from onehop.graph import placed
from onehop.integrations import reports
from tests.far_device import far, move, near
from tests.far_triton import FarTriton

from tests.integrations.dgl.far_dgl import graphs_there  # isort: skip (it helps DGL to be imported)
from tests.integrations.dgl.dgl_graphs import GRAPHS, features  # isort: skip

import dgl  # isort: skip
import dgl.nn.pytorch as dnn  # isort: skip

IN, OUT, HEADS = 6, 4, 3
ROWS = {"u": "num_src_nodes", "v": "num_dst_nodes", "e": "num_edges"}


@dataclass(frozen=True)
class Case:
    """An operator, or a layer, and what it gets.

    Attributes:
        run: Of the layer, if there is one, the graph and the operands.
        operands: Of each, whether it has a row a source, destination or edge, and the shape of a row.
        make: The layer.
        nan: Whether one row of the first operand is NaN.
        learns: Whether gradients are wanted.
    """

    run: Callable[..., Any]
    operands: tuple[tuple[str, tuple[int, ...]], ...] = (("u", (IN,)),)
    make: Callable[[], nn.Module] | None = None
    nan: bool = False
    learns: bool = True


def operator(name: str, *operands: tuple[str, tuple[int, ...]], **more: bool) -> Case:
    return Case(lambda g, *tensors: getattr(dgl.ops, name)(g, *tensors), operands, **more)


def layer(make: Callable[[], nn.Module]) -> Case:
    return Case(lambda model, g, x: model(g, x), make=make)


NODE, EDGE = ("u", (5,)), ("e", (1,))
DROPS = {"feat_drop": 0.3, "attn_drop": 0.4}
CASES = {
    **{f"copy_u_{reduce}": operator(f"copy_u_{reduce}", NODE) for reduce in ("sum", "mean", "max", "min")},
    **{f"u_mul_e_{each}": operator(f"u_mul_e_{each}", NODE, EDGE) for each in ("sum", "mean", "max", "min")},
    "u_div_e_sum": operator("u_div_e_sum", NODE, EDGE),
    "u_mul_e_sum, heads": operator("u_mul_e_sum", ("u", (3, 4)), ("e", (3, 1))),
    "u_mul_e_max, heads": operator("u_mul_e_max", ("u", (3, 4)), ("e", (3, 1))),
    "copy_u_max of NaN": operator("copy_u_max", NODE, nan=True),
    "copy_u_min without gradients": operator("copy_u_min", NODE, learns=False),
    "copy_u_max of NaN without gradients": operator("copy_u_max", NODE, nan=True, learns=False),
    "u_dot_v": operator("u_dot_v", ("u", (3, 4)), ("v", (3, 4))),
    "edge_softmax": operator("edge_softmax", ("e", (3, 1))),
    "GraphConv": layer(lambda: dnn.GraphConv(IN, OUT, allow_zero_in_degree=True)),
    "SAGEConv mean": layer(lambda: dnn.SAGEConv(IN, OUT, "mean")),
    "SAGEConv pool": layer(lambda: dnn.SAGEConv(IN, OUT, "pool")),
    "GINConv": layer(lambda: dnn.GINConv(nn.Linear(IN, OUT), "sum", learn_eps=True)),
    "DotGatConv": layer(lambda: dnn.DotGatConv(IN, OUT, HEADS, allow_zero_in_degree=True)),
    "GATConv": layer(lambda: dnn.GATConv(IN, OUT, HEADS, residual=True, allow_zero_in_degree=True, **DROPS)),
    "GATv2Conv": layer(lambda: dnn.GATv2Conv(IN, OUT, HEADS, allow_zero_in_degree=True, **DROPS)),
}


def outcome(case: Case, g: Any, leaves: list[Tensor], away: bool) -> list[Tensor]:
    """The result and all gradients, on the CPU."""
    torch.manual_seed(0)
    model = None if case.make is None else case.make().double()
    if away and model is not None:
        move(model)
    there = far if away else torch.Tensor.clone
    leaves = [there(each.clone()).requires_grad_(case.learns) for each in leaves]
    torch.manual_seed(3)
    with onehop.patch(only="dgl"), reports.recorded() as calls:
        out = case.run(g, *leaves) if model is None else case.run(model, g, *leaves)
    # On the CPU, DGL's own kernel passes over NaN where there are no gradients.
    assert [call.reason for call in calls] == [None] * len(calls) or (case.nan and not away), calls
    assert calls
    named = [*leaves, *(() if model is None else model.parameters())] if case.learns else []
    if named:
        # Rows without edges are infinite.
        weight = features(len(out), *out.shape[1:], seed=7).masked_fill(near(out.detach()).isinf(), 0)
        out.backward(there(weight))
    return [near(out.detach()), *(near(each.grad) for each in named)]


def compare(case: Case, make_graph: Callable[[], Any]) -> str:
    """What ran; raises where something differs."""
    g, away = make_graph(), make_graph()
    leaves = [
        features(getattr(g, ROWS[kind])(), *shape, seed=at) for at, (kind, shape) in enumerate(case.operands)
    ]
    if case.nan:
        leaves[0][3] = torch.nan
    if len(leaves) == 2 and case.operands[1] == EDGE:
        leaves[1] += 3  # nothing is divided by zero
    expected = outcome(case, g, leaves, away=False)
    FarTriton.ran.clear()
    with graphs_there():
        found = outcome(case, away, leaves, away=True)
    for ours, cpus in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, cpus, rtol=1e-9, atol=1e-9)
    return " ".join(sorted(FarTriton.ran))


def from_dgl() -> str:
    """Where ``Graph.from_dgl`` makes a graph; raises where it has other edges than that of the CPU."""
    expected = onehop.Graph.from_dgl(GRAPHS["random"]())
    with graphs_there():
        found = onehop.Graph.from_dgl(GRAPHS["random"]())
    assert torch.equal(found.edge_index(), expected.edge_index())
    return str(found.made_on)


def main() -> None:
    """Every case on graphs of several shapes."""
    placed.MADE_ON.add("far")
    sys.stdout.write(f"Graph.from_dgl: {from_dgl()}\n")
    for graph in ("random", "int32", "block", "hub"):
        for name, case in CASES.items():
            sys.stdout.write(f"{name} on {graph}: {compare(case, GRAPHS[graph])}\n")


if __name__ == "__main__":
    main()
