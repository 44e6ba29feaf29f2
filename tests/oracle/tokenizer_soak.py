"""Random texts through Hugging Face's tokenizers and through hetrain_tokenizer.h: ids and decoded text must be equal.

    python3 tests/oracle/tokenizer_soak.py TEXT [COUNT [SEED]]       TEXT: tinyshakespeare.txt or any other

Builds a shared library of the two headers with ${CC:-cc} in a temporary directory. COUNT texts (default 1,000,000) are divided among the tokenizers.
"""
import ctypes
import os
import random
import subprocess
import sys
import tempfile
import time
from tokenizers import Tokenizer
import tokenizer_cases as cases

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SOURCE = '#define HETRAIN_IMPLEMENTATION\n#define HETRAIN_TOKENIZER_IMPLEMENTATION\n#include "hetrain.h"\n#include "hetrain_tokenizer.h"\n'


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("text", ctypes.c_char * 500)]


class Ours:
    def __init__(self, library, text):
        self.headers, self.error, self.handle = library, Error(), ctypes.c_void_p()
        data = text.encode()
        if library.het_tokenizer_read(data, ctypes.c_size_t(len(data)), None, ctypes.byref(self.handle), ctypes.byref(self.error)) != 0:
            raise SystemExit("read: " + self.error.text.decode())
        self.ids, self.bytes = (ctypes.c_int32 * (1 << 22))(), ctypes.create_string_buffer(1 << 22)

    def encode(self, data):
        count = ctypes.c_int64()
        if self.headers.het_tokenizer_encode(self.handle, None, data, ctypes.c_size_t(len(data)), self.ids, ctypes.c_int64(1 << 22),
                                             ctypes.byref(count), ctypes.byref(self.error)) != 0:
            raise SystemExit("encode: " + self.error.text.decode())
        return self.ids[:count.value]

    def decode(self, ids):
        array, length = (ctypes.c_int32 * max(1, len(ids)))(*ids), ctypes.c_size_t()
        if self.headers.het_tokenizer_decode(self.handle, array, ctypes.c_int64(len(ids)), 2, self.bytes, ctypes.c_size_t(1 << 22), ctypes.byref(length),
                                             ctypes.byref(self.error)) != 0:
            raise SystemExit("decode: " + self.error.text.decode())
        return self.bytes.raw[:length.value]


def build(directory):
    path = os.path.join(directory, "libhetrain.so")
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-DHETRAIN_NO_SIMD", "-I" + ROOT, "-I" + os.path.join(ROOT, "util"), "-x", "c", "-", "-o", path, "-lm", "-lpthread"],
                   input=SOURCE.encode(), check=True)
    return ctypes.CDLL(path)


def main():
    path, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000000
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    kinds, words = cases.make(path)
    with open(path, encoding="utf-8") as file:
        whole = file.read()
    bad = done = 0
    with tempfile.TemporaryDirectory() as directory:
        library = build(directory)
        for name, text in kinds.items():
            theirs, ours = Tokenizer.from_str(text), Ours(library, text)
            start = time.time()
            if name != "whole":
                wanted = theirs.encode(whole[:1 << 21]).ids
                middle = time.time()
                got = ours.encode(whole[:1 << 21].encode())
                print("%s: %s the same on all of %s; tokenizers %.2f s, hetrain %.2f s" %
                      (name, "is" if got == wanted else "IS NOT", os.path.basename(path), middle - start, time.time() - middle))
                bad += got != wanted
            for i in range(0, count // len(kinds), 1000):
                texts = [cases.random_text(rng, words) for _ in range(1000)]
                for text, encoding in zip(texts, theirs.encode_batch_fast(texts)):
                    ids = ours.encode(text.encode())
                    some = ids if rng.random() < 0.5 else [rng.choice(ids) for _ in ids]
                    done += 1
                    # an added token's letters are bytes to tokenizers, even where that leaves parts of characters
                    back = ours.decode(some)
                    back = [b.decode("utf-8", "replace") for b in (back, back.replace("\u00e9t\u00e9".encode(), b"\xe9t\xe9"))]
                    if ids == encoding.ids and theirs.decode(some, skip_special_tokens=False) in back:
                        continue
                    bad += 1
                    if bad < 10:
                        print("%s: %r\n  tokenizers %s\n  hetrain    %s" % (name, text, encoding.ids, ids))
    print("%d texts, %d differ" % (done, bad))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
