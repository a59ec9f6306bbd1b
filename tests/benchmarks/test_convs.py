"""The layers that are measured: that all of PyG's are there, and give the same results with the patch."""

import torch
from torch_geometric.nn import conv

import onehop
from benchmarks.layers import convs

NODES, WIDTH = 40, 8


def test_every_layer_of_pyg_is_measured_or_has_a_reason():
    assert set(convs.CONVS) | set(convs.NOT_MEASURED) == set(conv.__all__)
    assert not set(convs.CONVS) & set(convs.NOT_MEASURED)


def test_every_layer_gives_pygs_results_and_a_gradient():
    edges = torch.randint(NODES, (2, 300), generator=torch.Generator().manual_seed(0))
    wrong = []
    for name, each in {**convs.CONVS, **convs.MORE}.items():
        on = convs.given(NODES, edges, WIDTH)
        layer = each.make(WIDTH, on)
        kinds = {type(module).__name__ for module in layer.modules()}
        assert name in kinds or name in convs.MORE, f"{name}: {kinds}"
        found = []
        for patched in (False, True):
            if patched:
                onehop.patch()
            torch.manual_seed(1)
            out = each.call(layer, on)
            found.append((out.detach(), *torch.autograd.grad(out.square().mean(), [on.x])))
            onehop.unpatch()
        if not all(torch.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(*found, strict=True)):
            wrong.append(name)
    onehop.clear_cache()
    assert not wrong
