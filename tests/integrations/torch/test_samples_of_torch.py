"""torch's own samples of arguments for indexing, gathers and scatters, and of arguments that are errors."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric  # noqa: F401 - it replaces torch.index_select when it is imported
from torch import Tensor

import onehop
from onehop import thresholds

WITH_ERRORS = ("gather", "index_select", "index_add", "scatter_add")
REDUCTIONS = tuple(f"scatter_reduce {reduce}" for reduce in ("amax", "amin", "mean", "prod", "sum"))
IN_PLACE = ("index_add", "scatter_add", *REDUCTIONS)
NAMES = ("__getitem__", *WITH_ERRORS, *REDUCTIONS)
KINDS = [(torch.int64, False)] + [
    (dtype, needs) for dtype in (torch.float64, torch.float32, torch.bfloat16) for needs in (True, False)
]


@pytest.fixture(scope="module")
def infos() -> dict[str, Any]:
    """What torch tells of its operations, which takes seconds to import and packages that its tests need."""
    invocations = pytest.importorskip("torch.testing._internal.common_methods_invocations")
    every = {f"{each.name} {each.variant_test_name}".strip(): each for each in invocations.op_db}
    return {name: every[name] for name in NAMES}


def outcome(function: Callable[..., Tensor], sample: Any) -> list[Tensor]:
    """The result, and the gradients to the operands that need one."""
    values = (sample.input, *sample.args, *sample.kwargs.values())
    wanted = [each for each in values if isinstance(each, Tensor) and each.requires_grad]
    out = function(sample.input, *sample.args, **sample.kwargs)
    found = [out.detach().clone()]
    if out.requires_grad and wanted:
        factor = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
        grads = torch.autograd.grad((out * factor).sum(), wanted, allow_unused=True)
        found += [torch.zeros(0) if each is None else each for each in grads]
    return found


def compare(function: Callable[..., Tensor], samples: Callable[[], list[Any]], tolerance: float) -> None:
    expected = [outcome(function, sample) for sample in samples()]
    assert expected
    with onehop.patch(), thresholds.lifted():
        found = [outcome(function, sample) for sample in samples()]
    for ours, theirs in zip(found, expected, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)


def runs(info: Any) -> Callable[..., Tensor]:
    """The method by its name, which is looked up under the patch too."""
    # Not the function of torch: PyG replaces torch.index_select.
    return lambda x, *args, **kwargs: getattr(x, info.name)(*args, **kwargs)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("dtype", "needs"), KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_samples(infos: dict[str, Any], name: str, dtype: torch.dtype, needs: bool) -> None:
    info = infos[name]
    assert info.supports_dtype(dtype, "cpu")

    def samples() -> list[Any]:
        torch.manual_seed(0)
        return list(info.sample_inputs("cpu", dtype, requires_grad=needs))

    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 3e-2)
    compare(runs(info), samples, tolerance)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", IN_PLACE)
def test_samples_in_place(infos: dict[str, Any], name: str) -> None:
    info = infos[name]
    method = f"{info.name}_"

    def samples() -> list[Any]:
        torch.manual_seed(0)
        every = info.sample_inputs("cpu", torch.float64, requires_grad=True)
        return [each for each in every if not each.broadcasts_input]

    compare(lambda x, *args, **kwargs: getattr(x.mul(1), method)(*args, **kwargs), samples, 1e-12)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WITH_ERRORS)
def test_errors(infos: dict[str, Any], name: str) -> None:
    info = infos[name]

    def told() -> list[str]:
        torch.manual_seed(0)
        sentences = []
        for each in info.error_inputs(torch.device("cpu")):
            sample = each.sample_input
            with pytest.raises(each.error_type) as error:
                getattr(torch, info.name)(sample.input, *sample.args, **sample.kwargs)
            sentences.append(str(error.value))
        return sentences

    expected = told()
    with onehop.patch(), thresholds.lifted():
        assert told() == expected
