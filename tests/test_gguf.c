/* GGUF files: read back by a small reader of the published layout (github.com/ggml-org/ggml, docs/gguf.md), every number of it; tensors against the
   context's own. tests/oracle/gguf_files.py compares with what the gguf package reads. */
#include "support.h"

#include "hetrain_tokenizer.h"
#include "hetrain_files.h"

#define MOST 256

typedef struct pair { char key[96]; uint32_t type, element; uint64_t count; const unsigned char *value; } pair;
typedef struct tensor { char name[96]; uint32_t rank, type; uint64_t size[4], offset, count; } tensor;
typedef struct gguf {
    support_buffer file;
    size_t at, data;
    int64_t pairs, tensors;
    pair pair[MOST];
    tensor tensor[MOST];
} gguf;

/* ---- reading ---- */

static uint64_t number(gguf *g, int bytes)
{
    uint64_t value = 0;
    int i;
    assert_true(g->at + (size_t)bytes <= g->file.size);
    for (i = 0; i < bytes; i++) value |= (uint64_t)g->file.data[g->at + (size_t)i] << 8 * i;
    g->at += (size_t)bytes;
    return value;
}

static void text(gguf *g, char *to, size_t capacity)
{
    const uint64_t length = number(g, 8);
    assert_true(length < capacity && g->at + length <= g->file.size);
    memcpy(to, g->file.data + g->at, (size_t)length);
    to[length] = 0;
    g->at += (size_t)length;
}

/* Steps over a value: u32, i32, f32: 4 bytes, bool 1, string, array. */
static void step_over(gguf *g, pair *p, uint32_t type)
{
    uint64_t i;
    p->value = g->file.data + g->at;
    if (type == 4 || type == 5 || type == 6) g->at += 4;
    else if (type == 7) g->at += 1;
    else if (type == 8) g->at += (size_t)number(g, 8);
    else {
        assert_int_equal(type, 9);
        p->element = (uint32_t)number(g, 4);
        p->count = number(g, 8);
        assert_true(p->element == 5 || p->element == 8);
        p->value = g->file.data + g->at;
        for (i = 0; i < p->count; i++) g->at += (size_t)(p->element == 5 ? 4 : number(g, 8));
    }
    assert_true(g->at <= g->file.size);
}

/* Offsets follow each other in steps of 32 and the file ends with the last tensor, filled up. */
static void open_gguf(gguf *g)
{
    uint64_t end = 0;
    int64_t i;
    uint32_t k;
    assert_memory_equal(g->file.data, "GGUF", 4);
    g->at = 4;
    assert_int_equal(number(g, 4), 3);
    g->tensors = (int64_t)number(g, 8);
    g->pairs = (int64_t)number(g, 8);
    assert_true(g->tensors < MOST && g->pairs < MOST);
    for (i = 0; i < g->pairs; i++) {
        text(g, g->pair[i].key, sizeof g->pair[i].key);
        g->pair[i].type = (uint32_t)number(g, 4);
        step_over(g, &g->pair[i], g->pair[i].type);
    }
    for (i = 0; i < g->tensors; i++) {
        tensor *t = &g->tensor[i];
        text(g, t->name, sizeof t->name);
        t->rank = (uint32_t)number(g, 4);
        assert_true(t->rank == 1 || t->rank == 2);
        for (k = 0, t->count = 1; k < t->rank; k++) t->count *= t->size[k] = number(g, 8);
        t->type = (uint32_t)number(g, 4);
        t->offset = number(g, 8);
        assert_int_equal(t->offset, end);
        end += t->count * (t->type == 0 ? 4 : 2);
        end = (end + 31) / 32 * 32;
    }
    g->data = (g->at + 31) / 32 * 32;
    assert_int_equal(g->file.size, g->data + end);
    while (g->at < g->data) assert_int_equal(g->file.data[g->at++], 0);
}

static const pair *find_pair(const gguf *g, const char *key)
{
    int64_t i;
    for (i = 0; i < g->pairs; i++)
        if (strcmp(g->pair[i].key, key) == 0) return &g->pair[i];
    return NULL;
}

static const tensor *find_tensor(const gguf *g, const char *name)
{
    int64_t i;
    for (i = 0; i < g->tensors; i++)
        if (strcmp(g->tensor[i].name, name) == 0) return &g->tensor[i];
    return NULL;
}

static uint32_t word(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void expect_u32(const gguf *g, const char *key, int64_t value)
{
    const pair *p = find_pair(g, key);
    if (p == NULL) fail_msg("no key %s", key);
    else if (p->type != 4 || (int64_t)word(p->value) != value) fail_msg("%s: type %u, %u, not %lld", key, p->type, word(p->value), (long long)value);
}

static void expect_text(const gguf *g, const char *key, const char *value)
{
    const pair *p = find_pair(g, key);
    if (p == NULL || p->type != 8) fail_msg("no text %s", key);
    else if (word(p->value) != strlen(value) || memcmp(p->value + 8, value, strlen(value)) != 0) fail_msg("%s is not %s", key, value);
}

static void expect_f32(const gguf *g, const char *key, float value)
{
    const pair *p = find_pair(g, key);
    if (p == NULL || p->type != 6 || word(p->value) != support_bits(value)) fail_msg("%s is not %g", key, (double)value);
}

/* String number `index` of an array. */
static void expect_item(const gguf *g, const char *key, int64_t index, const char *value)
{
    const pair *p = find_pair(g, key);
    const unsigned char *at;
    if (p == NULL || p->element != 8 || index >= (int64_t)p->count) { fail_msg("%s has no text %lld", key, (long long)index); return; }
    for (at = p->value; index > 0; index--) at += 8 + word(at);
    if (word(at) != strlen(value) || memcmp(at + 8, value, strlen(value)) != 0)
        fail_msg("%s: %.*s is not %s", key, (int)word(at), (const char *)at + 8, value);
}

/* Element [row][column] as a double. */
static double element(const gguf *g, const tensor *t, uint64_t row, uint64_t column)
{
    const uint64_t columns = t->rank == 2 ? t->size[0] : 1;
    const unsigned char *at = g->file.data + g->data + t->offset + (row * columns + column) * (t->type == 0 ? 4 : 2);
    uint32_t bits = (uint32_t)at[0] | (uint32_t)at[1] << 8;
    float value;
    if (t->type == 1) {
        const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0, mantissa = (double)(bits & 1023);
        const int exponent = (int)(bits >> 10 & 31);
        return sign * (exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024.0 + mantissa, exponent - 25));
    }
    bits = t->type == 30 ? bits << 16 : word(at);
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* ---- models ---- */

/* Sizes that are multiples of nothing useful, so that what is filled up shows. */
static het_ctx *make(het_family family, int64_t vocab)
{
    const int rows = family == HET_GPT2 || family == HET_NEOX;
    het_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.model.family = family;
    desc.model.layers = 11;                /* a layer with two digits */
    desc.model.heads = 3;
    desc.model.kv_heads = rows ? 3 : 1;
    desc.model.head_size = family == HET_QWEN3 ? 10 : 6;
    desc.model.width = 18;
    desc.model.mlp_width = 25;
    desc.model.vocab = vocab;
    desc.model.context = 17;
    if (family == HET_NEOX) desc.model.rotary_fraction = 0.34f; /* 2 columns of 6 */
    if (family == HET_LLAMA) desc.model.rotary_factor = 8.0f, desc.model.rotary_original = 16, desc.model.linear_bias = HET_YES;
    desc.limits.max_tokens = 4;
    desc.inference = HET_YES;
    desc.seed = 5;
    return support_create(&desc);
}

/* Fills every parameter with values that F16 and BF16 hold: 2 to the 4th plus sixteenths, another one for each place. */
static void fill(het_ctx *ctx)
{
    int64_t p, i;
    for (p = 0; p < het_parameter_count(ctx); p++) {
        het_parameter_info info;
        float *value;
        EXPECT_OK(het_parameter_get_info(ctx, p, &info));
        value = support_alloc((size_t)info.count, sizeof *value);
        for (i = 0; i < info.count; i++) value[i] = (float)((p * 37 + i) % 251) / 16.0f - 7.0f;
        EXPECT_OK(het_parameter_write(ctx, p, HET_WEIGHT, value));
        free(value);
    }
}

/* What fill wrote into [row][column] of the parameter. */
static double filled(het_ctx *ctx, const char *name, int64_t row, int64_t column)
{
    int64_t p;
    for (p = 0; p < het_parameter_count(ctx); p++) {
        het_parameter_info info;
        EXPECT_OK(het_parameter_get_info(ctx, p, &info));
        if (strcmp(info.name, name) == 0) return (double)((p * 37 + row * info.columns + column) % 251) / 16.0 - 7.0;
    }
    fail_msg("no parameter %s", name);
    return 0.0;
}

static void save(het_ctx *ctx, gguf *g, het_element type, const het_tokenizer *tokenizer)
{
    static const int32_t end[2] = { 3, 200 };
    het_gguf_desc desc;
    het_writer to;
    memset(&desc, 0, sizeof desc);
    memset(g, 0, sizeof *g);
    desc.element = type;
    desc.tokenizer = tokenizer;
    desc.name = "a small one";
    desc.end = end;
    desc.ends = tokenizer != NULL ? 2 : 0;
    support_buffer_start(&g->file);
    to = support_writer(&g->file);
    support_expect(het_save_gguf(ctx, &to, &desc), HET_OK, het_last_error(ctx), "", "het_save_gguf", __LINE__);
    open_gguf(g);
}

/* Rows [first, first + rows) of a tensor are those of a parameter. */
static void same_rows(het_ctx *ctx, const gguf *g, const char *theirs, const char *ours, uint64_t first, uint64_t rows, int64_t head)
{
    const tensor *t = find_tensor(g, theirs);
    uint64_t r, c;
    if (t == NULL) { fail_msg("no tensor %s", theirs); return; }
    for (r = 0; r < rows; r++)
        for (c = 0; c < (t->rank == 2 ? t->size[0] : 1); c++) {
            /* pairs of llama's rotary columns: row 2 i + j of a head is row j head / 2 + i */
            const int64_t inside = head > 0 ? (int64_t)r % head : 0;
            const int64_t from = head > 0 ? (int64_t)r - inside + inside % 2 * (head / 2) + inside / 2 : (int64_t)r;
            const double right = filled(ctx, ours, from, (int64_t)c), value = element(g, t, first + r, c);
            if (value < right || value > right) fail_msg("%s[%d][%d] is %g, must be %g", theirs, (int)(first + r), (int)c, value, right);
        }
}

/* ---- tests ---- */

static void settings_of_each_family(void **state)
{
    static const char *const names[] = { "gpt2", "llama", "qwen2", "qwen3", "gptneox" };
    char key[96];
    int family;
    gguf g;
    (void)state;
    for (family = HET_GPT2; family <= HET_NEOX; family++) {
        het_ctx *ctx = make((het_family)family, 256);
        const het_model_desc *m = &het_get_desc(ctx)->model;
        const char *a = names[family - HET_GPT2];
        fill(ctx);
        save(ctx, &g, HET_ELEMENT_F32, NULL);
        expect_text(&g, "general.architecture", a);
        expect_text(&g, "general.name", "a small one");
        expect_u32(&g, "general.alignment", 32);
        expect_u32(&g, "general.file_type", 0);
#define KEY(end) (snprintf(key, sizeof key, "%s.%s", a, end), key)
        expect_u32(&g, KEY("context_length"), 17);
        expect_u32(&g, KEY("embedding_length"), 18);
        expect_u32(&g, KEY("block_count"), 11);
        expect_u32(&g, KEY("feed_forward_length"), 25);
        expect_u32(&g, KEY("attention.head_count"), 3);
        expect_u32(&g, KEY("attention.head_count_kv"), m->kv_heads);
        expect_u32(&g, KEY("attention.key_length"), m->head_size);
        expect_u32(&g, KEY("vocab_size"), 256);
        expect_f32(&g, KEY(m->norm == HET_RMSNORM ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon"), m->norm_epsilon);
        if (family != HET_GPT2) {
            expect_u32(&g, KEY("rope.dimension_count"), family == HET_NEOX ? 2 : m->head_size);
            expect_f32(&g, KEY("rope.freq_base"), m->rotary_theta);
        } else {
            assert_null(find_pair(&g, KEY("rope.freq_base")));
        }
        assert_int_equal(find_pair(&g, "gptneox.use_parallel_residual") != NULL, family == HET_NEOX);
        assert_int_equal(find_tensor(&g, "rope_freqs.weight") != NULL, family == HET_LLAMA);
        assert_int_equal(find_tensor(&g, "output.weight") != NULL, family != HET_GPT2);
        same_rows(ctx, &g, "blk.10.ffn_norm.weight", family == HET_GPT2 ? "transformer.h.10.ln_2.weight" : family == HET_NEOX
                  ? "gpt_neox.layers.10.post_attention_layernorm.weight" : "model.layers.10.post_attention_layernorm.weight", 0, 18, 0);
        same_rows(ctx, &g, "token_embd.weight", family == HET_GPT2 ? "transformer.wte.weight" : family == HET_NEOX ? "gpt_neox.embed_in.weight"
                  : "model.embed_tokens.weight", 0, 256, 0);
        support_buffer_end(&g.file);
        het_destroy(ctx);
    }
}

static void joint_and_paired_rows(void **state)
{
    het_ctx *gpt2 = make(HET_GPT2, 40), *neox = make(HET_NEOX, 40), *llama = make(HET_LLAMA, 40), *qwen = make(HET_QWEN3, 40);
    static const char letters[] = "qkv";
    char name[96];
    gguf g;
    int i;
    (void)state;
    fill(gpt2), fill(neox), fill(llama), fill(qwen);
    save(gpt2, &g, HET_ELEMENT_F32, NULL);
    for (i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "transformer.h.1.attn.c_attn.%c.weight", letters[i]);
        same_rows(gpt2, &g, "blk.1.attn_qkv.weight", name, 18 * (uint64_t)i, 18, 0);
        snprintf(name, sizeof name, "transformer.h.1.attn.c_attn.%c.bias", letters[i]);
        same_rows(gpt2, &g, "blk.1.attn_qkv.bias", name, 18 * (uint64_t)i, 18, 0);
    }
    same_rows(gpt2, &g, "blk.10.ffn_up.weight", "transformer.h.10.mlp.c_fc.weight", 0, 25, 0);
    same_rows(gpt2, &g, "position_embd.weight", "transformer.wpe.weight", 0, 17, 0);
    assert_int_equal(g.tensors, 11 * 12 + 4);
    expect_text(&g, "tokenizer.ggml.model", "no_vocab");
    assert_null(find_pair(&g, "tokenizer.ggml.tokens"));
    support_buffer_end(&g.file);
    save(neox, &g, HET_ELEMENT_F32, NULL);
    for (i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "gpt_neox.layers.2.attention.query_key_value.%c.weight", letters[i]);
        same_rows(neox, &g, "blk.2.attn_qkv.weight", name, 18 * (uint64_t)i, 18, 0);
    }
    support_buffer_end(&g.file);
    save(llama, &g, HET_ELEMENT_F32, NULL);
    same_rows(llama, &g, "blk.3.attn_q.weight", "model.layers.3.self_attn.q_proj.weight", 0, 18, 6);
    same_rows(llama, &g, "blk.3.attn_k.weight", "model.layers.3.self_attn.k_proj.weight", 0, 6, 6);
    same_rows(llama, &g, "blk.3.attn_v.weight", "model.layers.3.self_attn.v_proj.weight", 0, 6, 0);
    same_rows(llama, &g, "blk.3.attn_output.bias", "model.layers.3.self_attn.o_proj.bias", 0, 18, 0);
    support_buffer_end(&g.file);
    save(qwen, &g, HET_ELEMENT_F32, NULL);
    same_rows(qwen, &g, "blk.3.attn_q.weight", "model.layers.3.self_attn.q_proj.weight", 0, 30, 0);
    same_rows(qwen, &g, "blk.3.attn_q_norm.weight", "model.layers.3.self_attn.q_norm.weight", 0, 10, 0);
    support_buffer_end(&g.file);
    het_destroy(gpt2), het_destroy(neox), het_destroy(llama), het_destroy(qwen);
}

/* Matrices in the type asked for, vectors and positions in F32; file_type is llama.cpp's number of the type. */
static void types(void **state)
{
    static const het_element elements[] = { HET_ELEMENT_F16, HET_ELEMENT_BF16 };
    static const uint32_t numbers[] = { 1, 30 };
    static const int64_t file_types[] = { 1, 32 };
    het_ctx *ctx = make(HET_GPT2, 40);
    float *value = support_alloc(40 * 18, sizeof *value);
    het_gguf_desc desc;
    het_writer to;
    gguf g;
    int i;
    int64_t k;
    (void)state;
    fill(ctx);
    for (i = 0; i < 2; i++) {
        save(ctx, &g, elements[i], NULL);
        expect_u32(&g, "general.file_type", file_types[i]);
        for (k = 0; k < g.tensors; k++)
            assert_int_equal(g.tensor[k].type, g.tensor[k].rank == 1 || strcmp(g.tensor[k].name, "position_embd.weight") == 0 ? 0 : numbers[i]);
        same_rows(ctx, &g, "blk.0.ffn_down.weight", "transformer.h.0.mlp.c_proj.weight", 0, 18, 0);
        same_rows(ctx, &g, "position_embd.weight", "transformer.wpe.weight", 0, 17, 0);
        support_buffer_end(&g.file);
    }
    memset(value, 0, 40 * 18 * sizeof *value);
    value[7] = 1e5f;
    EXPECT_OK(het_parameter_write(ctx, 0, HET_WEIGHT, value));
    memset(&desc, 0, sizeof desc);
    desc.element = HET_ELEMENT_F16;
    support_buffer_start(&g.file);
    to = support_writer(&g.file);
    EXPECT_ERROR(het_save_gguf(ctx, &to, &desc), HET_ERR_DATA, het_last_error(ctx), "element 7 is beyond F16");
    support_buffer_end(&g.file);
    free(value);
    het_destroy(ctx);
}

/* theta = 10000, E = 6: frequencies 1, 10000^(-1/3), 10000^(-2/3); turns within 16 positions 2.55, 0.118, 0.0055; low 1 and high 4. */
static void divisors_of_llama3(void **state)
{
    het_ctx *ctx = make(HET_LLAMA, 40);
    const tensor *t;
    gguf g;
    int i;
    (void)state;
    save(ctx, &g, HET_ELEMENT_F16, NULL);
    t = find_tensor(&g, "rope_freqs.weight");
    assert_non_null(t);
    assert_int_equal(t->rank, 1);
    assert_int_equal(t->size[0], 3);
    assert_int_equal(t->type, 0);
    for (i = 0; i < 3; i++) {
        const double turns = 16.0 * pow(10000.0, -i / 3.0) / (2.0 * acos(-1.0)), s = (turns - 1.0) / 3.0;
        const double right = s > 1.0 ? 1.0 : s < 0.0 ? 8.0 : 1.0 / ((1.0 - s) / 8.0 + s);
        assert_true(fabs(element(&g, t, (uint64_t)i, 0) - right) < 1e-6 * right);
    }
    support_buffer_end(&g.file);
    het_destroy(ctx);
}

/* Gives a tokenizer a template that puts a token behind a text. */
static void appends(het_tokenizer **tokenizer, const char *name, int id)
{
    support_buffer text, with;
    het_writer to;
    het_error error;
    char template[400], *processor, *decoder;
    support_buffer_start(&text), support_buffer_start(&with);
    to = support_writer(&text);
    EXPECT_OK(het_tokenizer_write(*tokenizer, &to));
    support_buffer_append(&text, "", 1);
    processor = strstr((char *)text.data, "\"post_processor\"");
    decoder = strstr((char *)text.data, "\"decoder\"");
    assert_true(processor != NULL && decoder > processor);
    snprintf(template, sizeof template, "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"A\", "
             "\"type_id\": 0}}, {\"SpecialToken\": {\"id\": %s, \"type_id\": 0}}], \"pair\": [], \"special_tokens\": {%s: {\"id\": %s, "
             "\"ids\": [%d], \"tokens\": [%s]}}}, ", name, name, name, id, name);
    support_buffer_append(&with, text.data, (size_t)(processor - (char *)text.data));
    support_buffer_append(&with, template, strlen(template));
    support_buffer_append(&with, decoder, strlen(decoder));
    het_tokenizer_free(*tokenizer);
    EXPECT_ERROR(het_tokenizer_read((char *)with.data, with.size, NULL, tokenizer, &error), HET_OK, error.text, "");
    support_buffer_end(&text), support_buffer_end(&with);
}

static void vocabularies(void **state)
{
    static const char *const special[] = { "<|endoftext|>", "<|user|>" };
    static const char sample[] = "the then there that this, the other thing";
    het_tokenizer_desc desc;
    het_tokenizer *tokenizer;
    het_tokenizer_info info;
    het_ctx *bytes = make(HET_GPT2, 256), *words = make(HET_LLAMA, 300);
    const pair *types_of;
    gguf g;
    (void)state;
    fill(bytes), fill(words);
    save(bytes, &g, HET_ELEMENT_F32, NULL);
    expect_text(&g, "tokenizer.ggml.model", "gpt2");
    expect_text(&g, "tokenizer.ggml.pre", "gpt-2");
    expect_item(&g, "tokenizer.ggml.tokens", 65, "A");
    expect_item(&g, "tokenizer.ggml.tokens", 32, "\xC4\xA0"); /* U+0120 */
    expect_item(&g, "tokenizer.ggml.tokens", 10, "\xC4\x8A"); /* U+010A */
    assert_int_equal(find_pair(&g, "tokenizer.ggml.merges")->count, 0);
    assert_null(find_pair(&g, "tokenizer.ggml.eos_token_id"));
    support_buffer_end(&g.file);
    memset(&desc, 0, sizeof desc);
    desc.vocab = 270;
    desc.split = HET_SPLIT_QWEN2;
    desc.special = special;
    desc.specials = 2;
    EXPECT_OK(het_tokenizer_train(&desc, sample, sizeof sample - 1, &tokenizer, NULL));
    het_tokenizer_get_info(tokenizer, &info);
    save(words, &g, HET_ELEMENT_F32, tokenizer);
    expect_text(&g, "tokenizer.ggml.pre", "qwen2");
    expect_item(&g, "tokenizer.ggml.tokens", 1, "<|user|>");
    expect_item(&g, "tokenizer.ggml.tokens", 299, "[PAD299]");
    expect_item(&g, "tokenizer.ggml.merges", 0, "t h");
    assert_int_equal(find_pair(&g, "tokenizer.ggml.tokens")->count, 300);
    assert_int_equal(find_pair(&g, "tokenizer.ggml.merges")->count, info.merges);
    types_of = find_pair(&g, "tokenizer.ggml.token_type");
    assert_int_equal(types_of->count, 300);
    assert_int_equal(word(types_of->value), 3);
    assert_int_equal(word(types_of->value + 4 * 2), 1);
    assert_int_equal(word(types_of->value + 4 * 299), 5);
    expect_u32(&g, "tokenizer.ggml.eos_token_id", 3);
    expect_u32(&g, "tokenizer.ggml.eot_token_id", 200);
    assert_int_equal(*find_pair(&g, "tokenizer.ggml.add_bos_token")->value, 0);
    support_buffer_end(&g.file);
    appends(&tokenizer, "\"<|user|>\"", 1); /* of the ends, 3 and 200, the first is the other one then */
    save(words, &g, HET_ELEMENT_F32, tokenizer);
    expect_u32(&g, "tokenizer.ggml.eos_token_id", 1);
    expect_u32(&g, "tokenizer.ggml.eot_token_id", 3);
    assert_int_equal(*find_pair(&g, "tokenizer.ggml.add_eos_token")->value, 1);
    support_buffer_end(&g.file);
    het_tokenizer_free(tokenizer);
    het_destroy(bytes), het_destroy(words);
}

static void refused(void **state)
{
    static const struct { const char *model, *words; } no[] = {
        { "gpt2:layers=1,width=16,heads=2,vocab=20,context=8,activation=swiglu", "activation|gpt2 has only GELU" },
        { "gpt2:layers=1,width=16,heads=2,vocab=20,context=8,position=rotary", "position|learned" },
        { "gpt2:layers=1,width=16,heads=2,kv_heads=1,vocab=20,context=8", "kv_heads" },
        { "gpt2:layers=1,width=16,heads=2,vocab=20,context=8,qkv_bias=no", "qkv_bias" },
        { "llama:layers=1,width=16,heads=2,vocab=20,context=8,window=4", "window" },
        { "llama:layers=1,width=16,heads=2,vocab=20,context=8,causal=no", "causal" },
        { "llama:layers=1,width=16,heads=2,vocab=20,context=8,qk_norm=yes", "qk_norm" },
        { "llama:layers=1,width=16,heads=2,vocab=20,context=8,rotary_fraction=0.5", "rotary_fraction" },
        { "qwen3:layers=1,width=16,heads=2,vocab=20,context=8,qk_norm=no", "qk_norm|only yes" },
        { "qwen2:layers=1,width=16,heads=2,vocab=20,context=8,linear_bias=yes", "linear_bias" },
        { "qwen2:layers=1,width=16,heads=2,head_size=4,vocab=20,context=8", "head_size" },
        { "neox:layers=1,width=16,heads=2,vocab=20,context=8,rotary_fraction=1,rotary_factor=2", "rotary_factor" },
    };
    size_t i;
    support_buffer file;
    het_ctx *ctx = make(HET_QWEN2, 256);
    het_gguf_desc desc;
    het_tokenizer_desc train;
    het_tokenizer *tokenizer;
    const int32_t end = 256;
    het_writer to;
    (void)state;
    support_buffer_start(&file);
    to = support_writer(&file);
    for (i = 0; i < sizeof no / sizeof no[0]; i++) {
        het_desc d;
        het_ctx *other;
        het_error error;
        memset(&d, 0, sizeof d);
        support_expect(het_model_parse(no[i].model, &d.model, &error), HET_OK, error.text, "", no[i].model, __LINE__);
        d.limits.max_tokens = 4;
        d.inference = HET_YES;
        other = support_create(&d);
        EXPECT_ERROR(het_save_gguf(other, &to, NULL), HET_ERR_UNSUPPORTED, het_last_error(other), no[i].words);
        assert_int_equal(file.size, 0);
        het_destroy(other);
    }
    memset(&desc, 0, sizeof desc);
    desc.element = HET_ELEMENT_F64;
    EXPECT_ERROR(het_save_gguf(ctx, &to, &desc), HET_ERR_INVALID, het_last_error(ctx), "must be F32, F16 or BF16");
    desc.element = HET_ELEMENT_F32;
    desc.end_canary = 1;
    EXPECT_ERROR(het_save_gguf(ctx, &to, &desc), HET_ERR_INVALID, het_last_error(ctx), "canary");
    desc.end_canary = 0;
    desc.ends = 1;
    EXPECT_ERROR(het_save_gguf(ctx, &to, &desc), HET_ERR_INVALID, het_last_error(ctx), "end[0]");
    desc.end = &end;
    EXPECT_ERROR(het_save_gguf(ctx, &to, &desc), HET_ERR_INVALID, het_last_error(ctx), "end[0] is 256, must be 0 .. 255");
    desc.ends = 0;
    memset(&train, 0, sizeof train);
    train.vocab = 260;
    EXPECT_OK(het_tokenizer_train(&train, "aaaaaaaaaa abab abab abab", 25, &tokenizer, NULL));
    desc.tokenizer = tokenizer;
    EXPECT_ERROR(het_save_gguf(ctx, &to, &desc), HET_ERR_INVALID, het_last_error(ctx), "ids, the model's vocabulary is 256");
    het_tokenizer_free(tokenizer);
    train.vocab = 256;
    train.specials = -1;
    train.split = HET_SPLIT_WHOLE;
    EXPECT_OK(het_tokenizer_train(&train, "a", 1, &tokenizer, NULL));
    desc.tokenizer = tokenizer;
    EXPECT_ERROR(het_save_gguf(ctx, &to, &desc), HET_ERR_UNSUPPORTED, het_last_error(ctx), "does not cut text into words");
    het_tokenizer_free(tokenizer);
    assert_int_equal(het_save_gguf(NULL, &to, NULL), HET_ERR_INVALID);
    EXPECT_OK(het_save_gguf(ctx, NULL, NULL)); /* takes part, writes nothing */
    support_buffer_end(&file);
    het_destroy(ctx);
}

/* A writer that fails after any number of bytes, memory that fails at any call: an error each, and nothing leaks. */
static void failing_files_and_memory(void **state)
{
    support_memory memory;
    support_buffer file;
    het_desc desc;
    het_ctx *ctx;
    het_error error;
    het_writer to;
    int64_t calls, i, live;
    int64_t size;
    (void)state;
    memset(&memory, 0, sizeof memory);
    memory.fail_at = -1;
    memset(&desc, 0, sizeof desc);
    EXPECT_OK(het_model_parse("llama:layers=1,width=16,heads=2,vocab=256,context=8", &desc.model, &error));
    desc.limits.max_tokens = 4;
    desc.inference = HET_YES;
    desc.host.allocator = support_allocator(&memory);
    ctx = support_create(&desc);
    support_buffer_start(&file);
    to = support_writer(&file);
    live = memory.live;
    calls = memory.calls;
    EXPECT_OK(het_save_gguf(ctx, &to, NULL));
    calls = memory.calls - calls;
    size = (int64_t)file.size;
    assert_int_equal(memory.live, live);
    for (i = 0; i < calls; i++) {
        memory.fail_at = memory.calls + i;
        EXPECT_ERROR(het_save_gguf(ctx, &to, NULL), HET_ERR_OOM, het_last_error(ctx), "");
        assert_int_equal(memory.live, live);
    }
    memory.fail_at = -1;
    for (i = 0; i < size; i += 1 + size / 50) {
        file.size = 0;
        file.fail_after = i;
        EXPECT_ERROR(het_save_gguf(ctx, &to, NULL), HET_ERR_IO, het_last_error(ctx), "test.out");
        assert_int_equal(memory.live, live);
    }
    support_buffer_end(&file);
    het_destroy(ctx);
    assert_int_equal(memory.live, 0);
    assert_int_equal(memory.wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_of_each_family),
        cmocka_unit_test(joint_and_paired_rows),
        cmocka_unit_test(types),
        cmocka_unit_test(divisors_of_llama3),
        cmocka_unit_test(vocabularies),
        cmocka_unit_test(refused),
        cmocka_unit_test(failing_files_and_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
