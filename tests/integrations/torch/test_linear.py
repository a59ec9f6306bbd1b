"""``torch.nn.functional.linear`` under the patch: torch's numbers by any library, or torch's own."""

import contextlib
import functools
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import onehop
from onehop.graph.lending import is_shared
from onehop.integrations.torch import framework as ours
from onehop.kernels.products import BLOCKS, FORWARD, ONEDNN, TO_INPUT, TO_WEIGHT, TORCH, libraries
from onehop.ops.linear import flushed, is_large, multiply
from onehop.tuner import products
from tests.pairs import pairwise

LIBRARIES = sorted({name for kind in (FORWARD, TO_WEIGHT) for name in libraries(kind)})
SHAPES = [
    (1, 1, 1),
    (5, 1, 7),
    (7, 3, 1),
    (64, 16, 16),
    (65, 17, 15),
    (129, 33, 40),
    (513, 64, 31),
    (1, 9, 8),
]


@pytest.fixture
def patched(bounds):
    """The patch, with products of every size, in a library that the test may change."""
    bounds(product_work=0, product_block_rows=4)
    with onehop.patch(), products.forced(ONEDNN):
        yield


@pytest.fixture
def steps(monkeypatch):
    """The operands of each call that ours takes."""
    calls = []
    plain = ours.linear_step

    def noted(x, *rest, **named):
        calls.append(x)
        return plain(x, *rest, **named)

    monkeypatch.setattr(ours, "linear_step", noted)
    return calls


def operands(rows, inputs, outputs, bias=True, lead=(), dtype=torch.float32):
    generator = torch.Generator().manual_seed(rows * 1000 + inputs)
    shapes = [(*lead, rows, inputs), (outputs, inputs), *([(outputs,)] if bias else [])]
    made = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]
    return [each.requires_grad_() for each in made]


def everything(call, given):
    """Output, and gradients of a sum with weights."""
    out = call(*given)
    upstream = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).to(out.dtype).view(out.shape)
    return [out.detach(), *torch.autograd.grad(out, given, upstream)]


def as_good_as_torch(found, given, theirs=torch._C._nn.linear):
    """The error against float64 is a small multiple of torch's own."""
    exact = everything(theirs, [t.detach().double().requires_grad_() for t in given])
    for got, plain, want in zip(found, everything(theirs, given), exact, strict=True):
        assert got.shape == want.shape
        assert got.dtype == plain.dtype
        own = (plain.double() - want).abs().max()
        assert (got.double() - want).abs().max() <= 4 * own + 1e-6 * want.abs().max()


@pairwise(shape=SHAPES, bias=[False, True], library=LIBRARIES)
def test_numbers(shape, bias, library, patched, steps):
    given = operands(*shape, bias)
    with products.forced(library):
        found = everything(F.linear, given)
    assert len(steps) == 1
    as_good_as_torch(found, given)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("lead", [(3,), (2, 3)])
def test_more_dimensions(lead, library, patched, steps):
    given = operands(10, 6, 5, lead=lead)
    with products.forced(library):
        found = everything(F.linear, given)
    assert len(steps) == 1
    as_good_as_torch(found, given)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_spreads_as_in_torch(value, library, patched):
    given = operands(40, 8, 6)
    with torch.no_grad():
        given[0][7, 3] = value
    expected = everything(torch._C._nn.linear, given)
    with products.forced(library):
        found = everything(F.linear, given)
    for got, want in zip(found, expected, strict=True):
        assert torch.equal(got.isnan(), want.isnan())
        assert torch.equal(got.isinf(), want.isinf())
        torch.testing.assert_close(got, want, equal_nan=True)


@pytest.mark.parametrize("needing", [(0,), (1,), (2,), (0, 2), (1, 2), ()])
def test_some_need_gradients(needing, patched, steps):
    given = [t.detach().requires_grad_(at in needing) for at, t in enumerate(operands(30, 6, 5))]
    out = F.linear(*given)
    assert len(steps) == 1
    assert out.requires_grad == bool(needing)
    if not needing:
        return
    wanted = [given[at] for at in needing]
    found = torch.autograd.grad(out.sum(), wanted)  # an expanded gradient
    expected = torch.autograd.grad(torch._C._nn.linear(*given).sum(), wanted)
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want)


def test_no_gradients(patched, steps):
    given = operands(30, 6, 5)
    expected = torch._C._nn.linear(*given)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            out = F.linear(*given)
        assert not out.requires_grad
        torch.testing.assert_close(out, expected.detach())
    assert len(steps) == 2


def test_second_derivatives(patched, steps):
    # In float32, against torch's own: gradcheck would need float64, which is left to torch.
    def second(call):
        given = operands(9, 4, 3)
        first = torch.autograd.grad((call(*given) ** 3).sum(), given, create_graph=True)
        return torch.autograd.grad(sum((g**2).sum() for g in first), given)

    for got, want in zip(second(F.linear), second(torch._C._nn.linear), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-3)
    assert len(steps) == 1


def test_batched_gradients(patched, steps):
    given = operands(9, 4, 3)
    upstream = torch.randn(5, 9, 3, generator=torch.Generator().manual_seed(0))
    found = torch.autograd.grad(F.linear(*given), given, upstream, is_grads_batched=True)
    expected = torch.autograd.grad(torch._C._nn.linear(*given), given, upstream, is_grads_batched=True)
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want)
    assert len(steps) == 1


def test_hooks_on_parameters(patched):
    layer, seen = torch.nn.Linear(6, 5), []
    layer.weight.register_hook(lambda grad: seen.append(grad.clone()) or 2 * grad)
    x = torch.randn(30, 6, generator=torch.Generator().manual_seed(0))
    layer(x).square().sum().backward()
    torch.testing.assert_close(layer.weight.grad, 2 * seen[0])


def test_the_output_may_be_written_to(patched, steps):
    given = operands(8, 4, 3, lead=(2,))
    found = everything(lambda *of: F.linear(*of).relu_() * 2, given)
    expected = everything(lambda *of: torch._C._nn.linear(*of).relu() * 2, given)
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want)
    assert len(steps) == 1


def test_what_no_gradient_needs_may_be_written_to(patched):
    x, weight, bias = (t.detach() for t in operands(8, 4, 3))
    bias.requires_grad_()
    out = F.linear(x, weight, bias)
    x.zero_()
    weight.zero_()
    out.sum().backward()
    assert torch.equal(bias.grad, torch.full((3,), 8.0))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant, patched, steps):
    layer = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.ReLU(), torch.nn.Linear(6, 6))
    x = torch.randn(30, 6, requires_grad=True)
    wanted = [x, *layer.parameters()]

    def gradients(run):
        for each in wanted:
            each.grad = None
        run(x).square().sum().backward()
        return [each.grad for each in wanted]

    plain = gradients(layer)
    kept = gradients(functools.partial(checkpoint, layer, use_reentrant=reentrant))
    assert all(map(torch.equal, kept, plain))
    assert len(steps) == 6


def test_memory_that_is_shared_until_somebody_writes_stays_so(patched, steps):
    x, weight, bias = operands(30, 6, 5)
    shared = torch._lazy_clone(x.detach())
    F.linear(shared, weight, bias).sum().backward()
    assert len(steps) == 1
    assert is_shared(shared)
    torch.testing.assert_close(weight.grad, x.detach().sum(0).expand(5, 6))


class _Sub(Tensor):
    pass


def _with(**changed):
    """A call on operands of which some are changed."""

    def call():
        x, weight, bias = (t.detach() for t in operands(30, 6, 5))
        given = {"input": x, "weight": weight, "bias": bias}
        return F.linear(**given | {name: change(given[name]) for name, change in changed.items()})

    return call


def _inside(context):
    def call():
        with context():
            return _with()()

    return call


@contextlib.contextmanager
def _without_onednn():
    # As torch.backends.mkldnn.flags(enabled=False) does, which warns of other flags.
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(True)


def _mapped():
    x, weight, bias = operands(30, 6, 5, lead=(2,))
    return torch.vmap(lambda each: F.linear(each, weight, bias))(x)


def _traced():
    x, weight, bias = (t.detach() for t in operands(30, 6, 5))
    return torch.jit.trace(lambda each: F.linear(each, weight, bias), x, check_trace=False)(x)


def _dual():
    x, weight, bias = operands(30, 6, 5)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        return torch.autograd.forward_ad.unpack_dual(F.linear(dual, weight, bias)).tangent


class _Mode(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "call",
    [
        _with(input=lambda x: x.as_subclass(_Sub)),
        _with(weight=lambda w: w.as_subclass(_Sub)),
        _with(bias=lambda b: b.as_subclass(_Sub)),
        _with(input=lambda x: x.t().contiguous().t()),
        _with(input=lambda x: x[:1].expand(30, 6)),
        _with(weight=lambda w: w.t().contiguous().t()),
        _with(weight=lambda w: w[0], bias=lambda b: None),
        _with(input=lambda x: x[0]),
        _with(input=lambda x: x[:0]),
        _with(input=lambda x: x.double(), weight=lambda w: w.double(), bias=lambda b: b.double()),
        _with(input=lambda x: x.bfloat16(), weight=lambda w: w.bfloat16(), bias=lambda b: b.bfloat16()),
        _with(input=lambda x: x.to("meta"), weight=lambda w: w.to("meta"), bias=lambda b: b.to("meta")),
        _with(weight=lambda w: w.to_sparse(), bias=lambda b: None),
        _with(bias=lambda b: b[:1]),
        _inside(lambda: torch.autocast("cpu")),
        _inside(_without_onednn),
        _inside(_Mode),
        _mapped,
        _traced,
        _dual,
    ],
    ids=[
        "subclass",
        "subclass as weight",
        "subclass as bias",
        "columns",
        "expanded",
        "columns of the weight",
        "a vector as weight",
        "a vector",
        "empty",
        "float64",
        "bfloat16",
        "another device",
        "sparse weight",
        "one number as bias",
        "autocast",
        "without oneDNN",
        "dispatch mode",
        "vmap",
        "trace",
        "forward mode",
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
def test_what_is_unusual_is_left_to_torch(call, patched, steps):
    found = call()
    assert steps == []
    with onehop.patch() as handle, handle.paused():
        expected = call()
    assert type(found) is type(expected)
    if not found.is_meta:
        assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("switch", "state", "value"),
    [
        (torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled, True),
        (torch.set_float32_matmul_precision, torch.get_float32_matmul_precision, "high"),
    ],
)
def test_settings_that_torch_alone_fulfils(switch, state, value, patched, steps):
    before = state()
    switch(value)
    try:
        _with()()
    finally:
        switch(before)
    assert steps == []
    _with()()
    assert len(steps) == 1


@pytest.mark.parametrize(
    "shape", [((30, 6), (5, 7), (5,)), ((30, 6), (5, 6), (4,)), ((30, 6), (5, 6, 1), None)]
)
def test_errors_are_torchs(shape, patched):
    given = [None if each is None else torch.ones(each) for each in shape]
    with pytest.raises(RuntimeError) as found:
        F.linear(*given)
    with pytest.raises(RuntimeError) as expected:
        torch._C._nn.linear(*given)
    assert str(found.value) == str(expected.value)


def test_inference_tensors_are_an_error_of_torchs(patched):
    with torch.inference_mode():
        x = torch.ones(30, 6)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved"):
        F.linear(x, torch.ones(5, 6, requires_grad=True))


@pytest.mark.usefixtures("ordinary_bounds")
def test_small_products_are_left_to_torch(steps):
    with onehop.patch():
        F.linear(torch.ones(1000, 64), torch.ones(64, 64))
    assert steps == []


@pytest.mark.parametrize(
    ("x", "weight", "large"),
    [
        ((4, 2), (8, 2), True),  # 64 products of numbers: just enough
        ((4, 2), (7, 2), False),
        ((2, 8), (4, 8), True),
        ((2, 8), (3, 8), False),
        ((2, 2, 8), (2, 8), True),
    ],
)
def test_products_are_large_by_rows_and_both_widths(x, weight, large, steps, bounds):
    bounds(product_work=64)
    with onehop.patch(), products.forced(ONEDNN):
        F.linear(torch.ones(x), torch.ones(weight))
    assert len(steps) == large


def test_the_patch_is_reversible():
    theirs = F.linear
    with onehop.patch():
        assert F.linear is not theirs
        assert "torch.nn.functional.linear" in onehop.patched()
        named = F.linear
        with onehop.patch(products=False):
            assert F.linear is theirs
        assert F.linear is named
    assert F.linear is theirs is torch._C._nn.linear


def test_off_by_the_environment(monkeypatch):
    monkeypatch.setenv("ONEHOP_PRODUCTS", "0")
    with onehop.patch():
        assert F.linear is torch._C._nn.linear


def test_pickles_by_name(patched):
    kept = pickle.dumps(F.linear)
    with onehop.patch() as handle, handle.paused():
        assert pickle.loads(kept) is F.linear
    assert pickle.loads(kept) is F.linear


def test_torchscript_compiles_the_operator(patched, steps):
    layer = torch.nn.Linear(6, 5)
    scripted = torch.jit.script(layer)
    assert "torch.linear(" in scripted.code
    x = torch.ones(30, 6)
    torch.testing.assert_close(scripted(x), layer(x))
    assert len(steps) == 1  # of the layer itself


def test_fx_records_the_same_as_without_the_patch(patched):
    class Model(torch.nn.Module):
        def forward(self, x, weight):
            return F.linear(x, weight)

    with onehop.patch() as handle, handle.paused():
        expected = torch.fx.symbolic_trace(Model()).code
    assert torch.fx.symbolic_trace(Model()).code == expected


def test_a_backward_pass_after_the_patch(bounds):
    bounds(product_work=0)
    given = operands(30, 6, 5)
    with onehop.patch():
        out = F.linear(*given)
    found = torch.autograd.grad(out.square().sum(), given)
    expected = torch.autograd.grad(torch._C._nn.linear(*given).square().sum(), given)
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_same_bits_again(library, patched):
    given = operands(513, 64, 31)
    with products.forced(library):
        assert all(map(torch.equal, everything(F.linear, given), everything(F.linear, given)))


@pytest.mark.parametrize("library", sorted(libraries(FORWARD)))
def test_rows_are_added(library):
    x, weight = (t.detach() for t in operands(40, 6, 5, bias=False))
    added = torch.randn(40, 5, generator=torch.Generator().manual_seed(1))
    kept = added.clone()
    with products.forced(library):
        out = multiply(FORWARD, x, weight, added)
    torch.testing.assert_close(out, x @ weight.t() + added)
    assert torch.equal(added, kept)


def smeared(rows, centres=50):
    """Distances smeared by Gaussians, as SchNet's: one number in 30 is denormal."""
    distances = 10 * torch.rand(rows, 1, generator=torch.Generator().manual_seed(2))
    return torch.exp(-12.5 * (distances - torch.linspace(0, 10, centres)).square())


def is_denormal(x):
    return (x != 0) & (x.abs() < torch.finfo(torch.float32).tiny)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("rows", [40, 70_000])
def test_denormal_numbers_become_0(rows, sign):
    x = sign * smeared(rows)
    x[3, :3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    kept, small = x.clone(), is_denormal(x)
    assert small.any()
    found = flushed(x)
    assert torch.equal(x.view(torch.int32), kept.view(torch.int32))
    assert torch.equal(found.view(torch.int32), torch.where(small, 0 * x, x).view(torch.int32))


@pytest.mark.parametrize("column", range(3))
def test_no_column_is_left_out_of_the_sample(column):
    x = torch.ones(100_000, 3)
    x[:, column] = 1e-39
    assert not is_denormal(flushed(x)).any()


def test_other_operands_stay():
    for x in (torch.ones(30, 4), torch.zeros(3, 3), torch.full((4, 4), 1e-39), torch.ones(0, 4)):
        assert flushed(x) is x
    zeros = torch._efficientzerotensor((4, 4))
    assert flushed(zeros) is zeros
    # Beside numbers that are all this small, denormals matter.
    x = 1e-20 * smeared(40)
    assert flushed(x) is x


@pytest.mark.parametrize("library", LIBRARIES)
def test_gradients_with_denormal_numbers(library, patched):
    given = [smeared(513).requires_grad_(), *operands(1, 50, 31)[1:]]
    with products.forced(library):
        found = everything(F.linear, given)
    expected = everything(F.linear, [each.detach().double().requires_grad_() for each in given])
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4)


def test_names_of_libraries():
    # A release of torch without oneDNN's product must be noticed here.
    assert list(libraries(FORWARD)) == list(libraries(TO_INPUT)) == [TORCH, ONEDNN]
    assert {TORCH, BLOCKS, ONEDNN} <= set(libraries(TO_WEIGHT))


@pytest.mark.parametrize("kind", [FORWARD, TO_INPUT, TO_WEIGHT])
def test_what_may_run_elsewhere(kind, bounds):
    bounds(product_work=64)
    left, right = (torch.ones(4, 4) for _ in range(2))
    assert is_large(kind, left, right)
    assert not is_large(kind, torch.ones(3, 4), right[:3] if kind == TO_WEIGHT else right)
    assert not is_large(kind, left.t()[:, :4].t().mT, right)
    assert not is_large(kind, left, right.t())
    assert not is_large(kind, left.double(), right.double())
    assert not is_large(kind, torch._neg_view(left), right)
    assert not is_large(kind, left, torch._neg_view(right))
    bounds(product_work=0)
    assert not is_large(kind, torch.ones(0, 4), torch.ones(0, 4) if kind == TO_WEIGHT else right)
