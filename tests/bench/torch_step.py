"""One training step of GPT-2 124M in PyTorch on the CPU (forward, backward, clipping, fused AdamW), to set beside
`build/het_bench --what step --model gpt2:124m --sequences B --length T`. Prints one JSON line a shape and dtype, medians.

    python3 tests/bench/torch_step.py --threads 2 --shapes 4x64,4x256,1x1024 --dtypes f32,bf16 [--compile]
"""
import argparse
import json
import statistics
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def measure(sequences, length, dtype, repetitions, compiled):
    torch.manual_seed(0)
    config = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    config._attn_implementation = "sdpa"
    model = GPT2LMHeadModel(config)
    run = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)
    tokens = torch.randint(0, config.vocab_size, (sequences, length))
    times = []
    for _ in range(repetitions + 2):  # two that do not count
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            loss = run(tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - start)
    return times[2:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--shapes", default="4x64,4x256,1x1024")
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--compile", action="store_true")
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    for shape in a.shapes.split(","):
        sequences, length = map(int, shape.split("x"))
        for dtype in a.dtypes.split(","):
            times = measure(sequences, length, dtype, a.repetitions, a.compile)
            median = statistics.median(times)
            print(json.dumps({"name": "step", "engine": "torch " + torch.__version__, "compiled": a.compile, "threads": a.threads, "dtype": dtype,
                              "sequences": sequences, "length": length, "ms": 1e3 * median, "ms_low": 1e3 * min(times), "ms_high": 1e3 * max(times),
                              "tokens_per_s": sequences * length / median}), flush=True)


main()
