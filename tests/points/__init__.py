"""Searches among points against naive ones."""
