"""The operators: each states its operands and its naive twin, and ``checking.py`` checks all alike.

An operator that is added to CASES is tested in every way that is there.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import onehop
from onehop import Graph, TensorPaths, reference
from onehop.messages import End, Operand, Program, Step
from onehop.ops.aggregate import REDUCTIONS
from onehop.ops.factors import MULTIPLY
from onehop.ops.fusedmm import KERNELS
from onehop.ops.message import reduce_messages
from onehop.ops.typed import typed_edges, typed_sum
from onehop.reference.typed import typed_sum as naive_typed_sum

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
        backends: The others than the CPU's that have it.
        registered: Whether torch knows it as one operator, which has fakes, vmap and programs.
    """

    fast: Callable[..., Any]
    naive: Callable[..., Any]
    shapes: dict[str, str]
    dtypes: tuple[torch.dtype, ...] = ALL
    magnitude: Callable[[int], float] = lambda width: 4.0 + width / 4
    backends: tuple[str, ...] = ("reference", "triton")
    registered: bool = True

    def operands(self, edge_index: Tensor, num_src: int, num_dst: int, width: int = 2) -> dict[str, Tensor]:
        """Random numbers in float64, the same in every run."""
        extents = {"S": num_src, "D": num_dst, "E": edge_index.size(1), "W": width}
        extents |= {f"{times}*W": times * width for times in (2, 4, 9, 12)}
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
    if "signals" in names:
        shapes["x"] = f"3 {shapes['x']}"
        settings["node_dim"] = 1
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

    def fast(graph: Graph, **operands: Any) -> Tensor:
        return _finite(onehop.extremum(graph, **operands, reduce=reduce, ties=ties))

    def naive(edges: Tensor, num_dst: int, **operands: Tensor) -> Tensor:
        return _finite(
            reference.arg_extremum(edges, num_dst=num_dst, **operands, reduce=reduce, last=ties == "last")[0]
        )

    return Case(fast, naive, shapes, FLOATS, backends=("triton",), registered=False)


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
    return Case(fast, naive, shapes, FLOATS, lambda width: 10.0, backends=(), registered=False)


def _gather() -> Case:
    return Case(
        lambda graph, x: onehop.gather(x, graph.edge_index()[0]),
        lambda edges, _, x: x[edges[0]],
        {"x": "S W"},
        backends=(),
        registered=False,
    )


def _scatter(reduce: str) -> Case:
    def naive(edges: Tensor, num_dst: int, values: Tensor) -> Tensor:
        one_each = torch.stack([torch.arange(edges.size(1)), edges[1]])
        return reference.aggregate(one_each, values, num_dst, reduce=reduce)

    return Case(
        lambda graph, values: onehop.scatter(values, graph.edge_index()[1], graph.num_dst, reduce),
        naive,
        {"values": "E W"},
        backends=(),
        registered=False,
    )


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
    return Case(fast, naive, shapes, FLOATS, lambda width: 30_000.0, backends=(), registered=False)


@functools.cache
def _tensor_paths(width: int, mode: str) -> TensorPaths:
    """Scalars and vectors; paths that share an irrep of the output, and one that no path reaches."""
    x, harmonics = f"{width}x0e+{width}x1o", "0e+1o+2e"
    if mode == "uvu":
        return TensorPaths.between(x, harmonics, up_to=2)
    out = f"{width}x0e+{width}x1o+3x2e+2x3o+0x1e+4x1o+2x0o"
    places = [
        (0, 0, 0),
        (0, 2, 2, "uvw"),
        (1, 0, 1, "uvu", 2.0),
        (1, 2, 1),
        (1, 2, 3, "uvw"),
        (0, 1, 5, "uvw", 0.5),
    ]
    return TensorPaths(x, harmonics, out, places)


def _tensor_product(weights: str, mode: str = "uvu", **layouts: str) -> Case:
    def paths_of(operands: dict[str, Tensor]) -> TensorPaths:
        return _tensor_paths(operands["x"].size(-1) // 4, mode)

    def fast(graph: Graph, backend: str | None = None, **operands: Tensor) -> Tensor:
        return onehop.tensor_product(graph, **operands, paths=paths_of(operands), **layouts, backend=backend)

    def naive(edges: Tensor, num_dst: int, **operands: Tensor) -> Tensor:
        return reference.tensor_product(
            edges, **_promoted(operands), paths=paths_of(operands), num_dst=num_dst, **layouts
        )

    shapes = {"x": "S 4*W", "harmonics": "E 9", "weights": weights}
    # Gradients of shared weights are sums over all edges.
    magnitude = (lambda width: 200.0 + 4 * width) if "E" in weights else (lambda width: 30_000.0)
    return Case(fast, naive, shapes, magnitude=magnitude, backends=("reference",))


def _promoted(operands: dict[str, Tensor]) -> dict[str, Tensor]:
    dtype = functools.reduce(torch.promote_types, (operand.dtype for operand in operands.values()))
    return {name: operand.to(dtype) for name, operand in operands.items()}


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
    **{f"{r}, signals": _aggregate("signals x weight src_scale dst_scale", reduce=r) for r in ("sum", "max")},
    "mean, signals of heads": _aggregate("signals heads x weight", reduce="mean"),
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
    "gather": _gather(),
    **{f"scatter {reduce}": _scatter(reduce) for reduce in REDUCTIONS},
    "typed sum": _typed_sum("sum", None),
    "typed mean": _typed_sum("mean", 1),
    "tensor product": _tensor_product("E 9*W", layout="ir_mul"),
    "tensor product, e3nn's order": _tensor_product("E 9*W", out_layout="ir_mul"),
    "tensor product, shared": _tensor_product("9*W", layout="ir_mul", out_layout="mul_ir"),
    "tensor product, uvw": _tensor_product("12*W", "uvw"),
    "tensor product, uvw of edges": _tensor_product("E 12*W", "uvw", layout="ir_mul"),
    **{f"message {r}": _message(r) for r in ("sum", "mean", "squares", "max", "min")},
}
"""By name."""


def results(function: Callable[..., Any], *args: Any, **operands: Any) -> tuple[Tensor, ...]:
    """What a function returns, as a tuple."""
    out = function(*args, **operands)
    return out if isinstance(out, tuple) else (out,)
