"""Everything that does not fit is an error that says what would, before anything has run."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from onehop import ArgumentError
from onehop.machines.pim import BalancedShapes, Machine, PimPlan, prior_art, tune
from onehop.machines.pim.search import candidates
from onehop.machines.pim.tuner import exhaustive, rank
from tests.machines.pim.graphs import HOSTILE
from tests.machines.pim.machines import small

MACHINE = Machine(small())
GRAPH = HOSTILE["uniform"]


@pytest.mark.parametrize(
    ("plan", "width", "message"),
    [
        *(({"sp": sp, "ds": ds}, 16, rf"sp \* ds = {sp} \* {ds}") for sp, ds in ((3, 1), (3, 3), (1, 7))),
        ({"sp": 4, "ds": 10}, 16, "9 clusters a rank"),
        ({"scheme": "grande", "sp": 2, "ds": 2}, 16, "4 x 10"),
        ({"sp": 4, "ds": 1, "tasklets": 1}, 1024, r"at most 2048.*at least 2"),
        ({"sp": 1, "ds": 4, "tasklets": 25}, 16, "at most 24"),
        ({"sp": 1, "ds": 4, "block_rounds": 5000}, 16, "4096"),
    ],
)
def test_plans_that_the_machine_has_no_place_for(plan: dict, width: int, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        MACHINE.simulate(GRAPH, width, PimPlan(**plan), "int32")


def test_grandes_grid_is_its_ranks_and_the_cores_of_the_largest() -> None:
    plan = prior_art.grande(MACHINE.config)
    assert (plan.sp, plan.ds) == (4, 10)


@pytest.mark.parametrize(
    "fields",
    [
        {"sp": 0},
        {"sp": True},
        {"ds": 1.5},
        {"format": "ell"},
        {"core_balance": "nnz"},
        {"reader_bytes": 33},
        {"reader_bytes": 2048},
        {"pipelined": 1},
        {"dtype": "float16"},
        {"accumulator": "int128"},
        {"scheme": "other"},
        {"merge_threads": 0},
        {"reader": "both"},
        {"clear": "none"},
        {"fold": "ring"},
        {"hub_bytes": -1},
    ],
)
def test_bad_fields_of_plans(fields: dict) -> None:
    with pytest.raises(ArgumentError, match=next(iter(fields))):
        PimPlan(**fields)


@pytest.mark.parametrize("text", ["[1]", "{", '{"sp": 2, "colour": 3}'])
def test_bad_json_of_plans(text: str) -> None:
    with pytest.raises(ArgumentError, match="plan"):
        PimPlan.from_json(text)


def test_plan_round_trip() -> None:
    plan = PimPlan(sp=2, ds=16, format="coo", dtype="int8", rounds=3)
    assert PimPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": torch.ones(99, 4)}, "a row for each of the 100 sources"),
        ({"x": torch.ones(100)}, r"x: expected shape \[100, F\], .*got \[100\]"),
        ({"x": torch.ones(100, 4, dtype=torch.bfloat16)}, "bfloat16"),
        ({"x": torch.ones(100, 4).to_sparse()}, "dense"),
        ({"x": [[1.0]]}, "x: expected a tensor .* got list"),
        ({"weight": torch.ones(3)}, r"weight.*\[900\]"),
        ({"weight": torch.ones(900, dtype=torch.int32)}, "weight: expected torch.float32"),
        ({"reduce": "max"}, "reduce: expected 'sum' or 'mean', got 'max'"),
        ({"src_scale": torch.ones(3)}, "src_scale"),
        ({"dst_scale": torch.ones(3)}, "dst_scale"),
        ({"x": torch.ones(100, 4, dtype=torch.int32), "src_scale": torch.ones(100)}, "cannot be scaled"),
        (
            {"x": torch.ones(100, 4, dtype=torch.int8), "weight": torch.full((900,), 300)},
            "weight: expected numbers from -128 to 127",
        ),
        (
            {"x": torch.ones(100, 4, dtype=torch.int32), "plan": PimPlan(sp=1, ds=4, dtype="int8")},
            "dtype int8",
        ),
        (
            {"x": torch.ones(100, 4, dtype=torch.int32), "plan": PimPlan(sp=1, ds=4, dtype="float32")},
            "as floats",
        ),
    ],
)
def test_bad_arguments(arguments: dict, message: str) -> None:
    arguments = {"x": torch.ones(100, 4), **arguments}
    with pytest.raises(ArgumentError, match=message):
        MACHINE.aggregate(GRAPH, arguments.pop("x"), **arguments)


def test_graph_must_be_a_graph() -> None:
    with pytest.raises(ArgumentError, match=r"expected an onehop\.Graph"):
        MACHINE.aggregate(torch.zeros(2, 3, dtype=torch.long), torch.ones(3, 3))


@pytest.mark.parametrize("width", [0, -3, 2.5, True, "64", None])
@pytest.mark.parametrize(
    "ask",
    [
        lambda width: MACHINE.simulate(GRAPH, width),
        lambda width: MACHINE.simulate(BalancedShapes(10, 10, 20), width, PimPlan(sp=1, ds=4)),
        lambda width: MACHINE.plan(GRAPH, width),
        lambda width: tune(MACHINE, GRAPH, width),
        lambda width: rank(MACHINE, GRAPH, width, "int32", candidates(MACHINE.config, PimPlan())),
        lambda width: exhaustive(MACHINE, GRAPH, width),
        lambda width: prior_art.sparsep(MACHINE.config, width, 2),
    ],
    ids=["simulate", "simulate a size", "plan", "tune", "rank", "exhaustive", "sparsep"],
)
def test_widths_that_are_none(ask: Callable[[Any], object], width: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^width: expected .* at least 1, got ") as caught:
        ask(width)
    assert repr(width) in str(caught.value)


@pytest.mark.parametrize("wrong", [-1, 2.5, True, None, "7"])
@pytest.mark.parametrize("name", ["num_src", "num_dst", "num_edges"])
def test_sizes_that_are_none(name: str, wrong: Any) -> None:
    with pytest.raises(ArgumentError, match=f"^{name}: expected an integer of at least 0, got {wrong!r}"):
        BalancedShapes(**{"num_src": 4, "num_dst": 5, "num_edges": 6, name: wrong})


@pytest.mark.parametrize("empty", ["num_src", "num_dst"])
def test_edges_need_ends(empty: str) -> None:
    with pytest.raises(ArgumentError, match=f"6 edges need at least one .*{empty}=0"):
        BalancedShapes(**{"num_src": 4, "num_dst": 5, "num_edges": 6, empty: 0})
    assert MACHINE.simulate(BalancedShapes(0, 0, 0), 4).total_ns > 0


@pytest.mark.parametrize("ranks_each", [0, 3, -1, 2.0, 8])
def test_ranks_of_a_column(ranks_each: Any) -> None:
    with pytest.raises(ArgumentError, match=f"ranks_each: expected a divisor of the 4 ranks.*{ranks_each!r}"):
        prior_art.sparsep(MACHINE.config, 16, ranks_each)
