"""With the patch as without: how the tests of this folder compare what programs compute.

A test gives a function of no arguments, which returns tensors, however nested, or raises. ``same`` calls it
without the patch and under it.
"""

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import onehop
from onehop.integrations import reports

Run = Callable[[], Any]
# Tolerances: of float32, of 16 bits, and of what must be the same bits.
SINGLE = {"rtol": 1e-5, "atol": 1e-6}
HALF = {"rtol": 0.05, "atol": 0.05}
BITS = {"rtol": 0.0, "atol": 0.0}


class Raised(NamedTuple):
    """An error."""

    kind: type[BaseException]
    words: str


def outcome(run: Run) -> Any:
    """What a function returns, or the error that it raises."""
    try:
        return run()
    except Exception as error:  # of any kind: two are compared
        return Raised(type(error), str(error))


def assert_same(found: Any, expected: Any, rtol: float = 1e-9, atol: float = 1e-9) -> None:
    """Equal errors, or close tensors: nested alike, of the same dtypes, and None in the same places."""
    if isinstance(expected, Raised) or isinstance(found, Raised):
        assert found == expected
    else:
        torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, equal_nan=True)


def assert_identical(found: Any, expected: Any, where: Any = "") -> None:
    """Equal errors, numbers or bits: nested alike, and of the same types, dtypes, layouts and strides."""
    assert type(found) is type(expected), where
    if isinstance(expected, dict):
        assert list(found) == list(expected), where
        for name, each in expected.items():
            assert_identical(found[name], each, name)
    elif isinstance(expected, tuple | list):
        for one, other in zip(found, expected, strict=True):
            assert_identical(one, other, where)
    elif isinstance(expected, Tensor):
        about = [(x.dtype, x.shape, x.stride(), x.requires_grad, x.layout) for x in (found, expected)]
        assert about[0] == about[1], where
        assert torch.equal(found, expected), where
    else:
        assert found == expected, where


def seeded(run: Run) -> tuple[Any, Tensor]:
    """The outcome with random numbers that are the same each time, and the generator's state afterwards."""
    torch.manual_seed(3)
    return outcome(run), torch.get_rng_state()


def same(
    run: Run, rtol: float = 1e-9, atol: float = 1e-9, times: int = 2, errors: bool = False, **options: Any
) -> list[reports.Call]:
    """Compares what a function gives under the patch with what it gives without, random numbers included.

    Args:
        run: Called once without the patch, then under it.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        times: How often it is called under the patch; it is called once more for the report.
        errors: Whether it may raise, the same each time.
        options: Of ``onehop.patch``.

    Returns:
        How each propagation went.
    """
    expected, state = seeded(run)
    assert errors or not isinstance(expected, Raised), expected
    with onehop.patch(**options):
        for _ in range(times):
            found, after = seeded(run)
            assert_same(found, expected, rtol, atol)
            assert torch.equal(after, state), "other random numbers were drawn"
        with reports.recorded() as calls:
            found, _ = seeded(run)
    assert_same(found, expected, rtol, atol)
    return calls


def reasons(calls: list[reports.Call]) -> list[str | None]:
    """None for each propagation that onehop ran, or the sentence with which it left it to the framework."""
    return [call.reason for call in calls]


def fast(run: Run, **more: Any) -> list[reports.Call]:
    """``same``, where onehop runs every propagation."""
    calls = same(run, **more)
    assert calls
    assert set(reasons(calls)) == {None}, reasons(calls)
    return calls


def forms(calls: list[reports.Call]) -> list[str]:
    """What ran in each propagation: the form, or why there was none."""
    return [call.reason or call.form for call in calls]


def refused(run: Run, sentence: str, **more: Any) -> list[reports.Call]:
    """``same``, where the framework runs every propagation, for a reason that contains a sentence."""
    calls = same(run, **more)
    assert calls
    for call in calls:
        assert call.reason is not None
        assert sentence in call.reason
    return calls


def same_after(run: Run, change: Run, times: int = 1, **tolerances: float) -> None:
    """What was kept before a change is not used after it."""
    with onehop.patch():
        for _ in range(times):
            run()
        change()
        found, _ = seeded(run)
    expected, _ = seeded(run)
    assert not isinstance(expected, Raised), expected
    assert_same(found, expected, **tolerances)


def same_error(run: Run, **options: Any) -> None:
    """The patch raises what is raised without it."""
    expected = outcome(run)
    assert isinstance(expected, Raised)
    with onehop.patch(**options):
        assert outcome(run) == expected


def leaves_in(*values: Any) -> list[Tensor]:
    """The tensors that need a gradient, in modules, dictionaries and sequences too."""
    found: list[Tensor] = []
    for each in values:
        if isinstance(each, torch.nn.Module):
            found += leaves_in(*each.parameters())
        elif isinstance(each, dict):
            found += leaves_in(*each.values())
        elif isinstance(each, tuple | list):
            found += leaves_in(*each)
        elif isinstance(each, Tensor) and each.requires_grad:
            found.append(each)
    return found


def _tensors_in(out: Any) -> list[Tensor]:
    if isinstance(out, dict):
        out = list(out.values())
    if isinstance(out, tuple | list):
        return [tensor for each in out for tensor in _tensors_in(each)]
    return [out] if isinstance(out, Tensor) and out.is_floating_point() else []


def learned(out: Any, *values: Any) -> list[Any]:
    """What came out, and the gradients of a weighted sum to all leaves in some values."""
    outs = [each for each in _tensors_in(out) if each.requires_grad]
    weighted = [
        each * torch.linspace(-1, 1, each.numel(), dtype=each.dtype).view(each.shape) for each in outs
    ]
    total = sum(each.double().sum() for each in weighted)
    return [out, *torch.autograd.grad(total, leaves_in(*values), allow_unused=True)]


def twice(out: Tensor, *values: Any) -> list[Tensor]:
    """Gradients to all leaves in some values, and the gradients of their squares."""
    wanted = leaves_in(*values)
    first = torch.autograd.grad(out.sin().sum(), wanted, create_graph=True, materialize_grads=True)
    total = sum(each.square().sum() for each in first)
    return [*first, *torch.autograd.grad(total, wanted, materialize_grads=True)]


def step(call: Any, *args: Any, **kwargs: Any) -> Run:
    """A forward and backward pass of a model, or of a function that is given one, on fresh copies.

    It returns what came out, and the gradients of all floating-point operands and parameters.
    """

    def run() -> list[Any]:
        fresh, given, named = as_leaves(call), as_leaves(args), as_leaves(kwargs)
        return learned(fresh(*given, **named), given, named, fresh)

    return run


def as_leaves(value: Any) -> Any:
    """Copies of modules, and of floating-point tensors, which need a gradient; nested as they are given."""
    if isinstance(value, dict):
        return {name: as_leaves(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(map(as_leaves, value))
    if isinstance(value, Tensor) and value.is_floating_point() and value.layout is torch.strided:
        return value.detach().clone().requires_grad_()
    return copy.deepcopy(value) if isinstance(value, torch.nn.Module) else value


@contextlib.contextmanager
def saved_sizes() -> Iterator[list[int]]:
    """The numbers of entries of the tensors that autograd saves for the backward pass."""
    sizes: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        yield sizes


def noted(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, note: Callable[..., Any] = lambda *args, **_: args
) -> list[Any]:
    """An entry for each call of a function from now on: its arguments, or what ``note`` makes of them."""
    calls: list[Any] = []
    real = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        calls.append(note(*args, **kwargs))
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)
    return calls
