"""The sanitizers do watch the extension: what is done wrong on purpose ends the process, and is named.

Without this, `make sanitize` would find nothing also where nothing is watched.
"""

import os
import sys

import pytest

from tests.native.building import run

pytestmark = pytest.mark.skipif(
    "ONEHOP_SANITIZED" not in os.environ, reason="the extension is compiled without sanitizers; make sanitize"
)

BEFORE = "import numpy, torch; from onehop import native; extension = native.extension; "


def found(code: str) -> str:
    """Says what was found wrong with the code."""
    done = run([sys.executable, "-c", BEFORE + code + "; print('reached the end')"])
    assert done.returncode != 0
    assert "reached the end" not in done.stdout
    return done.stderr


@pytest.mark.parametrize("tensor", ["torch.zeros(64)", "numpy.zeros(1000)"])
def test_reading_past_a_tensor_is_found(tensor: str) -> None:
    code = f"t = torch.as_tensor({tensor}); extension.fingerprint(t.data_ptr(), t.nbytes + 1, 1)"
    assert "heap-buffer-overflow" in found(code)


def test_reading_past_a_block_of_the_pool_is_found() -> None:
    code = "t = native.empty((600_001,), torch.float32); extension.fingerprint(t.data_ptr(), t.nbytes + 1, 1)"
    assert "use-after-poison" in found(code)


def test_reading_a_block_after_it_went_back_to_the_pool_is_found() -> None:
    code = (
        "t = native.empty((1 << 20,), torch.float32); a = t.data_ptr(); del t; extension.fingerprint(a, 8, 1)"
    )
    assert "use-after-poison" in found(code)


def test_undefined_behaviour_is_found() -> None:
    code = (
        "t = torch.zeros(9, dtype=torch.int64); i = t.data_ptr() + 4; "
        "extension.csr_from_coo(row=i, col=i, row_stride=1, col_stride=1, edges=8, wide_index=True, "
        "rows=1, cols=1, wide_perm=False, threads=1)"
    )
    assert "runtime error: load of misaligned address" in found(code)


def test_the_machines_extension_is_watched() -> None:
    code = (
        "from onehop.machines.native import extension as machines; w = torch.ones(3, dtype=torch.float64); "
        "out = torch.zeros(8, dtype=torch.int32); "
        "machines.block_alias(w.data_ptr(), 8, out.data_ptr(), out.data_ptr())"
    )
    assert "heap-buffer-overflow" in found(code)
