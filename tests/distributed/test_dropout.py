"""Dropout over processes that were all seeded alike: independent, and the same from run to run."""

import pytest

from tests.distributed.launch import run

pytest.importorskip("torch_geometric")


@pytest.fixture(scope="module")
def reports() -> list[dict]:
    return run("dropout_worker.py", 2)


def test_ranks_drop_different_positions(reports: list[dict]) -> None:
    for name, share in reports[0]["equal"].items():
        # Six standard deviations of 8000 positions and more: 6 * 0.5 / sqrt(8000) = 0.034.
        assert share == pytest.approx(0.5, abs=0.034), name


def test_what_is_kept_is_scaled(reports: list[dict]) -> None:
    for report in reports:
        for name, values in report["values"].items():
            assert values == [0.0, 2.0], name
            assert report["kept"][name] == pytest.approx(0.5, abs=0.034), name
        assert set(report["ends"].values()) == {True}


def test_random_numbers_outside_of_the_model_are_the_same(reports: list[dict]) -> None:
    assert reports[0]["afterwards"] == reports[1]["afterwards"]


def test_seeding_again_repeats_it(reports: list[dict]) -> None:
    for report in reports:
        assert set(report["repeated"].values()) == {True}


def test_another_run_drops_the_same(reports: list[dict]) -> None:
    again = run("dropout_worker.py", 2)
    assert [each["digest"] for each in again] == [each["digest"] for each in reports]
