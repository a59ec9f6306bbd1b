"""Workers that are spawned: patched as the process that spawns them. Forked ones are so anyway."""

import importlib
from multiprocessing.context import get_spawning_popen
from typing import Any

from onehop.integrations import session


class Inherited:
    """Travels with a sampler, and patches a process that is spawned with it."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles, for a process that is being spawned, what to patch it with; for others nothing."""
        if get_spawning_popen() is None or session.now.selection is None:
            return (Inherited, ())
        return (_patched, (session.now.settings.sampler,))


def _patched(sampler: bool | None) -> Inherited:
    # By name: it lies above, and brings this module with the patch.
    importlib.import_module("onehop.integrations.patch").patch(sampler=sampler)
    return Inherited()
