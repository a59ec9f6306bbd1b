"""Puts the releases that ``make matrix`` has run into README.md and docs/reference/works-with.md.

python -m benchmarks.render_matrix
"""

import json
from pathlib import Path

from benchmarks import columns
from benchmarks.pages import ROOT, replace_between
from benchmarks.result_tables import Document, markdown

RESULTS = Path("benchmarks") / "results" / "matrix.json"
README, PAGE = Path("README.md"), Path("docs") / "reference" / "works-with.md"
NAME = "works with"
# What is not supported, and the reason.
SYSTEM = (
    "| system | Linux, x86-64 or 64-bit Arm, glibc 2.28 | | macOS: it compiles, nothing has run there; "
    "Windows: never built |"
)
REST = {
    "Python": ("python", "PyPy and free-threaded builds: no wheel"),
    "torch": ("torch", "GPUs: Triton kernels that [no GPU has timed yet](docs/explanation/gpu.md)"),
    "PyG": ("pyg", "scripted models (`torch.jit`): they run PyG's own code"),
    "DGL": ("dgl", ""),
}


def works(result: Document) -> bool:
    """Return whether the wheel works there."""
    return bool(result["smoke"]) and not result["wrong"]


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version, to compare."""
    return tuple(int(part) for part in version.split("."))


def ranges(document: Document) -> dict[str, tuple[str, str]]:
    """For Python, torch, PyG and DGL the oldest and the newest version that works.

    Raises:
        SystemExit: No run of one works: the README is left as it is.
    """
    found = {}
    for name, (key, _) in REST.items():
        versions = {row[key] for row in document["results"] if works(row) and row[key]}
        if not versions:
            raise SystemExit(f"no run with {name} works yet; README.md is left as it is.")
        found[name] = (min(versions, key=release), max(versions, key=release))
    return found


def summary(document: Document) -> str:
    """The README's table."""
    lines = [
        "| [each run](docs/reference/works-with.md) | oldest | newest | not supported |",
        "| --- | --- | --- | --- |",
        SYSTEM,
    ]
    for name, (oldest, newest) in ranges(document).items():
        lines.append(f"| {name} | {oldest} | {newest} | {REST[name][1]} |")
    return "\n".join(lines)


def every(document: Document) -> str:
    """The page's table: a line for each environment."""
    rows = [
        {
            **row,
            "smoke": "yes" if row["smoke"] else "no",
            "dgl": row["dgl"] or "",
            "wrong": row["wrong"] or "",
        }
        for row in document["results"]
    ]
    shown = columns.of(
        "Python | python | {}; torch | torch | {}; PyG | pyg | {}; DGL | dgl | {}; smoke test | smoke | {}; "
        "tests passed | passed | {}; failed | failed | {}; what failed | wrong"
    )
    return f"Run on {document['date'][:10]}.\n\n{markdown(shown, rows)}"


def main(root: Path = ROOT) -> None:
    """Reads and writes."""
    document: Document = json.loads((root / RESULTS).read_text())
    for path, table in ((PAGE, every), (README, summary)):
        (root / path).write_text(replace_between((root / path).read_text(), table(document), NAME))


if __name__ == "__main__":
    main()
