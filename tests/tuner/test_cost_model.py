"""What the model makes of a plan, on a machine that is made up."""

import dataclasses

import pytest
import torch

import onehop
from onehop.plans import CpuPlan
from onehop.tuner.cost_model import CostModel
from onehop.tuner.speeds import PREFETCHES, ROW_BYTES, Speeds

LINE_BYTES, SETS = 64, 64
CACHE_BYTES = 1 << 15


def model(width, nodes=1000, edges=50_000):
    """Rows come 20 times as fast from the one cache, and twice as fast with each line less."""
    near = tuple((bytes_ / 64 * 1e-9,) * len(PREFETCHES) for bytes_ in ROW_BYTES)
    far = tuple(tuple(20 * time for time in times) for times in near)
    generator = torch.Generator().manual_seed(0)
    graph = onehop.Graph.from_edge_index(torch.randint(nodes, (2, edges), generator=generator), nodes)
    return CostModel(graph, False, width, 4, Speeds((CACHE_BYTES,), 2, (near, far), 1e10), 64, False)


@pytest.mark.parametrize("width", [16, 48, 96, 128, 256, 320])
@pytest.mark.parametrize("tile", [16, 32, 64])
def test_a_tile_falls_onto_the_sets_that_its_lines_have(width, tile):
    tile = min(tile, width)
    lines_of_row, lines = width * 4 // LINE_BYTES, tile * 4 // LINE_BYTES
    sets = {(row * lines_of_row + line) % SETS for row in range(1000) for line in range(lines)}
    assert model(width)._sets_share(tile * 4) == pytest.approx(len(sets) / SETS)


def test_rows_that_are_no_whole_lines_fall_onto_all_sets():
    assert model(40)._sets_share(64) == 1.0


def test_a_tile_of_few_lines_is_no_gain_where_rows_begin_at_the_same_sets():
    def gain(width):
        # A third of a row of 6 lines, a quarter of one of 8: either tile has 2 lines.
        whole = CpuPlan(threads=2)
        made = model(width, nodes=200)
        return made.predict(whole) / made.predict(dataclasses.replace(whole, column_tile=32))

    assert gain(96) > 1.2 * gain(128)


def test_what_one_thread_reads_next_is_near_however_the_work_is_cut():
    made = model(16, nodes=400)
    times = [made.predict(CpuPlan(edges_per_item=size, threads=2)) for size in (512, 4096)]
    assert times[0] == pytest.approx(times[1], rel=0.1)
