"""Layers for which PyG renders no ``propagate``, and which run the plain ``MessagePassing.propagate``."""

import contextlib
import copy
import functools
import gc
import inspect
import pickle
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import leaky_relu
from torch_geometric import EdgeIndex, nn as gnn
from torch_geometric.nn import MessagePassing
from torch_geometric.typing import OptTensor
from torch_geometric.utils import scatter, softmax, spmm

import onehop
from onehop.integrations.pyg.hook import layer_classes
from onehop.thresholds import lifted
from tests.integrations.pyg.adjacencies import WARNINGS, matrix, outcome
from tests.processes import run_python

pytestmark = [pytest.mark.filterwarnings(each) for each in WARNINGS]

NODES, WIDTH = 20, 6
THEIRS = MessagePassing.propagate
OWN_UPDATER = MessagePassing.edge_updater


class Attending(MessagePassing):
    """GATv2 by hand: PyG renders for no ``ptr`` without an annotation."""

    def __init__(self) -> None:
        super().__init__(aggr="sum", node_dim=0)
        self.att = Parameter(torch.linspace(-1, 1, WIDTH).view(1, 2, 3))

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x.view(-1, 2, 3)).flatten(1)

    def message(self, x_j, x_i, index, ptr, size_i):
        score = (leaky_relu(x_i + x_j, 0.2) * self.att).sum(-1)
        return x_j * softmax(score, index, ptr, size_i).unsqueeze(-1)


def attending() -> type:
    class Local(Attending):
        def message(self, x_j, x_i, index, ptr, size_i):
            return super().message(x_j, x_i, index, ptr, size_i).tanh()

    return Local


def executed(body: str, base: str = "MessagePassing") -> Callable[[], type]:
    """A function that makes a class from text, as a notebook or ``python -c`` does."""

    def make() -> type:
        names = {
            "torch": torch,
            "MessagePassing": MessagePassing,
            "gnn": gnn,
            "scatter": scatter,
            "__name__": "__main__",
        }
        forward = "" if "def forward" in body else "def forward(self, x, e): return self.propagate(e, x=x)"
        exec(f"class Executed({base}):\n    {forward}\n    {body}", names)
        return names["Executed"]  # type: ignore[return-value]

    return make


def powered(power: int) -> type:
    """A class of one name, whose message is another one for each number."""

    class Powered(MessagePassing):
        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x)

        def message(self, x_i, x_j, ptr):
            return x_j**power + x_i

    return Powered


def updating() -> type:
    class Updating(MessagePassing):
        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x)

        def message(self, x_j, ptr):
            return x_j.tanh()

        def update(self, inputs, x):
            return inputs * x + 1

    return Updating


def scoring() -> type:
    class Scoring(MessagePassing):
        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x, score=self.edge_updater(edge_index, x=x))

        def edge_update(self, x_i, x_j, ptr):
            return (x_i * x_j).sum(-1, keepdim=True).tanh()

        def message(self, x_j, score, ptr):
            return score * x_j

    return Scoring


def by_place() -> type:
    class ByPlace(MessagePassing):
        def forward(self, x, edge_index):
            return self.propagate(edge_index, (NODES, NODES), x=x)

        def message(self, x_i, x_j):
            return x_i * x_j

    return ByPlace


def further() -> type:
    class Further(MessagePassing):
        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x, **{"unused": 1})

    return Further


def doubling() -> type:
    class Doubling(MessagePassing):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x)

        def propagate(self, edge_index, **operands):
            self.calls += 1
            return 2 * super().propagate(edge_index, **operands)

        def message(self, x_i, x_j):
            return x_i * x_j

    return Doubling


# How each class is made: all run the plain propagate, and a fast path.
KINDS: dict[str, Callable[[], type]] = {
    "no annotations": lambda: Attending,
    "in a function, of a parent without annotations": attending,
    "exec": executed("def message(self, x_i, x_j): return torch.sigmoid(x_i) * x_j"),
    "exec, with the default message": executed(""),
    "exec, of a kind of exec": lambda: type(
        "Later", (executed("def message(self, x_j): return x_j.exp()")(),), {}
    ),
    "a factory": lambda: powered(2),
    "its own update": updating,
    "an edge_updater": scoring,
    "size by place": by_place,
    "further operands": further,
    "its own propagate, which calls the plain one": doubling,
}
# Those that are left to PyG, with the sentence.
LEFT = {
    "its own aggregate": (
        executed("def aggregate(self, inputs, index): return scatter(inputs, index, 0, len(index)).cos()"),
        "its class overrides aggregate",
    ),
    "its own _collect": (
        executed("def _collect(self, *args): return super()._collect(*args)"),
        "its class overrides _collect",
    ),
    "its own _lift": (
        executed("def _lift(self, src, *args): return super(type(self), self)._lift(src * 2, *args)"),
        "its class overrides _lift",
    ),
    "a propagate of its own": (
        executed("def propagate(self, edge_index, x): return x[edge_index[0]]"),
        "its class has a propagate of its own",
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _as_before():
    with lifted():
        yield
    onehop.unpatch()
    assert MessagePassing.propagate is THEIRS
    assert MessagePassing.edge_updater is OWN_UPDATER


@pytest.fixture
def x() -> Tensor:
    return torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(1))


def numbers(layer: Any, x: Tensor, *edges: Any) -> list[Tensor]:
    """What a layer gives out, its gradients, and those of the gradients' squares."""
    x = x.double().requires_grad_()
    layer = layer.double()
    leaves = [x, *layer.parameters()]
    out = layer(x, *edges)
    first = torch.autograd.grad(out.square().sum(), leaves, create_graph=True)
    second = torch.autograd.grad(sum(each.square().sum() for each in first), leaves)
    return [out, *first, *second]


def close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def reasons(layer: Any, *inputs: Any) -> list[str | None]:
    return [row.reason for row in onehop.explain(layer, *inputs).layers]


@pytest.mark.parametrize("patched", ["before the class", "before the layer", "before the call"])
@pytest.mark.parametrize("name", KINDS)
def test_layers_are_served(name, patched, x, edge_index):
    make = KINDS[name]
    expected = numbers(make()(), x, edge_index)
    with contextlib.ExitStack() as stack:
        if patched == "before the class":
            stack.enter_context(onehop.patch())
        kind = make()
        if patched == "before the layer":
            stack.enter_context(onehop.patch())
        layer = kind()
        if patched == "before the call":
            stack.enter_context(onehop.patch())
        assert "propagate" not in vars(kind) or name.startswith("its own propagate")
        for _ in range(2):
            close(numbers(layer, x, edge_index), expected)
        assert set(reasons(layer, x.double(), edge_index)) == {None}
        again = [copy.copy(layer), copy.deepcopy(layer)]
    close(numbers(layer, x, edge_index), expected)
    for other in again:
        close(numbers(other, x, edge_index), expected)


@pytest.mark.parametrize("name", LEFT)
def test_layers_that_are_left_to_pyg_have_their_sentence(name, x, edge_index):
    make, sentence = LEFT[name]
    layer = make()()
    expected = layer(x, edge_index)
    with onehop.patch():
        close(layer(x, edge_index), expected)
        assert reasons(layer, x, edge_index) == [sentence]


def test_a_class_of_python_c(tmp_path):
    program = """
import torch, onehop
from torch_geometric.nn import GATConv, MessagePassing
class Mine(MessagePassing):
    def forward(self, x, edge_index): return self.propagate(edge_index, x=x)
    def message(self, x_i: torch.Tensor, x_j: torch.Tensor): return x_i.tanh() * x_j
class OfPyg(GATConv):  # which was never rendered either
    pass
x, edge_index = torch.randn(9, 4), torch.randint(9, (2, 40))
for layer, more in (Mine(), {}), (OfPyg(4, 3), {}), (OfPyg(4, 3), {"return_attention_weights": True}):
    expected = layer(x, edge_index, **more)
    with onehop.thresholds.lifted(), onehop.patch():
        torch.testing.assert_close(layer(x, edge_index, **more), expected)
        plain = type(layer).propagate is MessagePassing.propagate
        print(plain, onehop.explain(layer, x, edge_index, **more).layers[0].path)
"""
    # As with python -c, there is no file, and no source.
    script = tmp_path / "script.py"
    script.write_text(f"del __file__\nexec(compile({program!r}, '<string>', 'exec'))\n")
    done = run_python([script])
    assert done.stdout.split() == ["True", "fast"] * 3, done.stdout + done.stderr


# Classes of one name


def test_classes_of_a_factory_have_nothing_of_each_other(x, edge_index):
    kinds = [powered(power) for power in (1, 2, 3)]
    expected = [numbers(kind(), x, edge_index) for kind in kinds]
    with onehop.patch():
        layers = [kind() for kind in (*kinds, powered(2))]
        for _ in range(2):
            for layer, numbers_of_pyg in zip(layers, [*expected, expected[1]], strict=True):
                close(numbers(layer, x, edge_index), numbers_of_pyg)
                assert reasons(layer, x.double(), edge_index) == [None]


def rendered(form: str) -> type:
    """Classes for which PyG renders; once, for they have one name."""
    if form == "first":

        class Shared(MessagePassing):
            def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
                return self.propagate(edge_index, x=x)

            def message(self, x_j: Tensor, factor: float = 2.0) -> Tensor:
                return x_j * factor

    elif form == "same arguments":

        class Shared(MessagePassing):  # type: ignore[no-redef]
            def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
                return self.propagate(edge_index, x=x)

            def message(self, x_j: Tensor, factor: float = 2.0) -> Tensor:
                return x_j.exp() * factor

    elif form == "another default":

        class Shared(MessagePassing):  # type: ignore[no-redef]
            def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
                return self.propagate(edge_index, x=x)

            def message(self, x_j: Tensor, factor: float = 3.0) -> Tensor:
                return x_j * factor

    elif form == "another argument":

        class Shared(MessagePassing):  # type: ignore[no-redef]
            def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
                return self.propagate(edge_index, x=x)

            def message(self, x_j: Tensor, factor: float = 2.0, x_i: OptTensor = None) -> Tensor:
                return x_j * factor if x_i is None else x_i

    else:

        class Shared(MessagePassing):  # type: ignore[no-redef]
            def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
                return self.propagate(edge_index, x=x, y=x)

            def message(self, x_j: Tensor, factor: float = 2.0) -> Tensor:
                return x_j * factor

    return Shared


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ("first", None),
        ("same arguments", None),
        ("another default", "PyG rendered the propagate that it runs for functions with other arguments"),
        ("another argument", "PyG rendered the propagate that it runs for functions with other arguments"),
        ("another operand", "PyG is left to report what does not fit"),
    ],
)
def test_what_pyg_rendered_for_another_class_of_the_name_passes_that_ones_arguments(
    form, sentence, x, edge_index, took_fast_path
):
    rendered("first")()
    layer = rendered(form)()
    assert type(layer).propagate.__module__.endswith("_Shared_propagate")
    expected = outcome(lambda: layer(x, edge_index))
    with onehop.patch():
        for _ in range(2):
            found = outcome(lambda: layer(x, edge_index))
            assert type(found) is type(expected)
            assert found == expected if isinstance(found, tuple) else torch.allclose(found, expected)
        assert took_fast_path(outcome, lambda: layer(x, edge_index)) == [sentence]


def test_no_class_is_held():
    x, edge_index = torch.randn(NODES, WIDTH), torch.randint(NODES, (2, 90))

    def kinds() -> list[weakref.ref[type]]:
        made = [attending(), powered(2), KINDS["exec"](), executed("", "gnn.SAGEConv")()]
        for kind in made:
            layer = kind(WIDTH, 3) if issubclass(kind, gnn.SAGEConv) else kind()
            layer(x, edge_index)
        return [weakref.ref(kind) for kind in made]

    with onehop.patch():
        references = kinds()
        gc.collect()
        assert [each() for each in references] == [None] * 4


def test_a_function_of_a_class_that_is_replaced_counts_from_then_on(x, edge_index):
    kind = powered(2)
    layer = kind()
    with onehop.patch():
        layer(x, edge_index)
        for name, function, sentence in (
            ("message", lambda self, x_i, x_j, ptr: x_j.cos() * x_i, None),
            (
                "_collect",
                lambda self, *args: MessagePassing._collect(self, *args),
                "its class overrides _collect",
            ),
        ):
            function.__name__ = name
            setattr(kind, name, function)
            found = layer(x, edge_index)
            assert reasons(layer, x, edge_index) == [sentence]
            with onehop.patch().paused():
                torch.testing.assert_close(found, layer(x, edge_index))


# Kinds of edges, and what only the plain one does


class Weighted(MessagePassing):
    def forward(self, x, edge_index, weight=None, **more):
        return self.propagate(edge_index, x=x, edge_weight=weight, **more)

    def message(self, x_i, x_j, edge_weight, ptr):
        return x_i * x_j if edge_weight is None else edge_weight.view(-1, 1) * x_i.tanh() * x_j


class Featured(MessagePassing):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x, edge_weight=None, edge_attr=None)

    def message(self, x_j, edge_weight, edge_attr, ptr):
        out = x_j if edge_weight is None else x_j * edge_weight.view(-1, 1)
        return out if edge_attr is None else out * edge_attr.view(-1, 1)


class Fused(MessagePassing):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_j, ptr):
        return x_j.tanh()

    def message_and_aggregate(self, adj_t, x):
        return spmm(adj_t, x.tanh(), reduce=self.aggr) * 3


class Transposed(MessagePassing):
    """A pair of features, the second of which the plain one sends along edges of the other direction."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=(x, 2 * x), size=None)

    def message(self, x_i, x_j, ptr):
        return x_i.cos() * x_j


OF_EDGES = {
    "a tensor": lambda at, values: at.flip(0),
    "coo": lambda at, values: matrix("coo", at, values),
    "csr": lambda at, values: matrix("csr", at, values),
    "csc": lambda at, values: matrix("csc", at, values),
    "EdgeIndex": lambda at, values: EdgeIndex(at.flip(0).contiguous(), sparse_size=(NODES, NODES)),
    "sorted EdgeIndex": lambda at, values: EdgeIndex(
        at.flip(0).contiguous(), sparse_size=(NODES, NODES), sort_order="col"
    ),
}
EDGES_OF = {
    "weighted": (Weighted, {"a tensor", "coo"}),
    "featured": (Featured, {"a tensor"}),
    "fused": (lambda: Fused, {"a tensor"}),
    "transposed": (lambda: Transposed(flow="target_to_source"), set()),
    "attending": (Attending, {"a tensor", "coo"}),
    "exec of GATConv": (lambda: executed("", "gnn.GATConv")()(WIDTH, 4, add_self_loops=False), None),
    "exec of GCNConv": (lambda: executed("", "gnn.GCNConv")()(WIDTH, 4), None),
    "default message": (executed(""), None),
}


@pytest.mark.parametrize("edges", OF_EDGES)
@pytest.mark.parametrize("name", EDGES_OF)
def test_edges(name, edges, x, at, values):
    make, served = EDGES_OF[name]
    made = make()
    torch.manual_seed(0)
    layer = made() if isinstance(made, type) else made
    x = x.double().requires_grad_()
    layer = layer.double()

    def run() -> list[Tensor]:
        given = OF_EDGES[edges](at, values)
        out = layer(x, given)
        # The plain one writes to a COO matrix, and then torch differentiates nothing.
        leaves = [] if edges == "coo" else [x, *layer.parameters()]
        return [out, *(torch.autograd.grad(out.square().sum(), leaves) if leaves else [])]

    expected = outcome(run)
    with onehop.patch():
        for _ in range(2):
            found = outcome(run)
            assert found == expected if isinstance(expected, tuple) else close(found, expected) is None
        if not isinstance(expected, tuple) and served is not None:
            (reason,) = reasons(layer, x, OF_EDGES[edges](at, values))
            assert (reason is None) == (edges in served), reason


def test_a_default_that_the_plain_one_does_not_pass_is_pygs_error(x, edge_index):
    class Default(MessagePassing):
        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x)

        def message(self, x_j, ptr, factor=2.0):
            return x_j * factor

    layer = Default()
    expected = outcome(lambda: layer(x, edge_index))
    assert expected[0] is TypeError
    with onehop.patch():
        assert outcome(lambda: layer(x, edge_index)) == expected


# Hooks, explainers, programs


@pytest.mark.parametrize(
    "register",
    [
        "register_propagate_forward_pre_hook",
        "register_propagate_forward_hook",
        "register_message_forward_hook",
        "register_aggregate_forward_pre_hook",
    ],
)
@pytest.mark.parametrize("make", [attending, doubling])
def test_hooks_run_once(make, register, x, edge_index):
    layer, calls = make()(), []
    expected = layer(x, edge_index)
    handle = getattr(layer, register)(lambda *args: calls.append(args))
    with onehop.patch():
        close(layer(x, edge_index), expected)
        assert len(calls) == 1
        assert reasons(layer, x, edge_index) == ["message passing hooks are registered on it"]
        handle.remove()
        assert reasons(layer, x, edge_index) == [None]
    if make is doubling:
        assert layer.calls == 2


@pytest.mark.parametrize("patched", ["before the class", "before the call"])
@pytest.mark.parametrize("make", [attending, doubling])
def test_explainers(make, patched, x, edge_index):
    def explained(layer: Any) -> Tensor:
        layer.explain = True
        layer._edge_mask = torch.linspace(-1, 1, edge_index.size(1))
        layer._loop_mask = edge_index[0] != edge_index[1]
        out = layer(x, edge_index)
        layer.explain = None
        return out

    plain = make()()
    masked, ordinary = explained(plain), plain(x, edge_index)
    with onehop.patch():
        layer = make()() if patched == "before the class" else plain
        close(explained(layer), masked)
        torch.testing.assert_close(layer(x, edge_index), ordinary)
        layer.explain = True
        assert len(reasons(layer, x, edge_index)) == 1
    close(explained(plain), masked)


def test_decomposed_layers(x, edge_index):
    make = executed("def message(self, x_i, x_j): return x_i * x_j")
    expected = make()()(x, edge_index)
    with onehop.patch():
        layer = make()(decomposed_layers=2)
        torch.testing.assert_close(layer(x, edge_index), expected)
        assert None not in reasons(layer, x, edge_index)


def test_an_instance_that_gathers_otherwise_is_left_to_pyg(x, edge_index):
    layer = attending()()
    layer._lift = lambda src, *args: 2 * MessagePassing._lift(layer, src, *args)
    expected = layer(x, edge_index)
    with onehop.patch():
        close(layer(x, edge_index), expected)
        assert reasons(layer, x, edge_index) == ["this instance overrides _lift"]


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    ("make", "served"), [(executed(""), True), (attending, False), (LEFT["its own _lift"][0], False)]
)
def test_compiled_programs(make, served, x, edge_index):
    layer = make()()
    expected = layer(x, edge_index)
    torch._dynamo.reset()
    with onehop.patch():
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x, edge_index), expected)
        (reason,) = reasons(compiled, x, edge_index)
        assert (reason is None) == served
    torch._dynamo.reset()


def test_layers_of_a_module_are_pickled(x, edge_index):
    layer = Attending()
    expected = layer(x, edge_index)
    with onehop.patch():
        layer(x, edge_index)
        written = pickle.dumps(layer)
        torch.testing.assert_close(pickle.loads(written)(x, edge_index), expected)
    close(pickle.loads(written)(x, edge_index), expected)


# Who else replaces functions


def test_a_decoration_of_ours_is_somebody_elses(x, edge_index):
    with onehop.patch():

        class Decorating(gnn.GATConv):
            @functools.wraps(gnn.GATConv.propagate)
            def propagate(self, edge_index: Tensor, **operands: Any) -> Tensor:
                assert all(isinstance(each, Tensor | tuple | None) for each in operands.values())
                return 2 * super().propagate(edge_index, **operands)

        torch.manual_seed(0)
        layer = Decorating(WIDTH, 3)
        own = Decorating.propagate
        found = layer(x, edge_index)
    assert Decorating.propagate is own
    torch.testing.assert_close(found, layer(x, edge_index))


@pytest.fixture
def counted() -> Iterator[Callable[[Callable[..., Any]], list[Any]]]:
    """Puts a decoration of a function in the place of the plain ``propagate``, and lists its layers."""

    def replace(theirs: Callable[..., Any]) -> list[Any]:
        calls: list[Any] = []

        @functools.wraps(theirs)
        def propagate(self: Any, *args: Any, **kwargs: Any) -> Any:
            calls.append(self)
            return theirs(self, *args, **kwargs)

        MessagePassing.propagate = propagate
        return calls

    yield replace
    MessagePassing.propagate = THEIRS


def test_what_others_put_over_ours_stays(x, edge_index, counted):
    layer = attending()()
    expected = layer(x, edge_index)
    with onehop.patch():
        ours = MessagePassing.propagate
        calls = counted(ours)
        decoration = MessagePassing.propagate
        torch.testing.assert_close(layer(x, edge_index), expected)
        assert reasons(layer, x, edge_index) == [None]
    assert MessagePassing.propagate is decoration
    close(layer(x, edge_index), expected)
    assert len(calls) == 3
    # They put back what they found, and it was ours.
    MessagePassing.propagate = ours
    close(layer(x, edge_index), expected)
    with onehop.patch():
        assert reasons(layer, x, edge_index) == [None]
    assert MessagePassing.propagate is THEIRS


def test_what_others_put_in_the_place_of_the_plain_one_is_theirs(x, edge_index, counted):
    layer = attending()()
    expected = layer(x, edge_index)
    calls = counted(THEIRS)
    with onehop.patch():
        close(layer(x, edge_index), expected)
        assert len(calls) == 1
        assert reasons(layer, x, edge_index) == ["MessagePassing.propagate was replaced by another function"]


def test_a_class_that_is_given_the_plain_one_again_is_rendered_again(x, edge_index):
    class Again(MessagePassing):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x)

    layer = Again()
    expected = layer(x, edge_index)
    with onehop.patch():
        Again.propagate = Again._orig_propagate
        torch.testing.assert_close(layer(x, edge_index), expected)
        again = copy.deepcopy(layer)  # which makes PyG render
        assert Again.propagate.__module__.endswith("_Again_propagate")
        torch.testing.assert_close(again(x, edge_index), expected)
        assert reasons(again, x, edge_index) == [None]
    assert Again._orig_propagate is THEIRS
    assert "onehop_theirs" not in vars(Again.propagate)


def test_nested_patches_and_pauses_restore_every_class(x, edge_index):
    kinds = [MessagePassing, *(make() for make in KINDS.values())]
    for kind in kinds[1:]:
        kind()
    names = ("propagate", "edge_updater", *(f"_{which}_propagate" for which in ("orig", "jinja")))
    before = [{name: vars(kind).get(name) for name in names} for kind in kinds]

    def now() -> list[dict[str, Any]]:
        return [{name: vars(kind).get(name) for name in names} for kind in kinds]

    listed = "torch_geometric.nn.conv.message_passing.MessagePassing.propagate"
    with onehop.patch() as handle:
        assert onehop.patched().count(listed) == 1
        ours = MessagePassing.propagate
        assert inspect.signature(ours) == inspect.signature(THEIRS)
        with onehop.patch(only="GCNConv"):
            assert MessagePassing.propagate is ours
            assert reasons(Attending(), x, edge_index) == ["patch(only=...) leaves its class out"]
        with handle.paused():
            assert now() == before
        assert MessagePassing.propagate is not THEIRS
        assert reasons(Attending(), x, edge_index) == [None]
    assert now() == before
    assert all("onehop" not in str(vars(kind).keys()) for kind in layer_classes())
    assert sys.modules["torch_geometric.nn"].MessagePassing.propagate is THEIRS
