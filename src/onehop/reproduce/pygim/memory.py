"""Memory of a core on AmazonProducts, which prior schemes exceed."""

from onehop.errors import MachineMemoryError
from onehop.machines.pim import BalancedShapes, Machine, PimPlan, prior_art
from onehop.reproduce.pygim.schemes import DTYPE, WIDTH
from onehop.reproduce.rows import Row

_AMAZON = BalancedShapes(1_569_960, 1_569_960, 264_339_468)


def rows() -> list[Row]:
    """MiB of the fullest core's 64, by scheme and grid."""
    machine = Machine()
    ranks = machine.config.ranks
    plans = {f"PaF {sp}x{ranks // sp}": prior_art.published(sp, ranks // sp) for sp in (1, 2, 4, 8, 16, 32)}
    plans["GraNDe-like"] = prior_art.grande(machine.config)
    return [_row(machine, name, plan) for name, plan in plans.items()]


def _row(machine: Machine, name: str, plan: PimPlan) -> Row:
    limit = machine.config.core.mram_bytes / 2**20
    try:
        need, told = machine.simulate(_AMAZON, WIDTH, plan, DTYPE).mram_bytes_max, "fits"
    except MachineMemoryError as error:
        need, told = error.need_bytes, "does not fit"
    return Row(
        figure=f"memory of a core, whole AmazonProducts, width {WIDTH}, {name}",
        ours=need / 2**20,
        unit="MiB",
        note=f"It {told}: a core has {limit:.0f} MiB; by the abstract prior schemes run out of it.",
    )
