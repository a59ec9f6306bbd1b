"""Random programs do the same with and without the patch; ``make fuzz`` runs thousands."""

import os
from pathlib import Path

from tests.processes import run_python

PROGRAMS = 150
ROOT = Path(__file__).parents[2]


def test_random_programs_do_the_same_with_and_without_the_patch():
    command = ["-m", "tests.differential", "--kind", "models", "--programs", str(PROGRAMS), "--shrink", "10"]
    # A process of its own: programs may crash theirs, which are forked from it.
    ended = run_python(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert ended.returncode == 0, ended.stdout[-20_000:] + ended.stderr[-2_000:]
    assert f"{PROGRAMS} programs" in ended.stdout.splitlines()[-1]
