"""Every operator by the GPU kernels against its naive twin: small graphs, plans, numbers of 64 bits."""

import pytest
import torch

from onehop import Graph
from onehop.kernels.triton import work
from onehop.plans import TritonPlan
from tests.kernels.triton.conftest import PLANS
from tests.kernels.triton.small_graphs import GRAPHS, graph_of
from tests.ops.checking import (
    On,
    axes_of,
    check,
    one_gradient_at_a_time,
    programs_have_one_graph,
    second_derivatives,
    torch_checks,
)
from tests.ops.operators import CASES
from tests.pairs import rounds, spread

# Few programs and few turns of their loops; hubs are cut.
WIDE = TritonPlan(split_edges=16, short_edges=4, rows_per_program=32, block_features=64, num_warps=1)
MAPPINGS = PLANS | {"wide": WIDE}
NAMES = [name for name, case in CASES.items() if "triton" in case.backends]
FORMS = [
    form
    for name in NAMES
    for form in spread(
        # Of an extremum with one winner there are few cases.
        [(name,)] * (8 if name.startswith(("first", "last")) else 3) * rounds(),
        list(GRAPHS),
        *axes_of(name, (0, 1, 2, 3, 5, 15, 16, 17, 33)),
        list(MAPPINGS),
        [False, True],
    )
]
# Of numpy, which interprets.
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")


@pytest.mark.parametrize(
    ("name", "graph", "width", "dtypes", "layout", "numbers", "pull", "mapping", "wide"),
    FORMS,
    ids=["-".join(map(str, form)) for form in FORMS],
)
def test_results_and_gradients(
    name, graph, width, dtypes, layout, numbers, pull, mapping, wide, use, monkeypatch
):
    use(MAPPINGS[mapping])
    if wide:
        monkeypatch.setattr(work, "_NARROW_EDGES", 0)
    check(name, GRAPHS[graph], width, dtypes, layout, numbers, pull, backend="triton")


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "gat", "gatv2", "attention"])
def test_the_default_plan(name, use):
    use(None)
    generator = torch.Generator().manual_seed(3)
    hub = torch.stack([torch.randint(0, 12, (300,), generator=generator), torch.full((300,), 5)])
    edge_index = torch.cat([torch.randint(0, 12, (2, 40), generator=generator), hub], 1)
    dtypes = (torch.float32, torch.float32)
    check(name, (edge_index, 12, 12), 20, dtypes, "contiguous", "random", "random", backend="triton")


# What torch requires of operators. Tests of the CPU's kernels check it for all cases.


@pytest.fixture
def one_hub() -> Graph:
    return graph_of("one_hub")


def test_torch_checks_what_is_registered(one_hub):
    names = ("sum, one scale", "max, weighted", "sddmm, heads", "edge_softmax, heads", "gatv2")
    assert "attention_grad" in torch_checks(names, one_hub, backend="triton")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler imports deprecated names
@pytest.mark.parametrize("name", ["sum, one scale", "max, weighted", "gat", "gatv2", "attention"])
def test_programs_have_one_graph(name):
    programs_have_one_graph(On(name, graph_of("random"), backend="triton"))


@pytest.mark.parametrize("name", ["sum, weighted", "edge_softmax, heads", "first max, weighted"])
def test_second_derivatives(name):
    second_derivatives(On(name, graph_of("multi_edges"), backend="triton"))


@pytest.mark.parametrize(
    "name", ["min, weighted", "gat, edges", "gatv2, edges", "gatv2, projected", "attention, edges"]
)
def test_one_gradient_at_a_time(name, one_hub):
    one_gradient_at_a_time(On(name, one_hub, backend="triton"))
