"""Builds kernels into the cache folder: generated, compiled, tested in another process, installed."""

import hashlib
import json
import sys
import tempfile
import time
from pathlib import Path

from onehop import native
from onehop.kernels.cpu import generated
from onehop.tuner.codegen.compiler import CodegenError, Compiler, run
from onehop.tuner.codegen.spec import Spec

_TRIAL = Path(__file__).with_name("trial.py")
# The trial itself takes a fraction of a second; a kernel with an endless loop is stopped after this.
_TRIAL_S = 20.0


def build(spec: Spec, compiler: Compiler, timeout_s: float) -> str:
    """The name of a kernel that is ready to use: found in the cache, or built.

    The name states the fixed constants, and ends in a hash of source, compiler, its version and flags.
    Several processes may build the same kernel at once: each writes its own file and renames it into place.

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
    """Deletes a kernel that must not be used."""
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
    # Whatever the compiler produced, it must not crash this process.
    run(
        [sys.executable, "-I", str(_TRIAL), str(library), spec.kind, spec.dtype],
        left,
        "the trial of the kernel",
    )
    sealed.write_bytes(generated.seal(library.read_bytes()))
    sealed.replace(file)
