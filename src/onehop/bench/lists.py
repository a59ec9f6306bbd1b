"""Comma-separated lists, as command lines accept them."""

from onehop.errors import ArgumentError


def names(text: str) -> list[str]:
    """Return the entries of a comma-separated list."""
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def one_of(option: str, text: str, allowed: tuple[str, ...]) -> list[str]:
    """Return the entries of a comma-separated list, each one of ``allowed``; "all" means all of them.

    Raises:
        ArgumentError: An entry is not allowed, or the list is empty.
    """
    chosen = list(allowed) if text == "all" else names(text)
    for entry in chosen:
        if entry not in allowed:
            raise ArgumentError(f"{option}: expected some of {', '.join(allowed)}, or all, got {entry!r}.")
    if not chosen:
        raise ArgumentError(f"{option}: expected at least one of {', '.join(allowed)}.")
    return chosen


def numbers(option: str, text: str) -> list[int]:
    """Return the positive numbers of a comma-separated list.

    Raises:
        ArgumentError: An entry is not a positive number, or the list is empty.
    """
    chosen = []
    for entry in names(text):
        if not entry.isdecimal() or int(entry) < 1:
            raise ArgumentError(
                f"{option}: expected numbers of at least 1 with commas between them, got {entry!r}."
            )
        chosen.append(int(entry))
    if not chosen:
        raise ArgumentError(f"{option}: expected at least one number.")
    return chosen


def graph_sizes(option: str, text: str) -> list[tuple[int, int]]:
    """Return nodes and edges of graphs from a list such as ``40:160,400:1600``.

    Raises:
        ArgumentError: An entry is not such a pair, or the list is empty.
    """
    pairs = []
    for entry in names(text):
        nodes, _, edges = entry.partition(":")
        if not all(each.isdecimal() and int(each) > 0 for each in (nodes, edges)):
            raise ArgumentError(
                f"{option}: expected NODES:EDGES, both at least 1, with commas between them, got {entry!r}."
            )
        pairs.append((int(nodes), int(edges)))
    if not pairs:
        raise ArgumentError(f"{option}: expected at least one NODES:EDGES.")
    return pairs
