"""Sweeps of messages, written out as kernels in Triton.

A program takes some rows and goes over their edges, a few of each at a time. Every value of the sweep is a
tile [rows, edges, columns], whose last dimension is padded to a power of two. What is the same for all edges
of a row is loaded once.
"""

from onehop.kernels.triton import availability
from onehop.messages import End, Result, Sink, Step, Sweep
from onehop.plans.triton_default import power_of_two

_BY_ROW = (Sink.ROW_SUM, Sink.ROW_MAX, Sink.ROW_MIN)
_EXTREMA = (Sink.ROW_MAX, Sink.ROW_MIN)

# The fewest rows and columns that tensor cores multiply at a time.
_LEAST = 16
# The first release of triton that multiplies matrices in float64.
_MATRICES_OF_FLOAT64 = (3, 5)
# Numbers of a row: more would not fit in the registers.
_MOST_COLUMNS = 1024

_SIGMOID = "1 / (1 + tl.exp(-({0})))"
# What a step computes of its inputs {a} and {b} (or of a gradient {a} and a value {b}), p and q.
_EXPRESSIONS = {
    "add": "{a} + {b}",
    "subtract": "{a} - {b}",
    "multiply": "{a} * {b}",
    "divide": "{a} / {b}",
    "shift": "{a} + {p}",
    "scale": "{a} * {p}",
    "invert": "{p} / {a}",
    "negate": "-{a}",
    "absolute": "tl.abs({a})",
    "relu": "tl.where({a} < 0, 0.0, {a})",
    "leaky_relu": "tl.where({a} > 0, {a}, {a} * {p})",
    "sigmoid": _SIGMOID.format("{a}"),
    "tanh": "2 * " + _SIGMOID.format("2 * {a}") + " - 1",
    "softplus": "tl.where({a} * {p} > {q}, {a}, (tl.maximum({a} * {p}, 0.0) + "
    "tl.log(1 + tl.exp(-tl.abs({a} * {p})))) / {p})",
    "elu": "tl.where({a} > 0, {a}, {p} * (tl.exp(tl.where({a} > 0, 0.0, {a})) - 1))",
    "exp": "tl.exp({a})",
    "log": "tl.log({a})",
    "sqrt": "tl.sqrt({a})",
    "clamp": "tl.where({a} < {p}, {p}, tl.where({a} > {q}, {q}, {a}))",
    "absolute_grad": "tl.where({b} > 0, {a}, tl.where({b} < 0, -{a}, {a} * 0))",
    "relu_grad": "tl.where({b} <= 0, 0.0, {a})",
    "leaky_relu_grad": "tl.where({b} > 0, {a}, {a} * {p})",
    "sigmoid_grad": "{a} * (1 - {b}) * {b}",
    "tanh_grad": "{a} * (1 - {b} * {b})",
    "softplus_grad": "tl.where({b} * {p} > {q}, {a}, {a} * " + _SIGMOID.format("{b} * {p}") + ")",
    "elu_grad": "tl.where({b} > 0, {a}, {a} * {p} * tl.exp(tl.where({b} > 0, 0.0, {b})))",
    "clamp_grad": "tl.where(({b} >= {p}) & ({b} <= {q}), {a}, 0.0)",
    "equal": "tl.where({a} == {b}, 1.0, 0.0)",
}


def refusal(sweep: Sweep, float64: bool) -> str | None:
    """Return why a sweep over numbers of 32 bits, or of 64, has no form in Triton; None if it has."""
    widths = _widths(sweep)
    widest = max(
        widths[at] for at in range(len(widths)) if at >= len(sweep.operands) or not _is_matrix(sweep, at)
    )
    if widest > _MOST_COLUMNS:
        return f"it has rows of {widest} numbers, and registers hold {_MOST_COLUMNS}"
    for step in sweep.steps:
        inner = widths[step.inputs[0]]
        sizes = (inner, step.width, int(step.numbers[0]) or 1)
        if step.operation in ("spread", "collect", "largest") and any(n != power_of_two(n) for n in sizes):
            return f"its step {step.operation} has rows whose sizes are no powers of two"
        if step.operation == "product" and min(inner, step.width) < _LEAST:
            return f"its matrix of {inner} x {step.width} is smaller than what tensor cores multiply"
    for result in sweep.results:
        if result.sink is Sink.OUTER and min(widths[result.value], widths[result.other]) < _LEAST:
            return "an outer product in it is smaller than what tensor cores multiply"
    multiplies = any(step.operation == "product" for step in sweep.steps) or any(
        result.sink is Sink.OUTER for result in sweep.results
    )
    if float64 and multiplies and availability.installed() < _MATRICES_OF_FLOAT64:
        return f"triton {availability.version()} multiplies no matrices in float64"
    return None


def text_of(sweep: Sweep) -> str:
    """The source of a module with the kernel of a sweep, ``message_kernel``.

    Args:
        sweep: One without :func:`refusal`.
    """
    names = [f"o{at}" for at in range(len(sweep.operands))]
    outs = [f"r{at}" for at in range(len(sweep.results))]
    widths = _widths(sweep)
    results = list(zip(sweep.results, outs, strict=True))
    lines = [
        "import triton",
        "import triton.language as tl",
        "",
        "",
        "@triton.jit",
        f"def message_kernel(rowptr, col, perm, {', '.join([*names, *outs])}, num_rows,",
        "                   ROWS: tl.constexpr, EDGES: tl.constexpr, DTYPE: tl.constexpr):",
        "    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)",
        "    there = row < num_rows",
        "    begin = tl.load(rowptr + row, mask=there, other=0)",
        "    end = tl.load(rowptr + row + 1, mask=there, other=0)",
        "    longest = tl.max(end - begin, axis=0)",
        *(line for at in range(len(names)) for line in _outside(sweep, at)),
        *(line for result, name in results for line in _begin(result, name, widths)),
        "    for step in tl.range(0, longest, EDGES):",
        "        at = begin[:, None] + step + tl.arange(0, EDGES)[None, :]",
        "        live = at < end[:, None]",
        "        alive = live[:, :, None]",
        "        source = tl.load(col + at, mask=live, other=0).to(tl.int64)",
        "        number = at",
        "        if perm is not None:",
        "            number = tl.load(perm + at, mask=live, other=0).to(tl.int64)",
        *(line for at in range(len(names)) for line in _inside(sweep, at)),
        *(line for at, step in enumerate(sweep.steps) for line in _step(sweep, at, step, widths)),
        *(line for result, name in results for line in _give(result, name, widths)),
        *(line for result, name in results for line in _end(result, name, widths)),
    ]
    return "\n".join(lines) + "\n"


def _widths(sweep: Sweep) -> list[int]:
    return [*(operand.width for operand in sweep.operands), *(step.width for step in sweep.steps)]


def _is_matrix(sweep: Sweep, at: int) -> bool:
    return sweep.operands[at].end is End.MATRIX


def _of_rows(sweep: Sweep, end: End) -> bool:
    return end is (End.SOURCE if sweep.transposed else End.TARGET)


def _columns(width: int) -> str:
    return f"tl.arange(0, {power_of_two(width)})"


def _outside(sweep: Sweep, at: int) -> list[str]:
    """The lines that load what is loaded once: the program's own rows, and what is the same for all."""
    operand = sweep.operands[at]
    if operand.end is End.FIXED:
        columns = _columns(operand.width)
        loaded = f"tl.load(o{at} + {columns}, mask={columns} < {operand.width}, other=0)"
        return [f"    v{at} = {loaded}[None, None, :]"]
    if operand.end is End.MATRIX:
        taker = next(step for step in sweep.steps if step.operation == "product" and step.inputs[1] == at)
        height = operand.width // taker.width
        down, across = _columns(height), _columns(taker.width)
        return [
            f"    v{at} = tl.load(o{at} + {down}[:, None] * {taker.width} + {across}[None, :], "
            f"mask=({down} < {height})[:, None] & ({across} < {taker.width})[None, :], other=0)"
        ]
    if not _of_rows(sweep, operand.end):
        return []
    return [_loaded(sweep, at, "    ", "row[:, None]", "there[:, None]")]


def _inside(sweep: Sweep, at: int) -> list[str]:
    """The lines that load what each edge has."""
    end = sweep.operands[at].end
    if end in (End.FIXED, End.MATRIX) or _of_rows(sweep, end):
        return []
    which = "number" if end is End.EDGE else "source"
    return [_loaded(sweep, at, "        ", which, "live")]


def _loaded(sweep: Sweep, at: int, indent: str, which: str, mask: str) -> str:
    width = sweep.operands[at].width
    columns = _columns(width)
    return (
        f"{indent}v{at} = tl.load(o{at} + ({which})[:, :, None] * {width} + {columns}[None, None, :], "
        f"mask=({mask})[:, :, None] & ({columns} < {width})[None, None, :], other=0)"
    )


def _step(sweep: Sweep, number: int, step: Step, widths: list[int]) -> list[str]:
    out = f"        v{len(sweep.operands) + number}"
    a = step.inputs[0]
    block, inner = int(step.numbers[0]) or 1, widths[a]
    # A tile of what is the same for all edges has dimensions of 1, which a reshape would keep.
    whole = f"tl.broadcast_to(v{a}, [ROWS, EDGES, {power_of_two(inner)}])"
    if step.operation == "product":
        kept = f"tl.where(({_columns(inner)} < {inner})[None, None, :], {whole}, 0.0)"
        flat = f"tl.reshape({kept}, [ROWS * EDGES, {power_of_two(inner)}])"
        made = f'tl.dot({flat}, v{step.inputs[1]}, input_precision="ieee", out_dtype=DTYPE)'
        return [f"{out} = tl.reshape({made}, [ROWS, EDGES, {power_of_two(step.width)}])"]
    if step.operation == "spread":
        groups, times = inner // block, step.width // inner
        apart = f"tl.reshape({whole}, [ROWS, EDGES, {groups}, 1, {block}])"
        over = f"tl.broadcast_to({apart}, [ROWS, EDGES, {groups}, {times}, {block}])"
        return [f"{out} = tl.reshape({over}, [ROWS, EDGES, {step.width}])"]
    if step.operation in ("collect", "largest"):
        groups, count = step.width // block, inner // step.width
        apart = f"tl.reshape({whole}, [ROWS, EDGES, {groups}, {count}, {block}])"
        if step.operation == "collect":
            return [f"{out} = tl.reshape(tl.sum({apart}, axis=3), [ROWS, EDGES, {step.width}])"]
        largest = f"tl.max(tl.where({apart} == {apart}, {apart}, float('inf')), axis=3)"
        missing = f"tl.max(tl.where({apart} == {apart}, 0, 1), axis=3)"
        return [
            f"{out} = tl.where({missing} > 0, float('nan'), {largest})",
            f"{out} = tl.reshape({out.strip()}, [ROWS, EDGES, {step.width}])",
        ]
    b = step.inputs[-1]
    numbers = {name: _number(value) for name, value in zip("pq", step.numbers, strict=True)}
    return [f"{out} = {_EXPRESSIONS[step.operation].format(a=f'v{a}', b=f'v{b}', **numbers)}"]


def _number(value: float) -> str:
    return f"float('{value}')" if value in (float("inf"), float("-inf")) else repr(value)


def _shape(result: Result, widths: list[int]) -> str:
    """The shape of what a program adds up for a result."""
    if result.sink is Sink.OUTER:
        return f"[{power_of_two(widths[result.value])}, {power_of_two(widths[result.other])}]"
    if result.sink is Sink.TOTAL:
        return f"[{power_of_two(result.width)}]"
    return f"[ROWS, {power_of_two(result.width)}]"


def _begin(result: Result, name: str, widths: list[int]) -> list[str]:
    if result.sink is Sink.EDGE:
        return []
    first = {Sink.ROW_MAX: "-float('inf')", Sink.ROW_MIN: "float('inf')"}.get(result.sink, "0.0")
    lines = [f"    t{name} = tl.full({_shape(result, widths)}, {first}, DTYPE)"]
    if result.sink in _EXTREMA:
        lines.append(f"    n{name} = tl.zeros({_shape(result, widths)}, tl.int32)")
    return lines


def _give(result: Result, name: str, widths: list[int]) -> list[str]:
    """The lines that add up or store a value's tile."""
    width = power_of_two(widths[result.value])
    value = f"tl.broadcast_to(v{result.value}, [ROWS, EDGES, {width}])"
    if result.sink is Sink.EDGE:
        columns = _columns(result.width)
        place = f"{name} + number[:, :, None] * {result.width} + {columns}[None, None, :]"
        mask = f"alive & ({columns} < {result.width})[None, None, :]"
        return [f"        tl.store({place}, {value}, mask={mask})"]
    kept = f"tl.where(alive, {value}, 0.0)"
    if result.sink is Sink.ROW_SUM:
        return [f"        t{name} += tl.sum({kept}, axis=1)"]
    if result.sink is Sink.TOTAL:
        return [f"        t{name} += tl.sum(tl.reshape({kept}, [ROWS * EDGES, {width}]), axis=0)"]
    if result.sink is Sink.OUTER:
        across = power_of_two(widths[result.other])
        other = f"tl.where(alive, tl.broadcast_to(v{result.other}, [ROWS, EDGES, {across}]), 0.0)"
        left = f"tl.trans(tl.reshape({kept}, [ROWS * EDGES, {width}]))"
        right = f"tl.reshape({other}, [ROWS * EDGES, {across}])"
        return [f'        t{name} += tl.dot({left}, {right}, input_precision="ieee", out_dtype=DTYPE)']
    largest = result.sink is Sink.ROW_MAX
    fold, outer = ("tl.max", "tl.maximum") if largest else ("tl.min", "tl.minimum")
    least = "-float('inf')" if largest else "float('inf')"
    there = f"tl.where(alive & ({value} == {value}), {value}, {least})"
    return [
        f"        t{name} = {outer}(t{name}, {fold}({there}, axis=1))",
        f"        no_number = tl.where(alive & ({value} != {value}), 1, 0)",
        f"        n{name} = tl.maximum(n{name}, tl.max(no_number, axis=1))",
    ]


def _end(result: Result, name: str, widths: list[int]) -> list[str]:
    """The lines that store a result: for each row, or for each program, to be added up."""
    if result.sink is Sink.EDGE:
        return []
    if result.sink is Sink.OUTER:
        high, wide = widths[result.value], widths[result.other]
        down, across = _columns(high), _columns(wide)
        return [
            f"    place = tl.program_id(0) * {high * wide} + {down}[:, None] * {wide} + {across}[None, :]",
            f"    tl.store({name} + place, t{name}, "
            f"mask=({down} < {high})[:, None] & ({across} < {wide})[None, :])",
        ]
    columns = _columns(result.width)
    if result.sink is Sink.TOTAL:
        place = f"{name} + tl.program_id(0) * {result.width} + {columns}"
        return [f"    tl.store({place}, t{name}, mask={columns} < {result.width})"]
    lines = []
    if result.sink in _EXTREMA:
        lines = [
            f"    t{name} = tl.where(n{name} > 0, float('nan'), t{name})",
            f"    t{name} = tl.where((end > begin)[:, None], t{name}, 0.0)",
        ]
    return [
        *lines,
        f"    tl.store({name} + row[:, None].to(tl.int64) * {result.width} + {columns}[None, :], t{name}, "
        f"mask=there[:, None] & ({columns} < {result.width})[None, :])",
    ]


def is_by_row(sink: Sink) -> bool:
    """Return whether a result has a row for each of the graph's."""
    return sink in _BY_ROW
