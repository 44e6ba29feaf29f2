"""GGUF files of build/convert beside the weights they were made of, read by the gguf and safetensors packages.

  python3 tests/oracle/gguf_files.py DIR FILE.gguf      DIR: config.json and model.safetensors, FILE: build/convert --init DIR --gguf FILE

Every tensor must have the name that gguf gives it for its architecture, and the values of DIR, rounded to the file's type; the tokenizer of
DIR must have the tokens and merges of the file."""
import json
import os
import sys

import gguf
import numpy
from safetensors import safe_open

ARCHITECTURES = {"gpt2": gguf.MODEL_ARCH.GPT2, "llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3,
                 "gptneox": gguf.MODEL_ARCH.GPTNEOX}


def expected(name, value, architecture, config):
    """A tensor of DIR as llama.cpp wants it."""
    if architecture == "gpt2" and name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
        return value.T
    if architecture == "llama" and (".q_proj." in name or ".k_proj." in name):
        heads = config["num_attention_heads" if ".q_proj." in name else "num_key_value_heads"]
        return value.reshape(heads, 2, -1, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)
    if architecture == "gptneox" and "query_key_value" in name:
        return value.reshape(config["num_attention_heads"], 3, -1, *value.shape[1:]).swapaxes(0, 1).reshape(value.shape)
    return value


def in_type(value, kind):
    if kind == gguf.GGMLQuantizationType.F16:
        return value.astype(numpy.float16).astype(numpy.float32)
    if kind == gguf.GGMLQuantizationType.BF16:
        bits = value.astype("<f4").view(numpy.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(numpy.uint32).view(numpy.float32)
    return value


def found(tensor):
    if tensor.tensor_type == gguf.GGMLQuantizationType.BF16:
        return (tensor.data.view(numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
    return tensor.data.astype(numpy.float32)


def main(folder, path):
    reader = gguf.GGUFReader(path)
    architecture = reader.get_field("general.architecture").contents()
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    names = gguf.get_tensor_name_map(ARCHITECTURES[architecture], reader.get_field(architecture + ".block_count").contents())
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    weights = safe_open(os.path.join(folder, "model.safetensors"), "np")
    left = set(tensors) - {"rope_freqs.weight"}
    for name in weights.keys():
        theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
        tensor = tensors[theirs]
        right = in_type(expected(name, weights.get_tensor(name), architecture, config), tensor.tensor_type)
        assert numpy.array_equal(found(tensor).reshape(right.shape), right), theirs
        left.discard(theirs)
    assert not left, left
    tokenizer = os.path.join(folder, "tokenizer.json")
    tokens = 0
    if os.path.exists(tokenizer):
        with open(tokenizer) as file:
            data = json.load(file)
        listed = reader.get_field("tokenizer.ggml.tokens").contents()
        everything = dict(data["model"]["vocab"], **{token["content"]: token["id"] for token in data["added_tokens"]})
        assert all(listed[number] == text for text, number in everything.items())
        merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in data["model"]["merges"]]
        assert (reader.get_field("tokenizer.ggml.merges").contents() or []) == merges
        tokens = len(everything)
    print(f"{path}: {architecture}, {len(tensors)} tensors and {tokens} tokens are those of {folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
