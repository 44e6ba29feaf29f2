/* feed.h: the sequences of a step as micro-batches. What a step trains on, and its granules, belong to the options; how the granules are put
   together into micro-batches is up to the plan and changes no bit. */
#ifndef FEED_H
#define FEED_H

#include "common.h"

/* An item is the least that a micro-batch can have: whole sequences that are one granule, or one sequence of several granules. */
typedef struct step_feed {
    int64_t length, sequences, items;    /* tokens a sequence; sequences and items of a step */
    int64_t item_sequences, item_granules, item_longest; /* of an item; tokens of its longest granule */
    int64_t *item_granule_start;         /* [item_granules + 1] */
    int64_t most, micro_batches;         /* items a micro-batch, at most; micro-batches a step */
    int64_t *part;                       /* [micro_batches] items of each: `most`, the last one what is left */
    int limited;                         /* 1: in proportion to what their pipelines take; they keep their places where some are empty */
    int64_t *sequence_start, *granule_start; /* of the largest micro-batch */
    het_batch *batch;                    /* [micro_batches] */
} step_feed;

static inline void feed_end(step_feed *f) {
    free(f->item_granule_start), free(f->part), free(f->sequence_start), free(f->granule_start), free(f->batch);
    memset(f, 0, sizeof *f);
}

/* Items of at most `most` that a pipeline takes whose micro-batches have at most `limit` tokens. */
static inline int64_t feed_room(const step_feed *f, int64_t most, int64_t limit) {
    const int64_t room = limit / (f->item_sequences * f->length);
    return room < most ? room : most;
}

/* The fewest micro-batches that hold a step's items, of at most `most`, and of at most limit[p] tokens in pipeline p, of which counts[p] get some;
   limit NULL: no plan limits them. */
static inline int64_t feed_count(const step_feed *f, int64_t most, const het_plan *plan, const int64_t *limit, int64_t *counts) {
    int64_t m = (f->items + most - 1) / most, p, held = limit == NULL ? f->items : 0;
    for (; held < f->items; m += held < f->items) {
        het_plan_micro_batches(plan, m, counts);
        for (p = held = 0; p < plan->pipelines; p++) held += counts[p] * feed_room(f, most, limit[p]);
    }
    return m;
}

/* `most` items a micro-batch from now on, or what pipelines take: as feed_count. counts: room for [pipelines], NULL without limits. */
static inline int feed_group(step_feed *f, int64_t most, const het_plan *plan, const int64_t *limit, int64_t *counts) {
    int64_t i, k, p, room = 0, whole = f->items, before = 0;
    free(f->part), free(f->sequence_start), free(f->granule_start), free(f->batch);
    f->most = most < f->items ? most : f->items;
    f->limited = limit != NULL;
    f->micro_batches = feed_count(f, f->most, plan, limit, counts);
    f->part = (int64_t *)malloc((size_t)f->micro_batches * sizeof(int64_t));
    f->sequence_start = (int64_t *)malloc((size_t)(f->most * f->item_sequences + 1) * sizeof(int64_t));
    f->granule_start = (int64_t *)malloc((size_t)(f->most * f->item_granules + 1) * sizeof(int64_t));
    f->batch = (het_batch *)malloc((size_t)f->micro_batches * sizeof(het_batch));
    if (f->part == NULL || f->sequence_start == NULL || f->granule_start == NULL || f->batch == NULL) return fail(FAILED, "out of memory");
    for (p = 0; limit != NULL && p < plan->pipelines; p++) whole = (p > 0 ? whole : 0) + counts[p] * feed_room(f, f->most, limit[p]);
    for (i = p = k = 0; i < f->micro_batches; i++, k++) { /* together the first ones have as much of the items as of all room */
        int64_t end;
        while (limit != NULL && k == counts[p]) p++, k = 0;
        room += limit != NULL ? feed_room(f, f->most, limit[p]) : f->most;
        end = room < whole ? (2 * f->items * room + whole) / (2 * whole) : f->items; /* rounded */
        f->part[i] = end - before;
        before = end;
    }
    for (i = 0; i <= f->most * f->item_sequences; i++) f->sequence_start[i] = i * f->length;
    f->granule_start[0] = 0;
    for (i = 0; i < f->most; i++)
        for (k = 1; k <= f->item_granules; k++)
            f->granule_start[i * f->item_granules + k] = i * f->item_sequences * f->length + f->item_granule_start[k];
    return 0;
}

/* micro_batches x sequences of `length` tokens a step, grouped like that at first; granule: sequences a granule, 0: by rule. */
static inline int feed_start(step_feed *f, int64_t micro_batches, int64_t sequences, int64_t length, int64_t granule) {
    int64_t *start, i, count = 0, g = granule;
    memset(f, 0, sizeof *f);
    if (sequences > INT32_MAX / length)
        return fail(BAD_INPUT, "--sequences %lld: of %lld tokens each (--length); a micro-batch has at most %d tokens", (long long)sequences,
            (long long)length, INT32_MAX);
    if (sequences > INT64_MAX / 16 / length / micro_batches) return fail(BAD_INPUT, "--micro-batches, --sequences, --length: too many tokens a step");
    f->length = length, f->sequences = micro_batches * sequences;
    if ((start = (int64_t *)malloc((size_t)(sequences + 1) * sizeof *start)) == NULL) return fail(FAILED, "out of memory");
    for (i = 0; i <= sequences; i++) start[i] = i * length;
    if (het_granules(start, sequences, g, NULL, 0, &count) != HET_OK) return fail(BAD_INPUT, "--granule %lld: no granules", (long long)g);
    if (g == 0) g = count < sequences ? sequences / count : 1; /* by rule all have the same number of sequences */
    f->item_sequences = sequences % g == 0 ? g : sequences;
    f->items = f->sequences / f->item_sequences;
    if (het_granules(start, f->item_sequences, g, NULL, 0, &f->item_granules) != HET_OK) return fail(BAD_INPUT, "--granule: no granules");
    f->item_granule_start = (int64_t *)malloc((size_t)(f->item_granules + 1) * sizeof(int64_t));
    if (f->item_granule_start == NULL) return fail(FAILED, "out of memory");
    if (het_granules(start, f->item_sequences, g, f->item_granule_start, f->item_granules + 1, &f->item_granules) != HET_OK) return FAILED;
    for (i = 0; i < f->item_granules; i++) {
        const int64_t tokens = f->item_granule_start[i + 1] - f->item_granule_start[i];
        if (tokens > f->item_longest) f->item_longest = tokens;
    }
    free(start);
    return feed_group(f, sequences / f->item_sequences, NULL, NULL, NULL);
}

/* The first `sequences` of `whole`, at most a step's, as micro-batches in f->batch. Returns how many. */
static inline int64_t feed_cut(step_feed *f, const het_batch *whole, int64_t sequences) {
    int64_t first, count = 0, here;
    for (first = 0; first < sequences || (f->limited && count < f->micro_batches); first += here) {
        const int64_t group = f->part[count] * f->item_sequences;
        het_batch *b = &f->batch[count++];
        here = sequences - first < group ? sequences - first : group;
        memset(b, 0, sizeof *b);
        b->tokens = here * f->length, b->sequences = here;
        b->token = whole->token + first * f->length, b->target = whole->target + first * f->length;
        b->sample_id = whole->sample_id + first, b->sequence_start = f->sequence_start;
        if (here % f->item_sequences != 0) continue; /* an evaluation's last: granules by rule, which only gradients would show */
        b->granules = here / f->item_sequences * f->item_granules, b->granule_start = f->granule_start;
    }
    return count;
}

#endif
