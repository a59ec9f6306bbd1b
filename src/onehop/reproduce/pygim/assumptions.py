"""Unknowns that PyGim's abstract and repository leave open, and the machines that the evidence allows.

The machines are all combinations of the ends of the assumed constants' bounds.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

from onehop.machines.pim import PimConfig, upmem_v1a
from onehop.machines.pim.provenance import BOUNDS, CONSTANTS
from onehop.reproduce.intervals import BASE, OUR_CHOICE, Setting, Unknown

# Number of the host's threads that merge, the same for all schemes. The published code has one; the number in
# the paper's runs is not known, so the intervals include every number here.
THREADS = (1, 4, 16)
# Factors of the prior schemes' merge speed. Their merge is charged at PyGim's measured rates, because their
# own code was not measured; a loop in C that adds such slices runs up to three times as fast.
MERGE_SPEEDS = (1.0, 3.0)
# Two sockets of 85 W, the thermal design power of the Xeon Silver 4215, which is recalled as in the class of
# the paper's processor.
FULL_LOAD_W = 170.0
FULL_LOAD = f"{FULL_LOAD_W:g} W while the host multiplies"
FAST_MERGE = f"prior schemes merge {MERGE_SPEEDS[1]:g} times as fast"
CACHED = "rows from the host's caches"
WITH_ARXIV = "arxiv among the graphs"
# The label of a number of merging threads; the published code has one, the base.
THREAD_LABELS = {threads: "" if threads == 1 else f"{threads} merging threads" for threads in THREADS}
_TEXTS = {
    "page_fault_ns": "page faults of {:,.0f} ns",
    "element_instructions": "{:g} instruction for each element",
    "coo_edge_instructions": "{:g} instructions more for COO",
    "product_gflops": "products at {:,.0f} GFLOPS",
    "host_idle_w": "{:g} W of the idle host",
    "core_w": "{:g} W of a core",
    "rank_w": "{:g} W of a rank",
}
_PARTS = {
    **dict.fromkeys(("element_instructions", "coo_edge_instructions"), "core"),
    **dict.fromkeys(("host_idle_w", "core_w", "rank_w"), "power"),
    **{"page_fault_ns": "links", "product_gflops": "host"},
}


def _preset(name: str) -> float:
    """Return the preset's value of a constant that :data:`BOUNDS` has."""
    value: float = getattr(getattr(upmem_v1a(), _PARTS[name]), name)
    return value


def _labels(name: str) -> dict[str, float]:
    """Return the ends of a constant's bounds that differ from the preset, by their labels."""
    return {_TEXTS[name].format(value): value for value in BOUNDS[name] if value != _preset(name)}


# The label of a setting -> the constant and its value.
_CONSTANTS = {label: (name, value) for name in _TEXTS for label, value in _labels(name).items()}


def _unknown(name: str, what: str, settled_by: str) -> Unknown:
    """Return the unknown of a constant of the machine, with its provenance, where R is the repository."""
    source = re.sub(r"\bR\b", "the repository", CONSTANTS[f"{_PARTS[name]}.{name}"].text)
    return Unknown(what, f"{_preset(name):g}", tuple(_labels(name)), source, settled_by)


_POWERS = "the paper's method of energy, or a power meter on such a server"
_LOOP = "a run of the kernels without a multiply on a core, or on a simulator of its instructions"
UNKNOWNS = (
    Unknown(
        "merging threads",
        "1",
        tuple(label for label in THREAD_LABELS.values() if label),
        f"the published code has one; 4 and 16 are {OUR_CHOICE}: a host of this class has 16 cores",
        "the number of merging threads in the paper's runs",
    ),
    Unknown(
        "the speed of prior schemes' merge",
        "PyGim's measured rates",
        (FAST_MERGE,),
        f"{OUR_CHOICE}: their own code was not measured; our loop in C is three times as fast",
        "a profile of the prior schemes' merge on the paper's host",
    ),
    Unknown(
        "the graphs of the mean",
        "Reddit, ogbn-proteins, AmazonProducts",
        (WITH_ARXIV,),
        f"{OUR_CHOICE}: the abstract names no graph; these are recalled from the repository's data sets",
        "the paper's list of graphs",
    ),
    _unknown("page_fault_ns", "a page fault, ns", "a profile of the host while it receives results"),
    _unknown("element_instructions", "instructions for an element", _LOOP),
    _unknown("coo_edge_instructions", "further instructions of COO for an edge", _LOOP),
    _unknown("product_gflops", "the host's products, GFLOPS", "the name of the paper's processor"),
)
POWERS = (
    Unknown(
        "the host's power while it multiplies, W",
        "70",
        (FULL_LOAD,),
        "70 W were measured on another server during transfers; 170 W is the thermal design power of two "
        f"sockets of a Xeon Silver 4215, whose class is {OUR_CHOICE}",
        _POWERS,
    ),
    _unknown("host_idle_w", "the idle host's power, W", _POWERS),
    _unknown("core_w", "a core's power, W", _POWERS),
    _unknown("rank_w", "a rank's power, W", _POWERS),
)
HOSTS = (
    Unknown(
        "the rows that PyTorch reads on the host",
        "a row for each edge, from memory",
        (CACHED,),
        "each row once is the least that a product reads; a row for each edge is the most",
        "PyTorch's sparse product, timed on the paper's host",
    ),
)


@dataclass(frozen=True, slots=True)
class Assumption:
    """One machine that the evidence allows.

    Attributes:
        config: The machine, for Parallelism Fusion.
        prior: The machine for prior schemes, whose merge may be faster.
        setting: What differs from the preset, in the words of :data:`UNKNOWNS` and :data:`POWERS`.
        product_w: The host's power while it multiplies matrices, in W, for every scheme and for PyTorch; None
            means its power during transfers.
    """

    config: PimConfig
    prior: PimConfig
    setting: Setting = BASE
    product_w: float | None = None


@cache
def assumption(setting: Setting) -> Assumption:
    """Return the machine of a setting; labels of threads, graphs and PyTorch change no machine."""
    changed = dict(_CONSTANTS[label] for label in setting if label in _CONSTANTS)
    config = upmem_v1a()
    if "element_instructions" in changed:
        config = with_element(config, changed.pop("element_instructions"))
    config = config.with_(**changed)
    prior = with_merge(config, MERGE_SPEEDS[1]) if FAST_MERGE in setting else config
    return Assumption(config, prior, setting, FULL_LOAD_W if FULL_LOAD in setting else None)


def base() -> Assumption:
    """Return the preset."""
    return assumption(BASE)


def corners(*choices: Iterable[str]) -> Iterator[Setting]:
    """Yield all combinations of labels, one of each choice; an empty label is the preset."""
    for labels in product(*choices):
        yield frozenset(label for label in labels if label)


def _ends(name: str) -> tuple[str, ...]:
    """Return the labels of both ends of a constant's bounds; the label of the preset is empty."""
    by_value = {value: label for label, value in _labels(name).items()}
    return tuple(by_value.get(value, "") for value in BOUNDS[name])


def of_time() -> Iterator[Assumption]:
    """Yield machines that differ in page faults, instructions or prior schemes' merge, which decide times."""
    decisive = ("page_fault_ns", "element_instructions", "coo_edge_instructions")
    for setting in corners(*map(_ends, decisive), ("", FAST_MERGE)):
        yield assumption(setting)


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


def of_host(one: Assumption) -> Iterator[Assumption]:
    """Yield a machine at both ends of its host's rate of products."""
    for setting in corners(_ends("product_gflops")):
        yield assumption(one.setting | setting)


def of_energy(one: Assumption) -> Iterator[Assumption]:
    """Yield a machine at both ends of every unverified power."""
    for setting in corners(*map(_ends, ("host_idle_w", "core_w", "rank_w")), ("", FULL_LOAD)):
        yield assumption(one.setting | setting)
