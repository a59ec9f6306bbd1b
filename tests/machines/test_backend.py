"""Machines as backends of the operator, and under the patch."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch.utils import backend_registration
from torch_geometric.nn import GATConv, GCNConv, PNAConv, SAGEConv, SuperGATConv, TransformerConv

import onehop
from onehop import ArgumentError, BackendError, ConfigurationError, Graph
from onehop.machines import ndp
from onehop.machines.pim import Machine, PimPlan
from tests.machines.models import EDGES, MODELS, SUMS, Model
from tests.machines.pim.machines import small
from tests.processes import run_python

GRAPH = Graph.from_edge_index(EDGES, 40)


def leaves() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = ((40, 6), (300,), (40,), (40,))
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]


def on_both(run: Callable[[str], list[torch.Tensor]]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Each result of the machine, and the CPU's."""
    return zip(run("pim"), run("cpu"), strict=True)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_backend_gives_the_cpus_result_and_gradients(reduce: str) -> None:
    def run(backend: str) -> list[torch.Tensor]:
        x, weight, left, right = leaves()
        out = onehop.aggregate(GRAPH, x, weight, reduce, left, right, backend=backend)
        grads = torch.autograd.grad((out * out.detach().cos()).sum(), [x, weight, left, right])
        return [out, *grads]

    for ours, theirs in on_both(run):
        torch.testing.assert_close(ours, theirs)


def test_heads_run_one_by_one() -> None:
    x, weight = torch.randn(40, 3, 4), torch.randn(300, 3)
    ours = onehop.aggregate(GRAPH, x, weight, backend="pim")
    torch.testing.assert_close(ours, onehop.aggregate(GRAPH, x, weight))


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_backend_gives_the_cpus_extrema_and_gradients(reduce: str) -> None:
    def run(backend: str) -> list[torch.Tensor]:
        x, weight, *_ = leaves()
        with torch.no_grad():
            # Ties, whose gradient is split.
            x[:20] = x[20:]
        out = onehop.aggregate(GRAPH, x, weight, reduce, backend=backend)
        return [out, *torch.autograd.grad((out * out.detach().cos()).sum(), [x, weight])]

    assert all(torch.equal(ours, theirs) for ours, theirs in on_both(run))


@pytest.mark.parametrize(
    ("rule", "shapes"),
    [
        ("gat", ((40, 2, 6), (40, 2), (40, 2))),
        ("gatv2", ((40, 2, 6), (40, 2, 6), (2, 6))),
        ("attention", ((40, 2, 6),) * 3),
    ],
)
def test_backend_gives_the_cpus_attention_weights_and_gradients(
    rule: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    def run(backend: str) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(2)
        given = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]
        out, weights = getattr(onehop, rule)(GRAPH, *given, return_attention_weights=True, backend=backend)
        loss = (out * out.detach().cos()).sum() + weights.square().sum()
        return [out, weights, *torch.autograd.grad(loss, given)]

    for ours, theirs in on_both(run):
        torch.testing.assert_close(ours, theirs)


def test_what_machines_do_not_do_is_refused() -> None:
    with pytest.raises(BackendError, match="bfloat16"):
        onehop.aggregate(GRAPH, torch.ones(40, 2, dtype=torch.bfloat16), backend="pim")
    with pytest.raises(BackendError, match="edge_softmax is not among"):
        onehop.edge_softmax(GRAPH, torch.ones(300), backend="pim")
    operands = (torch.ones(40, 2, 6), torch.ones(40, 2), torch.ones(40, 2))
    with pytest.raises(BackendError, match="no dropout of its own; give the factors as edge_mask"):
        onehop.gat(GRAPH, *operands, dropout=0.5, backend="pim")
    heads = torch.ones(40, 2, 6)
    with pytest.raises(BackendError, match="edges have features"):
        onehop.attention(GRAPH, heads, heads, heads, edge=torch.ones(300, 2, 6), backend="pim")


def PNA() -> PNAConv:
    degrees = torch.bincount(torch.bincount(EDGES[1], minlength=40))
    return PNAConv(6, 6, ["mean", "max"], ["identity"], degrees)


@pytest.mark.parametrize("name", MODELS)
def test_training_on_the_machine_equals_training_on_the_cpu(name: str) -> None:
    losses, gradients = [], []
    for machine in (None, Machine(small())):
        torch.manual_seed(0)
        model = MODELS[name]()
        optimiser = torch.optim.SGD(model.parameters(), 0.01)
        x = torch.randn(40, 6)
        with onehop.patch(machine=machine) if machine else onehop.patch(reuse=False):
            for _ in range(3):
                optimiser.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                optimiser.step()
        losses.append(loss.detach())
        gradients.append([p.grad for p in model.parameters()])
    torch.testing.assert_close(losses[1], losses[0])
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this torch cannot have a device that is written in Python",
)
def test_models_train_on_the_machine_with_tensors_on_another_device() -> None:
    """In a process of its own: see the program."""
    root = Path(__file__).parents[2]
    ran = run_python(["-m", "tests.machines.on_another_device"], cwd=root, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [*(f"{name} trained" for name in SUMS), "the rest refused"]


def test_report_adds_up_layers_and_epochs() -> None:
    torch.manual_seed(0)
    model = MODELS["GCN"]()
    x = torch.randn(40, 6)
    # In PyG's own order, in which both layers' sums need gradients.
    with onehop.patch(machine=Machine(small()), associate=False) as patch:
        for _ in range(2):
            model(x).sum().backward()
        ledger = patch.report
        assert set(ledger.by_layer()) == {"GCNConv 1", "GCNConv 2"}
        assert sum(entry.backward for entry in ledger.entries) == 4
        assert len(ledger.entries) == 8
        epochs = ledger.by_epoch()
        assert len(epochs) == 2
        assert sum(epochs[0].values()) == pytest.approx(sum(epochs[1].values()))
        assert sum(map(sum, (e.values() for e in epochs))) == pytest.approx(ledger.total_ms)
    assert len(patch.report.entries) == 8


def test_the_cheaper_order_aggregates_fewer_columns() -> None:
    model, x = Model(GCNConv(6, 64)), torch.randn(40, 6)
    moved = []
    for associate in (True, False):
        with onehop.patch(machine=Machine(small(), tune=False), associate=associate) as patch:
            model(x)
            moved.append(patch.report.entries[0].report.bytes["broadcast"])
    assert moved[0] < moved[1] / 5


def test_quantised_machine_trains_nearly_alike() -> None:
    torch.manual_seed(0)
    model, x = MODELS["GCN"](), torch.randn(40, 6)
    expected = model(x)
    with onehop.patch(machine=Machine(small(), dtype="int16")) as patch:
        out = model(x)
        assert {entry.report.dtype for entry in patch.report.entries} == {"int16"}
    assert (out - expected).abs().max() < 1e-2 * expected.abs().max()


class WithEdges(torch.nn.Module):
    """Calls a layer with features of edges."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        attributes = torch.arange(edges.size(1) * 3.0).view(-1, 3).sin()
        out: torch.Tensor = self.layer(x, edges, attributes)
        return out


def test_attention_and_max_run_on_the_machine_with_masks_and_edges() -> None:
    torch.manual_seed(0)
    x = torch.randn(40, 6)
    layers = (
        GATConv(6, 3, heads=2, dropout=0.4),
        SAGEConv(6, 6, aggr="max"),
        WithEdges(GATConv(6, 3, heads=2, edge_dim=3)),
    )
    model = Model(*layers)
    torch.manual_seed(1)
    expected = model(x)
    with onehop.patch(machine=Machine(small())) as patch:
        torch.manual_seed(1)
        torch.testing.assert_close(model(x), expected)
        assert patch.report.elsewhere == {}
        ran = {entry.layer: entry.report.figures["operator"] for entry in patch.report.entries}
    assert ran == {"GATConv 1": "attention", "SAGEConv 1": "extremum", "GATConv 2": "attention"}
    assert all(each.report.total_ns > 0 for each in patch.report.entries)


def test_other_layers_run_as_before() -> None:
    torch.manual_seed(0)
    x = torch.randn(40, 6)
    edges = WithEdges(TransformerConv(6, 3, heads=2, edge_dim=3))
    model = Model(SuperGATConv(6, 6), PNA(), edges, SAGEConv(6, 2, aggr="max"))
    expected = model(x)
    with onehop.patch(machine=Machine(small(), dtype="int16")) as patch:
        torch.testing.assert_close(model(x), expected)
        assert patch.report.entries == []
        left = patch.report.elsewhere
        assert set(left) == {"SuperGATConv 1", "PNAConv 1", "TransformerConv 1", "SAGEConv 1"}
        assert "this propagation takes several" in left["SuperGATConv 1"]
        assert left["SAGEConv 1"].startswith("the machine has sums alone of int16")
        assert patch.report.as_dict()["elsewhere"] == left
        assert "SAGEConv 1 did not run on the machine: the machine has sums" in str(patch.report)
        patch.report.clear()
        assert patch.report.elsewhere == {}
    with onehop.patch(machine=Machine(small())) as patch:
        torch.testing.assert_close(model(x), expected)
        assert set(patch.report.elsewhere) == {"SuperGATConv 1", "PNAConv 1", "TransformerConv 1"}
        assert "edges have features" in patch.report.elsewhere["TransformerConv 1"]


def test_machines_of_sums_alone_leave_attention_and_max_on_the_host() -> None:
    x, model = torch.randn(40, 6), Model(GATConv(6, 6), SAGEConv(6, 2, aggr="max"))
    with onehop.patch(machine=ndp.Machine(ndp.load(ndp.presets()[0]))) as patch:
        model(x)
        assert set(patch.report.elsewhere) == {"GATConv 1", "SAGEConv 1"}
        assert all("computes sums and means" in why for why in patch.report.elsewhere.values())


def test_few_edges_run_on_the_machine_too() -> None:
    few = torch.tensor([[0, 1], [1, 0]])
    with onehop.patch(machine=Machine(small())) as patch:
        GCNConv(2, 2)(torch.ones(2, 2), few)
        SAGEConv(2, 2)(torch.ones(2, 2), few)
        assert [entry.layer for entry in patch.report.entries] == ["GCNConv 1", "SAGEConv 1"]
        assert patch.report.elsewhere == {}


def test_features_that_the_machine_lacks_stay_on_the_host() -> None:
    model, x = MODELS["SAGE mean"]().bfloat16(), torch.randn(40, 6).bfloat16()
    with onehop.patch(machine=Machine(small())) as patch:
        model(x)
        assert patch.report.entries == []
        assert all("has no torch.bfloat16" in why for why in patch.report.elsewhere.values())
        assert len(patch.report.elsewhere) == 2


def test_the_patch_before_comes_back() -> None:
    model, x = MODELS["GIN"](), torch.randn(40, 6)
    with onehop.patch() as outer, onehop.patch(machine=Machine(small())) as inner:
        model(x)
        assert len(inner.report.entries) == 2
        with pytest.raises(ConfigurationError, match="no simulated machine"):
            _ = outer.report
    assert onehop.patched() == ()
    with onehop.patch():
        model(x)
    assert len(inner.report.entries) == 2


def test_backward_after_the_patch_is_gone_is_still_counted() -> None:
    model, x = MODELS["GCN"](), torch.randn(40, 6)
    with onehop.patch(machine=Machine(small()), associate=False) as patch:
        loss = model(x).sum()
    loss.backward()
    assert sum(entry.backward for entry in patch.report.entries) == 2


def test_keeping_aggregates_and_counting_them_exclude_each_other() -> None:
    with pytest.raises(ArgumentError, match="reuse"):
        onehop.patch(machine=Machine(small()), reuse=True)
    assert onehop.patched() == ()


@pytest.mark.parametrize("name", ["GCN", "SAGE max", "GAT"])
def test_explain_names_the_machine(name: str) -> None:
    model = MODELS[name]()
    with onehop.patch(machine=Machine(small())):
        rows = onehop.explain(model, torch.randn(40, 6)).layers
    assert all(row.fast and row.backend.startswith("machine-") and row.plan == "small" for row in rows)


def test_a_plan_of_the_machine_is_used() -> None:
    plan = PimPlan(sp=4, ds=1, format="coo")
    with onehop.patch(machine=Machine(small(), plan)) as patch:
        MODELS["SAGE sum"]()(torch.randn(40, 6))
        assert {entry.report.plan for entry in patch.report.entries} == {plan}
