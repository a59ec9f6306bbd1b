"""Generated kernels: made, tried, kept and taken in; and everything that can be wrong with a compiler."""

import dataclasses
import multiprocessing
import re

import pytest
import torch
from hypothesis import given, settings, strategies as st

from onehop import ArgumentError, Graph, native, processor
from onehop.backends.cpu import CpuBackend
from onehop.backends.reference import ReferenceBackend
from onehop.calls import Aggregate, on
from onehop.kernels.cpu import generated
from onehop.plans import CpuPlan
from onehop.tuner.codegen.builder import CodegenError, build, find_compiler
from onehop.tuner.codegen.generation import wrong_result
from onehop.tuner.codegen.spec import Spec
from tests.graph.strategies import edge_lists
from tests.ops.hostile_graphs import HOSTILE
from tests.tuner.fake_compilers import REAL, calls
from tests.tuner.test_plan_axes import PLANS, operands

needs_compiler = pytest.mark.skipif(REAL is None, reason="no C++ compiler is installed")
TIMEOUT_S = 1e5


def spec(kind="sum", width=17, dtype="float32", **fields):
    return Spec(kind, dtype, width, width, **{"prefetch": 8, **fields})


def make(wanted):
    return build(wanted, find_compiler(), TIMEOUT_S)


@needs_compiler
@pytest.mark.parametrize("name", HOSTILE)
def test_sums_are_the_references(name):
    edge_index, num_src, num_dst = HOSTILE[name]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    x, weight = operands(graph, 17)
    plan = CpuPlan(edges_per_item=16, prefetch=8, generated=make(spec(dtype="float64", chains=2)))
    scale = torch.arange(1.0, num_dst + 1, dtype=torch.float64)
    for operands_of in ({"dst_scale": scale, "mean": True}, {"weight": weight}):
        call = on(graph, Aggregate, x=x, **operands_of)
        found = CpuBackend(plan).run(graph, call)
        assert torch.allclose(found, ReferenceBackend().run(graph, call), rtol=1e-14)


# Fewer columns than lanes, ragged ends, one block and several; every hint, distances, chains.
SPECS = [
    spec(width=1),
    spec(width=3, chains=4, keep="nta"),
    spec(width=17, prefetch=0),
    spec(width=63, keep="t0", prefetch=64),
    spec(width=64, chains=4, block=7),
    spec(width=100, block=3, keep="t2"),
    spec(width=33, dtype="float64", chains=2),
    spec(width=48, dtype="bfloat16"),
    spec(width=31, dtype="float16", chains=2),
    spec("extremum", 17),
    spec("extremum", 100, block=5),
    spec("extremum", 24, "bfloat16"),
    spec("extremum", 9, "float64"),
]


@needs_compiler
@pytest.mark.parametrize("wanted", SPECS, ids=lambda s: s.title)
def test_every_choice_gives_the_reference(wanted):
    plan = CpuPlan(generated=make(wanted), prefetch=wanted.prefetch)
    assert wrong_result(plan, wanted.kind, wanted.columns, getattr(torch, wanted.dtype)) is None


@pytest.fixture(scope="module")
def kept_kernel(tmp_path_factory):
    """A kernel for all examples of a test, and the cache folder that it lies in."""
    folder = str(tmp_path_factory.mktemp("kernels"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONEHOP_CACHE_DIR", folder)
        return make(spec(dtype="float64", chains=2)), folder


@needs_compiler
@settings(max_examples=25, deadline=None)
@given(edge_lists(), PLANS, st.sampled_from(["sum", "mean"]), st.booleans())
def test_every_plan_with_a_generated_kernel_gives_the_reference(kept_kernel, case, plan, reduce, weighted):
    edge_index, (num_src, num_dst) = case
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    x, weight = operands(graph, 17)
    weight = weight if weighted else None
    name, folder = kept_kernel
    call = on(graph, Aggregate, x=x, weight=weight, mean=reduce == "mean")
    expected = ReferenceBackend().run(graph, call)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONEHOP_CACHE_DIR", folder)
        assert generated.why_not(name) is None
        backend = CpuBackend(dataclasses.replace(plan, column_tile=0, generated=name))
        torch.testing.assert_close(backend.run(graph, call), expected, rtol=1e-14, atol=1e-13)


@needs_compiler
def test_tiles_and_orders_and_other_widths_run_with_it_or_without(generator):
    graph = Graph.from_edge_index(torch.randint(0, 90, (2, 900), generator=generator), num_nodes=90)
    name = make(Spec("sum", "float32", 16, 40, 8))
    plan = CpuPlan(column_tile=16, ordering="degree", edges_per_item=64, generated=name)
    # Tiles of 16, 16 and 8 columns: the last, and all of 41, are the built-in kernel's.
    for width in (40, 41):
        x, weight = operands(graph, width, torch.float32)
        call = on(graph, Aggregate, x=x, weight=weight)
        expected = CpuBackend(CpuPlan()).run(graph, call)
        assert torch.equal(CpuBackend(plan).run(graph, call), expected)


@needs_compiler
def test_it_is_what_runs(with_compiler, generator, monkeypatch, tmp_path):
    """A wrong kernel, let through on purpose, shows that it was used: for its width and layout alone."""
    with_compiler("wrong")
    content = tmp_path / "content.py"
    content.write_text("")
    monkeypatch.setattr("onehop.tuner.codegen.builder._TRIAL", content)  # finds nothing wrong
    graph = Graph.from_edge_index(torch.randint(0, 30, (2, 200), generator=generator), num_nodes=30)
    plan = CpuPlan(generated=make(spec(width=8)))
    right = CpuBackend(CpuPlan())

    def ratio(x, dtype=torch.float32, weight=None):
        call = on(graph, Aggregate, x=x.to(dtype), weight=weight)
        return (CpuBackend(plan).run(graph, call).sum() / right.run(graph, call).sum()).item()

    x = torch.ones(30, 8)
    assert ratio(x) == ratio(x, weight=torch.ones(200)) == 2
    assert ratio(torch.ones(30, 9)) == ratio(torch.ones(30, 16)[:, :8]) == ratio(x, torch.float64) == 1


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("failing", "failed with code 1: kernel.cpp:1: error: no such luck"),
        ("silent", "said that all is well, and made no library"),
        ("empty", "the trial of the kernel failed"),
        pytest.param("wrong", "its results are wrong: row 0, column 0", marks=needs_compiler),
        pytest.param("crashing", "the trial of the kernel failed with signal", marks=needs_compiler),
    ],
)
def test_a_compiler_that_fails_or_makes_bad_kernels_is_told_of(with_compiler, kind, message):
    with_compiler(kind)
    with pytest.raises(CodegenError, match=message):
        make(spec(width=4))
    assert list(generated.path_of("any").parent.iterdir()) == []


@needs_compiler
def test_what_the_trial_lets_through_the_reference_does_not(with_compiler):
    with_compiler("sly")
    name = make(spec(width=4))
    assert wrong_result(CpuPlan(generated=name), "sum", 4, torch.float32) == "a sum"


def test_a_compiler_that_hangs_is_stopped(with_compiler):
    with_compiler("hanging")
    with pytest.raises(CodegenError, match=r"was stopped: it was not done after 0.3 s"):
        build(spec(), find_compiler(), 0.3)


def test_no_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(CodegenError, match=r"no C\+\+ compiler was found \(none of c\+\+, g\+\+, clang\+\+"):
        find_compiler()
    monkeypatch.setenv("CXX", "no-such-compiler -v")
    with pytest.raises(CodegenError, match=r"neither \$CXX \(no-such-compiler -v\) nor"):
        find_compiler()


@needs_compiler
def test_a_kernel_is_made_once(with_compiler):
    log = with_compiler("honest")
    first = make(spec(width=4))
    assert make(spec(width=4)) == first
    assert calls(log) == 1
    assert make(spec(width=4, keep="nta")) != first
    assert calls(log) == 2


@needs_compiler
def test_the_compiler_and_its_flags_are_part_of_the_name(with_compiler):
    wanted, compiler = spec(width=4), find_compiler()
    other = dataclasses.replace(compiler, version=f"{compiler.version} and a half")
    assert build(wanted, compiler, TIMEOUT_S) != build(wanted, other, TIMEOUT_S)


@needs_compiler
def test_several_processes_make_one_kernel(with_compiler):
    log = with_compiler("honest")
    context = multiprocessing.get_context("fork")
    builders = [context.Process(target=make, args=(spec(width=4),)) for _ in range(4)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join()
    assert [builder.exitcode for builder in builders] == [0] * 4
    before = calls(log)
    assert generated.why_not(make(spec(width=4))) is None
    assert calls(log) == before
    assert len(list(generated.path_of("any").parent.iterdir())) == 1


@needs_compiler
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file: file.unlink(), "cannot be read"),
        (lambda file: file.write_bytes(file.read_bytes()[:-100]), "is truncated or damaged"),
        (lambda file: file.write_bytes(b""), "is truncated or damaged"),
        (lambda file: file.write_bytes(b"\x00" * 500 + file.read_bytes()[500:]), "is damaged"),
    ],
    ids=["missing", "truncated", "empty", "overwritten"],
)
def test_without_its_file_the_built_in_kernel_runs(damage, message, caplog):
    name = make(spec(width=8))
    damage(generated.path_of(name))
    generated.forget()
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 0]]))
    x = torch.ones(3, 8)
    for _ in range(2):
        assert torch.equal(CpuBackend(CpuPlan(generated=name)).run(graph, on(graph, Aggregate, x=x)), x)
    assert len(caplog.records) == 1
    assert message in caplog.text
    assert "built-in kernels run" in caplog.text
    assert make(spec(width=8)) == name  # made anew
    assert generated.why_not(name) is None


@needs_compiler
def test_another_processors_kernel_is_not_loaded(monkeypatch):
    name = make(spec(width=8))
    generated.forget()
    monkeypatch.setattr(processor, "features", lambda: "none at all")
    assert "was compiled for another processor" in generated.why_not(name)


@needs_compiler
def test_another_versions_kernel_is_not_loaded(tmp_path, monkeypatch):
    templates = native.extension.kernel_templates()
    changed = [(n, re.sub(r"kGeneratedVersion = \d+;", "kGeneratedVersion = 0;", t)) for n, t in templates]
    assert changed != templates
    monkeypatch.setattr(native.extension, "kernel_templates", lambda: changed)
    with pytest.raises(CodegenError, match="is of another version of onehop"):
        make(spec(width=8))


def test_a_folder_that_cannot_be_made(own_cache, with_compiler):
    with_compiler("silent")
    own_cache.write_text("in the way")
    with pytest.raises(CodegenError, match="cannot be written"):
        make(spec())


@pytest.mark.parametrize("name", ["../../evil", "a.so", "A", 3])
def test_names_that_are_no_files_here_are_refused(name):
    with pytest.raises(ArgumentError, match="generated must be a kernel's name"):
        CpuPlan(generated=name)


@needs_compiler
def test_every_instruction_set_has_kernels_of_its_own():
    before, names = native.extension.selected_isa(), []
    try:
        for isa in native.extension.available_isas():
            native.extension.select_isa(isa)
            names.append(make(spec(width=24, chains=2)))
            plan = CpuPlan(generated=names[-1])
            assert isa in names[-1]
            assert wrong_result(plan, "sum", 24, torch.float32) is None
    finally:
        native.extension.select_isa(before)
    assert len(set(names)) == len(names)
