"""Simulated machines that compute in or near memory: each gives the true result, and a report of its time."""

from onehop.machines.base import Machine
from onehop.machines.ledger import Entry, Ledger
from onehop.machines.report import Report
from onehop.machines.trace import Span, Trace

__all__ = ["Entry", "Ledger", "Machine", "Report", "Span", "Trace"]
