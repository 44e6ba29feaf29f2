#!/usr/bin/env python3
"""The machine code of the attention kernels: registers, and what their main loops issue.

    python3 tests/cuda/sass.py [--check] NVCC [OBJECT]

Compiles hetrain_cuda.cu for compute capability 9.0a (or takes OBJECT) and disassembles it with cuobjdump: beside NVCC, in PATH, or of the Python wheel
nvidia-cuda-cuobjdump (and nvidia-cuda-nvdisasm, which it calls). A main loop is the range up to a backward branch that holds most products; `masked`
counts all it has issued where a tile has what a row does not see, `issued` what remains elsewhere: without what forward branches skip that has neither
products nor copies. MMA: tensor-core instructions, of floats FFMA. Its cycles of shared memory a warp: 4 an LDSM.x4 (512 bytes at 128 a cycle) or a
copy of 16 bytes a lane into it, 1 an LDS or a copy of 4 bytes a lane; what products of four warps (wgmma) read there is not counted. dq: keys' kernels
that add to dq by atomics; but for wgmma they have a loop over the block's keys inside, which counts once. Fails where a kernel's registers and threads
do not fit, or where it spills or uses local memory.

--check: against tests/cuda/sass.txt, which is what this program prints without it. A line "0 NAME" for what is as good, "1 NAME" for what is worse: a
count more than 2 % and 2 above, or so many registers that fewer blocks share a multiprocessor. Without OBJECT, or where it has no code for 9.0a, only
the kernels of bf16 are compiled, which takes a third of the time. "skip REASON": another compiler, or no cuobjdump.
"""
import bisect
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile


def disassembler(nvcc):
    beside = os.path.join(os.path.dirname(os.path.realpath(shutil.which(nvcc) or nvcc)), "cuobjdump")
    for path in (beside, shutil.which("cuobjdump")):
        if path and os.path.exists(path):
            return path
    for folder in sys.path:
        for wheel in ("nvidia/cu13/bin", "nvidia/cuda_cuobjdump/bin", "nvidia/cu12/bin"):
            path = os.path.join(folder, wheel, "cuobjdump")
            if os.path.exists(path):
                return path
    return None


def of_bf16(source):
    """Of hetrain_cuda.cu what attention's kernels of bf16 need: the manual, which has declarations, and three rooms."""
    rooms = re.split(r"(?=/\* -{90,}\n   >>cu_)", source)
    text = "".join(room for room in rooms if re.search(r">>cu_(config|primitives|attention)  ", room))
    text, dropped = re.subn(r"\n[^\n]*hetc_attention_run<(float|hetc_tf32),[^\n]*", "", text[:text.index("/* Every op but the linear ones")])
    assert dropped == 4
    return text + "#endif\n"


def compiled(nvcc, folder, part):
    source, path = "hetrain_cuda.cu", os.path.join(folder, "device.cubin")
    with open(source) as file:
        text = file.read()
    if part:
        source = os.path.join(folder, "attention.cu")
        with open(source, "w") as file:
            file.write(of_bf16(text))
    subprocess.run([nvcc, "-std=c++17", "-O3", "-w", "-I.", "-Iutil", *["-DHETC_KERNELS_ONLY=1"] * part, "-gencode=arch=compute_90a,code=sm_90a",
                    "-cubin", source, "-o", path], check=True)
    return path


def kernels(text):
    """name: [(address, instruction)], of attention"""
    found = {}
    for part in text.split("Function : ")[1:]:
        name = part.split(None, 1)[0]
        if short(name):
            found[name] = [(int(at, 16), code) for at, code in re.findall(r"\n *\t*/\*([0-9a-f]{4,})\*/[ \t]+([^;\n]*?)[ \t]*;", part)]
    return found


def branch_to(text):
    branch = re.search(r"\bBRA(?:\.\S+)?\s+(?:\S+,\s*)?`?\(?(?:0x([0-9a-f]+))", text) if "BRA" in text else None
    return int(branch.group(1), 16) if branch else -1


def main_loop(code, product):
    """All of it, and what a tile that every row sees whole issues of it. "@!PT": never done."""
    code = [(at, text) for at, text in code if not text.startswith("@!PT")]
    place = [at for at, _ in code]
    before = [0, *itertools.accumulate(bool(product.search(text)) for _, text in code)]  # products
    best = (0, 0, 0)  # products, minus the length, first
    for last, (at, text) in enumerate(code):
        to = branch_to(text)
        if 0 <= to <= at:
            first = bisect.bisect_left(place, to)
            best = max(best, (before[last + 1] - before[first], first - last - 1, first))
    body = code[best[2]:best[2] - best[1]]
    skipped = set()
    for at, text in body:
        if text.startswith("@") and branch_to(text) > at:
            over = [(a, t) for a, t in body if at < a < branch_to(text)]
            if not any(product.search(t) or "LDGSTS" in t for _, t in over):
                skipped.update(a for a, _ in over)
    return [t for _, t in body], [t for a, t in body if a not in skipped]


def short(name):
    shape = re.search(r"hetc_attention_(\w+?)_kernelI(t|f|9hetc_tf32|9hetc_wide)Li(\d+)ELi(\d+)ELi(\d+)ELi(\d+)E(Li1E)?", name)
    kind = {"t": "bf16", "f": "f32", "9hetc_tf32": "tf32", "9hetc_wide": "wgmma"}
    return shape and ("%s %s%s" % (shape.group(1), kind[shape.group(2)], " dq" if shape.group(7) else ""), *(int(shape.group(i)) for i in range(3, 7)))


COLUMNS = ("head", "rows", "step", "warp", "regs", "threads", "masked", "issued", "MMA", "LDSM", "LDS", "copies", "shared")


def blocks(row):
    """That share a multiprocessor, by registers: a warp takes them by 256."""
    return 65536 // ((row["regs"] + 7) // 8 * 8 * row["threads"])


def read_table(path):
    """The compiler's release, and {(kernel, head): row}."""
    with open(path) as file:
        release, _, *lines = file.read().splitlines()
    return release, {(line[:16].strip(), int(line[16:].split()[0])): dict(zip(COLUMNS, map(int, line[16:].split()))) for line in lines}


def worse(row, limit):
    what = ["%s: %d, not %d" % (key, row[key], limit[key]) for key in ("masked", "issued", "MMA", "shared") if row[key] > 1.02 * limit[key] + 2]
    if blocks(row) < blocks(limit):
        what.append("registers: %d, not %d, so that %d blocks of %d threads share a multiprocessor" % (row["regs"], limit["regs"], blocks(row), row["threads"]))
    return what


def main():
    check = "--check" in sys.argv
    nvcc, *given = [a for a in sys.argv[1:] if a != "--check"]
    tool, found = disassembler(nvcc), {}
    if not tool:
        print("skip no cuobjdump, beside nvcc, in PATH or as a wheel (nvidia-cuda-cuobjdump)" if check else "machine code: no cuobjdump")
        return 0
    release = re.search(r"release [0-9.]+", subprocess.run([nvcc, "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout).group(0)
    then, table = read_table("tests/cuda/sass.txt")
    if check and release != then:
        print("skip nvcc of %s: the counts are of %s" % (release, then))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        whole = given and "sm_90a" in subprocess.run([tool, "--list-elf", given[0]], check=True, stdout=subprocess.PIPE, text=True).stdout
        path = given[0] if whole else compiled(nvcc, folder, check)
        usage = subprocess.run([tool, "-arch", "sm_90a", "--dump-resource-usage", path], check=True, stdout=subprocess.PIPE, text=True).stdout
        sass = subprocess.run([tool, "-arch", "sm_90a", "-sass", path], check=True, stdout=subprocess.PIPE, text=True).stdout
    registers = {name: int(count) for name, count in re.findall(r"Function (\S+):\s*\n\s*REG:(\d+)", usage)}
    wrong = [name for name, count in registers.items() if not short(name) and count * 256 > 65536]
    spilling = re.findall(r"Function (\S+):\s*\n\s*REG:\d+ (?:STACK:[1-9]|STACK:0 SHARED:\d+ LOCAL:[1-9])", usage)
    for name, code in kernels(sass).items():
        what = short(name)
        product = re.compile(r"\bFFMA\b" if " f32" in what[0] else r"\bHG?MMA\b")
        threads, (masked, body) = 2 * what[2] // what[4], main_loop(code, product)
        counts = [sum(bool(pattern.search(t)) for t in body) for pattern in (product, *map(re.compile, (r"\bLDSM\b", r"\bLDS\b", r"\bLDGSTS\b")))]
        wide = sum("LDGSTS" in t and ".128" in t for t in body)
        row = (*what[1:4], 16 * what[4], registers.get(name, 0), threads, len(masked), len(body), *counts,
               4 * (counts[1] + wide) + counts[2] + counts[3] - wide)
        found[what[0], what[1]] = dict(zip(COLUMNS, row))
        if registers.get(name, 0) * threads > 65536:
            wrong.append(name)
    if check:
        for key in sorted(set(found) | set(table if whole else {})):
            row, limit = found.get(key), table.get(key)
            bad = worse(row, limit) if row and limit else ["%s tests/cuda/sass.txt" % ("not in" if row else "only in")]
            print("%d %s, head %d: %s" % (bool(bad), *key, "; ".join(bad) or "%d issued a tile (%d masked), %d cycles of shared memory" % (
                row["issued"], row["masked"], row["shared"])))
        print("%d registers and threads of every kernel fit %s" % (bool(wrong), " ".join(wrong)))
        print("%d no kernel spills or uses local memory %s" % (bool(spilling), " ".join(spilling)))
        return 0
    print(release)
    print("%-16s %5s %5s %5s %5s %5s %7s %7s %7s %6s %6s %6s %6s %8s" % ("attention, sm_90a", *COLUMNS))
    for key, row in sorted(found.items()):
        print("%-16s %5d %5d %5d %5d %5d %7d %7d %7d %6d %6d %6d %6d %8d" % (key[0], *row.values()))
    for name in wrong + spilling:
        print("does not fit, or spills: " + name)
    return len(wrong + spilling) > 0


sys.exit(main())
