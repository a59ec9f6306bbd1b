"""Calls of operators: one named tuple an operator, stated once.

Schemas, fake kernels, recording and saved tensors are derived from these (:mod:`onehop.ops.library`), and
backends receive them whole. Tensors come first. A graph is its number (``Graph.number``), which a compiled
program can hold, and ``rows`` and ``edges`` are extents of results, for programs that are traced without it.
Make calls by keyword: two arguments in the wrong order are then an error.
"""

from onehop.calls.aggregate import Aggregate, AggregateGradients
from onehop.calls.arg_extremum import ArgExtremum, ArgExtremumGrad, ArgExtremumGradients
from onehop.calls.attention import Attention, AttentionGrad, AttentionGradients, Rule
from onehop.calls.dtypes import accumulator
from onehop.calls.edge_softmax import (
    EdgeSoftmax,
    EdgeSoftmaxGrad,
    EdgeSoftmaxGradGradients,
    EdgeSoftmaxGradients,
)
from onehop.calls.extremum import Extremum, ExtremumGrad, ExtremumGradients
from onehop.calls.fusedmm import Fusedmm, FusedmmGradients
from onehop.calls.names import name_of
from onehop.calls.sddmm import Sddmm, SddmmGradients

__all__ = [
    "Aggregate",
    "AggregateGradients",
    "ArgExtremum",
    "ArgExtremumGrad",
    "ArgExtremumGradients",
    "Attention",
    "AttentionGrad",
    "AttentionGradients",
    "EdgeSoftmax",
    "EdgeSoftmaxGrad",
    "EdgeSoftmaxGradGradients",
    "EdgeSoftmaxGradients",
    "Extremum",
    "ExtremumGrad",
    "ExtremumGradients",
    "Fusedmm",
    "FusedmmGradients",
    "Rule",
    "Sddmm",
    "SddmmGradients",
    "accumulator",
    "name_of",
]
