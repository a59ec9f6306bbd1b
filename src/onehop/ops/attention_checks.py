"""Options of gat, gatv2 and attention, and checks of their arguments."""

import operator
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import torch
from torch import Tensor

from onehop.calls import Edge, Score
from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.ops.checks import FLOATS, check_features, elsewhere, not_dense

_ROWS_OF_HEADS = 3


class OptionsOfCalls(TypedDict, total=False):
    """The keyword arguments of :class:`AttentionOptions` that the type of the result does not depend on."""

    edge_mask: Tensor | None
    seed: int | None
    backend: str | None


class AttentionOptions(OptionsOfCalls, total=False):
    """Keyword arguments of :func:`gat`, :func:`gatv2` and :func:`attention`.

    Attributes:
        edge_mask: [E, H], in the caller's edge order, multiplies the weights after the softmax; None means 1.
            It is meant for dropout that was drawn elsewhere: it has no gradient, and ``dropout`` must be 0.
        seed: Seed of the dropout, in [0, 2^63). None draws one number from torch's default generator. The
            dropout's mask is a hash of the seed, the edge's number in the caller's order and the head: it is
            not stored, and does not depend on threads and instruction sets.
        return_attention_weights: Whether to return the pair (output, weights). The weights are after dropout
            and mask in :func:`gat` and :func:`gatv2`, and before them in :func:`attention`. False by default.
        backend: Name of the backend; None means the best available one.

    Examples:
        >>> import onehop, torch
        >>> graph = onehop.Graph.from_edge_index(torch.tensor([[0, 1], [2, 2]]))  # 0->2, 1->2
        >>> x = torch.tensor([2.0, 4.0, 9.0]).reshape(3, 1, 1)
        >>> options = onehop.ops.AttentionOptions(edge_mask=torch.tensor([[2.0], [0.0]]))  # drops edge 1
        >>> onehop.gat(graph, x, torch.zeros(3, 1), torch.zeros(3, 1), **options)[2].item()
        2.0
    """

    return_attention_weights: bool


OPTIONS = AttentionOptions.__optional_keys__


def check_operands(
    score: Score, graph: Graph, operands: Sequence[Tensor], edge: Edge | None
) -> dict[str, Tensor]:
    """The operands by the fields of their call; raises unless they fit the graph and each other.

    Args:
        score: The operator.
        graph: The graph.
        operands: Its arguments after the graph. The first has rows of at least one head and one column.
        edge: Its operand of edges, or None.
    """
    sizes = {"num_src": graph.num_src, "num_dst": graph.num_dst, "E": graph.num_edges}
    (name, field, shape), like = score.operands[0], operands[0]
    # Nearly all operands pass this test, and the calls of the checks would show on small graphs.
    if not (
        isinstance(like, Tensor)
        and like.layout is torch.strided
        and like.dtype in FLOATS
        and like.dim() == _ROWS_OF_HEADS
        and like.shape[0] == sizes[shape[0]]
        and like.shape[1]
        and like.shape[2]
    ):
        ends = "sources" if shape[0] == "num_src" else "destinations"
        check_features(name, like, sizes[shape[0]], ends)
        check_tensor(name, like, shape, sizes, like)
        check_heads(name, like)
    fields = {field: like}
    sizes["H"], sizes["D"] = like.shape[1:]
    if edge is not None:
        sizes["V"] = sizes["D"]
    for (name, field, shape), tensor in zip(score.operands[1:], operands[1:], strict=True):
        fields[field] = check_tensor(name, tensor, shape, sizes, like)
    if score.rule == "dot":
        check_heads("value", fields["value"])
    if edge is not None and score.rule == "gat":
        fields["edge"] = check_tensor(score.edge, edge, ("E", "H"), sizes, like)
    elif edge is not None:
        fields |= check_edge(edge, sizes, like)
    return fields


def check_tensor(
    name: str, tensor: object, shape: tuple[str, ...], sizes: Mapping[str, int], like: Tensor
) -> Tensor:
    """Returns ``tensor``; raises unless it is a dense float tensor of this shape on the device of ``like``.

    Args:
        name: Name of the argument.
        tensor: The argument.
        shape: The names of its extents.
        sizes: The extents by their names; those that are missing may be any.
        like: A tensor that was checked.
    """
    if not isinstance(tensor, Tensor) or tensor.layout != torch.strided or tensor.dtype not in FLOATS:
        raise not_dense(name, tensor)
    # This is a loop, because a generator costs a call for each size, which takes noticeable time on small
    # graphs.
    fits = len(tensor.shape) == len(shape)
    for have, extent in zip(tensor.shape, shape, strict=False):
        fits = fits and have == sizes.get(extent, have)
    if not fits:
        numbers = ", ".join(str(sizes.get(extent, "any")) for extent in shape)
        raise ArgumentError(f"{name}: expected [{', '.join(shape)}] = [{numbers}], got {list(tensor.shape)}.")
    if tensor.device != like.device:
        raise elsewhere(name, tensor, like)
    return tensor


def check_heads(name: str, x: Tensor) -> None:
    """Raises unless ``x``, [N, H, D], has at least one head and one column."""
    if not x.size(1) or not x.size(2):
        raise ArgumentError(f"{name}: expected at least one head and one column, got shape {list(x.shape)}.")


def check_edge(edge: Edge, sizes: Mapping[str, int], like: Tensor) -> dict[str, Tensor]:
    """Return edge features and, if given as a pair, the weight that projects them; raise unless they fit.

    Args:
        edge: The argument.
        sizes: The numbers of edges, heads and columns.
        like: A tensor that was checked.

    Returns:
        The fields of a call that are these.
    """
    if not isinstance(edge, (tuple, list)):
        return {"edge": check_tensor("edge", edge, ("E", "H", "D"), sizes, like)}
    if len(edge) != 2:
        raise ArgumentError(
            f"edge: expected a tensor or the pair (features [E, K], weight [H * D, K]), "
            f"got {len(edge)} entries."
        )
    features, weight = edge
    check_tensor("edge[0]", features, ("E", "K"), sizes, like)
    if not features.size(1):
        raise ArgumentError("edge[0]: expected at least one column; leave edge out where there are none.")
    sizes = {"H * D": sizes["H"] * sizes["D"], "K": features.size(1)}
    check_tensor("edge[1]", weight, ("H * D", "K"), sizes, like)
    return {"edge": features, "edge_weight": weight}


def seeds_of(dropout: Any, edge_mask: object, seed: Any) -> Tensor | None:
    """Return the seed of the dropout, [1], int64; None without dropout.

    Raises:
        ArgumentError: ``dropout`` or ``seed`` is invalid, or ``dropout`` is given together with a mask.
    """
    if not isinstance(dropout, (int, float)) or not 0 <= dropout < 1:
        raise ArgumentError(f"dropout: expected a probability in [0, 1), got {dropout!r}.")
    if dropout and edge_mask is not None:
        raise ArgumentError(
            "dropout, edge_mask: give one of them; a mask stands for a dropout already drawn."
        )
    if seed is not None:
        try:
            seed = -1 if isinstance(seed, bool) else operator.index(seed)
        except TypeError:
            seed = -1
        if not 0 <= seed < 2**63:
            raise ArgumentError("seed: expected an integer in [0, 2^63), or None.")
    if not dropout:
        return None
    if seed is None:
        return torch.randint(0, 2**63 - 1, (1,), dtype=torch.int64, device="cpu")
    return torch.full((1,), seed, dtype=torch.int64, device="cpu")


def check_mask(edge_mask: Tensor, graph: Graph, value: Tensor) -> None:
    """Raises unless ``edge_mask`` is [E, H] on the device of ``value`` and needs no gradient."""
    sizes = {"E": graph.num_edges, "H": value.size(1)}
    check_tensor("edge_mask", edge_mask, ("E", "H"), sizes, value)
    if edge_mask.requires_grad:
        raise ArgumentError(
            "edge_mask: has no gradient here; detach it, or multiply what return_attention_weights returns."
        )
