/* GPT-2 weights as llm.c's train_gpt2.py writes them (github.com/karpathy/llm.c): 256 int32, of which the first are 20240326, version 3 (float) or 5
   (bfloat16), T, V, L, H, C, Vp; then the parameters kind by kind, each over all layers, matrices as [out][in], wte with Vp >= V rows of which the
   last are padding. */
#ifndef PROGRAMS_LLMC_H
#define PROGRAMS_LLMC_H

#include "hetrain_text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LLMC_HEADER = 1024 };
typedef struct llmc { int64_t version, context, vocab, layers, heads, width, rows; } llmc; /* as the file has them */

#if defined(__GNUC__) || defined(__clang__)
__attribute__((format(printf, 4, 5)))
#endif
static inline het_result llmc_fail(het_error *error, het_result code, const het_reader *from, const char *format, ...) {
    char what[400], text[600];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    snprintf(text, sizeof text, "%s: %s", from->name != NULL ? from->name : "(memory)", what);
    return het_error_put(error, code, text);
}

static inline het_result llmc_read(const het_reader *from, uint64_t offset, void *to, size_t size, het_error *error) {
    const int64_t got = from->read(from->user, offset, to, size);
    if (got == (int64_t)size) return HET_OK;
    return llmc_fail(error, HET_ERR_IO, from, "reading %zu bytes at offset %llu failed (%lld)", size, (unsigned long long)offset, (long long)got);
}

/* Reads the header and proves that the file has the size that it says. */
static inline het_result llmc_open(const het_reader *from, llmc *file, het_error *error) {
    static const char *const names[] = { "number", "version", "context", "vocabulary", "layers", "heads", "width", "padded vocabulary" };
    static const int64_t most[] = { 0, 0, 1 << 24, 1 << 24, 65536, 65536, 65536, 1 << 24 };
    unsigned char header[LLMC_HEADER];
    int64_t number[8];
    uint64_t width, elements, wanted;
    int i;
    het_result result;
    memset(file, 0, sizeof *file);
    if (from->size < sizeof header)
        return llmc_fail(error, HET_ERR_FORMAT, from, "%llu bytes, a header of llm.c has 1024", (unsigned long long)from->size);
    result = llmc_read(from, 0, header, sizeof header, error);
    if (result != HET_OK) return result;
    for (i = 0; i < 8; i++)
        number[i] = (int64_t)((uint64_t)header[4 * i] | (uint64_t)header[4 * i + 1] << 8 | (uint64_t)header[4 * i + 2] << 16 |
                              (uint64_t)header[4 * i + 3] << 24);
    if (number[0] != 20240326)
        return llmc_fail(error, HET_ERR_FORMAT, from, "byte 0: %lld is not 20240326, the number of llm.c's GPT-2 weights", (long long)number[0]);
    if (number[1] != 3 && number[1] != 5)
        return llmc_fail(error, HET_ERR_UNSUPPORTED, from, "byte 4: version %lld, must be 3 (float) or 5 (bfloat16)", (long long)number[1]);
    for (i = 2; i < 8; i++)
        if (number[i] < 1 || number[i] > most[i])
            return llmc_fail(error, HET_ERR_FORMAT, from, "byte %d: %s %lld, must be 1 .. %lld", 4 * i, names[i], (long long)number[i],
                             (long long)most[i]);
    if (number[7] < number[3])
        return llmc_fail(error, HET_ERR_FORMAT, from, "byte 28: padded vocabulary %lld is below the vocabulary %lld", (long long)number[7],
                         (long long)number[3]);
    width = (uint64_t)number[6];
    elements = ((uint64_t)(number[7] + number[2]) + (uint64_t)number[4] * (12 * width + 13) + 2) * width; /* below 2^61 */
    wanted = LLMC_HEADER + elements * (number[1] == 3 ? 4 : 2);
    if (from->size != wanted)
        return llmc_fail(error, HET_ERR_FORMAT, from, "%llu bytes, its header asks for %llu", (unsigned long long)from->size,
                         (unsigned long long)wanted);
    file->version = number[1], file->context = number[2], file->vocab = number[3], file->layers = number[4], file->heads = number[5];
    file->width = number[6], file->rows = number[7];
    return HET_OK;
}

/* The settings in its header. */
static inline het_result llmc_model(const het_reader *from, het_model_desc *model, het_error *error) {
    llmc file;
    het_error why = { HET_OK, "" };
    const het_result result = llmc_open(from, &file, error);
    if (result != HET_OK) return result;
    memset(model, 0, sizeof *model);
    model->family = HET_GPT2, model->layers = file.layers, model->width = file.width, model->heads = file.heads;
    model->vocab = file.vocab, model->context = file.context;
    return het_model_complete(model, &why) == HET_OK ? HET_OK : llmc_fail(error, HET_ERR_FORMAT, from, "%s", why.text);
}

/* The settings must be the file's; dropout and the spread of initial weights are the context's own business. */
static inline het_result llmc_fits(const het_ctx *ctx, const het_reader *from, het_error *error) {
    const het_model_desc *own = &het_get_desc(ctx)->model;
    char a[2048], b[2048], *in_file, *in_context;
    het_model_desc model;
    size_t length;
    const het_result result = llmc_model(from, &model, error);
    if (result != HET_OK) return result;
    if (own->family != HET_GPT2) return llmc_fail(error, HET_ERR_FORMAT, from, "the file is a GPT-2, the context is not");
    model.dropout = own->dropout, model.init_std = own->init_std;
    if (het_model_format(&model, a, sizeof a, &length) != HET_OK || het_model_format(own, b, sizeof b, &length) != HET_OK) return HET_ERR_LIMIT;
    for (in_file = strchr(a, ':'), in_context = strchr(b, ':'); in_file != NULL && in_context != NULL;) {
        const int name = (int)strcspn(in_file + 1, "="), ends = (int)strcspn(in_file + 1, ","), other = (int)strcspn(in_context + 1, ",");
        if (ends != other || strncmp(in_file, in_context, (size_t)ends + 1) != 0)
            return llmc_fail(error, HET_ERR_FORMAT, from, "%.*s is %.*s in the file and %.*s in the context", name, in_file + 1, ends - name - 1,
                             in_file + name + 2, other - name - 1, in_context + name + 2);
        in_file = strchr(in_file + 1, ','), in_context = strchr(in_context + 1, ',');
    }
    return HET_OK;
}

/* bfloat16 behind the floats' own room, or floats, to floats. The error names the first that is not finite, unless the context allows it. */
static inline het_result llmc_floats(const het_reader *from, uint64_t offset, int64_t version, float *to, const het_parameter_info *p, int any,
                                     het_error *error) {
    const int64_t size = version == 3 ? 4 : 2;
    const unsigned char *at = (const unsigned char *)to + p->count * (4 - size);
    int64_t i;
    het_result result = llmc_read(from, offset, (unsigned char *)to + p->count * (4 - size), (size_t)(p->count * size), error);
    for (i = 0; i < p->count && result == HET_OK; i++, at += size) {
        const uint32_t bits = version == 3 ? (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24
                                           : (uint32_t)at[0] << 16 | (uint32_t)at[1] << 24;
        memcpy(&to[i], &bits, sizeof bits);
        if (!any && !isfinite(to[i]))
            result = llmc_fail(error, HET_ERR_DATA, from, "byte %llu: tensor %s: element %lld is %s, not finite",
                               (unsigned long long)offset + (unsigned long long)(i * size), p->name, (long long)i,
                               to[i] > 0 ? "inf" : to[i] < 0 ? "-inf" : "nan");
    }
    return result;
}

/* The parameter of a kind and layer. */
static inline het_result llmc_parameter(const het_ctx *ctx, const char *kind, int64_t layer, int64_t *number, het_parameter_info *info) {
    char name[96];
    if (strstr(kind, "w") == kind || strncmp(kind, "ln_f", 4) == 0) snprintf(name, sizeof name, "transformer.%s", kind);
    else snprintf(name, sizeof name, "transformer.h.%lld.%s", (long long)layer, kind);
    for (*number = het_parameter_count(ctx) - 1; *number >= 0; --*number)
        if (het_parameter_get_info(ctx, *number, info) == HET_OK && strcmp(info->name, name) == 0) return HET_OK;
    return HET_ERR_FORMAT;
}

/* Walks the file in its order; the three of c_attn are one tensor there, q above k above v. values NULL: only asks whether the context has
   everything. *largest: elements of the largest parameter. */
static inline het_result llmc_walk(het_ctx *ctx, const het_reader *from, const llmc *file, float *values, int64_t *largest, het_error *error) {
    static const char *const kinds[][3] = {
        { "wte.weight", NULL, NULL }, { "wpe.weight", NULL, NULL }, { "ln_1.weight", NULL, NULL }, { "ln_1.bias", NULL, NULL },
        { "attn.c_attn.q.weight", "attn.c_attn.k.weight", "attn.c_attn.v.weight" },
        { "attn.c_attn.q.bias", "attn.c_attn.k.bias", "attn.c_attn.v.bias" },
        { "attn.c_proj.weight", NULL, NULL }, { "attn.c_proj.bias", NULL, NULL }, { "ln_2.weight", NULL, NULL }, { "ln_2.bias", NULL, NULL },
        { "mlp.c_fc.weight", NULL, NULL }, { "mlp.c_fc.bias", NULL, NULL }, { "mlp.c_proj.weight", NULL, NULL }, { "mlp.c_proj.bias", NULL, NULL },
        { "ln_f.weight", NULL, NULL }, { "ln_f.bias", NULL, NULL }
    };
    const int64_t size = file->version == 3 ? 4 : 2, last = (int64_t)(sizeof kinds / sizeof kinds[0]) - 2;
    uint64_t offset = LLMC_HEADER;
    int64_t kind, layer, part, p;
    het_result result = HET_OK;
    for (kind = 0; kind < last + 2; kind++) {
        for (layer = 0; layer < (kind < 2 || kind >= last ? 1 : file->layers); layer++)
            for (part = 0; part < 3 && kinds[kind][part] != NULL && result == HET_OK; part++) {
                het_parameter_info info;
                if (llmc_parameter(ctx, kinds[kind][part], layer, &p, &info) != HET_OK)
                    return llmc_fail(error, HET_ERR_FORMAT, from, "the context has no parameter %s of layer %lld", kinds[kind][part],
                                     (long long)layer);
                if (info.count > *largest) *largest = info.count;
                if (values != NULL)
                    result = llmc_floats(from, offset, file->version, values, &info, het_get_desc(ctx)->guard.nonfinite == HET_YES, error);
                if (values != NULL && result == HET_OK) result = het_parameter_write(ctx, p, HET_WEIGHT, values);
                offset += (uint64_t)(info.count * size);
            }
        if (kind == 0) offset += (uint64_t)((file->rows - file->vocab) * file->width * size);
    }
    if (result != HET_OK || offset == from->size) return result;
    return llmc_fail(error, HET_ERR_FORMAT, from, "%llu bytes, the context's parameters end at %llu", (unsigned long long)from->size,
                     (unsigned long long)offset);
}

/* Weights of a file into a context. Nothing is changed unless the file fits; where reading fails then, het_get_status says that weights are
   incomplete. */
static inline het_result llmc_load(het_ctx *ctx, const het_reader *from, het_error *error) {
    llmc file;
    int64_t largest = 0;
    float *values;
    char text[1200];
    het_error why = { HET_OK, "" };
    het_result result = llmc_open(from, &file, error);
    if (result == HET_OK) result = llmc_fits(ctx, from, error);
    if (result == HET_OK) result = llmc_walk(ctx, from, &file, NULL, &largest, error);
    if (result != HET_OK) return result;
    values = (float *)malloc((size_t)largest * sizeof *values);
    if (values == NULL) return llmc_fail(error, HET_ERR_OOM, from, "no memory for %lld weights", (long long)largest);
    result = het_restore_begin(ctx, HET_WEIGHTS_INCOMPLETE);
    if (result == HET_OK) result = llmc_walk(ctx, from, &file, values, &largest, &why);
    free(values);
    if (result == HET_OK) return het_restore_end(ctx, HET_WEIGHTS_INCOMPLETE, 0, NULL, NULL);
    snprintf(text, sizeof text, "%s; weights are partly overwritten, load them again", why.text[0] != 0 ? why.text : het_last_error(ctx));
    return het_error_put(error, result, text);
}

#endif
