"""Choice of the library for a dense product: measured once a class of shapes, and kept for the machine."""

from onehop.tuner.products.choice import Chosen, forced, forget, known, library, store_path
from onehop.tuner.products.classes import ShapeClass

__all__ = ["Chosen", "ShapeClass", "forced", "forget", "known", "library", "store_path"]
