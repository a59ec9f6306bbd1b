"""What PyG lacks without further packages, and how the patch answers it, as a page of the documents.

    python scripts/pyg_needs.py            writes docs/reference/pyg-needs.md for the PyG that is installed
    python scripts/pyg_needs.py --check    fails if the page is another, or if PyG needs more than it lists

Read from PyG's source: each class and function that raises an ``ImportError``, each flag ``WITH_...``, and
each import that may fail. The answers to the first two are below; imports that may fail are listed as they
are, because PyG goes on without them.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import metadata, util
from pathlib import Path

from made_files import ROOT, update

PAGE = ROOT / "docs" / "reference" / "pyg-needs.md"

ONEHOP, PYG, OUTSIDE = "onehop", "PyG", "outside"
_POINTS = "`torch.ops.pyg`, registered by the patch"
_SPARSE = "needs torch-sparse, of which it is a part; loaders, `DimeNet` and `GNNFF` do without it"
_VERSION = "the version of torch"

RAISES: dict[str, tuple[str, str]] = {
    "nn.conv.x_conv:XConv": (ONEHOP, _POINTS),
    "nn.conv.edge_conv:DynamicEdgeConv": (ONEHOP, _POINTS),
    "nn.conv.gravnet_conv:GravNetConv": (ONEHOP, _POINTS),
    "nn.conv.spline_conv:SplineConv": (ONEHOP, "B-splines, and a product for each matrix"),
    "nn.models.node2vec:Node2Vec": (ONEHOP, _POINTS),
    "nn.pool:fps": (ONEHOP, _POINTS),
    "nn.pool:knn": (ONEHOP, _POINTS),
    "nn.pool:knn_graph": (ONEHOP, _POINTS),
    "nn.pool:radius": (ONEHOP, _POINTS),
    "nn.pool:radius_graph": (ONEHOP, _POINTS),
    "nn.pool:nearest": (ONEHOP, _POINTS),
    "nn.pool.graclus:graclus": (ONEHOP, _POINTS),
    "nn.pool.voxel_grid:voxel_grid": (ONEHOP, _POINTS),
    "utils.dropout:dropout_path": (ONEHOP, _POINTS),
    "utils._segment:_torch_segment": (PYG, "torch's `segment_reduce`; other dimensions need torch-scatter"),
    "utils.ppr:get_ppr": (OUTSIDE, "needs numba"),
    "sampler.neighbor_sampler:NeighborSampler": (ONEHOP, "onehop's sampler, with times and weights"),
    "sampler.hgt_sampler:HGTSampler": (ONEHOP, "onehop's layer-wise sampler"),
    "loader.shadow:ShaDowKHopSampler": (ONEHOP, "onehop's sampler; with an `adj_t`, torch-sparse"),
    "loader.cluster:ClusterData": (ONEHOP, "onehop's partition, by METIS where pymetis is installed"),
    "loader.ibmb_loader:prime_orient_merge": (OUTSIDE, "needs numba"),
    "typing:CPUHashMap": (PYG, "`HashTensor` uses pandas instead"),
    "typing:CUDAHashMap": (PYG, "`HashTensor` uses pandas instead"),
    "typing:SparseTensor": (OUTSIDE, _SPARSE),
    "typing:SparseStorage": (OUTSIDE, _SPARSE),
    "typing:torch_sparse": (OUTSIDE, "needs torch-sparse: functions of `SparseTensor`"),
    "io.ply:read_ply": (OUTSIDE, "needs openmesh"),
    "datasets.tag_dataset:TAGDataset": (OUTSIDE, "needs pandas and transformers"),
    "graphgym.utils.agg_runs:agg_runs": (OUTSIDE, "needs tensorboardX"),
    "llm.models.qa_gen:LLMClient": (OUTSIDE, "needs vLLM"),
    "data.lightning.datamodule:LightningDataModule": (OUTSIDE, "needs pytorch-lightning"),
    "nn.conv.cugraph.base:CuGraphModule": (OUTSIDE, "needs pylibcugraphops, and a GPU"),
}
"""By module, and class or function: who answers, and how."""

FLAGS: dict[str, tuple[str, str]] = {
    **{
        f"WITH_PT{version}": (PYG, _VERSION)
        for version in (20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 210, 211, 212, 113)
    },
    "WITH_WINDOWS": (PYG, "the system"),
    "WITH_PYG_LIB": (ONEHOP, "true, but for `NeighborSampler` under `patch(sampler=False)`"),
    "WITH_EDGE_TIME_NEIGHBOR_SAMPLE": (ONEHOP, "true for `NeighborSampler`"),
    "WITH_WEIGHTED_NEIGHBOR_SAMPLE": (ONEHOP, "true for `NeighborSampler`"),
    "WITH_KNN": (ONEHOP, "true"),
    "WITH_RADIUS": (ONEHOP, "true"),
    "WITH_NEAREST": (ONEHOP, "true"),
    "WITH_FPS": (ONEHOP, "true"),
    "WITH_GRID_CLUSTER": (ONEHOP, "true"),
    "WITH_GRACLUS": (ONEHOP, "true"),
    "WITH_SPLINE": (ONEHOP, "true"),
    "WITH_METIS": (ONEHOP, "not needed: `ClusterData` divides with onehop's partition"),
    "WITH_SEGMM": (ONEHOP, "not needed: products of `HeteroLinear` and `RGCNConv` run on onehop's"),
    "WITH_GMM": (PYG, "not needed: `HeteroDictLinear` multiplies type by type"),
    "WITH_SOFTMAX": (ONEHOP, "not needed: `softmax` runs on onehop's"),
    "WITH_INDEX_SORT": (ONEHOP, "not needed: `index_sort` runs on onehop's, or torch's"),
    "WITH_SAMPLED_OP": (PYG, "never read"),
    "WITH_CPU_HASH_MAP": (PYG, "not needed: `HashTensor` uses pandas"),
    "WITH_CUDA_HASH_MAP": (PYG, "not needed: `HashTensor` uses pandas"),
    "WITH_TORCH_SPARSE": (
        ONEHOP,
        "true for `HGTSampler` and `ShaDowKHopSampler`; elsewhere false: `SparseTensor` is torch-sparse's",
    ),
    "WITH_TORCH_SCATTER": (ONEHOP, "not needed: `scatter` and `segment` run on onehop's, or torch's"),
    "WITH_TORCH_FRAME": (OUTSIDE, "needs pytorch-frame: data of tables"),
    "WITH_IPEX": (OUTSIDE, "needs Intel's extension: its devices"),
    "WITH_HYDRA": (OUTSIDE, "needs hydra: configurations"),
    "WITH_TORCHMETRICS": (PYG, "its own metrics"),
    "WITH_RDKIT": (OUTSIDE, "needs RDKit: some data sets of molecules"),
    "WITH_TRANSFORMERS": (OUTSIDE, "needs transformers: `TAGDataset`"),
    "WITH_PANDAS": (OUTSIDE, "needs pandas: `TAGDataset`"),
    "WITH_NUMBA": (OUTSIDE, "needs numba: `get_ppr`, the loaders of IBMB"),
    "WITH_CUDF": (PYG, "pandas, or torch"),
}
"""By flag: who answers, and how."""


@dataclass
class Needs:
    """What PyG's source needs, each with the modules that need it."""

    raises: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    flags: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    imports: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


def read(package: Path) -> Needs:
    """Read all modules of a package."""
    needs = Needs()
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            _read(node, module, needs)
    return needs


def _read(top: ast.stmt, module: str, needs: Needs) -> None:
    """Read a statement of a module; what raises is named by the outermost class or function around it."""
    for name, node in _named(top, ""):
        if isinstance(node, ast.Raise) and _is_import_error(node.exc):
            needs.raises[f"{module}:{name}"].add(module)
        elif isinstance(node, ast.Name | ast.Attribute):
            flag = node.id if isinstance(node, ast.Name) else node.attr
            if flag.startswith("WITH_"):
                needs.flags[flag].add(module)
        elif isinstance(node, ast.ImportFrom):
            for each in node.names:
                if each.name.startswith("WITH_"):
                    needs.flags[each.name].add(module)
        elif isinstance(node, ast.Try) and any(map(_catches, node.handlers)):
            for package in _imported(node.body):
                needs.imports[package].add(module)


def _named(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
    if not name and isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        name = node.name
    yield name, node
    for child in ast.iter_child_nodes(node):
        yield from _named(child, name)


def _is_import_error(node: ast.expr | None) -> bool:
    call = node.func if isinstance(node, ast.Call) else node
    return isinstance(call, ast.Name) and call.id in ("ImportError", "ModuleNotFoundError")


def _catches(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {each.id for each in caught if isinstance(each, ast.Name)}
    return not names.isdisjoint({"ImportError", "ModuleNotFoundError", "Exception"})


def _imported(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield the packages besides PyG, torch and Python's own that statements import."""
    known = {"torch", "torch_geometric", *sys.stdlib_module_names}
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            else:
                continue
            yield from (name.partition(".")[0] for name in names if name.partition(".")[0] not in known)


def unanswered(needs: Needs) -> list[str]:
    """Return what PyG needs and the lists above lack."""
    found = [f"raises ImportError: {name}" for name in needs.raises if name not in RAISES]
    flags = [name for name in needs.flags if name not in FLAGS]
    return found + [f"flag: {name} in {', '.join(sorted(needs.flags[name]))}" for name in flags]


def page(needs: Needs, version: str) -> str:
    """The page."""
    answers = [*(RAISES[name][0] for name in needs.raises), *(FLAGS[name][0] for name in needs.flags)]
    counts = {who: answers.count(who) for who in (ONEHOP, PYG, OUTSIDE)}
    lines = [
        "# What PyG needs",
        "",
        f"Each place in the source of torch_geometric {version} that ends without a further package, or that",
        "looks for one, and how it is answered under `onehop.patch()` where PyG is installed from PyPI with",
        "torch alone. Written by `python scripts/pyg_needs.py`; a test fails when PyG needs more.",
        "",
        f"Of {len(answers)}, onehop answers {counts[ONEHOP]} and PyG itself {counts[PYG]}.",
        f"The other {counts[OUTSIDE]} need the package named.",
        "",
        "## Raises `ImportError`",
        "",
        "| class or function | module | answered by | how |",
        "| --- | --- | --- | --- |",
    ]
    for name in sorted(needs.raises, key=lambda name: (RAISES[name][0], name)):
        module, _, owner = name.partition(":")
        who, how = RAISES[name]
        lines.append(f"| `{owner}` | `{module}` | {who} | {how} |")
    lines += ["", "## Flags", "", "| flag | read by | answered by | how |", "| --- | --- | --- | --- |"]
    of_torch = sorted(name for name in needs.flags if FLAGS[name][1] == _VERSION)
    lines.append(f"| {', '.join(f'`{name}`' for name in of_torch)} | many | {PYG} | {_VERSION} |")
    for name in sorted(needs.flags.keys() - set(of_torch), key=lambda name: (FLAGS[name][0], name)):
        who, how = FLAGS[name]
        readers = sorted(f"`{each or 'torch_geometric'}`" for each in needs.flags[name] - {"typing"})
        lines.append(f"| `{name}` | {', '.join(readers) or '-'} | {who} | {how} |")
    lines += [
        "",
        "## Imports that may fail",
        "",
        "PyG tries to import these. Without them it leaves out a feature, or says what to install for it.",
        "",
        "| package | modules |",
        "| --- | --- |",
    ]
    for name, of in sorted(needs.imports.items(), key=lambda each: each[0].lower()):
        lines.append(f"| {name} | {', '.join(f'`{each}`' for each in sorted(of))} |")
    return "\n".join(lines) + "\n"


def installed() -> Path:
    """The folder of the PyG that is installed, which is not imported."""
    spec = util.find_spec("torch_geometric")
    if spec is None or spec.origin is None:
        raise SystemExit("torch_geometric is not installed. Install it with: pip install 'onehop[pyg]'")
    return Path(spec.origin).parent


def main(check: bool) -> None:
    """Writes the page, or compares; SystemExit if PyG needs more than the lists above have."""
    needs = read(installed())
    lacking = unanswered(needs)
    if lacking:
        raise SystemExit("\n  ".join(["PyG needs more than scripts/pyg_needs.py lists:", *lacking]))
    update({PAGE: page(needs, metadata.version("torch_geometric"))}, "pyg_needs", check)


if __name__ == "__main__":
    main("--check" in sys.argv)
