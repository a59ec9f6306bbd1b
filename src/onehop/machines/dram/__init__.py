"""DRAM: banks, ranks and their timing, at three levels with one interface.

``Memory(preset("DDR5_4800AN"), ranks=1).gbps(Access("random", run_bytes=256))``.
"""

from onehop.machines.dram.access import Access
from onehop.machines.dram.device import Dram, Energy, Organisation, Timing
from onehop.machines.dram.layout import Layout, layout_for
from onehop.machines.dram.memory import Memory
from onehop.machines.dram.presets import PRESETS, preset
from onehop.machines.dram.report import DramReport

__all__ = [
    "PRESETS",
    "Access",
    "Dram",
    "DramReport",
    "Energy",
    "Layout",
    "Memory",
    "Organisation",
    "Timing",
    "layout_for",
    "preset",
]
