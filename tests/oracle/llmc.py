"""llm.c's two files for a small GPT-2, by PyTorch.   python3 tests/oracle/llmc.py [FOLDER]

model.bin: 256 int32 (20240326, version 3, T, V, L, H, C, Vp), then the parameters in float32.
state.bin, what llm.c calls a debug state: 256 int32 (20240327, version 2, B, T), x and y (int32 [B][T]), logits [B][T][V], the loss, and the
gradients in the order of the parameters, all float32. Matrices are [out][in]; rows V .. Vp - 1 of wte are padding, 0 in the gradients."""
import os
import sys

import numpy
import torch
import transformers

KINDS = ["wte.weight", "wpe.weight", "h.#.ln_1.weight", "h.#.ln_1.bias", "h.#.attn.c_attn.weight", "h.#.attn.c_attn.bias", "h.#.attn.c_proj.weight",
         "h.#.attn.c_proj.bias", "h.#.ln_2.weight", "h.#.ln_2.bias", "h.#.mlp.c_fc.weight", "h.#.mlp.c_fc.bias", "h.#.mlp.c_proj.weight",
         "h.#.mlp.c_proj.bias", "ln_f.weight", "ln_f.bias"]
MULTIPLE = 16  # of the padded vocabulary; llm.c's own files have 128


def in_order(tensors, layers):
    """The tensors as llm.c lines them up, Conv1D's matrices turned."""
    for kind in KINDS:
        for layer in range(layers if "#" in kind else 1):
            value = tensors["transformer." + kind.replace("#", str(layer))].double()
            if ".c_" in kind and kind.endswith("weight"):
                value = value.t()
            if kind == "wte.weight":
                value = torch.nn.functional.pad(value, (0, 0, 0, -value.shape[0] % MULTIPLE))
            yield value.contiguous().numpy()


def write(path, numbers, parts):
    header = numpy.zeros(256, "<i4")
    header[:len(numbers)] = numbers
    with open(path, "wb") as file:
        file.write(header.tobytes())
        for part in parts:
            file.write(part.astype("<i4" if part.dtype == numpy.int64 else "<f4").tobytes())


def main(folder):
    torch.manual_seed(4)
    config = transformers.GPT2Config(vocab_size=61, n_positions=12, n_embd=24, n_layer=2, n_head=3, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0)
    model = transformers.GPT2LMHeadModel(config).float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model = model.double()  # of weights that are floats: the truth to rounding
    x, y = torch.randint(0, 61, (3, 9)), torch.randint(0, 61, (3, 9))
    logits = model(x).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 61), y.reshape(-1))
    loss.backward()
    padded = 61 + -61 % MULTIPLE
    os.makedirs(folder, exist_ok=True)
    write(os.path.join(folder, "model.bin"), [20240326, 3, 12, 61, 2, 3, 24, padded], in_order(model.state_dict(), 2))
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    write(os.path.join(folder, "state.bin"), [20240327, 2, 3, 9],
          [x.numpy(), y.numpy(), logits.detach().numpy(), loss.detach().numpy(), *in_order(gradients, 2)])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "llmc"))
