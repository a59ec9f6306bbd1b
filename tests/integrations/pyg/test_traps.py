"""The traps of hooking PyG, each as a test: what must go PyG's own way, and what must come out the same."""

import types
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch_geometric import EdgeIndex, nn as gnn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.conv import gcn_conv
from torch_geometric.typing import OptTensor
from torch_geometric.utils import to_torch_csr_tensor

import onehop
from onehop.integrations.pyg.leave import FITS_CACHE
from onehop.thresholds import lifted


def same(
    function: Callable[[], Tensor], took_fast_path: Callable[..., list[str | None]]
) -> tuple[Tensor, list[str | None]]:
    """Checks that the patched result is PyG's; returns it and the reasons."""
    expected = function()
    with onehop.patch():
        found = function()
        reasons = took_fast_path(function)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    return found, reasons


def both_errors(function: Callable[[], object]) -> tuple[BaseException, BaseException]:
    """What is raised unpatched and patched."""
    with pytest.raises(Exception) as unpatched:  # noqa: PT011 - the caller compares the two
        function()
    with onehop.patch(), pytest.raises(Exception) as patched:  # noqa: PT011
        function()
    return unpatched.value, patched.value


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
def test_overridden_functions_are_called(make, reason, edge_index, took_fast_path):
    conv, x = make(4, 4), torch.randn(20, 4)
    _, (found,) = same(lambda: conv(x, edge_index), took_fast_path)
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


@pytest.mark.usefixtures("ordinary_bounds")
def test_the_aggregation_module_counts_not_the_string(edge_index, took_fast_path):
    conv, x = gnn.SAGEConv(4, 4, aggr="mean"), torch.randn(20, 4)
    conv.aggr_module = gnn.aggr.SumAggregation()
    _, reasons = same(lambda: conv(x, edge_index), took_fast_path)
    assert reasons == [None]
    conv.aggr_module = gnn.aggr.MedianAggregation()
    _, reasons = same(lambda: conv(x, edge_index), took_fast_path)
    assert reasons == [FITS_CACHE]


def test_an_aggregation_given_as_a_module(edge_index, took_fast_path):
    conv, x = gnn.SAGEConv(4, 4, aggr=gnn.aggr.MaxAggregation()), torch.randn(20, 4)
    _, reasons = same(lambda: conv(x, edge_index), took_fast_path)
    assert reasons == [None]


@pytest.mark.parametrize("aggr", ["lstm", "softmax", ["mean", "max"], "std", "mul"], ids=str)
@pytest.mark.usefixtures("ordinary_bounds")
def test_other_sage_aggregations(aggr, edge_index, took_fast_path):
    kwargs = {"aggr_kwargs": {"in_channels": 4, "out_channels": 4}} if aggr == "lstm" else {}
    conv = gnn.SAGEConv(4, 4, aggr=aggr, **kwargs)
    sorted_edges = edge_index[:, edge_index[1].argsort(stable=True)]
    _, reasons = same(lambda: conv(torch.ones(20, 4), sorted_edges), took_fast_path)
    assert len(reasons) == 1
    lstm = "its aggregation is LSTMAggregation, which onehop does not know"
    assert reasons[0] == {"lstm": lstm, "mul": FITS_CACHE}.get(str(aggr))


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


def test_the_fuse_switch_of_a_fusable_layer_is_obeyed(edge_index, took_fast_path):
    conv, x = gnn.SAGEConv(4, 4), torch.randn(20, 4)
    conv.fuse = False
    _, reasons = same(lambda: conv(x, edge_index), took_fast_path)
    assert reasons == ["its fuse switch is off"]


# Operands


class Dims(MessagePassing):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)


def test_batched_features_come_out_the_same(edge_index, took_fast_path):
    conv, x = gnn.SAGEConv(4, 5), torch.randn(3, 20, 4)
    found, reasons = same(lambda: conv(x, edge_index), took_fast_path)
    assert reasons == [None]
    assert found.shape == (3, 20, 5)
    assert found.is_contiguous()


@pytest.mark.parametrize(
    ("shape", "node_dim"),
    [((20,), -1), ((20, 3, 4), 0), ((4, 20), 1), ((4, 20), -1)],
    ids=str,
)
def test_other_node_dimensions_go_pygs_way(shape, node_dim, edge_index, took_fast_path):
    conv, x = Dims(node_dim=node_dim), torch.randn(shape)
    _, reasons = same(lambda: conv(x, edge_index), took_fast_path)
    assert reasons == ["node_dim is not the first of two dimensions of its operands"]


@pytest.mark.parametrize("dtype", [torch.long, torch.int32, torch.complex64, torch.bool], ids=str)
def test_features_that_are_not_floats_go_pygs_way(dtype, edge_index, took_fast_path):
    x = torch.ones(20, 4).to(dtype)
    conv = Dims(aggr="max" if dtype is torch.bool else "sum")
    try:
        conv(x, edge_index)
    except RuntimeError:
        unpatched, patched = both_errors(lambda: conv(x, edge_index))
        assert str(unpatched) == str(patched)
        return
    _, reasons = same(lambda: conv(x, edge_index), took_fast_path)
    assert reasons == ["the features are not floating-point numbers of 16, 32 or 64 bits"]


def test_non_contiguous_features(edge_index, took_fast_path):
    wide = torch.randn(4, 40)
    _, reasons = same(lambda: Dims()(wide.t()[::2], edge_index), took_fast_path)
    assert reasons == [None]


def test_width_zero(edge_index, took_fast_path):
    found, reasons = same(lambda: Dims()(torch.empty(20, 0), edge_index), took_fast_path)
    assert reasons == [None]
    assert found.shape == (20, 0)


@pytest.mark.parametrize(
    "weight",
    [torch.tensor([2.0]), torch.ones(90, dtype=torch.long), torch.ones(1, 90)],
    ids=["one for all", "integers", "a row"],
)
def test_odd_weights_go_pygs_way(weight, edge_index, took_fast_path):
    conv, x = gnn.GraphConv(4, 4), torch.randn(20, 4)
    _, reasons = same(lambda: conv(x, edge_index, weight), took_fast_path)
    assert len(reasons) == 1
    assert "edge weight" in reasons[0]


def test_a_weight_in_a_column(edge_index, took_fast_path):
    conv, x, weight = gnn.GraphConv(4, 4), torch.randn(20, 4), torch.rand(90, 1)
    _, reasons = same(lambda: conv(x, edge_index, weight), took_fast_path)
    assert reasons == [None]


def test_nan_and_infinity_spread_as_in_pyg(edge_index, took_fast_path):
    x = torch.randn(20, 4)
    x[3, 1], x[5, 2], x[7, 0] = float("nan"), float("inf"), -float("inf")
    for aggr in ("sum", "mean", "max", "min"):
        conv = Dims(aggr=aggr)
        expected = conv(x, edge_index)
        with onehop.patch():
            torch.testing.assert_close(conv(x, edge_index), expected, equal_nan=True)


def test_further_operands_are_not_in_the_way(edge_index, took_fast_path):
    class Extra(MessagePassing):
        def forward(self, x: Tensor, edge_index: Tensor, norm: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x, norm=norm)

    conv, x = Extra(), torch.randn(20, 4)
    with lifted():
        _, reasons = same(lambda: conv(x, edge_index, x[:, 0]), took_fast_path)
    assert reasons == [None]


# Kinds of edges


# torch says once in a process that sparse matrices are new and not checked.
@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
def test_sparse_matrices(edge_index, took_fast_path):
    conv, x = gnn.GCNConv(4, 4), torch.randn(20, 4)
    adjacency = to_torch_csr_tensor(edge_index.unique(dim=1), size=(20, 20)).t().to_sparse_csr()
    _, reasons = same(lambda: conv(x, adjacency), took_fast_path)
    assert reasons == [None]


# torch says once in a process that sparse matrices are new and not checked.
@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
def test_sparse_matrix_with_reversed_flow_is_pygs_error(edge_index):
    conv, x = Dims(flow="target_to_source"), torch.randn(20, 4)
    adjacency = to_torch_csr_tensor(edge_index.unique(dim=1), size=(20, 20))
    unpatched, patched = both_errors(lambda: conv(x, adjacency))
    assert (type(patched), str(patched)) == (type(unpatched), str(unpatched))


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("sort_order", [None, "col", "row"])
def test_edge_index_objects(sort_order, flow, edge_index, took_fast_path):
    order = 0 if sort_order == "row" else 1
    plain = edge_index[:, edge_index[order].argsort(stable=True)] if sort_order else edge_index
    edges = EdgeIndex(plain, sparse_size=(20, 20), sort_order=sort_order)
    conv, x = gnn.SAGEConv(4, 4, flow=flow), torch.randn(20, 4)
    _, reasons = same(lambda: conv(x, edges), took_fast_path)
    assert reasons == [None]


@pytest.mark.filterwarnings("ignore:Sparse")  # torch says once what it thinks of PyG's sparse matrices
def test_an_edge_index_that_pyg_fuses_goes_pygs_way(edge_index, took_fast_path):
    plain = edge_index[:, edge_index[1].argsort(stable=True)]
    edges = EdgeIndex(plain, sparse_size=(20, 20), sort_order="col")
    conv, x = gnn.GraphConv(4, 4), torch.randn(20, 4)
    _, reasons = same(lambda: conv(x, edges), took_fast_path)
    assert reasons == ["edge_index is an EdgeIndex, for which this layer has its own code"]


def test_other_subclasses_of_tensor_go_pygs_way(edge_index, took_fast_path):
    class Tagged(Tensor):
        pass

    conv, x = gnn.SAGEConv(4, 4), torch.randn(20, 4)
    with onehop.patch():
        assert took_fast_path(conv, x, edge_index.as_subclass(Tagged)) == ["edge_index is of type Tagged"]
        assert took_fast_path(conv, x.as_subclass(Tagged), edge_index) == ["the features are of type Tagged"]


# Flow and sizes


@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
def test_flow_decides_who_receives(aggr, edge_index, took_fast_path):
    x = torch.randn(20, 4)
    forwards, backwards = Dims(aggr=aggr), Dims(aggr=aggr, flow="target_to_source")
    _, reasons = same(lambda: backwards(x, edge_index), took_fast_path)
    assert reasons == [None]
    with onehop.patch():
        torch.testing.assert_close(backwards(x, edge_index), forwards(x, edge_index.flip(0)))


def test_bipartite_features_with_reversed_flow_go_pygs_way(edges, took_fast_path):
    conv = gnn.SAGEConv((4, 4), 3, flow="target_to_source")
    pair = (torch.randn(20, 4), torch.randn(20, 4))
    _, reasons = same(lambda: conv(pair, edges(20, 20, 40)), took_fast_path)
    assert reasons == ["bipartite features meet flow='target_to_source'"]


@pytest.mark.parametrize(
    ("sources", "targets", "size"),
    [(20, 12, (21, 12)), (20, 12, (20, 11)), (20, None, (19, 12))],
    ids=str,
)
def test_wrong_sizes_are_pygs_error(sources, targets, size, edges):
    conv = gnn.SAGEConv((4, 4), 3)
    x = (torch.randn(sources, 4), None if targets is None else torch.randn(targets, 4))
    unpatched, patched = both_errors(lambda: conv(x, edges(20, 12, 40), size=size))
    assert (type(patched), str(patched)) == (type(unpatched), str(unpatched))


@pytest.mark.parametrize(("row", "value"), [(0, 20), (0, 10**9), (1, 20), (0, -1), (1, -3)], ids=str)
@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
def test_bad_node_numbers_are_pygs_error(aggr, row, value, edge_index):
    edge_index[row, 7] = value
    conv, x = gnn.SAGEConv(4, 4, aggr=aggr), torch.randn(20, 4)
    unpatched, patched = both_errors(lambda: conv(x, edge_index))
    assert (type(patched), str(patched)) == (type(unpatched), str(unpatched))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("row", "value"), [(0, 20), (1, 20), (0, -21)], ids=str)
def test_bad_node_numbers_in_gcn_are_pygs_error(row, value, weighted, edge_index):
    edge_index[row, 7] = value
    conv, x = gnn.GCNConv(4, 4), torch.randn(20, 4)
    weight = torch.rand(90) if weighted else None
    unpatched, patched = both_errors(lambda: conv(x, edge_index, weight))
    assert (type(patched), str(patched)) == (type(unpatched), str(unpatched))


@pytest.mark.parametrize(
    "bad",
    [torch.rand(2, 5), torch.zeros(3, 5, dtype=torch.long), torch.zeros(5, dtype=torch.long), "edges", None],
    ids=["floats", "three rows", "one dimension", "string", "None"],
)
def test_things_that_are_no_edge_index_are_pygs_error(bad):
    conv, x = gnn.SAGEConv(4, 4), torch.randn(20, 4)
    unpatched, patched = both_errors(lambda: conv(x, bad))
    assert (type(patched), str(patched)) == (type(unpatched), str(unpatched))


def test_a_missing_weight_is_pygs_error(edge_index):
    conv = gnn.SGConv(4, 4)
    unpatched, patched = both_errors(
        lambda: conv.propagate(edge_index, x=torch.randn(20, 4), edge_weight=None)
    )
    assert (type(patched), str(patched)) == (type(unpatched), str(unpatched))


def test_unexpected_operands_are_pygs_error(edge_index):
    conv = gnn.SAGEConv(4, 4)
    unpatched, patched = both_errors(lambda: conv.propagate(edge_index, x=torch.randn(20, 4), nonsense=1))
    assert (type(patched), str(patched)) == (type(unpatched), str(unpatched))


# Reductions


@pytest.mark.parametrize("aggr", ["max", "min"])
def test_empty_rows_of_an_extremum_are_zero(aggr, took_fast_path):
    edge_index = torch.tensor([[0, 1], [2, 2]])
    found, reasons = same(lambda: Dims(aggr=aggr)(torch.full((4, 3), -5.0), edge_index), took_fast_path)
    assert reasons == [None]
    assert torch.equal(found[0], torch.zeros(3))


def test_ties_share_the_gradient_evenly():
    edge_index = torch.tensor([[0, 1, 2], [0, 0, 0]])
    x = torch.tensor([[1.0], [1.0], [0.0]], requires_grad=True)
    with onehop.patch():
        Dims(aggr="max")(x, edge_index).sum().backward()
    assert x.grad.flatten().tolist() == [0.5, 0.5, 0.0]


def test_repeated_edges_stay_separate(took_fast_path):
    edge_index = torch.tensor([[0, 0, 1], [2, 2, 2]])
    x = torch.tensor([[3.0], [6.0], [0.0]])
    for aggr, value in (("sum", 12.0), ("mean", 4.0)):
        found, _ = same(lambda aggr=aggr: Dims(aggr=aggr)(x, edge_index), took_fast_path)
        assert found[2].item() == value


# The remembered normalisation


def test_the_last_of_several_loops_gives_the_weight(took_fast_path):
    edge_index = torch.tensor([[0, 1, 1, 2, 0], [1, 1, 1, 0, 2]])
    weight = torch.tensor([1.0, 5.0, 3.0, 2.0, 1.0])
    conv, x = gnn.GCNConv(4, 4), torch.randn(3, 4)
    same(lambda: conv(x, edge_index, weight), took_fast_path)
    with onehop.patch():
        edges, weights = gcn_conv.gcn_norm(edge_index, weight, 3)
    expected_edges, expected_weights = gcn_conv.gcn_norm(edge_index, weight, 3)
    assert torch.equal(edges, expected_edges)
    assert torch.equal(weights, expected_weights)


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("loops", [True, False], ids=["loops", "no loops"])
@pytest.mark.parametrize("improved", [True, False], ids=["improved", "plain"])
@pytest.mark.parametrize("weighted", [True, False], ids=["weighted", "unweighted"])
def test_the_normalisation_is_pygs_bit_for_bit(weighted, improved, loops, flow, edge_index):
    weight = torch.rand(90) if weighted else None
    expected = gcn_conv.gcn_norm(edge_index, weight, 20, improved, loops, flow, torch.float32)
    with onehop.patch():
        for _ in range(2):
            found = gcn_conv.gcn_norm(edge_index, weight, 20, improved, loops, flow, torch.float32)
            for ours, theirs in zip(found, expected, strict=True):
                assert torch.equal(ours, theirs)


@pytest.mark.usefixtures("ordinary_bounds")
def test_the_normalisation_is_remembered_and_its_graph_too(edge_index):
    conv, x = gnn.GCNConv(4, 4), torch.randn(20, 4)
    with onehop.patch():
        conv(x, edge_index)
        before = onehop.cache_info()
        conv(x, edge_index)
        after = onehop.cache_info()
    assert after.misses == before.misses
    assert after.entries == before.entries


def test_with_weights_the_structure_alone_is_remembered(edge_index):
    conv, x = gnn.GCNConv(4, 4), torch.randn(20, 4)
    with onehop.patch():
        first = conv(x, edge_index, torch.full((90,), 0.5))
        second = conv(x, edge_index, torch.full((90,), 3.0))
    assert not torch.allclose(first, second)
    torch.testing.assert_close(second, conv(x, edge_index, torch.full((90,), 3.0)))


def test_writing_to_the_derived_tensors_is_noticed(edge_index):
    conv, x = gnn.GCNConv(4, 4), torch.randn(20, 4)
    expected = conv(x, edge_index)
    with onehop.patch():
        edges, weight = gcn_conv.gcn_norm(
            edge_index, None, 20, False, True, "source_to_target", torch.float32
        )
        weight.mul_(2)
        torch.testing.assert_close(conv(x, edge_index), expected)
        edges, weight = gcn_conv.gcn_norm(
            edge_index, None, 20, False, True, "source_to_target", torch.float32
        )
        out = conv.propagate(edges, x=x, edge_weight=weight)
        edges[:, 0] = 0
        changed = conv.propagate(edges, x=x, edge_weight=weight)
        assert not torch.allclose(out, changed)
        torch.testing.assert_close(conv(x, edge_index), expected)
        _, weight = gcn_conv.gcn_norm(edge_index, None, 20, False, True, "source_to_target", torch.float32)
        weight.requires_grad_()
        _, fresh = gcn_conv.gcn_norm(edge_index, None, 20, False, True, "source_to_target", torch.float32)
        assert not fresh.requires_grad


def test_a_weight_from_memory_with_other_edges(edge_index):
    x = torch.randn(20, 4)
    conv = gnn.GCNConv(4, 4)
    with onehop.patch():
        edges, weight = gcn_conv.gcn_norm(
            edge_index, None, 20, False, True, "source_to_target", torch.float32
        )
        other = edges.flip(1)
        found = conv.propagate(other, x=x, edge_weight=weight)
    torch.testing.assert_close(found, conv.propagate(other, x=x, edge_weight=weight))


def test_editing_the_edges_in_place_is_noticed(edge_index):
    x = torch.randn(20, 4)
    for conv in (gnn.GCNConv(4, 4), gnn.SAGEConv(4, 4), gnn.ClusterGCNConv(4, 4)):
        with onehop.patch():
            conv(x, edge_index)
            edge_index[0, :10] = 2
            found = conv(x, edge_index)
        torch.testing.assert_close(found, conv(x, edge_index), msg=type(conv).__name__)


def test_what_is_remembered_in_inference_mode_serves_training(edge_index):
    conv, x = gnn.GCNConv(4, 4), torch.randn(20, 4)
    with onehop.patch():
        with torch.inference_mode():
            conv(x, edge_index)
        conv(x, edge_index).sum().backward()
    assert conv.lin.weight.grad is not None


def test_edges_made_in_inference_mode(took_fast_path):
    conv = gnn.GCNConv(4, 4)
    with torch.inference_mode():
        edge_index, x = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.randn(3, 4)
        expected = conv(x, edge_index)
        with onehop.patch():
            torch.testing.assert_close(conv(x, edge_index), expected)
            edge_index[0, 0] = 2
            found = conv(x, edge_index)
        torch.testing.assert_close(found, conv(x, edge_index))


def test_every_mini_batch_has_its_own_edges():
    from torch_geometric.data import Batch, Data

    graphs = [Data(x=torch.randn(5, 4), edge_index=torch.randint(0, 5, (2, 12))) for _ in range(6)]
    conv = gnn.GCNConv(4, 4)
    for _ in range(2):
        for start in range(0, 6, 2):
            batch = Batch.from_data_list(graphs[start : start + 2])
            expected = conv(batch.x, batch.edge_index)
            with onehop.patch():
                torch.testing.assert_close(conv(batch.x, batch.edge_index), expected)
    # Only what still lives is kept.
    del batch, expected
    assert onehop.cache_info().entries == 0


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
