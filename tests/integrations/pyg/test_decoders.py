"""``InnerProductDecoder`` and the models that have one, against PyG."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import seed_everything
from torch_geometric.nn import ARGA, ARGVA, GAE, VGAE, GCNConv
from torch_geometric.nn.models import InnerProductDecoder
from torch_geometric.utils import negative_sampling

import onehop
from tests.integrations.same import BITS, learned, same, same_after, same_error

NODES, WIDTH = 20, 5

pytestmark = pytest.mark.usefixtures("in_doubles")


@pytest.fixture
def z() -> Tensor:
    return torch.randn(NODES, WIDTH).requires_grad_()


def decoded(z: Any, edge_index: Any, **options: Any) -> Tensor:
    return InnerProductDecoder()(z, edge_index, **options)


def served() -> bool:
    """Return whether the graph of some edges was made."""
    return onehop.cache_info().entries > 0


def compare(run: Callable[[], Any], ours: bool = True, **more: Any) -> None:
    """A function gives PyG's results, and onehop decodes, or PyG."""
    onehop.clear_cache()
    same(run, **more)
    assert served() is ours


@pytest.mark.parametrize("sigmoid", [True, False])
@pytest.mark.parametrize("kind", ["repeated", "none", "view", "columns of z", "few columns", "one pair"])
def test_products_and_gradients(kind, sigmoid, z, edge_index):
    if kind == "none":
        edge_index = edge_index[:, :0]
    elif kind == "view":
        edge_index = torch.cat([edge_index, edge_index.flip(0)]).view(2, 2, -1)[1, :, ::2]
    elif kind == "one pair":
        # And one edge more.
        edge_index = torch.tensor([[3, 7], [5, 7]]).repeat_interleave(torch.tensor([40, 1]), 1)
    rows = {"columns of z": z.t().contiguous().t()[:, ::2], "few columns": z[:, :0]}.get(kind, z)
    few = edge_index.size(1) * 8 < NODES
    rows = rows.detach().requires_grad_() if rows is not z else z
    compare(lambda: learned(decoded(rows, edge_index, sigmoid=sigmoid), rows), not few, rtol=1e-12)


@pytest.mark.parametrize("model", [GAE, VGAE, ARGA, ARGVA])
def test_losses_of_models(model, edge_index):
    varies = model in (VGAE, ARGVA)
    layers = torch.nn.ModuleList(GCNConv(4, 3) for _ in range(1 + varies))

    class Encoder(torch.nn.Module):
        def forward(self, x: Tensor) -> Any:
            found = [layer(x, edge_index) for layer in layers]
            return found if varies else found[0]

    more = [torch.nn.Linear(3, 1)] if model in (ARGA, ARGVA) else []
    x, autoencoder = torch.randn(NODES, 4), model(Encoder(), *more)

    def loss() -> list[Any]:
        seed_everything(4)
        z = autoencoder.encode(x)
        given = autoencoder.recon_loss(z, edge_index, negative_sampling(edge_index, NODES))
        given = given + autoencoder.recon_loss(z, edge_index) + autoencoder.decode(z, edge_index).sum()
        return learned(given, layers)

    same(loss)


def test_edges_that_change(z, edge_index):
    same_after(lambda: learned(decoded(z, edge_index), z), lambda: edge_index[:, 10:].fill_(4))


def test_inference_mode_and_no_grad(z, edge_index):
    def run() -> list[Tensor]:
        with torch.inference_mode():
            found = [decoded(z, edge_index), decoded(z + 0, edge_index + 0)]
        with torch.no_grad():
            assert not decoded(z, edge_index).requires_grad
        # What inference mode has made can be used outside of it.
        return [*found, *learned(decoded(z, edge_index), z)]

    compare(run)


def test_rows_that_are_written_to_afterwards_are_an_error(z, edge_index):
    rows = z * 1
    with onehop.patch():
        out = decoded(rows, edge_index)
        rows.zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


LEFT: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "int32": lambda z, at: decoded(z, at.int()),
    "negative": lambda z, at: decoded(z, at - NODES),
    "16 bits": lambda z, at: decoded(z.bfloat16(), at),
    "a pair": lambda z, at: decoded(z, (at[0], at[1])),
    "three rows": lambda z, at: decoded(z, torch.cat([at, at[:1]])),
    "a mask": lambda z, at: decoded(z, torch.arange(2 * NODES).view(2, -1) % 3 == 0),
    "three dimensions": lambda z, at: decoded(z.unsqueeze(2), at),
    "vmap": lambda z, at: torch.vmap(lambda each: decoded(each, at))(z.detach().expand(2, -1, -1)),
    "autocast": lambda z, at: torch.autocast("cpu", torch.bfloat16)(decoded)(z.float(), at),
    "many nodes": lambda z, at: decoded(z, at[:, :2]),
}


@pytest.mark.usefixtures("ordinary_bounds")
@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_to_pyg(name, z, edge_index):
    compare(lambda: LEFT[name](z, edge_index), ours=False, **BITS)


@pytest.mark.usefixtures("ordinary_bounds")
@pytest.mark.parametrize("options", [{"only": ["GCNConv"]}, {"backend": "reference"}])
def test_a_patch_of_something_else_leaves_it_to_pyg(options, z, edge_index):
    compare(lambda: decoded(z, edge_index), ours=False, **options)


@pytest.mark.usefixtures("ordinary_bounds")
@pytest.mark.parametrize("few", [True, False])
def test_few_edges_are_left_to_pyg(few, z, edge_index, bounds):
    # So that the edges are few, and not too few at any width.
    bounds(few_edges=8 * edge_index.size(1), few_work=edge_index.size(1) * WIDTH + few)
    compare(lambda: decoded(z, edge_index), ours=not few)


@pytest.mark.parametrize("wrong", ["range", "dtype", "dimensions", "one dimension"])
def test_errors_are_those_of_pyg(wrong, z, edge_index):
    if wrong == "range":
        edge_index[1, 4] = NODES
    elif wrong == "dtype":
        edge_index = edge_index.double()
    elif wrong == "dimensions":
        edge_index = edge_index[0]
    else:
        z = z[:, 0]
    same_error(lambda: decoded(z, edge_index))


def test_a_decoder_of_ones_own_that_inherits(z, edge_index):
    class Scaled(InnerProductDecoder):
        def forward(self, z: Tensor, edge_index: Tensor, sigmoid: bool = True) -> Tensor:
            return 2 * super().forward(z, edge_index, sigmoid)

    compare(lambda: learned(Scaled()(z, edge_index), z))


@pytest.mark.usefixtures("ordinary_bounds")
def test_programs_trace_what_pyg_does(z, edge_index):
    compiled: Callable[..., Tensor] = torch.compile(InnerProductDecoder(), backend="eager", fullgraph=True)
    compare(lambda: learned(compiled(z, edge_index), z), ours=False)
