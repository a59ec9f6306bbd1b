"""The IO-aware paper's third finding: rows, signs and the picture."""

import pytest

from onehop.machines import gpu
from onehop.machines.gpu import MAPPINGS, ORDERS
from onehop.reproduce.io_aware import reordering
from onehop.reproduce.io_aware.reordering import BASE, Case, Hubs, Kind
from onehop.reproduce.twins import silent

ONE = Kind("products", 1.0, "ogbn-products", (1,), "positive")
OTHER = Case(load_bytes=4)


def counts(neighbour, feature, case=BASE):
    """Sectors in the own order 100, and in all others the given ones."""
    ours = dict(zip(MAPPINGS, (neighbour, feature), strict=True))
    return {
        (case, mapping, order): 100 if order == "own" else ours[mapping]
        for mapping in MAPPINGS
        for order in ORDERS
    }


def test_a_row_has_the_difference_of_both_gains_and_its_range_over_the_cases():
    found = {**counts(40, 50), **counts(25, 50, OTHER)}
    row = reordering.of_graph(ONE, 64, (BASE, OTHER), found)
    assert (row.ours, row.low, row.high, row.paper) == (0.5, 0.5, 2.0, None)
    assert "products twin, F = 64" in row.figure
    assert "random 2.5 / 2, degree 2.5 / 2, RCM 2.5 / 2, communities 2.5 / 2." in row.note
    assert row.note.endswith("In the paper's times on ogbn-products it is positive: agrees.")


@pytest.mark.parametrize(
    ("signs", "differences", "verdict"),
    [
        ((1,), [0.05, 0.3], "agrees"),
        ((1,), [0.049, 0.3], "open"),
        ((1,), [0.049, -0.3], "differs"),
        ((0, -1), [0.04, -0.2], "agrees"),
        ((0, -1), [0.06, 0.0], "open"),
        ((0, -1), [0.06, 0.1], "differs"),
        ((1, 0, -1), [-3.0, 0.0, 3.0], "agrees"),
    ],
)
def test_a_verdict_is_about_the_sign_in_every_case(signs, differences, verdict, monkeypatch):
    monkeypatch.setattr(reordering, "_CASES", (BASE, OTHER))
    assert reordering.verdict(Kind("road", 1.0, "roads", signs, "said"), differences) == verdict


def test_the_finding_counts_who_gains_more():
    row = reordering.finding([counts(40, 50), counts(50, 40), counts(50, 50)], (BASE,))
    assert row.ours == 4
    assert "of 12 (graph, width, order, assumption)" in row.figure
    assert (
        "gains more 4 times; by order: random 1 and 1, degree 1 and 1, RCM 1 and 1, communities 1 and 1;"
        in row.note
    )
    assert ": open." in row.note
    assert ": agrees." in reordering.finding([counts(40, 50)], (BASE,)).note


def test_a_quick_run_never_differs():
    assert reordering.verdict(ONE, [-1.0]) == "open"
    assert reordering.verdict(ONE, [-1.0] * len(reordering._CASES)) == "differs"
    less = [counts(50, 40)]
    assert ": open." in reordering.finding(less, (BASE,)).note


def test_a_difference_that_is_not_printed_has_no_sign():
    assert str(reordering.apart(counts(10_001, 10_000), BASE, "rcm")) == "0.0"


def test_a_graph_that_is_never_read_gains_nothing():
    assert reordering.gain(counts(0, 0), BASE, "feature", "rcm") == 1.0


def test_all_orders_are_counted_on_a_part_of_the_gpu_and_drawn(monkeypatch):
    kinds = (Kind("cora", 0.5, "cora", (1,), "positive", scale=0.25), Hubs("hubs", 1e-4, "web", (0,), "zero"))
    monkeypatch.setattr(reordering, "KINDS", kinds)
    whole = gpu.load("a100_80gb")
    parts = []
    monkeypatch.setattr(gpu.Gpu, "part", lambda self, share: parts.append(share) or whole)
    rows, chart = reordering.measured(True, silent)
    assert parts == [0.5, 1e-4]
    assert [row.figure.split(",")[1] for row in rows[:2]] == [" cora twin x 0.5", " hubs x 0.0001"]
    # Both fit into the cache of a whole GPU, so neither mapping gains.
    assert all(row.ours == 0 for row in rows)
    assert chart.groups == ("cora twin x 0.5", "hubs x 0.0001")
    assert len(chart.series) == 8
    assert {value for series in chart.series for value in series.values} == {1.0}


def test_the_width_of_loads_is_counted_for_features_alone():
    cora = Kind("cora", 1.0, "cora", (1,), "positive").graph(silent)
    small = gpu.load("a100_80gb").part(0.001)
    found = reordering.fetched(cora, 256, small, (BASE, OTHER), silent)
    for order in ORDERS:
        assert found[BASE, "neighbour", order] == found[OTHER, "neighbour", order]
    assert found[BASE, "feature", "own"] != found[OTHER, "feature", "own"]
    # An order without locality makes cora's rows come from memory more often, communities less often.
    assert found[BASE, "feature", "community"] < found[BASE, "feature", "random"]


def test_the_page_has_at_most_twelve_rows():
    assert len(reordering.KINDS) * len(reordering._WIDTHS) + 1 <= 12
