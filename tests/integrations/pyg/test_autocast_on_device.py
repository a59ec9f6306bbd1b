"""Autocast on a device, by the GPU's kernels in Triton's interpreter: PyG's dtypes, and no larger errors."""

from pathlib import Path

import pytest
from torch.utils import backend_registration

from onehop.kernels.triton import availability
from tests.processes import run_python

pytestmark = [
    pytest.mark.skipif(availability.not_installed() is not None, reason="no triton to interpret the kernels"),
    pytest.mark.skipif(
        not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
        reason="this torch cannot have a device that is written in Python",
    ),
]


def test_layers_are_pygs_under_the_autocast_of_a_device():
    """In a process of its own, which compares each layer with PyG's own there; see the program."""
    program = ["-m", "tests.integrations.pyg.autocast_on_another_device"]
    ran = run_python(program, cwd=Path(__file__).parents[3], timeout=1200)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = ran.stdout.splitlines()
    assert told[0] == "the rules are CUDA's: True"
    assert not [line for line in told if "FAILED" in line]
    of_attention = [line for line in told if line.startswith(("GAT", "Transformer", "AGNN"))]
    plain = [line for line in of_attention if "bfloat16 float32 float32" in line]
    assert len(plain) == 12
    assert [line for line in plain if not line.endswith("fused [attention attention_grad]")] == []
