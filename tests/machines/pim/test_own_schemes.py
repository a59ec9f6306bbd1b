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
        (lambda found: [replace(one, cores=0) for one in found], "a cluster has 0 cores, not 1 or more"),
        (
            lambda found: [replace(one, part=one.part + 1) for one in found],
            "sparse part 2, and the plan has 2",
        ),
        (lambda found: [replace(one, part=-1) for one in found], "sparse part -1, and the plan has 2"),
        (lambda found: [replace(one, rank=0) for one in found], r"rank\(s\) from 1, .* rank=0, ranks=1"),
        (lambda found: [replace(one, rank=one.rank + 1) for one in found], "from 0, .* has rank=1, ranks=1"),
        (lambda found: [replace(one, ranks=2) for one in found], r"1 rank\(s\) from 0, .* ranks=2"),
        (
            lambda found: (
                [replace(one, cores=1) for one in found] + [replace(found[1], first_core=1, cores=1, rank=0)]
            ),
            "features of rank 0 are broadcast, and its clusters have different ones; set broadcast=False",
        ),
    ],
)
def test_what_is_lost_is_told(change: Change, told: str) -> None:
    plan = own(change)
    with pytest.raises(ArgumentError, match=f"scheme 'own': .*{told}"):
        MACHINE.simulate(GRAPH, 19, plan)


def test_a_place_that_returns_something_else() -> None:
    plan = own(lambda found: found, place=lambda self, config, plan, width: None)
    with pytest.raises(
        ArgumentError, match=r"scheme 'own': place must return a pim\.Placement, not NoneType"
    ):
        MACHINE.simulate(GRAPH, 19, plan)


def one_cluster(self: Scheme, config: PimConfig, plan: PimPlan, width: int) -> Placement:
    """All columns on the first two ranks; the other ranks are idle."""
    return Placement((Cluster(0, 0, width, 0, 2, 0, sum(config.rank_cores[:2])),), broadcast=True)


def test_a_placement_from_nothing_that_leaves_ranks_idle() -> None:
    x = torch.randint(-8, 9, (130, 19), generator=torch.Generator().manual_seed(0)).int()
    plan = replace(own(lambda found: found, place=one_cluster), sp=1, ds=1)
    out, report = MACHINE.aggregate(GRAPH, x, plan)
    assert torch.equal(out.long(), reference.aggregate(GRAPH.edge_index(), x.double(), 90).long())
    assert report.utilisation < MACHINE.simulate(GRAPH, 19, PLAN, "int32").utilisation


def test_unknown_schemes() -> None:
    with pytest.raises(ArgumentError, match="plan: scheme must be one of paf, grande, sparsep, or FILE"):
        PimPlan(scheme="mine")
    with pytest.raises(ArgumentError, match=r"scheme: there is no file 'absent\.py'"):
        MACHINE.simulate(GRAPH, 19, PimPlan(scheme="absent.py:Mine"))
