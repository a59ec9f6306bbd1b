"""The traps of hooking PyG, each as a test: what must go PyG's own way, and what must come out the same."""

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import EdgeIndex, nn as gnn
from torch_geometric.nn import MessagePassing
from torch_geometric.typing import OptTensor
from torch_geometric.utils import to_torch_csr_tensor

import onehop
from onehop.integrations.pyg.leave import FITS_CACHE
from onehop.thresholds import lifted
from tests.integrations.same import SINGLE, Raised, fast, outcome, reasons, refused, same, same_error

# Recognition by function object


class OwnMessage(gnn.GCNConv):
    def message(self, x_j: Tensor, edge_weight: OptTensor) -> Tensor:
        return 2 * super().message(x_j, edge_weight)


class OwnUpdate(gnn.SAGEConv):
    def update(self, inputs: Tensor) -> Tensor:
        return inputs + 1


class OwnAggregate(gnn.SAGEConv):
    def aggregate(self, inputs: Tensor, index: Tensor, dim_size: int) -> Tensor:
        return super().aggregate(inputs, index, dim_size=dim_size) * 3


class OwnCheck(gnn.SAGEConv):
    def _check_input(self, edge_index: Tensor, size: object) -> list[int | None]:
        self.checked = True
        return super()._check_input(edge_index, size)


class OwnPropagate(MessagePassing):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def propagate(self, edge_index: Tensor, x: Tensor) -> Tensor:
        return x * 5


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (OwnMessage, None),
        (OwnUpdate, None),
        (OwnAggregate, "its class overrides aggregate"),
        (OwnCheck, "its class overrides _check_input"),
    ],
)
@pytest.mark.usefixtures("ordinary_bounds")
def test_overridden_functions_are_called(make, reason, edge_index):
    conv, x = make(4, 4), torch.randn(20, 4)
    (found,) = reasons(same(lambda: conv(x, edge_index), **SINGLE))
    assert found == reason or found.startswith(f"{reason}, and ")


def test_a_handwritten_propagate_is_never_wrapped(edge_index, took_fast_path):
    onehop.patch()
    conv, x = OwnPropagate(), torch.randn(20, 4)
    assert torch.equal(conv(x, edge_index), x * 5)
    assert took_fast_path(conv, x, edge_index) == []


@pytest.mark.parametrize("name", ["message", "aggregate", "update"])
def test_functions_set_on_an_instance_are_called(name, edge_index, took_fast_path):
    conv, other, x = gnn.SAGEConv(4, 4), gnn.SAGEConv(4, 4), torch.randn(20, 4)
    called: list[str] = []
    original = getattr(conv, name)

    def mock(self: MessagePassing, *args: object, **kwargs: object) -> Tensor:
        called.append(name)
        return original(*args, **kwargs)

    setattr(conv, name, types.MethodType(mock, conv))
    with onehop.patch():
        assert took_fast_path(conv, x, edge_index) == [f"this instance overrides {name}"]
        assert took_fast_path(other, x, edge_index) == [None]
    assert called == [name]


@pytest.mark.usefixtures("ordinary_bounds")
def test_a_function_replaced_on_the_class_later_is_seen(edge_index, took_fast_path, monkeypatch):
    class Changing(gnn.SAGEConv):
        pass

    conv, x = Changing(4, 4), torch.randn(20, 4)
    with onehop.patch():
        assert took_fast_path(conv, x, edge_index) == [None]
        monkeypatch.setattr(Changing, "message", lambda self, x_j: 0 * x_j, raising=False)
        assert torch.equal(conv(x, edge_index), conv.lin_l(torch.zeros(20, 4)) + conv.lin_r(x))


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (gnn.aggr.SumAggregation(), None),
        (gnn.aggr.MaxAggregation(), None),
        (gnn.aggr.MedianAggregation(), FITS_CACHE),
    ],
)
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.usefixtures("ordinary_bounds")
def test_the_aggregation_module_counts_not_the_string(given, module, reason, edge_index):
    conv, x = gnn.SAGEConv(4, 4, aggr=module if given else "mean"), torch.randn(20, 4)
    conv.aggr_module = module
    assert reasons(same(lambda: conv(x, edge_index), **SINGLE)) == [reason]


@pytest.mark.parametrize("aggr", ["lstm", "softmax", ["mean", "max"], "std", "mul"], ids=str)
@pytest.mark.usefixtures("ordinary_bounds")
def test_other_sage_aggregations(aggr, edge_index):
    kwargs = {"aggr_kwargs": {"in_channels": 4, "out_channels": 4}} if aggr == "lstm" else {}
    conv = gnn.SAGEConv(4, 4, aggr=aggr, **kwargs)
    sorted_edges = edge_index[:, edge_index[1].argsort(stable=True)]
    lstm = "its aggregation is LSTMAggregation, which onehop does not know"
    found = reasons(same(lambda: conv(torch.ones(20, 4), sorted_edges), **SINGLE))
    assert found == [{"lstm": lstm, "mul": FITS_CACHE}.get(str(aggr))]


def test_hooks_on_the_aggregation_module_run(edge_index, took_fast_path):
    conv, x = gnn.SAGEConv(4, 4), torch.randn(20, 4)
    seen: list[int] = []
    conv.aggr_module.register_forward_hook(lambda *_: seen.append(1))
    with onehop.patch():
        assert took_fast_path(conv, x, edge_index) == ["hooks are registered on its aggregation module"]
    assert seen == [1]


def test_a_forward_set_on_the_aggregation_module_runs(edge_index, took_fast_path):
    conv, x = gnn.SAGEConv(4, 4), torch.randn(20, 4)
    conv.aggr_module.forward = lambda x, *args, **kwargs: x.new_full((20, 4), 7.0)
    with onehop.patch():
        assert took_fast_path(conv, x, edge_index) == ["its aggregation module is overridden"]


def test_global_module_hooks_run(edge_index, took_fast_path):
    conv, x = gnn.SAGEConv(4, 4), torch.randn(20, 4)
    seen: list[str] = []
    handle = torch.nn.modules.module.register_module_forward_hook(lambda m, *_: seen.append(type(m).__name__))
    try:
        with onehop.patch():
            assert took_fast_path(conv, x, edge_index) == ["global module hooks are registered"]
    finally:
        handle.remove()
    assert "MeanAggregation" in seen


# Operands


class Dims(MessagePassing):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)


class Extra(MessagePassing):
    def forward(self, x: Tensor, edge_index: Tensor, norm: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, norm=norm)


def unfused() -> gnn.SAGEConv:
    conv = gnn.SAGEConv(4, 4)
    conv.fuse = False
    return conv


def by_target(edge_index: Tensor) -> Tensor:
    plain = edge_index[:, edge_index[1].argsort(stable=True)]
    return EdgeIndex(plain, sparse_size=(20, 20), sort_order="col")


NODE_DIM = "node_dim is not the first of two dimensions of its operands"
NO_FLOATS = "the features are not floating-point numbers of 16, 32 or 64 bits"
X = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))
PAIR = (X, X.flip(0))
# A layer, what it takes, and why PyG's own code runs.
LEFT: dict[str, tuple[Callable[[], Any], Callable[[Tensor], tuple[Any, ...]], str]] = {
    "numbers of nodes": (lambda: Dims(node_dim=-1), lambda e: (X[:, 0], e), NODE_DIM),
    "three dimensions": (lambda: Dims(node_dim=0), lambda e: (torch.ones(20, 3, 4), e), NODE_DIM),
    "columns": (lambda: Dims(node_dim=1), lambda e: (X.t(), e), NODE_DIM),
    "columns from the end": (lambda: Dims(node_dim=-1), lambda e: (X.t(), e), NODE_DIM),
    "int64": (Dims, lambda e: (X.long(), e), NO_FLOATS),
    "int32": (Dims, lambda e: (X.int(), e), NO_FLOATS),
    "complex": (lambda: Dims(aggr="sum"), lambda e: (X.to(torch.complex64), e), NO_FLOATS),
    "bool": (lambda: Dims(aggr="max"), lambda e: (X > 0, e), NO_FLOATS),
    "one weight for all": (
        lambda: gnn.GraphConv(4, 4), lambda e: (X, e, torch.tensor([2.0])), "edge weight"
    ),
    "integers as weights": (
        lambda: gnn.GraphConv(4, 4), lambda e: (X, e, torch.ones(90, dtype=torch.long)), "edge weight"
    ),
    "a row of weights": (lambda: gnn.GraphConv(4, 4), lambda e: (X, e, torch.ones(1, 90)), "edge weight"),
    "a fuse switch": (unfused, lambda e: (X, e), "its fuse switch is off"),
    "a pair and a turned flow": (
        lambda: gnn.SAGEConv((4, 4), 3, flow="target_to_source"),
        lambda e: (PAIR, e),
        "bipartite features meet flow='target_to_source'",
    ),
    "an EdgeIndex that PyG fuses": (
        lambda: gnn.GraphConv(4, 4),
        lambda e: (X, by_target(e)),
        "edge_index is an EdgeIndex, for which this layer has its own code",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Sparse")  # torch says once what it thinks of PyG's sparse matrices
@pytest.mark.parametrize("name", LEFT)
def test_what_goes_pygs_way(name, edge_index):
    make, given, sentence = LEFT[name]
    layer = make()
    if isinstance(outcome(lambda: layer(*given(edge_index))), Raised):  # of some dtypes
        same_error(lambda: layer(*given(edge_index)))
    else:
        refused(lambda: layer(*given(edge_index)), sentence, **SINGLE)


FAST: dict[str, tuple[Callable[[], Any], Callable[[Tensor], tuple[Any, ...]]]] = {
    "batched features": (lambda: gnn.SAGEConv(4, 5), lambda e: (torch.ones(3, 20, 4) * X, e)),
    "features of other strides": (Dims, lambda e: (X.repeat(2, 1).t().contiguous().t()[::2], e)),
    "width zero": (Dims, lambda e: (X[:, :0], e)),
    "a weight in a column": (lambda: gnn.GraphConv(4, 4), lambda e: (X, e, X.repeat(5, 1)[:90, :1])),
    "further operands": (Extra, lambda e: (X, e, X[:, 0])),
    **{
        f"{flow}, EdgeIndex by {order}": (
            lambda flow=flow: gnn.SAGEConv(4, 4, flow=flow),
            lambda e, order=order: (X, of_order(e, order)),
        )
        for flow in ("source_to_target", "target_to_source")
        for order in (None, "col", "row")
    },
}


def of_order(edge_index: Tensor, order: str | None) -> Tensor:
    if order is not None:
        edge_index = edge_index[:, edge_index[0 if order == "row" else 1].argsort(stable=True)]
    return EdgeIndex(edge_index, sparse_size=(20, 20), sort_order=order)


@pytest.mark.parametrize("name", FAST)
def test_what_is_fast(name, edge_index):
    make, given = FAST[name]
    layer = make()
    with lifted():
        fast(lambda: layer(*given(edge_index)), **SINGLE)
    with onehop.patch():
        assert layer(*given(edge_index)).is_contiguous()


@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min"])
def test_nan_and_infinity_spread_as_in_pyg(aggr, edge_index):
    x, conv = torch.randn(20, 4), Dims(aggr=aggr)
    x[3, 1], x[5, 2], x[7, 0] = float("nan"), float("inf"), -float("inf")
    fast(lambda: conv(x, edge_index), **SINGLE)


def test_other_subclasses_of_tensor_go_pygs_way(edge_index, took_fast_path):
    class Tagged(Tensor):
        pass

    conv, x = gnn.SAGEConv(4, 4), torch.randn(20, 4)
    with onehop.patch():
        assert took_fast_path(conv, x, edge_index.as_subclass(Tagged)) == ["edge_index is of type Tagged"]
        assert took_fast_path(conv, x.as_subclass(Tagged), edge_index) == ["the features are of type Tagged"]


# Flow and sizes


@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
def test_flow_decides_who_receives(aggr, edge_index):
    x = torch.randn(20, 4)
    forwards, backwards = Dims(aggr=aggr), Dims(aggr=aggr, flow="target_to_source")
    fast(lambda: [backwards(x, edge_index), forwards(x, edge_index)], **SINGLE)
    with onehop.patch():
        torch.testing.assert_close(backwards(x, edge_index), forwards(x, edge_index.flip(0)))


def with_number(edge_index: Tensor, row: int, value: int) -> Tensor:
    edge_index[row, 7] = value
    return edge_index


ERRORS: dict[str, Callable[[Tensor], Any]] = {
    **{
        f"{sources} and {targets} of {size}": lambda e, s=sources, t=targets, size=size: gnn.SAGEConv(
            (4, 4), 3
        )((X[:s], None if t is None else X[:t]), e % 12, size=size)
        for sources, targets, size in [(20, 12, (21, 12)), (20, 12, (20, 11)), (20, None, (19, 12))]
    },
    **{
        f"{value} in row {row}, {aggr}": lambda e, row=row, value=value, aggr=aggr: gnn.SAGEConv(
            4, 4, aggr=aggr
        )(X, with_number(e, row, value))
        for row, value in [(0, 20), (0, 10**9), (1, 20), (0, -1), (1, -3)]
        for aggr in ("sum", "mean", "max")
    },
    **{
        f"{value} in row {row}, {name}": lambda e, row=row, value=value, weight=weight: gnn.GCNConv(4, 4)(
            X, with_number(e, row, value), weight
        )
        for row, value in [(0, 20), (1, 20), (0, -21)]
        for name, weight in [("GCN", None), ("GCN, weighted", torch.ones(90))]
    },
    "floats": lambda e: gnn.SAGEConv(4, 4)(X, torch.rand(2, 5)),
    "three rows": lambda e: gnn.SAGEConv(4, 4)(X, torch.zeros(3, 5, dtype=torch.long)),
    "one dimension": lambda e: gnn.SAGEConv(4, 4)(X, torch.zeros(5, dtype=torch.long)),
    "a string": lambda e: gnn.SAGEConv(4, 4)(X, "edges"),
    "None": lambda e: gnn.SAGEConv(4, 4)(X, None),
    "no weight": lambda e: gnn.SGConv(4, 4).propagate(e, x=X, edge_weight=None),
    "an operand too many": lambda e: gnn.SAGEConv(4, 4).propagate(e, x=X, nonsense=1),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_pygs(name, edge_index):
    same_error(lambda: ERRORS[name](edge_index))


# Reductions


@pytest.mark.parametrize("aggr", ["max", "min"])
def test_empty_rows_of_an_extremum_are_zero(aggr):
    edge_index, x = torch.tensor([[0, 1], [2, 2]]), torch.full((4, 3), -5.0)
    conv = Dims(aggr=aggr)
    fast(lambda: conv(x, edge_index))
    with onehop.patch():
        assert torch.equal(conv(x, edge_index)[0], torch.zeros(3))


def test_ties_share_the_gradient_evenly():
    edge_index = torch.tensor([[0, 1, 2], [0, 0, 0]])
    x = torch.tensor([[1.0], [1.0], [0.0]], requires_grad=True)
    with onehop.patch():
        Dims(aggr="max")(x, edge_index).sum().backward()
    assert x.grad.flatten().tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize(("aggr", "value"), [("sum", 12.0), ("mean", 4.0)])
def test_repeated_edges_stay_separate(aggr, value):
    edge_index = torch.tensor([[0, 0, 1], [2, 2, 2]])
    x = torch.tensor([[3.0], [6.0], [0.0]])
    with onehop.patch():
        assert Dims(aggr=aggr)(x, edge_index)[2].item() == value


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.filterwarnings("ignore:.*sparse adjacency")
@pytest.mark.parametrize("matrix", [False, True])
def test_a_named_backend_that_refuses_is_not_called(matrix, edge_index, took_fast_path, monkeypatch):
    monkeypatch.setattr("onehop.integrations.pyg.edges.refusal", lambda *_: "it rests")
    conv, x = gnn.SimpleConv(), torch.randn(20, 8)
    edges = to_torch_csr_tensor(edge_index, size=(20, 20)) if matrix else edge_index
    with onehop.patch(backend="reference"):
        reasons = took_fast_path(conv, x, edges)
    assert reasons == ["features of torch.float32 on cpu have no backend: it rests"]
