"""Aggregation of data that do not fit into memory, in tiles that are read from and written to disk."""

from onehop.ops.streaming.matrix_file import RawMatrix as RawMatrix
from onehop.ops.streaming.run import Scales as Scales, Then as Then, aggregate as aggregate
from onehop.ops.streaming.tiles import Beside as Beside, check as check
