#!/usr/bin/env python3
"""The machine code of the attention kernels: registers, and what their main loops issue.

    python3 tests/cuda/sass.py NVCC [OBJECT]

Compiles hetrain_cuda.cu for compute capability 9.0a (or takes OBJECT) and disassembles it with cuobjdump: beside NVCC, in PATH, or of the Python wheel
nvidia-cuda-cuobjdump (and nvidia-cuda-nvdisasm, which it calls). A main loop is the range up to a backward branch that holds most tensor-core
instructions; `masked` counts all it has issued where a tile has what a row does not see, `issued` what remains elsewhere: without what forward branches
skip that has neither products nor copies. Its cycles of shared memory a warp: 4 an LDSM.x4 (512 bytes at 128 a cycle) or a copy of 16 bytes a lane into
it, 1 an LDS or a copy of 4 bytes a lane; what products of four warps (wgmma) read there is not counted. dq: keys' kernels that add to dq by atomics;
but for wgmma they have a loop over the block's keys inside, which counts once. Fails where a kernel's registers and threads do not fit.
"""
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


def compiled(nvcc, folder):
    path = os.path.join(folder, "device.cubin")
    subprocess.run([nvcc, "-std=c++17", "-O3", "-I.", "-Iutil", "-gencode=arch=compute_90a,code=sm_90a", "-cubin", "hetrain_cuda.cu", "-o", path], check=True)
    return path


def kernels(text):
    """name: [(address, instruction)]"""
    found, name = {}, None
    for line in text.splitlines():
        start = re.match(r"\s*Function : (\S+)", line)
        if start:
            name = start.group(1)
            found[name] = []
        code = re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", line)
        if name and code:
            found[name].append((int(code.group(1), 16), code.group(2)))
    return found


def branch_to(text):
    branch = re.search(r"\bBRA(?:\.\S+)?\s+(?:\S+,\s*)?`?\(?(?:0x([0-9a-f]+))", text)
    return int(branch.group(1), 16) if branch else -1


def is_tensor(text):
    return bool(re.search(r"\bHG?MMA\b", text))


def main_loop(code):
    """All of it, and what a tile that every row sees whole issues of it. "@!PT": never done."""
    best, most = [], 0
    for at, text in code:
        to = branch_to(text)
        if to < 0 or to > at:
            continue
        body = [(a, t) for a, t in code if to <= a <= at and not t.startswith("@!PT")]
        tensor = sum(is_tensor(t) for _, t in body)
        if tensor > most or (tensor == most and tensor > 0 and len(body) < len(best)):
            best, most = body, tensor
    skipped = set()
    for at, text in best:
        over = [(a, t) for a, t in best if at < a < branch_to(text)]
        if text.startswith("@") and not any(is_tensor(t) or "LDGSTS" in t for _, t in over):
            skipped.update(a for a, _ in over)
    return [t for _, t in best], [t for a, t in best if a not in skipped]


def short(name):
    shape = re.search(r"hetc_attention_(\w+?)_kernelI(t|f|9hetc_tf32|9hetc_wide)Li(\d+)ELi(\d+)ELi(\d+)ELi(\d+)E(Li1E)?", name)
    kind = {"t": "bf16", "f": "f32", "9hetc_tf32": "tf32", "9hetc_wide": "wgmma"}
    return shape and ("%s %s%s" % (shape.group(1), kind[shape.group(2)], " dq" if shape.group(7) else ""), *(int(shape.group(i)) for i in range(3, 7)))


def main():
    with tempfile.TemporaryDirectory() as folder:
        tool = disassembler(sys.argv[1])
        if not tool:
            print("machine code: no cuobjdump, beside nvcc, in PATH or as a wheel (nvidia-cuda-cuobjdump)")
            return 0
        path = sys.argv[2] if len(sys.argv) > 2 else compiled(sys.argv[1], folder)
        usage = subprocess.run([tool, "--dump-resource-usage", path], check=True, stdout=subprocess.PIPE, text=True).stdout
        sass = subprocess.run([tool, "-sass", path], check=True, stdout=subprocess.PIPE, text=True).stdout
    registers = {}
    for name, count in re.findall(r"Function (\S+):\s*\n\s*REG:(\d+)", usage):
        registers[name] = int(count)
    print("%-16s %5s %5s %5s %5s %5s %7s %7s %7s %6s %6s %6s %6s %8s" % ("attention, sm_90a", "head", "rows", "step", "warp", "regs", "threads",
                                                                       "masked", "issued", "MMA", "LDSM", "LDS", "copies", "shared"))
    wrong = 0
    for name, code in sorted(kernels(sass).items()):
        what = short(name)
        if not what:
            wrong += registers.get(name, 0) * 256 > 65536
            continue
        threads, (masked, body) = 2 * what[2] // what[4], main_loop(code)
        counts = [sum(bool(re.search(r"\b%s\b" % word, t)) for t in body) for word in ("HG?MMA", "LDSM", "LDS", "LDGSTS")]
        wide = sum("LDGSTS" in t and ".128" in t for t in body)
        wrong += registers.get(name, 0) * threads > 65536
        print("%-16s %5d %5d %5d %5d %5d %7d %7d %7d %6d %6d %6d %6d %8d" % (*what[:4], 16 * what[4], registers.get(name, 0), threads, len(masked),
                                                                           len(body), *counts,
                                                                           4 * (counts[1] + wide) + counts[2] + counts[3] - wide))
    if wrong:
        print("%d kernels do not fit: registers x threads over 65,536" % wrong)
    return wrong > 0


sys.exit(main())
