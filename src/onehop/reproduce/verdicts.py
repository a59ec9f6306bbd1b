"""The rule that compares a published value with ours: it can fail."""

from decimal import Decimal

# A verdict on evidence; too little evidence for a verdict; no value here; a value that was used to make ours.
AGREES, DIFFERS, UNDECIDED, OPEN, FITTED = VERDICTS = ("agrees", "differs", "undecided", "open", "fitted")
# Largest quotient of an interval's ends with which a row still has a verdict.
WIDEST = 2.0
# Relative tolerance of a value without an interval, because papers give two or three digits.
ROUNDED = 0.02


def verdict(
    paper: float | None,
    ours: float | None,
    low: float | None = None,
    high: float | None = None,
    *,
    winner: bool = False,
    fitted: bool = False,
    place: float | None = None,
) -> str | None:
    """Return one of :data:`VERDICTS`, or None if nothing is published.

    - "open": there is no value here.
    - "fitted": the published value was used to make a graph or to fit a constant, so a comparison shows
      nothing.
    - "undecided": the interval's upper end is more than :data:`WIDEST` times its lower end, or the claim is
      who wins and the interval contains 1.
    - "agrees" or "differs": whether the interval contains a number that rounds to the published value. A
      value without an interval agrees if it is within :data:`ROUNDED` of the published value.

    Args:
        paper: The published value; None if none is published.
        ours: The value here; None if it cannot be computed.
        low: Lower end of our interval; None without an interval.
        high: Upper end of our interval; None without an interval.
        winner: Whether the published claim is who wins, so that 1 is a tie.
        fitted: Whether the published value was used to make ours.
        place: Value of the last decimal that is published; None means that of :func:`last_place`.

    Examples:
        >>> verdict(3.0, 2.5, 2.0, 4.0, winner=True)
        'agrees'
        >>> verdict(3.0, 2.5, 1.9, 4.0, winner=True)
        'undecided'
        >>> verdict(3.0, 1.2, 1.0, 1.5, winner=True)
        'undecided'
    """
    if paper is None:
        return None
    if ours is None:
        return OPEN
    if fitted:
        return FITTED
    if low is None or high is None:
        agrees = abs(ours - paper) <= ROUNDED * abs(paper)
    elif high > WIDEST * low or (winner and low <= 1 <= high):
        return UNDECIDED
    else:
        half = (last_place(paper) if place is None else place) / 2
        agrees = low - half <= paper <= high + half
    return AGREES if agrees else DIFFERS


def last_place(value: float) -> float:
    """Return the value of the last decimal that a published number has; 1 for whole numbers.

    A number does not know the zeros at its end: of 4.00 this is 1, too.

    Examples:
        >>> last_place(4.38), last_place(54.0), last_place(1e-05)
        (0.01, 1.0, 1e-05)
    """
    if value == int(value):
        return 1.0
    return float(Decimal(1).scaleb(int(Decimal(repr(value)).as_tuple().exponent)))
