"""Functions of torch that take a good part of an epoch, replaced reversibly: the same numbers, sooner."""
