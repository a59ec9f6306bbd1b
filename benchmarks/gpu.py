"""Checks the GPU kernels against the reference, then measures them.

python benchmarks/gpu.py           beside what others offer: see --help
python benchmarks/gpu.py tuned     untuned plans beside tuned ones
python benchmarks/gpu.py orders    orders of rows, for either mapping
"""

import sys

from onehop.bench.gpu import plans_run, run

if __name__ == "__main__":
    first, *others = sys.argv[1:] or [""]
    sys.exit(plans_run.main(first, others) if first in plans_run.PARTS else run.main())
