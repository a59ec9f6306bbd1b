"""iSpLib: FusedMM's kernels, generated for one machine, which replace torch_sparse's product."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from onehop.bench.cases import Case
from onehop.bench.peers.base import Forward, Peer
from onehop.bench.peers.sparse import case_tensor

# iSpLib sets these in torch_geometric.typing to make PyG use torch_sparse's product. It resets neither if PyG
# lacks one of them, as PyG 2.8 does.
_FLAGS = ("WITH_PT2", "WITH_PT20")


class Isplib(Peer):
    """``torch_sparse.matmul`` as replaced by iSpLib; the number of threads is fixed when iSpLib is built."""

    name = "isplib"
    needs = ("torch_geometric.typing", "isplib")

    def forward(self, case: Case) -> Forward:
        """Sort the edges; iSpLib fills its caches at the first call."""
        forget()
        matrix, reduce = case_tensor(case), case.reduce
        with patched() as matmul:
            product = matmul

        def forward(x: Tensor) -> Tensor:
            result: Tensor | tuple[Tensor, Tensor] = product(matrix, x, reduce)
            return result[0] if isinstance(result, tuple) else result  # max and min also return positions

        return forward


def forget() -> None:
    """Empty iSpLib's caches: it identifies graphs by their addresses, which another graph may reuse."""
    from isplib import iSpLibPlugin

    for cache in (iSpLibPlugin.cache, iSpLibPlugin.value_cache, iSpLibPlugin.row_cache):
        cache.clear()


@contextmanager
def patched() -> Iterator[Callable[..., Any]]:
    """Replace torch_sparse's and torch's products by iSpLib's inside the block; yield the product."""
    import torch_geometric.typing
    import torch_sparse
    from isplib import iSpLibPlugin

    flags = vars(torch_geometric.typing)
    before = {name: flags[name] for name in _FLAGS if name in flags}
    iSpLibPlugin.patch_pyg()
    try:
        yield torch_sparse.matmul
    finally:
        iSpLibPlugin.unpatch_pyg()
        for name in _FLAGS:
            flags.pop(name, None)
        flags.update(before)
