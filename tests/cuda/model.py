#!/usr/bin/env python3
"""A model of a training step on an H200, from counted ops: what the device's ops read, write, multiply and start for one layer of a small GPT-2
(build/standin/bench_cuda count, nothing computed), scaled to gpt2:124m and gpt2:1558m. The rates of copies, products and attention were measured on a
card (tests/bench/RESULTS.md, CUDA), each kernel by itself; what the model adds up is compared with the steps that were measured there. It knows no
limit of power, by which gpt2:1558m runs at 1,665 of 1,980 MHz.

    python3 tests/cuda/model.py [--check] build/standin/bench_cuda
    python3 tests/cuda/model.py --measured FOLDER

--check: TAP, with the limits that hold today. --measured: what bench_cuda measured on a card (op_timer_*.jsonl, and for shares of the limit
bench_ops.jsonl and bench_gemm.jsonl), by op and shape, most first, beside what the rates below say of the same op.

The scale: bytes of activations go with tokens and width, those of weights with width squared, logits with tokens and vocabulary.
A step's time is the sum over ops of FLOPs / rate + other bytes / copy + launches x gap.
"""
import glob
import json
import os
import subprocess
import sys

COPY = 4.26e12                  # bytes a second of a copy
GAP = 1.7e-6                    # seconds from node to node of a graph: an estimate
PRODUCTS = {768: 590e12, 1600: 618e12}  # FLOP/s of a layer's products of that width, of 16,384 and 4,096 rows, each by itself at full clock
HEAD = 750e12                   # the same of logits and their gradients
ATTENTION = {"attention_forward": {768: 245e12, 1600: 236e12}, "attention_backward": {768: 213e12, 1600: 209e12}}  # head 64, 1,024 tokens, causal
WIDTH, HEADS, VOCAB, TOKENS = 128, 2, 12800, 256  # as the vocabularies below: rows of logits so long that they are kept in shared memory
X, Y, DX, DY, ADDED = 1, 2, 4, 8, 16
STEPS = {  # model: layers, width, vocabulary, micro-batches, sequences, length, measured, goal: thousands of tokens a second
    "gpt2:124m": (12, 768, 50257, 2, 16, 1024, 517, 520),
    "gpt2:1558m": (48, 1600, 50257, 8, 4, 1024, 46.1, 53),
}

LEAST = {"gpt2:124m": 560, "gpt2:1558m": 49}


def count_steps(program, layers, steps, what):
    model = f"gpt2:layers={layers},width={WIDTH},heads={HEADS},vocab={VOCAB},context={TOKENS}"
    text = subprocess.run([program, what, model, "1", str(TOKENS), str(steps)], check=True, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "STANDIN_SKIP": "1"}).stdout
    return [json.loads(line) for line in text.splitlines()[1:]]


def counted(program, layers=1, mode="count"):
    """The ops of a second step: the first one has more. mode "streams": streams are bf16."""
    what = ("calls", "bytes", "flops", "launches", "rounded")
    first = {(op["op"], op["bf16"], *op["shape"]): op for op in count_steps(program, layers, 1, mode)}
    ops = count_steps(program, layers, 2, mode)
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


def seconds(op, d, vocab, tokens, length):
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
        return flops / (HEAD if is_head(op) else PRODUCTS[d]) + other / COPY + gap
    if name in ATTENTION:
        return op["flops"] * rows * k * length / TOKENS / ATTENTION[name][d] + gap
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


def step(ops, update, layers, d, vocab, micro_batches, sequences, length, *_):
    tokens = sequences * length
    parts = {"products": 0.0, "attention": 0.0, "head": 0.0, "rest": 0.0}
    layer = {id(op): share for op, share in in_layer(ops)}
    for op in ops:
        name = op["op"]
        if is_update(op):
            continue
        t = micro_batches * seconds(op, d, vocab, tokens, length)
        share = layer.get(id(op), 0.0)
        part = "products" if name.startswith("linear") else "attention" if name in ATTENTION else "rest"
        if is_head(op):
            parts["head"] += t
        else:
            parts[part] += t * (share * layers + (1 - share))
    parts["update"] = (12.0 * layers * d * d + vocab * d) * update[0] / COPY + (update[1] + layers * update[2]) * GAP
    return parts, tokens * micro_batches / sum(parts.values())


def expected(op, vocab):
    """Milliseconds of all calls, of an op as it was counted on a card."""
    name, bare = op["op"], op["launches"] * GAP
    if name.startswith("linear"):
        near = min(PRODUCTS, key=lambda width: abs(width - min(op["shape"][1:])))
        rate = HEAD if vocab in op["shape"] else PRODUCTS[near]
        return 1e3 * (op["flops"] / rate + bare)
    if name in ATTENTION:
        return 1e3 * (op["flops"] / ATTENTION[name][768] + bare)
    return 1e3 * (op["bytes"] / COPY + bare)


def lines_of(path):
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [json.loads(line) for line in file if line.startswith("{")]


def print_measured(folder):
    """Shares are of the fastest copy or of the fastest product, whichever is more. The first calls load kernels, so all calls count as the least."""
    measured = [m for name in ("bench_ops.jsonl", "bench_gemm.jsonl") for m in lines_of(os.path.join(folder, name))]
    copy = max((1e9 * m["rate"] for m in measured if m["name"] == "copy"), default=0.0)
    peak = max((1e12 * m["rate"] for m in measured if m["unit"] == "TFLOP/s"), default=0.0)
    for path in sorted(glob.glob(os.path.join(folder, "op_timer_*.jsonl"))):
        ops, (head, *counted_ops) = {}, lines_of(path) or [{}]
        for op in counted_ops:
            total = ops.setdefault((op["op"], "x".join(str(n) for n in op["shape"] if n)), [0, 0.0, 0.0, 0.0, 0.0])
            for i, value in enumerate((op["calls"], op["calls"] * op["least"], op["bytes"], op["flops"], expected(op, head["vocab"]))):
                total[i] += value
        whole = sum(op[1] for op in ops.values()) or 1.0
        print(os.path.basename(path))
        print("    %-28s %-18s %6s %12s %12s %7s %13s %16s %8s" % (
            "op", "shape", "calls", "ms", "predicted", "of all", "GB/s", "TFLOP/s", "of most"))
        for (name, shape), (calls, ms, size, flops, predicted) in sorted(ops.items(), key=lambda op: -op[1][1])[:32]:
            each = ms / 1e3 or 1.0
            share = max(size / each / copy if copy else 0.0, flops / each / peak if peak else 0.0)
            print("    %-28s %-18s %6d %12.3f %12.3f %5.1f %% %13.1f %16.2f %8s" % (
                name, shape, calls, ms, predicted, 100 * ms / whole, size / each / 1e9, flops / each / 1e12,
                "%.0f %%" % (100 * share) if share else "-"))


def main():
    if "--measured" in sys.argv:
        print_measured(sys.argv[-1])
        return
    check = "--check" in sys.argv
    program = [a for a in sys.argv[1:] if not a.startswith("--")][0]
    ops = counted(program)
    update = update_facts(ops, counted(program, 2))
    token, launches, weights, rounded = layer_facts(ops)
    halves = layer_facts(counted(program, 1, "streams"))
    rows = [
        ("bytes a token and layer, of d", token, 664, 230, 224),
        ("kernels and products a layer", launches, 91, 40, 25),
        ("activations rounded a layer", rounded, 15, 0, 0),
        ("weights rounded a layer", weights, 12, 0, 0),
        ("bytes an element, to update", update[0], 36, 38, 38),
        ("kernels that update a layer", update[2], 32, 4, 4),
        ("bytes a token and layer, of d, bf16 streams", halves[0], 664, 230, 198),
        ("kernels and products a layer, bf16 streams", halves[1], 91, 40, 25),
    ]
    if not check:
        print("counted, one layer of GPT-2".ljust(44) + "%10s %10s %10s" % ("now", "before", "goal"))
        for what, value, before, goal, _ in rows:
            print(what.ljust(44) + "%10.0f %10.0f %10.0f" % (value, before, goal))
        print()
    predicted = []
    for name, shape in STEPS.items():
        parts, rate = step(ops, update, *shape)
        predicted.append((name, rate / 1e3))
        if not check:
            print(name + ": by these rates %.1f thousand tokens/s (measured: %.1f, goal: %d); ms a step: " % (rate / 1e3, shape[6], shape[7]) +
                  ", ".join("%s %.1f" % (part, 1e3 * t) for part, t in parts.items()))
    if check:
        for number, (what, value, _, _, limit) in enumerate(rows, 1):
            print("%s %d - %s: %.0f, at most %d" % ("ok" if value <= limit + 0.5 else "not ok", number, what, value, limit))
        for number, (name, rate) in enumerate(predicted, len(rows) + 1):
            print("%s %d - %s: predicted %.1f thousand tokens/s, at least %d" % (
                "ok" if rate >= LEAST[name] else "not ok", number, name, rate, LEAST[name]))
        print("1..%d" % (len(rows) + len(predicted)))
        sys.exit(any(value > limit + 0.5 for _, value, _, _, limit in rows) or any(rate < LEAST[name] for name, rate in predicted))


main()
