"""Calls into the extension. Arguments must have been checked: shapes, dtypes and devices are taken as right."""

from onehop.kernels.cpu.aggregate import aggregate, extremum, extremum_grad_source, extremum_grad_weight
from onehop.kernels.cpu.sddmm import sddmm

__all__ = ["aggregate", "extremum", "extremum_grad_source", "extremum_grad_weight", "sddmm"]
