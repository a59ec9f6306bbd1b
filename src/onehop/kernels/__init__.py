"""The kernels' thin Python side: addresses and sizes in, nothing decided."""
