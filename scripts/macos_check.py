"""Compiles and links the extensions for macOS on 64-bit Arm, on another system, with Zig's C++ compiler.

    python scripts/macos_check.py build/macos

It shows that the sources use nothing that macOS lacks, and what is undefined in the libraries. It shows no
more: nothing runs, and Python's headers are those of this system, which describe macOS but for the size of
``long double`` (16 bytes here, 8 there), of which the extensions have none. A wheel is made on macOS alone.
"""

import os
import stat
import struct
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = "aarch64-macos"
EXTENSIONS = ("_native", "_machines")
# Zig's linker cannot read nanobind's list of the symbols that Python brings, so it allows any. It
# crashes on bundles, which are libraries that nothing links.
PROGRAM = """#!/bin/sh
for each; do
  shift
  case "$each" in
    -Wl,@*.sym) set -- "$@" -Wl,-undefined,dynamic_lookup ;;
    -bundle) set -- "$@" -shared ;;
    *) set -- "$@" "$each" ;;
  esac
done
exec "{python}" -m ziglang {compiler} -target {target} "$@"
"""
# GNU's programs for archives do not know objects for macOS.
ARCHIVER = """#!/bin/sh
exec "{python}" -m ziglang {program} "$@"
"""
# The begin of a Mach-O file (mach-o/loader.h): magic number, processor, its kind, the file's kind.
MAGIC, ARM64, LIBRARY = 0xFEEDFACF, 0x0100000C, 6


def make_compilers(folder: Path) -> None:
    """Writes programs named cc, c++, ar and ranlib that work for macOS; SystemExit without Zig."""
    if find_spec("ziglang") is None:
        raise SystemExit("Zig's compiler is not installed: pip install ziglang")
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        name: PROGRAM.format(python=sys.executable, compiler=name, target=TARGET) for name in ("cc", "c++")
    }
    texts |= {name: ARCHIVER.format(python=sys.executable, program=name) for name in ("ar", "ranlib")}
    for name, text in texts.items():
        program = folder / name
        program.write_text(text)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)


def build(folder: Path) -> list[Path]:
    """The extensions, compiled and linked, in a folder that is kept for the next time."""
    compilers = folder / "compilers"
    make_compilers(compilers)
    configure = ["cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja"]
    configure += [f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'scripts' / 'macos.cmake'}"]
    configure += [f"-DONEHOP_COMPILERS={compilers}", f"-DPython_EXECUTABLE={sys.executable}"]
    configure += [f"-DPython_INCLUDE_DIR={sysconfig.get_path('include')}", "-DONEHOP_WERROR=ON"]
    environment = {
        **os.environ,
        "ZIG_GLOBAL_CACHE_DIR": str(folder / "zig"),
        "ZIG_LOCAL_CACHE_DIR": str(folder / "zig"),
    }
    subprocess.run(configure, env=environment, check=True)
    # All that does not compile, not the first of it alone.
    compile_all = ["cmake", "--build", str(folder), "--target", *EXTENSIONS, "--", "-k", "0"]
    subprocess.run(compile_all, env=environment, check=True)
    return [path for name in EXTENSIONS for path in folder.glob(f"{name}.*so")]


def check_library(path: Path) -> None:
    """Raises SystemExit unless a file is a library for macOS on 64-bit Arm."""
    magic, processor, _, kind = struct.unpack("<4I", path.read_bytes()[:16])
    if (magic, processor) != (MAGIC, ARM64) or kind != LIBRARY:
        raise SystemExit(f"{path} is no library for macOS on 64-bit Arm.")


def main(folder: Path) -> None:
    """Builds and checks; SystemExit if an extension is missing."""
    libraries = build(folder.resolve())
    if len(libraries) != len(EXTENSIONS):
        raise SystemExit(f"Expected {' and '.join(EXTENSIONS)} in {folder}, found {libraries or 'nothing'}.")
    for library in libraries:
        check_library(library)
        print(f"{library}: for macOS on 64-bit Arm, {library.stat().st_size:,} bytes; not run")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
