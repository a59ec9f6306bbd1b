"""Shows that an installed onehop works: the command, and every block of Python in a document.

    python scripts/smoke_test.py README.md

Run it in a fresh environment in which a wheel was installed; it refuses to test the sources of a checkout.
"""

import re
import subprocess
import sys
from pathlib import Path

import onehop

SOURCES = Path(__file__).resolve().parents[1] / "src"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def main(document: Path) -> None:
    """Runs them; SystemExit if onehop was not installed, or there is nothing to run."""
    if Path(onehop.__file__).is_relative_to(SOURCES):
        raise SystemExit(f"{onehop.__file__} is no installed onehop.")
    blocks = BLOCK.findall(document.read_text())
    if not blocks:
        raise SystemExit(f"{document} has no block of Python.")
    for block in blocks:
        exec(compile(block, str(document), "exec"), {"__name__": "block"})
    command = [sys.executable, "-m", "onehop", "--version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    print(f"{told.strip()} from {Path(onehop.__file__).parent}: {len(blocks)} blocks of {document.name} ran")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
