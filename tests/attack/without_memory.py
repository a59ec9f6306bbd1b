"""A program: messages of users' own, whose gradients may be zeros without memory, with and without the patch.

Arguments: the operations. It ends with an error where one differs, and with a fault where native code reads
zeros without memory.
"""

import sys

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

import onehop
from onehop import thresholds

torch.manual_seed(0)
X, Y, EDGES = torch.randn(200, 8), torch.randn(200, 8), torch.randint(0, 200, (2, 3000))


class Own(MessagePassing):
    """Its message is an expression of x_j and y_i."""

    def __init__(self, operation: str) -> None:
        super().__init__()
        self.operation = eval(f"lambda x_j, y_i: {operation}")

    def forward(self, x: Tensor, y: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, y=(y, y))

    def message(self, x_j: Tensor, y_i: Tensor) -> Tensor:
        return self.operation(x_j, y_i)


def gradients(operation: str) -> list[Tensor]:
    x, y = X.clone().requires_grad_(), Y.clone().requires_grad_()
    out = Own(operation)(x, y, EDGES)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), (x, y))]


for each in sys.argv[1:]:
    expected = gradients(each)
    with onehop.patch(), thresholds.lifted():
        for least in (thresholds.now.cached_bytes, 0):
            with thresholds.changed(cached_bytes=least):
                for mine, theirs in zip(gradients(each), expected, strict=True):
                    told = f"{each}, cached_bytes={least}"
                    torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3, equal_nan=True, msg=told)
