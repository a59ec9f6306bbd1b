"""Layers' sums and attention over few edges, against a plain computation over rows of edges."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from onehop.errors import IndexRangeError
from onehop.ops import few
from onehop.ops.few import FewEdges

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
    return of.edge_index[of.sending], of.edge_index[1 - of.sending]


def plain_sum(of: FewEdges, x: Tensor, weight: Tensor | None, reduce: str) -> Tensor:
    source, target = ends(of)
    rows = x[source] if weight is None else x[source] * weight.unsqueeze(1)
    out = x.new_zeros(TARGETS, x.size(1)).index_add(0, target, rows)
    if reduce == "mean":
        out = out / torch.bincount(target, minlength=TARGETS).clamp(min=1).unsqueeze(1)
    return out


def plain_attention(of: FewEdges, kind: str, operands: list[Tensor | None]) -> Tensor:
    values, of_source, of_target, att = operands
    assert values is not None
    assert of_source is not None
    assert of_target is not None
    source, target = ends(of)
    if kind == "dot":
        score = FACTOR * (of_source[source] * of_target[target]).sum(-1)
    else:
        score = leaky_relu(of_source[source] + of_target[target], FACTOR)
        score = score if att is None else (score * att).sum(-1)
    out = []
    for node in range(of.num_dst):
        own = target == node
        out.append((score[own].softmax(0).unsqueeze(-1) * values[source[own]]).sum(0))
    return torch.stack(out)


def operands(kind: str, shape: tuple[int, int], dtype: torch.dtype) -> list[Tensor | None]:
    heads, columns = shape
    generator = torch.Generator().manual_seed(1)

    def some(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    values = some(SOURCES, heads, columns)
    if kind == "gat":
        return [values, some(SOURCES, heads), some(TARGETS, heads), None]
    if kind == "gatv2":
        return [values, values, some(TARGETS, heads, columns), some(heads, columns)]
    return [values, some(SOURCES, heads, columns), some(TARGETS, heads, columns), None]


def compare(ours: Tensor, plain: Tensor, needed: list[Tensor], rtol: float) -> None:
    torch.testing.assert_close(ours, plain, rtol=rtol, atol=rtol)
    grad = torch.randn(ours.shape, generator=torch.Generator().manual_seed(2)).to(ours.dtype)
    mine = torch.autograd.grad(ours, needed, grad, create_graph=True)
    expected = torch.autograd.grad(plain, needed, grad, create_graph=True)
    again = [sum((g * g.detach()).sum() for g in each) for each in (mine, expected)]
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
    of, given = edges(sending), operands(kind, shape, dtype)
    values, of_source, of_target, att = given
    needed = list({id(each): each for each in given if each is not None}.values())
    rtol = 1e-3 if dtype is torch.float32 else 1e-11

    def run() -> Tensor:
        assert values is not None
        assert of_source is not None
        assert of_target is not None
        return few.attend(of, kind, values, of_source, of_target, att, FACTOR)

    compare(run(), plain_attention(of, kind, given), needed, rtol)
    native, plain = unrecorded(run(), needed), unrecorded(plain_attention(of, kind, given), needed)
    torch.testing.assert_close(native, plain, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("kind", KINDS)
def test_operands_that_are_made_of_each_other(kind: str) -> None:
    of = edges()
    x = torch.randn(SOURCES, 2, 3, dtype=torch.float64, requires_grad=True)
    att = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)

    def operands_of(values: Tensor) -> list[Tensor | None]:
        if kind == "gat":
            return [values, (values * att).sum(-1), (values[:TARGETS] * att).sum(-1), None]
        if kind == "gatv2":
            return [values, values, values[:TARGETS], att]
        return [values, values, values[:TARGETS] * att, None]

    def run() -> Tensor:
        values, of_source, of_target, factors = operands_of(x)
        assert values is not None
        assert of_source is not None
        assert of_target is not None
        return few.attend(of, kind, values, of_source, of_target, factors, FACTOR)

    compare(run(), plain_attention(of, kind, operands_of(x)), [x, att], 1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_one_tensor_of_sources_and_targets(kind: str) -> None:
    index = torch.randint(SOURCES, (2, EDGES), generator=torch.Generator().manual_seed(3))
    of = FewEdges(index, SOURCES, SOURCES, 0)
    x = torch.randn(SOURCES, 2, 3, dtype=torch.float64, requires_grad=True)
    scored = x.sum(-1) if kind == "gat" else x
    att = torch.ones(2, 3, dtype=torch.float64, requires_grad=True) if kind == "gatv2" else None
    needed = [x] if att is None else [x, att]
    plain = plain_attention(of, kind, [x, scored, scored, att])
    compare(few.attend(of, kind, x, scored, scored, att, FACTOR), plain, needed, 1e-10)


def test_no_edges() -> None:
    of = edges(empty=True)
    x = torch.randn(SOURCES, 3, requires_grad=True)
    out = few.aggregate(of, x, None, "mean")
    assert not out.any()
    assert not torch.autograd.grad(out.sum(), x)[0].any()
    values, of_source, of_target, _ = operands("dot", (2, 3), torch.float32)
    assert values is not None
    assert of_source is not None
    assert of_target is not None
    assert not few.attend(of, "dot", values, of_source, of_target, None, 1.0).any()


@pytest.mark.parametrize("number", [-1, SOURCES])
@pytest.mark.parametrize("row", [0, 1])
def test_ends_out_of_range(row: int, number: int) -> None:
    of = edges()
    of.edge_index[row, 5] = number
    x = torch.randn(SOURCES, 3)
    with pytest.raises(IndexRangeError):
        few.aggregate(of, x, None, "sum")
    values, of_source, of_target, att = (
        None if each is None else each.detach() for each in operands("gat", (2, 3), torch.float32)
    )
    assert values is not None
    assert of_source is not None
    assert of_target is not None
    with pytest.raises(IndexRangeError):
        few.attend(of, "gat", values, of_source, of_target, att, 0.2)


def test_writes_to_the_edges_raise_before_the_backward_pass() -> None:
    of = edges()
    out = few.aggregate(of, torch.randn(SOURCES, 3, requires_grad=True), None, "sum")
    of.edge_index.add_(1)
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
    assert [each.shape for each in saved] == [of.edge_index.shape] * 2
    assert all(each is not of.edge_index for each in saved)


def test_special_numbers_stay_in_their_rows() -> None:
    of = edges()
    source, target = ends(of)
    values = torch.randn(SOURCES, 1, 4)
    of_source, of_target = torch.randn(SOURCES, 1), torch.randn(TARGETS, 1)
    of_source[source[0]], of_source[source[1]] = torch.nan, -torch.inf
    out = few.attend(of, "gat", values, of_source, of_target, None, 0.2)
    expected = plain_attention_rows(of, values, of_source, of_target)
    torch.testing.assert_close(out, expected, equal_nan=True)
    assert bool(out[target[0]].isnan().all())


def plain_attention_rows(of: FewEdges, values: Tensor, of_source: Tensor, of_target: Tensor) -> Tensor:
    source, target = ends(of)
    score = leaky_relu(of_source[source] + of_target[target], 0.2)
    out = torch.zeros(TARGETS, 1, values.size(2))
    for node in range(TARGETS):
        own = target == node
        if own.any():
            out[node] = (score[own].softmax(0).unsqueeze(-1) * values[source[own]]).sum(0)
    return out
