"""The patch that runs other frameworks' models on onehop's kernels, its table and its refusals."""
