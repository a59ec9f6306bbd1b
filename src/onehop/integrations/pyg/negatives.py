"""PyG's negative sampling, with the same pairs and the same states of the generators as in PyG.

PyG's ``negative_sampling`` draws with Python's ``random.sample``; here native code continues Python's
generator. ``structured_negative_sampling`` draws with torch's own functions. The drawn pairs are looked up in
a table of the edges. Other releases of PyG and Python may draw differently, so at first use both functions
are compared with PyG's, with private generators.
"""

import math
import os
import random
import threading
from functools import lru_cache
from types import FunctionType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import _negative_sampling as theirs_module

from onehop.integrations.pyg.functions import replacing_utils, serves_functions
from onehop.integrations.pyg.leave import OUT_OF_RANGE, are_numbers, need
from onehop.integrations.rows import Function, Leave, Row
from onehop.kernels.cpu.negatives import LARGEST, Kind, Pairs
from onehop.native import CPU

# The functions that PyG's function calls, and the methods of Python's generator.
_HELPERS = ("sample", "edge_index_to_vector", "vector_to_edge_index")
_METHODS = ("sample", "_randbelow", "getrandbits", "getstate", "setstate")

_SEED = 20261126
# Test cases: nodes, edges, pairs to draw, the method, and whether pairs are undirected. They cover drawing
# from a list, repeated drawing, drawing all pairs in order, two generator words for each number, pairs
# between two sets of nodes, and pairs above the diagonal.
_PROOFS: tuple[tuple[int | tuple[int, int], int, int, str, bool], ...] = (
    (10, 80, 12, "dense", False),
    (5, 4, 40, "sparse", True),
    (70_000, 9, 700, "sparse", False),
    ((40, 900), 30, 500, "sparse", False),
    (300, 40, 300, "dense", True),
)
_ATTEMPTS = 3

_lock = threading.RLock()
# Without this, a process that is forked while another thread draws would wait forever.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def rows() -> list[Row]:
    """Return the rows of the patch table."""
    return replacing_utils(negative_sampling, structured_negative_sampling)


def negative_sampling(
    theirs: Function,
    edge_index: Any,
    num_nodes: Any = None,
    num_neg_samples: Any = None,
    method: Any = "sparse",
    force_undirected: Any = False,
) -> Tensor | None:
    """Draws pairs of nodes without an edge; None if PyG's code has to run."""
    if not _are_edges(edge_index) or type(method) is not str or type(force_undirected) is not bool:
        return None
    if method not in ("sparse", "dense"):
        return None
    num_pairs = _num_pairs(theirs, edge_index.size(1), num_neg_samples)
    generator = _untouched_generator()
    if num_pairs is None or generator is None or not _agrees(theirs, *_parts(theirs)):
        return None
    return _drawn(generator, edge_index, num_nodes, num_pairs, force_undirected)


def structured_negative_sampling(
    theirs: Function, edge_index: Any, num_nodes: Any = None, contains_neg_self_loops: Any = True
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Draws another second node for every edge; None if PyG's code has to run."""
    if not _are_edges(edge_index) or type(contains_neg_self_loops) is not bool:
        return None
    if torch.get_default_device().type != "cpu" or not _structured_agrees(theirs):
        return None
    return _redrawn(edge_index, num_nodes, contains_neg_self_loops)


def _are_edges(edge_index: Any) -> bool:
    return (
        serves_functions()
        and are_numbers(edge_index)
        and edge_index.dim() == 2
        and edge_index.size(0) == 2
        and edge_index.size(1) > 0
    )


def _num_pairs(theirs: Function, num_edges: int, argument: Any) -> int | None:
    """Return the number of pairs to draw; None if PyG's code has to interpret the argument."""
    if argument is None:
        return num_edges
    if type(argument) is float and math.isfinite(argument) and "float" in theirs.__code__.co_names:
        return int(argument * num_edges)
    return argument if type(argument) is int else None


def _drawn(
    generator: random.Random, edge_index: Tensor, num_nodes: Any, num_pairs: int, undirected: bool
) -> Tensor:
    """Draws pairs without an edge, as PyG's function does.

    Args:
        generator: The generator, which is advanced.
        edge_index: [2, E].
        num_nodes: The number of nodes, or of each row's nodes; None means one more than the largest number.
        num_pairs: The number of pairs.
        undirected: Whether each pair counts in both directions.

    Raises:
        Leave: Nothing was drawn, and PyG's code has to run.
    """
    if type(num_nodes) in (tuple, list):
        need(len(num_nodes) == 2)
        rows, cols = num_nodes
        kind = Kind.ALL
    else:
        rows = cols = _nodes_of(edge_index) if num_nodes is None else num_nodes
        kind = Kind.UPPER if undirected else Kind.NO_LOOPS
    pairs, count = _pairs(edge_index, kind, rows, cols)
    if count >= pairs.population:
        return edge_index.new_empty((2, 0))
    if kind is Kind.UPPER:
        num_pairs //= 2
    need(num_pairs > 0)
    size = int(1.1 * num_pairs / (1.0 - count / pairs.population))
    with _lock:
        for _ in range(_ATTEMPTS):
            before = version, words, gauss = generator.getstate()
            state = torch.tensor(words, dtype=torch.int64, device=CPU)
            out = pairs.draw(state, size, num_pairs)
            # If another thread has drawn meanwhile, draw again, because its numbers must not be used twice.
            if generator.getstate() == before:
                generator.setstate((version, tuple(state.tolist()), gauss))
                return out
    raise Leave("other threads draw from Python's generator all the time")


def _redrawn(
    edge_index: Tensor, num_nodes: Any, loops: bool, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Draws another second node for every edge, as PyG's function does.

    Args:
        edge_index: [2, E].
        num_nodes: The number of nodes; None means one more than the largest number.
        loops: Whether the other node may be the first one.
        generator: The generator; None means torch's own.

    Raises:
        Leave: Nothing was drawn, and PyG's code has to run.
    """
    nodes = _nodes_of(edge_index) if num_nodes is None else num_nodes
    pairs, _ = _pairs(edge_index, Kind.ALL, nodes, nodes, not loops)

    def drawn(count: int) -> Tensor:
        return torch.randint(nodes, (count,), dtype=torch.int64, device=CPU, generator=generator)

    other = drawn(edge_index.size(1))
    rest = pairs.edges_with(other)
    while rest.numel() > 0:
        again = drawn(rest.size(0))
        other[rest] = again
        rest = pairs.edges_with(again, rest)
    return edge_index[0], edge_index[1], other


def _pairs(edge_index: Tensor, kind: Kind, rows: Any, cols: Any, loops: bool = False) -> tuple[Pairs, int]:
    """Return the set of candidate pairs of a kind, and how many edges it contains."""
    need(type(rows) is int and type(cols) is int and min(rows, cols) > 0 and rows * cols < LARGEST)
    pairs = Pairs(edge_index, kind, rows, cols, loops)
    count = pairs.count()
    if count is None:
        raise Leave(OUT_OF_RANGE)
    return pairs, count


def _nodes_of(edge_index: Tensor) -> int:
    return int(edge_index.max()) + 1


def _untouched_generator() -> random.Random | None:
    """Return Python's shared generator; None if it or ``random.sample`` was replaced."""
    shared: Any = getattr(random, "_inst", None)
    method: Any = random.sample
    if type(shared) is not random.Random or getattr(method, "__self__", None) is not shared:
        return None
    if method.__func__ is not random.Random.sample or vars(shared).keys() != {"gauss_next"}:
        return None
    return shared


def _parts(theirs: Function) -> tuple[Any, ...]:
    """Return the functions that PyG's function and Python's generator call."""
    return (
        *(theirs.__globals__.get(name) for name in _HELPERS),
        *(getattr(random.Random, name) for name in _METHODS),
    )


@lru_cache
def _agrees(theirs: Function, *parts: Any) -> bool:
    """Return whether onehop draws the same as PyG's function; tested once for each set of ``parts``."""
    if not _are_own(theirs, *parts[: len(_HELPERS)]):
        return False
    one, other = random.Random(_SEED), random.Random(_SEED)
    names = {**theirs.__globals__, "random": other}
    names["sample"] = _within(names, names["sample"])
    sampling = _within(names, theirs)
    for nodes, edges, num_pairs, method, undirected in _PROOFS:
        edge_index = _proof_edges(edges, nodes)
        expected = sampling(edge_index, nodes, num_pairs, method, undirected)
        if not torch.equal(_drawn(one, edge_index, nodes, num_pairs, undirected), expected):
            return False
    return one.getstate() == other.getstate()


@lru_cache
def _structured_agrees(theirs: Function) -> bool:
    """Return whether onehop draws the same as PyG's structured function; tested once."""
    if not _are_own(theirs):
        return False
    one, other = (torch.Generator(CPU).manual_seed(_SEED) for _ in range(2))

    def randint(*args: Any, **kwargs: Any) -> Tensor:
        return torch.randint(*args, **kwargs, device=CPU, generator=other)

    torch_with_generator = SimpleNamespace(**{**vars(torch), "randint": randint})
    sampling = _within({**theirs.__globals__, "torch": torch_with_generator}, theirs)
    edge_index = _proof_edges(30, 11)
    for nodes, loops in ((None, True), (12, False)):
        expected = sampling(edge_index, nodes, loops)
        redrawn = _redrawn(edge_index, nodes, loops, one)
        if not all(map(torch.equal, redrawn, expected)):
            return False
    return torch.equal(one.get_state(), other.get_state())


def _are_own(*functions: Any) -> bool:
    """Return whether these functions are defined in PyG's module, and not replaced or wrapped."""
    return all(type(f) is FunctionType and f.__globals__ is vars(theirs_module) for f in functions)


def _within(names: dict[str, Any], function: Function) -> Function:
    """Return a copy of the function with other globals."""
    return FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )


def _proof_edges(edges: int, nodes: int | tuple[int, int]) -> Tensor:
    """Return edges between these nodes, [2, edges]; two of them are repeated, and some are self loops."""
    rows, cols = (nodes, nodes) if isinstance(nodes, int) else nodes
    number = torch.arange(edges, device=CPU) % (edges - 2)
    return torch.stack([number % rows, (number // rows + 2 * number) % cols])
