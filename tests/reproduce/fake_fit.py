"""A work whose nearest configuration is its base, for tests of the command."""

from onehop.reproduce.intervals import BASE, Unknown
from onehop.reproduce.nearest import Target, nearest


def fit(quick, progress):
    progress("half", 0.5)
    unknown = Unknown("clock", "300 MHz", ("1,200 MHz",), "our choice", "the clock")
    targets = [Target("speed" + (", quick" if quick else ""), 4.0, "speeds")]
    return nearest("grande", "a machine", targets, (unknown,), lambda setting: (3.0 - len(setting),), [BASE])
