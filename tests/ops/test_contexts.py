"""Hooks on saved tensors are found, whichever way a release of torch allows."""

import pytest
import torch
from torch.autograd.graph import disable_saved_tensors_hooks, save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from onehop.ops import contexts

WAYS = [contexts.saving_is_watched, contexts._is_watched_by_trying]


@pytest.mark.parametrize("watched", WAYS)
def test_hooks_are_found_while_they_are_there(watched) -> None:
    assert not watched()
    with saved_tensors_hooks(lambda x: x, lambda x: x):
        assert watched()
        with save_on_cpu():
            assert watched()
        assert watched()
    assert not watched()


@pytest.mark.parametrize("watched", WAYS)
def test_checkpoints_are_found(watched) -> None:
    found = []

    def function(x: torch.Tensor) -> torch.Tensor:
        found.append(watched())
        return x.exp()

    checkpoint(function, torch.ones(2, requires_grad=True), use_reentrant=False).sum().backward()
    assert found == [True, True]


@pytest.mark.parametrize("watched", WAYS)
def test_asking_changes_nothing(watched) -> None:
    packed = []
    with saved_tensors_hooks(lambda x: packed.append(x) or x, lambda x: x):
        assert watched()
        torch.ones(2, requires_grad=True).exp()
        assert len(packed) == 1
    with disable_saved_tensors_hooks("forbidden by the test"):
        assert not watched()
        with (
            pytest.raises(RuntimeError, match="forbidden by the test"),
            saved_tensors_hooks(lambda x: x, lambda x: x),
        ):
            pass
    watched()
    with saved_tensors_hooks(lambda x: x, lambda x: x):
        assert watched()


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_trace_is_found() -> None:
    found = []

    def function(x: torch.Tensor) -> torch.Tensor:
        found.append(contexts.context_reason())
        return x + 1

    torch.jit.trace(function, torch.ones(2), check_trace=False)
    assert found == ["torch.jit.trace is at work"]
    assert contexts.context_reason() is None
