"""The lists of names that are read without torch, beside those of the modules that need it."""

from typing import get_args

import pytest

from onehop.bench import cases, limits, recipes, serving, variants
from onehop.bench.peers import PEERS
from onehop.cli import choices, demo
from onehop.machines import dram, gpu, ndp, pim
from onehop.machines.dram import command, command_file, layout, memory, requests, trace
from onehop.machines.gpu.order import ORDERS
from onehop.machines.pim.combination import KINDS
from onehop.machines.pim.numbers import TORCH_TYPES
from onehop.plans import ndp as plans
from onehop.reproduce import FITTED, ON_GPU, WORKS
from onehop.streaming.from_file import request
from onehop.tuner import cpu, operations
from onehop.tuner.gpu import target

LISTS = {
    "OPERATIONS": (choices.OPERATIONS, cases.OPERATIONS),
    "OPERATION_WIDTHS": (choices.OPERATION_WIDTHS, cases.WIDTHS),
    "OPERATION_PEERS": (choices.OPERATION_PEERS, PEERS),
    "PUBLISHED_MODELS": (choices.PUBLISHED_MODELS, recipes.PUBLISHED),
    "MODELS": (choices.MODELS, recipes.RECIPES),
    "MODEL_PEERS": (choices.MODEL_PEERS, variants.PEERS),
    "ABLATIONS": (choices.ABLATIONS, variants.ABLATIONS),
    "VARIANTS": (choices.VARIANTS, variants.FURTHER),
    "ROW_FLOATS": (choices.ROW_FLOATS, limits.ROW_FLOATS),
    "SERVED_MODELS": (choices.SERVED_MODELS, recipes.SERVED),
    "REQUEST_SIZES": (choices.REQUEST_SIZES, serving.SIZES),
    "DEMO_MODELS": (choices.DEMO_MODELS, demo.TITLES),
    "TUNED_OPS": (choices.TUNED_OPS, operations.OPS),
    "GPU_OPS": (choices.GPU_OPS, operations.GPU_OPS),
    "REDUCTIONS": (choices.REDUCTIONS, operations.REDUCTIONS),
    "ID_DTYPES": (choices.ID_DTYPES, get_args(request.IdDtype)),
    "WEIGHT_DTYPES": (choices.WEIGHT_DTYPES, get_args(request.WeightDtype)),
    "WORKS": (choices.WORKS, WORKS),
    "FITTED_WORKS": (choices.FITTED_WORKS, FITTED),
    "DRAM_PRESETS": (choices.DRAM_PRESETS, dram.PRESETS),
    "DRAM_PATTERNS": (choices.DRAM_PATTERNS, requests.PATTERNS),
    "DRAM_OPERATIONS": (choices.DRAM_OPERATIONS, requests.OPERATIONS),
    "DRAM_LEVELS": (choices.DRAM_LEVELS, memory.LEVELS),
    "DRAM_LAYOUTS": (choices.DRAM_LAYOUTS, layout.NAMES),
    "DRAM_SCHEDULERS": (choices.DRAM_SCHEDULERS, command.SCHEDULERS),
    "DRAM_REFRESHES": (choices.DRAM_REFRESHES, command.REFRESHES[1:]),
    "DRAM_FORMATS": (choices.DRAM_FORMATS, trace.FORMATS),
    "COMMAND_FILES": (choices.COMMAND_FILES, command_file._FORMS),
    "GPUS": (choices.GPUS, gpu.presets()),
    "GPU_ORDERS": (choices.GPU_ORDERS, ORDERS),
    "NDP_PRESETS": (choices.NDP_PRESETS, ndp.presets()),
    "NDP_MODELS": (choices.NDP_MODELS, ndp.MODELS),
    "NDP_MAPPINGS": (choices.NDP_MAPPINGS[:-2], plans.MAPPINGS),
    "NDP_TILINGS": (choices.NDP_TILINGS, plans.TILINGS),
    "NDP_HOST_ORDERS": (choices.NDP_HOST_ORDERS, plans.HOST_ORDERS),
    "PIM_PRESETS": (choices.PIM_PRESETS, pim.presets()),
    "PIM_DTYPES": (choices.PIM_DTYPES, TORCH_TYPES),
    "PIM_MODELS": (choices.PIM_MODELS, KINDS),
}


@pytest.mark.parametrize(("here", "there"), LISTS.values(), ids=LISTS)
def test_lists_are_those_of_the_modules_that_need_torch(here, there):
    assert list(here) == list(there)


def test_numbers_are_those_of_the_modules_that_need_torch():
    assert (choices.TUNING_S, choices.GPU_TUNING_S) == (cpu.BUDGET_S, target.BUDGET_S)
    assert choices.ROW_MULTIPLE == limits.ROW_MULTIPLE
    assert choices.WORK_ON_GPU == ON_GPU
    assert choices.DEMO_EPOCHS == (demo._ATTENTION_EPOCHS, demo._CORA_EPOCHS)
    assert set(choices.DEMO_DEFAULT) <= set(choices.DEMO_MODELS)
