"""What all stand-ins for PyG's data sets share."""

from collections.abc import Callable, Iterable
from typing import Any

from torch_geometric.data import InMemoryDataset

Function = Callable[[Any], Any] | None


class StandIn(InMemoryDataset):
    """A data set that is made in memory: nothing is downloaded, and nothing written.

    The data sets pass on ``transform`` and so on, which examples give by their names.
    """

    def __init__(
        self,
        made: Iterable[Any],
        transform: Function = None,
        pre_transform: Function = None,
        pre_filter: Function = None,
    ) -> None:
        super().__init__(None, transform)
        kept = [each for each in made if pre_filter is None or pre_filter(each)]
        self.data, self.slices = self.collate(
            kept if pre_transform is None else [pre_transform(each) for each in kept]
        )
