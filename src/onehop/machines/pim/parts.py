"""The parts of a near-bank machine and their constants, each with its unit; presets.py names the sources."""

from dataclasses import dataclass

# Points of a curve: (position, value), ascending.
Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Instruction counts of one core for numbers of one type.

    A multiply by a number of ``bits`` significant bits takes ``multiply_one + (multiply_full - multiply_one)
    * (bits - 1) / (significant_bits - 1)`` instructions: the routine works bit by bit and exits early once
    the smaller operand has no bits left.

    Attributes:
        accumulate: Instructions of ``sum += value`` in a loop: loads, add, store, loop.
        multiply_one: Additional instructions of a multiply by one.
        multiply_full: Additional instructions of a multiply by a number that uses all its bits.
        significant_bits: Number of significant bits of such a number.
    """

    accumulate: float
    multiply_one: float
    multiply_full: float
    significant_bits: int


@dataclass(frozen=True, slots=True)
class Functions:
    """Instruction counts of one core for functions of floating-point numbers of one type.

    Attributes:
        compare: Instructions of ``largest = max(largest, value)`` in a loop: loads, compare, store, loop.
        exponential: Instructions of one exponential.
        divide: Instructions of one division.
    """

    compare: float
    exponential: float
    divide: float


@dataclass(frozen=True, slots=True)
class Core:
    """One core and its bank.

    Attributes:
        clock_mhz: Clock in MHz.
        threads: Number of hardware threads.
        reissue_cycles: Cycles after which a thread may issue again; with at least this many busy threads, the
            core issues one instruction every cycle.
        mram_bytes: Size of the core's bank.
        wram_bytes: Size of the core's working memory.
        iram_bytes: Size of the core's instruction memory.
        stack_bytes: Stack size of each thread, in working memory.
        edge_instructions: Instructions per edge in addition to the arithmetic: reading index and value,
            starting a transfer.
        coo_edge_instructions: Instructions per edge in COO to read its row and compare it with the row
            before.
        element_instructions: Instructions per element of an edge in addition to the arithmetic: addresses and
            loop.
        row_instructions: Instructions per row: bounds, starting the write.
        row_element_instructions: Instructions per element of a row: clearing the sums.
        dma_read_cycles: Cycles of a transfer from the bank by its bytes; linear between the points.
        dma_write_cycles: Cycles of a transfer to the bank by its bytes; linear between the points.
        dma_most_bytes: Size of the largest transfer.
        alignment_bytes: The address and the size of every transfer are multiples of this number.
    """

    clock_mhz: float = 350.0
    threads: int = 24
    reissue_cycles: int = 11
    mram_bytes: int = 64 << 20
    wram_bytes: int = 64 << 10
    iram_bytes: int = 24 << 10
    stack_bytes: int = 1024
    edge_instructions: float = 35.2
    coo_edge_instructions: float = 6.0
    element_instructions: float = 8.44
    row_instructions: float = 30.0
    row_element_instructions: float = 1.0
    dma_read_cycles: Points = ((8, 81.0), (2048, 1101.0))
    dma_write_cycles: Points = ((8, 65.0), (2048, 1085.0))
    dma_most_bytes: int = 2048
    alignment_bytes: int = 8


@dataclass(frozen=True, slots=True)
class Links:
    """Rates of transfers between the host and the cores, and the host's own rates.

    A transfer runs at the smaller of two rates: what the cores of all ranks accept, and what the host
    delivers.

    Attributes:
        broadcast_gbps: Rate, counted at the receivers, when all cores of a rank get the same data, by the
            number of ranks; between two points, it grows as a power of this number.
        push_gbps: Rate of the host when each core gets different data.
        pull_gbps: Rate at which the host receives, by kilobytes of each core's block.
        core_push_gbps: Rate at which one core alone receives.
        core_pull_gbps: Rate at which one core alone sends.
        rank_push_gbps: Rate at which one full rank receives.
        rank_pull_gbps: Rate at which one full rank sends.
        full_rank_cores: Number of cores from which on a rank is full. From one core to a full rank, rates
            grow as a power of the number of cores, as measured transfers do: a rank of 64 cores receives six
            times as fast as one core, not 64 times.
        call_us: Latency of a transfer or a launch.
        copy_ns: Time of merging a row's slice of the first part, by its number of 4-byte values.
        add_ns: Time of merging a row's slice of a further part, by its number of 4-byte values.
        host_dram_gbps: Bandwidth of the host's memory, which limits merging with any number of threads.
        host_line_bytes: Size of the host's cache line: the minimum that a narrow slice moves.
        page_bytes: Size of the host's memory page.
        page_fault_ns: Time of the first touch of a page; reused result buffers save this time.
        core_to_core_gbps: Rate between cores, without the host; 0 means that there is no direct link. With a
            link, clusters that share a feature part add up their partial results themselves.
    """

    broadcast_gbps: Points = ((1, 16.88), (32, 43.73))
    push_gbps: float = 8.9
    pull_gbps: Points = ((64, 5.33), (480, 5.33))
    core_push_gbps: float = 0.683
    core_pull_gbps: float = 0.171
    rank_push_gbps: float = 3.98
    rank_pull_gbps: float = 1.58
    full_rank_cores: int = 62
    call_us: float = 30.0
    copy_ns: Points = ((1, 29.94), (512, 1123.48))
    add_ns: Points = ((1, 21.66), (512, 716.62))
    host_dram_gbps: float = 23.1
    host_line_bytes: int = 64
    page_bytes: int = 4096
    page_fault_ns: float = 250.0
    core_to_core_gbps: float = 0.0


@dataclass(frozen=True, slots=True)
class Power:
    """Power by consumer, in watts.

    Attributes:
        core_w: Power of a core while its kernel runs.
        rank_w: Constant power of a rank without its cores.
        host_w: Power of the host while it sends, receives, merges or combines.
        host_idle_w: Power of the host while it waits for kernels.
    """

    core_w: float = 0.15
    rank_w: float = 2.01
    host_w: float = 70.0
    host_idle_w: float = 0.0


@dataclass(frozen=True, slots=True)
class Host:
    """The host's rates for the combination: dense products, and steps that read and write whole matrices.

    Attributes:
        product_gflops: 10^9 multiplications and additions per second of dense float32 products.
        stream_gbps: 10^9 bytes per second of steps that read or write a matrix once, such as activation,
            normalisation and quantising.
    """

    product_gflops: float = 500.0
    stream_gbps: float = 23.1
