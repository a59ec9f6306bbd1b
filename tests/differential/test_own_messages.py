"""The programs with messages of their own: they repeat themselves, run, and show what differs."""

import logging
import os
import random
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.nn import MessagePassing

import onehop
from tests.differential.generate import Chooser
from tests.differential.messages.forms import BASES, FORMS, FORWARDS, STAGES
from tests.differential.messages.generate import generate, random_part
from tests.differential.messages.judge import difference
from tests.differential.messages.program import SORTS, Part, Program
from tests.differential.messages.run import BOUNDS, run
from tests.differential.messages.script import SIZES, VALUES
from tests.differential.messages.smaller import smaller
from tests.differential.messages.steps import STEPS
from tests.differential.shrink import shrunk
from tests.processes import run_python

_COUNTING = Part("counted", ("instance", "factor"))
_PLAIN = Program(base="linear", steps=("call", "backward", "call"), size="small")
ROOT = Path(__file__).parents[2]


def _first(sort, **chosen):
    """A part of the first entry of every table, but for those that are chosen."""
    return Part(
        sort, tuple(chosen.get(name, next(iter(table))) for name, table in SORTS[sort].tables.items())
    )


_PARTS = [
    _first(sort, **{name: word})
    for sort, each in SORTS.items()
    for name, table in each.tables.items()
    for word in table
]


@pytest.fixture
def planted(monkeypatch):
    """Has the patch change what a layer gives out, and nothing else."""
    call = MessagePassing.__call__

    def plant(change):
        def changed(layer, *args, **kwargs):
            return change(layer, call(layer, *args, **kwargs))

        # The class has none of its own, and has none again afterwards: torch.fx looks for that of modules.
        monkeypatch.setattr(MessagePassing, "__call__", call)
        monkeypatch.setattr(onehop, "patch", lambda: setattr(MessagePassing, "__call__", changed))
        monkeypatch.setattr(onehop, "unpatch", lambda: setattr(MessagePassing, "__call__", call))

    return plant


def test_a_seed_gives_the_same_program_every_time():
    assert generate(7) == generate(7)
    assert generate(7) != generate(8)
    assert generate(7).text() == generate(7).text()


def test_a_program_prints_as_the_python_that_makes_it():
    for seed in range(50):
        assert eval(repr(generate(seed)), {"Program": Program, "Part": Part}) == generate(seed)


def test_programs_meet_every_word():
    met = set()
    for seed in range(3000):
        program = generate(seed)
        met |= {program.form, program.base, program.stage, program.bounds, program.values, program.size}
        met.add(program.forward)
        met |= set(program.steps)
    for table in (FORMS, FORWARDS, BASES, STAGES, BOUNDS, VALUES, SIZES, STEPS):
        assert set(table) <= met


def test_parts_meet_every_word():
    parts = [random_part(Chooser(seed)) for seed in range(25_000)]
    met = {(part.sort, word) for part in parts for word in part.words}
    assert met == {(part.sort, word) for part in _PARTS for word in part.words}


def test_every_piece_is_python():
    programs = [Program(parts=(part,)) for part in _PARTS]
    programs += [Program(base="gated", form=form, stage=stage) for form in FORMS for stage in STAGES]
    programs += [Program(forward=forward, stage=stage) for forward in FORWARDS for stage in STAGES]
    for program in programs:
        compile(program.text(), "text", "exec")


@pytest.mark.parametrize("step", sorted(STEPS.keys() - {"backward in no_grad", "layer float"}))
def test_every_step_runs(step):
    seen = run(Program(base="linear", size="small", steps=("call", step)).text(), patched=False)
    assert [each.message for each in seen if each.error] == []


def test_a_program_that_does_the_same_is_no_difference():
    assert difference(_PLAIN) is None


def _draw(layer, out):
    torch.rand(1)
    return out


def _write(layer, out):
    with torch.no_grad():
        layer.lin.weight.add_(0.0)
    return out


def _note(change):
    def noted(layer, out):
        change(layer)
        return out

    return noted


def _raise(layer, out):
    raise KeyError("planted")


@pytest.mark.parametrize(
    ("sort", "change"),
    [
        ("numbers", lambda layer, out: out * (1 + 1e-7)),
        ("requires_grad", lambda layer, out: out.detach()),
        ("dtype", lambda layer, out: out.float()),
        ("shape", lambda layer, out: out[:-1]),
        ("type", lambda layer, out: out.as_subclass(type("Other", (torch.Tensor,), {}))),
        ("error", _raise),
        ("writes", _write),
        ("state: torch's chance is", _draw),
        ("state: Python's chance is", _note(lambda layer: random.random())),
        ("state: NumPy's chance is", _note(lambda layer: np.random.rand())),  # noqa: NPY002
        ("state: what is printed is", _note(lambda layer: print("planted"))),  # noqa: T201
        ("state: what is logged is", _note(lambda layer: logging.getLogger("own").info("planted"))),
        ("state: what is warned is", _note(lambda layer: warnings.warn("own warning", stacklevel=1))),
        ("state: environment is", _note(lambda layer: os.environ.update(OWN_PLANTED="1"))),
        ("state: files is", _note(lambda layer: Path("planted.txt").write_text("1"))),
        ("state: grad mode is", _note(lambda layer: torch.set_grad_enabled(False))),
        ("state: default dtype is", _note(lambda layer: torch.set_default_dtype(torch.float64))),
        ("there with the patch alone: s.layer/planted", _note(lambda layer: setattr(layer, "planted", 1))),
        ("there with the patch alone: Own/planted", _note(lambda layer: setattr(type(layer), "planted", 1))),
        ("state: s.layer is", _note(lambda layer: layer.eval())),
        (
            "there with the patch alone: HEARD/0",
            _note(lambda layer: sys.modules[type(layer).__module__].HEARD.append(1)),
        ),
    ],
)  # fmt: skip
def test_what_is_planted_is_seen(sort, change, planted):
    planted(change)
    found = difference(_PLAIN)
    assert found is not None
    assert any(line.startswith(sort) for line in found.what), found


@pytest.mark.parametrize(
    "grad", [lambda grad: torch.zeros_like(grad), lambda grad: grad * (1 + 1e-7)], ids=["zero", "off"]
)
def test_a_changed_gradient_is_seen(grad, planted):
    def change(layer, out):
        out.register_hook(grad)
        return out

    planted(change)
    found = difference(_PLAIN)
    assert found is not None
    assert any("s.x.grad" in line for line in found.what), found


def test_a_gradient_where_there_should_be_none_is_seen(planted):
    planted(lambda layer, out: out + 0 * layer.scale_1)
    program = Program(
        parts=(Part("gradient", ("parameter not used",)),), steps=("call", "backward"), size="small"
    )
    found = difference(program)
    assert found is not None
    assert "there with the patch alone: s.layer/scale_1.grad" in found.what


def test_rounding_is_no_difference(planted):
    planted(lambda layer, out: out * (1 + 4 * torch.finfo(out.dtype).eps))
    assert difference(_PLAIN) is None


def test_nothing_is_left_of_a_program():
    before = (set(sys.modules), torch.get_rng_state(), random.getstate(), dict(os.environ), Path.cwd())
    program = Program(
        parts=(Part("outside", ("file",)), Part("chance", ("random", "factor"))),
        steps=("call", "grad mode left", "default dtype"),
    )
    run(program.text(), patched=False)
    after = (set(sys.modules), torch.get_rng_state(), random.getstate(), dict(os.environ), Path.cwd())
    assert {name for name in after[0] if "own_messages" in name} <= before[0]
    assert torch.equal(before[1], after[1])
    assert before[2:] == after[2:]


def test_shrinking_leaves_what_is_needed(planted):
    planted(lambda layer, out: out * 2)
    program = Program(
        parts=(_COUNTING, Part("outside", ("print",))),
        base="gated",
        form="helper",
        aggr="max",
        steps=("call", "eval", "backward"),
        dtype="float32",
        seed=5,
    )
    found = difference(program)
    assert found is not None
    small, same = shrunk(program, found, difference, smaller, seconds=60.0)
    assert small == Program()
    assert same.sort == found.sort


def test_a_listed_program_runs_by_itself(tmp_path):
    file = tmp_path / "script.py"
    file.write_text(_PLAIN.listed())
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ended = run_python([file], env=environment)
    assert ended.stdout == "Both runs are the same.\n", ended.stderr
