"""Rows on GraNDe's own steps: adaptive mapping, broadcasting, and what pod sizes cost."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from onehop.graph import Graph
from onehop.machines.ndp import Machine, NdpPlan
from onehop.machines.ndp.layer import LayerRun
from onehop.machines.ndp.mapping import ELEMENT_BYTES, Pods
from onehop.machines.ndp.outcome import LayerOutcome
from onehop.reproduce.grande.cases import BASE
from onehop.reproduce.grande.graphs import PaperGraph
from onehop.reproduce.tables import Row, row

# Section 4.2, from one vector in all ranks to one vector in each rank.
_PODS = ("system", "channel", "dimm", "rank")
_UNREAD = "The paper's figure could not be read."


def steps(one: PaperGraph, graph: Graph, machine: Machine) -> Iterator[Row]:
    """Yield the gains of adaptive mapping and of broadcasting, and the costs of pod sizes, on the base.

    Args:
        one: The graph's description.
        graph: The graph.
        machine: The base's machine, which keeps the graph's counts.
    """
    layers = BASE.layers(machine, graph, one.widths)
    yield _adaptive(one, layers)
    changed = BASE.on(machine)
    alone = changed.layers(graph, one.widths, NdpPlan(broadcast=False), record=0)
    gained = sum(layer.time_ns for layer in alone) / sum(layer.time_ns for layer in layers)
    note = f"Both with the mapping that is best for them; schedules (d) and (e) of Figure 5. {_UNREAD}"
    yield row(f"speed-up of broadcasting bundles, {one.label}", "x", note, gained)
    yield from _by_pods(one, layers[0].run)


def _adaptive(one: PaperGraph, layers: Sequence[LayerOutcome]) -> Row:
    """Return the best fixed mapping's time divided by the time with a mapping for each layer."""
    everywhere = set.intersection(*(set(layer.candidates) for layer in layers))
    fixed = {
        name: sum(sum(layer.candidates[name].phases_ns.values()) for layer in layers)
        for name in sorted(everywhere)
    }
    best = min(fixed, key=lambda name: fixed[name])
    chosen = ", ".join(layer.run.mapping for layer in layers)
    note = f"The best fixed mapping is {best}; adaptive takes {chosen}. {_UNREAD}"
    gained = fixed[best] / sum(layer.time_ns for layer in layers)
    return row(f"speed-up of adaptive mapping over the best fixed one, {one.label}", "x", note, gained)


def _by_pods(one: PaperGraph, run: LayerRun) -> Iterator[Row]:
    """Yield the load imbalance and the share of reads that is wasted, by pod size, for the first layer."""
    traffic, topology = run.traffic, run.traffic.config.topology
    uneven, wasted = {}, {}
    for name in _PODS:
        pods = Pods.of(topology, name)
        other = replace(run, traffic=replace(traffic, pods=pods))
        uneven[name] = float(other.imbalance().mean())
        read = int(other.traffic.slice_bursts.sum()) * traffic.config.burst_bytes
        vectors = topology.ranks // pods.size
        wasted[name] = 100 * (1 - vectors * traffic.width * ELEMENT_BYTES / read)
    grows = sorted(uneven.values()) == list(uneven.values())
    falls = sorted(wasted.values(), reverse=True) == list(wasted.values())
    for name in _PODS:
        note = (
            f"By section 4.2 it grows from system- to rank-pods: here it {'does' if grows else 'does not'}."
        )
        figure = f"feature reads of the busiest rank over the mean, {name}-pods, {one.label}"
        yield row(figure, "ratio", note, uneven[name])
    for name in _PODS:
        note = (
            f"By section 4.2 it falls from system- to rank-pods: here it {'does' if falls else 'does not'}, "
            f"with vectors of {traffic.width * ELEMENT_BYTES:,} bytes and reads of 64."
        )
        yield row(f"share of read bytes that are wasted, {name}-pods, {one.label}", "%", note, wasted[name])
