"""A driver that stands for a GPU's, for programs of their own: it runs nothing.

Importing it makes it triton's driver, and lets the kernels take tensors of any device. Launches are
written down.
"""

import os
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget

from onehop.kernels.triton import availability

LAUNCHED: list[str] = []
TARGET = GPUTarget("cuda", 90, 32)


class Utils:
    def get_device_properties(self, device):
        return {"max_shared_mem": 232448, "multiprocessor_count": 132, "warpSize": 32}

    def load_binary(self, name, binary, shared, device):
        assert binary[:4] == b"\x7fELF", name
        return 1, 1, 32, 0, 1024

    def unload_module(self, module):
        pass


class Launcher:
    def __init__(self, source, metadata):
        self.name = metadata.name

    def __call__(self, *args, **kwargs):
        LAUNCHED.append(self.name)


class Driver:
    utils, launcher_cls = Utils(), Launcher

    def get_current_target(self):
        return TARGET

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_active_torch_device(self):
        return torch.device("cpu")

    def is_active(self):
        return True


def compiled():
    """The folders of what has been compiled."""
    return sorted(each.parent.name for each in Path(os.environ["TRITON_CACHE_DIR"]).glob("*/*.cubin"))


triton.runtime.driver.set_active(Driver())
availability.missing = lambda: None
availability.refuses = lambda device: None
availability.current = lambda: torch.device("cpu")
availability.machine = lambda device: {"gpu": "stub", "capability": "9.0", "triton": triton.__version__}
