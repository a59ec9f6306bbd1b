"""DRAM devices by name.

Timings of DDR5: JEDEC's bins as Ramulator 2.1 has them (16 Gb devices, 8 bits wide, a 32-bit sub-channel).
Timings of DDR4-2400: 16-16-16, 8 Gb devices, 8 bits wide, a 64-bit channel, with tRFC 350 ns as in DRAMsim3's
file.
"""

from onehop.errors import ArgumentError
from onehop.machines.dram.device import Dram, Energy, Organisation, Timing

_DDR5_16GB_X8 = Organisation(
    bus_bits=32, bank_groups=8, banks_per_group=4, rows=65536, row_bursts=64, burst_bytes=64
)
_DDR4_8GB_X8 = Organisation(
    bus_bits=64, bank_groups=4, banks_per_group=4, rows=65536, row_bursts=128, burst_bytes=64
)

# Four devices of 16 Gb, from the currents of Micron's sheet as gem5's DDR5 interface has them (IDD0 122, 2N
# 92, 3N 142, 4R 530, 4W 479, 5B 277 mA at 1.1 V; VPP omitted). An ACT is charged 2N + (3N - 2N) / 32 beside
# it, one of 32 banks being open: with 3N, as is usual, the difference would be negative.
_DDR5_4800_SOURCE = "Micron DDR5-4800 16 Gb x8 currents by way of gem5, 4 devices, VPP omitted"
_DDR5_OTHER_SOURCE = _DDR5_4800_SOURCE + "; currents of this grade were not found, those of 4800 stand in"


def _ddr5_energy(source: str) -> Energy:
    return Energy(
        activate_nj=5.9, read_nj=5.68, write_nj=4.93, refresh_nj=240.0, standby_mw=625.0, source=source
    )


# Eight devices of 8 Gb with DRAMsim3's currents (IDD0 48, 2N 34, 3N 43, 4R 135, 4W 123, 5AB 250 mA at 1.2 V):
# ACT 1.2 x (48 x 55 - 43 x 39 - 34 x 16) x 8, RD 1.2 x (135 - 43) x 4 x 8, WR 1.2 x (123 - 43) x 4 x 8, REF
# 1.2 x (250 - 43) x 420 x 8, each in V mA clocks, times 0.833 ns; standby 1.2 x 43 x 8.
_DDR4_ENERGY = Energy(
    activate_nj=3.35,
    read_nj=2.94,
    write_nj=2.56,
    refresh_nj=695.0,
    standby_mw=413.0,
    source="DRAMsim3's currents of DDR4-2400 8 Gb x8, 8 devices, VPP omitted",
)

_DDR5_NAMES = ("DDR5_3200AN", "DDR5_4800AN", "DDR5_5600AN", "DDR5_6400AN")
_DDR5_CLOCKS = {
    "clock_ps": (625, 416, 357, 312),
    "bl": (8, 8, 8, 8),
    "cl": (24, 34, 40, 46),
    "cwl": (22, 32, 38, 44),
    "rcd": (24, 34, 40, 46),
    "rp": (24, 34, 40, 46),
    "ras": (52, 77, 90, 103),
    "rc": (76, 111, 130, 149),
    "ccd_s": (8, 8, 8, 8),
    "ccd_l": (8, 12, 12, 16),
    "ccd_l_wr": (32, 48, 56, 64),
    "rrd_s": (8, 8, 14, 16),
    "rrd_l": (5, 12, 14, 16),
    "faw": (32, 48, 56, 64),
    "rtp": (12, 18, 20, 24),
    "wr": (48, 72, 84, 96),
    "wtr_s": (6, 6, 5, 5),
    "wtr_l": (16, 24, 28, 32),
    "rtw": (4, 4, 4, 4),
    "ppd": (2, 2, 2, 2),
    "cs": (2, 2, 2, 2),
    "rfc": (472, 710, 827, 946),
    "refi": (6240, 9375, 10925, 12500),
    "command_clocks": (2, 2, 2, 2),
}
_DDR4_CLOCKS = Timing(
    clock_ps=833,
    bl=4,
    cl=16,
    cwl=12,
    rcd=16,
    rp=16,
    ras=39,
    rc=55,
    ccd_s=4,
    ccd_l=6,
    ccd_l_wr=6,
    rrd_s=4,
    rrd_l=6,
    faw=26,
    rtp=9,
    wr=18,
    wtr_s=3,
    wtr_l=9,
    rtw=2,
    ppd=1,
    cs=2,
    rfc=420,
    refi=9360,
    command_clocks=1,
)


def _ddr5(name: str) -> Dram:
    place = _DDR5_NAMES.index(name)
    timing = Timing(**{clocks: values[place] for clocks, values in _DDR5_CLOCKS.items()})
    source = _DDR5_4800_SOURCE if name == "DDR5_4800AN" else _DDR5_OTHER_SOURCE
    return Dram(name, _DDR5_16GB_X8, timing, _ddr5_energy(source))


PRESETS: dict[str, Dram] = {name: _ddr5(name) for name in _DDR5_NAMES}
PRESETS["DDR4_2400"] = Dram("DDR4_2400", _DDR4_8GB_X8, _DDR4_CLOCKS, _DDR4_ENERGY)


def preset(name: str) -> Dram:
    """The device of this name: DDR5_3200AN, DDR5_4800AN, DDR5_5600AN, DDR5_6400AN or DDR4_2400.

    Raises:
        ArgumentError: The name is unknown.
    """
    if name not in PRESETS:
        raise ArgumentError(f"preset: expected one of {', '.join(PRESETS)}, got {name!r}.")
    return PRESETS[name]
