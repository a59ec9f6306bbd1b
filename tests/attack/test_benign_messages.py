"""Messages that are functions of their operands run compiled, however they are written down.

A message is compiled only if its code is shown to be such a function. What is refused needlessly shows here.
"""

import pytest

from onehop.integrations import reports
from tests.differential.messages.benign import BENIGN, IN_BLOCKS
from tests.differential.messages.judge import difference
from tests.differential.messages.program import Part, Program
from tests.differential.messages.run import run

_COMPILED = "its message, compiled"
# How users write a message down. An object with ``__call__`` is left to PyG: it may keep something.
FORMS = (
    "plain", "annotated", "doc", "default", "loop", "helper", "helper, keywords", "helper, dict",
    "helper, tuple", "method", "static method", "class method", "property", "module", "partial",
    "lambda", "nested function", "closure", "super", "inherited", "mixin", "base by name", "decorated",
    "assigned to the class", "function as attribute",
)  # fmt: skip


def _ways(program):
    """How the calls of a program ran, each as its form, or as the reason for PyG's own code."""
    with reports.recorded() as calls:
        seen = run(program.text(), patched=True)
    assert [each.message for each in seen if each.error] == []
    return {call.reason or call.form for call in calls}


@pytest.mark.parametrize("name", sorted(BENIGN.keys() - IN_BLOCKS))
def test_message_is_compiled(name):
    program = Program(parts=(Part("benign", (name,)),), steps=("call", "no_grad", "eval", "backward"))
    assert _ways(program) == {_COMPILED}
    assert difference(program) is None


@pytest.mark.parametrize("name", sorted(IN_BLOCKS))
def test_message_runs_in_blocks(name):
    program = Program(parts=(Part("benign", (name,)),), steps=("call", "backward"), bounds="blocks")
    assert _ways(program) <= {_COMPILED, reports.IN_BLOCKS}
    assert difference(program) is None


@pytest.mark.parametrize("form", FORMS)
def test_message_is_compiled_in_any_form(form):
    program = Program(
        parts=(Part("benign", ("GINE",)), Part("benign", ("gated",))),
        form=form,
        steps=("call", "backward", "call"),
    )
    assert _ways(program) == {_COMPILED}
    assert difference(program) is None
