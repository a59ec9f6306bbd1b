"""Other frameworks' models on onehop's kernels: the patch, its table and its refusals."""
