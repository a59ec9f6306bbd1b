"""Makes a notebook of an example that is written in cells, so that both have one source.

    python scripts/notebook.py [--check]

A line ``# %%`` begins a cell of code, and ``# %% [markdown]`` one of text, as editors have it. The notebook
begins with a cell that installs onehop where it is missing. ``--check`` fails if the notebook is out of date.
"""

import json
import re
import sys
from typing import Any

from made_files import ROOT, update

EXAMPLE = ROOT / "examples" / "10_first_ten_minutes.py"
INSTALL = """import importlib.util

if importlib.util.find_spec("onehop") is None:
    %pip install -q "onehop[cli,pyg]"
"""
CELL = re.compile(r"^# %%(?P<text> \[markdown\])?\n(?P<content>.*?)(?=^# %%|\Z)", re.MULTILINE | re.DOTALL)
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def cell(number: int, content: str, is_text: bool = False) -> dict[str, Any]:
    """A cell of a notebook."""
    own: dict[str, Any] = {} if is_text else {"execution_count": None, "outputs": []}
    kind = "markdown" if is_text else "code"
    lines = content.strip("\n").splitlines(keepends=True)
    return {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, **own, "source": lines}


def notebook(source: str) -> str:
    """The notebook of an example."""
    found = [(match["content"], match["text"] is not None) for match in CELL.finditer(source)]
    found = [
        (re.sub(r"^# ?", "", content, flags=re.MULTILINE) if is_text else content, is_text)
        for content, is_text in found
    ]
    found.insert(1, (INSTALL, False))
    cells = [cell(number, content, is_text) for number, (content, is_text) in enumerate(found)]
    document = {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def main(check: bool) -> None:
    """Writes it, or compares."""
    update({EXAMPLE.with_suffix(".ipynb"): notebook(EXAMPLE.read_text())}, "notebook", check)


if __name__ == "__main__":
    main("--check" in sys.argv)
