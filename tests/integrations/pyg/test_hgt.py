"""HGTConv over all types at once, and the products of HeteroLinear, against PyG."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import HeteroLinear, HGTConv

import onehop
from onehop import thresholds
from tests.integrations.pyg.typed_nodes import edges_of, features_of

WIDTH, OUT, HEADS = 6, 8, 2
NODES = {"paper": 20, "author": 14, "venue": 5, "lone": 3}
TYPES = [
    ("author", "writes", "paper"),
    ("paper", "cites", "paper"),
    ("paper", "extends", "paper"),
    ("paper", "written by", "author"),
    ("venue", "holds", "paper"),
]
METADATA = (list(NODES), TYPES)
COUNTS = dict(zip(TYPES, (60, 90, 1, 30, 0), strict=True))

pytestmark = pytest.mark.usefixtures("in_doubles")


def make(**options: Any) -> HGTConv:
    """A layer whose relations have different factors, and whose types skip it to different degrees."""
    layer = HGTConv(
        **{"in_channels": WIDTH, "out_channels": OUT, "metadata": METADATA, "heads": HEADS, **options}
    )
    with torch.no_grad():
        for each in (*layer.p_rel.values(), *layer.skip.values()):
            each.copy_(torch.randn(each.shape))
    return layer


@pytest.fixture
def layer() -> HGTConv:
    return make()


@pytest.fixture
def x() -> dict[str, Tensor]:
    return features_of(NODES, WIDTH)


@pytest.fixture
def edges() -> dict[tuple[str, str, str], Tensor]:
    """One type has no edges, and the last papers and authors have none either."""
    return edges_of(NODES, COUNTS)


def results(layer: Any, x: dict[str, Tensor], edges: dict[Any, Tensor]) -> dict[str, Any]:
    """Outputs of all types, and the gradients to every leaf, by name."""
    outs = layer(x, edges)
    loss = sum((out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum() for out in outs.values())
    leaves = {**{f"features of {name}": each for name, each in x.items()}, **dict(layer.named_parameters())}
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return {**outs, **dict(zip(leaves, found, strict=True))}


def assert_same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert list(ours) == list(theirs)
    for name, expected in theirs.items():
        if expected is None:
            # A gradient of zeros stands for none.
            assert ours[name] is None or not ours[name].any(), name
        else:
            torch.testing.assert_close(ours[name], expected, rtol=1e-9, atol=1e-9, msg=name)


def ran(layer: Any, x: Any, edges: Any) -> bool:
    """Return whether a call went over all types at once."""
    return "attention over all types" in str(onehop.explain(layer, x, edges, verbose=True))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"heads": 1},
        {"out_channels": WIDTH, "heads": 3},
        {"out_channels": 160, "heads": 8},
        {"out_channels": 160, "heads": 2},
    ],
    ids=["plain", "one head", "skipping", "groups of heads", "wide heads"],
)
def test_outputs_and_gradients_are_those_of_pyg(options, x, edges):
    layer = make(**options)
    expected = results(layer, x, edges)
    with onehop.patch():
        assert ran(layer, x, edges)
        for _ in range(3):
            assert_same(results(layer, x, edges), expected)


def test_gradients_of_factors_are_tensors_of_their_own(layer, x, edges):
    with onehop.patch():
        layer(x, edges)["paper"].square().sum().backward()
    found = [each.grad.untyped_storage().data_ptr() for each in layer.p_rel.values() if each.grad is not None]
    assert len(found) == len(set(found)) > 1


def test_one_type_of_nodes_and_edges():
    layer = make(metadata=(["paper"], [TYPES[1]]))
    x = {"paper": torch.randn(20, WIDTH, requires_grad=True)}
    edges = {TYPES[1]: torch.randint(20, (2, 90))}
    expected = results(layer, x, edges)
    with onehop.patch():
        assert ran(layer, x, edges)
        assert_same(results(layer, x, edges), expected)


def test_widths_of_each_type(x, edges):
    layer = make(in_channels={name: WIDTH + place for place, name in enumerate(NODES)})
    x = {
        name: torch.randn(each.size(0), WIDTH + i, requires_grad=True)
        for i, (name, each) in enumerate(x.items())
    }
    expected = results(layer, x, edges)
    with onehop.patch():
        assert ran(layer, x, edges)
        assert_same(results(layer, x, edges), expected)


def test_types_that_are_missing_from_a_call(layer, x, edges):
    """PyG too takes a part of the types, in the order of the layer's."""
    del x["lone"], x["venue"], edges[TYPES[4]], edges[TYPES[1]]
    x = dict(reversed(x.items()))
    expected = results(layer, x, edges)
    with onehop.patch():
        assert ran(layer, x, edges)
        assert_same(results(layer, x, edges), expected)


def test_a_type_without_nodes(layer, x, edges):
    x["venue"] = torch.empty(0, WIDTH, requires_grad=True)
    expected = results(layer, x, edges)
    with onehop.patch():
        assert ran(layer, x, edges)
        assert_same(results(layer, x, edges), expected)


def test_parameters_that_change_between_calls_count(layer, x, edges):
    with onehop.patch():
        before = results(layer, x, edges)
        with torch.no_grad():
            for each in layer.parameters():
                each.mul_(1.5)
        after = results(layer, x, edges)
    assert not torch.equal(before["paper"], after["paper"])
    assert_same(after, results(layer, x, edges))


@pytest.mark.parametrize("change", ["in place", "data", "another tensor", "exchanged"])
def test_changed_edges_are_noticed(change, layer, x, edges):
    with onehop.patch():
        layer(x, edges)
        cites, extends = TYPES[1], TYPES[2]
        if change == "in place":
            edges[cites][1, :50] = 7
        elif change == "data":
            edges[cites].data[1, :50] = 7
        elif change == "another tensor":
            edges[cites] = edges[cites].flip(1).roll(3, 1)
        else:
            edges[cites], edges[extends] = edges[extends], edges[cites]
        ours = results(layer, x, edges)
    assert_same(ours, results(layer, x, edges))


def test_second_derivatives(layer, x, edges):
    def second() -> Tensor:
        loss = layer(x, edges)["paper"].pow(3).sum()
        (first,) = torch.autograd.grad(loss, x["author"], create_graph=True)
        return torch.autograd.grad(first.square().sum(), layer.k_rel.weight)[0]

    expected = second()
    with onehop.patch():
        torch.testing.assert_close(second(), expected)


def test_nothing_has_a_row_for_each_edge(layer, x):
    """What autograd keeps is as large as the rows of relations, however many the edges."""
    edges = {TYPES[1]: torch.randint(20, (2, 5000))}
    sizes: list[int] = []

    def keep(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        with onehop.patch():
            layer(x, edges)
        assert max(sizes) <= 5000 * HEADS
        layer(x, edges)
    assert max(sizes) >= 5000 * OUT


class _OwnRows(HGTConv):
    def _construct_src_node_feat(self, *args: Any) -> Any:
        key, value, offset = super()._construct_src_node_feat(*args)
        return 2 * key, value, offset


class _OwnForward(HGTConv):
    def forward(self, x: Any, edges: Any) -> Any:
        return {name: 2 * out for name, out in super().forward(x, edges).items()}


def test_a_class_with_its_own_forward_calls_the_fast_one(x, edges):
    layer = _OwnForward(WIDTH, OUT, METADATA, heads=HEADS)
    expected = results(layer, x, edges)
    with onehop.patch():
        assert ran(layer, x, edges)
        assert_same(results(layer, x, edges), expected)


def _halving(layer: Any, inputs: Any, out: Any) -> Any:
    return {name: each / 2 for name, each in out.items()} if isinstance(out, dict) else out / 2


@pytest.mark.parametrize("step", ["k_rel", "v_rel", "kqv_lin", "kqv_lin.lins.paper", "aggr_module"])
def test_hooks_are_called(step, layer, x, edges):
    layer.get_submodule(step).register_forward_hook(_halving)
    expected = results(layer, x, edges)
    with onehop.patch():
        assert not ran(layer, x, edges)
        assert_same(results(layer, x, edges), expected)


def test_a_hook_on_the_last_step_is_called(layer, x, edges):
    layer.out_lin.register_forward_hook(_halving)
    expected = results(layer, x, edges)
    with onehop.patch():
        assert ran(layer, x, edges)
        assert_same(results(layer, x, edges), expected)


@pytest.mark.parametrize("what", ["rows", "message hook", "dtypes", "left out", "backend"])
def test_what_is_left_to_pyg(what, layer, x, edges):
    options: dict[str, Any] = {}
    if what == "rows":
        layer = _OwnRows(WIDTH, OUT, METADATA, heads=HEADS)
    elif what == "message hook":
        layer.register_message_forward_hook(lambda layer, inputs, out: out / 2)
    elif what == "dtypes":
        layer.p_rel["__".join(TYPES[0])].data = torch.ones(1, HEADS, dtype=torch.float32)
    elif what == "left out":
        options["only"] = ["GCNConv"]
    else:
        options["backend"] = "reference"
    expected = results(layer, x, edges)
    with onehop.patch(**options):
        assert not ran(layer, x, edges)
        assert_same(results(layer, x, edges), expected)


def test_lazy_parameters(x, edges):
    torch.manual_seed(1)
    expected = HGTConv(-1, OUT, METADATA, heads=HEADS)(x, edges)
    torch.manual_seed(1)
    with onehop.patch():
        ours = HGTConv(-1, OUT, METADATA, heads=HEADS)(x, edges)
    assert_same(ours, expected)


@pytest.mark.parametrize("wrong", ["missing nodes", "unknown type", "width"])
def test_errors_are_those_of_pyg(wrong, layer, x, edges):
    if wrong == "missing nodes":
        del x["author"]
    elif wrong == "unknown type":
        edges["author", "likes", "paper"] = edges[TYPES[0]]
    else:
        x["author"] = torch.randn(14, WIDTH + 1)
    with pytest.raises((KeyError, RuntimeError, AttributeError)) as theirs:
        layer(x, edges)
    with onehop.patch(), pytest.raises(type(theirs.value)) as ours:
        layer(x, edges)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("types", ["sorted", "unsorted", "one", "none"])
def test_products_by_type_are_those_of_pyg(types, bias):
    layer = HeteroLinear(WIDTH, OUT, 5, bias=bias)
    rows = 0 if types == "none" else 40
    of_rows = torch.full((rows,), 3) if types == "one" else torch.randint(4, (rows,))
    if types == "sorted":
        of_rows = of_rows.sort().values
    x = torch.randn(rows, WIDTH, requires_grad=True)

    def found() -> list[Tensor]:
        out = layer(x, of_rows)
        return [out, *torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])]

    expected = found()
    with onehop.patch():
        for one, other in zip(found(), expected, strict=True):
            assert torch.equal(one, other)


def test_products_are_put_together_once():
    """PyG's graph has a node for each type's write."""
    layer, x = HeteroLinear(WIDTH, OUT, 5, bias=False), torch.randn(40, WIDTH, requires_grad=True)
    of_rows = torch.randint(5, (40,)).sort().values
    assert "CopySlices" in type(layer(x, of_rows).grad_fn).__name__
    with onehop.patch():
        assert "Recomputed" in type(layer(x, of_rows).grad_fn).__name__


def test_second_derivatives_of_products():
    layer, x = HeteroLinear(WIDTH, OUT, 5), torch.randn(40, WIDTH, requires_grad=True)
    of_rows = torch.randint(4, (40,)).sort().values
    with onehop.patch():
        assert torch.autograd.gradgradcheck(lambda x, *_: layer(x, of_rows).pow(2), (x, layer.weight))


@pytest.mark.parametrize("options", [{"only": ["GCNConv"]}, {}])
def test_products_that_are_left_to_pyg(options):
    layer, x = HeteroLinear(WIDTH, OUT, 5, bias=False), torch.randn(40, WIDTH, requires_grad=True)
    layer.weight.data = layer.weight.data if options else layer.weight.data.float()
    of_rows = torch.randint(5, (40,)).sort().values
    x = x if options else x.detach().bfloat16()
    with onehop.patch(**options):
        if options:
            assert "CopySlices" in type(layer(x, of_rows).grad_fn).__name__
        else:
            with pytest.raises(RuntimeError, match="dtype"):
                layer(x, of_rows)


def test_few_edges_take_the_steps_of_pyg(layer, x, edges, monkeypatch):
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)
    with onehop.patch():
        assert not ran(layer, x, edges)
