"""The four reductions on a small graph, with weights and gradients."""

import torch

import onehop

# Edges run from sources (first row) to destinations (second row).
edge_index = torch.tensor([[0, 1, 2, 2, 3], [1, 2, 0, 1, 1]])
graph = onehop.Graph.from_edge_index(edge_index, num_nodes=4)
print(graph)

x = torch.arange(8.0).reshape(4, 2).requires_grad_()
for reduce in ("sum", "mean", "max", "min"):
    print(reduce, onehop.aggregate(graph, x, reduce=reduce).tolist())

# One weight an edge, in the order of edge_index. Node 3 has no edges coming in, so its row is 0.
weight = torch.tensor([0.5, 1.0, 1.0, 2.0, 1.0], requires_grad=True)
out = onehop.aggregate(graph, x, weight)
out.sum().backward()
print("weighted sum", out.tolist())
print("gradient of the weights", weight.grad.tolist())

# The other way round: a number for every edge from the vectors at its two ends.
print("dot products", onehop.sddmm(graph, x, x).tolist())
