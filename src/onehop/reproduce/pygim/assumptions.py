"""The machines that the evidence allows: all combinations of the ends of the assumed constants' bounds."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from onehop.machines.pim import PimConfig, upmem_v1a
from onehop.machines.pim.provenance import BOUNDS

# Prior schemes' merge is charged at PyGim's measured rates. Their own code was not measured: a loop in C that
# adds such slices runs up to three times as fast.
MERGE_SPEEDS = (1.0, 3.0)


@dataclass(frozen=True, slots=True)
class Assumption:
    """One machine.

    Attributes:
        config: The machine, for Parallelism Fusion.
        prior: The same for prior schemes, whose merge may be faster.
    """

    config: PimConfig
    prior: PimConfig


def base() -> Assumption:
    """The preset."""
    return Assumption(upmem_v1a(), upmem_v1a())


def of_time() -> Iterator[Assumption]:
    """Machines that differ in what decides times: page fault, instructions, the prior schemes' merge."""
    for fault, element, stream, speed in product(
        BOUNDS["page_fault_ns"],
        BOUNDS["element_instructions"],
        BOUNDS["coo_edge_instructions"],
        MERGE_SPEEDS,
    ):
        config = with_element(upmem_v1a(), element).with_(page_fault_ns=fault, coo_edge_instructions=stream)
        yield Assumption(config, with_merge(config, speed))


def with_element(config: PimConfig, instructions: float) -> PimConfig:
    """The machine with another split of one measured sum: an element's instructions and a multiply by one.

    Args:
        config: The machine.
        instructions: Of an element besides its arithmetic.
    """
    moved = config.core.element_instructions - instructions
    int32 = config.arithmetic["int32"]
    changed = replace(
        int32,
        multiply_one=int32.multiply_one + moved,
        multiply_full=max(int32.multiply_full, int32.multiply_one + moved),
    )
    return config.with_(element_instructions=instructions, arithmetic={**config.arithmetic, "int32": changed})


def with_merge(config: PimConfig, speed: float) -> PimConfig:
    """The machine with a merge that is so many times as fast for each slice; the memory's limit stays."""
    links = config.links
    return config.with_(
        copy_ns=tuple((width, ns / speed) for width, ns in links.copy_ns),
        add_ns=tuple((width, ns / speed) for width, ns in links.add_ns),
    )


def of_host(assumption: Assumption) -> Iterator[Assumption]:
    """A machine at both ends of its host's rate of products."""
    for rate in BOUNDS["product_gflops"]:
        yield Assumption(
            assumption.config.with_(product_gflops=rate), assumption.prior.with_(product_gflops=rate)
        )


def of_energy(assumption: Assumption) -> Iterator[Assumption]:
    """A machine at both ends of every unverified power."""
    for idle, core, rank in product(BOUNDS["host_idle_w"], BOUNDS["core_w"], BOUNDS["rank_w"]):
        powers = {"host_idle_w": idle, "core_w": core, "rank_w": rank}
        yield Assumption(assumption.config.with_(**powers), assumption.prior.with_(**powers))
