"""Messages that subtract destinations' features (LEConv's), also where the two sides do not match."""

import pytest
import torch
from torch_geometric import nn as gnn

from tests.integrations.same import SINGLE, fast, same, step

FITTING = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))
SUBTRAHENDS = {
    "double": FITTING.double(),
    "integer": FITTING.mul(8).long(),
    "one_column": FITTING[:, :1].clone(),
    "two_rows_apart": FITTING.repeat_interleave(2, 0)[::2],
    "sparse_columns": FITTING.repeat_interleave(2, 1)[:, ::2],
    "parameter": torch.nn.Parameter(FITTING.clone()),
}


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
@pytest.mark.parametrize("name", SUBTRAHENDS)
def test_any_pair_of_sides_gives_pygs_result(name, reduce, edge_index):
    layer = gnn.LEConv(4, 4, aggr=reduce)
    minuend = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    weight = torch.rand(90, generator=torch.Generator().manual_seed(2))

    subtrahend = SUBTRAHENDS[name]
    same(
        lambda: layer.propagate(edge_index, a=minuend, b=subtrahend, edge_weight=weight, size=None), **SINGLE
    )


@pytest.mark.parametrize("rows", [19, 21])
def test_as_many_rows_come_out_as_are_subtracted(rows, edge_index):
    layer, subtrahend = gnn.LEConv(4, 4), torch.ones(rows, 4)

    def difference():
        return layer.propagate(edge_index, a=FITTING, b=subtrahend, edge_weight=None, size=None)

    assert difference().shape == (rows, 4)
    same(difference, **SINGLE)


def test_what_fits_takes_the_fast_path(edge_index):
    fast(step(gnn.LEConv(4, 4), FITTING, edge_index), **SINGLE)
