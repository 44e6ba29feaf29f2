#!/usr/bin/env python3
"""Low-rank adapters by PEFT (needs torch, transformers and peft; the committed files: torch 2.15.0, transformers 5.23.0, peft 0.21.2).

    adapters.py write             writes tests/oracle/data/adapter/NAME: a small model, an adapter as PEFT saves it, and what they give:
                                  expected.safetensors with tokens, the loss, and the gradients of the factors in float64
    adapters.py loss BASE DIR     the loss of BASE with the adapter in DIR on the tokens of BASE/expected.safetensors; DIR may be a merged model
"""

import json
import os
import sys
import warnings

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "data", "adapter")
LLAMA = dict(vocab_size=40, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
             max_position_embeddings=32, tie_word_embeddings=False, initializer_range=0.2)
CASES = {
    "llama": (transformers.LlamaConfig(**LLAMA), dict(r=3, lora_alpha=7, target_modules=["q_proj", "v_proj"])),
    "qwen3": (transformers.Qwen3Config(**{**LLAMA, "tie_word_embeddings": True}), dict(r=2, lora_alpha=5, target_modules="all-linear")),
    "gpt2": (transformers.GPT2Config(vocab_size=40, n_embd=24, n_layer=2, n_head=3, n_positions=32, bos_token_id=0, eos_token_id=0, initializer_range=0.2),
             dict(r=4, lora_alpha=2, target_modules=["c_attn", "mlp.c_proj"], fan_in_fan_out=True)),
    "neox": (transformers.GPTNeoXConfig(vocab_size=40, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
                                        max_position_embeddings=32, initializer_range=0.2),
             dict(r=3, lora_alpha=6, target_modules=["query_key_value", "dense"])),
}


def loss_of(model, tokens):
    return model(input_ids=tokens, labels=tokens).loss


def write(name):
    config, settings = CASES[name]
    directory = os.path.join(DATA, name)
    torch.manual_seed(sum(map(ord, name)))
    base = transformers.AutoModelForCausalLM.from_config(config)
    base.save_pretrained(directory)
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, base_model_name_or_path=name, **settings))
    with torch.no_grad():
        for key, value in model.named_parameters():
            if "lora_B" in key:
                value.normal_(0, 0.4)
    model.save_pretrained(directory)
    tokens = torch.randint(0, 40, (1, 29))
    model = model.double().eval()
    loss = loss_of(model, tokens)
    loss.backward()
    expected = {"tokens": tokens[0].int(), "loss": loss.detach().reshape(1)}
    for key, value in model.named_parameters():
        if value.grad is not None:
            expected["grad/" + key.replace(".default", "")] = value.grad.float()
    save_file(expected, os.path.join(directory, "expected.safetensors"))
    for extra in ("README.md", "generation_config.json"):
        if os.path.exists(os.path.join(directory, extra)):
            os.remove(os.path.join(directory, extra))
    path = os.path.join(directory, "adapter_config.json")
    with open(path) as file:
        text = json.load(file)
    with open(path, "w") as file: # sets have no order: the list of modules is sorted
        text["target_modules"] = sorted(text["target_modules"])
        json.dump(text, file, indent=1)
    print(f"{name}: loss {loss.item():.6f}, {len(expected) - 2} factors")


def loss(base, adapter):
    tokens = load_file(os.path.join(base, "expected.safetensors"))["tokens"].long()[None]
    if os.path.exists(os.path.join(adapter, "adapter_config.json")):
        model = PeftModel.from_pretrained(transformers.AutoModelForCausalLM.from_pretrained(base), adapter)
    else:
        model = transformers.AutoModelForCausalLM.from_pretrained(adapter)
    print(f"{loss_of(model.double().eval(), tokens).item():.9f}")


warnings.filterwarnings("ignore")
if len(sys.argv) == 2 and sys.argv[1] == "write":
    for case in CASES:
        write(case)
elif len(sys.argv) == 4 and sys.argv[1] == "loss":
    loss(sys.argv[2], sys.argv[3])
else:
    sys.exit(__doc__)
