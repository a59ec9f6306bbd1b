"""``torch.nn.functional.dropout`` on :func:`onehop.dropout`'s kernels, and with it all that calls it.

What is replaced are the two functions that it calls, ``torch._VF.dropout`` and ``torch._VF.dropout_``, not
the function itself. So callers that imported it by name before are served too. What torch does around them
(errors, subclasses, ``torch.fx``, the source that TorchScript and ``torch.compile`` read) stays its own. And
rows that replace ``torch.nn.functional.dropout`` itself, such as those for divided graphs, can be put in
place and taken back in any order. ``torch.dropout``, the same function by another name, stays torch's.
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
# Older releases of torch have none, and their programs keep torch's dropout.
_has_tag = hasattr(torch.compiler.config, _TAG)


class _Covered(Row):
    """A row of a module that looks its attributes up elsewhere: putting theirs back uncovers it."""

    def restore(self) -> None:
        """Puts theirs back, unless somebody else has set something on top of ours."""
        if vars(self.owner).get(self.attribute) is self.ours:
            delattr(self.owner, self.attribute)


class _Tagged(Row):
    """A row of a setting, which is looked up by other means than the attributes of its module."""

    def restore(self) -> None:
        """Puts theirs back, unless somebody has set something else."""
        if getattr(self.owner, self.attribute) == self.ours:
            setattr(self.owner, self.attribute, self.theirs)


def rows() -> list[Row]:
    """The table's rows."""
    # torch._VF is an instance that passes for a module.
    owner = cast(Any, torch._VF)
    rows: list[Row] = [
        _Covered(owner, "dropout", _dropout, _theirs),
        _Covered(owner, "dropout_", _dropout_in_place, _theirs_in_place),
    ]
    if _has_tag:
        # Programs that torch keeps on disk are known by their source, which is the same without the patch.
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
        # torch's own product, which knows what may be written to and what a record of it must keep.
        return input.mul_(factors(torch.empty_like(input, requires_grad=False), p))
    return _theirs_in_place(input, p, train)


# TorchScript compiles calls of builtin functions by their identity: of ours, it compiles theirs.
_builtins._register_builtin(_dropout, "aten::dropout")
_builtins._register_builtin(_dropout_in_place, "aten::dropout_")
