"""The operands of an aggregation on a machine, and the check of their shapes and devices."""

from dataclasses import dataclass

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import Graph


@dataclass(frozen=True, slots=True)
class Operands:
    """Operands as the caller gave them; :meth:`onehop.machines.Machine.aggregate` describes them.

    Attributes:
        x: [num_src, F].
        weight: [E], in the caller's edge order, or None.
        reduce: "sum" or "mean".
        src_scale: [num_src] or None.
        dst_scale: [num_dst] or None.
    """

    x: Tensor
    weight: Tensor | None = None
    reduce: str = "sum"
    src_scale: Tensor | None = None
    dst_scale: Tensor | None = None

    def check(self, graph: Graph) -> None:
        """Check everything except dtypes, which differ from machine to machine.

        Raises:
            ArgumentError: A shape or name does not fit, or a tensor is not on the CPU.
        """
        if not isinstance(graph, Graph):
            raise ArgumentError(f"graph: expected an onehop.Graph, got {type(graph).__name__}.")
        if self.reduce not in ("sum", "mean"):
            raise ArgumentError(f"reduce: expected 'sum' or 'mean', got {self.reduce!r}.")
        columns = f"[{graph.num_src}, F], a row for each of the {graph.num_src} sources"
        fits = isinstance(self.x, Tensor) and self.x.dim() == 2 and self.x.size(0) == graph.num_src
        _check("x", self.x, fits, columns)
        for name, vector, count in (
            ("weight", self.weight, graph.num_edges),
            ("src_scale", self.src_scale, graph.num_src),
            ("dst_scale", self.dst_scale, graph.num_dst),
        ):
            if vector is not None:
                _check(name, vector, getattr(vector, "shape", None) == (count,), f"[{count}]")


def _check(name: str, tensor: object, fits: bool, shape: str) -> None:
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"{name}: expected a tensor of shape {shape}, got {type(tensor).__name__}.")
    if not fits:
        raise ArgumentError(f"{name}: expected shape {shape}, got {list(tensor.shape)}.")
    if tensor.layout != torch.strided or not tensor.is_cpu:
        raise ArgumentError(
            f"{name}: expected a dense tensor on the CPU, got {tensor.layout} on {tensor.device}; convert it "
            "with .to_dense() or .cpu()."
        )
