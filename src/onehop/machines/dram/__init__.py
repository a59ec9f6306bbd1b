"""Simulated DRAM: banks, ranks and their timing, at two levels of detail with one interface.

``Memory(preset("DDR5_4800AN"), ranks=1).gbps(Access("random", run_bytes=256))``.
"""

from onehop.machines.dram.command import Command, CommandLog, CommandRun
from onehop.machines.dram.command_file import check_commands, write_commands
from onehop.machines.dram.device import Dram, Energy, Organisation, Timing
from onehop.machines.dram.layout import Layout, layout_for
from onehop.machines.dram.limits import Limits
from onehop.machines.dram.memory import Memory
from onehop.machines.dram.presets import PRESETS, from_toml, load, preset, to_toml
from onehop.machines.dram.report import DramReport
from onehop.machines.dram.requests import Access, Requests
from onehop.machines.dram.rules import Rule, Violation, check, rules
from onehop.machines.dram.trace import read_trace, write_trace

__all__ = [
    "PRESETS",
    "Access",
    "Command",
    "CommandLog",
    "CommandRun",
    "Dram",
    "DramReport",
    "Energy",
    "Layout",
    "Limits",
    "Memory",
    "Organisation",
    "Requests",
    "Rule",
    "Timing",
    "Violation",
    "check",
    "check_commands",
    "from_toml",
    "layout_for",
    "load",
    "preset",
    "read_trace",
    "rules",
    "to_toml",
    "write_commands",
    "write_trace",
]
