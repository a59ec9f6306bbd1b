"""Full-batch training of a node classifier, the same for every way of aggregating."""

from typing import Any

import torch
import torch.nn.functional as F

from onehop.bench.tasks import Task

# The usual rate for these models on these graphs.
LEARNING_RATE = 0.01


class Training:
    """One model on its way: seeded, Adam at 0.01, the whole graph at once."""

    def __init__(self, model: str, task: Task, hidden: int, seed: int = 0, edges: Any = None) -> None:
        """Prepares the first epoch.

        Args:
            model: A key of :data:`onehop.bench.plain_models.MODELS`.
            task: What is learnt.
            hidden: Width between the layers.
            seed: Of the initial parameters.
            edges: What the layers are given for edges; None means the task's ``edge_index``.
        """
        from onehop.bench.plain_models import MODELS

        torch.manual_seed(seed)
        self.task = task
        self.edges = task.edge_index if edges is None else edges
        self.model = MODELS[model](task.x.size(1), hidden, task.num_classes)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=LEARNING_RATE)
        self._labels = task.y[task.train_mask]

    def epoch(self) -> float:
        """Forward, backward, one step of Adam; returns the loss."""
        self.model.train()
        self.optimizer.zero_grad()
        out = self.model(self.task.x, self.edges)
        loss = F.cross_entropy(out[self.task.train_mask], self._labels)
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    @torch.no_grad()
    def test_accuracy(self) -> float:
        """The share of test nodes that are classified rightly, 0 to 1."""
        self.model.eval()
        mask = self.task.test_mask
        guess = self.model(self.task.x, self.edges)[mask].argmax(dim=-1)
        return float((guess == self.task.y[mask]).float().mean())
