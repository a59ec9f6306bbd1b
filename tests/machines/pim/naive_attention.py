"""Time and bytes of attention, row by row and edge by edge in plain Python, from the machine's constants."""

import itertools
import math
from dataclasses import dataclass

from onehop import Graph
from onehop.machines.base import AttentionSize
from onehop.machines.pim import Machine, PimConfig, PimPlan
from onehop.machines.pim.memory import cut_rule
from onehop.machines.pim.scheme import layout
from tests.machines.pim import naive


@dataclass
class Expected:
    """What a report must say."""

    phases_ns: dict[str, float]
    bytes: dict[str, float]
    mram_bytes: int
    wram_bytes: int
    core_ns: list[float]


def line(points: tuple[tuple[float, float], ...], at: float) -> float:
    """A curve of straight pieces."""
    if at <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if at <= x1:
            return y0 + (y1 - y0) * (at - x0) / (x1 - x0)
    return points[-1][1]


def moved(points: tuple[tuple[float, float], ...], size: int) -> float:
    """Cycles of a row, in transfers of 2,048 bytes and one of what is left."""
    cycles = 0.0
    while size > 0:
        cycles += line(points, min(size, 2048))
        size -= 2048
    return cycles


def fill(size: int) -> int:
    return -(-size // 8) * 8


def full_multiply(config: PimConfig, dtype: str) -> float:
    return config.arithmetic[dtype].multiply_full


def run(machine: Machine, graph: Graph, plan: PimPlan, size: AttentionSize) -> Expected:
    config = machine.config
    core, links = config.core, config.links
    dtype, item = str(size.dtype).removeprefix("torch."), size.dtype.itemsize
    add, multiply = config.arithmetic[dtype].accumulate, full_multiply(config, dtype)
    f = config.functions[dtype]
    bounds = machine.shapes(graph).bounds(plan.sp, plan.column_cut).tolist()
    cut = naive.parts(graph, bounds)
    block = 2 * plan.reader_bytes
    byte_in = line(core.dma_read_cycles, block) / (block if plan.reader == "block" else block / 2)
    byte_out = line(core.dma_write_cycles, block) / block
    per_edge_numbers = int(size.edge_scores) + int(size.masked)

    units = size.heads * size.width if size.rule == "gat" else size.heads
    scale = 1 if size.rule == "gat" else size.width
    core_ns = [0.0] * config.cores
    held, own, back, slowest, sparse = ([0.0] * config.ranks for _ in range(5))
    useful = merged = merge_bytes = merge_ns = 0.0
    bank, work = 0, 0
    for cluster in layout(config, plan, units).clusters:
        if cluster.begin == cluster.end:
            continue
        columns = list(range(cluster.begin * scale, cluster.end * scale))
        w, h = len(columns), len({column // size.width for column in columns})
        key = 0 if size.rule == "gatv2" else h * size.key_width * item
        value, query, result = w * item, h * size.key_width * item, (w + 2 * h) * item
        sources = bounds[cluster.part + 1] - bounds[cluster.part]
        rule = cut_rule(plan, machine.kernel(plan, dtype, weighted=True), cluster.cores)
        cores = naive.cut(cut[cluster.part], rule)
        for number, (_, tasklets) in enumerate(cores):
            total_instructions = total_transfers = longest = 0.0
            for tasklet in tasklets:
                instructions = transfers = 0.0
                for _ in tasklet.rows:
                    # Bounds, clearing and the start of a write; a division a head; every column times it.
                    instructions += 2 * core.row_instructions + w * core.row_element_instructions
                    instructions += h * f.divide + w * multiply
                    transfers += 8 * byte_in
                    transfers += moved(core.dma_read_cycles, fill(query))
                    transfers += moved(core.dma_write_cycles, fill(result))
                for _ in tasklet.edges:
                    # First time: index, keys, scores, comparisons, scores to the bank.
                    instructions += core.edge_instructions
                    for _ in range(h):
                        if size.rule == "gat":
                            instructions += add + (add if size.edge_scores else 0) + f.compare + multiply
                        for _ in range(size.key_width if size.rule != "gat" else 0):
                            instructions += core.element_instructions + multiply + add
                            if size.rule == "gatv2":
                                instructions += add + f.compare
                        instructions += f.compare
                    transfers += 4 * byte_in + h * item * byte_out
                    transfers += h * item * per_edge_numbers * byte_in
                    transfers += moved(core.dma_read_cycles, fill(key) if key else fill(value))
                    # Second time: index, scores from the bank, values.
                    instructions += core.edge_instructions
                    instructions += h * (2 * add + f.exponential + (multiply if size.masked else 0))
                    instructions += w * (core.element_instructions + multiply + add)
                    transfers += 4 * byte_in + h * item * byte_in
                    transfers += moved(core.dma_read_cycles, fill(value))
                total_instructions += instructions
                total_transfers += transfers
                longest = max(longest, instructions * core.reissue_cycles + transfers)
            cycles = max(total_instructions, total_transfers, longest)
            core_ns[cluster.first_core + number] += cycles * 1e3 / core.clock_mhz
        rows = [len(piece.rows) for piece, _ in cores]
        edges = [len(piece.edges) for piece, _ in cores]
        extra = h * item * per_edge_numbers
        pointers, indices = -(-(max(rows) + 1) // 2) * 8, -(-max(edges) // 2) * 8
        for rank in range(cluster.rank, cluster.rank + cluster.ranks):
            mine = core_ns[cluster.first_core : cluster.first_core + cluster.cores]
            held[rank] = max(held[rank], sources * (fill(key) + fill(value)))
            own[rank] = max(own[rank], max(rows) * fill(query) + max(edges) * extra)
            back[rank] = max(back[rank], max(rows) * fill(result))
            sparse[rank] = max(sparse[rank], pointers + indices)
            slowest[rank] = max(slowest[rank], *mine)
        useful += sources * (key + value) * cluster.cores
        useful += sum(rows) * (query + result) + sum(edges) * extra
        bank = max(
            bank,
            max(rows) * (fill(query) + fill(result))
            + sources * (fill(key) + fill(value))
            + pointers
            + indices
            + max(edges) * (h * item + extra),
        )
        streams = 4 + per_edge_numbers
        each = fill(key) + fill(value) + fill(query) + fill(result) + streams * block + core.stack_bytes
        work = max(work, plan.tasklets * each)
        merged += sum(rows) * result
        merge_bytes += sum(rows) * (result + 2 * (-(-result // 64) * 64))
        merge_ns += sum(rows) * line(links.add_ns if cluster.part else links.copy_ns, result / 4)

    whole = list(config.rank_cores)
    delivered = sum(size_ * n for size_, n in zip(held, whole, strict=True))
    private = sum(size_ * n for size_, n in zip(own, whole, strict=True))
    retrieved = sum(size_ * n for size_, n in zip(back, whole, strict=True))
    is_broadcast = plan.sp * plan.ds <= config.ranks
    sent = 4 * (8 + 2 * plan.tasklets) * config.cores + private + (0 if is_broadcast else delivered)
    call = links.call_us * 1e3
    many = delivered if is_broadcast else 0
    return Expected(
        {
            "send": sent / push_gbps(config) + call,
            "broadcast": many / broadcast_gbps(config) + call if many else 0.0,
            "kernel": max(slowest) + call,
            "retrieve": retrieve_ns(config, back, plan) if retrieved else 0.0,
            "merge": max(merge_ns / plan.merge_threads, merge_bytes / links.host_dram_gbps),
        },
        {
            "send": sent,
            "broadcast": many,
            "retrieve": retrieved,
            "merge": merge_bytes,
            "padding": delivered + private + retrieved - useful,
            "matrix": sum(size * cores for size, cores in zip(sparse, config.rank_cores, strict=True)),
        },
        bank,
        work,
        core_ns,
    )


def power(points: tuple[tuple[float, float], ...], at: float) -> float:
    logs = tuple((math.log(x), math.log(y)) for x, y in points)
    return math.exp(line(logs, math.log(at)))


def push_gbps(config: PimConfig) -> float:
    links = config.links
    curve = ((1.0, links.core_push_gbps), (links.full_rank_cores, links.rank_push_gbps))
    return min(links.push_gbps, sum(power(curve, cores) for cores in config.rank_cores))


def broadcast_gbps(config: PimConfig) -> float:
    links = config.links
    full = links.broadcast_gbps[0][1]
    curve = ((1.0, links.core_push_gbps), (links.full_rank_cores, full))
    shares = [power(curve, cores) / full for cores in config.rank_cores]
    return power(links.broadcast_gbps, config.ranks) * sum(shares) / len(shares)


def retrieve_ns(config: PimConfig, blocks: list[float], plan: PimPlan) -> float:
    links = config.links
    curve = ((1.0, links.core_pull_gbps), (links.full_rank_cores, links.rank_pull_gbps))
    limit = sum(power(curve, cores) for cores in config.rank_cores)
    total = sum(block * cores for block, cores in zip(blocks, config.rank_cores, strict=True))
    time = sum(
        block * cores / min(line(links.pull_gbps, block / 1024), limit)
        for block, cores in zip(blocks, config.rank_cores, strict=True)
    )
    if plan.reuse_buffers:
        time = max(time - total / links.page_bytes * links.page_fault_ns, total / links.host_dram_gbps)
    return time + links.call_us * 1e3


def extremum_core_ns(
    machine: Machine, graph: Graph, plan: PimPlan, width: int, weighted: bool, adds: bool
) -> list[float]:
    """Busy time of every core for max of float32 in CSR, with weights of one."""
    config = machine.config
    core, costs = config.core, config.arithmetic["float32"]
    bounds = machine.shapes(graph).bounds(plan.sp, plan.column_cut).tolist()
    cut = naive.parts(graph, bounds)
    block = 2 * plan.reader_bytes
    byte_in = line(core.dma_read_cycles, block) / (block if plan.reader == "block" else block / 2)
    element = core.element_instructions + config.functions["float32"].compare
    if weighted:
        element += costs.accumulate if adds else costs.multiply_one
    found = [0.0] * config.cores
    for cluster in layout(config, plan, width).clusters:
        w = cluster.end - cluster.begin
        rule = cut_rule(plan, machine.kernel(plan, "float32"), cluster.cores)
        for number, (_, tasklets) in enumerate(naive.cut(cut[cluster.part], rule)):
            instructions, transfers = [], []
            for tasklet in tasklets:
                rows, edges = len(tasklet.rows), len(tasklet.edges)
                instructions.append(
                    edges * (core.edge_instructions + w * element)
                    + rows * (core.row_instructions + w * core.row_element_instructions)
                )
                transfers.append(
                    edges * (moved(core.dma_read_cycles, fill(4 * w)) + (8 if weighted else 4) * byte_in)
                    + rows * (moved(core.dma_write_cycles, fill(4 * w)) + 4 * byte_in)
                )
            alone = max(i * core.reissue_cycles + t for i, t in zip(instructions, transfers, strict=True))
            cycles = max(sum(instructions), sum(transfers), alone)
            found[cluster.first_core + number] += cycles * 1e3 / core.clock_mhz
    return found
