/* train: the main job. Trains a transformer on a file and writes weights, a log and a loss curve.
     cc -O2 -I. -Iutil programs/train.c -o build/train -lm -lpthread
     build/train --data FILE --out build/run
   Sections: settings, configuration, checkpoints, log, progress, changes, the loop. Exit status: 0 done, 2 bad usage or input, 1 anything else. */
#define PROGRAM "train"
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#define HETRAIN_SEARCH_IMPLEMENTATION
#define HETRAIN_OUTER_IMPLEMENTATION
#define HETRAIN_EXPERTS_IMPLEMENTATION
#include "common.h"
#include "hetrain_search.h"
#ifdef HETRAIN_MPI /* make mpi: a process of several; mpirun -n N build/train_mpi */
#define HETRAIN_MPI_DECLARATIONS
#include "hetrain_mpi.c"
#endif
#ifdef HETRAIN_NCCL /* make nccl: cards that exchange without their hosts */
#define HETRAIN_NCCL_DECLARATIONS
#include "hetrain_nccl.c"
#endif
#include "adapter.h"
#include "auto.h"
#include "checkpoint.h"
#include "connect.h"
#include "curve.h"
#include "experts.h"
#include "feed.h"
#include "folder.h"
#include "islands.h"
#include "kept.h"
#include "launch.h"
#include "loader.h"
#include "mix.h"
#include "power.h"
#include "stop.h"
#include "text.h"

/* ---- settings ------------------------------------------------------------------------------------------------------ */

typedef struct settings {
    const char *data, *val, *model, *init, *devices, *links, *plan, *schedule, *save_plan, *save_profile, *trace, *timeline, *out, *resume, *log;
    const char *replan, *slow, *profile, *tokenizer, *experts, *lora_target, *init_adapter, *export_to, *world, *world_secret, *island_world, *power;
    int64_t save_dtype;
    double adapt, plan_seconds, memory_limit;
    int64_t steps, micro_batches, sequences, length, warmup, granule, checkpoint_every, slices, evaluate_every, evaluate_batches, slice_tokens;
    int64_t schedule_lr, dtype, streams, reduce, backward, recompute, store, shard, shard_gradients, keep, force_resume, overwrite, hash, quiet,
            on_bad_step, verify,
            weights, nonfinite, adapt_shares, loaders, scaling;
    int64_t updates, staleness, lora, local_loss, any_base, insecure_world, optimizer, islands, island_fragments, island_bits;
    double lr, min_lr, beta1, beta2, epsilon, weight_decay, clip, dropout, lora_alpha, spike, matrix_lr, momentum, feedback,
        feedback_change, outer_lr, outer_momentum, island_seconds;
    uint64_t seed;
} settings;

#define MODEL_DEFAULT "llama:layers=4,width=192,heads=6,context=128"
#define AT(field) offsetof(settings, field)
/* The same in all processes, unless the table says: each has its own, or all or none have one, which may have another name there. */
enum option_agreement { SAME = 0, OWN = 1, FOUND = 2 };
static const option options[] = {
    OPTION_TITLE("Model and data"),
    { "--data", "FILE", OPTION_TEXT, AT(data), FOUND, 0,
      "text (bytes are tokens), llm.c or nanoGPT tokens (*.bin), or a list (*.mix) of such files, a line each: WEIGHT PATH" },
    { "--val", "FILE", OPTION_TEXT, AT(val), FOUND, 0, "validation data; default: the last 5 % of the windows of --data, of a *.mix none" },
    { "--loaders", "N", OPTION_INTEGER, AT(loaders), 0, 64, "threads that read the next steps' data; 0: read between steps" },
    { "--tokenizer", "FILE", OPTION_TEXT, AT(tokenizer), FOUND, 0, "tokenizer.json for text; default: the one beside --init, else bytes" },
    { "--model", "SPEC", OPTION_TEXT, AT(model), 0, 0, "FAMILY:preset (gpt2:124m, ...), FAMILY:key=value,..., or a config.json [" MODEL_DEFAULT "]" },
    { "--experts", "E,K", OPTION_TEXT, AT(experts), 0, 0,
      "E experts in place of each MLP, a token uses K; also ,width=F ,capacity=C ,drop=probability ,auxiliary=0.01 ,hash" },
    { "--init", "FILE|DIR", OPTION_TEXT, AT(init), FOUND, 0, "start from these weights (safetensors)" },
    { "--allow-nonfinite", NULL, OPTION_FLAG, AT(nonfinite), 0, 0, "also from weights that hold nan or inf" },
    { "--length", "T", OPTION_INTEGER, AT(length), 1, 1e7, "tokens a sequence; default: the model's context" },
    OPTION_TITLE("Training"),
    { "--steps", "N", OPTION_INTEGER, AT(steps), 0, 1e12, "optimizer steps; 0: only --save-profile" },
    { "--micro-batches", "M", OPTION_INTEGER, AT(micro_batches), 1, 65536, "micro-batches a step" },
    { "--scaling", "strong|weak", OPTION_CHOICE, AT(scaling), 0, 0, "weak: a step has --micro-batches for every rank, and the log says so" },
    { "--sequences", "B", OPTION_INTEGER, AT(sequences), 1, 1e6, "sequences a micro-batch" },
    { "--granule", "N", OPTION_INTEGER, AT(granule), 0, 1e6, "sequences a granule; 0: by rule" },
    { "--seed", "N", OPTION_SEED, AT(seed), 0, 0, "of initial weights, data order and dropout" },
    { "--lr", "X", OPTION_REAL, AT(lr), 1e-12, 1e3, "learning rate" },
    { "--min-lr", "X", OPTION_REAL, AT(min_lr), 0, 1e3, "learning rate at the end of the schedule; default: a tenth of --lr" },
    { "--warmup", "N", OPTION_INTEGER, AT(warmup), 0, 1e12, "steps of linear warm-up" },
    { "--schedule-lr", "cosine|linear|constant|wsd", OPTION_CHOICE, AT(schedule_lr), 0, 0, "how the learning rate falls (wsd: over the last 20 %)" },
    { "--optimizer", "adamw|muon", OPTION_CHOICE, AT(optimizer), 0, 0, "muon: orthogonalised momentum for the matrices between embedding and head" },
    { "--matrix-lr", "X", OPTION_REAL, AT(matrix_lr), 0, 1e3, "learning rate of muon's matrices, falls as --lr does; 0: --lr" },
    { "--momentum", "X", OPTION_REAL, AT(momentum), 0, 0.999999, "muon's running mean of gradients keeps this share of itself" },
    { "--feedback", "X", OPTION_REAL, AT(feedback), 0, 1000,
      "for gradients that are X updates late: each update also makes good X times what the last one was wrong by; 0: off; "
      "default: 1 with --schedule 2bw" },
    { "--feedback-change", "X", OPTION_REAL, AT(feedback_change), 0, 1000,
      "and X times what changed from update to update (needs another float a weight); 0: off; default: 1 with 2bw, with muon 0.5" },
    { "--weight-decay", "X", OPTION_REAL, AT(weight_decay), 0, 1e3, "decay of matrices; 0: none" },
    { "--beta1", "X", OPTION_REAL, AT(beta1), 0, 0.999999, "AdamW's running mean of gradients keeps this share of itself" },
    { "--beta2", "X", OPTION_REAL, AT(beta2), 0, 0.999999, "the same of the squares of gradients" },
    { "--epsilon", "X", OPTION_REAL, AT(epsilon), 1e-30, 1, "is added to the root of the mean of squares, before AdamW divides by it" },
    { "--clip", "X", OPTION_REAL, AT(clip), 0, 1e9, "largest gradient norm; 0: no clipping" },
    { "--spike", "K", OPTION_REAL, AT(spike), 0, 1e9,
      "a step with loss or gradient norm K deviations above the median of the last 32 is bad, as one that is not finite; 0: off" },
    { "--on-bad-step", "stop|skip", OPTION_CHOICE, AT(on_bad_step), 0, 0, "stop: status 1, the checkpoints stay; skip: no weight changes" },
    { "--dropout", "P", OPTION_REAL, AT(dropout), 0, 0.99, "dropout probability; default: the model's" },
    { "--dtype", "f32|bf16", OPTION_CHOICE, AT(dtype), 0, 0, "operands of the products" },
    { "--streams", "f32|bf16", OPTION_CHOICE, AT(streams), 0, 0,
      "what goes from unit to unit; bf16: half the bytes in memory and messages, for --dtype bf16 on cards that are not in teams" },
    { "--reduce", "exact|fast", OPTION_CHOICE, AT(reduce), 0, 0, "how gradient terms are summed" },
    { "--local-loss", "K", OPTION_INTEGER, AT(local_loss), 0, 65536,
      "a head of its own behind every K layers trains them, and no gradient goes further back; 0: the model's alone" },
    OPTION_TITLE("Low-rank factors (LoRA)"),
    { "--lora", "RANK", OPTION_INTEGER, AT(lora), 0, 65536, "trains low-rank factors on frozen weights (LoRA); 0: all weights" },
    { "--lora-alpha", "A", OPTION_REAL, AT(lora_alpha), 0, 1e9, "factors count A / RANK; 0: RANK" },
    { "--lora-target", "LIST", OPTION_TEXT, AT(lora_target), 0, 0, "of q,k,v,o,gate,up,down, or all; default: q,v (gpt2, neox: q,k,v)" },
    { "--weights", "f32|bf16|int8", OPTION_CHOICE, AT(weights), 0, 0,
        "type in memory of what --lora freezes; bf16: half the bytes; int8: a quarter, in blocks" },
    { "--init-adapter", "DIR", OPTION_TEXT, AT(init_adapter), FOUND, 0, "starts from factors saved in DIR, in PEFT's layout, on top of --init" },
    { "--any-base", NULL, OPTION_FLAG, AT(any_base), 0, 0, "also factors that were trained on other weights than --init's" },
    OPTION_TITLE("Devices and processes"),
    { "--devices", "LIST", OPTION_TEXT, AT(devices), OWN, 0,
     "a rank each: cpu:N[:ISA][@SPEED][/SIZE][#TOKENS],...: threads, instruction set (plain, avx2, avx512, avx512bf16, neon, amx), slow-down, memory "
     "cap, most tokens of a micro-batch; "
     "cuda:N[:B-E][:fast][:atomic][:first][:eager|:timed]: its multiprocessors B to E alone; cuda:local; default: one cpu, all processors" },
    { "--world", "R/N@WHERE", OPTION_TEXT, AT(world), OWN, 0,
      "process R of N; WHERE: HOST:PORT of process 0, or file:PATH; default: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT" },
    { "--world-secret", "FILE", OPTION_TEXT, AT(world_secret), OWN, 0,
      "what processes on several machines prove to know; default: the text in HETRAIN_WORLD_SECRET" },
    { "--island-world", "I/N@WHERE", OPTION_TEXT, AT(island_world), OWN, 0,
      "island I of N, whose processes --world or a launcher connects; WHERE: as there, where the first processes of all islands meet" },
    { "--insecure-world", NULL, OPTION_FLAG, AT(insecure_world), OWN, 0, "without a secret: trusts everybody who reaches the port" },
    { "--islands", "H", OPTION_INTEGER, AT(islands), 0, 1e9,
      "every process is an island with devices, plan and data order of its own, that joins the others every H of its steps; 0: no" },
    { "--outer-lr", "X", OPTION_REAL, AT(outer_lr), 1e-6, 10, "islands: learning rate of the outer step" },
    { "--outer-momentum", "X", OPTION_REAL, AT(outer_momentum), 0, 0.999999, "islands: its Nesterov momentum" },
    { "--island-seconds", "X", OPTION_REAL, AT(island_seconds), 0, 1e6,
      "islands: how long H steps and a join take here, as simulated; joins go in that order, and nobody waits for those that come later" },
    { "--island-fragments", "P", OPTION_INTEGER, AT(island_fragments), 1, 1024, "islands: a P-th of the weights joins every H / P steps" },
    { "--island-bits", "B", OPTION_INTEGER, AT(island_bits), 0, 8, "islands: 2, 4 or 8 bits a weight travel, with error feedback; 0: floats" },
    { "--links", "LIST", OPTION_TEXT, AT(links), 0, 0, "A-B:LATENCY[:BYTES],...: emulated links between ranks, as in 0-1:5ms:1G" },
    { "--slow", "LIST", OPTION_TEXT, AT(slow), 0, 0,
     "STEP:RANK@SPEED or STEP:A-B:LATENCY[:BYTES],...: ranks and links of --links that change before these steps" },
    OPTION_TITLE("How the work is divided, with the same bits"),
    { "--plan", "SPEC", OPTION_TEXT, AT(plan), 0, 0,
     "dp, pp, dp2xpp2, pp2xcp2 (teams by context, hp2 by heads, tp2 by columns), pp:0-5|6-9 (units), a layout string, a file of JSON, or auto: "
     "the best there is [dp]" },
    { "--schedule", "NAME", OPTION_TEXT, AT(schedule), 0, 0,
      "gpipe, 1f1b, interleaved, zb-h1, zb-v, ...; timed: for measured times; or a FILE.csv of lists [1f1b]" },
    { "--memory-limit", "X", OPTION_REAL, AT(memory_limit), 0, 1e9,
      "for --schedule greedy and timed: micro-batches of its layers a rank may keep; 0: no limit" },
    { "--slices", "N", OPTION_INTEGER, AT(slices), 1, 1e4, "slices a micro-batch, cut between granules; with --plan auto, at most" },
    { "--slice-tokens", "N", OPTION_INTEGER, AT(slice_tokens), 0, 1e9,
      "with --slices: short micro-batches use only the last ones, of N tokens or more each; 0: all are cut alike" },
    { "--updates", "N", OPTION_INTEGER, AT(updates), 1, 65536,
      "of the weights in a step, without a barrier (docs/planning.md): other bits than with 1, the same in every run; no clipping" },
    { "--staleness", "D", OPTION_INTEGER, AT(staleness), 0, 65535,
      "with --updates: by how many of them gradients are late; 0: none, and 1 with --schedule 2bw" },
    { "--backward", "fused|split|deferred", OPTION_CHOICE, AT(backward), 0, 0, "order of the backward calls" },
    { "--recompute", "no|unit|stage=unit", OPTION_CHOICE, AT(recompute), OWN, 0,
      "recompute activations in the backward pass: less memory; unit: units keep their inputs; stage: stages keep theirs alone" },
    { "--store", "N", OPTION_INTEGER, AT(store), 0, 1e6,
      "stages keep the activations of N micro-batches, those of others wait on the host; 0: all stay" },
    { "--shard", "state|gradients|weights", OPTION_CHOICE, AT(shard), 0, 0,
      "what ranks with the same units divide: also gradients, also weights; less memory, more messages; without it the plan's" },
    { "--shard-gradients", NULL, OPTION_FLAG, AT(shard_gradients), 0, 0, "--shard gradients" },
    { "--replan", "LIST", OPTION_TEXT, AT(replan), 0, 0,
     "STEP[xN]:SPEC,...: goes over to other plans, of N granules a micro-batch, before these steps" },
    { "--adapt", "X=0.2", OPTION_MAYBE, AT(adapt), 0, 100,
     "goes over to another plan where a device or link became so much slower or faster, and that helps" },
    { "--adapt-shares", NULL, OPTION_FLAG, AT(adapt_shares), 0, 0, "with --adapt: only pipelines' shares of the micro-batches change" },
    { "--profile", "FILE,...", OPTION_TEXT, AT(profile), FOUND, 0,
     "what units cost, for --plan auto, --schedule timed and --adapt; default: measured first, some seconds" },
    { "--plan-seconds", "X", OPTION_REAL, AT(plan_seconds), 0.01, 1e6, "how long to look for a plan" },
    { "--save-plan", "FILE", OPTION_TEXT, AT(save_plan), FOUND, 0, "writes the plan as JSON" },
    { "--save-profile", "FILE", OPTION_TEXT, AT(save_profile), FOUND, 0, "measures the devices for this model first, and writes what units cost" },
    OPTION_TITLE("Results and checkpoints"),
    { "--out", "DIR", OPTION_TEXT, AT(out), 0, 0,
      "writes checkpoints (step-...), model.safetensors (--lora: adapter_*), config.json, tokenizer.json, log.jsonl, ..." },
    { "--checkpoint-every", "N", OPTION_INTEGER, AT(checkpoint_every), 0, 1e12, "also saves to DIR/step-... every N steps; 0: only at the end" },
    { "--keep", "K", OPTION_INTEGER, AT(keep), 1, 1e6, "checkpoints kept" },
    { "--verify", "N", OPTION_INTEGER, AT(verify), 0, 1e12,
      "compares the ranks' copies of weights every N steps and before saving; one that differs stops the run; 0: never" },
    { "--resume", "DIR", OPTION_TEXT, AT(resume), FOUND, 0,
     "continues the run saved in DIR, bit for bit, with its options, on any devices and plan" },
    { "--force-resume", NULL, OPTION_FLAG, AT(force_resume), 0, 0, "also with options, data or base weights that change what is trained" },
    { "--overwrite", NULL, OPTION_FLAG, AT(overwrite), 0, 0, "puts the new run in the place of the one in DIR, whose checkpoints go" },
    { "--export", "DIR", OPTION_TEXT, AT(export_to), FOUND, 0,
     "writes config.json, weights, generation and tokenizer settings, for transformers, into this directory" },
    { "--save-dtype", "f32|f16|bf16", OPTION_CHOICE, AT(save_dtype), 0, 0, "type of the weights there" },
    OPTION_TITLE("What is told"),
    { "--evaluate-every", "N", OPTION_INTEGER, AT(evaluate_every), 0, 1e12,
      "validation every N steps and at the end; 0: there alone; default: a 20th of --steps" },
    { "--evaluate-batches", "N", OPTION_INTEGER, AT(evaluate_batches), 1, 1e6, "micro-batches a validation" },
    { "--log", "FILE", OPTION_TEXT, AT(log), OWN, 0, "JSON lines; default: DIR/log.jsonl" },
    { "--power", "ROOT", OPTION_TEXT, AT(power), FOUND, 0,
      "logs watts, tokens a joule and MHz of every step, as Linux says them in its files below ROOT: /; --adapt takes the clocks" },
    { "--trace", "FILE", OPTION_TEXT, AT(trace), FOUND, 0, "writes the last step as a Chrome trace (opens in Perfetto)" },
    { "--timeline", "FILE", OPTION_TEXT, AT(timeline), FOUND, 0, "writes the last step as a picture (SVG)" },
    { "--hash", NULL, OPTION_FLAG, AT(hash), 0, 0, "ends with a line: weights <16 hex digits>" },
    { "--quiet", NULL, OPTION_FLAG, AT(quiet), OWN, 0, "no progress" },
    OPTION_LAST_ROWS
};
enum { OPTIONS = (int)(sizeof options / sizeof options[0]), PATH_SIZE = 1024 };

static const char summary[] = "build/train --data FILE [options]\n\nTrains a transformer; in brackets: the defaults.";

static void settings_default(settings *s) {
    memset(s, 0, sizeof *s);
    s->steps = 1000, s->micro_batches = 1, s->sequences = 8, s->slices = 1, s->evaluate_every = -1, s->evaluate_batches = 8;
    s->loaders = 1, s->scaling = 1, s->updates = 1, s->plan_seconds = 5, s->keep = 2, s->on_bad_step = 1, s->weights = HET_F32;
    s->lr = 1e-3, s->min_lr = -1, s->warmup = 50, s->weight_decay = 0.1, s->clip = 1;
    s->outer_lr = 0.7, s->outer_momentum = 0.9, s->island_fragments = 1;
    s->optimizer = 1, s->momentum = 0.95, s->beta1 = 0.9, s->beta2 = 0.95, s->epsilon = 1e-8, s->dropout = -1;
    s->save_dtype = 1, s->schedule_lr = HET_LR_COSINE, s->dtype = s->streams = HET_F32, s->reduce = HET_REDUCE_EXACT;
    s->backward = HET_BACKWARD_FUSED, s->recompute = 1 + HET_RECOMPUTE_NONE;
}

/* The option is one of "--a --b ...". */
static int option_is_among(const option *o, const char *names) {
    for (; *names != 0; names += strcspn(names, " "), names += *names == ' ')
        if (strlen(o->name) == strcspn(names, " ") && memcmp(names, o->name, strlen(o->name)) == 0) return 1;
    return 0;
}

/* Options that belong to one run of the program, not to the training that a checkpoint continues. */
static int option_is_saved(const option *o) {
    return o->kind < OPTION_GROUP && !option_is_among(o, "--model --dropout --init --out --resume --hash --quiet --plan --schedule --memory-limit "
        "--links --devices --save-plan --save-profile --trace --timeline --replan --slow --profile --plan-seconds --adapt --adapt-shares "
        "--tokenizer --init-adapter --any-base --export --save-dtype --power --force-resume --overwrite --loaders --scaling --world --world-secret "
        "--insecure-world --island-world");
}

/* Options that decide what is trained: a run goes on with those it was saved with. */
static int option_is_fixed(const settings *s, const option *o) {
    if (strcmp(o->name, "--steps") == 0) return s->schedule_lr != HET_LR_CONSTANT;
    return option_is_among(o, "--micro-batches --sequences --length --lr --min-lr --warmup --schedule-lr --weight-decay --beta1 --beta2 --epsilon "
        "--clip --optimizer --matrix-lr --momentum --feedback --feedback-change --seed --granule --dtype --streams --reduce --experts --local-loss "
        "--lora --lora-alpha --lora-target --weights --spike --islands --outer-lr --outer-momentum --island-seconds "
        "--island-fragments --island-bits");
}

static int is_automatic(const settings *s) { return s->plan != NULL && strcmp(s->plan, "auto") == 0; }

/* What happens before a step: a rank's new speed, or another plan. */
typedef struct planned_change {
    int64_t step, rank, granules; /* rank: of --slow; -1: of --replan */
    double speed;                 /* of the rank; 0: of `link` */
    het_link link;
    char spec[PATH_SIZE];
    het_plan *plan;               /* read before the first step */
} planned_change;

typedef struct source {
    het_reader reader;
    hashed_reader hashed;  /* over it: how the data are read */
    het_data *data;
    het_data_info info;
    mapped_file map;       /* of the file, where it can be mapped */
    file_mix mix;             /* in place of the file: several */
    int open, threads;     /* threads: that read ahead */
    unsigned char *tokens; /* a text's, as a token file in memory */
    size_t size;
} source;

/* Text that grows; freed by the caller. */
typedef struct grown_text { char *text; size_t length, capacity; } grown_text;

/* What a checkpoint keeps beside weights and state: the options, and where in which data the run is; and what lies beside the weights. */
typedef struct saved_options { het_pair pair[OPTIONS + 7]; int64_t pairs; char text[OPTIONS + 4][64], directory[PATH_SIZE]; } saved_options;
typedef struct saved_beside { het_beside file[3 + KEPT_FILES]; int64_t files; char *adapter; grown_text tokenizer; } saved_beside;

typedef struct job {
    settings set;
    unsigned char given[OPTIONS];
    unsigned char typed[OPTIONS];   /* on the command line, not by the checkpoint */
    het_saved *saved;               /* the checkpoint resumed, NULL: none; settings point into it */
    saver save;
    out_folder folder, export_folder; /* of process 0 */
    int goes_on;                    /* --resume, into the same directory */
    saved_options kept;
    saved_beside beside;
    kept_files files;                   /* what stays with the model of --init or --resume */
    void *export_memory;            /* what --export needs in the end, held until then */
    size_t export_bytes, export_used;
    stopper stop;
    power_meter meter;              /* --power */
    double joules, clock[LAYOUT_RANKS], mhz[LAYOUT_RANKS]; /* of the last step; of ranks and processes, 0: not known */
    char out[PATH_SIZE], weights[PATH_SIZE], log_path[PATH_SIZE], found[3][PATH_SIZE];
    int64_t resumed_step;
    uint64_t data_fingerprint, validation_fingerprint;
    char versions[200];             /* the updates of a step, how late they are, and a fingerprint of what joins them */
    const char *program;            /* as it was started */
    het_desc desc;
    layout ranks;
    het_tokenizer *tokenizer;       /* NULL: text is bytes */
    char unread[UNREAD];            /* not "": or cannot be read, for this reason, but tokens can */
    char targets[32];               /* of the adapter: --lora-target's text */
    het_transport transport;        /* iface NULL: this process is alone */
    int64_t processes, process;     /* only process 0 prints and writes */
    int all_end;                    /* an error that every process knows by itself: nobody has to be told */
    int finished;                   /* all that is done together has been done */
    experts_model experts;          /* --experts */
    islands sea;                    /* --islands: what is between this one and the others */
    het_launch launch;              /* what started them */
    int64_t first_rank;             /* of this process */
    int threads;                    /* of all devices of this process */
    int cards;                      /* devices with memory of their own */
    source training, validation;
    step_feed feed;
    auto_planner *planner;              /* for --plan auto and --adapt */
    het_adapt *adapt;
    planned_change *change;                /* [changes] of --replan and --slow */
    int64_t changes;
    het_ctx *ctx;
    het_memory memory;
    FILE *log;
    curve training_curve, validation_curve;
    step_loader loader;
    int64_t scaled_from;            /* --micro-batches before --scaling weak; 0: it is not */
    double peak, own_peak;          /* GFLOP/s of all processes and of this one; 0: not known */
    double step_seconds, evaluate_seconds, shown_at; /* progress: running means, time of the last line */
    int terminal, colour, line_open;
} job;

/* ---- configuration: devices, model, data, context -------------------------------------------------------------------- */

/* The list is of all ranks: every process takes its part of it. One device counts for every process. Without a list those on this machine
   that are not bound to processors of their own share the processors. */
static int configure_devices(job *j) {
    const int64_t sharers = j->set.devices == NULL && processors() == sysconf(_SC_NPROCESSORS_ONLN) ? j->launch.local_size : 1;
    int status = layout_devices(&j->ranks, j->set.devices);
    if (sharers > 1) j->ranks.device[0].threads = (int32_t)(processors() > sharers ? processors() / sharers : 1);
    if (status == 0) status = layout_take_part(&j->ranks, j->process, j->processes, &j->first_rank);
    if (status == 0) status = layout_links(&j->ranks, j->set.links);
    for (int64_t i = 0; i < j->ranks.devices; i++) {
        const het_device_iface *iface = j->ranks.device[i].iface;
        if (iface == NULL || iface->host_memory) j->threads += (int)j->ranks.device[i].threads;
        else j->cards++;
    }
    return status;
}

/* Items go together to micro-batches of at most `most` of them, and of what the devices of the plan's pipelines take. */
static int group_items(job *j, const het_plan *plan, int64_t most) {
    int64_t limit[LAYOUT_RANKS], rank[LAYOUT_RANKS], counts[LAYOUT_RANKS];
    const int64_t least = j->feed.item_sequences * j->feed.length;
    const int limited = layout_limits(&j->ranks, plan, (most < j->feed.items ? most : j->feed.items) * least, limit, rank);
    for (int64_t p = 0; limited && p < plan->pipelines; p++)
        if (limit[p] < least)
            return fail(BAD_INPUT, "--devices %s: rank %lld takes micro-batches of %lld tokens at most; the least of this step have %lld (--length, "
                        "--granule)", j->set.devices, (long long)rank[p], (long long)limit[p], (long long)least);
    return feed_group(&j->feed, most, plan, limited ? limit : NULL, counts);
}

/* Writes a text file through one of the library's functions that take a writer. */
typedef het_result (*write_function)(const job *j, const het_timeline *timeline, const het_writer *to);
static het_result write_plan(const job *j, const het_timeline *timeline, const het_writer *to) {
    het_plan plan = *het_get_desc(j->ctx)->layout.plan;
    (void)timeline;
    plan.step.granules = j->feed.items, plan.step.sequences = j->feed.item_sequences, plan.step.length = j->feed.length;
    plan.step.micro_batch = j->feed.most;
    return het_plan_write(&plan, to);
}
static het_result write_trace(const job *j, const het_timeline *timeline, const het_writer *to) {
    return het_timeline_trace(timeline, het_get_desc(j->ctx)->layout.plan, to);
}
static het_result write_picture(const job *j, const het_timeline *timeline, const het_writer *to) {
    return het_timeline_svg(timeline, het_get_desc(j->ctx)->layout.plan, NULL, to);
}

static int write_text(const char *path, const char *option_name, write_function write, const job *j, const het_timeline *timeline) {
    write_target t;
    het_writer writer;
    const int status = target_open(&t, option_name, path);
    if (status != 0) return status;
    writer = target_writer(&t);
    return target_end(&t, write(j, timeline, &writer), NULL);
}

/* --tokenizer, or the one beside the weights. A model that is described here, without saying its vocabulary, gets the tokenizer's. */
static int configure_tokenizer(job *j) {
    const settings *s = &j->set;
    het_model_desc *m = &j->desc.model;
    const char *beside = j->saved != NULL ? j->saved->path : s->init;
    const char *name = s->tokenizer != NULL ? "--tokenizer" : s->resume != NULL ? "--resume" : "--init";
    char path[PATH_SIZE];
    het_tokenizer_info info;
    int status = 0;
    if (s->tokenizer != NULL) status = tokenizer_open(name, s->tokenizer, &j->tokenizer, NULL);
    else if (beside != NULL && beside_weights(beside, "tokenizer.json", path, sizeof path))
        status = tokenizer_open(name, path, &j->tokenizer, j->unread);
    if (status != 0 || j->tokenizer == NULL) return status;
    het_tokenizer_get_info(j->tokenizer, &info);
    if (beside == NULL && m->vocab == 256 && (s->model == NULL || strstr(s->model, "vocab=") == NULL)) m->vocab = info.vocab;
    if (info.vocab <= m->vocab) return 0;
    return fail(BAD_INPUT, "%s %s: %lld ids, the model's vocabulary is %lld", name, s->tokenizer != NULL ? s->tokenizer : path,
                (long long)info.vocab, (long long)m->vocab);
}

/* A checkpoint may be resumed from another directory than the run was started in. */
static int weights_from_root(job *j) {
    char here[PATH_SIZE], path[PATH_SIZE];
    if (j->weights[0] == 0 || j->weights[0] == '/') return 0;
    if (getcwd(here, sizeof here) == NULL || !path_join(path, sizeof path, here, j->weights)) return fail(BAD_INPUT, "--init: path too long");
    memcpy(j->weights, path, sizeof path);
    return 0;
}

/* What --lora-target would say. */
static void name_targets(job *j) {
    static const char *const names[] = { "q", "k", "v", "o", "gate", "up", "down" };
    for (int i = 0; i < 7; i++)
        if (j->desc.model.lora_targets >> i & 1)
            snprintf(j->targets + strlen(j->targets), sizeof j->targets - strlen(j->targets), "%s%s", j->targets[0] != 0 ? "," : "", names[i]);
    j->set.lora_target = j->targets;
}

/* --lora, or what --init-adapter has. */
static int configure_adapter(job *j) {
    settings *s = &j->set;
    het_model_desc *m = &j->desc.model;
    het_error error = { HET_OK, "" };
    int status;
    if (m->lora_rank > 0 && s->model != NULL) return fail(BAD_INPUT, "--model %s: lora_rank: here --lora says it", s->model);
    if (s->any_base && s->init_adapter == NULL) return fail(BAD_INPUT, "--any-base: only with --init-adapter");
    if (s->init_adapter != NULL) {
        if (s->export_to != NULL) return fail(BAD_INPUT, "--export: not together with --init-adapter; build/merge makes whole weights");
        if (s->resume != NULL || s->init == NULL) return fail(BAD_INPUT, "--init-adapter: needs --init, and not together with --resume");
        if (s->lora != 0 || s->lora_alpha > 0 || s->lora_target != NULL) return fail(BAD_INPUT, "--init-adapter: not together with --lora...");
        if ((status = adapter_model("--init-adapter", s->init_adapter, m, NULL, 0)) != 0) return status;
        s->lora = m->lora_rank, s->lora_alpha = (double)m->lora_alpha;
        name_targets(j);
        return weights_from_root(j);
    }
    if (s->lora == 0) {
        if (s->lora_target != NULL) return fail(BAD_INPUT, "--lora-target: needs --lora");
        return s->lora_alpha > 0 ? fail(BAD_INPUT, "--lora-alpha: needs --lora") : 0;
    }
    if (s->export_to != NULL) return fail(BAD_INPUT, "--export: not together with --lora; build/merge makes whole weights");
    if (s->init == NULL && s->resume == NULL && s->steps > 0)
        return fail(BAD_INPUT, "--lora: its factors change weights that stay as they are, and there are none: give --init FILE|DIR");
    m->lora_rank = s->lora, m->lora_alpha = (float)s->lora_alpha;
    m->lora_targets = s->lora_target != NULL ? adapter_targets(s->lora_target) : 0;
    if (s->lora_target != NULL && m->lora_targets == 0)
        return fail(BAD_INPUT, "--lora-target %s: a list of q, k, v, o, gate, up, down, or all", s->lora_target);
    if (het_model_complete(m, &error) != HET_OK && s->lora_target != NULL)
        return fail(BAD_INPUT, "--lora-target %s: %s", s->lora_target, error.text);
    if (error.code != HET_OK) return fail(BAD_INPUT, "--lora: %s", error.text);
    if (s->lora_target == NULL) name_targets(j); /* a run that goes on must have the same */
    return weights_from_root(j);
}

/* The model of the checkpoint. */
static int saved_model(job *j) {
    het_error error = { HET_OK, "" };
    size_t length = 0;
    het_result result = het_checkpoint_file(j->saved, "config.json", NULL, 0, &length, &error);
    char *text = result == HET_OK || result == HET_ERR_LIMIT ? (char *)malloc(length + 1) : NULL; /* HET_OK: it is empty */
    het_experts experts;
    int status;
    if (text != NULL) result = het_checkpoint_file(j->saved, "config.json", text, length, &length, &error);
    if (text != NULL && result == HET_OK) {
        text[length] = 0;
        status = model_with_experts("--resume", j->saved->path, text, length, &j->desc.model, &experts);
        if (j->set.experts == NULL) j->experts.settings = experts;
    } else status = fail(status_of(result), "--resume %s: %s", j->saved->path, error.text);
    free(text);
    if (status != 0 || j->experts.settings.experts > 0) return status; /* shapes of experts are looked at when the weights are loaded */
    return model_fits("--resume", j->weights[0] != 0 ? j->weights : j->saved->path, &j->desc.model); /* factors lie on top of other weights */
}

static int configure_model(job *j) {
    settings *s = &j->set;
    int status = 0;
    if (s->experts != NULL && s->init != NULL) return fail(BAD_INPUT, "--experts: not together with --init, whose config.json says what it has");
    if (s->experts != NULL) status = experts_read(s->experts, &j->experts.settings);
    if (status != 0) return status;
    if (j->saved != NULL) status = saved_model(j);
    else if (s->init != NULL)
        status = model_from_init(s->init, s->model, &j->desc.model, &j->experts.settings, j->weights, sizeof j->weights);
    else status = model_from_spec("--model", s->model != NULL ? s->model : MODEL_DEFAULT, &j->desc.model);
    if (status == 0) status = configure_tokenizer(j);
    if (status == 0) status = kept_open(&j->files, j->saved != NULL ? j->saved->path : s->init, s->model, s->tokenizer, j->unread[0] != 0);
    if (status == 0) status = configure_adapter(j);
    if (status != 0) return status;
    if (j->files.config == NULL) j->files.config = experts_json(&j->experts, &j->desc.model, &j->files.config_length);
    if (s->dropout < 0) s->dropout = (double)j->desc.model.dropout;
    if (j->saved != NULL && !s->force_resume && ((float)s->dropout < j->desc.model.dropout || (float)s->dropout > j->desc.model.dropout))
        return fail(BAD_INPUT, "--dropout %g: the saved run has %g, and another value changes what is trained; --force-resume allows it",
                    s->dropout, (double)j->desc.model.dropout);
    j->desc.model.dropout = (float)s->dropout;
    if (s->local_loss == 0) s->local_loss = j->desc.model.local_loss;
    j->desc.model.local_loss = s->local_loss;
    if (s->length == 0) s->length = j->desc.model.context;
    if (s->length > j->desc.model.context)
        return fail(BAD_INPUT, "--length %lld: the model's context is %lld", (long long)s->length, (long long)j->desc.model.context);
    if (s->evaluate_every < 0) s->evaluate_every = s->steps < 20 ? 1 : s->steps / 20;
    return 0;
}

/* Files that options name to be written, and what lies beside a plan that is looked for; the log, which is no file that is whole or not there,
   first. */
enum { WRITTEN = 7 };
static void written(const settings *s, named_path to[WRITTEN], char beside[2][1200]) {
    const int automatic = s->save_plan != NULL && is_automatic(s), own = automatic && s->save_profile == NULL && s->profile == NULL;
    const named_path all[WRITTEN] = { { "--log", s->log }, { "--save-plan", s->save_plan }, { "--save-profile", s->save_profile },
                                      { "--trace", s->trace }, { "--timeline", s->timeline },
                                      { "--save-plan", automatic ? planner_beside(beside[0], s->save_plan, ".cluster.json") : NULL },
                                      { "--save-plan", own ? planner_beside(beside[1], s->save_plan, ".profile.json") : NULL } };
    memcpy(to, all, sizeof all);
}

static int64_t memory_read(void *user, uint64_t offset, void *to, size_t size) {
    const source *from = (const source *)user;
    if (offset > from->size) return -1;
    if (size > from->size - offset) size = from->size - (size_t)offset;
    memcpy(to, from->tokens + offset, size);
    return (int64_t)size;
}

static void put_little(unsigned char *to, uint32_t value) {
    for (int i = 0; i < 4; i++) to[i] = (unsigned char)(value >> (8 * i) & 255u);
}

/* A text becomes a file of 32-bit tokens in memory, with llm.c's header. */
static int encode_source(job *j, source *to, const char *option_name, const char *path) {
    enum { HEADER = 1024 };
    char *text = NULL;
    int32_t *token = NULL;
    size_t size = 0;
    int64_t count = 0;
    int status = to->open ? read_file(option_name, path, &text, &size) : mix_text(&to->mix, option_name, path, &text, &size);
    if (status == 0) status = text_encode(option_name, j->tokenizer, 0, text, size, &token, &count);
    if (to->open) het_reader_close(&to->reader);
    to->open = 0;
    free(text);
    if (status == 0 && count > INT32_MAX) status = fail(BAD_INPUT, "%s %s: %lld tokens; at most 2147483647", option_name, path, (long long)count);
    to->size = HEADER + 4 * (size_t)count;
    if (status == 0 && (to->tokens = (unsigned char *)calloc(to->size, 1)) == NULL) status = fail(FAILED, "out of memory");
    if (status == 0) {
        put_little(to->tokens, 20240801);
        put_little(to->tokens + 4, 7);
        put_little(to->tokens + 8, (uint32_t)count);
        for (int64_t i = 0; i < count; i++) put_little(to->tokens + HEADER + 4 * i, (uint32_t)token[i]);
        to->reader.read = memory_read, to->reader.user = to, to->reader.size = to->size, to->reader.name = path;
    }
    free(token);
    return status;
}

static void close_source(source *s) {
    het_data_close(s->data);
    free(s->hashed.block);
    mapped_close(&s->map);
    mix_close(&s->mix);
    if (s->open) het_reader_close(&s->reader);
    free(s->tokens);
}

/* None of its files is one that is written. */
static int open_mix(job *j, source *to, const char *option_name, const char *path, het_data_format *format) {
    int status = mix_open(&to->mix, option_name, path, j->desc.model.vocab, j->tokenizer != NULL, &to->reader, format);
    named_path writes[WRITTEN];
    char beside[2][1200];
    written(&j->set, writes, beside);
    for (int64_t i = 0; i < to->mix.files && status == 0 && j->process == 0; i++) {
        const named_path file = { option_name, to->mix.file[i].path };
        status = targets_differ(writes, WRITTEN, &file, 1);
    }
    return status;
}

static int open_source(job *j, source *to, const char *option_name, const char *path, float held_out) {
    het_data_desc desc;
    het_reader mapped;
    het_error error = { HET_OK, "" };
    het_result result;
    int status, text, many = 1; /* many: memory may be read by many threads at once */
    memset(&desc, 0, sizeof desc);
    if (mix_is(path)) {
        if ((status = open_mix(j, to, option_name, path, &desc.format)) != 0) return status;
        text = to->mix.text, many = to->mix.mapped;
    } else {
        if ((status = read_from(option_name, path, &to->reader)) != 0) return status;
        to->open = 1;
        text = text_is(path, &to->reader, &desc.format);
    }
    if (text && j->unread[0] != 0) return fail(BAD_INPUT, "%s %s: is text; %s", option_name, path, j->unread);
    if (text) {
        if (j->tokenizer != NULL) {
            if ((status = encode_source(j, to, option_name, path)) != 0) return status;
            desc.format = HET_DATA_AUTO, many = 1;
        } else if (j->set.init != NULL && j->desc.model.vocab > 256)
            fail(0, "warning: %s %s: its bytes are the tokens, as no tokenizer.json is beside --init, whose vocabulary is %lld (--tokenizer FILE)",
                 option_name, path, (long long)j->desc.model.vocab);
    }
    mapped = to->reader; /* the file stays open: closing is by it */
    if (to->open) many = mapped_open(&to->map, path, &mapped);
    if (!hashed_start(&to->hashed, &mapped)) return fail(FAILED, "out of memory");
    desc.reader = mapped, desc.reader.read = hashed_read, desc.reader.user = &to->hashed;
    desc.vocab = j->desc.model.vocab, desc.length = j->set.length, desc.sequences = j->feed.sequences;
    to->threads = to == &j->training && many ? (int)j->set.loaders : 0;
    desc.slots = loader_slots(to->threads), desc.granule = j->set.granule;
    desc.held_out = to->mix.files > 0 ? -1.0f : held_out; /* what the last file of a mix ends with may be elsewhere in it, too */
    desc.seed = j->set.seed + (uint64_t)j->sea.island;
    result = het_data_open(&desc, &to->data, &error);
    if (result != HET_OK) /* names the file */
        return fail(status_of(result), "%s: %s%s", option_name, error.text, strstr(error.text, "vocabulary") != NULL ? " (--model)" : "");
    het_data_get_info(to->data, &to->info);
    return hashed_end(&to->hashed) ? 0 : fail(BAD_INPUT, "%s %s: cannot be read", option_name, path);
}

/* Sends to process `to`, or takes from process `from`. */
static int move_bytes(const job *j, int64_t to, int64_t from, void *data, size_t size) {
    const het_transport_iface *t = j->transport.iface;
    het_request request;
    het_result result;
    memset(&request, 0, sizeof request);
    result = to >= 0 ? t->isend(j->transport.self, to, 0, data, size, &request) : t->irecv(j->transport.self, from, 0, data, size, &request);
    return message_wait(&j->transport, &request, to >= 0 ? to : from, result);
}

static int grown_write(void *user, const void *from, size_t size) {
    grown_text *g = (grown_text *)user;
    if (g->length + size + 1 > g->capacity) {
        const size_t capacity = 2 * (g->length + size + 1);
        char *text = (char *)realloc(g->text, capacity);
        if (text == NULL) return 1;
        g->text = text, g->capacity = capacity;
    }
    memcpy(g->text + g->length, from, size);
    g->length += size;
    g->text[g->length] = 0;
    return 0;
}

/* Writes into *g, which is cleared. */
static het_writer grown_writer(grown_text *g, const char *name) {
    const het_writer writer = { grown_write, g, name };
    memset(g, 0, sizeof *g);
    return writer;
}

/* Moves a text between this process and another, its length first. */
static int move_text(const job *j, int64_t to, int64_t from, grown_text *g) {
    int64_t length = (int64_t)g->length;
    int status = move_bytes(j, to, from, &length, sizeof length);
    if (status != 0) return status;
    if (from >= 0) {
        free(g->text);
        memset(g, 0, sizeof *g);
        if ((g->text = (char *)malloc((size_t)length + 1)) == NULL) return fail(FAILED, "out of memory");
        g->length = (size_t)length, g->text[length] = 0;
    }
    return length > 0 ? move_bytes(j, to, from, g->text, (size_t)length) : 0;
}

/* What process 0 has goes to all others. */
static int spread_text(const job *j, grown_text *g) {
    int status = 0;
    for (int64_t p = 1; p < j->processes && status == 0; p++)
        if (j->process == 0) status = move_text(j, p, -1, g);
        else if (j->process == p) status = move_text(j, -1, 0, g);
    return status;
}

/* Process 0, which writes for all, has written what it had to. That takes what the disk takes: the others have no deadline but for its silence. */
static int await_files(const job *j) {
    grown_text nothing;
    int status;
    memset(&nothing, 0, sizeof nothing);
    status = spread_text(j, &nothing);
    free(nothing.text);
    return status;
}

/* A name and its value, each with a 0 behind it. 0: no memory. */
static int put_term(grown_text *g, const char *name, const char *value) {
    return grown_write(g, name, strlen(name) + 1) == 0 && grown_write(g, value, strlen(value) + 1) == 0;
}

static int put_fingerprint(grown_text *g, const char *name, const char *what, uint64_t fingerprint) {
    char text[64];
    snprintf(text, sizeof text, "%s with fingerprint %016llx", what, (unsigned long long)fingerprint);
    return put_term(g, name, text);
}

/* What shapes the run: the options by their table, then what the files hold and what else was made of them. */
static int collect_terms(const job *j, grown_text *g) {
    char text[1024];
    const source *const sources[] = { &j->training, &j->validation };
    size_t length;
    int good;
    snprintf(text, sizeof text, "hetrain %d.%d.%d", HETRAIN_VERSION_MAJOR, HETRAIN_VERSION_MINOR, HETRAIN_VERSION_PATCH);
    good = put_term(g, "--version", text);
    for (int i = 0; i < OPTIONS && good; i++) {
        const option *o = &options[i];
        const int names = o->kind == OPTION_TEXT || o->kind == OPTION_FLAG, rule = names ? (int)o->low : SAME;
        const char *value = o->kind <= OPTION_FLAG && rule != OWN ? option_text(&j->set, o, text, sizeof text) : "";
        if (value != NULL && rule == FOUND) value = "one";
        if (o->offset == AT(recompute) && j->set.recompute != 1 + HET_RECOMPUTE_STAGE) value = NULL; /* its own, but for what is the plan's */
        if (value == NULL || value[0] != 0) good = put_term(g, o->name, value != NULL ? value : "none");
    }
    for (int i = 0; i < 2 && good; i++) {
        if (sources[i]->data == NULL || (i == 1 && j->set.val == NULL)) continue;
        snprintf(text, sizeof text, "%lld tokens with fingerprint %016llx", (long long)sources[i]->info.tokens,
                 (unsigned long long)(i == 0 ? j->data_fingerprint : j->validation_fingerprint));
        good = put_term(g, i == 0 ? "--data" : "--val", text);
    }
    snprintf(text, sizeof text, "step %lld", (long long)j->resumed_step);
    good = good && put_term(g, "--resume", text);
    if (j->saved != NULL) good = good && put_fingerprint(g, "--resume", "checkpoint", file_fingerprint(j->saved->path, "state.json"));
    if (j->set.init_adapter != NULL)
        good = good && put_fingerprint(g, "--init-adapter", "factors", file_fingerprint(j->set.init_adapter, "adapter_model.safetensors"));
    snprintf(text, sizeof text, "island %lld of %lld", (long long)j->sea.island, (long long)j->sea.count);
    good = good && put_term(g, "--island-world", text);
    snprintf(text, sizeof text, "%lld ranks", (long long)j->ranks.world);
    good = good && put_term(g, "--devices", text);
    if (good && het_model_format(&j->desc.model, text, sizeof text, &length) == HET_OK)
        good = put_term(g, j->set.resume != NULL ? "--resume" : j->set.init != NULL ? "--init" : "--model", text);
    return good ? 0 : fail(FAILED, "out of memory");
}

/* The first term in which another process differs, as a line; "" where it differs in none. */
static void compare_terms(const grown_text *own, const grown_text *other, int64_t process, char *line, size_t capacity) {
    size_t at = 0, from = 0;
    line[0] = 0;
    while (at < own->length && at < other->length) {
        const char *name = own->text + at, *mine, *theirs;
        size_t i, same = 0;
        if (strcmp(name, other->text + from) != 0) break;
        mine = name + strlen(name) + 1, theirs = other->text + from + strlen(name) + 1;
        for (i = 0; mine[i] == theirs[i] && mine[i] != 0; i++)
            if (mine[i] == ',') same = i + 1; /* of a list, what begins where they differ */
        if (mine[i] != theirs[i]) {
            snprintf(line, capacity, "%s: process %lld has %.150s, process 0 has %.150s; it must be the same in all", name, (long long)process,
                     theirs + same, mine + same);
            return;
        }
        at += strlen(name) + strlen(mine) + 2, from += strlen(name) + strlen(theirs) + 2;
    }
    if (at < own->length || from < other->length) snprintf(line, capacity, "process %lld has other options than process 0", (long long)process);
}

/* What was loaded: copies under one name on several machines may differ. */
static int collect_weights(const job *j, grown_text *g) {
    const int good = put_fingerprint(g, j->set.resume != NULL ? "--resume" : "--init", "weights", het_get_base(j->ctx));
    return good ? 0 : fail(FAILED, "out of memory");
}

/* Before the processes go on together: process 0 compares what all have, and each gets the line that says in what one differs. */
static int agree(job *j, int (*collect)(const job *j, grown_text *g)) {
    grown_text own, other;
    char line[600] = "", one[600];
    int status;
    memset(&own, 0, sizeof own);
    memset(&other, 0, sizeof other);
    if (j->processes == 1) return 0;
    status = collect(j, &own);
    if (status == 0 && j->process > 0) {
        status = move_text(j, 0, -1, &own);
        if (status == 0) status = move_bytes(j, -1, 0, line, sizeof line);
    }
    for (int64_t p = 1; p < j->processes && status == 0 && j->process == 0; p++) {
        status = move_text(j, -1, p, &other);
        if (status == 0) compare_terms(&own, &other, p, one, sizeof one);
        if (status == 0 && line[0] == 0) memcpy(line, one, sizeof line);
    }
    for (int64_t p = 1; p < j->processes && status == 0 && j->process == 0; p++) status = move_bytes(j, p, -1, line, sizeof line);
    free(own.text);
    free(other.text);
    if (status != 0 || line[0] == 0) return status;
    j->all_end = 1;
    return fail(BAD_INPUT, "%s", line);
}

/* Half of there and back, of a small message and of a large one, between processes 0 and 1. */
static int measure_transport(const job *j, het_link_cost *link) {
    enum { LARGE = 1 << 20, TURNS = 9 };
    char *data = (char *)calloc(1, LARGE);
    double best[2] = { 1e9, 1e9 };
    int turn, which, status = data != NULL ? 0 : fail(FAILED, "out of memory");
    for (which = 0; which < 2; which++)
        for (turn = 0; turn < TURNS && status == 0 && j->process < 2; turn++) {
            const size_t size = which ? LARGE : 64;
            const double start = seconds_now();
            status = move_bytes(j, j->process == 0 ? 1 : -1, 0, data, size);
            if (status == 0) status = move_bytes(j, j->process == 0 ? -1 : 0, 1, data, size);
            if ((seconds_now() - start) / 2 < best[which]) best[which] = (seconds_now() - start) / 2;
        }
    link->latency = best[0];
    link->bandwidth = best[1] > best[0] ? (double)LARGE / (best[1] - best[0]) : 0;
    free(data);
    return status;
}

/* Processes measure one after the other's start, each its own devices; process 0 joins what they found. */
static int join_profiles(job *j, het_profile **profile) {
    het_error error = { HET_OK, "" };
    grown_text g;
    const het_writer writer = grown_writer(&g, "profile");
    int status = 0;
    if (j->process > 0) {
        status = het_profile_write(*profile, &writer) == HET_OK ? move_text(j, 0, -1, &g) : fail(FAILED, "out of memory");
        free(g.text);
        return status;
    }
    for (int64_t p = 1; p < j->processes && status == 0; p++) {
        het_profile *other = NULL, *both = NULL;
        het_result result;
        if ((status = move_text(j, -1, p, &g)) != 0) break;
        result = het_profile_read(g.text, g.length, NULL, &other, &error);
        if (result == HET_OK) result = het_profile_merge(*profile, other, NULL, &both, &error);
        het_profile_free(other);
        if (result != HET_OK) status = fail(FAILED, "process %lld: %s", (long long)p, error.text);
        else het_profile_free(*profile), *profile = both;
    }
    free(g.text);
    return status;
}

/* Every process measures its own devices, so that none waits for another, or process 0 reads the file. */
static int get_profile(job *j) {
    const settings *s = &j->set;
    const char *model = s->model != NULL ? s->model : s->init != NULL ? s->init : s->resume != NULL ? s->resume : MODEL_DEFAULT;
    const double start = seconds_now();
    het_profile **profile = &j->planner->profile;
    int status;
    if (s->profile != NULL) {
        status = profile_read_list("--profile", s->profile, profile);
        if (status == 0) status = profile_check("--profile", s->profile, *profile, &j->desc, model);
        return status == 0 ? profile_check_granule("--profile", s->profile, *profile, j->feed.item_longest) : status;
    }
    status = profile_measure("--save-profile", &j->desc, model, s->length, 0, profile);
    if (status == 0 && j->processes > 1) status = join_profiles(j, profile);
    if (status == 0 && j->process == 0 && s->save_profile != NULL) status = profile_write("--save-profile", s->save_profile, *profile);
    if (status == 0 && j->process == 0 && !s->quiet) {
        printf("profile  %s", s->save_profile != NULL ? s->save_profile : "of");
        for (int64_t i = 0; i < (*profile)->devices; i++) printf(" %s", (*profile)->device[i].name);
        printf(", measured in %.1f s\n", seconds_now() - start);
    }
    return status;
}

/* Process 0 has looked for a plan; the others get it as text. */
static int spread_plan(job *j, int64_t *granules) {
    het_plan_desc desc;
    het_error error = { HET_OK, "" };
    grown_text g;
    const het_writer writer = grown_writer(&g, "plan");
    int status = 0;
    memset(&desc, 0, sizeof desc);
    if (j->process == 0 && het_plan_write(j->ranks.plan, &writer) != HET_OK) return fail(FAILED, "out of memory");
    for (int64_t p = 1; p < j->processes && status == 0; p++)
        if (j->process == 0 || j->process == p) status = move_bytes(j, j->process == 0 ? p : -1, 0, granules, sizeof *granules);
    if (status == 0) status = spread_text(j, &g);
    desc.units = model_units(&j->desc.model), desc.ranks = j->ranks.world;
    if (status == 0 && j->process > 0 && het_plan_read(&desc, g.text, g.length, &j->ranks.plan, &error) != HET_OK)
        status = fail(FAILED, "%s", error.text);
    free(g.text);
    return status;
}

static int is_timed(const het_plan *plan) { return strcmp(plan->schedule, "timed") == 0; }

/* --schedule timed: process 0 makes the lists for what the profile says, the others get them as text. */
static int time_schedule(job *j) {
    const het_plan *plan = j->ranks.plan;
    const step_feed *f = &j->feed;
    het_error error = { HET_OK, "" };
    het_plan_costs *costs = NULL;
    het_schedule **to = &j->ranks.schedule;
    grown_text g;
    const het_writer writer = grown_writer(&g, "schedule");
    double *size = (double *)calloc((size_t)f->micro_batches, 3 * sizeof *size);
    int64_t *counts = (int64_t *)calloc((size_t)plan->pipelines, sizeof *counts);
    int status = size == NULL || counts == NULL ? fail(FAILED, "out of memory") : 0;
    het_result result = HET_OK;
    if (status == 0 && j->process == 0) {
        for (int64_t i = 0; i < f->micro_batches; i++) { /* sequences, tokens, pairs of tokens */
            size[i] = (double)(f->part[i] * f->item_sequences);
            size[f->micro_batches + i] = size[i] * (double)f->length;
            size[2 * f->micro_batches + i] = size[f->micro_batches + i] * ((double)f->length + 1) / 2;
        }
        het_plan_micro_batches(plan, f->micro_batches, counts);
        result = het_profile_costs(j->planner->profile, plan, &j->planner->cluster, HET_YES, NULL, &costs, &error);
        if (result == HET_OK) {
            costs->costs.sequences = size, costs->costs.tokens = size + f->micro_batches, costs->costs.pairs = size + 2 * f->micro_batches;
            result = het_schedule_timed(plan, counts, &costs->costs, NULL, to, &error);
        }
        if (result == HET_OK && j->processes > 1) result = het_schedule_write(*to, &writer);
        if (result != HET_OK) status = fail(status_of(result), "--schedule timed: %s", error.text);
    }
    if (status == 0) status = spread_text(j, &g);
    if (status == 0 && j->process > 0 && het_schedule_read(plan, g.text, g.length, NULL, to, &error) != HET_OK)
        status = fail(FAILED, "%s", error.text);
    het_plan_costs_free(costs);
    free(g.text), free(size), free(counts);
    j->desc.layout.schedule = *to;
    return status;
}

/* --plan auto, --schedule timed, --adapt and --save-profile: what units cost, what there is, and the plan that is best for it. */
static int configure_plan(job *j) {
    const settings *s = &j->set;
    const int automatic = is_automatic(s);
    const int timed = !automatic && j->ranks.plan != NULL && j->ranks.schedule == NULL && is_timed(j->ranks.plan);
    const int lists = s->schedule != NULL && ends_with(s->schedule, ".csv");
    het_link_cost between = { 0, 0 };
    double start;
    int64_t granules = j->feed.most;
    int status;
    if (!automatic && !timed && s->adapt <= 0 && s->save_profile == NULL)
        return options_idle(options, OPTIONS, j->typed, "--profile", "without --plan auto, --schedule timed or --adapt");
    if (s->adapt > 0 && (timed || (s->schedule != NULL && strcmp(s->schedule, "timed") == 0)))
        return fail(BAD_INPUT, "--adapt: compares named schedules, and --schedule timed is another for every profile");
    if (s->adapt > 0 && !s->adapt_shares && !automatic && j->ranks.plan != NULL && j->ranks.plan->updates > 1)
        return fail(BAD_INPUT, "--adapt: plans one update a step, this run makes %lld; --adapt-shares keeps them", (long long)j->ranks.plan->updates);
    if (s->adapt > 0 && !automatic && j->feed.limited)
        return fail(BAD_INPUT, "--adapt: counts on micro-batches of one size, and some ranks of --devices %s take less than those of %lld tokens: "
                    "fewer --sequences, or --plan auto", s->devices, (long long)(j->feed.most * j->feed.item_sequences * j->feed.length));
    if (automatic && lists) return fail(BAD_INPUT, "--schedule %s: --plan auto needs the name of a schedule", s->schedule);
    if ((j->planner = (auto_planner *)calloc(1, sizeof(auto_planner))) == NULL) return fail(FAILED, "out of memory");
    if ((status = get_profile(j)) != 0 || (!automatic && !timed && s->adapt <= 0)) return status;
    if (j->processes > 1 && (status = measure_transport(j, &between)) != 0) return status;
    start = seconds_now();
    if (j->process == 0) {
        const int64_t most = s->slices < j->feed.item_granules ? s->slices : j->feed.item_granules, slices = automatic ? most : 1;
        status = planner_cluster(j->planner, &j->ranks, j->processes, &between);
        if (status == 0 && (automatic || s->adapt > 0))
            status = planner_search(j->planner, j->feed.items, j->feed.item_sequences, s->length,
                                    s->schedule != NULL && !lists ? s->schedule : s->adapt > 0 ? NULL : "timed",
                                    s->shard_gradients ? HET_SHARD_GRADIENTS : (het_shard)s->shard, slices,
                                    s->plan_seconds, automatic);
    }
    if (status == 0 && timed) status = time_schedule(j);
    if (status != 0 || !automatic) return status;
    if (j->process == 0) {
        if (!s->quiet) found_table(j->planner->found, j->planner->profile, &j->planner->cluster, seconds_now() - start);
        if (!s->quiet) printf("\n");
        if (s->save_plan != NULL) status = planner_write(j->planner, s->save_plan, s->save_profile != NULL ? s->save_profile : s->profile);
        granules = j->planner->found->found[0].granules;
        j->ranks.plan = j->planner->found->found[0].plan; /* taken over */
        j->planner->found->found[0].plan = NULL;
    }
    if (j->processes > 1) status = spread_plan(j, &granules);
    if (status == 0) status = group_items(j, j->ranks.plan, granules);
    return status == 0 && is_timed(j->ranks.plan) ? time_schedule(j) : status;
}

/* --plan FILE: micro-batches of as many granules as in the step that the plan was made for. */
static int follow_plan(job *j) {
    const het_plan_step *step = &j->ranks.plan->step;
    const step_feed *f = &j->feed;
    if (step->length == 0 || j->ranks.schedule != NULL) return group_items(j, j->ranks.plan, f->most);
    if (step->granules != f->items || step->sequences != f->item_sequences || step->length != f->length)
        fail(0, "warning: --plan %s was made for a step of %lld granules of %lld x %lld tokens; this one has %lld of %lld x %lld", j->set.plan,
             (long long)step->granules, (long long)step->sequences, (long long)step->length, (long long)f->items, (long long)f->item_sequences,
             (long long)f->length);
    return group_items(j, j->ranks.plan, step->sequences == f->item_sequences ? step->micro_batch : f->most);
}

/* Ranks that the plan leaves without work are named, with what would feed them. What is trained does not depend on them: nothing is changed. */
static void warn_idle(const job *j, int automatic) {
    const char *why = NULL;
    if (j->process > 0) return;
    if (j->saved != NULL) why = "a resumed run keeps its micro-batches, and does as well on fewer devices";
    else if (automatic && j->feed.items < j->ranks.world)
        why = j->feed.item_sequences > 1 ? "--granule 1 or more --micro-batches would give the planner more to share out"
                                         : "more --micro-batches would give the planner more to share out";
    else if (automatic) why = "the planner found none that is shorter with more of them at work";
    else if (j->feed.micro_batches < j->set.micro_batches)
        why = "fewer granules a micro-batch (STEPxN of --replan, \"step\" of a plan's file) make more";
    layout_warn(het_get_desc(j->ctx)->layout.plan, j->feed.micro_batches, j->set.micro_batches, j->set.sequences, why);
}

/* --plan auto: the command that simulates the plan again, on any machine that has the files. */
static int tell_command(const job *j) {
    const settings *s = &j->set;
    const char *slash = strrchr(j->program, '/'), *model = s->model != NULL ? s->model : j->saved != NULL ? j->saved->path : s->init;
    char path[PATH_SIZE];
    het_model_desc same;
    if (s->save_plan == NULL) return printf("again    --save-plan FILE.json also writes what build/plan needs to simulate this plan again\n\n") < 0;
    memset(&same, 0, sizeof same);
    if (s->model == NULL && model != NULL && !is_directory(model)) model = NULL; /* weights in a file: the profile knows the model */
    else if (model == NULL) model = MODEL_DEFAULT;
    if (model != NULL && (model_from_spec("--model", model, &same) != 0 || memcmp(&same, &j->desc.model, sizeof same) != 0)) model = NULL;
    snprintf(path, sizeof path, "%.*splan", slash != NULL ? (int)(slash + 1 - j->program) : 0, j->program);
    printf("again    "), print_word(path);
    if (model != NULL) printf(" --model "), print_word(model);
    if (model != NULL && s->experts != NULL) printf(" --experts "), print_word(s->experts);
    printf(" --profile "), print_word(j->planner->profile_path);
    printf(" --cluster "), print_word(j->planner->cluster_path);
    printf(" --plan "), print_word(s->save_plan);
    printf("\n\n");
    return 0;
}

static int start_adapting(job *j);
static int check_changes(job *j);
static void end_progress(job *j);

/* Bad steps that are skipped get a line each; errors come back to the caller. */
static void on_log(void *user, het_log_level level, het_result code, const char *text) {
    job *j = (job *)user;
    (void)code;
    if (level != HET_LOG_WARNING || j->process > 0) return;
    end_progress(j);
    fail(0, "skipped: %s", text);
}

/* Where two or more ranks of all processes are cards, they exchange by themselves. */
static int open_groups(job *j) {
#ifdef HETRAIN_NCCL
    het_nccl_desc desc;
    het_error error = { HET_OK, "" };
    int64_t cards = 0;
    for (int64_t r = 0; r < j->ranks.world; r++) cards += j->ranks.all[r].iface != NULL && !j->ranks.all[r].iface->host_memory;
    if (cards < 2) return 0;
    memset(&desc, 0, sizeof desc);
    desc.host = getenv("NCCL_HOSTID");
    if (het_nccl_open(&desc, &j->desc.layout.communicators, &error) != HET_OK) return fail(FAILED, "%s", error.text);
#else
    (void)j;
#endif
    return 0;
}

static int close_groups(job *j, int status) {
#ifdef HETRAIN_NCCL
    het_error error = { HET_OK, "" };
    if (het_nccl_close(&j->desc.layout.communicators, &error) != HET_OK && status == 0) status = fail(FAILED, "%s", error.text);
#else
    (void)j;
#endif
    return status;
}

/* Slices are cut between granules: of more than those some would always be empty. */
static int check_slices(const job *j, const char *name, int64_t slices, int64_t items) {
    const int64_t granules = items * j->feed.item_granules;
    if (slices <= granules) return 0;
    return fail(BAD_INPUT, "%s: %lld slices of a micro-batch of %lld granules (--granule, --sequences, --length)", name, (long long)slices,
                (long long)granules);
}

/* What would need less memory than a run that does not fit. */
static const char *less_memory(const settings *s) {
    return s->recompute == 1 + HET_RECOMPUTE_NONE ? "--recompute, --store 1, fewer --sequences or another --plan need less" :
        "fewer --sequences, a smaller --length or another --plan need less";
}

/* Room for a plan's micro-batches of so many items of a step. */
static void limit_micro_batches(const job *j, het_limits *limits, const het_plan *plan, int64_t most) {
    int64_t limit[LAYOUT_RANKS], rank[LAYOUT_RANKS], counts[LAYOUT_RANKS];
    int limited;
    limits->max_sequences = most * j->feed.item_sequences, limits->max_tokens = limits->max_sequences * j->feed.length;
    limited = layout_limits(&j->ranks, plan, limits->max_tokens, limit, rank);
    limits->max_micro_batches = feed_count(&j->feed, most, plan, limited ? limit : NULL, counts);
}

static void configure_feedback(const settings *s, het_optimizer_desc *o) {
    o->feedback = (float)s->feedback, o->feedback_change = (float)s->feedback_change;
}

/* Slices of long micro-batches alone, several updates a step; a plan's file may have its own. Several updates are not clipped. What 2bw means is
   saved as a number, which other plans can follow. */
static void complete_plan(job *j, het_plan *plan) {
    if (j->set.slice_tokens > 0) plan->slice_tokens = j->set.slice_tokens;
    if (j->set.updates > 1 && j->set.staleness == 0) j->set.staleness = strcmp(plan->schedule, "2bw") == 0;
    if (j->set.updates > 1) plan->updates = j->set.updates, plan->staleness = j->set.staleness;
    if (plan->updates > 1 && !j->typed[option_find(options, OPTIONS, "--clip", 6)]) j->desc.optimizer.clip = -1.0f;
}

/* All gradients of 2bw are one update late: feedback makes that good, by as much as was measured best (docs/planning.md), unless an option says
   how much. Saved as numbers. */
static void complete_feedback(job *j, const het_plan *plan) {
    const int given = j->given[option_find(options, OPTIONS, "--feedback", 10)] || j->given[option_find(options, OPTIONS, "--feedback-change", 17)];
    if (plan->updates < 2 || given || strcmp(plan->schedule, "2bw") != 0) return;
    j->set.feedback = 1, j->set.feedback_change = j->set.optimizer == 2 ? 0.5 : 1;
    configure_feedback(&j->set, &j->desc.optimizer);
}

/* Of every unit and micro-batch the version that F uses, the update that its gradient joins and, where F comes before its version is there, so that
   it is predicted, the version that there is. In no order: nothing else decides what is trained. to_come: [plan->stages]. */
static uint64_t hash_versions(const het_plan *plan, const het_schedule *lists, int64_t *to_come) {
    uint64_t hash = 0;
    for (int64_t i = 0; i < plan->stages; i++) to_come[i] = INT32_MAX; /* the first update that waits for later actions of the stage */
    for (int64_t i = lists->start[lists->ranks] - 1; i >= 0; i--) {
        const het_action *a = &lists->action[i];
        const int64_t stage = a->kind > HET_ACTION_W ? 0 : plan->first_stage[a->pipeline] + a->stage;
        int64_t key[5] = { 0, a->micro_batch, a->kind == HET_ACTION_F, a->version, 0 };
        if (a->kind != HET_ACTION_F && a->kind != HET_ACTION_B && a->kind != HET_ACTION_W) continue;
        if (a->kind == HET_ACTION_F && to_come[stage] < a->version) key[4] = a->version - to_come[stage];
        else if (a->kind != HET_ACTION_F && a->version < to_come[stage]) to_come[stage] = a->version;
        for (int64_t p = 0; p < a->pipeline; p++) key[1] += lists->micro_batches[p];
        for (key[0] = plan->stage[stage].unit_begin; key[0] < plan->stage[stage].unit_end && a->slice == 0; key[0]++)
            hash += het_xxh64(key, sizeof key, 0);
    }
    return hash;
}

static const char *hash_in(const char *versions) { return strrchr(versions, '(') != NULL ? strrchr(versions, '(') : ""; }

/* The first of a step's updates that no gradient joins; -1: there is none. joined: [plan->updates] of 0. */
static int64_t empty_update(const het_plan *plan, const het_schedule *lists, int64_t *joined) {
    int64_t most = 0, update = 0;
    for (int64_t i = 0; i < plan->stages; i++) {
        const int64_t own = plan->stage[i].updates > 0 ? plan->stage[i].updates : plan->updates;
        if (own > most) most = own;
    }
    for (int64_t i = 0; i < lists->start[lists->ranks]; i++) {
        const het_action *a = &lists->action[i];
        if ((a->kind == HET_ACTION_B || a->kind == HET_ACTION_W) && a->version >= 0 && a->version < plan->updates) joined[a->version] = 1;
    }
    while (update < most && joined[update]) update++;
    return update < most ? update : -1;
}

/* With several updates a step plan and schedule (NULL: that of the plan) decide what is trained. Each update wants a micro-batch: one without a
   gradient would count, and bring nothing. A run that goes on, or over to another plan by itself, keeps what it has. */
static int set_versions(job *j, const het_plan *plan, const het_schedule *lists, int64_t micro_batches) {
    int64_t *numbers = NULL, empty = -1; /* of pipelines, then of stages; and of updates */
    het_schedule *made = NULL;
    het_error error = { HET_OK, "" };
    het_result result = HET_OK;
    double late;
    snprintf(j->versions, sizeof j->versions, "1 update a step");
    if (plan == NULL || plan->updates < 2) return 0;
    if ((numbers = (int64_t *)calloc((size_t)(plan->stages + plan->updates), sizeof *numbers)) == NULL) return fail(FAILED, "out of memory");
    het_plan_micro_batches(plan, micro_batches, numbers);
    if (lists == NULL) result = het_schedule_make(plan, numbers, NULL, &made, &error);
    if (made != NULL) lists = made;
    if (result == HET_OK) {
        const int64_t most = het_schedule_late(plan, lists, &late);
        snprintf(j->versions, sizeof j->versions,
                 "%lld updates a step by %s, staleness %lld: gradients %lld late at most, %.4g on average (%016llx)", (long long)plan->updates,
                 made != NULL ? plan->schedule : "lists of its own", (long long)plan->staleness, (long long)most, late,
                 (unsigned long long)hash_versions(plan, lists, numbers));
        if (j->ctx == NULL && j->saved == NULL) empty = empty_update(plan, lists, numbers + plan->stages);
    }
    free(numbers);
    het_schedule_free(made);
    if (empty >= 0)
        return fail(BAD_INPUT, "--updates %lld: of the step's %lld micro-batches none joins its update %lld; fewer updates, or more micro-batches "
                               "for each pipeline", (long long)plan->updates, (long long)micro_batches, (long long)empty + 1);
    return result == HET_OK ? 0 : fail(status_of(result), "%s", error.text);
}

/* A resumed run must have what it had, --replan that is due included; --adapt-shares goes by time anyway, and keeps the number of updates. */
static int check_versions(job *j) {
    const char *saved = j->saved != NULL ? het_checkpoint_option(j->saved, "versions") : NULL;
    const het_plan *plan = j->ranks.plan;
    const het_schedule *lists = j->ranks.schedule;
    int64_t micro_batches = j->feed.micro_batches, most = j->feed.most;
    het_limits limits;
    int status;
    for (int64_t i = 0; i < j->changes; i++) {
        const planned_change *c = &j->change[i];
        if (c->rank >= 0 || c->step > j->resumed_step + 1) continue;
        plan = c->plan, lists = NULL;
        if (c->granules > 0) most = c->granules < j->feed.items ? c->granules : j->feed.items;
        limit_micro_batches(j, &limits, plan, most);
        micro_batches = limits.max_micro_batches;
    }
    if ((status = set_versions(j, plan, lists, micro_batches)) != 0 || j->saved == NULL || j->set.force_resume) return status;
    if (saved == NULL) saved = "1 update a step";
    if (strcmp(hash_in(saved), hash_in(j->versions)) == 0) return 0;
    if (j->set.adapt > 0 && plan != NULL && plan->updates > 1 && atoll(saved) == plan->updates) return 0;
    return fail(BAD_INPUT, "--updates, --staleness, --schedule, --plan: the saved run has %s, this one %s, which changes what is trained; "
                "--force-resume allows it", saved, j->versions);
}

static void configure_optimizer(const settings *s, het_optimizer_desc *o) {
    o->learning_rate = (float)s->lr, o->minimum_rate = (float)s->min_lr, o->schedule = (het_lr_schedule)s->schedule_lr;
    o->warmup_steps = s->warmup;
    o->total_steps = s->schedule_lr == HET_LR_CONSTANT ? s->warmup + 1 : s->steps; /* a constant rate has no end to depend on */
    o->weight_decay = s->weight_decay > 0 ? (float)s->weight_decay : -1.0f;
    o->beta1 = s->beta1 > 0 ? (float)s->beta1 : 1e-30f, o->beta2 = s->beta2 > 0 ? (float)s->beta2 : 1e-30f; /* 0: the default */
    o->epsilon = (float)s->epsilon, o->iface = s->optimizer == 2 ? het_muon() : het_adamw();
    o->matrix_rate = (float)s->matrix_lr, o->momentum = s->momentum > 0 ? (float)s->momentum : 1e-30f;
    configure_feedback(s, o);
    o->clip = s->clip > 0 ? (float)s->clip : -1.0f;
}

static int configure_context(job *j) {
    const settings *s = &j->set;
    het_desc *d = &j->desc;
    het_error error = { HET_OK, "" };
    het_result result;
    const int automatic = is_automatic(s), whole = s->recompute == 1 + HET_RECOMPUTE_STAGE;
    int status = 0;
    d->layout.devices = j->ranks.device, d->layout.device_count = j->ranks.devices;
    d->emulate.links = j->ranks.link, d->emulate.link_count = j->ranks.links;
    d->layout.transport = j->transport;
    if ((status = experts_start(&j->experts, s->experts, d)) != 0) return status;
    if (!automatic && (s->plan != NULL || s->schedule != NULL || s->save_plan != NULL || s->store > 0 || s->updates > 1 || whole ||
                       s->slice_tokens > 0 || j->ranks.world > 1 || j->ranks.all[0].max_tokens > 0)) {
        status = layout_plan(&j->ranks, "--plan", s->plan, s->schedule, &d->model, j->ranks.world, s->slices, s->store, whole);
        if (status != 0) return status;
        if (s->memory_limit > 0) j->ranks.plan->memory_limit = s->memory_limit;
        d->layout.plan = j->ranks.plan, d->layout.schedule = j->ranks.schedule;
        if ((status = follow_plan(j)) != 0) return status;
    }
    if (!automatic)
        status = check_slices(j, d->layout.plan != NULL && d->layout.plan->slices != s->slices ? "--plan" : "--slices",
                              d->layout.plan != NULL ? d->layout.plan->slices : s->slices, j->feed.most);
    if (status != 0) return status;
    limit_micro_batches(j, &d->limits, d->layout.plan, j->feed.most);
    d->limits.max_slices = s->slices;
    d->layout.backward = (het_backward)s->backward, d->layout.recompute = s->recompute == 1 + HET_RECOMPUTE_UNIT ? HET_YES : HET_NO;
    d->layout.shard = s->shard_gradients ? HET_SHARD_GRADIENTS : (het_shard)s->shard;
    if (automatic && s->replan == NULL) d->layout.shard = HET_SHARD_DEFAULT; /* the most that the planner may divide */
    if (automatic) d->layout.backward = HET_BACKWARD_DEFAULT;
    d->dtype = (het_dtype)s->dtype, d->streams = (het_dtype)s->streams, d->reduce = (het_reduce)s->reduce;
    d->granule = s->granule, d->seed = s->seed;
    configure_optimizer(s, &d->optimizer);
    d->weights = (het_dtype)s->weights, d->guard.nonfinite = s->nonfinite ? HET_YES : HET_NO;
    d->guard.spike = s->spike, d->guard.skip_bad_steps = s->on_bad_step == 2 ? HET_YES : HET_NO;
    d->host.logger.log = on_log, d->host.logger.user = j;
    if (j->ranks.plan != NULL) complete_plan(j, j->ranks.plan), complete_feedback(j, j->ranks.plan);
    if (s->slice_tokens > 0 && s->replan == NULL && j->ranks.plan != NULL && j->ranks.plan->slices == 1)
        status = options_idle(options, OPTIONS, j->typed, "--slice-tokens", "without --slices or a plan that has some");
    if (status != 0) return status;
    status = layout_check_lists(&j->ranks, s->schedule, j->feed.micro_batches);
    if (status != 0 || (status = configure_plan(j)) != 0 || s->steps == 0) return status;
    if (automatic) d->layout.plan = j->ranks.plan, limit_micro_batches(j, &d->limits, j->ranks.plan, j->feed.most);
    if ((status = check_changes(j)) != 0 || (status = check_versions(j)) != 0 || (status = open_groups(j)) != 0) return status;
    result = het_create(d, &j->ctx, &error);
    if (result == HET_ERR_LIMIT && strstr(error.text, "memory_limit") != NULL)
        return fail(BAD_INPUT, "--devices %s: %s; %s", s->devices, error.text, less_memory(s));
    if (result == HET_ERR_OOM) return fail(FAILED, "%s; %s", error.text, less_memory(s));
    if (result != HET_OK) return fail(status_of(result), "%s", error.text);
    het_get_memory(j->ctx, 0, &j->memory);
    if ((status = start_adapting(j)) != 0) return status;
    warn_idle(j, automatic);
    if (s->save_plan != NULL && j->process == 0) status = write_text(s->save_plan, "--save-plan", write_plan, j, NULL);
    if (status == 0 && automatic && j->process == 0 && !s->quiet) status = tell_command(j);
    if (status == 0 && j->weights[0] != 0) {
        status = load_weights(j->ctx, s->resume != NULL ? "--resume" : "--init", j->weights);
        if (status == 0) status = agree(j, collect_weights);
    }
    if (status == 0 && s->init_adapter != NULL)
        status = adapter_load("--init-adapter", s->init_adapter, j->ctx, j->weights, s->any_base != 0);
    return status;
}

/* ---- checkpoints: OUT/step-..., see >>checkpoint_api of hetrain_files.h ------------------------------------------------ */

static void write_options(FILE *file, const job *j, int all, const char *separator) {
    char buffer[64];
    int first = 1;
    for (int i = 0; i < OPTIONS; i++) {
        const char *text = all || option_is_saved(&options[i]) ? option_text(&j->set, &options[i], buffer, sizeof buffer) : NULL;
        if (text == NULL) continue;
        fprintf(file, "%s\"%s\":", first ? "" : separator, options[i].name + 2);
        write_json_string(file, text);
        first = 0;
    }
}

/* The model as JSON, without an adapter, to be freed; NULL: out of memory. */
static char *model_json(const job *j, size_t *length) {
    het_model_desc model = het_get_desc(j->ctx)->model;
    char *text = NULL;
    model.lora_rank = model.lora_targets = model.local_loss = 0, model.lora_alpha = 0;
    if (het_model_to_json(&model, NULL, 0, length) != HET_ERR_LIMIT) return NULL;
    text = (char *)malloc(*length + 1);
    if (text != NULL && het_model_to_json(&model, text, *length + 1, length) != HET_OK) {
        free(text);
        text = NULL;
    }
    return text;
}

static void saved_option(saved_options *o, const char *key, const char *value) {
    het_pair *p = &o->pair[o->pairs++];
    p->key = key, p->key_length = strlen(key);
    p->value = value, p->value_length = strlen(value);
}

static void collect_options(const job *j, saved_options *o) {
    const int64_t a_step = j->feed.sequences, step = het_get_step(j->ctx);
    char *text;
    memset(o, 0, sizeof *o);
    for (int i = 0; i < OPTIONS; i++) {
        const char *value = option_is_saved(&options[i]) ? option_text(&j->set, &options[i], o->text[i], sizeof o->text[i]) : NULL;
        if (options[i].offset == AT(shard) && j->set.shard == 0) continue; /* the plan's, which may be another one when the run goes on */
        if (value != NULL) saved_option(o, options[i].name + 2, value);
    }
    text = o->text[OPTIONS];
    snprintf(text, sizeof o->text[0], "%lld", (long long)j->training.info.tokens);
    saved_option(o, "data_tokens", text);
    text = o->text[OPTIONS + 1];
    snprintf(text, sizeof o->text[0], "%016llx", (unsigned long long)j->data_fingerprint);
    saved_option(o, "data_hash", text);
    text = o->text[OPTIONS + 2];
    snprintf(text, sizeof o->text[0], "%lld", (long long)(step * a_step));
    if (strchr(j->versions, '(') != NULL) saved_option(o, "versions", j->versions);
    snprintf(o->text[OPTIONS + 3], sizeof o->text[0], "%lld", (long long)j->sea.count);
    if (j->sea.count > 1) saved_option(o, "island_count", o->text[OPTIONS + 3]);
    saved_option(o, "data_position", text); /* windows drawn: the order is a function of seed and step */
    if (j->set.lora > 0 && j->weights[0] != 0) saved_option(o, "base", j->weights);
    if (getcwd(o->directory, sizeof o->directory) != NULL) saved_option(o, "directory", o->directory); /* which paths start from */
}

/* The frozen weights' directory, or file where that has another name, is what PEFT calls the base. */
static char *saved_adapter_json(const job *j, size_t *length) {
    char base[PATH_SIZE];
    char *slash;
    snprintf(base, sizeof base, "%s", j->weights);
    slash = strrchr(base, '/');
    if (slash != NULL && strcmp(slash, "/model.safetensors") == 0) *slash = 0;
    return adapter_json(&het_get_desc(j->ctx)->model, base[0] != 0 ? base : NULL, length);
}

/* What came with the model, the outer step's state, the adapter's settings, the tokenizer. */
static int collect_beside(const job *j, saved_beside *b) {
    memset(b, 0, sizeof *b);
    if (j->sea.outer != NULL) {
        b->file[b->files].name = ISLANDS_FILE;
        b->file[b->files].data = het_outer_state(j->sea.outer, j->sea.tokens, &b->file[b->files].size);
        b->file[b->files++].is_state = 1;
    }
    for (int64_t i = 0; i < j->files.files; i++) b->file[b->files++] = j->files.file[i];
    if (j->set.lora > 0) {
        het_beside *f = &b->file[b->files++];
        f->name = "adapter_config.json";
        f->data = b->adapter = saved_adapter_json(j, &f->size);
        if (b->adapter == NULL) return fail(FAILED, "out of memory");
    }
    if (j->tokenizer != NULL) {
        const het_writer writer = grown_writer(&b->tokenizer, "tokenizer.json");
        het_beside *f = &b->file[b->files++];
        if (het_tokenizer_write(j->tokenizer, &writer) != HET_OK) return fail(FAILED, "out of memory");
        f->name = writer.name, f->data = b->tokenizer.text, f->size = b->tokenizer.length;
    }
    return 0;
}

/* Takes the memory for saving: what a checkpoint of --out needs, and what --export does. */
static int reserve_saving(job *j) {
    size_t floats = 0;
    int status;
    if (j->out[0] != 0) {
        collect_options(j, &j->kept);
        if ((status = collect_beside(j, &j->beside)) != 0) return status;
        j->save.base = j->files.config, j->save.base_length = j->files.config_length;
        status = saver_open(&j->save, j->out, j->set.keep, j->ctx, j->kept.pair, j->kept.pairs, j->beside.file, j->beside.files, j->process == 0);
        if (status != 0) return status;
    }
    if (j->set.export_to == NULL) return 0;
    for (int64_t i = 0; i < het_tensor_count(j->ctx); i++) {
        het_tensor_info info;
        if (het_tensor_get_info(j->ctx, i, &info) == HET_OK && 2 * (size_t)info.count > floats) floats = 2 * (size_t)info.count;
    }
    for (int64_t i = 0; i < het_parameter_count(j->ctx) && j->experts.units != NULL; i++) {
        het_parameter_info info;
        if (het_parameter_get_info(j->ctx, i, &info) == HET_OK && 4 * (size_t)info.count > floats) floats = 4 * (size_t)info.count;
    }
    j->export_bytes = floats * sizeof(float) + 2048 * (size_t)het_tensor_count(j->ctx) + j->files.config_length + (1 << 16); /* het_save_desc */
    if ((j->export_memory = simple_alloc(NULL, j->export_bytes, 64)) == NULL)
        return fail(FAILED, "--export: memory for saving: %llu bytes are missing", (unsigned long long)j->export_bytes);
    memset(j->export_memory, 1, j->export_bytes);
    return 0;
}

/* --verify: copies of weights that differ stop the run, and nothing more is saved. */
static int verify(job *j) {
    return het_verify(j->ctx) == HET_OK ? 0 : fail(FAILED, "--verify: %s", het_last_error(j->ctx));
}

/* Starts saving the step that is done. */
static int save(job *j) {
    size_t size;
    int status;
    if (j->save.saved_step == het_get_step(j->ctx)) return 0;
    if (j->set.verify > 0 && (status = verify(j)) != 0) return status;
    if ((status = saver_wait(&j->save)) != 0 || (status = await_files(j)) != 0) return status;
    collect_options(j, &j->kept);
    if (j->sea.outer != NULL && het_outer_state(j->sea.outer, j->sea.tokens, &size) == NULL)
        return fail(FAILED, "--islands: %s", het_outer_error(j->sea.outer)); /* it is among what lies beside */
    return saver_start(&j->save, j->ctx, j->kept.pair, j->kept.pairs, j->beside.file, j->beside.files);
}

/* Behind the last step of islands. The checkpoint is from before the weights become the global ones, so that a run of more steps goes on from it with
   its bits; what is validated and put beside the checkpoints is from after. */
static int end_islands(job *j) {
    const int saves = j->out[0] != 0, status = saves ? save(j) : 0;
    if (status != 0) return status;
    if (het_outer_take(j->sea.outer) != HET_OK) {
        if (islands_are_stopped(&j->sea, j->ctx) && saves) j->sea.waits = 1; /* for the last joins of others */
        return j->sea.waits ? 0 : fail(FAILED, "--islands: %s", het_outer_error(j->sea.outer));
    }
    return saves ? saver_take(&j->save, j->ctx, j->kept.pair, j->kept.pairs, j->beside.file, j->beside.files) : 0;
}

/* Settings from the checkpoint, in which `given` ones of the command line may stand above others. */
static int take_saved_options(job *j) {
    const char *base = het_checkpoint_option(j->saved, "base");
    int status;
    for (int i = 0; i < OPTIONS; i++) {
        const char *value = option_is_saved(&options[i]) ? het_checkpoint_option(j->saved, options[i].name + 2) : NULL;
        if (value == NULL) continue;
        if ((status = option_set(&options[i], &j->set, value, "state.json: ")) != 0) return status;
        j->given[i] = 1;
    }
    if (base != NULL && (size_t)snprintf(j->weights, sizeof j->weights, "%s", base) >= sizeof j->weights)
        return fail(BAD_INPUT, "--resume: path too long");
    return 0;
}

/* A path of the checkpoint may start from another directory than this: *path becomes `from_there`. `here`: it is looked for here first. */
static int find_saved_file(const job *j, const char *name, const char **path, int here, char *from_there) {
    const char *directory = het_checkpoint_option(j->saved, "directory");
    if (*path == NULL || (*path)[0] == '/' || directory == NULL || *path != het_checkpoint_option(j->saved, name + 2)) return 0;
    if (here && access(*path, F_OK) == 0) return 0;
    if (!path_join(from_there, PATH_SIZE, directory, *path)) return fail(BAD_INPUT, "%s %s: path too long", name, *path);
    if (access(from_there, F_OK) == 0) *path = from_there;
    else if (here)
        return fail(BAD_INPUT, "%s %s: neither here nor where the run was started, %s; %s FILE says where it is", name, *path, from_there, name);
    return 0;
}

/* The weights below low-rank factors, where they were or where --init says. Their fingerprint is compared once they are loaded. */
static int find_base(job *j) {
    const char *init = j->set.init;
    char config[PATH_SIZE];
    j->set.init = NULL; /* all else comes from the checkpoint */
    if (init == NULL && (j->weights[0] == 0 || access(j->weights, F_OK) == 0)) return 0;
    if (init == NULL)
        return fail(BAD_INPUT, "--resume %s: the weights below its factors are no more where they were, %s; --init FILE|DIR says where they are",
                    j->saved->path, j->weights);
    if (j->weights[0] == 0)
        return fail(BAD_INPUT, "--init: not together with --resume, which takes the weights from DIR, but for those below low-rank factors");
    return weights_of_init(init, "", j->weights, sizeof j->weights, config); /* the model is known */
}

/* An option that decides what is trained must be what it was. */
static int check_fixed_options(const job *j) {
    char buffer[64];
    for (int i = 0; i < OPTIONS; i++) {
        const char *saved = het_checkpoint_option(j->saved, options[i].name + 2), *now = option_text(&j->set, &options[i], buffer, sizeof buffer);
        if (saved == NULL && now != NULL && strcmp(options[i].name, "--experts") == 0) saved = "none";
        if (saved == NULL || now == NULL || strcmp(saved, now) == 0 || !option_is_fixed(&j->set, &options[i]) || j->set.force_resume) continue;
        return fail(BAD_INPUT, "%s %s: the saved run has %s, and another value changes what is trained; --force-resume allows it",
                    options[i].name, now, saved);
    }
    return 0;
}

/* The saved run goes on only as it was: with islands where it was one of them, and with the data held out that it held out. */
static int check_way_on(const job *j) {
    const settings *s = &j->set;
    const char *count = het_checkpoint_option(j->saved, "island_count");
    const int typed = j->typed[option_find(options, OPTIONS, "--islands", 9)], alone = j->processes == 1 && (count == NULL || s->force_resume);
    if (s->islands > 0 && !typed && !alone && s->island_world == NULL)
        return fail(BAD_INPUT, "--islands %lld: the saved run is one of islands; give it on the command line, too, as it says how processes meet",
                    (long long)s->islands);
    if (s->val != NULL && het_checkpoint_option(j->saved, "val") == NULL && s->data != NULL && !mix_is(s->data) && !s->force_resume)
        return fail(BAD_INPUT, "--val %s: the saved run has none and holds out the last windows of --data; training on them too changes what is "
                    "trained; --force-resume allows it", s->val);
    return check_fixed_options(j);
}

/* The run's directory: that of --resume, or the one above a checkpoint. A run may have such a name, too. */
static void out_of_resume(job *j) {
    char *last, state[PATH_SIZE + 16];
    snprintf(j->out, sizeof j->out, "%s", j->set.resume);
    for (size_t length = strlen(j->out); length > 1 && j->out[length - 1] == '/'; length--) j->out[length - 1] = 0;
    last = strrchr(j->out, '/');
    snprintf(state, sizeof state, "%s/state.json", j->out);
    if (!is_step_name(last != NULL ? last + 1 : j->out) || access(state, F_OK) != 0) return;
    if (last == NULL) snprintf(j->out, sizeof j->out, ".");
    else *last = 0;
}

/* What goes on in its own directory, or another one, has that for itself before anything is read there. */
static int own_out(job *j) {
    const settings *s = &j->set;
    if (s->resume != NULL && strlen(s->resume) >= sizeof j->out - 64) return fail(BAD_INPUT, "--resume: path too long");
    if (s->resume != NULL && is_directory(s->resume)) out_of_resume(j);
    j->goes_on = s->resume != NULL && (s->out == NULL || same_file(s->out, j->out));
    if (s->out != NULL && (size_t)snprintf(j->out, sizeof j->out, "%s", s->out) >= sizeof j->out - 64) return fail(BAD_INPUT, "--out: path too long");
    return j->process == 0 && s->resume != NULL && j->out[0] != 0 ? folder_open(&j->folder, s->out != NULL ? "--out" : "--resume", j->out) : 0;
}

/* --out and --export hold nothing that would be lost. */
static int check_out(job *j) {
    const settings *s = &j->set;
    const folder_input inputs[] = { { "--init", s->init != NULL ? s->init : j->weights, 1 }, { "--model", s->model, 1 },
                                    { "--init-adapter", s->init_adapter, 1 }, { "--data", s->data, 0 }, { "--val", s->val, 0 },
                                    { "--resume", j->saved != NULL ? j->saved->path : NULL, 1 } };
    folder_wish out = { "--out", j->out, inputs, 5, s->overwrite != 0, j->goes_on, 1 },
                weights = { "--export", s->export_to, inputs, 6, s->overwrite != 0, 0, 0 };
    int status = 0;
    if (s->overwrite && s->export_to == NULL && (j->goes_on || j->out[0] == 0))
        return fail(BAD_INPUT, "--overwrite: %s", j->goes_on ? "not together with --resume, which goes on where it is" : "needs --out DIR");
    if (j->process > 0) return 0;
    if (j->out[0] != 0 && s->steps > 0) status = s->resume != NULL ? folder_check(&out) : folder_take(&j->folder, &out);
    if (status != 0 || s->export_to == NULL || same_file(s->export_to, j->out)) return status;
    return folder_take(&j->export_folder, &weights);
}

/* Of --shard and --shard-gradients what is typed counts, also where the checkpoint has the other. */
static int choose_shard(job *j) {
    settings *s = &j->set;
    if (!j->typed[option_find(options, OPTIONS, "--shard", 7)]) return 0;
    if (j->typed[option_find(options, OPTIONS, "--shard-gradients", 17)] && s->shard != HET_SHARD_GRADIENTS)
        return fail(BAD_INPUT, "--shard-gradients: --shard says something else");
    s->shard_gradients = 0;
    return 0;
}

/* The command line comes on top of the options of the checkpoint. */
static int configure_options(job *j, int argc, char **argv) {
    settings *s = &j->set;
    int status;
    settings_default(s);
    status = options_parse(summary, options, OPTIONS, s, j->given, argc, argv);
    if (status >= 0) return status;
    memcpy(j->typed, j->given, sizeof j->typed);
    if (s->resume != NULL) {
        if (s->model != NULL) return fail(BAD_INPUT, "--model: not together with --resume, which takes the model and weights from DIR");
        if ((status = own_out(j)) != 0 || (status = find_saved(s->resume, &j->saved)) != 0) return status;
        if (same_file(j->saved->path, j->out))
            return fail(BAD_INPUT, "--resume %s: a checkpoint, which the run would write over; --out DIR says where it goes on", s->resume);
        settings_default(s);
        memset(j->given, 0, sizeof j->given);
        if ((status = take_saved_options(j)) != 0 || (status = options_parse(summary, options, OPTIONS, s, j->given, argc, argv)) >= 0) return status;
        if ((status = check_way_on(j)) != 0 || (status = find_base(j)) != 0) return status;
        if (!j->goes_on && !j->typed[option_find(options, OPTIONS, "--log", 5)]) s->log = NULL; /* the first run keeps it */
        if ((status = find_saved_file(j, "--data", &s->data, 1, j->found[0])) != 0 ||
            (status = find_saved_file(j, "--val", &s->val, 1, j->found[1])) != 0 ||
            (status = find_saved_file(j, "--log", &s->log, 0, j->found[2])) != 0) return status;
        j->resumed_step = j->saved->step;
    } else if (s->force_resume) return fail(BAD_INPUT, "--force-resume: only with --resume");
    else if ((status = own_out(j)) != 0) return status;
    if ((status = choose_shard(j)) != 0) return status;
    if (s->min_lr < 0) s->min_lr = s->lr / 10;
    if (s->min_lr > s->lr && (j->saved == NULL || s->force_resume)) return fail(BAD_INPUT, "--min-lr %g: above --lr %g", s->min_lr, s->lr);
    if (s->data == NULL) return fail(BAD_INPUT, "--data: missing; --help lists the options");
    if (s->steps == 0 && s->save_profile == NULL) return fail(BAD_INPUT, "--steps 0: only with --save-profile");
    if (s->checkpoint_every > 0 && j->out[0] == 0) return fail(BAD_INPUT, "--checkpoint-every: needs --out DIR");
    return (status = check_out(j)) != 0 ? status : -1;
}

/* --scaling weak: the batch grows with the ranks, so what is trained is another thing on another number of them; a resumed run keeps its own. */
static int scale(job *j) {
    if (j->set.scaling == 1) return 0;
    if (j->set.resume != NULL) return fail(BAD_INPUT, "--scaling weak: not together with --resume, which has the batch of the saved run");
    j->scaled_from = j->set.micro_batches;
    j->set.micro_batches *= j->ranks.world;
    if (j->set.micro_batches > 65536)
        return fail(BAD_INPUT, "--scaling weak: %lld micro-batches on %lld ranks are more than 65536 a step", (long long)j->scaled_from,
                    (long long)j->ranks.world);
    return 0;
}

/* Options that would be ignored. */
static int check_idle_options(const job *j) {
    const settings *s = &j->set;
    const int automatic = is_automatic(s), timed = s->schedule != NULL && strcmp(s->schedule, "timed") == 0;
    const struct { int idle; const char *names, *because; } rule[] = {
        { s->steps == 0, "--out --export --log --trace --timeline --hash --save-plan --checkpoint-every --replan --slow --adapt --resume --verify "
          "--evaluate-every --evaluate-batches --power --islands", "with --steps 0, which only measures a profile" },
        { s->steps == 0 && !automatic, "--plan --schedule", "with --steps 0, which only measures a profile" },
        { j->ranks.world == 1, "--links --adapt", "with one rank" },
        { s->optimizer == 1, "--matrix-lr --momentum", "without --optimizer muon" },
        { s->islands == 0, "--outer-lr --outer-momentum --island-seconds --island-fragments --island-bits --island-world", "without --islands" },
        { s->save_profile != NULL, "--profile", "with --save-profile, which measures one" },
        { !automatic && s->adapt <= 0, "--plan-seconds", "without --plan auto or --adapt" },
        { automatic || (!timed && (s->schedule == NULL || strcmp(s->schedule, "greedy") != 0)), "--memory-limit",
          "but with --schedule greedy or timed" },
        { s->adapt <= 0, "--adapt-shares", "without --adapt" },
        { automatic, "--updates", "with --plan auto, which makes one update a step" },
        { s->updates == 1, "--staleness", "without --updates" },
        { j->desc.model.local_loss >= j->desc.model.layers, "--local-loss", "with a model of no more layers" },
        { automatic, "--recompute --store --slice-tokens", "with --plan auto, which decides who recomputes or stores, and cuts evenly" },
        { automatic, "--backward", "with --plan auto, whose schedules say what is split" },
        { j->out[0] == 0, "--keep", "without --out" },
        { s->init == NULL && s->resume == NULL, "--allow-nonfinite", "without --init or --resume" },
        { s->export_to == NULL, "--save-dtype", "without --export" },
        { j->process == 0 && j->out[0] == 0 && s->log == NULL && s->adapt <= 0, "--power", "without --out, --log or --adapt" },
        { s->lora == 0, "--weights", "without --lora: weights that are trained are f32" },
    };
    int status = 0;
    for (size_t i = 0; i < sizeof rule / sizeof *rule && status == 0; i++)
        if (rule[i].idle) status = options_idle(options, OPTIONS, j->typed, rule[i].names, rule[i].because);
    return status;
}

/* The data must be those of the saved run. */
static int check_data(const job *j) {
    const char *tokens = het_checkpoint_option(j->saved, "data_tokens"), *fingerprint = het_checkpoint_option(j->saved, "data_hash");
    uint64_t hash = j->data_fingerprint;
    char now[32];
    if (j->set.force_resume) return 0;
    snprintf(now, sizeof now, "%lld", (long long)j->training.info.tokens);
    if (tokens == NULL || strcmp(tokens, now) != 0)
        return fail(BAD_INPUT, "--data %s: holds %s tokens, the resumed run had %s", j->set.data, now, tokens != NULL ? tokens : "none");
    if (fingerprint == NULL) { /* saved before every byte counted */
        fingerprint = het_checkpoint_option(j->saved, "data_fingerprint");
        if (!pieces_fingerprint(&j->training.reader, &hash)) return fail(BAD_INPUT, "--data %s: cannot be read", j->set.data);
    }
    snprintf(now, sizeof now, "%016llx", (unsigned long long)hash);
    if (fingerprint == NULL || strcmp(fingerprint, now) != 0)
        return fail(BAD_INPUT, "--data %s: is not what the resumed run had: its fingerprint is %s, then it was %s; --force-resume allows it",
                    j->set.data, now, fingerprint != NULL ? fingerprint : "unknown");
    return 0;
}

static int resume(job *j) {
    het_error error = { HET_OK, "" };
    const het_result result = het_checkpoint_load(j->saved, j->ctx, j->set.force_resume ? HET_YES : HET_NO, &error);
    if (result != HET_OK && strstr(error.text, "base weights") != NULL)
        return fail(BAD_INPUT, "--resume %s: %s, from %s; --force-resume allows it", j->saved->path, error.text, j->weights);
    return result == HET_OK ? 0 : fail(status_of(result), "--resume %s: %s%s", j->saved->path, error.text, not_finite(result, error.text));
}

/* ---- log: JSON lines ---------------------------------------------------------------------------------------------------- */

/* On the host, beside what devices hold. */
static size_t saving_bytes(const job *j) { return het_checkpoint_bytes(j->save.checkpoint) + j->export_bytes; }

static double flops_per_token(const job *j) {
    const het_model_desc *m = &het_get_desc(j->ctx)->model;
    return 6.0 * (double)j->memory.parameters + 6.0 * (double)m->layers * (double)m->width * (double)j->set.length;
}

static void log_number(FILE *file, const char *name, double value) {
    if (isfinite(value)) fprintf(file, ",\"%s\":%.17g", name, value);
    else fprintf(file, ",\"%s\":null", name);
}

static void log_configuration(job *j) {
    size_t length;
    char *model = j->log != NULL ? model_json(j, &length) : NULL;
    if (model == NULL) return;
    for (size_t i = 0; i < length; i++)
        if (model[i] == '\n') model[i] = ' ';
    fprintf(j->log, "{\"hetrain\":\"%d.%d.%d\",\"options\":{", HETRAIN_VERSION_MAJOR, HETRAIN_VERSION_MINOR, HETRAIN_VERSION_PATCH);
    write_options(j->log, j, 1, ",");
    fprintf(j->log, "},\"model\":%s,\"from_step\":%lld,\"parameters\":%lld,\"data_tokens\":%lld,\"threads\":%d,\"memory_bytes\":%llu,"
            "\"saving_bytes\":%llu", model, (long long)het_get_step(j->ctx), (long long)j->memory.parameters, (long long)j->training.info.tokens,
            j->threads, (unsigned long long)j->memory.device, (unsigned long long)saving_bytes(j));
    if (j->scaled_from > 0) fprintf(j->log, ",\"weak_scaling_from_micro_batches\":%lld", (long long)j->scaled_from);
    log_number(j->log, "flops_per_token", flops_per_token(j));
    log_number(j->log, "product_peak_gflops", j->peak);
    fprintf(j->log, "}\n");
    fflush(j->log);
    free(model);
}

/* What all machines took for the step, and a clock for each process. */
static void log_power(const job *j, int64_t tokens, double seconds) {
    if (isfinite(j->joules)) {
        log_number(j->log, "watts", j->joules / seconds);
        log_number(j->log, "tokens_per_joule", (double)tokens / j->joules);
    }
    for (int64_t p = 0; p < j->processes; p++)
        fprintf(j->log, j->mhz[p] > 0 ? "%s%.1f" : "%snull", p > 0 ? "," : ",\"mhz\":[", j->mhz[p]);
    fprintf(j->log, "]");
}

/* waited: seconds of the step's in which its data were not there yet. */
static void log_step(job *j, const het_step_info *info, double seconds, double waited) {
    double step = (double)info->step + 1;
    if (!curve_add(&j->training_curve, step, info->loss)) return; /* a curve without this point; the log has it */
    if (j->log == NULL) return;
    fprintf(j->log, "{\"step\":%.0f", step);
    log_number(j->log, "loss", info->loss);
    log_number(j->log, "grad_norm", info->gradient_norm);
    log_number(j->log, "lr", info->learning_rate);
    fprintf(j->log, ",\"tokens\":%lld", (long long)info->tokens);
    log_number(j->log, "step_ms", 1e3 * seconds);
    log_number(j->log, "tokens_per_s", (double)info->tokens / seconds);
    log_number(j->log, "data_wait_share", waited / seconds);
    log_number(j->log, "peak_share", j->peak > 0 ? 1e-9 * flops_per_token(j) * (double)info->tokens / seconds / j->peak : (double)NAN);
    if (j->set.power != NULL) log_power(j, info->tokens, seconds);
    fprintf(j->log, "%s}\n", info->skipped ? ",\"skipped\":true" : "");
    fflush(j->log);
}

static void log_validation(job *j, double loss, int64_t tokens) {
    double step = (double)het_get_step(j->ctx);
    curve_add(&j->validation_curve, step, loss);
    if (j->log == NULL) return;
    fprintf(j->log, "{\"step\":%.0f", step);
    log_number(j->log, "val_loss", loss);
    fprintf(j->log, ",\"val_tokens\":%lld}\n", (long long)tokens);
    fflush(j->log);
}

/* After a resume: keeps the lines up to the step resumed, which also fill the curves. Returns bytes to keep. */
static long log_replay(job *j, FILE *file) {
    char line[4096];
    long keep = 0;
    int whole = 1;
    while (fgets(line, sizeof line, file) != NULL) {
        int started = whole;
        const char *loss = strstr(line, "loss\":");
        long long step;
        whole = strchr(line, '\n') != NULL;
        if (started && sscanf(line, "{\"step\":%lld,", &step) == 1) {
            if (step > j->resumed_step || !whole) break;
            if (loss != NULL && loss[6] != 'n')
                curve_add(loss[-1] == '_' ? &j->validation_curve : &j->training_curve, (double)step, strtod(loss + 6, NULL));
        }
        if (whole) keep = ftell(file);
    }
    return keep;
}

/* A device, pipe or fifo, or what standard output goes to. A resumed run continues its log, which has an end. */
static int open_log_in_place(job *j) {
    const char *name = j->set.log != NULL ? "--log" : "--out";
    write_target t;
    int status;
    if (j->set.resume != NULL && never_ends(j->log_path))
        return fail(BAD_INPUT, "%s %s: --resume continues a log, and this device never ends", name, j->log_path);
    status = target_open(&t, name, j->log_path);
    if (status == 0) j->log = t.file;
    return status;
}

static int open_log(job *j) {
    long keep = 0;
    struct stat about;
    if (j->process > 0) return 0;
    if (j->set.log != NULL) snprintf(j->log_path, sizeof j->log_path, "%s", j->set.log);
    else if (j->out[0] == 0 || !path_join(j->log_path, sizeof j->log_path, j->out, "log.jsonl")) return 0;
    if (stat(j->log_path, &about) == 0 && is_in_place(&about)) return open_log_in_place(j);
    j->log = fopen(j->log_path, j->set.resume != NULL ? "r+b" : "wb");
    if (j->log == NULL && j->set.resume != NULL) j->log = fopen(j->log_path, "w+b");
    if (j->log == NULL) return fail(BAD_INPUT, "%s %s: %s", j->set.log != NULL ? "--log" : "--out", j->log_path, strerror(errno));
    if (j->set.resume != NULL) {
        keep = log_replay(j, j->log);
        fflush(j->log);
        if (ftruncate(fileno(j->log), keep) != 0 || fseek(j->log, keep, SEEK_SET) != 0)
            return fail(FAILED, "cannot continue %s: %s", j->log_path, strerror(errno));
    }
    return 0;
}

static int write_curve(job *j) {
    char path[PATH_SIZE], title[PATH_SIZE + 100];
    write_target t;
    int status;
    const char *name = strrchr(j->set.data, '/');
    snprintf(title, sizeof title, "%s, %.3g M parameters, %lld tokens a step", name != NULL ? name + 1 : j->set.data,
             1e-6 * (double)j->memory.parameters, (long long)(j->feed.sequences * j->set.length));
    for (char *c = title; *c != 0; c++) { /* what is not UTF-8 would be no XML */
        const int size = utf8_length((const unsigned char *)c, 4);
        if (size < 1) *c = '?';
        else c += size - 1;
    }
    if (!path_join(path, sizeof path, j->out, "loss.svg")) return fail(BAD_INPUT, "--out: path too long");
    if ((status = target_open(&t, "--out", path)) != 0) return status;
    curve_svg(t.file, title, &j->training_curve, &j->validation_curve);
    return target_close(&t, 0);
}

/* ---- progress ----------------------------------------------------------------------------------------------------------- */

static void count_text(char *to, size_t capacity, double value) {
    long long n = (long long)(value + 0.5);
    if (n >= 1000000) snprintf(to, capacity, "%lld,%03lld,%03lld", n / 1000000, n / 1000 % 1000, n % 1000);
    else if (n >= 1000) snprintf(to, capacity, "%lld,%03lld", n / 1000, n % 1000);
    else snprintf(to, capacity, "%lld", n);
}

/* GFLOP/s of products on this process's processors. */
static double peak(const job *j, het_isa isa) {
    return product_gflops(j->threads, isa, j->set.reduce == HET_REDUCE_FAST, (het_dtype)j->set.dtype, 384, 384, 1536);
}

/* What a step's speed is held against: tokens are those of all processes, so their products are, too, measured at the same time. */
static int measure_peak(job *j) {
    int32_t told = !j->set.quiet || j->log != NULL, known = 1;
    double sum = 0;
    if (het_broadcast(j->ctx, 0, &told, sizeof told) != HET_OK) return fail(FAILED, "%s", het_last_error(j->ctx));
    if (!told) return 0;
    if (j->cards == 0) j->own_peak = peak(j, j->ranks.device[0].isa);
    for (int64_t p = 0; p < j->processes; p++) {
        double of = j->own_peak;
        if (het_broadcast(j->ctx, p, &of, sizeof of) != HET_OK) return fail(FAILED, "%s", het_last_error(j->ctx));
        known = known && of > 0, sum += of;
    }
    if (known) j->peak = sum;
    return 0;
}

static void show_devices(const job *j) {
    char name[64], size[16];
    het_memory memory;
    if (j->ranks.world == 1) {
        het_device_name(&j->ranks.device[0], name, sizeof name);
        printf("device   %s, %s", name, bytes_text((double)j->memory.device, size));
        if (saving_bytes(j) > 0) printf(", %s for saving", bytes_text((double)saving_bytes(j), size));
        if (j->peak > 0) printf("; product peak %.0f GFLOP/s, measured", j->peak);
        putchar('\n');
        return;
    }
    printf("plan     %s, schedule %s", j->set.plan != NULL ? j->set.plan : "dp",
           j->set.schedule != NULL ? j->set.schedule : j->ranks.plan->schedule);
    if (j->peak > 0 && j->processes > 1) printf("; product peak %.0f GFLOP/s of all processes, measured", j->peak);
    else if (j->peak > 0)
        printf("; product peak %.0f GFLOP/s of this process's %d thread%s, measured", j->peak, j->threads, j->threads > 1 ? "s" : "");
    putchar('\n');
    for (int64_t i = 0; i < j->ranks.devices; i++) {
        const het_device_desc *d = &j->ranks.device[i];
        het_get_memory(j->ctx, i, &memory);
        het_device_name(d, name, sizeof name);
        printf("rank %-3lld %s", (long long)i, name);
        if (d->speed > 0) printf("@%g", d->speed);
        printf(", %s\n", bytes_text((double)(memory.device + memory.communication), size));
    }
    if (saving_bytes(j) > 0) printf("saving   %s more in this process\n", bytes_text((double)saving_bytes(j), size));
    if (j->desc.layout.communicators.iface != NULL) printf("groups   of cards that reach each other: %s\n", j->desc.layout.communicators.iface->name);
}

static void show_configuration(const job *j) {
    const het_model_desc *m = &het_get_desc(j->ctx)->model;
    const settings *s = &j->set;
    static const char *const families[] = { "", "gpt2", "llama", "qwen2", "qwen3", "neox" };
    char parameters[32], tokens[32];
    if (s->quiet) return;
    count_text(parameters, sizeof parameters, (double)j->memory.parameters);
    count_text(tokens, sizeof tokens, (double)j->training.info.tokens);
    printf("model    %s: %lld layers, width %lld, %lld heads, vocabulary %lld, context %lld; %s parameters\n", families[m->family],
           (long long)m->layers, (long long)m->width, (long long)m->heads, (long long)m->vocab, (long long)m->context, parameters);
    if (s->lora > 0) {
        het_parameter_info info;
        double trained = 0;
        int64_t p;
        for (p = 0; het_parameter_get_info(j->ctx, p, &info) == HET_OK; p++) trained += info.frozen ? 0 : (double)info.count;
        count_text(parameters, sizeof parameters, trained);
        printf("adapter  rank %lld, alpha %g: %s parameters are trained, all others are frozen\n", (long long)m->lora_rank, (double)m->lora_alpha,
               parameters);
    }
    printf("data     %s: %s tokens, %lld windows to train on, %lld for validation\n", s->data, tokens, (long long)j->training.info.windows,
           (long long)j->validation.info.windows);
    if (j->scaled_from > 0) printf("scaling  weak: %lld micro-batches a step in place of %lld, for %lld ranks\n", (long long)s->micro_batches,
                                   (long long)j->scaled_from, (long long)j->ranks.world);
    printf("step     %lld x %lld sequences of %lld tokens", (long long)s->micro_batches, (long long)s->sequences, (long long)s->length);
    if (j->feed.micro_batches != s->micro_batches) {
        printf(", in %lld micro-batches of %s%lld granules", (long long)j->feed.micro_batches, j->feed.limited ? "at most " : "",
               (long long)j->feed.most);
        if (!j->feed.limited && j->feed.items % j->feed.most != 0) printf(", the last of %lld", (long long)(j->feed.items % j->feed.most));
    }
    printf("; %s%s, %s sums\n", s->dtype == HET_BF16 ? "bf16" : "f32", s->streams == HET_BF16 ? " and streams in it" : "",
           s->reduce == HET_REDUCE_EXACT ? "exact" : "fast");
    if (strchr(j->versions, '(') != NULL) printf("versions %s\n", j->versions);
    show_devices(j);
    if (s->dtype == HET_BF16 && s->reduce != HET_REDUCE_FAST && j->own_peak > 0 && j->ranks.device[0].isa == HET_ISA_AUTO) {
        const double registers = peak(j, HET_ISA_AMX);
        if (registers > 1.2 * j->own_peak) printf("hint     matrix registers (AMX): %.0f GFLOP/s with cpu:N:amx, and other bits\n", registers);
    }
    if (s->resume != NULL) printf("resume   %s, step %lld\n", j->saved->path, (long long)j->resumed_step);
    fflush(stdout);
}

/* One line: redrawn in place on a terminal at most ten times a second, else printed at the first step, at validations and at the end. */
static void show_progress(job *j, const het_step_info *info, double validation_loss, int important) {
    const settings *s = &j->set;
    double now = seconds_now(), tokens = (double)(j->feed.sequences * s->length), rate = j->step_seconds > 0 ? tokens / j->step_seconds : 0, left;
    int64_t done = het_get_step(j->ctx), evaluations = s->evaluate_every > 0 ? s->steps / s->evaluate_every - done / s->evaluate_every : 0;
    char line[200], speed[32], validation[32] = "     -", share[32] = "";
    if (s->quiet || (!important && (!j->terminal || now - j->shown_at < 0.1))) return;
    j->shown_at = now;
    left = j->step_seconds * (double)(s->steps - done) + j->evaluate_seconds * (double)evaluations;
    if (j->step_seconds > 0) count_text(speed, sizeof speed, rate);
    else snprintf(speed, sizeof speed, "-"); /* the plan has just changed */
    if (isfinite(validation_loss)) snprintf(validation, sizeof validation, "%.4f", validation_loss);
    if (j->peak > 0 && j->step_seconds > 0) {
        const double percent = 1e-7 * flops_per_token(j) * rate / j->peak;
        if (percent <= 100) snprintf(share, sizeof share, "  %2.0f %% of peak", percent);
        else snprintf(share, sizeof share, "   - %% of peak"); /* it was measured beside other programs */
    }
    snprintf(line, sizeof line, "step %5lld/%lld  loss %.4f  validation %s  %7s tokens/s%s  %lld:%02lld left", (long long)done, (long long)s->steps,
             info->loss, validation, speed, share, (long long)(left + 0.5) / 60, (long long)(left + 0.5) % 60);
    if (j->terminal) printf(j->colour ? "\r\033[36m%-100s\033[0m" : "\r%-100s", line);
    else printf("%s\n", line);
    j->line_open = j->terminal;
    fflush(stdout);
}

static void end_progress(job *j) {
    if (j->line_open) printf("\n");
    j->line_open = 0;
    fflush(stdout);
}

/* Process 0 gets the records of all others behind its own. */
static int gather_records(const job *j, het_record **record, int64_t *count) {
    int64_t more;
    int status = 0;
    if (j->process > 0) {
        if ((status = move_bytes(j, 0, -1, count, sizeof *count)) == 0) status = move_bytes(j, 0, -1, *record, (size_t)*count * sizeof **record);
        return status;
    }
    for (int64_t p = 1; p < j->processes && status == 0; p++) {
        het_record *grown;
        if ((status = move_bytes(j, -1, p, &more, sizeof more)) != 0) return status;
        grown = (het_record *)realloc(*record, (size_t)(*count + more + 1) * sizeof *grown);
        if (grown == NULL) return fail(FAILED, "out of memory");
        *record = grown;
        status = move_bytes(j, -1, p, grown + *count, (size_t)more * sizeof *grown);
        *count += more;
    }
    return status;
}

/* The last step of all ranks, in process 0. *record is to be freed. */
static int join_timelines(const job *j, het_timeline *all, het_record **record) {
    het_timeline one;
    int64_t count = 0;
    memset(all, 0, sizeof *all);
    for (int64_t i = 0; i < j->ranks.devices; i++) {
        het_get_timeline(j->ctx, i, &one);
        count += one.records;
    }
    *record = (het_record *)malloc((size_t)(count + 1) * sizeof **record);
    if (*record == NULL) return fail(FAILED, "out of memory");
    for (int64_t i = 0; i < j->ranks.devices; i++) {
        het_get_timeline(j->ctx, i, &one);
        if (one.records > 0) memcpy(*record + all->records, one.record, (size_t)one.records * sizeof **record);
        all->records += one.records;
        all->ranks = one.ranks;
    }
    if (j->processes > 1) {
        const int status = gather_records(j, record, &all->records);
        if (status != 0) return status;
    }
    all->record = *record;
    return 0;
}

/* ---- changes: ranks that become slower or faster, other plans ------------------------------------------------------------ */

/* STEP[xN]: of an item of a list; *rest is what follows. */
static int parse_change(const char *item, size_t length, planned_change *c, const char **rest) {
    long long step = 0, granules = 0;
    int end = 0;
    memset(c, 0, sizeof *c);
    if (sscanf(item, "%12lldx%9lld:%n", &step, &granules, &end) != 2 || end == 0) {
        granules = 0;
        if (sscanf(item, "%12lld:%n", &step, &end) != 1) end = 0;
    } else if (granules < 1) end = 0;
    if (end == 0 || (size_t)end > length || step < 1) return 0;
    c->step = step, c->granules = granules, c->rank = -1;
    *rest = item + end;
    return 1;
}

static int configure_change(job *j, const char *option_name, const char *list, const char *item, size_t length) {
    planned_change *grown = (planned_change *)realloc(j->change, (size_t)(j->changes + 1) * sizeof *grown), *c;
    const int slow = strcmp(option_name, "--slow") == 0;
    const char *rest;
    char digits[32];
    size_t left;
    if (grown == NULL) return fail(FAILED, "out of memory");
    j->change = grown;
    c = &grown[j->changes];
    if (!parse_change(item, length, c, &rest) || (slow && c->granules > 0))
        return fail(BAD_INPUT, "%s %s: %.*s: expected STEP: in front, as in 50:%s", option_name, list, (int)length, item,
                    slow ? "" : ", or STEPxN: with N granules a micro-batch, 1 or more, as in 50x2:");
    if (c->step > j->set.steps)
        return fail(BAD_INPUT, "%s %s: %.*s: the run ends with step %lld", option_name, list, (int)length, item, (long long)j->set.steps);
    left = length - (size_t)(rest - item);
    if (slow && layout_link(rest, left, &c->link)) {
        const het_link *l = j->ranks.link, *end = l + j->ranks.links;
        while (l < end && !(l->from == c->link.from && l->to == c->link.to) && !(l->from == c->link.to && l->to == c->link.from)) l++;
        if (l == end) return fail(BAD_INPUT, "--slow %s: %.*s: --links has no such link", list, (int)length, item);
        c->rank = c->link.from;
    } else if (slow) {
        const char *at = (const char *)memchr(rest, '@', left);
        long long rank = -1;
        snprintf(digits, sizeof digits, "%.*s", at != NULL ? (int)(left - (size_t)(at + 1 - rest)) : 0, at != NULL ? at + 1 : "");
        if (at == NULL || sscanf(rest, "%6lld@", &rank) != 1 || rank < 0 || rank >= j->ranks.world || !parse_real(digits, 1e-3, 1, &c->speed))
            return fail(BAD_INPUT, "--slow %s: %.*s: expected STEP:RANK@SPEED, a rank below %lld, a speed from 0.001 to 1, or "
                                   "STEP:A-B:LATENCY[:BYTES]", list, (int)length, item,
                        (long long)j->ranks.world);
        c->rank = rank;
    } else if (left == 0 || left >= sizeof c->spec) {
        return fail(BAD_INPUT, "--replan %s: %.*s: %s", list, (int)length, item, left == 0 ? "no plan behind the step" :
                                                         "the plan's name is too long");
    } else snprintf(c->spec, sizeof c->spec, "%.*s", (int)left, rest);
    j->changes++;
    return 0;
}

/* By step; those of one step stay as they were given, --slow first. */
static void sort_changes(job *j) {
    for (int64_t i = 1; i < j->changes; i++)
        for (int64_t k = i; k > 0 && j->change[k - 1].step > j->change[k].step; k--) {
            const planned_change later = j->change[k - 1];
            j->change[k - 1] = j->change[k], j->change[k] = later;
        }
}

/* A resumed run makes several at once, and must make them in the order of a run that never stopped. */
static int configure_changes(job *j) {
    const char *const names[] = { "--slow", "--replan" }, *const lists[] = { j->set.slow, j->set.replan };
    int status = 0;
    for (int i = 0; i < 2; i++) {
        const char *item = lists[i];
        while (item != NULL && status == 0) {
            const char *end = item + strcspn(item, ","), *rest; /* a comma may be part of a plan, as in 3:cp:2,1,5:dp */
            planned_change next;
            while (*end == ',' && !parse_change(end + 1, strlen(end + 1), &next, &rest)) end += 1 + strcspn(end + 1, ",");
            status = configure_change(j, names[i], lists[i], item, (size_t)(end - item));
            item = *end == ',' ? end + 1 : NULL;
        }
    }
    sort_changes(j);
    return status;
}

/* Reads the plans of --replan, and has the engine prove each of them, its lists and its memory, for this model and these devices. */
static int check_changes(job *j) {
    const int lists = j->set.schedule != NULL && ends_with(j->set.schedule, ".csv"); /* they were for another plan */
    het_desc d = j->desc;
    het_memory memory;
    het_error error = { HET_OK, "" };
    layout *other = (layout *)calloc(1, sizeof *other);
    int64_t most = j->feed.most;
    int status = other != NULL ? 0 : fail(FAILED, "out of memory");
    for (int64_t i = 0; i < j->changes && status == 0; i++) {
        planned_change *c = &j->change[i];
        if (c->rank >= 0) continue;
        status = layout_plan(other, "--replan", c->spec, lists ? NULL : j->set.schedule, &d.model, j->ranks.world, j->set.slices, j->set.store,
                             j->set.recompute == 1 + HET_RECOMPUTE_STAGE);
        if (status != 0) break;
        complete_plan(j, other->plan);
        d.layout.plan = c->plan = other->plan, d.layout.schedule = NULL;
        if (c->granules == 0 && c->plan->step.sequences == j->feed.item_sequences) c->granules = c->plan->step.micro_batch;
        if (c->granules > 0) most = c->granules < j->feed.items ? c->granules : j->feed.items;
        if ((status = check_slices(j, "--replan", c->plan->slices, most)) != 0) break;
        limit_micro_batches(j, &d.limits, c->plan, most);
        if (het_memory_estimate(&d, 0, &memory, &error) == HET_OK) status = set_versions(j, c->plan, NULL, d.limits.max_micro_batches);
        else status = fail(status_of(error.code), "--replan %lld:%s: %s", (long long)c->step, c->spec, error.text);
    }
    free(other);
    return status;
}

/* Tells the adaptation of the plan in use. Only process 0 has one. */
static int start_adapting(job *j) {
    het_adapt_desc desc;
    het_error error = { HET_OK, "" };
    het_result result = HET_OK;
    if (j->set.adapt <= 0 || j->process > 0) return 0;
    memset(&desc, 0, sizeof desc);
    desc.search = &j->planner->search, desc.change = j->set.adapt, desc.only_shares = j->set.adapt_shares ? HET_YES : HET_NO;
    desc.frequency = j->clock;
    if (j->adapt == NULL) result = het_adapt_create(&desc, &j->adapt, &error);
    if (result == HET_OK) result = het_adapt_start(j->adapt, het_get_desc(j->ctx)->layout.plan, j->feed.most, &error);
    return result == HET_OK ? 0 : fail(BAD_INPUT, "--adapt: %s", error.text);
}

/* The context goes over to j->ranks.plan with `granules` items a micro-batch; `why` goes to the log and the screen. */
static int go_over(job *j, int64_t granules, const char *why) {
    het_replan_desc to;
    double start = seconds_now();
    int status = group_items(j, j->ranks.plan, granules);
    if (status != 0) return status;
    memset(&to, 0, sizeof to);
    to.plan = j->ranks.plan, to.schedule = j->ranks.schedule;
    to.max_sequences = j->feed.most * j->feed.item_sequences, to.max_tokens = to.max_sequences * j->feed.length;
    to.max_micro_batches = j->feed.micro_batches;
    if (het_replan(j->ctx, &to) != HET_OK) {
        end_progress(j);
        return fail(BAD_INPUT, "step %lld: %s: %s", (long long)het_get_step(j->ctx) + 1, why, het_last_error(j->ctx));
    }
    if ((status = start_adapting(j)) != 0 || (status = set_versions(j, to.plan, to.schedule, j->feed.micro_batches)) != 0) return status;
    warn_idle(j, strncmp(why, "--replan", 8) != 0);
    if (j->log != NULL) {
        fprintf(j->log, "{\"event\":\"replan\",\"before_step\":%lld,\"micro_batches\":%lld,\"granules\":%lld,\"schedule\":\"%s\",\"why\":",
                (long long)het_get_step(j->ctx) + 1, (long long)j->feed.micro_batches, (long long)j->feed.most,
                het_get_desc(j->ctx)->layout.plan->schedule);
        write_json_string(j->log, why);
        log_number(j->log, "ms", 1e3 * (seconds_now() - start));
        fprintf(j->log, "}\n");
        fflush(j->log);
    }
    j->step_seconds = 0;
    if (j->set.quiet) return 0;
    end_progress(j);
    printf("replan   before step %lld, in %.0f ms: %s; %lld micro-batches of %lld granules\n", (long long)het_get_step(j->ctx) + 1,
           1e3 * (seconds_now() - start), why, (long long)j->feed.micro_batches, (long long)j->feed.most);
    fflush(stdout);
    return 0;
}

static int make_change(job *j, planned_change *c) {
    char why[PATH_SIZE + 32];
    if (c->rank >= 0) {
        int64_t local = c->rank - j->first_rank;
        if (c->speed == 0) /* links are emulated where there is one process */
            return het_set_link(j->ctx, &c->link) == HET_OK ? 0 : fail(BAD_INPUT, "--slow: %s", het_last_error(j->ctx));
        if (local < 0 || local >= j->ranks.devices) return 0;
        return het_set_speed(j->ctx, local, c->speed) == HET_OK ? 0 : fail(BAD_INPUT, "--slow: %s", het_last_error(j->ctx));
    }
    layout_free(&j->ranks);
    j->ranks.plan = c->plan, c->plan = NULL;
    snprintf(why, sizeof why, "--replan %s", c->spec);
    return go_over(j, c->granules > 0 ? c->granules : j->feed.most, why);
}

/* What process 0 decides behind a step, as the others get it. */
typedef struct decision { int64_t length, granules; int32_t failed; char why[256]; } decision;

/* One line about what was seen but changes nothing. */
static void tell_kept(job *j, const char *why) {
    if (j->log != NULL) {
        fprintf(j->log, "{\"event\":\"kept\",\"before_step\":%lld,\"why\":", (long long)het_get_step(j->ctx) + 1);
        write_json_string(j->log, why);
        fprintf(j->log, "}\n");
        fflush(j->log);
    }
    if (j->set.quiet) return;
    end_progress(j);
    printf("kept     before step %lld: %s\n", (long long)het_get_step(j->ctx) + 1, why);
}

/* Process 0 holds the last step against what was expected and perhaps has advice, as text in *g. */
static int decide(job *j, const het_timeline *all, decision *d, grown_text *g) {
    het_error error = { HET_OK, "" };
    het_advice *advice = NULL;
    const het_writer writer = grown_writer(g, "plan");
    het_result result = het_adapt_observe(j->adapt, all, &error);
    if (result == HET_OK) result = het_adapt_advise(j->adapt, &advice, &error);
    if (result == HET_OK && advice != NULL && advice->plan != NULL) result = het_plan_write(advice->plan, &writer);
    if (result == HET_OK && advice != NULL) {
        d->length = (int64_t)g->length, d->granules = advice->granules;
        snprintf(d->why, sizeof d->why, "%s", advice->text);
    }
    het_advice_free(advice);
    return result == HET_OK ? 0 : fail(FAILED, "--adapt: %s", error.text);
}

/* --adapt behind a step. */
static int adapt(job *j) {
    het_timeline all;
    het_record *record = NULL;
    het_plan_desc desc;
    het_error error = { HET_OK, "" };
    het_plan *before = j->ranks.plan;
    decision d;
    grown_text g;
    int status;
    memset(&d, 0, sizeof d);
    memset(&g, 0, sizeof g);
    memset(&desc, 0, sizeof desc);
    if ((status = join_timelines(j, &all, &record)) == 0 && j->process == 0) status = decide(j, &all, &d, &g);
    free(record);
    d.failed = status;
    if (het_broadcast(j->ctx, 0, &d, sizeof d) != HET_OK && status == 0) status = fail(FAILED, "--adapt: %s", het_last_error(j->ctx));
    if (status == 0 && d.failed) status = FAILED;
    if (status == 0 && j->process > 0 && d.length > 0 && (g.text = (char *)malloc((size_t)d.length + 1)) == NULL)
        status = fail(FAILED, "out of memory");
    if (status == 0 && d.length > 0 && het_broadcast(j->ctx, 0, g.text, (size_t)d.length) != HET_OK)
        status = fail(FAILED, "--adapt: %s", het_last_error(j->ctx));
    desc.units = model_units(&j->desc.model), desc.ranks = j->ranks.world;
    if (status == 0 && d.length == 0 && d.why[0] != 0 && j->process == 0) tell_kept(j, d.why);
    if (status == 0 && d.length > 0) {
        j->ranks.plan = NULL;
        if (het_plan_read(&desc, g.text, (size_t)d.length, &j->ranks.plan, &error) != HET_OK) status = fail(FAILED, "--adapt: %s", error.text);
        het_schedule_free(j->ranks.schedule);
        j->ranks.schedule = NULL;
        if (status == 0) status = go_over(j, d.granules, d.why);
        if (j->ranks.plan != before) het_plan_free(before);
    }
    free(g.text);
    return status;
}

/* What the options say is due before the next step; after a resume also what was due before. */
static int make_changes(job *j) {
    const int64_t next = het_get_step(j->ctx) + 1;
    int status = 0;
    for (int64_t i = 0; i < j->changes && status == 0; i++) {
        planned_change *c = &j->change[i];
        if (c->step == 0 || c->step > next) continue;
        status = make_change(j, c);
        c->step = 0; /* done */
    }
    return status;
}

/* ---- the loop ----------------------------------------------------------------------------------------------------------- */

/* Mean loss over --evaluate-batches micro-batches, always the same ones: windows held out of --data, or of --val. NaN if there are none. A step's
   sequences at a time, so that the sum does not depend on how they are grouped. */
static int evaluate(job *j, double *loss) {
    double total = 0, weight = 0, start = seconds_now();
    int64_t tokens = 0, count, most = j->set.evaluate_batches * j->set.sequences;
    het_step_info info;
    het_batch batch;
    het_error error = { HET_OK, "" };
    *loss = (double)NAN;
    if (j->set.val != NULL && j->validation.info.windows < most) most = j->validation.info.windows; /* then each of them once */
    for (int64_t i = 0; i * j->feed.sequences < most; i++) {
        const int64_t left = most - i * j->feed.sequences;
        het_result result = j->set.val != NULL ? het_data_batch(j->validation.data, i, 0, 1, 0, &batch, &error)
                                               : het_data_held_out(j->validation.data, i * j->feed.sequences, &batch, &error);
        if (result != HET_OK) return fail(status_of(result), "%s", error.text);
        if (batch.tokens == 0) break;
        count = feed_cut(&j->feed, &batch, batch.sequences < left ? batch.sequences : left);
        result = het_evaluate(j->ctx, j->feed.batch, count, &info);
        if (result != HET_OK) return fail(status_of(result), "%s", het_last_error(j->ctx));
        total += info.loss * info.weight, weight += info.weight, tokens += info.tokens;
    }
    if (weight <= 0) return 0;
    *loss = total / weight;
    j->evaluate_seconds = seconds_now() - start;
    log_validation(j, *loss, tokens);
    return 0;
}

static int open_meter(job *j) {
    het_error error = { HET_OK, "" };
    const het_result result = power_open(&j->meter, j->set.power, j->threads, &error);
    if (result != HET_OK) return fail(status_of(result), "--power %s: %s", j->set.power, error.text);
    if (j->meter.why[0] != 0) fail(0, "warning: --power %s: no watts and no tokens_per_joule: %s", j->set.power, j->meter.why);
    return 0;
}

/* --power behind a step: what every process reads, for all. A machine's joules are told by the first of its processes. Cards are not read: where
   there is one, joules and its clock are not known. */
static int read_power(job *j) {
    struct { double joules, mhz; uint64_t machine; } own, of[LAYOUT_RANKS];
    int64_t p, k;
    memset(&own, 0, sizeof own);
    if (j->set.power == NULL) return 0;
    own.joules = j->cards > 0 ? (double)NAN : power_joules(&j->meter), own.mhz = power_mhz(&j->meter), own.machine = j->meter.machine;
    for (p = 0, j->joules = 0; p < j->processes; p++) {
        of[p] = own;
        if (het_broadcast(j->ctx, p, &of[p], sizeof of[p]) != HET_OK) return fail(FAILED, "--power: %s", het_last_error(j->ctx));
        for (k = 0; k < p && (of[k].machine != of[p].machine || of[k].machine == 0); k++) {}
        if (k == p) j->joules += of[p].joules;
        j->mhz[p] = of[p].mhz;
    }
    for (k = 0; k < j->ranks.world; k++) {
        const het_device_iface *iface = j->ranks.all[k].iface;
        j->clock[k] = iface == NULL || iface->host_memory ? j->mhz[j->ranks.process_of[k]] : 0;
    }
    return 0;
}

static int one_step(job *j, het_step_info *info) {
    het_error error = { HET_OK, "" };
    het_result result;
    het_batch all;
    int64_t step = het_get_step(j->ctx), count;
    double start = seconds_now(), seconds, waited;
    int status;
    (void)power_joules(&j->meter); /* what was between steps does not count */
    result = loader_take(&j->loader, step, &all, &error);
    waited = seconds_now() - start;
    if (result != HET_OK) {
        const char *cut = mix_cut(&j->training.mix);
        return fail(status_of(result), "--data: %s%s%s", error.text, cut[0] != 0 ? "; cut off: " : "", cut);
    }
    count = feed_cut(&j->feed, &all, j->feed.sequences);
    result = het_step(j->ctx, j->feed.batch, count, info);
    if (result != HET_OK) {
        end_progress(j);
        if (strstr(het_last_error(j->ctx), "step ") != NULL) return fail(result == HET_ERR_DATA ? BAD_INPUT : FAILED, "%s", het_last_error(j->ctx));
        return fail(result == HET_ERR_DATA ? BAD_INPUT : FAILED, "step %lld: %s", (long long)step + 1, het_last_error(j->ctx));
    }
    if (j->sea.outer != NULL && islands_step(&j->sea, j->ctx, step + 1, info->tokens) != HET_OK) {
        end_progress(j);
        return fail(FAILED, "step %lld: --islands: %s", (long long)step + 1, het_outer_error(j->sea.outer));
    }
    seconds = seconds_now() - start;
    if (j->step_seconds <= 0 || step <= j->resumed_step + 1) j->step_seconds = seconds; /* the first step is measured twice: not typical */
    else j->step_seconds += 0.05 * (seconds - j->step_seconds);
    if ((status = read_power(j)) == 0) log_step(j, info, seconds, waited);
    return status;
}

/* A signal to any process stops all of them before the same step: process 0 decides. */
static int stop_now(job *j, int *stop) {
    int32_t asked = stop_seen(&j->stop);
    if (het_broadcast(j->ctx, 0, &asked, sizeof asked) != HET_OK) return fail(FAILED, "%s", het_last_error(j->ctx));
    *stop = asked;
    return 0;
}

static int train(job *j) {
    const settings *s = &j->set;
    het_step_info info;
    double validation_loss = (double)NAN;
    int status = 0, stop = 0;
    memset(&info, 0, sizeof info);
    if (j->sea.outer != NULL && het_get_step(j->ctx) == s->steps) status = end_islands(j); /* no last step is to come */
    while (status == 0 && het_get_step(j->ctx) < s->steps) {
        int64_t done;
        int last, due;
        if ((status = stop_now(j, &stop)) != 0 || stop) break;
        if ((status = make_changes(j)) != 0) break;
        status = one_step(j, &info);
        if (status == 0 && s->adapt > 0 && het_get_step(j->ctx) < s->steps) status = adapt(j);
        if (status != 0 || j->sea.waits) break;
        done = het_get_step(j->ctx);
        last = done == s->steps;
        due = last || (s->evaluate_every > 0 && done % s->evaluate_every == 0);
        if (s->verify > 0 && done % s->verify == 0 && (status = verify(j)) != 0) break;
        if (last && j->sea.outer != NULL) status = end_islands(j);
        if (status == 0 && due && !j->sea.waits) status = evaluate(j, &validation_loss);
        if (status == 0) show_progress(j, &info, validation_loss, due || done == j->resumed_step + 1);
        if (status == 0 && s->checkpoint_every > 0 && done % s->checkpoint_every == 0) status = save(j);
    }
    end_progress(j);
    return status;
}

static int write_timelines(const job *j) {
    const settings *s = &j->set;
    het_timeline all;
    het_record *record = NULL;
    int status;
    if (s->trace == NULL && s->timeline == NULL) return 0;
    status = join_timelines(j, &all, &record);
    if (status == 0 && j->process == 0) {
        if (s->trace != NULL) status = write_text(s->trace, "--trace", write_trace, j, &all);
        if (status == 0 && s->timeline != NULL) status = write_text(s->timeline, "--timeline", write_picture, j, &all);
    }
    free(record);
    return status;
}

/* The tokenizer and what transformers keeps beside it go into a directory, so that it can be used by itself. */
static int copy_tokenizer(const job *j, const char *option_name, const char *directory) {
    char path[PATH_SIZE];
    const int status = kept_write(&j->files, option_name, directory);
    if (status != 0 || j->tokenizer == NULL) return status;
    if (!path_join(path, sizeof path, directory, "tokenizer.json")) return fail(BAD_INPUT, "%s: path too long", option_name);
    return write_tokenizer(option_name, path, j->tokenizer);
}

/* Memory from what was reserved, which comes back as a whole. */
static void *export_alloc(void *user, size_t size, size_t align) {
    job *j = (job *)user;
    const size_t at = (j->export_used + align - 1) / align * align;
    if (at > j->export_bytes || size > j->export_bytes - at) return NULL;
    j->export_used = at + size;
    return (char *)j->export_memory + at;
}
static void export_free(void *user, void *pointer, size_t size) { (void)user, (void)pointer, (void)size; }

/* --export: what process 0 writes, every process helps to read. */
static int export_weights(job *j) {
    static const het_element elements[] = { HET_ELEMENT_F32, HET_ELEMENT_F16, HET_ELEMENT_BF16 };
    filled_folder filled;
    const het_folder folder = filled_open(&filled, j->set.export_to);
    het_save_desc desc;
    het_allocator memory;
    het_result result;
    char why[128];
    memset(&desc, 0, sizeof desc);
    desc.element = elements[j->set.save_dtype - 1];
    memory.alloc = export_alloc, memory.free = export_free, memory.user = j;
    desc.allocator = &memory, desc.base = j->files.config, desc.base_length = j->files.config_length;
    if (j->set.overwrite && j->export_folder.lock[0] != 0) folder_clear(j->set.export_to, 0);
    result = het_save_folder(j->ctx, j->process == 0 ? &folder : NULL, &desc);
    if (result != HET_OK) return fail(FAILED, "--export: %s%s", het_last_error(j->ctx), filled_why(&filled, why, sizeof why));
    return j->process == 0 ? copy_tokenizer(j, "--export", j->set.export_to) : 0;
}

/* Processes that were started with variables of their own: the first word of them. NULL: a launcher or --world did it. */
static const char *own_variables(const job *j) {
    if (strcmp(j->launch.launcher, "hetrain") == 0) return "HETRAIN_RANK";
    return strcmp(j->launch.launcher, "torchrun") == 0 && getenv("TORCHELASTIC_RUN_ID") == NULL ? "RANK" : NULL;
}

/* What stands before the program's name to start all processes again. */
static void print_launch(const job *j) {
    const char *launcher = j->launch.launcher, *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    const long long n = (long long)j->processes, here = (long long)j->launch.local_size;
    if (j->processes == 1 || j->set.world != NULL) return;
    if (own_variables(j) != NULL)
        printf("%s=0 %s=%lld MASTER_ADDR=%s MASTER_PORT=%s ", own_variables(j), strcmp(launcher, "hetrain") == 0 ? "HETRAIN_SIZE" : "WORLD_SIZE", n,
               host != NULL ? host : "", port != NULL ? port : "");
    else if (strcmp(launcher, "torchrun") == 0 && (here == 0 || here == n)) printf("torchrun --nproc-per-node %lld --no-python ", n);
    else if (strcmp(launcher, "torchrun") == 0)
        printf("torchrun --nnodes %lld --nproc-per-node %lld --node-rank 0 --master-addr %s --no-python ", n / here, here, host);
    else if (strcmp(launcher, "Slurm") == 0) printf("srun -n %lld ", n);
    else printf("mpirun -n %lld ", n);
}

/* The command that goes on after a stop: how many processes, and the options that no checkpoint keeps; behind # what the other processes need. */
static void print_way_on(const job *j) {
    static const char *const names[] = { "--islands", "--island-world", "--world", "--world-secret", "--insecure-world", "--devices", "--links",
                                         "--slow", "--plan", "--schedule", "--memory-limit", "--replan", "--adapt", "--adapt-shares", "--profile",
                                         "--plan-seconds", "--export", "--save-dtype", "--power" };
    const char *world = j->set.world, *launcher = j->launch.launcher;
    char buffer[64];
    printf("continue with: ");
    print_launch(j);
    print_word(j->program);
    printf(" --resume ");
    print_word(j->out);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const int at = option_find(options, OPTIONS, names[i], strlen(names[i]));
        if (!j->given[at] || (i == 0 && j->set.islands == 0)) continue; /* a checkpoint says that there were none */
        printf(options[at].kind == OPTION_FLAG ? " %s" : " %s ", names[i]);
        if (options[at].kind != OPTION_FLAG) print_word(option_text(&j->set, &options[at], buffer, sizeof buffer));
    }
    if (j->set.export_to != NULL) printf(" --overwrite"); /* what was exported at the stop lies there */
    if (j->sea.count > 1) printf(" # and the other islands, each from its own --out%s", j->processes > 1 ? ", in all their processes" : "");
    else if (world != NULL && j->processes > 1) printf(" # the others: --world 1%s%s", strchr(world, '/'), j->processes > 2 ? ", 2/..., ..." : "");
    else if (j->processes > 1 && own_variables(j) != NULL) printf(" # the others: %s=1%s", own_variables(j), j->processes > 2 ? ", 2, ..." : "");
    else if (strcmp(launcher, "torchrun") == 0 && j->launch.local_size > 0 && j->launch.local_size < j->processes)
        printf(" # on the other machines --node-rank 1, ...");
    printf("\n");
}

static int finish(job *j) {
    int64_t done = het_get_step(j->ctx);
    const int stopped = done < j->set.steps || j->sea.waits;
    uint64_t hash;
    int status = 0;
    if (j->out[0] != 0) status = save(j); /* whatever becomes of the rest */
    if (status == 0 && j->out[0] != 0 && j->process == 0 && (status = saver_export(&j->save)) == 0) status = write_curve(j);
    if (status == 0) status = write_timelines(j);
    if (status == 0 && j->set.export_to != NULL) status = export_weights(j);
    if (status != 0) return status;
    if (j->out[0] != 0) {
        if (j->process > 0) return j->set.hash && het_hash(j->ctx, &hash) != HET_OK ? fail(FAILED, "%s", het_last_error(j->ctx)) : 0;
        if (stopped) {
            printf("stopped after step %lld of %lld; ", (long long)done, (long long)j->set.steps);
            print_way_on(j);
        } else if (!j->set.quiet)
            printf("wrote    %s: step-%08lld %s config.json log.jsonl loss.svg\n", j->out, (long long)done,
                   j->set.lora > 0 ? "adapter_model.safetensors adapter_config.json" : "model.safetensors");
    } else if (stopped) {
        return fail(FAILED, "stopped after step %lld of %lld; %s was saved (no --out)", (long long)done, (long long)j->set.steps,
                    j->set.export_to != NULL ? "nothing but what --export asks for" : "nothing");
    }
    if (j->set.hash) {
        if (het_hash(j->ctx, &hash) != HET_OK) return fail(FAILED, "%s", het_last_error(j->ctx));
        if (j->process == 0) printf("weights %016llx\n", (unsigned long long)hash);
    }
    return 0;
}

/* A file that can be read no longer ends a run, and costs none of its steps. Several processes would have to know of it together. */
static void save_the_trained(job *j) {
    const int64_t done = het_get_step(j->ctx);
    if (j->processes > 1 || j->sea.outer != NULL || j->out[0] == 0 || done == j->resumed_step || het_last_error(j->ctx)[0] != 0) return;
    if (save(j) == 0 && saver_wait(&j->save) == 0) fail(0, "step %lld is saved in %s", (long long)done, j->out);
}

/* Of --world's processes those on this machine, which a launcher would have counted: they have its boot's number, or its name. */
static int count_local(job *j) {
    char text[256] = "";
    uint64_t name[LAYOUT_RANKS];
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    int status = 0;
    if (f == NULL || fgets(text, sizeof text, f) == NULL) (void)gethostname(text, sizeof text - 1);
    if (f != NULL) fclose(f);
    if (j->set.world == NULL || j->processes < 2 || j->processes > LAYOUT_RANKS) return 0;
    name[j->process] = het_xxh64(text, strlen(text), 0);
    for (int64_t p = 1; p < j->processes && status == 0; p++)
        if (j->process == 0 || j->process == p) status = move_bytes(j, j->process > 0 ? 0 : -1, p, &name[p], sizeof *name);
    for (int64_t p = 1; p < j->processes && status == 0; p++)
        if (j->process == 0 || j->process == p) status = move_bytes(j, j->process > 0 ? -1 : p, 0, name, (size_t)j->processes * sizeof *name);
    for (int64_t p = 0; p < j->processes && status == 0; p++) j->launch.local_size += name[p] == name[j->process];
    return status;
}

/* It is no file of a directory that is read or filled, but for the log of --out. */
static int check_place(const job *j, const named_path *to) {
    const settings *s = &j->set;
    const folder_input read[] = { { "--init", s->init, 0 }, { "--init-adapter", s->init_adapter, 0 },
                                  { "--resume", j->saved != NULL ? j->saved->path : NULL, 0 } };
    const named_path filled[] = { { s->out != NULL ? "--out" : "--resume", j->out }, { "--export", s->export_to } };
    const int is_log = to->path != NULL && strcmp(to->option, "--log") == 0 && ends_with(to->path, "log.jsonl");
    struct stat about;
    for (int i = 0; i < 3 - is_log && to->path != NULL && stat(to->path, &about) == 0; i++)
        if (is_input(&read[i], &about)) return fail(BAD_INPUT, "%s %s: is a file of %s %s", to->option, to->path, read[i].option, read[i].path);
    for (int i = 0; i < 2 && to->path != NULL; i++) {
        if (!is_log && is_own_file(filled[i].path, to->path))
            return fail(BAD_INPUT, "%s %s: %s %s writes a file of that name", to->option, to->path, filled[i].option, filled[i].path);
    }
    return 0;
}

/* Process 0: what it is to write can be written, and is nothing that it reads, or writes already. */
static int check_targets(const job *j) {
    const settings *s = &j->set;
    const named_path reads[] = { { "--data", s->data }, { "--val", s->val }, { "--init", j->weights }, { "--model", s->model },
                                 { "--tokenizer", s->tokenizer }, { "--schedule", s->schedule },
                                 { "--world-secret", s->world_secret },
                                 { "--plan", same_file(s->plan, s->save_plan) ? NULL : s->plan } }; /* --save-plan may write it again */
    named_path writes[WRITTEN];
    char beside[2][1200];
    int status = 0;
    written(s, writes, beside);
    for (int i = 0; i < WRITTEN && status == 0; i++) {
        if (i > 0) status = target_check(writes[i].option, writes[i].path);
        if (status == 0) status = check_place(j, &writes[i]);
    }
    if (status == 0) status = targets_spare_list(writes, WRITTEN, "--profile", s->profile);
    for (int64_t i = 0; i < j->changes && status == 0; i++) {
        const named_path plan = { "--replan", j->change[i].spec };
        status = targets_differ(writes, WRITTEN, &plan, 1);
    }
    return status == 0 ? targets_differ(writes, WRITTEN, reads, sizeof reads / sizeof *reads) : status;
}

/* Whether this island waits for others no longer: one of its processes got a signal, has failed, or is gone. */
static int island_is_stopped(void *user) {
    job *j = (job *)user;
    const het_transport *t = &j->transport;
    for (int64_t p = 1; p < j->processes; p++)
        if (t->iface->aborted(t->self, NULL, NULL, 0) != HET_OK || t->iface->silence(t->self, p) > 1e300) return 1;
    return stop_seen(&j->stop);
}

/* From now on the transport is what is between islands, and this process is all of one. */
static void become_island(job *j) {
    j->sea.count = j->processes, j->sea.island = j->process;
    j->sea.transport = j->transport;
    memset(&j->transport, 0, sizeof j->transport);
    j->launch.launcher = ""; /* but how many share this machine stays */
    j->processes = 1, j->process = 0;
    program_is_mute = 0;
}

/* Where there are steps to come all meet before anything is loaded, so that nobody waits for an island that only reads its data. Those that follow
   hear of it as they agree, where process 0 hears why it was stopped. */
static int meet_islands(job *j) {
    het_error error = { HET_OK, "" };
    het_result result = HET_OK;
    if (j->set.islands > 0 && j->sea.place.processes > 1 && j->set.steps > j->resumed_step && !j->sea.follows) result = islands_meet(&j->sea, &error);
    return result == HET_OK || result == HET_ERR_CANCELLED ? 0 : fail(status_of(result), "%s", error.text);
}

static int join_islands(job *j) {
    const settings *s = &j->set;
    het_outer_desc desc;
    het_error error = { HET_OK, "" };
    het_result result;
    int status;
    memset(&desc, 0, sizeof desc);
    desc.rate = (float)s->outer_lr, desc.momentum = s->outer_momentum > 0 ? (float)s->outer_momentum : -1.0f;
    desc.fragments = s->island_fragments, desc.bits = s->island_bits, desc.pace = (int64_t)(1e6 * s->island_seconds + 0.5);
    if (s->islands % s->island_fragments != 0 || s->steps % s->islands != 0)
        return fail(BAD_INPUT, "--islands %lld: wants --steps %lld to be a multiple of it, and itself of --island-fragments %lld",
                    (long long)s->islands, (long long)s->steps, (long long)s->island_fragments);
    if (s->island_seconds > 0 && desc.pace == 0) return fail(BAD_INPUT, "--island-seconds %g: below a microsecond", s->island_seconds);
    j->sea.every = s->islands / s->island_fragments;
    if (j->saved != NULL && (status = islands_load(&j->sea, j->saved, s->force_resume != 0)) != 0) return status;
    result = islands_start(&j->sea, &desc, j->ctx, s->steps, &error);
    if (result != HET_OK && desc.pace == 0 && strstr(error.text, "other settings") != NULL)
        return fail(status_of(result), "--islands: %s; --steps / --islands must be equal, too", error.text);
    return result == HET_OK ? 0 : fail(status_of(result), "--islands: %s%s", error.text, of_two_kinds(error.text));
}

/* --overwrite: what another run left goes away. */
static int prepare_out(job *j) {
    const settings *s = &j->set;
    int status = 0;
    if (j->process > 0) return 0;
    if (j->out[0] != 0 && !s->overwrite && !j->goes_on) status = kept_spares(&j->files, j->tokenizer, "--out", j->out);
    if (status == 0 && s->export_to != NULL && !s->overwrite && !same_file(s->export_to, j->out))
        status = kept_spares(&j->files, j->tokenizer, "--export", s->export_to);
    if (status != 0 || j->out[0] == 0) return status;
    if (s->overwrite && !j->goes_on) folder_clear(j->out, 1);
    return copy_tokenizer(j, "--out", j->out);
}

static int run(job *j, int argc, char **argv) {
    settings *s = &j->set;
    int status = configure_options(j, argc, argv);
    if (status >= 0) return status;
    if (j->process > 0) s->quiet = 1;
    if ((status = meet_islands(j)) != 0 || (status = count_local(j)) != 0 || (status = configure_devices(j)) != 0 ||
        (status = configure_model(j)) != 0 || (status = configure_changes(j)) != 0) return status;
    if (j->process == 0 && (status = check_targets(j)) != 0) return status;
    if ((status = check_idle_options(j)) != 0 || (status = scale(j)) != 0) return status;
    if ((status = feed_start(&j->feed, s->micro_batches, s->sequences, s->length, s->granule)) != 0) return status;
    if ((status = open_source(j, &j->training, "--data", s->data, s->val != NULL ? -1.0f : 0.05f)) != 0) return status;
    j->data_fingerprint = j->training.hashed.hash;
    if (j->saved != NULL && (status = check_data(j)) != 0) return status;
    if (s->val != NULL) {
        if ((status = open_source(j, &j->validation, "--val", s->val, -1.0f)) != 0) return status;
        j->validation_fingerprint = j->validation.hashed.hash;
    } else {
        j->validation.data = j->training.data;
        j->validation.info.windows = j->training.info.held_out;
    }
    if ((status = agree(j, collect_terms)) != 0 || (status = configure_context(j)) != 0 || s->steps == 0) return status;
    if (s->resume != NULL && (status = resume(j)) != 0) return status;
    if (s->steps < j->resumed_step)
        fail(0, "warning: --steps %lld: the saved run is at step %lld already, nothing is trained", (long long)s->steps, (long long)j->resumed_step);
    if (s->islands > 0 && (status = join_islands(j)) != 0) return status;
    if (s->power != NULL && (status = open_meter(j)) != 0) return status;
    if ((status = reserve_saving(j)) != 0 || (status = prepare_out(j)) != 0 || (status = open_log(j)) != 0 ||
        (status = measure_peak(j)) != 0) return status;
    j->terminal = isatty(STDOUT_FILENO);
    j->colour = getenv("NO_COLOR") == NULL;
    show_configuration(j);
    log_configuration(j);
    if (!loader_start(&j->loader, j->training.data, j->training.threads, het_get_step(j->ctx), s->steps))
        return fail(FAILED, "--loaders %lld: out of memory", (long long)s->loaders);
    if ((status = stop_start(&j->stop, &j->transport, j->processes, j->process)) == 0) status = train(j);
    loader_end(&j->loader);
    if (status == BAD_INPUT) save_the_trained(j);
    if (status == 0) status = finish(j);
    j->finished = status == 0;
    return status;
}

/* ---- several processes ---------------------------------------------------------------------------------------------------- */

/* The value of an option that counts before all options are read. */
static const char *early_option(int argc, char **argv, const char *name) {
    const size_t length = strlen(name);
    const char *value = NULL;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], name, length) != 0) continue;
        if (argv[i][length] == '=') value = argv[i] + length + 1;
        else if (argv[i][length] == 0 && i + 1 < argc) value = argv[++i];
    }
    return value;
}

/* A connection that was dropped while the processes met. */
static void on_meeting(void *user, het_log_level level, het_result code, const char *text) {
    (void)user, (void)level, (void)code;
    fail(0, "%s", text);
}

/* Over TCP where --world or a launcher says where process 0 is. Otherwise, and under launchers of MPI, over MPI where that is built in. */
static het_result find_place(job *j, int *argc, char ***argv, const char *world, connect_place *place, het_error *error) {
    het_result result;
    memset(place, 0, sizeof *place);
    j->launch.launcher = "";
    if (world != NULL) {
        result = connect_parse("--world", world, place, error);
        j->launch.size = place->processes;
        return result;
    }
    result = het_launch_detect(&j->launch, error);
#ifdef HETRAIN_MPI
    if (result == HET_OK && (strcmp(j->launch.launcher, "torchrun") == 0 || strcmp(j->launch.launcher, "hetrain") == 0))
        result = connect_detect(&j->launch, place, error);
    if (place->processes == 0) {
        het_error of_mpi = { HET_OK, "" };
        if (het_mpi_open(argc, argv, NULL, &j->transport, &of_mpi) != HET_OK) return het_error_put(error, HET_ERR_TRANSPORT, of_mpi.text);
        program_is_mute = j->transport.iface->process(j->transport.self) > 0;
    }
#else
    (void)argc, (void)argv;
    if (result == HET_OK) result = connect_detect(&j->launch, place, error);
#endif
    return result;
}

/* A launcher that started several processes must find them connected: else each would train, and write, for itself. */
static int open_transport(job *j, int *argc, char ***argv) {
    const char *world = early_option(*argc, *argv, "--world");
    const char *secret_file = early_option(*argc, *argv, "--world-secret");
    const char *every = early_option(*argc, *argv, "--islands");
    const char *sea = early_option(*argc, *argv, "--island-world");
    const int apart = sea == NULL && every != NULL && strtoll(every, NULL, 10) > 0;
    const het_logger logger = { on_meeting, NULL };
    connect_secret secret;
    connect_place place;
    het_error error = { HET_OK, "" };
    het_result result;
    int64_t started;
    j->processes = 1;
    secret.insecure = 0;
    for (int i = 1; i < *argc; i++) secret.insecure |= strcmp((*argv)[i], "--insecure-world") == 0;
    result = find_place(j, argc, argv, world, &place, &error);
    started = j->launch.size;
    if (result == HET_OK) result = connect_take_secret(&secret, secret_file, &error);
    if (result == HET_OK && sea != NULL && (result = connect_parse("--island-world", sea, &j->sea.place, &error)) == HET_OK)
        islands_prepare(&j->sea, &j->sea.place, &secret, &logger);
    if (result == HET_OK && sea != NULL && world != NULL && strcmp(strchr(sea, '@'), strchr(world, '@')) == 0)
        return fail(BAD_INPUT, "--island-world %s: --world has the same place; the processes of an island meet at one of their own", sea);
    if (result == HET_OK && place.processes == 0 && sea == NULL && (secret_file != NULL || secret.insecure))
        return fail(BAD_INPUT, "%s: only where processes meet over TCP (--world, MASTER_ADDR)", secret_file != NULL ? "--world-secret" :
                    "--insecure-world");
    if (result == HET_OK && place.processes > 1 && !apart) result = connect_open(&place, &secret, &logger, &j->transport, &error);
    if (apart && place.processes > 1) { /* which meet later */
        islands_prepare(&j->sea, &place, &secret, &logger);
        j->processes = place.processes, j->process = place.process;
    }
    j->sea.place.stopped = island_is_stopped, j->sea.place.user = j;
    memset(&secret, 0, sizeof secret);
    if (result != HET_OK) return fail(status_of(result), "%s", error.text);
    if (j->transport.iface != NULL) {
        j->processes = j->transport.iface->processes(j->transport.self);
        j->process = j->transport.iface->process(j->transport.self);
        program_is_mute = j->process > 0;
        j->sea.follows = sea != NULL && j->process > 0;
    }
    if (started == j->processes || j->transport.iface == NULL) {
        if (apart) become_island(j);
        if (started == j->processes || j->sea.count == started) return 0;
    }
#ifdef HETRAIN_MPI
    return fail(BAD_INPUT, "%s started %lld processes, MPI connects %lld", j->launch.launcher, (long long)started, (long long)j->processes);
#else
    return fail(BAD_INPUT, "%s started %lld processes; this program is one: use build/train_mpi (make mpi), or set MASTER_ADDR and MASTER_PORT",
                j->launch.launcher, (long long)started);
#endif
}

static int close_transport(const job *j, het_transport *transport, int status) {
    het_error error = { HET_OK, "" };
    het_result result;
    if (transport->iface == NULL) return status;
    if (status != 0 && !j->all_end) {
        (void)het_error_put(&error, HET_ERR_STATE, failure); /* as much as the others hear */
        transport->iface->abort(transport->self, HET_ERR_STATE, error.text);
    }
#ifdef HETRAIN_MPI
    if (strcmp(transport->iface->name, "tcp") != 0) result = het_mpi_close(transport, &error);
    else
#endif
    result = het_tcp_close(transport, &error);
    return result != HET_OK && status == 0 ? fail(FAILED, "%s", error.text) : status;
}

static int program(int argc, char **argv) {
    job *j = (job *)calloc(1, sizeof *j);
    int status = j != NULL ? open_transport(j, &argc, &argv) : fail(FAILED, "out of memory");
    if (j != NULL) j->program = argv[0];
    if (status == 0) status = run(j, argc, argv);
    if (j == NULL) return status;
    if (saver_wait(&j->save) != 0 && status == 0) status = FAILED;
    saver_close(&j->save);
    free(j->beside.adapter);
    free(j->beside.tokenizer.text);
    free(j->export_memory);
    if (j->log != NULL) {
        const int failed = ferror(j->log);
        if ((fclose(j->log) != 0 || failed) && status == 0) status = fail(FAILED, "cannot write %s: lines are missing", j->log_path);
    }
    if (status == 0 && j->finished) status = await_files(j);
    folder_close(&j->export_folder); /* before the other processes are told to end, which may end this one */
    folder_close(&j->folder);
    if (j->sea.outer != NULL) fflush(stdout); /* it may take others a while to come to the end, too */
    if (j->sea.outer != NULL && j->finished && het_outer_end(j->sea.outer) != HET_OK && !stop_seen(&j->stop))
        fail(0, "warning: --islands: not all others are known to have ended, what is saved here is whole: %s", het_outer_error(j->sea.outer));
    status = stop_end(&j->stop, status);
    het_outer_destroy(j->sea.outer);
    het_destroy(j->ctx);
    status = close_groups(j, status);
    status = close_transport(j, &j->transport, status);
    islands_leave(&j->sea);
    status = close_transport(j, &j->sea.transport, status); /* not the outer step's */
    stop_free(&j->stop);
    if (j->validation.data == j->training.data) j->validation.data = NULL;
    close_source(&j->validation);
    close_source(&j->training);
    het_tokenizer_free(j->tokenizer);
    kept_close(&j->files);
    free(j->experts.units);
    curve_free(&j->training_curve);
    curve_free(&j->validation_curve);
    layout_free(&j->ranks);
    feed_end(&j->feed);
    het_adapt_destroy(j->adapt);
    if (j->planner != NULL) planner_end(j->planner);
    free(j->planner);
    while (j->changes > 0) het_plan_free(j->change[--j->changes].plan);
    free(j->change);
    het_checkpoint_free(j->saved);
    free(j);
    return status;
}

int main(int argc, char **argv) {
    program_begin();
    return program_end(program(argc, argv));
}
