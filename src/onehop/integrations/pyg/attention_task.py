"""Old names, until all callers use the new ones."""
