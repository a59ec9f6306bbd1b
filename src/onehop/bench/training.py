"""Training of a node classifier, the same for every way of aggregating.

An epoch is one step over the whole graph, or a pass over mini-batches, which are also the same for every way.
PyG's ``NeighborLoader`` draws them with pyg-lib if that is installed, with and without the patch, from
torch's generator. Otherwise onehop's sampler is passed to PyG's loader with a seed, so the same nodes have
the same neighbours, patched or not.
"""

import contextlib
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from onehop.bench.recipes import LEARNING_RATE as LEARNING_RATE, network, recipe
from onehop.bench.tasks import LearningTask

# Number of nodes whose labels a batch learns from, as in PyG's examples.
SEEDS = 1024
# Maximum number of batches in an epoch: only the first training nodes are used, because PyG takes a minute
# for all of arxiv's.
MOST_BATCHES = 16
ONEHOP = "onehop"
_DRAWS_SEED = 0


class Training:
    """The training of one model: seeded, with its authors' optimiser, over the whole graph at once."""

    def __init__(
        self,
        model: str,
        task: LearningTask,
        hidden: int,
        seed: int = 0,
        edges: Any = None,
        autocast: torch.dtype | None = None,
    ) -> None:
        """Prepare the first epoch.

        Args:
            model: A key of :data:`onehop.bench.recipes.RECIPES`.
            task: The learning task.
            hidden: Width between the layers.
            seed: Seed of the initial parameters.
            edges: The argument for edges that the layers get; None means the task's ``edge_index``.
            autocast: The dtype of torch's autocast in forward passes; None means no autocast.
        """
        self._recipe = recipe(model)
        torch.manual_seed(seed)
        self.task = task
        self.edges = task.edge_index if edges is None else edges
        self.model = network(model, task.x.size(1), hidden, task.num_classes)
        self.optimizer = self._recipe.optimizer(self.model)
        self._autocast = autocast
        self._labels = task.y[task.train_mask]

    def epoch(self) -> float:
        """Run forward, backward and one optimiser step; return the loss."""
        self.model.train()
        return self._step(self.task.x, self.edges, self.task.train_mask, self._labels)

    def _step(self, x: Tensor, edges: Any, chosen: Tensor | slice, labels: Tensor) -> float:
        self.optimizer.zero_grad()
        with self._precision():
            out = self.model(x, edges)[chosen]
            loss = F.nll_loss(out, labels) if self._recipe.log_probabilities else F.cross_entropy(out, labels)
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        if self._autocast is None:
            return contextlib.nullcontext()
        return torch.autocast("cpu", dtype=self._autocast)

    @torch.no_grad()
    def test_accuracy(self) -> float:
        """Return the share of test nodes that are classified correctly, 0 to 1."""
        self.model.eval()
        mask = self.task.test_mask
        guess = self.model(self.task.x, self.edges)[mask].argmax(dim=-1)
        return float((guess == self.task.y[mask]).float().mean())


class BatchTraining(Training):
    """A training whose epoch goes once over the training nodes, in mini-batches."""

    def __init__(self, model: str, task: LearningTask, hidden: int, **options: Any) -> None:
        super().__init__(model, task, hidden, **options)
        self._batches = batches(task, self._recipe.fan_out)

    def epoch(self) -> float:
        """Run one optimiser step per batch; return the mean of the losses."""
        self.model.train()
        losses = []
        for batch in self._batches:
            seeds = batch.batch_size
            losses.append(self._step(batch.x, batch.edge_index, slice(seeds), batch.y[:seeds]))
        return float(torch.tensor(losses, dtype=torch.float64, device="cpu").mean())


def start(model: str, task: LearningTask, hidden: int, **options: Any) -> Training:
    """Start the training of the model's recipe, over the whole graph at once or in mini-batches."""
    kind = BatchTraining if recipe(model).fan_out else Training
    return kind(model, task, hidden, **options)


def drawn_by() -> str:
    """Return the sampler of the batches: pyg-lib, which the patch leaves to PyG, or else onehop."""
    from onehop.integrations.pyg.operators import has_pyg_lib

    return "pyg-lib" if has_pyg_lib() else ONEHOP


def batches(task: LearningTask, fan_out: tuple[int, ...]) -> Iterable[Any]:
    """Return the batches of an epoch, shuffled anew at each iteration by torch's generator."""
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    import onehop

    data = Data(x=task.x, edge_index=task.edge_index, y=task.y)
    sampler = None
    if drawn_by() == ONEHOP:
        graph = onehop.Graph.from_edge_index(task.edge_index, task.x.size(0))
        sampler = onehop.NeighborSampler(graph, fan_out, seed=_DRAWS_SEED)
    loader: Iterable[Any] = NeighborLoader(
        data,
        list(fan_out),
        input_nodes=task.train_mask.nonzero().view(-1)[: MOST_BATCHES * SEEDS],
        neighbor_sampler=sampler,
        batch_size=SEEDS,
        shuffle=True,
    )
    return loader
