"""Plans of every kind: to JSON and back, and texts and values that no plan can have."""

import pytest

from onehop import ArgumentError
from onehop.plans import CpuPlan, NdpPlan, PimPlan, TritonPlan

PLANS = [
    CpuPlan(
        edges_per_item=77,
        prefetch=3,
        column_tile=32,
        nontemporal=True,
        threads=2,
        prefetch_hint="L1",
    ),
    TritonPlan(split_edges=512, short_edges=8, num_warps=4, variant="torch_csr", ordering="rcm"),
    NdpPlan("2-channel", tile=64, retile="ranks", batch=512, broadcast=False, host_order="ahead"),
    NdpPlan(batch=None),
    PimPlan(sp=2, ds=4, format="coo", dtype="int8", reader="paged"),
]
KINDS = [CpuPlan, TritonPlan, NdpPlan, PimPlan]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: type(plan).__name__)
def test_to_json_and_back(plan):
    assert type(plan).from_json(plan.to_json()) == plan


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not JSON"), ("[1]", "expected a JSON object, got list"), ('{"tiles": 1}', "unknown field tiles")],
)
def test_bad_json_is_refused(kind, text, message):
    with pytest.raises(ArgumentError, match=message):
        kind.from_json(text)


@pytest.mark.parametrize(
    ("kind", "field", "value", "message"),
    [
        (CpuPlan, "edges_per_item", 0, "edges_per_item must be an integer of at least 1, not 0"),
        (CpuPlan, "prefetch", -1, "prefetch must be an integer of at least 0"),
        (CpuPlan, "prefetch", 65, "prefetch must be at most 64, not 65"),
        (CpuPlan, "column_tile", 1.5, "column_tile must be an integer"),
        (CpuPlan, "threads", True, "threads must be an integer"),
        (CpuPlan, "nontemporal", 1, "nontemporal must be true or false"),
        (CpuPlan, "prefetch_hint", "L3", "prefetch_hint must be one of L1, L2, not 'L3'"),
        (CpuPlan, "ordering", "random", "one of none, degree, rcm, community, metis, not 'random'"),
        (CpuPlan, "storage", "int8", "storage must be one of same, bfloat16, not 'int8'"),
        (TritonPlan, "split_edges", 0, "split_edges must be an integer from 1 to 67108864, not 0"),
        (TritonPlan, "short_edges", -1, "short_edges must be an integer from 0 to 67108864, not -1"),
        (TritonPlan, "rows_per_program", 3, "rows_per_program must be a power of two from 1 to 1024, not 3"),
        (TritonPlan, "block_edges", 0, "block_edges must be a power of two from 1 to 1024, not 0"),
        (TritonPlan, "block_features", 12, "block_features must be a power of two from 1 to 4096, not 12"),
        (TritonPlan, "num_warps", 64, "num_warps must be a power of two from 1 to 32, not 64"),
        (TritonPlan, "num_stages", 0, "num_stages must be an integer from 1 to 8, not 0"),
        (TritonPlan, "num_stages", 9, "num_stages must be an integer from 1 to 8, not 9"),
        (TritonPlan, "num_stages", True, "num_stages must be an integer from 1 to 8, not True"),
        (TritonPlan, "variant", "blocks", "variant must be one of"),
        (TritonPlan, "ordering", "alphabet", "ordering must be one of"),
        (NdpPlan, "mapping", "bank", "mapping must be one of"),
        (NdpPlan, "retile", "yes", "retile must be one of"),
        (NdpPlan, "tile", 0, "tile must be an integer of at least 1, not 0"),
        (NdpPlan, "tile", 1.5, "tile must be an integer"),
        (NdpPlan, "batch", 0, "batch must be an integer of at least 1, not 0"),
        (NdpPlan, "broadcast", 1, "broadcast must be true or false, not 1"),
        (NdpPlan, "host_order", "before", "host_order must be one of"),
    ],
)
def test_impossible_values_are_named(kind, field, value, message):
    with pytest.raises(ArgumentError, match=message):
        kind(**{field: value})


def test_a_field_of_earlier_plans_is_ignored_where_it_changed_no_result():
    plan = CpuPlan(prefetch=3)
    assert CpuPlan.from_dict({**plan.to_dict(), "hub_cache": 0, "index": "int16"}) == plan
    with pytest.raises(ArgumentError, match="unknown field hub_cache"):
        CpuPlan.from_dict({**plan.to_dict(), "hub_cache": 256})
