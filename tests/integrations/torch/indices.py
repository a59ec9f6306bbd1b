"""Indices and numbers for tests of torch's gathers and scatters."""

import pytest
import torch
from torch import Tensor

import onehop
from onehop.integrations.torch import indexing
from onehop.ops import masked

ROWS, ENTRIES = 11, 60
ANY = torch.randint(0, ROWS, (ENTRIES,), generator=torch.Generator().manual_seed(0))
# Rows 3 and 10 have no entry, so that scatters leave them alone.
ANY[ANY == 3] = 4
ANY[ANY == 10] = 9
SORTED = ANY.sort().values
EDGES = torch.stack([SORTED, ANY])
ODD = torch.arange(ROWS) % 2 == 1
LENGTHS = torch.bincount(SORTED, minlength=ROWS)


@pytest.fixture(autouse=True)
def _forgets():
    """The indices live as long as this module, and so would what is kept of them."""
    yield
    onehop.clear_cache()


def numbers(*shape: int, seed: int = 1) -> Tensor:
    """Whole numbers, so that extrema tie, also at 0."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-3, 3, shape, generator=generator).double()


@pytest.fixture
def served(monkeypatch) -> list[str]:
    """Has an entry for each call that onehop runs."""
    found: list[str] = []
    for owner, name, what in (
        (indexing, "taken", "gathered"),
        (indexing, "added", "scattered"),
        (indexing, "extremum", "scattered"),
        (indexing, "scattered", "scattered"),
        (indexing, "segmented", "scattered"),
        (masked, "taken", "taken"),
    ):
        real = getattr(owner, name)

        def call(*args, real=real, what=what, **kwargs):
            # Behind it, because a number that is out of range shows while it is used.
            out = real(*args, **kwargs)
            found.append(what)
            return out

        monkeypatch.setattr(owner, name, call)
    return found


def entries(index: Tensor, like: Tensor, dim: int = 0) -> Tensor:
    """An index of rows along a dimension, expanded to an index of entries."""
    shape = list(like.shape)
    shape[dim] = -1
    return index.view(-1, *[1] * (like.dim() - dim - 1)).expand(shape)


def columns(index: Tensor, *shape: int) -> Tensor:
    return entries(index, torch.empty(0, *shape))
