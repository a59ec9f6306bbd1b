"""A (X W) or (A X) W, whichever costs less: layers with a linear step beside a linear aggregation.

Both orders give the same result within rounding, and each of PyG's layers has one of them. Here the forward
of such a layer takes the other one where that aggregates fewer columns.
"""
