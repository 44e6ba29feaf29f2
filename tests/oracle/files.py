"""Files that other programs wrote, for tests/test_safetensors.c and tests/test_weights.c.   python3 tests/oracle/files.py [FOLDER]

reference.safetensors: tensors of many types, shapes and names, by the safetensors package (0.6 or later).
qwen3: a small model saved in shards by transformers, and logits.f32, what it computes for the tokens 3 1 4 1 5."""
import os
import sys

import torch
import transformers
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


def directory(folder):
    torch.manual_seed(2)
    config = transformers.Qwen3Config(vocab_size=61, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, head_dim=8, max_position_embeddings=32, tie_word_embeddings=True)
    model = transformers.Qwen3ForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
        folder = os.path.join(folder, "qwen3")
        model.save_pretrained(folder, max_shard_size="30KB")
        model(torch.tensor([[3, 1, 4, 1, 5]])).logits[0].numpy().astype("<f4").tofile(os.path.join(folder, "logits.f32"))
    generation = os.path.join(folder, "generation_config.json")
    if os.path.exists(generation):
        os.remove(generation)


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "files")
    os.makedirs(folder, exist_ok=True)
    reference(folder)
    directory(folder)
