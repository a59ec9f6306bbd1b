"""Messages whose gradients are None, or another's, or are looked at."""

from tests.differential.messages.code import Code, Sort

GRADIENTS = {
    "detached": "out = out.detach() * 2",
    "detached operand": "out = x_j.detach() + 0 * out",
    "detached factor": "out = out * torch.sigmoid(out.detach())",
    "detached in place": "out = out * 2\nout.detach_()",
    "data": "out = out.data * 2",
    "straight through": "out = out + (out.round() - out).detach()",
    "comparison": "out = (out > 0).to(out.dtype)",
    "comparison of operands": "out = (x_j >= x_i).to(x_j.dtype)",
    "whole numbers": "out = (out * 10).long()",
    "truth": "out = (out > 0)",
    "ones": "out = torch.ones_like(x_j)",
    "zeros": "out = torch.zeros_like(out)",
    "new tensor": "out = out.new_tensor(2.0).expand(out.shape)",
    "times zero": "out = out * 0",
    "operand not used": "out = x_i.sigmoid()",
    "edge_attr not used": "unused_$k = edge_attr\nout = out * 2",
    "edge_weight not used": "_ = edge_weight\nout = out * 2",
    "edge_weight detached": "out = out * edge_weight.detach().view(-1, 1)",
    "edge_weight alone": "out = edge_weight.view(-1, 1).expand(-1, 4).exp()",
    "index alone": "out = index.view(-1, 1).to(x_j.dtype).expand(-1, 4)",
    "index is a number": "out = out * index.view(-1, 1)",
    "parameter not used": "out = out * 2",
    "parameter detached": "out = out * self.scale_$k.detach()",
    "parameter as a number": "out = out * float(self.scale_$k)",
    "parameter": "out = out * self.scale_$k",
    "parameter in a branch": "out = out * (self.scale_$k if float(self.scale_$k) > 5 else 1)",
    "own function": "out = Own_$k.apply(out)",
    "own function, other gradient": "out = Wrong_$k.apply(out)",
    "own function that notes": "out = Noting_$k.apply(out)",
    "own function of a parameter": "out = Wrong_$k.apply(out * self.scale_$k)",
    "checkpoint": "out = torch.utils.checkpoint.checkpoint(torch.exp, out, use_reentrant=False)",
    "checkpoint, reentrant": "out = torch.utils.checkpoint.checkpoint(torch.exp, out, use_reentrant=True)",
    "hook": "out = out * 2\nif out.requires_grad:\n    out.register_hook(lambda grad: grad * 3)",
    "hook of an operand": "if x_j.requires_grad:\n    x_j.register_hook(lambda grad: grad.clamp(-1, 1))",
    "hook of a parameter": "out = out * self.scale_$k\nif out.requires_grad:\n    self.scale_$k.register_hook(NOTED_$k.append)",
    "hook of a node": "out = out * 2\nif out.grad_fn is not None:\n    out.grad_fn.register_hook(lambda *given: NOTED_$k.append(1))",
    "gradient within": "with torch.enable_grad():\n    leaf_$k = x_j.detach().requires_grad_()\n    (inner_$k,) = torch.autograd.grad(leaf_$k.pow(3).sum(), leaf_$k)\nout = out + inner_$k",
    "gradient within, kept": "if out.requires_grad:\n    (inner_$k,) = torch.autograd.grad(out.pow(2).sum(), out, create_graph=True)\n    out = out + inner_$k",
    "backward within": "leaf_$k = torch.ones(2, dtype=x_j.dtype, requires_grad=True)\nif torch.is_grad_enabled():\n    (leaf_$k * 2).sum().backward()\n    out = out * leaf_$k.grad[0]",
    "jvp within": "out = torch.func.jvp(torch.sin, (out,), (torch.ones_like(out),))[1]",
    "vmap within": "out = torch.func.vmap(torch.tanh)(out)",
    "grad within": "out = out + torch.func.grad(lambda t: t.sin().sum())(out.detach())",
    "scaled gradient": "out = out.detach() + (out - out.detach()) * 0.1",
    "where": "out = torch.where(out > 0, out, out.detach() * 2)",
    "masked by nan": "out = torch.where(out > 0, out.clamp(min=0.1).log(), torch.zeros_like(out))",
    "root of zero": "out = out.clamp(min=0).sqrt()",
    "norm of zero": "out = (x_i - x_i).norm(dim=-1, keepdim=True) + out",
    "absolute of zero": "out = (out - out).abs() + out",
    "ties of max": "out = torch.maximum(out, out)",
    "ties of amax": "out = torch.cat([out, out], -1).amax(-1, keepdim=True)",
    "ties of max, dim": "out = torch.stack([out, out], -1).max(-1).values",
    "ties of clamp": "out = out.round().clamp(-1, 1)",
    "prod of zeros": "out = (out.round()).prod(-1, keepdim=True)",
    "power zero": "out = out.round() ** 0",
    "complex": "out = torch.view_as_real(torch.complex(out, out)).sum(-1)",
    "half": "out = out.to(torch.float16).to(x_j.dtype)",
    "float": "out = out.to(torch.float32)",
    "double": "out = out.double()",
    "other width": "out = out[:, :3]",
    "one column": "out = out[:, 0]",
    "more dimensions": "out = out.unsqueeze(-1)",
    "expanded": "out = out[:, :1].expand(-1, 6)",
    "constant of the edges": "out = torch.full((x_j.size(0), 2), 0.5, dtype=x_j.dtype)",
    "a parameter alone": "out = self.scale_$k.expand(x_j.size(0), 3)",
    "none": "out = None",
    "a number": "out = 2.0",
    "a list": "out = [out]",
    "a tuple": "out = (out, out)",
    "numpy": "out = torch.from_numpy(np.tanh(out.detach().numpy()))",
    "numpy function": "out = np.tanh(out.detach())",
    "sparse": "out = out.to_sparse().to_dense()",
    "subclass": "out = out.as_subclass(Kind_$k)",
    "parameter made": "out = torch.nn.Parameter(out.detach())",
    "retain_grad of weight": "out = self.lin(out)\nself.kept_$k = self.lin.weight.grad is None",
}  # fmt: skip

_TOP = """NOTED_$k = []


class Own_$k(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.cos()


class Wrong_$k(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 5


class Noting_$k(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        NOTED_$k.append("forward")
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        NOTED_$k.append("backward")
        return grad


class Kind_$k(torch.Tensor):
    pass
"""

SORTS = {
    "gradient": Sort(
        "B5",
        {
            "gradient": {
                name: Code(
                    top=_TOP if "_$k.apply" in text or "NOTED" in text or "Kind" in text else "",
                    init="self.scale_$k = torch.nn.Parameter(torch.tensor(1.5))"
                    if "parameter" in name
                    else "",
                    body=text,
                )
                for name, text in GRADIENTS.items()
            }
        },
        share=3.0,
    ),
}
