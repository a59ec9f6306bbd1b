"""Specification of a generated kernel, and its source text."""

import re
from dataclasses import dataclass

from onehop import native

# Locality of prefetched rows: the last argument of __builtin_prefetch. On x86, these are the hints T0, T1, T2
# and NTA.
KEEP = {"t0": 3, "t1": 2, "t2": 1, "nta": 0}
# Types of csrc/kernels/simd.hpp, and values of onehop::DType.
_TYPES = {
    "float32": ("float", 0),
    "float64": ("double", 1),
    "bfloat16": ("onehop::bfloat16", 2),
    "float16": ("onehop::float16", 3),
}
_INCLUDE = re.compile(r'^#(include "|pragma once).*\n', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Spec:
    """The constants of a generated kernel.

    Attributes:
        kind: "sum" (also for mean; of plain rows, times a weight, times the source's scale) or "extremum"
            (max and min, with and without ties; of plain rows and times a weight).
        dtype: Dtype in which the features are read.
        columns: Number of columns in one pass over the graph.
        stride: Numbers from one row of the features to the next.
        prefetch: Number of edges by which rows are prefetched ahead; 0 means no prefetching.
        keep: Locality of prefetched rows, one of :data:`KEEP`.
        chains: Number of independent sums among which a row's edges are divided; for sums only.
        block: Maximum number of a row's vectors that are held in registers at a time.
    """

    kind: str
    dtype: str
    columns: int
    stride: int
    prefetch: int
    keep: str = "t1"
    chains: int = 1
    block: int = 8

    @property
    def title(self) -> str:
        """The beginning of the kernel's file name."""
        return (
            f"{self.kind}-{self.dtype}-{self.columns}of{self.stride}-p{self.prefetch}-{self.keep}"
            f"-x{self.chains}-b{self.block}"
        )

    def source(self) -> str:
        """Return the whole source: templates of the built-in kernels, then the constants, then the table."""
        type_name, number = _TYPES[self.dtype]
        headers = "".join(_INCLUDE.sub("", text) for _, text in native.extension.kernel_templates())
        return f"""\
// {self.title}
#define ONEHOP_ISA generated
{headers}
namespace onehop {{
inline namespace ONEHOP_ISA {{

struct Fixed {{
  static constexpr int64_t kColumns = {self.columns}, kStride = {self.stride};
  static constexpr int kPrefetch = {self.prefetch}, kKeep = {KEEP[self.keep]};
  static constexpr int kChains = {self.chains}, kBlock = {self.block};
}};

}}  // namespace ONEHOP_ISA
}}  // namespace onehop

extern "C" __attribute__((visibility("default"))) constexpr onehop::Generated onehop_generated =
    onehop::generated_{self.kind}<{type_name}, onehop::Fixed>({number});
"""
