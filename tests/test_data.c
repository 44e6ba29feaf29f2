/* Token sources: formats, what is wrong with a file named by offset or value, and every window of an epoch exactly once. */
#include "support.h"

static void put16(support_buffer *file, unsigned value)
{
    unsigned char bytes[2];
    bytes[0] = (unsigned char)(value & 255u);
    bytes[1] = (unsigned char)(value >> 8 & 255u);
    support_buffer_append(file, bytes, 2);
}

static void put32(support_buffer *file, uint32_t value)
{
    put16(file, value & 0xFFFFu);
    put16(file, value >> 16);
}

/* llm.c: 256 int32 of header, then the tokens. */
static void llmc_header(support_buffer *file, uint32_t magic, uint32_t version, uint32_t tokens)
{
    int i;
    put32(file, magic);
    put32(file, version);
    put32(file, tokens);
    for (i = 3; i < 256; i++) put32(file, 0);
}

static het_data_desc describe(support_buffer *file, het_data_format format)
{
    het_data_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.reader = support_reader(file);
    desc.format = format;
    desc.vocab = 60000;
    desc.length = 8;
    desc.sequences = 3;
    return desc;
}

static het_data *open_data(const het_data_desc *desc)
{
    het_data *data = NULL;
    het_error error;
    error.text[0] = 0;
    EXPECT_ERROR(het_data_open(desc, &data, &error), HET_OK, error.text, "");
    assert_non_null(data);
    return data;
}

/* ---- formats ---- */

static void formats(void **state)
{
    static const struct { int kind; het_data_format asked, found; } cases[] = {
        { 0, HET_DATA_BYTES, HET_DATA_BYTES },   { 0, HET_DATA_AUTO, HET_DATA_BYTES }, { 1, HET_DATA_UINT16, HET_DATA_UINT16 },
        { 2, HET_DATA_LLMC, HET_DATA_LLMC },     { 2, HET_DATA_AUTO, HET_DATA_LLMC },  { 3, HET_DATA_LLMC, HET_DATA_LLMC },
        { 3, HET_DATA_AUTO, HET_DATA_LLMC },
    };
    size_t c;
    (void)state;
    for (c = 0; c < sizeof cases / sizeof *cases; c++) {
        const int n = 200;
        support_buffer file;
        het_data_info info;
        het_data_desc desc;
        het_data *data;
        het_batch batch;
        het_error error;
        int64_t largest = 0, first = -1, r, s;
        int i, kind = cases[c].kind;
        support_buffer_start(&file);
        if (kind == 2) llmc_header(&file, 20240520, 1, (uint32_t)n);
        if (kind == 3) llmc_header(&file, 20240801, 7, (uint32_t)n);
        for (i = 0; i < n; i++) {
            int64_t token = kind == 0 ? i % 250 : kind == 3 ? 70000 + i : 300 + i;
            unsigned char byte = (unsigned char)(token & 255);
            if (kind == 0) support_buffer_append(&file, &byte, 1);
            else if (kind == 3) put32(&file, (uint32_t)token);
            else put16(&file, (unsigned)token);
            if (i == 0) first = token;
            if (token > largest) largest = token;
        }
        desc = describe(&file, cases[c].asked);
        desc.vocab = 100000;
        desc.held_out = -1.0f;
        data = open_data(&desc);
        het_data_get_info(data, &info);
        assert_int_equal(info.format, cases[c].found);
        assert_int_equal(info.tokens, n);
        assert_int_equal(info.largest_token, largest);
        assert_int_equal(info.windows, (n - 1) / 8);
        assert_int_equal(info.held_out, 0);
        EXPECT_ERROR(het_data_batch(data, 0, 0, 1, 0, &batch, &error), HET_OK, error.text, "");
        assert_int_equal(batch.tokens, 24);
        assert_int_equal(batch.sequences, 3);
        for (s = 0; s < 3; s++) { /* whole windows; the target is the next token of the file */
            assert_int_equal(batch.sequence_start[s], 8 * s);
            assert_int_equal((batch.token[8 * s] - first) % 8, 0);
            for (r = 8 * s; r < 8 * s + 8; r++) {
                assert_int_equal(batch.token[r], batch.token[8 * s] + r - 8 * s);
                assert_int_equal(batch.target[r], batch.token[r] + 1);
            }
        }
        het_data_close(data);
        support_buffer_end(&file);
    }
}

/* ---- what is wrong with a file ---- */

static void refused(support_buffer *file, const het_data_desc *desc, het_result code, const char *words, int line)
{
    het_data *data = NULL;
    het_error error;
    support_expect(het_data_open(desc, &data, &error), code, error.text, words, "het_data_open", line);
    assert_null(data);
    support_buffer_end(file);
}

static void bad_files(void **state)
{
    support_buffer file;
    het_data_desc desc;
    int i;
    (void)state;
    support_buffer_start(&file);
    desc = describe(&file, HET_DATA_AUTO);
    refused(&file, &desc, HET_ERR_DATA, "test.bin|empty", __LINE__);

    support_buffer_append(&file, "12345678", 8); /* one token short of a window of 8 and its last target */
    desc = describe(&file, HET_DATA_BYTES);
    refused(&file, &desc, HET_ERR_DATA, "test.bin|8 tokens|9", __LINE__);

    for (i = 0; i < 100; i++) put16(&file, i == 61 ? 777u : 5u);
    desc = describe(&file, HET_DATA_UINT16);
    desc.vocab = 777;
    refused(&file, &desc, HET_ERR_DATA, "test.bin|777|122|61", __LINE__); /* its value, offset and number */

    for (i = 0; i < 100; i++) support_buffer_append(&file, "aaaaaaaaab", 10);
    desc = describe(&file, HET_DATA_BYTES);
    desc.vocab = 98;
    refused(&file, &desc, HET_ERR_DATA, "test.bin|98|9", __LINE__);

    support_buffer_append(&file, "odd", 3);
    desc = describe(&file, HET_DATA_UINT16);
    refused(&file, &desc, HET_ERR_FORMAT, "test.bin|3 bytes|uint16", __LINE__);

    support_buffer_append(&file, "short", 5);
    desc = describe(&file, HET_DATA_LLMC);
    refused(&file, &desc, HET_ERR_FORMAT, "test.bin|5 bytes|1024", __LINE__);

    llmc_header(&file, 1234567, 1, 10);
    for (i = 0; i < 10; i++) put16(&file, 5);
    desc = describe(&file, HET_DATA_LLMC);
    refused(&file, &desc, HET_ERR_FORMAT, "test.bin|1234567|offset 0", __LINE__);

    llmc_header(&file, 20240520, 3, 10);
    for (i = 0; i < 10; i++) put16(&file, 5);
    desc = describe(&file, HET_DATA_AUTO);
    refused(&file, &desc, HET_ERR_FORMAT, "test.bin|version 3|offset 4", __LINE__);

    llmc_header(&file, 20240520, 1, 11); /* one token more than there is */
    for (i = 0; i < 10; i++) put16(&file, 5);
    desc = describe(&file, HET_DATA_AUTO);
    refused(&file, &desc, HET_ERR_FORMAT, "test.bin|11 tokens|1046|1044", __LINE__);

    llmc_header(&file, 20240801, 7, 0xFFFFFFFFu);
    for (i = 0; i < 10; i++) put32(&file, 5);
    desc = describe(&file, HET_DATA_AUTO);
    refused(&file, &desc, HET_ERR_FORMAT, "test.bin|4294967295 tokens", __LINE__);

    for (i = 0; i < 100; i++) support_buffer_append(&file, "aaaaaaaaab", 10);
    desc = describe(&file, HET_DATA_BYTES);
    file.fail_after = 500;
    refused(&file, &desc, HET_ERR_IO, "test.bin", __LINE__);

    for (i = 0; i < 100; i++) support_buffer_append(&file, "aaaaaaaaab", 10);
    desc = describe(&file, HET_DATA_BYTES);
    file.size = 900; /* the file shrank behind the reader's back */
    refused(&file, &desc, HET_ERR_IO, "test.bin", __LINE__);
}

/* A file that becomes unreadable later fails the batch, not the process. */
static void reads_that_fail_later(void **state)
{
    support_buffer file;
    het_data_desc desc;
    het_data *data;
    het_batch batch;
    het_error error;
    int i;
    (void)state;
    support_buffer_start(&file);
    for (i = 0; i < 300; i++) support_buffer_append(&file, "aaaaaaaaab", 10);
    desc = describe(&file, HET_DATA_BYTES);
    data = open_data(&desc);
    file.fail_after = 0;
    EXPECT_ERROR(het_data_batch(data, 0, 0, 1, 0, &batch, &error), HET_ERR_IO, error.text, "test.bin");
    EXPECT_ERROR(het_data_held_out(data, 0, &batch, &error), HET_ERR_IO, error.text, "test.bin");
    file.fail_after = -1;
    EXPECT_ERROR(het_data_batch(data, 0, 0, 1, 0, &batch, &error), HET_OK, error.text, "");
    het_data_close(data);
    support_buffer_end(&file);
}

/* A file that has changed since it was opened: a larger token than it had then is refused by every call, and what is known of the file stays. */
static void files_that_change(void **state)
{
    support_buffer file;
    het_data_desc desc;
    het_data_info info;
    het_data *data;
    het_batch batch;
    het_error error;
    int32_t token[20];
    int i;
    (void)state;
    support_buffer_start(&file);
    for (i = 0; i < 300; i++) put16(&file, (unsigned)(i % 100 + 200));
    desc = describe(&file, HET_DATA_UINT16);
    desc.held_out = 0.5f;
    data = open_data(&desc);
    for (i = 0; i < 300; i++) file.data[2 * i + 1] = 1; /* 256 and more */
    EXPECT_ERROR(het_data_tokens(data, 20, 20, token, &error), HET_ERR_DATA, error.text,
                 "test.bin: |token 476 at offset 40 (token number 20)|is not below 300: |the file has been changed");
    EXPECT_ERROR(het_data_batch(data, 0, 0, 1, 0, &batch, &error), HET_ERR_DATA, error.text, "is not below 300");
    EXPECT_ERROR(het_data_held_out(data, 0, &batch, &error), HET_ERR_DATA, error.text, "is not below 300");
    for (i = 0; i < 300; i++) put16(&file, 60000u);
    memmove(file.data, file.data + 600, 600);
    EXPECT_ERROR(het_data_tokens(data, 20, 20, token, &error), HET_ERR_DATA, error.text, "token 60000 at offset 40|is not below 300");
    het_data_get_info(data, &info);
    assert_int_equal(info.largest_token, 299);
    for (i = 0; i < 300; i++) file.data[2 * i] = 43, file.data[2 * i + 1] = 1; /* smaller ones, and the largest again */
    EXPECT_OK(het_data_tokens(data, 20, 20, token, &error));
    for (i = 0; i < 20; i++) assert_int_equal(token[i], 299);
    het_data_close(data);
    support_buffer_end(&file);
}

/* ---- windows ---- */

#define WINDOWS 101

/* 16-bit tokens that count up: a window's first token says which window it is. */
static void counting_file(support_buffer *file)
{
    int i;
    support_buffer_start(file);
    for (i = 0; i < WINDOWS * 8 + 1; i++) put16(file, (unsigned)i);
}

/* The windows of `steps` steps in the order they come. */
static void windows_of(het_data *data, int64_t steps, int64_t micro_batches, int64_t sequences, int64_t *window)
{
    het_batch batch;
    het_error error;
    int64_t step, m, s;
    for (step = 0; step < steps; step++) {
        for (m = 0; m < micro_batches; m++) {
            EXPECT_ERROR(het_data_batch(data, step, m, micro_batches, m, &batch, &error), HET_OK, error.text, "");
            assert_int_equal(batch.sequences, sequences);
            for (s = 0; s < sequences; s++) *window++ = batch.token[batch.sequence_start[s]] / 8;
        }
    }
}

static void every_window_exactly_once(void **state)
{
    static const struct { int64_t micro_batches, sequences; } cases[] = { { 1, 1 }, { 1, 4 }, { 3, 2 }, { 2, 7 } };
    int64_t orders[4][WINDOWS], window[3 * WINDOWS + 100], i;
    support_buffer file;
    size_t c;
    (void)state;
    counting_file(&file);
    for (c = 0; c < 4; c++) {
        int64_t per_step = cases[c].micro_batches * cases[c].sequences, epoch, same = 0;
        het_data_desc desc = describe(&file, HET_DATA_UINT16);
        het_data *data;
        desc.sequences = cases[c].sequences;
        desc.held_out = -1.0f;
        desc.seed = 5;
        data = open_data(&desc);
        windows_of(data, (3 * WINDOWS + per_step - 1) / per_step, cases[c].micro_batches, cases[c].sequences, window);
        for (epoch = 0; epoch < 3; epoch++) {
            char met[WINDOWS];
            memset(met, 0, sizeof met);
            for (i = 0; i < WINDOWS; i++) {
                int64_t w = window[epoch * WINDOWS + i];
                assert_true(w >= 0 && w < WINDOWS);
                if (met[w]) fail_msg("epoch %d: window %d comes twice", (int)epoch, (int)w);
                met[w] = 1;
            }
        }
        for (i = 0; i < WINDOWS; i++) same += window[i] == window[WINDOWS + i];
        assert_true(same < 10); /* another order in the next epoch */
        memcpy(orders[c], window, sizeof orders[c]);
        het_data_close(data);
        desc.seed = 6;
        data = open_data(&desc);
        windows_of(data, 10, cases[c].micro_batches, cases[c].sequences, window);
        assert_memory_not_equal(window, orders[c], 10 * sizeof *window);
        het_data_close(data);
    }
    /* how a step is cut into micro-batches does not change which windows it has: 3 x 2 and 1 x 6 */
    {
        het_data_desc desc = describe(&file, HET_DATA_UINT16);
        het_data *data;
        desc.sequences = 6;
        desc.held_out = -1.0f;
        desc.seed = 5;
        data = open_data(&desc);
        windows_of(data, 10, 1, 6, window);
        assert_memory_equal(window, orders[2], 60 * sizeof *window);
        het_data_close(data);
    }
    support_buffer_end(&file);
}

/* Any step can be asked for at any time, in any order, and gives the same windows and sample ids. */
static void sampling_has_no_state(void **state)
{
    support_buffer file;
    het_data_desc desc;
    het_data *a, *b;
    het_batch x, y;
    het_error error;
    int64_t step;
    (void)state;
    counting_file(&file);
    desc = describe(&file, HET_DATA_UINT16);
    a = open_data(&desc);
    b = open_data(&desc);
    for (step = 0; step < 100; step++) {
        EXPECT_OK(het_data_batch(a, step, step % 2, 2, 0, &x, &error));
        EXPECT_OK(het_data_batch(b, 99 - step, 1 - step % 2, 2, 0, &y, &error));
    }
    EXPECT_OK(het_data_batch(a, 1000000007, 1, 2, 0, &x, &error));
    EXPECT_OK(het_data_batch(b, 1000000007, 1, 2, 0, &y, &error));
    assert_memory_equal(x.token, y.token, (size_t)x.tokens * sizeof *x.token);
    assert_memory_equal(x.target, y.target, (size_t)x.tokens * sizeof *x.target);
    if (x.sample_id) assert_memory_equal(x.sample_id, y.sample_id, (size_t)x.sequences * sizeof *x.sample_id);
    het_data_close(a);
    het_data_close(b);
    support_buffer_end(&file);
}

static void slots_keep_their_content(void **state)
{
    support_buffer file;
    het_data_desc desc;
    het_data *data;
    het_batch batch[64];
    int32_t first[64];
    het_error error;
    int64_t slot;
    (void)state;
    counting_file(&file);
    desc = describe(&file, HET_DATA_UINT16);
    desc.slots = 64;
    data = open_data(&desc);
    for (slot = 0; slot < 64; slot++) {
        EXPECT_OK(het_data_batch(data, slot, 0, 1, slot, &batch[slot], &error));
        first[slot] = batch[slot].token[0];
    }
    for (slot = 0; slot < 64; slot++) assert_int_equal(batch[slot].token[0], first[slot]);
    het_data_close(data);
    support_buffer_end(&file);
}

static void held_out_windows(void **state)
{
    char trained[WINDOWS], kept[WINDOWS];
    int64_t window[2 * WINDOWS], i, first, s;
    support_buffer file;
    het_data_info info;
    het_data_desc desc;
    het_data *data;
    het_batch batch;
    het_error error;
    (void)state;
    counting_file(&file);
    memset(trained, 0, sizeof trained);
    memset(kept, 0, sizeof kept);
    desc = describe(&file, HET_DATA_UINT16);
    desc.held_out = 0.2f;
    data = open_data(&desc);
    het_data_get_info(data, &info);
    assert_int_equal(info.windows + info.held_out, WINDOWS);
    assert_true(info.held_out == 20 || info.held_out == 21);
    windows_of(data, info.windows / 3 + 1, 1, 3, window);
    for (i = 0; i < info.windows; i++) trained[window[i]] = 1;
    for (first = 0;; first += 3) {
        EXPECT_OK(het_data_held_out(data, first, &batch, &error));
        if (batch.tokens == 0) break;
        assert_int_equal(batch.sequences, first + 3 <= info.held_out ? 3 : info.held_out - first);
        for (s = 0; s < batch.sequences; s++) kept[batch.token[batch.sequence_start[s]] / 8]++;
    }
    EXPECT_OK(het_data_held_out(data, INT64_MAX, &batch, &error)); /* no sum overflows */
    assert_int_equal(batch.tokens, 0);
    for (i = 0; i < WINDOWS; i++) {
        assert_int_equal(trained[i], i < info.windows);
        assert_int_equal(kept[i], i >= info.windows);
    }
    het_data_close(data);
    support_buffer_end(&file);
}

/* Any run of tokens of a file, also one of more than a read takes. */
static void runs_of_tokens(void **state)
{
    enum { TOKENS = 70001 };
    int32_t *to = (int32_t *)malloc(TOKENS * sizeof *to);
    support_buffer file;
    het_data_desc desc;
    het_data *data;
    het_error error;
    int64_t i, first;
    (void)state;
    support_buffer_start(&file);
    for (i = 0; i < TOKENS; i++) {
        const unsigned char token[2] = { (unsigned char)(i * 7 % 251), 0 };
        support_buffer_append(&file, token, 2);
    }
    desc = describe(&file, HET_DATA_UINT16);
    data = open_data(&desc);
    for (first = 0; first <= TOKENS; first += 35000) {
        EXPECT_OK(het_data_tokens(data, first, TOKENS - first, to, &error));
        for (i = first; i < TOKENS; i++) assert_int_equal(to[i - first], i * 7 % 251);
    }
    EXPECT_OK(het_data_tokens(data, TOKENS, 0, to, &error));
    EXPECT_ERROR(het_data_tokens(data, 1, TOKENS, to, &error), HET_ERR_INVALID, error.text, "70001 tokens from number 1|70001");
    EXPECT_ERROR(het_data_tokens(data, -1, 1, to, &error), HET_ERR_INVALID, error.text, "number -1");
    EXPECT_ERROR(het_data_tokens(data, 0, 1, NULL, &error), HET_ERR_INVALID, error.text, "NULL");
    het_data_close(data);
    support_buffer_end(&file);
    free(to);
}

/* het_data_tokens, and a batch in slot 1, while another thread fills slot 0: here between what its reader has read and the tokens it becomes. */
typedef struct nested { het_reader inner; het_data *data; int64_t calls; } nested;
static int64_t nested_read(void *user, uint64_t offset, void *to, size_t size)
{
    nested *n = user;
    const int64_t got = n->inner.read(n->inner.user, offset, to, size);
    het_data *data = n->data;
    het_batch batch;
    int32_t token[40];
    if (data == NULL) return got;
    n->data = NULL; /* they read, too */
    EXPECT_OK(het_data_tokens(data, 1, 40, token, NULL));
    EXPECT_OK(het_data_batch(data, 1, 0, 1, 1, &batch, NULL));
    n->data = data;
    n->calls++;
    return got;
}

static void batches_beside_each_other(void **state)
{
    support_buffer file;
    het_data *data, *alone;
    het_data_desc desc;
    het_batch batch, same;
    nested n;
    int64_t i;
    (void)state;
    counting_file(&file);
    desc = describe(&file, HET_DATA_UINT16);
    alone = open_data(&desc);
    memset(&n, 0, sizeof n);
    n.inner = desc.reader;
    desc.reader.read = nested_read;
    desc.reader.user = &n;
    data = open_data(&desc);
    n.data = data;
    EXPECT_OK(het_data_batch(data, 0, 0, 1, 0, &batch, NULL));
    assert_true(n.calls > 0);
    EXPECT_OK(het_data_batch(alone, 0, 0, 1, 0, &same, NULL));
    for (i = 0; i < batch.tokens; i++) assert_int_equal(batch.token[i], same.token[i]);
    het_data_close(data);
    het_data_close(alone);
    support_buffer_end(&file);
}

/* Granules: as het_granules cuts windows of that length. */
static void granules_of_windows(void **state)
{
    support_buffer file;
    het_data_desc desc;
    het_data *data;
    het_batch batch;
    het_error error;
    int64_t start[8], count = 0;
    (void)state;
    counting_file(&file);
    desc = describe(&file, HET_DATA_UINT16);
    desc.length = 200;
    desc.sequences = 2;
    desc.granule = 1;
    data = open_data(&desc);
    EXPECT_OK(het_data_batch(data, 0, 0, 1, 0, &batch, &error));
    EXPECT_OK(het_granules(batch.sequence_start, 2, 1, start, 8, &count));
    assert_int_equal(count, 2);
    if (batch.granules) {
        assert_int_equal(batch.granules, count);
        assert_memory_equal(batch.granule_start, start, (size_t)(count + 1) * sizeof *start);
    }
    het_data_close(data);
    support_buffer_end(&file);
}

/* ---- het_train ---- */

typedef struct watch {
    int64_t steps;
    double first, last, validation;
} watch;

static het_result note(void *user, het_ctx *ctx, const het_step_info *info, double validation_loss)
{
    watch *w = user;
    assert_non_null(ctx);
    assert_int_equal(info->step, w->steps);
    if (w->steps++ == 0) w->first = info->loss;
    w->last = info->loss;
    if (!isnan(validation_loss)) w->validation = validation_loss;
    return HET_OK;
}

static void one_call_trains(void **state)
{
    support_buffer file;
    het_train_desc desc;
    het_error error;
    het_ctx *ctx = NULL;
    watch w;
    uint64_t hash[2];
    int i;
    (void)state;
    support_buffer_start(&file);
    for (i = 0; i < 300; i++) support_buffer_append(&file, "the quick brown fox jumps over the lazy dog. ", 45);
    for (i = 0; i < 2; i++) {
        memset(&desc, 0, sizeof desc);
        memset(&w, 0, sizeof w);
        desc.context.model.layers = 1;
        desc.context.model.width = 32;
        desc.context.model.context = 32;
        desc.context.optimizer.learning_rate = 1e-2f;
        desc.data.reader = support_reader(&file);
        desc.data.length = 32;
        desc.steps = 60;
        desc.micro_batches = i ? 4 : 1; /* the same data, another layout */
        desc.data.sequences = i ? 1 : 4;
        desc.data.granule = 1;
        desc.context.granule = 1;
        desc.progress = note;
        desc.user = &w;
        EXPECT_ERROR(het_train(&desc, &ctx, &error), HET_OK, error.text, "");
        assert_int_equal(w.steps, 60);
        assert_true(w.last < 0.3 * w.first);
        assert_true(w.validation > 0.0 && w.validation < 0.4 * w.first);
        hash[i] = support_hash(ctx);
        het_destroy(ctx);
    }
    assert_true(hash[0] == hash[1]);
    support_buffer_end(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(reads_that_fail_later),
        cmocka_unit_test(files_that_change),
        cmocka_unit_test(every_window_exactly_once),
        cmocka_unit_test(sampling_has_no_state),
        cmocka_unit_test(slots_keep_their_content),
        cmocka_unit_test(held_out_windows),
        cmocka_unit_test(runs_of_tokens),
        cmocka_unit_test(batches_beside_each_other),
        cmocka_unit_test(granules_of_windows),
        cmocka_unit_test(one_call_trains),
    };
    return cmocka_run_group_tests_name("data", tests, NULL, NULL);
}
