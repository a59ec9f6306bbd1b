"""Checks the GPU kernels against the reference, then measures them: see --help."""

import sys

from onehop.bench.gpu.run import main

if __name__ == "__main__":
    sys.exit(main())
