"""pyg-lib's operators that merge the draws of several processes, for PyG's distributed sampler."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.integrations.pyg.operators import Operator

_Counts = Mapping[str, Sequence[Sequence[int]]]


def merge_sampler_outputs(
    node_ids: Sequence[Tensor],
    edge_ids: Sequence[Tensor],
    cumsum_neighbors_per_node: Sequence[Sequence[int]],
    partition_ids: Sequence[int],
    partition_orders: Sequence[int],
    num_partitions: int,
    num_neighbors: int,
    batch: Tensor | None,
    disjoint: bool,
) -> tuple[Tensor, Tensor, Tensor | None, list[int]]:
    """Merges the neighbours that each part drew, in the order of the seeds.

    Args:
        node_ids: For each part, its seeds and then their neighbours, as from ``dist_neighbor_sample``.
        edge_ids: For each part, the numbers of the edges; seeds have no entry.
        cumsum_neighbors_per_node: For each part, the begin of each seed's neighbours, and the end of the
            last.
        partition_ids: For each seed, the part that drew for it.
        partition_orders: For each seed, its place among the seeds of that part.
        num_partitions: Number of parts.
        num_neighbors: Has no effect, because the bounds contain the numbers of neighbours.
        batch: [seeds]: the tree of each seed; None without trees.
        disjoint: Whether there are trees.

    Returns:
        The neighbours of all seeds, [e]; the numbers of the edges to them, [e]; their trees, [e], or None;
        and the number of neighbours of each seed.

    Raises:
        ArgumentError: The lists contradict each other.
    """
    if len(partition_ids) != len(partition_orders):
        raise ArgumentError(
            f"partition_ids, partition_orders: expected one number each for every seed, got "
            f"{len(partition_ids)} and {len(partition_orders)}."
        )
    list_counts = (len(node_ids), len(edge_ids), len(cumsum_neighbors_per_node))
    if list_counts != (num_partitions,) * 3 or not num_partitions:
        raise ArgumentError(
            f"node_ids, edge_ids, cumsum_neighbors_per_node: expected {num_partitions} of each, one for "
            f"every part and at least one, got {', '.join(map(str, list_counts))}."
        )
    if disjoint and batch is None:
        raise ArgumentError("batch: with disjoint, every seed needs the number of its tree.")
    part, order = _integers(partition_ids), _integers(partition_orders)
    lengths = _integers([len(bounds) for bounds in cumsum_neighbors_per_node])
    wrong = ((part < 0) | (part >= num_partitions)).nonzero()
    if not wrong.numel():
        wrong = ((order < 0) | (order >= lengths[part] - 1)).nonzero()
    if wrong.numel():
        seed = int(wrong[0])
        raise ArgumentError(
            f"partition_ids, partition_orders: seed {seed} is number {int(order[seed])} of part "
            f"{int(part[seed])}, which has drawn for no such seed."
        )
    bounds = torch.cat([_integers(of_part) for of_part in cumsum_neighbors_per_node])
    place = _begins(lengths)[part] + order
    counts = bounds[place + 1] - bounds[place]
    # The first bound of a part is the number of its seeds, which have no edge entries.
    seeds = bounds[_begins(lengths).clamp(max=max(bounds.numel() - 1, 0))[part]]
    nodes = _taken(node_ids, part, bounds[place], counts)
    edges = _taken(edge_ids, part, bounds[place] - seeds, counts)
    trees = torch.repeat_interleave(batch, counts) if disjoint and batch is not None else None
    return nodes, edges, trees, counts.tolist()


def relabel_neighborhood(
    seed: Tensor,
    sampled_nodes_with_duplicates: Tensor,
    num_sampled_neighbors_per_node: Sequence[int],
    num_nodes: int,
    batch: Tensor | None = None,
    csc: bool = False,
    disjoint: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return a batch's edges in the batch's numbers: seeds first, then neighbours in drawing order.

    Args:
        seed: [n], integers.
        sampled_nodes_with_duplicates: [e], of the same dtype: the neighbours that each node drew.
        num_sampled_neighbors_per_node: How many neighbours each node of the batch drew, in the batch's order.
        num_nodes: Number of nodes of the graph.
        batch: [e]: the tree of each neighbour; None without trees.
        csc: Whether the first row of edges holds the neighbours.
        disjoint: Whether the nodes of different seeds are kept separate.

    Returns:
        Two tensors [e]: the nodes that drew, and their neighbours; or in the other order.

    Raises:
        ArgumentError: The arguments contradict each other.
    """
    if seed.dtype != sampled_nodes_with_duplicates.dtype:
        raise ArgumentError(
            f"seed, sampled_nodes_with_duplicates: expected one dtype, got {seed.dtype} and "
            f"{sampled_nodes_with_duplicates.dtype}."
        )
    trees = torch.arange(seed.numel(), device="cpu")
    numbers = _numbers("", seed, trees, sampled_nodes_with_duplicates, batch, num_nodes, disjoint)
    counts = _integers(num_sampled_neighbors_per_node)
    _check_total("", int(counts.sum()), numbers.numel())
    rows = torch.repeat_interleave(torch.arange(counts.numel(), device="cpu"), counts).to(seed.dtype)
    return (numbers, rows) if csc else (rows, numbers)


def hetero_relabel_neighborhood(
    node_types: Sequence[str],
    edge_types: Sequence[tuple[str, str, str]],
    seed_dict: Mapping[str, Tensor],
    sampled_nodes_with_duplicates_dict: Mapping[str, Tensor],
    num_sampled_neighbors_per_node_dict: _Counts,
    num_nodes_dict: Mapping[str, int],
    batch_dict: Mapping[str, Tensor] | None = None,
    csc: bool = False,
    disjoint: bool = False,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return edges of a heterogeneous batch; takes the arguments of :func:`relabel_neighborhood` by type.

    Counts are lists of lists: for each hop, how many neighbours each of its nodes drew. Neighbours of a type
    are ordered by hop, then by edge type.
    """
    numbers: dict[str, Tensor] = {}
    trees, first_tree = {}, 0
    for kind, seed in seed_dict.items():
        trees[kind] = torch.arange(first_tree, first_tree + seed.numel(), device="cpu")
        first_tree += seed.numel()
    nothing = torch.empty(0, dtype=torch.int64, device="cpu")
    for kind in node_types:
        sampled = sampled_nodes_with_duplicates_dict[kind]
        seed = seed_dict.get(kind, sampled.new_empty(0))
        batch = None if batch_dict is None else batch_dict.get(kind)
        numbers[kind] = _numbers(
            f" of {kind!r}", seed, trees.get(kind, nothing), sampled, batch, num_nodes_dict[kind], disjoint
        )
    keys = {"__".join(kind): kind for kind in edge_types}
    row_end, col_end = (2, 0) if csc else (0, 2)
    num_hops = max((len(num_sampled_neighbors_per_node_dict[key]) for key in keys), default=0)
    rows: dict[str, list[Tensor]] = {key: [] for key in keys}
    cols: dict[str, list[Tensor]] = {key: [] for key in keys}
    # For each node type: how many nodes drew in earlier hops, and how many neighbours are numbered.
    drawn, used = dict.fromkeys(node_types, 0), dict.fromkeys(node_types, 0)
    for hop in range(num_hops):
        ends = dict(drawn)
        for key, edge_type in keys.items():
            of_rows, of_kind = edge_type[row_end], edge_type[col_end]
            counts = _integers(num_sampled_neighbors_per_node_dict[key][hop])
            begin, total = drawn[of_rows], int(counts.sum())
            _check_total(f" of {of_kind!r}", used[of_kind] + total, numbers[of_kind].numel(), exact=False)
            places = torch.arange(begin, begin + counts.numel(), device="cpu")
            rows[key].append(torch.repeat_interleave(places, counts))
            cols[key].append(numbers[of_kind][used[of_kind] : used[of_kind] + total])
            used[of_kind] += total
            ends[of_rows] = max(ends[of_rows], begin + counts.numel())
        drawn = ends
    dtype = next(iter(seed_dict.values())).dtype if seed_dict else torch.int64
    found_rows, found_cols = (
        {key: torch.cat([nothing, *hops]).to(dtype) for key, hops in parts.items()} for parts in (rows, cols)
    )
    return (found_cols, found_rows) if csc else (found_rows, found_cols)


def _numbers(
    what: str,
    seed: Tensor,
    trees: Tensor,
    sampled: Tensor,
    batch: Tensor | None,
    num_nodes: int,
    disjoint: bool,
) -> Tensor:
    """Return the numbers of the drawn nodes, [e]; nodes are numbered by first occurrence, after the seeds."""
    nodes = torch.cat([seed, sampled]).long()
    if disjoint:
        if batch is None or batch.numel() != sampled.numel():
            raise ArgumentError(
                f"batch: with disjoint, each of the {sampled.numel()} nodes{what} that were drawn needs the "
                f"number of its tree, got {'None' if batch is None else batch.numel()}."
            )
        nodes = torch.cat([trees, batch.long()]) * max(num_nodes, 1) + nodes
    # Distinct nodes are numbered by the place of their first occurrence.
    distinct, inverse = nodes.unique(return_inverse=True)
    first = torch.full_like(distinct, nodes.numel())
    first.scatter_reduce_(0, inverse, torch.arange(nodes.numel(), device="cpu"), "amin")
    number = torch.empty_like(first)
    number[first.argsort()] = torch.arange(first.numel(), device="cpu")
    return number[inverse[seed.numel() :]].to(seed.dtype)


def _taken(parts: Sequence[Tensor], part: Tensor, begin: Tensor, counts: Tensor) -> Tensor:
    """Return one run of consecutive entries of a part for each seed, concatenated."""
    joined, total = torch.cat(list(parts)), int(counts.sum())
    first = _begins(_integers([tensor.numel() for tensor in parts]))[part] + begin
    before = counts.cumsum(0) - counts
    places = torch.arange(total, device="cpu") + torch.repeat_interleave(first - before, counts)
    return joined[places]


def _begins(lengths: Tensor) -> Tensor:
    return lengths.cumsum(0) - lengths


def _integers(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.int64, device="cpu")


def _check_total(what: str, counted: int, drawn: int, exact: bool = True) -> None:
    if counted > drawn or (exact and counted != drawn):
        raise ArgumentError(
            f"num_sampled_neighbors_per_node: it counts {counted} nodes{what}, and {drawn} were drawn."
        )


OPERATORS = (
    Operator(
        "merge_sampler_outputs(Tensor[] node_ids, Tensor[] edge_ids, int[][] cumsum_neighbors_per_node, "
        "int[] partition_ids, int[] partition_orders, int num_partitions, int num_neighbors, Tensor? batch, "
        "bool disjoint) -> (Tensor, Tensor, Tensor?, int[])",
        merge_sampler_outputs,
        "BackendSelect",
    ),
    Operator(
        "relabel_neighborhood(Tensor seed, Tensor sampled_nodes_with_duplicates, "
        "int[] num_sampled_neighbors_per_node, int num_nodes, Tensor? batch = None, bool csc = False, "
        "bool disjoint = False) -> (Tensor, Tensor)",
        relabel_neighborhood,
    ),
    Operator(
        "hetero_relabel_neighborhood(str[] node_types, (str, str, str)[] edge_types, "
        "Dict(str, Tensor) seed_dict, Dict(str, Tensor) sampled_nodes_with_duplicates_dict, "
        "Dict(str, int[][]) num_sampled_neighbors_per_node_dict, Dict(str, int) num_nodes_dict, "
        "Dict(str, Tensor)? batch_dict = None, bool csc = False, bool disjoint = False) -> "
        "(Dict(str, Tensor), Dict(str, Tensor))",
        hetero_relabel_neighborhood,
        "BackendSelect",
    ),
)
"""The operators, with pyg-lib's schemas."""
