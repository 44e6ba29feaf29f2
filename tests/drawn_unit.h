/* A unit whose program is drawn from a seed, its settings: up to eight nodes of all kinds over what there is so far; what no node reads is joined
   into the one stream that goes out. het_create refuses some of them, with more names, sites of dropout or parameters than a unit may have. */
#ifndef DRAWN_UNIT_H
#define DRAWN_UNIT_H

#include "support.h"

#include <stdio.h>

enum { DRAWN_VALUES = 40, DRAWN_SITES = 4 };

typedef struct drawn_program {
    het_program *p;
    const het_model_desc *m;
    uint64_t seed;
    int values, names, sites;         /* sites: residuals, each of which may drop */
    int value[DRAWN_VALUES], reads[DRAWN_VALUES];
    int64_t width[DRAWN_VALUES];
    char name[24];
} drawn_program;

static int drawn_add(drawn_program *d, int value, int64_t width)
{
    assert_true(d->values < DRAWN_VALUES);
    d->value[d->values] = value, d->reads[d->values] = 0, d->width[d->values] = width;
    return d->values++;
}

static const char *drawn_name(drawn_program *d)
{
    snprintf(d->name, sizeof d->name, "drawn.#.%d", d->names++);
    return d->name;
}

/* A value that is not read twice yet, of this width (0: any) that is a multiple of `part`; the input may be read more often. -1: there is none. */
static int drawn_pick(drawn_program *d, int64_t width, int64_t part)
{
    int fits[DRAWN_VALUES], count = 0, i;
    for (i = 0; i < d->values; i++)
        if ((width == 0 || d->width[i] == width) && d->width[i] % part == 0 && d->reads[i] < 2 + (i == 0)) fits[count++] = i;
    return count > 0 ? fits[support_below(&d->seed, count)] : -1;
}

static int drawn_read(drawn_program *d, int i)
{
    d->reads[i]++;
    return d->value[i];
}

static int64_t drawn_width(drawn_program *d)
{
    const het_model_desc *m = d->m;
    const int64_t widths[] = { m->width, m->heads * m->head_size, m->kv_heads * m->head_size, m->mlp_width, m->head_size, 24, 17 };
    return widths[support_below(&d->seed, 7)];
}

static int drawn_linear(drawn_program *d, int x, int64_t out) { return het_node_linear(d->p, x, drawn_name(d), out, 0.15f); }

/* k and v are products; k may be turned, v go through an activation or dropout. */
static void drawn_attention(drawn_program *d)
{
    const int64_t head = d->m->head_size, kv = d->m->kv_heads * head;
    const int q = drawn_pick(d, d->m->heads * head, 1), x = drawn_pick(d, 0, 1);
    int k, v;
    if (q < 0 || x < 0) return;
    k = drawn_linear(d, drawn_read(d, x), kv);
    v = drawn_linear(d, d->value[x], kv);
    if (d->m->position == HET_ROTARY && support_below(&d->seed, 2)) k = het_node_rotary(d->p, k);
    if (support_below(&d->seed, 4) == 0) k = het_node_head_norm(d->p, k, drawn_name(d));
    if (support_below(&d->seed, 4) == 0) v = het_node_activation(d->p, HET_GELU_TANH, v, -1);
    if (support_below(&d->seed, 4) == 0 && d->sites < DRAWN_SITES) v = het_node_residual(d->p, -1, v), d->sites++;
    drawn_add(d, het_node_attention(d->p, drawn_read(d, q), k, v), d->width[q]);
}

static void drawn_node(drawn_program *d)
{
    const int64_t head = d->m->head_size;
    const int kind = (int)support_below(&d->seed, 9), x = drawn_pick(d, 0, kind == 1 || kind == 3 ? head : 1);
    int y;
    if (x < 0) return;
    switch (kind) {
    case 0: drawn_add(d, het_node_norm(d->p, drawn_read(d, x), drawn_name(d)), d->width[x]); return;
    case 1: drawn_add(d, het_node_head_norm(d->p, drawn_read(d, x), drawn_name(d)), d->width[x]); return;
    case 2: {
        const int64_t out = drawn_width(d);
        drawn_add(d, drawn_linear(d, drawn_read(d, x), out), out);
        return;
    }
    case 3: if (d->m->position == HET_ROTARY) drawn_add(d, het_node_rotary(d->p, drawn_read(d, x)), d->width[x]); return;
    case 4: case 5: drawn_attention(d); return;
    case 6:
        y = het_node_activation(d->p, support_below(&d->seed, 2) ? HET_GELU_ERF : HET_GELU_TANH, drawn_read(d, x), -1);
        drawn_add(d, y, d->width[x]);
        return;
    case 7:
        y = drawn_pick(d, d->width[x], 1);
        y = het_node_activation(d->p, HET_SWIGLU, drawn_read(d, x), drawn_read(d, y));
        drawn_add(d, y, d->width[x]);
        return;
    default:
        if (d->sites == DRAWN_SITES - 1) return;
        y = drawn_pick(d, d->width[x], 1); /* a sum, or dropout alone */
        y = support_below(&d->seed, 2) ? het_node_residual(d->p, drawn_read(d, x), drawn_read(d, y)) : het_node_residual(d->p, -1, drawn_read(d, x));
        drawn_add(d, y, d->width[x]);
        d->sites++;
    }
}

static het_result drawn_describe(const het_unit *unit, het_unit_info *info)
{
    const uint64_t *seed = (const uint64_t *)unit->settings;
    drawn_program d;
    int i, x = -1;
    memset(&d, 0, sizeof d);
    d.p = het_program_begin(unit, info), d.m = unit->model, d.seed = *seed;
    for (i = 0; i < info->in_streams; i++) drawn_add(&d, het_node_input(d.p, i, info->in_width[i]), info->in_width[i]);
    for (i = 1 + (int)support_below(&d.seed, 8); i > 0; i--) drawn_node(&d);
    for (i = 0; i < d.values; i++) {
        int y = d.value[i];
        if (d.reads[i] > 0) continue;
        if (d.width[i] != d.m->width || support_below(&d.seed, 3) == 0) y = drawn_linear(&d, y, d.m->width);
        if (x >= 0 && d.sites++ == DRAWN_SITES) return HET_ERR_LIMIT;
        x = x < 0 ? y : support_below(&d.seed, 2) ? het_node_residual(d.p, x, y) : het_node_residual(d.p, y, x);
    }
    het_node_output(d.p, x);
    return het_program_end(d.p);
}

static const het_unit_iface drawn_unit = { HETRAIN_UNIT_VERSION, "drawn", drawn_describe, het_program_forward, het_program_backward_input,
                                           het_program_backward_weight };

/* The model's units, with two drawn ones behind the first layer, into units[capacity]; seed: [2], which must stay. Returns how many. */
static int64_t drawn_chain(const het_model_desc *model, uint64_t *seed, het_unit *units, int64_t capacity)
{
    int64_t count, i;
    EXPECT_OK(het_model_units(model, units, capacity - 2, &count, NULL));
    memmove(units + 5, units + 3, (size_t)(count - 3) * sizeof *units);
    for (i = 0; i < 2; i++) {
        units[3 + i] = units[2];
        units[3 + i].iface = &drawn_unit, units[3 + i].settings = seed + i, units[3 + i].layer = 50 + i;
    }
    return count + 2;
}

#endif
