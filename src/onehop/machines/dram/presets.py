"""DRAM devices: by name, the files of the folder ``devices``, where every constant has its unit and source.

Timings are those that Ramulator 2.1 has for JEDEC's bins; ``benchmarks/machines/dram_cases.csv`` and
``dram_devices.csv`` compare each device with it.

DDR5's energies: four devices of 16 Gb, from the currents of Micron's sheet as gem5's DDR5 interface has them
(IDD0 122, 2N 92, 3N 142, 4R 530, 4W 479, 5B 277 mA at 1.1 V; VPP omitted). An ACT is charged 2N + (3N - 2N) /
32 beside it, one of 32 banks being open: with 3N, as is usual, the difference would be negative.

DDR4's: eight devices of 8 Gb with DRAMsim3's currents (IDD0 48, 2N 34, 3N 43, 4R 135, 4W 123, 5AB 250 mA at
1.2 V): ACT 1.2 x (48 x 55 - 43 x 39 - 34 x 16) x 8, RD 1.2 x (135 - 43) x 4 x 8, WR 1.2 x (123 - 43) x 4 x 8,
REF 1.2 x (250 - 43) x 420 x 8, each in V mA clocks, times 0.833 ns; standby 1.2 x 43 x 8.
"""

from importlib import resources
from pathlib import Path

from onehop.errors import ArgumentError, FileFormatError
from onehop.machines.common import files
from onehop.machines.dram.device import Dram

_FILES = (
    "ddr5_3200an",
    "ddr5_4800an",
    "ddr5_5600an",
    "ddr5_6400an",
    "ddr4_2400",
    "lpddr5_6400",
    "hbm2_2000",
    "hbm3_6400",
)


def to_toml(dram: Dram) -> str:
    """The device as TOML: its name, and the sections organisation, timing and energy."""
    return files.written(dram)


def from_toml(text: str, source: str = "device") -> Dram:
    """The device that TOML describes.

    Args:
        text: The output of :func:`to_toml`.
        source: The name that errors use for the text.

    Raises:
        FileFormatError: The text is not TOML, or a key is missing or unknown.
        ArgumentError: A value is out of range.
    """
    return files.made(Dram, files.document_of(text, source, FileFormatError), source, FileFormatError)


def load(path: str | Path) -> Dram:
    """The device that a TOML file describes.

    Raises:
        FileFormatError: The file is not TOML, or a key is missing or unknown.
        ArgumentError: A value is out of range.
        OSError: The file cannot be read.
    """
    return from_toml(files.text_of(path, FileFormatError), str(path))


def _included() -> dict[str, Dram]:
    folder = resources.files(__package__) / "devices"
    devices = (from_toml((folder / f"{name}.toml").read_text(), f"{name}.toml") for name in _FILES)
    return {device.name: device for device in devices}


PRESETS: dict[str, Dram] = _included()


def preset(name: str) -> Dram:
    """The device of this name, one of those in :data:`PRESETS`.

    Raises:
        ArgumentError: The name is unknown.
    """
    if name not in PRESETS:
        raise ArgumentError(f"preset: expected one of {', '.join(PRESETS)}, or a TOML file, got {name!r}.")
    return PRESETS[name]
