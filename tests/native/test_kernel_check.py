"""The engine without Python: compiled with sanitizers, and for Arm, and compared with plain loops."""

import os
import re
from pathlib import Path

import pytest

from tests.native.building import MEMORY_AND_ARITHMETIC, ROOT, build, compiler, program, run

OPERATORS = (
    "sum",
    "mean",
    "max",
    "min",
    "extremum_grad_source",
    "extremum_grad_weight",
    "sddmm",
    "fusedmm",
    "edge_softmax",
    "edge_softmax_grad",
    "attend",
    "attend_grad",
)


needs_time = pytest.mark.skipif(
    "ONEHOP_SANITIZED" not in os.environ, reason="make sanitize runs it: it compiles for minutes"
)


def check(command: list[str | Path], isas: set[str], dtypes: tuple[str, ...], **environment: str) -> None:
    done = run(command, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = set(re.findall(r"^PASS (\w+) (\w+) (\w+) \([1-9]", done.stdout, flags=re.MULTILINE))
    expected = {(isa, dtype, name) for isa in isas for dtype in dtypes for name in OPERATORS}
    expected |= {
        (isa, "float32", name)
        for isa in isas
        for name in (
            *("stream_read", "gather_rows", "exponential", "dropout", "message"),
            *("tensor_product", "tensor_product_edges"),
        )
    }
    assert expected <= passed
    assert "FAIL" not in done.stdout


def test_the_check_fits_the_kernels() -> None:
    """Two seconds, where its build with sanitizers takes minutes: it must not fall behind unnoticed."""
    source = ROOT / "tests" / "native" / "kernel_check.cpp"
    done = run([compiler(), "-std=c++20", "-fsyntax-only", f"-I{ROOT / 'csrc' / 'include'}", source])
    assert done.returncode == 0, done.stderr


@needs_time
def test_address_and_undefined_behaviour_sanitizers_find_nothing() -> None:
    dtypes = ("float32", "bfloat16")  # float64 and float16 share their code and would double the build
    folder = build(
        "sanitized",
        "kernel_check",
        CMAKE_CXX_COMPILER=compiler(),
        ONEHOP_SANITIZE=MEMORY_AND_ARITHMETIC,
        ONEHOP_OPTIMISE="-O0",
        ONEHOP_TYPES="float;bfloat16",
    )
    check([folder / "kernel_check", *dtypes], {"portable"}, dtypes, LD_PRELOAD="")


@needs_time
def test_thread_sanitizer_finds_nothing() -> None:
    dtypes = ("float32",)  # threads share work in the same way whatever the type
    folder = build(
        "threads",
        "kernel_check",
        "openmp_on_threads",
        CMAKE_CXX_COMPILER=compiler(),
        ONEHOP_SANITIZE="thread",
        ONEHOP_OPTIMISE="-O0",
        ONEHOP_TYPES="float",
    )
    threads = str(folder / "libopenmp_on_threads.so")
    check(
        [folder / "kernel_check", *dtypes], {"portable"}, dtypes, LD_PRELOAD="", KERNEL_CHECK_THREADS=threads
    )


def test_neon_kernels_under_an_emulator() -> None:
    aarch64, emulator = program("aarch64-linux-gnu-g++"), program("qemu-aarch64")
    folder = build(
        "aarch64",
        "kernel_check",
        CMAKE_SYSTEM_NAME="Linux",
        CMAKE_SYSTEM_PROCESSOR="aarch64",
        CMAKE_CXX_COMPILER=aarch64,
        ONEHOP_OPTIMISE="-O1",
    )
    dtypes = ("float32", "float64", "bfloat16", "float16")
    check(
        [emulator, "-L", "/usr/aarch64-linux-gnu", folder / "kernel_check"],
        {"neon"},
        dtypes,
        ONEHOP_ISA="neon",
    )
