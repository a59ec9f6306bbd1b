"""The interface of the compiled extension (csrc/bindings/module.cpp). An address of 0 means: omitted."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Self

from torch import Tensor

class Csr:
    rows: Final[int]
    cols: Final[int]
    edges: Final[int]
    bytes: Final[int]
    rowptr: Final[Tensor]
    col: Final[Tensor]
    perm: Final[Tensor | None]
    def work_items(self, edges_per_item: int) -> list[list[int]]: ...
    def transpose(self, wide_perm: bool, threads: int) -> Csr: ...

def csr_from_coo(
    *,
    row: int,
    col: int,
    row_stride: int,
    col_stride: int,
    edges: int,
    wide_index: bool,
    rows: int,
    cols: int,
    wide_perm: bool,
    threads: int,
    loops: int = 0,
) -> tuple[Csr | None, int, int]: ...
def csr_from_rows(
    rowptr: int, col: int, col_stride: int, wide_index: bool, rows: int, cols: int, threads: int
) -> tuple[Csr | None, int, int]: ...
def narrow_index(
    index: int, stride: int, count: int, wide_index: bool, rows: int, out: int, threads: int
) -> int: ...
def csr_from_index(index: int, count: int, rows: int, threads: int) -> Csr: ...

class IndexingKernels:
    @staticmethod
    def names() -> list[str]: ...
    @staticmethod
    def prepare(functions: list[Callable[..., Any]]) -> None: ...
    @staticmethod
    def install() -> None: ...
    @staticmethod
    def installed() -> list[str]: ...
    @staticmethod
    def remove() -> None: ...

class ProductKernels(IndexingKernels): ...
class SparseProductKernels(IndexingKernels): ...

class TorchScatterKernels:
    @staticmethod
    def names() -> list[str]: ...
    @staticmethod
    def prepare(functions: list[Callable[..., Any]]) -> None: ...
    @staticmethod
    def install(library: str) -> None: ...
    @staticmethod
    def installed() -> list[str]: ...
    @staticmethod
    def remove() -> None: ...

class TorchSparseKernels(TorchScatterKernels): ...

def load_torch(cpu: str, python: str) -> bool: ...
def find_kernels(trace: Callable[[], object], numbers: list[int]) -> bool: ...
def find_autograd_kernels(trace: Callable[[], object]) -> bool: ...
def learn_boxed(run: Callable[[], object], self: int, index: int) -> bool: ...
def learn_boxed_texts(run: Callable[[], object]) -> bool: ...
def learn_lists(run: Callable[[], object], index: int) -> bool: ...
def learn_scalars(run: Callable[[], object]) -> bool: ...
def learn_sizes(run: Callable[[], object]) -> bool: ...
def learn_texts(run: Callable[[], object]) -> bool: ...
def leave_to_torch(left: bool) -> bool: ...
def set_kernel_bounds(entries: int, numbers: int, work: int, sparse: int, sorted: int) -> None: ...
def widen_products(of_bfloat16: bool, of_float16: bool) -> None: ...
def holders(names: list[dict[str, object]], objects: list[object]) -> list[tuple[int, int, str]]: ...
def with_rows(csr: Csr, order: int, wide_perm: bool, threads: int) -> Csr: ...
def community_order(csr: Csr, order: int) -> None: ...

class MatchedGraph:
    rowptr: int
    col: int
    weight: int
    nodes: int

def match_neighbours(graph: MatchedGraph, order: int, cluster: int) -> bool: ...

# Sorted keys, integers: csrc/include/onehop/sorted_keys.hpp, integers.hpp.
class SortedKeys:
    count: Final[int]
    distinct: Final[int]
    def write_notes(self, note: int, threads: int) -> None: ...
    def write_groups(self, group: int, threads: int) -> None: ...
    def write_inverse(self, group: int, threads: int) -> None: ...
    def write_counts(self, count: int, threads: int) -> None: ...

class Integers:
    values: int
    count: int
    is_wide: bool

class IntegerLimits:
    ascends: Final[bool]
    span: Final[int]

def limits_of(integers: Integers, threads: int) -> IntegerLimits: ...

class SortedIntegers:
    def __init__(
        self, integers: Integers, limits: IntegerLimits, descending: bool, numbered: bool
    ) -> None: ...
    keys: Final[SortedKeys]
    def sort(self, threads: int) -> bool: ...
    def write_values(self, values: int, once: bool, threads: int) -> None: ...

class DistinctIntegers:
    def __init__(self, integers: Integers, limits: IntegerLimits, numbered: bool, threads: int) -> None: ...
    distinct: Final[int]
    def write_values(self, values: int, threads: int) -> None: ...
    def write_inverse(self, integers: Integers, inverse: int, threads: int) -> bool: ...

def count_numbers(numbers: int, count: int, groups: int, counts: int, threads: int) -> None: ...
def find_among(
    integers: Integers, others: Integers, limits: IntegerLimits, inverted: bool, found: int, threads: int
) -> bool: ...

# Functions of edges: csrc/include/onehop/edges.hpp.
class EdgeColumns:
    row: int
    col: int
    count: int
    is_wide: bool

class EdgeEnds:
    rows: Final[int]
    cols: Final[int]

def edge_ends(edges: EdgeColumns, threads: int) -> EdgeEnds: ...

class SortedEdges:
    def __init__(
        self, edges: EdgeColumns, ends: EdgeEnds, mirrored: bool, numbered: bool, threads: int
    ) -> None: ...
    keys: Final[SortedKeys]
    def write_ends(self, row: int, col: int, once: bool, threads: int) -> None: ...

def are_paired(edges: EdgeColumns, ends: EdgeEnds, threads: int) -> bool: ...
def mark_inner_edges(
    edges: EdgeColumns, node_mask: int, nodes: int, edge_mask: int, threads: int
) -> bool: ...
def mark_reached(
    edges: EdgeColumns, from_: int, nodes: int, reached: int, edge_mask: int, threads: int
) -> bool: ...
def mark_ends(edges: EdgeColumns, node_mask: int, nodes: int, threads: int) -> bool: ...
def write_marked(
    edges: EdgeColumns, edge_mask: int, mapping: int, nodes: int, row: int, col: int, threads: int
) -> bool: ...

# Neighbours of seeds: csrc/include/onehop/sampling.hpp.
class SampledRelation:
    rowptr: int
    col: int
    rows: int
    cols: int
    edges: int
    wide_col: bool
    src_type: int
    dst_type: int
    weight: int
    running: int
    edge_time: int
    src_time: int
    fan_out: list[int]

class Seeds:
    node: int
    count: int
    num_nodes: int
    time: int
    first_tree: int

class DrawOptions:
    key: int
    hops: int
    threads: int
    replace: bool
    disjoint: bool
    last: bool
    induced: bool

class Drawing:
    def __init__(self, types: int, relations: Sequence[SampledRelation]) -> None: ...
    def draw(self, seeds: Sequence[Seeds], options: DrawOptions) -> tuple[int, int, int]: ...
    def nodes(self, type: int) -> int: ...
    def edges(self, relation: int) -> int: ...
    def nodes_per_hop(self, type: int) -> list[int]: ...
    def edges_per_hop(self, relation: int) -> list[int]: ...
    def write_nodes(self, type: int, node: int, tree: int) -> None: ...
    def write_edges(self, relation: int, src: int, dst: int, edge: int, threads: int) -> None: ...
    def csr(self, relation: int) -> Csr: ...

# Searches among points: csrc/include/onehop/points.hpp.
class PointClouds:
    points: int
    bounds: int
    clouds: int
    dims: int

class WantedPoints:
    most: int
    squared: float
    omit_self: bool

class PointProducts:
    products: int
    norms_x: int
    norms_y: int
    cloud: int
    first: int
    rows: int
    error: float

class FoundPoints:
    pairs: Final[int]
    def write(self, rows: int, bounds: int, numbers: int, of: int, threads: int) -> None: ...

def search_trees(
    x: PointClouds, y: PointClouds, wanted: WantedPoints, found: FoundPoints, threads: int
) -> None: ...
def search_products(
    x: PointClouds,
    y: PointClouds,
    block: PointProducts,
    wanted: WantedPoints,
    found: FoundPoints,
    threads: int,
) -> None: ...
def farthest_points(x: PointClouds, starts: int, counts: int, picked: int, threads: int) -> None: ...

# Neighbours in cells that repeat: csrc/include/onehop/periodic.hpp.
class PeriodicAtoms:
    positions: int
    bounds: int
    cells: int
    periodic: int
    structures: int
    radius: float

class PeriodicRows:
    rowptr: int
    col: int
    shifts: int

class PeriodicOut:
    rowptr: int
    col: int
    shifts: int

class PeriodicSearch:
    wrong_structure: Final[int]
    def prepare(self, atoms: PeriodicAtoms, most_images: int, threads: int) -> int: ...
    def count(self, rowptr: int, most_edges: int, threads: int) -> int: ...
    def write(self, out: PeriodicOut, threads: int) -> None: ...

def count_nearer(atoms: PeriodicAtoms, rows: PeriodicRows, near: int, rowptr: int, threads: int) -> int: ...
def write_nearer(atoms: int, rows: PeriodicRows, near: int, out: PeriodicOut, threads: int) -> None: ...

# Pairs without an edge: csrc/include/onehop/negatives.hpp.
class EdgePairs:
    kind: int
    population: int
    rows: int
    cols: int
    loops: bool
    row: int
    col: int
    row_stride: int
    col_stride: int
    edges: int

class SampleCall:
    size: int
    pool: bool
    wanted: int
    state: int
    pairs: int

class PairTable:
    def __init__(self, edges: EdgePairs, room: int) -> None: ...
    def find(self, edges: EdgePairs, which: int, col: int, count: int, found: int) -> int: ...

def count_pairs(edges: EdgePairs) -> int: ...
def draw_pairs(edges: EdgePairs, sample: SampleCall) -> int: ...
def write_pairs(kind: EdgePairs, pairs: int, count: int, row: int, col: int) -> None: ...
def running_sums(rowptr: int, rows: int, weight: int, running: int, threads: int) -> None: ...

# Random walks: csrc/include/onehop/walks.hpp.
class WalkedGraph:
    rowptr: int
    col: int
    sorted: int
    running: int
    nodes: int
    edges: int
    narrow: bool

class WalkOptions:
    key: int
    length: int
    back: float
    out: float
    second: bool
    proposals: int

def walk(graph: WalkedGraph, options: WalkOptions, count: int, walks: int, threads: int) -> bool: ...

# Calls of kernels: enumerations by their numbers, addresses of operands; all fields begin at 0, "left out".
class _Call:
    def copy(self) -> Self: ...

class AggregateCall(_Call):
    reduce: int
    dtype: int
    threads: int
    prefetch: int
    edges_per_item: int
    column_tile: int
    register_block: int
    generated: int
    heads: int
    width: int
    x: int
    x_stride: int
    weight: int
    weight_stride: int
    weight_head_stride: int
    col_scale: int
    row_scale: int
    out: int
    out_stride: int
    ties: int
    out_is_acc: bool
    keeps_near: bool
    nontemporal: bool
    weight_in_graph_order: bool
    weight_adds: bool

class ExtremumGradCall(_Call):
    dtype: int
    threads: int
    prefetch: int
    edges_per_item: int
    width: int
    x: int
    x_stride: int
    extremum: int
    extremum_stride: int
    share: int
    weight: int
    weight_stride: int
    out: int
    extremum_is_acc: bool
    weight_adds: bool

class ArgExtremumCall(_Call):
    dtype: int
    threads: int
    prefetch: int
    edges_per_item: int
    heads: int
    width: int
    x: int
    x_stride: int
    weight: int
    weight_stride: int
    weight_head_stride: int
    out: int
    out_stride: int
    winner: int
    winner_stride: int
    minimum: bool
    last: bool

class ArgExtremumGradCall(_Call):
    dtype: int
    threads: int
    heads: int
    width: int
    grad: int
    grad_stride: int
    winner: int
    winner_stride: int
    x: int
    x_stride: int
    weight: int
    weight_stride: int
    weight_head_stride: int
    out: int
    out_stride: int
    out_head_stride: int

class SddmmCall(_Call):
    dtype: int
    threads: int
    prefetch: int
    edges_per_item: int
    heads: int
    width: int
    row_vectors: int
    row_stride: int
    row_head_stride: int
    col_vectors: int
    col_stride: int
    col_head_stride: int
    out: int
    out_stride: int
    out_is_acc: bool

class TensorProductCall(_Call):
    dtype: int
    threads: int
    edges_per_item: int
    paths: int
    path_count: int
    groups: int
    pairs: int
    pair_count: int
    term_columns: int
    term_factors: int
    x_width: int
    out_width: int
    harmonics_width: int
    weights_width: int
    x: int
    x_stride: int
    harmonics: int
    harmonics_stride: int
    weights: int
    weights_stride: int
    out: int
    grad: int
    grad_stride: int
    to_harmonics: int
    to_weights: int
    sums_weights: bool

class FusedmmCall(_Call):
    rule: int
    dtype: int
    threads: int
    prefetch: int
    edges_per_item: int
    width: int
    row_vectors: int
    row_stride: int
    col_vectors: int
    col_stride: int
    out: int
    factor: float

class EdgeSoftmaxCall(_Call):
    dtype: int
    threads: int
    edges_per_item: int
    heads: int
    scores: int
    grad: int
    out: int

class RowsCall(_Call):
    dtype: int
    threads: int
    prefetch: int
    nontemporal: bool
    index: int
    count: int
    row_bytes: int
    matrix: int
    stride: int
    blocks: int
    matrix_rows: int
    rows: int
    sources: int
    weights: int
    sources_rows: int
    wide_index: bool

class FewCall(_Call):
    dtype: int
    kind: int
    edges: int
    sources: int
    targets: int
    source_ends: int
    target_ends: int
    stride: int
    heads: int
    columns: int
    factor: float
    values: int
    weight: int
    of_source: int
    of_target: int
    att: int
    out: int
    alpha: int
    grad: int
    grad_values: int
    grad_weight: int
    grad_of_source: int
    grad_of_target: int
    grad_att: int

class DropoutCall(_Call):
    dtype: int
    threads: int
    count: int
    share: int
    bound: int
    x: int
    out: int
    kept: int
    state: int
    state_bytes: int
    nontemporal: bool
    scale: float

class AttentionCall(_Call):
    rule: int
    dtype: int
    threads: int
    prefetch: int
    edges_per_item: int
    heads: int
    key_width: int
    value_width: int
    value: int
    value_stride: int
    key: int
    key_stride: int
    query: int
    query_stride: int
    att: int
    edge: int
    edge_stride: int
    edge_width: int
    edge_weight: int
    mask: int
    seed: int
    out: int
    softmax: int
    weights: int
    grad: int
    grad_stride: int
    grad_weights: int
    weights_product: int
    statistics: int
    grad_query: int
    grad_att: int
    grad_edge: int
    grad_edge_weight: int
    grad_value: int
    grad_key: int
    weights_masked: bool
    factor: float
    dropout: float

def aggregate(call: AggregateCall, csr: Csr, /) -> None: ...
def extremum_grad_source(call: ExtremumGradCall, csr: Csr, /) -> None: ...
def extremum_grad_weight(call: ExtremumGradCall, csr: Csr, /) -> None: ...
def arg_extremum(call: ArgExtremumCall, csr: Csr, /) -> None: ...
def arg_extremum_grad_source(call: ArgExtremumGradCall, csr: Csr, /) -> None: ...
def arg_extremum_grad_weight(call: ArgExtremumGradCall, csr: Csr, /) -> None: ...
def sddmm(call: SddmmCall, csr: Csr, /) -> None: ...
def fusedmm(call: FusedmmCall, csr: Csr, /) -> None: ...
def tensor_product(call: TensorProductCall, csr: Csr, /) -> None: ...
def tensor_product_edges(call: TensorProductCall, csr: Csr, /) -> None: ...
def edge_softmax(call: EdgeSoftmaxCall, csr: Csr, /) -> None: ...
def edge_softmax_grad(call: EdgeSoftmaxCall, csr: Csr, /) -> None: ...
def attention(call: AttentionCall, csr: Csr, /) -> None: ...
def attention_weights(call: AttentionCall, csr: Csr, /) -> None: ...
def attention_grad_dst(call: AttentionCall, csr: Csr, /) -> None: ...
def attention_grad_src(call: AttentionCall, csr: Csr, /) -> None: ...
def draw_dropout(call: DropoutCall, /) -> bool: ...
def apply_dropout(call: DropoutCall, /) -> None: ...
def copy_rows(call: RowsCall, /) -> bool: ...
def request_rows(call: RowsCall, begin: int, count: int, /) -> None: ...
def add_rows(call: RowsCall, /) -> bool: ...
def few_edges(call: FewCall, /) -> bool: ...
def few_edges_grad(call: FewCall, /) -> bool: ...
def count_unlooped(numbers: int, row_stride: int, edge_stride: int, edges: int, /) -> int: ...
def write_loops(
    numbers: int,
    row_stride: int,
    edge_stride: int,
    edges: int,
    removes: bool,
    nodes: int,
    most: int,
    out: int,
    /,
) -> bool: ...
def few_norm(
    dtype: int,
    numbers: int,
    row_stride: int,
    edge_stride: int,
    edges: int,
    weight: int,
    nodes: int,
    loops: int,
    fill: float,
    counted: int,
    edge_index: int,
    count: int,
    degrees: int,
    out: int,
    /,
) -> bool: ...

class ChosenGraphs:
    numbers: int
    count: int

class GraphRows:
    values: int
    slices: int
    blocks: int
    rows: int
    row_bytes: int

def join_bounds(chosen: ChosenGraphs, slices: int, bounds: int, /) -> bool: ...
def join_rows(chosen: ChosenGraphs, all: GraphRows, bounds: int, added: int, out: int, /) -> bool: ...
def write_graphs(bounds: int, count: int, graphs: int, /) -> None: ...

class MaskedRows:
    mask: int
    rows: int
    blocks: int
    row_bytes: int
    taken: int
    threads: int

def count_true(masked: MaskedRows, /) -> int: ...
def take_masked(masked: MaskedRows, from_: int, to: int, /) -> bool: ...
def put_masked(masked: MaskedRows, from_: int, to: int, /) -> bool: ...
def kernel_templates() -> list[tuple[str, str]]: ...
def load_generated(path: str) -> tuple[int, str]: ...
def stream_read(address: int, bytes: int, threads: int) -> float: ...
def gather_rows(x: int, row_floats: int, index: int, count: int, prefetch: int, threads: int) -> float: ...
def available_isas() -> list[str]: ...
def sampled_fingerprint(data: int, bytes: int) -> int: ...
def meets_denormals(x: int, count: int) -> bool: ...
def flush_denormals(x: int, count: int, out: int, threads: int) -> None: ...
def select_isa(name: str) -> bool: ...
def selected_isa() -> str: ...
def vector_bytes() -> int: ...
def turn_rows(from_: int, rows: int, columns: int, entry_bytes: int, out: int) -> None: ...
def fingerprint(data: int, bytes: int, threads: int) -> int: ...
def bind_openmp(path: str) -> bool: ...
def openmp_bound() -> bool: ...
def in_forked_child() -> bool: ...
def pool_empty(shape: Sequence[int], dtype: int) -> Tensor: ...
def pool_clear() -> None: ...
def pool_set_limit(bytes: int) -> None: ...
def pool_info() -> dict[str, int]: ...
def keep_tensor_memory() -> bool: ...
def pause_keeping() -> None: ...
def is_from_pool(data: int) -> bool: ...
def trim_memory() -> None: ...
def resident_bytes() -> int: ...
def peak_resident_bytes() -> int: ...

class MessageCode:
    def __init__(
        self,
        operands: Sequence[tuple[int, int, int]],
        steps: Sequence[tuple[int, int, int, int, int, float, float]],
        results: Sequence[tuple[int, int, int, int, int]],
        tile: int,
        memory: int,
        slot_width: int,
        total_width: int,
        /,
    ) -> None: ...

def message(
    code: MessageCode,
    csr: Csr,
    dtype: int,
    threads: int,
    prefetch: int,
    edges_per_item: int,
    inputs: Sequence[tuple[int, int]],
    outputs: Sequence[tuple[int, int]],
    /,
) -> None: ...
