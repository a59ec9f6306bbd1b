"""Layers in programs that ``torch.compile`` and ``torch.export`` make: what a patched layer leaves in them.

A program is traced once, with tensors that have no data, and runs many times. So nothing that eager layers
look up can be looked up while tracing: not the graph, nor the normalised edges, nor kept aggregates. In their
place stand operators that look them up when the program runs, in the same caches, by the ``edge_index`` that
the program is given. How many edges there are with self loops depends on the data; shapes do not: they allow
for the most that there can be (:mod:`onehop.graph.handle`).
"""
