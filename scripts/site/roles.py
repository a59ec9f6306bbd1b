"""Turns the cross references of docstrings into links of the site.

Docstrings say ``:func:`onehop.tune``` as Sphinx does, which editors understand, and the site reads Markdown.
"""

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`(?:~)?\.?([^`]+)`")
_CODE = re.compile(r"``([^`]+)``")


def in_markdown(text: str) -> str:
    """Return a docstring's text; names that have no place on the site stay code, without a link."""
    linked = _ROLE.sub(r'<autoref identifier="\1" optional><code>\1</code></autoref>', text)
    return _CODE.sub(r"`\1`", linked)


class Roles(griffe.Extension):
    """Rewrites every docstring when it is read."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrites one."""
        if obj.docstring is not None:
            obj.docstring.value = in_markdown(obj.docstring.value)
