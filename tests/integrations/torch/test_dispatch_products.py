"""Dense products under the patch: layouts, factors, numbers that are none, and 16 bits."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from onehop.integrations.torch import dense
from tests.integrations.torch.dispatched import both, patched, served, whole

pytestmark = pytest.mark.filterwarnings("ignore")

N, K, M = 37, 19, 23

# Of a [N, K] and b [K, M].
PRODUCTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mm": torch.mm,
    "@": lambda a, b: a @ b,
    "matmul of a batch": lambda a, b: torch.matmul(a.expand(3, N, K), b),
    "addmm": lambda a, b: torch.addmm(b[0], a, b),
    "addmm of a matrix": lambda a, b: torch.addmm((a @ b).detach() + 1, a, b, beta=3, alpha=2),
    "bmm": lambda a, b: torch.bmm(a.expand(3, N, K), b.expand(3, K, M)),
    "baddbmm": lambda a, b: torch.baddbmm(b[0], a.expand(3, N, K), b.expand(3, K, M)),
    "linear": lambda a, b: F.linear(a, b.t()),
    "linear with a bias": lambda a, b: F.linear(a, b.t(), b[0]),
    "linear of a cube": lambda a, b: F.linear(a.expand(2, N, K), b.t(), b[1]),
    "einsum": lambda a, b: torch.einsum("nk,km->mn", a, b),
    "mv": lambda a, b: a @ b[:, 0],
}
each_product = pytest.mark.parametrize("name", PRODUCTS)
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "turned": lambda x: x.t().contiguous().t(),
    "every other column": lambda x: torch.stack([x, x], 2).flatten(1)[:, ::2],
    "every other row": lambda x: torch.stack([x, x], 1).flatten(0, 1)[::2],
    "expanded": lambda x: x[:1].expand_as(x),
    "from an offset": lambda x: torch.cat([x[:1], x])[1:],
}


@pytest.mark.parametrize("name", ["mm", "@", "linear"])
def test_our_code_runs(name: str) -> None:
    with served() as names:
        PRODUCTS[name](whole(N, K).float(), whole(K, M).float())
    assert names & {"mm", "addmm"}


@pytest.mark.parametrize("second", LAYOUTS)
@pytest.mark.parametrize("first", LAYOUTS)
@each_product
def test_layouts(name: str, first: str, second: str) -> None:
    def run() -> Any:
        a = whole(N, K).float().requires_grad_()
        b = whole(K, M, seed=2).float().requires_grad_()
        out = PRODUCTS[name](LAYOUTS[first](a), LAYOUTS[second](b))
        return out, torch.autograd.grad((out * out.detach()).sum(), (a, b))

    both(run, rtol=1e-5, atol=1e-5, times=1)


@pytest.mark.parametrize("special", ["nan", "inf", "-inf", "1e-40", "3e38"])
@each_product
def test_special_numbers(name: str, special: str) -> None:
    a, b = whole(N, K).float(), whole(K, M).float()
    a[3, 4] = float(special)
    b[4, 5] = 0.0
    both(lambda: PRODUCTS[name](a, b), rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("shape", [(0, K, M), (N, 0, M), (N, K, 0), (1, K, 1), (N, 1, M), (1, 1, 1)], ids=str)
def test_small_sizes(shape: tuple[int, int, int]) -> None:
    n, k, m = shape

    def run() -> Any:
        a, b = whole(n, k).float(), whole(k, m).float()
        added = whole(n, m).float()
        return a @ b, torch.addmm(added, a, b, beta=2), torch.addmm(added, a, b, beta=0), F.linear(a, b.t())

    both(run)


@pytest.mark.parametrize("beta", [0, 0.0, 1, 2, -1, 0.5, True])
@pytest.mark.parametrize("alpha", [0, 1, -2, 0.5, True])
def test_factors(alpha: float, beta: float) -> None:
    def run() -> Any:
        a, b, added = whole(N, K).float(), whole(K, M).float(), whole(N, M).float()
        # What is multiplied by a factor of 0 is not read.
        added[2, 3] = math.nan
        out = torch.addmm(added, a, b, beta=beta, alpha=alpha)
        return out, added.clone().addmm_(a, b, beta=beta, alpha=alpha), torch.addmm(b[0], a, b, alpha=alpha)

    both(run, rtol=1e-5, atol=1e-5)


WRONG: dict[str, Callable[[], Any]] = {
    "another size": lambda: whole(N, K) @ whole(M, K),
    "another dtype": lambda: whole(N, K) @ whole(K, M).float(),
    "int64 and float32": lambda: torch.mm(whole(N, K).float(), whole(K, M).long()),
    "vectors": lambda: torch.mm(whole(N), whole(N)),
    "another batch": lambda: torch.bmm(whole(2, N, K), whole(3, K, M)),
    "a bias of another size": lambda: F.linear(whole(N, K), whole(M, K), whole(N + 1)),
    "an added matrix of another size": lambda: torch.addmm(whole(N, M + 1), whole(N, K), whole(K, M)),
    "a result of another dtype": lambda: torch.mm(whole(N, K), whole(K, M), out=torch.empty(N, M)),
    "linear of another size": lambda: F.linear(whole(N, K), whole(M, K + 1)),
    "a weight of three dimensions": lambda: F.linear(whole(N, K), whole(2, M, K)),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors(name: str) -> None:
    both(WRONG[name], raises=True)


HALVES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)


@pytest.fixture
def without_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that has no instructions for products of 16-bit numbers."""
    monkeypatch.setattr(dense, "has_instructions", lambda dtype: False)


@HALVES
@pytest.mark.usefixtures("without_instructions")
@pytest.mark.parametrize("name", ["mm", "linear with a bias", "bmm"])
def test_16_bits_without_instructions_are_served(name: str, dtype: torch.dtype) -> None:
    with served() as names:
        PRODUCTS[name](whole(N, K).to(dtype), whole(K, M).to(dtype))
    assert names & {"mm", "addmm", "bmm"}


@HALVES
@pytest.mark.usefixtures("without_instructions")
@pytest.mark.parametrize("layout", LAYOUTS)
@each_product
def test_layouts_of_16_bits(name: str, layout: str, dtype: torch.dtype) -> None:
    def run() -> Any:
        a, b = whole(N, K).to(dtype).requires_grad_(), whole(K, M, seed=2).to(dtype).requires_grad_()
        out = PRODUCTS[name](LAYOUTS[layout](a), LAYOUTS[layout](b))
        return out, torch.autograd.grad(out.sum(), (a, b))

    # The sums are whole numbers that 16 bits hold, or are rounded once.
    both(run, rtol=torch.finfo(dtype).eps, atol=0.0, times=1)


@HALVES
@pytest.mark.usefixtures("without_instructions")
@pytest.mark.parametrize("special", ["nan", "inf", "-inf", "6e4", "1e-7"])
@each_product
def test_special_16_bits(name: str, special: str, dtype: torch.dtype) -> None:
    a, b = whole(N, K).to(dtype), whole(K, M).to(dtype)
    a[3, 4] = float(special)
    b[4, 5] = 0.0
    both(lambda: PRODUCTS[name](a, b), rtol=torch.finfo(dtype).eps, atol=0.0)


@HALVES
@pytest.mark.usefixtures("without_instructions")
@each_product
def test_products_of_16_bits_are_as_exact_as_torchs(name: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(size, generator=generator).to(dtype) for size in ((N, K), (K, M)))
    exact = PRODUCTS[name](a.double(), b.double())
    theirs = PRODUCTS[name](a, b)
    with patched():
        ours = PRODUCTS[name](a, b)
    assert ours.dtype is dtype
    assert ours.stride() == theirs.stride()
    # Where torch adds up in float32, sums are rounded once.
    error, others = ((each.double() - exact).abs().max() for each in (ours, theirs))
    assert error <= others * 1.01 + 1e-6


SETTINGS: dict[str, Callable[[], Any]] = {
    "oneDNN off": lambda: torch.backends.mkldnn.flags(enabled=False),
    "oneDNN, of fewer bits": lambda: torch.backends.mkldnn.flags(enabled=True, deterministic=True),
}


@pytest.mark.parametrize("setting", SETTINGS)
@each_product
def test_settings_of_torch(name: str, setting: str) -> None:
    def run() -> Any:
        with SETTINGS[setting]():
            return PRODUCTS[name](whole(N, K).float(), whole(K, M).float())

    both(run, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_precision_that_the_user_chose(precision: str) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(size, generator=generator) for size in ((N, K), (K, M)))

    def run() -> Tensor:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(precision)
        try:
            return a @ b
        finally:
            torch.set_float32_matmul_precision(before)

    # With the fewest bits, torch may round operands to 16 bits.
    both(run, rtol=1e-5, atol=1e-5)
