"""Near-bank machines: small cores at the banks of memory modules, supplied by a host, as in UPMEM."""

from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.machine import Machine
from onehop.machines.pim.parts import Arithmetic, Core, Functions, Host, Links, Power
from onehop.machines.pim.presets import aim_like, hbm_pim_like, load, preset, presets, upmem_v1a, upmem_v1b
from onehop.machines.pim.report import PimReport
from onehop.machines.pim.scheme import Cluster, Placement, Scheme, schemes
from onehop.machines.pim.shapes import BalancedShapes
from onehop.machines.pim.tuner import TuningResult, tune
from onehop.plans.pim import PimPlan

__all__ = [
    "Arithmetic",
    "BalancedShapes",
    "Cluster",
    "Core",
    "Functions",
    "Host",
    "Links",
    "Machine",
    "PimConfig",
    "PimPlan",
    "PimReport",
    "Placement",
    "Power",
    "Scheme",
    "TuningResult",
    "aim_like",
    "hbm_pim_like",
    "load",
    "preset",
    "presets",
    "schemes",
    "tune",
    "upmem_v1a",
    "upmem_v1b",
]
