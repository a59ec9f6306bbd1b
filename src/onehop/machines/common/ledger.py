"""The runs of a machine, summed by layer, direction and pass."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from onehop.machines.common.report import Report, times_table


@dataclass(frozen=True, slots=True)
class Entry:
    """One aggregation.

    Attributes:
        layer: The label of the layer that requested it; empty if unknown.
        step: How many times the layer has run forward, including this time. In full-batch training one step
            is one epoch.
        backward: Whether the run computes a gradient.
        report: The run's report, without the parts that grow with the machine (:meth:`Report.summary`).
    """

    layer: str
    step: int
    backward: bool
    report: Report


class Ledger:
    """All runs of a machine while a patch is active.

    ``entries`` has every run; :meth:`by_layer` and :meth:`by_epoch` sum phases. Both count the simulated
    machine only, not the host's work during that time. ``elsewhere`` maps the label of each layer that ran on
    the host instead to the reason.

    Examples:
        >>> import onehop, torch
        >>> from onehop.machines import pim
        >>> from torch_geometric.nn import SimpleConv
        >>> with onehop.patch(machine=pim.Machine()) as patch:
        ...     out = SimpleConv("sum")(torch.ones(3, 2), torch.tensor([[0, 0, 1], [1, 2, 2]]))
        >>> [(entry.layer, entry.report.machine) for entry in patch.report.entries]  # print(patch.report)
        [('SimpleConv 1', 'upmem_v1a')]
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.elsewhere: dict[str, str] = {}
        self._steps: dict[str, int] = {}

    def record(self, layer: str, backward: bool, report: Report) -> None:
        """Records a run."""
        if not backward:
            self._steps[layer] = self._steps.get(layer, 0) + 1
        self.entries.append(Entry(layer, max(self._steps.get(layer, 0), 1), backward, report.summary()))

    def leave(self, layer: str, reason: str) -> None:
        """Records that a layer did not run on the machine.

        Args:
            layer: The layer's label.
            reason: A sentence without a full stop.
        """
        self.elsewhere[layer] = reason

    def clear(self) -> None:
        """Removes all entries."""
        self.entries.clear()
        self.elsewhere.clear()
        self._steps.clear()

    @property
    def total_ns(self) -> float:
        """Time of all runs in nanoseconds."""
        return sum(entry.report.total_ns for entry in self.entries)

    @property
    def total_ms(self) -> float:
        """Time of all runs in milliseconds."""
        return self.total_ns / 1e6

    @property
    def energy_mj(self) -> float:
        """Energy of all runs in millijoules."""
        return sum(entry.report.energy_mj for entry in self.entries)

    def by_layer(self) -> dict[str, dict[str, float]]:
        """Return the ms of each phase per layer; names of gradient phases end with "(backward)"."""
        return _sums((entry.layer, entry) for entry in self.entries)

    def by_epoch(self) -> list[dict[str, float]]:
        """Return the ms of each phase per epoch: first runs of all layers, then second runs, and so on."""
        sums = _sums((str(entry.step), entry) for entry in self.entries)
        return [sums[str(step)] for step in sorted(int(key) for key in sums)]

    def as_dict(self) -> dict[str, Any]:
        """Return the sums in a form that is ready for JSON."""
        return {
            "runs": len(self.entries),
            "total_ms": self.total_ms,
            "energy_mj": self.energy_mj,
            "layers_ms": self.by_layer(),
            "epochs_ms": self.by_epoch(),
            "elsewhere": dict(self.elsewhere),
        }

    def __str__(self) -> str:
        """Return a table with a line for each layer and a total; then the layers that ran elsewhere."""
        layers = self.by_layer()
        names = list(dict.fromkeys(name for phases in layers.values() for name in phases))
        everything = {name: sum(phases.get(name, 0.0) for phases in layers.values()) for name in names}
        table = times_table({**layers, "total": everything}, names)
        others = [f"{layer} did not run on the machine: {why}." for layer, why in self.elsewhere.items()]
        return "\n".join([str(table), *others])


def _sums(keyed: Iterable[tuple[str, Entry]]) -> dict[str, dict[str, float]]:
    sums: dict[str, dict[str, float]] = {}
    for key, entry in keyed:
        phases = sums.setdefault(key, {})
        for name, time in entry.report.phases_ns.items():
            name = f"{name} (backward)" if entry.backward else name
            phases[name] = phases.get(name, 0.0) + time / 1e6
    return sums
