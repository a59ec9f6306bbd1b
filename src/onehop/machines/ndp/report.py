"""Reports of one layer and of several layers."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onehop.machines.common.report import Report
from onehop.machines.ndp import window_reads
from onehop.machines.ndp.durations import Reals
from onehop.machines.ndp.layer import LayerRun
from onehop.machines.ndp.mapping import Integers
from onehop.machines.ndp.outcome import Candidate, LayerOutcome, gain
from onehop.machines.ndp.silicon import unit_bounds
from onehop.machines.ndp.timeline import trace
from onehop.machines.ndp.windows import unit_share

# The texts of figures in tables.
_LABELS = {
    "host_order": "order of the host's work",
    "bound_ms": "least time in any order, ms",
    "hidden_share": "hidden share of the shorter path",
    "verdict": "bottleneck",
    "speedup_over_baseline": "host alone, times this time",
    "speedup_over_prior": "best prior machine, times this time",
    "speedup_over_overlapped_prior": "its steps overlapped, times this time",
    "read_reduction_percent": "feature reads that tiles save, %",
    "dram_model_error_percent": "error of the fast DRAM model, %",
    "retile": "order of targets",
    "window_targets": "targets in a window",
}


def layer_report(found: LayerOutcome) -> Report:
    """Return the report of a layer, ready for tables, JSON, timelines and plots."""
    run = found.run
    return Report(
        machine=run.traffic.config.name,
        phases_ns=run.phases_ns(),
        bytes=run.bytes(),
        energy_nj=run.energy_nj(),
        figures=_figures(found),
        timeline=trace(run.schedule.events, run.control_ns),
        labels=_LABELS,
    )


def verdict(run: LayerRun) -> str:
    """Return one line on the bottleneck of the layer: what it is, and what the rest costs."""
    bound = run.schedule.bound()
    windows = sum(bound.values())
    if not windows:
        return "no windows: the graph has no destinations"
    path = max(bound, key=lambda name: bound[name])
    names = {"host": "the Host-path", "dram": "the DRAM-path", "imbalance": "the slowest rank"}
    unit = unit_share([run.schedule])
    note = f"; the units, not the DRAM, pace {100 * unit:.0f} % of the reads" if unit > 0.01 else ""
    over = gain(run.schedule.total_ns, run.paths.bound_ns)
    return (
        f"{names[path]} in {100 * bound[path] / windows:.0f} % of {windows} windows; all of them take "
        f"{over:.2f} times as long as the busier path alone{note}"
    )


def _retiling(found: LayerOutcome) -> dict[str, Any] | None:
    """Return the cost of re-tiling and its gain in every layer; None in index order."""
    if found.index_order_ns is None:
        return None
    run = found.run
    return {
        "cost_ms": run.retiling_ns / 1e6,
        "cost": None if run.retiling is None else asdict(run.retiling),
        "index_order_ms": found.index_order_ns / 1e6,
        "gain_ms": (found.index_order_ns - (run.time_ns - run.retiling_ns)) / 1e6,
    }


def _tiling(found: LayerOutcome) -> dict[str, Any]:
    """Return the assignment of targets to tiles, and the times of all tried tilings without re-tiling."""
    return {
        "retile": found.plan.retile,
        "tilings_ms": {name: ns / 1e6 for name, ns in found.tilings_ns.items()},
    }


def _candidate(found: Candidate) -> dict[str, Any]:
    """Return a mapping's host order, its times in all orders, and its lower bound."""
    return {
        "host_order": found.host_order,
        "orders_ms": {order: ns / 1e6 for order, ns in found.orders_ns.items()},
        "bound_ms": found.bound_ns / 1e6,
        "hidden_share": found.hidden_share,
    }


def _figures(found: LayerOutcome) -> dict[str, Any]:
    """Return figures that only this machine reports; "bounds" has run-length encoded window bottlenecks."""
    run = found.run
    shape, edges = run.traffic.shape, run.workload.num_edges
    reads = int(run.traffic.counts.reads.sum())
    prior = found.best_prior
    return {
        "mapping": run.mapping,
        "host_order": run.host_order,
        "width": found.width,
        "bound_ms": run.bound_ns / 1e6,
        "hidden_share": run.hidden_share,
        "paths_ms": {"dram": run.paths.dram_ns / 1e6, "host": run.paths.host_ns / 1e6},
        "verdict": verdict(run),
        "speedup_over_baseline": gain(found.baseline.time_ns, found.time_ns),
        "speedup_over_prior": gain(prior.serial_ns, found.time_ns),
        "speedup_over_overlapped_prior": gain(found.best_overlapped_prior_ns, found.time_ns),
        "read_reduction_percent": 100.0 * (1.0 - reads / edges) if edges else 0.0,
        "dram_model_error_percent": window_reads.model_error_percent(run),
        **_tiling(found),
        "candidates_ms": found.candidates_ms(),
        "candidates": {name: _candidate(each) for name, each in found.candidates.items()},
        "impossible": dict(found.impossible),
        "baseline": {
            "time_ms": found.baseline.time_ns / 1e6,
            "adjacency_ms": found.baseline.adjacency_ns / 1e6,
            "features_ms": found.baseline.features_ns / 1e6,
            "write_ms": found.baseline.write_ns / 1e6,
            "cache_hits": found.baseline.hits,
            "bytes": dict(found.baseline.bytes),
            "energy_mj": sum(found.baseline.energy_nj.values()) / 1e6,
        },
        "prior": {
            one.mapping: {
                "serial_ms": one.serial_ns / 1e6,
                "overlapped_ms": one.overlapped_ns / 1e6,
                **{f"{step}_ms": time / 1e6 for step, time in one.steps_ns.items()},
                "bytes": dict(one.bytes),
                "energy_mj": sum(one.energy_nj.values()) / 1e6,
            }
            for one in found.priors
        },
        "retiling": _retiling(found),
        "plan": asdict(found.plan),
        "tile": shape.tile,
        "window_targets": shape.window,
        "windows": len(run.schedule.ends_ns),
        "windows_bound_by": run.schedule.bound(),
        "bounds": [[name, len(list(group))] for name, group in groupby(run.schedule.bounds())],
        "imbalance": _spread(run.imbalance()),
        "rows": _row_statistics(run),
        "ranks": _rank_lines(run),
        "channels": _channel_lines(run),
    }


def _row_statistics(run: LayerRun) -> dict[str, float]:
    """Return row activations of the ranks, and the share of bursts that found their row open."""
    commands = run.commands()
    bursts = commands.reads + commands.writes
    return {
        "bursts_read": commands.reads,
        "bursts_written": commands.writes,
        "activations": commands.activations,
        "row_hit_percent": 100.0 * (1.0 - commands.activations / bursts) if bursts else 0.0,
    }


def _rank_lines(run: LayerRun) -> list[dict[str, float]]:
    """Return each rank's busy time by phase in ms, bytes, useful bytes, rows and the run's bandwidth."""
    traffic, busy, total_ns = run.traffic, run.schedule.rank_busy_ns / 1e6, run.schedule.total_ns
    bursts_read, bursts_written, opened = run.commands_by_rank()
    bursts, burst_bytes = bursts_read + bursts_written, traffic.config.burst_bytes
    moved = np.rint(bursts * burst_bytes).astype(np.int64)
    useful = traffic.pod_reads.sum(axis=0) * traffic.pods.slice_bytes(traffic.width)
    useful = useful + (traffic.adjacency_bytes + traffic.final_bytes).sum(axis=0)
    gbps = _gbps(moved, total_ns)
    closed = np.divide(opened, bursts, out=np.ones_like(bursts), where=bursts > 0)
    return _lines(
        rank=np.arange(len(busy)),
        adjacency_ms=busy[:, 0],
        features_ms=busy[:, 1],
        write_back_ms=busy[:, 2],
        listing_ms=busy[:, 3],
        idle_ms=total_ns / 1e6 - busy[:, :4].sum(axis=1),
        unit_bound_ms=busy[:, 4],
        bytes=moved,
        useful_bytes=useful,
        activations=opened,
        row_hit_percent=100.0 * (1.0 - closed),
        gbps=gbps,
        percent_of_peak=100 * gbps / run.memory.device.peak_gbps,
    )


def _channel_lines(run: LayerRun) -> list[dict[str, float]]:
    """Return each channel's busy time of the Host-path by phase in ms, its bytes and the run's bandwidth."""
    traffic, busy, total_ns = run.traffic, run.schedule.channel_busy_ns / 1e6, run.schedule.total_ns
    span = traffic.pods.channels
    written = traffic.by_channel(traffic.bundle_in_bytes).sum(axis=0)
    written = written.reshape(-1, span).sum(axis=1).repeat(span)
    others = traffic.bundle_out_bytes + traffic.output_bytes + traffic.final_bytes
    moved = traffic.by_channel(others).sum(axis=0) + written
    return _lines(
        channel=np.arange(len(busy)),
        bundle_read_ms=busy[:, 0],
        bundle_write_ms=busy[:, 1],
        outputs_ms=busy[:, 2],
        finals_ms=busy[:, 3],
        lists_ms=busy[:, 4],
        idle_ms=total_ns / 1e6 - busy.sum(axis=1),
        bytes=moved,
        gbps=_gbps(moved, total_ns),
    )


def _lines(**columns: NDArray[Any]) -> list[dict[str, float]]:
    """Convert columns to rows that are ready for JSON."""
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _gbps(moved: Integers, total_ns: float) -> Reals:
    """Return bytes per nanosecond; 0 if the run takes no time."""
    return moved / total_ns if total_ns else np.zeros(len(moved))


def _spread(values: Reals) -> dict[str, float]:
    """Return mean, median, 99th percentile and maximum of some numbers; all 1 if there are none."""
    if len(values) == 0:
        return dict.fromkeys(("mean", "median", "p99", "max"), 1.0)
    return {
        "mean": float(values.mean()),
        "median": float(np.median(values)),
        "p99": float(np.quantile(values, 0.99)),
        "max": float(values.max()),
    }


def whole_report(layers: Sequence[LayerOutcome]) -> dict[str, Any]:
    """Report several layers of one model together, under the keys of ``onehop simulate ndp --json``."""
    total = sum(found.time_ns for found in layers)
    edges = sum(found.run.workload.num_edges for found in layers)
    reads = sum(int(found.run.traffic.counts.reads.sum()) for found in layers)
    reports = [layer_report(found) for found in layers]
    bytes_moved: dict[str, int] = {}
    for report in reports:
        for name, count in report.bytes.items():
            bytes_moved[name] = bytes_moved.get(name, 0) + count
    orders = [found.run.host_order for found in layers]
    shorter = sum(found.run.paths.shorter_ns for found in layers)
    hidden = sum(found.run.hidden_share * found.run.paths.shorter_ns for found in layers)
    return {
        "time_ms": total / 1e6,
        "host_order": orders[0] if len(set(orders)) == 1 else ", ".join(orders),
        "bound_ms": sum(found.run.bound_ns for found in layers) / 1e6,
        "hidden_share": hidden / shorter if shorter else 1.0,
        "speedup_over_baseline": gain(sum(found.baseline.time_ns for found in layers), total),
        "speedup_over_prior": gain(sum(found.best_prior.serial_ns for found in layers), total),
        "layers": [
            {
                "width": found.width,
                "mapping": found.run.mapping,
                "host_order": found.run.host_order,
                "bound_ms": found.run.bound_ns / 1e6,
                "hidden_share": found.run.hidden_share,
                "time_ms": found.time_ns / 1e6,
                **_tiling(found),
                "candidates_ms": found.candidates_ms(),
                "report": report.as_dict(),
            }
            for found, report in zip(layers, reports, strict=True)
        ],
        "read_reduction_percent": 100.0 * (1.0 - reads / edges) if edges else 0.0,
        "bytes": bytes_moved,
        "energy_mj": sum(report.energy_mj for report in reports),
        "silicon": unit_bounds(layers[0].run.traffic.config).as_dict(),
    }
