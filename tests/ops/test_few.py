"""Layers' sums and attention over few edges, against a plain computation over rows of edges."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from onehop.errors import IndexRangeError
from onehop.ops import few
from onehop.ops.few import FewEdges, FewRows
from onehop.ops.few_attention import Scores, attend, softmax

SOURCES, TARGETS, EDGES = 9, 7, 40
SHAPES = [(1, 1), (1, 5), (2, 8), (3, 17), (5, 33)]
KINDS = ["gat", "gatv2", "dot"]
FACTOR = 0.3


def edges(sending: int = 0, layout: str = "rows", empty: bool = False) -> FewEdges:
    """Edges, of which some targets have none."""
    generator = torch.Generator().manual_seed(0)
    count = 0 if empty else EDGES
    source = torch.randint(SOURCES, (count,), generator=generator)
    target = torch.randint(TARGETS - 2, (count,), generator=generator)
    index = torch.stack([source, target] if sending == 0 else [target, source])
    if layout == "columns":
        index = index.t().contiguous().t()
    elif layout == "every other":
        index = index.repeat_interleave(2, 1)[:, ::2]
    return FewEdges(index, SOURCES, TARGETS, sending)


def ends(of: FewEdges) -> tuple[Tensor, Tensor]:
    return of.listed[of.sending], of.listed[1 - of.sending]


def plain_sum(of: FewEdges, x: Tensor, weight: Tensor | None, reduce: str) -> Tensor:
    source, target = ends(of)
    rows = x[source] if weight is None else x[source] * weight.unsqueeze(1)
    out = x.new_zeros(TARGETS, x.size(1)).index_add(0, target, rows)
    if reduce == "mean":
        out = out / torch.bincount(target, minlength=TARGETS).clamp(min=1).unsqueeze(1)
    return out


def plain_attention(of: FewEdges, scores: Scores) -> Tensor:
    values, scored, of_target = scores.values, scores.of_source, scores.of_target
    (source, target), scored = ends(of), values if scored is None else scored
    if scores.kind == "dot":
        score = scores.factor * (scored[source] * of_target[target]).sum(-1)
    else:
        score = leaky_relu(scored[source] + of_target[target], scores.factor)
        score = score if scores.att is None else (score * scores.att).sum(-1)
    out = values.new_zeros(of.num_dst, *values.shape[1:])
    return out.index_add(0, target, plain_softmax(target, score).unsqueeze(-1) * values[source])


def plain_softmax(target: Tensor, score: Tensor) -> Tensor:
    """The softmax over the rows of each target."""
    alpha = torch.zeros_like(score)
    for node in target.unique().tolist():
        alpha = torch.where((target == node).unsqueeze(1), masked_softmax(score, target == node), alpha)
    return alpha


def masked_softmax(score: Tensor, own: Tensor) -> Tensor:
    """The softmax over the rows under a mask; what it has elsewhere is not used."""
    return score.new_zeros(score.shape).index_put((own,), score[own].softmax(0))


def attention(kind: str, shape: tuple[int, int], dtype: torch.dtype) -> Scores:
    heads, columns = shape
    generator = torch.Generator().manual_seed(1)

    def some(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    values = some(SOURCES, heads, columns)
    if kind == "gat":
        return Scores(kind, FACTOR, values, some(SOURCES, heads), some(TARGETS, heads), None)
    if kind == "gatv2":
        return Scores(kind, FACTOR, values, None, some(TARGETS, heads, columns), some(heads, columns))
    return Scores(kind, FACTOR, values, some(SOURCES, heads, columns), some(TARGETS, heads, columns), None)


def tensors_of(scores: Scores) -> list[Tensor]:
    return [each for each in scores.tensors() if each is not None]


def compare(ours: Tensor, plain: Tensor, needed: list[Tensor], rtol: float) -> None:
    torch.testing.assert_close(ours, plain, rtol=rtol, atol=rtol)
    grad = torch.randn(ours.shape, generator=torch.Generator().manual_seed(2)).to(ours.dtype)
    mine = torch.autograd.grad(ours, needed, grad, create_graph=True)
    expected = torch.autograd.grad(plain, needed, grad, create_graph=True)
    again = [torch.stack([(g * g.detach()).sum() for g in each]).sum() for each in (mine, expected)]
    for ours, theirs in zip(mine, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=rtol, atol=rtol)
    seconds: list[Any] = [
        torch.autograd.grad(each, needed, retain_graph=True, allow_unused=True) if each.requires_grad else ()
        for each in again
    ]
    for ours, theirs in zip(*seconds, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=10 * rtol, atol=10 * rtol)


def unrecorded(ours: Tensor, needed: list[Tensor]) -> tuple[Tensor, ...]:
    """The gradients by the native code, which runs where the backward pass is not recorded."""
    grad = torch.randn(ours.shape, generator=torch.Generator().manual_seed(2)).to(ours.dtype)
    return torch.autograd.grad(ours, needed, grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("layout", ["rows", "columns", "every other"])
@pytest.mark.parametrize("sending", [0, 1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("columns", [1, 4, 37])
def test_sums(
    columns: int, reduce: str, weighted: bool, sending: int, layout: str, dtype: torch.dtype
) -> None:
    of = edges(sending, layout)
    x = torch.randn(SOURCES, columns, dtype=dtype, requires_grad=True)
    weight = torch.randn(EDGES, dtype=dtype, requires_grad=True) if weighted else None
    needed = [x] if weight is None else [x, weight]
    rtol = 1e-4 if dtype is torch.float32 else 1e-12
    compare(few.aggregate(of, x, weight, reduce), plain_sum(of, x, weight, reduce), needed, rtol)
    native = unrecorded(few.aggregate(of, x, weight, reduce), needed)
    plain = unrecorded(plain_sum(of, x, weight, reduce), needed)
    torch.testing.assert_close(native, plain, rtol=rtol, atol=rtol)
    with torch.no_grad():
        assert torch.equal(few.aggregate(of, x, weight, reduce), few.aggregate(of, x, weight, reduce))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("sending", [0, 1])
@pytest.mark.parametrize("numbers", ["any", "whole", "not negative", "not numbers"])
@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.parametrize("columns", [1, 4, 37])
def test_extrema(columns: int, reduce: str, numbers: str, sending: int, dtype: torch.dtype) -> None:
    of = edges(sending)
    x = torch.randn(SOURCES, columns, dtype=dtype)
    if numbers == "whole":
        x = x.round()
    elif numbers == "not negative":
        x = x.relu()
    elif numbers == "not numbers":
        x[2], x[4] = torch.nan, torch.inf
    x.requires_grad_()
    source, target = ends(of)

    def plain() -> Tensor:
        """As PyG reduces."""
        spread = target.unsqueeze(1).expand(-1, columns)
        out = x.new_zeros(TARGETS, columns)
        return out.scatter_reduce_(0, spread, x[source], f"a{reduce}", include_self=False)

    ours = few.aggregate(of, x, None, reduce)
    assert torch.equal(ours.nan_to_num(7), plain().nan_to_num(7))
    native, expected = unrecorded(ours, [x]), unrecorded(plain(), [x])
    torch.testing.assert_close(native, expected, equal_nan=True)
    if numbers != "not numbers":
        compare(few.aggregate(of, x, None, reduce), plain(), [x], 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("sending", [0, 1])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_attention(kind: str, shape: tuple[int, int], sending: int, dtype: torch.dtype) -> None:
    of, scores = edges(sending), attention(kind, shape, dtype)
    needed = tensors_of(scores)
    rtol = 1e-3 if dtype is torch.float32 else 1e-11
    compare(attend(of, scores), plain_attention(of, scores), needed, rtol)
    native, plain = unrecorded(attend(of, scores), needed), unrecorded(plain_attention(of, scores), needed)
    torch.testing.assert_close(native, plain, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("kind", KINDS)
def test_operands_that_are_made_of_each_other(kind: str) -> None:
    of = edges()
    x = torch.randn(SOURCES, 2, 3, dtype=torch.float64, requires_grad=True)
    att = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)

    def scores_of(values: Tensor) -> Scores:
        targets = values[:TARGETS]
        if kind == "gat":
            return Scores(kind, FACTOR, values, (values * att).sum(-1), (targets * att).sum(-1), None)
        if kind == "gatv2":
            return Scores(kind, FACTOR, values, None, targets, att)
        return Scores(kind, FACTOR, values, values, targets * att, None)

    compare(attend(of, scores_of(x)), plain_attention(of, scores_of(x)), [x, att], 1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_one_tensor_of_sources_and_targets(kind: str) -> None:
    index = torch.randint(SOURCES, (2, EDGES), generator=torch.Generator().manual_seed(3))
    of = FewEdges(index, SOURCES, SOURCES, 0)
    x = torch.randn(SOURCES, 2, 3, dtype=torch.float64, requires_grad=True)
    att = torch.ones(2, 3, dtype=torch.float64, requires_grad=True) if kind == "gatv2" else None
    scored = {"gat": x.sum(-1), "gatv2": None, "dot": x}[kind]
    scores = Scores(kind, FACTOR, x, scored, x.sum(-1) if kind == "gat" else x, att)
    needed = [x] if att is None else [x, att]
    compare(attend(of, scores), plain_attention(of, scores), needed, 1e-10)


def test_no_edges() -> None:
    of = edges(empty=True)
    x = torch.randn(SOURCES, 3, requires_grad=True)
    out = few.aggregate(of, x, None, "mean")
    assert not out.any()
    assert not torch.autograd.grad(out.sum(), x)[0].any()
    assert not attend(of, attention("dot", (2, 3), torch.float32)).any()


@pytest.mark.parametrize("number", [-1, SOURCES])
@pytest.mark.parametrize("row", [0, 1])
def test_ends_out_of_range(row: int, number: int) -> None:
    of = edges()
    of.listed[row, 5] = number
    x = torch.randn(SOURCES, 3)
    with pytest.raises(IndexRangeError):
        few.aggregate(of, x, None, "sum")
    with pytest.raises(IndexRangeError), torch.no_grad():
        attend(of, attention("gat", (2, 3), torch.float32))
    rows = FewRows(of.listed[row], SOURCES)
    with pytest.raises(IndexRangeError):
        few.aggregate(rows, torch.randn(EDGES, 3), None, "max")
    with pytest.raises(IndexRangeError):
        softmax(rows, torch.randn(EDGES, 3))


def test_writes_to_the_edges_raise_before_the_backward_pass() -> None:
    of = edges()
    out = few.aggregate(of, torch.randn(SOURCES, 3, requires_grad=True), None, "sum")
    of.listed.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_only_what_a_gradient_reads_is_saved() -> None:
    of, x = edges(), torch.randn(SOURCES, 3, requires_grad=True)
    saved: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        few.aggregate(of, x, None, "sum")
        few.aggregate(of, x, None, "mean")
    assert [each.shape for each in saved] == [of.listed.shape] * 2
    assert all(each is not of.listed for each in saved)


def test_special_numbers_stay_in_their_rows() -> None:
    of = edges()
    source, target = ends(of)
    values = torch.randn(SOURCES, 1, 4)
    of_source, of_target = torch.randn(SOURCES, 1), torch.randn(TARGETS, 1)
    of_source[source[0]], of_source[source[1]] = torch.nan, -torch.inf
    scores = Scores("gat", 0.2, values, of_source, of_target, None)
    out = attend(of, scores)
    torch.testing.assert_close(out, plain_attention(of, scores), equal_nan=True)
    assert bool(out[target[0]].isnan().all())


# Rows that belong to rows of a result


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
def test_rows_of_an_index(reduce: str, stride: int, dtype: torch.dtype) -> None:
    index = edges().listed[1].repeat_interleave(stride)[::stride]
    rows, x = FewRows(index, TARGETS), torch.randn(EDGES, 5, dtype=dtype).round().requires_grad_()

    def plain() -> Tensor:
        zeros, by = x.new_zeros(TARGETS, 5), {"max": "amax", "min": "amin"}.get(reduce, reduce)
        return zeros.scatter_reduce(0, index.unsqueeze(1).expand(-1, 5), x, by, include_self=False)

    compare(few.aggregate(rows, x, None, reduce), plain(), [x], 1e-5)
    native = unrecorded(few.aggregate(rows, x, None, reduce), [x])
    torch.testing.assert_close(native, unrecorded(plain(), [x]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("heads", [1, 4, 19])
def test_softmax(heads: int, dtype: torch.dtype) -> None:
    index, scores = edges().listed[1], torch.randn(EDGES, heads, dtype=dtype, requires_grad=True)
    rows, rtol = FewRows(index, TARGETS), 1e-4 if dtype is torch.float32 else 1e-12
    compare(softmax(rows, scores), plain_softmax(index, scores), [scores], rtol)
    native = unrecorded(softmax(rows, scores), [scores])
    torch.testing.assert_close(
        native, unrecorded(plain_softmax(index, scores), [scores]), rtol=rtol, atol=rtol
    )
    grads = torch.randn(3, EDGES, heads, dtype=dtype)
    (batch,) = torch.autograd.grad(softmax(rows, scores), scores, grads, is_grads_batched=True)
    for own, grad in zip(batch, grads, strict=True):
        (expected,) = torch.autograd.grad(plain_softmax(index, scores), scores, grad)
        torch.testing.assert_close(own, expected, rtol=rtol, atol=rtol)


def test_softmax_of_special_numbers() -> None:
    index, scores = torch.tensor([0, 0, 1, 1, 2, 3, 3]), torch.randn(7, 1)
    inf = torch.inf
    scores[:, 0] = torch.tensor([torch.nan, 1.0, inf, 2.0, -inf, -inf, 3.0])
    found = softmax(FewRows(index, 4), scores)
    assert found.isnan().flatten().tolist() == [True] * 5 + [False] * 2
    torch.testing.assert_close(found, plain_softmax(index, scores), equal_nan=True)


def test_softmax_saves_the_index_and_its_result() -> None:
    index, scores = edges().listed[1].clone(), torch.randn(EDGES, 2, requires_grad=True)
    out = softmax(FewRows(index, TARGETS), scores)
    with torch.no_grad():
        scores.zero_()
    out.sum().backward(retain_graph=True)
    index.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
