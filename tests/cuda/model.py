#!/usr/bin/env python3
"""A model of a training step on an H200, from counted ops: what the device's ops read, write, multiply and start for one layer of a small GPT-2
(build/standin/bench_cuda count, nothing computed), scaled to gpt2:124m and gpt2:1558m. Nothing here is measured on a card: rates are estimates.

    python3 tests/cuda/model.py [--check] build/standin/bench_cuda

--check: TAP, with the limits that hold today.

The scale: bytes of activations go with tokens and width, those of weights with width squared, logits with tokens and vocabulary.
A step's time is the sum over ops of FLOPs / rate + other bytes / copy + launches x gap.
"""
import json
import os
import subprocess
import sys

COPY = 4.3e12                   # bytes a second of a copy
GAP = 1.7e-6                    # seconds from node to node of a graph
PRODUCTS = {768: 560e12, 1600: 600e12}  # FLOP/s of products of that width
CYCLES = 132 * 1.755e9          # a second, of all multiprocessors
HMMA = 1.55                     # cycles of a multiprocessor's tensor cores for one, m16n8k16
# The main loops of attention, head 64 in bf16, as tests/cuda/sass.py counts them for compute capability 9.0: rows of a block, of a warp, step; what a
# warp issues where a tile has masked scores, and elsewhere; its cycles of shared memory, HMMA. FIRST: those of the first kernels, and the rates that
# they were estimated to have (causal, 1,024 tokens): a share of what their tightest unit allows. These kernels are taken to reach the same share.
LOOPS = {
    "attention_forward": [(128, 32, 64, 953, 687, 160, 128)],
    "attention_backward": [(128, 32, 32, 552, 407, 144, 96), (128, 32, 32, 681, 557, 193, 128)],
}
FIRST = {
    "attention_forward": (150e12, [(128, 16, 64, 504, 504, 144, 64)]),
    "attention_backward": (102e12, [(64, 16, 64, 540, 540, 256, 96), (64, 16, 64, 1000, 1000, 416, 128)]),
}
WIDTH, HEADS, VOCAB, TOKENS = 128, 2, 12800, 256  # as the vocabularies below: rows of logits so long that they are kept in shared memory
X, Y, DX, DY = 1, 2, 4, 8
STEPS = {  # model: layers, width, vocabulary, micro-batches, sequences, length, predicted before, goal: thousands of tokens a second
    "gpt2:124m": (12, 768, 50257, 2, 16, 1024, 219, 520),
    "gpt2:1558m": (48, 1600, 50257, 8, 4, 1024, 26, 53),
}

LEAST = {"gpt2:124m": 510, "gpt2:1558m": 48}


def attention_limit(name, loops, length):
    """FLOP/s that a unit of the multiprocessor allows: a causal query has half of `length` keys, and what is masked in the tiles at both ends; the last
    tiles, as many as a block has rows, are masked."""
    cycles = 0.0
    for rows, warp, step, masked, issued, shared, tensor in loops:
        tile, last = (max(count / 4, shared, HMMA * tensor) for count in (issued, masked))
        cycles += (tile * (1 + (rows + step) / length) + (last - tile) * 2 * rows / length) / (warp * step)
    return (5 if "backward" in name else 2) * 2 * 64 * CYCLES / cycles


def attention_rate(name, length, cautious):
    """cautious: what the first kernels lost beside their tightest unit takes as long as it did."""
    estimate, first = FIRST[name]
    limit, before = attention_limit(name, LOOPS[name], length), attention_limit(name, first, 1024)
    return 1 / (1 / limit + 1 / estimate - 1 / before) if cautious else estimate * limit / before


def count_steps(program, layers, steps):
    model = f"gpt2:layers={layers},width={WIDTH},heads={HEADS},vocab={VOCAB},context={TOKENS}"
    text = subprocess.run([program, "count", model, "1", str(TOKENS), str(steps)], check=True, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "STANDIN_SKIP": "1"}).stdout
    return [json.loads(line) for line in text.splitlines()[1:]]


def counted(program, layers=1):
    """The ops of a second step: the first one has more."""
    what = ("calls", "bytes", "flops", "launches", "rounded")
    first = {(op["op"], op["bf16"], *op["shape"]): op for op in count_steps(program, layers, 1)}
    ops = count_steps(program, layers, 2)
    for op in ops:
        for field in what:
            op[field] -= first.get((op["op"], op["bf16"], *op["shape"]), {}).get(field, 0)
    return [op for op in ops if op["calls"] > 0]


def is_head(op):
    return VOCAB in op["shape"] and (op["op"].startswith("linear") or op["op"] == "cross_entropy")


def is_update(op):
    """Of the end of a step, or a copy with the host."""
    return op["op"].split("_")[0] in ("copy", "clear", "sum", "adamw", "round", "verdict")


def in_layer(ops):
    """Of forward and backward of the layer: no head, no embedding, no optimizer, no copies with the host. The final norm is of the head's width and
    counts with the layer's: two norms of three."""
    for op in ops:
        name = op["op"]
        if is_head(op) or is_update(op) or name.startswith("embedding"):
            continue
        if name == "dropout_backward" and not op["bf16"] & Y:
            continue  # the embedding's
        share = 4 / 5 if name == "norm_forward" else 2 / 3 if name.startswith("norm") else 1
        yield op, share


def weight_bytes(op):
    """Bytes that do not go with the tokens: weights read (where they are not there in bf16 rounded first), gradients read and written."""
    if not op["op"].startswith("linear"):
        return 0.0
    return (8.0 if op["rounded"] or op["op"] == "linear_backward_weight" else 2.0) * op["shape"][1] * op["shape"][2] * op["calls"]


def reads_for_bias(op):
    """Whether dy is read once more, beside the products, for the bias's gradient."""
    inputs, outputs = op["shape"][1:]
    least = (2.0 if op["bf16"] & DY else 8.0) * TOKENS * outputs
    return op["bytes"] / op["calls"] - 2.0 * TOKENS * inputs - least - 8.0 * inputs * outputs >= (2.0 if op["bf16"] & DY else 4.0) * TOKENS * outputs


def layer_facts(ops):
    layer = list(in_layer(ops))
    token = sum(share * (op["bytes"] - weight_bytes(op)) for op, share in layer) / (TOKENS * WIDTH)
    launches = sum(share * op["launches"] for op, share in layer)
    weights = sum(op["rounded"] for op, _ in layer)
    rounded = sum(op["calls"] for op, _ in layer if op["op"].startswith("linear") and
                  not (op["bf16"] & (DY if "backward" in op["op"] else X)))
    return token, launches, weights, rounded


def seconds(op, d, vocab, tokens, length, cautious):
    """Of this op in one micro-batch."""
    k, name = d / WIDTH, op["op"]
    rows = tokens / TOKENS
    wide = vocab / VOCAB if is_head(op) else k
    gap = op["launches"] * GAP
    if name.startswith("linear"):
        inputs, outputs = op["shape"][1] * k, op["shape"][2] * wide
        flops = 2.0 * tokens * inputs * outputs * op["calls"]
        other = 6.0 * inputs * outputs * op["calls"] if op["rounded"] else 0.0
        if name == "linear_forward" and not op["bf16"] & Y and not is_head(op):
            other += tokens * outputs * 6  # the stream that it adds to, and floats in place of bf16 for the sum
        if name == "linear_backward_weight" and reads_for_bias(op):
            other += tokens * outputs * (2 if op["bf16"] & DY else 4)
        if is_head(op) and name != "linear_backward_weight":
            gap *= max(1.0, tokens / 8192)
        return flops / PRODUCTS[d] + other / COPY + gap
    if name in LOOPS:
        return op["flops"] * rows * k * length / TOKENS / attention_rate(name, length, cautious) + gap
    if name == "cross_entropy":
        return op["bytes"] * rows * wide / COPY + gap
    return op["bytes"] * rows * k / COPY + gap


def update_facts(ops, deeper):
    """Of the end of a step: bytes an element; kernels beside those of layers, and of a layer. `deeper`: with two layers."""
    def all_of(these, what):
        return sum(op[what] for op in these if is_update(op) and not op["op"].startswith("copy"))
    elements = sum(op["shape"][0] * op["calls"] for op in ops if op["op"] == "adamw")
    layer = all_of(deeper, "launches") - all_of(ops, "launches")
    return all_of(ops, "bytes") / elements, all_of(ops, "launches") - layer, layer


def step(ops, update, cautious, layers, d, vocab, micro_batches, sequences, length, *_):
    tokens = sequences * length
    parts = {"products": 0.0, "attention": 0.0, "head": 0.0, "rest": 0.0}
    layer = {id(op): share for op, share in in_layer(ops)}
    for op in ops:
        name = op["op"]
        if is_update(op):
            continue
        t = micro_batches * seconds(op, d, vocab, tokens, length, cautious)
        share = layer.get(id(op), 0.0)
        part = "products" if name.startswith("linear") else "attention" if name in LOOPS else "rest"
        if is_head(op):
            parts["head"] += t
        else:
            parts[part] += t * (share * layers + (1 - share))
    parts["update"] = (12.0 * layers * d * d + vocab * d) * update[0] / COPY + (update[1] + layers * update[2]) * GAP
    return parts, tokens * micro_batches / sum(parts.values())


def main():
    check = "--check" in sys.argv
    program = [a for a in sys.argv[1:] if not a.startswith("--")][0]
    ops = counted(program)
    update = update_facts(ops, counted(program, 2))
    token, launches, weights, rounded = layer_facts(ops)
    rows = [
        ("bytes a token and layer, of d", token, 664, 230, 223),
        ("kernels and products a layer", launches, 91, 40, 29),
        ("activations rounded a layer", rounded, 15, 0, 0),
        ("weights rounded a layer", weights, 12, 0, 0),
        ("bytes an element, to update", update[0], 36, 38, 38),
        ("kernels that update a layer", update[2], 32, 4, 4),
    ]
    if not check:
        print("counted, one layer of GPT-2".ljust(44) + "%10s %10s %10s" % ("now", "before", "goal"))
        for what, value, before, goal, _ in rows:
            print(what.ljust(44) + "%10.0f %10.0f %10.0f" % (value, before, goal))
        print()
    predicted = []
    for name, shape in STEPS.items():
        parts, rate = step(ops, update, False, *shape)
        predicted.append((name, rate / 1e3))
        if not check:
            slow = step(ops, update, True, *shape)[1]
            print(name + ": predicted %.1f thousand tokens/s, %.1f if attention's latencies stay (before: %d, goal: %d); ms a step: " % (
                rate / 1e3, slow / 1e3, shape[6], shape[7]) + ", ".join("%s %.1f" % (part, 1e3 * t) for part, t in parts.items()))
    if check:
        for number, (what, value, _, _, limit) in enumerate(rows, 1):
            print("%s %d - %s: %.0f, at most %d" % ("ok" if value <= limit + 0.5 else "not ok", number, what, value, limit))
        for number, (name, rate) in enumerate(predicted, len(rows) + 1):
            print("%s %d - %s: predicted %.1f thousand tokens/s, at least %d" % (
                "ok" if rate >= LEAST[name] else "not ok", number, name, rate, LEAST[name]))
        print("1..%d" % (len(rows) + len(predicted)))
        sys.exit(any(value > limit + 0.5 for _, value, _, _, limit in rows) or any(rate < LEAST[name] for name, rate in predicted))


main()
