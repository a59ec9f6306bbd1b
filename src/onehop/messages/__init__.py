"""Messages as programs over the rows of an edge: what they are, and how they are differentiated."""

from onehop.messages.adjoint import EXTREMA, backward_sweeps, forward_sweeps, ties_sweep
from onehop.messages.program import (
    APART,
    OF_ROWS,
    REDUCTIONS,
    WITHOUT_GRADIENT,
    End,
    Operand,
    Program,
    Step,
)
from onehop.messages.sweeps import Result, Sink, Sweep

__all__ = [
    "APART",
    "EXTREMA",
    "OF_ROWS",
    "REDUCTIONS",
    "WITHOUT_GRADIENT",
    "End",
    "Operand",
    "Program",
    "Result",
    "Sink",
    "Step",
    "Sweep",
    "backward_sweeps",
    "forward_sweeps",
    "ties_sweep",
]
