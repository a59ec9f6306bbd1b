"""Rules of row-wise messages: how torch's operations handle the dimension of the edges.

An operation is row-wise if row e of its result depends only on row e of its operands. An operation without a
rule counts as not row-wise.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from onehop.compiler.aten import Mixes, Place, Places, Rule, carries, name_of, named


def rule_of(overload: Any) -> Rule | None:
    """Return how an overload of an operation handles the edges' dimension; None if it is not known."""
    return _pointwise if torch.Tag.pointwise in overload.tags else named(name_of(overload)).rule


@carries(
    "clone", "_to_copy", "detach", "alias", "lift_fresh", "contiguous", "zeros_like", "ones_like",
    "full_like", "empty_like", "zero_",
)  # fmt: skip
def _same(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place | None:
    return places(args[0])


def _of_first(args: Any, places: Places) -> Place:
    """Return the place of the edges in the first operand, which must have edges."""
    place = places(args[0])
    assert place is not None
    return place


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    tensors = []
    for value in values:
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, list | tuple):
            tensors += [item for item in value if isinstance(item, Tensor)]
    return tensors


def _aligned(tensors: list[Tensor], places: Places) -> tuple[int, int] | None:
    """Return the edges' dimension, counted from the back, and ``inner``, in tensors that are broadcast."""
    alignment = None
    for tensor in tensors:
        place = places(tensor)
        if place is not None:
            here = (tensor.dim() - place.dim, place.inner)
            if alignment is not None and here != alignment:
                raise Mixes("the edges are in different dimensions of its operands")
            alignment = here
    if alignment is None:
        return None
    for tensor in tensors:
        if places(tensor) is None and tensor.dim() >= alignment[0] and tensor.size(-alignment[0]) != 1:
            raise Mixes("it meets a tensor that does not come from the edges' operands")
    return alignment


@carries(
    "rsub", "masked_fill", "masked_fill_", "_prelu_kernel", "log_sigmoid_forward", "copy_", "fill_", "log1p",
    "polar", "complex", "view_as_real", "bitwise_not",
)  # fmt: skip
def _pointwise(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place | None:
    tensors = _tensors(bound.values())
    alignment = _aligned(tensors, places)
    return None if alignment is None else Place(max(t.dim() for t in tensors) - alignment[0], alignment[1])


def _dims(bound: dict[str, Any], dims: int) -> list[int]:
    dim = bound["dim"] if "dim" in bound else bound["dims"]
    if dim is None or dim == []:
        return list(range(dims))
    return [d % max(dims, 1) for d in (dim if isinstance(dim, list | tuple) else [dim])]


@carries(
    "_softmax", "_log_softmax", "cumsum", "cumprod", "logcumsumexp", "sort", "topk", "flip", "roll", "glu",
)  # fmt: skip
def _kept_apart(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    """Rule of operations along dimensions that stay: none of them may be the edges' dimension."""
    place = _of_first(args, places)
    if place.dim in _dims(bound, args[0].dim()):
        raise Mixes
    return place


@carries(
    "sum", "mean", "amax", "amin", "prod", "logsumexp", "var", "std", "var_mean", "std_mean", "nansum",
    "linalg_vector_norm", "norm", "any", "all", "argmax", "argmin", "max", "min", "median", "nanmedian",
    "count_nonzero",
)  # fmt: skip
def _reduction(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    if "dim" not in bound:
        raise Mixes
    place = _kept_apart(args, bound, places, edges)
    if bound.get("keepdim"):
        return place
    return Place(place.dim - sum(d < place.dim for d in set(_dims(bound, args[0].dim()))), place.inner)


@carries("view", "_unsafe_view", "reshape", sized=True)
def _view(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    source, shape = args[0], list(args[1])
    place = _of_first(args, places)
    if -1 in shape:
        product = -math.prod(shape)
        if product == 0:
            raise Mixes("its result is empty")
        shape[shape.index(-1)] = source.numel() // product
    return _find(shape, math.prod(source.shape[: place.dim]), edges)


def _find(shape: list[int], before: int, edges: int) -> Place:
    """Finds the edges' dimension in ``shape`` if there are ``before`` entries before it."""
    product = 1
    for dim, size in enumerate(shape):
        if product == before and size != 1:
            if size % edges:
                break
            return Place(dim, size // edges)
        product *= size
    raise Mixes("it takes the edges' dimension apart")


@carries("unsqueeze")
def _unsqueeze(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    place = _of_first(args, places)
    at = args[1] % (args[0].dim() + 1)
    return Place(place.dim + (at <= place.dim), place.inner)


@carries("squeeze")
def _squeeze(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    source, place = args[0], _of_first(args, places)
    if "dim" not in bound:
        raise Mixes("without a dimension it treats a single edge in another way")
    gone = [d for d in _dims(bound, source.dim()) if source.size(d) == 1]
    if place.dim in _dims(bound, source.dim()):
        raise Mixes("it treats a single edge in another way")
    return Place(place.dim - sum(d < place.dim for d in gone), place.inner)


@carries("permute")
def _permute(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    place = _of_first(args, places)
    return Place([d % args[0].dim() for d in args[1]].index(place.dim), place.inner)


@carries("transpose", "t")
def _transpose(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    dims = args[0].dim()
    first, second = (args[1] % dims, args[2] % dims) if len(args) == 3 else (0, dims - 1)
    order = list(range(dims))
    order[first], order[second] = order[second], order[first]
    return _permute((args[0], order), bound, places, edges)


@carries("expand", sized=True)
def _expand(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    place = _of_first(args, places)
    return Place(place.dim + len(args[1]) - args[0].dim(), place.inner)


@carries("repeat")
def _repeat(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    place = _expand(args, bound, places, edges)
    if args[1][place.dim] != 1:
        raise Mixes
    return place


@carries("select")
def _select(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    place = _kept_apart(args, bound, places, edges)
    return Place(place.dim - (bound["dim"] % args[0].dim() < place.dim), place.inner)


@carries("slice", sized=True)
def _slice(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    source, place = args[0], _of_first(args, places)
    if bound.get("dim", 0) % source.dim() == place.dim:
        end = bound.get("end")
        whole = bound.get("start") in (None, 0) and (end is None or end >= source.size(place.dim))
        if not whole or bound.get("step", 1) != 1:
            raise Mixes
    return place


@carries("split", "split_with_sizes")
def _split(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    return _kept_apart(args, {"dim": bound.get("dim", 0)}, places, edges)


@carries("unbind")
def _unbind(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    return _select(args, {"dim": bound.get("dim", 0)}, places, edges)


def _joined(tensors: list[Tensor], places: Places) -> Place:
    tensor_places = {places(tensor) for tensor in tensors}
    place = tensor_places.pop()
    if tensor_places or place is None:
        raise Mixes("it joins tensors of edges with others")
    return place


@carries("cat")
def _cat(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    place = _joined(args[0], places)
    if bound.get("dim", 0) % args[0][0].dim() == place.dim:
        raise Mixes
    return place


@carries("stack")
def _stack(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    place = _joined(args[0], places)
    return Place(place.dim + (bound.get("dim", 0) % (args[0][0].dim() + 1) <= place.dim), place.inner)


def _matmul(left: Tensor, right: Tensor, places: Places) -> Place:
    """Rule of products of [..., m, k] and [..., k, n] with equal leading dimensions."""
    first, second, last = places(left), places(right), left.dim() - 1
    if first is not None and second is not None:
        if first != second or first.dim >= last - 1:
            raise Mixes
        return first
    one, contracted = (first, last) if first is not None else (second, last - 1)
    assert one is not None
    if one.dim == contracted:
        raise Mixes
    return one


@carries("mm", "bmm")
def _mm(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    return _matmul(args[0], args[1], places)


@carries("addmm", "baddbmm")
def _addmm(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    if places(args[1]) is None and places(args[2]) is None:
        raise Mixes
    place = _matmul(args[1], args[2], places)
    added = _aligned([args[0]], places)
    from_back = args[1].dim() - place.dim
    if added is not None:
        if added != (from_back, place.inner):
            raise Mixes
    elif args[0].dim() >= from_back and args[0].size(-from_back) != 1:
        raise Mixes("it meets a tensor that does not come from the edges' operands")
    return place


@carries("linear", "mv")
def _linear(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    """Rule of linear steps: the first operand has edges; the others must be the same for all edges."""
    place = places(args[0])
    if place is None or any(places(tensor) is not None for tensor in _tensors(args[1:])):
        raise Mixes
    if place.dim == args[0].dim() - 1:
        raise Mixes
    return place


@carries("native_layer_norm")
def _layer_norm(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    place = _linear((args[0], *args[2:]), bound, places, edges)
    if place.dim >= args[0].dim() - len(args[1]):
        raise Mixes
    return place


@carries("linalg_cross")
def _cross(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place | None:
    place = _pointwise(args, bound, places, edges)
    if place is not None and bound.get("dim", -1) % max(tensor.dim() for tensor in args[:2]) == place.dim:
        raise Mixes
    return place


@carries("native_group_norm", sized=True)
def _group_norm(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    place = places(args[0])
    if place is None or place.dim != 0:
        raise Mixes
    return place


@carries(
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training",
    "cudnn_batch_norm",
)  # fmt: skip
def _batch_norm(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    place = places(args[0])
    if bound.get("training", False) or place is None or place.dim == 1:
        raise Mixes("normalisation by the batch in training")
    return place


@carries("index")
def _index(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    source = args[0]
    used = [(at, index) for at, index in enumerate(args[1]) if index is not None]
    if len(used) != 1 or used[0][1].dtype in (torch.bool, torch.uint8):
        raise Mixes
    return _picked(source, used[0][0], used[0][1], places)


def _picked(source: Tensor, at: int, index: Tensor, places: Places) -> Place:
    """Rule of gathering entries of dimension ``at``, which the dimensions of ``index`` replace."""
    place, chooser = places(source), places(index)
    if place is None:
        assert chooser is not None
        return Place(at + chooser.dim, chooser.inner)
    if chooser is not None or at == place.dim:
        raise Mixes
    return Place(place.dim + (index.dim() - 1) * (at < place.dim), place.inner)


@carries("index_select")
def _index_select(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    return _picked(args[0], args[1] % args[0].dim(), args[2], places)


@carries("embedding")
def _embedding(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    if bound.get("scale_grad_by_freq") or bound.get("sparse"):
        raise Mixes("its gradient counts edges, or is sparse")
    return _picked(args[0], 0, args[1], places)


@carries("gather")
def _gather(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    place = _joined([args[0], args[2]], places)
    if args[1] % args[0].dim() == place.dim:
        raise Mixes
    return place


@carries("constant_pad_nd")
def _pad(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place:
    place = _of_first(args, places)
    at = 2 * (args[0].dim() - 1 - place.dim)
    if any(args[1][at : at + 2]):
        raise Mixes
    return place


@carries(
    "zeros", "ones", "full", "empty", "new_zeros", "new_ones", "new_full", "new_empty", "empty_strided",
    sized=True, makes=True,
)  # fmt: skip
def place_of_made(args: Any, bound: dict[str, Any], places: Places, edges: int) -> Place | None:
    """Rule of filled tensors: a size that equals the number of edges is the edges' dimension."""
    sizes = next(value for value in bound.values() if isinstance(value, list | tuple))
    dims = [dim for dim, size in enumerate(sizes) if size == edges]
    if len(dims) > 1:
        raise Mixes("it makes a table of edges times edges")
    return Place(dims[0]) if dims else None
