"""The patch of DGL: the operators on edges that its layers call, and fused attention."""
