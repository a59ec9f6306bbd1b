import pytest

from onehop import ArgumentError
from onehop.plans import TritonPlan
from onehop.plans.triton_attention import default_attention_plan
from onehop.plans.triton_default import default_triton_plan
from tests.pairs import pairwise


def test_goes_to_json_and_back():
    plan = TritonPlan(split_edges=512, short_edges=8, num_warps=4, variant="torch_csr", ordering="rcm")
    assert TritonPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("split_edges", 0),
        ("short_edges", -1),
        ("rows_per_program", 3),
        ("block_edges", 0),
        ("block_features", 12),
        ("num_warps", 64),
        ("num_stages", 9),
        ("num_stages", True),
        ("variant", "blocks"),
        ("ordering", "alphabet"),
    ],
)
def test_impossible_fields_are_refused(field, value):
    with pytest.raises(ArgumentError, match=field):
        TritonPlan(**{field: value})


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("split_edges", 0, "an integer from 1 to 67108864, not 0"),
        ("short_edges", -1, "an integer from 0 to 67108864, not -1"),
        ("num_stages", 0, "an integer from 1 to 8, not 0"),
        ("num_warps", 64, "a power of two from 1 to 32, not 64"),
    ],
)
def test_a_refusal_names_what_is_allowed(field, value, allowed):
    with pytest.raises(ArgumentError, match=f"{field} must be {allowed}"):
        TritonPlan(**{field: value})


@pytest.mark.parametrize(
    ("field", "ends"),
    [
        ("split_edges", (1, 1 << 26)),
        ("short_edges", (0, 1 << 26)),
        ("rows_per_program", (1, 1024)),
        ("block_edges", (1, 1024)),
        ("block_features", (1, 4096)),
        ("num_warps", (1, 32)),
        ("num_stages", (1, 8)),
    ],
)
def test_the_ends_of_every_range_are_allowed(field, ends):
    for value in ends:
        assert getattr(TritonPlan(**{field: value}), field) == value


def test_unknown_fields_are_refused():
    with pytest.raises(ArgumentError, match="block_size"):
        TritonPlan.from_dict({"block_size": 3})


def test_mapping_is_by_feature_where_all_rows_are_short():
    assert TritonPlan(split_edges=64, short_edges=64).mapping == "feature"
    assert TritonPlan(split_edges=64, short_edges=63).mapping == "neighbour"


@pairwise(width=[1, 3, 16, 33, 64, 100, 128, 1000, 5000], itemsize=[2, 4, 8], edges=[0, 10, 10**6])
def test_default_tiles_fit_the_registers(width, itemsize, edges):
    plan = default_triton_plan(width, itemsize, 1000, edges)
    threads = 32 * plan.num_warps
    assert plan.block_features * itemsize <= 512
    for lanes in (plan.block_edges, plan.rows_per_program):
        assert lanes * plan.block_features <= 16 * threads


@pytest.mark.parametrize(
    ("heads", "width", "itemsize", "warps", "features"),
    [(2, 256, 4, 1, 256), (2, 128, 4, 2, 256), (2, 256, 2, 2, 512), (1, 512, 4, 2, 512), (3, 200, 4, 1, 256)],
)
def test_a_head_that_one_load_of_a_warp_does_not_cover_has_a_warp_of_its_own(
    heads: int, width: int, itemsize: int, warps: int, features: int
) -> None:
    plan = default_attention_plan(heads, width, itemsize, edges=False)
    assert (plan.num_warps, plan.block_features) == (warps, features)
