"""The loss of Node2Vec and MetaPath2Vec against PyG's."""

import pytest
import torch
import torch_geometric.typing
from torch_geometric.nn import MetaPath2Vec, Node2Vec

import onehop
from onehop.integrations.rows import counted
from tests.integrations.same import same, same_error, twice

pytestmark = [
    pytest.mark.skipif(
        torch_geometric.typing.WITH_PYG_LIB or not hasattr(torch_geometric.typing, "WITH_KNN"),
        reason="PyG has pyg-lib, or is older",
    ),
    pytest.mark.usefixtures("in_doubles"),
]
NODES, WIDTH = 30, 6


@pytest.fixture(autouse=True)
def _at_every_size(bounds):
    bounds(few_work=0)


def node2vec(sparse=False, **options):
    edge_index = torch.randint(NODES, (2, 150))
    with onehop.patch():
        model = Node2Vec(
            edge_index, WIDTH, walk_length=6, context_size=4, walks_per_node=2, num_nodes=NODES,
            num_negative_samples=2, sparse=sparse, **options,
        )  # fmt: skip
        return model, *model.sample(list(range(10)))


def metapath2vec(sparse=False):
    kinds = [("a", "to", "b"), ("b", "to", "a")]
    edges = {kind: torch.randint(20, (2, 60)) for kind in kinds}
    model = MetaPath2Vec(edges, WIDTH, kinds, 6, 4, walks_per_node=2, sparse=sparse)
    return model, *model._sample(list(range(10)))


def results(model, *walks):
    model.zero_grad()
    out = model.loss(*walks)
    out.backward()
    grad = model.embedding.weight.grad
    return out.detach(), grad.to_dense(), grad.is_sparse


@pytest.mark.parametrize("made", [node2vec, metapath2vec])
@pytest.mark.parametrize("sparse", [False, True])
def test_loss_and_gradients(made, sparse):
    model, *walks = made(sparse)
    with counted() as calls:
        same(lambda: results(model, *walks), rtol=1e-12, atol=1e-12)
    assert calls[type(model).__name__, True] == 3


def test_second_derivatives():
    model, *walks = node2vec()
    same(lambda: twice(model.loss(*walks), model.embedding.weight), rtol=1e-12, atol=1e-12)


def test_a_row_without_gradient_stays_without():
    model, *walks = node2vec()
    model.embedding.padding_idx = int(walks[0][0, 0])
    assert not results(model, *walks)[1][model.embedding.padding_idx].any()
    same(lambda: results(model, *walks), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("change", ["max_norm", "scale_grad_by_freq", "hook", "small", "int32"])
def test_the_rest_is_pygs(change, bounds):
    model, *walks = node2vec()
    if change == "hook":
        model.embedding.register_forward_hook(lambda module, args, out: 2 * out)
    elif change == "small":
        bounds(few_work=10**9)
    elif change == "int32":
        walks = [each.int() for each in walks]
    else:
        setattr(model.embedding, change, 1.0 if change == "max_norm" else True)
    with counted() as calls:
        same(lambda: model.loss(*walks))
    assert calls["Node2Vec", True] == 0


@pytest.mark.parametrize("node", [NODES, -1, None])
def test_a_node_out_of_range_and_no_walks_are_pygs_errors(node):
    model, positive, negative = node2vec()
    if node is None:
        negative = negative[:0]
    else:
        positive[3, 2] = node
    same_error(lambda: model.loss(positive, negative))


def test_it_learns():
    torch.manual_seed(0)
    model, *_ = node2vec(sparse=True)
    with onehop.patch():
        optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.1)
        losses = []
        for _ in range(30):
            walks = model.sample(list(range(NODES)))
            optimizer.zero_grad()
            out = model.loss(*walks)
            out.backward()
            optimizer.step()
            losses.append(float(out.detach()))
    assert losses[-1] < 0.7 * losses[0]
