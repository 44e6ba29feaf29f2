/* hetrain_plan.h 0.1.0: what a plan would cost, and what it looks like. A companion of hetrain.h
   that uses only its public API. Needs hetrain.h and hetrain_text.h beside it.

   USE
       #define HETRAIN_IMPLEMENTATION           in one source file of the program, before the
                                                includes; the other files include them without.
       #define HETRAIN_PLAN_IMPLEMENTATION
       #include "hetrain.h"
       #include "hetrain_plan.h"
   The two implementations may stand in one file or in two. Needs libc; no libm, no threads, no
   stdio.

   WHAT IT DOES
   het_simulate runs the lists of a schedule, the same ones that a training step runs, on given
   times, and says how long the step takes, when every rank waits, and what it keeps.
   het_timeline_trace and het_timeline_svg draw its timeline, or that of a real step.
   het_plan_search looks for the plan whose step is shortest on the devices there are, and says what
   the others lose by.

       het_plan_read(&desc, "pp", 2, &plan, &error)              4 ranks, one stage each  (hetrain.h)
       het_schedule_make(plan, counts, NULL, &schedule, &error)  lists of actions  (hetrain.h)
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
   A function's output depends on its arguments alone; that of het_plan_search with a clock also on
   when its time is over. Numbers in pictures and traces are written by the header's own formatter
   in any locale.

   FUNCTIONS
       >>profile_api     het_profile_describe het_profile_free het_profile_needs het_profile_stage
                         het_profile_memory het_profile_measure het_profile_read het_profile_write
                         het_profile_merge
       >>cluster_api     het_cluster_read het_cluster_write het_cluster_flat het_cluster_free
       >>simulate_api    het_simulate het_simulation_free het_profile_costs het_plan_costs_free
                         het_simulate_costs
       >>search_api      het_plan_search het_search_free
       >>adapt_api       het_plan_predict het_adapt_create het_adapt_destroy het_adapt_start
                         het_adapt_observe het_adapt_advise het_advice_free het_adapt_cluster
       >>pack_api        het_pack het_packing_free
       >>picture_api     het_timeline_trace het_timeline_svg

   CONTENTS   (tags to search for)
   public API:
       >>profile_api     het_profile: times and bytes of units, blocks, devices and links
       >>cluster_api     het_cluster: devices, groups and links, as a file
       >>simulate_api    costs, het_simulate, het_simulation
       >>search_api      het_plan_search: which plan is best
       >>adapt_api       het_adapt: measured against predicted, other plans while training
       >>pack_api        het_pack: micro-batches of granules of unequal size
       >>picture_api     Chrome traces, SVG
   implementation:
       >>config          includes and compiler differences
       >>records         what both pictures ask of a timeline
       >>simulate        the simulator
       >>profile         describing models, bytes of a plan, files of profiles
       >>measure         times of units, updates, messages and reductions
       >>cluster         cluster files
       >>search          the planner
       >>adapt           measured against predicted times, advice
       >>pack            which granules stand together, which micro-batch comes when
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

/* ---- >>profile_api: what things cost ------------------------------------------------------------
   A profile says what each unit of a model costs on each kind of device, and what links do, in
   seconds and bytes. It is described and measured here, read from a file, merged, or written by
   hand: the planner and the simulator know nothing else about devices. */

/* base + token * tokens + pair * pairs. `pairs` counts for every query the keys it sees: T (T + 1)
   / 2 for a causal sequence of T tokens. */
typedef struct het_curve { double base, token, pair; } het_curve;

/* What is the same on all devices: a kind of unit. Bytes are those of one token; how long they are
   kept is het_keep's question (hetrain.h). */
typedef struct het_unit_kind {
    char name[48];                    /* of the unit's table; where units of one table differ, "name#2" */
    double input, output;             /* streams taken from the unit before, given to the next */
    double call;                      /* scratch tensors of one call */
    double keep_input, keep_weight;   /* kept from F until I, from F until W; B ends both. Only for
                                         the call where the unit is recomputed, but keep_weight is
                                         kept where I and W come apart */
    double keep_gradient;             /* kept from I until W; only for the call where B does both */
    double carry;                     /* kept for the whole micro-batch while one of its slices is in flight */
    double carry_gradient;            /* the same, where there are slices or I and W come apart;
                                         else only for the call */
    double workspace, workspace_base; /* scratch inside the device's ops: of one token, and what
                                         does not depend on tokens */
    int32_t loss;                     /* 1: the unit that makes the loss. It is never recomputed */
} het_unit_kind;

/* Parameters used by the same units (>>schedule_api, het_blocks). */
typedef struct het_block_profile {
    int64_t elements;
    int64_t uses;
    int64_t first_use;                /* into het_profile.use: units, ascending */
    int32_t frozen;
} het_block_profile;

/* `recompute`: what B or I take longer where the unit is recomputed. */
typedef struct het_unit_time { het_curve forward, backward, input, weight, recompute; } het_unit_time;

typedef struct het_device_profile {
    char name[48];                    /* "cpu:1", "h100", ... */
    het_unit_time *alone, *together;  /* [kinds] with nothing beside it, and with all ranks of its
                                         machine at work; equal where not measured apart */
    double step_element;              /* of the optimizer: an owned element */
    double begin_element;             /* before the first action of a step, for a held element of gradients: clearing */
    double verdict_base, verdict_element; /* of VERDICT beside waiting: itself, an owned element: squaring */
    double message_byte, ring_byte;   /* the rank's own work for a byte that a message or a
                                         reduction brings or takes: copies, sums */
    double action;                    /* of any action, beside what it does */
} het_device_profile;

typedef struct het_link_profile {
    char name[48];                    /* "threads", "mpi", ... */
    double latency, bandwidth;        /* seconds, bytes a second; 0: unlimited */
} het_link_profile;

typedef struct het_profile {
    char model[128];                  /* as it was given: "gpt2:124m", ... */
    het_dtype dtype;
    het_reduce reduce;
    int64_t granule;                  /* tokens of the longest granule that it was measured with; 0: not known */
    int64_t kinds, units, blocks, uses, devices, links;
    het_unit_kind *kind;              /* [kinds] */
    int32_t *unit;                    /* [units] the kind of each unit of the chain */
    het_block_profile *block;         /* [blocks] in the order of the schedule's blocks */
    int64_t *use;                     /* [uses] */
    het_device_profile *device;       /* [devices] */
    het_link_profile *link;           /* [links] */
    double weight_bytes, gradient_bytes, state_bytes; /* of an element: 4, 8 (exact) or 4, 8 (AdamW) */
    /* of an element on its way to its owner and back: 8 (exact) or 4, 4 */
    double reduce_bytes, gather_bytes;
    /* what a rank takes beside, whatever lies on it: tables, maxima, scalars */
    double rank_weights, rank_gradients, rank_workspace;
    double token_bytes, sequence_bytes; /* a micro-batch's own arrays, beside `carry`: of a token, of a sequence */
    het_allocator allocator;          /* of this struct and its arrays: one block of `size` bytes */
    size_t size;
} het_profile;

/* The profile of what `desc` describes (model or units, dtype, reduce, granule, frozen, optimizer,
   the first device), without any times: no devices, no links. model: a name for it, NULL: "".
   Nothing is computed but the device is asked for the workspace of its ops. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_profile_describe(const het_desc *desc, const char *model,
                                                               const het_allocator *allocator, het_profile **profile,
                                                                   het_error *error);
HETRAIN_API void het_profile_free(het_profile *profile);               /* NULL is fine. Threads: any. */

/* What a rank's list of actions needs at most at any time. */
typedef struct het_needs {
    int64_t slots;                    /* activations of slices, from F until B or W */
    int64_t carries;                  /* micro-batches */
    int64_t messages;                 /* received, or handed over, and not yet used */
    int32_t split;                    /* I and W come apart in none of its stages: 0, in some: 1, in all: 2 */
} het_needs;
/* needs: [plan->ranks]. Messages are only known of complete lists. allocator: of a table that is
   freed again. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_profile_needs(const het_plan *plan, const het_schedule *schedule,
                                                            const het_allocator *allocator, het_needs *needs,
                                                                het_error *error);

/* The largest micro-batch there will be. */
typedef struct het_shape {
    int64_t tokens, sequences;        /* het_desc.max_tokens, max_sequences */
    int64_t granule;                  /* tokens of the longest granule; 0: 512, or all where there are fewer */
} het_shape;

/* Bytes of one stage for `rows` tokens: a slot (streams and kept tensors of a slice), and what a
   rank needs once, for the largest of its stages. */
typedef struct het_stage_memory {
    double slot;                      /* for `rows` */
    double carry;                     /* for `tokens`; 0 where they are not cut into slices */
    double scratch;                   /* once a rank: the most that a unit's turn takes, tensors for
                                         `rows` and workspace for `tokens` */
    double stream;                    /* the widest boundary; a rank keeps three such */
    double message;                   /* the wider of its two ends */
} het_stage_memory;
/* A sum over the stage's units, for planners. split, sliced: 1 where I and W come apart, where
   micro-batches are cut. Threads: any. */
HETRAIN_API het_stage_memory het_profile_stage(const het_profile *profile, int64_t unit_begin, int64_t unit_end,
                                               int recompute, int split, int sliced, double rows, double tokens);
/* memory: [plan->ranks], what het_memory_estimate says, without tables on the host: weights,
   gradients, optimizer, activations, communication, device and saving. Arrays begin at multiples of
   64 bytes, which is not counted, and state is cut at multiples of 1,024 elements: where tokens are
   a multiple of 16 it is exact but for that at the tokens the profile was described for; of others
   the workspace is taken from a line through two points (found up to 5 % of the whole too low). It
   is an upper bound where I and W come apart in some of a rank's stages, and for gradients where
   het_desc.max_micro_batches is 1: they may take less, and lie where activations were
   (het_gradient.final). Allocates a table from profile->allocator and frees it. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_profile_memory(const het_profile *profile, const het_plan *plan,
                                                             const het_needs *needs, const het_shape *shape,
                                                                 het_memory *memory, het_error *error);

/* ---- measuring ---- */

typedef struct het_measure_desc {
    uint32_t start_canary;
    const het_desc *desc;             /* Required: model or units, dtype, reduce, granule,
                                         optimizer, max_tokens, and the devices, a rank each. Plan,
                                         links, transport, hook and memory limits are left aside */
    const char *model;                /* a name for it: "" */
    int64_t length;                   /* tokens of the longest sequences: the model's context */
    double seconds;                   /* about so long a kind of device: 3; it may take three times
                                         as long, for three steps of every sort */
    double (*now)(void *user);        /* Required: a clock in seconds. Called by the ranks' threads at once */
    void *user;
    het_choice together;              /* all ranks at once as well, where there are several: yes */
    het_allocator allocator;
    uint32_t end_canary;
} het_measure_desc;
/* Describes desc->desc and measures its devices, by steps of real contexts over a short form of the
   chain. Devices with the same table, threads and instruction set are one kind, "cpu:2"; speeds
   only matter to how ranks disturb each other: times are those of full speed. With several devices
   the link "threads" between the first two is measured too. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_profile_measure(const het_measure_desc *desc, het_profile **profile,
                                                              het_error *error);

/* ---- files ----
   JSON, written so that reading gives the same numbers. The implementation's section >>profile
   describes what may stand in it; unknown or repeated keys, names that are not there, and numbers
   that are negative or not finite are errors that name byte, key and value. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_profile_read(const char *text, size_t length,
                                                           const het_allocator *allocator, het_profile **profile,
                                                               het_error *error);
/* Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_profile_write(const het_profile *profile, const het_writer *to);
/* The first with the devices and links of the second, which replace those of the same name. Both
   must be of one model, dtype, reduce and granule, with the same units; what differs is named.
   Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_profile_merge(const het_profile *first, const het_profile *second,
                                                            const het_allocator *allocator, het_profile **profile,
                                                                het_error *error);

/* ---- >>cluster_api: what there is to compute on -------------------------------------------------
   Devices in groups within groups: machine, rack, site. Two devices talk over the link of the
   smallest group that has both. As a file:

       { "name": "three sites", "link": { "latency": "20ms", "bandwidth": "1G" }, "members": [
         { "name": "site", "count": 3, "uplink": "10G", "link": { "latency": "50us", "bandwidth":
         "12G" }, "members": [
           { "name": "node", "count": 40, "process": true, "link": { "latency": "5us", "bandwidth":
           "200G" }, "members": [
             { "device": "h100", "count": 8, "memory": "80G" } ] } ] } ] }

   A device has device (a profile's name) and may have name, count 1, speed 1, memory 0; a group has
   members and may have name, count 1, process
   false, link (latency 0, bandwidth 0), bus 0, uplink 0. Times are in seconds, sizes in bytes,
   either as numbers or as text with s, ms, us, ns
   or K, M, G, T (powers of 1,000), Ki, Mi, Gi, Ti (of 1,024) behind them. Of several with one entry
   "#0", "#1", ... is added to the names. Devices are ranks in the order in which they come;
   "ranks": [0, 2, 1, ...] of the outermost group says which ranks they are instead. */

typedef struct het_cluster_device {
    char name[48];
    char profile[48];                 /* of a het_device_profile */
    double speed;                     /* times as fast as the profile says: 1 */
    double memory;                    /* bytes; 0: no limit */
    int64_t group;                    /* the innermost that it is in */
} het_cluster_device;

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

typedef struct het_cluster {
    char name[48];
    int64_t ranks, groups;
    het_cluster_device *device;       /* [ranks] */
    het_group *group;                 /* [groups] */
    het_allocator allocator;          /* of this struct and its arrays: one block of `size` bytes */
    size_t size;
} het_cluster;

/* From text. HET_ERR_FORMAT: *error names byte, key, value and rule. Unknown keys are errors. At
   most 1,048,576 devices. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_cluster_read(const char *text, size_t length,
                                                           const het_allocator *allocator, het_cluster **cluster,
                                                               het_error *error);
/* The same as text; equal members that follow each other become one with a count. Where devices or
   groups are not in the order in which a file gives them, without counts and with "ranks".
   HET_ERR_INVALID: a group is empty or in none before it. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_cluster_write(const het_cluster *cluster, const het_writer *to);
/* One group with one link, the ranks of one process. device: [ranks], copied; NULL: "device#0" and
   so on, speed 1. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_cluster_flat(int64_t ranks, const het_cluster_device *device,
                                                           double latency, double bandwidth,
                                                                  const het_allocator *allocator, het_cluster **cluster,
                                                                      het_error *error);
HETRAIN_API void het_cluster_free(het_cluster *cluster);               /* NULL is fine. Threads: any. */

/* ---- >>simulate_api: what a schedule would take -------------------------------------------------
   Runs the lists of a schedule, the very ones a step runs, on given times. Lists with compute
   actions only (schedule->complete 0) get a transfer wherever stages that follow each other lie on
   different ranks; complete lists have their own.
   * A rank does its actions in order. F, B, I, W and STEP take its time; SEND, RECV, REDUCE and
     GATHER are started and take none but what het_rank_cost says. A pair "(a;b)OVERLAP_F_B" is a,
     then b; what both send leaves after b. F, B and I wait until their message is there.
   * Slices share a micro-batch's tokens by plan->slice_share. Of its pairs the queries between a
     and b of a causal sequence see b^2 - a^2 parts.
   * A message leaves when its SEND is reached and the messages before it have left the same link in
     the same direction: that takes bytes / bandwidth. It is there `latency` later; latencies do not
     occupy the link. In groups it then crosses the uplinks out of the sender's groups, the bus of
     the smallest group that has both ranks, and the uplinks into the receiver's groups. Each serves
     the messages in the order in which they come to it, for bytes / its own bandwidth each; the
     first byte goes on at once, so that an idle network takes as long as its slowest part.
   * REDUCE and GATHER are rings among the ranks whose lists have them, in the order of ranks: once
     all have reached it, N - 1 steps that each take the time of the largest part on the slowest
     link of the ring. Where these ranks are spread over processes, the first of each process is the
     ring's member: before it the others send theirs there, one after the other, behind it they get
     theirs back, the whole block on the way in of REDUCE and on the way out of GATHER, their own
     part otherwise. A rank takes part in one ring at a time, the one that was ready first, then the
     lower block. Rings share buses and uplinks with rings, the one that starts first being served
     first, and messages with messages; a ring and a message do not slow each other: a network that
     carries both at once does worse.
   * VERDICT waits for every REDUCE and every rank that has a stage.
   * het_costs.transfer says how far ranks wait for their messages. Then lists must be complete, and
     receive what one rank sends to another in the same order (het_schedule_check).
   Times are added and compared, multiplied by sizes, and never subtracted from each other before
   the end: whole numbers in give whole numbers out, up to 2^53. The unit is the caller's: a
   timeline to be drawn should be in seconds. */

/* Bytes are those of one token. With het_costs.tokens NULL a micro-batch is one token: then {0, F,
   0} and bytes of a whole micro-batch. */
typedef struct het_stage_cost {
    het_curve forward, backward, input, weight; /* of F, B, I, W, recomputation included; the base once a slice */
    double bytes;                     /* of the stage's output; its gradient is as large */
    double keep_input, keep_weight;   /* kept from F until I, from F until W; B is both */
    double keep_gradient;             /* kept from I until W */
} het_stage_cost;

typedef struct het_link_cost {
    double latency;
    double bandwidth;                 /* bytes a unit of time; 0: unlimited */
} het_link_cost;

typedef struct het_block_cost {
    double reduce_bytes, gather_bytes; /* of the whole block: a rank owns its part of plan->state_share */
    double step;                      /* of the update of the whole block, or its elements: het_rank_cost.step */
} het_block_cost;

/* A rank's own time, beside its stages. All 0 but step 1: none. */
typedef struct het_rank_cost {
    double begin;                     /* before its first action */
    double ring_byte;                 /* of a byte that a REDUCE or GATHER brings or takes: spent
                                         when it is reached, while the ring runs */
    double verdict;                   /* of VERDICT, before it joins the others */
    double step_base, step;           /* of a STEP: once, and for each unit of its part of het_block_cost.step */
} het_rank_cost;

typedef enum het_transfer {
    HET_TRANSFER_FREE = 0,            /* as above: a message leaves when its SEND is reached, and
                                         nobody waits but the F, B or I that needs it */
    /* As het_step moves messages within a process: one leaves when its RECV has been reached as
       well; a rank has two buffers for what it sends, so that an action ends only when the message
       before the last is there; the scalars of VERDICT go up a tree of the ranks that have a stage
       and down again, each message a latency: the first ones of the processes are a binomial tree,
       and below each the others of its process are told in the order in which messages can end. */
    HET_TRANSFER_POSTED = 1,
    /* As blocking calls do (MPI_Send, ncclSend on the stream that computes): SEND and RECV end when
       the message is there, which leaves when both have been reached. Small messages leave at once
       and do not keep the sender. */
    HET_TRANSFER_BLOCKING = 2
} het_transfer;

typedef struct het_costs {
    uint32_t start_canary;
    const het_stage_cost *stage;      /* [plan->stages]. Required */
    const double *tokens, *pairs;     /* pipeline by pipeline, of each micro-batch; NULL: 1 and 0 each */
    const double *sequences;          /* of equal length, in each micro-batch: slices see other
                                         pairs then; NULL: 1 each */
    const het_rank_cost *rank;        /* [ranks]; NULL: none but the steps of blocks */
    const het_link_cost *link;        /* [ranks][ranks] from, to; NULL: by groups, or all are `every_link` */
    het_link_cost every_link;
    const het_group *group;           /* [groups] of a het_cluster; NULL: none. Needs rank_group, and `link` NULL */
    const int64_t *rank_group;        /* [ranks] the innermost group that each rank is in */
    int64_t groups;
    const het_block_cost *block;      /* [blocks]; NULL: rings and steps take no time */
    int64_t blocks;
    het_transfer transfer;
    double eager;                     /* messages of at most so many bytes leave when their SEND is
                                         reached, whatever `transfer` says */
    uint32_t end_canary;
} het_costs;

typedef struct het_rank_time {
    double start, end;                /* of the first and the last that the rank computes */
    double busy;                      /* sum of F, B, I, W, STEP and of what het_rank_cost says */
    double fill, wait, tail, idle;    /* before start, between, after end until the makespan; their
                                         sum. busy + idle = makespan */
    double peak;                      /* the most activations kept at once, from F until B or W: in
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
                                                                        const het_allocator *allocator,
                                                                            het_simulation **simulation,
                                                                                het_error *error);
HETRAIN_API void het_simulation_free(het_simulation *simulation);      /* NULL is fine. Threads: any. */

/* ---- costs of a plan ---- */

typedef struct het_plan_costs {
    het_costs costs;                  /* for het_simulate with complete lists; its tokens, pairs and
                                         sequences are the caller's to set */
    het_stage_cost *stage;            /* [plan->stages] those of `costs` */
    het_stage_cost *alone, *together; /* [plan->stages] with nothing beside, with all ranks always at work */
    het_allocator allocator;          /* of this struct and its arrays: one block of `size` bytes */
    size_t size;
} het_plan_costs;
/* What the stages, blocks and ranks of a plan cost. cluster: rank r is its device r, with that
   device's profile and speed, and its groups are the links; it must outlive the costs. NULL: all
   ranks are the profile's first device, and every link its first link. together: units at the times
   measured with all ranks at work: yes. A stage is the sum of its units, of one action, and of
   copying its messages, which move as het_step moves them. What B keeps is counted until W.
   Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_profile_costs(const het_profile *profile, const het_plan *plan,
                                                            const het_cluster *cluster, het_choice together,
                                                                const het_allocator *allocator, het_plan_costs **costs,
                                                                    het_error *error);
HETRAIN_API void het_plan_costs_free(het_plan_costs *costs);           /* NULL is fine. Threads: any. */
/* het_simulate on these costs; and where the times alone and together differ once more, with each
   stage between the two, as far from alone as the ranks were at work in the first simulation, 1 -
   bubble. costs->stage is left so. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_simulate_costs(const het_plan *plan, const het_schedule *schedule,
                                                             het_plan_costs *costs, het_choice timeline,
                                                                 const het_allocator *allocator,
                                                                     het_simulation **simulation, het_error *error);

/* ---- >>search_api: which plan is best -----------------------------------------------------------
   Looks for the plan whose simulated step is shortest and that fits into every device's memory.
   Rank r is device r of the cluster. A plan of the space that is searched has
   * pipelines: some of the devices in groups, each in some order, numbered by their lowest device;
     the others stay idle. A device has one stage; under interleaved, zb-v, v-half, v-min and
     dualpipev two, placed as the schedule wants it, and some pipeline has two devices at least. The
     chain may be cut between any two units
   * granules of a micro-batch: 1 to most_granules; the last micro-batch of the step has what is
     left
   * counts: how many micro-batches each pipeline takes, 0 allowed for all but one
   * a schedule of the list; for "greedy" a memory_limit: none, or a whole number up to the length
     of the longest pipeline
   * recompute: yes or no for each device's stages but those of the last unit alone
   * state shares, of all devices at work: 1 each; the speed of the device's optimizer, where all
     need time for it; or the bytes that its memory limit leaves beside everything else, where all
     have a limit
   The search begins with pipelines made along the groups of the cluster and chains cut by bisection
   of the slowest stage's time, and improves them by moves (a unit, a device, two devices, a
   micro-batch, granules, schedule, recompute, state) that may lose a little at first. A move is
   judged by an estimate, and simulated where that promises more than ever in this climb; where
   there are at most 16 devices and 1,024 F a step, three of four climbs simulate every move that no
   bound rules out instead, and some begin with a plan that is drawn.
   A space is small where it has at most `small` plans: all that is listed above is counted, what is
   the same as another plan and what does not fit included; beyond 8 devices none is. It is searched
   completely, by branch and bound with bounds that are proven, so that the best plan is the best
   there is, if that ends in time: after a few climbs it gets a tenth of the budget that is left,
   then climbs six tenths of the rest, then, if it has not been to the end, it again all that
   remains, since better plans that were found rule out more. */

typedef struct het_search_desc {
    uint32_t start_canary;
    const het_profile *profile;       /* Required. Has a device of the name of every device's profile in the cluster */
    const het_cluster *cluster;       /* Required */
    int64_t granules;                 /* of a step. Required */
    int64_t granule_tokens;           /* the most of a granule. Required */
    int64_t granule_sequences;        /* the most of a granule: 1 */
    double granule_pairs;             /* of queries and keys, of a granule: granule_tokens
                                         (granule_tokens + 1) / 2 over its sequences */
    int64_t most_granules;            /* of a micro-batch: granules */
    int64_t most_micro_batches;       /* of a step: granules */
    const char *const *schedules;     /* [schedule_count] names of het_schedule_make's but
                                         bidirectional, terapipe, sliced-1f1b. NULL: gpipe, 1f1b,
                                         zb-h1, greedy, interleaved, zb-v */
    int64_t schedule_count;
    het_choice recompute;             /* stages may recompute: yes */
    het_choice uneven_state;          /* devices may have unequal shares of the state: yes */
    het_choice together;              /* units at the times measured with all ranks at work: yes */
    double seconds;                   /* of the search, by `clock`: no limit */
    double (*clock)(void *user);      /* seconds of any clock; NULL: only evaluations are counted */
    void *user;
    int64_t evaluations;              /* plans simulated at most, ten moves that are only estimated
                                         count as one: 20000 */
    int64_t small;                    /* a space of at most so many plans is searched completely:
                                         1000000000; negative: never */
    int64_t most_found;               /* plans returned at most: 5 */
    uint64_t seed;
    het_allocator allocator;
    uint32_t end_canary;
} het_search_desc;

typedef struct het_found {
    het_plan *plan;                   /* with its schedule, memory_limit, shares = counts, state shares */
    int64_t micro_batches, granules;  /* of the step; of a micro-batch but the last */
    double seconds;                   /* of the step, simulated */
    double work, fill, transfers, update; /* these add up to it: the busiest device's F, B, I, W;
                                             what lists would take on top if links cost nothing;
                                             links; and from the last backward to the end:
                                             reductions, steps, gathers */
    double *memory;                   /* [ranks] bytes at most, as memory limits count: the device's
                                         and message buffers */
    char why[256];                    /* of the best: what limits it; of others: what they lose by */
} het_found;

typedef struct het_search {
    int64_t found_count;
    het_found *found;                 /* [found_count], best first; each of another form: number of
                                         pipelines, stages, schedule */
    double bound;                     /* no plan on this cluster takes less, whichever of its times,
                                         alone or together, is the shorter */
    double distance;                  /* best / bound - 1 */
    char bound_by[96];                /* which bound: work over summed speeds, fastest chain */
    int64_t evaluations, skipped;     /* plans simulated; left out because a bound or memory said so */
    int32_t exhaustive;               /* 1: the whole space was searched */
    int32_t stopped;                  /* 1: by evaluations or seconds */
    het_simulation *simulation;       /* of the best, with its timeline */
    het_allocator allocator;          /* of this struct and its arrays: one block of `size` bytes;
                                         plans and simulation are their own */
    size_t size;
} het_search;

/* One and the same result for the same description, but where `seconds` ends it. HET_ERR_LIMIT:
   nothing fits; the error names the unit, or the rank, and the bytes that are missing.
   Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_plan_search(const het_search_desc *desc, het_search **search,
                                                          het_error *error);
HETRAIN_API void het_search_free(het_search *search);                  /* NULL is fine. Threads: any. */

/* ---- >>adapt_api: when devices and links are not what they were ---------------------------------
   While training, the times of a step's actions are held against what the profile says of the plan
   in use. Where a device, or a link that a pipeline crosses, became slower or faster for a few
   steps, the planner is asked again with what is known now: first for other shares of the pipelines
   alone, which is taken where it is as good; else for another plan. het_replan (hetrain.h) goes
   over to it. */

/* Simulates the step of a plan: desc says for what, of its fields for searching none is looked at.
   granules: of a micro-batch. timeline: HET_YES keeps records. desc->allocator makes the result,
   het_simulation_free frees it. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_plan_predict(const het_search_desc *desc, const het_plan *plan,
                                                           int64_t granules, het_choice timeline,
                                                                   het_simulation **simulation, het_error *error);

typedef struct het_adapt_desc {
    uint32_t start_canary;
    const het_search_desc *search;    /* Required: how plans are looked for. Its profile and the
                                         names of its schedules must outlive the adaptation; its
                                         cluster is where beliefs start from, and is copied */
    double change;                    /* so much slower or faster than believed is a change: 0.2 */
    double gain;                      /* another plan must make the step so much shorter: 0.05 */
    int64_t window;                   /* a device's speed is the median over so many steps, more
                                         than half of which must be there: 5, at most 64 */
    int64_t steps;                    /* a change must be seen in so many steps, one behind the other: 2 */
    het_allocator allocator;
    uint32_t end_canary;
} het_adapt_desc;

typedef struct het_advice {
    het_plan *plan;                   /* NULL: something changed, but no plan is so much better */
    int64_t granules, micro_batches;  /* of a micro-batch but the last; of a step */
    int32_t only_shares;              /* the stages are those of the plan in use */
    double before, after;             /* simulated seconds of a step, with devices as they are now:
                                         of the plan in use, and of this one */
    char text[256];                   /* one line: what changed, by how much, what is gained */
    het_allocator allocator;          /* of this struct; the plan is a block of its own */
} het_advice;

typedef struct het_adapt het_adapt;
/* Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_adapt_create(const het_adapt_desc *desc, het_adapt **adapt,
                                                           het_error *error);
HETRAIN_API void het_adapt_destroy(het_adapt *adapt);                  /* NULL is fine. Threads: any. */
/* The plan in use from the next step on, copied; granules: of a micro-batch but the last.
   Threads: any, one call at a time. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_adapt_start(het_adapt *adapt, const het_plan *plan, int64_t granules,
                                                          het_error *error);
/* The records of a step with that plan, of all ranks or of some: to be joined where there are
   several processes, so that transfers between them are seen from both ends. Clocks of processes
   may differ: what a link adds is the mean of both ways. Threads: any, one call at a time. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_adapt_observe(het_adapt *adapt, const het_timeline *timeline,
                                                            het_error *error);
/* To be called after each step observed. *advice: NULL while nothing changed. The same observations
   give the same advice, but where search->seconds ends the search: of several processes one should
   ask and tell the others (het_spread). Threads: any, one call at a time. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_adapt_advise(het_adapt *adapt, het_advice **advice, het_error *error);
HETRAIN_API void het_advice_free(het_advice *advice);                  /* NULL is fine. Threads: any. */
/* Devices and links as they are believed to be. A device that is idle is believed to be what it
   was. Threads: any. */
HETRAIN_API const het_cluster *het_adapt_cluster(const het_adapt *adapt);

/* ---- >>pack_api: which micro-batches a step's data make -----------------------------------------
   Documents of unequal length make micro-batches of unequal cost, and the ranks of a pipeline wait
   for the largest. het_pack groups the granules of a step into micro-batches that cost alike, deals
   these to the pipelines, and orders them. A granule is here what stays together: one of the data's
   (het_granules), or all those of a sequence of several. None is split, so that no bit of what is
   trained shows the grouping (hetrain.h, DETERMINISM), where het_batch.sample_id and granule_start
   go with the sequences.

   t_s(M) = base + token * tokens + pair * pairs of micro-batch M is what F and B (or F, I and W) of
   stage s take. A grouping into m micro-batches, of which pipeline k gets c_k (het_plan_divide), on
   P_k ranks, is estimated to take

       max over ranks of the sum over the rank's stages s of c_k / m * (sum over all M of t_s(M))
       + max over M, k, s of w_k t_s(M),

   w_k = P_k - 1, and 1 more where several pipelines have micro-batches, since then the last ones do
   not end together. For one pipeline with a stage a rank that is the sum on the slowest stage and p
   - 1 times the largest (DynaPipe, arXiv 2311.10418).
   * Granules are sorted by max w t, the largest first, then by tokens, then by number. For each m
     the row is cut into m runs whose largest is as small as it can be: dynamic programming, in
     which the longest run that keeps a bound is best, and the bound is found by bisection. Since
     nothing is padded, granules also go one by one, the largest first, to the micro-batch that
     costs least with it, where that is better and granules times m are at most 2^22. m is every
     number up to 256, then each about 1/64 larger than the one before.
   * The six best, and granules in their own order in equal numbers, are run by het_simulate, and
     the one with the shortest step is kept. Micro-batches go, the largest first, to the pipeline
     that ends first with it; in two of the groupings clusters of alike micro-batches are permuted;
     of the best, all orders are tried where there are at most as many as evaluations left, else any
     two micro-batches are exchanged as long as that helps. Of equals the first found stays. */

typedef struct het_pack_desc {
    uint32_t start_canary;
    const het_plan *plan;             /* Required */
    const het_costs *costs;           /* of the plan (het_profile_costs). Required. Its tokens,
                                         pairs and sequences are not looked at */
    const het_schedule *schedule;     /* the lists of a step with max_micro_batches; NULL: het_schedule_make */
    const het_blocks *blocks;         /* of the model; NULL: one block a unit */
    int64_t granules;                 /* of the step. Required */
    const int64_t *tokens;            /* [granules]. Required */
    const double *pairs;              /* [granules] of queries and keys; NULL: tokens (tokens + 1) / 2 */
    const int64_t *sequences;         /* [granules]; NULL: 1 each */
    int64_t max_tokens;               /* of a micro-batch: no limit */
    int64_t max_sequences;            /* of a micro-batch: no limit */
    int64_t max_micro_batches;        /* of the step, as het_create was told: those of the schedule;
                                         without one, granules */
    const double *memory;             /* [ranks] het_rank_time.peak_bytes at most; 0: no limit. NULL: none */
    het_choice neighbours;            /* only runs of the sorted row, beside granules in their own order: no */
    int64_t plain;                    /* micro-batches of the step to compare with; more than there
                                         can be: none. 0: the best of four numbers */
    int64_t evaluations;              /* simulations at most: 4194304 / actions of the lists, at
                                         least 32, at most 1000 */
    het_allocator allocator;
    uint32_t end_canary;
} het_pack_desc;

typedef struct het_packing {
    int64_t granules, micro_batches, pipelines;
    int64_t *order;                   /* [granules] their numbers, micro-batch by micro-batch, ascending within each */
    int64_t *start;                   /* [micro_batches + 1] into `order`: as het_step wants them,
                                         pipeline by pipeline */
    int64_t *counts;                  /* [pipelines] how many of them each gets */
    double *tokens, *pairs, *sequences; /* [micro_batches] for het_costs */
    double seconds;                   /* of the step, simulated */
    double plain_seconds;             /* of the same granules in their own order and equal numbers;
                                         0: that breaks a limit */
    int64_t plain_micro_batches;
    double estimate;                  /* the least of the groupings looked at */
    int64_t evaluations;              /* simulations made */
    int32_t stopped;                  /* 1: by `evaluations`; 0: no exchange of two micro-batches
                                         makes the step shorter */
    het_allocator allocator;          /* of this struct and its arrays: one block of `size` bytes */
    size_t size;
} het_packing;

/* `seconds` is never above `plain_seconds`, where that keeps the limits. One and the same result
   for the same description. HET_ERR_LIMIT: a granule is larger than a micro-batch may be, or no
   grouping that was looked at keeps the limits: the error says which, its size and the limit. For
   the next step it may be called by another thread while this one is computed. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_pack(const het_pack_desc *desc, het_packing **packing, het_error *error);
HETRAIN_API void het_packing_free(het_packing *packing);               /* NULL is fine. Threads: any. */

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

/* =================================================================================================
   >>records  What both pictures ask of a timeline.
   ============================================================================================== */

#define HETI_P_KINDS 12

typedef struct heti_p_kind {
    const char *text;     /* in a schedule */
    const char *category; /* in a trace */
    const char *legend;   /* in a picture */
    const char *color;    /* one of chrome://tracing's own names */
} heti_p_kind;

static const heti_p_kind *heti_p_kind_of(int32_t kind) {
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

/* "2F3.1@1/0" without the suffixes that are 0; "REDUCE5" and the like name a block, VERDICT
   nothing. */
static void heti_p_out_action(heti_t_text *out, const het_action *a) {
    int block = a->kind >= HET_ACTION_REDUCE;
    if (!block) heti_t_integer(out, a->stage);
    heti_t_put(out, heti_p_kind_of(a->kind)->text);
    if (a->kind == HET_ACTION_VERDICT) return;
    heti_t_integer(out, block ? a->stage : a->micro_batch);
    if (!block && a->slice != 0) heti_t_format(out, ".%d", HETI_T_CAST(int64_t, a->slice));
    if (!block && a->pipeline != 0) heti_t_format(out, "@%d", HETI_T_CAST(int64_t, a->pipeline));
    if (!block && a->version != 0) heti_t_format(out, "/%d", HETI_T_CAST(int64_t, a->version));
}

/* The same for messages. */
static const char *heti_p_action_text(char to[80], const het_action *a) {
    heti_t_text t = heti_t_text_in(to, 80);
    heti_p_out_action(&t, a);
    return to;
}

/* Everything a picture relies on, so that no later step has to look twice. */
static int heti_p_timeline_valid(const het_timeline *timeline) {
    int64_t i;
    if (timeline == NULL || timeline->ranks < 0 || timeline->records < 0 ||
        (timeline->records > 0 && timeline->record == NULL))
        return 0;
    for (i = 0; i < timeline->records; i++) {
        const het_record *r = &timeline->record[i];
        if (r->action.kind < 0 || r->action.kind >= HETI_P_KINDS) return 0;
        if (r->rank < 0 || r->rank >= timeline->ranks || (i > 0 && r->rank < r[-1].rank)) return 0;
        if (!(r->start >= 0 && r->end >= r->start && r->end <= 1e300)) return 0;
    }
    return 1;
}

static double heti_p_timeline_end(const het_timeline *timeline) {
    double end = 0;
    int64_t i;
    for (i = 0; i < timeline->records; i++)
        if (timeline->record[i].end > end) end = timeline->record[i].end;
    return end;
}

/* The units of the stages a rank holds, "units 0-2, 9-11"; with more than `most` stages "6 stages".
   0: it holds none. */
static int heti_p_out_units(heti_t_text *out, const het_plan *plan, int64_t rank, int64_t most, const char *dash) {
    int64_t s, count = 0, shown = 0;
    for (s = 0; s < plan->stages; s++) count += plan->stage[s].rank == rank;
    if (count == 0) return 0;
    if (count > most) { heti_t_format(out, "%d stages", count); return 1; }
    for (s = 0; s < plan->stages; s++) {
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
               makes that message arrive puts it back on the
   stack of those that can go on. Messages of one link leave in the order of their sender's list, so
   the order in which ranks are looked at does not matter, and nothing has to be sorted by time but
   the rings, of which there are few.
   ============================================================================================== */

/* A stage with its neighbours, costs and cells. */
typedef struct heti_p_stage {
    int64_t rank, before, after;      /* ranks of the neighbours; -1: none */
    int64_t link_before, link_after;  /* -1: same rank */
    int64_t cell, micro_batches;      /* its cells are [cell, cell + micro_batches slices) */
    const double *tokens, *pairs, *sequences; /* [micro_batches] or NULL */
    const het_stage_cost *cost;
    double weight;                    /* of a micro-batch in the peak */
} heti_p_stage;

/* One (stage, micro-batch, slice): when its input and the gradient of its output are there
   (negative: not yet), and what has been done. */
typedef struct heti_p_cell {
    double input, gradient;
    int32_t done;                     /* bits: F, I, W; SEND and RECV of its input and of its
                                         gradient, where they wait for each other */
    int32_t unused;
} heti_p_cell;

typedef struct heti_p_link {
    int64_t to, next;                 /* receiver; next link of the same sender, -1: none */
    double latency, bandwidth, free;  /* free: when the last message has left it */
    int64_t first_wire, wires;        /* in heti_p_sim.path: what it shares with others, in the order of crossing */
} heti_p_link;

/* A wire that many links share: a group's uplink out (3 g), in (3 g + 1), or its bus (3 g + 2). */
typedef struct heti_p_wire {
    double bandwidth;                 /* 0: unlimited, no wire */
    double free, ring_free;           /* for messages, for rings */
    double load;                      /* of the ring that is looked at */
} heti_p_wire;

/* The SEND or RECV of a message that has been reached while the other has not. */
typedef struct heti_p_half {
    double time;
    int64_t record, at;               /* of the SEND: its place in the timeline and in all lists */
} heti_p_half;

/* A message that has come to the next wire of its path. */
typedef struct heti_p_hop {
    double time, last, bytes;         /* when its first byte is there; when its last one has passed all before */
    int64_t rank, at;                 /* sender and place of the action in all lists: which comes
                                         first at the same time */
    int64_t link, wire, record;       /* wire: how many it has passed */
    int64_t stage, cell;              /* where it goes */
    int32_t forward, unused;
} heti_p_hop;

/* One rank's part in a ring. */
typedef struct heti_p_part {
    int64_t rank, record;             /* record: place in the timeline, -1: none is kept */
    int64_t next;                     /* the rank's next ring, -1: none */
    double time;                      /* when the rank reached it; negative: not yet */
    double share, moved;              /* of the block, in parts of heti_p_ring.sum; bytes that the
                                         ring brings to it and takes from it */
} heti_p_part;

/* One REDUCE or GATHER. */
typedef struct heti_p_ring {
    int64_t first, wanted, reached;   /* its parts are [first, first + wanted), by rank */
    double ready, start, sum;         /* start: when all its ranks have done the rings before it */
    int64_t before;                   /* of its ranks, those that have a ring to do before it */
    int32_t block, gather;
} heti_p_ring;

typedef struct heti_p_rank {
    double clock;
    int64_t at, until;                /* present action and end of the list */
    int64_t first_record, record;     /* place of its first record and of the next one */
    int64_t twin;                     /* a rank that does the same at the same times until VERDICT
                                         and is simulated in its place; -1: none */
    const heti_p_cell *waits;         /* the cell whose message it waits for */
    int32_t state;                    /* heti_p_state */
    double ring_free, verdict;        /* when its last ring is done, when it reached its VERDICT */
    int64_t out[2], next_out;         /* messages that its buffers hold, which comes next: HET_TRANSFER_POSTED */
    double joined, received;          /* on the way through a VERDICT's tree; when it reached the RECV it waits in */
    double heard;                     /* while the tree grows: when it can send its next message */
    int64_t last_part;                /* its part in the last of the rings looked at, -1: none */
    double kept, unit;                /* activations now; what is divided by for `peak` */
    double kept_bytes;
} heti_p_rank;

typedef struct heti_p_tree_place { int64_t rank, from; } heti_p_tree_place; /* from: -1: it is the root */

typedef enum heti_p_state { HETI_P_READY = 0, HETI_P_WAITS = 1, HETI_P_VERDICT = 2, HETI_P_DONE = 3 } heti_p_state;

typedef struct heti_p_sim {
    const het_plan *plan;
    const het_schedule *schedule;
    const het_costs *costs;
    het_error *error;
    het_allocator allocator;
    size_t scratch_size;
    int64_t ranks, stages, slices, blocks, cells, links, parts, records, groups, most_wires, wires;
    double slice_sum;
    int keep;                         /* records are kept */
    int count_bytes;                  /* some stage keeps bytes */
    int shared;                       /* there are wires */
    heti_p_stage *stage;              /* [stages] */
    heti_p_cell *cell;
    heti_p_link *link;
    int64_t *first_link;              /* [ranks] */
    heti_p_rank *rank;
    int64_t *held;                    /* [ranks] stages of one pipeline */
    int64_t *ready;                   /* stack */
    int64_t ready_count;
    heti_p_tree_place *tree;          /* [ranks + 1] of VERDICT, each behind the one it hears from */
    heti_p_ring *ring;                /* [2 blocks] REDUCE, then GATHER */
    int64_t *ring_order;              /* [2 blocks] */
    int64_t ring_count;               /* complete and not yet timed */
    int64_t *ring_heap;               /* [2 blocks] those that can start: the earliest first */
    int64_t ring_heaped;
    heti_p_part *part;
    double *step_share;               /* [blocks] sum of state shares of the ranks that have its STEP */
    int64_t *step_ranks;              /* [blocks] how many they are */
    double *slice_end;                /* [slices] sums of slice shares */
    int64_t *process;                 /* [ranks] which process each is in; negative: see heti_p_sim_processes */
    heti_p_wire *wire;                /* [3 groups] */
    int64_t *path;                    /* [links][most_wires] */
    int64_t *loaded;                  /* [3 groups] wires with a load */
    heti_p_half *half;                /* [2 cells] of input, of gradient; none with HET_TRANSFER_FREE */
    het_transfer transfer;
    int64_t twins;                    /* ranks that have a twin and have not yet got its times */
    heti_p_hop *hop;                  /* heap: the earliest first */
    int64_t hops, hop_room;
    het_simulation *result;
    het_record *record;
} heti_p_sim;

static void heti_p_sim_cut(heti_p_sim *s, heti_t_arena *arena) {
    s->stage = HETI_T_TAKE(arena, heti_p_stage, s->stages);
    s->cell = HETI_T_TAKE(arena, heti_p_cell, s->cells);
    s->link = HETI_T_TAKE(arena, heti_p_link, 2 * s->stages);
    s->first_link = HETI_T_TAKE(arena, int64_t, s->ranks);
    s->rank = HETI_T_TAKE(arena, heti_p_rank, s->ranks);
    s->held = HETI_T_TAKE(arena, int64_t, s->ranks);
    s->ready = HETI_T_TAKE(arena, int64_t, s->ranks);
    s->tree = HETI_T_TAKE(arena, heti_p_tree_place, s->ranks + 1);
    s->ring = HETI_T_TAKE(arena, heti_p_ring, 2 * s->blocks);
    s->ring_order = HETI_T_TAKE(arena, int64_t, 2 * s->blocks);
    s->ring_heap = HETI_T_TAKE(arena, int64_t, 2 * s->blocks);
    s->part = HETI_T_TAKE(arena, heti_p_part, s->parts);
    s->step_share = HETI_T_TAKE(arena, double, s->blocks);
    s->step_ranks = HETI_T_TAKE(arena, int64_t, s->blocks);
    s->slice_end = HETI_T_TAKE(arena, double, s->slices);
    s->process = HETI_T_TAKE(arena, int64_t, s->ranks);
    s->wire = HETI_T_TAKE(arena, heti_p_wire, 3 * s->groups);
    s->loaded = HETI_T_TAKE(arena, int64_t, 3 * s->groups);
    s->half = HETI_T_TAKE(arena, heti_p_half, s->transfer != HET_TRANSFER_FREE ? 2 * s->cells : 0);
    s->path = HETI_T_TAKE(arena, int64_t, s->shared ? 2 * s->stages * s->most_wires : 0);
}

static void heti_p_result_cut(heti_p_sim *s, heti_t_arena *arena) {
    s->result = HETI_T_TAKE(arena, het_simulation, 1);
    if (s->result != NULL) memset(s->result, 0, sizeof *s->result);
    if (s->result != NULL)
        s->result->rank = HETI_T_TAKE(arena, het_rank_time, s->ranks);
    else (void)heti_t_take(arena, s->ranks, sizeof *s->result->rank);
    s->record = HETI_T_TAKE(arena, het_record, s->keep ? s->records : 0);
}

static het_result heti_p_sim_allocate(heti_p_sim *s, void (*cut)(heti_p_sim *s, heti_t_arena *arena), size_t *size) {
    heti_t_arena arena;
    arena.base = NULL;
    arena.used = 0;
    cut(s, &arena);
    *size = arena.used;
    if (arena.used < SIZE_MAX)
        arena.base = HETI_T_CAST(char *, s->allocator.alloc(s->allocator.user, arena.used > 0 ? arena.used : 1, 16));
    if (arena.base == NULL)
        return heti_t_fail(s->error, HET_ERR_OOM, "het_simulate: no memory for %d cells and %d records", s->cells,
                           s->keep ? s->records : 0);
    arena.used = 0;
    cut(s, &arena);
    return HET_OK;
}

/* ---- what was given ---- */

/* "het_simulate: rank 2, action 17 (2F3): " and what is wrong with it. */
static het_result heti_p_sim_fail(const heti_p_sim *s, int64_t rank, int64_t at, const char *what) {
    char action[80];
    return heti_t_fail(s->error, HET_ERR_INVALID, "het_simulate: rank %d, action %d (%s): %s", rank,
                       at - s->schedule->start[rank], heti_p_action_text(action, &s->schedule->action[at]), what);
}

static int heti_p_is_time(double t) { return t >= 0 && t <= 1e300; }

static void heti_p_at_least(double *value, double other) {
    if (other > *value) *value = other;
}

static het_result heti_p_sim_plan(heti_p_sim *s) {
    const het_plan *plan = s->plan;
    int64_t p, g;
    if (plan->ranks < 1 || plan->pipelines < 1 || plan->stages < 1 || plan->slices < 1 || plan->stage == NULL ||
        plan->first_stage == NULL || (plan->slices > 1 && plan->slice_share == NULL))
        return heti_t_fail(s->error, HET_ERR_INVALID, "het_simulate: a plan with %d ranks, %d pipelines, %d "
                                                      "stages, %d slices", plan->ranks, plan->pipelines, plan->stages,
                                                      plan->slices);
    if (plan->first_stage[0] != 0 || plan->first_stage[plan->pipelines] != plan->stages)
        return heti_t_fail(s->error, HET_ERR_INVALID, "het_simulate: plan->first_stage does not go from 0 to %d",
                           plan->stages);
    for (p = 0; p < plan->pipelines; p++)
        if (plan->first_stage[p] >= plan->first_stage[p + 1])
            return heti_t_fail(s->error, HET_ERR_INVALID, "het_simulate: pipeline %d has no stage", p);
    for (g = 0; g < plan->stages; g++)
        if (plan->stage[g].rank < 0 || plan->stage[g].rank >= plan->ranks)
            return heti_t_fail(s->error, HET_ERR_INVALID, "het_simulate: stage %d is on rank %d of %d", g,
                               plan->stage[g].rank, plan->ranks);
    s->slice_sum = 0;
    for (p = 0; p < plan->slices && plan->slices > 1; p++) {
        if (!heti_p_is_time(plan->slice_share[p]))
            return heti_t_fail(s->error, HET_ERR_INVALID, "het_simulate: slice %d has share %g", p,
                               plan->slice_share[p]);
        s->slice_sum += plan->slice_share[p];
    }
    if (plan->slices > 1 && !(s->slice_sum > 0 && s->slice_sum <= 1e300))
        return heti_t_fail(s->error, HET_ERR_INVALID, "het_simulate: the shares of %d slices are all 0", plan->slices);
    return HET_OK;
}

static int heti_p_is_curve(const het_curve *c) {
    return heti_p_is_time(c->base) && heti_p_is_time(c->token) && heti_p_is_time(c->pair);
}

static het_result heti_p_sim_stage_costs(heti_p_sim *s) {
    int64_t i;
    s->count_bytes = 0;
    for (i = 0; i < s->plan->stages; i++) {
        const het_stage_cost *c = &s->costs->stage[i];
        if (!heti_p_is_curve(&c->forward) || !heti_p_is_curve(&c->backward) || !heti_p_is_curve(&c->input) ||
            !heti_p_is_curve(&c->weight) || !heti_p_is_time(c->bytes) || !heti_p_is_time(c->keep_input) ||
                !heti_p_is_time(c->keep_weight) || !heti_p_is_time(c->keep_gradient))
            return heti_t_fail(s->error, HET_ERR_INVALID, "het_simulate: a cost of stage %d is negative or not finite",
                               i);
        if (c->keep_input > 0 || c->keep_weight > 0 || c->keep_gradient > 0) s->count_bytes = 1;
    }
    return HET_OK;
}

static het_result heti_p_sim_sizes(heti_p_sim *s) {
    const het_costs *costs = s->costs;
    int64_t i, n = 0;
    for (i = 0; i < s->plan->pipelines; i++) n += s->schedule->micro_batches[i];
    for (i = 0; i < n; i++) {
        if (costs->tokens != NULL && !heti_p_is_time(costs->tokens[i]))
            return heti_t_fail(s->error, HET_ERR_INVALID,
                               "het_simulate: the tokens of micro-batch %d are negative or not finite", i);
        if (costs->pairs != NULL && !heti_p_is_time(costs->pairs[i]))
            return heti_t_fail(s->error, HET_ERR_INVALID,
                               "het_simulate: the pairs of micro-batch %d are negative or not finite", i);
        if (costs->sequences != NULL && !(costs->sequences[i] > 0 && costs->sequences[i] <= 1e15))
            return heti_t_fail(s->error, HET_ERR_INVALID, "het_simulate: micro-batch %d has %g sequences", i,
                               costs->sequences[i]);
        if (costs->tokens == NULL && costs->pairs == NULL && costs->sequences == NULL) break;
    }
    return HET_OK;
}

enum { HETI_P_MOST_DEPTH = 32 };

/* Groups come behind their parents, so of two groups the one with the higher number is never the
   other's ancestor. */
static het_result heti_p_sim_groups(heti_p_sim *s) {
    const het_costs *costs = s->costs;
    int64_t i, deepest = 0;
    s->groups = s->most_wires = s->shared = 0;
    if (costs->group == NULL || costs->link != NULL) return HET_OK;
    if (costs->groups < 1 || costs->rank_group == NULL)
        return heti_t_fail(s->error, HET_ERR_INVALID, "het_simulate: %d groups, and rank_group is %s", costs->groups,
            costs->rank_group != NULL ? "given" : "NULL");
    for (i = 0; i < costs->groups; i++) {
        const het_group *g = &costs->group[i];
        int64_t depth = 1, up = g->parent;
        if (g->parent >= i || g->parent < -1)
            return heti_t_fail(s->error, HET_ERR_INVALID,
                               "het_simulate: group %d has parent %d, which does not come before it", i, g->parent);
        if (!heti_p_is_time(g->latency) || !heti_p_is_time(g->bandwidth) || !heti_p_is_time(g->bus) ||
            !heti_p_is_time(g->uplink))
            return heti_t_fail(s->error, HET_ERR_INVALID, "het_simulate: a cost of group %d is negative or not finite",
                               i);
        for (; up >= 0 && depth <= HETI_P_MOST_DEPTH; depth++) up = costs->group[up].parent;
        if (depth > HETI_P_MOST_DEPTH)
            return heti_t_fail(s->error, HET_ERR_LIMIT, "het_simulate: group %d is nested more than %d deep", i,
                HETI_T_CAST(int64_t, HETI_P_MOST_DEPTH));
        if (depth > deepest) deepest = depth;
        if (g->bus > 0 || g->uplink > 0) s->shared = 1;
    }
    for (i = 0; i < s->ranks; i++)
        if (costs->rank_group[i] < 0 || costs->rank_group[i] >= costs->groups)
            return heti_t_fail(s->error, HET_ERR_INVALID, "het_simulate: rank %d is in group %d of %d", i,
                               costs->rank_group[i], costs->groups);
    s->groups = costs->groups;
    s->most_wires = 2 * deepest + 1;
    return HET_OK;
}

static het_result heti_p_sim_costs(heti_p_sim *s) {
    const het_costs *costs = s->costs;
    int64_t i;
    if (costs->start_canary != 0 || costs->end_canary != 0)
        return heti_t_fail(s->error, HET_ERR_INVALID, "het_simulate: het_costs was not cleared");
    if (costs->stage == NULL || costs->blocks < 0)
        return heti_t_fail(s->error, HET_ERR_INVALID, "het_simulate: costs of stages are missing, or %d blocks",
                           costs->blocks);
    s->transfer = costs->transfer;
    if (s->transfer < HET_TRANSFER_FREE || s->transfer > HET_TRANSFER_BLOCKING || !heti_p_is_time(costs->eager))
        return heti_t_fail(s->error, HET_ERR_INVALID, "het_simulate: no such transfer: %d, or eager is %g",
                           HETI_T_CAST(int64_t, s->transfer), costs->eager);
    if (s->transfer != HET_TRANSFER_FREE && !s->schedule->complete)
        return heti_t_fail(s->error, HET_ERR_INVALID, "het_simulate: transfer %d needs lists with SEND and RECV",
                           HETI_T_CAST(int64_t, s->transfer));
    HETI_T_TRY(heti_p_sim_stage_costs(s));
    HETI_T_TRY(heti_p_sim_sizes(s));
    for (i = 0; i < s->ranks && costs->rank != NULL; i++) {
        const het_rank_cost *c = &costs->rank[i];
        if (!heti_p_is_time(c->begin) || !heti_p_is_time(c->ring_byte) || !heti_p_is_time(c->verdict) ||
            !heti_p_is_time(c->step_base) || !heti_p_is_time(c->step))
            return heti_t_fail(s->error, HET_ERR_INVALID, "het_simulate: a cost of rank %d is negative or not finite",
                               i);
    }
    for (i = 0; i < costs->blocks && costs->block != NULL; i++)
        if (!heti_p_is_time(costs->block[i].reduce_bytes) || !heti_p_is_time(costs->block[i].gather_bytes) ||
            !heti_p_is_time(costs->block[i].step))
            return heti_t_fail(s->error, HET_ERR_INVALID, "het_simulate: a cost of block %d is negative or not finite",
                               i);
    return heti_p_sim_groups(s);
}

/* The link between two different ranks; what it costs is only looked at where it is used. path:
   [most_wires] the wires that it crosses, or NULL. */
static het_result heti_p_link_cost(const heti_p_sim *s, int64_t from, int64_t to, het_link_cost *cost, int64_t *path,
                                   int64_t *wires) {
    const het_group *group = s->costs->group;
    int64_t a, b, n = 0, back, i;
    *wires = 0;
    if (s->groups == 0) {
        *cost = s->costs->link != NULL ? s->costs->link[from * s->ranks + to] : s->costs->every_link;
        if (heti_p_is_time(cost->latency) && heti_p_is_time(cost->bandwidth)) return HET_OK;
        return heti_t_fail(s->error, HET_ERR_INVALID,
                           "het_simulate: a cost of the link from rank %d to %d is negative or not finite", from, to);
    }
    for (a = s->costs->rank_group[from], b = s->costs->rank_group[to]; a != b && a >= 0 && b >= 0;) {
        if (a > b) {
            if (path != NULL && group[a].uplink > 0) path[n++] = 3 * a;
            a = group[a].parent;
        } else b = group[b].parent;
    }
    if (a < 0 || b < 0)
        return heti_t_fail(s->error, HET_ERR_INVALID, "het_simulate: ranks %d and %d have no group in common", from,
                           to);
    cost->latency = group[a].latency;
    cost->bandwidth = group[a].bandwidth;
    if (path == NULL) return HET_OK;
    if (group[a].bus > 0) path[n++] = 3 * a + 2;
    back = n;
    for (b = s->costs->rank_group[to]; b != a; b = group[b].parent)
        if (group[b].uplink > 0) path[n++] = 3 * b + 1;
    for (i = 0; i < (n - back) / 2; i++) { /* inwards: the outermost first */
        b = path[back + i];
        path[back + i] = path[n - 1 - i];
        path[n - 1 - i] = b;
    }
    *wires = n;
    return HET_OK;
}

/* F, B and I may receive and, in lists without transfers, send; a RECV is recorded where it is
   waited for. */
static int64_t heti_p_record_room(const heti_p_sim *s, int32_t kind) {
    if (s->transfer == HET_TRANSFER_BLOCKING) return 1;
    return kind <= HET_ACTION_I ? s->schedule->complete ? 2 : 3 : !heti_p_is_receive(kind);
}

/* Every action is where it may be: afterwards its fields are safe indices. Counts records, blocks
   and parts of rings. */
static het_result heti_p_sim_actions(heti_p_sim *s) {
    const het_plan *plan = s->plan;
    const het_schedule *schedule = s->schedule;
    int64_t r, i;
    s->records = s->parts = 0;
    s->blocks = s->costs->block != NULL ? s->costs->blocks : 0;
    for (r = 0; r < s->ranks; r++)
        for (i = schedule->start[r]; i < schedule->start[r + 1]; i++) {
            const het_action *a = &schedule->action[i];
            int64_t stages;
            if (a->kind < 0 || a->kind >= HETI_P_KINDS)
                return heti_t_fail(s->error, HET_ERR_INVALID,
                                   "het_simulate: rank %d, action %d: no such kind of action: %d", r,
                                   i - schedule->start[r], HETI_T_CAST(int64_t, a->kind));
            s->records += heti_p_record_room(s, a->kind);
            if (a->kind == HET_ACTION_VERDICT) continue;
            if (a->kind >= HET_ACTION_REDUCE) {
                if (a->stage < 0 || a->stage >= (s->costs->block != NULL ? s->costs->blocks : 1 << 20))
                    return heti_p_sim_fail(s, r, i, "no such block");
                if (s->blocks <= a->stage) s->blocks = HETI_T_CAST(int64_t, a->stage) + 1;
                s->parts += a->kind != HET_ACTION_STEP;
                continue;
            }
            if (a->version != 0) return heti_p_sim_fail(s, r, i, "weight versions other than 0 are not supported");
            if (a->pipeline < 0 || a->pipeline >= plan->pipelines) return heti_p_sim_fail(s, r, i, "no such pipeline");
            stages = plan->first_stage[a->pipeline + 1] - plan->first_stage[a->pipeline];
            if (a->stage < 0 || a->stage >= stages) return heti_p_sim_fail(s, r, i, "no such stage");
            if (a->micro_batch < 0 || a->micro_batch >= schedule->micro_batches[a->pipeline])
                return heti_p_sim_fail(s, r, i, "no such micro-batch");
            if (a->slice < 0 || a->slice >= plan->slices) return heti_p_sim_fail(s, r, i, "no such slice");
            if (plan->stage[plan->first_stage[a->pipeline] + a->stage].rank != r)
                return heti_p_sim_fail(s, r, i, "the stage is on another rank");
            if ((a->kind == HET_ACTION_SEND_F && a->stage == stages - 1) || (a->kind == HET_ACTION_SEND_B &&
                a->stage == 0))
                return heti_p_sim_fail(s, r, i, "there is no stage to send to");
            if ((a->kind == HET_ACTION_RECV_B && a->stage == stages - 1) || (a->kind == HET_ACTION_RECV_F &&
                a->stage == 0))
                return heti_p_sim_fail(s, r, i, "there is no stage to receive from");
        }
    return HET_OK;
}

static het_result heti_p_sim_given(heti_p_sim *s) {
    const het_schedule *schedule = s->schedule;
    int64_t p, r;
    HETI_T_TRY(heti_p_sim_plan(s));
    s->ranks = s->plan->ranks;
    s->stages = s->plan->stages;
    s->slices = s->plan->slices;
    if (schedule->ranks != s->ranks || schedule->pipelines != s->plan->pipelines || schedule->micro_batches == NULL ||
        schedule->start == NULL)
        return heti_t_fail(s->error, HET_ERR_INVALID, "het_simulate: a schedule for %d ranks and %d pipelines, a "
                                                      "plan for %d and %d", schedule->ranks, schedule->pipelines,
                                                      s->ranks, s->plan->pipelines);
    s->cells = 0;
    for (p = 0; p < s->plan->pipelines; p++) {
        int64_t n = schedule->micro_batches[p], stages = s->plan->first_stage[p + 1] - s->plan->first_stage[p];
        if (n < 0 || n > INT32_MAX || s->slices > INT32_MAX || n * s->slices > (INT64_MAX - s->cells) / stages)
            return heti_t_fail(s->error, HET_ERR_LIMIT, "het_simulate: pipeline %d has %d micro-batches of %d slices",
                               p, n, s->slices);
        s->cells += n * s->slices * stages;
    }
    for (r = 0; r < s->ranks; r++)
        if (schedule->start[0] != 0 || schedule->start[r + 1] < schedule->start[r])
            return heti_t_fail(s->error, HET_ERR_INVALID, "het_simulate: schedule->start[%d] is %d", r + 1,
                               schedule->start[r + 1]);
    if (schedule->start[s->ranks] > 0 && schedule->action == NULL)
        return heti_t_fail(s->error, HET_ERR_INVALID, "het_simulate: schedule->action is NULL");
    if (schedule->start[s->ranks] > INT64_MAX / 4)
        return heti_t_fail(s->error, HET_ERR_LIMIT, "het_simulate: %d actions", schedule->start[s->ranks]);
    HETI_T_TRY(heti_p_sim_costs(s));
    return heti_p_sim_actions(s);
}

/* ---- tables made from it ---- */

static het_result heti_p_sim_link(heti_p_sim *s, int64_t from, int64_t to, int64_t *link) {
    het_link_cost cost;
    int64_t l;
    if (to < 0 || to == from) { *link = -1; return HET_OK; }
    for (l = s->first_link[from]; l >= 0 && s->link[l].to != to; l = s->link[l].next) {}
    if (l < 0) {
        l = s->links;
        s->link[l].first_wire = l * s->most_wires;
        HETI_T_TRY(heti_p_link_cost(s, from, to, &cost, s->shared ? s->path + s->link[l].first_wire : NULL,
                                    &s->link[l].wires));
        s->links++;
        s->link[l].to = to;
        s->link[l].next = s->first_link[from];
        s->link[l].latency = cost.latency;
        s->link[l].bandwidth = cost.bandwidth;
        s->link[l].free = 0;
        s->first_link[from] = l;
    }
    *link = l;
    return HET_OK;
}

/* A stage of a rank that has n of them in the pipeline counts 1 / n. So that sums stay exact,
   everything is multiplied by the least common multiple of a rank's n, and divided by it (and by
   the sum of slice shares) in the end. */
static void heti_p_sim_weights(heti_p_sim *s) {
    const int64_t *first = s->plan->first_stage;
    int64_t p, g;
    for (g = 0; g < s->ranks; g++) s->rank[g].unit = 1;
    for (p = 0; p < s->plan->pipelines; p++) {
        for (g = first[p]; g < first[p + 1]; g++) s->held[s->stage[g].rank] = 0;
        for (g = first[p]; g < first[p + 1]; g++) s->held[s->stage[g].rank]++;
        for (g = first[p]; g < first[p + 1]; g++) {
            heti_p_rank *rank = &s->rank[s->stage[g].rank];
            int64_t n = s->held[s->stage[g].rank], a = n, b = HETI_T_CAST(int64_t, rank->unit);
            s->stage[g].weight = HETI_T_CAST(double, n); /* for now */
            while (b != 0) { int64_t rest = a % b; a = b; b = rest; }
            rank->unit *= HETI_T_CAST(double, n / a);
            if (rank->unit > 1e9) rank->unit = 1e9; /* no longer exact */
        }
    }
    for (g = 0; g < s->stages; g++) s->stage[g].weight = s->rank[s->stage[g].rank].unit / s->stage[g].weight;
    for (g = 0; g < s->ranks && s->slices > 1; g++) s->rank[g].unit *= s->slice_sum;
}

static het_result heti_p_sim_stages(heti_p_sim *s) {
    const het_plan *plan = s->plan;
    int64_t p, g, cell = 0, micro_batch = 0;
    for (p = 0; p < plan->pipelines; p++) {
        for (g = plan->first_stage[p]; g < plan->first_stage[p + 1]; g++) {
            heti_p_stage *stage = &s->stage[g];
            stage->rank = plan->stage[g].rank;
            stage->before = g > plan->first_stage[p] ? plan->stage[g - 1].rank : -1;
            stage->after = g + 1 < plan->first_stage[p + 1] ? plan->stage[g + 1].rank : -1;
            stage->cell = cell;
            stage->micro_batches = s->schedule->micro_batches[p];
            stage->tokens = s->costs->tokens != NULL ? s->costs->tokens + micro_batch : NULL;
            stage->pairs = s->costs->pairs != NULL ? s->costs->pairs + micro_batch : NULL;
            stage->sequences = s->costs->sequences != NULL ? s->costs->sequences + micro_batch : NULL;
            stage->cost = &s->costs->stage[g];
            HETI_T_TRY(heti_p_sim_link(s, stage->rank, stage->before, &stage->link_before));
            HETI_T_TRY(heti_p_sim_link(s, stage->rank, stage->after, &stage->link_after));
            cell += stage->micro_batches * s->slices;
        }
        micro_batch += s->schedule->micro_batches[p];
    }
    return HET_OK;
}

static int64_t heti_p_ring_index(const heti_p_sim *s, const het_action *a) {
    return a->stage + (a->kind == HET_ACTION_GATHER ? s->blocks : 0);
}

/* Which process each rank is in: the innermost group that is one; a number of its own where there
   is none; all the same where no group is one. */
static void heti_p_sim_processes(heti_p_sim *s) {
    int64_t r, g;
    int any = 0;
    for (g = 0; g < s->groups; g++) any |= s->costs->group[g].process != 0;
    for (r = 0; r < s->ranks; r++) {
        for (g = any ? s->costs->rank_group[r] : -1; g >= 0 &&
             !s->costs->group[g].process; g = s->costs->group[g].parent) {}
        s->process[r] = g >= 0 ? g : any ? -2 - r : -1;
    }
}

/* Parts [i, end) are one member of the ring: those of the process of i, or i alone where all are in
   one. */
static int64_t heti_p_ring_member(const heti_p_sim *s, const heti_p_ring *ring, int64_t i) {
    const heti_p_part *part = s->part + ring->first;
    int64_t end = i + 1;
    if (s->process[part[0].rank] == s->process[part[ring->wanted - 1].rank]) return end;
    while (end < ring->wanted && s->process[part[end].rank] == s->process[part[i].rank]) end++;
    return end;
}

/* Shares of the block and bytes moved, of each part: into the process, around the ring, out
   again. */
static void heti_p_ring_parts(heti_p_sim *s, heti_p_ring *ring, double bytes) {
    heti_p_part *part = s->part + ring->first;
    const int64_t n = ring->wanted;
    int64_t i, j, end, members = 0;
    for (i = 0; i < n && s->plan->state_share != NULL; i++) ring->sum += s->plan->state_share[part[i].rank];
    for (i = 0; i < n; i++) {
        part[i].share = ring->sum > 0 ? s->plan->state_share[part[i].rank] : 1;
        part[i].moved = 0;
    }
    if (!(ring->sum > 0)) ring->sum = HETI_T_CAST(double, n);
    for (i = 0; i < n; i = heti_p_ring_member(s, ring, i)) members++;
    for (i = 0; i < n; i = end) {
        double own = 0;
        end = heti_p_ring_member(s, ring, i);
        for (j = i; j < end; j++) own += part[j].share;
        if (members > 1) part[i].moved += 2 * bytes * (ring->sum - own) / ring->sum;
        for (j = i + 1; j < end; j++) {
            /* the whole block one way, its part the other */
            part[j].moved += bytes + bytes * part[j].share / ring->sum;
            part[i].moved += bytes + bytes * part[j].share / ring->sum;
        }
    }
}

/* Which ranks a ring or a STEP has: those whose lists name it. */
static het_result heti_p_sim_rings(heti_p_sim *s) {
    int64_t r, i, b, first = 0;
    for (r = 0; r < s->ranks && s->plan->state_share != NULL; r++)
        if (!heti_p_is_time(s->plan->state_share[r]))
            return heti_t_fail(s->error, HET_ERR_INVALID,
                               "het_simulate: the state share of rank %d is negative or not finite", r);
    for (r = 0; r < s->ranks; r++)
        for (i = s->schedule->start[r]; i < s->schedule->start[r + 1]; i++) {
            const het_action *a = &s->schedule->action[i];
            if (a->kind < HET_ACTION_REDUCE || a->kind == HET_ACTION_VERDICT) continue;
            if (a->kind == HET_ACTION_STEP) {
                if (s->plan->state_share != NULL) s->step_share[a->stage] += s->plan->state_share[r];
                s->step_ranks[a->stage]++;
            } else s->ring[heti_p_ring_index(s, a)].wanted++;
        }
    for (b = 0; b < 2 * s->blocks; b++) {
        s->ring[b].first = first;
        s->ring[b].block = HETI_T_CAST(int32_t, b < s->blocks ? b : b - s->blocks);
        s->ring[b].gather = b >= s->blocks;
        first += s->ring[b].wanted;
        s->ring[b].wanted = 0;
    }
    for (r = 0; r < s->ranks; r++)
        for (i = s->schedule->start[r]; i < s->schedule->start[r + 1]; i++) {
            const het_action *a = &s->schedule->action[i];
            heti_p_ring *ring;
            if (a->kind != HET_ACTION_REDUCE && a->kind != HET_ACTION_GATHER) continue;
            ring = &s->ring[heti_p_ring_index(s, a)];
            if (ring->wanted > 0 && s->part[ring->first + ring->wanted - 1].rank == r)
                return heti_p_sim_fail(s, r, i, "it comes twice");
            s->part[ring->first + ring->wanted].rank = r;
            s->part[ring->first + ring->wanted++].time = -1;
        }
    for (b = 0; b < 2 * s->blocks && s->costs->block != NULL; b++) {
        const het_block_cost *cost = &s->costs->block[s->ring[b].block];
        if (s->ring[b].wanted > 0)
            heti_p_ring_parts(s, &s->ring[b], b < s->blocks ? cost->reduce_bytes : cost->gather_bytes);
    }
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
    return s->link[a].wires == 0 && s->link[b].wires == 0 && memcmp(&s->link[a].latency, &s->link[b].latency,
                                                                    sizeof s->link[a].latency) == 0 &&
        memcmp(&s->link[a].bandwidth, &s->link[b].bandwidth, sizeof s->link[a].bandwidth) == 0;
}

static int heti_p_same_sizes(const double *a, const double *b, int64_t count) {
    return a == NULL || memcmp(a, b, HETI_T_CAST(size_t, count) * sizeof *a) == 0;
}

/* Up to VERDICT, or to the end; behind it neither computes nor sends. */
static int heti_p_same_lists(heti_p_sim *s, int64_t r, int64_t other) {
    const het_action *a = &s->schedule->action[s->rank[r].at], *b = &s->schedule->action[s->rank[other].at];
    int64_t n = s->rank[r].until - s->rank[r].at, m = s->rank[other].until - s->rank[other].at, i;
    for (i = 0; i < n && i < m && a[i].kind != HET_ACTION_VERDICT; i++) {
        if (a[i].kind != b[i].kind || a[i].overlap != b[i].overlap || a[i].stage != b[i].stage ||
            a[i].micro_batch != b[i].micro_batch || a[i].slice != b[i].slice || a[i].kind == HET_ACTION_STEP)
            return 0;
        if (s->costs->rank != NULL && heti_p_is_collective(a[i].kind)) {
            const double x = heti_p_ring_part(s, r, &a[i])->moved, y = heti_p_ring_part(s, other, &b[i])->moved;
            if (x < y || y < x) return 0;
        }
    }
    if (i == n || i == m) return n == m;
    if (b[i].kind != HET_ACTION_VERDICT) return 0;
    for (m = m > n ? m : n; i < m; i++)
        if ((i < n && a[i].kind <= HET_ACTION_RECV_B) || (i < s->rank[other].until - s->rank[other].at &&
                                                          b[i].kind <= HET_ACTION_RECV_B))
            return 0;
    return 1;
}

/* Pipelines p and q are alike. s->held: of a rank of one of them, 1 + that of the other; cleared
   before for those of both. */
static int heti_p_same_pipelines(heti_p_sim *s, int64_t p, int64_t q) {
    const int64_t *first = s->plan->first_stage, stages = first[p + 1] - first[p];
    int64_t k;
    if (first[q + 1] - first[q] != stages || s->schedule->micro_batches[p] != s->schedule->micro_batches[q]) return 0;
    for (k = 0; k < stages; k++) s->held[s->stage[first[p] + k].rank] = s->held[s->stage[first[q] + k].rank] = 0;
    for (k = 0; k < stages; k++) {
        const heti_p_stage *a = &s->stage[first[p] + k], *b = &s->stage[first[q] + k];
        if (memcmp(a->cost, b->cost, sizeof *a->cost) != 0 || !heti_p_same_link(s, a->link_before, b->link_before) ||
            !heti_p_same_link(s, a->link_after, b->link_after)) return 0;
        if (s->costs->rank != NULL && memcmp(&s->costs->rank[a->rank], &s->costs->rank[b->rank],
                                             sizeof *s->costs->rank) != 0)
            return 0;
        if (s->held[a->rank] == 0 && s->held[b->rank] == 0) {
            s->held[a->rank] = 1 + b->rank;
            s->held[b->rank] = 1 + a->rank;
            if (!heti_p_same_lists(s, a->rank, b->rank)) return 0;
        }
        if (s->held[a->rank] != 1 + b->rank || s->held[b->rank] != 1 + a->rank) return 0;
    }
    return heti_p_same_sizes(s->stage[first[p]].tokens, s->stage[first[q]].tokens, s->schedule->micro_batches[p]) &&
        heti_p_same_sizes(s->stage[first[p]].pairs, s->stage[first[q]].pairs, s->schedule->micro_batches[p]) &&
        heti_p_same_sizes(s->stage[first[p]].sequences, s->stage[first[q]].sequences, s->schedule->micro_batches[p]);
}

static void heti_p_sim_twins(heti_p_sim *s) {
    enum { HETI_P_MOST_UNLIKE = 8 };
    const int64_t *first = s->plan->first_stage;
    int64_t unlike[HETI_P_MOST_UNLIKE], count = 0, p, g, i;
    s->twins = 0;
    if (s->plan->pipelines == 1) return;
    for (i = 0; i < s->ranks; i++) s->ready[i] = -1; /* which pipeline a rank is in; -2: several */
    for (g = 0; g < s->stages; g++) {
        int64_t *in = &s->ready[s->stage[g].rank];
        *in = *in == -1 || *in == s->plan->stage[g].pipeline ? s->plan->stage[g].pipeline : -2;
    }
    for (p = 0; p < s->plan->pipelines; p++) {
        for (g = first[p]; g < first[p + 1] && s->ready[s->stage[g].rank] == p; g++) {}
        if (g < first[p + 1]) continue;
        for (i = 0; i < count && !heti_p_same_pipelines(s, unlike[i], p); i++) {}
        if (i == count && count < HETI_P_MOST_UNLIKE) unlike[count++] = p;
        else if (i < count)
            for (g = first[p]; g < first[p + 1]; g++) {
                heti_p_rank *rank = &s->rank[s->stage[g].rank];
                s->twins += rank->twin < 0;
                rank->twin = s->stage[first[unlike[i]] + g - first[p]].rank;
            }
    }
}

static het_result heti_p_sim_start(heti_p_sim *s) {
    int64_t r, c, record = 0;
    for (r = 0; r < s->ranks; r++) {
        heti_p_rank *rank = &s->rank[r];
        int64_t i;
        s->first_link[r] = -1;
        memset(rank, 0, sizeof *rank);
        rank->clock = s->costs->rank != NULL ? s->costs->rank[r].begin : 0;
        rank->at = s->schedule->start[r];
        rank->until = s->schedule->start[r + 1];
        rank->record = rank->first_record = record;
        rank->twin = -1;
        for (i = rank->at; i < rank->until && s->keep; i++)
            record += heti_p_record_room(s, s->schedule->action[i].kind);
        rank->out[0] = rank->out[1] = -1;
        memset(&s->result->rank[r], 0, sizeof s->result->rank[r]);
        s->result->rank[r].start = rank->clock > 0 ? 0 : -1;
        s->result->rank[r].busy = s->result->rank[r].end = rank->clock;
        s->result->rank[r].peak_action = s->result->rank[r].peak_bytes_action = -1;
    }
    s->links = 0;
    for (c = 0; c < s->cells; c++) {
        s->cell[c].input = s->cell[c].gradient = -1;
        s->cell[c].done = 0;
    }
    if (s->blocks > 0) {
        memset(s->ring, 0, HETI_T_CAST(size_t, 2 * s->blocks) * sizeof *s->ring);
        memset(s->step_share, 0, HETI_T_CAST(size_t, s->blocks) * sizeof *s->step_share);
        memset(s->step_ranks, 0, HETI_T_CAST(size_t, s->blocks) * sizeof *s->step_ranks);
    }
    for (c = 0; c < 3 * s->groups; c++) {
        const het_group *group = &s->costs->group[c / 3];
        s->wire[c].bandwidth = c % 3 == 2 ? group->bus : group->uplink;
        s->wire[c].free = s->wire[c].ring_free = s->wire[c].load = 0;
    }
    for (c = 0; c < s->slices; c++)
        s->slice_end[c] = (c > 0 ? s->slice_end[c - 1] : 0) + (s->slices > 1 ? s->plan->slice_share[c] : 1);
    s->ring_count = 0;
    heti_p_sim_processes(s);
    HETI_T_TRY(heti_p_sim_stages(s));
    heti_p_sim_weights(s);
    HETI_T_TRY(heti_p_sim_rings(s));
    heti_p_sim_twins(s);
    for (s->ready_count = 0, r = s->ranks - 1; r >= 0; r--)
        if (s->rank[r].twin < 0) s->ready[s->ready_count++] = r;
    return HET_OK;
}

/* ---- running ---- */

/* What of a micro-batch's tokens is in a slice, times `each`. */
static double heti_p_sim_tokens(const heti_p_sim *s, const heti_p_stage *stage, const het_action *a, double each) {
    if (stage->tokens != NULL) each *= stage->tokens[a->micro_batch];
    return s->slices > 1 ? each * s->plan->slice_share[a->slice] / s->slice_sum : each;
}

/* Pairs of the queries before `end` of causal sequences of the same length, all in units of slice
   shares. */
static double heti_p_pairs_before(double end, double length) {
    double whole = HETI_T_CAST(double, HETI_T_CAST(int64_t, end / length)), rest = end - whole * length;
    return whole * length * length + rest * rest;
}

static double heti_p_sim_pairs(const heti_p_sim *s, const heti_p_stage *stage, const het_action *a, double each) {
    double length = s->slice_sum;
    each *= stage->pairs[a->micro_batch];
    if (s->slices == 1) return each;
    if (stage->sequences != NULL) length /= stage->sequences[a->micro_batch];
    return each * (heti_p_pairs_before(s->slice_end[a->slice], length) -
        (a->slice > 0 ? heti_p_pairs_before(s->slice_end[a->slice - 1], length) : 0)) /
        heti_p_pairs_before(s->slice_sum, length);
}

static double heti_p_sim_seconds(const heti_p_sim *s, const heti_p_stage *stage, const het_action *a) {
    const het_curve *curve = a->kind == HET_ACTION_F ? &stage->cost->forward : a->kind == HET_ACTION_B ?
                     &stage->cost->backward :
        a->kind == HET_ACTION_I ? &stage->cost->input : &stage->cost->weight;
    double seconds = curve->base + heti_p_sim_tokens(s, stage, a, curve->token);
    return stage->pairs != NULL && curve->pair > 0 ? seconds + heti_p_sim_pairs(s, stage, a, curve->pair) : seconds;
}

static int64_t heti_p_sim_record(heti_p_sim *s, int64_t r, const het_action *a, int32_t kind, double start, double end,
                                 double bytes) {
    het_record *record;
    if (!s->keep) return -1;
    record = &s->record[s->rank[r].record];
    record->action = *a;
    record->action.kind = kind;
    record->rank = HETI_T_CAST(int32_t, r);
    record->start = start;
    record->end = end;
    record->bytes = bytes < 9e18 ? HETI_T_CAST(int64_t, bytes + 0.5) : INT64_MAX;
    return s->rank[r].record++;
}

/* ---- messages on wires that others use as well: in the order in which they come to each ---- */

static int heti_p_hop_before(const heti_p_hop *a, const heti_p_hop *b) {
    if (a->time < b->time || b->time < a->time) return a->time < b->time;
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static het_result heti_p_push_hop(heti_p_sim *s, const heti_p_hop *hop) {
    int64_t i = s->hops;
    if (s->hops == s->hop_room) {
        const int64_t room = 2 * s->hop_room + 256;
        heti_p_hop *larger = HETI_T_CAST(heti_p_hop *, s->allocator.alloc(s->allocator.user,
            HETI_T_CAST(size_t, room) * sizeof *larger, 16));
        if (larger == NULL)
            return heti_t_fail(s->error, HET_ERR_OOM, "het_simulate: no memory for %d messages on shared wires", room);
        if (s->hops > 0) memcpy(larger, s->hop, HETI_T_CAST(size_t, s->hops) * sizeof *larger);
        if (s->hop_room > 0)
            s->allocator.free(s->allocator.user, s->hop, HETI_T_CAST(size_t, s->hop_room) * sizeof *larger);
        s->hop = larger;
        s->hop_room = room;
    }
    for (s->hops++; i > 0 && heti_p_hop_before(hop, &s->hop[(i - 1) / 2]); i = (i - 1) / 2)
        s->hop[i] = s->hop[(i - 1) / 2];
    s->hop[i] = *hop;
    return HET_OK;
}

static heti_p_hop heti_p_pop_hop(heti_p_sim *s) {
    const heti_p_hop first = s->hop[0], last = s->hop[--s->hops];
    int64_t i = 0, child;
    while ((child = 2 * i + 1) < s->hops) {
        if (child + 1 < s->hops && heti_p_hop_before(&s->hop[child + 1], &s->hop[child])) child++;
        if (!heti_p_hop_before(&s->hop[child], &last)) break;
        s->hop[i] = s->hop[child];
        i = child;
    }
    s->hop[i] = last;
    return first;
}

static void heti_p_sim_wake(heti_p_sim *s, int64_t r, const heti_p_cell *cell) {
    if (s->rank[r].state != HETI_P_WAITS || s->rank[r].waits != cell) return;
    s->rank[r].state = HETI_P_READY;
    s->ready[s->ready_count++] = r;
}

/* The message is there at `time`: wakes the ranks that wait for it. */
static void heti_p_sim_arrive(heti_p_sim *s, int64_t stage, int64_t cell_index, int forward, double time) {
    heti_p_cell *cell = &s->cell[cell_index];
    if (forward) cell->input = time;
    else cell->gradient = time;
    heti_p_sim_wake(s, s->stage[stage].rank, cell);
    if (s->transfer != HET_TRANSFER_FREE)
        heti_p_sim_wake(s, forward ? s->stage[stage].before : s->stage[stage].after, cell);
}

/* The earliest message on its way passes the wire it has come to. No rank can go on without one, so
   none comes to a wire before it. */
static het_result heti_p_sim_pass(heti_p_sim *s) {
    heti_p_hop hop = heti_p_pop_hop(s);
    const heti_p_link *link = &s->link[hop.link];
    heti_p_wire *wire = &s->wire[s->path[link->first_wire + hop.wire]];
    if (wire->free > hop.time) hop.time = wire->free;
    wire->free = hop.time + hop.bytes / wire->bandwidth;
    if (wire->free > hop.last) hop.last = wire->free;
    if (++hop.wire < link->wires) return heti_p_push_hop(s, &hop);
    if (hop.record >= 0) s->record[hop.record].end = hop.last;
    heti_p_sim_arrive(s, hop.stage, hop.cell, hop.forward, hop.last + link->latency);
    return HET_OK;
}

/* Starts a message of stage g to the one after (forward) or before, at `clock`. at: its action,
   record: its place in the timeline or -1. */
static het_result heti_p_sim_launch(heti_p_sim *s, int64_t at, int64_t g, int forward, double clock, double bytes,
                                    int64_t record) {
    const het_action *a = &s->schedule->action[at];
    const heti_p_stage *stage = &s->stage[g];
    const int64_t to = g + (forward ? 1 : -1), l = forward ? stage->link_after : stage->link_before;
    const int64_t cell = s->stage[to].cell + a->micro_batch * s->slices + a->slice;
    heti_p_link *link = &s->link[l];
    heti_p_hop hop;
    double starts = clock > link->free ? clock : link->free;
    link->free = link->bandwidth > 0 ? starts + bytes / link->bandwidth : starts;
    if (record >= 0) s->record[record].end = link->free;
    if (link->wires == 0) {
        heti_p_sim_arrive(s, to, cell, forward, link->free + link->latency);
        return HET_OK;
    }
    hop.time = starts;
    hop.last = link->free;
    hop.bytes = bytes;
    hop.rank = stage->rank;
    hop.at = at;
    hop.link = l;
    hop.wire = 0;
    hop.record = record;
    hop.stage = to;
    hop.cell = cell;
    hop.forward = forward;
    hop.unused = 0;
    return heti_p_push_hop(s, &hop);
}

static double heti_p_sim_bytes(const heti_p_sim *s, const het_action *a, int64_t g, int forward) {
    return heti_p_sim_tokens(s, &s->stage[g], a, s->stage[forward ? g : g - 1].cost->bytes);
}

/* A SEND that nothing holds up. */
static het_result heti_p_sim_send(heti_p_sim *s, int64_t r, const het_action *a, int64_t g, int forward) {
    const double bytes = heti_p_sim_bytes(s, a, g, forward), clock = s->rank[r].clock;
    const int64_t record = heti_p_sim_record(s, r, a, forward ? HET_ACTION_SEND_F : HET_ACTION_SEND_B, clock, clock,
                                             bytes);
    return heti_p_sim_launch(s, a - s->schedule->action, g, forward, clock, bytes, record);
}

/* Of heti_p_cell.done. SENT and POSTED are those of the input; those of the gradient are BACK bits
   further. */
enum { HETI_P_DID_F = 1, HETI_P_DID_I = 2, HETI_P_DID_W = 4, HETI_P_DID = 7, HETI_P_SENT = 8, HETI_P_POSTED = 16,
      HETI_P_BACK = 2 };

/* A SEND or RECV of stage g, whose partner must be reached too. *waits becomes 1 where the rank
   cannot go on. */
static het_result heti_p_sim_meet(heti_p_sim *s, int64_t r, const het_action *a, int64_t g, int forward, int *waits) {
    const int receives = heti_p_is_receive(a->kind);
    const int64_t sender = receives ? forward ? g - 1 : g + 1 : g, to = receives ? g : forward ? g + 1 : g - 1;
    const int64_t index = s->stage[to].cell + a->micro_batch * s->slices + a->slice;
    const int32_t own = (receives ? HETI_P_POSTED : HETI_P_SENT) << (forward ? 0 : HETI_P_BACK),
        other = (receives ? HETI_P_SENT : HETI_P_POSTED) << (forward ? 0 : HETI_P_BACK);
    heti_p_cell *cell = &s->cell[index];
    heti_p_half *half = &s->half[2 * index + !forward];
    heti_p_rank *rank = &s->rank[r];
    const double *arrives = forward ? &cell->input : &cell->gradient, bytes = heti_p_sim_bytes(s, a, sender, forward);
    const int eager = bytes <= s->costs->eager;
    if ((cell->done & own) == 0) {
        double start = rank->clock;
        cell->done |= own;
        if (!receives) {
            half->at = a - s->schedule->action;
            half->record = heti_p_sim_record(s, r, a, a->kind, start, start, bytes);
        } else if (s->transfer == HET_TRANSFER_BLOCKING) rank->received = start;
        if (!eager && (cell->done & other) != 0) heti_p_at_least(&start, half->time);
        half->time = rank->clock;
        if (eager ? !receives : (cell->done & other) != 0)
            HETI_T_TRY(heti_p_sim_launch(s, half->at, sender, forward, start, bytes, half->record));
    }
    if (s->transfer == HET_TRANSFER_POSTED || (eager && !receives)) return HET_OK;
    if (*arrives < 0) { rank->waits = cell; *waits = 1; return HET_OK; }
    heti_p_at_least(&rank->clock, *arrives);
    if (receives) (void)heti_p_sim_record(s, r, a, a->kind, rank->received, rank->clock, bytes);
    return HET_OK;
}

/* The buffer that the message of an F, B or I goes into: free from *until on. waits: the message in
   it is not there yet. */
static void heti_p_sim_buffer(heti_p_sim *s, int64_t r, int64_t index, double *until, int *waits) {
    heti_p_rank *rank = &s->rank[r];
    const int64_t held = rank->out[rank->next_out];
    if (held >= 0) {
        const heti_p_cell *cell = &s->cell[held / 2];
        *until = held % 2 == 0 ? cell->input : cell->gradient;
        if (*until < 0) { rank->waits = cell; *waits = 1; return; }
    }
    rank->out[rank->next_out] = index;
    rank->next_out = 1 - rank->next_out;
}

static void heti_p_sim_keep(heti_p_sim *s, int64_t r, double change) {
    heti_p_rank *rank = &s->rank[r];
    het_rank_time *time = &s->result->rank[r];
    rank->kept += change;
    if (rank->kept <= time->peak) return;
    time->peak = rank->kept; /* divided by rank->unit in the end */
    time->peak_action = rank->at - s->schedule->start[r];
}

static void heti_p_sim_keep_bytes(heti_p_sim *s, int64_t r, const heti_p_stage *stage, const het_action *a) {
    const het_stage_cost *c = stage->cost;
    heti_p_rank *rank = &s->rank[r];
    het_rank_time *time = &s->result->rank[r];
    rank->kept_bytes += heti_p_sim_tokens(s, stage, a, a->kind == HET_ACTION_F ? c->keep_input + c->keep_weight :
        a->kind == HET_ACTION_B ? -(c->keep_input + c->keep_weight) : a->kind == HET_ACTION_I ?
            c->keep_gradient - c->keep_input :
        -(c->keep_weight + c->keep_gradient));
    if (rank->kept_bytes <= time->peak_bytes) return;
    time->peak_bytes = rank->kept_bytes;
    time->peak_bytes_action = rank->at - s->schedule->start[r];
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

/* The message of a compute action in lists without transfers. */
static het_result heti_p_sim_implied(heti_p_sim *s, int64_t r, const het_action *a) {
    const int64_t g = a->kind <= HET_ACTION_I ? s->plan->first_stage[a->pipeline] + a->stage : 0;
    const int forward = a->kind == HET_ACTION_F;
    if (a->kind > HET_ACTION_I || (forward ? s->stage[g].link_after : s->stage[g].link_before) < 0) return HET_OK;
    return heti_p_sim_send(s, r, a, g, forward);
}

/* F, B, I or W. *waits becomes 1, and nothing else happens, where its message is not there yet. */
static het_result heti_p_sim_compute(heti_p_sim *s, int64_t r, const het_action *a, int *waits) {
    const int64_t g = s->plan->first_stage[a->pipeline] + a->stage;
    const heti_p_stage *stage = &s->stage[g];
    heti_p_rank *rank = &s->rank[r];
    heti_p_cell *cell = &s->cell[stage->cell + a->micro_batch * s->slices + a->slice];
    const int forward = a->kind == HET_ACTION_F;
    const int64_t from = forward ? stage->before : stage->after;
    double there = forward ? cell->input : cell->gradient, start = rank->clock, buffer = 0;
    double kept = s->slices > 1 ? stage->weight * s->plan->slice_share[a->slice] : stage->weight;
    if (forward && (cell->done & HETI_P_DID_F) != 0) return heti_p_sim_fail(s, r, rank->at, "it comes twice");
    if (!forward && (cell->done & HETI_P_DID_F) == 0)
        return heti_p_sim_fail(s, r, rank->at, "its F does not come before it");
    if ((a->kind == HET_ACTION_B || a->kind == HET_ACTION_I) && (cell->done & HETI_P_DID_I) != 0)
        return heti_p_sim_fail(s, r, rank->at, "it comes twice");
    if (a->kind == HET_ACTION_W && (cell->done & HETI_P_DID) != (HETI_P_DID_F | HETI_P_DID_I))
        return heti_p_sim_fail(s, r, rank->at, "it comes twice, or its I does not come before it");
    if (a->kind != HET_ACTION_W && from >= 0 && there < 0) { rank->waits = cell; *waits = 1; return HET_OK; }
    if (s->transfer == HET_TRANSFER_POSTED && a->kind != HET_ACTION_W &&
        (forward ? stage->link_after : stage->link_before) >= 0) {
        const int64_t to = (forward ? stage[1].cell : stage[-1].cell) + a->micro_batch * s->slices + a->slice;
        heti_p_sim_buffer(s, r, 2 * to + !forward, &buffer, waits);
        if (*waits) return HET_OK;
    }
    if (a->kind != HET_ACTION_W && from >= 0) {
        heti_p_at_least(&start, there);
        if (from != r && s->transfer != HET_TRANSFER_BLOCKING)
            (void)heti_p_sim_record(s, r, a, forward ? HET_ACTION_RECV_F : HET_ACTION_RECV_B, rank->clock, start,
                heti_p_sim_tokens(s, stage, a, forward ? stage[-1].cost->bytes : stage->cost->bytes));
    }
    heti_p_sim_busy(s, r, a, start, heti_p_sim_seconds(s, stage, a));
    heti_p_at_least(&rank->clock, buffer);
    cell->done |= forward ? HETI_P_DID_F : a->kind == HET_ACTION_B ? HETI_P_DID_I | HETI_P_DID_W :
        a->kind == HET_ACTION_I ? HETI_P_DID_I
        : HETI_P_DID_W;
    if (a->kind != HET_ACTION_I) heti_p_sim_keep(s, r, forward ? kept : -kept);
    if (s->count_bytes) heti_p_sim_keep_bytes(s, r, stage, a);
    if (forward && stage->after == r)
        s->cell[stage[1].cell + a->micro_batch * s->slices + a->slice].input = rank->clock;
    if (!forward && a->kind != HET_ACTION_W && stage->before == r)
        s->cell[stage[-1].cell + a->micro_batch * s->slices + a->slice].gradient = rank->clock;
    if (s->schedule->complete) return HET_OK;
    if (rank->at > s->schedule->start[r] && a[-1].overlap != 0) HETI_T_TRY(heti_p_sim_implied(s, r, a - 1));
    return a->overlap == 0 || rank->at + 1 == rank->until ? heti_p_sim_implied(s, r, a) : HET_OK;
}

static het_result heti_p_sim_transfer(heti_p_sim *s, int64_t r, const het_action *a, int *waits) {
    const int64_t g = s->plan->first_stage[a->pipeline] + a->stage;
    const heti_p_cell *cell = &s->cell[s->stage[g].cell + a->micro_batch * s->slices + a->slice];
    const int forward = a->kind == HET_ACTION_SEND_F || a->kind == HET_ACTION_RECV_F,
              receives = heti_p_is_receive(a->kind);
    if (receives && s->transfer == HET_TRANSFER_FREE) return HET_OK; /* is recorded where it is waited for */
    if (!receives && (cell->done & (forward ? HETI_P_DID_F : HETI_P_DID_I)) == 0)
        return heti_p_sim_fail(s, r, s->rank[r].at, forward ? "its F does not come before it" :
                               "its B or I does not come before it");
    if ((forward != receives ? s->stage[g].after : s->stage[g].before) == r) return HET_OK;
    return s->transfer == HET_TRANSFER_FREE ? heti_p_sim_send(s, r, a, g, forward) : heti_p_sim_meet(s, r, a, g,
        forward, waits);
}

/* A rank has come to a ring at `time`; the last one makes it complete. */
static void heti_p_ring_reach(heti_p_sim *s, const het_action *a, heti_p_part *part, double time, int64_t record) {
    const int64_t index = heti_p_ring_index(s, a);
    heti_p_ring *ring = &s->ring[index];
    part->time = time;
    part->record = record;
    heti_p_at_least(&ring->ready, time);
    if (++ring->reached == ring->wanted) s->ring_order[s->ring_count++] = index;
}

/* REDUCE or GATHER. */
static void heti_p_sim_ring(heti_p_sim *s, int64_t r, const het_action *a) {
    heti_p_part *part = heti_p_ring_part(s, r, a);
    const double time = s->rank[r].clock;
    heti_p_ring_reach(s, a, part, time, heti_p_sim_record(s, r, a, a->kind, time, time, 0));
    if (s->costs->rank != NULL && s->costs->block != NULL)
        heti_p_sim_spend(s, r, time, s->costs->rank[r].ring_byte * part->moved);
}

/* Rank r gets its twin's times, records and places in rings. */
static void heti_p_sim_copy_twin(heti_p_sim *s, int64_t r) {
    heti_p_rank *rank = &s->rank[r];
    const int64_t other = rank->twin, at = rank->at, until = rank->until, first = rank->first_record, own = s->ready[r];
    const heti_p_rank *twin = &s->rank[other];
    int64_t i;
    s->result->rank[r] = s->result->rank[other];
    *rank = *twin;
    rank->twin = -1;
    rank->at = at + twin->at - s->schedule->start[other];
    rank->until = until;
    rank->first_record = first;
    rank->record = first + twin->record - twin->first_record;
    for (i = 0; i < twin->record - twin->first_record && s->keep; i++) {
        het_record *record = &s->record[first + i];
        *record = s->record[twin->first_record + i];
        record->rank = HETI_T_CAST(int32_t, r);
        if (record->action.kind < HET_ACTION_REDUCE) record->action.pipeline = HETI_T_CAST(int32_t, own);
    }
    for (i = at; i < rank->at; i++) {
        const het_action *a = &s->schedule->action[i];
        const heti_p_part *part;
        if (!heti_p_is_collective(a->kind)) continue;
        part = heti_p_ring_part(s, other, a);
        heti_p_ring_reach(s, a, heti_p_ring_part(s, r, a), part->time,
            part->record < 0 ? -1 : first + part->record - twin->first_record);
    }
}

static void heti_p_sim_step(heti_p_sim *s, int64_t r, const het_action *a) {
    double seconds = s->costs->block != NULL ? s->costs->block[a->stage].step : 0, sum = s->step_share[a->stage];
    seconds = sum > 0 ? seconds * s->plan->state_share[r] / sum :
        seconds / HETI_T_CAST(double, s->step_ranks[a->stage]);
    if (s->costs->rank != NULL) seconds = s->costs->rank[r].step_base + s->costs->rank[r].step * seconds;
    heti_p_sim_busy(s, r, a, s->rank[r].clock, seconds);
}

/* Goes on with a rank until it has to wait. */
static het_result heti_p_sim_run(heti_p_sim *s, int64_t r) {
    heti_p_rank *rank = &s->rank[r];
    for (; rank->at < rank->until; rank->at++) {
        const het_action *a = &s->schedule->action[rank->at];
        if (a->kind <= HET_ACTION_RECV_B) {
            int waits = 0;
            HETI_T_TRY(a->kind <= HET_ACTION_W ? heti_p_sim_compute(s, r, a, &waits) : heti_p_sim_transfer(s, r, a,
                &waits));
            if (waits) { rank->state = HETI_P_WAITS; return HET_OK; }
        } else if (a->kind == HET_ACTION_VERDICT) {
            rank->state = HETI_P_VERDICT;
            rank->verdict = rank->clock;
            return HET_OK;
        }
        else if (a->kind == HET_ACTION_STEP) heti_p_sim_step(s, r, a);
        else heti_p_sim_ring(s, r, a);
    }
    rank->state = HETI_P_DONE;
    return HET_OK;
}

/* ---- rings and verdicts: when nobody can go on without them ---- */

static int heti_p_ring_before(const heti_p_sim *s, int64_t a, int64_t b) {
    return s->ring[a].ready < s->ring[b].ready || (!(s->ring[b].ready < s->ring[a].ready) && a < b);
}

/* By shell sort, in place: rings are few. */
static void heti_p_sort_rings(heti_p_sim *s) {
    int64_t step = 1, i, j;
    while (step < s->ring_count / 3) step = 3 * step + 1;
    for (; step > 0; step /= 3)
        for (i = step; i < s->ring_count; i++) {
            int64_t ring = s->ring_order[i];
            for (j = i; j >= step && heti_p_ring_before(s, ring, s->ring_order[j - step]); j -= step)
                s->ring_order[j] = s->ring_order[j - step];
            s->ring_order[j] = ring;
        }
}

/* `count` transfers of `bytes` from one rank to another: what one takes, and what the wires have to
   carry. */
static het_result heti_p_ring_transfer(heti_p_sim *s, int64_t from, int64_t to, double bytes, double count,
                                       double *latency, double *seconds) {
    het_link_cost link;
    int64_t path[2 * HETI_P_MOST_DEPTH + 1], wires, i;
    HETI_T_TRY(heti_p_link_cost(s, from, to, &link, s->shared ? path : NULL, &wires));
    *latency = link.latency;
    *seconds = link.bandwidth > 0 ? bytes / link.bandwidth : 0;
    for (i = 0; i < wires; i++) {
        heti_p_wire *wire = &s->wire[path[i]];
        const double load = bytes / wire->bandwidth;
        if (load > *seconds) *seconds = load;
        if (!(count * load > 0)) continue;
        if (!(wire->load > 0)) s->loaded[s->wires++] = path[i];
        wire->load += count * load;
    }
    *seconds += link.latency;
    return HET_OK;
}

/* Into the process of parts [i, end) and out again, one after the other. */
static het_result heti_p_ring_inside(heti_p_sim *s, const heti_p_ring *ring, int64_t i, int64_t end, double bytes,
                                     int gather, double latencies[2], double seconds[2]) {
    const heti_p_part *part = s->part + ring->first;
    int64_t j;
    latencies[0] = latencies[1] = seconds[0] = seconds[1] = 0;
    for (j = i + 1; j < end; j++) {
        const double own = bytes * part[j].share / ring->sum;
        double latency, time;
        HETI_T_TRY(heti_p_ring_transfer(s, part[j].rank, part[i].rank, gather ? own : bytes, 1, &latency, &time));
        latencies[0] += latency;
        seconds[0] += time;
        HETI_T_TRY(heti_p_ring_transfer(s, part[i].rank, part[j].rank, gather ? bytes : own, 1, &latency, &time));
        latencies[1] += latency;
        seconds[1] += time;
    }
    return HET_OK;
}

/* What a ring takes by itself, and how much of that is latency: the slowest way in, N - 1 steps as
   long as the largest part takes on the slowest link, the slowest way out. Its loads are left on
   the wires. */
static het_result heti_p_ring_time(heti_p_sim *s, const heti_p_ring *ring, double bytes, double *latency,
                                   double *seconds) {
    const heti_p_part *part = s->part + ring->first;
    const int64_t n = ring->wanted;
    const int gather = ring->gather;
    double largest = 0, slowest = 0, longest = 0, way[2] = { 0, 0 }, way_latency[2] = { 0, 0 }, turns = -1, time,
           one[2], one_latency[2];
    int64_t i, j, end;
    for (i = 0; i < n; i = end, turns++) {
        double own = 0;
        end = heti_p_ring_member(s, ring, i);
        for (j = i; j < end; j++) own += part[j].share;
        heti_p_at_least(&largest, own);
    }
    for (i = 0; i < n && n > 1; i = end) {
        end = heti_p_ring_member(s, ring, i);
        HETI_T_TRY(heti_p_ring_transfer(s, part[i].rank, part[end < n ? end : 0].rank, bytes * largest / ring->sum,
                                        turns, &time, &one[0]));
        heti_p_at_least(&longest, time);
        heti_p_at_least(&slowest, one[0]);
        HETI_T_TRY(heti_p_ring_inside(s, ring, i, end, bytes, gather, one_latency, one));
        for (j = 0; j < 2; j++) {
            heti_p_at_least(&way[j], one[j]);
            heti_p_at_least(&way_latency[j], one_latency[j]);
        }
    }
    *latency = way_latency[0] + (turns > 0 ? turns * longest : 0) + way_latency[1];
    *seconds = way[0] + (turns > 0 ? turns * slowest : 0) + way[1];
    return HET_OK;
}

/* A ring that can start at `start` and would take `seconds` ends when the last of its wires has
   carried it. */
static double heti_p_ring_wires(heti_p_sim *s, double start, double latency, double seconds) {
    double end = start + seconds;
    while (s->wires > 0) {
        heti_p_wire *wire = &s->wire[s->loaded[--s->wires]];
        heti_p_at_least(&wire->ring_free, start);
        wire->ring_free += wire->load;
        heti_p_at_least(&end, wire->ring_free + latency);
        wire->load = 0;
    }
    return end;
}

static int heti_p_ring_earlier(const heti_p_sim *s, int64_t a, int64_t b) {
    return s->ring[a].start < s->ring[b].start || (!(s->ring[b].start < s->ring[a].start) && a < b);
}

static void heti_p_push_ring(heti_p_sim *s, int64_t index) {
    int64_t i = s->ring_heaped++;
    for (; i > 0 && heti_p_ring_earlier(s, index, s->ring_heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->ring_heap[i] = s->ring_heap[(i - 1) / 2];
    s->ring_heap[i] = index;
}

static int64_t heti_p_pop_ring(heti_p_sim *s) {
    const int64_t first = s->ring_heap[0], last = s->ring_heap[--s->ring_heaped];
    int64_t i = 0, child;
    while ((child = 2 * i + 1) < s->ring_heaped) {
        if (child + 1 < s->ring_heaped && heti_p_ring_earlier(s, s->ring_heap[child + 1], s->ring_heap[child])) child++;
        if (!heti_p_ring_earlier(s, s->ring_heap[child], last)) break;
        s->ring_heap[i] = s->ring_heap[child];
        i = child;
    }
    s->ring_heap[i] = last;
    return first;
}

/* From `start` on; lets the rings behind it go on. */
static het_result heti_p_sim_time_ring(heti_p_sim *s, int64_t index) {
    heti_p_ring *ring = &s->ring[index];
    const heti_p_part *part = s->part + ring->first;
    double bytes = 0, latency = 0, seconds = 0, end;
    int64_t j;
    if (s->costs->block != NULL) {
        bytes = ring->gather ? s->costs->block[ring->block].gather_bytes : s->costs->block[ring->block].reduce_bytes;
        HETI_T_TRY(heti_p_ring_time(s, ring, bytes, &latency, &seconds));
    }
    end = heti_p_ring_wires(s, ring->start, latency, seconds);
    heti_p_at_least(&s->result->makespan, end);
    for (j = 0; j < ring->wanted; j++) {
        s->rank[part[j].rank].ring_free = end;
        if (part[j].record >= 0) {
            s->record[part[j].record].end = end;
            s->record[part[j].record].bytes = bytes < 9e18 ? HETI_T_CAST(int64_t, bytes + 0.5) : INT64_MAX;
        }
        if (part[j].next < 0) continue;
        heti_p_at_least(&s->ring[part[j].next].start, end);
        if (--s->ring[part[j].next].before == 0) heti_p_push_ring(s, part[j].next);
    }
    return HET_OK;
}

/* Each rank does its rings in the order in which they were ready; among those that can start, the
   earliest gets the wires first. */
static het_result heti_p_sim_finish_rings(heti_p_sim *s) {
    int64_t i, j;
    heti_p_sort_rings(s);
    for (i = 0; i < s->ranks && s->ring_count > 0; i++) s->rank[i].last_part = -1;
    for (i = 0; i < s->ring_count; i++) {
        heti_p_ring *ring = &s->ring[s->ring_order[i]];
        ring->start = ring->ready;
        for (j = ring->first; j < ring->first + ring->wanted; j++) {
            heti_p_rank *rank = &s->rank[s->part[j].rank];
            s->part[j].next = -1;
            if (rank->last_part >= 0) {
                s->part[rank->last_part].next = s->ring_order[i];
                ring->before++;
            } else heti_p_at_least(&ring->start, rank->ring_free);
            rank->last_part = j;
        }
    }
    for (i = 0; i < s->ring_count; i++)
        if (s->ring[s->ring_order[i]].before == 0) heti_p_push_ring(s, s->ring_order[i]);
    while (s->ring_heaped > 0) HETI_T_TRY(heti_p_sim_time_ring(s, heti_p_pop_ring(s)));
    s->ring_count = 0;
    return HET_OK;
}

/* A tree below place[0], as the engine grows it (hetrain.h, heti_grow_tree): by what messages take
   if it knows that, else a binomial tree. */
#define HETI_P_TREE_MOST 32
static het_result heti_p_grow_tree(heti_p_sim *s, heti_p_tree_place *place, int64_t count, int known) {
    int64_t i, j, k, half = 1, wires;
    place[0].from = -1;
    s->rank[place[0].rank].heard = 0;
    for (k = 1; k < count; k++) {
        double first = -1;
        int64_t from, to = k;
        if (k == 2 * half) half *= 2;
        from = k - half;
        for (j = k; j < count && known && count <= HETI_P_TREE_MOST; j++)
            for (i = 0; i < k; i++) {
                const double heard = s->rank[place[i].rank].heard;
                het_link_cost link = { 0, 0 };
                if (first >= 0 && heard >= first) continue;
                HETI_T_TRY(heti_p_link_cost(s, place[i].rank, place[j].rank, &link, NULL, &wires));
                if (first >= 0 && heard + link.latency >= first) continue;
                first = heard + link.latency;
                from = i;
                to = j;
            }
        i = place[to].rank;
        place[to].rank = place[k].rank;
        place[k].rank = i;
        place[k].from = place[from].rank;
        s->rank[place[from].rank].heard = s->rank[place[k].rank].heard = first;
    }
    return HET_OK;
}

/* The tree of the ranks that have a stage, the first of each process, then the others of each. */
static het_result heti_p_build_tree(heti_p_sim *s, int64_t *count) {
    heti_p_tree_place *place = s->tree;
    int64_t *member = s->ready, members = 0, first, i, k, g; /* nobody is ready now */
    for (i = 0; i < s->ranks; i++) member[i] = 0;
    for (g = 0; g < s->stages; g++) member[s->stage[g].rank] = 1;
    for (i = 0; i < s->ranks; i++)
        if (member[i]) member[members++] = i;
    *count = 0;
    for (i = 0; i < members; i++)
        if (i == 0 || s->process[member[i]] != s->process[member[i - 1]]) place[(*count)++].rank = member[i];
    HETI_T_TRY(heti_p_grow_tree(s, place, *count, 0));
    for (first = 0; first < members; first = i) {
        for (i = first, k = *count; i < members && s->process[member[i]] == s->process[member[first]]; i++)
            place[k++].rank = member[i];
        HETI_T_TRY(heti_p_grow_tree(s, place + *count, k - *count, 1));
        for (; *count + 1 < k; ++*count) place[*count] = place[*count + 1]; /* the root stands there already */
    }
    return HET_OK;
}

/* Scalars of the ranks that have a stage, up the tree and down again: heti_p_rank.joined is when a
   rank comes to it, and then when it has them. Each message takes a latency of both its ends, one
   after the other. */
static het_result heti_p_sim_join(heti_p_sim *s) {
    het_link_cost link;
    int64_t count, k, wires;
    HETI_T_TRY(heti_p_build_tree(s, &count));
    for (k = count - 1; k > 0; k--) {
        heti_p_rank *from = &s->rank[s->tree[k].from];
        HETI_T_TRY(heti_p_link_cost(s, s->tree[k].rank, s->tree[k].from, &link, NULL, &wires));
        heti_p_at_least(&from->joined, s->rank[s->tree[k].rank].joined);
        from->joined += link.latency;
    }
    for (k = 1; k < count; k++) {
        heti_p_rank *from = &s->rank[s->tree[k].from];
        HETI_T_TRY(heti_p_link_cost(s, s->tree[k].from, s->tree[k].rank, &link, NULL, &wires));
        from->joined += link.latency;
        s->rank[s->tree[k].rank].joined = from->joined;
    }
    return HET_OK;
}

/* Every rank is done, or waits. All that wait for a verdict get it where nobody waits for a
   message. */
static het_result heti_p_sim_verdict(heti_p_sim *s, int *done) {
    double time = 0;
    int64_t r, b;
    HETI_T_TRY(heti_p_sim_finish_rings(s));
    *done = 1;
    for (r = 0; r < s->ranks; r++) {
        heti_p_rank *rank = &s->rank[r];
        if (rank->state == HETI_P_WAITS) return heti_p_sim_fail(s, r, rank->at, "waits for ever for what it needs");
        if (rank->state == HETI_P_VERDICT) {
            *done = 0;
            heti_p_at_least(&rank->clock, rank->ring_free);
            if (s->costs->rank != NULL) heti_p_sim_spend(s, r, rank->clock, s->costs->rank[r].verdict);
        }
        rank->joined = rank->clock;
        heti_p_at_least(&rank->joined, rank->ring_free);
        heti_p_at_least(&time, rank->joined);
    }
    for (b = 0; b < (*done ? 2 : 1) * s->blocks; b++)
        if (s->ring[b].reached < s->ring[b].wanted)
            return heti_t_fail(s->error, HET_ERR_INVALID, "het_simulate: %s of block %d waits for ever: %d of %d ranks "
                                                          "have reached it", b < s->blocks ? "REDUCE" : "GATHER",
                                                          HETI_T_CAST(int64_t, s->ring[b].block), s->ring[b].reached,
                                                          s->ring[b].wanted);
    if (!*done && s->transfer == HET_TRANSFER_POSTED) HETI_T_TRY(heti_p_sim_join(s));
    for (r = 0; r < s->ranks && !*done; r++) {
        heti_p_rank *rank = &s->rank[r];
        if (rank->state != HETI_P_VERDICT) continue;
        if (s->transfer == HET_TRANSFER_POSTED) time = rank->joined;
        (void)heti_p_sim_record(s, r, &s->schedule->action[rank->at], HET_ACTION_VERDICT, rank->verdict, time, 0);
        rank->clock = time;
        rank->at++;
        rank->state = HETI_P_READY;
        s->ready[s->ready_count++] = r;
    }
    return HET_OK;
}

/* ---- what came out ---- */

/* Closes the gaps that records not needed have left. */
static void heti_p_sim_timeline(heti_p_sim *s) {
    int64_t r, i, from = 0, count = 0;
    for (r = 0; r < s->ranks && s->keep; r++) {
        int64_t room = 0, used;
        for (i = s->schedule->start[r]; i < s->schedule->start[r + 1]; i++)
            room += heti_p_record_room(s, s->schedule->action[i].kind);
        used = s->rank[r].record - from;
        if (used > 0 && count < from)
            memmove(s->record + count, s->record + from, HETI_T_CAST(size_t, used) * sizeof *s->record);
        count += used;
        from += room;
    }
    s->result->timeline.ranks = s->ranks;
    s->result->timeline.records = count;
    s->result->timeline.record = count > 0 ? s->record : NULL;
}

static void heti_p_sim_sums(heti_p_sim *s) {
    het_simulation *result = s->result;
    double busy = 0, n = HETI_T_CAST(double, s->ranks);
    int64_t r;
    for (r = 0; r < s->ranks; r++) {
        het_rank_time *time = &result->rank[r];
        if (s->rank[r].clock > result->makespan) result->makespan = s->rank[r].clock;
        if (time->start < 0) time->start = time->end = 0;
        if (time->end - time->start > result->span) result->span = time->end - time->start;
        time->peak /= s->rank[r].unit;
        busy += time->busy;
    }
    for (r = 0; r < s->ranks; r++) {
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

static void heti_p_sim_copy_twins(heti_p_sim *s) {
    int64_t g;
    for (g = 0; g < s->stages; g++) {
        const int64_t r = s->stage[g].rank;
        s->ready[r] = s->plan->stage[g].pipeline;
        if (s->rank[r].twin >= 0) heti_p_sim_copy_twin(s, r);
    }
    s->twins = 0;
}

static het_result heti_p_sim_loop(heti_p_sim *s) {
    int done = 0;
    HETI_T_TRY(heti_p_sim_start(s));
    while (!done) {
        while (s->ready_count > 0) HETI_T_TRY(heti_p_sim_run(s, s->ready[--s->ready_count]));
        if (s->hops > 0) HETI_T_TRY(heti_p_sim_pass(s));
        else {
            if (s->twins > 0) heti_p_sim_copy_twins(s);
            HETI_T_TRY(heti_p_sim_verdict(s, &done));
        }
    }
    heti_p_sim_timeline(s);
    heti_p_sim_sums(s);
    return HET_OK;
}

HETRAIN_API het_result het_simulate(const het_plan *plan, const het_schedule *schedule, const het_costs *costs,
                                    het_choice timeline, const het_allocator *allocator, het_simulation **simulation,
                                               het_error *error) {
    heti_p_sim s;
    het_result result;
    size_t size;
    if (simulation == NULL) return heti_t_fail(error, HET_ERR_INVALID, "het_simulate: simulation is NULL");
    *simulation = NULL;
    if (plan == NULL || schedule == NULL || costs == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_simulate: %s is NULL", plan == NULL ? "plan" :
                           schedule == NULL ? "schedule" : "costs");
    memset(&s, 0, sizeof s);
    s.plan = plan;
    s.schedule = schedule;
    s.costs = costs;
    s.error = error;
    s.keep = timeline == HET_YES;
    if (!heti_t_allocator(allocator, &s.allocator))
        return heti_t_fail(error, HET_ERR_INVALID, "het_simulate: an allocator needs both alloc and free");
    HETI_T_TRY(heti_p_sim_given(&s));
    HETI_T_TRY(heti_p_sim_allocate(&s, heti_p_result_cut, &size));
    s.result->allocator = s.allocator;
    s.result->size = size;
    result = heti_p_sim_allocate(&s, heti_p_sim_cut, &s.scratch_size);
    if (result == HET_OK) {
        result = heti_p_sim_loop(&s);
        s.allocator.free(s.allocator.user, s.stage, s.scratch_size);
        if (s.hop_room > 0) s.allocator.free(s.allocator.user, s.hop, HETI_T_CAST(size_t, s.hop_room) * sizeof *s.hop);
    }
    if (result != HET_OK) het_simulation_free(s.result);
    else *simulation = s.result;
    return result;
}

HETRAIN_API void het_simulation_free(het_simulation *simulation) {
    het_allocator allocator;
    if (simulation == NULL) return;
    allocator = simulation->allocator;
    allocator.free(allocator.user, simulation, simulation->size);
}

/* =================================================================================================
   >>profile  What a description says about units, blocks and bytes; bytes of a plan; files.

   Units are asked through their own tables, as het_create does. Units of one table with the same
   shapes are one kind, whatever their parameters are called. Bytes are kept by class (het_keep), so
   that a stage's memory is a sum over its units, whatever is recomputed, split or sliced:
       slot = rows (input of the first + sum of output + keep_input [unless recomputed] +
       keep_weight [unless recomputed and B whole]
              + keep_gradient [where I and W come apart] + carry [unless sliced] + carry_gradient
              [where I and W come apart, unless sliced])
       carry = tokens (sum of carry + carry_gradient) [sliced]
   ============================================================================================== */

enum { HETI_P_MOST_UNITS = 1 << 20, HETI_P_MOST_KINDS = 256 };

typedef struct heti_p_parameter { char name[64]; int64_t count, uses; int32_t frozen; } heti_p_parameter;

/* What describing needs beside the profile: all of it is given back. */
typedef struct heti_p_described {
    het_desc desc;                    /* completed */
    het_allocator allocator;
    het_error *error;
    het_device device;
    het_parallel parallel;
    het_unit *unit;                   /* [units] */
    het_unit_info *info;              /* [2]: a unit and the one before it */
    het_unit_info *kind;              /* [kinds] as described first */
    const het_unit_iface **table;     /* [kinds] */
    int64_t *owner;                   /* [uses] parameter of each (unit, parameter); NULL: they are still counted */
    int64_t *first;                   /* [units + 1] into owner */
    heti_p_parameter *parameter;      /* [uses] */
    het_profile count;                /* the arrays are scratch */
    int64_t uses, parameters, granule;
    void *block[2];                   /* what the arrays are in */
    size_t size[2];
} heti_p_described;

static void heti_p_serial(void *user, int64_t count, het_task task, void *arg) {
    int64_t i;
    (void)user;
    for (i = 0; i < count; i++) task(arg, i);
}

/* ---- describing ---- */

/* Asks a unit to describe itself behind the unit that gives `before` (NULL: the first). */
static het_result heti_p_describe_unit(heti_p_described *d, int64_t u, const het_unit_info *before, int64_t tokens,
                                       het_unit_info *info) {
    const het_unit_iface *table = d->unit[u].iface;
    het_result result;
    int64_t s;
    memset(info, 0, sizeof *info);
    info->max_tokens = tokens;
    info->max_granule_tokens = d->granule < tokens ? d->granule : tokens;
    info->max_sequences = d->desc.max_sequences < tokens ? d->desc.max_sequences : tokens;
    info->compute = d->desc.dtype;
    info->device = &d->device;
    for (s = 0; before != NULL && s < before->out_streams; s++) info->in_width[s] = before->out_width[s];
    if (before != NULL) info->in_streams = before->out_streams;
    if (table == NULL || table->version != HETRAIN_UNIT_VERSION)
        return heti_t_fail(d->error, HET_ERR_INVALID, "het_profile_describe: unit %d: its table has version "
                                                      "%d, this is %d", u,
                                                      table != NULL ? HETI_T_CAST(int64_t, table->version) :
                                                      HETI_T_CAST(int64_t, -1),
                                                      HETI_T_CAST(int64_t, HETRAIN_UNIT_VERSION));
    result = table->describe(&d->unit[u], info);
    if (result != HET_OK)
        return heti_t_fail(d->error, result, "het_profile_describe: unit %d (%s): describe failed behind a unit that "
                                             "gives %d streams", u, table->name, info->in_streams);
    if (info->parameters < 0 || info->parameters > HETRAIN_MAX_UNIT_PARAMETERS || info->tensors < 0 ||
        info->tensors > HETRAIN_MAX_UNIT_TENSORS || info->out_streams < 0 || info->out_streams > HETRAIN_MAX_STREAMS)
        return heti_t_fail(d->error, HET_ERR_INVALID, "het_profile_describe: unit %d (%s): %d parameters, %d "
                                                      "tensors, %d streams", u, table->name, info->parameters,
                                                      info->tensors, info->out_streams);
    for (s = 0; s < info->parameters; s++) { /* squaring its gradients needs scratch as well */
        het_op op;
        size_t bytes;
        memset(&op, 0, sizeof op);
        op.kind = HET_OP_SUM_SQUARES;
        op.u.sum_squares.count = info->parameter[s].rows * info->parameter[s].columns;
        bytes = d->device.iface->workspace(d->device.self, &op);
        if (bytes > info->workspace) info->workspace = bytes;
    }
    return HET_OK;
}

static int heti_p_same_streams(int64_t count, const int64_t *width, int64_t other_count, const int64_t *other) {
    int64_t s;
    for (s = 0; s < count && count == other_count && width[s] == other[s]; s++) {}
    return count == other_count && s == count;
}

/* Whether two descriptions differ in nothing that costs. */
static int heti_p_same_kind(const het_unit_info *a, const het_unit_info *b) {
    int64_t i;
    if (!heti_p_same_streams(a->in_streams, a->in_width, b->in_streams, b->in_width)) return 0;
    if (!heti_p_same_streams(a->out_streams, a->out_width, b->out_streams, b->out_width)) return 0;
    if (a->parameters != b->parameters || a->tensors != b->tensors || a->workspace != b->workspace ||
        a->is_loss != b->is_loss)
        return 0;
    for (i = 0; i < a->parameters; i++)
        if (a->parameter[i].rows != b->parameter[i].rows || a->parameter[i].columns != b->parameter[i].columns)
            return 0;
    for (i = 0; i < a->tensors; i++)
        if (a->tensor[i].width != b->tensor[i].width || a->tensor[i].keep != b->tensor[i].keep) return 0;
    return !(a->flops_forward < b->flops_forward || a->flops_forward > b->flops_forward);
}

static het_result heti_p_describe_parameter(heti_p_described *d, int64_t u, const het_parameter_desc *p) {
    const int64_t limit = INT64_C(1) << 56;
    int64_t i;
    if (p->rows < 1 || p->columns < 1 || p->rows > limit / p->columns)
        return heti_t_fail(d->error, HET_ERR_INVALID, "het_profile_describe: unit %d: parameter %s has shape %d x %d",
                           u, p->name, p->rows, p->columns);
    for (i = 0; i < d->parameters && strcmp(d->parameter[i].name, p->name) != 0; i++) {}
    if (i == d->parameters) {
        memcpy(d->parameter[i].name, p->name, sizeof d->parameter[i].name);
        d->parameter[i].name[sizeof d->parameter[i].name - 1] = 0;
        d->parameter[i].count = p->rows * p->columns;
        d->parameter[i].frozen = d->desc.inference == HET_YES || (d->desc.model.lora_rank > 0 && !p->adapter) ||
                                 (d->desc.frozen != NULL && d->desc.frozen(d->desc.user, d->parameter[i].name) != 0);
        d->parameters++;
    }
    if (d->parameter[i].count != p->rows * p->columns)
        return heti_t_fail(d->error, HET_ERR_INVALID, "het_profile_describe: unit %d: parameter %s has %d elements "
                                                      "here and %d in an earlier unit", u, p->name,
                                                      p->rows * p->columns, d->parameter[i].count);
    d->parameter[i].uses++;
    d->owner[d->uses++] = i;
    return HET_OK;
}

/* Passes over the chain: with owner NULL only counts uses of parameters; else finds parameters and
   kinds. */
static het_result heti_p_describe_chain(heti_p_described *d) {
    int64_t u, k, p;
    d->uses = d->count.kinds = 0;
    for (u = 0; u < d->count.units; u++) {
        het_unit_info *info = &d->info[u % 2];
        HETI_T_TRY(heti_p_describe_unit(d, u, u > 0 ? &d->info[(u + 1) % 2] : NULL, d->desc.max_tokens, info));
        if ((u == d->count.units - 1) != (info->is_loss != 0))
            return heti_t_fail(d->error, HET_ERR_INVALID,
                "het_profile_describe: unit %d (%s): the last unit of the chain, and no other, makes the loss", u,
                d->unit[u].iface->name);
        if (d->owner == NULL) { d->uses += info->parameters; continue; }
        d->first[u] = d->uses;
        for (p = 0; p < info->parameters; p++) HETI_T_TRY(heti_p_describe_parameter(d, u, &info->parameter[p]));
        for (k = 0; k < d->count.kinds && !(d->table[k] == d->unit[u].iface &&
                                            heti_p_same_kind(&d->kind[k], info)); k++) {}
        if (k == HETI_P_MOST_KINDS)
            return heti_t_fail(d->error, HET_ERR_LIMIT,
                               "het_profile_describe: unit %d (%s) is of another kind than %d before it: the most", u,
                               d->unit[u].iface->name, k);
        if (k == d->count.kinds) {
            d->table[k] = d->unit[u].iface;
            d->kind[k] = *info;
            d->count.kinds++;
        }
        d->count.unit[u] = HETI_T_CAST(int32_t, k);
    }
    if (d->owner != NULL) d->first[u] = d->uses;
    return HET_OK;
}

static double heti_p_widths(int64_t count, const int64_t *width) {
    double sum = 0;
    int64_t s;
    for (s = 0; s < count; s++) sum += HETI_T_CAST(double, width[s]) * 4;
    return sum;
}

static void heti_p_fill_kind(het_unit_kind *kind, const het_unit_info *info) {
    int64_t t;
    kind->input = heti_p_widths(info->in_streams, info->in_width);
    kind->output = heti_p_widths(info->out_streams, info->out_width);
    kind->loss = info->is_loss != 0;
    for (t = 0; t < info->tensors; t++) {
        const double bytes = HETI_T_CAST(double, info->tensor[t].width) * 4;
        switch (info->tensor[t].keep) {
        case HET_KEEP_CALL: kind->call += bytes; break;
        case HET_KEEP_INPUT: kind->keep_input += bytes; break;
        case HET_KEEP_GRADIENT: kind->keep_gradient += bytes; break;
        case HET_KEEP_CARRY: kind->carry += bytes; break;
        case HET_KEEP_CARRY_GRADIENT: kind->carry_gradient += bytes; break;
        default: kind->keep_weight += bytes; break;
        }
    }
}

/* name, or "name#2" where an earlier kind has it. */
static void heti_p_kind_name(const heti_p_described *d, int64_t k, het_unit_kind *kind) {
    heti_t_text name = heti_t_text_in(kind->name, 41);
    int64_t i, number = 1;
    for (i = 0; i < k; i++) number += strcmp(d->table[i]->name, d->table[k]->name) == 0;
    heti_t_put(&name, d->table[k]->name);
    name = heti_t_text_behind(kind->name, sizeof kind->name);
    if (number > 1) heti_t_format(&name, "#%d", number);
}

/* Kinds with their workspace as a straight line through two numbers of tokens. */
static het_result heti_p_fill_kinds(heti_p_described *d, het_profile *profile) {
    const int64_t most = d->desc.max_tokens, half = (most + 1) / 2;
    int64_t u;
    for (u = 0; u < profile->units; u++) {
        const int64_t k = profile->unit[u];
        het_unit_kind *kind = &profile->kind[k];
        het_unit_info before;
        double low, high;
        if (kind->name[0] != 0) continue;
        heti_p_fill_kind(kind, &d->kind[k]);
        heti_p_kind_name(d, k, kind);
        memset(&before, 0, sizeof before);
        before.out_streams = d->kind[k].in_streams;
        memcpy(before.out_width, d->kind[k].in_width, sizeof before.out_width);
        HETI_T_TRY(heti_p_describe_unit(d, u, u > 0 ? &before : NULL, half, &d->info[0]));
        low = HETI_T_CAST(double, d->info[0].workspace);
        high = HETI_T_CAST(double, d->kind[k].workspace);
        kind->workspace = most > half && high > low ? (high - low) / HETI_T_CAST(double, most - half) : 0;
        kind->workspace_base = high - kind->workspace * HETI_T_CAST(double, most);
        if (kind->workspace_base < 0) kind->workspace_base = 0;
    }
    return HET_OK;
}

static int heti_p_uses(const heti_p_described *d, int64_t unit, int64_t parameter) {
    int64_t i;
    for (i = d->first[unit]; i < d->first[unit + 1] && d->owner[i] != parameter; i++) {}
    return i < d->first[unit + 1];
}

/* Parameters with the same users, all trained or all frozen, are a block, in the order of their
   first parameters: the schedule's order. */
static void heti_p_fill_blocks(heti_p_described *d) {
    het_profile *profile = &d->count;
    int64_t p, b, u, i;
    profile->blocks = profile->uses = 0;
    for (p = 0; p < d->parameters; p++) {
        heti_p_parameter *parameter = &d->parameter[p];
        for (b = profile->blocks - 1; b >= 0; b--) {
            const het_block_profile *block = &profile->block[b];
            if (block->uses != parameter->uses || block->frozen != parameter->frozen) continue;
            for (i = 0; i < block->uses && heti_p_uses(d, profile->use[block->first_use + i], p); i++) {}
            if (i == block->uses) break;
        }
        if (b < 0) {
            het_block_profile *block = &profile->block[b = profile->blocks++];
            block->frozen = parameter->frozen;
            block->first_use = profile->uses;
            for (u = 0; u < profile->units && profile->uses - block->first_use < parameter->uses; u++)
                if (heti_p_uses(d, u, p)) profile->use[profile->uses++] = u;
            block->uses = profile->uses - block->first_use;
        }
        profile->block[b].elements += (parameter->count + 15) / 16 * 16;
    }
}

/* Elements of the tables of cosines and sines together: T x columns of a head that rotate, int(E
   fraction). */
static int64_t heti_p_rotary_table(const het_model_desc *m) {
    const double columns = HETI_T_CAST(double, m->head_size) * (HETI_T_CAST(double, m->rotary_fraction) + 1e-7);
    return m->position == HET_ROTARY ? m->context * (HETI_T_CAST(int64_t, columns) / 2 * 2) : 0;
}

/* A rank's tables are described in hetrain.h's manual: rotary tables, maximum (4), exponent (4) and
   grid (8) of each parameter, logits of one token, scalars and two sums; a micro-batch has five
   arrays of 4 bytes and one of 8 a token, two of 8 a sequence. */
static void heti_p_fill_totals(heti_p_described *d, const char *model) {
    const int exact = d->desc.reduce == HET_REDUCE_EXACT;
    het_profile *profile = &d->count;
    size_t length = strlen(model);
    if (length >= sizeof profile->model) length = sizeof profile->model - 1;
    memcpy(profile->model, model, length);
    profile->dtype = d->desc.dtype;
    profile->reduce = d->desc.reduce;
    profile->weight_bytes = profile->gather_bytes = 4;
    profile->gradient_bytes = profile->reduce_bytes = exact ? 8 : 4;
    profile->state_bytes = 4 * HETI_T_CAST(double, d->desc.optimizer.iface->slots);
    profile->rank_weights = 4 * HETI_T_CAST(double, heti_p_rotary_table(&d->desc.model));
    profile->rank_gradients = 16 * HETI_T_CAST(double, d->parameters);
    profile->rank_workspace = 4 * HETI_T_CAST(double, d->desc.model.vocab) +
        HETI_T_CAST(double, sizeof(het_step_scalars) + 2 * sizeof(het_sum));
    profile->token_bytes = 28;
    profile->sequence_bytes = 16;
}

static void heti_p_profile_cut(het_profile **at, const het_profile *count, heti_t_arena *arena) {
    het_profile *profile = HETI_T_TAKE(arena, het_profile, 1), unused;
    int64_t i;
    if (profile == NULL) profile = &unused;
    *profile = *count;
    profile->kind = HETI_T_TAKE(arena, het_unit_kind, count->kinds);
    profile->unit = HETI_T_TAKE(arena, int32_t, count->units);
    profile->block = HETI_T_TAKE(arena, het_block_profile, count->blocks);
    profile->use = HETI_T_TAKE(arena, int64_t, count->uses);
    profile->device = HETI_T_TAKE(arena, het_device_profile, count->devices);
    profile->link = HETI_T_TAKE(arena, het_link_profile, count->links);
    for (i = 0; i < count->devices; i++) {
        het_unit_time *alone = HETI_T_TAKE(arena, het_unit_time, count->kinds);
        het_unit_time *together = HETI_T_TAKE(arena, het_unit_time, count->kinds);
        if (arena->base == NULL) continue;
        profile->device[i].alone = alone;
        profile->device[i].together = together;
    }
    *at = arena->base != NULL ? profile : NULL;
}

/* A cleared profile with the numbers of things, and the fields that are no arrays, of `count`. */
static het_result heti_p_profile_new(const het_profile *count, const het_allocator *allocator, const char *call,
                                     het_profile **profile, het_error *error) {
    heti_t_arena arena;
    void *block;
    size_t size;
    arena.base = NULL;
    arena.used = 0;
    heti_p_profile_cut(profile, count, &arena);
    size = arena.used;
    HETI_T_TRY(heti_t_block(allocator, size, call, &block, error));
    arena.base = HETI_T_CAST(char *, block);
    arena.used = 0;
    heti_p_profile_cut(profile, count, &arena);
    (*profile)->allocator = *allocator;
    (*profile)->size = size;
    return HET_OK;
}

/* Everything but devices and links. */
static void heti_p_profile_same(het_profile *to, const het_profile *from) {
    memcpy(to->kind, from->kind, HETI_T_CAST(size_t, from->kinds) * sizeof *to->kind);
    memcpy(to->unit, from->unit, HETI_T_CAST(size_t, from->units) * sizeof *to->unit);
    memcpy(to->block, from->block, HETI_T_CAST(size_t, from->blocks) * sizeof *to->block);
    memcpy(to->use, from->use, HETI_T_CAST(size_t, from->uses) * sizeof *to->use);
}

HETRAIN_API void het_profile_free(het_profile *profile) {
    het_allocator allocator;
    if (profile == NULL) return;
    allocator = profile->allocator;
    allocator.free(allocator.user, profile, profile->size);
}

static void heti_p_described_cut(heti_p_described *d, heti_t_arena *arena) {
    d->unit = HETI_T_TAKE(arena, het_unit, d->count.units);
    d->info = HETI_T_TAKE(arena, het_unit_info, 2);
    d->kind = HETI_T_TAKE(arena, het_unit_info, HETI_P_MOST_KINDS);
    d->table = HETI_T_TAKE(arena, const het_unit_iface *, HETI_P_MOST_KINDS);
    d->first = HETI_T_TAKE(arena, int64_t, d->count.units + 1);
    d->count.unit = HETI_T_TAKE(arena, int32_t, d->count.units);
}

/* Every use of a parameter may be a parameter and a block of its own. */
static void heti_p_uses_cut(heti_p_described *d, heti_t_arena *arena) {
    d->owner = HETI_T_TAKE(arena, int64_t, d->uses + 1);
    d->parameter = HETI_T_TAKE(arena, heti_p_parameter, d->uses);
    d->count.block = HETI_T_TAKE(arena, het_block_profile, d->uses);
    d->count.use = HETI_T_TAKE(arena, int64_t, d->uses);
}

static het_result heti_p_described_block(heti_p_described *d, int which, void (*cut)(heti_p_described *d,
    heti_t_arena *arena)) {
    heti_t_arena arena;
    arena.base = NULL;
    arena.used = 0;
    cut(d, &arena);
    d->size[which] = arena.used;
    HETI_T_TRY(heti_t_block(&d->allocator, arena.used, "het_profile_describe", &d->block[which], d->error));
    arena.base = HETI_T_CAST(char *, d->block[which]);
    arena.used = 0;
    cut(d, &arena);
    return HET_OK;
}

/* Completed description, number of units and the first device. */
static het_result heti_p_describe_start(heti_p_described *d, const het_desc *desc, const het_allocator *allocator) {
    const het_device_iface *iface = het_cpu_device();
    het_device_config config;
    het_result result;
    int64_t whole;
    d->desc = *desc;
    if (d->desc.start_canary != 0 || d->desc.end_canary != 0)
        return heti_t_fail(d->error, HET_ERR_INVALID, "het_profile_describe: het_desc was not cleared");
    if (!heti_t_allocator(allocator, &d->allocator))
        return heti_t_fail(d->error, HET_ERR_INVALID, "het_profile_describe: an allocator needs both alloc and free");
    HETI_T_TRY(het_model_complete(&d->desc.model, d->error));
    het_desc_defaults(&d->desc);
    d->count.units = d->desc.units != NULL ? d->desc.unit_count : 2 * d->desc.model.layers + 2;
    if (d->count.units < 2 || d->count.units > HETI_P_MOST_UNITS || d->desc.max_tokens < 1 ||
        d->desc.max_tokens > INT64_C(1) << 31)
        return heti_t_fail(d->error, HET_ERR_INVALID, "het_profile_describe: %d units, max_tokens %d", d->count.units,
                           d->desc.max_tokens);
    whole = d->desc.model.context < 512 ? d->desc.model.context : 512;
    d->granule = d->desc.granule > INT64_MAX / 512 || d->desc.granule * whole > d->desc.max_tokens ?
        d->desc.max_tokens : d->desc.granule * whole;
    if (d->granule < 512) d->granule = 512;
    memset(&config, 0, sizeof config);
    config.threads = 1;
    if (desc->devices != NULL && desc->device_count > 0) {
        if (desc->devices[0].iface != NULL) iface = desc->devices[0].iface;
        if (desc->devices[0].threads > 0) config.threads = desc->devices[0].threads;
        config.isa = desc->devices[0].isa;
        config.ordinal = desc->devices[0].ordinal;
    }
    d->parallel.run = heti_p_serial;
    config.allocator = &d->allocator;
    config.parallel = &d->parallel;
    if (iface->version != HETRAIN_DEVICE_VERSION)
        return heti_t_fail(d->error, HET_ERR_INVALID, "het_profile_describe: device table has version %d, this is %d",
            HETI_T_CAST(int64_t, iface->version), HETI_T_CAST(int64_t, HETRAIN_DEVICE_VERSION));
    result = iface->create(&config, &d->device.self);
    if (result != HET_OK)
        return heti_t_fail(d->error, result, "het_profile_describe: device %s could not be created", iface->name);
    d->device.iface = iface;
    return HET_OK;
}

static het_result heti_p_describe_all(heti_p_described *d, const char *model, het_profile **profile) {
    int64_t u;
    HETI_T_TRY(heti_p_described_block(d, 0, heti_p_described_cut));
    if (d->desc.units == NULL) HETI_T_TRY(het_model_units(&d->desc.model, d->unit, d->count.units, &u, d->error));
    for (u = 0; u < d->count.units; u++) {
        if (d->desc.units != NULL) d->unit[u] = d->desc.units[u];
        if (d->unit[u].model == NULL) d->unit[u].model = &d->desc.model;
    }
    HETI_T_TRY(heti_p_describe_chain(d));
    HETI_T_TRY(heti_p_described_block(d, 1, heti_p_uses_cut));
    HETI_T_TRY(heti_p_describe_chain(d));
    heti_p_fill_blocks(d);
    heti_p_fill_totals(d, model);
    HETI_T_TRY(heti_p_profile_new(&d->count, &d->allocator, "het_profile_describe", profile, d->error));
    memcpy((*profile)->unit, d->count.unit, HETI_T_CAST(size_t, d->count.units) * sizeof *d->count.unit);
    memcpy((*profile)->block, d->count.block, HETI_T_CAST(size_t, d->count.blocks) * sizeof *d->count.block);
    memcpy((*profile)->use, d->count.use, HETI_T_CAST(size_t, d->count.uses) * sizeof *d->count.use);
    return heti_p_fill_kinds(d, *profile);
}

HETRAIN_API het_result het_profile_describe(const het_desc *desc, const char *model, const het_allocator *allocator,
                                            het_profile **profile, het_error *error) {
    heti_p_described d;
    het_result result;
    int i;
    if (profile == NULL) return heti_t_fail(error, HET_ERR_INVALID, "het_profile_describe: profile is NULL");
    *profile = NULL;
    if (desc == NULL) return heti_t_fail(error, HET_ERR_INVALID, "het_profile_describe: desc is NULL");
    memset(&d, 0, sizeof d);
    d.error = error;
    result = heti_p_describe_start(&d, desc, allocator);
    if (result == HET_OK) result = heti_p_describe_all(&d, model != NULL ? model : "", profile);
    for (i = 0; i < 2; i++)
        if (d.block[i] != NULL) d.allocator.free(d.allocator.user, d.block[i], d.size[i]);
    if (d.device.iface != NULL) d.device.iface->destroy(d.device.self);
    if (result != HET_OK) {
        het_profile_free(*profile);
        *profile = NULL;
    }
    return result;
}

/* ---- bytes of a plan ---- */

/* left: slices in flight or still to come of each (stage, micro-batch), those of a stage from
   base[stage] on; apart: stages with an I. */
typedef struct heti_p_followed { int64_t *left, *base, *apart; } heti_p_followed;

/* One rank's list, all its stages at once. */
static het_result heti_p_follow(const het_plan *plan, const het_schedule *schedule, int64_t r, const heti_p_followed *f,
                                het_needs *needs, het_error *error) {
    int64_t i, slots = 0, carries = 0, messages = 0, stages = 0, apart = 0;
    for (i = schedule->start[r]; i < schedule->start[r + 1]; i++) {
        const het_action *a = &schedule->action[i];
        const int forward = a->kind == HET_ACTION_F, backward = a->kind == HET_ACTION_B || a->kind == HET_ACTION_I;
        int64_t stage, first, last;
        if (heti_p_is_receive(a->kind) && ++messages > needs->messages) needs->messages = messages;
        if (a->kind > HET_ACTION_W) continue;
        if (a->kind < 0 || a->pipeline < 0 || a->pipeline >= plan->pipelines || a->micro_batch < 0 || a->stage < 0 ||
            a->stage >= plan->first_stage[a->pipeline + 1] - plan->first_stage[a->pipeline] ||
            a->micro_batch >= schedule->micro_batches[a->pipeline])
            return heti_t_fail(error, HET_ERR_INVALID,
                               "het_profile_needs: rank %d, action %d: no such pipeline, stage or micro-batch", r,
                               i - schedule->start[r]);
        first = plan->first_stage[a->pipeline];
        last = plan->first_stage[a->pipeline + 1] - 1;
        stage = first + a->stage;
        if (a->kind == HET_ACTION_I) f->apart[stage] = 1;
        if (forward) {
            if (++slots > needs->slots) needs->slots = slots;
            if (a->slice == 0) {
                if (++carries > needs->carries) needs->carries = carries;
                f->left[f->base[stage] + a->micro_batch] = plan->slices;
            }
        }
        if (schedule->complete && ((forward && stage > first) || (backward && stage < last))) messages--;
        if (((forward && stage < last && plan->stage[stage + 1].rank == r) ||
             (backward && stage > first && plan->stage[stage - 1].rank == r)) && schedule->complete &&
                 ++messages > needs->messages)
            needs->messages = messages;
        if (a->kind != HET_ACTION_B && a->kind != HET_ACTION_W) continue;
        slots--;
        if (--f->left[f->base[stage] + a->micro_batch] == 0) carries--;
    }
    for (i = 0; i < plan->stages; i++) {
        if (plan->stage[i].rank != r) continue;
        stages++;
        apart += f->apart[i];
    }
    needs->split = apart == 0 ? 0 : apart < stages ? 1 : 2;
    return HET_OK;
}

HETRAIN_API het_result het_profile_needs(const het_plan *plan, const het_schedule *schedule,
                                         const het_allocator *allocator, het_needs *needs, het_error *error) {
    het_allocator own;
    heti_p_followed f;
    het_result result = HET_OK;
    int64_t p, g, r, cells = 0;
    void *block;
    size_t size;
    if (plan == NULL || schedule == NULL || needs == NULL || schedule->ranks != plan->ranks ||
        schedule->pipelines != plan->pipelines)
        return heti_t_fail(error, HET_ERR_INVALID,
                           "het_profile_needs: a pointer is NULL, or the schedule is not of this plan");
    if (!heti_t_allocator(allocator, &own))
        return heti_t_fail(error, HET_ERR_INVALID, "het_profile_needs: an allocator needs both alloc and free");
    for (p = 0; p < plan->pipelines; p++)
        cells += (plan->first_stage[p + 1] - plan->first_stage[p]) * schedule->micro_batches[p];
    size = HETI_T_CAST(size_t, cells + 2 * plan->stages) * sizeof(int64_t);
    HETI_T_TRY(heti_t_block(&own, size, "het_profile_needs", &block, error));
    f.base = HETI_T_CAST(int64_t *, block);
    f.apart = f.base + plan->stages;
    f.left = f.apart + plan->stages;
    memset(f.apart, 0, HETI_T_CAST(size_t, plan->stages) * sizeof *f.apart);
    for (p = 0, cells = 0; p < plan->pipelines; p++)
        for (g = plan->first_stage[p]; g < plan->first_stage[p + 1]; g++, cells += schedule->micro_batches[p])
            f.base[g] = cells;
    memset(needs, 0, HETI_T_CAST(size_t, plan->ranks) * sizeof *needs);
    for (r = 0; r < plan->ranks && result == HET_OK; r++)
        result = heti_p_follow(plan, schedule, r, &f, &needs[r], error);
    own.free(own.user, block, size);
    return result;
}

HETRAIN_API het_stage_memory het_profile_stage(const het_profile *profile, int64_t unit_begin, int64_t unit_end,
                                               int recompute, int split, int sliced, double rows, double tokens) {
    het_stage_memory m;
    double slot = 0, carry = 0;
    int64_t u;
    memset(&m, 0, sizeof m);
    for (u = unit_begin; u < unit_end; u++) {
        const het_unit_kind *k = &profile->kind[profile->unit[u]];
        const int again = recompute && !k->loss;
        double call = k->call, workspace = k->workspace * tokens + k->workspace_base;
        slot += k->output;
        if (u == unit_begin) slot += k->input;
        if (again) call += k->keep_input;
        else slot += k->keep_input;
        if (again && !split) call += k->keep_weight;
        else slot += k->keep_weight;
        if (split) slot += k->keep_gradient;
        else call += k->keep_gradient;
        if (sliced) carry += k->carry + k->carry_gradient;
        else slot += k->carry;
        if (!sliced && split) slot += k->carry_gradient;
        if (!sliced && !split) call += k->carry_gradient;
        if (call * rows + workspace > m.scratch) m.scratch = call * rows + workspace;
        if (k->input * rows > m.stream) m.stream = k->input * rows;
        if (k->output * rows > m.stream) m.stream = k->output * rows;
        if (u == unit_begin) m.message = k->input * rows;
        if (u + 1 == unit_end && k->output * rows > m.message) m.message = k->output * rows;
    }
    m.slot = slot * rows;
    m.carry = carry * tokens;
    return m;
}

/* The ranks' sums on their way. Uses of blocks are chained by unit, stages by rank. */
typedef struct heti_p_held {
    const het_profile *profile;
    const het_plan *plan;
    het_stage_memory *most;           /* [ranks] of its stages */
    double *elements, *trained, *state; /* [ranks] */
    double *share;                    /* [blocks] sum of state shares of the holders */
    int64_t *holders;                 /* [blocks] */
    int64_t *head, *next, *block;     /* [units] the first use of a block by the unit; [uses] the
                                         next one; [uses] whose it is */
    int64_t *last, *before;           /* [ranks] its last stage; [stages] the rank's stage before, -1: none */
    int64_t *stages;                  /* [ranks] how many */
} heti_p_held;

static void heti_p_held_cut(heti_p_held *h, heti_t_arena *arena) {
    const int64_t ranks = h->plan->ranks, uses = h->profile->uses, blocks = h->profile->blocks;
    h->most = HETI_T_TAKE(arena, het_stage_memory, ranks);
    h->elements = HETI_T_TAKE(arena, double, ranks);
    h->trained = HETI_T_TAKE(arena, double, ranks);
    h->state = HETI_T_TAKE(arena, double, ranks);
    h->share = HETI_T_TAKE(arena, double, blocks);
    h->holders = HETI_T_TAKE(arena, int64_t, blocks);
    h->head = HETI_T_TAKE(arena, int64_t, h->profile->units);
    h->next = HETI_T_TAKE(arena, int64_t, uses);
    h->block = HETI_T_TAKE(arena, int64_t, uses);
    h->last = HETI_T_TAKE(arena, int64_t, ranks);
    h->before = HETI_T_TAKE(arena, int64_t, h->plan->stages);
    h->stages = HETI_T_TAKE(arena, int64_t, ranks);
}

static void heti_p_held_chains(heti_p_held *h) {
    int64_t i, b, g;
    for (i = 0; i < h->profile->units; i++) h->head[i] = -1;
    for (b = h->profile->blocks; b-- > 0;)
        for (i = h->profile->block[b].first_use; i < h->profile->block[b].first_use + h->profile->block[b].uses; i++) {
            h->block[i] = b;
            h->next[i] = h->head[h->profile->use[i]];
            h->head[h->profile->use[i]] = i;
        }
    for (i = 0; i < h->plan->ranks; i++) h->last[i] = -1;
    for (g = 0; g < h->plan->stages; g++) {
        const int64_t rank = h->plan->stage[g].rank;
        h->before[g] = h->last[rank];
        h->last[rank] = g;
        h->stages[rank]++;
    }
}

/* The chains in a block of their own. */
static het_result heti_p_held_start(heti_p_held *h, const het_profile *profile, const het_plan *plan,
                                    const het_allocator *allocator, void **block, size_t *size, het_error *error) {
    heti_t_arena arena;
    memset(h, 0, sizeof *h);
    h->profile = profile;
    h->plan = plan;
    arena.base = NULL;
    arena.used = 0;
    heti_p_held_cut(h, &arena);
    *size = arena.used;
    HETI_T_TRY(heti_t_block(allocator, *size, "bytes of a plan", block, error));
    arena.base = HETI_T_CAST(char *, *block);
    arena.used = 0;
    heti_p_held_cut(h, &arena);
    heti_p_held_chains(h);
    return HET_OK;
}

/* Whether use number i, of a unit of stage g, is the first by which the rank comes to hold the
   block. */
static int heti_p_first_hold(const heti_p_held *h, int64_t g, int64_t i) {
    const het_block_profile *block = &h->profile->block[h->block[i]];
    int64_t k, s;
    for (k = block->first_use; k < block->first_use + block->uses; k++)
        for (s = g; s >= 0; s = h->before[s]) {
            const het_stage *stage = &h->plan->stage[s];
            if (h->profile->use[k] >= stage->unit_begin && h->profile->use[k] < stage->unit_end && (s != g || k < i))
                return 0;
        }
    return 1;
}

static void heti_p_most(double *most, double value) { if (value > *most) *most = value; }

/* What a rank's stages need at most. Where I and W come apart in some of them, each counts as one
   of both kinds. */
static void heti_p_stage_most(const heti_p_held *h, const het_stage *stage, int split, double rows, double tokens,
                              het_stage_memory *most) {
    const het_stage_memory m = het_profile_stage(h->profile, stage->unit_begin, stage->unit_end, stage->recompute != 0,
                                                 split > 0, h->plan->slices > 1, rows, tokens);
    heti_p_most(&most->slot, m.slot);
    heti_p_most(&most->carry, m.carry);
    heti_p_most(&most->scratch, m.scratch);
    heti_p_most(&most->stream, m.stream);
    heti_p_most(&most->message, m.message);
    if (split == 1) heti_p_stage_most(h, stage, 0, rows, tokens, most);
}

/* Adds up what stages need; state 1: the second time round, when the holders are known. needs NULL:
   nothing is split. */
static void heti_p_held_stages(heti_p_held *h, const het_needs *needs, double rows, double tokens, int state) {
    const het_plan *plan = h->plan;
    int64_t g, u, i;
    for (g = 0; g < plan->stages; g++) {
        const het_stage *stage = &plan->stage[g];
        const int64_t r = stage->rank;
        if (!state) heti_p_stage_most(h, stage, needs != NULL ? needs[r].split : 0, rows, tokens, &h->most[r]);
        for (u = stage->unit_begin; u < stage->unit_end; u++)
            for (i = h->head[u]; i >= 0; i = h->next[i]) {
                const int64_t b = h->block[i];
                const double elements = HETI_T_CAST(double, h->profile->block[b].elements);
                if (!heti_p_first_hold(h, g, i)) continue;
                if (!state) {
                    h->elements[r] += elements;
                    h->share[b] += plan->state_share[r];
                    h->holders[b]++;
                    if (!h->profile->block[b].frozen) h->trained[r] += elements;
                } else if (!h->profile->block[b].frozen)
                    h->state[r] += h->share[b] > 0 ? elements * plan->state_share[r] / h->share[b] :
                    elements / HETI_T_CAST(double, h->holders[b]);
            }
    }
}

static size_t heti_p_bytes(double bytes) { return bytes < 9e18 ? HETI_T_CAST(size_t, bytes + 0.5) : SIZE_MAX; }

/* Rows of the largest slice: cuts move to the next granule. */
static double heti_p_slice_rows(const het_plan *plan, const het_shape *shape) {
    const int64_t granule = shape->granule > 0 ? shape->granule : shape->tokens < 512 ? shape->tokens : 512;
    double total = 0, largest = 0, rows = HETI_T_CAST(double, shape->tokens);
    int64_t k;
    if (plan->slices == 1) return rows;
    for (k = 0; k < plan->slices; k++) {
        total += plan->slice_share[k];
        if (plan->slice_share[k] > largest) largest = plan->slice_share[k];
    }
    largest = HETI_T_CAST(double, HETI_T_CAST(int64_t, rows * (largest / total)) + 2 + granule);
    return largest < rows ? largest : rows;
}

/* Weights and state as files have them: of a model with frozen weights its factors alone. */
static size_t heti_p_saved(const het_profile *p) {
    double all = 0, trained = 0;
    int64_t b;
    for (b = 0; b < p->blocks; b++) {
        all += HETI_T_CAST(double, p->block[b].elements);
        if (!p->block[b].frozen) trained += HETI_T_CAST(double, p->block[b].elements);
    }
    return heti_p_bytes((trained < all ? trained : all) * 4 + trained * p->state_bytes);
}

/* bytes before a message's rows; of a reduction's messages */
enum { HETI_P_ENVELOPE = 64, HETI_P_RING_CHUNK = 131072 * 8 };

static void heti_p_held_memory(const heti_p_held *h, const het_needs *needs, const het_shape *shape,
                               het_memory *memory) {
    const het_profile *p = h->profile;
    int64_t r;
    for (r = 0; r < h->plan->ranks; r++) {
        const het_stage_memory *m = &h->most[r];
        const double slots = HETI_T_CAST(double, needs[r].slots > h->stages[r] ? needs[r].slots : h->stages[r]);
        const double carries = HETI_T_CAST(double, needs[r].carries > h->stages[r] ? needs[r].carries : h->stages[r]);
        const double own = p->token_bytes * HETI_T_CAST(double, shape->tokens) + p->sequence_bytes *
                     HETI_T_CAST(double, shape->sequences);
        const int others = h->plan->ranks > 1;
        const double messages = HETI_T_CAST(double, needs[r].messages + 2 * others) *
                     (m->message + HETI_T_CAST(double, HETI_P_ENVELOPE));
        het_memory *to = &memory[r];
        memset(to, 0, sizeof *to);
        to->weights = heti_p_bytes(h->elements[r] * p->weight_bytes + p->rank_weights);
        to->gradients = heti_p_bytes(h->trained[r] * p->gradient_bytes + p->rank_gradients);
        to->optimizer = heti_p_bytes(h->state[r] * p->state_bytes);
        to->activations = heti_p_bytes(slots * m->slot + carries * (m->carry + own + 128) + 3 * m->stream);
        to->workspace = heti_p_bytes(m->scratch + p->rank_workspace);
        to->communication = heti_p_bytes(messages + (others ? HETI_T_CAST(double, HETI_P_RING_CHUNK) : 0));
        to->host = to->communication;
        to->device = to->weights + to->gradients + to->optimizer + to->activations + to->workspace;
        to->parameters = HETI_T_CAST(int64_t, h->elements[r]);
    }
    memory[0].saving = heti_p_saved(p);
}

HETRAIN_API het_result het_profile_memory(const het_profile *profile, const het_plan *plan, const het_needs *needs,
                                          const het_shape *shape, het_memory *memory, het_error *error) {
    heti_p_held h;
    double rows;
    void *block;
    size_t size;
    if (profile == NULL || plan == NULL || needs == NULL || shape == NULL || memory == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_profile_memory: a pointer is NULL");
    if (plan->units != profile->units)
        return heti_t_fail(error, HET_ERR_INVALID, "het_profile_memory: a plan for %d units, a profile of %d",
                           plan->units, profile->units);
    if (shape->tokens < 1 || shape->sequences < 0 || shape->granule < 0)
        return heti_t_fail(error, HET_ERR_INVALID, "het_profile_memory: %d tokens, %d sequences, granules of %d",
                           shape->tokens, shape->sequences, shape->granule);
    rows = heti_p_slice_rows(plan, shape);
    HETI_T_TRY(heti_p_held_start(&h, profile, plan, &profile->allocator, &block, &size, error));
    heti_p_held_stages(&h, needs, rows, HETI_T_CAST(double, shape->tokens), 0);
    heti_p_held_stages(&h, needs, rows, HETI_T_CAST(double, shape->tokens), 1);
    heti_p_held_memory(&h, needs, shape, memory);
    profile->allocator.free(profile->allocator.user, block, size);
    return HET_OK;
}

/* ---- costs of a plan ---- */

typedef struct heti_p_costing {
    const het_profile *profile;
    const het_plan *plan;
    const het_cluster *cluster;
    het_plan_costs *to;
    het_stage_cost *stage, *alone, *together; /* [stages] */
    het_rank_cost *rank;              /* [ranks] */
    het_block_cost *block;            /* [blocks] */
    int64_t *rank_group;              /* [ranks] */
    int beside;                       /* times measured with all ranks at work are used */
} heti_p_costing;

static void heti_p_costs_cut(heti_p_costing *c, heti_t_arena *arena) {
    c->to = HETI_T_TAKE(arena, het_plan_costs, 1);
    c->stage = HETI_T_TAKE(arena, het_stage_cost, c->plan->stages);
    c->alone = HETI_T_TAKE(arena, het_stage_cost, c->plan->stages);
    c->together = HETI_T_TAKE(arena, het_stage_cost, c->plan->stages);
    c->rank = HETI_T_TAKE(arena, het_rank_cost, c->plan->ranks);
    c->block = HETI_T_TAKE(arena, het_block_cost, c->profile->blocks);
    c->rank_group = HETI_T_TAKE(arena, int64_t, c->plan->ranks);
}

/* Which device of the profile a rank is, and how much slower; -1: the profile has none of that
   name. */
static int64_t heti_p_rank_device(const heti_p_costing *c, int64_t rank, double *slowness) {
    const het_cluster_device *device = c->cluster != NULL ? &c->cluster->device[rank] : NULL;
    int64_t i = 0;
    *slowness = device != NULL && device->speed > 0 ? 1 / device->speed : 1;
    if (device == NULL) return c->profile->devices > 0 ? 0 : -1;
    while (i < c->profile->devices && strcmp(c->profile->device[i].name, device->profile) != 0) i++;
    return i < c->profile->devices ? i : -1;
}

static void heti_p_add_curve(het_curve *to, const het_curve *from, double factor) {
    to->base += from->base * factor;
    to->token += from->token * factor;
    to->pair += from->pair * factor;
}

/* A stage's units, of these times, on a device that is `slowness` times slower than its profile. */
static void heti_p_stage_cost(const heti_p_costing *c, int64_t g, const het_device_profile *device,
                              const het_unit_time *times, double slowness, het_stage_cost *to) {
    const het_profile *profile = c->profile;
    const het_stage *stage = &c->plan->stage[g];
    const het_unit_kind *last = &profile->kind[profile->unit[stage->unit_end - 1]];
    const double in = profile->kind[profile->unit[stage->unit_begin]].input,
                 copies = (in + last->output) * device->message_byte * slowness;
    const het_stage_memory kept = het_profile_stage(profile, stage->unit_begin, stage->unit_end, stage->recompute != 0,
                                                    0, 0, 1, 1);
    int64_t u;
    to->forward.base = to->backward.base = to->input.base = to->weight.base = device->action * slowness;
    to->forward.token = to->backward.token = to->input.token = copies;
    for (u = stage->unit_begin; u < stage->unit_end; u++) {
        const het_unit_time *time = &times[profile->unit[u]];
        const het_unit_kind *kind = &profile->kind[profile->unit[u]];
        heti_p_add_curve(&to->forward, &time->forward, slowness);
        heti_p_add_curve(&to->backward, &time->backward, slowness);
        heti_p_add_curve(&to->input, &time->input, slowness);
        heti_p_add_curve(&to->weight, &time->weight, slowness);
        to->keep_gradient += kind->keep_gradient;
        if (!stage->recompute || kind->loss) continue;
        heti_p_add_curve(&to->backward, &time->recompute, slowness);
        heti_p_add_curve(&to->input, &time->recompute, slowness);
    }
    to->bytes = last->output;
    to->keep_weight = kept.slot + kept.carry;
}

static void heti_p_rank_cost(const heti_p_costing *c, int64_t r, const heti_p_held *held,
                             const het_device_profile *device, double slowness) {
    het_rank_cost *to = &c->rank[r];
    to->begin = (device->action + device->begin_element * held->trained[r]) * slowness;
    to->ring_byte = device->ring_byte * slowness;
    to->verdict = device->verdict_base + device->verdict_element * held->state[r] * slowness;
    to->step_base = device->action * slowness;
    to->step = device->step_element * slowness;
}

static het_result heti_p_fill_costs(heti_p_costing *c, const heti_p_held *held, het_error *error) {
    het_costs *costs = &c->to->costs;
    const het_plan *plan = c->plan;
    double slowness;
    int64_t r, g, b, device;
    for (r = 0; r < plan->ranks; r++) {
        device = heti_p_rank_device(c, r, &slowness);
        if (device < 0)
            return heti_t_fail(error, HET_ERR_INVALID, "het_profile_costs: rank %d needs the "
                                                       "profile of a device \"%s\"; there are %d, none is it", r,
                                                       c->cluster != NULL ? c->cluster->device[r].profile : "",
                                                       c->profile->devices);
        heti_p_rank_cost(c, r, held, &c->profile->device[device], slowness);
        if (c->cluster != NULL) c->rank_group[r] = c->cluster->device[r].group;
    }
    for (g = 0; g < plan->stages; g++) {
        device = heti_p_rank_device(c, plan->stage[g].rank, &slowness);
        heti_p_stage_cost(c, g, &c->profile->device[device], c->profile->device[device].alone, slowness, &c->alone[g]);
        heti_p_stage_cost(c, g, &c->profile->device[device], c->beside ? c->profile->device[device].together :
                          c->profile->device[device].alone, slowness, &c->together[g]);
        c->stage[g] = c->together[g];
    }
    for (b = 0; b < c->profile->blocks; b++) {
        const double elements = c->profile->block[b].frozen ? 0 : HETI_T_CAST(double, c->profile->block[b].elements);
        c->block[b].reduce_bytes = elements * c->profile->reduce_bytes;
        c->block[b].gather_bytes = elements * c->profile->gather_bytes;
        c->block[b].step = elements;
    }
    costs->transfer = HET_TRANSFER_POSTED;
    costs->stage = c->to->stage = c->stage;
    c->to->alone = c->alone;
    c->to->together = c->together;
    costs->rank = c->rank;
    costs->block = c->block;
    costs->blocks = c->profile->blocks;
    if (c->cluster != NULL) {
        costs->group = c->cluster->group;
        costs->groups = c->cluster->groups;
        costs->rank_group = c->rank_group;
    } else if (c->profile->links > 0) {
        costs->every_link.latency = c->profile->link[0].latency;
        costs->every_link.bandwidth = c->profile->link[0].bandwidth;
    }
    return HET_OK;
}

HETRAIN_API het_result het_profile_costs(const het_profile *profile, const het_plan *plan, const het_cluster *cluster,
                                         het_choice together, const het_allocator *allocator, het_plan_costs **costs,
                                                    het_error *error) {
    heti_p_costing c;
    heti_p_held held;
    heti_t_arena arena;
    het_allocator own;
    het_result result;
    void *block, *scratch;
    size_t size;
    if (costs == NULL) return heti_t_fail(error, HET_ERR_INVALID, "het_profile_costs: costs is NULL");
    *costs = NULL;
    if (profile == NULL || plan == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_profile_costs: %s is NULL", profile == NULL ? "profile" :
                           "plan");
    if (plan->units != profile->units)
        return heti_t_fail(error, HET_ERR_INVALID, "het_profile_costs: a plan for %d units, a profile of %d",
                           plan->units, profile->units);
    if (cluster != NULL && cluster->ranks != plan->ranks)
        return heti_t_fail(error, HET_ERR_INVALID, "het_profile_costs: a plan for %d ranks, a cluster of %d",
                           plan->ranks, cluster->ranks);
    if (!heti_t_allocator(allocator, &own))
        return heti_t_fail(error, HET_ERR_INVALID, "het_profile_costs: an allocator needs both alloc and free");
    memset(&c, 0, sizeof c);
    c.profile = profile;
    c.plan = plan;
    c.cluster = cluster;
    c.beside = together != HET_NO;
    HETI_T_TRY(heti_p_held_start(&held, profile, plan, &own, &scratch, &size, error));
    heti_p_held_stages(&held, NULL, 1, 1, 0);
    heti_p_held_stages(&held, NULL, 1, 1, 1);
    arena.base = NULL;
    arena.used = 0;
    heti_p_costs_cut(&c, &arena);
    result = heti_t_block(&own, arena.used, "het_profile_costs", &block, error);
    if (result == HET_OK) {
        const size_t used = arena.used;
        arena.base = HETI_T_CAST(char *, block);
        arena.used = 0;
        heti_p_costs_cut(&c, &arena);
        c.to->allocator = own;
        c.to->size = used;
        result = heti_p_fill_costs(&c, &held, error);
        if (result == HET_OK) *costs = c.to;
        else own.free(own.user, block, used);
    }
    own.free(own.user, scratch, size);
    return result;
}

HETRAIN_API void het_plan_costs_free(het_plan_costs *costs) {
    het_allocator allocator;
    if (costs == NULL) return;
    allocator = costs->allocator;
    allocator.free(allocator.user, costs, costs->size);
}

static het_curve heti_p_between(const het_curve *from, const het_curve *to, double part) {
    het_curve curve;
    memset(&curve, 0, sizeof curve);
    heti_p_add_curve(&curve, from, 1 - part);
    heti_p_add_curve(&curve, to, part);
    return curve;
}

/* Stages whose device shares its machine with ranks that are at work `beside` of the time. Returns
   whether that differs from all of the time. */
static int heti_p_costs_beside(const het_plan *plan, het_plan_costs *costs, double beside) {
    int64_t g;
    int differs = 0;
    for (g = 0; g < plan->stages; g++) {
        const het_stage_cost *alone = &costs->alone[g], *together = &costs->together[g];
        if (memcmp(alone, together, sizeof *alone) == 0) continue;
        costs->stage[g].forward = heti_p_between(&alone->forward, &together->forward, beside);
        costs->stage[g].backward = heti_p_between(&alone->backward, &together->backward, beside);
        costs->stage[g].input = heti_p_between(&alone->input, &together->input, beside);
        costs->stage[g].weight = heti_p_between(&alone->weight, &together->weight, beside);
        differs = 1;
    }
    return differs && beside < 1;
}

HETRAIN_API het_result het_simulate_costs(const het_plan *plan, const het_schedule *schedule, het_plan_costs *costs,
                                          het_choice timeline, const het_allocator *allocator,
                                                     het_simulation **simulation, het_error *error) {
    double beside;
    if (simulation == NULL) return heti_t_fail(error, HET_ERR_INVALID, "het_simulate_costs: simulation is NULL");
    *simulation = NULL;
    if (plan == NULL || costs == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_simulate_costs: %s is NULL", plan == NULL ? "plan" : "costs");
    (void)heti_p_costs_beside(plan, costs, 1);
    HETI_T_TRY(het_simulate(plan, schedule, &costs->costs, timeline, allocator, simulation, error));
    beside = 1 - (*simulation)->bubble;
    if (!heti_p_costs_beside(plan, costs, beside)) return HET_OK;
    het_simulation_free(*simulation);
    *simulation = NULL;
    return het_simulate(plan, schedule, &costs->costs, timeline, allocator, simulation, error);
}

/* ---- files ----
   {"hetrain_profile": 1, "model": "...", "dtype": "f32", "reduce": "exact", "granule": 512,
    "bytes": {"weight": 4, "gradient": 8, ...}, the fields of het_profile by these names
    "kinds": [{"name": "embed", "output": 1024, ...}, ...], the fields of het_unit_kind
    "units": ["embed", "attention", ...],
    "blocks": [{"elements": 65536, "units": [0, 25], "frozen": false}, ...],
    "devices": [{"name": "cpu:1", "alone": {"embed": {"forward": [base, token, pair], ...}, ...},
    "together": {...}, "step_element": ..., ...}], "links": [{"name": "threads", "latency": 2e-5,
    "bandwidth": 1e10}]}
   Fields that are 0 may be left out, but "kinds", "units" and names must be there. A device without
   "together" has the times of "alone". */

/* Names of fields that are numbers, and where they are. */
typedef struct heti_p_field { const char *name; size_t at; } heti_p_field;

static const heti_p_field *heti_p_byte_fields(int *count) {
    static const heti_p_field heti_p_fields[] = {
        { "weight", offsetof(het_profile, weight_bytes) }, { "gradient", offsetof(het_profile, gradient_bytes) },
        { "state", offsetof(het_profile, state_bytes) }, { "reduce", offsetof(het_profile, reduce_bytes) },
        { "gather", offsetof(het_profile, gather_bytes) }, { "rank_weights", offsetof(het_profile, rank_weights) },
        { "rank_gradients", offsetof(het_profile, rank_gradients) },
        { "rank_workspace", offsetof(het_profile, rank_workspace) },
        { "token", offsetof(het_profile, token_bytes) }, { "sequence", offsetof(het_profile, sequence_bytes) } };
    *count = HETI_T_CAST(int, sizeof heti_p_fields / sizeof *heti_p_fields);
    return heti_p_fields;
}

static const heti_p_field *heti_p_kind_fields(int *count) {
    static const heti_p_field heti_p_fields[] = {
        { "input", offsetof(het_unit_kind, input) }, { "output", offsetof(het_unit_kind, output) },
            { "call", offsetof(het_unit_kind, call) },
        { "keep_input", offsetof(het_unit_kind, keep_input) }, { "keep_weight", offsetof(het_unit_kind, keep_weight) },
        { "keep_gradient", offsetof(het_unit_kind, keep_gradient) }, { "carry", offsetof(het_unit_kind, carry) },
        { "carry_gradient", offsetof(het_unit_kind, carry_gradient) },
        { "workspace", offsetof(het_unit_kind, workspace) },
        { "workspace_base", offsetof(het_unit_kind, workspace_base) } };
    *count = HETI_T_CAST(int, sizeof heti_p_fields / sizeof *heti_p_fields);
    return heti_p_fields;
}

static const heti_p_field *heti_p_device_fields(int *count) {
    static const heti_p_field heti_p_fields[] = {
        { "step_element", offsetof(het_device_profile, step_element) },
            { "begin_element", offsetof(het_device_profile, begin_element) },
        { "verdict_base", offsetof(het_device_profile, verdict_base) },
        { "verdict_element", offsetof(het_device_profile, verdict_element) },
        { "message_byte", offsetof(het_device_profile, message_byte) },
        { "ring_byte", offsetof(het_device_profile, ring_byte) },
        { "action", offsetof(het_device_profile, action) } };
    *count = HETI_T_CAST(int, sizeof heti_p_fields / sizeof *heti_p_fields);
    return heti_p_fields;
}

static const heti_p_field *heti_p_link_fields(int *count) {
    static const heti_p_field heti_p_fields[] = {
        { "latency", offsetof(het_link_profile, latency) }, { "bandwidth", offsetof(het_link_profile, bandwidth) } };
    *count = 2;
    return heti_p_fields;
}

static const heti_p_field *heti_p_time_fields(int *count) {
    static const heti_p_field heti_p_fields[] = {
        { "forward", offsetof(het_unit_time, forward) }, { "backward", offsetof(het_unit_time, backward) },
        { "input", offsetof(het_unit_time, input) }, { "weight", offsetof(het_unit_time, weight) },
        { "recompute", offsetof(het_unit_time, recompute) } };
    *count = 5;
    return heti_p_fields;
}

static double heti_p_field_get(const void *base, const heti_p_field *field) {
    double value;
    memcpy(&value, HETI_T_CAST(const char *, base) + field->at, sizeof value);
    return value;
}

/* Numbers as fields of the object that is open; those that are 0 are left out. */
static void heti_p_out_fields(heti_t_text *out, const void *base, const heti_p_field *field, int count) {
    int i;
    for (i = 0; i < count; i++) {
        const double value = heti_p_field_get(base, &field[i]);
        if (!(value < 0) && !(value > 0)) continue;
        heti_t_format(out, ", \"%s\": ", field[i].name);
        heti_t_real(out, value);
    }
}

static void heti_p_out_curves(heti_t_text *out, const het_profile *profile, const het_unit_time *time,
                              const char *name) {
    int64_t k;
    int f, fields;
    const heti_p_field *field = heti_p_time_fields(&fields);
    heti_t_format(out, ",\n   \"%s\": {", name);
    for (k = 0; k < profile->kinds; k++) {
        int written = 0;
        heti_t_put(out, k > 0 ? ",\n    " : "\n    ");
        heti_t_json(out, profile->kind[k].name, strlen(profile->kind[k].name));
        heti_t_put(out, ": {");
        for (f = 0; f < fields; f++) {
            het_curve curve;
            memcpy(&curve, HETI_T_CAST(const char *, HETI_T_CAST(const void *, &time[k])) + field[f].at, sizeof curve);
            if (!(curve.base > 0) && !(curve.token > 0) && !(curve.pair > 0)) continue;
            heti_t_format(out, "%s\"%s\": [", written++ > 0 ? ", " : "", field[f].name);
            heti_t_real(out, curve.base);
            heti_t_put(out, ", ");
            heti_t_real(out, curve.token);
            heti_t_put(out, ", ");
            heti_t_real(out, curve.pair);
            heti_t_char(out, ']');
        }
        heti_t_char(out, '}');
    }
    heti_t_char(out, '}');
}

static void heti_p_out_chain(heti_t_text *out, const het_profile *profile) {
    int64_t i, k;
    heti_t_put(out, ",\n \"units\": [");
    for (i = 0; i < profile->units; i++) {
        heti_t_put(out, i == 0 ? "" : i % 12 == 0 ? ",\n  " : ", ");
        heti_t_json(out, profile->kind[profile->unit[i]].name, strlen(profile->kind[profile->unit[i]].name));
    }
    heti_t_put(out, "],\n \"blocks\": [");
    for (i = 0; i < profile->blocks; i++) {
        const het_block_profile *block = &profile->block[i];
        heti_t_format(out, "%s{\"elements\": %d, \"units\": [", i > 0 ? ",\n  " : "\n  ", block->elements);
        for (k = 0; k < block->uses; k++)
            heti_t_format(out, "%s%d", k > 0 ? ", " : "", profile->use[block->first_use + k]);
        heti_t_put(out, block->frozen ? "], \"frozen\": true}" : "]}");
    }
    heti_t_char(out, ']');
}

static const char *heti_p_dtype_name(het_dtype dtype) { return dtype == HET_BF16 ? "bf16" : "f32"; }
static const char *heti_p_reduce_name(het_reduce reduce) { return reduce == HET_REDUCE_FAST ? "fast" : "exact"; }

HETRAIN_API het_result het_profile_write(const het_profile *profile, const het_writer *to) {
    char room[4096];
    heti_t_text out;
    const heti_p_field *field;
    int64_t i;
    int fields;
    if (profile == NULL || to == NULL || to->write == NULL) return HET_ERR_INVALID;
    out = heti_t_text_to(to, room, sizeof room);
    heti_t_put(&out, "{\"hetrain_profile\": 1, \"model\": ");
    heti_t_json(&out, profile->model, strlen(profile->model));
    heti_t_format(&out, ", \"dtype\": \"%s\", \"reduce\": \"%s\"", heti_p_dtype_name(profile->dtype),
                      heti_p_reduce_name(profile->reduce));
    if (profile->granule > 0) heti_t_format(&out, ", \"granule\": %d", profile->granule);
    heti_t_put(&out, ",\n \"bytes\": {\"weight\": ");
    heti_t_real(&out, profile->weight_bytes);
    field = heti_p_byte_fields(&fields);
    heti_p_out_fields(&out, profile, field + 1, fields - 1);
    heti_t_put(&out, "},\n \"kinds\": [");
    field = heti_p_kind_fields(&fields);
    for (i = 0; i < profile->kinds; i++) {
        heti_t_put(&out, i > 0 ? ",\n  {\"name\": " : "\n  {\"name\": ");
        heti_t_json(&out, profile->kind[i].name, strlen(profile->kind[i].name));
        heti_p_out_fields(&out, &profile->kind[i], field, fields);
        heti_t_put(&out, profile->kind[i].loss ? ", \"loss\": true}" : "}");
    }
    heti_t_char(&out, ']');
    heti_p_out_chain(&out, profile);
    heti_t_put(&out, ",\n \"devices\": [");
    field = heti_p_device_fields(&fields);
    for (i = 0; i < profile->devices; i++) {
        heti_t_put(&out, i > 0 ? ",\n  {\"name\": " : "\n  {\"name\": ");
        heti_t_json(&out, profile->device[i].name, strlen(profile->device[i].name));
        heti_p_out_fields(&out, &profile->device[i], field, fields);
        heti_p_out_curves(&out, profile, profile->device[i].alone, "alone");
        heti_p_out_curves(&out, profile, profile->device[i].together, "together");
        heti_t_char(&out, '}');
    }
    heti_t_put(&out, "],\n \"links\": [");
    field = heti_p_link_fields(&fields);
    for (i = 0; i < profile->links; i++) {
        heti_t_put(&out, i > 0 ? ",\n  {\"name\": " : "\n  {\"name\": ");
        heti_t_json(&out, profile->link[i].name, strlen(profile->link[i].name));
        heti_p_out_fields(&out, &profile->link[i], field, fields);
        heti_t_char(&out, '}');
    }
    heti_t_put(&out, "]}\n");
    return heti_t_end(&out);
}

/* Three passes over the text: to count, to find the names of kinds, to fill in what names them. */
typedef struct heti_p_profile_reader {
    het_json json;
    het_error *error;
    het_profile count;                /* of this pass, and the fields that are no arrays */
    het_profile *to;                  /* NULL: only counts */
    int last;                         /* names can be looked up */
} heti_p_profile_reader;

/* Text from a file inside a message. */
static const char *heti_p_shown(char shown[49], const char *text) {
    size_t i;
    for (i = 0; i < 48 && text[i] != 0; i++) shown[i] = text[i] >= 32 && text[i] < 127 ? text[i] : '?';
    shown[i] = 0;
    return shown;
}

static het_result heti_p_bad(const heti_p_profile_reader *r, const char *key, const char *rule) {
    char shown[49];
    if (r->json.rule != NULL)
        return heti_t_fail(r->error, HET_ERR_FORMAT, "het_profile_read: byte %d, at \"%s\": %s",
                           HETI_T_CAST(int64_t, r->json.rule_at), heti_p_shown(shown, key), r->json.rule);
    return heti_t_fail(r->error, HET_ERR_FORMAT, "het_profile_read: byte %d: \"%s\": %s",
                       HETI_T_CAST(int64_t, r->json.at), heti_p_shown(shown, key), rule);
}

/* Goes on to the next key of an object, which must not have come before; 0 at the end or where
   something is wrong. */
static int heti_p_next_key(heti_p_profile_reader *r, char key[64], uint32_t *seen, const char *const *names, int count,
                           int *which) {
    size_t length = 0;
    if (!het_json_next(&r->json, key, 64, &length)) return 0;
    for (*which = 0; *which < count && (length >= 64 || strcmp(key, names[*which]) != 0); ++*which) {}
    if (*which < count && (*seen >> *which & 1u) != 0) return het_json_fail(&r->json, "this key comes twice");
    if (*which < count) *seen |= UINT32_C(1) << *which;
    return 1;
}

static het_result heti_p_read_name(heti_p_profile_reader *r, const char *key, char *to, size_t capacity) {
    size_t length = 0;
    if (!het_json_string(&r->json, to, capacity, &length)) return heti_p_bad(r, key, "");
    if (length >= capacity || length == 0 || strlen(to) != length)
        return heti_t_fail(r->error, HET_ERR_FORMAT, "het_profile_read: byte %d: \"%s\" has %d bytes; a name has 1 "
                                                     "to %d and no 0", HETI_T_CAST(int64_t, r->json.at), key,
                                                     HETI_T_CAST(int64_t, length), HETI_T_CAST(int64_t, capacity) - 1);
    return HET_OK;
}

static het_result heti_p_read_real(heti_p_profile_reader *r, const char *key, double *value) {
    char room[41];
    heti_t_text text = heti_t_text_in(room, sizeof room);
    char shown[49];
    const size_t at = r->json.at;
    if (!het_json_real(&r->json, value)) return heti_p_bad(r, key, "");
    if (*value >= 0 && *value <= 1e30) return HET_OK;
    heti_t_real(&text, *value);
    return heti_t_fail(r->error, HET_ERR_FORMAT, "het_profile_read: byte %d: \"%s\" is %s, not from 0 to 1e30",
                       HETI_T_CAST(int64_t, at), heti_p_shown(shown, key), room);
}

/* A number field; 1: there is such a field. */
static het_result heti_p_read_field(heti_p_profile_reader *r, const char *key, void *base, const heti_p_field *field,
                                    int fields, uint32_t *seen, int *found) {
    double value;
    int i;
    for (i = 0; i < fields && strcmp(key, field[i].name) != 0; i++) {}
    *found = i < fields;
    if (!*found) return HET_OK;
    if ((*seen >> i & 1u) != 0) return heti_p_bad(r, key, "this key comes twice");
    *seen |= UINT32_C(1) << i;
    HETI_T_TRY(heti_p_read_real(r, key, &value));
    if (base != NULL) memcpy(HETI_T_CAST(char *, base) + field[i].at, &value, sizeof value);
    return HET_OK;
}

static het_result heti_p_find_kind(heti_p_profile_reader *r, const char *name, int64_t *kind) {
    char shown[49];
    *kind = 0;
    if (!r->last) return HET_OK;
    while (*kind < r->to->kinds && strcmp(r->to->kind[*kind].name, name) != 0) ++*kind;
    if (*kind < r->to->kinds) return HET_OK;
    return heti_t_fail(r->error, HET_ERR_FORMAT, "het_profile_read: byte %d: \"%s\" is none of the %d kinds",
                       HETI_T_CAST(int64_t, r->json.at), heti_p_shown(shown, name), r->to->kinds);
}

static het_result heti_p_read_bytes(heti_p_profile_reader *r) {
    char key[64] = "";
    uint32_t none = 0, seen = 0;
    int which, found, fields;
    const heti_p_field *field = heti_p_byte_fields(&fields);
    het_json_enter(&r->json, HET_JSON_OBJECT);
    while (heti_p_next_key(r, key, &none, NULL, 0, &which)) {
        HETI_T_TRY(heti_p_read_field(r, key, &r->count, field, fields, &seen, &found));
        if (!found) return heti_p_bad(r, key, "no such key in \"bytes\"");
    }
    return r->json.rule == NULL ? HET_OK : heti_p_bad(r, key[0] != 0 ? key : "bytes", "");
}

/* "kinds" and "links": objects with a name and numbers. */
static het_result heti_p_read_named(heti_p_profile_reader *r, const char *what, void *base, char *name, size_t capacity,
                                    const heti_p_field *field, int fields, int32_t *loss) {
    static const char *const heti_p_keys[] = { "name", "loss" };
    char key[64] = "";
    uint32_t seen = 0, numbers = 0;
    int which, found, truth;
    het_json_enter(&r->json, HET_JSON_OBJECT);
    while (heti_p_next_key(r, key, &seen, heti_p_keys, loss != NULL ? 2 : 1, &which)) {
        if (which == 0) HETI_T_TRY(heti_p_read_name(r, key, name, capacity));
        else if (loss != NULL && which == 1) {
            het_json_boolean(&r->json, &truth);
            *loss = truth;
        } else {
            HETI_T_TRY(heti_p_read_field(r, key, base, field, fields, &numbers, &found));
            if (!found) return heti_p_bad(r, key, "no such key");
        }
    }
    if (r->json.rule != NULL) return heti_p_bad(r, key[0] != 0 ? key : what, "");
    return (seen & 1u) != 0 ? HET_OK : heti_p_bad(r, what, "without a name");
}

static het_result heti_p_read_kinds(heti_p_profile_reader *r) {
    het_unit_kind spare;
    int64_t k;
    int fields;
    const heti_p_field *field = heti_p_kind_fields(&fields);
    het_json_enter(&r->json, HET_JSON_ARRAY);
    for (; het_json_next(&r->json, NULL, 0, NULL); r->count.kinds++) {
        het_unit_kind *kind = r->to != NULL ? &r->to->kind[r->count.kinds] : &spare;
        memset(kind, 0, sizeof *kind);
        HETI_T_TRY(heti_p_read_named(r, "kinds", kind, kind->name, sizeof kind->name, field, fields, &kind->loss));
        for (k = 0; r->to != NULL && k < r->count.kinds; k++)
            if (strcmp(r->to->kind[k].name, kind->name) == 0)
                return heti_p_bad(r, kind->name, "a kind of this name comes twice");
        if (r->count.kinds >= HETI_P_MOST_KINDS) return heti_p_bad(r, "kinds", "more than 256");
    }
    return r->json.rule == NULL ? HET_OK : heti_p_bad(r, "kinds", "");
}

static het_result heti_p_read_units(heti_p_profile_reader *r) {
    char name[48];
    int64_t kind;
    het_json_enter(&r->json, HET_JSON_ARRAY);
    for (; het_json_next(&r->json, NULL, 0, NULL); r->count.units++) {
        HETI_T_TRY(heti_p_read_name(r, "units", name, sizeof name));
        HETI_T_TRY(heti_p_find_kind(r, name, &kind));
        if (r->count.units >= HETI_P_MOST_UNITS) return heti_p_bad(r, "units", "more than 1048576");
        if (r->to != NULL) r->to->unit[r->count.units] = HETI_T_CAST(int32_t, kind);
    }
    return r->json.rule == NULL ? HET_OK : heti_p_bad(r, "units", "");
}

static het_result heti_p_read_integer(heti_p_profile_reader *r, const char *key, int64_t least, int64_t most,
                                      int64_t *value) {
    const size_t at = r->json.at;
    if (!het_json_integer(&r->json, value)) return heti_p_bad(r, key, "");
    if (*value >= least && *value <= most) return HET_OK;
    return heti_t_fail(r->error, HET_ERR_FORMAT, "het_profile_read: byte %d: \"%s\" is %d, not from %d to %d",
                       HETI_T_CAST(int64_t, at), key, *value, least, most);
}

/* "units" of a block: which, ascending. */
static het_result heti_p_read_uses(heti_p_profile_reader *r, het_block_profile *block) {
    const int64_t units = r->last ? r->to->units : HETI_T_CAST(int64_t, HETI_P_MOST_UNITS);
    int64_t unit, before = -1;
    het_json_enter(&r->json, HET_JSON_ARRAY);
    for (; het_json_next(&r->json, NULL, 0, NULL); r->count.uses++) {
        HETI_T_TRY(heti_p_read_integer(r, "units", 0, units - 1, &unit));
        if (unit <= before) return heti_p_bad(r, "units", "the units of a block must rise");
        if (r->to != NULL) r->to->use[r->count.uses] = unit;
        before = unit;
        block->uses++;
    }
    if (r->json.rule != NULL) return heti_p_bad(r, "units", "");
    return block->uses > 0 ? HET_OK : heti_p_bad(r, "units", "a block without units");
}

static het_result heti_p_read_blocks(heti_p_profile_reader *r) {
    static const char *const heti_p_keys[] = { "elements", "units", "frozen" };
    het_json_enter(&r->json, HET_JSON_ARRAY);
    for (; het_json_next(&r->json, NULL, 0, NULL); r->count.blocks++) {
        het_block_profile block;
        char key[64] = "";
        uint32_t seen = 0;
        int which, truth;
        memset(&block, 0, sizeof block);
        block.first_use = r->count.uses;
        het_json_enter(&r->json, HET_JSON_OBJECT);
        while (heti_p_next_key(r, key, &seen, heti_p_keys, 3, &which)) {
            if (which == 0) HETI_T_TRY(heti_p_read_integer(r, key, 1, INT64_C(1) << 56, &block.elements));
            else if (which == 1) HETI_T_TRY(heti_p_read_uses(r, &block));
            else if (which == 2) {
                het_json_boolean(&r->json, &truth);
                block.frozen = truth;
            } else return heti_p_bad(r, key, "no such key in a block");
        }
        if (r->json.rule != NULL) return heti_p_bad(r, key[0] != 0 ? key : "blocks", "");
        if ((seen & 3u) != 3u) return heti_p_bad(r, "blocks", "a block needs elements and units");
        if (r->to != NULL) r->to->block[r->count.blocks] = block;
    }
    return r->json.rule == NULL ? HET_OK : heti_p_bad(r, "blocks", "");
}

static het_result heti_p_read_curve(heti_p_profile_reader *r, const char *key, het_curve *curve) {
    double value[3] = { 0, 0, 0 };
    int n = 0;
    het_json_enter(&r->json, HET_JSON_ARRAY);
    while (het_json_next(&r->json, NULL, 0, NULL)) {
        if (n == 3) return heti_p_bad(r, key, "more than [base, token, pair]");
        HETI_T_TRY(heti_p_read_real(r, key, &value[n++]));
    }
    if (r->json.rule != NULL) return heti_p_bad(r, key, "");
    if (n != 3) return heti_p_bad(r, key, "fewer than [base, token, pair]");
    curve->base = value[0];
    curve->token = value[1];
    curve->pair = value[2];
    return HET_OK;
}

/* {"kind": {"forward": [..], ...}, ...}; every kind must be there. */
static het_result heti_p_read_times(heti_p_profile_reader *r, const char *what, het_unit_time *to) {
    static const char *const heti_p_keys[] = { "forward", "backward", "input", "weight", "recompute" };
    char name[64] = "", key[64] = "";
    uint32_t none = 0;
    int64_t kind, kinds = 0;
    int which, fields;
    const heti_p_field *field = heti_p_time_fields(&fields);
    het_json_enter(&r->json, HET_JSON_OBJECT);
    for (; heti_p_next_key(r, name, &none, NULL, 0, &which); kinds++) {
        het_unit_time time;
        het_curve curve;
        uint32_t seen = 0;
        memset(&time, 0, sizeof time);
        HETI_T_TRY(heti_p_find_kind(r, name, &kind));
        het_json_enter(&r->json, HET_JSON_OBJECT);
        while (heti_p_next_key(r, key, &seen, heti_p_keys, 5, &which)) {
            if (which == 5) return heti_p_bad(r, key, "not forward, backward, input, weight or recompute");
            HETI_T_TRY(heti_p_read_curve(r, key, &curve));
            memcpy(HETI_T_CAST(char *, HETI_T_CAST(void *, &time)) + field[which].at, &curve, sizeof curve);
        }
        if (r->json.rule != NULL) return heti_p_bad(r, key[0] != 0 ? key : name, "");
        if (to != NULL) to[kind] = time;
    }
    if (r->json.rule != NULL) return heti_p_bad(r, name[0] != 0 ? name : what, "");
    return !r->last || kinds == r->to->kinds ? HET_OK : heti_p_bad(r, what,
                                                                   "times of every kind are needed, each once");
}

static het_result heti_p_read_device(heti_p_profile_reader *r) {
    static const char *const heti_p_keys[] = { "name", "alone", "together" };
    het_device_profile spare, *device = r->to != NULL ? &r->to->device[r->count.devices] : &spare;
    char key[64] = "";
    uint32_t seen = 0, numbers = 0;
    int64_t i;
    int which, found, fields;
    const heti_p_field *field = heti_p_device_fields(&fields);
    if (r->to == NULL) memset(&spare, 0, sizeof spare);
    het_json_enter(&r->json, HET_JSON_OBJECT);
    while (heti_p_next_key(r, key, &seen, heti_p_keys, 3, &which)) {
        if (which == 0) HETI_T_TRY(heti_p_read_name(r, key, device->name, sizeof device->name));
        else if (which < 3) HETI_T_TRY(heti_p_read_times(r, key, which == 1 ? device->alone : device->together));
        else {
            HETI_T_TRY(heti_p_read_field(r, key, device, field, fields, &numbers, &found));
            if (!found) return heti_p_bad(r, key, "no such key of a device");
        }
    }
    if (r->json.rule != NULL) return heti_p_bad(r, key[0] != 0 ? key : "devices", "");
    if ((seen & 3u) != 3u) return heti_p_bad(r, "devices", "a device needs a name and \"alone\"");
    if (r->to == NULL) return HET_OK;
    for (i = 0; i < r->count.devices; i++)
        if (strcmp(r->to->device[i].name, device->name) == 0)
            return heti_p_bad(r, device->name, "a device of this name comes twice");
    if ((seen & 4u) == 0)
        memcpy(device->together, device->alone, HETI_T_CAST(size_t, r->to->kinds) * sizeof *device->alone);
    return HET_OK;
}

static het_result heti_p_read_devices(heti_p_profile_reader *r) {
    het_json_enter(&r->json, HET_JSON_ARRAY);
    for (; het_json_next(&r->json, NULL, 0, NULL); r->count.devices++) HETI_T_TRY(heti_p_read_device(r));
    return r->json.rule == NULL ? HET_OK : heti_p_bad(r, "devices", "");
}

static het_result heti_p_read_links(heti_p_profile_reader *r) {
    het_link_profile spare;
    int fields;
    const heti_p_field *field = heti_p_link_fields(&fields);
    het_json_enter(&r->json, HET_JSON_ARRAY);
    for (; het_json_next(&r->json, NULL, 0, NULL); r->count.links++) {
        het_link_profile *link = r->to != NULL ? &r->to->link[r->count.links] : &spare;
        memset(link, 0, sizeof *link);
        HETI_T_TRY(heti_p_read_named(r, "links", link, link->name, sizeof link->name, field, fields, NULL));
    }
    return r->json.rule == NULL ? HET_OK : heti_p_bad(r, "links", "");
}

/* One of two words. */
static het_result heti_p_read_word(heti_p_profile_reader *r, const char *key, const char *first, const char *second,
                                   int *which) {
    char word[48], shown[49];
    HETI_T_TRY(heti_p_read_name(r, key, word, sizeof word));
    *which = strcmp(word, first) == 0 ? 1 : strcmp(word, second) == 0 ? 2 : 0;
    if (*which > 0) return HET_OK;
    return heti_t_fail(r->error, HET_ERR_FORMAT, "het_profile_read: byte %d: \"%s\" is \"%s\", not \"%s\" or \"%s\"",
        HETI_T_CAST(int64_t, r->json.at), key, heti_p_shown(shown, word), first, second);
}

static het_result heti_p_read_pass(heti_p_profile_reader *r, const char *text, size_t length) {
    static const char *const heti_p_keys[] = { "hetrain_profile", "kinds", "units", "model", "dtype", "reduce", "bytes",
                                              "blocks", "devices",
        "links", "granule" };
    char key[64] = "";
    uint32_t seen = 0;
    int64_t version;
    size_t size;
    int which, word;
    r->json = het_json_start(text, length);
    het_json_enter(&r->json, HET_JSON_OBJECT);
    while (heti_p_next_key(r, key, &seen, heti_p_keys, 11, &which)) {
        switch (which) {
        case 0: HETI_T_TRY(heti_p_read_integer(r, key, 1, 1, &version)); break;
        case 1: HETI_T_TRY(heti_p_read_kinds(r)); break;
        case 2: HETI_T_TRY(heti_p_read_units(r)); break;
        case 3:
            if (!het_json_string(&r->json, r->count.model, sizeof r->count.model, &size)) break;
            if (size >= sizeof r->count.model || strlen(r->count.model) != size)
                return heti_p_bad(r, key, "longer than 127 bytes, or with a 0");
            break;
        case 4:
            HETI_T_TRY(heti_p_read_word(r, key, "f32", "bf16", &word));
            r->count.dtype = word == 1 ? HET_F32 : HET_BF16;
            break;
        case 5:
            HETI_T_TRY(heti_p_read_word(r, key, "exact", "fast", &word));
            r->count.reduce = word == 1 ? HET_REDUCE_EXACT : HET_REDUCE_FAST;
            break;
        case 6: HETI_T_TRY(heti_p_read_bytes(r)); break;
        case 7: HETI_T_TRY(heti_p_read_blocks(r)); break;
        case 8: HETI_T_TRY(heti_p_read_devices(r)); break;
        case 9: HETI_T_TRY(heti_p_read_links(r)); break;
        case 10: HETI_T_TRY(heti_p_read_integer(r, key, 1, INT64_C(1) << 31, &r->count.granule)); break;
        default: return heti_p_bad(r, key, "no such key of a profile");
        }
    }
    het_json_end(&r->json);
    if (r->json.rule != NULL) return heti_p_bad(r, key, "");
    if ((seen & 7u) != 7u)
        return heti_p_bad(r, heti_p_keys[(seen & 1u) == 0 ? 0 : (seen & 2u) == 0 ? 1 : 2], "is missing");
    return HET_OK;
}

static het_result heti_p_read_all(heti_p_profile_reader *r, const char *text, size_t length,
                                  const het_allocator *allocator, het_profile **profile) {
    int pass;
    for (pass = 0; pass < 3; pass++) {
        memset(&r->count, 0, sizeof r->count);
        r->count.dtype = HET_F32;
        r->count.reduce = HET_REDUCE_EXACT;
        r->to = *profile;
        r->last = pass == 2;
        HETI_T_TRY(heti_p_read_pass(r, text, length));
        if (pass > 0) continue;
        if (r->count.units < 1 || r->count.kinds < 1)
            return heti_p_bad(r, r->count.kinds < 1 ? "kinds" : "units", "there are none");
        HETI_T_TRY(heti_p_profile_new(&r->count, allocator, "het_profile_read", profile, r->error));
    }
    return HET_OK;
}

HETRAIN_API het_result het_profile_read(const char *text, size_t length, const het_allocator *allocator,
                                        het_profile **profile, het_error *error) {
    heti_p_profile_reader r;
    het_allocator own;
    het_result result;
    if (profile == NULL || text == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_profile_read: %s is NULL", profile == NULL ? "profile" :
                           "text");
    *profile = NULL;
    if (!heti_t_allocator(allocator, &own))
        return heti_t_fail(error, HET_ERR_INVALID, "het_profile_read: an allocator needs both alloc and free");
    memset(&r, 0, sizeof r);
    r.error = error;
    result = heti_p_read_all(&r, text, length, &own, profile);
    if (result == HET_OK) return HET_OK;
    het_profile_free(*profile);
    *profile = NULL;
    return result;
}

/* ---- merging ---- */

static int heti_p_same_bytes(const void *a, const void *b, const heti_p_field *field, int fields, const char **name) {
    int i;
    for (i = 0; i < fields; i++) {
        const double x = heti_p_field_get(a, &field[i]), y = heti_p_field_get(b, &field[i]);
        *name = field[i].name;
        if (x < y || x > y) return 0;
    }
    return 1;
}

/* Both must be of one model and the same options: times of another mean nothing here. */
static het_result heti_p_merge_check(const het_profile *a, const het_profile *b, het_error *error) {
    const char *name = "";
    const heti_p_field *field;
    int fields;
    int64_t i;
    if (strcmp(a->model, b->model) != 0)
        return heti_t_fail(error, HET_ERR_INVALID, "het_profile_merge: one is of model \"%s\", the other of \"%s\"",
                           a->model, b->model);
    if (a->dtype != b->dtype)
        return heti_t_fail(error, HET_ERR_INVALID, "het_profile_merge: one has dtype %s, the other %s",
                           heti_p_dtype_name(a->dtype), heti_p_dtype_name(b->dtype));
    if (a->reduce != b->reduce)
        return heti_t_fail(error, HET_ERR_INVALID, "het_profile_merge: one has reduce %s, the other %s",
                           heti_p_reduce_name(a->reduce), heti_p_reduce_name(b->reduce));
    if (a->granule != b->granule && a->granule > 0 && b->granule > 0)
        return heti_t_fail(error, HET_ERR_INVALID,
                           "het_profile_merge: one was measured with granules of %d tokens, the other of %d",
                           a->granule, b->granule);
    if (a->units != b->units || a->kinds != b->kinds || a->blocks != b->blocks || a->uses != b->uses)
        return heti_t_fail(error, HET_ERR_INVALID, "het_profile_merge: one has %d units of %d kinds and %d blocks, the "
                                                   "other %d, %d and %d", a->units, a->kinds, a->blocks, b->units,
                                                   b->kinds, b->blocks);
    field = heti_p_byte_fields(&fields);
    if (!heti_p_same_bytes(a, b, field, fields, &name))
        return heti_t_fail(error, HET_ERR_INVALID, "het_profile_merge: bytes \"%s\" are not the same in both", name);
    field = heti_p_kind_fields(&fields);
    for (i = 0; i < a->kinds; i++) /* scratch is the device's own business */
        if (strcmp(a->kind[i].name, b->kind[i].name) != 0 || a->kind[i].loss != b->kind[i].loss ||
            !heti_p_same_bytes(&a->kind[i], &b->kind[i], field, fields - 2, &name))
            return heti_t_fail(error, HET_ERR_INVALID,
                               "het_profile_merge: kind \"%s\" is not the same in both (\"%s\")", a->kind[i].name,
                               name);
    for (i = 0; i < a->units; i++)
        if (a->unit[i] != b->unit[i])
            return heti_t_fail(error, HET_ERR_INVALID, "het_profile_merge: unit %d is of another kind in each", i);
    for (i = 0; i < a->blocks; i++)
        if (a->block[i].elements != b->block[i].elements || a->block[i].uses != b->block[i].uses ||
            a->block[i].frozen != b->block[i].frozen)
            return heti_t_fail(error, HET_ERR_INVALID, "het_profile_merge: block %d has %d elements in one and "
                                                       "%d in the other", i, a->block[i].elements,
                                                       b->block[i].elements);
    for (i = 0; i < a->uses; i++)
        if (a->use[i] != b->use[i])
            return heti_t_fail(error, HET_ERR_INVALID,
                               "het_profile_merge: use %d of a block is of another unit in each", i);
    return HET_OK;
}

static void heti_p_copy_device(const het_profile *to, het_device_profile *device, const het_device_profile *from) {
    const size_t bytes = HETI_T_CAST(size_t, to->kinds) * sizeof *device->alone;
    het_unit_time *alone = device->alone, *together = device->together;
    *device = *from;
    device->alone = alone;
    device->together = together;
    memcpy(alone, from->alone, bytes);
    memcpy(together, from->together, bytes);
}

HETRAIN_API het_result het_profile_merge(const het_profile *first, const het_profile *second,
                                         const het_allocator *allocator, het_profile **profile, het_error *error) {
    het_profile count;
    het_allocator own;
    int64_t i, k;
    if (profile == NULL) return heti_t_fail(error, HET_ERR_INVALID, "het_profile_merge: profile is NULL");
    *profile = NULL;
    if (first == NULL || second == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_profile_merge: a profile is NULL");
    if (!heti_t_allocator(allocator, &own))
        return heti_t_fail(error, HET_ERR_INVALID, "het_profile_merge: an allocator needs both alloc and free");
    HETI_T_TRY(heti_p_merge_check(first, second, error));
    count = *first;
    if (count.granule == 0) count.granule = second->granule;
    count.devices += second->devices;
    count.links += second->links;
    HETI_T_TRY(heti_p_profile_new(&count, &own, "het_profile_merge", profile, error));
    heti_p_profile_same(*profile, first);
    (*profile)->devices = first->devices;
    (*profile)->links = first->links;
    for (i = 0; i < first->devices; i++) heti_p_copy_device(*profile, &(*profile)->device[i], &first->device[i]);
    for (i = 0; i < first->links; i++) (*profile)->link[i] = first->link[i];
    for (i = 0; i < second->devices; i++) {
        for (k = 0; k < (*profile)->devices && strcmp((*profile)->device[k].name, second->device[i].name) != 0; k++) {}
        heti_p_copy_device(*profile, &(*profile)->device[k], &second->device[i]);
        if (k == (*profile)->devices) (*profile)->devices++;
    }
    for (i = 0; i < second->links; i++) {
        for (k = 0; k < (*profile)->links && strcmp((*profile)->link[k].name, second->link[i].name) != 0; k++) {}
        (*profile)->link[k] = second->link[i];
        if (k == (*profile)->links) (*profile)->links++;
    }
    return HET_OK;
}

/* =================================================================================================
   >>measure  Times of units, updates, messages and reductions, by training for a moment.

   Units are timed where they work: a context is made whose units are probes, tables that call the
   real ones and look at the clock. So memory, threads, sums and order of calls are those of a real
   step. Every rank holds a short form of the chain (all kinds of units; of a repeated run of units
   only as many repetitions as fit into HETI_P_MEASURED elements) as a pipeline of its own, so that
   all are at work at once and none waits for another before the end of the step. A step has one
   micro-batch of each shape a rank; a shape's cost is the mean over the faster half of steps, and
       cost = base + token tokens + pair pairs
   is fitted to the shapes, by least squares of relative errors with non-negative terms. Whole steps
   run twice: with backwards in one piece, and in two with recomputation. The rest comes from
   timelines: of the same steps, and of two ranks with units that do nothing.
   ============================================================================================== */

enum { HETI_P_SHAPES = 5, HETI_P_ROUNDS = 24, HETI_P_LEAST_ROUNDS = 3, HETI_P_MEASURED = 1 << 23 };

/* One shape of micro-batch: all of them lie in the same arrays. */
typedef struct heti_p_sample { int64_t tokens, length, granule; double pairs; } heti_p_sample;

typedef enum heti_p_call { HETI_P_FORWARD, HETI_P_BACKWARD, HETI_P_INPUT, HETI_P_WEIGHT, HETI_P_AGAIN,
                          HETI_P_CALLS } heti_p_call;

typedef struct heti_p_cell_time { double sum; int64_t count; } heti_p_cell_time;

/* What one rank's probes see. */
typedef struct heti_p_watch {
    const het_device *device;
    int backward;                     /* a forward from here on is a recomputation */
    double input;                     /* of the backward input whose backward weight is to come */
    het_event *event;
    heti_p_cell_time *now;            /* [kinds][HETI_P_CALLS][shapes] of the present step */
    double *round;                    /* [kinds][HETI_P_CALLS][shapes][rounds] */
    double step[HETI_P_ROUNDS], verdict[HETI_P_ROUNDS], begin[HETI_P_ROUNDS]; /* of an element owned, owned, held */
    double action[HETI_P_ROUNDS];
    double all[HETI_P_ROUNDS];        /* seconds of all calls of a round */
} heti_p_watch;

typedef struct heti_p_measure {
    const het_measure_desc *desc;
    het_error *error;
    het_allocator allocator;
    het_desc context;                 /* completed, without plan, links and hooks */
    het_profile *profile;
    het_unit *original, *probe;       /* [units] of the whole chain; [probes] */
    struct heti_p_probe *record;      /* [probes] */
    int64_t probes, ranks, shapes, rounds;
    int learning, split;              /* devices are being told apart; I and W come apart */
    heti_p_sample sample[HETI_P_SHAPES];
    heti_p_watch *watch;              /* [devices] */
    int64_t *group;                   /* [devices] which device of the profile */
    het_batch *batch;                 /* [devices shapes] */
    int32_t *token;                   /* [tokens + 1] */
    int64_t *bounds;                  /* [shapes][2 (tokens + 1)] */
    het_device_desc *device;          /* [devices] */
    double until;                     /* of the clock */
    void *block;
    size_t size;
} heti_p_measure;

typedef struct heti_p_probe { het_unit unit; heti_p_measure *measure; int64_t kind; } heti_p_probe;

static double heti_p_now(const heti_p_measure *m) { return m->desc->now(m->desc->user); }

/* ---- probes ---- */

static const heti_p_probe *heti_p_probe_of(const het_unit *unit) {
    return HETI_T_CAST(const heti_p_probe *, unit->settings);
}

static heti_p_watch *heti_p_watch_of(const heti_p_probe *probe, const het_unit_call *call) {
    heti_p_measure *m = probe->measure;
    int64_t r;
    if (m->learning || !call->training) return NULL;
    for (r = 0; r < m->ranks; r++)
        if (m->watch[r].device == call->device) return &m->watch[r];
    return NULL;
}

/* Waits until the device has done what it was given; most have when a call returns. */
static het_result heti_p_settle(const het_unit_call *call, heti_p_watch *watch) {
    const het_queue_iface *queues = call->device->iface->queues;
    if (watch == NULL || call->queue == NULL) return HET_OK;
    if (watch->event == NULL) HETI_T_TRY(queues->event_create(call->device->self, &watch->event));
    HETI_T_TRY(queues->event_record(call->device->self, call->queue, watch->event));
    return queues->event_sync(call->device->self, watch->event, 600.0);
}

static void heti_p_saw(const heti_p_probe *probe, heti_p_watch *watch, const het_unit_call *call, heti_p_call what,
                       double seconds) {
    const heti_p_measure *m = probe->measure;
    int64_t s;
    for (s = 0; s < m->shapes; s++)
        if (m->sample[s].tokens == call->view->tokens && m->sample[s].tokens == call->view->sequences *
            m->sample[s].length) {
            heti_p_cell_time *cell = &watch->now[(probe->kind * HETI_P_CALLS + HETI_T_CAST(int64_t, what)) *
                                                 HETI_P_SHAPES + s];
            cell->sum += seconds;
            cell->count++;
            return;
        }
}

static het_result heti_p_probe_describe(const het_unit *unit, het_unit_info *info) {
    const het_unit *original = &heti_p_probe_of(unit)->unit;
    return original->iface->describe(original, info);
}

static het_result heti_p_probe_run(const het_unit_call *call, int which) {
    const heti_p_probe *probe = heti_p_probe_of(call->unit);
    heti_p_watch *watch = heti_p_watch_of(probe, call);
    const het_unit_iface *table = probe->unit.iface;
    het_unit_call own = *call;
    double start = 0, seconds;
    own.unit = &probe->unit;
    if (watch != NULL) {
        HETI_T_TRY(heti_p_settle(call, watch));
        start = heti_p_now(probe->measure);
    }
    HETI_T_TRY(which == 0 ? table->forward(&own) : which == 1 ? table->backward_input(&own) :
               table->backward_weight(&own));
    if (watch == NULL) return HET_OK;
    HETI_T_TRY(heti_p_settle(call, watch));
    seconds = heti_p_now(probe->measure) - start;
    if (which == 0) heti_p_saw(probe, watch, call, watch->backward ? HETI_P_AGAIN : HETI_P_FORWARD, seconds);
    else if (probe->measure->split) heti_p_saw(probe, watch, call, which == 1 ? HETI_P_INPUT : HETI_P_WEIGHT, seconds);
    /* its backward weight is never called */
    else if (which == 1 && call->info->is_loss) heti_p_saw(probe, watch, call, HETI_P_BACKWARD, seconds);
    else if (which == 1) watch->input = seconds;
    else heti_p_saw(probe, watch, call, HETI_P_BACKWARD, watch->input + seconds);
    if (which == 1) watch->backward = call->index > 0;
    return HET_OK;
}

static het_result heti_p_probe_forward(const het_unit_call *call) { return heti_p_probe_run(call, 0); }
static het_result heti_p_probe_input(const het_unit_call *call) { return heti_p_probe_run(call, 1); }
static het_result heti_p_probe_weight(const het_unit_call *call) { return heti_p_probe_run(call, 2); }

static const het_unit_iface *heti_p_probe_table(void) {
    static const het_unit_iface heti_p_table = { HETRAIN_UNIT_VERSION, "probe", heti_p_probe_describe,
                                                heti_p_probe_forward, heti_p_probe_input,
        heti_p_probe_weight };
    return &heti_p_table;
}

/* In the first step, which touches all memory, nothing is timed: each rank tells by which device
   its units will know it. */
static het_result heti_p_learn(void *user, const het_hook_info *info) {
    heti_p_measure *m = HETI_T_CAST(heti_p_measure *, user);
    if (m->learning && info->rank < m->ranks) m->watch[info->rank].device = info->device;
    return HET_OK;
}

static int heti_p_frozen(void *user, const char *parameter) {
    const heti_p_measure *m = HETI_T_CAST(const heti_p_measure *, user);
    return m->desc->desc->frozen != NULL ? m->desc->desc->frozen(m->desc->desc->user, parameter) : 0;
}

/* ---- what is run ---- */

/* The longest run of units whose kinds repeat with a period of at most 8: [*first, *first + *period
   *times). */
static void heti_p_repetition(const het_profile *profile, int64_t *first, int64_t *period, int64_t *times) {
    int64_t p, a, run;
    *first = *period = 0;
    *times = 1;
    for (p = 1; p <= 8 && p < profile->units; p++)
        for (a = 0; a + p < profile->units; a += run + 1) {
            for (run = 0; a + run + p < profile->units && profile->unit[a + run] == profile->unit[a + run + p]; run++) {
            }
            if (run < p || run / p + 1 <= *times * *period / p) continue;
            *first = a;
            *period = p;
            *times = run / p + 1;
        }
}

/* Elements of the parameters of a unit alone. */
static int64_t heti_p_unit_elements(const het_profile *profile, int64_t unit) {
    int64_t b, sum = 0;
    for (b = 0; b < profile->blocks; b++)
        if (profile->use[profile->block[b].first_use] == unit) sum += profile->block[b].elements;
    return sum;
}

/* Which units are measured: a repeated run is shortened until the rest has HETI_P_MEASURED
   elements, but not below two repetitions. */
static void heti_p_choose_units(heti_p_measure *m) {
    const het_profile *profile = m->profile;
    int64_t first, period, times, keep, u, elements = 0, one = 0;
    heti_p_repetition(profile, &first, &period, &times);
    for (u = 0; u < profile->units; u++) elements += heti_p_unit_elements(profile, u);
    for (u = first; u < first + period; u++) one += heti_p_unit_elements(profile, u);
    for (keep = times; keep > 2 && elements > HETI_P_MEASURED; keep--) elements -= one;
    m->probes = 0;
    for (u = 0; u < profile->units; u++) {
        if (u >= first + keep * period && u < first + times * period) continue;
        m->record[m->probes].unit = m->original[u];
        m->record[m->probes].measure = m;
        m->record[m->probes].kind = profile->unit[u];
        m->probe[m->probes].iface = heti_p_probe_table();
        m->probe[m->probes].model = m->original[u].model;
        m->probe[m->probes].layer = m->original[u].layer;
        m->probe[m->probes].settings = &m->record[m->probes];
        m->probes++;
    }
}

static void heti_p_add_shape(heti_p_measure *m, int64_t tokens, int64_t length, int64_t granule) {
    heti_p_sample *s = &m->sample[m->shapes];
    int64_t i;
    if (length < 1 || tokens % length != 0 || m->shapes == HETI_P_SHAPES) return;
    for (i = 0; i < m->shapes; i++)
        if (m->sample[i].tokens == tokens && m->sample[i].length == length) return;
    s->tokens = tokens;
    s->length = length;
    s->granule = granule < tokens ? granule : tokens;
    s->pairs = HETI_T_CAST(double, tokens) * (HETI_T_CAST(double, length) + 1) / 2;
    m->shapes++;
}

/* Micro-batches of all, half and one of the granules of the largest, with the longest sequences and
   those of a quarter. */
static het_result heti_p_choose_shapes(heti_p_measure *m) {
    const int64_t most = m->context.max_tokens, context = m->context.model.context;
    int64_t length = m->desc->length > 0 ? m->desc->length : context, sequences, tokens, granule, granules, i, start[3];
    if (length > context || length > most)
        return heti_t_fail(m->error, HET_ERR_INVALID,
                           "het_profile_measure: sequences of %d tokens; the model's context is %d, max_tokens %d",
                           length, context, most);
    sequences = most / length;
    if (sequences > m->context.max_sequences) sequences = m->context.max_sequences;
    tokens = sequences * length;
    granule = length > 512 ? 512 : length;
    for (i = sequences; i > 0 && length <= 512; i--)
        if (m->context.granule > 0 ? i == m->context.granule : sequences % i == 0 && i * length <= 512) {
            granule = i * length;
            break;
        }
    if (granule > tokens) granule = tokens;
    granules = (tokens + granule - 1) / granule;
    start[0] = tokens;
    start[1] = granules > 1 ? (granules + 1) / 2 * granule : tokens / 2 / length * length;
    start[2] = granules > 2 ? granule : tokens / 4 / length * length;
    for (i = 0; i < 3; i++) {
        const int64_t part = start[i] > 0 && start[i] <= tokens ? start[i] : 0,
                      shortest = length % 4 == 0 && length >= 16 ? length / 4 : length;
        if (part == 0) { /* one sequence: shorter ones */
            heti_p_add_shape(m, length / (2 << (i - 1)), length / (2 << (i - 1)), granule);
            continue;
        }
        heti_p_add_shape(m, part, length, granule);
        if (i != 1 && part <= m->context.max_sequences * shortest) heti_p_add_shape(m, part, shortest, granule);
    }
    return HET_OK;
}

/* Bounds of sequences and granules of shape s; granules are pieces of long sequences, or whole
   short ones. */
static void heti_p_fill_batch(heti_p_measure *m, int64_t s) {
    const heti_p_sample *sample = &m->sample[s];
    const int64_t room = m->context.max_tokens + 1;
    int64_t *sequence = m->bounds + 2 * s * room, *granule = sequence + room, i, r, at = 0, count = 0;
    for (i = 0; i <= sample->tokens / sample->length; i++) sequence[i] = i * sample->length;
    if (sample->length > sample->granule) /* cut anew in every sequence */
        while (at < sample->tokens) {
            const int64_t left = sample->length - at % sample->length;
            granule[count++] = at;
            at += left < sample->granule ? left : sample->granule;
        }
    else
        for (; at < sample->tokens; at += sample->granule / sample->length * sample->length) granule[count++] = at;
    granule[count] = sample->tokens;
    for (r = 0; r < m->desc->desc->device_count || r == 0; r++) {
        het_batch *batch = &m->batch[r * m->shapes + s];
        batch->tokens = sample->tokens;
        batch->sequences = sample->tokens / sample->length;
        batch->token = m->token;
        batch->target = m->token + 1;
        batch->sequence_start = sequence;
        batch->granules = count;
        batch->granule_start = granule;
    }
}

/* ---- reading a step ---- */

static int heti_p_less(double a, double b) { return a < b; }

/* The middle of count values, which are sorted in place. */
static double heti_p_median(double *value, int64_t count) {
    int64_t i, j;
    for (i = 1; i < count; i++) {
        const double moved = value[i];
        for (j = i; j > 0 && heti_p_less(moved, value[j - 1]); j--) value[j] = value[j - 1];
        value[j] = moved;
    }
    return count == 0 ? 0 : count % 2 == 1 ? value[count / 2] : 0.5 * (value[count / 2 - 1] + value[count / 2]);
}

/* Straight line through (x, y): slope and what is left at 0, neither negative. */
static void heti_p_line(const double *x, const double *y, int64_t count, double *base, double *slope) {
    double n = HETI_T_CAST(double, count), sx = 0, sy = 0, sxx = 0, sxy = 0, d;
    int64_t i;
    for (i = 0; i < count; i++) sx += x[i], sy += y[i], sxx += x[i] * x[i], sxy += x[i] * y[i];
    d = n * sxx - sx * sx;
    *slope = d > 0 ? (n * sxy - sx * sy) / d : sxx > 0 ? sxy / sxx : 0;
    if (*slope < 0) *slope = 0;
    *base = count > 0 && d > 0 ? (sy - *slope * sx) / n : 0;
    if (*base >= 0) return;
    *base = 0;
    *slope = sxx > 0 ? sxy / sxx : 0;
}

/* What VERDICT takes of itself: that of the rank that comes last waits for nobody. */
static double heti_p_verdict_time(const het_ctx *ctx, int64_t ranks) {
    double least = 1e300;
    int64_t r, i;
    for (r = 0; r < ranks; r++) {
        double reduced = 0;
        het_timeline timeline;
        het_get_timeline(ctx, r, &timeline);
        for (i = 0; i < timeline.records; i++) {
            const het_record *record = &timeline.record[i];
            const double from = record->start > reduced ? record->start : reduced;
            if (record->action.kind == HET_ACTION_REDUCE && record->end > reduced) reduced = record->end;
            if (record->action.kind == HET_ACTION_VERDICT && record->end - from < least)
                least = record->end > from ? record->end - from : 0;
        }
    }
    return least < 1e300 ? least : 0;
}

/* What the timelines of a step say about updates and overheads. */
static void heti_p_read_step(heti_p_measure *m, const het_ctx *ctx, int64_t round) {
    const double verdict = heti_p_verdict_time(ctx, m->ranks);
    int64_t r, i;
    for (r = 0; r < m->ranks; r++) {
        heti_p_watch *watch = &m->watch[r];
        double step = 0, held, owned, actions = 0, calls = 0;
        het_timeline timeline;
        het_memory memory;
        het_get_timeline(ctx, r, &timeline);
        het_get_memory(ctx, r, &memory);
        held = HETI_T_CAST(double, memory.gradients) / m->profile->gradient_bytes;
        owned = HETI_T_CAST(double, memory.optimizer) / (m->profile->state_bytes > 0 ? m->profile->state_bytes : 1);
        for (i = 0; i < m->profile->kinds * HETI_P_CALLS * HETI_P_SHAPES; i++) calls += watch->now[i].sum;
        for (i = 0; i < timeline.records; i++) {
            const double seconds = timeline.record[i].end - timeline.record[i].start;
            if (timeline.record[i].action.kind == HET_ACTION_STEP) step += seconds;
            if (timeline.record[i].action.kind > HET_ACTION_W) continue;
            calls -= seconds;
            actions++;
        }
        watch->action[round] = actions > 0 && calls < 0 ? -calls / actions : 0;
        watch->begin[round] = timeline.records > 0 && held > 0 ? timeline.record[0].start / held : 0;
        watch->step[round] = owned > 0 ? step / owned : 0;
        watch->verdict[round] = owned > 0 ? verdict / owned : 0;
    }
}

/* Means over a step's calls become one value a round. */
static void heti_p_read_cells(heti_p_measure *m, int64_t round) {
    int64_t r, i;
    for (r = 0; r < m->ranks; r++) {
        m->watch[r].all[round] = 0;
        for (i = 0; i < m->profile->kinds * HETI_P_CALLS * HETI_P_SHAPES; i++) {
            heti_p_cell_time *cell = &m->watch[r].now[i];
            if (cell->count > 0)
                m->watch[r].round[i * HETI_P_ROUNDS + round] = cell->sum / HETI_T_CAST(double, cell->count);
            m->watch[r].all[round] += cell->sum;
        }
    }
}

/* Mean of value[] over the faster half of a rank's rounds by order[]: what disturbs only slows
   down. With `value` for `order` each value stands for itself; with the sums of all calls what
   ranks beside each other take from one another stays in. */
static double heti_p_typical(const double *value, const double *order, int64_t rounds) {
    double sum = 0;
    int64_t i, n;
    for (i = 0; i < rounds; i++) {
        int64_t faster = 0;
        for (n = 0; n < rounds; n++) faster += order[n] < order[i] || (n < i && !(order[i] < order[n]));
        if (faster < (rounds + 1) / 2) sum += value[i];
    }
    return sum / HETI_T_CAST(double, (rounds + 1) / 2);
}

/* Whether there are enough rounds: of every rank, half of them and HETI_P_LEAST_ROUNDS lie within 2
   % of the mean of those that count. */
static int heti_p_settled(const heti_p_measure *m, int64_t rounds) {
    int64_t r, n, near;
    for (r = 0; r < m->ranks; r++) {
        const heti_p_watch *watch = &m->watch[r];
        const double mean = heti_p_typical(watch->all, watch->all, rounds);
        for (n = near = 0; n < rounds; n++) near += watch->all[n] >= 0.98 * mean && watch->all[n] <= 1.02 * mean;
        if (2 * near < rounds || near < HETI_P_LEAST_ROUNDS) return 0;
    }
    return 1;
}

/* Rounds of one context: ranks first .. first + count of the description's devices, or one of them
   at its full speed. */
static het_result heti_p_measure_rounds(heti_p_measure *m, het_ctx *ctx, double until) {
    const int64_t cells = m->profile->kinds * HETI_P_CALLS * HETI_P_SHAPES, batches = m->ranks * m->shapes;
    het_step_info info;
    int64_t r, round;
    double start = heti_p_now(m), now;
    m->learning = 1;
    if (het_step(ctx, m->batch, batches, &info) != HET_OK)
        return heti_t_fail(m->error, HET_ERR_STATE, "het_profile_measure: %s", het_last_error(ctx));
    m->learning = 0;
    for (round = 0; round < HETI_P_ROUNDS; round++) {
        for (r = 0; r < m->ranks; r++) {
            memset(m->watch[r].now, 0, HETI_T_CAST(size_t, cells) * sizeof *m->watch[r].now);
            m->watch[r].backward = 0;
        }
        if (het_step(ctx, m->batch, batches, &info) != HET_OK)
            return heti_t_fail(m->error, HET_ERR_STATE, "het_profile_measure: %s", het_last_error(ctx));
        if (info.repeated) { round--; continue; }
        heti_p_read_cells(m, round);
        heti_p_read_step(m, ctx, round);
        now = heti_p_now(m);
        if (now > until + 2 * (until - start) || (round + 1 >= HETI_P_LEAST_ROUNDS && now > until)) break;
        if (heti_p_settled(m, round + 1)) break;
    }
    m->rounds = round < HETI_P_ROUNDS ? round + 1 : HETI_T_CAST(int64_t, HETI_P_ROUNDS);
    return HET_OK;
}

static void heti_p_forget_rounds(heti_p_measure *m) {
    const int64_t cells = m->profile->kinds * HETI_P_CALLS * HETI_P_SHAPES;
    int64_t r;
    for (r = 0; r < m->ranks; r++) {
        m->watch[r].device = NULL;
        m->watch[r].event = NULL;
        memset(m->watch[r].round, 0, HETI_T_CAST(size_t, cells * HETI_P_ROUNDS) * sizeof(double));
    }
}

/* A context over the short chain: m->ranks devices from number `first` on. */
static het_result heti_p_measure_context(heti_p_measure *m, int64_t first, int split, double until) {
    het_desc desc = m->context;
    het_ctx *ctx = NULL;
    het_result result;
    int64_t r;
    for (r = 0; r < m->ranks; r++) {
        if (m->desc->desc->devices != NULL) m->device[r] = m->desc->desc->devices[first + r];
        else memset(&m->device[r], 0, sizeof m->device[r]);
        m->device[r].memory_limit = 0;
        if (m->ranks == 1) m->device[r].speed = 0;
    }
    heti_p_forget_rounds(m);
    m->split = split;
    desc.devices = m->device;
    desc.device_count = m->ranks;
    desc.max_micro_batches = m->ranks * m->shapes + 1; /* with one there would be sums made at once */
    desc.backward = split ? HET_BACKWARD_SPLIT : HET_BACKWARD_FUSED;
    desc.recompute = split ? HET_YES : HET_NO;
    result = het_create(&desc, &ctx, m->error);
    if (result == HET_OK) result = heti_p_measure_rounds(m, ctx, until);
    for (r = 0; r < m->ranks; r++) /* events are of devices that are about to go */
        if (m->watch[r].event != NULL)
            m->watch[r].device->iface->queues->event_destroy(m->watch[r].device->self, m->watch[r].event);
    het_destroy(ctx);
    return result;
}

/* ---- from samples to curves ---- */

/* Solves the normal equations of relative errors for the terms in `terms` (bits: base, token,
   pair); 0: not solvable or a term is negative. */
static int heti_p_fit_terms(const heti_p_measure *m, const double *seconds, int terms, double *coefficient,
                            double *residual) {
    double a[3][4], x[3];
    int64_t s, n = 0;
    int i, j, k, used[3], count = 0;
    memset(a, 0, sizeof a);
    for (i = 0; i < 3; i++) {
        coefficient[i] = 0;
        if ((terms >> i & 1) != 0) used[count++] = i;
    }
    for (s = 0; s < m->shapes; s++) {
        if (!(seconds[s] > 0)) continue;
        x[0] = 1 / seconds[s];
        x[1] = HETI_T_CAST(double, m->sample[s].tokens) / seconds[s];
        x[2] = m->sample[s].pairs / seconds[s];
        n++;
        for (i = 0; i < count; i++) {
            for (j = 0; j < count; j++) a[i][j] += x[used[i]] * x[used[j]];
            a[i][3] += x[used[i]];
        }
    }
    if (n < count) return 0;
    for (i = 0; i < count; i++) { /* Gauss and Jordan; the matrix is positive definite where it can be solved at all */
        const double pivot = a[i][i];
        if (!(pivot > 1e-300)) return 0;
        for (j = 0; j < 4; j++) a[i][j] /= pivot;
        for (k = 0; k < count; k++) {
            const double factor = a[k][i];
            for (j = 0; j < 4 && k != i; j++) a[k][j] -= factor * a[i][j];
        }
    }
    for (i = 0; i < count; i++) {
        if (!(a[i][3] >= 0)) return 0;
        coefficient[used[i]] = a[i][3];
    }
    *residual = 0;
    for (s = 0; s < m->shapes; s++)
        if (seconds[s] > 0) {
            const double error = (coefficient[0] + coefficient[1] * HETI_T_CAST(double, m->sample[s].tokens) +
                                  coefficient[2] * m->sample[s].pairs)
                / seconds[s] - 1;
            *residual += error * error;
        }
    *residual = (*residual + 1e-14) / HETI_T_CAST(double, n > count ? n - count : 1);
    for (i = 1; i < count; i++) *residual *= 1.5; /* a term must earn its place */
    return 1;
}

static het_curve heti_p_fit(const heti_p_measure *m, const double *seconds) {
    double best = 1e300, coefficient[3], residual;
    het_curve curve;
    int terms;
    memset(&curve, 0, sizeof curve);
    for (terms = 1; terms < 8; terms++) {
        if (!heti_p_fit_terms(m, seconds, terms, coefficient, &residual) || residual >= best) continue;
        best = residual;
        curve.base = heti_t_short(coefficient[0]);
        curve.token = heti_t_short(coefficient[1]);
        curve.pair = heti_t_short(coefficient[2]);
    }
    return curve;
}

static const het_curve *heti_p_call_curve(const het_unit_time *time, heti_p_call what) {
    return what == HETI_P_FORWARD ? &time->forward : what == HETI_P_BACKWARD ? &time->backward : what == HETI_P_INPUT ?
        &time->input
        : what == HETI_P_WEIGHT ? &time->weight : &time->recompute;
}

/* Curve of one call of a kind on the ranks of a group: of each shape the mean over ranks and
   rounds. A rank of speed v that is slowed down by sleeping takes what its calls take, t, and
   sleeps (1 / v - 1) times their time on the processor, that of `alone`: what is kept is the time
   of full speed that divided by v gives this sum. */
static het_curve heti_p_fit_call(heti_p_measure *m, int64_t group, int64_t kind, heti_p_call what,
                                 const het_unit_time *alone) {
    double seconds[HETI_P_SHAPES];
    int64_t s, r;
    for (s = 0; s < m->shapes; s++) {
        const het_curve *own = heti_p_call_curve(&alone[kind], what);
        const double by_itself = own->base + own->token * HETI_T_CAST(double, m->sample[s].tokens) + own->pair *
                     m->sample[s].pairs;
        double sum = 0, ranks = 0;
        for (r = 0; r < m->ranks; r++) {
            const double v = m->device[r].speed > 0 ? m->device[r].speed : 1;
            const double *round = m->watch[r].round + ((kind * HETI_P_CALLS + HETI_T_CAST(int64_t, what)) *
                                                       HETI_P_SHAPES + s) * HETI_P_ROUNDS;
            if (m->ranks > 1 && m->group[r] != group) continue;
            sum += v * heti_p_typical(round, m->ranks > 1 ? m->watch[r].all : round, m->rounds) + (1 - v) * by_itself;
            ranks++;
        }
        seconds[s] = ranks > 0 ? sum / ranks : 0;
    }
    return heti_p_fit(m, seconds);
}

static void heti_p_take_times(heti_p_measure *m, int64_t group, const het_unit_time *alone, het_unit_time *time) {
    int64_t k;
    for (k = 0; k < m->profile->kinds; k++) {
        if (m->split) {
            time[k].input = heti_p_fit_call(m, group, k, HETI_P_INPUT, alone);
            time[k].weight = heti_p_fit_call(m, group, k, HETI_P_WEIGHT, alone);
            time[k].recompute = heti_p_fit_call(m, group, k, HETI_P_AGAIN, alone);
        } else {
            time[k].forward = heti_p_fit_call(m, group, k, HETI_P_FORWARD, alone);
            time[k].backward = heti_p_fit_call(m, group, k, HETI_P_BACKWARD, alone);
        }
    }
}

/* Times of updates and overheads of a group, from ranks that are not slowed down where there are
   some. */
static void heti_p_take_rest(heti_p_measure *m, int64_t group, het_device_profile *device) {
    double step = 0, verdict = 0, begin = 0, action = 0, ranks = 0;
    int64_t r;
    for (r = 0; r < m->ranks; r++) {
        heti_p_watch *watch = &m->watch[r];
        double speed = m->device[r].speed > 0 ? m->device[r].speed : 1;
        if (m->ranks > 1 && m->group[r] != group) continue;
        step += heti_p_typical(watch->step, watch->step, m->rounds) * speed;
        begin += heti_p_typical(watch->begin, watch->begin, m->rounds);
        verdict += heti_p_typical(watch->verdict, watch->verdict, m->rounds);
        action += speed < 1 ? 0 : heti_p_typical(watch->action, watch->action, m->rounds);
        ranks++;
    }
    if (!(ranks > 0)) return;
    device->step_element = heti_t_short(step / ranks);
    device->begin_element = heti_t_short(begin / ranks);
    device->verdict_element = heti_t_short(verdict / ranks);
    if (action > 0) device->action = heti_t_short(action / ranks);
}

/* ---- messages and reductions: two ranks whose units do nothing ---- */

typedef struct heti_p_idle { int64_t width, elements; int last; } heti_p_idle;

static het_result heti_p_idle_describe(const het_unit *unit, het_unit_info *info) {
    const heti_p_idle *idle = HETI_T_CAST(const heti_p_idle *, unit->settings);
    het_parameter_desc *p = &info->parameter[0];
    info->parameters = 1;
    memcpy(p->name, idle->last ? "idle.1" : "idle.0", 7);
    p->rows = idle->elements;
    p->columns = 1;
    info->is_loss = idle->last;
    info->out_streams = !idle->last;
    info->out_width[0] = idle->width;
    info->input_keep = HET_KEEP_CALL;
    return HET_OK;
}

static het_result heti_p_idle_run(const het_unit_call *call) {
    (void)call;
    return HET_OK;
}

static const het_unit_iface *heti_p_idle_table(void) {
    static const het_unit_iface heti_p_table = { HETRAIN_UNIT_VERSION, "idle", heti_p_idle_describe, heti_p_idle_run,
                                                heti_p_idle_run,
        heti_p_idle_run };
    return &heti_p_table;
}

enum { HETI_P_IDLE_ROWS = 1024, HETI_P_IDLE_WIDTH = 256, HETI_P_IDLE_SIZES = 4, HETI_P_IDLE_STEPS = 15 };

/* What two ranks do: `plan` of two units, `elements` of the first. Of every step one row of numbers
   goes to `read`. */
typedef struct heti_p_idlers {
    heti_p_measure *m;
    het_ctx *ctx;
    het_plan *plan;
    heti_p_idle idle[2];
    het_unit unit[2];
    int64_t bounds[HETI_P_IDLE_ROWS + 1];
    int32_t token[HETI_P_IDLE_ROWS];
} heti_p_idlers;

static het_result heti_p_idlers_start(heti_p_idlers *s, const char *plan, int64_t elements) {
    heti_p_measure *m = s->m;
    het_plan_desc plan_desc;
    het_desc desc = m->context;
    int64_t i;
    for (i = 0; i < 2; i++) {
        m->device[i] = m->desc->desc->devices[i];
        m->device[i].speed = 0;
        m->device[i].memory_limit = 0;
        s->idle[i].width = HETI_P_IDLE_WIDTH;
        s->idle[i].elements = i == 0 ? elements : 16;
        s->idle[i].last = i == 1;
        memset(&s->unit[i], 0, sizeof s->unit[i]);
        s->unit[i].iface = heti_p_idle_table();
        s->unit[i].settings = &s->idle[i];
    }
    for (i = 0; i <= HETI_P_IDLE_ROWS; i++) s->bounds[i] = i;
    memset(s->token, 0, sizeof s->token);
    memset(&plan_desc, 0, sizeof plan_desc);
    plan_desc.units = plan_desc.ranks = 2;
    plan_desc.allocator = m->allocator;
    HETI_T_TRY(het_plan_read(&plan_desc, plan, 2, &s->plan, m->error));
    desc.units = s->unit;
    desc.unit_count = 2;
    desc.devices = m->device;
    desc.device_count = 2;
    desc.plan = s->plan;
    desc.hook = NULL;
    desc.frozen = NULL;
    desc.reduce = HET_REDUCE_FAST;
    desc.max_tokens = desc.max_sequences = HETI_P_IDLE_ROWS;
    desc.max_micro_batches = 2;
    return het_create(&desc, &s->ctx, m->error);
}

static void heti_p_idlers_end(heti_p_idlers *s) {
    het_destroy(s->ctx);
    het_plan_free(s->plan);
    s->ctx = NULL;
    s->plan = NULL;
}

static het_result heti_p_idlers_step(heti_p_idlers *s, int64_t rows, int64_t count) {
    het_batch batch[2];
    int64_t i;
    memset(batch, 0, sizeof batch);
    for (i = 0; i < 2; i++) {
        batch[i].tokens = batch[i].sequences = rows;
        batch[i].token = batch[i].target = s->token;
        batch[i].sequence_start = s->bounds;
    }
    if (het_step(s->ctx, batch, count, NULL) == HET_OK) return HET_OK;
    return heti_t_fail(s->m->error, HET_ERR_STATE, "het_profile_measure: %s", het_last_error(s->ctx));
}

/* The first record of a kind on a rank; of REDUCE and GATHER the one with the most bytes. */
static het_record heti_p_idlers_record(const heti_p_idlers *s, int64_t rank, int32_t kind) {
    het_record found;
    het_timeline timeline;
    int64_t i;
    memset(&found, 0, sizeof found);
    found.bytes = -1;
    het_get_timeline(s->ctx, rank, &timeline);
    for (i = 0; i < timeline.records; i++)
        if (timeline.record[i].action.kind == kind && timeline.record[i].bytes > found.bytes)
            found = timeline.record[i];
    return found;
}

/* Ping and pong: from the send on one rank to the gradient that comes back, less what the other
   rank does in between; half of it is one way. Each rank's clock is only compared with itself. */
static het_result heti_p_measure_messages(heti_p_idlers *s, double *latency, double *bandwidth, double *message_byte) {
    double bytes[HETI_P_IDLE_SIZES], way[HETI_P_IDLE_SIZES], pack[HETI_P_IDLE_SIZES], ignored, slope;
    int64_t size, step, rows = 4;
    HETI_T_TRY(heti_p_idlers_start(s, "pp", 16));
    for (size = 0; size < HETI_P_IDLE_SIZES; size++, rows *= 6) {
        double there[HETI_P_IDLE_STEPS], packing[HETI_P_IDLE_STEPS];
        for (step = -2; step < HETI_P_IDLE_STEPS; step++) {
            het_record f0, f1, send, b0, b1, back;
            HETI_T_TRY(heti_p_idlers_step(s, rows, 1));
            if (step < 0) continue;
            f0 = heti_p_idlers_record(s, 0, HET_ACTION_F);
            f1 = heti_p_idlers_record(s, 1, HET_ACTION_F);
            b0 = heti_p_idlers_record(s, 0, HET_ACTION_B);
            b1 = heti_p_idlers_record(s, 1, HET_ACTION_B);
            send = heti_p_idlers_record(s, 0, HET_ACTION_SEND_F);
            back = heti_p_idlers_record(s, 1, HET_ACTION_SEND_B);
            there[step] = 0.5 * ((b0.start - send.start) - (back.start - f1.start));
            packing[step] = 0.25 * ((f0.end - f0.start) + (f1.end - f1.start) + (b0.end - b0.start) +
                                    (b1.end - b1.start));
        }
        bytes[size] = HETI_T_CAST(double, rows * HETI_P_IDLE_WIDTH * 4);
        way[size] = heti_p_median(there, HETI_P_IDLE_STEPS);
        pack[size] = heti_p_median(packing, HETI_P_IDLE_STEPS);
    }
    heti_p_line(bytes, way, HETI_P_IDLE_SIZES, latency, &slope);
    *bandwidth = slope > 0 ? heti_t_short(1 / slope) : 0;
    *latency = heti_t_short(*latency);
    heti_p_line(bytes, pack, HETI_P_IDLE_SIZES, &ignored, message_byte);
    *message_byte = heti_t_short(*message_byte);
    heti_p_idlers_end(s);
    return HET_OK;
}

/* A reduction and a gathering between two ranks, of few elements and of many: seconds of a byte
   that a rank sends, all work on it included. Two of three bytes of a step are of reductions. */
static het_result heti_p_measure_rings(heti_p_idlers *s, double *ring_byte, double *verdict) {
    double seconds[2][2], bytes[2][2], judged[HETI_P_IDLE_STEPS];
    int size, kind;
    int64_t step, r;
    for (size = 0; size < 2; size++) {
        double took[2][HETI_P_IDLE_STEPS];
        HETI_T_TRY(heti_p_idlers_start(s, "dp", size == 0 ? 4096 : 1 << 21));
        for (step = -1; step < HETI_P_IDLE_STEPS; step++) {
            HETI_T_TRY(heti_p_idlers_step(s, 1, 2));
            if (step < 0) continue;
            for (kind = 0; kind < 2; kind++) {
                took[kind][step] = 1e300;
                for (r = 0; r < 2; r++) {
                    const het_record record = heti_p_idlers_record(s, r, kind == 0 ? HET_ACTION_REDUCE :
                                                                   HET_ACTION_GATHER);
                    if (record.end - record.start < took[kind][step]) took[kind][step] = record.end - record.start;
                    bytes[kind][size] = HETI_T_CAST(double, record.bytes);
                }
            }
            if (size == 0) judged[step] = heti_p_verdict_time(s->ctx, 2);
        }
        for (kind = 0; kind < 2; kind++) seconds[kind][size] = heti_p_median(took[kind], HETI_P_IDLE_STEPS);
        heti_p_idlers_end(s);
    }
    *verdict = heti_t_short(heti_p_median(judged, HETI_P_IDLE_STEPS));
    *ring_byte = 0;
    for (kind = 0; kind < 2; kind++)
        if (seconds[kind][1] > seconds[kind][0] && bytes[kind][1] > bytes[kind][0])
            *ring_byte += (seconds[kind][1] - seconds[kind][0]) / (bytes[kind][1] - bytes[kind][0]) * (kind == 0 ?
                2.0 / 3 : 1.0 / 3);
    *ring_byte = heti_t_short(*ring_byte);
    return HET_OK;
}

static het_result heti_p_measure_links(heti_p_measure *m) {
    het_profile *profile = m->profile;
    heti_p_idlers *s;
    het_link_profile *link = &profile->link[0];
    double message_byte = 0, ring_byte = 0, verdict = 0;
    het_result result;
    void *block;
    int64_t i;
    HETI_T_TRY(heti_t_block(&m->allocator, sizeof *s, "het_profile_measure", &block, m->error));
    s = HETI_T_CAST(heti_p_idlers *, block);
    s->m = m;
    result = heti_p_measure_messages(s, &link->latency, &link->bandwidth, &message_byte);
    if (result == HET_OK) result = heti_p_measure_rings(s, &ring_byte, &verdict);
    heti_p_idlers_end(s);
    m->allocator.free(m->allocator.user, block, sizeof *s);
    HETI_T_TRY(result);
    memcpy(link->name, "threads", 8);
    for (i = 0; i < profile->devices; i++) {
        profile->device[i].message_byte = message_byte;
        profile->device[i].ring_byte = ring_byte;
        profile->device[i].verdict_base = verdict;
    }
    return HET_OK;
}

/* ---- the call ---- */

static void heti_p_measure_cut(heti_p_measure *m, heti_t_arena *arena) {
    const int64_t devices = m->context.device_count, cells = m->profile->kinds * HETI_P_CALLS * HETI_P_SHAPES,
                  room = m->context.max_tokens + 1;
    int64_t r;
    m->original = HETI_T_TAKE(arena, het_unit, m->profile->units);
    m->probe = HETI_T_TAKE(arena, het_unit, m->profile->units);
    m->record = HETI_T_TAKE(arena, heti_p_probe, m->profile->units);
    m->watch = HETI_T_TAKE(arena, heti_p_watch, devices);
    m->group = HETI_T_TAKE(arena, int64_t, devices);
    m->batch = HETI_T_TAKE(arena, het_batch, devices * HETI_P_SHAPES);
    m->token = HETI_T_TAKE(arena, int32_t, room);
    m->bounds = HETI_T_TAKE(arena, int64_t, 2 * HETI_P_SHAPES * room);
    m->device = HETI_T_TAKE(arena, het_device_desc, devices > 2 ? devices : 2);
    for (r = 0; r < devices; r++) {
        heti_p_cell_time *now = HETI_T_TAKE(arena, heti_p_cell_time, cells);
        double *round = HETI_T_TAKE(arena, double, cells * HETI_P_ROUNDS);
        if (arena->base == NULL) continue;
        m->watch[r].now = now;
        m->watch[r].round = round;
    }
}

/* Devices of one table, number of threads and instruction set are one kind: group[i] is the number
   of i's. Returns how many there are. */
static int64_t heti_p_device_kinds(const het_desc *desc, int64_t *group, int64_t *first) {
    int64_t i, k, kinds = 0;
    for (i = 0; i < desc->device_count; i++) {
        for (k = 0; k < i && desc->devices != NULL; k++)
            if (desc->devices[k].iface == desc->devices[i].iface &&
                desc->devices[k].threads == desc->devices[i].threads && desc->devices[k].isa == desc->devices[i].isa)
                break;
        if (k < i && desc->devices != NULL) {
            if (group != NULL) group[i] = group[k];
            continue;
        }
        if (group != NULL) group[i] = kinds;
        if (first != NULL) first[kinds] = i;
        kinds++;
    }
    return kinds;
}

static void heti_p_device_name(const heti_p_measure *m, int64_t i, het_device_profile *device) {
    const het_device_desc *desc = m->desc->desc->devices != NULL ? &m->desc->desc->devices[i] : NULL;
    const het_device_iface *iface = desc != NULL && desc->iface != NULL ? desc->iface : het_cpu_device();
    int64_t number;
    heti_t_text name = heti_t_text_in(device->name, sizeof device->name);
    if (iface->host_memory) number = desc != NULL && desc->threads > 0 ? desc->threads : 1;
    else number = desc->ordinal; /* of several such devices each has a name */
    heti_t_format(&name, "%s:%d", iface->name, number);
}

/* The description that contexts are made from, and everything of it that is not measured. */
static void heti_p_measure_desc(heti_p_measure *m) {
    het_desc *d = &m->context;
    d->units = m->probe;
    d->unit_count = m->probes;
    d->plan = NULL;
    d->schedule = NULL;
    d->links = NULL;
    d->link_count = 0;
    d->recompute_unit = NULL;
    d->silent = NULL;
    d->inference = HET_NO;
    d->shard_gradients = HET_NO; /* what it adds is not the units' own time */
    d->max_slices = 1;
    memset(&d->transport, 0, sizeof d->transport);
    d->optimizer.learning_rate = 1e-30f; /* weights stay, so that no step is measured again for its exponents */
    d->optimizer.minimum_rate = 0;
    d->optimizer.warmup_steps = 0;
    d->optimizer.schedule = HET_LR_CONSTANT;
    d->hook = heti_p_learn;
    d->frozen = heti_p_frozen;
    d->user = m;
    d->allocator = m->allocator;
    memset(&d->logger, 0, sizeof d->logger);
}

/* Every kind of device alone, then all ranks at once; both in one piece and split. The time left is
   divided among what is left. */
static het_result heti_p_measure_devices(heti_p_measure *m) {
    const int64_t devices = m->context.device_count;
    const int together = devices > 1 && m->desc->together != HET_NO;
    const double seconds = m->desc->seconds > 0 ? m->desc->seconds : 3,
                 parts = HETI_T_CAST(double, 2 * (m->profile->devices + (together ? 1 : 0)));
    double end = heti_p_now(m);
    int64_t k, g;
    int split;
    for (k = 0; k <= m->profile->devices; k++) {
        const int all = k == m->profile->devices;
        int64_t first = 0;
        if (all && !together) break;
        while (!all && m->group[first] != k) first++;
        m->ranks = all ? devices : 1;
        for (split = 0; split < 2; split++) {
            const double now = heti_p_now(m);
            end = (end > now ? end : now) + seconds * HETI_T_CAST(double, m->profile->devices) / parts;
            HETI_T_TRY(heti_p_measure_context(m, first, split, end));
            for (g = all ? 0 : k; g <= (all ? m->profile->devices - 1 : k); g++) {
                het_device_profile *device = &m->profile->device[g];
                heti_p_take_times(m, g, device->alone, all ? device->together : device->alone);
                if (!all)
                    memcpy(device->together, device->alone,
                           HETI_T_CAST(size_t, m->profile->kinds) * sizeof *device->alone);
                if (split == 0) heti_p_take_rest(m, g, device);
            }
        }
    }
    return HET_OK;
}

static het_result heti_p_measure_all(heti_p_measure *m, const het_profile *described) {
    het_profile count = *described;
    heti_t_arena arena;
    int64_t i, n, s;
    count.devices = heti_p_device_kinds(&m->context, NULL, NULL);
    count.links = m->context.device_count > 1 ? 1 : 0;
    HETI_T_TRY(heti_p_profile_new(&count, &m->allocator, "het_profile_measure", &m->profile, m->error));
    heti_p_profile_same(m->profile, described);
    arena.base = NULL;
    arena.used = 0;
    heti_p_measure_cut(m, &arena);
    m->size = arena.used;
    HETI_T_TRY(heti_t_block(&m->allocator, m->size, "het_profile_measure", &m->block, m->error));
    arena.base = HETI_T_CAST(char *, m->block);
    arena.used = 0;
    heti_p_measure_cut(m, &arena);
    (void)heti_p_device_kinds(&m->context, m->group, NULL);
    for (i = m->context.device_count; i-- > 0;) heti_p_device_name(m, i, &m->profile->device[m->group[i]]);
    if (m->desc->desc->units == NULL)
        HETI_T_TRY(het_model_units(&m->context.model, m->original, m->profile->units, &n, m->error));
    else memcpy(m->original, m->desc->desc->units, HETI_T_CAST(size_t, m->profile->units) * sizeof *m->original);
    for (i = 0; i < m->profile->units; i++)
        if (m->original[i].model == NULL) m->original[i].model = &m->context.model;
    heti_p_choose_units(m);
    heti_p_measure_desc(m);
    HETI_T_TRY(heti_p_choose_shapes(m));
    m->profile->granule = m->sample[0].granule;
    for (i = 0; i <= m->context.max_tokens; i++)
        m->token[i] =
        HETI_T_CAST(int32_t, HETI_T_CAST(uint64_t, i) * UINT64_C(2654435761) % HETI_T_CAST(
            uint64_t, m->context.model.vocab));
    for (s = 0; s < m->shapes; s++) heti_p_fill_batch(m, s);
    HETI_T_TRY(heti_p_measure_devices(m));
    return m->profile->links > 0 ? heti_p_measure_links(m) : HET_OK;
}

HETRAIN_API het_result het_profile_measure(const het_measure_desc *desc, het_profile **profile, het_error *error) {
    heti_p_measure m;
    het_profile *described = NULL;
    het_result result;
    if (profile == NULL) return heti_t_fail(error, HET_ERR_INVALID, "het_profile_measure: profile is NULL");
    *profile = NULL;
    if (desc == NULL || desc->desc == NULL || desc->now == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_profile_measure: %s is NULL", desc == NULL ? "desc" :
                           desc->desc == NULL ? "desc->desc"
            : "desc->now, the clock,");
    if (desc->start_canary != 0 || desc->end_canary != 0)
        return heti_t_fail(error, HET_ERR_INVALID, "het_profile_measure: het_measure_desc was not cleared");
    if (!(desc->seconds >= 0 && desc->seconds <= 1e6))
        return heti_t_fail(error, HET_ERR_INVALID, "het_profile_measure: %g seconds for a device", desc->seconds);
    memset(&m, 0, sizeof m);
    m.desc = desc;
    m.error = error;
    if (!heti_t_allocator(&desc->allocator, &m.allocator))
        return heti_t_fail(error, HET_ERR_INVALID, "het_profile_measure: an allocator needs both alloc and free");
    HETI_T_TRY(het_profile_describe(desc->desc, desc->model, &m.allocator, &described, error));
    m.context = *desc->desc;
    result = het_model_complete(&m.context.model, error);
    het_desc_defaults(&m.context);
    if (result == HET_OK) result = heti_p_measure_all(&m, described);
    het_profile_free(described);
    if (m.block != NULL) m.allocator.free(m.allocator.user, m.block, m.size);
    if (result != HET_OK) het_profile_free(m.profile);
    else *profile = m.profile;
    return result;
}

/* =================================================================================================
   >>cluster  Cluster files: groups within groups, each with a count. A group's members are read
              once for each of its copies, from the place where
   they stand in the text; the text is gone through twice, to count and to fill in.
   ============================================================================================== */

enum { HETI_P_MOST_RANKS = 1 << 20 };

typedef struct heti_p_cluster_reader {
    het_json json, order;             /* order: behind the ranks already given to devices */
    het_error *error;
    het_cluster *to;                  /* NULL: counts */
    int64_t ranks, groups;
    int ordered;
} heti_p_cluster_reader;

/* One member as it stands in the text. */
typedef struct heti_p_member {
    char name[48], device[48];
    int64_t count;
    double speed, memory, latency, bandwidth, bus, uplink;
    int process, has_members;
    uint32_t seen;
    het_json members, order;          /* at the arrays */
} heti_p_member;

/* "het_cluster_read: byte 71, "speed": -2: must be above 0" */
static het_result heti_p_cluster_bad(const heti_p_cluster_reader *r, size_t at, const char *key, const char *value,
                                     const char *rule) {
    char shown_key[49], shown[49];
    return heti_t_fail(r->error, HET_ERR_FORMAT, "het_cluster_read: byte %d, \"%s\"%s%s: %s", HETI_T_CAST(int64_t, at),
                       heti_p_shown(shown_key, key), value[0] != 0 ? ": " : "", heti_p_shown(shown, value), rule);
}

static het_result heti_p_cluster_json(const heti_p_cluster_reader *r, const char *key) {
    return heti_p_cluster_bad(r, r->json.rule_at, key, "", r->json.rule);
}

static het_result heti_p_cluster_number_bad(const heti_p_cluster_reader *r, size_t at, const char *key, double value,
                                            const char *rule) {
    char room[48];
    heti_t_text text = heti_t_text_in(room, sizeof room);
    heti_t_real(&text, value);
    return heti_p_cluster_bad(r, at, key, room, rule);
}

static het_result heti_p_cluster_name(heti_p_cluster_reader *r, const char *key, char name[48]) {
    const size_t at = r->json.at;
    size_t length = 0;
    if (!het_json_string(&r->json, name, 48, &length)) return heti_p_cluster_json(r, key);
    if (length > 0 && length < 48 && strlen(name) == length) return HET_OK;
    return heti_p_cluster_bad(r, at, key, name, "a name has 1 to 47 bytes and no 0");
}

/* "12.5ms" or "10G": a number and what stands behind it. */
static int heti_p_with_unit(const char *text, int seconds, double *value) {
    static const char *const heti_p_units[2][9] = { { "", "K", "M", "G", "T", "Ki", "Mi", "Gi", "Ti" },
                                                   { "", "s", "ms", "us", "ns" } };
    static const double heti_p_factors[2][9] = { { 1, 1e3, 1e6, 1e9, 1e12, 1024, 1048576, 1073741824.0,
                                                  1099511627776.0 }, { 1, 1, 1e3, 1e6, 1e9 } };
    const int units = seconds ? 5 : 9;
    size_t digits = 0;
    het_json json;
    int i;
    while ((text[digits] >= '0' && text[digits] <= '9') || text[digits] == '.') digits++;
    json = het_json_start(text, digits);
    if (!het_json_real(&json, value) || !het_json_end(&json)) return 0;
    for (i = 0; i < units && strcmp(text + digits, heti_p_units[seconds][i]) != 0; i++) {}
    if (i == units) return 0;
    *value = seconds ? *value / heti_p_factors[1][i] : *value * heti_p_factors[0][i];
    return 1;
}

/* A number, or text with a unit, from 0 to 1e18. */
static het_result heti_p_cluster_quantity(heti_p_cluster_reader *r, const char *key, int seconds, double *value) {
    static const char *const heti_p_rules[2] =
        { "must be from 0 to 1e18 bytes, as a number or with K, M, G or T behind it",
        "must be from 0 to 1e18 seconds, as a number or with s, ms, us or ns behind it" };
    const size_t at = r->json.at;
    size_t length = 0;
    char text[48] = "";
    if (het_json_peek(&r->json) == HET_JSON_STRING) {
        if (!het_json_string(&r->json, text, sizeof text, &length)) return heti_p_cluster_json(r, key);
        if (length >= sizeof text || strlen(text) != length || !heti_p_with_unit(text, seconds, value))
            return heti_p_cluster_bad(r, at, key, text, heti_p_rules[seconds]);
    } else if (!het_json_real(&r->json, value)) return heti_p_cluster_json(r, key);
    return *value >= 0 && *value <= 1e18 ? HET_OK : heti_p_cluster_number_bad(r, at, key, *value,
        heti_p_rules[seconds]);
}

static het_result heti_p_cluster_link(heti_p_cluster_reader *r, heti_p_member *m) {
    char key[64] = "link";
    size_t length;
    unsigned seen = 0;
    het_json_enter(&r->json, HET_JSON_OBJECT);
    while (het_json_next(&r->json, key, sizeof key, &length)) {
        const unsigned which = strcmp(key, "latency") == 0 ? 1u : strcmp(key, "bandwidth") == 0 ? 2u : 0u;
        if (which == 0)
            return heti_p_cluster_bad(r, r->json.at, key, "", "no such key in \"link\": latency, bandwidth");
        if ((seen & which) != 0) return heti_p_cluster_bad(r, r->json.at, key, "", "this key comes twice");
        seen |= which;
        HETI_T_TRY(heti_p_cluster_quantity(r, key, which == 1, which == 1 ? &m->latency : &m->bandwidth));
    }
    return r->json.rule == NULL ? HET_OK : heti_p_cluster_json(r, key);
}

static het_result heti_p_cluster_value(heti_p_cluster_reader *r, int which, const char *key, heti_p_member *m) {
    const size_t at = r->json.at;
    switch (which) {
    case 0: return heti_p_cluster_name(r, key, m->device);
    case 1: return heti_p_cluster_name(r, key, m->name);
    case 2:
        if (!het_json_integer(&r->json, &m->count)) return heti_p_cluster_json(r, key);
        if (m->count >= 1 && m->count <= HETI_P_MOST_RANKS) return HET_OK;
        return heti_p_cluster_number_bad(r, at, key, HETI_T_CAST(double, m->count), "must be from 1 to 1048576");
    case 3:
        if (!het_json_real(&r->json, &m->speed)) return heti_p_cluster_json(r, key);
        if (m->speed > 0 && m->speed <= 1e6) return HET_OK;
        return heti_p_cluster_number_bad(r, at, key, m->speed, "must be above 0 and at most 1e6");
    case 4: return heti_p_cluster_quantity(r, key, 0, &m->memory);
    case 5: return het_json_boolean(&r->json, &m->process) ? HET_OK : heti_p_cluster_json(r, key);
    case 6: return heti_p_cluster_link(r, m);
    case 7: return heti_p_cluster_quantity(r, key, 0, &m->bus);
    case 8: return heti_p_cluster_quantity(r, key, 0, &m->uplink);
    case 9:
        m->order = r->json;
        if (het_json_peek(&r->json) != HET_JSON_ARRAY)
            return heti_p_cluster_bad(r, at, key, "", "must be an array of ranks");
        return het_json_skip(&r->json) ? HET_OK : heti_p_cluster_json(r, key);
    default:
        m->members = r->json;
        m->has_members = 1;
        if (het_json_peek(&r->json) != HET_JSON_ARRAY)
            return heti_p_cluster_bad(r, at, key, "", "must be an array of devices and groups");
        return het_json_skip(&r->json) ? HET_OK : heti_p_cluster_json(r, key);
    }
}

/* All keys of one member, its members left for later. */
static het_result heti_p_cluster_member(heti_p_cluster_reader *r, int root, heti_p_member *m) {
    enum { HETI_P_KEYS = 11 };
    static const char *const heti_p_keys[HETI_P_KEYS] = { "device", "name", "count", "speed", "memory", "process",
                                                         "link", "bus", "uplink",
        "ranks", "members" };
    /* bits of the keys that each may have */
    const uint32_t devices = UINT32_C(0x01F), groups = UINT32_C(0x5E6) | (root ? UINT32_C(0x200) : 0);
    char key[64] = "members";
    size_t length, start = r->json.at;
    int i;
    memset(m, 0, sizeof *m);
    m->count = 1;
    m->speed = 1;
    if (het_json_peek(&r->json) != HET_JSON_OBJECT)
        return heti_p_cluster_bad(r, start, "members", "", "a device or a group is an object");
    het_json_enter(&r->json, HET_JSON_OBJECT);
    while (het_json_next(&r->json, key, sizeof key, &length)) {
        for (i = 0; i < HETI_P_KEYS && (length >= sizeof key || strcmp(key, heti_p_keys[i]) != 0); i++) {}
        if (i == HETI_P_KEYS)
            return heti_p_cluster_bad(r, r->json.at, key, "",
                "no such key: device, name, count, speed, memory; or name, count, process, link, bus, uplink, members");
        if ((m->seen >> i & 1u) != 0) return heti_p_cluster_bad(r, r->json.at, key, "", "this key comes twice");
        m->seen |= UINT32_C(1) << i;
        HETI_T_TRY(heti_p_cluster_value(r, i, key, m));
    }
    if (r->json.rule != NULL) return heti_p_cluster_json(r, key);
    if ((m->seen & 1u) == 0 && !m->has_members)
        return heti_p_cluster_bad(r, start, "members", "", "is missing, and so is \"device\": which is it?");
    for (i = 0; i < HETI_P_KEYS; i++)
        if ((m->seen >> i & 1u) != 0 && ((m->has_members ? groups : devices) >> i & 1u) == 0)
            return heti_p_cluster_bad(r, start, heti_p_keys[i], "",
                !m->has_members ? "no such key in a device" : i == 9 ? "belongs into the outermost group" :
                "no such key in what has \"members\"");
    if (root && !m->has_members)
        return heti_p_cluster_bad(r, start, "members", "", "the whole file is a group: it needs \"members\"");
    if (root && m->count != 1)
        return heti_p_cluster_number_bad(r, start, "count", HETI_T_CAST(double, m->count),
                                         "there is one outermost group");
    return HET_OK;
}

/* The name, with its number where there are several: "node#7". */
static het_result heti_p_cluster_number(const heti_p_cluster_reader *r, size_t at, const char *name, int64_t count,
                                        int64_t index, char to[48]) {
    char whole[80];
    heti_t_text text = heti_t_text_in(whole, sizeof whole);
    heti_t_put(&text, name);
    if (count > 1) heti_t_format(&text, "#%d", index);
    if (text.length > 47) return heti_p_cluster_bad(r, at, "name", whole, "has more than 47 bytes");
    memcpy(to, whole, text.length + 1);
    return HET_OK;
}

/* The next of the ranks that devices are: one that no device before is. */
static het_result heti_p_cluster_next_rank(heti_p_cluster_reader *r, int64_t *rank) {
    const int more = het_json_next(&r->order, NULL, 0, NULL);
    const size_t at = r->order.at;
    if (more) (void)het_json_integer(&r->order, rank);
    if (r->order.rule != NULL) return heti_p_cluster_bad(r, r->order.rule_at, "ranks", "", r->order.rule);
    if (!more) return heti_p_cluster_bad(r, at, "ranks", "", "fewer than there are devices");
    if (*rank >= 0 && *rank < r->to->ranks && r->to->device[*rank].profile[0] == 0) return HET_OK;
    return heti_p_cluster_number_bad(r, at, "ranks", HETI_T_CAST(double, *rank), "ranks count from 0, each comes once");
}

static het_result heti_p_cluster_devices(heti_p_cluster_reader *r, size_t at, const heti_p_member *m, int64_t group) {
    int64_t i;
    if (m->count > HETI_P_MOST_RANKS - r->ranks)
        return heti_p_cluster_bad(r, at, "count", "", "more than 1048576 devices in the cluster");
    for (i = 0; i < m->count && r->to != NULL; i++) {
        int64_t rank = r->ranks + i;
        het_cluster_device *device;
        if (r->ordered) HETI_T_TRY(heti_p_cluster_next_rank(r, &rank));
        device = &r->to->device[rank];
        HETI_T_TRY(heti_p_cluster_number(r, at, (m->seen & 2u) != 0 ? m->name : m->device, m->count, i, device->name));
        memcpy(device->profile, m->device, sizeof device->profile);
        device->speed = m->speed;
        device->memory = m->memory;
        device->group = group;
    }
    r->ranks += m->count;
    return HET_OK;
}

/* The cursor stands at a member of group `parent` (-1: at the whole); `process` is 1 where that is
   inside one. */
static het_result heti_p_cluster_read(heti_p_cluster_reader *r, int64_t parent, int process) {
    const size_t at = r->json.at;
    heti_p_member m;
    het_json behind;
    int64_t i;
    HETI_T_TRY(heti_p_cluster_member(r, parent < 0, &m));
    if (!m.has_members) return heti_p_cluster_devices(r, at, &m, parent);
    if (parent < 0 && (m.seen >> 9 & 1u) != 0) {
        r->order = m.order;
        r->ordered = 1;
        het_json_enter(&r->order, HET_JSON_ARRAY);
    }
    if (m.process && process) return heti_p_cluster_bad(r, at, "process", "", "is inside another process");
    behind = r->json;
    for (i = 0; i < m.count; i++) {
        const int64_t g = r->groups++, ranks = r->ranks;
        if (g >= HETI_P_MOST_RANKS)
            return heti_p_cluster_bad(r, at, "count", "", "more than 1048576 groups in the cluster");
        if (r->to != NULL) {
            het_group *group = &r->to->group[g];
            HETI_T_TRY(heti_p_cluster_number(r, at, m.name, m.count, i, group->name));
            group->parent = parent;
            group->latency = m.latency;
            group->bandwidth = m.bandwidth;
            group->bus = m.bus;
            group->uplink = m.uplink;
            group->process = m.process;
        }
        r->json = m.members;
        het_json_enter(&r->json, HET_JSON_ARRAY);
        while (het_json_next(&r->json, NULL, 0, NULL)) HETI_T_TRY(heti_p_cluster_read(r, g, process || m.process));
        if (r->json.rule != NULL) return heti_p_cluster_json(r, "members");
        if (r->ranks == ranks)
            return heti_p_cluster_bad(r, m.members.at, "members", "", "a group has at least one device");
    }
    r->json = behind;
    if (parent < 0) memcpy(r->to != NULL ? r->to->name : m.name, m.name, sizeof m.name);
    return HET_OK;
}

static void heti_p_cluster_cut(het_cluster **cluster, int64_t ranks, int64_t groups, heti_t_arena *arena) {
    het_cluster *c = HETI_T_TAKE(arena, het_cluster, 1);
    het_cluster_device *device = HETI_T_TAKE(arena, het_cluster_device, ranks);
    het_group *group = HETI_T_TAKE(arena, het_group, groups);
    *cluster = c;
    if (c == NULL) return;
    c->ranks = ranks;
    c->groups = groups;
    c->device = device;
    c->group = group;
}

static het_result heti_p_cluster_new(int64_t ranks, int64_t groups, const het_allocator *allocator, const char *call,
                                     het_cluster **cluster, het_error *error) {
    heti_t_arena arena;
    void *block;
    size_t size;
    arena.base = NULL;
    arena.used = 0;
    heti_p_cluster_cut(cluster, ranks, groups, &arena);
    size = arena.used;
    HETI_T_TRY(heti_t_block(allocator, size, call, &block, error));
    arena.base = HETI_T_CAST(char *, block);
    arena.used = 0;
    heti_p_cluster_cut(cluster, ranks, groups, &arena);
    (*cluster)->allocator = *allocator;
    (*cluster)->size = size;
    return HET_OK;
}

static het_result heti_p_cluster_pass(heti_p_cluster_reader *r, const char *text, size_t length) {
    r->json = het_json_start(text, length);
    r->ranks = r->groups = 0;
    HETI_T_TRY(heti_p_cluster_read(r, -1, 0));
    if (r->to != NULL && r->ordered && het_json_next(&r->order, NULL, 0, NULL))
        return heti_p_cluster_bad(r, r->order.at, "ranks", "", "more than there are devices");
    return het_json_end(&r->json) ? HET_OK : heti_p_cluster_json(r, "members");
}

HETRAIN_API het_result het_cluster_read(const char *text, size_t length, const het_allocator *allocator,
                                        het_cluster **cluster, het_error *error) {
    heti_p_cluster_reader r;
    het_allocator own;
    het_result result;
    if (cluster == NULL || text == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_cluster_read: %s is NULL", cluster == NULL ? "cluster" :
                           "text");
    *cluster = NULL;
    if (!heti_t_allocator(allocator, &own))
        return heti_t_fail(error, HET_ERR_INVALID, "het_cluster_read: an allocator needs both alloc and free");
    memset(&r, 0, sizeof r);
    r.error = error;
    HETI_T_TRY(heti_p_cluster_pass(&r, text, length));
    HETI_T_TRY(heti_p_cluster_new(r.ranks, r.groups, &own, "het_cluster_read", &r.to, error));
    result = heti_p_cluster_pass(&r, text, length);
    if (result != HET_OK) het_cluster_free(r.to);
    else *cluster = r.to;
    return result;
}

HETRAIN_API void het_cluster_free(het_cluster *cluster) {
    het_allocator allocator;
    if (cluster == NULL) return;
    allocator = cluster->allocator;
    allocator.free(allocator.user, cluster, cluster->size);
}

HETRAIN_API het_result het_cluster_flat(int64_t ranks, const het_cluster_device *device, double latency,
                                        double bandwidth, const het_allocator *allocator, het_cluster **cluster,
                                               het_error *error) {
    het_allocator own;
    int64_t i;
    if (cluster == NULL) return heti_t_fail(error, HET_ERR_INVALID, "het_cluster_flat: cluster is NULL");
    *cluster = NULL;
    if (ranks < 1 || ranks > HETI_P_MOST_RANKS || !heti_p_is_time(latency) || !heti_p_is_time(bandwidth))
        return heti_t_fail(error, HET_ERR_INVALID,
                           "het_cluster_flat: %d devices (1 to 1048576), latency %g, bandwidth %g", ranks, latency,
                           bandwidth);
    if (!heti_t_allocator(allocator, &own))
        return heti_t_fail(error, HET_ERR_INVALID, "het_cluster_flat: an allocator needs both alloc and free");
    for (i = 0; i < ranks && device != NULL; i++)
        if (!(device[i].speed > 0 && device[i].speed <= 1e6) || !heti_p_is_time(device[i].memory))
            return heti_t_fail(error, HET_ERR_INVALID, "het_cluster_flat: device %d has speed %g (above 0, at most "
                                                       "1e6) and memory %g", i, device[i].speed, device[i].memory);
    HETI_T_TRY(heti_p_cluster_new(ranks, 1, &own, "het_cluster_flat", cluster, error));
    (*cluster)->group[0].parent = -1;
    (*cluster)->group[0].latency = latency;
    (*cluster)->group[0].bandwidth = bandwidth;
    (*cluster)->group[0].process = 1;
    for (i = 0; i < ranks; i++) {
        het_cluster_device *to = &(*cluster)->device[i];
        if (device != NULL) *to = device[i];
        else {
            heti_t_text name = heti_t_text_in(to->name, sizeof to->name);
            heti_t_text profile = heti_t_text_in(to->profile, sizeof to->profile);
            heti_t_format(&name, ranks > 1 ? "device#%d" : "device", i);
            heti_t_put(&profile, "device");
            to->speed = 1;
        }
        to->group = 0;
    }
    return HET_OK;
}

/* ---- writing: equal members that follow each other become one with a count ---- */

/* What is being written, and what comes next. */
typedef struct heti_p_cluster_writer {
    const het_cluster *cluster;
    heti_t_text out;
    char room[4096];
    int64_t rank, group;
    int bad;                          /* devices or groups are not in the order in which a file would give them */
} heti_p_cluster_writer;

/* Behind the groups that are inside group g. */
static int64_t heti_p_groups_end(const het_cluster *c, int64_t g) {
    int64_t end = g + 1;
    while (end < c->groups && c->group[end].parent >= g) end++;
    return end;
}

/* Behind the devices from `rank` on that are in groups [g, end). */
static int64_t heti_p_devices_end(const het_cluster *c, int64_t rank, int64_t g, int64_t end) {
    while (rank < c->ranks && c->device[rank].group >= g && c->device[rank].group < end) rank++;
    return rank;
}

/* "node#7" is "node" and 7; anything else has no number. */
static int64_t heti_p_name_number(const char *name, size_t *base) {
    size_t length = strlen(name), at = length;
    int64_t number = 0;
    *base = length;
    while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9') at--;
    if (at == length || at == 0 || name[at - 1] != '#' || length - at > 7 || (name[at] == '0' && length - at > 1))
        return -1;
    for (*base = at - 1; at < length; at++) number = 10 * number + (name[at] - '0');
    return number;
}

/* The first is base#0 and the other base#number. */
static int heti_p_names_count(const char *first, const char *other, int64_t number) {
    size_t base, other_base;
    return heti_p_name_number(first, &base) == 0 && heti_p_name_number(other, &other_base) == number &&
        base == other_base &&
        memcmp(first, other, base) == 0;
}

static int heti_p_same_device(const het_cluster_device *a, const het_cluster_device *b) {
    return strcmp(a->profile, b->profile) == 0 && !(a->speed < b->speed) && !(b->speed < a->speed) &&
        !(a->memory < b->memory) &&
        !(b->memory < a->memory);
}

static int heti_p_same_group(const het_group *a, const het_group *b) {
    const double x[4] = { a->latency, a->bandwidth, a->bus, a->uplink },
                 y[4] = { b->latency, b->bandwidth, b->bus, b->uplink };
    int i;
    for (i = 0; i < 4; i++)
        if (x[i] < y[i] || y[i] < x[i]) return 0;
    return (a->process != 0) == (b->process != 0);
}

/* Groups [g, ...) and [h, ...) with the devices from rank on are alike but for the number in the
   name of the outermost. */
static int heti_p_same_members(const het_cluster *c, int64_t g, int64_t rank, int64_t h, int64_t other) {
    const int64_t end = heti_p_groups_end(c, g), count = end - g, ranks = heti_p_devices_end(c, rank, g, end) - rank;
    int64_t i;
    if (heti_p_groups_end(c, h) - h != count || heti_p_devices_end(c, other, h, h + count) - other != ranks) return 0;
    for (i = 0; i < count; i++)
        if (!heti_p_same_group(&c->group[g + i], &c->group[h + i]) ||
            (i > 0 && (c->group[g + i].parent - g != c->group[h + i].parent - h ||
                       strcmp(c->group[g + i].name, c->group[h + i].name) != 0)))
            return 0;
    for (i = 0; i < ranks; i++)
        if (!heti_p_same_device(&c->device[rank + i], &c->device[other + i]) ||
            c->device[rank + i].group - g != c->device[other + i].group - h || strcmp(c->device[rank + i].name,
                c->device[other + i].name) != 0)
            return 0;
    return 1;
}

/* ,"key":value, where it is not 0. */
static void heti_p_out_key(heti_t_text *out, const char *key, double value) {
    if (!(value > 0)) return;
    heti_t_format(out, ",\"%s\":", key);
    heti_t_real(out, value);
}

static void heti_p_out_member(heti_t_text *out, const char *name, size_t length, int64_t count) {
    char base[48];
    memcpy(base, name, length);
    base[length] = 0;
    if (length > 0) {
        heti_t_put(out, ",\"name\":");
        heti_t_json(out, base, strlen(base));
    }
    if (count > 1) heti_t_format(out, ",\"count\":%d", count);
}

/* n devices, of which this is the first. */
static void heti_p_write_device(heti_t_text *out, const het_cluster_device *device, int64_t n) {
    size_t length = strlen(device->name);
    if (n > 1) (void)heti_p_name_number(device->name, &length);
    heti_t_put(out, "{\"device\":");
    heti_t_json(out, device->profile, strlen(device->profile));
    if (strlen(device->profile) == length && memcmp(device->name, device->profile, length) == 0) length = 0;
    heti_p_out_member(out, device->name, length, n);
    if (device->speed < 1 || device->speed > 1) heti_p_out_key(out, "speed", device->speed);
    heti_p_out_key(out, "memory", device->memory);
    heti_t_char(out, '}');
}

static void heti_p_write_devices(heti_p_cluster_writer *w) {
    const het_cluster *c = w->cluster;
    const het_cluster_device *device = &c->device[w->rank];
    int64_t n = 1;
    while (w->rank + n < c->ranks && device[n].group == device->group && heti_p_same_device(device, &device[n]) &&
           heti_p_names_count(device->name, device[n].name, n)) n++;
    heti_p_write_device(&w->out, device, n);
    w->rank += n;
}

/* All of n groups, of which this is the first, up to their members. */
static void heti_p_write_link(heti_t_text *out, const het_group *group, int64_t n) {
    size_t length = strlen(group->name);
    if (n > 1) (void)heti_p_name_number(group->name, &length);
    heti_t_put(out, "{\"link\":{\"latency\":");
    heti_t_real(out, group->latency);
    heti_p_out_key(out, "bandwidth", group->bandwidth);
    heti_t_char(out, '}');
    heti_p_out_member(out, group->name, length, n);
    if (group->process) heti_t_put(out, ",\"process\":true");
    heti_p_out_key(out, "bus", group->bus);
    heti_p_out_key(out, "uplink", group->uplink);
    heti_t_put(out, ",\"members\":[");
}

static void heti_p_write_next(heti_t_text *out, int more, int depth) {
    heti_t_put(out, more ? ",\n" : "\n");
    for (; depth >= 0; depth--) heti_t_put(out, "  ");
}

static void heti_p_write_group(heti_p_cluster_writer *w, int depth) {
    const het_cluster *c = w->cluster;
    const int64_t g = w->group, first = w->rank, size = heti_p_groups_end(c, g) - g,
                  ranks = heti_p_devices_end(c, first, g, g + size) - first;
    const het_group *group = &c->group[g];
    int64_t n = 1;
    int more = 0;
    while (g + n * size < c->groups && c->group[g + n * size].parent == group->parent &&
           heti_p_names_count(group->name, c->group[g + n * size].name, n) &&
           heti_p_same_members(c, g, first, g + n * size, first + n * ranks)) n++;
    heti_p_write_link(&w->out, group, n);
    for (w->group++; !w->bad; more = 1) {
        const int is_device = w->rank < c->ranks && c->device[w->rank].group == g;
        if (!is_device && !(w->group < c->groups && c->group[w->group].parent == g)) break;
        heti_p_write_next(&w->out, more, depth);
        if (is_device) heti_p_write_devices(w);
        else if (depth < HETI_P_MOST_DEPTH) heti_p_write_group(w, depth + 1);
        else w->bad = 1;
    }
    heti_t_put(&w->out, "]}");
    if (w->rank == first || w->rank != first + ranks || w->group != g + size) w->bad = 1;
    w->rank = first + n * ranks;
    w->group = g + n * size;
}

/* A group of any order: its devices, then its groups; or only their ranks. Returns how many devices
   there were. */
static int64_t heti_p_write_any(heti_p_cluster_writer *w, int64_t g, int depth, int ranks) {
    const het_cluster *c = w->cluster;
    int64_t i, devices = 0;
    int more = 0;
    if (!ranks) heti_p_write_link(&w->out, &c->group[g], 1);
    for (i = 0; i < c->ranks; i++) {
        if (c->device[i].group != g) continue;
        if (ranks) heti_t_format(&w->out, w->rank > 0 ? ",%d" : "%d", i);
        else {
            heti_p_write_next(&w->out, more++, depth);
            heti_p_write_device(&w->out, &c->device[i], 1);
        }
        devices++;
        w->rank++;
    }
    for (i = g + 1; i < c->groups && depth < HETI_P_MOST_DEPTH; i++) {
        if (c->group[i].parent != g) continue;
        if (!ranks) heti_p_write_next(&w->out, more++, depth);
        devices += heti_p_write_any(w, i, depth + 1, ranks);
    }
    if (devices == 0) w->bad = 1;
    if (!ranks) heti_t_char(&w->out, ']');
    if (!ranks && depth > 0) heti_t_char(&w->out, '}');
    return devices;
}

static int heti_p_write_nothing(void *user, const void *from, size_t size) {
    (void)user, (void)from, (void)size;
    return 0;
}

/* Whether the devices and groups are in a file's order, or all of them somewhere. */
static int heti_p_cluster_is(const het_cluster *cluster, int any) {
    static const het_writer heti_p_nothing = { heti_p_write_nothing, NULL, NULL };
    heti_p_cluster_writer w;
    memset(&w, 0, sizeof w);
    w.cluster = cluster;
    w.out = heti_t_text_to(&heti_p_nothing, w.room, sizeof w.room);
    if (any) (void)heti_p_write_any(&w, 0, 0, 1);
    else heti_p_write_group(&w, 0);
    return !w.bad && w.rank == cluster->ranks && (any || w.group == cluster->groups);
}

HETRAIN_API het_result het_cluster_write(const het_cluster *cluster, const het_writer *to) {
    heti_p_cluster_writer w;
    int64_t i;
    if (cluster == NULL || to == NULL || to->write == NULL || cluster->ranks < 1 || cluster->groups < 1)
        return HET_ERR_INVALID;
    for (i = 0; i < cluster->groups; i++)
        if (cluster->group[i].parent >= i || (cluster->group[i].parent < 0) != (i == 0)) return HET_ERR_INVALID;
    memset(&w, 0, sizeof w);
    w.cluster = cluster;
    w.out = heti_t_text_to(to, w.room, sizeof w.room);
    if (heti_p_cluster_is(cluster, 0)) heti_p_write_group(&w, 0);
    else {
        if (!heti_p_cluster_is(cluster, 1)) return HET_ERR_INVALID;
        (void)heti_p_write_any(&w, 0, 0, 0);
        w.rank = 0;
        heti_t_put(&w.out, ",\n  \"ranks\":[");
        (void)heti_p_write_any(&w, 0, 0, 1);
        heti_t_put(&w.out, "]}");
    }
    heti_t_char(&w.out, '\n');
    return heti_t_end(&w.out);
}

/* =================================================================================================
   >>search  The planner. A choice is a plan of the searched space in short form. Bounds are cheap
             and never above what the simulator says, so what
   they rule out needs no lists. Small spaces are gone through completely; large ones begin with
   choices made along the cluster's groups and are improved by moves.
   ============================================================================================== */

enum { HETI_P_PLACE_ANY = 0, HETI_P_PLACE_ROUND = 1, HETI_P_PLACE_V = 2 };
enum { HETI_P_STATE_EVEN = 0, HETI_P_STATE_SPEED = 1, HETI_P_STATE_MEMORY = 2, HETI_P_STATES = 3 };
enum {
    HETI_P_TIME_FORWARD = 0, HETI_P_TIME_BACKWARD = 1, HETI_P_TIME_INPUT = 2, HETI_P_TIME_WEIGHT = 3,
        HETI_P_TIME_RECOMPUTE = 4,
    HETI_P_TIME_CURVES = 5,
    HETI_P_BOTH = 2 * HETI_P_TIME_CURVES, /* F and B; one more: F, I and W */
    HETI_P_SUMS = 2 * HETI_P_TIME_CURVES + 2,
    /* added to one of them: what it takes at least, however many ranks are at work beside */
    HETI_P_LEAST = HETI_P_TIME_CURVES
};

#define HETI_P_MOST_SCHEDULES 16
#define HETI_P_NONE 1e300   /* seconds of what does not exist */
/* seconds of a choice that does not fit into memory: this times 1 + the bytes that are missing */
#define HETI_P_MISFIT 1e200

/* A name of het_schedule_make as the planner sees it. */
typedef struct heti_p_maker {
    const char *name;
    int32_t place, split, limited, all, usual; /* all: keeps every micro-batch at once */
} heti_p_maker;

static const heti_p_maker *heti_p_order_at(int64_t i) {
    static const heti_p_maker heti_p_orders[] = {
        { "1f1b", HETI_P_PLACE_ANY, 0, 0, 0, 1 },          { "gpipe", HETI_P_PLACE_ANY, 0, 0, 1, 1 },
        { "zb-h1", HETI_P_PLACE_ANY, 1, 0, 0, 1 },         { "zb-h2", HETI_P_PLACE_ANY, 1, 0, 0, 0 },
        { "greedy", HETI_P_PLACE_ANY, 1, 1, 0, 1 },        { "interleaved", HETI_P_PLACE_ROUND, 0, 0, 0, 1 },
        { "zb-v", HETI_P_PLACE_V, 1, 0, 0, 1 },            { "v-half", HETI_P_PLACE_V, 1, 0, 0, 0 },
        { "v-min", HETI_P_PLACE_V, 1, 0, 0, 0 },           { "dualpipev", HETI_P_PLACE_V, 1, 0, 0, 0 }
    };
    return i < HETI_T_CAST(int64_t, sizeof heti_p_orders / sizeof *heti_p_orders) ? &heti_p_orders[i] : NULL;
}

static int heti_p_same_text(const char *a, const char *b) {
    while (*a != 0 && *a == *b) { a++; b++; }
    return *a == *b;
}

/* A plan in short form. Pipeline p has the devices device[first[p]] .. device[first[p + 1] - 1];
   its stage s ends before unit end[chunks first[p] + s]. */
typedef struct heti_p_choice {
    int64_t pipelines, granules, order, limit; /* order: of heti_p_seek.order; limit: 0 none */
    int32_t state;                    /* HETI_P_STATE_ */
    double seconds;                   /* simulated */
    int64_t *first, *device, *end, *count;
    int32_t *recompute;               /* [places] as device */
} heti_p_choice;

/* What a pipeline takes by itself, without reductions: `at` for `count` micro-batches and `each`
   for every further one. */
typedef struct heti_p_memo {
    uint64_t key;
    int64_t count;
    double at, each;
} heti_p_memo;

#define HETI_P_MEMOS 16384

/* A choice that was judged. */
typedef struct heti_p_known { uint64_t key; double seconds; } heti_p_known;

#define HETI_P_KNOWN 32768

typedef struct heti_p_seek {
    het_search_desc d;                /* with its defaults */
    het_error *error;
    het_allocator allocator;
    int64_t ranks, units, kinds, orders, found_room;
    const heti_p_maker *order[HETI_P_MOST_SCHEDULES];
    int has[2];                       /* some schedule does B in one piece; splits it */
    /* devices: a kind is a profile, a speed and a memory */
    int64_t *kind_of;                 /* [ranks] */
    int64_t *kind_count;              /* [kinds] */
    int64_t *kind_device;             /* [kinds] its first device */
    const het_device_profile **times; /* [kinds] */
    het_curve *sum;                   /* [kinds][HETI_P_SUMS][units + 1] of units 0 .. u - 1 */
    double *rate;                     /* [kinds] granules a second of the whole chain */
    /* units */
    double *held, *kept;              /* [units + 1] before unit u: parameters; [2][units + 1] bytes
                                         kept a token, without and with recompute */
    double *least_held, *owned;       /* [units + 1] bytes likewise: of blocks by their first unit; of
                                         the state of those that no other unit has */
    double trained;                   /* parameters that are not frozen */
    int64_t *block_start;             /* [blocks + 1] into the profile's uses */
    double widest;                    /* scratch, streams and messages a token: the most of a unit */
    int64_t *depth;                   /* [groups] */
    /* what is worked on */
    het_plan plan;
    het_needs *needs;                 /* [ranks] */
    het_memory *memory;               /* [ranks] */
    double *work, *weight_work, *fill, *tail; /* [ranks] for the bound */
    double *pipeline_time, *pipeline_fill;    /* [ranks] a micro-batch; before the first is through */
    int64_t *scratch;                 /* [2 ranks] */
    double *reserve;                  /* [ranks] bytes that an estimate was short of */
    double *tokens, *pairs;           /* [granules] of micro-batches */
    int64_t *by_place, *by_speed;     /* [ranks] devices in two orders */
    int32_t *used, *taken, *fits;     /* [ranks] */
    int64_t last_counted;             /* the pipeline that has the last micro-batch */
    heti_p_memo *memo;                /* [HETI_P_MEMOS] pipelines that were simulated alone */
    het_plan alone;                   /* one pipeline, its devices as ranks 0, 1, ... */
    het_stage_cost *alone_stage;      /* [2 ranks] */
    int64_t *alone_group, *alone_key; /* [ranks], [5 ranks + 8] */
    double *ring;                     /* [ranks] seconds of reductions, updates and gathers */
    int32_t ignore_memory, climbing;
    int32_t plain;                    /* plans are simulated whole, so no pipeline is alone */
    double least_guess;               /* the shortest estimate of beginnings that fit */
    int32_t impossible;               /* the choice that was judged last is no plan */
    double missing;                   /* bytes, of the choice that was judged last; 0: it fits */
    int64_t missing_rank;
    double least_missing;             /* of all choices judged */
    int64_t least_missing_rank, least_missing_begin, least_missing_end;
    heti_p_choice now, next, best, sorted; /* present, tried, of this climb, in order */
    heti_p_choice *found;             /* [found_room] best first */
    int64_t found_count;
    heti_p_known *known;              /* [HETI_P_KNOWN] what moves came to */
    int64_t evaluations, skipped, moves;
    int64_t until;                    /* what is under way ends at so many evaluations, ten moves counting as one, */
    double until_seconds;             /* or at this time of the clock */
    int32_t exhaustive;
    het_result result;                /* what ends the search other than HET_OK: no memory */
    uint64_t random;
    double started;
} heti_p_seek;

/* ---- small tools ---- */

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t heti_p_random(heti_p_seek *s) {
    uint64_t z = s->random += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static int64_t heti_p_below(heti_p_seek *s, int64_t n) {
    return n < 2 ? 0 : HETI_T_CAST(int64_t, heti_p_random(s) % HETI_T_CAST(uint64_t, n));
}

static int64_t heti_p_min(int64_t a, int64_t b) { return a < b ? a : b; }
static double heti_p_larger(double a, double b) { return a > b ? a : b; }
static double heti_p_smaller(double a, double b) { return a < b ? a : b; }
static double heti_p_real(int64_t value) { return HETI_T_CAST(double, value); }

static int64_t heti_p_places(const heti_p_choice *c, int64_t p) { return c->first[p + 1] - c->first[p]; }
static int64_t heti_p_chunks(const heti_p_seek *s, const heti_p_choice *c) {
    return s->order[c->order]->place == HETI_P_PLACE_ANY ? 1 : 2;
}

/* Which of `places` devices has stage `stage`. */
static int64_t heti_p_place_of(const heti_p_maker *order, int64_t places, int64_t stage) {
    return stage < places ? stage : order->place == HETI_P_PLACE_V ? 2 * places - 1 - stage : stage - places;
}

static int64_t heti_p_micro_batches(const heti_p_seek *s, int64_t granules) {
    return (s->d.granules + granules - 1) / granules;
}
/* Granules of the last micro-batch of the step. */
static int64_t heti_p_rest(const heti_p_seek *s, int64_t granules) {
    return s->d.granules - (heti_p_micro_batches(s, granules) - 1) * granules;
}

/* Seconds of units [begin, end) on a kind of device for a micro-batch. */
static double heti_p_seconds(const heti_p_seek *s, int64_t kind, int what, int64_t begin, int64_t end,
                             int64_t granules) {
    const het_curve *sum = &s->sum[(kind * HETI_P_SUMS + what) * (s->units + 1)], *a = &sum[begin], *b = &sum[end];
    const double n = heti_p_real(granules);
    return b->base - a->base + n * ((b->token - a->token) * heti_p_real(s->d.granule_tokens) + (b->pair - a->pair) *
                                    s->d.granule_pairs);
}

/* The same as a stage: with one action and the copying of its messages. */
static double heti_p_stage_seconds(const heti_p_seek *s, int64_t kind, int what, int64_t begin, int64_t end,
                                   int64_t granules) {
    const het_profile *p = s->d.profile;
    const het_device_profile *t = s->times[kind];
    const double messages = p->kind[p->unit[begin]].input + p->kind[p->unit[end - 1]].output;
    const double copies = what % HETI_P_TIME_CURVES == HETI_P_TIME_WEIGHT ? 0 : messages * t->message_byte;
    return heti_p_seconds(s, kind, what, begin, end, granules) +
           (t->action + copies * heti_p_real(granules * s->d.granule_tokens)) /
           s->d.cluster->device[s->kind_device[kind]].speed;
}

/* F and the backward that the schedule has, of a stage; 0 where it is empty. */
static double heti_p_both(const heti_p_seek *s, int64_t kind, int split, int recompute, int64_t begin, int64_t end,
                          int64_t granules) {
    const het_profile *p = s->d.profile;
    const het_device_profile *device = s->times[kind];
    double t;
    if (begin == end) return 0;
    t = (split ? 3 : 2) * device->action + 2 * (p->kind[p->unit[begin]].input + p->kind[p->unit[end - 1]].output) *
        device->message_byte *
        heti_p_real(granules * s->d.granule_tokens);
    t = t / s->d.cluster->device[s->kind_device[kind]].speed + heti_p_seconds(s, kind, HETI_P_BOTH + (split ? 1 : 0),
        begin, end, granules);
    return recompute ? t + heti_p_seconds(s, kind, HETI_P_TIME_RECOMPUTE, begin, end, granules) : t;
}

/* The link of the smallest group that has both devices. */
static const het_group *heti_p_link_of(const heti_p_seek *s, int64_t a, int64_t b) {
    const het_cluster *c = s->d.cluster;
    int64_t i = c->device[a].group, j = c->device[b].group;
    while (i != j) {
        if (s->depth[i] >= s->depth[j]) i = c->group[i].parent;
        else j = c->group[j].parent;
    }
    return &c->group[i];
}

static double heti_p_message(const heti_p_seek *s, int64_t from, int64_t to, int64_t unit, int64_t granules) {
    const het_group *g = from == to ? NULL : heti_p_link_of(s, from, to);
    const double bytes = s->d.profile->kind[s->d.profile->unit[unit]].output *
                 heti_p_real(granules * s->d.granule_tokens);
    return g == NULL ? 0 : g->latency + (g->bandwidth > 0 ? bytes / g->bandwidth : 0);
}

static void heti_p_choice_copy(const heti_p_seek *s, heti_p_choice *to, const heti_p_choice *from) {
    const int64_t places = from->first[from->pipelines];
    const size_t n = HETI_T_CAST(size_t, places), p = HETI_T_CAST(size_t, from->pipelines);
    to->pipelines = from->pipelines;
    to->granules = from->granules;
    to->order = from->order;
    to->limit = from->limit;
    to->state = from->state;
    to->seconds = from->seconds;
    memcpy(to->first, from->first, (p + 1) * sizeof *to->first);
    memcpy(to->count, from->count, p * sizeof *to->count);
    memcpy(to->device, from->device, n * sizeof *to->device);
    memcpy(to->end, from->end, HETI_T_CAST(size_t, heti_p_chunks(s, from) * places) * sizeof *to->end);
    memcpy(to->recompute, from->recompute, n * sizeof *to->recompute);
}

/* Stages that are not empty and make up the chain; counts that make up the step; two stages a
   device only where there are pipelines. A stage of the last unit alone has nothing to
   recompute. */
static int heti_p_is_plan(const heti_p_seek *s, heti_p_choice *c) {
    const int64_t chunks = heti_p_chunks(s, c);
    int64_t p, i, left = heti_p_micro_batches(s, c->granules);
    if (chunks == 2 && c->first[c->pipelines] == c->pipelines) return 0;
    for (p = 0; p < c->pipelines; p++) {
        const int64_t places = heti_p_places(c, p), *end = &c->end[chunks * c->first[p]];
        if (c->count[p] < 0 || places < 1 || end[chunks * places - 1] != s->units) return 0;
        left -= c->count[p];
        for (i = 0; i < chunks * places; i++)
            if (end[i] <= (i == 0 ? 0 : end[i - 1])) return 0;
        i = heti_p_place_of(s->order[c->order], places, chunks * places - 1);
        if (chunks == 1 && places > 1 && end[places - 2] == s->units - 1) c->recompute[c->first[p] + i] = 0;
    }
    return c->pipelines > 0 && left == 0;
}

static const het_unit_time *heti_p_unit_times(const heti_p_seek *s, const het_device_profile *times) {
    return s->d.together == HET_NO ? times->alone : times->together;
}

/* ---- a choice as a plan, its memory, its time ---- */

static void heti_p_choice_plan(heti_p_seek *s, const heti_p_choice *c) {
    const heti_p_maker *order = s->order[c->order];
    const int64_t chunks = heti_p_chunks(s, c);
    het_plan *plan = &s->plan;
    int64_t p, g = 0, i;
    plan->pipelines = c->pipelines;
    plan->stages = chunks * c->first[c->pipelines];
    for (p = 0; p < c->pipelines; p++) {
        const int64_t places = heti_p_places(c, p);
        plan->first_stage[p] = g;
        plan->share[p] = heti_p_real(c->count[p]);
        for (i = 0; i < chunks * places; i++, g++) {
            const int64_t at = c->first[p] + heti_p_place_of(order, places, i);
            plan->stage[g].pipeline = p;
            plan->stage[g].rank = c->device[at];
            plan->stage[g].unit_begin = i == 0 ? 0 : c->end[g - 1];
            plan->stage[g].unit_end = c->end[g];
            plan->stage[g].recompute = c->recompute[at];
        }
    }
    plan->first_stage[c->pipelines] = g;
    for (i = 0; i < s->ranks; i++) plan->state_share[i] = 1;
    memset(plan->schedule, 0, sizeof plan->schedule);
    memcpy(plan->schedule, order->name, strlen(order->name));
    plan->memory_limit = heti_p_real(c->limit);
    plan->step.granules = s->d.granules, plan->step.micro_batch = c->granules;
    plan->step.sequences = s->d.granule_sequences, plan->step.length = s->d.granule_tokens / s->d.granule_sequences;
}

static void heti_p_choice_shape(const heti_p_seek *s, const heti_p_choice *c, het_shape *shape) {
    shape->tokens = c->granules * s->d.granule_tokens;
    shape->sequences = c->granules * s->d.granule_sequences;
    shape->granule = s->d.granule_tokens;
}

/* State by speed of the optimizer, or by what is left beside everything else. 0: not possible. */
static int heti_p_state_shares(heti_p_seek *s, const heti_p_choice *c) {
    int64_t i;
    double sum = 0;
    for (i = 0; i < c->first[c->pipelines] && c->state != HETI_P_STATE_EVEN; i++) {
        const int64_t r = c->device[i];
        const het_cluster_device *device = &s->d.cluster->device[r];
        const het_memory *m = &s->memory[r];
        const double element = s->times[s->kind_of[r]]->step_element;
        const double rest = HETI_T_CAST(double, m->device) + HETI_T_CAST(double, m->communication) -
                     HETI_T_CAST(double, m->optimizer);
        const double share = c->state == HETI_P_STATE_SPEED ? element > 0 ? device->speed / element : 0 :
                     device->memory - rest;
        if (c->state == HETI_P_STATE_SPEED ? !(element > 0) : !(device->memory > 0)) return 0;
        s->plan.state_share[r] = share > 0 ? share : 0;
        sum += s->plan.state_share[r];
    }
    return c->state == HETI_P_STATE_EVEN || sum > 0;
}

/* Sets missing: bytes over the limit of the rank that needs the most too many. */
static void heti_p_memory_missing(heti_p_seek *s) {
    int64_t r;
    s->missing = 0;
    for (r = 0; r < s->ranks; r++) {
        const double limit = s->d.cluster->device[r].memory;
        const double over = HETI_T_CAST(double, s->memory[r].device) + HETI_T_CAST(double, s->memory[r].communication) -
                     limit;
        if (limit <= 0 || !s->used[r] || over <= s->missing) continue;
        s->missing = over;
        s->missing_rank = r;
    }
}

/* The lists, complete. NULL in *schedule: such a plan cannot have this schedule. */
static het_result heti_p_choice_lists(heti_p_seek *s, const heti_p_choice *c, het_schedule **schedule) {
    het_schedule *compute = NULL;
    const het_profile *profile = s->d.profile;
    het_blocks blocks;
    het_error error;
    het_result result = het_schedule_make(&s->plan, c->count, &s->allocator, &compute, &error);
    *schedule = NULL;
    if (result == HET_OK) {
        blocks.count = profile->blocks;
        blocks.start = s->block_start;
        blocks.unit = profile->use;
        result = het_schedule_complete(&s->plan, &blocks, compute, &s->allocator, schedule, &error);
    }
    het_schedule_free(compute);
    if (result != HET_ERR_OOM) return HET_OK;
    return heti_t_fail(s->error, HET_ERR_OOM, "het_plan_search: %s", error.text);
}

/* Sizes of all micro-batches, pipeline by pipeline: only the last of the step may be smaller. */
static void heti_p_choice_sizes(heti_p_seek *s, const heti_p_choice *c) {
    const int64_t micro_batches = heti_p_micro_batches(s, c->granules);
    int64_t i;
    for (i = 0; i < micro_batches; i++) {
        const double granules = heti_p_real(i + 1 < micro_batches ? c->granules : heti_p_rest(s, c->granules));
        s->tokens[i] = granules * heti_p_real(s->d.granule_tokens);
        s->pairs[i] = granules * s->d.granule_pairs;
    }
}

/* Costs of the plan that s->plan holds, with the sizes of heti_p_choice_sizes. */
static het_result heti_p_choice_costs(heti_p_seek *s, het_plan_costs **costs) {
    HETI_T_TRY(het_profile_costs(s->d.profile, &s->plan, s->d.cluster, s->d.together, &s->allocator, costs, s->error));
    (*costs)->costs.tokens = s->tokens;
    (*costs)->costs.pairs = s->pairs;
    return HET_OK;
}

/* Bytes of every rank. lists NULL: only what a plan needs at least, one slot for each stage. */
static het_result heti_p_choice_memory(heti_p_seek *s, const heti_p_choice *c, const het_schedule *lists) {
    het_shape shape;
    int round;
    heti_p_choice_shape(s, c, &shape);
    memset(s->needs, 0, HETI_T_CAST(size_t, s->ranks) * sizeof *s->needs);
    if (lists != NULL) HETI_T_TRY(het_profile_needs(&s->plan, lists, &s->allocator, s->needs, s->error));
    memset(s->used, 0, HETI_T_CAST(size_t, s->ranks) * sizeof *s->used);
    for (round = 0; round < HETI_T_CAST(int, c->first[c->pipelines]); round++) s->used[c->device[round]] = 1;
    s->impossible = 0;
    HETI_T_TRY(het_profile_memory(s->d.profile, &s->plan, s->needs, &shape, s->memory, s->error));
    if (c->state == HETI_P_STATE_EVEN || lists == NULL) return HET_OK;
    s->impossible = !heti_p_state_shares(s, c);
    if (s->impossible) return HET_OK;
    return het_profile_memory(s->d.profile, &s->plan, s->needs, &shape, s->memory, s->error);
}

static void heti_p_note_missing(heti_p_seek *s, const heti_p_choice *c) {
    int64_t g, begin = s->units, end = 0;
    if (s->missing >= s->least_missing) return;
    for (g = 0; g < s->plan.stages; g++)
        if (s->plan.stage[g].rank == s->missing_rank) {
            begin = heti_p_min(begin, s->plan.stage[g].unit_begin);
            if (s->plan.stage[g].unit_end > end) end = s->plan.stage[g].unit_end;
        }
    (void)c;
    s->least_missing = s->missing;
    s->least_missing_rank = s->missing_rank;
    s->least_missing_begin = begin;
    s->least_missing_end = end;
}

/* Simulates the choice with these lists, NULL: there are none: c->seconds, or HETI_P_MISFIT and
   more, or HETI_P_NONE. simulation: NULL, or gets it with its timeline, where the choice is a
   plan. */
static het_result heti_p_judge_lists(heti_p_seek *s, heti_p_choice *c, const het_schedule *lists,
                                     het_simulation **simulation) {
    het_simulation *made = NULL;
    het_plan_costs *costs = NULL;
    het_result result;
    c->seconds = HETI_P_NONE;
    s->evaluations++;
    if (lists == NULL) return HET_OK;
    heti_p_choice_plan(s, c);
    HETI_T_TRY(heti_p_choice_memory(s, c, lists));
    if (s->impossible) return HET_OK;
    heti_p_memory_missing(s);
    if (s->missing > 0) {
        heti_p_note_missing(s, c);
        c->seconds = HETI_P_MISFIT * (1 + s->missing);
        return HET_OK;
    }
    heti_p_choice_sizes(s, c);
    HETI_T_TRY(heti_p_choice_costs(s, &costs));
    result = het_simulate_costs(&s->plan, lists, costs, simulation != NULL ? HET_YES : HET_NO, &s->allocator, &made,
                                s->error);
    het_plan_costs_free(costs);
    if (result == HET_OK) c->seconds = made->makespan;
    if (simulation != NULL && result == HET_OK) *simulation = made;
    else het_simulation_free(made);
    return result;
}

/* The same with lists made for it. *lists: NULL, or gets them. */
static het_result heti_p_judge(heti_p_seek *s, heti_p_choice *c, het_simulation **simulation, het_schedule **lists) {
    het_schedule *schedule = NULL;
    het_result result;
    heti_p_choice_plan(s, c);
    HETI_T_TRY(heti_p_choice_lists(s, c, &schedule));
    result = heti_p_judge_lists(s, c, schedule, simulation);
    if (lists != NULL && result == HET_OK) *lists = schedule;
    else het_schedule_free(schedule);
    return result;
}

/* ---- bounds ---- */

/* The optimizer's work divided by the speeds of the devices of a choice: no way to share the state
   out takes less. 0 where a device needs no time. */
static double heti_p_bound_step(const heti_p_seek *s, const heti_p_choice *c) {
    double speed = 0;
    int64_t i;
    for (i = 0; i < c->first[c->pipelines]; i++) {
        const double element = s->times[s->kind_of[c->device[i]]]->step_element;
        if (!(element > 0)) return 0;
        speed += s->d.cluster->device[c->device[i]].speed / element;
    }
    return s->trained / speed;
}

/* Ranks that hold a block, ascending, as s->scratch. */
static int64_t heti_p_holders(heti_p_seek *s, const heti_p_choice *c, const het_block_profile *block) {
    const int64_t chunks = heti_p_chunks(s, c), *use = s->d.profile->use + block->first_use;
    int64_t p, i, g, r, count = 0;
    for (r = 0; r < s->ranks; r++) s->used[r] = 0;
    for (p = 0; p < c->pipelines; p++) {
        const int64_t *end = &c->end[chunks * c->first[p]];
        for (i = g = 0; i < block->uses; i++) {
            while (end[g] <= use[i]) g++;
            s->used[c->device[c->first[p] + heti_p_place_of(s->order[c->order], heti_p_places(c, p), g)]] = 1;
        }
    }
    for (r = 0; r < s->ranks; r++)
        if (s->used[r]) s->scratch[count++] = r;
    return count;
}

/* Rings of the blocks of each rank at least: s->ring gets those of reductions, the most of a rank's
   gathers comes back. The largest part is no less than an even one. 0 where processes are members,
   which exchange in two levels. */
static double heti_p_bound_rings(heti_p_seek *s, const heti_p_choice *c) {
    const het_profile *p = s->d.profile;
    double most = 0, *gathers = s->pipeline_time;
    int64_t b, i, n;
    for (i = 0; i < s->ranks; i++) s->ring[i] = gathers[i] = 0;
    for (i = 0; i < s->d.cluster->groups; i++)
        if (s->d.cluster->group[i].process) return 0;
    for (b = 0; b < p->blocks; b++) {
        double reduce = 0, gather = 0, elements = heti_p_real(p->block[b].elements);
        if (p->block[b].frozen || (n = heti_p_holders(s, c, &p->block[b])) < 2) continue;
        for (i = 0; i < n; i++) {
            const het_group *g = heti_p_link_of(s, s->scratch[i], s->scratch[(i + 1) % n]);
            const double each = g->bandwidth > 0 ? elements / (heti_p_real(n) * g->bandwidth) : 0;
            reduce = heti_p_larger(reduce, heti_p_real(n - 1) * (g->latency + each * p->reduce_bytes));
            gather = heti_p_larger(gather, heti_p_real(n - 1) * (g->latency + each * p->gather_bytes));
        }
        for (i = 0; i < n; i++) {
            s->ring[s->scratch[i]] += reduce;
            gathers[s->scratch[i]] += gather;
        }
    }
    for (i = 0; i < s->ranks; i++) most = heti_p_larger(most, gathers[i]);
    return most;
}

/* One pipeline: what its ranks compute before the verdict, and the times before a rank's first
   action and behind its last one. A message leaves behind what made it, and a rank's last action
   that is not a W is a backward, after which the stages before have theirs. */
static double heti_p_bound_pipeline(heti_p_seek *s, const heti_p_choice *c, int64_t p, int recompute_known,
                                    int64_t order_index) {
    const heti_p_maker *order = s->order[order_index >= 0 ? order_index : c->order];
    const int64_t chunks = heti_p_chunks(s, c), places = heti_p_places(c, p), stages = chunks * places,
                  first = c->first[p];
    const int64_t last_pipeline = s->last_counted, rest = heti_p_rest(s, c->granules);
    const int64_t small = p == last_pipeline ? rest : c->granules, full = c->count[p] - (p == last_pipeline);
    double reach = 0, back = 0, bound = 0;
    int64_t i;
    for (i = 0; i < places; i++) s->work[i] = s->weight_work[i] = 0, s->fill[i] = s->tail[i] = HETI_P_NONE;
    for (i = 0; i < stages; i++) {
        const int64_t place = heti_p_place_of(order, places, i), device = c->device[first + place],
                      kind = s->kind_of[device];
        const int64_t begin = i == 0 ? 0 : c->end[chunks * first + i - 1], end = c->end[chunks * first + i];
        const int again = recompute_known && c->recompute[first + place];
        const double n = heti_p_real(full);
        double f[2], b[2], in[2], w[2], r[2];
        int k;
        for (k = 0; k < 2; k++) { /* a full micro-batch, the smallest */
            const int64_t g = k == 0 ? c->granules : small;
            f[k] = heti_p_stage_seconds(s, kind, HETI_P_LEAST + HETI_P_TIME_FORWARD, begin, end, g);
            b[k] = heti_p_stage_seconds(s, kind, HETI_P_LEAST + HETI_P_TIME_BACKWARD, begin, end, g);
            in[k] = heti_p_stage_seconds(s, kind, HETI_P_LEAST + HETI_P_TIME_INPUT, begin, end, g);
            w[k] = heti_p_stage_seconds(s, kind, HETI_P_LEAST + HETI_P_TIME_WEIGHT, begin, end, g);
            r[k] = again ? heti_p_seconds(s, kind, HETI_P_LEAST + HETI_P_TIME_RECOMPUTE, begin, end, g) : 0;
            if (order_index >= 0 ? !order->split : 0) in[k] = b[k], w[k] = 0;                          /* B alone */
            else if (order_index < 0) {                                                               /* any schedule */
                const double apart = in[k] + w[k];
                if (!s->has[1]) in[k] = b[k];
                b[k] = !s->has[1] ? b[k] : !s->has[0] ? apart : heti_p_smaller(b[k], apart);
                in[k] = heti_p_smaller(in[k], b[k]);
                w[k] = b[k] - in[k];
            }
        }
        s->work[place] += n * (f[0] + in[0] + w[0] + r[0]);
        s->weight_work[place] += n * w[0];
        if (p == last_pipeline) {
            s->work[place] += f[1] + in[1] + w[1] + r[1];
            s->weight_work[place] += w[1];
        }
        s->fill[place] = heti_p_smaller(s->fill[place], reach);
        s->tail[place] = heti_p_smaller(s->tail[place], back);
        if (i + 1 < stages) {
            const int64_t next = c->device[first + heti_p_place_of(order, places, i + 1)];
            reach += f[1] + heti_p_message(s, device, next, end - 1, small);
            back += in[1] + r[1] + heti_p_message(s, next, device, end - 1, small);
        }
    }
    for (i = 0; i < places; i++) {
        /* those of a device's one stage wait for its last action */
        const double reductions = chunks == 1 ? s->ring[c->device[first + i]] : 0;
        bound = heti_p_larger(bound, s->fill[i] + s->work[i] + reductions);
        bound = heti_p_larger(bound, s->fill[i] + s->work[i] - s->weight_work[i] + s->tail[i]);
    }
    return bound;
}

/* Behind the verdict, gathers and steps; s->ring gets the reductions before it. */
static double heti_p_bound_after(heti_p_seek *s, const heti_p_choice *c) {
    return heti_p_larger(heti_p_bound_rings(s, c), heti_p_bound_step(s, c));
}

/* No simulation of the choice takes less. known 0: of no schedule with its placement, with or
   without recomputation. after, s->ring: of its devices and cuts. */
static double heti_p_bound_of(heti_p_seek *s, const heti_p_choice *c, int known, double after) {
    double bound = 0;
    int64_t p;
    for (p = 0; p < c->pipelines; p++)
        if (c->count[p] > 0) s->last_counted = p;
    for (p = 0; p < c->pipelines; p++)
        if (c->count[p] > 0) bound = heti_p_larger(bound, heti_p_bound_pipeline(s, c, p, known, known ? c->order : -1));
    return bound + after;
}

static double heti_p_bound(heti_p_seek *s, const heti_p_choice *c, int known) {
    return heti_p_bound_of(s, c, known, heti_p_bound_after(s, c));
}

/* Rounding: sums of the same terms in another order. */
static int heti_p_hopeless(double bound, double best) { return bound > best * (1 + 1e-9); }

/* Bytes that a stage needs at least for micro-batches of `tokens`: parameters and gradients of the
   blocks that begin in it, the optimizer's state where no other rank has them, and one slot. */
static double heti_p_least_stage(const heti_p_seek *s, const heti_p_choice *c, int64_t begin, int64_t end,
                                 int recompute, double tokens) {
    const double *kept = &s->kept[recompute ? s->units + 1 : 0];
    const double state = c->pipelines == 1 ? s->owned[end] - s->owned[begin] : 0;
    return s->least_held[end] - s->least_held[begin] + state + (kept[end] - kept[begin]) * tokens;
}

/* What the plan needs at least is too much for some device. */
static int heti_p_too_large(const heti_p_seek *s, const heti_p_choice *c) {
    const double tokens = heti_p_real(c->granules * s->d.granule_tokens);
    const int64_t chunks = heti_p_chunks(s, c);
    int64_t p, i;
    for (p = 0; p < c->pipelines; p++) {
        const int64_t places = heti_p_places(c, p), *end = &c->end[chunks * c->first[p]];
        for (i = 0; i < places; i++) {
            const int64_t at = c->first[p] + i;
            const int64_t other = s->order[c->order]->place == HETI_P_PLACE_V ? 2 * places - 1 - i : places + i;
            const double limit = s->d.cluster->device[c->device[at]].memory;
            double bytes = heti_p_least_stage(s, c, i == 0 ? 0 : end[i - 1], end[i], c->recompute[at], tokens);
            if (limit <= 0) continue;
            if (chunks == 2) bytes += heti_p_least_stage(s, c, end[other - 1], end[other], c->recompute[at], tokens);
            if (heti_p_hopeless(bytes, limit)) return 1;
        }
    }
    return 0;
}

/* ---- cuts by the bottleneck ---- */

/* About how many micro-batches stage `stage` of `stages` keeps. */
static double heti_p_in_flight(const heti_p_seek *s, const heti_p_choice *c, int64_t p, int64_t stage, int64_t stages) {
    const heti_p_maker *order = s->order[c->order];
    const double all = heti_p_real(c->count[p] > 0 ? c->count[p] : 1);
    double n = heti_p_real(order->split ? stages : stages - stage);
    if (order->all) n = all;
    if (order->limited) n = c->limit > 0 ? heti_p_real(c->limit) : all;
    if (order->place != HETI_P_PLACE_ANY) n = heti_p_real(stages / 2);
    return heti_p_smaller(n, all);
}

/* About the bytes of a stage. The state is divided among as many as there are pipelines. */
static double heti_p_stage_bytes(const heti_p_seek *s, const heti_p_choice *c, int64_t begin, int64_t end,
                                 int recompute, double in_flight) {
    const het_profile *p = s->d.profile;
    const double *kept = &s->kept[recompute ? s->units + 1 : 0],
                  tokens = heti_p_real(c->granules * s->d.granule_tokens);
    const double elements = s->held[end] - s->held[begin];
    return elements * (p->weight_bytes + p->gradient_bytes + p->state_bytes / heti_p_real(c->pipelines)) +
           tokens * (in_flight * (kept[end] - kept[begin]) + s->widest) + p->rank_weights + p->rank_gradients +
           p->rank_workspace;
}

/* The most units from `begin` that a device takes in `seconds` and its memory. */
static int64_t heti_p_take_units(const heti_p_seek *s, const heti_p_choice *c, int64_t device, int64_t begin,
                                 int64_t most, int recompute, double in_flight, double seconds) {
    const int64_t kind = s->kind_of[device];
    const double limit = s->ignore_memory ? 0 : s->d.cluster->device[device].memory / heti_p_real(heti_p_chunks(s, c));
    const int split = s->order[c->order]->split;
    int64_t low = begin, high = most;
    while (low < high) {
        const int64_t middle = high - (high - low) / 2;
        if (heti_p_both(s, kind, split, recompute, begin, middle, c->granules) <= seconds &&
            (limit <= 0 || heti_p_stage_bytes(s, c, begin, middle, recompute, in_flight) + s->reserve[device] <= limit))
            low = middle;
        else high = middle - 1;
    }
    return low;
}

/* Gives each device in turn what it can take in `seconds`. Ends of stages go to end[]; 0 long ones
   are devices that got nothing. 1: all is given. */
static int heti_p_give_units(const heti_p_seek *s, const heti_p_choice *c, int64_t p, double seconds, int64_t *end,
                             int32_t *recompute) {
    const heti_p_maker *order = s->order[c->order];
    const int64_t chunks = heti_p_chunks(s, c), places = heti_p_places(c, p), stages = chunks * places;
    int64_t i, at = 0;
    for (i = 0; i < places; i++) recompute[i] = 0;
    for (i = 0; i < stages; i++) {
        const int64_t place = heti_p_place_of(order, places, i), device = c->device[c->first[p] + place];
        const double in_flight = heti_p_in_flight(s, c, p, i, stages);
        int64_t most = s->units - (stages - 1 - i), next;
        if (most <= at) most = heti_p_min(at + 1, s->units);
        next = i >= places && recompute[place] ? at : heti_p_take_units(s, c, device, at, most, 0, in_flight, seconds);
        if (s->d.recompute == HET_YES && next < most && (i < places || recompute[place])) {
            const int64_t again = heti_p_take_units(s, c, device, at, most, 1, in_flight, seconds);
            if (again > next) {
                next = again;
                recompute[place] = 1;
            }
        }
        if (chunks == 2 && next == at) return 0;
        at = end[i] = next;
    }
    return at == s->units;
}

/* Cuts the chain for pipeline p so that the slowest stage is as fast as can be; stages of no length
   are devices that got nothing. 0: these devices cannot hold it. */
static int heti_p_cut(const heti_p_seek *s, heti_p_choice *c, int64_t p) {
    const int64_t chunks = heti_p_chunks(s, c), places = heti_p_places(c, p), first = c->first[p];
    int64_t *end = &c->end[chunks * first], i;
    int32_t *recompute = &c->recompute[first];
    double low = 0, high = 0;
    int round;
    if (chunks * places > s->units && chunks == 2) return 0;
    if (!heti_p_give_units(s, c, p, HETI_P_NONE, end, recompute)) return 0;
    for (i = 0; i < places; i++) {
        const double whole = heti_p_both(s, s->kind_of[c->device[first + i]], s->order[c->order]->split, 1, 0, s->units,
                                         c->granules);
        high = heti_p_larger(high, whole);
        low += 1 / (whole + 1e-300);
    }
    low = heti_p_smaller(0.3 / low, high); /* below what all of them take together, without recomputation */
    for (round = 0; round < 40 && high > low * 1.0005; round++) {
        const double middle = round < 4 && high > 4 * low ? 2 * low : 0.5 * (low + high);
        if (heti_p_give_units(s, c, p, middle, end, recompute)) high = middle;
        else low = middle;
    }
    if (!heti_p_give_units(s, c, p, high, end, recompute))
        (void)heti_p_give_units(s, c, p, HETI_P_NONE, end, recompute);
    return 1;
}

/* The same devices in the same order, as far as cutting goes. */
static int heti_p_alike(const heti_p_seek *s, const heti_p_choice *c, int64_t p, int64_t q) {
    const int64_t n = heti_p_places(c, p);
    int64_t i;
    if (heti_p_places(c, q) != n) return 0;
    for (i = 0; i < n; i++) {
        const int64_t a = c->device[c->first[p] + i], b = c->device[c->first[q] + i];
        if (s->kind_of[a] != s->kind_of[b] || s->reserve[a] > s->reserve[b] || s->reserve[a] < s->reserve[b]) return 0;
    }
    return 1;
}

/* Takes over the cuts of a pipeline of s->now with the same devices. 0: q, negative or not, is
   another. */
static int heti_p_as_before(heti_p_seek *s, heti_p_choice *c, int64_t p, int64_t q) {
    const int64_t chunks = heti_p_chunks(s, c), places = heti_p_places(c, p);
    const heti_p_choice *from = &s->now;
    if (q < 0 || heti_p_places(from, q) != places ||
        memcmp(&from->device[from->first[q]], &c->device[c->first[p]],
               HETI_T_CAST(size_t, places) * sizeof *c->device) != 0)
        return 0;
    memcpy(&c->end[chunks * c->first[p]], &from->end[chunks * from->first[q]],
           HETI_T_CAST(size_t, chunks * places) * sizeof *c->end);
    memcpy(&c->recompute[c->first[p]], &from->recompute[from->first[q]],
           HETI_T_CAST(size_t, places) * sizeof *c->recompute);
    s->fits[p] = 1;
    return 1;
}

/* Leaves out pipelines that do not fit and, where a device has one stage, devices without units. */
static void heti_p_close_ranks(const heti_p_seek *s, heti_p_choice *c) {
    const int64_t chunks = heti_p_chunks(s, c);
    int64_t p, i, k, at = 0, pipelines = 0, begin = 0;
    for (p = 0; p < c->pipelines; p++) {
        const int64_t from = begin, until = c->first[p + 1];
        int64_t before = 0;
        begin = until;
        if (!s->fits[p]) continue;
        for (i = from; i < until; i++) {
            if (chunks == 1 && c->end[i] == before) continue;
            if (chunks == 1) before = c->end[at] = c->end[i];
            c->device[at] = c->device[i];
            c->recompute[at++] = c->recompute[i];
        }
        for (k = 0; k < 2 * (until - from) && chunks == 2; k++)
            c->end[2 * (at - (until - from)) + k] = c->end[2 * from + k];
        c->first[++pipelines] = at;
    }
    c->pipelines = pipelines;
}

/* The plan of one pipeline alone, its costs, and a key of both. */
static int64_t heti_p_alone(heti_p_seek *s, const heti_p_choice *c, int64_t p) {
    const heti_p_maker *order = s->order[c->order];
    const int64_t chunks = heti_p_chunks(s, c), places = heti_p_places(c, p), stages = chunks * places,
                  first = c->first[p];
    int64_t i, n = 0;
    s->alone.ranks = places;
    s->alone.stages = s->alone.first_stage[1] = stages;
    s->alone_key[n++] = c->order;
    s->alone_key[n++] = c->limit;
    s->alone_key[n++] = c->granules;
    s->alone_key[n++] = places;
    s->alone_key[n++] = c->state == HETI_P_STATE_EVEN ? c->pipelines : 0;
    for (i = 0; i < stages; i++) {
        const int64_t place = heti_p_place_of(order, places, i), device = c->device[first + place],
                      kind = s->kind_of[device];
        het_stage *stage = &s->alone.stage[i];
        stage->pipeline = 0;
        stage->rank = place;
        stage->unit_begin = i == 0 ? 0 : c->end[chunks * first + i - 1];
        stage->unit_end = c->end[chunks * first + i];
        stage->recompute = c->recompute[first + place];
        s->alone_key[n++] = stage->unit_end * 2 + stage->recompute;
        if (i >= places) continue;
        s->alone_group[place] = s->d.cluster->device[device].group;
        s->alone_key[n++] = kind;
        s->alone_key[n++] = s->alone_group[place];
    }
    memset(s->alone.schedule, 0, sizeof s->alone.schedule);
    memcpy(s->alone.schedule, order->name, strlen(order->name));
    s->alone.memory_limit = heti_p_real(c->limit);
    return n;
}

static void heti_p_alone_costs(heti_p_seek *s, const heti_p_choice *c, int64_t p) {
    int64_t i;
    memset(s->alone_stage, 0, HETI_T_CAST(size_t, s->alone.stages) * sizeof *s->alone_stage);
    for (i = 0; i < s->alone.stages; i++) {
        const het_stage *stage = &s->alone.stage[i];
        const int64_t kind = s->kind_of[c->device[c->first[p] + stage->rank]], begin = stage->unit_begin,
                      end = stage->unit_end, g = c->granules;
        const double again = stage->recompute ? heti_p_seconds(s, kind, HETI_P_TIME_RECOMPUTE, begin, end, g) : 0;
        het_stage_cost *cost = &s->alone_stage[i];
        cost->forward.token = heti_p_stage_seconds(s, kind, HETI_P_TIME_FORWARD, begin, end, g);
        cost->backward.token = heti_p_stage_seconds(s, kind, HETI_P_TIME_BACKWARD, begin, end, g) + again;
        cost->input.token = heti_p_stage_seconds(s, kind, HETI_P_TIME_INPUT, begin, end, g) + again;
        cost->weight.token = heti_p_stage_seconds(s, kind, HETI_P_TIME_WEIGHT, begin, end, g);
        cost->bytes = s->d.profile->kind[s->d.profile->unit[end - 1]].output * heti_p_real(g * s->d.granule_tokens);
    }
}

/* 1: every device can hold its stages, where the state is divided evenly among as many as there are
   pipelines (or lies where there is room). `more`: how many times as many micro-batches are kept as
   in these lists, where a schedule keeps all. */
static het_result heti_p_alone_fits(heti_p_seek *s, const heti_p_choice *c, int64_t p, const het_schedule *lists,
                                    double more, int *fits) {
    het_shape shape;
    int64_t i;
    heti_p_choice_shape(s, c, &shape);
    HETI_T_TRY(het_profile_needs(&s->alone, lists, &s->allocator, s->needs, s->error));
    for (i = 0; i < s->alone.ranks; i++) {
        s->alone.state_share[i] = 1;
        s->needs[i].slots = HETI_T_CAST(int64_t, heti_p_real(s->needs[i].slots) * more + 0.5);
        s->needs[i].carries = HETI_T_CAST(int64_t, heti_p_real(s->needs[i].carries) * more + 0.5);
    }
    HETI_T_TRY(het_profile_memory(s->d.profile, &s->alone, s->needs, &shape, s->memory, s->error));
    for (i = 0, *fits = 1; i < s->alone.ranks; i++) {
        const int64_t device = c->device[c->first[p] + i];
        const double limit = s->d.cluster->device[device].memory, state = HETI_T_CAST(double, s->memory[i].optimizer);
        const double bytes = HETI_T_CAST(double, s->memory[i].device) +
                     HETI_T_CAST(double, s->memory[i].communication) - state +
                             (c->state == HETI_P_STATE_EVEN ? state / heti_p_real(c->pipelines) : 0);
        if (limit > 0 && bytes > limit) *fits = 0;
    }
    return HET_OK;
}

/* Simulates it. HETI_P_NONE: the schedule does not take it. HETI_P_MISFIT: it does not fit. */
static double heti_p_alone_run(heti_p_seek *s, const heti_p_choice *c, int64_t p, int64_t micro_batches, double more) {
    het_schedule *lists = NULL;
    het_simulation *simulation = NULL;
    het_costs costs;
    het_error error;
    double seconds = HETI_P_NONE;
    int fits = 1;
    het_result result = het_schedule_make(&s->alone, &micro_batches, &s->allocator, &lists, &error);
    if (result == HET_OK && more > 0) result = heti_p_alone_fits(s, c, p, lists, more, &fits);
    if (result == HET_OK && !fits) {
        het_schedule_free(lists);
        return HETI_P_MISFIT;
    }
    memset(&costs, 0, sizeof costs);
    costs.stage = s->alone_stage;
    costs.group = s->d.cluster->group;
    costs.groups = s->d.cluster->groups;
    costs.rank_group = s->alone_group;
    if (result == HET_OK) result = het_simulate(&s->alone, lists, &costs, HET_NO, &s->allocator, &simulation, &error);
    if (result == HET_OK) seconds = simulation->makespan;
    if (result == HET_ERR_OOM) s->result = heti_t_fail(s->error, HET_ERR_OOM, "het_plan_search: %s", error.text);
    het_simulation_free(simulation);
    het_schedule_free(lists);
    return seconds;
}

/* Seconds of a pipeline for `count` micro-batches, or at least HETI_P_MISFIT. From three rounds of
   its devices on, as many as the second round more for each. */
static double heti_p_pipeline_seconds(heti_p_seek *s, const heti_p_choice *c, int64_t p, int64_t count) {
    const heti_p_maker *order = s->order[c->order];
    const int keeps_all = order->all || (order->limited && c->limit == 0);
    int64_t n = heti_p_alone(s, c, p);
    const int64_t rounds = heti_p_places(c, p), most = 3 * rounds;
    heti_p_memo *memo;
    uint64_t key;
    if (count == 0) count = 1; /* it must fit all the same */
    s->alone_key[n++] = count < most ? count : most;
    s->alone_key[n++] = keeps_all ? count : 0;
    key = het_xxh64(s->alone_key, HETI_T_CAST(size_t, n) * sizeof *s->alone_key, 0) | 1u;
    memo = &s->memo[key / 2 % HETI_P_MEMOS];
    if (memo->key != key) {
        memo->key = key;
        memo->count = count < most ? count : most;
        heti_p_alone_costs(s, c, p);
        memo->at = heti_p_alone_run(s, c, p, memo->count, keeps_all ? heti_p_real(count) / heti_p_real(memo->count) :
                                    1);
        memo->each = 0;
        if (count >= most && memo->at < HETI_P_MISFIT)
            memo->each = (memo->at - heti_p_alone_run(s, c, p, most - rounds, 0)) / heti_p_real(rounds);
    }
    return memo->at + heti_p_real(count - memo->count) * memo->each;
}

/* Seconds of a pipeline's further micro-batches, and what the first takes longer. */
static void heti_p_simulated_pace(heti_p_seek *s, const heti_p_choice *c, int64_t p) {
    const int64_t many = 3 * heti_p_places(c, p);
    const double at = heti_p_pipeline_seconds(s, c, p, many);
    s->pipeline_time[p] = heti_p_pipeline_seconds(s, c, p, many + 1) - at; /* where all are kept, of that many */
    s->pipeline_fill[p] = at - heti_p_real(many) * s->pipeline_time[p];
}

/* The same without simulating: the busiest device's work, and that of the others. */
static void heti_p_plain_pace(heti_p_seek *s, const heti_p_choice *c, int64_t p) {
    const heti_p_maker *order = s->order[c->order];
    const int64_t chunks = heti_p_chunks(s, c), places = heti_p_places(c, p), *end = &c->end[chunks * c->first[p]];
    double sum = 0, most = 0;
    int64_t i;
    for (i = 0; i < places; i++) s->work[i] = 0;
    for (i = 0; i < chunks * places; i++) {
        const int64_t place = heti_p_place_of(order, places, i), at = c->first[p] + place;
        const double both = heti_p_both(s, s->kind_of[c->device[at]], order->split, c->recompute[at],
                                        i == 0 ? 0 : end[i - 1], end[i], c->granules);
        s->work[place] += both;
        most = heti_p_larger(most, s->work[place]);
        sum += both;
    }
    s->pipeline_time[p] = most;
    s->pipeline_fill[p] = sum - most;
}

static void heti_p_pace(heti_p_seek *s, const heti_p_choice *c, int64_t p) {
    if (s->plain) heti_p_plain_pace(s, c, p);
    else heti_p_simulated_pace(s, c, p);
}

/* One micro-batch after the other to the pipeline that would be done with it first. */
static void heti_p_share(heti_p_seek *s, heti_p_choice *c) {
    const int64_t micro_batches = heti_p_micro_batches(s, c->granules);
    double sum = 0;
    int64_t p, left = micro_batches;
    for (p = 0; p < c->pipelines; p++) {
        heti_p_pace(s, c, p);
        sum += s->pipeline_time[p] > 0 && s->pipeline_fill[p] < HETI_P_MISFIT ? 1 / s->pipeline_time[p] : 0;
    }
    for (p = 0; p < c->pipelines; p++) { /* nearly all by speed, the rest one by one */
        const int runs = sum > 0 && s->pipeline_time[p] > 0 && s->pipeline_fill[p] < HETI_P_MISFIT;
        const double part = runs ? heti_p_real(micro_batches) / s->pipeline_time[p] / sum : 0;
        c->count[p] = heti_p_min(left, part > 4 ? HETI_T_CAST(int64_t, part * 0.75) : 0);
        left -= c->count[p];
    }
    while (left-- > 0) {
        int64_t least = 0;
        double best = 2 * HETI_P_NONE;
        for (p = 0; p < c->pipelines; p++) {
            const double done = s->pipeline_fill[p] + heti_p_real(c->count[p] + 1) * s->pipeline_time[p];
            if (done < best) { best = done; least = p; }
        }
        c->count[least]++;
    }
}

/* About the seconds of reductions, updates and gathers of the busiest device: as rings that do not
   disturb each other. */
static double heti_p_update(heti_p_seek *s, const heti_p_choice *c) {
    const int64_t chunks = heti_p_chunks(s, c);
    const het_profile *profile = s->d.profile;
    double most = 0;
    int64_t u, p, i, r;
    for (r = 0; r < s->ranks; r++) s->ring[r] = 0;
    for (p = 0; p < c->pipelines; p++) s->scratch[p] = chunks * c->first[p];
    for (u = 0; u < s->units; u++) {
        const double elements = s->held[u + 1] - s->held[u], holders = heti_p_real(c->pipelines);
        double latency = 0, slowness = 0, seconds;
        int64_t before = -1;
        for (p = 0; p < c->pipelines; p++) {
            const int64_t places = heti_p_places(c, p);
            while (c->end[s->scratch[p]] <= u) s->scratch[p]++;
            i = c->device[c->first[p] + heti_p_place_of(s->order[c->order], places,
                                                        s->scratch[p] - chunks * c->first[p])];
            if (before >= 0) {
                const het_group *g = heti_p_link_of(s, before, i);
                latency = heti_p_larger(latency, g->latency);
                slowness = heti_p_larger(slowness, g->bandwidth > 0 ? 1 / g->bandwidth : 0);
            }
            before = i;
        }
        seconds = (holders - 1) * (2 * latency + slowness * elements * (profile->reduce_bytes + profile->gather_bytes) /
                                   holders);
        for (p = 0; p < c->pipelines; p++) {
            const int64_t places = heti_p_places(c, p);
            i = c->device[c->first[p] + heti_p_place_of(s->order[c->order], places,
                                                        s->scratch[p] - chunks * c->first[p])];
            s->ring[i] += seconds + elements / holders * s->times[s->kind_of[i]]->step_element /
                s->d.cluster->device[i].speed;
        }
    }
    for (i = 0; i < c->first[c->pipelines]; i++) most = heti_p_larger(most, s->ring[c->device[i]]);
    return most;
}

/* About the seconds of the step: the slowest of the pipelines, simulated one by one, and, a fifth
   of it, what they would take if micro-batches could be divided: so that a faster pipeline counts
   before it is worth a whole micro-batch. */
static double heti_p_estimate(heti_p_seek *s, const heti_p_choice *c) {
    double slowest = 0, rates = 0, work = heti_p_real(heti_p_micro_batches(s, c->granules));
    int64_t p;
    for (p = 0; p < c->pipelines; p++) {
        slowest = heti_p_larger(slowest, heti_p_pipeline_seconds(s, c, p, c->count[p]));
        heti_p_pace(s, c, p);
        if (!(s->pipeline_time[p] > 0) || s->pipeline_fill[p] >= HETI_P_MISFIT) continue;
        rates += 1 / s->pipeline_time[p];
        work += s->pipeline_fill[p] / s->pipeline_time[p];
    }
    return 0.8 * slowest + (rates > 0 ? 0.2 * work / rates : 0) + heti_p_update(s, c);
}

/* Cuts and shares anew, for devices in pipelines that are given. Pipelines that cannot hold the
   chain leave. 0: none is left. */
static int heti_p_refit(heti_p_seek *s, heti_p_choice *c) {
    const int64_t micro_batches = heti_p_micro_batches(s, c->granules), chunks = heti_p_chunks(s, c);
    const int as_before = s->climbing && s->now.order == c->order && s->now.granules == c->granules;
    int64_t p, r;
    for (r = 0; r < s->ranks; r++) s->scratch[r] = -1;
    for (p = 0; p < s->now.pipelines && as_before; p++) s->scratch[s->now.device[s->now.first[p]]] = p;
    /* for what is in flight */
    for (p = 0; p < c->pipelines; p++) c->count[p] = (micro_batches + c->pipelines - 1) / c->pipelines;
    for (p = 0; p < c->pipelines; p++) {
        if (p > 0 && heti_p_alike(s, c, p - 1, p)) {
            const size_t n = HETI_T_CAST(size_t, heti_p_places(c, p));
            memcpy(&c->end[chunks * c->first[p]], &c->end[chunks * c->first[p - 1]],
                   HETI_T_CAST(size_t, chunks) * n * sizeof *c->end);
            memcpy(&c->recompute[c->first[p]], &c->recompute[c->first[p - 1]], n * sizeof *c->recompute);
            s->fits[p] = s->fits[p - 1];
        } else if (!heti_p_as_before(s, c, p, s->scratch[c->device[c->first[p]]])) s->fits[p] = heti_p_cut(s, c, p);
    }
    heti_p_close_ranks(s, c);
    if (c->pipelines == 0) return 0;
    heti_p_share(s, c);
    return 1;
}

/* By lowest device, as the space is declared. */
static void heti_p_canonical(heti_p_seek *s, heti_p_choice *c) {
    const int64_t chunks = heti_p_chunks(s, c);
    heti_p_choice *to = &s->sorted;
    int64_t p, i, r, at = 0;
    for (r = 0; r < s->ranks; r++) s->scratch[r] = -1;
    for (p = 0; p < c->pipelines; p++) {
        int64_t lowest = s->ranks;
        for (i = c->first[p]; i < c->first[p + 1]; i++) lowest = heti_p_min(lowest, c->device[i]);
        s->scratch[lowest] = p;
    }
    heti_p_choice_copy(s, to, c);
    for (r = 0, p = 0; r < s->ranks; r++) {
        const int64_t from = s->scratch[r];
        int64_t n;
        if (from < 0) continue;
        n = heti_p_places(c, from);
        to->count[p] = c->count[from];
        memcpy(&to->device[at], &c->device[c->first[from]], HETI_T_CAST(size_t, n) * sizeof *to->device);
        memcpy(&to->recompute[at], &c->recompute[c->first[from]], HETI_T_CAST(size_t, n) * sizeof *to->recompute);
        memcpy(&to->end[chunks * at], &c->end[chunks * c->first[from]],
               HETI_T_CAST(size_t, chunks * n) * sizeof *to->end);
        at += n;
        to->first[++p] = at;
    }
    heti_p_choice_copy(s, c, to);
}

/* ---- the best of each form ---- */

static int heti_p_same_form(const heti_p_seek *s, const heti_p_choice *a, const heti_p_choice *b) {
    (void)s;
    return a->pipelines == b->pipelines && a->first[a->pipelines] == b->first[b->pipelines] && a->order == b->order;
}

/* Keeps a copy of a choice that was judged, where it is among the best. */
static void heti_p_keep(heti_p_seek *s, const heti_p_choice *c) {
    heti_p_choice last;
    int64_t i, at;
    if (c->seconds >= HETI_P_MISFIT) return;
    for (i = 0; i < s->found_count && !heti_p_same_form(s, &s->found[i], c); i++) {}
    if (i < s->found_count && s->found[i].seconds <= c->seconds) return;
    if (i == s->found_count) {
        if (s->found_count < s->found_room) s->found_count++;
        else if (s->found[--i].seconds <= c->seconds) return;
    }
    last = s->found[i];
    for (at = i; at > 0 && s->found[at - 1].seconds > c->seconds; at--) s->found[at] = s->found[at - 1];
    s->found[at] = last;
    heti_p_choice_copy(s, &s->found[at], c);
}

static int64_t heti_p_spent(const heti_p_seek *s) { return s->evaluations + s->moves / 10; }
static int heti_p_has_clock(const heti_p_seek *s) { return s->d.clock != NULL && s->d.seconds > 0; }

/* What is under way has used what it was given. */
static int heti_p_is_over(heti_p_seek *s) {
    return s->result != HET_OK || heti_p_spent(s) >= s->until ||
        (heti_p_has_clock(s) && s->d.clock(s->d.user) >= s->until_seconds);
}

/* Gives what follows `part` of the evaluations and of the time that are left. 0: there are none. */
static int heti_p_give(heti_p_seek *s, double part) {
    s->until = s->d.evaluations;
    s->until_seconds = s->started + s->d.seconds;
    if (heti_p_is_over(s)) return 0;
    s->until -= HETI_T_CAST(int64_t, (1 - part) * heti_p_real(s->d.evaluations - heti_p_spent(s)));
    if (heti_p_has_clock(s)) s->until_seconds -= (1 - part) * (s->until_seconds - s->d.clock(s->d.user));
    return 1;
}

/* Judges and keeps. 0: the search is over. */
static int heti_p_try(heti_p_seek *s, heti_p_choice *c) {
    if (heti_p_is_over(s)) return 0;
    heti_p_canonical(s, c);
    s->result = heti_p_judge(s, c, NULL, NULL);
    if (s->result != HET_OK) return 0;
    heti_p_keep(s, c);
    return 1;
}

static uint64_t heti_p_choice_key(const heti_p_seek *s, const heti_p_choice *c) {
    const size_t n = HETI_T_CAST(size_t, c->first[c->pipelines]), p = HETI_T_CAST(size_t, c->pipelines);
    int64_t head[5];
    uint64_t key;
    head[0] = c->pipelines;
    head[1] = c->granules;
    head[2] = c->order;
    head[3] = c->limit;
    head[4] = c->state;
    key = het_xxh64(head, sizeof head, 0);
    key = het_xxh64(c->first, (p + 1) * sizeof *c->first, key);
    key = het_xxh64(c->count, p * sizeof *c->count, key);
    key = het_xxh64(c->device, n * sizeof *c->device, key);
    key = het_xxh64(c->end, HETI_T_CAST(size_t, heti_p_chunks(s, c)) * n * sizeof *c->end, key);
    return het_xxh64(c->recompute, n * sizeof *c->recompute, key) | 1u;
}

/* heti_p_try, but what is known is not simulated again. */
static int heti_p_try_once(heti_p_seek *s, heti_p_choice *c) {
    heti_p_known *known;
    uint64_t key;
    heti_p_canonical(s, c);
    key = heti_p_choice_key(s, c);
    known = &s->known[key / 2 % HETI_P_KNOWN];
    if (known->key == key) c->seconds = known->seconds;
    else if (!heti_p_try(s, c)) return 0;
    known->key = key;
    known->seconds = c->seconds;
    return 1;
}

/* ---- beginnings ---- */

/* The fastest `devices` devices in pipelines of `length`, in the way `way`: 0 one behind the other
   in the order of the cluster, so that pipelines stay inside groups; 1 every so many-th, so that
   they go across groups; 2 and 3 the same in the order of speed: alike devices together, unlike
   ones together. */
static void heti_p_arrange(heti_p_seek *s, heti_p_choice *c, int64_t devices, int64_t length, int way) {
    const int64_t pipelines = (devices + length - 1) / length;
    int64_t *list = s->scratch, p, i, at = 0;
    memset(s->taken, 0, HETI_T_CAST(size_t, s->ranks) * sizeof *s->taken);
    for (i = 0; i < devices; i++) s->taken[s->by_speed[i]] = 1;
    for (i = 0; i < s->ranks; i++) {
        const int64_t device = way < 2 ? s->by_place[i] : s->by_speed[i];
        if (s->taken[device]) list[at++] = device;
    }
    memset(s->taken, 0, HETI_T_CAST(size_t, s->ranks) * sizeof *s->taken);
    at = 0;
    c->pipelines = pipelines;
    c->first[0] = 0;
    for (p = 0; p < pipelines; p++) {
        const int64_t n = devices / pipelines + (p < devices % pipelines);
        for (i = 0; i < n; i++) {
            int64_t from = (way & 1) == 0 ? at : i * pipelines + (way == 3 && (i & 1) ? pipelines - 1 - p : p);
            if (from >= devices) from = devices - 1 - (from - devices); /* the last row of a snake may be short */
            c->device[at++] = list[from];
        }
        c->first[p + 1] = at;
    }
}

/* A snake over a short last row may name a device twice: 1 if all are different. */
static int heti_p_all_different(heti_p_seek *s, const heti_p_choice *c) {
    int64_t i;
    memset(s->used, 0, HETI_T_CAST(size_t, s->ranks) * sizeof *s->used);
    for (i = 0; i < c->first[c->pipelines]; i++)
        if (s->used[c->device[i]]++) return 0;
    return 1;
}

/* The next number of granules to look at: 1, 2, 3, 4, 6, 8, 12, ... */
static int64_t heti_p_next_size(int64_t g) {
    int64_t power = 1;
    while (power * 2 <= g) power *= 2;
    return g < 2 ? g + 1 : g == power ? g + power / 2 : 2 * power;
}

static int64_t heti_p_least_granules(const heti_p_seek *s) {
    return (s->d.granules + s->d.most_micro_batches - 1) / s->d.most_micro_batches;
}

/* Finds granules for devices that are arranged, by estimate. 0: nothing fits. */
static int heti_p_size(heti_p_seek *s, heti_p_choice *c, const heti_p_choice *arranged) {
    double best = HETI_P_NONE;
    int64_t g, best_size = 0;
    for (g = heti_p_least_granules(s); g <= s->d.most_granules; g = heti_p_next_size(g)) {
        double t;
        heti_p_choice_copy(s, c, arranged);
        c->granules = g;
        if (!heti_p_refit(s, c)) continue;
        t = heti_p_estimate(s, c);
        if (t >= best) continue;
        best = t;
        best_size = g;
    }
    if (best_size == 0) return 0;
    heti_p_choice_copy(s, c, arranged);
    c->granules = best_size;
    return heti_p_refit(s, c);
}

/* Where memory is short after all, what was missing is set aside and the cut made anew. 0: the
   search is over. */
static int heti_p_begin(heti_p_seek *s, const heti_p_choice *arranged) {
    heti_p_choice *c = &s->next;
    double guess;
    int round;
    c->seconds = HETI_P_NONE;
    memset(s->reserve, 0, HETI_T_CAST(size_t, s->ranks) * sizeof *s->reserve);
    for (round = 0; round < 4; round++) {
        if (!heti_p_size(s, c, arranged) || !heti_p_is_plan(s, c)) break;
        guess = heti_p_estimate(s, c);
        if (s->found_count > 0 && guess > 1.2 * s->least_guess) break;
        if (!heti_p_try(s, c)) return 0;
        if (c->seconds < HETI_P_MISFIT) s->least_guess = heti_p_smaller(s->least_guess, guess);
        if (c->seconds < HETI_P_MISFIT || c->seconds >= HETI_P_NONE) break;
        s->reserve[s->missing_rank] += s->missing;
    }
    memset(s->reserve, 0, HETI_T_CAST(size_t, s->ranks) * sizeof *s->reserve);
    if (c->pipelines > 0 && c->seconds < s->best.seconds) heti_p_choice_copy(s, &s->best, c);
    return !heti_p_is_over(s);
}

/* How many devices stay when the slowest go: the next smaller number behind which the speed falls
   by a third at least. 0: none. */
static int64_t heti_p_fewer(const heti_p_seek *s, int64_t devices) {
    while (--devices > 0)
        if (s->rate[s->kind_of[s->by_speed[devices]]] < 0.67 * s->rate[s->kind_of[s->by_speed[devices - 1]]])
            return devices;
    return 0;
}

/* All lengths and ways for the fastest `devices` devices and a schedule. 0: the search is over. */
static int heti_p_beginnings_of(heti_p_seek *s, int64_t order, int64_t devices) {
    heti_p_choice *c = &s->now;
    int64_t length;
    int way;
    for (length = 1; length <= heti_p_min(devices, s->units); length = heti_p_next_size(length))
        for (way = 0; way < 4; way++) {
            if ((length == 1 || length >= devices) && (way & 1)) continue;
            c->order = order;
            c->limit = 0;
            c->state = HETI_P_STATE_EVEN;
            c->seconds = HETI_P_NONE;
            heti_p_arrange(s, c, devices, length, way);
            memset(c->end, 0, HETI_T_CAST(size_t, 2 * s->ranks) * sizeof *c->end);
            memset(c->recompute, 0, HETI_T_CAST(size_t, s->ranks) * sizeof *c->recompute);
            if (heti_p_all_different(s, c) && !heti_p_begin(s, c)) return 0;
        }
    return 1;
}

static void heti_p_beginnings(heti_p_seek *s) {
    int64_t order, devices;
    int place, fewer;
    for (fewer = 0, devices = s->ranks; fewer < 4 && devices > 0; fewer++, devices = heti_p_fewer(s, devices))
        for (place = HETI_P_PLACE_ANY; place <= HETI_P_PLACE_V; place++) {
            for (order = 0; order < s->orders && s->order[order]->place != place; order++) {}
            if (order < s->orders && !heti_p_beginnings_of(s, order, devices)) return;
        }
}

/* ---- moves ---- */

static int heti_p_twins(const heti_p_seek *s, const heti_p_choice *c, int64_t p, int64_t q) {
    const int64_t chunks = heti_p_chunks(s, c), n = heti_p_places(c, p);
    int64_t i;
    if (heti_p_places(c, q) != n) return 0;
    for (i = 0; i < n; i++)
        if (s->kind_of[c->device[c->first[p] + i]] != s->kind_of[c->device[c->first[q] + i]]) return 0;
    for (i = 0; i < chunks * n; i++)
        if (c->end[chunks * c->first[p] + i] != c->end[chunks * c->first[q] + i]) return 0;
    return 1;
}

/* Moves the end of a stage in a pipeline and, where asked, in all like it. */
static int heti_p_move_cut(heti_p_seek *s, heti_p_choice *c) {
    const int64_t chunks = heti_p_chunks(s, c), p = heti_p_below(s, c->pipelines),
                  stages = chunks * heti_p_places(c, p);
    const int64_t far = heti_p_below(s, 4) == 0 ? 2 : 1, by = heti_p_below(s, 2) == 0 ? -far : far,
                  all = heti_p_below(s, 3) > 0;
    int64_t i, q, j, until;
    if (stages < 2) return 0;
    i = heti_p_below(s, stages - 1);
    /* several ends together */
    until = heti_p_below(s, 3) == 0 ? heti_p_min(stages - 1, i + 1 + heti_p_below(s, stages - 1 - i)) : i + 1;
    for (q = c->pipelines; q-- > 0;) {
        int64_t *end = &c->end[chunks * c->first[q]];
        if (q != p && !(all && heti_p_twins(s, c, p, q))) continue;
        if (q == p) continue;
        for (j = i; j < until; j++) end[j] += by;
    }
    {
        int64_t *end = &c->end[chunks * c->first[p]];
        for (j = i; j < until; j++) end[j] += by;
        if (end[i] <= (i == 0 ? 0 : end[i - 1]) || end[until - 1] >= end[until]) return 0;
    }
    if (heti_p_below(s, 4) > 0) heti_p_share(s, c);
    return 1;
}

static int64_t heti_p_pipeline_of(const heti_p_choice *c, int64_t place) {
    int64_t p = 0;
    while (c->first[p + 1] <= place) p++;
    return p;
}

/* Devices change places; those of other pipelines get other cuts. */
static int heti_p_move_swap(heti_p_seek *s, heti_p_choice *c) {
    const int64_t total = c->first[c->pipelines], i = heti_p_below(s, total), j = heti_p_below(s, total),
                  device = c->device[i];
    if (i == j || (s->kind_of[c->device[i]] == s->kind_of[c->device[j]] && s->d.cluster->device[c->device[i]].group ==
        s->d.cluster->device[c->device[j]].group))
        return 0;
    c->device[i] = c->device[j];
    c->device[j] = device;
    if (heti_p_below(s, 4) == 0) return 1; /* as they are cut */
    return heti_p_refit(s, c);
}

/* Takes the device at a place out of its pipeline. */
static void heti_p_take_out(heti_p_choice *c, int64_t place) {
    const int64_t p = heti_p_pipeline_of(c, place), total = c->first[c->pipelines];
    int64_t i, q;
    for (i = place; i + 1 < total; i++) c->device[i] = c->device[i + 1];
    for (q = p + 1; q <= c->pipelines; q++) c->first[q]--;
    if (c->first[p] < c->first[p + 1]) return;
    for (q = p + 1; q < c->pipelines; q++) c->first[q] = c->first[q + 1];
    c->pipelines--;
}

static void heti_p_put_in(heti_p_choice *c, int64_t p, int64_t place, int64_t device) {
    int64_t i, q;
    for (i = c->first[c->pipelines]; i > place; i--) c->device[i] = c->device[i - 1];
    c->device[place] = device;
    for (q = p + 1; q <= c->pipelines; q++) c->first[q]++;
}

/* A device at work, or an idle one, goes to another pipeline, to one of its own, or out. */
static int heti_p_move_device(heti_p_seek *s, heti_p_choice *c) {
    const int64_t total = c->first[c->pipelines], what = heti_p_below(s, s->ranks), kind = heti_p_below(s, 8);
    int64_t i, place = 0, p;
    for (i = 0; i < total && c->device[i] != what; i++) {}
    if (i < total) {
        if (total == 1) return 0;
        heti_p_take_out(c, i);
    }
    if (i < total && kind == 0) return heti_p_refit(s, c);
    if (kind <= 2) {
        c->first[c->pipelines + 1] = c->first[c->pipelines];
        p = c->pipelines++;
        c->first[p + 1] = c->first[p];
        place = c->first[p];
    } else {
        p = heti_p_below(s, c->pipelines);
        place = c->first[p] + heti_p_below(s, heti_p_places(c, p) + 1);
    }
    heti_p_put_in(c, p, place, what);
    return heti_p_refit(s, c);
}

/* One pipeline becomes two, or two become one; or all of them. */
static int heti_p_move_pipelines(heti_p_seek *s, heti_p_choice *c) {
    const int64_t p = heti_p_below(s, c->pipelines), n = heti_p_places(c, p);
    const int64_t total = c->first[c->pipelines];
    int64_t q, i;
    if (heti_p_below(s, 4) == 0) { /* of each device another length */
        const int64_t length = 1 + heti_p_below(s, heti_p_min(s->units, s->ranks));
        heti_p_arrange(s, c, heti_p_below(s, 2) == 0 ? s->ranks : total, length, HETI_T_CAST(int, heti_p_below(s, 4)));
        return heti_p_all_different(s, c) && heti_p_refit(s, c);
    }
    if (n > 1 && heti_p_below(s, 2) == 0) {
        const int64_t at = c->first[p] + 1 + heti_p_below(s, n - 1);
        for (q = c->pipelines; q > p; q--) c->first[q + 1] = c->first[q];
        c->first[p + 1] = at;
        c->pipelines++;
        return heti_p_refit(s, c);
    }
    q = heti_p_below(s, c->pipelines);
    if (q == p) return 0;
    if (heti_p_below(s, 2) == 0) { /* q behind p */
        const int64_t m = heti_p_places(c, q), from = c->first[q];
        memcpy(s->scratch, &c->device[from], HETI_T_CAST(size_t, m) * sizeof *s->scratch);
        for (i = 0; i < m; i++) heti_p_take_out(c, from);
        for (i = 0; i < m; i++) heti_p_put_in(c, q < p ? p - 1 : p, c->first[(q < p ? p - 1 : p) + 1], s->scratch[i]);
    } else { /* one device of p and one of q in turn */
        const int64_t m = heti_p_places(c, q), from = c->first[q], r = q < p ? p - 1 : p;
        memcpy(s->scratch, &c->device[from], HETI_T_CAST(size_t, m) * sizeof *s->scratch);
        for (i = 0; i < m; i++) heti_p_take_out(c, from);
        for (i = 0; i < m; i++)
            heti_p_put_in(c, r, heti_p_min(c->first[r] + 2 * i + 1, c->first[r + 1]), s->scratch[i]);
    }
    return heti_p_refit(s, c);
}

static int heti_p_move_share(heti_p_seek *s, heti_p_choice *c) {
    const int64_t p = heti_p_below(s, c->pipelines), q = heti_p_below(s, c->pipelines);
    if (p == q || c->count[p] == 0) return 0;
    c->count[p]--;
    c->count[q]++;
    return 1;
}

static int heti_p_move_granules(heti_p_seek *s, heti_p_choice *c) {
    const int64_t before = c->granules, how = heti_p_below(s, 5);
    int64_t g = how == 0 ? before - 1 : how == 1 ? before + 1 : how == 2 ? before / 2 : how == 3 ? before * 2
        : 1 + heti_p_below(s, s->d.most_granules);
    if (g > s->d.most_granules) g = s->d.most_granules;
    if (g < heti_p_least_granules(s)) g = heti_p_least_granules(s);
    if (g == before) return 0;
    c->granules = g;
    if (heti_p_below(s, 2) == 0) return heti_p_refit(s, c);
    heti_p_share(s, c);
    return 1;
}

static int heti_p_move_order(heti_p_seek *s, heti_p_choice *c) {
    const int64_t chunks = heti_p_chunks(s, c), before = c->order;
    int64_t p, longest = 0;
    for (p = 0; p < c->pipelines; p++)
        if (heti_p_places(c, p) > longest) longest = heti_p_places(c, p);
    if (!(s->order[before]->limited && heti_p_below(s, 2) == 0)) c->order = heti_p_below(s, s->orders);
    c->limit = s->order[c->order]->limited ? heti_p_below(s, longest + 1) : 0;
    if (chunks != heti_p_chunks(s, c)) {
        memset(c->end, 0, HETI_T_CAST(size_t, 2 * s->ranks) * sizeof *c->end);
        return heti_p_refit(s, c);
    }
    return c->order != before || s->order[c->order]->limited;
}

static int heti_p_move_recompute(heti_p_seek *s, heti_p_choice *c) {
    const int64_t total = c->first[c->pipelines], at = heti_p_below(s, total), p = heti_p_pipeline_of(c, at),
                  how = heti_p_below(s, 3);
    const int32_t to = !c->recompute[at];
    int64_t i, q;
    if (s->d.recompute != HET_YES) return 0;
    if (how == 0) c->recompute[at] = to;
    for (i = 0; i < total && how == 1; i++) c->recompute[i] = to;
    for (q = 0; q < c->pipelines && how == 2; q++)
        if (heti_p_twins(s, c, p, q)) c->recompute[c->first[q] + at - c->first[p]] = to;
    heti_p_share(s, c);
    return 1;
}

static int heti_p_move_state(heti_p_seek *s, heti_p_choice *c) {
    const int32_t before = c->state;
    if (s->d.uneven_state != HET_YES) return 0;
    c->state = HETI_T_CAST(int32_t, heti_p_below(s, HETI_P_STATES));
    return c->state != before;
}

static int heti_p_move(heti_p_seek *s, heti_p_choice *c) {
    const int64_t what = heti_p_below(s, 20);
    if (what < 6) return heti_p_move_cut(s, c);
    if (what < 8) return heti_p_move_swap(s, c);
    if (what < 11) return heti_p_move_device(s, c);
    if (what < 13) return heti_p_move_pipelines(s, c);
    if (what < 15) return heti_p_move_share(s, c);
    if (what < 16) return heti_p_move_granules(s, c);
    if (what < 18) return heti_p_move_order(s, c);
    if (what < 19) return heti_p_move_recompute(s, c);
    return heti_p_move_state(s, c);
}

/* Whether the moved choice is to be gone on with. It is simulated where the estimate promises more
   than ever in this climb, or where none fits yet. */
static int heti_p_accept(heti_p_seek *s, double slack, double *estimate, double *least) {
    const int none = s->now.seconds >= HETI_P_MISFIT;
    const double guess = none ? 0 : heti_p_estimate(s, &s->next);
    if (!none && (guess >= HETI_P_MISFIT || guess > *estimate * slack)) {
        s->skipped++;
        return 0;
    }
    s->next.seconds = s->now.seconds;
    if (none || guess < *least) {
        if (!heti_p_try(s, &s->next) || s->next.seconds > s->now.seconds * slack) return 0;
        *least = guess;
    }
    *estimate = guess;
    return 1;
}

/* One to three moves from s->now to s->next. 0: they lead to no plan. */
static int heti_p_moved(heti_p_seek *s) {
    const int64_t n = 1 + (heti_p_below(s, 3) == 0) + (heti_p_below(s, 6) == 0);
    int64_t i;
    s->moves++;
    heti_p_choice_copy(s, &s->next, &s->now);
    for (i = 0; i < n; i++)
        if (s->next.pipelines == 0 || !heti_p_move(s, &s->next)) return 0;
    return heti_p_is_plan(s, &s->next);
}

/* Whether the moved choice is to be gone on with: every one that no bound rules out is
   simulated. */
static int heti_p_accept_simulated(heti_p_seek *s, double slack) {
    if (s->now.seconds < HETI_P_MISFIT && (heti_p_too_large(s, &s->next) ||
                                           heti_p_bound(s, &s->next, 1) > s->now.seconds * slack)) {
        s->skipped++;
        return 0;
    }
    return heti_p_try_once(s, &s->next) && s->next.seconds < HETI_P_NONE && s->next.seconds <= s->now.seconds * slack;
}

/* Climbs from s->now: accepts what is not more than a part worse, which shrinks from `worse` to
   nothing. Ends after `most` moves. */
static void heti_p_climb(heti_p_seek *s, int64_t most, double worse, int simulate) {
    double estimate = simulate ? 0 : heti_p_estimate(s, &s->now), least = estimate * (1 - 1e-9);
    int64_t moves;
    s->plain = simulate;
    for (moves = 0; moves < most && !heti_p_is_over(s); moves++) {
        const double left = 1 - heti_p_real(moves) / heti_p_real(most), slack = 1 + worse * left * left;
        if (!heti_p_moved(s)) continue;
        if (simulate ? heti_p_accept_simulated(s, slack) : heti_p_accept(s, slack, &estimate, &least))
            heti_p_choice_copy(s, &s->now, &s->next);
    }
    s->plain = 0;
}

/* Some devices in some order, in pipelines of some length, with settings that are drawn, as s->now.
   0: that is no plan. */
static int heti_p_drawn(heti_p_seek *s) {
    heti_p_choice *c = &s->next;
    const int64_t devices = heti_p_below(s, 2) == 0 ? s->ranks : 1 + heti_p_below(s, s->ranks),
                  length = 1 + heti_p_below(s, devices);
    int64_t i, j;
    for (i = 0; i < s->ranks; i++) c->device[i] = i;
    for (i = 0; i < devices; i++) {
        const int64_t from = i + heti_p_below(s, s->ranks - i), device = c->device[from];
        c->device[from] = c->device[i];
        c->device[i] = device;
    }
    for (j = c->pipelines = c->first[0] = 0; j < devices; c->first[++c->pipelines] = j)
        j = heti_p_min(devices, j + length);
    c->order = heti_p_below(s, s->orders);
    c->limit = s->order[c->order]->limited ? heti_p_below(s, length + 1) : 0;
    c->state = s->d.uneven_state == HET_YES ? HETI_T_CAST(int32_t, heti_p_below(s, HETI_P_STATES)) : HETI_P_STATE_EVEN;
    c->granules = heti_p_least_granules(s) + heti_p_below(s, s->d.most_granules - heti_p_least_granules(s) + 1);
    memset(c->end, 0, HETI_T_CAST(size_t, 2 * s->ranks) * sizeof *c->end);
    memset(c->recompute, 0, HETI_T_CAST(size_t, s->ranks) * sizeof *c->recompute);
    if (!heti_p_refit(s, c) || !heti_p_is_plan(s, c) || !heti_p_try_once(s, c)) return 0;
    heti_p_choice_copy(s, &s->now, c);
    return 1;
}

/* ---- all of a small space ---- */

static void heti_p_each_device(heti_p_seek *s, int64_t next);

static double heti_p_least_found(const heti_p_seek *s) {
    return s->found_count > 0 ? s->found[0].seconds : HETI_P_NONE;
}

/* Recomputation and state shares, with a schedule and its limit, which alone make the lists. */
static void heti_p_each_recompute(heti_p_seek *s, double after) {
    heti_p_choice *c = &s->now;
    const int64_t places = c->first[c->pipelines], states = s->d.uneven_state == HET_YES ? HETI_P_STATES : 1;
    const uint64_t masks = s->d.recompute == HET_YES ? HETI_T_CAST(uint64_t, 1) << places : 1;
    het_schedule *lists = NULL;
    uint64_t mask;
    int64_t i;
    for (mask = 0; mask < masks && !heti_p_is_over(s); mask++) {
        for (i = 0; i < places; i++) c->recompute[i] = HETI_T_CAST(int32_t, mask >> i & 1u);
        if (!heti_p_is_plan(s, c)) continue;
        for (i = 0; i < places && c->recompute[i] == HETI_T_CAST(int32_t, mask >> i & 1u); i++) {}
        if (i < places) continue; /* the same as without it */
        if (heti_p_too_large(s, c) || heti_p_hopeless(heti_p_bound_of(s, c, 1, after), heti_p_least_found(s))) {
            s->skipped++;
            continue;
        }
        if (lists == NULL) {
            heti_p_choice_plan(s, c);
            s->result = heti_p_choice_lists(s, c, &lists);
            if (s->result != HET_OK || lists == NULL) break;
        }
        for (c->state = 0; c->state < HETI_T_CAST(int32_t, states) && s->result == HET_OK; c->state++) {
            s->result = heti_p_judge_lists(s, c, lists, NULL);
            if (s->result == HET_OK) heti_p_keep(s, c);
        }
        c->state = HETI_P_STATE_EVEN;
    }
    het_schedule_free(lists);
}

/* The schedules, recomputations and state shares of devices, cuts and counts that are set. */
static void heti_p_each_setting(heti_p_seek *s, double after) {
    heti_p_choice *c = &s->now;
    const int64_t before = c->order;
    int64_t o, p, longest = 0;
    for (p = 0; p < c->pipelines; p++)
        if (heti_p_places(c, p) > longest) longest = heti_p_places(c, p);
    for (o = 0; o < s->orders; o++) {
        if (s->order[o]->place != s->order[before]->place) continue;
        c->order = o;
        for (c->limit = 0; c->limit <= (s->order[o]->limited ? longest : 0); c->limit++)
            heti_p_each_recompute(s, after);
        c->limit = 0;
    }
    c->order = before;
}

/* Micro-batches of pipelines p and on. after: seconds behind the verdict at least. */
static void heti_p_each_count(heti_p_seek *s, int64_t p, int64_t left, double after) {
    heti_p_choice *c = &s->now;
    int64_t n;
    if (p + 1 == c->pipelines) {
        c->count[p] = left;
        if (heti_p_hopeless(heti_p_bound_of(s, c, 0, after), heti_p_least_found(s))) s->skipped++;
        else heti_p_each_setting(s, after);
        return;
    }
    for (n = 0; n <= left && !heti_p_is_over(s); n++) {
        c->count[p] = n;
        s->last_counted = p; /* with the smallest micro-batch it takes no longer */
        if (n > 0 && heti_p_hopeless(heti_p_bound_pipeline(s, c, p, 0, -1) + after, heti_p_least_found(s))) {
            s->skipped++;
            return; /* nor with more of them */
        }
        heti_p_each_count(s, p + 1, left - n, after);
    }
}

/* The device of stage i of pipeline p has memory for what its stages up to that one need at least
   in micro-batches of so many granules. */
static int heti_p_has_room(const heti_p_seek *s, const heti_p_choice *c, int64_t p, int64_t i, int64_t granules) {
    const heti_p_maker *order = s->order[c->order];
    const int64_t places = heti_p_places(c, p), place = heti_p_place_of(order, places, i);
    const int64_t *end = &c->end[heti_p_chunks(s, c) * c->first[p]];
    const double limit = s->d.cluster->device[c->device[c->first[p] + place]].memory;
    const double tokens = heti_p_real(granules * s->d.granule_tokens);
    const int again = s->d.recompute == HET_YES;
    double bytes = heti_p_least_stage(s, c, i == 0 ? 0 : end[i - 1], end[i], again, tokens);
    if (i >= places) bytes += heti_p_least_stage(s, c, place == 0 ? 0 : end[place - 1], end[place], again, tokens);
    return limit <= 0 || !heti_p_hopeless(bytes, limit);
}

/* Ends of stage i of pipeline p and of all behind it. */
static void heti_p_each_end(heti_p_seek *s, int64_t p, int64_t i) {
    heti_p_choice *c = &s->now;
    const int64_t chunks = heti_p_chunks(s, c), stages = chunks * heti_p_places(c, p), first = chunks * c->first[p];
    const int64_t begin = i == 0 ? 0 : c->end[first + i - 1];
    int64_t end, g, q;
    double after;
    if (i + 1 < stages) {
        for (end = begin + 1; end <= s->units - (stages - 1 - i) && !heti_p_is_over(s); end++) {
            c->end[first + i] = end;
            if (!heti_p_has_room(s, c, p, i, heti_p_least_granules(s))) break; /* nor for more */
            heti_p_each_end(s, p, i + 1);
        }
        return;
    }
    c->end[first + i] = s->units;
    if (begin >= s->units || !heti_p_has_room(s, c, p, i, heti_p_least_granules(s))) return;
    if (p + 1 < c->pipelines) { heti_p_each_end(s, p + 1, 0); return; }
    after = heti_p_bound_after(s, c);
    for (g = heti_p_least_granules(s); g <= s->d.most_granules && !heti_p_is_over(s); g++) {
        for (q = 0; q < c->pipelines; q++)
            for (i = 0; i < chunks * heti_p_places(c, q); i++)
                if (!heti_p_has_room(s, c, q, i, g)) return; /* nor for more */
        c->granules = g;
        heti_p_each_count(s, 0, heti_p_micro_batches(s, g), after);
    }
}

/* Adds devices to the pipeline whose lowest device is `lowest`. */
static void heti_p_each_member(heti_p_seek *s, int64_t lowest, int64_t chunks) {
    heti_p_choice *c = &s->now;
    int64_t *end = &c->first[c->pipelines + 1], r;
    if (chunks * (*end - c->first[c->pipelines] + 1) > s->units) return;
    for (r = lowest; r < s->ranks && !heti_p_is_over(s); r++) {
        if (s->taken[r]) continue;
        s->taken[r] = 1;
        c->device[(*end)++] = r;
        if (s->taken[lowest]) {
            c->pipelines++;
            heti_p_each_device(s, lowest + 1);
            c->pipelines--;
        }
        heti_p_each_member(s, lowest, chunks);
        --*end;
        s->taken[r] = 0;
    }
}

/* Devices below `next` are in a pipeline or idle. */
static void heti_p_each_device(heti_p_seek *s, int64_t next) {
    heti_p_choice *c = &s->now;
    while (next < s->ranks && s->taken[next]) next++;
    if (next == s->ranks) {
        if (c->pipelines > 0) heti_p_each_end(s, 0, 0);
        return;
    }
    c->first[c->pipelines + 1] = c->first[c->pipelines];
    heti_p_each_member(s, next, heti_p_chunks(s, c));
    heti_p_each_device(s, next + 1);
}

/* n over k */
static double heti_p_choose(int64_t n, int64_t k) {
    double ways = 1;
    int64_t i;
    for (i = 1; i <= k; i++) ways = ways * heti_p_real(n - k + i) / heti_p_real(i);
    return n < k ? 0 : ways;
}

/* Schedules with a placement, each limit counting, times state shares. */
static double heti_p_space_settings(const heti_p_seek *s, int32_t place) {
    double total = 0;
    int64_t o;
    for (o = 0; o < s->orders; o++)
        if (s->order[o]->place == place) total += s->order[o]->limited ? 1 + heti_p_real(s->ranks) : 1;
    return s->d.uneven_state == HET_YES ? HETI_T_CAST(double, HETI_P_STATES) * total : total;
}

/* About how many plans there are. ways[n][p]: of n devices in p pipelines, or idle, each pipeline
   begun by the lowest device left: their orders, cuts and recomputations; times the ways to share
   micro-batches among p. */
static double heti_p_space(const heti_p_seek *s) {
    double total = 0, ways[9][9];
    const double recompute = s->d.recompute == HET_YES ? 2 : 1;
    int64_t g, n, k, p;
    int32_t place;
    if (s->ranks > 8) return HETI_P_NONE;
    for (place = HETI_P_PLACE_ANY; place <= HETI_P_PLACE_V; place++) {
        const int64_t chunks = place == HETI_P_PLACE_ANY ? 1 : 2;
        const double settings = heti_p_space_settings(s, place);
        memset(ways, 0, sizeof ways);
        ways[0][0] = 1;
        for (n = 1; n <= s->ranks; n++)
            for (p = 0; p <= n; p++) {
                double each = recompute; /* k devices in k! orders */
                ways[n][p] = ways[n - 1][p];
                for (k = 1; p > 0 && k <= n && chunks * k <= s->units; k++, each *= recompute * heti_p_real(k))
                    ways[n][p] += each * heti_p_choose(n - 1, k - 1) * heti_p_choose(s->units - 1, chunks * k - 1) *
                    ways[n - k][p - 1];
            }
        for (g = heti_p_least_granules(s); g <= s->d.most_granules; g++)
            for (p = 1; p <= s->ranks; p++)
                total += settings * ways[s->ranks][p] * heti_p_choose(heti_p_micro_batches(s, g) + p - 1, p - 1);
    }
    return total;
}

static void heti_p_all(heti_p_seek *s) {
    heti_p_choice *c = &s->now;
    int32_t place;
    int64_t order;
    for (place = HETI_P_PLACE_ANY; place <= HETI_P_PLACE_V; place++) {
        for (order = 0; order < s->orders && s->order[order]->place != place; order++) {}
        if (order == s->orders) continue;
        memset(s->taken, 0, HETI_T_CAST(size_t, s->ranks) * sizeof *s->taken);
        memset(c->recompute, 0, HETI_T_CAST(size_t, s->ranks) * sizeof *c->recompute);
        c->order = order;
        c->limit = c->pipelines = c->first[0] = 0;
        c->state = HETI_P_STATE_EVEN;
        heti_p_each_device(s, 0);
    }
    if (!heti_p_is_over(s)) s->exhaustive = 1;
}

/* ---- the lower bound ---- */

/* F and the shorter of the backwards that there are. */
static double heti_p_least_both(const heti_p_seek *s, int64_t kind, int64_t u, int64_t granules) {
    const double input = heti_p_seconds(s, kind, HETI_P_LEAST + HETI_P_TIME_INPUT, u, u + 1, granules);
    const double apart = input + heti_p_seconds(s, kind, HETI_P_LEAST + HETI_P_TIME_WEIGHT, u, u + 1, granules);
    const double whole = heti_p_seconds(s, kind, HETI_P_LEAST + HETI_P_TIME_BACKWARD, u, u + 1, granules);
    const double back = !s->has[1] ? whole : !s->has[0] ? apart : heti_p_smaller(whole, apart);
    return heti_p_seconds(s, kind, HETI_P_LEAST + HETI_P_TIME_FORWARD, u, u + 1, granules) + back;
}

/* Every granule passes through every unit on some device. For weights z of the kinds that add up to
   1 over all devices, a step takes at least granules sum over units of min over kinds of z
   seconds(unit, kind): the dual of sharing the work of each unit out freely. Weights begin at speed
   and go to the kinds that would be given too much. */
static double heti_p_bound_work(heti_p_seek *s) {
    const int64_t most = s->d.most_granules;
    double best = 0, *z = s->work, *load = s->fill;
    int64_t k, u;
    int round;
    for (k = 0; k < s->kinds; k++) z[k] = s->rate[k];
    for (round = 0; round < 200; round++) {
        double sum = 0, value = 0, mean = 0;
        for (k = 0; k < s->kinds; k++) sum += heti_p_real(s->kind_count[k]) * z[k];
        for (k = 0; k < s->kinds; k++) z[k] /= sum, load[k] = 0;
        for (u = 0; u < s->units; u++) {
            double least = HETI_P_NONE;
            int64_t chosen = 0;
            for (k = 0; k < s->kinds; k++) {
                const double one = heti_p_least_both(s, k, u, most) / heti_p_real(most);
                if (z[k] * one >= least) continue;
                least = z[k] * one;
                chosen = k;
            }
            value += least;
            load[chosen] += least / (z[chosen] * heti_p_real(s->kind_count[chosen]));
        }
        best = heti_p_larger(best, value * heti_p_real(s->d.granules));
        for (k = 0; k < s->kinds; k++) mean = heti_p_larger(mean, load[k]);
        for (k = 0; k < s->kinds && mean > 0; k++) z[k] *= 1 + 0.5 / heti_p_real(round + 2) * (load[k] / mean - 0.5);
    }
    return best;
}

/* The smallest full micro-batch passes forward and back through every unit. */
static double heti_p_bound_chain(const heti_p_seek *s) {
    const int64_t g = heti_p_least_granules(s);
    double sum = 0;
    int64_t u, k;
    for (u = 0; u < s->units; u++) {
        double least = HETI_P_NONE;
        for (k = 0; k < s->kinds; k++) {
            const double f = heti_p_seconds(s, k, HETI_P_LEAST + HETI_P_TIME_FORWARD, u, u + 1, g);
            const double b = heti_p_seconds(s, k, HETI_P_LEAST + HETI_P_TIME_BACKWARD, u, u + 1, g);
            const double input = heti_p_seconds(s, k, HETI_P_LEAST + HETI_P_TIME_INPUT, u, u + 1, g);
            least = heti_p_smaller(least, f + (!s->has[1] ? b : !s->has[0] ? input : heti_p_smaller(b, input)));
        }
        sum += least;
    }
    return sum;
}

/* The optimizer's work divided by all speeds. */
static double heti_p_bound_all_steps(const heti_p_seek *s) {
    double speed = 0;
    int64_t r;
    for (r = 0; r < s->ranks; r++) {
        const double element = s->times[s->kind_of[r]]->step_element;
        if (!(element > 0)) return 0;
        speed += s->d.cluster->device[r].speed / element;
    }
    return s->trained / speed;
}

/* ---- what was asked for ---- */

static het_result heti_p_seek_orders(heti_p_seek *s) {
    int64_t i, j;
    if (s->d.schedules == NULL) {
        for (i = 0; heti_p_order_at(i) != NULL; i++)
            if (heti_p_order_at(i)->usual) s->order[s->orders++] = heti_p_order_at(i);
        return HET_OK;
    }
    if (s->d.schedule_count < 1 || s->d.schedule_count > HETI_P_MOST_SCHEDULES)
        return heti_t_fail(s->error, HET_ERR_INVALID, "het_plan_search: %d schedules, not 1 to %d", s->d.schedule_count,
            HETI_T_CAST(int64_t, HETI_P_MOST_SCHEDULES));
    for (i = 0; i < s->d.schedule_count; i++) {
        const char *name = s->d.schedules[i] != NULL ? s->d.schedules[i] : "";
        for (j = 0; heti_p_order_at(j) != NULL && !heti_p_same_text(name, heti_p_order_at(j)->name); j++) {}
        if (heti_p_order_at(j) == NULL)
            return heti_t_fail(s->error, HET_ERR_INVALID,
                               "het_plan_search: no plan is looked for with schedule '%s', not one of 1f1b, "
                               "gpipe, zb-h1, "
                "zb-h2, greedy, interleaved, zb-v, v-half, v-min, dualpipev", name);
        s->order[s->orders++] = heti_p_order_at(j);
    }
    return HET_OK;
}

static het_result heti_p_seek_desc(heti_p_seek *s, const het_search_desc *desc) {
    het_search_desc *d = &s->d;
    *d = *desc;
    if (d->start_canary != 0 || d->end_canary != 0)
        return heti_t_fail(s->error, HET_ERR_INVALID, "het_plan_search: the description was not cleared");
    if (d->profile == NULL || d->cluster == NULL)
        return heti_t_fail(s->error, HET_ERR_INVALID, "het_plan_search: %s is NULL", d->profile == NULL ? "profile" :
                           "cluster");
    if (d->granule_sequences == 0) d->granule_sequences = 1;
    if (d->granules < 1 || d->granule_tokens < 1 || d->granule_sequences < 1 || d->granules > 1000000 ||
        d->granule_tokens > 1000000000)
        return heti_t_fail(s->error, HET_ERR_INVALID, "het_plan_search: %d granules of %d tokens and %d sequences",
                           d->granules, d->granule_tokens, d->granule_sequences);
    if (!(d->granule_pairs >= 0 && d->granule_pairs <= 1e18) || !(d->seconds >= 0))
        return heti_t_fail(s->error, HET_ERR_INVALID,
                           "het_plan_search: granule_pairs or seconds is negative or not finite");
    if (!(d->granule_pairs > 0)) {
        const double length = heti_p_real(d->granule_tokens) / heti_p_real(d->granule_sequences);
        d->granule_pairs = 0.5 * length * (length + 1) * heti_p_real(d->granule_sequences);
    }
    if (d->most_granules < 1 || d->most_granules > d->granules) d->most_granules = d->granules;
    if (d->most_micro_batches < 1 || d->most_micro_batches > d->granules) d->most_micro_batches = d->granules;
    if (heti_p_least_granules(s) > d->most_granules)
        return heti_t_fail(s->error, HET_ERR_INVALID, "het_plan_search: %d granules are more than %d "
                                                      "micro-batches of %d", d->granules, d->most_micro_batches,
                                                      d->most_granules);
    if (d->recompute != HET_NO) d->recompute = HET_YES;
    if (d->uneven_state != HET_NO) d->uneven_state = HET_YES;
    if (d->evaluations < 1) d->evaluations = 20000;
    if (d->small == 0) d->small = 1000000000;
    if (d->most_found < 1) d->most_found = 5;
    if (d->most_found > 64) d->most_found = 64;
    s->units = d->profile->units;
    s->ranks = d->cluster->ranks;
    if (s->units < 1 || s->ranks < 1)
        return heti_t_fail(s->error, HET_ERR_INVALID, "het_plan_search: a profile of %d units, a cluster of %d devices",
                           s->units, s->ranks);
    s->found_room = d->most_found;
    s->random = d->seed;
    return heti_p_seek_orders(s);
}

static int heti_p_curve_valid(const het_curve *c) {
    return c->base >= 0 && c->base <= 1e100 && c->token >= 0 && c->token <= 1e100 && c->pair >= 0 && c->pair <= 1e100;
}

/* Profiles of devices, and that everything in them is a time. */
static het_result heti_p_seek_times(heti_p_seek *s, int64_t r, const het_device_profile **times) {
    const het_profile *p = s->d.profile;
    const het_cluster_device *device = &s->d.cluster->device[r];
    int64_t i, k;
    for (i = 0; i < p->devices && !heti_p_same_text(p->device[i].name, device->profile); i++) {}
    if (i == p->devices)
        return heti_t_fail(s->error, HET_ERR_INVALID, "het_plan_search: device %d (%s): the profile has no device '%s'",
                           r, device->name, device->profile);
    if (!(device->speed > 0 && device->speed <= 1e30) || !(device->memory >= 0 && device->memory <= 1e300))
        return heti_t_fail(s->error, HET_ERR_INVALID, "het_plan_search: device %d (%s): its speed is %g, its memory %g",
                           r, device->name, device->speed, device->memory);
    if (device->group < 0 || device->group >= s->d.cluster->groups)
        return heti_t_fail(s->error, HET_ERR_INVALID, "het_plan_search: device %d (%s): group %d of %d", r,
                           device->name, device->group, s->d.cluster->groups);
    *times = &p->device[i];
    for (k = 0; k < p->kinds; k++) {
        const het_unit_time *t = &heti_p_unit_times(s, *times)[k];
        if (heti_p_curve_valid(&t->forward) && heti_p_curve_valid(&t->backward) && heti_p_curve_valid(&t->input) &&
            heti_p_curve_valid(&t->weight) && heti_p_curve_valid(&t->recompute))
            continue;
        return heti_t_fail(s->error, HET_ERR_INVALID,
                           "het_plan_search: a time of unit kind '%s' on '%s' is negative or not finite",
                               p->kind[k].name, device->profile);
    }
    return HET_OK;
}

static het_result heti_p_seek_kinds(heti_p_seek *s) {
    const het_cluster *c = s->d.cluster;
    int64_t r, k;
    for (r = 0; r < s->ranks; r++) {
        const het_device_profile *times = NULL;
        HETI_T_TRY(heti_p_seek_times(s, r, &times));
        for (k = 0; k < s->kinds; k++) {
            const het_cluster_device *other = &c->device[s->kind_device[k]];
            if (s->times[k] == times && !(other->speed > c->device[r].speed) && !(other->speed < c->device[r].speed) &&
                !(other->memory > c->device[r].memory) && !(other->memory < c->device[r].memory))
                break;
        }
        if (k == s->kinds) {
            s->kinds++;
            s->times[k] = times;
            s->kind_device[k] = r;
        }
        s->kind_of[r] = k;
        s->kind_count[k]++;
    }
    for (k = 0; k < c->groups; k++) {
        const int64_t parent = c->group[k].parent;
        if (parent >= k || parent < -1 || (parent == -1 && k > 0))
            return heti_t_fail(s->error, HET_ERR_INVALID, "het_plan_search: group %d (%s) has parent %d", k,
                               c->group[k].name, parent);
        s->depth[k] = parent < 0 ? 0 : s->depth[parent] + 1;
    }
    return HET_OK;
}

static int heti_p_is_zero(const het_curve *c) { return !(c->base > 0) && !(c->token > 0) && !(c->pair > 0); }

/* A profile in which some unit has a backward but no times of its two parts knows nothing about
   schedules that split it, and the reverse: those are left out. */
static het_result heti_p_seek_known(heti_p_seek *s) {
    int64_t k, u, o, kept = 0;
    const char *lacks[2] = { NULL, NULL }; /* a unit without B; without I and W */
    for (k = 0; k < s->kinds; k++)
        for (u = 0; u < s->d.profile->kinds; u++) {
            const het_unit_time *t = &heti_p_unit_times(s, s->times[k])[u];
            const int whole = !heti_p_is_zero(&t->backward),
                      parts = !heti_p_is_zero(&t->input) || !heti_p_is_zero(&t->weight);
            if (parts && !whole) lacks[0] = s->d.profile->kind[u].name;
            if (whole && !parts) lacks[1] = s->d.profile->kind[u].name;
        }
    for (o = 0; o < s->orders; o++)
        if (lacks[s->order[o]->split ? 1 : 0] == NULL) s->order[kept++] = s->order[o];
    s->orders = kept;
    for (o = 0; o < s->orders; o++) s->has[s->order[o]->split ? 1 : 0] = 1;
    if (kept > 0) return HET_OK;
    return heti_t_fail(s->error, HET_ERR_INVALID,
                       "het_plan_search: the profile has no times of the backward of unit kind '%s' %s",
                           lacks[0] != NULL
        ? lacks[0] : lacks[1], lacks[0] != NULL ? "in one piece" :
        "for inputs and weights apart, which these schedules need");
}

static const het_curve *heti_p_curve_of(const het_unit_time *t, int what) {
    return what == HETI_P_TIME_FORWARD ? &t->forward : what == HETI_P_TIME_BACKWARD ? &t->backward :
        what == HETI_P_TIME_INPUT ? &t->input
        : what == HETI_P_TIME_WEIGHT ? &t->weight : &t->recompute;
}

/* Sums over units, by kind of device. A plan's times lie between those alone and together, as its
   ranks are at work (het_simulate_costs). */
static void heti_p_seek_sums(heti_p_seek *s) {
    const het_profile *p = s->d.profile;
    int64_t k, u;
    int what;
    for (k = 0; k < s->kinds; k++) {
        const double speed = s->d.cluster->device[s->kind_device[k]].speed;
        for (what = 0; what < 2 * HETI_P_TIME_CURVES; what++) {
            het_curve *sum = &s->sum[(k * HETI_P_SUMS + what) * (s->units + 1)];
            for (u = 0; u < s->units; u++) {
                const int curve = what % HETI_P_TIME_CURVES, least = what >= HETI_P_LEAST;
                const het_curve *one = heti_p_curve_of(&heti_p_unit_times(s, s->times[k])[p->unit[u]], curve);
                const het_curve *alone = least ? heti_p_curve_of(&s->times[k]->alone[p->unit[u]], curve) : one;
                const double part = curve == HETI_P_TIME_RECOMPUTE && p->kind[p->unit[u]].loss ? 0 : 1 / speed;
                sum[u + 1].base = sum[u].base + part * heti_p_smaller(one->base, alone->base);
                sum[u + 1].token = sum[u].token + part * heti_p_smaller(one->token, alone->token);
                sum[u + 1].pair = sum[u].pair + part * heti_p_smaller(one->pair, alone->pair);
            }
        }
        for (what = 0; what < 2; what++) {
            const het_curve *all = &s->sum[k * HETI_P_SUMS * (s->units + 1)];
            het_curve *sum = &s->sum[(k * HETI_P_SUMS + HETI_P_BOTH + what) * (s->units + 1)];
            for (u = 0; u <= s->units; u++) {
                heti_p_add_curve(&sum[u], &all[HETI_P_TIME_FORWARD * (s->units + 1) + u], 1);
                heti_p_add_curve(&sum[u], &all[(what == 0 ? HETI_P_TIME_BACKWARD : HETI_P_TIME_INPUT) * (s->units + 1) +
                                               u], 1);
                if (what == 1) heti_p_add_curve(&sum[u], &all[HETI_P_TIME_WEIGHT * (s->units + 1) + u], 1);
            }
        }
        s->rate[k] = 1 / (heti_p_both(s, k, 0, 0, 0, s->units, s->d.most_granules) / heti_p_real(s->d.most_granules) +
                          1e-30);
    }
}

/* Bytes and elements of units. */
static void heti_p_seek_bytes(heti_p_seek *s) {
    const het_profile *p = s->d.profile;
    int64_t u, b, i;
    for (b = 0; b < p->blocks; b++) {
        const het_block_profile *block = &p->block[b];
        s->block_start[b] = block->first_use;
        s->block_start[b + 1] = block->first_use + block->uses;
        const int64_t first = p->use[block->first_use] + 1;
        const double elements = heti_p_real(block->elements), trained = block->frozen ? 0 : elements;
        s->trained += trained;
        s->least_held[first] += elements * p->weight_bytes + trained * p->gradient_bytes;
        if (block->uses == 1) s->owned[first] += trained * p->state_bytes;
        for (i = 0; i < block->uses; i++) s->held[p->use[block->first_use + i] + 1] += elements;
    }
    for (u = 0; u < s->units; u++) {
        const het_unit_kind *k = &p->kind[p->unit[u]];
        const double always = k->output + k->carry, more = k->keep_input + k->keep_weight;
        const double scratch = k->call + 3 * (k->input + k->output) + k->workspace;
        s->held[u + 1] += s->held[u];
        s->least_held[u + 1] += s->least_held[u];
        s->owned[u + 1] += s->owned[u];
        s->kept[u + 1] = s->kept[u] + always + more;
        s->kept[s->units + 1 + u + 1] = s->kept[s->units + 1 + u] + always + (k->loss ? more : 0);
        s->widest = heti_p_larger(s->widest, scratch + more);
    }
}

/* 1: device a comes before b in the order of the cluster's groups. */
static int heti_p_before(const heti_p_seek *s, int64_t a, int64_t b) {
    const het_cluster *c = s->d.cluster;
    int64_t i = c->device[a].group, j = c->device[b].group, from_i = -1, from_j = -1;
    while (i != j) {
        if (s->depth[i] >= s->depth[j]) { from_i = i; i = c->group[i].parent; }
        else { from_j = j; j = c->group[j].parent; }
    }
    return from_i != from_j ? from_i < from_j : a < b;
}

static void heti_p_seek_sort(heti_p_seek *s) {
    int64_t r, i;
    for (r = 0; r < s->ranks; r++) {
        for (i = r; i > 0 && heti_p_before(s, r, s->by_place[i - 1]); i--) s->by_place[i] = s->by_place[i - 1];
        s->by_place[i] = r;
    }
    for (r = 0; r < s->ranks; r++) { /* by kinds, the fastest first; equal ones as they stand in the cluster */
        const int64_t device = s->by_place[r];
        for (i = r; i > 0 && s->rate[s->kind_of[s->by_speed[i - 1]]] < s->rate[s->kind_of[device]]; i--)
            s->by_speed[i] = s->by_speed[i - 1];
        s->by_speed[i] = device;
    }
}

static void heti_p_choice_cut(heti_p_seek *s, heti_t_arena *a, heti_p_choice *c) {
    c->first = HETI_T_TAKE(a, int64_t, s->ranks + 2);
    c->count = HETI_T_TAKE(a, int64_t, s->ranks + 2);
    c->device = HETI_T_TAKE(a, int64_t, s->ranks + 1);
    c->end = HETI_T_TAKE(a, int64_t, 2 * s->ranks + 2);
    c->recompute = HETI_T_TAKE(a, int32_t, s->ranks + 1);
}

#define HETI_P_ROOM(type, count) HETI_T_TAKE(a, type, count)

static void heti_p_seek_cut(heti_p_seek *s, heti_t_arena *a) {
    const int64_t n = s->ranks, m = s->units + 1;
    int64_t i;
    s->kind_of = HETI_P_ROOM(int64_t, n);
    s->kind_count = HETI_P_ROOM(int64_t, n);
    s->kind_device = HETI_P_ROOM(int64_t, n);
    s->times = HETI_P_ROOM(const het_device_profile *, n);
    s->rate = HETI_P_ROOM(double, n);
    s->depth = HETI_P_ROOM(int64_t, s->d.cluster->groups);
    s->held = HETI_P_ROOM(double, m);
    s->kept = HETI_P_ROOM(double, 2 * m);
    s->least_held = HETI_P_ROOM(double, m);
    s->owned = HETI_P_ROOM(double, m);
    s->block_start = HETI_P_ROOM(int64_t, s->d.profile->blocks + 1);
    s->plan.stage = HETI_P_ROOM(het_stage, 2 * n);
    s->plan.first_stage = HETI_P_ROOM(int64_t, n + 1);
    s->plan.share = HETI_P_ROOM(double, n);
    s->plan.state_share = HETI_P_ROOM(double, n);
    s->plan.slice_share = HETI_P_ROOM(double, 1);
    s->needs = HETI_P_ROOM(het_needs, n);
    s->memory = HETI_P_ROOM(het_memory, n);
    s->work = HETI_P_ROOM(double, n);
    s->weight_work = HETI_P_ROOM(double, n);
    s->fill = HETI_P_ROOM(double, n);
    s->tail = HETI_P_ROOM(double, n);
    s->pipeline_time = HETI_P_ROOM(double, n + 1);
    s->pipeline_fill = HETI_P_ROOM(double, n + 1);
    s->reserve = HETI_P_ROOM(double, n);
    s->tokens = HETI_P_ROOM(double, s->d.granules);
    s->pairs = HETI_P_ROOM(double, s->d.granules);
    s->scratch = HETI_P_ROOM(int64_t, 2 * n);
    s->ring = HETI_P_ROOM(double, n);
    s->memo = HETI_P_ROOM(heti_p_memo, HETI_P_MEMOS);
    s->known = HETI_P_ROOM(heti_p_known, HETI_P_KNOWN);
    s->alone.stage = HETI_P_ROOM(het_stage, 2 * n);
    s->alone.first_stage = HETI_P_ROOM(int64_t, 2);
    s->alone.share = HETI_P_ROOM(double, 1);
    s->alone.slice_share = HETI_P_ROOM(double, 1);
    s->alone.state_share = HETI_P_ROOM(double, n);
    s->alone_stage = HETI_P_ROOM(het_stage_cost, 2 * n);
    s->alone_group = HETI_P_ROOM(int64_t, n);
    s->alone_key = HETI_P_ROOM(int64_t, 5 * n + 10);
    s->by_place = HETI_P_ROOM(int64_t, n);
    s->by_speed = HETI_P_ROOM(int64_t, n);
    s->used = HETI_P_ROOM(int32_t, n);
    s->taken = HETI_P_ROOM(int32_t, n);
    s->fits = HETI_P_ROOM(int32_t, n + 1);
    s->found = HETI_P_ROOM(heti_p_choice, s->found_room);
    heti_p_choice_cut(s, a, &s->now);
    heti_p_choice_cut(s, a, &s->next);
    heti_p_choice_cut(s, a, &s->best);
    heti_p_choice_cut(s, a, &s->sorted);
    for (i = 0; i < s->found_room; i++) {
        heti_p_choice none;
        memset(&none, 0, sizeof none);
        heti_p_choice_cut(s, a, &none);
        if (a->base != NULL) s->found[i] = none;
    }
}

/* The curves need the number of kinds, which the first block has to hold. */
static het_result heti_p_seek_start(heti_p_seek *s, void **block, size_t *size) {
    heti_t_arena arena;
    arena.base = NULL;
    arena.used = 0;
    heti_p_seek_cut(s, &arena);
    *size = arena.used;
    HETI_T_TRY(heti_t_block(&s->allocator, *size, "het_plan_search", block, s->error));
    memset(*block, 0, *size);
    arena.base = HETI_T_CAST(char *, *block);
    arena.used = 0;
    heti_p_seek_cut(s, &arena);
    s->plan.units = s->units;
    s->plan.ranks = s->ranks;
    s->plan.slices = 1;
    s->plan.slice_share[0] = 1;
    s->alone.units = s->units;
    s->alone.pipelines = s->alone.slices = 1;
    s->alone.share[0] = s->alone.slice_share[0] = 1;
    s->least_missing = s->least_guess = HETI_P_NONE;
    return HET_OK;
}

/* ---- what is found ---- */

static void heti_p_plan_cut(const het_plan *from, het_plan **plan, heti_t_arena *a) {
    het_plan *to = HETI_P_ROOM(het_plan, 1);
    het_plan count;
    het_plan *p = a->base != NULL ? to : &count;
    if (a->base != NULL) *to = *from;
    p->stage = HETI_P_ROOM(het_stage, from->stages);
    p->first_stage = HETI_P_ROOM(int64_t, from->pipelines + 1);
    p->share = HETI_P_ROOM(double, from->pipelines);
    p->state_share = HETI_P_ROOM(double, from->ranks);
    p->slice_share = HETI_P_ROOM(double, from->slices);
    *plan = to;
}

static het_result heti_p_plan_copy(const het_plan *from, const het_allocator *allocator, const char *call,
                                   het_plan **plan, het_error *error) {
    heti_t_arena arena;
    void *block;
    size_t size;
    arena.base = NULL;
    arena.used = 0;
    heti_p_plan_cut(from, plan, &arena);
    size = arena.used;
    *plan = NULL;
    HETI_T_TRY(heti_t_block(allocator, size, call, &block, error));
    arena.base = HETI_T_CAST(char *, block);
    arena.used = 0;
    heti_p_plan_cut(from, plan, &arena);
    memcpy((*plan)->stage, from->stage, HETI_T_CAST(size_t, from->stages) * sizeof *from->stage);
    memcpy((*plan)->first_stage, from->first_stage, HETI_T_CAST(size_t, from->pipelines + 1) *
           sizeof *from->first_stage);
    memcpy((*plan)->share, from->share, HETI_T_CAST(size_t, from->pipelines) * sizeof *from->share);
    memcpy((*plan)->state_share, from->state_share, HETI_T_CAST(size_t, from->ranks) * sizeof *from->state_share);
    memcpy((*plan)->slice_share, from->slice_share, HETI_T_CAST(size_t, from->slices) * sizeof *from->slice_share);
    (*plan)->allocator = *allocator;
    (*plan)->size = size;
    return HET_OK;
}

static void heti_p_without_links(het_costs *costs) {
    costs->link = NULL;
    costs->group = NULL;
    costs->rank_group = NULL;
    costs->groups = 0;
    costs->every_link.latency = costs->every_link.bandwidth = 0;
}

/* The step again without reductions and steps, and without links: where the time goes. Each
   simulation is of the same lists. */
static het_result heti_p_explain(heti_p_seek *s, const heti_p_choice *c, const het_schedule *lists, het_found *found) {
    het_plan_costs *costs = NULL;
    het_costs without;
    het_simulation *simulation = NULL;
    double compute = 0, free_links = 0;
    int64_t r;
    het_result result;
    heti_p_choice_sizes(s, c);
    HETI_T_TRY(heti_p_choice_costs(s, &costs));
    /* for how busy the ranks are */
    result = het_simulate_costs(&s->plan, lists, costs, HET_NO, &s->allocator, &simulation, s->error);
    het_simulation_free(simulation);
    simulation = NULL;
    without = costs->costs;
    without.block = NULL;
    without.blocks = 0;
    if (result == HET_OK)
        result = het_simulate(&s->plan, lists, &without, HET_NO, &s->allocator, &simulation, s->error);
    if (result == HET_OK) compute = simulation->makespan;
    het_simulation_free(simulation);
    simulation = NULL;
    heti_p_without_links(&without);
    if (result == HET_OK)
        result = het_simulate(&s->plan, lists, &without, HET_NO, &s->allocator, &simulation, s->error);
    if (result == HET_OK) {
        free_links = simulation->makespan;
        found->work = 0;
        for (r = 0; r < s->ranks; r++) found->work = heti_p_larger(found->work, simulation->rank[r].busy);
        found->fill = free_links - found->work;
        found->transfers = compute - free_links;
        found->update = c->seconds - compute;
    }
    het_simulation_free(simulation);
    het_plan_costs_free(costs);
    return result;
}

/* "2.1 % more work of the busiest device, 0.5 % less waiting": the parts that differ by more than
   0.05 % of the best, the largest first. */
static void heti_p_why(const het_found *best, het_found *found, int is_best) {
    static const char *const heti_p_parts[] = { "work of the busiest device",
                                               "waiting for the pipeline to fill, drain and keep in step",
        "waiting for links", "reductions, optimizer and gathers" };
    double part[4];
    heti_t_text out = heti_t_text_in(found->why, sizeof found->why);
    int i, round, shown = 0;
    part[0] = found->work - (is_best ? 0 : best->work);
    part[1] = found->fill - (is_best ? 0 : best->fill);
    part[2] = found->transfers - (is_best ? 0 : best->transfers);
    part[3] = found->update - (is_best ? 0 : best->update);
    for (round = 0; round < 4 && best->seconds > 0; round++) {
        int most = 0;
        for (i = 1; i < 4; i++)
            if ((part[i] < 0 ? -part[i] : part[i]) > (part[most] < 0 ? -part[most] : part[most])) most = i;
        if ((part[most] < 0 ? -part[most] : part[most]) <= 0.0005 * best->seconds) break;
        heti_t_put(&out, shown++ > 0 ? ", " : "");
        heti_t_fixed(&out, 100 * (part[most] < 0 ? -part[most] : part[most]) / best->seconds, 1);
        heti_t_put(&out, is_best ? " % " : part[most] > 0 ? " % more " : " % less ");
        heti_t_put(&out, heti_p_parts[most]);
        part[most] = 0;
    }
    if (shown == 0) heti_t_put(&out, "the same time");
}

static het_result heti_p_fill_found(heti_p_seek *s, heti_p_choice *c, het_found *found, het_simulation **simulation) {
    het_schedule *lists = NULL;
    het_simulation *made = NULL;
    het_result result = heti_p_judge(s, c, &made, &lists);
    int64_t r;
    s->evaluations--; /* counted when it was found */
    if (result == HET_OK) {
        found->micro_batches = heti_p_micro_batches(s, c->granules);
        found->granules = c->granules;
        found->seconds = c->seconds;
        for (r = 0; r < s->ranks; r++)
            found->memory[r] = s->used[r] ? HETI_T_CAST(double, s->memory[r].device) +
            HETI_T_CAST(double, s->memory[r].communication) : 0;
        result = heti_p_explain(s, c, lists, found);
    }
    if (result == HET_OK) result = heti_p_plan_copy(&s->plan, &s->allocator, "het_plan_search", &found->plan, s->error);
    het_schedule_free(lists);
    if (result == HET_OK && simulation != NULL) *simulation = made;
    else het_simulation_free(made);
    return result;
}

static void heti_p_search_cut(const heti_p_seek *s, het_search **search, heti_t_arena *a) {
    het_search *to = HETI_P_ROOM(het_search, 1);
    het_found *found = HETI_P_ROOM(het_found, s->found_count);
    int64_t i;
    if (a->base != NULL) {
        memset(to, 0, sizeof *to);
        to->found = found;
        memset(found, 0, HETI_T_CAST(size_t, s->found_count) * sizeof *found);
    }
    for (i = 0; i < s->found_count; i++) {
        double *memory = HETI_P_ROOM(double, s->ranks);
        if (a->base != NULL) found[i].memory = memory;
    }
    *search = to;
}

static het_result heti_p_seek_result(heti_p_seek *s, het_search **search) {
    heti_t_arena arena;
    het_search *to;
    void *block;
    size_t size;
    int64_t i;
    double work, chain;
    het_result result = HET_OK;
    arena.base = NULL;
    arena.used = 0;
    heti_p_search_cut(s, &to, &arena);
    size = arena.used;
    HETI_T_TRY(heti_t_block(&s->allocator, size, "het_plan_search", &block, s->error));
    arena.base = HETI_T_CAST(char *, block);
    arena.used = 0;
    heti_p_search_cut(s, &to, &arena);
    to->allocator = s->allocator;
    to->size = size;
    to->found_count = s->found_count;
    for (i = 0; i < s->found_count && result == HET_OK; i++) {
        result = heti_p_fill_found(s, &s->found[i], &to->found[i], i == 0 ? &to->simulation : NULL);
        if (result == HET_OK) heti_p_why(&to->found[0], &to->found[i], i == 0);
    }
    work = heti_p_bound_work(s);
    chain = heti_p_bound_chain(s);
    to->bound = heti_p_larger(work, chain) + heti_p_bound_all_steps(s);
    to->distance = to->bound > 0 ? to->found[0].seconds / to->bound - 1 : 0;
    memcpy(to->bound_by, work >= chain ? "work over summed speeds" : "fastest chain", work >= chain ? 24 : 14);
    to->evaluations = s->evaluations;
    to->skipped = s->skipped;
    to->exhaustive = s->exhaustive;
    to->stopped = s->result == HET_OK && !s->exhaustive && heti_p_is_over(s);
    if (result != HET_OK) het_search_free(to);
    else *search = to;
    return result;
}

HETRAIN_API void het_search_free(het_search *search) {
    het_allocator allocator;
    int64_t i;
    if (search == NULL) return;
    for (i = 0; i < search->found_count; i++) het_plan_free(search->found[i].plan);
    het_simulation_free(search->simulation);
    allocator = search->allocator;
    allocator.free(allocator.user, search, search->size);
}

/* Bytes that a unit needs wherever it lies, even if its state lies elsewhere: parameters,
   gradients, one of the smallest micro-batches. */
static double heti_p_least_bytes(const heti_p_seek *s, int64_t unit) {
    const het_profile *p = s->d.profile;
    const double tokens = heti_p_real(heti_p_least_granules(s) * s->d.granule_tokens);
    const het_stage_memory m = het_profile_stage(p, unit, unit + 1, s->d.recompute == HET_YES, 0, 0, tokens, tokens);
    return (s->held[unit + 1] - s->held[unit]) * (p->weight_bytes + p->gradient_bytes) + m.slot + m.carry + m.scratch +
        3 * m.stream +
           p->rank_weights + p->rank_gradients + p->rank_workspace;
}

/* Nothing fits: the unit that cannot lie anywhere, or the plan that lacks least. */
static het_result heti_p_nothing(heti_p_seek *s) {
    const int64_t r = s->least_missing_rank, begin = s->least_missing_begin, end = s->least_missing_end;
    const het_cluster_device *device = &s->d.cluster->device[r];
    int64_t u, most = 0, i;
    for (u = 1; u < s->units; u++)
        if (heti_p_least_bytes(s, u) > heti_p_least_bytes(s, most)) most = u;
    for (i = 0, u = 0; i < s->ranks; i++)
        if (s->d.cluster->device[i].memory <= 0 || s->d.cluster->device[i].memory > s->d.cluster->device[u].memory)
            u = i;
    if (s->d.cluster->device[u].memory > 0 && heti_p_least_bytes(s, most) > s->d.cluster->device[u].memory)
        return heti_t_fail(s->error, HET_ERR_LIMIT,
                           "het_plan_search: unit %d (%s) needs at least %b, %b more than the %b of device %d (%s), "
            "the largest", most, s->d.profile->kind[s->d.profile->unit[most]].name, heti_p_least_bytes(s, most),
            heti_p_least_bytes(s, most) - s->d.cluster->device[u].memory, s->d.cluster->device[u].memory, u,
            s->d.cluster->device[u].name);
    if (s->least_missing >= HETI_P_NONE)
        return heti_t_fail(s->error, HET_ERR_LIMIT,
                           "het_plan_search: %d units, %d devices: no schedule asked for can have a plan", s->units,
                           s->ranks);
    if (end - begin == 1)
        return heti_t_fail(s->error, HET_ERR_LIMIT,
                           "het_plan_search: nothing fits: at best unit %d (%s) alone needs %b more than the %b of "
            "device %d (%s)", begin, s->d.profile->kind[s->d.profile->unit[begin]].name, s->least_missing,
            device->memory, r, device->name);
    return heti_t_fail(s->error, HET_ERR_LIMIT,
                       "het_plan_search: nothing fits: at best units %d to %d need %b more than the %b of device %d "
        "(%s)", begin, end - 1, s->least_missing, device->memory, r, device->name);
}

/* Lists of so many actions are simulated as quickly as estimated. */
static int heti_p_is_quick(const heti_p_seek *s, const heti_p_choice *c) {
    int64_t p, actions = 0;
    for (p = 0; p < c->pipelines; p++) actions += c->count[p] * heti_p_chunks(s, c) * heti_p_places(c, p);
    return s->ranks <= 16 && actions <= 1024;
}

/* Where a climb begins: from the best forms in turn, the best every second time, or from something
   drawn. 0: nothing can be begun with. */
static int heti_p_climb_from(heti_p_seek *s, int64_t turn, int drawn) {
    int round;
    for (round = 0; drawn && round < 8; round++)
        if (heti_p_drawn(s)) return 1;
    if (s->found_count > 0)
        heti_p_choice_copy(s, &s->now, &s->found[(turn & 1) == 0 ? 0 : (turn / 2 + 1) % s->found_count]);
    else if (s->best.seconds < HETI_P_NONE) heti_p_choice_copy(s, &s->now, &s->best);
    else return 0;
    return 1;
}

/* Climbs by estimates and, where lists are short, three times as many by simulations, ever longer,
   until nothing has come of `most` of them. */
static void heti_p_climbs(heti_p_seek *s, int64_t moves, int64_t most) {
    int64_t turn = 0, idle = 0;
    while (!heti_p_is_over(s) && idle < most) {
        const double before = heti_p_least_found(s);
        int simulate;
        if (!heti_p_climb_from(s, turn / 2, turn % 4 == 3 && s->ranks <= 16)) return;
        simulate = turn % 4 != 0 && heti_p_is_quick(s, &s->now);
        /* they cost more */
        heti_p_climb(s, simulate ? moves / 4 : moves, 0.02 * (1 + heti_p_real(idle % 8)), simulate);
        if (++turn % 4 == 0 && moves < 20000) moves += moves / 2;
        if (heti_p_least_found(s) < before) idle = 0;
        else idle++;
    }
}

/* A small space is gone through after a few climbs, which often is quick; else climbs get most of
   what is left, and the rest goes to going through it once more with what they found, which rules
   out more. */
static void heti_p_seek_run(heti_p_seek *s) {
    const int small = s->d.small > 0 && heti_p_space(s) <= heti_p_real(s->d.small);
    s->best.seconds = HETI_P_NONE;
    (void)heti_p_give(s, 1);
    heti_p_beginnings(s);
    if (s->found_count == 0 && !heti_p_is_over(s)) {
        s->ignore_memory = 1;
        heti_p_beginnings(s);
        s->ignore_memory = 0;
    }
    s->climbing = 1;
    if (small && heti_p_give(s, 0.05)) heti_p_climbs(s, 200, 8);
    if (small && heti_p_give(s, 0.1)) heti_p_all(s);
    if (!s->exhaustive && heti_p_give(s, small ? 0.6 : 1)) heti_p_climbs(s, 1000, 64);
    if (small && !s->exhaustive && heti_p_give(s, 1)) heti_p_all(s);
    (void)heti_p_give(s, 1);
}

HETRAIN_API het_result het_plan_search(const het_search_desc *desc, het_search **search, het_error *error) {
    heti_p_seek s;
    void *block = NULL, *curves = NULL;
    size_t size = 0, curves_size = 0;
    het_result result;
    if (search == NULL) return heti_t_fail(error, HET_ERR_INVALID, "het_plan_search: search is NULL");
    *search = NULL;
    if (desc == NULL) return heti_t_fail(error, HET_ERR_INVALID, "het_plan_search: desc is NULL");
    memset(&s, 0, sizeof s);
    s.error = error;
    if (!heti_t_allocator(&desc->allocator, &s.allocator))
        return heti_t_fail(error, HET_ERR_INVALID, "het_plan_search: an allocator needs both alloc and free");
    HETI_T_TRY(heti_p_seek_desc(&s, desc));
    if (s.d.clock != NULL) s.started = s.d.clock(s.d.user);
    result = heti_p_seek_start(&s, &block, &size);
    if (result == HET_OK) result = heti_p_seek_kinds(&s);
    if (result == HET_OK) result = heti_p_seek_known(&s);
    if (result == HET_OK) {
        curves_size = HETI_T_CAST(size_t, s.kinds * HETI_P_SUMS * (s.units + 1)) * sizeof *s.sum;
        result = heti_t_block(&s.allocator, curves_size, "het_plan_search", &curves, error);
    }
    if (result == HET_OK) {
        s.sum = HETI_T_CAST(het_curve *, curves);
        heti_p_seek_sums(&s);
        heti_p_seek_bytes(&s);
        heti_p_seek_sort(&s);
        heti_p_seek_run(&s);
        result = s.result != HET_OK ? s.result : s.found_count == 0 ? heti_p_nothing(&s) : heti_p_seek_result(&s,
            search);
    }
    if (curves != NULL) s.allocator.free(s.allocator.user, curves, curves_size);
    if (block != NULL) s.allocator.free(s.allocator.user, block, size);
    return result;
}

/* =================================================================================================
   >>adapt  Measured against predicted times, and what follows. A rank's slowness is the time its F,
            B, I and W took over what the profile says of
   them at speed 1; a boundary's delay is the shortest time of its messages, less what the cluster's
   link says. Both are medians over steps.
   ============================================================================================== */

/* ---- prediction: a plan's lists, costs and sizes of micro-batches ---- */

typedef struct heti_p_predict {
    const het_search_desc *desc;
    het_allocator allocator;
    het_error *error;
    int64_t micro_batches, granules;
    het_schedule *schedule;           /* complete */
    het_plan_costs *costs;
    int64_t *count;                   /* [pipelines] of one block of `size` bytes: micro-batches */
    int64_t *first;                   /* [pipelines + 1] the first of each */
    int64_t *block_start;             /* [blocks + 1] */
    double *tokens, *pairs, *sequences; /* [micro_batches] */
    void *block;
    size_t size;
} heti_p_predict;

static void heti_p_predict_end(heti_p_predict *p) {
    het_schedule_free(p->schedule);
    het_plan_costs_free(p->costs);
    if (p->block != NULL) p->allocator.free(p->allocator.user, p->block, p->size);
    p->schedule = NULL;
    p->costs = NULL;
    p->block = NULL;
}

static void heti_p_predict_cut(heti_p_predict *p, const het_plan *plan, heti_t_arena *arena) {
    p->count = HETI_T_TAKE(arena, int64_t, plan->pipelines);
    p->first = HETI_T_TAKE(arena, int64_t, plan->pipelines + 1);
    p->block_start = HETI_T_TAKE(arena, int64_t, p->desc->profile->blocks + 1);
    p->tokens = HETI_T_TAKE(arena, double, p->micro_batches);
    p->pairs = HETI_T_TAKE(arena, double, p->micro_batches);
    p->sequences = HETI_T_TAKE(arena, double, p->micro_batches);
}

/* Pairs of a granule of whole sequences, or of a piece of one that sees on the average half of
   it. */
static double heti_p_granule_pairs(const het_search_desc *d) {
    const double tokens = HETI_T_CAST(double, d->granule_tokens);
    const double sequences = HETI_T_CAST(double, d->granule_sequences > 0 ? d->granule_sequences : 1);
    return d->granule_pairs > 0 ? d->granule_pairs : tokens * (tokens / sequences + 1) / 2;
}

/* Micro-batches of a step, their sizes, and which pipeline has which. */
static void heti_p_predict_sizes(heti_p_predict *p, const het_plan *plan) {
    const het_search_desc *d = p->desc;
    const double pairs = heti_p_granule_pairs(d),
                 sequences = HETI_T_CAST(double, d->granule_sequences > 0 ? d->granule_sequences : 1);
    int64_t i, left = d->granules;
    het_plan_divide(plan, p->micro_batches, p->count);
    for (i = 0; i < plan->pipelines; i++) p->first[i + 1] = p->first[i] + p->count[i];
    for (i = 0; i < p->micro_batches; i++) {
        const double granules = HETI_T_CAST(double, left < p->granules ? left : p->granules);
        p->tokens[i] = granules * HETI_T_CAST(double, d->granule_tokens);
        p->pairs[i] = granules * pairs;
        p->sequences[i] = granules * sequences;
        left -= p->granules;
    }
    for (i = 0; i < d->profile->blocks; i++)
        p->block_start[i + 1] = d->profile->block[i].first_use + d->profile->block[i].uses;
}

static het_result heti_p_predict_check(const heti_p_predict *p, const het_plan *plan, const char *call) {
    const het_search_desc *d = p->desc;
    if (d == NULL || plan == NULL || d->profile == NULL || d->cluster == NULL)
        return heti_t_fail(p->error, HET_ERR_INVALID, "%s: description, profile, cluster or plan is NULL", call);
    if (d->start_canary != 0 || d->end_canary != 0)
        return heti_t_fail(p->error, HET_ERR_INVALID, "%s: het_search_desc was not cleared", call);
    if (d->granules < 1 || d->granules > INT64_C(1) << 31 || d->granule_tokens < 1 || p->granules < 1 ||
        p->granules > d->granules)
        return heti_t_fail(p->error, HET_ERR_INVALID, "%s: %d granules a micro-batch of a step of %d, %d tokens each",
                           call, p->granules, d->granules, d->granule_tokens);
    if (plan->units != d->profile->units || plan->ranks != d->cluster->ranks)
        return heti_t_fail(p->error, HET_ERR_INVALID, "%s: the plan is for %d units on %d ranks; here are %d "
                                                      "units and %d ranks", call, plan->units, plan->ranks,
                                                      d->profile->units, d->cluster->ranks);
    return HET_OK;
}

/* Sizes and costs; cluster: in place of the description's. */
static het_result heti_p_predict_start(heti_p_predict *p, const het_search_desc *desc, const het_plan *plan,
                                       const het_cluster *cluster, int64_t granules, const char *call,
                                                          het_error *error) {
    heti_t_arena arena;
    memset(p, 0, sizeof *p);
    p->desc = desc;
    p->error = error;
    p->granules = granules;
    HETI_T_TRY(heti_p_predict_check(p, plan, call));
    if (!heti_t_allocator(&desc->allocator, &p->allocator))
        return heti_t_fail(error, HET_ERR_INVALID, "%s: an allocator needs both alloc and free", call);
    p->micro_batches = (desc->granules + granules - 1) / granules;
    arena.base = NULL;
    arena.used = 0;
    heti_p_predict_cut(p, plan, &arena);
    p->size = arena.used;
    HETI_T_TRY(heti_t_block(&p->allocator, p->size, call, &p->block, error));
    arena.base = HETI_T_CAST(char *, p->block);
    arena.used = 0;
    heti_p_predict_cut(p, plan, &arena);
    heti_p_predict_sizes(p, plan);
    HETI_T_TRY(het_profile_costs(desc->profile, plan, cluster, desc->together, &p->allocator, &p->costs, error));
    p->costs->costs.tokens = p->tokens;
    p->costs->costs.pairs = p->pairs;
    p->costs->costs.sequences = p->sequences;
    return HET_OK;
}

static het_result heti_p_predict_lists(heti_p_predict *p, const het_plan *plan) {
    het_schedule *compute = NULL;
    het_blocks blocks;
    het_result result;
    HETI_T_TRY(het_schedule_make(plan, p->count, &p->allocator, &compute, p->error));
    blocks.count = p->desc->profile->blocks;
    blocks.start = p->block_start;
    blocks.unit = p->desc->profile->use;
    result = het_schedule_complete(plan, &blocks, compute, &p->allocator, &p->schedule, p->error);
    het_schedule_free(compute);
    return result;
}

HETRAIN_API het_result het_plan_predict(const het_search_desc *desc, const het_plan *plan, int64_t granules,
                                        het_choice timeline, het_simulation **simulation, het_error *error) {
    heti_p_predict p;
    het_result result;
    if (simulation == NULL) return heti_t_fail(error, HET_ERR_INVALID, "het_plan_predict: simulation is NULL");
    *simulation = NULL;
    result = heti_p_predict_start(&p, desc, plan, desc != NULL ? desc->cluster : NULL, granules, "het_plan_predict",
                                  error);
    if (result == HET_OK) result = heti_p_predict_lists(&p, plan);
    if (result == HET_OK)
        result = het_simulate_costs(plan, p.schedule, p.costs, timeline, &p.allocator, simulation, error);
    heti_p_predict_end(&p);
    return result;
}

/* ---- state ---- */

#define HETI_P_WINDOW 64

/* What the last steps said of a rank or of a group's link. */
typedef struct heti_p_watched {
    double past[HETI_P_WINDOW];       /* slowness; or seconds more than nominal */
    double bytes;                     /* of a group: of the message that said so */
    double seen;                      /* in the present step; negative: nothing */
    int64_t steps, lasting;           /* observed; with a change, one behind the other */
} heti_p_watched;

/* One way over a boundary between stages of two ranks. */
typedef struct heti_p_way { double delay, bytes; int32_t seen; } heti_p_way;

struct het_adapt {
    het_allocator allocator;
    size_t size;                      /* of this block */
    het_search_desc search;           /* its cluster is the believed one below */
    het_cluster believed, nominal;    /* nominal: links as given, all speeds 1 */
    double change, gain, step_seconds;
    int64_t window, steps;
    heti_p_watched *rank, *link;      /* [ranks], [groups] */
    het_plan *plan;                   /* in use */
    heti_p_predict predict;           /* its costs at nominal speeds */
    heti_p_way *way;                  /* [2 stages] of a block of `way_size` bytes: forward, then
                                         backward, of the boundary behind a stage */
    double *arrival;                  /* [2 stages most slices] when a message came that was waited
                                         for; -1: it was not */
    int64_t most;                     /* micro-batches of a pipeline */
    void *way_block;
    size_t way_size;
};

static void heti_p_adapt_stop(het_adapt *a) {
    heti_p_predict_end(&a->predict);
    het_plan_free(a->plan);
    if (a->way_block != NULL) a->allocator.free(a->allocator.user, a->way_block, a->way_size);
    a->plan = NULL;
    a->way_block = NULL;
}

HETRAIN_API void het_adapt_destroy(het_adapt *adapt) {
    het_allocator allocator;
    if (adapt == NULL) return;
    heti_p_adapt_stop(adapt);
    allocator = adapt->allocator;
    allocator.free(allocator.user, adapt, adapt->size);
}

static void heti_p_adapt_cut(het_adapt **to, const het_cluster *cluster, heti_t_arena *arena) {
    het_adapt *a = HETI_T_CAST(het_adapt *, heti_t_take(arena, 1, sizeof **to)), unused;
    if (arena->base == NULL) a = &unused;
    a->believed.device = HETI_T_TAKE(arena, het_cluster_device, cluster->ranks);
    a->nominal.device = HETI_T_TAKE(arena, het_cluster_device, cluster->ranks);
    a->believed.group = HETI_T_TAKE(arena, het_group, cluster->groups);
    a->nominal.group = HETI_T_TAKE(arena, het_group, cluster->groups);
    a->rank = HETI_T_TAKE(arena, heti_p_watched, cluster->ranks);
    a->link = HETI_T_TAKE(arena, heti_p_watched, cluster->groups);
    if (arena->base != NULL) *to = a;
}

static void heti_p_adapt_cluster(het_cluster *to, const het_cluster *from) {
    het_cluster_device *device = to->device;
    het_group *group = to->group;
    *to = *from;
    to->device = device;
    to->group = group;
    memset(&to->allocator, 0, sizeof to->allocator); /* part of another block */
    to->size = 0;
    memcpy(device, from->device, HETI_T_CAST(size_t, from->ranks) * sizeof *device);
    if (from->groups > 0) memcpy(group, from->group, HETI_T_CAST(size_t, from->groups) * sizeof *group);
}

static het_result heti_p_adapt_check(const het_adapt_desc *d, het_error *error) {
    if (d == NULL || d->search == NULL || d->search->profile == NULL || d->search->cluster == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_adapt_create: description, search, profile or cluster is NULL");
    if (d->start_canary != 0 || d->end_canary != 0)
        return heti_t_fail(error, HET_ERR_INVALID, "het_adapt_create: het_adapt_desc was not cleared");
    if (!(d->change >= 0 && d->change <= 100) || !(d->gain >= 0 && d->gain < 1))
        return heti_t_fail(error, HET_ERR_INVALID,
                           "het_adapt_create: change %g, gain %g; they must be from 0 to 100, and from 0 to below 1",
                           d->change, d->gain);
    if (d->window < 0 || d->window > HETI_P_WINDOW || d->steps < 0)
        return heti_t_fail(error, HET_ERR_INVALID, "het_adapt_create: window %d, steps %d; the window is at most %d",
                           d->window, d->steps, HETI_T_CAST(int64_t, HETI_P_WINDOW));
    return HET_OK;
}

HETRAIN_API het_result het_adapt_create(const het_adapt_desc *desc, het_adapt **adapt, het_error *error) {
    het_allocator allocator;
    heti_t_arena arena;
    const het_cluster *cluster;
    het_adapt *a = NULL;
    void *block;
    size_t size;
    int64_t r;
    if (adapt == NULL) return heti_t_fail(error, HET_ERR_INVALID, "het_adapt_create: adapt is NULL");
    *adapt = NULL;
    HETI_T_TRY(heti_p_adapt_check(desc, error));
    if (!heti_t_allocator(&desc->allocator, &allocator))
        return heti_t_fail(error, HET_ERR_INVALID, "het_adapt_create: an allocator needs both alloc and free");
    cluster = desc->search->cluster;
    arena.base = NULL;
    arena.used = 0;
    heti_p_adapt_cut(&a, cluster, &arena);
    size = arena.used;
    HETI_T_TRY(heti_t_block(&allocator, size, "het_adapt_create", &block, error));
    arena.base = HETI_T_CAST(char *, block);
    arena.used = 0;
    heti_p_adapt_cut(&a, cluster, &arena);
    a->allocator = allocator;
    a->size = size;
    a->search = *desc->search;
    a->search.allocator = allocator;
    heti_p_adapt_cluster(&a->believed, cluster);
    heti_p_adapt_cluster(&a->nominal, cluster);
    a->search.cluster = &a->believed;
    for (r = 0; r < cluster->ranks; r++) a->nominal.device[r].speed = 1;
    a->change = desc->change > 0 ? desc->change : 0.2;
    a->gain = desc->gain > 0 ? desc->gain : 0.05;
    a->window = desc->window > 0 ? desc->window : 5;
    a->steps = desc->steps > 0 ? desc->steps : 2;
    *adapt = a;
    return HET_OK;
}

HETRAIN_API const het_cluster *het_adapt_cluster(const het_adapt *adapt) {
    return adapt != NULL ? &adapt->believed : NULL;
}

static void heti_p_way_cut(het_adapt *a, const het_plan *plan, heti_t_arena *arena) {
    a->way = HETI_T_TAKE(arena, heti_p_way, 2 * plan->stages);
    a->arrival = HETI_T_TAKE(arena, double, 2 * plan->stages * a->most * plan->slices);
}

HETRAIN_API het_result het_adapt_start(het_adapt *adapt, const het_plan *plan, int64_t granules, het_error *error) {
    heti_p_predict predict;
    heti_t_arena arena;
    het_plan *copy = NULL;
    het_simulation *simulation = NULL;
    het_result result;
    int64_t p;
    if (adapt == NULL) return heti_t_fail(error, HET_ERR_INVALID, "het_adapt_start: adapt is NULL");
    result = heti_p_predict_start(&predict, &adapt->search, plan, &adapt->nominal, granules, "het_adapt_start", error);
    if (result == HET_OK) result = heti_p_predict_lists(&predict, plan);
    if (result == HET_OK)
        result = het_simulate_costs(plan, predict.schedule, predict.costs, HET_NO, &predict.allocator, &simulation,
                                    error);
    het_simulation_free(simulation); /* it has said how busy the ranks are: predict.costs */
    if (result == HET_OK) result = heti_p_plan_copy(plan, &adapt->allocator, "het_adapt", &copy, error);
    if (result != HET_OK) {
        heti_p_predict_end(&predict);
        return result;
    }
    heti_p_adapt_stop(adapt);
    adapt->predict = predict;
    adapt->plan = copy;
    adapt->most = 0;
    for (p = 0; p < plan->pipelines; p++) adapt->most = predict.count[p] > adapt->most ? predict.count[p] : adapt->most;
    arena.base = NULL;
    arena.used = 0;
    heti_p_way_cut(adapt, plan, &arena);
    adapt->way_size = arena.used;
    result = heti_t_block(&adapt->allocator, adapt->way_size, "het_adapt_start", &adapt->way_block, error);
    if (result != HET_OK) {
        heti_p_adapt_stop(adapt);
        return result;
    }
    arena.base = HETI_T_CAST(char *, adapt->way_block);
    arena.used = 0;
    heti_p_way_cut(adapt, plan, &arena);
    return HET_OK;
}

/* ---- observing ---- */

/* The smallest group that has both ranks; -1: none. */
static int64_t heti_p_common_group(const het_cluster *c, int64_t a, int64_t b) {
    int64_t x = c->device[a].group, y = c->device[b].group;
    if (c->groups == 0) return -1;
    while (x != y) {
        if (x > y) x = c->group[x].parent;
        else y = c->group[y].parent;
    }
    return x;
}

static double heti_p_link_seconds(const het_group *g, double bytes) {
    return g->latency + (g->bandwidth > 0 ? bytes / g->bandwidth : 0);
}

/* What the profile says of one F, B, I or W at speed 1. */
static double heti_p_expected(const het_adapt *a, const het_action *action) {
    const het_plan *plan = a->plan;
    const het_stage_cost *cost = &a->predict.costs->costs.stage[plan->first_stage[action->pipeline] + action->stage];
    const het_curve *curve = action->kind == HET_ACTION_F ? &cost->forward : action->kind == HET_ACTION_B ?
                     &cost->backward
        : action->kind == HET_ACTION_I ? &cost->input : &cost->weight;
    const int64_t m = a->predict.first[action->pipeline] + action->micro_batch;
    double total = 0, from = 0, to = 1;
    int64_t k;
    for (k = 0; k < plan->slices; k++) total += plan->slice_share[k];
    if (plan->slices > 1) {
        for (k = 0; k < action->slice; k++) from += plan->slice_share[k] / total;
        to = from + plan->slice_share[action->slice] / total;
    }
    return curve->base + curve->token * a->predict.tokens[m] * (to - from) + curve->pair * a->predict.pairs[m] *
        (to * to - from * from);
}

static int heti_p_record_fits(const het_adapt *a, const het_record *r) {
    const het_plan *plan = a->plan;
    const het_action *x = &r->action;
    const het_stage *stage;
    if (r->rank < 0 || r->rank >= plan->ranks || !(r->start >= 0) || !(r->end >= r->start) || !(r->end <= 1e12))
        return 0;
    if (x->kind < 0 || x->kind > HET_ACTION_RECV_B) return x->kind >= 0 && x->kind < HETI_P_KINDS;
    if (x->pipeline < 0 || x->pipeline >= plan->pipelines || x->stage < 0) return 0;
    if (x->stage >= plan->first_stage[x->pipeline + 1] - plan->first_stage[x->pipeline]) return 0;
    if (x->micro_batch < 0 || x->micro_batch >= a->predict.count[x->pipeline] || x->slice < 0 ||
        x->slice >= plan->slices)
        return 0;
    stage = &plan->stage[plan->first_stage[x->pipeline] + x->stage]; /* that others receive from and send to */
    if ((x->kind == HET_ACTION_SEND_B || x->kind == HET_ACTION_RECV_F) && x->stage == 0) return 0;
    return (x->kind != HET_ACTION_SEND_F && x->kind != HET_ACTION_RECV_B) || stage->unit_end < plan->units;
}

/* The arrival of a message forward (0) or backward (1) over the boundary behind stage s. */
static double *heti_p_arrival_of(const het_adapt *a, int way, int64_t s, const het_action *x) {
    return &a->arrival[((way * a->plan->stages + s) * a->most + x->micro_batch) * a->plan->slices + x->slice];
}

/* Receives that were waited for tell when their message came; shorter waits are the receiver's own
   work. */
#define HETI_P_WAIT 1e-4

static void heti_p_observe_receives(het_adapt *a, const het_timeline *t) {
    int64_t i, cells = 2 * a->plan->stages * a->most * a->plan->slices;
    for (i = 0; i < cells; i++) a->arrival[i] = -1;
    for (i = 0; i < t->records; i++) {
        const het_record *r = &t->record[i];
        const int backward = r->action.kind == HET_ACTION_RECV_B;
        int64_t s;
        if (!heti_p_is_receive(r->action.kind) || r->end - r->start < HETI_P_WAIT) continue;
        s = a->plan->first_stage[r->action.pipeline] + r->action.stage - !backward;
        *heti_p_arrival_of(a, backward, s, &r->action) = r->end;
    }
}

/* The least delay of every boundary, each way: that of a message which found the link free and its
   receive posted. */
static void heti_p_observe_sends(het_adapt *a, const het_timeline *t) {
    int64_t i;
    memset(a->way, 0, HETI_T_CAST(size_t, 2 * a->plan->stages) * sizeof *a->way);
    for (i = 0; i < t->records; i++) {
        const het_record *r = &t->record[i];
        const int backward = r->action.kind == HET_ACTION_SEND_B;
        const double *arrival;
        heti_p_way *way;
        double seconds, delay;
        int64_t s, group;
        if (!heti_p_is_send(r->action.kind)) continue;
        s = a->plan->first_stage[r->action.pipeline] + r->action.stage - backward;
        arrival = heti_p_arrival_of(a, backward, s, &r->action);
        group = heti_p_common_group(&a->nominal, a->plan->stage[s].rank, a->plan->stage[s + 1].rank);
        if (*arrival < 0 || group < 0) continue;
        seconds = *arrival - r->start;
        delay = seconds - heti_p_link_seconds(&a->nominal.group[group], HETI_T_CAST(double, r->bytes));
        way = &a->way[backward * a->plan->stages + s];
        if (way->seen && way->delay <= delay) continue;
        way->seen = 1;
        way->delay = delay;
        way->bytes = HETI_T_CAST(double, r->bytes);
    }
}

/* A group's link is as fast as the fastest boundary over it. */
static void heti_p_observe_links(het_adapt *a) {
    const het_plan *plan = a->plan;
    int64_t g, s;
    for (g = 0; g < a->nominal.groups; g++) {
        heti_p_watched *link = &a->link[g];
        int found = 0;
        for (s = 0; s + 1 < plan->stages; s++) {
            const heti_p_way *there = &a->way[s], *back = &a->way[plan->stages + s];
            double delay;
            if (plan->stage[s].pipeline != plan->stage[s + 1].pipeline || (!there->seen && !back->seen)) continue;
            if (heti_p_common_group(&a->nominal, plan->stage[s].rank, plan->stage[s + 1].rank) != g) continue;
            delay = there->seen && back->seen ? (there->delay + back->delay) / 2 : there->seen ? there->delay :
                back->delay;
            if (found && link->seen <= delay) continue;
            found = 1;
            link->seen = delay;
            link->bytes = there->seen ? there->bytes : back->bytes;
        }
        if (found) link->past[link->steps++ % a->window] = link->seen;
    }
}

HETRAIN_API het_result het_adapt_observe(het_adapt *adapt, const het_timeline *timeline, het_error *error) {
    char action[80];
    int64_t i, next;
    if (adapt == NULL || timeline == NULL || adapt->plan == NULL || (timeline->records > 0 && timeline->record == NULL))
        return heti_t_fail(error, HET_ERR_INVALID,
                           "het_adapt_observe: adapt or timeline is NULL, or het_adapt_start was not called");
    for (i = 0; i < timeline->records; i++)
        if (!heti_p_record_fits(adapt, &timeline->record[i]))
            return heti_t_fail(error, HET_ERR_INVALID, "het_adapt_observe: record %d, %s of rank %d, is not of the "
                               "plan in use", i, heti_p_action_text(action, &timeline->record[i].action),
                               HETI_T_CAST(int64_t, timeline->record[i].rank));
    adapt->step_seconds = heti_p_timeline_end(timeline);
    for (i = 0; i < timeline->records; i = next) {
        const int32_t rank = timeline->record[i].rank;
        double measured = 0, expected = 0;
        for (next = i; next < timeline->records && timeline->record[next].rank == rank; next++) {
            const het_record *r = &timeline->record[next];
            double seconds;
            if (r->action.kind > HET_ACTION_W) continue;
            seconds = heti_p_expected(adapt, &r->action);
            if (!(seconds > 0)) continue;
            measured += r->end - r->start;
            expected += seconds;
        }
        if (expected > 0 && measured > 0)
            adapt->rank[rank].past[adapt->rank[rank].steps++ % adapt->window] = measured / expected;
    }
    heti_p_observe_receives(adapt, timeline);
    heti_p_observe_sends(adapt, timeline);
    heti_p_observe_links(adapt);
    return HET_OK;
}

/* ---- advising ---- */

/* Median of the last steps; of an even number the mean of the middle two. */
static double heti_p_watched_median(const heti_p_watched *w, int64_t window) {
    double sorted[HETI_P_WINDOW];
    int64_t i, k, count = w->steps < window ? w->steps : window;
    for (i = 0; i < count; i++) {
        for (k = i; k > 0 && sorted[k - 1] > w->past[i]; k--) sorted[k] = sorted[k - 1];
        sorted[k] = w->past[i];
    }
    return count % 2 == 1 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

/* The speed that a rank's last steps say. */
static double heti_p_rank_speed(const het_adapt *a, int64_t r) {
    return 1 / heti_p_watched_median(&a->rank[r], a->window);
}

/* The link that a group's last steps say: another bandwidth where the message's time was mostly
   that, else another latency. */
static het_group heti_p_link_now(const het_adapt *a, int64_t g) {
    const double delay = heti_p_watched_median(&a->link[g], a->window), bytes = a->link[g].bytes;
    het_group link = a->nominal.group[g];
    const double moving = link.bandwidth > 0 ? bytes / link.bandwidth : 0;
    if (moving > link.latency && moving + delay > 0) link.bandwidth = bytes / (moving + delay);
    else link.latency = link.latency + delay > 0 ? link.latency + delay : 0;
    return link;
}

static int heti_p_differs(double now, double believed, double change) {
    return now > believed * (1 + change) || believed > now * (1 + change);
}

/* A link's change also has to be at least a hundredth of the step: less is noise, and matters to no
   plan. */
static int heti_p_link_differs(const het_adapt *a, int64_t g) {
    const het_group now = heti_p_link_now(a, g);
    const double x = heti_p_link_seconds(&now, a->link[g].bytes),
                 y = heti_p_link_seconds(&a->believed.group[g], a->link[g].bytes);
    return heti_p_differs(x, y, a->change) && (x > y ? x - y : y - x) > 0.01 * a->step_seconds;
}

/* Counts how long changes last; 1: one has lasted long enough. */
static int heti_p_adapt_due(het_adapt *a) {
    int64_t i;
    int due = 0;
    for (i = 0; i < a->believed.ranks; i++) {
        heti_p_watched *w = &a->rank[i];
        const int differs = 2 * w->steps > a->window && heti_p_differs(heti_p_rank_speed(a, i),
                                                                       a->believed.device[i].speed, a->change);
        w->lasting = differs ? w->lasting + 1 : 0;
        due |= w->lasting >= a->steps;
    }
    for (i = 0; i < a->believed.groups; i++) {
        heti_p_watched *w = &a->link[i];
        w->lasting = 2 * w->steps > a->window && heti_p_link_differs(a, i) ? w->lasting + 1 : 0;
        due |= w->lasting >= a->steps;
    }
    return due;
}

/* What is seen becomes what is believed; changes are named, the first three of them. */
static void heti_p_adapt_believe(het_adapt *a, heti_t_text *out) {
    int64_t i, named = 0;
    for (i = 0; i < a->believed.ranks; i++) {
        heti_p_watched *w = &a->rank[i];
        double now;
        if (w->steps == 0) continue;
        now = heti_p_rank_speed(a, i);
        if (w->lasting > 0 && named++ < 3)
            heti_t_format(out, "%srank %d: speed %g is now %g", named > 1 ? ", " : "", i,
                              a->believed.device[i].speed, now);
        a->believed.device[i].speed = now;
        w->lasting = 0;
    }
    for (i = 0; i < a->believed.groups; i++) {
        heti_p_watched *w = &a->link[i];
        if (w->lasting > 0) {
            const het_group now = heti_p_link_now(a, i);
            if (named++ < 3)
                heti_t_format(out, "%slink \"%s\": %g ms is now %g ms", named > 1 ? ", " : "", now.name,
                    1e3 * heti_p_link_seconds(&a->believed.group[i], w->bytes), 1e3 * heti_p_link_seconds(&now,
                        w->bytes));
            a->believed.group[i] = now;
        }
        w->lasting = 0;
    }
    if (named > 3) heti_t_format(out, " and %d more", named - 3);
}

/* Simulated seconds of the plan in use with other numbers of micro-batches. */
static het_result heti_p_adapt_seconds(const het_adapt *a, const het_plan *plan, double *seconds, het_error *error) {
    het_simulation *simulation = NULL;
    HETI_T_TRY(het_plan_predict(&a->search, plan, a->predict.granules, HET_NO, &simulation, error));
    *seconds = simulation->makespan;
    het_simulation_free(simulation);
    return HET_OK;
}

/* Moves micro-batches between pipelines, each time the one that helps most, while one helps. share:
   [pipelines] (=) the best found. */
static het_result heti_p_adapt_shares(const het_adapt *a, double *share, double *seconds, het_error *error) {
    het_plan plan = *a->plan;
    int64_t p, q, best_p, best_q;
    plan.share = share;
    for (p = 0; p < plan.pipelines; p++) share[p] = HETI_T_CAST(double, a->predict.count[p]);
    HETI_T_TRY(heti_p_adapt_seconds(a, &plan, seconds, error));
    do {
        double best = *seconds, tried;
        best_p = best_q = -1;
        for (p = 0; p < plan.pipelines; p++)
            for (q = 0; q < plan.pipelines; q++) {
                if (p == q || share[p] < 1) continue;
                share[p] -= 1;
                share[q] += 1;
                HETI_T_TRY(heti_p_adapt_seconds(a, &plan, &tried, error));
                share[p] += 1;
                share[q] -= 1;
                if (!(tried < best)) continue;
                best = tried;
                best_p = p;
                best_q = q;
            }
        if (best_p < 0) break;
        share[best_p] -= 1;
        share[best_q] += 1;
        *seconds = best;
    } while (best_p >= 0);
    return HET_OK;
}

/* The better of new shares and a new plan; shares where they are within a hundredth. Nothing where
   neither gains enough. */
static het_result heti_p_adapt_choose(const het_adapt *a, het_advice *advice, double *share, het_error *error) {
    het_search *search = NULL;
    const het_found *found = NULL;
    het_plan plan = *a->plan;
    het_result result = HET_OK;
    double by_shares = 0;
    HETI_T_TRY(heti_p_adapt_seconds(a, a->plan, &advice->before, error));
    advice->after = advice->before;
    HETI_T_TRY(heti_p_adapt_shares(a, share, &by_shares, error));
    HETI_T_TRY(het_plan_search(&a->search, &search, error));
    if (search->found_count > 0) found = &search->found[0];
    plan.share = share;
    if (by_shares <= (1 - a->gain) * advice->before && (found == NULL || by_shares <= 1.01 * found->seconds)) {
        advice->only_shares = 1;
        advice->granules = a->predict.granules;
        advice->after = by_shares;
        result = heti_p_plan_copy(&plan, &a->allocator, "het_adapt", &advice->plan, error);
    } else if (found != NULL && found->seconds <= (1 - a->gain) * advice->before) {
        advice->granules = found->granules;
        advice->after = found->seconds;
        result = heti_p_plan_copy(found->plan, &a->allocator, "het_adapt", &advice->plan, error);
    }
    advice->micro_batches = advice->granules > 0 ? (a->search.granules + advice->granules - 1) / advice->granules : 0;
    het_search_free(search);
    return result;
}

/* "3 pipelines, 4 stages, 1f1b, shares 5 2 1, 2 granules a micro-batch" */
static void heti_p_adapt_tell(const het_adapt *a, const het_advice *advice, heti_t_text *out) {
    const het_plan *plan = advice->plan;
    int64_t p;
    if (plan == NULL) {
        heti_t_format(out, "; no plan makes the step of %g ms %g %% shorter", 1e3 * advice->before, 100 * a->gain);
        return;
    }
    heti_t_format(out, "; a step of %g ms becomes %g ms: ", 1e3 * advice->before, 1e3 * advice->after);
    if (advice->only_shares) heti_t_put(out, "the same stages");
    else heti_t_format(out, "%d pipelines, %d stages, %s", plan->pipelines, plan->stages, plan->schedule);
    if (plan->pipelines > 1) heti_t_put(out, ", shares");
    for (p = 0; p < plan->pipelines && p < 16 && plan->pipelines > 1; p++)
        heti_t_format(out, " %g", plan->share[p]);
    if (!advice->only_shares) heti_t_format(out, ", %d granules a micro-batch", advice->granules);
}

HETRAIN_API void het_advice_free(het_advice *advice) {
    het_allocator allocator;
    if (advice == NULL) return;
    het_plan_free(advice->plan);
    allocator = advice->allocator;
    allocator.free(allocator.user, advice, sizeof *advice);
}

HETRAIN_API het_result het_adapt_advise(het_adapt *adapt, het_advice **advice, het_error *error) {
    heti_t_text out;
    het_advice *made;
    het_result result;
    void *block, *shares = NULL;
    size_t size;
    if (adapt == NULL || advice == NULL || adapt->plan == NULL)
        return heti_t_fail(error, HET_ERR_INVALID,
                           "het_adapt_advise: adapt or advice is NULL, or het_adapt_start was not called");
    *advice = NULL;
    if (!heti_p_adapt_due(adapt)) return HET_OK;
    HETI_T_TRY(heti_t_block(&adapt->allocator, sizeof *made, "het_adapt_advise", &block, error));
    made = HETI_T_CAST(het_advice *, block);
    made->allocator = adapt->allocator;
    size = HETI_T_CAST(size_t, adapt->plan->pipelines) * sizeof(double);
    result = heti_t_block(&adapt->allocator, size, "het_adapt_advise", &shares, error);
    out = heti_t_text_in(made->text, sizeof made->text);
    if (result == HET_OK) {
        heti_p_adapt_believe(adapt, &out);
        result = heti_p_adapt_choose(adapt, made, HETI_T_CAST(double *, shares), error);
        adapt->allocator.free(adapt->allocator.user, shares, size);
    }
    if (result != HET_OK) {
        het_advice_free(made);
        return result;
    }
    heti_p_adapt_tell(adapt, made, &out);
    *advice = made;
    return HET_OK;
}

/* =================================================================================================
   >>pack  Micro-batches of granules of unequal size. What is looked at is cut by a bound for each
           number of micro-batches: the work they share and
   the mean or the largest granule. Only the simulator sees links, waiting and memory, so it has the
   last word.
   ============================================================================================== */

enum { HETI_P_KEPT = 6, HETI_P_PLAIN = 4, HETI_P_CLUSTERS = 4, HETI_P_EVERY_COUNT = 256, HETI_P_COUNT_STEPS = 64 };

/* Data: of a granule, of a run of them, of a micro-batch. */
typedef struct heti_p_amount { double tokens, pairs, sequences; } heti_p_amount;

typedef struct heti_p_grouping {
    int64_t *group;                   /* [granules] which micro-batch has the granule at this place of the sorted row */
    int64_t count;                    /* micro-batches; 0: there is no such grouping */
    double estimate;
} heti_p_grouping;

/* A number of micro-batches: the work of the busiest rank, and the least that any grouping can be
   estimated at. */
typedef struct heti_p_count { int64_t count; double work, bound; } heti_p_count;

/* How good an order is: first by memory, then by time. */
typedef struct heti_p_score {
    double excess, seconds;           /* excess: the most bytes by which a rank is above its limit */
    int64_t rank;                     /* which */
    double bytes;                     /* what it keeps */
} heti_p_score;

typedef struct heti_p_pack {
    het_pack_desc d;
    het_allocator allocator;
    het_error *error;
    const het_plan *plan;
    const het_schedule *schedule;     /* complete, for max_micro_batches */
    het_schedule *made;               /* the same where it was made here */
    void *block;                      /* everything below */
    size_t size;
    int64_t granules, most;           /* most: micro-batches */
    int64_t evaluations, count_count, curves;
    double spread;                    /* 1; 0 where no pipeline has ranks that wait, then the largest does not count */
    double bytes_a_token;             /* the most that a rank with a limit keeps, over its limit,
                                         with one token in each micro-batch */
    heti_p_amount all;
    int64_t *sorted, *spare;          /* [granules] numbers of granules */
    heti_p_amount *before;            /* [granules + 1] of the granules before a place of the sorted row */
    double *key;                      /* [granules] by number */
    het_curve *stage;                 /* [stages] F and B */
    het_curve *curve;                 /* [curves <= stages] w t, those that are not below another */
    double *load;                     /* [ranks] */
    int64_t *pipeline_count, *pipeline_full; /* [pipelines] */
    heti_p_count *count;              /* [count_count] */
    /* the second half: within memory whatever the order */
    heti_p_grouping grouping[2 * HETI_P_KEPT], plain[HETI_P_PLAIN], spare_grouping;
    heti_p_amount *amount;            /* [most] of the micro-batches of the grouping that is judged */
    double *cost;                     /* [most] */
    int64_t *by_cost, *cluster;       /* [most] largest first; by number */
    int64_t *dealt, *order, *best_order; /* [most] numbers of micro-batches, pipeline by pipeline */
    heti_p_amount *pipeline_amount;   /* [pipelines] */
    double *tokens, *pairs, *sequences; /* [most] in the order that is judged */
    het_schedule lists;               /* without the micro-batches that are not there */
    int64_t lists_for;                /* micro-batches */
    heti_p_score best;
    heti_p_grouping *best_grouping;
    double plain_seconds, estimate;
    int64_t plain_count;
    int stopped;
} heti_p_pack;

/* ---- what was given ---- */

static het_result heti_p_pack_granules(const heti_p_pack *s) {
    const het_pack_desc *d = &s->d;
    int64_t i;
    for (i = 0; i < d->granules; i++) {
        const int64_t sequences = d->sequences != NULL ? d->sequences[i] : 1;
        if (d->tokens[i] < 0 || d->tokens[i] > INT64_C(1) << 40)
            return heti_t_fail(s->error, HET_ERR_INVALID, "het_pack: granule %d has %d tokens", i, d->tokens[i]);
        if (sequences < 0 || sequences > INT64_C(1) << 40)
            return heti_t_fail(s->error, HET_ERR_INVALID, "het_pack: granule %d has %d sequences", i, sequences);
        if (d->pairs != NULL && !heti_p_is_time(d->pairs[i]))
            return heti_t_fail(s->error, HET_ERR_INVALID,
                               "het_pack: the pairs of granule %d are negative or not finite", i);
        if (d->max_tokens > 0 && d->tokens[i] > d->max_tokens)
            return heti_t_fail(s->error, HET_ERR_LIMIT, "het_pack: granule %d has %d tokens, max_tokens is %d", i,
                               d->tokens[i], d->max_tokens);
        if (d->max_sequences > 0 && sequences > d->max_sequences)
            return heti_t_fail(s->error, HET_ERR_LIMIT, "het_pack: granule %d has %d sequences, max_sequences is %d", i,
                               sequences, d->max_sequences);
    }
    return HET_OK;
}

static het_result heti_p_pack_check(heti_p_pack *s) {
    const het_pack_desc *d = &s->d;
    int64_t r;
    if (d->start_canary != 0 || d->end_canary != 0)
        return heti_t_fail(s->error, HET_ERR_INVALID, "het_pack: the description was not cleared");
    if (d->plan == NULL || d->costs == NULL || d->costs->stage == NULL || d->tokens == NULL)
        return heti_t_fail(s->error, HET_ERR_INVALID, "het_pack: plan, costs, costs->stage or tokens is NULL");
    if (d->plan->pipelines < 1 || d->plan->ranks < 1 || d->plan->share == NULL || d->plan->stage == NULL ||
        d->plan->first_stage == NULL)
        return heti_t_fail(s->error, HET_ERR_INVALID,
                           "het_pack: a plan with %d pipelines on %d ranks, or without its arrays", d->plan->pipelines,
                           d->plan->ranks);
    if (d->granules < 1 || d->granules > INT64_C(1) << 31 || d->max_tokens < 0 || d->max_sequences < 0 ||
        d->max_micro_batches < 0 || d->max_micro_batches > INT32_MAX || d->plain < 0 || d->evaluations < 0)
        return heti_t_fail(s->error, HET_ERR_INVALID,
                           "het_pack: %d granules, max_tokens %d, max_sequences %d, max_micro_batches %d, plain %d, "
            "evaluations %d", d->granules, d->max_tokens, d->max_sequences, d->max_micro_batches, d->plain,
            d->evaluations);
    for (r = 0; d->memory != NULL && r < d->plan->ranks; r++)
        if (!heti_p_is_time(d->memory[r]))
            return heti_t_fail(s->error, HET_ERR_INVALID, "het_pack: memory[%d] is negative or not finite", r);
    return heti_p_pack_granules(s);
}

/* The lists of a step with the most micro-batches, as the executor has them. */
static het_result heti_p_pack_lists(heti_p_pack *s) {
    het_pack_desc *d = &s->d;
    het_schedule *compute = NULL;
    const het_schedule *from = d->schedule;
    het_result result = HET_OK;
    int64_t p, sum = 0;
    if (from == NULL) {
        void *counts;
        const size_t size = HETI_T_CAST(size_t, d->plan->pipelines > 0 ? d->plan->pipelines : 1) * sizeof(int64_t);
        if (d->max_micro_batches == 0) d->max_micro_batches = d->granules;
        HETI_T_TRY(heti_t_block(&s->allocator, size, "het_pack", &counts, s->error));
        het_plan_divide(d->plan, d->max_micro_batches, HETI_T_CAST(int64_t *, counts));
        result = het_schedule_make(d->plan, HETI_T_CAST(int64_t *, counts), &s->allocator, &compute, s->error);
        s->allocator.free(s->allocator.user, counts, size);
        from = compute;
    }
    if (result == HET_OK && from->complete) {
        s->schedule = from;
        result = het_schedule_check(d->plan, d->blocks, from, NULL, s->error);
    } else if (result == HET_OK) {
        result = het_schedule_complete(d->plan, d->blocks, from, &s->allocator, &s->made, s->error);
        s->schedule = s->made;
    }
    het_schedule_free(compute);
    if (result != HET_OK) return result;
    for (p = 0; p < d->plan->pipelines; p++) sum += s->schedule->micro_batches[p];
    if (d->max_micro_batches == 0) d->max_micro_batches = sum;
    if (sum != d->max_micro_batches)
        return heti_t_fail(s->error, HET_ERR_INVALID,
                           "het_pack: the schedule has %d micro-batches, max_micro_batches is %d", sum,
                           d->max_micro_batches);
    return HET_OK;
}

static void heti_p_pack_cut_block(heti_p_pack *s, heti_t_arena *arena) {
    const int64_t n = s->granules, m = s->most;
    int64_t i;
#define HETI_P_PACK_ROOM(type, count) HETI_T_TAKE(arena, type, count)
    s->sorted = HETI_P_PACK_ROOM(int64_t, n);
    s->spare = HETI_P_PACK_ROOM(int64_t, n);
    s->before = HETI_P_PACK_ROOM(heti_p_amount, n + 1);
    s->key = HETI_P_PACK_ROOM(double, n);
    s->stage = HETI_P_PACK_ROOM(het_curve, s->plan->stages);
    s->curve = HETI_P_PACK_ROOM(het_curve, s->plan->stages);
    s->load = HETI_P_PACK_ROOM(double, s->plan->ranks);
    s->pipeline_count = HETI_P_PACK_ROOM(int64_t, s->plan->pipelines);
    s->pipeline_full = HETI_P_PACK_ROOM(int64_t, s->plan->pipelines);
    s->pipeline_amount = HETI_P_PACK_ROOM(heti_p_amount, s->plan->pipelines);
    s->count = HETI_P_PACK_ROOM(heti_p_count, s->count_count);
    for (i = 0; i < 2 * HETI_P_KEPT; i++) s->grouping[i].group = HETI_P_PACK_ROOM(int64_t, n);
    for (i = 0; i < HETI_P_PLAIN; i++) s->plain[i].group = HETI_P_PACK_ROOM(int64_t, n);
    s->spare_grouping.group = HETI_P_PACK_ROOM(int64_t, n);
    s->amount = HETI_P_PACK_ROOM(heti_p_amount, m);
    s->cost = HETI_P_PACK_ROOM(double, m);
    s->by_cost = HETI_P_PACK_ROOM(int64_t, m);
    s->cluster = HETI_P_PACK_ROOM(int64_t, m);
    s->dealt = HETI_P_PACK_ROOM(int64_t, m);
    s->order = HETI_P_PACK_ROOM(int64_t, m);
    s->best_order = HETI_P_PACK_ROOM(int64_t, m);
    s->tokens = HETI_P_PACK_ROOM(double, s->d.max_micro_batches);
    s->pairs = HETI_P_PACK_ROOM(double, s->d.max_micro_batches);
    s->sequences = HETI_P_PACK_ROOM(double, s->d.max_micro_batches);
    s->lists.micro_batches = HETI_P_PACK_ROOM(int64_t, s->plan->pipelines);
    s->lists.start = HETI_P_PACK_ROOM(int64_t, s->plan->ranks + 1);
    s->lists.action = HETI_P_PACK_ROOM(het_action, s->schedule->start[s->plan->ranks]);
#undef HETI_P_PACK_ROOM
}

/* Numbers of micro-batches that are looked at; count NULL: only how many they are. */
static int64_t heti_p_pack_counts(const heti_p_pack *s, heti_p_count *count) {
    int64_t m = 1, n = 0;
    for (;;) {
        if (count != NULL) count[n].count = m;
        n++;
        if (m == s->most) return n;
        m = heti_p_min(s->most, m < HETI_P_EVERY_COUNT ? m + 1 : m + m / HETI_P_COUNT_STEPS);
    }
}

static het_result heti_p_pack_room(heti_p_pack *s) {
    heti_t_arena arena;
    s->plan = s->d.plan;
    s->granules = s->d.granules;
    s->most = heti_p_min(s->d.granules, s->d.max_micro_batches);
    s->count_count = heti_p_pack_counts(s, NULL);
    arena.base = NULL;
    arena.used = 0;
    heti_p_pack_cut_block(s, &arena);
    s->size = arena.used;
    HETI_T_TRY(heti_t_block(&s->allocator, s->size, "het_pack", &s->block, s->error));
    arena.base = HETI_T_CAST(char *, s->block);
    arena.used = 0;
    heti_p_pack_cut_block(s, &arena);
    (void)heti_p_pack_counts(s, s->count);
    s->lists.ranks = s->plan->ranks;
    s->lists.pipelines = s->plan->pipelines;
    s->lists.complete = 1;
    if (s->d.evaluations == 0) {
        const int64_t actions = s->schedule->start[s->plan->ranks];
        s->d.evaluations = (INT64_C(1) << 22) / (actions > 0 ? actions : 1);
        if (s->d.evaluations < 32) s->d.evaluations = 32;
        if (s->d.evaluations > 1000) s->d.evaluations = 1000;
    }
    return HET_OK;
}

/* ---- what things cost ---- */

/* How the executor shares m micro-batches among the pipelines (hetrain.h: never more than the
   schedule has). */
static void heti_p_pack_divide(const heti_p_pack *s, int64_t m, int64_t *counts) {
    int64_t p, left = 0;
    het_plan_divide(s->plan, m, counts);
    for (p = 0; p < s->plan->pipelines; p++) {
        const int64_t room = s->schedule->micro_batches[p];
        if (counts[p] > room) left += counts[p] - room;
        if (counts[p] > room) counts[p] = room;
    }
    for (p = 0; p < s->plan->pipelines; p++) {
        const int64_t more = heti_p_min(left, s->schedule->micro_batches[p] - counts[p]);
        counts[p] += more;
        left -= more;
    }
}

static double heti_p_at(const het_curve *c, const heti_p_amount *a, double calls) {
    return c->base * calls + c->token * a->tokens + c->pair * a->pairs;
}

/* max w t */
static double heti_p_pack_cost(const heti_p_pack *s, const heti_p_amount *a) {
    double cost = 0;
    int64_t i;
    for (i = 0; i < s->curves; i++) cost = heti_p_larger(cost, heti_p_at(&s->curve[i], a, 1));
    return cost;
}

/* Keeps a curve unless another is nowhere below it. */
static void heti_p_pack_add_curve(heti_p_pack *s, const het_curve *c) {
    int64_t i, kept = 0;
    for (i = 0; i < s->curves; i++)
        if (s->curve[i].base >= c->base && s->curve[i].token >= c->token && s->curve[i].pair >= c->pair) return;
    for (i = 0; i < s->curves; i++)
        if (s->curve[i].base > c->base || s->curve[i].token > c->token || s->curve[i].pair > c->pair)
            s->curve[kept++] = s->curve[i];
    s->curve[kept++] = *c;
    s->curves = kept;
}

/* Ranks of a pipeline; marks them in s->load. */
static int64_t heti_p_pack_ranks(heti_p_pack *s, int64_t pipeline) {
    int64_t g, ranks = 0;
    for (g = s->plan->first_stage[pipeline]; g < s->plan->first_stage[pipeline + 1]; g++)
        s->load[s->plan->stage[g].rank] = 0;
    for (g = s->plan->first_stage[pipeline]; g < s->plan->first_stage[pipeline + 1]; g++) {
        ranks += s->load[s->plan->stage[g].rank] < 1;
        s->load[s->plan->stage[g].rank] = 1;
    }
    return ranks;
}

static void heti_p_pack_curves(heti_p_pack *s) {
    const het_schedule *schedule = s->schedule;
    int64_t i, p, g, active = 0, ranks = 0;
    int split = 0;
    for (i = 0; i < schedule->start[schedule->ranks]; i++) split |= schedule->action[i].kind == HET_ACTION_I;
    for (p = 0; p < s->plan->pipelines; p++) {
        active += schedule->micro_batches[p] > 0;
        if (schedule->micro_batches[p] > 0) ranks = heti_p_pack_ranks(s, p) > ranks ? heti_p_pack_ranks(s, p) : ranks;
    }
    s->spread = active > 1 || ranks > 1 ? 1 : 0;
    for (p = 0; p < s->plan->pipelines; p++) {
        const double w = s->spread > 0 ? heti_p_real(heti_p_pack_ranks(s, p) - 1 + (active > 1)) : 1;
        for (g = s->plan->first_stage[p]; g < s->plan->first_stage[p + 1]; g++) {
            const het_stage_cost *c = &s->d.costs->stage[g];
            const het_curve *weight = &c->weight, *input = split ? &c->input : &c->backward;
            het_curve weighted;
            s->stage[g].base = c->forward.base + input->base + (split ? weight->base : 0);
            s->stage[g].token = c->forward.token + input->token + (split ? weight->token : 0);
            s->stage[g].pair = c->forward.pair + input->pair + (split ? weight->pair : 0);
            weighted.base = w * s->stage[g].base;
            weighted.token = w * s->stage[g].token;
            weighted.pair = w * s->stage[g].pair;
            if (schedule->micro_batches[p] > 0) heti_p_pack_add_curve(s, &weighted);
        }
    }
}

static heti_p_amount heti_p_pack_amount(const heti_p_pack *s, int64_t granule) {
    heti_p_amount a;
    a.tokens = heti_p_real(s->d.tokens[granule]);
    a.pairs = s->d.pairs != NULL ? s->d.pairs[granule] : a.tokens * (a.tokens + 1) / 2;
    a.sequences = s->d.sequences != NULL ? heti_p_real(s->d.sequences[granule]) : 1;
    return a;
}

static void heti_p_add(heti_p_amount *to, const heti_p_amount *a) {
    to->tokens += a->tokens;
    to->pairs += a->pairs;
    to->sequences += a->sequences;
}

static int heti_p_pack_before(const heti_p_pack *s, int64_t a, int64_t b) {
    if (s->key[a] > s->key[b] || s->key[a] < s->key[b]) return s->key[a] > s->key[b];
    return s->d.tokens[a] != s->d.tokens[b] ? s->d.tokens[a] > s->d.tokens[b] : a < b;
}

/* Merges runs of 1, 2, 4, ... */
static void heti_p_pack_sort(heti_p_pack *s) {
    const int64_t n = s->granules;
    int64_t i, width;
    for (i = 0; i < n; i++) {
        const heti_p_amount a = heti_p_pack_amount(s, i);
        s->key[i] = heti_p_pack_cost(s, &a);
        s->sorted[i] = i;
    }
    for (width = 1; width < n; width *= 2) {
        int64_t *swap = s->sorted, begin;
        for (begin = 0; begin < n; begin += 2 * width) {
            const int64_t middle = heti_p_min(n, begin + width), end = heti_p_min(n, begin + 2 * width);
            int64_t a = begin, b = middle;
            for (i = begin; i < end; i++)
                s->spare[i] = b == end || (a < middle && heti_p_pack_before(s, s->sorted[a], s->sorted[b])) ?
                s->sorted[a++] : s->sorted[b++];
        }
        s->sorted = s->spare;
        s->spare = swap;
    }
    for (i = 0; i < n; i++) {
        const heti_p_amount a = heti_p_pack_amount(s, s->sorted[i]);
        s->before[i + 1] = s->before[i];
        heti_p_add(&s->before[i + 1], &a);
    }
    s->all = s->before[n];
}

/* Work of the busiest rank with m micro-batches: what it does does not depend on the grouping. */
static double heti_p_pack_work(heti_p_pack *s, int64_t m) {
    double work = 0;
    int64_t p, g;
    heti_p_pack_divide(s, m, s->pipeline_count);
    for (g = 0; g < s->plan->stages; g++) s->load[s->plan->stage[g].rank] = 0;
    for (p = 0; p < s->plan->pipelines; p++)
        for (g = s->plan->first_stage[p]; g < s->plan->first_stage[p + 1]; g++)
            s->load[s->plan->stage[g].rank] += heti_p_real(s->pipeline_count[p]) / heti_p_real(m) *
            heti_p_at(&s->stage[g], &s->all, heti_p_real(m));
    for (g = 0; g < s->plan->stages; g++) work = heti_p_larger(work, s->load[s->plan->stage[g].rank]);
    return work;
}

static void heti_p_pack_bounds(heti_p_pack *s) {
    const double largest = s->key[s->sorted[0]];
    int64_t i;
    for (i = 0; i < s->count_count; i++) {
        heti_p_count *c = &s->count[i];
        heti_p_amount mean = s->all;
        mean.tokens /= heti_p_real(c->count);
        mean.pairs /= heti_p_real(c->count);
        c->work = heti_p_pack_work(s, c->count);
        c->bound = c->work + s->spread * heti_p_larger(largest, heti_p_pack_cost(s, &mean));
    }
}

/* ---- groupings ---- */

/* May granules of this sum stand together? cap: of tokens, where they are several; 0: none. */
static int heti_p_pack_fits(const heti_p_pack *s, const heti_p_amount *a, double cap) {
    if (s->d.max_tokens > 0 && a->tokens > heti_p_real(s->d.max_tokens)) return 0;
    if (s->d.max_sequences > 0 && a->sequences > heti_p_real(s->d.max_sequences)) return 0;
    return !(cap > 0) || a->tokens <= cap;
}

static heti_p_amount heti_p_pack_run(const heti_p_pack *s, int64_t begin, int64_t end) {
    heti_p_amount a = s->before[end];
    a.tokens -= s->before[begin].tokens;
    a.pairs -= s->before[begin].pairs;
    a.sequences -= s->before[begin].sequences;
    return a;
}

/* The longest run from `begin` that costs at most `bound` and ends at most at `last`; begin: there
   is none. *cost: of it. */
static int64_t heti_p_pack_longest(const heti_p_pack *s, int64_t begin, int64_t last, double bound, double cap,
                                   double *cost) {
    heti_p_amount a = heti_p_pack_run(s, begin, begin + 1);
    int64_t low = begin + 1, high = last + 1; /* low fits, high does not */
    *cost = heti_p_pack_cost(s, &a);
    if (*cost > bound) return begin;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        double c;
        a = heti_p_pack_run(s, begin, middle);
        c = heti_p_pack_cost(s, &a);
        if (c > bound || !heti_p_pack_fits(s, &a, cap)) { high = middle; continue; }
        low = middle;
        *cost = c;
    }
    return low;
}

/* Cuts the sorted row into m runs none of which costs more than `bound`: each as long as it can be,
   with a granule left for each that follows. 0: there are none. *largest: what the largest
   costs. */
static int heti_p_pack_runs(const heti_p_pack *s, int64_t m, double bound, double cap, int64_t *group,
                            double *largest) {
    int64_t begin = 0, j, i;
    *largest = 0;
    for (j = 0; j < m; j++) {
        double cost;
        const int64_t end = heti_p_pack_longest(s, begin, s->granules - (m - 1 - j), bound, cap, &cost);
        if (end == begin) return 0;
        for (i = begin; i < end && group != NULL; i++) group[i] = j;
        *largest = heti_p_larger(*largest, cost);
        begin = end;
    }
    return begin == s->granules;
}

/* The m runs whose largest is least: bisection between a bound that no runs keep and one that some
   do, which is always the cost of a run. */
static int heti_p_pack_tightest(const heti_p_pack *s, int64_t m, double cap, int64_t *group, double *largest) {
    double low = 0, high = 2 * heti_p_pack_cost(s, &s->all);
    if (!heti_p_pack_runs(s, m, high, cap, NULL, &high)) return 0;
    for (;;) {
        const double middle = low + (high - low) / 2;
        double cost;
        if (!(middle > low && middle < high)) break;
        if (heti_p_pack_runs(s, m, middle, cap, NULL, &cost)) high = cost;
        else low = middle;
    }
    return heti_p_pack_runs(s, m, high, cap, group, largest);
}

/* The largest granules first, each to the micro-batch that costs least with it; none may stay
   empty. */
static int heti_p_pack_spread(heti_p_pack *s, int64_t m, double cap, int64_t *group, double *largest) {
    int64_t i, j, empty = m;
    if (s->granules > (INT64_C(1) << 22) / m) return 0;
    memset(s->amount, 0, HETI_T_CAST(size_t, m) * sizeof *s->amount);
    memset(s->cost, 0, HETI_T_CAST(size_t, m) * sizeof *s->cost);
    memset(s->cluster, 0, HETI_T_CAST(size_t, m) * sizeof *s->cluster);
    *largest = 0;
    for (i = 0; i < s->granules; i++) {
        const heti_p_amount own = heti_p_pack_run(s, i, i + 1);
        int64_t to = -1;
        double least = 0;
        for (j = 0; j < m; j++) {
            heti_p_amount with = s->amount[j];
            double cost;
            if (s->cluster[j] && s->granules - i <= empty) continue;
            if (to >= 0 && s->cost[j] >= least) continue;
            heti_p_add(&with, &own);
            if (s->cluster[j] && !heti_p_pack_fits(s, &with, cap)) continue;
            cost = heti_p_pack_cost(s, &with);
            if (to >= 0 && cost >= least) continue;
            to = j;
            least = cost;
        }
        if (to < 0) return 0;
        heti_p_add(&s->amount[to], &own);
        empty -= !s->cluster[to];
        s->cluster[to] = 1; /* not empty */
        s->cost[to] = least;
        group[i] = to;
        *largest = heti_p_larger(*largest, least);
    }
    return 1;
}

/* Puts the spare grouping among the best, of which there are `room`, and one more place. */
static void heti_p_pack_keep(heti_p_pack *s, heti_p_grouping *best, int64_t room) {
    int64_t i, at = room;
    heti_p_grouping last;
    while (at > 0 && (best[at - 1].count == 0 || best[at - 1].estimate > s->spare_grouping.estimate ||
        (best[at - 1].estimate >= s->spare_grouping.estimate && best[at - 1].count > s->spare_grouping.count))) at--;
    if (at == room) return;
    last = best[room - 1];
    for (i = room - 1; i > at; i--) best[i] = best[i - 1];
    best[at] = s->spare_grouping;
    s->spare_grouping = last;
}

/* The best grouping of each number of micro-batches, those with the least bounds first, until none
   can be among the best any more. */
static void heti_p_pack_group(heti_p_pack *s, double cap, heti_p_grouping *best) {
    double last = -1;
    int64_t last_count = 0, i;
    for (;;) {
        const heti_p_count *next = NULL;
        double largest, spread;
        int found;
        for (i = 0; i < s->count_count; i++) {
            const heti_p_count *c = &s->count[i];
            if (c->bound < last || (c->bound <= last && c->count <= last_count)) continue;
            if (next == NULL || c->bound < next->bound) next = c;
        }
        if (next == NULL || (best[HETI_P_KEPT - 1].count > 0 && next->bound >= best[HETI_P_KEPT - 1].estimate)) return;
        last = next->bound;
        last_count = next->count;
        found = heti_p_pack_tightest(s, next->count, cap, s->spare_grouping.group, &largest);
        s->spare_grouping.count = next->count;
        s->spare_grouping.estimate = found ? next->work + s->spread * largest : 0;
        if (s->d.neighbours != HET_YES && heti_p_pack_spread(s, next->count, cap, s->spare, &spread) &&
            (!found || spread < largest)) {
            memcpy(s->spare_grouping.group, s->spare, HETI_T_CAST(size_t, s->granules) * sizeof *s->spare);
            s->spare_grouping.estimate = next->work + s->spread * spread;
            found = 1;
        }
        if (found) heti_p_pack_keep(s, best, HETI_P_KEPT);
    }
}

/* Granules in their own order, equal numbers in each micro-batch, the first have those left over: m
   of them, where limits allow. */
static int heti_p_pack_equal(heti_p_pack *s, int64_t m, double *largest) {
    int64_t i, j = 0, end = 0;
    heti_p_amount sum;
    memset(&sum, 0, sizeof sum);
    *largest = 0;
    for (i = 0; i < s->granules; i++) {
        const heti_p_amount own = heti_p_pack_amount(s, i);
        if (i == end) {
            memset(&sum, 0, sizeof sum);
            end += s->granules / m + (j < s->granules % m);
            j++;
        }
        s->spare[i] = j - 1; /* by number for now */
        heti_p_add(&sum, &own);
        if (!heti_p_pack_fits(s, &sum, 0)) return 0;
        if (i + 1 == end) *largest = heti_p_larger(*largest, heti_p_pack_cost(s, &sum));
    }
    for (i = 0; i < s->granules; i++) s->spare_grouping.group[i] = s->spare[s->sorted[i]];
    return 1;
}

static void heti_p_pack_plain(heti_p_pack *s) {
    int64_t i;
    for (i = 0; i < (s->d.plain > 0 ? 1 : s->count_count); i++) {
        double largest;
        const int64_t m = s->d.plain > 0 ? s->d.plain : s->count[i].count;
        if (m > s->most || !heti_p_pack_equal(s, m, &largest)) continue;
        s->spare_grouping.count = m;
        s->spare_grouping.estimate = heti_p_pack_work(s, m) + s->spread * largest;
        heti_p_pack_keep(s, s->plain, HETI_P_PLAIN);
    }
}

/* ---- judging: orders of micro-batches, by the simulator ---- */

static void heti_p_pack_amounts(heti_p_pack *s, const heti_p_grouping *g) {
    int64_t i, j;
    memset(s->amount, 0, HETI_T_CAST(size_t, g->count) * sizeof *s->amount);
    for (i = 0; i < s->granules; i++) {
        const heti_p_amount own = heti_p_pack_run(s, i, i + 1);
        heti_p_add(&s->amount[g->group[i]], &own);
    }
    for (j = 0; j < g->count; j++) s->cost[j] = heti_p_pack_cost(s, &s->amount[j]);
}

/* The lists without the micro-batches that are not there. */
static void heti_p_pack_leave_out(heti_p_pack *s, int64_t m) {
    const het_schedule *from = s->schedule;
    int64_t r, i, n = 0;
    if (s->lists_for == m) return;
    s->lists_for = m;
    heti_p_pack_divide(s, m, s->lists.micro_batches);
    for (r = 0; r < from->ranks; r++) {
        s->lists.start[r] = n;
        for (i = from->start[r]; i < from->start[r + 1]; i++) {
            const het_action *a = &from->action[i];
            const int there = a->kind >= HET_ACTION_REDUCE || a->micro_batch < s->lists.micro_batches[a->pipeline];
            if (!there) continue;
            s->lists.action[n] = *a;
            /* alone */
            if (a->overlap && a[1].micro_batch >= s->lists.micro_batches[a[1].pipeline]) s->lists.action[n].overlap = 0;
            n++;
        }
    }
    s->lists.start[from->ranks] = n;
}

static het_result heti_p_pack_simulate(heti_p_pack *s, const het_schedule *lists, het_simulation **simulation) {
    het_costs costs = *s->d.costs;
    costs.tokens = s->tokens;
    costs.pairs = s->pairs;
    costs.sequences = s->sequences;
    s->evaluations++;
    return het_simulate(s->plan, lists, &costs, HET_NO, &s->allocator, simulation, s->error);
}

static int heti_p_better(const heti_p_score *a, const heti_p_score *b) {
    if (a->excess > b->excess || a->excess < b->excess) return a->excess < b->excess;
    return a->seconds < b->seconds;
}

/* Runs s->order of m micro-batches of s->amount. */
static het_result heti_p_pack_score(heti_p_pack *s, int64_t m, heti_p_score *score) {
    het_simulation *simulation;
    int64_t i, r;
    heti_p_pack_leave_out(s, m);
    for (i = 0; i < m; i++) {
        const heti_p_amount *a = &s->amount[s->order[i]];
        s->tokens[i] = a->tokens;
        s->pairs[i] = a->pairs;
        s->sequences[i] = a->sequences > 1 ? a->sequences : 1;
    }
    HETI_T_TRY(heti_p_pack_simulate(s, &s->lists, &simulation));
    memset(score, 0, sizeof *score);
    score->seconds = simulation->makespan;
    for (r = 0; r < s->plan->ranks && s->d.memory != NULL; r++) {
        const double excess = simulation->rank[r].peak_bytes - s->d.memory[r];
        if (!(s->d.memory[r] > 0) || excess <= score->excess) continue;
        score->excess = excess;
        score->rank = r;
        score->bytes = simulation->rank[r].peak_bytes;
    }
    het_simulation_free(simulation);
    return HET_OK;
}

/* The same, kept where it is the best so far. */
static het_result heti_p_pack_judge(heti_p_pack *s, heti_p_grouping *g, heti_p_score *score) {
    HETI_T_TRY(heti_p_pack_score(s, g->count, score));
    if (s->best_grouping != NULL && !heti_p_better(score, &s->best)) return HET_OK;
    s->best = *score;
    s->best_grouping = g;
    memcpy(s->best_order, s->order, HETI_T_CAST(size_t, g->count) * sizeof *s->order);
    return HET_OK;
}

/* s->by_cost: the micro-batches, the largest first, of equals the lower number. */
static void heti_p_pack_by_cost(heti_p_pack *s, int64_t m) {
    int64_t i, j;
    for (i = 0; i < m; i++) {
        for (j = i; j > 0 && s->cost[s->by_cost[j - 1]] < s->cost[i]; j--) s->by_cost[j] = s->by_cost[j - 1];
        s->by_cost[j] = i;
    }
}

/* When the slowest stage of a pipeline has done `calls` micro-batches with `a` together. */
static double heti_p_pack_pipeline(const heti_p_pack *s, int64_t pipeline, const heti_p_amount *a, double calls) {
    double seconds = 0;
    int64_t g;
    for (g = s->plan->first_stage[pipeline]; g < s->plan->first_stage[pipeline + 1]; g++)
        seconds = heti_p_larger(seconds, heti_p_at(&s->stage[g], a, calls));
    return seconds;
}

/* s->dealt: the largest first to the pipeline that ends first with it and has room; in each the
   largest stand first. */
static void heti_p_pack_deal(heti_p_pack *s, int64_t m) {
    int64_t i, p;
    heti_p_pack_divide(s, m, s->pipeline_count);
    for (p = 0; p < s->plan->pipelines; p++) s->pipeline_full[p] = 0;
    memset(s->pipeline_amount, 0, HETI_T_CAST(size_t, s->plan->pipelines) * sizeof *s->pipeline_amount);
    for (i = 0; i < m; i++) {
        const int64_t j = s->by_cost[i];
        int64_t first = 0, to = -1, at = 0;
        double least = 0;
        for (p = 0; p < s->plan->pipelines; first += s->pipeline_count[p++]) {
            heti_p_amount with = s->pipeline_amount[p];
            double seconds;
            if (s->pipeline_full[p] == s->pipeline_count[p]) continue;
            heti_p_add(&with, &s->amount[j]);
            seconds = heti_p_pack_pipeline(s, p, &with, heti_p_real(s->pipeline_full[p] + 1));
            if (to >= 0 && seconds >= least) continue;
            to = p;
            least = seconds;
            at = first + s->pipeline_full[p];
        }
        s->dealt[at] = j;
        s->pipeline_full[to]++;
        heti_p_add(&s->pipeline_amount[to], &s->amount[j]);
    }
}

/* s->cluster: micro-batches of similar cost, cut where the row by cost has its widest gaps. Returns
   how many there are. */
static int64_t heti_p_pack_clusters(heti_p_pack *s, int64_t m) {
    int64_t cut[HETI_P_CLUSTERS], cuts = 0, i, j, c = 0;
    while (cuts < HETI_P_CLUSTERS - 1) {
        int64_t widest = -1;
        double gap = 0;
        for (i = 1; i < m; i++) {
            const double g = s->cost[s->by_cost[i - 1]] - s->cost[s->by_cost[i]];
            for (j = 0; j < cuts && cut[j] != i; j++) {}
            if (j < cuts || g <= gap) continue;
            gap = g;
            widest = i;
        }
        if (widest < 0) break;
        cut[cuts++] = widest;
    }
    for (i = 0; i < m; i++) {
        for (j = 0; j < cuts && cut[j] != i; j++) {}
        c += j < cuts;
        s->cluster[s->by_cost[i]] = c;
    }
    return cuts + 1;
}

/* The next permutation in lexicographic order; 0: that was the last. */
static int heti_p_next(int64_t *a, int64_t n) {
    int64_t i = n - 1, j = n - 1, swap;
    while (i > 0 && a[i - 1] >= a[i]) i--;
    if (i <= 0) return 0;
    while (a[j] <= a[i - 1]) j--;
    swap = a[i - 1];
    a[i - 1] = a[j];
    a[j] = swap;
    for (j = n - 1; i < j; i++, j--) {
        swap = a[i];
        a[i] = a[j];
        a[j] = swap;
    }
    return 1;
}

static int heti_p_pack_spent(heti_p_pack *s) {
    if (s->evaluations < s->d.evaluations) return 0;
    s->stopped = 1;
    return 1;
}

/* In each pipeline the largest first; or the largest, the smallest, the second largest, ...: so the
   least is kept at once. */
static het_result heti_p_pack_first(heti_p_pack *s, heti_p_grouping *g, heti_p_score *score) {
    heti_p_score mixed;
    int64_t i, p, begin = 0;
    heti_p_pack_amounts(s, g);
    heti_p_pack_by_cost(s, g->count);
    heti_p_pack_deal(s, g->count);
    if (heti_p_pack_spent(s)) return HET_OK;
    memcpy(s->order, s->dealt, HETI_T_CAST(size_t, g->count) * sizeof *s->order);
    HETI_T_TRY(heti_p_pack_judge(s, g, score));
    if (!(score->excess > 0) || heti_p_pack_spent(s)) return HET_OK;
    for (p = 0; p < s->plan->pipelines; begin += s->pipeline_count[p++])
        for (i = 0; i < s->pipeline_count[p]; i++)
            s->order[begin + i] = s->dealt[begin + (i % 2 == 0 ? i / 2 : s->pipeline_count[p] - 1 - i / 2)];
    HETI_T_TRY(heti_p_pack_judge(s, g, &mixed));
    if (heti_p_better(&mixed, score)) *score = mixed;
    return HET_OK;
}

/* All orders of the clusters, alike in all pipelines. */
static het_result heti_p_pack_permute(heti_p_pack *s, heti_p_grouping *g) {
    const int64_t m = g->count;
    int64_t place[HETI_P_CLUSTERS], clusters, i, p, c, end = 0, n = 0;
    heti_p_score score;
    heti_p_pack_amounts(s, g);
    heti_p_pack_by_cost(s, m);
    clusters = heti_p_pack_clusters(s, m);
    heti_p_pack_deal(s, m);
    for (i = 0; i < clusters; i++) place[i] = i;
    do {
        if (heti_p_pack_spent(s)) break;
        end = n = 0;
        for (p = 0; p < s->plan->pipelines; p++) {
            const int64_t begin = end;
            end += s->pipeline_count[p];
            for (c = 0; c < clusters; c++)
                for (i = begin; i < end; i++)
                    if (s->cluster[s->dealt[i]] == place[c]) s->order[n++] = s->dealt[i];
        }
        HETI_T_TRY(heti_p_pack_judge(s, g, &score));
    } while (heti_p_next(place, clusters));
    return HET_OK;
}

static het_result heti_p_pack_every_order(heti_p_pack *s) {
    heti_p_grouping *g = s->best_grouping;
    heti_p_score score;
    int64_t i;
    for (i = 0; i < g->count; i++) s->order[i] = i;
    do {
        HETI_T_TRY(heti_p_pack_judge(s, g, &score));
    } while (heti_p_next(s->order, g->count));
    return HET_OK;
}

/* Exchanges any two as long as that makes the step shorter. */
static het_result heti_p_pack_exchange(heti_p_pack *s) {
    heti_p_grouping *g = s->best_grouping;
    const int64_t m = g->count;
    int64_t i, j, since = 0; /* exchanges tried since the last that helped */
    heti_p_score score;
    for (i = 0, j = 0; since < m * (m - 1) / 2; since++) {
        const heti_p_amount *a, *b;
        if (++j >= m) {
            i = i + 2 < m ? i + 1 : 0;
            j = i + 1;
        }
        memcpy(s->order, s->best_order, HETI_T_CAST(size_t, m) * sizeof *s->order);
        a = &s->amount[s->order[i]];
        b = &s->amount[s->order[j]];
        if (memcmp(a, b, sizeof *a) == 0) continue;
        if (heti_p_pack_spent(s)) return HET_OK;
        s->order[i] = s->best_order[j];
        s->order[j] = s->best_order[i];
        HETI_T_TRY(heti_p_pack_judge(s, g, &score));
        if (memcmp(s->order, s->best_order, HETI_T_CAST(size_t, m) * sizeof *s->order) == 0) since = -1;
    }
    return HET_OK;
}

static het_result heti_p_pack_refine(heti_p_pack *s) {
    const int64_t m = s->best_grouping->count, left = s->d.evaluations - s->evaluations;
    int64_t orders = 1, i;
    heti_p_pack_amounts(s, s->best_grouping);
    for (i = 2; i <= m && orders <= left; i++) orders *= i;
    return orders <= left ? heti_p_pack_every_order(s) : heti_p_pack_exchange(s);
}

/* Plain orders first: nothing else counts as found without them. */
static het_result heti_p_pack_judge_plain(heti_p_pack *s) {
    int64_t k, i;
    for (k = 0; k < HETI_P_PLAIN && s->plain[k].count > 0; k++) {
        heti_p_score score;
        heti_p_pack_amounts(s, &s->plain[k]);
        for (i = 0; i < s->plain[k].count; i++) s->order[i] = i;
        HETI_T_TRY(heti_p_pack_judge(s, &s->plain[k], &score));
        if (score.excess > 0 || (s->plain_count > 0 && score.seconds >= s->plain_seconds)) continue;
        s->plain_seconds = score.seconds;
        s->plain_count = s->plain[k].count;
    }
    return HET_OK;
}

/* The six best of each kind in a first order, then two of them in all orders of their clusters. */
static het_result heti_p_pack_judge_groupings(heti_p_pack *s) {
    heti_p_score score[2 * HETI_P_KEPT];
    int64_t k, round;
    for (k = 0; k < 2 * HETI_P_KEPT; k++) {
        score[k].excess = -1; /* not looked at */
        if (s->grouping[k].count > 0) HETI_T_TRY(heti_p_pack_first(s, &s->grouping[k], &score[k]));
    }
    for (round = 0; round < 2; round++) {
        int64_t least = -1;
        for (k = 0; k < 2 * HETI_P_KEPT; k++)
            if (score[k].excess >= 0 && (least < 0 || heti_p_better(&score[k], &score[least]))) least = k;
        if (least < 0) return HET_OK;
        score[least].excess = -1;
        HETI_T_TRY(heti_p_pack_permute(s, &s->grouping[least]));
    }
    return HET_OK;
}

/* ---- the whole ---- */

/* One token in each micro-batch: checks what was given, and says how the peaks grow with tokens. */
static het_result heti_p_pack_probe(heti_p_pack *s) {
    het_simulation *simulation;
    int64_t i, r;
    for (i = 0; i < s->d.max_micro_batches; i++) {
        s->tokens[i] = s->sequences[i] = 1;
        s->pairs[i] = 0;
    }
    HETI_T_TRY(heti_p_pack_simulate(s, s->schedule, &simulation));
    for (r = 0; r < s->plan->ranks && s->d.memory != NULL; r++)
        if (s->d.memory[r] > 0)
            s->bytes_a_token = heti_p_larger(s->bytes_a_token, simulation->rank[r].peak_bytes / s->d.memory[r]);
    het_simulation_free(simulation);
    return HET_OK;
}

static het_result heti_p_pack_nothing(const heti_p_pack *s) {
    const char *tokens = s->d.max_tokens > 0 ? "" : " (no limit)",
                *sequences = s->d.max_sequences > 0 ? "" : " (no limit)";
    return heti_t_fail(s->error, HET_ERR_LIMIT,
                       "het_pack: no grouping of %d granules with %d tokens and %d sequences into at most %d "
                       "micro-batches "
        "was found with max_tokens %d%s and max_sequences %d%s", s->granules, HETI_T_CAST(int64_t, s->all.tokens),
        HETI_T_CAST(int64_t, s->all.sequences),
        s->most, s->d.max_tokens, tokens, s->d.max_sequences, sequences);
}

/* What a micro-batch may have beside memory. */
static double heti_p_pack_most_tokens(const heti_p_pack *s) {
    return s->d.max_tokens > 0 ? heti_p_smaller(heti_p_real(s->d.max_tokens), s->all.tokens) : s->all.tokens;
}

static het_result heti_p_pack_search(heti_p_pack *s) {
    int64_t k;
    HETI_T_TRY(heti_p_pack_probe(s));
    heti_p_pack_curves(s);
    heti_p_pack_sort(s);
    heti_p_pack_bounds(s);
    heti_p_pack_plain(s);
    heti_p_pack_group(s, 0, s->grouping);
    if (s->bytes_a_token * heti_p_pack_most_tokens(s) > 1)
        heti_p_pack_group(s, 1 / s->bytes_a_token, s->grouping + HETI_P_KEPT);
    for (k = 0, s->estimate = -1; k < 3; k++) {
        const heti_p_grouping *g = k == 0 ? s->grouping : k == 1 ? s->grouping + HETI_P_KEPT : s->plain;
        if (g->count > 0 && (s->estimate < 0 || g->estimate < s->estimate)) s->estimate = g->estimate;
    }
    HETI_T_TRY(heti_p_pack_judge_plain(s));
    HETI_T_TRY(heti_p_pack_judge_groupings(s));
    if (s->best_grouping == NULL) return heti_p_pack_nothing(s);
    HETI_T_TRY(heti_p_pack_refine(s));
    if (s->best.excess > 0)
        return heti_t_fail(s->error, HET_ERR_LIMIT, "het_pack: rank %d keeps %d bytes in the best grouping found, "
                                                    "its limit is %d", s->best.rank,
                                                    HETI_T_CAST(int64_t, s->best.bytes),
                                                    HETI_T_CAST(int64_t, s->d.memory[s->best.rank]));
    return HET_OK;
}

static void heti_p_packing_cut(const heti_p_pack *s, het_packing **to, heti_t_arena *arena) {
    const int64_t m = s->best_grouping->count;
    het_packing unused, *k = HETI_T_TAKE(arena, het_packing, 1);
    if (arena->base == NULL) k = &unused;
    k->order = HETI_T_TAKE(arena, int64_t, s->granules);
    k->start = HETI_T_TAKE(arena, int64_t, m + 1);
    k->counts = HETI_T_TAKE(arena, int64_t, s->plan->pipelines);
    k->tokens = HETI_T_TAKE(arena, double, m);
    k->pairs = HETI_T_TAKE(arena, double, m);
    k->sequences = HETI_T_TAKE(arena, double, m);
    if (arena->base != NULL) *to = k;
}

static het_result heti_p_packing_make(heti_p_pack *s, het_packing **packing) {
    const heti_p_grouping *g = s->best_grouping;
    heti_t_arena arena;
    het_packing *k = NULL;
    void *block;
    size_t size;
    int64_t i, j;
    arena.base = NULL;
    arena.used = 0;
    heti_p_packing_cut(s, NULL, &arena);
    size = arena.used;
    HETI_T_TRY(heti_t_block(&s->allocator, size, "het_pack", &block, s->error));
    arena.base = HETI_T_CAST(char *, block);
    arena.used = 0;
    heti_p_packing_cut(s, &k, &arena);
    k->granules = s->granules;
    k->micro_batches = g->count;
    k->pipelines = s->plan->pipelines;
    k->seconds = s->best.seconds;
    k->plain_seconds = s->plain_seconds;
    k->plain_micro_batches = s->plain_count;
    k->estimate = s->estimate;
    k->evaluations = s->evaluations;
    k->stopped = s->stopped;
    k->allocator = s->allocator;
    k->size = size;
    heti_p_pack_divide(s, g->count, k->counts);
    heti_p_pack_amounts(s, g);
    for (i = 0; i < g->count; i++) s->cluster[s->best_order[i]] = i; /* where each micro-batch stands */
    for (i = 0; i < s->granules; i++) s->spare[s->sorted[i]] = s->cluster[g->group[i]];
    for (i = 0; i < s->granules; i++) k->start[s->spare[i] + 1]++;
    for (j = 0; j < g->count; j++) {
        const heti_p_amount *a = &s->amount[s->best_order[j]];
        k->start[j + 1] += k->start[j];
        k->tokens[j] = a->tokens;
        k->pairs[j] = a->pairs;
        k->sequences[j] = a->sequences;
        s->order[j] = k->start[j];
    }
    for (i = 0; i < s->granules; i++) k->order[s->order[s->spare[i]]++] = i;
    *packing = k;
    return HET_OK;
}

HETRAIN_API void het_packing_free(het_packing *packing) {
    het_allocator allocator;
    if (packing == NULL) return;
    allocator = packing->allocator;
    allocator.free(allocator.user, packing, packing->size);
}

HETRAIN_API het_result het_pack(const het_pack_desc *desc, het_packing **packing, het_error *error) {
    heti_p_pack s;
    het_result result;
    if (desc == NULL || packing == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_pack: the description or packing is NULL");
    *packing = NULL;
    memset(&s, 0, sizeof s);
    s.d = *desc;
    s.error = error;
    if (!heti_t_allocator(&desc->allocator, &s.allocator))
        return heti_t_fail(error, HET_ERR_INVALID, "het_pack: an allocator needs both alloc and free");
    result = heti_p_pack_check(&s);
    if (result == HET_OK) result = heti_p_pack_lists(&s);
    if (result == HET_OK) result = heti_p_pack_room(&s);
    if (result == HET_OK) result = heti_p_pack_search(&s);
    if (result == HET_OK) result = heti_p_packing_make(&s, packing);
    if (s.block != NULL) s.allocator.free(s.allocator.user, s.block, s.size);
    het_schedule_free(s.made);
    return result;
}

/* =================================================================================================
   >>trace  Chrome's trace event format, in microseconds with three decimals: a nanosecond is the
            shortest time a reader keeps. Transfers take at
   least that long, so that arrows find them. What may overlap on a rank is spread over threads
   ("lanes") on which nothing does.
   ============================================================================================== */

enum { HETI_P_LANES = 24 };

typedef struct heti_p_trace {
    heti_t_text out;
    char room[4096];
    const het_timeline *timeline;
    const het_plan *plan;
    int64_t stages, micro_batches, slices; /* one more than the largest of each, for the numbers of arrows */
    int events;                            /* a comma is due */
    /* when a lane of the present rank is free again; negative: not used yet */
    double transfer[HETI_P_LANES], collective[HETI_P_LANES];
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
    int i;
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
    for (i = 0; i < HETI_P_LANES; i++) t->transfer[i] = t->collective[i] = -1;
}

/* The thread of a record that may overlap others: the first lane that is free. If none is, the one
   that is free first: a viewer then shows a record it overlaps shorter than it was. */
static int64_t heti_p_trace_lane(heti_p_trace *t, const het_record *r, double end) {
    int collective = heti_p_is_collective(r->action.kind), i, best = 0;
    double *lane = collective ? t->collective : t->transfer;
    int64_t first = collective ? 1 + HETI_P_LANES : 1;
    for (i = 0; i < HETI_P_LANES; i++) {
        if (lane[i] <= r->start) { best = i; break; }
        if (lane[i] < lane[best]) best = i;
    }
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
    n = n * HETI_T_CAST(uint64_t, t->stages) + HETI_T_CAST(uint64_t, a->stage - (later ? 1 : 0) + 1);
    n = n * HETI_T_CAST(uint64_t, t->micro_batches) + HETI_T_CAST(uint64_t, a->micro_batch);
    n = n * HETI_T_CAST(uint64_t, t->slices) + HETI_T_CAST(uint64_t, a->slice);
    return HETI_T_CAST(int64_t, (2 * n + (forward ? 1 : 0)) & ((HETI_T_CAST(uint64_t, 1) << 53) - 1));
}

static void heti_p_trace_args(heti_p_trace *t, const het_record *r) {
    const het_action *a = &r->action;
    heti_t_put(&t->out, ",\"args\":{");
    if (a->kind == HET_ACTION_VERDICT) heti_t_put(&t->out, "\"bytes\":");
    else if (a->kind >= HET_ACTION_REDUCE)
        heti_t_format(&t->out, "\"block\":%d,\"bytes\":", HETI_T_CAST(int64_t, a->stage));
    else
        heti_t_format(&t->out, "\"pipeline\":%d,\"stage\":%d,\"micro_batch\":%d,\"slice\":%d,\"bytes\":",
                          HETI_T_CAST(int64_t, a->pipeline), HETI_T_CAST(int64_t, a->stage),
                              HETI_T_CAST(int64_t, a->micro_batch), HETI_T_CAST(int64_t, a->slice));
    heti_t_format(&t->out, "%d}}", r->bytes);
}

static void heti_p_trace_record(heti_p_trace *t, const het_record *r) {
    const het_action *a = &r->action;
    const heti_p_kind *kind = heti_p_kind_of(a->kind);
    int moves = heti_p_is_send(a->kind) || heti_p_is_receive(a->kind);
    double start = r->start * 1e6, length = (r->end - r->start) * 1e6;
    int64_t thread = 0;
    if (moves && length < 0.001) length = 0.001;
    if (moves || heti_p_is_collective(a->kind)) thread = heti_p_trace_lane(t, r, (start + length) / 1e6);
    heti_p_trace_event(t, "X", r->rank, thread);
    heti_t_format(&t->out, ",\"ts\":%g,\"dur\":%g,\"name\":\"", start, length);
    heti_p_out_action(&t->out, a);
    heti_t_format(&t->out, "\",\"cat\":\"%s\",\"cname\":\"%s\"", kind->category, kind->color);
    heti_p_trace_args(t, r);
    if (!moves) return;
    heti_p_trace_event(t, heti_p_is_send(a->kind) ? "s" : "f", r->rank, thread);
    if (heti_p_is_receive(a->kind)) heti_t_put(&t->out, ",\"bp\":\"e\"");
    heti_t_format(&t->out, ",\"ts\":%g,\"id\":%d,\"name\":\"transfer\",\"cat\":\"transfer\"}",
        heti_p_is_send(a->kind) ? start : start + length - 0.001, heti_p_trace_arrow(t, a));
}

HETRAIN_API het_result het_timeline_trace(const het_timeline *timeline, const het_plan *plan, const het_writer *to) {
    heti_p_trace t;
    int64_t i, rank = 0;
    if (to == NULL || to->write == NULL || !heti_p_timeline_valid(timeline)) return HET_ERR_INVALID;
    t.out = heti_t_text_to(to, t.room, sizeof t.room);
    t.timeline = timeline;
    t.plan = plan;
    t.stages = t.micro_batches = t.slices = 1;
    t.events = 0;
    for (i = 0; i < timeline->records; i++) {
        const het_action *a = &timeline->record[i].action;
        if (a->stage + 2 > t.stages) t.stages = HETI_T_CAST(int64_t, a->stage) + 2;
        if (a->micro_batch >= t.micro_batches) t.micro_batches = HETI_T_CAST(int64_t, a->micro_batch) + 1;
        if (a->slice >= t.slices) t.slices = HETI_T_CAST(int64_t, a->slice) + 1;
    }
    heti_t_format(&t.out,
                      "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"producer\":\"hetrain\",\"dropped\":%d},"
                      "\"traceEvents\":[", timeline->dropped);
    for (i = 0; i <= timeline->records; i++) {
        int64_t until = i < timeline->records ? timeline->record[i].rank : timeline->ranks - 1;
        while (rank <= until) heti_p_trace_rank(&t, rank++);
        if (i < timeline->records) heti_p_trace_record(&t, &timeline->record[i]);
    }
    heti_t_put(&t.out, "\n]}\n");
    return heti_t_end(&t.out);
}

/* =================================================================================================
   >>svg  A timeline as a picture. Colours are those of Okabe and Ito (Color Universal Design,
          2008), which people with any kind of colour vision
   tell apart, toned a little; a rank's stages differ in shade.
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

enum { HETI_P_SHADES = 4, HETI_P_STAGES = 64, HETI_P_BOXES = 40000 };

typedef struct heti_p_stage_key { int32_t pipeline, stage; } heti_p_stage_key;

/* Boxes of less than `thin` pixels, collected until they fill one; and such heaps of about the same
   mixture, one behind the other. */
typedef struct heti_p_heap {
    double x, end, total;                        /* from, to, and pixels that are not idle */
    double part[HETI_P_KINDS][HETI_P_SHADES];
} heti_p_heap;

typedef struct heti_p_svg {
    heti_t_text out;
    char room[4096];
    const het_timeline *timeline;
    const het_plan *plan;
    const char *title;
    int dark;
    /* of the picture; of rows: where they start, how long they are, height, space between */
    double width, height, left, top, plot, row, gap, font;
    double text;                                           /* where caption and legend start */
    double end, scale, thin;                               /* seconds, pixels a second, pixels a box should have */
    int64_t transfers, boxes;
    int counting;                                          /* boxes are counted, nothing is drawn */
    int used[HETI_P_KINDS], shades, slices, labels, stacked; /* what is there to be seen */
    /* stages of the present rank, ascending: the place gives the shade */
    heti_p_stage_key key[HETI_P_STAGES];
    int keys;
    heti_p_heap heap, run;
} heti_p_svg;

static double heti_p_svg_x(const heti_p_svg *s, double seconds) { return s->left + seconds * s->scale; }
static double heti_p_svg_y(const heti_p_svg *s, int64_t rank) {
    return s->top + HETI_T_CAST(double, rank) * (s->row + s->gap);
}

/* 0xRRGGBB mixed with the ground: shade 0 is the colour itself. */
static uint32_t heti_p_svg_color(const heti_p_svg *s, int kind, int shade) {
    static const uint32_t heti_p_light[HETI_P_KINDS] = { 0x1F6FB4, 0xE8961E, 0xD1580F, 0x119C74, 0, 0, 0, 0, 0xC4709E,
                                                        0x444444, 0xE3CF2B, 0x56B4E9 };
    static const uint32_t heti_p_dark[HETI_P_KINDS] = { 0x4C9BE0, 0xF0A637, 0xE4702B, 0x2DB58D, 0, 0, 0, 0, 0xD184AF,
                                                       0xBBBBBB, 0xEADB55, 0x7CC6F0 };
    static const uint32_t heti_p_mix[HETI_P_SHADES] = { 0, 42, 62, 78 }; /* percent of the ground */
    uint32_t color = s->dark ? heti_p_dark[kind] : heti_p_light[kind], ground = s->dark ? 0x14181F : 0xFFFFFF,
             mixed = 0;
    uint32_t part = s->dark ? heti_p_mix[shade] * 7 / 8 : heti_p_mix[shade];
    int shift;
    for (shift = 0; shift < 24; shift += 8)
        mixed |= (((color >> shift & 255u) * (100 - part) + (ground >> shift & 255u) * part) / 100) << shift;
    return mixed;
}

/* Black or white letters, whichever the relative brightness of the box asks for. */
static int heti_p_svg_is_bright(uint32_t color) {
    return 299 * (color >> 16 & 255u) + 587 * (color >> 8 & 255u) + 114 * (color & 255u) > 137000;
}

static void heti_p_out_color(heti_t_text *out, uint32_t color) {
    int shift;
    heti_t_char(out, '#');
    for (shift = 20; shift >= 0; shift -= 4) heti_t_char(out, "0123456789abcdef"[color >> shift & 15u]);
}

/* Classes: k<kind><shade> for boxes; letters in them have class d (dark) or b (bright). */
static void heti_p_svg_style(heti_p_svg *s) {
    int kind, shade;
    heti_t_format(&s->out,
                      "<style>text{font-family:Inter,'Helvetica "
                      "Neue',Helvetica,Arial,sans-serif;font-size:12px;fill:%s}"
        ".h{font-size:17px;font-weight:600}.q{fill:%s}.e{text-anchor:end}.m{text-anchor:middle}"
        ".n text{font-size:%gpx;text-anchor:middle}.n .d{fill:#1b1b1b}.n .b{fill:#fff}.n .s{font-size:%gpx}"
        ".l{fill:%s}.g{stroke:%s}.t{stroke:%s;stroke-width:%s;stroke-opacity:%s;fill:none}.v{stroke:%s}",
        s->dark ? "#e6e8eb" : "#1d2127", s->dark ? "#9aa3af" : "#626b76", s->font, 0.8 * s->font, s->dark ? "#1e242d" :
        "#eef0f3",
        s->dark ? "#333b46" : "#dfe3e7", s->dark ? "#aab2bd" : "#3c4450", s->row >= 16 ? "0.8" : "0.5",
        s->row >= 16 ? ".55" : ".4",
        s->dark ? "#bbb" : "#444");
    for (kind = 0; kind < HETI_P_KINDS; kind++)
        for (shade = 0; shade < HETI_P_SHADES && s->used[kind]; shade++) {
            if (shade > 0 && (kind > HET_ACTION_W || shade >= s->shades)) continue;
            heti_t_format(&s->out, ".k%d{fill:", HETI_T_CAST(int64_t, 10 * kind + shade));
            heti_p_out_color(&s->out, heti_p_svg_color(s, kind, shade));
            heti_t_char(&s->out, '}');
        }
    heti_t_put(&s->out, "</style>\n");
}

static void heti_p_svg_rect(heti_p_svg *s, int class_number, double x, double y, double width, double height,
                            int rounded) {
    s->boxes++;
    if (s->counting) return;
    heti_t_format(&s->out, "<rect class=\"k%d\" x=\"", HETI_T_CAST(int64_t, class_number));
    heti_t_fixed(&s->out, x, 2);
    heti_t_put(&s->out, "\" y=\"");
    heti_t_fixed(&s->out, y, 2);
    heti_t_put(&s->out, "\" width=\"");
    heti_t_fixed(&s->out, width > 0.05 ? width : 0.05, 2);
    heti_t_put(&s->out, "\" height=\"");
    heti_t_fixed(&s->out, height, 2);
    heti_t_put(&s->out, rounded && width >= 8 && height >= 10 ? "\" rx=\"2\"/>" : "\"/>");
}

/* ---- boxes of one rank ---- */

/* Which shade a record's stage has on its rank. The keys are in order, so stages of one pipeline
   get darker to lighter along the chain. */
static int heti_p_svg_shade(const heti_p_svg *s, const het_action *a) {
    int i;
    if (a->kind > HET_ACTION_W) return 0;
    for (i = 0; i < s->keys; i++)
        if (s->key[i].pipeline == a->pipeline && s->key[i].stage == a->stage) return i % HETI_P_SHADES;
    return a->stage % HETI_P_SHADES;
}

static void heti_p_svg_keys(heti_p_svg *s, const het_record *record, int64_t count) {
    int64_t n;
    s->keys = 0;
    for (n = 0; n < count; n++) {
        const het_action *a = &record[n].action;
        int i, at;
        if (a->kind > HET_ACTION_W) continue;
        for (at = 0; at < s->keys && (s->key[at].pipeline < a->pipeline || (s->key[at].pipeline == a->pipeline &&
            s->key[at].stage < a->stage));
            at++) {}
        if (s->keys == HETI_P_STAGES || (at < s->keys && s->key[at].pipeline == a->pipeline &&
                                         s->key[at].stage == a->stage))
            continue;
        for (i = s->keys++; i > at; i--) s->key[i] = s->key[i - 1];
        s->key[at].pipeline = a->pipeline;
        s->key[at].stage = a->stage;
    }
}

/* Kinds one above the other. A heap with idle time in it is drawn so much narrower. */
static void heti_p_svg_run_draw(heti_p_svg *s, double y, double height) {
    heti_p_heap *run = &s->run;
    int kind, shade;
    for (kind = 0; kind < HETI_P_KINDS && run->total > 0; kind++)
        for (shade = 0; shade < HETI_P_SHADES; shade++) {
            double share = run->part[kind][shade] / run->total;
            if (share <= 0) continue;
            heti_p_svg_rect(s, 10 * kind + shade, run->x, y, run->total > 0.97 * (run->end - run->x) ?
                            run->end - run->x : run->total, height * share, 0);
            y += height * share;
        }
    memset(run, 0, sizeof *run);
}

/* Ends the present heap: it lengthens the run before it where both are without idle time and differ
   little. */
static void heti_p_svg_heap_end(heti_p_svg *s, double y, double height) {
    heti_p_heap *heap = &s->heap, *run = &s->run;
    int kind, shade, joins = run->total > 0.97 * (run->end - run->x) && heap->total > 0.97 * (heap->end - heap->x) &&
        heap->x - run->end < 0.05;
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

static void heti_p_svg_heap_flush(heti_p_svg *s, double y, double height) {
    heti_p_svg_heap_end(s, y, height);
    heti_p_svg_run_draw(s, y, height);
}

static void heti_p_svg_box(heti_p_svg *s, const het_record *r, double y, double height) {
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

static int heti_p_digits(int64_t n) {
    int digits = 1;
    for (; n >= 10; n /= 10) digits++;
    return digits;
}

/* Numbers of micro-batches, in boxes that have room. */
static void heti_p_svg_number(heti_p_svg *s, const het_record *r, double y) {
    const het_action *a = &r->action;
    double x = heti_p_svg_x(s, r->start), width = (r->end - r->start) * s->scale;
    int length = heti_p_digits(a->kind == HET_ACTION_STEP ? a->stage : a->micro_batch),
        slice = s->slices && a->kind != HET_ACTION_STEP;
    /* in digits, which are 0.58 of the font wide */
    double room = slice ? length + 0.5 + heti_p_digits(a->slice) : length, font = s->font;
    if (slice && width < 0.8 * font * 0.58 * room + 1.2) { slice = 0; room = length; }
    if (width < font * 0.58 * room + 2) font *= 0.8;
    if (width < font * 0.58 * room + 1.2 || font < 6) return;
    heti_t_format(&s->out, "<text class=\"%s%s\" "
                               "x=\"", heti_p_svg_is_bright(heti_p_svg_color(s, a->kind, heti_p_svg_shade(s, a))) ?
                                   "d" : "b", font < s->font ? " s" : "");
    heti_t_fixed(&s->out, x + width / 2 - 0.4, 1);
    heti_t_put(&s->out, "\" y=\"");
    heti_t_fixed(&s->out, y + s->row / 2 + font * 0.36, 1);
    heti_t_format(&s->out, "\">%d", HETI_T_CAST(int64_t, a->kind == HET_ACTION_STEP ? a->stage : a->micro_batch));
    if (slice) heti_t_format(&s->out, ".%d", HETI_T_CAST(int64_t, a->slice));
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
                      middle - thick / 2, 44 * share, thick, s->dark ? "#7d8794" : "#8b95a1");
    if (s->labels) {
        heti_t_format(&s->out, "<text class=\"q e\" x=\"%g\" y=\"%g\">", s->width - 12, middle + 4);
        heti_t_fixed(&s->out, 100 * share, 1);
        heti_t_put(&s->out, " %</text>");
    }
    heti_t_put(&s->out, "\n");
}

static void heti_p_svg_label(heti_p_svg *s, int64_t rank, double y) {
    int64_t every = 1;
    double pitch = s->row + s->gap;
    /* 1, 2, 10, 20, 100, ... */
    while (HETI_T_CAST(double, every) * pitch < 12) every *= every == 1 || every % 5 == 0 ? 2 : 5;
    if (rank % every != 0) return;
    if (s->plan == NULL || s->row < 24) {
        heti_t_format(&s->out, "<text class=\"e\" x=\"%g\" y=\"%g\">rank %d</text>", s->left - 10,
                          y + s->row / 2 + 4, rank);
        return;
    }
    heti_t_format(&s->out, "<text class=\"e\" x=\"%g\" y=\"%g\">rank "
                               "%d</text><text class=\"q e\" x=\"%g\" y=\"%g\" style=\"font-size:10px\">", s->left - 10,
                                   y + s->row / 2 - 1, rank, s->left - 10, y + s->row / 2 + 12);
    (void)heti_p_out_units(&s->out, s->plan, rank, 2, "&#8211;");
    heti_t_put(&s->out, "</text>");
}

/* What a rank computes; what is reduced and gathered as a strip below. */
static void heti_p_svg_boxes(heti_p_svg *s, int64_t rank, const het_record *record, int64_t count) {
    double y = heti_p_svg_y(s, rank), strip = s->row * 0.2 > 1 ? s->row * 0.2 : 1;
    int64_t i;
    heti_p_svg_keys(s, record, count);
    for (i = 0; i < count; i++)
        if (heti_p_is_compute(record[i].action.kind)) heti_p_svg_box(s, &record[i], y, s->row);
    heti_p_svg_heap_flush(s, y, s->row);
    for (i = 0; i < count; i++)
        if (heti_p_is_collective(record[i].action.kind)) heti_p_svg_box(s, &record[i], y + s->row - strip, strip);
    heti_p_svg_heap_flush(s, y + s->row - strip, strip);
}

static void heti_p_svg_row(heti_p_svg *s, int64_t rank, const het_record *record, int64_t count) {
    double y = heti_p_svg_y(s, rank), busy = 0;
    int64_t i;
    heti_p_svg_label(s, rank, y);
    heti_p_svg_boxes(s, rank, record, count);
    if (s->row >= 10) heti_t_put(&s->out, "<g class=\"n\">");
    for (i = 0; i < count; i++) {
        const het_record *r = &record[i];
        if (r->action.kind == HET_ACTION_VERDICT)
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
    int64_t rank, i = 0, first;
    s->boxes = 0;
    for (rank = 0; rank < t->ranks; rank++) {
        for (first = i; i < t->records && t->record[i].rank == rank; i++) {}
        if (s->counting) heti_p_svg_boxes(s, rank, t->record + first, i - first);
        else heti_p_svg_row(s, rank, t->record + first, i - first);
    }
}

/* The least width that keeps the file small. */
static void heti_p_svg_thin(heti_p_svg *s) {
    int64_t i;
    s->counting = 1;
    for (s->thin = 1.2; s->thin < s->plot; s->thin *= 1.5) {
        heti_p_svg_rows(s);
        if (s->boxes <= HETI_P_BOXES) break;
    }
    s->counting = 0;
    for (i = 0; i < s->timeline->records; i++)
        if (heti_p_is_compute(s->timeline->record[i].action.kind) &&
            (s->timeline->record[i].end - s->timeline->record[i].start) * s->scale < s->thin)
            s->stacked = 1;
}

/* ---- between ranks ---- */

static int heti_p_same_transfer(const het_action *send, const het_action *receive) {
    int step = send->kind == HET_ACTION_SEND_F ? 1 : -1;
    return receive->kind == send->kind + 1 && receive->pipeline == send->pipeline &&
        receive->stage == send->stage + step &&
        receive->micro_batch == send->micro_batch && receive->slice == send->slice;
}

/* From the sender's row where the message left to the receiver's where it was there. `transfers`
   bounds the search. */
static void heti_p_svg_transfers(heti_p_svg *s) {
    int64_t sends = 0, i, j;
    for (i = 0; i < s->timeline->records; i++) sends += heti_p_is_send(s->timeline->record[i].action.kind);
    if (sends == 0 || sends > s->transfers) return;
    heti_t_put(&s->out, "<path class=\"t\" d=\"");
    for (i = 0; i < s->timeline->records; i++) {
        const het_record *send = &s->timeline->record[i];
        if (!heti_p_is_send(send->action.kind)) continue;
        for (j = 0; j < s->timeline->records; j++) {
            const het_record *receive = &s->timeline->record[j];
            double from, until;
            if (receive->rank == send->rank || !heti_p_same_transfer(&send->action, &receive->action)) continue;
            from = heti_p_svg_y(s, send->rank) + (receive->rank > send->rank ? s->row : 0);
            until = heti_p_svg_y(s, receive->rank) + (receive->rank > send->rank ? 0 : s->row);
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
    int i, decimals = 0;
    if (!(span > 0)) return;
    while (step > span / 10) step /= 10;
    while (step * 10 <= span / 10) step *= 10;
    for (i = 0; i < 3 && span / step > s->plot / 85; i++) step *= heti_p_factor[i];
    for (tick = step; tick < 0.999999 && decimals < 9; tick *= 10) decimals++;
    for (i = 0; HETI_T_CAST(double, i) * step <= span * 1.000001; i++) {
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

/* From y on, in as many rows as it needs; where `draw` is 0 nothing is written. Returns the last
   row. */
static double heti_p_svg_legend(heti_p_svg *s, double y, int draw) {
    static const int32_t heti_p_order[8] = { HET_ACTION_F, HET_ACTION_B, HET_ACTION_I, HET_ACTION_W, HET_ACTION_REDUCE,
                                            HET_ACTION_STEP,
        HET_ACTION_GATHER, HET_ACTION_VERDICT };
    static const char *const heti_p_notes[3] = { "shades: a rank's stages", "stacked: shares of boxes too thin to draw",
                                                "records were dropped" };
    const int64_t notes[3] = { s->shades > 1, s->stacked, s->timeline->dropped > 0 };
    double x, next = s->text;
    int i, shade;
    for (i = 0; i < 8; i++) {
        const int kind = heti_p_order[i], shades = kind <= HET_ACTION_W ? s->shades : 1;
        if (!s->used[kind]) continue;
        heti_p_svg_item(s, shades, strlen(heti_p_kind_of(kind)->legend), &x, &y, &next);
        for (shade = 0; shade < shades && draw; shade++, x += 12)
            heti_p_svg_rect(s, 10 * kind + shade, x, y - 9, 11, 11, 1);
        if (draw)
            heti_t_format(&s->out, "<text x=\"%g\" y=\"%g\">%s</text>", x + 4, y + 1, heti_p_kind_of(kind)->legend);
    }
    heti_p_svg_item(s, 1, 4, &x, &y, &next);
    if (draw)
        heti_t_format(&s->out, "<rect class=\"l\" x=\"%g\" "
                                   "y=\"%g\" width=\"11\" height=\"11\"/><text x=\"%g\" y=\"%g\">idle</text>", x, y - 9,
                                   x + 16, y + 1);
    for (i = 0; i < 3; i++) {
        if (!notes[i]) continue;
        heti_p_svg_item(s, 0, strlen(heti_p_notes[i]) + (i == 2 ? 20 : 0), &x, &y, &next);
        if (!draw) continue;
        heti_t_format(&s->out, "<text class=\"q\" x=\"%g\" y=\"%g\">", x, y + 1);
        if (i == 2) heti_t_format(&s->out, "%d ", s->timeline->dropped);
        heti_t_format(&s->out, "%s</text>", heti_p_notes[i]);
    }
    if (draw) heti_t_put(&s->out, "\n");
    return y;
}

static void heti_p_svg_caption(heti_p_svg *s) {
    double busy = 0, whole = s->end * HETI_T_CAST(double, s->timeline->ranks);
    int64_t i, micro_batches = 0;
    int decimals = 1;
    double unit = s->end * 1e3;
    for (i = 0; i < s->timeline->records; i++) {
        const het_record *r = &s->timeline->record[i];
        if (heti_p_is_compute(r->action.kind)) busy += r->end - r->start;
        if (r->action.kind == HET_ACTION_F && r->action.stage == 0 && r->action.slice == 0) micro_batches++;
    }
    while (unit > 0 && unit < 100 && decimals < 6) { unit *= 10; decimals++; }
    heti_t_format(&s->out, "<text class=\"h\" x=\"%g\" y=\"29\">", s->text);
    heti_p_out_xml(&s->out, s->title, (s->width - s->text - 12) / 12);
    heti_t_format(&s->out, "</text><text class=\"q\" x=\"%g\" y=\"49\"%s>%d %s &#183; %d %s &#183; ", s->text,
        s->width < 480 ? " style=\"font-size:10px\"" : "", s->timeline->ranks, s->timeline->ranks == 1 ? "rank" :
        "ranks", micro_batches,
        micro_batches == 1 ? "micro-batch" : "micro-batches");
    heti_t_fixed(&s->out, s->end * 1e3, decimals);
    heti_t_put(&s->out, " ms &#183; bubble ");
    heti_t_fixed(&s->out, whole > 0 ? 100 * (1 - busy / whole) : 0, 1);
    heti_t_put(&s->out, " %");
    heti_t_format(&s->out, "</text><text class=\"q e\" x=\"%g\" y=\"%g\">idle</text>\n", s->width - 12, s->top - 9);
}

/* Wide enough for boxes of 10 pixels, if that can be had. */
static double heti_p_svg_width(const heti_p_svg *s) {
    double busy = 0, count = 0, wanted;
    int64_t i;
    for (i = 0; i < s->timeline->records; i++)
        if (heti_p_is_compute(s->timeline->record[i].action.kind)) {
            busy += s->timeline->record[i].end - s->timeline->record[i].start;
            count++;
        }
    wanted = busy > 0 ? 10 * s->end * count / busy + s->left + 118 : 0;
    return wanted > 1200 && wanted <= 2400 ? wanted : 1200;
}

/* Sizes of everything, from the description and the number of ranks. */
static void heti_p_svg_layout(heti_p_svg *s, const het_svg_desc *desc) {
    int64_t ranks = s->timeline->ranks > 0 ? s->timeline->ranks : 1;
    double n = HETI_T_CAST(double, ranks);
    s->row = desc->row_height > 0 ? desc->row_height : ranks <= 4 ? 40 : ranks <= 8 ? 32 : ranks <= 16 ? 26 :
        ranks <= 32 ? 20 : ranks <= 64 ? 13
        : 900 / n > 2 ? 900 / n : 2;
    s->gap = s->row >= 30 ? 10 : s->row >= 16 ? 5 : s->row >= 6 ? 2 : 0.4;
    s->font = s->row * 0.55 < 11 ? s->row * 0.55 : 11;
    if (s->font < 7.5 && s->row >= 10) s->font = 7.5;
    s->labels = s->row + s->gap >= 11.5;
    s->left = s->plan != NULL && s->row >= 24 ? 112 : 74;
    s->end = heti_p_timeline_end(s->timeline);
    s->width = desc->width > 0 ? desc->width : heti_p_svg_width(s);
    s->plot = s->width - s->left - 118;
    s->text = s->width < 700 ? 12 : s->left;
    s->top = 96;
    s->height = s->top + n * (s->row + s->gap) + 34;
    s->scale = s->end > 0 ? s->plot / s->end : 0;
    s->transfers = desc->transfers == 0 ? 600 : desc->transfers;
}

HETRAIN_API het_result het_timeline_svg(const het_timeline *timeline, const het_plan *plan, const het_svg_desc *desc,
                                        const het_writer *to) {
    heti_p_svg s;
    het_svg_desc all_default;
    int64_t i, rank, first = 0;
    double more;
    memset(&all_default, 0, sizeof all_default);
    if (desc == NULL) desc = &all_default;
    if (to == NULL || to->write == NULL || desc->start_canary != 0 || desc->end_canary != 0 ||
        !heti_p_timeline_valid(timeline))
        return HET_ERR_INVALID;
    if (!(desc->width == 0 || (desc->width >= 400 && desc->width <= 20000)) ||
        !(desc->row_height == 0 || (desc->row_height >= 2 && desc->row_height <= 200))) return HET_ERR_INVALID;
    memset(&s, 0, sizeof s);
    s.out = heti_t_text_to(to, s.room, sizeof s.room);
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
        for (first = i; first < timeline->records &&
             timeline->record[first].rank == timeline->record[i].rank; first++) {}
        heti_p_svg_keys(&s, &timeline->record[i], first - i);
        if (s.keys > s.shades) s.shades = s.keys < HETI_P_SHADES ? s.keys : HETI_P_SHADES;
    }
    heti_p_svg_layout(&s, desc);
    heti_p_svg_thin(&s);
    more = heti_p_svg_legend(&s, 71, 0) - 71;
    s.top += more;
    s.height += more;
    heti_t_format(&s.out, "<svg xmlns=\"http://www.w3.org/2000/svg\" "
                              "width=\"%g\" height=\"%g\" viewBox=\"0 0 %g %g\">\n", s.width, s.height, s.width,
                                  s.height);
    heti_p_svg_style(&s);
    heti_t_format(&s.out, "<rect width=\"%g\" height=\"%g\" fill=\"%s\"/>\n", s.width, s.height,
                      s.dark ? "#14181f" : "#ffffff");
    heti_p_svg_caption(&s);
    (void)heti_p_svg_legend(&s, 71, 1);
    for (rank = 0; rank < timeline->ranks; rank++)
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
