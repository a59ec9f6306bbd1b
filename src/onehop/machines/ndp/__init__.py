"""Near-rank data processing: simulated machines based on GraNDe; each DRAM rank has a reducing module.

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
from onehop.machines.ndp.mapping import Mapping, mappings
from onehop.machines.ndp.models import MODELS, LayerWork, layer_works
from onehop.machines.ndp.named_priors import DESIGNS, Design, NamedPrior, named_priors
from onehop.machines.ndp.outcome import LayerOutcome
from onehop.machines.ndp.report import layer_report, whole_report
from onehop.machines.ndp.sampled import SampledLayer, SampledMapping, sampled_report
from onehop.machines.ndp.sampling import Estimate, Sample
from onehop.machines.ndp.silicon import Silicon, unit_bounds
from onehop.machines.ndp.whole_models import CLOCKS_MHZ, ClockPoint, ModelRun, by_clock, run_model
from onehop.plans.ndp import NdpPlan

__all__ = [
    "CLOCKS_MHZ",
    "DESIGNS",
    "MODELS",
    "ClockPoint",
    "Control",
    "Design",
    "DramChoice",
    "EnergyFigures",
    "Estimate",
    "Host",
    "LayerOutcome",
    "LayerWork",
    "Machine",
    "Mapping",
    "ModelRun",
    "Module",
    "NamedPrior",
    "NdpConfig",
    "NdpPlan",
    "Sample",
    "SampledLayer",
    "SampledMapping",
    "Silicon",
    "Topology",
    "by_clock",
    "layer_report",
    "layer_works",
    "load",
    "mappings",
    "named_priors",
    "presets",
    "run_model",
    "sampled_report",
    "toy",
    "unit_bounds",
    "whole_report",
]
