"""The patch's state: one frozen session, replaced as a whole."""

import dataclasses

import pytest
import torch
from torch_geometric import nn as gnn

import onehop
from onehop.integrations import session
from onehop.integrations.session import Session
from onehop.machines import pim


@pytest.fixture(autouse=True)
def _unpatched_afterwards():
    yield
    onehop.unpatch()
    onehop.clear_cache()


def test_without_a_patch_there_is_the_empty_session():
    assert session.now == Session()
    onehop.patch(only=["GCNConv"], reuse=False)
    assert session.now.pyg
    assert session.now.layers == {"GCNConv"}
    assert not session.now.settings.reuse
    onehop.unpatch()
    assert session.now == Session()


def test_a_session_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        session.now.pyg = True


def test_leaving_blocks_brings_back_the_session_before():
    with onehop.patch(associate=False):
        outer = session.now
        with onehop.patch(only="GCNConv", associate=True):
            assert session.now.settings.associate
            assert session.now.layers == {"GCNConv"}
        assert session.now == outer
    assert session.now == Session()


def test_a_pause_keeps_the_settings_and_ends_with_the_selection():
    with onehop.patch(only="GCNConv", reuse=False) as handle:
        before = session.now
        with handle.paused():
            assert not session.now.pyg
            assert onehop.patched() == ()
            onehop.unpatch()
            assert not session.now.settings.reuse
        assert session.now == before


def test_a_machine_numbers_its_layers_anew_in_every_patch():
    edge_index, x = torch.randint(9, (2, 30)), torch.randn(9, 4)
    for _ in range(2):
        with onehop.patch(machine=pim.Machine()) as handle:
            layer = gnn.SAGEConv(4, 4)
            layer(x, edge_index)
            assert list(session.now.labels.items()) == [(layer, "SAGEConv 1")]
            assert "SAGEConv 1" in str(handle.report)
            assert session.now.backend == ""
            assert session.now.machine


def test_a_named_backend_is_no_machine():
    with onehop.patch(backend="reference"):
        assert (session.now.backend, session.now.machine) == ("reference", "")
