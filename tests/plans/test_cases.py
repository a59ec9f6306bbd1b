"""What plans are tuned for: what a file may say of it, and which widths share a plan."""

import dataclasses

import pytest
import torch

from onehop import ArgumentError, Graph
from onehop.plans.cases import (
    GpuCase,
    PlanCase,
    case_of,
    distance,
    gpu_case_of,
    shape_class,
    size_class,
    sizes_of,
)

KEY = "30x20 edges 200 degrees 1-2-3"
CPU = PlanCase(KEY, "sum", False, 16, "float32", 2, "avx2")
GPU = GpuCase(KEY, "attention", False, 16, 4, "float32", "a GPU")


@pytest.mark.parametrize("case", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("graph", "a graph", "graph: 'a graph' is not a key of a graph"),
        ("graph", "30x edges 5 degrees 1", "is not a key of a graph"),
        ("graph", 7, "graph: expected str, got int"),
        ("operation", "product", "operation: expected one of sum, .*, got 'product'"),
        ("transposed", 1, "transposed: expected bool, got int"),
        ("width", True, "width: expected int, got bool"),
    ],
)
def test_what_a_file_has_wrong_is_named(case, field, value, message):
    with pytest.raises(ArgumentError, match=message):
        dataclasses.replace(case, **{field: value})


def test_sizes_are_read_from_the_key():
    assert sizes_of(KEY) == CPU.sizes == GPU.sizes == (30, 20, 200)


@pytest.mark.parametrize(
    ("wanted", "far"), [(16, 1.0), (20, 1.25), (21, None), (13, 16 / 13), (12, None), (0, None)]
)
def test_widths_up_to_a_quarter_apart_suit(wanted, far):
    assert distance(CPU, dataclasses.replace(CPU, width=wanted)) == far


@pytest.mark.parametrize("field", ["graph", "operation", "transposed", "dtype", "threads", "isa"])
def test_nothing_but_the_width_may_differ(field):
    other = {"graph": "30x20 edges 201 degrees 1", "operation": "sddmm", "transposed": True}
    other |= {"dtype": "float64", "threads": 3, "isa": "avx512"}
    assert distance(CPU, dataclasses.replace(CPU, **{field: other[field]})) is None


def test_a_plan_for_another_kind_of_machine_does_not_suit():
    assert distance(CPU, GPU) is None


@pytest.mark.parametrize(
    ("operation", "transposed", "backward"),
    [
        ("sum", False, False),
        ("sum", True, True),
        ("attention", False, False),
        ("attention_grad", False, True),
    ],
)
def test_backward_passes_are_told(operation, transposed, backward):
    assert dataclasses.replace(GPU, operation=operation, transposed=transposed).backward == backward


def test_sizes_count_as_the_next_power_of_two():
    edge_index = torch.stack([torch.arange(17) % 5, torch.zeros(17, dtype=torch.long)])
    graph = Graph.from_edge_index(edge_index, size=(5, 4))
    assert size_class(graph) == (8, 4, 32)
    assert size_class(Graph.from_edge_index(edge_index[:, :0], size=(1, 0))) == (1, 0, 0)
    assert shape_class(graph).startswith("8x4 edges 32 degrees 0-32-32 span ")


def test_cases_of_here_and_now():
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2], [0, 0, 1]]), size=(3, 2))
    case = case_of(graph, "sum", True, 8, torch.bfloat16)
    assert (case.sizes, case.transposed, case.width, case.dtype) == ((3, 2, 3), True, 8, "bfloat16")
    assert case.threads == torch.get_num_threads()
    gpu = gpu_case_of(graph, "gat", False, 8, 2, torch.float16, "a GPU")
    assert (gpu.sizes, gpu.heads, gpu.dtype) == ((4, 2, 4), 2, "float16")
