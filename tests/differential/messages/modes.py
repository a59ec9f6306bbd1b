"""Messages that ask torch, a tensor or the layer for a mode or a history."""

from tests.differential.messages.code import Code, Sort

MODES = {
    "is_grad_enabled": "torch.is_grad_enabled()",
    "is_inference_mode_enabled": "torch.is_inference_mode_enabled()",
    "is_inference": "x_j.is_inference()",
    "grad_fn": "x_j.grad_fn is None",
    # Not its name: the patch gathers rows by gradient functions of its own, here as everywhere.
    "next functions": 'len(getattr(x_j.grad_fn, "next_functions", ())) > 0',
    "is_leaf": "x_j.is_leaf",
    "requires_grad": "x_j.requires_grad",
    "requires_grad of out": "out.requires_grad",
    "requires_grad of a weight": "self.lin.weight.requires_grad",
    "gradient of a weight": "self.lin.weight.grad is None",
    "version": "x_j._version == 0",
    "version of index": "index._version % 2 == 0",
    "version of a weight": "self.lin.weight._version > 0",
    "data_ptr": "x_j.data_ptr() % 64 == 0",
    "same memory": "x_j.data_ptr() == out.data_ptr()",
    "storage_offset": "x_j.storage_offset() == 0",
    "storage size": "x_j.untyped_storage().nbytes() == x_j.numel() * x_j.element_size()",
    "is_contiguous": "x_j.is_contiguous()",
    "stride": "x_j.stride(0) == x_j.size(1)",
    "strides": "x_j.stride() == (x_j.size(1), 1)",
    "is_view": "x_j._is_view()",
    "base": "x_j._base is None",
    "retains_grad": "x_j.retains_grad",
    "same object": "x_j is x_i",
    "index is contiguous": "index.is_contiguous()",
    "index stride": "index.stride(0) == 1",
    "index offset": "index.storage_offset() == 0",
    "index is sorted": "bool((index[1:] >= index[:-1]).all())",
    "ptr": "ptr is None",
    "type": "type(x_j) is torch.Tensor",
    "isinstance": "isinstance(x_j, torch.nn.Parameter)",
    "device": 'x_j.device.type == "cpu" and x_j.is_cpu',
    "layout": "x_j.layout is torch.strided",
    "dtype": "x_j.dtype is torch.float64",
    "default dtype": "torch.get_default_dtype() is torch.float32",
    "made dtype": "torch.ones(1).dtype is torch.float32",
    "autocast": 'torch.is_autocast_enabled("cpu")',
    "autocast dtype": 'torch.get_autocast_dtype("cpu") is torch.bfloat16',
    "threads": "torch.get_num_threads() == 1",
    "training": "self.training",
    "deterministic": "torch.are_deterministic_algorithms_enabled()",
    "anomaly": "torch.is_anomaly_enabled()",
    "tracing": "torch.jit.is_tracing()",
    "compiling": "torch.compiler.is_compiling()",
    "scripting": "torch.jit.is_scripting()",
    "thread": "threading.current_thread() is threading.main_thread()",
    "function modes": "torch.overrides._get_current_function_mode() is None",
    "dispatch modes": "torch.utils._python_dispatch._get_current_dispatch_mode() is None",
    "caller": 'sys._getframe(1).f_code.co_name in ("propagate", "inner", "message", "func")',
    "caller's file": '"onehop" in sys._getframe(1).f_code.co_filename',
    "keys": "x_j._is_zerotensor() or x_j.is_neg() or x_j.is_conj()",
    "hooks": "bool(getattr(x_j, '_backward_hooks', None))",
    "id": "id(self) == id(LAYERS_$k[-1])",
    "class": "type(self).__name__ == 'Own'",
    "names": 'hasattr(self, "lin") and "lin" in self._modules',
    "hash": "self in {self}",
    "meta": 'x_j.is_meta or x_j.device.type == "meta"',
    "fake": '"Fake" in type(x_j).__name__ or "Proxy" in type(x_j).__name__',
    "functorch": "torch._C._functorch.maybe_current_level() is not None",
    "is_nonzero of empty": "x_j.size(0) == 0",
    "finite": "bool(torch.isfinite(x_j).all())",
    "grad attribute": "x_j.grad is None if x_j.is_leaf else False",
    "saved hooks": "torch._C._autograd._top_saved_tensors_default_hooks(True) is None",
    "same as the layer": "self is LAYERS_$k[-1]",
    "owner": "len(gc.get_referrers(self)) > 0",
    "denormals": "float(torch.tensor(1e-40) * 1) != 0.0",
    "explain": "bool(self.explain)",
    "annotations": "'x_j' in self._user_args or bool(self.inspector)",
    "number of modules": "len(list(self.modules())) > 2",
    "optimised": "__debug__",
    "recursion limit": "sys.getrecursionlimit() > 500",
}  # fmt: skip

_LAYERS = Code(top="LAYERS_$k = []", init="LAYERS_$k.append(self)")

BRANCHES = {
    "factor": "out = out * (2 if $mode else 1)",
    "negated": "if $mode:\n    out = -out",
    "local": "mode_$k = $mode\nout = torch.where(torch.tensor(mode_$k), out, out * 3)",
    "number": "out = out + float($mode)",
    "chosen function": "out = (torch.tanh if $mode else torch.sigmoid)(out)",
    "error": 'if $mode:\n    raise RuntimeError("not in this mode")',
    "kept": "self.mode_$k = $mode",
    "not": "out = out if not $mode else out * 0.5",
    "and": "out = out * (1.5 if ($mode) and out.dim() == 2 else 1)",
    "while": "while $mode:\n    out = out * 2\n    break",
    "helper": "out = branch_$k(out, $mode)",
    "match": "match $mode:\n    case True:\n        out = out * 2\n    case _:\n        pass",
}  # fmt: skip

# Changes of a mode inside of the message.
SWITCHES = {
    "no_grad": "with torch.no_grad():\n    out = out * 2",
    "no_grad of a part": "with torch.no_grad():\n    scale_$k = out.mean(-1, keepdim=True)\nout = out * scale_$k",
    "set_grad_enabled": "with torch.set_grad_enabled(False):\n    out = out * 2",
    "set_grad_enabled, left": "torch.set_grad_enabled(False)\nout = out * 2",
    "set_grad_enabled by training": "with torch.set_grad_enabled(self.training):\n    out = out * 2",
    "enable_grad": "with torch.enable_grad():\n    out = out * 2",
    "inference_mode": "with torch.inference_mode():\n    scale_$k = x_j.mean(-1, keepdim=True)\nout = out.detach() * scale_$k.clone()",
    "autocast": 'with torch.autocast("cpu", dtype=torch.bfloat16):\n    out = self.lin(out).to(x_j.dtype)',
    "default dtype, left": "torch.set_default_dtype(torch.float64)\nout = out * torch.ones(1)",
    "threads, left": "torch.set_num_threads(1)\nout = out * 2",
    "deterministic, left": "torch.use_deterministic_algorithms(True, warn_only=True)\nout = out * 2",
    "anomaly": "with torch.autograd.detect_anomaly(check_nan=False):\n    out = out * 2",
    "eval, left": "self.eval()",
    "train of a module": "self.lin.eval()",
    "frozen": "self.lin.weight.requires_grad_(False)\nout = self.lin(out)",
    "saved hooks": "with torch.autograd.graph.saved_tensors_hooks(lambda t: NOTED_$k.append(1) or t, lambda t: t):\n    out = out.exp()",
    "save_on_cpu": "with torch.autograd.graph.save_on_cpu():\n    out = out.exp()",
    "profiler": 'with torch.profiler.record_function("own"):\n    out = out * 2',
    "device": 'with torch.device("cpu"):\n    out = out * 2',
    "function mode": "with Noting_$k():\n    out = out * 2",
    "warnings": 'with warnings.catch_warnings():\n    warnings.simplefilter("ignore")\n    out = out * 2',
    "suppress": "with contextlib.suppress(ZeroDivisionError):\n    out = out * 2\n    1 / 0",
    "try": "try:\n    out = out / (1 if out.size(0) < 1000 else 0)\nexcept ZeroDivisionError:\n    out = out * 3",
    "try, else": "try:\n    out[20_000_000]\nexcept IndexError:\n    out = out * 2\nelse:\n    out = out * 3\nfinally:\n    NOTED_$k.append(1)",
    "lock": "with LOCK_$k:\n    out = out * 2",
    "print options": "torch.set_printoptions(precision=4)\nout = out * len(str(float(out.detach()[0, 0] * 0)))",
    "flush denormals": "torch.set_flush_denormal(False)",
    "return": "if not out.requires_grad:\n    return out * 2",
    "recursion": "out = again_$k(out, 2)",
}  # fmt: skip

_SWITCHES_TOP = """LOCK_$k = threading.Lock()
NOTED_$k = []


class Noting_$k(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        NOTED_$k.append(getattr(function, "__name__", ""))
        return function(*args, **(kwargs or {}))


def again_$k(out, times):
    return out if not times else again_$k(out * 1.5, times - 1)
"""

_BRANCHES_TOP = "def branch_$k(out, mode):\n    return out * 2 if mode else out\n"

SORTS = {
    "mode": Sort(
        "B3",
        {
            "layers": {"": _LAYERS},
            "mode": {name: f"({text})" for name, text in MODES.items()},
            "branch": {
                name: Code(top=_BRANCHES_TOP if name == "helper" else "", body=text)
                for name, text in BRANCHES.items()
            },
        },
        share=3.0,
    ),
    "switch": Sort(
        "B3", {"switch": {name: Code(top=_SWITCHES_TOP, body=text) for name, text in SWITCHES.items()}}
    ),
}
