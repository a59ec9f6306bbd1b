"""Simulated machines that compute in or near memory: each returns the true result and a report of the run."""

from onehop.machines.base import Machine
from onehop.machines.common.ledger import Entry, Ledger
from onehop.machines.common.report import Report
from onehop.machines.common.trace import Span, Trace

__all__ = ["Entry", "Ledger", "Machine", "Report", "Span", "Trace"]
