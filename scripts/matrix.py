"""Runs onehop's wheel in fresh environments of several releases of Python, torch, PyG and DGL.

    python scripts/matrix.py [--only 0,3] [--wheels FOLDER] [--keep]

``make matrix`` calls it. In each environment the wheel's smoke test runs, and about a hundred chosen tests.
Results are written to benchmarks/results/matrix.json after each; combinations that were left out keep their
earlier result. A Python is found by its name, such as ``python3.12``. PyPI's torch for Linux includes CUDA;
to get it without, set ``PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu``.
"""

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "matrix.json"
FOLDER = ROOT / "build" / "matrix"
# The layers' results and gradients in float64 beside PyG's, whole trainings, and what explain says.
TESTS = (
    "tests/integrations/pyg/test_convs.py::test_float64_results_are_pygs",
    "tests/integrations/pyg/test_convergence.py",
    "tests/integrations/pyg/test_explain.py",
)
DGL_TESTS = ("tests/integrations/dgl/test_patching.py",)
NEEDED = ("pytest", "hypothesis", "expecttest")


@dataclass(frozen=True)
class Combination:
    """Releases that are installed together.

    Attributes:
        python: Such as "3.11".
        torch: Its release.
        pyg: PyG's release.
        dgl: DGL's release; None for none.
    """

    python: str
    torch: str
    pyg: str
    dgl: str | None = None

    @property
    def name(self) -> str:
        """A name for its folder."""
        return "-".join(filter(None, (self.python, self.torch, self.pyg, self.dgl)))


COMBINATIONS = (
    Combination("3.11", "2.6.0", "2.6.1"),
    Combination("3.11", "2.6.0", "2.8.1"),
    Combination("3.12", "2.8.0", "2.7.0"),
    Combination("3.11", "2.13.0", "2.6.1"),
    Combination("3.11", "2.13.0", "2.8.1", "2.1.0"),
    Combination("3.12", "2.13.0", "2.8.1"),
    Combination("3.13", "2.13.0", "2.8.1"),
    Combination("3.13", "2.15.0", "2.8.1"),
)


def run(*words: object, check: bool = False, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a command and returns what it printed; with ``check``, one that fails is an error."""
    return subprocess.run([str(word) for word in words], text=True, check=check, **options)


def python_of(version: str) -> str:
    """The interpreter of a version; SystemExit if there is none."""
    found = shutil.which(f"python{version}")
    if found is None:
        raise SystemExit(
            f"python{version} is not in PATH: install it, or leave its combinations out (--only)."
        )
    return found


def wheel_for(version: str, folder: Path) -> Path:
    """The wheel for a Python, built if the folder has none: one for 3.11, and one for all later ones."""
    tag = "cp311" if version == "3.11" else "abi3"
    if not list(folder.glob(f"*{tag}*.whl")):
        done = run(python_of(version), "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT)
        if done.returncode:
            raise SystemExit(f"the wheel for Python {version} could not be built.")
    return next(folder.glob(f"*{tag}*.whl"))


def outcome(each: Combination, wheel: Path, folder: Path) -> dict[str, Any]:
    """What an environment shows: whether the smoke test ran, and how many tests passed and failed."""
    result: dict[str, Any] = {**asdict(each), "smoke": False, "passed": 0, "failed": 0, "wrong": ""}
    shutil.rmtree(folder, ignore_errors=True)
    run(python_of(each.python), "-m", "venv", folder, check=True)
    python = folder / "bin" / "python"
    packages = [f"{wheel}[cli]", f"torch=={each.torch}", f"torch_geometric=={each.pyg}", *NEEDED]
    packages += [f"dgl=={each.dgl}", "pandas"] if each.dgl else []
    environment = {**os.environ, "VIRTUAL_ENV": str(folder)}
    pip = (python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages)
    done = run(*pip, capture_output=True, env=environment)
    if done.returncode:
        return {**result, "wrong": f"not installed: {done.stderr.strip().splitlines()[-1]}"}
    smoke = run(
        python, ROOT / "scripts" / "smoke_test.py", ROOT / "README.md", cwd=folder, capture_output=True
    )
    if smoke.returncode:
        return {**result, "wrong": f"smoke test: {smoke.stderr.strip().splitlines()[-1]}"}
    # Warnings of releases other than those of constraints.txt are not errors here.
    options = ("-q", "-p", "no:cacheprovider", "-o", "addopts=", "-W", "ignore")
    tests = (*TESTS, *(DGL_TESTS if each.dgl else ()))
    tested = run(python, "-m", "pytest", *options, *tests, cwd=ROOT, capture_output=True)
    (folder.parent / f"{each.name}.log").write_text(tested.stdout + tested.stderr)
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error)", tested.stdout)}
    failed = counts.get("failed", 0) + counts.get("error", 0)
    names = re.findall(r"^(?:FAILED|ERROR) (\S+)", tested.stdout, re.MULTILINE)
    wrong = ", ".join(names) or ("" if tested.returncode == 0 else f"pytest ended with {tested.returncode}")
    return {**result, "smoke": True, "passed": counts.get("passed", 0), "failed": failed, "wrong": wrong}


def main() -> None:
    """Runs the combinations; SystemExit if one does not work."""
    parser = argparse.ArgumentParser(description="Runs the wheel beside several releases.")
    parser.add_argument("--only", help="numbers of combinations, with commas between")
    parser.add_argument("--wheels", type=Path, default=FOLDER / "wheels", help="a folder of wheels")
    parser.add_argument("--keep", action="store_true", help="keep the environments, several gigabytes each")
    options = parser.parse_args()
    chosen = range(len(COMBINATIONS)) if options.only is None else map(int, options.only.split(","))
    rows = json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else []
    keys = [field.name for field in fields(Combination)]
    found = {Combination(*(row[key] for key in keys)): row for row in rows}
    bad = []
    for number in chosen:
        each = COMBINATIONS[number]
        folder = FOLDER / each.name
        result = outcome(each, wheel_for(each.python, options.wheels), folder)
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
        found[each] = result
        # Those that are no longer tried come last.
        rows = [found[one] for one in dict.fromkeys((*COMBINATIONS, *found)) if one in found]
        date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        document = {"command": "make matrix", "date": date, "results": rows}
        RESULTS.write_text(json.dumps(document, indent=2) + "\n")
        print(
            f"{each.name}: {result['passed']} passed, {result['failed']} failed {result['wrong']}", flush=True
        )
        bad += [each.name] if result["wrong"] else []
    if bad:
        raise SystemExit(f"not working: {', '.join(bad)}")


if __name__ == "__main__":
    main()
