"""What programs do with layers and their results, with and without thresholds: PyG's numbers all the same."""

import copy
import gc

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from torch_geometric import nn as gnn

import onehop
from onehop import thresholds
from tests.integrations.same import same as same_outcome
from tests.pairs import pairwise

NODES, EDGES, WIDTH, NARROW = 300, 8_000, 160, 7
assert thresholds.ORDINARY.kept_work <= EDGES * WIDTH

NARROWING = {
    "GCN": lambda: gnn.GCNConv(WIDTH, NARROW),
    "GCN cached": lambda: gnn.GCNConv(WIDTH, NARROW, cached=True),
    "GCN not normalised": lambda: gnn.GCNConv(WIDTH, NARROW, normalize=False),
    "SAGE": lambda: gnn.SAGEConv(WIDTH, NARROW),
    "SG": lambda: gnn.SGConv(WIDTH, NARROW, K=2),
    "TAG": lambda: gnn.TAGConv(WIDTH, NARROW),
    "GraphConv": lambda: gnn.GraphConv(WIDTH, NARROW),
    "GCN model": lambda: gnn.models.GCN(WIDTH, 16, 2, NARROW),
}
AGGREGATES = {
    "Simple": lambda: gnn.SimpleConv(),
    "Simple with loops": lambda: gnn.SimpleConv("mean", combine_root="self_loop"),
    "LG": lambda: gnn.LGConv(),
    "APPNP": lambda: gnn.APPNP(2, 0.1),
}
OTHERS = {
    "GIN": lambda: gnn.GINConv(torch.nn.Linear(WIDTH, NARROW), train_eps=True),
    "GAT": lambda: gnn.GATConv(WIDTH, NARROW, heads=2),
    "Cheb": lambda: gnn.ChebConv(WIDTH, NARROW, K=2),
}
EVERY = {**NARROWING, **AGGREGATES, **OTHERS}


@pytest.fixture(autouse=True, params=["thresholds", "none"])
def bounds_in_force(request, monkeypatch):
    """Every idiom as it is, and once more with all that is kept kept at once."""
    if request.param == "none":
        monkeypatch.setattr(thresholds, "now", thresholds.NONE)
    onehop.clear_cache()


@pytest.fixture
def edge_index() -> Tensor:
    return torch.randint(NODES, (2, EDGES), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def x() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(NODES, WIDTH, generator=generator, dtype=torch.float64)


def made(kind: str) -> torch.nn.Module:
    torch.manual_seed(2)
    return EVERY[kind]().double()


def same(run, *inputs: Tensor, errors: bool = False) -> None:
    """Compares what ``run`` gives for copies of the inputs."""
    same_outcome(lambda: run(*copy.deepcopy(inputs)), times=1, errors=errors)


# Results belong to whoever asked for them


WRITES = {
    "an activation in place": lambda out: F.relu(out, inplace=True),
    "an operation in place": lambda out: out.mul_(0.5),
    "a view": lambda out: out[3:, 1:].fill_(7),
    "data": lambda out: out.data.mul_(3),
    "NumPy": lambda out: out.detach().numpy().__imul__(3),
    "DLPack": lambda out: torch.from_dlpack(out.detach()).mul_(3),
}


@pairwise(kind=EVERY, write=WRITES)
def test_results_are_not_one_tensor(kind, write, x, edge_index):
    def run(x, edge_index):
        layer = made(kind)
        outs = []
        with torch.no_grad():
            for _ in range(5):
                kept, out = layer(x, edge_index), layer(x, edge_index)
                WRITES[write](out)
                outs += [kept, out]
        return outs

    same(run, x, edge_index)


@pytest.mark.parametrize("kind", AGGREGATES)
def test_asking_a_result_for_its_gradient_does_not_ask_another(kind, x, edge_index):
    layer = made(kind)
    with onehop.patch():
        for _ in range(4):
            one, other = layer(x, edge_index), layer(x, edge_index)
            one.requires_grad_()
            assert not other.requires_grad


@pytest.mark.parametrize("kind", AGGREGATES)
def test_training_on_activations_in_place(kind, x, edge_index):
    def run(x, edge_index):
        layer, head = made(kind), torch.nn.Linear(WIDTH, NARROW).double()
        grads = []
        for _ in range(5):
            head.zero_grad()
            head(F.relu(layer(x, edge_index), inplace=True)).square().sum().backward()
            grads.append(head.weight.grad.clone())
        return grads

    same(run, x, edge_index)


def test_five_results_halved_one_after_another(x, edge_index):
    def run(x, edge_index):
        layer = gnn.SimpleConv()
        outs = [layer(x, edge_index) for _ in range(5)]
        for out in outs:
            out *= 0.5
        return outs

    same(run, x, edge_index)


def test_what_gcn_norm_gives_belongs_to_its_caller(edge_index):
    from torch_geometric.nn.conv import gcn_conv

    def run(edge_index):
        found = []
        for _ in range(4):
            edges, weight = gcn_conv.gcn_norm(edge_index, num_nodes=NODES)
            _, other = gcn_conv.gcn_norm(edge_index, num_nodes=NODES)
            weight.numpy().__imul__(2)
            edges[0, 0] = 5
            found += [edges, weight, other]
        return found

    same(run, edge_index)


def test_the_edges_that_attention_returns_belong_to_the_caller(x, edge_index):
    def run(x, edge_index):
        layer = made("GAT")
        found = []
        for _ in range(3):
            out, (edges, alpha) = layer(x, edge_index, return_attention_weights=True)
            _, (others, _) = layer(x, edge_index, return_attention_weights=True)
            edges.copy_(edges.flip(0))
            found += [out.detach(), edges, alpha.detach(), others]
        return found

    same(run, x, edge_index)


def test_what_a_cached_layer_holds_can_be_changed(x, edge_index):
    def run(x, edge_index):
        one, other = gnn.GCNConv(WIDTH, NARROW, cached=True).double(), made("GCN cached")
        outs = []
        for _ in range(3):
            outs += [one(x, edge_index).detach(), other(x, edge_index).detach()]
            one._cached_edge_index[1].mul_(0.5)
        return outs

    same(run, x, edge_index)


# Writes that torch does not count


@pairwise(write=["data", "numpy"], kind=["Simple", "GraphConv", "GCN not normalised", "GCN", "LG", "SG"])
def test_weights_that_are_written_to_behind_torchs_back(kind, write, x, edge_index):
    def run(x, edge_index):
        weight = torch.rand(EDGES, dtype=x.dtype, generator=torch.Generator().manual_seed(4))
        array, layer, found = weight.numpy(), made(kind), []
        for _ in range(3):
            for _ in range(4):
                out = layer(x, edge_index, weight)
                out.sum().backward() if out.requires_grad else None
                found.append(out.detach())
            if write == "data":
                weight.data.mul_(2)
            else:
                array[: EDGES // 2] *= 3
        return found

    same(run, x, edge_index)


# Tensors and models that change places


def test_swapped_edges(x, edge_index):
    def run(x, edge_index):
        layer, found = made("GCN"), []
        other = edge_index.flip(0).contiguous()
        for _ in range(3):
            found += [layer(x, edge_index).detach(), layer(x, other).detach()]
            torch.utils.swap_tensors(edge_index, other)
        return found

    same(run, x, edge_index)


def test_a_model_whose_parameters_are_swapped(edge_index):
    def run(edge_index):
        layer = made("GCN").float()
        before = torch.__future__.get_swap_module_params_on_conversion()
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            source = torch.randn(NODES, WIDTH)
            for _ in range(3):
                layer(source, edge_index).sum().backward()
            layer.zero_grad()
            layer.double()
        finally:
            torch.__future__.set_swap_module_params_on_conversion(before)
        return layer(source.double(), edge_index).detach()

    same(run, edge_index)


# Memory


def test_mini_batches_cut_out_of_one_tensor_are_forgotten(x):
    edges = torch.randint(NODES, (2, 30_000), generator=torch.Generator().manual_seed(5))
    layer = made("GCN")
    with onehop.patch():
        for begin in range(0, 30_000, 100):
            layer(x, edges[:, begin : begin + 100]).sum().backward()
    entries = onehop.cache_info().entries
    assert entries <= 60
    del edges
    gc.collect()
    assert onehop.cache_info().entries < entries


@pytest.mark.parametrize("kind", ["GraphConv", "SG", "GCN", "GAT"])
def test_an_edge_index_of_pygs_own_class_that_is_written_to(kind, x, edge_index):
    from torch_geometric import EdgeIndex

    many = torch.randint(NODES, (2, 40_000), generator=torch.Generator().manual_seed(6))

    def run(x, edge_index):
        edges, layer, found = EdgeIndex(many.clone(), sparse_size=(NODES, NODES)), made(kind), []
        for at in range(4):
            found.append(layer(x, edges).detach())
            edges[0, 1_003 * at : 1_003 * at + 2] = 3
        return found

    same(run, x, edge_index)


@pytest.mark.parametrize("kind", ["GCN", "SAGE", "GraphConv", "SG"])
def test_parameters_that_a_checkpointed_forward_pass_makes(kind, x, edge_index):
    lazy = {
        "GCN": lambda: gnn.GCNConv(-1, NARROW),
        "SAGE": lambda: gnn.SAGEConv(-1, NARROW),
        "GraphConv": lambda: gnn.GraphConv(-1, NARROW),
        "SG": lambda: gnn.SGConv(-1, NARROW),
    }

    def run(x, edge_index):
        torch.manual_seed(2)
        layer = lazy[kind]().double()
        out = checkpoint(layer, x, edge_index, use_reentrant=False)
        out.square().sum().backward()
        return [out.detach(), *(p.grad for p in layer.parameters())]

    same(run, x, edge_index)


@pytest.mark.parametrize("kind", ["SAGE", "GraphConv", "SG", "TAG", "GCN"])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_features_of_nodes_that_send_to_nobody_may_be_missing(kind, value, x, edge_index):
    def run(x, edge_index):
        x[NODES - 1] = value
        edge_index[edge_index == NODES - 1] = 0
        layer, found = made(kind), []
        for _ in range(4):
            layer.zero_grad()
            out = layer(x, edge_index)
            out[: NODES - 1].square().sum().backward()
            found += [out.detach(), *(p.grad.clone() for p in layer.parameters())]
        return found

    same(run, x, edge_index)


def test_a_result_of_before_a_training_step_has_a_gradient(x, edge_index):
    def run(x, edge_index):
        layer = made("GCN")
        optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
        out = layer(x, edge_index)
        for _ in range(3):
            layer(x, edge_index).square().sum().backward()
            optimiser.step()
        layer.zero_grad()
        out.square().sum().backward()
        return [p.grad for p in layer.parameters()]

    same(run, x, edge_index)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["GraphConv", "TAG", "SG", "GCN not normalised", "widening GCN"])
def test_weights_of_a_wider_dtype_end_as_in_pyg(kind, dtype, x, edge_index):
    wide = torch.rand(EDGES)

    def run(x, edge_index):
        layer = gnn.GCNConv(WIDTH, 2 * WIDTH) if kind == "widening GCN" else made(kind)
        return torch.empty(0, dtype=layer.to(dtype)(x.to(dtype), edge_index, wide).dtype)

    same(run, x, edge_index, errors=True)
