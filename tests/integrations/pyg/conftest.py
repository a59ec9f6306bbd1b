import copy
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import onehop
from onehop.integrations import reports

with warnings.catch_warnings():
    # PyG calls torch.jit.script while it is imported, which newer releases of torch deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric import nn as gnn

# PyG renders the propagate of a class for the aggregation of its first layer, and one for a median cannot
# take sparse matrices. So the first layers here are ordinary, whichever test comes first.
_FIRST = (
    gnn.SAGEConv(1, 1),
    gnn.GraphConv(1, 1),
    gnn.GCNConv(1, 1),
    gnn.GINConv(torch.nn.Identity()),
    gnn.SimpleConv(),
)


_PLAIN = gnn.MessagePassing.propagate, gnn.MessagePassing.edge_updater


@pytest.fixture(autouse=True)
def _unpatched_afterwards() -> Iterator[None]:
    """Each test begins and ends without a patch and with an empty cache."""
    onehop.clear_cache()
    yield
    onehop.unpatch()
    onehop.clear_cache()
    assert onehop.patched() == ()
    assert (gnn.MessagePassing.propagate, gnn.MessagePassing.edge_updater) == _PLAIN


@pytest.fixture
def in_doubles() -> Iterator[None]:
    """Tensors and parameters of float64, with the same numbers in every run."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(default)


def make_edges(num_src: int, num_dst: int, edges: int, seed: int = 0) -> Tensor:
    """Random edges with repeated ones, self loops, and a last node without edges."""
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(0, num_src - 1, (edges,), generator=generator)
    target = torch.randint(0, num_dst - 1, (edges,), generator=generator)
    edge_index = torch.stack([source, target])
    edge_index[:, 1] = edge_index[:, 0]
    edge_index[:, 2:4] = 3
    return edge_index


@pytest.fixture
def edges() -> Callable[..., Tensor]:
    return make_edges


@pytest.fixture
def edge_index() -> Tensor:
    """[2, 90] over 20 nodes."""
    return make_edges(20, 20, 90)


@pytest.fixture
def x() -> Tensor:
    """[20, 6]: features of its nodes."""
    return torch.randn(20, 6, generator=torch.Generator().manual_seed(5))


@pytest.fixture
def at(edge_index) -> Tensor:
    """[2, E]: rows and columns of the edges' transposed adjacency, each entry once, in order."""
    return edge_index.flip(0).unique(dim=1).contiguous()


@pytest.fixture
def values(at) -> Tensor:
    """[E]: values at these places."""
    return torch.rand(at.size(1), generator=torch.Generator().manual_seed(5), dtype=torch.float64) + 0.1


@pytest.fixture
def took_fast_path() -> Callable[..., list[str | None]]:
    """Calls a function and returns, for each propagation, None or the reason of the refusal."""

    def run(function: Callable[..., object], *args: object, **kwargs: object) -> list[str | None]:
        with reports.recorded() as calls:
            function(*args, **kwargs)
        return [call.reason for call in calls]

    return run


@pytest.fixture
def gradients_of() -> Callable[..., dict[str, Tensor]]:
    """Output and every gradient of a model, by name, on fresh copies of model and operands."""

    def run(model: torch.nn.Module, call: Callable[..., Tensor], **operands: Tensor) -> dict[str, Tensor]:
        model = copy.deepcopy(model)
        leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in operands.items()}
        torch.manual_seed(3)
        out = call(model, **leaves)
        generator = torch.Generator().manual_seed(7)
        pulled = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype)
        (out * pulled).sum().backward()
        found = {"output": out.detach()}
        for name, tensor in [*leaves.items(), *model.named_parameters()]:
            if tensor.grad is not None:
                found[f"gradient of {name}"] = tensor.grad
        return found

    return run
