"""Modes, transforms, tracers and compilers see torch's operators under the patch, with the same numbers."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, functionalize, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from tests.integrations.torch.dispatched import CASES, both, each_case, operands, patched, served, whole
from tests.integrations.torch.indices import ANY, ENTRIES, LENGTHS, ODD, ROWS

pytestmark = pytest.mark.filterwarnings("ignore")


class Noting(TorchDispatchMode):
    """Notes each operator, with the shapes of its tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        leaves = tree_leaves((args, kwargs, out))
        shapes = [tuple(each.shape) if isinstance(each, Tensor) else repr(each) for each in leaves]
        self.seen.append((str(function), shapes))
        return out


def forward_and_backward(name: str, x: Tensor, v: Tensor) -> Any:
    """The result, and the gradients of its squares."""
    out = CASES[name](x, v)
    if out.requires_grad:
        out.square().sum().backward()
    return out, x.grad, v.grad


@pytest.mark.parametrize("needs", ["none", "both"])
@each_case
def test_a_dispatch_mode_sees_the_same_operators(name: str, needs: str) -> None:
    def run() -> Any:
        given = operands(needs)
        with Noting() as mode:
            out = forward_and_backward(name, *given)
        return mode.seen, out

    assert both(run)[0]


class Wrapped(Tensor):
    """A class of a user's over operators; it holds a tensor."""

    seen: list[str] = []  # noqa: RUF012
    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "Wrapped":
        made: Wrapped = Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        cls.seen.append(str(function))
        args, kwargs = torch.utils._pytree.tree_map_only(
            Wrapped, lambda each: each.held, (args, kwargs or {})
        )
        return torch.utils._pytree.tree_map_only(Tensor, Wrapped, function(*args, **kwargs))


@each_case
def test_a_wrapper_sees_the_same_operators(name: str) -> None:
    def run() -> Any:
        Wrapped.seen.clear()
        out = CASES[name](*map(Wrapped, operands("none")))
        assert isinstance(out, Wrapped)
        return list(Wrapped.seen), out.held

    # torch does not write from a wrapper into a tensor.
    both(run, raises=None)


def test_a_profile_has_torchs_operators() -> None:
    def run() -> set[str]:
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            for name in CASES:
                forward_and_backward(name, *operands())
        return {each.key for each in profiled.key_averages()}

    expected = run()
    with served() as names:
        found = run()
    assert names
    wanted = (
        *("aten::index", "aten::_index_put_impl_", "aten::index_select", "aten::index_add"),
        *("aten::index_add_", "aten::gather", "aten::scatter_add", "aten::scatter_add_"),
        *("aten::scatter_reduce", "aten::mm", "aten::addmm", "aten::bmm", "aten::linear", "aten::embedding"),
        *("aten::embedding_dense_backward", "aten::_embedding_bag", "aten::segment_reduce"),
        *("GatherBackward0", "IndexBackward0", "ScatterReduceBackward0", "MmBackward0"),
    )
    assert set(wanted) <= expected
    assert [each for each in wanted if each not in found] == []


# Transforms


@each_case
def test_vmap(name: str) -> None:
    def run() -> Any:
        x, v = operands("none")
        both_ways = vmap(CASES[name])(torch.stack([x, x + 1]), torch.stack([v, v - 1]))
        return both_ways, vmap(CASES[name], in_dims=(None, 0))(x, torch.stack([v, v - 1, v]))

    # Those whose results have a size that depends on numbers have no batches, and say so.
    both(run, raises=None)


TRANSFORMS: dict[str, Callable[[Callable[..., Tensor], Tensor, Tensor], Any]] = {
    "grad": lambda f, x, v: grad(lambda x, v: f(x, v).square().sum(), argnums=(0, 1))(x, v),
    "grad of grad": lambda f, x, v: grad(lambda x: grad(lambda x: f(x, v).pow(3).sum())(x).square().sum())(x),
    "jvp": lambda f, x, v: jvp(f, (x, v), (x + 1, v - 1)),
    "vjp": lambda f, x, v: apply(vjp(f, x, v)),
    "vmap of grad": lambda f, x, v: vmap(grad(lambda x, v: f(x, v).square().sum()), in_dims=(0, None))(
        torch.stack([x, x + 1]), v
    ),
    "functionalize": lambda f, x, v: functionalize(f, remove="mutations_and_views")(x, v),
}


def apply(of_vjp: Any) -> Any:
    out, function = of_vjp
    return out, function(torch.ones_like(out))


@pytest.mark.parametrize("transform", TRANSFORMS)
@each_case
def test_transforms(name: str, transform: str) -> None:
    both(lambda: TRANSFORMS[transform](CASES[name], *operands("none")), raises=None)


def chain(x: Tensor, v: Tensor) -> Tensor:
    wide = ANY.unsqueeze(1).expand(-1, 4)
    out = torch.zeros(ROWS, 4, dtype=x.dtype).scatter_add(0, wide, x[ANY] * v)
    out = out.index_add(0, ANY, F.linear(v, x.t() @ x)).gather(0, wide).scatter_reduce(0, wide, v, "mean")
    return out.index_select(0, ANY % ROWS)[:, ANY[:5] % 4]


@pytest.mark.parametrize("transform", [jacrev, jacfwd, hessian])
def test_jacobians(transform: Callable[..., Any]) -> None:
    x, v = operands("none")
    both(lambda: transform(lambda x: chain(x, v).sum(0))(x))


def test_gradients_of_each_sample() -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(ROWS, 4), torch.nn.Linear(4, 3)).double()
    parameters = {name: each.detach() for name, each in model.named_parameters()}

    def loss(given: dict[str, Tensor], index: Tensor) -> Tensor:
        out: Tensor = functional_call(model, given, (index,))
        return out.sin().sum()

    both(lambda: vmap(grad(loss), in_dims=(None, 0))(parameters, ANY.view(6, 10)))


# Tensors without numbers


@each_case
def test_meta_tensors(name: str) -> None:
    def run() -> Any:
        with torch.device("meta"):
            x, v = (torch.empty(rows, 4, dtype=torch.float64) for rows in (ROWS, ENTRIES))
        out = CASES[name](x, v)
        return tuple(out.shape), out.stride(), out.device.type, out.dtype

    both(run, raises=None)


@each_case
def test_fake_tensors(name: str) -> None:
    def run() -> Any:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            out = CASES[name](*(mode.from_tensor(each) for each in operands("none")))
            return type(out).__name__, tuple(out.shape), out.stride(), out.dtype

    both(run, raises=None)


@each_case
def test_graphs_of_operators(name: str) -> None:
    def run() -> Any:
        def of_both(x: Tensor, v: Tensor) -> Any:
            out = CASES[name](x, v)
            return torch.autograd.grad(out.square().sum(), (x, v), allow_unused=True)

        traced = make_fx(of_both)(*operands())
        return [str(node.target) for node in traced.graph.nodes], traced(*operands())

    assert both(run, times=1)[0]


def test_counts_of_operations() -> None:
    def run() -> Any:
        with FlopCounterMode(display=False) as counter:
            for name in CASES:
                forward_and_backward(name, *operands())
        return {str(name): number for name, number in counter.get_flop_counts()["Global"].items()}

    assert both(run)


# Programs


def scripted(x: Tensor, v: Tensor, index: Tensor, mask: Tensor) -> Tensor:
    wide = index.unsqueeze(1).expand(-1, 4)
    out = x[index] * v + x.index_select(0, index) + x.gather(0, wide)
    out = torch.zeros_like(x).scatter_add(0, wide, out).index_add(0, index, v)
    out = (
        out
        + torch.scatter_reduce(x, 0, wide, v, "mean")
        + torch.segment_reduce(v, "sum", lengths=torch.bincount(index, minlength=x.size(0)), unsafe=True)
    )
    out[index] += 1
    return torch.mm(F.linear(out, v), v)[mask]


@pytest.mark.parametrize("made", ["before", "under"])
@pytest.mark.parametrize("how", ["scripted", "traced", "frozen"])
def test_torchscript(how: str, made: str) -> None:
    def program() -> Any:
        if how == "traced":
            return torch.jit.trace(scripted, (*operands("none"), ANY, ODD), check_trace=False)
        if how == "scripted":
            return torch.jit.script(scripted)

        class Frozen(torch.nn.Module):
            def forward(self, x: Tensor, v: Tensor, index: Tensor, mask: Tensor) -> Tensor:
                return scripted(x, v, index, mask)

        return torch.jit.freeze(torch.jit.script(Frozen().eval()))

    held = program()

    def run() -> Any:
        function = held if made == "before" else program()
        x, v = operands()
        out = None
        for _ in range(3):  # the third call is of a program that torch has optimised
            out = function(x, v, ANY, ODD)
            out.square().sum().backward()
        return out, x.grad, v.grad, [node.kind() for node in function.graph.nodes()]

    # torch fuses differently in later calls, with other roundings.
    both(run, rtol=1e-9, atol=1e-6)


def test_torchscript_is_served() -> None:
    program = torch.jit.script(scripted)
    with served() as names:
        program(*operands("both", torch.float32), ANY, ODD).sum().backward()
    assert {"x[index]", "index_select", "gather", "scatter_add", "index_add", "scatter_reduce"} <= names


def test_compiled_programs() -> None:
    def run() -> Any:
        torch._dynamo.reset()
        program = torch.compile(chain, backend="aot_eager", fullgraph=True)
        x, v = operands()
        out = program(x, v)
        out.square().sum().backward()
        return out, x.grad, v.grad

    both(run, times=1)
    with served() as names:
        run()
    torch._dynamo.reset()
    assert {"x[index]", "index_add", "gather", "scatter_add"} <= names


def test_a_program_compiled_before_runs_under_the_patch() -> None:
    torch._dynamo.reset()
    calls: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        calls.append([str(node.target) for node in graph.graph.nodes])
        return graph.forward

    program = torch.compile(chain, backend=backend, fullgraph=True)
    expected = program(*operands("none"))
    with patched():
        found = program(*operands("none"))
    torch.testing.assert_close(found, expected)
    assert len(calls) == 1, "the patch made torch compile a program again"
    torch._dynamo.reset()


def test_exported_programs() -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Tensor, v: Tensor) -> Tensor:
            return chain(x, v)

    def run() -> Any:
        program = torch.export.export(Module(), operands("none"))
        targets = [str(node.target) for node in program.graph.nodes]
        return targets, program.module()(*operands("none"))

    assert both(run, times=1)[0]


@each_case
def test_deterministic_algorithms(name: str) -> None:
    def run() -> Any:
        torch.use_deterministic_algorithms(True)
        try:
            return forward_and_backward(name, *operands())
        finally:
            torch.use_deterministic_algorithms(False)

    both(run, raises=None)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@each_case
def test_autocast(name: str, dtype: torch.dtype) -> None:
    def run() -> Any:
        x, v = operands("both", torch.float32)
        with torch.autocast("cpu", dtype):
            out = CASES[name](x, v)
        out.sum().backward()
        return out, x.grad, v.grad

    both(run, raises=None, rtol=0.02, atol=0.02)


def test_lengths_of_a_vmapped_sum_are_torchs() -> None:
    function = functools.partial(torch.segment_reduce, reduce="sum", lengths=LENGTHS, unsafe=True)
    both(lambda: vmap(function)(torch.stack([whole(ENTRIES, 4)] * 2)), raises=None)
