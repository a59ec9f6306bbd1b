"""Every operator of the table against its naive twin, in every way in which torch may call it."""

import concurrent.futures
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.functional import hessian

import onehop
from onehop import Graph, native
from onehop.backends import registry
from onehop.graph import by_number
from onehop.ops import narrow_batches
from onehop.ops.library import Context, Operator
from onehop.plans import CpuPlan
from tests.ops.checking import (
    GRAPHS,
    On,
    again,
    assert_close,
    axes_of,
    batched,
    check,
    gradients,
    in_batches,
    noted,
    one_by_one,
    one_gradient_at_a_time,
    programs_have_one_graph,
    same_bits,
    second_derivatives,
    torch_checks,
)
from tests.ops.operators import CASES
from tests.pairs import pairwise, rounds, spread

every_case = pytest.mark.parametrize("name", CASES)
of_torch = pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.registered])


# Results and gradients, for all that operands and graphs can be.

EDGES = ("as given", "sorted", "of 64 bits")
# Items of 1,024 edges are usual; some rows are cut in smaller ones.
ENGINES: dict[str, Any] = {
    "ordinary": None,
    "reference": "reference",
    **{
        f"{isa}, {edges} edges": (isa, edges)
        for isa in native.extension.available_isas()
        for edges in (1, 7, 4096)
    },
}


FORMS = [
    form
    for name, case in CASES.items()
    for form in spread(
        [(name, graph) for graph in GRAPHS] * rounds(),
        *axes_of(name),
        EDGES,
        [engine for engine in ENGINES if engine != "reference" or engine in case.backends],
    )
]


@pytest.fixture
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """What the operator runs on; the value is what it is given."""
    chosen, before = ENGINES[request.param], native.extension.selected_isa()
    if isinstance(chosen, tuple):
        isa, edges = chosen
        assert native.extension.select_isa(isa)
        plan = CpuPlan(edges_per_item=edges)
        monkeypatch.setattr(registry._CPU, "_plan", plan)
        monkeypatch.setattr("onehop.kernels.cpu.message.default_plan", lambda *_: plan)
        chosen = None
    yield {} if chosen is None else {"backend": chosen}
    native.extension.select_isa(before)


@pytest.mark.parametrize(
    ("name", "graph", "width", "dtypes", "layout", "numbers", "pull", "edges", "engine"),
    FORMS,
    ids=["-".join(map(str, form)) for form in FORMS],
    indirect=["engine"],
)
def test_results_and_gradients(name, graph, width, dtypes, layout, numbers, pull, edges, engine, bounds):
    edge_index, *size = GRAPHS[graph]
    if edges == "sorted":
        edge_index = edge_index[:, edge_index[1].argsort(stable=True)]
    if edges == "of 64 bits":
        bounds(wide_edges=0)
    check(name, (edge_index, *size), width, dtypes, layout, numbers, pull, **engine)


# Derivatives, of every order and in batches.


@every_case
@pairwise(graph=["multi_edges", "bipartite_tall", "no_edges", "one_edge"])
def test_second_derivatives(name, graph):
    second_derivatives(On(name, graph))


@every_case
def test_one_gradient_at_a_time(name):
    one_gradient_at_a_time(On(name, "random"))


@every_case
def test_nothing_is_recorded_without_need(name):
    on = On(name, "random")
    plain = [leaf.detach() for leaf in on.leaves]
    recorded = on.fast(*on.leaves)
    assert any(out.requires_grad for out in recorded)
    for out in (
        on.fast(*plain),
        torch.no_grad()(on.fast)(*on.leaves),
        torch.inference_mode()(on.fast)(*plain),
    ):
        assert not any(each.requires_grad for each in out)
        assert same_bits(out, recorded)


WAYS = ("older", "newer")


@every_case
@pairwise(
    batch=[1, 3], way=WAYS, graph=["one_edge", "multi_edges", "self_loops", "bipartite_tall", "no_edges"]
)
def test_batches_of_gradients(name, way, graph, batch):
    on = On(name, graph)
    pulled = on.pulled(batch)
    assert_close(batched(way, on.fast, on.leaves, pulled), one_by_one(on.naive, on.leaves, pulled))


@every_case
def test_a_batch_of_no_gradients(name):
    on = On(name, "multi_edges")
    found = batched("newer", on.fast, on.leaves, on.pulled(0))
    assert [grad.shape for grad in found] == [(0, *leaf.shape) for leaf in on.leaves]


@every_case
# Computations that are made again in the backward pass cannot be recorded in torch's newer vmap.
@pairwise(way=WAYS, where=lambda name, way: (name, way) != ("typed mean", "newer"))
def test_batches_that_are_differentiated_again(name, way):
    on = On(name, "bipartite_tall")
    pulled = [each.requires_grad_() for each in on.pulled(3)]
    found = batched(way, on.fast, on.leaves, pulled, create_graph=True)
    expected = one_by_one(on.naive, on.leaves, pulled, create_graph=True)
    losses = [sum(grad.square().sum() for grad in grads) for grads in (found, expected)]
    assert_close(*(again(loss, [*on.leaves, *pulled]) for loss in losses))


@every_case
@pairwise(inner=WAYS, outer=WAYS)
# What torch says of its own older vmap inside of the newer.
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_batches_of_batches(name, outer, inner):
    on = On(name, "multi_edges")
    pulled = on.pulled(2, 3)
    over = {"older": torch._vmap_internals._vmap, "newer": torch.vmap}[outer]
    grad = partial(gradients, on.fast(*on.leaves), on.leaves, retain_graph=True)
    found = over(lambda *each: tuple(in_batches(inner, grad, each)))(*pulled)
    expected = [one_by_one(on.naive, on.leaves, [each[i] for each in pulled]) for i in range(2)]
    assert_close(found, [torch.stack(parts) for parts in zip(*expected, strict=True)])


@every_case
@pairwise(way=WAYS, dtype=[torch.float32, torch.bfloat16, torch.float16])
def test_batches_have_the_bits_of_one_by_one(name, way, dtype, monkeypatch):
    monkeypatch.setattr(narrow_batches, "_FOLDED_WIDTH", 0)
    on = On(name, "bipartite_tall", dtype if dtype in CASES[name].dtypes else torch.float32)
    pulled = on.pulled(3)
    assert same_bits(batched(way, on.fast, on.leaves, pulled), one_by_one(on.fast, on.leaves, pulled))


@every_case
def test_vectorized_hessians(name):
    on = On(name, "multi_edges")

    def bent(function: Callable[..., Any], *leaves: Tensor) -> Any:
        return sum(
            (out.sin() * torch.arange(1.0, out.numel() + 1).view(out.shape)).sum()
            for out in function(*leaves)
        )

    found = hessian(partial(bent, on.fast), tuple(on.leaves), vectorize=True)
    for ours, theirs in zip(found, hessian(partial(bent, on.naive), tuple(on.leaves)), strict=True):
        assert_close(ours, theirs)


@of_torch
def test_forward_in_vmap(name):
    on = On(name, "multi_edges")
    generator = torch.Generator().manual_seed(1)
    tensors = [torch.randn(3, *leaf.shape, generator=generator, dtype=leaf.dtype) for leaf in on.leaves]
    members = [on.naive(*(t[i] for t in tensors)) for i in range(3)]
    found = torch.vmap(on.fast)(*tensors)
    assert_close(found, [torch.stack(parts) for parts in zip(*members, strict=True)])


# What torch knows of operators.


def test_torch_checks_what_is_registered():
    of_torch = [name for name, case in CASES.items() if case.registered]
    checked = torch_checks(of_torch, "bipartite_wide")
    assert checked >= {"aggregate", "extremum_grad", "attention_grad"}


CUDA = torch.device("cuda:0")


def _looks(made: Sequence[Tensor | None]) -> list[tuple[Any, ...] | None]:
    return [None if each is None else (tuple(each.shape), each.dtype) for each in made]


def _gradients_of(operator: Operator[Any], call: Any, graph: Graph) -> tuple[Tensor | None, ...]:
    """The results of one call, and its gradients of the operator itself: autograd needs the device."""
    out = operator(call, graph)
    many = out if isinstance(out, tuple) else (out,)
    if operator.name == "fusedmm":  # its gradients are a formula, which torch differentiates
        return many
    wanted = tuple(name for name, place in operator._places if call[place] is not None)
    kept, saved = operator.saved(call, out, wanted)
    context = Context(kept, saved, wanted, {each: getattr(call, each).shape for each in wanted}, graph)
    constant = {id(each) for each in operator.constant(call, many)}
    grads = [None if id(each) in constant or not each.numel() else torch.ones_like(each) for each in many]
    found = operator.gradients(context, *grads)
    return *many, *(getattr(found, each) for each in wanted)


@of_torch
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, "mixed"], ids=str
)
def test_fakes_on_a_gpu_look_as_results_do(name, dtype):
    """What programs know of operators on a GPU before they run, by fake tensors, which need none."""
    on = On(name, "bipartite_wide", torch.float32 if dtype == "mixed" else dtype)
    plain = [leaf.detach() for leaf in on.leaves]
    if dtype == "mixed":
        plain[0] = plain[0].bfloat16()
    with torch.no_grad():
        expected: list[Any] = []
        calls = noted(lambda: expected.extend(on.fast(*plain)))
        recorded = [(o, o.recorded(call) if o.asks_more else call) for o, call in calls]
        wanted = [_gradients_of(operator, call, on.graph) for operator, call in recorded]
        with FakeTensorMode():

            def fake(tensor: Any) -> Any:
                if not isinstance(tensor, Tensor):
                    return tensor
                return torch.empty(tensor.shape, dtype=tensor.dtype, device=CUDA)

            found = [on.fast(*map(fake, plain))]
            found += [_gradients_of(o, type(call)(*map(fake, call)), on.graph) for o, call in recorded]
    for ours, theirs in zip(found, [expected, *wanted], strict=True):
        assert _looks(ours) == _looks(theirs)
        assert {each.device for each in ours if each is not None} == {CUDA}


def test_the_comparison_sees_another_device():
    on = On("sum", "random")
    with torch.no_grad(), FakeTensorMode():
        assert on.fast(torch.empty(40, 2))[0].device == torch.device("cpu")


# One or two of each registered operator, since compiling takes long.
IN_PROGRAMS = (
    "sum, scaled",
    "sum, signals",
    "mean, add",
    "max, weighted",
    "min, sigmoid",
    "sddmm, heads",
    "edge_softmax",
)
IN_PROGRAMS += ("fusedmm tdist", "gat, weights", "gatv2, projected", "attention, edges")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler imports deprecated names
@pytest.mark.parametrize("name", IN_PROGRAMS)
def test_programs_have_one_graph(name):
    programs_have_one_graph(On(name, "bipartite_wide"))


@every_case
@pairwise(dtype=[torch.float32, torch.bfloat16])
def test_autocast_changes_nothing(name, dtype):
    on = On(name, "random", dtype if dtype in CASES[name].dtypes else torch.float32)
    expected = on.fast(*on.leaves)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = on.fast(*on.leaves)
    pulled = on.pulled()
    assert same_bits(found, expected)
    assert same_bits(gradients(found, on.leaves, pulled), gradients(expected, on.leaves, pulled))


# The same bits every time, and graphs that live as long as they are needed.


@pytest.fixture(scope="module")
def hub() -> tuple[Tensor, int, int]:
    """A row that is cut into many pieces, beside rows of ordinary length."""
    generator = torch.Generator().manual_seed(0)
    target = torch.cat([torch.zeros(12000).long(), torch.randint(0, 900, (12000,), generator=generator)])
    source = torch.randint(0, 900, (24000,), generator=generator)
    graph = Graph.from_edge_index(torch.stack([source, target]), 900)
    assert sum(head >= 0 for *_, head, _ in graph.csr.work_items(1024)) > 5
    return torch.stack([source, target]), 900, 900


@every_case
def test_any_number_of_threads_has_the_same_bits(name, hub, monkeypatch):
    monkeypatch.setitem(GRAPHS, "hub", hub)
    on = On(name, "hub", torch.float32, 7)
    torch.set_num_threads(1)
    once = on.outcome()
    for count in (1, 2, 3, 7):
        torch.set_num_threads(count)
        assert same_bits(on.outcome(), once), f"{count} threads"
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        assert all(same_bits(each, once) for each in pool.map(lambda _: on.outcome(), range(6)))


@every_case
@pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
def test_what_is_recorded_keeps_its_graph(name, second):
    found = []
    for keep in (True, False):
        on = On(name, "random")
        number, leaves = on.graph.number, on.leaves
        pulled = [each.requires_grad_() for each in on.pulled()]
        out = on.fast(*leaves)
        if not keep:
            del on
        first = gradients(out, leaves, pulled, create_graph=second)
        if second:
            first = again(sum(grad.square().sum() for grad in first), [*leaves, *pulled])
        found.append(first)
    assert same_bits(*found)
    del out, first, found
    with pytest.raises(onehop.ArgumentError, match="keep the Graph alive"):
        by_number(number)
