"""Bounds of the area and the power of a near-rank unit, from published figures of its parts.

The paper publishes neither the area and power nor its process. So each part has a minimum and a maximum
figure, each with its source, at two processes that enclose the processes of published near-memory units: 45
nm (40 nm counts as 45) and 14 nm (12 nm counts as 14). Figures of another process are scaled by A. Stillmaker
and B. Baas, "Scaling equations for the accurate prediction of CMOS device performance from 180 nm to 7 nm",
Integration 58, 2017: areas by its table, energies by its polynomials for high-performance transistors at the
nominal voltage. Leakage is not scaled down.

The bounds do not include the wires between the parts, nor the PHYs, which the buffer chip of a load-reduced
DIMM has anyway.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from onehop.machines.ndp.config import NdpConfig
from onehop.machines.ndp.mapping import ELEMENT_BYTES

NODES = (45, 14)
# The paper has an adj-bundle buffer and four general-purpose buffers of the same size.
_BUFFERS = 5
# Number of controllers: a re-tiling unit, a DRAM controller and a control unit.
_CONTROLLERS = 3
# Area of a circuit that takes 1 at 45 nm, and its energy by the coefficients of V^2, V and 1, with V.
_AREA = {45: 1.0, 32: 0.46, 14: 0.17}
_ENERGY = {
    45: (1.018, -0.3107, 0.1539, 0.9),
    32: (0.8367, -0.4341, 0.1701, 0.9),
    14: (0.2363, -0.09675, 0.02239, 0.8),
}


class Figure(NamedTuple):
    """A published figure.

    Attributes:
        value: The figure's value.
        node: The figure's process in nm.
        source: The publication, and what the figure measures.
    """

    value: float
    node: int
    source: str


_HOROWITZ = "M. Horowitz, ISSCC 2014, 45 nm at 0.9 V"
_ALADDIN = "Y. S. Shao et al., Aladdin, ISCA 2014, power models of a commercial 40 nm library at 1 ns"
_KAUL = "H. Kaul et al., ISSCC 2012, 32 nm, measured"
_ROCKET = "Y. Lee et al., ESSCIRC 2014, 40 nm: a Rocket core, 64 bits, without its caches"
_MACRO = Figure(
    29_142 / (32 * 1024 * 8),
    14,
    "U. Gupta et al., RecPipe, MICRO 2021, its artifact: a macro of 32 KiB, 12 nm",
)

# The minimum and the maximum of each quantity.
FIGURES: dict[str, tuple[Figure, Figure]] = {
    "lane_um2": (
        Figure(4184 + 7700, 45, "W. Dally, NIPS 2015 tutorial, synthesised: 32-bit adder and multiplier"),
        Figure(45_000, 32, f"{_KAUL}: a whole fused multiply-add unit of several precisions"),
    ),
    "lane_pj": (
        Figure(0.9 + 3.7, 45, f"{_HOROWITZ}: 32-bit addition and multiplication"),
        Figure(16.7 + 35.3, 45, f"{_ALADDIN}: the same, over the three clocks that each takes"),
    ),
    "lane_leakage_mw": (
        Figure(0.0, 14, "no leakage"),
        Figure(0.0531 + 0.12, 45, f"{_ALADDIN}: 32-bit adder and multiplier"),
    ),
    "bit_um2_45": (Figure(0.346, 45, "K. Mistry et al., IEDM 2007: the SRAM cell alone"), _MACRO),
    "bit_um2_14": (Figure(0.0499, 14, "S. Natarajan et al., IEDM 2014: the SRAM cell alone"), _MACRO),
    "byte_pj": (
        Figure(
            20.45 / 32, 32, "A. Shafiee et al., ISAAC, ISCA 2016: embedded DRAM, 256 bits at once, by CACTI"
        ),
        Figure(
            5.0,
            45,
            f"{_HOROWITZ}: 64 bits of a cache, 20 pJ of 32 KiB and 100 pJ of 1 MiB, at 128 KiB by the root",
        ),
    ),
    "bit_leakage_mw": (
        Figure(0.0, 14, "no leakage"),
        Figure(7.4e-5, 45, f"{_ALADDIN}: a bit of a register, which has more transistors than an SRAM cell"),
    ),
    "controller_um2": (
        Figure(0.0, 14, "no area"),
        Figure(140_000, 45, f"{_ROCKET}; control of one sort needs no more than a processor"),
    ),
    "controller_pj": (
        Figure(0.0, 14, "no energy"),
        Figure(34.0, 45, f"{_ROCKET}; a clock"),
    ),
}


class Bounds(NamedTuple):
    """The minimum and the maximum value of a quantity."""

    low: float
    high: float

    def __add__(self, other: "Bounds") -> "Bounds":  # type: ignore[override]
        """Return the bounds of a sum."""
        return Bounds(self.low + other.low, self.high + other.high)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the unit.

    Attributes:
        area_mm2: The part's area.
        power_w: The part's power while the unit works.
    """

    area_mm2: Bounds
    power_w: Bounds


@dataclass(frozen=True, slots=True)
class Silicon:
    """A rank's unit at every process in :data:`NODES`.

    Attributes:
        parts: By process and name: the lanes, the buffers, and the controllers.
    """

    parts: dict[int, dict[str, Part]]

    def area_mm2(self, node: int) -> Bounds:
        """Return the area of a unit at a process."""
        return sum((part.area_mm2 for part in self.parts[node].values()), Bounds(0.0, 0.0))

    def power_w(self, node: int) -> Bounds:
        """Return the power of a working unit at a process."""
        return sum((part.power_w for part in self.parts[node].values()), Bounds(0.0, 0.0))

    def as_dict(self) -> dict[str, Any]:
        """Return the bounds over all processes, at each process and by part, with sources; ready for JSON."""
        by_node = {
            str(node): {
                "area_mm2": self.area_mm2(node),
                "power_w": self.power_w(node),
                "parts": {
                    name: {"area_mm2": part.area_mm2, "power_w": part.power_w} for name, part in parts.items()
                },
            }
            for node, parts in self.parts.items()
        }
        return {
            "area_mm2": _around(self.area_mm2(node) for node in self.parts),
            "power_w": _around(self.power_w(node) for node in self.parts),
            "nodes_nm": by_node,
            "sources": {name: [low.source, high.source] for name, (low, high) in FIGURES.items()},
        }


def unit_bounds(config: NdpConfig) -> Silicon:
    """Return bounds of the area and the power of a rank's unit.

    The minimum power holds for a unit that multiplies each number that its rank can deliver once. The maximum
    power holds for a unit whose lanes all work in every clock while both paths are busy.

    Args:
        config: The machine.
    """
    return Silicon({node: _parts(config, node) for node in NODES})


def _parts(config: NdpConfig, node: int) -> dict[str, Part]:
    module = config.module
    bits = _BUFFERS * module.buffer_bytes * 8
    # Products in 1e9 per second; 1e9 pJ per second is a milliwatt.
    delivered = config.dram.device().peak_gbps
    of_host = config.host.channel_gbps or delivered
    most = module.lanes * module.clock_mhz / 1e3
    products = Bounds(min(most, delivered / ELEMENT_BYTES), most)
    # A product reads and writes its output; the data that the paths move are written once and read once.
    accessed = Bounds(
        2 * ELEMENT_BYTES * products.low,
        2 * ELEMENT_BYTES * products.high + 2 * (delivered + of_host),
    )
    clocks = Bounds(module.clock_mhz / 1e3, module.clock_mhz / 1e3)
    return {
        "lanes": Part(
            _area("lane_um2", module.lanes, node),
            _power("lane_pj", products, node, "lane_leakage_mw", module.lanes),
        ),
        "buffers": Part(
            _area(f"bit_um2_{node}", bits, node), _power("byte_pj", accessed, node, "bit_leakage_mw", bits)
        ),
        "controllers": Part(
            _area("controller_um2", _CONTROLLERS, node),
            _power("controller_pj", Bounds(*(_CONTROLLERS * clock for clock in clocks)), node),
        ),
    }


def _area(name: str, count: int, node: int) -> Bounds:
    """Return the area in mm2 of ``count`` circuits."""
    return Bounds(*(count * each.value * _AREA[node] / _AREA[each.node] / 1e6 for each in FIGURES[name]))


def _power(name: str, rates: Bounds, node: int, leakage: str | None = None, count: int = 0) -> Bounds:
    """Return the power in W of events at rates in 1e9 per second, and of ``count`` circuits that leak."""
    low, high = (
        rate * each.value * _energy(node) / _energy(each.node) / 1e3
        for rate, each in zip(rates, FIGURES[name], strict=True)
    )
    leaks = Bounds(*(count * each.value / 1e3 for each in FIGURES[leakage])) if leakage else Bounds(0.0, 0.0)
    return Bounds(low, high) + leaks


def _energy(node: int) -> float:
    """Return the energy of a circuit at a process, in the unit of Stillmaker and Baas."""
    squared, linear, constant, volts = _ENERGY[node]
    return squared * volts**2 + linear * volts + constant


def _around(bounds: Iterator[Bounds]) -> Bounds:
    """Return the minimum and the maximum over several bounds."""
    lows, highs = zip(*bounds, strict=True)
    return Bounds(min(lows), max(highs))
