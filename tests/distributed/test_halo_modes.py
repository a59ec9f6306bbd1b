"""Rounded halos, and halos of the step before: what they compute and send, and what becomes of accuracy."""

import pytest

from tests.distributed.launch import run

pytest.importorskip("torch_geometric")


@pytest.fixture(scope="module", params=[1, 2, 4], ids=lambda n: f"{n}-processes")
def reports(request: pytest.FixtureRequest) -> list[dict]:
    return run("halo_modes_worker.py", request.param)


def test_sums_and_gradients_are_those_of_the_definition(reports: list[dict]) -> None:
    for report in reports:
        for mode, found in report["exact"].items():
            assert found["out"] < 1e-12, mode
            assert found["gradient"] < 1e-12, mode


def test_bytes(reports: list[dict]) -> None:
    for report in reports:
        sent = {mode: found["sent"] for mode, found in report["exact"].items()}
        assert sent["previous"] == sent["exact"] == 4 * sent["bfloat16"]
        assert (sent["exact"] > 0) == (len(reports) > 1)
    table = reports[0]["table"]
    assert table["GCNConv exact"]["sent"] == 2 * table["GCNConv bfloat16"]["sent"]


def test_accuracy(reports: list[dict]) -> None:
    for report in reports:
        for kind in ("GCNConv", "SAGEConv"):
            exact = report["table"][f"{kind} exact"]
            for mode in ("bfloat16", "previous"):
                found = report["table"][f"{kind} {mode}"]
                assert abs(found["right"] - exact["right"]) < 0.03, (kind, mode)
                # On one process there is no halo.
                assert (found["loss"] == exact["loss"]) == (len(reports) == 1)
        assert report["again"] == report["table"]["GCNConv previous"]


def test_other_modes_are_named(reports: list[dict]) -> None:
    assert "mode: expected one of exact, bfloat16, previous, got 'sampled'" in reports[0]["said"]
    assert "give each step one block" in reports[0]["nested"]
    assert reports[0]["left"]
