"""Rounded halos: what they compute and send, and what becomes of accuracy."""

from types import SimpleNamespace

import pytest

from onehop.distributed.exchange import Halos, PendingExchange, Rounded
from onehop.errors import ArgumentError
from tests.distributed.launch import reports_of

pytest.importorskip("torch_geometric")


reports = reports_of("halo_modes_worker.py")


def test_sums_and_gradients_are_those_of_the_definition(reports: list[dict]) -> None:
    for report in reports:
        for mode, found in report["exact"].items():
            assert found["out"] < 1e-12, mode
            assert found["gradient"] < 1e-12, mode


def test_bytes(reports: list[dict]) -> None:
    for report in reports:
        sent = {mode: found["sent"] for mode, found in report["exact"].items()}
        assert sent["exact"] == 4 * sent["bfloat16"]
        assert (sent["exact"] > 0) == (len(reports) > 1)
    table = reports[0]["table"]
    assert table["GCNConv exact"]["sent"] == 2 * table["GCNConv bfloat16"]["sent"]


def test_accuracy(reports: list[dict]) -> None:
    for report in reports:
        for kind in ("GCNConv", "SAGEConv"):
            exact, found = (report["table"][f"{kind} {mode}"] for mode in ("exact", "bfloat16"))
            assert abs(found["right"] - exact["right"]) < 0.03, kind
            # On one process there is no halo.
            assert (found["loss"] == exact["loss"]) == (len(reports) == 1)


@pytest.mark.parametrize("mode", ["sampled", "previous"])
def test_other_modes_are_told_which_there_are(mode: str) -> None:
    with pytest.raises(ArgumentError, match=f"mode: expected one of exact, bfloat16, got '{mode}'"):
        Halos([], mode)


def test_blocks_may_be_inside_one_another() -> None:
    exchange = SimpleNamespace(kind=PendingExchange)
    exact, rounded = Halos([exchange], "exact"), Halos([exchange], "bfloat16")
    with rounded:
        with rounded, exact:
            assert exchange.kind is PendingExchange
        assert exchange.kind is Rounded
    assert exchange.kind is PendingExchange
