#!/usr/bin/env python3
"""Writes the PyTorch references tests/oracle/data/*.safetensors and checks what it wrote. `make oracle` runs it. See README.md."""

import json
import os
import sys
import tempfile
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "data")
TOTAL_LIMIT = 5_000_000

try:
    import numpy
    import torch
    import transformers
except ImportError as problem:
    print(f"oracle: {problem}. The references need PyTorch, transformers and numpy (a CPU build is enough):", file=sys.stderr)
    print("  python3 -m venv build/venv && build/venv/bin/pip install torch transformers numpy", file=sys.stderr)
    print("  PATH=$PWD/build/venv/bin:$PATH make oracle     (or: build/venv/bin/python tests/oracle/generate.py)", file=sys.stderr)
    print("The files in tests/oracle/data are committed: the tests themselves need no Python.", file=sys.stderr)
    sys.exit(2)

sys.dont_write_bytecode = True
sys.path.insert(0, HERE)
import reference  # noqa: E402
import safetensors_file  # noqa: E402
from cases import CASES, Case, gpt2  # noqa: E402


def check_own_model():
    """own_model.py against transformers, causal and in float64: the same loss and gradients to rounding."""
    theirs = Case("check", "gpt2", gpt2(), [[24, 5, 1]], seed=99)
    ours = Case("check", "own_gpt2", gpt2(), [[24, 5, 1]], seed=99)
    a, b = reference.run(theirs, double=True), reference.run(ours, double=True)
    worst = max(reference.relative(a["grad"][name], b["grad"][name]) for name in a["grad"])
    assert set(a["grad"]) == set(b["grad"])
    assert worst < 1e-12 and abs(a["losses"][0] - b["losses"][0]) < 1e-12, worst
    print(f"own_model.py agrees with transformers' GPT-2 in float64 (gradients to {worst:.1e})")


def check_names(case):
    """The names and shapes used are those save_pretrained writes."""
    if case.family == "own_gpt2":
        return
    model, _ = reference.make_model(case)
    with tempfile.TemporaryDirectory() as directory:
        model.save_pretrained(directory)
        saved, _ = safetensors_file.read(os.path.join(directory, "model.safetensors"))
    ours = {name: tuple(value.shape) for name, value in reference.parameters(case, model)}
    theirs = {name: value.shape for name, value in saved.items()}
    assert ours == theirs, (sorted(ours.items()), sorted(theirs.items()))


def config_text(case):
    """The config.json that save_pretrained writes."""
    _, config = reference.make_model(case)
    settings = json.loads(config.to_json_string())
    architecture = {"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
                    "gpt_neox": "GPTNeoXForCausalLM"}[config.model_type]
    return json.dumps(settings | {"architectures": [architecture]}, sort_keys=True)


def worst(truth, single, null):
    """The largest relative difference over the tensors, and where it is, null elements (reference.py) left out."""
    differences = {name: reference.relative(value * ~null[name], single[name] * ~null[name]) for name, value in truth.items()}
    name = max(differences, key=differences.get)
    return f"{differences[name]:.1e} {name}"


def file_of(case):
    """(tensors, metadata) of a case."""
    truth, single = reference.run(case, double=True), reference.run(case, double=False)
    null = reference.null_elements(case)
    tokens, targets, weights, starts = reference.batch(case)
    as_f32 = lambda value: numpy.asarray(value, numpy.float32)
    tensors = {"tokens": tokens, "targets": targets, "sequence_start": starts}
    if case.weighted:
        tensors["weights"] = weights
    tensors |= {"loss": numpy.array(truth["losses"][:1]), "losses": numpy.array(truth["losses"]),
                "grad_norms": numpy.array(truth["grad_norms"]), "learning_rates": numpy.array(truth["rates"])}
    noise = {kind: worst(truth[kind], single[kind], null) for kind in ("grad", "final")}
    truth["final"] = {name: numpy.where(null[name], numpy.nan, value) for name, value in truth["final"].items()}
    for kind in ("weight", "grad", "final"):
        tensors |= {f"{kind}/{name}": as_f32(value) for name, value in truth[kind].items()}
    loss_noise = max(abs(a - b) / abs(a) for a, b in zip(truth["losses"], single["losses"]))
    metadata = {
        "config": config_text(case),
        "causal": "yes" if case.causal else "no",
        "dtype": case.dtype,
        "micro_batch_sequences": ",".join(str(len(lengths)) for lengths in case.micro_batches),
        "learning_rate": repr(case.learning_rate), "minimum_rate": repr(reference.MINIMUM_RATE), "schedule": "cosine",
        "warmup_steps": str(reference.WARMUP), "total_steps": str(reference.STEPS), "beta1": repr(reference.BETAS[0]),
        "beta2": repr(reference.BETAS[1]), "epsilon": repr(reference.EPSILON), "weight_decay": repr(reference.WEIGHT_DECAY),
        "clip": repr(case.clip or -1.0), "tolerance_gradient": repr(case.tolerance_gradient), "tolerance_loss": repr(case.tolerance_loss),
        "tolerance_final": repr(case.tolerance_final),
        "noise_gradient": noise["grad"], "noise_loss": f"{loss_noise:.1e}", "noise_final": noise["final"],
        "made_by": f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}",
    }
    if case.v4_config:
        metadata["config_v4"] = json.dumps(case.v4_config, sort_keys=True)
    return tensors, metadata


def write_and_check(case):
    check_names(case)
    tensors, metadata = file_of(case)
    path = os.path.join(DATA, case.name + ".safetensors")
    safetensors_file.write(path, tensors, metadata)
    again, again_metadata = safetensors_file.read(path)
    assert again_metadata == metadata and list(again) == list(tensors)
    for name, value in tensors.items():
        assert value.dtype == again[name].dtype and numpy.array_equal(value, again[name], equal_nan=name.startswith("final/")), name
    size = os.path.getsize(path)
    losses, norms = tensors["losses"], tensors["grad_norms"]
    print(f"{os.path.relpath(path)}: {os.path.getsize(path)} bytes, loss {losses[0]:.4f} to {losses[-1]:.4f}, gradient norm {norms[0]:.3f} to "
          f"{norms[-1]:.3f}; float32 against float64: losses {metadata['noise_loss']}, gradients {metadata['noise_gradient']}, "
          f"final weights {metadata['noise_final']}")


def main():
    wanted = sys.argv[1:] or [case.name for case in CASES]
    unknown = set(wanted) - {case.name for case in CASES}
    if unknown:
        print(f"oracle: no case {sorted(unknown)}; there are {[case.name for case in CASES]}", file=sys.stderr)
        return 2
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    os.makedirs(DATA, exist_ok=True)
    check_own_model()
    for case in CASES:
        if case.name in wanted:
            write_and_check(case)
    total = sum(os.path.getsize(os.path.join(DATA, name)) for name in os.listdir(DATA))
    print(f"{len(os.listdir(DATA))} files, {total} bytes in {os.path.relpath(DATA)}")
    assert total < TOTAL_LIMIT
    return 0


if __name__ == "__main__":
    sys.exit(main())
