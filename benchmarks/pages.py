"""Documents of this project, and the places in them that are written from results."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def markers(name: str) -> tuple[str, str]:
    """The lines between which something is rendered."""
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def replace_between(text: str, content: str, name: str = "results", page: object = "a document") -> str:
    """``text`` with ``content`` between the markers of this name.

    Raises:
        SystemExit: A marker is missing, or there twice; the message begins with ``page``.
    """
    begin, end = markers(name)
    if [text.count(each) for each in (begin, end)] != [1, 1]:
        raise SystemExit(f"{page}: expected the markers of {name} once, {begin} and {end}.")
    before, rest = text.split(begin)
    return f"{before}{begin}\n{content}\n{end}{rest.split(end)[1]}"
