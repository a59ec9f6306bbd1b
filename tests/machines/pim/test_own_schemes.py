"""Schemes of users: time and results beside ours, and what they are told when they lose columns."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from onehop import ArgumentError, reference
from onehop.machines.pim import Cluster, Machine, PimConfig, PimPlan, Placement, Scheme, schemes
from tests.machines.ndp.graphs import random_graph
from tests.machines.pim.machines import small
from tests.registries import as_before

MACHINE = Machine(small())
GRAPH = random_graph(90, 700, num_src=130)
PLAN = PimPlan(sp=2, ds=2, tasklets=5)
Change = Callable[[list[Cluster]], list[Cluster]]


@pytest.fixture(autouse=True)
def _registered_before() -> Iterator[None]:
    with as_before():
        yield


def own(change: Change, **attributes: Any) -> PimPlan:
    """A plan of a registered scheme: our clusters, changed."""

    class Own(Scheme):
        name = "own"

        def place(self, config: PimConfig, plan: PimPlan, width: int) -> Placement:
            ours = super().place(config, plan, width)
            return replace(ours, clusters=tuple(change(list(ours.clusters))))

    for name, value in attributes.items():
        setattr(Own, name, value)
    schemes.register(Own)
    return replace(PLAN, scheme="own")


def test_a_copy_of_ours_takes_its_time() -> None:
    copy, ours = (MACHINE.simulate(GRAPH, 19, plan).as_dict() for plan in (own(lambda found: found), PLAN))
    assert copy.pop("plan")["scheme"] == "own"
    assert ours.pop("plan")["scheme"] == "paf"
    assert copy == ours


def test_rows_that_are_not_padded_take_sparseps_time() -> None:
    plan = own(lambda found: found, stored_width=lambda self, width, item_bytes, alignment: width)
    copy, sparsep = (
        MACHINE.simulate(GRAPH, 19, each).as_dict() for each in (plan, replace(PLAN, scheme="sparsep"))
    )
    assert copy.pop("plan") != sparsep.pop("plan")
    assert copy == sparsep
    assert copy["bytes"]["padding"] < MACHINE.simulate(GRAPH, 19, PLAN).bytes["padding"]


def uneven(found: list[Cluster]) -> list[Cluster]:
    """The first of two clusters of a part has 5 of 19 columns."""
    return [replace(one, end=5) if one.begin == 0 else replace(one, begin=5) for one in found]


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32])
def test_results_are_the_references(dtype: torch.dtype) -> None:
    x = torch.randint(-8, 9, (130, 19), generator=torch.Generator().manual_seed(0)).to(dtype)
    out, report = MACHINE.aggregate(GRAPH, x, own(uneven))
    assert torch.equal(out.long(), reference.aggregate(GRAPH.edge_index(), x.double(), 90).long())
    assert report.plan.scheme == "own"
    _, ours = MACHINE.aggregate(GRAPH, x, PLAN)
    # The widest cluster paces the kernels.
    assert report.phases_ns["kernel"] > ours.phases_ns["kernel"]


def without(at: int) -> Change:
    return lambda found: found[:at] + found[at + 1 :]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (without(1), "of sparse part 0, columns 10 to 18 of 19 are lost"),
        (without(2), "of sparse part 1, columns 0 to 9 of 19 are lost"),
        (
            lambda found: [replace(one, end=min(one.end, 18)) for one in found],
            "columns 18 to 18 of 19 are lost",
        ),
        (
            lambda found: [replace(one, begin=max(one.begin - 3, 0)) for one in found],
            "7 to 9 of 19 are in two",
        ),
        (
            lambda found: [replace(one, end=one.end + one.end // 19) for one in found],
            "columns 19 to 19 of 19 do not exist",
        ),
        (lambda found: [replace(one, first_core=one.first_core + 1) for one in found], "core .* none of the"),
        (lambda found: [replace(one, cores=one.cores + 1) for one in found], "core .* is in two clusters"),
    ],
)
def test_what_is_lost_is_told(change: Change, told: str) -> None:
    plan = own(change)
    with pytest.raises(ArgumentError, match=f"scheme 'own': .*{told}"):
        MACHINE.simulate(GRAPH, 19, plan)


def test_unknown_schemes() -> None:
    with pytest.raises(ArgumentError, match="plan: scheme must be one of paf, grande, sparsep, or FILE"):
        PimPlan(scheme="mine")
    with pytest.raises(ArgumentError, match=r"scheme: there is no file 'absent\.py'"):
        MACHINE.simulate(GRAPH, 19, PimPlan(scheme="absent.py:Mine"))
