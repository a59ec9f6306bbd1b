"""Irreducible representations of rotations and reflections, and the products of features that have them.

Features of an *irrep* of degree l have 2l+1 components, which turn among themselves when the coordinate
system turns. Names and conventions are those of e3nn (M. Geiger, T. Smidt, "e3nn: Euclidean Neural Networks",
arXiv:2207.09453).
"""

from onehop.irreps.clebsch_gordan import coupling
from onehop.irreps.notation import Irrep
from onehop.irreps.paths import Path, TensorPaths
from onehop.irreps.tables import Tables, tables_of

__all__ = ["Irrep", "Path", "Tables", "TensorPaths", "coupling", "tables_of"]
