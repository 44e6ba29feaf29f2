"""Runs a case in PyTorch: batch, first gradients, ten AdamW steps, in float64 (the truth) and in float32 (to know the noise). Of dtype
autocast the truth is float32 under torch.autocast to bfloat16, and the noise what rounding makes of float64."""

import contextlib
import dataclasses
import math

import numpy
import torch
from torch.overrides import TorchFunctionMode

from own_model import Gpt2

STEPS = 10
WARMUP = 2
MINIMUM_RATE = 1e-5
BETAS = (0.9, 0.95)
EPSILON = 1e-8
WEIGHT_DECAY = 0.1


class Precision(TorchFunctionMode):
    """With double=True every float32 that model code asks for (norm statistics, softmax, rotary tables) becomes float64, and a
    float32 result is an error: what comes out is the model's own code in float64 throughout."""

    def __init__(self, double):
        super().__init__()
        self.double = double

    def __enter__(self):
        torch.set_default_dtype(torch.float64 if self.double else torch.float32)
        return super().__enter__()

    def __exit__(self, *exception):
        torch.set_default_dtype(torch.float32)
        return super().__exit__(*exception)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.double:
            if function is torch.Tensor.float:
                function = torch.Tensor.double
            args = tuple(torch.float64 if value is torch.float32 else value for value in args)
            kwargs = {key: torch.float64 if value is torch.float32 else value for key, value in kwargs.items()}
        result = function(*args, **kwargs)
        if self.double and isinstance(result, torch.Tensor) and result.dtype == torch.float32:
            raise RuntimeError(f"{function} gave float32 in the float64 run")
        return result


def batch(case):
    """Tokens, targets, weights and sequence bounds of all micro-batches, one behind the other."""
    random = numpy.random.RandomState(1000 + case.seed)
    lengths = [length for micro_batch in case.micro_batches for length in micro_batch]
    count = sum(lengths)
    vocab = case.model["vocab_size"]
    tokens = random.randint(0, vocab, count).astype(numpy.int32)
    targets = random.randint(0, vocab, count).astype(numpy.int32)
    if case.ignored:
        targets[random.random_sample(count) < case.ignored] = -1
    weights = numpy.ones(count, numpy.float32)
    if case.weighted:
        weights = random.uniform(0.25, 2.0, count).astype(numpy.float32)
        weights[random.random_sample(count) < 0.1] = 0.0
    starts = numpy.concatenate([[0], numpy.cumsum(lengths)]).astype(numpy.int64)
    return tokens, targets, weights, starts


def initial_weights(case, shapes):
    """Matrices large enough that attention is far from uniform; gains around 1 and biases around 0, but neither."""
    random = numpy.random.RandomState(case.seed)
    weights = {}
    for name in sorted(shapes):
        value = random.standard_normal(shapes[name])
        if len(shapes[name]) >= 2:
            value *= 1.2 / math.sqrt(min(shapes[name]))
        elif name.endswith("bias"):
            value *= 0.2
        else:
            value = 1.0 + 0.2 * value
        weights[name] = value.astype(numpy.float32)
    return weights


def make_model(case):
    """The model and its config.json (a dictionary)."""
    import transformers

    if case.family == "own_gpt2":
        config = transformers.AutoConfig.for_model("gpt2", **case.model)
        model = Gpt2(case.model, case.causal, case.dtype)
    else:
        config = transformers.AutoConfig.for_model(case.family, **case.model)
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    return model.eval(), config


def parameters(case, model):
    """(name in files, parameter) in the model's order; a tied head appears once, as the embedding."""
    return [(case.rename.get(name, name), value) for name, value in model.named_parameters()]


def mean_loss(model, data):
    """sum of weight * -log p[target] over the sum of weights; each sequence by itself, so attention never leaves it."""
    tokens, targets, weights, starts = data
    weights = weights * (targets >= 0)
    total = float(weights.astype(numpy.float64).sum())
    loss = 0.0
    for begin, end in zip(starts[:-1], starts[1:]):
        if begin == end:
            continue
        token = torch.from_numpy(tokens[begin:end].astype(numpy.int64))
        logits = model(token) if isinstance(model, Gpt2) else model(input_ids=token[None], use_cache=False).logits[0]
        target = torch.from_numpy(targets[begin:end].astype(numpy.int64))
        each = torch.nn.functional.cross_entropy(logits, target, ignore_index=-1, reduction="none")
        loss = loss + (each * torch.tensor(weights[begin:end].tolist(), dtype=logits.dtype)).sum()
    return loss / total


def learning_rate(case, step):
    if step < WARMUP:
        return case.learning_rate * (step + 1) / WARMUP
    progress = (step - WARMUP) / (STEPS - WARMUP)
    return MINIMUM_RATE + 0.5 * (1.0 + math.cos(math.pi * progress)) * (case.learning_rate - MINIMUM_RATE)


def as_numpy(named):
    return {name: value.detach().to(torch.float64).numpy().copy() for name, value in named}


def run(case, double):
    """Everything a file holds but the batch, as float64 arrays."""
    data = batch(case)
    autocast = case.dtype == "autocast" and double
    double = double != (case.dtype == "autocast")
    with Precision(double) if not autocast else contextlib.nullcontext():
        model, _ = make_model(case)
        model = model.double() if double else model
        named = parameters(case, model)
        initial = initial_weights(case, {name: tuple(value.shape) for name, value in named})
        with torch.no_grad():
            for name, value in named:
                value.copy_(torch.from_numpy(initial[name].astype(numpy.float64)))
        matrices = [value for _, value in named if value.dim() >= 2]
        vectors = [value for _, value in named if value.dim() < 2]
        optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}],
                                      lr=case.learning_rate, betas=BETAS, eps=EPSILON, foreach=False)
        largest = {}  # of each gradient element over the steps
        result = {"weight": initial, "losses": [], "grad_norms": [], "rates": []}
        for step in range(STEPS):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(case, step)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss = mean_loss(model, data)
            loss.backward()
            gradient = as_numpy([(name, value.grad) for name, value in named])
            largest = {name: numpy.maximum(numpy.abs(value), largest.get(name, 0.0)) for name, value in gradient.items()}
            result.setdefault("grad", gradient)
            norm = torch.nn.utils.clip_grad_norm_([value for _, value in named], case.clip or math.inf, foreach=False)
            optimizer.step()
            result["losses"].append(float(loss.detach()))
            result["grad_norms"].append(float(norm))
            result["rates"].append(learning_rate(case, step))
        result["final"] = as_numpy(named)
        result["null"] = {name: (value > 0.0) & (value < 1e-10 * value.max()) for name, value in largest.items()}
    return result


def null_elements(case):
    """Name -> mask of the elements whose gradient is 0 in theory and rounding noise in practice: softmax does not see a constant added
    to all scores of a row, so these are the key biases that no rotation follows. AdamW blows the noise up to steps of about the
    learning rate, so after ten steps no two implementations agree on them."""
    return run(dataclasses.replace(case, dtype="f32"), double=True)["null"]


def relative(truth, value):
    """Norm of the difference over norm (float64 arrays)."""
    norm, difference = numpy.linalg.norm(truth), numpy.linalg.norm(truth - value)
    return float(difference / norm if norm > 0.0 else difference)
