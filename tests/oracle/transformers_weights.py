"""Directories of transformers into hetrain and back, every family: the same logits (1e-5 of the largest), no key missing or left over.
python3 tests/oracle/transformers_weights.py     builds a library with cc; needs torch and transformers"""
import ctypes
import os
import subprocess
import tempfile

import torch
import transformers

SOURCE = r'''
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_FILES_IMPLEMENTATION
#include "hetrain.h"
#include "hetrain_files.h"
#include <string.h>
/* Loads from a directory, computes logits [count][vocab], saves to another. element: 0 f32, 1 f16, 2 bf16. */
int through(const char *from, const char *to, int element, int64_t shard, const int32_t *token, int64_t count, float *logits, char *why)
{
    static const het_element elements[] = { HET_ELEMENT_F32, HET_ELEMENT_F16, HET_ELEMENT_BF16 };
    het_folder in, out;
    het_desc desc;
    het_save_desc save;
    het_error error;
    het_ctx *ctx = NULL;
    het_result result;
    int64_t i;
    memset(&desc, 0, sizeof desc);
    memset(&save, 0, sizeof save);
    memset(&out, 0, sizeof out);
    error.text[0] = 0;
    result = het_folder_open(from, NULL, &in, &error);
    if (result == HET_OK) result = het_folder_open(to, NULL, &out, &error);
    if (result == HET_OK) result = het_model_from_folder(&in, &desc.model, &error);
    desc.inference = HET_YES;
    if (result == HET_OK) result = het_create(&desc, &ctx, &error);
    if (result == HET_OK) result = het_load_folder(ctx, &in);
    for (i = 0; i < count && result == HET_OK; i++) result = het_infer(ctx, token + i, 1, i, logits + i * desc.model.vocab);
    save.element = elements[element];
    save.shard_bytes = (uint64_t)shard;
    if (result == HET_OK) result = het_save_folder(ctx, &out, &save);
    strcpy(why, ctx != NULL ? het_last_error(ctx) : error.text);
    het_destroy(ctx);
    het_folder_close(&in);
    het_folder_close(&out);
    return result;
}
'''


def models():
    """(name, config), of every family more than one."""
    small = dict(vocab_size=67, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=64)
    llama3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16, rope_theta=5e5)
    yield "gpt2", transformers.GPT2Config(vocab_size=67, n_positions=64, n_embd=48, n_layer=3, n_head=4)
    yield "gpt2 untied", transformers.GPT2Config(vocab_size=67, n_positions=64, n_embd=48, n_layer=2, n_head=6, n_inner=100, tie_word_embeddings=False)
    yield "llama", transformers.LlamaConfig(**small)
    yield "tinyllama", transformers.LlamaConfig(num_key_value_heads=2, rms_norm_eps=1e-5, **small)
    yield "llama 3.2", transformers.LlamaConfig(num_key_value_heads=2, rope_parameters=llama3, tie_word_embeddings=True, **small)
    yield "qwen2", transformers.Qwen2Config(num_key_value_heads=2, **small)
    yield "qwen2 tied", transformers.Qwen2Config(num_key_value_heads=1, tie_word_embeddings=True, **small)
    yield "qwen3", transformers.Qwen3Config(num_key_value_heads=2, head_dim=20, **small)
    yield "qwen3 tied", transformers.Qwen3Config(num_key_value_heads=4, head_dim=16, tie_word_embeddings=True, **small)
    yield "neox", transformers.GPTNeoXConfig(rotary_pct=0.5, **small)
    yield "neox sequential", transformers.GPTNeoXConfig(use_parallel_residual=False, hidden_act="gelu_new", rotary_pct=1.0, **small)


def main():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with tempfile.TemporaryDirectory() as work:
        with open(os.path.join(work, "through.c"), "w") as f:
            f.write(SOURCE)
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-DHETRAIN_NO_SIMD", "-I", root, "-I", os.path.join(root, "util"), "through.c", "-o", "through.so", "-lm", "-lpthread"], cwd=work,
                       check=True)
        through = ctypes.CDLL(os.path.join(work, "through.so")).through
        through.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p,
                            ctypes.c_char_p]
        checks = 0
        for name, config in models():
            torch.manual_seed(checks)
            model = transformers.AutoModelForCausalLM.from_config(config).eval()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(torch.randn_like(parameter) * 0.1)
            tokens = torch.randint(0, 67, (1, 40), dtype=torch.int32)
            for element, kind in enumerate([torch.float32, torch.float16, torch.bfloat16]):
                first, second = os.path.join(work, "a%d" % checks), os.path.join(work, "b%d" % checks)
                os.mkdir(second)
                model.to(kind).save_pretrained(first, max_shard_size="40KB" if element == 1 else "1GB")
                given = transformers.AutoModelForCausalLM.from_pretrained(first, dtype=torch.float32).eval() # its rotary buffers are float32 again
                with torch.no_grad():
                    wanted = given(tokens.long()).logits[0]
                logits, why = torch.zeros_like(wanted), ctypes.create_string_buffer(300)
                status = through(first.encode(), second.encode(), element, 50000 if element == 2 else 0, tokens.data_ptr(), tokens.shape[1],
                                 logits.data_ptr(), why)
                assert status == 0, (name, kind, status, why.value)
                apart = ((logits - wanted).abs().max() / wanted.abs().max()).item()
                back, info = transformers.AutoModelForCausalLM.from_pretrained(second, dtype=torch.float32, output_loading_info=True)
                assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), (name, info)
                with torch.no_grad():
                    again = back.eval()(tokens.long()).logits[0]
                same = torch.equal(again, wanted)
                print("%-16s %-14s hetrain's logits differ by %.1e; read back by transformers: %s" % (name, kind, apart, "the same bits" if same else
                      "differ by %.1e" % (again - wanted).abs().max()), flush=True)
                assert apart < 1e-5 and same
                checks += 1
        print("%d directories" % checks)


if __name__ == "__main__":
    main()
