/* hetrain_search.h 0.2.0: what it costs and which plan is best. A companion of hetrain.h that uses
   only its public API. Needs hetrain.h, hetrain_text.h and hetrain_plan.h beside it.

   USE
       #define HETRAIN_IMPLEMENTATION           in one source file of the program, before the
                                                includes; the other files include them without.
       #define HETRAIN_PLAN_IMPLEMENTATION
       #define HETRAIN_SEARCH_IMPLEMENTATION
       #include "hetrain.h"
       #include "hetrain_search.h"
   The implementations may stand in one file or in several. Needs libc; no libm, no threads, no
   stdio.

   WHAT IT DOES
   het_profile_measure says what each unit of a model costs on each device, a cluster file which
   devices there are and how they are linked. het_plan_search looks for the plan whose step is
   shortest on them, and says what the others lose by. het_adapt compares with what is measured
   while a run goes on. het_pack groups documents of unequal length into micro-batches that cost
   alike.

       het_profile_measure(&measure, &profile, &error)           what things cost
       het_cluster_read(text, length, NULL, &cluster, &error)    what there is to compute on
       het_plan_search(&desc, &search, &error)                   plans, the best first
       het_profile_costs(profile, plan, cluster, HET_YES, NULL, &costs, &error)  for het_simulate
   programs/plan.c is the same as a program.

   OPTIONS   (macros, defined before the include)
       HETRAIN_SEARCH_IMPLEMENTATION     one file of the program has it, and gets the code
       HETRAIN_STATIC                    as in hetrain.h: all functions static, a private copy
       HETRAIN_NO_DEFAULT_ALLOCATOR      no malloc: calls that allocate must get an allocator

   MEMORY, ERRORS, THREADS
   A result is one block from the allocator that the call is given (NULL: malloc); what is needed
   besides is given back before the call returns. Every call that can fail returns a het_result;
   *error names the value and the limit. Outputs are written only on success; a writer may have got
   a part of a file when it fails. No state is kept between calls but in a het_adapt: any thread may
   make any call at any time. Nothing is printed and nothing exits.

   DETERMINISM
   A function's output depends on its arguments alone; that of het_plan_search with a clock also on
   when its time is over.

   FUNCTIONS
       >>profile_api     het_profile_describe het_profile_free het_profile_stage het_profile_memory
                         het_profile_measure het_device_name het_profile_read het_profile_write
                         het_profile_merge het_profile_cuts
       >>cluster_api     het_cluster_read het_cluster_write het_cluster_flat het_cluster_free
                         het_cluster_place het_hardware_read het_hardware_price het_hardware_profile
                         het_profile_costs het_plan_costs_free het_simulate_costs het_team_divide
       >>search_api      het_plan_search het_search_free
       >>adapt_api       het_plan_predict het_adapt_create het_adapt_destroy het_adapt_start
                         het_adapt_observe het_adapt_advise het_advice_free het_adapt_cluster
       >>pack_api        het_pack het_packing_free het_pack_teams

   CONTENTS   (tags to search for)
   public API:
       >>profile_api     het_profile: times and bytes of units, blocks, devices and links
       >>cluster_api     het_cluster: devices, groups and links, as a file; what a plan costs there
       >>search_api      het_plan_search: which plan is best
       >>adapt_api       het_adapt: measured against predicted, other plans while training
       >>pack_api        het_pack: micro-batches of granules of unequal size
   implementation:
       >>profile         describing models, bytes of a plan, files of profiles
       >>measure         times of units, updates, messages and reductions
       >>cluster         cluster files
       >>search          the planner
       >>adapt           measured against predicted times, advice
       >>pack            which granules stand together, which micro-batch comes when
*/

#ifndef HETRAIN_SEARCH_H
#define HETRAIN_SEARCH_H

#include "hetrain_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- >>profile_api: what things cost ------------------------------------------------------------
   A profile says what each unit of a model costs on each kind of device, and what links do, in
   seconds and bytes. It is described and measured here, read from a file, merged, or written by
   hand: the planner and the simulator know nothing else about devices. */

/* Bytes that a token takes, by het_keep (hetrain.h): of the rank's own tokens, of the team's; of the
   team's a head's part, and of what is divided by share all of it. Where the unit is recomputed what
   F keeps is only for the call, but HET_KEEP_WEIGHT is kept where I and W come apart; where B does
   both HET_KEEP_GRADIENT is, and HET_KEEP_MICRO_BATCH_GRADIENT where there are no slices. */
typedef double het_kept[6][4];

/* What is the same on all devices: a kind of unit. Bytes are those of one token. */
typedef struct het_unit_kind {
    char name[48];                    /* of the unit's table; where units of one table differ, "name#2" */
    double input, output;             /* streams taken from the unit before, given to the next */
    het_kept keep, divided, columns;  /* by itself; where a team divides the heads; in a team by columns */
    double workspace, workspace_base; /* scratch inside the device's ops: of one token, and what
                                         does not depend on tokens */
    /* What teams ask of attention. Queries, or gradients of them; keys, as much as values; how many
       key/value heads; how many attentions there are; 1: where rows are moved, they are packed */
    double query, key, heads, attentions, packed;
    double alone, whole;              /* 1: no team can share it; one can by heads alone */
    double half_workspace;            /* `workspace` where two members divide the columns evenly; else by a line */
    het_column_moves moves;           /* linked: parts of the time of F and of I; linked_base: elements of
                                         these products' matrices */
    double most_members;              /* of a team by columns; 0: any number */
    int32_t loss;                     /* 1: the unit that makes the loss. It is never recomputed */
} het_unit_kind;

/* Parameters used by the same units (>>schedule_api, het_blocks). */
typedef struct het_block_profile {
    int64_t elements;
    int64_t uses;
    int64_t first_use;                /* into het_profile.use: units, ascending */
    int32_t frozen;
    double by_heads, by_share;        /* elements that a team by columns divides as heads, by share */
    double weights;                   /* bytes of its weights; 0: weight_bytes each */
    double int8, expanded;            /* elements kept as int8, which calls expand in teams by columns; that they
                                         always do */
    double workspace;                 /* bytes of scratch of the optimizer, for one of its parameters */
} het_block_profile;

/* `recompute`: what B or I take longer where the unit is recomputed. */
typedef struct het_unit_time { het_cost forward, backward, input, weight, recompute; } het_unit_time;

typedef struct het_device_profile {
    char name[48];                    /* "cpu:1", "h100", ... */
    het_unit_time *alone, *together;  /* [kinds] with nothing beside it, and with all ranks of its
                                         machine at work; equal where not measured apart */
    double step_element;              /* of the optimizer: an owned element */
    double begin_element;             /* before the first action of a step, for a held element of gradients: clearing */
    double verdict_base, verdict_element; /* of VERDICT beside waiting: itself, an owned element: squaring */
    double message_byte, ring_byte;   /* the rank's own work for a byte that a message (or PUT and
                                         TAKE) or a reduction brings or takes: copies, sums */
    double action;                    /* of any action, beside what it does */
    double product_element;           /* of an element of a product's matrix, beside what its rows take: packing */
    double beside;                    /* 1: PUT and TAKE run beside what it computes, for which its
                                         ranks have one slot more */
    double max_tokens;                /* of a micro-batch that it is given (het_device_desc.max_tokens); 0: any */
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
    uint8_t *cut;                     /* [units] het_cut of each: from the above, in no file; NULL: there are none */
    het_device_profile *device;       /* [devices] */
    het_link_profile *link;           /* [links] */
    double weight_bytes, gradient_bytes, state_bytes; /* of an element: 4, 8 (exact) or 4, 8 (AdamW) */
    double rounded_bytes;             /* at most, of an element's copy in bf16 beside its weight: 2 or 0 */
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
/* Fills plan->cut, as het_plan_cuts does, before lists are made. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_profile_cuts(const het_profile *profile, het_plan *plan,
                                                           het_error *error);

/* The largest micro-batch there will be. */
typedef struct het_shape {
    int64_t tokens, sequences;        /* het_desc.limits.max_tokens, max_sequences */
    int64_t granule;                  /* tokens of the longest granule; 0: 512, or all where there are fewer */
} het_shape;

/* Bytes of one stage for `rows` tokens: a slot (streams and kept tensors of a slice), and what a
   rank needs once, for the largest of its stages. */
typedef struct het_stage_memory {
    double slot;                      /* for `rows` */
    double carry;                     /* for `tokens`; 0 without slices, and where they are gathered */
    double chain;                     /* of a micro-batch that goes backward, for `tokens`; 0 without slices */
    double once;                      /* keys and values of which a rank keeps those of one micro-batch */
    double scratch;                   /* once a rank: the most that a unit's turn takes, tensors for
                                         `rows` and workspace for `tokens` */
    double stream;                    /* the widest boundary; a rank keeps three such */
    double message;                   /* the wider of its two ends */
    double exchange;                  /* in a team: what leaves at once, and what comes, that is packed */
} het_stage_memory;
/* A sum over the stage's units, for planners. recompute: het_recompute; split, sliced: 1 where I
   and W come apart, where micro-batches are cut and what slices carry is gathered. Threads: any. */
HETRAIN_API het_stage_memory het_profile_stage(const het_profile *profile, int64_t unit_begin, int64_t unit_end,
                                               int recompute, int split, int sliced, double rows, double tokens);
/* memory: [plan->ranks], what het_memory_estimate says, without tables on the host: weights,
   gradients, optimizer, activations, communication, stored, device and saving. Arrays begin at
   multiples of 64 bytes, which is not counted, and state is cut at multiples of 1,024 elements:
   where tokens are a multiple of 16 it is exact but for that at the tokens the profile was
   described for; of others, and of other shares of columns than halves, the workspace is taken
   from a line through two points (found up to 5 % of the whole too low). It is an upper bound
   where I and W come apart in some of a rank's stages, for `stored` where not all of them store,
   for slots where devices with and without `beside` are mixed, where a rank's max_tokens is less
   than shape->tokens, for weights where `rounded_bytes` is not 0, and for gradients where
   het_desc.limits.max_micro_batches is 1: they may take less, and lie where activations were
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
   chain. Devices of one name (below) are one kind, measured at full speed: speeds only matter to
   how ranks disturb each other. With several devices the link "threads" between the first two is
   measured too. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_profile_measure(const het_measure_desc *desc, het_profile **profile,
                                                              het_error *error);
/* The name of a device in profiles: "cpu:2" or "cpu:2:amx", its threads; "cuda:0" or
   "cuda:0:96-131" (HET_PART), which one. Threads: any. */
HETRAIN_API void het_device_name(const het_device_desc *desc, char *name, size_t capacity);

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

   A device has device (a profile's name) and may have name, count 1, speed 1, memory 0, max_tokens
   0; a group has members and may have name, count 1, process false, link (latency 0, bandwidth 0),
   bus 0, uplink 0. Times are in seconds, sizes in bytes, either as numbers or as text with s, ms,
   us, ns or K, M, G, T (powers of 1,000), Ki, Mi, Gi, Ti (of 1,024) behind them. Of several with
   one entry "#0", "#1", ... is added to the names. Devices are ranks in the order in which they
   come; "ranks": [0, 2, 1, ...] of the outermost group says which ranks they are instead.
   Where links are no tree the outermost group has "latencies", "bandwidths" or both: a row a rank
   with what a message to each rank meets, [[0, "5G"], ["2G", 0]]. They stand in place of what the
   groups' links say; a rank's own place is not looked at. "rings": true of the outermost group:
   blocks are reduced and gathered in rings, as NCCL does it. "wires": true, instead: over a wire of
   its own between any two ranks. */

typedef struct het_cluster_device {
    char name[48];
    char profile[48];                 /* of a het_device_profile */
    double speed;                     /* times as fast as the profile says, 1e-6 to 1e6: 1 */
    double memory;                    /* bytes; 0: no limit */
    double max_tokens;                /* of a micro-batch that it is given; 0: any that its profile takes */
    int64_t group;                    /* the innermost that it is in */
} het_cluster_device;

typedef struct het_cluster {
    char name[48];
    int64_t ranks, groups;
    int32_t rings, wires;             /* 1: het_costs.rings, .wires */
    het_cluster_device *device;       /* [ranks] */
    het_group *group;                 /* [groups] */
    het_link_cost *link;              /* [ranks][ranks] from, to, in place of the groups' latency and bandwidth; NULL */
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
   HET_ERR_INVALID: a group is empty or in none before it; no profile, no speed. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_cluster_write(const het_cluster *cluster, const het_writer *to);
/* One group with one link, the ranks of one process. device: [ranks], copied; NULL: "device#0" and
   so on, speed 1. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_cluster_flat(int64_t ranks, const het_cluster_device *device,
                                                           double latency, double bandwidth,
                                                           const het_allocator *allocator, het_cluster **cluster,
                                                           het_error *error);
HETRAIN_API void het_cluster_free(het_cluster *cluster);               /* NULL is fine. Threads: any. */
/* Which device each rank is to be, so that ranks that talk to each other lie close. `talk`: sets of
   ranks (start, unit as in het_blocks), weight: [talk->count], >= 0. The spread of a set is the
   number of groups of the cluster that hold some of it but not all, so of the uplinks that its
   messages cross; what is minimised is the sum of weight times spread (Arnold's consolidation,
   2025, with one objective for all its sets). Devices change places only with those of the same
   profile, speed, memory and max_tokens. Up to 8 ranks all orders are tried; beyond, exchanges of
   two ranks from random beginnings, `evaluations` orders in all (0: 20000). device: [ranks] (=) for
   each rank the cluster's device. *spread, NULL: not told. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_cluster_place(const het_cluster *cluster, const het_blocks *talk,
                                                            const double *weight, int64_t evaluations, uint64_t seed,
                                                            const het_allocator *allocator, int64_t *device,
                                                            double *spread, het_error *error);

/* ---- hardware: devices that nobody has measured ----
   What makers publish, in place of a measured profile:

       { "devices": [ { "name": "h100", "f32": "67T", "bf16": "989T", "bandwidth": "3.35T",
       "memory": "80G", "launch": "4us" } ], "links": [ { "name": "nvlink", "latency": "3us",
       "bandwidth": "450G" } ] }

   A device needs name, f32 and bandwidth. What is predicted is the roofline: an op takes as long as
   its operations or its bytes do, whichever is more; real ones take longer. */

#define HETRAIN_MAX_HARDWARE 16
typedef struct het_hardware_device {
    char name[48];
    double f32, bf16;                 /* operations a second in products of such operands; bf16 0: as f32 */
    double bandwidth;                 /* of its memory, bytes a second */
    double memory;                    /* bytes; 0: not known */
    double launch;                    /* seconds that an op takes beside: 0 */
    double max_tokens;                /* as of het_device_profile: 0 */
} het_hardware_device;

typedef struct het_hardware {
    int64_t devices, links;
    het_hardware_device device[HETRAIN_MAX_HARDWARE];
    het_link_profile link[HETRAIN_MAX_HARDWARE];
} het_hardware;

/* As het_cluster_read. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_hardware_read(const char *text, size_t length, het_hardware *hardware,
                                                            het_error *error);

typedef struct het_op_price {
    const char *name;                 /* "linear", "attention", ...; NULL: the node has no such op */
    double flops, bytes, seconds;     /* of a call */
    int32_t memory_bound;             /* 1: by its bytes, 0: by its operations */
    het_cost cost;                    /* the call's: what does not depend on tokens, a token, a pair */
} het_op_price;
/* What an op of a unit that is a program takes, a call of so many tokens and pairs of query and
   key. call: HET_ACTION_F, _I or _W. A unit that is none has one op, node 0, of the operations that
   it says. Threads: any. */
HETRAIN_API het_op_price het_hardware_price(const het_hardware_device *device, const het_description *description,
                                            int64_t unit, int64_t node, het_action_kind call, double tokens,
                                            double pairs);
/* het_profile_describe with all devices and links of `hardware`, whose times are those of calls of
   desc->limits.max_tokens tokens in sequences of `length`; a step's update by its bytes.
   Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_hardware_profile(const het_hardware *hardware, const het_desc *desc,
                                                               int64_t length, const char *model,
                                                               const het_allocator *allocator, het_profile **profile,
                                                               het_error *error);

/* ---- costs of a plan ---- */

typedef struct het_plan_costs {
    het_costs costs;                  /* for het_simulate with complete lists; its tokens, pairs and
                                         sequences are the caller's to set */
    /* [plan->stages], and behind them those of the teams' members (het_costs.member); of a stage
       with a team it is about what the team takes for one sequence */
    het_stage_cost *stage;            /* those of `costs` */
    het_stage_cost *alone, *together; /* with nothing beside, with all ranks always at work */
    int64_t curves;                   /* stages, and members behind them */
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

/* ---- shares of a team ---- */

typedef struct het_divide_desc {
    uint32_t start_canary;
    const het_stage_cost *member;     /* [members] what each would take for all rows and heads: F and B
                                         (het_plan_costs.stage). Required */
    int64_t members;                  /* in the order of their rows. At most HETRAIN_MAX_TEAM. Required */
    int64_t granules;                 /* of a micro-batch, equally long. Required */
    double tokens, pairs, sequences;  /* of it; sequences of equal length: 1 */
    int64_t heads;                    /* key/value heads to divide, at least one a member; 0: by context */
    uint32_t end_canary;
} het_divide_desc;
/* The shares with which the slowest member takes least: member[i].share is how many granules it
   gets, group and heads are by context or by heads; leader and rank are left alone. By context, and
   by heads with up to 4 members and 256 heads, no division is faster; of more, heads go by largest
   remainders and are moved while that helps. Exchanges are not counted. seconds: of the slowest
   member, or NULL. Nothing is allocated. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_team_divide(const het_divide_desc *desc, het_team_member *member,
                                                          double *seconds, het_error *error);

/* ---- >>search_api: which plan is best -----------------------------------------------------------
   Looks for the plan whose simulated step is shortest and that fits into every device's memory.
   Rank r is device r of the cluster. A plan of the space that is searched has
   * pipelines: some of the devices in groups, each in some order, numbered by their lowest device;
     the others stay idle, or keep state (het_plan.keeper; where sums are exact and uneven_state is
     not no). A device has one stage; under interleaved, zb-v, v-half, v-min and
     dualpipev two, placed as the schedule wants it, and some pipeline has two devices at least. The
     chain may be cut between any two units
   * granules of a micro-batch: 1 to most_granules; the last micro-batch of the step has what is
     left. A device that takes no micro-batch of so many tokens has no stage; it can keep
   * counts: how many micro-batches each pipeline takes, 0 allowed for all but one
   * a schedule of the list, "timed" at the end alone; for "greedy" a memory_limit: none, or a
     whole number up to the length of the longest pipeline
   * recompute: not, unit by unit (in the end some of them: het_search_desc.recompute_units) or,
     where B is whole, as a whole, for each device's stages but
     those of the last unit alone
   * store: for each device's stages all activations stay, or those of one micro-batch do
     (het_search_desc.store; moves also try two and three)
   * teams, where the profile says what attention moves: devices of the innermost groups fused to
     pairs, fours and so on, up to 4 devices in every way there is, each team by context, by heads
     or by columns, with the shares of het_team_divide; over fused devices the search below is done
     again, with keepers and near sets as well. A plan with teams is only returned where it is
     better than the best without
   * state shares, of all devices at work and keepers: 1 each; the speed of the device's optimizer,
     where all need time for it; the bytes that its memory limit leaves beside everything else,
     where all have a limit; or 1 of keepers alone
   * what is divided beside the state: nothing, sums of gradients, weights as well
     (het_search_desc.shard), or weights so that the devices of each innermost group hold all of
     them (het_plan.near); the same in all of a plan
   Plans with keepers or near sets are looked for when the search among all others is over, from
   what it found on, with as many evaluations again: so they never make the result worse. At the end
   micro-batches as small as they can be are cut into 2, 4, 8, ... even slices
   (het_search_desc.slices), without teams: the same search goes over slices as over micro-batches,
   and what it finds is judged in sliced-1f1b and in terapipe.
   The search begins with pipelines made along the groups of the cluster and chains cut by bisection
   of the slowest stage's time, and improves them by moves (a unit, a device, two devices, a
   micro-batch, granules, schedule, recompute, state) that may lose a little at first. A move is
   judged by an estimate, and simulated where that promises more than ever in this climb; where
   there are at most 16 devices and 1,024 F a step, three of four climbs simulate every move that no
   bound rules out instead, and now and then go on through plans that do not fit. Up to 16 devices
   every second climb begins with a plan that is drawn, and keeps its schedule.
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
                                         bidirectional, terapipe, sliced-1f1b. NULL, or "timed"
                                         alone: gpipe, 1f1b, zb-h1, greedy, interleaved, zb-v.
                                         "timed": what is found gets lists made for its times as
                                         well (het_schedule_timed), up to 64 devices and 4,096 F a
                                         step, in a tenth of the seconds, not with `trials` */
    int64_t schedule_count;
    het_choice recompute;             /* stages may recompute: yes */
    het_choice recompute_units;       /* in what is found as few units of a stage recompute as fit: yes; up to
                                         256 stages, not with `trials` */
    het_choice store;                 /* and put activations on the host (het_stage.store): no */
    het_choice uneven_state;          /* devices may have unequal shares of the state: yes */
    het_shard shard;                  /* the most that may be divided: state. More needs sums that are exact */
    het_choice together;              /* units at the times measured with all ranks at work: yes */
    het_choice teams;                 /* devices may be fused to teams: yes. They get as many
                                         evaluations again, and three tenths of the seconds */
    int64_t slices;                   /* of a micro-batch at most, which has as many granules: 1. More get a
                                         tenth of the seconds, have schedules of their own, and need
                                         `trials` 0 */
    double seconds;                   /* of the search, by `clock`: no limit. Keepers and near sets get a quarter.
                                         Simulations end that have begun, and that of the result is made */
    double (*clock)(void *user);      /* seconds of any clock; NULL: only evaluations are counted */
    void *user;
    int64_t evaluations;              /* plans simulated at most, ten estimated moves counting as one: 20000 */
    int64_t trials;                   /* 0: none. Else plans are judged in closed form, over-large ones are
                                         refused, and so many of those that promise most are simulated,
                                         at most 64; what units take in a team is simulated beside. No
                                         keepers or near sets unless nothing else fits */
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
    double *memory;                   /* [ranks] bytes at most, as limits count: the device's and message buffers */
    char why[256];                    /* of the best: what limits it; of others: what they lose by */
} het_found;

typedef struct het_search {
    int64_t found_count;
    het_found *found;                 /* [found_count], best first; each of another form: number of
                                         pipelines, stages, schedule */
    double bound;                     /* no plan on this cluster, of ranks or of teams, takes less,
                                         whichever of its times, alone or together, is the shorter */
    double distance;                  /* best / bound - 1 */
    char bound_by[96];                /* which bound: work over summed speeds, fastest chain */
    int64_t evaluations, skipped;     /* plans simulated; left out because a bound or memory said so */
    int32_t exhaustive;               /* 1: the whole space was searched; 0 with `trials` */
    int32_t stopped;                  /* 1: by evaluations or seconds */
    het_simulation *simulation;       /* of the best, with its timeline */
    het_allocator allocator;          /* of this struct and its arrays: one block of `size` bytes;
                                         plans and simulation are their own */
    size_t size;
} het_search;

/* One and the same result for the same description, but where `seconds` ends it. HET_ERR_LIMIT:
   nothing fits; the error names the unit, or the rank, and the bytes that are missing, or, where no
   device takes the smallest micro-batch, the one that takes most; or there was no time to find any.
   Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_plan_search(const het_search_desc *desc, het_search **search,
                                                          het_error *error);
HETRAIN_API void het_search_free(het_search *search);                  /* NULL is fine. Threads: any. */

/* ---- >>adapt_api: when devices and links are not what they were ---------------------------------
   While training, the times of a step's actions are held against what the profile says of the plan
   in use. Where a device, or a link that a pipeline or a reduction crosses, became slower or faster
   for a few steps, the planner is asked again with what is known now: first for other shares of the
   pipelines alone, which is taken where it is as good; else for another plan. het_replan
   (hetrain.h) goes over to it. A rank's times are taken as cycles of the clock that it reports, if
   it reports one: a new clock is believed at once, and its times need not tell it first. */

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
    het_choice only_shares;           /* yes: the stages stay, only the pipelines' shares change (OmniLearn): no */
    const double *frequency;          /* [ranks] of the caller, who may write there between steps: the
                                         clock of each rank, in any unit; 0, NULL: it reports none */
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
   give the same advice, but where search->seconds ends it: of several processes one should ask and
   tell the others (het_broadcast). Threads: any, one call at a time. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_adapt_advise(het_adapt *adapt, het_advice **advice, het_error *error);
HETRAIN_API void het_advice_free(het_advice *advice);                  /* NULL is fine. Threads: any. */
/* Devices and links as believed; an idle device is believed to be what it was. Threads: any. */
HETRAIN_API const het_cluster *het_adapt_cluster(const het_adapt *adapt);

/* ---- >>pack_api: which micro-batches a step's data make -----------------------------------------
   Documents of unequal length make micro-batches of unequal cost, and the ranks of a pipeline wait
   for the largest. het_pack groups the granules of a step into micro-batches that cost alike, deals
   these to the pipelines, and orders them. A granule is here what stays together: one of the data's
   (het_granules), or all those of a sequence of several. None is split, so that no bit of what is
   trained shows the grouping (hetrain.h, DETERMINISM), where het_batch.sample_id and granule_start
   go with the sequences.

   t_s(M) = base + token * tokens + pair * pairs of micro-batch M is what F and B (or F, I and W) of
   stage s take. A grouping into m micro-batches, of which pipeline k gets c_k
   (het_plan_micro_batches), on P_k ranks, is estimated to take

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
     two micro-batches are exchanged, or one is moved, as long as that helps; then any granule goes
     to another micro-batch, or changes places with one there (up to about 2,000 granules, not with
     `neighbours`); both again, from orders with three exchanges drawn, until two in a row do not
     help. Of equals the first found stays.
   * Where pipelines take unequal numbers of tokens, granules that go one by one go to a micro-batch
     whose pipeline takes them, micro-batches are dealt by tokens, orders that break a limit are
     left out, and groupings within the lowest limit are looked at as well. */

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
    int64_t max_tokens;               /* of a micro-batch: no limit. A pipeline gets no more than the
                                         max_tokens of its ranks (costs->rank) */
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
    int32_t stopped;                  /* 1: by `evaluations`; 0: no exchange of two micro-batches or
                                         granules, and no move of one, makes the step shorter */
    het_allocator allocator;          /* of this struct and its arrays: one block of `size` bytes */
    size_t size;
} het_packing;

/* `seconds` is never above `plain_seconds`, where that keeps the limits. One and the same result
   for the same description. HET_ERR_LIMIT: a granule is larger than a micro-batch may be, or no
   grouping that was looked at keeps the limits: the error says which, its size and the limit. For
   the next step it may be called by another thread while this one is computed. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_pack(const het_pack_desc *desc, het_packing **packing, het_error *error);
HETRAIN_API void het_packing_free(het_packing *packing);               /* NULL is fine. Threads: any. */
/* Teams of unlike sizes for one step's granules, sequences of very unequal length: long ones go to
   large teams, which have the memory and the hands, short ones to devices alone, which exchange
   nothing (FlexSP, arXiv 2412.01523; HexiSeq, 2605.07569). Every team is a pipeline of one stage
   with the whole chain; devices that are neighbours in the cluster are put together, up to 8
   devices in teams of every size, more in powers of two from all of one size on, as long as
   dividing a team or joining two helps; each by context, by heads or by columns. Granules go, the
   longest first, to the team that ends first with them, and then from the team that ends last to
   others, or change places, while the simulator says that it ends earlier.
   search: profile, cluster, shard, together, teams (no: devices alone) are looked at, and
   granule_tokens, the longest granule that rows are cut between: 512. A device's memory limit holds
   for the largest micro-batch of its own team, which has no more than its devices' max_tokens: what
   a context needs that makes room for no more, whereas het_create makes room for limits.max_tokens,
   the largest of all, on every rank whose device has no max_tokens.
   desc: granules, tokens, pairs, sequences, max_tokens, max_sequences, evaluations (of teams and
   ways: 192) and allocator are looked at. `plan` has the teams, and shares by which each gets its
   micro-batches. packing->seconds is simulated, its `sequences` are as many of equal length as have
   the tokens and pairs, `estimate` is when the last team ends, before reductions, plain_seconds is
   that of the best teams of one size; 0: none fits. HET_ERR_LIMIT: no teams that were looked at
   hold the longest granule. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_pack_teams(const het_search_desc *search, const het_pack_desc *desc,
                                                         het_plan **plan, het_packing **packing, het_error *error);

#ifdef __cplusplus
}
#endif
#endif /* HETRAIN_SEARCH_H ---- end of the API: to use hetrain_search.h you need nothing below ---- */
#if defined(HETRAIN_SEARCH_IMPLEMENTATION) && !defined(HETRAIN_SEARCH_IMPLEMENTATION_DONE)

#define HETI_T_WANTED
#include "hetrain_text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* =================================================================================================
   >>profile  What a description says about units, blocks and bytes; bytes of a plan; files.

   The engine says what a description consists of (het_describe). Units of one table with the same
   shapes are one kind, whatever their parameters are called. Bytes are kept by class (het_keep), so
   that a stage's memory is a sum over its units, whatever is recomputed, split or sliced:
       slot = rows (input of the first + sum of output + keep_input [unless recomputed]
              + keep_weight [unless recomputed and B whole] + carry [unless sliced and not gathered]
              + keep_gradient [where I and W come apart]
              + carry_gradient [where I and W come apart, unless sliced])
       carry = tokens (sum of carry) [sliced and not gathered]
       chain = tokens (sum of carry_gradient) [sliced]
   Of a stage that recomputes as a whole output and, but for a team, carry are no part of the slot
   where B is whole: a rank has room for them once. A unit's call has its carry for all tokens where
   that is gathered from the slices (heti_stage.gathers of hetrain.h).
   ============================================================================================== */

enum { HETI_S_MOST_UNITS = 1 << 20, HETI_S_MOST_KINDS = 256 };

#define HETI_S_MOST_EVALUATIONS (INT64_C(1) << 48) /* sums of them are no overflow */

static int64_t heti_s_min(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t heti_s_max(int64_t a, int64_t b) { return a > b ? a : b; }
static double heti_s_larger(double a, double b) { return a > b ? a : b; }
static double heti_s_smaller(double a, double b) { return a < b ? a : b; }
static double heti_s_real(int64_t value) { return HETI_T_CAST(double, value); }
/* The whole number below it; what a file says may be more than any. */
static int64_t heti_s_whole(double a) { return HETI_T_CAST(int64_t, heti_s_smaller(a, 4e18)); }
static double heti_s_absolute(double a) { return a < 0 ? -a : a; }
static int heti_s_unequal(double a, double b) { return a < b || b < a; }

/* The lower of two limits; 0: none. */
static double heti_s_limit(double a, double b) { return a > 0 && (b <= 0 || a < b) ? a : b; }

static void heti_s_exchange(int64_t *a, int64_t *b) {
    const int64_t kept = *a;
    *a = *b;
    *b = kept;
}

/* What is wrong with the arguments of a call. */
#define HETI_S_BAD(error, ...) heti_t_fail(error, HET_ERR_INVALID, __VA_ARGS__)
/* Where a call's result goes: there must be such a place, and nothing is in it yet. */
#define HETI_S_OUTPUT(call, to) do { \
    if ((to) == NULL) return HETI_S_BAD(error, "%s: " #to " is NULL", call); \
    *(to) = NULL; } while (0)

/* A struct of zeros. */
#define HETI_S_CLEARED(type, name) type name; memset(&name, 0, sizeof name)

/* Of two arguments of a call neither may be NULL. */
#define HETI_S_NEEDED(call, first, second) do { \
    if ((first) == NULL || (second) == NULL) \
        return HETI_S_BAD(error, "%s: %s is NULL", call, (first) == NULL ? #first : #second); } while (0)

/* Which of `count` structs of `size` bytes, which begin with names, is called so; `count`: none. */
static int64_t heti_s_named(const void *list, size_t size, int64_t count, const char *name) {
    const char *at = HETI_T_CAST(const char *, list);
    int64_t i;
    for (i = 0; i < count && strcmp(at, name) != 0; i++) at += size;
    return i;
}

/* Curves of units and stages. The planner also has sums of them. */
enum {
    HETI_S_FORWARD, HETI_S_BACKWARD, HETI_S_INPUT, HETI_S_WEIGHT, HETI_S_AGAIN, HETI_S_CALLS,
    HETI_S_LEAST = HETI_S_CALLS,      /* added to a call: what it takes at least, whoever works beside */
    HETI_S_BOTH = 2 * HETI_S_CALLS,   /* F and B; one more: F, I and W */
    HETI_S_SUMS = 2 * HETI_S_CALLS + 2
};

/* het_unit_time and het_stage_cost begin with them in this order, that of actions F, B, I and W. */
static het_cost *heti_s_curve_of(void *of, int what) { return HETI_T_CAST(het_cost *, of) + what; }
static het_cost heti_s_curve(const void *of, int what) { return HETI_T_CAST(const het_cost *, of)[what]; }

/* Adds structs of numbers alone. */
static void heti_s_add_numbers(void *to, const void *from, size_t size, double factor) {
    double *sum = HETI_T_CAST(double *, to);
    const double *add = HETI_T_CAST(const double *, from);
    for (size_t i = 0; i < size / sizeof *sum; i++) sum[i] += add[i] * factor;
}

static void heti_s_add_curve(het_cost *to, het_cost from, double factor) {
    heti_s_add_numbers(to, &from, sizeof from, factor);
}

#define HETI_S_ROOM(type, count) HETI_T_TAKE(arena, type, count)
/* The same for several arrays of a type and length, at these addresses. */
#define HETI_S_ROOMS(type, count, ...) do { \
    type **const heti_s_to[] = { __VA_ARGS__ }; \
    for (size_t heti_s_i = 0; heti_s_i < sizeof heti_s_to / sizeof heti_s_to[0]; heti_s_i++) \
        *heti_s_to[heti_s_i] = HETI_S_ROOM(type, count); } while (0)

/* A struct at the head of its own block: `made` is cut and then copied there. *size: its field for
   the block's size. NULL: no memory. */
static void *heti_s_make(void *made, size_t bytes, size_t *size, heti_t_cutter cut, const het_allocator *allocator,
                         const char *call, het_error *error) {
    heti_t_arena arena;
    if (heti_t_arrays(&arena, bytes, cut, made, allocator, call, error) != HET_OK) return NULL;
    *size = arena.size;
    return memcpy(arena.base, made, bytes);
}

#define HETI_S_MAKE(type, made, cut, allocator, call, error) \
    HETI_T_CAST(type *, heti_s_make(&(made), sizeof(made), &(made).size, cut, allocator, call, error))

/* Gives back a struct of one block, in which `allocator` lies. */
static void heti_s_give_back(const het_allocator *allocator, void *block, size_t size) {
    const het_allocator own = *allocator;
    own.free(own.user, block, size);
}

static const het_unit_kind *heti_s_kind_at(const het_profile *p, int64_t unit) { return &p->kind[p->unit[unit]]; }

/* Bytes of a token that stages of these units take and give. */
static double heti_s_messages(const het_profile *p, int64_t begin, int64_t end) {
    return heti_s_kind_at(p, begin)->input + heti_s_kind_at(p, end - 1)->output;
}

/* ---- describing ---- */

/* Whether two units differ in nothing that costs. */
static int heti_s_same_kind(const het_described_unit *unit, const het_described_unit *other) {
    const het_unit_info *a = &unit->info, *b = &other->info;
    if (unit->unit.iface != other->unit.iface) return 0;
    if (a->in_streams != b->in_streams || memcmp(a->in_width, b->in_width, sizeof a->in_width) != 0 ||
        a->out_streams != b->out_streams || memcmp(a->out_width, b->out_width, sizeof a->out_width) != 0)
        return 0;
    if (a->parameters != b->parameters || a->tensors != b->tensors || a->workspace != b->workspace ||
        a->is_loss != b->is_loss)
        return 0;
    for (int64_t i = 0; i < a->parameters; i++)
        if (a->parameter[i].rows != b->parameter[i].rows || a->parameter[i].columns != b->parameter[i].columns)
            return 0;
    for (int64_t i = 0; i < a->tensors; i++)
        if (a->tensor[i].width != b->tensor[i].width || a->tensor[i].keep != b->tensor[i].keep) return 0;
    return !heti_s_unequal(a->flops_forward, b->flops_forward);
}

/* The kind of unit u; first: [kinds] the first unit of each kind. `kinds`: it is of none. */
static int64_t heti_s_kind_of(const het_description *d, int64_t u, const int64_t *first, int64_t kinds) {
    int64_t k;
    for (k = 0; k < kinds && !heti_s_same_kind(&d->unit[first[k]], &d->unit[u]); k++) {}
    return k;
}

/* Bytes of a token. */
static double heti_s_streams(const het_unit_info *info, int64_t count, const int64_t *width) {
    double sum = 0;
    for (int64_t s = 0; s < count; s++) sum += heti_s_real(width[s]) * (info->streams == HET_BF16 ? 2 : 4);
    return sum;
}

/* het_keep; of what is none the longest of a unit's own. */
static unsigned heti_s_keep_of(const het_tensor_desc *tensor) {
    const unsigned keep = HETI_T_CAST(unsigned, tensor->keep);
    return keep <= HET_KEEP_MICRO_BATCH_GRADIENT ? keep : HETI_T_CAST(unsigned, HET_KEEP_WEIGHT);
}

/* Adds up tensors by how long they are kept. divided: of a member with one head of a team that
   divides them, whose carries are its head's. */
static void heti_s_count_tensors(het_kept to, const het_unit_info *info, int divided) {
    for (int64_t t = 0; t < info->tensors; t++) {
        const unsigned keep = heti_s_keep_of(&info->tensor[t]);
        const int head = keep >= HET_KEEP_MICRO_BATCH || (keep <= HET_KEEP_INPUT && info->tensor[t].group != 0);
        to[keep][divided && head ? 2 : 0] += heti_s_real(info->tensor[t].width) * 4;
    }
}

/* half: the same for (max_tokens + 1) / 2 tokens. Workspace is a straight line through both. */
static void heti_s_fill_kind(het_unit_kind *kind, const het_unit_info *info, const het_unit_info *half) {
    const double high = HETI_T_CAST(double, info->workspace), low = HETI_T_CAST(double, half->workspace);
    const int64_t apart = info->max_tokens - half->max_tokens;
    kind->workspace = apart > 0 && high > low ? (high - low) / heti_s_real(apart) : 0;
    kind->workspace_base = heti_s_larger(0, high - kind->workspace * heti_s_real(info->max_tokens));
    kind->input = heti_s_streams(info, info->in_streams, info->in_width);
    kind->output = heti_s_streams(info, info->out_streams, info->out_width);
    kind->loss = info->is_loss != 0;
    heti_s_count_tensors(kind->keep, info, 0);
}

/* The same of a team by columns: which values are divided how is in the program. Of a unit that is
   none tensors of the team's rows are whole. */
static void heti_s_count_columns(het_unit_kind *kind, const het_unit_info *info) {
    const het_program *p = info->program;
    const double all = kind->heads > 0 ? kind->heads : 1;
    double width[HETRAIN_MAX_UNIT_TENSORS];
    int how[HETRAIN_MAX_UNIT_TENSORS], i, k;
    for (i = 0; i < info->tensors; i++) { /* 2: statistics of attention */
        how[i] = info->tensor[i].group == 0 ? 0 : strcmp(info->tensor[i].name, "statistic") == 0 ? 2 : 1;
        width[i] = heti_s_real(info->tensor[i].width) / (how[i] == 2 ? heti_s_real(info->team->heads) : 1);
    }
    for (i = 0; i < p->values; i++)
        for (k = 0; k < 2; k++) {
            const het_value *v = &p->value[i];
            if (v->tensor[k] < 0 || v->divided == 0 || v->home[k] != i) continue;
            how[v->tensor[k]] = v->divided == 1 ? 2 : 3;
            width[v->tensor[k]] = heti_s_real(v->width) / (v->divided == 1 ? all : 1);
        }
    for (i = 0; i < p->nodes; i++) /* attention that stays by heads */
        for (k = 0; p->node[i].kind == HET_NODE_ATTENTION && k < 8; k++) {
            const int core = p->node[i].core[k];
            if (core >= 0) how[core] = 2, width[core] /= heti_s_real(info->team->heads);
        }
    for (i = 0; i < info->tensors; i++) kind->columns[heti_s_keep_of(&info->tensor[i])][how[i]] += 4 * width[i];
}

/* What it moves: rows before a product whose result is divided, chains of one whose x is; backward
   the other way round. A unit that is no program says it itself. */
static void heti_s_count_moves(het_unit_kind *kind, const het_unit_info *info) {
    const het_program *p = info->program;
    het_column_moves *to = &kind->moves;
    double all = 0;
    for (int way = 0; way < 2; way++) {
        to->gathers[way] = info->gather_bytes[way] > 0;
        to->gather_bytes[way] = info->gather_bytes[way];
        to->exchanges[way] = info->exchange_bytes[way] > 0 ? 2 : 0;
        to->exchange_bytes[way] = info->exchange_bytes[way];
    }
    for (int64_t i = 0; i < info->parameters; i++) {
        const het_parameter_desc *w = &info->parameter[i];
        const double pieces = w->piece > 0 ? heti_s_real((w->divide == 1 ? w->rows : w->columns) / w->piece) : 0;
        if (pieces > 0 && !(kind->most_members > 0 && kind->most_members < pieces)) kind->most_members = pieces;
    }
    for (int i = 0; i < p->nodes; i++) {
        const het_node *n = &p->node[i];
        const int spreads = n->outputs > 0 && p->value[n->y[0]].divided != 0;
        double in, out = 0;
        if (n->kind == HET_NODE_ATTENTION) to->divided += spreads;
        if (n->kind != HET_NODE_LINEAR) continue;
        in = heti_s_real(p->value[n->x[0]].width);
        for (int j = 0; j < n->outputs; j++) out += heti_s_real(p->value[n->y[j]].width);
        all += in * out;
        if (!spreads && p->value[n->x[0]].divided == 0) continue;
        for (int way = 0; way < 2; way++) {
            const double width = 4 * (spreads ? in : out), parts = spreads ? n->outputs : 1;
            if (spreads == (way == 0)) {
                to->gathers[way] += 1;
                to->gather_bytes[way] += width;
                continue;
            }
            to->chains[way] += 1;
            to->links[way] += parts;
            to->chain_bytes[way] += width;
            to->link_bytes[way] += parts * width;
            to->linked_base[way] += in * out;
        }
    }
    for (int way = 0; way < 2; way++) to->linked[way] = all > 0 ? to->linked_base[way] / all : 0;
}

/* What the unit keeps and moves in teams: described again for a member with one head of a team that
   divides heads, and for half of one by columns. */
static het_result heti_s_fill_divided(het_unit_kind *kind, const het_described_unit *unit) {
    het_team_limits team = { 2, 1, 1, 1, 1, 1, 0, NULL, { 0, 0 } };
    het_team_member columns[2];
    het_program program;
    het_unit_info info;
    kind->alone = !unit->info.teams;
    if (kind->alone > 0 || unit->info.is_loss) return HET_OK;
    memset(columns, 0, sizeof columns);
    for (int64_t i = 0; i < 2; i++) {
        columns[i].share = 1;
        columns[i].heads = heti_s_max((unit->unit.model->kv_heads + 1 - i) / 2, 1);
    }
    for (int by_columns = 0; by_columns < 2; by_columns++) {
        memset(&info, 0, sizeof info);
        info.max_tokens = unit->info.max_tokens;
        info.max_granule_tokens = unit->info.max_granule_tokens;
        info.max_sequences = unit->info.max_sequences;
        info.compute = unit->info.compute;
        info.device = unit->info.device;
        info.in_streams = unit->info.in_streams;
        for (int64_t i = 0; i < info.in_streams; i++) info.in_width[i] = unit->info.in_width[i];
        program.nodes = program.values = 0; /* the unit may be no program */
        info.program = &program;
        info.team = &team;
        team.plan = by_columns ? columns : NULL;
        if (by_columns) team.heads = columns[0].heads;
        if (unit->unit.iface->describe(&unit->unit, &info) != HET_OK) {
            kind->most_members = 1;
            return by_columns ? HET_OK : HET_ERR_INVALID;
        }
        for (int64_t i = 0; i < program.nodes && !by_columns; i++) {
            const het_node *n = &program.node[i];
            if (n->kind != HET_NODE_ATTENTION) continue;
            kind->query += 4 * heti_s_real(program.value[n->x[0]].width);
            kind->key += 4 * heti_s_real(program.value[n->x[1]].width);
            kind->heads = heti_s_real(unit->unit.model->kv_heads);
            kind->attentions += 1;
            kind->whole = unit->unit.model->causal == HET_NO;
        }
        if (kind->attentions > 0 && !by_columns) heti_s_count_tensors(kind->divided, &info, 1);
        if (!by_columns) continue;
        heti_s_count_columns(kind, &info);
        heti_s_count_moves(kind, &info);
        kind->half_workspace = heti_s_larger(0, (HETI_T_CAST(double, info.workspace) - kind->workspace_base) /
                                                heti_s_real(info.max_tokens));
    }
    if (kind->attentions > 0 || kind->moves.gathers[0] > 0)
        kind->packed = info.device == NULL || !info.device->iface->host_memory;
    return HET_OK;
}

/* The table's name, or "name#2" where an earlier kind has it. */
static void heti_s_kind_name(const het_description *d, const int64_t *first, int64_t k, het_unit_kind *kind) {
    const char *table = d->unit[first[k]].unit.iface->name;
    heti_t_text name = heti_t_text_in(kind->name, 41);
    int64_t number = 1;
    for (int64_t i = 0; i < k; i++) number += strcmp(d->unit[first[i]].unit.iface->name, table) == 0;
    heti_t_put(&name, table);
    name = heti_t_text_behind(kind->name, sizeof kind->name);
    if (number > 1) heti_t_format(&name, "#%d", number);
}

/* A rank's tables are described in hetrain.h's manual: rotary tables, maximum (4), exponent (4) and
   grid (8) of each parameter, logits of one token, scalars and two sums; a micro-batch has five
   arrays of 4 bytes and one of 8 a token, two of 8 a sequence. */
static void heti_s_fill_totals(het_profile *profile, const het_description *d, const char *model) {
    const het_model_desc *m = &d->desc.model;
    /* of a head's columns int(E fraction) rotate, a whole number of pairs */
    const double rotating = HETI_T_CAST(double, m->head_size) * (HETI_T_CAST(double, m->rotary_fraction) + 1e-7);
    const het_device *device = d->unit[0].info.device;
    heti_t_text name = heti_t_text_in(profile->model, sizeof profile->model);
    heti_t_put(&name, model);
    profile->dtype = d->desc.dtype;
    profile->reduce = d->desc.reduce;
    profile->weight_bytes = profile->gather_bytes = 4;
    HETI_S_CLEARED(het_op, rounds);
    rounds.kind = HET_OP_ROUND;
    profile->rounded_bytes = d->desc.dtype == HET_BF16 && device != NULL &&
                             device->iface->supports(device->self, &rounds) ? 2 : 0;
    profile->gradient_bytes = profile->reduce_bytes = d->desc.reduce == HET_REDUCE_EXACT ? 8 : 4;
    profile->state_bytes = 4 * heti_s_real(het_optimizer_slots(&d->desc.optimizer));
    profile->rank_weights =
        m->position == HET_ROTARY ? 4 * heti_s_real(m->context * (HETI_T_CAST(int64_t, rotating) / 2 * 2)) : 0;
    profile->rank_gradients = 16 * heti_s_real(het_parameter_count(d->ctx));
    profile->rank_workspace = 4 * heti_s_real(d->desc.model.vocab) +
        heti_s_real(sizeof(het_step_scalars) + 2 * sizeof(het_sum));
    profile->token_bytes = 28;
    profile->sequence_bytes = 16;
}

static void heti_s_profile_cut(void *self, heti_t_arena *arena) {
    het_profile *p = HETI_T_CAST(het_profile *, self);
    p->kind = HETI_S_ROOM(het_unit_kind, p->kinds);
    p->unit = HETI_S_ROOM(int32_t, p->units);
    p->block = HETI_S_ROOM(het_block_profile, p->blocks);
    p->use = HETI_S_ROOM(int64_t, p->uses);
    p->cut = HETI_S_ROOM(uint8_t, p->units);
    p->device = HETI_S_ROOM(het_device_profile, p->devices);
    p->link = HETI_S_ROOM(het_link_profile, p->links);
    het_unit_time *times = HETI_S_ROOM(het_unit_time, 2 * p->devices * p->kinds);
    for (int64_t i = 0; times != NULL && i < p->devices; i++, times += 2 * p->kinds) {
        p->device[i].alone = times;
        p->device[i].together = times + p->kinds;
    }
}

/* A cleared profile with the numbers of things, and the fields that are no arrays, of `made`. */
static het_result heti_s_profile_new(het_profile made, const het_allocator *allocator, const char *call,
                                     het_profile **profile, het_error *error) {
    made.allocator = *allocator;
    *profile = HETI_S_MAKE(het_profile, made, heti_s_profile_cut, allocator, call, error);
    return *profile != NULL ? HET_OK : HET_ERR_OOM;
}

/* As hetrain.h finds it: behind a loss that is not the last unit's, and where nothing was trained
   since. */
static void heti_s_find_cuts(het_profile *p) {
    int backs = 0;
    HETI_T_CLEAR(p->cut, p->units);
    for (const het_block_profile *b = p->block; b < p->block + p->blocks; b++) /* 1: it is trained */
        for (int64_t i = b->first_use; i < b->first_use + b->uses && !b->frozen; i++) p->cut[p->use[i]] = 1;
    for (int64_t u = 0; u < p->units; u++) {
        const int last = u + 1 == p->units, loss = p->kind[p->unit[u]].loss;
        backs |= p->cut[u];
        p->cut[u] = !backs && !last ? HET_CUT_NONE : loss && !last ? HET_CUT_BEHIND : HET_CUT_NOWHERE;
        if (loss) backs = 0;
    }
}

/* Whether a unit has no backward pass. */
static int heti_s_is_idle(const het_profile *p, int64_t u) { return p->cut != NULL && p->cut[u] == HET_CUT_NONE; }
/* Whether no gradient comes back over the boundary behind it. */
static int heti_s_is_cut(const het_profile *p, int64_t u) { return p->cut != NULL && p->cut[u] != HET_CUT_NOWHERE; }

HETRAIN_API het_result het_profile_cuts(const het_profile *profile, het_plan *plan, het_error *error) {
    if (profile == NULL || plan == NULL || plan->cut == NULL || plan->units != profile->units)
        return HETI_S_BAD(error, "het_profile_cuts: a pointer is NULL, or the plan is for other units");
    HETI_T_CLEAR(plan->cut, plan->units);
    if (profile->cut != NULL) HETI_T_COPY(plan->cut, profile->cut, plan->units);
    return HET_OK;
}

/* What a profile says of its parts is about parts that it has. */
static het_result heti_s_check_profile(const het_profile *p, const char *call, het_error *error) {
    for (int64_t u = 0; u < p->units; u++)
        if (p->unit[u] < 0 || p->unit[u] >= p->kinds)
            return HETI_S_BAD(error, "%s: unit %d of the profile is of kind %i of %d", call, u, p->unit[u], p->kinds);
    for (int64_t b = 0; b < p->blocks; b++)
        if (p->block[b].elements < 1 || p->block[b].elements > INT64_C(1) << 50 || p->block[b].first_use < 0 ||
            p->block[b].uses < 1 || p->block[b].uses > p->uses - p->block[b].first_use)
            return HETI_S_BAD(error, "%s: block %d of the profile has %d elements and %d uses from number %d of %d on",
                              call, b, p->block[b].elements, p->block[b].uses, p->block[b].first_use, p->uses);
    for (int64_t i = 0; i < p->uses; i++)
        if (p->use[i] < 0 || p->use[i] >= p->units)
            return HETI_S_BAD(error, "%s: use %d of the profile is by unit %d of %d", call, i, p->use[i], p->units);
    return HET_OK;
}

/* Shares in a rank's team: of all, of the groups before its own, and of that; whose members and
   heads; which member it is. */
typedef struct heti_s_shares { double all, before, group, heads; int64_t members, me; } heti_s_shares;

static heti_s_shares heti_s_shares_of(const het_team_member *team, int64_t count, int64_t rank) {
    heti_s_shares shares = { 0, 0, 0, 0, 0, 0 };
    while (team[shares.me].rank != rank) shares.me++;
    for (int64_t i = 0; i < count; i++) {
        shares.all += team[i].share;
        if (team[i].group < team[shares.me].group) shares.before += team[i].share;
        if (team[i].group != team[shares.me].group) continue;
        shares.group += team[i].share;
        shares.heads += heti_s_real(team[i].heads);
        shares.members++;
    }
    return shares;
}

/* A plan for these units, whose teams divide as many heads as their stages' attentions have. */
static het_result heti_s_check_plan(const het_profile *p, const het_plan *plan, const char *call, het_error *error) {
    int64_t count;
    HETI_T_TRY(het_plan_check(plan, call, error));
    if (plan->units != p->units)
        return HETI_S_BAD(error, "%s: a plan for %d units, a profile of %d", call, plan->units, p->units);
    HETI_T_TRY(heti_s_check_profile(p, call, error));
    for (int64_t g = 0; g < plan->stages; g++) {
        const het_stage *stage = &plan->stage[g];
        const het_team_member *team = het_plan_team(plan, stage->rank, &count);
        for (int64_t m = 0; m < count && count > 1; m++) {
            const double heads = heti_s_shares_of(team, count, team[m].rank).heads;
            for (int64_t u = stage->unit_begin; u < stage->unit_end && heads > 0; u++) {
                const het_unit_kind *k = heti_s_kind_at(p, u);
                if (k->attentions > 0 && (heads < k->heads || heads > k->heads))
                    return HETI_S_BAD(error, "%s: the team of rank %d: group %d has %e key/value heads, unit %d (%s) "
                                      "has %e", call, stage->rank, team[m].group, heads, u, k->name, k->heads);
            }
        }
    }
    return HET_OK;
}

HETRAIN_API void het_profile_free(het_profile *profile) {
    if (profile != NULL) heti_s_give_back(&profile->allocator, profile, profile->size);
}

/* Elements of a block that teams by columns divide, and that are expanded: those of its first
   unit's parameters with as many uses. */
static void heti_s_fill_elements(const het_description *d, int64_t b, het_block_profile *to) {
    const het_described_unit *unit = &d->unit[d->use[d->block[b].first_use]];
    for (int64_t i = 0; i < unit->info.parameters; i++) {
        const het_parameter_desc *p = &unit->info.parameter[i];
        het_parameter_info info;
        if (het_parameter_get_info(d->ctx, unit->parameter[i], &info) != HET_OK ||
            info.uses != d->block[b].uses || info.frozen != d->block[b].frozen)
            continue;
        if (info.type == HET_INT8) to->int8 += heti_s_real((info.count + 15) / 16 * 16);
        if (info.expanded) to->expanded += heti_s_real((info.count + 15) / 16 * 16);
        if (p->divide != 0) *(p->by_heads ? &to->by_heads : &to->by_share) += heti_s_real(info.count);
    }
}

/* `count`: of devices and links. half: as for heti_s_fill_kind. */
static het_result heti_s_fill_profile(const het_description *d, const het_description *half, const char *model,
                                      het_profile count, const het_allocator *allocator, het_profile **profile,
                                      het_error *error) {
    int64_t first[HETI_S_MOST_KINDS], u, k, b;
    for (u = 0; u < d->units; u++) {
        if (heti_s_kind_of(d, u, first, count.kinds) < count.kinds) continue;
        if (count.kinds == HETI_S_MOST_KINDS)
            return heti_t_fail(error, HET_ERR_LIMIT, "het_profile_describe: unit %d (%s) is of another kind than %d "
                               "before it: the most", u, d->unit[u].unit.iface->name, count.kinds);
        first[count.kinds++] = u;
    }
    count.units = d->units;
    count.blocks = d->blocks;
    count.uses = d->uses;
    heti_s_fill_totals(&count, d, model);
    HETI_T_TRY(heti_s_profile_new(count, allocator, "het_profile_describe", profile, error));
    het_profile *to = *profile;
    for (k = 0; k < to->kinds; k++) {
        heti_s_fill_kind(&to->kind[k], &d->unit[first[k]].info, &half->unit[first[k]].info);
        HETI_T_TRY(heti_s_fill_divided(&to->kind[k], &d->unit[first[k]]));
        heti_s_kind_name(d, first, k, &to->kind[k]);
    }
    for (u = 0; u < d->units; u++) to->unit[u] = HETI_T_CAST(int32_t, heti_s_kind_of(d, u, first, to->kinds));
    for (b = 0; b < d->blocks; b++) {
        to->block[b].elements = d->block[b].elements;
        to->block[b].uses = d->block[b].uses;
        to->block[b].first_use = d->block[b].first_use;
        to->block[b].frozen = d->block[b].frozen;
        if (d->block[b].weight_floats != d->block[b].elements)
            to->block[b].weights = 4 * heti_s_real(d->block[b].weight_floats);
        to->block[b].workspace = HETI_T_CAST(double, d->block[b].workspace);
        heti_s_fill_elements(d, b, &to->block[b]);
    }
    HETI_T_COPY(to->use, d->use, d->uses);
    heti_s_find_cuts(to);
    return HET_OK;
}

/* A profile with room for so many devices and links, and the description that it was made from,
   which is the caller's to free, whatever is returned. */
static het_result heti_s_describe(const het_desc *desc, const char *model, int64_t devices, int64_t links,
                                  const het_allocator *allocator, het_description **whole, het_profile **profile,
                                  het_error *error) {
    het_description *half = NULL;
    het_error why = { HET_OK, "" };
    HETI_S_CLEARED(het_profile, count);
    count.devices = devices;
    count.links = links;
    *whole = NULL;
    if (desc == NULL) return HETI_S_BAD(error, "het_profile_describe: desc is NULL");
    het_desc like = *desc;
    HETI_T_TRY(heti_t_choose(allocator, &like.host.allocator, error, "het_profile_describe"));
    het_result result = het_describe(&like, whole, &why);
    if (result == HET_OK) {
        like.limits.max_tokens = ((*whole)->desc.limits.max_tokens + 1) / 2;
        if (like.limits.max_sequences > like.limits.max_tokens) like.limits.max_sequences = like.limits.max_tokens;
        result = het_describe(&like, &half, &why);
    }
    if (result != HET_OK) result = heti_t_fail(error, result, "het_profile_describe: %s", why.text);
    else result = heti_s_fill_profile(*whole, half, model != NULL ? model : "", count, &like.host.allocator, profile,
                                      error);
    het_description_free(half);
    if (result == HET_OK) return HET_OK;
    het_profile_free(*profile);
    *profile = NULL;
    return result;
}

HETRAIN_API het_result het_profile_describe(const het_desc *desc, const char *model, const het_allocator *allocator,
                                            het_profile **profile, het_error *error) {
    het_description *whole;
    HETI_S_OUTPUT("het_profile_describe", profile);
    const het_result result = heti_s_describe(desc, model, 0, 0, allocator, &whole, profile, error);
    het_description_free(whole);
    return result;
}

/* ---- bytes of a plan ---- */

/* Rows of a member of a team at most: its own of a slice, its group's, those of a micro-batch to
   the end of its group (het_team_limits). heads: that it has of a group's, 0: all. */
typedef struct heti_s_rows {
    double own, group, kept, heads, groups, members, crossings;
    double columns;                   /* its share of them, in a team by columns; 0: in none */
} heti_s_rows;

static double heti_s_exchange_room(const het_unit_kind *k, const heti_s_rows *r) {
    const int whole = r->heads <= 0 || r->heads >= k->heads;
    const double part = whole ? 1 : r->heads / k->heads;
    if (r->columns > 0 && k->moves.divided >= k->attentions)
        return k->packed <= 0 ? 0 : (k->moves.gather_bytes[0] + k->moves.gather_bytes[1]) / 2 *
            heti_s_larger(r->own * (r->members - 1), r->group);
    if (k->attentions <= 0 || r->members < 2 || (r->groups >= r->members && k->packed <= 0)) return 0;
    return heti_s_larger(k->key * heti_s_larger(r->own * r->groups, r->kept * part),
                         whole ? 0 : k->query * heti_s_larger(r->own, r->group * part));
}

/* Whether unit u of the stage recomputes, by itself or with all of them. */
static int heti_s_is_again(const het_profile *profile, const het_stage *stage, int64_t u) {
    if (stage->recompute != HET_RECOMPUTE_UNIT) return stage->recompute == HET_RECOMPUTE_STAGE;
    return !heti_s_kind_at(profile, u)->loss &&
        (stage->recompute_units == 0 || u < stage->unit_begin + stage->recompute_units);
}

/* sliced: 0, 1, or 2 where carries are gathered from the slices. */
static het_stage_memory heti_s_stage_memory(const het_profile *profile, const het_stage *stage, int split, int sliced,
                                            const heti_s_rows *r, double tokens) {
    const double rows = r->own;
    const int whole = stage->recompute == HET_RECOMPUTE_STAGE, apart = whole && !split;
    double made = 0; /* by the units so far, for as long as the stage goes back */
    HETI_S_CLEARED(het_stage_memory, m);
    for (int64_t u = stage->unit_begin; u < stage->unit_end; u++) {
        const het_unit_kind *k = heti_s_kind_at(profile, u);
        const int again = heti_s_is_again(profile, stage, u), columns = r->columns > 0 && !k->loss;
        const het_kept *bytes = columns ? &k->columns : r->heads > 0 && k->attentions > 0 ? &k->divided : &k->keep;
        double keep[6], call, space = k->workspace;
        for (int how = 0; how < 6; how++) {
            const double *of = (*bytes)[how], own = how >= HET_KEEP_MICRO_BATCH ? r->kept : rows,
                         team = how >= HET_KEEP_MICRO_BATCH ? r->kept : r->group;
            keep[how] = team * (of[1] + r->heads * of[2] + r->columns * of[3]) + own * of[0];
        }
        call = keep[HET_KEEP_CALL];
        if (columns) space = heti_s_larger(0, space + 2 * (1 - r->columns) * (k->half_workspace - space));
        *(apart ? &made : &m.slot) += k->loss ? 0 : rows * k->output; /* a cut passes its input on */
        if (u == stage->unit_begin) m.slot += rows * k->input;
        *(whole ? &made : again ? &call : &m.slot) += keep[HET_KEEP_INPUT];
        *(apart ? &made : again && !split ? &call : &m.slot) += keep[HET_KEEP_WEIGHT];
        *(split ? &m.slot : &call) += keep[HET_KEEP_GRADIENT];
        if (sliced == 2) m.slot += rows * k->keep[HET_KEEP_MICRO_BATCH][0]; /* of no team */
        *(sliced == 2 ? &call : sliced ? &m.carry : apart && r->members < 2 ? &m.once : &m.slot) +=
            keep[HET_KEEP_MICRO_BATCH];
        *(sliced ? &m.chain : split ? &m.slot : &call) += keep[HET_KEEP_MICRO_BATCH_GRADIENT];
        m.scratch = heti_s_larger(m.scratch, made + call + space * tokens + k->workspace_base);
        m.stream = heti_s_larger(m.stream, rows * heti_s_larger(k->input, k->output));
        if (u == stage->unit_begin) m.message = k->input * rows;
        if (u + 1 == stage->unit_end) m.message = heti_s_larger(m.message, k->output * rows);
        m.exchange = heti_s_larger(m.exchange, heti_s_exchange_room(k, r));
    }
    return m;
}

static het_stage_memory heti_s_alone_memory(const het_profile *profile, const het_stage *stage, int split, int sliced,
                                            double rows, double tokens) {
    const heti_s_rows own = { rows, rows, sliced ? tokens : rows, 0, 1, 1, 1, 0 };
    return heti_s_stage_memory(profile, stage, split, sliced ? 2 : 0, &own, tokens);
}

HETRAIN_API het_stage_memory het_profile_stage(const het_profile *profile, int64_t unit_begin, int64_t unit_end,
                                               int recompute, int split, int sliced, double rows, double tokens) {
    const het_stage stage = { 0, 0, unit_begin, unit_end, HETI_T_CAST(int32_t, recompute), 0, 0, 0, 0 };
    return heti_s_alone_memory(profile, &stage, split, sliced, rows, tokens);
}

/* A rank's sums on their way. */
typedef struct heti_s_held {
    het_stage_memory most;            /* of its stages */
    double stored;                    /* a slot of those that may put it on the host */
    double lean;                      /* a slot of slices that recompute where others keep all */
    double elements, trained, state;  /* whose weights it holds, whose sums, whose state */
    double weights, expanded;         /* bytes of these weights, of the floats that a call makes of int8 */
    double kept;                      /* of several updates: elements whose versions it keeps */
    double pieces;                    /* bytes on the host for what it exchanges piece by piece */
    /* weights that come for a call, and sums that leave behind it: bytes of the largest unit;
       that it has to fetch, or does not own, of so many; the slowest link that they take, 1 over
       its bandwidth */
    double unit[2], away[2], of[2];
    het_link_cost slowest[2];
    int64_t stages, leader;
    int64_t block;                    /* the last one that counted it among its holders, + 1 */
    heti_s_rows rows;
} heti_s_held;

static void heti_s_most(double *most, double value) { if (value > *most) *most = value; }

/* The smallest group that has both ranks; -1: none. Parents come before what is in them. */
static int64_t heti_s_joined_group(const het_cluster *c, int64_t x, int64_t y) {
    while (x != y) {
        if (x > y) x = c->group[x].parent;
        else y = c->group[y].parent;
    }
    return x;
}

static int64_t heti_s_common_group(const het_cluster *c, int64_t a, int64_t b) {
    return c->groups > 0 ? heti_s_joined_group(c, c->device[a].group, c->device[b].group) : -1;
}

static het_link_cost heti_s_group_link(const het_group *g) {
    const het_link_cost link = { g->latency, g->bandwidth };
    return link;
}

/* What the groups say of it. */
static het_link_cost heti_s_tree_link(const het_cluster *c, int64_t a, int64_t b) {
    const int64_t joined = heti_s_common_group(c, a, b);
    const het_link_cost none = { 0, 0 };
    return joined >= 0 ? heti_s_group_link(&c->group[joined]) : none;
}

static het_link_cost heti_s_cluster_link(const het_cluster *c, int64_t a, int64_t b) {
    return c->link != NULL ? c->link[a * c->ranks + b] : heti_s_tree_link(c, a, b);
}

/* Of a profile without a cluster. */
static het_link_cost heti_s_first_link(const het_profile *p) {
    het_link_cost link = { 0, 0 };
    if (p->links > 0) link.latency = p->link[0].latency, link.bandwidth = p->link[0].bandwidth;
    return link;
}

/* The slowest of links has as `bandwidth` 1 over it. */
static void heti_s_slow_link(het_link_cost *slowest, het_link_cost link) {
    heti_s_most(&slowest->latency, link.latency);
    if (link.bandwidth > 0) heti_s_most(&slowest->bandwidth, 1 / link.bandwidth);
}

static double heti_s_link_seconds(het_link_cost link, double bytes) {
    return link.latency + (link.bandwidth > 0 ? bytes / link.bandwidth : 0);
}

/* What is worked on beside: a block's holders; of each unit, bytes of blocks whose weights are
   fetched, whose sums leave at once, and that a call expands; [ranks][words] bits: who exchanges
   pieces with whom, and of one block. */
typedef struct heti_s_holding {
    const het_profile *profile;
    const het_plan *plan;
    const het_cluster *cluster;       /* NULL: links are all the first of the profile, or take nothing */
    heti_s_held *held;                /* [ranks] */
    int64_t *rank, words;             /* [ranks] */
    int64_t *first, peers;            /* [ranks + 1] of a block's clusters; the most of a rank, with itself */
    double *unit[3];                  /* [units] */
    uint64_t *peer, *both;
    double largest, owned;            /* bytes of the largest block that weights are sent of, elements of what
                                         anybody owns of a trained block at most */
    double pieces[2];                 /* of all blocks, of sums and of weights, where divided is 0 */
    int64_t part;                     /* elements of them that a holder owns in the mean */
    int near, boxes, divided;         /* there are several near sets that hold all weights; a team by columns;
                                         not all holders have all of what they hold */
    heti_t_arena arena;               /* of the arrays */
} heti_s_holding;

static int heti_s_keeps(const het_plan *plan, int64_t rank) { return plan->keeper != NULL && plan->keeper[rank] != 0; }

/* Elements of a block's weights that holder i has, who owns `own` of them. */
static double heti_s_held_part(const heti_s_holding *h, int64_t holders, int64_t i, double elements, double own) {
    const het_plan *plan = h->plan;
    double all = 0, count = 0;
    if (heti_s_keeps(plan, h->rank[i])) return own;
    if (plan->shard != HET_SHARD_WEIGHTS || holders < 2) return elements;
    for (int64_t k = 0; k < holders && h->near; k++) {
        if (plan->near[h->rank[k]] != plan->near[h->rank[i]] || heti_s_keeps(plan, h->rank[k])) continue;
        all += plan->state_share[h->rank[k]];
        count += 1;
    }
    return own + (count > 0 ? elements * (all > 0 ? plan->state_share[h->rank[i]] / all : 1 / count) : 0);
}

/* Finds a block's holders, the ranks with a stage that has one of its units, and keepers; how many.
   *share: their shares of the state. */
static int64_t heti_s_find_holders(const heti_s_holding *h, int64_t b, double *share) {
    const het_plan *plan = h->plan;
    const het_block_profile *block = &h->profile->block[b];
    int64_t k, i, holders = 0, count;
    for (int64_t g = 0; g < plan->stages; g++) {
        const het_stage *stage = &plan->stage[g];
        const int64_t *use = h->profile->use + block->first_use;
        const het_team_member *team = het_plan_team(plan, stage->rank, &count);
        if (h->held[stage->rank].block == b + 1) continue;
        for (k = 0; k < block->uses && (use[k] < stage->unit_begin || use[k] >= stage->unit_end); k++) {}
        if (k == block->uses) continue;
        h->held[stage->rank].block = b + 1;
        for (i = 0; i < count; i++) h->rank[holders++] = team != NULL ? team[i].rank : stage->rank;
    }
    for (i = 0; i < plan->ranks && !block->frozen; i++)
        if (heti_s_keeps(plan, i)) h->rank[holders++] = i;
    for (i = 0, *share = 0; i < holders; i++) *share += plan->state_share[h->rank[i]];
    return holders;
}

/* The link from holder i to the next one. near: only where both are in one near set. */
static void heti_s_hold_link(const heti_s_holding *h, int64_t holders, int64_t i, int near, het_link_cost *slowest) {
    const int64_t a = h->rank[i], b = h->rank[(i + 1) % holders];
    if (near && h->plan->near[a] != h->plan->near[b]) return;
    heti_s_slow_link(slowest, h->cluster != NULL ? heti_s_cluster_link(h->cluster, a, b)
                                                 : heti_s_first_link(h->profile));
}

/* Elements of a block that a rank uses beside what it owns, in a team by columns or as a version;
   negative: it uses what it holds. */
static double heti_s_box(const heti_s_holding *h, int64_t rank, const het_block_profile *block) {
    int64_t count;
    const het_team_member *team = het_plan_team(h->plan, rank, &count);
    if (h->plan->updates > 1) return block->frozen || heti_s_keeps(h->plan, rank) ? -1 : heti_s_real(block->elements);
    if (team == NULL || team->columns == 0 || !(block->by_heads + block->by_share > 0)) return -1;
    const heti_s_shares of = heti_s_shares_of(team, count, rank);
    return heti_s_real(block->elements) - block->by_heads * (1 - heti_s_real(team[of.me].heads) / of.heads) -
           block->by_share * (1 - team[of.me].share / of.all);
}

static double heti_s_weights(const het_profile *p, const het_block_profile *block) {
    return block->weights > 0 ? block->weights : heti_s_real(block->elements) * p->weight_bytes;
}

/* hetrain.h's heti_most_piece, the second: four of them, the third of boxes; ranks of which all
   pairs are looked at, of more only where a plan divides what they hold. */
enum { HETI_S_PIECE = 1 << 22, HETI_S_BOX_PIECE = 1 << 16, HETI_S_FEW = 4096 };

static double heti_s_pieces(double elements) {
    return heti_s_real((heti_s_whole(elements) + HETRAIN_FLOW_WINDOW / 4 - 1) / (HETRAIN_FLOW_WINDOW / 4));
}

/* h->first of many holders in one process (hetrain.h, heti_find_clusters): how many. */
static int64_t heti_s_cut_clusters(heti_s_holding *h, int64_t holders) {
    int64_t clusters = holders;
    while ((clusters - 1) * (clusters - 1) >= holders) clusters--;
    for (int64_t c = 0; c <= clusters; c++) h->first[c] = c * holders / clusters;
    return clusters;
}

static void heti_s_meet(heti_s_holding *h, int64_t i, int64_t k) {
    if (h->words > 0) h->peer[h->rank[i] * h->words + h->rank[k] / 64] |= HETI_T_CAST(uint64_t, 1) << h->rank[k] % 64;
}

/* With whom the holders of cluster c exchange sums: all of it, themselves too, and those of others
   that collect for them. */
static void heti_s_meet_cluster(heti_s_holding *h, int64_t clusters, int64_t c) {
    const int64_t *first = h->first, n = first[c + 1] - first[c];
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < n; k++) heti_s_meet(h, first[c] + i, first[c] + k);
        for (int64_t d = 0; d < clusters; d++) {
            const int64_t via = first[d] + HETRAIN_COLLECTOR(first[d + 1] - first[d], d, i, n, c);
            heti_s_meet(h, first[c] + i, via);
            heti_s_meet(h, via, first[c] + i);
        }
    }
}

/* Adds up what a block's holders have of it. */
static void heti_s_hold_block(heti_s_holding *h, int64_t b) {
    const het_plan *plan = h->plan;
    const het_block_profile *block = &h->profile->block[b];
    const double elements = heti_s_real(block->elements), bytes = heti_s_weights(h->profile, block);
    double share, held;
    const int64_t holders = heti_s_find_holders(h, b, &share);
    const int sums = plan->shard >= HET_SHARD_GRADIENTS && holders > 1 && !block->frozen,
              weights = plan->shard == HET_SHARD_WEIGHTS && holders > 1, divided[2] = { weights, sums };
    het_link_cost slowest[2] = { { 0, 0 }, { 0, 0 } };
    double owned = 0;
    const double windows = plan->updates > 1 && holders > 1 && plan->staleness > 1 /* het_plan.staleness */
                               ? heti_s_real(plan->staleness < plan->updates ? plan->staleness : plan->updates) : 1;
    int direct = weights || (holders > 1 && !block->frozen), apart = weights; /* as heti_is_apart */
    for (int64_t i = 0; i < 2 * holders && (sums || weights); i++)
        heti_s_hold_link(h, holders, i / 2, h->near && i % 2 == 0, &slowest[i % 2]);
    HETI_T_CLEAR(h->both, h->words);
    for (int64_t i = 0; i < holders; i++) {
        heti_s_held *to = &h->held[h->rank[i]];
        const int keeps = heti_s_keeps(plan, h->rank[i]);
        const double own = share > 0 ? elements * plan->state_share[h->rank[i]] / share
                                     : elements / heti_s_real(holders);
        const double box = heti_s_box(h, h->rank[i], block);
        if (h->words > 0) h->both[h->rank[i] / 64] |= HETI_T_CAST(uint64_t, 1) << h->rank[i] % 64;
        direct |= !block->frozen && (keeps || box >= 0);
        apart |= keeps || box >= 0;
        for (int k = 0; k < 2; k++) {
            heti_s_most(&to->slowest[k].latency, slowest[k].latency);
            heti_s_most(&to->slowest[k].bandwidth, slowest[k].bandwidth);
            if (!divided[k]) continue;
            to->of[k] += elements;
            to->away[k] += elements - (k == 0 ? heti_s_held_part(h, holders, i, elements, h->near ? 0 : own) : own);
        }
        held = box >= 0 ? own + box : heti_s_held_part(h, holders, i, elements, own);
        to->elements += held;
        to->weights += held / elements * bytes;
        if (block->frozen) continue;
        heti_s_most(&to->most.scratch, block->workspace);
        heti_s_most(&owned, own);
        if (plan->updates > 1 && box >= 0) to->kept += box;
        to->trained += box >= 0 ? windows * own + (sums || (plan->updates > 1 && holders == 1) ? 0 : box) :
            sums || keeps ? windows * own : elements;
        to->state += own;
    }
    if (direct) heti_s_most(&h->largest, bytes);
    const int64_t clusters = direct && !apart && holders > HETRAIN_DIRECT ? heti_s_cut_clusters(h, holders) : 0;
    if (clusters > 0) owned *= holders % clusters > 0 ? 2 : 1; /* as heti_reach */
    if (direct) h->peers = heti_s_max(h->peers, clusters > 0 ? (holders - 1) / clusters + clusters : holders);
    if (sums || direct) heti_s_most(&h->owned, owned);
    h->pieces[0] += direct ? heti_s_pieces(owned) * heti_s_real(clusters > 0 ? clusters : 1) : 0;
    h->pieces[1] += direct ? heti_s_pieces(bytes / 4) : 0;
    h->part += direct && !block->frozen ? block->elements / holders : 0;
    for (int64_t c = 0; c < clusters && !sums; c++) heti_s_meet_cluster(h, clusters, c);
    for (int64_t i = 0; i < holders && (sums || (direct && clusters == 0)); i++)
        for (int64_t w = 0; w < h->words; w++) h->peer[h->rank[i] * h->words + w] |= h->both[w];
    for (int64_t i = block->first_use; i < block->first_use + block->uses; i++)
        for (int k = 0; k < 2; k++)
            if (divided[k]) h->unit[k][h->profile->use[i]] += k == 0 ? bytes : elements * h->profile->gradient_bytes;
}

/* What a rank's stages need at most. Where I and W come apart in some of them, each counts as one
   of both kinds; so does one of which some slices recompute. */
static void heti_s_stage_most(const het_profile *profile, const het_plan *plan, const het_stage *stage,
                              const het_needs *needs, double tokens, heti_s_held *held) {
    const int mixed = stage->keep != 0 && stage->recompute != 0,
              gathers = held->rows.members < 2 && stage->store == 0 && !mixed &&
                        het_plan_backward(plan, stage - plan->stage) &&
                        heti_s_real(needs->slots) * held->rows.own < heti_s_real(needs->batch_slots) * tokens;
    het_stage_memory *most = &held->most;
    for (int kind = 0; kind < 4; kind++) {
        const int lean = kind % 2, split = kind / 2;
        het_stage own = *stage;
        het_stage_memory m;
        if (lean > mixed || needs->split == (split ? 0 : 2)) continue;
        if (lean < mixed) own.recompute = HET_RECOMPUTE_NONE;
        m = heti_s_stage_memory(profile, &own, split, plan->slices > 1 ? 1 + gathers : 0, &held->rows, tokens);
        heti_s_most(lean ? &held->lean : &most->slot, m.slot);
        if (stage->store > 0) heti_s_most(&held->stored, m.slot);
        heti_s_most(&most->carry, m.carry);
        heti_s_most(&most->chain, m.chain);
        most->once += m.once;
        heti_s_most(&most->scratch, m.scratch);
        heti_s_most(&most->stream, m.stream);
        heti_s_most(&most->message, m.message);
        heti_s_most(&most->exchange, m.exchange);
    }
}

/* How many rows a rank can have, and whose stages it runs. */
static void heti_s_find_rows(const het_plan *plan, const het_shape *shape, int64_t rank, heti_s_held *held) {
    int64_t count;
    const het_team_member *team = het_plan_team(plan, rank, &count);
    het_team_limits limits;
    const int64_t granule = shape->granule > 0 ? shape->granule : heti_s_min(shape->tokens, 512);
    het_plan_rows(plan, rank, shape->tokens, shape->sequences, granule, &limits);
    const double columns = limits.plan == NULL ? 0 : team[limits.member].share /
                           heti_s_shares_of(team, count, rank).all;
    const heti_s_rows rows = { heti_s_real(limits.rows), heti_s_real(limits.group_rows), heti_s_real(limits.kept_rows),
                               heti_s_real(limits.heads), heti_s_real(limits.groups), heti_s_real(limits.members), 1,
                               columns };
    held->leader = team != NULL ? team->leader : rank;
    held->rows = rows;
}

static void heti_s_holding_cut(void *self, heti_t_arena *arena) {
    heti_s_holding *h = HETI_T_CAST(heti_s_holding *, self);
    h->held = HETI_S_ROOM(heti_s_held, h->plan->ranks);
    h->rank = HETI_S_ROOM(int64_t, h->plan->ranks);
    h->first = HETI_S_ROOM(int64_t, h->plan->ranks + 1);
    HETI_S_ROOMS(double, h->plan->units, &h->unit[0], &h->unit[1], &h->unit[2]);
    h->peer = HETI_S_ROOM(uint64_t, h->plan->ranks * h->words);
    h->both = HETI_S_ROOM(uint64_t, h->words);
}

/* Elements of pieces of so many that have room at once (hetrain.h, heti_flow_slots). */
static double heti_s_under_way(const heti_s_holding *h, int weights, double piece) {
    const int64_t quarter = h->part / HETRAIN_FLOW_WINDOW,
                  room = piece > 0 ? heti_s_whole(heti_s_real(HETRAIN_FLOW_WINDOW) / piece) : 0;
    if (h->divided) return piece;
    return piece * heti_s_smaller(heti_s_smaller(16, h->pieces[weights]), heti_s_real(heti_s_max(quarter, room)));
}

/* The most of a unit, and the room of pieces: what comes of sums or, where a device's memory is not
   the host's, both ways of all three kinds. */
static void heti_s_hold_pieces(const heti_s_holding *h) {
    const het_plan *plan = h->plan;
    const double most = h->boxes ? HETI_S_BOX_PIECE : h->divided ? HETI_S_PIECE : HETRAIN_FLOW_WINDOW / 4;
    const double sums = heti_s_smaller(h->owned, most), weights = heti_s_smaller(h->largest / 4, most);
    double piece = 8 * heti_s_under_way(h, 0, sums);
    int64_t i;
    for (i = 0; i < h->profile->kinds && !(h->profile->kind[i].packed > 0); i++) {}
    if (h->boxes || i < h->profile->kinds)
        piece = 2 * piece + (plan->shard == HET_SHARD_WEIGHTS ? 4 : 2) * 4 * heti_s_under_way(h, 1, weights);
    for (int64_t r = 0; r < plan->ranks; r++) {
        const uint64_t *peer = &h->peer[r * h->words];
        int64_t peers = h->words > 0 ? 0 : h->peers; /* with itself */
        for (int64_t w = 0; w < h->words; w++)
            for (uint64_t left = peer[w]; left != 0; left &= left - 1) peers++;
        if (peers > 0) h->held[r].pieces = heti_s_real(peers - 1) * piece;
    }
    for (int64_t g = 0; g < plan->stages; g++)
        for (int64_t u = plan->stage[g].unit_begin; u < plan->stage[g].unit_end; u++)
            for (int k = 0; k < 2; k++) heti_s_most(&h->held[plan->stage[g].rank].unit[k], h->unit[k][u]);
}

/* The most that a call of a rank's stage expands. */
static void heti_s_hold_expanded(heti_s_holding *h, const het_stage *stage, int64_t rank) {
    HETI_T_CLEAR(h->unit[2], h->plan->units);
    for (const het_block_profile *b = h->profile->block; b < h->profile->block + h->profile->blocks; b++) {
        const double box = b->int8 > 0 ? heti_s_box(h, rank, b) : 0;
        for (int64_t i = b->first_use; i < b->first_use + b->uses && b->int8 > 0; i++)
            h->unit[2][h->profile->use[i]] += 4 * (box >= 0 ? b->int8 * box / heti_s_real(b->elements) : b->expanded);
    }
    for (int64_t u = stage->unit_begin; u < stage->unit_end; u++) heti_s_most(&h->held[rank].expanded, h->unit[2][u]);
}

/* What all ranks hold, as h->held: in h->arena. needs NULL: nothing is split. */
static het_result heti_s_hold(heti_s_holding *h, const het_needs *needs, const het_shape *shape,
                              const het_allocator *allocator, het_error *error) {
    const het_plan *plan = h->plan;
    const double tokens = heti_s_real(shape->tokens);
    int64_t count, other;
    HETI_S_CLEARED(het_needs, none);
    for (int64_t r = 0; r < plan->ranks; r++) {
        const het_team_member *team = het_plan_team(plan, r, &count);
        if (plan->updates > 1 || (team != NULL && team->columns != 0)) h->boxes = 1;
        h->divided |= plan->shard >= HET_SHARD_GRADIENTS || heti_s_keeps(plan, r) || h->boxes;
        if (h->divided || plan->ranks <= HETI_S_FEW) h->words = (plan->ranks + 63) / 64;
        if (plan->near != NULL && plan->near[r] != plan->near[0]) h->near = 1;
    }
    HETI_T_TRY(heti_t_arrays(&h->arena, 0, heti_s_holding_cut, h, allocator, "bytes of a plan", error));
    for (int64_t r = 0; r < plan->ranks; r++) heti_s_find_rows(plan, shape, r, &h->held[r]);
    for (int64_t g = 0; g < plan->stages; g++) {
        const het_stage *stage = &plan->stage[g];
        const het_team_member *team = het_plan_team(plan, stage->rank, &count);
        for (int64_t r = 0; r < count; r++) {
            heti_s_held *to = &h->held[team != NULL ? team[r].rank : stage->rank];
            heti_s_stage_most(h->profile, plan, stage, needs != NULL ? &needs[stage->rank] : &none, tokens, to);
            heti_s_hold_expanded(h, stage, team != NULL ? team[r].rank : stage->rank);
            to->stages++;
            for (int64_t b = -1; b <= 1; b += 2) {
                if (g + b < 0 || g + b >= plan->stages || stage[b].pipeline != stage->pipeline) continue;
                (void)het_plan_team(plan, stage[b].rank, &other);
                heti_s_most(&to->rows.crossings, heti_s_real(other));
            }
        }
    }
    for (int64_t b = 0; b < h->profile->blocks; b++) heti_s_hold_block(h, b);
    heti_s_hold_pieces(h);
    return HET_OK;
}

/* What limits count: the device's block and message buffers. */
static double heti_s_limited(const het_memory *m) {
    return HETI_T_CAST(double, m->device) + HETI_T_CAST(double, m->communication);
}

static size_t heti_s_bytes(double bytes) { return bytes < 9e18 ? HETI_T_CAST(size_t, bytes + 0.5) : SIZE_MAX; }

/* Weights and state as files have them: of a model with frozen weights its factors alone. */
static size_t heti_s_saved(const het_profile *p) {
    double all = 0, trained = 0;
    for (int64_t b = 0; b < p->blocks; b++) {
        all += heti_s_real(p->block[b].elements);
        if (!p->block[b].frozen) trained += heti_s_real(p->block[b].elements);
    }
    return heti_s_bytes((trained < all ? trained : all) * 4 + trained * p->state_bytes);
}

enum { HETI_S_ENVELOPE = 64 }; /* bytes before a message's rows */

static void heti_s_held_memory(const het_profile *p, int64_t ranks, const heti_s_held *held, const het_needs *needs,
                               const het_shape *shape, het_memory *memory) {
    double beside = 0;
    for (int64_t r = 0; r < p->devices; r++) heti_s_most(&beside, p->device[r].beside);
    for (int64_t r = 0; r < ranks; r++) {
        const heti_s_held *h = &held[r];
        const het_stage_memory *m = &h->most;
        const het_needs *of = &needs[h->leader];
        const double slots = heti_s_larger(heti_s_real(of->slots) + (of->places > 0 ? beside : 0),
                                           heti_s_real(h->stages));
        const double lean = heti_s_real(of->lean) + (of->lean > 0 && of->places > 0 ? beside : 0);
        const double carries = heti_s_real(heti_s_max(of->batch_slots, h->stages)),
                     chains = heti_s_real(heti_s_max(of->chains, h->stages));
        const double own = p->token_bytes * heti_s_real(shape->tokens) + p->sequence_bytes *
                     heti_s_real(shape->sequences);
        const double messages = heti_s_real(of->messages + 2 * (ranks > 1)) *
                     (m->message + h->rows.crossings * heti_s_real(HETI_S_ENVELOPE));
        const heti_s_held *stages = &held[h->leader];
        het_memory *to = &memory[r];
        memset(to, 0, sizeof *to);
        to->weights = heti_s_bytes(h->weights + 2 * stages->unit[0] + h->expanded + p->rank_weights +
                                   h->elements * p->rounded_bytes +
                                   h->kept * p->weight_bytes * (heti_s_real(of->versions) - 1 + of->predicts));
        to->gradients = heti_s_bytes(h->trained * p->gradient_bytes + 2 * stages->unit[1] + p->rank_gradients);
        to->optimizer = heti_s_bytes(h->state * p->state_bytes);
        to->activations = heti_s_bytes(slots * m->slot + lean * h->lean + carries * (m->carry + own + 128) +
                                       chains * m->chain + m->once + 3 * m->stream);
        to->workspace = heti_s_bytes(m->scratch + p->rank_workspace);
        to->communication = heti_s_bytes(messages + 2 * m->exchange + h->pieces);
        to->stored = heti_s_bytes(heti_s_real(of->places) * h->stored);
        to->host = to->communication + to->stored;
        to->device = to->weights + to->gradients + to->optimizer + to->activations + to->workspace;
        to->parameters = heti_s_whole(h->elements);
    }
    memory[0].saving = heti_s_saved(p);
}

HETRAIN_API het_result het_profile_memory(const het_profile *profile, const het_plan *plan, const het_needs *needs,
                                          const het_shape *shape, het_memory *memory, het_error *error) {
    if (profile == NULL || plan == NULL || needs == NULL || shape == NULL || memory == NULL)
        return HETI_S_BAD(error, "het_profile_memory: a pointer is NULL");
    HETI_T_TRY(heti_s_check_plan(profile, plan, "het_profile_memory", error));
    if (shape->tokens < 1 || shape->sequences < 0 || shape->granule < 0)
        return HETI_S_BAD(error, "het_profile_memory: %d tokens, %d sequences, granules of %d", shape->tokens,
                          shape->sequences, shape->granule);
    HETI_S_CLEARED(heti_s_holding, h);
    h.profile = profile;
    h.plan = plan;
    HETI_T_TRY(heti_s_hold(&h, needs, shape, &profile->allocator, error));
    heti_s_held_memory(profile, plan->ranks, h.held, needs, shape, memory);
    heti_t_arrays_free(&h.arena, &profile->allocator);
    return HET_OK;
}

/* ---- costs of a plan ---- */

typedef struct heti_s_costing {
    het_plan_costs to;
    het_rank_cost *rank;              /* [ranks] */
    het_block_cost *block;            /* [blocks] */
    int64_t *rank_group;              /* [ranks] */
    heti_s_holding held;
    int beside;                       /* times measured with all ranks at work are used */
} heti_s_costing;

static void heti_s_costs_cut(void *self, heti_t_arena *arena) {
    heti_s_costing *c = HETI_T_CAST(heti_s_costing *, self);
    HETI_S_ROOMS(het_stage_cost, c->to.curves, &c->to.stage, &c->to.alone, &c->to.together);
    c->rank = HETI_S_ROOM(het_rank_cost, c->held.plan->ranks);
    c->block = HETI_S_ROOM(het_block_cost, c->held.profile->blocks);
    c->rank_group = HETI_S_ROOM(int64_t, c->held.plan->ranks);
}

/* Which device of the profile a rank is, and how much slower; -1: there is none of that name. */
static int64_t heti_s_rank_device(const heti_s_costing *c, int64_t rank, double *slowness) {
    const het_profile *p = c->held.profile;
    const het_cluster_device *device = c->held.cluster != NULL ? &c->held.cluster->device[rank] : NULL;
    *slowness = device != NULL && device->speed > 0 ? 1 / device->speed : 1;
    if (device == NULL) return p->devices > 0 ? 0 : -1;
    const int64_t i = heti_s_named(p->device, sizeof *p->device, p->devices, device->profile);
    return i < p->devices ? i : -1;
}

/* Adds what a unit moves in a team by columns. */
static void heti_s_add_moves(het_column_moves *to, const het_column_moves *from, const het_unit_time *time,
                             const het_device_profile *device, double slowness) {
    het_column_moves own = *from;
    for (int way = 0; way < 2; way++) {
        own.linked[way] = own.linked[way] * (way == 0 ? time->forward.token : time->input.token) * slowness;
        own.linked_base[way] = own.linked_base[way] * device->product_element * slowness;
    }
    heti_s_add_numbers(to, &own, sizeof own, 1);
    to->kept_byte = device->message_byte * slowness;
}

/* Whether a stage recomputes as a whole: units without a backward pass too, if there are others. */
static int heti_s_is_whole(const het_profile *profile, const het_stage *stage) {
    int64_t u = stage->unit_begin;
    while (u < stage->unit_end && heti_s_is_idle(profile, u)) u++;
    return stage->recompute == HET_RECOMPUTE_STAGE && u < stage->unit_end;
}

/* Adds a stage's units, `slowness` times slower than these times. */
static void heti_s_add_units(const het_profile *profile, const het_stage *stage, const het_unit_time *times,
                             const het_device_profile *device, double slowness, het_stage_cost *to) {
    const int whole = heti_s_is_whole(profile, stage), mixed = stage->keep != 0;
    for (int64_t u = stage->unit_begin; u < stage->unit_end; u++) {
        const int idle = heti_s_is_idle(profile, u);
        const het_unit_time *time = &times[profile->unit[u]];
        const het_unit_kind *kind = heti_s_kind_at(profile, u);
        for (int what = 0; what < (idle ? HETI_S_FORWARD + 1 : HETI_S_AGAIN); what++)
            heti_s_add_curve(heti_s_curve_of(to, what), heti_s_curve(time, what), slowness);
        to->keep_gradient += kind->keep[HET_KEEP_GRADIENT][0];
        to->attentions += kind->attentions;
        to->query += kind->query;
        to->key += kind->key;
        heti_s_add_moves(&to->columns, &kind->moves, time, device, slowness);
        if (!heti_s_is_again(profile, stage, u) || kind->loss || (idle && !whole)) continue;
        heti_s_add_curve(mixed ? &to->again : &to->backward, time->recompute, slowness);
        if (!mixed) heti_s_add_curve(&to->input, time->recompute, slowness);
    }
}

/* Backward time of units [0, end), as het_stage_cost.chain. */
static double heti_s_chain(const het_profile *p, int64_t end) {
    double sum = 0;
    for (int64_t u = 0; u < end && p->devices > 0; u++) {
        const het_unit_time *t = &p->device[0].alone[p->unit[u]];
        if (heti_s_is_idle(p, u)) continue;
        sum += t->backward.token > 0 ? t->backward.token : t->input.token + t->weight.token;
    }
    return sum;
}

/* A stage's units, of these times, on a device that is `slowness` times slower than its profile. */
static void heti_s_stage_cost(const heti_s_costing *c, int64_t g, const het_device_profile *device,
                              const het_unit_time *times, double slowness, het_stage_cost *to) {
    const het_profile *profile = c->held.profile;
    const het_stage *stage = &c->held.plan->stage[g];
    const double copies = heti_s_messages(profile, stage->unit_begin, stage->unit_end) * device->message_byte *
                          slowness;
    het_stage kept = *stage;
    to->chain[0] = heti_s_chain(profile, stage->unit_begin);
    to->chain[1] = heti_s_chain(profile, stage->unit_end);
    to->forward.base = to->backward.base = to->input.base = to->weight.base = device->action * slowness;
    to->forward.token = to->backward.token = to->input.token = copies;
    heti_s_add_units(profile, stage, times, device, slowness, to);
    to->bytes = heti_s_kind_at(profile, stage->unit_end - 1)->output;
    if (stage->keep != 0) kept.recompute = HET_RECOMPUTE_NONE;
    to->keep_weight = heti_s_alone_memory(profile, &kept, 0, 0, 1, 1).slot;
    to->keep_lean = heti_s_alone_memory(profile, stage, 0, 0, 1, 1).slot;
}

static void heti_s_rank_cost(const heti_s_costing *c, int64_t r, const heti_s_held *held,
                             const het_device_profile *device, double slowness) {
    het_rank_cost *to = &c->rank[r];
    const het_cluster *cluster = c->held.cluster;
    to->max_tokens = heti_s_limit(device->max_tokens, cluster != NULL ? cluster->device[r].max_tokens : 0);
    if (held->stages == 0 && !heti_s_keeps(c->held.plan, r)) return; /* it is idle */
    to->begin = (device->action + device->begin_element * held->trained) * slowness;
    to->ring_byte = device->ring_byte * slowness;
    to->verdict = device->verdict_base + device->verdict_element * held->state * slowness;
    to->step_base = device->action * slowness;
    to->step = device->step_element * slowness;
    to->host_byte = device->message_byte * slowness;
    to->beside = device->beside > 0;
}

/* Bytes of a unit's weights (k = 0) that come to a rank, or of its sums (1) that leave it. */
static double heti_s_flow_bytes(const heti_s_costing *c, const het_stage *stage, int64_t rank, int64_t u, int k) {
    const heti_s_held *held = &c->held.held[rank];
    const int away = u >= stage->unit_begin && u < stage->unit_end && held->of[k] > 0;
    return away ? held->away[k] / held->of[k] * c->held.unit[k][u] : 0;
}

static double heti_s_flow_seconds(const heti_s_costing *c, const het_stage *stage, int64_t rank, int64_t u, int k) {
    const heti_s_held *held = &c->held.held[rank];
    const double bytes = heti_s_flow_bytes(c, stage, rank, u, k);
    return bytes > 0 ? held->slowest[k].latency + bytes * held->slowest[k].bandwidth : 0;
}

/* What comes to a rank beside a call of stage g, every unit's weights, and what leaves, its sums
   (hetrain.h, >>flow). Copying and adding them takes the rank's own time. first: of the first unit,
   whose weights nothing hides in the rank's first call, and of two units' sums, which nothing hides
   behind the last one; added. */
static void heti_s_flow_cost(const heti_s_costing *c, int64_t g, int64_t rank, const het_device_profile *device,
                             double slowness, het_stage_cost *to, double first[2]) {
    const het_stage *stage = &c->held.plan->stage[g];
    const double own[2] = { device->message_byte * slowness, 2 * device->ring_byte * slowness };
    const int whole = heti_s_is_whole(c->held.profile, stage);
    for (int64_t u = stage->unit_begin; u < stage->unit_end; u++)
        for (int k = 0; k < 2; k++) { /* weights, sums */
            const double bytes = heti_s_flow_bytes(c, stage, rank, u, k),
                         seconds = heti_s_flow_seconds(c, stage, rank, u, k);
            /* a loss's F is part of B */
            const double forward = heti_s_real(k == 0 && !heti_s_kind_at(c->held.profile, u)->loss),
                         again = whole ? forward : 0, lean = stage->keep != 0 ? again : 0,
                         times = heti_s_real(!heti_s_is_idle(c->held.profile, u)) + again - lean; /* in B, I or W */
            if (u <= stage->unit_begin + k) first[k] += seconds;
            to->beside[HET_ACTION_F] += forward * seconds;
            to->forward.base += forward * bytes * own[k];
            to->beside[HET_ACTION_B] += times * seconds;
            to->beside[k == 0 ? HET_ACTION_I : HET_ACTION_W] += times * seconds;
            to->backward.base += times * bytes * own[k];
            *(k == 0 ? &to->input.base : &to->weight.base) += times * bytes * own[k];
            to->beside[HETI_S_AGAIN] += lean * seconds;
            to->again.base += lean * bytes * own[k];
        }
}

/* Units that move as long and have as large a part are one; so are those that find no room. */
static void heti_s_add_move(het_move_cost *move, double seconds, double part) {
    int i = 0;
    while (i < HETRAIN_MOVES - 1 && move[i].count > 0 && (move[i].seconds != seconds || move[i].part != part)) i++;
    move[i].seconds = (move[i].count * move[i].seconds + seconds) / (move[i].count + 1);
    move[i].part = (move[i].count * move[i].part + part) / (move[i].count + 1);
    move[i].count += 1;
}

/* Two buffers take turns: forward a unit hides the next one's weights, backward those of the one
   before and the next one's sums; the last sums a pass behind hides. Parts are of one granule. */
static void heti_s_move_costs(const heti_s_costing *c, int64_t g, int64_t rank, const het_unit_time *times,
                              het_stage_cost *to) {
    const het_profile *p = c->held.profile;
    const het_stage *stage = &c->held.plan->stage[g];
    double all[3] = { 0, 0, 0 };
    for (int add = 0; add < 2; add++)
        for (int64_t u = stage->unit_begin; u < stage->unit_end; u++)
            for (int way = 0; way < 3; way++) {
                const het_unit_time *t = &times[p->unit[u]];
                const int back = way == HET_ACTION_B, hides = back || (way == 2 && u == stage->unit_begin);
                const het_cost *cost = back ? &t->backward : &t->forward;
                const double own = cost->token + cost->pair * heti_s_real(p->granule) / 2,
                             weights = heti_s_flow_seconds(c, stage, rank, u + 1 - 2 * back, 0),
                             sums = hides ? heti_s_flow_seconds(c, stage, rank, u + back, 1) : 0;
                if (!back && heti_s_kind_at(p, u)->loss) continue; /* part of B */
                if (!add) all[way] += own;
                else heti_s_add_move(to->move[way], weights + sums, all[way] > 0 ? own / all[way] : 0);
            }
}

static void heti_s_stage_costs(const heti_s_costing *c, int64_t g, int64_t rank, int64_t at) {
    double slowness, first[2] = { 0, 0 };
    const het_device_profile *device = &c->held.profile->device[heti_s_rank_device(c, rank, &slowness)];
    int64_t i, count;
    heti_s_stage_cost(c, g, device, device->alone, slowness, &c->to.alone[at]);
    heti_s_stage_cost(c, g, device, c->beside ? device->together : device->alone, slowness, &c->to.together[at]);
    heti_s_flow_cost(c, g, rank, device, slowness, &c->to.together[at], first);
    if (first[0] > 0) heti_s_move_costs(c, g, rank, c->beside ? device->together : device->alone, &c->to.together[at]);
    for (i = 0; i < g && c->held.plan->stage[i].rank != c->held.plan->stage[g].rank; i++) {}
    if (i == g && (at != g || het_plan_team(c->held.plan, rank, &count) == NULL)) {
        c->rank[rank].begin += first[0];
        c->rank[rank].verdict += first[1];
    }
    heti_s_flow_cost(c, g, rank, device, slowness, &c->to.alone[at], first);
    c->to.stage[at] = c->to.together[at];
}

/* A member's part of the rows, and of the pairs where a micro-batch is one sequence. */
static void heti_s_member_part(const het_team_member *team, int64_t count, int64_t member, double *rows,
                               double *pairs) {
    const heti_s_shares s = heti_s_shares_of(team, count, team[member].rank);
    *rows = team[member].share / s.all;
    *pairs = ((s.before + s.group) * (s.before + s.group) - s.before * s.before) / (s.all * s.all) *
        (s.members > 1 ? heti_s_real(team[member].heads) / s.heads : 1);
}

/* A team's stage from its members', as if a micro-batch were one sequence, without exchanges. */
static void heti_s_team_cost(const het_team_member *team, int64_t count, const het_stage_cost *member,
                             het_stage_cost *to) {
    double rows, pairs;
    for (int k = 0; k < HETI_S_CALLS; k++) memset(heti_s_curve_of(to, k), 0, sizeof(het_cost));
    for (int64_t m = 0; m < count; m++) {
        heti_s_member_part(team, count, m, &rows, &pairs);
        for (int k = 0; k < HETI_S_CALLS; k++) {
            const het_cost own = heti_s_curve(&member[m], k);
            het_cost *slowest = heti_s_curve_of(to, k);
            heti_s_most(&slowest->base, own.base);
            heti_s_most(&slowest->token, own.token * rows);
            heti_s_most(&slowest->pair, own.pair * pairs);
            heti_s_most(&to->beside[k], member[m].beside[k]);
        }
    }
}

/* Of all stages, and of the members of teams behind them. */
static void heti_s_all_stages(const heti_s_costing *c) {
    het_stage_cost *const curves[3] = { c->to.stage, c->to.alone, c->to.together };
    int64_t count, at = c->held.plan->stages;
    for (int64_t g = 0; g < c->held.plan->stages; g++) {
        const het_team_member *team = het_plan_team(c->held.plan, c->held.plan->stage[g].rank, &count);
        heti_s_stage_costs(c, g, c->held.plan->stage[g].rank, g);
        if (count == 1) continue;
        for (int64_t m = 0; m < count; m++) heti_s_stage_costs(c, g, team[m].rank, at + m);
        for (int i = 0; i < 3; i++) heti_s_team_cost(team, count, curves[i] + at, curves[i] + g);
        at += count;
    }
}

static het_result heti_s_fill_costs(heti_s_costing *c, het_error *error) {
    het_costs *costs = &c->to.costs;
    const het_profile *profile = c->held.profile;
    const het_cluster *cluster = c->held.cluster;
    const double quarter = heti_s_smaller(c->held.owned, HETRAIN_FLOW_WINDOW / 4),
                 window = heti_s_larger(heti_s_under_way(&c->held, 0, quarter), HETRAIN_FLOW_WINDOW);
    double slowness;
    for (int64_t r = 0; r < c->held.plan->ranks; r++) {
        const int64_t device = heti_s_rank_device(c, r, &slowness);
        if (device < 0)
            return HETI_S_BAD(error, "het_profile_costs: rank %d needs the profile of a device \"%s\"; there are %d, "
                              "none is it", r, cluster != NULL ? cluster->device[r].profile : "", profile->devices);
        heti_s_rank_cost(c, r, &c->held.held[r], &profile->device[device], slowness);
        if (cluster != NULL) c->rank_group[r] = cluster->device[r].group;
    }
    heti_s_all_stages(c);
    for (int64_t b = 0; b < profile->blocks; b++) {
        const het_block_profile *block = &profile->block[b];
        const double elements = block->frozen ? 0 : heti_s_real(block->elements);
        c->block[b].reduce_bytes = elements * profile->reduce_bytes;
        c->block[b].gather_bytes = elements * profile->gather_bytes;
        c->block[b].windows = elements / window;
        c->block[b].step = elements;
        c->block[b].chain = heti_s_chain(profile, profile->use[block->first_use]);
        c->block[b].columns = elements > 0 ? (block->by_heads + block->by_share) / elements : 0;
    }
    costs->transfer = HET_TRANSFER_POSTED;
    costs->stage = c->to.stage;
    costs->member = c->to.curves > c->held.plan->stages ? c->to.stage + c->held.plan->stages : NULL;
    costs->rank = c->rank;
    costs->block = c->block;
    costs->blocks = profile->blocks;
    costs->granule = heti_s_real(profile->granule);
    if (cluster != NULL) {
        costs->group = cluster->group;
        costs->groups = cluster->groups;
        costs->rank_group = c->rank_group;
        costs->link = cluster->link;
        costs->rings = cluster->rings, costs->wires = cluster->wires;
    } else costs->every_link = heti_s_first_link(profile);
    return HET_OK;
}

/* Members of the teams of the stages before stage g. */
static int64_t heti_s_members_before(const het_plan *plan, int64_t g) {
    int64_t members = 0, count;
    while (g-- > 0)
        if (het_plan_team(plan, plan->stage[g].rank, &count) != NULL) members += count;
    return members;
}

HETRAIN_API het_result het_profile_costs(const het_profile *profile, const het_plan *plan, const het_cluster *cluster,
                                         het_choice together, const het_allocator *allocator, het_plan_costs **costs,
                                         het_error *error) {
    const het_shape one = { 1, 1, 1 };
    HETI_S_OUTPUT("het_profile_costs", costs);
    HETI_S_NEEDED("het_profile_costs", profile, plan);
    HETI_T_TRY(heti_s_check_plan(profile, plan, "het_profile_costs", error));
    if (cluster != NULL && cluster->ranks != plan->ranks)
        return HETI_S_BAD(error, "het_profile_costs: a plan for %d ranks, a cluster of %d", plan->ranks,
                          cluster->ranks);
    HETI_S_CLEARED(heti_s_costing, c);
    HETI_T_TRY(heti_t_choose(allocator, &c.to.allocator, error, "het_profile_costs"));
    c.held.profile = profile;
    c.held.plan = plan;
    c.held.cluster = cluster;
    c.beside = together != HET_NO;
    c.to.curves = plan->stages + heti_s_members_before(plan, plan->stages);
    HETI_T_TRY(heti_s_hold(&c.held, NULL, &one, &c.to.allocator, error));
    het_plan_costs *made = HETI_T_CAST(het_plan_costs *, heti_s_make(&c, sizeof c.to, &c.to.size, heti_s_costs_cut,
                                                                     &c.to.allocator, "het_profile_costs", error));
    const het_result result = made != NULL ? heti_s_fill_costs(&c, error) : HET_ERR_OOM;
    if (result == HET_OK) *made = c.to, *costs = made;
    else het_plan_costs_free(made);
    heti_t_arrays_free(&c.held.arena, &c.to.allocator);
    return result;
}

HETRAIN_API void het_plan_costs_free(het_plan_costs *costs) {
    if (costs != NULL) heti_s_give_back(&costs->allocator, costs, costs->size);
}

/* Stages whose device shares its machine with ranks that are at work `beside` of the time. Returns
   whether that differs from all of the time. */
static int heti_s_costs_beside(het_plan_costs *costs, double beside) {
    const het_cost none = { 0, 0, 0 };
    int differs = 0;
    for (int64_t g = 0; g < costs->curves; g++) {
        const het_stage_cost *alone = &costs->alone[g], *together = &costs->together[g];
        if (memcmp(alone, together, sizeof *alone) == 0) continue;
        for (int k = 0; k < HETI_S_CALLS; k++) {
            het_cost *between = heti_s_curve_of(&costs->stage[g], k);
            *between = none;
            heti_s_add_curve(between, heti_s_curve(alone, k), 1 - beside);
            heti_s_add_curve(between, heti_s_curve(together, k), beside);
        }
        differs = 1;
    }
    return differs && beside < 1;
}

HETRAIN_API het_result het_simulate_costs(const het_plan *plan, const het_schedule *schedule, het_plan_costs *costs,
                                          het_choice timeline, const het_allocator *allocator,
                                          het_simulation **simulation, het_error *error) {
    HETI_S_OUTPUT("het_simulate_costs", simulation);
    HETI_S_NEEDED("het_simulate_costs", plan, costs);
    (void)heti_s_costs_beside(costs, 1);
    HETI_T_TRY(het_simulate(plan, schedule, &costs->costs, timeline, allocator, simulation, error));
    if (!heti_s_costs_beside(costs, 1 - (*simulation)->bubble)) return HET_OK;
    het_simulation_free(*simulation);
    *simulation = NULL;
    return het_simulate(plan, schedule, &costs->costs, timeline, allocator, simulation, error);
}

static int heti_s_curve_valid(het_cost c) {
    return c.base >= 0 && c.base <= 1e100 && c.token >= 0 && c.token <= 1e100 && c.pair >= 0 && c.pair <= 1e100;
}

/* ---- shares of a team ---- */

/* Seconds of the slowest member, heads of each, granules before it. */
typedef struct heti_s_division {
    double seconds;
    int64_t heads[HETRAIN_MAX_TEAM], cut[HETRAIN_MAX_TEAM + 1];
} heti_s_division;

typedef struct heti_s_divide {
    const het_divide_desc *d;
    double length;                    /* of a sequence, in parts of the micro-batch */
    heti_s_division now, best;
} heti_s_divide;

/* Of the queries before `end`, a part of the micro-batch; of all they come to 1. */
static double heti_s_seen(const heti_s_divide *s, double end) {
    const double whole = heti_s_real(heti_s_whole(end / s->length + 1e-9)), rest = end - whole * s->length;
    return (whole * s->length * s->length + (rest > 0 ? rest * rest : 0)) / s->length;
}

/* Member m with granules [begin, end). */
static double heti_s_member_seconds(const heti_s_divide *s, int64_t m, int64_t begin, int64_t end) {
    const het_divide_desc *d = s->d;
    const het_cost *f = &d->member[m].forward, *b = &d->member[m].backward;
    const double all = heti_s_real(d->granules), low = heti_s_real(begin) / all, high = heti_s_real(end) / all;
    const double part = d->heads > 0 ? heti_s_real(s->now.heads[m]) / heti_s_real(d->heads) :
                        heti_s_seen(s, high) - heti_s_seen(s, low);
    return f->base + b->base + (f->token + b->token) * d->tokens * (high - low) + (f->pair + b->pair) * d->pairs * part;
}

/* Every member takes the longest run that keeps the bound: what it leaves is a part of what another
   choice would leave, and costs no more. 0: the last granules are left over. */
static int heti_s_divide_within(heti_s_divide *s, double bound) {
    heti_s_division *to = &s->now;
    int64_t m, low, high;
    for (to->seconds = 0, to->cut[0] = m = 0; m < s->d->members; m++) {
        low = to->cut[m];
        high = s->d->granules;
        if (heti_s_member_seconds(s, m, low, low) > bound) return 0;
        while (low < high) {
            const int64_t middle = low + (high - low + 1) / 2;
            if (heti_s_member_seconds(s, m, to->cut[m], middle) <= bound) low = middle;
            else high = middle - 1;
        }
        to->cut[m + 1] = low;
        heti_s_most(&to->seconds, heti_s_member_seconds(s, m, to->cut[m], low));
    }
    return to->cut[m] == s->d->granules;
}

/* The best cut for s->now.heads, by bisection of the bound, where it is better than the best so
   far. Returns whether it is. */
static int heti_s_divide_rows(heti_s_divide *s) {
    double low = 0, high = s->best.seconds;
    int better = 0;
    for (int turn = 0; turn < 200 && high - low > 1e-13 * high; turn++) {
        const double middle = turn == 0 ? high * (1 - 1e-12) : low + (high - low) / 2;
        if (heti_s_divide_within(s, middle)) {
            s->best = s->now;
            high = s->now.seconds;
            better = 1;
        } else if (turn == 0) break;
        else low = middle;
    }
    return better;
}

/* All ways to give `left` heads to the members from m on. */
static void heti_s_divide_heads(heti_s_divide *s, int64_t m, int64_t left) {
    const int64_t rest = s->d->members - m - 1;
    if (rest == 0) {
        s->now.heads[m] = left;
        (void)heti_s_divide_rows(s);
        return;
    }
    for (s->now.heads[m] = 1; s->now.heads[m] <= left - rest; s->now.heads[m]++) {
        if (heti_s_member_seconds(s, m, 0, 0) >= s->best.seconds) break;
        heti_s_divide_heads(s, m + 1, left - s->now.heads[m]);
    }
}

/* By largest remainders of one over a member's pairs, then moves of a head or, of many, several. */
static void heti_s_divide_many(heti_s_divide *s) {
    const het_divide_desc *d = s->d;
    double part[HETRAIN_MAX_TEAM], sum = 0;
    const int64_t moved = 1 + d->heads / 4096;
    int64_t *heads = s->now.heads, left = d->heads;
    for (int64_t m = 0; m < d->members; m++) {
        const double pair = d->member[m].forward.pair + d->member[m].backward.pair;
        sum += part[m] = pair > 0 ? heti_s_smaller(1 / pair, 1e100) : 1;
    }
    for (int64_t m = 0; m < d->members; m++) {
        part[m] *= heti_s_real(d->heads) / sum;
        heads[m] = heti_s_max(1, heti_s_whole(part[m]));
        left -= heads[m];
    }
    for (; left != 0; left += left < 0 ? 1 : -1) {
        const int64_t step = left > 0 ? 1 : -1;
        int64_t best = -1;
        for (int64_t m = 0; m < d->members; m++)
            if (heads[m] + step >= 1 && (best < 0 || heti_s_real(step) * (part[m] - heti_s_real(heads[m]) - part[best] +
                                                                          heti_s_real(heads[best])) > 0))
                best = m;
        heads[best] += step;
    }
    (void)heti_s_divide_rows(s);
    for (int64_t m = 0; m < d->members; m++)
        for (int64_t k = 0; k < d->members; k++) {
            s->now = s->best;
            if (m == k || heads[m] <= moved) continue;
            heads[m] -= moved;
            heads[k] += moved;
            if (heti_s_divide_rows(s)) k = -1; /* all others again */
        }
}

HETRAIN_API het_result het_team_divide(const het_divide_desc *desc, het_team_member *member, double *seconds,
                                       het_error *error) {
    const double sequences = desc != NULL && desc->sequences > 0 ? desc->sequences : 1;
    if (desc == NULL || member == NULL || desc->member == NULL || desc->start_canary != 0 || desc->end_canary != 0)
        return HETI_S_BAD(error, "het_team_divide: a pointer is NULL, or a struct was not cleared");
    if (desc->members < 1 || desc->members > HETRAIN_MAX_TEAM || desc->granules < 1 ||
        desc->granules > INT64_C(1) << 50 || desc->heads < 0 || (desc->heads > 0 && desc->heads < desc->members) ||
        !heti_t_is_time(desc->tokens) || !heti_t_is_time(desc->pairs) || !heti_t_is_time(desc->sequences))
        return HETI_S_BAD(error, "het_team_divide: %d members, %d granules of %e tokens, %e pairs, %e sequences, %d "
                          "heads", desc->members, desc->granules, desc->tokens, desc->pairs, desc->sequences,
                          desc->heads);
    for (int64_t m = 0; m < desc->members; m++)
        if (!heti_s_curve_valid(desc->member[m].forward) || !heti_s_curve_valid(desc->member[m].backward))
            return HETI_S_BAD(error, "het_team_divide: a time of member %d is negative or not finite", m);
    HETI_S_CLEARED(heti_s_divide, s);
    s.d = desc;
    s.length = 1 / sequences;
    s.best.seconds = 1e300;
    if (desc->heads == 0) (void)heti_s_divide_rows(&s);
    else heti_s_divide_many(&s); /* stays where none is faster: even for alike members */
    if (desc->heads > 0 && desc->heads <= 256 && desc->members <= 4) heti_s_divide_heads(&s, 0, desc->heads);
    for (int64_t m = 0; m < desc->members; m++) {
        member[m].share = heti_s_real(s.best.cut[m + 1] - s.best.cut[m]);
        member[m].group = desc->heads > 0 ? 0 : m;
        member[m].heads = s.best.heads[m];
    }
    if (seconds != NULL) *seconds = s.best.seconds;
    return HET_OK;
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

/* What a file is read with. Of a profile in three passes: to count, to find the names of kinds, to
   fill in what names them; of a cluster in two. */
typedef struct heti_s_reader {
    het_json json;
    het_error *error;
    const char *call;
    het_profile count, *to;           /* of this pass, and the fields that are no arrays; NULL: only counts */
    int last;                         /* names can be looked up */
    uint32_t seen;                    /* keys of the object that was read last */
    het_cluster *cluster;             /* NULL: only counts */
    het_hardware *hardware;
    int64_t ranks, groups;
    het_json order;                   /* behind the ranks already given to devices, if the file gives them */
    int ordered;
    het_json matrix[2];               /* latencies, bandwidths: at the arrays, if the file gives them */
} heti_s_reader;

/* A key of an object and how its value is read into a field. Lists end with a name NULL. */
typedef struct heti_s_key heti_s_key;
typedef het_result (*heti_s_read)(heti_s_reader *r, const heti_s_key *key, void *to);
enum { HETI_S_OF_DEVICE = 1, HETI_S_OF_GROUP = 2, HETI_S_OF_ROOT = 4 };
struct heti_s_key {
    const char *name;
    heti_s_read read;
    size_t at;                        /* of the field in its struct; of parts of a struct 0 */
    int64_t most;                     /* of an integer, which is 1 at least; of numbers: how many; of words
                                         and quantities: of which kind */
    het_result (*each)(heti_s_reader *r); /* of a list: reads an element */
    int of;                           /* of a cluster's member: HETI_S_OF_ */
};

#define HETI_S_KEY(type, field, read) { #field, read, offsetof(type, field), 0, NULL, 0 }
#define HETI_S_NUMBER(type, field) HETI_S_KEY(type, field, heti_s_read_real)
#define HETI_S_NUMBERS(type, field, count) { #field, heti_s_read_reals, offsetof(type, field), count, NULL, 0 }
#define HETI_S_LAST_KEY { NULL, NULL, 0, 0, NULL, 0 }

/* An object of a file: its keys, what is said of others, which must be there and what is said if
   they are not; NULL: which is missing. */
typedef struct heti_s_form {
    const heti_s_key *key;
    const char *unknown;
    uint32_t needed;
    const char *lacks;
} heti_s_form;

/* "het_cluster_read: byte 71, "speed" is -2, not above 0": `format` is of what stands behind the
   key. What is wrong with the JSON goes before. */
static het_result heti_s_bad_value(const heti_s_reader *r, size_t at, const char *key, const char *format, ...) {
    char wrong[512];
    heti_t_text text = heti_t_text_in(wrong, sizeof wrong);
    va_list arguments;
    va_start(arguments, format);
    if (r->json.rule == NULL) heti_t_format_list(&text, format, arguments);
    else heti_t_format(&text, ": %s", r->json.rule), at = r->json.rule_at;
    va_end(arguments);
    return heti_t_fail(r->error, HET_ERR_FORMAT, "%s: byte %z, \"%p\"%s", r->call, at, key, strlen(key), wrong);
}

static het_result heti_s_bad_at(const heti_s_reader *r, size_t at, const char *key, const char *rule) {
    return heti_s_bad_value(r, at, key, ": %s", rule);
}

static het_result heti_s_bad(const heti_s_reader *r, const char *key, const char *rule) {
    return heti_s_bad_at(r, r->json.at, key, rule);
}

/* Goes through an object, whose keys are read into the fields of `to`; `what`: for errors before
   the first key. r->seen: which were there. A value that is no JSON ends it here. */
static het_result heti_s_read_object(heti_s_reader *r, const heti_s_form *form, const char *what, void *to) {
    char name[64] = "";
    size_t length;
    uint32_t there = 0;
    for (het_json_enter(&r->json, HET_JSON_OBJECT); het_json_next(&r->json, name, sizeof name, &length);) {
        const heti_s_key *key = form->key;
        while (key->name != NULL && (length >= sizeof name || strcmp(name, key->name) != 0)) key++;
        if (key->name == NULL) return heti_s_bad(r, name, form->unknown);
        if ((there >> (key - form->key) & 1u) != 0) return heti_s_bad(r, name, "this key comes twice");
        there |= UINT32_C(1) << (key - form->key);
        HETI_T_TRY(key->read(r, key, HETI_T_CAST(char *, to) + key->at));
    }
    r->seen = there;
    if (r->json.rule != NULL) return heti_s_bad(r, name[0] != 0 ? name : what, "");
    for (int i = 0; i < 32; i++)
        if ((form->needed & ~there) >> i & 1u)
            return form->lacks != NULL ? heti_s_bad(r, what, form->lacks)
                                       : heti_s_bad(r, form->key[i].name, "is missing");
    return HET_OK;
}

/* A list; `to` is the number of its elements so far. */
static het_result heti_s_read_list(heti_s_reader *r, const heti_s_key *key, void *to) {
    int64_t *count = HETI_T_CAST(int64_t *, to);
    for (het_json_enter(&r->json, HET_JSON_ARRAY); het_json_next(&r->json, NULL, 0, NULL); ++*count)
        HETI_T_TRY(key->each(r));
    return r->json.rule == NULL ? HET_OK : heti_s_bad(r, key->name, "");
}

/* All of a name, without control bytes: it is printed. */
static int heti_s_is_plain(const char *name, size_t length, size_t capacity) {
    for (size_t i = 0; i < length && length < capacity; i++)
        if (HETI_T_CAST(unsigned char, name[i]) < 32 || name[i] == 127) return 0;
    return length < capacity;
}

static het_result heti_s_read_name(heti_s_reader *r, const heti_s_key *key, void *to) {
    const size_t at = r->json.at;
    char *name = HETI_T_CAST(char *, to);
    size_t length = 0;
    if (!het_json_string(&r->json, name, 48, &length)) return heti_s_bad(r, key->name, "");
    if ((length > 0 || (key->of & HETI_S_OF_GROUP) != 0) && heti_s_is_plain(name, length, 48)) return HET_OK;
    return heti_t_fail(r->error, HET_ERR_FORMAT, "%s: byte %z, \"%s\" has %z bytes; a name has 1 to 47 and no control "
                       "bytes", r->call, at, key->name, length);
}

static het_result heti_s_read_real(heti_s_reader *r, const heti_s_key *key, void *to) {
    const size_t at = r->json.at;
    double *value = HETI_T_CAST(double *, to);
    if (!het_json_real(&r->json, value) || (*value >= 0 && *value <= 1e30)) return HET_OK;
    return heti_s_bad_value(r, at, key->name, " is %r, not from 0 to 1e30", *value);
}

/* So many numbers as the key says, in an array; three are a curve. */
static het_result heti_s_read_reals(heti_s_reader *r, const heti_s_key *key, void *to) {
    const int curve = key->most == 3;
    double *value = HETI_T_CAST(double *, to);
    int64_t n = 0;
    for (het_json_enter(&r->json, HET_JSON_ARRAY); het_json_next(&r->json, NULL, 0, NULL); n++) {
        if (n == key->most)
            return heti_s_bad(r, key->name, curve ? "more than [base, token, pair]" : "too many numbers");
        HETI_T_TRY(heti_s_read_real(r, key, &value[n]));
    }
    if (r->json.rule == NULL && n == key->most) return HET_OK;
    return heti_s_bad(r, key->name, curve ? "fewer than [base, token, pair]" : "too few numbers");
}

static het_result heti_s_read_truth(heti_s_reader *r, const heti_s_key *key, void *to) {
    int truth = 0;
    (void)key;
    het_json_boolean(&r->json, &truth);
    *HETI_T_CAST(int32_t *, to) = truth;
    return HET_OK;
}

static het_result heti_s_read_range(heti_s_reader *r, const char *key, int64_t least, int64_t most, int64_t *value) {
    const size_t at = r->json.at;
    if (!het_json_integer(&r->json, value)) return heti_s_bad(r, key, "");
    if (*value >= least && *value <= most) return HET_OK;
    return heti_s_bad_value(r, at, key, " is %d, not from %d to %d", *value, least, most);
}

static het_result heti_s_read_integer(heti_s_reader *r, const heti_s_key *key, void *to) {
    return heti_s_read_range(r, key->name, 1, key->most, HETI_T_CAST(int64_t *, to));
}

#define HETI_S_BYTES(name) { #name, heti_s_read_real, offsetof(het_profile, name##_bytes), 0, NULL, 0 }
static const heti_s_key heti_s_byte_keys[] = {
    HETI_S_BYTES(weight), HETI_S_BYTES(gradient), HETI_S_BYTES(state), HETI_S_BYTES(reduce), HETI_S_BYTES(gather),
    HETI_S_NUMBER(het_profile, rank_weights), HETI_S_NUMBER(het_profile, rank_gradients),
    HETI_S_NUMBER(het_profile, rank_workspace), HETI_S_BYTES(token), HETI_S_BYTES(sequence), HETI_S_BYTES(rounded),
    HETI_S_LAST_KEY
};

#define HETI_S_OF_KIND(field) HETI_S_NUMBER(het_unit_kind, field)
#define HETI_S_KEPT(name, at) { name, heti_s_read_real, offsetof(het_unit_kind, at), 0, NULL, 0 }
static const heti_s_key heti_s_kind_keys[] = {
    HETI_S_KEY(het_unit_kind, name, heti_s_read_name), HETI_S_KEY(het_unit_kind, loss, heti_s_read_truth),
    HETI_S_OF_KIND(input), HETI_S_OF_KIND(output), HETI_S_KEPT("call", keep[HET_KEEP_CALL]),
    HETI_S_KEPT("keep_input", keep[HET_KEEP_INPUT]), HETI_S_KEPT("keep_weight", keep[HET_KEEP_WEIGHT]),
    HETI_S_KEPT("keep_gradient", keep[HET_KEEP_GRADIENT]), HETI_S_KEPT("carry", keep[HET_KEEP_MICRO_BATCH]),
    HETI_S_KEPT("carry_gradient", keep[HET_KEEP_MICRO_BATCH_GRADIENT]), HETI_S_OF_KIND(workspace), 
    HETI_S_OF_KIND(workspace_base), HETI_S_OF_KIND(query), HETI_S_OF_KIND(key), HETI_S_OF_KIND(heads),
    HETI_S_OF_KIND(attentions), HETI_S_OF_KIND(packed), HETI_S_OF_KIND(alone), HETI_S_OF_KIND(whole),
    HETI_S_KEPT("divided_call", divided[HET_KEEP_CALL]), HETI_S_KEPT("divided_input", divided[HET_KEEP_INPUT]),
    HETI_S_KEPT("divided_weight", divided[HET_KEEP_WEIGHT]),
    HETI_S_KEPT("divided_gradient", divided[HET_KEEP_GRADIENT]), HETI_S_KEPT("head_call", divided[HET_KEEP_CALL][2]),
    HETI_S_KEPT("head_input", divided[HET_KEEP_INPUT][2]), HETI_S_KEPT("head_carry", divided[HET_KEEP_MICRO_BATCH][2]),
    HETI_S_KEPT("head_carry_gradient", divided[HET_KEEP_MICRO_BATCH_GRADIENT][2]), HETI_S_OF_KIND(half_workspace),
    HETI_S_NUMBERS(het_unit_kind, columns, 24), HETI_S_NUMBERS(het_unit_kind, moves, 15),
    { "exchanges", heti_s_read_reals, offsetof(het_unit_kind, moves.exchanges), 6, NULL, 0 },
    HETI_S_OF_KIND(most_members), HETI_S_LAST_KEY
};

static const heti_s_key heti_s_time_keys[] = {
    HETI_S_NUMBERS(het_unit_time, forward, 3), HETI_S_NUMBERS(het_unit_time, backward, 3),
    HETI_S_NUMBERS(het_unit_time, input, 3), HETI_S_NUMBERS(het_unit_time, weight, 3),
    HETI_S_NUMBERS(het_unit_time, recompute, 3), HETI_S_LAST_KEY
};

static het_result heti_s_find_kind(heti_s_reader *r, const char *name, int64_t *kind) {
    *kind = 0;
    if (!r->last) return HET_OK;
    *kind = heti_s_named(r->to->kind, sizeof *r->to->kind, r->to->kinds, name);
    if (*kind < r->to->kinds) return HET_OK;
    return heti_t_fail(r->error, HET_ERR_FORMAT, "het_profile_read: byte %z: \"%p\" is none of the %d kinds",
                       r->json.at, name, strlen(name), r->to->kinds);
}

/* "units" of a block: which, ascending. */
static het_result heti_s_read_uses(heti_s_reader *r, const heti_s_key *key, void *to) {
    const int64_t units = r->last ? r->to->units : HETI_T_CAST(int64_t, HETI_S_MOST_UNITS);
    int64_t *uses = HETI_T_CAST(int64_t *, to), unit, before = -1;
    for (het_json_enter(&r->json, HET_JSON_ARRAY); het_json_next(&r->json, NULL, 0, NULL); r->count.uses++) {
        HETI_T_TRY(heti_s_read_range(r, key->name, 0, units - 1, &unit));
        if (unit <= before) return heti_s_bad(r, key->name, "the units of a block must rise");
        if (r->to != NULL) r->to->use[r->count.uses] = unit;
        before = unit;
        ++*uses;
    }
    return r->json.rule == NULL && *uses > 0 ? HET_OK : heti_s_bad(r, key->name, "a block without units");
}

/* {"kind": {"forward": [..], ...}, ...}; every kind must be there. */
static het_result heti_s_read_times(heti_s_reader *r, const heti_s_key *key, void *to) {
    static const heti_s_form heti_s_time = { heti_s_time_keys, "not forward, backward, input, weight or recompute", 0,
                                             "" };
    het_unit_time *times = *HETI_T_CAST(het_unit_time **, to);
    char name[64] = "";
    size_t length;
    int64_t kind, kinds = 0;
    for (het_json_enter(&r->json, HET_JSON_OBJECT); het_json_next(&r->json, name, sizeof name, &length); kinds++) {
        HETI_S_CLEARED(het_unit_time, time);
        HETI_T_TRY(heti_s_find_kind(r, name, &kind));
        HETI_T_TRY(heti_s_read_object(r, &heti_s_time, name, &time));
        if (times != NULL) times[kind] = time;
    }
    if (r->json.rule != NULL) return heti_s_bad(r, name[0] != 0 ? name : key->name, "");
    return !r->last || kinds == r->to->kinds ? HET_OK
        : heti_s_bad(r, key->name, "times of every kind are needed, each once");
}

static const heti_s_key heti_s_block_keys[] = {
    { "elements", heti_s_read_integer, offsetof(het_block_profile, elements), INT64_C(1) << 50, NULL, 0 },
    { "units", heti_s_read_uses, offsetof(het_block_profile, uses), 0, NULL, 0 },
    HETI_S_KEY(het_block_profile, frozen, heti_s_read_truth), HETI_S_NUMBER(het_block_profile, by_heads),
    HETI_S_NUMBER(het_block_profile, by_share), HETI_S_NUMBER(het_block_profile, weights),
    HETI_S_NUMBER(het_block_profile, int8), HETI_S_NUMBER(het_block_profile, expanded),
    HETI_S_NUMBER(het_block_profile, workspace), HETI_S_LAST_KEY
};

static const heti_s_key heti_s_device_keys[] = {
    HETI_S_KEY(het_device_profile, name, heti_s_read_name), HETI_S_KEY(het_device_profile, alone, heti_s_read_times),
    HETI_S_KEY(het_device_profile, together, heti_s_read_times), HETI_S_NUMBER(het_device_profile, step_element),
    HETI_S_NUMBER(het_device_profile, begin_element), HETI_S_NUMBER(het_device_profile, verdict_base),
    HETI_S_NUMBER(het_device_profile, verdict_element), HETI_S_NUMBER(het_device_profile, message_byte),
    HETI_S_NUMBER(het_device_profile, ring_byte), HETI_S_NUMBER(het_device_profile, action),
    HETI_S_NUMBER(het_device_profile, beside), HETI_S_NUMBER(het_device_profile, product_element),
    HETI_S_NUMBER(het_device_profile, max_tokens), HETI_S_LAST_KEY
};

static const heti_s_key heti_s_link_keys[] = {
    HETI_S_KEY(het_link_profile, name, heti_s_read_name), HETI_S_NUMBER(het_link_profile, latency),
    HETI_S_NUMBER(het_link_profile, bandwidth), HETI_S_LAST_KEY
};

/* Number i of a field. */
static double heti_s_field_get(const void *base, const heti_s_key *field, int64_t i) {
    double value;
    memcpy(&value, HETI_T_CAST(const char *, base) + field->at + HETI_T_CAST(size_t, i) * sizeof value, sizeof value);
    return value;
}

/* Numbers as fields of the open object, without those that are 0. between: before the first. */
static void heti_s_out_fields(heti_t_text *out, const char *between, const void *base, const heti_s_key *field) {
    for (; field->name != NULL; field++) {
        const int64_t count = field->read == heti_s_read_real ? 1 : field->read == heti_s_read_reals ? field->most : 0;
        int64_t last = -1;
        for (int64_t i = 0; i < count; i++)
            if (heti_s_field_get(base, field, i) > 0) last = i;
        if (last < 0) continue;
        heti_t_format(out, "%s\"%s\": %s", between, field->name, count > 1 ? "[" : "");
        for (int64_t i = 0; i < count; i++)
            heti_t_format(out, i > 0 ? ", %r" : "%r", heti_s_field_get(base, field, i));
        if (count > 1) heti_t_char(out, ']');
        between = ", ";
    }
}

/* Object number i of a list, with its name and numbers; it stays open. */
static void heti_s_out_named(heti_t_text *out, int64_t i, const char *name, const void *base,
                             const heti_s_key *field) {
    heti_t_format(out, i > 0 ? ",\n  {\"name\": %j" : "\n  {\"name\": %j", name);
    heti_s_out_fields(out, ", ", base, field);
}

static void heti_s_out_curves(heti_t_text *out, const het_profile *profile, const het_unit_time *time,
                              const char *name) {
    heti_t_format(out, ",\n   \"%s\": {", name);
    for (int64_t k = 0; k < profile->kinds; k++) {
        heti_t_format(out, k > 0 ? ",\n    %j: {" : "\n    %j: {", profile->kind[k].name);
        heti_s_out_fields(out, "", &time[k], heti_s_time_keys);
        heti_t_char(out, '}');
    }
    heti_t_char(out, '}');
}

static void heti_s_out_chain(heti_t_text *out, const het_profile *profile) {
    heti_t_put(out, ",\n \"units\": [");
    for (int64_t i = 0; i < profile->units; i++)
        heti_t_format(out, i == 0 ? "%j" : i % 12 == 0 ? ",\n  %j" : ", %j", heti_s_kind_at(profile, i)->name);
    heti_t_put(out, "],\n \"blocks\": [");
    for (int64_t i = 0; i < profile->blocks; i++) {
        const het_block_profile *block = &profile->block[i];
        heti_t_format(out, "%s{\"elements\": %d, \"units\": [", i > 0 ? ",\n  " : "\n  ", block->elements);
        for (int64_t k = 0; k < block->uses; k++)
            heti_t_format(out, "%s%d", k > 0 ? ", " : "", profile->use[block->first_use + k]);
        heti_t_char(out, ']');
        heti_s_out_fields(out, ", ", block, heti_s_block_keys);
        heti_t_put(out, block->frozen ? ", \"frozen\": true}" : "}");
    }
    heti_t_char(out, ']');
}

enum { HETI_S_DTYPES, HETI_S_REDUCES };
static const char *const heti_s_words[2][2] = { { "f32", "bf16" }, { "exact", "fast" } };
static const char *heti_s_dtype_name(het_dtype t) { return heti_s_words[HETI_S_DTYPES][t == HET_BF16]; }
static const char *heti_s_reduce_name(het_reduce r) { return heti_s_words[HETI_S_REDUCES][r == HET_REDUCE_FAST]; }

HETRAIN_API het_result het_profile_write(const het_profile *profile, const het_writer *to) {
    char room[4096];
    if (profile == NULL || to == NULL || to->write == NULL) return HET_ERR_INVALID;
    HETI_T_TRY(heti_s_check_profile(profile, "het_profile_write", NULL));
    heti_t_text out = heti_t_text_to(to, room, sizeof room);
    heti_t_format(&out, "{\"hetrain_profile\": 1, \"model\": %j, \"dtype\": %j, \"reduce\": %j", profile->model,
                  heti_s_dtype_name(profile->dtype), heti_s_reduce_name(profile->reduce));
    if (profile->granule > 0) heti_t_format(&out, ", \"granule\": %d", profile->granule);
    heti_t_format(&out, ",\n \"bytes\": {\"weight\": %r", profile->weight_bytes);
    heti_s_out_fields(&out, ", ", profile, heti_s_byte_keys + 1);
    heti_t_put(&out, "},\n \"kinds\": [");
    for (int64_t i = 0; i < profile->kinds; i++) {
        heti_s_out_named(&out, i, profile->kind[i].name, &profile->kind[i], heti_s_kind_keys);
        heti_t_put(&out, profile->kind[i].loss ? ", \"loss\": true}" : "}");
    }
    heti_t_char(&out, ']');
    heti_s_out_chain(&out, profile);
    heti_t_put(&out, ",\n \"devices\": [");
    for (int64_t i = 0; i < profile->devices; i++) {
        heti_s_out_named(&out, i, profile->device[i].name, &profile->device[i], heti_s_device_keys);
        heti_s_out_curves(&out, profile, profile->device[i].alone, "alone");
        heti_s_out_curves(&out, profile, profile->device[i].together, "together");
        heti_t_char(&out, '}');
    }
    heti_t_put(&out, "],\n \"links\": [");
    for (int64_t i = 0; i < profile->links; i++) {
        heti_s_out_named(&out, i, profile->link[i].name, &profile->link[i], heti_s_link_keys);
        heti_t_char(&out, '}');
    }
    heti_t_put(&out, "]}\n");
    return heti_t_end(&out);
}

/* Element `count` of a list, which begins with its name, is the first that is called so. */
static het_result heti_s_first_named(const heti_s_reader *r, const void *list, size_t size, int64_t count) {
    const char *name = HETI_T_CAST(const char *, list) + HETI_T_CAST(size_t, count) * size;
    return heti_s_named(list, size, count, name) == count ? HET_OK : heti_s_bad(r, name, "this name comes twice");
}

static het_result heti_s_read_kind(heti_s_reader *r) {
    static const heti_s_form heti_s_kind = { heti_s_kind_keys, "no such key", 1, "without a name" };
    het_unit_kind spare, *kind = r->to != NULL ? &r->to->kind[r->count.kinds] : &spare;
    memset(kind, 0, sizeof *kind);
    HETI_T_TRY(heti_s_read_object(r, &heti_s_kind, "kinds", kind));
    if (r->to != NULL) HETI_T_TRY(heti_s_first_named(r, r->to->kind, sizeof *kind, r->count.kinds));
    return r->count.kinds < HETI_S_MOST_KINDS ? HET_OK : heti_s_bad(r, "kinds", "more than 256");
}

static het_result heti_s_read_unit(heti_s_reader *r) {
    static const heti_s_key heti_s_units = { "units", NULL, 0, 0, NULL, 0 };
    char name[48];
    int64_t kind;
    HETI_T_TRY(heti_s_read_name(r, &heti_s_units, name));
    HETI_T_TRY(heti_s_find_kind(r, name, &kind));
    if (r->count.units >= HETI_S_MOST_UNITS) return heti_s_bad(r, "units", "more than 1048576");
    if (r->to != NULL) r->to->unit[r->count.units] = HETI_T_CAST(int32_t, kind);
    return HET_OK;
}

static het_result heti_s_read_block(heti_s_reader *r) {
    static const heti_s_form heti_s_block = { heti_s_block_keys, "no such key in a block", 3,
                                              "a block needs elements and units" };
    HETI_S_CLEARED(het_block_profile, block);
    block.first_use = r->count.uses;
    HETI_T_TRY(heti_s_read_object(r, &heti_s_block, "blocks", &block));
    if (r->to != NULL) r->to->block[r->count.blocks] = block;
    return HET_OK;
}

static het_result heti_s_read_device(heti_s_reader *r) {
    static const heti_s_form heti_s_device = { heti_s_device_keys, "no such key of a device", 3,
                                               "a device needs a name and \"alone\"" };
    het_device_profile spare, *device = r->to != NULL ? &r->to->device[r->count.devices] : &spare;
    if (r->to == NULL) memset(&spare, 0, sizeof spare);
    HETI_T_TRY(heti_s_read_object(r, &heti_s_device, "devices", device));
    if (r->to == NULL) return HET_OK;
    HETI_T_TRY(heti_s_first_named(r, r->to->device, sizeof *device, r->count.devices));
    if ((r->seen & 4u) == 0) HETI_T_COPY(device->together, device->alone, r->to->kinds);
    return HET_OK;
}

static het_result heti_s_read_link(heti_s_reader *r) {
    static const heti_s_form heti_s_link = { heti_s_link_keys, "no such key", 1, "without a name" };
    het_link_profile spare, *link = r->to != NULL ? &r->to->link[r->count.links] : &spare;
    memset(link, 0, sizeof *link);
    HETI_T_TRY(heti_s_read_object(r, &heti_s_link, "links", link));
    return r->to == NULL ? HET_OK : heti_s_first_named(r, r->to->link, sizeof *link, r->count.links);
}

static het_result heti_s_read_bytes(heti_s_reader *r, const heti_s_key *key, void *to) {
    static const heti_s_form heti_s_bytes = { heti_s_byte_keys, "no such key in \"bytes\"", 0, "" };
    return heti_s_read_object(r, &heti_s_bytes, key->name, to);
}

/* One of two words, those of heti_s_words[key->most]. */
static het_result heti_s_read_word(heti_s_reader *r, const heti_s_key *key, void *to) {
    const char *const *words = heti_s_words[key->most];
    const size_t at = r->json.at;
    char word[48];
    HETI_T_TRY(heti_s_read_name(r, key, word));
    const int second = strcmp(word, words[1]) == 0;
    if (!second && strcmp(word, words[0]) != 0)
        return heti_s_bad_value(r, at, key->name, " is \"%p\", not \"%s\" or \"%s\"", word, strlen(word), words[0],
                                words[1]);
    if (key->most == HETI_S_DTYPES) *HETI_T_CAST(het_dtype *, to) = second ? HET_BF16 : HET_F32;
    else *HETI_T_CAST(het_reduce *, to) = second ? HET_REDUCE_FAST : HET_REDUCE_EXACT;
    return HET_OK;
}

static het_result heti_s_read_model(heti_s_reader *r, const heti_s_key *key, void *to) {
    const size_t capacity = sizeof r->count.model;
    char *model = HETI_T_CAST(char *, to);
    size_t size;
    if (!het_json_string(&r->json, model, capacity, &size) || heti_s_is_plain(model, size, capacity)) return HET_OK;
    return heti_s_bad(r, key->name, "longer than 127 bytes, or with control bytes");
}

static het_result heti_s_read_version(heti_s_reader *r, const heti_s_key *key, void *to) {
    int64_t version;
    (void)to;
    return heti_s_read_range(r, key->name, 1, 1, &version);
}

static het_result heti_s_read_all(heti_s_reader *r, const char *text, size_t length,
                                  const het_allocator *allocator, het_profile **profile) {
    static const heti_s_key heti_s_keys[] = {
        { "hetrain_profile", heti_s_read_version, 0, 0, NULL, 0 },
        { "kinds", heti_s_read_list, offsetof(het_profile, kinds), 0, heti_s_read_kind, 0 },
        { "units", heti_s_read_list, offsetof(het_profile, units), 0, heti_s_read_unit, 0 },
        { "blocks", heti_s_read_list, offsetof(het_profile, blocks), 0, heti_s_read_block, 0 },
        { "devices", heti_s_read_list, offsetof(het_profile, devices), 0, heti_s_read_device, 0 },
        { "links", heti_s_read_list, offsetof(het_profile, links), 0, heti_s_read_link, 0 },
        { "granule", heti_s_read_integer, offsetof(het_profile, granule), INT64_C(1) << 31, NULL, 0 },
        { "bytes", heti_s_read_bytes, 0, 0, NULL, 0 },
        { "dtype", heti_s_read_word, offsetof(het_profile, dtype), HETI_S_DTYPES, NULL, 0 },
        { "reduce", heti_s_read_word, offsetof(het_profile, reduce), HETI_S_REDUCES, NULL, 0 },
        HETI_S_KEY(het_profile, model, heti_s_read_model), HETI_S_LAST_KEY
    };
    static const heti_s_form heti_s_file = { heti_s_keys, "no such key of a profile", 7, NULL };
    for (int pass = 0; pass < 3; pass++) {
        memset(&r->count, 0, sizeof r->count);
        r->count.dtype = HET_F32;
        r->count.reduce = HET_REDUCE_EXACT;
        r->to = *profile;
        r->last = pass == 2;
        r->json = het_json_start(text, length);
        HETI_T_TRY(heti_s_read_object(r, &heti_s_file, "", &r->count));
        if (!het_json_end(&r->json)) return heti_s_bad(r, "", "");
        if (pass > 0) continue;
        if (r->count.units < 1 || r->count.kinds < 1)
            return heti_s_bad(r, r->count.kinds < 1 ? "kinds" : "units", "there are none");
        HETI_T_TRY(heti_s_profile_new(r->count, allocator, r->call, profile, r->error));
    }
    return HET_OK;
}

HETRAIN_API het_result het_profile_read(const char *text, size_t length, const het_allocator *allocator,
                                        het_profile **profile, het_error *error) {
    het_allocator own;
    HETI_S_NEEDED("het_profile_read", profile, text);
    *profile = NULL;
    HETI_T_TRY(heti_t_choose(allocator, &own, error, "het_profile_read"));
    HETI_S_CLEARED(heti_s_reader, r);
    r.error = error;
    r.call = "het_profile_read";
    const het_result result = heti_s_read_all(&r, text, length, &own, profile);
    if (result == HET_OK) heti_s_find_cuts(*profile);
    else het_profile_free(*profile), *profile = NULL;
    return result;
}

/* ---- merging ---- */

/* The first `fields` fields; *name: the last one compared. */
static int heti_s_same_bytes(const void *a, const void *b, const heti_s_key *field, int fields, const char **name) {
    for (int i = 0; i < fields; i++) {
        *name = field[i].name;
        if (heti_s_unequal(heti_s_field_get(a, &field[i], 0), heti_s_field_get(b, &field[i], 0))) return 0;
    }
    return 1;
}

/* Both must be of one model and the same options: times of another mean nothing here. */
static het_result heti_s_merge_check(const het_profile *a, const het_profile *b, het_error *error) {
    const char *name = "";
    if (strcmp(a->model, b->model) != 0)
        return HETI_S_BAD(error, "het_profile_merge: one is of model \"%s\", the other of \"%s\"", a->model, b->model);
    if (a->dtype != b->dtype)
        return HETI_S_BAD(error, "het_profile_merge: one has dtype %s, the other %s", heti_s_dtype_name(a->dtype),
                          heti_s_dtype_name(b->dtype));
    if (a->reduce != b->reduce)
        return HETI_S_BAD(error, "het_profile_merge: one has reduce %s, the other %s", heti_s_reduce_name(a->reduce),
                          heti_s_reduce_name(b->reduce));
    if (a->granule != b->granule && a->granule > 0 && b->granule > 0)
        return HETI_S_BAD(error, "het_profile_merge: one was measured with granules of %d tokens, the other of %d",
                          a->granule, b->granule);
    if (a->units != b->units || a->kinds != b->kinds || a->blocks != b->blocks || a->uses != b->uses)
        return HETI_S_BAD(error, "het_profile_merge: one has %d units of %d kinds and %d blocks, the other %d, %d and "
                          "%d", a->units, a->kinds, a->blocks, b->units, b->kinds, b->blocks);
    if (!heti_s_same_bytes(a, b, heti_s_byte_keys, 10, &name))
        return HETI_S_BAD(error, "het_profile_merge: bytes \"%s\" are not the same in both", name);
    for (int64_t i = 0; i < a->kinds; i++) /* but for scratch, the last two: that is the device's own business */
        if (strcmp(a->kind[i].name, b->kind[i].name) != 0 || a->kind[i].loss != b->kind[i].loss ||
            !heti_s_same_bytes(&a->kind[i], &b->kind[i], heti_s_kind_keys + 2, 8, &name))
            return HETI_S_BAD(error, "het_profile_merge: kind \"%s\" is not the same in both (\"%s\")", a->kind[i].name,
                              name);
    for (int64_t i = 0; i < a->units; i++)
        if (a->unit[i] != b->unit[i])
            return HETI_S_BAD(error, "het_profile_merge: unit %d is of another kind in each", i);
    for (int64_t i = 0; i < a->blocks; i++)
        if (a->block[i].elements != b->block[i].elements || a->block[i].uses != b->block[i].uses ||
            a->block[i].frozen != b->block[i].frozen || a->block[i].weights != b->block[i].weights)
            return HETI_S_BAD(error, "het_profile_merge: block %d has %d elements in one and %d in the other", i,
                              a->block[i].elements, b->block[i].elements);
    for (int64_t i = 0; i < a->uses; i++)
        if (a->use[i] != b->use[i])
            return HETI_S_BAD(error, "het_profile_merge: use %d of a block is of another unit in each", i);
    return HET_OK;
}

HETRAIN_API het_result het_profile_merge(const het_profile *first, const het_profile *second,
                                         const het_allocator *allocator, het_profile **profile, het_error *error) {
    const het_profile *const both[2] = { first, second };
    het_allocator own;
    HETI_S_OUTPUT("het_profile_merge", profile);
    if (first == NULL || second == NULL) return HETI_S_BAD(error, "het_profile_merge: a profile is NULL");
    HETI_T_TRY(heti_t_choose(allocator, &own, error, "het_profile_merge"));
    HETI_T_TRY(heti_s_merge_check(first, second, error));
    het_profile count = *first;
    count.devices += second->devices;
    count.links += second->links;
    if (count.granule == 0) count.granule = second->granule;
    HETI_T_TRY(heti_s_profile_new(count, &own, "het_profile_merge", profile, error));
    het_profile *to = *profile;
    HETI_T_COPY(to->kind, first->kind, to->kinds);
    HETI_T_COPY(to->unit, first->unit, to->units);
    HETI_T_COPY(to->block, first->block, to->blocks);
    HETI_T_COPY(to->use, first->use, to->uses);
    if (first->cut != NULL) HETI_T_COPY(to->cut, first->cut, to->units);
    to->devices = to->links = 0;
    for (int k = 0; k < 2; k++) {
        for (const het_device_profile *d = both[k]->device; d < both[k]->device + both[k]->devices; d++) {
            const int64_t i = heti_s_named(to->device, sizeof *d, to->devices, d->name);
            het_device_profile copy = *d;
            copy.alone = to->device[i].alone, copy.together = to->device[i].together;
            HETI_T_COPY(copy.alone, d->alone, to->kinds);
            HETI_T_COPY(copy.together, d->together, to->kinds);
            to->device[i] = copy;
            to->devices += i == to->devices;
        }
        for (const het_link_profile *l = both[k]->link; l < both[k]->link + both[k]->links; l++) {
            const int64_t i = heti_s_named(to->link, sizeof *l, to->links, l->name);
            to->link[i] = *l;
            to->links += i == to->links;
        }
    }
    return HET_OK;
}

/* =================================================================================================
   >>measure  Times of units, updates, messages and reductions, by training for a moment.

   Units are timed where they work: a context is made whose units are probes, tables that call the
   real ones and look at the clock. So memory, threads, sums and order of calls are those of a real
   step. Every rank holds a short form of the chain (all kinds of units; of a repeated run of units
   only as many repetitions as fit into HETI_S_MEASURED elements) as a pipeline of its own, so that
   all are at work at once and none waits for another before the end of the step. A step has one
   micro-batch of each shape a rank; a shape's cost is the mean over the faster half of steps, and
       cost = base + token tokens + pair pairs
   is fitted to the shapes, by least squares of relative errors with non-negative terms. Whole steps
   run twice: with backwards in one piece, and in two with recomputation. The rest comes from
   timelines: of the same steps, and of two ranks with units that do nothing.
   ============================================================================================== */

enum { HETI_S_SHAPES = 5, HETI_S_ROUNDS = 24, HETI_S_LEAST_ROUNDS = 3, HETI_S_MEASURED = 1 << 23 };

/* One shape of micro-batch: all of them lie in the same arrays. */
typedef struct heti_s_sample { int64_t tokens, length, granule; double pairs; } heti_s_sample;

/* What is measured beside calls. */
enum { HETI_S_STEP, HETI_S_VERDICT, HETI_S_BEGIN, HETI_S_ACTION, HETI_S_RESTS };

/* By call and sample: seconds and calls of the present step; their mean in each round. */
typedef struct heti_s_call_now { double sum; int64_t count; } heti_s_calls_now[HETI_S_CALLS][HETI_S_SHAPES];
typedef double heti_s_call_rounds[HETI_S_CALLS][HETI_S_SHAPES][HETI_S_ROUNDS];

/* What one rank's probes see. */
typedef struct heti_s_watch {
    const het_device *device;
    double input;                     /* of the backward input whose backward weight is to come */
    het_event *event;
    heti_s_calls_now *now;            /* [kinds] */
    heti_s_call_rounds *round;        /* [kinds] */
    double rest[HETI_S_RESTS][HETI_S_ROUNDS]; /* of an element owned, owned, held; of an action */
    double all[HETI_S_ROUNDS];        /* seconds of all calls of a round */
} heti_s_watch;

typedef struct heti_s_measure {
    const het_measure_desc *desc;
    het_error *error;
    het_allocator allocator;
    het_desc context;                 /* completed, without plan, links and hooks */
    het_profile *profile;
    het_unit *original, *probe;       /* [units] of the whole chain; [probes] */
    struct heti_s_probe *record;      /* [probes] */
    int64_t probes, ranks, shapes, rounds;
    int learning, split;              /* devices are being told apart; I and W come apart */
    heti_s_sample sample[HETI_S_SHAPES];
    heti_s_watch *watch;              /* [devices] */
    int64_t *group;                   /* [devices] which device of the profile */
    het_batch *batch;                 /* [devices shapes] */
    int32_t *token;                   /* [tokens + 1] */
    int64_t *bounds;                  /* [shapes][2 (tokens + 1)] */
    het_device_desc *device;          /* [devices] */
    struct heti_s_idlers *idlers;
    heti_t_arena arena;               /* of the arrays */
} heti_s_measure;

typedef struct heti_s_probe { het_unit unit; heti_s_measure *measure; int64_t kind; } heti_s_probe;

static double heti_s_now(const heti_s_measure *m) { return m->desc->now(m->desc->user); }

/* ---- probes ---- */

static const heti_s_probe *heti_s_probe_of(const het_unit *unit) {
    return HETI_T_CAST(const heti_s_probe *, unit->settings);
}

static heti_s_watch *heti_s_watch_of(const heti_s_probe *probe, const het_unit_call *call) {
    heti_s_measure *m = probe->measure;
    if (m->learning || !call->training) return NULL;
    for (int64_t r = 0; r < m->ranks; r++)
        if (m->watch[r].device == call->device) return &m->watch[r];
    return NULL;
}

/* Waits until the device has done what it was given; most have when a call returns. */
static het_result heti_s_settle(const het_unit_call *call, heti_s_watch *watch) {
    const het_queue_iface *queues = call->device->iface->queues;
    if (watch == NULL || call->queue == NULL) return HET_OK;
    if (watch->event == NULL) HETI_T_TRY(queues->event_create(call->device->self, &watch->event));
    HETI_T_TRY(queues->event_record(call->device->self, call->queue, watch->event));
    return queues->event_sync(call->device->self, watch->event, 600.0);
}

static void heti_s_saw(const heti_s_probe *probe, heti_s_watch *watch, const het_unit_call *call, int what,
                       double seconds) {
    for (int64_t s = 0; s < probe->measure->shapes; s++) {
        const heti_s_sample *sample = &probe->measure->sample[s];
        if (sample->tokens != call->view->tokens || sample->tokens != call->view->sequences * sample->length) continue;
        watch->now[probe->kind][what][s].sum += seconds;
        watch->now[probe->kind][what][s].count++;
        return;
    }
}

static het_result heti_s_probe_describe(const het_unit *unit, het_unit_info *info) {
    return heti_s_probe_of(unit)->unit.iface->describe(&heti_s_probe_of(unit)->unit, info);
}

static het_result heti_s_probe_run(const het_unit_call *call, int which) {
    const heti_s_probe *probe = heti_s_probe_of(call->unit);
    heti_s_watch *watch = heti_s_watch_of(probe, call);
    const het_unit_iface *table = probe->unit.iface;
    het_unit_call own = *call;
    double start = 0, seconds;
    own.unit = &probe->unit;
    if (watch != NULL) {
        HETI_T_TRY(heti_s_settle(call, watch));
        start = heti_s_now(probe->measure);
    }
    HETI_T_TRY(which == 0 ? table->forward(&own) : which == 1 ? table->backward_input(&own) :
               table->backward_weight(&own));
    if (watch == NULL) return HET_OK;
    HETI_T_TRY(heti_s_settle(call, watch));
    seconds = heti_s_now(probe->measure) - start;
    if (which == 0) heti_s_saw(probe, watch, call, call->again ? HETI_S_AGAIN : HETI_S_FORWARD, seconds);
    else if (probe->measure->split) heti_s_saw(probe, watch, call, which == 1 ? HETI_S_INPUT : HETI_S_WEIGHT, seconds);
    /* its backward weight is never called */
    else if (which == 1 && call->info->is_loss) heti_s_saw(probe, watch, call, HETI_S_BACKWARD, seconds);
    else if (which == 1) watch->input = seconds;
    else heti_s_saw(probe, watch, call, HETI_S_BACKWARD, watch->input + seconds);
    return HET_OK;
}

static het_result heti_s_probe_forward(const het_unit_call *call) { return heti_s_probe_run(call, 0); }
static het_result heti_s_probe_input(const het_unit_call *call) { return heti_s_probe_run(call, 1); }
static het_result heti_s_probe_weight(const het_unit_call *call) { return heti_s_probe_run(call, 2); }

static const het_unit_iface heti_s_probe_table = { HETRAIN_UNIT_VERSION, "probe", heti_s_probe_describe,
                                                   heti_s_probe_forward, heti_s_probe_input, heti_s_probe_weight };

/* In the first step, which touches all memory, nothing is timed: each rank tells by which device
   its units will know it. */
static het_result heti_s_learn(void *user, const het_hook_info *info) {
    heti_s_measure *m = HETI_T_CAST(heti_s_measure *, user);
    if (m->learning && info->rank < m->ranks) m->watch[info->rank].device = info->device;
    return HET_OK;
}

static int heti_s_frozen(void *user, const char *parameter) {
    const heti_s_measure *m = HETI_T_CAST(const heti_s_measure *, user);
    return m->desc->desc->frozen != NULL ? m->desc->desc->frozen(m->desc->desc->host.user, parameter) : 0;
}

/* ---- what is run ---- */

/* The longest run of units whose kinds repeat, [*first, *first + *period *times): *period <= 8. */
static void heti_s_repetition(const het_profile *profile, int64_t *first, int64_t *period, int64_t *times) {
    int64_t run;
    *first = *period = 0;
    *times = 1;
    for (int64_t p = 1; p <= 8 && p < profile->units; p++)
        for (int64_t a = 0; a + p < profile->units; a += run + 1) {
            for (run = 0; a + run + p < profile->units && profile->unit[a + run] == profile->unit[a + run + p]; run++) {
            }
            if (run < p || run / p + 1 <= *times * *period / p) continue;
            *first = a;
            *period = p;
            *times = run / p + 1;
        }
}

/* Which units are measured: a repeated run is shortened until the rest has HETI_S_MEASURED
   elements, but not below two repetitions. */
static void heti_s_choose_units(heti_s_measure *m) {
    const het_profile *profile = m->profile;
    int64_t first, period, times, keep, elements = 0, one = 0;
    heti_s_repetition(profile, &first, &period, &times);
    for (const het_block_profile *b = profile->block; b < profile->block + profile->blocks; b++) {
        elements += b->elements; /* of the first unit that has them */
        if (profile->use[b->first_use] >= first && profile->use[b->first_use] < first + period) one += b->elements;
    }
    for (keep = times; keep > 2 && elements > HETI_S_MEASURED; keep--) elements -= one;
    m->probes = 0;
    for (int64_t u = 0; u < profile->units; u++) {
        if (u >= first + keep * period && u < first + times * period) continue;
        const heti_s_probe record = { m->original[u], m, profile->unit[u] };
        het_unit *probe = &m->probe[m->probes];
        *probe = m->original[u];
        probe->iface = &heti_s_probe_table;
        probe->settings = &m->record[m->probes];
        m->record[m->probes++] = record;
    }
}

static void heti_s_add_shape(heti_s_measure *m, int64_t tokens, int64_t length, int64_t granule) {
    const heti_s_sample sample = { tokens, length, heti_s_min(granule, tokens),
                                   heti_s_real(tokens) * (heti_s_real(length) + 1) / 2 };
    if (length < 1 || tokens % length != 0 || m->shapes == HETI_S_SHAPES) return;
    for (int64_t i = 0; i < m->shapes; i++)
        if (m->sample[i].tokens == tokens && m->sample[i].length == length) return;
    m->sample[m->shapes++] = sample;
}

/* Micro-batches of all granules, half of them and one, with the longest sequences and quarters. */
static het_result heti_s_choose_shapes(heti_s_measure *m) {
    const int64_t most = m->context.limits.max_tokens, context = m->context.model.context;
    int64_t length = m->desc->length > 0 ? m->desc->length : context, sequences, tokens, granule, granules, i, start[3];
    if (length > context || length > most)
        return HETI_S_BAD(m->error, "het_profile_measure: sequences of %d tokens; the model's context is %d, "
                          "max_tokens %d", length, context, most);
    sequences = heti_s_min(most / length, m->context.limits.max_sequences);
    tokens = sequences * length;
    granule = length > 512 ? 512 : length;
    for (i = sequences; i > 0 && length <= 512; i--)
        if (m->context.granule > 0 ? i == m->context.granule : sequences % i == 0 && i * length <= 512) {
            granule = i * length;
            break;
        }
    granule = heti_s_min(granule, tokens);
    granules = (tokens + granule - 1) / granule;
    start[0] = tokens;
    start[1] = granules > 1 ? (granules + 1) / 2 * granule : tokens / 2 / length * length;
    start[2] = granules > 2 ? granule : tokens / 4 / length * length;
    for (i = 0; i < 3; i++) {
        const int64_t part = start[i] > 0 && start[i] <= tokens ? start[i] : 0,
                      shortest = length % 4 == 0 && length >= 16 ? length / 4 : length;
        if (part == 0) { /* one sequence: shorter ones */
            heti_s_add_shape(m, length / (2 << (i - 1)), length / (2 << (i - 1)), granule);
            continue;
        }
        heti_s_add_shape(m, part, length, granule);
        if (i != 1 && part <= m->context.limits.max_sequences * shortest) heti_s_add_shape(m, part, shortest, granule);
    }
    return HET_OK;
}

/* Bounds of shape s: sequences, and granules, which are pieces of long ones or whole short ones. */
static het_result heti_s_fill_batch(heti_s_measure *m, int64_t s) {
    const heti_s_sample *sample = &m->sample[s];
    const int64_t room = m->context.limits.max_tokens + 1, sequences = sample->tokens / sample->length;
    int64_t *sequence = m->bounds + 2 * s * room, *granule = sequence + room, count;
    for (int64_t i = 0; i <= sequences; i++) sequence[i] = i * sample->length;
    HETI_T_TRY(het_granules(sequence, sequences, sample->granule / sample->length, granule, room, &count));
    for (int64_t r = 0; r < m->context.layout.device_count; r++) {
        het_batch *batch = &m->batch[r * m->shapes + s];
        batch->tokens = sample->tokens;
        batch->sequences = sequences;
        batch->token = m->token;
        batch->target = m->token + 1;
        batch->sequence_start = sequence;
        batch->granules = count;
        batch->granule_start = granule;
    }
    return HET_OK;
}

/* ---- reading a step ---- */

/* The middle of count values, which are sorted in place. */
static double heti_s_median(double *value, int64_t count) {
    int64_t j;
    for (int64_t i = 1; i < count; i++) {
        const double moved = value[i];
        for (j = i; j > 0 && moved < value[j - 1]; j--) value[j] = value[j - 1];
        value[j] = moved;
    }
    return count == 0 ? 0 : count % 2 == 1 ? value[count / 2] : 0.5 * (value[count / 2 - 1] + value[count / 2]);
}

/* What VERDICT takes of itself: that of the rank that comes last waits for nobody. */
static double heti_s_verdict_time(const het_ctx *ctx, int64_t ranks) {
    double least = 1e300;
    for (int64_t r = 0; r < ranks; r++) {
        double reduced = 0;
        het_timeline timeline;
        het_get_timeline(ctx, r, &timeline);
        for (int64_t i = 0; i < timeline.records; i++) {
            const het_record *record = &timeline.record[i];
            const double from = record->start > reduced ? record->start : reduced;
            if (record->action.kind == HET_ACTION_REDUCE && record->end > reduced) reduced = record->end;
            if (record->action.kind == HET_ACTION_COMMIT && record->end - from < least)
                least = record->end > from ? record->end - from : 0;
        }
    }
    return least < 1e300 ? least : 0;
}

/* What a step says: a round's mean of calls; of updates and overheads what the timelines do. */
static void heti_s_read_step(heti_s_measure *m, const het_ctx *ctx, int64_t round) {
    const double verdict = heti_s_verdict_time(ctx, m->ranks);
    for (int64_t r = 0; r < m->ranks; r++) {
        heti_s_watch *watch = &m->watch[r];
        double step = 0, held, owned, actions = 0, calls = 0, beside = 0;
        het_timeline timeline;
        het_memory memory;
        het_get_timeline(ctx, r, &timeline);
        het_get_memory(ctx, r, &memory);
        held = HETI_T_CAST(double, memory.gradients) / m->profile->gradient_bytes;
        owned = HETI_T_CAST(double, memory.optimizer) / (m->profile->state_bytes > 0 ? m->profile->state_bytes : 1);
        for (int64_t k = 0; k < m->profile->kinds; k++)
            for (int call = 0; call < HETI_S_CALLS; call++)
                for (int shape = 0; shape < HETI_S_SHAPES; shape++) {
                    const struct heti_s_call_now *now = &watch->now[k][call][shape];
                    if (now->count > 0) watch->round[k][call][shape][round] = now->sum / heti_s_real(now->count);
                    calls += now->sum;
                    if (call == HETI_S_FORWARD) beside -= now->sum;
                }
        watch->all[round] = calls;
        for (int64_t i = 0; i < timeline.records; i++) {
            const double seconds = timeline.record[i].end - timeline.record[i].start;
            if (timeline.record[i].action.kind == HET_ACTION_STEP) step += seconds;
            /* between units of a backward pass reductions move on */
            if (timeline.record[i].action.kind != HET_ACTION_F) continue;
            beside += seconds;
            actions++;
        }
        watch->rest[HETI_S_ACTION][round] = actions > 0 && beside > 0 ? beside / actions : 0;
        watch->rest[HETI_S_BEGIN][round] = timeline.records > 0 && held > 0 ? timeline.record[0].start / held : 0;
        watch->rest[HETI_S_STEP][round] = owned > 0 ? step / owned : 0;
        watch->rest[HETI_S_VERDICT][round] = owned > 0 ? verdict / owned : 0;
    }
}

/* Mean of value[] over the faster half of a rank's rounds by order[]: what disturbs only slows
   down. Calls are ordered by the sums of all calls of a round: each by itself would be a choice of
   lucky ones, and what ranks beside each other take from one another would be left out. */
static double heti_s_typical(const double *value, const double *order, int64_t rounds) {
    double sum = 0;
    for (int64_t i = 0; i < rounds; i++) {
        int64_t faster = 0;
        for (int64_t n = 0; n < rounds; n++) faster += order[n] < order[i] || (n < i && !(order[i] < order[n]));
        if (faster < (rounds + 1) / 2) sum += value[i];
    }
    return sum / heti_s_real((rounds + 1) / 2);
}

/* Whether there are enough rounds: of every rank, half of them and HETI_S_LEAST_ROUNDS lie within 2
   % of the mean of those that count. */
static int heti_s_settled(const heti_s_measure *m, int64_t rounds) {
    int64_t n, near;
    for (int64_t r = 0; r < m->ranks; r++) {
        const heti_s_watch *watch = &m->watch[r];
        const double mean = heti_s_typical(watch->all, watch->all, rounds);
        for (n = near = 0; n < rounds; n++) near += watch->all[n] >= 0.98 * mean && watch->all[n] <= 1.02 * mean;
        if (2 * near < rounds || near < HETI_S_LEAST_ROUNDS) return 0;
    }
    return 1;
}

/* Rounds of one context: ranks first .. first + count of the description's devices, or one of them
   at its full speed. */
static het_result heti_s_measure_rounds(heti_s_measure *m, het_ctx *ctx, double until) {
    het_step_info info;
    int64_t round;
    double start = heti_s_now(m), now;
    for (round = -1; round < HETI_S_ROUNDS; round++) {
        m->learning = round < 0;
        for (int64_t r = 0; r < m->ranks; r++) HETI_T_CLEAR(m->watch[r].now, m->profile->kinds);
        if (het_step(ctx, m->batch, m->ranks * m->shapes, &info) != HET_OK)
            return heti_t_fail(m->error, HET_ERR_STATE, "het_profile_measure: %s", het_last_error(ctx));
        if (m->learning) continue;
        if (info.repeated) { round--; continue; }
        heti_s_read_step(m, ctx, round);
        now = heti_s_now(m);
        if (now > until + 2 * (until - start) || (round + 1 >= HETI_S_LEAST_ROUNDS && now > until)) break;
        if (heti_s_settled(m, round + 1)) break;
    }
    m->rounds = round < HETI_S_ROUNDS ? round + 1 : HETI_T_CAST(int64_t, HETI_S_ROUNDS);
    return HET_OK;
}

/* Seconds of a call for an element of its matrix, whatever its rows: 512 of them at once, and in
   blocks of 64; of the least of several times, as what disturbs only slows down. */
static het_result heti_s_measure_product(const heti_s_measure *m, const het_device *device, double *element) {
    enum { HETI_S_SIDE = 256, HETI_S_ROWS = 512, HETI_S_BLOCK = 64, HETI_S_TIMES = 9 };
    const het_device_iface *table = device->iface;
    double least[2] = { 1e300, 1e300 };
    het_result result = HET_OK;
    if (!table->host_memory || table->queues != NULL) return HET_OK;
    HETI_S_CLEARED(het_view, view);
    HETI_S_CLEARED(het_op, op);
    op.kind = HET_OP_LINEAR_FORWARD;
    op.u.linear.view = &view;
    op.u.linear.compute = m->context.dtype;
    op.u.linear.in = op.u.linear.part[0].out = HETI_S_SIDE;
    op.u.linear.parts = 1;
    op.u.linear.rows = HETI_S_ROWS;
    size_t size = (2 * HETI_S_ROWS + HETI_S_SIDE) * HETI_S_SIDE * sizeof(float) + table->workspace(device->self, &op);
    float *memory = HETI_T_CAST(float *, table->alloc(device->self, size));
    if (memory == NULL) return heti_t_fail(m->error, HET_ERR_OOM, "het_profile_measure: out of memory");
    memset(memory, 0, size);
    for (int i = 0; i < 2 * HETI_S_TIMES && result == HET_OK; i++) {
        const int64_t rows = i % 2 == 0 ? HETI_S_ROWS : HETI_S_BLOCK;
        const double start = heti_s_now(m);
        for (int64_t at = 0; at < HETI_S_ROWS && result == HET_OK; at += rows) {
            op.u.linear.rows = view.tokens = view.row_end = rows;
            op.u.linear.part[0].w = memory;
            op.u.linear.x = memory + (HETI_S_SIDE + at) * HETI_S_SIDE;
            op.u.linear.part[0].y = memory + (HETI_S_SIDE + HETI_S_ROWS + at) * HETI_S_SIDE;
            op.u.linear.workspace = memory + (HETI_S_SIDE + 2 * HETI_S_ROWS) * HETI_S_SIDE;
            result = table->run(device->self, NULL, &op);
        }
        least[i % 2] = heti_s_smaller(least[i % 2], heti_s_now(m) - start);
    }
    table->free(device->self, memory, size);
    *element = heti_t_short(heti_s_larger(0, least[1] - least[0]) /
                            (HETI_S_SIDE * HETI_S_SIDE * (HETI_S_ROWS / HETI_S_BLOCK - 1)));
    return result;
}

/* Rank r is a device of the description, without limits. */
static void heti_s_measure_device(heti_s_measure *m, int64_t r, int64_t device) {
    HETI_T_CLEAR(&m->device[r], 1); /* the CPU, where none is told */
    if (m->desc->desc->layout.devices != NULL) m->device[r] = m->desc->desc->layout.devices[device];
    m->device[r].memory_limit = 0;
    m->device[r].max_tokens = 0;
}

/* A context over the short chain: m->ranks devices from number `first` on. */
static het_result heti_s_measure_context(heti_s_measure *m, int64_t first, int split, double until) {
    het_desc desc = m->context;
    het_ctx *ctx = NULL;
    for (int64_t r = 0; r < m->ranks; r++) {
        m->watch[r].device = NULL;
        m->watch[r].event = NULL;
        HETI_T_CLEAR(m->watch[r].round, m->profile->kinds);
        heti_s_measure_device(m, r, first + r);
        if (m->ranks == 1) m->device[r].speed = 0;
    }
    m->split = split;
    desc.layout.devices = m->device;
    desc.layout.device_count = m->ranks;
    desc.limits.max_micro_batches = m->ranks * m->shapes + 1; /* with one there would be sums made at once */
    desc.layout.backward = split ? HET_BACKWARD_SPLIT : HET_BACKWARD_FUSED;
    desc.layout.recompute = split ? HET_YES : HET_NO;
    het_result result = het_create(&desc, &ctx, m->error);
    if (result == HET_OK) result = heti_s_measure_rounds(m, ctx, until);
    if (result == HET_OK && m->ranks == 1 && split == 0 && m->watch->device != NULL)
        result = heti_s_measure_product(m, m->watch->device, &m->profile->device[m->group[first]].product_element);
    for (int64_t r = 0; r < m->ranks; r++) /* events are of devices that are about to go */
        if (m->watch[r].event != NULL)
            m->watch[r].device->iface->queues->event_destroy(m->watch[r].device->self, m->watch[r].event);
    het_destroy(ctx);
    return result;
}

/* ---- from samples to curves ---- */

/* What a call of sample s takes. */
static double heti_s_sampled(const heti_s_sample *sample, het_cost c) {
    return c.base + c.token * heti_s_real(sample->tokens) + c.pair * sample->pairs;
}

/* Solves the normal equations of relative errors for the terms in `terms` (bits: base, token,
   pair), the others stay 0; 0: not solvable or a term is negative. */
static int heti_s_fit_terms(const heti_s_sample *sample, int64_t samples, const double *seconds, int terms,
                            het_cost *curve, double *residual) {
    double a[3][4] = { { 0 } };
    int64_t n = 0, count = 0;
    for (int i = 0; i < 3; i++)
        if (terms >> i & 1) count++;
        else a[i][i] = 1;
    for (int64_t s = 0; s < samples; s++) {
        if (!(seconds[s] > 0)) continue;
        const double x[4] = { 1 / seconds[s], heti_s_real(sample[s].tokens) / seconds[s], sample[s].pairs / seconds[s],
                              1 };
        n++;
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 4; j++)
                if ((terms >> i & 1) && (j == 3 || (terms >> j & 1))) a[i][j] += x[i] * x[j];
    }
    if (n < count) return 0;
    for (int i = 0; i < 3; i++) { /* Gauss and Jordan; the matrix is positive definite where it can be solved at all */
        const double pivot = a[i][i];
        if (!(pivot > 1e-300)) return 0;
        for (int j = 0; j < 4; j++) a[i][j] /= pivot;
        for (int k = 0; k < 3; k++) {
            const double factor = a[k][i];
            for (int j = 0; j < 4 && k != i; j++) a[k][j] -= factor * a[i][j];
        }
    }
    for (int i = 0; i < 3; i++)
        if (!(a[i][3] >= 0)) return 0;
    curve->base = a[0][3], curve->token = a[1][3], curve->pair = a[2][3];
    *residual = 0;
    for (int64_t s = 0; s < samples; s++)
        if (seconds[s] > 0) {
            const double error = heti_s_sampled(&sample[s], *curve) / seconds[s] - 1;
            *residual += error * error;
        }
    *residual = (*residual + 1e-14) / heti_s_real(n > count ? n - count : 1);
    for (int64_t i = 1; i < count; i++) *residual *= 1.5; /* a term must earn its place */
    return 1;
}

static het_cost heti_s_fit(const heti_s_sample *sample, int64_t samples, const double *seconds) {
    double best = 1e300, residual;
    het_cost curve = { 0, 0, 0 }, tried;
    for (int terms = 1; terms < 8; terms++) {
        if (!heti_s_fit_terms(sample, samples, seconds, terms, &tried, &residual) || residual >= best) continue;
        best = residual;
        curve = tried;
    }
    curve.base = heti_t_short(curve.base);
    curve.token = heti_t_short(curve.token);
    curve.pair = heti_t_short(curve.pair);
    return curve;
}

/* Curve of one call of a kind on the ranks of a group: of each shape the mean over ranks and
   rounds. A rank of speed v that is slowed down by sleeping takes what its calls take, t, and
   sleeps (1 / v - 1) times their time on the processor, that of `alone`: what is kept is the time
   of full speed that divided by v gives this sum. */
static het_cost heti_s_fit_call(heti_s_measure *m, int64_t group, int64_t kind, int what, const het_unit_time *alone) {
    double seconds[HETI_S_SHAPES];
    for (int64_t s = 0; s < m->shapes; s++) {
        const double by_itself = heti_s_sampled(&m->sample[s], heti_s_curve(&alone[kind], what));
        double sum = 0, ranks = 0;
        for (int64_t r = 0; r < m->ranks; r++) {
            const double v = m->device[r].speed > 0 ? m->device[r].speed : 1;
            const double *round = m->watch[r].round[kind][what][s];
            if (m->ranks > 1 && m->group[r] != group) continue;
            sum += v * heti_s_typical(round, m->watch[r].all, m->rounds) + (1 - v) * by_itself;
            ranks++;
        }
        seconds[s] = ranks > 0 ? sum / ranks : 0;
    }
    return heti_s_fit(m->sample, m->shapes, seconds);
}

static void heti_s_take_times(heti_s_measure *m, int64_t group, const het_unit_time *alone, het_unit_time *time) {
    for (int64_t k = 0; k < m->profile->kinds; k++)
        for (int call = 0; call < HETI_S_CALLS; call++)
            if (m->split == (call >= HETI_S_INPUT))
                *heti_s_curve_of(&time[k], call) = heti_s_fit_call(m, group, k, call, alone);
}

/* A group's times of updates and overheads; where some ranks are not slowed down, from those. */
static void heti_s_take_rest(heti_s_measure *m, int64_t group, het_device_profile *device) {
    double *const to[HETI_S_RESTS] = { &device->step_element, &device->verdict_element, &device->begin_element,
                                       &device->action };
    for (int what = 0; what < HETI_S_RESTS; what++) {
        double sum = 0, ranks = 0;
        for (int64_t r = 0; r < m->ranks; r++) {
            const double *rest = m->watch[r].rest[what], speed = m->device[r].speed > 0 ? m->device[r].speed : 1;
            if ((m->ranks > 1 && m->group[r] != group) || (what == HETI_S_ACTION && speed < 1)) continue;
            sum += (what == HETI_S_STEP ? speed : 1) * heti_s_typical(rest, rest, m->rounds);
            ranks++;
        }
        if (ranks > 0) *to[what] = heti_t_short(sum / ranks);
    }
}

/* ---- messages and reductions: two ranks whose units do nothing ---- */

typedef struct heti_s_idle { const heti_s_measure *measure; int64_t width, elements; int last; } heti_s_idle;

static het_result heti_s_idle_describe(const het_unit *unit, het_unit_info *info) {
    const heti_s_idle *idle = HETI_T_CAST(const heti_s_idle *, unit->settings);
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

/* The first one takes so long that who waits for it sleeps; who waits for the last still looks
   (hetrain.h, >>messages). */
static het_result heti_s_idle_run(const het_unit_call *call) {
    const heti_s_idle *idle = HETI_T_CAST(const heti_s_idle *, call->unit->settings);
    const double end = heti_s_now(idle->measure) + 2e-4;
    for (int64_t i = 0; i < 1 << 20 && !idle->last && heti_s_now(idle->measure) < end; i++) {}
    return HET_OK;
}

static const het_unit_iface heti_s_idle_table = { HETRAIN_UNIT_VERSION, "idle", heti_s_idle_describe, heti_s_idle_run,
                                                  heti_s_idle_run, heti_s_idle_run };

enum { HETI_S_IDLE_ROWS = 1024, HETI_S_IDLE_WIDTH = 256, HETI_S_IDLE_SIZES = 4, HETI_S_IDLE_STEPS = 15 };

/* What two ranks do: `plan` of two units. */
typedef struct heti_s_idlers {
    heti_s_measure *m;
    het_ctx *ctx;
    het_plan *plan;
    heti_s_idle idle[2];
    het_unit unit[2];
    int64_t bounds[HETI_S_IDLE_ROWS + 1];
    int32_t token[HETI_S_IDLE_ROWS];  /* 0 */
} heti_s_idlers;

static het_result heti_s_idlers_start(heti_s_idlers *s, const char *plan, int64_t elements) {
    heti_s_measure *m = s->m;
    het_desc desc = m->context;
    for (int64_t i = 0; i < 2; i++) {
        heti_s_measure_device(m, i, i);
        m->device[i].speed = 0;
        const heti_s_idle idle = { m, HETI_S_IDLE_WIDTH, i == 0 ? elements : 16, i == 1 };
        const het_unit unit = { &heti_s_idle_table, NULL, 0, &s->idle[i] };
        s->idle[i] = idle;
        s->unit[i] = unit;
    }
    for (int64_t i = 0; i <= HETI_S_IDLE_ROWS; i++) s->bounds[i] = i;
    HETI_S_CLEARED(het_plan_desc, plan_desc);
    plan_desc.units = plan_desc.ranks = 2;
    plan_desc.allocator = m->allocator;
    HETI_T_TRY(het_plan_read(&plan_desc, plan, 2, &s->plan, m->error));
    desc.streams = HET_F32; /* what idle units take */
    desc.units = s->unit;
    desc.layout.devices = m->device;
    desc.unit_count = desc.layout.device_count = 2;
    desc.layout.plan = s->plan;
    desc.host.hook = NULL;
    desc.frozen = NULL;
    desc.reduce = HET_REDUCE_FAST;
    desc.limits.max_tokens = desc.limits.max_sequences = HETI_S_IDLE_ROWS;
    desc.limits.max_micro_batches = 2;
    return het_create(&desc, &s->ctx, m->error);
}

static void heti_s_idlers_end(heti_s_idlers *s) {
    het_destroy(s->ctx);
    het_plan_free(s->plan);
    s->ctx = NULL;
    s->plan = NULL;
}

static het_result heti_s_idlers_step(heti_s_idlers *s, int64_t rows, int64_t count) {
    het_batch batch[2];
    memset(batch, 0, sizeof batch);
    for (int64_t i = 0; i < 2; i++) {
        batch[i].tokens = batch[i].sequences = rows;
        batch[i].token = batch[i].target = s->token;
        batch[i].sequence_start = s->bounds;
    }
    if (het_step(s->ctx, batch, count, NULL) == HET_OK) return HET_OK;
    return heti_t_fail(s->m->error, HET_ERR_STATE, "het_profile_measure: %s", het_last_error(s->ctx));
}

/* The first record of a kind on a rank; of REDUCE and GATHER the one with the most bytes. */
static het_record heti_s_idlers_record(const heti_s_idlers *s, int64_t rank, int32_t kind) {
    het_timeline timeline;
    HETI_S_CLEARED(het_record, found);
    found.bytes = -1;
    het_get_timeline(s->ctx, rank, &timeline);
    for (int64_t i = 0; i < timeline.records; i++)
        if (timeline.record[i].action.kind == kind && timeline.record[i].bytes > found.bytes)
            found = timeline.record[i];
    return found;
}

/* A line through these times: a term earns its place by not being negative. */
static het_cost heti_s_fit_line(const heti_s_sample *sample, const double *seconds) {
    het_cost line;
    double residual;
    if (heti_s_fit_terms(sample, HETI_S_IDLE_SIZES, seconds, 3, &line, &residual)) return line;
    return heti_s_fit(sample, HETI_S_IDLE_SIZES, seconds);
}

/* Ping and pong: from the send on one rank to the gradient that comes back, less what the other
   rank does in between; half of it is one way. Each rank's clock is only compared with itself. */
static het_result heti_s_measure_messages(heti_s_idlers *s, double *latency, double *bandwidth, double *message_byte) {
    double way[HETI_S_IDLE_SIZES], pack[HETI_S_IDLE_SIZES];
    heti_s_sample bytes[HETI_S_IDLE_SIZES]; /* as tokens */
    memset(bytes, 0, sizeof bytes);
    HETI_T_TRY(heti_s_idlers_start(s, "pp", 16));
    for (int64_t size = 0, rows = 4; size < HETI_S_IDLE_SIZES; size++, rows *= 6) {
        double there[HETI_S_IDLE_STEPS], packing[HETI_S_IDLE_STEPS];
        for (int64_t step = -2; step < HETI_S_IDLE_STEPS; step++) {
            HETI_T_TRY(heti_s_idlers_step(s, rows, 1));
            if (step < 0) continue;
            const het_record f0 = heti_s_idlers_record(s, 0, HET_ACTION_F);
            const het_record f1 = heti_s_idlers_record(s, 1, HET_ACTION_F);
            const het_record b0 = heti_s_idlers_record(s, 0, HET_ACTION_B);
            const het_record b1 = heti_s_idlers_record(s, 1, HET_ACTION_B);
            const het_record send = heti_s_idlers_record(s, 0, HET_ACTION_SEND_F);
            const het_record back = heti_s_idlers_record(s, 1, HET_ACTION_SEND_B);
            there[step] = 0.5 * ((b0.start - send.start) - (back.start - f1.start));
            packing[step] = 0.25 * (f0.end - f0.start + f1.end - f1.start + b0.end - b0.start + b1.end - b1.start);
        }
        bytes[size].tokens = rows * HETI_S_IDLE_WIDTH * 4;
        way[size] = heti_s_median(there, HETI_S_IDLE_STEPS);
        pack[size] = heti_s_median(packing, HETI_S_IDLE_STEPS);
    }
    const het_cost line = heti_s_fit_line(bytes, way);
    *bandwidth = line.token > 0 ? heti_t_short(1 / line.token) : 0;
    *latency = heti_t_short(line.base / 2); /* one of two woke who waited; in a team's chain of 8 blocks 2 of 9 do */
    *message_byte = heti_t_short(heti_s_fit_line(bytes, pack).token);
    heti_s_idlers_end(s);
    return HET_OK;
}

/* A reduction and a gathering between two ranks, of few elements and of many: seconds of a byte
   that a rank sends, all work on it included. Two of three bytes of a step are of reductions. */
static het_result heti_s_measure_rings(heti_s_idlers *s, double *ring_byte, double *verdict) {
    double seconds[2][2], bytes[2][2], judged[HETI_S_IDLE_STEPS];
    for (int size = 0; size < 2; size++) {
        double took[2][HETI_S_IDLE_STEPS];
        HETI_T_TRY(heti_s_idlers_start(s, "dp", size == 0 ? 4096 : 1 << 21));
        for (int64_t step = -1; step < HETI_S_IDLE_STEPS; step++) {
            HETI_T_TRY(heti_s_idlers_step(s, 1, 2));
            if (step < 0) continue;
            for (int kind = 0; kind < 2; kind++) {
                took[kind][step] = 1e300;
                for (int64_t r = 0; r < 2; r++) {
                    const het_record x = heti_s_idlers_record(s, r, kind == 0 ? HET_ACTION_REDUCE : HET_ACTION_GATHER);
                    if (x.end - x.start < took[kind][step]) took[kind][step] = x.end - x.start;
                    bytes[kind][size] = heti_s_real(x.bytes);
                }
            }
            if (size == 0) judged[step] = heti_s_verdict_time(s->ctx, 2);
        }
        for (int kind = 0; kind < 2; kind++) seconds[kind][size] = heti_s_median(took[kind], HETI_S_IDLE_STEPS);
        heti_s_idlers_end(s);
    }
    *verdict = heti_t_short(heti_s_median(judged, HETI_S_IDLE_STEPS));
    for (int kind = 0; kind < 2; kind++)
        if (seconds[kind][1] > seconds[kind][0] && bytes[kind][1] > bytes[kind][0])
            *ring_byte += (seconds[kind][1] - seconds[kind][0]) / (bytes[kind][1] - bytes[kind][0]) * (2 - kind) / 3;
    *ring_byte = heti_t_short(*ring_byte);
    return HET_OK;
}

static het_result heti_s_measure_links(heti_s_measure *m) {
    het_profile *profile = m->profile;
    heti_s_idlers *s = m->idlers;
    het_link_profile *link = &profile->link[0];
    double message_byte = 0, ring_byte = 0, verdict = 0;
    s->m = m;
    het_result result = heti_s_measure_messages(s, &link->latency, &link->bandwidth, &message_byte);
    if (result == HET_OK) result = heti_s_measure_rings(s, &ring_byte, &verdict);
    heti_s_idlers_end(s);
    HETI_T_TRY(result);
    memcpy(link->name, "threads", 8);
    for (int64_t i = 0; i < profile->devices; i++) {
        profile->device[i].message_byte = message_byte;
        profile->device[i].ring_byte = ring_byte;
        profile->device[i].verdict_base = verdict;
    }
    return HET_OK;
}

/* ---- the call ---- */

static void heti_s_measure_cut(void *self, heti_t_arena *arena) {
    heti_s_measure *m = HETI_T_CAST(heti_s_measure *, self);
    const int64_t devices = m->context.layout.device_count, kinds = m->profile->kinds,
                  room = m->context.limits.max_tokens + 1;
    HETI_S_ROOMS(het_unit, m->profile->units, &m->original, &m->probe);
    m->record = HETI_S_ROOM(heti_s_probe, m->profile->units);
    m->watch = HETI_S_ROOM(heti_s_watch, devices);
    m->group = HETI_S_ROOM(int64_t, devices);
    m->batch = HETI_S_ROOM(het_batch, devices * HETI_S_SHAPES);
    m->token = HETI_S_ROOM(int32_t, room);
    m->bounds = HETI_S_ROOM(int64_t, 2 * HETI_S_SHAPES * room);
    m->device = HETI_S_ROOM(het_device_desc, devices > 2 ? devices : 2);
    m->idlers = HETI_S_ROOM(heti_s_idlers, 1);
    heti_s_calls_now *now = HETI_S_ROOM(heti_s_calls_now, devices * kinds);
    heti_s_call_rounds *round = HETI_S_ROOM(heti_s_call_rounds, devices * kinds);
    for (int64_t r = 0; round != NULL && r < devices; r++) {
        m->watch[r].now = now + r * kinds;
        m->watch[r].round = round + r * kinds;
    }
}

HETRAIN_API void het_device_name(const het_device_desc *desc, char *name, size_t capacity) {
    const het_device_iface *iface = desc->iface != NULL ? desc->iface : het_cpu_device();
    const char *const isa[] = { HETRAIN_ISA_NAMES };
    const int32_t part = iface->host_memory ? 0 : desc->ordinal >> 8, threads = desc->threads > 0 ? desc->threads : 1;
    heti_t_text text = heti_t_text_in(name, capacity);
    heti_t_format(&text, "%s:%d", iface->name, iface->host_memory ? threads : desc->ordinal & 255);
    if (part > 0) heti_t_format(&text, ":%d-%d", part & 2047, (part >> 11) - 1);
    if (desc->isa > 0 && desc->isa <= HET_ISA_AMX) heti_t_format(&text, ":%s", isa[desc->isa]);
}

/* Devices of one name are one kind: the first of i's. */
static int64_t heti_s_first_alike(const het_desc *desc, int64_t i) {
    const het_device_desc *device = desc->layout.devices;
    char name[48], other[48];
    if (i > 0) het_device_name(&device[i], name, sizeof name);
    for (int64_t k = 0; k < i; k++) {
        het_device_name(&device[k], other, sizeof other);
        if (device[k].iface == device[i].iface && strcmp(name, other) == 0) return k;
    }
    return i;
}

/* The description that contexts are made from, and everything of it that is not measured. */
static void heti_s_measure_desc(heti_s_measure *m) {
    het_desc *d = &m->context;
    d->units = m->probe;
    d->unit_count = m->probes;
    d->layout.plan = NULL;
    d->layout.schedule = NULL;
    d->layout.recompute_unit = NULL;
    memset(&d->emulate, 0, sizeof d->emulate);
    d->inference = HET_NO;
    d->layout.shard = HET_SHARD_STATE; /* what it adds is not the units' own time */
    d->limits.max_slices = 1;
    memset(&d->layout.transport, 0, sizeof d->layout.transport);
    d->optimizer.learning_rate = 1e-30f; /* weights stay, so that no step is measured again for its exponents */
    d->optimizer.minimum_rate = 0;
    d->optimizer.warmup_steps = 0;
    d->optimizer.schedule = HET_LR_CONSTANT;
    d->host.hook = heti_s_learn;
    d->frozen = heti_s_frozen;
    d->host.user = m;
    d->host.allocator = m->allocator;
    memset(&d->host.logger, 0, sizeof d->host.logger);
}

/* Every kind of device alone, then all ranks at once; both in one piece and split. The time left is
   divided among what is left. */
static het_result heti_s_measure_devices(heti_s_measure *m) {
    const int64_t devices = m->context.layout.device_count;
    const int together = devices > 1 && m->desc->together != HET_NO;
    const double seconds = m->desc->seconds > 0 ? m->desc->seconds : 3,
                 parts = heti_s_real(2 * (m->profile->devices + (together ? 1 : 0)));
    double end = heti_s_now(m);
    for (int64_t k = 0; k <= m->profile->devices; k++) {
        const int all = k == m->profile->devices;
        int64_t first = 0;
        if (all && !together) break;
        while (!all && m->group[first] != k) first++;
        m->ranks = all ? devices : 1;
        for (int split = 0; split < 2; split++) {
            const double now = heti_s_now(m);
            end = (end > now ? end : now) + seconds * heti_s_real(m->profile->devices) / parts;
            HETI_T_TRY(heti_s_measure_context(m, first, split, end));
            for (int64_t g = all ? 0 : k; g <= (all ? m->profile->devices - 1 : k); g++) {
                het_device_profile *device = &m->profile->device[g];
                heti_s_take_times(m, g, device->alone, all ? device->together : device->alone);
                if (!all) HETI_T_COPY(device->together, device->alone, m->profile->kinds);
                if (split == 0) heti_s_take_rest(m, g, device);
            }
        }
    }
    return HET_OK;
}

static het_result heti_s_measure_all(heti_s_measure *m) {
    int64_t i, n;
    HETI_T_TRY(heti_t_arrays(&m->arena, 0, heti_s_measure_cut, m, &m->allocator, "het_profile_measure", m->error));
    for (i = n = 0; i < m->context.layout.device_count; i++) {
        const int64_t first = heti_s_first_alike(&m->context, i);
        m->group[i] = first < i ? m->group[first] : n++;
    }
    for (i = m->context.layout.device_count; i-- > 0;) {
        heti_s_measure_device(m, i, i);
        het_device_name(&m->device[i], m->profile->device[m->group[i]].name, sizeof m->profile->device->name);
        m->profile->device[m->group[i]].beside = m->device[i].iface != NULL && m->device[i].iface->queues != NULL;
    }
    if (m->desc->desc->units == NULL)
        HETI_T_TRY(het_model_units(&m->context.model, m->original, m->profile->units, &n, m->error));
    else HETI_T_COPY(m->original, m->desc->desc->units, m->profile->units);
    for (i = 0; i < m->profile->units; i++)
        if (m->original[i].model == NULL) m->original[i].model = &m->context.model;
    heti_s_choose_units(m);
    heti_s_measure_desc(m);
    HETI_T_TRY(heti_s_choose_shapes(m));
    m->profile->granule = m->sample[0].granule;
    const uint64_t vocab = HETI_T_CAST(uint64_t, m->context.model.vocab);
    for (i = 0; i <= m->context.limits.max_tokens; i++)
        m->token[i] = HETI_T_CAST(int32_t, HETI_T_CAST(uint64_t, i) * UINT64_C(2654435761) % vocab);
    for (int64_t s = 0; s < m->shapes; s++) HETI_T_TRY(heti_s_fill_batch(m, s));
    HETI_T_TRY(heti_s_measure_devices(m));
    return m->profile->links > 0 ? heti_s_measure_links(m) : HET_OK;
}

HETRAIN_API het_result het_profile_measure(const het_measure_desc *desc, het_profile **profile, het_error *error) {
    het_description *whole;
    int64_t kinds = 1;
    HETI_S_OUTPUT("het_profile_measure", profile);
    if (desc == NULL || desc->desc == NULL || desc->now == NULL)
        return HETI_S_BAD(error, "het_profile_measure: %s is NULL",
                          desc == NULL ? "desc" : desc->desc == NULL ? "desc->desc" : "desc->now, the clock,");
    if (desc->start_canary != 0 || desc->end_canary != 0)
        return HETI_S_BAD(error, "het_profile_measure: het_measure_desc was not cleared");
    if (!(desc->seconds >= 0 && desc->seconds <= 1e6))
        return HETI_S_BAD(error, "het_profile_measure: %e seconds for a device", desc->seconds);
    HETI_S_CLEARED(heti_s_measure, m);
    m.desc = desc;
    m.error = error;
    HETI_T_TRY(heti_t_choose(&desc->allocator, &m.allocator, error, "het_profile_measure"));
    m.context = *desc->desc;
    if (m.context.start_canary == 0 && m.context.layout.device_count > 1 && m.context.layout.devices == NULL)
        return HETI_S_BAD(error, "het_profile_measure: device_count is %d, devices is NULL",
                          m.context.layout.device_count);
    for (int64_t i = 1; m.context.start_canary == 0 && i < m.context.layout.device_count; i++) /* else refused below */
        kinds += heti_s_first_alike(&m.context, i) == i;
    het_result result = heti_s_describe(desc->desc, desc->model, kinds, m.context.layout.device_count > 1,
                                        &m.allocator, &whole, &m.profile, error);
    het_description_free(whole);
    if (result == HET_OK) result = het_model_complete(&m.context.model, error);
    het_desc_defaults(&m.context);
    if (result == HET_OK) result = heti_s_measure_all(&m);
    heti_t_arrays_free(&m.arena, &m.allocator);
    if (result != HET_OK) het_profile_free(m.profile);
    else *profile = m.profile;
    return result;
}

/* =================================================================================================
   >>cluster  Cluster files: groups within groups, each with a count. A group's members are read
              once for each of its copies, from the place where they stand in the text; the text is
              gone through twice, to count and to fill in.
   ============================================================================================== */

enum { HETI_S_MOST_RANKS = 1 << 20, HETI_S_MOST_IN_MATRIX = 1024 };

/* One member as it stands in the text; what it lacks is 0. */
typedef struct heti_s_member {
    char name[48];
    int64_t count;
    het_cluster_device device;        /* the one or */
    het_group group;                  /* the other */
    het_json members, ranks, matrix[2]; /* at the arrays */
    int32_t rings, wires;
} heti_s_member;

/* "12.5ms" or "10G": a number and what stands behind it. */
static int heti_s_with_unit(const char *text, int seconds, double *value) {
    static const char *const heti_s_units[2][9] = { { "", "K", "M", "G", "T", "Ki", "Mi", "Gi", "Ti" },
                                                   { "", "s", "ms", "us", "ns" } };
    static const double heti_s_factors[2][9] = { { 1, 1e3, 1e6, 1e9, 1e12, 1024, 1048576, 1073741824.0,
                                                  1099511627776.0 }, { 1, 1, 1e3, 1e6, 1e9 } };
    const int units = seconds ? 5 : 9;
    size_t digits = 0;
    int i;
    while ((text[digits] >= '0' && text[digits] <= '9') || text[digits] == '.') digits++;
    het_json json = het_json_start(text, digits);
    if (!het_json_real(&json, value) || !het_json_end(&json)) return 0;
    for (i = 0; i < units && strcmp(text + digits, heti_s_units[seconds][i]) != 0; i++) {}
    if (i == units) return 0;
    *value = seconds ? *value / heti_s_factors[1][i] : *value * heti_s_factors[0][i];
    return 1;
}

enum { HETI_S_SIZE, HETI_S_SECONDS };

/* A number, or text with a unit, from 0 to 1e18. */
static het_result heti_s_read_quantity(heti_s_reader *r, const heti_s_key *key, void *to) {
    static const char *const heti_s_rules[2] = {
        "from 0 to 1e18, as a number or with K, M, G or T behind it",
        "from 0 to 1e18 seconds, as a number or with s, ms, us or ns behind it" };
    const int seconds = key->most == HETI_S_SECONDS;
    double *value = HETI_T_CAST(double *, to);
    const size_t at = r->json.at;
    size_t length = 0;
    char text[48] = "";
    if (het_json_peek(&r->json) == HET_JSON_STRING) {
        if (!het_json_string(&r->json, text, sizeof text, &length)) return HET_OK;
        if (length >= sizeof text || strlen(text) != length || !heti_s_with_unit(text, seconds, value))
            return heti_s_bad_value(r, at, key->name, " is \"%p\", not %s", text, strlen(text), heti_s_rules[seconds]);
    } else if (!het_json_real(&r->json, value)) return HET_OK;
    if (*value >= 0 && *value <= 1e18) return HET_OK;
    return heti_s_bad_value(r, at, key->name, " is %r, not %s", *value, heti_s_rules[seconds]);
}

static het_result heti_s_read_speed(heti_s_reader *r, const heti_s_key *key, void *to) {
    const size_t at = r->json.at;
    double *speed = HETI_T_CAST(double *, to);
    if (!het_json_real(&r->json, speed) || (*speed >= 1e-6 && *speed <= 1e6)) return HET_OK;
    return heti_s_bad_value(r, at, key->name, " is %r, not from 1e-6 to 1e6", *speed);
}

/* The link of a member. */
static het_result heti_s_read_between(heti_s_reader *r, const heti_s_key *key, void *to) {
    static const heti_s_key heti_s_keys[] = {
        { "latency", heti_s_read_quantity, offsetof(heti_s_member, group.latency), HETI_S_SECONDS, NULL, 0 },
        { "bandwidth", heti_s_read_quantity, offsetof(heti_s_member, group.bandwidth), HETI_S_SIZE, NULL, 0 },
        HETI_S_LAST_KEY
    };
    static const heti_s_form heti_s_link = { heti_s_keys, "no such key in \"link\": latency, bandwidth", 0, "" };
    return heti_s_read_object(r, &heti_s_link, key->name, to);
}

/* An array is read later, from here on. */
static het_result heti_s_read_later(heti_s_reader *r, const heti_s_key *key, void *to) {
    *HETI_T_CAST(het_json *, to) = r->json;
    if (het_json_peek(&r->json) != HET_JSON_ARRAY)
        return heti_s_bad(r, key->name, key->of != HETI_S_OF_ROOT ? "must be an array of devices and groups" :
                          strcmp(key->name, "ranks") == 0 ? "must be an array of ranks" :
                          "must be an array of rows, one a rank");
    (void)het_json_skip(&r->json);
    return HET_OK;
}

#define HETI_S_MEMBER(key, field, read, most, of) { key, read, offsetof(heti_s_member, field), most, NULL, of }
static const heti_s_key heti_s_member_keys[] = {
    HETI_S_MEMBER("device", device.profile, heti_s_read_name, 0, HETI_S_OF_DEVICE),
    HETI_S_MEMBER("name", name, heti_s_read_name, 0, HETI_S_OF_DEVICE | HETI_S_OF_GROUP), /* seen: 2; "": none */
    HETI_S_MEMBER("count", count, heti_s_read_integer, HETI_S_MOST_RANKS, HETI_S_OF_DEVICE | HETI_S_OF_GROUP),
    HETI_S_MEMBER("speed", device.speed, heti_s_read_speed, 0, HETI_S_OF_DEVICE),
    HETI_S_MEMBER("memory", device.memory, heti_s_read_quantity, HETI_S_SIZE, HETI_S_OF_DEVICE),
    HETI_S_MEMBER("max_tokens", device.max_tokens, heti_s_read_quantity, HETI_S_SIZE, HETI_S_OF_DEVICE),
    HETI_S_MEMBER("process", group.process, heti_s_read_truth, 0, HETI_S_OF_GROUP),
    { "link", heti_s_read_between, 0, 0, NULL, HETI_S_OF_GROUP },
    HETI_S_MEMBER("bus", group.bus, heti_s_read_quantity, HETI_S_SIZE, HETI_S_OF_GROUP),
    HETI_S_MEMBER("uplink", group.uplink, heti_s_read_quantity, HETI_S_SIZE, HETI_S_OF_GROUP),
    HETI_S_MEMBER("rings", rings, heti_s_read_truth, 0, HETI_S_OF_ROOT),
    HETI_S_MEMBER("wires", wires, heti_s_read_truth, 0, HETI_S_OF_ROOT),
    HETI_S_MEMBER("ranks", ranks, heti_s_read_later, 0, HETI_S_OF_ROOT),
    HETI_S_MEMBER("latencies", matrix[0], heti_s_read_later, 0, HETI_S_OF_ROOT),
    HETI_S_MEMBER("bandwidths", matrix[1], heti_s_read_later, 0, HETI_S_OF_ROOT),
    HETI_S_MEMBER("members", members, heti_s_read_later, 0, HETI_S_OF_GROUP), HETI_S_LAST_KEY
};

/* Of the keys that were seen, each belongs to what the member is. */
static het_result heti_s_cluster_fits(const heti_s_reader *r, size_t at, int root, const heti_s_member *m) {
    const int group = m->members.text != NULL, is = group ? HETI_S_OF_GROUP | (root ? HETI_S_OF_ROOT : 0) :
              HETI_S_OF_DEVICE;
    const heti_s_key *key;
    if (m->device.profile[0] == 0 && !group)
        return heti_s_bad_at(r, at, "members", "is missing, and so is \"device\": which is it?");
    for (key = heti_s_member_keys; key->name != NULL; key++)
        if ((r->seen >> (key - heti_s_member_keys) & 1u) != 0 && (key->of & is) == 0)
            return heti_s_bad_at(r, at, key->name, !group ? "no such key in a device" :
                                 key->of == HETI_S_OF_ROOT ? "belongs into the outermost group" :
                                 "no such key in what has \"members\"");
    if (root && !group) return heti_s_bad_at(r, at, "members", "the whole file is a group: it needs \"members\"");
    if (root && m->count != 1)
        return heti_s_bad_value(r, at, "count", " is %d, not 1: there is one outermost group", m->count);
    return HET_OK;
}

/* All keys of one member, its members left for later. */
static het_result heti_s_cluster_member(heti_s_reader *r, int root, heti_s_member *m) {
    static const heti_s_form heti_s_form_of = { heti_s_member_keys, "no such key: device, name, count, speed, memory, "
                                                "max_tokens; or name, count, process, link, bus, uplink, "
                                                "members; of the outermost rings, wires, ranks, latencies, "
                                                "bandwidths", 0, "" };
    const size_t start = r->json.at;
    memset(m, 0, sizeof *m);
    m->count = 1;
    m->device.speed = 1;
    if (het_json_peek(&r->json) != HET_JSON_OBJECT)
        return heti_s_bad_at(r, start, "members", "a device or a group is an object");
    HETI_T_TRY(heti_s_read_object(r, &heti_s_form_of, "members", m));
    if (m->members.text == NULL && (r->seen & 2) == 0) memcpy(m->name, m->device.profile, sizeof m->name);
    return heti_s_cluster_fits(r, start, root, m);
}

/* The name, with its number where there are several: "node#7". */
static het_result heti_s_cluster_number(const heti_s_reader *r, size_t at, const char *name, int64_t count,
                                        int64_t index, char to[48]) {
    heti_t_text text = heti_t_text_in(to, 48);
    heti_t_format(&text, count > 1 ? "%s#%d" : "%s", name, index);
    if (text.length < 48) return HET_OK;
    return heti_s_bad_value(r, at, "name", " is \"%p#%d\", not at most 47 bytes: with its number more than 47", name,
                            strlen(name), index);
}

/* The next of the ranks that devices are: one that no device before is. */
static het_result heti_s_cluster_next_rank(heti_s_reader *r, int64_t *rank) {
    const int more = het_json_next(&r->order, NULL, 0, NULL);
    const size_t at = r->order.at;
    if (more) (void)het_json_integer(&r->order, rank);
    if (r->order.rule != NULL) return heti_s_bad_at(r, r->order.rule_at, "ranks", r->order.rule);
    if (!more) return heti_s_bad_at(r, at, "ranks", "fewer than there are devices");
    if (*rank >= 0 && *rank < r->cluster->ranks && r->cluster->device[*rank].profile[0] == 0) return HET_OK;
    return heti_s_bad_value(r, at, "ranks", " is %r, not a rank that is left: they count from 0, each comes once",
                            heti_s_real(*rank));
}

static het_result heti_s_cluster_devices(heti_s_reader *r, size_t at, const heti_s_member *m, int64_t group) {
    if (m->count > HETI_S_MOST_RANKS - r->ranks)
        return heti_s_bad_at(r, at, "count", "more than 1048576 devices in the cluster");
    for (int64_t i = 0; i < m->count && r->cluster != NULL; i++) {
        int64_t rank = r->ranks + i;
        if (r->ordered) HETI_T_TRY(heti_s_cluster_next_rank(r, &rank));
        het_cluster_device *device = &r->cluster->device[rank];
        *device = m->device;
        device->group = group;
        HETI_T_TRY(heti_s_cluster_number(r, at, m->name, m->count, i, device->name));
    }
    r->ranks += m->count;
    return HET_OK;
}

/* The cursor is at a member of group `parent`, -1: at the whole; process 1: that is inside one. */
static het_result heti_s_cluster_read(heti_s_reader *r, int64_t parent, int process) {
    const size_t at = r->json.at;
    heti_s_member m;
    HETI_T_TRY(heti_s_cluster_member(r, parent < 0, &m));
    if (m.members.text == NULL) return heti_s_cluster_devices(r, at, &m, parent);
    if (parent < 0 && m.ranks.text != NULL) {
        r->order = m.ranks;
        r->ordered = 1;
        het_json_enter(&r->order, HET_JSON_ARRAY);
    }
    if (parent < 0) memcpy(r->matrix, m.matrix, sizeof r->matrix);
    if (m.group.process && process) return heti_s_bad_at(r, at, "process", "is inside another process");
    const het_json behind = r->json;
    for (int64_t i = 0; i < m.count; i++) {
        const int64_t g = r->groups++, ranks = r->ranks;
        if (g >= HETI_S_MOST_RANKS) return heti_s_bad_at(r, at, "count", "more than 1048576 groups in the cluster");
        if (r->cluster != NULL) {
            het_group *group = &r->cluster->group[g];
            *group = m.group;
            group->parent = parent;
            HETI_T_TRY(heti_s_cluster_number(r, at, m.name, m.count, i, group->name));
        }
        r->json = m.members;
        for (het_json_enter(&r->json, HET_JSON_ARRAY); het_json_next(&r->json, NULL, 0, NULL);)
            HETI_T_TRY(heti_s_cluster_read(r, g, process || m.group.process));
        if (r->json.rule != NULL) return heti_s_bad(r, "members", "");
        if (r->ranks == ranks) return heti_s_bad_at(r, m.members.at, "members", "a group has at least one device");
    }
    r->json = behind;
    if (parent < 0 && r->cluster != NULL) {
        memcpy(r->cluster->name, m.name, sizeof m.name);
        r->cluster->rings = m.rings, r->cluster->wires = m.wires;
    }
    return HET_OK;
}

static void heti_s_cluster_cut(void *self, heti_t_arena *arena) {
    het_cluster *c = HETI_T_CAST(het_cluster *, self);
    c->device = HETI_S_ROOM(het_cluster_device, c->ranks);
    c->group = HETI_S_ROOM(het_group, c->groups);
    c->link = HETI_S_ROOM(het_link_cost, HETI_T_CAST(int64_t, c->size) * c->ranks * c->ranks);
    if (c->size == 0) c->link = NULL;
}

/* matrix: 1 with one. */
static het_result heti_s_cluster_new(int64_t ranks, int64_t groups, int matrix, const het_allocator *allocator,
                                     const char *call, het_cluster **cluster, het_error *error) {
    HETI_S_CLEARED(het_cluster, made);
    made.ranks = ranks;
    made.groups = groups;
    made.size = matrix != 0;
    made.allocator = *allocator;
    *cluster = HETI_S_MAKE(het_cluster, made, heti_s_cluster_cut, allocator, call, error);
    return *cluster != NULL ? HET_OK : HET_ERR_OOM;
}

/* Rows and columns are ranks. What one of the two matrices does not say is the groups'. */
static het_result heti_s_cluster_matrix(heti_s_reader *r, int which) {
    static const heti_s_key heti_s_keys[2] = { { "latencies", heti_s_read_quantity, 0, HETI_S_SECONDS, NULL, 0 },
                                               { "bandwidths", heti_s_read_quantity, 0, HETI_S_SIZE, NULL, 0 } };
    const heti_s_key *key = &heti_s_keys[which];
    const int64_t ranks = r->cluster->ranks;
    int64_t row = 0, column;
    size_t at = r->matrix[which].at;
    r->json = r->matrix[which];
    for (het_json_enter(&r->json, HET_JSON_ARRAY); het_json_next(&r->json, NULL, 0, NULL); row++) {
        at = r->json.at;
        if (row == ranks) return heti_s_bad_at(r, at, key->name, "more rows than there are devices");
        het_json_enter(&r->json, HET_JSON_ARRAY);
        for (column = 0; het_json_next(&r->json, NULL, 0, NULL); column++) {
            het_link_cost *link = &r->cluster->link[row * ranks + column];
            if (column == ranks) return heti_s_bad(r, key->name, "more numbers in a row than there are devices");
            HETI_T_TRY(heti_s_read_quantity(r, key, which == 0 ? &link->latency : &link->bandwidth));
        }
        if (r->json.rule != NULL) return heti_s_bad(r, key->name, "");
        if (column < ranks) return heti_s_bad_at(r, at, key->name, "fewer numbers in a row than there are devices");
    }
    if (row == ranks && r->json.rule == NULL) return HET_OK;
    return heti_s_bad(r, key->name, "fewer rows than there are devices");
}

static het_result heti_s_cluster_pass(heti_s_reader *r, const char *text, size_t length) {
    het_cluster *c = r->cluster;
    r->json = het_json_start(text, length);
    r->ranks = r->groups = 0;
    HETI_T_TRY(heti_s_cluster_read(r, -1, 0));
    const het_json behind = r->json;
    for (int64_t i = 0; c != NULL && c->link != NULL && i < c->ranks * c->ranks; i++)
        c->link[i] = heti_s_tree_link(c, i / c->ranks, i % c->ranks);
    for (int i = 0; i < 2 && c != NULL; i++)
        if (r->matrix[i].text != NULL) HETI_T_TRY(heti_s_cluster_matrix(r, i));
    r->json = behind;
    if (c != NULL && r->ordered && het_json_next(&r->order, NULL, 0, NULL))
        return heti_s_bad_at(r, r->order.at, "ranks", "more than there are devices");
    return het_json_end(&r->json) ? HET_OK : heti_s_bad(r, "members", "");
}

HETRAIN_API het_result het_cluster_read(const char *text, size_t length, const het_allocator *allocator,
                                        het_cluster **cluster, het_error *error) {
    het_allocator own;
    HETI_S_NEEDED("het_cluster_read", cluster, text);
    *cluster = NULL;
    HETI_T_TRY(heti_t_choose(allocator, &own, error, "het_cluster_read"));
    HETI_S_CLEARED(heti_s_reader, r);
    r.error = error;
    r.call = "het_cluster_read";
    HETI_T_TRY(heti_s_cluster_pass(&r, text, length));
    const int matrix = r.matrix[0].text != NULL || r.matrix[1].text != NULL;
    if (matrix && r.ranks > HETI_S_MOST_IN_MATRIX)
        return heti_t_fail(error, HET_ERR_FORMAT, "het_cluster_read: a matrix of links between %d devices; the most "
                           "are 1024", r.ranks);
    HETI_T_TRY(heti_s_cluster_new(r.ranks, r.groups, matrix, &own, "het_cluster_read", &r.cluster, error));
    const het_result result = heti_s_cluster_pass(&r, text, length);
    if (result != HET_OK) het_cluster_free(r.cluster);
    else *cluster = r.cluster;
    return result;
}

HETRAIN_API void het_cluster_free(het_cluster *cluster) {
    if (cluster != NULL) heti_s_give_back(&cluster->allocator, cluster, cluster->size);
}

HETRAIN_API het_result het_cluster_flat(int64_t ranks, const het_cluster_device *device, double latency,
                                        double bandwidth, const het_allocator *allocator, het_cluster **cluster,
                                        het_error *error) {
    het_allocator own;
    HETI_S_OUTPUT("het_cluster_flat", cluster);
    if (ranks < 1 || ranks > HETI_S_MOST_RANKS || !heti_t_is_time(latency) || !heti_t_is_time(bandwidth))
        return HETI_S_BAD(error, "het_cluster_flat: %d devices (1 to 1048576), latency %e, bandwidth %e", ranks,
                          latency, bandwidth);
    HETI_T_TRY(heti_t_choose(allocator, &own, error, "het_cluster_flat"));
    for (int64_t i = 0; i < ranks && device != NULL; i++)
        if (!(device[i].speed >= 1e-6 && device[i].speed <= 1e6) || !heti_t_is_time(device[i].memory) ||
            !heti_t_is_time(device[i].max_tokens))
            return HETI_S_BAD(error, "het_cluster_flat: device %d has speed %e (from 1e-6 to 1e6), memory %e and "
                              "max_tokens %e", i, device[i].speed, device[i].memory, device[i].max_tokens);
    HETI_T_TRY(heti_s_cluster_new(ranks, 1, 0, &own, "het_cluster_flat", cluster, error));
    het_group *whole = (*cluster)->group;
    whole->parent = -1, whole->process = 1;
    whole->latency = latency, whole->bandwidth = bandwidth;
    for (int64_t i = 0; i < ranks; i++) {
        het_cluster_device *to = &(*cluster)->device[i];
        if (device != NULL) *to = device[i];
        else {
            heti_t_text name = heti_t_text_in(to->name, sizeof to->name);
            heti_t_text profile = heti_t_text_in(to->profile, sizeof to->profile);
            heti_t_format(&name, ranks > 1 ? "device#%d" : "device", i);
            heti_t_format(&profile, "device");
            to->speed = 1;
        }
        to->group = 0;
    }
    return HET_OK;
}

/* ---- hardware ---- */

#define HETI_S_FIGURE(type, field, kind) { #field, heti_s_read_quantity, offsetof(type, field), kind, NULL, 0 }
static het_result heti_s_read_hardware_device(heti_s_reader *r) {
    static const heti_s_key heti_s_keys[] = {
        HETI_S_KEY(het_hardware_device, name, heti_s_read_name), HETI_S_FIGURE(het_hardware_device, f32, HETI_S_SIZE),
        HETI_S_FIGURE(het_hardware_device, bandwidth, HETI_S_SIZE),
        HETI_S_FIGURE(het_hardware_device, bf16, HETI_S_SIZE), HETI_S_FIGURE(het_hardware_device, memory, HETI_S_SIZE),
        HETI_S_FIGURE(het_hardware_device, launch, HETI_S_SECONDS),
        HETI_S_FIGURE(het_hardware_device, max_tokens, HETI_S_SIZE), HETI_S_LAST_KEY
    };
    static const heti_s_form heti_s_form_of = { heti_s_keys, "no such key: name, f32, bf16, bandwidth, memory, launch, "
                                                "max_tokens", 7, NULL };
    const size_t at = r->json.at;
    const int64_t n = r->hardware->devices;
    het_hardware_device *d = &r->hardware->device[n];
    if (n == HETRAIN_MAX_HARDWARE) return heti_s_bad(r, "devices", "more than 16");
    HETI_T_TRY(heti_s_read_object(r, &heti_s_form_of, "devices", d));
    if (!(d->f32 > 0) || !(d->bandwidth > 0))
        return heti_s_bad_at(r, at, d->f32 > 0 ? "bandwidth" : "f32", "must be above 0");
    return heti_s_first_named(r, r->hardware->device, sizeof *d, n);
}

static het_result heti_s_read_hardware_link(heti_s_reader *r) {
    static const heti_s_key heti_s_keys[] = {
        HETI_S_KEY(het_link_profile, name, heti_s_read_name), HETI_S_FIGURE(het_link_profile, latency, HETI_S_SECONDS),
        HETI_S_FIGURE(het_link_profile, bandwidth, HETI_S_SIZE), HETI_S_LAST_KEY
    };
    static const heti_s_form heti_s_form_of = { heti_s_keys, "no such key: name, latency, bandwidth", 1, NULL };
    if (r->hardware->links == HETRAIN_MAX_HARDWARE) return heti_s_bad(r, "links", "more than 16");
    HETI_T_TRY(heti_s_read_object(r, &heti_s_form_of, "links", &r->hardware->link[r->hardware->links]));
    return heti_s_first_named(r, r->hardware->link, sizeof r->hardware->link[0], r->hardware->links);
}

HETRAIN_API het_result het_hardware_read(const char *text, size_t length, het_hardware *hardware, het_error *error) {
    static const heti_s_key heti_s_keys[] = {
        { "devices", heti_s_read_list, offsetof(het_hardware, devices), 0, heti_s_read_hardware_device, 0 },
        { "links", heti_s_read_list, offsetof(het_hardware, links), 0, heti_s_read_hardware_link, 0 }, HETI_S_LAST_KEY
    };
    static const heti_s_form heti_s_form_of = { heti_s_keys, "no such key: devices, links", 1, NULL };
    HETI_S_NEEDED("het_hardware_read", text, hardware);
    HETI_S_CLEARED(heti_s_reader, r);
    HETI_S_CLEARED(het_hardware, made);
    r.error = error;
    r.call = "het_hardware_read";
    r.hardware = &made;
    r.json = het_json_start(text, length);
    HETI_T_TRY(heti_s_read_object(&r, &heti_s_form_of, "", &made));
    if (!het_json_end(&r.json) || made.devices == 0) return heti_s_bad(&r, "devices", "there are none");
    *hardware = made;
    return HET_OK;
}

/* Of one call: what a token and a pair of query and key take, and bytes that tokens share. */
typedef struct heti_s_work { double flops, pair_flops, bytes, shared; } heti_s_work;

/* Of a node. `values`: bytes of an element of them. */
static int heti_s_node_work(const het_description *d, const het_described_unit *unit, const het_node *n,
                            het_action_kind call, heti_s_work *w) {
    const int linear = n->kind == HET_NODE_LINEAR, embeds = n->kind == HET_NODE_EMBEDDING;
    const double values = d->desc.dtype == HET_BF16 ? 2 : 4, sum = d->desc.reduce == HET_REDUCE_FAST ? 4 : 8;
    double in = 0, out = 0, elements = 0, trained = 0;
    for (int i = 0; i < n->inputs; i++) in += heti_s_real(unit->program.value[n->x[i]].width);
    for (int i = 0; i < n->outputs; i++) out += heti_s_real(unit->program.value[n->y[i]].width);
    for (int i = 0; i < 3; i++) {
        het_parameter_info p;
        if (n->weight[i] < 0 || het_parameter_get_info(d->ctx, unit->parameter[n->weight[i]], &p) != HET_OK) continue;
        elements += heti_s_real(p.count);
        trained += p.frozen ? 0 : heti_s_real(p.count);
    }
    w->flops = linear ? 2 * elements : 4 * (in + out);
    w->bytes = values * (in + out);
    w->shared = linear ? 4 * elements : 0;
    if (n->kind == HET_NODE_ATTENTION) w->pair_flops = 4 * heti_s_real(unit->program.value[n->x[0]].width);
    if (call == HET_ACTION_F) return 1;
    if (n->kind == HET_NODE_COPY || n->kind == HET_NODE_LOSS) return 0; /* no op, or it has made the gradient */
    if (call == HET_ACTION_I) {
        w->pair_flops *= 2.5; /* five products for two */
        if (!linear) w->bytes += values * in;
        return !embeds;
    }
    if (linear) w->shared = 2 * sum * trained; /* a sum is read and written */
    if (embeds) w->bytes += 2 * sum * out;
    return trained > 0;
}

HETRAIN_API het_op_price het_hardware_price(const het_hardware_device *device, const het_description *description,
                                            int64_t unit, int64_t node, het_action_kind call, double tokens,
                                            double pairs) {
    static const char *const heti_s_names[HET_NODES] = { "embedding", "norm", "head norm", "linear", "rotary",
                                                         "attention", "activation", "residual", "copy", "loss" };
    const het_described_unit *of = &description->unit[unit];
    const double speed = description->desc.dtype == HET_BF16 && device->bf16 > 0 ? device->bf16 : device->f32;
    heti_s_work w = { 0, 0, 0, 0 };
    HETI_S_CLEARED(het_op_price, price);
    if (node < of->program.nodes) {
        if (!heti_s_node_work(description, of, &of->program.node[node], call, &w)) return price;
        price.name = heti_s_names[of->program.node[node].kind];
    } else {
        if (node > 0) return price;
        price.name = of->unit.iface->name;
        w.flops = call == HET_ACTION_F ? of->info.flops_forward : call == HET_ACTION_I ? of->info.flops_input :
            of->info.flops_weight;
        w.bytes = heti_s_streams(&of->info, of->info.in_streams, of->info.in_width) +
            heti_s_streams(&of->info, of->info.out_streams, of->info.out_width);
    }
    price.flops = w.flops * tokens + w.pair_flops * pairs;
    price.bytes = w.bytes * tokens + w.shared;
    const double by_flops = price.flops / speed, by_bytes = price.bytes / device->bandwidth;
    price.memory_bound = by_bytes > by_flops;
    price.seconds = device->launch + (price.memory_bound ? by_bytes : by_flops);
    price.cost.base = device->launch + (price.memory_bound ? w.shared / device->bandwidth : 0);
    price.cost.token = price.memory_bound ? w.bytes / device->bandwidth : w.flops / speed;
    price.cost.pair = price.memory_bound ? 0 : w.pair_flops / speed;
    return price;
}

/* A unit's times. A loss unit does it all in I. */
static het_unit_time heti_s_hardware_time(const het_hardware_device *device, const het_description *d, int64_t u,
                                          double tokens, double pairs) {
    static const het_action_kind heti_s_calls[3] = { HET_ACTION_F, HET_ACTION_I, HET_ACTION_W };
    HETI_S_CLEARED(het_unit_time, t);
    for (int c = 0; c < 3; c++)
        for (int64_t n = 0; n < (d->unit[u].program.nodes > 0 ? d->unit[u].program.nodes : 1); n++) {
            const het_op_price price = het_hardware_price(device, d, u, n, heti_s_calls[c], tokens, pairs);
            het_cost *to = d->unit[u].info.is_loss || c == 1 ? &t.input : c == 0 ? &t.forward : &t.weight;
            if (price.name != NULL) heti_s_add_curve(to, price.cost, 1);
        }
    t.recompute = t.forward;
    t.backward = t.input;
    heti_s_add_curve(&t.backward, t.weight, 1);
    return t;
}

static void heti_s_hardware_fill(const het_hardware *hardware, const het_description *d, int64_t length,
                                 het_profile *profile) {
    const double tokens = heti_s_real(d->desc.limits.max_tokens), pairs = tokens * (heti_s_real(length) + 1) / 2;
    for (int64_t i = 0; i < hardware->devices; i++) {
        const het_hardware_device *from = &hardware->device[i];
        het_device_profile *to = &profile->device[i];
        memcpy(to->name, from->name, sizeof to->name);
        for (int64_t u = 0; u < d->units; u++)
            to->alone[profile->unit[u]] = to->together[profile->unit[u]] = heti_s_hardware_time(from, d, u, tokens,
                                                                                                pairs);
        /* updates read the gradient, read and write weight and state; sums read two, write one */
        to->step_element = (profile->gradient_bytes + 2 * (profile->weight_bytes + profile->state_bytes)) /
            from->bandwidth;
        to->begin_element = to->verdict_element = profile->gradient_bytes / from->bandwidth;
        to->message_byte = 2 / from->bandwidth;
        to->ring_byte = 3 / from->bandwidth;
        to->verdict_base = to->action = from->launch;
        to->max_tokens = from->max_tokens;
    }
    for (int64_t i = 0; i < hardware->links; i++) profile->link[i] = hardware->link[i];
}

HETRAIN_API het_result het_hardware_profile(const het_hardware *hardware, const het_desc *desc, int64_t length,
                                            const char *model, const het_allocator *allocator, het_profile **profile,
                                            het_error *error) {
    het_description *d;
    het_allocator own;
    HETI_S_OUTPUT("het_hardware_profile", profile);
    if (hardware == NULL || hardware->devices < 1 || hardware->devices > HETRAIN_MAX_HARDWARE || hardware->links < 0 ||
        hardware->links > HETRAIN_MAX_HARDWARE || length < 1)
        return HETI_S_BAD(error, "het_hardware_profile: no devices or more than %i, or length %d",
                          HETRAIN_MAX_HARDWARE, length);
    HETI_T_TRY(heti_t_choose(allocator, &own, error, "het_hardware_profile"));
    const het_result result = heti_s_describe(desc, model, hardware->devices, hardware->links, &own, &d, profile,
                                              error);
    if (result == HET_OK) heti_s_hardware_fill(hardware, d, length, *profile);
    het_description_free(d);
    return result;
}

/* Groups come behind their parents, every device is in one, and names end. */
static het_result heti_s_check_groups(const het_cluster *c, const char *call, het_error *error) {
    for (int64_t g = 0; g < c->groups; g++) {
        const int64_t parent = c->group[g].parent;
        if (memchr(c->group[g].name, 0, sizeof c->group[g].name) == NULL)
            return HETI_S_BAD(error, "%s: the name of group %d has no end", call, g);
        if (parent >= g || parent < -1 || (parent == -1 && g > 0))
            return HETI_S_BAD(error, "%s: group %d (%s) has parent %d", call, g, c->group[g].name, parent);
    }
    for (int64_t r = 0; r < c->ranks; r++) {
        const het_cluster_device *device = &c->device[r];
        if (memchr(device->name, 0, sizeof device->name) == NULL ||
            memchr(device->profile, 0, sizeof device->profile) == NULL)
            return HETI_S_BAD(error, "%s: the name of device %d or of its profile has no end", call, r);
        if (device->group < 0 || device->group >= c->groups)
            return HETI_S_BAD(error, "%s: device %d (%s): group %d of %d", call, r, device->name, device->group,
                              c->groups);
    }
    return HET_OK;
}

/* ---- writing: equal members that follow each other become one with a count ---- */

/* What is being written, and what comes next. */
typedef struct heti_s_cluster_writer {
    const het_cluster *cluster;
    heti_t_text out;
    char room[4096];
    int64_t rank, group;
    int bad;                          /* devices or groups are not in the order in which a file would give them */
} heti_s_cluster_writer;

/* Behind the groups that are inside group g. */
static int64_t heti_s_groups_end(const het_cluster *c, int64_t g) {
    int64_t end = g + 1;
    while (end < c->groups && c->group[end].parent >= g) end++;
    return end;
}

/* Behind the devices from `rank` on that are in groups [g, end). */
static int64_t heti_s_devices_end(const het_cluster *c, int64_t rank, int64_t g, int64_t end) {
    while (rank < c->ranks && c->device[rank].group >= g && c->device[rank].group < end) rank++;
    return rank;
}

/* "node#7" is "node" and 7; anything else has no number. */
static int64_t heti_s_name_number(const char *name, size_t *base) {
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
static int heti_s_names_count(const char *first, const char *other, int64_t number) {
    size_t base, other_base;
    return heti_s_name_number(first, &base) == 0 && heti_s_name_number(other, &other_base) == number &&
        base == other_base && memcmp(first, other, base) == 0;
}

static int heti_s_same_device(const het_cluster_device *a, const het_cluster_device *b) {
    return strcmp(a->profile, b->profile) == 0 && !heti_s_unequal(a->speed, b->speed) &&
        !heti_s_unequal(a->memory, b->memory) && !heti_s_unequal(a->max_tokens, b->max_tokens);
}

static int heti_s_same_group(const het_group *a, const het_group *b) {
    return !heti_s_unequal(a->latency, b->latency) && !heti_s_unequal(a->bandwidth, b->bandwidth) &&
        !heti_s_unequal(a->bus, b->bus) && !heti_s_unequal(a->uplink, b->uplink) &&
        (a->process != 0) == (b->process != 0);
}

/* Groups [g, ...) and [h, ...) with the devices from rank on are alike but for the number in the
   name of the outermost. */
static int heti_s_same_members(const het_cluster *c, int64_t g, int64_t rank, int64_t h, int64_t other) {
    const int64_t end = heti_s_groups_end(c, g), count = end - g, ranks = heti_s_devices_end(c, rank, g, end) - rank;
    if (heti_s_groups_end(c, h) - h != count || heti_s_devices_end(c, other, h, h + count) - other != ranks) return 0;
    for (int64_t i = 0; i < count; i++)
        if (!heti_s_same_group(&c->group[g + i], &c->group[h + i]) ||
            (i > 0 && (c->group[g + i].parent - g != c->group[h + i].parent - h ||
                       strcmp(c->group[g + i].name, c->group[h + i].name) != 0)))
            return 0;
    for (int64_t i = 0; i < ranks; i++)
        if (!heti_s_same_device(&c->device[rank + i], &c->device[other + i]) ||
            c->device[rank + i].group - g != c->device[other + i].group - h ||
            strcmp(c->device[rank + i].name, c->device[other + i].name) != 0)
            return 0;
    return 1;
}

/* ,"key":value, where it is not 0. */
static void heti_s_out_key(heti_t_text *out, const char *key, double value) {
    if (value > 0) heti_t_format(out, ",\"%s\":%r", key, value);
}

/* The first of `count` names, without its number; nothing where a reader makes the same of it. */
static void heti_s_out_member(heti_t_text *out, const char *name, int64_t count, const char *made) {
    size_t length = strlen(name);
    if (count > 1) (void)heti_s_name_number(name, &length);
    if (strlen(made) != length || memcmp(name, made, length) != 0) {
        heti_t_put(out, ",\"name\":");
        heti_t_json(out, name, length);
    }
    if (count > 1) heti_t_format(out, ",\"count\":%d", count);
}

/* n devices, of which this is the first. */
static void heti_s_write_device(heti_t_text *out, const het_cluster_device *device, int64_t n) {
    heti_t_format(out, "{\"device\":%j", device->profile);
    heti_s_out_member(out, device->name, n, device->profile);
    if (device->speed < 1 || device->speed > 1) heti_s_out_key(out, "speed", device->speed);
    heti_s_out_key(out, "memory", device->memory);
    heti_s_out_key(out, "max_tokens", device->max_tokens);
    heti_t_char(out, '}');
}

static void heti_s_write_devices(heti_s_cluster_writer *w) {
    const het_cluster *c = w->cluster;
    const het_cluster_device *device = &c->device[w->rank];
    int64_t n = 1;
    while (w->rank + n < c->ranks && device[n].group == device->group && heti_s_same_device(device, &device[n]) &&
           heti_s_names_count(device->name, device[n].name, n)) n++;
    heti_s_write_device(&w->out, device, n);
    w->rank += n;
}

/* All of n groups, of which this is the first, up to their members. */
static void heti_s_write_link(heti_t_text *out, const het_group *group, int64_t n) {
    heti_t_format(out, "{\"link\":{\"latency\":%r", group->latency);
    heti_s_out_key(out, "bandwidth", group->bandwidth);
    heti_t_char(out, '}');
    heti_s_out_member(out, group->name, n, "");
    if (group->process) heti_t_put(out, ",\"process\":true");
    heti_s_out_key(out, "bus", group->bus);
    heti_s_out_key(out, "uplink", group->uplink);
    heti_t_put(out, ",\"members\":[");
}

static void heti_s_write_next(heti_t_text *out, int more, int depth) {
    heti_t_put(out, more ? ",\n" : "\n");
    for (; depth >= 0; depth--) heti_t_put(out, "  ");
}

static void heti_s_write_matrices(heti_s_cluster_writer *w) {
    const het_cluster *c = w->cluster;
    if (c->rings || c->wires) heti_t_put(&w->out, c->rings ? ",\n  \"rings\":true" : ",\n  \"wires\":true");
    for (int which = 0; which < 2 && c->link != NULL; which++) {
        heti_t_put(&w->out, which == 0 ? ",\n  \"latencies\":[" : ",\n  \"bandwidths\":[");
        for (int64_t i = 0; i < c->ranks * c->ranks; i++) {
            const int first = i % c->ranks == 0;
            heti_t_format(&w->out, first ? i > 0 ? "],\n    [%r" : "\n    [%r" : ",%r",
                          which == 0 ? c->link[i].latency : c->link[i].bandwidth);
        }
        heti_t_put(&w->out, "]]");
    }
}

static void heti_s_write_group(heti_s_cluster_writer *w, int depth) {
    const het_cluster *c = w->cluster;
    const int64_t g = w->group, first = w->rank, size = heti_s_groups_end(c, g) - g,
                  ranks = heti_s_devices_end(c, first, g, g + size) - first;
    const het_group *group = &c->group[g];
    int64_t n = 1;
    int more = 0;
    while (g + n * size < c->groups && c->group[g + n * size].parent == group->parent &&
           heti_s_names_count(group->name, c->group[g + n * size].name, n) &&
           heti_s_same_members(c, g, first, g + n * size, first + n * ranks)) n++;
    heti_s_write_link(&w->out, group, n);
    for (w->group++; !w->bad; more = 1) {
        const int is_device = w->rank < c->ranks && c->device[w->rank].group == g;
        if (!is_device && !(w->group < c->groups && c->group[w->group].parent == g)) break;
        heti_s_write_next(&w->out, more, depth);
        if (is_device) heti_s_write_devices(w);
        else if (depth < HETRAIN_COMMUNICATOR_DEPTH) heti_s_write_group(w, depth + 1);
        else w->bad = 1;
    }
    heti_t_char(&w->out, ']');
    if (depth == 0) heti_s_write_matrices(w);
    heti_t_char(&w->out, '}');
    if (w->rank == first || w->rank != first + ranks || w->group != g + size) w->bad = 1;
    w->rank = first + n * ranks, w->group = g + n * size;
}

/* A group of any order: its devices, then its groups; or only their ranks. */
static void heti_s_write_any(heti_s_cluster_writer *w, int64_t g, int depth, int ranks) {
    const het_cluster *c = w->cluster;
    const int64_t before = w->rank;
    int more = 0;
    if (!ranks) heti_s_write_link(&w->out, &c->group[g], 1);
    for (int64_t i = 0; i < c->ranks; i++) {
        if (c->device[i].group != g) continue;
        if (ranks) heti_t_format(&w->out, w->rank > 0 ? ",%d" : "%d", i);
        else {
            heti_s_write_next(&w->out, more++, depth);
            heti_s_write_device(&w->out, &c->device[i], 1);
        }
        w->rank++;
    }
    for (int64_t i = g + 1; i < c->groups && depth < HETRAIN_COMMUNICATOR_DEPTH; i++) {
        if (c->group[i].parent != g) continue;
        if (!ranks) heti_s_write_next(&w->out, more++, depth);
        heti_s_write_any(w, i, depth + 1, ranks);
    }
    if (w->rank == before) w->bad = 1;
    if (!ranks) heti_t_put(&w->out, depth > 0 ? "]}" : "]");
}

/* Whether the devices and groups are in a file's order, or all of them somewhere. */
static int heti_s_cluster_is(const het_cluster *cluster, int any) {
    HETI_S_CLEARED(heti_s_cluster_writer, w);
    w.cluster = cluster;
    w.out = heti_t_text_in(w.room, sizeof w.room); /* what is behind its end is dropped */
    if (any) heti_s_write_any(&w, 0, 0, 1);
    else heti_s_write_group(&w, 0);
    return !w.bad && w.rank == cluster->ranks && (any || w.group == cluster->groups);
}

HETRAIN_API het_result het_cluster_write(const het_cluster *cluster, const het_writer *to) {
    if (cluster == NULL || to == NULL || to->write == NULL || cluster->ranks < 1 || cluster->groups < 1)
        return HET_ERR_INVALID;
    HETI_T_TRY(heti_s_check_groups(cluster, "het_cluster_write", NULL));
    for (const het_cluster_device *d = cluster->device; d < cluster->device + cluster->ranks; d++)
        if (d->profile[0] == 0 || !(d->speed >= 1e-6 && d->speed <= 1e6)) return HET_ERR_INVALID;
    HETI_S_CLEARED(heti_s_cluster_writer, w);
    w.cluster = cluster;
    w.out = heti_t_text_to(to, w.room, sizeof w.room);
    if (heti_s_cluster_is(cluster, 0)) heti_s_write_group(&w, 0);
    else {
        if (!heti_s_cluster_is(cluster, 1)) return HET_ERR_INVALID;
        heti_s_write_any(&w, 0, 0, 0);
        w.rank = 0;
        heti_s_write_matrices(&w);
        heti_t_put(&w.out, ",\n  \"ranks\":[");
        heti_s_write_any(&w, 0, 0, 1);
        heti_t_put(&w.out, "]}");
    }
    heti_t_char(&w.out, '\n');
    return heti_t_end(&w.out);
}

/* ---- which rank is which device ---- */

typedef struct heti_s_place {
    const het_cluster *cluster;
    const het_blocks *talk;
    const double *weight;
    int64_t *device, *best;           /* [ranks] */
    int64_t *members;                 /* [groups] of the set that is looked at */
    double least;
} heti_s_place;

static double heti_s_spread(const heti_s_place *p) {
    const het_cluster *c = p->cluster;
    double sum = 0;
    int64_t g;
    for (int64_t i = 0; i < p->talk->count; i++) {
        const int64_t all = p->talk->start[i + 1] - p->talk->start[i];
        HETI_T_CLEAR(p->members, c->groups);
        for (int64_t k = p->talk->start[i]; k < p->talk->start[i + 1]; k++)
            for (g = c->device[p->device[p->talk->unit[k]]].group; g >= 0; g = c->group[g].parent) p->members[g]++;
        for (g = 0; g < c->groups; g++)
            if (p->members[g] > 0 && p->members[g] < all) sum += p->weight[i];
    }
    return sum;
}

static void heti_s_place_judge(heti_s_place *p) {
    const double spread = heti_s_spread(p);
    if (p->least >= 0 && spread >= p->least) return;
    p->least = spread;
    HETI_T_COPY(p->best, p->device, p->cluster->ranks);
}

/* Exchanges the devices of two ranks; 0: they are not alike. */
static int heti_s_place_swap(heti_s_place *p, int64_t a, int64_t b) {
    if (!heti_s_same_device(&p->cluster->device[p->device[a]], &p->cluster->device[p->device[b]])) return 0;
    heti_s_exchange(&p->device[a], &p->device[b]);
    return 1;
}

/* All orders of the ranks from `at` on. */
static void heti_s_place_all(heti_s_place *p, int64_t at) {
    if (at == p->cluster->ranks) heti_s_place_judge(p);
    for (int64_t i = at; i < p->cluster->ranks; i++) {
        if (!heti_s_place_swap(p, at, i)) continue;
        heti_s_place_all(p, at + 1);
        (void)heti_s_place_swap(p, at, i);
    }
}

/* Any exchange that helps is made until none does, again and again from another beginning. */
static void heti_s_place_some(heti_s_place *p, int64_t evaluations, uint64_t seed) {
    const int64_t n = p->cluster->ranks;
    int64_t a, done = 0, unlike = 0; /* n exchanges of unlike devices count as an order */
    while (done < evaluations) {
        double now = heti_s_spread(p), tried;
        int helped = 1;
        while (helped && done < evaluations)
            for (a = 0, helped = 0; a < n; a++)
                for (int64_t b = a + 1; b < n && done < evaluations; b++) {
                    const int alike = heti_s_place_swap(p, a, b);
                    done += alike || ++unlike % n == 0;
                    if (!alike) continue;
                    tried = heti_s_spread(p);
                    if (tried < now) helped = 1, now = tried;
                    else (void)heti_s_place_swap(p, a, b);
                }
        heti_s_place_judge(p);
        for (a = n - 1, done++; a > 0; a--) {
            const uint64_t draw = het_xxh64(&seed, sizeof seed, HETI_T_CAST(uint64_t, a));
            (void)heti_s_place_swap(p, a, HETI_T_CAST(int64_t, draw % HETI_T_CAST(uint64_t, a + 1)));
        }
        seed++;
    }
}

HETRAIN_API het_result het_cluster_place(const het_cluster *cluster, const het_blocks *talk, const double *weight,
                                         int64_t evaluations, uint64_t seed, const het_allocator *allocator,
                                         int64_t *device, double *spread, het_error *error) {
    heti_s_place p;
    het_allocator own;
    void *block;
    if (cluster == NULL || talk == NULL || weight == NULL || device == NULL)
        return HETI_S_BAD(error, "het_cluster_place: cluster, talk, weight or device is NULL");
    HETI_T_TRY(heti_s_check_groups(cluster, "het_cluster_place", error));
    for (int64_t i = 0; i < talk->count; i++) {
        if (talk->start[0] != 0 || talk->start[i + 1] < talk->start[i])
            return HETI_S_BAD(error, "het_cluster_place: set %d begins at %d and ends at %d", i, talk->start[i],
                              talk->start[i + 1]);
        if (!heti_t_is_time(weight[i])) return HETI_S_BAD(error, "het_cluster_place: weight %d is %e", i, weight[i]);
    }
    for (int64_t i = 0; talk->count > 0 && i < talk->start[talk->count]; i++)
        if (talk->unit[i] < 0 || talk->unit[i] >= cluster->ranks)
            return HETI_S_BAD(error, "het_cluster_place: rank %d of %d talks", talk->unit[i], cluster->ranks);
    HETI_T_TRY(heti_t_choose(allocator, &own, error, "het_cluster_place"));
    const size_t size = HETI_T_CAST(size_t, 2 * cluster->ranks + cluster->groups) * sizeof(int64_t);
    HETI_T_TRY(heti_t_block(&own, size, "het_cluster_place", &block, error));
    p.cluster = cluster, p.talk = talk, p.weight = weight, p.least = -1;
    p.device = HETI_T_CAST(int64_t *, block);
    p.best = p.device + cluster->ranks;
    p.members = p.best + cluster->ranks;
    for (int64_t i = 0; i < cluster->ranks; i++) p.device[i] = i;
    heti_s_place_judge(&p);
    if (cluster->ranks <= 8) heti_s_place_all(&p, 0);
    else heti_s_place_some(&p, evaluations > 0 ? evaluations : 20000, seed);
    HETI_T_COPY(device, p.best, cluster->ranks);
    if (spread != NULL) *spread = p.least;
    own.free(own.user, block, size);
    return HET_OK;
}

/* =================================================================================================
   >>search  The planner. A choice is a plan of the searched space in short form. Bounds are cheap
             and never above what the simulator says, so what they rule out needs no lists. Small
             spaces are gone through completely; large ones begin with choices made along the
             cluster's groups and are improved by moves.
   ============================================================================================== */

/* KEPT: all of it lies with keepers. The last shard: weights are held by near sets, the cluster's
   innermost groups */
enum { HETI_S_STATE_EVEN = 0, HETI_S_STATE_SPEED = 1, HETI_S_STATE_MEMORY = 2, HETI_S_STATE_KEPT = 3, HETI_S_STATES = 3,
       HETI_S_SHARD_NEAR = HET_SHARD_WEIGHTS + 1 };
enum { HETI_S_MOST_SCHEDULES = 16, HETI_S_MOST_FOUND = 64 };
#define HETI_S_NONE 1e300   /* seconds of what does not exist */
/* seconds of a choice that does not fit into memory: this times 1 + the bytes that are missing */
#define HETI_S_MISFIT 1e200

/* Data: of a granule, of a run of them, of a micro-batch. */
typedef struct heti_s_amount { double tokens, pairs, sequences; } heti_s_amount;

/* Of every micro-batch of a step, pipeline by pipeline, as het_costs has them. */
typedef struct heti_s_sizes { double *tokens, *pairs, *sequences; } heti_s_sizes;

static void heti_s_sizes_cut(heti_s_sizes *sizes, heti_t_arena *arena, int64_t count) {
    HETI_S_ROOMS(double, count, &sizes->tokens, &sizes->pairs, &sizes->sequences);
}

static void heti_s_sizes_put(const heti_s_sizes *sizes, int64_t i, heti_s_amount a, double times) {
    sizes->tokens[i] = times * a.tokens;
    sizes->pairs[i] = times * a.pairs;
    sizes->sequences[i] = times * a.sequences;
}

static void heti_s_sizes_use(het_costs *costs, const heti_s_sizes *sizes) {
    costs->tokens = sizes->tokens;
    costs->pairs = sizes->pairs;
    costs->sequences = sizes->sequences;
}

/* Costs of a plan with these micro-batches. */
static het_result heti_s_sized_costs(const het_search_desc *d, const het_plan *plan, const het_cluster *cluster,
                                     const heti_s_sizes *sizes, const het_allocator *allocator, het_plan_costs **costs,
                                     het_error *error) {
    HETI_T_TRY(het_profile_costs(d->profile, plan, cluster, d->together, allocator, costs, error));
    heti_s_sizes_use(&(*costs)->costs, sizes);
    return HET_OK;
}

/* A step of so many granules like this one: only its last micro-batch may be smaller. */
static void heti_s_sizes_step(const heti_s_sizes *sizes, heti_s_amount granule, int64_t granules,
                              int64_t of_a_micro_batch) {
    for (int64_t i = 0; granules > 0; i++, granules -= of_a_micro_batch)
        heti_s_sizes_put(sizes, i, granule, heti_s_real(heti_s_min(granules, of_a_micro_batch)));
}

/* A profile's blocks as schedules want them; their beginnings are cut. */
static void heti_s_blocks_cut(het_blocks *blocks, heti_t_arena *arena, const het_profile *p) {
    int64_t *start = HETI_S_ROOM(int64_t, p->blocks + 1);
    for (int64_t b = 0; b < p->blocks && start != NULL; b++) start[b + 1] = p->block[b].first_use + p->block[b].uses;
    blocks->count = p->blocks;
    blocks->start = start;
    blocks->unit = p->use;
}

/* The step of a simulation that is not needed any more. */
static double heti_s_makespan(het_simulation *simulation) {
    const double seconds = simulation->makespan;
    het_simulation_free(simulation);
    return seconds;
}

/* The i-th schedule that the planner tries; NULL: there are no more. */
static const het_schedule_kind *heti_s_order_at(int64_t i) {
    int64_t k = 0;
    while (het_schedule_kind_at(k) != NULL && het_schedule_kind_at(k)->search != i + 1) k++;
    return het_schedule_kind_at(k);
}

/* A plan in short form. Pipeline p has the devices device[first[p]] .. device[first[p + 1] - 1];
   its stage s ends before unit end[chunks first[p] + s]. Behind the last one's come the keepers. */
typedef struct heti_s_choice {
    int64_t pipelines, keepers, granules, order, limit; /* order: of heti_s_seek.order; limit: 0 none */
    int32_t state, shard;             /* HETI_S_STATE_; het_shard or HETI_S_SHARD_NEAR */
    double seconds;                   /* simulated */
    het_plan *team;                   /* a plan with teams, or else beyond this form, of which pipelines, devices
                                         in no order, counts and granules are known here; NULL: none */
    int64_t *first, *device, *end, *count; /* from here on arrays: every choice has its own */
    int32_t *recompute;               /* [places] as device: what its stages do, 4 het_stage.store + .recompute */
} heti_s_choice;

/* What a pipeline takes by itself, without reductions: `at` for `count` micro-batches and `each`
   for every further one. */
typedef struct heti_s_memo {
    uint64_t key;
    int64_t count;
    double at, each;
} heti_s_memo;

/* A choice that was judged. */
typedef struct heti_s_known { uint64_t key; double seconds; } heti_s_known;

enum { HETI_S_MEMOS = 16384, HETI_S_KNOWN = 32768 };

/* Devices of one profile, speed, memory and max_tokens. */
typedef struct heti_s_device_kind {
    const het_device_profile *times;
    int64_t count, device;            /* the first of them */
    int64_t most;                     /* granules of a micro-batch that they take */
    double speed, rate;               /* rate: granules a second of the whole chain */
    double weight, load;              /* heti_s_bound_work's */
} heti_s_device_kind;

/* What a device of a pipeline takes at least, for heti_s_bound_pipeline. */
typedef struct heti_s_lower {
    double work, weight_work, fill, tail, pass; /* pass: the longest backward */
} heti_s_lower;

/* Of several units together. */
typedef struct heti_s_prefix {
    double weights, trained;          /* bytes of weights, elements that are not frozen */
    double kept[2];                   /* bytes kept a token, without and with recompute, unit by unit */
    double least_held, owned, single; /* bytes: of blocks by their first unit; of the state of those that
                                         no other unit has; least_held of these alone */
} heti_s_prefix;

/* Bytes that are missing, 0: it fits; the rank that lacks the most, and the units that it has. */
typedef struct heti_s_lack { double bytes; int64_t rank, begin, end; } heti_s_lack;

typedef struct heti_s_seek {
    het_search to;                    /* what is made of it */
    het_search_desc d;                /* with its defaults */
    het_error *error;
    het_allocator allocator;
    int64_t ranks, units, kinds, orders;
    const het_schedule_kind *order[HETI_S_MOST_SCHEDULES + 1];
    const char *name[HETI_S_MOST_SCHEDULES];
    int timed;                        /* what is found is tried with "timed" too: order[orders] */
    int has[2];                       /* some schedule does B in one piece; splits it */
    /* devices: a kind is a profile, a speed, a memory and max_tokens */
    int64_t *kind_of;                 /* [ranks] */
    heti_s_device_kind *kind;         /* [kinds] */

    het_cost *sum;                   /* [kinds][HETI_S_SUMS][units + 1] of units 0 .. u - 1 */

    /* units */
    heti_s_prefix *before;            /* [units + 1] of the units before each */
    double largest[2];                /* bytes of weights, of sums of the unit with the most */
    int tied;                         /* some block has several units */
    int64_t *near;                    /* [ranks] innermost groups */
    int apart, wide, searched;        /* there are several; there may be keepers and near sets; all else was searched */
    double trained;                   /* parameters that are not frozen */
    double always;                    /* bytes of every rank that has a stage, at least */
    het_blocks blocks;
    double widest;                    /* scratch, streams and messages a token: the most of a unit */
    /* what is worked on */
    het_plan own, *plan;              /* plan: of the choice that is looked at; own, or one with teams */
    het_schedule *lists;              /* of the choice that was judged last, its costs, and its simulation */
    het_plan_costs *costs;
    het_simulation *made;
    het_needs *needs;                 /* [ranks] */
    het_memory *memory;               /* [ranks] */
    heti_s_lower *lower;              /* [ranks] */
    double *pipeline_time, *pipeline_fill;    /* [ranks] a micro-batch; before the first is through */
    int64_t *scratch;                 /* [ranks] */
    double *reserve;                  /* [ranks] bytes that an estimate was short of */
    heti_s_sizes sizes;               /* [granules] */
    heti_s_amount granule;            /* sequences: by tokens and pairs; less than 1 where they are longer */
    int fuses, whole;                 /* teams are looked for; whole: by heads alone */
    int64_t pieces;                   /* granules of the engine's rule in one of the search's: 512 tokens of
                                         a longer sequence */
    int64_t *by_place, *by_speed;     /* [ranks] devices in two orders */
    int32_t *used, *taken, *fits;     /* [ranks] */
    int64_t last_counted;             /* the pipeline that has the last micro-batch */
    heti_s_memo *memo;                /* [HETI_S_MEMOS] pipelines that were simulated alone */
    het_plan alone;                   /* one pipeline, its devices as ranks 0, 1, ... */
    het_stage_cost *alone_stage;      /* [2 ranks] */
    int64_t *alone_group;             /* [ranks] */
    het_group *alone_tree;            /* [groups] those that its devices are in */
    int64_t *alone_from, alone_groups; /* [groups] which of the cluster's they are; how many there are */
    het_link_cost *alone_link;        /* [ranks][ranks], where the cluster has a matrix */
    double *ring;                     /* [ranks] seconds of reductions, updates and gathers */
    int32_t ignore_memory, climbing;
    int32_t one_order;                /* moves keep the schedule */
    int32_t plain;                    /* plans are simulated whole, so no pipeline is alone */
    int32_t guessing;                 /* nothing is simulated before trials */
    double guess;                     /* of a plan with teams: what was guessed over composite devices */
    double least_guess;               /* the shortest estimate of beginnings that fit */
    int32_t impossible;               /* the choice that was judged last is no plan */
    heti_s_lack lack, least_lack;     /* of the choice that was judged last; the least of all */
    heti_s_choice now, next, best, sorted; /* present, tried, of this climb, for a moment: in order, or so far */
    heti_s_choice found[HETI_S_MOST_FOUND]; /* best first; their teams' plans are their own */
    int64_t found_count;
    heti_s_known *known;              /* [HETI_S_KNOWN] what moves came to */
    int64_t moves, budget;            /* budget: evaluations at most, by now */
    int64_t until;                    /* what is under way ends at so many evaluations, ten moves counting as one, */
    double until_seconds;             /* or at this time of the clock */
    het_result result;                /* what ends the search other than HET_OK: no memory */
    uint64_t random;
    double started;
    /* the curves' room depends on the number of kinds, which are found in the first block */
    heti_t_arena arena, curves;
} heti_s_seek;

/* ---- small tools ---- */

/* Drawn from 0 to n - 1: splitmix64 (Steele, Lea, Flood 2014). */
static int64_t heti_s_below(heti_s_seek *s, int64_t n) {
    if (n < 2) return 0;
    uint64_t z = s->random += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return HETI_T_CAST(int64_t, (z ^ (z >> 31)) % HETI_T_CAST(uint64_t, n));
}

static int64_t heti_s_places(const heti_s_choice *c, int64_t p) { return c->first[p + 1] - c->first[p]; }
/* Devices at work, and keepers. */
static int64_t heti_s_used(const heti_s_choice *c) { return c->first[c->pipelines] + c->keepers; }
/* Most values of `state` and `shard`. */
static int32_t heti_s_most_shard(const heti_s_seek *s) {
    if (s->wide && s->apart && s->d.shard == HET_SHARD_WEIGHTS) return HETI_S_SHARD_NEAR;
    return HETI_T_CAST(int32_t, s->d.shard);
}
static int32_t heti_s_states(const heti_s_seek *s, int64_t keepers) {
    return s->d.uneven_state != HET_NO ? HETI_S_STATES + (keepers > 0) : 1;
}
static int heti_s_may_keep(const heti_s_seek *s) { return s->wide && s->d.uneven_state != HET_NO; }
static int64_t heti_s_longest(const heti_s_choice *c) {
    int64_t longest = 0;
    for (int64_t p = 0; p < c->pipelines; p++) longest = heti_s_max(longest, heti_s_places(c, p));
    return longest;
}
static int64_t heti_s_chunks(const heti_s_seek *s, const heti_s_choice *c) {
    return s->order[c->order]->placement == HET_PLACE_ANY ? 1 : 2;
}
static int64_t heti_s_stages(const heti_s_seek *s, const heti_s_choice *c, int64_t p) {
    return heti_s_chunks(s, c) * heti_s_places(c, p);
}
/* Where its stages end. */
static int64_t *heti_s_ends(const heti_s_seek *s, const heti_s_choice *c, int64_t p) {
    return &c->end[heti_s_chunks(s, c) * c->first[p]];
}

/* Which of `places` devices has stage `stage`. */
static int64_t heti_s_place_of(const het_schedule_kind *order, int64_t places, int64_t stage) {
    return stage < places ? stage : order->placement == HET_PLACE_V ? 2 * places - 1 - stage : stage - places;
}

/* Stage i of pipeline p: which of its places has it, and which of all; what that is, and which
   units it has. */
typedef struct heti_s_spot { int64_t place, at, device, kind, begin, end; } heti_s_spot;

static heti_s_spot heti_s_spot_of(const heti_s_seek *s, const heti_s_choice *c, int64_t p, int64_t i) {
    const int64_t *end = heti_s_ends(s, c, p);
    heti_s_spot spot;
    spot.place = heti_s_place_of(s->order[c->order], heti_s_places(c, p), i);
    spot.at = c->first[p] + spot.place;
    spot.device = c->device[spot.at];
    spot.kind = s->kind_of[spot.device];
    spot.begin = i == 0 ? 0 : end[i - 1];
    spot.end = end[i];
    return spot;
}

static int64_t heti_s_micro_batches(const heti_s_seek *s, int64_t granules) {
    return (s->d.granules + granules - 1) / granules;
}

static double heti_s_rate(const heti_s_seek *s, int64_t device) { return s->kind[s->kind_of[device]].rate; }
/* Tokens of a micro-batch that a device takes; 0: any. */
static double heti_s_device_limit(const heti_s_seek *s, int64_t device) {
    return heti_s_limit(s->kind[s->kind_of[device]].times->max_tokens, s->d.cluster->device[device].max_tokens);
}
/* Whether it takes micro-batches of so many granules: else it has no stage. */
static int heti_s_takes(const heti_s_seek *s, int64_t device, int64_t granules) {
    return granules <= s->kind[s->kind_of[device]].most;
}

static double heti_s_tokens(const heti_s_seek *s, int64_t granules) {
    return heti_s_real(granules) * s->granule.tokens;
}

/* Seconds of units [begin, end) on a kind of device for a micro-batch. */
static double heti_s_seconds(const heti_s_seek *s, int64_t kind, int what, int64_t begin, int64_t end,
                             int64_t granules) {
    const het_cost *sum = &s->sum[(kind * HETI_S_SUMS + what) * (s->units + 1)], *a = &sum[begin], *b = &sum[end];
    const double n = heti_s_real(granules);
    return b->base - a->base + n * ((b->token - a->token) * s->granule.tokens + (b->pair - a->pair) * s->granule.pairs);
}

/* The same as a stage: with one action and the copying of its messages. */
static double heti_s_stage_seconds(const heti_s_seek *s, int64_t kind, int what, int64_t begin, int64_t end,
                                   int64_t granules) {
    const heti_s_device_kind *k = &s->kind[kind];
    const double copies = what % HETI_S_CALLS == HETI_S_WEIGHT ? 0 :
                          heti_s_messages(s->d.profile, begin, end) * k->times->message_byte;
    return heti_s_seconds(s, kind, what, begin, end, granules) +
           (k->times->action + copies * heti_s_tokens(s, granules)) / k->speed;
}

/* F and the backward that the schedule has, of a stage; 0 where it is empty. */
static double heti_s_both(const heti_s_seek *s, int64_t kind, int split, int recompute, int64_t begin, int64_t end,
                          int64_t granules) {
    const heti_s_device_kind *k = &s->kind[kind];
    if (begin == end) return 0;
    double t = (split ? 3 : 2) * k->times->action +
               2 * heti_s_messages(s->d.profile, begin, end) * k->times->message_byte * heti_s_tokens(s, granules);
    t = t / k->speed + heti_s_seconds(s, kind, HETI_S_BOTH + (split ? 1 : 0), begin, end, granules);
    return (recompute & 3) != 0 ? t + heti_s_seconds(s, kind, HETI_S_AGAIN, begin, end, granules) : t;
}

static double heti_s_spot_both(const heti_s_seek *s, const heti_s_choice *c, const heti_s_spot *spot) {
    return heti_s_both(s, spot->kind, s->order[c->order]->split, c->recompute[spot->at], spot->begin, spot->end,
                       c->granules);
}

static double heti_s_message(const heti_s_seek *s, int64_t from, int64_t to, int64_t unit, int64_t granules) {
    const double bytes = heti_s_kind_at(s->d.profile, unit)->output * heti_s_tokens(s, granules);
    return from == to ? 0 : heti_s_link_seconds(heti_s_cluster_link(s->d.cluster, from, to), bytes);
}

static void heti_s_choice_copy(const heti_s_seek *s, heti_s_choice *to, const heti_s_choice *from) {
    memcpy(to, from, offsetof(heti_s_choice, first));
    HETI_T_COPY(to->first, from->first, from->pipelines + 1);
    HETI_T_COPY(to->count, from->count, from->pipelines);
    HETI_T_COPY(to->device, from->device, heti_s_used(from));
    HETI_T_COPY(to->end, from->end, heti_s_chunks(s, from) * from->first[from->pipelines]);
    HETI_T_COPY(to->recompute, from->recompute, from->first[from->pipelines]);
}

/* Whether some devices hold the same parameters. */
static int heti_s_divides(const heti_s_seek *s, const heti_s_choice *c) {
    return c->pipelines + c->keepers > 1 || (s->tied && c->first[c->pipelines] > 1);
}

/* Stages that are not empty and make up the chain; counts that make up the step; two stages a
   device only where there are pipelines. A stage of the last unit alone has nothing to
   recompute. */
static int heti_s_is_plan(const heti_s_seek *s, heti_s_choice *c) {
    const int64_t chunks = heti_s_chunks(s, c), total = c->first[c->pipelines];
    int64_t p, i, left = heti_s_micro_batches(s, c->granules);
    if (chunks == 2 && total == c->pipelines) return 0;
    if (c->state == HETI_S_STATE_KEPT && c->keepers == 0) return 0;
    if (!heti_s_divides(s, c)) c->shard = HET_SHARD_STATE;
    for (i = 0; i < total; i++)
        if (!heti_s_takes(s, c->device[i], c->granules)) return 0;
    for (p = 0; p < c->pipelines; p++) {
        const int64_t places = heti_s_places(c, p), stages = chunks * places, *end = heti_s_ends(s, c, p);
        if (c->count[p] < 0 || places < 1 || end[stages - 1] != s->units) return 0;
        left -= c->count[p];
        for (i = 0; i < stages; i++)
            if (end[i] <= (i == 0 ? 0 : end[i - 1])) return 0;
        i = heti_s_place_of(s->order[c->order], places, stages - 1);
        if (chunks == 1 && places > 1 && end[places - 2] == s->units - 1) c->recompute[c->first[p] + i] &= ~3;
    }
    for (i = 0; i < total && s->order[c->order]->split; i++)
        if (c->recompute[i] & 2) c->recompute[i] ^= 3; /* unit by unit keeps as little */
    return c->pipelines > 0 && left == 0;
}

static const het_unit_time *heti_s_unit_times(const heti_s_seek *s, const het_device_profile *times) {
    return s->d.together == HET_NO ? times->alone : times->together;
}

/* ---- a choice as a plan, its memory, its time ---- */

static int heti_s_is_timed(const het_plan *plan) { return strcmp(plan->schedule, "timed") == 0; }

/* Complete lists of a plan. costs: for which "timed" makes them; NULL: none are known. */
static het_result heti_s_lists(const het_plan *plan, const int64_t *count, const het_blocks *blocks,
                               const het_plan_costs *costs, const het_allocator *allocator, het_schedule **schedule,
                               het_error *error) {
    het_schedule *compute = NULL;
    het_result result = costs != NULL && heti_s_is_timed(plan) ?
        het_schedule_timed(plan, count, &costs->costs, allocator, &compute, error) :
        het_schedule_make(plan, count, allocator, &compute, error);
    *schedule = NULL;
    if (result == HET_OK) result = het_schedule_complete(plan, blocks, compute, allocator, schedule, error);
    het_schedule_free(compute);
    return result;
}

static void heti_s_put_stage(het_stage *stage, int64_t pipeline, int64_t rank, const heti_s_spot *spot, int32_t way) {
    stage->pipeline = pipeline;
    stage->rank = rank;
    stage->unit_begin = spot->begin;
    stage->unit_end = spot->end;
    stage->recompute = way & 3;
    stage->store = way >> 2;
}

static void heti_s_put_order(const heti_s_seek *s, const heti_s_choice *c, het_plan *plan) {
    memset(plan->schedule, 0, sizeof plan->schedule);
    memcpy(plan->schedule, s->order[c->order]->name, strlen(s->order[c->order]->name));
    plan->memory_limit = heti_s_real(c->limit);
}

static void heti_s_choice_plan(heti_s_seek *s, const heti_s_choice *c) {
    het_plan *plan = s->plan = c->team != NULL ? c->team : &s->own;
    int64_t g = 0;
    if (c->team != NULL) return;
    plan->shard = HETI_T_CAST(het_shard, heti_s_min(c->shard, HET_SHARD_WEIGHTS));
    plan->near = c->shard == HETI_S_SHARD_NEAR ? s->near : NULL;
    HETI_T_CLEAR(plan->keeper, s->ranks);
    for (int64_t i = 0; i < c->keepers; i++) plan->keeper[c->device[c->first[c->pipelines] + i]] = 1;
    plan->pipelines = c->pipelines;
    for (int64_t p = 0; p < c->pipelines; p++) {
        plan->first_stage[p] = g;
        plan->share[p] = heti_s_real(c->count[p]);
        for (int64_t i = 0; i < heti_s_stages(s, c, p); i++, g++) {
            const heti_s_spot spot = heti_s_spot_of(s, c, p, i);
            heti_s_put_stage(&plan->stage[g], p, spot.device, &spot, c->recompute[spot.at]);
        }
    }
    plan->stages = plan->first_stage[c->pipelines] = g;
    for (int64_t i = 0; i < s->ranks; i++) plan->state_share[i] = 1;
    heti_s_put_order(s, c, plan);
    plan->step.micro_batch = c->granules;
}

/* Its granules are as long as a context makes room for, however short those of the step are. */
static het_shape heti_s_choice_shape(const heti_s_seek *s, const heti_s_choice *c) {
    const int64_t tokens = c->granules * s->d.granule_tokens, sequences = s->d.granule_sequences,
                  whole = heti_s_min(s->d.granule_tokens, 512 * sequences);
    const het_shape shape = { tokens, c->granules * sequences, heti_s_min(tokens, heti_s_max(512, whole)) };
    return shape;
}

/* State by speed of the optimizer, by what is left beside everything else, or with keepers. 0: not
   possible. */
static int heti_s_state_shares(heti_s_seek *s, const heti_s_choice *c) {
    const het_profile *p = s->d.profile;
    double sum = 0;
    for (int64_t i = 0; i < heti_s_used(c) && c->state != HETI_S_STATE_EVEN; i++) {
        const int64_t r = c->device[i];
        const int keeps = i >= c->first[c->pipelines];
        const double divided = (keeps || s->plan->shard >= HET_SHARD_GRADIENTS ? p->gradient_bytes : 0) +
                               (keeps || s->plan->shard == HET_SHARD_WEIGHTS ? p->weight_bytes : 0);
        const het_cluster_device *device = &s->d.cluster->device[r];
        const het_memory *m = &s->memory[r];
        const double element = s->kind[s->kind_of[r]].times->step_element;
        /* what no share of the state changes; of what has no state, about */
        const double rest = heti_s_limited(m) - HETI_T_CAST(double, m->optimizer) *
                     (1 + (p->state_bytes > 0 ? divided / p->state_bytes : 0));
        const double share = c->state == HETI_S_STATE_SPEED ? element > 0 ? device->speed / element : 0 :
                     c->state == HETI_S_STATE_KEPT ? keeps : device->memory - rest;
        if (c->state == HETI_S_STATE_SPEED ? !(element > 0) : c->state == HETI_S_STATE_MEMORY && !(device->memory > 0))
            return 0;
        if (keeps && !(share > 0)) return 0;
        sum += s->plan->state_share[r] = share > 0 ? share : 0;
    }
    return c->state == HETI_S_STATE_EVEN || sum > 0;
}

/* Sets what is missing: bytes over the limit of the rank that needs the most too many. */
static void heti_s_memory_missing(heti_s_seek *s) {
    s->lack.bytes = 0;
    for (int64_t r = 0; r < s->ranks; r++) {
        const double limit = s->d.cluster->device[r].memory;
        const double over = heti_s_limited(&s->memory[r]) - limit;
        if (limit <= 0 || !s->used[r] || over <= s->lack.bytes) continue;
        s->lack.bytes = over;
        s->lack.rank = r;
    }
}

/* Costs of s->plan with the choice's micro-batches: s->costs. */
static het_result heti_s_choice_costs(heti_s_seek *s, const heti_s_choice *c) {
    het_plan_costs_free(s->costs);
    heti_s_sizes_step(&s->sizes, s->granule, s->d.granules, c->granules);
    return heti_s_sized_costs(&s->d, s->plan, s->d.cluster, &s->sizes, &s->allocator, &s->costs, s->error);
}

/* The lists of the choice's plan, complete, as s->lists, NULL where such a plan cannot have this
   schedule; and what they need of every rank, with any recomputation, as s->needs. */
static het_result heti_s_choice_lists(heti_s_seek *s, const heti_s_choice *c) {
    het_error error;
    heti_s_choice_plan(s, c);
    if (heti_s_is_timed(s->plan)) HETI_T_TRY(heti_s_choice_costs(s, c));
    het_schedule_free(s->lists);
    if (heti_s_lists(s->plan, c->count, &s->blocks, s->costs, &s->allocator, &s->lists, &error) == HET_ERR_OOM)
        return heti_t_fail(s->error, HET_ERR_OOM, "het_plan_search: %s", error.text);
    if (s->lists == NULL) return HET_OK;
    return het_schedule_needs(s->plan, s->lists, 0, s->plan->ranks, 0, &s->allocator, s->needs, s->error);
}

/* Bytes of every rank, with s->needs. */
static het_result heti_s_choice_memory(heti_s_seek *s, const heti_s_choice *c) {
    const het_shape shape = heti_s_choice_shape(s, c);
    HETI_T_CLEAR(s->used, s->ranks);
    for (int64_t i = 0; i < heti_s_used(c); i++) s->used[c->device[i]] = 1;
    HETI_T_TRY(het_profile_memory(s->d.profile, s->plan, s->needs, &shape, s->memory, s->error));
    s->impossible = !heti_s_state_shares(s, c);
    if (c->state == HETI_S_STATE_EVEN || s->impossible) return HET_OK;
    return het_profile_memory(s->d.profile, s->plan, s->needs, &shape, s->memory, s->error);
}

/* Whether every rank has room for all that is not divided. */
static int heti_s_shares_help(const heti_s_seek *s) {
    for (int64_t r = 0; r < s->ranks; r++) {
        const double limit = s->d.cluster->device[r].memory;
        const het_memory *m = &s->memory[r];
        const int keeps = heti_s_keeps(s->plan, r);
        if (limit > 0 && s->used[r] && heti_s_limited(m) - HETI_T_CAST(double, m->optimizer +
            (keeps || s->plan->shard >= HET_SHARD_GRADIENTS ? m->gradients : 0) +
            (keeps || s->plan->shard == HET_SHARD_WEIGHTS ? m->weights : 0)) > limit) return 0;
    }
    return 1;
}

/* ---- bounds ---- */

/* The optimizer's work divided by the speeds of these devices (NULL: of all): no way to share the
   state out takes less. 0 where a device needs no time. */
static double heti_s_bound_step(const heti_s_seek *s, const int64_t *device, int64_t devices) {
    double speed = 0;
    for (int64_t i = 0; i < devices; i++) {
        const int64_t r = device != NULL ? device[i] : i;
        const double element = s->kind[s->kind_of[r]].times->step_element;
        if (!(element > 0)) return 0;
        speed += s->d.cluster->device[r].speed / element;
    }
    return s->trained / speed;
}

/* Ranks that hold a block, ascending, as s->scratch. */
static int64_t heti_s_holders(heti_s_seek *s, const heti_s_choice *c, const het_block_profile *block) {
    int64_t i, g, count = 0;
    HETI_T_CLEAR(s->used, s->ranks);
    for (int64_t p = 0; p < c->pipelines; p++) {
        for (i = g = 0; i < block->uses; i++) {
            while (heti_s_ends(s, c, p)[g] <= s->d.profile->use[block->first_use + i]) g++;
            s->used[heti_s_spot_of(s, c, p, g).device] = 1;
        }
    }
    for (int64_t r = 0; r < s->ranks; r++)
        if (s->used[r]) s->scratch[count++] = r;
    return count;
}

/* Reductions and gathers of the blocks of each rank at least: s->ring gets those of reductions, the
   most of a rank's gathers comes back. The largest part is no less than an even one, all others'
   links with its owner carry it, and a latency is met once for all blocks, the least of any
   block's. 0 in two levels, and with keepers, to whom all goes straight. */
static double heti_s_bound_rings(heti_s_seek *s, const heti_s_choice *c) {
    const het_profile *p = s->d.profile;
    const het_cluster *cluster = s->d.cluster;
    /* what is divided leaves before, or comes in the next step */
    const double bytes[2] = { c->shard >= HET_SHARD_GRADIENTS ? 0 : p->reduce_bytes,
                              c->shard >= HET_SHARD_WEIGHTS ? 0 : p->gather_bytes };
    double most = 0, least = 1e300, *sum[2] = { s->ring, s->pipeline_time };
    for (int64_t i = 0; i < s->ranks; i++) sum[0][i] = sum[1][i] = 0;
    for (int64_t i = 0; i < cluster->groups; i++)
        if (cluster->group[i].process || cluster->rings || c->keepers > 0) return 0;
    for (int64_t b = 0; b < p->blocks; b++) {
        const int64_t n = p->block[b].frozen ? 0 : heti_s_holders(s, c, &p->block[b]);
        double late = 0, unknown = n <= HETRAIN_DIRECT ? 1e300 : 0, slowest[2] = { unknown, unknown };
        if (n < 2) continue;
        for (int64_t i = 0; i < n && n <= HETRAIN_DIRECT; i++) {
            double slowness[2] = { 0, 0 };
            for (int64_t j = 0; j < 2 * n; j++) {
                const int64_t way = j % 2, other = s->scratch[j / 2], own = s->scratch[i];
                const het_link_cost link = heti_s_cluster_link(cluster, way == 0 ? other : own, way == 0 ? own : other);
                const double slow = link.bandwidth > 0 && other != own ? 1 / link.bandwidth : 0;
                slowness[way] = cluster->wires ? heti_s_larger(slowness[way], slow) : slowness[way] + slow;
                if (way == 0 && other != own) late = heti_s_larger(late, link.latency);
            }
            for (int way = 0; way < 2; way++) slowest[way] = heti_s_smaller(slowest[way], slowness[way]);
        }
        least = heti_s_smaller(least, late);
        for (int64_t i = 0; i < 2 * n; i++)
            sum[i % 2][s->scratch[i / 2]] += slowest[i % 2] * heti_s_real(p->block[b].elements) * bytes[i % 2] /
                                             heti_s_real(n);
    }
    for (int64_t i = 0; i < s->ranks; i++) {
        if (sum[0][i] > 0) sum[0][i] += least;
        if (sum[1][i] > 0) most = heti_s_larger(most, sum[1][i] + least);
    }
    return most;
}

/* The shorter of the backwards that there are: in one piece, or in two. */
static double heti_s_back(const heti_s_seek *s, double whole, double apart) {
    return !s->has[1] ? whole : !s->has[0] ? apart : heti_s_smaller(whole, apart);
}

/* One pipeline: what its ranks compute before the verdict, and the times before a rank's first
   action and behind its last one. known 0: of no schedule with its placement, with or without
   recomputation. A message leaves behind what made it, and a rank's last action
   that is not a W is a backward, after which the stages before, up to a cut, have theirs. */
static double heti_s_bound_pipeline(heti_s_seek *s, const heti_s_choice *c, int64_t p, int known) {
    const int64_t places = heti_s_places(c, p), stages = heti_s_stages(s, c, p), first = c->first[p];
    const int last = p == s->last_counted;
    const int64_t small = last ? s->d.granules - (heti_s_micro_batches(s, c->granules) - 1) * c->granules : c->granules;
    const double count[2] = { heti_s_real(c->count[p] - last), last ? 1.0 : 0 };
    double reach = 0, back = 0, bound = 0;
    for (int64_t i = 0; i < places; i++) {
        s->lower[i].work = s->lower[i].weight_work = s->lower[i].pass = 0;
        s->lower[i].fill = s->lower[i].tail = HETI_S_NONE;
    }
    for (int64_t i = 0; i < stages; i++) {
        const heti_s_spot spot = heti_s_spot_of(s, c, p, i);
        heti_s_lower *to = &s->lower[spot.place];
        double f = 0, b, in = 0, w, r = 0;
        for (int k = 0; k < 2; k++) { /* full micro-batches, the smallest */
            double t[HETI_S_CALLS];
            for (int call = 0; call < HETI_S_CALLS; call++)
                t[call] = (call == HETI_S_AGAIN ? heti_s_seconds : heti_s_stage_seconds)
                    (s, spot.kind, HETI_S_LEAST + call, spot.begin, spot.end, k == 0 ? c->granules : small);
            f = t[HETI_S_FORWARD], b = t[HETI_S_BACKWARD], in = t[HETI_S_INPUT], w = t[HETI_S_WEIGHT];
            r = known && (c->recompute[spot.at] & 3) != 0 ? t[HETI_S_AGAIN] : 0;
            if (known && !s->order[c->order]->split) in = b, w = 0; /* B alone */
            else if (!known) { /* any schedule */
                b = heti_s_back(s, b, in + w);
                if (!s->has[1]) in = b;
                in = heti_s_smaller(in, b);
                w = b - in;
            }
            to->work += count[k] * (f + in + w + r);
            to->weight_work += count[k] * w;
            to->pass = k == 0 ? in + w + r : heti_s_larger(to->pass, in + w + r);
        }
        to->fill = heti_s_smaller(to->fill, reach);
        to->tail = heti_s_smaller(to->tail, back);
        if (i + 1 < stages) {
            const int64_t next = heti_s_spot_of(s, c, p, i + 1).device;
            reach += f + heti_s_message(s, spot.device, next, spot.end - 1, small);
            back += in + r + heti_s_message(s, next, spot.device, spot.end - 1, small);
            if (heti_s_is_cut(s->d.profile, spot.end - 1)) back = 0;
        }
    }
    for (int64_t i = 0; i < places; i++) {
        /* those of a device's one stage wait for its last backward to begin */
        const double reductions = stages == places ? s->ring[c->device[first + i]] : 0;
        const heti_s_lower *at = &s->lower[i];
        const double late = heti_s_larger(reductions - at->pass, 0);
        bound = heti_s_larger(bound, at->fill + at->work + late);
        bound = heti_s_larger(bound, at->fill + at->work - at->weight_work + at->tail);
    }
    return bound;
}

/* Behind the verdict, gathers and steps; s->ring gets the reductions before it. */
static double heti_s_bound_after(heti_s_seek *s, const heti_s_choice *c) {
    return heti_s_larger(heti_s_bound_rings(s, c), heti_s_bound_step(s, c->device, heti_s_used(c)));
}

/* No simulation of the choice takes less. known 0: of no schedule with its placement, with or
   without recomputation. after, s->ring: of its devices and cuts. */
static double heti_s_bound_of(heti_s_seek *s, const heti_s_choice *c, int known, double after) {
    double bound = 0;
    for (int64_t p = 0; p < c->pipelines; p++)
        if (c->count[p] > 0) s->last_counted = p;
    for (int64_t p = 0; p < c->pipelines; p++)
        if (c->count[p] > 0) bound = heti_s_larger(bound, heti_s_bound_pipeline(s, c, p, known));
    return bound + after;
}

/* Rounding: sums of the same terms in another order. */
static int heti_s_hopeless(double bound, double best) { return bound > best * (1 + 1e-9); }

/* Bytes that a stage needs at least for micro-batches of `tokens`: parameters and gradients of the
   blocks that begin in it, the optimizer's state where no other rank has them, and one slot, or
   what is recomputed for it at once. Of others nothing that is divided. */
static double heti_s_least_stage(const heti_s_seek *s, const heti_s_choice *c, int64_t begin, int64_t end,
                                 int recompute, double tokens) {
    const heti_s_prefix *a = &s->before[begin], *b = &s->before[end];
    const double weights = s->d.profile->weight_bytes, part = c->shard >= HET_SHARD_WEIGHTS ? 0 :
                 c->shard == HET_SHARD_GRADIENTS ? weights / (weights + s->d.profile->gradient_bytes) : 1;
    const int only = c->pipelines == 1 && c->keepers == 0;
    const double alone = only ? b->single - a->single : 0, state = only ? b->owned - a->owned : 0;
    return alone + part * (b->least_held - a->least_held - alone) + state +
           (b->kept[(recompute & 3) == HET_RECOMPUTE_UNIT] - a->kept[(recompute & 3) == HET_RECOMPUTE_UNIT]) * tokens;
}

/* The device of stage i of pipeline p takes micro-batches of so many granules, and has memory for
   what its stages up to that one need at least in them. known 0: whatever its places do. */
static int heti_s_has_room(const heti_s_seek *s, const heti_s_choice *c, int64_t p, int64_t i, int64_t granules,
                           int known) {
    const heti_s_spot spot = heti_s_spot_of(s, c, p, i), first = heti_s_spot_of(s, c, p, spot.place);
    const double limit = s->d.cluster->device[spot.device].memory;
    const double tokens = heti_s_tokens(s, granules);
    const int again = known ? c->recompute[spot.at] : s->d.recompute != HET_NO;
    double bytes = s->always;
    if (!heti_s_takes(s, spot.device, granules)) return 0;
    if (limit <= 0) return 1;
    bytes += heti_s_least_stage(s, c, first.begin, first.end, again, tokens);
    if (i != spot.place) /* where stages may recompute as a whole both do it in the same memory */
        bytes += heti_s_least_stage(s, c, spot.begin, spot.end, again, (known ? again & 2 : again) ? 0 : tokens);
    return !heti_s_hopeless(bytes, limit);
}

/* What the plan needs at least is too much for some device. */
static int heti_s_too_large(const heti_s_seek *s, const heti_s_choice *c) {
    for (int64_t p = 0; p < c->pipelines; p++) /* a device's last stage counts with the one before */
        for (int64_t i = heti_s_stages(s, c, p) - heti_s_places(c, p); i < heti_s_stages(s, c, p); i++)
            if (!heti_s_has_room(s, c, p, i, c->granules, 1)) return 1;
    return 0;
}

/* ---- cuts by the bottleneck ---- */

/* About how many micro-batches stage `stage` of `stages` keeps. */
static double heti_s_in_flight(const heti_s_seek *s, const heti_s_choice *c, int64_t p, int64_t stage, int64_t stages) {
    const het_schedule_kind *order = s->order[c->order];
    const double all = heti_s_real(c->count[p] > 0 ? c->count[p] : 1);
    double n = heti_s_real(order->split ? stages : stages - stage);
    if (order->all_forward) n = all;
    if (order->limited) n = c->limit > 0 ? heti_s_real(c->limit) : all;
    if (order->placement != HET_PLACE_ANY) n = heti_s_real(stages / 2);
    return heti_s_smaller(n, all);
}

/* About these bytes of weights, sums and state, divided among so many pipelines and keepers. */
static double heti_s_divided(const heti_s_seek *s, const heti_s_choice *c, double weights, double sums, double state) {
    const double n = heti_s_real(c->pipelines + c->keepers), buffers = n > 1 ? 2 : 0,
                 own = c->state == HETI_S_STATE_KEPT ? 0 : 1 / n;
    if (c->shard >= HET_SHARD_GRADIENTS) sums = sums * own + buffers * s->largest[1];
    if (c->shard >= HET_SHARD_WEIGHTS)
        weights = heti_s_smaller(weights, weights * (c->shard == HETI_S_SHARD_NEAR ? own + 2 / n : own)) +
                  buffers * s->largest[0];
    return weights + sums + state * own;
}

/* About the bytes of a stage. */
static double heti_s_stage_bytes(const heti_s_seek *s, const heti_s_choice *c, int64_t begin, int64_t end,
                                 int recompute, double in_flight) {
    const het_profile *p = s->d.profile;
    const heti_s_prefix *a = &s->before[begin], *b = &s->before[end];
    const double tokens = heti_s_tokens(s, c->granules), trained = b->trained - a->trained;
    const int how = recompute & 3, unit = how == HET_RECOMPUTE_UNIT;
    double kept = b->kept[unit] - a->kept[unit];
    if (recompute > 3) in_flight = heti_s_smaller(in_flight, heti_s_real(recompute / 4 + 1));
    kept = how == HET_RECOMPUTE_STAGE ? kept + in_flight * heti_s_kind_at(p, begin)->input : kept * in_flight;
    return heti_s_divided(s, c, b->weights - a->weights, trained * p->gradient_bytes, trained * p->state_bytes) +
           tokens * (kept + s->widest) + p->rank_weights + p->rank_gradients + p->rank_workspace;
}

/* The most units from `begin` that a device takes in `seconds` and its memory; none where it does
   not take the micro-batches. */
static int64_t heti_s_take_units(const heti_s_seek *s, const heti_s_choice *c, int64_t device, int64_t begin,
                                 int64_t most, int recompute, double in_flight, double seconds) {
    const double limit = s->ignore_memory ? 0 : s->d.cluster->device[device].memory / heti_s_real(heti_s_chunks(s, c));
    const int split = s->order[c->order]->split;
    int64_t low = begin, high = heti_s_takes(s, device, c->granules) ? most : begin;
    while (low < high) {
        const int64_t middle = high - (high - low) / 2;
        if (heti_s_both(s, s->kind_of[device], split, recompute, begin, middle, c->granules) <= seconds &&
            (limit <= 0 || heti_s_stage_bytes(s, c, begin, middle, recompute, in_flight) + s->reserve[device] <= limit))
            low = middle;
        else high = middle - 1;
    }
    return low;
}

/* What a place may do: nothing, recompute by units or, where B is whole, as a whole, store one
   micro-batch, both. */
static int64_t heti_s_ways(const heti_s_seek *s, int split) {
    return (s->d.recompute == HET_NO ? 1 : split ? 2 : 3) * (s->d.store == HET_YES ? 2 : 1);
}

/* Way number i of a place, as heti_s_choice.recompute has it. */
static int32_t heti_s_place_way(const heti_s_seek *s, const heti_s_choice *c, int64_t i) {
    const int64_t ways = heti_s_ways(s, s->order[c->order]->split) / (s->d.store == HET_YES ? 2 : 1);
    return HETI_T_CAST(int32_t, i % ways + i / ways * 4);
}

/* Gives each device of a pipeline in turn what it can take in `seconds`; stages of no length are
   devices that got nothing. 1: all is given. */
static int heti_s_give_units(const heti_s_seek *s, heti_s_choice *c, int64_t p, double seconds) {
    const int64_t chunks = heti_s_chunks(s, c), places = heti_s_places(c, p), stages = chunks * places,
                  ways = heti_s_ways(s, s->order[c->order]->split);
    int64_t *end = heti_s_ends(s, c, p), at = 0;
    int32_t *recompute = &c->recompute[c->first[p]];
    for (int64_t i = 0; i < places; i++) recompute[i] = 0;
    for (int64_t i = 0; i < stages; i++) {
        const int64_t place = heti_s_place_of(s->order[c->order], places, i), device = c->device[c->first[p] + place];
        const double in_flight = heti_s_in_flight(s, c, p, i, stages);
        int64_t most = s->units - (stages - 1 - i), next = at;
        if (most <= at) most = heti_s_min(at + 1, s->units);
        for (int64_t k = 0; k < ways && next < most; k++) {
            const int32_t way = heti_s_place_way(s, c, k);
            if (i >= places && recompute[place] != way) continue;
            const int64_t more = heti_s_take_units(s, c, device, at, most, way, in_flight, seconds);
            if (more > next) {
                next = more;
                recompute[place] = way;
            }
        }
        if (chunks == 2 && next == at) return 0;
        at = end[i] = next;
    }
    return at == s->units;
}

/* Cuts pipeline p's chain, the slowest stage as fast as can be. 0: its devices cannot hold it. */
static int heti_s_cut(const heti_s_seek *s, heti_s_choice *c, int64_t p) {
    double low = 0, high = 0;
    if (heti_s_stages(s, c, p) > s->units && heti_s_chunks(s, c) == 2) return 0;
    if (!heti_s_give_units(s, c, p, HETI_S_NONE)) return 0;
    for (int64_t i = c->first[p]; i < c->first[p + 1]; i++) {
        const double whole = heti_s_both(s, s->kind_of[c->device[i]], s->order[c->order]->split, 1, 0, s->units,
                                         c->granules);
        high = heti_s_larger(high, whole);
        low += 1 / (whole + 1e-300);
    }
    low = heti_s_smaller(0.3 / low, high); /* below what all of them take together, without recomputation */
    for (int round = 0; round < 40 && high > low * 1.0005; round++) {
        const double middle = round < 4 && high > 4 * low ? 2 * low : 0.5 * (low + high);
        if (heti_s_give_units(s, c, p, middle)) high = middle;
        else low = middle;
    }
    if (!heti_s_give_units(s, c, p, high)) (void)heti_s_give_units(s, c, p, HETI_S_NONE);
    return 1;
}

/* The same devices in the same order, as far as cutting goes. */
static int heti_s_alike(const heti_s_seek *s, const heti_s_choice *c, int64_t p, int64_t q) {
    const int64_t n = heti_s_places(c, p);
    if (heti_s_places(c, q) != n) return 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t a = c->device[c->first[p] + i], b = c->device[c->first[q] + i];
        if (s->kind_of[a] != s->kind_of[b] || heti_s_unequal(s->reserve[a], s->reserve[b])) return 0;
    }
    return 1;
}

/* Pipeline p of `to` gets the cuts of pipeline q of `from`, which has as many places and stages. */
static void heti_s_copy_cuts(const heti_s_seek *s, heti_s_choice *to, int64_t p, const heti_s_choice *from, int64_t q) {
    HETI_T_COPY(heti_s_ends(s, to, p), heti_s_ends(s, from, q), heti_s_stages(s, from, q));
    HETI_T_COPY(&to->recompute[to->first[p]], &from->recompute[from->first[q]], heti_s_places(from, q));
}

/* Takes over the cuts of a pipeline of s->now with the same devices. 0: q is none, or another. */
static int heti_s_as_before(heti_s_seek *s, heti_s_choice *c, int64_t p, int64_t q) {
    const int64_t places = heti_s_places(c, p);
    if (q < 0 || heti_s_places(&s->now, q) != places ||
        memcmp(&s->now.device[s->now.first[q]], &c->device[c->first[p]],
               HETI_T_CAST(size_t, places) * sizeof *c->device) != 0)
        return 0;
    heti_s_copy_cuts(s, c, p, &s->now, q);
    s->fits[p] = 1;
    return 1;
}

/* Leaves out pipelines that do not fit and, where a device has one stage, devices without units. */
static void heti_s_close_ranks(const heti_s_seek *s, heti_s_choice *c) {
    const int64_t chunks = heti_s_chunks(s, c), *keeper = &c->device[c->first[c->pipelines]];
    int64_t at = 0, pipelines = 0, begin = 0;
    for (int64_t p = 0; p < c->pipelines; p++) {
        const int64_t from = begin, until = c->first[p + 1];
        int64_t before = 0;
        begin = until;
        if (!s->fits[p]) continue;
        for (int64_t i = from; i < until; i++) {
            if (chunks == 1 && c->end[i] == before) continue;
            if (chunks == 1) before = c->end[at] = c->end[i];
            c->device[at] = c->device[i];
            c->recompute[at++] = c->recompute[i];
        }
        for (int64_t k = 0; k < 2 * (until - from) && chunks == 2; k++)
            c->end[2 * (at - (until - from)) + k] = c->end[2 * from + k];
        c->first[++pipelines] = at;
    }
    c->pipelines = pipelines;
    memmove(&c->device[at], keeper, HETI_T_CAST(size_t, c->keepers) * sizeof *keeper);
}

/* A cluster's group among those of the pipeline alone: so pipelines in alike groups are alike. */
static int64_t heti_s_alone_number(heti_s_seek *s, int64_t group) {
    int64_t n = 0;
    if (group < 0) return -1;
    while (n < s->alone_groups && s->alone_from[n] != group) n++;
    if (n < s->alone_groups) return n;
    const int64_t parent = heti_s_alone_number(s, s->d.cluster->group[group].parent);
    n = s->alone_groups++;
    s->alone_from[n] = group;
    s->alone_tree[n] = s->d.cluster->group[group];
    s->alone_tree[n].parent = parent;
    return n;
}

/* The plan of one pipeline alone, its groups and links, and a key of them and of its costs. */
static uint64_t heti_s_alone(heti_s_seek *s, const heti_s_choice *c, int64_t p) {
    const int64_t places = heti_s_places(c, p), stages = heti_s_stages(s, c, p);
    const int64_t head[7] = { c->order, c->limit, c->granules, places, c->keepers * HETI_S_STATE_KEPT + c->state,
                              c->state == HETI_S_STATE_EVEN || c->shard > HET_SHARD_STATE ? c->pipelines : 0,
                              c->shard };
    uint64_t key = het_xxh64(head, sizeof head, 0);
    s->alone.ranks = places;
    s->alone.stages = s->alone.first_stage[1] = stages;
    s->alone_groups = 0;
    for (int64_t i = 0; i < stages; i++) {
        const heti_s_spot spot = heti_s_spot_of(s, c, p, i);
        heti_s_put_stage(&s->alone.stage[i], 0, spot.place, &spot, c->recompute[spot.at]);
        if (i < places) s->alone_group[spot.place] = heti_s_alone_number(s, s->d.cluster->device[spot.device].group);
        for (int64_t k = 0; k < places && s->d.cluster->link != NULL; k++)
            s->alone_link[spot.place * places + k] = heti_s_cluster_link(s->d.cluster, spot.device,
                                                                         c->device[c->first[p] + k]);
        const int64_t own[4] = { spot.end, c->recompute[spot.at], spot.kind,
                                 s->d.cluster->link != NULL ? spot.device : s->alone_group[spot.place] };
        key = het_xxh64(own, sizeof own, key);
    }
    for (const het_group *g = s->alone_tree; g < s->alone_tree + s->alone_groups; g++) /* but for names */
        key = het_xxh64(&g->parent, offsetof(het_group, process) - offsetof(het_group, parent), key);
    heti_s_put_order(s, c, &s->alone);
    return key;
}

static void heti_s_alone_costs(heti_s_seek *s, const heti_s_choice *c, int64_t p) {
    for (int64_t i = 0; i < s->alone.stages; i++) {
        const het_stage *stage = &s->alone.stage[i];
        const int64_t kind = s->kind_of[c->device[c->first[p] + stage->rank]], begin = stage->unit_begin,
                      end = stage->unit_end, g = c->granules;
        const double again = stage->recompute ? heti_s_seconds(s, kind, HETI_S_AGAIN, begin, end, g) : 0;
        het_stage_cost *cost = &s->alone_stage[i];
        for (int what = 0; what < HETI_S_AGAIN; what++)
            heti_s_curve_of(cost, what)->token = heti_s_stage_seconds(s, kind, what, begin, end, g) +
                (what == HETI_S_BACKWARD || what == HETI_S_INPUT ? again : 0);
        cost->bytes = heti_s_kind_at(s->d.profile, end - 1)->output * heti_s_tokens(s, g);
    }
}

/* 1: every device can hold its stages, where the state is divided evenly among as many as there are
   pipelines (or lies where there is room). `more`: how many times as many micro-batches are kept as
   in these lists, where a schedule keeps all. */
static het_result heti_s_alone_fits(heti_s_seek *s, const heti_s_choice *c, int64_t p, const het_schedule *lists,
                                    double more, int *fits) {
    const het_shape shape = heti_s_choice_shape(s, c);
    int64_t i;
    HETI_T_TRY(het_schedule_needs(&s->alone, lists, 0, s->alone.ranks, 0, &s->allocator, s->needs, s->error));
    for (i = 0; i < s->alone.ranks; i++) {
        s->alone.state_share[i] = 1;
        if (s->needs[i].places == 0)
            s->needs[i].slots = HETI_T_CAST(int64_t, heti_s_real(s->needs[i].slots) * more + 0.5);
        s->needs[i].batch_slots = HETI_T_CAST(int64_t, heti_s_real(s->needs[i].batch_slots) * more + 0.5);
    }
    HETI_T_TRY(het_profile_memory(s->d.profile, &s->alone, s->needs, &shape, s->memory, s->error));
    for (i = 0, *fits = 1; i < s->alone.ranks; i++) {
        const het_memory *m = &s->memory[i];
        const double limit = s->d.cluster->device[c->device[c->first[p] + i]].memory,
                     weights = HETI_T_CAST(double, m->weights), sums = HETI_T_CAST(double, m->gradients),
                     state = HETI_T_CAST(double, m->optimizer);
        const double bytes = heti_s_limited(m) - weights - sums - state +
                             heti_s_divided(s, c, weights, sums, c->state == HETI_S_STATE_EVEN ? state : 0);
        if (limit > 0 && bytes > limit) *fits = 0;
    }
    return HET_OK;
}

/* Simulates it. HETI_S_NONE: the schedule does not take it. HETI_S_MISFIT: it does not fit. */
static double heti_s_alone_run(heti_s_seek *s, const heti_s_choice *c, int64_t p, int64_t micro_batches, double more) {
    het_schedule *lists = NULL;
    het_simulation *simulation = NULL;
    het_error error;
    double seconds = HETI_S_NONE;
    int fits = 1;
    het_result result = het_schedule_make(&s->alone, &micro_batches, &s->allocator, &lists, &error);
    if (result == HET_OK && more > 0) result = heti_s_alone_fits(s, c, p, lists, more, &fits);
    if (result == HET_OK && !fits) seconds = HETI_S_MISFIT;
    HETI_S_CLEARED(het_costs, costs);
    costs.stage = s->alone_stage;
    costs.group = s->alone_tree;
    costs.groups = s->alone_groups;
    costs.rank_group = s->alone_group;
    costs.link = s->d.cluster->link != NULL ? s->alone_link : NULL;
    if (result == HET_OK && fits && s->guessing) seconds = 0; /* it fits: that is all that is asked */
    else if (result == HET_OK && fits)
        result = het_simulate(&s->alone, lists, &costs, HET_NO, &s->allocator, &simulation, &error);
    if (simulation != NULL) seconds = heti_s_makespan(simulation);
    if (result == HET_ERR_OOM) s->result = heti_t_fail(s->error, HET_ERR_OOM, "het_plan_search: %s", error.text);
    het_schedule_free(lists);
    return seconds;
}

/* Seconds of a pipeline for `count` micro-batches, or at least HETI_S_MISFIT. From three rounds of
   its devices on, as many as the second round more for each. */
static double heti_s_pipeline_seconds(heti_s_seek *s, const heti_s_choice *c, int64_t p, int64_t count) {
    const het_schedule_kind *order = s->order[c->order];
    const int keeps_all = order->all_forward || (order->limited && c->limit == 0);
    const int64_t rounds = heti_s_places(c, p), most = 3 * rounds;
    if (count == 0) count = 1; /* it must fit all the same */
    const int64_t counts[2] = { heti_s_min(count, most), keeps_all ? count : 0 };
    const uint64_t key = het_xxh64(counts, sizeof counts, heti_s_alone(s, c, p)) | 1u;
    heti_s_memo *memo = &s->memo[key / 2 % HETI_S_MEMOS];
    if (memo->key != key) {
        memo->key = key;
        memo->count = counts[0];
        heti_s_alone_costs(s, c, p);
        memo->at = heti_s_alone_run(s, c, p, memo->count, keeps_all ? heti_s_real(count) / heti_s_real(memo->count) :
                                    1);
        memo->each = 0;
        if (count >= most && memo->at < HETI_S_MISFIT)
            memo->each = (memo->at - heti_s_alone_run(s, c, p, most - rounds, 0)) / heti_s_real(rounds);
    }
    return memo->at + heti_s_real(count - memo->count) * memo->each;
}

/* Seconds of a pipeline's further micro-batches, and what the first takes longer. Without
   simulating it: the busiest device's work, and that of the others. */
static void heti_s_pace(heti_s_seek *s, const heti_s_choice *c, int64_t p) {
    const int64_t many = 3 * heti_s_places(c, p);
    double sum = 0, most = 0;
    if (!s->plain) {
        const double at = heti_s_pipeline_seconds(s, c, p, many);
        s->pipeline_time[p] = heti_s_pipeline_seconds(s, c, p, many + 1) - at; /* where all are kept, of that many */
        s->pipeline_fill[p] = at - heti_s_real(many) * s->pipeline_time[p];
        return;
    }
    for (int64_t i = 0; i < heti_s_places(c, p); i++) s->lower[i].work = 0;
    for (int64_t i = 0; i < heti_s_stages(s, c, p); i++) {
        const heti_s_spot spot = heti_s_spot_of(s, c, p, i);
        const double both = heti_s_spot_both(s, c, &spot);
        s->lower[spot.place].work += both;
        most = heti_s_larger(most, s->lower[spot.place].work);
        sum += both;
    }
    s->pipeline_time[p] = most;
    s->pipeline_fill[p] = sum - most;
}

/* One micro-batch after the other to the pipeline that would be done with it first. */
static void heti_s_share(heti_s_seek *s, heti_s_choice *c) {
    const int64_t micro_batches = heti_s_micro_batches(s, c->granules);
    double sum = 0;
    int64_t left = micro_batches;
    for (int64_t p = 0; p < c->pipelines; p++) {
        heti_s_pace(s, c, p);
        sum += s->pipeline_time[p] > 0 && s->pipeline_fill[p] < HETI_S_MISFIT ? 1 / s->pipeline_time[p] : 0;
    }
    for (int64_t p = 0; p < c->pipelines; p++) { /* nearly all by speed, the rest one by one */
        const int runs = sum > 0 && s->pipeline_time[p] > 0 && s->pipeline_fill[p] < HETI_S_MISFIT;
        const double part = runs ? heti_s_real(micro_batches) / s->pipeline_time[p] / sum : 0;
        c->count[p] = heti_s_min(left, part > 4 ? heti_s_whole(part * 0.75) : 0);
        left -= c->count[p];
    }
    while (left-- > 0) {
        int64_t least = 0;
        double best = 2 * HETI_S_NONE;
        for (int64_t p = 0; p < c->pipelines; p++) {
            const double done = s->pipeline_fill[p] + heti_s_real(c->count[p] + 1) * s->pipeline_time[p];
            if (done < best) { best = done; least = p; }
        }
        c->count[least]++;
    }
}

/* Holder i of a unit: of pipeline i, whose stage s->scratch[i] has it, or a keeper. */
static int64_t heti_s_holder(const heti_s_seek *s, const heti_s_choice *c, int64_t i) {
    return i < c->pipelines ? heti_s_spot_of(s, c, i, s->scratch[i]).device :
           c->device[c->first[c->pipelines] + i - c->pipelines];
}

/* The slowest link between holders of a unit that follow each other; `bandwidth` is 1 over it.
   s->scratch: the stage of each pipeline that has the unit, or one before it. */
static het_link_cost heti_s_unit_link(heti_s_seek *s, const heti_s_choice *c, int64_t unit) {
    het_link_cost slowest = { 0, 0 };
    int64_t before = -1;
    for (int64_t p = 0; p < c->pipelines + c->keepers; p++) {
        while (p < c->pipelines && heti_s_ends(s, c, p)[s->scratch[p]] <= unit) s->scratch[p]++;
        const int64_t i = heti_s_holder(s, c, p);
        if (before >= 0) heti_s_slow_link(&slowest, heti_s_cluster_link(s->d.cluster, before, i));
        before = i;
    }
    return slowest;
}

/* About the seconds of reductions, updates and gathers of the busiest device: as if they did not
   disturb each other. */
static double heti_s_update(heti_s_seek *s, const heti_s_choice *c) {
    const double bytes = (c->shard >= HET_SHARD_GRADIENTS ? 0 : s->d.profile->reduce_bytes) +
                         (c->shard == HET_SHARD_WEIGHTS ? 0 : s->d.profile->gather_bytes);
    const double holders = heti_s_real(c->pipelines + c->keepers),
                 own = c->state == HETI_S_STATE_KEPT ? 0 : 1 / holders,
                 kept = c->keepers > 0 ? (1 - heti_s_real(c->pipelines) * own) / heti_s_real(c->keepers) : 0;
    double most = 0;
    int64_t i;
    for (int64_t r = 0; r < s->ranks; r++) s->ring[r] = 0;
    for (int64_t p = 0; p < c->pipelines; p++) s->scratch[p] = 0;
    for (int64_t u = 0; u < s->units; u++) {
        const double elements = s->before[u + 1].trained - s->before[u].trained;
        const het_link_cost link = heti_s_unit_link(s, c, u);
        double seconds = (holders - 1) * link.bandwidth * elements * bytes / holders; /* latencies hide behind bytes */
        if (c->keepers > 0) /* straight, what the busier of a worker and a keeper has under way */
            seconds = 2 * link.latency + link.bandwidth * elements * bytes *
                      heti_s_larger(1 - own, kept * heti_s_real(c->pipelines));
        for (int64_t p = 0; p < c->pipelines + c->keepers; p++) {
            i = heti_s_holder(s, c, p);
            s->ring[i] += seconds + elements * (p < c->pipelines ? own : kept) *
                s->kind[s->kind_of[i]].times->step_element / s->d.cluster->device[i].speed;
        }
    }
    for (i = 0; i < heti_s_used(c); i++) most = heti_s_larger(most, s->ring[c->device[i]]);
    return most;
}

/* About the seconds of the step: the slowest of the pipelines, simulated one by one, and, a fifth
   of it, what they would take if micro-batches could be divided: so that a faster pipeline counts
   before it is worth a whole micro-batch. */
static double heti_s_estimate(heti_s_seek *s, const heti_s_choice *c) {
    double slowest = 0, rates = 0, work = heti_s_real(heti_s_micro_batches(s, c->granules));
    for (int64_t p = 0; p < c->pipelines; p++) {
        if (!s->plain || s->guessing)
            slowest = heti_s_larger(slowest, heti_s_pipeline_seconds(s, c, p, c->count[p]));
        heti_s_pace(s, c, p);
        if (s->plain)
            slowest = heti_s_larger(slowest, s->pipeline_fill[p] + heti_s_real(c->count[p]) * s->pipeline_time[p]);
        if (!(s->pipeline_time[p] > 0) || s->pipeline_fill[p] >= HETI_S_MISFIT) continue;
        rates += 1 / s->pipeline_time[p];
        work += s->pipeline_fill[p] / s->pipeline_time[p];
    }
    return 0.8 * slowest + (rates > 0 ? 0.2 * work / rates : 0) + heti_s_update(s, c);
}

/* Cuts and shares anew, for devices in pipelines that are given. Pipelines that cannot hold the
   chain leave. 0: none is left. */
static int heti_s_refit(heti_s_seek *s, heti_s_choice *c) {
    const int64_t micro_batches = heti_s_micro_batches(s, c->granules);
    const int as_before = s->climbing && s->now.order == c->order && s->now.granules == c->granules;
    for (int64_t r = 0; r < s->ranks; r++) s->scratch[r] = -1;
    for (int64_t p = 0; p < s->now.pipelines && as_before; p++) s->scratch[s->now.device[s->now.first[p]]] = p;
    /* for what is in flight */
    for (int64_t p = 0; p < c->pipelines; p++) c->count[p] = (micro_batches + c->pipelines - 1) / c->pipelines;
    for (int64_t p = 0; p < c->pipelines; p++) {
        if (p > 0 && heti_s_alike(s, c, p - 1, p)) {
            heti_s_copy_cuts(s, c, p, c, p - 1);
            s->fits[p] = s->fits[p - 1];
        } else if (!heti_s_as_before(s, c, p, s->scratch[c->device[c->first[p]]])) s->fits[p] = heti_s_cut(s, c, p);
    }
    heti_s_close_ranks(s, c);
    if (c->pipelines == 0) return 0;
    heti_s_share(s, c);
    return 1;
}

/* By lowest device, as the space is declared. */
static void heti_s_canonical(heti_s_seek *s, heti_s_choice *c) {
    heti_s_choice *to = &s->sorted;
    int64_t at = 0;
    for (int64_t r = 0; r < s->ranks; r++) s->scratch[r] = -1;
    for (int64_t p = 0; p < c->pipelines; p++) {
        int64_t lowest = s->ranks;
        for (int64_t i = c->first[p]; i < c->first[p + 1]; i++) lowest = heti_s_min(lowest, c->device[i]);
        s->scratch[lowest] = p;
    }
    heti_s_choice_copy(s, to, c);
    for (int64_t r = 0, p = 0; r < s->ranks; r++) {
        const int64_t from = s->scratch[r];
        if (from < 0) continue;
        to->count[p] = c->count[from];
        HETI_T_COPY(&to->device[at], &c->device[c->first[from]], heti_s_places(c, from));
        heti_s_copy_cuts(s, to, p, c, from);
        at += heti_s_places(c, from);
        to->first[++p] = at;
    }
    for (int64_t i = 1; i < to->keepers; i++) /* ascending */
        for (int64_t k = at + i; k > at && to->device[k - 1] > to->device[k]; k--)
            heti_s_exchange(&to->device[k - 1], &to->device[k]);
    heti_s_choice_copy(s, c, to);
}

/* About what weights that come and sums that leave make forward and backward of a stage longer. */
static double heti_s_guess_moves(heti_s_seek *s, const heti_s_choice *c, const heti_s_spot *spot, double both) {
    const double others = 1 - 1 / heti_s_real(c->pipelines),
                 forward = heti_s_stage_seconds(s, spot->kind, HETI_S_FORWARD, spot->begin, spot->end, c->granules);
    double fetch = 0, leave = 0;
    if (c->pipelines == 1 || c->shard < HET_SHARD_GRADIENTS) return 0;
    HETI_T_CLEAR(s->scratch, c->pipelines);
    for (int64_t u = spot->begin; u < spot->end; u++) {
        const het_link_cost link = heti_s_unit_link(s, c, u);
        const heti_s_prefix *a = &s->before[u], *b = &s->before[u + 1];
        if (c->shard == HET_SHARD_WEIGHTS) fetch += link.latency + (b->weights - a->weights) * others * link.bandwidth;
        leave += link.latency + (b->trained - a->trained) * others * link.bandwidth * s->d.profile->reduce_bytes;
    }
    return heti_s_larger(0, fetch - forward) + heti_s_larger(0, fetch + leave - (both - forward));
}

/* About what a pipeline takes, in closed form: a micro-batch's way forward, and back up to a cut,
   and for each further one what the busiest device has to do, W of which fills what others wait.
   With two stages a device half of the way is filled. *work: seconds of all its devices; *alone:
   what part of them the busiest takes with nothing beside it. */
static double heti_s_guess_pipeline(heti_s_seek *s, const heti_s_choice *c, int64_t p, double *work, double *alone) {
    const int64_t stages = heti_s_stages(s, c, p), micro_batches = heti_s_micro_batches(s, c->granules);
    const int64_t rest = s->d.granules - (micro_batches - 1) * c->granules, split = s->order[c->order]->split;
    const double last = p == s->last_counted ? 1 - heti_s_real(rest) / heti_s_real(c->granules) : 0,
                 count = heti_s_real(c->count[p]) - last, size = count < 1 ? count : 1;
    double forward = 0, path = 0, longest = 0, most = 0, behind = 0, all = 0;
    int64_t kind = 0;
    for (int64_t i = 0; i < heti_s_places(c, p); i++) s->lower[i].work = 0;
    for (int64_t i = 0; i < stages; i++) {
        const heti_s_spot spot = heti_s_spot_of(s, c, p, i);
        double both = heti_s_spot_both(s, c, &spot);
        both += heti_s_guess_moves(s, c, &spot, both);
        const double w = split ? heti_s_seconds(s, spot.kind, HETI_S_WEIGHT, spot.begin, spot.end, c->granules) : 0;
        if (i == 0) behind = w;
        path += both - w;
        longest = heti_s_larger(longest, path);
        forward += heti_s_seconds(s, spot.kind, HETI_S_FORWARD, spot.begin, spot.end, c->granules);
        all += both;
        s->lower[spot.place].work += both;
        if (s->lower[spot.place].work > most) most = s->lower[spot.place].work, kind = spot.kind;
        if (i + 1 == stages) continue;
        const int64_t next = heti_s_spot_of(s, c, p, i + 1).device;
        forward += heti_s_message(s, spot.device, next, spot.end - 1, c->granules);
        path += heti_s_message(s, spot.device, next, spot.end - 1, c->granules) +
                heti_s_message(s, next, spot.device, spot.end - 1, c->granules);
        if (heti_s_is_cut(s->d.profile, spot.end - 1)) path = forward;
    }
    path = (longest + behind) * size;
    *work += all * count;
    *alone = heti_s_seconds(s, kind, HETI_S_LEAST + HETI_S_FORWARD, 0, s->units, c->granules) /
             (heti_s_seconds(s, kind, HETI_S_FORWARD, 0, s->units, c->granules) + 1e-300);
    if (stages > heti_s_places(c, p)) return heti_s_larger(path, count * most + (path - most * size) / 2);
    return path + (count - size) * most;
}

/* Not simulated: what bounds say and what the slowest pipeline, reductions, updates take about. */
static double heti_s_guess(heti_s_seek *s, const heti_s_choice *c) {
    double after, bound, slowest = 0, work = 0, ratio = 1;
    if (c->team != NULL) return s->guess;
    after = heti_s_bound_after(s, c);
    bound = heti_s_bound_of(s, c, 1, after);
    for (int64_t p = 0; p < c->pipelines; p++) {
        double alone, seconds;
        if (c->count[p] == 0) continue;
        seconds = heti_s_guess_pipeline(s, c, p, &work, &alone);
        if (seconds > slowest) slowest = seconds, ratio = alone;
    }
    slowest *= ratio + (1 - ratio) * work / (slowest * heti_s_real(s->ranks) + 1e-300); /* as het_simulate_costs */
    return heti_s_larger(bound, slowest + after + 0.5 * heti_s_larger(0, heti_s_update(s, c) - after));
}

static void heti_s_note_missing(heti_s_seek *s) {
    heti_s_lack *lack = &s->lack;
    if (lack->bytes >= s->least_lack.bytes) return;
    lack->begin = s->units, lack->end = 0;
    for (const het_stage *stage = s->plan->stage; stage < s->plan->stage + s->plan->stages; stage++) {
        if (stage->rank != lack->rank) continue;
        lack->begin = heti_s_min(lack->begin, stage->unit_begin);
        lack->end = heti_s_max(lack->end, stage->unit_end);
    }
    if (lack->end > 0) s->least_lack = *lack; /* else a keeper, or a member that does not lead */
}

/* Simulates the choice with s->lists and s->needs: c->seconds, or HETI_S_MISFIT and more, or
   HETI_S_NONE. s->made: the simulation, where the choice is a plan. */
static het_result heti_s_judge_lists(heti_s_seek *s, heti_s_choice *c, het_choice timeline) {
    c->seconds = HETI_S_NONE;
    s->to.evaluations++;
    if (s->lists == NULL) return HET_OK;
    heti_s_choice_plan(s, c);
    HETI_T_TRY(heti_s_choice_memory(s, c));
    if (s->impossible) return HET_OK;
    heti_s_memory_missing(s);
    if (s->lack.bytes > 0) {
        heti_s_note_missing(s);
        c->seconds = HETI_S_MISFIT * (1 + s->lack.bytes);
        return HET_OK;
    }
    if (s->guessing) {
        c->seconds = heti_s_guess(s, c);
        return HET_OK;
    }
    HETI_T_TRY(heti_s_choice_costs(s, c));
    het_simulation_free(s->made);
    HETI_T_TRY(het_simulate_costs(s->plan, s->lists, s->costs, timeline, &s->allocator, &s->made, s->error));
    c->seconds = s->made->makespan;
    return HET_OK;
}

/* The same with lists made for it. */
static het_result heti_s_judge(heti_s_seek *s, heti_s_choice *c, het_choice timeline) {
    HETI_T_TRY(heti_s_choice_lists(s, c));
    return heti_s_judge_lists(s, c, timeline);
}

/* ---- the best of each form ---- */

/* 0: of this search, 1: with teams, 2: with slices. */
static int heti_s_sort_of(const heti_s_choice *c) { return c->team == NULL ? 0 : c->team->slices > 1 ? 2 : 1; }

static int heti_s_same_form(const heti_s_seek *s, const heti_s_choice *a, const heti_s_choice *b) {
    if (s->guessing && (a->granules != b->granules || a->shard != b->shard ||
                        (a->team != NULL && b->team != NULL && (a->team->members != b->team->members ||
                         a->team->member->columns != b->team->member->columns)))) return 0;
    return a->pipelines == b->pipelines && a->first[a->pipelines] == b->first[b->pipelines] &&
        (a->order == b->order || (s->guessing && !heti_s_unequal(a->seconds, b->seconds))) &&
        a->keepers == b->keepers && heti_s_sort_of(a) == heti_s_sort_of(b);
}

/* Keeps a copy of a choice that was judged, where it is among the best. */
static void heti_s_keep(heti_s_seek *s, const heti_s_choice *c) {
    int64_t i, at;
    if (c->seconds >= HETI_S_MISFIT) return;
    for (i = 0; i < s->found_count && !heti_s_same_form(s, &s->found[i], c); i++) {}
    if (i < s->found_count && s->found[i].seconds <= c->seconds) return;
    if (i == s->found_count) {
        if (s->found_count < s->d.most_found) s->found_count++;
        else if (s->found[--i].seconds <= c->seconds) return;
    }
    const heti_s_choice last = s->found[i];
    het_plan_free(last.team);
    for (at = i; at > 0 && s->found[at - 1].seconds > c->seconds; at--) s->found[at] = s->found[at - 1];
    s->found[at] = last;
    heti_s_choice_copy(s, &s->found[at], c);
}

static int64_t heti_s_spent(const heti_s_seek *s) { return s->to.evaluations + s->moves / 10; }
static int heti_s_has_clock(const heti_s_seek *s) { return s->d.clock != NULL && s->d.seconds > 0; }

/* What is under way has used the evaluations that it was given. */
static int heti_s_is_spent(const heti_s_seek *s) { return s->result != HET_OK || heti_s_spent(s) >= s->until; }

/* It has used them, or its time. */
static int heti_s_is_over(heti_s_seek *s) {
    return heti_s_is_spent(s) || (heti_s_has_clock(s) && s->d.clock(s->d.user) >= s->until_seconds);
}

/* Gives what follows `part` of the evaluations and of the time that are left. 0: there are none. */
static int heti_s_give(heti_s_seek *s, double part) {
    s->until = s->budget;
    s->until_seconds = s->started + s->d.seconds;
    if (heti_s_is_over(s)) return 0;
    s->until -= HETI_T_CAST(int64_t, (1 - part) * heti_s_real(s->budget - heti_s_spent(s)));
    if (heti_s_has_clock(s)) s->until_seconds -= (1 - part) * (s->until_seconds - s->d.clock(s->d.user));
    return 1;
}

/* Judges and keeps. 0: the search is over; time alone does not end it before a plan is known. */
static int heti_s_try(heti_s_seek *s, heti_s_choice *c) {
    if (s->found_count > 0 ? heti_s_is_over(s) : heti_s_is_spent(s)) return 0;
    heti_s_canonical(s, c);
    s->result = heti_s_judge(s, c, HET_NO);
    if (s->result != HET_OK) return 0;
    heti_s_keep(s, c);
    return 1;
}

/* Where what the choice came to is kept, under *of. */
static heti_s_known *heti_s_known_at(heti_s_seek *s, const heti_s_choice *c, uint64_t *of) {
    const size_t n = HETI_T_CAST(size_t, c->first[c->pipelines]), p = HETI_T_CAST(size_t, c->pipelines);
    const int64_t head[7] = { c->pipelines, c->granules, c->order, c->limit, c->state, c->shard, c->keepers };
    uint64_t key = het_xxh64(head, sizeof head, 0);
    key = het_xxh64(c->first, (p + 1) * sizeof *c->first, key);
    key = het_xxh64(c->count, p * sizeof *c->count, key);
    key = het_xxh64(c->device, HETI_T_CAST(size_t, heti_s_used(c)) * sizeof *c->device, key);
    key = het_xxh64(c->end, HETI_T_CAST(size_t, heti_s_chunks(s, c)) * n * sizeof *c->end, key);
    *of = het_xxh64(c->recompute, n * sizeof *c->recompute, key) | 1u;
    return &s->known[*of / 2 % HETI_S_KNOWN];
}

/* heti_s_try, but what is known is not simulated again. */
static int heti_s_try_once(heti_s_seek *s, heti_s_choice *c) {
    uint64_t key;
    heti_s_canonical(s, c);
    heti_s_known *known = heti_s_known_at(s, c, &key);
    if (known->key == key) c->seconds = known->seconds;
    else if (!heti_s_try(s, c)) return 0;
    known->key = key;
    known->seconds = c->seconds;
    return 1;
}

/* ---- beginnings ---- */

/* The fastest `devices` devices in pipelines of `length`, in the way `way`: 0 one behind the other
   in the order of the cluster, so that pipelines stay inside groups; 1 every so many-th, so that
   they go across groups; 2 and 3 the same in the order of speed: alike devices together, unlike
   ones together. keep: those that are in no pipeline become keepers. 0: a snake over a short last
   row names a device twice. */
static int heti_s_arrange(heti_s_seek *s, heti_s_choice *c, int64_t devices, int64_t length, int way, int keep) {
    const int64_t pipelines = (devices + length - 1) / length;
    int64_t *list = s->scratch, at = 0;
    HETI_T_CLEAR(s->taken, s->ranks);
    for (int64_t i = 0; i < devices; i++) s->taken[s->by_speed[i]] = 1;
    for (int64_t i = 0; i < s->ranks; i++) {
        const int64_t device = way < 2 ? s->by_place[i] : s->by_speed[i];
        if (s->taken[device]) list[at++] = device;
    }
    HETI_T_CLEAR(s->used, s->ranks);
    at = c->keepers = 0;
    c->pipelines = pipelines;
    c->first[0] = 0;
    for (int64_t p = 0; p < pipelines; p++) {
        const int64_t n = devices / pipelines + (p < devices % pipelines);
        for (int64_t i = 0; i < n; i++) {
            int64_t from = (way & 1) == 0 ? at : i * pipelines + (way == 3 && (i & 1) ? pipelines - 1 - p : p);
            if (from >= devices) from = devices - 1 - (from - devices); /* the last row of a snake may be short */
            if (s->used[list[from]]++) return 0;
            c->device[at++] = list[from];
        }
        c->first[p + 1] = at;
    }
    for (int64_t r = 0; r < s->ranks && keep; r++)
        if (!s->used[r]) c->device[at + c->keepers++] = r;
    return 1;
}

/* The next number of granules to look at: 1, 2, 3, 4, 6, 8, 12, ... */
static int64_t heti_s_next_size(int64_t g) {
    int64_t power = 1;
    while (power * 2 <= g) power *= 2;
    return g < 2 ? g + 1 : g == power ? g + power / 2 : 2 * power;
}

static int64_t heti_s_least_granules(const heti_s_seek *s) {
    return (s->d.granules + s->d.most_micro_batches - 1) / s->d.most_micro_batches;
}

/* Finds granules for devices that are arranged, by estimate. 0: nothing fits. */
static int heti_s_size(heti_s_seek *s, heti_s_choice *c, const heti_s_choice *arranged) {
    double best = HETI_S_NONE;
    for (int64_t g = heti_s_least_granules(s); g <= s->d.most_granules; g = heti_s_next_size(g)) {
        heti_s_choice_copy(s, c, arranged);
        c->granules = g;
        if (!heti_s_refit(s, c)) continue;
        const double t = heti_s_estimate(s, c);
        if (t >= best) continue;
        best = t;
        heti_s_choice_copy(s, &s->sorted, c);
    }
    if (best < HETI_S_NONE) heti_s_choice_copy(s, c, &s->sorted);
    return best < HETI_S_NONE;
}

/* What was missing after all is set aside, and the cut made anew. 0: the search is over. */
static int heti_s_begin(heti_s_seek *s, const heti_s_choice *arranged) {
    heti_s_choice *c = &s->next;
    int goes_on = 1;
    HETI_T_CLEAR(s->reserve, s->ranks);
    for (int round = 0; round < 4; round++) {
        if (!heti_s_size(s, c, arranged) || !heti_s_is_plan(s, c)) break;
        const double guess = heti_s_estimate(s, c);
        if (s->found_count > 0 && guess > 1.2 * s->least_guess) break;
        if ((goes_on = heti_s_try(s, c)) == 0) break;
        if (c->seconds < HETI_S_MISFIT) s->least_guess = heti_s_smaller(s->least_guess, guess);
        if (c->seconds < HETI_S_MISFIT || c->seconds >= HETI_S_NONE) break;
        s->reserve[s->lack.rank] += s->lack.bytes;
    }
    HETI_T_CLEAR(s->reserve, s->ranks);
    if (goes_on && c->pipelines > 0 && c->seconds < s->best.seconds) heti_s_choice_copy(s, &s->best, c);
    return goes_on && !heti_s_is_over(s);
}

/* How many devices stay when the slowest go: the next smaller number behind which the speed falls
   by a third at least. 0: none. */
static int64_t heti_s_fewer(const heti_s_seek *s, int64_t devices) {
    while (--devices > 0)
        if (heti_s_rate(s, s->by_speed[devices]) < 0.67 * heti_s_rate(s, s->by_speed[devices - 1])) return devices;
    return 0;
}

/* All lengths and ways for the fastest `devices` devices and a schedule. 0: the search is over. */
static int heti_s_beginnings_of(heti_s_seek *s, int64_t order, int64_t devices, int32_t shard) {
    heti_s_choice *c = &s->now;
    for (int64_t length = 1; length <= heti_s_min(devices, s->units); length = heti_s_next_size(length))
        for (int way = 0; way < 4; way++) {
            if ((length == 1 || length >= devices) && (way & 1)) continue;
            c->order = order;
            c->limit = 0;
            c->state = s->wide ? HETI_S_STATE_KEPT : HETI_S_STATE_EVEN;
            c->shard = shard;
            c->seconds = HETI_S_NONE;
            if (heti_s_arrange(s, c, devices, length, way, s->wide) && !heti_s_begin(s, c)) return 0;
        }
    return 1;
}

static void heti_s_beginnings(heti_s_seek *s, int32_t shard) {
    int64_t order, devices;
    int fewer;
    for (fewer = 0, devices = s->ranks - s->wide; fewer < 4 && devices > 0; fewer++, devices = heti_s_fewer(s, devices))
        for (int place = HET_PLACE_ANY; place <= HET_PLACE_V; place++) {
            for (order = 0; order < s->orders && s->order[order]->placement != place; order++) {}
            if (order < s->orders && !heti_s_beginnings_of(s, order, devices, shard)) return;
        }
}

/* ---- moves ---- */

static int heti_s_twins(const heti_s_seek *s, const heti_s_choice *c, int64_t p, int64_t q) {
    return heti_s_alike(s, c, p, q) && memcmp(heti_s_ends(s, c, p), heti_s_ends(s, c, q),
                                              HETI_T_CAST(size_t, heti_s_stages(s, c, p)) * sizeof *c->end) == 0;
}

/* Moves the end of a stage in a pipeline and, where asked, in all like it. */
static int heti_s_move_cut(heti_s_seek *s, heti_s_choice *c) {
    const int64_t p = heti_s_below(s, c->pipelines), stages = heti_s_stages(s, c, p);
    const int64_t far = heti_s_below(s, 4) == 0 ? 2 : 1, by = heti_s_below(s, 2) == 0 ? -far : far,
                  all = heti_s_below(s, 3) > 0;
    int64_t *own = heti_s_ends(s, c, p), i, q, j, until;
    if (stages < 2) return 0;
    i = heti_s_below(s, stages - 1);
    /* several ends together */
    until = heti_s_below(s, 3) == 0 ? heti_s_min(stages - 1, i + 1 + heti_s_below(s, stages - 1 - i)) : i + 1;
    for (q = c->pipelines; q-- > 0;) {
        if (q == p || !all || !heti_s_twins(s, c, p, q)) continue;
        for (j = i; j < until; j++) heti_s_ends(s, c, q)[j] += by;
    }
    for (j = i; j < until; j++) own[j] += by;
    if (own[i] <= (i == 0 ? 0 : own[i - 1]) || own[until - 1] >= own[until]) return 0;
    if (heti_s_below(s, 4) > 0) heti_s_share(s, c);
    return 1;
}

static int64_t heti_s_pipeline_of(const heti_s_choice *c, int64_t place) {
    int64_t p = 0;
    while (c->first[p + 1] <= place) p++;
    return p;
}

/* Devices change places; those of other pipelines get other cuts. */
static int heti_s_move_swap(heti_s_seek *s, heti_s_choice *c) {
    const int64_t total = heti_s_used(c), i = heti_s_below(s, total), j = heti_s_below(s, total);
    if (i == j || (s->kind_of[c->device[i]] == s->kind_of[c->device[j]] && s->d.cluster->link == NULL &&
                   s->d.cluster->device[c->device[i]].group == s->d.cluster->device[c->device[j]].group))
        return 0;
    heti_s_exchange(&c->device[i], &c->device[j]);
    if (heti_s_below(s, 4) == 0) return 1; /* as they are cut */
    return heti_s_refit(s, c);
}

/* Takes the device at a place out of its pipeline, or a keeper. */
static void heti_s_take_out(heti_s_choice *c, int64_t place) {
    const int keeps = place >= c->first[c->pipelines];
    const int64_t p = keeps ? 0 : heti_s_pipeline_of(c, place), total = heti_s_used(c);
    for (int64_t i = place; i + 1 < total; i++) c->device[i] = c->device[i + 1];
    c->keepers -= keeps;
    if (keeps) return;
    for (int64_t q = p + 1; q <= c->pipelines; q++) c->first[q]--;
    if (c->first[p] < c->first[p + 1]) return;
    for (int64_t q = p + 1; q < c->pipelines; q++) c->first[q] = c->first[q + 1];
    c->pipelines--;
}

static void heti_s_put_in(heti_s_choice *c, int64_t p, int64_t place, int64_t device) {
    for (int64_t i = heti_s_used(c); i > place; i--) c->device[i] = c->device[i - 1];
    c->device[place] = device;
    for (int64_t q = p + 1; q <= c->pipelines; q++) c->first[q]++;
}

/* A device at work, idle or a keeper goes to another pipeline, one of its own, out, or to keep. */
static int heti_s_move_device(heti_s_seek *s, heti_s_choice *c) {
    const int64_t total = heti_s_used(c), what = heti_s_below(s, s->ranks), kind = heti_s_below(s, 8);
    int64_t i, place = 0, p;
    for (i = 0; i < total && c->device[i] != what; i++) {}
    if (i < total) {
        if (c->first[c->pipelines] == 1 && c->device[0] == what) return 0;
        heti_s_take_out(c, i);
    }
    if (heti_s_may_keep(s) && heti_s_below(s, 3) == 0) {
        c->device[c->first[c->pipelines] + c->keepers++] = what;
        if (heti_s_below(s, 2) == 0) c->state = HETI_S_STATE_KEPT;
        return heti_s_refit(s, c);
    }
    if (c->keepers == 0 && c->state == HETI_S_STATE_KEPT) c->state = HETI_S_STATE_EVEN;
    if (i < total && kind == 0) return heti_s_refit(s, c);
    if (kind <= 2) {
        c->first[c->pipelines + 1] = c->first[c->pipelines];
        p = c->pipelines++;
        c->first[p + 1] = c->first[p];
        place = c->first[p];
    } else {
        p = heti_s_below(s, c->pipelines);
        place = c->first[p] + heti_s_below(s, heti_s_places(c, p) + 1);
    }
    heti_s_put_in(c, p, place, what);
    return heti_s_refit(s, c);
}

/* One pipeline becomes two, or two become one; or all of them. */
static int heti_s_move_pipelines(heti_s_seek *s, heti_s_choice *c) {
    const int64_t p = heti_s_below(s, c->pipelines), n = heti_s_places(c, p);
    int64_t q;
    if (heti_s_below(s, 4) == 0) { /* of each device another length */
        const int64_t length = 1 + heti_s_below(s, heti_s_min(s->units, s->ranks));
        const int way = HETI_T_CAST(int, heti_s_below(s, 4));
        const int64_t devices = heti_s_below(s, 2) == 0 ? s->ranks : c->first[c->pipelines];
        return heti_s_arrange(s, c, devices, length, way, c->keepers > 0) && heti_s_refit(s, c);
    }
    if (n > 1 && heti_s_below(s, 2) == 0) {
        const int64_t at = c->first[p] + 1 + heti_s_below(s, n - 1);
        for (q = c->pipelines; q > p; q--) c->first[q + 1] = c->first[q];
        c->first[p + 1] = at;
        c->pipelines++;
        return heti_s_refit(s, c);
    }
    q = heti_s_below(s, c->pipelines);
    if (q == p) return 0;
    const int behind = heti_s_below(s, 2) == 0; /* q behind p; or one device of p and one of q in turn */
    const int64_t m = heti_s_places(c, q), from = c->first[q], r = q < p ? p - 1 : p;
    HETI_T_COPY(s->scratch, &c->device[from], m);
    for (int64_t i = 0; i < m; i++) heti_s_take_out(c, from);
    for (int64_t i = 0; i < m; i++)
        heti_s_put_in(c, r, behind ? c->first[r + 1] : heti_s_min(c->first[r] + 2 * i + 1, c->first[r + 1]),
                      s->scratch[i]);
    return heti_s_refit(s, c);
}

static int heti_s_move_share(heti_s_seek *s, heti_s_choice *c) {
    const int64_t p = heti_s_below(s, c->pipelines), q = heti_s_below(s, c->pipelines);
    if (p == q || c->count[p] == 0) return 0;
    c->count[p]--, c->count[q]++;
    return 1;
}

static int heti_s_move_granules(heti_s_seek *s, heti_s_choice *c) {
    const int64_t before = c->granules, how = heti_s_below(s, 5);
    int64_t g = how == 0 ? before - 1 : how == 1 ? before + 1 : how == 2 ? before / 2 : how == 3 ? before * 2
        : 1 + heti_s_below(s, s->d.most_granules);
    g = heti_s_max(heti_s_least_granules(s), heti_s_min(g, s->d.most_granules));
    if (g == before) return 0;
    c->granules = g;
    if (heti_s_below(s, 2) == 0) return heti_s_refit(s, c);
    heti_s_share(s, c);
    return 1;
}

static int heti_s_move_order(heti_s_seek *s, heti_s_choice *c) {
    const int64_t chunks = heti_s_chunks(s, c), before = c->order;
    const int only_limit = s->order[before]->limited && heti_s_below(s, 2) == 0;
    if (!only_limit && !s->one_order) c->order = heti_s_below(s, s->orders);
    c->limit = s->order[c->order]->limited ? heti_s_below(s, heti_s_longest(c) + 1) : 0;
    if (chunks != heti_s_chunks(s, c)) return heti_s_refit(s, c);
    return c->order != before || s->order[c->order]->limited;
}

static int heti_s_move_recompute(heti_s_seek *s, heti_s_choice *c) {
    const int64_t total = c->first[c->pipelines], at = heti_s_below(s, total), p = heti_s_pipeline_of(c, at),
                  how = heti_s_below(s, 3);
    const int both = s->d.store == HET_YES, again = s->d.recompute != HET_NO && (!both || heti_s_below(s, 2));
    const int32_t from = c->recompute[at], way = from & 3;
    const int whole = again && !s->order[c->order]->split && heti_s_below(s, 4) == 0;
    const int32_t to = whole ? from - way + (way == HET_RECOMPUTE_STAGE ? HET_RECOMPUTE_UNIT : HET_RECOMPUTE_STAGE)
                     : again ? from - way + (way == HET_RECOMPUTE_NONE)
                     : !both ? from : way + 4 * HETI_T_CAST(int32_t, heti_s_below(s, 4));
    if (to == from) return 0;
    if (how == 0) c->recompute[at] = to;
    for (int64_t i = 0; i < total && how == 1; i++) c->recompute[i] = to;
    for (int64_t q = 0; q < c->pipelines && how == 2; q++)
        if (heti_s_twins(s, c, p, q)) c->recompute[c->first[q] + at - c->first[p]] = to;
    heti_s_share(s, c);
    return 1;
}

static int32_t heti_s_drawn_shard(heti_s_seek *s) {
    return HETI_T_CAST(int32_t, HET_SHARD_STATE + heti_s_below(s, heti_s_most_shard(s)));
}

static int32_t heti_s_drawn_state(heti_s_seek *s, const heti_s_choice *c) {
    return HETI_T_CAST(int32_t, heti_s_below(s, heti_s_states(s, c->keepers)));
}

static int heti_s_move_state(heti_s_seek *s, heti_s_choice *c) {
    const int32_t before = c->state, shard = c->shard;
    if (s->d.shard > HET_SHARD_STATE && heti_s_below(s, 2)) c->shard = heti_s_drawn_shard(s);
    else c->state = heti_s_drawn_state(s, c);
    return c->state != before || c->shard != shard;
}

/* Whether the moved choice is to be gone on with. It is simulated where the estimate promises more
   than ever in this climb, or where none fits yet. */
static int heti_s_accept(heti_s_seek *s, double slack, double *estimate, double *least) {
    const int none = s->now.seconds >= HETI_S_MISFIT;
    const double guess = none ? 0 : heti_s_estimate(s, &s->next);
    if (!none && (guess >= HETI_S_MISFIT || guess > *estimate * slack)) {
        s->to.skipped++;
        return 0;
    }
    s->next.seconds = s->now.seconds;
    if (none || guess < *least) {
        if (!heti_s_try(s, &s->next) || s->next.seconds > s->now.seconds * slack) return 0;
        *least = guess;
    }
    *estimate = guess;
    return 1;
}

/* One to three moves from s->now to s->next, each as often as it stands here. 0: they lead to no
   plan. */
static int heti_s_moved(heti_s_seek *s) {
    static int (*const heti_s_moves[])(heti_s_seek *, heti_s_choice *) = {
        heti_s_move_cut, heti_s_move_cut, heti_s_move_cut, heti_s_move_cut, heti_s_move_cut, heti_s_move_cut,
        heti_s_move_swap, heti_s_move_swap, heti_s_move_device, heti_s_move_device, heti_s_move_device,
        heti_s_move_pipelines, heti_s_move_pipelines, heti_s_move_share, heti_s_move_share, heti_s_move_granules,
        heti_s_move_order, heti_s_move_order, heti_s_move_recompute, heti_s_move_state };
    int64_t n = 1 + (heti_s_below(s, 3) == 0);
    n += heti_s_below(s, 6) == 0;
    s->moves++;
    heti_s_choice_copy(s, &s->next, &s->now);
    for (int64_t i = 0; i < n; i++)
        if (s->next.pipelines == 0 || !heti_s_moves[heti_s_below(s, 20)](s, &s->next)) return 0;
    return heti_s_is_plan(s, &s->next);
}

/* Whether the moved choice is to be gone on with: every one that no bound rules out is
   simulated. One of eight that do not fit is gone on with: from there on less and less is missing,
   and what fits at the end may be where no single move leads. */
static int heti_s_accept_simulated(heti_s_seek *s, double slack) {
    if (s->now.seconds < HETI_S_MISFIT && (heti_s_too_large(s, &s->next) ||
            heti_s_bound_of(s, &s->next, 1, heti_s_bound_after(s, &s->next)) > s->now.seconds * slack)) {
        s->to.skipped++;
        return 0;
    }
    if (!heti_s_try_once(s, &s->next) || s->next.seconds >= HETI_S_NONE) return 0;
    if (s->next.seconds >= HETI_S_MISFIT && s->now.seconds < HETI_S_MISFIT) return heti_s_below(s, 8) == 0;
    return s->next.seconds <= s->now.seconds * slack;
}

/* Climbs from s->now: accepts what is not more than a part worse, which shrinks from `worse` to
   nothing. Ends after `most` moves. */
static void heti_s_climb(heti_s_seek *s, int64_t most, double worse, int simulate) {
    double estimate = simulate ? 0 : heti_s_estimate(s, &s->now), least = estimate * (1 - 1e-9);
    s->plain = simulate || s->guessing;
    for (int64_t moves = 0; moves < most && !heti_s_is_over(s); moves++) {
        const double left = 1 - heti_s_real(moves) / heti_s_real(most), slack = 1 + worse * left * left;
        if (!heti_s_moved(s)) continue;
        if (simulate ? heti_s_accept_simulated(s, slack) : heti_s_accept(s, slack, &estimate, &least))
            heti_s_choice_copy(s, &s->now, &s->next);
    }
    s->plain = s->guessing;
}

/* Some devices in some order, in pipelines of some length, with settings that are drawn, as s->now.
   0: that is no plan. */
static int heti_s_drawn(heti_s_seek *s) {
    heti_s_choice *c = &s->next;
    const int64_t devices = heti_s_below(s, 2) == 0 ? s->ranks : 1 + heti_s_below(s, s->ranks),
                  length = 1 + heti_s_below(s, devices);
    int64_t j;
    for (int64_t i = 0; i < s->ranks; i++) c->device[i] = i;
    for (int64_t i = 0; i < devices; i++) heti_s_exchange(&c->device[i], &c->device[i + heti_s_below(s, s->ranks - i)]);
    for (j = c->pipelines = c->first[0] = 0; j < devices; c->first[++c->pipelines] = j)
        j = heti_s_min(devices, j + length);
    c->keepers = heti_s_may_keep(s) ? heti_s_below(s, s->ranks - devices + 1) : 0;
    c->order = heti_s_below(s, s->orders);
    c->limit = s->order[c->order]->limited ? heti_s_below(s, length + 1) : 0;
    c->state = heti_s_drawn_state(s, c);
    c->shard = heti_s_drawn_shard(s);
    c->granules = heti_s_least_granules(s) + heti_s_below(s, s->d.most_granules - heti_s_least_granules(s) + 1);
    if (!heti_s_refit(s, c) || !heti_s_is_plan(s, c) || !heti_s_try_once(s, c)) return 0;
    heti_s_choice_copy(s, &s->now, c);
    return 1;
}

/* ---- all of a small space ---- */

static void heti_s_each_device(heti_s_seek *s, int64_t next);

/* What is more than that is not of interest. */
static double heti_s_least_found(const heti_s_seek *s) {
    const int64_t i = s->guessing ? s->d.most_found - 1 : 0;
    return s->found_count > i ? s->found[i].seconds : HETI_S_NONE;
}

/* Recomputation, what is stored, and state shares, with a schedule and its limit. Where nothing is
   stored these alone make the lists. */
static void heti_s_each_recompute(heti_s_seek *s, double after) {
    heti_s_choice *c = &s->now;
    const int64_t places = c->first[c->pipelines];
    const int64_t ways = heti_s_ways(s, s->order[c->order]->split);
    int64_t masks = 1, left, i;
    int made = 0; /* the lists */
    for (i = 0; i < places; i++) masks *= ways;
    for (int64_t mask = 0; mask < masks && !heti_s_is_over(s); mask++) {
        for (i = 0, left = mask; i < places; i++, left /= ways) c->recompute[i] = heti_s_place_way(s, c, left % ways);
        if (!heti_s_is_plan(s, c)) continue;
        for (i = 0, left = mask; i < places && c->recompute[i] == heti_s_place_way(s, c, left % ways); i++)
            left /= ways;
        if (i < places) continue; /* the same as without it */
        if (heti_s_too_large(s, c) || heti_s_hopeless(heti_s_bound_of(s, c, 1, after), heti_s_least_found(s))) {
            s->to.skipped++;
            continue;
        }
        if (!made || s->d.store == HET_YES) {
            s->result = heti_s_choice_lists(s, c);
            if (s->result != HET_OK || s->lists == NULL) break;
            made = 1;
        }
        for (c->state = 0; c->state < heti_s_states(s, c->keepers) && s->result == HET_OK; c->state++) {
            s->result = heti_s_judge_lists(s, c, HET_NO);
            if (s->result != HET_OK) break;
            heti_s_keep(s, c);
            if (c->state == HETI_S_STATE_EVEN && c->seconds >= HETI_S_MISFIT && !heti_s_shares_help(s)) break;
        }
        c->state = HETI_S_STATE_EVEN;
    }
}

/* The schedules, recomputations and state shares of devices, cuts and counts that are set. */
static void heti_s_each_setting(heti_s_seek *s, double after) {
    heti_s_choice *c = &s->now;
    const int64_t before = c->order;
    for (int64_t o = 0; o < s->orders; o++) {
        if (s->order[o]->placement != s->order[before]->placement) continue;
        c->order = o;
        for (c->limit = 0; c->limit <= (s->order[o]->limited ? heti_s_longest(c) : 0); c->limit++)
            heti_s_each_recompute(s, after);
    }
    c->order = before;
}

/* Micro-batches of pipelines p and on. after: seconds behind the verdict at least. */
static void heti_s_each_count(heti_s_seek *s, int64_t p, int64_t left, double after) {
    heti_s_choice *c = &s->now;
    if (p + 1 == c->pipelines) {
        c->count[p] = left;
        if (heti_s_hopeless(heti_s_bound_of(s, c, 0, after), heti_s_least_found(s))) s->to.skipped++;
        else heti_s_each_setting(s, after);
        return;
    }
    for (int64_t n = 0; n <= left && !heti_s_is_over(s); n++) {
        c->count[p] = n;
        s->last_counted = p; /* with the smallest micro-batch it takes no longer */
        if (n > 0 && heti_s_hopeless(heti_s_bound_pipeline(s, c, p, 0) + after, heti_s_least_found(s))) {
            s->to.skipped++;
            return; /* nor with more of them */
        }
        heti_s_each_count(s, p + 1, left - n, after);
    }
}

/* Ends of stage i of pipeline p and of all behind it. */
static void heti_s_each_end(heti_s_seek *s, int64_t p, int64_t i) {
    heti_s_choice *c = &s->now;
    const int64_t stages = heti_s_stages(s, c, p), begin = i == 0 ? 0 : heti_s_ends(s, c, p)[i - 1];
    int64_t *end = &heti_s_ends(s, c, p)[i];
    if (i + 1 < stages) {
        for (*end = begin + 1; *end <= s->units - (stages - 1 - i) && !heti_s_is_over(s); ++*end) {
            if (!heti_s_has_room(s, c, p, i, heti_s_least_granules(s), 0)) break; /* nor for more */
            heti_s_each_end(s, p, i + 1);
        }
        return;
    }
    *end = s->units;
    if (begin >= s->units || !heti_s_has_room(s, c, p, i, heti_s_least_granules(s), 0)) return;
    if (p + 1 < c->pipelines) { heti_s_each_end(s, p + 1, 0); return; }
    const double after = heti_s_bound_after(s, c);
    for (int64_t g = heti_s_least_granules(s); g <= s->d.most_granules && !heti_s_is_over(s); g++) {
        for (int64_t q = 0; q < c->pipelines; q++)
            for (i = 0; i < heti_s_stages(s, c, q); i++)
                if (!heti_s_has_room(s, c, q, i, g, 0)) return; /* nor for more */
        c->granules = g;
        heti_s_each_count(s, 0, heti_s_micro_batches(s, g), after);
    }
}

/* Adds devices to the pipeline whose lowest device is `lowest`. */
static void heti_s_each_member(heti_s_seek *s, int64_t lowest, int64_t chunks) {
    heti_s_choice *c = &s->now;
    int64_t *end = &c->first[c->pipelines + 1], r;
    if (chunks * (*end - c->first[c->pipelines] + 1) > s->units) return;
    for (r = lowest; r < s->ranks && !heti_s_is_over(s); r++) {
        if (s->taken[r]) continue;
        s->taken[r] = 1;
        c->device[(*end)++] = r;
        if (s->taken[lowest]) {
            c->pipelines++;
            heti_s_each_device(s, lowest + 1);
            c->pipelines--;
        }
        heti_s_each_member(s, lowest, chunks);
        --*end;
        s->taken[r] = 0;
    }
}

/* Devices below `next` are in a pipeline, idle, or (taken twice) keepers. */
static void heti_s_each_device(heti_s_seek *s, int64_t next) {
    heti_s_choice *c = &s->now;
    while (next < s->ranks && s->taken[next]) next++;
    if (next == s->ranks) {
        c->keepers = 0;
        for (int64_t r = 0; r < s->ranks && c->pipelines > 0; r++)
            if (s->taken[r] > 1) c->device[c->first[c->pipelines] + c->keepers++] = r;
        if (s->searched && c->keepers == 0 && c->shard <= HETI_T_CAST(int32_t, s->d.shard)) return;
        if (c->pipelines > 0 && (c->shard == HET_SHARD_STATE || heti_s_divides(s, c))) heti_s_each_end(s, 0, 0);
        return;
    }
    c->first[c->pipelines + 1] = c->first[c->pipelines];
    heti_s_each_member(s, next, heti_s_chunks(s, c));
    heti_s_each_device(s, next + 1);
    if (!heti_s_may_keep(s)) return;
    s->taken[next] = 2;
    heti_s_each_device(s, next + 1);
    s->taken[next] = 0;
}

/* n over k */
static double heti_s_choose(int64_t n, int64_t k) {
    double ways = 1;
    for (int64_t i = 1; i <= k; i++) ways = ways * heti_s_real(n - k + i) / heti_s_real(i);
    return n < k ? 0 : ways;
}

/* About how many plans there are. ways[n][p]: of n devices in p pipelines, idle, or keepers, each
   pipeline begun by the lowest device left: their orders, cuts and recomputations; times the ways
   to share micro-batches among p. */
static double heti_s_space(const heti_s_seek *s) {
    double total = 0, ways[9][9];
    if (s->ranks > 8) return HETI_S_NONE;
    for (int32_t kind = 2 * HET_PLACE_ANY; kind <= 2 * HET_PLACE_V + 1; kind++) {
        const int32_t place = kind / 2, split = kind % 2;
        const double recompute = heti_s_real(heti_s_ways(s, split));
        const int64_t chunks = place == HET_PLACE_ANY ? 1 : 2;
        double settings = 0; /* schedules, each limit counting, times state shares */
        for (int64_t g = 0; g < s->orders; g++)
            if (s->order[g]->placement == place && (s->order[g]->split != 0) == split)
                settings += s->order[g]->limited ? 1 + heti_s_real(s->ranks) : 1;
        settings *= heti_s_real(heti_s_states(s, heti_s_may_keep(s))) * heti_s_real(heti_s_most_shard(s));
        memset(ways, 0, sizeof ways);
        ways[0][0] = 1;
        for (int64_t n = 1; n <= s->ranks; n++)
            for (int64_t p = 0; p <= n; p++) {
                double each = recompute; /* k devices in k! orders */
                ways[n][p] = ways[n - 1][p] * (heti_s_may_keep(s) ? 2 : 1);
                for (int64_t k = 1; p > 0 && k <= n && chunks * k <= s->units; k++, each *= recompute * heti_s_real(k))
                    ways[n][p] += each * heti_s_choose(n - 1, k - 1) * heti_s_choose(s->units - 1, chunks * k - 1) *
                    ways[n - k][p - 1];
            }
        for (int64_t g = heti_s_least_granules(s); g <= s->d.most_granules; g++)
            for (int64_t p = 1; p <= s->ranks; p++)
                total += settings * ways[s->ranks][p] * heti_s_choose(heti_s_micro_batches(s, g) + p - 1, p - 1);
    }
    return total;
}

static void heti_s_all(heti_s_seek *s) {
    heti_s_choice *c = &s->now;
    int32_t place;
    int64_t order;
    for (int32_t way = 0; way < 3 * heti_s_most_shard(s); way++) {
        place = HET_PLACE_ANY + way % 3;
        for (order = 0; order < s->orders && s->order[order]->placement != place; order++) {}
        if (order == s->orders) continue;
        HETI_T_CLEAR(s->taken, s->ranks);
        c->order = order;
        c->limit = c->pipelines = c->first[0] = 0;
        c->state = HETI_S_STATE_EVEN;
        c->shard = HET_SHARD_STATE + way / 3;
        heti_s_each_device(s, 0);
    }
    if (!heti_s_is_over(s)) s->to.exhaustive = 1;
}

/* ---- the lower bound ---- */

/* F and the shorter of the backwards that there are; `back` 1: of their parts before W; 0: F. */
static double heti_s_least_both(const heti_s_seek *s, int64_t kind, int64_t u, int64_t granules, int back) {
    double t[HETI_S_CALLS];
    for (int call = 0; call < HETI_S_CALLS; call++)
        t[call] = heti_s_seconds(s, kind, HETI_S_LEAST + call, u, u + 1, granules);
    if (back == 0) return t[HETI_S_FORWARD];
    return t[HETI_S_FORWARD] +
           heti_s_back(s, t[HETI_S_BACKWARD], t[HETI_S_INPUT] + (back > 1 ? t[HETI_S_WEIGHT] : 0));
}

/* Every granule passes through every unit on some device. For weights z of the kinds that add up to
   1 over all devices, a step takes at least granules sum over units of min over kinds of z
   seconds(unit, kind): the dual of sharing the work of each unit out freely. Weights begin at speed
   and go to the kinds that would be given too much. */
static double heti_s_bound_work(heti_s_seek *s) {
    heti_s_device_kind *kind = s->kind;
    double best = 0;
    for (int64_t k = 0; k < s->kinds; k++) kind[k].weight = kind[k].most > 0 ? kind[k].rate : 0;
    for (int round = 0; round < 200; round++) {
        double sum = 0, value = 0, mean = 0;
        for (int64_t k = 0; k < s->kinds; k++) sum += heti_s_real(kind[k].count) * kind[k].weight;
        for (int64_t k = 0; k < s->kinds; k++) kind[k].weight /= sum, kind[k].load = 0;
        for (int64_t u = 0; u < s->units; u++) {
            double least = HETI_S_NONE;
            heti_s_device_kind *chosen = kind;
            for (int64_t k = 0; k < s->kinds; k++) {
                if (kind[k].most == 0) continue;
                const double one = heti_s_least_both(s, k, u, kind[k].most, 2) / heti_s_real(kind[k].most);
                if (kind[k].weight * one >= least) continue;
                least = kind[k].weight * one;
                chosen = &kind[k];
            }
            value += least;
            chosen->load += least / (chosen->weight * heti_s_real(chosen->count));
        }
        best = heti_s_larger(best, value * heti_s_real(s->d.granules));
        for (int64_t k = 0; k < s->kinds; k++) mean = heti_s_larger(mean, kind[k].load);
        for (int64_t k = 0; k < s->kinds && mean > 0; k++)
            kind[k].weight *= 1 + 0.5 / heti_s_real(round + 2) * (kind[k].load / mean - 0.5);
    }
    return best;
}

/* The smallest full micro-batch passes forward through every unit, and back through those behind
   the cut before it. */
static double heti_s_bound_chain(const heti_s_seek *s) {
    const int64_t g = heti_s_least_granules(s);
    double forward = 0, sum = 0, most = 0;
    for (int64_t u = 0; u < s->units; u++) {
        double least[2] = { HETI_S_NONE, HETI_S_NONE };
        for (int64_t k = 0; k < s->kinds; k++)
            for (int back = 0; back < 2 && g <= s->kind[k].most; back++)
                least[back] = heti_s_smaller(least[back], heti_s_least_both(s, k, u, g, back));
        sum = (u > 0 && heti_s_is_cut(s->d.profile, u - 1) ? forward : sum) + least[1];
        forward += least[0];
        most = heti_s_larger(most, sum);
    }
    return most;
}

/* ---- what was asked for ---- */

/* order: [HETI_S_MOST_SCHEDULES] those that are looked at: the usual ones where none is named but
   "timed", for which *timed is 1. */
static het_result heti_s_seek_orders(const het_search_desc *d, const char *call, const het_schedule_kind **order,
                                     int64_t *orders, int *timed, het_error *error) {
    const het_schedule_kind *kind;
    *orders = *timed = 0;
    if (d->schedules != NULL && (d->schedule_count < 1 || d->schedule_count > HETI_S_MOST_SCHEDULES))
        return HETI_S_BAD(error, "%s: %d schedules, not 1 to %d", call, d->schedule_count,
                          HETI_T_CAST(int64_t, HETI_S_MOST_SCHEDULES));
    for (int64_t i = 0; d->schedules != NULL && i < d->schedule_count; i++) {
        const char *name = d->schedules[i] != NULL ? d->schedules[i] : "";
        for (int64_t k = 0; (kind = heti_s_order_at(k)) != NULL && strcmp(name, kind->name) != 0; k++) {}
        if (kind != NULL) order[(*orders)++] = kind;
        else if (strcmp(name, "timed") == 0) *timed = 1;
        else return HETI_S_BAD(error, "%s: no plan is looked for with schedule '%s', not one of 1f1b, gpipe, zb-h1, "
                               "zb-h2, greedy, interleaved, zb-v, v-half, v-min, dualpipev, timed", call, name);
    }
    const int64_t named = *orders;
    for (int64_t i = 0; named == 0 && (kind = heti_s_order_at(i)) != NULL; i++)
        if (kind->usual) order[(*orders)++] = kind;
    return HET_OK;
}

/* A granule of whole sequences, or a piece of one that sees on the average half of it. */
static heti_s_amount heti_s_granule_of(const het_search_desc *d) {
    heti_s_amount a;
    a.tokens = heti_s_real(d->granule_tokens);
    a.sequences = heti_s_real(d->granule_sequences > 0 ? d->granule_sequences : 1);
    a.pairs = d->granule_pairs > 0 ? d->granule_pairs : a.tokens * (a.tokens / a.sequences + 1) / 2;
    return a;
}

/* Sequences of the length of which the pairs speak; `otherwise` where they say nothing. */
static double heti_s_sequences(const heti_s_amount *a, double otherwise) {
    return 2 * a->pairs > a->tokens + 1 ? a->tokens / (2 * a->pairs / a->tokens - 1) : otherwise;
}

static het_result heti_s_seek_desc(heti_s_seek *s, const het_search_desc *desc) {
    het_search_desc *d = &s->d;
    *d = *desc;
    if (d->start_canary != 0 || d->end_canary != 0)
        return HETI_S_BAD(s->error, "het_plan_search: the description was not cleared");
    if (d->profile == NULL || d->cluster == NULL)
        return HETI_S_BAD(s->error, "het_plan_search: %s is NULL", d->profile == NULL ? "profile" : "cluster");
    if (d->granule_sequences == 0) d->granule_sequences = 1;
    if (d->granules < 1 || d->granule_tokens < 1 || d->granule_sequences < 1 || d->granules > 1000000 ||
        d->granule_tokens > 1000000000 || d->granule_sequences > 1000000000)
        return HETI_S_BAD(s->error, "het_plan_search: %d granules of %d tokens and %d sequences", d->granules,
                          d->granule_tokens, d->granule_sequences);
    if (!(d->granule_pairs >= 0 && d->granule_pairs <= 1e18) || !(d->seconds >= 0))
        return HETI_S_BAD(s->error, "het_plan_search: granule_pairs or seconds is negative or not finite");
    s->granule = heti_s_granule_of(d);
    s->granule.sequences = heti_s_sequences(&s->granule, s->granule.sequences);
    d->granule_pairs = s->granule.pairs;
    s->pieces = heti_s_max(1, (d->granule_tokens / d->granule_sequences + 511) / 512);
    if (s->pieces > 1) s->pieces *= d->granule_sequences;
    if (d->most_granules < 1 || d->most_granules > d->granules) d->most_granules = d->granules;
    if (d->most_micro_batches < 1 || d->most_micro_batches > d->granules) d->most_micro_batches = d->granules;
    if (heti_s_least_granules(s) > d->most_granules)
        return HETI_S_BAD(s->error, "het_plan_search: %d granules are more than %d micro-batches of %d", d->granules,
                          d->most_micro_batches, d->most_granules);
    if (d->slices < 0 || d->slices > 4096)
        return HETI_S_BAD(s->error, "het_plan_search: slices is %d, the range is 0 to 4096", d->slices);
    if (d->shard == HET_SHARD_DEFAULT || d->profile->reduce == HET_REDUCE_FAST) d->shard = HET_SHARD_STATE;
    if (d->shard < HET_SHARD_STATE || d->shard > HET_SHARD_WEIGHTS)
        return HETI_S_BAD(s->error, "het_plan_search: shard is %d", HETI_T_CAST(int64_t, d->shard));
    d->evaluations = d->evaluations < 1 ? 20000 : heti_s_min(d->evaluations, HETI_S_MOST_EVALUATIONS);
    if (d->trials < 0 && d->trials != INT64_MIN) /* that is a search within another, which guesses */
        return HETI_S_BAD(s->error, "het_plan_search: trials is %d", d->trials);
    s->guessing = s->plain = d->trials != 0;
    if (d->trials > 0) d->most_found = d->trials = heti_s_min(d->trials, HETI_S_MOST_FOUND);
    if (d->small == 0) d->small = 1000000000;
    d->most_found = d->most_found < 1 ? 5 : heti_s_min(d->most_found, HETI_S_MOST_FOUND);
    s->units = d->profile->units;
    s->ranks = d->cluster->ranks;
    if (s->units < 1 || s->ranks < 1)
        return HETI_S_BAD(s->error, "het_plan_search: a profile of %d units, a cluster of %d devices", s->units,
                          s->ranks);
    HETI_T_TRY(heti_s_check_profile(d->profile, "het_plan_search", s->error));
    HETI_T_TRY(heti_s_check_groups(d->cluster, "het_plan_search", s->error));
    s->random = d->seed;
    s->budget = d->evaluations;
    HETI_T_TRY(heti_s_seek_orders(d, "het_plan_search", s->order, &s->orders, &s->timed, s->error));
    for (int64_t o = 0; o < s->orders; o++) s->name[o] = s->order[o]->name;
    d->schedules = s->name, d->schedule_count = s->orders; /* of searches within this one */
    return HET_OK;
}

/* Profiles of devices, and that everything in them is a time. */
static het_result heti_s_seek_times(heti_s_seek *s, int64_t r, const het_device_profile **times) {
    const het_profile *p = s->d.profile;
    const het_cluster_device *device = &s->d.cluster->device[r];
    const int64_t i = heti_s_named(p->device, sizeof *p->device, p->devices, device->profile);
    if (i == p->devices)
        return HETI_S_BAD(s->error, "het_plan_search: device %d (%s): the profile has no device '%s'", r, device->name,
                          device->profile);
    if (!(device->speed > 0 && device->speed <= 1e30) || !(device->memory >= 0 && device->memory <= 1e300))
        return HETI_S_BAD(s->error, "het_plan_search: device %d (%s): its speed is %e, its memory %e", r, device->name,
                          device->speed, device->memory);
    *times = &p->device[i];
    for (int64_t k = 0; k < p->kinds; k++) {
        int call = 0;
        while (call < HETI_S_CALLS && heti_s_curve_valid(heti_s_curve(&heti_s_unit_times(s, *times)[k], call))) call++;
        if (call == HETI_S_CALLS) continue;
        return HETI_S_BAD(s->error, "het_plan_search: a time of unit kind '%s' on '%s' is negative or not finite",
                          p->kind[k].name, device->profile);
    }
    return HET_OK;
}

static het_result heti_s_seek_kinds(heti_s_seek *s) {
    const het_cluster *c = s->d.cluster;
    int64_t k;
    for (int64_t r = 0; r < s->ranks; r++) {
        const het_device_profile *times = NULL;
        HETI_T_TRY(heti_s_seek_times(s, r, &times));
        for (k = 0; k < s->kinds && !heti_s_same_device(&c->device[s->kind[k].device], &c->device[r]); k++) {}
        if (k == s->kinds) {
            s->kinds++;
            s->kind[k].times = times;
            s->kind[k].device = r;
            s->kind[k].speed = c->device[r].speed;
            s->kind[k].most = s->d.most_granules;
        }
        s->kind_of[r] = k;
        const double tokens = heti_s_device_limit(s, r);
        if (tokens > 0 && tokens < heti_s_tokens(s, s->d.most_granules))
            s->kind[k].most = HETI_T_CAST(int64_t, tokens / s->granule.tokens);
        s->kind[k].count++;
        s->near[r] = c->device[r].group;
        s->apart |= s->near[r] != s->near[0];
    }
    return HET_OK;
}

static int heti_s_is_zero(const het_cost *c) { return !(c->base > 0) && !(c->token > 0) && !(c->pair > 0); }

/* A profile in which some unit has a backward but no times of its two parts knows nothing about
   schedules that split it, and the reverse: those are left out. */
static het_result heti_s_seek_known(heti_s_seek *s) {
    int64_t kept = 0;
    const char *lacks[2] = { NULL, NULL }; /* a unit without B; without I and W */
    for (int64_t k = 0; k < s->kinds; k++)
        for (int64_t u = 0; u < s->d.profile->kinds; u++) {
            const het_unit_time *t = &heti_s_unit_times(s, s->kind[k].times)[u];
            const int whole = !heti_s_is_zero(&t->backward),
                      parts = !heti_s_is_zero(&t->input) || !heti_s_is_zero(&t->weight);
            if (parts && !whole) lacks[0] = s->d.profile->kind[u].name;
            if (whole && !parts) lacks[1] = s->d.profile->kind[u].name;
        }
    for (int64_t o = 0; o < s->orders; o++)
        if (lacks[s->order[o]->split ? 1 : 0] == NULL) s->order[kept++] = s->order[o];
    s->orders = kept;
    for (int64_t i = 0; s->order[kept] == NULL || strcmp(s->order[kept]->name, "timed") != 0; i++)
        s->order[kept] = het_schedule_kind_at(i); /* behind those that are tried */
    if (lacks[1] != NULL) s->timed = 0;
    for (int64_t o = 0; o < s->orders; o++) s->has[s->order[o]->split ? 1 : 0] = 1;
    if (kept > 0) return HET_OK;
    return HETI_S_BAD(s->error, "het_plan_search: the profile has no times of the backward of unit kind '%s' %s",
                      lacks[0] != NULL ? lacks[0] : lacks[1],
                      lacks[0] != NULL ? "in one piece" : "for inputs and weights apart, which these schedules need");
}

/* Sums over units, by kind of device. A plan's times lie between those alone and together, as its
   ranks are at work (het_simulate_costs). */
static void heti_s_seek_sums(heti_s_seek *s) {
    const het_profile *p = s->d.profile;
    const int64_t most = s->d.most_granules;
    for (int64_t k = 0; k < s->kinds; k++) {
        const het_device_profile *times = s->kind[k].times;
        for (int what = 0; what < 2 * HETI_S_CALLS; what++) {
            het_cost *sum = &s->sum[(k * HETI_S_SUMS + what) * (s->units + 1)];
            for (int64_t u = 0; u < s->units; u++) {
                const int curve = what % HETI_S_CALLS, least = what >= HETI_S_LEAST;
                const het_cost one = heti_s_curve(&heti_s_unit_times(s, times)[p->unit[u]], curve);
                const het_cost alone = least ? heti_s_curve(&times->alone[p->unit[u]], curve) : one;
                const int never = (curve == HETI_S_AGAIN && heti_s_kind_at(p, u)->loss) ||
                    (curve != HETI_S_FORWARD && heti_s_is_idle(p, u));
                const double part = never ? 0 : 1 / s->kind[k].speed;
                sum[u + 1].base = sum[u].base + part * heti_s_smaller(one.base, alone.base);
                sum[u + 1].token = sum[u].token + part * heti_s_smaller(one.token, alone.token);
                sum[u + 1].pair = sum[u].pair + part * heti_s_smaller(one.pair, alone.pair);
            }
        }
        for (int what = 0; what < 2; what++) {
            const het_cost *all = &s->sum[k * HETI_S_SUMS * (s->units + 1)];
            het_cost *sum = &s->sum[(k * HETI_S_SUMS + HETI_S_BOTH + what) * (s->units + 1)];
            for (int64_t u = 0; u <= s->units; u++) {
                heti_s_add_curve(&sum[u], all[HETI_S_FORWARD * (s->units + 1) + u], 1);
                heti_s_add_curve(&sum[u], all[(what == 0 ? HETI_S_BACKWARD : HETI_S_INPUT) * (s->units + 1) + u], 1);
                if (what == 1) heti_s_add_curve(&sum[u], all[HETI_S_WEIGHT * (s->units + 1) + u], 1);
            }
        }
        s->kind[k].rate = 1 / (heti_s_both(s, k, 0, 0, 0, s->units, most) / heti_s_real(most) + 1e-30);
    }
}

/* Bytes and elements of units. */
static void heti_s_seek_bytes(heti_s_seek *s) {
    const het_profile *p = s->d.profile;
    s->always = p->rank_weights + p->rank_gradients + p->rank_workspace - 4 + /* rounded to bytes */
        (s->ranks > 1 ? heti_s_real(2 * HETI_S_ENVELOPE) : 0);
    for (int64_t b = 0; b < p->blocks; b++) {
        const het_block_profile *block = &p->block[b];
        const int64_t first = p->use[block->first_use] + 1;
        const double weights = heti_s_weights(p, block), trained = block->frozen ? 0 : heti_s_real(block->elements);
        const double bytes = weights + trained * p->gradient_bytes;
        s->trained += trained;
        s->before[first].least_held += bytes;
        if (block->uses == 1) s->before[first].owned += trained * p->state_bytes, s->before[first].single += bytes;
        s->tied |= block->uses > 1;
        for (int64_t i = 0; i < block->uses; i++) {
            heti_s_prefix *unit = &s->before[p->use[block->first_use + i] + 1];
            unit->weights += weights;
            unit->trained += trained;
        }
    }
    for (int64_t u = 0; u < s->units; u++) {
        const het_unit_kind *k = heti_s_kind_at(p, u);
        const double always = (k->loss ? 0 : k->output) + k->keep[HET_KEEP_MICRO_BATCH][0],
                     more = k->keep[HET_KEEP_INPUT][0] + k->keep[HET_KEEP_WEIGHT][0],
                     scratch = k->keep[HET_KEEP_CALL][0] + 3 * (k->input + k->output) + k->workspace;
        heti_s_prefix *from = &s->before[u], *to = &s->before[u + 1];
        heti_s_most(&s->largest[0], to->weights);
        heti_s_most(&s->largest[1], to->trained * p->gradient_bytes);
        to->kept[0] = always + more;
        to->kept[1] = always + (k->loss ? more : 0);
        heti_s_add_numbers(to, from, sizeof *to, 1);
        s->widest = heti_s_larger(s->widest, scratch + more);
    }
}

/* 1: device a comes before b in the order of the cluster's groups. */
static int heti_s_before(const heti_s_seek *s, int64_t a, int64_t b) {
    const het_cluster *c = s->d.cluster;
    int64_t i = c->device[a].group, j = c->device[b].group, from_i = -1, from_j = -1;
    while (i != j) {
        if (i > j) { from_i = i; i = c->group[i].parent; }
        else { from_j = j; j = c->group[j].parent; }
    }
    return from_i != from_j ? from_i < from_j : a < b;
}

static void heti_s_seek_curves_cut(void *self, heti_t_arena *arena) {
    heti_s_seek *s = HETI_T_CAST(heti_s_seek *, self);
    s->sum = HETI_S_ROOM(het_cost, s->kinds * HETI_S_SUMS * (s->units + 1));
}

static void heti_s_seek_sort(heti_s_seek *s) {
    int64_t i;
    for (int64_t r = 0; r < s->ranks; r++) {
        for (i = r; i > 0 && heti_s_before(s, r, s->by_place[i - 1]); i--) s->by_place[i] = s->by_place[i - 1];
        s->by_place[i] = r;
    }
    for (int64_t r = 0; r < s->ranks; r++) { /* by kinds, the fastest first; equal ones as they stand in the cluster */
        const int64_t device = s->by_place[r];
        for (i = r; i > 0 && heti_s_rate(s, s->by_speed[i - 1]) < heti_s_rate(s, device); i--)
            s->by_speed[i] = s->by_speed[i - 1];
        s->by_speed[i] = device;
    }
}

static void heti_s_choice_cut(heti_s_seek *s, heti_t_arena *arena, heti_s_choice *c) {
    HETI_S_ROOMS(int64_t, s->ranks + 2, &c->first, &c->count, &c->device);
    c->end = HETI_S_ROOM(int64_t, 2 * s->ranks + 2);
    c->recompute = HETI_S_ROOM(int32_t, s->ranks + 1);
}

static void heti_s_seek_cut(void *self, heti_t_arena *arena) {
    heti_s_seek *s = HETI_T_CAST(heti_s_seek *, self);
    const int64_t n = s->ranks;
    HETI_S_ROOMS(int64_t, n + 1, &s->kind_of, &s->near, &s->by_place, &s->by_speed, &s->scratch, &s->alone_group,
                 &s->own.first_stage, &s->alone.first_stage);
    HETI_S_ROOMS(int32_t, n + 1, &s->used, &s->taken, &s->fits);
    HETI_S_ROOMS(double, n + 1, &s->pipeline_time, &s->pipeline_fill, &s->reserve, &s->ring, &s->own.share,
                 &s->own.state_share, &s->own.slice_share, &s->alone.share, &s->alone.state_share,
                 &s->alone.slice_share);
    s->alone_from = HETI_S_ROOM(int64_t, s->d.cluster->groups);
    s->alone_tree = HETI_S_ROOM(het_group, s->d.cluster->groups);
    s->kind = HETI_S_ROOM(heti_s_device_kind, n);
    s->before = HETI_S_ROOM(heti_s_prefix, s->units + 1);
    heti_s_blocks_cut(&s->blocks, arena, s->d.profile);
    heti_s_sizes_cut(&s->sizes, arena, s->d.granules);
    s->needs = HETI_S_ROOM(het_needs, n);
    s->memory = HETI_S_ROOM(het_memory, n);
    s->lower = HETI_S_ROOM(heti_s_lower, n);
    s->memo = HETI_S_ROOM(heti_s_memo, HETI_S_MEMOS);
    s->known = HETI_S_ROOM(heti_s_known, HETI_S_KNOWN);
    s->own.keeper = HETI_S_ROOM(uint8_t, n);
    HETI_S_ROOMS(het_stage, 2 * n, &s->own.stage, &s->alone.stage);
    s->alone_stage = HETI_S_ROOM(het_stage_cost, 2 * n);
    s->alone_link = HETI_S_ROOM(het_link_cost, s->d.cluster->link != NULL ? n * n : 0);
    heti_s_choice_cut(s, arena, &s->now);
    heti_s_choice_cut(s, arena, &s->next);
    heti_s_choice_cut(s, arena, &s->best);
    heti_s_choice_cut(s, arena, &s->sorted);
    for (int64_t i = 0; i < s->d.most_found; i++) heti_s_choice_cut(s, arena, &s->found[i]);
}

static het_result heti_s_seek_start(heti_s_seek *s) {
    HETI_T_TRY(heti_t_arrays(&s->arena, 0, heti_s_seek_cut, s, &s->allocator, "het_plan_search", s->error));
    s->own.make = s->alone.make = het_schedule_make;
    s->own.cut = s->alone.cut = s->d.profile->cut;
    s->own.units = s->units;
    s->own.ranks = s->ranks;
    s->own.slices = 1;
    s->own.slice_share[0] = 1;
    s->own.step.granules = s->d.granules;
    s->own.step.sequences = s->d.granule_sequences;
    s->own.step.length = s->d.granule_tokens / s->d.granule_sequences;
    s->alone.units = s->units;
    s->alone.pipelines = s->alone.slices = 1;
    s->alone.share[0] = s->alone.slice_share[0] = 1;
    s->least_lack.bytes = s->least_guess = HETI_S_NONE;
    HETI_T_TRY(heti_s_seek_kinds(s));
    HETI_T_TRY(heti_s_seek_known(s));
    HETI_T_TRY(heti_t_arrays(&s->curves, 0, heti_s_seek_curves_cut, s, &s->allocator, "het_plan_search", s->error));
    heti_s_seek_sums(s);
    heti_s_seek_bytes(s);
    heti_s_seek_sort(s);
    return HET_OK;
}

static void heti_s_seek_end(heti_s_seek *s) {
    het_simulation_free(s->made);
    het_schedule_free(s->lists);
    het_plan_costs_free(s->costs);
    heti_t_arrays_free(&s->curves, &s->allocator);
    heti_t_arrays_free(&s->arena, &s->allocator);
}

/* ---- what is found ---- */

/* The step that was simulated last, without reductions and steps, and without links too: where the
   time goes. Each simulation is of the same lists, with ranks as busy. */
static het_result heti_s_explain(heti_s_seek *s, het_found *found) {
    het_costs without = s->costs->costs;
    het_simulation *simulation;
    without.block = NULL, without.blocks = 0;
    HETI_T_TRY(het_simulate(s->plan, s->lists, &without, HET_NO, &s->allocator, &simulation, s->error));
    const double linked = heti_s_makespan(simulation);
    without.link = NULL;
    without.group = NULL;
    without.every_link.latency = without.every_link.bandwidth = 0;
    HETI_T_TRY(het_simulate(s->plan, s->lists, &without, HET_NO, &s->allocator, &simulation, s->error));
    for (int64_t r = 0; r < s->ranks; r++) heti_s_most(&found->work, simulation->rank[r].busy);
    const double bare = heti_s_makespan(simulation);
    found->fill = bare - found->work;
    found->transfers = linked - bare;
    found->update = found->seconds - linked;
    return HET_OK;
}

/* "2.1 % more work of the busiest device, 0.5 % less waiting": the parts that differ by more than
   0.05 % of the best, the largest first. */
static void heti_s_why(const het_found *best, het_found *found, int is_best) {
    static const char *const heti_s_parts[] = { "work of the busiest device",
                                               "waiting for the pipeline to fill, drain and keep in step",
        "waiting for links", "reductions, optimizer and gathers" };
    const double own[4] = { found->work, found->fill, found->transfers, found->update },
                 other[4] = { best->work, best->fill, best->transfers, best->update };
    double part[4];
    heti_t_text out = heti_t_text_in(found->why, sizeof found->why);
    int shown = 0;
    for (int i = 0; i < 4; i++) part[i] = own[i] - (is_best ? 0 : other[i]);
    for (int round = 0; round < 4 && best->seconds > 0; round++) {
        int most = 0;
        for (int i = 1; i < 4; i++)
            if (heti_s_absolute(part[i]) > heti_s_absolute(part[most])) most = i;
        if (heti_s_absolute(part[most]) <= 0.0005 * best->seconds) break;
        heti_t_put(&out, shown++ > 0 ? ", " : "");
        heti_t_fixed(&out, 100 * heti_s_absolute(part[most]) / best->seconds, 1);
        heti_t_put(&out, is_best ? " % " : part[most] > 0 ? " % more " : " % less ");
        heti_t_put(&out, heti_s_parts[most]);
        part[most] = 0;
    }
    if (shown == 0) heti_t_put(&out, "the same time");
}

static het_result heti_s_fill_found(heti_s_seek *s, heti_s_choice *c, het_found *found, het_choice timeline) {
    HETI_T_TRY(heti_s_judge(s, c, timeline));
    s->to.evaluations--; /* counted when it was found */
    found->micro_batches = heti_s_micro_batches(s, c->granules);
    found->granules = c->granules;
    found->seconds = c->seconds;
    for (int64_t r = 0; r < s->ranks; r++) found->memory[r] = s->used[r] ? heti_s_limited(&s->memory[r]) : 0;
    if (!s->guessing) HETI_T_TRY(heti_s_explain(s, found));
    return het_plan_copy(s->plan, &s->allocator, "het_plan_search", &found->plan, s->error);
}

static void heti_s_search_cut(void *self, heti_t_arena *arena) {
    const int64_t ranks = HETI_T_CAST(heti_s_seek *, self)->ranks;
    het_search *to = &HETI_T_CAST(heti_s_seek *, self)->to;
    to->found = HETI_S_ROOM(het_found, to->found_count);
    double *memory = HETI_S_ROOM(double, to->found_count * ranks);
    for (int64_t i = 0; memory != NULL && i < to->found_count; i++) to->found[i].memory = memory + i * ranks;
}

static het_result heti_s_seek_result(heti_s_seek *s, het_search **search) {
    het_result result = HET_OK;
    s->to.found_count = s->found_count;
    s->to.allocator = s->allocator;
    het_search *to = HETI_T_CAST(het_search *, heti_s_make(s, sizeof s->to, &s->to.size, heti_s_search_cut,
                                                           &s->allocator, "het_plan_search", s->error));
    if (to == NULL) return HET_ERR_OOM;
    for (int64_t i = 0; i < s->found_count && result == HET_OK; i++) {
        result = heti_s_fill_found(s, &s->found[i], &to->found[i], i == 0 ? HET_YES : HET_NO);
        if (i == 0) to->simulation = s->made, s->made = NULL;
        if (result == HET_OK) heti_s_why(&to->found[0], &to->found[i], i == 0);
    }
    const double work = heti_s_bound_work(s);
    /* a team is faster than its fastest device, and a micro-batch's slices are at work at once */
    const double chain = s->fuses || s->d.slices > 1 ? 0 : heti_s_bound_chain(s);
    to->bound = heti_s_larger(work, chain) + heti_s_bound_step(s, NULL, s->ranks);
    to->distance = to->bound > 0 ? to->found[0].seconds / to->bound - 1 : 0;
    memcpy(to->bound_by, work >= chain ? "work over summed speeds" : "fastest chain", work >= chain ? 24 : 14);
    if (result != HET_OK) het_search_free(to);
    else *search = to;
    return result;
}

HETRAIN_API void het_search_free(het_search *search) {
    if (search == NULL) return;
    for (int64_t i = 0; i < search->found_count; i++) het_plan_free(search->found[i].plan);
    het_simulation_free(search->simulation);
    heti_s_give_back(&search->allocator, search, search->size);
}

/* Bytes that a unit needs wherever it lies, even if its state lies elsewhere: parameters,
   gradients, one of the smallest micro-batches. */
static double heti_s_least_bytes(const heti_s_seek *s, int64_t unit) {
    const het_profile *p = s->d.profile;
    const double tokens = heti_s_tokens(s, heti_s_least_granules(s));
    const het_stage_memory m = het_profile_stage(p, unit, unit + 1, s->d.recompute != HET_NO, 0, 0, tokens, tokens);
    const heti_s_prefix *a = &s->before[unit], *b = &s->before[unit + 1];
    return b->weights - a->weights + (b->trained - a->trained) * p->gradient_bytes + m.slot + m.carry + m.scratch +
           3 * m.stream + p->rank_weights + p->rank_gradients + p->rank_workspace;
}

/* Nothing fits: the unit that cannot lie anywhere, or the plan that lacks least. */
static het_result heti_s_nothing(heti_s_seek *s) {
    const int64_t r = s->least_lack.rank, begin = s->least_lack.begin, end = s->least_lack.end;
    const het_cluster_device *device = &s->d.cluster->device[r];
    const het_cluster_device *largest = s->d.cluster->device;
    int64_t most = 0;
    int taken = 0;
    for (int64_t i = 0; i < s->ranks; i++) {
        taken |= heti_s_takes(s, i, heti_s_least_granules(s));
        if (heti_s_device_limit(s, i) > heti_s_device_limit(s, most)) most = i;
    }
    if (!taken)
        return heti_t_fail(s->error, HET_ERR_LIMIT, "het_plan_search: no device takes the smallest micro-batches, of "
                           "%g tokens: device %d (%s), which takes the most, takes %g",
                           heti_s_tokens(s, heti_s_least_granules(s)), most, s->d.cluster->device[most].name,
                           heti_s_device_limit(s, most));
    most = 0;
    for (int64_t u = 1; u < s->units; u++)
        if (heti_s_least_bytes(s, u) > heti_s_least_bytes(s, most)) most = u;
    for (const het_cluster_device *d = largest; d < s->d.cluster->device + s->ranks; d++)
        if (d->memory <= 0 || d->memory > largest->memory) largest = d;
    const double least = heti_s_least_bytes(s, most);
    if (largest->memory > 0 && least > largest->memory)
        return heti_t_fail(s->error, HET_ERR_LIMIT, "het_plan_search: unit %d (%s) needs at least %b, %b more than the "
                           "%b of device %d (%s), the largest", most, heti_s_kind_at(s->d.profile, most)->name, least,
                           least - largest->memory, largest->memory,
                           HETI_T_CAST(int64_t, largest - s->d.cluster->device), largest->name);
    if (s->least_lack.bytes >= HETI_S_NONE)
        return heti_t_fail(s->error, HET_ERR_LIMIT, "het_plan_search: %d units, %d devices: %s", s->units, s->ranks,
                           s->to.stopped ? "the search was over before a plan was found" :
                           "no schedule asked for can have a plan");
    if (end - begin == 1)
        return heti_t_fail(s->error, HET_ERR_LIMIT, "het_plan_search: nothing fits: at best unit %d (%s) alone needs "
                           "%b more than the %b of device %d (%s)", begin, heti_s_kind_at(s->d.profile, begin)->name,
                           s->least_lack.bytes, device->memory, r, device->name);
    return heti_t_fail(s->error, HET_ERR_LIMIT, "het_plan_search: nothing fits: at best units %d to %d need %b more "
                       "than the %b of device %d (%s)", begin, end - 1, s->least_lack.bytes, device->memory, r,
                       device->name);
}

/* Lists of so many actions are simulated as quickly as estimated. */
static int heti_s_is_quick(const heti_s_seek *s, const heti_s_choice *c) {
    int64_t actions = 0;
    for (int64_t p = 0; p < c->pipelines; p++) actions += c->count[p] * heti_s_stages(s, c, p);
    return s->ranks <= 16 && actions <= 1024;
}

/* Where a climb begins: from the best forms in turn, the best every second time, or from something
   drawn. 0: nothing can be begun with. */
static int heti_s_climb_from(heti_s_seek *s, int64_t turn, int drawn) {
    for (int round = 0; drawn && round < 8; round++)
        if (heti_s_drawn(s)) return 1;
    if (s->found_count > 0)
        heti_s_choice_copy(s, &s->now, &s->found[(turn & 1) == 0 ? 0 : (turn / 2 + 1) % s->found_count]);
    else if (s->best.seconds < HETI_S_NONE) heti_s_choice_copy(s, &s->now, &s->best);
    else return 0;
    return 1;
}

/* Climbs by estimates and, where lists are short, three times as many by simulations, longer up to
   a bound, until nothing has come of `most` of them. Every second one begins with something drawn
   and keeps its schedule. */
static void heti_s_climbs(heti_s_seek *s, int64_t moves, int64_t most) {
    int64_t turn = 0, idle = 0;
    while (!heti_s_is_over(s) && idle < most) {
        const double before = heti_s_least_found(s);
        s->one_order = (turn & 1) && s->ranks <= 16;
        if (!heti_s_climb_from(s, turn / 2, s->one_order)) return;
        const int simulate = turn % 4 != 0 && heti_s_is_quick(s, &s->now);
        /* they cost more */
        heti_s_climb(s, simulate ? moves / 4 : moves, 0.02 * (1 + heti_s_real(idle % 8)), simulate);
        if (++turn % 4 == 0 && moves < 4000) moves += moves / 2;
        if (heti_s_least_found(s) < before) idle = 0;
        else idle++;
    }
}

/* A small space is gone through after a few climbs, which often is quick; else climbs get most of
   what is left, and the rest goes to going through it once more with what they found, which rules
   out more. */
static void heti_s_seek_pass(heti_s_seek *s) {
    const int small = s->d.small > 0 && heti_s_space(s) <= heti_s_real(s->d.small);
    s->searched = s->to.exhaustive;
    s->to.exhaustive = 0;
    (void)heti_s_give(s, 1);
    for (int32_t shard = HET_SHARD_STATE; shard <= heti_s_most_shard(s); shard++)
        if (s->found_count == 0 && !heti_s_is_over(s)) heti_s_beginnings(s, shard);
    if (s->found_count == 0 && !heti_s_is_over(s)) {
        s->ignore_memory = 1;
        heti_s_beginnings(s, heti_s_most_shard(s));
        s->ignore_memory = 0;
    }
    s->climbing = 1;
    if (small && heti_s_give(s, 0.05)) heti_s_climbs(s, 200, 8);
    if (small && heti_s_give(s, 0.1)) heti_s_all(s);
    if (!s->to.exhaustive && heti_s_give(s, small ? 0.6 : 1)) heti_s_climbs(s, 1000, small ? s->d.evaluations : 64);
    if (small && !s->to.exhaustive && heti_s_give(s, 1)) heti_s_all(s);
    (void)heti_s_give(s, 1);
    s->climbing = 0;
}

/* Without keepers and near sets, then with them. */
static void heti_s_seek_run(heti_s_seek *s) {
    const double seconds = s->d.seconds;
    int wide;
    s->best.seconds = HETI_S_NONE;
    s->wide = s->ranks > 1 && s->d.profile->reduce != HET_REDUCE_FAST;
    wide = heti_s_may_keep(s) || heti_s_most_shard(s) > HETI_T_CAST(int32_t, s->d.shard);
    s->wide = 0;
    if (wide) s->d.seconds *= 0.75;
    heti_s_seek_pass(s);
    s->d.seconds = seconds;
    const int64_t spent = heti_s_spent(s);
    s->wide = wide;
    s->budget = spent + s->d.evaluations;
    if (wide && s->result == HET_OK && (!s->guessing || s->found_count == 0)) heti_s_seek_pass(s);
    s->budget = 2 * s->d.evaluations + heti_s_spent(s) - spent; /* teams' */
}

/* ---- teams: devices fused to composite ones, over which the same search is done ----
   A composite device takes for a unit what the simulator says of its team, for micro-batches of so
   many granules. What is found there becomes a plan with teams, and is judged like any other. */

typedef struct heti_s_fusion {
    int64_t teams, granules;          /* granules of a micro-batch */
    int64_t *first, *device;          /* team t has device[first[t]] .. device[first[t + 1] - 1] */
    int64_t *way;                     /* [teams] HETI_S_BY_ */
    int mixed;                        /* 0: all teams have the same way, tried first; 1: they differ */
    het_team_member *member;          /* [ranks] as device: shares; ranks and leaders are filled in later */
    double heads, attentions;         /* key/value heads; attentions of the chain */
    double most;                      /* members of a team by columns at most; 1: there is none */
    double memory;                    /* of the members' together */
    het_profile profile;
    het_cluster cluster;
    het_stage_cost *cost;             /* [ranks] of the members of a team */
    het_unit_time *time;              /* [ranks][kinds] */
    het_group *group;                 /* with latencies of one attention in all */
    int64_t *member_group;            /* [ranks] */
    heti_t_arena arena;               /* of the arrays */
} heti_s_fusion;

static void heti_s_fusion_cut(void *self, heti_t_arena *arena) {
    heti_s_fusion *f = HETI_T_CAST(heti_s_fusion *, self);
    const int64_t n = f->cluster.ranks; /* of the devices themselves, as yet */
    HETI_S_ROOMS(int64_t, n + 1, &f->first, &f->device, &f->way, &f->member_group);
    f->member = HETI_S_ROOM(het_team_member, n);
    f->profile.device = HETI_S_ROOM(het_device_profile, n);
    f->cluster.device = HETI_S_ROOM(het_cluster_device, n);
    f->cost = HETI_S_ROOM(het_stage_cost, n);
    f->time = HETI_S_ROOM(het_unit_time, n * f->profile.kinds);
    f->group = HETI_S_ROOM(het_group, f->cluster.groups);
}

/* Whether the profile says what teams take, and a team could have two devices. */
static int heti_s_can_fuse(const heti_s_seek *s) {
    const het_profile *p = s->d.profile;
    double attentions = 0;
    for (int64_t k = 0; k < p->kinds; k++) {
        if (p->kind[k].alone > 0) return 0;
        attentions += p->kind[k].attentions;
    }
    return s->d.teams != HET_NO && s->ranks > 1 && attentions > 0 && s->d.cluster->link == NULL;
}

enum { HETI_S_BY_CONTEXT, HETI_S_BY_HEADS, HETI_S_BY_COLUMNS, HETI_S_TEAM_WAYS, HETI_S_COLUMN_PARTS = 64 };

static heti_s_amount heti_s_granules(const heti_s_seek *s, int64_t granules) {
    const double n = heti_s_real(granules);
    const heti_s_amount size = { n * s->granule.tokens, n * s->granule.pairs, n * s->granule.sequences };
    return size;
}

/* Units of a device by themselves, without an action's own time. */
static void heti_s_unit_cost(const heti_s_seek *s, const heti_s_fusion *f, int64_t device, const het_stage *units,
                             het_stage_cost *to) {
    const het_device_profile *of = s->kind[s->kind_of[device]].times;
    memset(to, 0, sizeof *to);
    heti_s_add_units(s->d.profile, units, heti_s_unit_times(s, of), of, 1 / s->d.cluster->device[device].speed, to);
    to->attentions *= f->attentions;
    to->columns.divided *= f->attentions;
    for (int way = 0; way < 2; way++) {
        to->columns.gathers[way] *= f->attentions;
        to->columns.chains[way] *= f->attentions;
        to->columns.links[way] *= f->attentions;
        to->columns.exchanges[way] *= f->attentions;
    }
}

/* Simulates lists of computing alone, those of the plan's schedule. */
static het_result heti_s_simulate(const het_plan *plan, const int64_t *count, const het_costs *costs,
                                  het_choice timeline, const het_allocator *allocator, het_simulation **made,
                                  het_error *error) {
    het_schedule *lists = NULL;
    HETI_T_TRY(het_schedule_make(plan, count, allocator, &lists, error));
    const het_result result = het_simulate(plan, lists, costs, timeline, allocator, made, error);
    het_schedule_free(lists);
    return result;
}

/* Of one unit in a team: what F, B, I and W take, and B longer where it is recomputed. */
static het_result heti_s_fused_unit(heti_s_seek *s, heti_s_fusion *f, int64_t team, int64_t unit, het_unit_time *to) {
    const int64_t first = f->first[team], count = f->first[team + 1] - first;
    const int64_t micro_batches = 1;
    const heti_s_amount size = heti_s_granules(s, f->granules);
    het_result result = HET_OK;
    het_plan shape, *plan;
    memset(&shape, 0, sizeof shape);
    HETI_S_CLEARED(het_stage, own);
    HETI_S_CLEARED(het_costs, costs);
    shape.units = shape.pipelines = shape.stages = shape.slices = 1;
    shape.ranks = shape.members = count;
    HETI_T_TRY(het_plan_new(&shape, &s->allocator, "het_plan_search", &plan, s->error));
    plan->stage[0].unit_end = plan->first_stage[1] = 1;
    plan->share[0] = plan->slice_share[0] = 1;
    own.unit_begin = unit, own.unit_end = unit + 1;
    for (int64_t i = 0; i < count; i++) {
        plan->state_share[i] = 1;
        plan->member[i] = f->member[first + i];
        plan->member[i].rank = i; /* the leader is 0 */
        f->member_group[i] = s->d.cluster->device[f->device[first + i]].group;
    }
    costs.stage = costs.member = f->cost;
    costs.tokens = &size.tokens;
    costs.pairs = &size.pairs;
    costs.sequences = &size.sequences;
    costs.group = f->group;
    costs.groups = s->d.cluster->groups;
    costs.rank_group = f->member_group;
    for (int way = 0; way < 3 && result == HET_OK; way++) { /* F and B; F, I and W; B recomputed */
        het_simulation *made;
        memcpy(plan->schedule, way == 1 ? "zb-h1" : "gpipe", 6);
        plan->stage[0].recompute = own.recompute = way == 2;
        for (int64_t i = 0; i < count; i++) heti_s_unit_cost(s, f, f->device[first + i], &own, &f->cost[i]);
        result = heti_s_simulate(plan, &micro_batches, &costs, HET_YES, &s->allocator, &made, s->error);
        if (result != HET_OK) break;
        const het_record *r = made->timeline.record; /* the first member's, F first */
        if (way == 0) to->forward.base = r[0].end - r[0].start;
        *(way == 0 ? &to->backward.base : way == 1 ? &to->input.base : &to->recompute.base) = r[1].end - r[1].start;
        if (way == 1) to->weight.base = r[2].end - r[2].start;
        het_simulation_free(made);
    }
    to->recompute.base = heti_s_larger(0, to->recompute.base - to->backward.base);
    het_plan_free(plan);
    return result;
}

/* Shares of a team for the whole chain. */
static het_result heti_s_fused_shares(heti_s_seek *s, heti_s_fusion *f, int64_t team) {
    const int64_t first = f->first[team], count = f->first[team + 1] - first;
    const heti_s_amount size = heti_s_granules(s, f->granules);
    HETI_S_CLEARED(het_stage, all);
    all.unit_end = s->units;
    for (int64_t i = 0; i < count; i++) heti_s_unit_cost(s, f, f->device[first + i], &all, &f->cost[i]);
    HETI_S_CLEARED(het_divide_desc, desc);
    desc.member = f->cost;
    desc.members = count;
    desc.granules = f->granules * s->pieces;
    if (f->way[team] == HETI_S_BY_COLUMNS) desc.granules = HETI_S_COLUMN_PARTS; /* finer than rows */
    desc.tokens = size.tokens;
    desc.pairs = size.pairs;
    desc.sequences = size.sequences;
    if (f->way[team] != HETI_S_BY_CONTEXT) desc.heads = heti_s_whole(f->heads);
    HETI_T_TRY(het_team_divide(&desc, f->member + first, NULL, s->error));
    for (int64_t i = 0; i < count; i++) f->member[first + i].columns = f->way[team] == HETI_S_BY_COLUMNS;
    return HET_OK;
}

/* A team like one before it: the same kinds of devices in the same order over the same links. */
static int heti_s_fused_alike(const heti_s_seek *s, const heti_s_fusion *f, int64_t a, int64_t b) {
    const int64_t *one = f->device + f->first[a], *other = f->device + f->first[b];
    const int64_t count = f->first[a + 1] - f->first[a];
    if (f->first[b + 1] - f->first[b] != count || f->way[a] != f->way[b]) return 0;
    for (int64_t i = 0; i < count; i++) {
        const het_link_cost x = heti_s_cluster_link(s->d.cluster, one[0], one[i]),
                            y = heti_s_cluster_link(s->d.cluster, other[0], other[i]);
        if (s->kind_of[one[i]] != s->kind_of[other[i]] || heti_s_unequal(x.latency, y.latency) ||
            heti_s_unequal(x.bandwidth, y.bandwidth)) return 0;
    }
    return 1;
}

/* What a team of several is as one device. */
static het_result heti_s_fused_device(heti_s_seek *s, heti_s_fusion *f, int64_t team) {
    het_device_profile *to = &f->profile.device[team];
    het_unit_time *time = f->time + team * s->d.profile->kinds;
    heti_t_text name = heti_t_text_in(to->name, sizeof to->name);
    double steps = 0, all = 0;
    HETI_T_TRY(heti_s_fused_shares(s, f, team));
    for (int64_t i = f->first[team]; i < f->first[team + 1]; i++) all += f->member[i].share;
    for (int64_t i = f->first[team]; i < f->first[team + 1]; i++) {
        const het_device_profile *from = s->kind[s->kind_of[f->device[i]]].times;
        const double speed = s->d.cluster->device[f->device[i]].speed;
        steps += from->step_element > 0 ? speed / from->step_element : HETI_S_NONE;
        heti_s_most(&to->begin_element, from->begin_element / speed);
        heti_s_most(&to->verdict_base, from->verdict_base);
        heti_s_most(&to->verdict_element, from->verdict_element / speed);
        heti_s_most(&to->message_byte, from->message_byte / speed * f->member[i].share / all);
        heti_s_most(&to->ring_byte, from->ring_byte / speed);
        heti_s_most(&to->action, from->action / speed);
        heti_s_most(&to->beside, from->beside);
    }
    to->step_element = steps < HETI_S_NONE ? 1 / steps : 0;
    to->alone = to->together = time;
    heti_t_format(&name, "team %d", team);
    for (int64_t u = s->units - 1; u >= 0; u--) time[s->d.profile->unit[u]].forward.base = -1; /* not known yet */
    for (int64_t u = 0; u < s->units; u++)
        if (time[s->d.profile->unit[u]].forward.base < 0)
            HETI_T_TRY(heti_s_fused_unit(s, f, team, u, &time[s->d.profile->unit[u]]));
    return HET_OK;
}

/* Composite devices, as a profile and a cluster. */
static het_result heti_s_fused_devices(heti_s_seek *s, heti_s_fusion *f) {
    const het_cluster *c = s->d.cluster;
    int64_t k;
    HETI_T_CLEAR(f->profile.device, s->ranks);
    f->profile.devices = f->cluster.ranks = f->teams;
    for (int64_t t = 0; t < f->teams; t++) {
        const int64_t *device = f->device + f->first[t], count = f->first[t + 1] - f->first[t];
        het_cluster_device *to = &f->cluster.device[t];
        double memory = 0;
        *to = c->device[device[0]];
        for (int64_t i = 0; i < count; i++) {
            to->group = heti_s_min(to->group, heti_s_common_group(c, device[0], device[i]));
            to->max_tokens = heti_s_limit(to->max_tokens, heti_s_device_limit(s, device[i]));
            memory += c->device[device[i]].memory;
            if (!(c->device[device[i]].memory > 0)) memory = -HETI_S_NONE;
        }
        if (count == 1) {
            f->profile.device[t] = *s->kind[s->kind_of[device[0]]].times;
            continue;
        }
        for (k = 0; k < t && !heti_s_fused_alike(s, f, k, t); k++) {}
        if (k == t) HETI_T_TRY(heti_s_fused_device(s, f, t));
        else {
            f->profile.device[t] = f->profile.device[k];
            HETI_T_COPY(f->member + f->first[t], f->member + f->first[k], count);
        }
        memcpy(to->profile, f->profile.device[t].name, sizeof to->profile);
        to->speed = 1;
        to->memory = memory > 0 ? memory * f->memory : 0;
    }
    return HET_OK;
}

/* A plan over composite devices becomes one with teams. */
static het_result heti_s_unfuse(const heti_s_seek *s, const heti_s_fusion *f, const het_plan *from, het_plan **plan) {
    het_plan shape = *from, *to;
    int64_t g, t, uneven = 0;
    shape.ranks = shape.members = s->ranks;
    for (t = 0; t < f->teams; t++) uneven |= from->state_share[t] < 1 || from->state_share[t] > 1;
    shape.step = s->own.step;
    shape.step.micro_batch = f->granules;
    HETI_T_TRY(het_plan_new(&shape, &s->allocator, "het_plan_search", plan, s->error));
    to = *plan;
    HETI_T_COPY(to->stage, from->stage, from->stages);
    HETI_T_COPY(to->first_stage, from->first_stage, from->pipelines + 1);
    HETI_T_COPY(to->share, from->share, from->pipelines);
    if (s->d.profile->cut != NULL) HETI_T_COPY(to->cut, s->d.profile->cut, to->units);
    to->slice_share[0] = 1;
    for (g = 0; g < to->stages; g++) to->stage[g].rank = f->device[f->first[from->stage[g].rank]];
    for (to->members = t = 0; t < f->teams; t++) {
        const int64_t count = f->first[t + 1] - f->first[t];
        for (int64_t i = f->first[t]; i < f->first[t + 1]; i++) {
            to->state_share[f->device[i]] = uneven ? from->state_share[t] / heti_s_real(count) : 1;
            if (from->keeper != NULL) to->keeper[f->device[i]] = from->keeper[t];
            if (from->near != NULL) to->near[f->device[i]] = from->near[t];
        }
        for (g = 0; g < from->stages && from->stage[g].rank != t; g++) {}
        for (int64_t i = f->first[t]; i < f->first[t + 1] && count > 1 && g < from->stages; i++) {
            het_team_member *member = &to->member[to->members++];
            *member = f->member[i];
            member->rank = f->device[i], member->leader = f->device[f->first[t]];
        }
    }
    return HET_OK;
}

/* Judges a plan with teams, which is kept where it is better than all before, or else freed. */
static het_result heti_s_judge_fused(heti_s_seek *s, het_plan *plan) {
    heti_s_choice *c = &s->next;
    int64_t g, count;
    c->pipelines = plan->pipelines;
    c->granules = plan->step.micro_batch;
    c->state = HETI_S_STATE_EVEN;
    c->team = plan;
    for (c->order = 0; c->order < s->orders && strcmp(s->order[c->order]->name, plan->schedule) != 0; c->order++) {}
    HETI_T_CLEAR(c->first, plan->pipelines + 1);
    c->keepers = 0;
    for (int64_t p = 0; p < plan->pipelines; p++) c->count[p] = HETI_T_CAST(int64_t, plan->share[p]);
    for (int64_t r = 0; r < s->ranks; r++) {
        const het_team_member *team = het_plan_team(plan, r, &count);
        for (g = 0; g < plan->stages && plan->stage[g].rank != (team != NULL ? team->leader : r); g++) {}
        if (g < plan->stages) c->device[c->first[c->pipelines]++] = r;
    }
    for (int64_t r = 0; r < s->ranks; r++)
        if (heti_s_keeps(plan, r)) c->device[c->first[c->pipelines] + c->keepers++] = r;
    s->lack.bytes = 0;
    c->shard = HETI_T_CAST(int32_t, plan->shard);
    const het_result result = heti_s_judge(s, c, HET_NO);
    if (result == HET_OK && c->seconds < heti_s_least_found(s) * (1 - 1e-9)) heti_s_keep(s, c);
    for (g = 0; g < s->found_count && s->found[g].team != plan; g++) {}
    if (g == s->found_count) het_plan_free(plan);
    return result;
}

/* Searches where each micro-batch of so many granules is `parts` of them, which stay alone: in a
   part of the time that is left, without teams and slices. *made: NULL where nothing fits. */
static het_result heti_s_search_parts(heti_s_seek *s, het_search_desc *desc, int64_t granules, int64_t parts,
                                      double share, het_search **made) {
    het_error ignored;
    *made = NULL;
    desc->granules = heti_s_micro_batches(s, granules) * parts;
    desc->granule_tokens = heti_s_max(granules * s->d.granule_tokens / parts, 1);
    desc->granule_sequences = heti_s_max(granules * s->d.granule_sequences / parts, 1);
    desc->granule_pairs = heti_s_real(granules) * s->d.granule_pairs / heti_s_real(parts);
    desc->most_granules = 1;
    desc->most_micro_batches = 0;
    desc->teams = HET_NO;
    desc->slices = 1;
    desc->evaluations = heti_s_min(1000, heti_s_max(32, s->d.evaluations / 16));
    if (heti_s_has_clock(s)) desc->seconds = heti_s_larger(1e-9, (s->until_seconds - s->d.clock(s->d.user)) * share);
    if (het_plan_search(desc, made, &ignored) == HET_ERR_OOM)
        return heti_t_fail(s->error, HET_ERR_OOM, "%s", ignored.text);
    if (*made != NULL) s->to.evaluations += (*made)->evaluations;
    return HET_OK;
}

/* The most that these teams divide: by columns they have their part of the weights. */
static het_shard heti_s_fused_shard(const heti_s_seek *s, const heti_s_fusion *f) {
    for (int64_t t = 0; t < f->teams && s->d.shard == HET_SHARD_WEIGHTS; t++)
        if (f->way[t] == HETI_S_BY_COLUMNS) return HET_SHARD_GRADIENTS;
    return s->d.shard;
}

/* Searches over these composite devices; with less memory where what was found does not fit. */
static het_result heti_s_fuse_try(heti_s_seek *s, heti_s_fusion *f) {
    het_search_desc desc = s->d;
    if (heti_s_micro_batches(s, f->granules) > s->d.most_micro_batches) return HET_OK;
    desc.shard = heti_s_fused_shard(s, f);
    desc.trials = s->guessing ? INT64_MIN : 0;
    desc.profile = &f->profile;
    desc.cluster = &f->cluster;
    f->memory = 1;
    for (int round = 0; round < 4 && !heti_s_is_over(s); round++) {
        het_search *made;
        het_result result = HET_OK;
        double least = 1; /* of the plans: bytes over the limit of some rank, in parts of them */
        HETI_T_TRY(heti_s_fused_devices(s, f));
        HETI_T_TRY(heti_s_search_parts(s, &desc, f->granules, 1, 1.0 / 8, &made));
        if (made == NULL) return HET_OK;
        for (int64_t i = 0; i < made->found_count && result == HET_OK; i++) {
            het_plan *plan;
            result = heti_s_unfuse(s, f, made->found[i].plan, &plan);
            s->guess = made->found[i].seconds;
            if (result == HET_OK) result = heti_s_judge_fused(s, plan);
            const double limit = s->d.cluster->device[s->lack.rank].memory;
            least = heti_s_smaller(least, s->lack.bytes > 0 ? s->lack.bytes / (limit + s->lack.bytes) : 0);
        }
        het_search_free(made);
        HETI_T_TRY(result);
        if (!(least > 0)) return HET_OK;
        f->memory *= 1 - heti_s_larger(0.1, least);
    }
    return HET_OK;
}

/* A team goes this way, one device any. 0: it cannot. */
static int heti_s_take_way(const heti_s_seek *s, const heti_s_fusion *f, int64_t team, int64_t way) {
    const int64_t size = f->first[team + 1] - f->first[team];
    f->way[team] = HETI_S_BY_CONTEXT;
    if (size > 1) f->way[team] = way;
    if (size > 1 && (way == HETI_S_BY_CONTEXT ? s->whole : heti_s_real(size) > f->heads)) return 0;
    return f->way[team] != HETI_S_BY_COLUMNS || heti_s_real(size) <= f->most;
}

/* Ways of teams by number: the same for all or, `mixed`, a digit each, to the base of 3, that are
   not all the same. 0: they cannot be so. */
static int heti_s_take_ways(const heti_s_seek *s, const heti_s_fusion *f, int64_t ways) {
    const int64_t first = ways % HETI_S_TEAM_WAYS;
    int differs = 0;
    for (int64_t t = 0; t < f->teams; t++) {
        if (!heti_s_take_way(s, f, t, ways % HETI_S_TEAM_WAYS)) return 0;
        if (!f->mixed || f->first[t + 1] - f->first[t] == 1) continue;
        differs |= ways % HETI_S_TEAM_WAYS != first;
        ways /= HETI_S_TEAM_WAYS;
    }
    return differs == f->mixed;
}

/* These teams with all sizes of micro-batches, in all ways; few teams in mixed ones too. */
static het_result heti_s_fuse_ways(heti_s_seek *s, heti_s_fusion *f) {
    int64_t most = 1, ways = f->mixed ? 1 : HETI_S_TEAM_WAYS;
    for (int64_t t = 0; t < f->teams; t++) {
        most = heti_s_max(most, f->first[t + 1] - f->first[t]);
        if (f->first[t + 1] - f->first[t] > 1 && f->mixed) ways *= HETI_S_TEAM_WAYS;
    }
    if (most == 1 || (f->mixed && f->teams > (s->ranks <= 4 ? 4 : 2))) return HET_OK;
    for (int64_t g = s->ranks <= 4 || f->most > 1 ? 1 : (most + s->pieces - 1) / s->pieces; g <= s->d.most_granules;
         g = s->ranks <= 4 ? g + 1 : 2 * g)
        for (int64_t way = 0; way < ways; way++) {
            if (!heti_s_take_ways(s, f, way) || heti_s_is_over(s)) continue;
            f->granules = g;
            HETI_T_TRY(heti_s_fuse_try(s, f));
        }
    return HET_OK;
}

/* Every way to put up to 4 devices into teams: device i into team in[i], new or an earlier one. */
static het_result heti_s_fuse_every(heti_s_seek *s, heti_s_fusion *f, int64_t *in, int64_t at, int64_t teams) {
    int64_t t;
    if (at < s->ranks) {
        for (in[at] = 0; in[at] < teams; in[at]++) HETI_T_TRY(heti_s_fuse_every(s, f, in, at + 1, teams));
        return heti_s_fuse_every(s, f, in, at + 1, teams + 1);
    }
    f->teams = teams;
    for (f->first[0] = t = 0; t < teams; t++) {
        f->first[t + 1] = f->first[t];
        for (int64_t i = 0; i < s->ranks; i++)
            if (in[i] == t) f->device[f->first[t + 1]++] = i;
    }
    return heti_s_fuse_ways(s, f);
}

/* The group `level` above a device's innermost one. */
static int64_t heti_s_group_above(const heti_s_seek *s, int64_t device, int64_t level) {
    int64_t g = s->d.cluster->device[device].group;
    while (level-- > 0 && s->d.cluster->group[g].parent >= 0) g = s->d.cluster->group[g].parent;
    return g;
}

/* Teams of `size` devices that follow each other in a group of this level; what is left over is
   alone. Returns whether there are teams that a level lower would not have. */
static int heti_s_fuse_groups(const heti_s_seek *s, heti_s_fusion *f, int64_t size, int64_t level) {
    int64_t k;
    int differs = 0;
    f->teams = f->first[0] = 0;
    for (int64_t i = 0; i < s->ranks; i += k) {
        for (k = 1; k < size && i + k < s->ranks && heti_s_group_above(s, s->by_place[i + k], level) ==
             heti_s_group_above(s, s->by_place[i], level); k++) {}
        if (k < size) k = 1;
        else differs |= level == 0 || heti_s_group_above(s, s->by_place[i], level - 1) !=
                heti_s_group_above(s, s->by_place[i + k - 1], level - 1);
        HETI_T_COPY(f->device + i, s->by_place + i, k);
        f->first[++f->teams] = i + k;
    }
    return differs;
}

static het_result heti_s_fuse_all(heti_s_seek *s, heti_s_fusion *f) {
    int64_t in[4], size, level, deepest = 0, i;
    for (i = 0; i < s->d.cluster->groups; i++) {
        int64_t depth = 0, g = i;
        while ((g = s->d.cluster->group[g].parent) >= 0) depth++;
        deepest = heti_s_max(deepest, depth);
    }
    for (f->mixed = 0; f->mixed < 2; f->mixed++) {
        if (s->ranks <= 4) HETI_T_TRY(heti_s_fuse_every(s, f, in, 0, 0));
        for (level = 0; level <= deepest && s->ranks > 4; level++)
            for (size = 2; size <= heti_s_min(s->ranks, HETRAIN_MAX_TEAM) && !heti_s_is_over(s); size *= 2)
                if (heti_s_fuse_groups(s, f, size, level)) HETI_T_TRY(heti_s_fuse_ways(s, f));
    }
    return HET_OK;
}

static het_result heti_s_fusion_start(heti_s_seek *s, heti_s_fusion *f) {
    int columns = 0;
    memset(f, 0, sizeof *f);
    f->profile = *s->d.profile;
    f->cluster = *s->d.cluster;
    f->most = HETRAIN_MAX_TEAM;
    HETI_T_TRY(heti_t_arrays(&f->arena, 0, heti_s_fusion_cut, f, &s->allocator, "het_plan_search", s->error));
    for (int64_t u = 0; u < s->units; u++) {
        const het_unit_kind *k = heti_s_kind_at(s->d.profile, u);
        if (k->attentions > 0) /* no team divides heads of which units have unlike numbers */
            f->heads = f->attentions > 0 && (f->heads < k->heads || f->heads > k->heads) ? -1 : k->heads;
        f->attentions += k->attentions;
        s->whole |= k->whole > 0;
        columns |= k->moves.gathers[0] > 0 && s->d.profile->reduce != HET_REDUCE_FAST;
        if (k->most_members > 0) f->most = heti_s_smaller(f->most, k->most_members);
    }
    if (!columns) f->most = 1;
    return HET_OK;
}

static het_result heti_s_fuse(heti_s_seek *s) {
    heti_s_fusion f;
    HETI_T_TRY(heti_s_fusion_start(s, &f));
    /* a chain's backward waits once for the last members' attention, not once a unit */
    HETI_T_COPY(f.group, s->d.cluster->group, s->d.cluster->groups);
    for (int64_t g = 0; g < s->d.cluster->groups; g++) f.group[g].latency /= f.attentions;
    (void)heti_s_give(s, 1);
    const het_result result = heti_s_fuse_all(s, &f);
    heti_t_arrays_free(&f.arena, &s->allocator);
    return result;
}

/* ---- slices: searched as micro-batches of their own, and then judged as slices ---- */

/* The plan of slices that one of micro-batches is, `slices` each; again: its stages recompute as
   they did, or none. NULL: a pipeline's are not whole micro-batches. */
static het_result heti_s_cut_plan(heti_s_seek *s, const het_plan *from, int64_t slices, const char *schedule,
                                  int again, het_plan **plan) {
    het_plan shape = *from;
    *plan = NULL;
    for (int64_t p = 0; p < from->pipelines; p++)
        if (HETI_T_CAST(int64_t, from->share[p]) % slices != 0) return HET_OK;
    shape.slices = slices;
    shape.slice_share = NULL;
    shape.memory_limit = 0;
    memset(shape.schedule, 0, sizeof shape.schedule);
    memcpy(shape.schedule, schedule, strlen(schedule));
    shape.step = s->own.step;
    shape.step.micro_batch = heti_s_least_granules(s);
    HETI_T_TRY(het_plan_copy(&shape, &s->allocator, "het_plan_search", plan, s->error));
    for (int64_t k = 0; k < slices; k++) (*plan)->slice_share[k] = 1;
    for (int64_t p = 0; p < from->pipelines; p++) (*plan)->share[p] /= heti_s_real(slices);
    for (int64_t g = 0; g < shape.stages && !again; g++) (*plan)->stage[g].recompute = HET_RECOMPUTE_NONE;
    return HET_OK;
}

/* Judges what was found in both schedules of slices. */
static het_result heti_s_judge_slices(heti_s_seek *s, const het_search *found, int64_t slices) {
    static const char *const heti_s_sliced[] = { "sliced-1f1b", "terapipe" };
    for (int64_t i = 0; i < found->found_count; i++) {
        const het_plan *from = found->found[i].plan;
        int64_t recompute = 0;
        for (int64_t g = 0; g < from->stages; g++) recompute |= from->stage[g].recompute;
        if (from->stages == from->pipelines) continue;
        for (int way = 0; way < (recompute ? 4 : 2); way++) {
            het_plan *plan;
            HETI_T_TRY(heti_s_cut_plan(s, from, slices, heti_s_sliced[way & 1], way < 2, &plan));
            if (plan != NULL) HETI_T_TRY(heti_s_judge_fused(s, plan));
        }
    }
    return HET_OK;
}

/* All micro-batches in 2, 4, 8, ... slices. */
static het_result heti_s_slice(heti_s_seek *s) {
    static const char *const heti_s_names[] = { "1f1b", "gpipe" };
    const int64_t granules = heti_s_least_granules(s), most = heti_s_min(s->d.slices, granules * s->pieces);
    het_result result = HET_OK;
    for (int64_t k = 0; k < s->d.profile->kinds; k++)
        if (s->d.profile->kind[k].whole > 0) return HET_OK; /* it looks at whole sequences */
    s->budget = heti_s_spent(s) + s->d.evaluations;
    (void)heti_s_give(s, 1);
    for (int64_t k = 2; k <= most && !heti_s_is_over(s) && result == HET_OK; k *= 2) {
        het_search_desc desc = s->d;
        het_search *made;
        desc.most_found = HETI_S_MOST_FOUND; /* those with few pipelines too: slices stay in theirs */
        desc.schedules = heti_s_names;
        desc.schedule_count = 2;
        HETI_T_TRY(heti_s_search_parts(s, &desc, granules, k, 1.0 / 4, &made));
        if (made == NULL) return HET_OK;
        result = heti_s_judge_slices(s, made, k);
        het_search_free(made);
    }
    return result;
}

/* ---- what was found, with fewer units that recompute ---- */

/* Whether the plan fits as the choice that was judged last would, with as many units of stage g. */
static het_result heti_s_fits_with(heti_s_seek *s, const heti_s_choice *c, het_plan *plan, int64_t g, int64_t units,
                                   int *fits) {
    plan->stage[g].recompute = units > 0 ? HET_RECOMPUTE_UNIT : HET_RECOMPUTE_NONE;
    plan->stage[g].recompute_units = HETI_T_CAST(int32_t, units);
    s->plan = plan;
    HETI_T_TRY(heti_s_choice_memory(s, c));
    heti_s_memory_missing(s);
    *fits = s->lack.bytes <= 0;
    return HET_OK;
}

/* *plan: the present one, whose stages in turn recompute as little as fits. NULL: all stay. */
static het_result heti_s_recompute_less(heti_s_seek *s, const heti_s_choice *found, het_plan **plan) {
    heti_s_choice c = *found; /* its devices */
    int fits, fewer = 0;
    if (s->plan->stages > 256) return HET_OK;
    HETI_T_TRY(het_plan_copy(s->plan, &s->allocator, "het_plan_search", plan, s->error));
    c.state = HETI_S_STATE_EVEN; /* state stays where it is */
    for (int64_t g = 0; g < (*plan)->stages; g++) {
        const het_stage was = (*plan)->stage[g];
        int64_t low = 0, most = was.unit_end - was.unit_begin, high = most;
        if (was.recompute == HET_RECOMPUTE_NONE) continue;
        HETI_T_TRY(heti_s_fits_with(s, &c, *plan, g, most, &fits));
        while (fits && low < high) { /* `high` units fit */
            const int64_t middle = (low + high) / 2;
            HETI_T_TRY(heti_s_fits_with(s, &c, *plan, g, middle, &fits));
            if (fits) high = middle;
            else low = middle + 1, fits = 1;
        }
        if (high < most) HETI_T_TRY(heti_s_fits_with(s, &c, *plan, g, high, &fewer));
        else (*plan)->stage[g] = was;
    }
    if (!fewer) het_plan_free(*plan), *plan = NULL;
    return HET_OK;
}

/* ---- what was found, with lists made for its times ---- */

static int64_t heti_s_longest_stages(const het_plan *plan) {
    int64_t most = 1;
    for (int64_t p = 0; p < plan->pipelines; p++)
        most = heti_s_max(most, plan->first_stage[p + 1] - plan->first_stage[p]);
    return most;
}

/* *plan: the present one, to get lists of "timed". NULL: they have nothing to order, or too
   much. */
static het_result heti_s_time_plan(heti_s_seek *s, const heti_s_choice *c, het_plan **plan) {
    int64_t forwards = 0;
    for (int64_t p = 0; p < s->plan->pipelines; p++)
        forwards += (s->plan->first_stage[p + 1] - s->plan->first_stage[p]) * c->count[p] * s->plan->slices;
    if (heti_s_longest_stages(s->plan) == 1 || s->ranks > 64 || forwards > 4096) return HET_OK;
    HETI_T_TRY(het_plan_copy(s->plan, &s->allocator, "het_plan_search", plan, s->error));
    memcpy((*plan)->schedule, "timed", 6);
    for (int64_t g = 0; g < s->plan->stages; g++) /* whole stages need B in one piece; this keeps as little */
        if ((*plan)->stage[g].recompute == HET_RECOMPUTE_STAGE) (*plan)->stage[g].recompute = HET_RECOMPUTE_UNIT;
    return HET_OK;
}

/* Judges it with no limit of what ranks keep, else, until it fits, with room for about as many
   micro-batches as there are stages, three quarters of them, ... */
static het_result heti_s_judge_timed(heti_s_seek *s, het_plan *plan) {
    const int64_t most = heti_s_longest_stages(plan);
    het_result result = HET_OK;
    int fits = 0;
    for (int64_t room = most + 1; result == HET_OK && !fits && room > 0 && !heti_s_is_over(s);
         room -= heti_s_max(1, room / 4)) {
        het_plan *timed;
        plan->memory_limit = room > most ? 0 : heti_s_real(room);
        result = het_plan_copy(plan, &s->allocator, "het_plan_search", &timed, s->error);
        if (result == HET_OK) result = heti_s_judge_fused(s, timed);
        fits = !(s->lack.bytes > 0);
    }
    het_plan_free(plan);
    return result;
}

/* Each of the best forms with fewer units that recompute, or with "timed". */
static het_result heti_s_refine(heti_s_seek *s, int timed) {
    het_plan *plan[HETI_S_MOST_FOUND];
    const int64_t count = s->found_count; /* which changes below */
    het_result result = HET_OK;
    s->budget = heti_s_spent(s) + s->d.evaluations;
    (void)heti_s_give(s, 1);
    for (int64_t i = 0; i < count; i++) {
        plan[i] = NULL;
        if (result != HET_OK || (i > 0 && heti_s_is_over(s))) continue;
        result = heti_s_choice_lists(s, &s->found[i]);
        if (result == HET_OK) result = heti_s_choice_memory(s, &s->found[i]); /* and its shares of the state */
        if (result == HET_OK) result = (timed ? heti_s_time_plan : heti_s_recompute_less)(s, &s->found[i], &plan[i]);
    }
    for (int64_t i = 0; i < count; i++)
        if (result != HET_OK || (i > 0 && heti_s_is_over(s))) het_plan_free(plan[i]);
        else if (plan[i] != NULL) result = (timed ? heti_s_judge_timed : heti_s_judge_fused)(s, plan[i]);
    return result;
}

/* Of moves from the best plan that was tried the one that a guess promises most, as s->best. 0:
   there is none that was not tried. */
static int heti_s_promises(heti_s_seek *s) {
    s->best.seconds = HETI_S_MISFIT;
    for (int64_t i = 0; i < 200 && s->result == HET_OK; i++) {
        uint64_t key;
        heti_s_choice_copy(s, &s->now, &s->found[0]);
        if (!heti_s_moved(s)) continue;
        heti_s_canonical(s, &s->next);
        if (heti_s_known_at(s, &s->next, &key)->key == key) continue;
        s->result = heti_s_judge(s, &s->next, HET_NO);
        if (s->next.seconds < s->best.seconds) heti_s_choice_copy(s, &s->best, &s->next);
    }
    return s->result == HET_OK && s->best.seconds < HETI_S_MISFIT;
}

/* Simulates, and counts as one trial. */
static het_result heti_s_trial(heti_s_seek *s, heti_s_choice *c, int64_t *trials) {
    uint64_t key;
    heti_s_known *known = heti_s_known_at(s, c, &key);
    s->guessing = 0;
    const het_result result = heti_s_judge(s, c, HET_NO);
    s->guessing = 1;
    known->key = key;
    ++*trials;
    return result;
}

/* Two thirds of the trials go to what guesses promise most, in order, the others to what lies
   beside the best of them. */
static het_result heti_s_trials(heti_s_seek *s, int64_t most_found) {
    int64_t trials = 0, i, k;
    HETI_T_CLEAR(s->known, HETI_S_KNOWN);
    s->found_count = heti_s_min(s->found_count, (2 * s->d.trials + 2) / 3);
    for (i = 0; i < s->found_count; i++) {
        heti_s_choice c = s->found[i];
        HETI_T_TRY(heti_s_trial(s, &c, &trials));
        for (k = i; k > 0 && s->found[k - 1].seconds > c.seconds; k--) s->found[k] = s->found[k - 1];
        s->found[k] = c;
    }
    while (trials < s->d.trials && s->found_count > 0 && s->found[0].team == NULL && heti_s_promises(s)) {
        HETI_T_TRY(heti_s_trial(s, &s->best, &trials));
        heti_s_keep(s, &s->best);
    }
    s->guessing = s->plain = 0;
    s->to.evaluations = trials;
    s->to.exhaustive = 0; /* a guess ruled the others out */
    s->found_count = heti_s_min(s->found_count, most_found);
    return s->result;
}

HETRAIN_API het_result het_plan_search(const het_search_desc *desc, het_search **search, het_error *error) {
    HETI_S_OUTPUT("het_plan_search", search);
    if (desc == NULL) return HETI_S_BAD(error, "het_plan_search: desc is NULL");
    HETI_S_CLEARED(heti_s_seek, s);
    s.error = error;
    HETI_T_TRY(heti_t_choose(&desc->allocator, &s.allocator, error, "het_plan_search"));
    HETI_T_TRY(heti_s_seek_desc(&s, desc));
    if (s.d.clock != NULL) s.started = s.d.clock(s.d.user);
    het_result result = heti_s_seek_start(&s);
    if (result == HET_OK) {
        const int refines = s.d.recompute != HET_NO && s.d.recompute_units != HET_NO && s.d.trials == 0;
        const double ahead = (s.timed ? 0.9 : refines ? 0.97 : 1) * s.d.seconds,
                     seconds = s.d.slices > 1 ? 0.9 * ahead : ahead;
        s.fuses = heti_s_can_fuse(&s);
        s.d.seconds = s.fuses ? 0.7 * seconds : seconds;
        heti_s_seek_run(&s);
        s.d.seconds = seconds;
        s.to.stopped = !s.to.exhaustive && heti_s_is_over(&s);
        if (s.fuses && s.result == HET_OK) s.result = heti_s_fuse(&s);
        s.d.seconds = ahead;
        if (s.d.slices > 1 && s.d.trials == 0 && s.result == HET_OK) s.result = heti_s_slice(&s);
        s.d.seconds = desc->seconds;
        if (refines && s.result == HET_OK) s.result = heti_s_refine(&s, 0);
        if (s.timed && s.d.trials == 0 && s.result == HET_OK) s.result = heti_s_refine(&s, 1);
        if (s.d.trials > 0 && s.result == HET_OK)
            s.result = heti_s_trials(&s, desc->most_found > 0 ? desc->most_found : 5);
        result = s.result;
        if (result == HET_OK) result = s.found_count == 0 ? heti_s_nothing(&s) : heti_s_seek_result(&s, search);
    }
    for (int64_t i = 0; i < HETI_S_MOST_FOUND; i++) het_plan_free(s.found[i].team);
    heti_s_seek_end(&s);
    return result;
}

/* =================================================================================================
   >>adapt  Measured against predicted times, and what follows. A rank's slowness is the time its F,
            B, I and W took, times its clock, over what the profile says of them at speed 1; its
            speed is its present clock over that. A boundary's delay is the shortest time of its
            messages, less what the cluster's link says. Slowness and delay are medians over steps.
   ============================================================================================== */

/* ---- prediction: a plan's lists, costs and sizes of micro-batches ---- */

typedef struct heti_s_predict {
    const het_search_desc *desc;
    const het_plan *plan;
    het_allocator allocator;
    int64_t micro_batches, granules;
    het_schedule *schedule;           /* complete */
    het_plan_costs *costs;
    int64_t *count;                   /* [pipelines] micro-batches */
    int64_t *first;                   /* [pipelines + 1] the first of each */
    het_blocks blocks;
    heti_s_sizes sizes;               /* [micro_batches] */
    heti_t_arena arena;
} heti_s_predict;

static void heti_s_predict_end(heti_s_predict *p) {
    het_schedule_free(p->schedule);
    het_plan_costs_free(p->costs);
    heti_t_arrays_free(&p->arena, &p->allocator);
}

static void heti_s_predict_cut(void *self, heti_t_arena *arena) {
    heti_s_predict *p = HETI_T_CAST(heti_s_predict *, self);
    p->count = HETI_S_ROOM(int64_t, p->plan->pipelines);
    p->first = HETI_S_ROOM(int64_t, p->plan->pipelines + 1);
    heti_s_blocks_cut(&p->blocks, arena, p->desc->profile);
    heti_s_sizes_cut(&p->sizes, arena, p->micro_batches);
}

/* A step's micro-batches, whose they are, sizes, costs, lists. cluster: not the description's. */
static het_result heti_s_predict_start(heti_s_predict *p, const het_search_desc *desc, const het_plan *plan,
                                       const het_cluster *cluster, int64_t granules, const char *call,
                                       het_error *error) {
    memset(p, 0, sizeof *p);
    if (desc == NULL || plan == NULL || desc->profile == NULL || desc->cluster == NULL)
        return HETI_S_BAD(error, "%s: description, profile, cluster or plan is NULL", call);
    if (desc->start_canary != 0 || desc->end_canary != 0)
        return HETI_S_BAD(error, "%s: het_search_desc was not cleared", call);
    if (desc->granules < 1 || desc->granules > INT64_C(1) << 31 || desc->granule_tokens < 1 ||
        desc->granule_tokens > 1000000000 || granules < 1 || granules > desc->granules)
        return HETI_S_BAD(error, "%s: %d granules a micro-batch of a step of %d, %d tokens each", call, granules,
                          desc->granules, desc->granule_tokens);
    if (plan->units != desc->profile->units || plan->ranks != desc->cluster->ranks)
        return HETI_S_BAD(error, "%s: the plan is for %d units on %d ranks; here are %d units and %d ranks", call,
                          plan->units, plan->ranks, desc->profile->units, desc->cluster->ranks);
    HETI_T_TRY(heti_s_check_plan(desc->profile, plan, call, error));
    HETI_T_TRY(heti_t_choose(&desc->allocator, &p->allocator, error, call));
    p->desc = desc;
    p->plan = plan;
    p->granules = granules;
    p->micro_batches = (desc->granules + granules - 1) / granules;
    HETI_T_TRY(heti_t_arrays(&p->arena, 0, heti_s_predict_cut, p, &p->allocator, call, error));
    het_plan_micro_batches(plan, p->micro_batches, p->count);
    for (int64_t i = 0; i < plan->pipelines; i++) p->first[i + 1] = p->first[i] + p->count[i];
    heti_s_sizes_step(&p->sizes, heti_s_granule_of(desc), desc->granules, granules);
    HETI_T_TRY(heti_s_sized_costs(desc, plan, cluster, &p->sizes, &p->allocator, &p->costs, error));
    return heti_s_lists(plan, p->count, &p->blocks, p->costs, &p->allocator, &p->schedule, error);
}

HETRAIN_API het_result het_plan_predict(const het_search_desc *desc, const het_plan *plan, int64_t granules,
                                        het_choice timeline, het_simulation **simulation, het_error *error) {
    heti_s_predict p;
    HETI_S_OUTPUT("het_plan_predict", simulation);
    het_result result = heti_s_predict_start(&p, desc, plan, desc != NULL ? desc->cluster : NULL, granules,
                                             "het_plan_predict", error);
    if (result == HET_OK)
        result = het_simulate_costs(plan, p.schedule, p.costs, timeline, &p.allocator, simulation, error);
    heti_s_predict_end(&p);
    return result;
}

/* ---- state ---- */

#define HETI_S_WINDOW 64

/* What the last steps said of a rank or of a group's link. */
typedef struct heti_s_watched {
    double past[HETI_S_WINDOW];       /* slowness in cycles; or seconds more than nominal */
    double first, clock;              /* of a rank: as it first reported; the present one over that */
    double bytes;                     /* of a group: of the message that said so */
    double seen;                      /* of a group: in the present step; HETI_S_NONE: nothing */
    int64_t steps, lasting;           /* observed; with a change, one behind the other */
} heti_s_watched;

/* The reduction of a block: what the least of its ranks' records says it takes, which is that of
   its messages where the others were there before it. */
typedef struct heti_s_reduced {
    int64_t group, ranks;             /* the smallest group with all of them */
    double seconds;                   /* 0: none */
} heti_s_reduced;

/* Of all blocks over a group's link; and simulated, where all links take 4^k times as long. */
enum { HETI_S_SLOWER = 8 };
typedef struct heti_s_sums { double seconds, bytes, slower[HETI_S_SLOWER]; } heti_s_sums;

/* One way over a boundary between stages of two ranks. */
typedef struct heti_s_way { double delay, bytes; int32_t seen; } heti_s_way;

struct het_adapt {
    het_allocator allocator;
    size_t size;                      /* of this block */
    het_search_desc search;           /* its cluster is the believed one below */
    het_cluster believed, nominal;    /* nominal: links as given, all speeds 1 */
    het_adapt_desc d;                 /* with its defaults */
    double step_seconds;
    heti_s_watched *rank, *link;      /* [ranks], and behind them [groups] */
    het_plan *plan;                   /* in use */
    heti_s_predict predict;           /* its costs at nominal speeds */
    heti_s_way *way;                  /* [2 stages] forward, then backward, of the boundary behind a stage */
    double *arrival;                  /* [2 stages most slices] as `way`: when a message came that was
                                         waited for; -1: it was not */
    int64_t most;                     /* micro-batches of a pipeline */
    heti_s_reduced *reduced;          /* [blocks] */
    heti_s_sums *sums;                /* [groups] */
    het_group *slow;                  /* [groups] those that are tried */
    double *share;                    /* [pipelines] that are tried */
    double *end;                      /* [3 pipelines] when they have computed; with one more; as is tried */
    heti_t_arena ways;                /* of the seven arrays above */
};

static void heti_s_adapt_stop(het_adapt *a) {
    heti_s_predict_end(&a->predict);
    het_plan_free(a->plan);
    heti_t_arrays_free(&a->ways, &a->allocator);
}

HETRAIN_API void het_adapt_destroy(het_adapt *adapt) {
    if (adapt == NULL) return;
    heti_s_adapt_stop(adapt);
    heti_s_give_back(&adapt->allocator, adapt, adapt->size);
}

/* A copy as part of the arena's block. */
static void heti_s_adapt_cluster(het_cluster *to, const het_cluster *from, heti_t_arena *arena) {
    *to = *from;
    to->device = HETI_S_ROOM(het_cluster_device, from->ranks);
    to->group = HETI_S_ROOM(het_group, from->groups);
    if (to->device == NULL) return;
    HETI_T_COPY(to->device, from->device, from->ranks);
    if (from->groups > 0) HETI_T_COPY(to->group, from->group, from->groups);
}

static void heti_s_adapt_cut(void *self, heti_t_arena *arena) {
    het_adapt *a = HETI_T_CAST(het_adapt *, self);
    const het_cluster *cluster = a->search.cluster;
    heti_s_adapt_cluster(&a->believed, cluster, arena);
    heti_s_adapt_cluster(&a->nominal, cluster, arena);
    a->rank = HETI_S_ROOM(heti_s_watched, cluster->ranks + cluster->groups);
}

static het_result heti_s_adapt_check(const het_adapt_desc *d, het_error *error) {
    const het_schedule_kind *order[HETI_S_MOST_SCHEDULES];
    int64_t orders;
    int timed;
    if (d == NULL || d->search == NULL || d->search->profile == NULL || d->search->cluster == NULL)
        return HETI_S_BAD(error, "het_adapt_create: description, search, profile or cluster is NULL");
    if (d->start_canary != 0 || d->end_canary != 0)
        return HETI_S_BAD(error, "het_adapt_create: het_adapt_desc was not cleared");
    if (d->search->cluster->link != NULL)
        return heti_t_fail(error, HET_ERR_UNSUPPORTED, "het_adapt_create: the cluster has a matrix of links; what is "
                           "believed of links is believed of groups");
    if (!(d->change >= 0 && d->change <= 100) || !(d->gain >= 0 && d->gain < 1))
        return HETI_S_BAD(error, "het_adapt_create: change %e, gain %e; they must be from 0 to 100, and from 0 to "
                          "below 1", d->change, d->gain);
    if (d->window < 0 || d->window > HETI_S_WINDOW || d->steps < 0)
        return HETI_S_BAD(error, "het_adapt_create: window %d, steps %d; the window is at most %d", d->window, d->steps,
                          HETI_T_CAST(int64_t, HETI_S_WINDOW));
    if (d->only_shares == HET_YES) return HET_OK;
    HETI_T_TRY(heti_s_seek_orders(d->search, "het_adapt_create", order, &orders, &timed, error));
    if (!timed) return HET_OK; /* plans are looked for later */
    return HETI_S_BAD(error, "het_adapt_create: schedule 'timed': het_replan makes lists by name");
}

HETRAIN_API het_result het_adapt_create(const het_adapt_desc *desc, het_adapt **adapt, het_error *error) {
    HETI_S_OUTPUT("het_adapt_create", adapt);
    HETI_T_TRY(heti_s_adapt_check(desc, error));
    HETI_S_CLEARED(het_adapt, made);
    HETI_T_TRY(heti_t_choose(&desc->allocator, &made.allocator, error, "het_adapt_create"));
    const het_cluster *cluster = desc->search->cluster;
    made.d = *desc;
    made.search = *desc->search;
    made.search.allocator = made.allocator;
    het_adapt *a = HETI_S_MAKE(het_adapt, made, heti_s_adapt_cut, &made.allocator, "het_adapt_create", error);
    if (a == NULL) return HET_ERR_OOM;
    a->search.cluster = &a->believed;
    a->link = a->rank + cluster->ranks;
    for (int64_t r = 0; r < cluster->ranks; r++) a->nominal.device[r].speed = a->rank[r].clock = 1;
    if (!(a->d.change > 0)) a->d.change = 0.2;
    if (!(a->d.gain > 0)) a->d.gain = 0.05;
    if (a->d.window == 0) a->d.window = 5;
    if (a->d.steps == 0) a->d.steps = 2;
    *adapt = a;
    return HET_OK;
}

HETRAIN_API const het_cluster *het_adapt_cluster(const het_adapt *adapt) {
    return adapt != NULL ? &adapt->believed : NULL;
}

static void heti_s_way_cut(void *self, heti_t_arena *arena) {
    het_adapt *a = HETI_T_CAST(het_adapt *, self);
    a->way = HETI_S_ROOM(heti_s_way, 2 * a->plan->stages);
    a->arrival = HETI_S_ROOM(double, 2 * a->plan->stages * a->most * a->plan->slices);
    a->reduced = HETI_S_ROOM(heti_s_reduced, a->search.profile->blocks);
    a->sums = HETI_S_ROOM(heti_s_sums, a->nominal.groups);
    a->slow = HETI_S_ROOM(het_group, a->nominal.groups);
    a->share = HETI_S_ROOM(double, a->plan->pipelines);
    a->end = HETI_S_ROOM(double, 3 * a->plan->pipelines);
}

/* The least seconds of every block's REDUCE, and their sum for each group. Nothing moves by that of
   sums that left behind their calls. */
static void heti_s_observe_reductions(het_adapt *a, const het_timeline *t) {
    HETI_T_CLEAR(a->reduced, a->search.profile->blocks);
    for (int64_t g = 0; g < a->nominal.groups; g++) a->sums[g].seconds = a->sums[g].bytes = 0;
    for (int64_t i = 0; i < t->records && a->plan->shard < HET_SHARD_GRADIENTS; i++) {
        const het_record *r = &t->record[i];
        if (r->action.kind != HET_ACTION_REDUCE || r->action.stage < 0 ||
            r->action.stage >= a->search.profile->blocks || !(r->end > r->start))
            continue;
        heti_s_reduced *block = &a->reduced[r->action.stage];
        if (!(block->seconds > 0) || r->end - r->start < block->seconds) block->seconds = r->end - r->start;
        block->group = block->ranks++ > 0 && a->nominal.groups > 0 ?
            heti_s_joined_group(&a->nominal, block->group, a->nominal.device[r->rank].group) :
            a->nominal.device[r->rank].group;
    }
    for (int64_t i = 0; i < a->search.profile->blocks; i++) {
        const heti_s_reduced *block = &a->reduced[i];
        if (block->ranks < 2 || block->group < 0 || block->group >= a->nominal.groups) continue;
        heti_s_sums *sums = &a->sums[block->group];
        sums->seconds += block->seconds;
        heti_s_most(&sums->bytes, a->predict.costs->costs.block[i].reduce_bytes / heti_s_real(block->ranks));
    }
}

/* What they take on the believed devices with links as given and slower ones, of 1 us and more. */
static het_result heti_s_expect_reductions(het_adapt *a, const char *call, het_error *error) {
    het_cluster tried = a->believed;
    heti_s_predict p;
    tried.group = a->slow;
    HETI_T_COPY(a->slow, a->nominal.group, a->nominal.groups);
    het_result result = heti_s_predict_start(&p, &a->search, a->plan, &tried, a->predict.granules, call, error);
    for (int k = 0; k < HETI_S_SLOWER && result == HET_OK; k++) {
        het_simulation *simulation;
        result = het_simulate_costs(a->plan, p.schedule, p.costs, HET_YES, &a->allocator, &simulation, error);
        if (result == HET_OK) heti_s_observe_reductions(a, &simulation->timeline);
        het_simulation_free(simulation);
        for (int64_t g = 0; g < a->nominal.groups; g++) {
            a->sums[g].slower[k] = a->sums[g].seconds;
            a->slow[g].latency = 4 * heti_s_larger(a->slow[g].latency, 1e-6);
            a->slow[g].bandwidth /= 4;
        }
    }
    heti_s_predict_end(&p);
    return result;
}

HETRAIN_API het_result het_adapt_start(het_adapt *adapt, const het_plan *plan, int64_t granules, het_error *error) {
    const char *const call = "het_adapt_start";
    if (adapt == NULL) return HETI_S_BAD(error, "%s: adapt is NULL", call);
    het_adapt next = *adapt;
    next.plan = NULL;
    next.most = 0;
    memset(&next.ways, 0, sizeof next.ways);
    heti_s_predict *p = &next.predict;
    het_result result = heti_s_predict_start(p, &adapt->search, plan, &adapt->nominal, granules, call, error);
    if (result == HET_OK) result = het_plan_copy(plan, &adapt->allocator, "het_adapt", &next.plan, error);
    for (int64_t i = 0; result == HET_OK && i < plan->pipelines; i++) next.most = heti_s_max(next.most, p->count[i]);
    if (result == HET_OK) result = heti_t_arrays(&next.ways, 0, heti_s_way_cut, &next, &next.allocator, call, error);
    if (result == HET_OK) result = heti_s_expect_reductions(&next, call, error);
    p->plan = next.plan;
    heti_s_adapt_stop(result == HET_OK ? adapt : &next);
    if (result == HET_OK) *adapt = next;
    for (int64_t g = 0; g < adapt->nominal.groups && result == HET_OK; g++) /* delays are those of a plan's messages */
        adapt->link[g].steps = adapt->link[g].lasting = 0;
    return result;
}

/* ---- observing ---- */

/* What the profile says of one F, B, I or W at speed 1, of a member of a team without exchanges. */
static double heti_s_expected(const het_adapt *a, const het_record *r) {
    const het_plan *plan = a->plan;
    const het_action *action = &r->action;
    const int64_t g = plan->first_stage[action->pipeline] + action->stage;
    const het_stage_cost *cost = &a->predict.costs->costs.stage[g];
    int64_t count;
    const int64_t m = a->predict.first[action->pipeline] + action->micro_batch;
    const double tokens = a->predict.sizes.tokens[m];
    double rows = 1, pairs = 1, total = 0, from = 0, to = 0;
    int64_t first = 0; /* slices before it have no rows */
    const het_team_member *team = het_plan_team(plan, plan->stage[g].rank, &count);
    for (int64_t i = 0; i < count && count > 1; i++) {
        if (team[i].rank != r->rank) continue;
        cost = &a->predict.costs->costs.member[heti_s_members_before(plan, g) + i];
        heti_s_member_part(team, count, i, &rows, &pairs);
    }
    if (tokens < heti_s_real(plan->slices) * heti_s_real(plan->slice_tokens))
        first = heti_s_min(plan->slices - 1, plan->slices - HETI_T_CAST(int64_t, tokens) / plan->slice_tokens);
    for (int64_t i = first; i < plan->slices; i++) total += plan->slice_share[i];
    for (int64_t i = first; i <= action->slice; i++) from = to, to += plan->slice_share[i] / total;
    het_cost curve = heti_s_curve(cost, action->kind);
    if ((action->kind == HET_ACTION_B || action->kind == HET_ACTION_I) &&
        (action->slice > 63 || (plan->stage[g].keep >> action->slice & 1) == 0))
        heti_s_add_curve(&curve, cost->again, 1);
    return curve.base + curve.token * tokens * (to - from) * rows +
           curve.pair * a->predict.sizes.pairs[m] * (to * to - from * from) * pairs;
}

static int heti_s_record_fits(const het_adapt *a, const het_record *r) {
    const het_plan *plan = a->plan;
    const het_action *x = &r->action;
    const het_stage *stage;
    if (r->rank < 0 || r->rank >= plan->ranks || !(r->start >= 0) || !(r->end >= r->start) || !(r->end <= 1e12))
        return 0;
    if (x->kind < 0 || x->kind > HET_ACTION_RECV_B) return x->kind >= 0 && x->kind < HETI_T_KINDS;
    if (x->pipeline < 0 || x->pipeline >= plan->pipelines || x->stage < 0) return 0;
    if (x->stage >= plan->first_stage[x->pipeline + 1] - plan->first_stage[x->pipeline]) return 0;
    if (x->micro_batch < 0 || x->micro_batch >= a->predict.count[x->pipeline] || x->slice < 0 ||
        x->slice >= plan->slices)
        return 0;
    stage = &plan->stage[plan->first_stage[x->pipeline] + x->stage]; /* that others receive from and send to */
    if ((x->kind == HET_ACTION_SEND_B || x->kind == HET_ACTION_RECV_F) && x->stage == 0) return 0;
    return (x->kind != HET_ACTION_SEND_F && x->kind != HET_ACTION_RECV_B) || stage->unit_end < plan->units;
}

/* Receives that were waited for, at least so long, tell when their message came. */
#define HETI_S_WAIT 1e-4

/* From them the least delay of every boundary, each way: that of a message which found the link
   free and its receive posted. */
static void heti_s_observe_messages(het_adapt *a, const het_timeline *t) {
    const int64_t stages = a->plan->stages, cells = 2 * stages * a->most * a->plan->slices;
    for (int64_t i = 0; i < cells; i++) a->arrival[i] = -1;
    HETI_T_CLEAR(a->way, 2 * stages);
    for (int64_t i = 0; i < 2 * t->records; i++) { /* all receives, then all sends */
        const het_record *r = &t->record[i % t->records];
        const int receive = i < t->records, kind = r->action.kind,
                  backward = kind == HET_ACTION_RECV_B || kind == HET_ACTION_SEND_B;
        if (receive ? !heti_t_is_receive(kind) || r->end - r->start < HETI_S_WAIT : !heti_t_is_send(kind)) continue;
        const int64_t s = a->plan->first_stage[r->action.pipeline] + r->action.stage - (receive != backward);
        double *arrival = &a->arrival[((backward * stages + s) * a->most + r->action.micro_batch) * a->plan->slices +
                                      r->action.slice];
        if (receive) *arrival = r->end;
        const int64_t group = heti_s_common_group(&a->nominal, a->plan->stage[s].rank, a->plan->stage[s + 1].rank);
        if (receive || *arrival < 0 || group < 0) continue;
        const het_link_cost link = heti_s_group_link(&a->nominal.group[group]);
        const double bytes = heti_s_real(r->bytes);
        const heti_s_way seen = { *arrival - r->start - heti_s_link_seconds(link, bytes), bytes, 1 };
        heti_s_way *way = &a->way[backward * stages + s];
        if (!way->seen || seen.delay < way->delay) *way = seen;
    }
}

/* A group's link is as fast as the fastest boundary or its reductions. */
static void heti_s_link_seen(het_adapt *a, int64_t group, double delay, double bytes) {
    if (group < 0 || group >= a->nominal.groups || a->link[group].seen <= delay) return;
    a->link[group].seen = delay;
    a->link[group].bytes = bytes;
}

/* How many times as long links take, by straight lines between what was simulated. */
static double heti_s_times_slower(const heti_s_sums *sums) {
    int k = 0;
    while (k + 2 < HETI_S_SLOWER && sums->slower[k + 1] <= sums->seconds) k++;
    const double least = sums->slower[k], more = sums->slower[k + 1] - least;
    return more > 0 ? heti_s_real(INT64_C(1) << 2 * k) * (1 + 3 * (sums->seconds - least) / more) : 1;
}

static void heti_s_observe_links(het_adapt *a) {
    const het_plan *plan = a->plan;
    for (int64_t g = 0; g < a->nominal.groups; g++) a->link[g].seen = HETI_S_NONE;
    for (int64_t s = 0; s + 1 < plan->stages; s++) {
        const heti_s_way *there = &a->way[s], *back = &a->way[plan->stages + s];
        const int seen = there->seen + back->seen;
        if (plan->stage[s].pipeline != plan->stage[s + 1].pipeline || seen == 0) continue;
        heti_s_link_seen(a, heti_s_common_group(&a->nominal, plan->stage[s].rank, plan->stage[s + 1].rank),
                         (there->delay + back->delay) / seen, heti_s_larger(there->bytes, back->bytes));
    }
    for (int64_t g = 0; g < a->nominal.groups; g++) {
        const heti_s_sums *sums = &a->sums[g];
        const double once = heti_s_link_seconds(heti_s_group_link(&a->nominal.group[g]), sums->bytes);
        heti_s_watched *w = &a->link[g];
        if (sums->seconds > 0)
            heti_s_link_seen(a, g, (heti_s_times_slower(sums) - 1) * heti_s_larger(once, 1e-6), sums->bytes);
        if (w->seen < HETI_S_NONE) w->past[w->steps++ % a->d.window] = w->seen;
    }
}

static het_result heti_s_observe_clocks(het_adapt *a, het_error *error) {
    for (int64_t r = 0; a->d.frequency != NULL && r < a->believed.ranks; r++) {
        const double now = a->d.frequency[r];
        heti_s_watched *w = &a->rank[r];
        if (now > 0 ? !(now >= 1e-9 && now <= 1e18) : !(now >= 0))
            return HETI_S_BAD(error, "het_adapt_observe: rank %d reports a clock of %e; 0, or from 1e-9 to 1e18", r,
                              now);
        if (!(now > 0)) continue;
        if (!(w->first > 0)) w->first = now;
        w->clock = now / w->first;
    }
    return HET_OK;
}

HETRAIN_API het_result het_adapt_observe(het_adapt *adapt, const het_timeline *timeline, het_error *error) {
    char action[80];
    int64_t next;
    if (adapt == NULL || timeline == NULL || adapt->plan == NULL || (timeline->records > 0 && timeline->record == NULL))
        return HETI_S_BAD(error, "het_adapt_observe: adapt or timeline is NULL, or het_adapt_start was not called");
    for (int64_t i = 0; i < timeline->records; i++)
        if (!heti_s_record_fits(adapt, &timeline->record[i]))
            return HETI_S_BAD(error, "het_adapt_observe: record %d, %s of rank %d, is not of the plan in use", i,
                              heti_t_action_text(action, &timeline->record[i].action),
                              HETI_T_CAST(int64_t, timeline->record[i].rank));
    HETI_T_TRY(heti_s_observe_clocks(adapt, error));
    adapt->step_seconds = heti_t_timeline_end(timeline);
    for (int64_t i = 0; i < timeline->records; i = next) {
        const int32_t rank = timeline->record[i].rank;
        heti_s_watched *w = &adapt->rank[rank];
        double measured = 0, expected = 0;
        for (next = i; next < timeline->records && timeline->record[next].rank == rank; next++) {
            const het_record *r = &timeline->record[next];
            if (r->action.kind > HET_ACTION_W) continue;
            const double seconds = heti_s_expected(adapt, r);
            if (!(seconds > 0)) continue;
            measured += r->end - r->start - r->exchange;
            expected += seconds;
        }
        if (expected > 0 && measured > 0) w->past[w->steps++ % adapt->d.window] = w->clock * measured / expected;
    }
    heti_s_observe_messages(adapt, timeline);
    heti_s_observe_reductions(adapt, timeline);
    heti_s_observe_links(adapt);
    return HET_OK;
}

/* ---- advising ---- */

/* Median of the last steps; of an even number the mean of the middle two. */
static double heti_s_watched_median(const heti_s_watched *w, int64_t window) {
    double sorted[HETI_S_WINDOW];
    const int64_t count = heti_s_min(w->steps, window);
    HETI_T_COPY(sorted, w->past, count);
    return heti_s_median(sorted, count);
}

/* The speed that a rank's last steps say, at its present clock. */
static double heti_s_rank_speed(const het_adapt *a, int64_t r) {
    return a->rank[r].clock / heti_s_watched_median(&a->rank[r], a->d.window);
}

/* The link that a group's last steps say: another bandwidth where the message's time was mostly
   that, else another latency. */
static het_group heti_s_link_now(const het_adapt *a, int64_t g) {
    const double delay = heti_s_watched_median(&a->link[g], a->d.window), bytes = a->link[g].bytes;
    het_group link = a->nominal.group[g];
    const double moving = link.bandwidth > 0 ? bytes / link.bandwidth : 0;
    if (moving > link.latency && moving + delay > 0) link.bandwidth = bytes / (moving + delay);
    else link.latency = link.latency + delay > 0 ? link.latency + delay : 0;
    return link;
}

static int heti_s_differs(double now, double believed, double change) {
    return now > believed * (1 + change) || believed > now * (1 + change);
}

/* A link's change must also be a hundredth of the step: less is noise, and matters to no plan. */
static int heti_s_link_differs(const het_adapt *a, int64_t g) {
    const het_group now = heti_s_link_now(a, g);
    const double x = heti_s_link_seconds(heti_s_group_link(&now), a->link[g].bytes),
                 y = heti_s_link_seconds(heti_s_group_link(&a->believed.group[g]), a->link[g].bytes);
    return heti_s_differs(x, y, a->d.change) && heti_s_absolute(x - y) > 0.01 * a->step_seconds;
}

/* Counts how long changes last; 1: one has lasted long enough. */
static int heti_s_adapt_due(het_adapt *a) {
    const int64_t ranks = a->believed.ranks;
    int due = 0;
    for (int64_t i = 0; i < ranks + a->believed.groups; i++) {
        heti_s_watched *w = &a->rank[i];
        const int differs = 2 * w->steps > a->d.window &&
            (i < ranks ? heti_s_differs(heti_s_rank_speed(a, i), a->believed.device[i].speed, a->d.change)
                       : heti_s_link_differs(a, i - ranks));
        w->lasting = differs ? w->lasting + 1 : 0;
        due |= w->lasting >= a->d.steps;
    }
    return due;
}

/* What is seen becomes what is believed; changes are named, the first three of them. */
static void heti_s_adapt_believe(het_adapt *a, heti_t_text *out) {
    const int64_t ranks = a->believed.ranks;
    int64_t named = 0;
    for (int64_t i = 0; i < ranks + a->believed.groups; i++) {
        heti_s_watched *w = &a->rank[i];
        const int tell = w->lasting > 0 && named++ < 3;
        if (tell && named > 1) heti_t_put(out, ", ");
        if (i < ranks && 2 * w->steps > a->d.window) {
            double *speed = &a->believed.device[i].speed;
            const double before = *speed;
            *speed = heti_s_rank_speed(a, i);
            if (tell) heti_t_format(out, "rank %d: speed %g is now %g", i, before, *speed);
        } else if (i >= ranks && w->lasting > 0) {
            het_group *link = &a->believed.group[i - ranks];
            const double before = heti_s_link_seconds(heti_s_group_link(link), w->bytes);
            *link = heti_s_link_now(a, i - ranks);
            if (tell) heti_t_format(out, "link \"%s\": %g ms is now %g ms", link->name, 1e3 * before,
                                    1e3 * heti_s_link_seconds(heti_s_group_link(link), w->bytes));
        }
        w->lasting = 0;
    }
    if (named > 3) heti_t_format(out, " and %d more", named - 3);
}

/* Simulated seconds of the plan in use or with other numbers of micro-batches, and when pipelines
   have computed; HETI_S_NONE: a rank does not take them, or no list is made of other numbers. */
static het_result heti_s_adapt_seconds(const het_adapt *a, const het_plan *plan, double *seconds, double *end,
                                       het_error *error) {
    het_simulation *simulation = NULL;
    const het_result result = het_plan_predict(&a->search, plan, a->predict.granules, HET_YES, &simulation, error);
    HETI_T_CLEAR(end, plan->pipelines);
    for (int64_t i = 0; result == HET_OK && i < simulation->timeline.records; i++) {
        const het_record *r = &simulation->timeline.record[i];
        if (r->action.kind <= HET_ACTION_W) heti_s_most(&end[r->action.pipeline], r->end);
    }
    *seconds = result == HET_OK ? heti_s_makespan(simulation) : HETI_S_NONE;
    return result == HET_ERR_LIMIT || (result == HET_ERR_INVALID && plan != a->plan) ? HET_OK : result;
}

/* How many of n pipelines end last, and the first of them. */
static int64_t heti_s_adapt_last(const double *end, int64_t n, int64_t *last) {
    int64_t count = *last = 0;
    for (int64_t p = 0; p < n; p++) {
        if (end[p] > end[*last]) count = 0, *last = p;
        count += end[p] >= end[*last];
    }
    return count;
}

/* Moves micro-batches of the pipeline that ends last to the first of the others, in the order in
   which they would end with one more, that makes the step shorter, or as long with fewer that end
   last. Where none does one of the next three gives: reductions may wait for it. */
static het_result heti_s_adapt_shares(const het_adapt *a, const het_plan *plan, double until, double *seconds,
                                      het_error *error) {
    const int64_t n = plan->pipelines;
    double *share = plan->share, *end = a->end, *more = end + n, *then = more + n, tried;
    int64_t from, to, p, last = heti_s_adapt_last(end, n, &from);
    for (int64_t k = 0; k < 4 * n && (until >= HETI_S_NONE || a->search.clock(a->search.user) < until); k++) {
        if (k % n == 0) { /* another gives */
            (void)heti_s_adapt_last(end, n, &from);
            for (p = 0; p < n; p++) more[p] = end[p] * (share[p] > 0 ? 1 + 1 / share[p] : 0);
            end[from] = -1;
        }
        for (p = 0, to = from; p < n; p++)
            if (p != from && more[p] >= 0 && (to == from || more[p] < more[to])) to = p;
        if (to == from || share[from] < 1) continue;
        share[from] -= 1, share[to] += 1, more[to] = -1;
        HETI_T_TRY(heti_s_adapt_seconds(a, plan, &tried, then, error));
        if (tried < *seconds || (tried <= *seconds && heti_s_adapt_last(then, n, &p) < last)) {
            *seconds = tried, k = -1;
            last = heti_s_adapt_last(then, n, &p);
            HETI_T_COPY(end, then, n);
        } else share[from] += 1, share[to] -= 1;
    }
    return HET_OK;
}

/* The better of new shares and a new plan; shares where they are within a hundredth. Nothing where
   neither gains enough. */
static het_result heti_s_adapt_choose(const het_adapt *a, het_advice *advice, het_error *error) {
    het_search_desc d = a->search;
    het_search *search = NULL;
    const het_found *found = NULL;
    het_plan plan = *a->plan;
    het_result result = HET_OK;
    const int timed = d.clock != NULL && d.seconds > 0;
    const double now = timed ? d.clock(d.user) : 0, until = timed ? now + d.seconds / 2 : HETI_S_NONE;
    plan.share = a->share;
    for (int64_t p = 0; p < plan.pipelines; p++) plan.share[p] = heti_s_real(a->predict.count[p]);
    HETI_T_TRY(heti_s_adapt_seconds(a, a->plan, &advice->before, a->end, error));
    double by_shares = advice->after = advice->before;
    HETI_T_TRY(heti_s_adapt_shares(a, &plan, until, &by_shares, error));
    if (timed) d.seconds = heti_s_larger(1e-9, now + d.seconds - d.clock(d.user));
    const het_result searched = a->d.only_shares == HET_YES ? HET_OK : het_plan_search(&d, &search, error);
    if (searched != HET_OK && searched != HET_ERR_LIMIT) return searched; /* LIMIT: shares may help */
    if (search != NULL && search->found_count > 0) found = &search->found[0];
    if (by_shares <= (1 - a->d.gain) * advice->before && (found == NULL || by_shares <= 1.01 * found->seconds)) {
        advice->only_shares = 1;
        advice->granules = a->predict.granules;
        advice->after = by_shares;
        result = het_plan_copy(&plan, &a->allocator, "het_adapt", &advice->plan, error);
    } else if (found != NULL && found->seconds <= (1 - a->d.gain) * advice->before) {
        advice->granules = found->granules;
        advice->after = found->seconds;
        result = het_plan_copy(found->plan, &a->allocator, "het_adapt", &advice->plan, error);
    }
    advice->micro_batches = advice->granules > 0 ? (a->search.granules + advice->granules - 1) / advice->granules : 0;
    het_search_free(search);
    return result;
}

/* "3 pipelines, 4 stages, 1f1b, shares 5 2 1, 2 granules a micro-batch" */
static void heti_s_adapt_tell(const het_adapt *a, const het_advice *advice, heti_t_text *out) {
    const het_plan *plan = advice->plan;
    if (plan == NULL) {
        heti_t_format(out, "; no plan makes the step of %g ms %g %% shorter", 1e3 * advice->before, 100 * a->d.gain);
        return;
    }
    heti_t_format(out, "; a step of %g ms becomes %g ms: ", 1e3 * advice->before, 1e3 * advice->after);
    if (advice->only_shares) heti_t_put(out, "the same stages");
    else heti_t_format(out, "%d pipelines, %d stages, %s", plan->pipelines, plan->stages, plan->schedule);
    if (plan->pipelines > 1) heti_t_put(out, ", shares");
    for (int64_t p = 0; p < plan->pipelines && p < 16 && plan->pipelines > 1; p++)
        heti_t_format(out, " %g", plan->share[p]);
    if (!advice->only_shares) heti_t_format(out, ", %d granules a micro-batch", advice->granules);
}

HETRAIN_API void het_advice_free(het_advice *advice) {
    if (advice == NULL) return;
    het_plan_free(advice->plan);
    heti_s_give_back(&advice->allocator, advice, sizeof *advice);
}

HETRAIN_API het_result het_adapt_advise(het_adapt *adapt, het_advice **advice, het_error *error) {
    het_advice *made;
    void *block;
    if (adapt == NULL || advice == NULL || adapt->plan == NULL)
        return HETI_S_BAD(error, "het_adapt_advise: adapt or advice is NULL, or het_adapt_start was not called");
    *advice = NULL;
    if (!heti_s_adapt_due(adapt)) return HET_OK;
    HETI_T_TRY(heti_t_block(&adapt->allocator, sizeof *made, "het_adapt_advise", &block, error));
    made = HETI_T_CAST(het_advice *, block);
    made->allocator = adapt->allocator;
    heti_t_text out = heti_t_text_in(made->text, sizeof made->text);
    heti_s_adapt_believe(adapt, &out);
    het_result result = heti_s_expect_reductions(adapt, "het_adapt_advise", error);
    if (result == HET_OK) result = heti_s_adapt_choose(adapt, made, error);
    if (result == HET_OK) heti_s_adapt_tell(adapt, made, &out);
    if (result == HET_OK) *advice = made;
    else het_advice_free(made);
    return result;
}

/* =================================================================================================
   >>pack  Micro-batches of granules of unequal size. What is looked at is cut by a bound for each
           number of micro-batches: the work they share and the mean or the largest granule. Only
           the simulator sees links, waiting and memory, so it has the last word.
   ============================================================================================== */

enum { HETI_S_KEPT = 6, HETI_S_PLAIN = 4, HETI_S_CLUSTERS = 4, HETI_S_EVERY_COUNT = 256, HETI_S_COUNT_STEPS = 64 };

typedef struct heti_s_grouping {
    int64_t *group;                   /* [granules] which micro-batch has the granule at this place of the sorted row */
    int64_t count;                    /* micro-batches; 0: there is no such grouping */
    double estimate;
} heti_s_grouping;

/* A number of micro-batches: the busiest rank's work, and the least estimate of any grouping. */
typedef struct heti_s_count { int64_t count; double work, bound; } heti_s_count;

/* How good an order is: first by memory, then by time. */
typedef struct heti_s_score {
    double excess, seconds;           /* excess: the most bytes by which a rank is above its limit */
    int64_t rank;                     /* which */
    double bytes;                     /* what it keeps */
} heti_s_score;

typedef struct heti_s_pack {
    het_packing to;                   /* what is made of it */
    het_pack_desc d;
    het_allocator allocator;
    het_error *error;
    const het_schedule *schedule;     /* complete, for max_micro_batches */
    het_schedule *made;               /* the same where it was made here */
    heti_t_arena arena;               /* of the arrays below */
    int64_t most;                     /* micro-batches */
    int64_t count_count, curves;
    double spread;                    /* 1; 0 where no pipeline has ranks that wait, then the largest does not count */
    double *limit;                    /* [pipelines] tokens of a micro-batch at most; 0: any */
    double least_limit;               /* the lowest of those with a share; 0: none */
    int limited;                      /* they differ */
    double cap;                       /* tokens of several granules together at most, in any order; 0: any */
    double bytes_a_token;             /* the most that a rank with a limit keeps, over its limit,
                                         with one token in each micro-batch */
    heti_s_amount all;
    int64_t *sorted, *spare;          /* [granules] numbers of granules */
    heti_s_amount *before;            /* [granules + 1] of the granules before a place of the sorted row */
    double *key;                      /* [granules] by number */
    het_cost *stage;                 /* [stages] F and B */
    het_cost *curve;                 /* [curves <= stages] w t, those that are not below another */
    double *load;                     /* [ranks] */
    int64_t *pipeline_count, *pipeline_full; /* [pipelines] */
    int64_t *pipeline;                /* [most] of each micro-batch in order */
    heti_s_count *count;              /* [count_count <= most] */
    /* the second half: within memory whatever the order */
    heti_s_grouping grouping[2 * HETI_S_KEPT], plain[HETI_S_PLAIN], spare_grouping;
    heti_s_amount *amount;            /* [most] of the micro-batches of the grouping that is judged */
    double *cost;                     /* [most] */
    int64_t *by_cost, *cluster;       /* [most] largest first, where limits differ by tokens; by number */
    int64_t *dealt, *order, *best_order; /* [most] numbers of micro-batches, pipeline by pipeline */
    heti_s_amount *pipeline_amount;   /* [pipelines] */
    heti_s_sizes sizes;               /* [max_micro_batches] in the order that is judged */
    het_schedule lists;               /* without the micro-batches that are not there */
    int64_t lists_for;                /* micro-batches */
    heti_s_score judged, best;        /* the order that was judged last */
    heti_s_grouping *best_grouping;
} heti_s_pack;

/* ---- what was given ---- */

static het_result heti_s_pack_granules(const heti_s_pack *s) {
    const het_pack_desc *d = &s->d;
    for (int64_t i = 0; i < d->granules; i++) {
        const int64_t sequences = d->sequences != NULL ? d->sequences[i] : 1;
        if (d->tokens[i] < 0 || d->tokens[i] > INT64_C(1) << 40)
            return HETI_S_BAD(s->error, "het_pack: granule %d has %d tokens", i, d->tokens[i]);
        if (sequences < 0 || sequences > INT64_C(1) << 40)
            return HETI_S_BAD(s->error, "het_pack: granule %d has %d sequences", i, sequences);
        if (d->pairs != NULL && !heti_t_is_time(d->pairs[i]))
            return HETI_S_BAD(s->error, "het_pack: the pairs of granule %d are negative or not finite", i);
        if (d->max_tokens > 0 && d->tokens[i] > d->max_tokens)
            return heti_t_fail(s->error, HET_ERR_LIMIT, "het_pack: granule %d has %d tokens, max_tokens is %d", i,
                               d->tokens[i], d->max_tokens);
        if (d->max_sequences > 0 && sequences > d->max_sequences)
            return heti_t_fail(s->error, HET_ERR_LIMIT, "het_pack: granule %d has %d sequences, max_sequences is %d", i,
                               sequences, d->max_sequences);
    }
    return HET_OK;
}

/* Tokens that each pipeline takes, by what its ranks do; d.max_tokens becomes the most of them. */
static void heti_s_pack_limits(heti_s_pack *s) {
    const het_plan *plan = s->d.plan;
    double most = 0;
    int any = 0;
    for (int64_t p = 0; p < plan->pipelines; p++) {
        double *limit = &s->limit[p];
        *limit = heti_s_real(s->d.max_tokens);
        for (int64_t g = plan->first_stage[p]; g < plan->first_stage[p + 1] && s->d.costs->rank != NULL; g++) {
            int64_t count;
            const het_team_member *team = het_plan_team(plan, plan->stage[g].rank, &count);
            for (int64_t i = 0; i < count; i++) {
                const int64_t r = team != NULL ? team[i].rank : plan->stage[g].rank;
                *limit = heti_s_limit(*limit, s->d.costs->rank[r].max_tokens);
            }
        }
        if (!(plan->share[p] > 0)) continue;
        s->least_limit = heti_s_limit(s->least_limit, *limit);
        heti_s_most(&most, *limit);
        any |= !(*limit > 0);
    }
    s->limited = s->least_limit > 0 && (any || s->least_limit < most);
    s->d.max_tokens = any ? 0 : HETI_T_CAST(int64_t, heti_s_smaller(most, 9e18));
}

static het_result heti_s_pack_check(heti_s_pack *s) {
    const het_pack_desc *d = &s->d;
    if (d->start_canary != 0 || d->end_canary != 0)
        return HETI_S_BAD(s->error, "het_pack: the description was not cleared");
    if (d->plan == NULL || d->costs == NULL || d->costs->stage == NULL || d->tokens == NULL)
        return HETI_S_BAD(s->error, "het_pack: plan, costs, costs->stage or tokens is NULL");
    HETI_T_TRY(het_plan_check(d->plan, "het_pack", s->error));
    if (d->granules < 1 || d->granules > INT64_C(1) << 31 || d->max_tokens < 0 || d->max_sequences < 0 ||
        d->max_micro_batches < 0 || d->max_micro_batches > INT32_MAX || d->plain < 0 || d->evaluations < 0)
        return HETI_S_BAD(s->error, "het_pack: %d granules, max_tokens %d, max_sequences %d, max_micro_batches %d, "
                          "plain %d, evaluations %d", d->granules, d->max_tokens, d->max_sequences,
                          d->max_micro_batches, d->plain, d->evaluations);
    for (int64_t r = 0; d->memory != NULL && r < d->plan->ranks; r++)
        if (!heti_t_is_time(d->memory[r]))
            return HETI_S_BAD(s->error, "het_pack: memory[%d] is negative or not finite", r);
    return HET_OK;
}

/* The lists of a step with the most micro-batches, as the executor has them. */
static het_result heti_s_pack_lists(heti_s_pack *s) {
    het_pack_desc *d = &s->d;
    het_result result;
    int64_t sum = 0;
    if (d->schedule == NULL) {
        void *counts;
        const size_t size = HETI_T_CAST(size_t, d->plan->pipelines) * sizeof(int64_t);
        if (d->max_micro_batches == 0) d->max_micro_batches = d->granules;
        HETI_T_TRY(heti_t_block(&s->allocator, size, "het_pack", &counts, s->error));
        het_plan_micro_batches(d->plan, d->max_micro_batches, HETI_T_CAST(int64_t *, counts));
        result = heti_s_lists(d->plan, HETI_T_CAST(int64_t *, counts), d->blocks, NULL, &s->allocator, &s->made,
                              s->error);
        s->allocator.free(s->allocator.user, counts, size);
    } else if (d->schedule->complete) result = het_schedule_check(d->plan, d->blocks, d->schedule, NULL, s->error);
    else result = het_schedule_complete(d->plan, d->blocks, d->schedule, &s->allocator, &s->made, s->error);
    HETI_T_TRY(result);
    s->schedule = s->made != NULL ? s->made : d->schedule;
    for (int64_t p = 0; p < d->plan->pipelines; p++) sum += s->schedule->micro_batches[p];
    if (d->max_micro_batches == 0) d->max_micro_batches = sum;
    if (sum != d->max_micro_batches)
        return HETI_S_BAD(s->error, "het_pack: the schedule has %d micro-batches, max_micro_batches is %d", sum,
                          d->max_micro_batches);
    return HET_OK;
}

static void heti_s_pack_cut(void *self, heti_t_arena *arena) {
    heti_s_pack *s = HETI_T_CAST(heti_s_pack *, self);
    const int64_t n = s->d.granules, m = s->most;
    HETI_S_ROOMS(int64_t, n, &s->sorted, &s->spare, &s->spare_grouping.group);
    s->before = HETI_S_ROOM(heti_s_amount, n + 1);
    s->key = HETI_S_ROOM(double, n);
    HETI_S_ROOMS(het_cost, s->d.plan->stages, &s->stage, &s->curve);
    s->load = HETI_S_ROOM(double, s->d.plan->ranks);
    HETI_S_ROOMS(int64_t, s->d.plan->pipelines, &s->pipeline_count, &s->pipeline_full, &s->lists.micro_batches);
    s->limit = HETI_S_ROOM(double, s->d.plan->pipelines);
    s->pipeline_amount = HETI_S_ROOM(heti_s_amount, s->d.plan->pipelines);
    s->count = HETI_S_ROOM(heti_s_count, m);
    for (int64_t i = 0; i < 2 * HETI_S_KEPT; i++) s->grouping[i].group = HETI_S_ROOM(int64_t, n);
    for (int64_t i = 0; i < HETI_S_PLAIN; i++) s->plain[i].group = HETI_S_ROOM(int64_t, n);
    s->amount = HETI_S_ROOM(heti_s_amount, m);
    s->cost = HETI_S_ROOM(double, m);
    HETI_S_ROOMS(int64_t, m, &s->by_cost, &s->cluster, &s->dealt, &s->order, &s->best_order, &s->pipeline);
    heti_s_sizes_cut(&s->sizes, arena, s->d.max_micro_batches);
    s->lists.start = HETI_S_ROOM(int64_t, s->d.plan->ranks + 1);
    s->lists.action = HETI_S_ROOM(het_action, s->schedule->start[s->d.plan->ranks]);
}

static het_result heti_s_pack_room(heti_s_pack *s) {
    s->most = heti_s_min(s->d.granules, s->d.max_micro_batches);
    HETI_T_TRY(heti_t_arrays(&s->arena, 0, heti_s_pack_cut, s, &s->allocator, "het_pack", s->error));
    for (int64_t m = 0; m < s->most; s->count[s->count_count++].count = m) /* numbers that are looked at */
        m = heti_s_min(s->most, m < HETI_S_EVERY_COUNT ? m + 1 : m + m / HETI_S_COUNT_STEPS);
    heti_s_pack_limits(s);
    s->lists.ranks = s->d.plan->ranks;
    s->lists.pipelines = s->d.plan->pipelines;
    s->lists.complete = 1;
    if (s->d.evaluations == 0) {
        const int64_t actions = heti_s_max(1, s->schedule->start[s->d.plan->ranks]);
        s->d.evaluations = heti_s_min(1000, heti_s_max(32, (INT64_C(1) << 22) / actions));
    }
    return HET_OK;
}

/* ---- what things cost ---- */

/* How the executor shares m micro-batches among the pipelines (hetrain.h: never more than the
   schedule has), and in s->pipeline which has each of them in order. */
static void heti_s_pack_divide(const heti_s_pack *s, int64_t m, int64_t *counts) {
    int64_t left = 0, i = 0;
    het_plan_micro_batches(s->d.plan, m, counts);
    for (int64_t p = 0; p < s->d.plan->pipelines; p++) {
        left += heti_s_max(0, counts[p] - s->schedule->micro_batches[p]);
        counts[p] = heti_s_min(counts[p], s->schedule->micro_batches[p]);
    }
    for (int64_t p = 0; p < s->d.plan->pipelines; p++) {
        const int64_t more = heti_s_min(left, s->schedule->micro_batches[p] - counts[p]);
        counts[p] += more;
        left -= more;
        for (int64_t k = 0; k < counts[p]; k++) s->pipeline[i++] = p;
    }
}

static int heti_s_pack_takes(const heti_s_pack *s, int64_t pipeline, heti_s_amount a) {
    return !(s->limit[pipeline] > 0 && a.tokens > s->limit[pipeline]);
}

static double heti_s_at(const het_cost *c, heti_s_amount a, double calls) {
    return c->base * calls + c->token * a.tokens + c->pair * a.pairs;
}

/* max w t */
static double heti_s_pack_cost(const heti_s_pack *s, heti_s_amount a) {
    double cost = 0;
    for (int64_t i = 0; i < s->curves; i++) cost = heti_s_larger(cost, heti_s_at(&s->curve[i], a, 1));
    return cost;
}

/* Keeps a curve unless another is nowhere below it. */
static void heti_s_pack_add_curve(heti_s_pack *s, const het_cost *c) {
    int64_t kept = 0;
    for (int64_t i = 0; i < s->curves; i++)
        if (s->curve[i].base >= c->base && s->curve[i].token >= c->token && s->curve[i].pair >= c->pair) return;
    for (int64_t i = 0; i < s->curves; i++)
        if (s->curve[i].base > c->base || s->curve[i].token > c->token || s->curve[i].pair > c->pair)
            s->curve[kept++] = s->curve[i];
    s->curve[kept++] = *c;
    s->curves = kept;
}

/* Ranks of a pipeline; s->load gets how many stages each has. */
static int64_t heti_s_pack_ranks(heti_s_pack *s, int64_t pipeline) {
    int64_t ranks = 0;
    HETI_T_CLEAR(s->load, s->d.plan->ranks);
    for (int64_t g = s->d.plan->first_stage[pipeline]; g < s->d.plan->first_stage[pipeline + 1]; g++)
        ranks += s->load[s->d.plan->stage[g].rank]++ < 1;
    return ranks;
}

static void heti_s_pack_curves(heti_s_pack *s) {
    const het_schedule *schedule = s->schedule;
    int64_t active = 0, ranks = 0;
    int split = 0;
    for (int64_t i = 0; i < schedule->start[schedule->ranks]; i++) split |= schedule->action[i].kind == HET_ACTION_I;
    for (int64_t p = 0; p < s->d.plan->pipelines; p++) {
        active += schedule->micro_batches[p] > 0;
        if (schedule->micro_batches[p] > 0) ranks = heti_s_max(ranks, heti_s_pack_ranks(s, p));
    }
    s->spread = active > 1 || ranks > 1 ? 1 : 0;
    for (int64_t p = 0; p < s->d.plan->pipelines; p++) {
        const double w = s->spread > 0 ? heti_s_real(heti_s_pack_ranks(s, p) - 1 + (active > 1)) : 1;
        for (int64_t g = s->d.plan->first_stage[p]; g < s->d.plan->first_stage[p + 1]; g++) {
            const het_stage_cost *c = &s->d.costs->stage[g];
            het_cost weighted = { 0, 0, 0 };
            heti_s_add_curve(&s->stage[g], c->forward, 1);
            heti_s_add_curve(&s->stage[g], split ? c->input : c->backward, 1);
            if (split) heti_s_add_curve(&s->stage[g], c->weight, 1);
            heti_s_add_curve(&weighted, s->stage[g], w);
            if (schedule->micro_batches[p] > 0) heti_s_pack_add_curve(s, &weighted);
        }
    }
}

static heti_s_amount heti_s_pack_amount(const heti_s_pack *s, int64_t granule) {
    heti_s_amount a;
    a.tokens = heti_s_real(s->d.tokens[granule]);
    a.pairs = s->d.pairs != NULL ? s->d.pairs[granule] : a.tokens * (a.tokens + 1) / 2;
    a.sequences = s->d.sequences != NULL ? heti_s_real(s->d.sequences[granule]) : 1;
    return a;
}

static void heti_s_add(heti_s_amount *to, heti_s_amount a, double times) {
    heti_s_add_numbers(to, &a, sizeof a, times);
}

static int heti_s_pack_before(const heti_s_pack *s, int64_t a, int64_t b) {
    if (heti_s_unequal(s->key[a], s->key[b])) return s->key[a] > s->key[b];
    return s->d.tokens[a] != s->d.tokens[b] ? s->d.tokens[a] > s->d.tokens[b] : a < b;
}

/* Merges runs of 1, 2, 4, ... */
static void heti_s_pack_sort(heti_s_pack *s) {
    const int64_t n = s->d.granules;
    for (int64_t i = 0; i < n; i++) {
        s->key[i] = heti_s_pack_cost(s, heti_s_pack_amount(s, i));
        s->sorted[i] = i;
    }
    for (int64_t width = 1; width < n; width *= 2) {
        int64_t *swap = s->sorted;
        for (int64_t begin = 0; begin < n; begin += 2 * width) {
            const int64_t middle = heti_s_min(n, begin + width), end = heti_s_min(n, begin + 2 * width);
            int64_t a = begin, b = middle;
            for (int64_t i = begin; i < end; i++)
                s->spare[i] = b == end || (a < middle && heti_s_pack_before(s, s->sorted[a], s->sorted[b])) ?
                s->sorted[a++] : s->sorted[b++];
        }
        s->sorted = s->spare;
        s->spare = swap;
    }
    for (int64_t i = 0; i < n; i++) {
        s->before[i + 1] = s->before[i];
        heti_s_add(&s->before[i + 1], heti_s_pack_amount(s, s->sorted[i]), 1);
    }
    s->all = s->before[n];
}

/* Work of the busiest rank with m micro-batches: what it does does not depend on the grouping. */
static double heti_s_pack_work(heti_s_pack *s, int64_t m) {
    double work = 0;
    heti_s_pack_divide(s, m, s->pipeline_count);
    for (int64_t g = 0; g < s->d.plan->stages; g++) s->load[s->d.plan->stage[g].rank] = 0;
    for (int64_t p = 0; p < s->d.plan->pipelines; p++)
        for (int64_t g = s->d.plan->first_stage[p]; g < s->d.plan->first_stage[p + 1]; g++)
            s->load[s->d.plan->stage[g].rank] += heti_s_real(s->pipeline_count[p]) / heti_s_real(m) *
            heti_s_at(&s->stage[g], s->all, heti_s_real(m));
    for (int64_t g = 0; g < s->d.plan->stages; g++) work = heti_s_larger(work, s->load[s->d.plan->stage[g].rank]);
    return work;
}

/* Of every number of micro-batches: the least bounds come first, of equals the lower number. */
static void heti_s_pack_bounds(heti_s_pack *s) {
    int64_t j;
    for (int64_t i = 0; i < s->count_count; i++) {
        heti_s_count c = s->count[i];
        heti_s_amount mean = s->all;
        mean.tokens /= heti_s_real(c.count);
        mean.pairs /= heti_s_real(c.count);
        c.work = heti_s_pack_work(s, c.count);
        c.bound = c.work + s->spread * heti_s_larger(s->key[s->sorted[0]], heti_s_pack_cost(s, mean));
        for (j = i; j > 0 && c.bound < s->count[j - 1].bound; j--) s->count[j] = s->count[j - 1];
        s->count[j] = c;
    }
}

/* ---- groupings ---- */

/* May granules of this sum stand together, where they are several? */
static int heti_s_pack_fits(const heti_s_pack *s, heti_s_amount a) {
    if (s->d.max_tokens > 0 && a.tokens > heti_s_real(s->d.max_tokens)) return 0;
    if (s->d.max_sequences > 0 && a.sequences > heti_s_real(s->d.max_sequences)) return 0;
    return !(s->cap > 0) || a.tokens <= s->cap;
}

static heti_s_amount heti_s_pack_run(const heti_s_pack *s, int64_t begin, int64_t end) {
    heti_s_amount a = s->before[end];
    heti_s_add(&a, s->before[begin], -1);
    return a;
}

/* The longest run from `begin` that costs at most `bound` and ends at most at `last`; begin: there
   is none. *cost: of it. */
static int64_t heti_s_pack_longest(const heti_s_pack *s, int64_t begin, int64_t last, double bound, double *cost) {
    heti_s_amount a = heti_s_pack_run(s, begin, begin + 1);
    int64_t low = begin + 1, high = last + 1; /* low fits, high does not */
    *cost = heti_s_pack_cost(s, a);
    if (*cost > bound) return begin;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        a = heti_s_pack_run(s, begin, middle);
        const double c = heti_s_pack_cost(s, a);
        if (c > bound || !heti_s_pack_fits(s, a)) { high = middle; continue; }
        low = middle;
        *cost = c;
    }
    return low;
}

/* Cuts the sorted row into m runs none of which costs more than `bound`: each as long as it can be,
   with a granule left for each that follows. 0: there are none. *largest: what the largest
   costs. */
static int heti_s_pack_runs(const heti_s_pack *s, int64_t m, double bound, int64_t *group, double *largest) {
    int64_t begin = 0;
    *largest = 0;
    for (int64_t j = 0; j < m; j++) {
        double cost;
        const int64_t end = heti_s_pack_longest(s, begin, s->d.granules - (m - 1 - j), bound, &cost);
        if (end == begin) return 0;
        for (int64_t i = begin; i < end && group != NULL; i++) group[i] = j;
        *largest = heti_s_larger(*largest, cost);
        begin = end;
    }
    return begin == s->d.granules;
}

/* The m runs whose largest is least: bisection between a bound that no runs keep and one that some
   do, which is always the cost of a run. */
static int heti_s_pack_tightest(const heti_s_pack *s, int64_t m, int64_t *group, double *largest) {
    double low = 0, high = 2 * heti_s_pack_cost(s, s->all);
    if (!heti_s_pack_runs(s, m, high, NULL, &high)) return 0;
    for (;;) {
        const double middle = low + (high - low) / 2;
        double cost;
        if (!(middle > low && middle < high)) break;
        if (heti_s_pack_runs(s, m, middle, NULL, &cost)) high = cost;
        else low = middle;
    }
    return heti_s_pack_runs(s, m, high, group, largest);
}

/* The largest granules first, each to the micro-batch that costs least with it; none is empty. */
static int heti_s_pack_spread(heti_s_pack *s, int64_t m, int64_t *group, double *largest) {
    int64_t empty = m;
    if (s->d.granules > (INT64_C(1) << 22) / m) return 0;
    heti_s_pack_divide(s, m, s->pipeline_count);
    HETI_T_CLEAR(s->amount, m);
    HETI_T_CLEAR(s->cost, m);
    HETI_T_CLEAR(s->cluster, m);
    *largest = 0;
    for (int64_t i = 0; i < s->d.granules; i++) {
        const heti_s_amount own = heti_s_pack_run(s, i, i + 1);
        int64_t to = -1;
        double least = 0;
        for (int64_t j = 0; j < m; j++) {
            heti_s_amount with = s->amount[j];
            double cost;
            if (s->cluster[j] && s->d.granules - i <= empty) continue;
            if (to >= 0 && s->cost[j] >= least) continue;
            heti_s_add(&with, own, 1);
            if (!heti_s_pack_takes(s, s->pipeline[j], with)) continue;
            if (s->cluster[j] && !heti_s_pack_fits(s, with)) continue;
            cost = heti_s_pack_cost(s, with);
            if (to >= 0 && cost >= least) continue;
            to = j;
            least = cost;
        }
        if (to < 0) return 0;
        heti_s_add(&s->amount[to], own, 1);
        empty -= !s->cluster[to];
        s->cluster[to] = 1; /* not empty */
        s->cost[to] = least;
        group[i] = to;
        *largest = heti_s_larger(*largest, least);
    }
    return 1;
}

/* Puts the spare grouping among the best, of which there are `room`, and one more place. */
static void heti_s_pack_keep(heti_s_pack *s, heti_s_grouping *best, int64_t room) {
    int64_t at = room;
    if (s->to.estimate < 0 || s->spare_grouping.estimate < s->to.estimate) s->to.estimate = s->spare_grouping.estimate;
    while (at > 0 && (best[at - 1].count == 0 || best[at - 1].estimate > s->spare_grouping.estimate ||
        (best[at - 1].estimate >= s->spare_grouping.estimate && best[at - 1].count > s->spare_grouping.count))) at--;
    if (at == room) return;
    const heti_s_grouping last = best[room - 1];
    for (int64_t i = room - 1; i > at; i--) best[i] = best[i - 1];
    best[at] = s->spare_grouping;
    s->spare_grouping = last;
}

/* The best grouping of each number of micro-batches, until none can be among the best any more. */
static void heti_s_pack_group(heti_s_pack *s, heti_s_grouping *best) {
    for (int64_t i = 0; i < s->count_count; i++) {
        const heti_s_count *next = &s->count[i];
        double largest, spread;
        if (best[HETI_S_KEPT - 1].count > 0 && next->bound >= best[HETI_S_KEPT - 1].estimate) return;
        int found = heti_s_pack_tightest(s, next->count, s->spare_grouping.group, &largest);
        s->spare_grouping.count = next->count;
        s->spare_grouping.estimate = found ? next->work + s->spread * largest : 0;
        if (s->d.neighbours != HET_YES && heti_s_pack_spread(s, next->count, s->spare, &spread) &&
            (!found || spread < largest || s->limited)) { /* it keeps limits, runs may not */
            HETI_T_COPY(s->spare_grouping.group, s->spare, s->d.granules);
            s->spare_grouping.estimate = next->work + s->spread * spread;
            found = 1;
        }
        if (found) heti_s_pack_keep(s, best, HETI_S_KEPT);
    }
}

/* Granules in their own order, equal numbers in each micro-batch, the first have those left over: m
   of them, where limits allow. */
static int heti_s_pack_equal(heti_s_pack *s, int64_t m, double *largest) {
    int64_t j = 0, end = 0;
    heti_s_amount sum = { 0, 0, 0 };
    *largest = 0;
    for (int64_t i = 0; i < s->d.granules; i++) {
        if (i == end) {
            memset(&sum, 0, sizeof sum);
            end += s->d.granules / m + (j < s->d.granules % m);
            j++;
        }
        s->spare[i] = j - 1; /* by number for now */
        heti_s_add(&sum, heti_s_pack_amount(s, i), 1);
        if (!heti_s_pack_fits(s, sum)) return 0;
        if (i + 1 == end) *largest = heti_s_larger(*largest, heti_s_pack_cost(s, sum));
    }
    for (int64_t i = 0; i < s->d.granules; i++) s->spare_grouping.group[i] = s->spare[s->sorted[i]];
    return 1;
}

static void heti_s_pack_plain(heti_s_pack *s) {
    for (int64_t i = 0; i < (s->d.plain > 0 ? 1 : s->count_count); i++) {
        double largest;
        const int64_t m = s->d.plain > 0 ? s->d.plain : s->count[i].count;
        if (m > s->most || !heti_s_pack_equal(s, m, &largest)) continue;
        s->spare_grouping.count = m;
        s->spare_grouping.estimate = heti_s_pack_work(s, m) + s->spread * largest;
        heti_s_pack_keep(s, s->plain, HETI_S_PLAIN);
    }
}

/* ---- judging: orders of micro-batches, by the simulator ---- */

static void heti_s_pack_amounts(heti_s_pack *s, const heti_s_grouping *g) {
    HETI_T_CLEAR(s->amount, g->count);
    for (int64_t i = 0; i < s->d.granules; i++) heti_s_add(&s->amount[g->group[i]], heti_s_pack_run(s, i, i + 1), 1);
    for (int64_t j = 0; j < g->count; j++) s->cost[j] = heti_s_pack_cost(s, s->amount[j]);
}

/* The lists without the micro-batches that are not there. */
static void heti_s_pack_leave_out(heti_s_pack *s, int64_t m) {
    const het_schedule *from = s->schedule;
    int64_t n = 0;
    if (s->lists_for == m) return;
    s->lists_for = m;
    heti_s_pack_divide(s, m, s->lists.micro_batches);
    for (int64_t r = 0; r < from->ranks; r++) {
        s->lists.start[r] = n;
        for (int64_t i = from->start[r]; i < from->start[r + 1]; i++) {
            const het_action *a = &from->action[i];
            if (a->kind < HET_ACTION_REDUCE && a->micro_batch >= s->lists.micro_batches[a->pipeline]) continue;
            s->lists.action[n] = *a;
            /* alone */
            if (a->overlap && a[1].micro_batch >= s->lists.micro_batches[a[1].pipeline]) s->lists.action[n].overlap = 0;
            n++;
        }
    }
    s->lists.start[from->ranks] = n;
}

static het_result heti_s_pack_simulate(heti_s_pack *s, const het_schedule *lists, het_simulation **simulation) {
    het_costs costs = *s->d.costs;
    heti_s_sizes_use(&costs, &s->sizes);
    s->to.evaluations++;
    return het_simulate(s->d.plan, lists, &costs, HET_NO, &s->allocator, simulation, s->error);
}

static int heti_s_better(const heti_s_score *a, const heti_s_score *b) {
    if (heti_s_unequal(a->excess, b->excess)) return a->excess < b->excess;
    return a->seconds < b->seconds;
}

/* Runs s->order of m micro-batches of s->amount. */
static het_result heti_s_pack_score(heti_s_pack *s, int64_t m, heti_s_score *score) {
    het_simulation *simulation;
    heti_s_pack_leave_out(s, m);
    for (int64_t i = 0; i < m; i++) {
        heti_s_amount a = s->amount[s->order[i]];
        a.sequences = heti_s_larger(a.sequences, 1);
        heti_s_sizes_put(&s->sizes, i, a, 1);
    }
    HETI_T_TRY(heti_s_pack_simulate(s, &s->lists, &simulation));
    memset(score, 0, sizeof *score);
    score->seconds = simulation->makespan;
    for (int64_t r = 0; r < s->d.plan->ranks && s->d.memory != NULL; r++) {
        const double excess = simulation->rank[r].peak_bytes - s->d.memory[r];
        if (!(s->d.memory[r] > 0) || excess <= score->excess) continue;
        score->excess = excess;
        score->rank = r;
        score->bytes = simulation->rank[r].peak_bytes;
    }
    het_simulation_free(simulation);
    return HET_OK;
}

/* The same, kept where it is the best so far; not looked at where a pipeline does not take one. */
static het_result heti_s_pack_judge(heti_s_pack *s, heti_s_grouping *g) {
    heti_s_score *score = &s->judged;
    memset(score, 0, sizeof *score);
    score->excess = HETI_S_NONE;
    heti_s_pack_divide(s, g->count, s->pipeline_count);
    for (int64_t i = 0; i < g->count; i++)
        if (!heti_s_pack_takes(s, s->pipeline[i], s->amount[s->order[i]])) return HET_OK;
    HETI_T_TRY(heti_s_pack_score(s, g->count, score));
    if (s->best_grouping != NULL && !heti_s_better(score, &s->best)) return HET_OK;
    s->best = *score;
    s->best_grouping = g;
    HETI_T_COPY(s->best_order, s->order, g->count);
    return HET_OK;
}

/* s->by_cost: micro-batches, the largest first, of equals the lower number. s->dealt: in this order
   to the pipeline that ends first with it, takes it and has room. 0: there is none. Where limits
   differ the largest are those with the most tokens: then each finds one, if there is a way. */
static int heti_s_pack_deal(heti_s_pack *s, const heti_s_grouping *g) {
    const int64_t m = g->count;
    double *size = s->sizes.tokens; /* for a moment */
    heti_s_pack_amounts(s, g);
    for (int64_t i = 0, j; i < m; i++) {
        size[i] = s->limited ? s->amount[i].tokens : s->cost[i];
        for (j = i; j > 0 && size[s->by_cost[j - 1]] < size[i]; j--) s->by_cost[j] = s->by_cost[j - 1];
        s->by_cost[j] = i;
    }
    heti_s_pack_divide(s, m, s->pipeline_count);
    for (int64_t p = 0; p < s->d.plan->pipelines; p++) s->pipeline_full[p] = 0;
    HETI_T_CLEAR(s->pipeline_amount, s->d.plan->pipelines);
    for (int64_t i = 0; i < m; i++) {
        const int64_t j = s->by_cost[i];
        int64_t first = 0, to = -1, at = 0;
        double least = 0;
        for (int64_t p = 0; p < s->d.plan->pipelines; first += s->pipeline_count[p++]) {
            heti_s_amount with = s->pipeline_amount[p];
            if (s->pipeline_full[p] == s->pipeline_count[p] || !heti_s_pack_takes(s, p, s->amount[j])) continue;
            heti_s_add(&with, s->amount[j], 1);
            double seconds = 0; /* of its slowest stage */
            for (int64_t k = s->d.plan->first_stage[p]; k < s->d.plan->first_stage[p + 1]; k++)
                heti_s_most(&seconds, heti_s_at(&s->stage[k], with, heti_s_real(s->pipeline_full[p] + 1)));
            if (to >= 0 && seconds >= least) continue;
            to = p;
            least = seconds;
            at = first + s->pipeline_full[p];
        }
        if (to < 0) return 0;
        s->dealt[at] = j;
        s->pipeline_full[to]++;
        heti_s_add(&s->pipeline_amount[to], s->amount[j], 1);
    }
    return 1;
}

/* s->cluster: micro-batches of similar cost, cut where the row by cost has its widest gaps. Returns
   how many there are. */
static int64_t heti_s_pack_clusters(heti_s_pack *s, int64_t m) {
    int64_t *cut = s->order, cuts = 0, c = 0; /* for a moment: 1 where the row is cut */
    HETI_T_CLEAR(cut, m);
    while (cuts < HETI_S_CLUSTERS - 1) {
        int64_t widest = -1;
        double gap = 0;
        for (int64_t i = 1; i < m; i++) {
            const double g = s->cost[s->by_cost[i - 1]] - s->cost[s->by_cost[i]];
            if (cut[i] || g <= gap) continue;
            gap = g;
            widest = i;
        }
        if (widest < 0) break;
        cut[widest] = 1;
        cuts++;
    }
    for (int64_t i = 0; i < m; i++) s->cluster[s->by_cost[i]] = c += cut[i];
    return cuts + 1;
}

/* The next permutation in lexicographic order; 0: that was the last. */
static int heti_s_next(int64_t *a, int64_t n) {
    int64_t i = n - 1, j = n - 1;
    while (i > 0 && a[i - 1] >= a[i]) i--;
    if (i <= 0) return 0;
    while (a[j] <= a[i - 1]) j--;
    heti_s_exchange(&a[i - 1], &a[j]);
    for (j = n - 1; i < j; i++, j--) heti_s_exchange(&a[i], &a[j]);
    return 1;
}

static int heti_s_pack_spent(heti_s_pack *s) {
    if (s->to.evaluations < s->d.evaluations) return 0;
    s->to.stopped = 1;
    return 1;
}

/* In each pipeline the largest first; or the largest, the smallest, the second largest, ...: so the
   least is kept at once. */
static het_result heti_s_pack_first(heti_s_pack *s, heti_s_grouping *g, heti_s_score *score) {
    int64_t begin = 0;
    if (!heti_s_pack_deal(s, g) || heti_s_pack_spent(s)) return HET_OK;
    HETI_T_COPY(s->order, s->dealt, g->count);
    HETI_T_TRY(heti_s_pack_judge(s, g));
    *score = s->judged;
    if (!(score->excess > 0) || heti_s_pack_spent(s)) return HET_OK;
    for (int64_t p = 0; p < s->d.plan->pipelines; begin += s->pipeline_count[p++])
        for (int64_t i = 0; i < s->pipeline_count[p]; i++)
            s->order[begin + i] = s->dealt[begin + (i % 2 == 0 ? i / 2 : s->pipeline_count[p] - 1 - i / 2)];
    HETI_T_TRY(heti_s_pack_judge(s, g));
    if (heti_s_better(&s->judged, score)) *score = s->judged;
    return HET_OK;
}

/* All orders of the clusters, alike in all pipelines. */
static het_result heti_s_pack_permute(heti_s_pack *s, heti_s_grouping *g) {
    int64_t place[HETI_S_CLUSTERS], clusters, i, p, c, end = 0, n = 0;
    (void)heti_s_pack_deal(s, g);
    clusters = heti_s_pack_clusters(s, g->count);
    for (i = 0; i < clusters; i++) place[i] = i;
    do {
        if (heti_s_pack_spent(s)) break;
        end = n = 0;
        for (p = 0; p < s->d.plan->pipelines; p++) {
            const int64_t begin = end;
            end += s->pipeline_count[p];
            for (c = 0; c < clusters; c++)
                for (i = begin; i < end; i++)
                    if (s->cluster[s->dealt[i]] == place[c]) s->order[n++] = s->dealt[i];
        }
        HETI_T_TRY(heti_s_pack_judge(s, g));
    } while (heti_s_next(place, clusters));
    return HET_OK;
}

/* From s->order, judged last: any two are exchanged, or any one moved, as long as that helps. */
static het_result heti_s_pack_descend(heti_s_pack *s, heti_s_grouping *g) {
    const int64_t m = g->count, all = 2 * m * m;
    heti_s_score score = s->judged;
    int64_t alike = 1;
    while (alike < m && memcmp(s->amount, s->amount + alike, sizeof *s->amount) == 0) alike++;
    HETI_T_COPY(s->dealt, s->order, m);
    for (int64_t k = 0, since = alike == m ? all : 0; since < all; k = k + 1 < all ? k + 1 : 0, since++) {
        const int64_t i = k / m % m, j = k % m, by = i < j ? 1 : -1;
        if (k < m * m ? i >= j : i - j <= 1 && j - i <= 1) continue; /* the same as another */
        if (memcmp(&s->amount[s->dealt[i]], &s->amount[s->dealt[j]], sizeof *s->amount) == 0) continue;
        if (heti_s_pack_spent(s)) return HET_OK;
        HETI_T_COPY(s->order, s->dealt, m);
        if (k < m * m) heti_s_exchange(&s->order[i], &s->order[j]);
        for (int64_t at = i; k >= m * m && at != j; at += by) heti_s_exchange(&s->order[at], &s->order[at + by]);
        HETI_T_TRY(heti_s_pack_judge(s, g));
        if (!heti_s_better(&s->judged, &score)) continue;
        score = s->judged;
        since = -1;
        HETI_T_COPY(s->dealt, s->order, m);
    }
    return HET_OK;
}

/* Any granule goes to another micro-batch, or changes places with one there, while that helps. */
static het_result heti_s_pack_regroup(heti_s_pack *s, heti_s_grouping *g) {
    const int64_t n = s->d.granules, m = g->count, all = n * (m + n);
    if (s->d.neighbours == HET_YES || all > INT64_C(1) << 22) return HET_OK;
    HETI_T_CLEAR(s->cluster, m); /* granules of each */
    for (int64_t i = 0; i < n; i++) s->cluster[g->group[i]]++;
    for (int64_t k = 0, since = 0; since < all; k = k + 1 < all ? k + 1 : 0, since++) {
        const int64_t i = k / (m + n), other = k % (m + n) - m, /* below 0: none */
                      from = g->group[i], to = other < 0 ? other + m : g->group[other];
        if (to == from || other > i || (other < 0 && s->cluster[from] == 1)) continue; /* none is empty */
        const heti_s_amount own = heti_s_pack_run(s, i, i + 1),
                            theirs = heti_s_pack_run(s, other < 0 ? 0 : other, other < 0 ? 0 : other + 1);
        const heti_s_score before = s->best;
        heti_s_amount here = s->amount[from], there = s->amount[to];
        heti_s_add(&there, own, 1), heti_s_add(&there, theirs, -1);
        heti_s_add(&here, own, -1), heti_s_add(&here, theirs, 1);
        if (!heti_s_pack_fits(s, there) || (other >= 0 && !heti_s_pack_fits(s, here))) continue;
        if (heti_s_pack_spent(s)) return HET_OK;
        g->group[i] = to;
        if (other >= 0) g->group[other] = from;
        heti_s_pack_amounts(s, g);
        HETI_T_COPY(s->order, s->best_order, m);
        HETI_T_TRY(heti_s_pack_judge(s, g));
        if (heti_s_better(&s->best, &before)) {
            s->cluster[from] -= other < 0, s->cluster[to] += other < 0;
            since = -1;
            continue;
        }
        g->group[i] = from;
        if (other >= 0) g->group[other] = to;
        heti_s_pack_amounts(s, g);
    }
    return HET_OK;
}

/* Orders and groupings in turn: all orders where as many evaluations are left, else from the best,
   and again with three exchanges drawn before; until two in a row do not help. A grouping that
   changed begins anew. */
static het_result heti_s_pack_improve(heti_s_pack *s) {
    heti_s_grouping *g = s->best_grouping;
    const uint64_t m = HETI_T_CAST(uint64_t, g->count);
    uint64_t draws = 0;
    heti_s_pack_amounts(s, g);
    for (int64_t since = -1; since < 2; since++) {
        const heti_s_score before = s->best;
        int64_t orders = 1, left = s->d.evaluations - s->to.evaluations;
        for (int64_t k = 2; k <= g->count && orders <= left; k++) orders *= k;
        HETI_T_COPY(s->order, s->best_order, g->count);
        for (int64_t i = 0; i < 3 && since >= 0 && orders > left; i++, draws++) {
            const uint64_t draw = het_xxh64(&draws, sizeof draws, m);
            heti_s_exchange(&s->order[draw % m], &s->order[draw / m % m]);
        }
        for (int64_t i = 0; i < g->count && orders <= left; i++) s->order[i] = i;
        if (heti_s_pack_spent(s)) return HET_OK;
        do {
            HETI_T_TRY(heti_s_pack_judge(s, g));
        } while (orders <= left && heti_s_next(s->order, g->count));
        if (orders > left) HETI_T_TRY(heti_s_pack_descend(s, g));
        const heti_s_score ordered = s->best;
        HETI_T_TRY(heti_s_pack_regroup(s, g));
        if (heti_s_better(&s->best, &ordered)) since = -2;
        else if (orders <= left) return HET_OK;
        else if (heti_s_better(&s->best, &before)) since = -1;
    }
    return HET_OK;
}

/* Plain orders first: nothing else counts as found without them. */
static het_result heti_s_pack_judge_plain(heti_s_pack *s) {
    for (int64_t k = 0; k < HETI_S_PLAIN && s->plain[k].count > 0; k++) {
        heti_s_pack_amounts(s, &s->plain[k]);
        for (int64_t i = 0; i < s->plain[k].count; i++) s->order[i] = i;
        HETI_T_TRY(heti_s_pack_judge(s, &s->plain[k]));
        if (s->judged.excess > 0) continue;
        if (s->to.plain_micro_batches > 0 && s->judged.seconds >= s->to.plain_seconds) continue;
        s->to.plain_seconds = s->judged.seconds;
        s->to.plain_micro_batches = s->plain[k].count;
    }
    return HET_OK;
}

/* The six best of each kind in a first order, then two of them in all orders of their clusters. */
static het_result heti_s_pack_judge_groupings(heti_s_pack *s) {
    heti_s_score score[2 * HETI_S_KEPT];
    for (int64_t k = 0; k < 2 * HETI_S_KEPT; k++) {
        score[k].excess = -1; /* not looked at */
        if (s->grouping[k].count > 0) HETI_T_TRY(heti_s_pack_first(s, &s->grouping[k], &score[k]));
    }
    for (int64_t round = 0; round < 2; round++) {
        int64_t least = -1;
        for (int64_t k = 0; k < 2 * HETI_S_KEPT; k++)
            if (score[k].excess >= 0 && (least < 0 || heti_s_better(&score[k], &score[least]))) least = k;
        if (least < 0) return HET_OK;
        score[least].excess = -1;
        HETI_T_TRY(heti_s_pack_permute(s, &s->grouping[least]));
    }
    return HET_OK;
}

/* ---- the whole ---- */

/* One token in each micro-batch: checks what was given, and says how the peaks grow with tokens. */
static het_result heti_s_pack_probe(heti_s_pack *s) {
    static const heti_s_amount heti_s_token = { 1, 0, 1 };
    het_simulation *simulation;
    heti_s_sizes_step(&s->sizes, heti_s_token, s->d.max_micro_batches, 1);
    HETI_T_TRY(heti_s_pack_simulate(s, s->schedule, &simulation));
    for (int64_t r = 0; r < s->d.plan->ranks && s->d.memory != NULL; r++)
        if (s->d.memory[r] > 0)
            s->bytes_a_token = heti_s_larger(s->bytes_a_token, simulation->rank[r].peak_bytes / s->d.memory[r]);
    het_simulation_free(simulation);
    return HET_OK;
}

static het_result heti_s_pack_search(heti_s_pack *s) {
    double tokens; /* what a micro-batch may have beside memory */
    HETI_T_TRY(heti_s_pack_probe(s));
    heti_s_pack_curves(s);
    heti_s_pack_sort(s);
    heti_s_pack_bounds(s);
    s->to.estimate = -1; /* of none */
    heti_s_pack_plain(s);
    heti_s_pack_group(s, s->grouping);
    tokens = s->d.max_tokens > 0 ? heti_s_smaller(heti_s_real(s->d.max_tokens), s->all.tokens) : s->all.tokens;
    s->cap = s->bytes_a_token * tokens > 1 ? 1 / s->bytes_a_token : 0;
    if (s->limited) s->cap = heti_s_limit(s->cap, s->least_limit);
    if (s->cap > 0) heti_s_pack_group(s, s->grouping + HETI_S_KEPT);
    HETI_T_TRY(heti_s_pack_judge_plain(s));
    HETI_T_TRY(heti_s_pack_judge_groupings(s));
    if (s->best_grouping == NULL)
        return heti_t_fail(s->error, HET_ERR_LIMIT, "het_pack: no grouping of %d granules with %d tokens and %d "
                           "sequences into at most %d micro-batches was found with max_tokens %d%s and max_sequences "
                           "%d (0: no limit)", s->d.granules, HETI_T_CAST(int64_t, s->all.tokens),
                           HETI_T_CAST(int64_t, s->all.sequences), s->most, s->d.max_tokens,
                           s->limited ? " (less in some pipelines)" : "", s->d.max_sequences);
    HETI_T_TRY(heti_s_pack_improve(s));
    if (s->best.excess > 0)
        return heti_t_fail(s->error, HET_ERR_LIMIT,
                           "het_pack: rank %d keeps %d bytes in the best grouping found, its limit is %d", s->best.rank,
                           HETI_T_CAST(int64_t, s->best.bytes), HETI_T_CAST(int64_t, s->d.memory[s->best.rank]));
    return HET_OK;
}

static void heti_s_packing_cut(void *self, heti_t_arena *arena) {
    het_packing *k = HETI_T_CAST(het_packing *, self);
    k->order = HETI_S_ROOM(int64_t, k->granules);
    k->start = HETI_S_ROOM(int64_t, k->micro_batches + 1);
    k->counts = HETI_S_ROOM(int64_t, k->pipelines);
    HETI_S_ROOMS(double, k->micro_batches, &k->tokens, &k->pairs, &k->sequences);
}

/* A packing with these numbers. place: [granules] the micro-batch of each. */
static het_result heti_s_packing_new(het_packing made, const int64_t *place, const char *call, het_packing **packing,
                                     het_error *error) {
    het_packing *k = *packing = HETI_S_MAKE(het_packing, made, heti_s_packing_cut, &made.allocator, call, error);
    if (k == NULL) return HET_ERR_OOM;
    for (int64_t i = 0; i < k->granules; i++) k->start[place[i]]++;
    for (int64_t m = 0; m < k->micro_batches; m++) k->start[m + 1] += k->start[m];
    for (int64_t i = k->granules; i-- > 0;) k->order[--k->start[place[i]]] = i;
    return HET_OK;
}

static het_result heti_s_packing_make(heti_s_pack *s, het_packing **packing) {
    const heti_s_grouping *g = s->best_grouping;
    s->to.granules = s->d.granules;
    s->to.micro_batches = g->count;
    s->to.pipelines = s->d.plan->pipelines;
    s->to.seconds = s->best.seconds;
    s->to.allocator = s->allocator;
    for (int64_t i = 0; i < g->count; i++) s->cluster[s->best_order[i]] = i; /* where each micro-batch stands */
    for (int64_t i = 0; i < s->d.granules; i++) s->spare[s->sorted[i]] = s->cluster[g->group[i]];
    HETI_T_TRY(heti_s_packing_new(s->to, s->spare, "het_pack", packing, s->error));
    const heti_s_sizes sizes = { (*packing)->tokens, (*packing)->pairs, (*packing)->sequences };
    heti_s_pack_divide(s, g->count, (*packing)->counts);
    heti_s_pack_amounts(s, g);
    for (int64_t j = 0; j < g->count; j++) heti_s_sizes_put(&sizes, j, s->amount[s->best_order[j]], 1);
    return HET_OK;
}

HETRAIN_API void het_packing_free(het_packing *packing) {
    if (packing != NULL) heti_s_give_back(&packing->allocator, packing, packing->size);
}

HETRAIN_API het_result het_pack(const het_pack_desc *desc, het_packing **packing, het_error *error) {
    if (desc == NULL || packing == NULL) return HETI_S_BAD(error, "het_pack: the description or packing is NULL");
    *packing = NULL;
    HETI_S_CLEARED(heti_s_pack, s);
    s.d = *desc;
    s.error = error;
    HETI_T_TRY(heti_t_choose(&desc->allocator, &s.allocator, error, "het_pack"));
    het_result result = heti_s_pack_check(&s);
    if (result == HET_OK) result = heti_s_pack_lists(&s);
    if (result == HET_OK) result = heti_s_pack_room(&s);
    if (result == HET_OK) result = heti_s_pack_granules(&s);
    if (result == HET_OK) result = heti_s_pack_search(&s);
    if (result == HET_OK) result = heti_s_packing_make(&s, packing);
    heti_t_arrays_free(&s.arena, &s.allocator);
    het_schedule_free(s.made);
    return result;
}

/* ---- a step's granules on teams of unlike sizes ----
   A team's time is its micro-batches', one behind the other; which granules it has is judged by the
   simulator, and guessed by what each takes alone. */

enum { HETI_S_EVERY_SIZE = 8, HETI_S_TEAM_TRIES = 192, HETI_S_TEAM_SIZES = 7 }; /* 2^6: HETRAIN_MAX_TEAM */
enum { HETI_S_TEAM_CHOICES = HETI_S_TEAM_WAYS + 2, HETI_S_TEAM_TURNS = 512 };

/* One team: tokens of a micro-batch at most; what an empty one takes; when the team ends, and that
   over what was guessed; of its granules, and what they add. */
typedef struct heti_s_team { double cap, base, end, factor, tokens, seconds; } heti_s_team;

typedef struct heti_s_teams {
    heti_s_seek s;
    heti_s_fusion f;
    heti_t_arena arena;
    heti_s_pack given;                /* its description and, without curves, what sorts by tokens */
    int64_t n, most;                  /* granules; the larger of them and ranks */
    int64_t granule;                  /* tokens of the longest that rows are cut between; 0: 512 */
    heti_s_amount *amount;            /* [n] of granules */
    int64_t *row;                     /* [n] granules, the longest first */
    /* one set of teams */
    het_plan *plan, from;             /* from: over composite devices */
    het_plan_costs *costs;
    heti_s_team *of;                  /* [ranks] by team */
    double *alone;                    /* [n][ranks] what a granule adds to a team */
    int64_t *team, *kept, *group;     /* [n] of granules: their team, in the best deal, their micro-batch */
    heti_s_amount *batch;             /* [most] micro-batches, team by team */
    int64_t *count;                   /* [ranks] micro-batches of a team */
    int64_t *choice;                  /* [ranks] of a team: a way with shares of the longest granule, or by context with
                                         those of all, of short ones */
    double seconds;                   /* of a step with the last choices; HETI_S_NONE: they do not fit */
    heti_s_sizes sizes;               /* [most] the same for the simulator */
    /* the best */
    het_plan *best_plan;
    het_packing *best;
    double equal;                     /* seconds of the best teams of one size; 0: none */
    int64_t equal_micro_batches, evaluations;
} heti_s_teams;

static void heti_s_teams_cut(void *self, heti_t_arena *arena) {
    heti_s_teams *t = HETI_T_CAST(heti_s_teams *, self);
    const int64_t n = t->n, ranks = t->s.ranks;
    t->amount = HETI_S_ROOM(heti_s_amount, n);
    HETI_S_ROOMS(int64_t, n, &t->given.sorted, &t->given.spare, &t->team, &t->group);
    t->given.key = t->alone = HETI_S_ROOM(double, n * ranks);
    t->from.stage = HETI_S_ROOM(het_stage, ranks);
    HETI_S_ROOMS(double, ranks, &t->from.share, &t->from.state_share);
    HETI_S_ROOMS(int64_t, ranks + 1, &t->from.first_stage, &t->count, &t->choice);
    t->of = HETI_S_ROOM(heti_s_team, ranks);
    t->given.before = t->batch = HETI_S_ROOM(heti_s_amount, t->most + 1);
    heti_s_sizes_cut(&t->sizes, arena, t->most);
}

/* Shares, a stage a team, and what they cost. */
static het_result heti_s_teams_plan(heti_s_teams *t) {
    heti_s_seek *s = &t->s;
    heti_s_fusion *f = &t->f;
    het_plan *from = &t->from;
    for (int64_t p = 0; p < f->teams; p++) {
        const heti_s_spot spot = { 0, 0, 0, 0, 0, s->units };
        const heti_s_amount *a = t->choice[p] == HETI_S_TEAM_WAYS ? &t->given.all : &t->amount[t->row[0]];
        s->granule = *a;
        s->granule.tokens = heti_s_larger(1, a->tokens);
        s->granule.sequences = t->choice[p] > HETI_S_TEAM_WAYS ? heti_s_real(s->pieces) :
                               heti_s_larger(1, heti_s_sequences(a, 1));
        HETI_T_TRY(heti_s_fused_shares(s, f, p));
        heti_s_put_stage(&from->stage[p], p, p, &spot, 0);
        from->first_stage[p + 1] = p + 1;
        from->share[p] = from->state_share[p] = 1;
    }
    from->shard = heti_s_fused_shard(s, f);
    from->units = s->units;
    from->slices = 1;
    from->ranks = from->pipelines = from->stages = f->teams;
    from->make = het_schedule_make;
    memcpy(from->schedule, "1f1b", 5);
    HETI_T_TRY(heti_s_unfuse(s, f, from, &t->plan));
    memset(&t->plan->step, 0, sizeof t->plan->step);
    return heti_s_sized_costs(&s->d, t->plan, s->d.cluster, &t->sizes, &s->allocator, &t->costs, s->error);
}

/* Whether a team's members have room for a micro-batch of so many tokens. */
static het_result heti_s_teams_fit(heti_s_teams *t, int64_t team, int64_t tokens, int *fits) {
    heti_s_seek *s = &t->s;
    const het_shape shape = { tokens, heti_s_min(tokens, t->n), t->granule };
    HETI_T_TRY(het_profile_memory(s->d.profile, t->plan, s->needs, &shape, s->memory, s->error));
    *fits = 1;
    for (int64_t i = t->f.first[team]; i < t->f.first[team + 1]; i++) {
        const double limit = s->d.cluster->device[t->f.device[i]].memory;
        *fits &= !(limit > 0 && heti_s_limited(&s->memory[t->f.device[i]]) > limit);
    }
    return HET_OK;
}

/* The most tokens that each team takes and has room for, by bisection. */
static het_result heti_s_teams_caps(heti_s_teams *t) {
    heti_s_seek *s = &t->s;
    het_schedule *lists = NULL;
    int64_t like;
    for (int64_t p = 0; p < t->f.teams; p++) t->count[p] = 2;
    HETI_T_TRY(heti_s_lists(t->plan, t->count, &s->blocks, NULL, &s->allocator, &lists, s->error));
    het_result result = het_schedule_needs(t->plan, lists, 0, s->ranks, 0, &s->allocator, s->needs, s->error);
    het_schedule_free(lists);
    for (int64_t p = 0; p < t->f.teams && result == HET_OK; p++) {
        /* low fits, high does not, or is one more than there are */
        int64_t low = 0, high = 1 + HETI_T_CAST(int64_t, t->given.all.tokens);
        int fits = 0;
        double limit = heti_s_real(t->given.d.max_tokens);
        for (int64_t i = t->f.first[p]; i < t->f.first[p + 1]; i++)
            limit = heti_s_limit(limit, heti_s_device_limit(s, t->f.device[i]));
        if (limit > 0 && limit < heti_s_real(high - 1)) high = 1 + HETI_T_CAST(int64_t, limit);
        for (like = 0; like < p; like++)
            if (t->choice[like] == t->choice[p] && heti_s_fused_alike(s, &t->f, like, p)) break;
        if (like == p) result = heti_s_teams_fit(t, p, heti_s_max(1, high - 1), &fits);
        if (fits) low = high - 1;
        while (like == p && high - low > 1 && result == HET_OK) {
            const int64_t middle = low + (high - low) / 2;
            result = heti_s_teams_fit(t, p, middle, &fits);
            *(fits ? &low : &high) = middle;
        }
        t->of[p].cap = like < p ? t->of[like].cap : heti_s_real(low);
    }
    return result;
}

/* When each team has done its t->count micro-batches. */
static het_result heti_s_teams_run(heti_s_teams *t) {
    het_costs costs = t->costs->costs;
    het_simulation *made = NULL;
    int64_t micro_batches = 0;
    costs.transfer = HET_TRANSFER_FREE;
    for (int64_t p = 0; p < t->f.teams; p++) micro_batches += t->count[p];
    for (int64_t m = 0; m < micro_batches; m++) {
        heti_s_amount a = t->batch[m];
        a.sequences = heti_s_larger(1, heti_s_sequences(&a, 1));
        heti_s_sizes_put(&t->sizes, m, a, 1);
    }
    t->evaluations++;
    HETI_T_TRY(heti_s_simulate(t->plan, t->count, &costs, HET_NO, &t->s.allocator, &made, t->s.error));
    for (int64_t p = 0; p < t->f.teams; p++) t->of[p].end = made->rank[t->plan->stage[p].rank].end;
    het_simulation_free(made);
    return HET_OK;
}

/* What each granule adds to a team that takes it: it alone is a micro-batch. -1: nothing. */
static het_result heti_s_teams_alone(heti_s_teams *t) {
    static const heti_s_amount heti_s_nothing = { 0, 0, 1 };
    for (int64_t i = -1; i < t->n; i++) {
        const heti_s_amount *a = i < 0 ? &heti_s_nothing : &t->amount[i];
        int64_t m = 0;
        for (int64_t p = 0; p < t->f.teams; p++) {
            t->count[p] = a->tokens <= t->of[p].cap;
            if (t->count[p]) t->batch[m++] = *a;
        }
        HETI_T_TRY(heti_s_teams_run(t));
        for (int64_t p = 0; p < t->f.teams; p++)
            *(i < 0 ? &t->of[p].base : &t->alone[i * t->s.ranks + p]) = t->of[p].end - (i < 0 ? 0 : t->of[p].base);
    }
    return HET_OK;
}

/* Team p, as it is or would be, gets a granule, or loses it: sign -1. Granule -1: none. */
static void heti_s_teams_add(const heti_s_teams *t, heti_s_team *of, int64_t p, int64_t granule, double sign) {
    if (granule < 0) return;
    of->tokens += sign * t->amount[granule].tokens;
    of->seconds += sign * t->alone[granule * t->s.ranks + p];
}

/* A team's time as guessed, with granule `in`, without `out`. */
static double heti_s_teams_guess(const heti_s_teams *t, int64_t p, int64_t in, int64_t out) {
    heti_s_team of = t->of[p];
    heti_s_teams_add(t, &of, p, in, 1);
    heti_s_teams_add(t, &of, p, out, -1);
    const double calls = of.tokens > 0 ? heti_s_real(HETI_T_CAST(int64_t, of.tokens / of.cap)) + 1 : 0;
    return of.factor * (of.seconds + calls * of.base);
}

static void heti_s_teams_put(heti_s_teams *t, int64_t granule, int64_t team) {
    const int64_t from = t->team[granule];
    if (from >= 0) heti_s_teams_add(t, &t->of[from], from, granule, -1);
    heti_s_teams_add(t, &t->of[team], team, granule, 1);
    t->team[granule] = team;
}

/* The longest first, each to the team that ends first with it; blur: times are drawn up to so many
   1,024ths longer. Returns whether all have a place. */
static int heti_s_teams_deal(heti_s_teams *t, int64_t blur) {
    for (int64_t p = 0; p < t->f.teams; p++) t->of[p].factor = 1, t->of[p].tokens = t->of[p].seconds = 0;
    for (int64_t i = 0; i < t->n; i++) {
        int64_t to = -1;
        double least = 0;
        for (int64_t p = 0; p < t->f.teams; p++) {
            const double seconds = heti_s_teams_guess(t, p, t->row[i], -1) *
                                   heti_s_real(1024 + heti_s_below(&t->s, blur));
            if (t->amount[t->row[i]].tokens > t->of[p].cap || (to >= 0 && seconds >= least)) continue;
            to = p;
            least = seconds;
        }
        if (to < 0) return 0;
        t->team[t->row[i]] = -1;
        heti_s_teams_put(t, t->row[i], to);
    }
    return 1;
}

/* Micro-batches of each team, the longest granules first, each in the first that has room; and when
   the teams end. */
static het_result heti_s_teams_group(heti_s_teams *t) {
    int64_t made = 0;
    for (int64_t p = 0; p < t->f.teams; p++) {
        const int64_t first = made;
        for (int64_t k = 0; k < t->n; k++) {
            const int64_t i = t->row[k];
            const heti_s_amount *a = &t->amount[i];
            int64_t m = first;
            if (t->team[i] != p) continue;
            while (m < made && (t->batch[m].tokens + a->tokens > t->of[p].cap || (t->given.d.max_sequences > 0 &&
                t->batch[m].sequences + a->sequences > heti_s_real(t->given.d.max_sequences)))) m++;
            if (m == made) HETI_T_CLEAR(t->batch + made++, 1);
            heti_s_add(&t->batch[m], *a, 1);
            t->group[i] = m;
        }
        t->count[p] = made - first;
    }
    HETI_T_TRY(heti_s_teams_run(t));
    for (int64_t p = 0; p < t->f.teams; p++) {
        t->of[p].factor = 1;
        if (t->count[p] > 0) t->of[p].factor = t->of[p].end / heti_s_larger(heti_s_teams_guess(t, p, -1, -1), 1e-300);
    }
    return HET_OK;
}

static int64_t heti_s_teams_last(const heti_s_teams *t) {
    int64_t last = 0;
    for (int64_t p = 1; p < t->f.teams; p++)
        if (t->of[p].end > t->of[last].end) last = p;
    return last;
}

/* Granule i of the team that ends last to team p, for granule j of it; -1: for none. *better: both
   end before. */
static het_result heti_s_teams_move(heti_s_teams *t, int64_t i, int64_t j, int64_t p, int *better) {
    const int64_t last = t->team[i];
    const double before = t->of[last].end, most = before * 1.05; /* of a guess */
    *better = 0;
    if (t->amount[i].tokens > t->of[p].cap || (j >= 0 && t->amount[j].tokens > t->of[last].cap)) return HET_OK;
    if (heti_s_teams_guess(t, last, j, i) >= most || heti_s_teams_guess(t, p, i, j) >= most) return HET_OK;
    heti_s_teams_put(t, i, p);
    if (j >= 0) heti_s_teams_put(t, j, last);
    HETI_T_TRY(heti_s_teams_group(t));
    *better = heti_s_larger(t->of[last].end, t->of[p].end) < before * (1 - 1e-9);
    if (*better) return HET_OK;
    heti_s_teams_put(t, i, last);
    if (j >= 0) heti_s_teams_put(t, j, p);
    return heti_s_teams_group(t);
}

static het_result heti_s_teams_improve(heti_s_teams *t, int64_t until) {
    int better = 1;
    while (better) {
        const int64_t last = heti_s_teams_last(t);
        better = 0;
        for (int64_t a = 0; a < t->n && !better; a++)
            for (int64_t b = -1; b < t->n && !better; b++) {
                const int64_t i = t->row[a], j = b < 0 ? -1 : t->row[b];
                if (t->team[i] != last || (j >= 0 && t->team[j] == last)) continue;
                for (int64_t p = j < 0 ? 0 : t->team[j]; p < (j < 0 ? t->f.teams : t->team[j] + 1) && !better; p++) {
                    if (t->evaluations >= until) return HET_OK;
                    if (p != last) HETI_T_TRY(heti_s_teams_move(t, i, j, p, &better));
                }
            }
    }
    return HET_OK;
}

/* The best of several deals; of one, where the best teams so far are well ahead of it. */
static het_result heti_s_teams_deals(heti_s_teams *t, int *found) {
    const int64_t until = t->evaluations + t->given.d.evaluations, turns = HETI_S_TEAM_TURNS / t->n;
    double least = HETI_S_NONE;
    for (int64_t turn = 0, best = 0; turn <= best + turns && heti_s_teams_deal(t, turn * 512 % 4096); turn++) {
        HETI_T_TRY(heti_s_teams_group(t));
        HETI_T_TRY(heti_s_teams_improve(t, until));
        if (t->of[heti_s_teams_last(t)].end < least) {
            HETI_T_COPY(t->kept, t->team, t->n);
            least = t->of[heti_s_teams_last(t)].end;
            best = turn;
        }
        *found = 1;
        if (t->f.teams == 1 || t->evaluations >= until || (t->best != NULL && least > 1.5 * t->best->estimate)) break;
    }
    HETI_T_COPY(t->team, t->kept, t->n);
    return *found ? heti_s_teams_group(t) : HET_OK;
}

/* The whole step, kept where it is the best. */
static het_result heti_s_teams_judge(heti_s_teams *t) {
    heti_s_seek *s = &t->s;
    het_schedule *lists = NULL;
    het_simulation *made = NULL;
    het_packing *k;
    int64_t same = 0;
    HETI_S_CLEARED(het_packing, new_one);
    for (int64_t p = 0; p < t->f.teams; p++) {
        t->plan->share[p] = heti_s_real(t->count[p]);
        new_one.micro_batches += t->count[p];
        same += t->f.first[p + 1] - t->f.first[p] == t->f.first[1];
    }
    HETI_T_TRY(heti_s_lists(t->plan, t->count, &s->blocks, NULL, &s->allocator, &lists, s->error));
    const het_result result = het_simulate_costs(t->plan, lists, t->costs, HET_NO, &s->allocator, &made, s->error);
    het_schedule_free(lists);
    HETI_T_TRY(result);
    const double seconds = t->seconds = heti_s_makespan(made);
    if (same == t->f.teams && (!(t->equal > 0) || seconds < t->equal)) {
        t->equal = seconds;
        t->equal_micro_batches = new_one.micro_batches;
    }
    if (t->best != NULL && seconds >= t->best->seconds * (1 - 1e-9)) return HET_OK;
    new_one.granules = t->n;
    new_one.pipelines = t->f.teams;
    new_one.seconds = seconds;
    new_one.allocator = s->allocator;
    HETI_T_TRY(heti_s_packing_new(new_one, t->group, "het_pack_teams", &k, s->error));
    HETI_T_COPY(k->counts, t->count, k->pipelines);
    HETI_T_COPY(k->tokens, t->sizes.tokens, k->micro_batches);
    HETI_T_COPY(k->pairs, t->sizes.pairs, k->micro_batches);
    HETI_T_COPY(k->sequences, t->sizes.sequences, k->micro_batches);
    for (int64_t p = 0; p < t->f.teams; p++) heti_s_most(&k->estimate, t->of[p].end);
    het_packing_free(t->best);
    het_plan_free(t->best_plan);
    t->best = k;
    t->best_plan = t->plan;
    t->plan = NULL;
    return HET_OK;
}

/* These teams, as chosen. */
static het_result heti_s_teams_way(heti_s_teams *t) {
    int found = 0;
    t->seconds = HETI_S_NONE;
    for (int64_t p = 0; p < t->f.teams; p++) {
        int64_t way = t->choice[p];
        if (way >= HETI_S_TEAM_WAYS) way = HETI_S_BY_CONTEXT;
        if (!heti_s_take_way(&t->s, &t->f, p, way)) return HET_OK;
    }
    het_result result = heti_s_teams_plan(t);
    if (result == HET_OK) result = heti_s_teams_caps(t);
    if (result == HET_OK) result = heti_s_teams_alone(t);
    if (result == HET_OK) result = heti_s_teams_deals(t, &found);
    if (result == HET_OK && found) result = heti_s_teams_judge(t);
    het_plan_costs_free(t->costs);
    het_plan_free(t->plan);
    t->costs = NULL;
    t->plan = NULL;
    return result;
}

/* All with the same choice; then, where that is not far from the best, other ones for each team. */
static het_result heti_s_teams_ways(heti_s_teams *t) {
    const int64_t *first = t->f.first, choices = first[1] > 1 ? HETI_S_TEAM_CHOICES : 1;
    int64_t best = 0, until;
    double least = HETI_S_NONE;
    for (int64_t i = 0; i < choices; i++) {
        for (int64_t p = 0; p < t->f.teams; p++) t->choice[p] = i;
        HETI_T_TRY(heti_s_teams_way(t));
        if (t->seconds < least) least = t->seconds, best = i;
    }
    for (int64_t p = 0; p < t->f.teams; p++) t->choice[p] = best;
    until = t->evaluations + 2 * HETI_S_TEAM_CHOICES * t->given.d.evaluations;
    for (int64_t p = 0; p < t->f.teams && t->f.teams > 1 && first[2] - first[1] > 1; p++)
        for (int64_t i = 0; i < choices && first[p + 1] - first[p] > 1; i++) {
            best = t->choice[p];
            if (i == best || t->evaluations >= until || !(least < HETI_S_NONE) || least > 1.05 * t->best->seconds)
                continue;
            t->choice[p] = i;
            HETI_T_TRY(heti_s_teams_way(t));
            if (t->seconds < least) least = t->seconds;
            else t->choice[p] = best;
        }
    return HET_OK;
}

/* Teams of at most so many devices, the larger first, of those that are left. */
static het_result heti_s_teams_every(heti_s_teams *t, int64_t most) {
    const int64_t at = t->f.first[t->f.teams];
    if (at == t->s.ranks) return heti_s_teams_ways(t);
    for (int64_t size = heti_s_min(most, t->s.ranks - at); size > 0; size--) {
        t->f.first[++t->f.teams] = at + size;
        HETI_T_TRY(heti_s_teams_every(t, size));
        t->f.teams--;
    }
    return HET_OK;
}

/* Teams of 2^k devices, number[k] of each, the large ones first. best: the best numbers so far. */
static het_result heti_s_teams_sizes(heti_s_teams *t, const int64_t *number, int64_t *best) {
    heti_s_fusion *f = &t->f;
    const double before = t->best != NULL ? t->best->seconds : HETI_S_NONE;
    f->teams = 0;
    for (int64_t k = HETI_S_TEAM_SIZES - 1; k >= 0; k--)
        for (int64_t i = 0; i < number[k]; i++, f->teams++)
            f->first[f->teams + 1] = f->first[f->teams] + (INT64_C(1) << k);
    HETI_T_TRY(heti_s_teams_ways(t));
    if (t->best != NULL && t->best->seconds < before) HETI_T_COPY(best, number, HETI_S_TEAM_SIZES);
    return HET_OK;
}

/* Teams of one size, of each; then one of the best is divided or several joined, while it helps. */
static het_result heti_s_teams_climb(heti_s_teams *t, int64_t most) {
    int64_t number[HETI_S_TEAM_SIZES], best[HETI_S_TEAM_SIZES];
    double before;
    HETI_T_CLEAR(best, HETI_S_TEAM_SIZES);
    for (int64_t k = 0; k < HETI_S_TEAM_SIZES && INT64_C(1) << k <= most; k++) {
        int64_t left = t->s.ranks;
        HETI_T_CLEAR(number, HETI_S_TEAM_SIZES);
        for (int64_t i = k; i >= 0; left -= number[i] << i, i--) number[i] = left >> i;
        HETI_T_TRY(heti_s_teams_sizes(t, number, best));
    }
    do {
        before = t->best != NULL ? t->best->seconds : 0;
        for (int64_t k = 0; k < HETI_S_TEAM_SIZES * HETI_S_TEAM_SIZES; k++) {
            const int64_t from = k / HETI_S_TEAM_SIZES, to = k % HETI_S_TEAM_SIZES;
            HETI_T_COPY(number, best, HETI_S_TEAM_SIZES);
            number[from] -= from < to ? INT64_C(1) << (to - from) : 1;
            number[to] += from < to ? 1 : INT64_C(1) << (from - to);
            if (from == to || number[from] < 0 || INT64_C(1) << to > most) continue;
            HETI_T_TRY(heti_s_teams_sizes(t, number, best));
        }
    } while (t->best != NULL && t->best->seconds < before);
    return HET_OK;
}

/* All sets of teams of a few devices; where they are unlike, of devices in both orders. */
static het_result heti_s_teams_all(heti_s_teams *t) {
    const int64_t ranks = t->s.ranks, most = heti_s_can_fuse(&t->s) ? heti_s_min(ranks, HETRAIN_MAX_TEAM) : 1;
    for (int way = 0; way < (t->s.kinds > 1 ? 2 : 1); way++) {
        for (int64_t i = 0; i < ranks; i++) t->f.device[i] = t->s.by_place[way == 0 ? i : ranks - 1 - i];
        t->f.teams = 0;
        HETI_T_TRY(ranks <= HETI_S_EVERY_SIZE ? heti_s_teams_every(t, most) : heti_s_teams_climb(t, most));
    }
    if (t->best != NULL) return HET_OK;
    return heti_t_fail(t->s.error, HET_ERR_LIMIT, "het_pack_teams: no teams of %d devices have room for %d granules, "
                       "the longest of %d tokens", ranks, t->n, HETI_T_CAST(int64_t, t->amount[t->row[0]].tokens));
}

static het_result heti_s_teams_start(heti_s_teams *t, const het_search_desc *search) {
    static const char *const heti_s_one_order[] = { "1f1b" };
    heti_s_seek *s = &t->s;
    het_search_desc d = *search;
    if (t->given.d.evaluations < 1) t->given.d.evaluations = HETI_S_TEAM_TRIES;
    t->given.d.evaluations = heti_s_min(t->given.d.evaluations, HETI_S_MOST_EVALUATIONS);
    t->n = t->given.d.granules;
    t->granule = search->granule_tokens;
    t->most = heti_s_max(t->n, d.cluster->ranks);
    s->ranks = d.cluster->ranks;
    HETI_T_TRY(heti_t_arrays(&t->arena, 0, heti_s_teams_cut, t, &s->allocator, "het_pack_teams", s->error));
    for (int64_t i = 0; i < t->n; i++) t->amount[i] = heti_s_pack_amount(&t->given, i);
    heti_s_pack_sort(&t->given);
    t->row = t->given.sorted, t->kept = t->given.spare;
    d.schedules = heti_s_one_order;
    d.schedule_count = 1;
    d.granules = t->n;
    d.granule_tokens = heti_s_max(1, HETI_T_CAST(int64_t, t->amount[t->row[0]].tokens));
    d.granule_pairs = t->amount[t->row[0]].pairs; /* shares are those of the longest */
    d.granule_sequences = heti_s_max(1, HETI_T_CAST(int64_t, t->amount[t->row[0]].sequences));
    d.most_granules = d.most_micro_batches = 0;
    HETI_T_TRY(heti_s_seek_desc(s, &d));
    HETI_T_TRY(heti_s_seek_start(s));
    s->pieces = HETI_S_COLUMN_PARTS;
    return HET_OK;
}

HETRAIN_API het_result het_pack_teams(const het_search_desc *search, const het_pack_desc *desc, het_plan **plan,
                                      het_packing **packing, het_error *error) {
    if (search == NULL || desc == NULL || plan == NULL || packing == NULL)
        return HETI_S_BAD(error, "het_pack_teams: a description, plan or packing is NULL");
    *plan = NULL;
    *packing = NULL;
    if (search->profile == NULL || search->cluster == NULL || desc->tokens == NULL || desc->start_canary != 0 ||
        desc->end_canary != 0)
        return HETI_S_BAD(error, "het_pack_teams: profile, cluster or tokens is NULL, or the description was not "
                          "cleared");
    if (desc->granules < 1 || desc->granules > 1000000 || desc->max_tokens < 0 || desc->max_sequences < 0 ||
        search->granule_tokens < 0)
        return HETI_S_BAD(error, "het_pack_teams: %d granules, max_tokens %d, max_sequences %d, granule_tokens %d",
                          desc->granules, desc->max_tokens, desc->max_sequences, search->granule_tokens);
    HETI_S_CLEARED(heti_s_teams, t);
    t.given.d = *desc;
    t.given.error = t.s.error = error;
    HETI_T_TRY(heti_t_choose(&desc->allocator, &t.s.allocator, error, "het_pack_teams"));
    HETI_T_TRY(heti_s_pack_granules(&t.given));
    het_result result = heti_s_teams_start(&t, search);
    if (result == HET_OK) result = heti_s_fusion_start(&t.s, &t.f);
    t.f.granules = 1;
    if (result == HET_OK) result = heti_s_teams_all(&t);
    if (result == HET_OK) {
        t.best->plain_seconds = t.equal;
        t.best->plain_micro_batches = t.equal_micro_batches;
        t.best->evaluations = t.evaluations;
        *packing = t.best;
        *plan = t.best_plan;
    } else {
        het_packing_free(t.best);
        het_plan_free(t.best_plan);
    }
    heti_t_arrays_free(&t.f.arena, &t.s.allocator);
    heti_s_seek_end(&t.s);
    heti_t_arrays_free(&t.arena, &t.s.allocator);
    return result;
}

#ifdef __cplusplus
}
#endif
#define HETRAIN_SEARCH_IMPLEMENTATION_DONE
#endif /* HETRAIN_SEARCH_IMPLEMENTATION */

/* ---- changes ------------------------------------------------------------------------------------
   0.2.0  Names, files and drawers: CHANGELOG.md.
   0.1.0  The first version.

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
