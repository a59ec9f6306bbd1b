"""HeteroLinear without pyg-lib: the products of all types, put together once.

PyG writes the product of each type into its rows of one tensor. The backward pass of such a write copies the
gradient of the whole tensor, and so costs types times rows; here it costs rows.
"""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onehop.integrations import session
from onehop.integrations.pyg.associations.product import may_run_elsewhere
from onehop.integrations.pyg.layer import is_left_out
from onehop.integrations.pyg.leave import is_plain, need
from onehop.ops.contexts import autocasts, context_reason, wraps
from onehop.ops.typed import typed_product


def products(theirs: Callable[..., Any], layer: Any, x: Any, type_ptr: Any) -> Tensor | None:
    """Computes HeteroLinear's ``forward_naive``: [N, out_channels]; None if PyG's code has to run.

    Args:
        theirs: PyG's method.
        layer: The HeteroLinear.
        x: [N, in_channels], in the order of their types.
        type_ptr: [types + 1], where the rows of each type begin, and the last ones end.
    """
    weight = layer.weight
    need(session.now.pyg and not is_left_out(type(layer)) and context_reason() is None)
    need(is_plain(x) and is_plain(weight) and not wraps(x, weight, type_ptr) and not type_ptr.is_meta)
    need(x.layout is torch.strided and x.dtype is weight.dtype and not autocasts(x))
    need(x.shape[1:] == weight.shape[1:2] and weight.size(2) == layer.out_channels)
    starts = type_ptr.tolist()
    counts = [end - start for start, end in itertools.pairwise(starts)]
    # Types that are not in order make pointers that do not ascend, and rows that PyG does not write.
    need(starts[0] == 0 and starts[-1] == x.size(0) and min(counts) >= 0 and len(counts) == weight.size(0))
    return typed_product(x, weight, counts, fastest=may_run_elsewhere(x))
