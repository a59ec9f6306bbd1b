"""Docstrings open with a verb or a noun, not with a question word."""

import ast
import re
from pathlib import Path

import onehop

PACKAGE = Path(onehop.__file__).parent
QUESTION = re.compile(r"(what|where|which|who|how|why|whether|when)\b", re.IGNORECASE)


def questions() -> dict[str, str]:
    """The first lines of docstrings that open with a question word, by file and line."""
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node) or ""
                if QUESTION.match(text):
                    line = node.body[0].lineno
                    found[f"{file.relative_to(PACKAGE).as_posix()}:{line}"] = text.splitlines()[0]
    return found


def test_no_docstring_opens_with_a_question_word():
    assert questions() == {}
