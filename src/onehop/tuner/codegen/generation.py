"""Generated kernels as further candidates: which constants to fix, and the race against built-in kernels.

Constants other than width and dtype are found by measurement. They depend on the class of the graph: prefetch
distance and hint depend on where its rows are stored, and the number of chains depends on the number of edges
per row.
"""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from onehop import native
from onehop.backends.cpu import CpuBackend
from onehop.backends.reference import ReferenceBackend
from onehop.calls import Aggregate, Extremum, on
from onehop.graph import Graph
from onehop.plans import CpuPlan
from onehop.plans.cpu import MOST_PREFETCH
from onehop.plans.tuned import PlanCase
from onehop.tuner.codegen.builder import CodegenError, Compiler, build, discard, find_compiler
from onehop.tuner.codegen.spec import Spec
from onehop.tuner.search import Search

# Operations for whose kernels there is a template.
KINDS = ("sum", "extremum")
# Registers of a processor, and registers that addresses, factors and messages need; sums use the others.
_REGISTERS, _MORE_REGISTERS, _SPARE_REGISTERS = 16, 32, 4
# Several chains pay off if a row has so few vectors that each addition would wait for the previous one.
_CHAINED_VECTORS, _CHAINS = 4, (1, 2, 4)
_KEEPS = ("t0", "t1", "t2", "nta")
# The compiler's names for a plan's prefetch hints.
_HINTS = {"L1": "t0", "L2": "t1"}
_LONGEST_COMPILE_S = 60.0
_TOLERANCE = 1e-4
# The small graph of a test: number of nodes, edges of its hub, and edges.
_NODES, _HUB, _EDGES = 40, 300, 500
# Relative to the results' magnitude: sums of a few hundred numbers, in float32 or wider.
_SMALL_TOLERANCE = 1e-5


class Generation:
    """One attempt to generate kernels, for one direction at one width, after a finished search.

    Args:
        case: The case of the search.
        search: The finished search.
        call: The call that the search measured.
        dtype: Dtype of the features.
    """

    def __init__(
        self, case: PlanCase, search: Search[CpuPlan], call: Callable[[CpuPlan], Tensor], dtype: torch.dtype
    ) -> None:
        self.case, self.search, self.call = case, search, call
        self.built_in = dataclasses.replace(search.best, generated="")
        self.dtype = torch.bfloat16 if self.built_in.storage == "bfloat16" else dtype
        self.specs: dict[CpuPlan, Spec] = {}
        self.fault = ""
        self._dtype_of_result = dtype
        self._expected: Tensor | None = None

    def run(self) -> tuple[str, bool]:
        """Build kernels and race them; if one wins, the search's best plan names it.

        Returns:
            The outcome as a sentence, and whether a kernel was measured.
        """
        if self.case.operation not in KINDS:
            return f"kernels are generated for sums and extrema, not for {self.case.operation}", False
        try:
            compiler = find_compiler()
        except CodegenError as error:
            return f"no kernel was generated: {error}; the built-in ones are used", False
        self.search.open_again()
        first = self._ready_of(compiler, self._first())
        if not first:
            why = self.fault or "there was no time left"
            return f"no kernel was generated: {why}; the built-in ones are used", False
        base = self.search.faster(first[0], first[1:])
        more = self._ready_of(compiler, self._variants(self.specs[base]))
        best = self.search.faster(self.built_in, [base, *more])
        fault = f" ({self.fault})" if self.fault else ""
        ratio = self.search.settle_against(self.built_in, best)
        if self.search.best == best != self.built_in:
            return f"generated kernel, {ratio:.2f}x the best built-in one{fault}", True
        gain = "" if ratio is None else f", the best {ratio:.2f}x the built-in one"
        return f"{len(self.specs)} generated kernels measured{gain}: the built-in one is used{fault}", True

    def _ready_of(self, compiler: Compiler, specs: list[Spec]) -> list[CpuPlan]:
        return [plan for spec in specs if (plan := self._ready(compiler, spec)) is not None]

    def _first(self) -> list[Spec]:
        """Return specs with the plan's values, with one chain and with more chains."""
        columns = self.built_in.column_tile or self.case.width
        columns = min(columns, self.case.width)
        vector_bytes = native.extension.vector_bytes()
        acc_bytes = 8 if self.dtype == torch.float64 else 4
        vectors = -(-columns * acc_bytes // vector_bytes)
        many = self.case.isa in ("avx512", "neon")
        room = (_MORE_REGISTERS if many else _REGISTERS) - _SPARE_REGISTERS
        plain = Spec(
            self.case.operation,
            str(self.dtype).removeprefix("torch."),
            columns,
            self.case.width,
            self.built_in.prefetch,
            keep=_HINTS[self.built_in.prefetch_hint],
            block=room,
        )
        if self.case.operation != "sum" or vectors > _CHAINED_VECTORS:
            return [plain]
        return [dataclasses.replace(plain, chains=n, block=room // n) for n in _CHAINS if vectors * n <= room]

    def _variants(self, spec: Spec) -> list[Spec]:
        """Return specs with other hints and prefetch distances."""
        distances = {min(2 * spec.prefetch, MOST_PREFETCH), spec.prefetch // 2} - {spec.prefetch}
        return [
            *(dataclasses.replace(spec, keep=keep) for keep in _KEEPS if spec.prefetch and keep != spec.keep),
            *(dataclasses.replace(spec, prefetch=distance) for distance in sorted(distances, reverse=True)),
        ]

    def _ready(self, compiler: Compiler, spec: Spec) -> CpuPlan | None:
        """Return the plan with this kernel; None if there is no time for the kernel or it failed.

        A compiler that has failed is not called again.
        """
        left = self.search.seconds_left()
        if left <= 0 or self.fault:
            return None
        try:
            name = build(spec, compiler, min(left, _LONGEST_COMPILE_S))
        except CodegenError as error:
            self.fault = str(error)
            return None
        plan = dataclasses.replace(self.built_in, generated=name, prefetch=spec.prefetch)
        wrong = wrong_result(plan, self.case.operation, self.case.width, self.dtype)
        if wrong is None and not self._agrees(plan):
            wrong = "a sum over this graph" if self.case.operation == "sum" else "an extremum over this graph"
        if wrong is not None:
            discard(name)
            self.fault = f"the compiler {compiler.command[0]} made a kernel that gets {wrong} wrong"
            return None
        self.specs[plan] = spec
        self.search.watch()
        return plan

    def _agrees(self, plan: CpuPlan) -> bool:
        if self._expected is None:
            self._expected = self.call(self.built_in).double()
        result = self.call(plan).double()
        scale = self._expected.abs().max().item() if result.numel() else 0.0
        # 16-bit results are rounded once; sums in different orders may be rounded to neighbouring numbers.
        tolerance = max(_TOLERANCE, 2 * torch.finfo(self._dtype_of_result).eps) * (1 + scale)
        return torch.allclose(result, self._expected, rtol=0, atol=tolerance)


def wrong_result(plan: CpuPlan, kind: str, width: int, dtype: torch.dtype) -> str | None:
    """Return how the plan's kernel differs from the reference, or None if it does not.

    The test graph has a hub that is split, empty rows and repeated edges; the features contain a NaN.

    Args:
        plan: The plan that names the kernel.
        kind: "sum" or "extremum".
        width: Number of columns.
        dtype: Dtype in which the kernel reads the features.
    """
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(0, _NODES // 2, (2, _EDGES), generator=generator, device="cpu")
    edges[1, :_HUB] = 3
    graph = Graph.from_edge_index(edges, num_nodes=_NODES)
    x = torch.randn(_NODES, width, generator=generator, device="cpu").to(dtype)
    acc = torch.float64 if dtype == torch.float64 else torch.float32
    weight, scale = (
        torch.rand(n, generator=generator, dtype=acc, device="cpu") + 0.5 for n in (_EDGES, _NODES)
    )
    # Small items split the hub; there is no order, because orders belong to the graph that is tuned.
    small = dataclasses.replace(plan, edges_per_item=64, ordering="none", storage="same")
    ours, theirs = CpuBackend(small), ReferenceBackend()
    if kind == "sum":
        for what, call in {
            "a sum": on(graph, Aggregate, x=x, widen=True),
            "a weighted sum": on(graph, Aggregate, x=x, weight=weight, widen=True),
            "a scaled sum": on(graph, Aggregate, x=x, src_scale=scale, dst_scale=scale, widen=True),
            "a mean": on(graph, Aggregate, x=x, mean=True, widen=True),
        }.items():
            if _differ(ours.run(graph, call), theirs.run(graph, call)):
                return what
        return None
    x[5, width // 2] = float("nan")
    for reduce in ("max", "min"):
        for factor in (None, weight):
            for ties in (False, True):
                extremum = on(graph, Extremum, x=x, reduce=reduce, weight=factor, widen=True, with_ties=ties)
                result, exact = (each.run(graph, extremum) for each in (ours, theirs))
                if any(_differ(a, b) for a, b in zip(result, exact, strict=True)):
                    return f"a{'' if factor is None else ' weighted'} {reduce}"
    return None


def _differ(result: Tensor, exact: Tensor) -> bool:
    tolerance = _SMALL_TOLERANCE * (1 + exact.nan_to_num().abs().max().item()) if exact.numel() else 0.0
    return not torch.allclose(result, exact.to(result.dtype), rtol=0, atol=tolerance, equal_nan=True)
