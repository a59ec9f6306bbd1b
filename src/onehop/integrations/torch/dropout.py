"""``torch.nn.functional.dropout``, and everything that calls it, on :func:`onehop.dropout`'s kernels.

The two functions that it calls are replaced, ``torch._VF.dropout`` and ``torch._VF.dropout_``, not the
function itself. So callers that imported it by name earlier are included. What torch does around them
(errors, subclasses, ``torch.fx``, the source that TorchScript and ``torch.compile`` read) is unchanged, and
rows that replace ``torch.nn.functional.dropout`` itself, such as those for divided graphs, can be installed
and restored in any order. ``torch.dropout``, the same function by another name, is not replaced.
"""

from typing import Any, cast

import torch
import torch.compiler.config
from torch import Tensor
from torch.jit import _builtins

from onehop.integrations.rows import Row
from onehop.ops.dropout import dropped, factors, serves
from onehop.ops.dropout_in_programs import applies, dropout as in_program

_theirs, _theirs_in_place = torch.dropout, torch.dropout_
_TAG = "cache_key_tag"
# Older releases of torch have none; their programs keep torch's dropout.
_has_tag = hasattr(torch.compiler.config, _TAG)


class _Tagged(Row):
    """A row of a setting, which its module holds elsewhere than in its attributes."""

    def restore(self) -> None:
        """Puts theirs back, unless other code has set something else."""
        if getattr(self.owner, self.attribute) == self.ours:
            setattr(self.owner, self.attribute, self.theirs)


def rows() -> list[Row]:
    """The rows of the patch table."""
    # torch._VF, an instance that passes for a module, looks its attributes up elsewhere.
    owner = cast(Any, torch._VF)
    rows = [
        Row(owner, "dropout", _dropout, _theirs, inherited=True),
        Row(owner, "dropout_", _dropout_in_place, _theirs_in_place, inherited=True),
    ]
    if _has_tag:
        # torch finds programs that it keeps on disk by their source, which is the same without the patch.
        theirs = torch.compiler.config.cache_key_tag
        rows.append(_Tagged(torch.compiler.config, _TAG, f"{theirs}+onehop", theirs))
    return rows


def _dropout(input: Tensor, p: float, train: bool) -> Tensor:
    if train and serves(input, p):
        return dropped(input, p)
    if train and _has_tag and applies(input, p):
        return in_program(input, p)
    return _theirs(input, p, train)


def _dropout_in_place(input: Tensor, p: float, train: bool) -> Tensor:
    if train and serves(input, p):
        # torch's own product checks whether the tensor may be written to, and saves what autograd needs.
        return input.mul_(factors(torch.empty_like(input, requires_grad=False), p))
    return _theirs_in_place(input, p, train)


# TorchScript compiles calls of builtin functions by their identity: for ours, it compiles theirs.
_builtins._register_builtin(_dropout, "aten::dropout")
_builtins._register_builtin(_dropout_in_place, "aten::dropout_")
