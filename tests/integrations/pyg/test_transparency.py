"""Everything that PyG and torch do with layers works as without the patch."""

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch
import torch_geometric
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.nn import MessagePassing

import onehop
from tests.integrations.same import SINGLE, assert_same, fast, refused


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = gnn.GCNConv(4, 8)
        self.second = gnn.SAGEConv(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


class Subclass(gnn.GCNConv):
    """Picklable by name."""


class Pair(torch.nn.Module):
    """Two layers, whose numbers of columns are found out."""

    def __init__(self, first: type[MessagePassing], second: type[MessagePassing], **options: object) -> None:
        super().__init__()
        self.first, self.second = first((-1, -1), 8, **options), second((-1, -1), 3, **options)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(20, 4, generator=torch.Generator().manual_seed(5))


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net()


def close(found: Tensor, expected: Tensor) -> None:
    assert_same(found, expected, **SINGLE)


# Copies


@pytest.mark.parametrize("copied", ["before the patch", "while patched"])
@pytest.mark.parametrize("how", ["pickle", "deepcopy", "copy", "torch.save"])
def test_copies_behave(how, copied, net, x, edge_index, took_fast_path):
    def duplicate(model: torch.nn.Module) -> torch.nn.Module:
        if how == "pickle":
            return pickle.loads(pickle.dumps(model))
        if how == "torch.save":
            buffer = io.BytesIO()
            torch.save(model, buffer)
            buffer.seek(0)
            return torch.load(buffer, weights_only=False)
        return copy.deepcopy(model) if how == "deepcopy" else copy.copy(model)

    expected = net(x, edge_index)
    if copied == "while patched":
        onehop.patch()
        net(x, edge_index)
    twin = duplicate(net)
    onehop.patch()
    close(twin(x, edge_index), expected)
    assert took_fast_path(twin, x, edge_index) == [None, None]
    onehop.unpatch()
    close(twin(x, edge_index), expected)
    assert took_fast_path(twin, x, edge_index) == []


def test_a_patched_models_pickle_loads_without_onehop(x, edge_index):
    onehop.patch()
    conv = Subclass(4, 4, cached=True)
    conv(x, edge_index)
    text = pickle.dumps(conv)
    assert b"onehop" not in text


def test_state_dicts_are_untouched(net, x, edge_index):
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    with onehop.patch():
        net(x, edge_index)
    assert net.state_dict().keys() == before.keys()


@pytest.mark.parametrize("kind", [gnn.SAGEConv, gnn.GATConv])
def test_data_parallel_replicas_use_their_own_parameters(kind, x, edge_index, took_fast_path):
    conv = kind(4, 4, bias=False)
    with onehop.patch():
        conv(x, edge_index)
        replica = conv._replicate_for_data_parallel()
        replica._parameters.update(conv._parameters)
        replica._modules.update(conv._modules)
        for name in ("lin_l", "lin_r") if kind is gnn.SAGEConv else ("lin",):
            replica._modules[name] = copy.deepcopy(getattr(conv, name))
            with torch.no_grad():
                replica._modules[name].weight.mul_(2)
        out = replica(x, edge_index)
        assert took_fast_path(replica, x, edge_index) == [None]
    for name in ("lin_l", "lin_r") if kind is gnn.SAGEConv else ("lin",):
        setattr(conv, name, replica._modules[name])
    close(out, conv(x, edge_index))


# Models made before, during and after


def test_models_made_before_and_during_a_patch(x, edge_index, took_fast_path):
    torch.manual_seed(0)
    before = Net()
    with onehop.patch():
        torch.manual_seed(0)
        during = Net()
        assert took_fast_path(before, x, edge_index) == [None, None]
        assert took_fast_path(during, x, edge_index) == [None, None]
        close(before(x, edge_index), during(x, edge_index))
    close(before(x, edge_index), during(x, edge_index))
    assert took_fast_path(during, x, edge_index) == []


def test_a_subclass_of_a_layer_that_was_used_before(x, edge_index, took_fast_path):
    with onehop.patch():
        gnn.GCNConv(4, 4)(x, edge_index)

        class Later(gnn.GCNConv):
            pass

        torch.manual_seed(0)
        conv = Later(4, 4)
        assert took_fast_path(conv, x, edge_index) == [None]
        found = conv(x, edge_index)
    close(conv(x, edge_index), found)


def test_the_rendered_functions_of_pyg_keep_their_names():
    gnn.GCNConv(4, 4)
    theirs = gnn.GCNConv.propagate
    with onehop.patch():
        ours = gnn.GCNConv.propagate
        assert ours is not theirs
        assert (ours.__module__, ours.__name__, ours.__qualname__) == (
            theirs.__module__,
            theirs.__name__,
            theirs.__qualname__,
        )
        # A second instance must not make PyG render anew.
        gnn.GCNConv(4, 4)
        assert gnn.GCNConv.propagate is ours
    assert gnn.GCNConv._orig_propagate is MessagePassing.propagate


# Explainers and hooks


def test_the_explain_switch_goes_round_the_fast_path_and_back(x, edge_index, took_fast_path):
    conv = gnn.SAGEConv(4, 4)
    expected = conv(x, edge_index)
    with onehop.patch():
        conv.explain = True
        conv._edge_mask = torch.full((90,), -50.0)
        conv._loop_mask = edge_index[0] != edge_index[1]
        close(conv(x, edge_index), conv.lin_l(torch.zeros(20, 4)) + conv.lin_r(x))
        conv.explain = None
        assert took_fast_path(conv, x, edge_index) == [None]
        close(conv(x, edge_index), expected)
    # The instance holds a bound function by now; it must be harmless once the patch is gone.
    close(conv(x, edge_index), expected)
    assert took_fast_path(conv, x, edge_index) == []


def test_an_explained_subclass_behaves_as_in_pyg(x, edge_index):
    """PyG gives such a class its parent's rendered function for explanations, which ignores the mask."""

    def masked(kind: type[gnn.SAGEConv]) -> Tensor:
        torch.manual_seed(0)
        conv = kind(4, 4)
        conv.explain = True
        conv._edge_mask = torch.full((90,), -50.0)
        conv._loop_mask = edge_index[0] != edge_index[1]
        return conv(x, edge_index)

    gnn.SAGEConv(4, 4)
    expected = masked(type("Unpatched", (gnn.SAGEConv,), {"__module__": __name__}))
    with onehop.patch():
        found = masked(type("Patched", (gnn.SAGEConv,), {"__module__": __name__}))
    close(found, expected)


@pytest.mark.parametrize(
    "register",
    [
        "register_propagate_forward_pre_hook",
        "register_propagate_forward_hook",
        "register_message_forward_pre_hook",
        "register_message_forward_hook",
        "register_aggregate_forward_pre_hook",
        "register_aggregate_forward_hook",
    ],
)
def test_message_passing_hooks_are_called(register, x, edge_index, took_fast_path):
    conv = gnn.SAGEConv(4, 4)
    seen: list[str] = []

    def hook(module: MessagePassing, inputs: tuple[object, ...], *output: Tensor) -> object:
        seen.append(register)
        # PyG's rendered code cannot take None from these two.
        return (
            inputs
            if register in ("register_message_forward_pre_hook", "register_aggregate_forward_pre_hook")
            else None
        )

    handle = getattr(conv, register)(hook)
    with onehop.patch():
        assert took_fast_path(conv, x, edge_index) == ["message passing hooks are registered on it"]
        assert seen == [register]
        handle.remove()
        assert took_fast_path(conv, x, edge_index) == [None]
    assert seen == [register]


def test_decomposed_layers(x, edge_index, took_fast_path):
    conv = gnn.GCNConv(4, 4, decomposed_layers=2)
    expected = conv(x, edge_index)
    with onehop.patch():
        close(conv(x, edge_index), expected)
        assert took_fast_path(conv, x, edge_index) == []


# Heterogeneous models

needs_tracing = pytest.mark.skipif(
    torch_geometric.__version__.startswith("2.6.") and not hasattr(torch.fx._symbolic_trace, "Union"),
    reason="to_hetero of PyG 2.6 does not work with this torch, patched or not",
)


@pytest.fixture
def hetero(
    edges: Callable[..., Tensor],
) -> tuple[object, dict[str, Tensor], dict[tuple[str, str, str], Tensor]]:
    metadata = (["a", "b"], [("a", "to", "b"), ("b", "to", "a"), ("a", "self", "a")])
    features = {"a": torch.randn(20, 4), "b": torch.randn(12, 4)}
    links = {
        ("a", "to", "b"): edges(20, 12, 50),
        ("b", "to", "a"): edges(12, 20, 40),
        ("a", "self", "a"): edges(20, 20, 30),
    }
    return metadata, features, links


def attending() -> Pair:
    return Pair(gnn.GATConv, gnn.GATv2Conv, add_self_loops=False)


@needs_tracing
@pytest.mark.parametrize("make", [lambda: Pair(gnn.SAGEConv, gnn.SAGEConv), attending])
def test_to_hetero(make, hetero):
    metadata, features, links = hetero
    torch.manual_seed(0)
    model = gnn.to_hetero(make(), metadata)
    model(features, links)  # which finds out numbers of columns
    assert len(fast(lambda: model(features, links), **SINGLE)) == 6


@needs_tracing
def test_to_hetero_with_bases(hetero):
    metadata, features, links = hetero

    class Bases(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = gnn.SAGEConv(4, 3)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv(x, edge_index)

    torch.manual_seed(0)
    model = gnn.to_hetero_with_bases(Bases(), metadata, num_bases=2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "basis" in name or "hetero" in name:
                parameter.copy_(torch.rand_like(parameter))
    refused(lambda: model(features, links), "message passing hooks are registered on it", **SINGLE)


def test_hetero_conv(hetero):
    _, features, links = hetero
    model = gnn.HeteroConv({key: gnn.SAGEConv((4, 4), 3) for key in links})
    assert len(fast(lambda: model(features, links), **SINGLE)) == 3


# Compilers and transforms


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("paused", [False, True], ids=["patched", "paused"])
def test_torch_jit_script(paused, net, x, edge_index):
    expected = net(x, edge_index)
    handle = onehop.patch()
    if paused:
        with handle.paused():
            scripted = torch.jit.script(net)
    else:
        scripted = torch.jit.script(net)
    close(scripted(x, edge_index), expected)
    handle.remove()
    close(scripted(x, edge_index), expected)


# TorchScript takes the overloads of gcn_norm and add_self_loops away when it first compiles one of them.
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_torch_jit_script_again(x, edge_index):
    def script_all() -> None:
        for layer in (gnn.GCNConv(4, 4), gnn.TAGConv(4, 4), gnn.SimpleConv("mean", "self_loop")):
            close(torch.jit.script(layer)(x, edge_index), layer(x, edge_index))

    for _ in range(2):
        with onehop.patch():
            script_all()
        script_all()


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("kind", [gnn.SAGEConv, gnn.GATConv, gnn.GATv2Conv, gnn.TransformerConv])
def test_torch_jit_trace(kind, x, edge_index):
    conv = kind(4, 4)
    expected = conv(x, edge_index)
    with onehop.patch():
        traced = torch.jit.trace(conv, (x, edge_index), check_trace=False)
    assert "onehop::" not in str(traced.inlined_graph)
    close(traced(x, edge_index), expected)


# The first use of forward mode loads a part of torch that scripts functions.
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_forward_mode(x, edge_index):
    conv = gnn.SAGEConv(4, 4)

    def tangent() -> Tensor:
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
            return torch.autograd.forward_ad.unpack_dual(conv(dual, edge_index)).tangent.clone()

    refused(tangent, "forward-mode differentiation is at work", **SINGLE)


def test_dispatch_modes_see_pygs_operations(x, edge_index):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Listening(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    conv = gnn.SAGEConv(4, 4)
    heard: list[list[str]] = []
    for patched in (False, True):
        seen: list[str] = []
        if patched:
            onehop.patch()
        with Listening():
            conv(x, edge_index)
        heard.append(seen)
    assert heard[0] == heard[1]
