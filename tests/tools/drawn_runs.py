#!/usr/bin/env python3
"""Command lines at random: what is trained, and how it is divided. Each run ends with the weights of one rank, is refused (status 2, which is counted
by what it says), or is a finding. A case is a function of its number.
usage: tests/tools/drawn_runs.py [FIRST COUNT [PROGRAMS]]    PROGRAMS: where train, generate and evaluate are, build/checked"""
import collections
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

SCHEDULES = "gpipe 1f1b interleaved zb-h1 zb-h2 zb-v v-half v-min greedy bidirectional bitpipe dualpipev sliced-1f1b terapipe".split()
LATE = "pipedream 2bw xpipe hogbatch 1f1b gpipe".split()
told = collections.Counter()
findings = 0


def program(name, *arguments):
    """Status, standard output, the end of what it complains."""
    try:
        run = subprocess.run([os.path.join(programs, name), *arguments], capture_output=True, text=True, errors="replace", timeout=90)
    except subprocess.TimeoutExpired:
        return -1, "", "it did not end in 90 s"
    return run.returncode, run.stdout, run.stderr.strip()[-200:]


def train(*arguments):
    return program("train", "--data", "text", "--quiet", "--hash", "--evaluate-every", "0", *arguments)


def judge(number, run, wanted, arguments):
    global findings
    status, output, complaint = run
    if status == 0 and output == wanted:
        told["equal"] += 1
    elif status == 2:
        told[re.sub(r"\d+", "N", complaint[:120])] += 1
    else:
        findings += 1
        print(f"case {number}: status {status}, {complaint or 'other bits'}: {' '.join(arguments)}", flush=True)
    return status == 0


def maybe(draw, share, *words):
    return list(words) if draw.random() < share else []


def model(draw):
    family, heads = draw.choice(["gpt2", "llama", "qwen2", "qwen3", "neox"]), draw.choice([4, 6, 8])
    spec = f"{family}:layers={draw.randint(1, 4)},width={8 * heads},heads={heads},context={draw.choice([16, 32, 64])}"
    return spec + (f",kv_heads={heads // 2}" if family not in ("gpt2", "neox") and draw.random() < 0.5 else "")


def trained(draw):
    """What is trained: none of it depends on the layout."""
    words = ["--model", model(draw), "--sequences", str(draw.choice([1, 2, 4, 6])), "--micro-batches", str(draw.choice([1, 2, 3, 4, 8])),
             "--granule", "1", "--seed", str(draw.randrange(99)), "--steps", str(draw.choice([2, 3, 4])), "--warmup", "1"]
    words += maybe(draw, 0.3, "--dropout", "0.2") + maybe(draw, 0.3, "--dtype", "bf16") + maybe(draw, 0.25, "--optimizer", "muon")
    return words + maybe(draw, 0.2, "--experts", "4,2") + maybe(draw, 0.1, "--spike", "6", "--on-bad-step", "skip")


def plan(draw, ranks):
    plans = ["dp", "pp", f"cp{ranks}", f"hp{ranks}", f"tp{ranks}", "tp:" + ",".join(str(draw.randint(1, 3)) for _ in range(ranks))]
    plans += {4: ["dp2xpp2", "pp2xcp2", "pp2xhp2", "pp2xtp2", "dp2xcp2"], 6: ["dp3xpp2", "dp2xpp3", "pp2xtp3", "pp3xhp2"]}.get(ranks, [])
    return draw.choice(plans)


def devices(draw, ranks):
    return ["--devices", ",".join(draw.choice(["cpu:1", "cpu:1", "cpu:1@0.5", "cpu:2"]) for _ in range(ranks))]


def layout(draw):
    ranks = draw.choice([2, 3, 4, 6])
    words = devices(draw, ranks) + ["--plan", plan(draw, ranks)]
    words += maybe(draw, 0.5, "--schedule", draw.choice(SCHEDULES)) + maybe(draw, 0.25, "--slices", str(draw.choice([2, 3, 4])))
    words += maybe(draw, 0.3, "--backward", draw.choice(["split", "deferred"])) + maybe(draw, 0.35, "--recompute", draw.choice(["unit", "stage"]))
    words += maybe(draw, 0.15, "--store", "1") + maybe(draw, 0.45, "--shard", draw.choice(["state", "gradients", "weights"]))
    return words + maybe(draw, 0.15, "--replan", f"1:{plan(draw, ranks)}")


def back_to(step):
    """The run in `saved` as it was when only its first checkpoints had been made."""
    kept = sorted(name for name in os.listdir("saved") if name.startswith("step-"))
    for name in kept[step:]:
        shutil.rmtree("saved/" + name)
    with open("saved/latest", "w") as latest:
        latest.write(kept[step - 1])
    if os.path.exists("saved/model.safetensors"):
        os.remove("saved/model.safetensors")


def synchronous(number, draw):
    math = trained(draw)
    status, one, complaint = train(*math)
    if status != 0:
        return judge(number, (status, one, complaint), None, math)
    for _ in range(2):
        words = math + layout(draw)
        judge(number, train(*words), one, words)
    shutil.rmtree("saved", ignore_errors=True)
    words = math + layout(draw) + ["--out", "saved", "--checkpoint-every", "1", "--keep", "9"]
    if judge(number, train(*words), one, words):
        back_to(1)
        words = ["--resume", "saved"] + layout(draw)
        judge(number, program("train", "--hash", "--quiet", *words), one, math + words)


def late(number, draw):
    """Several updates a step: the same bits in every run, and when it goes on."""
    ranks = draw.choice([2, 3, 4])
    divided = devices(draw, ranks) + ["--plan", draw.choice(["pp", "dp", "dp2xpp2"] if ranks == 4 else ["pp", "dp"]), "--schedule", draw.choice(LATE)]
    words = trained(draw) + divided + ["--updates", str(draw.choice([1, 2, 4]))] + maybe(draw, 0.5, "--staleness", str(draw.randint(1, 3)))
    status, one, complaint = train(*words)
    if not judge(number, (status, one, complaint), one, words):
        return
    shutil.rmtree("saved", ignore_errors=True)
    if judge(number, train(*words, "--out", "saved", "--checkpoint-every", "1", "--keep", "9"), one, words):
        back_to(1)
        judge(number, program("train", "--hash", "--quiet", "--resume", "saved", *divided), one, words + ["--resume"])


def timeless(run):
    return run[0], re.sub(r'"(seconds|tokens_per_s)":[^,}]*', "", run[1]), run[2]


def used(number, draw):
    """Generated text and the loss of a text, of a model that was trained for a moment."""
    shutil.rmtree("saved", ignore_errors=True)
    words = ["--model", model(draw), "--steps", "2", "--warmup", "1", "--out", "saved"] + maybe(draw, 0.3, "--experts", "4,2")
    run = train(*words)
    if not judge(number, run, run[1], words):
        return
    given = ["--init", "saved"] + maybe(draw, 0.3, "--weights", draw.choice(["bf16", "int8"]))
    prompt = draw.choice(["a", "int main", "x" * 70])
    text = ["--tokens", str(draw.choice([5, 40, 90])), "--prompt", prompt, "--ids", "--ignore-end"] + maybe(draw, 0.3, "--top-k", "7")
    loss = ["--data", "small", "--json", "--sequences", str(draw.choice([1, 3]))] + maybe(draw, 0.3, "--stride", "9")
    for name, words in (("generate", given + text), ("evaluate", given + loss)):
        one = timeless(program(name, *words, "--threads", "1"))
        for _ in range(2):
            ranks = draw.choice([2, 3, 4])
            divided = words + devices(draw, ranks) + ["--plan", plan(draw, ranks)]
            judge(number, timeless(program(name, *divided)), one[1], [name] + divided)


first, count = (int(word) for word in (sys.argv[1:3] or (0, 20)))
programs = os.path.abspath(sys.argv[3] if len(sys.argv) > 3 else "build/checked")
source = os.path.abspath("hetrain.h")
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    with open(source, "rb") as file, open("text", "wb") as text, open("small", "wb") as small:
        text.write(file.read(40000))
        file.seek(0)
        small.write(file.read(3000))
    for case in range(first, first + count):
        generator = random.Random(case)
        (synchronous, synchronous, late, used)[case % 4](case, generator)
    os.chdir("/")
for what, times in told.most_common():
    print(f"{times:6} {what}")
print(f"{count} cases, {told['equal']} runs with equal bits, {findings} findings")
sys.exit(findings > 0)
