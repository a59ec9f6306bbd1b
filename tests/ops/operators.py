"""The operators: each states its operands and its naive twin, and ``test_conformance.py`` tests all alike.

An operator that is added to CASES is tested in every way that is there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import onehop
from onehop import Graph, reference
from onehop.messages import End, Operand, Program, Step
from onehop.ops.aggregate import REDUCTIONS
from onehop.ops.fusedmm import KERNELS
from onehop.ops.message import reduce_messages
from onehop.ops.semiring import MULTIPLY
from onehop.ops.typed import typed_edges, typed_sum
from onehop.reference.typed import typed_sum as naive_typed_sum
from tests.ops.comparison import assert_as_good_as
from tests.ops.hostile_graphs import HOSTILE

FLOATS = (torch.float32, torch.float64)
ALL = (*FLOATS, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Case:
    """An operator, as callers see it.

    Attributes:
        fast: Takes a graph and the operands by name; returns a tensor, or several.
        naive: Takes an edge index, the number of destinations and the operands; returns the same.
        shapes: The extents of each operand: sources S, destinations D, edges E, the width W, or a number.
        dtypes: Those of operands.
        magnitude: That of the numbers of which results are differences, given the width.
        backend: Whether it takes the name of a backend.
        registered: Whether torch knows it as one operator, which has fakes, vmap and programs.
    """

    fast: Callable[..., Any]
    naive: Callable[..., Any]
    shapes: dict[str, str]
    dtypes: tuple[torch.dtype, ...] = ALL
    magnitude: Callable[[int], float] = lambda width: 4.0 + width / 4
    backend: bool = True
    registered: bool = True

    def operands(self, edge_index: Tensor, num_src: int, num_dst: int, width: int = 2) -> dict[str, Tensor]:
        """Random numbers in float64, the same in every run."""
        extents = {"S": num_src, "D": num_dst, "E": edge_index.size(1), "W": width, "2*W": 2 * width}
        generator = torch.Generator().manual_seed(2)
        return {
            name: torch.randn(
                [extents[extent] if extent in extents else int(extent) for extent in shape.split()],
                generator=generator,
                dtype=torch.float64,
            )
            for name, shape in self.shapes.items()
        }


def _aggregate(names: str, **settings: Any) -> Case:
    shapes = {"x": "S W", "weight": "E", "src_scale": "S", "dst_scale": "D"}
    if "heads" in names:
        shapes |= {"x": "S 2 W", "weight": "E 2"}
    return Case(
        partial(onehop.aggregate, **settings),
        lambda edges, num_dst, **operands: reference.aggregate(
            edges, num_dst=num_dst, **settings, **operands
        ),
        {name: shape for name, shape in shapes.items() if name in names},
    )


def _shared(reduce: str) -> Case:
    return Case(
        partial(onehop.extremum, reduce=reduce, ties="share"),
        lambda edges, num_dst, **operands: reference.aggregate(
            edges, num_dst=num_dst, reduce=reduce, **operands
        ),
        {"x": "S 2 W", "weight": "E 2"},
    )


def _extremum(reduce: str, ties: str, **shapes: str) -> Case:
    """One edge gets the gradient; destinations without edges get an infinity, which is no gradient's."""

    def fast(graph: Graph, **operands: Tensor) -> Tensor:
        return _finite(onehop.extremum(graph, **operands, reduce=reduce, ties=ties))

    def naive(edges: Tensor, num_dst: int, **operands: Tensor) -> Tensor:
        return _finite(
            reference.arg_extremum(edges, num_dst=num_dst, **operands, reduce=reduce, last=ties == "last")[0]
        )

    return Case(fast, naive, shapes, FLOATS, backend=False, registered=False)


def _finite(out: Tensor) -> Tensor:
    return torch.where(out.isinf(), 0, out)


def _fusedmm(edges: Tensor, _: int, dst: Tensor, src: Tensor, kernel: str) -> Tensor:
    dtype = torch.promote_types(dst.dtype, src.dtype)
    return reference.fusedmm(edges, dst.to(dtype), src.to(dtype), kernel, 0.5)


def _attention(name: str, shapes: dict[str, str], with_weights: bool = False, **settings: Any) -> Case:
    def paired(operands: dict[str, Tensor]) -> dict[str, Any]:
        if "edge_features" not in operands:
            return operands
        *others, features, weight = operands.values()
        return dict(zip(operands, others, strict=False)) | {"edge": (features, weight)}

    def fast(graph: Graph, **operands: Any) -> Any:
        function = partial(getattr(onehop, name), graph, backend=operands.pop("backend", None), **settings)
        return function(**paired(operands), return_attention_weights=with_weights)

    def naive(edges: Tensor, num_dst: int, **operands: Tensor) -> Any:
        both = getattr(reference, name)(edges, **paired(operands), **settings)
        return both if with_weights else both[0]

    # Gradients of scores are differences of products of rows.
    return Case(fast, naive, shapes, magnitude=lambda width: 10.0 + width)


def _typed_sum(reduce: str, most: int | None) -> Case:
    """Edges of three types; ``most`` cuts them into groups."""

    def fast(graph: Graph, x: Tensor, matrices: Tensor) -> Tensor:
        edges, size = graph.edge_index(), (graph.num_src, graph.num_dst)
        types = torch.arange(edges.size(1), device=edges.device) % 3
        groups = typed_edges(edges, types, 3, size, most)
        return typed_sum(groups, x, matrices, reduce)

    def naive(edges: Tensor, num_dst: int, x: Tensor, matrices: Tensor) -> Tensor:
        return naive_typed_sum(x, edges, torch.arange(edges.size(1)) % 3, matrices, num_dst, reduce)

    shapes = {"x": "S W", "matrices": "3 W 4"}
    return Case(fast, naive, shapes, FLOATS, lambda width: 10.0, backend=False, registered=False)


def _message(reduce: str) -> Case:
    """A message with operands of every end."""

    def program(width: int) -> Program:
        ends = (End.SOURCE, width), (End.TARGET, width), (End.EDGE, 3), (End.MATRIX, 3 * width)
        return Program(
            tuple(Operand(end, size) for end, size in (*ends, (End.FIXED, width))),
            (
                Step("add", (0, 1), width),
                Step("product", (2, 3), width),
                Step("multiply", (5, 6), width),
                Step("add", (7, 4), width),
                Step("softplus", (8,), width, (1.0, 20.0)),
            ),
            9,
        )

    def fast(graph: Graph, **operands: Tensor) -> Tensor:
        given = list(operands.values())
        return reduce_messages(graph, program(given[0].size(1)), given, (reduce,))[0]

    def naive(edges: Tensor, num_dst: int, **operands: Tensor) -> Tensor:
        given = list(operands.values())
        return reference.message(edges, num_dst, program(given[0].size(1)), given, (reduce,))[0]

    shapes = {"source": "S W", "target": "D W", "edge": "E 3", "matrix": "3 W", "fixed": "W"}
    # Gradients of the matrix and the fixed row are sums over all edges.
    return Case(fast, naive, shapes, FLOATS, lambda width: 30_000.0, backend=False, registered=False)


_OF_GAT = {"x": "S 3 W", "score_src": "S 3", "score_dst": "D 3"}
_OF_GATV2 = {"x_src": "S 2 W", "x_dst": "D 2 W", "att": "2 W"}
_OF_DOT = {"query": "D 2 W", "key": "S 2 W", "value": "S 2 W"}
_ROWS = {"edge": "E 2 W"}
_PROJECTED = {"edge_features": "E 5", "edge_weight": "2*W 5"}
_DROPS = {"dropout": 0.4, "seed": 2**40 + 17}

CASES = {
    **{reduce: _aggregate("x", reduce=reduce) for reduce in REDUCTIONS},
    **{f"{reduce}, weighted": _aggregate("x weight", reduce=reduce) for reduce in REDUCTIONS},
    **{f"{r}, scaled": _aggregate("x src_scale dst_scale", reduce=r) for r in REDUCTIONS},
    **{f"{r}, one scale": _aggregate("x weight src_scale", reduce=r) for r in REDUCTIONS},
    **{f"{r}, heads": _aggregate("heads x weight src_scale dst_scale", reduce=r) for r in REDUCTIONS},
    **{f"{r}, heads alone": _aggregate("heads x weight", reduce=r) for r in ("sum", "mean")},
    **{
        f"{reduce}, {multiply}{heads}": _aggregate(
            f"x weight src_scale dst_scale {heads}", reduce=reduce, multiply=multiply
        )
        for reduce in REDUCTIONS
        for multiply in MULTIPLY
        for heads in ("", ", heads")
        if multiply not in ("mul", "copy")
    },
    **{f"{r}, copy": _aggregate("x src_scale dst_scale", reduce=r, multiply="copy") for r in REDUCTIONS},
    **{
        f"{ties} {reduce}": _extremum(reduce, ties, x="S W")
        for reduce in ("max", "min")
        for ties in ("first", "last")
    },
    **{f"shared {reduce}": _shared(reduce) for reduce in ("max", "min")},
    "first max, weighted": _extremum("max", "first", x="S W", weight="E"),
    "last min, heads": _extremum("min", "last", x="S 2 W", weight="E 2"),
    "sddmm": Case(
        onehop.sddmm,
        lambda edges, _, **operands: reference.sddmm(edges, **operands),
        {"dst": "D W", "src": "S W"},
    ),
    "sddmm, heads": Case(
        onehop.sddmm,
        lambda edges, _, **operands: reference.sddmm(edges, **operands),
        {"dst": "D 3 W", "src": "S 3 W"},
    ),
    **{
        f"edge_softmax{heads}": Case(
            onehop.edge_softmax,
            lambda edges, num_dst, scores: reference.edge_softmax(edges, scores, num_dst),
            {"scores": shape},
        )
        for heads, shape in (("", "E"), (", heads", "E W"))
    },
    **{
        f"fusedmm {kernel}": Case(
            partial(onehop.fusedmm, kernel=kernel, scale=0.5),
            partial(_fusedmm, kernel=kernel),
            {"dst": "D W", "src": "S W"},
            # Distances are differences of squared lengths.
            magnitude=float,
        )
        for kernel in KERNELS
    },
    "gat": _attention("gat", _OF_GAT, negative_slope=-0.5),
    "gat, edges": _attention("gat", _OF_GAT | {"edge_score": "E 3"}, negative_slope=0.0),
    "gat, weights": _attention("gat", _OF_GAT, with_weights=True, **_DROPS),
    "gatv2": _attention("gatv2", _OF_GATV2, negative_slope=3.0),
    "gatv2, edges": _attention("gatv2", _OF_GATV2 | _ROWS, **_DROPS),
    "gatv2, projected": _attention("gatv2", _OF_GATV2 | _PROJECTED, negative_slope=1.0),
    "gatv2, weights": _attention("gatv2", _OF_GATV2 | _PROJECTED, with_weights=True, **_DROPS),
    "attention": _attention("attention", _OF_DOT, scale=-0.7),
    "attention, values": _attention("attention", _OF_DOT | {"value": "S 2 9"}),
    "attention, edges": _attention("attention", _OF_DOT | _ROWS, **_DROPS),
    "attention, projected": _attention("attention", _OF_DOT | _PROJECTED),
    "attention, weights": _attention("attention", _OF_DOT | _ROWS, with_weights=True),
    "typed sum": _typed_sum("sum", None),
    "typed mean": _typed_sum("mean", 1),
    **{f"message {r}": _message(r) for r in ("sum", "mean", "squares", "max", "min")},
}
"""By name."""


def results(function: Callable[..., Any], *args: Any, **operands: Any) -> tuple[Tensor, ...]:
    """What a function returns, as a tuple."""
    out = function(*args, **operands)
    return out if isinstance(out, tuple) else (out,)


EXACT = {"rtol": 1e-10, "atol": 1e-11}
GRAPHS = HOSTILE | {
    # Enough edges for a row to be cut, and no more rounding than that takes.
    "one_hub": (HOSTILE["one_hub"][0][:, :1200], 60, 60),
    # Sources with very many edges, of which most are to the same destinations.
    "few_sources": (torch.randint(3, (2, 300), generator=torch.Generator().manual_seed(1)), 3, 40),
}


class On:
    """A case on a graph, with its operands as leaves."""

    def __init__(self, name: str, graph: str, dtype: torch.dtype = torch.float64, width: int = 2) -> None:
        self.case = CASES[name]
        edge_index, num_src, num_dst = GRAPHS[graph]
        self.graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
        made = self.case.operands(edge_index, num_src, num_dst, width)
        self.names = list(made)
        self.leaves = [operand.to(dtype).requires_grad_() for operand in made.values()]
        self.edge_index, self.num_dst = edge_index, num_dst

    def fast(self, *operands: Tensor) -> tuple[Tensor, ...]:
        return results(self.case.fast, self.graph, **dict(zip(self.names, operands, strict=True)))

    def naive(self, *operands: Tensor) -> tuple[Tensor, ...]:
        named = dict(zip(self.names, operands, strict=True))
        return results(self.case.naive, self.edge_index, self.num_dst, **named)

    def pulled(self, *batch: int) -> list[Tensor]:
        """Gradients to the results, or batches of them."""
        generator = torch.Generator().manual_seed(5)
        return [
            torch.randn(*batch, *out.shape, generator=generator, dtype=torch.float64).to(out.dtype)
            for out in self.fast(*self.leaves)
        ]


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
