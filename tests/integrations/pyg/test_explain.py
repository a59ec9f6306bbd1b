import gc

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn

import onehop
from onehop import thresholds
from onehop.integrations.explain import Explanation, LayerReport, reasons_page
from onehop.integrations.reports import IN_BLOCKS


class Odd(gnn.SAGEConv):
    """A layer that is left to PyG."""

    def aggregate(self, inputs: Tensor, index: Tensor, dim_size: int) -> Tensor:
        return super().aggregate(inputs, index, dim_size=dim_size)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = gnn.GCNConv(4, 8, cached=True)
        self.norm = torch.nn.BatchNorm1d(8)
        self.steps = gnn.APPNP(K=3, alpha=0.1)
        self.odd = Odd(8, 8)
        self.attention = gnn.GATConv(8, 8)
        self.last = gnn.SAGEConv(8, 2, aggr="max")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = torch.nn.functional.dropout(self.norm(self.first(x, edge_index)), training=self.training)
        x = self.attention(self.odd(self.steps(x, edge_index), edge_index), edge_index)
        return self.last(x, edge_index)


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net()


@pytest.mark.usefixtures("ordinary_bounds")
def test_every_layer_has_its_row(net, edge_index):
    rows = {row.name: row for row in onehop.explain(net, torch.randn(20, 4), edge_index).layers}
    assert list(rows) == ["first", "steps", "odd", "attention", "last"]
    assert rows["first"].fast
    assert (rows["first"].reduce, rows["first"].backend) == ("sum", "cpu")
    assert rows["first"].form == "scaled source, scaled destination, before its linear step"
    assert "CpuPlan(" in rows["first"].plan
    assert rows["steps"].calls == 3
    assert rows["last"].form == "source"
    assert rows["last"].reduce == "max"
    assert rows["odd"].reason.startswith("its class overrides aggregate, and its message mixes edges")
    assert rows["attention"].form == "GAT, fused"
    assert "CpuPlan(" in rows["attention"].plan


@pytest.mark.usefixtures("ordinary_bounds")
def test_it_prints_as_a_table(net, edge_index):
    lines = str(onehop.explain(net, torch.randn(20, 4), edge_index)).splitlines()
    assert lines[0].split() == ["layer", "class", "calls", "path"]
    assert len(lines) == 2 + 5 + 2
    assert lines[-1] == f"Each reason, and what can be done: {reasons_page()}"
    assert lines[2].startswith("first")
    assert "PyG's: its class overrides aggregate" in lines[4]
    assert lines[5].endswith("fast: sum of GAT, fused")


def test_the_page_of_reasons_is_named_where_there_is_one_and_nowhere_else(monkeypatch):
    fast = LayerReport("a", "GCNConv", 1, None, "source", "sum", "cpu", "", "")
    left = LayerReport("b", "GCNConv", 1, "there are no edges", "", "", "", "", "")
    assert "Each reason" not in str(Explanation((fast,)))
    packaged = {"Project-URL": ["Source, https://host/a/b", "Reasons, https://host/a/b/reasons.md"]}

    class Metadata:
        def get_all(self, name):
            return packaged.get(name)

    reasons_page.cache_clear()
    monkeypatch.setattr("importlib.metadata.metadata", lambda name: Metadata())
    told = Explanation((fast, left))
    assert str(told).endswith("Each reason, and what can be done: https://host/a/b/reasons.md")
    assert "https://host/a/b/reasons.md" in told._repr_html_()
    reasons_page.cache_clear()
    packaged.clear()
    assert str(told).endswith("docs/reference/reasons.md")
    reasons_page.cache_clear()


def test_functions_are_listed_with_how_often_they_are_served(edge_index):
    class Decoder(torch.nn.Module):
        def forward(self, z, at):
            sums = z.index_add(0, at[0], z[at[1]])
            return sums[at[0]] * z[at[1]] + z[:1]

    with thresholds.lifted():
        explained = onehop.explain(Decoder(), torch.randn(20, 4), edge_index)
    found = [(each.name, each.served, each.left) for each in explained.functions]
    assert found == [("x[index]", 3, 0), ("index_add", 1, 0)]
    assert str(explained).splitlines()[-2:] == ["x[index]: 3 of 3 calls fast", "index_add: 1 of 1 call fast"]
    assert "index_add: 1 of 1 call fast" in explained._repr_html_()


def test_no_line_is_longer_than_100_columns_but_in_full(net, edge_index):
    explained = onehop.explain(net, torch.randn(20, 4), edge_index)
    assert max(map(len, str(explained).splitlines())) <= 100
    assert "CpuPlan(" not in str(explained)
    full = str(onehop.explain(net, torch.randn(20, 4), edge_index, verbose=True))
    assert "first, on cpu: CpuPlan(" in full
    assert all(row.text in full for row in explained.layers)


def test_long_names_are_cut_off():
    row = LayerReport("blocks." * 9, "GCNConv", 1, "x" * 200, "", "", "", "", "")
    line = str(Explanation((row,))).splitlines()[2]
    assert len(line) == 100
    assert line.startswith("blocks.blocks.blocks.blocks…")
    assert line.endswith("x…")


@pytest.mark.parametrize("verbose", [False, True])
def test_notebooks_show_html_with_nothing_cut_off(verbose):
    rows = (
        LayerReport("first", "<b>Odd</b>", 1, "y" * 200, "", "", "", "", ""),
        LayerReport("second", "GCNConv", 2, None, "source", "sum", "cpu", "CpuPlan()", "a\n< b"),
        LayerReport("third", "EdgeConv", 2, None, IN_BLOCKS, "max", "cpu", "3 of about 8 edges each", ""),
        LayerReport("fourth", "GraphConv", 1, "of its reason", "", "", "", "", "", "DGL"),
    )
    shown = Explanation(rows, verbose)._repr_html_()
    assert "&lt;b&gt;Odd&lt;/b&gt;" in shown
    assert "y" * 200 in shown
    assert "fast: sum of source" in shown
    assert "in blocks: max, 3 of about 8 edges each" in shown
    assert "DGL&#x27;s: of its reason" in shown
    assert ("CpuPlan()" in shown) == ("&lt; b" in shown) == verbose
    assert "no layers" in Explanation(())._repr_html_()


def test_nothing_of_the_model_or_torch_changes(net, edge_index):
    net.train()
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    random = torch.random.get_rng_state()
    onehop.explain(net, torch.randn(20, 4, generator=torch.Generator()), edge_index)
    assert torch.equal(torch.random.get_rng_state(), random)
    assert net.training
    assert net.first._cached_edge_index is None
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    assert all(parameter.grad is None for parameter in net.parameters())
    assert onehop.patched() == ()


def test_an_existing_patch_is_what_is_explained(net, edge_index):
    onehop.patch(only="GCNConv")
    gc.collect()  # classes of other tests are in the table while they live
    table = onehop.patched()
    rows = {row.name: row for row in onehop.explain(net, torch.randn(20, 4), edge_index).layers}
    assert rows["first"].fast
    assert rows["last"].reason == "patch(only=...) leaves its class out"
    assert set(table) <= set(onehop.patched())


def test_a_single_layer_as_the_model(edge_index):
    explanation = onehop.explain(gnn.SAGEConv(4, 4), torch.randn(20, 4), edge_index)
    assert [row.name for row in explanation.layers] == [""]
    assert "(model)" in str(explanation)


def test_nothing_to_explain_where_the_patch_is_forbidden(net, edge_index, monkeypatch):
    monkeypatch.setenv("ONEHOP_DISABLE", "1")
    with pytest.raises(onehop.ConfigurationError, match="ONEHOP_DISABLE=1"):
        onehop.explain(net, torch.randn(20, 4), edge_index)


@pytest.mark.usefixtures("ordinary_bounds")
def test_a_weight_given_by_the_caller_is_named(edge_index):
    (row,) = onehop.explain(gnn.GraphConv(4, 4), torch.randn(20, 4), edge_index, torch.rand(90)).layers
    assert row.form == "source * weight"
    (row,) = onehop.explain(gnn.GraphConv(4, 4), torch.randn(20, 4), edge_index).layers
    assert row.form == "source"


def test_a_model_whose_forward_takes_a_gradient(edge_index):
    class Forces(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = gnn.SAGEConv(3, 1)

        def forward(self, pos: Tensor, edge_index: Tensor) -> Tensor:
            pos = pos.clone().requires_grad_()
            return -torch.autograd.grad(self.conv(pos, edge_index).sum(), pos, create_graph=True)[0]

    [layer] = onehop.explain(Forces(), torch.randn(20, 3), edge_index).layers
    assert layer.text.startswith("fast")


def test_layers_that_never_reach_the_patch(edge_index):
    class OwnPropagate(gnn.MessagePassing):
        def propagate(self, edge_index: Tensor, x: Tensor) -> Tensor:
            return x

    class Several(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.explained, self.own, self.unused = gnn.SAGEConv(4, 4), OwnPropagate(), gnn.SAGEConv(4, 4)
            # PyG sets the plain propagate on the instance, and then the rendered one, for good.
            self.explained.explain = True
            self.explained.explain = None

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.own.propagate(edge_index, x=self.explained(x, edge_index))

    rows = {row.name: row.reason for row in onehop.explain(Several(), torch.randn(20, 4), edge_index).layers}
    assert "set on the instance" in rows["explained"]
    assert rows["own"] == "its class has a propagate of its own"
    assert rows["unused"] == "it propagated nothing"


def test_a_model_without_layers():
    assert "no layers of PyG" in str(onehop.explain(torch.nn.Linear(2, 2), torch.randn(3, 2)))


def test_something_else_than_a_module():
    with pytest.raises(onehop.ArgumentError, match=r"model: expected a torch\.nn\.Module, got function"):
        onehop.explain(lambda x: x, 1)
