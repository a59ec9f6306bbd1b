"""Handles, pauses, explanations and counts, entered and left in random order by several threads.

A small model says what has to be in force: the list of live entries, of which the last counts.
"""

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn

import onehop
from onehop import thresholds
from onehop.integrations import session
from onehop.integrations.reports import recorded
from onehop.integrations.rows import counted, replaced
from onehop.integrations.torch import kernels
from tests.attack.actors import Actor

_SEEDS, _STEPS, _ACTORS = range(12), 90, 3
_DEFAULTS = {"only": None, "indexing": True, "reuse": True, "products": True}


@dataclass(eq=False)
class Live:
    """An entry: its settings, or None for a pause."""

    settings: dict[str, Any] | None


@dataclass(eq=False)
class Held:
    """A handle, the settings of its patch, and its entries with the actors that entered them."""

    handle: onehop.Patch
    settings: dict[str, Any]
    entries: list[tuple[Actor | None, Live]]


@dataclass(eq=False)
class Block:
    """A block of one actor: what leaves it, what it has collected, and how much that has to be."""

    actor: Actor
    manager: Any = None
    found: Any = None
    expected: int = 0
    entry: Live | None = None

    def total(self) -> int:
        """How much it has collected."""
        if isinstance(self.found, list):
            return len(self.found)
        return self.found["gather", True] + self.found["gather", False]


@dataclass
class World:
    """The model, and what it describes."""

    chance: random.Random
    actors: list[Actor] = field(default_factory=lambda: [Actor() for _ in range(_ACTORS)])
    live: list[Live] = field(default_factory=list)
    handles: list[Held] = field(default_factory=list)
    pauses: list[Block] = field(default_factory=list)
    counters: list[Block] = field(default_factory=list)
    recordings: list[Block] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Makes a layer and its result without the patch."""
        torch.manual_seed(0)
        self.layer, self.x = gnn.GCNConv(4, 3), torch.randn(8, 4)
        self.edge_index, self.index = torch.randint(8, (2, 30)), torch.randint(8, (20, 4))
        with torch.no_grad():
            self.out, self.gathered = self.layer(self.x, self.edge_index), self.x.gather(0, self.index)

    @property
    def settings(self) -> dict[str, Any] | None:
        """The settings in force; None without a patch."""
        return self.live[-1].settings if self.live else None

    def entered(self, settings: dict[str, Any] | None) -> Live:
        self.live.append(Live(settings))
        return self.live[-1]

    def left(self, entry: Live) -> None:
        if entry in self.live:
            self.live.remove(entry)

    def in_force(self, part: str) -> bool:
        now = self.settings
        if now is None:
            return False
        if part == "pyg":
            return now["only"] != "torch"
        return now["only"] in (None, "torch") and now[part]

    # Steps

    def patch(self, actor: Actor) -> None:
        """Makes a handle, which may be dropped at once."""
        given = {
            name: self.chance.choice(values)
            for name, values in {
                "only": (None, "GCNConv", "torch"),
                "indexing": (None, True, False),
                "reuse": (None, False),
                "products": (None, True, False),
            }.items()
        }
        settings = {**(self.settings or _DEFAULTS), "only": given["only"]}
        settings |= {name: value for name, value in given.items() if value is not None}
        handle, entry = actor.do(lambda: onehop.patch(**given)), self.entered(settings)
        if self.chance.random() < 0.8:
            self.handles.append(Held(handle, settings, [(None, entry)]))

    def enter(self, actor: Actor) -> None:
        """Enters a handle, perhaps again."""
        held = self.chance.choice(self.handles)
        assert actor.do(held.handle.__enter__) is held.handle
        made = [each for each in held.entries if each[0] is None]
        held.entries.append((actor, self.entered(held.settings)))
        for each in made:
            held.entries.remove(each)
            self.left(each[1])

    def leave(self, actor: Actor) -> None:
        """Leaves a handle, entered here, elsewhere or never."""
        held = self.chance.choice(self.handles)
        actor.do(lambda: held.handle.__exit__(None, None, None))
        entries = [each for each in held.entries if each[0] is actor] or held.entries
        if entries:
            last = entries[-1]
            held.entries.remove(last)
            self.left(last[1])

    def pause(self, actor: Actor) -> None:
        """Begins a pause."""
        manager = self.chance.choice(self.handles).handle.paused()
        actor.do(manager.__enter__)
        self.pauses.append(Block(actor, manager, entry=self.entered(None)))

    def resume(self, actor: Actor) -> None:
        """Ends a pause, in any thread."""
        block = self.pauses.pop(self.chance.randrange(len(self.pauses)))
        actor.do(lambda: block.manager.__exit__(None, None, None))
        self.left(block.entry)

    def end(self, actor: Actor) -> None:
        """Ends everything, unless nothing is in force."""
        ending = self.chance.choice([onehop.unpatch, *[each.handle.remove for each in self.handles]])
        actor.do(ending)
        if self.settings is not None:
            self.live.clear()

    def accelerate(self, actor: Actor) -> None:
        """Calls an accelerated function, which stays."""
        entry = self.entered({**(self.settings or _DEFAULTS), "only": None})
        actor.enter(lambda stay: onehop.accelerate(stay)(), Block(actor, entry=entry))

    def explain(self, actor: Actor) -> None:
        """Explains a model whose forward stays."""

        def around(stay: Any) -> onehop.Explanation:
            layer, edge_index = self.layer, self.edge_index

            class Staying(torch.nn.Module):
                def forward(self, x: Tensor) -> None:
                    layer(x, edge_index)
                    stay()

            return onehop.explain(Staying(), self.x)

        entry = self.entered(self.settings or _DEFAULTS)
        block = Block(actor, found="explanation", entry=entry, expected=int(self.in_force("pyg")))
        self.recordings.append(block)
        self.counters.append(Block(actor, manager=block))
        actor.enter(around, block)

    def come_back(self, actor: Actor) -> None:
        """Ends the innermost call that stays."""
        block = actor.inside[-1]
        told = actor.leave()
        self.left(block.entry)
        if block.found == "explanation":
            self.recordings.remove(block)
            self.counters = [each for each in self.counters if each.manager is not block]
            assert sum(row.calls for row in told.layers) == block.expected

    def count(self, actor: Actor) -> None:
        """Begins to count functions, or to record layers."""
        for blocks, make in ((self.counters, counted), (self.recordings, recorded)):
            if self.chance.random() < 0.5:
                manager = make()
                blocks.append(Block(actor, manager, found=actor.do(manager.__enter__)))

    def stop_counting(self, actor: Actor) -> None:
        """Ends any such block of the thread, not only the innermost."""
        for blocks in (self.counters, self.recordings):
            mine = [each for each in blocks if each.actor is actor and hasattr(each.manager, "__exit__")]
            if mine:
                block = self.chance.choice(mine)
                blocks.remove(block)
                actor.do(lambda manager=block.manager: manager.__exit__(None, None, None))
                assert block.total() == block.expected

    def call(self, actor: Actor) -> None:
        """Runs a layer and a function of torch."""
        assert torch.equal(actor.do(lambda: torch.gather(self.x, 0, self.index)), self.gathered)
        with torch.no_grad():
            out = actor.do(lambda: self.layer(self.x, self.edge_index))
        torch.testing.assert_close(out, self.out)
        mine = [each for each in self.counters if each.actor is actor]
        if mine and self.in_force("indexing"):
            mine[-1].expected += 1
        mine = [each for each in self.recordings if each.actor is actor]
        if mine and self.in_force("pyg"):
            mine[-1].expected += 1

    # Checks

    def check(self) -> None:
        """Compares the state in force and the rows with the model."""
        now, expected = session.now, self.settings
        assert (now.selection is not None) == (expected is not None) == bool(onehop.patched())
        assert all(each.handle.active == (expected is not None) for each in self.handles)
        if expected is not None:
            found = {name: getattr(now.settings, name) for name in ("indexing", "reuse", "products")}
            assert {"only": expected["only"], **found} == expected
            assert now.pyg == self.in_force("pyg")
            assert now.layers == {None: None, "GCNConv": {"GCNConv"}, "torch": frozenset()}[expected["only"]]
        assert (replaced(gnn.GCNConv.propagate) is not None) == self.in_force("pyg")
        names = kernels.replaced()
        assert ("torch.ops.aten.mm" in names) == self.in_force("products")
        assert ("torch.ops.aten.gather" in names) == self.in_force("indexing")

    def possible(self, actor: Actor) -> list[Any]:
        """The steps that an actor may take now, the usual ones several times."""
        steps = [self.patch, self.call, self.call, self.count, self.stop_counting]
        steps += [self.enter, self.enter, self.leave, self.leave, self.pause] if self.handles else []
        steps += [self.resume, self.resume] if self.pauses else []
        steps += [self.accelerate, self.explain] if len(actor.inside) < 3 else []
        steps += [self.come_back] * 2 if actor.inside else []
        return steps + [self.end] * (self.chance.random() < 0.4)


@pytest.mark.parametrize("seed", _SEEDS)
def test_the_last_live_entry_is_in_force(seed: int) -> None:
    world = World(random.Random(seed))
    with thresholds.lifted():
        for _ in range(_STEPS):
            actor = world.chance.choice(world.actors)
            world.chance.choice(world.possible(actor))(actor)
            world.check()
        while any(actor.inside for actor in world.actors):
            world.come_back(world.chance.choice([actor for actor in world.actors if actor.inside]))
            world.check()
        while world.pauses:
            world.resume(world.actors[0])
            world.check()
        for actor in world.actors:
            while any(each.actor is actor for each in (*world.counters, *world.recordings)):
                world.stop_counting(actor)
            actor.end()
        onehop.unpatch()
        world.live.clear()
        world.check()
        assert session.now == session.Session()
        with counted() as counts:
            world.x.gather(0, world.index)
        assert not counts
