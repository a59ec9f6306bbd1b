"""The fields of a plan for near-bank machines: their allowed values, and their defaults."""

from typing import Any

import pytest

from onehop import ArgumentError
from onehop.plans import PimPlan

LEAST = {
    "sp": 1, "ds": 1, "tasklets": 1, "rounds": 1, "block_rounds": 1, "merge_threads": 1,
    "hub_bytes": 0,
}  # fmt: skip


def test_a_plan_that_nobody_chose() -> None:
    plan = PimPlan()
    assert (plan.sp, plan.ds, plan.tasklets, plan.rounds, plan.block_rounds) == (1, 32, 16, 1, 1)
    assert (plan.hub_bytes, plan.merge_threads, plan.reader_bytes) == (0, 1, 32)


@pytest.mark.parametrize(("field", "least"), LEAST.items())
def test_the_least_of_each_number(field: str, least: int) -> None:
    assert getattr(PimPlan(**{field: least}), field) == least
    for wrong in (least - 1, float(least), str(least), None, True):
        with pytest.raises(ArgumentError, match=f"plan: {field} must be an integer of at least {least}, not"):
            PimPlan(**{field: wrong})


@pytest.mark.parametrize(
    ("field", "choices"),
    {
        "format": ("csr", "coo"), "core_balance": ("row", "edge"), "thread_balance": ("row", "edge"),
        "reader": ("block", "paged"), "clear": ("shared", "first"), "fold": ("tree", "serial"),
        "column_cut": ("equal", "edge"), "merge_order": ("block", "row"), "scale": ("tensor", "column"),
        "scheme": ("paf", "grande", "sparsep"),
    }.items(),
)  # fmt: skip
def test_choices(field: str, choices: tuple[str, ...]) -> None:
    for choice in choices:
        assert getattr(PimPlan(**{field: choice}), field) == choice
    wrong: Any
    own = "file.py:Own"
    for wrong in ("fastest", "", 0, None, *([] if field == "scheme" else [own])):
        with pytest.raises(ArgumentError, match=f"plan: {field} must be one of .*{choices[-1]}"):
            PimPlan(**{field: wrong})
    assert PimPlan(scheme=own).scheme == own


@pytest.mark.parametrize("field", ["unit_weights", "reuse_buffers", "stream", "pipelined"])
def test_flags(field: str) -> None:
    assert not getattr(PimPlan(**{field: False}), field)
    with pytest.raises(ArgumentError, match=f"plan: {field} must be true or false, not 1"):
        PimPlan(**{field: 1})


@pytest.mark.parametrize("value", [8, 1024])
def test_bytes_of_a_reader(value: int) -> None:
    assert PimPlan(reader_bytes=value).reader_bytes == value
    for wrong in (value // 2 if value == 8 else value * 2, value + 1, float(value)):
        with pytest.raises(ArgumentError, match="power of two from 8 to 1024"):
            PimPlan(reader_bytes=wrong)
