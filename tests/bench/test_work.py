"""The work of an epoch is what a naive count of the same epoch finds."""

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from onehop.bench.limits import aggregated_bytes, attention_bytes
from onehop.bench.tasks import LearningTask
from onehop.bench.training import Training
from onehop.bench.work import Product, count
from tests.bench.small_graphs import simple_workload

pytest.importorskip("torch_geometric")

NODES, FEATURES, HIDDEN, CLASSES = 40, 9, 16, 5


@pytest.fixture
def given():
    edges = simple_workload(NODES).edge_index
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(NODES) % CLASSES
    train = torch.arange(NODES) % 2 == 0
    return LearningTask(
        "g", edges, torch.rand(NODES, FEATURES, generator=generator) + 1, y, CLASSES, train, ~train
    )


class Naive(TorchDispatchMode):
    """Counts what torch itself computes in an epoch of plain PyG."""

    def __init__(self):
        super().__init__()
        self.flops = 0
        self.drawn = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if name in ("mm", "addmm"):
            left, right = args[-2:]
            self.flops += 2 * left.size(0) * left.size(1) * right.size(1)
        if name == "bernoulli_":
            self.drawn[tuple(args[0].shape)] += 1
        return out


@pytest.mark.parametrize(
    "model",
    [
        "ogb-gcn", "ogb-sage", "ogb-gat", "products-gcn", "products-sage", "cora-gcn", "cora-gat",
        "gcn", "sage", "gin", "gin-norm", "gat", "gatv2", "transformer",
    ],
)  # fmt: skip
def test_products_and_dropout_are_those_that_torch_computes(model, given):
    found = count(model, given, HIDDEN)
    training = Training(model, given, HIDDEN)
    with Naive() as naive:
        training.epoch()
    assert sum(times * product.flops for product, times in found.products.items()) == naive.flops
    rows = {shape for shape in found.dropped if shape[0] == NODES}
    assert rows == {shape for shape in naive.drawn if shape[0] == NODES}
    for shape, times in naive.drawn.items():
        # Features need no gradient, so their dropout has no backward pass.
        passes = 1 if shape == (NODES, FEATURES) else 2
        assert found.dropped[shape[0], shape[1]] == passes * times


def test_a_gcn_counted_by_hand(given):
    edges = given.edge_index.size(1) + NODES
    found = count("gcn", given, HIDDEN)
    assert found.products == Counter(
        {
            Product(NODES, FEATURES, HIDDEN): 1,
            Product(HIDDEN, NODES, FEATURES): 1,
            Product(NODES, HIDDEN, CLASSES): 1,
            Product(CLASSES, NODES, HIDDEN): 1,
            Product(NODES, CLASSES, HIDDEN): 1,
        }
    )
    # The first layer's sums are kept; the second's run over its narrow outputs, forward and backward.
    assert found.gathered == Counter({CLASSES: 2 * aggregated_bytes(edges, NODES, CLASSES)})
    assert found.elementwise == Counter({(NODES, HIDDEN): 2})
    assert found.dropped == Counter()


def test_dropped_features_are_summed_anew(given):
    edges = given.edge_index.size(1) + NODES
    # Nine features are summed once, before the product, rather than 16 outputs forward and backward.
    assert count("cora-gcn", given, HIDDEN).gathered == Counter(
        {
            FEATURES: aggregated_bytes(edges, NODES, FEATURES),
            CLASSES: 2 * aggregated_bytes(edges, NODES, CLASSES),
        }
    )


def test_attention_is_counted_with_loops(given):
    edges = given.edge_index.size(1) + NODES
    found = count("gat", given, HIDDEN)
    assert found.gathered[HIDDEN] == sum(attention_bytes("gat", edges, NODES, 4, HIDDEN // 4))
    assert found.gathered[CLASSES] == sum(attention_bytes("gat", edges, NODES, 1, CLASSES))


def test_bytes_of_attention_by_hand():
    # 10 edges, 3 nodes, 2 heads of 4: rows of 32 bytes, scores of 8, indices of 4.
    assert attention_bytes("gat", 10, 3, 2, 4) == (
        10 * (4 + 32 + 8) + 3 * (64 + 8),
        10 * (8 + 64 + 16 + 8) + 8 * 3 * 32,
    )
    assert attention_bytes("transformer", 10, 3, 2, 4)[0] == 10 * (4 + 64) + 3 * (64 + 8)


def test_sparse_features_are_marked(given):
    sparse = torch.zeros(NODES, 100)
    sparse[torch.arange(NODES), torch.arange(NODES)] = 1
    task = LearningTask("g", given.edge_index, sparse, given.y, CLASSES, given.train_mask, given.test_mask)
    found = count("gcn", task, HIDDEN).products
    assert found[Product(NODES, 100, HIDDEN, NODES)] == 1
    assert found[Product(HIDDEN, NODES, 100, NODES)] == 1
    assert {product.nonzeros for product in count("gcn", given, HIDDEN).products} == {None}


def test_counting_draws_no_random_numbers(given):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    count("ogb-gcn", given, HIDDEN)
    assert torch.equal(torch.rand(3), expected)
