import pytest

from onehop.plans import TritonPlan
from onehop.plans.triton_default import default_attention_plan, default_triton_plan
from tests.pairs import pairwise


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
