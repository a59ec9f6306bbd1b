"""The products of a linear step on plain tensors, each in the fastest library for its shape.

The functions have no gradients; they are called when autograd does not record.
"""

import ctypes

import torch
from torch import Tensor

from onehop import native, thresholds
from onehop.graph.lending import is_shared, read_address
from onehop.kernels.products import FORWARD, TO_INPUT, TO_WEIGHT, TORCH, Product, libraries
from onehop.ops.contexts import is_memory
from onehop.tuner import products

__all__ = [
    "FORWARD",
    "TO_INPUT",
    "TO_WEIGHT",
    "add_product",
    "flushed",
    "is_large",
    "is_torchs_choice",
    "library_of",
    "multiply",
    "torch_decides",
]

# Releases of torch before 2.9 have one setting for all devices; later releases warn when it is read.
_precision_of = getattr(torch._C, "_get_fp32_precision_getter", None)
_FULL_PRECISION = ("none", "ieee")


def torch_decides() -> bool:
    """Return whether torch's settings require a behaviour that only torch's own product has.

    This is a lower precision, a disabled library, or the same bits in every process (a choice by measured
    time may differ between processes).
    """
    if not torch._C._get_mkldnn_enabled() or torch._C._get_deterministic_algorithms():
        return True
    if _precision_of is None:
        return torch._C._get_float32_matmul_precision() != "highest"
    return _precision_of("mkldnn", "matmul") not in _FULL_PRECISION


def is_large(kind: str, left: Tensor, right: Tensor) -> bool:
    """Return whether a product is so large that its library matters, and any library may run it.

    Args:
        kind: FORWARD, of [N, K] and [M, K]; TO_INPUT, of [N, M] and [M, K]; TO_WEIGHT, of [N, M] and [N, K].
        left: The first operand.
        right: The second operand.
    """
    if not (left.dtype is right.dtype is torch.float32 and left.is_cpu and right.is_cpu):
        return False
    rows, inputs, outputs = _sizes(kind, left, right)
    work = rows * inputs * outputs
    return (
        work >= thresholds.now.product_work
        and work > 0
        and left.is_contiguous()
        and right.is_contiguous()
        and not left.is_neg()
        and not right.is_neg()
    )


def is_torchs_choice(kind: str, left: Tensor, right: Tensor) -> bool:
    """Return whether torch's own library is the fastest for a product; :func:`is_large` must hold."""
    return products.library(kind, *_sizes(kind, left, right)) is libraries(kind)[TORCH]


def library_of(kind: str, rows: int, inputs: int, outputs: int, dtype: torch.dtype, fastest: bool) -> Product:
    """Return the library for many products of about the same size, of plain contiguous CPU tensors.

    Args:
        kind: See :func:`is_large`.
        rows: Rows of x.
        inputs: Columns of x.
        outputs: Rows of the weight.
        dtype: The dtype of all operands.
        fastest: Whether another library than torch's own may be used.
    """
    work = rows * inputs * outputs
    if not fastest or work < thresholds.now.product_work or not work:
        return libraries(kind)[TORCH]
    if dtype is not torch.float32 or torch_decides():
        return libraries(kind)[TORCH]
    return products.library(kind, rows, inputs, outputs)


def multiply(kind: str, left: Tensor, right: Tensor, added: Tensor | None = None) -> Tensor:
    """Compute a product for which :func:`is_large` holds.

    Denormal numbers, which are below 2^-126, may count as 0 (:func:`flushed`).

    Args:
        kind: See :func:`is_large`.
        left: The first operand.
        right: The second operand.
        added: [M] or [N, M], float32, to add to the result of FORWARD; None adds nothing.

    Returns:
        [N, M] for FORWARD, [N, K] for TO_INPUT, [M, K] for TO_WEIGHT.
    """
    left, right = flushed(left), flushed(right)
    run = products.library(kind, *_sizes(kind, left, right))
    if run is libraries(kind)[TORCH]:
        return run(left, right, added)
    return run(_readable(left), _readable(right), None if added is None else _readable(added))


def add_product(out: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Add a FORWARD product, for which :func:`is_large` holds, to the first rows of ``out``.

    Args:
        out: [P, M], contiguous, P at least N; it may be overwritten.
        left: [N, K].
        right: [M, K].

    Returns:
        [P, M]: ``out`` or another tensor.
    """
    left, right = flushed(left), flushed(right)
    run = products.library(FORWARD, *_sizes(FORWARD, left, right))
    first = out[: left.size(0)]
    if run is libraries(FORWARD)[TORCH]:
        first.addmm_(left, right.t())
        return out
    product = run(_readable(left), _readable(right), first)
    if product.size(0) == out.size(0):
        return product
    first.copy_(product)
    return out


def flushed(operand: Tensor) -> Tensor:
    """Return an operand of a product, or, if a sample has denormals, a copy with 0 for each denormal.

    An operation with a denormal takes a processor a hundred cycles or more. If distances are expanded in
    Gaussians, as in SchNet, one entry in 30 is denormal: the gradient of such a layer's weight took 295 ms,
    and takes 7 ms without denormals. The product does not become less exact: the operand's largest number is
    at least 2^-64, so rounding errors are far larger than the omitted terms. An operand whose numbers are all
    smaller is not changed.

    Args:
        operand: float32, on the CPU, contiguous.
    """
    # A zero tensor without memory, such as torch's gradient of sign(), cannot be read.
    if not is_memory(operand):
        return operand
    address, count = read_address(operand), operand.numel()
    if not native.extension.meets_denormals(address, count):
        return operand
    out = native.empty(operand.shape, operand.dtype)
    native.extension.flush_denormals(address, count, native.address(out), native.threads())
    return out


def _sizes(kind: str, left: Tensor, right: Tensor) -> tuple[int, int, int]:
    """Return the number of rows of x, of columns of x, and of rows of the weight."""
    rows, columns = left.shape
    if kind == FORWARD:
        return rows, columns, right.size(0)
    return rows, right.size(1), columns


def _readable(tensor: Tensor) -> Tensor:
    """Return the tensor or, if it is a lent copy, a tensor over the shared memory.

    Libraries other than torch's own request the memory for writing, which would copy a lent tensor first.
    """
    if not is_shared(tensor) or not tensor.is_contiguous():
        return tensor
    memory = (ctypes.c_char * tensor.nbytes).from_address(read_address(tensor))
    return torch.frombuffer(memory, dtype=tensor.dtype).view(tensor.shape)
