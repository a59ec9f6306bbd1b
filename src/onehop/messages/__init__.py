"""Messages as programs over the rows of an edge: what they are, and how they are differentiated."""

from onehop.messages.adjoint import Result, Sink, Sweep, backward_sweeps, forward_sweep, ties_sweep
from onehop.messages.program import End, Operand, Program, Step

__all__ = [
    "End",
    "Operand",
    "Program",
    "Result",
    "Sink",
    "Step",
    "Sweep",
    "backward_sweeps",
    "forward_sweep",
    "ties_sweep",
]
