"""Graphs in all of DGL's sparse formats: DGL's results and gradients, and no further formats are made."""

import itertools

import pytest
import torch

import onehop
from onehop.integrations import reports

dgl = pytest.importorskip("dgl", reason="dgl is not installed here: make test-dgl runs these tests")

import dgl.nn.pytorch as dnn  # noqa: E402

from tests.integrations.dgl.dgl_graphs import GRAPHS, edges, features  # noqa: E402

FORMATS = [list(some) for count in (1, 2, 3) for some in itertools.combinations(("coo", "csr", "csc"), count)]
REDUCTIONS = ("sum", "mean", "max", "min")


def compressed(layout: str, shuffled: bool) -> "dgl.DGLGraph":
    """A graph made from CSR or CSC, with the edges of each row in the order of their numbers or not."""
    ends = edges(30, 30, 150)
    outer, inner = ends if layout == "csr" else ends[::-1]
    generator = torch.Generator().manual_seed(1)
    order = torch.randperm(150, generator=generator) if shuffled else torch.arange(150)
    order = order[outer[order].argsort(stable=True)]
    pointers = torch.cat([torch.zeros(1, dtype=torch.int64), outer.bincount(minlength=30).cumsum(0)])
    return dgl.graph((layout, (pointers, inner[order], order)), num_nodes=30)


def with_edges_listed() -> "dgl.DGLGraph":
    g = compressed("csc", shuffled=True)
    g.edges(order="eid")
    return g


def consecutive() -> "dgl.DGLGraph":
    """Without edge numbers, which then are consecutive."""
    return dgl.graph(("csc", (torch.tensor([0, 2, 4, 4]), torch.tensor([1, 1, 0, 2]), torch.tensor([]))))


MADE = {
    **{name: GRAPHS[name] for name in ("random", "int32", "bipartite", "block", "no edges")},
    "csr": lambda: compressed("csr", shuffled=False),
    "csr shuffled": lambda: compressed("csr", shuffled=True),
    "csc": lambda: compressed("csc", shuffled=False),
    "csc shuffled": lambda: compressed("csc", shuffled=True),
    "csc shuffled, and coo": with_edges_listed,
    "csc consecutive": consecutive,
}

OPERATORS = {
    **{f"copy_u_{reduce}": ("u",) for reduce in REDUCTIONS},
    **{f"u_mul_e_{reduce}": ("u", "e") for reduce in REDUCTIONS},
    "u_dot_v": ("u", "v"),
    "edge_softmax": ("e",),
}


@pytest.fixture
def one_thread() -> None:
    """Several threads of DGL's kernel over COO give the gradient of a maximum to any edge that ties."""
    torch.set_num_threads(1)


def outcome(g: "dgl.DGLGraph", run, *leaves: torch.Tensor) -> list[torch.Tensor] | None:
    """Result and gradients; None where DGL raises."""
    leaves = [leaf.clone().requires_grad_() for leaf in leaves]
    try:
        result = run(g, *leaves)
        result.masked_fill(result.isinf(), 0).sum().backward()
    except (dgl.DGLError, RuntimeError):
        return None
    return [result.detach(), *(leaf.grad for leaf in leaves)]


def assert_same(make, formats: list[str], run, *leaves: torch.Tensor) -> None:
    """Compares with DGL; where DGL has no kernel for the formats, with DGL on the graph in all formats."""
    plain, patched = make().formats(formats), make().formats(formats)
    expected = outcome(plain, run, *leaves)
    with onehop.patch(only="dgl"):
        found = outcome(patched, run, *leaves)
    assert set(patched.formats()["created"]) <= set(plain.formats()["created"])
    if expected is None and found is not None:
        expected = outcome(make().formats(["coo", "csr", "csc"]), run, *leaves)
    assert (found is None) == (expected is None)
    for have, want in zip(found or [], expected or [], strict=True):
        torch.testing.assert_close(have, want)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("formats", FORMATS, ids=" ".join)
@pytest.mark.parametrize("made", MADE)
def test_operators(made: str, formats: list[str]) -> None:
    g = MADE[made]()
    shapes = {"u": (g.num_src_nodes(), 3), "v": (g.num_dst_nodes(), 3), "e": (g.num_edges(), 1)}
    for name, ends in OPERATORS.items():
        leaves = [features(*shapes[end]).abs() for end in ends]
        assert_same(MADE[made], formats, getattr(dgl.ops, name), *leaves)


LAYERS = {
    "GraphConv": lambda: dnn.GraphConv(3, 4, norm="right"),
    "SAGEConv": lambda: dnn.SAGEConv(3, 4, "mean"),
    "GATConv": lambda: dnn.GATConv(3, 4, 2),
    "GATv2Conv": lambda: dnn.GATv2Conv(3, 4, 2),
}


@pytest.mark.parametrize("formats", FORMATS, ids=" ".join)
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str, formats: list[str]) -> None:
    torch.manual_seed(0)
    layer = LAYERS[name]().double()
    assert_same(lambda: dgl.add_self_loop(GRAPHS["random"]()), formats, layer, features(30, 3))


def of_types() -> "dgl.DGLGraph":
    return dgl.heterograph(
        {("a", "to", "b"): edges(9, 9, 20), ("b", "of", "a"): edges(9, 9, 30)},
        num_nodes_dict={"a": 9, "b": 9},
    )


def aggregate_types(g: "dgl.DGLGraph", x: torch.Tensor) -> torch.Tensor:
    with g.local_scope():
        g.nodes["a"].data["x"] = g.nodes["b"].data["x"] = x
        steps = dgl.function.copy_u("x", "m"), dgl.function.sum("m", "out")
        g.multi_update_all({"to": steps, "of": steps}, "sum")
        return torch.cat([g.nodes["a"].data["out"], g.nodes["b"].data["out"]])


@pytest.mark.parametrize("formats", FORMATS, ids=" ".join)
def test_relations_of_a_heterogeneous_graph(formats: list[str]) -> None:
    assert_same(of_types, formats, aggregate_types, features(9, 2))


@pytest.mark.parametrize("formats", ["csc", ["csr", "csc"], ["coo", "csc"]], ids=str)
def test_what_dgl_runs_takes_the_fast_path(formats: str | list[str]) -> None:
    g = GRAPHS["random"]().formats(formats)
    x, w = features(30, 3), features(150, 1)
    with onehop.patch(only="dgl"), reports.recorded() as calls:
        dgl.ops.copy_u_sum(g, x)
        dgl.ops.u_mul_e_max(g, x, w)
        dgl.ops.edge_softmax(g, w)
    assert [call.reason for call in calls] == [None, None, None]


def test_ties_in_the_order_of_csr_are_left_to_dgl() -> None:
    g = GRAPHS["random"]().formats(["csr", "csc"])
    with onehop.patch(only="dgl"), reports.recorded() as calls:
        dgl.ops.copy_u_max(g, features(30, 3).requires_grad_())
        dgl.ops.copy_u_sum(g, features(30, 3).requires_grad_())
    assert calls[0].reason.startswith("its graph stores the edges of a destination in another order")
    assert calls[1].reason is None


@pytest.mark.parametrize("formats", FORMATS, ids=" ".join)
@pytest.mark.parametrize("made", MADE)
def test_graph_from_dgl(made: str, formats: list[str]) -> None:
    g = MADE[made]().formats(formats)
    before = g.formats()
    graph = onehop.Graph.from_dgl(g)
    assert g.formats() == before
    assert torch.equal(graph.edge_index(), torch.stack(MADE[made]().edges(order="eid")).long())
    assert (graph.num_src, graph.num_dst) == (g.num_src_nodes(), g.num_dst_nodes())
