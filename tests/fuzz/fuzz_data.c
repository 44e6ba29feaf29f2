/* The first byte says what the rest is: 0 .. 3 a token file read as het_data_format 0 .. 3, 4 multiple-choice questions, 5 GPT-2 weights of llm.c.
   Batches must hold tokens below the vocabulary, a window one token apart; questions must be proven. `make fuzz` runs it, tests/test_fuzz.c
   replays the corpus. */
#include "fuzz.h"

#include "../../programs/choices.h"
#include "../../programs/llmc.h"

#define FUZZ_VOCAB 1000

static void fuzz_data_batch(const het_batch *batch)
{
    int64_t i, s;
    fuzz_check(batch->sequences >= 0 && batch->tokens >= 0, "a negative number");
    for (i = 0; i < batch->tokens; i++) {
        fuzz_check(batch->token[i] >= 0 && batch->token[i] < FUZZ_VOCAB, "a token outside the vocabulary");
        fuzz_check(batch->target[i] >= -1 && batch->target[i] < FUZZ_VOCAB, "a target outside the vocabulary");
    }
    for (s = 0; s < batch->sequences; s++)
        for (i = batch->sequence_start[s]; i + 1 < batch->sequence_start[s + 1]; i++)
            fuzz_check(batch->target[i] == batch->token[i + 1], "a target that is not the next token");
}

static void fuzz_data_tokens(fuzz_bytes *file, het_data_format format)
{
    het_data_desc desc;
    het_data *data = NULL;
    het_data_info info;
    het_batch batch;
    het_error error;
    het_result result;
    int64_t step;
    memset(&desc, 0, sizeof desc);
    desc.reader = fuzz_reader(file);
    desc.format = format;
    desc.vocab = FUZZ_VOCAB;
    desc.length = 8;
    desc.sequences = 2;
    desc.held_out = 0.3f;
    error.text[0] = 0;
    result = het_data_open(&desc, &data, &error);
    fuzz_error(result, &error);
    fuzz_check((result == HET_OK) == (data != NULL), "data and an error");
    if (data == NULL) return;
    het_data_get_info(data, &info);
    fuzz_check(info.tokens >= 0 && info.windows >= 0 && info.held_out >= 0 && info.largest_token < FUZZ_VOCAB, "what the data are");
    for (step = 0; step < 3; step++) {
        result = het_data_batch(data, step, step % 2, 2, 0, &batch, &error);
        fuzz_error(result, &error);
        if (result == HET_OK) fuzz_data_batch(&batch);
    }
    if (het_data_held_out(data, 0, &batch, &error) == HET_OK) fuzz_data_batch(&batch);
    het_data_close(data);
}

static void fuzz_data_choices(fuzz_bytes *file)
{
    het_reader from = fuzz_reader(file);
    choice_list c;
    het_error error;
    het_result result;
    int64_t q, a, i;
    error.text[0] = 0;
    result = choices_read(&from, FUZZ_VOCAB, &c, &error);
    fuzz_error(result, &error);
    fuzz_check((result == HET_OK) == (c.question != NULL), "questions and an error");
    if (c.question == NULL) return;
    for (q = 0; q < c.questions; q++) {
        const choice_question *one = &c.question[q];
        fuzz_check(one->right >= 0 && one->right < one->answers && one->answers <= c.most_answers, "an answer that is none");
        fuzz_check(one->start[0] > 0, "an empty context");
        for (a = 0; a < one->answers; a++) {
            fuzz_check(one->start[a + 1] > one->start[a], "an empty answer");
            fuzz_check(one->start[0] + one->start[a + 1] - one->start[a] <= c.longest, "longer than the longest");
        }
        for (i = 0; i < one->start[one->answers]; i++)
            fuzz_check(one->token[i] >= 0 && one->token[i] <= c.largest_token && one->token[i] < FUZZ_VOCAB, "a token outside the vocabulary");
    }
    choices_free(&c);
}

static void fuzz_data_llmc(fuzz_bytes *file)
{
    het_reader from = fuzz_reader(file);
    het_model_desc model;
    het_desc desc;
    het_ctx *ctx = NULL;
    het_error error;
    het_result result;
    error.text[0] = 0;
    result = llmc_model(&from, &model, &error);
    fuzz_error(result, &error);
    if (result != HET_OK || file->size > 100000 || model.vocab > 10000 || model.context > 10000) return;
    memset(&desc, 0, sizeof desc);
    desc.model = model;
    desc.limits.max_tokens = desc.limits.max_sequences = 1;
    desc.inference = HET_YES, desc.guard.nonfinite = HET_YES; /* any bytes are weights */
    fuzz_check(het_create(&desc, &ctx, &error) == HET_OK, "a model that cannot be made");
    fuzz_check(llmc_load(ctx, &from, &error) == HET_OK, "weights that do not fit their own header");
    het_destroy(ctx);
}

static int fuzz_data(const uint8_t *data, size_t size)
{
    fuzz_bytes file;
    const int kind = size > 0 ? data[0] % 6 : 0;
    file.size = size > 0 ? size - 1 : 0;
    file.data = fuzz_copy(size > 0 ? data + 1 : data, file.size);
    if (kind == 4) fuzz_data_choices(&file);
    else if (kind == 5) fuzz_data_llmc(&file);
    else fuzz_data_tokens(&file, (het_data_format)kind);
    free(file.data);
    return 0;
}

FUZZ_ENTRY(fuzz_data)
