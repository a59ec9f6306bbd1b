"""Every operator with all its gradients, at the widths and dtypes that are timed, against the reference."""

import dataclasses

import pytest
import torch

from benchmarks.gpu.correctness import judge
from benchmarks.gpu.graphs import GRAPHS
from benchmarks.gpu.grid import grid
from benchmarks.gpu.operators import OPERATORS, Size
from benchmarks.gpu.options import DTYPES
from benchmarks.gpu.untimed import CHECKED, SIZES, UNTIMED
from onehop import Graph
from onehop.graph import placed
from onehop.kernels.triton import availability
from tests.device.passes import Passes, assert_same_bits, edges_on

pytestmark = pytest.mark.device

TIMED = {(case.operator, case.dtype, case.heads, case.width) for case in grid(GRAPHS, OPERATORS, DTYPES)}
CASES = sorted(TIMED | {(name, dtype, *size) for name in UNTIMED for dtype in DTYPES for size in SIZES})
if availability.interpreted():
    # The interpreter takes a second a program: the narrowest of each, narrowed.
    CASES = [
        (operator, dtype, 2, 8)
        for operator, dtype in sorted({each[:2] for each in CASES if each[1] == "float32"})
    ]
# What has a row for each edge.
OF_EDGES = ("sddmm", "edge-softmax")
# Of more numbers than 2^31; fewer in the interpreter.
FAR_NODES, FAR_HEADS, FAR_WIDTH = (9, 4, 4) if availability.interpreted() else (2**21 + 5, 4, 256)


@pytest.mark.parametrize(("operator", "dtype", "heads", "width"), CASES)
def test_output_and_gradients(operator, dtype, heads, width, device):
    edge_index, nodes = edges_on(device)
    size = Size(nodes, edge_index.size(1), heads, width)
    verdicts = judge(CHECKED[operator], edge_index, size, DTYPES[dtype])
    assert not [each for each in verdicts if not each.passes]


# NumPy's, for items that are left over: what they compute of no edges goes into a slot that nobody reads.
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("operator", CHECKED)
def test_output_and_gradients_on_a_graph_made_on_the_device(operator, device, monkeypatch):
    """Its rows were not counted: some short ones run as long ones, and the longest is a guess."""
    monkeypatch.setattr(placed, "MADE_ON", {device.type})
    passes = Passes.of(operator, device)
    graph = passes.graph()
    assert graph.made_on is not None
    verdicts = judge(passes.operator, passes.edge_index, passes.size, passes.grad.dtype, graph)
    assert not [each for each in verdicts if not each.passes]


@pytest.mark.parametrize("operator", CHECKED)
def test_graphs_without_edges_and_without_nodes(operator, device):
    checked = CHECKED[operator]
    for nodes in (0, 3):
        graph = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long, device=device), nodes)
        inputs = checked.inputs(Size(nodes, 0, 2, 3), torch.float32, device)
        out = checked.ours(graph, inputs)
        grads = torch.autograd.grad(out.sum(), list(inputs.values()))
        assert out.size(0) == (0 if operator in OF_EDGES else nodes)
        assert not any(each.any() for each in (out, *grads))


@pytest.mark.parametrize("operator", CHECKED)
def test_results_have_the_same_bits_in_every_run(operator, device):
    passes = Passes.of(operator, device)
    graph = passes.graph()
    first = passes(graph)
    for _ in range(1 if availability.interpreted() else 3):
        assert_same_bits(passes(graph), first)


# The tensors of an edge softmax have a row for each edge, not for each node.
@pytest.mark.parametrize("operator", [name for name in CHECKED if name != "edge-softmax"])
def test_more_numbers_than_32_bits_address(operator, device):
    """[N, F] of more than 2^31 numbers: the last row is far beyond what an int32 reaches."""
    edges = torch.tensor([[1, 0, 1], [0, 1, 1]], device=device)
    near = Passes.on(operator, edges, Size(2, 3, FAR_HEADS, FAR_WIDTH), torch.float16)

    def far(tensor):
        """The rows of two nodes as the first and the last, zeros between; other tensors as they are."""
        if tensor.size(0) != 2:
            return tensor
        found = tensor.new_zeros(FAR_NODES, *tensor.shape[1:])
        found[0], found[-1] = tensor.detach()
        return found.requires_grad_(tensor.requires_grad)

    try:
        inputs = {name: far(tensor) for name, tensor in near.inputs.items()}
        size = dataclasses.replace(near.size, nodes=FAR_NODES)
        found = Passes(near.operator, edges * (FAR_NODES - 1), size, inputs, far(near.grad))
        found = found(found.graph())
    except torch.OutOfMemoryError:
        pytest.skip("the tensors do not fit into the memory of this GPU")
    for name, expected in near(near.graph()).items():
        each = found[name]
        if expected.size(0) == 2:
            assert not each[1:-1].any(), name
            each = each[[0, -1]]
        torch.testing.assert_close(each, expected, rtol=1e-2, atol=1e-2)
