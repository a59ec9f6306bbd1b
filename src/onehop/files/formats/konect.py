"""Headers of the KONECT collection, for example ``% bip weighted``, ``% asym positive`` and ``% sym``.

J. Kunegis, "KONECT: the Koblenz network collection", WWW 2013. With ``bip``, the two ends of an edge are
numbered separately, each from 1. With ``sym``, each edge is listed once; with ``asym``, edges have a
direction.
"""

import re
from collections.abc import Iterable

_HEADER = re.compile(rb"[ \t]*%[ \t]*(sym|asym|bip)([ \t]+[a-z]+)?[ \t\r\n]*", re.IGNORECASE)


def is_bipartite(lines: Iterable[bytes]) -> bool:
    """Return whether the comments at the begin of a file say that its edges join two sets of nodes."""
    for line in lines:
        if line.strip() and not line.lstrip().startswith((b"%", b"#")):
            break
        found = _HEADER.fullmatch(line)
        if found:
            return found[1].lower() == b"bip"
    return False
