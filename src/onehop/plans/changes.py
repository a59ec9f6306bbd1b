"""A count of what may change plans, for those who keep calls that were prepared by them."""

count = 0
"""Grows whenever plans are tuned, forgotten or read anew."""


def note() -> None:
    """Makes every call that is kept be prepared again."""
    global count
    count += 1
