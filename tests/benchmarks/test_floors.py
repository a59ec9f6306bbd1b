"""Floors of layers with messages: bytes and products, counted by hand for a small graph."""

from collections import Counter

import pytest
import torch

from benchmarks.layers import convs, floors
from onehop.bench.cases import Workload
from onehop.bench.floors import AGGREGATION, DROPOUT, OTHER, PRODUCTS
from onehop.bench.work import EpochWork, Product

WIDTH, NODES, EDGES = 8, 5, 12


class Counting:
    """Takes a second for each byte, and for each operation of a product."""

    def __init__(self) -> None:
        self.work = EpochWork()

    def floor(self, work: EpochWork) -> dict[str, float]:
        self.work = work
        flops = sum(times * product.flops for product, times in work.products.items())
        parts = {AGGREGATION: float(sum(work.gathered.values())), PRODUCTS: float(flops)}
        return {**parts, DROPOUT: 0.0, OTHER: 0.0}


@pytest.fixture
def workload() -> Workload:
    edges = torch.randint(NODES, (2, EDGES), generator=torch.Generator().manual_seed(0))
    return Workload("small", edges, NODES)


def test_the_work_of_layers_and_their_floors(workload):
    assert set(floors.message_works(WIDTH)) <= set(convs.CONVS) | set(convs.MORE)
    on = convs.given(40, torch.arange(400).view(2, 200) % 40, WIDTH)
    found = {name: floors.floor_of(name, on, Counting()) for name in {**convs.CONVS, **convs.MORE}}
    without = {name for name, floor in found.items() if floor is None}
    assert without.isdisjoint({*convs.MORE, "RGCNConv", "HANConv", "HGTConv", "HeteroConv", "PNAConv"})
    assert "GCNConv" in without
    # By relation and end: a linear layer of each, and its two gradients.
    assert found["HeteroConv-SAGE"]["products"] == 3 * 2 * 2 * convs.MANY * 4 * WIDTH * WIDTH


def test_bytes_and_products_of_a_message(workload):
    linear, of_edges = floors.Linear(WIDTH, 3), floors.Linear(4, WIDTH, over_edges=True)
    work = floors.MessageWork(2, 4, (linear, of_edges), features=4)
    roofs = Counting()
    found = floors.message_floor(work, workload, WIDTH, roofs)
    # Six rows an edge, its number three times, its features read twice and their gradient written; the
    # result, its gradient, and the sources'.
    assert found["aggregation"] == EDGES * (6 * 32 + 12 + 3 * 16) + 3 * NODES * 32
    assert roofs.work.products == Counter(
        [
            *(Product(NODES, WIDTH, 3), Product(3, NODES, WIDTH), Product(NODES, 3, WIDTH)),
            *(Product(EDGES, 4, WIDTH), Product(WIDTH, EDGES, 4), Product(EDGES, WIDTH, 4)),
        ]
    )
    assert found["products"] == 3 * 2 * (NODES * WIDTH * 3 + EDGES * 4 * WIDTH)
    assert found["total"] == found["aggregation"] + found["products"]


def test_relations_multiply_pairs_of_a_type_and_a_node(workload):
    types = torch.arange(EDGES) % 2
    kinds = {(int(t), int(n)) for t, n in zip(types.tolist(), workload.edge_index[0].tolist(), strict=True)}
    others = {(int(t), int(n)) for t, n in zip(types.tolist(), workload.edge_index[1].tolist(), strict=True)}
    assert floors.fewest_pairs(workload, types) == min(len(kinds), len(others))
    found = floors.sums_floor(workload, WIDTH, {floors.Linear(WIDTH, WIDTH): 7}, Counting())
    assert found["aggregation"] == 2 * (EDGES * 36 + NODES * 32)
    assert found["products"] == 3 * 2 * 7 * WIDTH * WIDTH
