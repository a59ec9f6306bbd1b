"""Programs that are an operator: which are recognised, and that the operator gives what the program gives."""

import random
from collections.abc import Callable
from dataclasses import replace
from types import MethodType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import dropout, leaky_relu
from torch_geometric import nn
from torch_geometric.utils import softmax

import onehop
from onehop import Graph, thresholds
from onehop.compiler import message as module, rows as compiled
from onehop.compiler.matched import rule_of
from onehop.compiler.reading import Reading
from onehop.integrations.pyg.admit import Target, Weight
from onehop.integrations.pyg.known import layer_class
from onehop.integrations.pyg.rules.table import TABLE, Rule
from onehop.messages import End, Operand, Program, Step
from onehop.ops.message import fits, reduce_messages
from tests.compiler.test_message import edges_between, numbers

SOURCES, TARGETS, EDGES, HEADS, WIDTH = 9, 7, 60, 2, 16

ATT = numbers(1, HEADS, WIDTH, seed=3)


def operands(edges: int = EDGES) -> dict[str, object]:
    """Rows of both ends, [nodes, heads, width], their scores, and rows, scores and weights of edges."""

    def both(*shape: int, seed: int) -> tuple[Tensor, Tensor]:
        return tuple(numbers(n, *shape, seed=seed + n).requires_grad_() for n in (SOURCES, TARGETS))  # type: ignore[return-value]

    return {
        "x": both(HEADS, WIDTH, seed=1),
        "k": both(HEADS, WIDTH, seed=2),
        "s": both(HEADS, seed=3),
        "e": numbers(edges, HEADS, WIDTH, seed=4).requires_grad_(),
        "b": numbers(edges, HEADS, seed=5).requires_grad_(),
        "w": numbers(edges, 1, 1, seed=6).requires_grad_(),
    }


def weighed(scores: Tensor, x: Tensor, index: Tensor, ptr: Tensor | None, size_i: int) -> Tensor:
    return softmax(scores, index, ptr, size_i).unsqueeze(-1) * x


def gatv2(x_i, x_j, index, ptr, size_i):  # type: ignore[no-untyped-def]
    return weighed((leaky_relu(x_i + x_j, 0.1) * ATT).sum(-1), x_j, index, ptr, size_i)


def gatv2_with_edges(x_i, x_j, e, index, ptr, size_i):  # type: ignore[no-untyped-def]
    return x_j * softmax((ATT * (e + x_j + x_i).relu()).sum(-1), index, ptr, size_i).view(-1, HEADS, 1)


def gat(s_i, s_j, x_j, index, ptr, size_i):  # type: ignore[no-untyped-def]
    return weighed(leaky_relu(s_j + s_i, 0.3), x_j, index, ptr, size_i)


def gat_with_edges(s_i, s_j, b, x_j, index, ptr, size_i):  # type: ignore[no-untyped-def]
    return weighed(s_j + b + s_i, x_j, index, ptr, size_i)


def dots(x_i, k_j, x_j, index, ptr, size_i):  # type: ignore[no-untyped-def]
    return weighed((x_i * k_j).sum(-1) / WIDTH**0.5, x_j, index, ptr, size_i)


def dots_with_edges(x_i, k_j, x_j, e, index, ptr, size_i):  # type: ignore[no-untyped-def]
    key = k_j + e
    return weighed((x_i * 0.7 * key).sum(-1), x_j + e, index, ptr, size_i)


def dropped(x_i, x_j, index, ptr, size_i):  # type: ignore[no-untyped-def]
    alpha = softmax((leaky_relu(x_i + x_j, 0.1) * ATT).sum(-1), index, ptr, size_i)
    return x_j * dropout(alpha, 0.4).unsqueeze(-1)


MATCHED: list[tuple[Callable[..., Tensor], str, str]] = [
    (gatv2, "sum", "GATv2's attention"),
    (gatv2_with_edges, "sum", "GATv2's attention"),
    (dropped, "sum", "GATv2's attention"),
    (gat, "sum", "GAT's attention"),
    (gat_with_edges, "sum", "GAT's attention"),
    (dots, "sum", "dot-product attention"),
    (dots_with_edges, "sum", "dot-product attention"),
    *((lambda x_j: x_j, reduce, f"the {reduce} of sources") for reduce in ("sum", "mean", "max", "min")),
    *((lambda x_j, w: w * x_j, reduce, f"the weighted {reduce} of sources") for reduce in ("sum", "mean")),
    (lambda x_j, w: x_j * w * w, "sum", "the weighted sum of sources"),
    (lambda x_j, b: x_j * b.unsqueeze(-1), "mean", "the weighted mean of sources"),
    (lambda x_j, b, w: x_j * b.unsqueeze(-1) * w, "sum", "the weighted sum of sources"),
]
OTHERS: list[tuple[Callable[..., Tensor], str]] = [
    (gatv2, "mean"),
    (lambda x_i: x_i, "sum"),
    (lambda x_j, w: x_j * w, "max"),
    (lambda x_j: 2 * x_j, "sum"),
    # A weight of each column, or of a few columns.
    (lambda x_j, e: x_j * e, "sum"),
    (lambda x_j, b: x_j[..., :15] * b.unsqueeze(-1), "sum"),
    # The rows are not those of the scores, the edges' are added to one of two, the vector is scaled.
    (
        lambda x_i, x_j, k_j, index, ptr, size_i: weighed(
            (leaky_relu(x_i + x_j) * ATT).sum(-1), k_j, index, ptr, size_i
        ),
        "sum",
    ),
    (
        lambda x_i, k_j, e, x_j, index, ptr, size_i: weighed(
            (x_i * (k_j + e)).sum(-1), x_j, index, ptr, size_i
        ),
        "sum",
    ),
    (
        lambda x_i, x_j, index, ptr, size_i: weighed(
            (leaky_relu(x_i + x_j) * ATT * 2).sum(-1), x_j, index, ptr, size_i
        ),
        "sum",
    ),
    # Numbers of a head are spread over its columns before they are added up.
    (
        lambda x_i, s_j, x_j, index, ptr, size_i: weighed(
            (x_i * s_j.unsqueeze(-1)).sum(-1), x_j, index, ptr, size_i
        ),
        "sum",
    ),
    # Columns of a head are not next to each other.
    (
        lambda x_i, k_j, x_j, index, ptr, size_i: (
            softmax((x_i * k_j).sum(1), index, ptr, size_i).unsqueeze(1) * x_j
        ),
        "sum",
    ),
    # Scores of one end alone, and of one end twice.
    (lambda s_j, x_j, index, ptr, size_i: weighed(s_j, x_j, index, ptr, size_i), "sum"),
    (lambda s_j, s_i, x_j, index, ptr, size_i: weighed(s_j + s_i + s_j, x_j, index, ptr, size_i), "sum"),
    # A softmax of other scores, and weights that are multiplied by a number an edge that has a gradient.
    (
        lambda s_j, s_i, b, x_j, index, ptr, size_i: weighed(
            s_j + s_i, x_j * b.unsqueeze(-1), index, ptr, size_i
        ),
        "sum",
    ),
    (
        lambda s_j, s_i, x_j, index, ptr, size_i: weighed(
            s_j + s_i, weighed(s_j * s_i, x_j, index, ptr, size_i), index, ptr, size_i
        ),
        "sum",
    ),
]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The names of the rules that programs ran as, None for programs that ran themselves."""
    names: list[str | None] = []

    def noting(program: Program, reduce: str):  # type: ignore[no-untyped-def]
        rule = rule_of(program, reduce)
        if rule is None:
            names.append(None)
            return None
        return rule._replace(run=lambda graph, given: names.append(rule.name) or rule.run(graph, given))

    monkeypatch.setattr(compiled, "rule_of", noting)
    return names


def results(function: Callable[..., Tensor], reduce: str) -> list[Tensor]:
    """The output and the gradients of all operands."""
    given = operands()
    leaves = [each for value in given.values() for each in (value if isinstance(value, tuple) else (value,))]
    asked = {
        name.removesuffix("_i").removesuffix("_j") for name in function.__code__.co_varnames
    } & given.keys()
    graph = Graph.from_edge_index(edges_between(SOURCES, TARGETS, EDGES), size=(SOURCES, TARGETS))
    torch.manual_seed(0)
    with thresholds.lifted():
        out = onehop.message(graph, function, reduce, **{name: given[name] for name in asked})
    grads = torch.autograd.grad(out, leaves, numbers(*out.shape, seed=9), allow_unused=True)
    return [out, *(torch.zeros(()) if grad is None else grad for grad in grads)]


@pytest.mark.parametrize(("function", "reduce", "name"), MATCHED)
def test_a_program_that_is_an_operator_runs_as_it(
    function: Callable[..., Tensor],
    reduce: str,
    name: str,
    ran: list[str | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = results(function, reduce)
    assert ran == [name]
    monkeypatch.setattr(compiled, "rule_of", lambda program, reduce: None)
    for found, expected in zip(ours, results(function, reduce), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("function", "reduce"), OTHERS)
def test_other_programs_run_themselves(
    function: Callable[..., Tensor], reduce: str, ran: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = results(function, reduce)
    assert ran in ([None], [])
    monkeypatch.setattr(compiled, "rule_of", lambda program, reduce: None)
    for found, expected in zip(ours, results(function, reduce), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def kept(function: Callable[..., Tensor], reduce: str, monkeypatch: pytest.MonkeyPatch) -> Program:
    """The program of a message."""
    programs: list[Program] = []
    with monkeypatch.context() as patch:
        patch.setattr(compiled, "rule_of", lambda program, reduce: programs.append(program))
        results(function, reduce)
    return programs[0]


def altered(program: Program, draw: random.Random) -> Program:
    """A program with one thing changed: an operation, an input, a number, or the end of an operand."""
    steps, given = list(program.steps), list(program.operands)
    kind = draw.randrange(4)
    if kind == 3 or not steps:
        at = draw.randrange(len(given))
        given[at] = Operand(draw.choice([End.SOURCE, End.TARGET, End.EDGE, End.FIXED]), given[at].width)
        return replace(program, operands=tuple(given))
    at = draw.randrange(len(steps))
    step, before = steps[at], at + len(given)
    if kind == 0:
        alike = [
            ["add", "multiply", "subtract", "divide"],
            ["leaky_relu", "relu", "exp", "tanh", "scale", "shift", "detach"],
        ]
        same = next((group for group in alike if step.operation in group), ["row_sum", "row_max"])
        if step.operation in same:
            steps[at] = replace(step, operation=draw.choice(same))
    elif kind == 1:
        at_input = draw.randrange(len(step.inputs))
        width = program.width_of(step.inputs[at_input])
        others = [value for value in range(before) if program.width_of(value) == width]
        inputs = list(step.inputs)
        inputs[at_input] = draw.choice(others)
        steps[at] = replace(step, inputs=tuple(inputs))
    else:
        steps[at] = replace(step, numbers=(step.numbers[0] + draw.choice([0.0, 1.0, 1e-16]), step.numbers[1]))
    return replace(program, steps=tuple(steps))


@pytest.mark.parametrize(("function", "reduce", "name"), MATCHED)
def test_programs_that_differ_a_little_are_matched_only_if_the_operator_gives_the_same(
    function: Callable[..., Tensor], reduce: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, draw = kept(function, reduce, monkeypatch), random.Random(0)
    edge_index = edges_between(SOURCES, TARGETS, EDGES)
    graph = Graph.from_edge_index(edge_index, size=(SOURCES, TARGETS))
    counts = {End.SOURCE: SOURCES, End.TARGET: TARGETS, End.EDGE: EDGES}
    still = 0
    for _ in range(300):
        other = altered(program, draw)
        rule = rule_of(other, reduce)
        if rule is None or not fits(other, (reduce,)):
            continue
        still += 1
        given = [
            numbers(*(() if each.end is End.FIXED else (counts[each.end],)), each.width, seed=at)
            for at, each in enumerate(other.operands)
        ]
        (expected,) = reduce_messages(graph, other, given, (reduce,))
        torch.testing.assert_close(rule.run(graph, given), expected, rtol=1e-9, atol=1e-12)
    assert still > 5


def test_a_weight_beside_the_softmax_that_has_a_gradient_gets_it(ran: list[str | None]) -> None:
    def both(s_i, s_j, b, x_j, index, ptr, size_i):  # type: ignore[no-untyped-def]
        return (softmax(s_j + s_i, index, ptr, size_i) * b).unsqueeze(-1) * x_j

    found = results(both, "sum")
    assert ran == []
    assert found[-2].abs().sum() > 0


PLAIN = [(layer_class(name), rule) for name, rule in TABLE.items() if not rule.attends]


@pytest.mark.parametrize(("kind", "rule"), PLAIN, ids=[kind.__name__ for kind, _ in PLAIN])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_the_trace_of_each_message_that_the_table_knows_is_its_rule(
    kind: type, rule: Rule, reduce: str, ran: list[str | None]
) -> None:
    specs = {type(spec): (name, spec) for name, spec in rule.operands.items()}
    weight, spec = specs.get(Weight, (None, None))
    weights = [False] if weight is None else [True] if spec.required else [True, False]
    graph = Graph.from_edge_index(edges_between(SOURCES, SOURCES, EDGES), size=(SOURCES, SOURCES))
    for weighted in weights:
        given = {
            name: numbers(SOURCES, WIDTH) for kind_of, (name, _) in specs.items() if kind_of is not Weight
        }
        given |= {} if weight is None else {weight: numbers(EDGES, seed=2) if weighted else None}
        with thresholds.lifted():
            onehop.message(graph, MethodType(kind.message, torch.nn.Module()), reduce, **given)  # type: ignore[attr-defined]
    copies = {False: f"the {reduce} of sources", True: f"the weighted {reduce} of sources"}
    # A difference is two sums, and runs as such where its class is known.
    assert ran == [None if Target in specs else copies[weighted] for weighted in weights]


@pytest.mark.parametrize(
    ("layer", "given", "name"),
    [
        (nn.GATConv(4, WIDTH, HEADS), {"alpha": (HEADS,), "x": (HEADS, WIDTH)}, "GAT's attention"),
        (nn.GATv2Conv(4, WIDTH, HEADS), {"x": (HEADS, WIDTH)}, "GATv2's attention"),
        (
            nn.TransformerConv(4, WIDTH, HEADS),
            dict.fromkeys(("query", "key", "value"), (HEADS, WIDTH)),
            "dot-product attention",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_trace_of_each_attention_that_the_table_knows_is_its_rule(
    layer: Any,
    given: dict[str, tuple[int, ...]],
    name: str,
    ran: list[str | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What PyG's code stores on its layer besides keeps it from being read as a user's.
    monkeypatch.setattr(module, "_reading_of", lambda fn: Reading(None, (), ()))

    def of_gat(alpha_i, alpha_j, x_j, index, ptr, size_i):  # type: ignore[no-untyped-def]
        return layer.message(x_j, layer.edge_update(alpha_j, alpha_i, None, index, ptr, size_i))

    def of_gatv2(x_i, x_j, index, ptr, size_i):  # type: ignore[no-untyped-def]
        return layer.message(x_j, layer.edge_update(x_j, x_i, None, index, ptr, size_i))

    def of_dots(query_i, key_j, value_j, index, ptr, size_i):  # type: ignore[no-untyped-def]
        # A layer of PyG keeps its weights, which would have to be known for each edge.
        plain = SimpleNamespace(lin_edge=None, heads=HEADS, out_channels=WIDTH, dropout=0.0, training=False)
        return type(layer).message(plain, query_i, key_j, value_j, None, index, ptr, size_i)

    layer = layer.double()
    graph = Graph.from_edge_index(edges_between(SOURCES, SOURCES, EDGES), size=(SOURCES, SOURCES))
    function = {"GAT's attention": of_gat, "GATv2's attention": of_gatv2}.get(name, of_dots)
    with thresholds.lifted():
        onehop.message(graph, function, **{key: numbers(SOURCES, *shape) for key, shape in given.items()})
    assert ran == [name]


class OwnGatv2(nn.MessagePassing):
    """GATv2 as a user writes it."""

    def __init__(self) -> None:
        super().__init__(aggr="add", node_dim=0)
        self.lin = torch.nn.Linear(5, HEADS * WIDTH)
        self.att = torch.nn.Parameter(ATT.float())

    def forward(self, x, edge_index):  # type: ignore[no-untyped-def]
        return self.propagate(edge_index, x=self.lin(x).view(-1, HEADS, WIDTH))

    def message(self, x_i, x_j, index, ptr, size_i):  # type: ignore[no-untyped-def]
        return weighed((leaky_relu(x_i + x_j, 0.2) * self.att).sum(-1), x_j, index, ptr, size_i)


def test_explain_names_the_operator_of_a_layer_of_ones_own() -> None:
    layer, x = OwnGatv2(), torch.randn(SOURCES, 5)
    edge_index = edges_between(SOURCES, SOURCES, EDGES)
    expected = layer(x, edge_index)
    with onehop.patch(), thresholds.lifted():
        torch.testing.assert_close(layer(x, edge_index), expected)
        explanation = onehop.explain(layer, x, edge_index)
    assert [row.plan for row in explanation.layers] == ["matches GATv2's attention"]


def test_a_program_has_one_rule() -> None:
    copy = Program((Operand(End.SOURCE, 4),), (), 0)
    assert rule_of(copy, "sum") is rule_of(replace(copy), "sum")
    assert rule_of(copy, "squares") is None
    assert (
        rule_of(Program((Operand(End.SOURCE, 4),), (Step("scale", (0,), 4, (2.0, 0.0)),), 1), "sum") is None
    )
