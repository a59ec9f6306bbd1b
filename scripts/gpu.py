"""Judges the GPU kernels on this machine in ten minutes: ``make gpu``, or ``python scripts/gpu.py``.

It needs a GPU, a Python with torch for it, and a C++ compiler. It needs no network if the folder
build/gpu-wheels, which ``make gpu-wheels`` fills on a machine that has one, came along. It installs what is
missing into build/gpu, compiles the extension and then all kernels in parallel, runs the tests marked
"device", and then the benchmark until the time is over. Every step's output is shown and kept in build/gpu.
After a step that failed the next ones run all the same. The verdict is printed last, and written to
build/gpu/verdict.json.
"""

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "gpu"
WHEELS = ROOT / "build" / "gpu-wheels"
SITE = OUT / "site"
# Left for the steps that follow; the benchmark takes what is left.
_TESTS_S, _SANITIZER_S, _LEAST_BENCHMARK_S = 240, 90, 60


@dataclass(frozen=True)
class Step:
    """A command and its limit.

    Attributes:
        name: In words.
        command: What runs.
        limit_s: Seconds, after which it is ended.
        needed: Whether nothing after it makes sense if it fails.
    """

    name: str
    command: tuple[str, ...]
    limit_s: float
    needed: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of a step.

    Attributes:
        name: The step's.
        passed: Whether it ended with 0, within its limit.
        seconds: How long it took.
        note: The last line that it printed.
    """

    name: str
    passed: bool
    seconds: float
    note: str


def missing_gpu() -> str | None:
    """A sentence on why there is nothing to judge here; None if there is a GPU that torch can use."""
    if importlib.util.find_spec("torch") is None:
        return f"{sys.executable} has no torch; name a Python that has: make gpu GPU_PYTHON=..."
    import torch

    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no GPU here: there is nothing to judge."
    return None


def steps(minutes: float) -> Iterator[Step]:
    """What is done, in order; the last takes the time that is left of ``minutes``."""
    begin = time.monotonic()
    python = sys.executable
    wheels = sorted(map(str, WHEELS.glob("*.whl")))
    options = ["--disable-pip-version-check", "install", "-q", "--no-deps", "--target"]
    pip = (python, "-m", "pip", *options, str(SITE))
    if wheels:
        yield Step("packages", (*pip, "--no-index", "--upgrade", *wheels), 120, needed=True)
    build = ("--no-index", "--no-build-isolation", "--upgrade", str(ROOT))
    yield Step("extension", (*pip, *build), 300, needed=True)
    yield Step("kernels compiled", (python, "-m", "benchmarks.gpu.ahead"), 300)
    tests = (python, "-m", "pytest", "-q", "-W", "default", "-m", "device", "tests/device")
    yield Step("tests", tests, _TESTS_S)
    if shutil.which("compute-sanitizer"):
        checked = ("compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "1", *tests)
        yield Step("memory checked", (*checked, "-k", "without_edges or same_bits"), _SANITIZER_S)
    left = max(60 * minutes - (time.monotonic() - begin), _LEAST_BENCHMARK_S)
    benchmark = ("-m", "benchmarks.gpu", "--resume", "--minutes", f"{left / 60:.2f}", "--out", str(OUT))
    # A case that has begun ends.
    yield Step("benchmark", (python, *benchmark), left + 120)


def run(step: Step) -> Outcome:
    """Runs a step: its output is shown, and kept in build/gpu."""
    sys.stdout.write(f"\n== {step.name}\n")
    sys.stdout.flush()
    path = os.pathsep.join([str(SITE), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "ONEHOP_TEST_DEVICE": "cuda"}
    environment.setdefault("TRITON_CACHE_DIR", str(OUT / "triton"))
    begin, last = time.monotonic(), ""
    log = OUT / f"{step.name.replace(' ', '-')}.log"
    with (
        log.open("w") as kept,
        subprocess.Popen(
            ("timeout", f"{step.limit_s:.0f}", *step.command),
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process,
    ):
        for line in process.stdout or ():
            sys.stdout.write(line)
            kept.write(line)
            last = line.strip() or last
        code = process.wait()
    timed_out = code == 124  # what timeout(1) returns then
    note = f"ended after {step.limit_s:.0f} s; {last}" if timed_out else last
    return Outcome(step.name, code == 0, time.monotonic() - begin, note)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if all passed, 1 if something did not, 2 without a GPU."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="for everything (10)")
    chosen = parser.parse_args(arguments)
    reason = missing_gpu()
    if reason is not None:
        sys.stdout.write(f"{reason}\n")
        return 2
    OUT.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    for step in steps(chosen.minutes):
        outcomes.append(run(step))
        if step.needed and not outcomes[-1].passed:
            break
    (OUT / "verdict.json").write_text(json.dumps([asdict(each) for each in outcomes], indent=1))
    sys.stdout.write("\n== verdict\n")
    for each in outcomes:
        verdict = "passed" if each.passed else "FAILED"
        sys.stdout.write(f"{each.name:18} {verdict} {each.seconds:6.0f} s  {each.note}\n")
    return 0 if all(each.passed for each in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
