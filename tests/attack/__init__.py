"""Attacks: what a user may do that torch or PyG answers, drawn by a seed, and compared with their answer."""
