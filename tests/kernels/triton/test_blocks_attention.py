"""Attention over windows, interpreted, against the reference: outputs and every gradient, by name."""

from dataclasses import replace

import pytest
import torch

import onehop
from onehop import Graph, reference
from onehop.backends.triton import TritonBackend
from onehop.calls import Attention, on
from onehop.kernels.triton import blocks, blocks_attention
from onehop.plans import TritonPlan
from tests.kernels.triton.small_graphs import GRAPHS
from tests.kernels.triton.test_attention import check, inputs_for

# Windows of more than 16 columns are cut.
PLAN = TritonPlan(split_edges=1, block_edges=16, num_warps=1, variant="blocks")
# NumPy, which interprets the kernels, warns of what a GPU does silently.
numpy_warns = pytest.mark.filterwarnings(
    "ignore:.*encountered:RuntimeWarning", "ignore:All-NaN slice:RuntimeWarning"
)
BF16, FP16 = torch.bfloat16, torch.float16


@pytest.fixture(autouse=True)
def through_blocks(small_tiles, use, monkeypatch):
    """The plan; which calls went this way."""
    runs = []
    for name in ("attend", "attend_grad"):
        real = getattr(blocks_attention, name)
        monkeypatch.setattr(
            blocks_attention, name, lambda *args, n=name, f=real: (runs.append(n), f(*args))[1]
        )
    use(PLAN)
    return runs


def of(name, heads, width, dtype=BF16, **rest):
    return inputs_for("attention", name, heads, width, dtype=dtype, **rest)


@pytest.mark.parametrize("name", GRAPHS)
def test_hostile_graphs(name, through_blocks):
    check("attention", name, of(name, 2, 20))
    assert through_blocks == ["attend", "attend_grad"]


@pytest.mark.parametrize(("heads", "width"), [(1, 1), (3, 16), (2, 33), (1, 128)])
def test_heads_and_widths(heads, width):
    check("attention", "bipartite_wide", of("bipartite_wide", heads, width, FP16))


@pytest.mark.parametrize("value_width", [1, 40])
def test_values_of_another_width(value_width):
    check("attention", "random", of("random", 2, 12, FP16, value_width=value_width))


@pytest.mark.parametrize("columns", [16, 32])
@pytest.mark.parametrize("name", ["one_hub", "bipartite_tall", "multi_edges"])
def test_dropout_draws_what_the_reference_draws(name, columns, use):
    use(TritonPlan(split_edges=2, block_edges=columns, num_warps=1, variant="blocks"))
    check("attention", name, of(name, 2, 5, FP16), dropout=0.6, seed=2**40 + 17)


def test_edges_numbered_in_64_bits(monkeypatch):
    monkeypatch.setattr(blocks, "_NARROW_EDGES", 0)
    check("attention", "one_hub", of("one_hub", 1, 4), dropout=0.3, seed=1)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("operand", ["query", "key", "value"])
@numpy_warns
def test_special_numbers_stay_with_their_edges(operand, bad):
    edge_index, num_src, num_dst = GRAPHS["bipartite_tall"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    inputs = of("bipartite_tall", 1, 2, FP16)
    inputs[operand][1] = bad
    ours, exact = ({name: t.clone().requires_grad_() for name, t in inputs.items()} for _ in range(2))
    out = onehop.attention(graph, **ours, backend="triton")
    expected, _ = reference.attention(edge_index, **exact)
    assert expected.isfinite().all(2).any()
    torch.testing.assert_close(out, expected, equal_nan=True, rtol=1e-2, atol=1e-2)
    grad = torch.ones_like(out)
    grads = torch.autograd.grad(out, list(ours.values()), grad)
    truths = torch.autograd.grad(expected, list(exact.values()), grad)
    for name, found, truth in zip(inputs, grads, truths, strict=True):
        assert torch.equal(found.isfinite(), truth.isfinite()), name


@numpy_warns
def test_all_scores_minus_infinity_are_not_an_empty_row():
    edge_index, num_src, num_dst = GRAPHS["one_hub"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    inputs = of("one_hub", 1, 2, FP16)
    inputs["query"][:] = 1
    inputs["key"][:] = -float("inf")
    out = onehop.attention(graph, **inputs, backend="triton")
    assert torch.equal(out.isnan().all(2).squeeze(1), graph.in_degrees > 0)


@pytest.mark.parametrize("one", ["query", "key", "value"])
def test_one_gradient_at_a_time(one):
    edge_index, num_src, num_dst = GRAPHS["one_hub"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    inputs = of("one_hub", 2, 3, FP16)
    together = {name: t.clone().requires_grad_() for name, t in inputs.items()}
    alone = inputs | {one: inputs[one].clone().requires_grad_()}
    expected = torch.autograd.grad(onehop.attention(graph, **together, backend="triton").sum(), together[one])
    found = torch.autograd.grad(onehop.attention(graph, **alone, backend="triton").sum(), alone[one])
    assert torch.equal(found[0], expected[0])


def test_the_same_bits_every_time():
    edge_index, num_src, num_dst = GRAPHS["one_hub"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    leaves = [t.requires_grad_() for t in of("one_hub", 2, 3).values()]
    runs = []
    for _ in range(2):
        out = onehop.attention(graph, *leaves, dropout=0.2, seed=1, backend="triton")
        runs.append((out, *torch.autograd.grad(out.sin().sum(), leaves)))
    assert all(torch.equal(*pair) for pair in zip(*runs, strict=True))


def test_operands_with_gaps():
    edge_index, num_src, num_dst = GRAPHS["random"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    inputs = of("random", 2, 5)
    expected = onehop.attention(graph, **inputs, backend="triton")
    apart = {name: torch.stack([t, t + 1], 1)[:, 0] for name, t in inputs.items()}
    assert torch.equal(onehop.attention(graph, **apart, backend="triton"), expected)


@pytest.mark.parametrize(
    ("operator", "settings", "more"),
    [
        ("gat", {}, {}),
        ("gatv2", {}, {}),
        ("attention", {}, {"edge": "rows"}),
        ("attention", {"with_weights": True}, {}),
        ("attention", {"edge_mask": torch.ones(30, 2)}, {}),
        ("attention", {}, {"dtype": torch.float32}),
    ],
    ids=str,
)
def test_what_takes_the_kernels(operator, settings, more, through_blocks):
    check(operator, "random", inputs_for(operator, "random", 2, 4, **{"dtype": BF16, **more}), **settings)
    assert not through_blocks


def test_leaves_what_the_kernels_leave_for_a_backward_pass():
    """So that either can be the plan of either pass."""
    edge_index, num_src, num_dst = GRAPHS["empty_rows"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    inputs = of("empty_rows", 2, 20, FP16)
    operands = {name: inputs[name] for name in ("value", "key", "query")}
    seeds = torch.tensor([7])
    call = on(graph, Attention, rule="dot", **operands, factor=0.2, dropout=0.3, seeds=seeds)
    ours = TritonBackend(PLAN).run(graph, call)
    kernels = TritonBackend(replace(PLAN, variant="kernels")).run(graph, call)
    torch.testing.assert_close(ours, kernels, rtol=5e-3, atol=5e-3)


def test_wide_heads_take_the_kernels(through_blocks):
    graph = Graph.from_edge_index(torch.tensor([[0], [1]]), 2)
    x = torch.ones(2, 1, 129, dtype=FP16)
    assert torch.equal(onehop.attention(graph, x, x, x, backend="triton")[1], x[0])
    assert not through_blocks
