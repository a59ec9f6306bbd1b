"""Scores of one head and one relation against many tails by ``DistMult`` and ``ComplEx``, against PyG."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import ComplEx, DistMult, RotatE, TransE

import onehop
from onehop.integrations.pyg import decoders
from tests.integrations.same import BITS, learned, noted, same, same_error

NODES, RELATIONS, WIDTH = 20, 3, 5
SERVED = [DistMult, ComplEx]

pytestmark = pytest.mark.usefixtures("in_doubles")


@pytest.fixture(autouse=True)
def _at_every_size(bounds) -> None:
    bounds(few_work=0)


@pytest.fixture
def calls(monkeypatch) -> list[int]:
    """The number of edges of every call of ``sddmm`` since."""
    return noted(monkeypatch, decoders, "sddmm", lambda graph, *_: graph.num_edges)


@pytest.fixture
def tails() -> Tensor:
    return torch.tensor([3, 7, 7, 0, 19, 4, 7])


def triplets(tails: Tensor, head: int = 4, relation: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    return torch.tensor(head).expand_as(tails), torch.tensor(relation).expand_as(tails), tails


def results(model: torch.nn.Module, *given: Any) -> list[Tensor]:
    """The scores and the gradients to all embeddings."""
    out, *grads = learned(model(*given), model)
    return [out, *(each.to_dense() for each in grads)]


@pytest.mark.parametrize("kind", SERVED)
def test_scores_and_gradients(kind, tails, calls):
    model = kind(NODES, RELATIONS, WIDTH)
    same(lambda: results(model, *triplets(tails)), rtol=1e-12, times=1)
    assert calls == [len(tails)] * 2 * (1 + (kind is ComplEx))


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("kind", [*SERVED, TransE, RotatE])
def test_evaluation(kind, sparse, tails, calls):
    model = kind(NODES, RELATIONS, WIDTH, sparse=sparse)
    given = tails, torch.arange(7) % RELATIONS, tails.flip(0)
    expected = model.test(*given, batch_size=9, log=False)
    with onehop.patch():
        found = model.test(*given, batch_size=9, log=False)
    assert found == pytest.approx(expected, rel=1e-12)
    assert bool(calls) is (kind in SERVED)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(mode, tails, calls):
    model = DistMult(NODES, RELATIONS, WIDTH)
    same(mode()(lambda: model(*triplets(tails + 0))))
    assert calls


def _with(model: DistMult, change: Callable[[Any], object]) -> DistMult:
    change(model)
    return model


def _plain() -> DistMult:
    return DistMult(NODES, RELATIONS, WIDTH)


def _padded(model: DistMult) -> None:
    model.node_emb.padding_idx = 7


def _bounded(model: DistMult) -> None:
    model.rel_emb.max_norm = 0.1


LEFT: dict[str, tuple[Callable[[], DistMult], Callable[[Tensor], tuple[Tensor, ...]]]] = {
    "triplets": (_plain, lambda at: (at, at % RELATIONS, at.flip(0))),
    "several relations": (_plain, lambda at: (triplets(at)[0], at % RELATIONS, at)),
    "one tail for all": (_plain, lambda at: (*triplets(at)[:2], at[:1])),
    "int32": (_plain, lambda at: triplets(at.int())),
    "none": (_plain, lambda at: triplets(at[:0])),
    "a hook": (lambda: _with(_plain(), lambda m: m.rel_emb.register_forward_hook(lambda *_: None)), triplets),
    "padding": (lambda: _with(_plain(), _padded), triplets),
    "bounded rows": (lambda: _with(_plain(), _bounded), triplets),
    "sparse gradients": (lambda: DistMult(NODES, RELATIONS, WIDTH, sparse=True), triplets),
    "16 bits": (lambda: _plain().bfloat16(), triplets),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_to_pyg(name, tails, calls):
    make, change = LEFT[name]
    model, given = make(), change(tails)
    same(lambda: results(model, *given), rtol=1e-12, indexing=False)
    assert not calls


@pytest.mark.parametrize("options", [{"only": ["GCNConv"]}, {"backend": "reference"}])
def test_a_patch_of_something_else_leaves_them_to_pyg(options, tails, calls):
    same(lambda: _plain()(*triplets(tails)), **options)
    assert not calls


CONTEXTS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "autocast": lambda model, at: torch.autocast("cpu", torch.bfloat16)(model)(*triplets(at)),
    "vmap": lambda model, at: torch.vmap(lambda at: model(*triplets(at)))(at.expand(2, -1)),
}


@pytest.mark.parametrize("context", CONTEXTS)
def test_contexts_left_to_pyg(context, tails, calls):
    model = _plain().float()
    same(lambda: CONTEXTS[context](model, tails), **BITS)
    assert not calls


@pytest.mark.parametrize("few", [True, False])
def test_few_tails_are_left_to_pyg(few, tails, calls, bounds):
    bounds(few_work=len(tails) * WIDTH + few)
    with onehop.patch():
        _plain()(*triplets(tails))
    assert bool(calls) is not few


@pytest.mark.parametrize("wrong", ["head", "relation", "tail", "negative"])
def test_errors_are_those_of_pyg(wrong, tails):
    given = triplets(tails, NODES if wrong == "head" else 1, RELATIONS if wrong == "relation" else 1)
    if wrong in ("tail", "negative"):
        tails[2] = NODES if wrong == "tail" else -1
    same_error(lambda: _plain()(*given))
