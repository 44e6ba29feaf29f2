"""What the reference files hold: one entry a file.

Dimensions are small and unlike each other, so that a transposed matrix or a mixed-up stride cannot fit by luck. `model` are the
arguments of the transformers config class; `v4_config` is the same model as config.json files from before transformers 5 write it,
which is what most published checkpoints hold.
"""

from dataclasses import dataclass, field

VOCAB = 61
CONTEXT = 24


@dataclass
class Case:
    name: str
    family: str                       # transformers model type, or "own_gpt2" for own_model.py
    model: dict                       # arguments of the config class
    micro_batches: list               # sequence lengths, a list per micro-batch
    seed: int
    learning_rate: float = 2e-3
    clip: float = 1.0                 # of the global norm; 0: none
    weighted: bool = False            # random target weights instead of 1 each
    ignored: float = 0.0              # share of targets set to -1
    causal: bool = True
    dtype: str = "f32"
    v4_config: dict = field(default_factory=dict)
    rename: dict = field(default_factory=dict)  # state_dict name -> name in files, where save_pretrained changes it
    tolerance_gradient: float = 1e-5  # norm of the difference over norm, per tensor
    tolerance_loss: float = 1e-4      # relative, each of the ten steps
    tolerance_final: float = 1e-4     # norm of the difference over norm, per tensor, after ten steps


def gpt2(**changes):
    return dict(vocab_size=VOCAB, n_positions=CONTEXT, n_embd=40, n_layer=2, n_head=5, n_inner=72, activation_function="gelu_new",
                layer_norm_epsilon=1e-5, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0) | changes


def decoder(**changes):
    return dict(vocab_size=VOCAB, max_position_embeddings=CONTEXT, hidden_size=40, num_hidden_layers=2, num_attention_heads=5,
                num_key_value_heads=1, intermediate_size=72, hidden_act="silu", rms_norm_eps=1e-5, tie_word_embeddings=False,
                bos_token_id=0, eos_token_id=0) | changes


def neox(**changes):
    return dict(vocab_size=VOCAB, max_position_embeddings=CONTEXT, hidden_size=40, num_hidden_layers=2, num_attention_heads=5,
                intermediate_size=72, hidden_act="gelu", layer_norm_eps=1e-5, tie_word_embeddings=False, bos_token_id=0,
                eos_token_id=0, hidden_dropout=0.0, attention_dropout=0.0) | changes


def rope(theta, **more):
    return dict(rope_parameters=dict(rope_type="default", rope_theta=theta) | more)


def v4(model_type, model, **changes):
    """The same settings with the rotary keys where transformers 4 puts them."""
    old = {key: value for key, value in model.items() if key != "rope_parameters"}
    return dict(model_type=model_type) | old | changes


LLAMA = decoder(num_attention_heads=6, num_key_value_heads=2, hidden_size=36, **rope(1000.0))
LLAMA3 = decoder(num_attention_heads=2, num_key_value_heads=1, hidden_size=32, tie_word_embeddings=True,
                 **rope(100.0, rope_type="llama3", factor=4.0, low_freq_factor=0.8, high_freq_factor=2.5, original_max_position_embeddings=20))
QWEN2 = decoder(rms_norm_eps=1e-6, **rope(10000.0))
QWEN2_WINDOW = decoder(num_key_value_heads=5, rms_norm_eps=1e-6, tie_word_embeddings=True, use_sliding_window=True, sliding_window=5,
                       max_window_layers=0, **rope(300.0))
QWEN3 = decoder(num_attention_heads=3, head_dim=16, rms_norm_eps=1e-6, **rope(1000000.0))
NEOX = neox(use_parallel_residual=True, **rope(10000.0, partial_rotary_factor=0.25))
NEOX_SEQUENTIAL = neox(hidden_size=48, num_attention_heads=3, use_parallel_residual=False, **rope(500.0, partial_rotary_factor=0.5))

EMBED_OUT = {"lm_head.weight": "embed_out.weight"}

CASES = [
    Case("gpt2", "gpt2", gpt2(), [[24, 24, 24, 24]], seed=1, clip=2.0),
    Case("llama", "llama", LLAMA, [[24, 24, 24], [24]], seed=2,
         v4_config=v4("llama", LLAMA, rope_theta=1000.0, rope_scaling=None)),
    Case("llama3_rope_tied", "llama", LLAMA3, [[24, 24, 24, 24]], seed=3,
         v4_config=v4("llama", LLAMA3, rope_theta=100.0,
                      rope_scaling=dict(rope_type="llama3", factor=4.0, low_freq_factor=0.8, high_freq_factor=2.5,
                                        original_max_position_embeddings=20))),
    Case("qwen2", "qwen2", QWEN2, [[24, 24], [24, 17]], seed=4, learning_rate=1e-3,
         v4_config=v4("qwen2", QWEN2, rope_theta=10000.0, use_sliding_window=False, sliding_window=4096, max_window_layers=28)),
    Case("qwen2_window", "qwen2", QWEN2_WINDOW, [[24, 13, 24, 3]], seed=5,
         v4_config=v4("qwen2", QWEN2_WINDOW, rope_theta=300.0)),
    Case("qwen3", "qwen3", QWEN3, [[24, 24, 24, 24]], seed=6, clip=5.0,
         v4_config=v4("qwen3", QWEN3, rope_theta=1000000.0, attention_bias=False, rope_scaling=None)),
    Case("neox", "gpt_neox", NEOX, [[24, 24], [24, 24]], seed=7, clip=0.0, rename=EMBED_OUT,
         v4_config=v4("gpt_neox", NEOX, rotary_pct=0.25, rotary_emb_base=10000)),
    Case("neox_sequential", "gpt_neox", NEOX_SEQUENTIAL, [[24, 24, 24, 11]], seed=8, rename=EMBED_OUT,
         v4_config=v4("gpt_neox", NEOX_SEQUENTIAL, rotary_pct=0.5, rotary_emb_base=500)),
    Case("gpt2_packed", "gpt2", gpt2(), [[1, 24, 7, 1, 0, 13], [3, 1, 17]], seed=9, weighted=True, ignored=0.2),
    Case("llama_packed", "llama", LLAMA, [[5, 1, 24, 1], [19], [1, 2, 23, 0, 9]], seed=10, weighted=True, ignored=0.2),
    Case("gpt2_bidirectional", "own_gpt2", gpt2(), [[24, 9, 24, 1, 18]], seed=11, causal=False),
    # bf16: where float32 noise moves one operand across a rounding boundary, everything behind it in that token rounds differently, which
    # costs about 1e-3 in a gradient of this batch. Rounding anything else than the references do costs 1e-2: the tolerance is between.
    Case("gpt2_bf16", "own_gpt2", gpt2(), [[24, 24], [24, 10]], seed=26, learning_rate=5e-4, dtype="bf16", tolerance_gradient=3e-3,
         tolerance_loss=2e-3, tolerance_final=2e-3),
    # What PyTorch's own bf16 is: values between ops are bf16 as well. It and another order of the same roundings are both as far from
    # float64 as rounding moves them (noise), so tolerances are of that size.
    Case("gpt2_autocast", "gpt2", gpt2(), [[24, 24], [24, 10]], seed=27, learning_rate=5e-4, dtype="autocast", tolerance_gradient=2e-2,
         tolerance_loss=5e-3, tolerance_final=1.5e-3),
    Case("llama_autocast", "llama", LLAMA | dict(num_hidden_layers=1), [[24, 24], [24, 10]], seed=28, learning_rate=5e-4, dtype="autocast",
         tolerance_gradient=3e-2, tolerance_loss=5e-3, tolerance_final=1.5e-3),
]
