"""Calls of operators: a named tuple for each, which backends receive.

Each is stated beside its reference (:mod:`onehop.reference`), below everything that runs it. Make calls by
keyword: two arguments in the wrong order are then an error. :func:`on` makes a call on a graph at hand.
"""

from onehop.reference.aggregate import Aggregate as Aggregate, AggregateGradients as AggregateGradients
from onehop.reference.arg_extremum import (
    ArgExtremum as ArgExtremum,
    ArgExtremumGrad as ArgExtremumGrad,
    ArgExtremumGradients as ArgExtremumGradients,
)
from onehop.reference.attention import (
    OPERATORS as OPERATORS,
    SCORES as SCORES,
    Attention as Attention,
    AttentionGrad as AttentionGrad,
    AttentionGradients as AttentionGradients,
    Edge as Edge,
    Rule as Rule,
    Score as Score,
    attention_grad as attention_grad,
)
from onehop.reference.calls import (
    accumulator as accumulator,
    heads_of as heads_of,
    name_of as name_of,
    on as on,
)
from onehop.reference.edge_softmax import (
    EdgeSoftmax as EdgeSoftmax,
    EdgeSoftmaxGrad as EdgeSoftmaxGrad,
    EdgeSoftmaxGradGradients as EdgeSoftmaxGradGradients,
    EdgeSoftmaxGradients as EdgeSoftmaxGradients,
)
from onehop.reference.extremum import (
    Extremum as Extremum,
    ExtremumGrad as ExtremumGrad,
    ExtremumGradients as ExtremumGradients,
)
from onehop.reference.fusedmm import Fusedmm as Fusedmm, FusedmmGradients as FusedmmGradients
from onehop.reference.sddmm import Sddmm as Sddmm, SddmmGradients as SddmmGradients
