"""Dropout: torch's bits, and torch's generator afterwards."""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import onehop
from onehop import native, reference, thresholds
from onehop.ops import torch_stream
from tests.pairs import pairwise

# The function of the same name hides the module.
OPERATOR = sys.modules["onehop.ops.dropout"]
BLOCK = 624
DTYPES = list(native.DTYPE_CODES)
PROBABILITIES = (0.0, 1e-9, 0.1, 0.3, 0.5, 0.9, 1 - 1e-9, 1.0)
SPECIAL = torch.tensor([float("inf"), -float("inf"), float("nan"), -0.0])


@pytest.fixture(autouse=True)
def at_every_size(monkeypatch):
    """Counts draws by our kernels, so that no test passes by torch's own function alone."""
    drawn = []

    def counted(*args):
        drawn.append(args)
        return torch_stream.draw_from(*args)

    monkeypatch.setattr(OPERATOR, "draw_from", counted)
    with thresholds.lifted():
        yield drawn


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7)).to(dtype)


def at(position: int) -> torch.Generator:
    """A generator that has drawn so many numbers of 32 bits."""
    generator = torch.Generator().manual_seed(31)
    torch.empty(position, dtype=torch.int32).random_(generator=generator)
    return generator


def same_bits(found: Tensor, expected: Tensor) -> bool:
    """Return whether values, signs of zeros, NaNs, dtype and strides are the same."""
    numbers_found, numbers_expected = found.nan_to_num(nan=0.0), expected.nan_to_num(nan=0.0)
    return (
        found.dtype is expected.dtype
        and found.stride() == expected.stride()
        and torch.equal(found.isnan(), expected.isnan())
        and torch.equal(numbers_found, numbers_expected)
        and torch.equal(numbers_found.signbit(), numbers_expected.signbit())
    )


def both(draw: Callable[[Callable[..., Tensor]], Any], seed: int = 4) -> Iterator[tuple[Any, Any]]:
    """What a function makes of our dropout and of torch's, from the same seed; and the states afterwards."""
    found = []
    for way in (onehop.dropout, reference.dropout):
        torch.manual_seed(seed)
        made = draw(way)
        found.append([*(made if isinstance(made, tuple | list) else [made]), torch.get_rng_state()])
    return zip(*found, strict=True)


def check(x: Tensor, p: float, position: int = 0) -> None:
    """Compares result, state, and the number that is drawn next, with a generator at a position."""
    ours, theirs = at(position), at(position)
    found = onehop.dropout(x, p, generator=ours)
    expected = reference.dropout(x, p, generator=theirs)
    where = f"{p} at {position}, {list(x.shape)} {x.dtype}"
    assert same_bits(found, expected), where
    assert torch.equal(ours.get_state(), theirs.get_state()), where
    assert torch.equal(torch.rand(3, generator=ours), torch.rand(3, generator=theirs)), where


def test_every_position_in_a_block(isa):
    x = numbers(700)
    for position in range(BLOCK + 2):
        check(x[: 1 + position % 13 * 53], 0.5, position)


def test_every_size(isa):
    x = numbers(2000)
    for size in range(1, 2001):
        check(x[:size], 0.3, size % 7)


@pytest.mark.parametrize("position", [0, 1, 2, 311, 622, 623, 624, 625])
def test_sizes_about_the_borders_of_blocks_and_pieces(isa, position):
    x = numbers(10_000)
    ends = [(border - position) // 2 + near for border in range(0, 3 * BLOCK, BLOCK) for near in (-1, 0, 1)]
    for size in {*ends, 63, 64, 65, 2495, 2496, 2497, 4992, 9999}:
        if size > 0:
            check(x[:size], 0.1, position)


@pairwise(p=PROBABILITIES, dtype=DTYPES)
def test_dtypes_and_probabilities(isa, dtype, p):
    x = numbers(3001, dtype=dtype)
    x[:4], x[-4:] = SPECIAL, SPECIAL
    check(x, p, 5)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_number_of_threads_changes_nothing(isa, threads, monkeypatch):
    x = numbers(400_003)
    monkeypatch.setattr(native, "threads", lambda: threads)
    for position in (0, 1, 623):
        check(x, 0.5, position)


def test_shares_of_many_lengths(monkeypatch):
    """Each distance between shares is another jump ahead in the stream."""
    monkeypatch.setattr(native, "threads", lambda: 4)
    x = numbers(600_000)
    for size in (9_985, 10_000, 33_333, 100_001, 250_000, 600_000):
        check(x[:size], 0.5, 17)


def test_a_first_number_that_does_not_decide():
    """A bound whose first half many numbers share: nearly everything, or nothing, is kept by the second."""
    x = numbers(20_000)
    upper = 1 << 32
    for first in (0, 1, (1 << 21) - 1):
        check(x, 1 - (first * upper + upper // 2) / 2**53)


def test_numbers_that_decide_by_their_second_half(isa):
    """The stream is searched for an element whose first half is the bound's: both ways of its second."""
    generator = at(0)
    draws = torch.empty(3_000_000, dtype=torch.float64).uniform_(generator=generator)
    for place in (10, 1_500_000, 2_999_999):
        for nudge in (-(2.0**-53), 0.0, 2.0**-53):
            kept = float(draws[place]) + nudge
            if 0 < kept < 1 and 1 - (1 - kept) == kept:
                first = max(0, place - 70)
                ours, theirs = at(2 * first), at(2 * first)
                x = numbers(140)
                assert same_bits(
                    onehop.dropout(x, 1 - kept, generator=ours),
                    reference.dropout(x, 1 - kept, generator=theirs),
                )


LAYOUTS = {
    "no dimensions": lambda: torch.tensor(2.0),
    "one element": lambda: numbers(1),
    "channels last": lambda: numbers(4, 6, 5, 8).to(memory_format=torch.channels_last),
    "permuted": lambda: numbers(4, 6, 5, 8).permute(3, 1, 0, 2),
    "transposed": lambda: numbers(24, 40).t(),
    "rows of a matrix": lambda: numbers(24, 40)[3:9],
    "columns of a matrix": lambda: numbers(24, 40)[:, 3:9],
    "every second": lambda: numbers(24, 40)[:, ::2],
    "expanded": lambda: numbers(5, 1).expand(5, 7),
    "any stride of an extent of 1": lambda: torch.empty_strided((5, 1, 4), (4, 99, 1)).fill_(2.0),
    "one channel, channels last": lambda: numbers(4, 1, 5, 8).to(memory_format=torch.channels_last),
    "diagonal": lambda: numbers(6, 6, 3).diagonal(),
    "no elements": lambda: numbers(0, 3),
    "offset": lambda: numbers(101)[1:],
}


GRADIENTS = {
    "dense": lambda out: torch.full(out.shape, 1.5),
    "expanded": lambda out: torch.full((), 1.5).expand(out.shape),
    "transposed": lambda out: torch.full(out.shape[::-1], 1.5).permute(tuple(range(out.dim()))[::-1]),
}


@pytest.mark.parametrize("grad", GRADIENTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, grad):
    def results(way, p):
        x = LAYOUTS[layout]().requires_grad_()
        out = way(x, p)
        return out.detach(), *torch.autograd.grad(out, x, GRADIENTS[grad](out))

    for p in (0.3, 1.0):
        assert all(same_bits(*pair) for pair in both(partial(results, p=p)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_every_order(isa, dtype):
    def derivatives(way):
        x = numbers(50, 30, dtype=dtype).requires_grad_()
        out = way(x, 0.3)
        first = torch.autograd.grad((out**3).sum(), x, create_graph=True)[0]
        second = torch.autograd.grad((first**2).sum(), x, create_graph=True)[0]
        third = torch.autograd.grad(second.sum(), x)[0]
        return [out.detach(), first.detach(), second.detach(), third]

    assert all(same_bits(*pair) for pair in both(derivatives))


def test_gradients_in_batches():
    def batches(way):
        x = numbers(3, 4).requires_grad_()
        out = way(x, 0.5) ** 2
        units = torch.eye(12).reshape(12, 3, 4)
        older = torch.autograd.grad(out, x, units, is_grads_batched=True, retain_graph=True)[0]
        newer = torch.vmap(lambda unit: torch.autograd.grad(out, x, unit, retain_graph=True)[0])(units)
        return older, newer

    assert all(torch.equal(*pair) for pair in both(batches))


def test_a_bit_an_element_is_kept_for_backward():
    kept = []
    x = numbers(640, 100).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda t: t):
        out = onehop.dropout(x, 0.5)
    assert [tensor.nbytes for tensor in kept] == [640 * 100 // 8]
    out.sum().backward()
    assert torch.equal(x.grad, (out != 0) * 2.0)


def test_writes_to_operand_and_result_do_not_reach_the_gradient():
    x = numbers(100).requires_grad_()
    doubled = x * 2
    out = onehop.dropout(doubled, 0.5)
    kept = (out != 0).float()
    doubled.detach().zero_()
    out.mul_(0)
    out.sum().backward()
    assert torch.equal(x.grad, kept * 0)


def test_the_cache_of_normal_numbers_stays():
    def drawn(way):
        return torch.randn(3), way(numbers(100), 0.5), torch.randn(3), torch.randn(40)

    assert all(torch.equal(*pair) for pair in both(drawn))


def test_without_training_or_probability_the_operand_comes_back(at_every_size):
    x = numbers(10)
    assert onehop.dropout(x, 0.5, training=False) is x
    assert onehop.dropout(x, 0.0) is reference.dropout(x, 0.0) is x
    assert onehop.dropout(x[:0], 0.5).data_ptr() == x[:0].data_ptr()
    state = at(5)
    onehop.dropout(x, 0.5, False, state)
    assert torch.equal(state.get_state(), at(5).get_state())
    assert at_every_size == []


def test_inference_mode():
    with torch.inference_mode():
        (found, expected), _ = both(lambda way: way(numbers(300), 0.5))
    assert torch.equal(found, expected)
    assert found.is_inference()


BAD = {
    "p above 1": lambda way: way(numbers(9), 1.5),
    "p below 0": lambda way: way(numbers(9), -0.1),
    "p is a word": lambda way: way(numbers(9), "half"),
    "integers": lambda way: way(torch.arange(9), 0.5),
    "complex numbers": lambda way: way(torch.complex(numbers(9), numbers(9)), 0.5),
    "sparse": lambda way: way(numbers(9).to_sparse(), 0.5),
    "no tensor": lambda way: way([1.0], 0.5),
}


@pytest.mark.parametrize("bad", BAD)
def test_errors_are_torchs(bad):
    with pytest.raises(Exception) as expected:  # noqa: PT011 - whatever torch raises
        BAD[bad](torch.nn.functional.dropout)
    with pytest.raises(expected.type) as found:
        BAD[bad](onehop.dropout)
    assert str(found.value) == str(expected.value)


def test_what_the_kernels_do_not_take_is_torchs(at_every_size):
    class Sub(torch.Tensor):
        pass

    x = numbers(40)
    odd = {
        "meta": x.to("meta"),
        "negated": torch.complex(x, x).conj().imag,
        "subclass": x.as_subclass(Sub),
        "parameter of a subclass": torch.nn.Parameter(x.as_subclass(Sub)),
    }
    for name, operand in odd.items():
        torch.manual_seed(4)
        found = onehop.dropout(operand, 0.5)
        torch.manual_seed(4)
        expected = torch.dropout(operand, 0.5, True)
        assert type(found) is type(expected), name
        if not found.is_meta:
            assert torch.equal(found.to_dense().detach(), expected.to_dense().detach()), name
    assert at_every_size == []


def test_small_tensors_are_torchs(at_every_size):
    with thresholds.changed(dropout_elements=100, dropout_recorded_elements=200):
        onehop.dropout(numbers(99), 0.5)
        onehop.dropout(numbers(199).requires_grad_(), 0.5)
        assert at_every_size == []
        onehop.dropout(numbers(100), 0.5)
        assert len(at_every_size) == 1
        onehop.dropout(numbers(200).requires_grad_(), 0.5)
        assert len(at_every_size) == 2
        with torch.no_grad():
            onehop.dropout(numbers(199).requires_grad_(), 0.5)
        assert len(at_every_size) == 3


@pytest.mark.parametrize(("shape", "p"), [((7,), 0.1), ((30, 4), 0.5)])
def test_factors_have_the_order_of_memory(shape, p):
    def drawn(way):
        ones = torch.ones(shape)
        return way(ones, p) if way is reference.dropout else OPERATOR.factors(ones, p)

    assert all(torch.equal(*pair) for pair in both(drawn))


@pytest.mark.parametrize("layout", ["transposed", "permuted", "with gaps", "expanded"])
def test_what_needs_no_gradient_has_none(layout):
    whole = numbers(6, 8, 10)
    x = {
        "transposed": whole[0].t(),
        "permuted": whole.permute(2, 0, 1),
        "with gaps": whole[:, ::2],
        "expanded": whole[:1].expand(3, 8, 10),
    }[layout]
    assert not onehop.dropout(x, 0.5).requires_grad
    assert onehop.dropout(x.detach().requires_grad_(), 0.5).requires_grad


def test_tangents_are_dropped_as_their_numbers_are(at_every_size):
    x, tangent = numbers(40, 7), numbers(40, 7) + 1
    with forward_ad.dual_level():
        torch.manual_seed(3)
        out, found = forward_ad.unpack_dual(onehop.dropout(forward_ad.make_dual(x, tangent), 0.5))
        torch.manual_seed(3)
        # Inside the outermost level nothing is drawn by our kernels, not even for tensors without a tangent.
        assert torch.equal(out, onehop.dropout(x, 0.5))
    assert not at_every_size
    assert torch.equal(found, torch.where(out != 0, 2 * tangent, 0 * tangent))
