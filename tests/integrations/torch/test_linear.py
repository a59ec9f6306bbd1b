"""``torch.nn.functional.linear`` under the patch: torch's numbers by any library, or torch's own."""

import contextlib
import functools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import onehop
from onehop import native
from onehop.graph.lending import is_shared
from onehop.integrations.torch import dense
from onehop.kernels.products import BLOCKS, FORWARD, ONEDNN, TO_WEIGHT, libraries
from onehop.tuner import products
from tests.integrations.same import assert_same, learned, noted, twice
from tests.pairs import pairwise

LIBRARIES = sorted({name for kind in (FORWARD, TO_WEIGHT) for name in libraries(kind)})


def torchs_linear(*operands):
    """A linear step, which these tests run in torch's own kernels."""
    return F.linear(*operands)


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
    """The kinds of the products that a library of our choice made."""
    return noted(monkeypatch, dense, "multiply", lambda kind, *_, **__: kind)


def operands(rows, inputs, outputs, bias=True, lead=(), dtype=torch.float32):
    generator = torch.Generator().manual_seed(rows * 1000 + inputs)
    shapes = [(*lead, rows, inputs), (outputs, inputs), *([(outputs,)] if bias else [])]
    made = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]
    return [each.requires_grad_() for each in made]


def everything(call, given):
    """Output, and gradients of a sum with weights; of torchs_linear in torch's own kernels."""
    with native.torchs_kernels() if call is torchs_linear else contextlib.nullcontext():
        return [each.detach() for each in learned(call(*given), given)]


def as_good_as_torch(found, given, theirs=torchs_linear):
    """The error against float64 is a small multiple of torch's own."""
    exact = everything(theirs, [t.detach().double().requires_grad_() for t in given])
    for got, plain, want in zip(found, everything(theirs, given), exact, strict=True):
        assert got.shape == want.shape
        assert got.dtype == plain.dtype
        own = (plain.double() - want).abs().max()
        assert (got.double() - want).abs().max() <= 4 * own + 1e-6 * want.abs().max()


def same_as_torch(run: Callable[[Callable[..., Tensor]], list[Tensor]], **tolerances: float) -> None:
    """A function of the product gives what it gives with torch's own."""
    with native.torchs_kernels():
        expected = run(F.linear)
    assert_same(run(F.linear), expected, **{"rtol": 1e-4, "atol": 1e-5, **tolerances})


@pairwise(shape=SHAPES, lead=[(), (3,), (2, 3)], bias=[False, True], library=LIBRARIES)
def test_numbers(shape, lead, bias, library, patched, steps):
    given = operands(*shape, bias, lead)
    with products.forced(library):
        found = everything(F.linear, given)
    assert bool(steps) == (library == ONEDNN or (library == BLOCKS and TO_WEIGHT in steps))
    as_good_as_torch(found, given)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_spreads_as_in_torch(value, library, patched):
    given = operands(40, 8, 6)
    with torch.no_grad():
        given[0][7, 3] = value
    with products.forced(library):
        same_as_torch(lambda linear: everything(linear, given))


@pytest.mark.parametrize("needing", [(0,), (1,), (2,), (0, 2), (1, 2), ()])
def test_some_need_gradients(needing, patched, steps):
    given = [t.detach().requires_grad_(at in needing) for at, t in enumerate(operands(30, 6, 5))]
    out = F.linear(*given)
    assert steps
    assert out.requires_grad == bool(needing)
    if needing:
        wanted = [given[at] for at in needing]  # an expanded gradient
        same_as_torch(lambda linear: list(torch.autograd.grad(linear(*given).sum(), wanted)))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_no_gradients(mode, patched, steps):
    given = operands(30, 6, 5)
    same_as_torch(lambda linear: mode()(linear)(*given))
    assert steps


def test_second_derivatives(patched, steps):
    # In float32, against torch's own: gradcheck would need float64, which is left to torch.
    given = operands(9, 4, 3)
    same_as_torch(lambda linear: twice(linear(*given), given), atol=1e-3)
    assert steps


def test_batched_gradients(patched, steps):
    given = operands(9, 4, 3)
    upstream = torch.randn(5, 9, 3, generator=torch.Generator().manual_seed(0))
    same_as_torch(
        lambda linear: list(torch.autograd.grad(linear(*given), given, upstream, is_grads_batched=True))
    )
    assert steps


def test_hooks_on_parameters(patched):
    layer, seen = torch.nn.Linear(6, 5), []
    layer.weight.register_hook(lambda grad: seen.append(grad.clone()) or 2 * grad)
    x = torch.randn(30, 6, generator=torch.Generator().manual_seed(0))
    layer(x).square().sum().backward()
    torch.testing.assert_close(layer.weight.grad, 2 * seen[0])


def test_the_output_may_be_written_to(patched, steps):
    given = operands(8, 4, 3, lead=(2,))
    found = everything(lambda *of: F.linear(*of).relu_() * 2, given)
    with native.torchs_kernels():
        expected = everything(lambda *of: F.linear(*of).relu() * 2, given)
    assert_same(found, expected, 1e-4, 1e-5)
    assert steps


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
    assert steps


def test_memory_that_is_shared_until_somebody_writes_stays_so(patched, steps):
    x, weight, bias = operands(30, 6, 5)
    shared = torch._lazy_clone(x.detach())
    F.linear(shared, weight, bias).sum().backward()
    assert steps
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


UNUSUAL: dict[str, Callable[[], Tensor]] = {
    "subclass": _with(input=lambda x: x.as_subclass(_Sub)),
    "subclass as weight": _with(weight=lambda w: w.as_subclass(_Sub)),
    "subclass as bias": _with(bias=lambda b: b.as_subclass(_Sub)),
    "columns": _with(input=lambda x: x.t().contiguous().t()),
    "expanded": _with(input=lambda x: x[:1].expand(30, 6)),
    "negative": _with(input=lambda x: torch._neg_view(x)),
    "negative weight": _with(weight=lambda w: torch._neg_view(w)),
    "columns of the weight": _with(weight=lambda w: w.t().contiguous().t()),
    "a vector as weight": _with(weight=lambda w: w[0], bias=lambda b: None),
    "a vector": _with(input=lambda x: x[0]),
    "empty": _with(input=lambda x: x[:0]),
    "float64": _with(input=lambda x: x.double(), weight=lambda w: w.double(), bias=lambda b: b.double()),
    "bfloat16": _with(
        input=lambda x: x.bfloat16(), weight=lambda w: w.bfloat16(), bias=lambda b: b.bfloat16()
    ),
    "another device": _with(
        input=lambda x: x.to("meta"), weight=lambda w: w.to("meta"), bias=lambda b: b.to("meta")
    ),
    "sparse weight": _with(weight=lambda w: w.to_sparse(), bias=lambda b: None),
    "one number as bias": _with(bias=lambda b: b[:1]),
    "autocast": _inside(lambda: torch.autocast("cpu")),
    "without oneDNN": _inside(_without_onednn),
    "dispatch mode": _inside(_Mode),
    "vmap": _mapped,
    "trace": _traced,
    "forward mode": _dual,
}


# What torch makes a product of plain matrices of.
SERVED_TOO = {
    "subclass",
    "subclass as weight",
    "subclass as bias",
    "vmap",
    "trace",
    "forward mode",
    "a vector",
    "negative",
    "negative weight",
    "dispatch mode",
}


@pytest.mark.parametrize("name", UNUSUAL)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
def test_what_is_unusual(name, patched, steps):
    found = UNUSUAL[name]()
    assert bool(steps) == (name in SERVED_TOO)
    with onehop.patch() as handle, handle.paused():
        expected = UNUSUAL[name]()
    assert type(found) is type(expected)
    if not found.is_meta:
        torch.testing.assert_close(found, expected, rtol=1e-4 * bool(steps), atol=1e-5 * bool(steps))


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
    assert not steps
    _with()()
    assert steps


def test_inference_tensors_are_an_error_of_torchs(patched):
    with torch.inference_mode():
        x = torch.ones(30, 6)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved"):
        F.linear(x, torch.ones(5, 6, requires_grad=True))


@pytest.mark.usefixtures("ordinary_bounds")
def test_small_products_are_left_to_torch(steps):
    with onehop.patch():
        F.linear(torch.ones(1000, 64), torch.ones(64, 64))
    assert not steps


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
    assert bool(steps) == large


def test_the_patch_is_reversible(patched, steps):
    assert F.linear is torch._C._nn.linear
    assert {"torch.ops.aten.mm", "torch.ops.aten.addmm"} < set(onehop.patched())
    with onehop.patch(products=False):
        assert "torch.ops.aten.mm" not in onehop.patched()
        _with()()
        assert not steps
    _with()()
    assert steps


def test_off_by_the_environment(monkeypatch):
    monkeypatch.setenv("ONEHOP_PRODUCTS", "0")
    with onehop.patch():
        assert "torch.ops.aten.mm" not in onehop.patched()


def test_torchscript_compiles_the_operator(patched, steps):
    layer = torch.nn.Linear(6, 5)
    scripted = torch.jit.script(layer)
    assert "torch.linear(" in scripted.code
    x = torch.ones(30, 6)
    torch.testing.assert_close(scripted(x), layer(x))
    assert steps


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
    assert_same(learned(out, given), learned(F.linear(*given), given), 1e-4, 1e-5)


@pytest.mark.parametrize("form", [torch.mm, torch.matmul, lambda x, w: torch.addmm(torch.ones(5), x, w)])
@pytest.mark.parametrize("turned", [False, True])
def test_products_by_other_names(form, turned, patched, steps):
    x, weight, _ = operands(30, 6, 5)
    weight = weight.t().contiguous().detach().requires_grad_() if turned else weight.t()
    same_as_torch(lambda _: learned(form(x, weight), (x, weight) if turned else (x,)))
    assert steps


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_same_bits_again(library, patched):
    given = operands(513, 64, 31)
    with products.forced(library):
        assert all(map(torch.equal, everything(F.linear, given), everything(F.linear, given)))
