"""Programs that a device runs at once, for kernels whose programs share all the work."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

# Of NVIDIA's GPUs since compute capability 8.0 (CUDA C++ Programming Guide, table of technical
# specifications): registers are handed out to a warp by 256, a multiprocessor holds at most 32 blocks, and
# 1 KB of shared memory goes to the system for each of these.
_REGISTERS_AT_A_TIME = 256
_MOST_PROGRAMS = 32
# Of a multiprocessor, from the same table, where torch does not say.
_REGISTERS = 65_536
_SYSTEM_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Multiprocessors:
    """The multiprocessors of a device.

    Attributes:
        count: Number of multiprocessors.
        registers: 32-bit registers of each.
        threads: Most threads of each.
        shared_bytes: Shared memory of each.
        warp_threads: Threads of a warp.
    """

    count: int
    registers: int
    threads: int
    shared_bytes: int
    warp_threads: int

    def programs_on_each(self, registers: int, shared_bytes: int, num_warps: int) -> int:
        """Programs that one multiprocessor runs at once; at least 1.

        Args:
            registers: Of a thread.
            shared_bytes: Of a program.
            num_warps: Of a program.
        """
        of_warp = _up(registers * self.warp_threads, _REGISTERS_AT_A_TIME)
        by_registers = self.registers // (of_warp * num_warps)
        by_threads = self.threads // (self.warp_threads * num_warps)
        by_shared = self.shared_bytes // (shared_bytes + _SYSTEM_BYTES)
        return max(min(by_registers, by_threads, by_shared, _MOST_PROGRAMS), 1)


@lru_cache(maxsize=16)
def multiprocessors(device: torch.device) -> Multiprocessors:
    """Those of a GPU, as torch describes it."""
    found = torch.cuda.get_device_properties(device)
    return Multiprocessors(
        found.multi_processor_count,
        getattr(found, "regs_per_multiprocessor", _REGISTERS),
        found.max_threads_per_multi_processor,
        found.shared_memory_per_multiprocessor,
        found.warp_size,
    )


def resident_programs(compiled: Any, of: Multiprocessors) -> int:
    """Programs of a compiled kernel that a device runs at once.

    Args:
        compiled: What triton's ``warmup`` returns.
        of: The device's.
    """
    compiled._init_handles()  # asks the driver for the registers; launches do the same
    metadata = compiled.metadata
    return of.count * of.programs_on_each(compiled.n_regs, metadata.shared, metadata.num_warps)


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
