"""Ways to write a message down, and functions of a layer that are not its message."""

from collections.abc import Mapping
from dataclasses import dataclass

# Node features x and z, and what edges have; PyG fills the others.
OPERANDS = ("x_j", "x_i", "z_j", "z_i", "edge_attr", "edge_weight", "index", "ptr", "size_i", "dim_size")

# What a message starts from.
BASES: Mapping[str, str] = {
    "copy": "x_j",
    "scaled": "x_j * 1.5",
    "linear": "self.lin(x_j)",
    "gated": "torch.sigmoid(x_i) * x_j",
    "difference": "x_j - x_i",
    "weighted": "x_j * edge_weight.view(-1, 1)",
    "attributes": "x_j + self.edge(edge_attr)",
    "pair": "self.pair(torch.cat([x_i, x_j], -1))",
    "two operands": "x_j * z_i",
    "softmax": "x_j * softmax(x_i.sum(-1, keepdim=True), index)",
    "sorted": "x_j.sort(1).values",
    "dropout": "F.dropout(x_j, 0.3, self.training)",
    "small network": "self.network(x_j)",
}


@dataclass(frozen=True)
class Form:
    """Text around a message.

    ``$name`` is the name of the function, ``$params`` its parameters, ``$given`` their names, ``$keywords``
    "a=a, b=b", and ``$body`` statements that return the message, at the indentation that it has here.

    Attributes:
        members: What defines the function in the class.
        top: Statements of the module, in front of the class.
        init: Statements of ``__init__``.
        base: The base class.
        bottom: Statements of the module, behind the class.
    """

    members: str = ""
    top: str = ""
    init: str = ""
    base: str = "MessagePassing"
    bottom: str = ""


_BODY = "def inside(self, $params):\n    $body\n"

FORMS: Mapping[str, Form] = {
    "plain": Form("def $name(self, $params):\n    $body\n"),
    "helper": Form("def $name(self, $params):\n    return inside(self, $given)\n", top=_BODY),
    "helper, keywords": Form("def $name(self, $params):\n    return inside(self, $keywords)\n", top=_BODY),
    "helper, dict": Form(
        "def $name(self, $params):\n    given = dict($keywords)\n    return inside(self, **given)\n",
        top=_BODY,
    ),
    "helper, tuple": Form(
        "def $name(self, $params):\n    given = ($given,)\n    return inside(self, *given)\n", top=_BODY
    ),
    "method": Form(f"{_BODY}\ndef $name(self, $params):\n    return self.inside($given)\n"),
    "method by name": Form(
        f'{_BODY}\ndef $name(self, $params):\n    return getattr(self, "ins" + "ide")($given)\n'
    ),
    "static method": Form(
        f"@staticmethod\n{_BODY}\ndef $name(self, $params):\n    return self.inside(self, $given)\n"
    ),
    "class method": Form(
        "@classmethod\ndef chosen(cls):\n    return cls.inside\n\n"
        f"{_BODY}\ndef $name(self, $params):\n    return self.chosen()(self, $given)\n"
    ),
    "property": Form(
        f"{_BODY}\n@property\ndef chosen(self):\n    return self.inside\n\n"
        "def $name(self, $params):\n    return self.chosen($given)\n"
    ),
    "callable": Form(
        "def $name(self, $params):\n    return self.called(self, $given)\n",
        top="class Called:\n    def __call__(s, self, $params):\n        $body\n",
        init="self.called = Called()",
    ),
    "module": Form(
        "def $name(self, $params):\n    return self.inner(self.owner[0], $given)\n",
        top="class Inner(torch.nn.Module):\n    def forward(s, self, $params):\n        $body\n",
        init="self.inner = Inner()\nself.owner = [self]",
    ),
    "partial": Form(
        "def $name(self, $params):\n    return functools.partial(inside, self)($given)\n", top=_BODY
    ),
    "lambda": Form(
        "def $name(self, $params):\n    return (lambda *given: inside(self, *given))($given)\n", top=_BODY
    ),
    "nested function": Form(
        "def $name(self, $params):\n    def inside():\n        nonlocal x_j\n        $body\n\n    return inside()\n"
    ),
    "closure": Form(
        "$name = made()\n",
        top="def made():\n    factor = 1\n\n    def $name(self, $params):\n        return inside(self, $given) * factor\n\n"
        f"    return $name\n\n\n{_BODY}",
    ),
    "super": Form(
        "def $name(self, $params):\n    return super().$name($given)\n",
        top="class Base(MessagePassing):\n    def $name(self, $params):\n        $body\n",
        base="Base",
    ),
    "inherited": Form(
        "",
        top="class Base(MessagePassing):\n    def $name(self, $params):\n        $body\n",
        base="Base",
    ),
    "mixin": Form(
        "",
        top="class Mixin:\n    def $name(self, $params):\n        $body\n",
        base="Mixin, MessagePassing",
    ),
    "base by name": Form(
        "def $name(self, $params):\n    return Base.$name(self, $given)\n",
        top="class Base(MessagePassing):\n    def $name(self, $params):\n        $body\n",
        base="Base",
    ),
    "decorated": Form(
        "@doubled\ndef $name(self, $params):\n    $body\n",
        top="def doubled(function):\n    @functools.wraps(function)\n    def inner(*args, **kwargs):\n"
        "        return function(*args, **kwargs) * 2\n\n    return inner\n",
    ),
    "decorated with an effect": Form(
        "@counted\ndef $name(self, $params):\n    $body\n",
        top="CALLS = []\n\n\ndef counted(function):\n    @functools.wraps(function)\n    def inner(*args, **kwargs):\n"
        "        CALLS.append(len(CALLS))\n        return function(*args, **kwargs)\n\n    return inner\n",
    ),
    "decorated, no_grad": Form("@torch.no_grad()\ndef $name(self, $params):\n    $body\n"),
    "decorated, not compiled": Form("@torch.compiler.disable\ndef $name(self, $params):\n    $body\n"),
    "assigned to the instance": Form(
        "def $name(self, $params):\n    return x_j\n",
        top=_BODY,
        init="self.$name = types.MethodType(inside, self)",
    ),
    "assigned to the class": Form(
        "def $name(self, $params):\n    return x_j\n",
        top="def $name(self, $params):\n    $body\n",
        bottom="Own.$name = $name",
    ),
    "function as attribute": Form("$name = $name\n", top="def $name(self, $params):\n    $body\n"),
    "exec": Form(
        "$name = $name\n",
        top="exec('''\ndef $name(self, $params):\n    return written(self, $given)\n''')\n\n\n"
        "def written(self, $params):\n    $body\n",
    ),
    "eval": Form(
        "def $name(self, $params):\n    return eval('inside(self, $given)', globals(), locals())\n", top=_BODY
    ),
    "generator": Form(
        "def each(self, $params):\n    yield inside(self, $given)\n\n"
        "def $name(self, $params):\n    return next(self.each($given))\n",
        top=_BODY,
    ),
    "list of one": Form(
        "def $name(self, $params):\n    return [inside(self, $given) for _ in range(1)][0]\n", top=_BODY
    ),
    "table": Form(
        "def $name(self, $params):\n    return TABLE['inside'](self, $given)\n",
        top=f"{_BODY}\n\nTABLE = {{'inside': inside}}",
    ),
    "try": Form(
        "def $name(self, $params):\n    try:\n        $body\n    finally:\n        self.done = True\n",
        init="self.done = False",
    ),
    "with": Form(
        "def $name(self, $params):\n    with contextlib.ExitStack() as stack:\n        stack.callback(int)\n        $body\n"
    ),
    "loop": Form("def $name(self, $params):\n    for _ in range(1):\n        $body\n"),
    "singledispatch": Form(
        "def $name(self, $params):\n    return dispatched(x_j, self, $keywords)\n",
        top=f"@functools.singledispatch\ndef dispatched(_, self, **given):\n    return inside(self, **given)\n\n\n{_BODY}",
    ),
    "reduce": Form(
        "def $name(self, $params):\n    return functools.reduce(lambda one, step: step(one), [lambda one: inside(self, $given)], x_j)\n",
        top=_BODY,
    ),
    "class decorator": Form(
        "def $name(self, $params):\n    $body\n",
        bottom="def halved(kind):\n    before = kind.$name\n\n    @functools.wraps(before)\n    def after(self, *args, **kwargs):\n"
        "        return before(self, *args, **kwargs) * 0.5\n\n    kind.$name = after\n    return kind\n\n\nOwn = halved(Own)",
    ),
    "annotated": Form("def $name(self, $annotated) -> Tensor:\n    $body\n"),
    "default": Form("def $name(self, $params, factor=2.0):\n    x_j = x_j * factor\n    $body\n"),
    "doc": Form('def $name(self, $params):\n    """The message."""\n    $body\n'),
}

# What ``forward`` does with the node features before it propagates them, and what the constructor gets.
FORWARDS: Mapping[str, tuple[str, str]] = {
    "plain": ("", ""),
    "from destinations": ("", ", flow='target_to_source'"),
    "pair": ("x = (x, x * 2)", ""),
    "pair of one": ("x = (x, x)", ""),
    "sources alone": ("x = (x, None)", ""),
    "computed": ("x = x * 1.5 + 1", ""),
    "twice": ("x = self.propagate(edge_index, $operands)", ""),
    "decomposed": ("", ", decomposed_layers=2"),
    "detached": ("x = x.detach()", ""),
    "columns": ("x = x.t().contiguous().t()", ""),
}


@dataclass(frozen=True)
class Stage:
    """A function of PyG's layers.

    Attributes:
        name: The function that holds the code, as :class:`Form` defines it.
        operands: The operands that the code may read.
        members: Other functions of the class; ``$given`` are those operands, ``$more`` those that only they take.
        forward: What ``forward`` does; ``$operands`` are keywords, and ``$x`` what it does before.
    """

    name: str
    operands: tuple[str, ...]
    members: str = ""
    forward: str = "$x\nreturn self.propagate(edge_index, $operands)"


_X = "def message(self, x_j):\n    return x_j\n"

# Of PyG's functions, where the code stands.
STAGES: Mapping[str, Stage] = {
    "message": Stage("message", OPERANDS),
    "update": Stage("update", ("x_j", "index", "ptr", "size_i", "dim_size"), _X),
    "aggregate": Stage(
        "changed",
        OPERANDS,
        f"{_X}\ndef aggregate(self, x_j, index$more, ptr=None, dim_size=None):\n"
        "    return super().aggregate(self.changed($given), index, ptr, dim_size)\n",
    ),
    "edge_update": Stage(
        "edge_update",
        ("x_j", "x_i", "z_j", "z_i", "edge_attr", "edge_weight", "index", "ptr", "size_i"),
        "def message(self, e):\n    return e\n",
        "$x\ne = self.edge_updater(edge_index, $operands)\nreturn self.propagate(edge_index, e=e)",
    ),
    "fused": Stage(
        "changed",
        ("x_j",),
        "def message_and_aggregate(self, edge_index, x):\n    return edge_index @ self.changed(x)\n",
    ),
}
