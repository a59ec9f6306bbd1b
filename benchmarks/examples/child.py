"""One example script in a process of its own: ``python -m benchmarks.examples.child``, started by running.py.

Data sets are made here instead of downloaded, seeds are set, the patch is applied if ``--patched`` says so,
and the script runs as it is written. The loss of every backward pass is kept, and the gradients of each
optimiser's first step. Nothing of onehop is imported without ``--patched``.
"""

import argparse
import contextlib
import random
import runpy
import socket
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
import torch_geometric.datasets
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import register_optimizer_step_pre_hook

from benchmarks.examples import graph_sets, node_sets, ogb_sets, point_sets, typed_sets
from benchmarks.examples.loops import Channel, replacement
from benchmarks.examples.stand_in import StandIn

SEED = 0
ROUNDING = 1e-7


def install_data_sets() -> None:
    """Puts the stand-ins where scripts import PyG's and OGB's data sets from."""
    for module in (node_sets, graph_sets, point_sets, typed_sets):
        for name, value in vars(module).items():
            if isinstance(value, type) and issubclass(value, StandIn) and value is not StandIn:
                setattr(torch_geometric.datasets, name, value)
    ogb_sets.install()


@contextlib.contextmanager
def losses_kept(losses: list[float]) -> Iterator[None]:
    """Appends the value of what ``backward`` is called on: tensors that stay would split the heap."""
    backward = torch.Tensor.backward

    def kept(self: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        losses.append(float(self.detach()))
        backward(self, *args, **kwargs)

    torch.Tensor.backward = kept  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.Tensor.backward = backward  # type: ignore[method-assign]


class Gradients:
    """What each optimiser finds at its first step, in a file, so that it takes no memory afterwards.

    Once an optimiser makes its second step, parameters have drifted, and none that begins later counts.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen = WeakSet[torch.optim.Optimizer]()
        self._drifted = False

    def before_step(self, optimiser: torch.optim.Optimizer, *_: Any) -> None:
        """Keeps them, once for each optimiser."""
        self._drifted |= optimiser in self._seen
        if self._drifted:
            return
        self._seen.add(optimiser)
        parameters = [each for group in optimiser.param_groups for each in group["params"]]
        kept = torch.load(self._file) if self._file.exists() else []
        kept.append([None if each.grad is None else each.grad.detach() for each in parameters])
        torch.save(kept, self._file)


class Nudge:
    """Changes parameters by about a rounding of float32 when an optimiser gets them, and before each step.

    A second run of PyG with it shows how far a script's losses go apart by themselves.
    """

    def __init__(self) -> None:
        self._generator = torch.Generator().manual_seed(SEED)

    def before_step(self, optimiser: torch.optim.Optimizer, *_: Any) -> None:
        """Does so; an optimiser calls it."""
        for group in optimiser.param_groups:
            self._change(group)

    @contextlib.contextmanager
    def of_optimisers(self) -> Iterator[None]:
        """Does so for all that optimisers get inside the block."""
        add = torch.optim.Optimizer.add_param_group

        def changed(optimiser: torch.optim.Optimizer, group: dict[str, Any]) -> None:
            add(optimiser, group)
            self._change(optimiser.param_groups[-1])

        torch.optim.Optimizer.add_param_group = changed  # type: ignore[method-assign]
        hook = register_optimizer_step_pre_hook(self.before_step)
        try:
            yield
        finally:
            hook.remove()
            torch.optim.Optimizer.add_param_group = add  # type: ignore[method-assign]

    @torch.no_grad()
    def _change(self, group: dict[str, Any]) -> None:
        for each in group["params"]:
            if not is_lazy(each):
                each.mul_(1 + ROUNDING * torch.randn(each.shape, generator=self._generator))


class Listening:
    """Records what patched layers do, during the turns that say so; never without the patch."""

    def __init__(self, patched: bool) -> None:
        self._stack = contextlib.ExitStack()
        self._tally: Any = None
        if patched:
            from onehop.cli.watching import Tally

            self._tally = Tally()

    def before(self, answer: dict[str, Any]) -> None:
        """Begins or ends, as the answer wants."""
        self._stack.close()
        if answer.get("listen") and self._tally is not None:
            from onehop.integrations import reports

            self._stack.enter_context(reports.heard_by(self._tally))

    def layers(self) -> list[dict[str, Any]]:
        """What was heard."""
        rows = [] if self._tally is None else self._tally.rows()
        return [
            {"class": row.kind, "path": row.path, "calls": row.calls, "reason": row.reason} for row in rows
        ]


def in_a_line(error: BaseException) -> str:
    """An error's class and its first line; of one that a loader's worker met, that one's."""
    lines = str(error).strip().splitlines() or [""]
    if lines[0].startswith("Caught ") and "DataLoader worker" in lines[0]:
        return lines[-1]
    return f"{type(error).__name__}: {lines[0]}"


def run(script: Path, channel: Channel, gradients: Path, patched: bool, nudged: bool) -> None:
    """Runs the script, and tells the other side how it ended."""
    listening, losses = Listening(patched), list[float]()
    text = script.read_text()
    names = {"range": replacement(text, channel, listening.before)}
    if "torch.compile" in text:
        # Else compiled code numbers its draws by the graph that was compiled, which differs with the patch.
        from torch._inductor import config

        config.fallback_random = True
    sys.path[0] = str(script.parent)
    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002 - scripts draw from the global one
    torch.manual_seed(SEED)
    hook = register_optimizer_step_pre_hook(Gradients(gradients).before_step)
    try:
        with losses_kept(losses), Nudge().of_optimisers() if nudged else contextlib.nullcontext():
            runpy.run_path(str(script), names, run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            channel.ask(event="failed", reason=str(ended.code))
            return
    except Exception as error:
        traceback.print_exc()
        channel.ask(event="failed", reason=in_a_line(error))
        return
    hook.remove()
    channel.ask(event="ended", losses=losses, layers=listening.layers())


def main() -> None:
    """Reads the command line that running.py writes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--channel", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--gradients", type=Path, required=True)
    parser.add_argument("--patched", action="store_true")
    parser.add_argument("--nudged", action="store_true")
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    # Where two threads share the first tanh of a process, half of the result is at times wrong by 5e-5 (torch
    # 2.13 with MKL). One thread computes that of a single number.
    torch.tanh(torch.zeros(1))
    torch.set_num_threads(options.threads)
    channel = Channel(socket.socket(fileno=options.channel))
    install_data_sets()
    if options.patched:
        import onehop

        onehop.patch()
    sys.argv = [str(options.script), *options.arguments]
    run(options.script, channel, options.gradients, options.patched, options.nudged)


if __name__ == "__main__":
    main()
