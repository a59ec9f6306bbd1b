import pytest

from onehop import ArgumentError
from onehop.plans import CpuPlan


def test_json_round_trip():
    plan = CpuPlan(
        edges_per_item=77,
        prefetch=3,
        column_tile=32,
        nontemporal=True,
        threads=2,
        prefetch_hint="L1",
    )
    assert CpuPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("edges_per_item", 0, "edges_per_item must be an integer of at least 1, not 0"),
        ("prefetch", -1, "prefetch must be an integer of at least 0"),
        ("prefetch", 65, "prefetch must be at most 64, not 65"),
        ("column_tile", 1.5, "column_tile must be an integer"),
        ("threads", True, "threads must be an integer"),
        ("nontemporal", 1, "nontemporal must be true or false"),
        ("prefetch_hint", "L3", "prefetch_hint must be one of L1, L2, not 'L3'"),
        ("ordering", "random", "ordering must be one of none, degree, rcm, community, metis, not 'random'"),
        ("storage", "int8", "storage must be one of same, bfloat16, not 'int8'"),
    ],
)
def test_impossible_values_are_named(field, value, message):
    with pytest.raises(ArgumentError, match=message):
        CpuPlan(**{field: value})


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not JSON"), ("[1]", "expected a JSON object, got list"), ('{"tiles": 1}', "unknown field tiles")],
)
def test_bad_json_is_refused(text, message):
    with pytest.raises(ArgumentError, match=message):
        CpuPlan.from_json(text)


def test_a_field_of_earlier_plans_is_ignored_where_it_changed_no_result():
    plan = CpuPlan(prefetch=3)
    assert CpuPlan.from_dict({**plan.to_dict(), "hub_cache": 0, "index": "int16"}) == plan
    with pytest.raises(ArgumentError, match="unknown field hub_cache"):
        CpuPlan.from_dict({**plan.to_dict(), "hub_cache": 256})
