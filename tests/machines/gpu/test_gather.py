"""Sectors that a GPU fetches, beside a cache that is a dictionary."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from onehop import ArgumentError, Graph
from onehop.machines import gpu
from tests.machines.gpu.naive import fetched

# Of everything: 32 warps, 64 sectors.
SMALL = gpu.Gpu("small", 2, 16, 64 * 32, 4, 32, 100.0)


def graph_of(rows, num_src):
    rowptr = np.cumsum([0, *(len(row) for row in rows)])
    col = np.array([u for row in rows for u in row], dtype=np.int64)
    return Graph.from_csr(torch.from_numpy(rowptr), torch.from_numpy(col), num_src)


def random_rows(seed):
    """Many short rows, some empty ones, and a hub of more than two steps of 32."""
    rng = np.random.default_rng(seed)
    degrees = rng.choice([0, 0, 1, 2, 5, 30, 33, 80], size=90)
    return [sorted(rng.integers(0, 50, size=degree).tolist()) for degree in degrees]


@pytest.mark.parametrize("mapping", gpu.MAPPINGS)
@pytest.mark.parametrize(
    ("row_bytes", "load_bytes", "block_warps", "occupancy", "passes", "size", "ways"),
    [
        (32, 16, 4, 1.0, 1, 16, 4),
        (128, 4, 4, 1.0, 2, 64, 64),
        (256, 4, 4, 0.5, 3, 64, 16),
        (256, 16, 3, 1.0, 1, 200, 16),
        (512, 8, 1, 0.1, 2, 333, 7),
        (512, 16, 4, 0.01, 1, 96, 96),
    ],
)
def test_as_many_as_a_cache_that_is_a_dictionary_fetches(
    mapping, row_bytes, load_bytes, block_warps, occupancy, passes, size, ways
):
    rows = random_rows(row_bytes + size)
    kernel = gpu.Kernel(mapping, load_bytes, block_warps, occupancy, passes)
    machine = replace(SMALL, l2_bytes=size * 32, l2_ways=ways)
    found = gpu.gather(graph_of(rows, 50), row_bytes, kernel, machine)
    wanted = fetched(
        rows, mapping, row_bytes, load_bytes, block_warps, int(32 * occupancy), passes, size, ways
    )
    edges = passes * sum(len(row) for row in rows)
    assert found == gpu.Gathered(wanted, edges * row_bytes // 32, 50 * row_bytes // 32)
    assert found.distinct < found.fetched < found.read


@pytest.mark.parametrize("mapping", gpu.MAPPINGS)
@pytest.mark.parametrize(
    ("rows", "size", "wanted"),
    [
        ([], 8, 0),
        ([[]], 8, 0),
        ([[], [], [], [], [], [0]], 8, 4),
        ([[2]], 8, 4),
        ([[2, 2]], 8, 4),
        # No room at all: every sector that is read.
        ([[0, 1], [1]], 0, 12),
        # Room for a sector: none is there when it is read again.
        ([[0, 1], [2, 0]], 1, 16),
        # Room for all.
        ([[0, 1], [1, 2], [2, 0]], 12, 12),
    ],
)
def test_by_hand(mapping, rows, size, wanted):
    machine = replace(SMALL, l2_bytes=size * 32 + 31, l2_ways=100)
    assert gpu.gather(graph_of(rows, 3), 128, gpu.Kernel(mapping), machine).fetched == wanted
    if size == 0:
        twice = gpu.gather(graph_of(rows, 3), 128, gpu.Kernel(mapping, passes=2), machine)
        assert twice.fetched == twice.read == 2 * wanted


def test_side_by_side_a_cache_needs_room_for_a_sector_of_each_row_only():
    # Two warps read the same two rows of four sectors, in opposite orders; there is room for three sectors.
    graph = graph_of([[0, 1], [1, 0]], 2)
    machine = replace(SMALL, l2_bytes=3 * 32, l2_ways=3)
    counts = [gpu.gather(graph, 128, gpu.Kernel(mapping), machine).fetched for mapping in gpu.MAPPINGS]
    assert counts == [8, 16]


def test_loads_of_neighbours_may_have_any_width_and_tiles_of_features_not():
    graph = graph_of(random_rows(1), 50)

    def counts(mapping):
        return {
            gpu.gather(graph, 512, gpu.Kernel(mapping, load_bytes), SMALL).fetched
            for load_bytes in (4, 8, 16)
        }

    assert len(counts("neighbour")) == 1
    assert len(counts("feature")) == 3


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"mapping": "edge"}, "mapping: expected one of neighbour, feature, got 'edge'"),
        ({"load_bytes": 2}, "load_bytes: expected 4, 8 or 16, got 2"),
        ({"block_warps": 0}, "block_warps: expected an integer of at least 1, got 0"),
        ({"occupancy": 0.0}, "occupancy: expected a positive number, got 0.0"),
        ({"occupancy": 1.5}, "occupancy: expected at most 1, got 1.5"),
    ],
)
def test_wrong_kernels(wrong, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        gpu.Kernel(**{"mapping": "feature", **wrong})


@pytest.mark.parametrize(
    ("row_bytes", "sentence"),
    [
        (0, "row_bytes: expected an integer of at least 1, got 0"),
        (48, "row_bytes: expected a multiple of 32, the sector, got 48"),
        (640, "row_bytes: expected a multiple of 512, the tile that a warp reads at once, got 640"),
        (2**36, "row_bytes: expected at most 2\\^31 sectors in all rows, got 2 rows of 2147483648"),
    ],
)
def test_wrong_rows(row_bytes, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        gpu.gather(graph_of([[0, 1], [1]], 2), row_bytes, gpu.Kernel("feature"), SMALL)
