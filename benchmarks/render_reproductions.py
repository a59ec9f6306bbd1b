"""Puts reproductions into docs/reproduce.md, between its markers, tables and pictures.

    python -m benchmarks.render_reproductions

Reads benchmarks/results/reproduce/WORK.json as ``onehop reproduce WORK --json`` writes them; pictures lie in
docs/images/reproduce. A work without a file keeps a sentence on how to make one.
"""

import json
import re
from pathlib import Path
from typing import Any

from onehop.reproduce import WORKS
from onehop.reproduce.tables import table

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path("docs") / "reproduce.md"
RESULTS = Path("benchmarks") / "results" / "reproduce"
PICTURES = Path("docs") / "images" / "reproduce"


def section(root: Path, work: str) -> str:
    """The text of a work: its source, when and where it was computed, the table, the pictures."""
    file = root / RESULTS / f"{work}.json"
    if not file.exists():
        return f"Not computed yet: `make figures WORKS={work}`."
    found: dict[str, Any] = json.loads(file.read_text())
    stamp = found["stamp"]
    size = "on parts of the twins (`--quick`)" if found["quick"] else "at full size"
    threads = f"{stamp['threads']} thread{'' if stamp['threads'] == 1 else 's'}"
    lines = [
        found["source"],
        "",
        f"Computed on {stamp['date'][:10]} {size}; {stamp['machine']['processor']}, "
        f"{threads}, torch {stamp['versions']['torch']}.",
        "",
        table(found["rows"]).markdown(),
    ]
    for chart in found["charts"]:
        picture = PICTURES / f"{work}_{chart}.png"
        if not (root / picture).exists():
            raise SystemExit(f"{picture}: missing; run make figures WORKS={work}.")
        lines += ["", f"![{work}, {chart.replace('_', ' ')}]({picture.relative_to('docs')})"]
    return "\n".join(lines)


def rendered(root: Path, page: str) -> str:
    """The page with all sections.

    Raises:
        SystemExit: A marker is missing, or a picture.
    """
    for work in WORKS:
        pattern = re.compile(f"(<!-- {work}: begin -->\n).*?(\n<!-- {work}: end -->)", flags=re.DOTALL)
        if len(pattern.findall(page)) != 1:
            raise SystemExit(f"{PAGE}: expected the markers of {work} once.")
        content = section(root, work)
        page = pattern.sub(lambda match, content=content: match[1] + content + match[2], page)
    return page


def main(root: Path = ROOT) -> None:
    """Rewrites the page."""
    page = root / PAGE
    page.write_text(rendered(root, page.read_text()))


if __name__ == "__main__":
    main()
