"""Reads the model that tests/test_experts.c writes into a folder (HETRAIN_EXPERTS_FOLDER=DIR) with transformers' Qwen3-MoE, in float64, and prints
what that test compares with: the loss, and norms of gradients.   python tests/oracle/experts.py DIR"""

import sys

import torch
import transformers

model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float64, attn_implementation="eager",
                                                          experts_implementation="eager")
tokens = torch.tensor([(7 * i * i + 3 * i) % 61 for i in range(48)]).view(2, 24)
targets = torch.tensor([(5 * i * i + 11 * i + 1) % 61 for i in range(48)])
loss = torch.nn.functional.cross_entropy(model(input_ids=tokens, use_cache=False).logits.reshape(48, -1), targets)
loss.backward()
print(f"loss {loss.item():.12f}")
for layer, block in enumerate(model.model.layers):
    name = f"model.layers.{layer}.mlp"
    print(f'{{ "{name}.gate.weight", {block.mlp.gate.weight.grad.norm().item():.9g} }},')
    for expert in (1, 4):
        gate, up = block.mlp.experts.gate_up_proj.grad[expert].chunk(2)
        down = block.mlp.experts.down_proj.grad[expert]
        for end, gradient in (("gate_proj", gate), ("up_proj", up), ("down_proj", down)):
            print(f'{{ "{name}.experts.{expert}.{end}.weight", {gradient.norm().item():.9g} }},')
