"""RGCNConv and FastRGCNConv over all relations at once, against PyG."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric
from torch import Tensor
from torch_geometric.nn import FastRGCNConv, RGCNConv

import onehop
from onehop import thresholds
from onehop.integrations.pyg.associations import relational
from tests.integrations.same import (
    assert_same,
    learned,
    noted,
    reasons,
    same,
    same_after,
    same_error,
    saved_sizes,
)
from tests.pairs import pairwise

NODES, EDGES, WIDTH, OUT, RELATIONS = 20, 90, 6, 4, 5
KINDS = [RGCNConv, FastRGCNConv]
OPTIONS: dict[str, dict[str, Any]] = {
    "mean": {},
    "sum": {"aggr": "sum"},
    "bases": {"num_bases": 3},
    "no root": {"root_weight": False},
    "no bias": {"bias": False},
}

pytestmark = pytest.mark.usefixtures("in_doubles")


@pytest.fixture
def edge_type() -> Tensor:
    """[90], without relation 3."""
    found = torch.randint(RELATIONS - 1, (EDGES,), generator=torch.Generator().manual_seed(1))
    return found + (found >= 3)


def compare(layer: Any, *args: Any, ours: bool | None = True, **options: Any) -> None:
    """Outputs and gradients are PyG's, and a call goes over all relations at once, or does not."""
    calls = same(lambda: learned(layer(*args), args, layer), rtol=1e-10, atol=1e-10, **options)
    with onehop.patch(**options):
        told = str(onehop.explain(layer, *args))
    assert (reasons(calls) == [None] and relational._FORM in told) is ours


@pairwise(kind=KINDS, options=OPTIONS, given=["features", "constant", "pair", "none"])
def test_outputs_and_gradients_are_those_of_pyg(kind, options, given, edge_index, edge_type, bounds):
    bounds(block_edges=1000)
    layer = kind(NODES if given == "none" else WIDTH, OUT, RELATIONS, **OPTIONS[options])
    x: Any = None if given == "none" else torch.randn(NODES, WIDTH, requires_grad=given != "constant")
    if given == "pair":
        x = (x, torch.randn(NODES + 3, WIDTH, requires_grad=True))
    compare(layer, x, edge_index, edge_type)


@pairwise(kind=KINDS, options=["mean", "sum", "bases"], needs=["all", "features", "matrices", "none"])
def test_groups_of_types(kind, options, needs, edge_index, edge_type, bounds):
    bounds(block_edges=1)
    layer = kind(WIDTH, OUT, RELATIONS, **OPTIONS[options])
    layer.requires_grad_(needs in ("all", "matrices"))
    x = torch.randn(NODES, WIDTH, requires_grad=needs in ("all", "features"))
    if needs != "none":
        compare(layer, x, edge_index, edge_type)
    same(torch.no_grad()(lambda: layer(x, edge_index, edge_type)), rtol=1e-10)
    with onehop.patch(), torch.inference_mode():
        inferred = layer(x, edge_index, edge_type).clone()
    assert_same(inferred, layer(x, edge_index, edge_type).detach())


@pytest.mark.parametrize("kind", KINDS)
def test_batched_gradients_and_infinite_rows_in_blocks(kind, edge_index, edge_type, bounds):
    bounds(block_edges=1)
    layer, x = kind(WIDTH, OUT, RELATIONS), torch.randn(NODES, WIDTH, requires_grad=True)
    pulled, leaves = torch.randn(3, NODES, OUT), [x, layer.weight]
    out = layer(x, edge_index, edge_type)
    singly = [torch.autograd.grad(out, leaves, each, retain_graph=True) for each in pulled]
    with onehop.patch():
        out = layer(x, edge_index, edge_type)
        found = torch.autograd.grad(out, leaves, pulled, is_grads_batched=True)
    assert_same(list(found), [torch.stack(each) for each in zip(*singly, strict=True)])
    infinite = torch.full((NODES, WIDTH), torch.inf)
    same(lambda: layer(infinite, edge_index, edge_type))


def test_no_more_than_nodes_is_kept(bounds):
    bounds(block_edges=1)
    layer, x = RGCNConv(WIDTH, OUT, 40), torch.randn(NODES, WIDTH, requires_grad=True)
    edges, types = torch.randint(NODES, (2, 600)), torch.randint(40, (600,))
    least = max(layer.weight.numel(), x.numel())
    with saved_sizes() as sizes:
        with onehop.patch():
            layer(x, edges, types)
        assert max(sizes) <= least
        bounds(block_edges=600)
        onehop.clear_cache()
        with onehop.patch():
            layer(x, edges, types)
        assert max(sizes) > least


def test_edges_are_divided_once(edge_index, edge_type, monkeypatch):
    divided = noted(monkeypatch, relational, "typed_edges")
    layers, x = [kind(WIDTH, OUT, RELATIONS) for kind in KINDS], torch.randn(NODES, WIDTH)
    with onehop.patch():
        for _ in range(3):
            for layer in layers:
                layer(x, edge_index, edge_type)
    assert len(divided) == 1


CHANGES: dict[str, Callable[[Tensor, list[Tensor]], object]] = {
    "types": lambda edges, types: types[0][:40].fill_(3),
    "data of types": lambda edges, types: types[0].data[:40].fill_(3),
    "edges": lambda edges, types: edges[:, :40].fill_(7),
    "other types": lambda edges, types: types.insert(0, types[0].flip(0)),
    "freed types": lambda edges, types: types.append(types.pop().flip(0)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_edges_and_types_are_noticed(change, edge_index, edge_type):
    layer, x, types = RGCNConv(WIDTH, OUT, RELATIONS), torch.randn(NODES, WIDTH), [edge_type.clone()]
    same_after(lambda: layer(x, edge_index, types[0]), lambda: CHANGES[change](edge_index, types))


def test_two_assignments_of_types_take_turns(edge_index, edge_type):
    layer, x, other = RGCNConv(WIDTH, OUT, RELATIONS), torch.randn(NODES, WIDTH), edge_type.flip(0)
    same(lambda: [layer(x, edge_index, each) for each in (edge_type, other)])


class Scaled(RGCNConv):
    """A layer of a user's own."""

    def message(self, x_j, edge_type_ptr):
        return 2 * x_j


def of_relations(kind: Any = RGCNConv, width: int = WIDTH, **options: Any) -> Any:
    return kind(width, OUT, RELATIONS, **options)


X = torch.randn(NODES, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
# What PyG's own code runs.
LEFT: dict[str, Callable[[Tensor, Tensor], tuple[Any, ...]]] = {
    "max": lambda e, t: (of_relations(aggr="max"), X, e, t),
    "blocks": lambda e, t: (of_relations(num_blocks=2), X, e, t),
    "own message": lambda e, t: (of_relations(Scaled), X, e, t),
    "numbers": lambda e, t: (of_relations(width=NODES), torch.arange(NODES).flip(0), e, t),
    "narrow": lambda e, t: (of_relations().float(), X.float(), e, t),
    "infinite": lambda e, t: (of_relations(FastRGCNConv), torch.full((NODES, WIDTH), torch.inf), e, t),
    "turned flow": lambda e, t: (of_relations(flow="target_to_source"), X, e, t),
    "no edges": lambda e, t: (of_relations(), X, e[:, :0], t[:0]),
    "int32": lambda e, t: (of_relations(), X, e, t.int()),
}


@pytest.mark.parametrize("case", LEFT)
def test_what_else_runs_as_in_pyg(case, edge_index, edge_type):
    layer, *args = LEFT[case](edge_index, edge_type)
    tolerance = 1e-5 if case == "narrow" else 1e-10
    calls = same(lambda: layer(*args), rtol=tolerance, atol=tolerance)
    with onehop.patch():
        assert relational._FORM not in str(onehop.explain(layer, *args)) or reasons(calls) != [None]


@pytest.mark.parametrize("wrong", ["source", "target", "columns", "types", "type", "dtype", "a dtype of two"])
@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_those_of_pyg(kind, wrong, edge_index, edge_type):
    x: Any = torch.randn(NODES, WIDTH)
    if wrong in ("source", "target"):
        edge_index[int(wrong == "target"), 5] = NODES
    elif wrong == "columns":
        x = x[:, 1:]
    elif wrong == "types":
        edge_type = edge_type[1:]
    elif wrong == "type":
        edge_type[4] = RELATIONS
    else:
        x = x.float() if wrong == "dtype" else (x, x.float())
    layer = kind(WIDTH, OUT, RELATIONS)
    same_error(lambda: layer(x, edge_index, edge_type))


@pytest.mark.parametrize("settings", [{"associate": False}, {"only": ["GCNConv"]}])
def test_settings_leave_it_to_pyg(settings, edge_index, edge_type):
    compare(of_relations(), X, edge_index, edge_type, ours=False, **settings)


@pytest.mark.parametrize("kind", KINDS)
def test_it_can_be_chosen_alone(kind, edge_index, edge_type):
    compare(of_relations(kind), X, edge_index, edge_type, only=[kind.__name__])


def test_few_edges_stay_with_pyg(edge_index, edge_type, monkeypatch):
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)
    compare(of_relations(), X, edge_index, edge_type, ours=False)


@pytest.mark.parametrize(("more", "runs"), [(0, True), (1, False)])
def test_the_work_is_that_of_the_columns_that_come_out(more, runs, edge_index, edge_type, bounds):
    bounds(few_edges=2 * EDGES, few_work=EDGES * OUT + more)
    assert OUT != RELATIONS
    compare(of_relations(), X, edge_index, edge_type, ours=runs)


def test_with_pyg_lib_it_stays_with_pyg(edge_index, edge_type, monkeypatch):
    monkeypatch.setattr(torch_geometric.typing, "WITH_SEGMM", True)
    monkeypatch.setattr(torch_geometric.backend, "use_segment_matmul", False)
    compare(of_relations(), X, edge_index, edge_type, ours=False)


def test_meta_as_default_device(edge_index, edge_type):
    layer = of_relations(FastRGCNConv)
    expected = layer(X, edge_index, edge_type)
    with onehop.patch(), torch.device("meta"):
        ours = layer(X, edge_index, edge_type)
    assert_same(ours, expected)
