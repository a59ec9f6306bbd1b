"""The engine without Python: compiled with sanitizers, and for Arm, and compared with plain loops."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
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


def program(name: str) -> str:
    """Where a program is: beside this Python first, then on the path."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def build(kind: str, **settings: str) -> Path:
    """Compiles kernel_check into build/kernel_check/KIND; what is there and current is not compiled again."""
    folder = ROOT / "build" / "kernel_check" / kind
    options = [f"-D{name}={value}" for name, value in settings.items()]
    ninja = f"-DCMAKE_MAKE_PROGRAM={program('ninja')}"
    configure = [
        program("cmake"),
        "-G",
        "Ninja",
        "-S",
        ROOT / "tests" / "native",
        "-B",
        folder,
        ninja,
        *options,
    ]
    for command in (configure, [program("cmake"), "--build", folder]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "kernel_check"


def run(command: list[str | Path], isas: set[str], dtypes: tuple[str, ...], **environment: str) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = set(re.findall(r"^PASS (\w+) (\w+) (\w+) \([1-9]", done.stdout, flags=re.MULTILINE))
    expected = {(isa, dtype, name) for isa in isas for dtype in dtypes for name in OPERATORS}
    expected |= {
        (isa, "float32", name) for isa in isas for name in ("stream_read", "gather_rows", "exponential")
    }
    assert expected <= passed
    assert "FAIL" not in done.stdout


def test_address_and_undefined_behaviour_sanitizers_find_nothing() -> None:
    compiler = os.environ.get("CXX") or "c++"
    program(compiler)
    dtypes = ("float32", "bfloat16")  # float64 and float16 share their code and would double the build
    check = build(
        "sanitized",
        CMAKE_CXX_COMPILER=compiler,
        ONEHOP_SANITIZE="address,undefined",
        ONEHOP_OPTIMISE="-O0",
        ONEHOP_TYPES="float;bfloat16",
    )
    run([check, *dtypes], {"portable"}, dtypes)


def test_neon_kernels_under_an_emulator() -> None:
    compiler, emulator = program("aarch64-linux-gnu-g++"), program("qemu-aarch64")
    check = build(
        "aarch64",
        CMAKE_SYSTEM_NAME="Linux",
        CMAKE_SYSTEM_PROCESSOR="aarch64",
        CMAKE_CXX_COMPILER=compiler,
        ONEHOP_OPTIMISE="-O1",
    )
    dtypes = ("float32", "float64", "bfloat16", "float16")
    run([emulator, "-L", "/usr/aarch64-linux-gnu", check], {"neon"}, dtypes, ONEHOP_ISA="neon")
