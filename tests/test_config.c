/* What a config.json may ask for: keys that change a model are refused by name and value unless they are neutral, and sizes are held against the
   shapes of the weights before memory is taken. */
#include "support.h"

#include "hetrain_files.h"

/* ---- keys that change a model ---- */

static const char *const bases[] = {
    "\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 32, \"n_head\": 4, \"n_positions\": 16, \"vocab_size\": 61",
    "\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 32, \"num_attention_heads\": 4, \"intermediate_size\": 48, "
        "\"max_position_embeddings\": 16, \"vocab_size\": 61",
    "\"model_type\": \"qwen2\", \"num_hidden_layers\": 2, \"hidden_size\": 32, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
        "\"intermediate_size\": 48, \"max_position_embeddings\": 16, \"vocab_size\": 61",
    "\"model_type\": \"qwen3\", \"num_hidden_layers\": 2, \"hidden_size\": 32, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
        "\"head_dim\": 8, \"intermediate_size\": 48, \"max_position_embeddings\": 16, \"vocab_size\": 61",
    "\"model_type\": \"gpt_neox\", \"num_hidden_layers\": 2, \"hidden_size\": 32, \"num_attention_heads\": 4, \"intermediate_size\": 48, "
        "\"max_position_embeddings\": 16, \"vocab_size\": 61",
};
enum { GPT2 = 1, LLAMA = 2, QWEN2 = 4, QWEN3 = 8, NEOX = 16, ALL = 31, GATED = 14, ROTARY = 30 };

static void keys_that_change_a_model(void **state)
{
    static const struct { int families; const char *line, *words; } cases[] = { /* words NULL: the value is neutral */
        { ALL, "\"logit_scale\": 0.0625", "logit_scale|0.0625" }, { ALL, "\"logit_scale\": 1.0", NULL },
        { ALL, "\"logits_scaling\": 8", "logits_scaling|8" }, { ALL, "\"logits_scaling\": 1", NULL }, { ALL, "\"logits_scaling\": null", NULL },
        { ALL, "\"embedding_multiplier\": 12.0", "embedding_multiplier|12.0" }, { ALL, "\"embedding_multiplier\": 1.0", NULL },
        { ALL, "\"residual_multiplier\": 0.22", "residual_multiplier|0.22" }, { ALL, "\"residual_multiplier\": 1e0", NULL },
        { ALL, "\"attention_multiplier\": 0.015625", "attention_multiplier|0.015625" }, { ALL, "\"attention_multiplier\": 0.35355339", NULL },
        { ALL, "\"attention_multiplier\": 1.0", "attention_multiplier|1.0" }, { ALL, "\"lm_head_multiplier\": 2", "lm_head_multiplier|2" },
        { ALL, "\"mlp_multipliers\": [1, 0.5]", "mlp_multipliers|[1, 0.5]" }, { ALL, "\"mlp_multipliers\": [1, 1.0]", NULL },
        { ALL, "\"scale_emb\": 12", "scale_emb|12" }, { ALL, "\"scale_depth\": 1.4", "scale_depth|1.4" },
        { ALL, "\"query_pre_attn_scalar\": 256", "query_pre_attn_scalar|256" }, { ALL, "\"query_pre_attn_scalar\": 8", NULL },
        { ALL, "\"attn_logit_softcapping\": 50.0", "attn_logit_softcapping|50.0" }, { ALL, "\"attn_logit_softcapping\": null", NULL },
        { ALL, "\"final_logit_softcapping\": 30.0", "final_logit_softcapping|30.0" }, { ALL, "\"clip_qkv\": 8", "clip_qkv|8" },
        { ALL, "\"scale_attn_by_inverse_layer_idx\": true", "scale_attn_by_inverse_layer_idx|true" },
        { ALL, "\"scale_attn_by_inverse_layer_idx\": false", NULL }, { ALL, "\"scale_attn_weights\": false", "scale_attn_weights|false" },
        { ALL, "\"scale_attn_weights\": true", NULL }, { ALL, "\"reorder_and_upcast_attn\": true", NULL },
        { ALL, "\"is_causal\": false", "is_causal|false" }, { ALL, "\"add_cross_attention\": true", "add_cross_attention|true" },
        { ALL, "\"num_experts\": 8", "num_experts|8" },
        { ALL, "\"num_local_experts\": 8", "num_local_experts|8" },
        { ALL, "\"num_experts\": 0", NULL },
        { ALL, "\"alibi\": true", "alibi|true" }, { ALL, "\"pruned_heads\": {\"0\": [1]}", "pruned_heads" }, { ALL, "\"pruned_heads\": {}", NULL },
        { ALL, "\"per_layer_config\": {\"1\": {\"rms_norm_eps\": 0.5}}", "per_layer_config" }, { ALL, "\"per_layer_config\": {}", NULL },
        { GATED, "\"partial_rotary_factor\": 0.5", "partial_rotary_factor|0.5" }, { GATED, "\"partial_rotary_factor\": 1.0", NULL },
        { ROTARY, "\"rope_scaling\": {\"rope_type\": \"default\"}, \"rope_parameters\": {\"rope_theta\": 500.0}", "rope_parameters|theta|other" },
        { ROTARY, "\"rope_parameters\": {\"rope_theta\": 500.0}, \"rope_scaling\": {\"rope_theta\": 500}", "rope_scaling|500|other" },
        { GATED, "\"rope_parameters\": {\"rope_theta\": 10000.0}, \"rope_scaling\": {\"rope_theta\": 10000.0}", NULL },
        { GATED, "\"rope_parameters\": {\"rope_theta\": 10000.0}, \"rope_scaling\": {}", NULL },
        { GATED, "\"rope_parameters\": {\"partial_rotary_factor\": 0.25}", "partial_rotary_factor|0.25" },
        { GATED, "\"rotary_pct\": 0.25", "rotary_pct|0.25" }, { GATED, "\"rotary_dim\": 4", "rotary_dim|4" }, { GATED, "\"rotary_dim\": 8", NULL },
        { GPT2, "\"rotary_dim\": 4", "rotary_dim|4" }, { ROTARY, "\"use_rope\": false", "use_rope|false" },
        { ROTARY, "\"no_rope_layers\": [1, 0]", "no_rope_layers|[1, 0]" }, { ROTARY, "\"no_rope_layers\": [1, 1]", NULL },
        { LLAMA, "\"attention_bias\": true", "attention_bias" },
        { LLAMA, "\"mlp_bias\": true", "mlp_bias" },
        { QWEN3, "\"attention_bias\": true", "attention_bias|true" },
        { NEOX, "\"attention_bias\": false", "attention_bias|false" }, { QWEN2 | QWEN3, "\"mlp_bias\": true", "mlp_bias|true" },
        { LLAMA, "\"attention_bias\": true, \"mlp_bias\": true", NULL }, { GPT2 | LLAMA | NEOX, "\"sliding_window\": 8", "sliding_window|8" },
        { GPT2 | LLAMA | NEOX, "\"sliding_window\": 16", NULL }, { LLAMA, "\"sliding_window\": 8, \"use_sliding_window\": false", NULL },
        { GPT2 | LLAMA | QWEN2 | NEOX, "\"use_qk_norm\": true", "use_qk_norm|true" }, { QWEN3, "\"use_qk_norm\": true", NULL },
        { QWEN3, "\"qk_layernorm\": false", "qk_layernorm|false" }, { GPT2 | GATED, "\"use_parallel_residual\": true", "use_parallel_residual|true" },
        { GPT2 | NEOX, "\"num_key_value_heads\": 2", "num_key_value_heads|2" }, { GPT2 | NEOX, "\"num_key_value_heads\": 4", NULL },
        { GPT2 | NEOX, "\"head_dim\": 16", "head_dim|16" }, { GPT2 | NEOX, "\"head_dim\": 8", NULL },
        { ALL, "\"quantization_config\": {\"bits\": 4, \"quant_method\": \"gptq\"}", "quantization_config|gptq" },
        { ALL, "\"quantization_config\": null", NULL },
        { ALL, "\"quantization_config\": {\"load_in_8bit\": true, \"_load_in_4bit\": false, "
          "\"quant_method\": \"bitsandbytes\"}", "quantization_config|bitsandbytes" },
        { ALL, "\"quantization\": {\"group_size\": 64, \"bits\": 4}", "quantization|group_size" },
        { ALL, "\"architectures\": [\"GemmaForCausalLM\"]", "architectures|GemmaForCausalLM" }, { ALL, "\"architectures\": null", NULL },
        { ALL, "\"architectures\": [\"MistralForCausalLM\"]", "architectures|MistralForCausalLM" },
        { LLAMA, "\"architectures\": [\"LlamaForSequenceClassification\"]", "architectures|LlamaForSequenceClassification|LlamaForCausalLM" },
        { LLAMA, "\"architectures\": [\"LlamaForCausalLM\"]", NULL }, { LLAMA, "\"architectures\": [\"LlamaModel\"]", NULL },
        { GPT2, "\"architectures\": [\"GPT2LMHeadModel\"]", NULL }, { GPT2, "\"architectures\": [\"GPT2Model\"]", NULL },
        { NEOX, "\"architectures\": [\"GPTNeoXModel\", \"GPTNeoXForCausalLM\"]", NULL }, { ALL, "\"architectures\": \"GPT2\"", "expected" },
        { ROTARY, "\"rope_scaling\": {\"factor\": 4.0}", "rope_scaling|factor|4.0|rope_type" }, { ROTARY, "\"rope_scaling\": {}", NULL },
        { ROTARY, "\"rope_scaling\": {\"short_factor\": [1], \"long_factor\": [2]}", "rope_scaling|short_factor|rope_type" },
        { ROTARY, "\"rope_scaling\": {\"type\": null, \"factor\": 4.0}", "rope_scaling|factor|rope_type" },
        { ROTARY, "\"rope_scaling\": null", NULL },
        { ROTARY, "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4.0}", "type|linear" },
        { ROTARY, "\"rope_scaling\": {\"type\": \"default\"}", NULL },
        { ROTARY, "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0}", "rope_type|yarn" },
        { GATED, "\"rope_parameters\": {\"rope_theta\": 10000.0}", NULL },
        { ROTARY, "\"rope_parameters\": {\"factor\": 2}", "rope_parameters|factor|rope_type" },
        { ROTARY, "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0}", NULL },
        { ALL, "\"_name_or_path\": \"x\", \"use_cache\": true, \"pad_token_id\": -1, "
          "\"task_specific_params\": {\"text-generation\": {\"do_sample\": true}}", NULL },
    };
    static const char *const others[] = { "gemma", "gemma2", "phi", "phi3", "mixtral", "mistral", "granite", "cohere",
                                         "olmo2", "qwen2_moe", "qwen3_moe", "t5", "" };
    char text[1024];
    het_model_desc model;
    het_error error;
    size_t i, f;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (f = 0; f < 5; f++) {
            het_result result;
            if ((cases[i].families >> f & 1) == 0) continue;
            snprintf(text, sizeof text, "{%s, %s}", bases[f], cases[i].line);
            result = het_model_from_json(text, strlen(text), &model, &error);
            if (cases[i].words == NULL) support_expect(result, HET_OK, error.text, "", text, __LINE__);
            else support_expect(result, strcmp(cases[i].words, "expected") == 0 ? HET_ERR_FORMAT : HET_ERR_UNSUPPORTED, error.text, cases[i].words,
                                text, __LINE__);
        }
    /* at the top transformers' GPT-NeoX knows rotary_pct and rotary_emb_base alone */
    snprintf(text, sizeof text, "{%s, \"partial_rotary_factor\": 0.5, \"rope_theta\": 500.0}", bases[4]);
    EXPECT_ERROR(het_model_from_json(text, strlen(text), &model, &error), HET_OK, error.text, "");
    assert_true(model.rotary_fraction > 0.2f && model.rotary_fraction < 0.3f && model.rotary_theta > 9999.0f);
    for (i = 0; i < sizeof others / sizeof others[0]; i++) {
        snprintf(text, sizeof text, "{\"model_type\": \"%s\", %s}", others[i], strchr(bases[1], ',') + 1);
        support_expect(het_model_from_json(text, strlen(text), &model, &error), HET_ERR_UNSUPPORTED, error.text, "model_type|gpt_neox",
                       text, __LINE__);
        assert_non_null(strstr(error.text, others[i]));
    }
}

/* ---- sizes and shapes ---- */

static het_result fits(const het_model_desc *model, support_buffer *file, het_error *error)
{
    const het_reader from = support_reader(file);
    return het_model_fits(model, &from, NULL, error);
}

/* The name of a tensor's dtype or name in the header replaced by one as long. */
static void rename_in(support_buffer *file, const char *from, const char *to)
{
    size_t i;
    assert_int_equal(strlen(from), strlen(to));
    for (i = 0; i + strlen(from) < file->size && memcmp(file->data + i, from, strlen(from)) != 0; i++) {}
    assert_true(i + strlen(from) < file->size);
    memcpy(file->data + i, to, strlen(to));
}

static void sizes_and_shapes(void **state)
{
    static const het_family families[] = { HET_GPT2, HET_LLAMA, HET_QWEN2, HET_QWEN3, HET_NEOX };
    static const struct { int families; const char *change, *words; } cases[] = {
        { GPT2, "vocab=16000000", "vocab_size 16000000|transformer.wte.weight|has shape [|, not [16000000, " },
        { GATED, "vocab=16000000", "vocab_size 16000000|tensor|has shape [|, not [16000000, " },
        { NEOX, "vocab=16000000", "vocab_size 16000000|embed_|has shape [|, not [16000000, " },
        { GPT2, "context=1000000", "n_positions 1000000|transformer.wpe.weight|has shape [" },
        { GPT2, "mlp_width=60000", "n_inner 60000|mlp.c_|has shape [" },
        { ROTARY, "mlp_width=60000", "intermediate_size 60000|mlp.|has shape [" },
        { GPT2, "layers=60000", "n_layer 60000|tensor|is there in 2 layers" },
        { ROTARY, "layers=60000", "num_hidden_layers 60000|tensor|is there in 2 layers" }, { GPT2, "layers=1", "n_layer 1|transformer.h.1.|beyond" },
        { ROTARY, "layers=1", "num_hidden_layers 1|layers.1.|beyond" }, { GATED, "head_size=4000", "num_|heads|of size 4000|has shape [" },
        { LLAMA, "kv_heads=1", "num_key_value_heads 1 of size |_proj.weight|has shape [" },
        { ROTARY, "width=4000", "hidden_size 4000|has shape [" }, { GPT2, "width=4000", "n_embd 4000|has shape [" },
    };
    het_model_desc model;
    het_error error = { HET_OK, "" };
    char text[2048];
    size_t i, f, length;
    (void)state;
    for (f = 0; f < 5; f++) {
        het_desc desc;
        support_buffer file;
        het_writer to;
        het_ctx *ctx;
        memset(&desc, 0, sizeof desc);
        desc.model = support_model(families[f]);
        desc.limits.max_tokens = 20;
        ctx = support_create(&desc);
        support_buffer_start(&file);
        to = support_writer(&file);
        EXPECT_OK(het_save_weights(ctx, &to));
        model = het_get_desc(ctx)->model;
        support_expect(fits(&model, &file, &error), HET_OK, error.text, "", "fits", __LINE__);
        for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            const char *set = strchr(cases[i].change, '=') + 1;
            char key[32], *at;
            if ((cases[i].families >> f & 1) == 0) continue;
            EXPECT_OK(het_model_format(&het_get_desc(ctx)->model, text, sizeof text, &length));
            snprintf(key, sizeof key, ":%.*s", (int)(set - cases[i].change), cases[i].change);
            at = strstr(text, key);
            if (at == NULL) key[0] = ',', at = strstr(text, key);
            assert_non_null(at);
            at += strlen(key);
            length = strcspn(at, ",");
            memmove(at + strlen(set), at + length, strlen(at + length) + 1);
            memcpy(at, set, strlen(set));
            if (strncmp(cases[i].change, "width", 5) != 0) support_expect(het_model_parse(text, &model, &error), HET_OK, error.text, "",
                                                                          text, __LINE__);
            else model = het_get_desc(ctx)->model, model.width = 4000;
            support_expect(fits(&model, &file, &error), HET_ERR_FORMAT, error.text, cases[i].words, cases[i].change, __LINE__);
        }
        model = het_get_desc(ctx)->model;
        rename_in(&file, f == 0 ? "mlp.c_proj.weight" : f == 4 ? "attention.dense.weight" : "mlp.down_proj.weight",
                  f == 0 ? "mlp.c_porj.weight" : f == 4 ? "attention.dnese.weight" : "mlp.down_porj.weight");
        EXPECT_ERROR(fits(&model, &file, &error), HET_ERR_FORMAT, error.text, "is there in 1 layers");
        rename_in(&file, f == 0 ? "mlp.c_porj.weight" : f == 4 ? "attention.dnese.weight" : "mlp.down_porj.weight",
                  f == 0 ? "mlp.c_por.qweight" : f == 4 ? "attention.dens.qweight" : "mlp.down_pro.qweight");
        EXPECT_ERROR(fits(&model, &file, &error), HET_ERR_UNSUPPORTED, error.text, "quantised weights are not supported");
        support_buffer_end(&file);
        het_destroy(ctx);
    }
    EXPECT_ERROR(het_model_fits(NULL, NULL, NULL, &error), HET_ERR_INVALID, error.text, "NULL");
}

/* ---- what is kept of another config.json ---- */

static void kept_keys(void **state)
{
    static const char base[] = "{\"eos_token_id\": [2, 7], \"hidden_size\": 9999, \"torch_dtype\": \"bfloat16\", \"note\": \"\\u00e9 \\\"x\\\"\", "
                               "\"id2label\": {\"0\": [1, 2.50]}, \"num_experts\": 0, \"num_local_experts\": null}";
    static const char routed[] = "{\"model_type\": \"qwen3_moe\", \"num_local_experts\": 4}";
    static const struct { const char *text; het_result code; int64_t count; const char *words; } ends[] = {
        { "{\"eos_token_id\": 7}", HET_OK, 1, "" }, { "{\"eos_token_id\": [7, 3, 7]}", HET_OK, 2, "" }, { "{\"eos_token_id\": null}", HET_OK, 0, "" },
        { "{}", HET_OK, 0, "" }, { "{\"eos_token_id\": [10, -1, 100000000000]}", HET_OK, 0, "" }, { "", HET_ERR_FORMAT, 0, "byte 0" },
        { "{\"eos_token_id\": \"7\"}", HET_ERR_FORMAT, 0, "byte 17" }, { "{\"eos_token_id\": 1.5}", HET_ERR_FORMAT, 0, "byte 17" },
        { "{\"eos_token_id\": 1, \"eos_token_id\": 1}", HET_ERR_FORMAT, 0, "occurs twice" },
        { "{\"eos_token_id\": 1} x", HET_ERR_FORMAT, 0, "byte 20" },
    };
    het_model_desc model = support_model(HET_LLAMA), back;
    const het_model_desc qwen3 = support_model(HET_QWEN3);
    het_error error = { HET_OK, "" };
    char text[8192], again[8192];
    int32_t id[4];
    int family;
    int64_t count;
    size_t i, length;
    (void)state;
    EXPECT_OK(het_model_to_config(&model, HET_ELEMENT_F16, base, strlen(base), text, sizeof text, &length));
    assert_int_equal(length, strlen(text));
    assert_non_null(strstr(text, "\"eos_token_id\": [2, 7]"));
    assert_non_null(strstr(text, "\"id2label\": {\"0\": [1, 2.50]}"));
    assert_non_null(strstr(text, "\"note\": \"\\u00e9 \\\"x\\\"\""));
    assert_non_null(strstr(text, "\"torch_dtype\": \"float16\""));
    assert_true(strstr(text, "9999") == NULL && strstr(text, "bfloat16") == NULL && strstr(text, "null,\n  \"eos") == NULL);
    EXPECT_OK(het_model_from_json(text, length, &back, &error));
    assert_memory_equal(&model, &back, sizeof model);
    EXPECT_OK(het_model_to_config(&qwen3, HET_ELEMENT_F16, routed, strlen(routed), text, sizeof text, &length)); /* as transformers 5 writes it */
    assert_non_null(strstr(text, "\"model_type\": \"qwen3_moe\""));
    EXPECT_OK(het_model_to_config(&model, HET_ELEMENT_F16, base, strlen(base), text, sizeof text, &length));
    assert_int_equal(het_model_to_config(&model, HET_ELEMENT_F16, base, strlen(base), text, length, &length), HET_ERR_LIMIT);
    assert_int_equal(het_model_to_config(&model, HET_ELEMENT_F16, base, 9, text, sizeof text, &length), HET_ERR_FORMAT);
    assert_int_equal(het_model_to_config(NULL, HET_ELEMENT_F16, base, 9, text, sizeof text, &length), HET_ERR_INVALID);
    for (family = HET_GPT2; family <= HET_NEOX; family++) { /* its own text keeps every byte */
        model = support_model((het_family)family);
        EXPECT_OK(het_model_to_config(&model, HET_ELEMENT_F32, NULL, 0, text, sizeof text, &length));
        EXPECT_OK(het_model_to_config(&model, HET_ELEMENT_F32, text, length, again, sizeof again, &length));
        assert_string_equal(text, again);
    }
    for (i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        count = 0;
        support_expect(het_ends_from_json(ends[i].text, strlen(ends[i].text), 10, id, 4, &count, &error), ends[i].code, error.text, ends[i].words,
                       ends[i].text, __LINE__);
        assert_int_equal(count, ends[i].count);
        if (count > 0) assert_int_equal(id[0], 7);
    }
    EXPECT_ERROR(het_ends_from_json(NULL, 0, 10, id, 4, &count, &error), HET_ERR_INVALID, error.text, "NULL");
}

/* A number of heads of keys that is null says that there are as many as of queries; one that is absent, Qwen's default. */
static void null_means_as_many_heads(void **state)
{
    static const char *const families[] = { "llama", "qwen2", "qwen3" };
    char text[600];
    het_model_desc model;
    het_error error;
    int f, given;
    (void)state;
    for (f = 0; f < 3; f++)
        for (given = 0; given < 2; given++) {
            snprintf(text, sizeof text, "{\"model_type\": \"%s\", \"num_hidden_layers\": 1, \"hidden_size\": 512, \"num_attention_heads\": 64, "
                     "\"intermediate_size\": 64, \"max_position_embeddings\": 16, \"vocab_size\": 61%s}", families[f],
                     given ? ", \"num_key_value_heads\": null" : "");
            support_expect(het_model_from_json(text, strlen(text), &model, &error), HET_OK, error.text, "", text, __LINE__);
            assert_int_equal(model.kv_heads, f == 0 || given ? 64 : 32);
        }
}

/* What a window of null says, as transformers reads it: there is none, whatever else is said of it. An absent one is 4096. */
static void windows_of_null(void **state)
{
    static const struct { const char *keys; int64_t window; } cases[] = {
        { "\"use_sliding_window\": true, \"sliding_window\": null, \"max_window_layers\": 0", 0 },
        { "\"use_sliding_window\": true, \"sliding_window\": null, \"max_window_layers\": 1", 0 },
        { "\"use_sliding_window\": false, \"sliding_window\": null", 0 },
        { "\"use_sliding_window\": true, \"max_window_layers\": 0", 4096 },
        { "\"use_sliding_window\": null, \"sliding_window\": 9, \"max_window_layers\": 0", 0 },
        { "\"use_sliding_window\": true, \"sliding_window\": 9, \"max_window_layers\": 0", 9 },
        { "\"use_sliding_window\": true, \"sliding_window\": 9, \"layer_types\": [\"sliding_attention\", \"sliding_attention\"]", 9 },
    };
    char text[600];
    het_model_desc model;
    het_error error;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text, "{\"model_type\": \"qwen2\", \"num_hidden_layers\": 2, \"hidden_size\": 512, \"num_attention_heads\": 32, "
                 "\"intermediate_size\": 64, \"max_position_embeddings\": 16, \"vocab_size\": 61, %s}", cases[i].keys);
        support_expect(het_model_from_json(text, strlen(text), &model, &error), HET_OK, error.text, "", text, __LINE__);
        if (model.window != cases[i].window) fail_msg("%s: a window of %d", cases[i].keys, (int)model.window);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_that_change_a_model),
        cmocka_unit_test(sizes_and_shapes),
        cmocka_unit_test(kept_keys),
        cmocka_unit_test(null_means_as_many_heads),
        cmocka_unit_test(windows_of_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
