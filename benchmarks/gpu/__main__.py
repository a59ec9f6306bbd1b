"""Checks the GPU kernels against the reference, then measures them.

python -m benchmarks.gpu           beside what others offer: see --help
python -m benchmarks.gpu tuned     untuned plans beside tuned ones
python -m benchmarks.gpu orders    orders of rows, for either mapping
python -m benchmarks.gpu.check     how they compile, without a GPU
"""

import sys

from benchmarks.gpu import plans_run, run

first, *others = sys.argv[1:] or [""]
sys.exit(plans_run.main(first, others) if first in plans_run.PARTS else run.main())
