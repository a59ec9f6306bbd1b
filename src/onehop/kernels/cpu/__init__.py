"""The extension's kernels as prepared calls. They do not check their operands, which were checked before."""

from onehop.calls import (
    Aggregate,
    ArgExtremum,
    ArgExtremumGrad,
    Attention,
    AttentionGrad,
    EdgeSoftmax,
    EdgeSoftmaxGrad,
    Extremum,
    ExtremumGrad,
    Fusedmm,
    Sddmm,
    TensorProduct,
    TensorProductEdges,
)
from onehop.kernels.cpu.aggregate import PreparedAggregate
from onehop.kernels.cpu.arg_extremum import PreparedArgExtremum, PreparedArgExtremumGrad
from onehop.kernels.cpu.attention import PreparedAttention, PreparedAttentionGrad
from onehop.kernels.cpu.edge_softmax import PreparedEdgeSoftmax
from onehop.kernels.cpu.extremum import PreparedExtremum, PreparedExtremumGrad
from onehop.kernels.cpu.fusedmm import PreparedFusedmm
from onehop.kernels.cpu.prepared import Prepared
from onehop.kernels.cpu.sddmm import PreparedSddmm
from onehop.kernels.cpu.tensor_product import PreparedTensorProduct, PreparedTensorProductEdges

KERNELS: dict[type, type[Prepared]] = {
    Aggregate: PreparedAggregate,
    ArgExtremum: PreparedArgExtremum,
    ArgExtremumGrad: PreparedArgExtremumGrad,
    Attention: PreparedAttention,
    AttentionGrad: PreparedAttentionGrad,
    EdgeSoftmax: PreparedEdgeSoftmax,
    EdgeSoftmaxGrad: PreparedEdgeSoftmax,
    Extremum: PreparedExtremum,
    ExtremumGrad: PreparedExtremumGrad,
    Fusedmm: PreparedFusedmm,
    Sddmm: PreparedSddmm,
    TensorProduct: PreparedTensorProduct,
    TensorProductEdges: PreparedTensorProductEdges,
}
"""The prepared call that runs each type of call."""
