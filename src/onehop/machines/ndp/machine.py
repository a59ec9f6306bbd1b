"""The near-rank machine: computes aggregations, and reports the time that they would take on it."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.machines.common.operands import Operands
from onehop.machines.common.report import Report
from onehop.machines.ndp import functional
from onehop.machines.ndp.case import LayerCase
from onehop.machines.ndp.config import NdpConfig, Topology, load
from onehop.machines.ndp.counts import RankWorkload
from onehop.machines.ndp.mapping import Pods
from onehop.machines.ndp.memory_times import MemoryTimes
from onehop.machines.ndp.models import LayerWork
from onehop.machines.ndp.outcome import LayerOutcome, outcome
from onehop.machines.ndp.report import layer_report
from onehop.machines.ndp.sampled import SampledLayer, TargetsOf, Tell, sampled_layer
from onehop.machines.ndp.sampled_windows import ComputedTargets, RowSource, Targets
from onehop.machines.ndp.sampling import Sample
from onehop.machines.ndp.traffic import Finals
from onehop.plans.ndp import BATCHED, TRIED_TILINGS, NdpPlan

# A graph's number, its tiling, its batch size, and a user's mapping.
_Key = tuple[int, str, int | None, Pods | None]
# Maximum number of workloads (a graph in one order of targets) whose counts are cached: one per mapping's
# order, and two more.
_MOST_WORKLOADS = 8
# Number of windows whose events are in the reports' timelines.
_RECORDED = 16


class Machine:
    """A near-rank machine, with the counts of the graphs it has run.

    Args:
        config: A machine's name, the path of a TOML file, or a configuration.
        plan: The plan of runs that give none; None means the plan's own defaults. A graph whose sources and
            destinations are not the same nodes, such as a sampled neighbourhood, cannot be re-tiled and uses
            index order.

    Examples:
        >>> import onehop, torch
        >>> from onehop.machines import ndp
        >>> graph = onehop.Graph.from_edge_index(torch.tensor([[0, 0, 1], [1, 2, 2]]))  # 0->1, 0->2, 1->2
        >>> machine = ndp.Machine("grande_16")
        >>> out, report = machine.aggregate(graph, torch.tensor([[1.0], [10.0], [5.0]]))
        >>> out.flatten().tolist()
        [0.0, 1.0, 11.0]
        >>> list(report.phases_ns)  # print(report) shows the times, bytes and energies
        ['control', 're-tiling', 'adjacency', 'features', 'write-back', 'imbalance', 'host']
    """

    def __init__(self, config: str | Path | NdpConfig = "grande_16", plan: NdpPlan | None = None) -> None:
        self.config = config if isinstance(config, NdpConfig) else load(config)
        self.plan = plan
        self.memory = MemoryTimes.of(self.config)
        self._workloads: OrderedDict[_Key, RankWorkload] = OrderedDict()
        # Batch sizes with which graphs were re-tiled.
        self._retiled: dict[_Key, int] = {}

    @property
    def name(self) -> str:
        """Name of the configuration."""
        return self.config.name

    def change(self, **sections: dict[str, Any]) -> "Machine":
        """Return a machine with other values, for example ``machine.change(dram={"faw": "sheet"})``.

        Both machines share the counts of graphs that do not depend on these values, because counting a large
        graph takes longer than everything else.

        Args:
            **sections: Keys of the configuration's sections, as in :meth:`NdpConfig.change`.

        Raises:
            ConfigurationError: A section or key is unknown, or a value is out of range.
        """
        changed = Machine(self.config.change(**sections), self.plan)
        if _counted(changed.config) == _counted(self.config):
            changed._workloads = self._workloads
        return changed

    def describe(self) -> str:
        """Return one line with channels, ranks and DRAM."""
        topology = self.config.topology
        return (
            f"{self.name}: a simulated near-rank machine, {topology.channels} channels, {topology.ranks} "
            f"ranks of {self.config.dram.preset}"
        )

    def refuse(self, dtype: torch.dtype) -> str | None:
        """Return why the modules, which add 32-bit numbers, cannot use this dtype, or None if they can."""
        if dtype == torch.float32:
            return None
        return f"adds up float32 alone, and these are {dtype}"

    def aggregate(
        self,
        graph: Graph,
        x: Tensor,
        plan: NdpPlan | None = None,
        *,
        weight: Tensor | None = None,
        reduce: str = "sum",
        src_scale: Tensor | None = None,
        dst_scale: Tensor | None = None,
    ) -> tuple[Tensor, Report]:
        """Aggregate features over a graph under the chosen mapping.

        The first run on a graph includes re-tiling; later runs reuse the tile lists until :meth:`forget`.

        Args:
            graph: The graph.
            x: [num_src, F], float32, on the CPU; F is at least 1.
            plan: Mapping, tiles, broadcasting; None means the machine's plan.
            weight: [E], in the caller's edge order; None means 1.
            reduce: "sum" or "mean".
            src_scale: [num_src], multiplies the features on the host before they are written to the ranks.
            dst_scale: [num_dst], multiplies the results on the host.

        Returns:
            [num_dst, F], float32, and the report.

        Raises:
            ArgumentError: A shape, dtype or plan does not fit, or a buffer cannot hold one output slice.
            ConfigurationError: The machine's ranks cannot be divided as the plan's mapping requires.
        """
        Operands(x, weight, reduce, src_scale, dst_scale).check(graph)
        plan = self._checked(plan, graph)
        reason = self.refuse(x.dtype)
        if reason is not None:
            raise ArgumentError(f"x: {self.name} {reason}; convert with .float().")
        found = self._layers(graph, [x.size(1)], plan, _RECORDED)[0]
        values = x if src_scale is None else x * src_scale.float().unsqueeze(1)
        out = functional.aggregate(found.run.workload, found.run.traffic.pods, values, weight)
        if reduce == "mean":
            out *= graph.inverse_in_degrees(torch.float32).unsqueeze(1)
        if dst_scale is not None:
            out *= dst_scale.float().unsqueeze(1)
        return out, layer_report(found)

    def layers(
        self, graph: Graph, widths: Sequence[int], plan: NdpPlan | None = None, record: int = _RECORDED
    ) -> list[LayerOutcome]:
        """Return the times of a model's aggregations, without computing their results.

        Args:
            graph: The graph.
            widths: Columns of the feature vectors that each layer aggregates.
            plan: Mapping, tiles, broadcasting; None means the machine's plan.
            record: Number of windows of each layer whose events are kept.

        Returns:
            The outcome of each layer; the first one includes re-tiling.

        Raises:
            ArgumentError: A width or the plan does not fit, or a buffer cannot hold one output slice.
            ConfigurationError: The machine's ranks cannot be divided as the plan's mapping requires.
        """
        plan = self._checked(plan, graph)
        self.forget()
        return self._layers(graph, widths, plan, record)

    def chained(
        self, graph: Graph, works: Sequence[LayerWork], plan: NdpPlan | None = None, record: int = _RECORDED
    ) -> list[LayerOutcome]:
        """Return the times of a model whose host computes the next layer's vectors from a window's outputs.

        Final vectors have the next layer's width and are placed by the next layer's mapping; the last layer's
        final vectors are placed by its own mapping. So mappings are chosen from the last layer to the first.

        Args:
            graph: The graph; sources and destinations are the same nodes.
            works: What each layer aggregates, and what the host computes after it.
            plan: Mapping, tiles, broadcasting, the host's order; None means the machine's plan.
            record: Number of windows of each layer whose events are kept.

        Returns and raises what :meth:`layers` does.
        """
        plan = self._checked(plan, graph)
        found: dict[NdpPlan, list[LayerOutcome]] = {}
        retiled = {}
        for each in plan.tried:
            found[each] = self._chained(graph, works, each, record)
            retiled[each] = self._retiled
            self._retiled = {}
        best = min(found, key=lambda each: sum(map(_time_ns, found[each])))
        # The other plans were only tried, so their tile lists are not kept.
        self._retiled = retiled[best]
        return found[best]

    def sampled(
        self,
        graph: Graph | RowSource,
        widths: Sequence[int],
        plan: NdpPlan | None = None,
        sample: Sample | None = None,
        tell: Tell = lambda _what, _done: None,
    ) -> list[SampledLayer]:
        """Estimate the times of a model's aggregations from a random sample of windows.

        Use this for graphs that are too large to be simulated as a whole. A window needs only the edges of
        its own targets. So for a graph whose rows are computed, such as ``datasets.implicit("papers",
        self_loops=True)``, no other edges are made.

        Args:
            graph: A graph; or an object with ``num_nodes`` and ``rows(nodes)``, which returns row pointers
                and sources of the given destinations. Re-tiling needs every row, so such an object cannot be
                re-tiled.
            widths: Columns of the feature vectors that each layer aggregates.
            plan: Mapping, tiles, broadcasting; None means the machine's plan, or index order if rows are
                computed.
            sample: Size of the sample; None means the defaults.
            tell: Called with the current step and the share of it that is done.

        Returns:
            The estimate of each layer; the first one includes re-tiling. Layers of different widths have
            separate samples.

        Raises:
            ArgumentError: A width or the plan does not fit, a buffer cannot hold one output slice, the host
                has a cache, or the plan re-tiles a graph whose rows are computed.
            ConfigurationError: The machine's ranks cannot be divided as the plan's mapping requires.
        """
        plan, ordered_of, by_number = self._sampled_graph(graph, plan)
        found: dict[tuple[int, int | None], SampledLayer] = {}
        layers: list[SampledLayer] = []
        retiled: int | None = None
        for width in widths:
            key = width, retiled
            case = LayerCase(self.config, self.memory, plan, width, retiled=retiled)
            if key not in found:
                found[key] = sampled_layer(case, ordered_of, by_number, sample or Sample(), tell)
            layers.append(found[key])
            retiled = case.batched(Pods.of(self.config.topology, found[key].mapping)).batch
        return layers

    def forget(self) -> None:
        """Forget that graphs were re-tiled, so that the next run on each graph includes re-tiling again."""
        self._retiled.clear()

    def workload(self, graph: Graph, plan: NdpPlan | None = None, pods: Pods | None = None) -> RankWorkload:
        """Return the graph on this machine's ranks in the plan's order; its counts are cached.

        Args:
            graph: The graph.
            plan: Gives the order of targets; None means the machine's plan.
            pods: The mapping, if it is a user's that assigns nodes to ranks; None means GraNDe's assignment.

        Raises:
            ArgumentError: The order depends on batches, and the plan has no batch size.
        """
        plan = self._checked(plan, graph)
        own, batch = None if pods is None else pods.own, plan.batch if plan.retile in BATCHED else 1
        if batch is None:
            raise ArgumentError(
                f"plan: with retile={plan.retile!r} the order depends on the batch, and batch=None means a "
                "window of a layer, which is not known here; expected batch to be a number of nodes."
            )
        key = (graph.number, plan.retile, batch, own)
        if key not in self._workloads:
            self._workloads[key] = RankWorkload(
                graph,
                self.config.topology,
                self.config.module.adjacency_entry_bytes,
                self.config.burst_bytes,
                retile=plan.retile,
                batch=batch,
                pods=own,
            )
        self._workloads.move_to_end(key)
        found = self._workloads[key]
        while len(self._workloads) > _MOST_WORKLOADS:
            self._workloads.popitem(last=False)
        return found

    def _layers(self, graph: Graph, widths: Sequence[int], plan: NdpPlan, record: int) -> list[LayerOutcome]:
        """Return a model's layers under the plan, or under those of its choices that make the model fastest.

        A model has one list of tiles. The layers before the one that makes the list are in index order; so
        are layers after it that are faster in index order.
        """
        before, (first, *others) = dict(self._retiled), plan.tried
        best = plain = [self._layer(graph, width, first, record) for width in widths]
        kept, times = self._retiled, {first.retile: [layer.time_ns for layer in plain]}
        for own in others:
            for begin in range(len(widths)):
                self._retiled = dict(before)
                listed = [self._layer(graph, width, own, record) for width in widths[begin:]]
                if begin == 0:
                    times[own.retile] = [layer.time_ns - layer.run.retiling_ns for layer in listed]
                after = zip(plain[begin + 1 :], listed[1:], strict=True)
                mixed = [*plain[:begin], listed[0], *(min(pair, key=_time_ns) for pair in after)]
                if sum(map(_time_ns, mixed)) < sum(map(_time_ns, best)):
                    best, kept = mixed, self._retiled
        self._retiled = kept
        if not others:
            return best
        return [
            replace(layer, tilings_ns={name: own[at] for name, own in times.items()})
            for at, layer in enumerate(best)
        ]

    def _layer(
        self, graph: Graph, width: int, plan: NdpPlan, record: int, finals: Finals | None = None
    ) -> LayerOutcome:
        key = self._tiled(graph, plan)
        case = LayerCase(self.config, self.memory, plan, width, finals, record, self._retiled.get(key))
        found = outcome(case, partial(self.workload, graph))
        batch = case.batched(found.run.traffic.pods).batch
        if case.relists and batch is not None:
            self._retiled[key] = batch
        return found

    def _chained(
        self, graph: Graph, works: Sequence[LayerWork], plan: NdpPlan, record: int
    ) -> list[LayerOutcome]:
        self.forget()
        if plan.batch is None and plan.retile in BATCHED:
            # Later layers are simulated first, in an order that depends on the first layer's own batch size.
            self._layer(graph, works[0].width, plan, record=0)
            plan = replace(plan, batch=self._retiled[self._tiled(graph, plan)])
        found: list[LayerOutcome] = []
        for work in reversed(works):
            pods = found[0].run.traffic.pods if found else None
            # The first layer does the re-tiling, and it is simulated last.
            self._retiled[self._tiled(graph, plan)] = plan.batch or 1
            if len(found) == len(works) - 1:
                self.forget()
            found.insert(0, self._layer(graph, work.width, plan, record, Finals(work.outputs, work.ns, pods)))
        return found

    def _own(self, plan: NdpPlan) -> Pods | None:
        """Return the plan's mapping if it is a user's, else None."""
        adaptive = plan.mapping == "adaptive"
        return None if adaptive else Pods.of(self.config.topology, plan.mapping).own

    def _tiled(self, graph: Graph, plan: NdpPlan) -> _Key:
        """Return the key of a graph's tile lists; each user's mapping has its own tile lists."""
        return (graph.number, plan.retile, plan.batch, self._own(plan))

    def _sampled_graph(
        self, graph: Graph | RowSource, plan: NdpPlan | None
    ) -> tuple[NdpPlan, TargetsOf, Targets]:
        """Return the plan, a function from a plan to its ordered targets, and the targets in node order."""
        if isinstance(graph, Graph):
            plan = self._checked(plan, graph)
        else:
            plan = plan or self.plan or NdpPlan(retile="index")
        if len(plan.tried) > 1:
            raise ArgumentError(
                "plan: retile='adaptive' runs every tiling of the whole graph, and a sample has one; choose "
                f"{', '.join(map(repr, TRIED_TILINGS[:-1]))} or {TRIED_TILINGS[-1]!r}."
            )
        own, untiled = self._own(plan), replace(plan, retile="index")
        if isinstance(graph, Graph):
            by_number: Targets = self.workload(graph, untiled)
            return plan, lambda each: self.workload(graph, each, own), by_number
        if plan.reorders:
            raise ArgumentError(
                f"plan: re-tiling ({plan.retile!r}) lists the sources of every row, and of this graph only "
                "some are computed; choose retile='index' or 'none'."
            )
        targets = ComputedTargets(graph, self.config, plan.retile, own)
        same = plan == untiled and own is None
        return (
            plan,
            lambda _: targets,
            targets if same else ComputedTargets(graph, self.config, "index", None),
        )

    def _checked(self, plan: NdpPlan | None, graph: Graph) -> NdpPlan:
        plan = self.plan if plan is None else plan
        if plan is None:
            return NdpPlan() if graph.num_src == graph.num_dst else NdpPlan(retile="index")
        if not isinstance(plan, NdpPlan):
            raise ArgumentError(f"plan: expected an onehop.plans.NdpPlan, got {type(plan).__name__}.")
        return plan


def _time_ns(layer: LayerOutcome) -> float:
    return layer.time_ns


def _counted(config: NdpConfig) -> tuple[Topology, int, int]:
    """Return the part of the configuration that counts depend on."""
    return config.topology, config.module.adjacency_entry_bytes, config.burst_bytes
