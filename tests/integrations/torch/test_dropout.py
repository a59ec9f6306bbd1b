"""torch's dropout under the patch: the same bits, and the same state of the generator."""

import copy
import sys
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, jvp, vmap
from torch.nn.functional import dropout as imported_by_name
from torch.utils.checkpoint import checkpoint

import onehop
from onehop import thresholds
from onehop.integrations import session
from onehop.integrations.pyg import edges
from tests.integrations.same import Raised, Run, assert_identical, noted, outcome

OPERATOR = sys.modules["onehop.ops.dropout"]
X = torch.randn(300, 20, generator=torch.Generator().manual_seed(7))
NAMES = ("torch._VF.dropout", "torch._VF.dropout_")


@pytest.fixture
def drawn(monkeypatch):
    """Has an entry for each draw by our kernels."""
    return noted(monkeypatch, OPERATOR, "draw_from")


def drawing(act: Run) -> tuple[Any, Tensor]:
    """What a function returns or raises, and the generator's state afterwards."""
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit announces its end
        found = outcome(act)
    if isinstance(found, Raised):
        found = found._replace(words=found.words.split("\n")[0])
    return found, torch.get_rng_state()


def trained(function, *, inplace: bool = False):
    """The result and gradient of a function of X."""
    x = X.clone().requires_grad_()
    out = function(x * 1 if inplace else x)
    (out**2).sum().backward()
    return out.detach(), x.grad


def in_function(function):
    """With a graph of a compiled or scripted function, made anew."""
    torch._dynamo.reset()
    return function


def script() -> Tensor:
    @torch.jit.script
    def scripted(x: Tensor) -> Tensor:
        return F.dropout(x, 0.5, True) + F.dropout(x * 1, 0.3, True, True)

    return scripted(X)


def dual() -> tuple[Tensor, ...]:
    with forward_ad.dual_level():
        return tuple(forward_ad.unpack_dual(F.dropout(forward_ad.make_dual(X, X * 2), 0.5)))


def view_in_place():
    x = X.clone().requires_grad_()
    y = x * 1
    F.dropout(y[:10], 0.5, True, True)
    (y**2).sum().backward()
    return y.detach(), x.grad, y._version


def saved_and_modified():
    x = X.clone().requires_grad_()
    y = x * 1
    z = y * y
    F.dropout(y, 0.5, True, True)
    z.sum().backward()


def deterministically() -> Tensor:
    torch.use_deterministic_algorithms(True)
    try:
        return F.dropout(X, 0.5)
    finally:
        torch.use_deterministic_algorithms(False)


def inferring(*, inplace: bool):
    def act():
        with torch.inference_mode():
            out = F.dropout(X * 1, 0.5, True, inplace)
            return out.clone(), out.is_inference()

    return act


def autocasting():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return F.dropout(X, 0.5)


def forking():
    with torch.random.fork_rng():
        inside = F.dropout(X, 0.5)
    return inside, F.dropout(X, 0.5)


def recomputed(*, reentrant: bool):
    def act():
        return trained(
            lambda x: checkpoint(lambda y: F.dropout(F.dropout(y, 0.5) * 2, 0.3), x, use_reentrant=reentrant)
        )

    return act


def derived_twice():
    x = X.clone().requires_grad_()
    first = torch.autograd.grad((F.dropout(x, 0.5) ** 3).sum(), x, create_graph=True)[0]
    return torch.autograd.grad((first**2).sum(), x)


MODULE = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Dropout(0.3, inplace=True))

# What is done, and how often our kernels draw.
WAYS = {
    "function": (lambda: trained(lambda x: F.dropout(x, 0.5)), 1),
    "imported by name": (lambda: imported_by_name(X, 0.5), 1),
    "module": (lambda: MODULE(X), 2),
    "module in place": (lambda: trained(torch.nn.Dropout(0.3, inplace=True), inplace=True), 1),
    "a copy": (lambda: copy.deepcopy(MODULE)(X), 2),
    "in evaluation": (lambda: copy.deepcopy(MODULE).eval()(X), 0),
    "written twice": (derived_twice, 1),
    "view in place": (view_in_place, 1),
    "leaf in place": (lambda: F.dropout(X.clone().requires_grad_(), 0.5, True, True), 1),
    "saved and modified": (saved_and_modified, 1),
    "leaf in place without gradients": (
        torch.no_grad()(lambda: F.dropout(X.clone().requires_grad_(), 0.5, True, True).detach()),
        1,
    ),
    "parameter": (lambda: F.dropout(torch.nn.Parameter(X), 0.5).detach(), 1),
    "checkpoint": (recomputed(reentrant=False), 4),
    "reentrant checkpoint": (recomputed(reentrant=True), 4),
    "deterministic": (deterministically, 1),
    "inference": (inferring(inplace=False), 1),
    "inference in place": (inferring(inplace=True), 1),
    "autocast": (autocasting, 1),
    "forked state": (forking, 2),
    "p is 1": (lambda: trained(lambda x: F.dropout(x, 1.0)), 0),
    "p is 0": (lambda: trained(lambda x: F.dropout(x, 0.0)), 0),
    "p is a tensor": (lambda: F.dropout(X, torch.tensor(0.5)), 0),
    "p above 1": (lambda: F.dropout(X, 1.5), 0),
    "integers": (lambda: F.dropout(X.long(), 0.5), 0),
    "named": (lambda: (lambda out: (out.rename(None), out.names))(F.dropout(X.rename("a", "b"), 0.5)), 0),
    "alpha": (lambda: F.alpha_dropout(X, 0.5, True), 0),
    "features": (lambda: F.dropout1d(X, 0.5), 0),
    "script": (script, 0),
    "scripted module": (lambda: torch.jit.script(copy.deepcopy(MODULE))(X), 0),
    "trace": (lambda: torch.jit.trace(lambda x: F.dropout(x, 0.5), X, check_trace=False)(X), 0),
    "trace in place": (
        lambda: torch.jit.trace(lambda x: F.dropout(x * 1, 0.5, True, True), X, check_trace=False)(X),
        0,
    ),
    "symbolic trace": (lambda: torch.fx.symbolic_trace(torch.nn.Sequential(MODULE))(X), 2),
    "vmap": (lambda: vmap(lambda x: F.dropout(x, 0.5), randomness="different")(X), 0),
    "vmap, the same": (lambda: vmap(lambda x: F.dropout(x, 0.5), randomness="same")(X), 0),
    "vmap that refuses": (lambda: vmap(lambda x: F.dropout(x, 0.5))(X), 0),
    "torch.func.grad": (lambda: grad(lambda x: F.dropout(x, 0.5).square().sum())(X), 0),
    "jvp": (lambda: jvp(lambda x: F.dropout(x, 0.5), (X,), (X,)), 0),
    "dual tensors": (dual, 0),
    "compiled": (
        lambda: trained(
            in_function(torch.compile(lambda x: F.dropout(x, 0.5) * 2, fullgraph=True, backend="aot_eager"))
        ),
        0,
    ),
    "compiled module": (
        lambda: in_function(torch.compile(copy.deepcopy(MODULE), fullgraph=True, backend="aot_eager"))(X),
        0,
    ),
    "compiled operator": (
        lambda: in_function(torch.compile(lambda x: onehop.dropout(x, 0.5), backend="aot_eager"))(X),
        0,
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_under_the_patch_everything_is_torchs(drawn, way):
    act, draws = WAYS[way]
    expected = drawing(act)
    assert drawn == [] or way == "compiled operator"
    drawn.clear()
    with onehop.patch(), thresholds.lifted():
        found = drawing(act)
    assert_identical(found, expected)
    assert len(drawn) == draws


def test_the_patch_is_reversible():
    theirs = torch._VF.dropout
    known = dict(vars(torch._VF))
    assert not known.keys() & {"dropout", "dropout_"}  # an earlier patch left none there
    with onehop.patch():
        assert set(NAMES) <= set(onehop.patched())
        assert torch._VF.dropout is not theirs
        with onehop.patch(dropout=False):
            assert torch._VF.dropout is theirs
            assert not set(NAMES) & set(onehop.patched())
        assert torch._VF.dropout is not theirs
    assert torch._VF.dropout is theirs
    assert dict(vars(torch._VF)) == known
    assert torch.dropout is theirs


def test_the_environment_leaves_dropout_alone(monkeypatch):
    monkeypatch.setenv("ONEHOP_DROPOUT", "0")
    with onehop.patch():
        assert not set(NAMES) & set(onehop.patched())


def test_only_torch():
    with onehop.patch(only="torch"):
        assert set(NAMES) <= set(onehop.patched())


def test_what_somebody_else_set_stays(monkeypatch):
    def other(input, p, train):
        return input

    monkeypatch.setitem(vars(torch._VF), "dropout", torch.dropout)
    with onehop.patch():
        torch._VF.dropout = other
    assert torch._VF.dropout is other


def test_a_backward_pass_after_the_patch_is_gone():
    x = X.clone().requires_grad_()
    torch.manual_seed(1)
    with onehop.patch(), thresholds.lifted():
        out = F.dropout(x, 0.5)
    out.sum().backward()
    assert torch.equal(x.grad, (out != 0) * 2.0)


@pytest.mark.parametrize("setting", [True, False])
@pytest.mark.parametrize("p", [0.4, 1.0])
def test_masks_of_attention_are_those_of_torch(drawn, setting, p):
    torch.manual_seed(1)
    expected = torch.dropout(torch.ones(1001, 4), p, True), torch.get_rng_state()
    torch.manual_seed(1)
    with onehop.patch(dropout=setting), thresholds.lifted():
        assert session.now.settings.dropout is setting
        found = edges.drawn(torch.empty(1001, 4), p), torch.get_rng_state()
    assert_identical(found, expected)
    assert len(drawn) == (setting and p < 1)
