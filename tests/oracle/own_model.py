"""A GPT-2 in plain PyTorch, for what transformers does not offer: attention in both directions, and products of bf16 operands.

Parameter names and layouts are those of transformers' GPT2LMHeadModel. generate.py compares it with that model, causal and unrounded.
"""

import math

import torch
from torch import nn


class Product(torch.autograd.Function):
    """a @ b with both operands of each of the three products (value and two gradients) rounded by `rounding`."""

    @staticmethod
    def forward(context, a, b, rounding):
        a, b = rounding(a), rounding(b)
        context.save_for_backward(a, b)
        context.rounding = rounding
        return a @ b

    @staticmethod
    def backward(context, gradient):
        a, b = context.saved_tensors
        gradient = context.rounding(gradient)
        return gradient @ b.transpose(-1, -2), a.transpose(-1, -2) @ gradient, None


class Attention(torch.autograd.Function):
    """Fused attention [heads][tokens][size] with rounded operands where hetrain's device table rounds them: q is scaled first,
    exponentials meet v before they are divided by their sum, probabilities meet the gradient. Unrounded, this is ordinary attention."""

    @staticmethod
    def forward(context, q, k, v, mask, rounding):
        scale = 1.0 / math.sqrt(q.shape[-1])
        scores = (rounding(scale * q) @ rounding(k).transpose(1, 2)).masked_fill(mask, -math.inf)
        exponential = (scores - scores.amax(-1, keepdim=True)).exp()
        total = exponential.sum(-1, keepdim=True)
        mixed = (rounding(exponential) @ rounding(v)) / total
        context.save_for_backward(q, k, v, exponential / total, mixed)
        context.scale, context.rounding = scale, rounding
        return mixed

    @staticmethod
    def backward(context, gradient):
        q, k, v, probability, mixed = context.saved_tensors
        scale, rounding = context.scale, context.rounding
        mean = (gradient * mixed).sum(-1, keepdim=True)
        d_scores = rounding(probability * (rounding(gradient) @ rounding(v).transpose(1, 2) - mean))
        d_q = scale * (d_scores @ rounding(k))
        d_k = d_scores.transpose(1, 2) @ rounding(scale * q)
        d_v = rounding(probability).transpose(1, 2) @ rounding(gradient)
        return d_q, d_k, d_v, None, None


def to_bf16(x):
    return x.to(torch.bfloat16).to(x.dtype)


def unrounded(x):
    return x


class Gpt2(nn.Module):
    def __init__(self, settings, causal, dtype):
        super().__init__()
        self.settings, self.causal = settings, causal
        self.rounding = to_bf16 if dtype == "bf16" else unrounded
        width, inner = settings["n_embd"], settings["n_inner"]
        shapes = {"wte.weight": (settings["vocab_size"], width), "wpe.weight": (settings["n_positions"], width)}
        for layer in range(settings["n_layer"]):
            shapes |= {f"h.{layer}.{name}": shape for name, shape in {
                "ln_1.weight": (width,), "ln_1.bias": (width,), "attn.c_attn.weight": (width, 3 * width), "attn.c_attn.bias": (3 * width,),
                "attn.c_proj.weight": (width, width), "attn.c_proj.bias": (width,), "ln_2.weight": (width,), "ln_2.bias": (width,),
                "mlp.c_fc.weight": (width, inner), "mlp.c_fc.bias": (inner,), "mlp.c_proj.weight": (inner, width),
                "mlp.c_proj.bias": (width,)}.items()}
        shapes |= {"ln_f.weight": (width,), "ln_f.bias": (width,)}
        self.shapes = shapes
        self.values = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for shape in shapes.values())

    def named_parameters(self, *unused, **also_unused):
        return [("transformer." + name, value) for name, value in zip(self.shapes, self.values)]

    def linear(self, x, name):
        parameter = dict(zip(self.shapes, self.values))
        return Product.apply(x, parameter[name + ".weight"], self.rounding) + parameter[name + ".bias"]

    def norm(self, x, name):
        parameter = dict(zip(self.shapes, self.values))
        centred = x - x.mean(-1, keepdim=True)
        scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + self.settings["layer_norm_epsilon"])
        return centred * scale * parameter[name + ".weight"] + parameter[name + ".bias"]

    def attention(self, x, name):
        tokens, width = x.shape
        heads = self.settings["n_head"]
        size = width // heads
        q, k, v = (part.view(tokens, heads, size).transpose(0, 1) for part in self.linear(x, name + ".c_attn").split(width, -1))
        mask = torch.ones(tokens, tokens, dtype=torch.bool).triu(1) & self.causal
        mixed = Attention.apply(q, k, v, mask, self.rounding)
        return self.linear(mixed.transpose(0, 1).reshape(tokens, width), name + ".c_proj")

    def forward(self, tokens):
        """Logits [n][V] of one sequence of n tokens."""
        parameter = dict(zip(self.shapes, self.values))
        x = parameter["wte.weight"][tokens] + parameter["wpe.weight"][: len(tokens)]
        for layer in range(self.settings["n_layer"]):
            x = x + self.attention(self.norm(x, f"h.{layer}.ln_1"), f"h.{layer}.attn")
            inner = self.linear(self.norm(x, f"h.{layer}.ln_2"), f"h.{layer}.mlp.c_fc")
            x = x + self.linear(nn.functional.gelu(inner, approximate="tanh"), f"h.{layer}.mlp.c_proj")
        return Product.apply(self.norm(x, "ln_f"), parameter["wte.weight"].T, self.rounding)
