"""A layer on a machine under any mapping: what all of its simulations have in common."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from onehop.errors import ArgumentError
from onehop.machines.common.checks import check_integer
from onehop.machines.ndp.config import NdpConfig
from onehop.machines.ndp.mapping import Pods
from onehop.machines.ndp.memory_times import MemoryTimes
from onehop.machines.ndp.traffic import Finals, LayerTraffic, Workload, groups
from onehop.plans.ndp import NdpPlan

Run = TypeVar("Run")


@dataclass(frozen=True, slots=True)
class LayerCase:
    """A layer on a machine, under any mapping.

    Attributes:
        config: The machine.
        memory: The DRAM's times.
        plan: Mapping, tile, broadcasting, the host's order.
        width: Columns of the feature vectors, at least 1.
        finals: The final vectors; None means that the aggregated vectors are final, under the same mapping.
        record: Number of windows whose events are kept.
        retiled: Batch size with which the graph was re-tiled before. None means that it was not; then a plan
            that re-tiles does so in this layer.

    Raises:
        ArgumentError: The width is not a positive integer.
    """

    config: NdpConfig
    memory: MemoryTimes
    plan: NdpPlan
    width: int
    finals: Finals | None = None
    record: int = 0
    retiled: int | None = None

    def __post_init__(self) -> None:
        check_integer("width", self.width)

    @property
    def relists(self) -> bool:
        """Return whether the graph is re-tiled in this layer."""
        return self.plan.reorders and self.retiled is None

    def batched(self, pods: Pods) -> NdpPlan:
        """Return the plan with the batch size with which the graph is, or was, re-tiled.

        Raises:
            ArgumentError: A buffer cannot hold one output slice.
        """
        if not self.plan.reorders:
            return self.plan
        batch = self.retiled or self.plan.batch
        return replace(self.plan, batch=batch or groups(self.config, pods, self.width, self.plan.tile).window)

    def traffic(self, workload: Workload, pods: Pods) -> LayerTraffic:
        """Return the bytes that the layer moves under a mapping."""
        finals, plan = self.finals, self.plan
        stored = pods if finals is None or finals.pods is None else finals.pods
        if finals is not None and stored != pods and (stored.own or pods.own):
            # The other mapping assigns nodes to other ranks, so these vectors stay under this mapping.
            finals = replace(finals, pods=None)
        shape = self.width, plan.tile, plan.broadcast
        return LayerTraffic(self.config, workload, pods, *shape, finals, self.relists)

    @property
    def untiled(self) -> "LayerCase":
        """Return the layer with targets tiled by node number."""
        return replace(self, plan=replace(self.plan, retile="index"), record=0)


def each_mapping(
    choices: Sequence[Pods], run: Callable[[Pods], Run], named: Pods | None = None
) -> tuple[dict[str, Run], dict[str, str]]:
    """Run a layer under each mapping.

    Returns:
        The runs by the mapping's name; and for each mapping that could not run, the reason.

    Raises:
        ArgumentError: The mapping that the plan names (``named``) cannot run the layer, or no mapping can.
    """
    runs: dict[str, Run] = {}
    impossible: dict[str, str] = {}
    for pods in choices:
        try:
            runs[pods.name] = run(pods)
        except ArgumentError as error:
            if pods is named:
                raise
            impossible[pods.name] = str(error)
    if not runs:
        raise ArgumentError(next(iter(impossible.values())))
    return runs, impossible
