"""Every operator by the GPU kernels against its naive twin: small graphs, plans, numbers of 64 bits."""

import pytest

from onehop.kernels.triton import work
from onehop.plans import TritonPlan
from tests.kernels.triton.conftest import PLANS
from tests.kernels.triton.small_graphs import GRAPHS
from tests.ops.operators import CASES, axes_of, check
from tests.pairs import rounds, spread

# Few programs and few turns of their loops; hubs are cut.
WIDE = TritonPlan(split_edges=16, short_edges=4, rows_per_program=32, block_features=64, num_warps=1)
MAPPINGS = PLANS | {"wide": WIDE}
NAMES = [name for name, case in CASES.items() if case.backend]
FORMS = [
    form
    for name in NAMES
    for form in spread(
        [(name,)] * 3 * rounds(),
        list(GRAPHS),
        *axes_of(name, (0, 1, 2, 3, 5, 15, 16, 17, 33)),
        list(MAPPINGS),
        [False, True],
    )
]


@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")  # of numpy, which interprets
@pytest.mark.parametrize(
    ("name", "graph", "width", "dtypes", "layout", "numbers", "pull", "mapping", "wide"),
    FORMS,
    ids=["-".join(map(str, form)) for form in FORMS],
)
def test_results_and_gradients(
    name, graph, width, dtypes, layout, numbers, pull, mapping, wide, use, monkeypatch
):
    use(MAPPINGS[mapping])
    if wide:
        monkeypatch.setattr(work, "_NARROW_EDGES", 0)
    check(name, GRAPHS[graph], width, dtypes, layout, numbers, pull, backend="triton")
