"""Copies of cached tensors belong to their users, and are recognised until somebody writes to them."""

import copy
import gc
import pickle

import pytest
import torch

from onehop.graph.lending import lend, note_copy, original, read_address, source_of

WRITES = {
    "in place": lambda t: t.add_(1),
    "a view": lambda t: t[1].add_(1),
    "data": lambda t: t.data.add_(1),
    "detached": lambda t: t.detach().add_(1),
    "numpy": lambda t: t.numpy().__iadd__(1),
    "DLPack": lambda t: torch.from_dlpack(t).add_(1),
    "storage": lambda t: t.untyped_storage().fill_(1),
    "parameter": lambda t: torch.nn.Parameter(t).data.add_(1),
    "out": lambda t: torch.add(t, 1, out=t),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_write_reaches_one_copy_alone(write):
    kept = torch.arange(12.0).view(3, 4).clone()
    one, other = lend(kept), lend(kept)
    assert original(one) is original(other) is kept
    WRITES[write](one)
    assert not torch.equal(one, kept)
    assert original(one) is one
    assert original(other) is kept
    assert torch.equal(other, torch.arange(12.0).view(3, 4))
    assert torch.equal(lend(kept), other)


def test_what_stays_when_the_kept_tensor_goes():
    kept = torch.arange(12)
    copied = lend(kept)
    del kept
    gc.collect()
    assert original(copied) is copied
    assert copied.tolist() == list(range(12))


def test_parts_and_other_shapes_are_not_the_kept_tensor():
    kept = torch.arange(12).view(2, 6).clone()
    copied = lend(kept)
    for part in (
        copied[0],
        copied[1],
        copied[:, 1:],
        copied.t(),
        copied.view(3, 4),
        copied.view(torch.int32),
    ):
        assert original(part) is part
    assert original(copied.view(2, 6)) is kept
    assert original(copied.detach()) is kept


def test_a_kept_tensor_that_was_read_natively_is_not_taken_for_another():
    kept = torch.arange(12)
    copied = lend(kept)
    kept.data_ptr()
    assert original(copied) is copied
    again = lend(kept)
    assert original(again) is kept
    assert again.tolist() == copied.tolist() == list(range(12))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t)), torch.clone])
def test_copies_of_copies_are_tensors_of_their_own(copied):
    kept = torch.arange(12)
    other = copied(lend(kept))
    other.add_(1)
    assert kept.tolist() == list(range(12))
    assert original(other) is other


@pytest.mark.parametrize("shared", [False, True])
def test_the_address_is_that_of_the_first_entry(shared):
    kept = torch.arange(24).view(2, 3, 4).clone()
    tensor = lend(kept) if shared else kept
    part = tensor[1, 1:]
    assert read_address(part) - read_address(tensor) == 16 * 8
    assert (original(tensor) is kept) is True


def test_a_noted_copy_has_its_source_while_that_exists():
    source = torch.arange(6.0)
    twin, other = source.clone(), source.clone()
    note_copy(twin, source)
    assert source_of(twin) is source
    assert source_of(other) is other
    # The same bytes as other numbers, and a part of them, are other tensors.
    for view in (twin.view(torch.int32), twin[:3], twin.view(2, 3)):
        assert source_of(view) is view
    del source
    gc.collect()
    assert source_of(twin) is twin
