"""A graph with communities whose numbers tell nothing: tuned once, its rows are visited in a better order."""

import numpy as np
import torch

import onehop
from onehop.datasets import planted

# 200 communities of 100 nodes, numbered at random; nine edges in ten stay inside.
rng = np.random.default_rng(0)
labels = rng.permutation(np.repeat(np.arange(200), 100))
edge_index = planted.edges(rng, labels, num_pairs=200_000, exponent=0.0, same_class=0.9)
graph = onehop.Graph.from_edge_index(edge_index, num_nodes=len(labels))
x = torch.randn(len(labels), 64)
before = onehop.aggregate(graph, x)

# Measures some plans for three seconds and keeps the best, for this program and for later ones.
result = onehop.tune(graph, width=64, backward=False, budget_s=3)
print(result)

after = onehop.aggregate(graph, x)  # with the plan that was found
print("same result:", "yes" if torch.allclose(before, after, rtol=1e-5, atol=1e-5) else "no")

# A program that may renumber its nodes takes the order along, into every library.
reordering = graph.reorder("community")
print(f"distance of neighbours: {graph.statistics.mean_span:.3f} of the numbers before, "
      f"{reordering.graph.statistics.mean_span:.3f} after")  # fmt: skip
