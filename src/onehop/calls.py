"""Calls of operators: a named tuple for each, which backends receive.

Each is stated beside its reference (:mod:`onehop.reference`), below all that runs it. Make calls by keyword:
two arguments in the wrong order are then an error. :func:`on` makes one for a graph that is at hand.
"""

from onehop.reference.aggregate import Aggregate, AggregateGradients
from onehop.reference.arg_extremum import ArgExtremum, ArgExtremumGrad, ArgExtremumGradients
from onehop.reference.attention import Attention, AttentionGrad, AttentionGradients, Rule, attention_grad
from onehop.reference.calls import accumulator, name_of, on
from onehop.reference.edge_softmax import (
    EdgeSoftmax,
    EdgeSoftmaxGrad,
    EdgeSoftmaxGradGradients,
    EdgeSoftmaxGradients,
)
from onehop.reference.extremum import Extremum, ExtremumGrad, ExtremumGradients
from onehop.reference.fusedmm import Fusedmm, FusedmmGradients
from onehop.reference.sddmm import Sddmm, SddmmGradients

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
    "attention_grad",
    "name_of",
    "on",
]
