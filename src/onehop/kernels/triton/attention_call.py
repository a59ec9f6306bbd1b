"""The common part of one attention call's kernels: operands, and compile-time constants."""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from onehop.calls import Attention, accumulator
from onehop.kernels.triton.launch import Bucket, bounded, items_of, on_device_of, packed
from onehop.kernels.triton.work import Work
from onehop.plans.triton import TritonPlan
from onehop.plans.triton_default import power_of_two

# For NVIDIA's GPUs since compute capability 8.0 (CUDA C++ Programming Guide, table of technical
# specifications): registers are allocated to a warp in units of 256, a multiprocessor runs at most 32 blocks,
# and the system reserves 1 KB of shared memory for each block.
_REGISTERS_AT_A_TIME = 256
_MOST_PROGRAMS = 32
# Registers of a multiprocessor, from the same table, if torch does not report them.
_REGISTERS = 65_536
_SYSTEM_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Multiprocessors:
    """The multiprocessors of a device.

    Attributes:
        count: Number of multiprocessors.
        registers: Number of 32-bit registers of each multiprocessor.
        threads: Maximal number of threads of each multiprocessor.
        shared_bytes: Bytes of shared memory of each multiprocessor.
        warp_threads: Number of threads of a warp.
    """

    count: int
    registers: int
    threads: int
    shared_bytes: int
    warp_threads: int

    def programs_on_each(self, registers: int, shared_bytes: int, num_warps: int) -> int:
        """Return the number of programs that one multiprocessor runs at once; at least 1.

        Args:
            registers: Number of registers of a thread.
            shared_bytes: Bytes of shared memory of a program.
            num_warps: Number of warps of a program.
        """
        of_warp = -(-registers * self.warp_threads // _REGISTERS_AT_A_TIME) * _REGISTERS_AT_A_TIME
        by_registers = self.registers // (of_warp * num_warps)
        by_threads = self.threads // (self.warp_threads * num_warps)
        by_shared = self.shared_bytes // (shared_bytes + _SYSTEM_BYTES)
        return max(min(by_registers, by_threads, by_shared, _MOST_PROGRAMS), 1)


@lru_cache(maxsize=16)
def multiprocessors(device: torch.device) -> Multiprocessors:
    """Return a GPU's multiprocessors, as torch describes them."""
    properties = torch.cuda.get_device_properties(device)
    return Multiprocessors(
        properties.multi_processor_count,
        getattr(properties, "regs_per_multiprocessor", _REGISTERS),
        properties.max_threads_per_multi_processor,
        properties.shared_memory_per_multiprocessor,
        properties.warp_size,
    )


def resident_programs(compiled: Any, of: Multiprocessors) -> int:
    """Return the number of programs of a compiled kernel that a device runs at once.

    Args:
        compiled: The result of triton's ``warmup``.
        of: The device's multiprocessors.
    """
    compiled._init_handles()  # reads the registers from the driver, as a launch does
    metadata = compiled.metadata
    return of.count * of.programs_on_each(compiled.n_regs, metadata.shared, metadata.num_warps)


_WORD = 2**32


def two_parts(number: float) -> tuple[float, float]:
    """Return a number as the sum of two float32 numbers, as kernels take it; together they have 48 bits."""
    high = ctypes.c_float(number).value
    return high, number - high


def dropout_words(operands: Attention) -> dict[str, int]:
    """Return ``base`` and ``threshold`` for :func:`onehop.kernels.triton.attention_parts.multipliers`.

    The base is the part of :func:`onehop.reference.dropout.dropout_mask` that depends on the seed only.
    """
    base = _mix(_mix(operands.seed % _WORD) ^ (operands.seed // _WORD))
    return {"base": _signed(base), "threshold": _signed(int(operands.dropout * _WORD))}


def _signed(word: int) -> int:
    """Return an unsigned 32-bit word as the signed number with the same bits, so its type is always int32."""
    return word - _WORD if word >= _WORD // 2 else word


def _mix(x: int) -> int:
    x = ((x ^ (x >> 16)) * 0x7FEB352D) % _WORD
    x = ((x ^ (x >> 15)) * 0x846CA68B) % _WORD
    return x ^ (x >> 16)


# Constants of onehop.kernels.triton.attention_parts.
_RULES = {"gat": 0, "gatv2": 1, "dot": 2}
_EDGE_ROWS, _EDGE_PROJECTED = 1, 2
_MASK_TENSOR, _MASK_DROPOUT = 1, 2
# Number of programs that share all tiles if there is no GPU, that is, in the interpreter.
WITHOUT_DEVICE = 1024
# Numbers of programs that a device runs at once, by kernel and form.
_RESIDENT: dict[tuple[Any, ...], int] = {}


class Operands(NamedTuple):
    """The tensors of :class:`Attention`, packed; ``edge_weight`` is [K, H * D]."""

    value: Tensor
    key: Tensor | None
    query: Tensor
    att: Tensor | None
    edge: Tensor | None
    edge_weight: Tensor | None
    mask: Tensor | None


@dataclass(frozen=True)
class AttentionConstants:
    """Compile-time constants of a kernel, besides dtypes.

    Attributes:
        RULE: Formula of the scores; this and the next two are constants of :mod:`.attention_parts`.
        EDGE: Kind of the edges' features.
        MASK: Kind of the factors of the softmaxed weights.
        ACC: Dtype of the sums.
        H: Heads.
        D: Columns of keys; 1 if these are scalars.
        V: Columns of values.
        K: Columns of edges' features before projection.
        BLOCK_D: Columns of a tile, at least D.
        BLOCK_V: Columns of a tile, at least V.
        HEADS: Heads of a tile.
        ROWS: Items of a tile.
        EDGES: Edges of each item that are read at a time.
        STAGES: Number of tiles in flight.
    """

    RULE: int
    EDGE: int
    MASK: int
    ACC: tl.dtype
    H: int
    D: int
    V: int
    K: int
    BLOCK_D: int
    BLOCK_V: int
    HEADS: int
    ROWS: int
    EDGES: int
    STAGES: int


class AttentionCall:
    """A call's operands and form, and the launcher of its kernels."""

    def __init__(self, plan: TritonPlan, operands: Attention) -> None:
        self.plan, self.operands = plan, operands
        heads, value_width = operands.value.shape[1:]
        width = 1 if operands.rule == "gat" else operands.query.size(2)
        block_d, block_v = power_of_two(width), power_of_two(value_width)
        edge, edge_weight = operands.edge, operands.edge_weight
        mask = 0
        if operands.mask is not None:
            mask = _MASK_TENSOR
        elif operands.dropout:
            mask = _MASK_DROPOUT
        self.acc = accumulator(operands.value.dtype)
        self.packed = Operands(
            value=operands.value.contiguous(),
            key=packed(operands.key),
            query=operands.query.contiguous(),
            att=packed(operands.att),
            edge=packed(edge),
            edge_weight=None if edge_weight is None else edge_weight.t().contiguous(),
            mask=packed(operands.mask),
        )
        self.form = AttentionConstants(
            RULE=_RULES[operands.rule],
            EDGE=0 if edge is None else _EDGE_ROWS if edge_weight is None else _EDGE_PROJECTED,
            MASK=mask,
            ACC=tl.float64 if self.acc.itemsize == 8 else tl.float32,
            H=heads,
            D=width,
            V=value_width,
            K=0 if edge is None or edge_weight is None else edge.size(1),
            BLOCK_D=block_d,
            BLOCK_V=block_v,
            HEADS=min(power_of_two(heads), max(plan.block_features // max(block_d, block_v), 1)),
            ROWS=1,
            EDGES=1,
            STAGES=plan.num_stages,
        )
        self.numbers: dict[str, Any] = {
            **dropout_words(operands),
            "factor": two_parts(operands.factor),
            "kept_factor": two_parts(1 / (1 - operands.dropout)),
        }

    def run(
        self,
        kernel: Any,
        work: Work,
        bucket: Bucket,
        tensors: Mapping[str, Tensor | None],
        programs: int | None = None,
        all_heads: bool = False,
        numbered: bool = False,
        **choices: bool,
    ) -> None:
        """Launches a kernel over a bucket, with one program per tile, or a given number that share the tiles.

        ``numbered``: whether the kernel reads or writes data per edge besides operands.
        """
        form, arguments = self._arguments(bucket, tensors, all_heads, choices)
        grid = (bucket.programs if programs is None else programs, self._head_tiles(form))
        with on_device_of(self.operands.value):
            kernel[grid](items_of(work, self._per_edge(numbered)), self.packed, **arguments)

    def resident(
        self,
        kernel: Any,
        work: Work,
        bucket: Bucket,
        tensors: Mapping[str, Tensor | None],
        all_heads: bool = False,
        numbered: bool = False,
        **choices: bool,
    ) -> int:
        """Return how many programs over a bucket's tiles the device runs at once, for each tile of heads.

        It takes the arguments of :meth:`run`. Without a GPU, as in the interpreter, the result is a fixed
        number.
        """
        device = self.operands.value.device
        if device.type != "cuda":
            return WITHOUT_DEVICE
        form, arguments = self._arguments(bucket, tensors, all_heads, choices)
        items = items_of(work, self._per_edge(numbered))
        inputs = (*items, *self.packed, *tensors.values())
        types = tuple(None if each is None else each.dtype for each in inputs)
        key = (kernel, form, types, tuple(choices.items()), self.plan.num_warps, device)
        programs = _RESIDENT.get(key)
        if programs is None:
            with on_device_of(self.operands.value):
                compiled = kernel.warmup(items, self.packed, grid=(1,), **arguments)
            programs = _RESIDENT[key] = resident_programs(compiled, multiprocessors(device))
        return max(programs // self._head_tiles(form), 1)

    def _arguments(
        self,
        bucket: Bucket,
        tensors: Mapping[str, Tensor | None],
        all_heads: bool,
        choices: Mapping[str, bool],
    ) -> tuple[AttentionConstants, dict[str, Any]]:
        """Return the compile-time form of a launch, and its keyword arguments."""
        form = replace(
            self.form,
            HEADS=power_of_two(self.form.H) if all_heads else self.form.HEADS,
            ROWS=bucket.rows,
            EDGES=bucket.edges,
        )
        bounds = {"first": bucket.first, "count": bucket.count}
        return form, {**tensors, **self.numbers, **bounds, "FORM": form, **choices, **bounded(self.plan)}

    def _per_edge(self, numbered: bool) -> bool:
        """Return whether data are read or written for every edge."""
        return numbered or self.form.EDGE != 0 or self.form.MASK != 0

    @staticmethod
    def _head_tiles(form: AttentionConstants) -> int:
        return -(-form.H // form.HEADS)
