"""Simulated machines that compute in or near memory: each gives the true result, and a report of its time."""
