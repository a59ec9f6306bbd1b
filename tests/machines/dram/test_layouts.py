import numpy as np
import pytest
from hypothesis import given, strategies as st

from onehop.errors import ArgumentError
from onehop.machines.dram import layout_for, preset
from onehop.machines.dram.layout import NAMES

SHAPE = preset("DDR5_4800AN").organisation
OWN = "column:3, bank_group, rank, column, bank, row ^"


def fields_of(text, count, ranks=1):
    return layout_for(text, SHAPE, ranks).map(np.arange(count))


def test_row_first_fills_a_row_then_goes_to_the_next_bank_group():
    rank, group, bank, row, column = fields_of("row_first", 1024)
    np.testing.assert_array_equal(column, np.tile(np.arange(64), 16))
    np.testing.assert_array_equal(group, np.arange(1024) // 64 % 8)
    np.testing.assert_array_equal(bank, np.arange(1024) // 512)
    assert not rank.any()
    assert not row.any()


def test_bg_first_puts_neighbours_into_different_bank_groups():
    _, group, bank, row, column = fields_of("bg_first", 1024)
    np.testing.assert_array_equal(group, np.tile(np.arange(8), 128))
    np.testing.assert_array_equal(column, np.arange(1024) // 8 % 64)
    np.testing.assert_array_equal(bank, np.arange(1024) // 512)
    assert not row.any()


def test_mop4_cuts_rows_into_fours_and_folds_the_column_onto_the_banks():
    _, group, bank, row, column = fields_of("mop4", 1024)
    i = np.arange(1024)
    whole = (i & 3) | (i // 128 & 15) << 2
    np.testing.assert_array_equal(column, whole)
    np.testing.assert_array_equal(group, (i // 4 & 7) ^ (whole & 7))
    np.testing.assert_array_equal(bank, (i // 32 & 3) ^ (whole >> 3 & 3))
    np.testing.assert_array_equal(row, whole >> 5)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("text", [*NAMES, OWN])
@given(bursts=st.lists(st.integers(0, (1 << 27) - 1), max_size=50))
def test_unmap_undoes_map(text, ranks, bursts):
    layout = layout_for(text, SHAPE, ranks)
    numbers = np.array(bursts, dtype=np.int64)
    np.testing.assert_array_equal(layout.unmap(layout.map(numbers)), numbers)


@pytest.mark.parametrize("text", [*NAMES, OWN])
def test_no_two_bursts_share_a_place(text):
    fields = fields_of(text, 1 << 16, ranks=2)
    assert len(np.unique(fields, axis=1).T) == 1 << 16


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("diagonal", "got 'diagonal'"),
        ("column, bank, rank, row", "bank_group has 3 bits here, the list names 0"),
        ("column:7, bank_group, bank, rank, row", "column has 6 bits here, the list names 7"),
        ("column:7, column, bank_group, bank, rank, row", "column has 6 bits"),
        ("column:x, bank_group, bank, rank, row", "got 'column:x'"),
        ("", "got ''"),
        (None, "got None"),
    ],
)
def test_a_list_that_is_no_layout_is_refused(text, message):
    with pytest.raises(ArgumentError, match=message):
        layout_for(text, SHAPE)


@pytest.mark.parametrize("ranks", [0, 3, 128, 2.0, True])
def test_ranks_that_cannot_be_are_refused(ranks):
    with pytest.raises(ArgumentError, match="ranks: expected a power of two"):
        layout_for("row_first", SHAPE, ranks)


def test_fields_that_are_too_large_are_refused():
    with pytest.raises(ArgumentError, match="bank_group: expected 0 to 7, got 8 to 8"):
        layout_for("row_first", SHAPE).unmap(np.array([[0], [8], [0], [0], [0]]))
