"""Orders of rows that a search may try: those that can be made in time."""

import time
from collections.abc import Callable

from onehop.graph import Graph
from onehop.tuner.candidates import Axes
from onehop.tuner.search import Budget, Steps

# Orders, the most promising first, are made while that takes at most this share of the time.
_SHARE = 0.25
_S_PER_EDGE = 1.5e-7


def make_orders(
    graph: Graph, axes: Axes, make: Callable[[str], object], budget: Budget, tick: Callable[[], None]
) -> Steps[dict[str, float]]:
    """Makes the orders that the time allows, and removes the others from the axes.

    Args:
        graph: The graph.
        axes: Values to try, by field; changed in place.
        make: Makes the order of that name, and the arrays of rows in that order.
        budget: The time available.
        tick: Called after each.

    Returns:
        The time of each, in seconds; an order that existed must be made again in another process.
    """
    seconds: dict[str, float] = {}
    if "ordering" not in axes:
        return seconds
    end = (1 - _SHARE) * budget.left()
    for name in axes["ordering"][1:]:
        assert isinstance(name, str)
        if budget.left() - _S_PER_EDGE * graph.num_edges < end:
            break
        known = graph.orders.get(name)
        begin = time.perf_counter()
        make(name)
        seconds[name] = time.perf_counter() - begin + (known.seconds if known else 0.0)
        tick()
        yield
    axes["ordering"] = ("none", *seconds)
    if not seconds:
        del axes["ordering"]
    return seconds
