"""Tuning of GPU plans: the search by a cost that the test sets, and calls in Triton's interpreter."""

import dataclasses
import json

import pytest
import torch

import onehop
from onehop import Graph, TuningResult
from onehop.backends.triton import TritonBackend
from onehop.errors import ArgumentError, ConfigurationError
from onehop.kernels.triton import availability
from onehop.plans import TritonPlan, gpu_tuned, store
from onehop.plans.cases import gpu_case_of, shape_class
from onehop.plans.entry import Tuned
from onehop.tuner.gpu import candidates
from onehop.tuner.gpu.target import PAYBACK_RUNS, GpuTactics

pytestmark = [
    pytest.mark.skipif(availability.not_installed() is not None, reason="no triton for them"),
    pytest.mark.usefixtures("interpreter"),
]

CPU = torch.device("cpu")


@pytest.fixture
def graph():
    generator = torch.Generator().manual_seed(0)
    return Graph.from_edge_index(torch.randint(0, 40, (2, 300), generator=generator), 40)


@pytest.fixture
def small():
    return Graph.from_edge_index(torch.tensor([[0, 1, 2, 2, 2], [1, 1, 0, 3, 0]]), 4)


def eight_warps(plan):
    return 1e-3 if plan.num_warps == 8 else 2e-3


def in_rcm(plan):
    return 1e-3 if plan.ordering == "rcm" else 2e-3


def tune(graph, width, *operation, **options):
    """No clock decides a test."""
    return onehop.tune(graph, width, *operation, device="cuda", budget_s=1e6, **options)


def tuned_plan(graph, width=16, dtype=torch.float32, operation="sum", transposed=False, heads=1):
    """What the backend would use."""
    return TritonBackend().plan_for(graph, operation, transposed, width, heads, dtype, CPU)


@pytest.fixture
def tuned_to(graph, monkeypatch):
    """Tunes where plans take what a function says; nothing is run."""

    def run(cost, width=16, *operation, graph=graph, backward=False, **options):
        monkeypatch.setattr("onehop.tuner.gpu.target.seconds_of", lambda call, plan, device: cost(plan))
        monkeypatch.setattr(GpuTactics, "_runs", lambda self, call, plan: True)
        return tune(graph, width, *operation, backward=backward, **options)

    return run


def default_plan(graph, width=16, operation="sum", heads=1):
    return TritonBackend.default_for(graph, operation, False, width, heads, torch.float32)


def test_the_cheapest_plan_is_found_kept_and_used(graph, tuned_to):
    best = dataclasses.replace(default_plan(graph), num_warps=4, num_stages=3, split_edges=512)
    fields = ("num_warps", "num_stages", "split_edges")

    def cost(plan):
        return 1e-3 * (1 + sum(getattr(plan, name) != getattr(best, name) for name in fields))

    result = tuned_to(cost, backward=True)
    assert [(e.case.operation, e.case.transposed) for e in result.entries] == [("sum", False), ("sum", True)]
    assert result.plan == best
    assert result.entries[0].speedup == pytest.approx(cost(default_plan(graph)) / 1e-3)
    assert result.entries[0].finished
    assert tuned_plan(graph) == best
    gpu_tuned.forget()  # as another process
    assert tuned_plan(graph) == best
    again = tune(graph, 16)
    assert again.entries == result.entries


def test_the_mapping_and_torchs_own_are_among_the_candidates(tuned_to):
    assert tuned_to(lambda plan: 1e-3 if plan.mapping == "feature" else 2e-3).plan.mapping == "feature"
    found = tuned_to(lambda plan: 1e-3 if plan.variant == "torch_csr" else 2e-3, again=True)
    assert found.plan.variant == "torch_csr"


@pytest.mark.parametrize(
    ("op", "reduce", "heads", "operations"),
    [
        ("aggregate", "mean", 1, [("sum", False), ("sum", True)]),
        ("aggregate", "max", 1, [("extremum", False), ("extremum_grad", True)]),
        ("sddmm", "sum", 2, [("sddmm", False)]),
        ("edge_softmax", "sum", 1, [("edge_softmax", False)]),
        ("attention", "sum", 2, [("attention", False), ("attention_grad", False)]),
        ("gat", "sum", 2, [("gat", False), ("gat_grad", False)]),
        ("gatv2", "sum", 2, [("gatv2", False), ("gatv2_grad", False)]),
    ],
)
def test_every_operation_runs_in_the_interpreter(op, reduce, heads, operations, monkeypatch, small):
    """Every plan runs once, before it would be timed."""
    ran = []
    runs = GpuTactics._runs
    monkeypatch.setattr(
        GpuTactics, "_runs", lambda self, call, plan: ran.append(plan) or runs(self, call, plan)
    )
    monkeypatch.setattr("onehop.tuner.gpu.target.seconds_of", lambda call, plan, device: eight_warps(plan))
    monkeypatch.setattr(candidates, "_WARPS", (2, 8))
    result = tune(small, 4, op, reduce, heads=heads, fields=["num_warps"])
    assert [(e.case.operation, e.case.transposed) for e in result.entries] == operations
    for entry in result.entries:
        assert entry.plan.num_warps == 8
        assert entry.case.heads == heads
        case = entry.case
        used = tuned_plan(small, 4, operation=case.operation, transposed=case.transposed, heads=heads)
        assert used.num_warps == 8
    assert set(ran) >= {entry.plan for entry in result.entries}


@pytest.mark.parametrize(("op", "heads"), [("aggregate", 1), ("gatv2", 2)])
def test_every_candidate_gives_the_same_result(op, heads, monkeypatch):
    first, orderings = {}, set()

    def compared(self, call, plan):
        found = call(plan)
        expected = first.setdefault((self.task.case.operation, self.task.case.transposed), found)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        orderings.add(plan.ordering)
        return True

    monkeypatch.setattr(GpuTactics, "_runs", compared)
    monkeypatch.setattr("onehop.tuner.gpu.target.seconds_of", lambda call, plan, device: 1e-3)
    monkeypatch.setattr(candidates, "LEAST_ORDERED_EDGES", 1)
    generator = torch.Generator().manual_seed(0)
    graph = Graph.from_edge_index(torch.randint(0, 12, (2, 40), generator=generator), 12)
    result = tune(graph, 8, op, heads=heads)
    assert [entry.finished for entry in result.entries] == [True, True]
    assert min(entry.tried for entry in result.entries) > 20
    assert orderings == {"none", "community", "rcm", "degree"}


def test_operators_run_what_was_tuned(tuned_to, monkeypatch, small):
    tuned_to(eight_warps, 8, "gatv2", graph=small, backward=True, heads=2)
    tuned_to(eight_warps, 8, graph=small, backward=True)
    plans = []
    plan_for = TritonBackend.plan_for

    def noted(self, graph, operation, *rest):
        plan = plan_for(self, graph, operation, *rest)
        plans.append((operation, plan.num_warps))
        return plan

    monkeypatch.setattr(TritonBackend, "plan_for", noted)
    x = torch.randn(4, 2, 4, requires_grad=True)
    onehop.gatv2(small, x, x, torch.randn(2, 4), backend="triton").sum().backward()
    onehop.aggregate(small, x.flatten(1), backend="triton").sum().backward()
    assert plans == [("gatv2", 8), ("gatv2_grad", 8), ("sum", 8), ("sum", 8)]


def test_shape_classes_bring_like_graphs_together(graph, tuned_to):
    like = Graph.from_edge_index(graph.edge_index()[:, :290], 40)
    generator = torch.Generator().manual_seed(1)
    larger = Graph.from_edge_index(torch.randint(0, 90, (2, 300), generator=generator), 90)
    assert shape_class(graph) == shape_class(like) != shape_class(larger)
    tuned_to(eight_warps)
    assert tuned_plan(like).num_warps == 8
    assert tuned_plan(like, width=18).num_warps == 8
    for other in (
        tuned_plan(larger),
        tuned_plan(graph, width=32),
        tuned_plan(graph, dtype=torch.float16),
        tuned_plan(graph, transposed=True),
        tuned_plan(graph, operation="extremum"),
        tuned_plan(graph, operation="gat", heads=2),
    ):
        assert other.num_warps != 8


def test_an_untuned_graph_is_dismissed_without_its_statistics(tuned_to):
    tuned_to(lambda plan: 1e-3)
    other = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]))
    tuned_plan(other)
    assert "statistics" not in vars(other)


def test_plans_are_those_of_one_gpu_and_its_software(graph, monkeypatch, tuned_to):
    tuned_to(eight_warps)
    here = availability.machine(CPU)
    assert set(here) == {"gpu", "capability", "triton", "torch"}
    document = json.loads(store.path(here).read_text())
    assert document["machine"] == here
    for change in ({"gpu": "another GPU"}, {"capability": "9.0"}, {"triton": "1.0"}, {"torch": "1.0"}):
        gpu_tuned.forget()
        monkeypatch.setattr(availability, "machine", lambda device, change=change: {**here, **change})
        assert tuned_plan(graph).num_warps != 8
        assert not store.path({**here, **change}).exists()


def ordered(seconds, monkeypatch):
    """Every order is worth a try, and takes so long."""

    def made(graph, axes, make, budget, tick):
        for name in axes["ordering"][1:]:
            make(name)
            yield
        return dict.fromkeys(axes["ordering"][1:], seconds)

    monkeypatch.setattr(candidates, "LEAST_ORDERED_EDGES", 1)
    monkeypatch.setattr("onehop.tuner.run.make_orders", made)


def test_an_order_is_taken_only_if_it_pays_back_in_time(graph, tuned_to, monkeypatch):
    ordered(0.9 * PAYBACK_RUNS * 1e-3, monkeypatch)
    entry = tuned_to(in_rcm).entries[0]
    assert entry.plan.ordering == "rcm"
    assert entry.measured_s == pytest.approx(1e-3)
    assert entry.break_even == pytest.approx(0.9 * PAYBACK_RUNS, abs=2)
    assert set(graph.orders) == {"rcm"}, "orders that were not taken are kept"
    ordered(1.1 * PAYBACK_RUNS * 1e-3, monkeypatch)
    entry = tuned_to(in_rcm, again=True).entries[0]
    assert entry.plan.ordering == "none"
    assert entry.break_even == 0


def test_an_order_serves_its_own_graph_alone_and_when_calls_have_earned_it(graph, monkeypatch, tuned_to):
    ordered(2.5e-3, monkeypatch)
    tuned_to(in_rcm)
    assert tuned_plan(graph).ordering == "rcm"  # it is there
    like = Graph.from_edge_index(graph.edge_index()[:, :290], 40)
    assert {tuned_plan(like).ordering for _ in range(9)} == {"none"}
    same = Graph.from_edge_index(graph.edge_index(), 40)
    assert [tuned_plan(same).ordering for _ in range(5)] == ["none"] * 3 + ["rcm"] * 2


def test_no_order_is_begun_while_a_cuda_graph_is_captured(graph, monkeypatch, tuned_to):
    ordered(2.5e-3, monkeypatch)
    tuned_to(in_rcm)
    same = Graph.from_edge_index(graph.edge_index(), 40)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert {tuned_plan(same).ordering for _ in range(9)} == {"none"}
    assert tuned_plan(graph).ordering == "rcm"  # which is there


def test_a_search_that_was_cut_short_goes_on(graph, tuned_to):
    before = dataclasses.replace(default_plan(graph), num_warps=8, ordering="rcm")
    case = gpu_case_of(graph, "sum", False, 16, 1, torch.float32, availability.machine(CPU)["gpu"])
    gpu_tuned.install([Tuned(case, before, None, finished=False)], availability.machine(CPU))
    assert tuned_plan(graph) == default_plan(graph)  # it was not raced
    result = tuned_to(lambda plan: eight_warps(plan) + (plan.ordering != "none"), fields=["num_stages"])
    entry = result.entries[0]
    assert entry.plan == dataclasses.replace(before, ordering="none")  # there is no time for orders
    assert entry.finished


def test_the_picture_tells_the_gpu_and_the_graphs_own_edges(tuned_to, tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr("matplotlib.figure.Figure.suptitle", lambda self, text, **_: told.append(text))
    tuned_to(lambda plan: 1e-3, [16, 32], backward=True).plot(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 1000
    assert told == ["aggregate sum, forward and backward, float32, on 40x40 edges 300\nTriton's interpreter"]


def test_what_was_tried_leaves_nothing_with_the_graph(monkeypatch, small):
    onehop.aggregate(small, torch.randn(4, 4), backend="triton")
    before = set(small.derived)
    assert before
    monkeypatch.setattr("onehop.tuner.gpu.target.seconds_of", lambda call, plan, device: 1e-3)
    tune(small, 4, backward=False, fields=["split_edges"])
    assert set(small.derived) == before


def test_what_a_gpu_has_no_room_for_is_not_tried(graph, monkeypatch, caplog):
    from triton.runtime.errors import OutOfResources

    tried = []

    def run(self, *args):
        if self._plan is not None and self._plan.num_stages == 4:
            raise OutOfResources(300_000, 200_000, "shared memory")
        return torch.zeros(1)

    def cost(call, plan, device):
        tried.append(plan.num_stages)
        return 1e-3 / plan.num_stages

    monkeypatch.setattr(TritonBackend, "run", run)
    monkeypatch.setattr("onehop.tuner.gpu.target.seconds_of", cost)
    with caplog.at_level("INFO", "onehop"):
        result = tune(graph, 16, backward=False, fields=["num_stages"])
    assert result.plan.num_stages == 3
    assert result.entries[0].finished
    assert set(tried) == {1, 2, 3}
    assert "is not tried: out of resource: shared memory" in caplog.text


def test_tiles_that_no_thread_can_hold_are_left_out():
    assert candidates.holds(
        TritonPlan(block_edges=64, rows_per_program=64, block_features=64, num_warps=1), 64
    )
    wide = TritonPlan(block_edges=64, rows_per_program=64, block_features=128, num_warps=1)
    assert not candidates.holds(wide, 128)
    assert candidates.holds(wide, 64)  # the tile is no wider than the rows
    assert candidates.holds(dataclasses.replace(wide, num_warps=2), 128)


def test_a_result_goes_to_json_and_back_and_is_refused_elsewhere(graph, tuned_to):
    result = tuned_to(eight_warps, [16, 32], keep=False)
    assert not store.path(availability.machine(CPU)).exists()
    again = TuningResult.from_json(result.to_json())
    assert again == result
    assert "2.00x the default plan" in str(again)
    assert "predicted" not in str(again)
    gpu_tuned.forget()
    again.use()
    assert tuned_plan(graph).num_warps == 8
    elsewhere = dataclasses.replace(again, machine={**again.machine, "gpu": "another GPU"})
    with pytest.raises(ArgumentError, match="tuned on another GPU, and this is Triton's interpreter"):
        elsewhere.use()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": "abacus"}, "device: expected 'cpu' or 'cuda', got 'abacus'"),
        ({"device": "meta"}, "device: expected 'cpu' or 'cuda', got 'meta'"),
        ({"device": "cuda", "lossy": True}, "lossy: it is for the CPU's plans only"),
        ({"device": "cuda", "codegen": True}, "codegen: it is for the CPU's plans only"),
        ({"device": "cuda", "heads": 0}, "heads: expected an integer of at least 1, got 0"),
        ({"device": "cuda", "heads": 3, "op": "gat"}, "width: 16 columns cannot be shared evenly by 3"),
        ({"device": "cuda", "fields": ["prefetch"]}, "fields: expected some of ordering, short_edges"),
        ({"device": "cuda", "op": "abacus"}, "op: expected one of aggregate, .*, gatv2, got"),
        ({"device": "cuda", "dtype": torch.int32}, "dtype: the backend triton computes in float32"),
        ({"heads": 2}, "heads: they are for GPUs only"),
        ({"op": "gat"}, "op: expected one of aggregate"),
    ],
)
def test_bad_arguments(graph, arguments, message):
    with pytest.raises(ArgumentError, match=message):
        onehop.tune(graph, 16, **arguments)


def test_without_a_gpu_a_sentence_says_so(graph, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigurationError, match="device='cuda': the backend triton needs a GPU"):
        onehop.tune(graph, 16, device="cuda")
