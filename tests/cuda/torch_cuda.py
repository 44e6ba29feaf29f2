"""What build/bench_cuda measures, by PyTorch on the same card: one JSON line a measurement, under the same names and with the same work counted.
Training steps are those of a GPT of this file, compiled, its vocabulary padded to 50,304: bf16 autocast, f32 master weights, fused attention, fused AdamW, clipping.

    python3 tests/cuda/torch_cuda.py [all|ops|steps] [--small] [--eager] [--warm] [--device cuda|cpu]

--warm: one step is timed, not seven: for what is compiled to be kept for the next run.
--device cpu with --small says that the program works, and nothing of a GPU.
"""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "cuda"
COMPILED = True
WARM = False


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def compiled(call):
    return torch.compile(call) if COMPILED else call


def peak_bytes(call):
    """Of device memory while it runs, what it gets included; 0 where nobody counts."""
    if DEVICE != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats()
    call()
    return torch.cuda.max_memory_allocated()


def show(name, seconds, work, unit, **more):
    print(json.dumps({"name": name, "ms": 1e3 * seconds, "rate": work / seconds, "unit": unit, **more}), flush=True)


def measure(name, call, work, unit, at_least=0.05, **more):
    """Median of five rounds of as many calls as last `at_least` seconds."""
    def run(calls):
        wait()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        wait()
        return (time.perf_counter() - start) / calls
    run(3)
    calls = int(at_least / run(3)) + 1
    show(name, statistics.median(run(calls) for _ in range(5)), work, unit, **more)


def copies(size):
    a, b = (torch.empty(size, dtype=torch.uint8, device=DEVICE) for _ in range(2))
    measure("copy", lambda: b.copy_(a), 2e-9 * size, "GB/s")


def products(what, rows, width_in, width_out):
    """Plain products of bf16 matrices that are bf16 already; f32 in full precision."""
    work = 2e-12 * rows * width_in * width_out
    for dtype, name in ((torch.bfloat16, "bf16"), (torch.float32, "f32")):
        if dtype == torch.float32 and what != "768x3072":
            continue
        x, w, y = (torch.randn(s, device=DEVICE, dtype=dtype) for s in ((rows, width_in), (width_out, width_in), (rows, width_out)))
        measure(f"linear_forward_{what}_{name}", lambda: torch.mm(x, w.t()), work, "TFLOP/s")
        measure(f"linear_backward_input_{what}_{name}", lambda: torch.mm(y, w), work, "TFLOP/s")
        measure(f"linear_backward_weight_{what}_{name}", lambda: torch.mm(y.t(), x), work, "TFLOP/s")


def attention(sequences, length, heads, size):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    work = 2e-12 * sequences * length * length * heads * size
    q, k, v = (torch.randn(sequences, heads, length, size, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        g = torch.randn_like(o)
        with torch.no_grad():
            measure(f"attention_forward_head{size}_T{length}", lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), work, "TFLOP/s")
        measure(f"attention_backward_head{size}_T{length}", lambda: torch.autograd.grad(o, (q, k, v), g, retain_graph=True), 2.5 * work, "TFLOP/s")


def norm_backward(rows, width):
    x = torch.randn(rows, width, device=DEVICE, requires_grad=True)
    gain, bias = (torch.randn(width, device=DEVICE, requires_grad=True) for _ in range(2))
    y = compiled(lambda *a: F.layer_norm(a[0], (width,), a[1], a[2]))(x, gain, bias)
    g = torch.randn_like(y)
    measure("norm_backward", lambda: torch.autograd.grad(y, (x, gain, bias), g, retain_graph=True), 12e-9 * rows * width, "GB/s")


def cross_entropy(rows, vocab):
    logits = torch.randn(rows, vocab, device=DEVICE, requires_grad=True)
    target = torch.randint(0, vocab, (rows,), device=DEVICE)
    loss = compiled(lambda a, t: F.cross_entropy(a, t))
    call = lambda: torch.autograd.grad(loss(logits, target), logits)
    call()
    measure("cross_entropy", call, 8e-9 * rows * vocab, "GB/s", bytes=peak_bytes(call))


def adamw(count):
    w = torch.zeros(count, device=DEVICE, requires_grad=True)
    w.grad = torch.randn(count, device=DEVICE)
    optimizer = torch.optim.AdamW([w], lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    measure("adamw", optimizer.step, 28e-9 * count, "GB/s")


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + self.out(o)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers, width, heads, vocab, context):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, token, target):
        x = self.tokens(token) + self.positions.weight[: token.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), target.reshape(-1))


def step(name, shape, micro_batches, sequences, length):
    if DEVICE == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    with torch.device(DEVICE):
        model = GPT(*shape)
    if shape[0] > 12:  # many layers: the block is compiled once, not the model
        model.blocks = nn.ModuleList(compiled(block) for block in model.blocks)
        run = model
    else:
        run = compiled(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    token = torch.randint(0, shape[3], (sequences, length + 1), device=DEVICE)
    seconds = []
    for _ in range(4 if WARM else 10):
        wait()
        start = time.perf_counter()
        for _ in range(micro_batches):
            with torch.autocast(DEVICE, torch.bfloat16):
                loss = run(token[:, :-1], token[:, 1:]) / micro_batches
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait()
        seconds.append(time.perf_counter() - start)
    show(name, statistics.median(seconds[3:]), micro_batches * sequences * length, "tokens/s",
         bytes=torch.cuda.max_memory_allocated() if DEVICE == "cuda" else 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="?", default="all", choices=["all", "ops", "steps"])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    a = parser.parse_args()
    global DEVICE, COMPILED, WARM
    DEVICE, COMPILED, WARM = a.device, not a.eager, a.warm
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    if a.what != "steps":
        copies(1 << 20 if a.small else 1 << 30)
        rows = 64 if a.small else 16384
        for width_in, width_out, r in ((8192, 8192, 8192), (768, 2304, rows), (768, 3072, rows), (3072, 768, rows), (1600, 6400, rows)):
            if not a.small or width_in == 768:
                products(f"{width_in}x{width_out}", r, width_in, width_out)
        for sequences, length, size in ((1, 64, 64),) if a.small else ((16, 1024, 64), (4, 4096, 64), (16, 1024, 128), (4, 4096, 128)):
            attention(sequences, length, 2 if a.small else 12, size)
        norm_backward(64 if a.small else 32768, 768)
        cross_entropy(64 if a.small else 4096, 100 if a.small else 50304)
        adamw(1 << 16 if a.small else 124 << 20)
    if a.what != "ops":
        if a.small:
            step("step_small", (1, 32, 2, 64, 32), 2, 2, 32)
            return
        step("step_gpt2:124m_bf16_fast", (12, 768, 12, 50304, 1024), 2, 16, 1024)
        step("step_gpt2:1558m_bf16_fast", (48, 1600, 25, 50304, 1024), 8, 4, 1024)
        step("step_gpt2:1558m_2x16_bf16_fast", (48, 1600, 25, 50304, 1024), 2, 16, 1024)


main()
