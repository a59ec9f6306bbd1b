"""The report of layers that were estimated from samples of their windows."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from onehop.machines.ndp.sampled import SampledLayer, SampledMapping
from onehop.machines.ndp.sampling import Estimate


def sampled_report(layers: Sequence[SampledLayer]) -> dict[str, Any]:
    """Layers of one model together, under the keys of ``onehop simulate ndp --sample N --json``.

    An estimated figure has three keys: itself, and with ``_low`` and ``_high`` the ends of its interval.
    """
    time, host = total([one.time_ns for one in layers]), total([one.baseline_ns for one in layers])
    prior = total([one.best_prior_ns for one in layers])
    orders = [one.chosen.host_order for one in layers]
    first = layers[0]
    return {
        **_keys("time_ms", time.scaled(1e-6)),
        "bound_ms": sum(one.chosen.bound_ns for one in layers) / 1e6,
        **_keys("speedup_over_baseline", _gain([one.speedup_over_baseline for one in layers], host, time)),
        **_keys("speedup_over_prior", _gain([one.speedup_over_prior for one in layers], prior, time)),
        "host_order": orders[0] if len(set(orders)) == 1 else ", ".join(orders),
        "sample": {
            "runs": first.sample.runs,
            "seed": first.sample.seed,
            "confidence": first.sample.confidence,
        },
        "layers": [_layer(one) for one in layers],
    }


def total(parts: Sequence[Estimate]) -> Estimate:
    """The sum of figures, of which equal ones come from one sample, and all others from independent ones."""
    half = sum((count * part.half) ** 2 for part, count in Counter(parts).items()) ** 0.5
    return Estimate.within(sum(part.value for part in parts), half)


def _gain(of_layers: list[Estimate], other: Estimate, own: Estimate) -> Estimate:
    """Time of another machine over this one's; the interval of several layers takes both as independent."""
    if len(of_layers) == 1:
        return of_layers[0]
    gain = other.value / own.value
    return Estimate.within(
        gain, gain * ((other.half / other.value) ** 2 + (own.half / own.value) ** 2) ** 0.5
    )


def _layer(found: SampledLayer) -> dict[str, Any]:
    return {
        "width": found.width,
        "mapping": found.mapping,
        "host_order": found.chosen.host_order,
        **_keys("time_ms", found.time_ns.scaled(1e-6)),
        "bound_ms": found.chosen.bound_ns / 1e6,
        **_keys("baseline_ms", found.baseline_ns.scaled(1e-6)),
        **_keys("speedup_over_baseline", found.speedup_over_baseline),
        **_keys("speedup_over_prior", found.speedup_over_prior),
        **_keys("read_reduction_percent", found.read_reduction_percent),
        **_keys("edges", found.edges),
        "candidates": {name: _candidate(each) for name, each in found.candidates.items()},
        "impossible": dict(found.impossible),
        "prior": {name: _keys("serial_ms", each.scaled(1e-6)) for name, each in found.prior_ns.items()},
    }


def _candidate(found: SampledMapping) -> dict[str, Any]:
    return {
        "host_order": found.host_order,
        **_keys("time_ms", found.time_ns.scaled(1e-6)),
        "bound_ms": found.bound_ns / 1e6,
        "orders_ms": {order: ns / 1e6 for order, ns in found.orders_ns.items()},
        "windows": found.windows,
        "simulated": found.simulated,
    }


def _keys(name: str, found: Estimate) -> dict[str, float]:
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
