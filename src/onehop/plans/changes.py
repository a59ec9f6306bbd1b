"""A counter of plan changes, for code that keeps calls prepared with a plan."""

count = 0
"""Grows whenever plans are tuned, forgotten or read again."""


def note() -> None:
    """Count a change, so that all kept calls are prepared again."""
    global count
    count += 1
