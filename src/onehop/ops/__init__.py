"""The differentiable operators that users call, registered with torch.library."""

from onehop.ops.aggregate import aggregate
from onehop.ops.edge_softmax import edge_softmax
from onehop.ops.sddmm import sddmm

__all__ = ["aggregate", "edge_softmax", "sddmm"]
