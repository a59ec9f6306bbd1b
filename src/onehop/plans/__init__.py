"""Plans: every choice made before a run, as frozen data that can be written to and read from JSON."""

from onehop.plans.cpu import CpuPlan
from onehop.plans.ndp import NdpPlan
from onehop.plans.pim import PimPlan
from onehop.plans.triton import TritonPlan

__all__ = ["CpuPlan", "NdpPlan", "PimPlan", "TritonPlan"]
