"""What can be shown of the GPU kernels: how they compile, and, on a GPU, how fast they are."""
