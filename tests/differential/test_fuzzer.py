"""The fuzzer itself: it repeats itself, sees what differs, and makes it small."""

import dataclasses
import os
import signal

import pytest
import torch

from onehop.integrations.pyg.aggregation import Aggregation
from tests.differential import isolated
from tests.differential.calls import CONTEXTS, Call
from tests.differential.check import difference
from tests.differential.generate import generate
from tests.differential.gradients import Backward
from tests.differential.layers import KINDS
from tests.differential.lives import ALTERATIONS, CHANGES, HOOKS, PATCHES, Free
from tests.differential.program import Features, Layer, Model, Program, specs_in
from tests.differential.shrink import shrunk, smaller
from tests.differential.writes import WRITES, WriteOutput

_PLAIN = Program(
    steps=(Free(), Call(times=2), Backward(), Free()),
    models=(Model(layers=(Layer("Plain"), Layer("SAGEConv", out=5))),),
    features=(Features(grad="leaf"), Features()),
    tight=False,
)


@pytest.fixture
def broken(monkeypatch):
    """Replaces the fast path by one that changes what it gives out."""

    def replace(change):
        run = Aggregation.run
        monkeypatch.setattr(Aggregation, "run", lambda self: change(run(self)))

    return replace


def test_a_seed_gives_the_same_program_every_time():
    assert generate(7) == generate(7)
    assert generate(7) != generate(8)


def test_a_program_prints_as_the_python_that_makes_it():
    import tests.differential as package
    from tests.differential import calls, gradients, lives, program, writes

    names = {
        name: each
        for module in (calls, gradients, lives, program, writes)
        for name, each in vars(module).items()
    }
    assert package.__doc__
    for seed in range(50):
        made = generate(seed)
        assert eval(made.listed(), names) == made


def test_programs_meet_every_layer_context_and_idiom():
    met = {
        value
        for seed in range(3000)
        for spec in specs_in(generate(seed))
        for value in vars(spec).values()
        if isinstance(value, str)
    }
    for table in (KINDS, CONTEXTS, ALTERATIONS, CHANGES, HOOKS, PATCHES, WRITES):
        assert set(table) <= met


def test_a_program_that_does_the_same_is_no_difference():
    assert difference(_PLAIN) is None


@pytest.mark.parametrize(
    ("sort", "change"),
    [
        ("numbers", lambda out: out * (1 + 1e-7)),
        ("numbers", lambda out: out.detach() + 0 * out),
        ("requires_grad", lambda out: out.detach()),
        ("dtype", lambda out: out.float()),
        ("shape", lambda out: out[:-1]),
        ("is_contiguous", lambda out: out.t().contiguous().t()),
        ("chance", lambda out: out + 0 * torch.rand(1)),
    ],
)
def test_a_changed_result_is_seen(sort, change, broken):
    broken(change)
    program = dataclasses.replace(_PLAIN, models=(Model(layers=(Layer("Plain"),)),))
    found = difference(program)
    assert found is not None
    assert sort in {line.split(":")[0] for line in found.what}


def test_an_exception_is_seen(broken):
    def fail(out):
        raise KeyError("planted")

    broken(fail)
    found = difference(_PLAIN)
    assert found is not None
    assert found.sort == "error"
    assert "KeyError" in found.what[0]


def test_shared_memory_is_seen(broken):
    kept = {}
    broken(lambda out: kept.setdefault("out", out))
    program = Program(steps=(Call(times=2),), models=(Model(layers=(Layer("Plain"),)),), tight=False)
    found = difference(program)
    assert found is not None
    assert found.sort == "memory"


def test_what_a_layer_writes_to_its_own_output_is_no_difference(broken):
    def write(out):
        with torch.no_grad():
            out.mul_(1.0)
        return out

    program = Program(
        steps=(Call(), WriteOutput(how="zero"), Call()), models=(Model(layers=(Layer("Updating"),)),)
    )
    assert difference(program) is None
    broken(write)
    assert difference(program) is None  # the version of an output counts from when it came out


def test_rounding_is_no_difference(broken):
    broken(lambda out: out * (1 + 4 * torch.finfo(out.dtype).eps))
    assert difference(_PLAIN) is None


def test_a_crash_is_a_difference_and_the_programs_after_it_run(monkeypatch):
    crashing = dataclasses.replace(_PLAIN, seed=13)

    def verdict(program, kind):
        if program == crashing:
            os.kill(os.getpid(), signal.SIGKILL)
        return None

    monkeypatch.setattr(isolated, "_verdict", verdict)
    programs = [_PLAIN, crashing, _PLAIN]
    found = [each for _, each in isolated.judged(programs, lambda each: each)]
    assert [None if each is None else each.sort for each in found] == [None, "died", None]
    assert "SIGKILL" in found[1].what[0]


def test_shrinking_leaves_what_is_needed(broken):
    broken(lambda out: out * 2)
    found = difference(_PLAIN)
    assert found is not None
    small, same = shrunk(_PLAIN, found, difference, smaller, seconds=60.0)
    assert same.sort == found.sort
    assert len(small.steps) == 1
    assert isinstance(small.steps[0], Call)
    assert small.steps[0].times == 1
    assert len(small.models[0].layers) == 1
    assert len(small.features) == 1
    assert difference(small) is not None
