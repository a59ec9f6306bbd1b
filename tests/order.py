"""The order of files that several workers run: those with the most and with the fewest tests, in turns.

A file with few tests often takes as long as one with hundreds, and waits for processes meanwhile. Where such
files come last, as xdist has it, one worker waits for the other at the end.
"""

import itertools
from collections import defaultdict
from typing import Any


def in_turns(items: list[Any]) -> list[Any]:
    """Returns the tests by files: the most, the fewest, the second most ...; inside a file in their order."""
    files = defaultdict(list)
    for item in items:
        files[item.nodeid.partition("::")[0]].append(item)
    ordered = sorted(files.values(), key=len, reverse=True)
    middle = (len(ordered) + 1) // 2
    most, fewest = ordered[:middle], ordered[middle:][::-1]
    turns = itertools.chain.from_iterable(itertools.zip_longest(most, fewest, fillvalue=[]))
    return list(itertools.chain.from_iterable(turns))
