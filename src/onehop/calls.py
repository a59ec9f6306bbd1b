"""Calls of operators: a named tuple for each operator, which backends receive.

Each call is defined next to its reference (:mod:`onehop.reference`), in a lower layer than everything that
runs it. Make calls with keyword arguments, so that exchanged arguments are an error. :func:`on` makes a call
on a given graph.
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
from onehop.reference.tensor_product import (
    TensorProduct as TensorProduct,
    TensorProductEdges as TensorProductEdges,
    TensorProductEdgesGradients as TensorProductEdgesGradients,
    TensorProductGradients as TensorProductGradients,
)
