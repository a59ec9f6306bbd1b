"""DRAM devices by name, from the files in ``devices``, which give each constant's unit and source.

The timings are Ramulator 2.1's timings for JEDEC's speed bins; ``benchmarks/machines/dram_cases.csv`` and
``dram_devices.csv`` compare each device with Ramulator.

The energy of a command is what it adds to standby, over all devices of the rank. The energies follow from
currents that JEDEC defines by loops of commands: IDD0, ACT and PRE of one bank every RC; 2N, all rows closed;
3N, all rows open (LPDDR5: one); 4R and 4W, bursts without a pause; 5B, REF after REF. With these energies,
each loop draws its own current again. The formulas are DRAMPower's; ``docs/machines/dram.md`` compares both
on the same commands.

* An ACT and its PRE: V (IDD0 RC - IDD3N RAS - IDD2N RP). RD: V (IDD4R - IDD3N) BL. REF: V (IDD5B - IDD3N)
  RFC.
* DDR5: four devices of 16 Gb, with the currents of Micron's sheet as gem5's DDR5 interface has them (IDD0
  122, 2N 92, 3N 142, 4R 530, 4W 479, 5B 277 mA at 1.1 V; VPP omitted). Standby goes from 2N to 3N with the
  number of open banks. So an ACT adds to 2N + (3N - 2N) / 32 in RAS, one of 32 banks being open: with 3N it
  would be negative.
* DDR4: eight devices of 8 Gb, with DRAMsim3's currents (IDD0 48, 2N 34, 3N 43, 4R 135, 4W 123, 5AB 250 mA at
  1.2 V). Standby is 3N, whether one bank or all banks are open.
* DDR3: as DDR4, with DRAMsim3's DDR3 4 Gb x8 (IDD0 55, 2N 32, 3N 38, 4R 157, 4W 125, 5AB 235 mA at 1.35 V).
* HBM1: as DDR4, with one channel of DRAMsim3's HBM1 (IDD0 65, 2N 40, 3N 55, 4R 360, 4W 440, 5AB 250 mA at 1.2
  V), whose file names no data sheet.
* LPDDR5: one device of 16 Gb, at 1.05 V (IDD0 53, 2N 32.5, 3N 40, 4R 390, 4W 265, 5 205 mA) and at 1.8 V
  (3.8, 1.5, 2.8, 18, 16.5 mA). These currents hold at 7500 Mb/s, so 4R and 4W add 6400 / 7500 of their
  difference from 3N to 3N. Standby is 3N.
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
    "ddr3_1600k",
    "lpddr5_6400",
    "hbm1_1000",
    "hbm2_2000",
    "hbm3_6400",
)


def to_toml(dram: Dram) -> str:
    """Return the device as TOML: its name, and the sections organisation, timing and energy."""
    return files.written(dram)


def from_toml(text: str, source: str = "device") -> Dram:
    """Return the device that a TOML text describes.

    Args:
        text: The output of :func:`to_toml`.
        source: The name that errors use for the text.

    Raises:
        FileFormatError: The text is not TOML, or a key is missing or unknown.
        ArgumentError: A value is out of range.
    """
    return files.made(Dram, files.document_of(text, source, FileFormatError), source, FileFormatError)


def load(path: str | Path) -> Dram:
    """Return the device that a TOML file describes.

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
    """Return the device of this name, one of :data:`PRESETS`.

    Raises:
        ArgumentError: The name is unknown.

    Examples:
        >>> from onehop.machines.dram import preset
        >>> preset("DDR5_4800AN").name
        'DDR5_4800AN'
    """
    if name not in PRESETS:
        raise ArgumentError(f"preset: expected one of {', '.join(PRESETS)}, or a TOML file, got {name!r}.")
    return PRESETS[name]
