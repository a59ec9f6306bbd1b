"""Every instruction set, as for the kernels of operators."""

from tests.ops.conftest import isa as isa
