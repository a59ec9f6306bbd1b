"""PyG's functions of edges under the patch: results equal to PyG's, with their order, dtypes and strides."""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch_geometric.utils as utils
from torch import Tensor
from torch_geometric import EdgeIndex, transforms
from torch_geometric.data import Data
from torch_geometric.utils import _coalesce, _sort_edge_index, _subgraph, isolated, undirected

import onehop
from onehop import thresholds
from onehop.graph.edge_columns import EdgeColumns
from onehop.integrations.pyg import edge_functions
from tests.integrations.same import assert_identical, learned, outcome

NODES = 30
REDUCTIONS = ["sum", "add", "mean", "min", "max", "mul", "any"]
FUNCTIONS = [
    "coalesce",
    "sort_edge_index",
    "to_undirected",
    "is_undirected",
    "contains_isolated_nodes",
    "subgraph",
    "k_hop_subgraph",
]


@pytest.fixture(autouse=True)
def _stable_at_every_size(bounds, monkeypatch) -> None:
    """Equal edges keep their order in PyG at every size, as they do in both at the sizes that are ours."""
    bounds(sorted_edges=0)

    def index_sort(inputs: Tensor, max_value: int | None = None) -> tuple[Tensor, Tensor]:
        return inputs.sort(stable=True)

    for module in (_coalesce, _sort_edge_index):
        monkeypatch.setattr(module, "index_sort", index_sort)


def without_pyg(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyG's own code of the functions fails from now on, so that only ours can give a result."""

    def fail(*_: Any) -> None:
        raise AssertionError("PyG's own code ran")

    for module in (_coalesce, _sort_edge_index, _subgraph, isolated, undirected):
        monkeypatch.setattr(module, "maybe_num_nodes", fail)


def make(edges: int, nodes: int = NODES, dtype: torch.dtype = torch.int64) -> Tensor:
    """[2, E]: random, with repeated edges and loops; the last node has none."""
    return torch.randint(nodes - 1, (2, edges), generator=torch.Generator().manual_seed(1)).to(dtype)


def paired(edges: int) -> Tensor:
    """Every edge in both directions, some repeated, in a random order."""
    given = make(edges)
    both = torch.cat([given, given.flip(0)], dim=1)
    return both[:, torch.randperm(2 * edges, generator=torch.Generator().manual_seed(2))]


EDGES: dict[str, Callable[[], Tensor]] = {
    "random": lambda: make(300),
    "one": lambda: torch.tensor([[3], [1]]),
    "one loop": lambda: torch.tensor([[0], [0]]),
    "equal": lambda: torch.tensor([[2], [1]]).repeat(1, 90),
    "loops": lambda: torch.arange(10).repeat(2, 3),
    "distinct, in order": lambda: make(300).unique(dim=1).contiguous(),
    "distinct": lambda: make(300).unique(dim=1).flip(1),
    "both directions": lambda: paired(100),
    "both directions, but one": lambda: paired(100)[:, 1:],
    "a repeated edge, once in the other direction": lambda: torch.tensor([[0, 0, 1], [1, 1, 0]]),
    "bipartite": lambda: torch.stack([make(200)[0] % 4, make(200)[1]]),
    "every second": lambda: make(300)[:, ::2],
    "transposed": lambda: make(300).t().contiguous().t(),
    "lines of more": lambda: torch.cat([make(100), make(100)])[[0, 2]][:, 1:].flip(0)[::1],
    "expanded": lambda: torch.arange(9).expand(2, 9),
    "int32": lambda: make(300, dtype=torch.int32),
    "large numbers": lambda: make(80) * 74_000_000 + 17,
    "large numbers in one line": lambda: make(80) * torch.tensor([[1], [74_000_000]]),
    "many in one row": lambda: torch.stack([make(300)[0].clamp(0, 1) * 1000, make(300)[1]]),
}
# PyG's own code runs: what it does of these is overflow, count from the end, or fail.
LEFT: dict[str, Callable[[], Any]] = {
    "none": lambda: torch.empty((2, 0), dtype=torch.int64),
    "negative": lambda: make(90) - 3,
    "above 31 bits": lambda: make(90) + 2**31,
    "overflowing": lambda: make(90) + 2**40,
    "overflowing int32": lambda: (make(90) * 10_000).to(torch.int32),
    "int16": lambda: make(90, dtype=torch.int16),
    "floating point": lambda: make(90).double(),
    "three lines": lambda: torch.cat([make(90), make(90)[:1]]),
    "a line": lambda: make(90)[0],
    "a pair": lambda: tuple(make(90)),
    "EdgeIndex": lambda: EdgeIndex(make(90), sparse_size=(NODES, NODES)),
    "sparse": lambda: torch.eye(4).to_sparse(),
}
SORTS: dict[str, Callable[[Any], Any]] = {
    "coalesce": lambda e: utils.coalesce(e),
    "coalesce, with None": lambda e: utils.coalesce(e, None),
    "coalesce by column": lambda e: utils.coalesce(e, sort_by_row=False),
    "coalesce with numbers": lambda e: utils.coalesce(e, numbers(e), reduce="min"),
    "coalesce with numbers, by column": lambda e: utils.coalesce(e, numbers(e), sort_by_row=False),
    "coalesce with a list": lambda e: utils.coalesce(e, [numbers(e), numbers(e).double().view(-1, 1)]),
    "coalesce with a tuple": lambda e: utils.coalesce(e, (numbers(e),)),
    "coalesce with an empty list": lambda e: utils.coalesce(e, []),
    "coalesce with an empty tuple": lambda e: utils.coalesce(e, ()),
    "sort_edge_index": lambda e: utils.sort_edge_index(e),
    "sort_edge_index, with None": lambda e: utils.sort_edge_index(e, None),
    "sort_edge_index by column": lambda e: utils.sort_edge_index(e, sort_by_row=False),
    "sort_edge_index with numbers": lambda e: utils.sort_edge_index(e, numbers(e)),
    "sort_edge_index with a list": lambda e: utils.sort_edge_index(e, [numbers(e)], sort_by_row=False),
    "sort_edge_index with an empty tuple": lambda e: utils.sort_edge_index(e, ()),
    "to_undirected": lambda e: utils.to_undirected(e),
    "to_undirected, with None": lambda e: utils.to_undirected(e, None),
    "to_undirected with numbers": lambda e: utils.to_undirected(e, numbers(e), reduce="max"),
    "to_undirected with a list": lambda e: utils.to_undirected(e, [numbers(e), numbers(e).double()]),
    "is_undirected": lambda e: utils.is_undirected(e),
}
OTHERS: dict[str, Callable[[Any], Any]] = {
    "is_undirected with numbers": lambda e: utils.is_undirected(e, e[0] + e[1]),
    "is_undirected with other numbers": lambda e: utils.is_undirected(e, [e[0] + e[1], e[0]]),
    "coalesce what is sorted": lambda e: utils.coalesce(e, numbers(e), is_sorted=True),
}
NODEWISE: dict[str, Callable[[Any], Any]] = {
    "contains_isolated_nodes": lambda e: utils.contains_isolated_nodes(e),
    "subgraph": lambda e: utils.subgraph(some(e), e),
    "subgraph of a list": lambda e: utils.subgraph(some(e).tolist(), e, numbers(e)),
    "subgraph of nothing": lambda e: utils.subgraph([], e, relabel_nodes=True),
    "subgraph, relabelled": lambda e: utils.subgraph(
        some(e).flip(0), e, numbers(e), relabel_nodes=True, return_edge_mask=True
    ),
    "k_hop_subgraph of a node": lambda e: utils.k_hop_subgraph(int(e[0, 0]), 2, e),
    "k_hop_subgraph of a list": lambda e: utils.k_hop_subgraph(e[0, :2].tolist(), 1, e),
    "k_hop_subgraph, relabelled": lambda e: utils.k_hop_subgraph(e[1, :3], 3, e, relabel_nodes=True),
    "k_hop_subgraph of repeated nodes": lambda e: utils.k_hop_subgraph(e[:, 0].repeat(2).flip(0), 1, e),
    "k_hop_subgraph to sources": lambda e: utils.k_hop_subgraph(e[0, :1], 2, e, flow="target_to_source"),
    "k_hop_subgraph, directed": lambda e: utils.k_hop_subgraph(e[1, :1], 2, e, True, directed=True),
    "k_hop_subgraph of no hops": lambda e: utils.k_hop_subgraph(e[1, :1], 0, e, True),
}
MASKED: dict[str, Callable[[Any], Any]] = {
    "subgraph of a mask": lambda e: utils.subgraph(torch.arange(NODES) % 2 == 0, e),
    "subgraph of a strided mask, relabelled": lambda e: utils.subgraph(
        (torch.arange(2 * NODES) % 3 == 0)[::2], e, relabel_nodes=True
    ),
    "contains_isolated_nodes of all": lambda e: utils.contains_isolated_nodes(e, NODES - 1),
    "contains_isolated_nodes of more": lambda e: utils.contains_isolated_nodes(e, 10**12),
    "sort_edge_index of more nodes": lambda e: utils.sort_edge_index(e, numbers(e), num_nodes=NODES + 9),
    "to_undirected of a number of nodes": lambda e: utils.to_undirected(e, NODES + 1),
    "coalesce of fewer nodes": lambda e: utils.coalesce(e, numbers(e), num_nodes=3),
    "sort_edge_index of fewer nodes": lambda e: utils.sort_edge_index(e, num_nodes=3),
    "sort_edge_index of very many nodes": lambda e: utils.sort_edge_index(e, numbers(e), num_nodes=10**12),
    "coalesce of very many nodes": lambda e: utils.coalesce(e, num_nodes=10**12),
    "contains_isolated_nodes of fewer": lambda e: utils.contains_isolated_nodes(e, 3),
    "subgraph of fewer nodes": lambda e: utils.subgraph([0, 1], e, num_nodes=3),
    "subgraph of a node out of range": lambda e: utils.subgraph([0, NODES + 9], e),
    "subgraph of nodes from the end": lambda e: utils.subgraph(torch.tensor([1, -1, -2]), e),
    "subgraph of a short mask": lambda e: utils.subgraph(torch.ones(3, dtype=torch.bool), e),
    "k_hop_subgraph of a node from the end": lambda e: utils.k_hop_subgraph(-1, 1, e),
    "k_hop_subgraph of a node out of range": lambda e: utils.k_hop_subgraph(NODES + 9, 1, e),
    "k_hop_subgraph of fewer nodes": lambda e: utils.k_hop_subgraph(2, 1, e, num_nodes=3),
    "k_hop_subgraph of fewer nodes, directed": lambda e: utils.k_hop_subgraph(
        2, 1, e, num_nodes=3, directed=True
    ),
    "k_hop_subgraph of no node": lambda e: utils.k_hop_subgraph([], 1, e),
    "k_hop_subgraph of a scalar": lambda e: utils.k_hop_subgraph(torch.tensor(1), 1, e),
    "k_hop_subgraph of another flow": lambda e: utils.k_hop_subgraph(1, 1, e, flow="both"),
    "numbers of too few edges": lambda e: utils.coalesce(e, numbers(e)[:-1]),
    "numbers of too many edges": lambda e: utils.sort_edge_index(e, numbers(e).repeat(2)),
    "a reduction that is none": lambda e: utils.coalesce(e, numbers(e), reduce="median"),
    "numbers of another kind": lambda e: utils.coalesce(e, numbers(e).tolist()),
    "a string": lambda e: utils.coalesce(e, "weights"),
}


def numbers(edges: Any) -> Tensor:
    """[E], the place of each edge."""
    return torch.arange(edges[0].size(0))


def some(edges: Any) -> Tensor:
    """About half of the nodes with edges."""
    return edges[0].unique()[::2].long()


def compare(calls: dict[str, Callable[[Any], Any]], edges: Any) -> None:
    """Each call gives what it gives without the patch, or raises the same."""

    def outcomes() -> dict[str, Any]:
        return {name: outcome(partial(call, edges)) for name, call in calls.items()}

    expected = outcomes()
    with onehop.patch():
        assert_identical(outcomes(), expected)


@pytest.mark.parametrize("kind", EDGES)
def test_the_results_of_pyg(kind, monkeypatch):
    edges = EDGES[kind]()
    calls = {**SORTS, **(NODEWISE if "large" not in kind else {})}
    if kind == "int32" or int(edges.max()) >= edges.numel():
        calls = {name: call for name, call in calls.items() if "k_hop" not in name}
    given = edges.clone()
    expected = {name: call(edges) for name, call in calls.items()}
    without_pyg(monkeypatch)
    with onehop.patch():
        assert_identical({name: call(edges) for name, call in calls.items()}, expected)
    assert torch.equal(edges, given)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [*LEFT, "one", "many in one row", "random", "distinct, in order", "int32"])
def test_what_pyg_is_left_to_do(kind):
    edges = {**EDGES, **LEFT}[kind]()
    calls = {**SORTS, **OTHERS, **NODEWISE, **MASKED}
    if kind in ("above 31 bits", "overflowing"):
        # PyG's masks would be as long as the largest number.
        calls = {name: call for name, call in calls.items() if "subgraph" not in name}
    if kind == "negative":
        # PyG returns memory without content.
        calls = {name: call for name, call in calls.items() if "relabelled" not in name}
    compare(calls, edges)


ATTRIBUTES: dict[str, Callable[[int], Tensor]] = {
    "float32": lambda edges: torch.randn(edges),
    "float64, of several columns": lambda edges: torch.randn(edges, 3, 2).double(),
    "float16": lambda edges: torch.randn(edges).half(),
    "bfloat16": lambda edges: torch.randn(edges, 2).bfloat16(),
    "int64": lambda edges: torch.randint(-3, 4, (edges,)),
    "int8": lambda edges: torch.randint(0, 4, (edges,), dtype=torch.int8),
    "bool": lambda edges: torch.rand(edges) < 0.5,
    "strided": lambda edges: torch.randn(4, edges).t()[:, ::2],
    "without columns": lambda edges: torch.randn(edges, 0),
}


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_attributes(reduce):
    torch.manual_seed(0)
    given = {kind: attributes(300) for kind, attributes in ATTRIBUTES.items()}
    calls: dict[str, Callable[[Tensor], Any]] = {
        f"{function}, {kind}": lambda edges, function=function, each=each: getattr(utils, function)(
            edges, each, reduce=reduce
        )
        for function in ("coalesce", "to_undirected")
        for kind, each in given.items()
    }
    compare(calls, make(300))


@pytest.mark.parametrize("name", ["coalesce", "sort_edge_index", "to_undirected"])
def test_gradients(name):
    torch.manual_seed(0)
    edges, attributes = make(300), torch.randn(300, 2)

    def results(**options: Any) -> list[Any]:
        given = attributes.clone().requires_grad_()
        _, out = getattr(utils, name)(edges, [given, given[:, :1]], **options)
        return learned(out, given)

    for options in [{"reduce": each} for each in REDUCTIONS[:-1]] if name != "sort_edge_index" else [{}]:
        expected = results(**options)
        with onehop.patch():
            assert_identical(results(**options), expected, options)


@pytest.mark.parametrize("threads_used", [1, 3])
@pytest.mark.parametrize("rows", [3000, 2, 2**31])
def test_many_buckets(rows, threads_used):
    """More edges than one bucket or one thread has, in rows that are few, many, and far from each other."""
    torch.set_num_threads(threads_used)
    generator = torch.Generator().manual_seed(3)
    row = torch.randint(rows, (100_000,), generator=generator)
    edges = torch.stack([row, torch.randint(2000, (100_000,), generator=generator)])
    edges[:, ::3] = edges[:, 1:2]
    sorts = {name: SORTS[name] for name in SORTS if "with numbers" in name or name == "is_undirected"}
    compare({**sorts, **(NODEWISE if rows == 3000 else {})}, edges)
    with onehop.patch():
        both = utils.to_undirected(edges)
        assert utils.is_undirected(both)
        assert not utils.is_undirected(both[:, :-1])


@pytest.mark.usefixtures("ordinary_bounds")
def test_the_order_of_pyg_itself(monkeypatch):
    """From the threshold on, torch's own sort leaves equal edges in their order."""
    monkeypatch.undo()
    count = thresholds.ORDINARY.sorted_edges
    for dtype in (torch.int64, torch.int32):
        compare(SORTS, make(count, dtype=dtype))


@pytest.fixture
def sorts(monkeypatch) -> list[int]:
    """The numbers of edges of every call that was ours."""
    made: list[int] = []

    class Noted(EdgeColumns):
        def __init__(self, edge_index: Tensor, flipped: bool = False) -> None:
            super().__init__(edge_index, flipped)
            made.append(len(self))

    monkeypatch.setattr(edge_functions, "EdgeColumns", Noted)
    return made


def test_calls_that_are_ours(sorts):
    calls = [*SORTS.values(), *NODEWISE.values()]
    with onehop.patch():
        for call in calls:
            call(make(300))
    assert sorts == [300] * len(calls)


@pytest.mark.parametrize(
    ("options", "edges"), [({"only": ["GCNConv"]}, 300), ({"backend": "reference"}, 300), ({}, 299)]
)
def test_patches_without_functions_and_few_edges(options, edges, sorts, bounds):
    bounds(sorted_edges=300)
    expected = utils.coalesce(make(edges))
    with onehop.patch(**options):
        assert_identical(utils.coalesce(make(edges)), expected)
    assert sorts == []
    with onehop.patch():
        utils.coalesce(make(300))
    assert sorts == [300]


def test_modes_and_programs(sorts):
    edges = make(300)
    with onehop.patch(), torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert utils.sort_edge_index(mode.from_tensor(edges), num_nodes=NODES).shape == edges.shape

    def scripted(edge_index: Tensor, weight: Tensor) -> Tensor:
        return utils.to_undirected(edge_index, weight)[0]

    def program(edge_index: Tensor) -> Tensor:
        return utils.sort_edge_index(edge_index, num_nodes=NODES)

    expected = utils.to_undirected(edges)
    with onehop.patch():
        assert torch.equal(torch.jit.script(scripted)(edges, numbers(edges)), expected)
        traced = torch.jit.trace(program, edges, check_trace=False)
        compiled = torch.compile(program, backend="eager", fullgraph=True)(edges)
    assert torch.equal(traced(edges), utils.sort_edge_index(edges))
    assert torch.equal(compiled, utils.sort_edge_index(edges))
    assert sorts == []


def test_results_are_fresh():
    edges = make(300).unique(dim=1).contiguous()
    given = edges.clone()
    with onehop.patch():
        for name in ("coalesce", "sort_edge_index"):
            getattr(utils, name)(edges)[:] = 0
            assert torch.equal(edges, given)
        with torch.inference_mode():
            assert utils.coalesce(edges).is_inference()
        assert not utils.coalesce(edges).is_inference()


def test_functions_that_pyg_imported(sorts, monkeypatch):
    without_pyg(monkeypatch)
    edges = make(300)
    data = Data(edge_index=edges, edge_attr=numbers(edges), num_nodes=NODES)
    with onehop.patch():
        assert transforms.ToUndirected()(data.clone()).num_edges > 300
        assert transforms.RemoveDuplicatedEdges()(data.clone()).num_edges < 300
        assert data.coalesce().num_edges < 300
        assert data.has_isolated_nodes()
        assert data.subgraph(torch.arange(9)).num_nodes == 9
        assert not Data(edge_index=edges, num_nodes=NODES).is_undirected()
    assert len(sorts) == 6


def places() -> Iterator[tuple[str, str, Any]]:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "torch_geometric":
            for attribute, value in list(vars(module).items()):
                if getattr(value, "__name__", None) in FUNCTIONS and callable(value):
                    yield name, attribute, value


def test_every_place_is_replaced_and_restored():
    before = list(places())
    with onehop.patch():
        during = list(places())
        for function in FUNCTIONS:
            assert len({id(value) for _, _, value in during if value.__name__ == function}) == 1
        assert all(one[2] is not other[2] for one, other in zip(before, during, strict=True))
    assert list(places()) == before
