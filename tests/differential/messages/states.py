"""Messages that read what changes between two calls, or between a call and its backward pass."""

from tests.differential.messages.code import Code, Sort

# A number or a tensor, and how it changes.
SOURCES = {
    "global": Code(value="V_$k", top="V_$k = 2.0", change="global V_$k\nV_$k += 1.5"),
    "global list": Code(value="V_$k[0]", top="V_$k = [2.0]", change="V_$k[0] += 1.5"),
    "global list, appended": Code(value="sum(V_$k)", top="V_$k = [2.0]", change="V_$k.append(1.5)"),
    "length of a list": Code(value="len(V_$k)", top="V_$k = [2.0]", change="V_$k.append(1.5)"),
    "global dict": Code(value='V_$k["v"]', top='V_$k = {"v": 2.0}', change='V_$k["v"] += 1.5'),
    "global dict, popped": Code(
        value='V_$k.get("v", 1.0)', top='V_$k = {"v": 2.0}', change='V_$k.pop("v", None)'
    ),
    "global set": Code(value="(2.0 if 1 in V_$k else 3.0)", top="V_$k = {1}", change="V_$k.discard(1)"),
    "nested": Code(value='V_$k["a"][0][1]', top='V_$k = {"a": [[0, 2.0]]}', change='V_$k["a"][0][1] += 1.5'),
    "global tensor": Code(value="V_$k", top="V_$k = torch.tensor(2.0)", change="global V_$k\nV_$k = V_$k + 1"),
    "global tensor in place": Code(value="V_$k", top="V_$k = torch.tensor(2.0)", change="V_$k.add_(1)"),
    "global array": Code(value="float(V_$k[0])", top="V_$k = np.full(2, 2.0)", change="V_$k[:] += 1"),
    "array under a tensor": Code(
        value="T_$k[:1].to(out.dtype)",
        top="V_$k = np.full(2, 2.0)\nT_$k = torch.from_numpy(V_$k)",
        change="V_$k[:] += 1",
    ),
    "closure": Code(
        value="closed_$k()",
        top="def closing_$k():\n    v = 2.0\n\n    def more():\n        nonlocal v\n        v += 1.5\n\n"
        "    return (lambda: v), more\n\n\nclosed_$k, more_$k = closing_$k()",
        change="more_$k()",
    ),
    "default": Code(
        value="read_$k()", top="def read_$k(v=2.0):\n    return v\n", change="read_$k.__defaults__ = (3.5,)"
    ),
    "keyword default": Code(
        value="read_$k()",
        top="def read_$k(*, v=2.0):\n    return v\n",
        change='read_$k.__kwdefaults__["v"] += 1.5',
    ),
    "function": Code(
        value="read_$k()", top="def read_$k():\n    return 2.0\n", change="global read_$k\nread_$k = lambda: 3.5"
    ),
    "function's code": Code(
        value="read_$k()",
        top="def read_$k():\n    return 2.0\n",
        change="read_$k.__code__ = (lambda: 3.5).__code__",
    ),
    "function's attribute": Code(
        value="read_$k.v", top="def read_$k():\n    pass\n\n\nread_$k.v = 2.0", change="read_$k.v += 1.5"
    ),
    "partial": Code(
        value="read_$k()",
        top="V_$k = {'v': 2.0}\nread_$k = functools.partial(operator.getitem, V_$k, 'v')",
        change='V_$k["v"] += 1.5',
    ),
    "attribute": Code(value="self.v_$k", init="self.v_$k = 2.0", change="s.layer.v_$k += 1.5"),
    "attribute, tensor": Code(
        value="self.v_$k", init="self.v_$k = torch.tensor(2.0)", change="s.layer.v_$k = s.layer.v_$k + 1"
    ),
    "attribute, tensor in place": Code(
        value="self.v_$k", init="self.v_$k = torch.tensor(2.0)", change="s.layer.v_$k.add_(1)"
    ),
    "attribute, list": Code(value="self.v_$k[0]", init="self.v_$k = [2.0]", change="s.layer.v_$k[0] += 1.5"),
    "attribute, text": Code(
        value="{'two': 2.0, 'four': 4.0}[self.v_$k]", init="self.v_$k = 'two'", change="s.layer.v_$k = 'four'"
    ),
    "attribute, function": Code(
        value="self.v_$k()", init="self.v_$k = lambda: 2.0", change="s.layer.v_$k = lambda: 3.5"
    ),
    "attribute, activation": Code(
        value="self.v_$k(torch.tensor(2.0))",
        init="self.v_$k = torch.tanh",
        change="s.layer.v_$k = torch.exp",
    ),
    "attribute deleted": Code(
        value="getattr(self, 'v_$k', 5.0)",
        init="self.v_$k = 2.0",
        change="vars(s.layer).pop('v_$k', None)",
    ),
    "attribute added": Code(value="getattr(self, 'v_$k', 2.0)", change="s.layer.v_$k = 5.0"),
    "class attribute": Code(value="self.v_$k", members="v_$k = 2.0\n", change="type(s.layer).v_$k += 1.5"),
    "class attribute hidden": Code(value="self.v_$k", members="v_$k = 2.0\n", change="s.layer.v_$k = 3.5"),
    "property": Code(
        value="self.p_$k",
        init="self.v_$k = 2.0",
        members="@property\ndef p_$k(self):\n    return self.v_$k\n",
        change="s.layer.v_$k += 1.5",
    ),
    "method replaced": Code(
        value="self.m_$k()",
        members="def m_$k(self):\n    return 2.0\n",
        change="type(s.layer).m_$k = lambda self: 3.5",
    ),
    "method of the layer replaced": Code(
        value="self.m_$k()", members="def m_$k(self):\n    return 2.0\n", change="s.layer.m_$k = lambda: 3.5"
    ),
    "base class": Code(
        value="self.other_$k.v",
        top="class Base_$k:\n    v = 2.0\n\n\nclass Other_$k(Base_$k):\n    pass\n",
        init="self.other_$k = Other_$k()",
        change="Base_$k.v += 1.5",
    ),
    "slots": Code(
        value="V_$k.v",
        top="class Slots_$k:\n    __slots__ = ('v',)\n\n\nV_$k = Slots_$k()\nV_$k.v = 2.0",
        change="V_$k.v += 1.5",
    ),
    "object": Code(value="V_$k.v", top="V_$k = types.SimpleNamespace(v=2.0)", change="V_$k.v += 1.5"),
    "dataclass": Code(
        value="V_$k.v",
        top="@dataclasses.dataclass\nclass Data_$k:\n    v: float = 2.0\n\n\nV_$k = Data_$k()",
        change="V_$k.v += 1.5",
    ),
    "object of the layer": Code(
        value="self.v_$k.v", init="self.v_$k = types.SimpleNamespace(v=2.0)", change="s.layer.v_$k.v += 1.5"
    ),
    "buffer": Code(
        value="self.v_$k",
        init='self.register_buffer("v_$k", torch.tensor(2.0))',
        change="s.layer.v_$k = s.layer.v_$k + 1",
    ),
    "buffer in place": Code(
        value="self.v_$k",
        init='self.register_buffer("v_$k", torch.tensor(2.0))',
        change="s.layer.v_$k.add_(1)",
    ),
    "buffer by data": Code(
        value="self.v_$k",
        init='self.register_buffer("v_$k", torch.tensor(2.0))',
        change="s.layer.v_$k.data = s.layer.v_$k.data + 1",
    ),
    "buffer by numpy": Code(
        value="self.v_$k",
        init='self.register_buffer("v_$k", torch.full((1,), 2.0))',
        change="s.layer.v_$k.numpy()[:] += 1",
    ),
    "buffer read as a number": Code(
        value="float(self.v_$k)",
        init='self.register_buffer("v_$k", torch.tensor(2.0))',
        change="s.layer.v_$k.add_(1)",
    ),
    "parameter": Code(
        value="self.v_$k",
        init="self.v_$k = torch.nn.Parameter(torch.tensor(2.0))",
        change="s.layer.v_$k = torch.nn.Parameter(s.layer.v_$k.detach() + 1)",
    ),
    "parameter in place": Code(
        value="self.v_$k",
        init="self.v_$k = torch.nn.Parameter(torch.tensor(2.0))",
        change="with torch.no_grad():\n    s.layer.v_$k.add_(1)",
    ),
    "parameter by data": Code(
        value="self.v_$k",
        init="self.v_$k = torch.nn.Parameter(torch.tensor(2.0))",
        change="s.layer.v_$k.data.add_(1)",
    ),
    "parameter frozen": Code(
        value="self.v_$k",
        init="self.v_$k = torch.nn.Parameter(torch.tensor(2.0))",
        change="s.layer.v_$k.requires_grad_(False)",
    ),
    "parameter read as a number": Code(
        value="self.v_$k.item()",
        init="self.v_$k = torch.nn.Parameter(torch.tensor(2.0))",
        change="with torch.no_grad():\n    s.layer.v_$k.add_(1)",
    ),
    "parameter, branch": Code(
        value="(3.0 if self.v_$k > 2.5 else 1.0)",
        init="self.v_$k = torch.nn.Parameter(torch.tensor(2.0))",
        change="with torch.no_grad():\n    s.layer.v_$k.add_(1)",
    ),
    "parameter, None": Code(
        value="(1.0 if self.v_$k is None else self.v_$k)",
        init="self.v_$k = torch.nn.Parameter(torch.tensor(2.0))",
        change="s.layer.v_$k = None",
    ),
    "module": Code(
        value="self.module_$k(out).mean(-1, keepdim=True)",
        init="self.module_$k = torch.nn.Linear(WIDTH, WIDTH)",
        change="torch.manual_seed(5)\n"
        "s.layer.module_$k = torch.nn.Linear(WIDTH, WIDTH).to(s.layer.module_$k.weight.dtype)",
    ),
    "module's training": Code(
        value="(2.0 if self.module_$k.training else 3.0)",
        init="self.module_$k = torch.nn.Identity()",
        change="s.layer.module_$k.train(not s.layer.module_$k.training)",
    ),
    "modules' number": Code(
        value="len(self.modules_$k)",
        init="self.modules_$k = torch.nn.ModuleList([torch.nn.Identity()])",
        change="s.layer.modules_$k.append(torch.nn.Identity())",
    ),
    "probability": Code(
        value="self.module_$k.p",
        init="self.module_$k = torch.nn.Dropout(0.5)",
        change="s.layer.module_$k.p = 0.9",
    ),
    "slope": Code(
        value="self.module_$k(torch.tensor(-1.0))",
        init="self.module_$k = torch.nn.LeakyReLU(0.2)",
        change="s.layer.module_$k.negative_slope = 0.7",
    ),
    "hook of a module": Code(
        value="self.module_$k(torch.ones(1, dtype=out.dtype))",
        init="self.module_$k = torch.nn.Identity()",
        change="s.layer.module_$k.register_forward_hook(lambda module, given, out: out * 3)",
    ),
    "training": Code(value="(2.0 if self.training else 3.0)", change="s.layer.train(not s.layer.training)"),
    "environment": Code(
        value='float(os.environ.get("OWN_V", "2.0"))',
        top='os.environ.pop("OWN_V", None)',
        change='os.environ["OWN_V"] = "3.5"',
    ),
    "module of Python": Code(
        value="getattr(math, 'own_$k', 2.0)",
        top="vars(math).pop('own_$k', None)",
        change="math.own_$k = 3.5",
    ),
    "function of torch replaced": Code(
        value="OPS_$k.f(torch.tensor(2.0))",
        top="OPS_$k = types.SimpleNamespace(f=torch.tanh)",
        change="OPS_$k.f = torch.sigmoid",
    ),
    "function added to torch's": Code(
        value="F.own_$k(torch.tensor(2.0))", top="F.own_$k = torch.tanh", change="F.own_$k = torch.exp"
    ),
    "method added to tensors": Code(
        value="out.own_$k()",
        top="torch.Tensor.own_$k = lambda t: t.detach().mean(-1, keepdim=True)",
        change="torch.Tensor.own_$k = lambda t: t.detach().amax(-1, keepdim=True)",
    ),
    "operator of a class": Code(
        value="V_$k",
        top="class Times_$k:\n    def __mul__(self, other):\n        return other * 2\n\n"
        "    __rmul__ = __radd__ = __rtruediv__ = __mul__\n\n\nV_$k = Times_$k()",
        change="Times_$k.__rmul__ = lambda self, other: other * 5",
    ),
    "table of functions": Code(
        value="OPS_$k['f'](torch.tensor(2.0))",
        top="OPS_$k = {'f': torch.tanh}",
        change="OPS_$k['f'] = torch.exp",
    ),
    "__dict__ of the class": Code(
        value="type(self).__dict__['v_$k']", members="v_$k = 2.0\n", change="type(s.layer).v_$k += 1.5"
    ),
    "config text": Code(
        value="float(eval(V_$k))", top='V_$k = "1.0 + 1.0"', change='global V_$k\nV_$k = "4.0"'
    ),
    "file": Code(
        value='float(pathlib.Path("v_$k.txt").read_text())',
        top='pathlib.Path("v_$k.txt").write_text("2.0")',
        change='pathlib.Path("v_$k.txt").write_text("3.5")',
    ),
    "weakref": Code(
        value="(2.0 if REF_$k() is not None else 3.5)",
        top="class Held_$k:\n    pass\n\n\nHELD_$k = [Held_$k()]\nREF_$k = weakref.ref(HELD_$k[0])",
        change="HELD_$k.clear()",
    ),
    "time of day": Code(
        value="CLOCK_$k.now", top="CLOCK_$k = types.SimpleNamespace(now=1.0)", change="CLOCK_$k.now *= 3"
    ),
    "context variable": Code(
        value="V_$k.get()",
        top='V_$k = contextvars.ContextVar("V_$k", default=2.0)',
        change="V_$k.set(3.5)",
    ),
    "bool": Code(value="(2.0 if FLAG_$k else 3.0)", top="FLAG_$k = True", change="global FLAG_$k\nFLAG_$k = False"),
    "None": Code(
        value="(1.0 if V_$k is None else V_$k)", top="V_$k = None", change="global V_$k\nV_$k = 3.5"
    ),
    "class": Code(
        value="KIND_$k.v",
        top="class One_$k:\n    v = 2.0\n\n\nclass Two_$k:\n    v = 3.5\n\n\nKIND_$k = One_$k",
        change="global KIND_$k\nKIND_$k = Two_$k",
    ),
    "enum": Code(
        value="(2.0 if V_$k is Mode_$k.ONE else 3.0)",
        top="class Mode_$k(enum.Enum):\n    ONE = 1\n    TWO = 2\n\n\nV_$k = Mode_$k.ONE",
        change="global V_$k\nV_$k = Mode_$k.TWO",
    ),
    "int": Code(value="V_$k", top="V_$k = 2", change="global V_$k\nV_$k = 2.0"),
    "exponent": Code(
        value="(out.detach() ** V_$k)", top="V_$k = 2", change="global V_$k\nV_$k = 3"
    ),
    "same value, other object": Code(
        value="V_$k[0]", top="V_$k = [torch.tensor(2.0)]", change="V_$k[0] = torch.tensor(4.0)"
    ),
}  # fmt: skip

READINGS = {
    "factor": "out = out * $source",
    "summand": "out = out + $source",
    "nonlinear": "out = torch.tanh(out * $source)",
    "divisor": "out = out / $source",
    "local": "v_$k = $source\nout = out * v_$k",
    "nested": "out = (lambda v: out * v)($source)",
    "default of a local function": "def scaled_$k(t, v=$source):\n    return t * v\n\n\nout = scaled_$k(out)",
}

SORTS = {
    "state": Sort(
        "B4",
        {
            "source": SOURCES,
            "reading": {name: Code(body=text) for name, text in READINGS.items()},
        },
        share=4.0,
    ),
}
