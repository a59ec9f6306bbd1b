"""Gradients of weights in float32 are summed in float32, although the features have 16 bits."""

import pytest
import torch

import onehop
from onehop import Graph, reference
from tests.ops.hostile_graphs import HOSTILE


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_they_are_not_rounded_to_16_bits(reduce, dtype):
    edge_index, num_src, num_dst = HOSTILE["random"]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(num_src, 20, generator=generator).to(dtype)
    weight = torch.rand(edge_index.size(1), generator=generator, requires_grad=True)
    out = onehop.aggregate(Graph.from_edge_index(edge_index, num_src), x, weight, reduce)
    grad = torch.randn(out.shape, generator=generator).to(dtype).to(out.dtype)
    (found,) = torch.autograd.grad(out, weight, grad)
    exact = weight.detach().double().requires_grad_()
    again = reference.aggregate(edge_index, x.double(), num_dst, exact, reduce)
    (expected,) = torch.autograd.grad(again, exact, grad.double())
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
