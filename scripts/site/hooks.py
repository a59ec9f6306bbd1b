"""Adapts the documents to the site: they are written for readers of the repository, too.

MkDocs calls these functions by their names while it builds (``make docs``).
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
# Why a block is not run by the tests is said in its first line, which MkDocs would not take for a block's.
_NOT_RUN = re.compile(r"^```python no-run: .*$", re.MULTILINE)
# From a document in docs/ the examples lie one folder higher than from its page on the site.
_EXAMPLES = re.compile(r"\]\(((?:\.\./)*)\.\./examples/")


def on_files(files: Files, config: Any) -> Files:
    """Adds the programs of examples/, which documents link to."""
    for path in sorted((ROOT / "examples").iterdir()):
        if path.suffix in {".py", ".ipynb"}:
            files.append(File.generated(config, f"examples/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page's text as the site takes it."""
    return _EXAMPLES.sub(r"](\1examples/", _NOT_RUN.sub("```python", markdown))
