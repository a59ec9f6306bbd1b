"""Builds kernels into the cache folder: generates, compiles, tests in another process, installs."""

import hashlib
import json
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from onehop import native
from onehop.errors import OnehopError
from onehop.kernels.cpu import generated
from onehop.tuner.codegen.spec import Spec

_NAMES = ("c++", "g++", "clang++")
# Long enough for a slow disk; a compiler that takes longer to report its version is hung.
_VERSION_S = 10.0
_COMMON = ("-std=gnu++20", "-O3", "-fPIC", "-shared", "-fno-math-errno", "-fvisibility=hidden", "-w")
# Flags of an instruction set that was selected although the processor has a better one (csrc/engine.cmake).
_LEVELS = {
    "portable": (),
    "avx2": ("-mavx2", "-mfma", "-mf16c", "-mtune=native"),
    "avx512": ("-march=native", "-mprefer-vector-width=512"),
    "neon": ("-mcpu=native",),
}
_SHOWN_CHARACTERS = 300
_TRIAL = Path(__file__).with_name("trial.py")
# The trial itself takes a fraction of a second; a kernel with an endless loop is stopped after this time.
_TRIAL_S = 20.0


class CodegenError(OnehopError, RuntimeError):
    """Raised if a kernel could not be built; the message says why."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """A working compiler.

    Attributes:
        command: The program, with the arguments from ``CXX``.
        version: The first line of the output of ``--version``.
    """

    command: tuple[str, ...]
    version: str

    def flags(self) -> tuple[str, ...]:
        """Return flags for this processor, or for the instruction set that is selected instead."""
        isa = native.extension.selected_isa()
        best = isa == native.extension.available_isas()[0]
        if best and platform.machine() in ("x86_64", "AMD64"):
            return (*_COMMON, "-march=native", "-mprefer-vector-width=512")
        return (*_COMMON, *_LEVELS[isa])

    def compile(self, source: Path, library: Path, timeout_s: float) -> None:
        """Compile a source file into a shared library.

        Raises:
            CodegenError: The compiler failed or timed out.
        """
        run(
            [*self.command, *self.flags(), str(source), "-o", str(library)],
            timeout_s,
            f"the compiler {self.command[0]}",
        )
        if not library.exists():
            raise CodegenError(f"the compiler {self.command[0]} said that all is well, and made no library")


def find_compiler() -> Compiler:
    """Return the first installed compiler of ``$CXX``, c++, g++ and clang++.

    Raises:
        CodegenError: No compiler is installed, or the compiler does not answer.
    """
    chosen = os.environ.get("CXX", "")
    commands = [shlex.split(chosen)] if chosen.strip() else []
    for command in [*commands, *([name] for name in _NAMES)]:
        if shutil.which(command[0]) is not None:
            text = run([*command, "--version"], _VERSION_S, f"the compiler {command[0]}")
            return Compiler(tuple(command), (text.splitlines() or [""])[0])
    where = f"neither $CXX ({chosen}) nor" if commands else "none of"
    raise CodegenError(f"no C++ compiler was found ({where} {', '.join(_NAMES)} is there)")


def run(command: list[str], timeout_s: float, what: str) -> str:
    """Run a program and return its output; all processes that it started end with it.

    Raises:
        CodegenError: The program cannot be started, fails, or times out.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise CodegenError(f"{what} cannot be started ({error.strerror or error})") from error
    try:
        printed, _ = process.communicate(timeout=max(timeout_s, 0.0))
    except subprocess.TimeoutExpired as error:
        raise CodegenError(f"{what} was stopped: it was not done after {timeout_s:.1f} s") from error
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode:
        shown = " ".join(printed.split())[:_SHOWN_CHARACTERS]
        how = f"code {process.returncode}" if process.returncode > 0 else f"signal {-process.returncode}"
        raise CodegenError(f"{what} failed with {how}: {shown or 'it printed nothing'}")
    return printed


def build(spec: Spec, compiler: Compiler, timeout_s: float) -> str:
    """Return the name of a kernel that is ready to use, from the cache or newly built.

    The name has the fixed constants, and ends in a hash of source, compiler, its version and flags. Several
    processes may build the same kernel at once: each writes its own file and renames it into place.

    Args:
        spec: The constants to fix.
        compiler: The compiler.
        timeout_s: Seconds that the compiler may take.

    Raises:
        CodegenError: The compiler failed or timed out, the kernel's results are wrong, or the folder cannot
            be written.
    """
    source = spec.source()
    inputs = json.dumps([source, compiler.command, compiler.version, compiler.flags()])
    key = hashlib.sha256(inputs.encode()).hexdigest()[:16]
    name = f"{spec.title}-{native.extension.selected_isa()}-{key}"
    generated.forget(name)
    file = generated.path_of(name)
    if file.exists() and generated.why_not(name) is None:
        return name
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=".making-") as folder:
            _make(spec, source, Path(folder), file, compiler, timeout_s)
    except OSError as error:
        raise CodegenError(f"{file.parent} cannot be written ({error.strerror or error})") from error
    generated.forget(name)
    reason = generated.why_not(name)
    if reason is not None:
        discard(name)
        raise CodegenError(reason)
    return name


def discard(name: str) -> None:
    """Delete a kernel that must not be used."""
    generated.path_of(name).unlink(missing_ok=True)
    generated.forget(name)


def _make(spec: Spec, source: str, folder: Path, file: Path, compiler: Compiler, timeout_s: float) -> None:
    text, library, sealed = folder / "kernel.cpp", folder / "kernel.so", folder / "sealed"
    text.write_text(source)
    begin = time.perf_counter()
    compiler.compile(text, library, timeout_s)
    left = max(_TRIAL_S, timeout_s - (time.perf_counter() - begin))
    if not sys.executable:
        raise CodegenError("there is no Python interpreter in whose process a kernel could be tried first")
    # The trial runs in another process, so that a faulty kernel cannot crash this one.
    run(
        [sys.executable, "-I", str(_TRIAL), str(library), spec.kind, spec.dtype],
        left,
        "the trial of the kernel",
    )
    sealed.write_bytes(generated.seal(library.read_bytes()))
    sealed.replace(file)
