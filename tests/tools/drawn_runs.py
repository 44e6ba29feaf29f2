#!/usr/bin/env python3
"""Command lines at random: what is trained, and how it is divided. Each run ends with the weights of one rank, is refused (status 2, which is counted
by what it says), or is a finding. A case is a function of its number.
usage: tests/tools/drawn_runs.py [FIRST COUNT [PROGRAMS]]    PROGRAMS: where train, generate and evaluate are, build/checked; beside it
../standin/train_nccl"""
import collections
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

SCHEDULES = "gpipe 1f1b interleaved zb-h1 zb-h2 zb-v v-half v-min greedy bidirectional bitpipe dualpipev sliced-1f1b terapipe".split()
LATE = "pipedream 2bw xpipe hogbatch 1f1b gpipe".split()
SECONDS = 90
told = collections.Counter()
findings = 0


def together(*commands):
    """Of several processes at once: a status, what all print that print something, and the end of what they complain."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "errors": "replace"}
    started = [subprocess.Popen([os.path.join(programs, command[0]), *command[1:]], **pipes) for command in commands]
    status, outputs, complaint, late = 0, set(), "", time.monotonic() + SECONDS
    for run in started:
        try:
            output, complained = run.communicate(timeout=max(1.0, late - time.monotonic()))
            outputs |= {output} - {""}
        except subprocess.TimeoutExpired:
            for other in started:
                other.kill()
            return -1, "", f"it did not end in {SECONDS} s"
        complaint = complaint or complained.strip()[-200:]
        status = 2 if 2 in (status, run.returncode) else status or run.returncode # who is refused ends the others
    if status == 0 and len(outputs) > 1:
        return -1, "", "the processes print different texts"
    return status, "".join(outputs), complaint


def program(name, *arguments):
    return together((name, *arguments))


SPOKEN = ("--data", "text", "--quiet", "--hash", "--evaluate-every", "0")


def train(*arguments):
    return program("train", *SPOKEN, *arguments)


def judge(number, run, wanted, arguments):
    """wanted None: a first run, which others are held against."""
    global findings
    status, output, complaint = run
    if status == 0 and wanted in (None, output):
        told["first" if wanted is None else "equal"] += 1
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
    """What is trained: none of it depends on the layout. Low-rank factors stand on a model that was trained for a moment."""
    words = ["--model", model(draw), "--sequences", str(draw.choice([1, 2, 4, 6])), "--micro-batches", str(draw.choice([1, 2, 3, 4, 8])),
             "--granule", "1", "--seed", str(draw.randrange(99)), "--steps", str(draw.choice([2, 3, 4])), "--warmup", "1"]
    words += maybe(draw, 0.3, "--dropout", "0.2") + maybe(draw, 0.3, "--dtype", "bf16") + maybe(draw, 0.25, "--optimizer", "muon")
    words += maybe(draw, 0.2, "--experts", "4,2") + maybe(draw, 0.1, "--spike", "6", "--on-bad-step", "skip")
    words += maybe(draw, 0.1, "--local-loss", "1") + maybe(draw, 0.1, "--clip", "0.1")
    if draw.random() < 0.15:
        shutil.rmtree("base", ignore_errors=True)
        if train(*words, "--out", "base")[0] == 0:
            words = ["--init", "base"] + words[2:] + ["--lora", "2"] + maybe(draw, 0.5, "--weights", draw.choice(["bf16", "int8"]))
    return words


def plan(draw, ranks):
    plans = ["dp", "pp", f"cp{ranks}", f"hp{ranks}", f"tp{ranks}", "tp:" + ",".join(str(draw.randint(1, 3)) for _ in range(ranks))]
    plans += {4: ["dp2xpp2", "pp2xcp2", "pp2xhp2", "pp2xtp2", "dp2xcp2"], 6: ["dp3xpp2", "dp2xpp3", "pp2xtp3", "pp3xhp2"]}.get(ranks, [])
    return draw.choice(plans)


def devices(draw, ranks):
    return ["--devices", ",".join(draw.choice(["cpu:1", "cpu:1", "cpu:1@0.5", "cpu:2", "cpu:1:plain"]) for _ in range(ranks))]


def of_cards(draw, ranks):
    return ["--devices", ",".join(f"cuda:{draw.randrange(ranks)}" for _ in range(ranks))]


def layout(draw, devices=devices):
    ranks = draw.choice([2, 3, 4, 6])
    words = devices(draw, ranks) + ["--plan", plan(draw, ranks)]
    words += maybe(draw, 0.5, "--schedule", draw.choice(SCHEDULES))
    words += maybe(draw, 0.25, "--slices", str(draw.choice([2, 3, 4])), *maybe(draw, 0.4, "--slice-tokens", "8"))
    words += maybe(draw, 0.3, "--backward", draw.choice(["split", "deferred"])) + maybe(draw, 0.35, "--recompute", draw.choice(["unit", "stage"]))
    words += maybe(draw, 0.15, "--store", "1") + maybe(draw, 0.45, "--shard", draw.choice(["state", "gradients", "weights"]))
    words += maybe(draw, 0.15, "--verify", "1") + (maybe(draw, 0.5, "--memory-limit", "3") if "greedy" in words else [])
    links = maybe(draw, 0.2, "--links", draw.choice(["0-1:1ms", "1-0:2ms:20M", "0-1:100us:50M"]))
    words += links + (maybe(draw, 0.5, "--slow", draw.choice(["1:0@0.4", "1:0-1:3ms", "1:1@0.3,2:1@1"])) if links else [])
    once, twice = f"1:{plan(draw, ranks)}", f"1x2:{plan(draw, ranks)},2:{plan(draw, ranks)}"
    return words + draw.choice(11 * [[]] + 2 * [["--replan", once]] + [["--replan", twice], ["--adapt", "0.2"], ["--adapt", "--adapt-shares"]])


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
    if not judge(number, (status, one, complaint), None, math):
        return
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
    divided += maybe(draw, 0.5, "--recompute", draw.choice(["unit", "stage"])) + maybe(draw, 0.3, "--backward", draw.choice(["split", "deferred"]))
    divided += maybe(draw, 0.25, "--slices", "2") + maybe(draw, 0.2, "--store", "1") + maybe(draw, 0.25, "--shard", draw.choice(["state", "gradients"]))
    words = trained(draw) + divided + ["--updates", str(draw.choice([1, 2, 4]))] + maybe(draw, 0.5, "--staleness", str(draw.randint(1, 3)))
    status, one, complaint = train(*words)
    if not judge(number, (status, one, complaint), None, words):
        return
    shutil.rmtree("saved", ignore_errors=True)
    if judge(number, train(*words, "--out", "saved", "--checkpoint-every", "1", "--keep", "9"), one, words):
        back_to(1)
        judge(number, program("train", "--hash", "--quiet", "--resume", "saved", *divided), one, words + ["--resume"])


def processes(number, draw):
    """The ranks of a layout, shared out among processes that speak over TCP."""
    math = trained(draw)
    one = train(*math)
    if not judge(number, one, None, math):
        return
    for _ in range(2):
        words = layout(draw)
        ranks = words[1].count(",") + 1
        count = draw.choice([count for count in (2, 3, 4) if ranks % count == 0])
        given = [("train", *SPOKEN, *math, *words, "--world", f"{process}/{count}@file:meeting") for process in range(count)]
        judge(number, together(*given), one[1], math + words + ["--world", f"*/{count}"])


def islands(number, draw):
    """Islands that join: their bits are a function of what each trains, not of how it divides that."""
    rounds, outer = draw.choice([1, 2, 3]), maybe(draw, 0.3, "--island-bits", draw.choice("248")) + maybe(draw, 0.3, "--outer-momentum", "0")
    math, count, one = trained(draw), draw.choice([2, 2, 3]), None
    paced = draw.random() < 0.4 # joins in the order of times that are said, each island as many rounds as it likes
    fragments = 1 if paced else draw.choice([1, 1, 2])
    every = [fragments * draw.choice([1, 2, 3]) for _ in range(count)]
    outer += ["--island-fragments", str(fragments)]
    own = [(draw.choice([1, 2, 4]), ["--island-seconds", draw.choice(["0.5", "1", "1.7", "3"])]) if paced else (rounds, []) for _ in every]
    for _ in range(3):
        words = [layout(draw) if one else [] for _ in every]
        given = [("train", *SPOKEN, *math, "--steps", str(own[island][0] * steps), "--islands", str(steps), *outer, *own[island][1],
                  *words[island], "--world", f"{island}/{count}@file:meeting") for island, steps in enumerate(every)]
        run = together(*given)
        if not judge(number, run, one and one[1], sum((list(command) for command in given), [])) and one is None:
            return
        one = one or run


def cards(number, draw):
    """On the stand-in for CUDA and NCCL: a layout of cards has the same bits in every run; without teams and slices, those of one card."""
    math = trained(draw) + ["--length", "16", "--steps", "2"] + maybe(draw, 0.2, "--streams", "bf16")
    started = ["../standin/train_nccl", *SPOKEN, *math]
    one = program(*started, "--devices", "cuda:0")
    for _ in range(2 if judge(number, one, None, math) else 0):
        words = layout(draw, of_cards)
        wanted = program(*started, *words) if "--slices" in words or re.search("[cht]p[0-9:]", " ".join(words)) else one
        judge(number, program(*started, *words), wanted[1], math + words)


def timeless(run):
    return run[0], re.sub(r'"(seconds|tokens_per_s)":[^,}]*', "", run[1]), run[2]


def used(number, draw):
    """Generated text and the loss of a text, of a model that was trained for a moment."""
    shutil.rmtree("saved", ignore_errors=True)
    words = ["--model", model(draw), "--steps", "2", "--warmup", "1", "--out", "saved"] + maybe(draw, 0.3, "--experts", "4,2")
    run = train(*words)
    if not judge(number, run, None, words):
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
os.environ["STANDIN_DEVICES"] = "6"
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    with open(source, "rb") as file, open("text", "wb") as text, open("small", "wb") as small:
        text.write(file.read(40000))
        file.seek(0)
        small.write(file.read(3000))
    for case in range(first, first + count):
        generator = random.Random(case)
        (synchronous, late, processes, used, synchronous, islands, cards)[case % 7](case, generator)
    os.chdir("/")
for what, times in told.most_common():
    print(f"{times:6} {what}")
print(f"{count} cases, {told['equal']} runs with equal bits, {findings} findings")
sys.exit(findings > 0)
