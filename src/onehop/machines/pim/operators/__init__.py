"""Operators on the cores: each class computes the time of a run and its result."""

from onehop.machines.pim.operators.attention import Attention
from onehop.machines.pim.operators.base import Operator
from onehop.machines.pim.operators.extremum import Extremum
from onehop.machines.pim.operators.rows import Rows
from onehop.machines.pim.operators.sum import Sum

__all__ = ["Attention", "Extremum", "Operator", "Rows", "Sum"]
