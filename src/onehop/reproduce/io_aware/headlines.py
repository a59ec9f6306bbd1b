"""The paper's headline figures over DGL, on an A100: they need a GPU."""

from onehop.reproduce.rows import Row, missing

_HEADLINES = (
    ("GATv2 over DGL, best", 8.5),
    ("GATv2 over DGL, median", 2.0),
    ("GATv2, peak memory of DGL over theirs, best", 76.0),
    ("GATv2, peak memory of DGL over theirs, median", 6.0),
    ("Graph Transformer, fused over DGL, best", 3.9),
    ("Graph Transformer, fused over DGL, median", 1.6),
    ("Graph Transformer, tensor cores over DGL, best", 7.3),
    ("min over DGL, best", 10.0),
    ("min over DGL, median", 2.6),
    ("cached sparse products over DGL, best", 8.0),
)


def rows() -> list[Row]:
    """Every headline, with the command that measures it where there is a GPU."""
    return [
        missing(figure, "x", paper, "Needs a GPU: `python -m benchmarks.gpu` measures this with ours there.")
        for figure, paper in _HEADLINES
    ]
