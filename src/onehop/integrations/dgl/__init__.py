"""DGL: sums, extrema, products and softmaxes over edges underneath its layers, and fused attention."""
