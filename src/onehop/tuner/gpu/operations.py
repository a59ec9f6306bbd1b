"""The operations that can be tuned on a GPU: each a call on random operands, with the plan given."""

from onehop.calls import Rule
from onehop.tuner import calls
from onehop.tuner.calls import Site
from onehop.tuner.operations import Operation, check

# Values of ``op`` in `tune`.
OPS = ("aggregate", "sddmm", "edge_softmax", "attention", "gat", "gatv2")
# The variant comes last: torch's uses none of the other fields.
FIELDS = (
    "ordering",
    "short_edges",
    "rows_per_program",
    "block_edges",
    "block_features",
    "num_warps",
    "num_stages",
    "split_edges",
    "variant",
)
_KERNELS = FIELDS[:-1]
_SOFTMAX = tuple(name for name in _KERNELS if name != "num_stages")
_RULES: dict[str, Rule] = {"attention": "dot", "gat": "gat", "gatv2": "gatv2"}


def operations(op: str, reduce: str, backward: bool, site: Site) -> tuple[Operation, ...]:
    """The directions of tuning ``op``, forward first.

    The gradient of attention has a plan of its own, which both of its sweeps use.

    Raises:
        ArgumentError: ``op`` or ``reduce`` is unknown.
    """
    check(op, OPS, reduce)
    if op == "sddmm":
        return (Operation("sddmm", False, _KERNELS, True, calls.sddmm(site)),)
    if op == "edge_softmax":
        return (Operation("edge_softmax", False, _SOFTMAX, False, calls.edge_softmax(site)),)
    if op in _RULES:
        rule = _RULES[op]
        once = calls.attention(site, rule, forward=True, backward=False)
        again = calls.attention(site, rule, forward=False, backward=True)
        forward = Operation(op, False, _KERNELS, rule == "dot", once)
        gradient = Operation(f"{op}_grad", False, _KERNELS, True, again)
    elif reduce in ("sum", "mean"):
        mean = reduce == "mean"
        forward = Operation("sum", False, FIELDS, False, calls.summed(site, mean, False))
        gradient = Operation("sum", True, FIELDS, False, calls.summed(site, mean, True))
    else:
        maker = calls.extremum(site, reduce, backward)
        forward = Operation("extremum", False, _KERNELS, False, maker)
        gradient = Operation("extremum_grad", True, _KERNELS, True, calls.extremum_grad(site, reduce))
    return (forward, gradient) if backward else (forward,)
