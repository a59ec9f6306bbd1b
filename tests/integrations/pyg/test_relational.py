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


@pytest.fixture
def ran(took_fast_path) -> Callable[..., bool]:
    """Whether a call went over all relations at once."""

    def run(layer: Any, *args: Any) -> bool:
        return took_fast_path(layer, *args) == [None] and relational._FORM in str(
            onehop.explain(layer, *args)
        )

    return run


def results(layer: Any, *args: Any) -> list[Tensor | None]:
    """The output, and the gradients to every leaf."""
    inputs = [each for arg in args for each in (arg if isinstance(arg, tuple) else (arg,))]
    leaves = [each for each in inputs if each is not None and each.requires_grad] + list(layer.parameters())
    out = layer(*args)
    weights = torch.linspace(-1, 1, out.numel()).view(out.shape)
    return [out, *torch.autograd.grad((out * weights).sum(), leaves, allow_unused=True)]


def assert_same(ours: list[Tensor | None], theirs: list[Tensor | None]) -> None:
    assert [each is None for each in ours] == [each is None for each in theirs]
    for one, other in zip(ours, theirs, strict=True):
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pairwise(kind=KINDS, options=OPTIONS, given=["features", "constant", "pair", "none"])
def test_outputs_and_gradients_are_those_of_pyg(kind, options, given, edge_index, edge_type, ran, bounds):
    bounds(block_edges=1000)
    layer = kind(NODES if given == "none" else WIDTH, OUT, RELATIONS, **OPTIONS[options])
    x: Any = None if given == "none" else torch.randn(NODES, WIDTH, requires_grad=given != "constant")
    if given == "pair":
        x = (x, torch.randn(NODES + 3, WIDTH, requires_grad=True))
    expected = results(layer, x, edge_index, edge_type)
    with onehop.patch():
        assert ran(layer, x, edge_index, edge_type)
        for _ in range(3):
            assert_same(results(layer, x, edge_index, edge_type), expected)


@pairwise(kind=KINDS, options=["mean", "sum", "bases"], needs=["all", "features", "matrices", "none"])
def test_groups_of_types(kind, options, needs, edge_index, edge_type, ran, bounds):
    bounds(block_edges=1)
    layer = kind(WIDTH, OUT, RELATIONS, **OPTIONS[options])
    layer.requires_grad_(needs in ("all", "matrices"))
    x = torch.randn(NODES, WIDTH, requires_grad=needs in ("all", "features"))

    def found() -> list[Tensor | None]:
        if needs == "none":
            return [layer(x, edge_index, edge_type)]
        leaves = [each for each in (x, *layer.parameters()) if each.requires_grad]
        out = layer(x, edge_index, edge_type)
        return [out.detach(), *torch.autograd.grad(out.pow(3).sum(), leaves)]

    expected = found()
    with onehop.patch():
        assert ran(layer, x, edge_index, edge_type)
        assert_same(found(), expected)
        with torch.inference_mode():
            torch.testing.assert_close(layer(x, edge_index, edge_type).clone(), expected[0])


@pytest.mark.parametrize("kind", KINDS)
def test_batched_gradients_and_infinite_rows_in_blocks(kind, edge_index, edge_type, ran, bounds):
    bounds(block_edges=1)
    layer, x = kind(WIDTH, OUT, RELATIONS), torch.randn(NODES, WIDTH, requires_grad=True)
    pulled = torch.randn(3, NODES, OUT)
    leaves = [x, layer.weight]
    out = layer(x, edge_index, edge_type)
    singly = [torch.autograd.grad(out, leaves, each, retain_graph=True) for each in pulled]
    with onehop.patch():
        out = layer(x, edge_index, edge_type)
        found = torch.autograd.grad(out, leaves, pulled, is_grads_batched=True)
    for ours, theirs in zip(found, zip(*singly, strict=True), strict=True):
        torch.testing.assert_close(ours, torch.stack(theirs))
    x = torch.full((NODES, WIDTH), torch.inf)
    expected = layer(x, edge_index, edge_type)
    with onehop.patch():
        torch.testing.assert_close(layer(x, edge_index, edge_type), expected, equal_nan=True)


def test_no_more_than_nodes_is_kept(bounds):
    bounds(block_edges=1)
    layer, x = RGCNConv(WIDTH, OUT, 40), torch.randn(NODES, WIDTH, requires_grad=True)
    edges, types = torch.randint(NODES, (2, 600)), torch.randint(40, (600,))
    sizes: list[int] = []

    def keep(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        with onehop.patch():
            layer(x, edges, types)
        assert max(sizes) <= max(layer.weight.numel(), x.numel())
        bounds(block_edges=600)
        onehop.clear_cache()
        with onehop.patch():
            layer(x, edges, types)
        assert max(sizes) > max(layer.weight.numel(), x.numel())


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives(kind, blocks, edge_index, edge_type, bounds):
    bounds(block_edges=1 if blocks else 1000)
    layer, x = kind(WIDTH, OUT, RELATIONS), torch.randn(NODES, WIDTH, requires_grad=True)

    def second() -> Tensor:
        (first,) = torch.autograd.grad(layer(x, edge_index, edge_type).pow(3).sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), layer.weight)[0]

    expected = second()
    with onehop.patch():
        torch.testing.assert_close(second(), expected)


def test_edges_are_divided_once(edge_index, edge_type, monkeypatch):
    divided = []

    def counting(*args):
        divided.append(args)
        return real(*args)

    real = relational.typed_edges
    monkeypatch.setattr(relational, "typed_edges", counting)
    layers, x = [kind(WIDTH, OUT, RELATIONS) for kind in KINDS], torch.randn(NODES, WIDTH)
    with onehop.patch():
        for _ in range(3):
            for layer in layers:
                layer(x, edge_index, edge_type)
    assert len(divided) == 1


@pytest.mark.parametrize("change", ["types", "data of types", "edges", "other types", "freed types"])
def test_changed_edges_and_types_are_noticed(change, edge_index, edge_type):
    layer, x = RGCNConv(WIDTH, OUT, RELATIONS), torch.randn(NODES, WIDTH)
    with onehop.patch():
        layer(x, edge_index, edge_type)
        if change == "types":
            edge_type[:40] = 3
        elif change == "data of types":
            edge_type.data[:40] = 3
        elif change == "edges":
            edge_index[:, :40] = 7
        else:
            other = edge_type.flip(0)
            if change == "freed types":
                del edge_type
            edge_type = other
        ours = layer(x, edge_index, edge_type)
    torch.testing.assert_close(ours, layer(x, edge_index, edge_type))


def test_two_assignments_of_types_take_turns(edge_index, edge_type):
    layer, x, other = RGCNConv(WIDTH, OUT, RELATIONS), torch.randn(NODES, WIDTH), edge_type.flip(0)
    expected = [layer(x, edge_index, each) for each in (edge_type, other)]
    with onehop.patch():
        for _ in range(2):
            for each, theirs in zip((edge_type, other), expected, strict=True):
                torch.testing.assert_close(layer(x, edge_index, each), theirs)


class Scaled(RGCNConv):
    """A layer of a user's own."""

    def message(self, x_j, edge_type_ptr):
        return 2 * x_j


LEFT: dict[str, Callable[[Tensor, Tensor], tuple[Any, ...]]] = {
    "max": lambda e, t: (RGCNConv(WIDTH, OUT, RELATIONS, aggr="max"), torch.randn(NODES, WIDTH), e, t),
    "blocks": lambda e, t: (RGCNConv(WIDTH, OUT, RELATIONS, num_blocks=2), torch.randn(NODES, WIDTH), e, t),
    "own message": lambda e, t: (Scaled(WIDTH, OUT, RELATIONS), torch.randn(NODES, WIDTH), e, t),
    "numbers": lambda e, t: (RGCNConv(NODES, OUT, RELATIONS), torch.arange(NODES).flip(0), e, t),
    "narrow": lambda e, t: (RGCNConv(WIDTH, OUT, RELATIONS).float(), torch.randn(NODES, WIDTH).float(), e, t),
    "infinite": lambda e, t: (
        FastRGCNConv(WIDTH, OUT, RELATIONS),
        torch.full((NODES, WIDTH), torch.inf),
        e,
        t,
    ),
    "turned flow": lambda e, t: (
        RGCNConv(WIDTH, OUT, RELATIONS, flow="target_to_source"),
        torch.randn(NODES, WIDTH),
        e,
        t,
    ),
    "no edges": lambda e, t: (RGCNConv(WIDTH, OUT, RELATIONS), torch.randn(NODES, WIDTH), e[:, :0], t[:0]),
    "int32": lambda e, t: (RGCNConv(WIDTH, OUT, RELATIONS), torch.randn(NODES, WIDTH), e, t.int()),
}


@pytest.mark.parametrize("case", LEFT)
def test_what_else_runs_as_in_pyg(case, edge_index, edge_type, ran):
    layer, *args = LEFT[case](edge_index, edge_type)
    expected = layer(*args)
    with onehop.patch():
        ours = layer(*args)
        assert not ran(layer, *args)
    assert ours.dtype is expected.dtype
    torch.testing.assert_close(ours, expected, equal_nan=True)


@pytest.mark.parametrize("wrong", ["source", "target", "columns", "types", "type"])
@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_those_of_pyg(kind, wrong, edge_index, edge_type):
    layer, x = kind(WIDTH, OUT, RELATIONS), torch.randn(NODES, WIDTH)
    if wrong in ("source", "target"):
        edge_index[int(wrong == "target"), 5] = NODES
    elif wrong == "columns":
        x = x[:, 1:]
    elif wrong == "types":
        edge_type = edge_type[1:]
    else:
        edge_type[4] = RELATIONS
    with pytest.raises((IndexError, RuntimeError, ValueError, AssertionError)) as theirs:
        layer(x, edge_index, edge_type)
    with onehop.patch(), pytest.raises(type(theirs.value)) as ours:
        layer(x, edge_index, edge_type)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("settings", [{"associate": False}, {"only": ["GCNConv"]}])
def test_settings_leave_it_to_pyg(settings, edge_index, edge_type, ran):
    layer, x = RGCNConv(WIDTH, OUT, RELATIONS), torch.randn(NODES, WIDTH)
    with onehop.patch(**settings):
        assert not ran(layer, x, edge_index, edge_type)


@pytest.mark.parametrize("name", ["RGCNConv", "FastRGCNConv"])
def test_it_can_be_chosen_alone(name, edge_index, edge_type, ran):
    layer, x = getattr(torch_nn(), name)(WIDTH, OUT, RELATIONS), torch.randn(NODES, WIDTH)
    with onehop.patch(only=[name]):
        assert ran(layer, x, edge_index, edge_type)


def torch_nn() -> Any:
    from torch_geometric import nn

    return nn


def test_few_edges_stay_with_pyg(edge_index, edge_type, ran, monkeypatch):
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)
    layer, x = RGCNConv(WIDTH, OUT, RELATIONS), torch.randn(NODES, WIDTH)
    with onehop.patch():
        assert not ran(layer, x, edge_index, edge_type)


@pytest.mark.parametrize(("more", "runs"), [(0, True), (1, False)])
def test_the_work_is_that_of_the_columns_that_come_out(more, runs, edge_index, edge_type, ran, bounds):
    bounds(few_edges=2 * EDGES, few_work=EDGES * OUT + more)
    assert OUT != RELATIONS
    layer, x = RGCNConv(WIDTH, OUT, RELATIONS), torch.randn(NODES, WIDTH)
    with onehop.patch():
        assert ran(layer, x, edge_index, edge_type) == runs


def test_with_pyg_lib_it_stays_with_pyg(edge_index, edge_type, ran, monkeypatch):
    monkeypatch.setattr(torch_geometric.typing, "WITH_SEGMM", True)
    monkeypatch.setattr(torch_geometric.backend, "use_segment_matmul", False)
    layer, x = RGCNConv(WIDTH, OUT, RELATIONS), torch.randn(NODES, WIDTH)
    with onehop.patch():
        assert not ran(layer, x, edge_index, edge_type)


@pytest.mark.parametrize("kind", KINDS)
def test_contexts(kind, edge_index, edge_type):
    layer, x = kind(WIDTH, OUT, RELATIONS), torch.randn(NODES, WIDTH)

    def loss(x: Tensor) -> Tensor:
        return layer(x, edge_index, edge_type).square().sum()

    gradient = torch.func.grad(loss)(x)
    with torch.inference_mode():
        expected = loss(x)
    with onehop.patch():
        torch.testing.assert_close(torch.func.grad(loss)(x), gradient)
        with torch.inference_mode():
            torch.testing.assert_close(loss(x), expected)
            copies = edge_index.clone(), edge_type.clone()
            torch.testing.assert_close(layer(x, *copies), layer(x, edge_index, edge_type))
        torch.testing.assert_close(torch.autograd.functional.jacobian(loss, x, vectorize=True), gradient)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            lowered = layer(x, edge_index, edge_type)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert lowered.dtype is layer(x, edge_index, edge_type).dtype


def test_meta_as_default_device(edge_index, edge_type):
    layer, x = FastRGCNConv(WIDTH, OUT, RELATIONS), torch.randn(NODES, WIDTH)
    expected = layer(x, edge_index, edge_type)
    with onehop.patch(), torch.device("meta"):
        ours = layer(x, edge_index, edge_type)
    torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pair", [False, True])
def test_features_of_another_dtype_are_left_to_pyg(kind, pair, edge_index, edge_type):
    layer, x = kind(WIDTH, OUT, RELATIONS), torch.randn(NODES, WIDTH, dtype=torch.float32)
    given = (torch.randn(NODES, WIDTH), x) if pair else x
    with pytest.raises(RuntimeError) as theirs:
        layer(given, edge_index, edge_type)
    with onehop.patch(), pytest.raises(RuntimeError) as ours:
        layer(given, edge_index, edge_type)
    assert str(ours.value) == str(theirs.value)
