"""``onehop.message`` against a loop over the edges in float64."""

import subprocess
import sys

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import onehop
from onehop import ArgumentError, Graph, thresholds
from onehop.compiler import message as module
from tests.pairs import pairwise

NODES, EDGES, WIDTH = 9, 60, 6
REDUCTIONS = ["sum", "mean", "max", "min", "var", "std"]


def numbers(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 7 * len(shape) + shape[-1])
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def edges_between(sources: int, destinations: int, count: int = EDGES) -> Tensor:
    """Edges in an order of their own; the last destination has none, and one has most."""
    generator = torch.Generator().manual_seed(5)
    source = torch.randint(0, sources, (count,), generator=generator)
    target = torch.randint(0, destinations - 1, (count,), generator=generator)
    target[::3] = 2
    return torch.stack([source, target])


EDGE_INDEX = edges_between(NODES, NODES)


def square() -> Graph:
    return Graph.from_edge_index(EDGE_INDEX, num_nodes=NODES)


def naive(edge_index, fn, reduce, num_dst, rows):
    """A loop: ``rows`` gives the arguments of an edge by its number, source and destination."""
    found = [[] for _ in range(num_dst)]
    for number, (source, target) in enumerate(edge_index.t().tolist()):
        found[target].append(fn(**rows(number, source, target)))
    width = next(message[0] for message in found if message)[0].shape
    out = []
    for messages in found:
        if not messages:
            out.append(torch.zeros(width, dtype=torch.float64))
            continue
        each = torch.cat(messages)
        if reduce in ("var", "std"):
            out.append((each**2).mean(0) - each.mean(0) ** 2)
        elif reduce in ("max", "min"):
            out.append(getattr(each, f"a{reduce}")(0))
        else:
            out.append(getattr(each, reduce)(0))
    result = torch.stack(out)
    if reduce == "std":
        result = result.clamp(min=1e-5).sqrt()
        result = result.masked_fill(result <= 1e-5**0.5, 0.0)
    return result


def compared(ours: Tensor, expected: Tensor, leaves: list[Tensor], rtol: float = 1e-9) -> None:
    """Outputs and all gradients."""
    torch.testing.assert_close(ours, expected, rtol=rtol, atol=rtol)
    grad = numbers(*expected.shape, seed=3)
    found = torch.autograd.grad(ours, leaves, grad.to(ours.dtype))
    wanted = torch.autograd.grad(expected, leaves, grad)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=rtol)


@pytest.fixture(params=[True, False], ids=["compiled", "in blocks"])
def compiled(request, monkeypatch) -> bool:
    """Whether messages are compiled; several blocks of a few edges otherwise."""
    bounds = {} if request.param else {"compiled_edges": 1 << 60, "block_bytes": 0, "block_edges": 8}
    ways = []
    way_of = module.way_of
    monkeypatch.setattr(module, "way_of", lambda *args: ways.append(way_of(*args)) or ways[-1])
    with thresholds.changed(**bounds):
        yield request.param
    assert ways
    assert all(isinstance(found.way, module.Compiled if request.param else module.InBlocks) for found in ways)


@pairwise(reduce=REDUCTIONS)
@pytest.mark.parametrize("sizes", [(NODES, NODES), (5, 11)], ids=["one set", "bipartite"])
def test_outputs_and_all_gradients(reduce, sizes, compiled):
    edge_index = edges_between(*sizes)
    graph = Graph.from_edge_index(edge_index, size=sizes)
    one_set = sizes[0] == sizes[1]
    src = numbers(sizes[0], WIDTH).requires_grad_()
    dst = src if one_set else numbers(sizes[1], WIDTH, seed=1).requires_grad_()
    e, weight = numbers(EDGES, WIDTH).requires_grad_(), numbers(EDGES).requires_grad_()
    bias = torch.nn.Parameter(numbers(WIDTH))
    matrix = torch.nn.Linear(2 * WIDTH, 4).double()

    def fn(x_i, x_j, edge_attr, weight, slope=0.1):
        row = functional.leaky_relu(x_i + x_j * edge_attr + bias, slope) * weight.unsqueeze(-1)
        return matrix(torch.cat([row, x_j], -1)).tanh()

    def rows(number, source, target):
        return {
            "x_i": dst[target : target + 1],
            "x_j": src[source : source + 1],
            "edge_attr": e[number : number + 1],
            "weight": weight[number : number + 1],
            "slope": 0.3,
        }

    x = src if one_set else (src, dst)
    ours = onehop.message(graph, fn, reduce=reduce, x=x, edge_attr=e, weight=weight, slope=0.3)
    expected = naive(edge_index, fn, reduce, sizes[1], rows)
    assert not ours[-1].any()
    leaves = list({id(t): t for t in (src, dst, e, weight, bias, *matrix.parameters())}.values())
    compared(ours, expected, leaves)


def test_several_reductions_are_side_by_side(compiled):
    graph = square()
    x = numbers(NODES, 2, 3).requires_grad_()

    def fn(x_i, x_j):
        return (x_i - x_j).exp()

    ours = onehop.message(graph, fn, reduce=["sum", "std", "max"], x=x)

    def rows(number, source, target):
        return {"x_i": x[target : target + 1], "x_j": x[source : source + 1]}

    parts = [naive(EDGE_INDEX, fn, reduce, NODES, rows) for reduce in ("sum", "std", "max")]
    assert ours.shape == (NODES, 2, 9)
    compared(ours, torch.cat(parts, -1), [x])
    torch.testing.assert_close(onehop.message(graph, fn, "add", x=x), parts[0])


def test_a_softmax_over_each_destination():
    graph = square()
    q, v = numbers(NODES, WIDTH).requires_grad_(), numbers(NODES, WIDTH, seed=2).requires_grad_()
    utils = pytest.importorskip("torch_geometric.utils")

    def fn(q_i, q_j, v_j, index, ptr, size_i):
        alpha = utils.softmax((q_i * q_j).sum(-1, keepdim=True), index, ptr, size_i)
        return alpha * v_j

    ours = onehop.message(graph, fn, q=q, v=v)
    source, target = EDGE_INDEX
    alpha = onehop.reference.edge_softmax(EDGE_INDEX, (q[target] * q[source]).sum(-1), NODES)
    expected = torch.zeros_like(v).index_add(0, target, alpha.unsqueeze(-1) * v[source])
    compared(ours, expected, [q, v])


def test_dropout_draws_torchs_numbers():
    graph = square()
    x = numbers(NODES, WIDTH)

    def fn(x_j, index):
        return functional.dropout(x_j, 0.5)

    torch.manual_seed(1)
    ours = onehop.message(graph, fn, x=x)
    after = torch.rand(1)
    torch.manual_seed(1)
    expected = torch.zeros_like(x).index_add(0, EDGE_INDEX[1], functional.dropout(x[EDGE_INDEX[0]], 0.5))
    torch.testing.assert_close(ours, expected)
    assert torch.equal(after, torch.rand(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtypes(dtype):
    graph = square()
    x = numbers(NODES, WIDTH)
    ours = onehop.message(graph, lambda x_i, x_j: (x_i - x_j).relu(), "mean", x=x.to(dtype))
    assert ours.dtype is dtype
    exact = onehop.message(graph, lambda x_i, x_j: (x_i - x_j).relu(), "mean", x=x)
    torch.testing.assert_close(ours.double(), exact, rtol=0, atol=1e-6 if dtype is torch.float32 else 5e-2)


def test_types_of_edges_run_in_blocks():
    graph = square()
    x, kinds = numbers(NODES, WIDTH).requires_grad_(), torch.arange(EDGES) % 3
    table = torch.nn.Embedding(3, WIDTH).double()
    ours = onehop.message(graph, lambda x_j, kind: x_j * table(kind), x=x, kind=kinds)
    rows = x[EDGE_INDEX[0]] * table.weight[kinds]
    compared(ours, torch.zeros_like(x).index_add(0, EDGE_INDEX[1], rows), [x, table.weight])


def test_modules_and_what_is_the_same_for_all_edges(compiled):
    graph = square()

    class Gate(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = torch.nn.Linear(WIDTH, WIDTH).double()

        def forward(self, x_i, x_j, scale):
            return self.lin(x_i - x_j).sigmoid() * x_j * scale

    gate, x, scale = Gate(), numbers(NODES, WIDTH).requires_grad_(), numbers(1, WIDTH)
    ours = onehop.message(graph, gate, x=x, scale=scale)
    rows = gate(x[EDGE_INDEX[1]], x[EDGE_INDEX[0]], scale)
    compared(ours, torch.zeros_like(x).index_add(0, EDGE_INDEX[1], rows), [x, *gate.parameters()])


def test_second_derivatives(compiled):
    graph = Graph.from_edge_index(edges_between(4, 4, 8), num_nodes=4)
    lin = torch.nn.Linear(3, 2).double()

    def call(weight, base):
        # The operand is made from the leaf that the function uses too.
        lin.weight.data = weight.detach()
        x = base @ lin.weight.t() @ lin.weight
        out = onehop.message(graph, lambda x_i, x_j: lin(x_i * x_j).tanh(), x=x)
        (grad,) = torch.autograd.grad(out.square().sum(), base, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), [base, lin.weight])

    def by_torch(weight, base):
        source, target = edges_between(4, 4, 8)
        x = base @ lin.weight.t() @ lin.weight
        rows = lin(x[target] * x[source]).tanh()
        out = rows.new_zeros(4, 2).index_add(0, target, rows)
        (grad,) = torch.autograd.grad(out.square().sum(), base, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), [base, lin.weight])

    weight, base = numbers(2, 3), numbers(4, 3).requires_grad_()
    for one, other in zip(call(weight, base), by_torch(weight, base), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("nodes", [0, 3])
def test_graphs_without_edges(nodes):
    graph = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long), num_nodes=nodes)
    x = numbers(nodes + 1, WIDTH)[:nodes].requires_grad_()
    lin = torch.nn.Linear(WIDTH, 2).double()
    out = onehop.message(graph, lambda x_i, x_j: lin(x_i + x_j), ["mean", "max"], x=x)
    assert out.shape == (nodes, 4)
    assert not out.any()
    out.sum().backward()
    assert not x.grad.any()


def test_sizes_that_might_be_taken_for_numbers_of_edges():
    graph = square()
    x = numbers(NODES, 7)
    # What a function in a list holds is not looked for: it is found when the message has met it.
    hidden = [numbers(7, 7), numbers(11, 7)]
    ours = onehop.message(graph, lambda x_j: (x_j @ hidden[0]).relu() @ hidden[1].t(), x=x)
    source, target = EDGE_INDEX
    rows = (x[source] @ hidden[0]).relu() @ hidden[1].t()
    torch.testing.assert_close(ours, rows.new_zeros(NODES, 11).index_add(0, target, rows))


def test_nothing_of_edges_times_width_is_kept():
    edge_index = edges_between(NODES, NODES, 1000)
    graph = Graph.from_edge_index(edge_index, num_nodes=NODES)
    x, sizes = numbers(NODES, 16).requires_grad_(), []

    def note(tensor):
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        onehop.message(graph, lambda x_i, x_j: (x_i * x_j).sigmoid() * x_j, x=x).sum().backward()
    assert 0 < max(sizes) <= NODES * 16


def test_inference_and_frozen_operands():
    graph = square()
    x = numbers(NODES, WIDTH)
    expected = onehop.message(graph, lambda x_i, x_j: x_i - x_j, "max", x=x)
    assert not expected.requires_grad
    with torch.inference_mode():
        torch.testing.assert_close(onehop.message(graph, lambda x_i, x_j: x_i - x_j, "max", x=x), expected)


def test_a_module_may_change_between_forward_and_backward(compiled):
    graph = square()

    class Turned(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = 2.0

        def forward(self, x_j):
            return x_j.tanh() * self.factor

    module_, x = Turned(), numbers(NODES, WIDTH).requires_grad_()
    (expected,) = torch.autograd.grad(onehop.message(graph, module_, x=x).sum(), x)
    out = onehop.message(graph, module_, x=x).sum()
    module_.factor = 5.0
    torch.testing.assert_close(torch.autograd.grad(out, x)[0], expected)


GRAPH = Graph.from_edge_index(torch.tensor([[0, 1, 2, 2], [0, 0, 1, 1]]), size=(3, 2))
X, Y = torch.ones(3, 4), torch.ones(2, 4)
HISTORY = torch.ones(4, requires_grad=True) * 2
HOOKED = torch.nn.Linear(4, 4)
HOOKED.register_forward_hook(lambda *_: None)


class Keeping(torch.nn.Module):
    def forward(self, x_j):
        self.kept = x_j
        return x_j


KEEPING = Keeping()
BAD = {
    "fn is none": (3, {"x": X}, "fn: expected a function, got int"),
    "fn is built in": (torch.add, {"x": X}, "fn: .* wrap it"),
    "fn takes all": (lambda *x_j: x_j, {"x": X}, r"fn: expected parameters with names .* got \*x_j"),
    "fn has no rows": (lambda a: a, {"a": 1.0}, "fn: expected a parameter with rows"),
    "reduce is unknown": (lambda x_j: x_j, {"x": X, "reduce": "median"}, "reduce: expected one of sum, mean"),
    "reduce is empty": (lambda x_j: x_j, {"x": X, "reduce": []}, "reduce: expected one of sum, mean"),
    "operand is missing": (lambda x_j, e: x_j, {"x": X}, "fn: its parameter e needs the operand e"),
    "operand is too much": (lambda x_j: x_j, {"x": X, "e": X}, "e: fn has no parameter e, e_i or e_j"),
    "no row for each source": (lambda x_j: x_j, {"x": Y}, "x: fn reads x_j, .* 3 sources, .*pair"),
    "no row for each destination": (lambda x_i: x_i, {"x": X}, "x: fn reads x_i, .* 2 destinations"),
    "triple": (lambda x_j: x_j, {"x": (X, X, X)}, "x: expected a tensor or a pair"),
    "rows are numbers": (lambda x_j: x_j, {"x": 1.0}, "x: expected a dense tensor, got float"),
    "rows are sparse": (lambda x_j: x_j, {"x": X.to_sparse()}, "x: expected a dense tensor, got a torch"),
    "rows are elsewhere": (lambda x_j: x_j, {"x": X.to("meta")}, "x: expected it on the CPU"),
    "no row for each edge": (lambda x_j, e: e, {"x": X, "e": X}, "e: expected a row for each of the 4"),
    "message mixes edges": (lambda x_j: x_j - x_j.mean(0), {"x": X}, "fn: its message mixes edges in"),
    "message draws": (lambda x_j: functional.dropout(x_j), {"x": X}, "fn: .* draws random numbers"),
    "message fails": (lambda x_j: x_j @ X, {"x": X}, r"fn: its message fails .*RuntimeError"),
    "message is a number": (lambda x_j: 3, {"x": X}, "fn: its message is a int, not a tensor"),
    "message is one row": (lambda x_j: X, {"x": X}, "fn: its message has no row for every edge"),
    "history": (lambda x_j: x_j * HISTORY, {"x": X}, "fn: .* history of its own, which is no operand"),
    "number of edges": (
        lambda x_j: x_j * x_j.size(0),
        {"x": X},
        "fn: its message depends on the number of edges",
    ),
    "values": (lambda x_j: x_j if x_j.sum() > 0 else -x_j, {"x": X}, "fn: its message .* in sum"),
    "module that stores": (Keeping(), {"x": X}, "fn: .* stores something .*kept = x_j"),
    "method that stores": (Keeping().forward, {"x": X}, "fn: .* stores something .*kept = x_j"),
    "function that stores": (lambda x_j: KEEPING(x_j), {"x": X}, r"fn: .* stores something"),
    "hooks": (lambda x_j: HOOKED(x_j), {"x": X}, "fn: .* hooks are registered on a module"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_said(name):
    fn, operands, text = BAD[name]
    with pytest.raises(ArgumentError, match=text):
        onehop.message(GRAPH, fn, **operands)


def test_edges_alone_are_no_graph():
    with pytest.raises(ArgumentError, match=r"graph: expected an onehop\.Graph"):
        onehop.message(torch.zeros(2, 3), lambda x_j: x_j, x=X)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler imports deprecated names
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # and looks at this one
def test_a_compiled_program_is_cut_there():
    x = numbers(3, 4).requires_grad_()

    def call(x):
        return onehop.message(GRAPH, lambda x_j: x_j.tanh() * 2, x=x + 1) * 3

    expected = call(x)
    found = torch.compile(call, backend="eager")(x)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found.sum(), x)[0], torch.autograd.grad(expected.sum(), x)[0]
    )


def test_transforms_are_refused():
    with pytest.raises(ArgumentError, match="while a functorch transform"):
        torch.func.grad(lambda x: onehop.message(GRAPH, lambda x_j: x_j, x=x).sum())(X)


def test_it_needs_no_framework():
    program = (
        "import sys; sys.modules['torch_geometric'] = sys.modules['dgl'] = None\n"
        "import onehop, torch\n"
        "g = onehop.Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]))\n"
        "x = torch.tensor([[1.0], [3.0]])\n"
        "print(onehop.message(g, lambda x_i, x_j: (x_i - x_j).relu(), x=x).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[0] == "[[0.0], [2.0]]", done.stderr
