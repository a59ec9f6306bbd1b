"""Messages as functions of torch: watched on a few edges, and compiled to programs or run in blocks."""
