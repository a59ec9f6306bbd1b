"""Builds the wheel for 64-bit Arm on another machine, with Debian's cross compiler, into a folder.

    python scripts/cross_wheel.py dist

Python's headers for Arm are those of this Python: between 64-bit Linux systems they differ in nothing that an
extension sees but what ``pyconfig.h`` says of sizes, which is compared with the cross compiler's own first.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

from elftools.elf.elffile import ELFFile

ROOT = Path(__file__).resolve().parents[1]
COMPILER = "aarch64-linux-gnu-g++"
TOOLCHAIN = Path(__file__).with_name("aarch64.cmake")
PLATFORM = "linux-aarch64"
# Each macro of pyconfig.h, and the type whose size it gives.
SIZES = {
    "SIZEOF_DOUBLE": "double",
    "SIZEOF_FLOAT": "float",
    "SIZEOF_INT": "int",
    "SIZEOF_LONG": "long",
    "SIZEOF_LONG_DOUBLE": "long double",
    "SIZEOF_LONG_LONG": "long long",
    "SIZEOF_OFF_T": "off_t",
    "SIZEOF_PID_T": "pid_t",
    "SIZEOF_PTHREAD_T": "pthread_t",
    "SIZEOF_SHORT": "short",
    "SIZEOF_SIZE_T": "size_t",
    "SIZEOF_TIME_T": "time_t",
    "SIZEOF_UINTPTR_T": "uintptr_t",
    "SIZEOF_VOID_P": "void*",
    "SIZEOF_WCHAR_T": "wchar_t",
}


def check_compiler() -> None:
    """Raises SystemExit unless there is one."""
    if shutil.which(COMPILER) is None:
        raise SystemExit(f"{COMPILER} is not installed; on Debian: apt install g++-aarch64-linux-gnu")


def header_check() -> str:
    """A program that compiles where ``pyconfig.h`` describes the compiler's own target."""
    lines = ["#include <Python.h>", "#include <pthread.h>", "#include <cstdint>"]
    lines += [f'static_assert({macro} == sizeof({kind}), "{macro}");' for macro, kind in SIZES.items()]
    lines += [
        "#ifdef WORDS_BIGENDIAN",
        "static_assert(__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);",
        "#else",
        "static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def check_headers(headers: str, compiler: str = COMPILER) -> None:
    """Raises SystemExit, with the compiler's own words, unless Python's headers fit its target."""
    command = [compiler, "-std=c++20", "-fsyntax-only", "-I", headers, "-x", "c++", "-"]
    done = subprocess.run(command, input=header_check(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{headers}: Python's headers do not fit the target of {compiler}:\n{done.stderr}")


def build(folder: Path) -> Path:
    """The wheel, tagged for Arm, in a folder."""
    # cpython-311-x86_64-linux-gnu becomes cpython-311-aarch64-linux-gnu.
    suffix = sysconfig.get_config_var("EXT_SUFFIX").replace(
        sysconfig.get_config_var("MULTIARCH"), "aarch64-linux-gnu"
    )
    environment = {
        **os.environ,
        "CMAKE_ARGS": f"-DCMAKE_TOOLCHAIN_FILE={TOOLCHAIN}",
        "SETUPTOOLS_EXT_SUFFIX": suffix,
        "_PYTHON_HOST_PLATFORM": PLATFORM,
    }
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-v", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, env=environment, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def check_wheel(wheel: Path) -> None:
    """Raises SystemExit unless a wheel has extensions, all of them for Arm."""
    with zipfile.ZipFile(wheel) as archive:
        extensions = [name for name in archive.namelist() if name.endswith(".so")]
        machines = set()
        for name in extensions:
            with archive.open(name) as file:
                machines.add(ELFFile(file).get_machine_arch())
    if not extensions or machines != {"AArch64"} or "aarch64" not in wheel.name:
        raise SystemExit(f"{wheel.name} is no wheel for Arm: its extensions are for {machines or 'nothing'}.")


def main(folder: Path) -> None:
    """Builds, lets auditwheel name the oldest glibc that serves, and checks."""
    check_compiler()
    check_headers(sysconfig.get_path("include"))
    with tempfile.TemporaryDirectory() as place:
        wheel = build(Path(place))
        check_wheel(wheel)
        before = set(folder.glob("*.whl"))
        subprocess.run(["auditwheel", "repair", "--wheel-dir", str(folder), str(wheel)], check=True)
    for repaired in set(folder.glob("*.whl")) - before:
        check_wheel(repaired)
        print(repaired)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
