"""Operations of torch, on ordinary and on special numbers."""

from tests.differential.messages.code import Code, Sort

_UNARY = (
    "sgn sign round floor ceil trunc frac abs neg exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square "
    "reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sigmoid erf erfc erfinv lgamma "
    "digamma relu selu celu nan_to_num positive angle isnan isinf isfinite signbit logical_not deg2rad sinc i0"
)
_FUNCTIONAL = (
    "relu6 elu gelu silu mish softplus softsign tanhshrink hardtanh hardswish hardsigmoid hardshrink "
    "softshrink leaky_relu logsigmoid"
)
_BINARY = (
    "maximum minimum fmax fmin atan2 hypot copysign fmod remainder logaddexp logaddexp2 pow nextafter "
    "heaviside floor_divide true_divide mul sub add gt le eq ne logical_and logical_or xlogy ldexp"
)

OPERATIONS = {
    **{name: f"torch.{name}(out)" for name in _UNARY.split()},
    **{f"{name}, times": f"torch.{name}(out) * z_i" for name in _UNARY.split()},
    **{name: f"F.{name}(out)" for name in _FUNCTIONAL.split()},
    **{name: f"torch.{name}(out, x_i)" for name in _BINARY.split()},
    "gelu, tanh": 'F.gelu(out, approximate="tanh")',
    "softplus, beta": "F.softplus(out, beta=2.0, threshold=3.0)",
    "elu, alpha": "F.elu(out, alpha=0.3)",
    "leaky_relu, negative": "F.leaky_relu(out, -0.5)",
    "threshold": "F.threshold(out, 0.5, 0.0)",
    "clamp": "out.clamp(-0.5, 0.5)",
    "clamp, tensors": "out.clamp(x_i, x_i)",
    "clamp, nan": "out.clamp(max=float('nan'))",
    "clamp, crossed": "out.clamp(1.0, -1.0)",
    "power": "out ** 3",
    "power, half": "out ** 0.5",
    "power, negative": "out ** -1",
    "power, two": "out.pow(2.0)",
    "base": "2.0 ** out",
    "base, negative": "(-2.0) ** out",
    "base, zero": "torch.pow(0.0, out)",
    "divided": "out / x_i",
    "divided, floor": 'torch.div(out, x_i, rounding_mode="floor")',
    "divided, trunc": 'torch.div(out, x_i, rounding_mode="trunc")',
    "divided, number": "1.0 / out",
    "modulo": "out % 1.5",
    "modulo, negative": "out % -1.5",
    "number modulo": "1.5 % (out + 0.1)",
    "floor divided": "out // 0.7",
    "round, decimals": "torch.round(out, decimals=1)",
    "where, nan": "torch.where(torch.isnan(out), torch.zeros_like(out), out)",
    "masked_fill": "out.masked_fill(out > 0, 1.5)",
    "masked_fill, inf": "out.masked_fill(out > 0, float('-inf'))",
    "softmax": "out.softmax(-1)",
    "log_softmax": "out.log_softmax(-1)",
    "logsumexp": "out.logsumexp(-1, keepdim=True)",
    "norm": "out.norm(dim=-1, keepdim=True)",
    "norm, inf": "out.norm(p=float('inf'), dim=-1, keepdim=True)",
    "normalised": "F.normalize(out, dim=-1)",
    "cosine": "F.cosine_similarity(out, x_i, dim=-1).unsqueeze(-1)",
    "max of columns": "out.max(-1, keepdim=True).values",
    "amin of columns": "out.amin(-1, keepdim=True)",
    "argmax": "out.argmax(-1, keepdim=True).to(out.dtype)",
    "prod": "out[:, :3].prod(-1, keepdim=True)",
    "var": "out.var(-1, keepdim=True)",
    "std": "out.std(-1, keepdim=True)",
    "cumsum of columns": "out.cumsum(-1)",
    "cumprod of columns": "out[:, :3].cumprod(-1)",
    "sorted columns": "out.sort(-1).values",
    "layer_norm": "F.layer_norm(out, out.shape[-1:])",
    "glu": "F.glu(out, -1)",
    "dropout, none": "F.dropout(out, 0.0)",
    "dropout, all": "F.dropout(out, 1.0)",
    "lerp": "torch.lerp(out, x_i, 0.3)",
    "addcmul": "torch.addcmul(out, x_i, x_i, value=0.5)",
    "addcdiv": "torch.addcdiv(out, x_i, x_i.abs() + 1)",
    "signs": "torch.sgn(out) * x_i",
    "signs and rounds": "torch.round(torch.sign(out)) + x_i.floor() * out",
    "difference of infinities": "out - x_i",
    "zero times": "out * 0.0 + x_i",
    "outer": "(out.unsqueeze(1) * x_i.unsqueeze(2)[:, :2]).sum(1)",
    "product of rows": "(out * x_i).sum(-1, keepdim=True)",
    "matrix": "out @ self.lin.weight",
    "einsum": "torch.einsum('ec,ec->ec', out, x_i)",
    "bmm": "torch.bmm(out.unsqueeze(1), x_i.unsqueeze(2)).squeeze(-1)",
    "bilinear": "F.bilinear(out, x_i, self.lin.weight.unsqueeze(0)[:, : out.size(-1), : out.size(-1)])",
    "polar": "torch.polar(out.abs(), x_i).real",
    "bits": "(out.to(torch.int64) & 3).to(out.dtype)",
    "narrow numbers": "out.to(torch.int8).to(out.dtype)",
    "unsigned": "out.to(torch.uint8).to(out.dtype)",
    "bfloat16": "out.to(torch.bfloat16).to(out.dtype)",
    "flipped columns": "out.flip(-1)",
    "rolled columns": "out.roll(1, -1)",
    "doubled columns": "out.repeat(1, 2)",
    "interleaved": "out.repeat_interleave(2, -1)",
    "padded": "F.pad(out, (1, 2))",
    "gathered columns": "out[:, [2, 0, 1]]",
    "every second column": "out[:, ::2]",
    "last columns": "out[..., -2:]",
    "transposed twice": "out.t().t()",
    "unfolded": "out.unfold(1, 2, 1).sum(-1)",
    "one_hot": "F.one_hot(out.argmax(-1), out.size(-1)).to(out.dtype)",
    "tril": "torch.tril(out.unsqueeze(-1).expand(-1, -1, 3)).sum(-1)",
    "diff of columns": "out.diff(dim=-1)",
    "searchsorted": "torch.searchsorted(torch.linspace(-2, 2, 5, dtype=out.dtype), out).to(out.dtype)",
    "bucketize": "torch.bucketize(out, torch.linspace(-2, 2, 5, dtype=out.dtype)).to(out.dtype)",
    "embedding": "F.embedding((out[:, 0].abs().nan_to_num() * 3).long() % WIDTH, self.lin.weight)",
    "weight by index": "out + self.lin.weight[index % WIDTH][:, : out.size(-1)]",
    "nan": "out * float('nan')",
    "large": "out * 1e300",
    "small": "out * 1e-310",
}  # fmt: skip

SORTS = {
    "operation": Sort(
        "A2",
        {"operation": {name: Code(body=f"out = {text}") for name, text in OPERATIONS.items()}},
        share=4.0,
    ),
}
