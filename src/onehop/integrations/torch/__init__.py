"""Faster replacements for torch's dropout, products, gathers and scatters, with the same results."""
