"""Messages that do something besides computing a tensor, or read something that is not one."""

from tests.differential.messages.code import Code, Sort

# A list, wherever it is kept.
LISTS = {
    "global": Code(value="LOG_$k", top="LOG_$k = []"),
    "nested": Code(value='LOGS_$k["a"][0]', top='LOGS_$k = {"a": [[]]}'),
    "object": Code(value="THING_$k.log", top="THING_$k = types.SimpleNamespace(log=[])"),
    "instance": Code(value="self.log_$k", init="self.log_$k = []"),
    "instance, nested": Code(value='self.logs_$k["a"]', init='self.logs_$k = {"a": []}'),
    "class": Code(value="self.log_$k", members="log_$k = []\n"),
    "other object": Code(
        value="self.other_$k.log",
        top="class Other_$k:\n    def __init__(self):\n        self.log = []\n",
        init="self.other_$k = Other_$k()",
    ),
    "module": Code(
        value="self.inner_$k.log", init="self.inner_$k = torch.nn.Identity()\nself.inner_$k.log = []"
    ),
    "default": Code(value="kept_$k()", top="def kept_$k(log=[]):\n    return log\n"),
    "function attribute": Code(
        value="noted_$k.log", top="def noted_$k():\n    return None\n\n\nnoted_$k.log = []"
    ),
    "closure": Code(
        value="closed_$k()",
        top="def closing_$k():\n    log = []\n    return lambda: log\n\n\nclosed_$k = closing_$k()",
    ),
    "property": Code(
        value="self.logs_$k",
        top="ALL_$k = []",
        members="@property\ndef logs_$k(self):\n    return ALL_$k\n",
    ),
    "globals()": Code(value='globals()["LOG_$k"]', top="LOG_$k = []"),
    "sys.modules": Code(value="sys.modules[__name__].LOG_$k", top="LOG_$k = []"),
    "__dict__": Code(value='self.__dict__["log_$k"]', init="self.log_$k = []"),
    "getattr": Code(value='getattr(self, "log_$k")', init="self.log_$k = []"),
}

NOTES = {
    "shape": "tuple(x_j.shape)",
    "constant": '"called"',
    "number": "float(x_j.detach().abs().sum())",
    "mode": "(self.training, torch.is_grad_enabled())",
    "type": "x_j.dtype",
    "error": "repr(ValueError(1))",
}  # fmt: skip

ACTS = {
    "append": Code(body="$list.append($note)"),
    "extend": Code(body="$list.extend([$note, 1])"),
    "insert": Code(body="$list.insert(0, $note)"),
    "plus": Code(body="log_$k = $list\nlog_$k += [$note]"),
    "slice": Code(body="$list[len($list):] = [$note]"),
    "item": Code(body="$list.append(0)\n$list[0] = $note"),
    "clear": Code(body="$list.append($note)\nif len($list) > 2:\n    $list.clear()"),
    "pop": Code(body="$list.append($note)\n$list.append(2)\n$list.pop()"),
    "bound method": Code(body="note_$k = $list.append\nnote_$k($note)"),
    "unbound method": Code(body="list.append($list, $note)"),
    "map": Code(body="list(map($list.append, [$note]))"),
    "comprehension": Code(body="[$list.append(each) for each in ($note, 2)]"),
    "operator": Code(body="operator.iadd($list, [$note])"),
    "bisect": Code(body="$list.append($note)\nheapq.heappush($list, 1) if len($list) < 1 else None"),
    "tensor": Code(body="$list.append(x_j.detach())"),
    "length is read": Code(body="$list.append($note)\nout = out * len($list)"),
    "hook": Code(
        body="if out.requires_grad:\n    out.register_hook(lambda grad: $list.append(tuple(grad.shape)))"
    ),
    "finally": Code(body="try:\n    out = out * 2\nfinally:\n    $list.append($note)"),
    "except": Code(
        body="try:\n    raise KeyError(1)\nexcept KeyError as error:\n    $list.append(str(error))"
    ),
    "handed to": Code(top="def into_$k(log, note):\n    log.append(note)\n", body="into_$k($list, $note)"),
    "context": Code(
        top="@contextlib.contextmanager\ndef noting_$k(log):\n    yield\n    log.append(1)\n",
        body="with noting_$k($list):\n    out = out * 2",
    ),
    "deleted": Code(
        top="class Farewell_$k:\n    def __init__(self, log):\n        self.log = log\n\n"
        "    def __del__(self):\n        self.log.append(0)\n",
        body="farewell_$k = Farewell_$k($list)\ndel farewell_$k",
    ),
    "short circuit": Code(body="None or $list.append($note)"),
    "format": Code(
        top="class Telling_$k:\n    def __init__(self, log):\n        self.log = log\n\n"
        "    def __format__(self, how):\n        self.log.append(how)\n        return how\n",
        body='format(Telling_$k($list), "x")',
    ),
    "comparison": Code(
        top="class Equal_$k:\n    def __init__(self, log):\n        self.log = log\n\n"
        "    def __eq__(self, other):\n        self.log.append(1)\n        return True\n",
        body="out = out * 2 if Equal_$k($list) == 1 else out",
    ),
    "reflected operator": Code(
        top="class Half_$k:\n    def __init__(self, log):\n        self.log = log\n\n"
        "    def __rmul__(self, other):\n        self.log.append(1)\n        return other * 0.5\n\n"
        "    def __torch_function__(self, function, types, args=(), kwargs=None):\n"
        "        self.log.append(2)\n        return args[0].mul(0.5)\n",
        body="out = out * Half_$k($list)",
    ),
}

# Other containers, each with what it collects.
COLLECTIONS = {
    "dict": Code(top="SEEN_$k = {}", body="SEEN_$k[len(SEEN_$k)] = 1"),
    "dict, by shape": Code(top="SEEN_$k = {}", body="SEEN_$k[tuple(x_j.shape)] = 1"),
    "update": Code(top="SEEN_$k = {}", body="SEEN_$k.update({len(SEEN_$k): 1})"),
    "union": Code(top="SEEN_$k = {}", body="global SEEN_$k\nSEEN_$k = SEEN_$k | {len(SEEN_$k): 1}"),
    "setdefault": Code(top="SEEN_$k = {}", body="SEEN_$k.setdefault(len(SEEN_$k), []).append(1)"),
    "set": Code(top="SEEN_$k = set()", body="SEEN_$k.add(len(SEEN_$k))"),
    "set, union": Code(top="SEEN_$k = set()", body="SEEN_$k.__ior__({len(SEEN_$k)})"),
    "deque": Code(top="SEEN_$k = collections.deque(maxlen=2)", body="SEEN_$k.append(x_j.dim())"),
    "defaultdict": Code(top="SEEN_$k = collections.defaultdict(int)", body='SEEN_$k["a"] += 1'),
    "defaultdict, read": Code(top="SEEN_$k = collections.defaultdict(list)", body="SEEN_$k[len(SEEN_$k)]"),
    "Counter": Code(top="SEEN_$k = collections.Counter()", body='SEEN_$k.update(["a"])'),
    "bytearray": Code(top="SEEN_$k = bytearray()", body="SEEN_$k.append(1)"),
    "array": Code(top="SEEN_$k = np.zeros(3)", body="SEEN_$k[:] += 1"),
    "array, item": Code(top="SEEN_$k = np.zeros(3)", body="SEEN_$k[1] += 1"),
    "tensor": Code(top="SEEN_$k = torch.zeros(3)", body="SEEN_$k[1] += 1"),
    "ModuleList": Code(
        init="self.seen_$k = torch.nn.ModuleList()", body="self.seen_$k.append(torch.nn.Identity())"
    ),
    "ParameterDict": Code(
        init="self.seen_$k = torch.nn.ParameterDict()",
        body='self.seen_$k[f"a{len(self.seen_$k)}"] = torch.zeros(1)',
    ),
    "registered buffer": Code(
        body='if not hasattr(self, "made_$k"):\n    self.register_buffer("made_$k", torch.ones(1))'
    ),
    "registered parameter": Code(
        body='if "made_$k" not in self._parameters:\n'
        '    self.register_parameter("made_$k", torch.nn.Parameter(torch.ones(1)))'
    ),
    "module made": Code(
        body='if not hasattr(self, "made_$k"):\n    self.made_$k = torch.nn.Linear(out.size(-1), 1)\n'
        "out = out + self.made_$k(out.to(torch.float32)).mean().to(out.dtype)"
    ),
}  # fmt: skip

# A number that counts, and how.
COUNTS = {
    "global": Code(value="N_$k", top="N_$k = 0", body="global N_$k\nN_$k += 1"),
    "instance": Code(value="self.n_$k", init="self.n_$k = 0", body="self.n_$k += 1"),
    "class": Code(value="self.n_$k", members="n_$k = 0\n", body="type(self).n_$k += 1"),
    "setattr": Code(
        value="self.n_$k", init="self.n_$k = 0", body='setattr(self, "n_$k", getattr(self, "n_$k") + 1)'
    ),
    "object.__setattr__": Code(
        value="self.n_$k", init="self.n_$k = 0", body='object.__setattr__(self, "n_$k", self.n_$k + 1)'
    ),
    "__dict__": Code(value="self.n_$k", init="self.n_$k = 0", body='self.__dict__["n_$k"] += 1'),
    "vars": Code(value="self.n_$k", init="self.n_$k = 0", body='vars(self)["n_$k"] += 1'),
    "item": Code(value="STEP_$k[0]", top="STEP_$k = [0]", body="STEP_$k[0] += 1"),
    "other object": Code(
        value="THING_$k.n", top="THING_$k = types.SimpleNamespace(n=0)", body="THING_$k.n += 1"
    ),
    "nonlocal": Code(
        value="n_$k",
        top="def counting_$k():\n    n = 0\n\n    def count():\n        nonlocal n\n        n += 1\n"
        "        return n\n\n    return count\n\n\ncount_$k = counting_$k()",
        body="n_$k = count_$k()",
    ),
    "iterator": Code(value="n_$k", top="NUMBERS_$k = iter(range(1, 100))", body="n_$k = next(NUMBERS_$k)"),
    "itertools.count": Code(
        value="n_$k", top="NUMBERS_$k = itertools.count(1)", body="n_$k = next(NUMBERS_$k)"
    ),
    "generator": Code(
        value="n_$k",
        top="def numbers_$k():\n    n = 0\n    while True:\n        n += 1\n        yield n\n\n\n"
        "NUMBERS_$k = numbers_$k()",
        body="n_$k = next(NUMBERS_$k)",
    ),
    "property": Code(
        value="n_$k",
        init="self.counted_$k = 0",
        members="@property\ndef count_$k(self):\n    self.counted_$k += 1\n    return self.counted_$k\n",
        body="n_$k = self.count_$k",
    ),
    "__call__": Code(
        value="n_$k",
        top="class Count_$k:\n    n = 0\n\n    def __call__(self):\n        self.n += 1\n"
        "        return self.n\n\n\nCOUNT_$k = Count_$k()",
        body="n_$k = COUNT_$k()",
    ),
    "__getitem__": Code(
        value="n_$k",
        top="class Count_$k:\n    n = 0\n\n    def __getitem__(self, at):\n        self.n += 1\n"
        "        return self.n\n\n\nCOUNT_$k = Count_$k()",
        body="n_$k = COUNT_$k[0]",
    ),
    "__getattr__": Code(
        value="n_$k",
        top="class Count_$k:\n    def __init__(self):\n        self.n = 0\n\n"
        "    def __getattr__(self, name):\n        self.n += 1\n        return self.n\n\n\n"
        "COUNT_$k = Count_$k()",
        body="n_$k = COUNT_$k.anything",
    ),
    "__bool__": Code(
        value="COUNT_$k.n",
        top="class Count_$k:\n    n = 0\n\n    def __bool__(self):\n        self.n += 1\n"
        "        return True\n\n\nCOUNT_$k = Count_$k()",
        body="out = out * 2 if COUNT_$k else out",
    ),
    "lru_cache": Code(
        value="cached_$k.cache_info().misses",
        top="@functools.lru_cache\ndef cached_$k(key):\n    return 1.5\n",
        body="out = out * cached_$k(tuple(x_j.shape))",
    ),
    "buffer": Code(
        value="int(self.steps_$k)",
        init='self.register_buffer("steps_$k", torch.zeros(1))',
        body="self.steps_$k += 1",
    ),
    "numpy": Code(value="STEP_$k[0]", top="STEP_$k = np.zeros(1)", body="np.add(STEP_$k, 1, out=STEP_$k)"),
    "environment": Code(
        value='int(os.environ.get("OWN_$k", "0"))',
        body='os.environ["OWN_$k"] = str(int(os.environ.get("OWN_$k", "0")) + 1)',
        top='os.environ.pop("OWN_$k", None)',
    ),
    "descriptor": Code(
        value="n_$k",
        top="class Counted_$k:\n    n = 0\n\n    def __get__(self, owner, kind):\n        self.n += 1\n"
        "        return self.n\n",
        members="count_$k = Counted_$k()\n",
        body="n_$k = self.count_$k",
    ),
    "exec": Code(value="N_$k", top="N_$k = 0", body='exec("N_$k += 1", globals())'),
    "code of a string": Code(
        value="STEP_$k[0]",
        top='STEP_$k = [0]\nNAMES_$k = {"STEP": STEP_$k}\nexec("def count():\\n    STEP[0] += 1", NAMES_$k)',
        body='NAMES_$k["count"]()',
    ),
    "partial": Code(
        value="STEP_$k[0]",
        top="STEP_$k = [0]\nCOUNT_$k = functools.partial(operator.setitem, STEP_$k, 0)",
        body="COUNT_$k(STEP_$k[0] + 1)",
    ),
    "thread local": Code(
        value="LOCAL_$k.n",
        top="LOCAL_$k = threading.local()",
        body='LOCAL_$k.n = getattr(LOCAL_$k, "n", 0) + 1',
    ),
    "context variable": Code(
        value="N_$k.get()",
        top='N_$k = contextvars.ContextVar("N_$k", default=0)',
        body="N_$k.set(N_$k.get() + 1)",
    ),
}

SCHEDULES = {
    "not read": Code(),
    "factor": Code(body="out = out * (1.0 if $count <= 2 else 0.5)"),
    "times": Code(body="out = out * $count"),
    "third call fails": Code(body='if $count == 3:\n    raise KeyError("third call")'),
    "second call fails": Code(body='if $count == 2:\n    raise RuntimeError("call " + str($count))'),
    "parity": Code(body="out = -out if $count % 2 else out"),
    "first call": Code(body="if $count == 1:\n    out = torch.zeros_like(out)"),
}

SORTS = {
    "collected": Sort("B2", {"list": LISTS, "note": NOTES, "act": ACTS}, share=2.0),
    "collection": Sort("B2", {"collection": COLLECTIONS}),
    "counted": Sort("B2", {"count": COUNTS, "schedule": SCHEDULES}, share=2.0),
}
