"""Layers under autocast on a device that is not the CPU, by CUDA's rules, through the GPU's kernels.

A program of its own, for a process can have one such device. PyG's own code runs there too, so that dtypes
are compared with what PyG gives on that device. Prints the forms that ran, and an error where something
differs.
"""

import copy
import dataclasses
import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch_geometric import nn as gnn

import onehop
from onehop import thresholds
from onehop.integrations import reports
from tests import far_autocast  # noqa: F401 (makes autocast on the device)
from tests.far_device import far, move, near
from tests.far_triton import FarTriton
from tests.integrations.pyg.test_autocast import (
    BLOCKS,
    CASES,
    WIDTH,
    Case,
    Outcome,
    cast_by_name,
    compare,
    operands,
)
from tests.interpreter import patched_once, rounding_as_gpus

NODES, EDGES = 12, 40


class OfTypes(nn.Module):
    """A layer over types of nodes or edges, that is given features and edges alone."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.register_buffer("edge_type", torch.arange(EDGES) % 3)
        self.register_buffer("node_type", torch.arange(NODES) % 2)
        self.register_buffer("edge_attr", torch.rand(EDGES, 5, generator=torch.Generator().manual_seed(4)))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """[N, WIDTH] -> [N, columns]."""
        out: Tensor
        if isinstance(self.layer, gnn.HGTConv):
            both = {("a", "to", "a"): edges, ("a", "by", "a"): edges.flip(0)}
            out = self.layer({"a": x}, both)["a"]
        elif isinstance(self.layer, gnn.HEATConv):
            out = self.layer(x, edges, self.node_type, self.edge_type, self.edge_attr)
        else:
            out = self.layer(x, edges, self.edge_type)
        return out


RELATIONS = [("a", "to", "a"), ("a", "by", "a")]
# What has no path over a device, with autocast or without, and a part of the reason.
ON_CPU_ALONE = {"RGAT": "put in order on the CPU alone", "HEAT": "not on the CPU"}
CASES_HERE = {name: case for name, case in CASES.items() if case.form != BLOCKS} | {
    "GATv2 unequal": Case(lambda: gnn.GATv2Conv((WIDTH, WIDTH), 4, heads=2), "GATv2, fused"),
    "GAT dropping": Case(lambda: gnn.GATConv(WIDTH, 4, heads=2, dropout=0.5), "GAT, fused"),
    "GATv2 dropping": Case(lambda: gnn.GATv2Conv(WIDTH, 4, heads=2, dropout=0.5), "GATv2, fused"),
    "Transformer dropping": Case(
        lambda: gnn.TransformerConv(WIDTH, 4, heads=2, dropout=0.5), "dot-product attention, fused"
    ),
    "HGT": Case(lambda: OfTypes(gnn.HGTConv(WIDTH, 8, (["a"], RELATIONS), heads=2)), "softmax of scores"),
    "HGT skipping": Case(
        lambda: OfTypes(gnn.HGTConv(WIDTH, WIDTH, (["a"], RELATIONS), heads=2)), "softmax of scores"
    ),
    "RGAT": Case(lambda: OfTypes(gnn.RGATConv(WIDTH, 4, 3, heads=2)), ""),
    "HEAT": Case(lambda: OfTypes(gnn.HEATConv(WIDTH, 4, 2, 3, 4, 5, 6, heads=2)), ""),
}
LOW = torch.bfloat16
# Dtypes of autocast (None: none), of parameters, of features.
Dtypes = tuple[torch.dtype | None, torch.dtype, torch.dtype]
PLAIN: Dtypes = (LOW, torch.float32, torch.float32)
HOSTILE: list[Dtypes] = [
    (torch.float16, torch.float32, torch.float32),
    (LOW, torch.float32, LOW),
    (LOW, LOW, torch.float32),
    (LOW, torch.float16, torch.float16),
    (LOW, torch.float64, torch.float64),
    (None, torch.float32, torch.float32),
]
IN_ALL = ("GAT with edges", "GATv2", "Transformer", "HGT", "SAGE max", "Graph wider")


def run(
    model: nn.Module, x: Tensor, edges: Tensor, given: Any, dtype: torch.dtype | None, inside: bool = False
):
    """The outcome on the device; the backward pass is inside of autocast or not."""
    model = copy.deepcopy(model)
    move(model)
    leaf = far(x.clone()).requires_grad_()
    given = {name: far(value) for name, value in given.items()}
    torch.manual_seed(5)
    named = {"x": leaf, **dict(model.named_parameters())}

    def gradients(out: Tensor) -> tuple[Tensor | None, ...]:
        grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(3)).to(out.dtype)
        return torch.autograd.grad(out, list(named.values()), far(grad), allow_unused=True)

    with torch.autocast("far", dtype=dtype or LOW, enabled=True):
        with torch.autocast("far", enabled=dtype is not None):
            out = model(leaf, edges, **given)
        found = gradients(out) if inside else None
    found = found or gradients(out)
    near_grads = {k: near(g) for k, g in zip(named, found, strict=True) if g is not None}
    return Outcome(near(out.detach()), near_grads)


def attempt(*args: Any) -> Outcome | str:
    """What comes of it, or the error's message."""
    try:
        return run(*args)
    except NotImplementedError:
        raise
    except RuntimeError as error:
        return str(error)


def on_cpu_in_float64(model: nn.Module, x: Tensor, edges: Tensor, given: Any) -> Outcome:
    model, leaf = copy.deepcopy(model).double(), x.double().requires_grad_()
    torch.manual_seed(5)
    out = model(leaf, edges, **{name: value.double() for name, value in given.items()})
    named = {"x": leaf, **dict(model.named_parameters())}
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(3)).to(out.dtype)
    found = torch.autograd.grad(out, list(named.values()), grad, allow_unused=True)
    return Outcome(out.detach(), {k: g for k, g in zip(named, found, strict=True) if g is not None})


def check(name: str, dtypes: Dtypes) -> str:
    """Compares a layer with PyG's own; returns the forms that ran, or the error that both raise."""
    lowered, of_parameters, of_features = dtypes
    case = CASES_HERE[name]
    torch.manual_seed(0)
    model = case.make().to(of_parameters)
    x = torch.randn(NODES, WIDTH).to(of_features)
    edges = torch.randint(NODES, (2, EDGES), generator=torch.Generator().manual_seed(1))
    given = {key: value.to(of_features) for key, value in operands(case, edges).items()}
    away = far(edges)
    theirs = attempt(model, x, away, given, lowered)
    if isinstance(theirs, str):
        with onehop.patch():
            assert attempt(model, x, away, given, lowered) == theirs
        return theirs.partition("\n")[0]
    if name.endswith("dropping"):
        exact = run(model, x, away, given, None)
        exact = Outcome(exact.out.double(), cast_by_name(exact.grads, torch.float64))
    else:
        exact = on_cpu_in_float64(model, x, edges, given)
    with onehop.patch(), reports.recorded() as calls:
        ours = run(model, x, away, given, lowered)
    compare(ours, theirs, exact)
    if dtypes == PLAIN:
        with onehop.patch():
            inside = run(model, x, away, given, lowered, inside=True)
        compare(inside, run(model, x, away, given, lowered, inside=True), exact)
        reasons = {call.reason for call in calls}
        if name in ON_CPU_ALONE:
            assert any(ON_CPU_ALONE[name] in (reason or "") for reason in reasons), reasons
        else:
            assert reasons == {None}, reasons
        # Linear steps stay where PyG has them.
        assert "fused" not in case.form or any(case.form in call.form for call in calls), calls
    return "; ".join(sorted({call.reason or call.form for call in calls}))


def rules_are_cudas() -> bool:
    """Return whether autocast gives the dtypes here that it gives for fake tensors of a GPU."""
    operations = {
        "mm": lambda a: a @ a,
        "linear": lambda a: nn.functional.linear(a, a),
        "sum": lambda a: a.sum(-1),
        "exp": lambda a: a.exp(),
        "scatter_add": lambda a: a.new_zeros(a.shape).scatter_add(0, torch.zeros_like(a).long(), a),
        "scatter_add_": lambda a: a.new_zeros(a.shape).scatter_add_(0, torch.zeros_like(a).long(), a),
        "leaky_relu": lambda a: nn.functional.leaky_relu(a),
        "tanh": lambda a: a.tanh(),
    }
    dtypes = (torch.float32, torch.bfloat16, torch.float64)
    with torch.autocast("far", dtype=LOW):
        here = [op(far(torch.ones(2, 2, dtype=each))).dtype for op in operations.values() for each in dtypes]
    # The context itself turns off where there is no GPU.
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", LOW)
    with FakeTensorMode():
        there = [
            op(torch.ones(2, 2, dtype=each, device="cuda:0")).dtype
            for op in operations.values()
            for each in dtypes
        ]
    torch.set_autocast_enabled("cuda", False)
    return here == there and len(set(here)) == len(dtypes)


def main() -> None:
    """Everything under plain autocast, and some of it under all that may come."""
    sys.stdout.write(f"the rules are CUDA's: {rules_are_cudas()}\n")
    thresholds.now = dataclasses.replace(thresholds.now, few_edges=0, few_work=0)
    cases = [(name, PLAIN) for name in CASES_HERE] + [(name, each) for each in HOSTILE for name in IN_ALL]
    failed = 0
    for name, dtypes in cases:
        FarTriton.ran.clear()
        try:
            told = check(name, dtypes)
        except AssertionError as error:
            failed += 1
            told = f"FAILED: {error}"
        short = " ".join(str(each).removeprefix("torch.") for each in dtypes)
        sys.stdout.write(f"{name}, {short}: {told} [{' '.join(sorted(FarTriton.ran))}]\n")
    sys.exit(failed)


if __name__ == "__main__":
    with rounding_as_gpus(), patched_once():
        main()
