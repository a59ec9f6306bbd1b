"""What a layer holds after a step: nothing, however many steps there were."""

import gc

import pytest
import torch

import onehop
from onehop.thresholds import lifted
from tests.differential.calls import Call
from tests.differential.gradients import Backward
from tests.differential.interpreter import _step
from tests.differential.layers import KINDS
from tests.differential.program import Features, Graph, Layer, Model, Program
from tests.differential.world import build


@pytest.fixture(scope="module", autouse=True)
def _only_what_is_new():
    """Leaves what other tests hold out of what is collected and counted, which takes most of the time."""
    gc.collect()
    gc.freeze()  # until all tests have ended, as in conftest


def _alive() -> int:
    gc.collect()
    # By type: isinstance asks some objects of torch for their class, and they warn.
    return sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())


@pytest.mark.parametrize("name", KINDS)
def test_no_step_leaves_tensors_behind(name):
    program = Program(
        steps=(Call(), Backward()),
        models=(Model(layers=(Layer(name),)),),
        graphs=(Graph(kind="sorted", edges=60, weight="plain"),),
        features=(Features(grad="computed"),),
    )
    counts = []
    with lifted():
        world = build(program, onehop.patch)
        try:
            for _ in range(4):
                for step in program.steps:
                    assert _step(world, step).error is None
                world.forget_recorded()
                counts.append(_alive())
        finally:
            onehop.unpatch()
    assert counts[1] == counts[2] == counts[3]
