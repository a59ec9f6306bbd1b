"""A bipartite GATConv makes the scores of its destinations without their product with ``lin_dst``."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import GATConv

import onehop
from onehop.compiler import trusted
from onehop.integrations.pyg.associations import order
from onehop.integrations.torch import products as products_of_steps
from tests.integrations.same import assert_same, learned, noted, same, same_error

SOURCES, TARGETS, IN, OUT, HEADS = 20, 12, 4, 3, 2
OF_TARGETS = (TARGETS, HEADS * OUT)

pytestmark = pytest.mark.usefixtures("in_doubles")

Pair = tuple[Any, Any]


@pytest.fixture
def x() -> tuple[Tensor, Tensor]:
    return torch.randn(SOURCES, IN).requires_grad_(), torch.randn(TARGETS, IN + 1).requires_grad_()


@pytest.fixture
def across(edges) -> Tensor:
    """[2, 40], from sources to destinations."""
    found: Tensor = edges(SOURCES, TARGETS, 40)
    return found.clamp(max=torch.tensor([[SOURCES - 1], [TARGETS - 1]]))


@pytest.fixture
def products(monkeypatch) -> list[tuple[int, ...]]:
    """The shapes of what linear steps of layers have made since."""
    trusted._of_torch()  # lists torch's functions once in a process: not while one is replaced
    linear = torch.nn.functional.linear
    shapes = noted(monkeypatch, torch.nn.functional, "linear", lambda *args: tuple(linear(*args).shape))
    # What notes passes for torch's function.
    for module in (order, products_of_steps):
        monkeypatch.setattr(module, "THEIRS", torch.nn.functional.linear)
    return shapes


def made(**options: Any) -> GATConv:
    return GATConv((IN, IN + 1), OUT, heads=HEADS, **{"add_self_loops": False, **options})


def results(layer: Any, x: Pair, *args: Any, **kwargs: Any) -> list[Any]:
    """The output and the gradients to the features and all parameters; none counts as zeros."""
    out = layer(x, *args, **kwargs)
    out, *grads = learned(out[0] if isinstance(out, tuple) else out, x, layer)
    return [out, *(each for each in grads if each is not None and each.any())]


def compare(run: Callable[[], Any], products: list[tuple[int, ...]], ours: bool = True, **more: Any) -> None:
    """A function gives PyG's results, without the product of the destinations, or with it."""
    same(run, **{"rtol": 1e-10, "atol": 1e-12, **more})
    products.clear()
    options = {name: value for name, value in more.items() if name not in ("rtol", "atol")}
    with onehop.patch(**options):
        run()
    assert (OF_TARGETS not in products) is ours


SERVED: dict[str, dict[str, Any]] = {
    "plain": {},
    "self loops": {"add_self_loops": True},
    "mean over heads": {"concat": False},
    "without bias": {"bias": False},
    "dropout": {"dropout": 0.4},
}


@pytest.mark.parametrize("name", SERVED)
def test_outputs_and_gradients(name, x, across, products):
    layer = made(**SERVED[name])
    compare(lambda: results(layer, x, across), products)
    assert layer.lin_dst.weight.grad is None


@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize("size", [None, (SOURCES, TARGETS)])
def test_features_of_edges_and_sizes(size, by_name, x, across, products):
    layer, features = made(edge_dim=2), torch.randn(across.size(1), 2)
    given = {"edge_attr": features, "size": size} if by_name else {}
    args = (across,) if by_name else (across, features, size)
    compare(lambda: results(layer, x, *args, **given), products)


def test_features_that_are_both_and_hooks_on_the_scores(across, products):
    x, layer, seen = torch.randn(SOURCES, IN).requires_grad_(), GATConv((IN, IN), OUT, heads=HEADS), []
    layer.register_edge_update_forward_pre_hook(lambda _, inputs: seen.append(inputs[-1]["alpha_i"].detach()))
    same(lambda: results(layer, (x, x), across))
    assert_same(seen, [seen[0]] * 4)
    products.clear()
    with onehop.patch():
        layer((x, x), across)
    assert products == [(SOURCES, HEADS * OUT)]


def test_one_weight_for_both_ends(across, products):
    layer = GATConv((IN, IN), OUT, heads=HEADS, add_self_loops=False)
    layer.lin_dst.weight = layer.lin_src.weight
    x = torch.randn(SOURCES, IN).requires_grad_(), torch.randn(TARGETS, IN)
    compare(lambda: results(layer, x, across), products)


@pytest.mark.parametrize("frozen", ["lin_dst.weight", "att_dst"])
def test_parameters_without_gradients(frozen, x, across):
    layer = made()
    layer.get_parameter(frozen).requires_grad_(False)
    same(lambda: results(layer, x, across))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(mode, x, across, products):
    layer = made().eval()
    compare(mode()(lambda: layer(x, across)), products)


def _hooked(layer: GATConv) -> GATConv:
    layer.lin_dst.register_forward_hook(lambda *_: None)
    return layer


def _normalised(layer: GATConv) -> GATConv:
    parametrizations.weight_norm(layer.lin_dst)
    return layer


def _one_module(layer: GATConv) -> GATConv:
    layer.lin_src = layer.lin_dst = GATConv((IN, IN), OUT, heads=HEADS).lin_src
    return layer


def _with_bias(layer: GATConv) -> GATConv:
    layer.lin_dst.bias = torch.nn.Parameter(torch.randn(HEADS * OUT))
    return layer


class _Named(GATConv):
    def message(self, x_i: Tensor, x_j: Tensor, alpha: Tensor) -> Tensor:
        return alpha.unsqueeze(-1) * (x_i + x_j)


class _Scored(GATConv):
    def edge_update(self, alpha_j: Tensor, alpha_i: Tensor) -> Tensor:
        return (alpha_j * alpha_i).tanh()


def _infinite(x: Pair) -> Pair:
    target = x[1].detach().clone()
    target[2, 1] = float("inf")
    return x[0], target


LEFT: dict[str, tuple[Callable[[], GATConv], Callable[[Pair], Pair]]] = {
    "a hook": (lambda: _hooked(made()), lambda x: x),
    "a parametrisation": (lambda: _normalised(made()), lambda x: x),
    "a bias": (lambda: _with_bias(made()), lambda x: x),
    "a residual": (lambda: made(residual=True), lambda x: x),
    "one module for both": (lambda: _one_module(made()), lambda x: (x[0], x[1][:, :IN])),
    "a layer for one kind": (lambda: GATConv(IN, OUT, HEADS), lambda x: (x[0], x[1][:, :IN])),
    "infinite": (made, _infinite),
    "its own message": (lambda: _Named((IN, IN + 1), OUT, HEADS, add_self_loops=False), lambda x: x),
    "its own scores": (lambda: _Scored((IN, IN + 1), OUT, HEADS, add_self_loops=False), lambda x: x),
    "16 bits": (lambda: made().bfloat16(), lambda x: (x[0].bfloat16(), x[1].bfloat16())),
}


@pytest.mark.parametrize("name", LEFT)
def test_layers_and_features_left_to_pyg(name, x, across, products):
    make, change = LEFT[name]
    layer, x = make(), change(x)
    tolerance = 0.1 if name == "16 bits" else 1e-10
    compare(lambda: results(layer, x, across), products, ours=False, rtol=tolerance, atol=tolerance)


def _asked(layer: GATConv, x: Pair, at: Tensor) -> list[Any]:
    return results(layer, x, at, return_attention_weights=True)


def _autocast(layer: GATConv, x: Pair, at: Tensor) -> list[Any]:
    with torch.autocast("cpu", torch.bfloat16):
        return results(layer.float(), tuple(each.detach().float().requires_grad_() for each in x), at)


def _checkpointed(layer: GATConv, x: Pair, at: Tensor) -> list[Any]:
    out, *grads = learned(checkpoint(layer, x, at, use_reentrant=False), x)
    return [out, *grads]


def _explained(layer: GATConv, x: Pair, at: Tensor) -> list[Any]:
    layer.explain = True
    layer._edge_mask, layer._loop_mask = torch.ones(at.size(1)), None
    layer._apply_sigmoid = False
    return results(layer, x, at)


@pytest.mark.parametrize("call", [_asked, _autocast, _checkpointed, _explained])
def test_calls_left_to_pyg(call, x, across, products):
    layer = made()
    tolerance = 0.1 if call is _autocast else 1e-10
    compare(lambda: call(layer, x, across), products, ours=False, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("options", [{"only": ["GCNConv"]}, {"associate": False}, {"backend": "reference"}])
def test_patches_that_leave_it_to_pyg(options, x, across, products):
    layer = made()
    compare(lambda: layer(x, across), products, ours=False, **options)


def test_a_lazy_layer(x, across, products):
    layer = GATConv((-1, -1), OUT, heads=HEADS, add_self_loops=False)
    with onehop.patch():
        layer(x, across)
        assert OF_TARGETS in products
    compare(lambda: layer(x, across), products)


@pytest.mark.parametrize("wrong", ["range", "size", "columns", "twice", "nothing"])
def test_errors_are_those_of_pyg(wrong, x, across):
    layer, args, given = made(), [x, across], {}
    if wrong == "range":
        across[1, 3] = TARGETS
    elif wrong == "size":
        given["size"] = (SOURCES, TARGETS + 1)
    elif wrong == "columns":
        args[0] = x[0], x[0]
    elif wrong == "twice":
        given["edge_index"] = across
    else:
        args.pop()
    same_error(lambda: layer(*args, **given))
