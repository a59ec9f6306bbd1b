"""Messages that are functions of their operands, as users write them: no effect, no mode, no size is read."""

from tests.differential.messages.code import Code, Sort

_LIN = "self.first_$k = torch.nn.Linear(WIDTH, WIDTH)"
_EDGE = "self.edges_$k = torch.nn.Linear(3, WIDTH)"
_NETWORK = (
    "self.net_$k = torch.nn.Sequential(torch.nn.Linear(2 * WIDTH + 3, 16), torch.nn.ReLU(), "
    "torch.nn.Linear(16, WIDTH))"
)
_ATT = "self.att_$k = torch.nn.Parameter(torch.linspace(-1, 1, WIDTH).view(1, 4, WIDTH // 4))"

BENIGN = {
    "GINE": Code(init=_EDGE, body="out = (x_j + self.edges_$k(edge_attr)).relu()"),
    "GINE, eps": Code(
        init=f"{_EDGE}\nself.eps_$k = 1e-7",
        body="edge_attr = self.edges_$k(edge_attr)\nout = F.relu(x_j + edge_attr) + self.eps_$k",
    ),
    "ResGated": Code(
        init=f"{_LIN}\nself.second_$k = torch.nn.Linear(WIDTH, WIDTH)\nself.act_$k = torch.nn.Sigmoid()",
        body="key = self.first_$k(x_i)\nquery = self.second_$k(x_j)\nout = self.act_$k(key + query) * x_j",
    ),
    "GATConv's": Code(
        init="self.slope_$k = 0.2\nself.dropout_$k = 0.0",
        body="alpha = x_j.sum(-1) if x_i is None else x_j.sum(-1) + x_i.sum(-1)\n"
        "alpha = F.leaky_relu(alpha, self.slope_$k)\n"
        "alpha = softmax(alpha, index, ptr, size_i)\n"
        "alpha = F.dropout(alpha, p=self.dropout_$k, training=self.training)\n"
        "out = alpha.unsqueeze(-1) * x_j",
    ),
    "GATv2Conv's": Code(
        init=f"{_ATT}\nself.heads_$k, self.size_$k = 4, WIDTH // 4",
        body="a, b = x_i.view(-1, self.heads_$k, self.size_$k), x_j.view(-1, self.heads_$k, self.size_$k)\n"
        "e = F.leaky_relu(a + b, 0.2)\n"
        "alpha = (e * self.att_$k).sum(dim=-1)\n"
        "alpha = softmax(alpha, index, ptr, size_i)\n"
        "out = (b * alpha.unsqueeze(-1)).view(-1, WIDTH)",
    ),
    "TransformerConv's": Code(
        init=f"{_LIN}\nself.heads_$k, self.size_$k = 2, WIDTH // 2",
        body="query = x_i.view(-1, self.heads_$k, self.size_$k)\n"
        "key = x_j.view(-1, self.heads_$k, self.size_$k)\n"
        "alpha = (query * key).sum(dim=-1) / math.sqrt(self.size_$k)\n"
        "alpha = softmax(alpha, index, ptr, size_i)\n"
        "out = (key * alpha.view(-1, self.heads_$k, 1)).view(-1, self.heads_$k * self.size_$k)",
    ),
    "softmax": Code(body="out = softmax(x_j, index, num_nodes=size_i) * x_j"),
    "temperature": Code(
        init="self.t_$k = torch.nn.Parameter(torch.ones(1))",
        body="out = softmax(x_j * self.t_$k, index, ptr, size_i) * x_j",
    ),
    "edge network": Code(
        init=_NETWORK, body="out = self.net_$k(torch.cat([x_i, x_j, edge_attr], dim=-1))"
    ),
    "edge network of a difference": Code(
        init=_NETWORK, body="out = self.net_$k(torch.cat((x_i, x_j - x_i, edge_attr), dim=1))"
    ),
    "edge network by layers": Code(
        init="self.layers_$k = torch.nn.ModuleList([torch.nn.Linear(WIDTH, WIDTH) for _ in range(2)])",
        body="for layer in self.layers_$k:\n    out = layer(out).tanh()",
    ),
    "network by index": Code(
        init="self.layers_$k = torch.nn.ModuleDict({'a': torch.nn.Linear(WIDTH, WIDTH)})",
        body="out = self.layers_$k['a'](x_j)",
    ),
    "PyG's MLP": Code(
        init="self.mlp_$k = torch_geometric.nn.MLP([WIDTH, 8, WIDTH], norm=None)", body="out = self.mlp_$k(x_j)"
    ),
    "gated": Code(body="gate = torch.sigmoid(x_i + x_j)\nout = gate * x_j + (1 - gate) * x_i"),
    "weighted": Code(body="out = x_j * edge_weight.view(-1, 1)"),
    "weighted, unsqueezed": Code(body="out = edge_weight.unsqueeze(-1) * x_j"),
    "weighted, None": Code(body="out = x_j if edge_weight is None else edge_weight[:, None] * x_j"),
    "module or None": Code(
        init=f"self.none_$k = None\n{_LIN}",
        body="if self.none_$k is not None:\n    out = self.none_$k(out)\n"
        "if self.first_$k is not None:\n    out = self.first_$k(out)",
    ),
    "flag": Code(init="self.root_$k = True", body="if self.root_$k:\n    out = out + x_i"),
    "text": Code(
        init="self.mode_$k = 'mul'", body="out = x_i * x_j if self.mode_$k == 'mul' else x_i + x_j"
    ),
    "number": Code(init="self.alpha_$k = 0.3", body="out = (1 - self.alpha_$k) * x_j + self.alpha_$k * x_i"),
    "constant of the module": Code(top="SCALE_$k = 0.5", body="out = out * SCALE_$k"),
    "activation of the layer": Code(init="self.act_$k = torch.nn.ELU()", body="out = self.act_$k(x_i + x_j)"),
    "function of the layer": Code(init="self.act_$k = torch.tanh", body="out = self.act_$k(x_i + x_j)"),
    "leaky_relu": Code(body="out = F.leaky_relu(x_i - x_j, negative_slope=0.1)"),
    "norm of a difference": Code(body="out = x_j * (x_i - x_j).pow(2).sum(-1, keepdim=True).add(1e-3).rsqrt()"),
    "distance": Code(body="d = (x_i - x_j).norm(dim=-1, keepdim=True)\nout = torch.exp(-d) * x_j"),
    "heads": Code(body="out = (x_j.view(-1, 2, WIDTH // 2) * 2).flatten(1)"),
    "split columns": Code(body="a, b = x_j.chunk(2, dim=-1)\nout = torch.cat([a.sigmoid() * b, a], dim=-1)"),
    "columns": Code(body="out = torch.cat([x_j[:, :2] * 2, x_j[:, 2:]], dim=-1)"),
    "width is read": Code(body="out = x_j / math.sqrt(x_j.size(-1))"),
    "stacked": Code(body="out = torch.stack([x_i, x_j], dim=-1).sum(-1)"),
    "where": Code(body="out = torch.where(x_j > 0, x_j, x_j * 0.1)"),
    "extrema": Code(body="out = torch.maximum(x_i, x_j) - torch.minimum(x_i, x_j)"),
    "clamped": Code(body="out = (x_i - x_j).clamp(min=-1.0, max=1.0)"),
    "powers": Code(body="out = x_j**2 + x_i.pow(3) - x_j.square()"),
    "in place on its own": Code(body="out = x_i - x_j\nout *= 2\nout = out.add_(1).relu_()"),
    "parameter": Code(
        init="self.scale_$k = torch.nn.Parameter(torch.ones(WIDTH))", body="out = x_j * self.scale_$k"
    ),
    "matrix": Code(
        init="self.weight_$k = torch.nn.Parameter(torch.eye(WIDTH))", body="out = (x_j - x_i) @ self.weight_$k"
    ),
    "F.linear": Code(init=_LIN, body="out = F.linear(x_j, self.first_$k.weight, self.first_$k.bias)"),
    "buffer": Code(
        init='self.register_buffer("scale_$k", torch.full((1,), 0.5))', body="out = x_j * self.scale_$k"
    ),
    "dropout in eval": Code(body="out = F.dropout(x_j, p=0.5, training=False) * 2"),
    "dropout of 0": Code(init="self.drop_$k = torch.nn.Dropout(0.0)", body="out = self.drop_$k(x_j)"),
    "LayerNorm": Code(init="self.norm_$k = torch.nn.LayerNorm(WIDTH)", body="out = self.norm_$k(x_j + x_i)"),
    "two operands": Code(body="out = x_j * z_i + z_j"),
    "augmented": Code(body="out = x_j\nout = out + x_i\nout = out * z_j"),
    "helper": Code(
        top="def blend_$k(a, b, share=0.5):\n    return a * share + b * (1 - share)\n",
        body="out = blend_$k(x_i, x_j, share=0.3)",
    ),
    "helper of the layer": Code(
        init=_LIN,
        members="def transform_$k(self, t):\n    return self.first_$k(t).relu()\n",
        body="out = self.transform_$k(x_j) + self.transform_$k(x_i)",
    ),
    "static helper": Code(
        members="@staticmethod\ndef half_$k(t):\n    return t * 0.5\n", body="out = self.half_$k(x_j)"
    ),
    "local function": Code(body="def half(t):\n    return t * 0.5\n\n\nout = half(x_i) + half(x_j)"),
    "lambda": Code(body="half = lambda t: t * 0.5\nout = half(x_j)"),
    "keywords": Code(body="out = torch.add(input=x_j, other=x_i, alpha=2)"),
    "starred": Code(body="both = [x_i, x_j]\nout = torch.cat([*both], dim=-1)[:, :WIDTH] * 2"),
    "dict of tensors": Code(body="given = {'a': x_i, 'b': x_j}\nout = given['a'] * given['b']"),
    "loop": Code(body="out = x_j\nfor factor in (0.5, 2.0, 3.0):\n    out = out * factor + x_i"),
    "sum of a list": Code(body="out = sum([x_i, x_j, z_j])"),
    "docstring and annotation": Code(body='out: Tensor = x_j\nassert out is not None, "a message"'),
    "radial basis": Code(
        init='self.register_buffer("centres_$k", torch.linspace(0, 2, WIDTH))',
        body="out = x_j * torch.exp(-0.5 * (edge_weight.view(-1, 1) - self.centres_$k) ** 2)",
    ),
    "cosine cutoff": Code(
        body="c = 0.5 * (torch.cos(edge_weight * math.pi / 2.0) + 1.0)\nout = x_j * c.view(-1, 1)"
    ),
    "super": Code(body="out = super(Own, self).message(x_j) * 0.5"),
}  # fmt: skip

# Of these, those that run in blocks, where their tensors do not fit in the cache.
IN_BLOCKS = {
    "norm of a difference", "distance", "stacked", "where", "extrema", "powers", "starred", "cosine cutoff",
}  # fmt: skip

SORTS = {"benign": Sort("benign", {"message": BENIGN}, share=1.0)}
