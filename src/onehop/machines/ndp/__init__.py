"""Near-rank data processing: a simulated machine after GraNDe, with a reducing module beside each DRAM rank.

``machine = ndp.Machine("grande_16"); out, report = machine.aggregate(graph, x)``.
"""

from onehop.machines.ndp import toy
from onehop.machines.ndp.config import (
    Control,
    DramChoice,
    EnergyFigures,
    Host,
    Module,
    NdpConfig,
    Topology,
    load,
    presets,
)
from onehop.machines.ndp.machine import Machine
from onehop.machines.ndp.outcome import LayerOutcome
from onehop.machines.ndp.report import layer_report, whole_report
from onehop.plans.ndp import NdpPlan

__all__ = [
    "Control",
    "DramChoice",
    "EnergyFigures",
    "Host",
    "LayerOutcome",
    "Machine",
    "Module",
    "NdpConfig",
    "NdpPlan",
    "Topology",
    "layer_report",
    "load",
    "presets",
    "toy",
    "whole_report",
]
