"""Operators of the table on graphs against their naive twins: checks that tests of all backends share."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from onehop import Graph
from onehop.ops import library
from onehop.ops.library import Operator
from tests.ops.comparison import assert_as_good_as
from tests.ops.hostile_graphs import HOSTILE
from tests.ops.operators import CASES, results

EXACT = {"rtol": 1e-10, "atol": 1e-11}
GRAPHS = HOSTILE | {
    # Enough edges for a row to be cut, and no more rounding than that takes.
    "one_hub": (HOSTILE["one_hub"][0][:, :1200], 60, 60),
    # Sources with very many edges, of which most are to the same destinations.
    "few_sources": (torch.randint(3, (2, 300), generator=torch.Generator().manual_seed(1)), 3, 40),
}


class On:
    """A case on a graph, with its operands as leaves.

    Args:
        name: Of the case.
        graph: The name of one of GRAPHS, or a graph.
        dtype: Of the operands.
        width: Columns of a head.
        engine: ``backend``, or nothing.
    """

    def __init__(
        self,
        name: str,
        graph: str | Graph,
        dtype: torch.dtype = torch.float64,
        width: int = 2,
        **engine: str,
    ) -> None:
        self.case, self.engine = CASES[name], engine
        if isinstance(graph, str):
            edge_index, num_src, num_dst = GRAPHS[graph]
            graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
        self.graph, self.edge_index, self.num_dst = graph, graph.edge_index(), graph.num_dst
        made = self.case.operands(self.edge_index, graph.num_src, graph.num_dst, width)
        self.names = list(made)
        self.leaves = [operand.to(dtype).requires_grad_() for operand in made.values()]

    def fast(self, *operands: Tensor) -> tuple[Tensor, ...]:
        named = dict(zip(self.names, operands, strict=True))
        return results(self.case.fast, self.graph, **named, **self.engine)

    def naive(self, *operands: Tensor) -> tuple[Tensor, ...]:
        named = dict(zip(self.names, operands, strict=True))
        return results(self.case.naive, self.edge_index, self.num_dst, **named)

    def pulled(self, *batch: int, out: Sequence[Tensor] | None = None) -> list[Tensor]:
        """Gradients to the results, or batches of them."""
        generator = torch.Generator().manual_seed(5)
        return [
            torch.randn(*batch, *each.shape, generator=generator, dtype=torch.float64).to(each.dtype)
            for each in (self.fast(*self.leaves) if out is None else out)
        ]

    def outcome(self) -> list[Tensor]:
        """Results, and gradients to leaves of their own."""
        leaves = [leaf.detach().requires_grad_() for leaf in self.leaves]
        out = self.fast(*leaves)
        return [*(each.detach() for each in out), *gradients(out, leaves, self.pulled(out=out))]


def gradients(
    out: Sequence[Tensor], leaves: Sequence[Tensor], pulled: Sequence[Tensor], **kwargs: Any
) -> Any:
    return torch.autograd.grad(out, leaves, pulled, materialize_grads=True, **kwargs)


def assert_close(found: Sequence[Tensor], expected: Sequence[Tensor], **tolerance: float) -> None:
    for place, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        torch.testing.assert_close(ours, theirs, **tolerance or EXACT, msg=lambda m, i=place: f"{i}: {m}")


def same_bits(found: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def one_by_one(
    function: Callable[..., Any], leaves: Sequence[Tensor], pulled: Sequence[Tensor], **kwargs: bool
) -> list[Tensor]:
    out = function(*leaves)
    found = [
        gradients(out, leaves, [each[i] for each in pulled], retain_graph=True, **kwargs)
        for i in range(pulled[0].size(0))
    ]
    return [torch.stack(parts) for parts in zip(*found, strict=True)]


def batched(
    way: str, function: Callable[..., Any], leaves: Sequence[Tensor], pulled: Sequence[Tensor], **kwargs: bool
) -> list[Tensor]:
    return in_batches(way, partial(gradients, function(*leaves), leaves, retain_graph=True, **kwargs), pulled)


def in_batches(way: str, grad: Callable[..., Any], pulled: Sequence[Tensor]) -> list[Tensor]:
    if way == "older":
        return list(grad(pulled, is_grads_batched=True))
    return list(torch.vmap(lambda *each: grad(each))(*pulled))


# What operands can be like.

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda t: t,
    "turned": lambda t: t.transpose(0, -1).contiguous().transpose(0, -1),
    "gaps": lambda t: torch.stack([t, t], -1)[..., 0],
    "rows apart": lambda t: torch.cat([t, t], -1)[..., : t.size(-1)] if t.dim() > 1 else t,
    "offset": lambda t: torch.cat([t.new_zeros(1), t.flatten()])[1:].view(t.shape),
    "expanded": lambda t: t[:1].expand(t.shape) if t.numel() and t.dim() > 1 else t,
}
# Of small numbers many tie, and relu's zeros do.
NUMBERS = {"random": lambda t: t, "small integers": lambda t: t.mul(1.5).round(), "relu": lambda t: t.relu()}
WIDTHS = (0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 129, 300)
MIXED = (torch.bfloat16, torch.float32), (torch.float16, torch.float32), (torch.float32, torch.float64)


def axes_of(name: str, widths: Sequence[int] = WIDTHS) -> list[list[Any]]:
    """The values of each parameter of :func:`check` that an operator takes."""
    case = CASES[name]
    mixed = MIXED if case.registered and len(case.shapes) > 1 else ()
    # Messages that tie before they are rounded need not tie afterwards, and shares of equal scores cancel.
    ties = not name.startswith(("message max", "message min"))
    alike = name.startswith(("sum", "mean", "sddmm", "edge_softmax", "fusedmm", "typed"))
    # An operator of attention refuses heads without columns.
    least = int("att" in name or name.startswith("gat"))
    return [
        [width for width in widths if width >= least],
        [*((dtype, dtype) for dtype in case.dtypes), *mixed],
        [layout for layout in LAYOUTS if alike or layout != "expanded"],
        list(NUMBERS) if ties else ["random"],
        ["random", "expanded"],
    ]


def check(
    name: str,
    graph: tuple[Tensor, int, int],
    width: int,
    dtypes: tuple[torch.dtype, torch.dtype],
    layout: str,
    numbers: str,
    pull: str,
    **engine: str,
) -> None:
    """Compares results and all gradients with those of the naive twin in float64.

    The twin in the operator's own precision says what error is allowed.

    Args:
        name: The operator.
        graph: Its edge_index, and the numbers of sources and destinations.
        width: Columns of a head.
        dtypes: Those of the first operand, and of the others.
        layout: A key of LAYOUTS.
        numbers: A key of NUMBERS.
        pull: Whether gradients of results are "random", or all 1 and "expanded".
        engine: ``backend``, or nothing.
    """
    case, (edge_index, num_src, num_dst) = CASES[name], graph
    made = case.operands(edge_index, num_src, num_dst, width)
    for place, (operand, tensor) in enumerate(made.items()):
        made[operand] = LAYOUTS[layout](NUMBERS[numbers](tensor).to(dtypes[place > 0]))
    fast = partial(case.fast, Graph.from_edge_index(edge_index, size=(num_src, num_dst)), **engine)
    naive = partial(case.naive, edge_index, num_dst)
    found: list[list[Tensor]] = []
    for function, dtype in ((fast, None), (naive, None), (naive, torch.float64)):
        leaves = {each: t.detach().to(dtype or t.dtype).requires_grad_() for each, t in made.items()}
        out = results(function, **leaves)
        generator = torch.Generator().manual_seed(3)
        pulled = []
        # In the numbers of the operator's dtype, in float64 too.
        for each, first in zip(out, found[0] if found else out, strict=False):
            grad = torch.randn(each.shape, generator=generator, dtype=torch.float64).to(first.dtype)
            pulled.append((grad if pull == "random" else grad.new_ones(()).expand(each.shape)).to(each.dtype))
        found.append([*(each.detach() for each in out), *gradients(out, list(leaves.values()), pulled)])
    places = [*(f"result {at}" for at in range(len(found[0]) - len(made))), *made]
    for place, ours, same, exact in zip(places, *found, strict=True):
        assert_as_good_as(place, ours, same, exact, case.magnitude(width))


# Checks that tests of several backends share.


def second_derivatives(on: On) -> None:
    """Compares gradients, and those of a sum of their squares, with those of the naive twin."""
    found, pulled = [], [each.requires_grad_() for each in on.pulled()]
    for function in (on.fast, on.naive):
        out = function(*on.leaves)
        once = gradients(out, on.leaves, pulled, retain_graph=True)
        first = gradients(out, on.leaves, pulled, create_graph=True)
        assert_close(first, once)
        found.append([*out, *first, *again(sum(g.square().sum() for g in first), [*on.leaves, *pulled])])
    assert_close(*found)


def again(total: Any, leaves: Sequence[Tensor]) -> Sequence[Tensor]:
    """The gradients of a sum of gradients, which may depend on nothing."""
    if not total.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    return torch.autograd.grad(total, leaves, materialize_grads=True)


def one_gradient_at_a_time(on: On) -> None:
    """Compares each gradient, where no other is wanted, with that where all are."""
    pulled = on.pulled()
    everything = gradients(on.fast(*on.leaves), on.leaves, pulled)
    for place, expected in enumerate(everything):
        alone = [leaf.detach().requires_grad_(at == place) for at, leaf in enumerate(on.leaves)]
        out = on.fast(*alone)
        if out[0].requires_grad:
            assert_close(gradients(out, [alone[place]], pulled), [expected])
        else:
            assert not expected.any()


def programs_have_one_graph(on: On) -> None:
    """Compares a compiled layer and its gradients with the same layer."""

    def layer(*operands: Tensor) -> Tensor:
        return sum(out.relu().sum() for out in on.fast(*(operand.sin() for operand in operands)))

    torch._dynamo.reset()
    found = []
    for function in (torch.compile(layer, fullgraph=True, backend="aot_eager"), layer):
        loss = function(*on.leaves)
        found.append([loss, *torch.autograd.grad(loss, on.leaves)])
    assert_close(*found)


def noted(function: Callable[[], Any]) -> list[tuple[Operator[Any], Any]]:
    """The operators that a function called, and with what."""
    calls: list[tuple[Operator[Any], Any]] = []
    run = Operator.__call__

    def noting(self: Operator[Any], call: Any, graph: Any = None) -> Any:
        calls.append((self, call))
        return run(self, call, graph)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Operator, "__call__", noting)
        function()
    return calls


def torch_checks(names: Sequence[str], graph: str | Graph, **engine: str) -> set[str]:
    """Has torch check what it knows of the operators that cases call, forward and backward.

    These are schemas, fakes, autograd and programs. Returns the operators' names.
    """
    kinds = {}
    for name in names:
        on = On(name, graph, **engine)
        for operator, call in noted(on.outcome):
            args = library._flattened(call) if operator._nested else tuple(call)
            kinds[operator, *(arg is None for arg in args)] = on, operator, args
    for _, operator, args in kinds.values():
        own = [
            arg.detach().requires_grad_(arg.requires_grad) if isinstance(arg, Tensor) else arg for arg in args
        ]
        torch.library.opcheck(operator._dispatched, tuple(own))
    return {operator.name for _, operator, _ in kinds.values()}
