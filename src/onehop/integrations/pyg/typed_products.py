"""HeteroLinear without pyg-lib: the products of all types, put together once.

PyG writes the product of each type into its rows of one tensor. The backward pass of such a write copies the
gradient of the whole tensor, and so costs types times rows; here it costs rows.
"""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from onehop.integrations import session
from onehop.integrations.pyg.associations.product import may_run_elsewhere
from onehop.integrations.pyg.layer import is_left_out
from onehop.ops.contexts import autocasts, context_reason, wraps
from onehop.ops.typed import typed_product

_PLAIN = (Tensor, Parameter)


def products(theirs: Callable[..., Any], layer: Any, x: Any, type_ptr: Any) -> Tensor | None:
    """Computes HeteroLinear's ``forward_naive``: [N, out_channels]; None if PyG's code has to run.

    Args:
        theirs: PyG's method.
        layer: The HeteroLinear.
        x: [N, in_channels], in the order of their types.
        type_ptr: [types + 1], where the rows of each type begin, and the last ones end.
    """
    weight = layer.weight
    if (
        not session.now.pyg
        or is_left_out(type(layer))
        or context_reason() is not None
        or type(x) not in _PLAIN
        or type(weight) not in _PLAIN
        or wraps(x, weight, type_ptr)
        or type_ptr.is_meta
        or x.layout is not torch.strided
        or x.dtype is not weight.dtype
        or x.shape[1:] != weight.shape[1:2]
        or weight.size(2) != layer.out_channels
        or autocasts(x)
    ):
        return None
    starts = type_ptr.tolist()
    counts = [end - start for start, end in itertools.pairwise(starts)]
    # Types that are not in order make pointers that do not ascend, and rows that PyG does not write.
    if starts[0] != 0 or starts[-1] != x.size(0) or min(counts) < 0 or len(counts) != weight.size(0):
        return None
    return typed_product(x, weight, counts, fastest=may_run_elsewhere(x))
