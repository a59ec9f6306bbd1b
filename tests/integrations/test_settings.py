"""Settings after a call of ``patch()``: what was asked for, what stays, and what a machine turns off."""

import dataclasses

import pytest

from onehop import ArgumentError
from onehop.integrations.session import Settings, settled

BEFORE = Settings(keep_memory=True, reuse=True, associate=True)


def test_what_is_not_given_stays() -> None:
    assert settled(BEFORE) == BEFORE
    other = dataclasses.replace(BEFORE, keep_memory=False, reuse=False, associate=False)
    assert settled(other) == other


@pytest.mark.parametrize("name", ["keep_memory", "reuse", "associate", "dropout", "products"])
@pytest.mark.parametrize("value", [False, True])
def test_what_is_given_counts_alone(name: str, value: bool) -> None:
    assert settled(BEFORE, **{name: value}) == dataclasses.replace(BEFORE, **{name: value})


def test_a_machine_gets_every_aggregation_at_its_own_width() -> None:
    expected = dataclasses.replace(BEFORE, reuse=False, associate=False)
    assert settled(BEFORE, with_machine=True) == expected
    assert settled(BEFORE, with_machine=True, reuse=False) == expected
    asked = settled(BEFORE, with_machine=True, associate=True)
    assert asked == dataclasses.replace(expected, associate=True)
    with pytest.raises(ArgumentError, match="reuse: aggregates that are kept would not be counted"):
        settled(BEFORE, with_machine=True, reuse=True)


def test_modes_of_tuning() -> None:
    assert settled(BEFORE, tune="auto").tune == "auto"
    with pytest.raises(ArgumentError, match=r"tune: expected one of .*auto.*, got 'always'"):
        settled(BEFORE, tune="always")
