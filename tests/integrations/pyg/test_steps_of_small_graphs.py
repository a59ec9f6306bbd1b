"""Layers' own messages on graphs too small for a plan: the bits, errors and recorded functions of PyG's."""

from collections.abc import Callable
from typing import Any, Optional

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric import nn as gnn
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.typing import OptTensor

import onehop
from onehop import thresholds
from onehop.integrations.pyg import small_graphs
from tests.integrations.pyg.layers import LAYERS, case_call, operands_of
from tests.integrations.same import Raised, assert_identical, assert_same, outcome
from tests.pairs import pairwise

NODES, EDGES, WIDTH = 7, 19, 4
# PyG does not know the shorter way to write it.
Rows = Optional[int]  # noqa: UP045
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
FORWARDS, BACKWARDS = "source_to_target", "target_to_source"


@pytest.fixture(autouse=True)
def ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)


@pytest.fixture(autouse=True)
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The classes of the layers that ran without PyG's propagate."""
    classes: list[str] = []
    run = small_graphs.Steps.run

    def counted(self: Any, layer: Any, *args: Any) -> Any:
        out = run(self, layer, *args)
        if out is not small_graphs.NOT_RUN:
            classes.append(type(layer).__name__)
        return out

    monkeypatch.setattr(small_graphs.Steps, "run", counted)
    return classes


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def some_edges(nodes: int = NODES, count: int = EDGES) -> Tensor:
    return torch.randint(nodes, (2, count), generator=torch.Generator().manual_seed(3))


class Everything(gnn.MessagePassing):
    """Takes all that PyG collects."""

    calls = 0

    def forward(
        self, x: Any, edge_index: Tensor, z: Any = None, edge_attr: OptTensor = None, size: Any = None
    ) -> Tensor:
        return self.propagate(edge_index, x=x, z=z, edge_attr=edge_attr, size=size)

    def message(
        self,
        x_j: Tensor,
        x_i: OptTensor,
        z_j: OptTensor,
        edge_attr: OptTensor,
        index: Tensor,
        edge_index: Tensor,
        edge_index_i: Tensor,
        edge_index_j: Tensor,
        ptr: OptTensor,
        size_i: Rows,
        size_j: Rows,
        dim_size: Rows,
        scale: float = 2.0,
        missing: OptTensor = None,
    ) -> Tensor:
        Everything.calls += 1
        assert ptr is None
        assert missing is None
        assert size_i == dim_size
        factor = scale + float(size_i or 0) + 3 * float(size_j or 0)
        ends = edge_index[0] - 2 * edge_index[1] + 3 * edge_index_i - 5 * edge_index_j + index
        out = x_j * factor
        for other in (x_i, z_j, edge_attr):
            if other is not None:
                out = out * other + 1
        return out + ends.to(out.dtype).view(
            -1, *[1] * (out.dim() - 1 - (self.node_dim % out.dim()))
        ).expand_as(out)


class OwnSteps(gnn.MessagePassing):
    """An aggregate and an update of its own."""

    def forward(self, x: Tensor, edge_index: Tensor, w: Tensor) -> Any:
        return self.propagate(edge_index, x=x, w=w)

    def message(self, x_j: Tensor) -> Tensor:
        return x_j + 1

    def aggregate(
        self, inputs: Tensor, index: Tensor, w: Tensor, x_i: Tensor, dim_size: Rows = None
    ) -> Tensor:
        return torch.zeros(dim_size or 0, WIDTH).index_add(0, index, inputs * w * x_i)

    def update(self, inputs: Tensor, x: Tensor, size_j: Rows, factor: float = 3.0) -> Any:
        return inputs * factor + x, size_j


class ReturnsNone(gnn.MessagePassing):
    """A layer without a result, whose message counts."""

    calls = 0

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.propagate(edge_index, x=x)

    def message(self, x_j: Tensor) -> Tensor:
        ReturnsNone.calls += 1
        return x_j

    def update(self, inputs: Tensor) -> Any:
        return None


class Raises(gnn.MessagePassing):
    """An error in the midst of a message, whose calls are counted."""

    calls = 0

    def forward(self, x: Tensor, edge_index: Tensor, error: Any) -> Tensor:
        return self.propagate(edge_index, x=x, error=error)

    def message(self, x_j: Tensor, error: Any) -> Any:
        Raises.calls += 1
        if isinstance(error, BaseException):
            raise error
        return error(x_j)


def recorded(tensor: Any) -> list[str]:
    """The names of the functions that autograd recorded."""
    names, queue = [], [tensor.grad_fn] if isinstance(tensor, Tensor) else []
    while queue:
        node = queue.pop()
        if node is not None:
            # PyG's extrema of few rows are served wherever they are called.
            names.append(node.name().replace("_SumBackward", "ScatterReduceBackward0"))
            queue += [each for each, _ in node.next_functions]
    return names


def trained(layer: Any, *args: Any, **kwargs: Any) -> Callable[[], Any]:
    """Runs a layer, and gives its result, what autograd recorded, and the gradients to all that has one."""
    leaves = [
        each for arg in (*args, *kwargs.values()) for each in (arg if isinstance(arg, tuple) else (arg,))
    ]
    leaves = [each for each in leaves if isinstance(each, Tensor) and each.requires_grad]

    def run() -> Any:
        out = layer(*args, **kwargs)
        if not isinstance(out, Tensor) or not out.requires_grad:
            return out
        weight = numbers(*out.shape, seed=9).to(out.dtype)
        gradients = torch.autograd.grad((out * weight).sum(), leaves, allow_unused=True)
        finite = [None if gradient is None else gradient.nan_to_num() for gradient in gradients]
        return out.detach(), recorded(out), finite

    return run


def compare(run: Callable[[], Any], calls: Any = None) -> Any:
    """Compares bits, records and errors of three calls under the patch, of which the first says why."""

    def counted() -> Any:
        if calls is not None:
            calls.calls = 0
        return outcome(run), None if calls is None else calls.calls

    expected = counted()
    with onehop.patch():
        for _ in range(3):
            assert_identical(counted(), expected)
    return expected[0]


@pytest.mark.parametrize("recording", [True, False], ids=["recorded", "not recorded"])
@pytest.mark.parametrize("name", LAYERS)
def test_all_layers(name: str, recording: bool) -> None:
    torch.manual_seed(1)
    case = LAYERS[name]
    model, edge_index = case.make(), some_edges(20, 90)
    call, operands = case_call(case, edge_index), operands_of(case, torch.float32)
    leaves = [*operands.values(), *model.parameters()] if recording else []
    for leaf in leaves:
        leaf.requires_grad_()

    def run() -> Any:
        torch.manual_seed(2)
        with torch.set_grad_enabled(recording):
            out = call(model, **operands)
        weight = numbers(*out.shape, seed=9)
        return out, torch.autograd.grad((out * weight).sum(), leaves, allow_unused=True) if recording else ()

    expected = run()
    with onehop.patch():
        for _ in range(3):
            assert_same(run(), expected, **CLOSE)


AGGREGATIONS: list[Any] = ["sum", "mean", "max", "mul", "median", "std", ["sum", "max"], ["mean", "var"]]


@pairwise()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("flow", [FORWARDS, BACKWARDS])
@pytest.mark.parametrize("aggr", AGGREGATIONS, ids=str)
def test_everything_that_is_collected(aggr: Any, flow: str, dtype: torch.dtype, ran: list[str]) -> None:
    layer = Everything(aggr=aggr, flow=flow)
    x, z, attr = (
        numbers(NODES, WIDTH, dtype=dtype),
        numbers(NODES, WIDTH, seed=1, dtype=dtype),
        numbers(EDGES, 1, dtype=dtype),
    )
    compare(lambda: layer(x, some_edges(), z, attr), Everything)
    assert ran
    for each in (x, z, attr):
        each.requires_grad_()
    del ran[:]
    compare(trained(layer, x, some_edges(), z, attr), Everything)
    assert ran


OTHER_DTYPES = [torch.int64, torch.int32, torch.complex64, torch.float16]


@pytest.mark.parametrize("dtype", OTHER_DTYPES, ids=str)
@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
def test_other_numbers(aggr: str, dtype: torch.dtype) -> None:
    x = (10 * numbers(NODES, WIDTH)).to(dtype)
    compare(lambda: Everything(aggr=aggr)(x, some_edges()))


PAIRS = {
    "a pair": lambda x, y: (x, y),
    "a list": lambda x, y: [x, y],
    "a pair without the second": lambda x, y: (x, None),
    "a pair without the first": lambda x, y: (None, y),
    "three": lambda x, y: (x, y, x),
    "a number": lambda x, y: 3.0,
    "None": lambda x, y: None,
    "a vector": lambda x, y: x[:, 0],
    "three dimensions": lambda x, y: x.view(NODES, 2, 2),
    "turned": lambda x, y: numbers(WIDTH, NODES).t(),
    "a gap": lambda x, y: numbers(NODES, 2 * WIDTH)[:, ::2],
    "a parameter": lambda x, y: torch.nn.Parameter(x),
    "negated": lambda x, y: torch._neg_view(x),
    "zeros without memory": lambda x, y: torch._efficientzerotensor((NODES, WIDTH)),
    "sparse": lambda x, y: x.to_sparse(),
    "meta": lambda x, y: x.to("meta"),
}
SIZES = [
    None,
    (NODES, NODES),
    (NODES, 5),
    (None, NODES),
    (NODES + 4, None),
    [NODES, NODES],
    (NODES,),
    torch.Size([NODES, NODES]),
    "no",
]


@pairwise()
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("flow", [FORWARDS, BACKWARDS])
@pytest.mark.parametrize("name", PAIRS)
def test_operands_and_sizes(name: str, flow: str, size: Any) -> None:
    edge_index = some_edges().clamp(max=4)
    layer = Everything(flow=flow)
    compare(
        lambda: layer(PAIRS[name](numbers(NODES, WIDTH), numbers(5, WIDTH)), edge_index, size=size),
        Everything,
    )


@pairwise()
@pytest.mark.parametrize("dim", [0, -2, 1, -1, -3, 5])
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
def test_dimensions(aggr: str, dims: int, dim: int) -> None:
    layer = Everything(aggr=aggr, node_dim=dim)
    x = numbers(*[NODES] * dims).requires_grad_()
    compare(trained(layer, x, some_edges()), Everything)
    compare(lambda: layer(x.detach(), some_edges()), Everything)


EDGE_INDICES = {
    "a source that is none": lambda e: e.index_fill(1, torch.tensor([5]), NODES),
    "a target that is none": lambda e: torch.stack([e[0], e[1].index_fill(0, torch.tensor([5]), NODES + 1)]),
    "negative": lambda e: torch.stack([e[0], e[1] - 1]),
    "no edges": lambda e: e[:, :0],
    "int32": lambda e: e.int(),
    "floats": lambda e: e.float(),
    "three rows": lambda e: torch.cat([e, e[:1]]),
    "a vector": lambda e: e[0],
    "turned": lambda e: e.t().contiguous().t(),
    "every second": lambda e: e.repeat_interleave(2, 1)[:, ::2],
    "sparse": lambda e: torch.sparse_coo_tensor(e, torch.ones(EDGES), (NODES, NODES)).coalesce(),
    "meta": lambda e: e.to("meta"),
    "a list": lambda e: e.tolist(),
}


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "median"])
@pytest.mark.parametrize("name", EDGE_INDICES)
def test_edge_indices(name: str, aggr: str) -> None:
    layer, edge_index = Everything(aggr=aggr), EDGE_INDICES[name](some_edges())
    x = numbers(NODES, WIDTH)
    compare(lambda: layer(x, edge_index), Everything)
    compare(trained(layer, x.clone().requires_grad_(), edge_index), Everything)


class TargetsAlone(gnn.MessagePassing):
    """Gathers nothing at the targets, so that a target that is none is met in the sum."""

    def forward(self, x: Tensor, edge_index: Tensor, rows: Any = None) -> Tensor:
        return self.propagate(edge_index, x=x, size=None if rows is None else (NODES, rows))

    def message(self, x_j: Tensor) -> Tensor:
        Everything.calls += 1
        return x_j * 2


@pytest.mark.parametrize("recording", [True, False])
@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "add"])
def test_a_target_that_is_no_row_of_the_result(aggr: str, recording: bool) -> None:
    layer, x = TargetsAlone(aggr=aggr), numbers(NODES, WIDTH).requires_grad_(recording)
    error = compare(trained(layer, x, some_edges(), 3), Everything)
    assert isinstance(error, Raised)
    compare(trained(layer, (x, None), some_edges(), 12), Everything)


class BothEnds(gnn.MessagePassing):
    """Two operands that are no pair: one of the sources, one of the targets."""

    def forward(self, x: Tensor, y: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, y=y)

    def message(self, x_j: Tensor, y_i: Tensor) -> Tensor:
        return x_j * y_i


@pytest.mark.parametrize("flow", [FORWARDS, BACKWARDS])
@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
def test_operands_of_one_end_each(aggr: str, flow: str, ran: list[str]) -> None:
    layer, ends = BothEnds(aggr=aggr, flow=flow), torch.tensor([[0, 6, 2, 2, 5], [4, 3, 0, 2, 4]])
    edge_index = ends if flow == FORWARDS else ends.flip(0)
    assert isinstance(compare(lambda: layer(numbers(NODES, WIDTH), numbers(5, WIDTH), edge_index)), Tensor)
    assert ran
    compare(lambda: layer(numbers(NODES, WIDTH), numbers(5, WIDTH), edge_index.flip(0)))


def test_other_operands() -> None:
    layer, x = BothEnds(), numbers(NODES, WIDTH)
    error = compare(lambda: layer.propagate(some_edges(), x=x, y=x, more=x))
    assert isinstance(error, Raised)
    assert isinstance(compare(lambda: layer.propagate(some_edges(), x=x)), Raised)
    compare(lambda: layer.propagate(some_edges(), x, x))


def test_steps_of_its_own(ran: list[str]) -> None:
    x, w = numbers(NODES, WIDTH).requires_grad_(), numbers(EDGES, 1).requires_grad_()
    compare(lambda: OwnSteps()(x, some_edges(), w))
    assert ran == ["OwnSteps"] * 3


def test_a_layer_without_a_result_runs_once(ran: list[str]) -> None:
    layer = ReturnsNone()
    assert compare(lambda: layer(numbers(NODES, WIDTH), some_edges()), ReturnsNone) is None
    assert ran


MESSAGES = {
    "an index error": IndexError("mine"),
    "a runtime error": RuntimeError("mine"),
    "a value error": ValueError("mine"),
    "another": KeyError("mine"),
    "a list": lambda x: [x, x],
    "a pair": lambda x: (x, x),
    "no tensor": lambda x: 3.0,
    "nothing": lambda x: None,
    "fewer rows": lambda x: x[1:],
    "more rows": lambda x: torch.cat([x, x]),
    "a number": lambda x: x.sum(),
    "a vector": lambda x: x[:, 0],
    "booleans": lambda x: x > 0,
    "an expanded one": lambda x: x[:, :1].expand(-1, 3),
    "the operand itself": lambda x: x,
}


@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
@pytest.mark.parametrize("name", MESSAGES)
def test_errors_and_results_of_messages(name: str, aggr: str) -> None:
    layer, x = Raises(aggr=aggr), numbers(NODES, WIDTH)
    compare(lambda: layer(x, some_edges(), MESSAGES[name]), Raises)
    compare(trained(layer, x.clone().requires_grad_(), some_edges(), MESSAGES[name]), Raises)


HOOKS = {
    "propagate before": lambda layer, f: layer.register_propagate_forward_pre_hook(lambda m, i: f("p")),
    "propagate": lambda layer, f: layer.register_propagate_forward_hook(lambda m, i, o: f("q")),
    "message before": lambda layer, f: layer.register_message_forward_pre_hook(lambda m, i: f("m") or i),
    "message": lambda layer, f: layer.register_message_forward_hook(lambda m, i, o: o * 2),
    "aggregate before": lambda layer, f: layer.register_aggregate_forward_pre_hook(lambda m, i: f("a") or i),
    "aggregate": lambda layer, f: layer.register_aggregate_forward_hook(lambda m, i, o: o * 3),
    "of the module": lambda layer, f: layer.aggr_module.register_forward_hook(lambda m, i, o: o * 5),
    "of all modules": lambda layer, f: torch.nn.modules.module.register_module_forward_hook(
        lambda m, i, o: f(type(m).__name__)
    ),
    "a message of its own": lambda layer, f: vars(layer).update(message=lambda **a: a["x_j"] * 7),
    "an aggregate of its own": lambda layer, f: vars(layer).update(
        aggregate=lambda x, index, ptr, dim_size: x[:dim_size]
    ),
    "a forward of the module's": lambda layer, f: vars(layer.aggr_module).update(
        forward=lambda x, *a, **k: x[:3]
    ),
}


@pytest.mark.parametrize("name", HOOKS)
@pytest.mark.parametrize("late", [True, False], ids=["late", "early"])
def test_hooks_and_overrides(name: str, late: bool) -> None:
    """Whether they come before the first call or after some calls."""

    def heard_by(patched: bool) -> Any:
        heard: list[str] = []
        layer, x = Everything(), numbers(NODES, WIDTH)
        handle, results = None, []
        for turn in range(4):
            if turn == 2 * late:
                handle = HOOKS[name](layer, heard.append)
            results.append(layer(x, some_edges()))
        if hasattr(handle, "remove"):
            handle.remove()
        return results, heard

    expected = heard_by(False)
    with onehop.patch():
        assert_identical(heard_by(True), expected)


class Changing(gnn.MessagePassing):
    """A class whose functions are replaced between calls."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_j: Tensor) -> Tensor:
        return x_j * 2


def test_functions_of_the_class_that_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = Changing(), numbers(NODES, WIDTH)
    with onehop.patch():
        before = [layer(x, some_edges()) for _ in range(3)]
        monkeypatch.setattr(Changing, "message", lambda self, x_j: x_j * 3)
        torch.testing.assert_close(layer(x, some_edges()), before[0] * 1.5)
        monkeypatch.setattr(
            Changing, "aggregate", lambda self, inputs, index, ptr=None, dim_size=None: inputs[:2]
        )
        assert layer(x, some_edges()).shape == (2, WIDTH)
        monkeypatch.setattr(
            Changing, "_index_select", lambda self, src, index: src.index_select(0, index) * 0
        )
        assert not layer(x, some_edges()).any()


class Seen(TorchDispatchMode):
    """The operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def seen(run: Callable[[], Any]) -> Any:
    with Seen() as mode:
        out = run()
    return out, mode.names


class Sub(Tensor):
    """A class of a user's."""


CONTEXTS = {
    "operators": lambda layer, x: seen(lambda: layer(x, some_edges())),
    "autocast": lambda layer, x: _cast(lambda: layer(x, some_edges())),
    "inference": lambda layer, x: torch.inference_mode()(lambda: layer(x, some_edges()).clone())(),
    "vmap": lambda layer, x: torch.func.vmap(lambda y: layer(y, some_edges()))(torch.stack([x, x + 1])),
    "grad": lambda layer, x: torch.func.grad(lambda y: layer(y, some_edges()).sum())(x),
    "jvp": lambda layer, x: torch.func.jvp(lambda y: layer(y, some_edges()), (x,), (x,)),
    "hessian": lambda layer, x: torch.func.hessian(lambda y: layer(y, some_edges()).square().sum())(x[:, :1]),
    "a trace": lambda layer, x: torch.jit.trace(
        lambda y, e: layer(y, e), (x, some_edges()), check_trace=False
    )(x, some_edges().flip(1)),
    "a subclass": lambda layer, x: layer(x.as_subclass(Sub), some_edges()),
    "twice": lambda layer, x: _twice(layer, x.clone().requires_grad_()),
    "a checkpoint": lambda layer, x: _checkpointed(layer, x.clone().requires_grad_()),
}


def _cast(run: Callable[[], Any]) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return run()


def _twice(layer: Any, x: Tensor) -> Any:
    (first,) = torch.autograd.grad(layer(x, some_edges()).square().sum(), x, create_graph=True)
    return torch.autograd.grad(first.square().sum(), x)


def _checkpointed(layer: Any, x: Tensor) -> Any:
    out = torch.utils.checkpoint.checkpoint(layer, x, some_edges(), use_reentrant=False)
    return torch.autograd.grad(out.square().sum(), x)


class Multiplies(gnn.MessagePassing):
    """A product with a weight, so that autocast shows."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.weight = torch.nn.Parameter(numbers(1, 1, seed=4))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return (x_j[:, :1] @ self.weight) * (x_i - x_j).tanh()


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
@pytest.mark.parametrize("name", CONTEXTS)
def test_contexts(name: str, aggr: str) -> None:
    layer, x = Multiplies(aggr=aggr), numbers(NODES, WIDTH)
    compare(lambda: CONTEXTS[name](layer, x))


@pytest.mark.parametrize("aggr", ["sum", "mean", "add"])
def test_a_write_between_forward_and_backward(aggr: str) -> None:
    def run() -> Any:
        edge_index, x = some_edges(), numbers(NODES, WIDTH).requires_grad_()
        out = Multiplies(aggr=aggr)(x, edge_index)
        edge_index[0, 0] = (edge_index[0, 0] + 1) % NODES
        return torch.autograd.grad(out.sum(), x)

    assert isinstance(compare(run), Raised)


def test_an_explainer() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Multiplies()

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.layer(x, edge_index)

    model, x = Model(), numbers(NODES, WIDTH)

    def run() -> Any:
        model(x, some_edges())
        torch.manual_seed(5)
        explainer = Explainer(
            model,
            GNNExplainer(epochs=2),
            explanation_type="model",
            edge_mask_type="object",
            model_config={"mode": "regression", "task_level": "node"},
        )
        return explainer(x, some_edges()).edge_mask, model(x, some_edges())

    compare(run)


def test_explain_says_why(ran: list[str]) -> None:
    layer, x = Multiplies(), numbers(NODES, WIDTH)
    with onehop.patch():
        for _ in range(2):
            layer(x, some_edges())
        assert ran
        report = onehop.explain(layer, x, some_edges())
    assert "so few edges" in str(report)


def test_layers_that_the_patch_leaves_out(ran: list[str]) -> None:
    layer, x = Multiplies(), numbers(NODES, WIDTH)
    with onehop.patch(only=["GCNConv"]):
        for _ in range(3):
            layer(x, some_edges())
    assert not ran
