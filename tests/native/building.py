"""Compiles the engine's tests without Python, and finds the programs that this takes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Sanitizers for one thread; -fsanitize=undefined leaves out numbers that are too large for an integer.
MEMORY_AND_ARITHMETIC = "address,undefined,float-cast-overflow"


def program(name: str) -> str:
    """Where a program is: beside this Python first, then on the path."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def compiler() -> str:
    """The C++ compiler for the machine at hand."""
    name = os.environ.get("CXX") or "c++"
    program(name)
    return name


def build(kind: str, *targets: str, **settings: str) -> Path:
    """Compiles into build/kernel_check/KIND; what is there and current is not compiled again."""
    folder = ROOT / "build" / "kernel_check" / kind
    options = [f"-D{name}={value}" for name, value in settings.items()]
    ninja = f"-DCMAKE_MAKE_PROGRAM={program('ninja')}"
    source = ROOT / "tests" / "native"
    configure = [program("cmake"), "-G", "Ninja", "-S", source, "-B", folder, ninja, *options]
    make = [program("cmake"), "--build", folder, "--target", *targets]
    for command in (configure, make):
        # A sanitizer's library that this process was told to load is none of the compiler's business.
        done = run(command, LD_PRELOAD="")
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


def run(command: list[str | Path], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
