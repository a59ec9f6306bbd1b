"""One naive torch function per operator: the specification, and the only oracle of the tests.

They work on ``edge_index`` alone, on any device and dtype, and are differentiable by torch itself.
"""

from onehop.reference.aggregate import aggregate
from onehop.reference.edge_softmax import edge_softmax
from onehop.reference.sddmm import sddmm

__all__ = ["aggregate", "edge_softmax", "sddmm"]
