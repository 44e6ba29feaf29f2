/* Multiple-choice questions as llm.c has them (HellaSwag, MMLU). A file: 256 int32, of which [0] is 20240522, [1] 1, [2] the number of questions,
   [3] the bytes of the longest; then uint16 for every question: 65535, its bytes, its number from 0, the right answer, the number of answers, the
   context's length, the context, and for each answer its length and tokens. Little-endian. */
#ifndef PROGRAMS_CHOICES_H
#define PROGRAMS_CHOICES_H

#include "hetrain.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct choice_question {
    int64_t answers, right; /* right < answers */
    const int32_t *token;   /* the context, then the answers one behind the other */
    const int64_t *start;   /* [answers + 1] into token: answer i is [start[i], start[i + 1]); the context is [0, start[0]) */
} choice_question;

typedef struct choice_list {
    int64_t questions;
    choice_question *question;     /* [questions] */
    int64_t most_answers, longest; /* longest: tokens of a context with one of its answers */
    int32_t largest_token;
    int32_t *token;                /* of all questions */
    int64_t *start;
} choice_list;

/* The words of the file are walked twice: once to prove and count them, once to copy them. The first error stays. */
typedef struct choices_walk {
    const char *name;
    const unsigned char *data; /* the whole file */
    uint64_t words, at;        /* uint16 of the file; the next one */
    int64_t vocab, question;
    int64_t tokens, starts;    /* so far */
    choice_list *to;
    int copies;
    het_error *error;
} choices_walk;

#if defined(__GNUC__) || defined(__clang__)
__attribute__((format(printf, 4, 5)))
#endif
static inline void choices_fail(choices_walk *w, het_result code, uint64_t word, const char *format, ...) {
    char what[200], text[280];
    va_list list;
    if (w->error->code != HET_OK) return;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    if (w->question < 0) snprintf(text, sizeof text, "%s: byte %llu: %s", w->name, 2 * (unsigned long long)word, what);
    else snprintf(text, sizeof text, "%s: byte %llu, question %lld: %s", w->name, 2 * (unsigned long long)word, (long long)w->question, what);
    het_error_put(w->error, code, text);
}

static inline int64_t choices_u16(const choices_walk *w, uint64_t word) { return w->data[2 * word] | w->data[2 * word + 1] << 8; }
static inline int64_t choices_u32(const choices_walk *w, uint64_t word) { return choices_u16(w, word) | choices_u16(w, word + 1) << 16; }

/* The next word, 0 after an error. */
static inline int64_t choices_word(choices_walk *w, const char *what) {
    if (w->at >= w->words) choices_fail(w, HET_ERR_FORMAT, w->at, "the file ends before %s", what);
    return w->error->code == HET_OK ? choices_u16(w, w->at++) : 0;
}

static inline void choices_expect(choices_walk *w, const char *what, int64_t wanted) {
    const int64_t value = choices_word(w, what);
    if (value != wanted) choices_fail(w, HET_ERR_FORMAT, w->at - 1, "%s is %lld, not %lld", what, (long long)value, (long long)wanted);
}

/* A length and so many tokens. */
static inline int64_t choices_tokens(choices_walk *w, const char *what) {
    const int64_t length = choices_word(w, what);
    int64_t i;
    if (length < 1) choices_fail(w, HET_ERR_FORMAT, w->at - 1, "%s has no tokens", what);
    for (i = 0; i < length && w->error->code == HET_OK; i++, w->tokens++) {
        const int64_t token = choices_word(w, what);
        if (w->vocab > 0 && token >= w->vocab)
            choices_fail(w, HET_ERR_DATA, w->at - 1, "token %lld of %s; the vocabulary has %lld", (long long)token, what, (long long)w->vocab);
        if (w->copies) w->to->token[w->tokens] = (int32_t)token;
        if (token > w->to->largest_token) w->to->largest_token = (int32_t)token;
    }
    return length;
}

static inline void choices_question(choices_walk *w) {
    const uint64_t begin = w->at;
    const int64_t first = w->tokens;
    int64_t bytes, right, answers, context, i;
    choices_expect(w, "the mark", 65535);
    bytes = choices_word(w, "its bytes");
    choices_expect(w, "its number", w->question);
    right = choices_word(w, "the right answer");
    answers = choices_word(w, "the number of answers");
    if (answers < 1 || right >= answers)
        choices_fail(w, HET_ERR_FORMAT, w->at - 2, "answer %lld is right, of %lld", (long long)right, (long long)answers);
    context = choices_tokens(w, "the context");
    if (w->copies) {
        choice_question *q = &w->to->question[w->question];
        q->answers = answers, q->right = right, q->token = w->to->token + first, q->start = w->to->start + w->starts;
        w->to->start[w->starts] = context;
    }
    if (answers > w->to->most_answers) w->to->most_answers = answers;
    for (i = 0, w->starts++; i < answers && w->error->code == HET_OK; i++, w->starts++) {
        const int64_t length = choices_tokens(w, "an answer");
        if (w->copies) w->to->start[w->starts] = w->tokens - first;
        if (context + length > w->to->longest) w->to->longest = context + length;
    }
    if ((uint64_t)bytes != 2 * (w->at - begin))
        choices_fail(w, HET_ERR_FORMAT, begin, "it has %llu bytes and says %lld", 2 * (unsigned long long)(w->at - begin), (long long)bytes);
}

static inline void choices_walk_all(choices_walk *w) {
    uint64_t longest = 0;
    w->at = 512, w->tokens = w->starts = 0;
    for (w->question = 0; w->question < w->to->questions && w->error->code == HET_OK; w->question++) {
        const uint64_t begin = w->at;
        choices_question(w);
        if (w->at - begin > longest) longest = w->at - begin;
    }
    if (w->error->code != HET_OK) return;
    w->question = -1;
    if (w->at != w->words)
        choices_fail(w, HET_ERR_FORMAT, w->at, "%llu bytes behind the last of %lld questions", 2 * (unsigned long long)(w->words - w->at),
                     (long long)w->to->questions);
    if (2 * longest != (uint64_t)choices_u32(w, 6))
        choices_fail(w, HET_ERR_FORMAT, 6, "the longest question has %llu bytes, the header says %lld", 2 * (unsigned long long)longest,
                     (long long)choices_u32(w, 6));
}

static inline void choices_header(choices_walk *w) {
    w->to->questions = choices_u32(w, 4);
    if (choices_u32(w, 0) != 20240522)
        choices_fail(w, HET_ERR_FORMAT, 0, "the number is %lld; an evaluation file begins with 20240522", (long long)choices_u32(w, 0));
    if (choices_u32(w, 2) != 1) choices_fail(w, HET_ERR_UNSUPPORTED, 2, "version %lld, known is 1", (long long)choices_u32(w, 2));
    if (w->to->questions < 1 || w->to->questions > 65536) /* a question's number is a uint16 */
        choices_fail(w, HET_ERR_FORMAT, 4, "%lld questions; there must be 1 to 65536", (long long)w->to->questions);
}

static inline void choices_free(choice_list *c) {
    free(c->question), free(c->token), free(c->start);
    memset(c, 0, sizeof *c);
}

/* Reads a whole file and proves every number of it: a context and an answer have at least one token, every question ends where its bytes and the
   file say, and tokens are below vocab (0: not checked). *to is empty after an error. */
static inline het_result choices_read(const het_reader *from, int64_t vocab, choice_list *to, het_error *error) {
    const char *name = from->name != NULL ? from->name : "(memory)";
    const size_t size = (size_t)from->size;
    unsigned char *data;
    choices_walk w;
    char text[280];
    memset(to, 0, sizeof *to), memset(error, 0, sizeof *error), memset(&w, 0, sizeof w);
    snprintf(text, sizeof text, "%s: %llu bytes are no evaluation file: 1,024 bytes and 16-bit numbers", name, (unsigned long long)from->size);
    if (from->size < 1024 || from->size % 2 != 0 || from->size > SIZE_MAX / 2) return het_error_put(error, HET_ERR_FORMAT, text);
    data = (unsigned char *)malloc(size);
    snprintf(text, sizeof text, "%s: %zu bytes could not be read", name, size);
    if (data != NULL && from->read(from->user, 0, data, size) != (int64_t)size) het_error_put(error, HET_ERR_IO, text);
    w.name = name, w.data = data, w.words = from->size / 2, w.vocab = vocab, w.question = -1, w.to = to, w.error = error;
    if (data != NULL && error->code == HET_OK) choices_header(&w);
    if (data != NULL && error->code == HET_OK) choices_walk_all(&w);
    if (data != NULL && error->code == HET_OK) {
        to->question = (choice_question *)calloc((size_t)to->questions, sizeof *to->question);
        to->start = (int64_t *)calloc((size_t)w.starts, sizeof *to->start);
        to->token = (int32_t *)calloc((size_t)w.tokens, sizeof *to->token);
        w.copies = to->question != NULL && to->start != NULL && to->token != NULL;
        if (w.copies) choices_walk_all(&w);
    }
    if (error->code == HET_OK && !w.copies) snprintf(text, sizeof text, "%s: no memory for %zu bytes and their tokens", name, size);
    if (error->code == HET_OK && !w.copies) het_error_put(error, HET_ERR_OOM, text);
    free(data);
    if (error->code != HET_OK) choices_free(to);
    return error->code;
}

#endif
