"""Seeds by type, as PyG's samplers get them: their times, their trees, and their batch."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from onehop.errors import ArgumentError, IndexRangeError
from onehop.loaders.engine import Batch, Engine

Seeds = Mapping[Any, Tensor]


def times_of(seeds: Seeds, given: Seeds | None, node_time: Seeds) -> dict[Any, Tensor]:
    """Return, for each type, the times that no neighbour of a seed, [n], may exceed.

    These are the given times, [n], or, with None, the times of the nodes themselves, [num_nodes].

    Raises:
        ArgumentError: No times are given, and the nodes have none.
        IndexRangeError: A seed is not a node.
    """
    if given is not None:
        return {kind: given[kind] for kind in seeds}
    times = {}
    for kind, nodes in seeds.items():
        if kind not in node_time:
            raise ArgumentError(
                "time: the seeds need times, since the graph has times; give input_time= or "
                "edge_label_time= to the loader."
            )
        of_type = node_time[kind]
        if nodes.numel() and not 0 <= int(nodes.min()) <= int(nodes.max()) < of_type.numel():
            raise IndexRangeError(
                f"seeds: nodes {int(nodes.min())} to {int(nodes.max())} are not all in "
                f"[0, {of_type.numel()}). Check the input nodes."
            )
        times[kind] = of_type[nodes]
    return times


def draw_for(
    engine: Engine,
    types: Sequence[Any],
    seeds: Seeds,
    times: Seeds | None,
    *,
    key: Callable[[Sequence[Tensor]], int],
    graphs: bool,
) -> Batch:
    """Draw the batch of some seeds: for each type with seeds, [n], integers, and their times or None.

    Trees are numbered in the order in which the types of seeds are given, as PyG's ``edge_sample`` expects.
    ``types`` has all types of the engine, in order. ``key`` derives the batch's key from the seeds and times,
    as :func:`onehop.loaders.keys.batch_key` does.

    Raises:
        ArgumentError: The seeds or their times are not as expected.
        IndexRangeError: A seed is not a node.
    """
    unknown = sorted(str(kind) for kind in seeds if kind not in types)
    if unknown:
        known = ", ".join(map(str, types))
        raise ArgumentError(f"seeds: {', '.join(unknown)} is no type of nodes; there are {known}.")
    first_trees, following = {}, 0
    for kind, nodes in seeds.items():
        first_trees[kind] = following
        following += nodes.numel()
    contents = [*seeds.values(), *(() if times is None else times.values())]
    return engine.draw(
        [seeds.get(kind) for kind in types],
        key(contents),
        times=None if times is None else [times.get(kind) for kind in types],
        first_trees=[first_trees.get(kind, 0) for kind in types],
        graphs=graphs,
    )
