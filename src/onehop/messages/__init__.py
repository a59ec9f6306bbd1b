"""Messages as programs over the rows of an edge: their steps, and their differentiation."""

from onehop.messages.adjoint import EXTREMA, backward_sweeps, forward_sweeps, ties_sweep
from onehop.messages.program import (
    APART,
    EDGES,
    OF_ROWS,
    REDUCTIONS,
    WITHOUT_GRADIENT,
    End,
    Operand,
    Program,
    Step,
)
from onehop.messages.sweeps import Input, Result, Sink, Sweep

__all__ = [
    "APART",
    "EDGES",
    "EXTREMA",
    "OF_ROWS",
    "REDUCTIONS",
    "WITHOUT_GRADIENT",
    "End",
    "Input",
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
