"""What native code reads may change, or have no memory, whenever a user or another thread likes.

Programs run in a process of their own, which a fault would end.
"""

from pathlib import Path

import pytest
import torch
import torch_geometric.nn as nn
from torch import Tensor

import onehop
from onehop import TensorPaths, thresholds
from onehop.errors import BackendError, IndexRangeError
from onehop.kernels.cpu.rows import take_rows
from onehop.native import WithoutMemoryError, address, extension
from tests.processes import run_python

HERE = Path(__file__).parent

# Of the gradients of these, some are zeros without memory.
WITHOUT_MEMORY = [
    "torch.sgn(x_j) * y_i",
    "torch.sgn(x_j[:, :1]) * y_i",
    "torch.sgn(x_j).sum(-1, keepdim=True) * y_i",
    "torch.trunc(x_j) + torch.sgn(y_i)",
]
OTHERS = [
    *(f"torch.{name}(x_j) * y_i" for name in ("sign", "round", "floor", "ceil", "trunc", "frac", "abs")),
    "torch.clamp(x_j, 0, 1) * y_i",
    "(x_j > y_i) * y_i + 0 * x_j",
    "torch.copysign(x_j, y_i)",
    "torch.complex(x_j, y_i).conj().imag + x_j",
    "torch.complex(x_j, y_i).abs()",
    "torch.sgn(torch.complex(x_j, y_i)).imag",
    "torch.view_as_real(torch.complex(x_j, y_i).conj().resolve_conj())[..., 1] + x_j",
]


@pytest.mark.parametrize("operation", WITHOUT_MEMORY)
def test_gradients_without_memory(operation: str) -> None:
    done = run_python([HERE / "without_memory.py", operation])
    assert done.returncode == 0, done.stderr


def test_gradients_of_steps_and_of_complex_numbers() -> None:
    done = run_python([HERE / "without_memory.py", *OTHERS])
    assert done.returncode == 0, done.stderr


def program_of_a_mask(written: str, by: str = "") -> str:
    return f"""
import numpy as np, torch, onehop
from onehop import TensorPaths, thresholds
def outcome():
    held = np.zeros(1 << 16, bool)
    held[:10] = True
    x = torch.ones(1 << 16, 16, requires_grad=True)
    mask = torch.from_numpy(held){by}
    out = x[mask]
    held{written}
    try:
        return torch.autograd.grad(out.sum(), x)[0].sum().item()
    except RuntimeError as error:
        return type(error).__name__, str(error)
expected = outcome()
with onehop.patch(), thresholds.lifted():
    found = outcome()
assert found == expected, (found, expected)
"""


@pytest.mark.parametrize(
    "written",
    [
        "[:] = True",
        "[:] = False",
        "[:9] = False",
        "[10:20] = True",
        "[:] = np.roll(held, 100)",
        "[20] = True",
    ],
)
def test_a_mask_that_is_written_to_before_the_backward_pass(written: str) -> None:
    done = run_python(["-c", program_of_a_mask(written)])
    assert done.returncode == 0, done.stderr


def test_one_row_is_broadcast_as_in_torch() -> None:
    program = program_of_a_mask("[:7] = True").replace("held[:10]", "held[:1]")
    done = run_python(["-c", program])
    assert done.returncode == 0, done.stderr


def test_a_mask_with_gaps_is_read_again() -> None:
    # Not of a copy without gaps, which nobody writes to.
    def outcome() -> object:
        held = torch.arange(2000) % 3 == 0
        x = torch.ones(1000, 4, requires_grad=True)
        out = x[held[::2]]
        held.logical_not_()
        try:
            return torch.autograd.grad(out.sum(), x)
        except RuntimeError as error:
            return str(error)

    expected = outcome()
    with onehop.patch(), thresholds.lifted():
        assert outcome() == expected


def test_rows_under_a_mask_stay_within_the_room_that_is_made_for_them() -> None:
    for row_bytes in (1, 2, 4, 8, 12):
        mask, x = torch.arange(3000) % 2 == 0, torch.ones(3000, row_bytes, dtype=torch.uint8)
        call = extension.MaskedRows()
        call.mask, call.rows, call.blocks, call.row_bytes, call.threads = address(mask), 3000, 1, row_bytes, 1
        for taken in (0, 10, 1499, 1501):
            call.taken = taken
            out = torch.full((1600, row_bytes), 7, dtype=torch.uint8)
            assert not extension.take_masked(call, address(x), address(out))
            assert (out == 7).all()
            back = torch.full((3000, row_bytes), 7, dtype=torch.uint8)
            assert not extension.put_masked(call, address(out), address(back))
            assert (back == 7).all()


RACES = [
    "masks",
    "rows",
    "sums",
    "made",
    "looped",
    "ascending",
    "compressed",
    "sorted_edges",
    "integers",
    "marked",
    "negatives",
    "walks",
]


@pytest.mark.parametrize("call", RACES)
def test_another_thread_writes_all_the_time(call: str) -> None:
    done = run_python([HERE / "racing.py", call, "150"])
    assert done.returncode == 0, done.stdout + done.stderr


# Operands


def zeros_without_memory(*shape: int) -> Tensor:
    return torch._efficientzerotensor(shape)


def negated(*shape: int) -> Tensor:
    # One column, whose entries lie apart as kernels take them.
    made = torch.randn(shape, dtype=torch.complex64).conj().imag
    assert made.is_neg()
    return made


GRAPH = onehop.Graph.from_edge_index(torch.randint(0, 20, (2, 90)), 20)
EDGES = GRAPH.edge_index()
WEIGHT = torch.rand(90)
# Of as many columns of x, one weight for each edge.
PATHS = {1: TensorPaths("1x0e", "0e", "1x0e", [(0, 0, 0)]), 3: TensorPaths("1x1o", "0e", "1x1o", [(0, 0, 0)])}
CALLS = {
    "sum": lambda x, w: onehop.aggregate(GRAPH, x),
    "weighted sum": lambda x, w: onehop.aggregate(GRAPH, x, w),
    "weighted mean": lambda x, w: onehop.aggregate(GRAPH, x, w, reduce="mean"),
    "weighted max": lambda x, w: onehop.aggregate(GRAPH, x, w, reduce="max"),
    "scaled": lambda x, w: onehop.aggregate(GRAPH, x, src_scale=x[:, 0], dst_scale=x[:, 0]),
    "softmax": lambda x, w: onehop.edge_softmax(GRAPH, w),
    "products": lambda x, w: onehop.sddmm(GRAPH, x, x),
    "products of harmonics": lambda x, w: onehop.tensor_product(
        GRAPH, x, w[:, None], w[:, None], PATHS[x.size(1)]
    ),
    "gather": lambda x, w: onehop.gather(x, EDGES[0]),
    "scatter": lambda x, w: onehop.scatter(w.unsqueeze(1), EDGES[0], 20),
    "a linear layer": lambda x, w: patched(torch.nn.functional.linear, x, torch.ones(3, x.size(1))),
    "a layer": lambda x, w: patched(nn.SimpleConv(), x, EDGES),
    "attention": lambda x, w: patched(attending(x.size(1)), x, EDGES),
}


def attending(width: int) -> nn.GATConv:
    torch.manual_seed(0)
    return nn.GATConv(width, 2)


def patched(function, *operands: Tensor) -> Tensor:
    with onehop.patch(), thresholds.lifted():
        return function(*operands)


@pytest.mark.parametrize("make", [zeros_without_memory, negated])
@pytest.mark.parametrize("width", [1, 3])
def test_operands_that_are_not_in_memory_as_they_are(make, width: int) -> None:
    x, weight = make(20, width), make(90)
    for name, call in CALLS.items():
        expected = call(x.clone(), weight.clone())
        torch.testing.assert_close(call(x, weight), expected, msg=name)


@pytest.mark.parametrize("name", ["sum", "weighted sum", "weighted max", "softmax", "gather", "scatter"])
def test_gradients_that_are_negated(name: str) -> None:
    x, weight = torch.randn(20, 1, requires_grad=True), torch.rand(90, requires_grad=True)
    out = CALLS[name](x, weight)
    grad = negated(*out.shape)
    wanted = [each for each in (x, weight) if name not in ("sum", "gather") or each is x]
    wanted = [weight] if name in ("softmax", "scatter") else wanted
    found = torch.autograd.grad(out, wanted, grad, retain_graph=True)
    torch.testing.assert_close(found, torch.autograd.grad(out, wanted, grad.clone()))


def test_no_address_of_a_tensor_with_entries_is_0() -> None:
    with pytest.raises(WithoutMemoryError, match=r"shape \[2, 3\] without memory"):
        address(zeros_without_memory(2, 3))
    assert issubclass(WithoutMemoryError, BackendError)
    assert address(torch.empty(0, 3)) == 0


def test_rows_of_numbers_that_are_wrong() -> None:
    for width in (1, 2, 3, 16):
        for dtype in (torch.int32, torch.int64):
            for wrong in (-1, 5):
                index = torch.tensor([*[0] * 3000, wrong], dtype=dtype)
                with pytest.raises(IndexRangeError, match=r"in \[0, 5\)"):
                    take_rows(torch.ones(5, width), index)
