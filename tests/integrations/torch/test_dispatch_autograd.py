"""Kernels below autograd: its graphs, versions, saved tensors, hooks, errors and derivatives are torch's."""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from tests.integrations.torch.dispatched import (
    CASES,
    COUNTED,
    COUNTED_BACKWARD,
    both,
    each_case,
    operands,
    patched,
    put,
    served,
    whole,
)
from tests.integrations.torch.indices import ANY, ENTRIES, LENGTHS, ODD, ROWS

pytestmark = pytest.mark.filterwarnings("ignore")


def names_of(out: Tensor) -> list[str]:
    """The names of the nodes of a graph of autograd, in the order of a walk."""
    found, nodes = [], [out.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is not None:
            found.append(node.name())
            nodes += [each for each, _ in node.next_functions]
    return found


def grads_of(out: Tensor, *leaves: Tensor) -> list[Tensor | None]:
    """The gradients to those that need one; None where there is none."""
    wanted = [each for each in leaves if each.requires_grad]
    if not (wanted and out.requires_grad):
        return []
    factor = torch.linspace(-2, 2, out.numel(), dtype=out.dtype).round().view(out.shape)
    return list(torch.autograd.grad(out, wanted, factor, allow_unused=True))


@pytest.mark.parametrize("name", COUNTED)
def test_our_code_runs(name: str) -> None:
    with served() as names:
        CASES[name](*operands("none", torch.float32))
    assert COUNTED[name] in names


@pytest.mark.parametrize("name", COUNTED_BACKWARD)
def test_our_code_runs_backward(name: str) -> None:
    x, v = operands("both", torch.float32)
    out = CASES[name](x, v)
    with served() as names:
        grads_of(out, x, v)
    assert COUNTED_BACKWARD[name] in names


@pytest.mark.parametrize("needs", ["none", "x", "v", "both"])
@each_case
def test_results_and_gradients(name: str, needs: str) -> None:
    def run() -> Any:
        x, v = operands(needs)
        out = CASES[name](x, v)
        return out, grads_of(out, x, v)

    both(run)


@each_case
def test_what_autograd_notes(name: str) -> None:
    def run() -> Any:
        x, v = operands()
        out = CASES[name](x, v)
        about = (
            out._version,
            out._is_view(),
            out._base is None,
            out.is_leaf,
            out.output_nr,
            out.is_inference(),
        )
        return about, names_of(out), x._version, v._version, out.data_ptr() in (x.data_ptr(), v.data_ptr())

    assert both(run)[1]


@each_case
def test_second_derivatives(name: str) -> None:
    def run() -> Any:
        x, v = operands()
        out = CASES[name](x, v)
        first = torch.autograd.grad(out.square().sum(), (x, v), create_graph=True, allow_unused=True)
        total = sum(each.square().sum() for each in first if each is not None and each.requires_grad)
        names = [names_of(each) for each in first if each is not None]
        return first, names, torch.autograd.grad(total, (x, v), allow_unused=True)

    # Not of all is there a second derivative, which is torch's to say.
    both(run, raises=None)


@each_case
def test_forward_mode(name: str) -> None:
    def run() -> Any:
        x, v = operands("none")
        with forward_ad.dual_level():
            dual = CASES[name](forward_ad.make_dual(x, x + 2), forward_ad.make_dual(v, v - 1))
            out = forward_ad.unpack_dual(dual)
            return out.primal, out.tangent

    both(run, raises=None)


@each_case
def test_gradients_of_a_batch(name: str) -> None:
    def run() -> Any:
        x, v = operands()
        out = CASES[name](x, v)
        several = torch.stack([torch.ones_like(out), out.detach(), out.detach().cos().round()])
        return torch.autograd.grad(out, (x, v), several, is_grads_batched=True, allow_unused=True)

    both(run, raises=None)


@pytest.mark.parametrize("name", ["x[i]", "index_select", "gather", "index_add", "scatter_add", "mm", "bmm"])
def test_derivatives_agree_with_differences(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x, v = (torch.randn(rows, 4, generator=generator, dtype=torch.float64) for rows in (ROWS, ENTRIES))
    given = (x.requires_grad_(), v.requires_grad_())
    with patched():
        torch.autograd.gradcheck(
            CASES[name], given, fast_mode=True, check_forward_ad=True, check_batched_grad=True
        )
        torch.autograd.gradgradcheck(CASES[name], given, fast_mode=True)


# What is saved


def packed(run: Callable[[], Any], x: Tensor, v: Tensor) -> list[Any]:
    """What hooks see: what is packed, and in which order it is unpacked."""
    seen: list[Any] = []

    def pack(tensor: Tensor) -> Any:
        owner = {x.data_ptr(): "x", v.data_ptr(): "v", ANY.data_ptr(): "index"}.get(tensor.data_ptr())
        seen.append((owner, tensor.dtype, tuple(tensor.shape), tensor.stride()))
        return len(seen) - 1, tensor.clone()

    def unpack(held: Any) -> Tensor:
        number, tensor = held
        seen.append(number)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        out = run()
        seen.append(grads_of(out, x, v))
    return seen


@each_case
def test_hooks_of_saved_tensors(name: str) -> None:
    def run() -> Any:
        x, v = operands()
        return packed(lambda: CASES[name](x, v), x, v)

    both(run)


@pytest.mark.parametrize("name", ["x[i]", "index_select", "gather", "scatter_reduce amax"])
def test_hooks_see_the_index(name: str) -> None:
    x, v = operands()
    with patched():
        seen = packed(lambda: CASES[name](x, v), x, v)
    assert any(each[0] == "index" for each in seen if isinstance(each, tuple))


def by(index: Tensor) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """Operations at an index of the test's own, which autograd saves."""
    wide = index.unsqueeze(1).expand(-1, 4)
    return {
        "x[i]": lambda x, v: x[index],
        "x[:, i]": lambda x, v: v.t()[:, index],
        "index_put": lambda x, v: x.mul(1).index_put_((index,), v, accumulate=True),
        "index_select": lambda x, v: x.index_select(0, index),
        "gather": lambda x, v: x.gather(0, wide),
        "index_add": lambda x, v: x.index_add(0, index, v),
        "index_add_": lambda x, v: x.mul(1).index_add_(0, index, v),
        "scatter_add": lambda x, v: x.scatter_add(0, wide, v),
        "scatter_reduce sum": lambda x, v: x.scatter_reduce(0, wide, v, "sum"),
        "scatter_reduce mean": lambda x, v: x.scatter_reduce(0, wide, v, "mean"),
        "scatter_reduce amax": lambda x, v: x.scatter_reduce(0, wide, v, "amax"),
        "embedding": lambda x, v: F.embedding(index, x),
        "embedding_bag": lambda x, v: F.embedding_bag(index, x, torch.tensor([0, 30]), mode="sum"),
    }


AT_AN_INDEX = pytest.mark.parametrize("name", by(ANY))


@AT_AN_INDEX
def test_an_index_written_to_before_the_backward_pass(name: str) -> None:
    def run() -> Any:
        index = ANY.clone()
        x, v = operands()
        out = by(index)[name](x, v)
        index[3] = 2
        return grads_of(out, x, v)

    assert "modified by an inplace operation" in both(run, raises=True).words


@AT_AN_INDEX
def test_an_index_made_in_inference_mode(name: str) -> None:
    def run() -> Any:
        with torch.inference_mode():
            index = ANY.clone()
        x, v = operands()
        return grads_of(by(index)[name](x, v), x, v)

    assert "Inference tensors" in both(run, raises=True).words


@AT_AN_INDEX
def test_in_inference_mode(name: str) -> None:
    def run() -> Any:
        with torch.inference_mode():
            out = by(ANY.clone())[name](*operands())
            return out.clone(), out.is_inference(), out.grad_fn
        return None

    assert both(run)[1]


@pytest.mark.parametrize("which", ["x", "v"])
@pytest.mark.parametrize("name", ["mm", "bmm", "addmm", "linear", "scatter_reduce prod", "x[i]", "index_add"])
def test_an_operand_written_to_before_the_backward_pass(name: str, which: str) -> None:
    def run() -> Any:
        x, v = operands()
        held = {"x": x.mul(1), "v": v.mul(1)}
        out = CASES[name](held["x"], held["v"])
        held[which].add_(1)
        return grads_of(out, x, v)

    both(run, raises=None)


@each_case
def test_a_second_backward_pass(name: str) -> None:
    def run() -> Any:
        x, v = operands()
        out = CASES[name](x, v).square().sum()
        out.backward()
        out.backward()

    assert "second time" in both(run, raises=True).words


# Writing in place


IN_PLACE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "x[i] = v": lambda x, v: put(x, ANY, v),
    "x[m] = 1": lambda x, v: put(x, ODD, 1),
    "index_put_": lambda x, v: x.index_put_((ANY,), v, accumulate=True),
    "index_add_": lambda x, v: x.index_add_(0, ANY, v),
    "scatter_add_": lambda x, v: x.scatter_add_(0, ANY.unsqueeze(1).expand(-1, 4), v),
    "scatter_reduce_": lambda x, v: x.scatter_reduce_(0, ANY.unsqueeze(1).expand(-1, 4), v, "mean"),
    "addmm_": lambda x, v: x.addmm_(whole(ROWS, 3), whole(3, 4)),
}
TARGETS: dict[str, Callable[[Tensor], Tensor]] = {
    "a leaf": lambda x: x,
    "a view of a leaf": lambda x: x[:],
    "a part of several": lambda x: x.mul(1).unbind(0)[0].expand(ROWS, 4),
    "expanded": lambda x: x.detach()[:1].expand(ROWS, 4),
    "made in inference mode": lambda x: within(torch.inference_mode(), lambda: x.detach().clone()),
}


def within(context: Any, run: Callable[[], Any]) -> Any:
    with context:
        return run()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", IN_PLACE)
def test_what_must_not_be_written_to(name: str, target: str) -> None:
    # torch writes to some expanded tensors, and warns.
    both(lambda: IN_PLACE[name](TARGETS[target](operands()[0]), operands()[1]), raises=None)


@pytest.mark.parametrize("needs", ["none", "x", "v", "both"])
@pytest.mark.parametrize("name", IN_PLACE)
def test_versions_and_views_of_what_is_written_to(name: str, needs: str) -> None:
    def run() -> Any:
        x, v = operands(needs)
        base = x.mul(1)
        view = base[:, :]
        out = IN_PLACE[name](view, v)
        about = out is view, out._version, base._version, out._is_view(), view._base is base
        return about, base, base.requires_grad and names_of(base), grads_of(base, x, v)

    assert both(run)[0][1] >= 1


@pytest.mark.parametrize("name", IN_PLACE)
def test_what_was_saved_before_it_was_written_to(name: str) -> None:
    def run() -> Any:
        x, v = operands()
        base = x.mul(1)
        square = base.square().sum()
        IN_PLACE[name](base, v)
        return grads_of(square, x)

    assert "modified by an inplace operation" in both(run, raises=True).words


# Hooks and contexts


@each_case
def test_hooks_of_tensors_and_nodes(name: str) -> None:
    def run() -> Any:
        x, v = operands()
        seen: list[Any] = []
        out = CASES[name](x, v)
        out.retain_grad()
        out.register_hook(lambda grad: seen.append(("tensor", tuple(grad.shape))))
        node = out.grad_fn
        assert node is not None
        node.register_prehook(lambda grads: seen.append(("before", len(grads))))
        node.register_hook(lambda *each: seen.append(("after", *map(len, each))))
        x.register_post_accumulate_grad_hook(lambda leaf: seen.append(("leaf", leaf.grad is None)))
        out.sum().backward()
        return seen, out.grad, x.grad, v.grad

    assert both(run)[0]


def step(x: Tensor, v: Tensor) -> Tensor:
    out = x.index_add(0, ANY, x[ANY] * v).scatter_reduce(0, ANY.unsqueeze(1).expand(-1, 4), v, "mean")
    return torch.segment_reduce(out.index_select(0, ANY) @ x.t(), "sum", lengths=LENGTHS, unsafe=True)


CONTEXTS: dict[str, Callable[[], Any]] = {
    "checkpoint": lambda: partial(checkpoint, step, use_reentrant=False),
    "reentrant checkpoint": lambda: partial(checkpoint, step, use_reentrant=True),
    "save_on_cpu": torch.autograd.graph.save_on_cpu,
    "anomalies": torch.autograd.detect_anomaly,
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "saved tensors may be written to": torch.autograd.graph.allow_mutation_on_saved_tensors,
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_contexts(name: str) -> None:
    def run() -> Any:
        x, v = operands(dtype=torch.float32)
        context = CONTEXTS[name]()
        is_function = isinstance(context, partial)
        with contextlib.nullcontext() if is_function else context:
            out = (context if is_function else step)(x, v)
            if out.requires_grad:
                out.sum().backward()
        return out, x.grad, v.grad

    tolerance = 0.05 if name == "autocast" else 1e-5
    both(run, rtol=tolerance, atol=tolerance)
