"""Messages as torch functions: traced on a few edges, then compiled to programs or run in blocks."""
