"""HGTConv over all types at once and in groups of relations, and HeteroLinear's products, against PyG."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import HeteroLinear, HGTConv

import onehop
from onehop.integrations.pyg import hgt
from tests.integrations.pyg.typed_nodes import edges_of, features_of
from tests.integrations.same import (
    BITS,
    assert_same,
    learned,
    same,
    same_after,
    same_error,
    saved_sizes,
    twice,
)

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
ALL_TYPES = "attention over all types"

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


def results(layer: Any, x: dict[str, Tensor], edges: dict[Any, Tensor]) -> list[Any]:
    """Outputs of all types, and the gradients to every leaf; zeros stand for none."""
    outs, *grads = learned(layer(x, edges), x, layer)
    return [outs, *(each for each in grads if each is not None and each.any())]


def form(layer: Any, x: Any, edges: Any) -> str:
    return str(onehop.explain(layer, x, edges, verbose=True))


def compare(layer: Any, x: Any, edges: Any, text: str = ALL_TYPES, ours: bool = True, **options: Any) -> None:
    """A layer gives PyG's results, over all types at once or not."""
    same(lambda: results(layer, x, edges), **options)
    with onehop.patch(**options):
        assert (text in form(layer, x, edges)) is ours


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
    compare(make(**options), x, edges)


def test_gradients_of_factors_are_tensors_of_their_own(layer, x, edges):
    with onehop.patch():
        layer(x, edges)["paper"].square().sum().backward()
    found = [each.grad.untyped_storage().data_ptr() for each in layer.p_rel.values() if each.grad is not None]
    assert len(found) == len(set(found)) > 1


def test_one_type_of_nodes_and_edges():
    x = {"paper": torch.randn(20, WIDTH, requires_grad=True)}
    compare(make(metadata=(["paper"], [TYPES[1]])), x, {TYPES[1]: torch.randint(20, (2, 90))})


def test_widths_of_each_type(edges):
    layer = make(in_channels={name: WIDTH + place for place, name in enumerate(NODES)})
    x = {
        name: torch.randn(count, WIDTH + place, requires_grad=True)
        for place, (name, count) in enumerate(NODES.items())
    }
    compare(layer, x, edges)


def test_types_that_are_missing_from_a_call(layer, x, edges):
    """PyG too takes a part of the types, in the order of the layer's."""
    del x["lone"], x["venue"], edges[TYPES[4]], edges[TYPES[1]]
    compare(layer, dict(reversed(x.items())), edges)


def test_a_type_without_nodes(layer, x, edges):
    x["venue"] = torch.empty(0, WIDTH, requires_grad=True)
    compare(layer, x, edges)


CHANGES: dict[str, Callable[[Any, Any], object]] = {
    "parameters": lambda layer, edges: [each.data.mul_(1.5) for each in layer.parameters()],
    "in place": lambda layer, edges: edges[TYPES[1]][1, :50].fill_(7),
    "data": lambda layer, edges: edges[TYPES[1]].data[1, :50].fill_(7),
    "another tensor": lambda layer, edges: edges.update({TYPES[1]: edges[TYPES[1]].flip(1).roll(3, 1)}),
    "exchanged": lambda layer, edges: edges.update({TYPES[1]: edges[TYPES[2]], TYPES[2]: edges[TYPES[1]]}),
    "one type less": lambda layer, edges: edges.pop(TYPES[0]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_noticed(change, layer, x, edges):
    same_after(lambda: results(layer, x, edges), lambda: CHANGES[change](layer, edges))


def test_two_dicts_with_a_common_tensor_take_turns(layer, x, edges):
    other = {**edges, TYPES[1]: edges[TYPES[1]].roll(1, 1)[:, :50]}
    same(lambda: [results(layer, x, each) for each in (edges, other)])


def test_nothing_has_a_row_for_each_edge(layer, x):
    """What autograd keeps is as large as the rows of relations, however many the edges."""
    edges = {TYPES[1]: torch.randint(20, (2, 5000))}
    with saved_sizes() as sizes:
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
    compare(_OwnForward(WIDTH, OUT, METADATA, heads=HEADS), x, edges)


def _halving(layer: Any, inputs: Any, out: Any) -> Any:
    return {name: each / 2 for name, each in out.items()} if isinstance(out, dict) else out / 2


@pytest.mark.parametrize(
    "name", ["k_rel", "v_rel", "kqv_lin", "kqv_lin.lins.paper", "aggr_module", "out_lin"]
)
def test_hooks_are_called(name, layer, x, edges):
    layer.get_submodule(name).register_forward_hook(_halving)
    compare(layer, x, edges, ours=name == "out_lin")


@pytest.mark.parametrize("what", ["rows", "message hook", "dtypes", "left out", "backend"])
def test_what_is_left_to_pyg(what, layer, x, edges):
    options: dict[str, Any] = {"left out": {"only": ["GCNConv"]}, "backend": {"backend": "reference"}}
    if what == "rows":
        layer = _OwnRows(WIDTH, OUT, METADATA, heads=HEADS)
    elif what == "message hook":
        layer.register_message_forward_hook(lambda layer, inputs, out: out / 2)
    elif what == "dtypes":
        layer.p_rel["__".join(TYPES[0])].data = torch.ones(1, HEADS, dtype=torch.float32)
    compare(layer, x, edges, ours=False, **options.get(what, {}))


def test_lazy_parameters(x, edges):
    same(lambda: HGTConv(-1, OUT, METADATA, heads=HEADS)(x, edges))


@pytest.mark.parametrize("wrong", ["missing nodes", "unknown type", "width", "range"])
def test_errors_are_those_of_pyg(wrong, layer, x, edges):
    if wrong == "missing nodes":
        del x["author"]
    elif wrong == "unknown type":
        edges["author", "likes", "paper"] = edges[TYPES[0]]
    elif wrong == "width":
        x["author"] = torch.randn(14, WIDTH + 1)
    else:
        edges[TYPES[1]][0, 5] = 10_000
    same_error(lambda: layer(x, edges))


# Groups of relations


@pytest.fixture(params=[1, 45], ids="{} rows".format)
def grouped(request, bounds):
    """A layer, with groups of one relation each, or of one to two."""
    bounds(few_edges=0, few_work=0, rows_a_node=0, block_edges=request.param)
    return make()


def test_outputs_and_gradients_in_groups(grouped, x, edges):
    compare(grouped, x, edges, hgt._GROUPED)
    del edges[TYPES[1]]
    compare(grouped, x, edges, hgt._GROUPED)


@pytest.mark.parametrize("heads", [1, 8])
def test_other_heads_in_groups(heads, bounds, x, edges):
    bounds(few_edges=0, few_work=0, rows_a_node=0, block_edges=1)
    compare(make(heads=heads), x, edges, hgt._GROUPED)


def test_features_without_gradients_in_groups(grouped, x, edges):
    x = {name: each.detach() for name, each in x.items()}
    for each in (grouped.k_rel.weight, *grouped.p_rel.values()):
        each.requires_grad_(False)

    def run() -> list[Any]:
        with torch.no_grad():
            plain = grouped(x, edges)["paper"]
        with torch.inference_mode():
            inferred = grouped(x, edges)["paper"].clone()
        return [plain, inferred, *results(grouped, x, edges)]

    same(run)


def test_second_derivatives_in_groups(grouped, x, edges):
    same(lambda: twice(grouped(x, edges)["paper"], x, grouped), rtol=1e-7, atol=1e-8)


def test_batched_gradients_in_groups(grouped, x, edges):
    pulled, wanted = torch.randn(3, NODES["paper"], OUT), [x["author"], grouped.k_rel.weight]
    out = grouped(x, edges)["paper"]
    singly = [torch.autograd.grad(out, wanted, each, retain_graph=True) for each in pulled]
    with onehop.patch():
        found = torch.autograd.grad(grouped(x, edges)["paper"], wanted, pulled, is_grads_batched=True)
    assert_same(list(found), [torch.stack(each) for each in zip(*singly, strict=True)])


def test_rows_of_relations_are_not_kept(bounds):
    """What autograd keeps is as large as nodes, or as numbers of edges and heads."""
    bounds(few_edges=0, few_work=0, rows_a_node=1)
    kinds = [("paper", f"relation {number}", "paper") for number in range(6)]
    layer = make(metadata=(["paper"], kinds))
    x = {"paper": torch.randn(100, WIDTH, requires_grad=True)}
    with onehop.patch(), saved_sizes() as sizes:
        layer(x, {kind: torch.randint(100, (2, 40)) for kind in kinds})
    assert max(sizes) <= 100 * 3 * OUT
    assert 240 * HEADS in sizes


# Products by type


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("types", ["sorted", "unsorted", "one", "none"])
@pytest.mark.usefixtures("ordinary_bounds")  # another library rounds otherwise
def test_products_by_type_are_those_of_pyg(types, bias):
    layer = HeteroLinear(WIDTH, OUT, 9, bias=bias)
    rows = 0 if types == "none" else 40
    of_rows = torch.full((rows,), 3) if types == "one" else torch.randint(4, (rows,))
    if types == "sorted":
        of_rows = of_rows.sort().values
    x = torch.randn(rows, WIDTH, requires_grad=True)
    same(lambda: learned(layer(x, of_rows), x, layer), **BITS)


def test_products_are_put_together_once():
    """PyG's graph has a node for each type's write."""
    layer, x = HeteroLinear(WIDTH, OUT, 9, bias=False), torch.randn(40, WIDTH, requires_grad=True)
    of_rows = torch.randint(5, (40,)).sort().values
    assert "CopySlices" in type(layer(x, of_rows).grad_fn).__name__
    with onehop.patch():
        assert "Recomputed" in type(layer(x, of_rows).grad_fn).__name__


def test_second_derivatives_of_products():
    layer, x = HeteroLinear(WIDTH, OUT, 9), torch.randn(40, WIDTH, requires_grad=True)
    of_rows = torch.randint(4, (40,)).sort().values
    with onehop.patch():
        assert torch.autograd.gradgradcheck(lambda x, *_: layer(x, of_rows).pow(2), (x, layer.weight))


@pytest.mark.parametrize("options", [{"only": ["GCNConv"]}, {}])
def test_products_that_are_left_to_pyg(options):
    layer, x = HeteroLinear(WIDTH, OUT, 9, bias=False), torch.randn(40, WIDTH, requires_grad=True)
    layer.weight.data = layer.weight.data if options else layer.weight.data.float()
    of_rows = torch.randint(5, (40,)).sort().values
    x = x if options else x.detach().bfloat16()
    with onehop.patch(**options):
        if options:
            assert "CopySlices" in type(layer(x, of_rows).grad_fn).__name__
        else:
            with pytest.raises(RuntimeError, match="dtype"):
                layer(x, of_rows)
