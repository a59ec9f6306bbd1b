"""Gradients of a batch of vectors at once, by both of torch's ways, against the reference one by one."""

import sys
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.autograd.functional import hessian, jacobian

import onehop
from onehop import BackendError, Graph, reference
from onehop.ops import library
from onehop.ops.arg_extremum import arg_extremum
from tests.ops.hostile_graphs import HOSTILE
from tests.pairs import pairwise

EXACT = {"rtol": 1e-10, "atol": 1e-11}
GRAPHS = ["one_edge", "multi_edges", "self_loops", "bipartite_tall", "no_edges"]
BATCH = 3


class Case:
    """An operator on a graph, its naive twin, and the operands of both."""

    def __init__(self, graph: str, fast: Callable, naive: Callable, *shapes: str) -> None:
        edge_index, num_src, num_dst = HOSTILE[graph]
        extents = {"S": num_src, "D": num_dst, "E": edge_index.size(1)}
        self.graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
        self.fast = partial(fast, self.graph)
        self.naive = partial(naive, edge_index, num_dst)
        generator = torch.Generator().manual_seed(2)
        self.leaves = [
            torch.randn(
                [extents.get(extent) or int(extents.get(extent, extent)) for extent in shape.split()],
                generator=generator,
                dtype=torch.float64,
            ).requires_grad_()
            for shape in shapes
        ]

    def pulled(self, *batch: int) -> list[Tensor]:
        """Batches of gradients to the outputs."""
        generator = torch.Generator().manual_seed(5)
        return [
            torch.randn(*batch, *out.shape, generator=generator, dtype=out.dtype)
            for out in as_tuple(self.fast(*self.leaves))
        ]


def as_tuple(out: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return out if isinstance(out, tuple) else (out,)


def _attention(name: str, **settings: object) -> tuple[Callable, Callable]:
    def fast(graph: Graph, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        return getattr(onehop, name)(graph, *tensors, **settings, return_attention_weights=True)

    def naive(edge_index: Tensor, num_dst: int, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        return getattr(reference, name)(edge_index, *tensors, **settings)

    return fast, naive


def _aggregate(reduce: str, names: str = "") -> tuple[Callable, Callable]:
    def fast(graph: Graph, x: Tensor, *rest: Tensor) -> Tensor:
        return onehop.aggregate(graph, x, reduce=reduce, **dict(zip(names.split(), rest, strict=True)))

    def naive(edge_index: Tensor, num_dst: int, x: Tensor, *rest: Tensor) -> Tensor:
        given = dict(zip(names.split(), rest, strict=True))
        return reference.aggregate(edge_index, x, num_dst, reduce=reduce, **given)

    return fast, naive


def _gatv2_fast(graph: Graph, x: Tensor, y: Tensor, att: Tensor, edge: Tensor, weight: Tensor) -> Tensor:
    return onehop.gatv2(graph, x, y, att, edge=(edge, weight))


def _gatv2_naive(edge_index: Tensor, num_dst: int, *tensors: Tensor) -> Tensor:
    return reference.gatv2(edge_index, *tensors[:3], edge=tensors[3:])[0]


def _fusedmm(kernel: str) -> tuple[Callable, Callable]:
    return (
        lambda graph, dst, src: onehop.fusedmm(graph, dst, src, kernel, scale=0.5),
        lambda edge_index, num_dst, dst, src: reference.fusedmm(edge_index, dst, src, kernel, 0.5),
    )


def _arg_fast(graph: Graph, x: Tensor, weight: Tensor) -> Tensor:
    out = arg_extremum(graph, x, weight)
    return torch.where(out.isinf(), 0, out)


def _arg_naive(edge_index: Tensor, num_dst: int, x: Tensor, weight: Tensor) -> Tensor:
    out = reference.arg_extremum(edge_index, x, num_dst, weight)[0]
    return torch.where(out.isinf(), 0, out)


CASES = {
    "sum": (*_aggregate("sum"), "S 2"),
    "mean, wide": (*_aggregate("mean"), "S 6"),
    "sum, weighted and scaled": (*_aggregate("sum", "weight src_scale dst_scale"), "S 2", "E", "S", "D"),
    "mean, heads": (*_aggregate("mean", "weight"), "S 2 2", "E 2"),
    "max": (*_aggregate("max", "weight"), "S 2", "E"),
    "min": (*_aggregate("min"), "S 2"),
    "one winner": (_arg_fast, _arg_naive, "S 2", "E"),
    "one winner, heads": (_arg_fast, _arg_naive, "S 2 2", "E 2"),
    "sddmm": (onehop.sddmm, lambda edges, _, dst, src: reference.sddmm(edges, dst, src), "D 2 3", "S 2 3"),
    "edge softmax": (
        onehop.edge_softmax,
        lambda edges, num_dst, scores: reference.edge_softmax(edges, scores, num_dst),
        "E 2",
    ),
    **{f"fusedmm {k}": (*_fusedmm(k), "D 3", "S 3") for k in ("sigmoid", "tdist", "dot")},
    "gat": (*_attention("gat", dropout=0.3, seed=4), "S 2 2", "S 2", "D 2"),
    "gatv2": (*_attention("gatv2"), "S 2 2", "D 2 2", "2 2"),
    "gatv2, edges": (_gatv2_fast, _gatv2_naive, "S 2 2", "D 2 2", "2 2", "E 3", "4 3"),
    "attention": (*_attention("attention"), "D 2 2", "S 2 2", "S 2 2"),
}
every_case = pytest.mark.parametrize("name", CASES)


def one_by_one(
    function: Callable, leaves: list[Tensor], pulled: list[Tensor], **kwargs: bool
) -> list[Tensor]:
    out = as_tuple(function(*leaves))
    # The reference of one winner leaves the weights out where there are no edges.
    kwargs |= {"retain_graph": True, "materialize_grads": True}
    found = [
        torch.autograd.grad(out, leaves, [each[i] for each in pulled], **kwargs)
        for i in range(pulled[0].size(0))
    ]
    return [torch.stack(parts) for parts in zip(*found, strict=True)]


def batched(
    way: str, function: Callable, leaves: list[Tensor], pulled: list[Tensor], **kwargs: bool
) -> list[Tensor]:
    out = as_tuple(function(*leaves))
    grad = partial(torch.autograd.grad, out, leaves, retain_graph=True, **kwargs)
    if way == "older":
        return list(grad(pulled, is_grads_batched=True))
    return list(torch.vmap(lambda *each: grad(each))(*pulled))


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    for place, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        torch.testing.assert_close(ours, theirs, **EXACT, msg=lambda m, i=place: f"operand {i}: {m}")


@every_case
@pairwise(batch=[1, BATCH], graph=GRAPHS, way=["older", "newer"])
def test_batches_are_the_references_gradients(name, way, graph, batch):
    case = Case(graph, *CASES[name])
    pulled = case.pulled(batch)
    expected = one_by_one(case.naive, case.leaves, pulled)
    assert_same(batched(way, case.fast, case.leaves, pulled), expected)


@every_case
def test_a_batch_of_none(name):
    case = Case("multi_edges", *CASES[name])
    found = batched("newer", case.fast, case.leaves, case.pulled(0))
    assert [grad.shape for grad in found] == [(0, *leaf.shape) for leaf in case.leaves]


def test_the_older_way_refuses_a_batch_of_none():
    case = Case("multi_edges", *CASES["sum"])
    with pytest.raises(BackendError, match=r"take torch\.vmap"):
        torch._vmap_internals._vmap(case.fast)(torch.zeros(0, 3, 2, dtype=torch.float64))


@every_case
def test_vectorized_jacobians(name):
    case = Case("multi_edges", *CASES[name])
    leaves = tuple(case.leaves)
    found = jacobian(case.fast, leaves, vectorize=True)
    for expected in (jacobian(case.fast, leaves), jacobian(case.naive, leaves)):
        for ours, theirs in zip(found, expected, strict=True):
            assert_same(list(as_tuple(ours)), list(as_tuple(theirs)))


def bent(function: Callable, *leaves: Tensor) -> Tensor:
    """A scalar with second derivatives."""
    return sum(
        (out.sin() * torch.arange(1.0, out.numel() + 1).view(out.shape)).sum()
        for out in as_tuple(function(*leaves))
    )


@every_case
def test_vectorized_hessians(name):
    case = Case("multi_edges", *CASES[name])
    leaves = tuple(case.leaves)
    found = hessian(partial(bent, case.fast), leaves, vectorize=True)
    for expected in (hessian(partial(bent, case.fast), leaves), hessian(partial(bent, case.naive), leaves)):
        for ours, theirs in zip(found, expected, strict=True):
            assert_same(list(ours), list(theirs))


@every_case
@pytest.mark.parametrize("way", ["older", "newer"])
def test_batches_that_are_differentiated_again(name, way):
    case = Case("bipartite_tall", *CASES[name])
    pulled = [each.requires_grad_() for each in case.pulled(BATCH)]

    def again(grads: list[Tensor]) -> list[Tensor]:
        total = sum(grad.square().sum() for grad in grads)
        wanted = [*case.leaves, *pulled]
        return [
            torch.zeros_like(leaf) if grad is None else grad
            for leaf, grad in zip(wanted, torch.autograd.grad(total, wanted, allow_unused=True), strict=True)
        ]

    found = again(batched(way, case.fast, case.leaves, pulled, create_graph=True))
    assert_same(found, again(one_by_one(case.naive, case.leaves, pulled, create_graph=True)))


@every_case
@pairwise(inner=["older", "newer"], outer=["older", "newer"])
# What torch says of its own older vmap inside of the newer.
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_batches_of_batches(name, outer, inner):
    case = Case("multi_edges", *CASES[name])
    pulled = case.pulled(2, BATCH)
    out = as_tuple(case.fast(*case.leaves))
    grad = partial(torch.autograd.grad, out, case.leaves, retain_graph=True)
    of_one = {
        "older": lambda *each: grad(each, is_grads_batched=True),
        "newer": torch.vmap(lambda *each: grad(each)),
    }[inner]
    over = {"older": torch._vmap_internals._vmap, "newer": torch.vmap}[outer]
    expected = [one_by_one(case.naive, case.leaves, [each[i] for each in pulled]) for i in range(2)]
    assert_same(list(over(of_one)(*pulled)), [torch.stack(parts) for parts in zip(*expected, strict=True)])


@pairwise(
    way=["older", "newer"],
    dtype=[torch.float32, torch.bfloat16, torch.float16],
    where=lambda name, dtype: dtype is torch.float32 or not name.startswith("one winner"),
)
@every_case
def test_other_dtypes_have_the_bits_of_one_by_one(name, way, dtype, monkeypatch):
    monkeypatch.setattr(sys.modules["onehop.ops.aggregate"], "_FOLDED_WIDTH", 0)
    case = Case("bipartite_tall", *CASES[name])
    leaves = [leaf.detach().to(dtype).requires_grad_() for leaf in case.leaves]
    pulled = [
        each.to(out.dtype) for each, out in zip(case.pulled(BATCH), as_tuple(case.fast(*leaves)), strict=True)
    ]
    expected = one_by_one(case.fast, leaves, pulled)
    for ours, theirs, leaf in zip(batched(way, case.fast, leaves, pulled), expected, leaves, strict=True):
        assert ours.dtype == leaf.dtype
        assert torch.equal(ours, theirs)


@pairwise(heads=[1, 2], batch=[1, 100, 300], dtype=[torch.float64, torch.bfloat16], way=["older", "newer"])
def test_narrow_features_are_folded(way, dtype, batch, heads, monkeypatch):
    graph = Graph.from_edge_index(HOSTILE["random"][0], 40)
    x = torch.randn(40, heads, 2, dtype=dtype, requires_grad=True)
    weight = torch.rand(300, heads, dtype=dtype)
    pulled = [torch.randn(batch, 40, heads, 2, dtype=dtype)]
    calls = []
    run = library.run_on_backend
    monkeypatch.setattr(
        library,
        "run_on_backend",
        lambda graph, call, like: calls.append(like.size(1)) or run(graph, call, like),
    )
    found = batched(way, lambda x: onehop.aggregate(graph, x, weight), [x], pulled)
    assert sum(calls) == 2 * heads * (1 + batch)
    assert len(calls) == 1 + -(-batch // (256 // (2 * heads)))
    expected = one_by_one(lambda x: onehop.aggregate(graph, x, weight), [x], pulled)
    tolerance = EXACT if dtype is torch.float64 else {"rtol": 1e-2, "atol": 1e-2}
    torch.testing.assert_close(found[0], expected[0], **tolerance)


@pytest.mark.parametrize("way", ["older", "newer"])
def test_operands_that_nothing_depends_on(way):
    case = Case("self_loops", *CASES["sum, weighted and scaled"])
    x, weight, *_ = case.leaves
    other = torch.randn(4, dtype=torch.float64, requires_grad=True)
    out = onehop.aggregate(case.graph, x, weight)
    pulled = case.pulled(BATCH)[0]
    grad = partial(torch.autograd.grad, out, retain_graph=True)
    if way == "older":
        found = grad([x, other, weight], pulled, is_grads_batched=True, allow_unused=True)
        assert found[1] is None
        found = [found[0], found[2]]
    else:
        found = list(torch.vmap(lambda each: grad([x, weight], each))(pulled))
    expected = one_by_one(lambda x, w: onehop.aggregate(case.graph, x, w), [x, weight], [pulled])
    assert_same(found, expected)


# arg_extremum is not a registered operator, and takes batches of gradients alone.
@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("one winner")])
def test_forward_in_vmap(name):
    case = Case("multi_edges", *CASES[name])
    tensors = [torch.randn(BATCH, *leaf.shape, dtype=leaf.dtype) for leaf in case.leaves]
    members = [as_tuple(case.naive(*(t[i] for t in tensors))) for i in range(BATCH)]
    found = torch.vmap(case.fast)(*tensors)
    assert_same(list(as_tuple(found)), [torch.stack(parts) for parts in zip(*members, strict=True)])
