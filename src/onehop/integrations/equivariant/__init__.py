"""The patch of MACE and NequIP, whose messages are tensor products of e3nn."""
