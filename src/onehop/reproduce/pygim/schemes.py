"""One aggregation under each scheme, on one machine."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from onehop.errors import MachineMemoryError
from onehop.machines.pim import Machine, PimConfig, PimPlan, PimReport, prior_art, tune
from onehop.machines.pim.shapes import Shapes
from onehop.reproduce.pygim.assumptions import Assumption

WIDTH, DTYPE = 256, "int32"
GRANDE, SPARSEP, GNNEAR, GNMP, PUBLISHED, OURS = SCHEMES = (
    *("GraNDe-like", "SparseP-like", "GNNear-like", "G-NMP-like"),
    *("PaF, published", "PaF, ours"),
)
# Prior schemes that are known as the paper ran them; for the others, only the mapping to ranks is known.
PRIOR, MAPPED = (GRANDE, SPARSEP), (GNNEAR, GNMP)


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
    by_scheme = reports(assumption, shapes, threads, SCHEMES)
    return Outcome(by_scheme, *_winners(Machine(assumption.config), shapes, threads))


def reports(
    assumption: Assumption, shapes: Shapes, threads: int, schemes: Iterable[str]
) -> dict[str, PimReport]:
    """Run some schemes on a graph; a scheme that does not fit is missing."""
    ours, prior = Machine(assumption.config), Machine(assumption.prior)
    kernel = ours.kernel(prior_art.PUBLISHED, DTYPE)

    def plan_of(scheme: str) -> PimPlan | None:
        if scheme == GRANDE:
            return replace(prior_art.grande(assumption.prior), merge_threads=threads)
        if scheme == SPARSEP:
            return prior_art.best_sparsep(assumption.prior, shapes, WIDTH, kernel, threads)
        if scheme == GNNEAR:
            return replace(prior_art.gnnear(assumption.prior), merge_threads=threads)
        if scheme == GNMP:
            return prior_art.gnmp(assumption.prior, shapes, WIDTH, kernel, threads)
        if scheme == PUBLISHED:
            return prior_art.pygim_search(assumption.config, shapes, WIDTH, kernel, threads)
        return tune(ours, shapes, WIDTH, DTYPE, base=improved(threads)).plan

    by_scheme = {}
    for scheme in schemes:
        plan = plan_of(scheme)
        if plan is None:
            continue
        machine = ours if scheme in (PUBLISHED, OURS) else prior
        try:
            by_scheme[scheme] = machine.simulate(shapes, WIDTH, plan, DTYPE).summary()
        except MachineMemoryError:
            # Running out of memory is a result: the scheme has no time.
            continue
    return by_scheme


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
