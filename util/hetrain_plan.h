/* hetrain_plan.h 0.2.0: plans and schedules by name and as text, what a plan would take, what it
   looks like. A companion of hetrain.h that uses only its public API. Needs hetrain.h and
   hetrain_text.h beside it.

   USE
       #define HETRAIN_IMPLEMENTATION           in one source file of the program, before the
                                                includes; the other files include them without.
       #define HETRAIN_PLAN_IMPLEMENTATION
       #include "hetrain.h"
       #include "hetrain_plan.h"
   The two implementations may stand in one file or in two. Needs libc; no libm, no threads, no
   stdio.

   WHAT IT DOES
   het_plan_read reads a plan from JSON, a shorthand or Megatron's layout string; its schedule has a
   name, of which het_schedule_make makes lists: het_create does so through het_plan.make.
   het_simulate runs the lists of a schedule, the same ones that a training step runs, on given
   times, and says how long the step takes, when every rank waits, and what it keeps.
   het_timeline_trace and het_timeline_svg draw its timeline, or that of a real step.

       het_plan_read(&desc, "pp", 2, &plan, &error)              4 ranks, one stage each
       het_schedule_make(plan, counts, NULL, &schedule, &error)  lists of actions
       costs.stage = ...;  costs.every_link.latency = 1e-4;      seconds
       het_simulate(plan, schedule, &costs, HET_YES, NULL, &simulation, &error)
       het_timeline_svg(&simulation->timeline, plan, NULL, &writer)              a picture
   programs/plan.c is the same as a program.

   WHAT IT DOES NOT DO
   Messages and reductions do not slow each other or what is computed meanwhile; messages share
   wires with messages, reductions with reductions.

   OPTIONS   (macros, defined before the include)
       HETRAIN_PLAN_IMPLEMENTATION       one file of the program has it, and gets the code
       HETRAIN_STATIC                    as in hetrain.h: all functions static, a private copy
       HETRAIN_NO_DEFAULT_ALLOCATOR      no malloc: calls that allocate must get an allocator

   MEMORY, ERRORS, THREADS
   het_simulate takes two blocks from the allocator it is given (NULL: malloc) and gives one back
   before it returns; the other is the result, which het_simulation_free frees. The pictures
   allocate nothing. Every call that can fail returns a het_result; het_simulate's *error names
   rank, action, value and limit. Outputs are written only on success; a writer may have got a part
   of a file when it fails. No state is kept between calls: any thread may make any call at any
   time. Nothing is printed and nothing exits.

   DETERMINISM
   A function's output depends on its arguments alone. Numbers in pictures and traces are written by
   hetrain_text.h's own formatter in any locale.

   FUNCTIONS
       >>plan_text_api   het_plan_read het_plan_write
       >>list_api        het_schedule_make het_schedule_read het_schedule_write
                         het_schedule_kind_at het_schedule_late
       >>simulate_api    het_simulate het_simulation_free het_schedule_timed het_slice_lengths
       >>picture_api     het_timeline_trace het_timeline_svg

   CONTENTS   (tags to search for)
   public API:
       >>plan_text_api   JSON, shorthands, layout strings
       >>list_api        names of schedules, lists as text
       >>simulate_api    costs, het_simulate, het_simulation
       >>picture_api     Chrome traces, SVG
   implementation:
       >>config          includes and compiler differences
       >>records         what both pictures ask of a timeline
       >>generate        schedules by name
       >>plans           plans as text
       >>lists           schedules as text
       >>simulate        the simulator
       >>timed           a schedule for given times
       >>trace           Chrome traces
       >>svg             pictures
*/

#ifndef HETRAIN_PLAN_H
#define HETRAIN_PLAN_H

#ifndef HETRAIN_H
#include "hetrain.h"
#endif
#include "hetrain_text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- >>plan_text_api: plans as text ---------------------------------------------------------- */

typedef struct het_plan_desc {
    uint32_t start_canary;
    int64_t units, ranks;             /* of the model's chain, of the world. Required */
    const char *schedule;             /* where the text names none; NULL: "1f1b". In a shorthand it
                                         places the stages: interleaved: stage s on rank s mod P;
                                         zb-v, v-half, v-min, dualpipev: 2 P stages, down the ranks
                                         and up again; bidirectional: a second pipeline from the
                                         last rank to the first; bitpipe: two such, each 2 P stages;
                                         others: one stage a rank */
    int64_t chunks;                   /* stages a rank for interleaved: 2 */
    int64_t slices;                   /* equal slices, where the text says nothing: 1 */
    int64_t heads;                    /* key/value heads of the model, for "hp" and "tp" */
    het_recompute recompute;          /* of stages, where the text says nothing: none. Unit by unit,
                                         but not the stage of the last unit; or whole stages */
    int64_t store;                    /* het_stage.store, where the text says nothing: 0 */
    het_allocator allocator;
    uint32_t end_canary;
} het_plan_desc;

/* Reads a plan from text. JSON, where unknown keys are errors and only pipelines, stages, rank and
   units must be there: {"pipelines": [{"share": 1, "stages": [{"rank": 0, "units": [0, 2],
    "recompute": false (true: unit by unit; 2: its first 2 units; "stage"), "keep": [0, 3],
    "store": 2, "updates": 1}, ...]}, ...],
    "state_shares": [1, 0.5, ...], "slices": [1, 1] or 2, "schedule": "1f1b", "memory_limit": 3.5,
    "teams": [{"ranks": [0, 1, 2], "shares": [5, 3, 2], "heads": [[6, 2], [8]]},
              {"ranks": [3, 4], "shares": [3, 1], "split": "columns"}, ...],
    "shard": "state", "gradients" or "weights", "near": [0, 0, 1, 1], "keepers": [4],
    "updates": 4, "staleness": 1, "slice_tokens": 512,
    "step": {"granules": 32, "sequences": 1, "length": 128, "micro_batch": 3}}
   "units" is [begin, end): end is the next stage's begin. Shares are 0 or 1e-30 to 1e30. Ranks that
   are not named stay idle. Slices in "keep" keep all, though the stage recomputes. A team's stages
   name its first rank; "heads" are its groups with their members' key/value heads, without it each
   member is a group, or, by columns, all are one and have heads by share; "split" is "rows" or
   "columns". "step" is het_plan_step, four numbers from 1 to 2^31; it is written where it is known.
   het_plan.cut is in no file: it follows from the model (het_plan_cuts).
   Or a shorthand, which must use all ranks:
   dp | pp | dp2xpp2     D pipelines of P ranks each; a number left out is what the ranks leave.
                         Units are cut by number, the first stages get those left over; embed and
                         head count as a unit
   pp:0-5|6-8|9-12       one pipeline, inclusive unit ranges, one a stage; several pipelines: dpDx
                         in front
   E t*3|(t|)*2 t L      Megatron-LM's layout string: E embedding, t a layer (attention and MLP), L
                         head, | between stages, *n repeats a letter or (...); blanks and commas
                         mean nothing; m (multi-token prediction) is not supported. dpDx may stand
                         in front
   ...xcp3 | ...xhp2     behind any of them: a team of so many neighbouring ranks in place of each
   | ...xtp2             rank, parallel by context, by heads or by columns; alone: one team of all
                         units. cp:5,3,2, hp:6,2 and tp:3,1 give shares of the rows, hp and tp also
                         of the heads, tp of all columns
   Every error names the pipeline, the unit or rank and what is wrong with it. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_plan_read(const het_plan_desc *desc, const char *text, size_t length,
                                                        het_plan **plan, het_error *error);
/* As JSON. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_plan_write(const het_plan *plan, const het_writer *to);

/* ---- >>list_api: schedules by name and as text --------------------------------------------------
   A schedule as text has one line a rank, comma-separated, as PyTorch's
   torch.distributed.pipelining writes it to CSV: "2F3" is forward of stage 2, micro-batch 3; I and
   W backward for input and weight, B or BW both, SEND_F, RECV_F, SEND_B, RECV_B, and
   "(0F7;7B3)OVERLAP_F_B". Where not 0, ".slice", "@pipeline" and "/version" follow: "2F3.1@1/0".
   Ours alone: "2PUT3", "2TAKE3", "REDUCE5", "STEP5", "GATHER5" of block 5, "VERDICT", and what
   versions mean (hetrain.h, >>schedule_api).
   Micro-batches count from 0 within their pipeline. Empty cells (idle) are skipped. PyTorch's older
   files write B for backward-input: a "B" whose stage, micro-batch and slice have a W too is read
   as I. UNSHARD, RESHARD, REDUCE_GRAD, batched transfers, and a "BW" that has a W too are
   refused. */

/* Where a pipeline's stages must be, S stages on P different ranks. */
typedef enum het_placement {
    HET_PLACE_ANY = 0,
    HET_PLACE_ROUND = 1,              /* stage s and stage s + P on one rank */
    HET_PLACE_V = 2,                  /* S = 2 P, stage s and stage S - 1 - s on one rank */
    HET_PLACE_BOTH = 3,               /* pipelines 2 i and 2 i + 1 have the same ranks in opposite order */
    HET_PLACE_BOTH_V = 4              /* the same, each a V: down its ranks and up again */
} het_placement;

/* What a name means to who plans. */
typedef struct het_schedule_kind {
    const char *name;
    int32_t placement;                /* het_placement */
    int32_t split;                    /* backward as I and W */
    int32_t all_forward;              /* a stage's first backward waits for its last forward */
    int32_t limited;                  /* keeps no more than plan->memory_limit */
    int32_t search, usual;            /* het_plan_search tries it as this one, from 1; 0: never; and
                                         1: without being told to */
} het_schedule_kind;

/* The schedules there are; NULL behind the last. Threads: any. */
HETRAIN_API const het_schedule_kind *het_schedule_kind_at(int64_t i);
/* The compute lists of plan->schedule: gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, v-half, v-min,
   greedy, timed, bidirectional, bitpipe, dualpipev, terapipe (gpipe over slices), sliced-1f1b,
   pipedream, 2bw, xpipe, hogbatch. All take slices, whose backwards run last to first, and stages
   with `store` get PUT and TAKE; 1f1b in K slices keeps 1 + (p - 1 - r) / K micro-batches on rank
   r, sliced-1f1b 1 + 2 (p - 1 - r) / K, which hides slow links, with stages behind r counted up to
   a cut. Of plan->updates U, micro-batch m of n joins update m U / n and uses a version
   plan->staleness updates older: in several pipelines these are the virtual workers of HetPipe
   (arXiv 2005.14038) and staleness is its clock distance D. pipedream, 2bw and xpipe are 1f1b's
   lists; staleness 0: in 2bw gradients are late by one update, in pipedream F takes the newest
   version that its rank has made, in xpipe a prediction of the one that its gradient joins. In
   hogbatch, 1f1b's lists too, pipelines update in turn, each from its own micro-batches alone, late
   by what the others did meanwhile: P - 1 of P pipelines. A stage with `updates` of its own counts
   those. Pipelines that share ranks in unlike orders may wait for each other's updates: an error.
   counts: [pipelines]. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_schedule_make(const het_plan *plan, const int64_t *counts,
                                                            const het_allocator *allocator, het_schedule **schedule,
                                                            het_error *error);
/* By how many updates gradients join late at most; *mean: over units and slices of micro-batches.
   What F predicts is not late. The lists must pass het_schedule_check. Threads: any. */
HETRAIN_API int64_t het_schedule_late(const het_plan *plan, const het_schedule *schedule, double *mean);
/* From text; compute lists, or complete ones (those with a VERDICT). Stages, pipelines and slices
   must be the plan's; whether the lists make sense is het_schedule_check's question.
   Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_schedule_read(const het_plan *plan, const char *text, size_t length,
                                                            const het_allocator *allocator, het_schedule **schedule,
                                                            het_error *error);
/* Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_schedule_write(const het_schedule *schedule, const het_writer *to);

/* ---- >>simulate_api: what a schedule would take -------------------------------------------------
   Runs the lists of a schedule, the very ones a step runs, on given times. Lists with compute
   actions only (schedule->complete 0) get a transfer wherever stages that follow each other lie on
   different ranks; complete lists have their own.
   * A rank does its actions in order. F, B, I, W and STEP take its time; SEND, RECV, REDUCE and
     GATHER are started and take none but what het_rank_cost says. A pair "(a;b)OVERLAP_F_B" is a,
     then b; what both send leaves after b. F, B and I wait until their message is there.
   * Slices share a micro-batch's tokens by plan->slice_share. Of its pairs the queries between a
     and b of a causal sequence see b^2 - a^2 parts. What lists say of a slice without rows
     (plan->slice_tokens) is left out.
   * A message leaves when its SEND is reached and the messages before it have left the same link in
     the same direction: that takes bytes / bandwidth. It is there `latency` later; latencies do not
     occupy the link. In groups it then crosses the uplinks out of the sender's groups, the bus of
     the smallest group that has both ranks, and the uplinks into the receiver's groups. Each serves
     the messages in the order in which they come to it, for bytes / its own bandwidth each; the
     first byte goes on at once, so that an idle network takes as long as its slowest part.
   * REDUCE and GATHER: once all ranks whose lists have it have reached it, they send each other
     what each owns, all at once: the time of the slowest of these messages, and no less than what
     one rank sends, or gets, takes on its links one after the other: it has one port, unless
     het_costs.wires says that every pair has a wire of its own (emulated links have). Of a message
     one window is under way at a time (het_block_cost.windows), and a slow link makes it wait once
     for each. The rank's next one begins when all bytes have left, a latency before the last have
     come. The one that was ready first goes first, then the lower block. They share buses and
     uplinks with each other, the one that starts first being served first, and messages with
     messages; the two do not slow each other: a network that carries both at once does worse.
   * Ranks of one process are a cluster where several processes have some, and where more than
     HETRAIN_DIRECT are alone, as many neighbours as there are clusters: messages go to the ranks
     that collect for a cluster (HETRAIN_COLLECTOR), on to other clusters, and for new weights
     backwards. Each meets the slowest latency inside and between. With het_costs.rings all are a
     ring in the order of ranks: N - 1 steps that each take the time of the largest part on its
     slowest link.
   * Where blocks have keepers or teams by columns, or the plan divides sums or weights
     (het_plan.shard), holders send what each owns, of columns what the other has of it: REDUCE and
     GATHER take a latency and what the busiest sends or gets on the slowest link. Sums that leave
     behind their calls need no REDUCE, weights that come before theirs no GATHER, but between near
     sets: they go beside the unit before or behind (het_stage_cost.move).
   * VERDICT waits for every REDUCE and every rank that has a stage.
   * No message goes back over a cut (het_plan.cut), and B and I wait for none; a stage without a
     backward pass keeps nothing behind its F.
   * PUT and TAKE move what the slice keeps over the rank's link to its host, one after the other.
     They take the rank's own time or, with het_rank_cost.beside, run beside what it computes: then
     what needs a TAKE waits for it, and an F for the PUT before the last one.
   * A team's F, B, I and W take what its slowest member takes for its rows, and of attention for
     its group's queries and its heads, cut where the shares say. F and B also exchange: a tensor at
     a time, each a latency and the most bytes that leave a member or come to it over their links;
     keys and values to the groups behind, and, where heads are divided, queries and outputs. B and
     I hand the chains of keys' and values' gradients from group to group, which costs a member its
     two neighbours, and an attention once for every cut between groups that a sequence straddles.
     Up to VERDICT members do what their leader does; begin and ring_byte are those of the slowest.
     A message between teams is done when the slowest of its pieces is: a piece is what two members
     have in common.
   * A team by columns gathers rows (a latency, and the most that leaves a member or comes to it),
     and hands chains from member to member in up to 8 blocks of 16 rows or more: of R members and B
     blocks B + R - 2 times a block's bytes and a latency for each of a chain's products, then its
     rows to their members. Its products take what they take for a block B + R - 1 times: while
     chains fill, R - 1 of these are waited for. A member copies what stays with it. Rows that are
     exchanged (of experts) go in R - 1 rounds: of n rows a member with share c sends and gets
     c (1 - c) n. Attentions that it leaves by heads exchange as above.
   * het_costs.transfer says how far ranks wait for their messages. Then lists must be complete, and
     receive what one rank sends to another in the same order (het_schedule_check).
   Times are added and compared, multiplied by sizes, and never subtracted from each other before
   the end: whole numbers in give whole numbers out, up to 2^53. The unit is the caller's: a
   timeline to be drawn should be in seconds. */

/* Bytes are those of one token. With het_costs.tokens NULL a micro-batch is one token: then {0, F,
   0} and bytes of a whole micro-batch. */
/* base + token * tokens + pair * pairs. `pairs` counts for every query the keys it sees: T (T + 1)
   / 2 for a causal sequence of T tokens. */
typedef struct het_cost { double base, token, pair; } het_cost;

/* What a team by columns moves, [0] forward, [1] backward; bytes of a token. */
typedef struct het_column_moves {
    double gathers[2], gather_bytes[2]; /* tensors that are gathered */
    double chains[2], chain_bytes[2];   /* that go from member to member, and then to the rows' owners */
    double links[2], link_bytes[2];     /* their products: several make one chain */
    double linked[2];                   /* time of these products, a token */
    double divided;                     /* attentions that are divided so; the others are by heads */
    double exchanges[2], exchange_bytes[2]; /* tensors whose rows go to the members that work on them, or
                                           come back: a member works on its share of all */
    double linked_base[2];              /* time of the linked products beside, however few rows they have */
    double kept_byte;                   /* a member's time for a byte that stays with it, goes or comes */
} het_column_moves;

/* Of `count` units: seconds of what moves beside one, and its part of the stage's own time. */
typedef struct het_move_cost { double count, seconds, part; } het_move_cost;
enum { HETRAIN_MOVES = 6 };

typedef struct het_stage_cost {
    het_cost forward, backward, input, weight; /* of F, B, I, W, recomputation included; the base once a slice */
    het_cost again;                   /* what B and I take longer of slices that recompute where others
                                         keep all (het_stage.keep) */
    double beside[5];                 /* F, B, I, W take at least so long, and B and I longer as by `again`: what
                                         comes and leaves beside them where weights or sums are divided */
    het_move_cost move[3][HETRAIN_MOVES]; /* of it F, B, and F behind a B, I or W of its rank, unit by unit: each
                                         takes its time or its moves' */
    double bytes;                     /* of the stage's output; its gradient is as large */
    double keep_input, keep_weight;   /* kept from F until I, from F until W; B is both */
    double keep_gradient;             /* kept from I until W */
    /* For teams: how many attentions; bytes of their queries together, and of their keys, as many
       as of their values */
    double attentions, query, key;
    het_column_moves columns;         /* for teams by columns */
    double chain[2];                  /* where it begins and ends in the chain's backward time, in any
                                         unit; all 0: not known */
    double keep_lean;                 /* of those slices, from F until B or W, in place of keep_input
                                         and keep_weight */
} het_stage_cost;

typedef struct het_link_cost {
    double latency;
    double bandwidth;                 /* bytes a unit of time; 0: unlimited */
} het_link_cost;

typedef struct het_block_cost {
    double reduce_bytes, gather_bytes; /* of the whole block: a rank owns its part of plan->state_share */
    double windows;                   /* the whole block's elements over those that are under way at once,
                                         HETRAIN_FLOW_WINDOW or, of many large blocks, up to four times
                                         as many; 0: a message never waits for its own beginning */
    double step;                      /* of the update of the whole block, or its elements: het_rank_cost.step */
    double columns;                   /* part of it that teams by columns divide */
    double chain;                     /* where its lowest unit begins, as het_stage_cost.chain: a REDUCE begins
                                         inside its stage's last backward pass */
} het_block_cost;

/* A rank's own time, beside its stages. All 0 but step 1: none. */
typedef struct het_rank_cost {
    double begin;                     /* before its first action */
    double ring_byte;                 /* of a byte that a REDUCE or GATHER brings or takes: spent
                                         when it is reached, while the ring runs */
    double verdict;                   /* of VERDICT, before it joins the others */
    double step_base, step;           /* of a STEP: once, and for each unit of its part of het_block_cost.step */
    double host_byte;                 /* of a byte that PUT or TAKE moves */
    double max_tokens;                /* no time: of a micro-batch that it is given (het_device_desc.max_tokens);
                                         0: any. het_simulate refuses larger ones */
    int64_t beside;                   /* 1: beside what the rank computes */
} het_rank_cost;

typedef enum het_transfer {
    HET_TRANSFER_FREE = 0,            /* as above: a message leaves when its SEND is reached, and
                                         nobody waits but the F, B or I that needs it */
    /* As het_step moves messages within a process: one leaves when its RECV has been reached as
       well; a rank has two buffers for what it sends, so that an action ends only when the message
       before the last is there; the scalars of VERDICT go up the tree of the ranks that have a
       stage (het_tree_grow: the first ones of the processes, and below each the others of its
       process) and down again, each message a latency. */
    HET_TRANSFER_POSTED = 1,
    /* As blocking calls do (MPI_Send, ncclSend on the stream that computes): SEND and RECV end when
       the message is there, which leaves when both have been reached. Small messages leave at once
       and do not keep the sender. */
    HET_TRANSFER_BLOCKING = 2
} het_transfer;

/* Groups of ranks, within each other at most so many deep: what links they share. */
#define HETRAIN_COMMUNICATOR_DEPTH 32
typedef struct het_group {
    char name[48];
    int64_t parent;                   /* -1: the outermost; groups come behind their parents */
    double latency, bandwidth;        /* between two of its members: seconds, bytes a second; 0: unlimited */
    double bus;                       /* bytes a second that all messages between its members share; 0: unlimited */
    double uplink;                    /* bytes a second that all messages leaving it share, and all
                                         that enter; 0: unlimited */
    int32_t process;                  /* 1: its devices are ranks of one process; reductions go in
                                         two levels where there are several */
} het_group;

typedef struct het_costs {
    uint32_t start_canary;
    const het_stage_cost *stage;      /* [plan->stages]. Required */
    const het_stage_cost *member;     /* what each member of a team would take for all of a stage: one behind
                                         the other, team by team of the stages that have one. NULL: as
                                         `stage`, whose bytes and what is kept are looked at anyway */
    const double *tokens, *pairs;     /* pipeline by pipeline, of each micro-batch; NULL: 1 and 0 each */
    const double *sequences;          /* of equal length, in each micro-batch: slices see other
                                         pairs then; NULL: 1 each */
    const het_rank_cost *rank;        /* [ranks]; NULL: none but the steps of blocks */
    const het_link_cost *link;        /* [ranks][ranks] from, to; NULL: by groups, or all are `every_link` */
    het_link_cost every_link;
    const het_group *group;           /* [groups] of a het_cluster; NULL: none. Needs rank_group. Latency and
                                         bandwidth are those of `link` where there is one */
    const int64_t *rank_group;        /* [ranks] the innermost group that each rank is in */
    int64_t groups;
    const het_block_cost *block;      /* [blocks]; NULL: rings and steps take no time */
    int64_t blocks;
    het_transfer transfer;
    double granule;                   /* tokens of the longest, between which a team's rows are cut; 0: anywhere */
    double eager;                     /* messages of at most so many bytes leave when their SEND is
                                         reached, whatever `transfer` says */
    int32_t rings;                    /* 1: REDUCE and GATHER of few ranks are rings too, as NCCL's */
    int32_t wires;                    /* 1: REDUCE and GATHER find a wire of their own between any two ranks */
    uint32_t end_canary;
} het_costs;

typedef struct het_rank_time {
    double start, end;                /* of the first and the last that the rank computes */
    double busy;                      /* sum of F, B, I, W, STEP and of what het_rank_cost says */
    double fill, wait, tail, idle;    /* before start, between, after end until the makespan; their
                                         sum. busy + idle = makespan */
    double peak;                      /* the most activations kept on the device at once, from F until B or W: in
                                         micro-batches of the rank's stages of a pipeline, as
                                         het_schedule_check counts */
    int64_t peak_action;              /* which action of the rank's list reaches it first; -1: none */
    double peak_bytes;                /* the most that the stages' keep_input, keep_weight and keep_gradient come to */
    int64_t peak_bytes_action;
} het_rank_time;

typedef struct het_simulation {
    double makespan;                  /* from 0 until everything is done */
    double span;                      /* the longest of end - start of a rank: how zero-bubble's
                                         authors measure (arXiv 2401.10241) */
    double bubble, span_bubble;       /* 1 - sum of busy / (ranks makespan); the same with span instead of makespan */
    int64_t ranks, actions;
    het_rank_time *rank;              /* [ranks] */
    het_timeline timeline;            /* 0 records unless asked for. Messages that a compute list
                                         implies are in it too */
    het_allocator allocator;          /* of this struct and its arrays: one block of `size` bytes */
    size_t size;
} het_simulation;

/* timeline: HET_YES keeps a record of every action. allocator: NULL means malloc. The error names
   rank, position in its list and action: one that is out of range or on the wrong rank, comes
   before what it needs, or waits for ever. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_simulate(const het_plan *plan, const het_schedule *schedule,
                                                       const het_costs *costs, het_choice timeline,
                                                       const het_allocator *allocator, het_simulation **simulation,
                                                       het_error *error);
HETRAIN_API void het_simulation_free(het_simulation *simulation);      /* NULL is fine. Threads: any. */

/* The shortest compute lists that are found for these costs: of a grid of list schedulers, which
   know times, latencies and plan->memory_limit, and of all named schedules that suit the plan and
   keep to the limit, as het_simulate judges them; never longer than one of these. costs: NULL: F, I
   and W take 1, B 2, messages nothing; blocks are not looked at. The limit counts a slice from F
   until I as one, from I until W as what its stage still keeps then, keep_weight and keep_gradient
   of keep_input and keep_weight (one, where these are 0). Some 6 ms for 8 stages and 32
   micro-batches, in proportion to actions and ranks. Errors: those of het_simulate and
   het_schedule_make. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_schedule_timed(const het_plan *plan, const int64_t *counts,
                                                             const het_costs *costs, const het_allocator *allocator,
                                                             het_schedule **schedule, het_error *error);

/* Lengths of a causal sequence's slices in a pipeline of `stages` stages, of which the slowest
   takes `cost` for a slice (F and B): sum t_i + (stages - 1) max t_i becomes as small as it can be
   (TeraPipe, arXiv 2102.07988): dynamic programming for the least sum below a bound of the largest,
   whose bounds go down until the sum alone is too long. The sequence has `granules` of
   `granule_tokens` tokens, and at most `most` slices. length: [most] (=) in granules, for
   het_plan.slice_share; *slices: how many; *seconds: of F and B of one sequence. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_slice_lengths(const het_cost *cost, int64_t granules,
                                                            int64_t granule_tokens, int64_t stages, int64_t most,
                                                            const het_allocator *allocator, int64_t *length,
                                                            int64_t *slices, double *seconds, het_error *error);

/* ---- >>picture_api: a timeline to look at -------------------------------------------------------
   Both take timelines of het_simulate, of a training step, or from elsewhere: records rank by rank.
   `plan` adds the units of each stage to the names; it may be NULL. HET_ERR_INVALID: a record's
   rank is out of range or falls, or its times are negative, not finite or reversed. */

/* Chrome trace JSON, for ui.perfetto.dev or chrome://tracing: a process a rank, a thread for what
   it computes, others for what it moves, named as in the text of a schedule, an arrow from every
   SEND to the RECV it belongs to. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_timeline_trace(const het_timeline *timeline, const het_plan *plan,
                                                             const het_writer *to);

typedef struct het_svg_desc {
    uint32_t start_canary;
    const char *title;                /* UTF-8; NULL: "Timeline of one step" */
    double width;                     /* pixels, 400 to 20000; 0: 1200, or up to 2400 where that
                                         makes room for numbers */
    double row_height;                /* pixels a rank, 2 to 200; 0: by the number of ranks */
    int64_t transfers;                /* lines between ranks are drawn where there are at most so
                                         many: 600; negative: never */
    het_choice dark;                  /* light letters on a dark ground: no */
    uint32_t end_canary;
} het_svg_desc;

/* A picture that needs nothing else: a row a rank, a box an action, idle time empty. Boxes too thin
   to be seen are drawn together, their kinds one above the other by their share, so that a file of
   up to 3,000 ranks stays below 4 MB however many records there are. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_timeline_svg(const het_timeline *timeline, const het_plan *plan,
                                                           const het_svg_desc *desc, const het_writer *to);

#ifdef __cplusplus
}
#endif
#endif /* HETRAIN_PLAN_H ---- end of the API: to use hetrain_plan.h you need nothing below ---- */
/* =================================================================================================
   >>config  Compiler differences, in one place.
   ============================================================================================== */
#if defined(HETRAIN_PLAN_IMPLEMENTATION) && !defined(HETRAIN_PLAN_IMPLEMENTATION_DONE)

#define HETI_T_WANTED
#include "hetrain_text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* HET_ERR_INVALID with a message, into what has an `error`. */
#define HETI_P_BAD(at, ...) heti_t_fail((at)->error, HET_ERR_INVALID, __VA_ARGS__)

static int64_t heti_p_min(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t heti_p_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* =================================================================================================
   >>generate  Schedules by name: which rank computes what, in which order.
   A name is a rule of het_schedule_play. What it means is a row of heti_p_schedules: whether the
   backward pass is split, how many activations may be kept, and for the V schedules a repeated
   block of forwards and backwards. Two published schedules are fixed lists; these are written
   first, and the play takes from them.
   Nothing can wait for ever. Pipelines never wait for each other, only for the rank to be free.
   Within a pipeline without a given order the oldest micro-batch can always move: its backwards and
   W need no memory, and its forward finds room, because a lane keeps room free for its later chunks
   (heti_p_make_room). A given order (a list, a block) is the order of some timeline in which all
   inputs are there in time, so the earliest action of that timeline not yet taken can be taken.
   ============================================================================================== */

/* ---- what a name means ---- */

typedef enum heti_p_given {
    HETI_P_FREE, HETI_P_INTERLEAVED, HETI_P_DUALPIPEV, HETI_P_BLOCK, HETI_P_TIMED
} heti_p_given;

/* Limits in micro-batches, all 0: none. Of one stage: forwards whose gradient has not come back yet
   (`after` A + `one`, A stages come after it), and forwards whose activations are kept (`stages` S
   + `plus`). Of a rank's stages together: kept ((P + top) / part, rounded down). With K slices the
   last K - 1 of a micro-batch come on top: the limit in slices is K - 1 higher, not K times as
   high, which is what slices are for. HETI_P_BLOCK: `down` and `up` are the distances between
   neighbours in the block, see heti_p_block_times.
   arXiv: gpipe 1811.06965; 1f1b, interleaved (section 2.2) 2104.04473, 1f1b in slices is Seq1F1B,
   2406.03488; pipedream 1806.03377; 2bw 2006.09503; xpipe 1911.04610; zb-h1, zb-h2, zb-v
   (section 6) 2401.10241; v-half, v-min 2405.15362; bidirectional is Chimera, 2107.06925; bitpipe
   2410.19367, at most P micro-batches each way; terapipe 2102.07988; sliced-1f1b is SlimPipe,
   2504.14519; hogbatch 2004.08771. dualpipev: deepseek-ai/DualPipe. */
typedef struct heti_p_rule {
    het_schedule_kind kind;
    int32_t order;                   /* heti_p_given */
    int32_t backward_first;          /* where both are ready; otherwise forwards come first, up to their limits */
    int64_t after, one;
    int64_t stages, plus;
    int64_t top, part;
    int64_t down, up;
    int32_t ahead;                   /* idle time and spare room before the block's next action go
                                        to forwards of the first chunk */
    int32_t late;                    /* updates by which gradients are late, unless het_plan.staleness says so; -1:
                                        F takes the newest version that its rank has; -2: the one
                                        that its gradient joins, predicted where it is not there; -3:
                                        pipelines update in turn */
} heti_p_rule;

#define HETI_P_BLOCK_TIME 6 /* of one micro-batch: F, I, W of two chunks */

static const heti_p_rule heti_p_schedules[] = {
    /*                                    split     search  order                  after  stages  top  down  late */
    { { "gpipe",         HET_PLACE_ANY,   0, 1, 0,  2, 1 }, HETI_P_FREE,        0,  0, 0,  0,  0,  0, 0,  0, 0, 0,  0 },
    { { "1f1b",          HET_PLACE_ANY,   0, 0, 0,  1, 1 }, HETI_P_FREE,        0,  1, 1,  0,  0,  0, 0,  0, 0, 0,  0 },
    { { "interleaved",   HET_PLACE_ROUND, 0, 0, 0,  6, 1 }, HETI_P_INTERLEAVED, 0,  0, 0,  0,  0,  0, 0,  0, 0, 0,  0 },
    { { "zb-h1",         HET_PLACE_ANY,   1, 0, 0,  3, 1 }, HETI_P_FREE,        0,  1, 1,  1,  0,  0, 0,  0, 0, 0,  0 },
    { { "zb-h2",         HET_PLACE_ANY,   1, 0, 0,  4, 0 }, HETI_P_FREE,        0,  2, 1,  2, -1,  0, 0,  0, 0, 0,  0 },
    { { "zb-v",          HET_PLACE_V,     1, 0, 0,  7, 1 }, HETI_P_BLOCK,       0,  0, 0,  0,  0,  0, 1,  4, 2, 1,  0 },
    { { "v-half",        HET_PLACE_V,     1, 0, 0,  8, 0 }, HETI_P_BLOCK,       0,  0, 0,  0,  0,  2, 2,  2, 1, 1,  0 },
    { { "v-min",         HET_PLACE_V,     1, 0, 0,  9, 0 }, HETI_P_BLOCK,       0,  0, 0,  0,  0,  4, 3,  1, 1, 0,  0 },
    { { "greedy",        HET_PLACE_ANY,   1, 0, 1,  5, 1 }, HETI_P_FREE,        1,  0, 0,  0,  0,  0, 0,  0, 0, 0,  0 },
    { { "timed",         HET_PLACE_ANY,   1, 0, 1,  0, 0 }, HETI_P_TIMED,       0,  0, 0,  0,  0,  0, 0,  0, 0, 0,  0 },
    { { "bidirectional", HET_PLACE_BOTH,  0, 0, 0,  0, 0 }, HETI_P_FREE,        0,  1, 1,  0,  0,  0, 0,  0, 0, 0,  0 },
    { { "bitpipe",       HET_PLACE_BOTH_V, 0, 0, 0, 0, 0 }, HETI_P_FREE,        0,  0, 0,  0,  0,  0, 1,  0, 0, 0,  0 },
    { { "dualpipev",     HET_PLACE_V,     1, 0, 0, 10, 0 }, HETI_P_DUALPIPEV,   0,  0, 0,  0,  0,  0, 0,  0, 0, 0,  0 },
    { { "terapipe",      HET_PLACE_ANY,   0, 1, 0,  0, 0 }, HETI_P_FREE,        0,  0, 0,  0,  0,  0, 0,  0, 0, 0,  0 },
    { { "sliced-1f1b",   HET_PLACE_ANY,   0, 0, 0,  0, 0 }, HETI_P_FREE,        0,  2, 1,  0,  0,  0, 0,  0, 0, 0,  0 },
    { { "pipedream",     HET_PLACE_ANY,   0, 0, 0,  0, 0 }, HETI_P_FREE,        0,  1, 1,  0,  0,  0, 0,  0, 0, 0, -1 },
    { { "2bw",           HET_PLACE_ANY,   0, 0, 0,  0, 0 }, HETI_P_FREE,        0,  1, 1,  0,  0,  0, 0,  0, 0, 0,  1 },
    { { "xpipe",         HET_PLACE_ANY,   0, 0, 0,  0, 0 }, HETI_P_FREE,        0,  1, 1,  0,  0,  0, 0,  0, 0, 0, -2 },
    { { "hogbatch",      HET_PLACE_ANY,   0, 0, 0,  0, 0 }, HETI_P_FREE,        0,  1, 1,  0,  0,  0, 0,  0, 0, 0, -3 }
};
#define HETI_P_RULES HETI_T_CAST(int64_t, sizeof heti_p_schedules / sizeof *heti_p_schedules)

HETRAIN_API const het_schedule_kind *het_schedule_kind_at(int64_t i) {
    return i >= 0 && i < HETI_P_RULES ? &heti_p_schedules[i].kind : NULL;
}

/* NULL: there is none of this name. */
static const heti_p_rule *heti_p_rule_find(const char *name) {
    for (int64_t i = 0; i < HETI_P_RULES; i++)
        if (strcmp(name, heti_p_schedules[i].kind.name) == 0) return &heti_p_schedules[i];
    return NULL;
}

static het_result heti_p_rule_check(const char *name, const char *where, het_error *error) {
    char names[200];
    heti_t_text text = heti_t_text_in(names, sizeof names);
    if (heti_p_rule_find(name) != NULL) return HET_OK;
    for (int64_t i = 0; i < HETI_P_RULES; i++)
        heti_t_format(&text, "%s %s", i > 0 ? "," : "", heti_p_schedules[i].kind.name);
    return heti_t_fail(error, HET_ERR_INVALID, "%s: unknown schedule '%p', not one of%s", where, name, strlen(name),
                       names);
}

/* ---- the state of a rule ---- */

enum { HETI_P_MAKE_F = 0, HETI_P_MAKE_I = 1, HETI_P_MAKE_W = 2 };

/* The stages of one pipeline on one rank. */
typedef struct heti_p_make_lane {
    const int64_t *stage;               /* [stages] in het_play.rank_stage */
    int64_t stages;
    int64_t limit;                      /* of forwards not through WEIGHT, over its stages */
    int64_t next_item, end_item;        /* of its list */
    int64_t block[4];                   /* HETI_P_BLOCK: when F of chunk 0, F and I of chunk 1,
                                           I of chunk 0 happen for item 0 */
    int64_t ahead_limit;                /* HETI_P_BLOCK: forwards of chunk 0 that are not through INPUT */
} heti_p_make_lane;

/* of a pattern; stage in the plan */
typedef struct heti_p_make_item { int64_t stage; int32_t kind, overlap; } heti_p_make_item;
typedef struct heti_p_dual_weight { int64_t stage, micro_batch; } heti_p_dual_weight;

typedef struct heti_p_make {
    const het_play *play;
    const heti_p_rule *rule;
    het_allocator allocator;
    het_error *error;
    heti_t_arena arena;                 /* of the arrays below */
    heti_p_make_lane *lane;             /* [stages] by place in het_play.rank_stage of the first of each */
    heti_p_make_lane **lane_of;         /* [stages] */
    heti_p_make_item *item;             /* [3 items of all stages] patterns, lane by lane */
    heti_p_dual_weight *waiting;        /* of one rank: W whose I is in its list */
    int64_t items;
} heti_p_make;

/* ---- when an action may begin ---- */

/* Updates of a stage's weights. */
static int64_t heti_p_gear(const het_plan *plan, const het_stage *stage) {
    return stage->updates > 0 ? stage->updates : plan->updates;
}

/* The update that a micro-batch's gradient joins in a stage. */
static int64_t heti_p_joins(const het_plan *plan, const int64_t *counts, int64_t stage, int64_t micro_batch) {
    const int64_t turns = heti_p_rule_find(plan->schedule)->late == -3 ? plan->pipelines : 1,
                  p = plan->stage[stage].pipeline, gear = heti_p_gear(plan, &plan->stage[stage]);
    return micro_batch * (gear / turns) / counts[p] * turns + p % turns;
}

static int heti_p_stages_meet(const het_stage *a, const het_stage *b) {
    return a->unit_begin < b->unit_end && b->unit_begin < a->unit_end;
}

/* Whether other pipelines on the rank have made the gradients of the same units that join earlier
   updates than those of a stage's next backward action: a rank sums those of one at a time. */
static int heti_p_make_in_turn(const heti_p_make *make, int64_t s, int32_t kind) {
    const het_play *play = make->play;
    const het_stage *own = &play->plan->stage[s];
    const int what = kind == HET_ACTION_W ? HETI_P_MAKE_W : HETI_P_MAKE_I;
    const int64_t slices = play->plan->slices, *last = &play->rank_start[own->rank + 1];
    for (int64_t i = last[-1]; i < *last && play->plan->updates > 1 && kind != HET_ACTION_F; i++) {
        const int64_t t = play->rank_stage[i];
        const het_play_stage *at = &play->stage[t];
        if (!heti_p_stages_meet(&play->plan->stage[t], own) || !at->backward) continue;
        if (at->done[what] < at->items && heti_p_joins(play->plan, play->counts, t, at->done[what] / slices) <
            heti_p_joins(play->plan, play->counts, s, play->stage[s].begun[what] / slices)) return 0;
    }
    return 1;
}

static int heti_p_make_ready(const heti_p_make *make, int64_t s, int32_t kind) {
    const het_play_stage *stage = &make->play->stage[s];
    const int backward = kind == HET_ACTION_B || kind == HET_ACTION_I;
    if (backward && make->rule->kind.all_forward && stage->done[HETI_P_MAKE_F] < stage->items) return 0;
    return het_play_ready(make->play, s, kind) && heti_p_make_in_turn(make, s, kind);
}

/* Forwards that the stage keeps the activations of. */
static int64_t heti_p_make_kept(const heti_p_make *make, int64_t s) {
    return make->play->stage[s].begun[HETI_P_MAKE_F] - make->play->stage[s].done[HETI_P_MAKE_W];
}

/* Memory for one forward more. A lane of v chunks keeps room for K slices in each later chunk:
   chunks 0 .. c together stay within limit - (v - 1 - c) K. So the oldest micro-batch, which alone
   may be in chunks after the one it waits for, always finds room. */
static int heti_p_make_room(const heti_p_make *make, const heti_p_make_lane *lane, int64_t s) {
    const heti_p_rule *rule = make->rule;
    const het_play_stage *stage = &make->play->stage[s];
    const int64_t slices = make->play->plan->slices, stages = stage->before + 1 + stage->after;
    const int64_t open = stage->begun[HETI_P_MAKE_F] - stage->done[HETI_P_MAKE_I];
    int64_t kept = 0;
    if (rule->after > 0 && open >= rule->after * stage->behind + rule->one + slices - 1) return 0;
    if (rule->stages > 0 && heti_p_make_kept(make, s) >= rule->stages * stages + rule->plus + slices - 1) return 0;
    for (int64_t i = 0; i < lane->stages; i++) {
        kept += heti_p_make_kept(make, lane->stage[i]);
        if (lane->stage[i] >= s && kept >= lane->limit - (lane->stages - 1 - i) * slices) return 0;
    }
    return 1;
}

/* ---- which of the ready actions a rank takes ---- */

typedef struct heti_p_make_choice {
    int64_t stage, micro_batch, stages_after; /* stage -1: none */
    int32_t kind, group;                /* the lowest group first */
} heti_p_make_choice;

/* Of two forwards the one nearer to the last stage, then the older micro-batch; of two others the
   older micro-batch, then the longer way to the first stage. */
static int heti_p_make_better(const heti_p_make_choice *a, const heti_p_make_choice *b) {
    if (b->stage < 0) return 1;
    if (a->group != b->group) return a->group < b->group;
    if (a->kind == HET_ACTION_F && b->kind == HET_ACTION_F && a->stages_after != b->stages_after)
        return a->stages_after < b->stages_after;
    if (a->micro_batch != b->micro_batch) return a->micro_batch < b->micro_batch;
    return a->stages_after < b->stages_after;
}

/* The stage's next action of that kind, where it is ready. */
static void heti_p_make_offer(const heti_p_make *make, int64_t s, int32_t kind, int32_t group,
                              heti_p_make_choice *best) {
    const het_play_stage *stage = &make->play->stage[s];
    const int what = kind == HET_ACTION_F ? HETI_P_MAKE_F : kind == HET_ACTION_W ? HETI_P_MAKE_W : HETI_P_MAKE_I;
    const heti_p_make_choice choice = { s, stage->begun[what] / make->play->plan->slices, stage->after, kind, group };
    if (heti_p_make_ready(make, s, kind) && heti_p_make_better(&choice, best)) *best = choice;
}

enum { HETI_P_GROUP_FIRST = 0, HETI_P_GROUP_SECOND = 1, HETI_P_GROUP_WEIGHTS = 2, HETI_P_GROUP_AHEAD = 3 };

/* The next action of a list, both of a pair. */
static void heti_p_make_choose_listed(const heti_p_make *make, const heti_p_make_lane *lane, heti_p_make_choice *best) {
    const heti_p_make_item *item = &make->item[lane->next_item];
    if (lane->next_item == lane->end_item) return;
    if (item->overlap && !heti_p_make_ready(make, item[1].stage, item[1].kind)) return;
    heti_p_make_offer(make, item->stage, item->kind,
                      item->kind == HET_ACTION_W ? HETI_P_GROUP_WEIGHTS : HETI_P_GROUP_FIRST, best);
}

/* The block's next forward or backward, in the order of their times in the block; W when there is
   nothing else; perhaps a forward ahead of its time. */
static void heti_p_make_choose_block(const heti_p_make *make, const heti_p_make_lane *lane, heti_p_make_choice *best) {
    static const int heti_p_what[4] = { HETI_P_MAKE_F, HETI_P_MAKE_F, HETI_P_MAKE_I, HETI_P_MAKE_I };
    const het_play_stage *first = &make->play->stage[lane->stage[0]];
    const int room = heti_p_make_kept(make, lane->stage[0]) + heti_p_make_kept(make, lane->stage[1]) < lane->limit;
    int64_t next = -1, earliest = 0;
    int32_t kind = HET_ACTION_F;
    for (int i = 0; i < 4; i++) {
        const int64_t s = lane->stage[i == 1 || i == 2], begun = make->play->stage[s].begun[heti_p_what[i]],
                      when = HETI_P_BLOCK_TIME * begun + lane->block[i];
        if (begun == first->items || (i >= 2 && !make->play->stage[s].backward)) continue;
        if (next >= 0 && when >= earliest) continue;
        next = s;
        earliest = when;
        kind = i < 2 ? HET_ACTION_F : HET_ACTION_I;
    }
    for (int i = 0; i < 2; i++) heti_p_make_offer(make, lane->stage[i], HET_ACTION_W, HETI_P_GROUP_WEIGHTS, best);
    if (next >= 0 && (room || kind == HET_ACTION_I)) heti_p_make_offer(make, next, kind, HETI_P_GROUP_FIRST, best);
    if (next >= 0 && room && first->begun[HETI_P_MAKE_F] - first->done[HETI_P_MAKE_I] < lane->ahead_limit)
        heti_p_make_offer(make, lane->stage[0], HET_ACTION_F, HETI_P_GROUP_AHEAD, best);
}

/* The lane's best ready action, if it is better than *best. */
static void heti_p_make_choose(const heti_p_make *make, const heti_p_make_lane *lane, heti_p_make_choice *best) {
    const heti_p_rule *rule = make->rule;
    const int32_t backward = rule->kind.split ? HET_ACTION_I : HET_ACTION_B;
    const int32_t first = rule->backward_first ? HETI_P_GROUP_SECOND : HETI_P_GROUP_FIRST;
    if (rule->order == HETI_P_BLOCK) { heti_p_make_choose_block(make, lane, best); return; }
    if (rule->order != HETI_P_FREE) { heti_p_make_choose_listed(make, lane, best); return; }
    for (int64_t i = 0; i < lane->stages; i++) {
        const int64_t s = lane->stage[i];
        heti_p_make_offer(make, s, backward, HETI_P_GROUP_FIRST + HETI_P_GROUP_SECOND - first, best);
        if (heti_p_make_room(make, lane, s)) heti_p_make_offer(make, s, HET_ACTION_F, first, best);
        heti_p_make_offer(make, s, HET_ACTION_W, HETI_P_GROUP_WEIGHTS, best); /* where there is an I before */
    }
}

/* het_rule.choose: the best action of all lanes, and both of a pair. */
static int heti_p_make_next(void *user, const het_play *play, int64_t rank, int64_t stage[2], int32_t kind[2]) {
    heti_p_make *make = HETI_T_CAST(heti_p_make *, user);
    heti_p_make_choice best = { -1, 0, 0, 0, 0 };
    heti_p_make_lane *lane;
    const heti_p_make_item *item;
    for (int64_t i = play->rank_start[rank]; i < play->rank_start[rank + 1]; i += make->lane[i].stages)
        heti_p_make_choose(make, &make->lane[i], &best);
    if (best.stage < 0) return 0;
    stage[0] = best.stage;
    kind[0] = best.kind;
    lane = make->lane_of[best.stage];
    if (lane->next_item == lane->end_item || !make->item[lane->next_item++].overlap) return 1;
    item = &make->item[lane->next_item++];
    stage[1] = item->stage;
    kind[1] = item->kind;
    return 2;
}

/* ---- patterns ---- */

/* Appends an action of every slice of one micro-batch; micro-batches that only fill up the pattern
   (>= count) are left out, and backwards of stages that have none. Nothing depends on them, so what
   is left can still be executed. */
static void heti_p_pattern_add(heti_p_make *make, int64_t stage, int32_t kind, int64_t micro_batch) {
    const heti_p_make_item item = { stage, kind, 0 };
    if (kind != HET_ACTION_F && !make->play->stage[stage].backward) return;
    if (micro_batch >= make->play->counts[make->play->stage[stage].pipeline]) return;
    for (int64_t k = 0; k < make->play->plan->slices; k++) make->item[make->items++] = item;
}

/* The k-th forward of a rank in the interleaved order: groups of P micro-batches, chunk by chunk.
   Backwards go through the chunks in reverse. The last group may be short; *place counts as if it
   were not. */
typedef struct heti_p_interleaved { int64_t place, chunk, micro_batch; } heti_p_interleaved;

static heti_p_interleaved heti_p_interleaved_at(int64_t k, int64_t count, int64_t ranks, int64_t chunks) {
    const int64_t whole = count / ranks * ranks * chunks;            /* items of whole groups */
    const int64_t width = k < whole ? ranks : count % ranks;         /* micro-batches of its group */
    const int64_t first = k < whole ? k / (ranks * chunks) * ranks : count / ranks * ranks;
    const int64_t within = k < whole ? k % (ranks * chunks) : k - whole;
    const heti_p_interleaved at = { first * chunks + within / width * ranks + within % width, within / width,
                                    first + within % width };
    return at;
}

/* Interleaved 1F1B as Megatron-LM orders it: rank r begins with 2 (P - 1 - r) + (v - 1) P forwards,
   then one forward and one backward in turn, then backwards. A short last group keeps the places it
   would have in a whole one, of which nothing in it depends on. */
static void heti_p_pattern_interleaved(heti_p_make *make, int64_t p, int64_t chunks, int64_t position) {
    const int64_t *stages = make->play->plan->first_stage + p, first = stages[0],
                  ranks = (stages[1] - first) / chunks, count = make->play->counts[p];
    const int64_t warm_up = 2 * (ranks - 1 - position) + (chunks - 1) * ranks;
    int64_t forward = 0, backward = 0;
    while (backward < count * chunks) {
        const heti_p_interleaved b = heti_p_interleaved_at(backward, count, ranks, chunks);
        const heti_p_interleaved f = heti_p_interleaved_at(heti_p_min(forward, count * chunks - 1), count, ranks,
                                                           chunks);
        if (forward < count * chunks && f.place <= b.place + warm_up) {
            heti_p_pattern_add(make, first + f.chunk * ranks + position, HET_ACTION_F, f.micro_batch);
            forward++;
        } else {
            heti_p_pattern_add(make, first + (chunks - 1 - b.chunk) * ranks + position, HET_ACTION_B, b.micro_batch);
            backward++;
        }
    }
}

/* DualPipeV on one rank: the next micro-batch of each chunk, and the I whose W is still to come,
   first in first out. */
typedef struct heti_p_dual {
    heti_p_make *make;
    int64_t stage[2];                   /* chunk 0 on the way down, chunk 1 on the way up */
    int64_t forward[2], backward[2];
    int64_t waiting, weights;           /* put into make->waiting, taken from it */
} heti_p_dual;

/* Steps by letters, small ones of chunk 0, capitals of chunk 1: f a forward, b a backward, i one
   whose W comes later, w the oldest such W of both, p a forward of this chunk and a backward of the
   other as a pair. */
static void heti_p_dual_step(heti_p_dual *dual, char step) {
    heti_p_make *make = dual->make;
    const int chunk = strchr("FBIP", step) != NULL;
    const int64_t at = make->items, slices = make->play->plan->slices;
    heti_p_dual_weight weight = { dual->stage[chunk], dual->backward[chunk] };
    if (step == 'w') {
        weight = make->waiting[dual->weights++];
        heti_p_pattern_add(make, weight.stage, HET_ACTION_W, weight.micro_batch);
    } else if (step == 'i' || step == 'I') {
        make->waiting[dual->waiting++] = weight;
        heti_p_pattern_add(make, weight.stage, HET_ACTION_I, dual->backward[chunk]++);
    } else if (step == 'b' || step == 'B') {
        heti_p_pattern_add(make, weight.stage, HET_ACTION_B, dual->backward[chunk]++);
    } else heti_p_pattern_add(make, weight.stage, HET_ACTION_F, dual->forward[chunk]++);
    if (step != 'p' && step != 'P') return;
    heti_p_dual_step(dual, chunk ? 'b' : 'B');
    for (int64_t k = 0; k < slices && make->items - at == 2 * slices; k++) { /* both are there: slice by slice */
        const heti_p_make_item forward = { dual->stage[chunk], HET_ACTION_F, 1 },
                               backward = { dual->stage[1 - chunk], HET_ACTION_B, 0 };
        make->item[at + 2 * k] = forward;
        make->item[at + 2 * k + 1] = backward;
    }
}

static void heti_p_dual_steps(heti_p_dual *dual, int64_t times, const char *steps) {
    for (int64_t i = 0; i < times; i++)
        for (const char *step = steps; *step != 0; step++) heti_p_dual_step(dual, *step);
}

/* The eight phases of DualPipeV for rank r of P: forwards down; forwards down and up; I, W and a
   forward up; the steady state, pairs, but for what the last rank's own forward has just made:
   there is nothing to overlap; backwards up and pairs; backwards up and down, split from the middle
   on (on odd ranks before the one up, on even ranks after it); W and backwards down; the W left
   over. It needs 2 P micro-batches; where there are fewer the pattern is filled up. */
static void heti_p_pattern_dualpipev(heti_p_make *make, int64_t p, int64_t r) {
    const int64_t first = make->play->plan->first_stage[p],
                  stages = make->play->plan->first_stage[p + 1] - first, behind = stages / 2 - 1 - r,
                  micro_batches = heti_p_max(make->play->counts[p], stages);
    heti_p_dual dual = { make, { first + r, first + stages - 1 - r }, { 0, 0 }, { 0, 0 }, 0, 0 };
    heti_p_dual_steps(&dual, 2 * behind, "f");
    heti_p_dual_steps(&dual, r + 1, "fF");
    heti_p_dual_steps(&dual, behind, "IwF");
    heti_p_dual_steps(&dual, behind == 0, "fBP");
    heti_p_dual_steps(&dual, micro_batches - stages + r + 1 - (behind == 0), "pP");
    heti_p_dual_steps(&dual, behind, "BP");
    heti_p_dual_steps(&dual, (r + 1) / 2, "Bb");
    heti_p_dual_steps(&dual, r % 2 == 0, "Bi");
    heti_p_dual_steps(&dual, (r + 1) / 2, "Ii");
    heti_p_dual_steps(&dual, behind, "wi");
    heti_p_dual_steps(&dual, dual.waiting - dual.weights, "w");
}

/* ---- blocks: the V schedules ----
   Every micro-batch repeats the same times, HETI_P_BLOCK_TIME after those of the one before. With d
   = down, u = up, rank r of P:
       F of chunk 0   d r               down the ranks
       F of chunk 1   f1 - u r          up again
       I of chunk 1   i1 + d r          down, the gradient
       I of chunk 0   i0 - u r          up
   each at least 1 after what it needs. A rank's actions never fall together if its four times
   differ modulo 6; the two times left over are for W. An activation is kept for about as long as
   its block: d + u = 6, 3, 2 keep p, p / 2, p / 3 micro-batches. */
/* Whether time + step r differs from every times[i] + steps[i] r modulo 6, on all ranks. */
static int heti_p_block_fits(const int64_t *times, const int64_t *steps, int count, int64_t time, int64_t step,
                             int64_t ranks) {
    for (int64_t r = 0; r < ranks && r < HETI_P_BLOCK_TIME; r++)
        for (int i = 0; i < count; i++)
            if ((time + step * r - times[i] - steps[i] * r) % HETI_P_BLOCK_TIME == 0) return 0;
    return 1;
}

/* The times of one rank, each as early as fits. With K slices backwards start at the last slice: K
   - 1 items later. */
static void heti_p_block_times(const heti_p_rule *rule, heti_p_make_lane *lane, int64_t ranks, int64_t r,
                               int64_t slices) {
    const int64_t way = (rule->down + rule->up) * (ranks - 1) + 1, late = HETI_P_BLOCK_TIME * (slices - 1);
    int64_t times[4], steps[4], ahead;
    steps[0] = steps[2] = rule->down;
    steps[1] = steps[3] = -rule->up;
    times[0] = 0;
    for (int i = 1; i < 4; i++) {
        const int64_t earliest = times[i - 1] + (i == 2 ? 1 : way);
        for (times[i] = earliest; times[i] < earliest + HETI_P_BLOCK_TIME; times[i]++)
            if (heti_p_block_fits(times, steps, i, times[i], steps[i], ranks)) break;
    }
    for (int i = 0; i < 4; i++) lane->block[i] = times[i] + steps[i] * r + (i >= 2 ? late : 0);
    /* chunk 1 must always find room for the forwards between its F and its I */
    ahead = lane->limit - (lane->block[2] - lane->block[1] + HETI_P_BLOCK_TIME - 1) / HETI_P_BLOCK_TIME;
    lane->ahead_limit = rule->ahead ? ahead : 0;
}

/* ---- setting up ---- */

/* One pipeline against its rule's placement; P is its number of ranks. */
static het_result heti_p_make_check_placement(const heti_p_make *make, int64_t p, int64_t ranks) {
    const het_plan *plan = make->play->plan;
    const int64_t first = plan->first_stage[p], stages = plan->first_stage[p + 1] - first,
                  mate = p % 2 == 0 ? p + 1 : p - 1;
    const het_stage *stage = plan->stage + first;
    const int32_t placement = make->rule->kind.placement;
    const int in_v = placement == HET_PLACE_V || placement == HET_PLACE_BOTH_V,
              in_twos = placement == HET_PLACE_BOTH || placement == HET_PLACE_BOTH_V;
    int64_t s = ranks;
    while (placement == HET_PLACE_ROUND && s < stages && stage[s].rank == stage[s - ranks].rank) s++;
    if (placement == HET_PLACE_ROUND && (s < stages || stages % ranks != 0))
        return heti_t_fail(make->error, HET_ERR_INVALID, "het_schedule_make: %s needs the same number of stages on "
                           "each rank, dealt out in turn (stages s and s + %d on one rank); pipeline %d has %d stages "
                           "on %d ranks", make->rule->kind.name, ranks, p, stages, ranks);
    for (s = 0; s < stages && in_v && stage[s].rank == stage[stages - 1 - s].rank; s++) {}
    if (in_v && (s < stages || stages != 2 * ranks))
        return heti_t_fail(make->error, HET_ERR_INVALID, "het_schedule_make: %s needs two stages a rank in V shape "
                           "(the first and the last, the second and the second last, ...); pipeline %d has %d stages "
                           "on %d ranks, stage %d on rank %d", make->rule->kind.name, p, stages, ranks,
                           heti_p_min(s, stages - 1), stage[heti_p_min(s, stages - 1)].rank);
    if (!in_twos) return HET_OK;
    if (mate < plan->pipelines && plan->first_stage[mate + 1] - plan->first_stage[mate] == stages) {
        const het_stage *other = plan->stage + plan->first_stage[mate];
        const int64_t half = in_v ? ranks : 0; /* a V is its own opposite: its halves are */
        for (s = 0; s < stages && stage[s].rank == other[(stages - 1 - s + half) % stages].rank; s++) {}
        if (s == stages) return HET_OK;
    }
    return heti_t_fail(make->error, HET_ERR_INVALID, "het_schedule_make: %s needs pipelines in twos, the second with "
        "the ranks of the first in opposite order; pipeline %d has no such partner", make->rule->kind.name, p);
}

/* Limits and patterns of a pipeline's lanes, one on each of so many ranks. */
static het_result heti_p_make_lanes(heti_p_make *make, int64_t p, int64_t ranks) {
    const heti_p_rule *rule = make->rule;
    const int64_t slices = make->play->plan->slices;
    const double limit = make->play->plan->memory_limit;
    int64_t r = 0;
    if (rule->kind.limited && limit != 0 && !(limit >= 1))
        return heti_t_fail(make->error, HET_ERR_INVALID, "het_schedule_make: memory_limit is %e; %s needs room for 1 "
                           "micro-batch in pipeline %d, or 0: no limit", limit, rule->kind.name, p);
    for (int64_t s = make->play->plan->first_stage[p]; s < make->play->plan->first_stage[p + 1]; s++) {
        heti_p_make_lane *lane = make->lane_of[s];
        if (lane->stage[0] != s) continue;
        lane->limit = INT64_MAX;
        if (rule->part > 0) lane->limit = ((ranks + rule->top) / rule->part - 1 + slices) * lane->stages;
        if (rule->kind.limited && limit != 0 && limit < HETI_T_CAST(double, make->play->counts[p]))
            lane->limit = HETI_T_CAST(int64_t, limit * HETI_T_CAST(double, lane->stages * slices) * (1 + 1e-12));
        lane->next_item = make->items;
        if (rule->order == HETI_P_BLOCK) heti_p_block_times(rule, lane, ranks, r, slices);
        if (rule->order == HETI_P_INTERLEAVED) heti_p_pattern_interleaved(make, p, lane->stages, r);
        if (rule->order == HETI_P_DUALPIPEV) heti_p_pattern_dualpipev(make, p, r);
        lane->end_item = make->items;
        r++;
    }
    return HET_OK;
}

/* A pattern has at most three actions for an item, and a W for each I of a rank. */
static void heti_p_make_cut(void *self, heti_t_arena *arena) {
    heti_p_make *make = HETI_T_CAST(heti_p_make *, self);
    const het_play *play = make->play;
    const int listed = make->rule->order == HETI_P_INTERLEAVED || make->rule->order == HETI_P_DUALPIPEV;
    int64_t items = 0, weights = 0;
    for (int64_t s = 0; s < play->plan->stages && listed; s++) {
        items += play->stage[s].items;
        weights = heti_p_max(weights, heti_p_max(play->counts[play->stage[s].pipeline],
                                                 play->stage[s].before + play->stage[s].after + 1));
    }
    make->lane = HETI_T_TAKE(arena, heti_p_make_lane, play->plan->stages);
    make->lane_of = HETI_T_TAKE(arena, heti_p_make_lane *, play->plan->stages);
    make->item = HETI_T_CAST(heti_p_make_item *, heti_t_take(arena, items, 3 * sizeof *make->item));
    make->waiting = HETI_T_TAKE(arena, heti_p_dual_weight, 2 * weights);
}

/* het_rule.start */
static het_result heti_p_make_start(void *user, const het_play *play, het_error *error) {
    heti_p_make *make = HETI_T_CAST(heti_p_make *, user);
    heti_p_make_lane *lane = NULL;
    make->play = play;
    make->error = error;
    HETI_T_TRY(heti_p_rule_check(play->plan->schedule, "het_schedule_make", error));
    make->rule = heti_p_rule_find(play->plan->schedule);
    HETI_T_TRY(heti_t_arrays(&make->arena, 0, heti_p_make_cut, make, &make->allocator, "het_schedule_make", error));
    for (int64_t i = 0; i < play->plan->stages; i++) {
        const int64_t *s = &play->rank_stage[i];
        const het_stage *at = &play->plan->stage[*s], *before = &play->plan->stage[i > 0 ? s[-1] : 0];
        if (i == 0 || at->rank != before->rank || at->pipeline != before->pipeline)
            lane = &make->lane[i], lane->stage = s;
        lane->stages++;
        make->lane_of[*s] = lane;
    }
    for (int64_t p = 0; p < play->plan->pipelines; p++) {
        int64_t ranks = 0;
        for (int64_t s = play->plan->first_stage[p]; s < play->plan->first_stage[p + 1]; s++)
            ranks += make->lane_of[s]->stage[0] == s;
        HETI_T_TRY(heti_p_make_check_placement(make, p, ranks));
        HETI_T_TRY(heti_p_make_lanes(make, p, ranks));
    }
    return HET_OK;
}

/* ---- several updates ---- */

/* The update that an action's gradient joins; -1: none, or its stage makes another number than
   `like` and shares no units with it. */
static int64_t heti_p_update_of(const het_plan *plan, const het_schedule *s, const het_action *a,
                                const het_stage *like) {
    const int64_t stage = plan->first_stage[a->pipeline] + a->stage;
    const het_stage *own = &plan->stage[stage];
    if (a->kind > HET_ACTION_W || !het_plan_backward(plan, stage) ||
        (heti_p_gear(plan, own) != heti_p_gear(plan, like) && !heti_p_stages_meet(own, like))) return -1;
    return heti_p_joins(plan, s->micro_batches, stage, a->micro_batch);
}

/* The last F before an action of the same stage and micro-batch. */
static const het_action *heti_p_forward_before(const het_action *a) {
    const het_action *f = a - 1;
    while (f->kind != HET_ACTION_F || f->stage != a->stage || f->micro_batch != a->micro_batch ||
           f->pipeline != a->pipeline) f--;
    return f;
}

/* Versions of a stage. left: [plan->updates] of each, gradients to come on its rank; those before
   the first that is not whole make the newest version. */
static het_result heti_p_versions_of(const het_plan *plan, het_schedule *s, const het_stage *of, int64_t *left,
                                     het_error *error) {
    const int64_t rank = of->rank, gear = heti_p_gear(plan, of);
    const heti_p_rule *rule = heti_p_rule_find(plan->schedule);
    const int64_t late = plan->staleness > 0 ? plan->staleness : rule->late == -3 ? plan->pipelines - 1 : rule->late;
    int64_t newest = 0;
    memset(left, 0, HETI_T_CAST(size_t, plan->updates) * sizeof *left);
    for (int64_t i = s->start[rank]; i < s->start[rank + 1]; i++) {
        const int64_t update = heti_p_update_of(plan, s, &s->action[i], of);
        if (update >= 0 && s->action[i].kind != HET_ACTION_F) left[update]++;
    }
    for (int64_t i = s->start[rank]; i < s->start[rank + 1]; i++) {
        het_action *a = &s->action[i];
        const int64_t update = heti_p_update_of(plan, s, a, of);
        const int own = a->kind != HET_ACTION_F || &plan->stage[plan->first_stage[a->pipeline] + a->stage] == of;
        while (newest < gear && left[newest] == 0) newest++;
        if (update < 0 || !own) continue;
        if (a->kind == HET_ACTION_F && a->slice == 0) {
            const int64_t wanted =
                late == -1 ? heti_p_min(newest, update) : heti_p_max(update - heti_p_max(late, 0), 0);
            if (wanted > newest && late >= 0)
                return heti_t_fail(error, HET_ERR_INVALID, "het_schedule_make: %s: micro-batch %i joins update %d of "
                                   "%d, %d late, and so would use version %d before rank %d, stage %i, has made it; "
                                   "fewer updates or more staleness", plan->schedule, a->micro_batch, update, gear,
                                   late, wanted, rank, a->stage);
            a->version = HETI_T_CAST(int32_t, wanted);
        } else if (a->kind == HET_ACTION_F) {
            a->version = heti_p_forward_before(a)->version; /* as its micro-batch's first slice */
        } else {
            a->version = HETI_T_CAST(int32_t, update);
            left[update]--;
        }
    }
    return HET_OK;
}

static het_result heti_p_versions(const het_plan *plan, het_schedule *s, const het_allocator *allocator,
                                  het_error *error) {
    const heti_p_rule *rule = heti_p_rule_find(plan->schedule);
    const size_t size = HETI_T_CAST(size_t, heti_p_max(plan->updates, 1)) * sizeof(int64_t);
    het_result result = HET_OK;
    het_error found;
    void *left;
    if (rule->late != 0 && plan->updates < 2)
        return heti_t_fail(error, HET_ERR_INVALID, "het_schedule_make: %s updates weights several times a step; the "
                           "plan's `updates` is %d", plan->schedule, heti_p_max(plan->updates, 1));
    if (plan->updates < 2) return HET_OK;
    for (int64_t i = 0; i < plan->stages && rule->late == -3; i++)
        if (plan->updates % plan->pipelines != 0 || plan->stage[i].updates % plan->pipelines != 0)
            return heti_t_fail(error, HET_ERR_INVALID, "het_schedule_make: %s: %d pipelines cannot take turns in %d "
                               "updates; a multiple of the pipelines can be divided", plan->schedule, plan->pipelines,
                               plan->updates % plan->pipelines != 0 ? plan->updates :
                               HETI_T_CAST(int64_t, plan->stage[i].updates));
    HETI_T_TRY(heti_t_block(allocator, size, "het_schedule_make", &left, error));
    for (int64_t i = 0; i < plan->stages && result == HET_OK; i++)
        result = heti_p_versions_of(plan, s, &plan->stage[i], HETI_T_CAST(int64_t *, left), error);
    allocator->free(allocator->user, left, size);
    HETI_T_TRY(result);
    /* a rank's order says what version it has made, not whether other ranks then have their part of
       it, who may wait for this one */
    result = het_schedule_check(plan, NULL, s, NULL, &found);
    if (result == HET_OK) return HET_OK;
    return heti_t_fail(error, result, "het_schedule_make: %s cannot update the weights of this plan several times a "
                       "step: %s", plan->schedule, found.text);
}

HETRAIN_API het_result het_schedule_make(const het_plan *plan, const int64_t *counts, const het_allocator *allocator,
                                         het_schedule **schedule, het_error *error) {
    heti_p_make make;
    const het_rule rule = { "het_schedule_make", &make, heti_p_make_start, heti_p_make_next };
    het_result result;
    if (schedule != NULL) *schedule = NULL;
    if (plan == NULL || counts == NULL || schedule == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_schedule_make: plan, counts and schedule must not be NULL");
    memset(&make, 0, sizeof make);
    HETI_T_TRY(heti_t_choose(allocator, &make.allocator, error, "het_schedule_make"));
    result = strcmp(plan->schedule, "timed") == 0 ? het_schedule_timed(plan, counts, NULL, allocator, schedule, error) :
        het_schedule_play(plan, counts, &rule, &make.allocator, schedule, error);
    heti_t_arrays_free(&make.arena, &make.allocator);
    if (result == HET_OK) result = heti_p_versions(plan, *schedule, &make.allocator, error);
    if (result == HET_OK) return HET_OK;
    het_schedule_free(*schedule);
    *schedule = NULL;
    return result;
}

HETRAIN_API int64_t het_schedule_late(const het_plan *plan, const het_schedule *schedule, double *mean) {
    int64_t most = 0, late = 0, gradients = 0;
    for (int64_t i = 0; i < schedule->start[schedule->ranks]; i++) {
        const het_action *a = &schedule->action[i];
        if (a->kind < HET_ACTION_B || a->kind > HET_ACTION_W) continue;
        const het_stage *stage = &plan->stage[plan->first_stage[a->pipeline] + a->stage];
        const int64_t all = stage->unit_end - stage->unit_begin, head = stage->unit_end == plan->units,
                      units = a->kind == HET_ACTION_B ? all : a->kind == HET_ACTION_I ? head : all - head,
                      by = units > 0 ? a->version - heti_p_forward_before(a)->version : 0;
        most = heti_p_max(most, by);
        late += by * units;
        gradients += units;
    }
    *mean = HETI_T_CAST(double, late) / HETI_T_CAST(double, heti_p_max(gradients, 1));
    return most;
}

/* =================================================================================================
   >>plans  Plans as text: JSON, shorthands, Megatron's layout strings.
   Text is walked twice by the same function: once to count pipelines, stages and slices, once to
   store them.
   Units are cut by number: of U units in S stages, each stage gets U / S and the first U mod S
   stages one more; embed and head count as a unit. Sharing out by cost is a planner's business.
   ============================================================================================== */

/* ---- reading ---- */

#define HETI_P_PLANS_SLICES 65536        /* most slices */
#define HETI_P_PLANS_COUNT INT64_C(0x7fffffff) /* most units, ranks, micro-batches: actions hold int32 */
#define HETI_P_PLANS_LEAST 1e-30         /* shares are 0 or in [1e-30, 1e30]: het_plan_check */
#define HETI_P_PLANS_MOST 1e30

typedef struct heti_p_plans {
    het_plan_desc desc;    /* with its defaults */
    const char *text;
    size_t length, at;     /* of shorthands */
    het_error *error;
    het_json json;
    het_plan count;        /* what was met so far */
    het_plan *plan;        /* NULL: only counted */
} heti_p_plans;

/* Room for what was counted, with every share 1. Counting starts again. */
static het_result heti_p_plans_room(heti_p_plans *r) {
    HETI_T_TRY(het_plan_new(&r->count, &r->desc.allocator, "het_plan_read", &r->plan, r->error));
    for (int64_t i = 0; i < r->count.pipelines; i++) r->plan->share[i] = 1.0;
    for (int64_t i = 0; i < r->count.ranks; i++) r->plan->state_share[i] = 1.0;
    for (int64_t i = 0; i < r->count.slices; i++) r->plan->slice_share[i] = 1.0;
    r->count.pipelines = r->count.stages = r->count.members = 0;
    return HET_OK;
}

/* ---- JSON: the keys are those beside het_plan_read; unknown and repeated ones are errors ---- */

static het_result heti_p_plans_syntax(heti_p_plans *r) {
    return heti_t_json_result(&r->json, "het_plan_read", r->error);
}

/* Reads the value at the cursor, into `to` where it is one. */
typedef het_result heti_p_plans_value(heti_p_plans *r, void *to);

/* A key of an object; each: of an array, whose values are read so one by one. NULL ends a list. */
typedef struct heti_p_plans_key { const char *name; int each; heti_p_plans_value *read; void *to; } heti_p_plans_key;

static het_result heti_p_plans_each(heti_p_plans *r, heti_p_plans_value *read, void *to) {
    het_json_enter(&r->json, HET_JSON_ARRAY);
    while (het_json_next(&r->json, NULL, 0, NULL)) HETI_T_TRY(read(r, to));
    return heti_p_plans_syntax(r);
}

/* seen: bit i: there was key i. */
static het_result heti_p_plans_object(heti_p_plans *r, const heti_p_plans_key *keys, unsigned *seen) {
    char name[32];
    size_t length = 0;
    *seen = 0;
    het_json_enter(&r->json, HET_JSON_OBJECT);
    while (het_json_next(&r->json, name, sizeof name, &length)) {
        int i = 0;
        while (keys[i].name != NULL && !heti_t_is(name, length, keys[i].name)) i++;
        if (keys[i].name == NULL || (*seen >> i & 1u) != 0)
            return heti_t_fail(r->error, HET_ERR_FORMAT, "het_plan_read: byte %z: %s key '%p'", r->json.at,
                               keys[i].name == NULL ? "unknown" : "repeated", name, strlen(name));
        *seen |= 1u << i;
        HETI_T_TRY(keys[i].each ? heti_p_plans_each(r, keys[i].read, keys[i].to) : keys[i].read(r, keys[i].to));
    }
    return heti_p_plans_syntax(r);
}

static het_result heti_p_plans_integer(heti_p_plans *r, void *to) {
    het_json_integer(&r->json, HETI_T_CAST(int64_t *, to));
    return heti_p_plans_syntax(r);
}

/* Shares or limits: 0 or in [1e-30, 1e30]; `least` 0 allows 0. */
typedef struct heti_p_plans_reals {
    const char *what;
    double least, *to;                /* to: [most], where the first value goes; NULL: only counted */
    int64_t most, count;
} heti_p_plans_reals;

static het_result heti_p_plans_real(heti_p_plans *r, void *to) {
    heti_p_plans_reals *list = HETI_T_CAST(heti_p_plans_reals *, to);
    double value = 0.0;
    if (!het_json_real(&r->json, &value) && strcmp(r->json.rule, "a number beyond double") == 0)
        return HETI_P_BAD(r, "het_plan_read: %s %d is not finite", list->what, list->count);
    HETI_T_TRY(heti_p_plans_syntax(r));
    if (value <= 0.0 && value >= 0.0 && list->least <= 0.0) value = 0.0; /* not -0 */
    else if (!(value >= HETI_P_PLANS_LEAST && value <= HETI_P_PLANS_MOST))
        return HETI_P_BAD(r, "het_plan_read: %s %d is %e, not %sfrom 1e-30 to 1e30", list->what, list->count, value,
                          list->least <= 0.0 ? "0 or " : "");
    if (list->to != NULL && list->count < list->most) list->to[list->count] = value;
    list->count++; /* who reads the list says how many there may be */
    return HET_OK;
}

static het_result heti_p_plans_units(heti_p_plans *r, void *to) {
    het_stage *stage = HETI_T_CAST(het_stage *, to);
    int64_t value[3] = { 0, 0, 0 };
    int n = 0;
    het_json_enter(&r->json, HET_JSON_ARRAY);
    for (; het_json_next(&r->json, NULL, 0, NULL); n++) {
        het_json_integer(&r->json, &value[n]);
        if (n == 2) het_json_fail(&r->json, "units are two integers: [begin, end)"); /* ends the array */
    }
    if (n != 2) het_json_fail(&r->json, "units are two integers: [begin, end)");
    stage->unit_begin = value[0];
    stage->unit_end = value[1];
    return heti_p_plans_syntax(r);
}

/* What the description says about a stage's recomputation. */
static int32_t heti_p_plans_recompute(const heti_p_plans *r, const het_stage *stage) {
    const int last = stage->unit_end == r->desc.units;
    return HETI_T_CAST(int32_t, last && r->desc.recompute == HET_RECOMPUTE_UNIT ? HET_RECOMPUTE_NONE
                                                                                : r->desc.recompute);
}

/* A slice that keeps all. */
static het_result heti_p_plans_keep(heti_p_plans *r, void *to) {
    int64_t slice = 0;
    het_json_integer(&r->json, &slice);
    if (slice < 0 || slice > 63)
        return HETI_P_BAD(r, "het_plan_read: \"keep\" has slice %d, not one of 0 to 63", slice);
    *HETI_T_CAST(uint64_t *, to) |= UINT64_C(1) << slice;
    return HET_OK;
}

/* A string of less than `capacity` bytes, none of which is 0. */
static het_result heti_p_plans_word(heti_p_plans *r, const char *what, char *to, size_t capacity) {
    size_t length = 0;
    het_json_string(&r->json, to, capacity, &length);
    HETI_T_TRY(heti_p_plans_syntax(r));
    return strlen(to) == length ? HET_OK : HETI_P_BAD(r, "het_plan_read: %s of %z bytes, not \"%s\"", what, length, to);
}

/* true, false, a number of units or "stage". */
static het_result heti_p_plans_recomputes(heti_p_plans *r, void *to) {
    het_stage *stage = HETI_T_CAST(het_stage *, to);
    char text[8] = "";
    int64_t units = 0;
    int truth = 0;
    const het_json_kind kind = het_json_peek(&r->json);
    if (kind == HET_JSON_NUMBER) truth = het_json_integer(&r->json, &units);
    else if (kind != HET_JSON_STRING) het_json_boolean(&r->json, &truth);
    else HETI_T_TRY(heti_p_plans_word(r, "\"recompute\"", text, sizeof text));
    if (kind == HET_JSON_STRING ? strcmp(text, "stage") != 0
                                : kind == HET_JSON_NUMBER && (units < 1 || units > INT32_MAX))
        het_json_fail(&r->json, "recompute is true, false, a number of units or \"stage\"");
    stage->recompute = kind == HET_JSON_STRING ? HET_RECOMPUTE_STAGE : truth ? HET_RECOMPUTE_UNIT : HET_RECOMPUTE_NONE;
    stage->recompute_units = HETI_T_CAST(int32_t, units);
    return heti_p_plans_syntax(r);
}

/* first: of its pipeline. */
static het_result heti_p_plans_stage(heti_p_plans *r, void *first) {
    const int64_t pipeline = r->count.pipelines, number = r->count.stages - *HETI_T_CAST(const int64_t *, first);
    int64_t store = r->desc.store, updates = 0;
    het_stage stage;
    unsigned seen;
    const heti_p_plans_key keys[] = { { "rank", 0, heti_p_plans_integer, &stage.rank },
                                      { "units", 0, heti_p_plans_units, &stage },
                                      { "recompute", 0, heti_p_plans_recomputes, &stage },
                                      { "store", 0, heti_p_plans_integer, &store },
                                      { "updates", 0, heti_p_plans_integer, &updates },
                                      { "keep", 1, heti_p_plans_keep, &stage.keep }, { NULL, 0, NULL, NULL } };
    memset(&stage, 0, sizeof stage);
    HETI_T_TRY(heti_p_plans_object(r, keys, &seen));
    if ((seen & 3u) != 3u)
        return HETI_P_BAD(r, "het_plan_read: pipeline %d, stage %d has no \"%s\"", pipeline, number,
                          keys[(seen & 1u) != 0].name);
    if (store < 0 || store > INT32_MAX || updates < 0 || updates > INT32_MAX)
        return HETI_P_BAD(r, "het_plan_read: pipeline %d, stage %d: \"store\" is %d, \"updates\" %d", pipeline,
                          number, store, updates);
    stage.pipeline = pipeline;
    stage.store = HETI_T_CAST(int32_t, store);
    stage.updates = HETI_T_CAST(int32_t, updates);
    if ((seen & 4u) == 0) stage.recompute = heti_p_plans_recompute(r, &stage);
    if (r->plan != NULL) r->plan->stage[r->count.stages] = stage;
    r->count.stages++;
    return HET_OK;
}

static het_result heti_p_plans_pipeline(heti_p_plans *r, void *to) {
    const int64_t pipeline = r->count.pipelines;
    int64_t first = r->count.stages;
    heti_p_plans_reals share = { "the share of pipeline", 0.0, r->plan != NULL ? r->plan->share : NULL, pipeline + 1,
                                 pipeline };
    const heti_p_plans_key keys[] = { { "stages", 1, heti_p_plans_stage, &first },
                                      { "share", 0, heti_p_plans_real, &share }, { NULL, 0, NULL, NULL } };
    unsigned seen;
    (void)to;
    HETI_T_TRY(heti_p_plans_object(r, keys, &seen));
    if (r->count.stages == first) return HETI_P_BAD(r, "het_plan_read: pipeline %d has no stages", pipeline);
    if (r->plan != NULL) r->plan->first_stage[pipeline + 1] = r->count.stages;
    r->count.pipelines++;
    return HET_OK;
}

/* How many, or the share of each. */
static het_result heti_p_plans_slices(heti_p_plans *r, void *to) {
    heti_p_plans_reals list = { "slice", HETI_P_PLANS_LEAST, r->plan != NULL ? r->plan->slice_share : NULL,
                                HETI_P_PLANS_SLICES, 0 };
    HETI_T_TRY(het_json_peek(&r->json) == HET_JSON_ARRAY ? heti_p_plans_each(r, heti_p_plans_real, &list) :
               heti_p_plans_integer(r, &list.count));
    if (list.count < 1 || list.count > HETI_P_PLANS_SLICES)
        return HETI_P_BAD(r, "het_plan_read: %d slices, not 1 to %i", list.count, HETI_P_PLANS_SLICES);
    *HETI_T_CAST(int64_t *, to) = list.count;
    return HET_OK;
}

static het_result heti_p_plans_state(heti_p_plans *r, void *to) {
    heti_p_plans_reals list = { "the state share of rank", 0.0, r->plan != NULL ? r->plan->state_share : NULL,
                                *HETI_T_CAST(const int64_t *, to), 0 };
    HETI_T_TRY(heti_p_plans_each(r, heti_p_plans_real, &list));
    if (list.count != list.most)
        return HETI_P_BAD(r, "het_plan_read: %d state shares for %d ranks", list.count, list.most);
    return HET_OK;
}

/* Near sets, one a rank, or the ranks that are keepers. */
static het_result heti_p_plans_ranks(heti_p_plans *r, void *is_near) {
    const int near = *HETI_T_CAST(const int *, is_near);
    int64_t value, count;
    het_json_enter(&r->json, HET_JSON_ARRAY);
    for (count = 0; het_json_next(&r->json, NULL, 0, NULL); count++) {
        HETI_T_TRY(heti_p_plans_integer(r, &value));
        if (value < 0 || value >= r->count.ranks || count == r->count.ranks)
            return HETI_P_BAD(r, "het_plan_read: %s: number %d is %d; there are %d ranks", near ? "near" : "keepers",
                              count, value, r->count.ranks);
        if (r->plan != NULL && near) r->plan->near[count] = value;
        if (r->plan != NULL && !near) r->plan->keeper[value] = 1;
    }
    HETI_T_TRY(heti_p_plans_syntax(r));
    if (near && count != r->count.ranks)
        return HETI_P_BAD(r, "het_plan_read: near: %d sets for %d ranks", count, r->count.ranks);
    return HET_OK;
}

static const char *const heti_p_shards[] = { "state", "gradients", "weights" }; /* HET_SHARD_STATE on */

static het_result heti_p_plans_shard(heti_p_plans *r, void *to) {
    char name[16];
    int i;
    HETI_T_TRY(heti_p_plans_word(r, "\"shard\"", name, sizeof name));
    for (i = 0; i < 3 && strcmp(name, heti_p_shards[i]) != 0; i++) {}
    if (i == 3)
        return HETI_P_BAD(r, "het_plan_read: \"shard\" is \"%s\", not \"state\", \"gradients\" or \"weights\"", name);
    *HETI_T_CAST(het_shard *, to) = HETI_T_CAST(het_shard, HET_SHARD_STATE + i);
    return HET_OK;
}

static het_result heti_p_plans_name(heti_p_plans *r, void *to) {
    char name[sizeof r->count.schedule];
    HETI_T_TRY(heti_p_plans_word(r, "a schedule's name", name, sizeof name));
    HETI_T_TRY(heti_p_rule_check(name, "het_plan_read", r->error));
    memcpy(to, name, sizeof name);
    return HET_OK;
}

static het_result heti_p_plans_step(heti_p_plans *r, void *to) {
    het_plan_step *step = HETI_T_CAST(het_plan_step *, to);
    const heti_p_plans_key keys[] = { { "granules", 0, heti_p_plans_integer, &step->granules },
                                      { "sequences", 0, heti_p_plans_integer, &step->sequences },
                                      { "length", 0, heti_p_plans_integer, &step->length },
                                      { "micro_batch", 0, heti_p_plans_integer, &step->micro_batch },
                                      { NULL, 0, NULL, NULL } };
    unsigned seen;
    memset(step, 0, sizeof *step);
    HETI_T_TRY(heti_p_plans_object(r, keys, &seen));
    for (const heti_p_plans_key *key = keys; key->name != NULL; key++) {
        const int64_t value = *HETI_T_CAST(const int64_t *, key->to);
        if (value < 1 || value > HETI_P_PLANS_COUNT)
            return HETI_P_BAD(r, "het_plan_read: step: \"%s\" is %d, not 1 to %d", key->name, value,
                              HETI_P_PLANS_COUNT);
    }
    if (step->micro_batch > step->granules)
        return HETI_P_BAD(r, "het_plan_read: step: a micro-batch of %d granules, a step of %d", step->micro_batch,
                          step->granules);
    return HET_OK;
}

static het_result heti_p_plans_split(heti_p_plans *r, void *to) {
    int *columns = HETI_T_CAST(int *, to);
    char name[32];
    HETI_T_TRY(heti_p_plans_word(r, "\"split\"", name, sizeof name));
    *columns = strcmp(name, "columns") == 0;
    if (*columns || strcmp(name, "rows") == 0) return HET_OK;
    return HETI_P_BAD(r, "het_plan_read: \"split\" is \"%s\", not \"rows\" or \"columns\"", name);
}

/* A team's key/value heads by its members' shares, one at least: each has those up to its end. */
static het_result heti_p_divide_heads(const heti_p_plans *r, het_team_member *team, int64_t count) {
    const int64_t heads = r->desc.heads;
    double all = 1e-300, before = 0; /* that all are 0 het_plan_check says */
    int64_t given = 0;
    if (count > heads) return HETI_P_BAD(r, "het_plan_read: %d ranks for %d key/value heads", count, heads);
    for (int64_t m = 0; m < count; m++) all += team[m].share;
    for (int64_t m = 0; m < count; m++, given += team[m - 1].heads) {
        before += team[m].share;
        const int64_t end = HETI_T_CAST(int64_t, before / all * HETI_T_CAST(double, heads) + 0.5);
        team[m].heads = heti_p_max(1, (m + 1 == count ? heads : heti_p_min(end, heads - (count - m - 1))) - given);
    }
    return HET_OK;
}

/* Ranks of a team, or the heads of its members and which of its groups these are in. */
typedef struct heti_p_plans_members {
    int64_t value[HETRAIN_MAX_TEAM], group[HETRAIN_MAX_TEAM];
    int64_t count, groups;
} heti_p_plans_members;

static het_result heti_p_plans_member(heti_p_plans *r, void *to) {
    heti_p_plans_members *list = HETI_T_CAST(heti_p_plans_members *, to);
    if (list->count == HETRAIN_MAX_TEAM)
        return heti_t_fail(r->error, HET_ERR_LIMIT, "het_plan_read: a team of more than %i ranks", HETRAIN_MAX_TEAM);
    list->group[list->count] = list->groups;
    return heti_p_plans_integer(r, &list->value[list->count++]);
}

static het_result heti_p_plans_group(heti_p_plans *r, void *to) {
    HETI_T_TRY(heti_p_plans_each(r, heti_p_plans_member, to));
    HETI_T_CAST(heti_p_plans_members *, to)->groups++;
    return HET_OK;
}

static het_result heti_p_plans_team(heti_p_plans *r, void *to) {
    heti_p_plans_members ranks, heads;
    double share[HETRAIN_MAX_TEAM];
    heti_p_plans_reals shares = { "the share of member", 0.0, share, HETRAIN_MAX_TEAM, 0 };
    int columns = 0;
    unsigned seen;
    const heti_p_plans_key keys[] = { { "ranks", 1, heti_p_plans_member, &ranks },
                                      { "shares", 1, heti_p_plans_real, &shares },
                                      { "heads", 1, heti_p_plans_group, &heads },
                                      { "split", 0, heti_p_plans_split, &columns }, { NULL, 0, NULL, NULL } };
    (void)to;
    ranks.count = ranks.groups = heads.count = heads.groups = 0;
    HETI_T_TRY(heti_p_plans_object(r, keys, &seen));
    if (ranks.count == 0 || ((seen & 2u) != 0 && shares.count != ranks.count) ||
        ((seen & 4u) != 0 && heads.count != ranks.count))
        return HETI_P_BAD(r, "het_plan_read: a team of %d ranks has %d shares and divides heads among %d", ranks.count,
                          shares.count, heads.count);
    for (int64_t i = 0; i < ranks.count && r->plan != NULL; i++) {
        het_team_member *m = &r->plan->member[r->count.members + i];
        m->leader = ranks.value[0];
        m->rank = ranks.value[i];
        m->share = shares.count > 0 ? share[i] : 1.0;
        m->group = heads.count > 0 ? heads.group[i] : columns ? 0 : i;
        m->heads = heads.count > 0 ? heads.value[i] : 0;
        m->columns = columns;
    }
    if (r->plan != NULL && columns && heads.count == 0)
        HETI_T_TRY(heti_p_divide_heads(r, &r->plan->member[r->count.members], ranks.count));
    r->count.members += ranks.count;
    return HET_OK;
}

static het_result heti_p_plans_json(heti_p_plans *r) {
    heti_p_plans_reals limit = { "memory limit", 0.0, &r->count.memory_limit, 1, 0 };
    int near = 1, keepers = 0;
    const heti_p_plans_key keys[] = { { "pipelines", 1, heti_p_plans_pipeline, NULL },
                                      { "state_shares", 0, heti_p_plans_state, &r->count.ranks },
                                      { "slices", 0, heti_p_plans_slices, &r->count.slices },
                                      { "schedule", 0, heti_p_plans_name, r->count.schedule },
                                      { "memory_limit", 0, heti_p_plans_real, &limit },
                                      { "step", 0, heti_p_plans_step, &r->count.step },
                                      { "teams", 1, heti_p_plans_team, NULL },
                                      { "near", 0, heti_p_plans_ranks, &near },
                                      { "keepers", 0, heti_p_plans_ranks, &keepers },
                                      { "shard", 0, heti_p_plans_shard, &r->count.shard },
                                      /* het_plan_check knows the ranges of these */
                                      { "updates", 0, heti_p_plans_integer, &r->count.updates },
                                      { "staleness", 0, heti_p_plans_integer, &r->count.staleness },
                                      { "slice_tokens", 0, heti_p_plans_integer, &r->count.slice_tokens },
                                      { NULL, 0, NULL, NULL } };
    unsigned seen;
    r->json = het_json_start(r->text, r->length);
    HETI_T_TRY(heti_p_plans_object(r, keys, &seen));
    het_json_end(&r->json);
    HETI_T_TRY(heti_p_plans_syntax(r));
    return r->count.pipelines > 0 ? HET_OK : HETI_P_BAD(r, "het_plan_read: no pipelines");
}

/* ---- shorthands ---- */

typedef enum heti_p_cuts { HETI_P_CUT_EVEN = 0, HETI_P_CUT_RANGES, HETI_P_CUT_LAYOUT } heti_p_cuts;

typedef struct heti_p_shorthand {
    int64_t data, pipe;    /* D and P; 0: what the ranks leave */
    int64_t each, copies;  /* stages a rank; pipelines over the same ranks */
    int64_t stages, unit;  /* closed so far, and the next unit */
    heti_p_cuts cut;
    int32_t place;         /* het_placement */
    int64_t team;          /* ranks in place of each */
    int32_t by_heads, by_columns;
    double share[HETRAIN_MAX_TEAM];
} heti_p_shorthand;

static het_result heti_p_short_fail(const heti_p_plans *r, size_t at, const char *what) {
    return heti_t_fail(r->error, HET_ERR_FORMAT, "het_plan_read: byte %z: %s at '%p'", at, what, r->text + at,
                       r->length - at);
}

static char heti_p_short_byte(const heti_p_plans *r) {
    return HETI_T_CAST(char, r->at < r->length ? r->text[r->at] : 0);
}

/* Digits at *at before `end`; -1: none there. More than fits reads as 2^31. */
static int64_t heti_p_number(const char *text, size_t *at, size_t end) {
    int64_t value = -1;
    for (; *at < end && text[*at] >= '0' && text[*at] <= '9'; ++*at)
        value = heti_p_min(heti_p_max(value, 0) * 10 + (text[*at] - '0'), HETI_P_PLANS_COUNT + 1);
    return value;
}

static int64_t heti_p_short_number(heti_p_plans *r) { return heti_p_number(r->text, &r->at, r->length); }

static int heti_p_short_word(heti_p_plans *r, const char *word) {
    const size_t length = strlen(word);
    if (r->length - r->at < length || memcmp(r->text + r->at, word, length) != 0) return 0;
    r->at += length;
    return 1;
}

/* Ends the stage [begin, unit) of the first pipeline. */
static het_result heti_p_short_close(heti_p_plans *r, heti_p_shorthand *s, int64_t begin) {
    if (begin == s->unit) return HETI_P_BAD(r, "het_plan_read: pipeline 0, stage %d is empty", s->stages);
    if (r->plan != NULL) {
        r->plan->stage[s->stages].unit_begin = begin;
        r->plan->stage[s->stages].unit_end = s->unit;
    }
    s->stages++;
    return HET_OK;
}

/* "0-5|6-8|9": inclusive ranges. */
static het_result heti_p_short_ranges(heti_p_plans *r, heti_p_shorthand *s) {
    do {
        const size_t at = r->at;
        int64_t begin = heti_p_short_number(r), last = begin;
        if (begin >= 0 && heti_p_short_word(r, "-")) last = heti_p_short_number(r);
        if (last < 0 || (r->at < r->length && heti_p_short_byte(r) != '|'))
            return heti_p_short_fail(r, at, "no range of units such as 0-5");
        if (last < begin || last >= r->desc.units)
            return HETI_P_BAD(r, "het_plan_read: stage %d: units %d-%d of a chain of %d", s->stages, begin, last,
                              r->desc.units);
        s->unit = last + 1;
        HETI_T_TRY(heti_p_short_close(r, s, begin));
    } while (heti_p_short_word(r, "|"));
    return HET_OK;
}

/* Letters of a layout string, `times` of them: E the embedding, t a layer (two units), L the head,
   | the end of a stage. */
static het_result heti_p_short_letter(heti_p_plans *r, heti_p_shorthand *s, char letter, int64_t times,
                                      int64_t *begin) {
    const int64_t last = r->desc.units - 1;
    if (letter == '|') {
        HETI_T_TRY(heti_p_short_close(r, s, *begin));
        *begin = s->unit;
        return times > 1 ? heti_p_short_close(r, s, *begin) : HET_OK; /* between two bars nothing is held */
    }
    if (letter == 'E' && (s->unit != 0 || times != 1))
        return HETI_P_BAD(r, "het_plan_read: layout: E must come first, and once");
    if (letter == 't' && s->unit == 0) return HETI_P_BAD(r, "het_plan_read: layout: E must come before the first t");
    if (letter == 't' && s->unit + 2 * times > last)
        return HETI_P_BAD(r, "het_plan_read: layout: more than %d layers, the model has no more", (last - 1) / 2);
    if (letter == 'L' && (s->unit != last || times != 1))
        return HETI_P_BAD(r, "het_plan_read: layout: L must come once, after all %d layers; here after %d",
                          (last - 1) / 2, heti_p_max(s->unit - 1, 0) / 2);
    s->unit += letter == 't' ? 2 * times : 1;
    return HET_OK;
}

static void heti_p_short_blanks(heti_p_plans *r) {
    while (r->at < r->length && strchr(", \t\r\n", r->text[r->at]) != NULL && r->text[r->at] != 0) r->at++;
}

/* The n of "*n" at the cursor; 0 without one. */
static het_result heti_p_short_times(heti_p_plans *r, int64_t *times) {
    heti_p_short_blanks(r);
    const size_t at = r->at;
    *times = 0;
    if (!heti_p_short_word(r, "*")) return HET_OK;
    heti_p_short_blanks(r);
    *times = heti_p_short_number(r);
    if (*times < 0) return heti_p_short_fail(r, at, "no number behind '*'");
    if (*times < 1 || *times > r->desc.units)
        return HETI_P_BAD(r, "het_plan_read: layout: byte %z: *%d, not 1 to %d", at, *times, r->desc.units);
    heti_p_short_blanks(r);
    return HET_OK;
}

/* Letters up to `end`, without parentheses. */
static het_result heti_p_short_letters(heti_p_plans *r, heti_p_shorthand *s, size_t end, int64_t *begin) {
    int64_t times;
    heti_p_short_blanks(r);
    while (r->at < end) {
        const char letter = heti_p_short_byte(r);
        if (letter == 'm')
            return heti_t_fail(r->error, HET_ERR_UNSUPPORTED, "het_plan_read: byte %z: layout: m (multi-token "
                               "prediction) is not supported", r->at);
        if (letter == 0 || strchr("EtL|", letter) == NULL)
            return heti_p_short_fail(r, r->at, "no letter of a layout (E t L | (..)*n)");
        r->at++;
        HETI_T_TRY(heti_p_short_times(r, &times));
        HETI_T_TRY(heti_p_short_letter(r, s, letter, heti_p_max(times, 1), begin));
    }
    return HET_OK;
}

/* Megatron-LM's --pipeline-model-parallel-layout. Groups do not nest there either. */
static het_result heti_p_short_layout(heti_p_plans *r, heti_p_shorthand *s) {
    int64_t begin = 0, times;
    if (r->desc.units % 2 != 0)
        return HETI_P_BAD(r, "het_plan_read: a layout string is for embed, (attention, mlp) x layers, head; this chain "
                          "has %d units", r->desc.units);
    while (heti_p_short_blanks(r), r->at < r->length) {
        const size_t open = r->at;
        size_t close = open;
        while (close < r->length && r->text[close] != (r->text[open] == '(' ? ')' : '(')) close++;
        if (r->text[open] != '(') {
            HETI_T_TRY(heti_p_short_letters(r, s, close, &begin));
            continue;
        }
        if (close == r->length) return heti_p_short_fail(r, open, "no ')' follows");
        r->at = close + 1;
        HETI_T_TRY(heti_p_short_times(r, &times));
        if (times == 0) return heti_p_short_fail(r, open, "no *n behind a group");
        for (int64_t i = 0; i < times; i++) {
            const size_t behind = r->at;
            const int64_t before = s->unit + s->stages;
            r->at = open + 1;
            HETI_T_TRY(heti_p_short_letters(r, s, close, &begin));
            if (s->unit + s->stages == before) return heti_p_short_fail(r, open, "an empty group");
            r->at = behind;
        }
    }
    HETI_T_TRY(heti_p_short_close(r, s, begin));
    if (s->unit != r->desc.units)
        return HETI_P_BAD(r, "het_plan_read: layout: %d of %d units; it must end in L", s->unit, r->desc.units);
    return HET_OK;
}

/* The numbers of "cp:5,3,2". */
static het_result heti_p_short_shares(heti_p_plans *r, heti_p_shorthand *s) {
    for (s->team = 0;;) {
        const int64_t share = heti_p_short_number(r);
        if (share < 0 || share > HETI_P_PLANS_COUNT) return heti_p_short_fail(r, r->at, "no share below 2^31");
        if (s->team == HETRAIN_MAX_TEAM)
            return heti_t_fail(r->error, HET_ERR_LIMIT, "het_plan_read: a team of more than %i ranks",
                               HETRAIN_MAX_TEAM);
        s->share[s->team++] = HETI_T_CAST(double, share);
        if (r->at == r->length) return HET_OK;
        if (!heti_p_short_word(r, ",")) return heti_p_short_fail(r, r->at, "',' was expected");
    }
}

/* "cpN", "hpN", "tpN" and such with ":..." at the end, cut off. */
static het_result heti_p_short_team(heti_p_plans *r, heti_p_shorthand *s) {
    const size_t begin = r->at;
    size_t at = begin;
    s->team = 1;
    while (at + 1 < r->length && (r->text[at + 1] != 'p' || strchr("cht", r->text[at]) == NULL)) at++;
    if (at + 1 >= r->length) return HET_OK;
    if (at > begin && r->text[at - 1] != 'x') return heti_p_short_fail(r, at, "'x' was expected");
    r->at = at;
    s->by_columns = heti_p_short_word(r, "tp");
    s->by_heads = s->by_columns || heti_p_short_word(r, "hp");
    if (!s->by_heads) (void)heti_p_short_word(r, "cp");
    if (heti_p_short_word(r, ":")) HETI_T_TRY(heti_p_short_shares(r, s));
    else {
        s->team = heti_p_short_number(r);
        if (s->team < 1 || s->team > HETRAIN_MAX_TEAM)
            return HETI_P_BAD(r, "het_plan_read: byte %z: teams of 1 to %i ranks", at, HETRAIN_MAX_TEAM);
        for (int64_t i = 0; i < s->team; i++) s->share[i] = 1.0;
    }
    if (r->at < r->length) return heti_p_short_fail(r, r->at, "unexpected text");
    r->at = begin;
    r->length = at > begin ? at - 1 : at;
    return HET_OK;
}

/* Every rank's place in its team. Heads go by share as rows do. */
static het_result heti_p_short_members(heti_p_plans *r, const heti_p_shorthand *s) {
    for (int64_t i = 0; i < r->count.members; i++) {
        het_team_member *m = &r->plan->member[i];
        const int64_t member = i % s->team;
        m->rank = i;
        m->leader = i - member;
        m->share = s->share[member];
        m->group = s->by_heads ? 0 : member;
        m->columns = s->by_columns;
        if (s->by_heads && member + 1 == s->team) HETI_T_TRY(heti_p_divide_heads(r, m - member, s->team));
    }
    return HET_OK;
}

/* "dp", "dpD", "pp", "ppP", "dpDx" before one of them, ranges or a layout. */
static het_result heti_p_short_head(heti_p_plans *r, heti_p_shorthand *s) {
    s->data = s->pipe = 1;
    HETI_T_TRY(heti_p_short_team(r, s));
    if (r->at == r->length) return HET_OK; /* one team has all units */
    if (heti_p_short_word(r, "dp")) {
        s->data = heti_p_short_number(r);
        if (s->data == 0) return heti_p_short_fail(r, 0, "no pipelines");
        s->data = heti_p_max(s->data, 0);
        if (r->at == r->length) return HET_OK;
        if (!heti_p_short_word(r, "x")) return heti_p_short_fail(r, r->at, "'x' was expected");
    }
    s->pipe = 0;
    s->cut = HETI_P_CUT_LAYOUT;
    if (!heti_p_short_word(r, "pp")) {
        if (r->at < r->length && strchr("EtLm|(,", r->text[r->at]) != NULL) return HET_OK;
        return heti_p_short_fail(r, r->at, "not JSON, dp, pp, dpDxppP, pp:0-5|6-9 or a layout of E t L | (..)*n");
    }
    s->cut = HETI_P_CUT_RANGES;
    if (heti_p_short_word(r, ":")) return HET_OK;
    s->cut = HETI_P_CUT_EVEN;
    s->pipe = heti_p_short_number(r);
    if (s->pipe == 0) return heti_p_short_fail(r, r->at, "no stages");
    s->pipe = heti_p_max(s->pipe, 0);
    return r->at == r->length ? HET_OK : heti_p_short_fail(r, r->at, "unexpected text");
}

/* D and P from what is written and the number of ranks, which they must use up. */
static het_result heti_p_short_shape(heti_p_plans *r, heti_p_shorthand *s) {
    const int64_t ranks = r->desc.ranks / s->team;
    if (r->desc.ranks % s->team != 0)
        return HETI_P_BAD(r, "het_plan_read: teams of %d ranks, there are %d", s->team, r->desc.ranks);
    if (s->cut != HETI_P_CUT_EVEN) {
        s->pipe = s->stages / s->each;
        if (s->stages % s->each != 0)
            return HETI_P_BAD(r, "het_plan_read: %d stages written, schedule %s needs a multiple of %d", s->stages,
                              r->count.schedule, s->each);
    }
    if (s->data == 0 && s->pipe == 0) return HETI_P_BAD(r, "het_plan_read: dpxpp needs one number");
    if (s->pipe == 0) s->pipe = ranks / s->data;
    if (s->data == 0) s->data = ranks / s->pipe;
    if (s->data * s->pipe != ranks || s->pipe == 0)
        return HETI_P_BAD(r, "het_plan_read: %d pipelines over %d ranks each make %d ranks, there are %d", s->data,
                          s->pipe * s->team, heti_p_min(s->data * s->pipe, INT32_MAX) * s->team, r->desc.ranks);
    if (s->cut == HETI_P_CUT_EVEN) s->stages = s->pipe * s->each;
    if (s->stages > r->desc.units)
        return HETI_P_BAD(r, "het_plan_read: too many stages: %d for %d units", s->stages, r->desc.units);
    return HET_OK;
}

/* The rank of stage k of copy c, counted from the pipeline's first. */
static int64_t heti_p_short_rank(const heti_p_shorthand *s, int64_t c, int64_t k) {
    const int64_t down = k < s->pipe ? k : 2 * s->pipe - 1 - k; /* of a V: up again */
    if (s->place == HET_PLACE_ROUND) return k % s->pipe;
    return c == 1 ? s->pipe - 1 - down : down;
}

/* All pipelines from the units of the first. */
static void heti_p_short_fill(const heti_p_plans *r, const heti_p_shorthand *s) {
    het_plan *plan = r->plan;
    const int64_t least = plan->units / s->stages, more = plan->units % s->stages;
    for (int64_t k = 0; k < s->stages && s->cut == HETI_P_CUT_EVEN; k++) {
        plan->stage[k].unit_begin = k * least + heti_p_min(k, more);
        plan->stage[k].unit_end = (k + 1) * least + heti_p_min(k + 1, more);
    }
    for (int64_t p = 0; p < plan->pipelines; p++) {
        for (int64_t k = 0; k < s->stages; k++) {
            het_stage *stage = &plan->stage[p * s->stages + k];
            *stage = plan->stage[k];
            stage->pipeline = p;
            stage->rank = (p / s->copies * s->pipe + heti_p_short_rank(s, p % s->copies, k)) * s->team;
            stage->recompute = heti_p_plans_recompute(r, stage);
            stage->store = HETI_T_CAST(int32_t, r->desc.store);
        }
        plan->first_stage[p + 1] = (p + 1) * s->stages;
    }
}

static het_result heti_p_short_cut(heti_p_plans *r, heti_p_shorthand *s) {
    const size_t at = r->at;
    s->stages = s->unit = 0;
    HETI_T_TRY(s->cut == HETI_P_CUT_RANGES ? heti_p_short_ranges(r, s) : heti_p_short_layout(r, s));
    r->at = at;
    return HET_OK;
}

static het_result heti_p_plans_shorthand(heti_p_plans *r) {
    heti_p_shorthand s;
    memset(&s, 0, sizeof s);
    s.place = heti_p_rule_find(r->count.schedule)->kind.placement;
    s.each = s.place == HET_PLACE_ROUND ? r->desc.chunks :
        s.place == HET_PLACE_V || s.place == HET_PLACE_BOTH_V ? 2 : 1;
    s.copies = s.place == HET_PLACE_BOTH || s.place == HET_PLACE_BOTH_V ? 2 : 1;
    HETI_T_TRY(heti_p_short_head(r, &s));
    if (s.cut != HETI_P_CUT_EVEN) HETI_T_TRY(heti_p_short_cut(r, &s));
    HETI_T_TRY(heti_p_short_shape(r, &s));
    r->count.pipelines = s.data * s.copies;
    r->count.stages = r->count.pipelines * s.stages;
    r->count.members = s.team > 1 ? r->desc.ranks : 0;
    HETI_T_TRY(heti_p_plans_room(r));
    r->count.members = r->plan->members;
    HETI_T_TRY(heti_p_short_members(r, &s));
    if (s.cut != HETI_P_CUT_EVEN) HETI_T_TRY(heti_p_short_cut(r, &s)); /* the first pass found no error, this stores */
    heti_p_short_fill(r, &s);
    return HET_OK;
}

static het_result heti_p_plans_range(const char *what, int64_t value, int64_t most, het_error *error) {
    if (value >= 1 && value <= most) return HET_OK;
    return heti_t_fail(error, HET_ERR_INVALID, "het_plan_read: %s is %d, not 1 to %d", what, value, most);
}

static het_result heti_p_plans_desc(heti_p_plans *r, const het_plan_desc *desc) {
    het_plan_desc *d = &r->desc;
    if (desc->start_canary != 0 || desc->end_canary != 0)
        return HETI_P_BAD(r, "het_plan_desc was not zeroed: canaries are %x and %x",
                          HETI_T_CAST(uint64_t, desc->start_canary), HETI_T_CAST(uint64_t, desc->end_canary));
    *d = *desc;
    if (d->schedule == NULL) d->schedule = "1f1b";
    if (d->chunks == 0) d->chunks = 2;
    if (d->slices == 0) d->slices = 1;
    HETI_T_TRY(heti_p_plans_range("units", d->units, HETI_P_PLANS_COUNT, r->error));
    HETI_T_TRY(heti_p_plans_range("ranks", d->ranks, HETI_P_PLANS_COUNT, r->error));
    HETI_T_TRY(heti_p_plans_range("chunks", d->chunks, HETI_P_PLANS_COUNT, r->error));
    HETI_T_TRY(heti_p_plans_range("slices", d->slices, HETI_P_PLANS_SLICES, r->error));
    if (d->store < 0 || d->store > INT32_MAX) return HETI_P_BAD(r, "het_plan_desc.store is %d", d->store);
    HETI_T_TRY(heti_p_rule_check(d->schedule, "het_plan_read", r->error));
    HETI_T_TRY(heti_t_choose(&desc->allocator, &d->allocator, r->error, "het_plan_read"));
    r->count.make = het_schedule_make;
    r->count.units = d->units;
    r->count.ranks = d->ranks;
    r->count.slices = d->slices;
    memcpy(r->count.schedule, d->schedule, strlen(d->schedule) + 1);
    return HET_OK;
}

static het_result heti_p_plans_read(heti_p_plans *r) {
    size_t at = 0;
    while (at < r->length && strchr(" \t\r\n", r->text[at]) != NULL && r->text[at] != 0) at++;
    if (at == r->length) return heti_t_fail(r->error, HET_ERR_FORMAT, "het_plan_read: the text is empty");
    if (r->text[at] == '{') {
        HETI_T_TRY(heti_p_plans_json(r));
        HETI_T_TRY(heti_p_plans_room(r));
        HETI_T_TRY(heti_p_plans_json(r));
    } else {
        r->at = at;
        while (r->text[r->length - 1] != 0 && strchr(" \t\r\n", r->text[r->length - 1]) != NULL) r->length--;
        HETI_T_TRY(heti_p_plans_shorthand(r));
    }
    return het_plan_check(r->plan, "het_plan_read", r->error);
}

HETRAIN_API het_result het_plan_read(const het_plan_desc *desc, const char *text, size_t length, het_plan **plan,
                                     het_error *error) {
    heti_p_plans r;
    if (plan != NULL) *plan = NULL;
    if (desc == NULL || plan == NULL || (text == NULL && length > 0))
        return heti_t_fail(error, HET_ERR_INVALID, "het_plan_read: %s is NULL",
                           desc == NULL ? "desc" : plan == NULL ? "plan" : "text");
    memset(&r, 0, sizeof r);
    r.text = text, r.length = length, r.error = error;
    HETI_T_TRY(heti_p_plans_desc(&r, desc));
    const het_result result = heti_p_plans_read(&r);
    if (result == HET_OK) *plan = r.plan;
    else het_plan_free(r.plan);
    return result;
}

/* ---- writing ---- */

/* Number i of a list that begins with `begin`. */
static void heti_p_plans_put(heti_t_text *out, int64_t i, const char *begin, double value) {
    heti_t_put(out, i == 0 ? begin : ", ");
    heti_t_format(out, "%n", value);
}

static void heti_p_plans_put_teams(heti_t_text *out, const het_plan *plan) {
    int64_t count;
    for (int64_t i = 0; i < plan->members; i += count) {
        const het_team_member *team = het_plan_team(plan, plan->member[i].rank, &count);
        int heads = team->columns != 0; /* which reading would divide otherwise */
        heti_t_put(out, i > 0 ? ",\n    {" : ",\n  \"teams\": [\n    {");
        for (int64_t k = 0; k < count; k++)
            heti_p_plans_put(out, k, "\"ranks\": [", HETI_T_CAST(double, team[k].rank));
        for (int64_t k = 0; k < count; k++) heti_p_plans_put(out, k, "], \"shares\": [", team[k].share);
        for (int64_t k = 0; k < count; k++) heads |= team[k].heads > 0;
        for (int64_t k = 0; k < count && heads; k++)
            heti_p_plans_put(out, k > 0 && team[k].group == team[k - 1].group, k > 0 ? "], [" : "], \"heads\": [[",
                             HETI_T_CAST(double, team[k].heads));
        heti_t_put(out, heads ? "]]" : "]");
        heti_t_put(out, team->columns != 0 ? ", \"split\": \"columns\"}" : "}");
    }
    if (plan->members > 0) heti_t_put(out, "\n  ]");
}

static void heti_p_plans_put_shard(heti_t_text *out, const het_plan *plan) {
    int64_t sets = 0, keepers = 0;
    if (plan->shard > HET_SHARD_STATE)
        heti_t_format(out, ",\n  \"shard\": \"%s\"", heti_p_shards[plan->shard - HET_SHARD_STATE]);
    for (int64_t r = 0; plan->near != NULL && r < plan->ranks; r++) sets += plan->near[r] != plan->near[0];
    for (int64_t r = 0; sets > 0 && r < plan->ranks; r++)
        heti_p_plans_put(out, r, ",\n  \"near\": [", HETI_T_CAST(double, plan->near[r]));
    if (sets > 0) heti_t_put(out, "]");
    for (int64_t r = 0; plan->keeper != NULL && r < plan->ranks; r++)
        if (plan->keeper[r] != 0) heti_p_plans_put(out, keepers++, ",\n  \"keepers\": [", HETI_T_CAST(double, r));
    if (keepers > 0) heti_t_put(out, "]");
}

HETRAIN_API het_result het_plan_write(const het_plan *plan, const het_writer *to) {
    char room[4096];
    if (plan == NULL || to == NULL || to->write == NULL || heti_p_rule_find(plan->schedule) == NULL)
        return HET_ERR_INVALID;
    heti_t_text out = heti_t_text_to(to, room, sizeof room);
    heti_t_format(&out, "{\n  \"schedule\": \"%s\",\n  \"pipelines\": [", plan->schedule);
    for (int64_t p = 0; p < plan->pipelines; p++) {
        heti_t_format(&out, "%s\n    {\"share\": %n, \"stages\": [", p > 0 ? "," : "", plan->share[p]);
        for (int64_t i = plan->first_stage[p]; i < plan->first_stage[p + 1]; i++) {
            const het_stage *stage = &plan->stage[i];
            heti_t_format(&out, "%s\n      {\"rank\": %d, \"units\": [%d, %d], \"recompute\": ",
                          i > plan->first_stage[p] ? "," : "", stage->rank, stage->unit_begin, stage->unit_end);
            if (stage->recompute_units > 0) heti_t_format(&out, "%i", stage->recompute_units);
            else heti_t_put(&out, stage->recompute == HET_RECOMPUTE_STAGE ? "\"stage\"" : stage->recompute ? "true"
                                                                                               : "false");
            for (int64_t slice = 0, kept = 0; slice < 64; slice++)
                if ((stage->keep >> slice & 1) != 0)
                    heti_p_plans_put(&out, kept++, ", \"keep\": [", HETI_T_CAST(double, slice));
            if (stage->keep != 0) heti_t_put(&out, "]");
            if (stage->store > 0) heti_t_format(&out, ", \"store\": %i", stage->store);
            if (stage->updates > 0) heti_t_format(&out, ", \"updates\": %i", stage->updates);
            heti_t_put(&out, "}");
        }
        heti_t_put(&out, "\n    ]}");
    }
    for (int64_t r = 0; r < plan->ranks; r++)
        heti_p_plans_put(&out, r, "\n  ],\n  \"state_shares\": [", plan->state_share[r]);
    for (int64_t k = 0; k < plan->slices; k++)
        heti_p_plans_put(&out, k, "],\n  \"slices\": [", plan->slice_share[k]);
    heti_t_put(&out, "]");
    if (plan->slice_tokens > 0) heti_t_format(&out, ",\n  \"slice_tokens\": %d", plan->slice_tokens);
    heti_p_plans_put_teams(&out, plan);
    heti_p_plans_put_shard(&out, plan);
    heti_t_format(&out, ",\n  \"memory_limit\": %n", plan->memory_limit);
    if (plan->updates > 1)
        heti_t_format(&out, ",\n  \"updates\": %d, \"staleness\": %d", plan->updates, plan->staleness);
    if (plan->step.length > 0)
        heti_t_format(&out, ",\n  \"step\": {\"granules\": %d, \"sequences\": %d, \"length\": %d, \"micro_batch\": %d}",
                      plan->step.granules, plan->step.sequences, plan->step.length, plan->step.micro_batch);
    heti_t_put(&out, "\n}\n");
    return heti_t_end(&out);
}

/* =================================================================================================
   >>lists  Schedules as text.
   ============================================================================================== */

HETRAIN_API het_result het_schedule_write(const het_schedule *schedule, const het_writer *to) {
    char room[4096];
    if (schedule == NULL || to == NULL || to->write == NULL) return HET_ERR_INVALID;
    heti_t_text out = heti_t_text_to(to, room, sizeof room);
    for (int64_t r = 0; r < schedule->ranks; r++) {
        int32_t pair = 0;
        for (int64_t i = schedule->start[r]; i < schedule->start[r + 1]; i++) {
            if (i > schedule->start[r]) heti_t_put(&out, pair ? ";" : ",");
            if (schedule->action[i].overlap && !pair) heti_t_put(&out, "(");
            heti_t_action(&out, &schedule->action[i]);
            if (pair) heti_t_put(&out, ")OVERLAP_F_B");
            pair = !pair && schedule->action[i].overlap;
        }
        if (pair) return HET_ERR_INVALID; /* a pair without its second action */
        heti_t_put(&out, "\n");
    }
    return heti_t_end(&out);
}

/* ---- reading ---- */

#define HETI_P_LINES_BW HETI_T_KINDS /* PyTorch's other name of a full backward */

typedef struct heti_p_lines {
    const het_plan *plan;
    const char *text;
    size_t length, line_at;     /* where the line that is read starts */
    size_t begin, end;          /* the action or pair that is read */
    int64_t line;               /* from 1 */
    het_error *error;
    het_schedule *schedule;     /* NULL: only counted */
    int64_t actions, bare;      /* bare: "B", which is I where a W follows */
    int64_t weights;            /* W */
    int64_t micro_batches;      /* the most of any pipeline */
} heti_p_lines;

/* Fails with line, column and what is read. */
static het_result heti_p_lines_fail(const heti_p_lines *r, het_result code, const char *what) {
    return heti_t_fail(r->error, code, "het_schedule_read: line %d, column %z: '%p': %s", r->line,
                       r->begin - r->line_at + 1, r->text + r->begin, r->end - r->begin, what);
}

/* Digits at *at, below 2^31 - 1. none: what is wrong where there are none; NULL: nothing, *to
   becomes -1. */
static het_result heti_p_lines_number(const heti_p_lines *r, size_t *at, const char *none, int32_t *to) {
    const int64_t value = heti_p_number(r->text, at, r->end);
    if (value >= HETI_P_PLANS_COUNT) return heti_p_lines_fail(r, HET_ERR_FORMAT, "a number is not below 2^31 - 1");
    *to = HETI_T_CAST(int32_t, value);
    return value < 0 && none != NULL ? heti_p_lines_fail(r, HET_ERR_FORMAT, none) : HET_OK;
}

/* The word of capitals and '_' at *at, as a kind of action, or HETI_P_LINES_BW; -1: neither. */
static int32_t heti_p_lines_word(const heti_p_lines *r, size_t *at) {
    const size_t begin = *at;
    while (*at < r->end && ((r->text[*at] >= 'A' && r->text[*at] <= 'Z') || r->text[*at] == '_')) ++*at;
    for (int32_t kind = 0; kind <= HETI_P_LINES_BW; kind++)
        if (heti_t_is(r->text + begin, *at - begin, kind == HETI_P_LINES_BW ? "BW" : heti_t_kind(kind))) return kind;
    return -1;
}

/* Why the word [word, behind) after a stage's number is none of ours. */
static het_result heti_p_lines_foreign(const heti_p_lines *r, size_t word, size_t behind) {
    static const char *const heti_p_foreign_words[] = { "UNSHARD", "RESHARD", "REDUCE_GRAD" };
    for (int i = 0; i < 3; i++)
        if (heti_t_is(r->text + word, behind - word, heti_p_foreign_words[i]))
            return heti_p_lines_fail(r, HET_ERR_UNSUPPORTED, "PyTorch's UNSHARD, RESHARD and REDUCE_GRAD are not "
                                     "supported (REDUCE and GATHER take their place)");
    return heti_p_lines_fail(r, HET_ERR_FORMAT, "no action: after the stage comes F, B, BW, I, W, PUT, TAKE, SEND_F, "
                             "RECV_F, SEND_B or RECV_B");
}

/* ".slice@pipeline/version" at `at`, each only where not 0 (a written 0 is fine). */
static het_result heti_p_lines_suffixes(const heti_p_lines *r, size_t at, het_action *a) {
    static const char heti_p_marks[] = ".@/";
    int32_t *const to[3] = { &a->slice, &a->pipeline, &a->version };
    for (int i = 0; i < 3; i++) {
        if (at == r->end || r->text[at] != heti_p_marks[i]) continue;
        at++;
        HETI_T_TRY(heti_p_lines_number(r, &at, "a number must follow . @ and /", to[i]));
    }
    if (at == r->end) return HET_OK;
    if (r->text[at] == '_')
        return heti_p_lines_fail(r, HET_ERR_UNSUPPORTED, "PyTorch's batched transfers are not supported: write two "
                                 "actions");
    return heti_p_lines_fail(r, HET_ERR_FORMAT, "unexpected text behind an action (suffixes are .slice @pipeline "
                             "/version, in this order)");
}

/* One action from [begin, end). A bare "B" comes back with overlap -1. */
static het_result heti_p_lines_action(heti_p_lines *r, size_t begin, size_t end, het_action *a) {
    const het_plan *plan = r->plan;
    size_t at = begin, word;
    memset(a, 0, sizeof *a);
    r->begin = begin, r->end = end;
    HETI_T_TRY(heti_p_lines_number(r, &at, NULL, &a->stage));
    word = at;
    const int32_t name = heti_p_lines_word(r, &at);
    if (a->stage < 0) {
        if (name < HET_ACTION_REDUCE || name == HETI_P_LINES_BW)
            return heti_p_lines_fail(r, HET_ERR_FORMAT, "no action: neither a stage's number nor REDUCE, VERDICT, "
                                     "STEP or GATHER");
        a->kind = name;
        a->stage = 0;
        if (name != HET_ACTION_COMMIT)
            HETI_T_TRY(heti_p_lines_number(r, &at, "the number of a block must follow", &a->stage));
        if (at == end) return HET_OK;
        if (a->kind != HET_ACTION_COMMIT && r->text[at] == '/') return heti_p_lines_suffixes(r, at, a);
        return heti_p_lines_fail(r, HET_ERR_FORMAT, "unexpected text behind an action");
    }
    if (name < 0 || (name >= HET_ACTION_REDUCE && name != HETI_P_LINES_BW)) return heti_p_lines_foreign(r, word, at);
    a->kind = name == HETI_P_LINES_BW ? HET_ACTION_B : name;
    HETI_T_TRY(heti_p_lines_number(r, &at, "the number of a micro-batch must follow", &a->micro_batch));
    HETI_T_TRY(heti_p_lines_suffixes(r, at, a));
    if (name == HET_ACTION_B) a->overlap = -1;
    if (a->pipeline >= plan->pipelines)
        return heti_p_lines_fail(r, HET_ERR_INVALID, "the plan has no such pipeline");
    if (a->stage >= plan->first_stage[a->pipeline + 1] - plan->first_stage[a->pipeline])
        return heti_p_lines_fail(r, HET_ERR_INVALID, "the plan's pipeline has no such stage");
    return a->slice < plan->slices ? HET_OK : heti_p_lines_fail(r, HET_ERR_INVALID, "the plan has no such slice");
}

static void heti_p_lines_store(heti_p_lines *r, const het_action *a) {
    r->bare += a->overlap < 0;
    r->weights += a->kind == HET_ACTION_W;
    if (r->schedule != NULL) {
        r->schedule->action[r->actions] = *a;
        r->schedule->complete |= a->kind == HET_ACTION_COMMIT;
        if (a->kind < HET_ACTION_REDUCE) {
            int64_t *count = &r->schedule->micro_batches[a->pipeline];
            *count = heti_p_max(*count, HETI_T_CAST(int64_t, a->micro_batch) + 1);
            r->micro_batches = heti_p_max(r->micro_batches, *count);
        }
    }
    r->actions++;
}

/* "(0F7;7B3)OVERLAP_F_B": a forward and a backward that run together. */
static het_result heti_p_lines_pair(heti_p_lines *r, size_t begin, size_t end) {
    static const char heti_p_mark[] = ")OVERLAP_F_B";
    const size_t mark = sizeof heti_p_mark - 1;
    const size_t close = end - begin > mark && memcmp(r->text + end - mark, heti_p_mark, mark) == 0 ? end - mark : 0;
    size_t middle = begin + 1;
    het_action first, second;
    while (middle < close && r->text[middle] != ';') middle++;
    r->begin = begin, r->end = end;
    if (middle >= close) return heti_p_lines_fail(r, HET_ERR_FORMAT, "a pair is written (a;b)OVERLAP_F_B");
    HETI_T_TRY(heti_p_lines_action(r, begin + 1, middle, &first));
    HETI_T_TRY(heti_p_lines_action(r, middle + 1, close, &second));
    r->begin = begin, r->end = end;
    if (first.kind != HET_ACTION_F || (second.kind != HET_ACTION_B && second.kind != HET_ACTION_I))
        return heti_p_lines_fail(r, HET_ERR_INVALID, "a pair is an F and a B or I");
    first.overlap = 1;
    heti_p_lines_store(r, &first);
    heti_p_lines_store(r, &second);
    return HET_OK;
}

/* The cells of the line [at, end): each an action, a pair, or nothing (idle). */
static het_result heti_p_lines_line(heti_p_lines *r, size_t at, size_t end) {
    for (; at < end; at++) { /* over a comma */
        size_t begin = at, close;
        het_action a;
        while (at < end && r->text[at] != ',') at++;
        close = at;
        while (begin < close && (r->text[begin] == ' ' || r->text[begin] == '\t')) begin++;
        while (begin < close && (r->text[close - 1] == ' ' || r->text[close - 1] == '\t')) close--;
        if (begin == close) continue;
        if (r->text[begin] == '(') HETI_T_TRY(heti_p_lines_pair(r, begin, close));
        else {
            HETI_T_TRY(heti_p_lines_action(r, begin, close, &a));
            heti_p_lines_store(r, &a);
        }
    }
    return HET_OK;
}

/* A line a rank; empty lines may follow. */
static het_result heti_p_lines_lines(heti_p_lines *r) {
    int64_t rank = 0;
    size_t at = 0;
    r->line = r->actions = r->bare = r->weights = 0;
    while (at < r->length) {
        const char *newline = HETI_T_CAST(const char *, memchr(r->text + at, '\n', r->length - at));
        const size_t next = newline != NULL ? HETI_T_CAST(size_t, newline - r->text) : r->length;
        const int64_t before = r->actions;
        r->line_at = at;
        r->line++;
        HETI_T_TRY(heti_p_lines_line(r, at, next > at && r->text[next - 1] == '\r' ? next - 1 : next));
        if (rank == r->plan->ranks && r->actions > before)
            return heti_t_fail(r->error, HET_ERR_FORMAT, "het_schedule_read: line %d: the plan has only %d ranks",
                               r->line, r->plan->ranks);
        if (rank < r->plan->ranks && r->schedule != NULL) r->schedule->start[rank + 1] = r->actions;
        rank += rank < r->plan->ranks;
        at = next + 1;
    }
    if (rank < r->plan->ranks)
        return heti_t_fail(r->error, HET_ERR_FORMAT, "het_schedule_read: %d lines, the plan has %d ranks", rank,
                           r->plan->ranks);
    return HET_OK;
}

/* A number for (pipeline, stage, micro-batch, slice) of any action of the text, from 1. */
static uint64_t heti_p_lines_key(const heti_p_lines *r, const het_action *a) {
    const int64_t stage = r->plan->first_stage[a->pipeline] + a->stage;
    return HETI_T_CAST(uint64_t, (stage * r->micro_batches + a->micro_batch) * r->plan->slices + a->slice) + 1;
}

/* Where a number is, or would be, in a hash table of 2^n, of which at least half are 0: none. */
static uint64_t *heti_p_lines_place(uint64_t *table, size_t size, uint64_t key) {
    size_t at = HETI_T_CAST(size_t, key * UINT64_C(0x9E3779B97F4A7C15) >> 32) & (size - 1);
    while (table[at] != 0 && table[at] != key) at = (at + 1) & (size - 1);
    return &table[at];
}

/* PyTorch writes "B" for a full backward and, in older files, for backward-input. The latter has a
   W: it becomes I. "BW" is always a full backward; with a W it could not be written, for we write
   "B". */
static het_result heti_p_lines_normalise(heti_p_lines *r, const het_allocator *allocator) {
    het_schedule *s = r->schedule;
    het_result result = HET_OK;
    size_t size = 2;
    uint64_t *table;
    void *block;
    if (r->bare == 0 && r->weights == 0) return HET_OK;
    if (r->micro_batches > INT64_MAX / r->plan->stages / r->plan->slices)
        return heti_t_fail(r->error, HET_ERR_LIMIT, "het_schedule_read: %d stages, %d micro-batches and %d slices are "
                           "more than can be counted", r->plan->stages, r->micro_batches, r->plan->slices);
    while (size < 2 * HETI_T_CAST(size_t, r->weights)) size *= 2;
    HETI_T_TRY(heti_t_block(allocator, size * sizeof *table, "het_schedule_read", &block, r->error));
    table = HETI_T_CAST(uint64_t *, block);
    for (int64_t i = 0; i < r->actions; i++)
        if (s->action[i].kind == HET_ACTION_W) {
            const uint64_t key = heti_p_lines_key(r, &s->action[i]);
            *heti_p_lines_place(table, size, key) = key;
        }
    for (int64_t i = 0; i < r->actions && result == HET_OK; i++) {
        het_action *a = &s->action[i];
        const int bare = a->overlap < 0;
        if (bare) a->overlap = 0;
        if (a->kind != HET_ACTION_B || *heti_p_lines_place(table, size, heti_p_lines_key(r, a)) == 0) continue;
        if (bare) a->kind = HET_ACTION_I;
        else result = heti_t_fail(r->error, HET_ERR_FORMAT, "het_schedule_read: stage %i, micro-batch %i, slice %i of "
            "pipeline %i: a full backward (BW) and a W", a->stage, a->micro_batch, a->slice, a->pipeline);
    }
    allocator->free(allocator->user, block, size * sizeof *table);
    return result;
}

HETRAIN_API het_result het_schedule_read(const het_plan *plan, const char *text, size_t length,
                                         const het_allocator *allocator, het_schedule **schedule, het_error *error) {
    heti_p_lines r;
    het_allocator memory;
    if (schedule != NULL) *schedule = NULL;
    if (plan == NULL || text == NULL || schedule == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_schedule_read: %s is NULL",
                           plan == NULL ? "plan" : text == NULL ? "the input" : "schedule");
    HETI_T_TRY(het_plan_check(plan, "het_schedule_read", error));
    HETI_T_TRY(heti_t_choose(allocator, &memory, error, "het_schedule_read"));
    memset(&r, 0, sizeof r);
    r.plan = plan, r.text = text, r.length = length, r.error = error;
    HETI_T_TRY(heti_p_lines_lines(&r));
    HETI_T_TRY(het_schedule_new(plan->ranks, plan->pipelines, r.actions, &memory, "het_schedule_read", &r.schedule,
                                error));
    het_result result = heti_p_lines_lines(&r); /* found no error before: stores */
    if (result == HET_OK) result = heti_p_lines_normalise(&r, &memory);
    if (result != HET_OK) {
        het_schedule_free(r.schedule);
        return result;
    }
    *schedule = r.schedule;
    return HET_OK;
}

/* =================================================================================================
   >>records  What both pictures ask of a timeline.
   ============================================================================================== */

typedef struct heti_p_kind {
    const char *category; /* in a trace */
    const char *color;    /* there: one of chrome://tracing's own names */
    const char *legend;   /* in a picture; NULL: it is not drawn */
    uint32_t light, dark; /* its colours there, 0xRRGGBB, by the ground */
} heti_p_kind;

static const heti_p_kind heti_p_kinds[HETI_T_KINDS] = {
    { "forward",         "thread_state_running",  "forward",           0x1F6FB4, 0x4C9BE0 },
    { "backward",        "thread_state_iowait",   "backward",          0xE8961E, 0xF0A637 },
    { "backward_input",  "bad",                   "backward, inputs",  0xD1580F, 0xE4702B },
    { "backward_weight", "good",                  "backward, weights", 0x119C74, 0x2DB58D },
    { "host",            "olive",                 "to the host",       0x8A7A5C, 0xA39272 },
    { "host",            "olive",                 "from the host",     0xB8A682, 0xCBBB97 },
    { "transfer",        "grey",                  "exchange",          0x7B8794, 0x9AA6B4 },
    { "transfer",        "white",                 NULL,                0,        0 },
    { "transfer",        "grey",                  NULL,                0,        0 },
    { "transfer",        "white",                 NULL,                0,        0 },
    { "reduce",          "rail_animation",        "reduce gradients",  0xC4709E, 0xD184AF },
    { "verdict",         "black",                 "verdict",           0x444444, 0xBBBBBB },
    { "step",            "yellow",                "optimizer step",    0xE3CF2B, 0xEADB55 },
    { "gather",          "thread_state_sleeping", "gather weights",    0x56B4E9, 0x7CC6F0 }
};

static int heti_p_is_compute(int32_t kind) { return kind <= HET_ACTION_W || kind == HET_ACTION_STEP; }
static int heti_p_is_moved(int32_t kind) { return kind == HET_ACTION_PUT || kind == HET_ACTION_TAKE; }
static int heti_p_is_collective(int32_t kind) { return kind == HET_ACTION_REDUCE || kind == HET_ACTION_GATHER; }

/* Of a record with F, B or I, within its time. */
static double heti_p_exchange(const het_record *r) {
    if (r->action.kind > HET_ACTION_I || !(r->exchange > 0)) return 0;
    return r->exchange < r->end - r->start ? r->exchange : r->end - r->start;
}

/* Everything a picture relies on, so that no later step has to look twice. */
static int heti_p_timeline_valid(const het_timeline *timeline) {
    if (timeline == NULL || timeline->ranks < 0 || timeline->records < 0 ||
        (timeline->records > 0 && timeline->record == NULL))
        return 0;
    for (int64_t i = 0; i < timeline->records; i++) {
        const het_record *r = &timeline->record[i];
        if (r->action.kind < 0 || r->action.kind >= HETI_T_KINDS) return 0;
        if (r->rank < 0 || r->rank >= timeline->ranks || (i > 0 && r->rank < r[-1].rank)) return 0;
        if (!(r->start >= 0 && r->end >= r->start && r->end <= 1e300)) return 0;
    }
    return 1;
}

/* Whose list a rank has. */
static int64_t heti_p_leader(const het_plan *plan, int64_t rank) {
    int64_t count;
    const het_team_member *team = het_plan_team(plan, rank, &count);
    return team != NULL ? team->leader : rank;
}

/* The units of the stages a rank holds, "units 0-2, 9-11"; with more than `most` stages "6 stages".
   0: it holds none. */
static int heti_p_out_units(heti_t_text *out, const het_plan *plan, int64_t rank, int64_t most, const char *dash) {
    int64_t count = 0, shown = 0;
    rank = heti_p_leader(plan, rank);
    for (int64_t s = 0; s < plan->stages; s++) count += plan->stage[s].rank == rank;
    if (count == 0) return 0;
    if (count > most) { heti_t_format(out, "%d stages", count); return 1; }
    for (int64_t s = 0; s < plan->stages; s++) {
        const het_stage *stage = &plan->stage[s];
        if (stage->rank != rank) continue;
        heti_t_put(out, shown++ == 0 ? stage->unit_end - stage->unit_begin == 1 && count == 1 ? "unit " :
                        "units " : ", ");
        heti_t_integer(out, stage->unit_begin);
        if (stage->unit_end - stage->unit_begin > 1) heti_t_format(out, "%s%d", dash, stage->unit_end - 1);
    }
    return 1;
}

/* =================================================================================================
   >>simulate  One pass over the lists. A rank runs until it waits for a message; the rank that
   makes that message arrive puts it back on the stack of those that can go on. Messages of one link
   leave in the order of their sender's list, so the order in which ranks are looked at does not
   matter, and nothing has to be sorted by time but messages on shared wires, and the rings, of
   which there are few.
   ============================================================================================== */

/* A stage with its neighbours, costs and cells. */
typedef struct heti_p_stage {
    int64_t rank, before, after;      /* ranks of the neighbours; -1: none */
    int64_t lane, next;               /* its rank's first stage in this pipeline, and next one; -1: none */
    int64_t gradient;                 /* the rank that its gradient comes from; -1: none, or it is made there */
    int32_t backward;                 /* het_plan_backward */
    int64_t link_before, link_after;  /* -1: same rank, or no gradient goes there */
    int64_t cell, micro_batches;      /* its cells are [cell, cell + micro_batches slices) */
    const double *tokens, *pairs, *sequences; /* [micro_batches] or NULL */
    const het_stage_cost *cost;
    double weight;                    /* of a micro-batch in the peak */
    const het_team_member *team;      /* NULL: the rank is alone */
    int64_t members;
    const het_stage_cost *member;     /* [members], or NULL: `cost` */
} heti_p_stage;

/* One (stage, micro-batch, slice): when its input and the gradient of its output are there
   (negative: not yet), and what has been done. */
typedef struct heti_p_cell {
    double there[2];                  /* input, gradient */
    double taken;                     /* when its TAKE is over */
    int32_t done;                     /* bits: F, I, W; on the host */
} heti_p_cell;

typedef struct heti_p_link {
    int64_t to, next;                 /* receiver; next link of the same sender, -1: none */
    het_link_cost cost;
    double free;                      /* when the last message has left it */
    int64_t first_wire, wires;        /* in heti_p_sim.path: what it shares with others, in the order of crossing */
} heti_p_link;

/* A wire that many links share: a group's uplink out (3 g), in (3 g + 1), or its bus (3 g + 2). */
typedef struct heti_p_wire {
    double bandwidth;                 /* 0: unlimited, no wire */
    double free, ring_free;           /* for messages, for rings */
    double load;                      /* of the ring that is looked at */
} heti_p_wire;

/* A message whose SEND and RECV wait for each other. */
typedef struct heti_p_half {
    double time;                      /* when the last one of them was reached */
    int64_t record, at;               /* of the SEND: its place in the timeline and in all lists */
    int reached;                      /* 1: SEND, 2: RECV, 3: both */
} heti_p_half;

/* The message of a SEND or RECV, or of an F, B or I in lists without them: stages, link (-1: there
   is none to go over, and the rest is not looked at), the cell it is for. */
typedef struct heti_p_way { int64_t from, to, link, cell; double bytes; int forward; } heti_p_way;

/* A message that has come to the next wire of its path, or a ring that waits for its turn. */
typedef struct heti_p_event {
    double time;                      /* when its first byte is there; when the ring was ready, or can start */
    int64_t rank, at;                 /* sender and place of the action in all lists, or number of the
                                         ring and 0: which comes first at the same time */
    double last;                      /* of a message: when its last byte has passed all before */
    int64_t wire, record;             /* how many it has passed; its place in the timeline or -1 */
    heti_p_way way;
} heti_p_event;

/* One rank's part in a ring. */
typedef struct heti_p_part {
    int64_t rank, record;             /* record: place in the timeline, -1: none is kept */
    int64_t next;                     /* the rank's next ring, -1: none */
    double time;                      /* when the rank reached it */
    double share, moved;              /* of the block, in parts of heti_p_ring.sum; bytes that the
                                         ring brings to it and takes from it */
    double collected, port[2];        /* of the block, with its share; seconds of what leaves and comes */
} heti_p_part;

/* One REDUCE or GATHER. */
typedef struct heti_p_ring {
    int64_t first, wanted, reached;   /* its parts are [first, first + wanted), by rank */
    double start, sum;                /* start: when all its ranks have reached it and done the rings before it */
    double busiest;                   /* bytes of the busiest rank, where it is `divided` */
    int64_t before;                   /* of its ranks, those that have a ring to do before it */
    int32_t block, gather;
    int32_t divided;                  /* 1: not all ranks have all of it */
} heti_p_ring;

typedef struct heti_p_rank {
    double clock;
    int64_t at, until;                /* present action and end of the list */
    int64_t first_record, record;     /* place of its first record and of the next one */
    int64_t twin;                     /* a rank that does the same at the same times until VERDICT
                                         and is simulated in its place; -1: none */
    int64_t first_stage, last_stage;  /* -1: none */
    const heti_p_cell *waits;         /* the cell whose message it waits for, the one behind all for an
                                         update; NULL: it can go on */
    int32_t decided;                  /* 1: it is behind its VERDICT */
    const heti_p_stage *pass;         /* the stage of its last compute action, where that was a B or W, */
    double pass_begin, pass_end;      /* and when */
    int32_t asks;                     /* 1: it waits for a verdict */
    int64_t first_link;               /* while tables are made; -1: none */
    double ring_free, ring_end;       /* when all of its last ring has left, and is there */
    double verdict;                   /* when it reached its VERDICT */
    int64_t out[2], next_out;         /* messages that its buffers hold, which comes next: HET_TRANSFER_POSTED */
    double joined, heard;             /* on the way through a VERDICT's tree */
    int64_t last_part;                /* its part in the last of the rings looked at, -1: none */
    double kept, unit;                /* activations now; what is divided by for `peak` */
    double host, room;                /* when its link to the host is free, and was before the last PUT */
    double kept_bytes;
} heti_p_rank;

typedef struct heti_p_sim {
    const het_plan *plan;
    const het_schedule *schedule;
    const het_costs *costs;
    het_error *error;
    het_allocator allocator;
    heti_t_arena tables;              /* of the arrays below */
    int64_t ranks, stages, slices, blocks, cells, links, parts, records, groups, most_wires, wires;
    int64_t updates, rings;           /* of a step, the most of a stage; REDUCEs, and GATHERs, that differ: blocks x
                                         updates */
    int keep;                         /* records are kept */
    heti_p_stage *stage;              /* [stages] */
    heti_p_cell *cell;
    heti_p_link *link;
    heti_p_rank *rank;
    int64_t *ready;                   /* stack */
    int64_t ready_count;
    het_tree_place *tree;             /* [ranks + 1] of VERDICT, each behind the one it hears from */
    heti_p_ring *ring;                /* [3 rings] REDUCE, then GATHER, block by block; then STEP: the owners,
                                         which have parts where there are several updates */
    int64_t *ring_order;              /* those that are timed together, by when they were ready */
    int64_t *cluster;                 /* [ranks + 1] of the one that is timed: numbers of parts, then all */
    heti_t_list turns;                /* with room for all, the earliest first: rings that are complete and not
                                         yet timed */
    heti_p_part *part;
    double *slice_rest;               /* [slices + 1] shares of each and of those behind it; one alone has 1 */
    int processes;                    /* 1: some groups are one */
    heti_p_wire *wire;                /* [3 groups] */
    int64_t *path;                    /* [links][most_wires] */
    int64_t *loaded;                  /* [3 groups] wires with a load */
    heti_p_half *half;                /* [2 cells] of input, of gradient; none with HET_TRANSFER_FREE */
    het_transfer transfer;
    heti_t_list messages;             /* on shared wires, the earliest first */
    het_simulation *result;           /* a block of its own, with the records */
    het_record *record;
    void *user;
} heti_p_sim;

static void heti_p_sim_cut(void *self, heti_t_arena *arena) {
    heti_p_sim *s = HETI_T_CAST(heti_p_sim *, self);
    const int64_t timed = heti_p_min(2 * s->rings, s->parts); /* rings that some rank has */
    s->stage = HETI_T_TAKE(arena, heti_p_stage, s->stages);
    s->cell = HETI_T_TAKE(arena, heti_p_cell, s->cells);
    s->link = HETI_T_TAKE(arena, heti_p_link, 2 * s->stages);
    s->rank = HETI_T_TAKE(arena, heti_p_rank, s->ranks);
    s->ready = HETI_T_TAKE(arena, int64_t, s->ranks);
    s->tree = HETI_T_TAKE(arena, het_tree_place, s->ranks + 1);
    s->ring = HETI_T_TAKE(arena, heti_p_ring, 3 * s->rings);
    s->ring_order = HETI_T_TAKE(arena, int64_t, timed);
    s->cluster = HETI_T_TAKE(arena, int64_t, s->ranks + 1);
    s->turns.size = HETI_T_CAST(size_t, timed) * sizeof(heti_p_event);
    s->turns.data = HETI_T_CAST(char *, heti_t_take(arena, timed, sizeof(heti_p_event)));
    s->part = HETI_T_TAKE(arena, heti_p_part, s->parts);
    s->slice_rest = HETI_T_TAKE(arena, double, s->slices + 1);
    s->wire = HETI_T_TAKE(arena, heti_p_wire, 3 * s->groups);
    s->loaded = HETI_T_TAKE(arena, int64_t, 3 * s->groups);
    s->half = HETI_T_TAKE(arena, heti_p_half, s->transfer != HET_TRANSFER_FREE ? 2 * s->cells : 0);
    s->path = HETI_T_TAKE(arena, int64_t, 2 * s->stages * s->most_wires);
}

static void heti_p_result_cut(void *self, heti_t_arena *arena) {
    heti_p_sim *s = HETI_T_CAST(heti_p_sim *, self);
    s->result = HETI_T_TAKE(arena, het_simulation, 1);
    het_rank_time *rank = HETI_T_TAKE(arena, het_rank_time, s->ranks);
    s->record = HETI_T_TAKE(arena, het_record, s->keep ? s->records : 0);
    if (s->result != NULL) s->result->rank = rank;
}

/* ---- what was given ---- */

/* "het_simulate: rank 2, action 17 (2F3): " and what is wrong with it. */
static het_result heti_p_sim_fail(const heti_p_sim *s, int64_t rank, int64_t at, const char *what) {
    char action[80];
    return HETI_P_BAD(s, "het_simulate: rank %d, action %d (%s): %s", rank,
                      at - s->schedule->start[heti_p_leader(s->plan, rank)],
                      heti_t_action_text(action, &s->schedule->action[at]), what);
}

#define HETI_P_NEVER 1e308 /* later than any sum of times */

static void heti_p_at_least(double *value, double other) {
    if (other > *value) *value = other;
}

static int64_t heti_p_whole_bytes(double bytes) {
    return bytes < 9e18 ? HETI_T_CAST(int64_t, bytes + 0.5) : INT64_MAX;
}

static const het_rank_cost *heti_p_rank_cost(const heti_p_sim *s, int64_t r) {
    static const het_rank_cost heti_p_none = { 0, 0, 0, 0, 1, 0, 0, 0 };
    return s->costs->rank != NULL ? &s->costs->rank[r] : &heti_p_none;
}

static int64_t heti_p_stage_of(const heti_p_sim *s, const het_action *a) {
    return s->plan->first_stage[a->pipeline] + a->stage;
}

/* Where stage g has the action's micro-batch and slice. */
static int64_t heti_p_cell_of(const heti_p_sim *s, int64_t g, const het_action *a) {
    return s->stage[g].cell + a->micro_batch * s->slices + a->slice;
}

/* The doubles that are the first `size` bytes of the costs of something are times. */
static het_result heti_p_sim_times(heti_p_sim *s, const char *what, int64_t number, const void *costs, size_t size) {
    double value;
    for (size_t i = 0; i < size; i += sizeof value) {
        memcpy(&value, HETI_T_CAST(const char *, costs) + i, sizeof value);
        if (!heti_t_is_time(value))
            return HETI_P_BAD(s, "het_simulate: a cost of %s %d is negative or not finite", what, number);
    }
    return HET_OK;
}

static het_result heti_p_sim_stage_costs(heti_p_sim *s) {
    const het_stage_cost *member = s->costs->member;
    int64_t count;
    for (int64_t i = 0; i < s->plan->stages; i++) {
        HETI_T_TRY(heti_p_sim_times(s, "stage", i, &s->costs->stage[i], sizeof *s->costs->stage));
        (void)het_plan_team(s->plan, s->plan->stage[i].rank, &count);
        for (int64_t k = 0; k < count && count > 1 && member != NULL; k++, member++)
            HETI_T_TRY(heti_p_sim_times(s, "stage", i, member, sizeof *member));
    }
    return HET_OK;
}

static het_result heti_p_sim_sizes(heti_p_sim *s) {
    static const char *const heti_p_names[3] = { "tokens", "pairs", "sequences" };
    const double *const sizes[3] = { s->costs->tokens, s->costs->pairs, s->costs->sequences };
    int64_t n = 0;
    for (int64_t i = 0; i < s->plan->pipelines; i++) n += s->schedule->micro_batches[i];
    for (int k = 0; k < 3; k++)
        for (int64_t i = 0; i < n && sizes[k] != NULL; i++)
            if (!heti_t_is_time(sizes[k][i]) || (k == 2 && !(sizes[k][i] > 0 && sizes[k][i] <= 1e15)))
                return HETI_P_BAD(s, "het_simulate: micro-batch %d has %e %s: negative, not finite or no size", i,
                                  sizes[k][i], heti_p_names[k]);
    return HET_OK;
}

/* Groups come behind their parents, so of two groups the one with the higher number is never the
   other's ancestor. */
static het_result heti_p_sim_groups(heti_p_sim *s) {
    const het_costs *costs = s->costs;
    int64_t deepest = 0;
    int shared = 0;
    if (costs->group == NULL) return HET_OK;
    if (costs->groups < 1 || costs->rank_group == NULL)
        return HETI_P_BAD(s, "het_simulate: %d groups, and rank_group is %s", costs->groups,
                          costs->rank_group != NULL ? "given" : "NULL");
    for (int64_t i = 0; i < costs->groups; i++) {
        const het_group *g = &costs->group[i];
        int64_t depth = 1, up = g->parent;
        if (g->parent >= i || g->parent < -1)
            return HETI_P_BAD(s, "het_simulate: group %d has parent %d, which does not come before it", i, g->parent);
        HETI_T_TRY(heti_p_sim_times(s, "group", i, &g->latency, 4 * sizeof g->latency)); /* bandwidth, bus, uplink */
        for (; up >= 0 && depth <= HETRAIN_COMMUNICATOR_DEPTH; depth++) up = costs->group[up].parent;
        if (depth > HETRAIN_COMMUNICATOR_DEPTH)
            return heti_t_fail(s->error, HET_ERR_LIMIT, "het_simulate: group %d is nested more than %i deep", i,
                               HETRAIN_COMMUNICATOR_DEPTH);
        deepest = heti_p_max(deepest, depth);
        shared |= g->bus > 0 || g->uplink > 0;
        s->processes |= g->process != 0;
    }
    for (int64_t i = 0; i < s->ranks; i++)
        if (costs->rank_group[i] < 0 || costs->rank_group[i] >= costs->groups)
            return HETI_P_BAD(s, "het_simulate: rank %d is in group %d of %d", i, costs->rank_group[i], costs->groups);
    s->groups = costs->groups;
    s->most_wires = shared ? 2 * deepest + 1 : 0;
    return HET_OK;
}

static het_result heti_p_sim_costs(heti_p_sim *s) {
    const het_costs *costs = s->costs;
    if (costs->start_canary != 0 || costs->end_canary != 0)
        return HETI_P_BAD(s, "het_simulate: het_costs was not cleared");
    if (costs->stage == NULL || costs->blocks < 0)
        return HETI_P_BAD(s, "het_simulate: costs of stages are missing, or %d blocks", costs->blocks);
    s->transfer = costs->transfer;
    if (s->transfer < HET_TRANSFER_FREE || s->transfer > HET_TRANSFER_BLOCKING || !heti_t_is_time(costs->eager))
        return HETI_P_BAD(s, "het_simulate: no such transfer: %i, or eager is %e", s->transfer, costs->eager);
    if (s->transfer != HET_TRANSFER_FREE && !s->schedule->complete)
        return HETI_P_BAD(s, "het_simulate: transfer %i needs lists with SEND and RECV", s->transfer);
    HETI_T_TRY(heti_p_sim_stage_costs(s));
    HETI_T_TRY(heti_p_sim_sizes(s));
    for (int64_t i = 0; i < s->ranks && costs->rank != NULL; i++)
        HETI_T_TRY(heti_p_sim_times(s, "rank", i, &costs->rank[i], offsetof(het_rank_cost, beside)));
    for (int64_t i = 0; i < costs->blocks && costs->block != NULL; i++)
        HETI_T_TRY(heti_p_sim_times(s, "block", i, &costs->block[i], sizeof *costs->block));
    return heti_p_sim_groups(s);
}

/* The link between two different ranks; what it costs is only looked at where it is used. path:
   [most_wires] the wires that it crosses, *wires of them; or NULL. */
static het_result heti_p_link_cost(const heti_p_sim *s, int64_t from, int64_t to, het_link_cost *cost, int64_t *path,
                                   int64_t *wires) {
    const het_group *group = s->costs->group;
    int64_t a, b, n = 0, end = s->most_wires;
    *cost = s->costs->link != NULL ? s->costs->link[from * s->ranks + to] : s->costs->every_link;
    if (!heti_t_is_time(cost->latency) || !heti_t_is_time(cost->bandwidth))
        return HETI_P_BAD(s, "het_simulate: a cost of the link from rank %d to %d is negative or not finite", from, to);
    if (s->groups == 0) return HET_OK;
    for (a = s->costs->rank_group[from], b = s->costs->rank_group[to]; a != b && a >= 0 && b >= 0;) {
        const int out = a > b;
        int64_t *g = out ? &a : &b;
        if (path != NULL && group[*g].uplink > 0) path[out ? n++ : --end] = 3 * *g + !out;
        *g = group[*g].parent;
    }
    if (a < 0 || b < 0) return HETI_P_BAD(s, "het_simulate: ranks %d and %d have no group in common", from, to);
    if (s->costs->link == NULL) {
        cost->latency = group[a].latency;
        cost->bandwidth = group[a].bandwidth;
    }
    if (path == NULL) return HET_OK;
    if (group[a].bus > 0) path[n++] = 3 * a + 2;
    while (end < s->most_wires) path[n++] = path[end++]; /* inwards: the outermost first */
    *wires = n;
    return HET_OK;
}

/* F, B and I may receive and, in lists without transfers, send; a RECV is recorded where it is
   waited for. */
static int64_t heti_p_record_room(const heti_p_sim *s, int32_t kind) {
    if (s->transfer == HET_TRANSFER_BLOCKING) return 1;
    return kind <= HET_ACTION_I ? s->schedule->complete ? 2 : 3 : !heti_t_is_receive(kind);
}

/* What is wrong with an action of the lists of rank `leader`; NULL: nothing, its fields are safe
   indices. */
static const char *heti_p_action_fault(const heti_p_sim *s, const het_action *a, int64_t leader) {
    const het_plan *plan = s->plan;
    const int32_t kind = a->kind;
    const int known = a->version >= 0 && a->version < s->updates;
    if (kind >= HET_ACTION_REDUCE) {
        if (a->stage < 0 || a->stage >= (s->costs->block != NULL ? s->costs->blocks : 1 << 20)) return "no such block";
        return known ? NULL : "the plan has no such update";
    }
    if (!known) return "the plan has no such version of the weights";
    if (a->pipeline < 0 || a->pipeline >= plan->pipelines) return "no such pipeline";
    const int64_t stages = plan->first_stage[a->pipeline + 1] - plan->first_stage[a->pipeline];
    if (a->stage < 0 || a->stage >= stages) return "no such stage";
    if (a->micro_batch < 0 || a->micro_batch >= s->schedule->micro_batches[a->pipeline]) return "no such micro-batch";
    if (a->slice < 0 || a->slice >= plan->slices) return "no such slice";
    if (plan->stage[heti_p_stage_of(s, a)].rank != leader) return "the stage is on another rank";
    if (kind >= HET_ACTION_B && kind <= HET_ACTION_TAKE && !het_plan_backward(plan, heti_p_stage_of(s, a)))
        return "the stage has only forward actions";
    if (kind < HET_ACTION_SEND_F) return NULL;
    if (a->stage != (kind == HET_ACTION_SEND_F || kind == HET_ACTION_RECV_B ? stages - 1 : 0))
        return kind < HET_ACTION_SEND_B ||
               het_plan_backward(plan, heti_p_stage_of(s, a) + (kind == HET_ACTION_RECV_B)) == 2 ? NULL :
               "no gradient crosses the cut between these stages";
    return heti_t_is_send(kind) ? "there is no stage to send to" : "there is no stage to receive from";
}

/* Every action is where it may be. Counts records, blocks and parts of rings. */
static het_result heti_p_sim_actions(heti_p_sim *s) {
    const het_schedule *schedule = s->schedule;
    s->blocks = s->costs->block != NULL ? s->costs->blocks : 0;
    for (int64_t r = 0; r < s->ranks; r++) {
        const int64_t leader = heti_p_leader(s->plan, r);
        int done = 0;
        for (int64_t i = schedule->start[r]; i < schedule->start[r + 1] && leader != r; i++)
            if (schedule->action[i].kind != HET_ACTION_COMMIT)
                return HETI_P_BAD(s, "het_simulate: rank %d has a list, and its team that of rank %d", r, leader);
        for (int64_t i = schedule->start[leader]; i < schedule->start[leader + 1]; i++) {
            const het_action *a = &schedule->action[i];
            const char *fault;
            if (a->kind < 0 || a->kind >= HETI_T_KINDS)
                return HETI_P_BAD(s, "het_simulate: rank %d, action %d: no such kind of action: %i", r,
                                  i - schedule->start[leader], a->kind);
            s->records += heti_p_record_room(s, a->kind);
            done |= a->kind == HET_ACTION_COMMIT;
            if (a->kind == HET_ACTION_COMMIT) continue;
            fault = done && leader != r && a->kind < HET_ACTION_REDUCE ? "a team computes or sends behind its VERDICT" :
                heti_p_action_fault(s, a, leader);
            if (fault != NULL) return heti_p_sim_fail(s, r, i, fault);
            if (a->kind < HET_ACTION_REDUCE) continue;
            s->blocks = heti_p_max(s->blocks, HETI_T_CAST(int64_t, a->stage) + 1);
            s->parts += a->kind != HET_ACTION_STEP || s->updates > 1;
        }
    }
    return HET_OK;
}

static het_result heti_p_sim_given(heti_p_sim *s) {
    const het_schedule *schedule = s->schedule;
    HETI_T_TRY(het_plan_check(s->plan, "het_simulate", s->error));
    s->ranks = s->plan->ranks;
    s->stages = s->plan->stages;
    s->slices = s->plan->slices;
    if (schedule->ranks != s->ranks || schedule->pipelines != s->plan->pipelines || schedule->micro_batches == NULL ||
        schedule->start == NULL)
        return HETI_P_BAD(s, "het_simulate: a schedule for %d ranks and %d pipelines, a plan for %d and %d",
                          schedule->ranks, schedule->pipelines, s->ranks, s->plan->pipelines);
    for (int64_t p = 0; p < s->plan->pipelines; p++) {
        int64_t n = schedule->micro_batches[p], stages = s->plan->first_stage[p + 1] - s->plan->first_stage[p];
        if (n < 0 || n > INT32_MAX || n * s->slices > (INT64_MAX - s->cells) / stages)
            return heti_t_fail(s->error, HET_ERR_LIMIT, "het_simulate: pipeline %d has %d micro-batches of %d slices",
                               p, n, s->slices);
        s->cells += n * s->slices * stages;
    }
    for (int64_t r = 0; r < s->ranks; r++)
        if (schedule->start[0] != 0 || schedule->start[r + 1] < schedule->start[r])
            return HETI_P_BAD(s, "het_simulate: schedule->start[%d] is %d", r + 1, schedule->start[r + 1]);
    if (schedule->start[s->ranks] > 0 && schedule->action == NULL)
        return HETI_P_BAD(s, "het_simulate: schedule->action is NULL");
    if (schedule->start[s->ranks] > INT64_MAX / 4)
        return heti_t_fail(s->error, HET_ERR_LIMIT, "het_simulate: %d actions", schedule->start[s->ranks]);
    s->updates = 1; /* where no stage has more a step is synchronous */
    for (int64_t g = 0; g < s->stages && s->plan->updates > s->updates; g++)
        s->updates = heti_p_max(s->updates, heti_p_min(heti_p_gear(s->plan, &s->plan->stage[g]), s->plan->updates));
    HETI_T_TRY(heti_p_sim_costs(s));
    HETI_T_TRY(heti_p_sim_actions(s));
    s->rings = s->blocks * s->updates;
    return HET_OK;
}

/* ---- teams ---- */

/* The rows of a rank's place in its team, in parts of the team's; all, where it is alone. */
static void heti_p_rows(const het_team_member *team, int64_t members, int64_t member, double row[2]) {
    double all = 0, before = 0;
    row[0] = 0;
    row[1] = 1;
    if (team == NULL) return;
    for (int64_t i = 0; i < members; i++) {
        if (i < member) before += team[i].share;
        all += team[i].share;
    }
    row[0] = before / all;
    row[1] = member + 1 == members ? 1 : (before + team[member].share) / all;
}

static double heti_p_common(const double a[2], const double b[2]) {
    const double low = a[0] > b[0] ? a[0] : b[0], high = a[1] < b[1] ? a[1] : b[1];
    return high > low ? high - low : 0;
}

/* The link between two stages as one: as slow as the slowest piece that goes from a member to
   another. */
static het_result heti_p_team_link(const heti_p_sim *s, int64_t from, int64_t to, het_link_cost *cost) {
    int64_t senders, receivers;
    const het_team_member *sender = het_plan_team(s->plan, from, &senders),
                          *receiver = het_plan_team(s->plan, to, &receivers);
    double each = 0;
    if (sender == NULL && receiver == NULL) return HET_OK;
    cost->latency = 0;
    for (int64_t i = 0; i < senders; i++)
        for (int64_t j = 0; j < receivers; j++) {
            het_link_cost link;
            double rows[2], others[2], common;
            heti_p_rows(sender, senders, i, rows);
            heti_p_rows(receiver, receivers, j, others);
            common = heti_p_common(rows, others);
            if (!(common > 0)) continue;
            HETI_T_TRY(heti_p_link_cost(s, sender != NULL ? sender[i].rank : from,
                                        receiver != NULL ? receiver[j].rank : to, &link, NULL, NULL));
            heti_p_at_least(&cost->latency, link.latency);
            if (link.bandwidth > 0) heti_p_at_least(&each, common / link.bandwidth);
        }
    cost->bandwidth = each > 0 ? 1 / each : 0;
    return HET_OK;
}

/* ---- tables made from it ---- */

static het_result heti_p_sim_link(heti_p_sim *s, int64_t from, int64_t to, int64_t *link) {
    int64_t *const first = &s->rank[from].first_link;
    heti_p_link *made = &s->link[s->links];
    *link = -1;
    if (to < 0 || to == from) return HET_OK;
    for (*link = *first; *link >= 0 && s->link[*link].to != to; *link = s->link[*link].next) {}
    if (*link >= 0) return HET_OK;
    made->to = to, made->next = *first, made->first_wire = s->links * s->most_wires;
    *first = *link = s->links++;
    HETI_T_TRY(heti_p_link_cost(s, from, to, &made->cost, s->path + made->first_wire, &made->wires));
    return heti_p_team_link(s, from, to, &made->cost);
}

/* A stage of a rank that has n of them in the pipeline counts 1 / n. So that sums stay exact,
   everything is multiplied by the least common multiple of a rank's n, and divided by it (and by
   the sum of slice shares) in the end. */
static void heti_p_sim_weights(heti_p_sim *s) {
    for (int64_t r = 0; r < s->ranks; r++) s->rank[r].unit = 1;
    for (int64_t g = 0; g < s->stages; g++) s->stage[s->stage[g].lane].weight++; /* n, for now */
    for (int64_t g = 0; g < s->stages; g++) {
        heti_p_rank *rank = &s->rank[s->stage[g].rank];
        const int64_t n = HETI_T_CAST(int64_t, s->stage[s->stage[g].lane].weight);
        int64_t a = n, b = HETI_T_CAST(int64_t, rank->unit);
        while (b != 0) { int64_t rest = a % b; a = b; b = rest; }
        rank->unit *= HETI_T_CAST(double, n / a);
        if (rank->unit > 1e9) rank->unit = 1e9; /* no longer exact */
    }
    for (int64_t g = s->stages - 1; g >= 0; g--)
        s->stage[g].weight = s->rank[s->stage[g].rank].unit / s->stage[s->stage[g].lane].weight;
}

/* All ranks of a stage of pipeline p take its micro-batches, of which `first` is the first. */
static het_result heti_p_sim_limit(const heti_p_sim *s, const heti_p_stage *stage, int64_t p, int64_t first) {
    for (int64_t i = 0; i < stage->members; i++) {
        const int64_t rank = stage->team != NULL ? stage->team[i].rank : stage->rank;
        const double most = heti_p_rank_cost(s, rank)->max_tokens;
        for (int64_t m = 0; m < stage->micro_batches && most > 0 && stage->tokens != NULL; m++)
            if (stage->tokens[m] > most)
                return heti_t_fail(s->error, HET_ERR_LIMIT, "het_simulate: micro-batch %d: %g tokens; it falls to "
                                   "pipeline %d, and max_tokens of rank %d there is %g", first + m, stage->tokens[m],
                                   p, rank, most);
    }
    return HET_OK;
}

static het_result heti_p_sim_stages(heti_p_sim *s) {
    const het_plan *plan = s->plan;
    const het_stage_cost *member = s->costs->member;
    int64_t cell = 0, micro_batch = 0;
    for (int64_t p = 0; p < plan->pipelines; p++) {
        for (int64_t g = plan->first_stage[p]; g < plan->first_stage[p + 1]; g++) {
            heti_p_stage *stage = &s->stage[g];
            heti_p_rank *rank = &s->rank[plan->stage[g].rank];
            stage->rank = plan->stage[g].rank;
            stage->next = -1;
            stage->lane = rank->last_stage >= plan->first_stage[p] ? s->stage[rank->last_stage].lane : g;
            if (rank->first_stage < 0) rank->first_stage = g;
            else s->stage[rank->last_stage].next = g;
            rank->last_stage = g;
            stage->before = g > plan->first_stage[p] ? plan->stage[g - 1].rank : -1;
            stage->after = g + 1 < plan->first_stage[p + 1] ? plan->stage[g + 1].rank : -1;
            stage->cell = cell;
            stage->micro_batches = s->schedule->micro_batches[p];
            stage->tokens = s->costs->tokens != NULL ? s->costs->tokens + micro_batch : NULL;
            stage->pairs = s->costs->pairs != NULL ? s->costs->pairs + micro_batch : NULL;
            stage->sequences = s->costs->sequences != NULL ? s->costs->sequences + micro_batch : NULL;
            stage->cost = &s->costs->stage[g];
            stage->team = het_plan_team(plan, stage->rank, &stage->members);
            stage->member = member;
            if (stage->members == 1) stage->team = NULL;
            else if (member != NULL) member += stage->members;
            HETI_T_TRY(heti_p_sim_limit(s, stage, p, micro_batch));
            stage->backward = het_plan_backward(plan, g);
            stage->gradient = stage->after >= 0 && het_plan_backward(plan, g + 1) == 2 ? stage->after : -1;
            HETI_T_TRY(heti_p_sim_link(s, stage->rank, stage->backward == 2 ? stage->before : -1, &stage->link_before));
            HETI_T_TRY(heti_p_sim_link(s, stage->rank, stage->after, &stage->link_after));
            cell += stage->micro_batches * s->slices;
        }
        micro_batch += s->schedule->micro_batches[p];
    }
    return HET_OK;
}

static int64_t heti_p_ring_index(const heti_p_sim *s, const het_action *a) {
    return a->stage * s->updates + a->version +
        (a->kind == HET_ACTION_STEP ? 2 * s->rings : a->kind == HET_ACTION_GATHER ? s->rings : 0);
}

/* Which process a rank is in: the innermost group that is one; a number of its own where there is
   none; all the same where no group is one. */
static int64_t heti_p_process(const heti_p_sim *s, int64_t r) {
    int64_t g = s->processes ? s->costs->rank_group[r] : -1;
    while (g >= 0 && !s->costs->group[g].process) g = s->costs->group[g].parent;
    return g >= 0 ? g : s->processes ? -2 - r : -1;
}

static int heti_p_keeps(const het_plan *plan, int64_t rank) { return plan->keeper != NULL && plan->keeper[rank] != 0; }

/* What part of a block a rank has sums of, and uses weights of. */
static double heti_p_used(const heti_p_sim *s, int64_t rank, double columns) {
    int64_t count, m = 0;
    const het_team_member *team = het_plan_team(s->plan, rank, &count);
    double row[2];
    if (heti_p_keeps(s->plan, rank)) return 0;
    if (team == NULL || team->columns == 0) return 1;
    while (team[m].rank != rank) m++;
    heti_p_rows(team, count, m, row);
    return 1 - columns * (1 - (row[1] - row[0]));
}

/* What each part of a block's REDUCE or GATHER sends or gets, the more of both, where not all have
   all of it (hetrain.h, >>flow): all but their own or, between near sets, what one holds of its
   set's. */
static void heti_p_ring_divided(const heti_p_sim *s, heti_p_ring *ring, double bytes) {
    const double columns = s->costs->block[ring->block].columns;
    const het_plan *plan = s->plan;
    heti_p_part *part = s->part + ring->first;
    const int weights = plan->shard == HET_SHARD_WEIGHTS;
    const int64_t n = ring->wanted;
    double workers = 0, used = 0, sets = 0;
    int64_t k;
    for (int64_t i = 0; i < n; i++) {
        workers += !heti_p_keeps(plan, part[i].rank);
        used += heti_p_used(s, part[i].rank, columns);
    }
    ring->divided = weights || used < HETI_T_CAST(double, n) || (!ring->gather && plan->shard == HET_SHARD_GRADIENTS);
    if (!ring->divided || (!ring->gather && plan->shard >= HET_SHARD_GRADIENTS)) return; /* it left behind the calls */
    for (int64_t i = 0; i < n && weights && plan->near != NULL; i++) {
        for (k = 0; k < i && (plan->near[part[k].rank] != plan->near[part[i].rank] ||
                              heti_p_keeps(plan, part[k].rank)); k++) {}
        sets += k == i && !heti_p_keeps(plan, part[i].rank);
    }
    if (weights && sets < 2) return; /* it comes before the next calls */
    for (int64_t i = 0; i < n; i++) {
        const double own = part[i].share / ring->sum, uses = heti_p_used(s, part[i].rank, columns);
        double others = used - uses, held = uses * (1 - own), set = 0;
        for (k = 0; k < n && weights; k++)
            if (plan->near[part[k].rank] == plan->near[part[i].rank] && !heti_p_keeps(plan, part[k].rank))
                set += part[k].share;
        if (weights) others = sets;
        if (weights && !heti_p_keeps(plan, part[i].rank)) held = set > 0 ? part[i].share / set : sets / workers;
        heti_p_at_least(&held, own * others);
        part[i].moved = 2 * bytes * held;
        heti_p_at_least(&ring->busiest, bytes * held);
    }
}

/* Shares of the block and bytes moved, of each part: all but its own leaves, and all others' of its
   own come; in a ring as many come as leave. */
static void heti_p_ring_parts(heti_p_sim *s, heti_p_ring *ring, double bytes) {
    heti_p_part *part = s->part + ring->first;
    const int64_t n = ring->wanted;
    for (int64_t i = 0; i < n; i++) ring->sum += s->plan->state_share[part[i].rank];
    for (int64_t i = 0; i < n; i++) part[i].share = ring->sum > 0 ? s->plan->state_share[part[i].rank] : 1;
    if (!(ring->sum > 0)) ring->sum = HETI_T_CAST(double, n);
    heti_p_ring_divided(s, ring, bytes);
    for (int64_t i = 0; i < n && n > 1 && !ring->divided; i++) {
        const double leaves = ring->sum - part[i].share, others = part[i].share * HETI_T_CAST(double, n - 1);
        part[i].moved = bytes * (leaves + (s->costs->rings ? leaves : others)) / ring->sum;
    }
}

static double heti_p_ring_bytes(const heti_p_sim *s, const heti_p_ring *ring) {
    const het_block_cost *block = s->costs->block != NULL ? &s->costs->block[ring->block] : NULL;
    return block == NULL ? 0 : ring->gather ? block->gather_bytes : block->reduce_bytes;
}

/* The ranks of every ring and STEP, those whose lists name it: only counted, or its parts. */
static het_result heti_p_ring_ranks(heti_p_sim *s, int counts) {
    for (int64_t r = 0; r < s->ranks; r++)
        for (int64_t i = s->rank[r].at; i < s->rank[r].until; i++) {
            const het_action *a = &s->schedule->action[i];
            if (a->kind < HET_ACTION_REDUCE || a->kind == HET_ACTION_COMMIT) continue;
            heti_p_ring *ring = &s->ring[heti_p_ring_index(s, a)];
            ring->wanted++;
            if (counts && a->kind == HET_ACTION_STEP) ring->sum += s->plan->state_share[r];
            if (counts || (a->kind == HET_ACTION_STEP && s->updates == 1)) continue;
            heti_p_part *part = s->part + ring->first + ring->wanted - 1;
            if (ring->wanted > 1 && part[-1].rank == r) return heti_p_sim_fail(s, r, i, "it comes twice");
            part->rank = r;
        }
    return HET_OK;
}

static het_result heti_p_sim_rings(heti_p_sim *s) {
    int64_t first = 0;
    HETI_T_TRY(heti_p_ring_ranks(s, 1));
    for (int64_t b = 0; b < 3 * s->rings; b++) {
        s->ring[b].first = first;
        s->ring[b].block = HETI_T_CAST(int32_t, b % s->rings / s->updates);
        s->ring[b].gather = b >= s->rings;
        first += s->ring[b].wanted;
        s->ring[b].wanted = 0;
    }
    HETI_T_TRY(heti_p_ring_ranks(s, 0));
    for (int64_t b = 0; b < 2 * s->rings && s->costs->block != NULL && s->updates == 1; b++)
        if (s->ring[b].wanted > 0) heti_p_ring_parts(s, &s->ring[b], heti_p_ring_bytes(s, &s->ring[b]));
    return HET_OK;
}

/* The part of rank r in the ring of its REDUCE or GATHER a. */
static heti_p_part *heti_p_ring_part(heti_p_sim *s, int64_t r, const het_action *a) {
    const heti_p_ring *ring = &s->ring[heti_p_ring_index(s, a)];
    heti_p_part *part = s->part + ring->first;
    int64_t low = 0, high = ring->wanted - 1;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (part[middle].rank < r) low = middle + 1;
        else high = middle;
    }
    return part + low;
}

/* ---- pipelines that are alike: one is simulated, until VERDICT, and the others get its times ----
   Their ranks have no stage of another pipeline, their costs, sizes, links and lists are the same
   but for the number of the pipeline, and no wire is shared. */

static int heti_p_same_link(const heti_p_sim *s, int64_t a, int64_t b) {
    if (a < 0 || b < 0) return a < 0 && b < 0;
    return s->link[a].wires == 0 && s->link[b].wires == 0 &&
        memcmp(&s->link[a].cost, &s->link[b].cost, sizeof s->link[a].cost) == 0;
}

/* Up to VERDICT, or to the end; behind it neither computes nor sends. */
static int heti_p_same_lists(heti_p_sim *s, int64_t r, int64_t other) {
    const het_action *a = &s->schedule->action[s->rank[r].at], *b = &s->schedule->action[s->rank[other].at];
    int64_t n = s->rank[r].until - s->rank[r].at, m = s->rank[other].until - s->rank[other].at, i;
    for (i = 0; i < n && i < m && a[i].kind != HET_ACTION_COMMIT; i++) {
        if (a[i].kind != b[i].kind || a[i].overlap != b[i].overlap || a[i].stage != b[i].stage ||
            a[i].micro_batch != b[i].micro_batch || a[i].slice != b[i].slice || a[i].kind == HET_ACTION_STEP) return 0;
        if (s->costs->rank != NULL && heti_p_is_collective(a[i].kind)) {
            const double x = heti_p_ring_part(s, r, &a[i])->moved, y = heti_p_ring_part(s, other, &b[i])->moved;
            if (x < y || y < x) return 0;
        }
    }
    if (i == n || i == m) return n == m;
    while (n > i && a[n - 1].kind > HET_ACTION_RECV_B) n--;
    while (m > i && b[m - 1].kind > HET_ACTION_RECV_B) m--;
    return b[i].kind == HET_ACTION_COMMIT && n == i && m == i;
}

/* Pipelines p and q are alike. */
static int heti_p_same_pipelines(heti_p_sim *s, int64_t p, int64_t q) {
    const int64_t *first = s->plan->first_stage, stages = first[p + 1] - first[p], n = s->schedule->micro_batches[p];
    const heti_p_stage *begin = &s->stage[first[p]], *others = &s->stage[first[q]];
    const double *const sizes[3][2] = { { begin->tokens, others->tokens }, { begin->pairs, others->pairs },
                                        { begin->sequences, others->sequences } };
    if (first[q + 1] - first[q] != stages || s->schedule->micro_batches[q] != n) return 0;
    for (int k = 0; k < 3; k++)
        if (sizes[k][0] != NULL && memcmp(sizes[k][0], sizes[k][1], HETI_T_CAST(size_t, n) * sizeof(double)) != 0)
            return 0;
    for (int64_t k = 0; k < stages; k++) {
        const heti_p_stage *a = begin + k, *b = others + k;
        const int64_t at = s->rank[a->rank].first_stage - first[p];
        const het_stage *own = &s->plan->stage[first[p] + k], *other = &s->plan->stage[first[q] + k];
        if (own->keep != other->keep || own->recompute != other->recompute) return 0;
        if (memcmp(a->cost, b->cost, sizeof *a->cost) != 0 || !heti_p_same_link(s, a->link_before, b->link_before) ||
            !heti_p_same_link(s, a->link_after, b->link_after) || a->backward != b->backward ||
            (a->gradient < 0) != (b->gradient < 0)) return 0;
        if (memcmp(heti_p_rank_cost(s, a->rank), heti_p_rank_cost(s, b->rank), sizeof *s->costs->rank) != 0) return 0;
        if (s->rank[b->rank].first_stage - first[q] != at) return 0;
        if (at == k && !heti_p_same_lists(s, a->rank, b->rank)) return 0;
    }
    return 1;
}

static void heti_p_sim_twins(heti_p_sim *s) {
    enum { HETI_P_MOST_UNLIKE = 8 };
    const int64_t *first = s->plan->first_stage;
    int64_t unlike[HETI_P_MOST_UNLIKE], count = 0, g, i;
    if (s->plan->pipelines == 1 || s->updates > 1) return;
    for (int64_t p = 0; p < s->plan->pipelines; p++) {
        for (g = first[p]; g < first[p + 1] && s->stage[g].team == NULL &&
             s->rank[s->stage[g].rank].first_stage >= first[p] &&
             s->rank[s->stage[g].rank].last_stage < first[p + 1]; g++) {}
        if (g < first[p + 1]) continue;
        for (i = 0; i < count && !heti_p_same_pipelines(s, unlike[i], p); i++) {}
        if (i == count && count < HETI_P_MOST_UNLIKE) unlike[count++] = p;
        else if (i < count)
            for (g = first[p]; g < first[p + 1]; g++)
                s->rank[s->stage[g].rank].twin = s->stage[first[unlike[i]] + g - first[p]].rank;
    }
}

static het_result heti_p_sim_start(heti_p_sim *s) {
    int64_t r, record = 0, count;
    memset(s->tables.base, 0, s->tables.size);
    for (r = 0; r < s->ranks; r++) {
        const het_team_member *team = het_plan_team(s->plan, r, &count);
        const int64_t leader = team != NULL ? team->leader : r;
        heti_p_rank *rank = &s->rank[r];
        for (int64_t i = 0; i < count; i++)
            heti_p_at_least(&rank->clock, heti_p_rank_cost(s, team != NULL ? team[i].rank : r)->begin);
        rank->at = s->schedule->start[leader];
        rank->until = s->schedule->start[leader + 1];
        rank->record = rank->first_record = record;
        rank->twin = rank->first_stage = rank->last_stage = rank->first_link = -1;
        for (int64_t i = rank->at; i < rank->until && s->keep; i++)
            record += heti_p_record_room(s, s->schedule->action[i].kind);
        rank->out[0] = rank->out[1] = -1;
        const het_rank_time time = { rank->clock > 0 ? 0 : -1.0, rank->clock, rank->clock, 0, 0, 0, 0, 0, -1, 0, -1 };
        s->result->rank[r] = time;
    }
    s->links = 0;
    for (int64_t c = 0; c < s->cells; c++) s->cell[c].there[0] = s->cell[c].there[1] = -1;
    for (int64_t c = 0; c < 3 * s->groups; c++)
        s->wire[c].bandwidth = c % 3 == 2 ? s->costs->group[c / 3].bus : s->costs->group[c / 3].uplink;
    for (int64_t c = s->slices - 1; c >= 0; c--) /* from the end: what a small one adds must not be lost */
        s->slice_rest[c] = s->slice_rest[c + 1] + (s->slices > 1 ? s->plan->slice_share[c] : 1);
    HETI_T_TRY(heti_p_sim_stages(s));
    heti_p_sim_weights(s);
    HETI_T_TRY(heti_p_sim_rings(s));
    heti_p_sim_twins(s);
    for (const het_team_member *m = s->plan->member; m < s->plan->member + s->plan->members; m++)
        if (m->rank != m->leader) s->rank[m->rank].twin = m->leader;
    for (s->ready_count = 0, r = s->ranks - 1; r >= 0; r--)
        if (s->rank[r].twin < 0) s->ready[s->ready_count++] = r;
    return HET_OK;
}

/* ---- running ---- */

/* How many slices of an action's micro-batch, its first, have no rows (het_plan.slice_tokens). */
static int64_t heti_p_sim_first(const heti_p_sim *s, const heti_p_stage *stage, const het_action *a) {
    const double few = HETI_T_CAST(double, s->plan->slice_tokens);
    if (stage->tokens == NULL || stage->tokens[a->micro_batch] >= few * HETI_T_CAST(double, s->slices)) return 0;
    return heti_p_min(s->slices - 1, s->slices - HETI_T_CAST(int64_t, stage->tokens[a->micro_batch] / few));
}

/* What lists say of it is left out. */
static int heti_p_sim_lacks(const heti_p_sim *s, const het_action *a) {
    return s->plan->slice_tokens > 0 && a->kind <= HET_ACTION_RECV_B &&
           a->slice < heti_p_sim_first(s, &s->stage[heti_p_stage_of(s, a)], a);
}

/* The others' shares. */
static double heti_p_sim_shares(const heti_p_sim *s, const heti_p_stage *stage, const het_action *a) {
    return s->slice_rest[heti_p_sim_first(s, stage, a)];
}

/* What of a micro-batch's tokens is in a slice, times `each`. */
static double heti_p_sim_tokens(const heti_p_sim *s, const heti_p_stage *stage, const het_action *a, double each) {
    if (stage->tokens != NULL) each *= stage->tokens[a->micro_batch];
    if (s->slices == 1) return each;
    return each * s->plan->slice_share[a->slice] / heti_p_sim_shares(s, stage, a);
}

/* Whether a slice recomputes; whether it does where others of its stage keep all. */
static int heti_p_recomputes(const heti_p_sim *s, const heti_p_stage *stage, const het_action *a) {
    const het_stage *at = &s->plan->stage[stage - s->stage];
    return at->recompute != 0 && (a->slice >= 64 || (at->keep >> a->slice & 1) == 0);
}
static int heti_p_is_lean(const heti_p_sim *s, const heti_p_stage *stage, const het_action *a) {
    return s->plan->stage[stage - s->stage].keep != 0 && heti_p_recomputes(s, stage, a);
}

/* Pairs of the queries before `end` of causal sequences of the same length, all in units of slice
   shares. */
static double heti_p_pairs_before(double end, double length) {
    double whole = HETI_T_CAST(double, HETI_T_CAST(int64_t, end / length)), rest = end - whole * length;
    return whole * length * length + rest * rest;
}

static double heti_p_sim_pairs(const heti_p_sim *s, const heti_p_stage *stage, const het_action *a, double each) {
    const double all = heti_p_sim_shares(s, stage, a);
    double length = all;
    each *= stage->pairs[a->micro_batch];
    if (s->slices == 1) return each;
    if (stage->sequences != NULL) length /= stage->sequences[a->micro_batch];
    return each * (heti_p_pairs_before(all - s->slice_rest[a->slice + 1], length) -
        heti_p_pairs_before(all - s->slice_rest[a->slice], length)) / heti_p_pairs_before(all, length);
}

/* Whether an action takes what het_stage_cost.again says. */
static int heti_p_is_again(const heti_p_sim *s, const heti_p_stage *stage, const het_action *a) {
    return (a->kind == HET_ACTION_B || a->kind == HET_ACTION_I) && heti_p_is_lean(s, stage, a);
}

/* What an action of the stage takes, at these costs. */
static het_cost heti_p_curve(const heti_p_sim *s, const heti_p_stage *stage, const het_stage_cost *cost,
                             const het_action *a) {
    het_cost curve = a->kind == HET_ACTION_F ? cost->forward : a->kind == HET_ACTION_B ? cost->backward :
        a->kind == HET_ACTION_I ? cost->input : cost->weight;
    if (!heti_p_is_again(s, stage, a)) return curve;
    curve.base += cost->again.base;
    curve.token += cost->again.token;
    curve.pair += cost->again.pair;
    return curve;
}

/* ---- what a team takes ---- */

/* A member's part of a slice: its rows and its group's in parts of the micro-batch, the first row
   that the group's queries see, which of the heads it has. */
typedef struct heti_p_share { double row[2], group[2], head[2], first, pairs; } heti_p_share;

/* Rows are cut where a granule begins; those of a team by columns stand for parts of products. */
static double heti_p_border(double row, double granules) {
    if (!(granules > 0 && row * granules < 1e15)) return row; /* anywhere */
    return HETI_T_CAST(double, HETI_T_CAST(int64_t, row * granules + 1 - 1e-9)) / granules;
}

static void heti_p_team_shares(const heti_p_sim *s, const heti_p_stage *stage, const het_action *a,
                               heti_p_share *share) {
    const het_team_member *team = stage->team;
    const double all = heti_p_sim_shares(s, stage, a), begin = (all - s->slice_rest[a->slice]) / all,
                 part = (all - s->slice_rest[a->slice + 1]) / all - begin,
                 sequences = stage->sequences != NULL ? stage->sequences[a->micro_batch] : 1, length = 1 / sequences,
                 tokens = stage->tokens != NULL && team->columns == 0 ? stage->tokens[a->micro_batch] : 0,
                 each = s->costs->granule > 0 ? heti_p_border(tokens * length / s->costs->granule, 1) : 0,
                 granules = sequences * each;
    int64_t k;
    for (int64_t m = 0; m < stage->members; m = k) {
        double heads = 0, before = 0, seen;
        for (k = m; k < stage->members && team[k].group == team[m].group; k++) {
            heti_p_rows(team, stage->members, k, share[k].row);
            for (int i = 0; i < 2; i++) share[k].row[i] = heti_p_border(begin + part * share[k].row[i], granules);
            heads += HETI_T_CAST(double, team[k].heads);
        }
        for (int64_t i = m; i < k; i++) {
            heti_p_share *to = &share[i];
            to->group[0] = share[m].row[0];
            to->group[1] = share[k - 1].row[1];
            to->head[0] = k - m > 1 ? before / heads : 0;
            before += HETI_T_CAST(double, team[i].heads);
            to->head[1] = k - m > 1 ? before / heads : 1;
            /* rounding must not make a sequence's first row the last of the one before */
            to->first = length * HETI_T_CAST(double, HETI_T_CAST(int64_t, to->group[0] / length + 1e-9));
            if (to->first > to->group[0] || team[stage->members - 1].group == 0) to->first = to->group[0];
            seen = heti_p_pairs_before(to->group[1], length) - heti_p_pairs_before(to->group[0], length);
            to->pairs = seen / heti_p_pairs_before(1, length) * (to->head[1] - to->head[0]);
        }
    }
}

/* Without exchanges. core: at least its part for pairs. */
static double heti_p_member_seconds(const heti_p_sim *s, const heti_p_stage *stage, const het_action *a,
                                    int64_t member, const heti_p_share *share, double *core) {
    const het_cost curve = heti_p_curve(s, stage, stage->member != NULL ? &stage->member[member] : stage->cost, a);
    const double tokens = stage->tokens != NULL ? stage->tokens[a->micro_batch] : 1,
                 pairs = stage->pairs != NULL ? curve.pair * stage->pairs[a->micro_batch] * share[member].pairs : 0;
    heti_p_at_least(core, pairs);
    return curve.base + curve.token * tokens * (share[member].row[1] - share[member].row[0]) + pairs;
}

/* What goes from member i to member j: queries of j's core, its keys, or, -1, gradients of keys of
   earlier rows that group j + 1 hands to j. In parts of the micro-batch's rows and all heads. */
static double heti_p_piece(const heti_p_stage *stage, const heti_p_share *share, int what, int64_t i, int64_t j) {
    const double head = share[j].head[1] - share[j].head[0];
    double want[2];
    want[0] = what == 1 ? share[j].first : share[j].group[0];
    want[1] = share[j].group[1];
    if (what >= 0) return share[j].group[1] > share[j].group[0] ? heti_p_common(share[i].row, want) * head : 0;
    if (stage->team[i].group != stage->team[j].group + 1) return 0;
    return (share[i].group[0] - share[i].first) * heti_p_common(share[i].head, share[j].head);
}

/* Moves `count` tensors of `bytes` together: a latency each, the most that leaves a member, or
   comes, and what a member copies, of what stays with it too. group: those of group `group` and the
   one behind alone; -1: all. */
static het_result heti_p_move(const heti_p_sim *s, const heti_p_stage *stage, const heti_p_share *share, int what,
                              double count, double bytes, int64_t group, double *seconds) {
    double ways[2][HETRAIN_MAX_TEAM] = { { 0 } }, copied[HETRAIN_MAX_TEAM] = { 0 }, latency = 0, copies = 0;
    *seconds = 0;
    for (int64_t i = 0; i < stage->members; i++)
        for (int64_t j = 0; j < stage->members; j++) {
            const double piece = bytes * heti_p_piece(stage, share, what, i, j);
            het_link_cost link;
            if (!(piece > 0) || (group >= 0 && stage->team[j].group != group)) continue;
            copied[i] += piece;
            if (i == j) continue;
            copied[j] += piece;
            HETI_T_TRY(heti_p_link_cost(s, stage->team[i].rank, stage->team[j].rank, &link, NULL, NULL));
            heti_p_at_least(&latency, link.latency);
            if (!(link.bandwidth > 0)) continue;
            ways[0][i] += piece / link.bandwidth;
            ways[1][j] += piece / link.bandwidth;
        }
    for (int64_t i = 0; i < stage->members; i++) {
        const het_stage_cost *own = stage->member != NULL ? &stage->member[i] : stage->cost;
        for (int64_t j = 0; j < 2; j++) heti_p_at_least(seconds, ways[j][i]);
        heti_p_at_least(&copies, copied[i] * own->columns.kept_byte);
    }
    *seconds += count * latency + copies;
    return HET_OK;
}

/* The exchanges of an F, B or I. */
static het_result heti_p_team_moves(const heti_p_sim *s, const heti_p_stage *stage, const het_action *a,
                                    const heti_p_share *share, double *sum) {
    const double tokens = stage->tokens != NULL ? stage->tokens[a->micro_batch] : 1,
                 count = stage->cost->attentions - (stage->team->columns != 0 ? stage->cost->columns.divided : 0),
                 part = count > 0 ? count / stage->cost->attentions : 0, query = part * tokens * stage->cost->query,
                 key = part * tokens * stage->cost->key;
    const int again = heti_p_recomputes(s, stage, a), forward = a->kind == HET_ACTION_F;
    double seconds, before = 0, most = 0;
    *sum = 0;
    if (!(count > 0) || a->kind == HET_ACTION_W) return HET_OK;
    HETI_T_TRY(heti_p_move(s, stage, share, 0, count, query, -1, &seconds));
    *sum += (forward || !again ? 2 : 4) * seconds;
    HETI_T_TRY(heti_p_move(s, stage, share, forward, count, key, -1, &seconds));
    *sum += 2 * seconds;
    for (int64_t g = 0; g < stage->team[stage->members - 1].group && !forward; g++) {
        HETI_T_TRY(heti_p_move(s, stage, share, -1, count, key, g, &seconds));
        heti_p_at_least(&most, before + 2 * seconds);
        before = 2 * seconds;
    }
    *sum += most;
    return HET_OK;
}

/* What a team by columns exchanges in an F, B or I, and waits while its chains fill. */
static het_result heti_p_column_moves(const heti_p_sim *s, const heti_p_stage *stage, const het_action *a,
                                      const heti_p_share *share, double *sum) {
    const het_column_moves *moves = &stage->cost->columns;
    const double tokens = heti_p_sim_tokens(s, stage, a, 1), members = HETI_T_CAST(double, stage->members);
    double latency = 0, slow = 0, busiest = 0, away = 0, crossing = 0, blocks = tokens / 16;
    if (a->kind == HET_ACTION_W) return HET_OK;
    for (int64_t i = 0; i < stage->members; i++) {
        const double own = (share[i].row[1] - share[i].row[0]) / (share[stage->members - 1].row[1] - share[0].row[0]);
        heti_p_at_least(&busiest, own * (members - 1));
        heti_p_at_least(&busiest, 1 - own);
        heti_p_at_least(&crossing, own * (1 - own));
        if (i + 1 == stage->members) away = 1 - own; /* rows that the last one has not */
        for (int64_t j = 0; j < stage->members; j++) {
            het_link_cost link;
            if (i == j) continue;
            HETI_T_TRY(heti_p_link_cost(s, stage->team[i].rank, stage->team[j].rank, &link, NULL, NULL));
            heti_p_at_least(&latency, link.latency);
            if (link.bandwidth > 0) heti_p_at_least(&slow, 1 / link.bandwidth);
        }
    }
    blocks = blocks < 1 ? 1 : blocks > 8 ? 8 : HETI_T_CAST(double, HETI_T_CAST(int64_t, blocks));
    for (int way = 0; way < 2; way++) { /* forward, backward */
        double linked = 0, base = 0, kept = 0;
        if (way == 0 ? a->kind != HET_ACTION_F && !heti_p_recomputes(s, stage, a) : a->kind == HET_ACTION_F) continue;
        for (int64_t i = 0; i < stage->members; i++) {
            const het_column_moves *own = &(stage->member != NULL ? &stage->member[i] : stage->cost)->columns;
            heti_p_at_least(&linked, own->linked[way] * (share[i].row[1] - share[i].row[0]));
            heti_p_at_least(&base, own->linked_base[way] * (share[i].row[1] - share[i].row[0]));
            heti_p_at_least(&kept, own->kept_byte * (share[i].row[1] - share[i].row[0]));
        }
        *sum += moves->gathers[way] * latency + tokens * moves->gather_bytes[way] * busiest * slow;
        *sum += (blocks + members - 2) *
            (moves->links[way] * latency + tokens * moves->link_bytes[way] / blocks * slow);
        *sum += moves->chains[way] * latency + tokens * moves->chain_bytes[way] * away * slow;
        linked = linked * (members - 1) / blocks + kept * (moves->gather_bytes[way] + moves->chain_bytes[way]);
        *sum += linked * (stage->tokens != NULL ? stage->tokens[a->micro_batch] : 1);
        *sum += base * (blocks + members - 2); /* once it is part of what a member takes */
        *sum += moves->exchanges[way] * (members - 1) * latency + tokens * moves->exchange_bytes[way] * crossing * slow;
    }
    return HET_OK;
}

static het_result heti_p_team_seconds(const heti_p_sim *s, const heti_p_stage *stage, const het_action *a,
                                      double *seconds) {
    heti_p_share share[HETRAIN_MAX_TEAM];
    double core = 0, slowest = 0, chained = 0;
    heti_p_team_shares(s, stage, a, share);
    HETI_T_TRY(heti_p_team_moves(s, stage, a, share, seconds));
    if (stage->team->columns != 0) HETI_T_TRY(heti_p_column_moves(s, stage, a, share, seconds));
    for (int64_t m = 0; m < stage->members; m++) {
        heti_p_at_least(&slowest, heti_p_member_seconds(s, stage, a, m, share, &core));
        if (m > 0 && stage->team[m].group > stage->team[m - 1].group) chained += share[m].first < share[m].group[0];
    }
    *seconds += slowest;
    if ((a->kind == HET_ACTION_B || a->kind == HET_ACTION_I) && stage->cost->attentions > 0)
        *seconds += chained * core / stage->cost->attentions;
    return HET_OK;
}

static double heti_p_sim_seconds(const heti_p_sim *s, const heti_p_stage *stage, const het_action *a) {
    const het_cost curve = heti_p_curve(s, stage, stage->cost, a);
    double seconds = curve.base + heti_p_sim_tokens(s, stage, a, curve.token);
    return stage->pairs != NULL && curve.pair > 0 ? seconds + heti_p_sim_pairs(s, stage, a, curve.pair) : seconds;
}

static int64_t heti_p_sim_record(heti_p_sim *s, int64_t r, const het_action *a, int32_t kind, double start, double end,
                                 double bytes) {
    if (!s->keep) return -1;
    het_record record = { *a, HETI_T_CAST(int32_t, r), start, end, heti_p_whole_bytes(bytes), 0 };
    record.action.kind = kind;
    s->record[s->rank[r].record] = record;
    return s->rank[r].record++;
}

/* ---- messages; on wires that others use as well in the order in which they come to each ---- */

static int heti_p_event_before(const heti_p_event *a, const heti_p_event *b) {
    if (a->time < b->time || b->time < a->time) return a->time < b->time;
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static het_result heti_p_push(heti_p_sim *s, heti_t_list *queue, const heti_p_event *event) {
    size_t i = HETI_T_COUNT(*queue, heti_p_event);
    if (heti_t_list_room(queue, sizeof *event, &s->allocator, NULL) != HET_OK)
        return heti_t_fail(s->error, HET_ERR_OOM, "het_simulate: no memory for %z messages on shared wires", i + 1);
    heti_p_event *heap = HETI_T_ITEMS(*queue, heti_p_event);
    queue->used += sizeof *event;
    for (; i > 0 && heti_p_event_before(event, &heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = *event;
    return HET_OK;
}

static heti_p_event heti_p_pop(heti_t_list *queue) {
    heti_p_event *const event = HETI_T_ITEMS(*queue, heti_p_event);
    const size_t count = HETI_T_COUNT(*queue, heti_p_event) - 1;
    const heti_p_event first = event[0], last = event[count];
    size_t i = 0, child;
    queue->used -= sizeof *event;
    while ((child = 2 * i + 1) < count) {
        if (child + 1 < count && heti_p_event_before(&event[child + 1], &event[child])) child++;
        if (!heti_p_event_before(&event[child], &last)) break;
        event[i] = event[child];
        i = child;
    }
    event[i] = last;
    return first;
}

static heti_p_way heti_p_way_of(const heti_p_sim *s, const het_action *a) {
    heti_p_way way;
    way.forward = a->kind == HET_ACTION_F || a->kind == HET_ACTION_SEND_F || a->kind == HET_ACTION_RECV_F;
    way.from = heti_p_stage_of(s, a) - (heti_t_is_receive(a->kind) ? way.forward ? 1 : -1 : 0);
    way.to = way.from + (way.forward ? 1 : -1);
    way.link = way.forward ? s->stage[way.from].link_after : s->stage[way.from].link_before;
    if (way.link < 0) return way;
    way.cell = heti_p_cell_of(s, way.to, a);
    way.bytes = heti_p_sim_tokens(s, &s->stage[way.from], a, s->stage[way.forward ? way.from : way.to].cost->bytes);
    return way;
}

static void heti_p_sim_wake(heti_p_sim *s, int64_t r, const heti_p_cell *cell) {
    if (s->rank[r].waits != cell) return;
    s->rank[r].waits = NULL;
    s->ready[s->ready_count++] = r;
}

/* The message is there at `time`: wakes the ranks that wait for it. */
static void heti_p_sim_arrive(heti_p_sim *s, const heti_p_way *way, double time) {
    heti_p_cell *cell = &s->cell[way->cell];
    cell->there[!way->forward] = time;
    heti_p_sim_wake(s, s->stage[way->to].rank, cell);
    if (s->transfer != HET_TRANSFER_FREE) heti_p_sim_wake(s, s->stage[way->from].rank, cell);
}

/* The earliest message on its way passes the wire it has come to. No rank can go on without one, so
   none comes to a wire before it. */
static het_result heti_p_sim_pass(heti_p_sim *s) {
    heti_p_event message = heti_p_pop(&s->messages);
    const heti_p_link *link = &s->link[message.way.link];
    heti_p_wire *wire = &s->wire[s->path[link->first_wire + message.wire]];
    heti_p_at_least(&message.time, wire->free);
    wire->free = message.time + message.way.bytes / wire->bandwidth;
    heti_p_at_least(&message.last, wire->free);
    if (++message.wire < link->wires) return heti_p_push(s, &s->messages, &message);
    if (message.record >= 0) s->record[message.record].end = message.last;
    heti_p_sim_arrive(s, &message.way, message.last + link->cost.latency);
    return HET_OK;
}

/* Starts a message at `clock`. at: of the action that sends it, record: its place in the timeline
   or -1. */
static het_result heti_p_sim_launch(heti_p_sim *s, const heti_p_way *way, int64_t at, double clock, int64_t record) {
    heti_p_link *link = &s->link[way->link];
    const double starts = clock > link->free ? clock : link->free;
    link->free = link->cost.bandwidth > 0 ? starts + way->bytes / link->cost.bandwidth : starts;
    const heti_p_event message = { starts, s->stage[way->from].rank, at, link->free, 0, record, *way };
    if (record >= 0) s->record[record].end = link->free;
    if (link->wires > 0) return heti_p_push(s, &s->messages, &message);
    heti_p_sim_arrive(s, way, link->free + link->cost.latency);
    return HET_OK;
}

/* Of heti_p_cell.done. */
enum { HETI_P_DID_F = 1, HETI_P_DID_I = 2, HETI_P_DID_W = 4, HETI_P_DID = 7, HETI_P_AWAY = 8 };

/* A SEND or RECV, whose partner must be reached too. */
static het_result heti_p_sim_meet(heti_p_sim *s, int64_t r, const het_action *a, const heti_p_way *way) {
    const int receives = heti_t_is_receive(a->kind), own = receives ? 2 : 1, eager = way->bytes <= s->costs->eager;
    const heti_p_cell *cell = &s->cell[way->cell];
    heti_p_half *half = &s->half[2 * way->cell + !way->forward];
    heti_p_rank *rank = &s->rank[r];
    const double *arrives = &cell->there[!way->forward], reached = rank->clock; /* does not change while it waits */
    if ((half->reached & own) == 0) {
        double start = reached;
        half->reached |= own;
        if (!receives) {
            half->at = a - s->schedule->action;
            half->record = heti_p_sim_record(s, r, a, a->kind, start, start, way->bytes);
        }
        if (!eager && half->reached == 3) heti_p_at_least(&start, half->time);
        half->time = reached;
        if (eager ? !receives : half->reached == 3)
            HETI_T_TRY(heti_p_sim_launch(s, way, half->at, start, half->record));
    }
    if (s->transfer == HET_TRANSFER_POSTED || (eager && !receives)) return HET_OK;
    if (*arrives < 0) { rank->waits = cell; return HET_OK; }
    heti_p_at_least(&rank->clock, *arrives);
    if (receives) (void)heti_p_sim_record(s, r, a, a->kind, reached, rank->clock, way->bytes);
    return HET_OK;
}

/* A SEND or RECV, or the message of an F, B or I in lists without them, which nothing holds up. */
static het_result heti_p_sim_message(heti_p_sim *s, int64_t r, const het_action *a) {
    const int leaves = s->transfer == HET_TRANSFER_FREE || a->kind <= HET_ACTION_I;
    const int forward = a->kind == HET_ACTION_SEND_F;
    const double clock = s->rank[r].clock;
    int64_t record;
    if (leaves && heti_t_is_receive(a->kind)) return HET_OK; /* is recorded where it is waited for */
    if (heti_t_is_send(a->kind) && (s->cell[heti_p_cell_of(s, heti_p_stage_of(s, a), a)].done &
                                    (forward ? HETI_P_DID_F : HETI_P_DID_I)) == 0)
        return heti_p_sim_fail(s, r, s->rank[r].at,
                               forward ? "its F does not come before it" : "its B or I does not come before it");
    heti_p_way way = heti_p_way_of(s, a);
    if (way.link < 0) return HET_OK;
    if (!leaves) return heti_p_sim_meet(s, r, a, &way);
    record = heti_p_sim_record(s, r, a, way.forward ? HET_ACTION_SEND_F : HET_ACTION_SEND_B, clock, clock, way.bytes);
    return heti_p_sim_launch(s, &way, a - s->schedule->action, clock, record);
}

/* The buffer that the message of an F, B or I goes into: free from *until on, where the message
   in it is there. */
static void heti_p_sim_buffer(heti_p_sim *s, int64_t r, int64_t index, double *until) {
    heti_p_rank *rank = &s->rank[r];
    const int64_t held = rank->out[rank->next_out];
    if (held >= 0) {
        const heti_p_cell *cell = &s->cell[held / 2];
        *until = cell->there[held % 2];
        if (*until < 0) { rank->waits = cell; return; }
    }
    rank->out[rank->next_out] = index;
    rank->next_out = 1 - rank->next_out;
}

/* What is kept has changed: by `part` of a micro-batch, and by `bytes` for each of its tokens. */
static void heti_p_sim_keep(heti_p_sim *s, int64_t r, const heti_p_stage *stage, const het_action *a, double part,
                            double bytes) {
    const int64_t at = s->rank[r].at - s->schedule->start[r];
    heti_p_rank *rank = &s->rank[r];
    het_rank_time *time = &s->result->rank[r];
    if (s->slices > 1)
        part *= s->plan->slice_share[a->slice] * (s->slice_rest[0] / heti_p_sim_shares(s, stage, a));
    rank->kept += part;
    if (rank->kept > time->peak) time->peak = rank->kept, time->peak_action = at; /* divided by rank->unit in the end */
    rank->kept_bytes += heti_p_sim_tokens(s, stage, a, bytes);
    if (rank->kept_bytes > time->peak_bytes) time->peak_bytes = rank->kept_bytes, time->peak_bytes_action = at;
}

/* The rank works from `start`. */
static void heti_p_sim_spend(heti_p_sim *s, int64_t r, double start, double seconds) {
    het_rank_time *time = &s->result->rank[r];
    s->rank[r].clock = start + seconds;
    if (seconds <= 0) return;
    if (time->start < 0) time->start = start;
    time->end = s->rank[r].clock;
    time->busy += seconds;
}

static void heti_p_sim_busy(heti_p_sim *s, int64_t r, const het_action *a, double start, double seconds) {
    het_rank_time *time = &s->result->rank[r];
    heti_p_sim_spend(s, r, start, seconds);
    if (time->start < 0) time->start = start;
    time->end = s->rank[r].clock;
    (void)heti_p_sim_record(s, r, a, a->kind, start, s->rank[r].clock, 0);
}

/* What forbids to compute an action now; NULL: nothing. */
static const char *heti_p_compute_fault(int32_t kind, int32_t done) {
    if ((done & HETI_P_AWAY) != 0) return "its TAKE does not come before it";
    if (kind == HET_ACTION_F) return (done & HETI_P_DID_F) != 0 ? "it comes twice" : NULL;
    if ((done & HETI_P_DID_F) == 0) return "its F does not come before it";
    if (kind != HET_ACTION_W) return (done & HETI_P_DID_I) != 0 ? "it comes twice" : NULL;
    return (done & HETI_P_DID) != (HETI_P_DID_F | HETI_P_DID_I) ? "it comes twice, or its I does not come before it" :
        NULL;
}

static void heti_p_move_beside(const heti_p_sim *s, int64_t r, const het_stage_cost *c, const het_action *a,
                               double *seconds) {
    const het_action *first = s->schedule->action + s->schedule->start[r], *before = a;
    double sum = 0;
    if (a->kind > HET_ACTION_B) return;
    while (before > first && (--before)->kind > HET_ACTION_W) {}
    const het_move_cost *move = c->move[a->kind == HET_ACTION_F && before->kind != HET_ACTION_F ? 2 : a->kind];
    for (int i = 0; i < HETRAIN_MOVES; i++) {
        double one = move[i].part * *seconds;
        heti_p_at_least(&one, move[i].seconds);
        sum += move[i].count * one;
    }
    heti_p_at_least(seconds, sum);
}

/* F, B, I or W. Nothing happens but that the rank waits where its message is not there yet. */
static het_result heti_p_sim_compute(heti_p_sim *s, int64_t r, const het_action *a) {
    static const int32_t heti_p_did[4] = { HETI_P_DID_F, HETI_P_DID_I | HETI_P_DID_W, HETI_P_DID_I, HETI_P_DID_W };
    const int64_t g = heti_p_stage_of(s, a);
    const heti_p_stage *stage = &s->stage[g];
    const het_stage_cost *c = stage->cost;
    const int lean = heti_p_is_lean(s, stage, a);
    const double input = lean ? 0 : c->keep_input, weight = lean ? c->keep_lean : c->keep_weight;
    const double bytes[4] = { input + weight, -(input + weight), c->keep_gradient - input,
                              -(weight + c->keep_gradient) };
    heti_p_rank *rank = &s->rank[r];
    heti_p_cell *cell = &s->cell[heti_p_cell_of(s, g, a)];
    const int forward = a->kind == HET_ACTION_F, moves = a->kind != HET_ACTION_W;
    const int64_t from = !moves ? -1 : forward ? stage->before : stage->gradient;
    const double there = cell->there[!forward];
    const char *fault = heti_p_compute_fault(a->kind, cell->done);
    double start = rank->clock, buffer = 0, seconds;
    int alone; /* no pair of an F and a B is begun */
    if (fault != NULL) return heti_p_sim_fail(s, r, rank->at, fault);
    if (from >= 0 && there < 0) { rank->waits = cell; return HET_OK; }
    if (s->transfer == HET_TRANSFER_POSTED && moves && (forward ? stage->link_after : stage->link_before) >= 0) {
        heti_p_sim_buffer(s, r, 2 * heti_p_cell_of(s, forward ? g + 1 : g - 1, a) + !forward, &buffer);
        if (rank->waits != NULL) return HET_OK;
    }
    if (from >= 0) {
        heti_p_at_least(&start, there);
        if (from != r && s->transfer != HET_TRANSFER_BLOCKING)
            (void)heti_p_sim_record(s, r, a, forward ? HET_ACTION_RECV_F : HET_ACTION_RECV_B, rank->clock, start,
                                    heti_p_sim_tokens(s, stage, a, forward ? stage[-1].cost->bytes : c->bytes));
    }
    heti_p_at_least(&start, forward ? rank->room : cell->taken);
    if (stage->team == NULL) seconds = heti_p_sim_seconds(s, stage, a);
    else HETI_T_TRY(heti_p_team_seconds(s, stage, a, &seconds));
    heti_p_move_beside(s, r, c, a, &seconds);
    heti_p_at_least(&seconds, c->beside[a->kind] + (heti_p_is_again(s, stage, a) ? c->beside[4] : 0));
    heti_p_sim_busy(s, r, a, start, seconds);
    rank->pass = a->kind == HET_ACTION_B || a->kind == HET_ACTION_W ? stage : NULL;
    rank->pass_begin = start;
    rank->pass_end = rank->clock;
    heti_p_at_least(&rank->clock, buffer);
    cell->done |= heti_p_did[a->kind];
    heti_p_sim_keep(s, r, stage, a, forward ? stage->weight : a->kind == HET_ACTION_I ? 0 : -stage->weight,
                    bytes[a->kind]);
    if (!stage->backward) heti_p_sim_keep(s, r, stage, a, -stage->weight, -bytes[a->kind]); /* nothing stays */
    if (moves && (forward ? stage->after : stage->before) == r)
        s->cell[heti_p_cell_of(s, forward ? g + 1 : g - 1, a)].there[!forward] = rank->clock;
    if (s->schedule->complete) return HET_OK;
    if (rank->at > s->schedule->start[r] && a[-1].overlap != 0 && a[-1].kind <= HET_ACTION_I &&
        !heti_p_sim_lacks(s, a - 1))
        HETI_T_TRY(heti_p_sim_message(s, r, a - 1));
    alone = a->overlap == 0 || rank->at + 1 == rank->until || heti_p_sim_lacks(s, a + 1);
    return moves && alone ? heti_p_sim_message(s, r, a) : HET_OK;
}

/* PUT or TAKE of what a slice keeps: of a team the largest member's part. */
static het_result heti_p_sim_move(heti_p_sim *s, int64_t r, const het_action *a) {
    const heti_p_stage *stage = &s->stage[heti_p_stage_of(s, a)];
    const het_stage_cost *c = stage->cost;
    const het_rank_cost *cost = heti_p_rank_cost(s, r);
    heti_p_rank *rank = &s->rank[r];
    heti_p_cell *cell = &s->cell[heti_p_cell_of(s, heti_p_stage_of(s, a), a)];
    const int takes = a->kind == HET_ACTION_TAKE, lean = heti_p_is_lean(s, stage, a);
    double bytes = (cell->done & HETI_P_DID_I) != 0 ? c->keep_gradient : lean ? 0 : c->keep_input, start, end;
    double share = 0, all = 0;
    if (((cell->done & HETI_P_AWAY) != 0) != takes || (cell->done & HETI_P_DID_F) == 0 ||
        (cell->done & HETI_P_DID_W) != 0)
        return heti_p_sim_fail(s, r, rank->at,
                               takes ? "its PUT does not come before it" : "what it puts is not on the device");
    for (int64_t i = 0; stage->team != NULL && i < stage->members; i++) {
        heti_p_at_least(&share, stage->team[i].share);
        all += stage->team[i].share;
    }
    bytes += lean ? c->keep_lean : c->keep_weight;
    heti_p_sim_keep(s, r, stage, a, takes ? stage->weight : -stage->weight, takes ? bytes : -bytes);
    bytes = heti_p_sim_tokens(s, stage, a, bytes);
    bytes = share > 0 ? bytes * share / all : bytes;
    start = rank->clock;
    heti_p_at_least(&start, rank->host);
    end = start + bytes * cost->host_byte;
    if (!takes && cost->beside) rank->room = rank->host;
    rank->host = end;
    if (takes) cell->taken = end;
    if (!cost->beside) heti_p_sim_spend(s, r, start, end - start);
    (void)heti_p_sim_record(s, r, a, a->kind, start, end, bytes);
    cell->done = takes ? cell->done & ~HETI_P_AWAY : cell->done | HETI_P_AWAY;
    return HET_OK;
}

/* A complete ring, from its start on. */
static void heti_p_push_ring(heti_p_sim *s, int64_t index) {
    const heti_p_event event = { s->ring[index].start, index, 0, 0, 0, 0, { 0, 0, 0, 0, 0, 0 } };
    (void)heti_p_push(s, &s->turns, &event);
}

/* A rank has come to a ring at `time`; the last one makes it complete. */
static void heti_p_ring_reach(heti_p_sim *s, const het_action *a, heti_p_part *part, double time, int64_t record) {
    const int64_t index = heti_p_ring_index(s, a);
    heti_p_ring *ring = &s->ring[index];
    part->time = time;
    part->record = record;
    heti_p_at_least(&ring->start, time);
    if (++ring->reached == ring->wanted) heti_p_push_ring(s, index);
}

/* When a REDUCE begins: in its stage's last pass, when the units that use the block are behind. */
static double heti_p_ring_begins(const heti_p_sim *s, int64_t r, const het_action *a) {
    const heti_p_rank *rank = &s->rank[r];
    const double *chain = rank->pass != NULL ? rank->pass->cost->chain : NULL;
    if (a->kind == HET_ACTION_GATHER || s->costs->block == NULL || chain == NULL || !(chain[1] > chain[0]) ||
        rank->pass->team != NULL || s->plan->shard >= HET_SHARD_GRADIENTS)
        return rank->clock;
    double rest = (s->costs->block[a->stage].chain - chain[0]) / (chain[1] - chain[0]);
    rest = rest > 1 ? 1 : rest > 0 ? rest : 0;
    const double begins = rank->pass_end - rest * (rank->pass_end - rank->pass_begin);
    return begins < rank->clock ? begins : rank->clock;
}

/* REDUCE or GATHER. */
static void heti_p_sim_ring(heti_p_sim *s, int64_t r, const het_action *a) {
    heti_p_part *part = heti_p_ring_part(s, r, a);
    const double time = s->rank[r].clock, begins = heti_p_ring_begins(s, r, a);
    int64_t count = 1;
    heti_p_ring_reach(s, a, part, begins, heti_p_sim_record(s, r, a, a->kind, begins, begins, 0));
    if (s->costs->block == NULL) return;
    double most = heti_p_rank_cost(s, r)->ring_byte * part->moved;
    const het_team_member *team = !s->rank[r].decided ? het_plan_team(s->plan, r, &count) : NULL;
    for (int64_t i = 0; i < count && team != NULL; i++)
        heti_p_at_least(&most, heti_p_rank_cost(s, team[i].rank)->ring_byte *
                               heti_p_ring_part(s, team[i].rank, a)->moved);
    heti_p_sim_spend(s, r, time, most);
}

/* Rank r gets its twin's times, records and places in rings. */
static void heti_p_sim_copy_twin(heti_p_sim *s, int64_t r) {
    heti_p_rank *rank = &s->rank[r];
    const heti_p_rank own = *rank, *twin = &s->rank[own.twin];
    const int64_t behind = own.first_record - twin->first_record; /* its records come so much later */
    s->result->rank[r] = s->result->rank[own.twin];
    *rank = *twin;
    rank->twin = -1;
    rank->at = own.at + twin->at - s->schedule->start[heti_p_leader(s->plan, own.twin)];
    rank->until = own.until;
    rank->first_record = own.first_record;
    rank->record = twin->record + behind;
    for (int64_t i = rank->first_record; i < rank->record && s->keep; i++) {
        het_record *record = &s->record[i];
        *record = s->record[i - behind];
        record->rank = HETI_T_CAST(int32_t, r);
        if (record->action.kind < HET_ACTION_REDUCE && own.first_stage >= 0)
            record->action.pipeline = HETI_T_CAST(int32_t, s->plan->stage[own.first_stage].pipeline);
    }
    for (int64_t i = own.at; i < rank->at; i++) {
        const het_action *a = &s->schedule->action[i];
        if (!heti_p_is_collective(a->kind)) continue;
        const heti_p_part *part = heti_p_ring_part(s, own.twin, a);
        heti_p_ring_reach(s, a, heti_p_ring_part(s, r, a), part->time, part->record < 0 ? -1 : part->record + behind);
    }
}

/* The ranks that have a block's STEP, with the sum of their state shares. */
static heti_p_ring *heti_p_owners(const heti_p_sim *s, int64_t block) {
    return &s->ring[2 * s->rings + block * s->updates];
}

static double heti_p_step_seconds(const heti_p_sim *s, int64_t r, int64_t block) {
    const heti_p_ring *owners = heti_p_owners(s, block);
    double seconds = s->costs->block != NULL ? s->costs->block[block].step : 0;
    seconds = owners->sum > 0 ? seconds * s->plan->state_share[r] / owners->sum :
        seconds / HETI_T_CAST(double, owners->wanted);
    return heti_p_rank_cost(s, r)->step_base + heti_p_rank_cost(s, r)->step * seconds;
}

/* ---- several updates: one is made as soon as its gradients and all readers of the one before have
   come, whatever its owners do then (hetrain.h, >>exec); heti_p_ring.start of its REDUCE is then
   when it is there, and `before` 1; `before` of the block's first STEP counts those made ---- */

/* Each of a REDUCE's ranks sends every owner its part, each of a GATHER's gets one from every
   owner: the slowest link, and the most bytes of a rank. */
static het_result heti_p_ring_seconds(heti_p_sim *s, const heti_p_ring *ring, double *seconds) {
    const heti_p_ring *owners = heti_p_owners(s, ring->block);
    const heti_p_part *part = s->part + ring->first, *owner = s->part + owners->first;
    double most = 0, latency = 0, slowest = 0;
    int64_t owning = 0;
    *seconds = 0;
    if (s->costs->block == NULL) return HET_OK;
    for (int64_t o = 0; o < owners->wanted; o++) {
        const double own = owners->sum > 0 ? s->plan->state_share[owner[o].rank] / owners->sum :
            1 / HETI_T_CAST(double, owners->wanted);
        double others = 0;
        for (int64_t i = 0; i < ring->wanted && own > 0; i++) {
            het_link_cost link;
            if (part[i].rank == owner[o].rank) {
                heti_p_at_least(&most, 1 - own);
                owning++;
                continue;
            }
            HETI_T_TRY(heti_p_link_cost(s, part[i].rank, owner[o].rank, &link, NULL, NULL));
            heti_p_at_least(&latency, link.latency);
            heti_p_at_least(&slowest, link.bandwidth > 0 ? 1 / link.bandwidth : 0);
            others++;
        }
        heti_p_at_least(&most, own * others);
    }
    if (owning < ring->wanted) heti_p_at_least(&most, 1); /* who owns nothing sends all */
    *seconds = latency + heti_p_ring_bytes(s, ring) * most * slowest;
    return HET_OK;
}

/* All updates of a block that can be made; whoever waits for one looks again. */
static het_result heti_p_sim_make(heti_p_sim *s, int64_t block) {
    heti_p_ring *sums = &s->ring[block * s->updates], *gathers = sums + s->rings, *owners = gathers + s->rings;
    double step = 0, seconds;
    for (int64_t i = 0; i < owners->wanted; i++)
        heti_p_at_least(&step, heti_p_step_seconds(s, s->part[owners->first + i].rank, block));
    for (int64_t v = owners->before; v < s->updates; owners->before = ++v) {
        if (owners[v].wanted == 0 || sums[v].reached < sums[v].wanted || /* nobody's gradients: none to wait for */
            (v > 0 && gathers[v - 1].reached < gathers[v - 1].wanted))
            break;
        HETI_T_TRY(heti_p_ring_seconds(s, &sums[v], &seconds));
        sums[v].start += seconds;
        if (v > 0) heti_p_at_least(&sums[v].start, sums[v - 1].start);
        if (v > 0) heti_p_at_least(&sums[v].start, gathers[v - 1].start);
        sums[v].start += step;
        sums[v].before = 1;
        for (int64_t r = 0; r < s->ranks; r++) heti_p_sim_wake(s, r, s->cell + s->cells);
    }
    return HET_OK;
}

/* REDUCE waits for the update that had its place and until what it sends has left, STEP for the
   update, GATHER for that and for what it fetches. */
static het_result heti_p_sim_update(heti_p_sim *s, int64_t r, const het_action *a) {
    const int64_t v = a->version - (a->kind == HET_ACTION_REDUCE ? heti_p_max(s->plan->staleness, 1) : 0);
    const heti_p_ring *made = v >= 0 ? &s->ring[a->stage * s->updates + v] : NULL;
    const double reached = s->rank[r].clock, own = a->kind == HET_ACTION_STEP ? heti_p_step_seconds(s, r, a->stage) : 0;
    double begins = reached, seconds;
    if (made != NULL && !made->before) HETI_T_TRY(heti_p_sim_make(s, a->stage));
    if (made != NULL && !made->before) { s->rank[r].waits = s->cell + s->cells; return HET_OK; }
    if (made != NULL) heti_p_at_least(&begins, made->start - own);
    if (a->kind == HET_ACTION_STEP) {
        heti_p_sim_busy(s, r, a, begins, own);
        return HET_OK;
    }
    heti_p_part *part = heti_p_ring_part(s, r, a);
    HETI_T_TRY(heti_p_ring_seconds(s, &s->ring[heti_p_ring_index(s, a)], &seconds));
    s->rank[r].clock = begins + seconds;
    heti_p_ring_reach(s, a, part, a->kind == HET_ACTION_REDUCE ? begins : begins + seconds,
                      heti_p_sim_record(s, r, a, a->kind, begins, begins + seconds, 0));
    s->turns.used = 0; /* it is not timed with others */
    return heti_p_sim_make(s, a->stage);
}

/* Goes on with a rank until it has to wait. */
static het_result heti_p_sim_run(heti_p_sim *s, int64_t r) {
    heti_p_rank *rank = &s->rank[r];
    for (; rank->at < rank->until; rank->at++) {
        const het_action *a = &s->schedule->action[rank->at];
        if (heti_p_sim_lacks(s, a)) continue;
        if (a->kind == HET_ACTION_COMMIT) {
            rank->asks = 1;
            rank->verdict = rank->clock;
            return HET_OK;
        }
        if (a->kind <= HET_ACTION_W) HETI_T_TRY(heti_p_sim_compute(s, r, a));
        else if (heti_p_is_moved(a->kind)) HETI_T_TRY(heti_p_sim_move(s, r, a));
        else if (a->kind <= HET_ACTION_RECV_B) HETI_T_TRY(heti_p_sim_message(s, r, a));
        else if (s->updates > 1) HETI_T_TRY(heti_p_sim_update(s, r, a));
        else if (a->kind != HET_ACTION_STEP) heti_p_sim_ring(s, r, a);
        else heti_p_sim_busy(s, r, a, rank->clock, heti_p_step_seconds(s, r, a->stage));
        if (rank->waits != NULL) return HET_OK;
    }
    return HET_OK;
}

/* ---- rings and verdicts: when nobody can go on without them ---- */

/* latency: a part of seconds; leaves: until the ranks' next one may begin; moves: on the link
   alone */
typedef struct heti_p_took { double latency, seconds, leaves, moves; } heti_p_took;

/* When a message that takes its link `seconds` has left. A window is under way at once, in
   quarters: its next first one leaves when its last first one is there and its own others have
   left. */
static double heti_p_ring_message(double seconds, double latency, double windows) {
    const double full = windows > 1 ? HETI_T_CAST(double, HETI_T_CAST(int64_t, windows)) : 0;
    const double again = full < windows ? full : full - 1;
    if (!(windows > 1 && windows < 1e15)) return seconds;
    double each = latency + seconds / windows / 4;
    heti_p_at_least(&each, seconds / windows);
    return again * each + seconds * ((windows - again) / windows);
}

/* `count` transfers of `bytes` from one rank to another: what one takes, and what the wires have to
   carry. */
static het_result heti_p_ring_transfer(heti_p_sim *s, const heti_p_ring *ring, int64_t from, int64_t to, double bytes,
                                       double count, heti_p_took *took) {
    const double whole = heti_p_ring_bytes(s, ring), windows = s->costs->block[ring->block].windows;
    het_link_cost link;
    int64_t path[2 * HETRAIN_COMMUNICATOR_DEPTH + 1], wires = 0;
    HETI_T_TRY(heti_p_link_cost(s, from, to, &link, s->most_wires > 0 ? path : NULL, &wires));
    took->latency = link.latency;
    took->seconds = took->moves = link.bandwidth > 0 ? bytes / link.bandwidth : 0;
    for (int64_t i = 0; i < wires; i++) {
        heti_p_wire *wire = &s->wire[path[i]];
        const double load = bytes / wire->bandwidth;
        heti_p_at_least(&took->seconds, load);
        if (!(count * load > 0)) continue;
        if (!(wire->load > 0)) s->loaded[s->wires++] = path[i];
        wire->load += count * load;
    }
    took->leaves = heti_p_ring_message(took->seconds, link.latency, whole > 0 ? windows * (bytes / whole) : 0);
    took->seconds = took->leaves + link.latency;
    return HET_OK;
}

/* The slowest of several that run at once. */
static void heti_p_slowest(heti_p_took *took, const heti_p_took *one) {
    heti_p_at_least(&took->latency, one->latency);
    heti_p_at_least(&took->leaves, one->leaves);
    heti_p_at_least(&took->seconds, one->seconds);
}

/* Where not all have all of the block: what the busiest has under way. */
static het_result heti_p_ring_divided_time(heti_p_sim *s, const heti_p_ring *ring, heti_p_took *took) {
    const heti_p_part *part = s->part + ring->first;
    const int64_t n = ring->wanted;
    for (int64_t i = 0; i < n && ring->busiest > 0; i++) {
        het_link_cost link;
        HETI_T_TRY(heti_p_link_cost(s, part[i].rank, part[i + 1 < n ? i + 1 : 0].rank, &link, NULL, NULL));
        const double leaves = link.bandwidth > 0 ? ring->busiest / link.bandwidth : 0;
        const heti_p_took one = { link.latency, link.latency + leaves, leaves, 0 };
        heti_p_slowest(took, &one);
    }
    return HET_OK;
}

/* The clusters of a ring's parts (hetrain.h, >>moves): how many. */
static int64_t heti_p_ring_clusters(heti_p_sim *s, const heti_p_ring *ring) {
    const heti_p_part *part = s->part + ring->first;
    const int64_t n = ring->wanted;
    const int spread = heti_p_process(s, part[0].rank) != heti_p_process(s, part[n - 1].rank);
    int64_t clusters = 0;
    for (int64_t i = 0; i < n; i++)
        if (i == 0 || !spread || heti_p_process(s, part[i].rank) != heti_p_process(s, part[i - 1].rank))
            s->cluster[clusters++] = i;
    if (clusters == n && n > HETRAIN_DIRECT) {
        while ((clusters - 1) * (clusters - 1) >= n) clusters--;
        for (int64_t c = 0; c < clusters; c++) s->cluster[c] = c * n / clusters;
    }
    s->cluster[clusters] = n;
    return clusters;
}

/* Sums from part i to part k, or new weights from k to i: what k owns, or all that it collects. */
static het_result heti_p_ring_send(heti_p_sim *s, const heti_p_ring *ring, int64_t i, int64_t k, double share,
                                   heti_p_took *took) {
    heti_p_part *from = s->part + ring->first + (ring->gather ? k : i),
                *to = s->part + ring->first + (ring->gather ? i : k);
    heti_p_took one;
    HETI_T_TRY(heti_p_ring_transfer(s, ring, from->rank, to->rank,
                                    heti_p_ring_bytes(s, ring) * share / ring->sum, 1, &one));
    from->port[0] += one.moves;
    to->port[1] += one.moves;
    heti_p_slowest(took, &one);
    return HET_OK;
}

/* The same of a ring, inside of clusters and between them, each with the other's latency as well. A
   rank's sends go through its port one after the other, and what it gets likewise. */
static het_result heti_p_ring_direct_time(heti_p_sim *s, const heti_p_ring *ring, heti_p_took *took) {
    heti_p_part *part = s->part + ring->first;
    const int64_t clusters = heti_p_ring_clusters(s, ring), *cluster = s->cluster;
    heti_p_took way[2] = { { 0, 0, 0, 0 }, { 0, 0, 0, 0 } };
    double port = 0;
    for (int64_t i = 0; i < ring->wanted; i++) part[i].collected = part[i].share;
    for (int64_t c = 0; c < clusters; c++)
        for (int64_t k = cluster[c]; k < cluster[c + 1]; k++)
            for (int64_t d = 0; d < clusters; d++) {
                const int64_t via = cluster[d] + HETRAIN_COLLECTOR(cluster[d + 1] - cluster[d], d, k - cluster[c],
                                                                   cluster[c + 1] - cluster[c], c);
                if (d == c) continue;
                part[via].collected += part[k].share;
                HETI_T_TRY(heti_p_ring_send(s, ring, via, k, part[k].share, &way[1]));
            }
    for (int64_t c = 0; c < clusters; c++)
        for (int64_t k = cluster[c]; k < cluster[c + 1]; k++)
            for (int64_t i = cluster[c]; i < cluster[c + 1]; i++)
                if (i != k) HETI_T_TRY(heti_p_ring_send(s, ring, i, k, part[k].collected, &way[0]));
    for (int k = 0; k < 2; k++) {
        way[k].seconds += way[1 - k].latency;
        heti_p_slowest(took, &way[k]);
    }
    took->latency = way[0].latency + way[1].latency;
    for (int64_t i = 0; i < ring->wanted; i++)
        for (int k = 0; k < 2 && !s->costs->wires; k++) heti_p_at_least(&port, part[i].port[k]);
    heti_p_at_least(&took->leaves, port);
    heti_p_at_least(&took->seconds, port + took->latency);
    return HET_OK;
}

/* What a ring takes by itself, and how much of that is latency: N - 1 steps as long as the largest
   part takes on the slowest link. Its loads are left on the wires. */
static het_result heti_p_ring_time(heti_p_sim *s, const heti_p_ring *ring, heti_p_took *took) {
    const heti_p_part *part = s->part + ring->first;
    const int64_t n = ring->wanted;
    const double turns = HETI_T_CAST(double, n - 1);
    double largest = 0;
    if (ring->divided) return heti_p_ring_divided_time(s, ring, took);
    if (!s->costs->rings) return heti_p_ring_direct_time(s, ring, took);
    for (int64_t i = 0; i < n; i++) heti_p_at_least(&largest, part[i].share);
    for (int64_t i = 0; i < n && n > 1; i++) {
        heti_p_took one;
        HETI_T_TRY(heti_p_ring_transfer(s, ring, part[i].rank, part[i + 1 < n ? i + 1 : 0].rank,
                                        heti_p_ring_bytes(s, ring) * largest / ring->sum, turns, &one));
        heti_p_slowest(took, &one);
    }
    took->latency *= turns;
    took->seconds *= turns;
    took->leaves = took->seconds;
    return HET_OK;
}

/* A ring that can start at `start` and would take that long ends when the last of its wires has
   carried it; *left: when its ranks' next one may begin. */
static double heti_p_ring_wires(heti_p_sim *s, double start, const heti_p_took *took, double *left) {
    double end = start + took->seconds;
    *left = start + took->leaves;
    while (s->wires > 0) {
        heti_p_wire *wire = &s->wire[s->loaded[--s->wires]];
        heti_p_at_least(&wire->ring_free, start);
        wire->ring_free += wire->load;
        heti_p_at_least(left, wire->ring_free);
        heti_p_at_least(&end, wire->ring_free + took->latency);
        wire->load = 0;
    }
    return end;
}

/* From `start` on; lets the rings behind it go on. */
static het_result heti_p_sim_time_ring(heti_p_sim *s, int64_t index) {
    heti_p_ring *ring = &s->ring[index];
    const heti_p_part *part = s->part + ring->first;
    heti_p_took took = { 0, 0, 0, 0 };
    double left;
    if (s->costs->block != NULL) HETI_T_TRY(heti_p_ring_time(s, ring, &took));
    const double end = heti_p_ring_wires(s, ring->start, &took, &left);
    heti_p_at_least(&s->result->makespan, end);
    for (int64_t j = 0; j < ring->wanted; j++) {
        s->rank[part[j].rank].ring_free = left;
        heti_p_at_least(&s->rank[part[j].rank].ring_end, end);
        if (part[j].record >= 0) {
            s->record[part[j].record].end = end;
            s->record[part[j].record].bytes = heti_p_whole_bytes(heti_p_ring_bytes(s, ring));
        }
        if (part[j].next < 0) continue;
        heti_p_at_least(&s->ring[part[j].next].start, left);
        if (--s->ring[part[j].next].before == 0) heti_p_push_ring(s, part[j].next);
    }
    return HET_OK;
}

/* Each rank does its rings in the order in which they were ready; among those that can start, the
   earliest gets the wires first. */
static het_result heti_p_sim_finish_rings(heti_p_sim *s) {
    int64_t count = 0;
    for (int64_t i = 0; i < s->ranks && s->turns.used > 0; i++) s->rank[i].last_part = -1;
    for (; s->turns.used > 0; count++) {
        const int64_t index = heti_p_pop(&s->turns).rank;
        heti_p_ring *ring = &s->ring[index];
        s->ring_order[count] = index;
        for (int64_t j = ring->first; j < ring->first + ring->wanted; j++) {
            heti_p_rank *rank = &s->rank[s->part[j].rank];
            s->part[j].next = -1;
            if (rank->last_part >= 0) {
                s->part[rank->last_part].next = index;
                ring->before++;
            } else heti_p_at_least(&ring->start, rank->ring_free);
            rank->last_part = j;
        }
    }
    for (int64_t i = 0; i < count; i++)
        if (s->ring[s->ring_order[i]].before == 0) heti_p_push_ring(s, s->ring_order[i]);
    while (s->turns.used > 0) HETI_T_TRY(heti_p_sim_time_ring(s, heti_p_pop(&s->turns).rank));
    return HET_OK;
}

/* What a message takes there and one back, between all ranks of a process. */
static het_result heti_p_tree_seconds(const heti_p_sim *s, const het_tree_place *place, int64_t count,
                                      double *seconds) {
    het_link_cost forth, back;
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < i; j++) {
            HETI_T_TRY(heti_p_link_cost(s, place[i].rank, place[j].rank, &forth, NULL, NULL));
            HETI_T_TRY(heti_p_link_cost(s, place[j].rank, place[i].rank, &back, NULL, NULL));
            seconds[i * count + j] = seconds[j * count + i] = forth.latency + back.latency;
        }
    return HET_OK;
}

/* The tree of the ranks that have a stage, the first of each process, then the others of each. */
static het_result heti_p_build_tree(heti_p_sim *s, int64_t *count) {
    het_tree_place *place = s->tree;
    double seconds[HETRAIN_TREE_MOST * HETRAIN_TREE_MOST];
    int64_t *member = s->ready, members = 0, i, k; /* nobody is ready now */
    for (i = 0; i < s->ranks; i++)
        if (s->rank[i].first_stage >= 0) member[members++] = i; /* who is in a team has its leader's */
    *count = 0;
    for (i = 0; i < members; i++)
        if (i == 0 || heti_p_process(s, member[i]) != heti_p_process(s, member[i - 1]))
            place[(*count)++].rank = member[i];
    het_tree_grow(place, *count, NULL);
    for (int64_t first = 0; first < members; first = i) {
        const int64_t process = heti_p_process(s, member[first]);
        for (i = first, k = *count; i < members && heti_p_process(s, member[i]) == process; i++)
            place[k++].rank = member[i];
        if (k - *count <= HETRAIN_TREE_MOST) HETI_T_TRY(heti_p_tree_seconds(s, place + *count, k - *count, seconds));
        het_tree_grow(place + *count, k - *count, k - *count <= HETRAIN_TREE_MOST ? seconds : NULL);
        for (; *count + 1 < k; ++*count) place[*count] = place[*count + 1]; /* the root stands there already */
    }
    return HET_OK;
}

/* Scalars of the ranks that have a stage, up the tree and down again: heti_p_rank.joined is when a
   rank comes to it, and then when it has them; heard, when it has those below it. A message takes a
   latency from when both its ends are there. */
static het_result heti_p_sim_join(heti_p_sim *s) {
    het_link_cost link;
    int64_t count;
    HETI_T_TRY(heti_p_build_tree(s, &count));
    for (int64_t k = count - 1; k > 0; k--) {
        heti_p_rank *from = &s->rank[s->tree[k].from];
        HETI_T_TRY(heti_p_link_cost(s, s->tree[k].rank, s->tree[k].from, &link, NULL, NULL));
        double both = s->rank[s->tree[k].rank].heard;
        heti_p_at_least(&both, from->joined);
        heti_p_at_least(&from->heard, both + link.latency);
    }
    s->rank[s->tree[0].rank].joined = s->rank[s->tree[0].rank].heard;
    for (int64_t k = 1; k < count; k++) {
        HETI_T_TRY(heti_p_link_cost(s, s->tree[k].from, s->tree[k].rank, &link, NULL, NULL));
        s->rank[s->tree[k].rank].joined = s->rank[s->tree[k].from].joined + link.latency;
    }
    return HET_OK;
}

/* Every rank is done, or waits. All that wait for a verdict get it where nobody waits for a
   message. */
static het_result heti_p_sim_verdict(heti_p_sim *s, int *done) {
    double time = 0;
    HETI_T_TRY(heti_p_sim_finish_rings(s));
    *done = 1;
    for (int64_t r = 0; r < s->ranks; r++) {
        heti_p_rank *rank = &s->rank[r];
        if (rank->waits != NULL) return heti_p_sim_fail(s, r, rank->at, "waits for ever for what it needs");
        heti_p_at_least(&rank->clock, rank->ring_end);
        if (rank->asks) {
            *done = 0;
            heti_p_sim_spend(s, r, rank->clock, heti_p_rank_cost(s, r)->verdict);
        }
        rank->joined = rank->heard = rank->clock;
        heti_p_at_least(&time, rank->joined);
    }
    for (int64_t b = 0; b < (*done ? 2 : 1) * s->rings; b++)
        if (s->ring[b].reached < s->ring[b].wanted)
            return HETI_P_BAD(s, "het_simulate: %s of block %i waits for ever: %d of %d ranks have reached it",
                              b < s->rings ? "REDUCE" : "GATHER", s->ring[b].block, s->ring[b].reached,
                              s->ring[b].wanted);
    if (!*done && s->transfer == HET_TRANSFER_POSTED) HETI_T_TRY(heti_p_sim_join(s));
    for (int64_t r = 0; r < s->ranks && !*done; r++) {
        heti_p_rank *rank = &s->rank[r];
        if (!rank->asks) continue;
        if (s->transfer == HET_TRANSFER_POSTED) time = rank->joined;
        (void)heti_p_sim_record(s, r, &s->schedule->action[rank->at], HET_ACTION_COMMIT, rank->verdict, time, 0);
        rank->clock = time;
        rank->decided = 1;
        rank->at++;
        rank->asks = 0;
        s->ready[s->ready_count++] = r;
    }
    return HET_OK;
}

/* ---- what came out ---- */

/* Closes the gaps that records not needed have left. */
static void heti_p_sim_timeline(heti_p_sim *s) {
    int64_t count = 0;
    for (int64_t r = 0; r < s->ranks && s->keep; r++) {
        const int64_t from = s->rank[r].first_record, used = s->rank[r].record - from;
        if (used > 0 && count < from)
            memmove(s->record + count, s->record + from, HETI_T_CAST(size_t, used) * sizeof *s->record);
        count += used;
    }
    s->result->timeline.ranks = s->ranks;
    s->result->timeline.records = count;
    s->result->timeline.record = count > 0 ? s->record : NULL;
}

static void heti_p_sim_sums(heti_p_sim *s) {
    het_simulation *result = s->result;
    double busy = 0, n = HETI_T_CAST(double, s->ranks);
    for (int64_t r = 0; r < s->ranks; r++) {
        het_rank_time *time = &result->rank[r];
        if (s->rank[r].clock > result->makespan) result->makespan = s->rank[r].clock;
        if (time->start < 0) time->start = time->end = 0;
        if (time->end - time->start > result->span) result->span = time->end - time->start;
        time->peak /= s->rank[r].unit * s->slice_rest[0];
        busy += time->busy;
    }
    for (int64_t r = 0; r < s->ranks; r++) {
        het_rank_time *time = &result->rank[r];
        int computes = time->end > 0;
        time->idle = result->makespan - time->busy;
        time->fill = computes ? time->start : result->makespan;
        time->wait = computes ? time->end - time->start - time->busy : 0;
        time->tail = computes ? result->makespan - time->end : 0;
        if (time->wait < 0) time->wait = 0; /* rounding */
        if (time->idle < 0) time->idle = 0;
    }
    result->bubble = result->makespan > 0 ? 1 - busy / (n * result->makespan) : 0;
    result->span_bubble = result->span > 0 ? 1 - busy / (n * result->span) : 0;
    result->ranks = s->ranks;
    result->actions = s->schedule->start[s->ranks];
}

/* What of the team's messages and activations is the rank's; what it does not compute of the team's
   actions is exchange. */
static void heti_p_sim_own_part(heti_p_sim *s, int64_t r) {
    heti_p_share share[HETRAIN_MAX_TEAM];
    int64_t count, me = 0;
    const het_team_member *team = het_plan_team(s->plan, r, &count);
    double row[2], core = 0;
    while (team[me].rank != r) me++;
    heti_p_rows(team, count, me, row);
    s->result->rank[r].peak_bytes *= row[1] - row[0];
    for (int64_t i = s->rank[r].first_record; i < s->rank[r].record && s->keep; i++) {
        het_record *record = &s->record[i];
        const het_action *a = &record->action;
        const heti_p_stage *stage = &s->stage[a->kind <= HET_ACTION_RECV_B ? heti_p_stage_of(s, a) : 0];
        if (heti_t_is_send(a->kind) || heti_t_is_receive(a->kind))
            record->bytes = HETI_T_CAST(int64_t, HETI_T_CAST(double, record->bytes) * (row[1] - row[0]) + 0.5);
        if (a->kind > HET_ACTION_I || count == 1 || !(stage->cost->attentions > 0 || team->columns != 0)) continue;
        heti_p_team_shares(s, stage, a, share);
        record->exchange = record->end - record->start - heti_p_member_seconds(s, stage, a, me, share, &core);
        if (record->exchange < 0) record->exchange = 0; /* rounding */
    }
}

/* Until nobody can go on without a verdict. */
static het_result heti_p_sim_run_all(heti_p_sim *s) {
    while (s->ready_count > 0 || s->messages.used > 0)
        HETI_T_TRY(s->ready_count > 0 ? heti_p_sim_run(s, s->ready[--s->ready_count]) : heti_p_sim_pass(s));
    return HET_OK;
}

static het_result heti_p_sim_loop(heti_p_sim *s) {
    int done = 0;
    HETI_T_TRY(heti_p_sim_start(s));
    HETI_T_TRY(heti_p_sim_run_all(s));
    for (int64_t r = 0; r < s->ranks; r++)
        if (s->rank[r].twin >= 0) heti_p_sim_copy_twin(s, r);
    for (int64_t m = 0; m < s->plan->members; m++) heti_p_sim_own_part(s, s->plan->member[m].rank);
    while (!done) {
        HETI_T_TRY(heti_p_sim_verdict(s, &done));
        HETI_T_TRY(heti_p_sim_run_all(s));
    }
    heti_p_sim_timeline(s);
    heti_p_sim_sums(s);
    return HET_OK;
}

/* On the tables made from what was given, heti_p_sim_loop or another. *s was cleared; s->result is
   the result. */
static het_result heti_p_sim_with(heti_p_sim *s, const het_plan *plan, const het_schedule *schedule,
                                  const het_costs *costs, het_result (*loop)(heti_p_sim *s)) {
    heti_t_arena own;
    s->plan = plan;
    s->schedule = schedule;
    s->costs = costs;
    HETI_T_TRY(heti_p_sim_given(s));
    HETI_T_TRY(heti_t_arrays(&own, 0, heti_p_result_cut, s, &s->allocator, "het_simulate", s->error));
    s->result->allocator = s->allocator;
    s->result->size = own.size;
    HETI_T_TRY(heti_t_arrays(&s->tables, 0, heti_p_sim_cut, s, &s->allocator, "het_simulate", s->error));
    const het_result result = loop(s);
    heti_t_arrays_free(&s->tables, &s->allocator);
    heti_t_list_free(&s->messages, &s->allocator);
    return result;
}

HETRAIN_API het_result het_simulate(const het_plan *plan, const het_schedule *schedule, const het_costs *costs,
                                    het_choice timeline, const het_allocator *allocator, het_simulation **simulation,
                                    het_error *error) {
    heti_p_sim s;
    if (simulation == NULL) return heti_t_fail(error, HET_ERR_INVALID, "het_simulate: simulation is NULL");
    *simulation = NULL;
    if (plan == NULL || schedule == NULL || costs == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_simulate: %s is NULL",
                           plan == NULL ? "plan" : schedule == NULL ? "schedule" : "costs");
    memset(&s, 0, sizeof s), s.error = error, s.keep = timeline == HET_YES;
    HETI_T_TRY(heti_t_choose(allocator, &s.allocator, error, "het_simulate"));
    het_result result = heti_p_sim_with(&s, plan, schedule, costs, heti_p_sim_loop);
    if (result == HET_OK && !heti_t_is_time(s.result->makespan)) /* of a link of next to no bandwidth, say */
        result = HETI_P_BAD(&s, "het_simulate: the step takes %e, more than 1e300", s.result->makespan);
    if (result != HET_OK) het_simulation_free(s.result);
    else *simulation = s.result;
    return result;
}

HETRAIN_API void het_simulation_free(het_simulation *simulation) {
    if (simulation == NULL) return;
    const het_allocator allocator = simulation->allocator;
    allocator.free(allocator.user, simulation, simulation->size);
}

/* ---- lengths of slices ---- */

typedef struct heti_p_slicing {
    het_cost cost;
    int64_t granules, granule_tokens, most;
    double *least;                    /* [most + 1][granules + 1] seconds of the granules before j in k slices,
                                         HETI_P_NEVER: not below the bound */
    int64_t *from;                    /* where the last of them begins */
    int64_t *tried;                   /* [most] lengths */
    heti_t_arena arena;               /* of these arrays */
} heti_p_slicing;

static void heti_p_slicing_cut(void *self, heti_t_arena *arena) {
    heti_p_slicing *s = HETI_T_CAST(heti_p_slicing *, self);
    s->least = HETI_T_TAKE(arena, double, (s->most + 1) * (s->granules + 1));
    s->from = HETI_T_TAKE(arena, int64_t, (s->most + 1) * (s->granules + 1));
    s->tried = HETI_T_TAKE(arena, int64_t, s->most);
}

/* Granules [a, b): their queries see b^2 - a^2 parts of the pairs, and themselves. */
static double heti_p_slice_seconds(const heti_p_slicing *s, int64_t a, int64_t b) {
    const double x = HETI_T_CAST(double, a * s->granule_tokens), y = HETI_T_CAST(double, b * s->granule_tokens);
    return s->cost.base + s->cost.token * (y - x) + s->cost.pair * (y * (y + 1) - x * (x + 1)) / 2;
}

/* The least sum in slices that each take less than `bound`; HETI_P_NEVER: there is none. lengths
   and their number into length and *slices, the largest time into *largest. */
static double heti_p_slices_below(heti_p_slicing *s, double bound, int64_t *length, int64_t *slices, double *largest) {
    const int64_t n = s->granules, row = n + 1;
    int64_t i, best = 0;
    for (int64_t k = 0; k <= s->most; k++)
        for (int64_t j = 0; j <= n; j++) {
            double *to = &s->least[k * row + j];
            *to = k == 0 && j == 0 ? 0 : HETI_P_NEVER;
            for (i = j - 1; k > 0 && i >= k - 1; i--) {
                const double t = heti_p_slice_seconds(s, i, j), sum = s->least[(k - 1) * row + i] + t;
                if (t >= bound) break; /* longer ones take longer */
                if (sum >= *to) continue;
                *to = sum;
                s->from[k * row + j] = i;
            }
            if (j == n && *to < s->least[best * row + n]) best = k;
        }
    *largest = 0;
    *slices = best;
    for (int64_t at = n, k = best; k > 0; k--) {
        i = s->from[k * row + at];
        heti_p_at_least(largest, heti_p_slice_seconds(s, i, at));
        length[k - 1] = at - i;
        at = i;
    }
    return s->least[best * row + n];
}

HETRAIN_API het_result het_slice_lengths(const het_cost *cost, int64_t granules, int64_t granule_tokens, int64_t stages,
                                         int64_t most, const het_allocator *allocator, int64_t *length,
                                         int64_t *slices, double *seconds, het_error *error) {
    heti_p_slicing s;
    het_allocator own;
    double bound = 1e300, best = HETI_P_NEVER, sum, largest = 0;
    int64_t count = 0;
    if (cost == NULL || length == NULL || slices == NULL || seconds == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_slice_lengths: cost, length, slices or seconds is NULL");
    if (granules < 1 || granules > 4096 || granule_tokens < 1 || granule_tokens > 1 << 20 || stages < 1 || most < 1 ||
        !heti_t_is_time(cost->base) || !heti_t_is_time(cost->token) || !heti_t_is_time(cost->pair))
        return heti_t_fail(error, HET_ERR_INVALID, "het_slice_lengths: %d granules (1 to 4096) of %d tokens, %d "
                           "stages, %d slices, cost %e, %e, %e", granules, granule_tokens, stages, most, cost->base,
                           cost->token, cost->pair);
    HETI_T_TRY(heti_t_choose(allocator, &own, error, "het_slice_lengths"));
    s.cost = *cost, s.granules = granules, s.granule_tokens = granule_tokens, s.most = heti_p_min(most, granules);
    HETI_T_TRY(heti_t_arrays(&s.arena, 0, heti_p_slicing_cut, &s, &own, "het_slice_lengths", error));
    while ((sum = heti_p_slices_below(&s, bound, s.tried, &count, &largest)) < best) {
        bound = largest;
        if (sum + HETI_T_CAST(double, stages - 1) * largest >= best) continue;
        best = sum + HETI_T_CAST(double, stages - 1) * largest;
        *slices = count;
        HETI_T_COPY(length, s.tried, count);
    }
    if (best < HETI_P_NEVER) *seconds = best;
    heti_t_arrays_free(&s.arena, &own);
    return best < HETI_P_NEVER ? HET_OK : heti_t_fail(error, HET_ERR_INVALID, "het_slice_lengths: none below 1e300");
}

/* =================================================================================================
   >>timed  A schedule for given times: list scheduling. The simulator runs lists while they are
   made: the rank that can begin first takes an action that is there, or waits for one that it knows
   to be coming. No rule for that is best everywhere: a grid of rules is tried, as in section 3.1 of
   Zero Bubble Pipeline Parallelism (arXiv 2401.10241); that they know latencies is CrossPipe's idea
   (ATC 2025). Then named schedules compete. Nothing waits for ever, for the reasons of >>generate:
   a lane keeps room for its later chunks, and a rank that knows of nothing to come does a W.
   ============================================================================================== */

typedef struct heti_p_timed_stage {
    int64_t open, begun[3];           /* forwards at most whose I has not begun; F, I, W so far */
    double kept, room;                /* of a slice from I until W, from F until I it is 1; of the
                                         lane up to this chunk */
    double seconds[3], trip;          /* of F, I, W; from an F's begin until its gradient is there */
} heti_p_timed_stage;

/* What it does next, when (HETI_P_NEVER: it knows of nothing), F, I or W as 0 to 2, and whether to
   look again. */
typedef struct heti_p_timed_rank { int64_t stage; double due; int32_t kind, again; } heti_p_timed_rank;

typedef struct heti_p_timed {
    heti_p_sim sim;
    het_costs costs;
    het_transfer transfer;
    heti_p_timed_stage *stage;        /* [stages] */
    heti_p_timed_rank *rank;          /* [ranks] */
    het_stage_cost *ones;             /* [stages] costs where none are given */
    heti_t_arena arena;               /* of these three */
    het_schedule *list, *best;        /* with room for the grid's; the shortest, with its times */
    double end, span;
    int gap, backward_first, drain;   /* the rule */
} heti_p_timed;

/* Rule n of the grid. Forwards away at most: those that keep the rank busy for a trip, or fill no,
   one, ... four quarters of it, or all; perhaps one more. A W begins where the next arrival is not
   before its begin, its half or its end. Backward or forward first where both are there. A W before
   both where a forward only lacks room, or not. */
enum { HETI_P_TIMED_FILLS = 6, HETI_P_TIMED_RULES = HETI_P_TIMED_FILLS * 2 * 3 * 2 * 2 };

static void heti_p_timed_rule(heti_p_timed *t, int n) {
    const int fill = n % HETI_P_TIMED_FILLS, grid = n / (2 * HETI_P_TIMED_FILLS);
    t->gap = grid % 3, t->backward_first = grid / 3 % 2, t->drain = grid / 6;
    for (int64_t g = 0; g < t->sim.stages; g++) {
        heti_p_timed_stage *s = &t->stage[g];
        const int64_t lane = t->sim.stage[g].lane;
        double work = 0, open = 1;
        for (int64_t u = lane; u >= 0 && t->sim.stage[u].lane == lane; u = t->sim.stage[u].next)
            work += t->stage[u].seconds[0] + t->stage[u].seconds[1] + t->stage[u].seconds[2];
        if (s->trip > 0) open = s->trip / work + 1 - 1e-9; /* rounded up */
        if (s->trip > 0) heti_p_at_least(&open, fill * 0.25 * s->trip / s->seconds[0] + 1e-9);
        s->open = fill < HETI_P_TIMED_FILLS - 1 && open < INT32_MAX ? HETI_T_CAST(int64_t, open) : INT32_MAX;
        s->open += n / HETI_P_TIMED_FILLS % 2 + t->sim.slices - 1;
    }
}

/* Memory for one slice more, as in heti_p_make_room. */
static int heti_p_timed_room(const heti_p_timed *t, int64_t g) {
    const int64_t lane = t->sim.stage[g].lane;
    double kept = 1;
    for (int64_t u = lane; u >= 0 && t->sim.stage[u].lane == lane; u = t->sim.stage[u].next) {
        const heti_p_timed_stage *c = &t->stage[u];
        kept += HETI_T_CAST(double, c->begun[0] - c->begun[1]);
        kept += HETI_T_CAST(double, c->begun[1] - c->begun[2]) * c->kept;
        if (u >= g && kept > c->room) return 0;
    }
    return 1;
}

/* When what the stage's next F, I or W needs is there. */
static double heti_p_timed_there(const heti_p_timed *t, int64_t g, int k) {
    const heti_p_timed_stage *s = &t->stage[g];
    const heti_p_stage *stage = &t->sim.stage[g];
    const int64_t n = s->begun[k], whole = n - n % t->sim.slices + t->sim.slices;
    double there = 0;
    if (n == stage->micro_batches * t->sim.slices || (k > 0 && !stage->backward) || (k == 2 && n == s->begun[1]) ||
        (k == 1 && s->begun[0] < whole) || (k == 0 && s->begun[0] - s->begun[1] >= s->open))
        return HETI_P_NEVER; /* of a micro-batch all forwards come before the first I */
    if (k == 0 && stage->before >= 0) there = t->sim.cell[stage->cell + n].there[0];
    if (k == 1 && stage->gradient >= 0) there = t->sim.cell[stage->cell + whole - 1 - n % t->sim.slices].there[1];
    return there < 0 ? HETI_P_NEVER : there;
}

/* What the rank does at `now`. 0: nothing; then due is when the next thing known to come is there.
   Of several actions of a kind the oldest, of forwards then the one nearer to the last stage. */
static int heti_p_timed_choose(heti_p_timed *t, heti_p_timed_rank *rank, double now) {
    int64_t g, found[3] = { -1, -1, -1 };
    double soon = HETI_P_NEVER;
    int k, full = 0;
    for (g = t->sim.rank[rank - t->rank].first_stage; g >= 0; g = t->sim.stage[g].next)
        for (k = 0; k < 3; k++) {
            const double there = heti_p_timed_there(t, g, k);
            const int64_t older = found[k] < 0 ? 1 : t->stage[found[k]].begun[k] - t->stage[g].begun[k];
            if (there >= HETI_P_NEVER) continue;
            if (k == 0 && !heti_p_timed_room(t, g)) full |= there <= now;
            else if (there > now) soon = there < soon ? there : soon;
            else if (older > 0 || (older == 0 && k == 0)) found[k] = g;
        }
    full = full && t->drain && found[2] >= 0;
    k = full || (found[0] < 0 && found[1] < 0) ? 2 : found[1] >= 0 && (t->backward_first || found[0] < 0);
    rank->kind = k, rank->stage = g = found[k], rank->due = now;
    if (k < 2 || full || (g >= 0 && soon >= now + 0.5 * t->gap * t->stage[g].seconds[2])) return 1;
    rank->due = soon;
    return 0;
}

/* The rank does it. The first run has one slice at a time under way, and measures. */
static het_result heti_p_timed_begin(heti_p_timed *t, heti_p_timed_rank *rank) {
    static const int32_t heti_p_timed_kinds[3] = { HET_ACTION_F, HET_ACTION_I, HET_ACTION_W };
    const heti_p_stage *at = &t->sim.stage[rank->stage];
    const int64_t slices = t->sim.slices, k = rank->kind, n = t->stage[rank->stage].begun[k]++;
    const int64_t pipeline = t->sim.plan->stage[rank->stage].pipeline;
    const het_action next = { heti_p_timed_kinds[k], 0, HETI_T_CAST(int32_t, pipeline),
                              HETI_T_CAST(int32_t, rank->stage - t->sim.plan->first_stage[pipeline]),
                              HETI_T_CAST(int32_t, n / slices),
                              HETI_T_CAST(int32_t, k == 0 ? n % slices : slices - 1 - n % slices), 0 };
    heti_p_timed_stage *s = &t->stage[rank->stage];
    heti_p_rank *r = &t->sim.rank[at->rank];
    het_action *a = &t->list->action[r->at];
    *a = next;
    r->clock = rank->due;
    HETI_T_TRY(heti_p_sim_compute(&t->sim, at->rank, a));
    while (r->waits != NULL && t->sim.messages.used > 0) {
        r->waits = NULL;
        HETI_T_TRY(heti_p_sim_pass(&t->sim)); /* what its buffer holds is on its way */
        HETI_T_TRY(heti_p_sim_compute(&t->sim, at->rank, a));
    }
    r->at++;
    s->seconds[k] = r->clock - rank->due;
    if (t->end >= HETI_P_NEVER && n == 0 && k < 2) s->trip = rank->due - (k == 1 ? s->trip : 0);
    if (at->after >= 0) t->rank[at->after].again = 1;
    if (at->before >= 0) t->rank[at->before].again = 1;
    if (k == 0 && at->before >= 0 && !at[-1].backward) s[-1].begun[1] = ++s[-1].begun[2]; /* its output is used */
    rank->again = 1;
    return HET_OK;
}

/* 1: these times are shorter by more than rounding, or as long with a shorter span of the longest
   rank; then they are taken. */
static int heti_p_timed_shorter(heti_p_timed *t, double end, double span) {
    if (!(end < t->end * (1 - 1e-9) || (end <= t->end * (1 + 1e-9) && span < t->span * (1 - 1e-9)))) return 0;
    t->end = end, t->span = span;
    return 1;
}

/* Lists by rule n. *shorter: they are the shortest yet. */
static het_result heti_p_timed_run(heti_p_timed *t, int n, int *shorter) {
    heti_p_sim *s = &t->sim;
    double end = 0, span = 0;
    int64_t r, next;
    HETI_T_TRY(heti_p_sim_start(s));
    s->messages.used = 0;
    heti_p_timed_rule(t, n);
    for (r = 0; r < s->stages; r++) memset(t->stage[r].begun, 0, sizeof t->stage[r].begun);
    for (r = 0; r < s->ranks; r++) t->rank[r].again = 1;
    for (;;) {
        for (next = 0, r = 0; r < s->ranks; r++) {
            heti_p_timed_rank *rank = &t->rank[r];
            if (rank->again && !heti_p_timed_choose(t, rank, s->rank[r].clock) && rank->due < HETI_P_NEVER)
                (void)heti_p_timed_choose(t, rank, rank->due);
            rank->again = 0;
            if (rank->due < t->rank[next].due) next = r;
        }
        const heti_p_event *message = HETI_T_ITEMS(s->messages, heti_p_event);
        if (s->messages.used > 0 && message->time <= t->rank[next].due) {
            t->rank[s->stage[message->way.to].rank].again = 1;
            HETI_T_TRY(heti_p_sim_pass(s));
        } else if (t->rank[next].due < HETI_P_NEVER) HETI_T_TRY(heti_p_timed_begin(t, &t->rank[next]));
        else break;
    }
    for (r = 0; r < s->ranks; r++) {
        if (s->rank[r].first_stage < 0) continue;
        heti_p_at_least(&end, s->rank[r].at < s->rank[r].until ? HETI_P_NEVER : s->result->rank[r].end);
        heti_p_at_least(&span, s->result->rank[r].end - s->result->rank[r].start);
    }
    *shorter = end < HETI_P_NEVER && heti_p_timed_shorter(t, end, span);
    return HET_OK;
}

/* In place of heti_p_sim_loop: t->list becomes the shortest of the grid. */
static het_result heti_p_timed_search(heti_p_sim *s) {
    heti_p_timed *t = HETI_T_CAST(heti_p_timed *, s->user);
    const double limit = s->plan->memory_limit > 0 ? s->plan->memory_limit * (1 + 1e-12) : 1e300;
    int best = 0, shorter;
    HETI_T_CLEAR(t->list->start, s->ranks + 1);
    s->transfer = t->transfer; /* of which without SEND and RECV only the buffers are left */
    HETI_T_TRY(heti_p_sim_start(s));
    for (int64_t g = 0; g < s->stages; g++) {
        const het_stage_cost *c = s->stage[g].cost;
        heti_p_timed_stage *stage = &t->stage[g];
        const int64_t lane = s->stage[g].lane;
        int64_t chunks = 0, behind = 0;
        for (int64_t u = lane; u >= 0 && s->stage[u].lane == lane; u = s->stage[u].next) chunks++, behind += u > g;
        stage->kept = c->keep_gradient < c->keep_input ? (c->keep_weight + c->keep_gradient) /
            (c->keep_weight + c->keep_input) : 1;
        stage->room = (limit * HETI_T_CAST(double, chunks) - HETI_T_CAST(double, behind)) *
            HETI_T_CAST(double, s->slices);
        for (int64_t r = s->stage[g].rank; r < s->ranks; r++)
            t->list->start[r + 1] += (s->stage[g].backward ? 3 : 1) * s->stage[g].micro_batches * s->slices;
    }
    for (int n = -1; n < HETI_P_TIMED_RULES; n++) { /* at first to measure */
        HETI_T_TRY(heti_p_timed_run(t, n < 0 ? 0 : n, &shorter));
        if (shorter) best = n < 0 ? 0 : n;
    }
    return heti_p_timed_run(t, best, &shorter);
}

/* The shorter of these lists, whose ranks keep no more than `limit` as het_schedule_check counts,
   and of t->best becomes t->best; the other is freed. */
static het_result heti_p_timed_compete(heti_p_timed *t, het_schedule *list, double limit) {
    const het_plan *plan = t->sim.plan;
    het_schedule *other = t->best, *whole = NULL;
    het_simulation *simulation = NULL;
    het_result result = HET_OK;
    int64_t r = 0;
    t->costs.transfer = t->transfer;
    if (t->transfer != HET_TRANSFER_FREE)
        result = het_schedule_complete(plan, NULL, list, &t->sim.allocator, &whole, t->sim.error);
    if (result == HET_OK)
        result = het_simulate(plan, whole != NULL ? whole : list, &t->costs, HET_NO, &t->sim.allocator, &simulation,
                              t->sim.error);
    het_schedule_free(whole);
    while (result == HET_OK && r < plan->ranks && simulation->rank[r].peak <= limit) r++;
    if (result == HET_OK && r == plan->ranks && heti_p_timed_shorter(t, simulation->makespan, simulation->span))
        t->best = list, list = other;
    het_schedule_free(list);
    het_simulation_free(simulation);
    return result;
}

/* The shortest of the grid's lists and of those that names mean on this plan. */
static het_result heti_p_timed_lists(heti_p_timed *t, het_plan *plan, const int64_t *counts) {
    const double limit = plan->memory_limit > 0 ? plan->memory_limit * (1 + 1e-12) : HETI_P_NEVER;
    het_error elsewhere = { HET_OK, "" };
    het_schedule *list = NULL;
    t->end = t->span = HETI_P_NEVER;
    HETI_T_TRY(heti_p_sim_with(&t->sim, plan, t->list, &t->costs, heti_p_timed_search));
    HETI_T_TRY(het_schedule_store(plan, &t->list, t->sim.error));
    list = t->list, t->list = NULL, t->end = t->span = HETI_P_NEVER;
    HETI_T_TRY(heti_p_timed_compete(t, list, HETI_P_NEVER));
    for (int64_t i = 0; i < HETI_P_RULES; i++) {
        het_result result = HET_ERR_INVALID;
        memcpy(plan->schedule, heti_p_schedules[i].kind.name, strlen(heti_p_schedules[i].kind.name) + 1);
        if (heti_p_schedules[i].order != HETI_P_TIMED)
            result = het_schedule_make(plan, counts, &t->sim.allocator, &list, &elsewhere);
        if (result == HET_ERR_INVALID) continue; /* its stages lie elsewhere */
        if (result != HET_OK) return heti_t_fail(t->sim.error, result, "%s", elsewhere.text);
        HETI_T_TRY(heti_p_timed_compete(t, list, limit));
    }
    return HET_OK;
}

static void heti_p_timed_cut(void *self, heti_t_arena *arena) {
    heti_p_timed *t = HETI_T_CAST(heti_p_timed *, self);
    t->stage = HETI_T_TAKE(arena, heti_p_timed_stage, t->sim.plan->stages);
    t->rank = HETI_T_TAKE(arena, heti_p_timed_rank, t->sim.plan->ranks);
    t->ones = HETI_T_TAKE(arena, het_stage_cost, t->sim.plan->stages);
}

HETRAIN_API het_result het_schedule_timed(const het_plan *plan, const int64_t *counts, const het_costs *costs,
                                          const het_allocator *allocator, het_schedule **schedule, het_error *error) {
    heti_p_timed t;
    if (schedule != NULL) *schedule = NULL;
    if (plan == NULL || counts == NULL || schedule == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_schedule_timed: plan, counts and schedule must not be NULL");
    memset(&t, 0, sizeof t);
    HETI_T_TRY(heti_t_choose(allocator, &t.sim.allocator, error, "het_schedule_timed"));
    het_plan named = *plan;
    t.sim.plan = plan, t.sim.user = &t, t.sim.error = error;
    memcpy(named.schedule, "greedy", 7); /* checks what is given; of its lists only the room is used */
    HETI_T_TRY(het_schedule_make(&named, counts, allocator, &t.list, error));
    het_result result = heti_t_arrays(&t.arena, 0, heti_p_timed_cut, &t, &t.sim.allocator, "het_schedule_timed", error);
    if (result == HET_OK) {
        for (het_stage_cost *one = t.ones; one < t.ones + plan->stages; one++)
            one->forward.base = one->input.base = one->weight.base = 1, one->backward.base = 2;
        if (costs != NULL) t.costs = *costs;
        else t.costs.stage = t.ones;
        t.transfer = t.costs.transfer, t.costs.transfer = HET_TRANSFER_FREE; /* first lists without SEND and RECV */
        t.costs.blocks = 0, t.costs.block = NULL;
        result = heti_p_timed_lists(&t, &named, counts);
    }
    heti_t_arrays_free(&t.arena, &t.sim.allocator);
    if (result == HET_OK) *schedule = t.best;
    else het_schedule_free(t.best);
    het_schedule_free(t.list);
    het_simulation_free(t.sim.result);
    return result;
}

/* =================================================================================================
   >>trace  Chrome's trace event format, in microseconds with three decimals: a nanosecond is the
   shortest time a reader keeps. Transfers take at least that long, so that arrows find them. What
   may overlap on a rank is spread over threads ("lanes") on which nothing does.
   ============================================================================================== */

enum { HETI_P_LANES = 24 };

typedef struct heti_p_trace {
    heti_t_text out;
    char room[4096];
    const het_plan *plan;
    int64_t stages, micro_batches, slices; /* one more than the largest of each, for the numbers of arrows */
    int events;                            /* a comma is due */
    /* when a lane of the present rank is free again; negative: not used yet */
    double lane[2][HETI_P_LANES];          /* of transfers, of collectives */
} heti_p_trace;

static void heti_p_trace_event(heti_p_trace *t, const char *phase, int64_t rank, int64_t thread) {
    heti_t_put(&t->out, t->events++ == 0 ? "\n" : ",\n");
    heti_t_format(&t->out, "{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d", phase, rank, thread);
}

static void heti_p_trace_name(heti_p_trace *t, int64_t rank, int64_t thread, const char *what, const char *name) {
    heti_p_trace_event(t, "M", rank, thread);
    heti_t_format(&t->out, ",\"name\":\"%s\",\"args\":{\"name\":\"%s\"}}", what, name);
}

static void heti_p_trace_rank(heti_p_trace *t, int64_t rank) {
    heti_p_trace_event(t, "M", rank, 0);
    heti_t_format(&t->out, ",\"name\":\"process_name\",\"args\":{\"name\":\"rank %d", rank);
    if (t->plan != NULL) {
        heti_t_put(&t->out, ": ");
        (void)heti_p_out_units(&t->out, t->plan, rank, 16, "-");
    }
    heti_t_put(&t->out, "\"}}");
    heti_p_trace_event(t, "M", rank, 0);
    heti_t_format(&t->out, ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}}", rank);
    heti_p_trace_name(t, rank, 0, "thread_name", "compute");
    for (int i = 0; i < HETI_P_LANES; i++) t->lane[0][i] = t->lane[1][i] = -1;
}

/* The thread of a record that may overlap others: the first lane that is free. If none is, the one
   that is free first: a viewer then shows a record it overlaps shorter than it was. */
static int64_t heti_p_trace_lane(heti_p_trace *t, const het_record *r, double end) {
    const int collective = heti_p_is_collective(r->action.kind), first = 1 + collective * HETI_P_LANES;
    double *lane = t->lane[collective];
    int i = 0, best = 0;
    for (; i < HETI_P_LANES && lane[best] > r->start; i++)
        if (lane[i] < lane[best]) best = i;
    if (lane[best] < 0)
        heti_p_trace_name(t, r->rank, first + best, "thread_name", collective ? "reduce, gather" : "send, receive");
    lane[best] = end;
    return first + best;
}

/* The same number for a SEND and its RECV: direction, pipeline, the earlier of the two stages,
   micro-batch, slice. 53 bits survive every JSON reader; two arrows could share a number only where
   the product of the four ranges is larger. */
static int64_t heti_p_trace_arrow(const heti_p_trace *t, const het_action *a) {
    int forward = a->kind == HET_ACTION_SEND_F || a->kind == HET_ACTION_RECV_F;
    int later = a->kind == HET_ACTION_RECV_F || a->kind == HET_ACTION_SEND_B;
    uint64_t n = HETI_T_CAST(uint64_t, a->pipeline);
    n = n * HETI_T_CAST(uint64_t, t->stages) + HETI_T_CAST(uint64_t, HETI_T_CAST(int64_t, a->stage) + !later);
    n = n * HETI_T_CAST(uint64_t, t->micro_batches) + HETI_T_CAST(uint64_t, a->micro_batch);
    n = n * HETI_T_CAST(uint64_t, t->slices) + HETI_T_CAST(uint64_t, a->slice);
    return HETI_T_CAST(int64_t, (2 * n + (forward ? 1 : 0)) & ((HETI_T_CAST(uint64_t, 1) << 53) - 1));
}

static void heti_p_trace_args(heti_p_trace *t, const het_record *r) {
    const het_action *a = &r->action;
    heti_t_put(&t->out, ",\"args\":{");
    if (a->kind == HET_ACTION_COMMIT) heti_t_put(&t->out, "\"bytes\":");
    else if (a->kind >= HET_ACTION_REDUCE) heti_t_format(&t->out, "\"block\":%i,\"bytes\":", a->stage);
    else
        heti_t_format(&t->out, "\"pipeline\":%i,\"stage\":%i,\"micro_batch\":%i,\"slice\":%i,\"bytes\":",
                      a->pipeline, a->stage, a->micro_batch, a->slice);
    heti_t_format(&t->out, "%d}}", r->bytes);
}

static void heti_p_trace_record(heti_p_trace *t, const het_record *r) {
    const het_action *a = &r->action;
    const heti_p_kind *kind = &heti_p_kinds[a->kind];
    int moves = heti_t_is_send(a->kind) || heti_t_is_receive(a->kind);
    double start = r->start * 1e6, length = (r->end - r->start) * 1e6, exchange = heti_p_exchange(r) * 1e6;
    int64_t thread = 0;
    if (moves && length < 0.001) length = 0.001;
    if (moves || heti_p_is_moved(a->kind) || heti_p_is_collective(a->kind))
        thread = heti_p_trace_lane(t, r, (start + length) / 1e6);
    heti_p_trace_event(t, "X", r->rank, thread);
    heti_t_format(&t->out, ",\"ts\":%g,\"dur\":%g,\"name\":\"", start, length);
    heti_t_action(&t->out, a);
    heti_t_format(&t->out, "\",\"cat\":\"%s\",\"cname\":\"%s\"", kind->category, kind->color);
    heti_p_trace_args(t, r);
    if (exchange > 0) { /* within it, at its end: when they were is not recorded */
        heti_p_trace_event(t, "X", r->rank, thread);
        heti_t_format(&t->out, ",\"ts\":%g,\"dur\":%g,\"name\":\"exchange\",\"cat\":\"exchange\"}",
                      start + length - exchange, exchange);
    }
    if (!moves || (t->plan != NULL && heti_p_leader(t->plan, r->rank) != r->rank)) return; /* an arrow a team */
    heti_p_trace_event(t, heti_t_is_send(a->kind) ? "s" : "f", r->rank, thread);
    if (heti_t_is_receive(a->kind)) heti_t_put(&t->out, ",\"bp\":\"e\"");
    heti_t_format(&t->out, ",\"ts\":%g,\"id\":%d,\"name\":\"transfer\",\"cat\":\"transfer\"}",
        heti_t_is_send(a->kind) ? start : start + length - 0.001, heti_p_trace_arrow(t, a));
}

HETRAIN_API het_result het_timeline_trace(const het_timeline *timeline, const het_plan *plan, const het_writer *to) {
    heti_p_trace t;
    int64_t rank = 0;
    if (to == NULL || to->write == NULL || !heti_p_timeline_valid(timeline)) return HET_ERR_INVALID;
    t.out = heti_t_text_to(to, t.room, sizeof t.room);
    t.plan = plan, t.stages = t.micro_batches = t.slices = 1, t.events = 0;
    for (int64_t i = 0; i < timeline->records; i++) {
        const het_action *a = &timeline->record[i].action;
        t.stages = heti_p_max(t.stages, HETI_T_CAST(int64_t, a->stage) + 2);
        t.micro_batches = heti_p_max(t.micro_batches, HETI_T_CAST(int64_t, a->micro_batch) + 1);
        t.slices = heti_p_max(t.slices, HETI_T_CAST(int64_t, a->slice) + 1);
    }
    heti_t_format(&t.out, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"producer\":\"hetrain\",\"dropped\":%d},"
                  "\"traceEvents\":[", timeline->dropped);
    for (int64_t i = 0; i <= timeline->records; i++) {
        int64_t until = i < timeline->records ? timeline->record[i].rank : timeline->ranks - 1;
        while (rank <= until) heti_p_trace_rank(&t, rank++);
        if (i < timeline->records) heti_p_trace_record(&t, &timeline->record[i]);
    }
    heti_t_put(&t.out, "\n]}\n");
    return heti_t_end(&t.out);
}

/* =================================================================================================
   >>svg  A timeline as a picture. Colours are those of Okabe and Ito (Color Universal Design,
   2008), which people with any kind of colour vision tell apart, toned a little; a rank's stages
   differ in shade.
   ============================================================================================== */

/* Text of the user's inside XML: the five characters XML keeps for itself, and '?' for what XML 1.0
   does not allow and for a byte that is not part of valid UTF-8. At most `most` characters. */
static void heti_p_out_xml(heti_t_text *out, const char *s, double most) {
    size_t left = strlen(s), size, i;
    for (; left > 0; s += size, left -= size, most--) {
        const unsigned char *from = HETI_T_CAST(const unsigned char *, HETI_T_CAST(const void *, s));
        const uint32_t c = heti_t_point(from, left, 0, &size);
        if (c == 0xFFFEu || c == 0xFFFFu) size = 1;
        if (most < 2 && left > size) { heti_t_put(out, "&#8230;"); return; }
        if (c == HETI_T_INVALID || c == 0xFFFEu || c == 0xFFFFu || c < 32 || c == 127) heti_t_char(out, '?');
        else if (c == '&') heti_t_put(out, "&amp;");
        else if (c == '<') heti_t_put(out, "&lt;");
        else if (c == '>') heti_t_put(out, "&gt;");
        else if (c == '"') heti_t_put(out, "&quot;");
        else
            for (i = 0; i < size; i++) heti_t_char(out, s[i]);
    }
}

/* A class of boxes is a kind of action in a shade. */
enum { HETI_P_SHADES = 4, HETI_P_CLASSES = HETI_T_KINDS * HETI_P_SHADES, HETI_P_STAGES = 64, HETI_P_BOXES = 40000 };

/* Colours beside those of boxes. */
typedef struct heti_p_ground {
    const char *ground, *text, *faint, *empty, *grid, *transfer, *verdict, *idle;
} heti_p_ground;

static const heti_p_ground heti_p_grounds[2] = {
    { "#ffffff", "#1d2127", "#626b76", "#eef0f3", "#dfe3e7", "#3c4450", "#444", "#8b95a1" },
    { "#14181f", "#e6e8eb", "#9aa3af", "#1e242d", "#333b46", "#aab2bd", "#bbb", "#7d8794" }
};

/* Boxes of less than `thin` pixels, collected until they fill one; and such heaps of about the same
   mixture, one behind the other. */
typedef struct heti_p_heap {
    double x, end, total;                        /* from, to, and pixels that are not idle */
    double part[HETI_P_CLASSES];
} heti_p_heap;

typedef struct heti_p_svg {
    heti_t_text out;
    char room[4096];
    const het_timeline *timeline;
    const het_plan *plan;
    const char *title;
    const heti_p_ground *color;
    int dark;
    /* of the picture; of rows: where they start, how long they are, height, space between */
    double width, height, left, top, plot, row, gap, font;
    double text;                                           /* where caption and legend start */
    double end, scale, thin;                               /* seconds, pixels a second, pixels a box should have */
    double busy;                                           /* seconds that ranks compute, in so many actions */
    int64_t computed, micro_batches;
    int64_t transfers, boxes;
    int counting;                                          /* boxes are counted, nothing is drawn */
    int used[HETI_T_KINDS], shades, slices, stacked;       /* what is there to be seen; shades: of any rank */
    /* stages of the present rank, ascending: the place gives the shade */
    int64_t key[HETI_P_STAGES];
    int keys;
    heti_p_heap heap, run;
} heti_p_svg;

static double heti_p_svg_x(const heti_p_svg *s, double seconds) { return s->left + seconds * s->scale; }
static double heti_p_svg_y(const heti_p_svg *s, int64_t rank) {
    return s->top + HETI_T_CAST(double, rank) * (s->row + s->gap);
}

/* 0xRRGGBB mixed with the ground: shade 0 is the colour itself. */
static uint32_t heti_p_svg_color(const heti_p_svg *s, int kind, int shade) {
    static const uint32_t heti_p_mix[HETI_P_SHADES] = { 0, 42, 62, 78 }; /* percent of the ground */
    uint32_t color = s->dark ? heti_p_kinds[kind].dark : heti_p_kinds[kind].light,
             ground = s->dark ? 0x14181F : 0xFFFFFF, mixed = 0;
    uint32_t part = s->dark ? heti_p_mix[shade] * 7 / 8 : heti_p_mix[shade];
    for (int shift = 0; shift < 24; shift += 8)
        mixed |= (((color >> shift & 255u) * (100 - part) + (ground >> shift & 255u) * part) / 100) << shift;
    return mixed;
}

/* Black or white letters, whichever the relative brightness of the box asks for. */
static int heti_p_svg_is_bright(uint32_t color) {
    return 299 * (color >> 16 & 255u) + 587 * (color >> 8 & 255u) + 114 * (color & 255u) > 137000;
}

static void heti_p_out_color(heti_t_text *out, uint32_t color) {
    heti_t_char(out, '#');
    for (int shift = 20; shift >= 0; shift -= 4) heti_t_char(out, "0123456789abcdef"[color >> shift & 15u]);
}

/* Classes: k<kind><shade> for boxes; letters in them have class d (dark) or b (bright). */
static void heti_p_svg_style(heti_p_svg *s) {
    const heti_p_ground *c = s->color;
    heti_t_format(&s->out,
        "<style>text{font-family:Inter,'Helvetica Neue',Helvetica,Arial,sans-serif;font-size:12px;fill:%s}"
        ".h{font-size:17px;font-weight:600}.q{fill:%s}.e{text-anchor:end}.m{text-anchor:middle}"
        ".n text{font-size:%gpx;text-anchor:middle}.n .d{fill:#1b1b1b}.n .b{fill:#fff}.n .s{font-size:%gpx}"
        ".l{fill:%s}.g{stroke:%s}.t{stroke:%s;stroke-width:%s;stroke-opacity:%s;fill:none}.v{stroke:%s}",
        c->text, c->faint, s->font, 0.8 * s->font, c->empty, c->grid, c->transfer, s->row >= 16 ? "0.8" : "0.5",
        s->row >= 16 ? ".55" : ".4", c->verdict);
    for (int kind = 0; kind < HETI_T_KINDS; kind++)
        for (int shade = 0; shade < HETI_P_SHADES && s->used[kind]; shade++) {
            if (shade > 0 && (kind > HET_ACTION_W || shade >= s->shades)) continue;
            heti_t_format(&s->out, ".k%i{fill:", 10 * kind + shade);
            heti_p_out_color(&s->out, heti_p_svg_color(s, kind, shade));
            heti_t_char(&s->out, '}');
        }
    heti_t_put(&s->out, "</style>\n");
}

static void heti_p_svg_rect(heti_p_svg *s, int of, double x, double y, double width, double height, int rounded) {
    s->boxes++;
    if (s->counting) return;
    heti_t_format(&s->out, "<rect class=\"k%i\" x=\"%2\" y=\"%2\" width=\"%2\" height=\"%2\"%s/>",
                  10 * (of / HETI_P_SHADES) + of % HETI_P_SHADES, x, y, width > 0.05 ? width : 0.05, height,
                  rounded && width >= 8 && height >= 10 ? " rx=\"2\"" : "");
}

/* ---- boxes of one rank ---- */

/* Keys are in order, so stages of one pipeline get darker to lighter along the chain. */
static int64_t heti_p_svg_key(const het_action *a) { return a->pipeline * (INT64_C(1) << 32) + a->stage; }

/* Which shade a record's stage has on its rank. */
static int heti_p_svg_shade(const heti_p_svg *s, const het_action *a) {
    if (a->kind > HET_ACTION_W) return 0;
    for (int i = 0; i < s->keys; i++)
        if (s->key[i] == heti_p_svg_key(a)) return i % HETI_P_SHADES;
    return a->stage % HETI_P_SHADES;
}

static void heti_p_svg_keys(heti_p_svg *s, const het_record *record, int64_t count) {
    s->keys = 0;
    for (int64_t n = 0; n < count; n++) {
        const int64_t key = heti_p_svg_key(&record[n].action);
        int at = 0;
        if (record[n].action.kind > HET_ACTION_W) continue;
        while (at < s->keys && s->key[at] < key) at++;
        if (s->keys == HETI_P_STAGES || (at < s->keys && s->key[at] == key)) continue;
        for (int i = s->keys++; i > at; i--) s->key[i] = s->key[i - 1];
        s->key[at] = key;
    }
}

/* Kinds one above the other. A heap with idle time in it is drawn so much narrower. */
static void heti_p_svg_run_draw(heti_p_svg *s, double y, double height) {
    heti_p_heap *run = &s->run;
    for (int of = 0; of < HETI_P_CLASSES && run->total > 0; of++) {
        double share = run->part[of] / run->total;
        if (share <= 0) continue;
        heti_p_svg_rect(s, of, run->x, y, run->total > 0.97 * (run->end - run->x) ? run->end - run->x : run->total,
                        height * share, 0);
        y += height * share;
    }
    memset(run, 0, sizeof *run);
}

/* Ends the present heap: it lengthens the run before it where both are without idle time and differ
   little. */
static void heti_p_svg_heap_end(heti_p_svg *s, double y, double height) {
    heti_p_heap *heap = &s->heap, *run = &s->run;
    int of, joins = run->total > 0.97 * (run->end - run->x) && heap->total > 0.97 * (heap->end - heap->x) &&
        heap->x - run->end < 0.05;
    if (heap->total <= 0) return;
    for (of = 0; of < HETI_P_CLASSES && joins; of++) {
        double difference = run->part[of] / run->total - heap->part[of] / heap->total;
        if (difference > 0.2 || difference < -0.2) joins = 0;
    }
    if (!joins) {
        heti_p_svg_run_draw(s, y, height);
        *run = *heap;
    } else {
        for (of = 0; of < HETI_P_CLASSES; of++) run->part[of] += heap->part[of];
        run->total += heap->total;
        run->end = heap->end;
    }
    memset(heap, 0, sizeof *heap);
}

static void heti_p_svg_heap_flush(heti_p_svg *s, double y, double height) {
    heti_p_svg_heap_end(s, y, height);
    heti_p_svg_run_draw(s, y, height);
}

static void heti_p_svg_box(heti_p_svg *s, const het_record *r, double y, double height) {
    double x = heti_p_svg_x(s, r->start), end = heti_p_svg_x(s, r->end), width = end - x;
    const int of = HETI_P_SHADES * r->action.kind + heti_p_svg_shade(s, &r->action);
    heti_p_heap *heap = &s->heap;
    if (width >= s->thin) {
        heti_p_svg_heap_flush(s, y, height);
        heti_p_svg_rect(s, of, x, y, width - (width > 5 ? 0.8 : 0.15 * width), height, 1);
        return;
    }
    s->stacked |= heti_p_is_compute(r->action.kind);
    if (heap->total > 0 && end - heap->x > s->thin) heti_p_svg_heap_end(s, y, height);
    if (heap->total <= 0) heap->x = x;
    heap->part[of] += width;
    heap->total += width;
    heap->end = end;
}

static int heti_p_digits(int64_t n) {
    int digits = 1;
    for (; n >= 10; n /= 10) digits++;
    return digits;
}

/* Numbers of micro-batches, in boxes that have room. */
static void heti_p_svg_number(heti_p_svg *s, const het_record *r, double y) {
    const het_action *a = &r->action;
    const int32_t number = a->kind == HET_ACTION_STEP ? a->stage : a->micro_batch;
    double x = heti_p_svg_x(s, r->start), width = (r->end - r->start) * s->scale;
    int length = heti_p_digits(number), slice = s->slices && a->kind != HET_ACTION_STEP;
    /* in digits, which are 0.58 of the font wide */
    double room = slice ? length + 0.5 + heti_p_digits(a->slice) : length, font = s->font;
    if (slice && width < 0.8 * font * 0.58 * room + 1.2) { slice = 0; room = length; }
    if (width < font * 0.58 * room + 2) font *= 0.8;
    if (width < font * 0.58 * room + 1.2 || font < 6) return;
    heti_t_format(&s->out, "<text class=\"%s%s\" x=\"%1\" y=\"%1\">%i",
                  heti_p_svg_is_bright(heti_p_svg_color(s, a->kind, heti_p_svg_shade(s, a))) ? "d" : "b",
                  font < s->font ? " s" : "", x + width / 2 - 0.4, y + s->row / 2 + font * 0.36, number);
    if (slice) heti_t_format(&s->out, ".%i", a->slice);
    heti_t_put(&s->out, "</text>");
}

/* At the right: how much of the step a rank waited. */
static void heti_p_svg_idle(heti_p_svg *s, double y, double busy) {
    double share = s->end > 0 ? 1 - busy / s->end : 0, x = s->left + s->plot + 12, middle = y + s->row / 2,
           thick = s->row < 8 ? s->row : 8;
    if (share < 0) share = 0;
    heti_t_format(&s->out, "<rect class=\"l\" x=\"%g\" y=\"%g\" width=\"44\" height=\"%g\"/>", x,
                  middle - thick / 2, thick);
    heti_t_format(&s->out, "<rect class=\"i\" x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\" fill=\"%s\"/>", x,
                  middle - thick / 2, 44 * share, thick, s->color->idle);
    if (s->row + s->gap >= 11.5)
        heti_t_format(&s->out, "<text class=\"q e\" x=\"%g\" y=\"%g\">%1 %%</text>", s->width - 12, middle + 4,
                      100 * share);
    heti_t_put(&s->out, "\n");
}

static void heti_p_svg_label(heti_p_svg *s, int64_t rank, double y) {
    const int two = s->plan != NULL && s->row >= 24; /* lines */
    int64_t every = 1;
    /* 1, 2, 10, 20, 100, ... */
    while (HETI_T_CAST(double, every) * (s->row + s->gap) < 12) every *= every == 1 || every % 5 == 0 ? 2 : 5;
    if (rank % every != 0) return;
    heti_t_format(&s->out, "<text class=\"e\" x=\"%g\" y=\"%g\">rank %d</text>", s->left - 10,
                  y + s->row / 2 + (two ? -1 : 4), rank);
    if (!two) return;
    heti_t_format(&s->out, "<text class=\"q e\" x=\"%g\" y=\"%g\" style=\"font-size:10px\">", s->left - 10,
                  y + s->row / 2 + 12);
    (void)heti_p_out_units(&s->out, s->plan, rank, 2, "&#8211;");
    heti_t_put(&s->out, "</text>");
}

/* What a rank computes; exchanges of its team as a strip above, what is reduced and gathered, and
   what goes to the host and back, as one below. */
static void heti_p_svg_boxes(heti_p_svg *s, int64_t rank, const het_record *record, int64_t count) {
    double y = heti_p_svg_y(s, rank), strip = s->row * 0.2 > 1 ? s->row * 0.2 : 1;
    heti_p_svg_keys(s, record, count);
    if (s->keys > s->shades) s->shades = s->keys < HETI_P_SHADES ? s->keys : HETI_P_SHADES;
    for (int64_t i = 0; i < count; i++)
        if (heti_p_is_compute(record[i].action.kind)) heti_p_svg_box(s, &record[i], y, s->row);
    heti_p_svg_heap_flush(s, y, s->row);
    for (int64_t i = 0; i < count; i++) {
        het_record exchange = record[i];
        exchange.start = exchange.end - heti_p_exchange(&record[i]);
        exchange.action.kind = HET_ACTION_SEND_F;
        if (exchange.start < exchange.end) heti_p_svg_box(s, &exchange, y, strip);
    }
    heti_p_svg_heap_flush(s, y, strip);
    for (int64_t i = 0; i < count; i++)
        if (heti_p_is_collective(record[i].action.kind) || heti_p_is_moved(record[i].action.kind))
            heti_p_svg_box(s, &record[i], y + s->row - strip, strip);
    heti_p_svg_heap_flush(s, y + s->row - strip, strip);
}

static void heti_p_svg_row(heti_p_svg *s, int64_t rank, const het_record *record, int64_t count) {
    double y = heti_p_svg_y(s, rank), busy = 0;
    heti_p_svg_label(s, rank, y);
    heti_p_svg_boxes(s, rank, record, count);
    if (s->row >= 10) heti_t_put(&s->out, "<g class=\"n\">");
    for (int64_t i = 0; i < count; i++) {
        const het_record *r = &record[i];
        if (r->action.kind == HET_ACTION_COMMIT)
            heti_t_format(&s->out, "<path class=\"v\" d=\"M%g %gv%g\"/>", heti_p_svg_x(s, r->end), y, s->row);
        if (!heti_p_is_compute(r->action.kind)) continue;
        busy += r->end - r->start;
        if (s->row >= 10) heti_p_svg_number(s, r, y);
    }
    if (s->row >= 10) heti_t_put(&s->out, "</g>");
    heti_p_svg_idle(s, y, busy);
}

static void heti_p_svg_rows(heti_p_svg *s) {
    const het_timeline *t = s->timeline;
    int64_t i = 0, first;
    s->boxes = 0;
    for (int64_t rank = 0; rank < t->ranks; rank++) {
        for (first = i; i < t->records && t->record[i].rank == rank; i++) {}
        if (s->counting) heti_p_svg_boxes(s, rank, t->record + first, i - first);
        else heti_p_svg_row(s, rank, t->record + first, i - first);
    }
}

/* The least width that keeps the file small. Boxes say what the legend has to explain. */
static void heti_p_svg_thin(heti_p_svg *s) {
    s->counting = 1;
    for (s->thin = 1.2; s->thin < s->plot; s->thin *= 1.5) {
        heti_p_svg_rows(s);
        if (s->boxes <= HETI_P_BOXES) break;
    }
    s->counting = 0;
}

/* ---- between ranks ---- */

static int heti_p_same_transfer(const het_action *send, const het_action *receive) {
    return receive->kind == send->kind + 1 && receive->pipeline == send->pipeline &&
        receive->stage == send->stage + (send->kind == HET_ACTION_SEND_F ? 1 : -1) &&
        receive->micro_batch == send->micro_batch && receive->slice == send->slice;
}

/* From the sender's row where the message left to the receiver's where it was there. `transfers`
   bounds the search. */
static void heti_p_svg_transfers(heti_p_svg *s) {
    int64_t sends = 0;
    for (int64_t i = 0; i < s->timeline->records; i++) sends += heti_t_is_send(s->timeline->record[i].action.kind);
    if (sends == 0 || sends > s->transfers) return;
    heti_t_put(&s->out, "<path class=\"t\" d=\"");
    for (int64_t i = 0; i < s->timeline->records; i++) {
        const het_record *send = &s->timeline->record[i];
        if (!heti_t_is_send(send->action.kind)) continue;
        for (int64_t j = 0; j < s->timeline->records; j++) {
            const het_record *receive = &s->timeline->record[j];
            if (receive->rank == send->rank || !heti_p_same_transfer(&send->action, &receive->action)) continue;
            const double from = heti_p_svg_y(s, send->rank) + (receive->rank > send->rank ? s->row : 0);
            const double until = heti_p_svg_y(s, receive->rank) + (receive->rank > send->rank ? 0 : s->row);
            heti_t_format(&s->out, "M%g %gL%g %g", heti_p_svg_x(s, send->start), from,
                              heti_p_svg_x(s, receive->end), until);
            break;
        }
    }
    heti_t_put(&s->out, "\"/>\n");
}

/* ---- around the rows ---- */

/* A tick every 1, 2 or 5 times a power of ten milliseconds, so that there are about ten. */
static void heti_p_svg_axis(heti_p_svg *s) {
    double span = s->end * 1e3, step = 1, bottom = heti_p_svg_y(s, s->timeline->ranks) - s->gap, tick;
    static const double heti_p_factor[3] = { 2, 2.5, 2 };
    int decimals = 0;
    if (!(span > 0)) return;
    while (step > span / 10) step /= 10;
    while (step * 10 <= span / 10) step *= 10;
    for (int i = 0; i < 3 && span / step > s->plot / 85; i++) step *= heti_p_factor[i];
    for (tick = step; tick < 0.999999 && decimals < 9; tick *= 10) decimals++;
    for (int i = 0; HETI_T_CAST(double, i) * step <= span * 1.000001; i++) {
        double x = heti_p_svg_x(s, i * step / 1e3);
        heti_t_format(&s->out, "<path class=\"g\" d=\"M%g %gv%g\"/><text class=\"q m\" x=\"%g\" y=\"%g\">", x,
                          s->top - 4, bottom - s->top + 9, x, bottom + 19);
        heti_t_fixed(&s->out, i * step, decimals);
        heti_t_put(&s->out, i == 0 ? " ms</text>" : "</text>");
    }
    heti_t_put(&s->out, "\n");
}

/* Room for `boxes` boxes and a text of so many letters, in the next row where this one is full.
   What follows begins at *next. */
static void heti_p_svg_item(const heti_p_svg *s, int64_t boxes, size_t letters, double *x, double *y, double *next) {
    const double wide = 12 * HETI_T_CAST(double, boxes) + 4 + 7 * HETI_T_CAST(double, letters);
    *x = *next;
    if (*x + wide > s->width - 12 && *x > s->text) {
        *x = s->text;
        *y += 18;
    }
    *next = *x + wide + 14;
}

/* From y on, in as many rows as it needs. Returns the last row. */
static double heti_p_svg_legend(heti_p_svg *s, double y) {
    static const char *const heti_p_notes[3] = { "shades: a rank's stages", "stacked: shares of boxes too thin to draw",
                                                "records were dropped" };
    const int64_t notes[3] = { s->shades > 1, s->stacked, s->timeline->dropped > 0 };
    double x, next = s->text;
    for (int i = 0; i < HETI_T_KINDS; i++) { /* the verdict last */
        const int kind = i < HET_ACTION_COMMIT ? i : i + 1 < HETI_T_KINDS ? i + 1 : HET_ACTION_COMMIT,
                  shades = kind <= HET_ACTION_W ? s->shades : 1;
        const char *legend = heti_p_kinds[kind].legend;
        if (!s->used[kind] || legend == NULL) continue;
        heti_p_svg_item(s, shades, strlen(legend), &x, &y, &next);
        for (int shade = 0; shade < shades; shade++, x += 12)
            heti_p_svg_rect(s, HETI_P_SHADES * kind + shade, x, y - 9, 11, 11, 1);
        heti_t_format(&s->out, "<text x=\"%g\" y=\"%g\">%s</text>", x + 4, y + 1, legend);
    }
    heti_p_svg_item(s, 1, 4, &x, &y, &next);
    heti_t_format(&s->out, "<rect class=\"l\" x=\"%g\" y=\"%g\" width=\"11\" height=\"11\"/>"
                  "<text x=\"%g\" y=\"%g\">idle</text>", x, y - 9, x + 16, y + 1);
    for (int i = 0; i < 3; i++) {
        if (!notes[i]) continue;
        heti_p_svg_item(s, 0, strlen(heti_p_notes[i]) + (i == 2 ? 20 : 0), &x, &y, &next);
        heti_t_format(&s->out, "<text class=\"q\" x=\"%g\" y=\"%g\">", x, y + 1);
        if (i == 2) heti_t_format(&s->out, "%d ", s->timeline->dropped);
        heti_t_format(&s->out, "%s</text>", heti_p_notes[i]);
    }
    heti_t_put(&s->out, "\n");
    return y;
}

static void heti_p_svg_caption(heti_p_svg *s) {
    const int64_t ranks = s->timeline->ranks;
    double unit = s->end * 1e3, whole = s->end * HETI_T_CAST(double, ranks);
    int decimals = 1;
    while (unit > 0 && unit < 100 && decimals < 6) { unit *= 10; decimals++; }
    heti_t_format(&s->out, "<text class=\"h\" x=\"%g\" y=\"29\">", s->text);
    heti_p_out_xml(&s->out, s->title, (s->width - s->text - 12) / 12);
    heti_t_format(&s->out, "</text><text class=\"q\" x=\"%g\" y=\"49\"%s>%d %s &#183; %d %s &#183; ", s->text,
                  s->width < 480 ? " style=\"font-size:10px\"" : "", ranks, ranks == 1 ? "rank" : "ranks",
                  s->micro_batches, s->micro_batches == 1 ? "micro-batch" : "micro-batches");
    heti_t_fixed(&s->out, s->end * 1e3, decimals);
    heti_t_format(&s->out, " ms &#183; bubble %1 %%</text><text class=\"q e\" x=\"%g\" y=\"%g\">idle</text>\n",
                  whole > 0 ? 100 * (1 - s->busy / whole) : 0, s->width - 12, s->top - 9);
}

/* What there is to be seen. */
static void heti_p_svg_look(heti_p_svg *s) {
    for (int64_t i = 0; i < s->timeline->records; i++) {
        const het_record *r = &s->timeline->record[i];
        if (!heti_t_is_send(r->action.kind)) s->used[r->action.kind] = 1;
        if (heti_p_exchange(r) > 0) s->used[HET_ACTION_SEND_F] = 1;
        if (r->action.slice > 0) s->slices = 1;
        s->micro_batches += r->action.kind == HET_ACTION_F && r->action.stage == 0 && r->action.slice == 0;
        if (!heti_p_is_compute(r->action.kind)) continue;
        s->busy += r->end - r->start;
        s->computed++;
    }
}

/* Sizes of everything, from the description and the number of ranks. */
static void heti_p_svg_layout(heti_p_svg *s, const het_svg_desc *desc) {
    int64_t ranks = s->timeline->ranks > 0 ? s->timeline->ranks : 1;
    double n = HETI_T_CAST(double, ranks), wanted = 0; /* a width with boxes of 10 pixels */
    s->row = desc->row_height > 0 ? desc->row_height : ranks <= 4 ? 40 : ranks <= 8 ? 32 : ranks <= 16 ? 26 :
        ranks <= 32 ? 20 : ranks <= 64 ? 13 : 900 / n > 2 ? 900 / n : 2;
    s->gap = s->row >= 30 ? 10 : s->row >= 16 ? 5 : s->row >= 6 ? 2 : 0.4;
    s->font = s->row * 0.55 < 11 ? s->row * 0.55 : 11;
    if (s->font < 7.5 && s->row >= 10) s->font = 7.5;
    s->left = s->plan != NULL && s->row >= 24 ? 112 : 74;
    s->end = heti_t_timeline_end(s->timeline);
    if (s->busy > 0) wanted = 10 * s->end * HETI_T_CAST(double, s->computed) / s->busy + s->left + 118;
    s->width = desc->width > 0 ? desc->width : wanted > 1200 && wanted <= 2400 ? wanted : 1200;
    s->plot = s->width - s->left - 118;
    s->text = s->width < 700 ? 12 : s->left;
    s->top = 96;
    s->height = s->top + n * (s->row + s->gap) + 34;
    s->scale = s->end > 0 ? s->plot / s->end : 0;
    s->transfers = desc->transfers == 0 ? 600 : desc->transfers;
}

HETRAIN_API het_result het_timeline_svg(const het_timeline *timeline, const het_plan *plan, const het_svg_desc *desc,
                                        const het_writer *to) {
    static const het_svg_desc heti_p_plain = { 0, NULL, 0, 0, 0, HET_DEFAULT, 0 };
    heti_p_svg s;
    if (desc == NULL) desc = &heti_p_plain;
    if (to == NULL || to->write == NULL || desc->start_canary != 0 || desc->end_canary != 0 ||
        !heti_p_timeline_valid(timeline))
        return HET_ERR_INVALID;
    if (!(desc->width == 0 || (desc->width >= 400 && desc->width <= 20000)) ||
        !(desc->row_height == 0 || (desc->row_height >= 2 && desc->row_height <= 200))) return HET_ERR_INVALID;
    memset(&s, 0, sizeof s);
    s.timeline = timeline, s.plan = plan;
    s.title = desc->title != NULL ? desc->title : "Timeline of one step";
    s.dark = desc->dark == HET_YES, s.color = &heti_p_grounds[s.dark], s.shades = 1;
    heti_p_svg_look(&s);
    heti_p_svg_layout(&s, desc);
    heti_p_svg_thin(&s);
    s.out = heti_t_text_in(NULL, 0);
    const double more = heti_p_svg_legend(&s, 71) - 71; /* how high it is */
    s.top += more;
    s.height += more;
    s.out = heti_t_text_to(to, s.room, sizeof s.room);
    heti_t_format(&s.out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
                  "viewBox=\"0 0 %g %g\">\n", s.width, s.height, s.width, s.height);
    heti_p_svg_style(&s);
    heti_t_format(&s.out, "<rect width=\"%g\" height=\"%g\" fill=\"%s\"/>\n", s.width, s.height, s.color->ground);
    heti_p_svg_caption(&s);
    (void)heti_p_svg_legend(&s, 71);
    for (int64_t rank = 0; rank < timeline->ranks; rank++)
        heti_t_format(&s.out, "<rect class=\"l\" x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\"/>", s.left,
                          heti_p_svg_y(&s, rank), s.plot, s.row);
    heti_p_svg_axis(&s);
    heti_p_svg_rows(&s);
    heti_p_svg_transfers(&s);
    heti_t_put(&s.out, "</svg>\n");
    return heti_t_end(&s.out);
}

#ifdef __cplusplus
}
#endif
#define HETRAIN_PLAN_IMPLEMENTATION_DONE
#endif /* HETRAIN_PLAN_IMPLEMENTATION */

/* ---- changes ------------------------------------------------------------------------------------
   0.2.0  Names, files and drawers: CHANGELOG.md.
   0.1.0  The first version: simulator, traces, pictures.

   ---- licence: MIT-0 -----------------------------------------------------------------------------
   MIT No Attribution

   Copyright 2026 hetrain authors

   Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
   associated documentation files (the "Software"), to deal in the Software without restriction,
   including without limitation the rights to use, copy, modify, merge, publish, distribute,
   sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
   furnished to do so.

   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
   NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
   NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
   DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
   OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */
