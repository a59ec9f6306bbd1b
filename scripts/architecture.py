"""Draws the storeys of the package, as ``docs/explanation/architecture.md`` shows them.

    python scripts/architecture.py            writes docs/images/architecture-light.svg and -dark.svg
    python scripts/architecture.py --check    fails if a picture there is another one

The storeys come from the linter's contract in ``pyproject.toml``, the text of each box from the first
sentence of the package's docstring. A box may import from the storeys below it. Dashed arrows are the ways of
``onehop.loading``, from who provides something to who uses it.
"""

import ast
import re
import sys
import textwrap
import tomllib
from html import escape
from pathlib import Path

from import_graph import ways
from made_files import ROOT, update

PICTURES = ROOT / "docs" / "images"

# The rooms of PyG's integration, which most changes are about.
_ROOMS = ("edges", "rules", "associations", "loaders")
# Single files and folders of data, which need no box.
_OMITTED = ("__main__", "calls", "thresholds", "pictures", "native", "tables", "errors")
_WIDTH, _MARGIN, _GAP = 960, 12, 8
# Of the arrows, on the right of the boxes.
_LANE = 128
_LINE, _PADDING = 15, 10
# The right edge of a box, and the height at which arrows begin or end there.
_Place = tuple[int, int]
_COLORS = {"integrations": "#fdecc8", "ops": "#dbeafe", "kernels": "#dcfce7", "machines": "#f3e8ff"}
_OTHER, _ROOM, _BORDER, _INK, _ARROW = "#f1f5f9", "#ffffff", "#94a3b8", "#0f172a", "#475569"
# The dark picture has these colours in place of the light ones. The ground of both is the page's own.
_DARK = {
    **{"#fdecc8": "#4a3a14", "#dbeafe": "#1b3152", "#dcfce7": "#173d26", "#f3e8ff": "#3a2553"},
    **{_OTHER: "#2b313d", _ROOM: "#1b1f27", _BORDER: "#64748b", _INK: "#e2e8f0", _ARROW: "#94a3b8"},
}


def storeys() -> list[list[str]]:
    """The packages of each storey, from the top."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = [each["layers"] for each in contracts if each["type"] == "layers"]
    rows = [[name.strip(" ()") for name in layer.split("|")] for layer in layers]
    return [row for row in rows if len(row) == 1 and row[0] not in _OMITTED]


def sentence(folder: Path) -> str:
    """The first sentence of a package's docstring."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).removesuffix(".").replace("``", "")


def drawn() -> str:
    """The light picture, as SVG."""
    parts: list[str] = []
    places: dict[str, _Place] = {}
    top = _MARGIN
    package = ROOT / "src" / "onehop"
    for (name,) in storeys():
        boxes = [(name, sentence(package / name))]
        if name == "integrations":
            rooms = package / name / "pyg"
            boxes += [(f"pyg/{room}", sentence(rooms / room)) for room in _ROOMS]
        top = _row(parts, places, boxes, top, _COLORS.get(name, _OTHER))
    parts += _arrows(places)
    height = top + _MARGIN - _GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="12">\n'
        "<title>The storeys of onehop: each imports from those below it</title>\n"
        '<marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 z" fill="{_ARROW}"/></marker>\n'
    )
    return head + "".join(parts) + "</svg>\n"


def in_dark(picture: str) -> str:
    """A light picture in the dark colours."""
    return re.sub("|".join(_DARK), lambda color: _DARK[color[0]], picture)


def _row(
    parts: list[str], places: dict[str, _Place], boxes: list[tuple[str, str]], top: int, color: str
) -> int:
    """Draws one storey: the package, and its rooms below it; returns where the next one begins."""
    (name, text), rooms = boxes[0], boxes[1:]
    lines = textwrap.wrap(text, 110)
    inner = _room_height(rooms)
    height = 2 * _PADDING + _LINE * max(len(lines), 1) + inner
    width = _WIDTH - 2 * _MARGIN - _LANE
    places[name] = _MARGIN + width, top + height // 4
    parts.append(_box(_MARGIN, top, width, height, color))
    parts.append(_text(_MARGIN + _PADDING, top, name, bold=True))
    for number, line in enumerate(lines):
        parts.append(_text(_MARGIN + 130, top + number * _LINE, line))
    if rooms:
        each = (width - 2 * _PADDING - (len(rooms) - 1) * _GAP) // len(rooms)
        below = top + height - inner - _PADDING // 2
        for number, (room, about) in enumerate(rooms):
            left = _MARGIN + _PADDING + number * (each + _GAP)
            places[f"{name}/{room}"] = left + each, below + inner // 2
            parts.append(_box(left, below, each, inner - _GAP, _ROOM))
            parts.append(_text(left + 6, below, room, bold=True))
            for at, line in enumerate(_wrapped(about, each), start=1):
                parts.append(_text(left + 6, below + at * _LINE, line))
    return top + height + _GAP


def _room_height(rooms: list[tuple[str, str]]) -> int:
    if not rooms:
        return 0
    width = _WIDTH - 2 * _MARGIN - _LANE
    each = (width - 2 * _PADDING - (len(rooms) - 1) * _GAP) // len(rooms)
    return 2 * _PADDING + _GAP + _LINE * (1 + max(len(_wrapped(text, each)) for _, text in rooms))


def _arrows(places: dict[str, _Place]) -> list[str]:
    """Draws the ways, each from the box that provides to the boxes that use it."""
    parts, right_of_boxes = [], _WIDTH - _MARGIN - _LANE
    declared = ways(ROOT / "src")
    for number, (name, way) in enumerate(declared.items(), start=1):
        storey = _storey(way.provider)
        # Within one storey the room is shown; the rooms of another are its own affair.
        ends = {_box_of(user, places if _storey(user) == storey else {}) for user in way.users}
        (right, begin), lane = places[storey], right_of_boxes + number * 12
        for end in sorted(ends):
            edge, height = places[end]
            path = f"M{right},{begin} H{lane} V{height + 8} H{edge}"
            parts.append(
                f'<path d="{path}" fill="none" stroke="{_ARROW}" stroke-dasharray="4 3" '
                f'marker-end="url(#head)"/>\n'
            )
        beside = right_of_boxes + len(declared) * 12 + 6
        parts.append(_text(beside, (begin + height) // 2 - _PADDING - 7, name))
    return parts


def _storey(module: str) -> str:
    return module.split(".")[1]


def _box_of(module: str, places: dict[str, _Place]) -> str:
    """The smallest box of a module among those given, else its storey."""
    path = module.removeprefix("onehop.").replace(".", "/")
    return max((each for each in places if path.startswith(f"{each}/")), key=len, default=_storey(module))


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width // 7, 10))


def _box(left: int, top: int, width: int, height: int, color: str) -> str:
    return (
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="6" fill="{color}" '
        f'stroke="{_BORDER}"/>\n'
    )


def _text(left: int, top: int, text: str, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{left}" y="{top + _PADDING + 11}"{weight} fill="{_INK}">{escape(text)}</text>\n'


def main(check: bool) -> None:
    """Writes the pictures, or compares."""
    picture = drawn()
    light, dark = PICTURES / "architecture-light.svg", PICTURES / "architecture-dark.svg"
    update({light: picture, dark: in_dark(picture)}, "architecture", check)


if __name__ == "__main__":
    main("--check" in sys.argv)
