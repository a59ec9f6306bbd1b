"""``onehop.tune(..., codegen=True)``: generated kernels among the candidates, and what is told of them."""

import dataclasses
import math

import pytest
import torch

import onehop
from onehop import Graph, TuningResult
from onehop.backends import backend_for
from onehop.backends.cpu import CpuBackend
from onehop.calls import Aggregate, on
from onehop.integrations.tuning import plan_text
from onehop.kernels.cpu import generated
from onehop.plans import tuned
from onehop.tuner.codegen import generation
from onehop.tuner.codegen.builder import CodegenError
from onehop.tuner.speeds import speeds
from tests.tuner.fake_compilers import REAL, calls

pytestmark = [
    pytest.mark.skipif(REAL is None, reason="no C++ compiler is installed"),
    pytest.mark.usefixtures("_calibrated"),
]
CPU = torch.device("cpu")
# Without an end: the clock is not what is tested.
BUDGET_S = 1e5


@pytest.fixture(scope="module")
def graph():
    generator = torch.Generator().manual_seed(0)
    return Graph.from_edge_index(torch.randint(0, 500, (2, 8000), generator=generator), num_nodes=500)


@pytest.fixture
def every_choice():
    """For tests that wait for all kernels to be compiled."""


@pytest.fixture(autouse=True)
def _one_kernel(request, monkeypatch):
    """One kernel a search, unless a test is about the others."""
    if "every_choice" not in request.fixturenames:
        monkeypatch.setattr(generation, "_CHAINS", (1,))
        monkeypatch.setattr(generation.Generation, "_variants", lambda self, spec: [])


def faster(plan):
    return 1e-3 if plan.generated else 2e-3


def slower(plan):
    return 2e-3 if plan.generated else 1e-3


def tune(graph, **arguments):
    given = {"width": 16, "backward": False, "budget_s": BUDGET_S, "codegen": True}
    return onehop.tune(graph, **given | arguments)


def text(graph, width=16):
    return plan_text(backend_for(CPU, torch.float32), graph, "sum", width, torch.float32)


def test_a_faster_kernel_is_chosen_kept_and_used(graph, pretend, generator):
    pretend(faster)
    x = torch.randn(500, 16, generator=generator)
    before = onehop.aggregate(graph, x)
    result = tune(graph)
    assert result.plan.generated.startswith("sum-float32-16of16-")
    assert "generated kernel, 2.00x the best built-in one" in str(result)
    assert TuningResult.from_json(result.to_json()) == result
    tuned.forget()  # as another process
    generated.forget()
    assert CpuBackend().plan_of_sum(graph, False, 16, torch.float32) == result.plan
    assert generated.why_not(result.plan.generated) is None
    torch.testing.assert_close(onehop.aggregate(graph, x), before)
    assert "generated kernel, 2.00x" in text(graph)
    assert "so the built-in one runs" not in text(graph)
    assert "its generated kernel is for width 16 alone, so the built-in one runs" in text(graph, 18)


def test_chains_hints_and_distances_are_tried(graph, pretend, every_choice):
    tried = set()

    def cost(plan):
        tried.add(plan.generated)
        return (2e-3 if "-x2-" not in plan.generated else 1.5e-3) - ("-nta-" in plan.generated) * 0.5e-3

    pretend(cost)
    result = tune(graph)
    assert "-nta-x2-" in result.plan.generated
    names = [name.split("-") for name in tried if name]
    assert {name[5] for name in names} == {"x1", "x2", "x4"}
    assert {name[4] for name in names} == {"t0", "t1", "t2", "nta"}
    assert len({name[3] for name in names}) == 3


@pytest.mark.parametrize(("reduce", "kind"), [("mean", "sum"), ("max", "extremum"), ("min", "extremum")])
def test_every_reduction_has_kernels(graph, pretend, reduce, kind):
    pretend(faster)
    result = tune(graph, reduce=reduce, backward=True)
    assert result.entries[0].plan.generated.split("-")[0] == kind
    if kind == "sum":
        assert result.entries[1].plan.generated
    else:
        assert "generated for sums and extrema, not for extremum_grad" in result.entries[1].codegen


def test_a_slower_kernel_is_not_used(graph, pretend):
    pretend(slower)
    result = tune(graph)
    assert result.plan.generated == ""
    assert "generated kernels measured: the built-in one is used" in result.entries[0].codegen


def test_a_kernel_that_is_faster_by_chance_is_not_used(graph, pretend):
    seen = []

    def cost(plan):
        seen.append(plan)
        return 1e-3 if plan.generated and seen.count(plan) <= 5 else 2e-3

    pretend(cost)
    result = tune(graph)
    assert result.plan.generated == ""
    assert "the best 1.00x the built-in one: the built-in one is used" in result.entries[0].codegen


def test_without_a_compiler_there_is_a_sentence_and_a_plan(graph, pretend, monkeypatch, tmp_path):
    pretend(faster)
    monkeypatch.setenv("PATH", str(tmp_path))
    result = tune(graph)
    assert result.plan.generated == ""
    assert "no kernel was generated: no C++ compiler was found" in result.details()
    assert "the built-in ones are used" in result.details()
    monkeypatch.undo()  # one is installed
    pretend(faster)
    assert tune(graph).plan.generated


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("failing", "failed with code 1: kernel.cpp:1: error: no such luck"),
        ("sly", "made a kernel that gets a sum wrong"),
    ],
)
def test_bad_compilers_are_told_of_and_the_built_in_kernel_used(graph, pretend, with_compiler, kind, message):
    with_compiler(kind)
    pretend(faster)
    result = tune(graph)
    assert result.plan.generated == ""
    assert message in result.entries[0].codegen
    assert list(generated.path_of("any").parent.iterdir()) == []


def test_a_compiler_that_hangs_is_stopped_and_not_called_again(graph, pretend, with_compiler, monkeypatch):
    log = with_compiler("hanging")
    pretend(faster)
    monkeypatch.setattr(generation, "_LONGEST_COMPILE_S", 0.2)
    result = tune(graph)
    assert "was stopped: it was not done after 0.2 s" in result.entries[0].codegen
    assert (result.plan.generated, calls(log)) == ("", 1)


def test_a_fault_after_the_first_kernels_leaves_them_in_the_race(graph, pretend, monkeypatch):
    pretend(faster)
    first = tune(graph)
    made = []

    def build_once(spec, program, timeout_s):
        made.append(spec)
        if len(made) > 1:
            raise CodegenError("out of ink")
        return first.plan.generated

    monkeypatch.setattr(generation, "_CHAINS", (1, 2, 4))
    monkeypatch.setattr(generation, "build", build_once)
    result = tune(graph, again=True)
    assert result.plan.generated == first.plan.generated
    assert result.entries[0].codegen == "generated kernel, 2.00x the best built-in one (out of ink)"
    assert len(made) == 2


def test_what_was_generated_is_made_again_when_it_is_lost_but_by_tuning_alone(
    graph, pretend, with_compiler, caplog
):
    log = with_compiler("honest")
    pretend(faster)
    first = tune(graph)
    made = calls(log)
    assert tune(graph).entries == first.entries
    generated.path_of(first.plan.generated).unlink()
    generated.forget()
    tuned.forget()
    onehop.aggregate(graph, torch.ones(500, 16))
    assert "cannot be read (No such file or directory), so the built-in one runs" in text(graph)
    assert "Tune with codegen=True to make it anew" in caplog.text
    assert onehop.tune(graph, 16, backward=False, budget_s=BUDGET_S).entries == first.entries
    assert calls(log) == made
    assert tune(graph).plan.generated == first.plan.generated
    assert calls(log) > made
    assert "so the built-in one runs" not in text(graph)


def test_what_was_tuned_without_is_tuned_with(graph, pretend):
    pretend(faster)
    assert tune(graph, codegen=False).plan.generated == ""
    assert tune(graph).plan.generated
    assert onehop.tune(graph, 16, backward=False, budget_s=BUDGET_S).plan.generated


def test_lossy_storage_has_kernels_of_its_own(graph, pretend, generator, monkeypatch):
    pretend(lambda plan: faster(plan) * (0.5 if plan.storage == "bfloat16" else 1))
    # What the model predicts depends on this machine's speeds.
    monkeypatch.setattr("onehop.tuner.search._HOPELESS", math.inf)
    plan = tune(graph, lossy=True).plan
    assert plan.generated.startswith("sum-bfloat16-16of16-")
    x = torch.randn(500, 16, generator=generator)
    built_in = CpuBackend(dataclasses.replace(plan, generated=""))
    expected = built_in.run(graph, on(graph, Aggregate, x=x))
    torch.testing.assert_close(onehop.aggregate(graph, x), expected)


def test_an_interruption_leaves_the_built_in_plan(graph, pretend):
    def cost(plan):
        if plan.generated:
            raise KeyboardInterrupt
        return 1e-3 if plan.edges_per_item == 512 else 2e-3

    pretend(cost)
    with pytest.raises(KeyboardInterrupt):
        tune(graph)
    known = tuned.known(tuned.case_of(graph, "sum", False, 16, torch.float32))
    assert (known.plan.edges_per_item, known.plan.generated) == (512, "")
    assert (known.finished, known.raced) == (True, False)


def test_operations_without_a_template_say_so(graph, pretend):
    pretend(faster)
    assert "not for sddmm" in tune(graph, op="sddmm").entries[0].codegen


def test_each_instruction_set_is_tuned_on_its_own(graph, pretend):
    pretend(faster)
    before, found = onehop.native.extension.selected_isa(), {}
    try:
        for isa in onehop.native.extension.available_isas():
            onehop.native.extension.select_isa(isa)
            assert "-" + isa not in CpuBackend().plan_of_sum(graph, False, 16, torch.float32).generated
            speeds(torch.get_num_threads(), isa)
            result = tune(graph)
            assert result.entries[0].case.isa == isa
            found[isa] = result.plan
        for isa, plan in found.items():
            onehop.native.extension.select_isa(isa)
            assert CpuBackend().plan_of_sum(graph, False, 16, torch.float32) == plan
            assert isa in plan.generated
    finally:
        onehop.native.extension.select_isa(before)
    assert len({plan.generated for plan in found.values()}) == len(found)
