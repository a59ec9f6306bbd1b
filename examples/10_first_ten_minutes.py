"""The first ten minutes, in cells; scripts/notebook.py makes the notebook of this name from them."""

# %% [markdown]
# # The first ten minutes
#
# A model of PyTorch Geometric, trained without onehop and with it: the same losses, the time of every epoch,
# and what each layer did. Everything runs on the CPU, whether or not torch has found a GPU, and nothing is
# downloaded but the packages.

# %%
import time

import matplotlib.pyplot as plt
import torch
from torch_geometric.nn import GATConv, GCNConv

import onehop
from onehop import datasets

if "get_ipython" in globals():
    from IPython.display import display as show  # tables as HTML
else:
    show = print

# %% [markdown]
# ## A graph and a model
#
# A *twin* is a generated graph with the size and the degrees of a well-known one: here a tenth of
# ogbn-arxiv. The model is PyG's own code.

# %%
data = datasets.twin("arxiv", scale=0.1)
print(f"{data.num_nodes:,} nodes, {data.edge_index.size(1):,} edges, {data.x.size(1)} features")


class Net(torch.nn.Module):
    """Two layers of GCN and one of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.first = GCNConv(data.x.size(1), 64)
        self.second = GCNConv(64, 64)
        self.third = GATConv(64, data.num_classes, heads=4, concat=False)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """[N, features], [2, E] -> [N, classes]."""
        x = self.first(x, edge_index).relu()
        x = torch.nn.functional.dropout(x, training=self.training)
        return self.third(self.second(x, edge_index).relu(), edge_index)


def train(epochs: int = 8) -> tuple[list[float], list[float]]:
    """Return the loss of each epoch, and its seconds."""
    torch.manual_seed(0)
    model = Net()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    losses, seconds = [], []
    for _ in range(epochs):
        begin = time.perf_counter()
        optimiser.zero_grad()
        out = model(data.x, data.edge_index)[data.train_mask]
        loss = torch.nn.functional.cross_entropy(out, data.y[data.train_mask])
        loss.backward()
        optimiser.step()
        seconds.append(time.perf_counter() - begin)
        losses.append(loss.item())
    return losses, seconds


# %% [markdown]
# ## Without onehop, and with it
#
# `onehop.patch()` is one line. Inside the block PyG's layers run on onehop; behind it PyG is as it was.

# %%
alone, seconds_alone = train()
with onehop.patch():
    patched, seconds_patched = train()

same = max(abs(a - b) for a, b in zip(alone, patched, strict=True)) < 1e-2
print(f"same losses: {'yes' if same else 'no'}")

# %% [markdown]
# ## The time of every epoch
#
# The first epochs under the patch make the graph and what is kept of it; the others only use it.

# %%
figure, axes = plt.subplots(figsize=(6, 3))
for label, seconds in (("PyG alone", seconds_alone), ("with onehop", seconds_patched)):
    axes.plot(range(1, len(seconds) + 1), [1e3 * each for each in seconds], marker="o", label=label)
axes.set(xlabel="epoch", ylabel="milliseconds", ylim=(0, None))
axes.legend()
figure.savefig("first_ten_minutes.png")
last_alone, last_patched = min(seconds_alone), min(seconds_patched)
print(f"fastest epoch: {1e3 * last_alone:.0f} ms alone, {1e3 * last_patched:.0f} ms with onehop")

# %% [markdown]
# ## What each layer did
#
# Each layer is fast, or a sentence says why it is not.

# %%
show(onehop.explain(Net(), data.x, data.edge_index))

# %% [markdown]
# Your own script needs no change: `onehop run train.py` runs it under the patch and prints this table when
# it ends.
