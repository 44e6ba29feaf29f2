/* hetrain_plan.h 0.1.0: what a plan would cost, and what it looks like. A companion of hetrain.h that uses only its public API.

   USE
       #define HETRAIN_IMPLEMENTATION           in one source file of the program, before the includes; the other files include them without.
       #define HETRAIN_PLAN_IMPLEMENTATION
       #include "hetrain.h"
       #include "hetrain_plan.h"
   Both implementations may stand in one file or in two. Needs libc; no libm, no threads, no stdio.

   OPTIONS   (macros, defined before the include)
       macro                          default                     needed where, effect
       HETRAIN_PLAN_IMPLEMENTATION    not defined                 implementation: one file has it and gets the code
       HETRAIN_STATIC                 not defined                 everywhere: all functions static, a private copy (hetrain.h defines what it means)

   FUNCTIONS
       >>picture_api     het_timeline_trace het_timeline_svg
*/

#ifndef HETRAIN_PLAN_H
#define HETRAIN_PLAN_H

#ifndef HETRAIN_H
#include "hetrain.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- >>picture_api: a timeline to look at -------------------------------------------------------------------------
   Both take timelines of het_simulate, of a training step, or from elsewhere: records rank by rank. `plan` adds the units of each stage to the
   names; it may be NULL. HET_ERR_INVALID: a record's rank is out of range or falls, or its times are negative, not finite or reversed. */

/* Chrome trace JSON, for ui.perfetto.dev or chrome://tracing: a process a rank, a thread for what it computes, others for what it moves,
   named as in the text of a schedule, an arrow from every SEND to the RECV it belongs to. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_timeline_trace(const het_timeline *timeline, const het_plan *plan, const het_writer *to);

typedef struct het_svg_desc {
    uint32_t start_canary;
    const char *title;                /* UTF-8; NULL: "Timeline of one step" */
    double width;                     /* pixels, 400 to 20000: 1200 */
    double row_height;                /* pixels a rank, 2 to 200; 0: by the number of ranks */
    int64_t transfers;                /* lines between ranks are drawn where there are at most so many: 600; negative: never */
    het_choice dark;                  /* light letters on a dark ground: no */
    uint32_t end_canary;
} het_svg_desc;

/* A picture that needs nothing else: a row a rank, a box an action, idle time empty. Boxes too thin to be seen are drawn together, their
   kinds one above the other by their share, so that a file stays below about 4 MB however many records there are. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_timeline_svg(const het_timeline *timeline, const het_plan *plan, const het_svg_desc *desc, const het_writer *to);

#ifdef __cplusplus
}
#endif
#endif /* HETRAIN_PLAN_H ---- end of the API: to use hetrain_plan.h you need nothing below ---- */
/* ================================================================================================================
   >>config  Compiler differences, in one place.
   ================================================================================================================ */
#if defined(HETRAIN_PLAN_IMPLEMENTATION) && !defined(HETRAIN_PLAN_IMPLEMENTATION_DONE)

#include <stdarg.h>
#include <string.h>

#ifdef __cplusplus
#define HETI_P_CAST(type, value) static_cast<type>(value)
#else
#define HETI_P_CAST(type, value) ((type)(value))
#endif

/* Passes on an error: HETI_P_TRY(call). */
#define HETI_P_TRY(call) do { het_result heti_p_try_result = (call); if (heti_p_try_result != HET_OK) return heti_p_try_result; } while (0)

#ifdef __cplusplus
extern "C" {
#endif

/* ================================================================================================================
   >>out  Text on its way to a writer: collected, so that write() is called once in a few kilobytes. The first failure is kept and everything
   after it dropped, so that only heti_p_out_end has to be checked.
   ================================================================================================================ */

typedef struct heti_p_out {
    const het_writer *to;
    het_result result;
    size_t length;
    char text[4096];
} heti_p_out;

static void heti_p_out_start(heti_p_out *out, const het_writer *to)
{
    out->to = to;
    out->result = HET_OK;
    out->length = 0;
}

static het_result heti_p_out_end(heti_p_out *out)
{
    if (out->result == HET_OK && out->length > 0 && out->to->write(out->to->user, out->text, out->length) != 0) out->result = HET_ERR_IO;
    out->length = 0;
    return out->result;
}

static void heti_p_out_char(heti_p_out *out, char c)
{
    if (out->length == sizeof out->text) (void)heti_p_out_end(out);
    out->text[out->length++] = c;
}

static void heti_p_out_text(heti_p_out *out, const char *s)
{
    for (; *s != 0; s++) heti_p_out_char(out, *s);
}

static void heti_p_out_unsigned(heti_p_out *out, uint64_t value)
{
    char digit[20];
    int n = 0;
    do {
        digit[n++] = "0123456789"[value % 10];
        value /= 10;
    } while (value != 0);
    while (n > 0) heti_p_out_char(out, digit[--n]);
}

static void heti_p_out_integer(heti_p_out *out, int64_t value)
{
    if (value < 0) heti_p_out_char(out, '-');
    heti_p_out_unsigned(out, value < 0 ? 0 - HETI_P_CAST(uint64_t, value) : HETI_P_CAST(uint64_t, value));
}

/* value with `decimals` digits behind the point, rounded half up, without trailing zeros; |value| 10^decimals is cut at 2^63. */
static void heti_p_out_fixed(heti_p_out *out, double value, int decimals)
{
    char digit[20];
    double scaled = value < 0 ? -value : value;
    uint64_t number, scale = 1, rest;
    int i, shown = decimals;
    for (i = 0; i < decimals; i++) scale *= 10;
    scaled = scaled * HETI_P_CAST(double, scale) + 0.5;
    number = scaled < 9.2e18 ? HETI_P_CAST(uint64_t, scaled) : HETI_P_CAST(uint64_t, 9200000000000000000);
    if (value < 0 && number > 0) heti_p_out_char(out, '-');
    heti_p_out_unsigned(out, number / scale);
    rest = number % scale;
    for (i = decimals; i-- > 0; rest /= 10) digit[i] = "0123456789"[rest % 10];
    while (shown > 0 && digit[shown - 1] == '0') shown--;
    if (shown > 0) heti_p_out_char(out, '.');
    for (i = 0; i < shown; i++) heti_p_out_char(out, digit[i]);
}

/* Parts of a line: %s text, %d int64_t, %g double with 3 decimals. Arguments must have exactly these types. */
static void heti_p_out_format(heti_p_out *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    for (; *format != 0; format++) {
        if (*format != '%') { heti_p_out_char(out, *format); continue; }
        switch (*++format) {
        case 's': heti_p_out_text(out, va_arg(arguments, const char *)); break;
        case 'd': heti_p_out_integer(out, va_arg(arguments, int64_t)); break;
        case 'g': heti_p_out_fixed(out, va_arg(arguments, double), 3); break;
        default: heti_p_out_char(out, *format); break;
        }
    }
    va_end(arguments);
}

/* Text of the user's inside XML: the five characters XML keeps for itself, and '?' for what XML 1.0 does not allow. A byte that does not
   continue valid UTF-8 becomes '?' too. */
static void heti_p_out_xml(heti_p_out *out, const char *s)
{
    while (*s != 0) {
        unsigned char c = HETI_P_CAST(unsigned char, *s);
        int length = c < 0x80 ? 1 : c >= 0xC2 && c < 0xE0 ? 2 : c >= 0xE0 && c < 0xF0 ? 3 : c >= 0xF0 && c < 0xF5 ? 4 : 0, i;
        for (i = 1; i < length; i++)
            if ((HETI_P_CAST(unsigned char, s[i]) & 0xC0u) != 0x80u) length = 0;
        if (length == 3 && c == 0xE0 && HETI_P_CAST(unsigned char, s[1]) < 0xA0) length = 0;  /* overlong */
        if (length == 3 && c == 0xED && HETI_P_CAST(unsigned char, s[1]) >= 0xA0) length = 0; /* surrogates */
        if (length == 3 && c == 0xEF && HETI_P_CAST(unsigned char, s[1]) == 0xBF && HETI_P_CAST(unsigned char, s[2]) >= 0xBE) length = 0; /* U+FFFE, U+FFFF */
        if (length == 4 && c == 0xF0 && HETI_P_CAST(unsigned char, s[1]) < 0x90) length = 0;
        if (length == 4 && c == 0xF4 && HETI_P_CAST(unsigned char, s[1]) >= 0x90) length = 0;
        if (length == 0 || c < 32 || c == 127) { heti_p_out_char(out, '?'); s++; continue; }
        if (c == '&') heti_p_out_text(out, "&amp;");
        else if (c == '<') heti_p_out_text(out, "&lt;");
        else if (c == '>') heti_p_out_text(out, "&gt;");
        else if (c == '"') heti_p_out_text(out, "&quot;");
        else
            for (i = 0; i < length; i++) heti_p_out_char(out, s[i]);
        s += length;
    }
}

/* ================================================================================================================
   >>records  What both pictures ask of a timeline.
   ================================================================================================================ */

#define HETI_P_KINDS 12

typedef struct heti_p_kind {
    const char *text;     /* in a schedule */
    const char *category; /* in a trace */
    const char *legend;   /* in a picture */
    const char *color;    /* one of chrome://tracing's own names */
} heti_p_kind;

static const heti_p_kind *heti_p_kind_of(int32_t kind)
{
    static const heti_p_kind heti_p_kinds[HETI_P_KINDS] = {
        { "F", "forward", "forward", "thread_state_running" },
        { "B", "backward", "backward", "thread_state_iowait" },
        { "I", "backward_input", "backward, inputs", "bad" },
        { "W", "backward_weight", "backward, weights", "good" },
        { "SEND_F", "transfer", "", "grey" },
        { "RECV_F", "transfer", "", "white" },
        { "SEND_B", "transfer", "", "grey" },
        { "RECV_B", "transfer", "", "white" },
        { "REDUCE", "reduce", "reduce gradients", "rail_animation" },
        { "VERDICT", "verdict", "verdict", "black" },
        { "STEP", "step", "optimizer step", "yellow" },
        { "GATHER", "gather", "gather weights", "thread_state_sleeping" }
    };
    return &heti_p_kinds[kind];
}

static int heti_p_is_compute(int32_t kind) { return kind <= HET_ACTION_W || kind == HET_ACTION_STEP; }
static int heti_p_is_send(int32_t kind) { return kind == HET_ACTION_SEND_F || kind == HET_ACTION_SEND_B; }
static int heti_p_is_receive(int32_t kind) { return kind == HET_ACTION_RECV_F || kind == HET_ACTION_RECV_B; }
static int heti_p_is_collective(int32_t kind) { return kind == HET_ACTION_REDUCE || kind == HET_ACTION_GATHER; }

/* "2F3.1@1/0" without the suffixes that are 0; "REDUCE5" and the like name a block, VERDICT nothing. */
static void heti_p_out_action(heti_p_out *out, const het_action *a)
{
    int block = a->kind >= HET_ACTION_REDUCE;
    if (!block) heti_p_out_integer(out, a->stage);
    heti_p_out_text(out, heti_p_kind_of(a->kind)->text);
    if (a->kind == HET_ACTION_VERDICT) return;
    heti_p_out_integer(out, block ? a->stage : a->micro_batch);
    if (!block && a->slice != 0) heti_p_out_format(out, ".%d", HETI_P_CAST(int64_t, a->slice));
    if (!block && a->pipeline != 0) heti_p_out_format(out, "@%d", HETI_P_CAST(int64_t, a->pipeline));
    if (!block && a->version != 0) heti_p_out_format(out, "/%d", HETI_P_CAST(int64_t, a->version));
}

/* Everything a picture relies on, so that no later step has to look twice. */
static int heti_p_timeline_valid(const het_timeline *timeline)
{
    int64_t i;
    if (timeline == NULL || timeline->ranks < 0 || timeline->records < 0 || (timeline->records > 0 && timeline->record == NULL)) return 0;
    for (i = 0; i < timeline->records; i++) {
        const het_record *r = &timeline->record[i];
        if (r->action.kind < 0 || r->action.kind >= HETI_P_KINDS) return 0;
        if (r->rank < 0 || r->rank >= timeline->ranks || (i > 0 && r->rank < r[-1].rank)) return 0;
        if (!(r->start >= 0 && r->end >= r->start && r->end <= 1e300)) return 0;
    }
    return 1;
}

static double heti_p_timeline_end(const het_timeline *timeline)
{
    double end = 0;
    int64_t i;
    for (i = 0; i < timeline->records; i++)
        if (timeline->record[i].end > end) end = timeline->record[i].end;
    return end;
}

/* The units of the stages a rank holds, "units 0-2, 9-11"; with more than `most` stages "6 stages". 0: it holds none. */
static int heti_p_out_units(heti_p_out *out, const het_plan *plan, int64_t rank, int64_t most, const char *dash)
{
    int64_t s, count = 0, shown = 0;
    for (s = 0; s < plan->stages; s++) count += plan->stage[s].rank == rank;
    if (count == 0) return 0;
    if (count > most) { heti_p_out_format(out, "%d stages", count); return 1; }
    for (s = 0; s < plan->stages; s++) {
        const het_stage *stage = &plan->stage[s];
        if (stage->rank != rank) continue;
        heti_p_out_text(out, shown++ == 0 ? stage->unit_end - stage->unit_begin == 1 && count == 1 ? "unit " : "units " : ", ");
        heti_p_out_integer(out, stage->unit_begin);
        if (stage->unit_end - stage->unit_begin > 1) heti_p_out_format(out, "%s%d", dash, stage->unit_end - 1);
    }
    return 1;
}

/* ================================================================================================================
   >>trace  Chrome's trace event format, in microseconds with three decimals: a nanosecond is the shortest time a reader keeps. Transfers take at
   least that long, so that arrows find them. What may overlap on a rank is spread over threads ("lanes") on which nothing does.
   ================================================================================================================ */

enum { HETI_P_LANES = 24 };

typedef struct heti_p_trace {
    heti_p_out out;
    const het_timeline *timeline;
    const het_plan *plan;
    int64_t stages, micro_batches, slices; /* one more than the largest of each, for the numbers of arrows */
    int events;                            /* a comma is due */
    double transfer[HETI_P_LANES], collective[HETI_P_LANES]; /* when a lane of the present rank is free again; negative: not used yet */
} heti_p_trace;

static void heti_p_trace_event(heti_p_trace *t, const char *phase, int64_t rank, int64_t thread)
{
    heti_p_out_text(&t->out, t->events++ == 0 ? "\n" : ",\n");
    heti_p_out_format(&t->out, "{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d", phase, rank, thread);
}

static void heti_p_trace_name(heti_p_trace *t, int64_t rank, int64_t thread, const char *what, const char *name)
{
    heti_p_trace_event(t, "M", rank, thread);
    heti_p_out_format(&t->out, ",\"name\":\"%s\",\"args\":{\"name\":\"%s\"}}", what, name);
}

static void heti_p_trace_rank(heti_p_trace *t, int64_t rank)
{
    int i;
    heti_p_trace_event(t, "M", rank, 0);
    heti_p_out_format(&t->out, ",\"name\":\"process_name\",\"args\":{\"name\":\"rank %d", rank);
    if (t->plan != NULL) {
        heti_p_out_text(&t->out, ": ");
        (void)heti_p_out_units(&t->out, t->plan, rank, 16, "-");
    }
    heti_p_out_text(&t->out, "\"}}");
    heti_p_trace_event(t, "M", rank, 0);
    heti_p_out_format(&t->out, ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}}", rank);
    heti_p_trace_name(t, rank, 0, "thread_name", "compute");
    for (i = 0; i < HETI_P_LANES; i++) t->transfer[i] = t->collective[i] = -1;
}

/* The thread of a record that may overlap others: the first lane that is free. If none is, the one that is free first: a viewer then shows
   a record it overlaps shorter than it was. */
static int64_t heti_p_trace_lane(heti_p_trace *t, const het_record *r, double end)
{
    int collective = heti_p_is_collective(r->action.kind), i, best = 0;
    double *lane = collective ? t->collective : t->transfer;
    int64_t first = collective ? 1 + HETI_P_LANES : 1;
    for (i = 0; i < HETI_P_LANES; i++) {
        if (lane[i] <= r->start) { best = i; break; }
        if (lane[i] < lane[best]) best = i;
    }
    if (lane[best] < 0) heti_p_trace_name(t, r->rank, first + best, "thread_name", collective ? "reduce, gather" : "send, receive");
    lane[best] = end;
    return first + best;
}

/* The same number for a SEND and its RECV: direction, pipeline, the earlier of the two stages, micro-batch, slice. 53 bits survive every
   JSON reader; two arrows could share a number only where the product of the four ranges is larger. */
static int64_t heti_p_trace_arrow(const heti_p_trace *t, const het_action *a)
{
    int forward = a->kind == HET_ACTION_SEND_F || a->kind == HET_ACTION_RECV_F;
    int later = a->kind == HET_ACTION_RECV_F || a->kind == HET_ACTION_SEND_B;
    uint64_t n = HETI_P_CAST(uint64_t, a->pipeline);
    n = n * HETI_P_CAST(uint64_t, t->stages) + HETI_P_CAST(uint64_t, a->stage - (later ? 1 : 0) + 1);
    n = n * HETI_P_CAST(uint64_t, t->micro_batches) + HETI_P_CAST(uint64_t, a->micro_batch);
    n = n * HETI_P_CAST(uint64_t, t->slices) + HETI_P_CAST(uint64_t, a->slice);
    return HETI_P_CAST(int64_t, (2 * n + (forward ? 1 : 0)) & ((HETI_P_CAST(uint64_t, 1) << 53) - 1));
}

static void heti_p_trace_args(heti_p_trace *t, const het_record *r)
{
    const het_action *a = &r->action;
    heti_p_out_text(&t->out, ",\"args\":{");
    if (a->kind == HET_ACTION_VERDICT) heti_p_out_text(&t->out, "\"bytes\":");
    else if (a->kind >= HET_ACTION_REDUCE) heti_p_out_format(&t->out, "\"block\":%d,\"bytes\":", HETI_P_CAST(int64_t, a->stage));
    else heti_p_out_format(&t->out, "\"pipeline\":%d,\"stage\":%d,\"micro_batch\":%d,\"slice\":%d,\"bytes\":", HETI_P_CAST(int64_t, a->pipeline), HETI_P_CAST(int64_t, a->stage), HETI_P_CAST(int64_t, a->micro_batch), HETI_P_CAST(int64_t, a->slice));
    heti_p_out_format(&t->out, "%d}}", r->bytes);
}

static void heti_p_trace_record(heti_p_trace *t, const het_record *r)
{
    const het_action *a = &r->action;
    const heti_p_kind *kind = heti_p_kind_of(a->kind);
    int moves = heti_p_is_send(a->kind) || heti_p_is_receive(a->kind);
    double start = r->start * 1e6, length = (r->end - r->start) * 1e6;
    int64_t thread = 0;
    if (moves && length < 0.001) length = 0.001;
    if (moves || heti_p_is_collective(a->kind)) thread = heti_p_trace_lane(t, r, (start + length) / 1e6);
    heti_p_trace_event(t, "X", r->rank, thread);
    heti_p_out_format(&t->out, ",\"ts\":%g,\"dur\":%g,\"name\":\"", start, length);
    heti_p_out_action(&t->out, a);
    heti_p_out_format(&t->out, "\",\"cat\":\"%s\",\"cname\":\"%s\"", kind->category, kind->color);
    heti_p_trace_args(t, r);
    if (!moves) return;
    heti_p_trace_event(t, heti_p_is_send(a->kind) ? "s" : "f", r->rank, thread);
    if (heti_p_is_receive(a->kind)) heti_p_out_text(&t->out, ",\"bp\":\"e\"");
    heti_p_out_format(&t->out, ",\"ts\":%g,\"id\":%d,\"name\":\"transfer\",\"cat\":\"transfer\"}", heti_p_is_send(a->kind) ? start : start + length - 0.001, heti_p_trace_arrow(t, a));
}

HETRAIN_API het_result het_timeline_trace(const het_timeline *timeline, const het_plan *plan, const het_writer *to)
{
    heti_p_trace t;
    int64_t i, rank = 0;
    if (to == NULL || to->write == NULL || !heti_p_timeline_valid(timeline)) return HET_ERR_INVALID;
    heti_p_out_start(&t.out, to);
    t.timeline = timeline;
    t.plan = plan;
    t.stages = t.micro_batches = t.slices = 1;
    t.events = 0;
    for (i = 0; i < timeline->records; i++) {
        const het_action *a = &timeline->record[i].action;
        if (a->stage + 2 > t.stages) t.stages = HETI_P_CAST(int64_t, a->stage) + 2;
        if (a->micro_batch >= t.micro_batches) t.micro_batches = HETI_P_CAST(int64_t, a->micro_batch) + 1;
        if (a->slice >= t.slices) t.slices = HETI_P_CAST(int64_t, a->slice) + 1;
    }
    heti_p_out_format(&t.out, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"producer\":\"hetrain\",\"dropped\":%d},\"traceEvents\":[", timeline->dropped);
    for (i = 0; i <= timeline->records; i++) {
        int64_t until = i < timeline->records ? timeline->record[i].rank : timeline->ranks - 1;
        while (rank <= until) heti_p_trace_rank(&t, rank++);
        if (i < timeline->records) heti_p_trace_record(&t, &timeline->record[i]);
    }
    heti_p_out_text(&t.out, "\n]}\n");
    return heti_p_out_end(&t.out);
}

/* ================================================================================================================
   >>svg  A timeline as a picture. Colours are those of Okabe and Ito (Color Universal Design, 2008), which people with any kind of colour vision
   tell apart, toned a little; a rank's stages differ in shade.
   ================================================================================================================ */

enum { HETI_P_SHADES = 4, HETI_P_STAGES = 64, HETI_P_BOXES = 24000 };

typedef struct heti_p_stage_key { int32_t pipeline, stage; } heti_p_stage_key;

/* Boxes of less than `thin` pixels, collected until they fill one; and such heaps of about the same mixture, one behind the other. */
typedef struct heti_p_heap {
    double x, end, total;                        /* from, to, and pixels that are not idle */
    double part[HETI_P_KINDS][HETI_P_SHADES];
} heti_p_heap;

typedef struct heti_p_svg {
    heti_p_out out;
    const het_timeline *timeline;
    const het_plan *plan;
    const char *title;
    int dark;
    double width, height, left, top, plot, row, gap, font; /* of the picture; of rows: where they start, how long they are, height, space between */
    double end, scale, thin;                               /* seconds, pixels a second, pixels a box should have */
    int64_t transfers;
    int used[HETI_P_KINDS], shades, slices, labels, stacked; /* what is there to be seen */
    heti_p_stage_key key[HETI_P_STAGES];                   /* stages of the present rank, ascending: the place gives the shade */
    int keys;
    heti_p_heap heap, run;
} heti_p_svg;

static double heti_p_svg_x(const heti_p_svg *s, double seconds) { return s->left + seconds * s->scale; }
static double heti_p_svg_y(const heti_p_svg *s, int64_t rank) { return s->top + HETI_P_CAST(double, rank) * (s->row + s->gap); }

/* 0xRRGGBB mixed with the ground: shade 0 is the colour itself. */
static uint32_t heti_p_svg_color(const heti_p_svg *s, int kind, int shade)
{
    static const uint32_t heti_p_light[HETI_P_KINDS] = { 0x1F6FB4, 0xE8961E, 0xD1580F, 0x119C74, 0, 0, 0, 0, 0xC4709E, 0x444444, 0xE3CF2B, 0x56B4E9 };
    static const uint32_t heti_p_dark[HETI_P_KINDS] = { 0x4C9BE0, 0xF0A637, 0xE4702B, 0x2DB58D, 0, 0, 0, 0, 0xD184AF, 0xBBBBBB, 0xEADB55, 0x7CC6F0 };
    static const uint32_t heti_p_mix[HETI_P_SHADES] = { 0, 42, 62, 78 }; /* percent of the ground */
    uint32_t color = s->dark ? heti_p_dark[kind] : heti_p_light[kind], ground = s->dark ? 0x14181F : 0xFFFFFF, mixed = 0, part = s->dark ? heti_p_mix[shade] * 7 / 8 : heti_p_mix[shade];
    int shift;
    for (shift = 0; shift < 24; shift += 8) mixed |= (((color >> shift & 255u) * (100 - part) + (ground >> shift & 255u) * part) / 100) << shift;
    return mixed;
}

/* Black or white letters, whichever the relative brightness of the box asks for. */
static int heti_p_svg_is_bright(uint32_t color)
{
    return 299 * (color >> 16 & 255u) + 587 * (color >> 8 & 255u) + 114 * (color & 255u) > 137000;
}

static void heti_p_out_color(heti_p_out *out, uint32_t color)
{
    int shift;
    heti_p_out_char(out, '#');
    for (shift = 20; shift >= 0; shift -= 4) heti_p_out_char(out, "0123456789abcdef"[color >> shift & 15u]);
}

/* Classes: k<kind><shade> for boxes; letters in them have class d (dark) or b (bright). */
static void heti_p_svg_style(heti_p_svg *s)
{
    int kind, shade;
    heti_p_out_format(&s->out, "<style>text{font-family:Inter,'Helvetica Neue',Helvetica,Arial,sans-serif;font-size:12px;fill:%s}"
        ".h{font-size:17px;font-weight:600}.q{fill:%s}.e{text-anchor:end}.m{text-anchor:middle}.n text{font-size:%gpx;text-anchor:middle}.n .d{fill:#1b1b1b}.n .b{fill:#fff}.n .s{font-size:%gpx}"
        ".l{fill:%s}.g{stroke:%s}.t{stroke:%s;stroke-width:%s;stroke-opacity:%s;fill:none}.v{stroke:%s}",
        s->dark ? "#e6e8eb" : "#1d2127", s->dark ? "#9aa3af" : "#626b76", s->font, 0.8 * s->font, s->dark ? "#1e242d" : "#eef0f3", s->dark ? "#333b46" : "#dfe3e7",
        s->dark ? "#aab2bd" : "#3c4450", s->row >= 16 ? "0.8" : "0.5", s->row >= 16 ? ".55" : ".4", s->dark ? "#bbb" : "#444");
    for (kind = 0; kind < HETI_P_KINDS; kind++)
        for (shade = 0; shade < HETI_P_SHADES && s->used[kind]; shade++) {
            if (shade > 0 && (kind > HET_ACTION_W || shade >= s->shades)) continue;
            heti_p_out_format(&s->out, ".k%d{fill:", HETI_P_CAST(int64_t, 10 * kind + shade));
            heti_p_out_color(&s->out, heti_p_svg_color(s, kind, shade));
            heti_p_out_char(&s->out, '}');
        }
    heti_p_out_text(&s->out, "</style>\n");
}

static void heti_p_svg_rect(heti_p_svg *s, int class_number, double x, double y, double width, double height, int rounded)
{
    heti_p_out_format(&s->out, "<rect class=\"k%d\" x=\"", HETI_P_CAST(int64_t, class_number));
    heti_p_out_fixed(&s->out, x, 2);
    heti_p_out_text(&s->out, "\" y=\"");
    heti_p_out_fixed(&s->out, y, 2);
    heti_p_out_text(&s->out, "\" width=\"");
    heti_p_out_fixed(&s->out, width > 0.05 ? width : 0.05, 2);
    heti_p_out_text(&s->out, "\" height=\"");
    heti_p_out_fixed(&s->out, height, 2);
    heti_p_out_text(&s->out, rounded && width >= 8 && height >= 10 ? "\" rx=\"2\"/>" : "\"/>");
}

/* ---- boxes of one rank ---- */

/* Which shade a record's stage has on its rank. The keys are in order, so stages of one pipeline get darker to lighter along the chain. */
static int heti_p_svg_shade(const heti_p_svg *s, const het_action *a)
{
    int i;
    if (a->kind > HET_ACTION_W) return 0;
    for (i = 0; i < s->keys; i++)
        if (s->key[i].pipeline == a->pipeline && s->key[i].stage == a->stage) return i % HETI_P_SHADES;
    return a->stage % HETI_P_SHADES;
}

static void heti_p_svg_keys(heti_p_svg *s, const het_record *record, int64_t count)
{
    int64_t n;
    s->keys = 0;
    for (n = 0; n < count; n++) {
        const het_action *a = &record[n].action;
        int i, at;
        if (a->kind > HET_ACTION_W) continue;
        for (at = 0; at < s->keys && (s->key[at].pipeline < a->pipeline || (s->key[at].pipeline == a->pipeline && s->key[at].stage < a->stage)); at++) {}
        if (s->keys == HETI_P_STAGES || (at < s->keys && s->key[at].pipeline == a->pipeline && s->key[at].stage == a->stage)) continue;
        for (i = s->keys++; i > at; i--) s->key[i] = s->key[i - 1];
        s->key[at].pipeline = a->pipeline;
        s->key[at].stage = a->stage;
    }
}

/* Kinds one above the other. A heap with idle time in it is drawn so much narrower. */
static void heti_p_svg_run_draw(heti_p_svg *s, double y, double height)
{
    heti_p_heap *run = &s->run;
    int kind, shade;
    for (kind = 0; kind < HETI_P_KINDS && run->total > 0; kind++)
        for (shade = 0; shade < HETI_P_SHADES; shade++) {
            double share = run->part[kind][shade] / run->total;
            if (share <= 0) continue;
            heti_p_svg_rect(s, 10 * kind + shade, run->x, y, run->total > 0.97 * (run->end - run->x) ? run->end - run->x : run->total, height * share, 0);
            y += height * share;
        }
    memset(run, 0, sizeof *run);
}

/* Ends the present heap: it lengthens the run before it where both are without idle time and differ little. */
static void heti_p_svg_heap_end(heti_p_svg *s, double y, double height)
{
    heti_p_heap *heap = &s->heap, *run = &s->run;
    int kind, shade, joins = run->total > 0.97 * (run->end - run->x) && heap->total > 0.97 * (heap->end - heap->x) && heap->x - run->end < 0.05;
    if (heap->total <= 0) return;
    for (kind = 0; kind < HETI_P_KINDS && joins; kind++)
        for (shade = 0; shade < HETI_P_SHADES; shade++) {
            double difference = run->part[kind][shade] / run->total - heap->part[kind][shade] / heap->total;
            if (difference > 0.2 || difference < -0.2) joins = 0;
        }
    if (run->total <= 0 || !joins) {
        heti_p_svg_run_draw(s, y, height);
        *run = *heap;
    } else {
        for (kind = 0; kind < HETI_P_KINDS; kind++)
            for (shade = 0; shade < HETI_P_SHADES; shade++) run->part[kind][shade] += heap->part[kind][shade];
        run->total += heap->total;
        run->end = heap->end;
    }
    memset(heap, 0, sizeof *heap);
}

static void heti_p_svg_heap_flush(heti_p_svg *s, double y, double height)
{
    heti_p_svg_heap_end(s, y, height);
    heti_p_svg_run_draw(s, y, height);
}

static void heti_p_svg_box(heti_p_svg *s, const het_record *r, double y, double height)
{
    double x = heti_p_svg_x(s, r->start), end = heti_p_svg_x(s, r->end), width = end - x;
    int shade = heti_p_svg_shade(s, &r->action);
    heti_p_heap *heap = &s->heap;
    if (width >= s->thin) {
        heti_p_svg_heap_flush(s, y, height);
        heti_p_svg_rect(s, 10 * r->action.kind + shade, x, y, width - (width > 5 ? 0.8 : 0.15 * width), height, 1);
        return;
    }
    if (heap->total > 0 && end - heap->x > s->thin) heti_p_svg_heap_end(s, y, height);
    if (heap->total <= 0) heap->x = x;
    heap->part[r->action.kind][shade] += width;
    heap->total += width;
    heap->end = end;
}

static int heti_p_digits(int64_t n)
{
    int digits = 1;
    for (; n >= 10; n /= 10) digits++;
    return digits;
}

/* Numbers of micro-batches, in boxes that have room. */
static void heti_p_svg_number(heti_p_svg *s, const het_record *r, double y)
{
    const het_action *a = &r->action;
    double x = heti_p_svg_x(s, r->start), width = (r->end - r->start) * s->scale;
    int length = heti_p_digits(a->kind == HET_ACTION_STEP ? a->stage : a->micro_batch), slice = s->slices && a->kind != HET_ACTION_STEP;
    double room = slice ? length + 0.5 + heti_p_digits(a->slice) : length, font = s->font; /* in digits, which are 0.62 of the font wide */
    if (width < font * 0.62 * room + 2) font *= 0.8;
    if (width < font * 0.62 * room + 1.2 || font < 6) return;
    heti_p_out_format(&s->out, "<text class=\"%s%s\" x=\"", heti_p_svg_is_bright(heti_p_svg_color(s, a->kind, heti_p_svg_shade(s, a))) ? "d" : "b", font < s->font ? " s" : "");
    heti_p_out_fixed(&s->out, x + width / 2 - 0.4, 1);
    heti_p_out_text(&s->out, "\" y=\"");
    heti_p_out_fixed(&s->out, y + s->row / 2 + font * 0.36, 1);
    heti_p_out_format(&s->out, "\">%d", HETI_P_CAST(int64_t, a->kind == HET_ACTION_STEP ? a->stage : a->micro_batch));
    if (slice) heti_p_out_format(&s->out, ".%d", HETI_P_CAST(int64_t, a->slice));
    heti_p_out_text(&s->out, "</text>");
}

/* At the right: how much of the step a rank waited. */
static void heti_p_svg_idle(heti_p_svg *s, double y, double busy)
{
    double share = s->end > 0 ? 1 - busy / s->end : 0, x = s->left + s->plot + 12, middle = y + s->row / 2, thick = s->row < 8 ? s->row : 8;
    if (share < 0) share = 0;
    heti_p_out_format(&s->out, "<rect class=\"l\" x=\"%g\" y=\"%g\" width=\"44\" height=\"%g\"/>", x, middle - thick / 2, thick);
    heti_p_out_format(&s->out, "<rect class=\"i\" x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\" fill=\"%s\"/>", x, middle - thick / 2, 44 * share, thick, s->dark ? "#7d8794" : "#8b95a1");
    if (s->labels) {
        heti_p_out_format(&s->out, "<text class=\"q e\" x=\"%g\" y=\"%g\">", s->width - 12, middle + 4);
        heti_p_out_fixed(&s->out, 100 * share, 1);
        heti_p_out_text(&s->out, " %</text>");
    }
    heti_p_out_text(&s->out, "\n");
}

static void heti_p_svg_label(heti_p_svg *s, int64_t rank, double y)
{
    int64_t every = 1;
    double pitch = s->row + s->gap;
    while (HETI_P_CAST(double, every) * pitch < 12) every *= every == 1 || every % 5 == 0 ? 2 : 5; /* 1, 2, 10, 20, 100, ... */
    if (rank % every != 0) return;
    if (s->plan == NULL || s->row < 24) {
        heti_p_out_format(&s->out, "<text class=\"e\" x=\"%g\" y=\"%g\">rank %d</text>", s->left - 10, y + s->row / 2 + 4, rank);
        return;
    }
    heti_p_out_format(&s->out, "<text class=\"e\" x=\"%g\" y=\"%g\">rank %d</text><text class=\"q e\" x=\"%g\" y=\"%g\" style=\"font-size:10px\">", s->left - 10, y + s->row / 2 - 1, rank, s->left - 10, y + s->row / 2 + 12);
    (void)heti_p_out_units(&s->out, s->plan, rank, 2, "&#8211;");
    heti_p_out_text(&s->out, "</text>");
}

/* One rank: its lane, what it computes, what is reduced and gathered as a strip below, numbers, share of idle time. */
static void heti_p_svg_row(heti_p_svg *s, int64_t rank, const het_record *record, int64_t count)
{
    double y = heti_p_svg_y(s, rank), strip = s->row * 0.2 > 1 ? s->row * 0.2 : 1, busy = 0;
    int64_t i;
    heti_p_svg_label(s, rank, y);
    heti_p_svg_keys(s, record, count);
    for (i = 0; i < count; i++)
        if (heti_p_is_compute(record[i].action.kind)) {
            heti_p_svg_box(s, &record[i], y, s->row);
            busy += record[i].end - record[i].start;
        }
    heti_p_svg_heap_flush(s, y, s->row);
    for (i = 0; i < count; i++)
        if (heti_p_is_collective(record[i].action.kind)) heti_p_svg_box(s, &record[i], y + s->row - strip, strip);
    heti_p_svg_heap_flush(s, y + s->row - strip, strip);
    for (i = 0; i < count; i++)
        if (record[i].action.kind == HET_ACTION_VERDICT) heti_p_out_format(&s->out, "<path class=\"v\" d=\"M%g %gv%g\"/>", heti_p_svg_x(s, record[i].end), y, s->row);
    if (s->row >= 10) {
        heti_p_out_text(&s->out, "<g class=\"n\">");
        for (i = 0; i < count; i++)
            if (heti_p_is_compute(record[i].action.kind)) heti_p_svg_number(s, &record[i], y);
        heti_p_out_text(&s->out, "</g>");
    }
    heti_p_svg_idle(s, y, busy);
}

/* ---- between ranks ---- */

static int heti_p_same_transfer(const het_action *send, const het_action *receive)
{
    int step = send->kind == HET_ACTION_SEND_F ? 1 : -1;
    return receive->kind == send->kind + 1 && receive->pipeline == send->pipeline && receive->stage == send->stage + step && receive->micro_batch == send->micro_batch && receive->slice == send->slice;
}

/* From the sender's row where the message left to the receiver's where it was there. `transfers` bounds the search. */
static void heti_p_svg_transfers(heti_p_svg *s)
{
    int64_t sends = 0, i, j;
    for (i = 0; i < s->timeline->records; i++) sends += heti_p_is_send(s->timeline->record[i].action.kind);
    if (sends == 0 || sends > s->transfers) return;
    heti_p_out_text(&s->out, "<path class=\"t\" d=\"");
    for (i = 0; i < s->timeline->records; i++) {
        const het_record *send = &s->timeline->record[i];
        if (!heti_p_is_send(send->action.kind)) continue;
        for (j = 0; j < s->timeline->records; j++) {
            const het_record *receive = &s->timeline->record[j];
            double from, until;
            if (receive->rank == send->rank || !heti_p_same_transfer(&send->action, &receive->action)) continue;
            from = heti_p_svg_y(s, send->rank) + (receive->rank > send->rank ? s->row : 0);
            until = heti_p_svg_y(s, receive->rank) + (receive->rank > send->rank ? 0 : s->row);
            heti_p_out_format(&s->out, "M%g %gL%g %g", heti_p_svg_x(s, send->start), from, heti_p_svg_x(s, receive->end), until);
            break;
        }
    }
    heti_p_out_text(&s->out, "\"/>\n");
}

/* ---- around the rows ---- */

/* A tick every 1, 2 or 5 times a power of ten milliseconds, so that there are about ten. */
static void heti_p_svg_axis(heti_p_svg *s)
{
    double span = s->end * 1e3, step = 1, bottom = heti_p_svg_y(s, s->timeline->ranks) - s->gap, tick;
    static const double heti_p_factor[3] = { 2, 2.5, 2 };
    int i, decimals = 0;
    if (!(span > 0)) return;
    while (step > span / 10) step /= 10;
    while (step * 10 <= span / 10) step *= 10;
    for (i = 0; i < 3 && span / step > s->plot / 85; i++) step *= heti_p_factor[i];
    for (tick = step; tick < 0.999999 && decimals < 9; tick *= 10) decimals++;
    for (i = 0; HETI_P_CAST(double, i) * step <= span * 1.000001; i++) {
        double x = heti_p_svg_x(s, i * step / 1e3);
        heti_p_out_format(&s->out, "<path class=\"g\" d=\"M%g %gv%g\"/><text class=\"q m\" x=\"%g\" y=\"%g\">", x, s->top - 4, bottom - s->top + 9, x, bottom + 19);
        heti_p_out_fixed(&s->out, i * step, decimals);
        heti_p_out_text(&s->out, i == 0 ? " ms</text>" : "</text>");
    }
    heti_p_out_text(&s->out, "\n");
}

static void heti_p_svg_legend(heti_p_svg *s, double y)
{
    static const int32_t heti_p_order[8] = { HET_ACTION_F, HET_ACTION_B, HET_ACTION_I, HET_ACTION_W, HET_ACTION_REDUCE, HET_ACTION_STEP, HET_ACTION_GATHER, HET_ACTION_VERDICT };
    double x = s->left;
    int i, shade;
    for (i = 0; i < 8; i++) {
        int kind = heti_p_order[i], shades = kind <= HET_ACTION_W ? s->shades : 1;
        if (!s->used[kind]) continue;
        for (shade = 0; shade < shades; shade++, x += 12) heti_p_svg_rect(s, 10 * kind + shade, x, y - 9, 11, 11, 1);
        heti_p_out_format(&s->out, "<text x=\"%g\" y=\"%g\">%s</text>", x + 4, y + 1, heti_p_kind_of(kind)->legend);
        x += 24 + 6.5 * HETI_P_CAST(double, strlen(heti_p_kind_of(kind)->legend));
    }
    heti_p_out_format(&s->out, "<rect class=\"l\" x=\"%g\" y=\"%g\" width=\"11\" height=\"11\"/><text x=\"%g\" y=\"%g\">idle</text>", x, y - 9, x + 16, y + 1);
    if (s->shades > 1 || s->stacked)
        heti_p_out_format(&s->out, "<text class=\"q\" x=\"%g\" y=\"%g\">%s%s%s</text>", x + 56, y + 1, s->shades > 1 ? "shades: a rank&#8217;s stages" : "", s->shades > 1 && s->stacked ? " &#183; " : "",
            s->stacked ? "stacked: shares of boxes too thin to draw" : "");
    heti_p_out_text(&s->out, "\n");
}

static void heti_p_svg_caption(heti_p_svg *s)
{
    double busy = 0, whole = s->end * HETI_P_CAST(double, s->timeline->ranks);
    int64_t i, micro_batches = 0;
    int decimals = 1;
    double unit = s->end * 1e3;
    for (i = 0; i < s->timeline->records; i++) {
        const het_record *r = &s->timeline->record[i];
        if (heti_p_is_compute(r->action.kind)) busy += r->end - r->start;
        if (r->action.kind == HET_ACTION_F && r->action.stage == 0 && r->action.slice == 0) micro_batches++;
    }
    while (unit > 0 && unit < 100 && decimals < 6) { unit *= 10; decimals++; }
    heti_p_out_format(&s->out, "<text class=\"h\" x=\"%g\" y=\"29\">", s->left);
    heti_p_out_xml(&s->out, s->title);
    heti_p_out_format(&s->out, "</text><text class=\"q\" x=\"%g\" y=\"49\">%d %s &#183; %d %s &#183; ", s->left, s->timeline->ranks, s->timeline->ranks == 1 ? "rank" : "ranks", micro_batches, micro_batches == 1 ? "micro-batch" : "micro-batches");
    heti_p_out_fixed(&s->out, s->end * 1e3, decimals);
    heti_p_out_text(&s->out, " ms &#183; bubble ");
    heti_p_out_fixed(&s->out, whole > 0 ? 100 * (1 - busy / whole) : 0, 1);
    heti_p_out_text(&s->out, " %");
    if (s->timeline->dropped > 0) heti_p_out_format(&s->out, " &#183; %d records were dropped", s->timeline->dropped);
    heti_p_out_format(&s->out, "</text><text class=\"q e\" x=\"%g\" y=\"%g\">idle</text>\n", s->width - 12, s->top - 9);
}

/* Sizes of everything, from the description and the number of ranks. */
static void heti_p_svg_layout(heti_p_svg *s, const het_svg_desc *desc)
{
    int64_t ranks = s->timeline->ranks > 0 ? s->timeline->ranks : 1;
    double n = HETI_P_CAST(double, ranks);
    s->width = desc->width > 0 ? desc->width : 1200;
    s->row = desc->row_height > 0 ? desc->row_height : ranks <= 4 ? 40 : ranks <= 8 ? 32 : ranks <= 16 ? 26 : ranks <= 32 ? 20 : ranks <= 64 ? 13 : 900 / n > 2 ? 900 / n : 2;
    s->gap = s->row >= 30 ? 10 : s->row >= 16 ? 5 : s->row >= 6 ? 2 : 0.4;
    s->font = s->row * 0.55 < 11 ? s->row * 0.55 : 11;
    if (s->font < 7.5 && s->row >= 10) s->font = 7.5;
    s->labels = s->row + s->gap >= 11.5;
    s->left = s->plan != NULL && s->row >= 24 ? 112 : 74;
    s->plot = s->width - s->left - 118;
    s->top = 96;
    s->height = s->top + n * (s->row + s->gap) + 34;
    s->end = heti_p_timeline_end(s->timeline);
    s->scale = s->end > 0 ? s->plot / s->end : 0;
    s->thin = n * s->plot / HETI_P_BOXES > 1.2 ? n * s->plot / HETI_P_BOXES : 1.2;
    s->transfers = desc->transfers == 0 ? 600 : desc->transfers;
}

HETRAIN_API het_result het_timeline_svg(const het_timeline *timeline, const het_plan *plan, const het_svg_desc *desc, const het_writer *to)
{
    heti_p_svg s;
    het_svg_desc all_default;
    int64_t i, rank, first = 0;
    memset(&all_default, 0, sizeof all_default);
    if (desc == NULL) desc = &all_default;
    if (to == NULL || to->write == NULL || desc->start_canary != 0 || desc->end_canary != 0 || !heti_p_timeline_valid(timeline)) return HET_ERR_INVALID;
    if (!(desc->width == 0 || (desc->width >= 400 && desc->width <= 20000)) || !(desc->row_height == 0 || (desc->row_height >= 2 && desc->row_height <= 200))) return HET_ERR_INVALID;
    memset(&s, 0, sizeof s);
    heti_p_out_start(&s.out, to);
    s.timeline = timeline;
    s.plan = plan;
    s.title = desc->title != NULL ? desc->title : "Timeline of one step";
    s.dark = desc->dark == HET_YES;
    s.shades = 1;
    for (i = 0; i < timeline->records; i++) {
        s.used[timeline->record[i].action.kind] = 1;
        if (timeline->record[i].action.slice > 0) s.slices = 1;
    }
    for (i = 0; i < timeline->records; i = first) { /* the most stages a rank has */
        for (first = i; first < timeline->records && timeline->record[first].rank == timeline->record[i].rank; first++) {}
        heti_p_svg_keys(&s, &timeline->record[i], first - i);
        if (s.keys > s.shades) s.shades = s.keys < HETI_P_SHADES ? s.keys : HETI_P_SHADES;
    }
    heti_p_svg_layout(&s, desc);
    for (i = 0; i < timeline->records; i++)
        if (heti_p_is_compute(timeline->record[i].action.kind) && (timeline->record[i].end - timeline->record[i].start) * s.scale < s.thin) s.stacked = 1;
    heti_p_out_format(&s.out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g %g\">\n", s.width, s.height, s.width, s.height);
    heti_p_svg_style(&s);
    heti_p_out_format(&s.out, "<rect width=\"%g\" height=\"%g\" fill=\"%s\"/>\n", s.width, s.height, s.dark ? "#14181f" : "#ffffff");
    heti_p_svg_caption(&s);
    heti_p_svg_legend(&s, 71);
    for (rank = 0; rank < timeline->ranks; rank++)
        heti_p_out_format(&s.out, "<rect class=\"l\" x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\"/>", s.left, heti_p_svg_y(&s, rank), s.plot, s.row);
    heti_p_svg_axis(&s);
    for (rank = 0, first = 0; rank < timeline->ranks; rank++, first = i) {
        for (i = first; i < timeline->records && timeline->record[i].rank == rank; i++) {}
        heti_p_svg_row(&s, rank, timeline->record + first, i - first);
    }
    heti_p_svg_transfers(&s);
    heti_p_out_text(&s.out, "</svg>\n");
    return heti_p_out_end(&s.out);
}

#ifdef __cplusplus
}
#endif
#define HETRAIN_PLAN_IMPLEMENTATION_DONE
#endif /* HETRAIN_PLAN_IMPLEMENTATION */

/* ---- changes -----------------------------------------------------------------------------------------------------
   0.1.0  The first version.

   ---- licence: MIT-0 ----------------------------------------------------------------------------------------------
   MIT No Attribution

   Copyright 2026 hetrain authors

   Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the
   "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish,
   distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so.

   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
   MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY
   CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE
   SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */
