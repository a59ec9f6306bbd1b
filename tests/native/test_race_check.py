"""Pool, loops and graphs used by several threads at once, and in forked processes."""

import subprocess

import pytest

from tests.native.building import MEMORY_AND_ARITHMETIC, build, compiler, run

# Processes are forked in the plain build, while threads are busy, and in the sanitized one.
SANITIZERS = {"plain": "", "threads": "thread", "sanitized": MEMORY_AND_ARITHMETIC}


def race_check(kind: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    folder = build(
        kind,
        "race_check",
        "openmp_on_threads",
        CMAKE_CXX_COMPILER=compiler(),
        ONEHOP_SANITIZE=SANITIZERS[kind],
        ONEHOP_OPTIMISE="-O0",
        ONEHOP_TYPES="float;bfloat16" if kind == "sanitized" else "float",
    )
    program = [folder / "race_check", str(folder / "libopenmp_on_threads.so"), *arguments]
    return run(program, LD_PRELOAD="")


@pytest.mark.parametrize("kind", SANITIZERS)
def test_threads_and_forked_processes_share_nothing_by_accident(kind: str) -> None:
    done = race_check(kind)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "PASS\n"


@pytest.mark.parametrize("kind", ["threads", "sanitized"])
def test_planted_faults_are_found(kind: str) -> None:
    # Else the test above would pass whatever the engine did.
    done = race_check(kind, "planted")
    assert done.returncode != 0
    assert {"threads": "data race", "sanitized": "use-after-poison"}[kind] in done.stderr
    assert "run_planted_faults" in done.stderr
