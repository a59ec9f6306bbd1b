"""Python wrappers of the kernels: they pass addresses and sizes, and decide nothing."""
