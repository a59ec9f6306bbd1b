"""Human-readable numbers of bytes, in powers of 1024."""

import re

_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def readable(size: float) -> str:
    """Return a size in a suitable unit, such as "4 KiB", for sentences and single values."""
    for unit, scale in _UNITS:
        if size >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size:g} B"


def parsed(text: str) -> int | None:
    """Return the bytes of a size such as "4 GiB", "512MiB" or "100000"; None if the text is not a size."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(B|KiB|MiB|GiB)?", text.strip())
    return None if found is None else int(float(found[1]) * {**dict(_UNITS), "B": 1}[found[2] or "B"])


def mebibytes(size: float | None) -> str:
    """Return a size in MiB without the unit, for columns whose heading has the unit; "-" for None."""
    if size is None:
        return "-"
    value = size / (1 << 20)
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
