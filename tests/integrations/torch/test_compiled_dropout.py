"""Dropout in compiled programs: the numbers, gradients and generator of eager layers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from functorch.compile import make_boxed_func
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch.utils.checkpoint import checkpoint

import onehop
from onehop.ops import dropout_in_programs
from tests.integrations.same import assert_identical

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    onehop.unpatch()
    torch._dynamo.reset()


def trained(function: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    """The output, the gradient, and the number that is drawn next."""
    torch.manual_seed(7)
    leaf = x.clone().requires_grad_()
    out = function(leaf)
    (out.float() * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum().backward()
    assert leaf.grad is not None
    return [out.detach(), leaf.grad, torch.rand(1)]


class Counting:
    """A backend that notes the operators of programs before they are differentiated."""

    def __init__(self) -> None:
        self.targets: list[str] = []

    def __call__(self, module: Any, inputs: Any) -> Any:
        def noted(graph: Any, _: Any) -> Any:
            self.targets += [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
            return make_boxed_func(graph.forward)

        return aot_autograd(fw_compiler=noted)(module, inputs)

    def count(self, name: str) -> int:
        return self.targets.count(name)


_P = {"p of 1": 1.0, "p of 0": 0.0}


def twice(x: Tensor) -> Tensor:
    return F.dropout(F.relu(F.dropout(x * 2, 0.5, True)), 0.2, True)


@pytest.mark.parametrize("shape", [(64, 33), (1,), (5, 3, 7), (0, 4)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_program_draws_what_its_layers_draw(dtype, shape):
    x, counter = torch.randn(shape).to(dtype), Counting()
    expected = trained(twice, x)
    with onehop.patch():
        assert_identical(trained(torch.compile(twice, fullgraph=True, backend=counter), x), expected)
    assert counter.count("onehop.dropout.default") == 2
    assert counter.count("onehop.dropout_grad.default") == 2


def test_inductor_keeps_both_masks():
    x = torch.randn(500, 40)
    expected = trained(twice, x)
    with onehop.patch():
        assert_identical(trained(torch.compile(twice, fullgraph=True), x), expected)


def test_sizes_may_change():
    with onehop.patch():
        compiled = torch.compile(twice, fullgraph=True, backend="aot_eager", dynamic=True)
        for rows in (3, 70, 1000):
            x = torch.randn(rows, 8)
            assert_identical(trained(compiled, x), trained(twice, x))


def test_checkpointing_repeats_the_mask():
    def model(x: Tensor) -> Tensor:
        return checkpoint(twice, x, use_reentrant=False)

    x = torch.randn(40, 9)
    expected = trained(model, x)
    with onehop.patch():
        assert_identical(trained(torch.compile(model, fullgraph=True, backend="aot_eager"), x), expected)


def compare_of(case: str) -> bool:
    """Compares a program of one call with torch; returns whether ours is in it."""
    counter = Counting()

    def function(x: Tensor) -> Tensor:
        return F.dropout(x.t() if case == "transposed" else x, _P.get(case, 0.5), case != "evaluation")

    x = torch.randn(6, 8)
    expected = trained(function, x)
    with onehop.patch(dropout=case != "setting"):
        ours = trained(torch.compile(function, fullgraph=True, backend=counter), x)
    served = counter.count("onehop.dropout.default")
    if case != "transposed":
        # Torch's own programs draw no numbers of which none could be kept.
        assert_identical(ours[: 3 if served else 2], expected[: 3 if served else 2])
    return bool(served)


@pytest.mark.parametrize("case", ["setting", "transposed", "p of 1", "p of 0", "evaluation"])
def test_what_else_is_torchs(case):
    assert not compare_of(case)


def test_programs_on_disk_are_kept_apart():
    import torch.compiler.config as settings

    before = settings.cache_key_tag
    with onehop.patch():
        assert settings.cache_key_tag == f"{before}+onehop"
    assert settings.cache_key_tag == before
    with onehop.patch(dropout=False):
        assert settings.cache_key_tag == before


@pytest.mark.parametrize("changed", [False, True])
def test_a_tag_of_the_users_own_is_kept(changed):
    import torch.compiler.config as settings

    settings.cache_key_tag = "mine"
    try:
        with onehop.patch():
            if changed:
                settings.cache_key_tag = "another"
        assert settings.cache_key_tag == ("another" if changed else "mine")
    finally:
        settings.cache_key_tag = ""


def test_operators_keep_torchs_rules():
    x = torch.randn(30, 5, requires_grad=True)
    # Its other checks compare two calls, which draw two masks.
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.onehop.dropout.default, (x, 0.3), test_utils=checks)
    kept = torch.ops.onehop.dropout(x.detach(), 0.3)[1]
    torch.library.opcheck(torch.ops.onehop.dropout_grad.default, (x, kept, 0.3))


@pytest.mark.parametrize("agree", [True, False], ids=["in use by others", "not ours"])
@pytest.mark.parametrize("elements", [1, 63, 64, 65, 200])
def test_a_generator_that_is_drawn_from_by_torch(elements, agree, monkeypatch):
    x, grad = torch.randn(2, elements, dtype=torch.float64)
    torch.manual_seed(3)
    out, kept = torch.ops.onehop.dropout(x, 0.4)
    monkeypatch.setattr(dropout_in_programs, "agrees", lambda: agree)
    unused = (lambda *_: False) if agree else (lambda *_: pytest.fail("drawn by ours"))
    monkeypatch.setattr(dropout_in_programs, "draw_from", unused)
    torch.manual_seed(3)
    by_torch, bits = torch.ops.onehop.dropout(x, 0.4)
    assert torch.equal(by_torch, out)
    ours, theirs = (torch.ops.onehop.dropout_grad(grad, each, 0.4) for each in (kept, bits))
    assert torch.equal(ours, theirs)


def test_a_gradient_can_be_differentiated():
    x, grad = torch.randn(20, 3, requires_grad=True), torch.randn(20, 3, requires_grad=True)
    out, _ = torch.ops.onehop.dropout(x, 0.5)
    (first,) = torch.autograd.grad(out, x, grad, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), grad)
    assert torch.equal(second, (out != 0) * 2.0)


@pytest.mark.parametrize("case", ["served", "transposed", "p of 1", "evaluation"])
def test_a_program_that_reads_dropout_line_by_line(case, monkeypatch):
    """Dynamo lists torch's functions at first use, which may be under a patch, and reads others itself."""
    known = dict(torch._dynamo.trace_rules.get_torch_obj_rule_map())
    known.pop(F.dropout, None)
    monkeypatch.setattr(torch._dynamo.trace_rules, "get_torch_obj_rule_map", lambda: known)
    assert compare_of(case) == (case == "served")
