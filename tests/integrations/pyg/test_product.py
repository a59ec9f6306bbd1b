"""The linear step of layers whose order onehop chooses: PyG's numbers, whatever the blocks."""

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GCNConv, GraphConv, SAGEConv

from onehop.integrations.pyg.associations import order
from onehop.integrations.pyg.associations.product import prefix_product, product
from tests.integrations.same import assert_same, fast, learned, noted, step

ROWS, IN, OUT = 37, 5, 3


@pytest.fixture
def blocks_of_four_rows(bounds):
    bounds(product_block_rows=4)


def leaves(rows: int, bias: str, dtype: torch.dtype = torch.float64) -> list[Tensor | None]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(rows, IN), (OUT, IN), {"none": None, "row": (OUT,), "rows": (rows, OUT)}[bias]]
    return [
        None if shape is None else torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()
        for shape in shapes
    ]


def formula(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x @ weight.t() + (0 if bias is None else bias)


@pytest.mark.parametrize("bias", ["none", "row", "rows"])
@pytest.mark.parametrize("rows", [0, 7, 8, 36, ROWS])
@pytest.mark.usefixtures("blocks_of_four_rows")
def test_values_and_gradients(rows, bias):
    operands = leaves(rows, bias)
    assert_same(learned(product(*operands), operands), learned(formula(*operands), operands))


@pytest.mark.usefixtures("blocks_of_four_rows")
def test_first_and_second_derivatives():
    operands = leaves(13, "row")
    assert torch.autograd.gradcheck(product, operands)
    assert torch.autograd.gradgradcheck(product, operands)


@pytest.mark.usefixtures("blocks_of_four_rows")
def test_columns_that_are_not_contiguous():
    x, weight, _ = leaves(ROWS, "none")
    strided = torch.cat([x, x], 1)[:, ::2]
    assert_same(*(learned(each(strided, weight, None), x, weight) for each in (product, formula)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_bias_of_another_dtype_promotes(dtype):
    x, weight, _ = leaves(ROWS, "none", dtype)
    bias = torch.ones(OUT, dtype=torch.float64)
    torch.testing.assert_close(product(x, weight, bias), formula(x, weight, bias))


@pytest.mark.parametrize(
    "make",
    [
        lambda: GCNConv(IN, 9),
        lambda: SAGEConv(IN, 9),
        lambda: SAGEConv(9, OUT),
        lambda: GraphConv(IN, 9),
        lambda: GraphConv(9, OUT),
    ],
    ids=["GCN", "SAGE, wider", "SAGE, narrower", "Graph, wider", "Graph, narrower"],
)
@pytest.mark.usefixtures("blocks_of_four_rows")
def test_layers_with_blocks(make):
    layer = make()
    edge_index = torch.randint(ROWS, (2, 90), generator=torch.Generator().manual_seed(1))
    width = layer.in_channels[0] if isinstance(layer.in_channels, tuple) else layer.in_channels
    fast(step(layer.double(), torch.randn(ROWS, width).double(), edge_index))


def made(rows: int, top: int, width: int, bias: bool = True) -> list[Tensor]:
    """Operands of a product, and of one that is added to the first rows."""
    shapes = [(rows, IN), (OUT, IN), (top, width), (OUT, width), *([(OUT,)] if bias else [])]
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("top", [0, 9, ROWS])
@pytest.mark.usefixtures("blocks_of_four_rows")
def test_product_added_to_the_first_rows(top, bias):
    operands = made(ROWS, top, 4, bias)
    x, weight, extra, extra_weight, *more = operands
    expected = formula(x, weight, *more or [None])
    expected = expected + torch.cat([extra @ extra_weight.t(), expected.new_zeros(ROWS - top, OUT)])
    out = prefix_product(x, weight, extra, extra_weight, *more or [None])
    assert_same(learned(out, operands), learned(expected, operands))


@pytest.mark.parametrize("kind", [SAGEConv, GraphConv])
@pytest.mark.parametrize("bipartite", [False, True], ids=["one kind of nodes", "two"])
def test_leaves_without_edges_are_left_out_of_the_product(kind, bipartite, monkeypatch):
    lengths = noted(monkeypatch, order, "prefix_product", lambda own, weight, top, *_: len(top))
    generator = torch.Generator().manual_seed(0)
    ends = [torch.randint(0, most, (60,), generator=generator) for most in (40, 9)]
    edge_index = torch.stack(ends)
    edge_index[1, 0] = 8
    layer, x = kind(IN, OUT + 8).double(), torch.randn(40, IN, generator=generator).double()

    def call(layer: torch.nn.Module, x: Tensor) -> Tensor:
        return layer((x, x[:30] * 2) if bipartite else x, edge_index)

    fast(step(call, layer, x))
    assert set(lengths) == {9}


@pytest.mark.usefixtures("blocks_of_four_rows")
def test_derivatives_of_the_product_added_to_the_first_rows():
    operands = made(13, 9, 2)
    assert torch.autograd.gradcheck(prefix_product, operands)
    assert torch.autograd.gradgradcheck(prefix_product, operands)
