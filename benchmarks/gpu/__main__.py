"""Checks the GPU kernels against the reference, then measures them.

python -m benchmarks.gpu           beside what others offer: see --help
python -m benchmarks.gpu --plans   default plans beside tuned ones, other mappings and orders of rows
python -m benchmarks.gpu.check     how they compile, without a GPU
"""

import sys

from benchmarks.gpu import plans, run

arguments = sys.argv[1:]
if "--plans" in arguments:
    sys.exit(plans.main([each for each in arguments if each != "--plans"]))
sys.exit(run.main(arguments))
