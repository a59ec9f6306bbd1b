"""The linear step of layers whose order onehop chooses: PyG's numbers, whatever the blocks."""

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GCNConv, GraphConv, SAGEConv

import onehop
from onehop.integrations.pyg.associations import order
from onehop.integrations.pyg.associations.product import prefix_product, product

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
    wanted = [t for t in operands if t is not None]
    out, expected = product(*operands), formula(*operands)
    torch.testing.assert_close(out, expected)
    upstream = torch.randn_like(expected)
    found = torch.autograd.grad(out, wanted, upstream)
    for got, want in zip(found, torch.autograd.grad(expected, wanted, upstream), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.usefixtures("blocks_of_four_rows")
def test_first_and_second_derivatives():
    operands = leaves(13, "row")
    assert torch.autograd.gradcheck(product, operands)
    assert torch.autograd.gradgradcheck(product, operands)


@pytest.mark.usefixtures("blocks_of_four_rows")
def test_columns_that_are_not_contiguous():
    x, weight, _ = leaves(ROWS, "none")
    strided = torch.cat([x, x], 1)[:, ::2]
    (product(strided, weight, None) ** 2).sum().backward()
    found = weight.grad.clone()
    weight.grad = None
    (formula(strided, weight, None) ** 2).sum().backward()
    torch.testing.assert_close(found, weight.grad)


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
    layer = make().double()
    edge_index = torch.randint(ROWS, (2, 90), generator=torch.Generator().manual_seed(1))
    width = layer.in_channels[0] if isinstance(layer.in_channels, tuple) else layer.in_channels
    x = torch.randn(ROWS, width, dtype=torch.float64, requires_grad=True)

    def gradients() -> list[Tensor]:
        out = layer(x, edge_index)
        return [out, *torch.autograd.grad((out**2).sum(), [x, *layer.parameters()])]

    expected = gradients()
    with onehop.patch():
        for got, want in zip(gradients(), expected, strict=True):
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("top", [0, 9, ROWS])
@pytest.mark.usefixtures("blocks_of_four_rows")
def test_product_added_to_the_first_rows(top, bias):
    shapes = [(ROWS, IN), (OUT, IN), (top, 4), (OUT, 4), *([(OUT,)] if bias else [])]
    generator = torch.Generator().manual_seed(0)
    operands = [torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes]
    x, weight, extra, extra_weight = operands[:4]
    expected = formula(x, weight, operands[4] if bias else None)
    expected = expected + torch.cat([extra @ extra_weight.t(), expected.new_zeros(ROWS - top, OUT)])
    out = prefix_product(x, weight, extra, extra_weight, operands[4] if bias else None)
    torch.testing.assert_close(out, expected)
    upstream = torch.randn_like(expected)
    found = torch.autograd.grad(out, operands, upstream)
    for got, want in zip(found, torch.autograd.grad(expected, operands, upstream), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("kind", [SAGEConv, GraphConv])
@pytest.mark.parametrize("bipartite", [False, True], ids=["one kind of nodes", "two"])
def test_leaves_without_edges_are_left_out_of_the_product(kind, bipartite, monkeypatch, gradients_of):
    lengths = []
    plain = order.prefix_product

    def spy(own, weight, top, *rest):
        lengths.append(len(top))
        return plain(own, weight, top, *rest)

    monkeypatch.setattr(order, "prefix_product", spy)
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.stack(
        [torch.randint(0, 40, (60,), generator=generator), torch.randint(0, 9, (60,), generator=generator)]
    )
    edge_index[1, 0] = 8
    torch.manual_seed(0)
    layer, x = kind(IN, OUT + 8).double(), torch.randn(40, IN, generator=generator).double()

    def call(layer, x):
        return layer((x, x[:30] * 2) if bipartite else x, edge_index)

    expected = gradients_of(layer, call, x=x)
    with onehop.patch():
        found = gradients_of(layer, call, x=x)
    assert lengths == [9]
    for name, want in expected.items():
        torch.testing.assert_close(found[name], want)


@pytest.mark.usefixtures("blocks_of_four_rows")
def test_derivatives_of_the_product_added_to_the_first_rows():
    generator = torch.Generator().manual_seed(0)
    shapes = [(13, IN), (OUT, IN), (9, 2), (OUT, 2), (OUT,)]
    operands = [torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes]
    assert torch.autograd.gradcheck(prefix_product, operands)
    assert torch.autograd.gradgradcheck(prefix_product, operands)
