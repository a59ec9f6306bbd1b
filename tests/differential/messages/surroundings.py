"""Messages that read or write chance, streams, files, buffers, modules with a state, and caches."""

from tests.differential.messages.code import Code, Sort

# A number between 0 and 1, from somewhere.
CHANCE = {
    "random": "random.random()",
    "random.choice": "random.choice([0.2, 0.4, 0.9])",
    "random.gauss": "abs(random.gauss(0, 1))",
    "random.shuffle": Code(
        value="ORDER_$k[0]", top="ORDER_$k = [0.1, 0.5, 0.7]", body="random.shuffle(ORDER_$k)"
    ),
    "numpy": "np.random.rand()",
    "numpy.randint": "np.random.randint(0, 10) / 10",
    "numpy's generator": Code(value="float(RNG_$k.random())", top="RNG_$k = np.random.default_rng(0)"),
    "Random": Code(value="RNG_$k.random()", top="RNG_$k = random.Random(0)"),
    "Random of the layer": Code(value="self.rng_$k.random()", init="self.rng_$k = random.Random(0)"),
    "torch.rand": "torch.rand(()).item()",
    "torch.rand tensor": "torch.rand((), dtype=out.dtype)",
    "torch.randint": "torch.randint(0, 10, ()).item() / 10",
    "torch.bernoulli": "float(torch.bernoulli(torch.tensor(0.5)))",
    "rand_like": "torch.rand_like(out)",
    "randn": "torch.randn(1, out.size(-1), dtype=out.dtype).abs()",
    "uniform_": "torch.empty(1, dtype=out.dtype).uniform_()",
    "own generator": Code(
        value="torch.rand((), generator=GEN_$k).item()", top="GEN_$k = torch.Generator().manual_seed(0)"
    ),
    "own generator, a row an edge": Code(
        value="torch.rand(out.size(0), 1, generator=self.gen_$k, dtype=out.dtype)",
        init="self.gen_$k = torch.Generator().manual_seed(0)",
    ),
    "seeded within": Code(value="torch.rand(()).item()", body="torch.manual_seed(3)"),
    "random seeded within": Code(value="random.random()", body="random.seed(3)"),
    "numpy seeded within": Code(value="np.random.rand()", body="np.random.seed(3)"),
    "state set": Code(value="0.3", body="torch.set_rng_state(torch.get_rng_state())\ntorch.rand(2)"),
    "drawn and thrown away": Code(value="0.3", body="torch.rand(3)"),
    "drawn if few": Code(
        value="0.3", body="if random.random() < 0.5:\n    torch.rand(1)"
    ),
    "multinomial": "float(torch.multinomial(torch.ones(4), 1)) / 4",
    "randperm": "torch.randperm(out.size(-1)).to(out.dtype) / out.size(-1)",
    "forked": Code(
        value="chance_$k", body="with torch.random.fork_rng([]):\n    chance_$k = torch.rand(()).item()"
    ),
    "initial seed": "(torch.initial_seed() % 10) / 10",
}  # fmt: skip

DRAWN = {
    "factor": Code(body="out = out * $chance"),
    "stochastic depth": Code(body="chance_$k = $chance\nout = out * (0 if float(torch.as_tensor(chance_$k).mean()) < 0.5 else 1)"),
    "training alone": Code(body="if self.training:\n    out = out * $chance"),
    "noise": Code(body="out = out + $chance * 0.1"),
}  # fmt: skip

# What the world outside of Python's objects sees, or tells.
OUTSIDE = {
    "print": Code(body='print("called", out.dim())'),
    "print with size": Code(body='print(f"{out.size(0)} edges")'),
    "stdout": Code(body='sys.stdout.write("called\\n")'),
    "stderr": Code(body='print("called", file=sys.stderr)'),
    "logging": Code(body='logging.getLogger("own").warning("called")'),
    "logging of a size": Code(body='logging.getLogger("own").info("%d edges", out.size(0))'),
    "logging, once": Code(
        top="@functools.cache\ndef once_$k(text):\n    logging.getLogger(\"own\").info(text)\n",
        body='once_$k("called")',
    ),
    "warning": Code(body='warnings.warn("own warning")'),
    "warning if many": Code(body='if out.size(0) > 1000:\n    warnings.warn("own warning: many", stacklevel=2)'),
    "deprecation": Code(body='warnings.warn("own warning", DeprecationWarning)'),
    "filter": Code(body='warnings.filterwarnings("ignore", message="own nothing")'),
    "file": Code(body='with open("own_$k.txt", "a") as file:\n    file.write("called\\n")'),
    "Path": Code(
        body='path_$k = pathlib.Path("own_$k.txt")\n'
        'path_$k.write_text((path_$k.read_text() if path_$k.exists() else "") + "x")'
    ),
    "open file": Code(
        top='FILE_$k = open("own_$k.txt", "w", buffering=1)', body='FILE_$k.write("called\\n")'
    ),
    "StringIO": Code(top="TEXT_$k = io.StringIO()", body='TEXT_$k.write("called")'),
    "torch.save": Code(body='torch.save(out.shape[1], "own_$k.pt")'),
    "numpy.save": Code(body='np.save("own_$k.npy", np.ones(1))'),
    "folder": Code(body='os.makedirs(f"own_${k}_{len(os.listdir())}", exist_ok=True)'),
    "time": Code(top="TIMES_$k = []", body="TIMES_$k.append(time.time() > 0)"),
    "time.sleep": Code(top="TIMES_$k = []", body="time.sleep(0)\nTIMES_$k.append(1)"),
    "clock": Code(init="self.count_$k = 0", body="if time.perf_counter() > 0:\n    self.count_$k += 1"),
    "thread": Code(
        top="DONE_$k = []",
        body="thread_$k = threading.Thread(target=DONE_$k.append, args=(1,))\nthread_$k.start()\nthread_$k.join()",
    ),
    "queue": Code(top="QUEUE_$k = collections.deque([1, 2, 3, 4, 5, 6, 7, 8])", body="out = out * QUEUE_$k.popleft()"),
    "excepthook": Code(
        top="def audit_$k():\n    LOG_$k.append(sys._getframe(1).f_code.co_name)\n\n\nLOG_$k = []",
        body="audit_$k()",
    ),
    "stack": Code(top="LOG_$k = []", body="LOG_$k.append(traceback.extract_stack(limit=1)[0].name)"),
    "weakref": Code(
        top="GONE_$k = []", body="note_$k = torch.zeros(1)\nweakref.finalize(note_$k, GONE_$k.append, 1)\ndel note_$k"
    ),
    "gc": Code(top="GONE_$k = []", body="GONE_$k.append(gc.isenabled())"),
    "default dtype": Code(body="torch.set_default_dtype(torch.get_default_dtype())\nMODES.append(torch.get_default_dtype())", top="MODES = []"),
    "import": Code(body="import colorsys\n\nout = out * colorsys.ONE_THIRD"),
    "locals": Code(top="LOG_$k = []", body="LOG_$k.append(sorted(locals())[:1])"),
}  # fmt: skip

_STEPS = 'self.register_buffer("steps_$k", torch.zeros(1, dtype=torch.float64))'

# Writes to a buffer, by which the message is multiplied.
WRITES = {
    "add_": "self.steps_$k.add_(1)",
    "+=": "self.steps_$k += 1",
    "assigned": "self.steps_$k = self.steps_$k + 1",
    "out=": "torch.add(self.steps_$k, 1, out=self.steps_$k)",
    "out= of another": "torch.mul(self.steps_$k + 1, 1, out=self.steps_$k)",
    "_foreach_add_": "torch._foreach_add_([self.steps_$k], 1)",
    "copy_": "self.steps_$k.copy_(self.steps_$k + 1)",
    ".data =": "self.steps_$k.data = self.steps_$k.data + 1",
    ".data.add_": "self.steps_$k.data.add_(1)",
    "numpy": "self.steps_$k.numpy()[:] += 1",
    "item": "self.steps_$k[0] = self.steps_$k[0] + 1",
    "slice": "self.steps_$k[:] = self.steps_$k + 1",
    "mask": "self.steps_$k[self.steps_$k >= 0] += 1",
    "view": "self.steps_$k.view(-1).add_(1)",
    "detached": "self.steps_$k.detach().add_(1)",
    "fill_": "self.steps_$k.fill_(float(self.steps_$k) + 1)",
    "index_add_": "self.steps_$k.index_add_(0, torch.tensor([0]), torch.ones(1, dtype=torch.float64))",
    "scatter_": "self.steps_$k.scatter_(0, torch.tensor([0]), self.steps_$k + 1)",
    "lerp_": "self.steps_$k.lerp_(torch.ones(1, dtype=torch.float64), 0.5)",
    "set_": "self.steps_$k.set_(self.steps_$k + 1)",
    "swap": "torch.utils.swap_tensors(self.steps_$k, self.steps_$k + 1)",
    "iadd": "operator.iadd(self.steps_$k, 1)",
    "_buffers": 'self._buffers["steps_$k"] = self._buffers["steps_$k"] + 1',
    "no_grad": "with torch.no_grad():\n    self.steps_$k.add_(1)",
    "of the edges": "self.steps_$k.add_(out.detach().mean().double())",
    "moving mean": "self.steps_$k.mul_(0.9).add_(0.1 * out.detach().double().mean())",
    "moving mean, assigned": "self.steps_$k = 0.9 * self.steps_$k + 0.1 * out.detach().double().mean()",
    "in training": "if self.training:\n    self.steps_$k.add_(1)",
    "relu_": "self.steps_$k.sub_(1).relu_().add_(2)",
    "requires_grad_": "self.steps_$k.add_(1).requires_grad_(False)",
    "resize_": "self.steps_$k.resize_(self.steps_$k.numel() + 1).fill_(1)",
    "addcmul_": "self.steps_$k.addcmul_(self.steps_$k + 1, torch.ones(1, dtype=torch.float64))",
    "cumsum_": "self.steps_$k.add_(1).cumsum_(0)",
    "map": "list(map(lambda each: each.add_(1), [self.steps_$k]))",
    "memoryview": "memoryview(self.steps_$k.numpy())[0] += 1",
    "dlpack": "torch.from_dlpack(self.steps_$k).add_(1)",
    "numpy ufunc": "np.add(self.steps_$k.numpy(), 1, out=self.steps_$k.numpy())",
    "load_state_dict": 'self.load_state_dict({"steps_$k": self.steps_$k + 1}, strict=False)',
    "buffers()": "next(iter(self.buffers())).add_(1)",
}  # fmt: skip

# Writes to what the message is given, or to a parameter.
OPERANDS = {
    "x_j in place": "x_j.data.mul_(2)\nout = out + x_j",
    "x_j relu_": "out = out + x_j.detach().relu_()",
    "x_j by mul_": "with torch.no_grad():\n    x_j.mul_(0.5)\nout = out * 1.0",
    "x_j sliced": "with torch.no_grad():\n    x_j[:, 0] = 0\nout = out + x_j",
    "x_j numpy": "x_j.detach().numpy()[:] = 1\nout = out + x_j",
    "weight attribute": "self.scale_$k.data.mul_(1.5)\nout = out * self.scale_$k",
    "weight in place": "with torch.no_grad():\n    self.scale_$k.add_(0.5)\nout = out * self.scale_$k",
    "weight replaced": "self.scale_$k = torch.nn.Parameter(self.scale_$k.detach() + 1)\nout = out * self.scale_$k",
    "weight's gradient": "self.scale_$k.grad = torch.ones_like(self.scale_$k)\nout = out * self.scale_$k",
    "weight frozen": "self.scale_$k.requires_grad_(False)\nout = out * self.scale_$k",
    # Not of the index: the patch's gathers do not report a write to it before the backward pass.
    "out in place": "out = out.clone()\nout.mul_(2)\nout[:, 0] = 1",
    "masked assignment": "out = out.clone()\nout[out < 0] = 0",
    "every second edge": "out = out.clone()\nout[::2] = 0",
    "retain_grad": "if out.requires_grad and not out.is_leaf:\n    out.retain_grad()\nself.kept_$k = out",
    "requires_grad_": "extra_$k = torch.ones(1, dtype=out.dtype).requires_grad_()\nself.kept_$k = extra_$k\nout = out * extra_$k",
}  # fmt: skip

_TOUCHED = "self.scale_$k = torch.nn.Parameter(torch.ones(1))"

# Modules whose call changes them, or depends on more than what they are given.
MODULES = {
    "spectral_norm": "torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(WIDTH, WIDTH))",
    "old spectral_norm": "torch.nn.utils.spectral_norm(torch.nn.Linear(WIDTH, WIDTH))",
    "weight_norm": "torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(WIDTH, WIDTH))",
    "BatchNorm1d": "torch.nn.BatchNorm1d(WIDTH)",
    "BatchNorm without statistics": "torch.nn.BatchNorm1d(WIDTH, track_running_stats=False)",
    "InstanceNorm": "torch.nn.Sequential(torch.nn.Unflatten(1, (1, WIDTH)), torch.nn.InstanceNorm1d(1), torch.nn.Flatten())",
    "LayerNorm": "torch.nn.LayerNorm(WIDTH)",
    "Dropout": "torch.nn.Dropout(0.4)",
    "Dropout in place": "torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Dropout(0.4, inplace=True))",
    "AlphaDropout": "torch.nn.AlphaDropout(0.4)",
    "RReLU": "torch.nn.RReLU()",
    "RReLU in Sequential": "torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.RReLU())",
    "PReLU": "torch.nn.PReLU()",
    "LazyLinear": "torch.nn.LazyLinear(WIDTH)",
    "LazyBatchNorm": "torch.nn.LazyBatchNorm1d()",
    "GRUCell": "torch.nn.GRUCell(WIDTH, WIDTH)",
    "counting": "Counting_$k()",
    "hooked": "hooked_$k(torch.nn.Linear(WIDTH, WIDTH))",
    "hooked, backward": "hooked_back_$k(torch.nn.Linear(WIDTH, WIDTH))",
    "own forward": "replaced_$k(torch.nn.Linear(WIDTH, WIDTH))",
    "subclass": "Scaled_$k(WIDTH, WIDTH)",
    "PyG's dropout": "torch_geometric.nn.MLP([WIDTH, WIDTH, WIDTH], dropout=0.5)",
    "PyG's MLP": "torch_geometric.nn.MLP([WIDTH, WIDTH], norm=None)",
    "GraphNorm": "torch_geometric.nn.GraphNorm(WIDTH)",
    "cached product": "Remembering_$k()",
}  # fmt: skip

_MODULES_TOP = """LOG_$k = []


class Counting_$k(torch.nn.Module):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return x * self.calls


class Remembering_$k(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = {}

    def forward(self, x):
        if x.shape not in self.memory:
            self.memory[x.shape] = x.detach().mean()
        return x * self.memory[x.shape]


class Scaled_$k(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x) * (2 if len(x) > 1000 else 1)


def hooked_$k(module):
    module.register_forward_hook(lambda module, given, out: LOG_$k.append(1) or out * 2)
    return module


def hooked_back_$k(module):
    module.register_full_backward_hook(lambda module, before, after: LOG_$k.append(len(after)))
    return module


def replaced_$k(module):
    module.forward = lambda x: x * (2 if torch.is_grad_enabled() else 3)
    return module
"""

CACHES = {
    "memo by shape": Code(
        top="MEMO_$k = {}",
        body="if x_j.shape not in MEMO_$k:\n    MEMO_$k[x_j.shape] = len(MEMO_$k) + 1.0\nout = out * MEMO_$k[x_j.shape]",
    ),
    "memo of the layer": Code(
        init="self.memo_$k = None",
        body="if self.memo_$k is None:\n    self.memo_$k = out.detach().abs().mean()\nout = out / self.memo_$k",
    ),
    "memo of a size": Code(
        init="self.memo_$k = None",
        body="if self.memo_$k is None:\n    self.memo_$k = out.size(0)\nout = out * (self.memo_$k * 1e-3)",
    ),
    "memo of a constant": Code(
        init="self.memo_$k = None",
        body="if self.memo_$k is None:\n    self.memo_$k = torch.ones(out.size(-1), dtype=out.dtype) * 2\nout = out * self.memo_$k",
    ),
    "lru_cache by size": Code(
        top="@functools.lru_cache(maxsize=2)\ndef scale_$k(n):\n    CALLS_$k.append(n)\n    return 1 / n\n\n\nCALLS_$k = []",
        body="out = out * scale_$k(out.size(0))",
    ),
    "lru_cache by width": Code(
        top="@functools.lru_cache\ndef scale_$k(n):\n    CALLS_$k.append(n)\n    return 1 / n\n\n\nCALLS_$k = []",
        body="out = out * scale_$k(out.size(-1))",
    ),
    "cached_property": Code(
        top="CALLS_$k = []",
        members="@functools.cached_property\ndef scale_$k(self):\n    CALLS_$k.append(1)\n    return 0.5\n",
        body="out = out * self.scale_$k",
    ),
    "last message": Code(
        init="self.last_$k = None",
        body="previous_$k = self.last_$k\nself.last_$k = out.detach()\n"
        "if previous_$k is not None and previous_$k.shape == out.shape:\n    out = out + previous_$k",
    ),
    "last operand": Code(
        init="self.last_$k = None", body="self.last_$k = x_j"
    ),
    "last of the class": Code(members="last_$k = None\n", body="type(self).last_$k = out.detach()[:1]"),
    "last, by weakref": Code(
        init="self.last_$k = None", body="self.last_$k = weakref.ref(out)() is not None"
    ),
    "attention kept": Code(
        init="self._alpha_$k = None",
        body="self._alpha_$k = torch.sigmoid(out.detach().mean(-1, keepdim=True))\nout = out * self._alpha_$k",
    ),
    "same object as before": Code(
        init="self.before_$k = None",
        body="if self.before_$k is index:\n    out = out * 2\nself.before_$k = index",
    ),
}  # fmt: skip


def _written(statement: str) -> Code:
    return Code(init=_STEPS, body=f"{statement}\nout = out * self.steps_$k.to(out.dtype)[:1]")


SORTS = {
    "chance": Sort("B2", {"chance": CHANCE, "drawn": DRAWN}, share=1.5),
    "outside": Sort("B2", {"outside": OUTSIDE}),
    "write": Sort("B2", {"write": {name: _written(text) for name, text in WRITES.items()}}, share=1.5),
    "operand": Sort(
        "B2", {"operand": {name: Code(init=_TOUCHED, body=text) for name, text in OPERANDS.items()}}
    ),
    "module": Sort(
        "B2",
        {
            "module": {
                name: Code(
                    top=_MODULES_TOP if "_$k" in text else "",
                    init=f"self.module_$k = {text}",
                    body="out = self.module_$k(out)",
                )
                for name, text in MODULES.items()
            }
        },
    ),
    "cache": Sort("B2", {"cache": CACHES}),
}
