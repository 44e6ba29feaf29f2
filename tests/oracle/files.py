"""Files that other programs wrote, for tests/test_safetensors.c and tests/test_weights.c.   python3 tests/oracle/files.py [FOLDER]

reference.safetensors: tensors of many types, shapes and names, by the safetensors package (0.6 or later)."""
import os
import sys

import torch
from safetensors.torch import save_file


def reference(folder):
    torch.manual_seed(1)
    tensors = {}
    types = [torch.bool, torch.uint8, torch.int8, torch.float8_e5m2, torch.float8_e4m3fn, torch.int16, torch.uint16, torch.float16, torch.bfloat16,
             torch.int32, torch.uint32, torch.float32, torch.complex64, torch.float64, torch.int64, torch.uint64]
    for i, kind in enumerate(types):
        tensors["z%d.weight" % (97 - 3 * i)] = (torch.rand(2, 1 + i % 3) * 3).to(kind)
    tensors["a\"quoted\" \\ name\n\t\x01"] = torch.rand(3)
    tensors["\u00e9\u4e2d\U0001f600"] = torch.rand(1, 2, 3)
    tensors["B"] = torch.rand(())
    tensors["a"] = torch.rand(0, 4)
    tensors[""] = torch.rand(1).to(torch.float16)
    save_file(tensors, os.path.join(folder, "reference.safetensors"), metadata={"for\"mat": "pt\u00e9\n\u007f/"})


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "files")
    os.makedirs(folder, exist_ok=True)
    reference(folder)
