"""Max, min and attention on the cores: the numbers against float64, the time and bytes edge by edge."""

import math
from typing import Any

import pytest
import torch

from onehop import ArgumentError, Graph, MachineMemoryError
from onehop.backends.cpu import CpuBackend
from onehop.calls import Attention, Extremum, on
from onehop.machines.base import AttentionSize
from onehop.machines.pim import Machine, PimPlan, preset
from onehop.machines.pim.operators import Attention as OnCores
from onehop.reference.aggregate import aggregate
from onehop.reference.attention import attention as by_dot_products, gat, gatv2
from tests.machines.pim import naive_attention
from tests.machines.pim.graphs import HOSTILE
from tests.machines.pim.machines import small
from tests.pairs import pairwise

MACHINE = Machine(small())
PLANS = [
    PimPlan(sp=4, ds=1, core_balance="row", thread_balance="row", tasklets=3),
    PimPlan(sp=2, ds=2, tasklets=5, column_cut="edge"),
    PimPlan(sp=1, ds=4, tasklets=16, reader="paged"),
    PimPlan(sp=1, ds=1, merge_threads=2, reuse_buffers=True),
    PimPlan(sp=2, ds=4, reader_bytes=64),
]
RULES = ("gat", "gatv2", "dot")
CPU = "cpu"


def operands(
    graph: Graph, rule: str, heads: int, width: int, *, edges: bool, masked: bool, dtype: torch.dtype
) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(3)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype, device=CPU)

    src, dst, count = graph.num_src, graph.num_dst, graph.num_edges
    found: dict[str, Any] = {"value": numbers(src, heads, width), "factor": 0.2}
    if rule == "gat":
        found |= {"key": numbers(src, heads), "query": numbers(dst, heads)}
        found |= {"edge": numbers(count, heads)} if edges else {}
    elif rule == "gatv2":
        found |= {"key": None, "query": numbers(dst, heads, width), "att": numbers(heads, width)}
    else:
        found |= {"key": numbers(src, heads, width), "query": numbers(dst, heads, width)}
    return found | ({"mask": numbers(count, heads).relu()} if masked else {})


def in_float64(graph: Graph, rule: str, given: dict[str, Any]) -> torch.Tensor:
    wide = {name: each.double() if isinstance(each, torch.Tensor) else each for name, each in given.items()}
    edge_index, mask = graph.edge_index(), wide.get("mask")
    if rule == "gat":
        scores = (wide["value"], wide["key"], wide["query"])
        return gat(edge_index, *scores, edge_score=wide.get("edge"), edge_mask=mask)[0]
    if rule == "gatv2":
        ends = (wide["value"], wide["query"])
        return gatv2(edge_index, *ends, wide["att"], edge_mask=mask)[0]
    return by_dot_products(edge_index, wide["query"], wide["key"], wide["value"], 0.2, edge_mask=mask)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pairwise(name=HOSTILE, rule=RULES)
def test_attention_is_that_of_the_reference(name: str, rule: str, dtype: torch.dtype) -> None:
    graph = HOSTILE[name]
    for plan, (edges, masked) in zip(PLANS, [(True, True), (False, False)] * 3, strict=False):
        given = operands(graph, rule, 3, 5, edges=edges, masked=masked, dtype=dtype)
        call = on(graph, Attention, rule=rule, **given)
        (out, softmax), report = MACHINE.attention(graph, call, plan)
        assert out.dtype == dtype
        assert report.plan == plan
        expected = in_float64(graph, rule, given)
        limit = 100 * torch.finfo(dtype).eps * max(float(given["value"].abs().max()), 1)
        if out.numel():
            assert float((out.double() - expected).abs().max()) <= limit
        # What the gradient reads: the largest score, and one divided by the sum of exponentials.
        _, theirs, _ = CpuBackend().run(graph, call)
        torch.testing.assert_close(softmax, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.parametrize("name", HOSTILE)
def test_extrema_are_exact_through_every_partition(name: str, reduce: str) -> None:
    graph = HOSTILE[name]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(graph.num_src, 7, generator=generator, device=CPU)
    weight = torch.randn(graph.num_edges, generator=generator, device=CPU)
    others = [PimPlan(sp=4, ds=1, format="coo"), PimPlan(sp=2, ds=2, block_rounds=3, rounds=2)]
    for plan in (None, *PLANS, *others):
        for own, adds in ((None, False), (weight, False), (weight, True)):
            call = on(graph, Extremum, x=x, reduce=reduce, weight=own, adds=adds)
            out, report = MACHINE.extremum(graph, call, plan)
            expected = aggregate(
                graph.edge_index(), x, graph.num_dst, own, reduce, multiply="add" if adds else "mul"
            )
            assert torch.equal(out, expected)
            assert report.figures["operator"] == "extremum"


def test_nan_and_infinity_come_through() -> None:
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2, 3], [0, 0, 1, 1]]), 4)
    x = torch.tensor([[math.nan], [1.0], [-math.inf], [-math.inf]])
    out, _ = MACHINE.extremum(graph, on(graph, Extremum, x=x, reduce="max"), PLANS[0])
    assert out[0].isnan()
    assert out[1] == -math.inf
    assert not out[2:].any()


SIZES = [
    {"rule": "gat", "heads": 3, "width": 5, "key_width": 1, "edge_scores": True, "masked": True},
    {"rule": "gat", "heads": 1, "width": 9, "key_width": 1},
    {"rule": "gatv2", "heads": 4, "width": 3, "key_width": 3, "masked": True},
    {"rule": "dot", "heads": 2, "width": 6, "key_width": 4},
    {"rule": "dot", "heads": 2, "width": 280, "key_width": 3},
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size['rule']} {size['heads']}x{size['width']}")
@pairwise(name=["hub", "empty rows", "bipartite", "no edges", "fewer rows than cores"])
def test_time_and_bytes_are_those_of_the_twin(name: str, size: dict[str, Any], dtype: torch.dtype) -> None:
    graph, sized = HOSTILE[name], AttentionSize(dtype=dtype, **size)
    ran = 0
    for plan in PLANS:
        try:
            report = OnCores(sized).cost(MACHINE.config, plan, MACHINE.shapes(graph))
        except MachineMemoryError:
            continue
        ran += 1
        expected = naive_attention.run(MACHINE, graph, plan, sized)
        for phase, took in expected.phases_ns.items():
            assert report.phases_ns[phase] == pytest.approx(took, rel=1e-9), phase
        for kind, moved in expected.bytes.items():
            assert report.bytes[kind] == pytest.approx(moved, abs=1), kind
        assert report.mram_bytes_max == expected.mram_bytes
        assert report.wram_bytes_max == expected.wram_bytes
        assert report.core_busy_ns == pytest.approx(expected.core_ns, rel=1e-9)
        assert sum(report.phases_ns.values()) == pytest.approx(report.total_ns)
    assert ran >= 2


@pytest.mark.parametrize("multiplied", ["none", "weights", "terms"])
@pytest.mark.parametrize("plan", PLANS[:4], ids=str)
def test_time_of_max_is_that_of_the_sum_with_comparisons(plan: PimPlan, multiplied: str) -> None:
    graph, width = HOSTILE["hub"], 8
    x = torch.ones(graph.num_src, width, device=CPU)
    weight = None if multiplied == "none" else torch.ones(graph.num_edges, device=CPU)
    adds = multiplied == "terms"
    _, found = MACHINE.extremum(graph, on(graph, Extremum, x=x, reduce="max", weight=weight, adds=adds), plan)
    _, of_sum = MACHINE.aggregate(graph, x, plan, weight=weight)
    for phase in ("send", "broadcast", "retrieve", "merge"):
        assert found.phases_ns[phase] == of_sum.phases_ns[phase]
    assert found.bytes == of_sum.bytes
    expected = naive_attention.extremum_core_ns(MACHINE, graph, plan, width, weight is not None, adds)
    assert found.core_busy_ns == pytest.approx(expected, rel=1e-9)


def test_coo_that_shares_rows_compares_where_it_would_add() -> None:
    """A made-up machine on which comparing costs what adding does takes the sum's time, in every split."""
    config = small()
    alike = {
        dtype: type(each)(config.arithmetic[dtype].accumulate, each.exponential, each.divide)
        for dtype, each in config.functions.items()
    }
    machine = Machine(config.with_(functions=alike))
    graph, x = HOSTILE["hub"], torch.ones(60, 8, device=CPU)
    for fold in ("tree", "serial"):
        plan = PimPlan(sp=2, ds=2, format="coo", fold=fold)
        call = on(graph, Extremum, x=x, reduce="max")
        ours, sums = machine.extremum(graph, call, plan)[1], machine.aggregate(graph, x, plan)[1]
        assert ours.total_ns == pytest.approx(sums.total_ns, rel=1e-12)
        # On the machine as it is a comparison takes less than an add of floats.
        assert MACHINE.extremum(graph, call, plan)[1].total_ns < sums.total_ns


def test_the_plan_is_the_fastest_of_all_that_fit() -> None:
    graph = HOSTILE["uniform"]
    size = AttentionSize(rule="gat", heads=4, width=16, key_width=1, dtype=torch.float32)
    shapes = MACHINE.shapes(graph)
    best = OnCores(size).plan(MACHINE.config, shapes)
    assert best is not None
    took = OnCores(size).cost(MACHINE.config, best, shapes).total_ns
    for sp, ds in ((1, 4), (2, 2), (4, 1)):
        for balance in ("row", "edge"):
            other = PimPlan(sp=sp, ds=ds, core_balance=balance, thread_balance=balance)
            assert took <= OnCores(size).cost(MACHINE.config, other, shapes).total_ns


def test_wide_rows_take_fewer_tasklets_and_what_fits_nowhere_is_refused() -> None:
    graph = HOSTILE["uniform"]
    size = AttentionSize(rule="dot", heads=1, width=1500, key_width=1500, dtype=torch.float32)
    plan = OnCores(size).plan(MACHINE.config, MACHINE.shapes(graph))
    assert plan is not None
    assert plan.tasklets == 2
    with pytest.raises(MachineMemoryError, match="WRAM"):
        OnCores(size).cost(MACHINE.config, PimPlan(sp=4, ds=1), MACHINE.shapes(graph))
    wider = AttentionSize(rule="dot", heads=1, width=9000, key_width=9000, dtype=torch.float32)
    assert "under no plan" in str(MACHINE.refuse_attention(graph, wider))
    tiny = Machine(small().with_(mram_bytes=4096))
    with pytest.raises(MachineMemoryError, match="MRAM"):
        OnCores(size).cost(tiny.config, PLANS[0], tiny.shapes(graph))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "coo"}, "format of attention in float32 must be csr, not coo"),
        ({"rounds": 2}, "rounds of attention"),
        ({"dtype": "int16"}, "dtype of attention in float32 must be float32, not int16"),
        ({"tasklets": 99}, "tasklets must be at most 24"),
        ({"sp": 3}, "clusters cannot be placed"),
    ],
)
def test_plans_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    graph = HOSTILE["uniform"]
    given = operands(graph, "gat", 2, 4, edges=False, masked=False, dtype=torch.float32)
    with pytest.raises(ArgumentError, match=message):
        MACHINE.attention(
            graph, on(graph, Attention, rule="gat", **given), PimPlan(**{"sp": 4, "ds": 1, **change})
        )


def test_machines_without_functions_say_so() -> None:
    graph, x = HOSTILE["uniform"], torch.ones(100, 4, device=CPU)
    for name in ("aim_like", "hbm_pim_like"):
        with pytest.raises(ArgumentError, match=r"no float32|gives no functions|has max, min"):
            Machine(preset(name)).extremum(graph, on(graph, Extremum, x=x, reduce="max"))
    quantised = Machine(small(), dtype="int16")
    with pytest.raises(ArgumentError, match="has sums alone of int16"):
        quantised.extremum(graph, on(graph, Extremum, x=x, reduce="max"))
    with pytest.raises(ArgumentError, match=r"float32 and float64, not of torch\.int32"):
        MACHINE.extremum(graph, on(graph, Extremum, x=x.int(), reduce="max"))
    given = operands(graph, "gat", 2, 4, edges=False, masked=False, dtype=torch.float32)
    seeds = torch.zeros(1, dtype=torch.int64, device=CPU)
    with pytest.raises(ArgumentError, match="no dropout of its own"):
        MACHINE.attention(graph, on(graph, Attention, rule="gat", **given, dropout=0.5, seeds=seeds))
    vectors = operands(graph, "dot", 2, 4, edges=False, masked=False, dtype=torch.float32)
    edge = torch.ones(graph.num_edges, 2, 4, device=CPU)
    with pytest.raises(ArgumentError, match="edges have features"):
        MACHINE.attention(graph, on(graph, Attention, rule="dot", **vectors, edge=edge))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("shape", [(2, 0), (0, 4)], ids=["no columns", "no heads"])
def test_nothing_to_do_takes_no_time(rule: str, shape: tuple[int, int]) -> None:
    graph = HOSTILE["uniform"]
    given = operands(graph, rule, *shape, edges=False, masked=False, dtype=torch.float32)
    (out, _), report = MACHINE.attention(graph, on(graph, Attention, rule=rule, **given))
    assert out.shape == (100, *shape)
    assert report.total_ns == 0
    empty = torch.empty(100, 0, device=CPU)
    largest, _ = MACHINE.extremum(graph, on(graph, Extremum, x=empty, reduce="max"))
    assert largest.shape == (100, 0)


def test_reports_name_the_operator_and_serialise() -> None:
    graph = HOSTILE["uniform"]
    given = operands(graph, "gat", 2, 4, edges=False, masked=False, dtype=torch.float32)
    _, report = MACHINE.attention(graph, on(graph, Attention, rule="gat", **given))
    told = report.as_dict()
    assert (told["operator"], told["rule"], told["heads"]) == ("attention", "gat", 2)
    assert "attention" in report.table()
    assert report.timeline.end_ns > 0
