"""A (X W) or (A X) W, whichever costs less: layers with a linear step and a linear aggregation.

Both orders give the same result up to rounding, and each of PyG's layers uses one of them. Here, a layer's
``forward`` uses the other order if it aggregates fewer columns.
"""
