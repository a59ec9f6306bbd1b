"""Published models train as their authors' programs do, and with the same numbers under the patch."""

import contextlib
import io
import math

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console

import onehop
from onehop.bench import recipes, training as trainings
from onehop.bench.models import ModelCase, measure_model
from onehop.bench.recipes import PUBLISHED, RECIPES, TWO_LAYER, network
from onehop.bench.report import models_table
from onehop.bench.training import BatchTraining, Training, start
from onehop.bench.variants import ONEHOP, PYG
from onehop.errors import ArgumentError
from tests.bench.small_graphs import simple_workload, task

pytest.importorskip("torch_geometric")
from torch_geometric.data import Data

WHOLE_GRAPH = [model for model, recipe in PUBLISHED.items() if not recipe.fan_out]


def trained(model, patched, epochs=4, **options):
    """Losses of the first epochs, and the random number that is drawn next."""
    training = start(model, task(), 16, **options)
    torch.manual_seed(7)
    with onehop.patch() if patched else contextlib.nullcontext():
        return [training.epoch() for _ in range(epochs)], float(torch.rand(()))


@pytest.mark.parametrize("model", WHOLE_GRAPH)
def test_losses_are_those_of_pyg_dropout_included(model):
    plain, next_plain = trained(model, patched=False)
    ours, next_ours = trained(model, patched=True)
    assert ours == pytest.approx(plain, rel=1e-5)
    assert next_ours == next_plain


@pytest.mark.parametrize("model", WHOLE_GRAPH)
def test_something_is_dropped(model):
    torch.manual_seed(0)
    made = network(model, 8, 16, 3)
    x, edges = task().x, task().edge_index
    assert not torch.equal(made(x, edges), made(x, edges))
    made.eval()
    assert torch.equal(made(x, edges), made(x, edges))


@pytest.mark.parametrize("model", WHOLE_GRAPH)
def test_they_learn(model):
    training = start(model, task(), 16)
    losses = [training.epoch() for _ in range(40)]
    assert sum(losses[-5:]) < sum(losses[:5])
    assert 0 <= training.test_accuracy() <= 1


@pytest.mark.parametrize("model", WHOLE_GRAPH)
def test_they_return_what_their_recipe_says(model):
    out = network(model, 8, 16, 3).eval()(task().x, task().edge_index).exp().sum(dim=1)
    probabilities = bool(torch.allclose(out, torch.ones(40), atol=1e-5))
    assert probabilities == PUBLISHED[model].log_probabilities


def test_every_recipe_has_a_model_and_every_model_a_recipe():
    from onehop.bench import plain_models

    assert set(PUBLISHED) == set(plain_models.PUBLISHED)
    assert set(TWO_LAYER) == set(plain_models.MODELS)
    assert {name for name, recipe in TWO_LAYER.items() if recipe.attention} == set(plain_models.ATTENTION)


def test_unknown_models_are_refused():
    with pytest.raises(ArgumentError, match=r"model: expected one of ogb-gcn.*got 'mlp'"):
        recipes.recipe("mlp")


def test_weights_of_the_first_layer_alone_decay_in_gcn_on_cora():
    training = Training("cora-gcn", task(), 16)
    first, rest = training.optimizer.param_groups
    assert (first["weight_decay"], rest["weight_decay"]) == (5e-4, 0.0)
    assert {id(p) for p in first["params"]} == {id(p) for p in training.model.convs[0].parameters()}
    assert sum(len(group["params"]) for group in (first, rest)) == len(list(training.model.parameters()))


def test_layers_are_those_of_the_authors():
    made = network("ogb-gat", 128, 256, 40)
    assert [(c.in_channels, c.out_channels, c.heads) for c in made.convs] == [
        (128, 64, 4),
        (256, 64, 4),
        (256, 40, 1),
    ]
    assert [norm.num_features for norm in made.norms] == [256, 256]
    gcn = network("ogb-gcn", 128, 256, 40)
    assert [(c.in_channels, c.out_channels) for c in gcn.convs] == [(128, 256), (256, 256), (256, 40)]
    assert len(network("products-sage", 100, 256, 47).norms) == 0


def test_messages_of_attention_grow_with_layers():
    columns = {name: RECIPES[name].message_bytes(1, 128, 256, 40) // 4 for name in ("gcn", "sage", "gin")}
    assert columns == {"gcn": 768, "sage": 512, "gin": 512}
    assert RECIPES["gat"].message_bytes(1, 128, 256, 40) == 4 * (3 * 296 + 3 * 256)
    assert RECIPES["ogb-gat"].message_bytes(1, 128, 256, 40) == 4 * (2 * 256 + 40 + 3 * 256)


def two_batches(_task, fan_out):
    assert fan_out == (10, 10)
    whole = Data(x=_task.x, edge_index=_task.edge_index, y=_task.y)
    whole.batch_size = 10
    return [whole, whole]


def test_an_epoch_of_mini_batches_has_a_step_a_batch(monkeypatch):
    monkeypatch.setattr(trainings, "batches", two_batches)
    training = start("loader-sage", task(), 16)
    assert isinstance(training, BatchTraining)
    steps = []
    training.optimizer.register_step_post_hook(lambda *_: steps.append(1))
    torch.manual_seed(3)
    loss = training.epoch()
    assert len(steps) == 2
    twin = Training("loader-sage", task(), 16)
    torch.manual_seed(3)
    twin.model.train()
    expected = []
    for _ in range(2):
        twin.optimizer.zero_grad()
        one = F.cross_entropy(twin.model(twin.task.x, twin.task.edge_index)[:10], twin.task.y[:10])
        one.backward()
        twin.optimizer.step()
        expected.append(one.item())
    assert math.isclose(loss, sum(expected) / 2, rel_tol=1e-6)


@pytest.fixture
def pyg_has(monkeypatch):
    """Makes PyG believe that it has the sampler of this name, or none."""
    import torch_geometric.typing

    def has(name):
        monkeypatch.setattr(torch_geometric.typing, "WITH_PYG_LIB", name == "pyg-lib")
        monkeypatch.setattr(torch_geometric.typing, "WITH_TORCH_SPARSE", name == "torch-sparse")

    return has


def test_mini_batches_are_compared_and_have_no_floor(monkeypatch):
    monkeypatch.setattr(trainings, "batches", two_batches)
    result = measure_model(ModelCase(task(), simple_workload(), "loader-sage", 16), [ONEHOP, PYG], rounds=1)
    assert result.wrong == {}
    assert set(result.times) == {"onehop", "pyg-edge_index"}
    assert result.breakdown.of_floor is None


def test_without_pyg_lib_both_sides_have_onehops_sampler(pyg_has, monkeypatch):
    pyg_has("torch-sparse")
    monkeypatch.setattr(trainings, "SEEDS", 16)
    result = measure_model(ModelCase(task(), simple_workload(), "loader-sage", 16), [ONEHOP, PYG], rounds=1)
    assert (result.wrong, result.skipped, result.sampler) == ({}, {}, "onehop")
    assert set(result.times) == {"onehop", "pyg-edge_index"}
    assert result.to_dict()["sampler"] == "onehop"
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(models_table([result]))
    assert "(drawn by onehop)" in console.export_text()


def test_onehops_sampler_draws_the_same_for_both_sides_and_anew_in_each_epoch(pyg_has, monkeypatch):
    pyg_has(None)
    monkeypatch.setattr(trainings, "SEEDS", 16)

    def drawn(patched):
        torch.manual_seed(5)
        loader = trainings.batches(task(), (3, 2))
        with onehop.patch() if patched else contextlib.nullcontext():
            return [[batch.e_id.tolist() for batch in loader] for _ in range(2)]

    first, second = drawn(patched=False)
    assert len(first) == 2
    assert first != second
    assert drawn(patched=True) == [first, second]


@pytest.mark.parametrize(
    ("name", "drawn_by"), [("pyg-lib", "pyg-lib"), ("torch-sparse", "onehop"), (None, "onehop")]
)
def test_pygs_own_sampler_draws_where_the_patch_leaves_it(pyg_has, name, drawn_by):
    pyg_has(name)
    assert trainings.drawn_by() == drawn_by


def test_the_whole_graph_at_once_is_drawn_by_nobody():
    result = measure_model(ModelCase(task(), simple_workload(), "cora-gcn", 16), [ONEHOP], rounds=1)
    assert result.sampler is None
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(models_table([result]))
    assert "drawn by" not in console.export_text()


def test_loaders_of_pygs_own_sampler(monkeypatch):
    pytest.importorskip("pyg_lib")
    monkeypatch.setattr(trainings, "SEEDS", 16)
    result = measure_model(ModelCase(task(), simple_workload(), "loader-sage", 16), [ONEHOP, PYG], rounds=1)
    assert (result.wrong, result.skipped) == ({}, {})
    assert result.sampler == "pyg-lib"
