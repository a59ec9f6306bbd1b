"""Messages that raise, always or at times."""

from tests.differential.messages.code import Code, Sort

ERRORS = {
    "ValueError": 'raise ValueError("own")',
    "KeyError": 'raise KeyError("own")',
    "KeyError of a dict": '{}["own"]',
    "AttributeError": "self.missing_$k",
    "NameError": "missing_$k",
    "IndexError": "[][0]",
    "ZeroDivisionError": "1 / 0",
    "NotImplementedError": "raise NotImplementedError",
    "StopIteration": "next(iter(()))",
    "AssertionError": "assert out.dim() == 3, out.dim()",
    "TypeError": 'out + "own"',
    "own error": "raise Failed_$k(out.dim())",
    "chained": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise Failed_$k(1) from error",
    "group": 'raise ExceptionGroup("own", [ValueError(1)])',
    "UnicodeError": 'b"\\xff".decode()',
    "OverflowError": "math.exp(1000)",
    "OSError": 'open("/own/missing")',
    "wrong width": "out @ torch.ones(out.size(-1) + 1, 2, dtype=out.dtype)",
    "wrong shape": "out + torch.ones(out.size(-1) + 1, dtype=out.dtype)",
    "wrong edges": "out + torch.ones(7, 1, dtype=out.dtype)",
    "wrong view": "out.view(7, -1)",
    "wrong index": "out[:, out.size(-1)]",
    "wrong edge": "out[out.size(0)]",
    "wrong edge, number": "out[100_000_000]",
    "wrong node": "torch.ones(3)[index]",
    "wrong dtype": "out @ torch.ones(out.size(-1), 2, dtype=torch.int64)",
    "wrong dimension": "out.sum(5)",
    "wrong concatenation": "torch.cat([out, out[:1]], -1)",
    "bool of many": "bool(out)",
    "item of many": "out.item()",
    "in place on a leaf": "x_j.requires_grad_()\nx_j.mul_(2)",
    "in place on a view": "x_j.expand(2, *x_j.shape).mul_(2)",
    "numpy of a gradient": "(out * self.lin.weight.mean()).numpy()",
    "inverse": "torch.linalg.inv(torch.zeros(2, 2))",
    "cholesky": "torch.linalg.cholesky(out.t() @ out - 1e9)",
    "multinomial": "torch.multinomial(torch.zeros(3), 1)",
    "probability": "F.dropout(out, 1.5)",
    "log of nothing": "math.log(out.size(0) - out.size(0))",
    "deprecated": 'warnings.warn("own warning")\nraise ValueError(1)',
    "exit": "raise GeneratorExit(1) if False else LookupError(1)",
}  # fmt: skip

WHEN = {
    "always": "$error",
    "second call": "self.calls_$k += 1\nif self.calls_$k == 2:\n    $error",
    "first call": "self.calls_$k += 1\nif self.calls_$k == 1:\n    $error",
    "many edges": "if out.size(0) > 1000:\n    $error",
    "values": "if float(out.detach().max()) > 1:\n    $error",
    "training": "if self.training:\n    $error",
    "no gradient": "if not torch.is_grad_enabled():\n    $error",
    "caught": "try:\n    $error\nexcept Exception:\n    out = out * 2",
    "caught and noted": "try:\n    $error\nexcept Exception as caught:\n    self.caught_$k = type(caught).__name__",
}  # fmt: skip


SORTS = {
    "error": Sort(
        "errors",
        {
            "class": {"": Code(top="class Failed_$k(Exception):\n    pass\n", init="self.calls_$k = 0")},
            "error": ERRORS,
            "when": {name: Code(body=text) for name, text in WHEN.items()},
        },
        share=1.5,
    ),
}
