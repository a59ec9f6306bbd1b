"""A layer as it is now: what a message runs on, so that backward finds what forward found.

A message that runs again in the backward pass must not see what was set on its layer in between, such as
``eval()``. So it runs on a copy of the layer and of the modules in it, which shares the parameters and all
else. What a message stores on the layer goes to the copy, where it is noticed.
"""

from typing import Any

AN_ENTRY = "an entry of a list, dictionary or set"
"""The name of what is stored in one that a module has."""

_Contents = list[Any] | dict[Any, Any] | set[Any]


class Snapshot:
    """A copy of a layer's modules.

    Attributes:
        layer: The copy of the layer.
    """

    def __init__(self, layer: Any) -> None:
        self._copies: dict[int, tuple[Any, Any]] = {}
        self.layer = self._copy(layer)
        self._contents = [
            (container, container.copy())
            for original, _ in self._copies.values()
            for container in vars(original).values()
            if isinstance(container, list | dict | set)
        ]

    def _copy(self, module: Any) -> Any:
        if id(module) in self._copies:
            return self._copies[id(module)][1]
        copied = object.__new__(type(module))
        self._copies[id(module)] = (module, copied)
        state = copied.__dict__
        state.update(module.__dict__)
        for name in ("_parameters", "_buffers"):
            state[name] = dict(state[name])
        state["_modules"] = {
            name: None if child is None else self._copy(child) for name, child in state["_modules"].items()
        }
        return copied

    def renamed(self, others: dict[int, Any]) -> set[int]:
        """Puts other tensors in the place of parameters of the copy, by their ids; returns those it found."""
        found = set()
        for _, copied in self._copies.values():
            parameters = copied.__dict__["_parameters"]
            for name, parameter in parameters.items():
                if id(parameter) in others:
                    found.add(id(parameter))
                    parameters[name] = others[id(parameter)]
        return found

    def stored(self) -> str | None:
        """The name of something that was stored on a module since; containers are put back as they were."""
        found = None
        for container, before in self._contents:
            if len(container) != len(before) or not _holds(container, before):
                _restore(container, before)
                found = AN_ENTRY
        for original, copied in self._copies.values():
            name = _difference(vars(original), vars(copied))
            found = name if name is not None else found
        return found


def _difference(before: dict[str, Any], after: dict[str, Any]) -> str | None:
    if before.keys() != after.keys():
        return str(next(iter(before.keys() ^ after.keys())))
    for name, value in after.items():
        if name == "_modules":
            changed = value.keys() != before[name].keys()
        elif name in ("_parameters", "_buffers"):
            changed = value.keys() != before[name].keys() or any(
                value[key] is not before[name][key] for key in value
            )
        else:
            changed = value is not before[name]
        if changed:
            return name
    return None


def _holds(container: _Contents, before: _Contents) -> bool:
    if isinstance(container, dict) and isinstance(before, dict):
        return all(key in before and before[key] is value for key, value in container.items())
    if isinstance(container, set):
        return container == before
    return all(one is other for one, other in zip(container, before, strict=True))


def _restore(container: Any, before: _Contents) -> None:
    container.clear()
    if isinstance(container, list):
        container.extend(before)
    else:
        container.update(before)
