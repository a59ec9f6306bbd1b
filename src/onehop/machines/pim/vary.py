"""Variations of a machine by name: the parameters of a design study."""

from dataclasses import fields, replace
from typing import Any

from onehop.errors import ArgumentError
from onehop.machines.pim.config import PimConfig, settable
from onehop.machines.pim.parts import Links

# Variations of several of the configuration's values at once.
TOGETHER = {
    "host_links": "all rates between host and cores, times this",
    "merge_speed": "the host's merging and its memory, times this",
    "multiply_instructions": "of every multiply, whatever its bits: a multiplier in hardware has few",
    "accumulate_instructions": "of every add in a loop",
}


def names() -> list[str]:
    """Return the names of the values that can be varied."""
    return [*settable(), *TOGETHER]


def varied(config: PimConfig, name: str, value: float) -> PimConfig:
    """Return the machine with another value for a name; a factor for ``host_links`` and ``merge_speed``.

    If the number of cores changes, the number of ranks changes in proportion, so a rank keeps its size.

    Raises:
        ArgumentError: The name is unknown.
        ConfigurationError: The value is out of range.
    """
    links = config.links
    match name:
        case "cores":
            cores = round(value)
            return config.with_(cores=cores, ranks=max(round(config.ranks * cores / config.cores), 1))
        case "host_links":
            rates: dict[str, Any] = {
                each.name: getattr(links, each.name) * value
                for each in fields(Links)
                if each.name == "push_gbps" or each.name.startswith(("rank_", "core_pu"))
            }
            for curve in ("broadcast_gbps", "pull_gbps"):
                rates[curve] = tuple((at, rate * value) for at, rate in getattr(links, curve))
            # Time of pulling includes first touches of pages, so they shrink with it.
            rates["page_fault_ns"] = links.page_fault_ns / value
            return config.with_(**rates)
        case "merge_speed":
            return config.with_(
                copy_ns=tuple((width, ns / value) for width, ns in links.copy_ns),
                add_ns=tuple((width, ns / value) for width, ns in links.add_ns),
                host_dram_gbps=links.host_dram_gbps * value,
            )
        case "multiply_instructions":
            return config.with_(
                arithmetic={
                    dtype: replace(costs, multiply_one=value, multiply_full=value)
                    for dtype, costs in config.arithmetic.items()
                }
            )
        case "accumulate_instructions":
            return config.with_(
                arithmetic={
                    dtype: replace(costs, accumulate=value) for dtype, costs in config.arithmetic.items()
                }
            )
    if name not in settable():
        raise ArgumentError(f"vary: expected one of {', '.join(names())}, got {name!r}.")
    parts = (config, config.core, config.links, config.power, config.host)
    current = next(getattr(part, name) for part in parts if hasattr(part, name))
    return config.with_(**{name: round(value) if isinstance(current, int) else value})
