/* Files of multiple-choice questions: what is read is what was written, every length but the whole is refused, and so is every number that is not
   what the format says, with the place named. */
#include "support.h"

#include "programs/choices.h"

/* A file in the making: uint16 behind 256 int32. */
typedef struct quiz { support_buffer file; int64_t questions, longest; } quiz;

static void put(support_buffer *b, uint32_t value, int bytes)
{
    unsigned char byte[4];
    int i;
    for (i = 0; i < bytes; i++) byte[i] = (unsigned char)(value >> (8 * i) & 255u);
    support_buffer_append(b, byte, (size_t)bytes);
}

static void set(support_buffer *b, size_t at, uint32_t value, int bytes)
{
    int i;
    for (i = 0; i < bytes; i++) b->data[at + (size_t)i] = (unsigned char)(value >> (8 * i) & 255u);
}

static void quiz_start(quiz *q)
{
    int i;
    memset(q, 0, sizeof *q);
    support_buffer_start(&q->file);
    for (i = 0; i < 256; i++) put(&q->file, i == 0 ? 20240522 : i == 1 ? 1 : 0, 4);
}

/* Tokens of text number t of a question: (question * 100 + t * 10 + i) % 500. */
static void quiz_text(quiz *q, int64_t text, int64_t length)
{
    int64_t i;
    put(&q->file, (uint32_t)length, 2);
    for (i = 0; i < length; i++) put(&q->file, (uint32_t)((q->questions * 100 + text * 10 + i) % 500), 2);
}

static void quiz_add(quiz *q, int64_t right, int64_t answers, int64_t context)
{
    const size_t begin = q->file.size;
    int64_t i;
    put(&q->file, 65535, 2);
    put(&q->file, 0, 2);
    put(&q->file, (uint32_t)q->questions, 2);
    put(&q->file, (uint32_t)right, 2);
    put(&q->file, (uint32_t)answers, 2);
    quiz_text(q, 0, context);
    for (i = 0; i < answers; i++) quiz_text(q, i + 1, 1 + (q->questions + i) % 4);
    set(&q->file, begin + 2, (uint32_t)(q->file.size - begin), 2);
    if ((int64_t)(q->file.size - begin) > q->longest) q->longest = (int64_t)(q->file.size - begin);
    q->questions++;
    set(&q->file, 8, (uint32_t)q->questions, 4);
    set(&q->file, 12, (uint32_t)q->longest, 4);
}

static void three_questions(quiz *q)
{
    quiz_start(q);
    quiz_add(q, 2, 4, 6);
    quiz_add(q, 0, 1, 1);
    quiz_add(q, 1, 2, 9);
}

static void what_was_written(void **state)
{
    quiz q;
    choice_list c;
    het_error error;
    het_reader reader;
    int64_t n, i, t;
    (void)state;
    three_questions(&q);
    reader = support_reader(&q.file);
    EXPECT_OK(choices_read(&reader, 500, &c, &error));
    assert_int_equal(c.questions, 3);
    assert_int_equal(c.most_answers, 4);
    assert_int_equal(c.longest, 9 + 4);
    assert_int_equal(c.largest_token, 223);
    for (n = 0; n < 3; n++) {
        const choice_question *question = &c.question[n];
        assert_int_equal(question->answers, n == 0 ? 4 : n == 1 ? 1 : 2);
        assert_int_equal(question->right, n == 0 ? 2 : n == 1 ? 0 : 1);
        assert_int_equal(question->start[0], n == 0 ? 6 : n == 1 ? 1 : 9);
        for (t = 0; t <= question->answers; t++) {
            const int64_t begin = t > 0 ? question->start[t - 1] : 0;
            if (t > 0) assert_int_equal(question->start[t] - begin, 1 + (n + t - 1) % 4);
            for (i = begin; i < question->start[t]; i++) assert_int_equal(question->token[i], (n * 100 + t * 10 + i - begin) % 500);
        }
    }
    choices_free(&c);
    choices_free(&c);
    support_buffer_end(&q.file);
}

static void every_length(void **state)
{
    quiz q;
    size_t size, whole;
    (void)state;
    three_questions(&q);
    whole = q.file.size;
    for (size = 0; size <= whole + 2; size++) {
        choice_list c;
        het_error error;
        het_reader reader;
        q.file.size = size;
        if (size > whole) q.file.data[size - 1] = 0;
        reader = support_reader(&q.file);
        if (size == whole) {
            EXPECT_OK(choices_read(&reader, 0, &c, &error));
            choices_free(&c);
            support_buffer_append(&q.file, "\0\0", 2);
        } else EXPECT_ERROR(choices_read(&reader, 0, &c, &error), HET_ERR_FORMAT, error.text, "b|yte");
    }
    support_buffer_end(&q.file);
}

/* One number changed: where (bytes), to what, and what the message says. */
static void bad_numbers(void **state)
{
    static const struct { size_t at; uint32_t value; int bytes; het_result code; const char *words; } cases[] = {
        { 0, 20240520, 4, HET_ERR_FORMAT, "byte 0|20240520|20240522" },
        { 4, 2, 4, HET_ERR_UNSUPPORTED, "byte 4|version 2" },
        { 8, 0, 4, HET_ERR_FORMAT, "byte 8|0 questions" },
        { 8, 65537, 4, HET_ERR_FORMAT, "byte 8|65537" },
        { 8, 2, 4, HET_ERR_FORMAT, "bytes behind the last of 2" },
        { 8, 4, 4, HET_ERR_FORMAT, "question 3|the file ends before the mark" },
        { 12, 1, 4, HET_ERR_FORMAT, "byte 12|longest|says 1" },
        { 1024, 65534, 2, HET_ERR_FORMAT, "byte 1024|question 0|mark|65534" },
        { 1026, 3, 2, HET_ERR_FORMAT, "byte 1024|question 0|says 3" },
        { 1028, 1, 2, HET_ERR_FORMAT, "byte 1028|its number is 1, not 0" },
        { 1030, 4, 2, HET_ERR_FORMAT, "byte 1030|answer 4 is right, of 4" },
        { 1032, 0, 2, HET_ERR_FORMAT, "of 0" },
        { 1034, 0, 2, HET_ERR_FORMAT, "byte 1034|the context has no tokens" },
        { 1034, 60000, 2, HET_ERR_DATA, "byte 1076|question 0|token 65535" },
        { 1036, 500, 2, HET_ERR_DATA, "byte 1036|question 0|token 500|the vocabulary has 500" }
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        quiz q;
        choice_list c;
        het_error error;
        het_reader reader;
        three_questions(&q);
        set(&q.file, cases[i].at, cases[i].value, cases[i].bytes);
        reader = support_reader(&q.file);
        EXPECT_ERROR(choices_read(&reader, 500, &c, &error), cases[i].code, error.text, cases[i].words);
        assert_true(c.question == NULL && c.questions == 0);
        support_buffer_end(&q.file);
    }
}

static void a_file_that_breaks_off(void **state)
{
    quiz q;
    choice_list c;
    het_error error;
    het_reader reader;
    (void)state;
    three_questions(&q);
    reader = support_reader(&q.file);
    q.file.fail_after = 10;
    EXPECT_ERROR(choices_read(&reader, 0, &c, &error), HET_ERR_IO, error.text, "could not be read");
    support_buffer_end(&q.file);
}

/* Every bit of the file turned around: it is refused, or another right answer, context or token is read; nothing else happens. */
static void every_bit(void **state)
{
    quiz q;
    size_t bit;
    int64_t accepted = 0;
    (void)state;
    three_questions(&q);
    for (bit = 0; bit < 8 * q.file.size; bit++) {
        choice_list c;
        het_error error;
        het_reader reader = support_reader(&q.file);
        if (bit >= 8 * 16 && bit < 8 * 1024) continue; /* reserved */
        q.file.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        if (choices_read(&reader, 500, &c, &error) == HET_OK) {
            accepted++;
            assert_true(c.questions == 3 && c.largest_token < 500 && c.longest == 13);
        }
        choices_free(&c);
        q.file.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    assert_true(accepted > 0);
    support_buffer_end(&q.file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written), cmocka_unit_test(every_length), cmocka_unit_test(bad_numbers),
        cmocka_unit_test(a_file_that_breaks_off), cmocka_unit_test(every_bit),
    };
    return cmocka_run_group_tests_name("choices", tests, NULL, NULL);
}
