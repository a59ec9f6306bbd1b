"""What is done with a layer: steps of a program, each a function of its namespace ``s``."""

from collections.abc import Mapping

_THREAD = """box = []
def run():
    try:
        box.append(call(s))
    except Exception as error:
        box.append(error)
thread = threading.Thread(target=run)
thread.start()
thread.join()
if isinstance(box[0], Exception):
    raise box[0]
s.out = box[0]"""

_OPTIMISER = """if s.optimiser is None:
    leaves = [*s.layer.parameters(), *([s.x] if s.x.is_leaf and s.x.requires_grad else [])]
    s.optimiser = torch.optim.{kind}(leaves, lr=0.1, weight_decay=0.1{more})
for _ in range(2):
    s.optimiser.zero_grad()
    s.out = call(s)
    s.out.square().mean().backward()
    s.optimiser.step()"""

CALLS: Mapping[str, str] = {
    "call": "s.out = call(s)",
    "call three times": "for _ in range(3):\n    s.out = call(s)",
    "sum of two calls": "s.out = call(s) + call(s)",
    "no_grad": "with torch.no_grad():\n    s.out = call(s)",
    "inference": "with torch.inference_mode():\n    s.out = call(s)",
    "features of inference": "with torch.inference_mode():\n    x = s.x.detach().clone()\nwith torch.no_grad():\n    s.out = call(s, x)",
    "enable_grad": "with torch.no_grad(), torch.enable_grad():\n    s.out = call(s)",
    "grad mode left": "torch.set_grad_enabled(False)\ntry:\n    s.out = call(s)\nfinally:\n    torch.set_grad_enabled(True)",
    "autocast": 'with torch.autocast("cpu", dtype=torch.bfloat16):\n    s.out = call(s)',
    "default dtype": "torch.set_default_dtype(torch.float64)\ntry:\n    s.out = call(s)\nfinally:\n    torch.set_default_dtype(torch.float32)",
    "thread": _THREAD,
    "thread without grad": _THREAD.replace("box.append(call(s))", "with torch.no_grad():\n            box.append(call(s))"),
    "two threads counted": "torch.set_num_threads(2)\ntry:\n    s.out = call(s)\nfinally:\n    torch.set_num_threads(1)",
    "eval": "s.layer.eval()\ns.out = call(s)",
    "train": "s.layer.train()\ns.out = call(s)",
    "deterministic": "torch.use_deterministic_algorithms(True, warn_only=True)\ntry:\n    s.out = call(s)\n"
    "finally:\n    torch.use_deterministic_algorithms(False)",
    "anomaly": "with torch.autograd.detect_anomaly(check_nan=False):\n    s.out = call(s)",
    "saved hooks": "with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):\n    s.out = call(s)",
    # It saves something in any case, and runs all of it again: how much else is saved is nobody's promise.
    "checkpoint": "with torch.utils.checkpoint.set_checkpoint_early_stop(False):\n"
    "    s.out = torch.utils.checkpoint.checkpoint(lambda x: call(s, x.exp()), s.x, use_reentrant=False)",
    "checkpoint, reentrant": "s.out = torch.utils.checkpoint.checkpoint(lambda x: call(s, x), s.x, use_reentrant=True)",
    "constant features": "s.out = call(s, s.x.detach())",
    "computed features": "s.out = call(s, s.x * 1.0)",
    "features of a view": "s.out = call(s, s.x.view(-1).view(s.x.shape))",
    "features by column": "s.out = call(s, s.x.t().contiguous().t())",
    "features of a subclass": "s.out = call(s, s.x.as_subclass(Sub))",
    "features that are a parameter": "s.parameter = torch.nn.Parameter(s.x.detach().clone())\ns.out = call(s, s.parameter)",
    "expanded features": "s.out = call(s, s.x[:1].expand(s.x.shape))",
    "written features": "s.out = call(s, s.x.detach().clone().add_(1))",
    "other graph": "s.edges = graph(s, seed=9)\ns.out = call(s)",
    "larger graph": "s.edges, s.more = larger(s)\ns.out = call(s)",
    "reversed edges": "s.edges = s.edges.flip(0) if s.edges.layout is torch.strided else s.edges\ns.out = call(s)",
    "no edges": "with_few(s, 0)\ns.out = call(s)",
    "one edge": "with_few(s, 1)\ns.out = call(s)",
    "functional_call": "named = {name: each.detach() * 2 for name, each in s.layer.named_parameters()}\n"
    "s.out = torch.func.functional_call(s.layer, named, (s.x, s.edges), s.more)",
    "torch.func.grad": "s.found = torch.func.grad(lambda x: call(s, x).sum())(s.x.detach())",
    "torch.func.jvp": "s.found = torch.func.jvp(lambda x: call(s, x), (s.x.detach(),), (torch.ones_like(s.x),))",
    "forward mode": "with torch.autograd.forward_ad.dual_level():\n"
    "    x = torch.autograd.forward_ad.make_dual(s.x.detach(), torch.ones_like(s.x))\n"
    "    s.found = torch.autograd.forward_ad.unpack_dual(call(s, x)).tangent",
    "function mode": "with Counting():\n    s.out = call(s)",
    "profiler": 'with torch.profiler.record_function("own"):\n    s.out = call(s)',
}  # fmt: skip

BACKWARDS: Mapping[str, str] = {
    "backward": "s.out.sum().backward(retain_graph=True)",
    "weighted backward": "weights = torch.linspace(-1, 1, s.out.numel(), dtype=s.out.dtype).view(s.out.shape)\n"
    "s.out.backward(weights, retain_graph=True)",
    "grad": "leaves = [each for each in (s.x, *s.layer.parameters()) if each.requires_grad]\n"
    "s.found = torch.autograd.grad(s.out.square().sum(), leaves, allow_unused=True, retain_graph=True)",
    "grad of x": "(s.found,) = torch.autograd.grad(s.out.sum(), s.x, retain_graph=True)",
    "second derivative": "(first,) = torch.autograd.grad(s.out.square().sum(), s.x, create_graph=True)\n"
    "first.square().sum().backward(retain_graph=True)",
    "SGD": _OPTIMISER.format(kind="SGD", more=", momentum=0.9"),
    # With torch's eps, 1e-8, a gradient that is rounding alone would move a parameter by a whole step.
    "AdamW": _OPTIMISER.format(kind="AdamW", more=", eps=0.01"),
    "backward in no_grad": "with torch.no_grad():\n    s.out.sum().backward(retain_graph=True)",
}

CHANGES: Mapping[str, str] = {
    "change": "change(s)",
    "change and call": "change(s)\ns.out = call(s)",
    "call, change, backward": "s.out = call(s)\nchange(s)\ns.out.sum().backward(retain_graph=True)",
    "call twice, change, call": "call(s)\ncall(s)\nchange(s)\ns.out = call(s)",
    "change, no_grad": "with torch.no_grad():\n    call(s)\n    change(s)\n    s.out = call(s)",
}

LIVES: Mapping[str, str] = {
    "deepcopy": "s.layer = copy.deepcopy(s.layer)\ns.out = call(s)",
    "pickle": "s.layer = pickle.loads(pickle.dumps(s.layer))\ns.out = call(s)",
    "load_state_dict": "s.layer.load_state_dict({name: each * 0.5 for name, each in s.layer.state_dict().items()})\ns.out = call(s)",
    "load_state_dict, assign": "s.layer.load_state_dict({name: each * 0.5 for name, each in s.layer.state_dict().items()}, assign=True)\n"
    "s.out = call(s)",
    "float": "s.layer.float()\ns.x = s.x.detach().float().requires_grad_()\n"
    "s.more = {name: each.detach().float() for name, each in s.more.items()}\ns.edges = floated(s.edges)\ns.out = call(s)",
    "layer float": "s.layer.float()\ns.out = call(s)",
    "frozen": "s.layer.requires_grad_(False)\ns.out = call(s)",
    "frozen and thawed": "s.layer.requires_grad_(False)\ncall(s)\ns.layer.requires_grad_(True)\ns.out = call(s)",
    "parameters in place": "with torch.no_grad():\n    for each in s.layer.parameters():\n        each.mul_(0.5)\ns.out = call(s)",
    "parameters' data": "for each in s.layer.parameters():\n    each.data = each.data * 0.5\ns.out = call(s)",
    "buffers in place": "for each in s.layer.buffers():\n    each.mul_(2)\ns.out = call(s)",
    "features in place": "with torch.no_grad():\n    s.x.mul_(0.5)\ns.out = call(s)",
    "zero_grad": "s.layer.zero_grad(set_to_none=False)\ns.out = call(s)",
    "seeds": "torch.manual_seed(4)\nrandom.seed(4)\nnp.random.seed(4)\ns.out = call(s)",
    "message of the class replaced": 'type(s.layer).message = tripled(type(s.layer).message)\ns.out = call(s)',
    "message of the layer replaced": "s.layer.message = tripled(s.layer.message)\ns.out = call(s)",
    "second layer": "s.second = copy.deepcopy(s.layer)\ns.out = call(s) + s.second(s.x, s.edges, **s.more)",
    "other aggregation": 's.layer.aggr_module = torch_geometric.nn.MaxAggregation()\ns.out = call(s)',
    "hook of x": "s.x.register_hook(lambda grad: HEARD.append(tuple(grad.shape)) or grad * 2)\ns.out = call(s)",
    "hook of parameters": "for each in s.layer.parameters():\n    each.register_hook(lambda grad: COUNTED.update([1]) or grad * 2)\ns.out = call(s)",
    "hook after accumulation": "for each in s.layer.parameters():\n"
    "    each.register_post_accumulate_grad_hook(lambda each: COUNTED.update([tuple(each.grad.shape)]))\ns.out = call(s)",
    "full backward hook": "s.layer.register_full_backward_hook(lambda layer, inputs, outputs: HEARD.append(len(outputs)))\ns.out = call(s)",
    "forward hook": "s.layer.register_forward_hook(lambda layer, given, out: HEARD.append(len(given)))\ns.out = call(s)",
    "message hook": "s.layer.register_message_forward_hook(lambda layer, given, out: HEARD.append(tuple(out.shape)))\ns.out = call(s)",
    "message pre-hook": "s.layer.register_message_forward_pre_hook(lambda layer, given: HEARD.append(sorted(given[0])))\ns.out = call(s)",
    "aggregate hook": "s.layer.register_aggregate_forward_hook(lambda layer, given, out: out * 2)\ns.out = call(s)",
    "propagate hook": "s.layer.register_propagate_forward_pre_hook(lambda layer, given: HEARD.append(1))\ns.out = call(s)",
    "hook of a module": "for each in list(s.layer.children()):\n    each.register_forward_hook(lambda module, given, out: HEARD.append(1))\ns.out = call(s)",
    "retain_grad": "if s.out is not None and s.out.requires_grad:\n    s.out.retain_grad()",
}  # fmt: skip

STEPS: Mapping[str, str] = {**CALLS, **BACKWARDS, **CHANGES, **LIVES}
"""Every step by its name."""
