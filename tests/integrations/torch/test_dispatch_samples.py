"""torch's own samples of arguments, and of errors, of all operators whose kernels may be ours."""

import copy
import gc
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import CrossRefFakeMode
from torch.autograd import forward_ad
from torch.func import vmap
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

from tests.integrations.same import Raised, outcome
from tests.integrations.torch.dispatched import patched, same, served

pytestmark = pytest.mark.filterwarnings("ignore")

REDUCTIONS = tuple(f"scatter_reduce {reduce}" for reduce in ("amax", "amin", "mean", "prod", "sum"))
SEGMENTS = ("_segment_reduce lengths", "_segment_reduce offsets")
# The names of what is counted, by torch's names of operators; None where our code may leave all samples.
COUNTED = {
    "__getitem__": "x[index]",
    "index_select": "index_select",
    "index_put": "index_put",
    "index_add": None,
    "gather": None,
    "take_along_dim": None,
    "scatter_add": None,
    "scatter": None,
    **dict.fromkeys(REDUCTIONS),
    **dict.fromkeys(SEGMENTS),
    "masked_select": None,
    "mm": "mm",
    "addmm": None,
    "addmm decomposed": None,
    "bmm": None,
    "nn.functional.linear": "addmm",
    "nn.functional.embedding": "index_select",
    "nn.functional.embedding_bag": None,
    "unique": None,
    "sort": None,
    "isin": None,
}
WITH_ERRORS = (
    *("gather", "index_select", "index_add", "scatter_add", "scatter"),
    *("masked_select", "nn.functional.embedding"),
)
DTYPES = (
    torch.float64,
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.complex64,
    torch.int64,
    torch.bool,
)
ROUNDING = {torch.float64: 1e-10, torch.float32: 1e-4, torch.complex64: 1e-4, torch.float16: 1e-2}
each_name = pytest.mark.parametrize("name", COUNTED)


@pytest.fixture(scope="module")
def infos() -> Iterator[dict[str, Any]]:
    """What torch tells of its operators, which takes seconds to import and packages that its tests need."""
    pytest.importorskip("expecttest")
    invocations = pytest.importorskip("torch.testing._internal.common_methods_invocations")
    every = {f"{each.name} {each.variant_test_name}".strip(): each for each in invocations.op_db}
    # Hundreds of thousands of objects, which every patch would wait for.
    gc.collect()
    gc.freeze()
    with pytest.MonkeyPatch.context() as patch:
        # It looks for a test of unittest in the stack, for a tenth of a second each time.
        core = importlib.import_module("torch.testing._internal.opinfo.core")
        patch.setattr(core, "extract_test_fn", lambda: None, raising=False)
        yield {name: every[name] for name in COUNTED}


def operator(info: Any) -> Callable[..., Any]:
    """Its function; PyG has replaced one of torch's, and takes no numbers."""
    function: Callable[..., Any] = info.method_variant if info.name == "index_select" else info.op
    return function


def samples(info: Any, dtype: torch.dtype, needs: bool, most: int = 20) -> list[Any]:
    """Some of the arguments, the same each time; none where torch has no kernel for a dtype."""
    if not info.supports_dtype(dtype, "cpu"):
        return []
    torch.manual_seed(0)
    every = list(info.sample_inputs("cpu", dtype, requires_grad=needs))
    return every[:: -(-len(every) // most)]


def detached(sample: Any) -> Any:
    """Its arguments: copies, of which those that need a gradient are leaves."""
    return tree_map_only(
        Tensor,
        lambda each: each.detach().clone().requires_grad_(each.requires_grad),
        (sample.input, sample.args, sample.kwargs),
    )


Run = Callable[[Any], Any]


def compare(run: Run, every: list[Any], tolerance: float) -> None:
    """Fails unless a function of a sample gives the same under the patch: results or errors."""
    expected = [outcome(lambda sample=sample: run(sample)) for sample in every]
    with patched():
        found = [outcome(lambda sample=sample: run(sample)) for sample in every]
    for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        try:
            same(ours, theirs, tolerance, tolerance)
        except AssertionError as error:
            raise AssertionError(f"sample {number}, {every[number].summary()}: {error}") from error


def differentiable(tree: Any) -> list[Tensor]:
    """Its tensors that need a gradient."""
    return [each for each in tree_leaves(tree) if isinstance(each, Tensor) and each.requires_grad]


def weighted(outs: list[Tensor]) -> Tensor:
    """A sum of results in which each number counts differently."""
    total = torch.zeros((), dtype=torch.float64)
    for each in outs:
        weights = torch.linspace(-1, 1, each.numel(), dtype=torch.float64).view(each.shape)
        real = torch.view_as_real(each).sum(-1) if each.is_complex() else each
        total = total + (real.double() * weights).sum()
    return total


def derivatives(out: Any, given: Any, twice: bool) -> Any:
    """Gradients, and the gradients of their squares; None where there is none."""
    wanted, outs = differentiable(given), differentiable(out)
    if not (wanted and outs):
        return None
    first = torch.autograd.grad(weighted(outs), wanted, create_graph=twice, allow_unused=True)
    if not twice:
        return first
    again = [each.abs().square() for each in first if each is not None and each.requires_grad]
    if not again:
        return first
    return first, torch.autograd.grad(weighted(again), wanted, allow_unused=True)


@pytest.mark.parametrize(("name", "counted"), [each for each in COUNTED.items() if each[1]])
def test_our_code_runs(infos: dict[str, Any], name: str, counted: str) -> None:
    every = samples(infos[name], torch.float32, False, most=15)
    with served() as names:
        for sample in every:
            operator(infos[name])(sample.input, *sample.args, **sample.kwargs)
    assert counted in names


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@each_name
def test_results_and_gradients(infos: dict[str, Any], name: str, dtype: torch.dtype) -> None:
    info = infos[name]
    needs = (dtype.is_floating_point or dtype.is_complex) and info.supports_autograd
    every = samples(info, dtype, needs, most=60 if dtype is torch.float64 else 15)
    assert every or dtype is not torch.float64

    def run(sample: Any) -> Any:
        given = detached(sample)
        out = operator(info)(given[0], *given[1], **given[2])
        twice = info.supports_gradgrad and dtype in (torch.float64, torch.complex64)
        return out, outcome(lambda: derivatives(out, given, twice))

    compare(run, every, ROUNDING.get(dtype, 3e-2))


def into(sample: Any, info: Any, empty: bool) -> Any:
    """What it gives in results of the caller's."""
    x, args, kwargs = detached(sample)
    like = operator(info)(x, *args, **kwargs)
    given = tree_map_only(Tensor, lambda each: each.new_full((0,) if empty else each.shape, 3), like)
    out = operator(info)(x, *args, **kwargs, out=given)
    return out, [each._version for each in tree_leaves(given)], out is given


@each_name
def test_forms(infos: dict[str, Any], name: str) -> None:
    info = infos[name]

    def of(function: Callable[..., Any]) -> Run:
        def run(sample: Any) -> Any:
            given = detached(sample)
            out = function(given[0], *given[1], **given[2])
            return out, derivatives(out, given, False)

        return run

    def in_inference(*args: Any, **kwargs: Any) -> Any:
        with torch.inference_mode():
            return tree_map_only(Tensor, Tensor.clone, operator(info)(*args, **kwargs))

    learning = samples(info, torch.float64, info.supports_autograd)
    fixed = samples(info, torch.float64, False, most=15)
    compare(of(in_inference), fixed, 1e-10)
    if info.method_variant is not None:
        compare(of(info.method_variant), learning, 1e-10)
    if info.inplace_variant is not None:
        compare(
            of(lambda x, *args, **kwargs: info.inplace_variant(x.mul(1), *args, **kwargs)), learning, 1e-10
        )
    if info.supports_out:
        compare(lambda sample: into(sample, info, empty=False), fixed, 1e-10)
        compare(lambda sample: into(sample, info, empty=True), fixed, 1e-10)


@each_name
def test_forward_derivatives(infos: dict[str, Any], name: str) -> None:
    def run(sample: Any) -> Any:
        with forward_ad.dual_level():
            given = tree_map_only(
                Tensor,
                lambda each: forward_ad.make_dual(each, each + 1) if each.is_floating_point() else each,
                detached(sample),
            )
            out = operator(infos[name])(given[0], *given[1], **given[2])
            return [tuple(forward_ad.unpack_dual(each)) for each in tree_leaves(out)]

    # torch has none of some, and says so.
    compare(run, samples(infos[name], torch.float64, False), 1e-10)


def of_floats(info: Any, sample: Any) -> tuple[Callable[..., Any], list[Tensor]]:
    """The operator as a function of its floating-point tensors, and these."""
    leaves, form = tree_flatten(detached(sample))
    places = [n for n, each in enumerate(leaves) if isinstance(each, Tensor) and each.is_floating_point()]

    def function(*floats: Tensor) -> Any:
        given = list(leaves)
        for place, each in zip(places, floats, strict=True):
            given[place] = each
        x, args, kwargs = tree_unflatten(given, form)
        return operator(info)(x, *args, **kwargs)

    return function, [leaves[place] for place in places]


@each_name
def test_batches(infos: dict[str, Any], name: str) -> None:
    def run(sample: Any) -> Any:
        function, floats = of_floats(infos[name], sample)
        return vmap(function)(*(torch.stack([each, each - 1]) for each in floats))

    compare(run, samples(infos[name], torch.float64, False), 1e-10)


@each_name
def test_traces(infos: dict[str, Any], name: str) -> None:
    def run(sample: Any) -> Any:
        function, floats = of_floats(infos[name], sample)
        traced = torch.jit.trace(function, tuple(floats), check_trace=False)
        return traced(*(each + 1 for each in floats)), [node.kind() for node in traced.graph.nodes()]

    compare(run, samples(infos[name], torch.float64, False, most=15), 1e-10)


@pytest.mark.parametrize("name", [each for each in COUNTED if each not in ("unique", "sort", "isin")])
def test_fake_tensors_agree(infos: dict[str, Any], name: str) -> None:
    """Under the patch too, sizes and strides are those that torch predicts."""

    def run(sample: Any) -> Any:
        given = detached(sample)
        with CrossRefFakeMode():
            return operator(infos[name])(given[0], *given[1], **given[2])

    compare(run, samples(infos[name], torch.float64, True, most=15), 1e-10)


@pytest.mark.parametrize("name", WITH_ERRORS)
def test_errors(infos: dict[str, Any], name: str) -> None:
    info = infos[name]
    torch.manual_seed(0)
    every = list(info.error_inputs(torch.device("cpu")))
    assert every

    def told(sample: Any) -> Any:
        x, args, kwargs = copy.deepcopy((sample.input, sample.args, sample.kwargs))
        return outcome(lambda: operator(info)(x, *args, **kwargs))

    expected = [told(each.sample_input) for each in every]
    assert {type(each) for each in expected} == {Raised}
    with patched():
        assert [told(each.sample_input) for each in every] == expected
