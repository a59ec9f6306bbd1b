"""Trains models whose tensors lie on a device that is not the CPU, with their sums on a simulated machine.

A program of its own, for a process can have one such device.
"""

import sys

import torch
from torch import Tensor
from torch_geometric.nn import GATConv, GATv2Conv

import onehop
from onehop.machines.pim import Machine
from tests.far_device import far, is_far, move, near
from tests.machines.models import SUMS
from tests.machines.pim.machines import small


def gradients(name: str, away: bool) -> tuple[list[Tensor], int]:
    """The parameters' gradients, and how many sums ran on the machine."""
    torch.manual_seed(0)
    model, x, edges = SUMS[name](), torch.randn(40, 6), torch.randint(0, 40, (2, 300))
    if away:
        move(model)
        x, edges = far(x), far(edges)
    with onehop.patch(machine=Machine(small()), associate=False) as patch:
        out = model(x, edges)
        assert is_far(out) == away
        (out * out).sum().backward()
        ran = len(patch.report.entries)
    return [near(parameter.grad) for parameter in model.parameters()], ran


def check_refusals() -> None:
    """What machines do not do is left to the host's code, which does it where the tensors are."""
    x, edges = far(torch.randn(40, 6)), far(torch.randint(0, 40, (2, 9)))
    for layer in (GATConv(6, 4), GATv2Conv(6, 4)):
        move(layer)
        with onehop.patch(machine=Machine(small())) as patch:
            row = onehop.explain(layer, x, edges).layers[0]
            assert patch.report.entries == []
        assert not row.fast
        assert "on far:0 have no backend: cpu runs on CPU tensors" in row.reason, row.reason


for name in SUMS:
    (ours, ran), (theirs, expected) = gradients(name, away=True), gradients(name, away=False)
    assert ran == expected >= 2, (ran, expected)
    # Weights of edges there, scales of nodes here: each with a plan, and so an order of sums, of its own.
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    sys.stdout.write(f"{name} trained\n")
check_refusals()
sys.stdout.write("the rest refused\n")
