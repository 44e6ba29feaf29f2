"""Whole training steps (forward, backward, clipping, AdamW) of a GPT-2 shape on the CPU: hetrain, PyTorch eager, PyTorch compiled, and any other
engine given by a command; or, with --what attention, causal attention alone, forward and backward, beside PyTorch's fused one. All engines are
alive at once and take turns, A B C A B C, so that a disturbance meets all. Prints one JSON line an engine and configuration, then a table; ratios
are medians over the rounds of another engine's time by hetrain's of the same round.

    python3 tests/bench/compare.py                                  gpt2:124m at 4x64, 4x256, 1x1024 and a small model at 16x256; 1 and 2 threads
    python3 tests/bench/compare.py --what attention
    python3 tests/bench/compare.py --models gpt2:124m --shapes 4x256 --dtypes f32 --threads 2 --engine 'llm.c=OMP_NUM_THREADS=2 ./train_gpt2'

An engine given by a command is run once a round; of the numbers that stand before " ms" in its output the median counts.
"""
import argparse
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import time

PRESETS = {"gpt2:124m": {"layers": 12, "width": 768, "heads": 12, "vocab": 50257, "context": 1024}}
SMALL = "gpt2:layers=6,width=384,heads=6,vocab=256,context=256"
PARTS = {"step": ["step"], "attention": ["attention forward", "attention backward"]}  # what a turn measures
DEFAULT_RUNS = [("gpt2:124m", "4x64"), ("gpt2:124m", "4x256"), ("gpt2:124m", "1x1024"), (SMALL, "16x256")]


def settings_of(model):
    if model in PRESETS:
        return PRESETS[model]
    return {key: int(value) for key, value in (pair.split("=") for pair in model.split(":", 1)[1].split(","))}


# ---- PyTorch, in a process of its own ----

def torch_step(a):
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            batch, length, width = x.shape
            q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(width, dim=2))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self, layers, width, heads, vocab, context):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocab, width), nn.Embedding(context, width)
            self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
            nn.init.normal_(self.tokens.weight, std=0.02)
            self.head.weight = self.tokens.weight

        def forward(self, tokens, targets):
            x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.norm(x))
            return functional.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.reshape(-1))

    torch.manual_seed(0)
    torch.set_num_threads(a.threads)
    sequences, length = map(int, a.shape.split("x"))
    s = settings_of(a.model)
    model = Model(s["layers"], s["width"], s["heads"], s["vocab"], s["context"])
    run = torch.compile(model) if a.worker == "compiled" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)
    tokens = torch.randint(0, s["vocab"], (sequences, length + 1))

    def step():
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=a.dtype == "bf16"):
            loss = run(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return [time.perf_counter() - start]

    return step


def torch_attention(a):
    import torch
    from torch.nn import functional

    torch.manual_seed(0)
    torch.set_num_threads(a.threads)
    sequences, length = map(int, a.shape.split("x"))
    s = settings_of(a.model)
    dtype = torch.bfloat16 if a.dtype == "bf16" else torch.float32
    q, k, v, d_o = (torch.randn(sequences, length, s["heads"], s["width"] // s["heads"], dtype=dtype).transpose(1, 2) for _ in range(4))
    for x in (q, k, v):
        x.requires_grad_()

    def step():
        times = [time.perf_counter()]
        o = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        times.append(time.perf_counter())
        torch.autograd.grad(o, (q, k, v), d_o)
        times.append(time.perf_counter())
        return [after - before for before, after in zip(times, times[1:])]

    return step


def peak_resident():
    with open("/proc/self/status", encoding="ascii") as file:
        return next((1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM:")), 0)


def worker(a):
    step = torch_step(a) if a.what == "step" else torch_attention(a)
    step(), step()
    print(flush=True)
    for _ in sys.stdin:
        print(*("%.6f" % seconds for seconds in step()), flush=True)
        a.rounds -= 1
        if a.rounds == 0:
            break
    print(peak_resident(), flush=True)


# ---- engines that take turns ----

class Paced:
    """A process that makes one step for every line it gets and answers with the seconds of its parts; at the end, with its peak of resident bytes."""

    def __init__(self, name, command, environment=None):
        self.name, self.seconds, self.peak = name, [], 0
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.alive = self.line() is not None

    def line(self):
        text = self.process.stdout.readline()
        return text if text else None

    def turn(self):
        time.sleep(0.25)  # threads of the engine before this one may still spin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.seconds.append([float(x) for x in self.line().split()])

    def end(self):
        self.peak = int(float(self.line() or 0))
        self.process.stdin.close()
        self.process.wait()


class Command:
    def __init__(self, name, command):
        self.name, self.command, self.seconds, self.peak, self.alive = name, command, [], 0, True

    def turn(self):
        out = subprocess.run(self.command, shell=True, capture_output=True, text=True).stdout
        found = [float(x) for x in re.findall(r"([0-9.]+) ?ms", out)]
        if not found:
            sys.exit("compare.py: %s prints no number before ms" % self.name)
        self.seconds.append([1e-3 * statistics.median(found)])

    def end(self):
        pass


def engines_of(a, model, shape, dtype, threads):
    sequences, length = shape.split("x")
    rounds = str(a.rounds + 1)
    ours = [a.het_bench, "--what", a.what, "--paced", "--model", model, "--sequences", sequences, "--length", length, "--threads", str(threads),
            "--dtype", dtype, "--repetitions", rounds]
    made = [Paced("hetrain", ours)]
    if a.fast:
        made.append(Paced("hetrain, float sums", ours + ["--reduce", "fast"]))
    if a.isa:
        made.append(Paced("hetrain, " + a.isa, ours + ["--isa", a.isa]))
    for kind in ([] if a.no_torch else ["eager"] if a.no_compile or a.what == "attention" else ["eager", "compiled"]):
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
        made.append(Paced("PyTorch " + kind, [sys.executable, os.path.abspath(__file__), "--worker", kind, "--what", a.what, "--model", model,
                                               "--shape", shape, "--dtype", dtype, "--threads", str(threads), "--rounds", rounds], environment))
    made += [Command(*text.split("=", 1)) for text in a.engine]
    return [engine for engine in made if engine.alive]


def race(a, model, shape, dtype, threads):
    engines = engines_of(a, model, shape, dtype, threads)
    sequences, length = map(int, shape.split("x"))
    for _ in range(a.rounds + 1):
        for engine in engines:
            engine.turn()
    for engine in engines:
        engine.seconds = engine.seconds[1:]  # the first round is not counted: compilers' helpers may still run
        engine.end()
    rows = []
    for part, name in enumerate(PARTS[a.what]):
        for engine in engines:
            seconds, ours = ([turn[part] for turn in e.seconds] for e in (engine, engines[0]))
            rows.append({"name": name, "model": model, "shape": shape, "dtype": dtype, "threads": threads, "engine": engine.name,
                         "ms": 1e3 * statistics.median(seconds), "ms_low": 1e3 * min(seconds), "ms_high": 1e3 * max(seconds),
                         "tokens_per_s": sequences * length / statistics.median(seconds),
                         "hetrain_is_faster": statistics.median(other / our for other, our in zip(seconds, ours)),
                         "peak_resident": engine.peak, "hetrain_memory_share": engines[0].peak / engine.peak if engine.peak else 0})
            print(json.dumps(rows[-1]), flush=True)
    return rows


def table(rows):
    print("\n| what | model | shape | dtype | threads | engine | ms (low, high) | tokens/s | hetrain is faster | its memory / theirs |")
    print("|---|---|---|---|--:|---|--:|--:|--:|--:|")
    for r in rows:
        print("| %s | %s | %s | %s | %d | %s | %.4g (%.4g, %.4g) | %.0f | %.2f | %.2f |" % (
            r["name"], r["model"], r["shape"], r["dtype"], r["threads"], r["engine"], r["ms"], r["ms_low"], r["ms_high"], r["tokens_per_s"],
            r["hetrain_is_faster"], r["hetrain_memory_share"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--het-bench", default="build/het_bench")
    parser.add_argument("--what", choices=list(PARTS), default="step")
    parser.add_argument("--models", default="", help="separated by ;")
    parser.add_argument("--shapes", default="")
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engine", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--fast", action="store_true", help="hetrain with float sums as well")
    parser.add_argument("--isa", default="", help="hetrain with this instruction set as well")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--no-torch", action="store_true")
    for hidden in ("--worker", "--model", "--shape", "--dtype"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.worker:
        a.threads = int(a.threads)
        worker(a)
        return
    if not a.no_torch and importlib.util.find_spec("torch") is None:
        a.no_torch = True
        print("compare.py: no PyTorch here (python3 -m pip install torch), so it is left out", file=sys.stderr)
    runs = [(m, s) for m in a.models.split(";") for s in a.shapes.split(",")] if a.models and a.shapes else DEFAULT_RUNS
    rows = []
    for model, shape in runs:
        for dtype in a.dtypes.split(","):
            for threads in map(int, a.threads.split(",")):
                rows += race(a, model, shape, dtype, threads)
    table(rows)


main()
