"""One aggregation under each scheme, on the machines that the evidence allows.

The machines are all combinations of the ends of the assumed constants' bounds.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from onehop.errors import MachineMemoryError
from onehop.machines.pim import Machine, PimConfig, PimPlan, PimReport, prior_art, tune, upmem_v1a
from onehop.machines.pim.provenance import BOUNDS
from onehop.machines.pim.shapes import Shapes

WIDTH, DTYPE = 256, "int32"
# Number of the host's threads that merge, the same for all schemes. The published code has one; the number in
# the paper's runs is not known, so the intervals include every number here.
THREADS = (1, 4, 16)
GRANDE, SPARSEP, GNNEAR, GNMP, PUBLISHED, OURS = SCHEMES = (
    *("GraNDe-like", "SparseP-like", "GNNear-like", "G-NMP-like"),
    *("PaF, published", "PaF, ours"),
)
# Prior schemes that are known as the paper ran them; for the others, only the mapping to ranks is known.
PRIOR, MAPPED = (GRANDE, SPARSEP), (GNNEAR, GNMP)
# Factors of the prior schemes' merge speed. Their merge is charged at PyGim's measured rates, because their
# own code was not measured; a loop in C that adds such slices runs up to three times as fast.
MERGE_SPEEDS = (1.0, 3.0)


@dataclass(frozen=True, slots=True)
class Assumption:
    """One machine that the evidence allows.

    Attributes:
        config: The machine, for Parallelism Fusion.
        prior: The machine for prior schemes, whose merge may be faster.
    """

    config: PimConfig
    prior: PimConfig


def base() -> Assumption:
    """Return the preset."""
    return Assumption(upmem_v1a(), upmem_v1a())


def of_time() -> Iterator[Assumption]:
    """Yield machines that differ in page faults, instructions or prior schemes' merge, which decide times."""
    for fault, element, stream, speed in product(
        BOUNDS["page_fault_ns"],
        BOUNDS["element_instructions"],
        BOUNDS["coo_edge_instructions"],
        MERGE_SPEEDS,
    ):
        config = with_element(upmem_v1a(), element).with_(page_fault_ns=fault, coo_edge_instructions=stream)
        yield Assumption(config, with_merge(config, speed))


def with_element(config: PimConfig, instructions: float) -> PimConfig:
    """Return the machine with another split of a measured sum: element instructions and multiply by one."""
    moved = config.core.element_instructions - instructions
    int32 = config.arithmetic["int32"]
    changed = replace(
        int32,
        multiply_one=int32.multiply_one + moved,
        multiply_full=max(int32.multiply_full, int32.multiply_one + moved),
    )
    return config.with_(element_instructions=instructions, arithmetic={**config.arithmetic, "int32": changed})


def with_merge(config: PimConfig, speed: float) -> PimConfig:
    """Return the machine with a merge that is faster for each slice; the memory's limit stays."""
    links = config.links
    return config.with_(
        copy_ns=tuple((width, ns / speed) for width, ns in links.copy_ns),
        add_ns=tuple((width, ns / speed) for width, ns in links.add_ns),
    )


def of_host(assumption: Assumption) -> Iterator[Assumption]:
    """Yield a machine at both ends of its host's rate of products."""
    for rate in BOUNDS["product_gflops"]:
        yield Assumption(
            assumption.config.with_(product_gflops=rate), assumption.prior.with_(product_gflops=rate)
        )


def of_energy(assumption: Assumption) -> Iterator[Assumption]:
    """Yield a machine at both ends of every unverified power."""
    for idle, core, rank in product(BOUNDS["host_idle_w"], BOUNDS["core_w"], BOUNDS["rank_w"]):
        powers = {"host_idle_w": idle, "core_w": core, "rank_w": rank}
        yield Assumption(assumption.config.with_(**powers), assumption.prior.with_(**powers))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The aggregation of each scheme on one machine.

    Attributes:
        reports: The report of each scheme; a scheme that does not fit is missing.
        csr_over_coo: Best time of published kernels in CSR divided by their best time in COO.
        one_over_two: Best time of one sparse part divided by the best time of two, both in CSR.
    """

    reports: dict[str, PimReport]
    csr_over_coo: float
    one_over_two: float

    def ratio(self, prior: str, scheme: str) -> float | None:
        """Return a prior scheme's time divided by a Parallelism Fusion scheme's; None if one does not fit."""
        if prior not in self.reports or scheme not in self.reports:
            return None
        return self.reports[prior].total_ms / self.reports[scheme].total_ms


def improved(threads: int) -> PimPlan:
    """Return a plan with our kernels and merge, before the grid is chosen."""
    return PimPlan(unit_weights=True, merge_threads=threads, reuse_buffers=True, merge_order="row")


def outcome(assumption: Assumption, shapes: Shapes, threads: int) -> Outcome:
    """Run every scheme on a graph; for all schemes, ``threads`` of the host's threads merge."""
    ours, prior = Machine(assumption.config), Machine(assumption.prior)
    kernel = ours.kernel(prior_art.PUBLISHED, DTYPE)
    plans: dict[str, tuple[Machine, PimPlan | None]] = {
        GRANDE: (prior, replace(prior_art.grande(assumption.prior), merge_threads=threads)),
        SPARSEP: (prior, prior_art.best_sparsep(assumption.prior, shapes, WIDTH, kernel, threads)),
        GNNEAR: (prior, replace(prior_art.gnnear(assumption.prior), merge_threads=threads)),
        GNMP: (prior, prior_art.gnmp(assumption.prior, shapes, WIDTH, kernel, threads)),
        PUBLISHED: (ours, prior_art.pygim_search(assumption.config, shapes, WIDTH, kernel, threads)),
        OURS: (ours, tune(ours, shapes, WIDTH, DTYPE, base=improved(threads)).plan),
    }
    reports = {}
    for scheme, (machine, plan) in plans.items():
        if plan is None:
            continue
        try:
            reports[scheme] = machine.simulate(shapes, WIDTH, plan, DTYPE).summary()
        except MachineMemoryError:
            # Running out of memory is a result: the scheme has no time.
            continue
    return Outcome(reports, *_winners(ours, shapes, threads))


def _winners(machine: Machine, shapes: Shapes, threads: int) -> tuple[float, float]:
    """Return best published kernels' ratios: CSR over COO, and one sparse part over two, both in CSR."""
    config = machine.config
    published = replace(prior_art.PUBLISHED, merge_threads=threads)
    grids = [(sp, config.ranks // sp) for sp in (1, 2, 4) if config.ranks % sp == 0]

    def best(form: str, parts: Iterable[int]) -> float:
        plans = [
            replace(published, sp=sp, ds=ds, format=form, core_balance=core, thread_balance=thread)
            for sp, ds in grids
            if sp in parts
            for core in ("row", "edge")
            for thread in ("row", "edge")
        ]
        return min(_time(machine, shapes, plan) for plan in plans)

    everything = [sp for sp, _ in grids]
    coo, csr = best("coo", everything), best("csr", everything)
    one, two = best("csr", everything[:1]), best("csr", everything[1:2])
    return csr / coo, one / two


def _time(machine: Machine, shapes: Shapes, plan: PimPlan) -> float:
    try:
        return machine.simulate(shapes, WIDTH, plan, DTYPE).total_ns
    except MachineMemoryError:
        return float("inf")


def named(config: PimConfig) -> str:
    """Return the machine's description for titles."""
    return f"simulated: {config.name}, {config.cores:,} cores at {config.core.clock_mhz:g} MHz"
