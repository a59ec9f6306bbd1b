import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import onehop
from onehop.bench.peers.dgl import help_import
from onehop.integrations import reports

# Before any test of this folder imports DGL.
help_import()


@pytest.fixture(autouse=True)
def _unpatched_afterwards() -> Iterator[None]:
    """Each test begins and ends without a patch and with an empty cache."""
    yield
    onehop.unpatch()
    onehop.clear_cache()
    assert onehop.patched() == ()


def _evaluate(function: Callable[..., Any], leaves: dict[str, torch.Tensor], module: Any) -> dict[str, Any]:
    """Results and every gradient, by name, on fresh copies."""
    module = copy.deepcopy(module)
    fresh = {name: leaf.detach().clone().requires_grad_() for name, leaf in leaves.items()}
    torch.manual_seed(3)
    result = function(**fresh) if module is None else function(module, **fresh)
    results = result if isinstance(result, tuple) else (result,)
    generator = torch.Generator().manual_seed(7)
    total = sum(
        (out * torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype))
        .masked_fill(out.isinf(), 0)
        .sum()
        for out in results
    )
    total.backward()
    found = {f"result {i}": out.detach() for i, out in enumerate(results)}
    named = [*fresh.items(), *(() if module is None else module.named_parameters())]
    return found | {f"gradient of {name}": leaf.grad for name, leaf in named if leaf.grad is not None}


@pytest.fixture
def same_as_dgl() -> Callable[..., list[str | None]]:
    """Compares results and gradients with DGL's own; for each call, None or the reason of a refusal."""

    def run(
        function: Callable[..., Any], module: torch.nn.Module | None = None, **leaves: torch.Tensor
    ) -> list[str | None]:
        expected = _evaluate(function, leaves, module)
        with onehop.patch(only="dgl"), reports.recorded() as calls:
            found = _evaluate(function, leaves, module)
        assert found.keys() == expected.keys()
        for name, want in expected.items():
            torch.testing.assert_close(found[name], want, msg=lambda text, name=name: f"{name}: {text}")
        return [call.reason for call in calls]

    return run
