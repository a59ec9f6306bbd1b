"""Threads that patch and restore a thousand times while they run layers."""

import gc
import os
import pkgutil
import threading
import weakref

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.utils as utils
from torch_geometric import nn as gnn

import onehop
from onehop.integrations import session
from onehop.integrations.pyg.hook import wrapped_classes
from onehop.integrations.rows import replaced
from onehop.integrations.torch.products import THEIRS

_THREADS = 4
# In all threads together.
_ROUNDS = 1000 if os.environ.get("ONEHOP_TESTS") == "all" else 60


def _left(names: tuple[str, ...]) -> list[str]:
    """Those dotted names under which there is still a function of the patch."""
    return [name for name in names if replaced(pkgutil.resolve_name(name)) is not None]


@pytest.mark.parametrize("ending", ["leave", "unpatch"])
def test_nothing_is_left(ending: str) -> None:
    torch.manual_seed(0)
    x, edge_index = torch.randn(50, 8), torch.randint(50, (2, 300))
    makers = (gnn.GCNConv, gnn.SAGEConv, gnn.GATConv, gnn.GraphConv)
    layers = [maker(8, 4) for maker in makers]
    with torch.no_grad():
        expected = [layer(x, edge_index) for layer in layers]
    with onehop.patch():
        names = tuple(name for name in onehop.patched() if name.startswith("torch_geometric."))
        assert len(_left(names)) > 100
    lived: list[weakref.ref[torch.nn.Module]] = []
    errors: list[BaseException] = []

    def work(place: int) -> None:
        try:
            for number in range(_ROUNDS // _THREADS):
                handle = onehop.patch(only=None if number % 2 else "pyg")
                layer = makers[(place + number) % len(makers)](8, 4)
                layer.load_state_dict(layers[(place + number) % len(makers)].state_dict())
                lived.append(weakref.ref(layer))
                out = layer(x, edge_index)
                torch.testing.assert_close(out.detach(), expected[(place + number) % len(makers)])
                out.sum().backward()
                if ending == "leave":
                    handle.__exit__(None, None, None)
                else:
                    onehop.unpatch()
        except BaseException as error:  # the test raises it
            errors.append(error)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(_THREADS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert errors == []
    assert session.now == session.Session()
    assert onehop.patched() == ()
    assert wrapped_classes() == []
    assert _left(names) == []
    assert F.linear is THEIRS
    assert replaced(utils.softmax) is None
    onehop.clear_cache()
    gc.collect()
    assert len(lived) == _ROUNDS // _THREADS * _THREADS
    assert [each for each in lived if each() is not None] == []
    with torch.no_grad():
        torch.testing.assert_close([layer(x, edge_index) for layer in layers], expected)
