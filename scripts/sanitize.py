"""Compiles the extension with sanitizers, beside the ordinary build, and runs tests of native code with it.

Arguments are pytest's; files and folders that are named run in the place of those below. Needs GCC.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "sanitize-address"


def files(folder: str, *names: str) -> list[str]:
    """Files of tests in a folder."""
    return [f"tests/{folder}/test_{name}.py" for name in names]


TESTS = (
    "tests/native",
    *files("attack", "native_reads"),
    *files("integrations/pyg", "edge_functions", "negative_sampling"),
    *files("integrations/torch", "indexing", "indexing_left", "linear", "products"),
    "tests/kernels",
    "tests/graph",
    "tests/datasets",
    *files("loaders", "engine", "walks"),
    *files("machines/dram", "commands", "reference_cases", "command_file", "refresh_rules"),
    *files("machines/gpu", "gather"),
    *files("machines/ndp", "counts", "machine", "oracle", "windows"),
    *files("machines/pim", "dpu_program", "execution", "host_program", "naive", "numbers"),
    *files("ops", "aggregate", "attention", "bad_input", "conformance", "dropout", "edge_softmax"),
    *files("ops", "extremum", "fusedmm", "message", "processes", "rows", "streaming", "torch_stream"),
    "tests/points",
)

# Nothing native runs there.
IGNORED = ("tests/kernels/triton",)

# These hold of the C library's allocator, which the sanitizer replaces, or of a limit on the address space,
# of which the sanitizer takes terabytes.
DESELECTED = (
    "tests/ops/test_streaming.py::test_three_times_the_memory_that_the_process_may_have",
    "tests/kernels/test_pool.py::test_freed_memory_can_be_kept_and_given_back",
    "tests/kernels/test_pool.py::test_freed_memory_is_kept_up_to_a_bound",
    "tests/graph/test_identity.py::test_memory_that_is_reused_is_not_the_tensor",
    "tests/graph/test_remembered.py::test_memory_that_is_reused_is_not_the_tensor",
)

# Sanitizers that stop at their first finding; see docs/howto/run-the-sanitizers.md for each option's reason.
ASAN_OPTIONS = "detect_leaks=0:allocator_may_return_null=1:abort_on_error=1"
UBSAN_OPTIONS = "halt_on_error=1:print_stacktrace=1:abort_on_error=1"


# An editable installation answers imports before the path does; Python runs this in every process.
FIRST_CHOICE = """import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__]
"""


def program(name: str) -> str:
    """The path of a program: beside this Python first, then anywhere on the path."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        sys.exit(f"{name} is missing; on Debian: apt install {name}")
    return found


def library(compiler: str, name: str) -> str:
    """The path of one of the compiler's libraries."""
    command = [compiler, f"-print-file-name={name}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(found).is_absolute():
        sys.exit(f"{compiler} has no {name}; on Debian: apt install g++, then make sanitize CXX=g++")
    return str(Path(found).resolve())


def compile_extension(compiler: str) -> Path:
    """Compiles both extension modules and returns a folder with the package that has them."""
    objects = BUILD / "objects"
    settings = {
        "CMAKE_BUILD_TYPE": "Debug",
        "CMAKE_CXX_COMPILER": compiler,
        "CMAKE_CXX_FLAGS_DEBUG": "-O1",
        "CMAKE_MAKE_PROGRAM": program("ninja"),
        "ONEHOP_OPTIMISE": "-O0",  # with -O1 kernels compile for twice as long
        "ONEHOP_SANITIZE": "address,undefined,float-cast-overflow",
        "Python_EXECUTABLE": sys.executable,
    }
    options = [f"-D{name}={value}" for name, value in settings.items()]
    jobs = str(len(os.sched_getaffinity(0)))
    subprocess.run([program("cmake"), "-G", "Ninja", "-S", ROOT, "-B", objects, *options], check=True)
    subprocess.run([program("cmake"), "--build", objects, "--parallel", jobs], check=True)
    package = BUILD / "package"
    shutil.rmtree(package, ignore_errors=True)
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "src" / "onehop", package / "onehop", ignore=ignored)
    for module in objects.glob("*.so"):
        shutil.copy2(module, package / "onehop")
    (package / "sitecustomize.py").write_text(FIRST_CHOICE)
    return package


def environment(compiler: str, package: Path) -> dict[str, str]:
    """The environment in which Python imports that package and the sanitizers watch it."""
    # The C++ library comes along so that the sanitizer sees exceptions that torch throws.
    preloaded = [library(compiler, "libasan.so"), library(compiler, "libstdc++.so.6")]
    return {
        "OMP_NUM_THREADS": "2",
        **os.environ,
        "ASAN_OPTIONS": ASAN_OPTIONS,
        "LD_PRELOAD": " ".join(preloaded),
        "ONEHOP_SANITIZED": "1",
        "PYTHONPATH": str(package),
        "UBSAN_OPTIONS": UBSAN_OPTIONS,
    }


def main(arguments: list[str]) -> int:
    """Compiles, tests, and returns pytest's status."""
    compiler = program(os.environ.get("CXX") or "c++")
    package = compile_extension(compiler)
    named = any((ROOT / argument.partition("::")[0]).exists() for argument in arguments)
    tests = [] if named else TESTS
    left_out = [f"--ignore={path}" for path in IGNORED] + [f"--deselect={test}" for test in DESELECTED]
    # Only what Python writes is captured: a sanitizer's words would be lost with the process that it ends.
    command = [sys.executable, "-m", "pytest", "--capture=sys", *tests, *left_out, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment(compiler, package), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
