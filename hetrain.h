/* hetrain.h 0.2.0: trains transformers, in one C header.

   GPT-2, Llama, Qwen and NeoX models, from a text or token file to weights that PyTorch's
   transformers read. A plan says which of several unequal devices, in one process or in many, does
   which part of the work, and a schedule in which order. C99 and C++11; needs libc, libm and
   threads, nothing else.

   USE
       #define HETRAIN_IMPLEMENTATION      in one source file of the program, before the include;
       #include "hetrain.h"                the other files include it without.
   Link with -lm -lpthread. Copy hetrain_cpu.h beside this file: it is included by itself, with
   inner loops for AVX2, AVX-512 and NEON in any build, cc -O2 included, that are chosen at run
   time. Without it het_cpu_device() is het_reference_device(), 30 to 100 times slower; the log says
   so. Windows: MinGW with -O1 -mfma; windows.h goes before this file (docs/models.md has more).

   A COMPLETE PROGRAM   It trains on its own source, or on the file named, and writes
   model.safetensors by hetrain_files.h, which takes hetrain_text.h. (examples/minimal.c)
   ---- begin program ----
// Trains a small GPT on a text file, by default on this one.    cc -O2 -I. -Iutil examples/minimal.c -lm -lpthread
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_FILES_IMPLEMENTATION
#include "hetrain.h"
#include "hetrain_files.h"
#include <stdio.h>
#include <string.h>

static het_result show(void *user, het_ctx *ctx, const het_step_info *info, double validation_loss) {
    (void)user, (void)ctx, (void)validation_loss;
    if (info->step % 10 == 9) printf("step %3d  loss %.4f\n", (int)info->step + 1, info->loss);
    return HET_OK;
}

int main(int argc, char **argv) {
    het_train_desc desc;
    het_error error;
    het_ctx *ctx = NULL;
    het_result result;
    memset(&desc, 0, sizeof desc); // 0 everywhere: all defaults
    desc.steps = 100;
    desc.context.optimizer.learning_rate = 2e-3f;
    desc.progress = show;
    result = het_reader_open(argc > 1 ? argv[1] : __FILE__, &desc.data.reader, &error);
    if (result == HET_OK) result = het_train(&desc, &ctx, &error);
    if (result == HET_OK) result = het_save_file(ctx, "model.safetensors", het_save_weights);
    if (result != HET_OK) fprintf(stderr, "%s\n", ctx != NULL ? het_last_error(ctx) : error.text);
    het_reader_close(&desc.data.reader);
    het_destroy(ctx);
    return result == HET_OK ? 0 : 1;
}
   ---- end program ----

   WHAT IT DOES NOT DO
   Devices are CPUs, and whatever a device table drives, as hetrain_cuda.cu's. No tokenizer
   (hetrain_tokenizer.h is one): text is trained as bytes, other vocabularies come as token files.
   No attention but softmax's, causal, in a window or bidirectional; no encoder-decoder (a unit
   table can add it, >>unit_api, as hetrain_experts.h adds experts).
   The ranks stay as they are for the life of a context, and one that fails ends it: the state file
   is what survives. No fp16, so no loss scale either: bf16 has f32's range; int8 for frozen weights
   alone; no optimizers but AdamW and Muon (a table can add one).
   No ABI promise: the header is compiled into the program.

   CONCEPTS
   * A model is a chain of units: embed, (attention, mlp) x L, head. Families differ only in
     settings of het_model_desc and in names in files.
   * Gradients are summed in fixed pieces called granules: as many whole sequences as fit into 512
     tokens, or 512 tokens of a longer sequence. Inside a granule the sum, a term, is one chain of
     f32 operations. Terms are summed exactly, so their order and grouping do not exist
     (DETERMINISM).
   * A rank is a device with what lies on it; each has a thread. het_desc.layout.devices are the
     ranks of this process; a transport (>>transport_api) joins the ranks of several processes,
     numbered process by process.
   * A plan (>>plan_api) gives every rank, or team of ranks, its stages: runs of units. A schedule
     (>>schedule_api) is one list of actions a rank: forward (F) and backward (B, or I for inputs
     and W for weights) of a stage, messages, then REDUCE, VERDICT, STEP, GATHER. It is made for
     max_micro_batches; a step with fewer leaves out the actions of those that are not there.
   * A cut is a boundary between units that no gradient crosses (het_cut): behind a unit with a loss
     of its own (het_model_desc.local_loss), and where nothing before it is trained. No gradient is
     sent over it; a stage without a backward pass has only F.
   * A block is the parameters that the same units use. Its holders are the ranks with one of those
     units, and keepers. REDUCE sums its gradient, each holder owning a part by the plan's
     state_share; STEP updates the own part; GATHER brings the new weights back to all holders.
     Gradients and weights can be divided too (het_shard).
   * Devices (het_device_iface), kinds of units (het_unit_iface) and optimizers
     (het_optimizer_iface) are const tables of functions. The built-in ones use nothing that a
     user's own cannot.

   Three levels, the upper ones written with the lower ones:
       het_train                                        from a reader to a trained context
       het_create, het_step, het_evaluate, het_infer    your own loop and batches
       het_device_iface, het_unit_iface                 ops and units called or replaced one by one

   All descriptions are structs to be cleared to 0 first; 0 in a field means the default written
   beside the field, het_desc_defaults fills them in, and het_get_desc gives back what the context
   uses. Canary fields catch structs that were not cleared.
   Defaults are made for a first program. build/train has others where a first run wants them: all
   processors, not one thread; a llama of width 192, not a gpt2 of width 128; learning rate 1e-3
   with 50 steps of warm-up that falls to a tenth, not 6e-4 that falls to 0; 1,000 steps, not 100.
   To use all cores, ask the system for their number: devices[0].threads =
   (int32_t)sysconf(_SC_NPROCESSORS_ONLN) under POSIX, std::thread::hardware_concurrency() in C++.

   OPTIONS   macros, not defined by default; before every include ("all") or that of the one file
             with the implementation
       HETRAIN_IMPLEMENTATION        this file gets the code
       HETRAIN_STATIC                all: functions are static, a private copy
       HETRAIN_NO_STDIO              all: no stdio.h; no het_reader_open, het_save_file
       HETRAIN_NO_THREADS            no pthread.h; one rank; work runs on the caller or in
                                     het_desc.host.parallel; no clock: a timeline's times are 0
       HETRAIN_NO_DEFAULT_ALLOCATOR  no malloc; every description must bring an allocator
       HETRAIN_NO_SIMD               hetrain_cpu.h: only the plain C inner loops (same bits, slower)
       HETRAIN_NO_BIT_PROMISE        allows -ffast-math, excess precision and an fma that rounds
                                     more than once (MinGW's, without -mfma); equal bits are gone
       HETRAIN_ASSERT(condition)     checks of the header's own reasoning, never of arguments;
                                     ((void)0) by default
       HETRAIN_NO_CPU                no hetrain_cpu.h, even where it lies beside this file
       HETRAIN_CPU                   that file's name, "hetrain_cpu.h" by default, if it was
                                     renamed, or if the compiler has no __has_include

   MEMORY AND OWNERSHIP
   het_create plans all memory and takes it from het_desc.host.allocator (alloc with size and
   alignment, free with size); het_memory_estimate tells the exact number of bytes before, rank by
   rank. The default allocator is malloc; on Linux it asks for huge pages. Activations and message
   buffers are counted by following the rank's list of actions, so a schedule decides how many there
   are, on the device and (het_stage.store) on the host. An exact gradient takes 8 bytes an element.
   One case needs less: where a CPU has a layer for itself and max_micro_batches is 1, the gradients
   of its matrices take 4, and lie where activations were that are used up (het_gradient.final).
   No later call on the context allocates, but for het_replan. What a call gets through a pointer is
   read or written before it returns and not kept, except: a reader given to het_data_open must live
   as long as the data; tables, a transport, and `settings` and `model` of a user's units, as long
   as the context. Arrays in a het_batch from het_data_batch belong to the data and stay valid until
   their slot is used again. Plans and schedules are one block each, from the allocator given, and
   are copied by het_create. het_create -> het_destroy, het_data_open -> het_data_close,
   het_reader_open -> het_reader_close, het_plan_new -> het_plan_free, het_schedule_new, _play,
   _complete -> het_schedule_free; all of these take NULL.

   ERRORS AND LOGGING
   Every call that can fail returns a het_result: 0, or a negative code. The text with name, value
   and limit is in het_last_error(ctx), or in a het_error where no context exists yet.
   Outputs are written only on success, but a pointer to what is to be made may become NULL, and an
   array may have been filled in part. Arguments and files are checked in every build; that tables
   have all their functions, and what is handed to calls that cannot fail, is not. The library never
   exits, aborts, prints or reads the environment; it reads the clock for timelines, deadlines and
   emulated links and speeds, never for a result. het_desc.host.logger receives messages. A step of
   one update whose loss or gradient is not finite, or a spike (het_desc.guard), changes no weight.
   Any other failed computation (cancelled, a device error, a failed callback) ends the context:
   afterwards it answers only queries and het_destroy. The first rank that fails stops the others,
   and its error, which names rank, step and action, is the context's; with a transport any failed
   call ends the context on all processes. Every wait ends (het_layout.deadline, stall_deadline).

   THREADS
   Different contexts may be used on different threads at any time; one context belongs to one
   thread at a time. "Threads: any" beside a function means any thread, "Threads: owner" the thread
   that uses the context. The CPU device spreads its work over het_device_desc.threads threads of
   its own, or by the caller's het_desc.host.parallel. With several ranks, or with a transport, each
   rank of the process has a thread of its own, on which its device, units, optimizer and hooks are
   called; callbacks and the transport's functions must stand calls from several of them at once.
   With a transport all processes make the same calls on their contexts in the same order, with the
   same micro-batches. While a call runs, a callback (hook, logger, parallel, allocator, whatever a
   table holds) may call on its context het_last_error, het_get_desc, het_get_memory, het_get_step,
   het_get_loss_history, het_get_status, het_get_base, het_parameter_count, het_parameter_get_info
   and het_cancel. Else the result is HET_ERR_STATE and nothing changes; het_last_error on that
   thread names call and callback until the call that runs ends. het_get_timeline gives an empty
   one, het_destroy and het_set_base do nothing, and in het_replan sizes are those of either plan.
   het_train's progress and het_save_file's save come between calls: all is allowed there but
   het_destroy.

   DETERMINISM
   Weights are a pure function of model, initial state, data, granule, options, seed and step.
   Number and speed of ranks, plan, schedule, processes, links, number of threads, grouping of
   granules into micro-batches, slices, recomputation, fused, split or deferred backward, stop and
   resume, compiler, optimisation level and instruction set (AVX2, AVX-512, NEON, plain C) do not
   change a bit, in f32 with reduce = exact. bf16 promises the same on one kind of product, reduce =
   fast only for one plan, one grouping and one kind of processor. het_hash shows it.
   How: only correctly rounded operations (every product added to something is an explicit fma), own
   exp, log, sin, cos and erf, fixed trees over rows, exact sums over granules, random numbers that
   are a function of a counter. The rounding mode is set on entry and restored.

   BACKENDS
   Devices are het_cpu_device(), het_reference_device(), to be read (>>reference), and
   het_null_device(), for tests of schedules and limits. A device of one's own is a filled
   het_device_iface; a copy of the CPU's table whose `run` does some ops itself and leaves the rest
   to the CPU is a start (examples/custom_device.c). hetrain_cuda.cu is one.
   Devices that reach each other without the host, as several cards do, say so by a filled
   het_communicator_iface (>>communicator_api): ranks with such devices then reduce, gather, pass
   activations on and exchange in teams among themselves, and reduce with other ranks in two levels.
   A transport is a filled het_transport_iface; hetrain_mpi.c is one over MPI, hetrain_tcp.c one
   over TCP. het_device_desc.speed and het_desc.emulate.links emulate slow devices and links.

   COMPANIONS
       hetrain_text.h       JSON, numbers and settings as text; the others include it
       hetrain_plan.h       plans as text, schedules by name, simulator, pictures
       hetrain_search.h     measures ranks and links and searches for a plan
       hetrain_files.h      weights and low-rank factors as Hugging Face has them, state, config.json
       hetrain_tokenizer.h  text to tokens and back
       hetrain_experts.h    experts in place of MLPs
       hetrain_outer.h      processes far apart that join now and then

   FUNCTIONS
       >>device_api      het_cpu_device het_reference_device het_null_device
       >>unit_api        het_program_begin het_node_input het_node_embedding het_node_norm
                         het_node_head_norm het_node_linear het_node_linears het_node_rotary
                         het_node_attention het_node_biased_attention het_node_activation
                         het_node_residual het_node_output het_node_loss het_program_end
                         het_program_forward het_program_backward_input het_program_backward_weight
                         het_unit_embed het_unit_attention het_unit_mlp het_unit_head
                         het_unit_local_head het_model_units
       >>optimizer_api   het_adamw het_muon het_optimizer_slots het_learning_rate
       >>plan_api        het_plan_new het_plan_copy het_plan_check het_plan_free
                         het_plan_backward het_plan_team het_plan_rows
       >>schedule_api    het_plan_micro_batches het_schedule_play het_play_ready het_schedule_new
                         het_schedule_complete het_schedule_check het_schedule_store
                         het_schedule_needs het_schedule_free het_tree_grow
       >>context_api     het_result_text het_error_put het_desc_defaults het_model_get
                         het_model_set het_model_complete het_granules het_memory_estimate
                         het_create het_destroy het_last_error het_get_desc het_get_memory
                         het_get_timeline het_get_step het_cancel het_replan het_set_speed
                         het_set_link het_broadcast het_step het_gradients het_evaluate het_infer
                         het_parameter_count het_parameter_get_info het_parameter_read
                         het_parameter_write het_get_status het_restore_begin het_restore_end
                         het_get_loss_history het_fail het_hash het_verify het_set_base het_get_base
                         het_xxh64 het_describe het_description_free het_plan_cuts
       >>data_api        het_data_open het_data_close het_data_get_info het_data_batch
                         het_data_held_out het_data_tokens
       >>train_api       het_train het_sample het_reader_open het_reader_close het_save_file

   CONTENTS   (tags to search for)
   public API:
       >>results         result codes, error texts
       >>callbacks       allocator, logger, parallel-for, reader, writer
       >>model_api       het_model_desc: what is trained
       >>batch_api       het_batch: packed tokens
       >>device_api      het_device_iface: the ops and their arguments
       >>unit_api        het_unit_iface: unit kinds; het_program: units as lists of nodes
       >>optimizer_api   het_optimizer_iface, learning rate schedules
       >>plan_api        het_plan: who does what
       >>schedule_api    het_schedule: in which order
       >>transport_api   het_transport_iface: other processes
       >>communicator_api het_communicator_iface: devices that reach each other without the host
       >>timeline_api    het_timeline: what happened when, what was sent
       >>context_api     het_desc, het_create, het_step, het_evaluate, het_infer, parameters
       >>data_api        token files, windows, batches
       >>train_api       het_train, het_sample, file callbacks
   implementation:
       >>config          includes and compiler differences
       >>error           result texts, the message formatter, the version
       >>mem             checked sizes, the allocator, several arrays in one block
       >>fp              floating-point environment, value barriers
       >>io              little-endian numbers, reads in full
       >>rng             Philox: random numbers without state
       >>hash            XXH64
       >>sum             sums of doubles that have no order
       >>time            clocks, locks, sleeping
       >>math            exp, log, sin, cos, pow, erf of our own
       >>reference       the reference device: every op in plain C, the definition of its bits
       >>devices         the null device, where the CPU device comes in, ops on any device
       >>model           model settings, presets
       >>units           programs, what follows from them, their calls; embed, attention, mlp, head
       >>plans           plans and schedules as blocks, shares of micro-batches, valid plans
       >>schedule        lists of actions: the player that makes, proves and completes them
       >>structs         what a context consists of
       >>optim           learning rate, AdamW, Muon
       >>device_calls    what a rank asks of its device
       >>messages        messages between ranks, waiting, failing
       >>communicator    groups of devices that reach each other without the host
       >>build           from a description to a context: parameters, plan, schedule, memory, devices
       >>batch           micro-batches of a job: checks, granules, slices
       >>flow            what holders of a block send each other piece by piece: gradients, weights
       >>moves           reductions and gathers: order, groups, what goes on beside; joining of scalars
       >>exec            micro-batches into places, units into calls, actions into work
       >>verdict         a step: grid of the exact sums, exponents, spikes, bad steps
       >>context         the public calls of the step loop
       >>data            token files, windows, order of samples
       >>train           het_train, het_sample, file callbacks
*/

#ifdef _WIN32 /* macros of windows.h, where it comes before */
#undef near
#undef far
#undef small
#endif

#ifndef HETRAIN_H
#define HETRAIN_H

#include <stddef.h>
#include <stdint.h>

#define HETRAIN_VERSION_MAJOR 0
#define HETRAIN_VERSION_MINOR 2
#define HETRAIN_VERSION_PATCH 0
#define HETRAIN_VERSION (HETRAIN_VERSION_MAJOR * 10000 + HETRAIN_VERSION_MINOR * 100 + HETRAIN_VERSION_PATCH)

#if defined(HETRAIN_STATIC) && (defined(__GNUC__) || defined(__clang__))
#define HETRAIN_API static __attribute__((unused))
#elif defined(HETRAIN_STATIC)
#define HETRAIN_API static
#else
#define HETRAIN_API extern
#endif

#if defined(__GNUC__) || defined(__clang__)
#define HETRAIN_MUST_CHECK __attribute__((warn_unused_result))
#else
#define HETRAIN_MUST_CHECK
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- >>results ----------------------------------------------------------------------------------
   Every call that can fail returns a het_result: 0 is success, errors are negative. What becomes of
   outputs then: ERRORS AND LOGGING. */

#define HETRAIN_RESULTS(X)                                                                        \
    X(HET_OK,                  0, "ok")                                                           \
    X(HET_ERR_INVALID,        -1, "invalid argument or description")                              \
    X(HET_ERR_OOM,            -2, "the allocator returned NULL")                                  \
    X(HET_ERR_LIMIT,          -3, "larger than the limits declared at create")                    \
    X(HET_ERR_DATA,           -4, "training data out of range")                                   \
    X(HET_ERR_FORMAT,         -5, "malformed file or text")                                       \
    X(HET_ERR_IO,             -6, "a read or write callback failed")                              \
    X(HET_ERR_UNSUPPORTED,    -7, "not supported by this build, device or version")               \
    X(HET_ERR_DEVICE,         -8, "a device failed")                                              \
    X(HET_ERR_TRANSPORT,      -9, "a transport failed")                                           \
    X(HET_ERR_NOT_FINITE,    -10, "loss or gradient is not finite")                               \
    X(HET_ERR_CANCELLED,     -11, "cancelled by het_cancel")                                      \
    X(HET_ERR_STATE,         -12, "not allowed in the present state of the context")              \
    X(HET_ERR_CALLBACK,      -13, "a user callback reported failure")                            \
    X(HET_ERR_SPIKE,         -14, "loss or gradient is far outside its recent range")

#define HETRAIN_RESULT_ENUM(name, value, text) name = value,
typedef enum het_result { HETRAIN_RESULTS(HETRAIN_RESULT_ENUM) } het_result;
#undef HETRAIN_RESULT_ENUM

/* Where a call has no context, its error text comes back here; every such argument may be NULL. */
typedef struct het_error {
    het_result code;
    char text[500]; /* one line: function, name, offending value, limit; steps count from 1 */
} het_error;

/* 0 in a description always means "the default written beside the field". */
typedef enum het_choice { HET_DEFAULT = 0, HET_YES = 1, HET_NO = 2 } het_choice;

typedef enum het_dtype { HET_DTYPE_DEFAULT = 0 /* f32 */, HET_F32 = 1, HET_BF16 = 2,
                         HET_INT8 = 3 /* het_desc.weights alone */ } het_dtype;

/* ---- >>callbacks: allocator, log, parallel-for, input and output ----------------------------- */

/* Both members or neither. `free` gets the size given to `alloc`. `align` is a power of two <=
   4096. NULL means out of memory. */
typedef struct het_allocator {
    void *(*alloc)(void *user, size_t size, size_t align);
    void (*free)(void *user, void *pointer, size_t size);
    void *user;
} het_allocator;

typedef enum het_log_level { HET_LOG_ERROR = 0, HET_LOG_WARNING = 1, HET_LOG_INFO = 2 } het_log_level;
typedef struct het_logger {
    void (*log)(void *user, het_log_level level, het_result code, const char *text); /* NULL: silent */
    void *user;
} het_logger;

/* run() calls task(arg, i) exactly once for every i in [0, count), in any order, on any threads,
   and returns when all are done. It may be called by several ranks at once. NULL: devices make
   threads of their own. */
typedef void (*het_task)(void *arg, int64_t index);
typedef struct het_parallel {
    void (*run)(void *user, int64_t count, het_task task, void *arg);
    void *user;
} het_parallel;

/* Positioned reads. read() returns the bytes it got (short only at the end), or less than 0. */
typedef struct het_reader {
    int64_t (*read)(void *user, uint64_t offset, void *to, size_t size);
    void *user;
    uint64_t size;    /* bytes in the source */
    const char *name; /* for messages; NULL: "(memory)" */
} het_reader;

/* Appending writes. write() takes all bytes and returns 0, or a nonzero number. */
typedef struct het_writer {
    int (*write)(void *user, const void *from, size_t size);
    void *user;
    const char *name;
} het_writer;

/* ---- >>model_api: what is trained ---------------------------------------------------------------
   Letters used everywhere: n tokens (rows) of a micro-batch, B sequences, T context (longest
   sequence), L layers, D width, H heads, K key/value heads, E head size, F width of the MLP, V
   vocabulary. Matrices are row-major, weights are [out][in]. */

typedef enum het_family { HET_FAMILY_DEFAULT = 0 /* gpt2 */, HET_GPT2 = 1, HET_LLAMA = 2, HET_QWEN2 = 3, HET_QWEN3 = 4,
                         HET_NEOX = 5 } het_family;
typedef enum het_norm { HET_NORM_DEFAULT = 0 /* as the family */, HET_LAYERNORM = 1, HET_RMSNORM = 2 } het_norm;
typedef enum het_activation { HET_ACTIVATION_DEFAULT = 0 /* as the family */, HET_GELU_TANH = 1, HET_GELU_ERF = 2,
                             HET_SWIGLU = 3 } het_activation;
typedef enum het_position { HET_POSITION_DEFAULT = 0 /* as the family */, HET_LEARNED = 1, HET_ROTARY = 2,
                           HET_NO_POSITION = 3 } het_position;

/* Families differ only in these settings, in names of tensors in files, and in initialisation.
   After het_model_complete no field is 0 except those whose default is 0. */
typedef struct het_model_desc {
    uint32_t start_canary;    /* must be 0 */
    het_family family;        /* gpt2 */
    int64_t layers;           /* L, 4 */
    int64_t width;            /* D, 128 */
    int64_t heads;            /* H, width / 32, at least 1 */
    int64_t kv_heads;         /* K, heads */
    int64_t head_size;        /* E, width / heads */
    int64_t mlp_width;        /* F, 4 width; with SwiGLU 8/3 width rounded up to a multiple of 32 */
    int64_t vocab;            /* V, 256 */
    int64_t context;          /* T, 128 */
    het_norm norm;            /* gpt2, neox: LayerNorm; others: RMSNorm */
    het_activation activation;/* gpt2: tanh GELU; neox: erf GELU; others: SwiGLU */
    het_position position;    /* gpt2: learned; others: rotary, pairs (i, i + rotary/2) */
    het_choice tied;          /* head shares the embedding. gpt2: yes; others: no */
    het_choice qkv_bias;      /* gpt2, qwen2, neox: yes; others: no */
    het_choice linear_bias;   /* bias of the output, MLP projections. gpt2, neox: yes; others: no */
    het_choice qk_norm;       /* RMSNorm over each head of q and k before rotary. qwen3: yes; others: no */
    het_choice parallel;      /* attention and MLP read the same input. neox: yes; others: no */
    het_choice causal;        /* yes */
    int64_t window;           /* 0: unlimited; else a query sees at most this many keys, itself included */
    float norm_epsilon;       /* 1e-5; qwen2, qwen3: 1e-6 */
    float rotary_theta;       /* 10000; qwen2, qwen3: 1000000 */
    float rotary_fraction;    /* share of the head that rotates: 1; neox: 0.25 */
    float rotary_factor;      /* llama3 scaling; 0: none. Then the three below: */
    float rotary_low;         /* 1 */
    float rotary_high;        /* 4 */
    int64_t rotary_original;  /* 8192 */
    float init_std;           /* 0.02. gpt2: residual projections 0.02 / sqrt(2 L) */
    float dropout;            /* 0: none. After the embedding and each residual projection
                                 (attention weights are not dropped) */
    int64_t lora_rank;        /* r, 0: none. y = x W^T + b + (alpha / r) (x A^T) B^T, A [r][in], B
                                 [out][r] (LoRA, arXiv 2106.09685): only A, B and local heads are
                                 trained, all else is frozen, without gradients or optimizer state */
    float lora_alpha;         /* r */
    int64_t lora_targets;     /* sum of het_lora: q and v; gpt2, neox, whose files hold q, k, v as
                                 one matrix: all three */
    int64_t local_loss;       /* 0: none. Behind every so many layers but the last ones stands a
                                 local head (het_unit_local_head): each group of layers is trained
                                 by the loss of its own head alone, and no gradient goes from group
                                 to group (arXiv 2012.03837) */
    uint32_t end_canary;      /* must be 0 */
} het_model_desc;

/* Settings of het_model_desc by number, for those who read and write them as text: hetrain_text.h,
   config.json, messages. */
typedef enum het_setting_kind { HET_SETTING_INTEGER = 1, HET_SETTING_REAL = 2, HET_SETTING_WORD = 3 } het_setting_kind;
typedef struct het_setting {
    const char *name;                 /* as the field is called */
    het_setting_kind kind;            /* which of these it has */
    int64_t integer;
    double real;
    const char *word;                 /* "yes", "rmsnorm", ... */
} het_setting;

/* Matrices of a layer that get factors; a gate only where there is one. */
typedef enum het_lora {
    HET_LORA_Q = 1, HET_LORA_K = 2, HET_LORA_V = 4, HET_LORA_O = 8 /* attention's output */, HET_LORA_GATE = 16,
        HET_LORA_UP = 32, HET_LORA_DOWN = 64,
    HET_LORA_ALL = 127
} het_lora;

/* ---- >>batch_api: packed micro-batches ----------------------------------------------------------
   n tokens of s sequences of any lengths, one behind the other, without padding. A target of -1 is
   ignored. The loss is the weighted sum over targets divided by the sum of weights over all
   micro-batches of the step, never a mean of means. Granules (CONCEPTS) are part of the data's
   definition: whole sequences, or a piece of one. */
typedef struct het_batch {
    int64_t tokens;                /* n */
    int64_t sequences;             /* s; may contain empty sequences */
    const int32_t *token;          /* [n], 0 <= token < V */
    const int32_t *target;         /* [n], -1 <= target < V */
    const float *weight;           /* [n], finite and >= 0, or NULL: 1 each */
    const int64_t *sequence_start; /* [s + 1], from 0 to n, ascending */
    const int64_t *sample_id;      /* [s], key of dropout, or NULL: 0, 1, 2, ... */
    int64_t granules;              /* 0: by rule (het_granules) */
    const int64_t *granule_start;  /* [granules + 1] or NULL */
} het_batch;

/* What a device op sees of a micro-batch. The arrays of one line exist twice: `host_` for loops on
   the host, the other in device memory. On the CPU both are the same memory. Owned by the context,
   valid until the op's event. */
typedef struct het_view {
    int64_t tokens, sequences, granules;
    int64_t row_begin, row_end;         /* the slice: rows [row_begin, row_end); cut between granules */
    int64_t granule_begin, granule_end; /* the granules of the slice */
    const int32_t *token, *target;      /* [n] */
    const int32_t *position;            /* [n] index within the sequence */
    const float *weight;                /* [n] */
    const int64_t *sequence_start, *host_sequence_start; /* [s + 1] */
    const int64_t *granule_start, *host_granule_start;   /* [granules + 1] */
    const int64_t *sample_id;           /* [s] */
    const int32_t *sequence_of;         /* [n] which sequence a token is in */
} het_view;

/* ---- >>device_api: the device table -------------------------------------------------------------
   An op is a value, het_op: a kind and one struct of arguments, whose pointers are device memory.
   het_device_iface.run runs it. Ops on one queue run in order. An op may return before it has run,
   and never allocates: its `workspace` has at least het_device_iface.workspace(op) bytes, aligned
   to 64. Rows are tokens of the present slice: pointers stand at the slice's first row unless said
   otherwise. (=) overwrites, (+=) adds, (~) continues: the fma chain starts from what is there. */

typedef struct het_queue het_queue; /* the device's own */
typedef struct het_event het_event;
typedef struct het_graph het_graph;

/* Scalars that change from step to step live in device memory, so that a captured graph stays
   valid. */
typedef struct het_step_scalars {
    uint64_t seed, step;      /* counter-based randomness */
    float inverse_weight;     /* 1 / sum of target weights in the step */
    float learning_rate;
    float bias_correction1, bias_correction2; /* 1 - beta^t */
    float clip_scale;         /* min(1, clip / norm), written by verdict */
    int32_t verdict;          /* het_verdict, written by verdict */
    double gradient_norm;     /* written by verdict */
    double maximum_norm;      /* clip; 0: none */
    double spike_loss;        /* the sum of losses above which the step is a spike; only where spike_norm is not 0 */
    double spike_norm;        /* the gradient norm likewise; 0: nothing is a spike */
} het_step_scalars;

typedef enum het_verdict { HET_VERDICT_NONE = 0, HET_VERDICT_ACCEPT = 1, HET_VERDICT_REPEAT = 2,
                          HET_VERDICT_NOT_FINITE = 3, HET_VERDICT_SPIKE = 4 } het_verdict;

/* An order-free sum of doubles: value = sum over i < 19 of limb[i] 2^(32 i - 320). limb[19] counts
   terms that are not finite (or 2^288 and larger): the value is then NaN. Added and reduced as
   integers; up to 2^30 terms. */
typedef struct het_sum { int64_t limb[20]; } het_sum;

/* Where the gradient of one parameter is summed. exact: double on a grid, g += (term + grid) -
   grid, one term a granule; otherwise float, one chain over all rows. */
typedef struct het_gradient {
    void *sum;          /* double[] or float[], NULL: frozen, add nothing */
    int32_t exact;      /* which of the two */
    int32_t beta;       /* of dw: 1: sum += the terms; 0: sum = the terms, and what stands there, not
                           even zeros, is not read. Other ops always add */
    int32_t final;      /* of dw, exact with beta 0. 1: the step has no other terms: `sum` is float[]
                           after all, and gets float(sum of the terms) */
    const double *grid; /* device: c = 1.5 2^52 q of this parameter */
    uint32_t *maximum;  /* device: largest bits of |term| seen, as an unsigned maximum */
} het_gradient;

/* y = (x - mean) / sqrt(var + eps) gain + bias (LayerNorm), y = x / sqrt(mean of squares + eps)
   gain (RMSNorm), over `width`. A token may have several rows (heads of QK-norm): granules count
   tokens, rows = tokens * rows_per_token. */
typedef struct het_norm_args {
    const het_view *view;
    het_norm kind;
    int64_t rows, width, rows_per_token;
    float epsilon;
    const float *x;                  /* [rows][width] */
    const float *gain, *bias;        /* [width]; bias NULL: none */
    float *y;                        /* forward (=) [rows][width] */
    float *mean, *rstd;              /* [rows]; forward (=), backward reads; RMSNorm leaves mean alone (may be NULL) */
    const float *dy;                 /* backward [rows][width] */
    const float *residual;           /* backward_input: dx = residual + gradient, or NULL. [rows][width] of dx's type */
    float *dx;                       /* backward_input (=) [rows][width]; may be dy or residual */
    uint16_t *dx_bf16;               /* backward_input (=) dx rounded to bf16 as well, or NULL */
    const het_gradient *dgain, *dbias; /* backward_weight (+=) */
    void *workspace;
} het_norm_args;

/* Elements of a weight that is kept as int8: w = scale q, which is exact. */
#define HETRAIN_INT8_BLOCK 64
typedef struct het_int8_block { float scale; int8_t q[HETRAIN_INT8_BLOCK]; } het_int8_block;

/* y_p = x W_p^T + b_p for up to 3 matrices that share x. backward_input: dx = sum over p of dy_p
   W_p, one chain over the rows of W_0, then W_1, ...; backward_weight: dW_p += dy_p^T x, db_p +=
   sum of dy_p, one term a granule. */
typedef struct het_linear_part {
    int64_t out;
    const float *w;       /* [out][in]; NULL where the weight is frozen and kept in bf16: */
    const uint16_t *w_bf16; /* the same; a float's upper half. Beside w: that rounded, or NULL, with rows of 0
                               behind it up to a multiple of 8 */
    const float *bias;    /* [out] or NULL */
    const uint16_t *bias_bf16; /* that rounded, or NULL; likewise with elements behind it */
    float *y;             /* forward (=) [rows][out] */
    const float *add;     /* forward: y = x W^T + b + add. [rows][out], not y itself; or NULL */
    const float *dy;      /* backward [rows][out] */
    int64_t pitch;        /* elements from row to row of y, or of dy; 0: out. Of bf16 rows with room for
                             `out` rounded up to 8, forward may write so many, and in dy the rest is 0 */
    const het_gradient *dw, *dbias; /* backward_weight (+=); dbias NULL: no bias */
    const het_int8_block *w_int8; /* w where that and w_bf16 are NULL: the blocks of the matrix */
} het_linear_part;
typedef struct het_linear_args {
    const het_view *view;    /* granules; may be NULL for forward and backward_input */
    het_dtype compute;       /* HET_F32, or HET_BF16: operands rounded to bf16, products summed in f32 */
    int64_t rows, in;
    int64_t parts;           /* 1..3 */
    het_linear_part part[3];
    const float *x;          /* [rows][in] */
    float *dx;               /* backward_input (=) [rows][in] */
    int32_t continues;       /* 1: chains go on from what stands in y, in dx (a team's other members began them) */
    void *workspace;
} het_linear_args;

/* Rotary positions, pairs (i, i + rotary/2) of each head; columns from `rotary` on pass unchanged.
   forward: y = R x; backward: y = R^T x. In place where y == x. */
typedef struct het_rotary_args {
    const het_view *view;     /* position of row r is view->position[view->row_begin + r] */
    int64_t rows, heads, head_size, rotary;
    const float *cosine, *sine; /* [T][rotary / 2] */
    const float *x;
    float *y;                 /* [rows][heads * head_size] */
    int64_t pitch;            /* elements from row to row of x and of y; 0: heads * head_size */
} het_rotary_args;

/* Fused attention over packed sequences; query r of the slice sees the keys of its own sequence up
   to itself (causal) and inside the window. q, o and their gradients stand at the slice's first
   row; k, v, dk, dv at row 0 of the micro-batch, so that a slice reaches the keys of earlier
   slices. A device may also read keys and values before the first that is seen, down to a multiple
   of 16 in their sequence: they are finite there, and it multiplies them by 0. Not causal: the
   slice must be the whole micro-batch.
   forward: S = (scale q) k^T, scale q rounded first; m = row maximum; l = sum exp(S - m); o = exp(S
   - m) v / l.
   backward: P = exp(S - m) / l; d = rowsum(do o); dS = P (do v^T - d); dq (=) scale dS k; dk (~)
   dS^T (scale q); dv (~) P^T do. Slices go backward last to first; before the last slice the caller
   clears dk and dv. In bf16 there is one slice, and dk and dv are (=).
   bias[i][h][relation[i T + j]] is added to S, i and j counted in their sequence; dbias (=) sums dS
   over the keys of one relation, ascending. */
typedef struct het_attention_args {
    const het_view *view;
    het_dtype compute;
    int64_t heads, kv_heads, head_size, window;
    int32_t causal;
    float scale;               /* 1 / sqrt(E) */
    int64_t pitch;             /* elements from row to row of q, k, v and of their gradients; 0: what they have */
    const float *q;            /* [rows][H E] */
    const float *k, *v;        /* [n][K E], row 0 of the micro-batch */
    float *o;                  /* [rows][H E], forward (=), backward reads */
    float *maximum, *sum;      /* [rows][H] m and l, forward (=), backward reads */
    const float *d_o;          /* [rows][H E] */
    float *dq;                 /* [rows][H E] (=) */
    float *dk, *dv;            /* [n][K E] (~) */
    void *workspace;
    size_t workspace_size;     /* more than the minimum lets more heads run at once */
    const float *bias;         /* [rows][H][R] or NULL */
    float *dbias;              /* [rows][H][R] (=) */
    const int32_t *relation;   /* host: [T][T], numbers in [0, R) */
    int64_t relations, context; /* R, T */
} het_attention_args;

/* GELU: y = gelu(a). SwiGLU: y = silu(a) b. backward: da, db from dy; da may be dy or a, db may be
   b. */
typedef struct het_activation_args {
    het_activation kind;
    int64_t count;             /* elements */
    const float *a, *b;
    float *y;                  /* forward (=) */
    const float *dy;
    float *da, *db;            /* backward (=) */
    int64_t width, pitch;      /* of a and b that lie side by side: elements of a row, and from row to row
                                  of a, b, da and db; y and dy are one array. pitch 0: all are */
} het_activation_args;

/* A product of one part and the activation beside it. forward: linear_forward, then
   activation_forward with activation.a = linear.part[0].y, which stays readable. backward:
   linear_backward_input, then activation_backward with activation.dy = .da = linear.dx. */
typedef struct het_linear_activation_args {
    het_linear_args linear;    /* its workspace serves both */
    het_activation_args activation;
} het_linear_activation_args;

/* y[r] = table[token[r]] + positions[position[r]] (positions NULL: none), rows of the slice.
   backward_weight: dtable[token[r]] += dy[r], dpositions[position[r]] += dy[r]; per granule one
   chain over the rows that met an entry; entries not met are left alone. */
typedef struct het_embedding_args {
    const het_view *view;
    int64_t rows, width, vocab, context;
    const float *table, *positions; /* [V][D], [T][D] */
    const uint16_t *table_bf16;     /* where table is NULL: in its place, or */
    const het_int8_block *table_int8;
    float *y;                       /* (=) [rows][D] */
    const float *dy;
    const het_gradient *dtable, *dpositions; /* dpositions NULL: none */
    void *workspace;
} het_embedding_args;

/* forward: y = a + drop(x) (a NULL: y = drop(x)); backward: y = drop(x) with the same mask. drop
   multiplies by 1 / (1 - p) or 0 by counter (seed, step, sample, position, site, column); p = 0
   drops nothing. In place where y == a or y == x. */
typedef struct het_dropout_args {
    const het_view *view;
    const het_step_scalars *scalars; /* device */
    int64_t rows, width;
    float probability;
    int32_t site;                    /* unit index * 4 + place */
    const float *a, *x;
    float *y;
} het_dropout_args;

/* Softmax cross-entropy of rows of logits. loss += sum of weight * -log p[target]; with `gradient`
   the logits become (p - onehot) weight * inverse_weight in place (rows whose target is -1 become
   0). Both are bf16 or neither is; each row of bf16 becomes 0 from V to its pitch. */
typedef struct het_cross_entropy_args {
    const het_step_scalars *scalars; /* device */
    int64_t rows, vocab;
    int64_t pitch;                   /* elements from row to row of the logits; 0: V */
    float *logits;                   /* [rows][V], in place */
    const int32_t *target;           /* [rows] at the first row of logits */
    const float *weight;             /* [rows] likewise */
    int32_t gradient;                /* 0: evaluation, logits are left alone */
    het_sum *loss;                   /* device (+=) */
    float *row_loss;                 /* [rows] (=) -log p[target], 0 where ignored; may be NULL */
    void *workspace;
} het_cross_entropy_args;

/* gradient->sum[offset ...] += one granule's term, for user units whose terms are made by
   themselves. */
typedef struct het_accumulate_args {
    const het_gradient *gradient;
    int64_t offset, count;
    const float *term;
} het_accumulate_args;

/* sum += g^2 over float(g), in double over blocks of 1,024 elements counted from the start. */
typedef struct het_sum_squares_args {
    const het_gradient *gradient;
    int64_t count;
    het_sum *sum;                    /* device (+=) */
    void *workspace;
    const struct het_sum_squares_args *next; /* further ones, of the same sum, at most 16 in all; or NULL */
} het_sum_squares_args;

/* Joins what REDUCE left: not finite -> NOT_FINITE; some maximum >= 2^(exponent + 6), or no history
   -> REPEAT (nothing else is changed: the host sets exponents); loss or norm above
   scalars->spike_loss, spike_norm -> SPIKE; otherwise ACCEPT. Writes scalars->{verdict,
   gradient_norm, clip_scale}. */
typedef struct het_verdict_args {
    het_step_scalars *scalars;
    int64_t parameters;
    const uint32_t *maximum;         /* [parameters] device */
    const int32_t *exponent;         /* [parameters] device; HETRAIN_NO_EXPONENT: no history */
    int32_t exact;                   /* 0: exponents are not looked at */
    const het_sum *squares;          /* device */
    const het_sum *loss;             /* device */
} het_verdict_args;
#define HETRAIN_NO_EXPONENT INT32_MIN

/* Decoupled weight decay (AdamW, arXiv 1711.05101), one element at a time:
   g = float(sum) clip; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
   w = w - lr decay w; w = w - lr (m / c1) / (sqrt(v / c2) + eps). Does nothing unless the verdict
   is ACCEPT. */
typedef struct het_adamw_args {
    const het_step_scalars *scalars;
    const het_gradient *gradient;
    int64_t count;
    float *w, *m, *v;
    float beta1, beta2, epsilon, decay;
    uint16_t *w_bf16;                /* (=) w rounded to bf16, where the device has `round`; or NULL */
    const struct het_adamw_args *next; /* further ones, of the same scalars, betas and epsilon, at most
                                          16 in all; or NULL */
} het_adamw_args;

/* Muon around its products (>>optimizer_api). momentum: g = float(sum) clip; m = beta m +
   (1 - beta) g; x = beta m + (1 - beta) g. update: w = w - lr decay w; w = w - lr size x, lr =
   scalars->learning_rate rate. Both do nothing unless the verdict is ACCEPT. */
typedef struct het_muon_args {
    const het_step_scalars *scalars;
    const het_gradient *gradient;    /* [rows][columns] */
    int64_t rows, columns;
    float *w, *m;                    /* [rows][columns] */
    float *x;                        /* the same; the transpose where rows > columns */
    float beta, rate, decay, size;
} het_muon_args;

/* Before an update (begins 1) and after it (>>optimizer_api, feedback), one element at a time.
   Before: w = w + e; e = w. After: u = e - w; x = w - factor u - change (u - last), the last term
   where there is `last`; e = w - x; w = x; last = u. Does nothing unless the verdict is ACCEPT. */
typedef struct het_feedback_args {
    const het_step_scalars *scalars;
    int64_t count;
    float *w, *e, *last;             /* last: or NULL */
    float factor, change;
    int32_t begins;
} het_feedback_args;

/* to[i] = std z, z the normal number first + i of a stream, a function of (seed, stream, number).
   For the first weights; het_cpu_device() draws them for devices that lack it. */
typedef struct het_normal_args {
    uint64_t seed, stream;
    int64_t first, count;            /* first: a multiple of 32 */
    float std;
    float *to;                       /* (=) [count] */
} het_normal_args;

/* add: y += x. scale: y *= factor; with `squares`: y *= factor / (sqrt(squares) + 1e-7). round: y =
   x, rounded to nearest even, as bf16. */
typedef struct het_elements_args {
    int64_t count;
    float *y;
    const float *x;
    float factor;
    const het_sum *squares;          /* device, or NULL */
} het_elements_args;

/* y = the weights that are kept as int8 (het_desc.weights). The elements of a matrix, numbered row
   by row, form blocks of 64 from its start. A row of y is `width` elements from number first + row
   step on, and of `from` the blocks that have some of them. A matrix that is there whole is one
   row. */
typedef struct het_expand_args {
    int64_t rows, width, first, step;
    int64_t blocks;                  /* from row to row of `from` */
    const het_int8_block *from;
    float *y;                        /* (=) [rows][width] */
} het_expand_args;

/* copy_in: host to device; copy_out: back; copy: inside the device, of `rows` rows, 0: one; clear:
   `to` = 0. */
typedef struct het_copy_args {
    void *to;
    const void *from;
    size_t size;                     /* bytes, of a row */
    size_t rows, to_step, from_step; /* bytes from a row to the next */
} het_copy_args;

/* Beside each kind the member of het_op.u that it takes. */
typedef enum het_op_kind {
    HET_OP_NORM_FORWARD, HET_OP_NORM_BACKWARD_INPUT, HET_OP_NORM_BACKWARD_WEIGHT, HET_OP_NORM_BACKWARD, /* norm */
    HET_OP_LINEAR_FORWARD, HET_OP_LINEAR_BACKWARD_INPUT, HET_OP_LINEAR_BACKWARD_WEIGHT, /* linear */
    HET_OP_LINEAR_ACTIVATION_FORWARD, HET_OP_LINEAR_ACTIVATION_BACKWARD, /* linear_activation */
    HET_OP_ROTARY_FORWARD, HET_OP_ROTARY_BACKWARD,                       /* rotary */
    HET_OP_ATTENTION_FORWARD, HET_OP_ATTENTION_BACKWARD,                 /* attention */
    HET_OP_ACTIVATION_FORWARD, HET_OP_ACTIVATION_BACKWARD,               /* activation */
    HET_OP_EMBEDDING_FORWARD, HET_OP_EMBEDDING_BACKWARD_WEIGHT,          /* embedding */
    HET_OP_DROPOUT_FORWARD, HET_OP_DROPOUT_BACKWARD,                     /* dropout */
    HET_OP_CROSS_ENTROPY,                                                /* cross_entropy */
    HET_OP_ACCUMULATE,                                                   /* accumulate */
    HET_OP_SUM_SQUARES,                                                  /* sum_squares */
    HET_OP_VERDICT,                                                      /* verdict */
    HET_OP_ADAMW,                                                        /* adamw */
    HET_OP_MUON_MOMENTUM, HET_OP_MUON_UPDATE,                            /* muon */
    HET_OP_FEEDBACK,                                                     /* feedback */
    HET_OP_NORMAL,                                                       /* normal */
    HET_OP_ADD, HET_OP_SCALE, HET_OP_ROUND,                              /* elements */
    HET_OP_EXPAND,                                                       /* expand */
    HET_OP_COPY_IN, HET_OP_COPY_OUT, HET_OP_COPY, HET_OP_CLEAR           /* copy */
} het_op_kind;

/* Operands that are bf16, rounded to nearest even, where the args say float: their pointers are
   cast. X: x (a, b; q, k, v); Y: y (o); DX and DY: their gradients; ADDED: what linear_forward
   (add) and dropout_forward (a) add. What an op calls x and y counts, also where that is a gradient
   (rotary, dropout). */
enum { HET_BF16_X = 1, HET_BF16_Y = 2, HET_BF16_DX = 4, HET_BF16_DY = 8, HET_BF16_ADDED = 16 };

typedef struct het_op {
    het_op_kind kind;
    int32_t bf16;                    /* HET_BF16_*; 0 unless the device supports it */
    union {
        het_norm_args norm;
        het_linear_args linear;
        het_linear_activation_args linear_activation;
        het_rotary_args rotary;
        het_attention_args attention;
        het_activation_args activation;
        het_embedding_args embedding;
        het_dropout_args dropout;
        het_cross_entropy_args cross_entropy;
        het_accumulate_args accumulate;
        het_sum_squares_args sum_squares;
        het_verdict_args verdict;
        het_adamw_args adamw;
        het_muon_args muon;
        het_feedback_args feedback;
        het_normal_args normal;
        het_elements_args elements;
        het_expand_args expand;
        het_copy_args copy;
    } u;
} het_op;

/* Which inner loops the CPU device uses. AUTO takes the best the machine has. All give the same
   bits in f32. Products in bf16 in the matrix registers of Intel's AMX (Linux) are up to several
   times as fast and have bits of their own, so AUTO takes them where sums are fast only. */
typedef enum het_isa { HET_ISA_AUTO = 0, HET_ISA_PLAIN = 1, HET_ISA_AVX2 = 2, HET_ISA_AVX512 = 3,
                      HET_ISA_AVX512_BF16 = 4, HET_ISA_NEON = 5, HET_ISA_AMX = 6 } het_isa;
#define HETRAIN_ISA_NAMES "auto", "plain", "avx2", "avx512", "avx512bf16", "neon", "amx" /* by het_isa */
#define HET_PART(card, first, last) ((card) | (first) << 8 | ((last) + 1) << 19) /* multiprocessors */

typedef struct het_device_config {
    const het_allocator *allocator;  /* never NULL */
    const het_parallel *parallel;    /* never NULL; `run` NULL: the device may make threads of its own */
    int32_t threads;                 /* >= 1 */
    het_isa isa;
    int32_t fast;                    /* 1: sums are fast (het_reduce), bits may be the device's own */
    int32_t ordinal;                 /* which one of its kind, or HET_PART; the CPU has 0 alone */
    het_error *error;                /* create may say here why it failed; may be NULL */
} het_device_config;

/* Queues of ops, and events between them. An event that was never recorded has happened. event_sync
   may block; nothing else does. */
typedef struct het_queue_iface {
    het_result (*create)(void *self, het_queue **queue);
    void (*destroy)(void *self, het_queue *queue);
    het_result (*event_create)(void *self, het_event **event);
    void (*event_destroy)(void *self, het_event *event);
    het_result (*event_record)(void *self, het_queue *queue, het_event *event);
    het_result (*event_wait)(void *self, het_queue *queue, het_event *event);
    het_result (*event_sync)(void *self, het_event *event, double deadline_seconds);
} het_queue_iface;

/* Graphs of work that repeats. What a queue is given between capture_begin and capture_end does not
   run: launch runs it, as often as it is called, on the addresses and values it was given with.
   Only ops that the queue has run before with the same shapes come in between, no copies from or to
   the host. capture_end with graph NULL: what was given is forgotten. destroy waits for the graph's
   last launch. */
typedef struct het_graph_iface {
    het_result (*capture_begin)(void *self, het_queue *queue);
    het_result (*capture_end)(void *self, het_queue *queue, het_graph **graph);
    het_result (*launch)(void *self, het_queue *queue, het_graph *graph);
    void (*destroy)(void *self, het_queue *queue, het_graph *graph);
} het_graph_iface;

#define HETRAIN_DEVICE_VERSION 9
/* `self` is what create made. Results other than HET_OK end the context (the text comes from
   last_error): when such a call returns, nothing that the device's queues were given touches host
   memory any more, nor will it. Threads: one rank uses one device; alloc and free may block, run
   does not. */
typedef struct het_device_iface {
    uint32_t version;                /* HETRAIN_DEVICE_VERSION */
    const char *name;
    int32_t host_memory;             /* 1: what alloc gives can be read and written by the host */
    het_result (*create)(const het_device_config *config, void **self);
    void (*destroy)(void *self);
    const char *(*last_error)(void *self);
    void *(*alloc)(void *self, size_t size); /* bytes, aligned to 64 */
    void (*free)(void *self, void *pointer, size_t size);
    /* 1: the device can run this op. It may lack:
         scale                           models with het_model_desc.lora_rank are refused, and Muon
         muon_*                          Muon is refused
         part[0].w_bf16 in place of w    het_desc.weights = HET_BF16 is refused
         expand                          het_desc.weights = HET_INT8 is refused
         part[0].w_int8 in place of w    all weights of int8 are expanded before each call that uses them
         linear_activation_*             the two ops are run one after the other
         linear_forward with part[0].add what it adds is an op of its own
         norm_backward                   so are its two halves; their workspace serves it
         norm_backward_* with dx_bf16    gradients of streams are rounded by ops of their own
         attention_* with a pitch        q, k and v of bf16 lie apart (with it: rotary_* as well)
         activation_* with a pitch       so do gate and up
         normal                          the first weights are drawn by het_cpu_device()
         part[0].dw with beta 0          sums are cleared before a step
         bf16 operands                   a unit's values are floats, het_desc.streams = HET_BF16 is refused
         cross_entropy with bf16, at `rows` rows   a loss unit takes fewer rows at a time
         part[0].dw with final, at `rows` rows   terms are summed in double
         linear_forward or linear_backward_input with continues   teams by columns are refused
         attention_* with bias           units with het_node_biased_attention are refused
         round                           no weights in bf16 are kept beside those of products
         adamw, sum_squares with next    they come one by one
       Of pointers in args only NULL or not is looked at, and in a gradient beta and final. */
    int32_t (*supports)(void *self, const het_op *op);
    /* The largest workspace the op may use for these shapes. Pointers in args are not looked at. */
    size_t (*workspace)(void *self, const het_op *op);
    het_result (*run)(void *self, het_queue *queue, const het_op *op);
    const het_queue_iface *queues;   /* NULL: none, and an op has run when `run` returns */
    const het_graph_iface *graphs;   /* NULL: none */
} het_device_iface;

typedef struct het_device { const het_device_iface *iface; void *self; } het_device;

/* The built-in devices. The reference device is every op in plain C: the bits of the CPU device,
   30 to 100 times slower on small models. Without hetrain_cpu.h it is the CPU device as well. The
   null device allocates and copies but computes nothing. Threads: any. */
HETRAIN_API const het_device_iface *het_cpu_device(void);
HETRAIN_API const het_device_iface *het_reference_device(void);
HETRAIN_API const het_device_iface *het_null_device(void);

/* ---- >>unit_api: the unit table -----------------------------------------------------------------
   The model is a chain of units. Between units travels a list of streams, each [n][width] floats,
   or bf16 (het_desc.streams); a unit reads the streams of the unit before it and writes its own
   list. backward_input turns gradients of its output streams into gradients of its input streams;
   backward_weight adds to the gradients of its parameters, at once or much later. If later, what
   backward_input itself adds to gradients of parameters is lost, but for a unit with a loss
   (het_unit_info.is_loss). */

#define HETRAIN_MAX_STREAMS 4
#define HETRAIN_MAX_UNIT_PARAMETERS 24
#define HETRAIN_MAX_UNIT_TENSORS 40

typedef enum het_init { HET_INIT_ZERO = 0, HET_INIT_ONE = 1, HET_INIT_NORMAL = 2, HET_INIT_UNIFORM = 3 } het_init;

typedef struct het_parameter_desc {
    char name[64];          /* unique in the model, or equal to an earlier one of the same shape:
                               then it is the same (tied) */
    int64_t rows, columns;  /* columns 1: a vector */
    het_init init;
    float init_std;         /* HET_INIT_NORMAL; of HET_INIT_UNIFORM the bound: values from -init_std to init_std */
    int32_t decay;          /* weight decay applies */
    int32_t adapter;        /* a factor of het_model_desc.lora_rank, or of a local head: trained where
                               all others are frozen, and no part of saved weights */
    int32_t bf16, int8;     /* 1: where it is not trained, the unit also takes it as het_unit_call.weight_bf16,
                               weight_int8 */
    /* What a team by columns divides of it: 1: rows, 2: columns, 3: both; 0: nothing */
    int32_t divide;
    int32_t by_heads;       /* 1: as key/value heads are divided; 0: by share, */
    int32_t piece;          /*   in pieces of so many rows or columns, one at least; 0: of up to 64 */
    int32_t grid[4];        /* 3: rows are cut into grid[0] equal parts, columns into grid[1]; member m has part
                               m / grid[2] % grid[0] of the rows, m / grid[3] % grid[1] of the columns */
    int32_t rounded;        /* 1: where there is het_unit_call.weight_bf16 beside weight, the unit takes that */
    int32_t product;        /* 1: the unit adds to its gradient by the device's
                               linear_backward_weight alone, as dw: the sum need not be cleared; 2:
                               and by one call for all rows of a slice: where a step has one slice,
                               the sum need not wait for others */
} het_parameter_desc;

/* How long the engine keeps a unit's tensor (rows of one slice unless ..._MICRO_BATCH...). */
typedef enum het_keep {
    HET_KEEP_CALL = 0,      /* scratch inside one call, never carried over */
    HET_KEEP_INPUT = 1,     /* from forward until backward_input */
    HET_KEEP_WEIGHT = 2,    /* from forward until backward_weight */
    HET_KEEP_GRADIENT = 3,  /* from backward_input until backward_weight */
    /* rows of the whole micro-batch, from its first forward until its last backward_input */
    HET_KEEP_MICRO_BATCH = 4,
    /* rows of the whole micro-batch, cleared before its first backward_input, until its last
       backward_weight */
    HET_KEEP_MICRO_BATCH_GRADIENT = 5
} het_keep;

typedef struct het_tensor_desc {
    const char *name;
    int64_t width;          /* floats a row */
    het_keep keep;
    int32_t group;          /* 1: rows of all members of the group, not the rank's alone */
} het_tensor_desc;

struct het_unit_call;
struct het_team_member;
/* Of a tensor [n][columns] of the micro-batch. */
typedef struct het_box { int64_t row_begin, row_end, column_begin, column_end; } het_box;

#define HETRAIN_MAX_TEAM 64
/* The ranks that share a call; each has some of the present slice's rows. */
typedef struct het_team {
    int64_t members, member;             /* how many, this one's number */
    const int64_t *row;                  /* [members + 1] member m has rows [row[m], row[m + 1]) of the micro-batch */
    const struct het_team_member *plan;  /* [members] */
    const het_view *view;                /* of the rows of all members */
    /* Member m has box have[m] of a tensor, in `from`, and gets want[m] of it, in `to`, a row every
       `width` floats from the box's first element on. All members make the same calls with the same
       boxes. Comes back when `to` is there and `from` is free again. */
    het_result (*move)(const struct het_unit_call *call, float *from, const het_box *have, int64_t from_width,
                       float *to, const het_box *want, int64_t to_width);
    void *self;
} het_team;

/* What a member has: the most rows, its part of the columns. */
typedef struct het_team_limits {
    int64_t members, groups, heads;      /* heads: its key/value heads in attention; 0: all */
    int64_t rows, group_rows;            /* its own of a slice, its group's */
    int64_t kept_rows;                   /* of the micro-batch, to the end of its group */
    int64_t member;                      /* its number */
    const struct het_team_member *plan;  /* [members] of a team by columns; NULL: it is none */
    int64_t node[HETRAIN_MAX_TEAM];      /* [members] the process that a member is in */
} het_team_limits;

typedef struct het_unit {   /* one unit of the chain */
    const struct het_unit_iface *iface;
    const het_model_desc *model; /* completed; NULL: het_desc.model */
    int64_t layer;          /* 0 .. L - 1; embed 0, head L */
    const void *settings;   /* the user's own, for user kinds; must outlive the context */
} het_unit;

/* ---- units as programs ----
   A unit can be a program: a list of ops (nodes) over values, each value [rows][width] floats. Its
   describe lists the nodes, from het_program_begin to het_program_end; its other three calls are
   het_program_forward, het_program_backward_input and het_program_backward_weight
   (examples/custom_unit.c). All else follows from the list: parameters, tensors and how long they
   are kept, what is cheaper to make again than to keep, workspace, flops, gradients of values that
   several nodes read, what a frozen weight saves. */

#define HETRAIN_MAX_NODES 24
#define HETRAIN_MAX_VALUES 32

typedef enum het_node_kind {
    HET_NODE_EMBEDDING, HET_NODE_NORM, HET_NODE_HEAD_NORM, HET_NODE_LINEAR, HET_NODE_ROTARY, HET_NODE_ATTENTION,
    HET_NODE_ACTIVATION, HET_NODE_RESIDUAL, HET_NODE_COPY, HET_NODE_LOSS, HET_NODES
} het_node_kind;

typedef struct het_node {
    het_node_kind kind;
    int32_t option;               /* activation: which; residual: which of the unit's dropouts; linear: which factor */
    int32_t inputs, outputs;
    int32_t x[4], y[3];           /* values it reads, values it writes */
    int32_t weight[3], bias[3];   /* parameters of the unit; -1: none */
    int32_t statistic[2];         /* tensors of the unit: mean and rstd, maximum and sum; -1: none */
    int32_t core[8];              /* tensors of all rows of a team's group, -1: none. Attention whose heads it
                                     divides: q, k, v, o and their gradients. A linear node that it
                                     divides: x or dy, gathered; the chain of y or dx */
    const int32_t *relation;      /* of attention with a bias, x[3] */
} het_node;

/* A value and its gradient, [0] and [1]. */
typedef struct het_value {
    int64_t width, own;           /* own: columns that the rank has */
    int32_t divided;              /* 0: the rank's rows, all columns; 1, 2: the team's rows, columns by
                                     heads, by share */
    int32_t node;                 /* that makes it; -1: it is an input stream */
    int32_t uses;                 /* nodes that read it */
    int32_t in, out;              /* which input stream, which output stream it is; -1: none */
    int32_t factor;               /* u = x A^T number so many of the unit; -1: no factor's */
    int32_t home[2];              /* the value in whose memory it lies: itself, or another where an op works in place */
    int32_t tensor[2];            /* of the unit; -1: the stream's memory */
    int32_t beside;               /* the value in whose tensor it lies, side by side; -1: alone. Then: */
    int64_t column, pitch;        /* its first column there, elements from row to row */
    het_keep keep[2];
} het_value;

typedef struct het_program {
    int32_t nodes, values, factors, dropouts;
    het_node node[HETRAIN_MAX_NODES + 1]; /* the last is nobody's */
    het_value value[HETRAIN_MAX_VALUES];
    int32_t scratch;              /* tensor in which a gradient waits to be added to another; -1: none */
    int32_t logits;               /* of a loss unit; -1: it is none */
    int32_t gives;                /* 1: its way back can round the gradient of its only input stream as well */
    int32_t takes;                /* the value whose gradient is that of its only output stream, rounded; -1: none */
    het_result result;            /* of the functions below; these two are theirs alone: */
    const het_unit *unit;
    struct het_unit_info *info;
} het_program;

/* Filled by describe. Limits are those of the context: the most tokens of a micro-batch and of a
   granule. */
typedef struct het_unit_info {
    int64_t max_tokens, max_granule_tokens, max_sequences; /* in */
    het_dtype compute;                      /* in */
    int64_t slices;                         /* in: of a micro-batch */
    het_dtype streams;                      /* in: of streams and their gradients */
    het_dtype values;                       /* of a program's values and their gradients but for streams: bf16
                                               where compute is and the device takes them. A unit that is
                                               no program takes bf16 streams by saying HET_BF16, and
                                               clears the gradients that are kept with it itself */
    int64_t loss_rows;                      /* of a loss unit: rows it takes at a time, whole granules */
    const het_device *device;               /* in: for its workspace; NULL while only parameters are asked for */
    int64_t in_streams, in_width[HETRAIN_MAX_STREAMS]; /* in: what the unit before gives */
    int64_t out_streams, out_width[HETRAIN_MAX_STREAMS];
    int64_t parameters;
    het_parameter_desc parameter[HETRAIN_MAX_UNIT_PARAMETERS];
    int64_t tensors;
    het_tensor_desc tensor[HETRAIN_MAX_UNIT_TENSORS];
    het_keep input_keep;                    /* how long the input streams are needed: CALL (forward
                                               only), INPUT or WEIGHT */
    size_t workspace;                       /* bytes, scratch inside one call */
    int32_t is_loss;                        /* 1: makes a loss, d_in and all its parameters' gradients
                                               in backward_input; its backward_weight is never called.
                                               So does the last unit, which writes no stream. Another
                                               one passes its input streams on as they are, all of
                                               them: out[] is in[], and they count in `out`. It is a
                                               cut: no gradient comes back to it, d_out is NULL, its
                                               loss is added up but not reported, and outside training
                                               its backward_input is not called */
    double flops_forward, flops_input, flops_weight; /* a token, without the attention over context */
    het_program *program;                   /* in: room for one, which lives as long as the unit is called */
    const het_team_limits *team;            /* in: NULL: the rank is alone */
    int32_t teams;                          /* 1: a team can share its calls, as it can a program's */
    size_t exchange;                        /* bytes of all pieces that het_team.move sends or gets
                                               at once, those that lie apart or that the host does
                                               not see */
    /* For planners, in a team by columns, [0] forward, [1] backward: bytes of a token that all
       members get, and that go to members that work on them and come back. Not of programs. */
    double gather_bytes[2], exchange_bytes[2];
    const char *why;                        /* of a describe that fails: in words that stay, or NULL */
} het_unit_info;

typedef struct het_unit_call {
    const het_unit *unit;
    const het_unit_info *info;
    const het_device *device;
    het_queue *queue;
    const het_team *team;                   /* ranks that share this call; NULL: the rank is alone */
    int64_t index;                          /* of the unit in the chain */
    const het_view *view;
    const het_step_scalars *scalars;        /* device */
    het_dtype compute;
    int32_t training;                       /* 0: evaluation (no dropout, no gradient) */
    int32_t again;                          /* 1: a forward that is recomputed */
    int32_t joined;                         /* 1: backward_weight follows at once: backward_input may do some of it */
    int32_t unread;                         /* 1: nobody reads d_in, it may stay unwritten: the unit before is a cut,
                                               or has no backward pass, and there is no hook */
    int64_t rows;                           /* view->row_end - view->row_begin */
    float *in[HETRAIN_MAX_STREAMS];         /* at the slice's first row */
    float *out[HETRAIN_MAX_STREAMS];        /* forward (=); may be in[] where the unit passes a stream on */
    float *d_out[HETRAIN_MAX_STREAMS];      /* backward: gradients of the output streams; the unit may
                                               overwrite them. NULL at a cut */
    float *d_in[HETRAIN_MAX_STREAMS];       /* backward_input (=) */
    uint16_t *d_out_bf16, *d_in_bf16;       /* the same of stream 0, rounded (d_out itself where it is bf16 and
                                               `joined`); NULL: nobody has done it, or wants it */
    float *tensor[HETRAIN_MAX_UNIT_TENSORS];/* at the slice's first row; those of a micro-batch at its row 0 */
    float *weight[HETRAIN_MAX_UNIT_PARAMETERS]; /* NULL where only weight_bf16 or weight_int8 has it */
    const uint16_t *weight_bf16[HETRAIN_MAX_UNIT_PARAMETERS]; /* or beside it: rounded, for products */
    const het_int8_block *weight_int8[HETRAIN_MAX_UNIT_PARAMETERS]; /* where weight and weight_bf16 are NULL */
    het_gradient gradient[HETRAIN_MAX_UNIT_PARAMETERS];
    const float *cosine, *sine;             /* rotary tables [T][rotary / 2] */
    void *workspace;
    size_t workspace_size;
    het_sum *loss;                          /* device: sum of weight * -log p; of a cut one that nobody reads */
    float *row_loss;                        /* [rows] or NULL */
    float *logits;                          /* evaluation: the head writes [rows wanted][V] here, or NULL */
    int64_t logits_from;                    /* first row of the slice whose logits are wanted */
} het_unit_call;

#define HETRAIN_UNIT_VERSION 1
typedef struct het_unit_iface {
    uint32_t version;       /* HETRAIN_UNIT_VERSION */
    const char *name;
    het_result (*describe)(const het_unit *unit, het_unit_info *info);
    het_result (*forward)(const het_unit_call *call);
    het_result (*backward_input)(const het_unit_call *call);
    het_result (*backward_weight)(const het_unit_call *call);
} het_unit_iface;

/* y = x W^T + b, W [out][width of x]. */
typedef struct het_matrix {
    const char *name;         /* as below */
    int64_t out;
    int32_t bias;             /* 1: there is one; it starts at 0 */
    float init_std;           /* of W: normal */
    int32_t low_rank;         /* 1: with factors, where the model has lora_rank */
} het_matrix;

/* Nodes. Each returns its value, or -1: what does not fit together is het_program_end's result.
   Names of parameters come without ".weight" and ".bias", and '#' in them is the unit's layer;
   settings are the model's. A unit must read every input stream, and every value must be read or
   be an output. Threads: any. */
HETRAIN_API het_program *het_program_begin(const het_unit *unit, het_unit_info *info);
HETRAIN_API int het_node_input(het_program *p, int stream, int64_t width);
/* table[token] + positions[position]; positions NULL: none. [V][D], [T][D]. Threads: any. */
HETRAIN_API int het_node_embedding(het_program *p, const char *table, const char *positions);
HETRAIN_API int het_node_norm(het_program *p, int x, const char *name);
/* RMSNorm of each head of x. Threads: any. */
HETRAIN_API int het_node_head_norm(het_program *p, int x, const char *name);
HETRAIN_API int het_node_linear(het_program *p, int x, const char *name, int64_t out, float init_std);
/* y[i] = x W_i^T + b_i for up to 3 matrices at once. Threads: any. */
HETRAIN_API void het_node_linears(het_program *p, int x, int count, const het_matrix *matrix, int *y);
HETRAIN_API int het_node_rotary(het_program *p, int x);
/* q [n][H E], k and v [n][K E], which nothing else may read. Threads: any. */
HETRAIN_API int het_node_attention(het_program *p, int q, int k, int v);
/* The same with scores to which bias [n][H R] adds what it has for a head and for the relation of
   query and key: relation [T][T], numbers in [0, R) that stay the caller's and outlive the context,
   row i for the query at position i. Relations by distance in a graph or by i - j, or one of each
   pair: examples/graph.c. A linear node's bias is one scalar a head and relation. No teams.
   Threads: any. */
HETRAIN_API int het_node_biased_attention(het_program *p, int q, int k, int v, int bias, const int32_t *relation);
/* GELU of a; SwiGLU: silu(a) b. Threads: any. */
HETRAIN_API int het_node_activation(het_program *p, het_activation kind, int a, int b);
/* x + dropout(y); x -1: dropout(y). Up to 4 of a unit drop. Threads: any. */
HETRAIN_API int het_node_residual(het_program *p, int x, int y);
/* The unit's next output stream. Threads: any. */
HETRAIN_API void het_node_output(het_program *p, int x);
/* The softmax cross-entropy of x [n][V] with the targets: of the model's last unit, without
   outputs, or of a cut, whose input streams are then its outputs, in their order. It runs in
   backward_input alone, one granule at a time, so that no more logits exist at once.
   Threads: any. */
HETRAIN_API void het_node_loss(het_program *p, int x);
/* The end: derives the rest of het_unit_info. Fails if a node was refused. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_program_end(het_program *p);

/* The other calls of a unit that is a program. Threads: any. */
HETRAIN_API het_result het_program_forward(const het_unit_call *call);
HETRAIN_API het_result het_program_backward_input(const het_unit_call *call);
HETRAIN_API het_result het_program_backward_weight(const het_unit_call *call);

/* The built-in kinds. Threads: any. */
HETRAIN_API const het_unit_iface *het_unit_embed(void);
HETRAIN_API const het_unit_iface *het_unit_attention(void);
HETRAIN_API const het_unit_iface *het_unit_mlp(void);
HETRAIN_API const het_unit_iface *het_unit_head(void);
/* A head of its own, norm and untied matrix, behind a layer: a cut. Its parameters are
   "local_head.#.norm" and "local_head.#", '#' the layer. Threads: any. */
HETRAIN_API const het_unit_iface *het_unit_local_head(void);

/* The chain of a model: embed, (attention, mlp) x L, head, 2 L + 2 units and with local_loss
   (L - 1) / local_loss local heads, rounded down; written to units[0 .. capacity), NULL and 0: only
   counted. `model` must be completed and outlive the units. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_model_units(const het_model_desc *model, het_unit *units,
                                                          int64_t capacity, int64_t *count, het_error *error);

/* ---- >>optimizer_api ------------------------------------------------------------------------- */

typedef struct het_optimizer_call {
    const het_device *device;
    het_queue *queue;
    const het_step_scalars *scalars;  /* device */
    const het_gradient *gradient;     /* of those elements: g = float(sum) scalars->clip_scale, of the mean loss */
    int64_t count;
    int64_t rows, columns;            /* shape of the whole parameter; count == rows * columns where it is not cut */
    float *weight;
    float *state[4];                  /* one a slot */
    float decay;                      /* 0 for parameters that do not decay */
    const struct het_optimizer_desc *desc;
    int32_t hidden;                   /* 1: a matrix of products, and not of the unit with the loss */
    het_dtype compute;                /* of products */
    void *workspace;                  /* of the bytes that the table's `workspace` named */
    /* what only het_adamw() gets: het_adamw_args.w_bf16, and calls to be done with this one, or
       NULL */
    uint16_t *weight_bf16;
    const struct het_optimizer_call *next;
} het_optimizer_call;

/* An optimizer is state slots and an update. */
typedef struct het_optimizer_iface {
    const char *name;
    int32_t slots;                    /* float arrays as large as the parameter, at most 4, zero at the start */
    const char *slot_name[4];
    int32_t whole_matrices;           /* 1: parameters must not be cut between ranks */
    het_result (*update)(const het_optimizer_call *call); /* does nothing unless scalars->verdict is ACCEPT */
    /* Scratch of update, in bytes; pointers but `device` are not looked at. NULL: none. */
    size_t (*workspace)(const het_optimizer_call *call);
    /* Moves `weight`, a copy, to where updates like the last would bring it at
       scalars->learning_rate; `state` stays (SpecTrain, arXiv 1809.02839; XPipe, 1911.04610).
       NULL: it predicts nothing. */
    het_result (*predict)(const het_optimizer_call *call);
} het_optimizer_iface;
HETRAIN_API const het_optimizer_iface *het_adamw(void); /* Threads: any. */
/* Muon (K. Jordan, "Muon: an optimizer for hidden layers in neural networks", 2024): the momentum
   of a hidden matrix [r][c] is made nearly orthogonal; a step is that times 0.2 sqrt(max(r, c)), as
   large as AdamW's (arXiv 2502.16982). All else is AdamW's. X is the momentum, or its transpose
   where r > c, divided by its norm; then five times (Newton-Schulz): A = X X^T, X = 3.4445 X +
   (-4.7750 A + 2.0315 A A) X: 20 r^2 c + 10 r^3 flops a step, r <= c, beside 6 r c a token of the
   matrix's own products: 5 r / tokens of these where r = c. Threads: any. */
HETRAIN_API const het_optimizer_iface *het_muon(void);

/* Feedback goes around any optimizer's update where het_optimizer_desc.feedback = f or
   feedback_change = c is above 0. U_t is what the optimizer would subtract, rate and decay in it.
   Where gradients are one update late, U_(t-1) was applied in the place of U_t, which is there only
   now. With f = 1 this update makes the error good:
       w = w - (U_t + f (U_t - U_(t-1))),   U_(-1) = 0.
   The sum telescopes to w = z - f U_t: z is the optimizer's own trajectory, which it updates and
   decays; w, which gradients are made with, lies f of its last update ahead, where z is expected
   when they come. So f = D for gradients D late: XPipe's prediction (1911.04610), of any optimizer.
   With c it also turns as the updates do: w = z - f U_t - c (U_t - U_(t-1)), a parabola where c = D
   (D + 1) / 2. Our own reading of the error feedback in arXiv 2606.30634.
   Slots behind the optimizer's: z - w ("feedback"), with c also U_t ("update"). Weights that are
   read, saved and evaluated are w, which meets z as the rate falls. With feedback nothing else is
   predicted (xpipe). */

typedef enum het_lr_schedule {
    HET_LR_DEFAULT = 0 /* cosine */, HET_LR_COSINE = 1, HET_LR_LINEAR = 2, HET_LR_CONSTANT = 3, HET_LR_WSD = 4
} het_lr_schedule;

typedef struct het_optimizer_desc {
    const het_optimizer_iface *iface; /* AdamW; or het_muon() */
    float learning_rate;              /* 6e-4 */
    float minimum_rate;               /* 0 */
    int64_t warmup_steps;             /* 0: none; then lr rises linearly, (step + 1) / warmup */
    int64_t total_steps;              /* 1000: where the schedule ends; afterwards the minimum rate
                                         (constant: the rate) */
    het_lr_schedule schedule;         /* cosine. WSD: constant, over the last 20 % 1 - sqrt(x) */
    float beta1, beta2, epsilon;      /* 0.9, 0.95, 1e-8 */
    float weight_decay;               /* 0.1; negative: none */
    float clip;                       /* 1.0: global norm; negative: none */
    float matrix_rate;                /* 0: learning_rate; of Muon's matrices, on the same schedule */
    float momentum;                   /* 0.95; Muon's */
    float feedback, feedback_change;  /* 0, 0: off; f and c above */
} het_optimizer_desc;

/* The optimizer's state slots, and those of feedback. desc NULL: all defaults. Threads: any. */
HETRAIN_API int32_t het_optimizer_slots(const het_optimizer_desc *desc);

/* Learning rate of a step counted from 0; update u of the N of a step has that of step N step + u
   of a run with N times as many, of warm-up too. desc NULL: all defaults. Threads: any. */
HETRAIN_API double het_learning_rate(const het_optimizer_desc *desc, int64_t step);

/* ---- >>plan_api: who does what ------------------------------------------------------------------
   A plan is a set of pipelines. A pipeline is an ordered list of stages that together hold every
   unit of the chain once; a stage is a rank and a run of units. A rank may hold several stages, of
   one pipeline or of several. Pipelines may be cut differently and take different shares of a
   step's micro-batches, none included. Data parallelism is n pipelines of one stage, pipeline
   parallelism one pipeline of n stages.
   A rank may lead a team: ranks that run its stages together with it. Its list of actions is that
   of all its members. Each has whole weights and a run of every micro-batch's rows, cut between
   granules by share; only attention moves rows between them. In attention the members of a group
   compute the group's queries together, each for some of the key/value heads (DeepSpeed-Ulysses,
   arXiv 2309.14509); groups follow each other along the rows, and a group has the keys and values
   of earlier ones. One member a group is parallel by context, one group by heads.
   A team by columns is one group that divides matrices too (tensor parallel, arXiv 1909.08053):
   where two products follow each other, with at most attention or activations in between, a member
   has the first one's columns of its heads or share, and the second one's rows that read them. It
   computes them for all rows of the team, which are gathered before; the second product is a chain
   that goes from member to member, in blocks of rows, so that its sums are those of one rank. */

/* What a stage keeps of a slice from its forward to its backward pass; what is not kept is computed
   again there, by the same ops: all there is; the input of each of its units, which recomputes when
   its turn comes; or the input of the first alone (GPipe, arXiv 1811.06965): then B, or I, first
   runs all its units forward once more, into memory that all slices share, and goes back from
   there. Where W comes apart from I it reads units' inputs, which stay in both cases. */
typedef enum het_recompute { HET_RECOMPUTE_NONE = 0, HET_RECOMPUTE_UNIT = 1, HET_RECOMPUTE_STAGE = 2 } het_recompute;

typedef struct het_stage {
    int64_t pipeline, rank;           /* a rank that is alone or leads a team */
    int64_t unit_begin, unit_end;     /* [begin, end), not empty */
    int32_t recompute;                /* het_recompute */
    int32_t recompute_units;          /* unit by unit: its first so many; 0: all */
    int32_t store;                    /* micro-batches whose activations stay on the device, those of others
                                         wait on the host (het_schedule_store); 0: all stay */
    int32_t updates;                  /* of its weights in a step (Gear Training, arXiv 1806.03925); 0: the plan's */
    uint64_t keep;                    /* bit i: slice i, of the first 64, keeps all, though others recompute
                                         (InfiniPipe, arXiv 2509.21275) */
} het_stage;

/* The step that a plan was made for. Granules here are what stays together: whole sequences, one at
   least. All 0: not known. */
typedef struct het_plan_step {
    int64_t granules;                 /* of a step */
    int64_t sequences, length;        /* of a granule; tokens of a sequence */
    int64_t micro_batch;              /* granules of a micro-batch; the last one has what is left */
} het_plan_step;

/* A member of a team, its leader included. */
typedef struct het_team_member {
    int64_t leader, rank;
    double share;                     /* of a slice's tokens, >= 0 */
    int64_t group;                    /* of attention: 0, or the member's before or one more */
    int64_t heads;                    /* key/value heads that it has there, >= 1; 0, where it is
                                         alone in its group: all */
    int64_t columns;                  /* 1, of all members: of one group, which divides matrices as well */
} het_team_member;

/* What the holders of a block divide among them, by state_share, instead of each having it whole:
   the optimizer's state; also the sums of gradients, of which what a backward call adds goes to the
   owners at once; also the weights, which a unit's call has for itself alone. Less memory, more
   messages. Sums are divided only with reduce = exact, where they have no order. (ZeRO 1, 2, 3,
   arXiv 1910.02054) */
typedef enum het_shard {
    HET_SHARD_DEFAULT = 0 /* state */, HET_SHARD_STATE = 1, HET_SHARD_GRADIENTS = 2, HET_SHARD_WEIGHTS = 3
} het_shard;

/* Where gradients do not go: they follow from the model. Units behind a cut train what comes before
   it no more: BEHIND, a unit with a loss of its own (het_unit_info.is_loss) that is not the last
   one. A unit has no backward pass, NONE, if neither it nor one between it and the cut before it
   has a trained parameter: frozen layers in front. */
typedef enum het_cut { HET_CUT_NOWHERE = 0, HET_CUT_BEHIND = 1, HET_CUT_NONE = 2 } het_cut;

typedef struct het_plan het_plan;
typedef struct het_schedule het_schedule;

struct het_plan {
    int64_t units, ranks, pipelines, stages, slices, members;
    het_stage *stage;                 /* [stages] pipeline by pipeline, along the chain */
    int64_t *first_stage;             /* [pipelines + 1] where a pipeline's stages begin */
    double *share;                    /* [pipelines] of the micro-batches, >= 0 */
    double *state_share;              /* [ranks] of gradients' sums and optimizer state among the
                                         holders of a block, >= 0 */
    double *slice_share;              /* [slices] of a micro-batch's tokens, > 0 */
    het_team_member *member;          /* [members] team by team, the leader first; a rank that is
                                         not there is alone */
    het_shard shard;                  /* state; het_layout.shard may say otherwise */
    int64_t *near;                    /* [ranks] sets of ranks, by number, or NULL: with sharded weights
                                         each set holds them all (hierarchical sharding, arXiv
                                         2306.10209), so that only updated ones come from elsewhere */
    uint8_t *keeper;                  /* [ranks] or NULL; 1: a rank without stages owns its state_share of
                                         every block and updates it: a CPU beside a card (ZeRO-Offload,
                                         arXiv 2101.06840), a parameter server */
    uint8_t *cut;                     /* [units] or NULL; het_cut of each, which follows from the model: het_create
                                         fills it, or refuses another one than all 0 */
    char schedule[32];                /* a name that `make` knows */
    /* The compute lists of that name (hetrain_plan.h: het_schedule_make). NULL: the schedule has no
       name; a rank with one stage does 1F1B, one with several all forwards before all backwards. */
    het_result (*make)(const het_plan *plan, const int64_t *counts, const het_allocator *allocator,
                       het_schedule **schedule, het_error *error);
    double memory_limit;              /* for a schedule that asks: activations a rank may keep of each pipeline,
                                         in micro-batches of its layers, of which every slice is as large a
                                         part, whatever its share; 0: none */
    int64_t updates;                  /* of weights in a step (>>schedule_api); 0: 1 */
    int64_t staleness;                /* the most updates that a gradient may join late, and so many updates' sums
                                         owners have of what several ranks hold; 0: lists are not judged, and
                                         het_schedule_make makes none late */
    int64_t slice_tokens;             /* micro-batches of fewer than slices x so many tokens have rows in their
                                         last slices alone, each of about so many tokens or more; what the lists
                                         say of the others is left out (InfiniPipe). 0: all are cut alike */
    het_plan_step step;               /* nothing is computed from it: who forms micro-batches may follow it */
    het_allocator allocator;          /* of this struct and its arrays: one block of `size` bytes */
    size_t size;
};

/* A plan with the numbers of *shape, its name and `make`, and arrays of zeros. where: who is named
   in errors. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_plan_new(const het_plan *shape, const het_allocator *allocator,
                                                       const char *where, het_plan **plan, het_error *error);
/* All of a plan; of arrays that it does not have, zeros. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_plan_copy(const het_plan *from, const het_allocator *allocator,
                                                        const char *where, het_plan **plan, het_error *error);
/* Stages are there and on ranks that exist, every pipeline holds every unit once and in order,
   shares are finite and not all 0. Errors name the pipeline, the unit or rank and what is wrong
   with it. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_plan_check(const het_plan *plan, const char *where, het_error *error);
HETRAIN_API void het_plan_free(het_plan *plan);                        /* NULL is fine. Threads: any. */
/* Questions about a plan that passes het_plan_check.
   Backward of plan->stage[stage]: 2: its gradient goes to the stage before; 1: it ends in the
   stage, the first one or behind a cut; 0: the stage has only forward actions. Threads: any. */
HETRAIN_API int het_plan_backward(const het_plan *plan, int64_t stage);
/* The members of a rank's team, the leader first. NULL: it is alone, *count is 1. Threads: any. */
HETRAIN_API const het_team_member *het_plan_team(const het_plan *plan, int64_t rank, int64_t *count);
/* The most that a rank can have of a micro-batch with at most so many tokens and sequences and
   granules of at most `granule` tokens; all of *limits but `node`, which is 0. Threads: any. */
HETRAIN_API void het_plan_rows(const het_plan *plan, int64_t rank, int64_t tokens, int64_t sequences, int64_t granule,
                               het_team_limits *limits);

/* ---- >>schedule_api: in which order -------------------------------------------------------------
   One list of actions a rank, plain data; that of a team is its leader's, its other members have
   empty ones. hetrain_plan.h makes lists by name, reads and writes them as text. In messages an
   action is "2F3", forward of stage 2, micro-batch 3; where not 0, ".slice", "@pipeline" and
   "/version" follow. "REDUCE5" is of block 5. Micro-batches count from 0 within their pipeline.
   A list may update weights several times (het_plan.updates), without a barrier between: STEP of
   update u makes version u + 1 of a block's weights from version u. F says which version it uses,
   and its backward uses the same; B, I and W say which update their gradient joins, u - v updates
   late where F used v (PipeDream, arXiv 1806.03377; PipeDream-2BW, 2006.09503). Before version v
   is there, F uses a prediction of it (het_optimizer_iface.predict), on the only rank that holds
   the block; its backward, what that recomputes and later slices may use v itself: bits depend on
   these. A rank without gradients in an update has no REDUCE of it, and GATHER only brings versions
   that are used, and the last. On a rank a block's gradients of one update all come before those of
   the next. Lists that mix them are refused, as of a tied embedding beside its head, where the
   head's I of the next update comes before the embedding's W of this one. Nothing else decides what
   is computed: time does not. */

typedef enum het_action_kind {
    HET_ACTION_F = 0, HET_ACTION_B = 1, HET_ACTION_I = 2, HET_ACTION_W = 3,
    HET_ACTION_PUT = 4, HET_ACTION_TAKE = 5, /* what a slice keeps, behind its F or I to the host, and back */
    HET_ACTION_SEND_F = 6, HET_ACTION_RECV_F = 7, /* a stage's output to the next, its input from the one before */
    /* the gradient of a stage's input to the one before, of its output from the next */
    HET_ACTION_SEND_B = 8, HET_ACTION_RECV_B = 9,
    HET_ACTION_REDUCE = 10,  /* starts the reduction of a block's gradient to its owners */
    /* "VERDICT": waits for all reductions, joins maxima and norms of all ranks that have a stage */
    HET_ACTION_COMMIT = 11,
    HET_ACTION_STEP = 12,    /* updates the part of a block that the rank owns */
    HET_ACTION_GATHER = 13   /* starts the exchange of a block's new weights among its holders */
} het_action_kind;

typedef struct het_action {
    int32_t kind;                     /* het_action_kind */
    int32_t overlap;                  /* 1: a pair with the action behind it, "(a;b)OVERLAP_F_B" */
    int32_t pipeline, stage;          /* stage within the pipeline; of REDUCE, STEP and GATHER: the block */
    int32_t micro_batch, slice;
    int32_t version;                  /* F: of the weights used; B, I, W, REDUCE, STEP, GATHER: the update */
} het_action;

struct het_schedule {
    int64_t ranks, pipelines;
    int64_t *micro_batches;           /* [pipelines] */
    int64_t *start;                   /* [ranks + 1] rank r's actions are [start[r], start[r + 1]) */
    het_action *action;
    int32_t complete;                 /* 0: compute actions, PUT and TAKE, perhaps SEND and RECV; 1: with SEND,
                                         RECV, REDUCE, VERDICT, STEP, GATHER */
    het_allocator allocator;          /* one block of `size` bytes */
    size_t size;
};

/* Parameters that belong together: the same units use them. NULL where it may be given: one block a
   unit. */
typedef struct het_blocks {
    int64_t count;
    const int64_t *start;             /* [count + 1] into unit */
    const int64_t *unit;              /* ascending within a block */
} het_blocks;

/* How many of a step's micro-batches fall to each pipeline, by share, largest remainders first (the
   lower pipeline on a tie); the first ones of the step to the first pipeline, the next ones to the
   second. counts: [pipelines]. Threads: any. */
HETRAIN_API void het_plan_micro_batches(const het_plan *plan, int64_t micro_batches, int64_t *counts);
/* How far a stage is while lists are made. Its forwards come in the order of micro-batches and
   slices, its backwards in the order of micro-batches, slices last to first: so counts tell
   everything. A stage without a backward pass has done as many as the stage behind it has done
   forwards. */
typedef struct het_play_stage {
    int64_t pipeline, before, after;  /* stages of the pipeline before this one and after it */
    int64_t behind;                   /* those after it that its gradient comes through: up to a cut; of a stage
                                         without a backward pass all */
    int32_t backward;                 /* het_plan_backward */
    int64_t items;                    /* micro-batches x slices */
    int64_t begun[3], done[3];        /* F; B or I; B or W */
} het_play_stage;

typedef struct het_play {
    const het_plan *plan;
    const int64_t *counts;            /* [pipelines] micro-batches */
    het_play_stage *stage;            /* [plan->stages] */
    int64_t *rank_start, *rank_stage; /* [ranks + 1], [stages]: rank r has the stages rank_stage[rank_start[r]] ... */
} het_play;

/* Which action a free rank takes: the rule of a schedule. */
typedef struct het_rule {
    const char *where;                /* who is named in errors; NULL: "het_schedule_play" */
    void *user;
    /* The play's first call, stages counted and nothing begun; may be NULL. */
    het_result (*start)(void *user, const het_play *play, het_error *error);
    /* 1: the next F, B, I or W of plan->stage[stage[0]], which is this rank's and ready. 2: a pair,
       an F and the B or I of stage[1]. 0: nothing before others have done more. What a wrong rule
       makes is het_schedule_check's to find. */
    int (*choose)(void *user, const het_play *play, int64_t rank, int64_t stage[2], int32_t kind[2]);
} het_rule;

/* 1: what the stage's next F, or B or I, or W needs is there. Threads: any. */
HETRAIN_API int het_play_ready(const het_play *play, int64_t stage, int32_t kind);
/* The compute lists of a rule: a simulation in which every rank that is free takes the action that
   the rule chooses, until all are done. F, I and W take 1, B 2; all ends of one moment come before
   all begins of it. het_schedule_store adds PUT and TAKE. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_schedule_play(const het_plan *plan, const int64_t *counts,
                                                            const het_rule *rule, const het_allocator *allocator,
                                                            het_schedule **schedule, het_error *error);
/* PUT and TAKE of stages with a `store` into valid compute lists, instead of those that these
   stages have. In K slices, k = store: an F or I behind which the stage keeps more than k K slices
   on the device is followed by its PUT, unless the rank's next compute action works on that slice.
   TAKE stands one compute action before the one that needs it, or, where that would be one slice
   too many, right before it. So a stage has at most k K + 1 slices on the device at once, and one
   more in a pair with an F of its own. On error the lists stay. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_schedule_store(const het_plan *plan, het_schedule **schedule,
                                                             het_error *error);
/* Empty lists with room for so many actions. where: who is named in errors. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_schedule_new(int64_t ranks, int64_t pipelines, int64_t actions,
                                                           const het_allocator *allocator, const char *where,
                                                           het_schedule **schedule, het_error *error);
/* A copy of compute lists (which must pass het_schedule_check) with the rest added. All lists are
   parts of one global order of events, played with F, I, W = 1, B = 2 and free transfers: a SEND
   comes when its action ends, the RECV on the other rank at that moment, before what that rank is
   working on or has worked on last, so that the message travels meanwhile. REDUCE comes behind the
   block's last use on the rank, in one order on all ranks; then VERDICT on every rank; then, by
   block number, STEP and, with more than one holder, GATHER. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_schedule_complete(const het_plan *plan, const het_blocks *blocks,
                                                                const het_schedule *compute,
                                                                const het_allocator *allocator, het_schedule **schedule,
                                                                het_error *error);
/* Proves: every (stage, micro-batch, slice) has its F and its B or I and W exactly once, on the
   right rank, after what it needs (no B where het_plan_backward is 0, and no SEND_B or RECV_B
   across a cut); sends and receives pair up; every holder of a block has its REDUCE (after the last
   use), STEP and GATHER, in orders that agree on all ranks; a PUT finds its
   slice on the device and a TAKE on the host, and B, I and W find it on the device; nothing waits
   for ever even if every send waits for its receive. peak: [ranks] or NULL, the most activations
   kept on the device at once in micro-batches of the rank's stages of a pipeline, from F until B or
   W. The error names rank, position (from 0) and action. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_schedule_check(const het_plan *plan, const het_blocks *blocks,
                                                             const het_schedule *schedule, double *peak,
                                                             het_error *error);
/* What a rank's list of actions needs at most at any time. */
typedef struct het_needs {
    int64_t slots;                    /* activations of slices on the device, from F until B or W */
    int64_t lean;                     /* the same of those that recompute where others of their stage keep all;
                                         not in `slots` */
    int64_t places;                   /* on the host, from PUT until TAKE */
    int64_t batch_slots;              /* micro-batches of which a slice is in flight or to come */
    int64_t chains;                   /* those of them whose backward pass has begun */
    int64_t messages;                 /* received, or handed over, and not yet used; 0 of compute lists */
    int32_t split;                    /* I and W come apart in none of its stages: 0, in some: 1, in all: 2 */
    int32_t predicts;                 /* 1: some F may use a version that is not there yet */
    int64_t versions;                 /* of weights that are still used */
} het_needs;
/* Of lists that pass het_schedule_check. needs: [count], of the ranks from `first` on. forwards:
   only they are run, and nothing is kept behind them (inference). allocator: of a table that is
   freed again. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_schedule_needs(const het_plan *plan, const het_schedule *schedule,
                                                             int64_t first, int64_t count, int forwards,
                                                             const het_allocator *allocator, het_needs *needs,
                                                             het_error *error);
HETRAIN_API void het_schedule_free(het_schedule *schedule);            /* NULL is fine. Threads: any. */
#define HETRAIN_FLOW_WINDOW 131072 /* elements of a message of REDUCE or GATHER under way at once */
#define HETRAIN_DIRECT 16 /* holders of a block at most that send to each other without clusters (>>moves) */
/* Clusters c and d have m and n holders. What passes between c and number i of d, all counted from
   0, goes through one of c's holders: its number. Inside a cluster (c = d) that is i itself. */
#define HETRAIN_COLLECTOR(m, c, i, n, d) (((i) * (m) + ((d) + (m) * ((c) + 1) - (c)) % (m)) / (n))
/* A rank and whom it hears from, which stands before it; -1: nobody. */
typedef struct het_tree_place { int64_t rank, from; } het_tree_place;
#define HETRAIN_TREE_MOST 16 /* ranks whose links are looked at; of more, those below one at most */
/* The tree below place[0].rank, by which VERDICT goes up and down; a rank sends to all below it at
   once. seconds: [count][count] what a message takes there and one back, count at most
   HETRAIN_TREE_MOST: the tree of shortest paths (Dijkstra 1959); with equal links all hear from the
   first. NULL: place k hears from place (k - 1) / HETRAIN_TREE_MOST. Threads: any. */
HETRAIN_API void het_tree_grow(het_tree_place *place, int64_t count, const double *seconds);

/* ---- >>transport_api: other processes -----------------------------------------------------------
   Ranks in one process reach each other by themselves; a transport connects processes. Messages of
   one (from, to, channel) arrive in order. Nothing blocks: operations are started, and `test` tells
   when they are done. A buffer belongs to its operation until then. Ranks have threads: several may
   call at once. */

/* filled by isend and irecv, kept by the caller until done */
typedef struct het_request { void *opaque[16]; } het_request;

#define HETRAIN_CALLERS_CHANNEL 8 /* which no message of hetrain.h's own has */
#define HETRAIN_TRANSPORT_VERSION 1
typedef struct het_transport_iface {
    uint32_t version;
    const char *name;
    int64_t (*processes)(void *self);
    int64_t (*process)(void *self);   /* this one's number */
    /* channel < 2^24; HETRAIN_CALLERS_CHANNEL is left to the caller. A message longer or shorter
       than the receiver expects is an error. */
    het_result (*isend)(void *self, int64_t to, uint32_t channel, const void *data, size_t size, het_request *request);
    het_result (*irecv)(void *self, int64_t from, uint32_t channel, void *data, size_t size, het_request *request);
    /* an error ends the request as `done` does: it is not asked for again */
    het_result (*test)(void *self, het_request *request, int32_t *done);
    /* seconds since a process was last heard of; heartbeats are the transport's own business.
       Infinity: gone for sure */
    double (*silence)(void *self, int64_t process);
    /* tells all processes that this one failed; theirs then return the text from `aborted`.
       Afterwards `test` ends every request before long, with done or an error; from then on its
       buffer is not touched */
    void (*abort)(void *self, het_result code, const char *text);
    /* HET_OK, or the code of a process that aborted; text: [capacity] */
    het_result (*aborted)(void *self, int64_t *process, char *text, size_t capacity);
    const char *(*last_error)(void *self);
} het_transport_iface;

typedef struct het_transport { const het_transport_iface *iface; void *self; } het_transport;

/* ---- >>communicator_api: devices that reach each other without the host --------------------------------
   Optional. A group is a set of ranks whose devices move data among them by themselves: reductions,
   gathers and messages between its members do not pass through host memory. The engine decides
   which groups it needs, makes one of its members ask for an identity, carries that to the others
   and has all join, in het_create and het_replan. An op begins behind what its queue has been given
   before; what the queue is given later does not wait for it: `test` tells. Nothing blocks but
   `leave`. All members give the reductions and gathers of a group in the same order; between groups
   there is no order: a rank may have ops of several under way, each group's on a queue of its own,
   and none may need another one's to end first. Calls on one member (het_communicator) never
   overlap, whichever thread they come from; different members of a process are used by different
   threads at once. Scalars of the verdict and what is sharded (het_shard) or a keeper's pass
   through the host. */

typedef struct het_communicator het_communicator; /* one member's end of a group: the provider's own */
typedef enum het_communicator_element {
    HET_COMMUNICATOR_F32 = 0, HET_COMMUNICATOR_F64 = 1, HET_COMMUNICATOR_I64 = 2
} het_communicator_element;

/* Bytes in device memory that go to another member, or come from it. */
typedef struct het_communicator_piece { void *data; size_t bytes; } het_communicator_piece;

#define HETRAIN_COMMUNICATOR_VERSION 2
#define HETRAIN_COMMUNICATOR_ID 160        /* bytes of an identity at most */
#define HETRAIN_COMMUNICATOR_PLACE 128     /* bytes of a place at most, its final 0 included */
typedef struct het_communicator_iface {
    uint32_t version;               /* HETRAIN_COMMUNICATOR_VERSION */
    const char *name;
    size_t id_bytes;                /* of an identity; the same in all processes */
    /* where a device is, as text of at most capacity - 1 characters that any process would give the
       same device. "": it cannot be a member. Members of one group are at different places. Only
       asked for devices with queues */
    het_result (*place)(void *self, const het_device *device, char *text, size_t capacity);
    /* a fresh one, for one group; id: [id_bytes] */
    het_result (*identity)(void *self, void *id);
    /* starts joining as member number `member` of `members`; *group belongs to the engine until
       `leave`, also if joining fails later. At most `ops` ops are given and not finished at any
       time: exchanges, or else reductions and gathers. Joins of a process's members of one group
       are started one after the other, then polled */
    het_result (*join)(void *self, const het_device *device, const void *id, int64_t members, int64_t member,
                       int64_t ops, int32_t exchanges, het_communicator **group);
    het_result (*joined)(void *self, het_communicator *group, int32_t *done); /* 1: ops may be given */
    /* Ops. start: [members + 1] ascending, elements of `data`, read before the call returns; ranges
       may be empty. reduce_scatter: the sum of all members' elements [start[m], start[m + 1]) ends
       in member m's data, the others' are undefined. all_gather: these elements of member m's data
       end in everybody's. Sums of double and int64 are exact wherever any order gives them exactly;
       of float, of one order for one group */
    het_result (*reduce_scatter)(void *self, het_communicator *group, het_queue *queue, void *data,
                                 const int64_t *start, het_communicator_element element);
    het_result (*all_gather)(void *self, het_communicator *group, het_queue *queue, void *data, const int64_t *start,
                             het_communicator_element element);
    /* Pieces to and from other members. What a member has for another meets what that one takes
       from it, in the order in which the two give them; an op has run when all of its pieces have.
       out, in: [members], read before the call returns; 0 bytes: nothing. What leaves is only read,
       and no piece overlaps one that comes */
    het_result (*exchange)(void *self, het_communicator *group, het_queue *queue, const het_communicator_piece *out,
                           const het_communicator_piece *in);
    /* how many of the ops given since `join` have run: work given to the device from then on, on
       any queue, sees what they did. Also the place where an error that came up since is told.
       Polled while the engine waits */
    het_result (*test)(void *self, het_communicator *group, int64_t *finished);
    /* what is under way at this member, joining included, ends before long, whatever the others do;
       only `leave` follows. The engine aborts every member of a process whose job failed, each on
       the thread that uses it */
    void (*abort)(void *self, het_communicator *group);
    /* returns when nothing of this member touches memory any more, and frees it; waits for no other
       member's leave. Either all its ops have finished or it was aborted before */
    void (*leave)(void *self, het_communicator *group);
    /* of this member; group NULL: of place, identity or join */
    const char *(*last_error)(void *self, het_communicator *group);
} het_communicator_iface;

typedef struct het_communicators { const het_communicator_iface *iface; void *self; } het_communicators;

/* ---- >>timeline_api: what happened, or would ------------------------------------------------- */
typedef struct het_record {
    het_action action;
    int32_t rank;
    double start, end;                /* seconds since the step began. Of REDUCE and GATHER: from
                                         their turn until the last message; of RECV: while it was
                                         waited for; F, B and I begin when that is over */
    int64_t bytes;                    /* moved by PUT, TAKE, SEND, RECV, REDUCE, GATHER */
    double exchange;                  /* seconds of it in exchanges with the rank's team */
} het_record;
/* What a rank has sent to another since the context was made. */
typedef struct het_traffic {
    int64_t transfers, transfer_bytes, reductions, reduction_bytes;
    int64_t exchanges, exchange_bytes; /* between members of a team */
} het_traffic;
typedef struct het_timeline {
    int64_t ranks, records;
    const het_record *record;         /* [records] rank by rank, each in the order of its list */
    int64_t dropped;                  /* records that did not fit; never of a step */
    const het_traffic *traffic;       /* [ranks] of one rank to every other, or NULL */
} het_timeline;

/* ---- >>context_api: the step loop ------------------------------------------------------------ */

typedef enum het_reduce { HET_REDUCE_DEFAULT = 0 /* exact */, HET_REDUCE_EXACT = 1, HET_REDUCE_FAST = 2 } het_reduce;
typedef enum het_backward { HET_BACKWARD_DEFAULT = 0 /* fused */, HET_BACKWARD_FUSED = 1,
                           HET_BACKWARD_SPLIT = 2 /* I, then W */,
                            HET_BACKWARD_DEFERRED = 3 /* all W of an update at its end */ } het_backward;
typedef enum het_direction { HET_FORWARD = 0, HET_BACKWARD = 1 } het_direction;

/* Called at every unit boundary, after a unit's forward with its output streams and after its
   backward_input with the gradients of its input streams. May read or change them (device memory,
   rows x width elements of `type`). Anything but HET_OK ends the step. Called by several ranks at
   once; the members of a team each have rows of their own (het_host.hook_whole). Where a stage
   recomputes as a whole, forwards come twice, but a local head's that begins it, and must be
   changed in the same way: */
typedef struct het_hook_info {
    het_direction direction;
    int32_t again;                    /* 1: a forward that is recomputed */
    int64_t rank, step, unit, micro_batch, slice, rows;
    int64_t row;                      /* first of them in the micro-batch */
    const char *unit_name;
    const het_device *device;
    int64_t streams;
    float *stream[HETRAIN_MAX_STREAMS];
    int64_t width[HETRAIN_MAX_STREAMS];
    het_dtype type;                   /* het_desc.streams; HET_BF16: stream[] are cast */
} het_hook_info;

typedef struct het_device_desc {
    const het_device_iface *iface;    /* CPU */
    int32_t threads;                  /* 1 */
    het_isa isa;                      /* auto */
    int32_t ordinal;                  /* which one of its kind: 0, as of CPUs; a part: HET_PART */
    size_t memory_limit;              /* bytes, message buffers included; 0: none. het_create
                                         refuses what does not fit */
    int64_t max_tokens;               /* of a micro-batch that it is given; 0: het_limits.max_tokens. A
                                         pipeline takes what all of its ranks take, and ranks have
                                         room for the most that a pipeline of theirs takes. Which
                                         ones a pipeline gets: het_plan_micro_batches */
    double speed;                     /* 1; from 0.001 to below 1 the device is slowed down by sleeping
                                         (1 / speed - 1) times the processor time of its rank's
                                         thread; meant for one thread a device */
    het_allocator allocator;          /* of its memory, and the device's own: a keeper's may map a file;
                                         not set: the context's */
} het_device_desc;

/* An emulated link between two ranks of this process, both ways: a message takes its bytes /
   bandwidth one after the other, then latency. */
typedef struct het_link {
    int64_t from, to;                 /* ranks */
    double latency;                   /* seconds, 3600 at most */
    double bandwidth;                 /* bytes a second, 1 at least; 0: without limit */
} het_link;

/* The most that a step holds: memory is planned for it. */
typedef struct het_limits {
    int64_t max_tokens;               /* of a micro-batch: 4 * context */
    int64_t max_sequences;            /* of a micro-batch: max_tokens. 1: its granules are of one length,
                                         so that slices need no room for one more */
    int64_t max_micro_batches;        /* of a step: 8 */
    int64_t max_slices;               /* slices of a micro-batch where there is no plan: 1. Cut
                                         between granules, as evenly as can be; one with fewer
                                         granules leaves slices empty, and more slices than
                                         max_tokens are refused */
} het_limits;

/* Who computes what, when and where: none of it changes a bit of what is trained. */
typedef struct het_layout {
    const het_device_desc *devices;   /* [device_count] of this process, a rank each; NULL: one CPU
                                         device of one thread */
    int64_t device_count;
    het_transport transport;          /* to other processes, whose ranks come before and behind
                                         these; iface NULL: there are none */
    het_communicators communicators;  /* devices that reach each other without the host
                                         (>>communicator_api); iface NULL: none do. A rank with an
                                         emulated link has none */
    const het_plan *plan;             /* NULL: every rank has the whole model and an equal share ("dp") */
    const het_schedule *schedule;     /* compute lists for max_micro_batches; NULL: of plan->schedule */
    het_backward backward;            /* fused */
    het_choice recompute;             /* no: as the plan's stages say; yes: every unit but the last
                                         recomputes its activations in the backward pass, if its
                                         stage does not as a whole (het_stage.recompute) */
    const uint8_t *recompute_unit;    /* [unit_count] 1 a unit that recomputes, or NULL */
    het_shard shard;                  /* default: the plan's */
    double deadline;                  /* seconds without a sign of life after which a rank counts as dead: 30 */
    double stall_deadline;            /* seconds a rank waits for another's action: 600 */
} het_layout;

/* What is done about steps and files that are not sound. */
typedef struct het_guard {
    double spike;                     /* K: a step whose loss or gradient norm is above median +
                                         1.4826 K MAD of the last HETRAIN_LOSS_HISTORY accepted steps
                                         (MAD: the median distance from the median; Hampel, JASA 69,
                                         1974: 1.4826 MAD is the standard deviation of a normal
                                         distribution) is a bad step; the first ones are not judged.
                                         0: off */
    het_choice skip_bad_steps;        /* no: a step that is not finite, or a spike, is an error;
                                         yes: it changes no weight, is logged and skipped */
    het_choice nonfinite;             /* no: files with weights or state that are not finite are
                                         refused (hetrain_files.h); yes: they are loaded */
} het_guard;

/* Slower machines than there are. */
typedef struct het_emulate {
    const het_link *links;            /* [link_count]; other ranks are not slowed down */
    int64_t link_count;
    /* for tests; nonzero: the rank stops answering here */
    int (*test_hang)(void *user, int64_t rank, int64_t step, int64_t position);
} het_emulate;

/* Where activations wait that are not on the device (PUT, TAKE): a rank's places are numbered from
   0, `size` bytes from `offset` on are written or read. What is read was written since the place
   was last read. Both or neither: memory of het_host.allocator. Threads: several ranks' at once. */
typedef struct het_store {
    het_result (*put)(void *user, int64_t rank, int64_t place, size_t offset, const void *from, size_t size);
    het_result (*get)(void *user, int64_t rank, int64_t place, size_t offset, void *to, size_t size);
    void *user;
} het_store;

/* What the program gives. */
typedef struct het_host {
    het_allocator allocator;          /* malloc and free */
    het_parallel parallel;            /* own pool */
    het_logger logger;                /* none */
    het_store store;                  /* of activations: the allocator's memory */
    het_result (*hook)(void *user, const het_hook_info *info);
    het_choice hook_whole;            /* no: each member of a team shows its own rows; yes: the leader
                                         shows those of all, and what the hook changes goes back. In
                                         het_infer each member shows its own, which may be none */
    void *user;                       /* of hook, frozen and test_hang */
} het_host;

/* All of a context. Zeroed, it means the defaults behind the fields. The first ten fields say what
   is trained; a program that trains on one CPU sets some of them, limits and layout.devices. */
typedef struct het_desc {
    uint32_t start_canary;            /* must be 0 */
    het_model_desc model;
    const het_unit *units;            /* NULL: het_model_units(model). Copied */
    int64_t unit_count;
    het_optimizer_desc optimizer;
    uint64_t seed;                    /* 0 */
    het_dtype dtype;                  /* f32 */
    het_dtype weights;                /* f32. How matrices that are not trained, frozen or of an
                                         inference context, lie in memory; values are rounded when
                                         they are written, and what is computed is what f32 weights
                                         of these values give. bf16: half the bytes. int8: 64
                                         elements and one scale, their largest magnitude / 127 cut to
                                         16 bits, in 68 bytes (arXiv 2110.02861, 2305.14314), all
                                         but factors; what a unit, a device or a team by columns
                                         cannot take so is expanded before each call */
    het_dtype streams;                /* f32. What goes from unit to unit, and its gradients. bf16: half the
                                         bytes in memory and messages, sums of layers rounded to 8 bits;
                                         for dtype bf16, and devices and units that take all their
                                         values so, without teams and factors */
    het_reduce reduce;                /* exact */
    int64_t granule;                  /* sequences a granule; 0: by rule (het_granules) */
    /* Nonzero: this parameter is not trained; NULL: all are. Units before the first trained one
       (het_cut) have no backward pass, and no hook sees one. */
    int (*frozen)(void *user, const char *parameter);
    het_choice inference;             /* no; yes: no gradients, no optimizer state, het_step is refused */
    het_limits limits;
    het_layout layout;
    het_guard guard;
    het_emulate emulate;
    het_host host;
    uint32_t end_canary;              /* must be 0 */
} het_desc;

typedef struct het_ctx het_ctx;

/* What het_replan changes; everything else stays as het_create was told. */
typedef struct het_replan_desc {
    uint32_t start_canary;
    const het_plan *plan;             /* for the same units and ranks. NULL: every rank has the
                                         whole model and an equal share */
    const het_schedule *schedule;     /* compute lists for max_micro_batches; NULL: the plan's */
    int64_t max_tokens, max_sequences, max_micro_batches; /* as in het_desc; 0: as they are */
    uint32_t end_canary;
} het_replan_desc;

typedef struct het_memory {           /* bytes */
    size_t host;                      /* tables and message buffers on the host; those all ranks
                                         share count for the first */
    size_t communication;             /* of that, message buffers */
    size_t stored;                    /* activations that wait on the host (het_stage.store): of `host`,
                                         unless het_host.store takes them */
    size_t weights, gradients, optimizer; /* weights: with those in bf16 that a device has beside them */
    size_t activations, workspace;    /* activations: also messages between members of a group, and
                                         gradients that take their place */
    size_t device;                    /* the sum of the two lines above: what the device's allocator is asked for */
    size_t saving;                    /* of the first rank of all: weights and state as files have
                                         them, all ranks' together; not in the others. What saves
                                         beside training (hetrain_files.h: het_checkpoint_reserve)
                                         holds that on process 0's host, and beside it texts and the
                                         largest tensor */
    int64_t parameters;               /* elements */
} het_memory;

typedef struct het_step_info {
    int64_t step;                     /* of this step, counted from 0 */
    double loss;                      /* mean over target weights */
    double gradient_norm;             /* before clipping; of N updates: the last one's terms over the step's weight */
    double learning_rate;             /* het_learning_rate */
    double weight;                    /* sum of target weights */
    int64_t tokens;
    int32_t repeated;                 /* the step was measured again for its exponents */
    int32_t skipped;                  /* not finite or a spike, and skipped as configured */
} het_step_info;

/* What het_desc.guard.spike judges by: the last accepted steps, the latest last. It is state: who
   saves a run saves it. */
#define HETRAIN_LOSS_HISTORY 32
typedef struct het_loss_history {
    int64_t count;
    double loss[HETRAIN_LOSS_HISTORY], norm[HETRAIN_LOSS_HISTORY];
} het_loss_history;

HETRAIN_API const char *het_result_text(het_result result);  /* never NULL. Threads: any. */
/* Fills *error, which may be NULL, and returns `result`; above 0, where no error is, it becomes
   HET_ERR_CALLBACK. A text that is too long loses its middle: its end says what is wrong.
   Threads: any. */
HETRAIN_API het_result het_error_put(het_error *error, het_result result, const char *text);

/* Fills every 0 with its default; a model that is not valid stays as it is. Threads: any. */
HETRAIN_API void het_desc_defaults(het_desc *desc);

/* Setting number 0, 1, ... of a model; 0: no such number, or a pointer is NULL. Threads: any. */
HETRAIN_API int het_model_get(const het_model_desc *model, int64_t number, het_setting *setting);
/* Gives setting `number` the value that its kind asks for. HET_ERR_INVALID: it is out of range, 0
   where that stands for a default, or no such word, and the model stays as it was; the error begins
   with `where`. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_model_set(het_model_desc *model, int64_t number,
                                                        const het_setting *value, const char *where, het_error *error);
/* Fills defaults by family and checks every field. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_model_complete(het_model_desc *model, het_error *error);

/* Granule bounds by rule: `fixed` sequences each (0: the largest divisor of `sequences` that keeps
   512 tokens together, for equal lengths; else consecutive samples up to 512 tokens); sequences
   longer than 512 are cut every 512 tokens. start has room for `capacity` entries (granules + 1 are
   written); start NULL only counts. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_granules(const int64_t *sequence_start, int64_t sequences, int64_t fixed,
                                                       int64_t *start, int64_t capacity, int64_t *granules);

/* Exact bytes het_create(desc) will ask for, for rank number `rank` of this process; whether others
   keep their limits is not looked at. Opens the devices, asks only for tables of units, parameters
   and actions, and no device memory. With a transport all processes call it. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_memory_estimate(const het_desc *desc, int64_t rank, het_memory *memory,
                                                              het_error *error);

/* Plans and takes all memory, draws weights from the seed. desc NULL: defaults. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_create(const het_desc *desc, het_ctx **ctx, het_error *error);
HETRAIN_API void het_destroy(het_ctx *ctx);                            /* NULL is fine. Threads: owner. */
/* "" if none; the context's, until its next call. Threads: owner. */
HETRAIN_API const char *het_last_error(const het_ctx *ctx);
/* the completed description, without `units`. Threads: owner. */
HETRAIN_API const het_desc *het_get_desc(const het_ctx *ctx);
/* what was asked for. Threads: owner. */
HETRAIN_API void het_get_memory(const het_ctx *ctx, int64_t rank, het_memory *memory);
/* of the last step; valid until the next, or het_replan. Threads: owner. */
HETRAIN_API void het_get_timeline(const het_ctx *ctx, int64_t rank, het_timeline *timeline);
HETRAIN_API int64_t het_get_step(const het_ctx *ctx);                  /* steps done. Threads: owner. */
/* makes the call that computes, or else the next one, return HET_ERR_CANCELLED. Threads: any. */
HETRAIN_API void het_cancel(het_ctx *ctx);

/* The context goes over to another plan: weights, optimizer state, exponents and step number move
   to the ranks that hold them from now on, and no bit of what is trained afterwards tells that they
   did. There are no gradients and no timelines until the next step; what het_infer kept is gone.
   Between the two the host holds each process's own part of weights and state, and both plans'
   tables; a device gives its block back before it is asked for another, so that it never holds two.
   All is planned, checked and allocated on the host before: a plan that is not valid or does not
   fit, and memory that is not there, leave the context as it was, but for gradients and what
   het_infer kept, on all processes alike. It is lost where a device has not even the room for its
   old block any more, or one of several processes cannot join a communicator. desc NULL: all
   defaults. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_replan(het_ctx *ctx, const het_replan_desc *desc);
/* het_device_desc.speed, not 0, of local rank `rank` from the next step on. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_set_speed(het_ctx *ctx, int64_t rank, double speed);
/* The emulated link that het_desc.emulate.links gave these two ranks is like this from the next
   step on. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_set_link(het_ctx *ctx, const het_link *link);
/* Process number `process` gives `size` bytes to all others: for decisions that all must make
   alike. Without a transport, nothing. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_broadcast(het_ctx *ctx, int64_t process, void *data, size_t size);

/* One optimizer step over `count` micro-batches. info may be NULL. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_step(het_ctx *ctx, const het_batch *batches, int64_t count,
                                                   het_step_info *info);
/* Loss and gradients without the update (het_parameter_read shows the gradient). Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_gradients(het_ctx *ctx, const het_batch *batches, int64_t count,
                                                        het_step_info *info);
/* Mean loss of any number of micro-batches, no gradient; loss, weight, tokens. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_evaluate(het_ctx *ctx, const het_batch *batches, int64_t count,
                                                       het_step_info *info);
/* Logits of the last of `count` new tokens that follow `past` tokens of the same sequence given in
   earlier calls (their keys and values are kept until another call computes, or writes weights).
   Where `past` is less than was given the rest is forgotten; a bidirectional model takes 0.
   logits: [V]. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_infer(het_ctx *ctx, const int32_t *token, int64_t count, int64_t past,
                                                    float *logits);

/* Parameters in table order. */
typedef enum het_array { HET_WEIGHT = 0, HET_GRADIENT = 1, HET_MOMENT0 = 2, HET_MOMENT1 = 3, HET_MOMENT2 = 4,
                       HET_MOMENT3 = 5 } het_array;
typedef struct het_parameter_info {
    const char *name;                 /* the context's */
    int64_t rows, columns, count;
    int32_t decay, frozen;
    int32_t uses;                     /* units that use it: 2 for a tied embedding */
    int32_t exponent;                 /* of the exact sum; HETRAIN_NO_EXPONENT: none yet */
    int32_t adapter;                  /* as of het_parameter_desc */
    het_dtype type;                   /* in memory: het_desc.weights */
    int32_t expanded;                 /* 1: int8, and the first rank's calls make floats of it even where it is whole */
} het_parameter_info;
HETRAIN_API int64_t het_parameter_count(const het_ctx *ctx);           /* Threads: owner. */
/* HET_ERR_INVALID, without a text: a number out of range, or NULL. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_parameter_get_info(const het_ctx *ctx, int64_t index,
                                                                 het_parameter_info *info);
/* to / from: [rows][columns]. HET_GRADIENT: of the last het_step or het_gradients, until another
   call computes, 0 of what is frozen, which has no moments; HET_ERR_STATE: there is none.
   Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_parameter_read(het_ctx *ctx, int64_t index, het_array what, float *to);
HETRAIN_API HETRAIN_MUST_CHECK het_result het_parameter_write(het_ctx *ctx, int64_t index, het_array what,
                                                              const float *from);

/* For those who load: hetrain_files.h does. From het_restore_begin on the parts (bits of
   het_status) count as incomplete: what computes or re-plans is refused, until het_restore_end
   says that they are whole. With HET_STATE_INCOMPLETE that sets the number of steps done, below
   2^46, the exponents [parameters] and the recent steps (NULL: none are known) too. het_fail makes
   an error of the caller's the context's own, as if a call had failed. Threads: owner. */
typedef enum het_status { HET_WEIGHTS_INCOMPLETE = 1, HET_STATE_INCOMPLETE = 2, HET_FAILED = 4 } het_status;
/* bits; HET_FAILED: it answers only queries. Threads: owner. */
HETRAIN_API int32_t het_get_status(const het_ctx *ctx);
HETRAIN_API HETRAIN_MUST_CHECK het_result het_restore_begin(het_ctx *ctx, int32_t parts);
HETRAIN_API HETRAIN_MUST_CHECK het_result het_restore_end(het_ctx *ctx, int32_t parts, int64_t step,
                                                          const int32_t *exponents, const het_loss_history *recent);
HETRAIN_API void het_get_loss_history(const het_ctx *ctx, het_loss_history *recent);  /* Threads: owner. */
HETRAIN_API het_result het_fail(het_ctx *ctx, het_result code, const char *text); /* code, or why it is refused */
/* The fingerprint of the model's own weights, without factors: who loads them sets it, a write to
   one of them or a step without factors makes it 0, unknown. het_adapter_save keeps it beside
   factors, het_adapter_load holds it against the context's where both are known. Threads: owner. */
HETRAIN_API void het_set_base(het_ctx *ctx, uint64_t fingerprint);
HETRAIN_API uint64_t het_get_base(const het_ctx *ctx);

/* XXH64 (seed 0) of the list of XXH64 of each parameter's f32 values, both in table order and
   little-endian. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_hash(het_ctx *ctx, uint64_t *hash);
/* Compares the whole copies of every parameter by hash, on all processes; not parts: of keepers, in
   teams by columns, of sharded weights. A difference (a bit has flipped in some memory) is
   HET_ERR_DEVICE, names the first parameter, its block and the ranks, and ends the context: what it
   holds is not to be saved. GATHER brings the owner's values to all copies of a trained weight in
   every step, so this sees what went wrong since the last one, in a frozen weight at any time.
   Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_verify(het_ctx *ctx);
HETRAIN_API uint64_t het_xxh64(const void *data, size_t size, uint64_t seed); /* Threads: any. */

/* ---- what a description consists of, before there is a plan ---- */

typedef struct het_described_unit {   /* one unit of the chain */
    het_unit unit;
    het_unit_info info;               /* at max_tokens; of het_describe: on the first device, its
                                         workspace also enough to square the unit's gradients */
    het_program program;              /* if it is one */
    int64_t parameter[HETRAIN_MAX_UNIT_PARAMETERS]; /* numbers of info.parameter in the table of them all */
} het_described_unit;

/* Parameters with the same using units, all trained or all frozen (CONCEPTS). */
typedef struct het_described_block {
    int64_t parameter;                /* its first one; parameters of a block need not be neighbours */
    int64_t elements;                 /* each parameter rounded up to 16 of them */
    int64_t weight_floats;            /* room of its weights; of trained ones `elements` */
    int64_t first_use, uses;          /* into `use` of the description: the using units, ascending */
    int32_t frozen;
    size_t workspace;                 /* of VERDICT and STEP; of het_describe: on the first device */
} het_described_block;

typedef struct het_description {
    het_desc desc;                    /* completed */
    int64_t units, blocks, uses;
    const het_described_unit *unit;   /* [units] */
    const het_described_block *block; /* [blocks] */
    const int64_t *use;               /* [uses] units, block by block */
    het_ctx *ctx;                     /* of all this; it answers het_parameter_count and het_parameter_get_info alone */
} het_description;

/* Takes the first steps of het_create: units, parameters and blocks, tied parameters once. Of the
   devices the first is opened; plan, schedule, transport, communicators and links are left aside.
   What desc points to must outlive the description. Memory comes from desc->host.allocator.
   Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_describe(const het_desc *desc, het_description **description,
                                                       het_error *error);
HETRAIN_API void het_description_free(het_description *description);   /* NULL is fine. Threads: any. */
/* Fills plan->cut as the model of *desc has it. het_create does so for its own copy, before the
   lists are made; lists that are made or read beside it need it done first. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_plan_cuts(const het_desc *desc, het_plan *plan, het_error *error);

/* ---- >>data_api: token sources and sampling -------------------------------------------------- */
typedef enum het_data_format { HET_DATA_AUTO = 0 /* by the header; else bytes */, HET_DATA_BYTES = 1,
                              HET_DATA_UINT16 = 2 /* nanoGPT */,
                               HET_DATA_LLMC = 3 /* 20240520 uint16 or 20240801 uint32 */ } het_data_format;
typedef struct het_data_desc {
    uint32_t start_canary;
    het_reader reader;                /* must outlive the data */
    het_data_format format;
    int64_t vocab;                    /* every token must be below it; 256 */
    int64_t length;                   /* T tokens a window, 128 */
    int64_t sequences;                /* B windows a micro-batch, 4 */
    int64_t granule;                  /* as het_desc.granule */
    int64_t slots;                    /* micro-batches whose arrays are kept at once: 8 */
    uint64_t seed;
    float held_out;                   /* share of the windows at the end kept for evaluation: 0.05; negative: none */
    het_allocator allocator;
    uint32_t end_canary;
} het_data_desc;
typedef struct het_data het_data;
typedef struct het_data_info {
    het_data_format format;
    int64_t tokens;                   /* in the file */
    int64_t windows, held_out;        /* windows of T + 1 tokens, T apart; for training and for evaluation */
    int64_t largest_token;            /* when it was opened; a larger one is refused later: the file has changed */
} het_data_info;

/* Checks header, size and every token. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_data_open(const het_data_desc *desc, het_data **data, het_error *error);
HETRAIN_API void het_data_close(het_data *data);                                   /* Threads: owner. */
HETRAIN_API void het_data_get_info(const het_data *data, het_data_info *info);     /* Threads: owner. */
/* Micro-batch number `micro_batch` of `micro_batches` of step `step`: windows of a permutation of
   the epoch by (seed, epoch), so that every window of an epoch comes exactly once. The arrays of
   *batch belong to `data`; slot < slots says which buffers are used, each keeps its content until
   used again. Threads: any, one call a slot at a time, if the reader may be called so. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_data_batch(het_data *data, int64_t step, int64_t micro_batch,
                                                         int64_t micro_batches, int64_t slot, het_batch *batch,
                                                         het_error *error);
/* Held-out windows [first, first + B), fewer at the end; tokens 0 when there is none. Has buffers
   of its own, as the next call has. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_data_held_out(het_data *data, int64_t first, het_batch *batch,
                                                            het_error *error);
/* Tokens [first, first + count) of the file. to: [count]. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_data_tokens(het_data *data, int64_t first, int64_t count, int32_t *to,
                                                          het_error *error);

/* ---- >>train_api: one call that trains -----------------------------------------------------------
   Uses only the calls above, but for keeping its context from a het_destroy in `progress`: copy it
   when you need something else. */
typedef struct het_train_desc {
    uint32_t start_canary;
    het_desc context;                 /* max_tokens, max_sequences and max_micro_batches are set
                                         from data and micro_batches where 0 */
    het_data_desc data;               /* vocab, length, granule, seed and allocator are the
                                         context's where 0; slots: micro_batches */
    int64_t steps;                    /* 100; the schedule's total_steps where that is 0 */
    int64_t micro_batches;            /* 1 */
    int64_t evaluate_every;           /* 0: only at the end; negative: never */
    int64_t evaluate_batches;         /* 8 */
    /* after every step; validation_loss is NaN where not evaluated. Anything but HET_OK stops
       training and is returned, above 0 as HET_ERR_CALLBACK. It may do with ctx what its owner may
       between two steps (THREADS). */
    het_result (*progress)(void *user, het_ctx *ctx, const het_step_info *info, double validation_loss);
    void *user;
    uint32_t end_canary;
} het_train_desc;
/* Trains and hands over the context, to be destroyed. On error *ctx is NULL. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_train(const het_train_desc *desc, het_ctx **ctx, het_error *error);

/* Draws a token from logits [V]: temperature 0 takes the largest; top_k 0 and top_p 0 or 1 keep
   all, otherwise top_p cuts what top_k left; scratch: [V], which temperature 0 does not need;
   `number` counts draws of this seed. -1: a pointer is NULL or vocab is out of range.
   Threads: any. */
HETRAIN_API int32_t het_sample(const float *logits, int64_t vocab, float temperature, int64_t top_k, float top_p,
                               uint64_t seed, uint64_t number, float *scratch);

#ifndef HETRAIN_NO_STDIO
/* Ready-made callbacks over files; het_reader_open fills *reader, on error with zeros; `path` must
   outlive it; close it with het_reader_close. One reader, one thread at a time. Where long has 32
   bits (Windows excepted) files end at 2 GiB. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_reader_open(const char *path, het_reader *reader, het_error *error);
HETRAIN_API void het_reader_close(het_reader *reader);
/* Writes path.tmp through `save`, flushes it, renames it to path; a link or device there is
   replaced. With a transport process 0 alone writes, and all return behind it. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_save_file(het_ctx *ctx, const char *path,
                                                        het_result (*save)(het_ctx *ctx, const het_writer *to));
#endif

/* Names of 0.1: what still uses one does not compile, and the error says the new name. */
#define het_groups het_groups_is_now_het_communicators
#define het_group_iface het_group_iface_is_now_het_communicator_iface
#define het_member het_member_is_now_het_communicator
#define HETRAIN_GROUP_VERSION HETRAIN_GROUP_VERSION_is_now_HETRAIN_COMMUNICATOR_VERSION
#define HET_KEEP_CARRY HET_KEEP_CARRY_is_now_HET_KEEP_MICRO_BATCH
#define HET_KEEP_CARRY_GRADIENT HET_KEEP_CARRY_GRADIENT_is_now_HET_KEEP_MICRO_BATCH_GRADIENT
#define HET_ACTION_VERDICT HET_ACTION_VERDICT_is_now_HET_ACTION_COMMIT
#define het_spread het_spread_is_now_het_broadcast
#define het_what het_what_is_now_het_array
#define HET_STATE0 HET_STATE0_is_now_HET_MOMENT0
#define het_condition het_condition_is_now_het_status
#define het_get_condition het_get_condition_is_now_het_get_status
#define het_recent het_recent_is_now_het_loss_history
#define het_get_recent het_get_recent_is_now_het_get_loss_history
#define HETRAIN_RECENT HETRAIN_RECENT_is_now_HETRAIN_LOSS_HISTORY
#define het_profile_needs het_profile_needs_is_now_het_schedule_needs
#define het_plan_divide het_plan_divide_is_now_het_plan_micro_batches

#ifdef __cplusplus
}
#endif
#endif /* HETRAIN_H ---- end of the API: to use hetrain you need nothing below ---- */
/* =================================================================================================
   >>config  Compiler differences, in one place.
   ============================================================================================== */
#if defined(HETRAIN_IMPLEMENTATION) && !defined(HETRAIN_IMPLEMENTATION_DONE)

#include <math.h>
#include <stdarg.h>
#include <string.h>
#ifndef HETRAIN_NO_DEFAULT_ALLOCATOR
#include <stdlib.h>
#ifdef __linux__
#include <sys/mman.h>
/* MADV_HUGEPAGE: a program that asks for plain C or POSIX is shown neither that nor madvise */
#define HETI_HUGE_PAGES 14
#ifndef MADV_HUGEPAGE
#ifdef __cplusplus
extern "C"
#endif
int madvise(void *address, size_t size, int advice);
#endif
#endif
#endif
#ifndef HETRAIN_NO_STDIO
#include <errno.h>
#include <stdio.h>
#endif
#ifndef HETRAIN_NO_THREADS
#include <pthread.h>
#endif

#ifndef HETRAIN_NO_BIT_PROMISE
#if defined(__FAST_MATH__)
#error "hetrain: -ffast-math breaks equal bits; compile without it, or define HETRAIN_NO_BIT_PROMISE"
#endif
/* 16 says that only _Float16 is evaluated as such: float and double are exact types as with 0 */
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0 && __FLT_EVAL_METHOD__ != 16
#error "hetrain: float arithmetic with excess precision breaks equal bits; use SSE2, or define HETRAIN_NO_BIT_PROMISE"
#endif
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#error "hetrain: floats of files, messages and hashes are little-endian, and this machine's are not"
#endif

#ifndef HETRAIN_ASSERT
#define HETRAIN_ASSERT(condition) ((void)0)
#endif

#ifdef __cplusplus
#define HETI_CAST(type, value) static_cast<type>(value)
#define HETI_ZEROS {}    /* of a struct without unions, where it is declared */
#else
#define HETI_CAST(type, value) ((type)(value))
#define HETI_ZEROS { 0 }
#endif
/* `count` elements */
#define HETI_COPY(to, from, count) memcpy((to), (from), HETI_CAST(size_t, (count)) * sizeof *(to))
#define HETI_CLEAR(to, count) memset((to), 0, HETI_CAST(size_t, (count)) * sizeof *(to))

/* A static function that a build may leave unused (HETRAIN_STATIC, HETRAIN_NO_*). */
#if defined(__GNUC__) || defined(__clang__)
#define HETI_UNUSED __attribute__((unused))
#define HETI_INLINE __inline__ __attribute__((always_inline, unused))
#else
#define HETI_UNUSED
#define HETI_INLINE
#endif

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) || defined(__clang__)
#define HETI_ATOMIC_LOAD(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define HETI_ATOMIC_STORE(p, value) __atomic_store_n((p), (value), __ATOMIC_SEQ_CST)
#define HETI_ATOMIC_ADD(p, value) __atomic_fetch_add((p), (value), __ATOMIC_SEQ_CST) /* the value before */
/* 1 where *p was *expected; else 0 and *expected is what it was. */
#define HETI_ATOMIC_REPLACE(p, expected, value) __atomic_compare_exchange_n((p), (expected), (value), 0, \
    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
#ifndef HETRAIN_NO_THREADS
#define HETI_THREADS 1
#endif
#else
#define HETI_ATOMIC_LOAD(p) (*(p))
#define HETI_ATOMIC_STORE(p, value) ((void)(*(p) = (value)))
#define HETI_ATOMIC_REPLACE(p, expected, value) (*(p) = (value), 1)
#define HETI_NO_ATOMICS 1 /* nothing is shared out, not even among threads of the caller's */
#endif

/* Passes on an error: HETI_TRY(call). */
#define HETI_TRY(call) do { het_result heti_try_result = \
    (call); if (heti_try_result != HET_OK) return heti_try_result; } while (0)

/* =================================================================================================
   >>error  Result texts, the message formatter, the version.
   Messages carry facts (function, name, value, limit) and are made without stdio, so that a build
   without it says the same. The formatter knows %s, %d (int64_t), %i (int and what becomes one),
   %u (uint64_t), %x (uint64_t, hexadecimal), %b (uint64_t, bytes), %g (double, 6 digits), %G
   (double, 9 digits: a float survives the trip) and %%. Arguments must have exactly these types:
   cast them. Control characters in %s become '?', because names come from files and messages go to
   terminals.
   ============================================================================================== */

HETRAIN_API const char *het_result_text(het_result result) {
#define HETI_RESULT_CASE(name, value, text) case name: return text;
    switch (result) { HETRAIN_RESULTS(HETI_RESULT_CASE) }
#undef HETI_RESULT_CASE
    return "unknown result";
}

/* Text being written: characters that do not fit are counted, not stored. */
typedef struct heti_text {
    char *to;
    size_t capacity, length;
} heti_text;

static void heti_text_char(heti_text *text, char c) {
    if (text->length + 1 < text->capacity) text->to[text->length] = c;
    text->length++;
}

static void heti_text_end(heti_text *text) {
    if (text->capacity > 0) text->to[text->length < text->capacity ? text->length : text->capacity - 1] = 0;
}

static heti_text heti_text_in(char *to, size_t capacity) {
    heti_text text = { to, capacity, 0 };
    heti_text_end(&text);
    return text;
}

/* Appends bytes as they are; what is there always ends in 0. */
static void heti_text_put(heti_text *text, const char *from, size_t length) {
    for (size_t i = 0; i < length; i++) heti_text_char(text, from[i]);
    heti_text_end(text);
}

/* NULL reads "(null)". Bytes from 128 on pass: they may be UTF-8. */
static void heti_text_string(heti_text *text, const char *s) {
    for (s = s != NULL ? s : "(null)"; *s != 0; s++) {
        unsigned char c = HETI_CAST(unsigned char, *s);
        heti_text_char(text, c < 32 || c == 127 ? '?' : *s);
    }
}

/* Digits come out from the last to the first; `at_least` pads with zeros in front (the exponent of
   %g has two digits). */
static void heti_text_unsigned(heti_text *text, uint64_t value, uint64_t base, int at_least) {
    char digit[20];
    int n = 0;
    do {
        digit[n++] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value != 0);
    while (at_least-- > n) heti_text_char(text, '0');
    while (n > 0) heti_text_char(text, digit[--n]);
}

/* d.ddd 10^exponent from `digits` digits, without trailing zeros, as printf's %g lays it out: with
   an exponent only where the point would lie far outside the digits. */
static void heti_text_digits(heti_text *text, const char *digit, int digits, int exponent) {
    const int far = exponent < -4 || exponent >= digits, point = far ? 1 : exponent + 1; /* digits before it */
    int count = digits;
    while (count > 1 && digit[count - 1] == '0') count--;
    for (int i = point < 1 ? point - 1 : 0; i < count || i < point; i++) { /* zeros stand on both sides */
        if (i == point) heti_text_char(text, '.');
        heti_text_char(text, i >= 0 && i < count ? digit[i] : '0');
    }
    if (!far) return;
    heti_text_char(text, 'e');
    heti_text_char(text, exponent < 0 ? '-' : '+');
    heti_text_unsigned(text, HETI_CAST(uint64_t, exponent < 0 ? -exponent : exponent), 10, 2);
}

/* `digits` significant decimal digits, laid out as printf's %g. Scaling by 10 errs below 1e-13. */
static void heti_text_double(heti_text *text, double value, int digits) {
    char digit[20];
    uint64_t number, limit = 1;
    int exponent = 0;
    if (value != value) { heti_text_string(text, "nan"); return; }
    if (value < 0) { heti_text_char(text, '-'); value = -value; }
    if (value > 1.7976931348623157e308) { heti_text_string(text, "inf"); return; }
    if (value == 0) { heti_text_char(text, '0'); return; }
    for (; value >= 10; exponent++) value /= 10; /* value 10^exponent, 1 <= value < 10 */
    for (; value < 1; exponent--) value *= 10;
    for (int i = 1; i < digits; i++) { value *= 10; limit *= 10; }
    number = HETI_CAST(uint64_t, value + 0.5);
    if (number >= 10 * limit) { number /= 10; exponent++; } /* 9.9999996 was rounded up to 10.0000 */
    for (int i = digits; i-- > 0; number /= 10) digit[i] = "0123456789"[number % 10];
    heti_text_digits(text, digit, digits, exponent);
}

/* 75.449 MB: five digits. */
static void heti_text_bytes(heti_text *text, uint64_t bytes) {
    static const char *const heti_units[] = { " bytes", " kB", " MB", " GB", " TB", " PB", " EB" };
    double value = HETI_CAST(double, bytes);
    int unit = 0;
    for (; value >= 1000; unit++) value /= 1000;
    heti_text_double(text, value, 5);
    heti_text_string(text, heti_units[unit]);
}

/* The one loop behind heti_format and heti_fail. INT64_MIN has no positive counterpart:
   its size is made as an unsigned number. */
static void heti_text_format(heti_text *text, const char *format, va_list arguments) {
    for (; *format != 0; format++) {
        int64_t number;
        if (*format != '%') { heti_text_char(text, *format); continue; }
        switch (*++format) {
        case 's': heti_text_string(text, va_arg(arguments, const char *)); break;
        case 'd': case 'i':
            number = *format == 'd' ? va_arg(arguments, int64_t) : va_arg(arguments, int);
            if (number < 0) heti_text_char(text, '-');
            heti_text_unsigned(text, number < 0 ? 0 - HETI_CAST(uint64_t, number) : HETI_CAST(uint64_t, number), 10, 0);
            break;
        case 'u': heti_text_unsigned(text, va_arg(arguments, uint64_t), 10, 0); break;
        case 'b': heti_text_bytes(text, va_arg(arguments, uint64_t)); break;
        case 'x': heti_text_unsigned(text, va_arg(arguments, uint64_t), 16, 0); break;
        case 'g': heti_text_double(text, va_arg(arguments, double), 6); break;
        case 'G': heti_text_double(text, va_arg(arguments, double), 9); break;
        case 0: format--; break;
        default: heti_text_char(text, *format); break;
        }
    }
    heti_text_end(text);
}

/* Appends what a function was given behind `format`, its last argument with a name. */
#define HETI_FORMAT(text, format) do { va_list heti_arguments; va_start(heti_arguments, format); \
    heti_text_format((text), format, heti_arguments); va_end(heti_arguments); } while (0)

/* Appends to a text; what is there always ends in 0. */
HETI_UNUSED static void heti_text_write(heti_text *text, const char *format, ...) { HETI_FORMAT(text, format); }

/* Writes at most capacity characters, always with a final 0; returns the whole text's length. */
HETI_UNUSED static size_t heti_format(char *to, size_t capacity, const char *format, ...) {
    heti_text text = heti_text_in(to, capacity);
    HETI_FORMAT(&text, format);
    return text.length;
}

HETRAIN_API het_result het_error_put(het_error *error, het_result result, const char *text) {
    const size_t most = error != NULL ? sizeof error->text - 1 : 0, front = most / 3,
                 length = text != NULL ? strlen(text) : 0, end = length < most ? length : most;
    if (result > HET_OK) result = HET_ERR_CALLBACK;
    if (error == NULL) return result;
    error->code = result;
    if (length <= most) memmove(error->text, text != NULL ? text : "", length); /* it may be the error's */
    else {
        memcpy(error->text, text, front);
        memcpy(error->text + front, "...", 3);
        memcpy(error->text + front + 3, text + length - (most - front - 3), most - front - 3);
    }
    memset(error->text + end, 0, sizeof error->text - end);
    return result;
}

HETI_UNUSED static het_result heti_fail(het_error *error, het_result code, const char *format, ...) {
    char whole[2048];
    heti_text text = heti_text_in(whole, sizeof whole);
    HETI_FORMAT(&text, format);
    return het_error_put(error, code, whole);
}

/* What somebody (`where`) was given is wrong. */
HETI_UNUSED static het_result heti_invalid(het_error *error, const char *where, const char *format, ...) {
    char whole[2048];
    heti_text text = heti_text_in(whole, sizeof whole);
    heti_text_write(&text, "%s: ", where);
    HETI_FORMAT(&text, format);
    return het_error_put(error, HET_ERR_INVALID, whole);
}

/* Returns that, where `wrong`, from a check with `error` and `where`: HETI_REFUSE(wrong, format,
   ...). */
#define HETI_REFUSE(wrong, ...) do { if (wrong) return heti_invalid(error, where, __VA_ARGS__); } while (0)

/* =================================================================================================
   >>mem  Checked sizes, the allocator, several arrays in one block.
   Every size that depends on input is made by heti_mul and heti_add. All memory comes from a
   het_allocator, aligned to 64.
   ============================================================================================== */

/* *product = a b; 0 where it does not fit. */
HETI_UNUSED static int heti_mul(size_t a, size_t b, size_t *product) {
    if (b != 0 && a > SIZE_MAX / b) return 0;
    *product = a * b;
    return 1;
}

/* *sum = a + b; 0 where it does not fit. */
HETI_UNUSED static int heti_add(size_t a, size_t b, size_t *sum) {
    if (a > SIZE_MAX - b) return 0;
    *sum = a + b;
    return 1;
}

/* Sizes in elements are int64_t; only bytes are size_t. */
HETI_UNUSED static int64_t heti_min(int64_t a, int64_t b) { return a < b ? a : b; }
HETI_UNUSED static int64_t heti_max(int64_t a, int64_t b) { return a > b ? a : b; }
/* The last of places first .. end - 1 that begins at or before `at`; first, where none does. */
static int64_t heti_last_start(const int64_t *start, int64_t first, int64_t end, int64_t at) {
    while (end - first > 1) *(start[(first + end) / 2] <= at ? &first : &end) = (first + end) / 2;
    return first;
}
HETI_UNUSED static int64_t heti_abs(int64_t a) { return a < 0 ? -a : a; }
HETI_UNUSED static size_t heti_max_size(size_t a, size_t b) { return a > b ? a : b; }

/* a >= 0, b > 0 */
HETI_UNUSED static int64_t heti_ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* The next multiple of `to`; SIZE_MAX where there is none: the checked sum after it fails. */
HETI_UNUSED static size_t heti_round_up(size_t n, size_t to) {
    size_t rest = n % to;
    if (rest == 0) return n;
    return n > SIZE_MAX - (to - rest) ? SIZE_MAX : n + (to - rest);
}

#define HETI_ALIGNMENT 64

/* An allocator is never asked for 0 bytes: some answer NULL, which would read as out of memory. */
HETI_UNUSED static void *heti_alloc(const het_allocator *allocator, size_t size) {
    return allocator->alloc(allocator->user, size > 0 ? size : 1, HETI_ALIGNMENT);
}

/* The allocator may lie in the block. */
HETI_UNUSED static void heti_free(const het_allocator *allocator, void *pointer, size_t size) {
    if (pointer != NULL) allocator->free(allocator->user, pointer, size > 0 ? size : 1);
}

#ifndef HETRAIN_NO_DEFAULT_ALLOCATOR
#ifdef __cplusplus
#define HETI_ADDRESS(pointer) reinterpret_cast<uintptr_t>(pointer)
#else
#define HETI_ADDRESS(pointer) ((uintptr_t)(pointer))
#endif

/* Linux may then back what fills whole pages of 2 MiB by such pages: products, which go down
   columns of large matrices, wait less for page tables. */
static void heti_ask_huge_pages(char *block, size_t size) {
#ifdef HETI_HUGE_PAGES
    const size_t page = 2097152, before = (page - HETI_ADDRESS(block) % page) % page;
    if (size >= before + page) (void)madvise(block + before, (size - before) / page * page, HETI_HUGE_PAGES);
#else
    (void)block, (void)size;
#endif
}

/* malloc gives less alignment than asked for and C99 has nothing better: ask for more, and keep
   malloc's pointer just below the block. */
static void *heti_default_alloc(void *user, size_t size, size_t align) {
    size_t total;
    char *raw, *block;
    (void)user;
    if (!heti_add(size, align + sizeof raw, &total)) return NULL;
    raw = HETI_CAST(char *, malloc(total));
    if (raw == NULL) return NULL;
    block = raw + sizeof raw;
    block += (align - HETI_ADDRESS(block) % align) % align;
    memcpy(block - sizeof raw, &raw, sizeof raw);
    heti_ask_huge_pages(block, size);
    return block;
}

/* The size is not needed: malloc knows it. */
static void heti_default_free(void *user, void *pointer, size_t size) {
    char *raw;
    (void)user, (void)size;
    memcpy(&raw, HETI_CAST(char *, pointer) - sizeof raw, sizeof raw);
    free(raw);
}
#endif

/* Leaves NULLs where the build has no default: the caller then reports HET_ERR_INVALID. */
HETI_UNUSED static void heti_default_allocator(het_allocator *allocator) {
    memset(allocator, 0, sizeof *allocator);
#ifndef HETRAIN_NO_DEFAULT_ALLOCATOR
    allocator->alloc = heti_default_alloc;
    allocator->free = heti_default_free;
#endif
}

/* The caller's allocator, or the default one for NULL and for two NULLs. */
HETI_UNUSED static het_result heti_choose_allocator(const het_allocator *given, het_allocator *chosen,
                                                    const char *where, het_error *error) {
    if (given == NULL || (given->alloc == NULL && given->free == NULL)) heti_default_allocator(chosen);
    else *chosen = *given;
    if (chosen->alloc != NULL && chosen->free != NULL) return HET_OK;
    return heti_fail(error, HET_ERR_INVALID, "%s: the allocator needs both alloc and free", where);
}

/* Several arrays in one block. What takes them all in order runs twice (HETI_TAKE_ALL): with base
   NULL it only counts, then, behind heti_arena_start, it hands out pointers. Every array starts at
   a multiple of HETI_ALIGNMENT. */
typedef struct heti_arena {
    char *base;
    size_t used, size;
    size_t asked;  /* bytes from the first on that heti_arena_start asks for: where 0 all of them */
    int overflow;
} heti_arena;

HETI_UNUSED static void *heti_reserve(heti_arena *arena, int64_t count, size_t element) {
    const size_t at = arena->used;
    size_t bytes = 0;
    if (count < 0 || HETI_CAST(uint64_t, count) > SIZE_MAX || !heti_mul(HETI_CAST(size_t, count), element, &bytes) ||
        !heti_add(at, heti_round_up(bytes, HETI_ALIGNMENT), &arena->used)) {
        arena->overflow = 1;
        return NULL;
    }
    return arena->base != NULL ? arena->base + at : NULL;
}
#define HETI_TAKE(arena, type, count) HETI_CAST(type *, heti_reserve((arena), (count), sizeof(type)))
#define HETI_TAKE_BYTES(arena, bytes) HETI_CAST(char *, heti_reserve((arena), 1, (bytes)))

/* Between the two passes: a block for what was counted, all bytes 0. */
HETI_UNUSED static het_result heti_arena_start(heti_arena *arena, const het_allocator *allocator, const char *where,
                                               het_error *error) {
    if (arena->overflow) return heti_fail(error, HET_ERR_LIMIT, "%s: needs more memory than a size_t can count", where);
    arena->size = arena->used;
    arena->used = 0;
    if (arena->asked == 0) arena->asked = arena->size;
    arena->base = HETI_CAST(char *, heti_alloc(allocator, arena->asked));
    if (arena->base == NULL)
        return heti_fail(error, HET_ERR_OOM, "%s: no memory for %b", where, HETI_CAST(uint64_t, arena->asked));
    memset(arena->base, 0, arena->asked);
    return HET_OK;
}

/* takes: the call, or the assignment, that takes all arrays of the arena. */
#define HETI_TAKE_ALL(arena, allocator, where, error, takes) do { (void)(takes); \
    HETI_TRY(heti_arena_start((arena), (allocator), (where), (error))); (void)(takes); } while (0)

HETI_UNUSED static void heti_arena_end(heti_arena *arena, const het_allocator *allocator) {
    heti_free(allocator, arena->base, arena->asked);
    arena->base = NULL;
}

/* =================================================================================================
   >>fp  The floating-point environment, and values the compiler must not see through.
   Bits depend on the rounding mode and on whether denormals are kept, and both belong to the
   caller's thread. Public calls and worker threads set nearest rounding, denormals kept, traps
   masked, and put back what they found.
   x86: MXCSR 0x1F80 is its reset value. AArch64: FPCR 0 likewise. Elsewhere fenv.h sets the
   rounding mode only.
   ============================================================================================== */

#if (defined(__GNUC__) || defined(__clang__)) && defined(__SSE__)
typedef uint32_t heti_fp;
#define HETI_FP_OURS 0x1F80
#define HETI_FP_GET(control) __asm__ __volatile__("stmxcsr %0" : "=m"(control) : : "memory")
#define HETI_FP_SET(control) __asm__ __volatile__("ldmxcsr %0" : : "m"(control) : "memory")
#elif (defined(__GNUC__) || defined(__clang__)) && defined(__aarch64__)
typedef uint64_t heti_fp;
#define HETI_FP_OURS 0
#define HETI_FP_GET(control) __asm__ __volatile__("mrs %0, fpcr" : "=r"(control) : : "memory")
#define HETI_FP_SET(control) __asm__ __volatile__("msr fpcr, %0" : : "r"(control) : "memory")
#else
#ifdef __cplusplus
}
#endif
#include <fenv.h>
#ifdef __cplusplus
extern "C" {
#endif
typedef int heti_fp;
#define HETI_FP_OURS FE_TONEAREST
#define HETI_FP_GET(control) ((control) = fegetround())
#define HETI_FP_SET(control) (void)fesetround(control)
#endif

/* Puts back what heti_fp_enter found. */
HETI_UNUSED static void heti_fp_leave(const heti_fp *saved) { HETI_FP_SET(*saved); }

HETI_UNUSED static void heti_fp_enter(heti_fp *saved) {
    const heti_fp ours = HETI_FP_OURS;
    HETI_FP_GET(*saved);
    heti_fp_leave(&ours);
}

/* The value itself, rounded: a product that passes through here cannot be fused into a later
   addition (-ffp-contract=fast). */
#if (defined(__GNUC__) || defined(__clang__)) && defined(__SSE2__)
#define HETI_HIDE(x) __asm__("" : "+x"(x))
#elif (defined(__GNUC__) || defined(__clang__)) && defined(__aarch64__)
#define HETI_HIDE(x) __asm__("" : "+w"(x))
#endif
#ifdef HETI_HIDE
static HETI_INLINE float heti_round_f(float x) { HETI_HIDE(x); return x; }
static HETI_INLINE double heti_round(double x) { HETI_HIDE(x); return x; }
#else
static HETI_INLINE float heti_round_f(float x) { volatile float stored = x; return stored; }
static HETI_INLINE double heti_round(double x) { volatile double stored = x; return stored; }
#endif

/* =================================================================================================
   >>io  Little-endian numbers, reads in full.
   Files are little-endian and unaligned; numbers are put together from bytes, which compilers turn
   into one load.
   ============================================================================================== */

/* 16 bits, as 32: arithmetic would promote them anyway. */
HETI_UNUSED static uint32_t heti_load_u16(const unsigned char *from) {
    return HETI_CAST(uint32_t, from[0]) | HETI_CAST(uint32_t, from[1]) << 8;
}

HETI_UNUSED static uint32_t heti_load_u32(const unsigned char *from) {
    return heti_load_u16(from) | heti_load_u16(from + 2) << 16;
}

HETI_UNUSED static uint64_t heti_load_u64(const unsigned char *from) {
    return HETI_CAST(uint64_t, heti_load_u32(from)) | HETI_CAST(uint64_t, heti_load_u32(from + 4)) << 32;
}

HETI_UNUSED static const char *heti_reader_name(const het_reader *reader) {
    return reader->name != NULL ? reader->name : "(memory)";
}

/* All `size` bytes at `offset`, or HET_ERR_IO. Callers check offsets against reader->size. */
HETI_UNUSED static het_result heti_read(const het_reader *reader, uint64_t offset, void *to, size_t size,
                                        het_error *error) {
    char *at = HETI_CAST(char *, to);
    while (size > 0) {
        int64_t got = reader->read(reader->user, offset, at, size);
        if (got <= 0 || HETI_CAST(uint64_t, got) > size)
            return heti_fail(error, HET_ERR_IO, "%s: reading %u bytes at offset %u failed (%d)",
                             heti_reader_name(reader), HETI_CAST(uint64_t, size), offset, got);
        at += got;
        offset += HETI_CAST(uint64_t, got);
        size -= HETI_CAST(size_t, got);
    }
    return HET_OK;
}

/* =================================================================================================
   >>rng  Random numbers that are a function of a counter, so that there is no state to save and no
          order to keep.
   Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
   2011. Ten rounds of two 32 x 32 -> 64 multiplications over a counter of four words, with a key of
   two words that advances by constants.
   ============================================================================================== */

/* out = Philox(counter words low 0, low 1, high 0, high 1; key words low, high). One round, with
   the words x0 x1 x2 x3: x0' = high(M1 x2) ^ x1 ^ key0, x1' = low(M1 x2), x2' = high(M0 x0) ^ x3 ^
   key1, x3' = low(M0 x0).
   Users keep apart by the high half of the counter, or by what they put into the low one. */
HETI_UNUSED static void heti_philox(uint64_t key, uint64_t counter_low, uint64_t counter_high, uint32_t out[4]) {
    uint32_t key0 = HETI_CAST(uint32_t, key & 0xffffffffu), key1 = HETI_CAST(uint32_t, key >> 32);
    out[0] = HETI_CAST(uint32_t, counter_low & 0xffffffffu);
    out[1] = HETI_CAST(uint32_t, counter_low >> 32);
    out[2] = HETI_CAST(uint32_t, counter_high & 0xffffffffu);
    out[3] = HETI_CAST(uint32_t, counter_high >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = UINT64_C(0xD2511F53) * out[0], b = UINT64_C(0xCD9E8D57) * out[2];
        out[0] = HETI_CAST(uint32_t, b >> 32) ^ out[1] ^ key0;
        out[1] = HETI_CAST(uint32_t, b & 0xffffffffu);
        out[2] = HETI_CAST(uint32_t, a >> 32) ^ out[3] ^ key1;
        out[3] = HETI_CAST(uint32_t, a & 0xffffffffu);
        key0 += UINT32_C(0x9E3779B9);
        key1 += UINT32_C(0xBB67AE85);
    }
}

/* [0, 1), multiples of 2^-24: exact in float. */
HETI_UNUSED static float heti_uniform(uint32_t bits) {
    return HETI_CAST(float, bits >> 8) * 5.9604644775390625e-8f;
}

/* [0, 1), multiples of 2^-53: exact in double. */
static double heti_uniform_double(uint32_t high, uint32_t low) {
    return HETI_CAST(double, (HETI_CAST(uint64_t, high) << 32 | low) >> 11) * 1.1102230246251565e-16;
}

/* One pass of an 8-round Feistel network over 2 half_bits bits, with Philox as its round function:
   a bijection for every key, because a round (left, right) -> (right, left ^ f(right)) can be
   undone whatever f is. Small domains need more rounds than the usual four. */
static uint64_t heti_feistel(uint64_t value, int half_bits, uint64_t key) {
    uint64_t mask = (UINT64_C(1) << half_bits) - 1, left = value >> half_bits, right = value & mask;
    for (uint64_t round = 0; round < 8; round++) {
        uint32_t bits[4];
        heti_philox(key, right, round, bits);
        const uint64_t next = left ^ (bits[0] & mask);
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

/* Where `index` goes in permutation `key` of [0, count): walk the cycle of a bijection of the next
   power of 4 until it is inside. */
HETI_UNUSED static uint64_t heti_permute(uint64_t index, uint64_t count, uint64_t key) {
    int half_bits = 1;
    while (half_bits < 32 && UINT64_C(1) << 2 * half_bits < count) half_bits++;
    do index = heti_feistel(index, half_bits, key); while (index >= count);
    return index;
}

/* =================================================================================================
   >>hash  XXH64, from its specification (github.com/Cyan4973/xxHash, doc/xxhash_spec.md).
   Four lanes take 8 bytes each of a 32-byte stripe; the rest is folded in by 8, 4 and 1 bytes.
   ============================================================================================== */

#define HETI_XXH_PRIME1 UINT64_C(0x9E3779B185EBCA87)
#define HETI_XXH_PRIME2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define HETI_XXH_PRIME3 UINT64_C(0x165667B19E3779F9)
#define HETI_XXH_PRIME4 UINT64_C(0x85EBCA77C2B2AE63)
#define HETI_XXH_PRIME5 UINT64_C(0x27D4EB2F165667C5)

typedef struct heti_xxh64 {
    uint64_t lane[4], seed, total; /* total: bytes so far */
    size_t held;                   /* of them, bytes waiting in `stripe` */
    unsigned char stripe[32];
} heti_xxh64;

/* 0 < by < 64 */
static uint64_t heti_rotate_left(uint64_t x, int by) { return x << by | x >> (64 - by); }

static uint64_t heti_xxh64_round(uint64_t lane, uint64_t input) {
    return heti_rotate_left(lane + input * HETI_XXH_PRIME2, 31) * HETI_XXH_PRIME1;
}

HETI_UNUSED static void heti_xxh64_start(heti_xxh64 *hash, uint64_t seed) {
    memset(hash, 0, sizeof *hash);
    hash->seed = seed;
    hash->lane[0] = seed + HETI_XXH_PRIME1 + HETI_XXH_PRIME2;
    hash->lane[1] = seed + HETI_XXH_PRIME2;
    hash->lane[2] = seed;
    hash->lane[3] = seed - HETI_XXH_PRIME1;
}

/* 32 bytes: lane i takes bytes [8 i, 8 i + 8). */
static void heti_xxh64_stripe(heti_xxh64 *hash, const unsigned char *from) {
    for (int i = 0; i < 4; i++) hash->lane[i] = heti_xxh64_round(hash->lane[i], heti_load_u64(from + 8 * i));
}

/* Adds bytes in pieces of any size: whole stripes are hashed where they lie, the rest waits. */
HETI_UNUSED static void heti_xxh64_add(heti_xxh64 *hash, const void *data, size_t size) {
    const unsigned char *from = HETI_CAST(const unsigned char *, data);
    if (size == 0) return;
    hash->total += size;
    if (hash->held > 0) {
        size_t part = 32 - hash->held < size ? 32 - hash->held : size;
        memcpy(hash->stripe + hash->held, from, part);
        hash->held += part;
        from += part;
        size -= part;
        if (hash->held < 32) return;
        heti_xxh64_stripe(hash, hash->stripe);
        hash->held = 0;
    }
    for (; size >= 32; size -= 32, from += 32) heti_xxh64_stripe(hash, from);
    memcpy(hash->stripe, from, size);
    hash->held = size;
}

/* The hash of everything added so far; more may be added afterwards. */
HETI_UNUSED static uint64_t heti_xxh64_end(const heti_xxh64 *hash) {
    const unsigned char *from = hash->stripe, *end = hash->stripe + hash->held;
    uint64_t value = hash->seed + HETI_XXH_PRIME5;
    if (hash->total >= 32) {
        value = heti_rotate_left(hash->lane[0], 1) + heti_rotate_left(hash->lane[1], 7) +
                heti_rotate_left(hash->lane[2], 12) + heti_rotate_left(hash->lane[3], 18);
        for (int i = 0; i < 4; i++)
            value = (value ^ heti_xxh64_round(0, hash->lane[i])) * HETI_XXH_PRIME1 + HETI_XXH_PRIME4;
    }
    value += hash->total; /* then the bytes that wait, fewer than 32 */
    for (; end - from >= 8; from += 8)
        value = heti_rotate_left(value ^ heti_xxh64_round(0, heti_load_u64(from)), 27) * HETI_XXH_PRIME1 +
                HETI_XXH_PRIME4;
    if (end - from >= 4) {
        value = heti_rotate_left(value ^ heti_load_u32(from) * HETI_XXH_PRIME1, 23) * HETI_XXH_PRIME2 + HETI_XXH_PRIME3;
        from += 4;
    }
    for (; from < end; from++) value = heti_rotate_left(value ^ *from * HETI_XXH_PRIME5, 11) * HETI_XXH_PRIME1;
    value = (value ^ value >> 33) * HETI_XXH_PRIME2;
    value = (value ^ value >> 29) * HETI_XXH_PRIME3;
    return value ^ value >> 32;
}

HETRAIN_API uint64_t het_xxh64(const void *data, size_t size, uint64_t seed) {
    heti_xxh64 hash;
    heti_xxh64_start(&hash, seed);
    heti_xxh64_add(&hash, data, size);
    return heti_xxh64_end(&hash);
}

/* =================================================================================================
   >>sum  Sums of doubles that have no order.
   value = sum over i < 19 of limb[i] 2^(32 i - 320). A term is a 53-bit integer times a power of
   two; its bits are added to (or, negative, taken from) at most three limbs as 32-bit pieces, so a
   limb holds 2^30 terms. Integer sums have no order: threads, slices and ranks may be joined in any
   way. Bits below 2^-320 are cut off each term. limb[19] counts terms that are not finite, or 2^288
   and larger (1,024 squares of floats stay below 2^266): then the value is NaN.
   ============================================================================================== */

#define HETI_SUM_LIMBS 19
#define HETI_SUM_INTEGERS (HETI_SUM_LIMBS + 1)
#define HETI_SUM_LOWEST (-320)

/* sum += term. Zero and denormals come out far below the lowest bit: the implied leading 1 they do
   not have is cut off with the rest. */
HETI_UNUSED static void heti_sum_add(het_sum *sum, double term) {
    uint64_t bits;
    memcpy(&bits, &term, sizeof bits);
    const int exponent = HETI_CAST(int, bits >> 52 & 0x7ff) - 1075; /* |term| = mantissa 2^exponent */
    uint64_t mantissa = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
    int place = exponent - HETI_SUM_LOWEST;
    if (place + 53 > 32 * HETI_SUM_LIMBS) { sum->limb[HETI_SUM_LIMBS]++; return; }
    if (place <= -53) return; /* smaller than 2^-320 */
    if (place < 0) { mantissa >>= -place; place = 0; }
    const int64_t sign = bits >> 63 != 0 ? -1 : 1;
    const int limb = place / 32, shift = place % 32;
    const uint64_t low = (mantissa & 0xffffffffu) << shift;            /* bits [0, 64) from the limb */
    const uint64_t high = ((mantissa >> 32) << shift) + (low >> 32);   /* bits [32, 96) */
    sum->limb[limb] += sign * HETI_CAST(int64_t, low & 0xffffffffu);
    if ((high & 0xffffffffu) != 0) sum->limb[limb + 1] += sign * HETI_CAST(int64_t, high & 0xffffffffu);
    if (high >> 32 != 0) sum->limb[limb + 2] += sign * HETI_CAST(int64_t, high >> 32);
}

/* to += from. A transport may as well add the 20 limbs as int64. */
HETI_UNUSED static void heti_sum_join(het_sum *to, const het_sum *from) {
    for (int i = 0; i <= HETI_SUM_LIMBS; i++) to->limb[i] += from->limb[i];
}

/* Writes sign * limbs as digits of 32 bits, the topmost one larger; 0: the number is negative. */
static int heti_sum_digits(const het_sum *sum, int64_t sign, uint64_t digit[HETI_SUM_LIMBS + 1]) {
    int64_t carry = 0;
    for (int i = 0; i < HETI_SUM_LIMBS; i++) {
        int64_t value = sign * sum->limb[i] + carry;
        digit[i] = HETI_CAST(uint64_t, value) & 0xffffffffu;
        carry = (value - HETI_CAST(int64_t, digit[i])) / (INT64_C(1) << 32);
    }
    digit[HETI_SUM_LIMBS] = HETI_CAST(uint64_t, carry);
    return carry >= 0;
}

/* The exact sum, rounded once to nearest even. */
HETI_UNUSED static double heti_sum_value(const het_sum *sum) {
    uint64_t digit[HETI_SUM_LIMBS + 1], top;
    int negative = 0, high = HETI_SUM_LIMBS, shift, sticky = 0;
    if (sum->limb[HETI_SUM_LIMBS] != 0) return HETI_CAST(double, NAN);
    if (!heti_sum_digits(sum, 1, digit)) { negative = 1; (void)heti_sum_digits(sum, -1, digit); }
    while (high > 0 && digit[high] == 0) high--;
    /* the 64 bits from the highest one: the highest digit, the next, and what the shift leaves open
       from the one after */
    top = digit[high] << 32 | (high > 0 ? digit[high - 1] : 0);
    if (top == 0) return 0;
    for (shift = 0; top >> 63 == 0; shift++) top <<= 1;
    if (high > 1 && shift > 0) top |= digit[high - 2] >> (32 - shift);
    if (high > 1 && (digit[high - 2] << shift & 0xffffffffu) != 0) sticky = 1;
    for (int i = 0; i < high - 2; i++) sticky |= digit[i] != 0;
    sticky |= (top >> 11 & 1) != 0; /* what is half way goes up where something follows, or to even */
    top = (top >> 11) + ((top & 0x7ff) + HETI_CAST(uint64_t, sticky) > 0x400);
    return ldexp(negative ? -HETI_CAST(double, top) : HETI_CAST(double, top),
                 32 * (high - 1) + HETI_SUM_LOWEST + 11 - shift);
}

/* =================================================================================================
   >>time  Seconds of the clock and of a thread's processor, locks, sleeping.
   For timelines, deadlines, and emulated devices and links. No result depends on them. In a build
   without threads locks and signals do nothing, and only what starts a thread knows.
   ============================================================================================== */

#ifdef HETI_THREADS
#if defined(__linux__) && !defined(CLOCK_MONOTONIC) /* -std=c99 hides POSIX's declaration, not the function */
extern int clock_gettime(int clock, struct timespec *time);
extern int pthread_condattr_setclock(pthread_condattr_t *how, int clock);
#define HETI_CLOCK_MONOTONIC 1
#define HETI_CLOCK_THREAD 3
typedef int heti_clock;
#else
#define HETI_CLOCK_MONOTONIC CLOCK_MONOTONIC
#define HETI_CLOCK_THREAD CLOCK_THREAD_CPUTIME_ID
typedef clockid_t heti_clock;
#endif
#if defined(__APPLE__) || defined(_WIN32) /* signals have no other */
#define HETI_CLOCK_SIGNAL CLOCK_REALTIME
#define HETI_BY_CLOCK(how) ((void)(how))
#else
#define HETI_CLOCK_SIGNAL HETI_CLOCK_MONOTONIC
#define HETI_BY_CLOCK(how) ((void)pthread_condattr_setclock((how), HETI_CLOCK_MONOTONIC))
#endif

static double heti_seconds(heti_clock clock) {
    struct timespec t;
    return clock_gettime(clock, &t) == 0 ? fma(1e-9, HETI_CAST(double, t.tv_nsec), HETI_CAST(double, t.tv_sec)) : 0.0;
}

static double heti_now(void) { return heti_seconds(HETI_CLOCK_MONOTONIC); }

/* Processor time of the calling thread. */
static double heti_thread_time(void) { return heti_seconds(HETI_CLOCK_THREAD); }

/* Waits for a signal, at most `seconds`, by a clock that nobody sets back; `lock` is held. */
static void heti_wait_signal(pthread_cond_t *signal, pthread_mutex_t *lock, double seconds) {
    struct timespec until;
    if (clock_gettime(HETI_CLOCK_SIGNAL, &until) != 0) return;
    const double end = HETI_CAST(double, until.tv_nsec) * 1e-9 + (seconds > 0.0 ? seconds : 0.0), whole = floor(end);
    until.tv_sec += HETI_CAST(time_t, whole);
    until.tv_nsec = HETI_CAST(long, (end - whole) * 1e9);
    (void)pthread_cond_timedwait(signal, lock, &until);
}

typedef pthread_mutex_t heti_mutex;
typedef pthread_cond_t heti_signal;
#define HETI_LOCK(ctx) ((void)pthread_mutex_lock(&(ctx)->threads.lock))
#define HETI_UNLOCK(ctx) ((void)pthread_mutex_unlock(&(ctx)->threads.lock))
#define HETI_SIGNAL(signal) ((void)pthread_cond_signal(signal))
#define HETI_YIELD() ((void)sched_yield())
#else /* nobody waits for anybody */
static double heti_now(void) { return 0.0; }
static double heti_thread_time(void) { return 0.0; }

typedef int heti_mutex, heti_signal;
#define HETI_LOCK(ctx) ((void)(ctx))
#define HETI_UNLOCK(ctx) ((void)(ctx))
#define HETI_SIGNAL(signal) ((void)(signal))
#define HETI_YIELD() ((void)0)
static void heti_wait_signal(heti_signal *signal, heti_mutex *lock, double seconds) {
    (void)signal, (void)lock, (void)seconds;
}
#endif

/* =================================================================================================
   >>math  exp, log, sin, cos, pow, erf from correctly rounded operations alone.
   Results of libm differ between machines, so the header has its own. All have the same plan: an
   exact reduction of the argument to a short interval, a polynomial there (least squares at
   Chebyshev points, coefficients rounded one after the other from the lowest on), and the reduction
   undone. The float functions are the lanes of HETI_K(exp), HETI_K(log) and HETI_K(erf) (>>vector),
   bit for bit. The largest errors found (floats: every 61st bit pattern; doubles: 6,000 random
   arguments against 300-bit arithmetic) are beside each function.
   ============================================================================================== */

#define HETI_COUNT(array) HETI_CAST(int, sizeof(array) / sizeof((array)[0]))

#define HETI_LOG2_E 1.44269504f
#define HETI_LN2_HIGH 0.693147182f     /* ln 2 = high + low */
#define HETI_LN2_LOW (-1.90465421e-9f)
#define HETI_SHIFT 12582912.0f         /* 1.5 2^23: x + shift has the nearest integer to x in its low bits */
#define HETI_EXP_LOW (-87.3365402f)    /* below it exp is less than the smallest normal number */
#define HETI_EXP_HIGH 88.7228394f      /* from here on exp overflows */
#define HETI_MIN_NORMAL 1.17549435e-38f
#define HETI_TWO_THIRDS 0x3f2aaaab     /* bits of 2/3f */

/* exp(r) = 1 + r + r^2 p(r), |r| <= ln 2 / 2 */
static const float heti_exp_coefficient[5] = { 0.5f, 0.166665182f, 0.0416668504f, 0.00836896058f, 0.00138992688f };
/* log(1 + f) = f + f^2 p(f), |f| <= 1/3 */
static const float heti_log_coefficient[9] = {
    -0.5f, 0.333332062f, -0.249998882f, 0.200108349f, -0.166763887f, 0.140001044f, -0.122408405f, 0.140088156f,
    -0.126471475f };
/* erf(x) = x + x p(x^2), |x| < 1; erf(x) = 1 - exp(-p(x)), 1 <= x <= 4 */
static const float heti_erf_inner[7] = {
    0.128379166f, -0.376126289f, 0.112836182f, -0.0268551242f, 0.0051907259f, -0.000803065428f, 7.91990169e-05f };
static const float heti_erf_outer[8] = {
    -0.000191478495f, 1.12959397f, 0.633190334f, 0.108449206f, -0.0252269208f, 0.0042112465f, -0.000442638469f,
    2.17931902e-05f };

static HETI_INLINE uint32_t heti_float_bits(float x) { uint32_t bits; memcpy(&bits, &x, sizeof bits); return bits; }
static HETI_INLINE float heti_bits_float(uint32_t bits) { float x; memcpy(&x, &bits, sizeof x); return x; }

/* bf16 is the upper half of a float. To it: to the nearest, ties to even; NaN stays NaN. */
static HETI_UNUSED uint16_t heti_bf16_of(float value) {
    const uint32_t bits = heti_float_bits(value);
    if (value != value) return HETI_CAST(uint16_t, bits >> 16 | 0x40u);
    return HETI_CAST(uint16_t, (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
static HETI_INLINE float heti_bf16_value(uint16_t x) { return heti_bits_float(HETI_CAST(uint32_t, x) << 16); }

/* Element i of a matrix of int8. */
static HETI_INLINE float heti_int8_value(const het_int8_block *block, int64_t i) {
    const uint64_t at = HETI_CAST(uint64_t, i);
    block += at / HETRAIN_INT8_BLOCK;
    return block->scale * HETI_CAST(float, block->q[at % HETRAIN_INT8_BLOCK]);
}

/* x = mantissa 2^e with the mantissa in [2/3, 4/3), for normal x > 0. Returns e. */
static HETI_UNUSED float heti_splitf(float x, float *mantissa) {
    uint32_t bits = heti_float_bits(x), from_third = bits - HETI_TWO_THIRDS;
    uint32_t e = (from_third >> 23) | (from_third & 0x80000000u ? 0xfffffe00u : 0u); /* arithmetic shift */
    *mantissa = heti_bits_float(bits - (e << 23));
    return e & 0x80000000u ? -HETI_CAST(float, 0u - e) : HETI_CAST(float, e);
}

static HETI_UNUSED float heti_polynomialf(float x, const float *c, int count) {
    float y = c[count - 1];
    for (int i = count - 2; i >= 0; i--) y = fmaf(y, x, c[i]);
    return y;
}

/* 1.02 units in the last place */
static HETI_UNUSED float heti_expf(float x) {
    float shifted = fmaf(x, HETI_LOG2_E, HETI_SHIFT), n = shifted - HETI_SHIFT;
    float r = fmaf(-n, HETI_LN2_LOW, fmaf(-n, HETI_LN2_HIGH, x));
    float y = fmaf(heti_polynomialf(r, heti_exp_coefficient, HETI_COUNT(heti_exp_coefficient)), heti_round_f(r * r),
                   r) + 1.0f;
    if (x < HETI_EXP_LOW) return 0.0f;
    return x < HETI_EXP_HIGH ? heti_bits_float(heti_float_bits(y) + (heti_float_bits(shifted) << 23)) : x + INFINITY;
}

/* 0.83 units in the last place */
static HETI_UNUSED float heti_logf(float x) {
    int small = x < HETI_MIN_NORMAL;
    float m, f, tail, e;
    if (!(x > 0.0f)) return x < 0.0f ? NAN : x < INFINITY ? -INFINITY : x;
    if (!(x < INFINITY)) return x;
    e = heti_splitf(small ? heti_round_f(x * 8388608.0f) : x, &m) + (small ? -23.0f : 0.0f);
    f = m - 1.0f;
    tail = heti_polynomialf(f, heti_log_coefficient, HETI_COUNT(heti_log_coefficient));
    tail = fmaf(tail, heti_round_f(f * f), heti_round_f(e * HETI_LN2_LOW));
    return fmaf(e, HETI_LN2_HIGH, f + tail);
}

/* 1.02 units in the last place, 6.1e-8 absolute */
static HETI_UNUSED float heti_erff(float x) {
    float size = fabsf(x), outer;
    if (size < 1.0f)
        return fmaf(x, heti_polynomialf(heti_round_f(x * x), heti_erf_inner, HETI_COUNT(heti_erf_inner)), x);
    outer = heti_polynomialf(4.0f < size ? 4.0f : size, heti_erf_outer, HETI_COUNT(heti_erf_outer));
    outer = 1.0f - heti_expf(-outer);
    return x < 0.0f ? -outer : outer;
}

/* ---- double ---- */

#define HETI_DINFINITY HETI_CAST(double, INFINITY)
#define HETI_DLN2_HIGH 0.69314718055994529 /* ln 2 = high + low + 5.7e-34 */
#define HETI_DLN2_LOW 2.3190468138462996e-17

static double heti_polynomial(double x, const double *c, int count) {
    double y = c[count - 1];
    for (int i = count - 2; i >= 0; i--) y = fma(y, x, c[i]);
    return y;
}

/* exp(high + low), |low| much smaller than |high| <= 700. 0.75 units in the last place. */
static double heti_exp_parts(double high, double low) {
    static const double heti_coefficient[11] = {
        0.5, 0.16666666666666685, 0.041666666666666526, 0.0083333333333159686, 0.0013888888888968043,
        0.00019841269898620266, 2.4801587155237098e-05, 2.7557232902697543e-06, 2.7557417587434751e-07,
        2.5112649881903777e-08, 2.0871151225785464e-09 };
    double n, r, r_low, whole;
    n = rint(heti_round(high * 1.4426950408889634));
    r = fma(-n, HETI_DLN2_HIGH, high); /* exact */
    r_low = fma(-n, HETI_DLN2_LOW, low);
    whole = r + r_low;
    r_low = (r - whole) + r_low;
    r = fma(heti_polynomial(whole, heti_coefficient, HETI_COUNT(heti_coefficient)), heti_round(whole * whole),
            r_low) + whole;
    return ldexp(1.0 + r, HETI_CAST(int, n));
}

/* log(x) = high + low to about 2^-70 of its size, for finite x > 0. x = m 2^e; s = (m - 1) / (m +
   1); log m = 2 s + 2/3 s^3 + s^5 p(s^2), the first two in two doubles each. */
static double heti_log_parts(double x, double *low) {
    static const double heti_coefficient[9] = {
        0.4, 0.28571428571426843, 0.22222222222711371, 0.18181818111250414, 0.15384621303440424, 0.1333302769202909,
        0.11774551814727779, 0.10334187404194502, 0.11577959069737771 };
    const double third = 0.66666666666666663, third_low = 3.7007434154171883e-17; /* 2/3 */
    int exponent;
    double m = frexp(x, &exponent), e, f, d, d_low, s, s_low, z, z_low, cube, cube_low, t, t_low, p, sum, rest, high;
    if (m < third) { m += m; exponent--; }
    e = HETI_CAST(double, exponent);
    f = m - 1.0;
    d = m + 1.0;
    d_low = m - (d - 1.0);
    s = f / d;
    s_low = fma(-s, d_low, fma(-s, d, f)) / d;
    z = heti_round(s * s);
    z_low = fma(heti_round(2.0 * s), s_low, fma(s, s, -z));
    cube = heti_round(z * s);
    cube_low = fma(z, s_low, fma(z_low, s, fma(z, s, -cube)));
    t = heti_round(third * cube);
    t_low = fma(third, cube_low, fma(third_low, cube, fma(third, cube, -t)));
    p = heti_round(e * HETI_DLN2_HIGH);
    sum = p + 2.0 * s; /* 2 s is exact, fused or not */
    rest = (p - sum) + 2.0 * s;
    high = sum + t;
    rest += (sum - high) + t;
    rest += fma(e, HETI_DLN2_LOW, fma(e, HETI_DLN2_HIGH, -p)) + fma(2.0, s_low, t_low);
    rest = fma(heti_round(cube * z), heti_polynomial(z, heti_coefficient, HETI_COUNT(heti_coefficient)), rest);
    *low = rest;
    sum = high + rest;
    *low = (high - sum) + rest;
    return sum;
}

/* 0.500 units in the last place */
static HETI_UNUSED double heti_log(double x) {
    double low;
    if (!(x > 0.0)) return x < 0.0 ? HETI_CAST(double, NAN) : x == 0.0 ? -HETI_DINFINITY : x;
    return x < HETI_DINFINITY ? heti_log_parts(x, &low) : x;
}

/* 0 < base, what comes out neither infinite nor next to 0. 0.79 units in the last place. */
static HETI_UNUSED double heti_pow(double base, double exponent) {
    double log_high, log_low, high;
    if (exponent == 0.0 || base == 1.0) return 1.0;
    log_high = heti_log_parts(base, &log_low);
    high = heti_round(exponent * log_high);
    return heti_exp_parts(high, fma(exponent, log_low, fma(exponent, log_high, -high)));
}

/* base^n, n >= 0, by repeated squaring: one rounding a product. */
static HETI_UNUSED double heti_powi(double base, int64_t n) {
    double power = 1.0;
    for (; n > 0; n /= 2) {
        if (n % 2) power = heti_round(power * base);
        base = heti_round(base * base);
    }
    return power;
}

/* sin(x + quarter pi / 2). The reduction x - n pi/2 uses 159 bits of pi/2, good for |x| up to 2^30.
   0.71 units in the last place (measured up to 10^6). */
static double heti_sin_quarter(double x, double quarter) {
    static const double heti_sine[7] = {
        -0.16666666666666666, 0.0083333333333330973, -0.00019841269841051754, 2.7557319126230735e-06,
        -2.5052085158079624e-08, 1.6056145662017008e-10, -7.4798418396478678e-13 };
    static const double heti_cosine[7] = {
        0.041666666666666664, -0.0013888888888888434, 2.4801587301242051e-05, -2.7557319091907707e-07,
        2.0876729635859864e-09, -1.1467760893521914e-11, 4.6338405727070817e-14 };
    double n = rint(heti_round(x * 0.63661977236758138)), r, product, low, z, y;
    r = fma(-n, 1.5707963267948966, x); /* exact */
    product = heti_round(n * 6.123233995736766e-17);
    low = fma(n, 1.4973849048591698e-33, -fma(n, 6.123233995736766e-17, -product));
    z = r - product;
    low += (r - z) - product;
    r = z;
    n += quarter;
    n -= 4.0 * floor(n * 0.25); /* all exact: 0, 1, 2 or 3 */
    z = heti_round(r * r);
    if (n == 0.0 || n == 2.0) { /* sin(r + low) = sin r + low (1 - z / 2) */
        y = fma(heti_round(z * r), heti_polynomial(z, heti_sine, HETI_COUNT(heti_sine)), fma(heti_round(-0.5 * z), low,
            low)) + r;
    } else { /* cos(r + low) = cos r - low r; 1 - z / 2 in two parts */
        double half = 0.5 * z, head = 1.0 - half;
        y = fma(heti_round(z * z), heti_polynomial(z, heti_cosine, HETI_COUNT(heti_cosine)),
                fma(-r, low, (1.0 - head) - half)) + head;
    }
    return n >= 2.0 ? -y : y;
}

static HETI_UNUSED double heti_sin(double x) { return heti_sin_quarter(x, 0.0); }
static HETI_UNUSED double heti_cos(double x) { return heti_sin_quarter(x, 1.0); }
/* ================================================================================================
   >>reference  The reference device: every op in plain C. These loops define the bits of every op.

   Read this section first: one op after the other, formula and shapes above it, forward beside
   backward. Every element of a product is one chain of fused multiply-adds from +0. Sums along a
   row run in 16 lanes, element i in lane i mod 16, which are joined in a fixed tree. A gradient is
   summed granule by granule: one granule's sum over its tokens is a float, a term, and terms are
   added exactly, so that their order does not matter. A product whose result is added goes through
   heti_round_f, or the compiler might fuse the two. The CPU device computes the same bits 30 to
   100 times as fast on small models; tests hold every instruction set against this device.
   Letters are those of >>model_api; n rows are the tokens of a slice.
   ============================================================================================== */

/* s = sum of 16 lanes: lane i takes lane i + 8, then i + 4, i + 2, i + 1. */
static float heti_ref_join(const float lane[16]) {
    float s[16];
    memcpy(s, lane, sizeof s);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++) s[i] = s[i] + s[i + half];
    return s[0];
}

/* To the nearest bf16, ties to even; what is smaller than a normal number becomes 0. */
static float heti_ref_bf16(float x) {
    return fabsf(x) < HETI_MIN_NORMAL ? 0.0f : heti_bf16_value(heti_bf16_of(x));
}

/* An operand of a product: as it is, or rounded to bf16. */
static float heti_ref_operand(float x, het_dtype compute) { return compute == HET_BF16 ? heti_ref_bf16(x) : x; }

/* ---- gradients: where one granule's term of element i starts, and where it goes ---- */

static int heti_ref_trains(const het_gradient *g) { return g != NULL && g->sum != NULL; }

/* Exact: a term is a chain from +0. Otherwise the chain of the granule before goes on. */
static float heti_ref_begin(const het_gradient *g, int64_t i) {
    return g->exact ? 0.0f : HETI_CAST(const float *, g->sum)[i];
}

/* Exact: sum += (term + c) - c in double, a multiple of the parameter's step
   (het_gradient.grid). */
static void heti_ref_end(const het_gradient *g, int64_t i, float term) {
    const uint32_t bits = heti_float_bits(fabsf(term));
    if (!g->exact) {
        HETI_CAST(float *, g->sum)[i] = term;
        return;
    }
    HETI_CAST(double *, g->sum)[i] += (HETI_CAST(double, term) + *g->grid) - *g->grid;
    if (bits > *g->maximum) *g->maximum = bits;
}

/* The first row of granule g, counted from the slice's first row. */
static int64_t heti_granule_row(const het_view *view, int64_t g) { return view->granule_start[g] - view->row_begin; }

/* ---- norm ---- xhat = (x - mean) rstd, rstd = 1 / sqrt(mean of (x - mean)^2 + epsilon),
   y = xhat gain + bias.  x, y [n][D]. RMSNorm has mean = 0 */

static float heti_ref_xhat(const het_norm_args *a, int64_t row, int64_t i) {
    const float mean = a->kind == HET_RMSNORM ? 0.0f : a->mean[row];
    return heti_round_f((a->x[row * a->width + i] - mean) * a->rstd[row]);
}

static void heti_ref_norm_forward(const het_norm_args *a) {
    const float count = HETI_CAST(float, a->width);
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->x + r * a->width;
        float sum[16] = { 0 }, square[16] = { 0 }, mean = 0.0f;
        if (a->kind != HET_RMSNORM) {
            for (int64_t i = 0; i < a->width; i++) sum[i % 16] += x[i];
            a->mean[r] = mean = heti_ref_join(sum) / count;
        }
        for (int64_t i = 0; i < a->width; i++) square[i % 16] = fmaf(x[i] - mean, x[i] - mean, square[i % 16]);
        a->rstd[r] = 1.0f / sqrtf(heti_ref_join(square) / count + a->epsilon);
        for (int64_t i = 0; i < a->width; i++) {
            const float xhat = heti_ref_xhat(a, r, i);
            a->y[r * a->width + i] = a->bias != NULL ? fmaf(xhat, a->gain[i], a->bias[i]) : xhat * a->gain[i];
        }
    }
}

/* g = dy gain: dx = rstd (g - mean(g) - xhat mean(g xhat)) + residual. RMSNorm lacks mean(g). */
static void heti_ref_norm_backward_input(const het_norm_args *a) {
    const float count = HETI_CAST(float, a->width);
    for (int64_t r = 0; r < a->rows; r++) {
        const float *dy = a->dy + r * a->width;
        float sum[16] = { 0 }, product[16] = { 0 }, mean_g = 0.0f, mean_gx;
        for (int64_t i = 0; i < a->width; i++) {
            const float g = heti_round_f(dy[i] * a->gain[i]);
            sum[i % 16] += g;
            product[i % 16] = fmaf(g, heti_ref_xhat(a, r, i), product[i % 16]);
        }
        if (a->kind != HET_RMSNORM) mean_g = heti_ref_join(sum) / count;
        mean_gx = heti_ref_join(product) / count;
        for (int64_t i = 0; i < a->width; i++) {
            const float g = heti_round_f(dy[i] * a->gain[i]);
            const float t = fmaf(-heti_ref_xhat(a, r, i), mean_gx, g - mean_g);
            const float *residual = a->residual != NULL ? a->residual + r * a->width + i : NULL;
            a->dx[r * a->width + i] = residual != NULL ? fmaf(a->rstd[r], t, *residual) : a->rstd[r] * t;
        }
    }
}

/* dgain += sum of dy xhat, dbias += sum of dy. A token may have several rows (heads). */
static void heti_ref_norm_backward_weight(const het_norm_args *a) {
    for (int64_t g = a->view->granule_begin; g < a->view->granule_end; g++) {
        const int64_t first = heti_granule_row(a->view, g), last = heti_granule_row(a->view, g + 1);
        for (int64_t i = 0; i < a->width; i++) {
            float dgain = heti_ref_trains(a->dgain) ? heti_ref_begin(a->dgain, i) : 0.0f;
            float dbias = heti_ref_trains(a->dbias) ? heti_ref_begin(a->dbias, i) : 0.0f;
            for (int64_t r = first * a->rows_per_token; r < last * a->rows_per_token; r++) {
                dgain = fmaf(a->dy[r * a->width + i], heti_ref_xhat(a, r, i), dgain);
                dbias += a->dy[r * a->width + i];
            }
            if (heti_ref_trains(a->dgain)) heti_ref_end(a->dgain, i, dgain);
            if (heti_ref_trains(a->dbias)) heti_ref_end(a->dbias, i, dbias);
        }
    }
}

/* ---- linear ---- y_p = x W_p^T + b_p.  x [n][in], W_p [out_p][in], b_p [out_p], y_p [n][out_p] */

/* W[i], which may be kept as bf16. */
static float heti_ref_weight(const het_linear_part *p, int64_t i, het_dtype compute) {
    const float w = p->w != NULL ? p->w[i] : p->w_bf16 != NULL ? heti_bf16_value(p->w_bf16[i])
                                                               : heti_int8_value(p->w_int8, i);
    return heti_ref_operand(w, compute);
}

static void heti_ref_linear_forward(const het_linear_args *a) {
    for (const het_linear_part *p = a->part; p < a->part + a->parts; p++)
        for (int64_t r = 0; r < a->rows; r++)
            for (int64_t o = 0; o < p->out; o++) {
                float y = a->continues ? p->y[r * p->out + o] : 0.0f;
                for (int64_t i = 0; i < a->in; i++) {
                    const float x = heti_ref_operand(a->x[r * a->in + i], a->compute);
                    y = fmaf(x, heti_ref_weight(p, o * a->in + i, a->compute), y);
                }
                p->y[r * p->out + o] = p->bias != NULL ? y + p->bias[o] : y;
            }
}

/* dx = sum over p of dy_p W_p: one chain over the rows of W_0, then of W_1, ... */
static void heti_ref_linear_backward_input(const het_linear_args *a) {
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->in; i++) {
            float dx = a->continues ? a->dx[r * a->in + i] : 0.0f;
            for (const het_linear_part *p = a->part; p < a->part + a->parts; p++)
                for (int64_t o = 0; o < p->out; o++) {
                    const float dy = heti_ref_operand(p->dy[r * p->out + o], a->compute);
                    dx = fmaf(dy, heti_ref_weight(p, o * a->in + i, a->compute), dx);
                }
            a->dx[r * a->in + i] = dx;
        }
}

/* dW_p += dy_p^T x, db_p += sum of dy_p: the chain over one granule's tokens is a term. */
static void heti_ref_linear_term(const het_linear_args *a, const het_linear_part *p, int64_t first, int64_t last) {
    for (int64_t o = 0; o < p->out; o++) {
        for (int64_t i = 0; i < a->in && heti_ref_trains(p->dw); i++) {
            float dw = heti_ref_begin(p->dw, o * a->in + i);
            for (int64_t r = first; r < last; r++) {
                const float dy = heti_ref_operand(p->dy[r * p->out + o], a->compute);
                dw = fmaf(dy, heti_ref_operand(a->x[r * a->in + i], a->compute), dw);
            }
            heti_ref_end(p->dw, o * a->in + i, dw);
        }
        if (heti_ref_trains(p->dbias)) {
            float db = heti_ref_begin(p->dbias, o);
            for (int64_t r = first; r < last; r++) db += p->dy[r * p->out + o];
            heti_ref_end(p->dbias, o, db);
        }
    }
}
static void heti_ref_linear_backward_weight(const het_linear_args *a) {
    for (int64_t p = 0; p < a->parts; p++)
        for (int64_t g = a->view->granule_begin; g < a->view->granule_end; g++) {
            const int64_t first = heti_granule_row(a->view, g), last = heti_granule_row(a->view, g + 1);
            heti_ref_linear_term(a, &a->part[p], first, last);
        }
}

/* ---- rotary ---- with the angle t of (position, i), h = rotary / 2: y_i = x_i cos t - x_i+h
   sin t, y_i+h = x_i+h cos t + x_i sin t; columns from `rotary` on pass.  x, y [n][heads E].
   Backward: the transpose, -t */

static void heti_ref_rotate(const het_rotary_args *a, float sign) {
    const int64_t half = a->rotary / 2;
    for (int64_t r = 0; r < a->rows; r++) {
        const int64_t position = a->view->position[a->view->row_begin + r];
        for (int64_t head = 0; head < a->heads; head++) {
            const float *x = a->x + (r * a->heads + head) * a->head_size;
            float *y = a->y + (r * a->heads + head) * a->head_size;
            for (int64_t i = 0; i < half; i++) {
                const float c = a->cosine[position * half + i], s = sign * a->sine[position * half + i];
                const float x0 = x[i], x1 = x[i + half];
                y[i] = fmaf(-x1, s, heti_round_f(x0 * c));
                y[i + half] = fmaf(x0, s, heti_round_f(x1 * c));
            }
            for (int64_t i = 2 * half; i < a->head_size; i++) y[i] = x[i];
        }
    }
}

/* ---- attention ---- S = (scale q) k^T, m = max S, l = sum of exp(S - m), o = (sum of exp(S - m)
   v) / l.  q, o [n][H][E]; k, v [tokens][K][E]; m, l [n][H]. A query sees keys of its own
   sequence */

typedef struct heti_ref_row {
    int64_t row;              /* (row of the slice) * heads + head */
    int64_t first, last;      /* keys it sees, counted from the start of its sequence */
    int64_t key;              /* where key 0 of the sequence and this key/value head stands in k and v */
    const int32_t *relation;  /* of its keys; NULL: no bias */
} heti_ref_row;

/* Keys [*first, *last) of a sequence of `end` that a query sees: if not causal, around it. */
static void heti_sees(const het_attention_args *a, int64_t end, int64_t query, int64_t *first, int64_t *last) {
    const int64_t window = a->window, behind = a->causal ? window - 1 : (window - 1) / 2, ahead = window / 2;
    *first = window > 0 ? heti_max(0, query - behind) : 0;
    *last = a->causal ? query + 1 : window > 0 ? heti_min(end, query + ahead + 1) : end;
}

static heti_ref_row heti_ref_row_of(const het_attention_args *a, int64_t sequence, int64_t query, int64_t head) {
    const int64_t origin = a->view->sequence_start[sequence], kv_head = head / (a->heads / a->kv_heads);
    heti_ref_row r;
    heti_sees(a, heti_min(a->view->sequence_start[sequence + 1], a->view->row_end) - origin, query, &r.first, &r.last);
    r.row = (origin + query - a->view->row_begin) * a->heads + head;
    r.key = (origin * a->kv_heads + kv_head) * a->head_size;
    r.relation = a->bias ? a->relation + query * a->context : NULL;
    return r;
}

/* (scale x) . y, a chain; scale x is rounded first. */
static float heti_ref_dot(const het_attention_args *a, const float *x, float scale, const float *y) {
    float s = 0.0f;
    for (int64_t e = 0; e < a->head_size; e++)
        s = fmaf(heti_ref_operand(heti_round_f(x[e] * scale), a->compute), heti_ref_operand(y[e], a->compute), s);
    return s;
}

/* S of key j. */
static float heti_ref_score(const het_attention_args *a, const heti_ref_row *r, int64_t j) {
    const float s = heti_ref_dot(a, a->q + r->row * a->head_size, a->scale,
                                 a->k + r->key + j * a->kv_heads * a->head_size);
    return r->relation ? s + a->bias[r->row * a->relations + r->relation[j]] : s;
}

static void heti_ref_attend(const het_attention_args *a, heti_ref_row r) {
    const int64_t size = a->head_size, step = a->kv_heads * size;
    const float *v = a->v + r.key;
    float m = -INFINITY, lane[16] = { 0 }, *o = a->o + r.row * size;
    for (int64_t j = r.first; j < r.last; j++) {
        const float s = heti_ref_score(a, &r, j);
        m = m > s ? m : s;
    }
    for (int64_t e = 0; e < size; e++) o[e] = 0.0f;
    for (int64_t j = r.first; j < r.last; j++) {
        const float p = heti_expf(heti_ref_score(a, &r, j) - m);
        lane[j % 16] += p;
        for (int64_t e = 0; e < size; e++)
            o[e] = fmaf(heti_ref_operand(p, a->compute), heti_ref_operand(v[j * step + e], a->compute), o[e]);
    }
    a->maximum[r.row] = m;
    a->sum[r.row] = heti_ref_join(lane);
    for (int64_t e = 0; e < size; e++) o[e] = (o[e] + 0.0f) / a->sum[r.row]; /* + 0: no -0 */
}

/* P = exp(S - m) / l, d = do . o, dS = P (do v^T - d); dq = scale (dS k), dk += dS^T (scale q),
   dv += P^T do. dk and dv are chains over queries descending and, of a query, heads ascending:
   slices go backward last to first and continue them. */
static void heti_ref_attend_back(const het_attention_args *a, heti_ref_row r) {
    const int64_t size = a->head_size, step = a->kv_heads * size;
    const float *q = a->q + r.row * size, *k = a->k + r.key, *v = a->v + r.key;
    const float *d_o = a->d_o + r.row * size, *o = a->o + r.row * size;
    float lane[16] = { 0 }, *dq = a->dq + r.row * size, *dk = a->dk + r.key, *dv = a->dv + r.key, d;
    for (int64_t e = 0; e < size; e++) lane[e % 16] = fmaf(d_o[e], o[e], lane[e % 16]);
    d = heti_ref_join(lane);
    for (int64_t e = 0; e < size; e++) dq[e] = 0.0f;
    for (int64_t i = 0; i < a->relations && r.relation; i++) a->dbias[r.row * a->relations + i] = 0.0f;
    for (int64_t j = r.first; j < r.last; j++) {
        const float p = heti_expf(heti_ref_score(a, &r, j) - a->maximum[r.row]) / a->sum[r.row];
        const float ds = heti_round_f(p * (heti_ref_dot(a, d_o, 1.0f, v + j * step) - d));
        const float p_in = heti_ref_operand(p, a->compute), ds_in = heti_ref_operand(ds, a->compute);
        if (r.relation) a->dbias[r.row * a->relations + r.relation[j]] += ds;
        for (int64_t e = 0; e < size; e++) {
            float *to_k = dk + j * step + e, *to_v = dv + j * step + e;
            *to_v = fmaf(p_in, heti_ref_operand(d_o[e], a->compute), *to_v);
            *to_k = fmaf(ds_in, heti_ref_operand(heti_round_f(q[e] * a->scale), a->compute), *to_k);
            dq[e] = fmaf(ds_in, heti_ref_operand(k[j * step + e], a->compute), dq[e]);
        }
    }
    for (int64_t e = 0; e < size; e++) dq[e] = a->scale * (dq[e] + 0.0f);
}

static void heti_ref_attend_sequence(const het_attention_args *a, int64_t sequence, int backward) {
    const het_view *v = a->view;
    const int64_t origin = v->sequence_start[sequence], end = heti_min(v->sequence_start[sequence + 1], v->row_end);
    const int64_t width = a->kv_heads * a->head_size;
    for (int64_t t = end - 1; t >= heti_max(origin, v->row_begin); t--)
        for (int64_t head = 0; head < a->heads; head++) {
            const heti_ref_row row = heti_ref_row_of(a, sequence, t - origin, head);
            if (backward) heti_ref_attend_back(a, row);
            else heti_ref_attend(a, row);
        }
    for (int64_t i = origin * width; i < end * width && backward; i++) {
        a->dk[i] += 0.0f;
        a->dv[i] += 0.0f;
    }
}
static void heti_ref_attention(const het_attention_args *a, int backward) {
    for (int64_t s = 0; s < a->view->sequences; s++) heti_ref_attend_sequence(a, s, backward);
}

/* ---- activation ---- of elements. SwiGLU: y = a s b, s = sigmoid(a). GELU: y = x Phi(x),
   Phi(x) = (1 + erf(x / sqrt 2)) / 2. tanh GELU: y = x s, s = sigmoid(2u), 2u = x (c0 + c1 x^2),
   c0 = 2 sqrt(2 / pi), c1 = 0.044715 c0 */

static float heti_ref_sigmoid(float x) { return 1.0f / (1.0f + heti_expf(-x)); }
static float heti_ref_normal_cdf(float x) {
    return fmaf(0.5f, heti_erff(heti_round_f(x * 0.70710678118654752f)), 0.5f);
}

/* sigmoid(2u) of the tanh form, x kept within 20, and *slope = d(2u) / dx = c0 + 3 c1 x^2. */
static float heti_ref_gelu_gate(float x, float *slope) {
    const float c0 = 1.5957691216057308f, c1 = 0.071354816272600251f;
    const float low = -20.0f > x ? -20.0f : x, z = 20.0f < low ? 20.0f : low, square = heti_round_f(z * z);
    *slope = fmaf(heti_round_f(3.0f * c1), square, c0);
    return heti_ref_sigmoid(heti_round_f(z * fmaf(c1, square, c0)));
}

static void heti_ref_activation_forward(const het_activation_args *a) {
    for (int64_t i = 0; i < a->count; i++) {
        const float x = a->a[i];
        float slope;
        if (a->kind == HET_SWIGLU) a->y[i] = heti_round_f(x * heti_ref_sigmoid(x)) * a->b[i];
        else if (a->kind == HET_GELU_ERF) a->y[i] = x * heti_ref_normal_cdf(x);
        else a->y[i] = x * heti_ref_gelu_gate(x, &slope);
    }
}

/* SwiGLU: da = dy b s (1 + a (1 - s)), db = dy a s. GELU: dy (Phi + x phi), phi the bell curve.
   tanh GELU: dy s (1 + x (1 - s) d(2u)/dx). */
static void heti_ref_activation_backward(const het_activation_args *a) {
    for (int64_t i = 0; i < a->count; i++) {
        const float x = a->a[i], dy = a->dy[i];
        if (a->kind == HET_SWIGLU) {
            const float s = heti_ref_sigmoid(x), b = a->b[i];
            a->da[i] = heti_round_f(dy * b) * heti_round_f(s * fmaf(x, 1.0f - s, 1.0f));
            a->db[i] = dy * heti_round_f(x * s);
        } else if (a->kind == HET_GELU_ERF) {
            const float bell = heti_expf(heti_round_f(-0.5f * heti_round_f(x * x)));
            a->da[i] = dy * fmaf(heti_round_f(x * 0.39894228040143268f), bell, heti_ref_normal_cdf(x));
        } else {
            float slope, s = heti_ref_gelu_gate(x, &slope);
            a->da[i] = dy * heti_round_f(s * fmaf(heti_round_f(x * (1.0f - s)), slope, 1.0f));
        }
    }
}

/* ---- embedding ---- y[r] = table[token[r]] + positions[position[r]].  table [V][D],
   positions [T][D], y [n][D] */

static void heti_ref_embedding_forward(const het_embedding_args *a) {
    for (int64_t r = 0; r < a->rows; r++) {
        const int64_t token = a->view->token[a->view->row_begin + r],
                      position = a->view->position[a->view->row_begin + r];
        for (int64_t i = 0; i < a->width; i++) {
            const int64_t at = token * a->width + i;
            float y = a->table != NULL ? a->table[at] : a->table_bf16 != NULL ? heti_bf16_value(a->table_bf16[at])
                                                                              : heti_int8_value(a->table_int8, at);
            if (a->positions != NULL) y += a->positions[position * a->width + i];
            a->y[r * a->width + i] = y;
        }
    }
}

/* dtable[id[r]] += dy[r]: of a granule, rows that met an entry are one chain. id: the slice's */
static void heti_ref_scatter(const het_embedding_args *a, const het_gradient *gradient, const int32_t *id) {
    for (int64_t g = a->view->granule_begin; heti_ref_trains(gradient) && g < a->view->granule_end; g++) {
        const int64_t first = heti_granule_row(a->view, g), last = heti_granule_row(a->view, g + 1);
        int64_t other;
        for (int64_t r = first; r < last; r++) {
            for (other = first; other < r && id[other] != id[r]; other++) {}
            if (other < r) continue; /* the entry's chain began at that row */
            for (int64_t i = 0; i < a->width; i++) {
                const int64_t element = id[r] * a->width + i;
                float sum = heti_ref_begin(gradient, element);
                for (other = r; other < last; other++)
                    if (id[other] == id[r]) sum += a->dy[other * a->width + i];
                heti_ref_end(gradient, element, sum);
            }
        }
    }
}
static void heti_ref_embedding_backward_weight(const het_embedding_args *a) {
    heti_ref_scatter(a, a->dtable, a->view->token + a->view->row_begin);
    heti_ref_scatter(a, a->dpositions, a->view->position + a->view->row_begin);
}

/* ---- dropout ---- y = a + x mask / (1 - p), mask 0 with probability p.  x, a, y [n][D].
   Backward: y = x mask / (1 - p)
   key = first 64 bits of Philox(seed; step, sample). Column c of position t at a site takes word
   c mod 4 of Philox(key; t 2^32 + c / 4, site) as a number in [0, 1), and is dropped below p. */

static uint64_t heti_dropout_key(const het_dropout_args *a, int64_t row) {
    uint32_t word[4];
    heti_philox(a->scalars->seed, a->scalars->step,
                HETI_CAST(uint64_t, a->view->sample_id[a->view->sequence_of[row]]), word);
    return word[0] | HETI_CAST(uint64_t, word[1]) << 32;
}

static void heti_ref_drop(const het_dropout_args *a, const float *add) {
    const float scale = 1.0f / (1.0f - a->probability);
    for (int64_t r = 0; r < a->rows; r++) {
        const int64_t row = a->view->row_begin + r;
        const uint64_t high = HETI_CAST(uint64_t, a->view->position[row]) << 32, key = heti_dropout_key(a, row);
        uint32_t word[4];
        for (int64_t c = 0; c < a->width; c++) {
            const int64_t i = r * a->width + c;
            float kept = 1.0f;
            if (a->probability > 0.0f) {
                heti_philox(key, high + HETI_CAST(uint64_t, c / 4), HETI_CAST(uint64_t, a->site), word);
                kept = heti_uniform(word[c % 4]) < a->probability ? 0.0f : scale;
            }
            a->y[i] = add != NULL ? fmaf(a->x[i], kept, add[i]) : a->x[i] * kept;
        }
    }
}

/* ---- softmax cross-entropy ---- p = exp(x - m) / l; loss += weight (log l + m - x[target]);
   x becomes (p - onehot) weight / (sum of weights).  x: logits [n][V] */

static void heti_ref_cross_entropy(const het_cross_entropy_args *a) {
    for (int64_t r = 0; r < a->rows; r++) {
        float *x = a->logits + r * a->vocab, m = -INFINITY, lane[16] = { 0 }, l, at_target;
        const int64_t target = a->target[r];
        if (a->row_loss != NULL) a->row_loss[r] = 0.0f;
        if (target < 0) { /* not counted */
            for (int64_t i = 0; i < a->vocab && a->gradient; i++) x[i] = 0.0f;
            continue;
        }
        for (int64_t i = 0; i < a->vocab; i++) m = m > x[i] ? m : x[i];
        for (int64_t i = 0; i < a->vocab; i++) lane[i % 16] += heti_expf(x[i] - m);
        l = heti_ref_join(lane);
        const double loss = heti_log(HETI_CAST(double, l)) + HETI_CAST(double, m) - HETI_CAST(double, x[target]);
        heti_sum_add(a->loss, heti_round(HETI_CAST(double, a->weight[r]) * loss));
        if (a->row_loss != NULL) a->row_loss[r] = HETI_CAST(float, loss);
        if (!a->gradient) continue;
        const float scale = a->weight[r] * a->scalars->inverse_weight, inverse = 1.0f / l;
        at_target = heti_round_f(heti_expf(x[target] - m) * inverse) - 1.0f;
        for (int64_t i = 0; i < a->vocab; i++) x[i] = heti_round_f(heti_expf(x[i] - m) * inverse) * scale;
        x[target] = at_target * scale;
    }
}

/* ---- elements: y += x, y *= factor, a term of a gradient, the gradient's norm, AdamW ---- */

static void heti_ref_accumulate(const het_accumulate_args *a) {
    for (int64_t i = 0; i < a->count && heti_ref_trains(a->gradient); i++)
        heti_ref_end(a->gradient, a->offset + i, heti_ref_begin(a->gradient, a->offset + i) + a->term[i]);
}

static float heti_ref_gradient(const het_gradient *g, int64_t i) {
    return g->exact ? HETI_CAST(float, HETI_CAST(const double *, g->sum)[i]) : HETI_CAST(const float *, g->sum)[i];
}

/* sum += g^2: blocks of 1,024 in double, 16 lanes each joined by the tree, in no order (>>sum). */
static void heti_ref_sum_squares(const het_sum_squares_args *a) {
    for (int64_t block = 0; block < a->count && heti_ref_trains(a->gradient); block += 1024) {
        double lane[16] = { 0 };
        for (int64_t i = block; i < heti_min(block + 1024, a->count); i++) {
            const double g = HETI_CAST(double, heti_ref_gradient(a->gradient, i));
            lane[i % 16] = fma(g, g, lane[i % 16]);
        }
        for (int half = 8; half > 0; half /= 2)
            for (int i = 0; i < half; i++) lane[i] += lane[i + half];
        heti_sum_add(a->sum, lane[0]);
    }
}

/* g = clip gradient; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; w -= rate decay w;
   w -= rate (m / c1) / (sqrt(v / c2) + epsilon), c1 = 1 - beta1^t, c2 = 1 - beta2^t. */
static void heti_ref_adamw(const het_adamw_args *a) {
    const het_step_scalars *s = a->scalars;
    const float shrink = s->learning_rate * a->decay;
    if (s->verdict != HET_VERDICT_ACCEPT || !heti_ref_trains(a->gradient)) return;
    for (int64_t i = 0; i < a->count; i++) {
        const float g = heti_round_f(heti_ref_gradient(a->gradient, i) * s->clip_scale);
        a->m[i] = fmaf(a->beta1, a->m[i], heti_round_f((1.0f - a->beta1) * g));
        a->v[i] = fmaf(a->beta2, a->v[i], heti_round_f((1.0f - a->beta2) * heti_round_f(g * g)));
        a->w[i] = fmaf(-shrink, a->w[i], a->w[i]);
        a->w[i] = fmaf(-s->learning_rate,
                       (a->m[i] / s->bias_correction1) / (sqrtf(a->v[i] / s->bias_correction2) + a->epsilon), a->w[i]);
    }
}

/* Rows [begin, end) of het_muon_args. */
static HETI_INLINE void heti_muon_rows(const het_muon_args *a, int update, int64_t begin, int64_t end) {
    const het_step_scalars *s = a->scalars;
    const float lr = heti_round_f(s->learning_rate * a->rate), step = lr * a->size, shrink = lr * a->decay;
    if (!heti_ref_trains(a->gradient) || s->verdict != HET_VERDICT_ACCEPT) return;
    for (int64_t r = begin; r < end; r++)
        for (int64_t i = r * a->columns; i < (r + 1) * a->columns; i++) {
            float *x = a->x + (a->rows > a->columns ? (i - r * a->columns) * a->rows + r : i);
            if (update) a->w[i] = fmaf(-step, *x, fmaf(-shrink, a->w[i], a->w[i]));
            if (update) continue;
            const float clipped = heti_round_f(heti_ref_gradient(a->gradient, i) * s->clip_scale);
            a->m[i] = fmaf(a->beta, a->m[i], heti_round_f((1.0f - a->beta) * clipped));
            *x = fmaf(a->beta, a->m[i], heti_round_f((1.0f - a->beta) * clipped));
        }
}

/* w - x is exact where neither is twice the other (Sterbenz), and so is x + e: the optimizer's own
   trajectory comes back. */
static void heti_ref_feedback(const het_feedback_args *a) {
    for (int64_t i = 0; i < a->count && a->scalars->verdict == HET_VERDICT_ACCEPT; i++) {
        const float plain = a->begins ? a->w[i] + a->e[i] : a->w[i], u = a->e[i] - plain;
        a->w[i] = a->begins ? plain : fmaf(-a->factor, u, plain);
        if (!a->begins && a->last != NULL) {
            a->w[i] = fmaf(-a->change, u - a->last[i], a->w[i]);
            a->last[i] = u;
        }
        a->e[i] = a->begins ? plain : plain - a->w[i];
    }
}

static float heti_scale_factor(const het_elements_args *a) {
    return a->squares == NULL ? a->factor :
        HETI_CAST(float, HETI_CAST(double, a->factor) / (sqrt(heti_sum_value(a->squares)) + 1e-7));
}

/* ---- normal numbers, by the method of Box and Muller (1958) ----
   Group g of 32 takes the words w of Philox counters 8 g .. 8 g + 7. With u = (w_i / 2^8 + 1) /
   2^24 and the angle t = w_16+i / 2^32 turns, i < 16: z_i = sqrt(-2 log u) cos t, z_16+i the same
   with sin t. Within a quarter turn around a multiple of one, Taylor's polynomials are exact to
   3e-8. */

/* Of a group u, the angle's distance from the nearest quarter turn, in quarters, and its number. */
static void heti_normal_words(const het_normal_args *a, int64_t group, float u[16], float angle[16],
                              uint32_t quarter[16]) {
    uint32_t word[32];
    for (int64_t i = 0; i < 8; i++)
        heti_philox(a->seed, HETI_CAST(uint64_t, a->first / 4 + 8 * group + i), a->stream, word + 4 * i);
    for (int i = 0; i < 16; i++) {
        const uint32_t turn = word[16 + i] + 0x20000000u; /* turn + 1/8: its upper bits number the nearest quarter */
        u[i] = HETI_CAST(float, (word[i] >> 8) + 1u) * 5.9604644775390625e-8f;
        angle[i] = HETI_CAST(float, HETI_CAST(int32_t, (turn & 0x3fffffffu) >> 6) - 0x800000) * 5.9604644775390625e-8f;
        quarter[i] = turn >> 30;
    }
}

/* z0 = cos(x + q pi/2), z1 = sin(x + q pi/2) from c = cos x and s = sin x. */
static void heti_normal_turn(uint32_t quarter, float c, float s, float *z0, float *z1) {
    *z0 = quarter % 2 != 0 ? s : c;
    *z1 = quarter % 2 != 0 ? c : s;
    if (quarter == 1 || quarter == 2) *z0 = -*z0;
    if (quarter >= 2) *z1 = -*z1;
}

static void heti_ref_normal(const het_normal_args *a) {
    for (int64_t i = 0; i < a->count; i += 32) {
        uint32_t quarter[16];
        float u[16], angle[16], z[32];
        heti_normal_words(a, i / 32, u, angle, quarter);
        for (int j = 0; j < 16; j++) {
            const float radius = heti_round_f(a->std * sqrtf(heti_round_f(-2.0f * heti_logf(u[j]))));
            const float x = heti_round_f(1.57079632679489662f * angle[j]), square = heti_round_f(x * x);
            float s = fmaf(square, 1.0f / 362880.0f, -1.0f / 5040.0f);
            float c = fmaf(square, 1.0f / 40320.0f, -1.0f / 720.0f);
            s = fmaf(square, fmaf(square, s, 1.0f / 120.0f), -1.0f / 6.0f);
            s = radius * fmaf(heti_round_f(x * square), s, x);
            c = radius * fmaf(square, fmaf(square, fmaf(square, c, 1.0f / 24.0f), -0.5f), 1.0f);
            heti_normal_turn(quarter[j], c, s, &z[j], &z[16 + j]);
        }
        HETI_COPY(a->to + i, z, heti_min(32, a->count - i));
    }
}

/* ---- what devices in host memory share: state, memory, verdict ---- */

typedef struct heti_host { het_allocator allocator; } heti_host;

static het_result heti_host_check(const het_device_config *config) {
    if (config->threads >= 1 && config->ordinal == 0) return HET_OK;
    return heti_fail(config->error, HET_ERR_INVALID, "%i threads, ordinal %i; it takes at least 1, and has 0 alone",
                     config->threads, config->ordinal);
}

static het_result heti_host_create(const het_device_config *config, void **self) {
    HETI_TRY(heti_host_check(config));
    heti_host *host = HETI_CAST(heti_host *, heti_alloc(config->allocator, sizeof *host));
    if (host == NULL) return HET_ERR_OOM;
    host->allocator = *config->allocator;
    *self = host;
    return HET_OK;
}

static void heti_host_destroy(void *self) {
    heti_free(&HETI_CAST(heti_host *, self)->allocator, self, sizeof(heti_host));
}

static const char *heti_host_last_error(void *self) {
    (void)self;
    return NULL;
}
static void *heti_host_alloc(void *self, size_t size) {
    return heti_alloc(&HETI_CAST(heti_host *, self)->allocator, size);
}
static void heti_host_free(void *self, void *pointer, size_t size) {
    heti_free(&HETI_CAST(heti_host *, self)->allocator, pointer, size);
}

static void heti_host_copy(const het_copy_args *a) {
    char *to = HETI_CAST(char *, a->to);
    const char *from = HETI_CAST(const char *, a->from);
    for (size_t i = 0; a->size > 0 && (i == 0 || i < a->rows); i++)
        memmove(to + i * a->to_step, from + i * a->from_step, a->size);
}

static int heti_is_finite(double x) { return x - x == 0.0; }

/* Some term is not smaller than 2^(exponent + 6), or the exponent is not known yet. A parameter
   without terms says nothing. */
static int heti_outgrown(uint32_t maximum, int32_t exponent) {
    float value;
    memcpy(&value, &maximum, sizeof value);
    if (maximum == 0) return 0;
    return exponent == HETRAIN_NO_EXPONENT || HETI_CAST(double, value) >= ldexp(1.0, exponent + 6);
}

/* Terms first: where one has outgrown its grid the sums, and so the squares, may depend on the
   layout and are not looked at. */
static void heti_host_verdict(const het_verdict_args *a) {
    het_step_scalars *s = a->scalars;
    const double loss = heti_sum_value(a->loss);
    int repeat = 0, finite = heti_is_finite(loss);
    for (int64_t p = 0; p < a->parameters; p++) {
        if (a->maximum[p] >= 0x7f800000u) finite = 0;
        if (a->exact && heti_outgrown(a->maximum[p], a->exponent[p])) repeat = 1;
    }
    s->gradient_norm = sqrt(heti_sum_value(a->squares));
    s->clip_scale = 1.0f;
    s->verdict = HET_VERDICT_ACCEPT;
    if (!finite) s->verdict = HET_VERDICT_NOT_FINITE;
    else if (repeat) s->verdict = HET_VERDICT_REPEAT;
    else if (!heti_is_finite(s->gradient_norm)) s->verdict = HET_VERDICT_NOT_FINITE;
    else if (s->spike_norm > 0.0 && (loss > s->spike_loss || s->gradient_norm > s->spike_norm))
        s->verdict = HET_VERDICT_SPIKE;
    else if (s->maximum_norm > 0.0 && s->gradient_norm > s->maximum_norm)
        s->clip_scale = HETI_CAST(float, s->maximum_norm / s->gradient_norm);
}

/* ---- the table: memory is the host's, and an op has run when its call returns ---- */

static void heti_ref_elements(const het_elements_args *a, het_op_kind kind) {
    const float factor = kind == HET_OP_ADD ? 1.0f : heti_scale_factor(a);
    for (int64_t i = 0; i < a->count; i++) a->y[i] = kind == HET_OP_ADD ? a->y[i] + a->x[i] : a->y[i] * factor;
}

/* Blocks [begin, end) of rows x blocks. */
static HETI_INLINE void heti_expand(const het_expand_args *a, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        const het_int8_block *block = a->from + i;
        const int64_t row = i / a->blocks, from = a->first + row * a->step,
                      base = (from / HETRAIN_INT8_BLOCK + i % a->blocks) * HETRAIN_INT8_BLOCK,
                      low = heti_max(from, base), high = heti_min(from + a->width, base + HETRAIN_INT8_BLOCK);
        float *y = a->y + row * a->width;
        for (int64_t j = low; j < high; j++) y[j - from] = block->scale * HETI_CAST(float, block->q[j - base]);
    }
}

static het_result heti_ref_run(void *self, het_queue *queue, const het_op *op) {
    (void)self, (void)queue;
    switch (op->kind) {
    case HET_OP_NORM_FORWARD: heti_ref_norm_forward(&op->u.norm); break;
    case HET_OP_NORM_BACKWARD_INPUT: heti_ref_norm_backward_input(&op->u.norm); break;
    case HET_OP_NORM_BACKWARD_WEIGHT: heti_ref_norm_backward_weight(&op->u.norm); break;
    case HET_OP_LINEAR_FORWARD: heti_ref_linear_forward(&op->u.linear); break;
    case HET_OP_LINEAR_BACKWARD_INPUT: heti_ref_linear_backward_input(&op->u.linear); break;
    case HET_OP_LINEAR_BACKWARD_WEIGHT: heti_ref_linear_backward_weight(&op->u.linear); break;
    case HET_OP_ROTARY_FORWARD: heti_ref_rotate(&op->u.rotary, 1.0f); break;
    case HET_OP_ROTARY_BACKWARD: heti_ref_rotate(&op->u.rotary, -1.0f); break;
    case HET_OP_ATTENTION_FORWARD: heti_ref_attention(&op->u.attention, 0); break;
    case HET_OP_ATTENTION_BACKWARD: heti_ref_attention(&op->u.attention, 1); break;
    case HET_OP_ACTIVATION_FORWARD: heti_ref_activation_forward(&op->u.activation); break;
    case HET_OP_ACTIVATION_BACKWARD: heti_ref_activation_backward(&op->u.activation); break;
    case HET_OP_EMBEDDING_FORWARD: heti_ref_embedding_forward(&op->u.embedding); break;
    case HET_OP_EMBEDDING_BACKWARD_WEIGHT: heti_ref_embedding_backward_weight(&op->u.embedding); break;
    case HET_OP_DROPOUT_FORWARD: heti_ref_drop(&op->u.dropout, op->u.dropout.a); break;
    case HET_OP_DROPOUT_BACKWARD: heti_ref_drop(&op->u.dropout, NULL); break;
    case HET_OP_CROSS_ENTROPY: heti_ref_cross_entropy(&op->u.cross_entropy); break;
    case HET_OP_ACCUMULATE: heti_ref_accumulate(&op->u.accumulate); break;
    case HET_OP_SUM_SQUARES: heti_ref_sum_squares(&op->u.sum_squares); break;
    case HET_OP_VERDICT: heti_host_verdict(&op->u.verdict); break;
    case HET_OP_ADAMW: heti_ref_adamw(&op->u.adamw); break;
    case HET_OP_MUON_MOMENTUM: heti_muon_rows(&op->u.muon, 0, 0, op->u.muon.rows); break;
    case HET_OP_MUON_UPDATE: heti_muon_rows(&op->u.muon, 1, 0, op->u.muon.rows); break;
    case HET_OP_FEEDBACK: heti_ref_feedback(&op->u.feedback); break;
    case HET_OP_NORMAL: heti_ref_normal(&op->u.normal); break;
    case HET_OP_ADD:
    case HET_OP_SCALE: heti_ref_elements(&op->u.elements, op->kind); break;
    case HET_OP_EXPAND: heti_expand(&op->u.expand, 0, op->u.expand.rows * op->u.expand.blocks); break;
    case HET_OP_COPY_IN: case HET_OP_COPY_OUT: case HET_OP_COPY: heti_host_copy(&op->u.copy); break;
    case HET_OP_CLEAR: memset(op->u.copy.to, 0, op->u.copy.size); break;
    default: return HET_ERR_UNSUPPORTED;
    }
    return HET_OK;
}

/* Ops that do what several others do, and rounding, which products do here themselves. */
static int heti_joins(const het_op *op) {
    switch (op->kind) {
    case HET_OP_LINEAR_ACTIVATION_FORWARD: case HET_OP_LINEAR_ACTIVATION_BACKWARD:
    case HET_OP_NORM_BACKWARD: case HET_OP_ROUND: return 1;
    case HET_OP_LINEAR_FORWARD: return op->u.linear.part[0].add != NULL;
    case HET_OP_SUM_SQUARES: return op->u.sum_squares.next != NULL;
    case HET_OP_ADAMW: return op->u.adamw.next != NULL;
    default: return 0;
    }
}

/* Each op by itself, and sums are only added to. */
static int32_t heti_ref_supports(void *self, const het_op *op) {
    const het_gradient *dw = op->kind == HET_OP_LINEAR_BACKWARD_WEIGHT ? op->u.linear.part[0].dw : NULL;
    (void)self;
    return !((dw != NULL && dw->beta == 0) || op->bf16 || heti_joins(op));
}

static size_t heti_ref_workspace(void *self, const het_op *op) {
    (void)self, (void)op;
    return 0;
}

static const het_device_iface heti_ref_iface = {
    HETRAIN_DEVICE_VERSION, "reference", 1, heti_host_create, heti_host_destroy, heti_host_last_error,
    heti_host_alloc, heti_host_free, heti_ref_supports, heti_ref_workspace, heti_ref_run, NULL, NULL
};

HETRAIN_API const het_device_iface *het_reference_device(void) { return &heti_ref_iface; }

/* =================================================================================================
   >>devices  The null device, where the CPU device comes in, ops on any device.
   The null device has memory and copies, and other ops do nothing: for tests of schedules larger
   than any machine. Every step is accepted.
   ============================================================================================== */

static het_result heti_null_run(void *self, het_queue *queue, const het_op *op) {
    if (op->kind == HET_OP_VERDICT) {
        het_step_scalars *s = op->u.verdict.scalars;
        s->verdict = HET_VERDICT_ACCEPT;
        s->gradient_norm = 0.0;
        s->clip_scale = 1.0f;
        return HET_OK;
    }
    return op->kind >= HET_OP_COPY_IN ? heti_ref_run(self, queue, op) : HET_OK;
}

/* The first weights are the CPU's. */
static int32_t heti_null_supports(void *self, const het_op *op) {
    return op->kind != HET_OP_NORMAL && heti_ref_supports(self, op);
}

static const het_device_iface heti_null_iface = {
    HETRAIN_DEVICE_VERSION, "null", 1, heti_host_create, heti_host_destroy, heti_host_last_error,
    heti_host_alloc, heti_host_free, heti_null_supports, heti_ref_workspace, heti_null_run, NULL, NULL
};

HETRAIN_API const het_device_iface *het_null_device(void) { return &heti_null_iface; }

/* ---- the CPU device, with inner loops for its instruction sets, where hetrain_cpu.h is ---- */

#if !defined(HETRAIN_CPU) && defined(__has_include)
#if __has_include("hetrain_cpu.h")
#define HETRAIN_CPU "hetrain_cpu.h"
#endif
#endif
#if defined(HETRAIN_CPU) && !defined(HETRAIN_NO_CPU)
#ifdef __cplusplus
}
#endif
#include HETRAIN_CPU
#ifdef __cplusplus
extern "C" {
#endif
#else
HETRAIN_API const het_device_iface *het_cpu_device(void) { return &heti_ref_iface; }
#endif

/* ---- ops on any device ---- */

/* All arguments 0; bf16: HET_BF16_*. */
static het_op heti_blank_op(int kind, int32_t bf16) {
    het_op op;
    memset(&op, 0, sizeof op);
    op.kind = HETI_CAST(het_op_kind, kind);
    op.bf16 = bf16;
    return op;
}

static het_op heti_make_op(het_op_kind kind, const void *args, size_t size) {
    het_op op = heti_blank_op(HETI_CAST(int, kind), 0);
    HETRAIN_ASSERT(size <= sizeof op.u);
    memcpy(&op.u, args, size);
    return op;
}
#define HETI_OP(kind, args) heti_make_op(HET_OP_##kind, (args), sizeof *(args))

static het_result heti_run_op(const het_device *device, het_queue *queue, het_op op) {
    return device->iface->run(device->self, queue, &op);
}

static size_t heti_op_workspace(const het_device *device, het_op op) {
    return device->iface->workspace(device->self, &op);
}

static int heti_supports(const het_device *device, het_op op) {
    return device->iface->supports(device->self, &op) != 0;
}

/* =================================================================================================
   >>model  Descriptions of models: defaults, checks, names, presets.

   One table knows every setting of het_model_desc: its name, kind and range. Defaults, checks,
   "key=value" text and JSON go through it; a preset is a line of "key=value" text. Another one, of
   the same rows, knows the numbers of het_desc: defaults, ranges, what processes must agree on.
   ============================================================================================== */

typedef enum heti_kind { HETI_INTEGER, HETI_UNSIGNED, HETI_FLOAT, HETI_DOUBLE, HETI_ENUM, HETI_CHOICE, HETI_NORM,
                        HETI_ACTIVATION, HETI_POSITION } heti_kind;

typedef struct heti_field {
    const char *name;
    heti_kind kind;
    size_t offset;
    double least, most;    /* of numbers */
    int zero;              /* 0 is a value, not "the default" */
    double fallback[5];    /* what 0 stands for; 0: itself, or what follows from others. Of a model by family:
                              gpt2, llama, qwen2, qwen3, neox */
    int agreed;            /* of het_desc: the same in all processes */
} heti_field;

#define HETI_LARGEST 2147483647.0
#define HETI_MODEL(kind, field, least, most, zero, ...) \
    { #field, kind, offsetof(het_model_desc, field), least, most, zero, { __VA_ARGS__ }, 0 }
#define HETI_SIZE(field, ...) HETI_MODEL(HETI_INTEGER, field, 1, HETI_LARGEST, 0, __VA_ARGS__)
#define HETI_REAL(field, least, most, zero, ...) HETI_MODEL(HETI_FLOAT, field, least, most, zero, __VA_ARGS__)
#define HETI_WORD(kind, field, ...) HETI_MODEL(kind, field, 0, 0, 0, __VA_ARGS__)
#define HETI_ALL(value) value, value, value, value, value
#define HETI_NEAREST(value) HETI_CAST(double, value##f) /* whatever way the caller rounds */
static const heti_field heti_fields[] = {
    HETI_MODEL(HETI_INTEGER, layers, 1, 65536, 0, HETI_ALL(4)), HETI_SIZE(width, HETI_ALL(128)),
    HETI_SIZE(heads, 0), HETI_SIZE(kv_heads, 0), HETI_SIZE(head_size, 0), HETI_SIZE(mlp_width, 0),
    HETI_SIZE(vocab, HETI_ALL(256)), HETI_SIZE(context, HETI_ALL(128)),
    HETI_WORD(HETI_NORM, norm, HET_LAYERNORM, HET_RMSNORM, HET_RMSNORM, HET_RMSNORM, HET_LAYERNORM),
    HETI_WORD(HETI_ACTIVATION, activation, HET_GELU_TANH, HET_SWIGLU, HET_SWIGLU, HET_SWIGLU, HET_GELU_ERF),
    HETI_WORD(HETI_POSITION, position, HET_LEARNED, HET_ROTARY, HET_ROTARY, HET_ROTARY, HET_ROTARY),
    HETI_WORD(HETI_CHOICE, tied, HET_YES, HET_NO, HET_NO, HET_NO, HET_NO),
    HETI_WORD(HETI_CHOICE, qkv_bias, HET_YES, HET_NO, HET_YES, HET_NO, HET_YES),
    HETI_WORD(HETI_CHOICE, linear_bias, HET_YES, HET_NO, HET_NO, HET_NO, HET_YES),
    HETI_WORD(HETI_CHOICE, qk_norm, HET_NO, HET_NO, HET_NO, HET_YES, HET_NO),
    HETI_WORD(HETI_CHOICE, parallel, HET_NO, HET_NO, HET_NO, HET_NO, HET_YES),
    HETI_WORD(HETI_CHOICE, causal, HETI_ALL(HET_YES)), HETI_MODEL(HETI_INTEGER, window, 0, HETI_LARGEST, 1, 0),
    HETI_REAL(norm_epsilon, 1e-30, 1, 0, HETI_NEAREST(1e-5), HETI_NEAREST(1e-5), HETI_NEAREST(1e-6),
              HETI_NEAREST(1e-6), HETI_NEAREST(1e-5)),
    HETI_REAL(rotary_theta, 1, 1e30, 0, 1e4, 1e4, 1e6, 1e6, 1e4),
    HETI_REAL(rotary_fraction, 1e-6, 1, 0, 1, 1, 1, 1, 0.25), HETI_REAL(rotary_factor, 1, 1e9, 1, 0),
    HETI_REAL(rotary_low, 1e-6, 1e9, 0, HETI_ALL(1)), HETI_REAL(rotary_high, 1e-6, 1e9, 0, HETI_ALL(4)),
    HETI_SIZE(rotary_original, HETI_ALL(8192)), HETI_REAL(init_std, 1e-30, 1e6, 0, HETI_ALL(HETI_NEAREST(0.02))),
    HETI_REAL(dropout, 0, 0.999, 1, 0), HETI_MODEL(HETI_INTEGER, lora_rank, 0, 65536, 1, 0),
    HETI_REAL(lora_alpha, 1e-6, 1e9, 1, 0), HETI_MODEL(HETI_INTEGER, lora_targets, 0, HET_LORA_ALL, 1, 0),
    HETI_MODEL(HETI_INTEGER, local_loss, 0, 65536, 1, 0)
};
#undef HETI_MODEL
#undef HETI_SIZE
#undef HETI_REAL
#undef HETI_WORD
#undef HETI_ALL
#undef HETI_NEAREST
#define HETI_FIELDS HETI_COUNT(heti_fields)

/* Words of the enumerations; the first word of a value is the one written. */
typedef struct heti_word { heti_kind kind; int32_t value; const char *name; } heti_word;
static const heti_word heti_words[] = {
    { HETI_CHOICE, HET_YES, "yes" }, { HETI_CHOICE, HET_NO, "no" },
    { HETI_CHOICE, HET_YES, "true" }, { HETI_CHOICE, HET_NO, "false" },
    { HETI_NORM, HET_LAYERNORM, "layernorm" }, { HETI_NORM, HET_RMSNORM, "rmsnorm" },
    { HETI_ACTIVATION, HET_GELU_TANH, "gelu_tanh" }, { HETI_ACTIVATION, HET_GELU_ERF, "gelu_erf" },
    { HETI_ACTIVATION, HET_SWIGLU, "swiglu" },
    { HETI_POSITION, HET_LEARNED, "learned" }, { HETI_POSITION, HET_ROTARY, "rotary" },
    { HETI_POSITION, HET_NO_POSITION, "none" }
};
#define HETI_WORDS HETI_COUNT(heti_words)

static int heti_field_is_real(const heti_field *f) { return f->kind == HETI_FLOAT || f->kind == HETI_DOUBLE; }

/* A setting: its number, also as `real`, and its word; NULL: it has none. Enumerations go through
   int32_t, because a hostile value need not be one of theirs. */
static het_setting heti_field_get(const void *desc, const heti_field *f) {
    const char *at = HETI_CAST(const char *, desc) + f->offset;
    het_setting s = HETI_ZEROS;
    int32_t word = 0;
    float narrow;
    s.name = f->name;
    s.kind = heti_field_is_real(f) ? HET_SETTING_REAL : f->kind >= HETI_CHOICE ? HET_SETTING_WORD : HET_SETTING_INTEGER;
    if (f->kind == HETI_FLOAT) { memcpy(&narrow, at, sizeof narrow); s.real = HETI_CAST(double, narrow); }
    else if (f->kind == HETI_DOUBLE) memcpy(&s.real, at, sizeof s.real);
    else if (f->kind == HETI_INTEGER || f->kind == HETI_UNSIGNED) memcpy(&s.integer, at, sizeof s.integer);
    else { memcpy(&word, at, sizeof(het_choice) < sizeof word ? sizeof(het_choice) : sizeof word); s.integer = word; }
    if (!heti_field_is_real(f)) s.real = HETI_CAST(double, s.integer);
    for (int i = 0; i < HETI_WORDS && !s.word; i++)
        if (heti_words[i].kind == f->kind && heti_words[i].value == s.integer) s.word = heti_words[i].name;
    return s;
}

static void heti_field_set(void *desc, const heti_field *f, int64_t integer, double real) {
    char *at = HETI_CAST(char *, desc) + f->offset;
    const int32_t word = HETI_CAST(int32_t, integer);
    const float narrow = HETI_CAST(float, real);
    if (f->kind == HETI_INTEGER || f->kind == HETI_UNSIGNED) memcpy(at, &integer, sizeof integer);
    else if (f->kind == HETI_FLOAT) memcpy(at, &narrow, sizeof narrow);
    else if (f->kind == HETI_DOUBLE) memcpy(at, &real, sizeof real);
    else memcpy(at, &word, sizeof(het_choice) < sizeof word ? sizeof(het_choice) : sizeof word);
}

/* One setting within its range? `raw`: 0 still stands for the default. */
static het_result heti_field_check(const void *desc, const heti_field *f, int raw, const char *where,
                                   het_error *error) {
    const het_setting s = heti_field_get(desc, f);
    const int narrow = f->kind == HETI_FLOAT; /* the float nearest to a bound is inside */
    const double least = narrow ? HETI_CAST(double, HETI_CAST(float, f->least)) : f->least,
                 most = narrow ? HETI_CAST(double, HETI_CAST(float, f->most)) : f->most;
    const int outside = !(s.real >= least && s.real <= most);
    if (((raw || f->zero) && s.real >= 0.0 && s.real <= 0.0) || f->kind == HETI_UNSIGNED) return HET_OK;
    HETI_REFUSE(s.kind == HET_SETTING_WORD && !s.word, "%s is %d, which is no value of its type", f->name, s.integer);
    HETI_REFUSE(s.kind == HET_SETTING_REAL && outside, "%s is %g, must be %g .. %g", f->name, s.real, f->least,
                f->most);
    HETI_REFUSE(s.kind == HET_SETTING_INTEGER && outside, "%s is %d, must be %d .. %d", f->name, s.integer,
                HETI_CAST(int64_t, f->least), HETI_CAST(int64_t, f->most));
    return HET_OK;
}

static het_result heti_fields_check(const void *desc, const heti_field *f, int count, int raw, const char *where,
                                    het_error *error) {
    for (int i = 0; i < count; i++) HETI_TRY(heti_field_check(desc, &f[i], raw, where, error));
    return HET_OK;
}

/* What is 0 gets its default, of a model in the family's column. NaN stays, to be refused. */
static void heti_fields_default(void *desc, const heti_field *f, int count, int column) {
    for (const heti_field *end = f + count; f < end; f++) {
        const double value = f->fallback[column];
        if (heti_field_get(desc, f).real == 0.0) heti_field_set(desc, f, HETI_CAST(int64_t, value), value);
    }
}

HETRAIN_API int het_model_get(const het_model_desc *model, int64_t number, het_setting *setting) {
    const int there = model && setting && number >= 0 && number < HETI_FIELDS;
    if (!setting) return 0;
    memset(setting, 0, sizeof *setting);
    if (there) *setting = heti_field_get(model, &heti_fields[number]);
    if (setting->kind == HET_SETTING_WORD && !setting->word) setting->word = "?";
    return there;
}

HETRAIN_API het_result het_model_set(het_model_desc *model, int64_t number, const het_setting *value,
                                     const char *where, het_error *error) {
    char list[96];
    heti_text t = heti_text_in(list, sizeof list);
    HETI_REFUSE(!model || !value || number < 0 || number >= HETI_FIELDS,
                "model or value is NULL, or there is no setting number %d", number);
    const heti_field *f = &heti_fields[number];
    het_model_desc m = *model;
    int64_t integer = value->integer;
    int found = f->kind == HETI_INTEGER || f->kind == HETI_FLOAT;
    for (int i = 0; i < HETI_WORDS && !found; i++) {
        if (heti_words[i].kind != f->kind) continue;
        heti_text_write(&t, t.length ? " %s" : "%s", heti_words[i].name);
        found = value->word && strcmp(heti_words[i].name, value->word) == 0;
        if (found) integer = heti_words[i].value;
    }
    HETI_REFUSE(!found, "%s is '%s', not one of %s", f->name, value->word, list);
    heti_field_set(&m, f, integer, value->real);
    HETI_TRY(heti_field_check(&m, f, 0, where, error));
    *model = m;
    return HET_OK;
}

/* Whether the family's files hold q, k and v as one matrix. */
static int heti_joins_qkv(const het_model_desc *m) { return m->family == HET_GPT2 || m->family == HET_NEOX; }

static int64_t heti_or(int64_t value, int64_t otherwise) {
    return value ? value : otherwise;
}

/* Fills every 0. Validates nothing: what is derived from a nonsensical width is no better. */
static void heti_model_defaults(het_model_desc *m) {
    if (m->family == HET_FAMILY_DEFAULT) m->family = HET_GPT2;
    heti_fields_default(m, heti_fields, HETI_FIELDS, HETI_CAST(int, m->family) - HET_GPT2);
    const int64_t width = heti_max(0, heti_min(m->width, INT32_MAX));
    m->heads = heti_or(m->heads, heti_max(1, width / 32));
    m->kv_heads = heti_or(m->kv_heads, m->heads);
    m->head_size = heti_or(m->head_size, width / heti_max(1, m->heads));
    m->mlp_width = heti_or(m->mlp_width, m->activation == HET_SWIGLU ? (8 * width + 95) / 96 * 32 : 4 * width);
    if (m->lora_rank == 0) return;
    if (m->lora_alpha == 0.0f) m->lora_alpha = HETI_CAST(float, m->lora_rank);
    m->lora_targets = heti_or(m->lora_targets, HET_LORA_Q + HET_LORA_V + (heti_joins_qkv(m) ? HET_LORA_K : 0));
    if (m->activation != HET_SWIGLU) m->lora_targets &= ~HETI_CAST(int64_t, HET_LORA_GATE);
}

/* Columns of a head that rotate: int(E fraction) as transformers has it (the small term undoes
   fraction's rounding to float). */
HETI_UNUSED static int64_t heti_rotary_size(const het_model_desc *m) {
    const double size = HETI_CAST(double, m->head_size), fraction = HETI_CAST(double, m->rotary_fraction);
    return m->position == HET_ROTARY ? HETI_CAST(int64_t, floor(fma(size, fraction, size * 1e-7))) : 0;
}

/* inverse[i] = theta^(-2i / rotary), i < rotary / 2, in double and rounded once. With a factor the
   "llama3" scaling of Llama 3.1 follows: wavelengths above original / low turn `factor` times
   slower, those below original / high are left alone, between them
   f = (1 - s) f / factor + s f with s = (original / wavelength - low) / (high - low). */
HETI_UNUSED static void heti_rotary_frequencies(const het_model_desc *m, float *inverse) {
    const int64_t rotary = heti_rotary_size(m);
    const double factor = HETI_CAST(double, m->rotary_factor), low = HETI_CAST(double, m->rotary_low),
                 high = HETI_CAST(double, m->rotary_high);
    for (int64_t i = 0; i < rotary / 2; i++) {
        double f = heti_pow(HETI_CAST(double, m->rotary_theta), -HETI_CAST(double, 2 * i) / HETI_CAST(double, rotary));
        if (factor > 0.0) {
            /* original / wavelength */
            const double turns = HETI_CAST(double, m->rotary_original) * f / 6.283185307179586;
            if (turns < low) f = f / factor;
            else if (turns <= high) {
                const double s = (turns - low) / (high - low);
                f = fma(s, f, (1.0 - s) * f / factor);
            }
        }
        inverse[i] = HETI_CAST(float, f);
    }
}

/* How many local heads a model has. */
static int64_t heti_local_heads(const het_model_desc *m) {
    return m->local_loss > 0 ? (m->layers - 1) / m->local_loss : 0;
}

/* An upper bound of the parameters, all sizes in 1 .. 2^31 - 1: L (2 D (H + K) E + 3 D F) + (2 V +
   T) D, and (V + 2) D a local head, must stay below 2^48, the largest size a safetensors header may
   name, and must fit into size_t. Doubles are exact below 2^53. */
static int heti_model_fits(const het_model_desc *m) {
    const double heads = HETI_CAST(double, m->heads + m->kv_heads) * HETI_CAST(double, m->head_size);
    const double layer = 2.0 * heads + 3.0 * HETI_CAST(double, m->mlp_width);
    const double ends = HETI_CAST(double, 2 * m->vocab + m->context) +
        HETI_CAST(double, heti_local_heads(m)) * HETI_CAST(double, m->vocab + 2);
    const double all = (HETI_CAST(double, m->layers) * layer + ends) * HETI_CAST(double, m->width);
    return all < 281474976710656.0 && all <= HETI_CAST(double, SIZE_MAX);
}

/* A model whose defaults are filled in: every setting in its own range, then what ties them to each
   other. */
static het_result heti_model_check(const het_model_desc *m, int head_size_given, const char *where, het_error *error) {
    HETI_TRY(heti_fields_check(m, heti_fields, HETI_FIELDS, 0, where, error));
    const int64_t rotary = heti_rotary_size(m), heti_qkv = HET_LORA_Q + HET_LORA_K + HET_LORA_V;
    HETI_REFUSE(m->heads % m->kv_heads, "heads %d is not a multiple of kv_heads %d", m->heads, m->kv_heads);
    HETI_REFUSE(!head_size_given && m->width % m->heads,
                "width %d is not a multiple of heads %d, and head_size is not given", m->width, m->heads);
    HETI_REFUSE(m->lora_rank > 0 && m->lora_targets == 0, "lora_targets names no matrix of this model");
    HETI_REFUSE(m->lora_rank > 0 && m->lora_alpha <= 0.0f, "lora_alpha is 0, factors of rank %d would count nothing",
                m->lora_rank);
    HETI_REFUSE(m->lora_rank > 0 && heti_joins_qkv(m) && (m->lora_targets & heti_qkv) != 0 &&
                (m->lora_targets & heti_qkv) != heti_qkv,
                "lora_targets is %d: this family's q, k and v are one matrix, all three have factors or none",
                m->lora_targets);
    HETI_REFUSE(m->heads > INT32_MAX / m->head_size, "heads %d times head_size %d is over %i", m->heads, m->head_size,
                INT32_MAX);
    HETI_REFUSE(m->position == HET_ROTARY && (rotary < 2 || rotary % 2),
                "head_size %d times rotary_fraction %g gives %d rotary columns, must be even and at least 2",
                m->head_size, HETI_CAST(double, m->rotary_fraction), rotary);
    HETI_REFUSE(m->rotary_high <= m->rotary_low, "rotary_high %g is not above rotary_low %g",
                HETI_CAST(double, m->rotary_high), HETI_CAST(double, m->rotary_low));
    HETI_REFUSE(!heti_model_fits(m), "layers %d, width %d, mlp_width %d, vocab %d, context %d give 2^%d parameters or "
                "more", m->layers, m->width, m->mlp_width, m->vocab, m->context,
                heti_min(48, HETI_CAST(int64_t, sizeof(size_t) * 8)));
    return HET_OK;
}

static het_result heti_model_complete(het_model_desc *model, const char *where, het_error *error) {
    static const heti_field heti_family = { "family", HETI_ENUM, offsetof(het_model_desc, family), 0, 0, 0, { 0 }, 0 };
    het_model_desc m;
    int64_t family;
    HETI_REFUSE(!model, "model is NULL");
    HETI_REFUSE(model->start_canary || model->end_canary,
                "a canary of het_model_desc is not 0: clear the struct before filling it");
    family = heti_field_get(model, &heti_family).integer;
    HETI_REFUSE(family < 0 || family > HET_NEOX, "family is %d, which is no value of its type", family);
    m = *model;
    HETI_TRY(heti_fields_check(&m, heti_fields, HETI_FIELDS, 1, where, error));
    heti_model_defaults(&m);
    HETI_TRY(heti_model_check(&m, model->head_size != 0, where, error));
    *model = m;
    return HET_OK;
}

HETRAIN_API het_result het_model_complete(het_model_desc *model, het_error *error) {
    return heti_model_complete(model, "het_model_complete", error);
}

/* ---- what a matrix or vector of a model is: its name, its factors ---- */

enum { HETI_ROLE_EMBED, HETI_ROLE_POSITIONS, HETI_ROLE_ATTENTION_NORM, HETI_ROLE_Q, HETI_ROLE_K, HETI_ROLE_V,
       HETI_ROLE_Q_NORM, HETI_ROLE_K_NORM, HETI_ROLE_ATTENTION_OUT, HETI_ROLE_MLP_NORM, HETI_ROLE_GATE, HETI_ROLE_UP,
       HETI_ROLE_DOWN, HETI_ROLE_FINAL_NORM, HETI_ROLE_HEAD, HETI_ROLE_COUNT };

typedef struct heti_role {
    int64_t target;      /* its bit of het_model_desc.lora_targets; 0: it has no factors */
    const char *name[3]; /* Hugging Face's: GPT-2's, Llama's and Qwen's, NeoX's; '#' is the layer */
} heti_role;

/* Where a family has no such tensor the name is ours. .q .k .v are parts of one tensor in files. */
#define HETI_OF_LAYER(target, gpt2, llama, neox) \
    { target, { "transformer.h.#." gpt2, "model.layers.#." llama, "gpt_neox.layers.#." neox } }
static const heti_role heti_roles[HETI_ROLE_COUNT] = {
    { 0, { "transformer.wte", "model.embed_tokens", "gpt_neox.embed_in" } },
    { 0, { "transformer.wpe", "model.embed_positions", "gpt_neox.embed_positions" } },
    HETI_OF_LAYER(0, "ln_1", "input_layernorm", "input_layernorm"),
    HETI_OF_LAYER(HET_LORA_Q, "attn.c_attn.q", "self_attn.q_proj", "attention.query_key_value.q"),
    HETI_OF_LAYER(HET_LORA_K, "attn.c_attn.k", "self_attn.k_proj", "attention.query_key_value.k"),
    HETI_OF_LAYER(HET_LORA_V, "attn.c_attn.v", "self_attn.v_proj", "attention.query_key_value.v"),
    HETI_OF_LAYER(0, "attn.q_norm", "self_attn.q_norm", "attention.q_norm"),
    HETI_OF_LAYER(0, "attn.k_norm", "self_attn.k_norm", "attention.k_norm"),
    HETI_OF_LAYER(HET_LORA_O, "attn.c_proj", "self_attn.o_proj", "attention.dense"),
    HETI_OF_LAYER(0, "ln_2", "post_attention_layernorm", "post_attention_layernorm"),
    HETI_OF_LAYER(HET_LORA_GATE, "mlp.c_gate", "mlp.gate_proj", "mlp.dense_h_to_4h_gate"),
    HETI_OF_LAYER(HET_LORA_UP, "mlp.c_fc", "mlp.up_proj", "mlp.dense_h_to_4h"),
    HETI_OF_LAYER(HET_LORA_DOWN, "mlp.c_proj", "mlp.down_proj", "mlp.dense_4h_to_h"),
    { 0, { "transformer.ln_f", "model.norm", "gpt_neox.final_layer_norm" } },
    { 0, { "lm_head", "lm_head", "embed_out" } }
};
#undef HETI_OF_LAYER

static const char *heti_role_name(const het_model_desc *model, int role) {
    const int gpt2 = model->family == HET_GPT2 || model->family == HET_FAMILY_DEFAULT;
    return heti_roles[role].name[gpt2 ? 0 : model->family == HET_NEOX ? 2 : 1];
}

/* ---- het_desc ---- */

#define HETI_MOST 2147483648.0   /* keeps every product of sizes in 63 bits */
#define HETI_FLOAT_MOST 3.4028234e38
#define HETI_DESC(kind, field, fallback, least, most, agreed) \
    { #field, kind, offsetof(het_desc, field), least, most, 0, { fallback }, agreed }
#define HETI_DESC_CHOICE(field, agreed) HETI_DESC(HETI_CHOICE, field, HET_NO, 0, 0, agreed)
static const heti_field heti_desc_fields[] = {
    HETI_DESC(HETI_INTEGER, limits.max_tokens, 0, 1, HETI_MOST, 1),      /* 0: 4 contexts */
    HETI_DESC(HETI_INTEGER, limits.max_sequences, 0, 1, HETI_MOST, 1),   /* 0: max_tokens */
    HETI_DESC(HETI_INTEGER, limits.max_micro_batches, 8, 1, 1048576, 1),
    HETI_DESC(HETI_INTEGER, limits.max_slices, 1, 1, 4096, 0),
    HETI_DESC(HETI_INTEGER, granule, 0, 0, HETI_MOST, 1),
    HETI_DESC(HETI_UNSIGNED, seed, 0, 0, 0, 1),
    HETI_DESC(HETI_ENUM, dtype, HET_F32, HET_F32, HET_BF16, 1),
    HETI_DESC(HETI_ENUM, weights, HET_F32, HET_F32, HET_INT8, 0),
    HETI_DESC(HETI_ENUM, streams, HET_F32, HET_F32, HET_BF16, 1),
    HETI_DESC(HETI_ENUM, reduce, HET_REDUCE_EXACT, HET_REDUCE_EXACT, HET_REDUCE_FAST, 1),
    HETI_DESC(HETI_INTEGER, layout.device_count, 1, 1, 16384, 0),
    HETI_DESC(HETI_INTEGER, emulate.link_count, 0, 0, 1048576, 0),
    HETI_DESC(HETI_ENUM, layout.backward, HET_BACKWARD_FUSED, HET_BACKWARD_FUSED, HET_BACKWARD_DEFERRED, 0),
    HETI_DESC(HETI_ENUM, layout.shard, HET_SHARD_DEFAULT, HET_SHARD_DEFAULT, HET_SHARD_WEIGHTS, 0),
    HETI_DESC_CHOICE(layout.recompute, 0), HETI_DESC_CHOICE(inference, 0),
    HETI_DESC_CHOICE(guard.skip_bad_steps, 1), HETI_DESC_CHOICE(guard.nonfinite, 0),
    HETI_DESC_CHOICE(host.hook_whole, 0),
    HETI_DESC(HETI_DOUBLE, guard.spike, 0, 0, 1e30, 1),
    HETI_DESC(HETI_DOUBLE, layout.deadline, 30, 1e-9, 1e30, 0),
    HETI_DESC(HETI_DOUBLE, layout.stall_deadline, 600, 1e-9, 1e30, 0),
    HETI_DESC(HETI_FLOAT, optimizer.learning_rate, 6e-4, 0, HETI_FLOAT_MOST, 1),
    HETI_DESC(HETI_FLOAT, optimizer.minimum_rate, 0, 0, HETI_FLOAT_MOST, 1),
    HETI_DESC(HETI_FLOAT, optimizer.beta1, 0.9, 0, 0.99999994, 1),
    HETI_DESC(HETI_FLOAT, optimizer.beta2, 0.95, 0, 0.99999994, 1),
    HETI_DESC(HETI_FLOAT, optimizer.epsilon, 1e-8, 0, HETI_FLOAT_MOST, 1),
    HETI_DESC(HETI_FLOAT, optimizer.weight_decay, 0.1, -HETI_FLOAT_MOST, HETI_FLOAT_MOST, 1),
    HETI_DESC(HETI_FLOAT, optimizer.clip, 1, -HETI_FLOAT_MOST, HETI_FLOAT_MOST, 1),
    HETI_DESC(HETI_FLOAT, optimizer.matrix_rate, 0, 0, HETI_FLOAT_MOST, 1), /* 0: learning_rate */
    HETI_DESC(HETI_FLOAT, optimizer.momentum, 0.95, 0, 0.99999994, 1),
    HETI_DESC(HETI_FLOAT, optimizer.feedback, 0, 0, 1000, 1),
    HETI_DESC(HETI_FLOAT, optimizer.feedback_change, 0, 0, 1000, 1),
    HETI_DESC(HETI_INTEGER, optimizer.warmup_steps, 0, 0, 1e18, 1),
    HETI_DESC(HETI_INTEGER, optimizer.total_steps, 1000, 1, 1e18, 1),
    HETI_DESC(HETI_ENUM, optimizer.schedule, HET_LR_COSINE, HET_LR_COSINE, HET_LR_WSD, 1)
};
#undef HETI_DESC
#undef HETI_DESC_CHOICE
#define HETI_DESC_FIELDS HETI_COUNT(heti_desc_fields)

static void heti_desc_fallbacks(het_desc *d) { heti_fields_default(d, heti_desc_fields, HETI_DESC_FIELDS, 0); }

static het_result heti_desc_check_fields(const het_desc *d, het_error *error) {
    return heti_fields_check(d, heti_desc_fields, HETI_DESC_FIELDS, 0, "het_desc", error);
}

/* ",name=value" */
static void heti_text_field(heti_text *t, const void *desc, const heti_field *f) {
    const het_setting s = heti_field_get(desc, f);
    if (s.kind == HET_SETTING_REAL) heti_text_write(t, ",%s=%G", s.name, s.real);
    else if (s.kind == HET_SETTING_WORD) heti_text_write(t, ",%s=%s", s.name, s.word);
    else if (f->kind == HETI_UNSIGNED) heti_text_write(t, ",%s=%u", s.name, HETI_CAST(uint64_t, s.integer));
    else heti_text_write(t, ",%s=%d", s.name, s.integer);
}

/* All that processes must agree on. With units of one's own the parameters tell. */
static void heti_desc_agreed(const het_desc *d, heti_text *t) {
    het_model_desc model = d->model;
    const int complete = het_model_complete(&model, NULL) == HET_OK;
    heti_text_write(t, "family=%i", d->model.family);
    for (int i = 0; i < HETI_FIELDS && complete; i++) heti_text_field(t, &model, &heti_fields[i]);
    for (int i = 0; i < HETI_DESC_FIELDS; i++)
        if (heti_desc_fields[i].agreed) heti_text_field(t, d, &heti_desc_fields[i]);
}

/* =================================================================================================
   >>units  Units: programs, what follows from them, the three calls; embed, attention, mlp, head.

   A unit is written once, as a list of ops over values (het_program). embed, attention and mlp, at
   the end, are a page each; a unit of the user's is made of the same nodes. What nodes are is one
   table, heti_node_rules, with a row a kind. From list and table describe derives parameters,
   tensors and workspace. The forward call runs the nodes in order; backward_input runs them in
   reverse and makes the gradients of the input streams; backward_weight runs those that have
   parameters, and adds to their gradients.
   ============================================================================================== */

static int heti_yes(het_choice choice) { return choice == HET_YES; }

enum { HETI_FORWARD, HETI_BACKWARD_INPUT, HETI_BACKWARD_WEIGHT };
enum { HETI_VALUE, HETI_GRADIENT };

/* ---- building a program ---- */

/* The first reason stays. */
static void heti_require(het_program *p, int condition, const char *why) {
    if (!condition && p->result == HET_OK) p->info->why = why;
    if (!condition) p->result = HET_ERR_INVALID;
}

/* The width of a value; 1 of what is none. */
static int64_t heti_width(const het_program *p, int v) { return v >= 0 && v < p->values ? p->value[v].width : 1; }

/* Appends a node that reads `inputs` values. One too many goes to where nobody looks. */
static het_node *heti_new_node(het_program *p, het_node_kind kind, int inputs, int x0, int x1, int x2) {
    het_node *n = &p->node[p->nodes];
    memset(n, 0, sizeof *n);
    n->kind = kind;
    n->inputs = inputs;
    n->x[0] = x0;
    n->x[1] = x1;
    n->x[2] = x2;
    for (int i = 0; i < 3; i++) n->weight[i] = n->bias[i] = -1;
    for (int i = 0; i < 8; i++) n->core[i] = -1;
    for (int i = 0; i < inputs; i++) {
        heti_require(p, n->x[i] >= 0 && n->x[i] < p->values, "a node reads what is no value");
        if (p->result == HET_OK) p->value[n->x[i]].uses++;
    }
    heti_require(p, p->nodes < HETRAIN_MAX_NODES, "more nodes than HETRAIN_MAX_NODES");
    if (p->result == HET_OK) p->nodes++;
    return n;
}

/* A value that node n makes; NULL: an input stream. */
static int heti_new_value(het_program *p, het_node *n, int64_t width) {
    het_value *v = &p->value[p->values];
    heti_require(p, p->values < HETRAIN_MAX_VALUES, "more values than HETRAIN_MAX_VALUES");
    heti_require(p, width > 0, "a value of no columns");
    if (p->result != HET_OK) return -1;
    memset(v, 0, sizeof *v);
    v->width = width;
    v->node = n ? HETI_CAST(int32_t, n - p->node) : -1;
    v->in = v->out = v->factor = v->beside = -1;
    v->home[HETI_VALUE] = v->home[HETI_GRADIENT] = p->values;
    v->tensor[HETI_VALUE] = v->tensor[HETI_GRADIENT] = -1;
    if (n) n->y[n->outputs++] = p->values;
    return p->values++;
}

/* A parameter of the unit: `pattern` with '#' replaced by the layer, then `end`. A matrix decays
   and may be held in bf16, a vector (columns 1) not. */
static int heti_new_parameter(het_program *p, const char *pattern, const char *end, int64_t rows, int64_t columns,
                              het_init init, double std) {
    het_unit_info *info = p->info;
    het_parameter_desc *to = &info->parameter[info->parameters];
    heti_require(p, pattern && rows > 0, "a parameter without name or rows");
    heti_require(p, info->parameters < HETRAIN_MAX_UNIT_PARAMETERS, "more parameters than HETRAIN_MAX_UNIT_PARAMETERS");
    if (p->result != HET_OK) return -1;
    memset(to, 0, sizeof *to);
    heti_text t = heti_text_in(to->name, sizeof to->name);
    for (; *pattern; pattern++) {
        if (*pattern == '#') heti_text_write(&t, "%d", p->unit->layer);
        else heti_text_put(&t, pattern, 1);
    }
    heti_text_put(&t, end, strlen(end));
    for (int64_t i = 0; i < info->parameters; i++)
        heti_require(p, strcmp(info->parameter[i].name, to->name) != 0, "two parameters of one name");
    heti_require(p, t.length < sizeof to->name, "a parameter's name is too long");
    to->rows = rows;
    to->columns = columns;
    to->init = init;
    to->init_std = HETI_CAST(float, std);
    to->decay = to->bf16 = to->int8 = columns > 1;
    return HETI_CAST(int, info->parameters++);
}

HETRAIN_API het_program *het_program_begin(const het_unit *unit, het_unit_info *info) {
    het_program *p = info->program;
    memset(p, 0, sizeof *p);
    p->unit = unit;
    p->info = info;
    p->scratch = p->logits = -1;
    return p;
}

HETRAIN_API int het_node_input(het_program *p, int stream, int64_t width) {
    int v;
    heti_require(p, stream >= 0 && stream < p->info->in_streams && p->info->in_width[stream] == width,
                 "an input of another width, or there is no such stream");
    for (v = 0; v < p->values && p->result == HET_OK; v++)
        if (p->value[v].in == stream) return v;
    v = heti_new_value(p, NULL, width);
    if (v >= 0) p->value[v].in = stream;
    return v;
}

HETRAIN_API int het_node_embedding(het_program *p, const char *table, const char *positions) {
    const het_model_desc *m = p->unit->model;
    const double std = HETI_CAST(double, m->init_std);
    het_node *n = heti_new_node(p, HET_NODE_EMBEDDING, 0, -1, -1, -1);
    n->weight[0] = heti_new_parameter(p, table, ".weight", m->vocab, m->width, HET_INIT_NORMAL, std);
    if (positions)
        n->weight[1] = heti_new_parameter(p, positions, ".weight", m->context, m->width, HET_INIT_NORMAL, std);
    if (n->weight[1] >= 0) p->info->parameter[n->weight[1]].bf16 = p->info->parameter[n->weight[1]].int8 = 0; /* few */
    return heti_new_value(p, n, m->width);
}

HETRAIN_API int het_node_norm(het_program *p, int x, const char *name) {
    het_node *n = heti_new_node(p, HET_NODE_NORM, 1, x, -1, -1);
    n->weight[0] = heti_new_parameter(p, name, ".weight", heti_width(p, x), 1, HET_INIT_ONE, 0.0);
    if (p->unit->model->norm == HET_LAYERNORM)
        n->bias[0] = heti_new_parameter(p, name, ".bias", heti_width(p, x), 1, HET_INIT_ZERO, 0.0);
    return heti_new_value(p, n, heti_width(p, x));
}

HETRAIN_API int het_node_head_norm(het_program *p, int x, const char *name) {
    const int64_t head_size = p->unit->model->head_size;
    het_node *n = heti_new_node(p, HET_NODE_HEAD_NORM, 1, x, -1, -1);
    heti_require(p, heti_width(p, x) % head_size == 0, "heads that are normed are not whole");
    n->weight[0] = heti_new_parameter(p, name, ".weight", head_size, 1, HET_INIT_ONE, 0.0);
    return heti_new_value(p, n, heti_width(p, x));
}

/* The factors of a linear node's matrices (LoRA, arXiv 2106.09685) are more linear nodes. For a
   matrix W with factors A [r][in] and B [out][r]:  u = (alpha / r) x A^T;  y = x W^T + b + u B^T.
   A starts uniform within 1 / sqrt(in), as in PEFT (Kaiming with a = sqrt(5)), B at 0, so that the
   sum starts as the model without factors. */
enum { HETI_FACTOR_NONE, HETI_FACTOR_A, HETI_FACTOR_B };

static void heti_new_factors(het_program *p, int x, int count, const het_matrix *matrix, const int *y) {
    const int64_t r = p->unit->model->lora_rank, in = heti_width(p, x);
    het_node *a = NULL, *b;
    int i, f, to[3] = { -1, -1, -1 };
    for (i = 0; i < count; i++) {
        if (!matrix[i].low_rank || r < 1) continue;
        if (!a) a = heti_new_node(p, HET_NODE_LINEAR, 1, x, -1, -1);
        a->option = HETI_FACTOR_A;
        to[a->outputs] = y[i];
        a->weight[a->outputs] = heti_new_parameter(p, matrix[i].name, ".lora_A.weight", r, in, HET_INIT_UNIFORM,
                                                   1.0 / sqrt(HETI_CAST(double, in)));
        (void)heti_new_parameter(p, matrix[i].name, ".lora_B.weight", matrix[i].out, r, HET_INIT_ZERO, 0.0);
        f = heti_new_value(p, a, r);
        if (f < 0) return;
        p->value[f].factor = p->factors++;
        for (f = a->weight[a->outputs - 1]; f < p->info->parameters; f++) {
            het_parameter_desc *factor = &p->info->parameter[f];
            factor->adapter = factor->decay = 1;
            factor->product = 2;
            factor->rounded = 1;
            factor->bf16 = 0;
        }
    }
    for (i = 0; a && i < a->outputs; i++) {
        b = heti_new_node(p, HET_NODE_LINEAR, 1, a->y[i], -1, -1);
        b->option = HETI_FACTOR_B;
        b->weight[0] = a->weight[i] + 1;
        b->y[b->outputs++] = to[i];
    }
}

HETRAIN_API void het_node_linears(het_program *p, int x, int count, const het_matrix *matrix, int *y) {
    het_node *n = heti_new_node(p, HET_NODE_LINEAR, 1, x, -1, -1);
    heti_require(p, count >= 1 && count <= 3, "more matrices in one node than 3, or none");
    for (int i = 0; i < count; i++) {
        const het_matrix *m = &matrix[i];
        const int w = heti_new_parameter(p, m->name, ".weight", m->out, heti_width(p, x), HET_INIT_NORMAL,
                                         HETI_CAST(double, m->init_std));
        if (w >= 0) p->info->parameter[w].product = 2;
        if (w >= 0) n->weight[i] = w;
        if (w >= 0 && m->bias) n->bias[i] = heti_new_parameter(p, m->name, ".bias", m->out, 1, HET_INIT_ZERO, 0.0);
        for (int f = w; w >= 0 && f < p->info->parameters; f++) p->info->parameter[f].rounded = 1;
        y[i] = heti_new_value(p, n, m->out);
        /* factors not counted */
        p->info->flops_forward += 2.0 * HETI_CAST(double, m->out) * HETI_CAST(double, heti_width(p, x));
    }
    if (p->result == HET_OK) heti_new_factors(p, x, count, matrix, y);
}

HETRAIN_API int het_node_linear(het_program *p, int x, const char *name, int64_t out, float init_std) {
    const het_matrix matrix = { name, out, 0, init_std, 0 };
    int y;
    het_node_linears(p, x, 1, &matrix, &y);
    return y;
}

HETRAIN_API int het_node_rotary(het_program *p, int x) {
    const het_model_desc *m = p->unit->model;
    heti_require(p, m->position == HET_ROTARY && heti_width(p, x) % m->head_size == 0,
                 "a rotation of what are no whole heads, or of a model without");
    return heti_new_value(p, heti_new_node(p, HET_NODE_ROTARY, 1, x, -1, -1), heti_width(p, x));
}

HETRAIN_API int het_node_attention(het_program *p, int q, int k, int v) {
    const int64_t head_size = p->unit->model->head_size, width = heti_width(p, k);
    heti_require(p, heti_width(p, v) == width && width % head_size == 0 && heti_width(p, q) % width == 0,
                 "queries, keys and values whose widths do not fit together");
    return heti_new_value(p, heti_new_node(p, HET_NODE_ATTENTION, 3, q, k, v), heti_width(p, q));
}

HETRAIN_API int het_node_biased_attention(het_program *p, int q, int k, int v, int bias, const int32_t *relation) {
    const int64_t heads = heti_max(1, heti_width(p, q) / p->unit->model->head_size), context = p->unit->model->context;
    const int y = het_node_attention(p, q, k, v);
    het_node *n = y < 0 ? NULL : &p->node[p->value[y].node];
    heti_require(p, n && bias >= 0 && bias < y && relation && heti_width(p, bias) % heads == 0,
                 "attention's bias does not fit its heads, or there is no relation");
    for (int64_t i = 0; p->result == HET_OK && i < context * context; i++)
        heti_require(p, relation[i] >= 0 && relation[i] < heti_width(p, bias) / heads, "a relation that bias has not");
    if (p->result != HET_OK) return -1;
    n->x[n->inputs++] = bias;
    n->relation = relation;
    p->value[bias].uses++;
    return y;
}

HETRAIN_API int het_node_activation(het_program *p, het_activation kind, int a, int b) {
    const int gated = kind == HET_SWIGLU;
    het_node *n = heti_new_node(p, HET_NODE_ACTIVATION, 1 + gated, a, b, -1);
    heti_require(p, kind >= HET_GELU_TANH && kind <= HET_SWIGLU, "no such activation");
    heti_require(p, !gated || heti_width(p, a) == heti_width(p, b), "a gate of another width");
    n->option = HETI_CAST(int32_t, kind);
    return heti_new_value(p, n, heti_width(p, a));
}

HETRAIN_API int het_node_residual(het_program *p, int x, int y) {
    het_node *n = heti_new_node(p, HET_NODE_RESIDUAL, x < 0 ? 1 : 2, y, x, -1);
    heti_require(p, p->dropouts < 4, "more than 4 dropouts");
    heti_require(p, x < 0 || heti_width(p, x) == heti_width(p, y), "a sum of two widths");
    n->option = p->dropouts++;
    return heti_new_value(p, n, heti_width(p, y));
}

/* What is a stream already goes out as a copy; behind a loss only streams do, as they are. */
HETRAIN_API void het_node_output(het_program *p, int x) {
    het_unit_info *info = p->info;
    heti_require(p, x >= 0 && x < p->values && info->out_streams < HETRAIN_MAX_STREAMS,
                 "an output that is no value, or is one too many");
    heti_require(p, p->logits < 0 || (p->result == HET_OK && p->value[x].in == info->out_streams),
                 "outputs behind a loss that are not its inputs");
    if (p->result == HET_OK && p->logits < 0 && (p->value[x].in >= 0 || p->value[x].out >= 0))
        x = heti_new_value(p, heti_new_node(p, HET_NODE_COPY, 1, x, -1, -1), p->value[x].width);
    if (p->result != HET_OK) return;
    if (p->logits < 0) p->value[x].out = HETI_CAST(int32_t, info->out_streams);
    info->out_width[info->out_streams++] = p->value[x].width;
}

HETRAIN_API void het_node_loss(het_program *p, int x) {
    (void)heti_new_node(p, HET_NODE_LOSS, 1, x, -1, -1);
    heti_require(p, p->logits < 0 && p->info->out_streams == 0 && heti_width(p, x) == p->unit->model->vocab,
                 "a second loss, one behind outputs, or logits that are not as wide as the vocabulary");
    p->logits = x;
    p->info->is_loss = 1;
}

/* ---- a node's op ---- */

/* Floats of memory from row to row of a stream that is so wide. */
static int64_t heti_stream_floats(const het_unit_info *info, int64_t width) {
    return info->streams == HET_BF16 ? width / 2 : width;
}

/* Whether a value (or its gradient) is bf16, as the unit's values are, or its streams. */
static int heti_is_bf16(const het_unit_info *info, int value, int which) {
    const het_value *home = &info->program->value[info->program->value[value].home[which]];
    return info->values == HET_BF16 && (info->streams == HET_BF16 || (home->in < 0 && home->out < 0));
}

/* Floats of memory from row to row of a value. */
static int64_t heti_row_floats(const het_unit_info *info, int value, int which) {
    const het_value *home = &info->program->value[info->program->value[value].home[which]];
    const int64_t width = home->pitch > 0 ? home->pitch : info->program->value[value].own;
    return heti_is_bf16(info, value, which) ? width / 2 : width;
}

/* The rows of a value: the rank's or, where it is divided, its team's. */
static const het_view *heti_view_of(const het_unit_call *c, int value) {
    return c->team && c->info->program->value[value].divided ? c->team->view : c->view;
}

static int64_t heti_view_rows(const het_view *view) { return view->row_end - view->row_begin; }

/* Floats of memory of a value, or of its gradient, that lies alone. */
static int64_t heti_value_floats(const het_unit_call *c, int value, int which) {
    return heti_view_rows(heti_view_of(c, value)) * heti_row_floats(c->info, value, which);
}

/* The tensor of a value or of its gradient, or NULL. */
static float *heti_tensor_of(const het_unit_call *c, const het_value *v, int which) {
    float *tensor = v->tensor[which] < 0 ? NULL : c->tensor[v->tensor[which]];
    return tensor ? tensor + v->column / 2 : NULL;
}

/* A value or its gradient, at the slice's first row; NULL: it has no memory. It lies where its home
   does: in a tensor of the unit, whose rows are those of the slice or, for keys and values, of the
   whole micro-batch, or in a stream. */
static float *heti_rows_of(const het_unit_call *c, int value, int which) {
    const het_value *home = &c->info->program->value[c->info->program->value[value].home[which]];
    float *tensor = heti_tensor_of(c, home, which);
    if (which == HETI_GRADIENT && c->d_out_bf16 && value == c->info->program->takes)
        return HETI_CAST(float *, HETI_CAST(void *, c->d_out_bf16));
    if (tensor && home->keep[which] >= HET_KEEP_MICRO_BATCH)
        return tensor + heti_view_of(c, value)->row_begin * heti_row_floats(c->info, value, which);
    if (tensor && home->factor > 0) return tensor + home->factor * c->rows * home->width;
    if (home->tensor[which] >= 0) return tensor;
    if (home->in >= 0) return which == HETI_VALUE ? c->in[home->in] : c->d_in[home->in];
    if (home->out >= 0) return which == HETI_VALUE ? c->out[home->out] : c->d_out[home->out];
    return NULL;
}

/* Where a node's values and gradients are in a call; dx[i]: where the gradient of input i goes. */
typedef struct heti_rows {
    int forward;
    const het_view *view;     /* the team's where one of them is divided */
    int64_t count;            /* rows */
    int64_t width;            /* of x[0]; without one of y[0] */
    float *x[4], *y[3], *dy[3], *dx[4];
} heti_rows;

static void heti_fill_embedding(const het_unit_call *c, const het_node *n, const heti_rows *r, het_op *op) {
    const het_model_desc *m = c->unit->model;
    het_embedding_args *a = &op->u.embedding;
    a->view = r->view;
    a->rows = r->count;
    a->width = m->width;
    a->vocab = m->vocab;
    a->context = m->context;
    a->table = c->weight[n->weight[0]];
    a->table_bf16 = c->weight_bf16[n->weight[0]];
    a->table_int8 = c->weight_int8[n->weight[0]];
    a->dtable = &c->gradient[n->weight[0]];
    a->positions = n->weight[1] < 0 ? NULL : c->weight[n->weight[1]];
    a->dpositions = n->weight[1] < 0 ? NULL : &c->gradient[n->weight[1]];
    a->y = r->y[0];
    a->dy = r->dy[0];
    a->workspace = c->workspace;
}

static void heti_fill_norm(const het_unit_call *c, const het_node *n, const heti_rows *r, het_op *op) {
    const het_model_desc *m = c->unit->model;
    const int heads = n->kind == HET_NODE_HEAD_NORM;
    het_norm_args *a = &op->u.norm;
    a->view = r->view;
    a->kind = heads ? HET_RMSNORM : m->norm;
    a->width = heads ? m->head_size : r->width;
    a->rows_per_token = r->width / a->width;
    a->rows = r->count * a->rows_per_token;
    a->epsilon = m->norm_epsilon;
    a->x = r->x[0];
    a->gain = c->weight[n->weight[0]];
    a->dgain = &c->gradient[n->weight[0]];
    a->bias = n->bias[0] < 0 ? NULL : c->weight[n->bias[0]];
    a->dbias = n->bias[0] < 0 ? NULL : &c->gradient[n->bias[0]];
    a->y = r->y[0];
    a->dy = r->dy[0];
    a->mean = n->statistic[0] < 0 ? NULL : c->tensor[n->statistic[0]];
    a->rstd = n->statistic[1] < 0 ? NULL : c->tensor[n->statistic[1]];
    a->dx = r->dx[0];
    a->workspace = c->workspace;
}

/* Elements from row to row of a value that lies beside others or is logits of bf16, and of its
   gradient; 0: it is as wide as it is. */
static int64_t heti_pitch(const het_unit_call *c, int value) {
    const het_program *p = c->info->program;
    return p->value[p->value[value].home[HETI_VALUE]].pitch;
}

static void heti_fill_linear(const het_unit_call *c, const het_node *n, const heti_rows *r, het_op *op) {
    het_linear_args *a = &op->u.linear;
    int i;
    a->view = r->view;
    a->compute = c->compute;
    a->rows = r->count;
    a->in = r->width;
    a->x = r->x[0];
    a->dx = r->dx[0];
    a->workspace = c->workspace;
    for (a->parts = n->outputs, i = 0; i < n->outputs; i++) {
        het_linear_part *part = &a->part[i];
        part->out = c->info->program->value[n->y[i]].own;
        part->w = c->weight[n->weight[i]];
        part->w_bf16 = c->weight_bf16[n->weight[i]];
        part->w_int8 = c->weight_int8[n->weight[i]];
        part->dw = &c->gradient[n->weight[i]];
        part->bias = n->bias[i] < 0 ? NULL : c->weight[n->bias[i]];
        part->bias_bf16 = n->bias[i] < 0 ? NULL : c->weight_bf16[n->bias[i]];
        part->dbias = n->bias[i] < 0 ? NULL : &c->gradient[n->bias[i]];
        part->y = r->y[i];
        part->dy = r->dy[i];
        part->pitch = heti_pitch(c, n->y[i]);
        if (n->y[i] != c->info->program->logits || !c->logits) continue;
        part->pitch = 0; /* they are wanted themselves, as floats */
        op->bf16 &= ~HET_BF16_Y;
    }
}

static void heti_fill_rotary(const het_unit_call *c, const het_node *n, const heti_rows *r, het_op *op) {
    const het_model_desc *m = c->unit->model;
    het_rotary_args *a = &op->u.rotary;
    a->view = r->view;
    a->rows = r->count;
    a->heads = r->width / m->head_size;
    a->head_size = m->head_size;
    a->rotary = heti_rotary_size(m);
    a->cosine = c->cosine;
    a->sine = c->sine;
    a->x = r->forward ? r->x[0] : r->dy[0];
    a->y = r->forward ? r->y[0] : r->dx[0];
    a->pitch = heti_pitch(c, n->x[0]);
}

/* k, v, dk and dv stand at row 0 of the micro-batch. */
static void heti_fill_attention(const het_unit_call *c, const het_node *n, const heti_rows *r, het_op *op) {
    const het_model_desc *m = c->unit->model;
    const het_value *k = &c->info->program->value[n->x[1]], *v = &c->info->program->value[n->x[2]];
    het_attention_args *a = &op->u.attention;
    a->view = r->view;
    a->compute = c->compute;
    a->heads = r->width / m->head_size;
    a->kv_heads = k->own / m->head_size;
    a->head_size = m->head_size;
    a->window = m->window;
    a->causal = m->causal != HET_NO;
    a->scale = 1.0f / sqrtf(HETI_CAST(float, m->head_size));
    a->q = r->x[0];
    a->pitch = heti_pitch(c, n->x[0]);
    a->k = heti_tensor_of(c, k, HETI_VALUE);
    a->v = heti_tensor_of(c, v, HETI_VALUE);
    a->o = r->y[0];
    a->maximum = c->tensor[n->statistic[0]];
    a->sum = c->tensor[n->statistic[1]];
    a->d_o = r->dy[0];
    a->dq = r->dx[0];
    a->dk = heti_tensor_of(c, k, HETI_GRADIENT);
    a->dv = heti_tensor_of(c, v, HETI_GRADIENT);
    a->workspace = c->workspace;
    a->workspace_size = c->workspace_size;
    if (n->inputs < 4) return;
    a->bias = r->x[3];
    a->dbias = r->dx[3];
    a->relation = n->relation;
    a->relations = c->info->program->value[n->x[3]].own / a->heads;
    a->context = m->context;
}

static void heti_fill_activation(const het_unit_call *c, const het_node *n, const heti_rows *r, het_op *op) {
    het_activation_args *a = &op->u.activation;
    a->kind = HETI_CAST(het_activation, n->option);
    a->count = r->count * r->width;
    a->width = r->width;
    a->pitch = heti_pitch(c, n->x[0]);
    a->a = r->x[0];
    a->b = r->x[1];
    a->y = r->y[0];
    a->dy = r->dy[0];
    a->da = r->dx[0];
    a->db = r->dx[1];
}

static void heti_fill_dropout(const het_unit_call *c, const het_node *n, const heti_rows *r, het_op *op) {
    het_dropout_args *a = &op->u.dropout;
    a->view = r->view;
    a->scalars = c->scalars;
    a->rows = r->count;
    a->width = r->width;
    a->probability = c->training ? c->unit->model->dropout : 0.0f;
    a->site = HETI_CAST(int32_t, c->index * 4) + n->option;
    a->a = r->forward ? r->x[1] : NULL;
    a->x = r->forward ? r->x[0] : r->dy[0];
    a->y = r->forward ? r->y[0] : r->dx[0];
}

static void heti_fill_copy(const het_unit_call *c, const het_node *n, const heti_rows *r, het_op *op) {
    op->u.copy.to = r->y[0];
    op->u.copy.from = r->x[0];
    op->u.copy.size = HETI_CAST(size_t, heti_value_floats(c, n->x[0], HETI_VALUE)) * sizeof(float);
}

/* Forward, the logits become their gradient. */
static void heti_fill_loss(const het_unit_call *c, const het_node *n, const heti_rows *r, het_op *op) {
    het_cross_entropy_args *a = &op->u.cross_entropy;
    a->scalars = c->scalars;
    a->rows = r->count;
    a->vocab = c->unit->model->vocab;
    a->logits = r->x[0];
    a->pitch = heti_pitch(c, n->x[0]);
    a->target = r->view->target ? r->view->target + r->view->row_begin : NULL;
    a->weight = r->view->weight ? r->view->weight + r->view->row_begin : NULL;
    a->gradient = c->training;
    a->loss = c->loss;
    a->row_loss = c->row_loss;
    a->workspace = c->workspace;
}

typedef struct heti_node_rule {
    void (*fill)(const het_unit_call *c, const het_node *n, const heti_rows *r, het_op *op);
    int op[3];                /* forward, backward for inputs, backward for weights; -1: none */
    int writes;               /* so many inputs' gradients, at most; the others' is the result's, as it is */
    het_keep inputs, result;  /* until when backward ops read them; CALL: they do not */
    int statistics;           /* kept for them */
    int again;                /* 1: its result costs less to make again than to keep until backward_weight */
    int in_place[2];          /* 1: its first input may lie where its result lies; their gradients likewise */
} heti_node_rule;
#define HETI_TWO(name) { HET_OP_##name##_FORWARD, HET_OP_##name##_BACKWARD, -1 }
#define HETI_THREE(name) \
    { HET_OP_##name##_FORWARD, HET_OP_##name##_BACKWARD_INPUT, HET_OP_##name##_BACKWARD_WEIGHT }
static const heti_node_rule heti_node_rules[HET_NODES] = {
    { heti_fill_embedding, { HET_OP_EMBEDDING_FORWARD, -1, HET_OP_EMBEDDING_BACKWARD_WEIGHT },
      0, HET_KEEP_CALL, HET_KEEP_CALL, 0, 0, { 0, 0 } },
    { heti_fill_norm, HETI_THREE(NORM), 1, HET_KEEP_WEIGHT, HET_KEEP_CALL, 2, 1, { 0, 0 } },
    { heti_fill_norm, HETI_THREE(NORM), 1, HET_KEEP_WEIGHT, HET_KEEP_CALL, 1, 1, { 0, 0 } }, /* of heads */
    { heti_fill_linear, HETI_THREE(LINEAR), 1, HET_KEEP_WEIGHT, HET_KEEP_CALL, 0, 0, { 0, 0 } },
    { heti_fill_rotary, HETI_TWO(ROTARY), 1, HET_KEEP_CALL, HET_KEEP_CALL, 0, 0, { 1, 1 } },
    { heti_fill_attention, HETI_TWO(ATTENTION), 4, HET_KEEP_INPUT, HET_KEEP_INPUT, 2, 0, { 0, 0 } },
    { heti_fill_activation, HETI_TWO(ACTIVATION), 2, HET_KEEP_INPUT, HET_KEEP_CALL, 0, 1, { 0, 1 } },
    /* in place where there is no x */
    { heti_fill_dropout, HETI_TWO(DROPOUT), 1, HET_KEEP_CALL, HET_KEEP_CALL, 0, 0, { 1, 0 } },
    { heti_fill_copy, { HET_OP_COPY, -1, -1 }, 0, HET_KEEP_CALL, HET_KEEP_CALL, 0, 0, { 0, 0 } },
    { heti_fill_loss, { HET_OP_CROSS_ENTROPY, -1, -1 }, 0, HET_KEEP_CALL, HET_KEEP_CALL, 0, 0, { 0, 0 } }
};
#undef HETI_TWO
#undef HETI_THREE

static const heti_node_rule *heti_rule_of(const het_node *n) { return &heti_node_rules[n->kind]; }
static int heti_writes(const het_node *n) {
    return n->inputs < heti_rule_of(n)->writes ? n->inputs : heti_rule_of(n)->writes;
}

/* HET_BF16_* of a node's op. Without a forward of its own the way back is called x to y. */
static int32_t heti_node_bf16(const het_unit_info *info, const het_node *n, int way) {
    const int turned = way == HETI_BACKWARD_INPUT && (n->kind == HET_NODE_ROTARY || n->kind == HET_NODE_RESIDUAL);
    int32_t bits = 0;
    if (n->inputs > 0 && heti_is_bf16(info, n->x[0], HETI_VALUE)) bits |= HET_BF16_X;
    if (n->inputs > 0 && heti_is_bf16(info, n->x[0], HETI_GRADIENT)) bits |= HET_BF16_DX;
    if (n->outputs > 0 && heti_is_bf16(info, n->y[0], HETI_VALUE)) bits |= HET_BF16_Y;
    if (n->outputs > 0 && heti_is_bf16(info, n->y[0], HETI_GRADIENT)) bits |= HET_BF16_DY;
    if (n->kind == HET_NODE_RESIDUAL && n->inputs > 1 && heti_is_bf16(info, n->x[1], HETI_VALUE))
        bits |= HET_BF16_ADDED;
    return !turned ? bits : (bits & HET_BF16_DY ? HET_BF16_X : 0) | (bits & HET_BF16_DX ? HET_BF16_Y : 0);
}

/* A value of a node that a team by columns has divided; -1: none. */
static int heti_divided_value(const het_program *p, const het_node *n) {
    if (n->inputs > 0 && p->value[n->x[0]].divided) return n->x[0];
    return n->outputs > 0 && p->value[n->y[0]].divided ? n->y[0] : -1;
}

/* Whether it has divided a linear node's result, whose x it gathers, or (-1) its x, so that the
   result is a chain; 0: neither. */
static int heti_spreads(const het_program *p, const het_node *n) {
    const int v = heti_divided_value(p, n);
    if (n->kind != HET_NODE_LINEAR || v < 0) return 0;
    return v == n->x[0] ? -1 : 1;
}

/* The op of a node in one of the three calls; 0: it has none. dx NULL: it writes no gradient. */
static int heti_node_op(const het_unit_call *c, const het_node *n, int way, float *const *dx, het_op *op) {
    const het_program *p = c->info->program;
    const int first = n->inputs > 0 ? n->x[0] : n->y[0], divided = heti_divided_value(p, n);
    heti_rows r = HETI_ZEROS;
    if (heti_rule_of(n)->op[way] < 0) return 0;
    r.forward = way == HETI_FORWARD;
    r.view = heti_view_of(c, divided < 0 ? first : divided);
    r.count = divided < 0 ? c->rows : heti_view_rows(r.view);
    r.width = p->value[first].own;
    for (int i = 0; i < n->inputs; i++) r.x[i] = heti_rows_of(c, n->x[i], HETI_VALUE);
    for (int i = 0; i < n->inputs && dx; i++) r.dx[i] = dx[i];
    for (int i = 0; i < n->outputs; i++) r.y[i] = heti_rows_of(c, n->y[i], HETI_VALUE);
    for (int i = 0; i < n->outputs; i++) r.dy[i] = heti_rows_of(c, n->y[i], HETI_GRADIENT);
    *op = heti_blank_op(heti_rule_of(n)->op[way], heti_node_bf16(c->info, n, way));
    heti_rule_of(n)->fill(c, n, &r, op);
    return 1;
}

/* ---- what follows from a program ---- */

/* What one node alone reads, and is no stream. */
static int heti_is_inner(const het_value *v) { return v->uses == 1 && v->in < 0 && v->out < 0; }

/* All is read that must be: input streams, values; keys, values and logits by one node alone. */
static void heti_check_program(het_program *p) {
    int64_t streams = 0;
    for (int i = 0; i < p->values; i++) {
        streams += p->value[i].in >= 0;
        heti_require(p, p->value[i].uses > 0 || p->value[i].out >= 0, "a value that nothing reads");
    }
    heti_require(p, streams == p->info->in_streams &&
                 (p->logits < 0 || p->info->out_streams == 0 || p->info->out_streams == streams),
                 "a stream that is not read, or not passed on behind a loss");
    for (int i = 0; p->result == HET_OK && i < p->nodes; i++) {
        const het_node *n = &p->node[i];
        for (int j = 1; n->kind == HET_NODE_ATTENTION && j < 3; j++)
            heti_require(p, p->logits < 0 && heti_is_inner(&p->value[n->x[j]]), "keys or values that others read");
        if (n->kind == HET_NODE_LOSS) heti_require(p, heti_is_inner(&p->value[n->x[0]]), "logits that others read");
    }
}

/* Factors stand behind the unit's other parameters: A B A B ..., in the order of their matrices. */
static void heti_factors_last(het_program *p) {
    het_unit_info *info = p->info;
    het_parameter_desc sorted[HETRAIN_MAX_UNIT_PARAMETERS];
    int32_t at[HETRAIN_MAX_UNIT_PARAMETERS], next = 0, adapter;
    for (adapter = 0; adapter < 2; adapter++)
        for (int64_t i = 0; i < info->parameters; i++) {
            if (info->parameter[i].adapter != adapter) continue;
            sorted[next] = info->parameter[i];
            at[i] = next++;
        }
    for (int64_t i = 0; i < info->parameters; i++) info->parameter[i] = sorted[i];
    for (int64_t i = 0; i < p->nodes; i++)
        for (int j = 0; j < 3; j++) {
            het_node *n = &p->node[i];
            if (n->weight[j] >= 0) n->weight[j] = at[n->weight[j]];
            if (n->bias[j] >= 0) n->bias[j] = at[n->bias[j]];
        }
}

/* A value that one node alone reads may lie where that node's result does; so may its gradient. */
static void heti_find_homes(het_program *p) {
    for (int i = p->nodes - 1; i >= 0; i--) {
        const het_node *n = &p->node[i];
        for (int which = HETI_VALUE; which <= HETI_GRADIENT; which++) {
            const het_value *y = &p->value[n->y[0]];
            if (!heti_rule_of(n)->in_place[which] || !heti_is_inner(&p->value[n->x[0]])) continue;
            if (which == HETI_GRADIENT ? y->out >= 0 : n->kind == HET_NODE_RESIDUAL && n->inputs == 2) continue;
            const int maker = p->value[n->x[0]].node; /* attention reads its result on the way back */
            if (which == HETI_VALUE && maker >= 0 && heti_rule_of(&p->node[maker])->result != HET_KEEP_CALL) continue;
            p->value[n->x[0]].home[which] = y->home[which];
        }
    }
}

static void heti_keep_until(het_program *p, int v, int which, het_keep keep) {
    het_value *home = &p->value[p->value[v].home[which]];
    if (keep > home->keep[which]) home->keep[which] = keep;
}

/* Whether a node's result is made again for backward_weight. bf16 is kept, half the room. */
static int heti_again(const het_unit_info *info, const het_node *n) {
    return heti_rule_of(n)->again && info->values != HET_BF16;
}

/* Whether a value is there on the way back, for backward_input reads it, and not made again. */
static int heti_is_kept(const het_program *p, int v) {
    return p->value[p->value[v].home[HETI_VALUE]].keep[HETI_VALUE] != HET_KEEP_CALL;
}

/* A backward call reads value v: it is kept until then, or what it is made again from is. */
static void heti_need(het_program *p, int v, het_keep keep) {
    const het_node *maker = p->value[v].node < 0 ? NULL : &p->node[p->value[v].node];
    if (keep != HET_KEEP_WEIGHT || !maker || !heti_again(p->info, maker) || heti_is_kept(p, v))
        heti_keep_until(p, v, HETI_VALUE, keep);
    else for (int i = 0; i < maker->inputs; i++) heti_need(p, maker->x[i], keep);
}

/* Whether a team divides the heads of an attention node. */
static int heti_divides(const het_program *p, const het_node *n) {
    return n->kind == HET_NODE_ATTENTION && p->info->team && p->info->team->heads > 0 && heti_divided_value(p, n) < 0;
}

/* The columns [range[0], range[1]) of `width` that a member of a team has: those of its heads or,
   by share, wholes of 64 where there are four a member, or of `piece`, at least one. */
static void heti_member_columns(const het_team_member *team, int64_t members, int64_t member, int by_heads,
                                int64_t piece, int64_t width, int64_t range[2]) {
    double before = 0.0, all = 0.0;
    int64_t whole = 64, wholes;
    while (whole > 2 && (width % whole != 0 || width / whole < 4 * members)) whole /= 2;
    if (width % whole != 0 || width / whole < members) whole = 1;
    if (piece > 0) whole = piece;
    for (int64_t m = 0; m < members; m++) all += by_heads ? HETI_CAST(double, team[m].heads) : team[m].share;
    if (by_heads) whole = heti_max(1, width / HETI_CAST(int64_t, all));
    wholes = width / whole;
    range[0] = range[1] = 0;
    for (int64_t m = 0; m <= member; m++) {
        before += by_heads ? HETI_CAST(double, team[m].heads) : team[m].share;
        range[0] = range[1];
        range[1] = heti_min(HETI_CAST(int64_t, before / all * HETI_CAST(double, wholes) + 0.5),
                            wholes - (members - m - 1));
        range[1] = heti_max(range[1], range[0] + 1);
    }
    range[0] *= whole;
    range[1] *= whole;
}

/* All of a node's values are divided in one way, 0: not at all. Whether some were not before. */
static int heti_divide_alike(const het_node *n, int *kind, int way) {
    int changed = 0;
    for (int i = 0; i < n->inputs; i++) changed |= kind[n->x[i]] != way, kind[n->x[i]] = way;
    for (int i = 0; i < n->outputs; i++) changed |= kind[n->y[i]] != way, kind[n->y[i]] = way;
    return changed;
}

/* Which values a team by columns divides, 1 by heads, 2 by share: those that products make of whole
   rows, and what rotations, attention and activations make of such, where a product makes whole
   rows of them again.
   All that the unit makes and does not give away begins as divided by share; then numbers fall
   until none does any more. To 0, what cannot be divided: what a node of another kind reads or
   writes, the result of a product whose x is divided, and rotations that are no multiple of the
   model's key/value heads. To 1, values of attention and of rotations. All values of a node but a
   product fall with the lowest of them. In mlp, say, `up` is divided and the activation of it, by
   share; `down` reads these, and its result is whole. */
static void heti_find_divided(const het_program *p, int *kind) {
    const int64_t heads = p->unit->model->kv_heads * p->unit->model->head_size;
    int i, j, changed;
    for (i = 0; i < p->values; i++) kind[i] = p->value[i].node >= 0 && p->value[i].out < 0 ? 2 : 0;
    do for (changed = 0, i = 0; i < p->nodes; i++) {
        const het_node *n = &p->node[i];
        const int by_heads = n->kind == HET_NODE_ATTENTION || n->kind == HET_NODE_ROTARY;
        int way = by_heads ? 1 : 2;
        for (j = 0; j < n->outputs; j++) way = kind[n->y[j]] < way ? kind[n->y[j]] : way;
        if (n->kind == HET_NODE_LINEAR && n->option == HETI_FACTOR_NONE) {
            if (kind[n->x[0]] && n->outputs == 1) changed |= kind[n->y[0]], kind[n->y[0]] = 0;
            else if (kind[n->x[0]] || !way) changed |= heti_divide_alike(n, kind, 0);
            continue;
        }
        for (j = 0; j < n->inputs; j++) way = kind[n->x[j]] < way ? kind[n->x[j]] : way;
        if (!by_heads && n->kind != HET_NODE_ACTIVATION) way = 0;
        if (n->kind == HET_NODE_ROTARY && heti_width(p, n->x[0]) % heads != 0) way = 0;
        changed |= heti_divide_alike(n, kind, way);
    } while (changed);
}

/* What a team by columns divides of values and parameters, and how much of it this member has. */
static void heti_divide_columns(het_program *p) {
    const het_team_limits *team = p->info->team;
    int kind[HETRAIN_MAX_VALUES], i, j;
    heti_find_divided(p, kind);
    for (i = 0; i < p->nodes; i++) {
        const het_node *n = &p->node[i];
        const int spreads = n->outputs > 0 && kind[n->y[0]] > 0;
        if (n->kind != HET_NODE_LINEAR || n->option != HETI_FACTOR_NONE) continue;
        for (j = 0; j < n->outputs && (spreads || kind[n->x[0]]); j++) {
            het_parameter_desc *weight = &p->info->parameter[n->weight[j]];
            weight->divide = spreads ? 1 : 2;
            weight->by_heads = kind[spreads ? n->y[j] : n->x[0]] == 1;
            if (!spreads || n->bias[j] < 0) continue;
            p->info->parameter[n->bias[j]].divide = 1;
            p->info->parameter[n->bias[j]].by_heads = weight->by_heads;
        }
    }
    for (i = 0; i < p->values; i++) {
        het_value *v = &p->value[i];
        int64_t range[2];
        v->own = v->width;
        v->divided = team && team->plan ? kind[i] : 0;
        if (!v->divided) continue;
        heti_require(p, v->width >= team->members, "fewer columns than the team has members");
        heti_member_columns(team->plan, team->members, team->member, v->divided == 1, 0, v->width, range);
        v->own = range[1] - range[0];
    }
}

/* How long values and gradients are kept: until the last backward op that reads them (the rules'
   `inputs` and `result`), in the home that they may share. Keys and values are read by later
   slices, which also add to their gradients. */
static void heti_find_keeps(het_program *p) {
    for (int i = 0; i < p->nodes; i++) { /* backward_input reads the inputs of all but products */
        const het_node *n = &p->node[i];
        if (n->kind == HET_NODE_LINEAR || heti_rule_of(n)->inputs == HET_KEEP_CALL || heti_divides(p, n)) continue;
        for (int j = 0; j < n->inputs; j++) heti_keep_until(p, n->x[j], HETI_VALUE, HET_KEEP_INPUT);
    }
    for (int i = 0; i < p->nodes; i++) {
        const het_node *n = &p->node[i];
        const int divided = heti_divides(p, n), spreads = heti_spreads(p, n); /* its core has what must be kept */
        for (int j = 0; j < n->inputs && !divided && spreads < 1; j++) heti_need(p, n->x[j], heti_rule_of(n)->inputs);
        for (int j = 0; j < n->outputs; j++) {
            if (!divided) heti_keep_until(p, n->y[j], HETI_VALUE, heti_rule_of(n)->result);
            if (heti_rule_of(n)->op[HETI_BACKWARD_WEIGHT] >= 0 && spreads >= 0)
                heti_keep_until(p, n->y[j], HETI_GRADIENT, HET_KEEP_GRADIENT);
        }
        for (int j = 1; n->kind == HET_NODE_ATTENTION && !divided && j < 3; j++) {
            heti_keep_until(p, n->x[j], HETI_VALUE, HET_KEEP_MICRO_BATCH);
            heti_keep_until(p, n->x[j], HETI_GRADIENT, HET_KEEP_MICRO_BATCH_GRADIENT);
        }
    }
    for (int i = 0; i < p->values; i++)
        if (p->value[i].in >= 0 && p->value[i].keep[HETI_VALUE] > p->info->input_keep)
            p->info->input_keep = p->value[i].keep[HETI_VALUE];
}

/* Values of bf16 that one product makes for one node lie side by side, where the device takes them
   so: queries, keys and values, gate and up. It may make them, and their dx, in one go. */
static void heti_find_beside(het_program *p) {
    for (int i = 0; i < p->nodes && p->info->values == HET_BF16; i++) {
        const het_node *n = &p->node[i], *made = NULL;
        const int attends = n->kind == HET_NODE_ATTENTION, count = attends ? 3 : n->inputs;
        het_op op = heti_blank_op(heti_rule_of(n)->op[HETI_FORWARD],
                                  HET_BF16_X | HET_BF16_Y | HET_BF16_DX | HET_BF16_DY);
        int64_t column = 0, pitch = 0;
        int32_t found = 0, first = n->x[0];
        if (attends) op.u.attention.pitch = 1, op.u.attention.head_size = p->unit->model->head_size;
        else op.u.activation.pitch = 1;
        if ((!attends && n->kind != HET_NODE_ACTIVATION) || count < 2 || !heti_supports(p->info->device, op)) continue;
        for (; found < count; found++) {
            const het_node *maker = NULL;
            for (int v = n->x[found]; v >= 0; v = attends && maker && maker->kind == HET_NODE_ROTARY ? maker->x[0] : -1)
                maker = heti_is_inner(&p->value[v]) ? &p->node[p->value[v].node] : NULL;
            if (!maker || maker->kind != HET_NODE_LINEAR || maker->outputs != count || (made && maker != made)) break;
            made = maker;
            pitch += p->value[n->x[found]].own;
            first = HETI_CAST(int32_t, heti_min(first, n->x[found]));
        }
        for (int j = 0; j < count && found == count; j++) {
            het_value *v = &p->value[p->value[made->y[j]].home[HETI_VALUE]];
            v->beside = first;
            v->column = column;
            v->pitch = pitch;
            if (attends) v->keep[HETI_VALUE] = HET_KEEP_MICRO_BATCH;
            if (attends) v->keep[HETI_GRADIENT] = HET_KEEP_MICRO_BATCH_GRADIENT;
            else v->home[HETI_GRADIENT] = made->y[j]; /* not where dy is */
            column += v->own;
        }
    }
}

/* group: it has the rows of all members of a team's group. */
static int32_t heti_new_tensor(het_program *p, const char *name, int64_t width, het_keep keep, int32_t group) {
    het_unit_info *info = p->info;
    het_tensor_desc *t = &info->tensor[info->tensors];
    heti_require(p, info->tensors < HETRAIN_MAX_UNIT_TENSORS, "more tensors than HETRAIN_MAX_UNIT_TENSORS");
    if (p->result != HET_OK) return -1;
    t->name = name;
    t->width = width;
    t->keep = keep;
    t->group = group;
    return HETI_CAST(int32_t, info->tensors++);
}

/* Tensors of values or of gradients, but for those that have a stream's memory. The factors' u lie
   in one, each behind the others' rows. */
static void heti_new_tensors(het_program *p, int which) {
    int32_t factors = -1;
    for (int i = 0; i < p->values; i++) {
        het_value *v = &p->value[i];
        const int passing = which == HETI_VALUE || v->keep[which] == HET_KEEP_CALL;
        const char *name = which == HETI_VALUE ? "value" : "gradient";
        if (v->home[which] != i || v->in >= 0 || (v->out >= 0 && passing)) continue;
        if (v->beside >= 0 && v->beside < i) { v->tensor[which] = p->value[v->beside].tensor[which]; continue; }
        if (which == HETI_GRADIENT && i == p->logits) { v->tensor[which] = v->tensor[HETI_VALUE]; continue; }
        if (v->factor > 0 && factors >= 0) p->info->tensor[factors].width += v->width;
        else v->tensor[which] = heti_new_tensor(p, name, heti_row_floats(p->info, i, which), v->keep[which],
                                                v->divided != 0);
        if (v->factor == 0) factors = v->tensor[which];
        if (v->factor > 0) v->tensor[which] = factors;
    }
}

/* Attention of some heads over the rows of a group (>>units, attention of a team). */
static void heti_new_core(het_program *p, het_node *n) {
    static const het_keep heti_keep[8] = { HET_KEEP_INPUT, HET_KEEP_MICRO_BATCH, HET_KEEP_MICRO_BATCH, HET_KEEP_INPUT,
                                      HET_KEEP_CALL, HET_KEEP_MICRO_BATCH_GRADIENT, HET_KEEP_MICRO_BATCH_GRADIENT,
                                      HET_KEEP_CALL }; /* q k v o dq dk dv do */
    const int64_t head_size = p->unit->model->head_size, own = p->info->team->heads * head_size,
                  own_q = heti_width(p, n->x[0]) / heti_width(p, n->x[1]) * own;
    heti_require(p, own <= heti_width(p, n->x[1]), "fewer heads than the team divides");
    for (int i = 0; i < 8; i++)
        n->core[i] = heti_new_tensor(p, "core", i % 4 == 1 || i % 4 == 2 ? own : own_q, heti_keep[i], 1);
    for (int i = 0; i < 2; i++) n->statistic[i] = heti_new_tensor(p, "statistic", own_q / head_size, HET_KEEP_INPUT, 1);
}

/* A linear node of a team by columns: what it gathers, and where chains come by, one at a time. */
static void heti_new_chain(het_program *p, het_node *n, int spreads, int32_t *chain) {
    const int64_t width = heti_width(p, spreads > 0 ? n->x[0] : n->y[0]);
    const het_team_limits *team = p->info->team;
    for (const het_node *other = p->node; spreads > 0 && other < n; other++) /* whose x is the same */
        if (heti_spreads(p, other) > 0 && other->x[0] == n->x[0]) n->core[0] = other->core[0];
    if (n->core[0] < 0)
        n->core[0] = heti_new_tensor(p, "gathered", width, spreads > 0 ? HET_KEEP_WEIGHT : HET_KEEP_GRADIENT, 1);
    if (*chain < 0) *chain = heti_new_tensor(p, "chain", width, HET_KEEP_CALL, 1);
    else p->info->tensor[*chain].width = heti_max(p->info->tensor[*chain].width, width);
    n->core[1] = *chain;
    if (p->info->device && p->info->device->iface->host_memory) return;
    p->info->exchange = heti_max_size(p->info->exchange, sizeof(float) * HETI_CAST(size_t, width *
                                      heti_max(team->rows * (team->members - 1), team->group_rows)));
}

/* The largest of its moves, of queries or of keys, out or in. Where no group divides heads all rows
   are whole, which need no room on devices whose memory the host sees. */
static void heti_find_exchange(het_program *p, const het_node *n) {
    const het_team_limits *team = p->info->team;
    const int64_t q = heti_width(p, n->x[0]), k = heti_width(p, n->x[1]);
    const int64_t own = team && team->heads > 0 ? team->heads * p->unit->model->head_size : k;
    if (!team || heti_divided_value(p, n) >= 0 ||
        (team->groups == team->members && (!p->info->device || p->info->device->iface->host_memory)))
        return;
    int64_t floats = heti_max(team->rows * k * team->groups, team->kept_rows * own);
    if (own < k) floats = heti_max(floats, heti_max(team->rows * q, team->group_rows * (q / k * own)));
    p->info->exchange = heti_max_size(p->info->exchange, HETI_CAST(size_t, floats) * sizeof(float));
}

/* Statistics of norms and attention, and scratch: room for what is added to a gradient that another
   node has written, or for u B^T. Of the nodes that write a value's gradient, and the stream that
   it goes out by, only the first one on the way back needs none. */
static void heti_new_scratch(het_program *p) {
    int writers[HETRAIN_MAX_VALUES], i, j;
    int32_t chain = -1;
    int64_t widest = 0;
    for (i = 0; i < p->values; i++) writers[i] = p->value[i].out >= 0;
    for (i = 0; i < p->nodes; i++)
        for (j = 0; j < heti_writes(&p->node[i]); j++) writers[p->node[i].x[j]]++;
    for (i = 0; i < p->nodes; i++) {
        het_node *n = &p->node[i];
        const int64_t width = n->kind == HET_NODE_NORM ? 1 :
            n->inputs > 0 ? p->value[n->x[0]].own / p->unit->model->head_size : 0;
        const int spreads = heti_spreads(p, n);
        int64_t added = 0;
        n->statistic[0] = n->statistic[1] = -1;
        if (heti_divides(p, n)) heti_new_core(p, n);
        else for (j = 2 - heti_rule_of(n)->statistics; j < 2; j++)
            n->statistic[j] = heti_new_tensor(p, "statistic", width, heti_rule_of(n)->inputs,
                                              heti_divided_value(p, n) >= 0);
        if (spreads) heti_new_chain(p, n, spreads, &chain);
        if (n->kind == HET_NODE_ATTENTION) heti_find_exchange(p, n);
        for (j = 0; j < heti_writes(n); j++)
            if (writers[n->x[j]] > 1) added += heti_row_floats(p->info, n->x[j], HETI_GRADIENT);
        if (n->kind == HET_NODE_LINEAR && n->option == HETI_FACTOR_B) added = heti_max(added, heti_width(p, n->y[0]));
        widest = heti_max(widest, added);
    }
    if (widest > 0)
        p->scratch = heti_new_tensor(p, "scratch", widest, HET_KEEP_CALL, p->info->team && p->info->team->plan);
}

/* Why the values inside the unit, or its streams, cannot be bf16; NULL: they can. Each is read by
   one node (a stream by several), all that an op calls x are of one type, and the device takes all
   the ops. Slices would add to rounded gradients. */
static const char *heti_bars_bf16(const het_program *p) {
    const het_unit_info *info = p->info;
    const int streams = info->streams == HET_BF16;
    const char *lacks = "the device lacks some of its ops with bf16 operands";
    if (info->compute != HET_BF16 || !info->device) return "no device, or another dtype";
    if (info->team) return "a team moves floats";
    if (p->factors > 0) return "low-rank factors are floats";
    if (streams && !heti_supports(info->device, heti_blank_op(HET_OP_ADD, HET_BF16_X | HET_BF16_Y))) return lacks;
    for (int i = 0; i < p->values; i++) {
        const int inner = p->value[i].in < 0 && p->value[i].out < 0 && i != p->logits;
        if ((inner && p->value[i].uses != 1) || ((inner || (streams && i != p->logits)) && p->value[i].width % 8))
            return "a value is read by several nodes, or its width is no multiple of 8";
    }
    for (int i = 0; i < p->nodes; i++) {
        const het_node *n = &p->node[i];
        const int first = n->inputs > 0 ? heti_is_bf16(info, n->x[0], HETI_VALUE) : 0;
        for (int j = 1; j < n->inputs; j++)
            if (heti_is_bf16(info, n->x[j], HETI_VALUE) != (n->kind == HET_NODE_RESIDUAL ? streams : first))
                return "a node reads two types";
        if (n->kind == HET_NODE_RESIDUAL && n->inputs > 1 && /* its gradient is the sum's, as it is */
            heti_is_bf16(info, n->x[1], HETI_GRADIENT) != heti_is_bf16(info, n->y[0], HETI_GRADIENT))
            return "a sum and what is added have two types";
        for (int j = 0; j < n->outputs; j++)
            if (heti_is_bf16(info, n->y[j], HETI_VALUE) != heti_is_bf16(info, n->y[0], HETI_VALUE))
                return "a node writes two types";
        if (n->kind == HET_NODE_ATTENTION && (info->slices > 1 || n->inputs > 3))
            return "attention of slices, or with a bias, is of floats";
        for (int way = HETI_FORWARD; way <= HETI_BACKWARD_WEIGHT; way++) {
            if (heti_rule_of(n)->op[way] < 0) continue;
            het_op op = heti_blank_op(heti_rule_of(n)->op[way], heti_node_bf16(info, n, way));
            if (n->kind == HET_NODE_ATTENTION) op.u.attention.head_size = p->unit->model->head_size;
            if (n->kind == HET_NODE_HEAD_NORM) op.u.norm.width = p->unit->model->head_size;
            if (op.bf16 && !heti_supports(info->device, op)) return lacks;
        }
    }
    return NULL;
}

/* Types of the values, and how many rows of logits the device takes at once; in f32 a granule's. */
static void heti_choose_types(het_program *p) {
    het_unit_info *info = p->info;
    het_op op = heti_blank_op(HET_OP_CROSS_ENTROPY, HET_BF16_X | HET_BF16_DX);
    info->loss_rows = info->max_granule_tokens;
    info->values = HET_BF16;
    const char *why = heti_bars_bf16(p);
    if (why) info->values = HET_F32;
    if (why && info->streams == HET_BF16) info->why = why;
    if (info->values != HET_BF16 || p->logits < 0) return; /* f32: of more rows, fast sums would have other bits */
    p->value[p->logits].pitch = (heti_width(p, p->logits) + 127) / 128 * 128; /* rows begin at 256 bytes */
    op.u.cross_entropy.vocab = heti_width(p, p->logits);
    op.u.cross_entropy.rows = info->max_tokens;
    while (op.u.cross_entropy.rows > info->loss_rows && !heti_supports(info->device, op)) op.u.cross_entropy.rows /= 2;
    info->loss_rows = heti_max(info->loss_rows, op.u.cross_entropy.rows);
}

/* A unit that begins with the norm of its only stream and adds nothing else to that stream's
   gradient but what waits can round it, for one that ends with a sum into its only stream. */
static void heti_find_rounded(het_program *p) {
    const het_unit_info *info = p->info;
    const het_node *first = &p->node[0], *last = &p->node[p->nodes - 1];
    het_op op = heti_blank_op(HET_OP_NORM_BACKWARD_INPUT, heti_node_bf16(info, first, HETI_BACKWARD_INPUT));
    op.u.norm.dx_bf16 = HETI_CAST(uint16_t *, HETI_CAST(void *, p)); /* any address */
    p->takes = -1;
    if (info->values != HET_BF16) return;
    p->gives = first->kind == HET_NODE_NORM && info->in_streams == 1 && heti_supports(info->device, op) &&
        p->value[first->x[0]].uses == 1 + (last->x[1] == first->x[0]);
    if (last->kind == HET_NODE_RESIDUAL && info->out_streams == 1 && p->value[last->y[0]].out == 0 &&
        heti_is_bf16(info, last->x[0], HETI_GRADIENT) && !(p->unit->model->dropout > 0.0f))
        p->takes = last->x[0];
}

/* The largest workspace of the program's ops over `rows` rows. */
static void heti_program_workspace(const het_program *p, int64_t rows) {
    het_unit_info *info = p->info;
    het_unit_call shape = HETI_ZEROS;
    het_view view = HETI_ZEROS;
    het_op op;
    view.tokens = view.row_end = rows;
    view.sequences = info->max_sequences;
    shape.unit = p->unit;
    shape.info = info;
    shape.view = &view;
    shape.compute = info->compute;
    shape.rows = rows;
    for (int i = 0; i < p->nodes; i++)
        for (int way = HETI_FORWARD; way <= HETI_BACKWARD_WEIGHT; way++)
            if (info->device && heti_node_op(&shape, &p->node[i], way, NULL, &op))
                info->workspace = heti_max_size(info->workspace, heti_op_workspace(info->device, op));
}

/* A loss unit's tensors, of the rows it takes at a time, from `base` on. Returns their bytes. */
static size_t heti_loss_tensors(const het_unit_info *info, char *base, float **tensor) {
    size_t used = 0;
    for (int t = 0; t < HETRAIN_MAX_UNIT_TENSORS && info->tensor[t].width > 0; t++) {
        if (base) tensor[t] = HETI_CAST(float *, HETI_CAST(void *, base + used));
        used += heti_round_up(HETI_CAST(size_t, info->loss_rows * info->tensor[t].width) * sizeof(float), 64);
    }
    return used;
}

HETRAIN_API het_result het_program_end(het_program *p) {
    het_unit_info *info = p->info;
    heti_check_program(p);
    info->teams = 1;
    for (int i = 0; p->result == HET_OK && i < p->nodes; i++)
        for (int way = HETI_FORWARD; p->node[i].inputs == 4 && way <= HETI_BACKWARD_INPUT; way++) {
            het_op op = heti_blank_op(heti_rule_of(&p->node[i])->op[way], 0);
            op.u.attention.bias = &p->unit->model->norm_epsilon; /* any address */
            info->teams = 0;
            if (!info->device || heti_supports(info->device, op)) continue;
            info->why = "the device has no bias of attention";
            p->result = HET_ERR_UNSUPPORTED;
        }
    if (p->result != HET_OK) return p->result;
    heti_factors_last(p);
    heti_divide_columns(p);
    heti_find_homes(p);
    heti_choose_types(p);
    heti_find_rounded(p);
    heti_find_beside(p);
    heti_find_keeps(p);
    heti_new_tensors(p, HETI_VALUE);
    heti_new_tensors(p, HETI_GRADIENT);
    heti_new_scratch(p);
    if (p->result != HET_OK) return p->result;
    info->flops_input = info->flops_weight = info->flops_forward;
    heti_program_workspace(p, info->is_loss ? info->loss_rows : info->max_tokens);
    if (info->is_loss) { /* all in one call: tensors are workspace, products come some granules at a time */
        info->workspace += heti_loss_tensors(info, NULL, NULL);
        info->tensors = 0;
        info->input_keep = HET_KEEP_INPUT;
        info->flops_input = 3.0 * info->flops_forward;
        info->flops_forward = info->flops_weight = 0.0;
        for (int64_t i = 0; i < info->parameters; i++)
            if (info->parameter[i].product > 1) info->parameter[i].product = 1;
    }
    p->unit = NULL;
    p->info = NULL;
    return HET_OK;
}

/* ---- running a program ---- */

static het_result heti_unit_run(const het_unit_call *c, const het_op *op) {
    return c->device->iface->run(c->device->self, c->queue, op);
}

/* to = from, or to += from, which are as a value is, or its gradient. */
static het_result heti_unit_move(const het_unit_call *c, int adds, int value, int which, float *to, const float *from) {
    const int bf16 = heti_is_bf16(c->info, value, which);
    const int64_t floats = heti_value_floats(c, value, which);
    const het_elements_args sum = { bf16 ? 2 * floats : floats, to, from, 1.0f, NULL };
    const het_copy_args copy = { to, from, HETI_CAST(size_t, floats) * sizeof *to, 1, 0, 0 };
    het_op op = adds ? HETI_OP(ADD, &sum) : HETI_OP(COPY, &copy);
    if (adds && bf16) op.bf16 = HET_BF16_X | HET_BF16_Y;
    return heti_unit_run(c, &op);
}

/* The values (or gradients) u of the factors A of a node, times alpha / r. */
static het_result heti_unit_scale(const het_unit_call *c, const het_node *n, int which) {
    const het_model_desc *m = c->unit->model;
    const float factor = HETI_CAST(float, HETI_CAST(double, m->lora_alpha) / HETI_CAST(double, m->lora_rank));
    for (int i = 0; i < n->outputs; i++) {
        const het_elements_args u = { c->rows * m->lora_rank, heti_rows_of(c, n->y[i], which), NULL, factor, NULL };
        const het_op op = HETI_OP(SCALE, &u);
        HETI_TRY(heti_unit_run(c, &op));
    }
    return HET_OK;
}

/* A product of one matrix, then the activation of it, or a sum with it: a device may have one op
   for both. Backward the other way round: the activation whose result only a product reads.
   `first` is in front of `second` in the list. 0: they are no such pair, or it has no such op. */
static int heti_fused_op(const het_unit_call *c, const het_node *first, const het_node *second, int way, het_op *op) {
    const int forward = way == HETI_FORWARD, adds = forward && second->kind == HET_NODE_RESIDUAL,
              alone = c->info->program->value[first->y[0]].uses == 1;
    const het_node *linear = forward ? first : second, *other = forward ? second : first;
    float *dx[3] = { NULL, NULL, NULL };
    het_op part;
    if (linear->kind != HET_NODE_LINEAR || linear->outputs != 1 || heti_spreads(c->info->program, linear) ||
        linear->option != HETI_FACTOR_NONE || second->x[0] != first->y[0] ||
        (adds ? !alone || other->inputs != 2 : other->kind != HET_NODE_ACTIVATION || other->inputs != 1))
        return 0;
    if (!forward) dx[0] = heti_rows_of(c, first->x[0], HETI_GRADIENT);
    if (!forward && (!alone || heti_rows_of(c, first->y[0], HETI_GRADIENT) != dx[0])) return 0;
    (void)heti_node_op(c, linear, way, dx, adds ? op : &part);
    if (adds) {
        het_linear_part *sum = &op->u.linear.part[0];
        (void)heti_node_op(c, other, way, dx, &part);
        op->bf16 = (op->bf16 & ~HET_BF16_Y) | (part.bf16 & (HET_BF16_Y | HET_BF16_ADDED));
        sum->y = part.u.dropout.y;
        sum->add = part.u.dropout.a;
        return !(part.u.dropout.probability > 0.0f) && sum->y != sum->add && heti_supports(c->device, *op);
    }
    op->kind = forward ? HET_OP_LINEAR_ACTIVATION_FORWARD : HET_OP_LINEAR_ACTIVATION_BACKWARD;
    op->bf16 = part.bf16;
    op->u.linear_activation.linear = part.u.linear;
    (void)heti_node_op(c, other, way, dx, &part);
    op->u.linear_activation.activation = part.u.activation;
    return heti_supports(c->device, *op);
}

/* ---- attention of a team ----
   A member computes the queries of its group's rows for its own heads: its core. Forward it gets
   the core's q, k, v, backward its do; o, dq, dk, dv go back to the rows they belong to. Where it
   is alone in its group the core is its own rows, and only keys and values of earlier rows come.
   dk and dv are chains over queries descending: the group with the last rows comes first and hands
   on what it has of the rows before its own, so that the sums are those of one rank. */

enum { HETI_CORE_Q, HETI_CORE_K, HETI_CORE_V, HETI_CORE_O, HETI_CORE_GRADIENT };

/* Members [*first, *end) are a member's group. */
static void heti_group_of(const het_team *t, int64_t member, int64_t *first, int64_t *end) {
    for (*first = member; *first > 0 && t->plan[*first - 1].group == t->plan[member].group;) --*first;
    for (*end = member + 1; *end < t->members && t->plan[*end].group == t->plan[member].group;) ++*end;
}

/* The first row whose keys the queries from row `row` on see, or down to 15 before it: devices take
   keys by sixteens, and what they multiply by 0 must be numbers. */
static int64_t heti_first_key(const het_unit_call *c, int64_t row) {
    const int64_t *start = c->view->host_sequence_start, window = c->unit->model->window;
    if (row >= c->view->tokens) return row;
    const int64_t first = start[heti_last_start(start, 0, c->view->sequences, row)];
    return first + (window > 0 ? heti_max(0, row - window + 1 - first) / 16 * 16 : 0);
}

/* Columns of a tensor `width` wide that a member's heads have. */
static void heti_head_columns(const het_unit_call *c, int64_t member, int64_t width, het_box *box) {
    const het_team *t = c->team;
    int64_t before = 0, all = 0, m, end;
    for (heti_group_of(t, member, &m, &end); m < end; m++) {
        if (m < member) before += t->plan[m].heads;
        all += t->plan[m].heads;
    }
    box->column_begin = all > 0 ? width / all * before : 0;
    box->column_end = all > 0 ? width / all * (before + t->plan[member].heads) : width;
}

/* How a tensor lies in a team: a member has its own rows; its core has its group's, with the
   columns of its heads, and of keys and values also the rows before that its queries see (with one
   group, slices before this one have brought them); or every member, or one, has all rows. */
typedef enum heti_lies {
    HETI_IN_ROWS, HETI_IN_CORES, HETI_IN_KEYS, HETI_IN_ALL, HETI_IN_FIRST, HETI_IN_LAST
} heti_lies;

/* What a member has of a tensor `width` wide that lies so. */
static het_box heti_team_box(const het_unit_call *c, heti_lies lies, int64_t member, int64_t width) {
    const het_team *t = c->team;
    const int core = lies == HETI_IN_CORES || lies == HETI_IN_KEYS;
    int64_t first = lies == HETI_IN_ROWS ? member : 0, end = lies == HETI_IN_ROWS ? member + 1 : t->members;
    if ((lies == HETI_IN_FIRST && member > 0) || (lies == HETI_IN_LAST && member + 1 < t->members)) end = 0;
    if (core) heti_group_of(t, member, &first, &end);
    het_box box = { t->row[first], t->row[end], 0, width };
    if (core) heti_head_columns(c, member, width, &box);
    if (lies == HETI_IN_KEYS && box.row_begin < box.row_end && t->plan[t->members - 1].group > 0)
        box.row_begin = heti_first_key(c, box.row_begin);
    return box;
}

/* A tensor that lies in one way comes to lie in another. */
static het_result heti_move_across(const het_unit_call *c, int64_t width, heti_lies had, float *from, heti_lies wanted,
                                 float *to) {
    het_box have[HETRAIN_MAX_TEAM], want[HETRAIN_MAX_TEAM];
    for (int64_t m = 0; m < c->team->members; m++) {
        have[m] = heti_team_box(c, had, m, width);
        want[m] = heti_team_box(c, wanted, m, width);
    }
    const het_box *gives = &have[c->team->member], *gets = &want[c->team->member];
    return c->team->move(c, from, have, gives->column_end - gives->column_begin, to, want,
                         gets->column_end - gets->column_begin);
}

/* Moves tensor `which` (HETI_CORE_...) of a node from rows to cores, or back. */
static het_result heti_move_core(const het_unit_call *c, const het_node *n, int which, int to_core, float *rows) {
    const int keys = which % HETI_CORE_GRADIENT == HETI_CORE_K || which % HETI_CORE_GRADIENT == HETI_CORE_V;
    const heti_lies lies = keys && to_core ? HETI_IN_KEYS : HETI_IN_CORES;
    const int64_t width = c->info->program->value[n->x[keys]].width;
    const het_box box = heti_team_box(c, lies, c->team->member, width);
    float *own = n->core[0] >= 0 ? c->tensor[n->core[which]] : rows - c->view->row_begin * width;
    if (keys) own += box.row_begin * (box.column_end - box.column_begin);
    return to_core ? heti_move_across(c, width, HETI_IN_ROWS, rows, lies, own)
                   : heti_move_across(c, width, lies, own, HETI_IN_ROWS, rows);
}

/* What group g + 1 has of dk and dv before its own rows goes to group g. */
static het_result heti_hand_chain(const het_unit_call *c, const het_node *n, const het_attention_args *a, int64_t g) {
    const int64_t width = c->info->program->value[n->x[1]].width, own = a->kv_heads * a->head_size;
    const het_team *t = c->team;
    het_box have[HETRAIN_MAX_TEAM], want[HETRAIN_MAX_TEAM];
    int64_t m = 0;
    while (t->plan[m].group != g + 1) m++;
    const int64_t end = t->row[m], first = heti_first_key(c, end);
    memset(have, 0, sizeof have);
    memset(want, 0, sizeof want);
    for (m = 0; m < t->members; m++) {
        het_box *box = t->plan[m].group == g ? &want[m] : t->plan[m].group == g + 1 ? &have[m] : NULL;
        if (!box) continue;
        heti_head_columns(c, m, width, box);
        box->row_begin = first;
        box->row_end = end;
    }
    HETI_TRY(t->move(c, a->dk + first * own, have, own, a->dk + first * own, want, own));
    return t->move(c, a->dv + first * own, have, own, a->dv + first * own, want, own);
}

/* The op, filled for the rank's own rows, becomes that of its core. */
static void heti_fill_core(const het_unit_call *c, const het_node *n, het_view *view, het_attention_args *a) {
    int64_t first, end;
    heti_group_of(c->team, c->team->member, &first, &end);
    view->row_begin = c->team->row[first];
    view->row_end = c->team->row[end];
    a->view = view;
    a->heads = a->heads / a->kv_heads * c->team->plan[c->team->member].heads;
    a->kv_heads = c->team->plan[c->team->member].heads;
    a->q = c->tensor[n->core[HETI_CORE_Q]];
    a->k = c->tensor[n->core[HETI_CORE_K]];
    a->v = c->tensor[n->core[HETI_CORE_V]];
    a->o = c->tensor[n->core[HETI_CORE_O]];
    a->dq = c->tensor[n->core[HETI_CORE_GRADIENT + HETI_CORE_Q]];
    a->dk = c->tensor[n->core[HETI_CORE_GRADIENT + HETI_CORE_K]];
    a->dv = c->tensor[n->core[HETI_CORE_GRADIENT + HETI_CORE_V]];
    a->d_o = c->tensor[n->core[HETI_CORE_GRADIENT + HETI_CORE_O]];
}

/* Forward q, k and v go to the core and o comes back; backward do goes, dq, dk and dv come. */
static het_result heti_run_core(const het_unit_call *c, const het_node *n, het_op *op) {
    het_attention_args *a = &op->u.attention;
    const het_team *t = c->team;
    const int64_t group = t->plan[t->member].group;
    const int back = op->kind == HET_OP_ATTENTION_BACKWARD, divided = n->core[0] >= 0,
              first = back ? HETI_CORE_GRADIENT : 0, o = first + HETI_CORE_O;
    float *rows[2 * HETI_CORE_GRADIENT];
    het_view view = *c->view;
    for (int i = 0; i < 2 * HETI_CORE_GRADIENT; i++)
        rows[i] = heti_rows_of(c, i % HETI_CORE_GRADIENT == HETI_CORE_O ? n->y[0] : n->x[i % HETI_CORE_GRADIENT],
                               i < HETI_CORE_GRADIENT ? HETI_VALUE : HETI_GRADIENT);
    rows[HETI_CORE_GRADIENT + HETI_CORE_Q] = a->dq; /* or scratch */
    if (divided) heti_fill_core(c, n, &view, a);
    for (int i = first; i <= o; i++)
        if ((i == o) == back && (i == HETI_CORE_K || i == HETI_CORE_V ? !c->again : divided))
            HETI_TRY(heti_move_core(c, n, i, 1, rows[i]));
    if (back && group < t->plan[t->members - 1].group) HETI_TRY(heti_hand_chain(c, n, a, group));
    HETI_TRY(heti_unit_run(c, op));
    if (back && group > 0) HETI_TRY(heti_hand_chain(c, n, a, group - 1));
    for (int i = first; i <= o && divided; i++)
        if ((i == o) != back) HETI_TRY(heti_move_core(c, n, i, 0, rows[i]));
    return HET_OK;
}

/* ---- products of a team by columns ---- */

/* Rows of block b of a chain, all columns; none: no such one. They are wholes of 16, at most 8. */
static het_box heti_chain_block(const het_unit_call *c, int64_t b, int64_t blocks, int64_t width) {
    const int64_t first = c->team->view->row_begin, rows = heti_view_rows(c->team->view);
    het_box box = { 0, 0, 0, 0 };
    if (b < 0 || b >= blocks) return box;
    box.row_begin = first + rows * b / blocks / 16 * 16;
    box.row_end = b + 1 < blocks ? first + rows * (b + 1) / blocks / 16 * 16 : first + rows;
    box.column_end = width;
    return box;
}

/* A block's part of a chain: one of the node's products, over the member's part of k. */
static het_result heti_run_link(const het_unit_call *c, const het_op *whole, int64_t round, const het_box *block,
                                float *chain, int continues, int ends) {
    const int64_t skipped = block->row_begin - c->team->view->row_begin;
    het_op op = *whole;
    het_linear_args *a = &op.u.linear;
    a->parts = 1;
    a->part[0] = whole->u.linear.part[round];
    a->rows = block->row_end - block->row_begin;
    a->continues = continues;
    if (op.kind == HET_OP_LINEAR_FORWARD) {
        a->x += skipped * a->in;
        a->part[0].y = chain + skipped * a->part[0].out;
        if (!ends) a->part[0].bias = NULL;
    } else {
        a->part[0].dy += skipped * a->part[0].out;
        a->dx = chain + skipped * a->in;
    }
    return heti_unit_run(c, &op);
}

/* A product whose k lies with several members, or products whose sum it is, one round of all
   members each: the member at a place goes on where the one before has stopped, from the first
   place to the last. The sums are those of one rank, because each stays one chain. In step t place
   p has block t - p of the rows, and then hands it on; the last one's rows go to the members they
   belong to. Of two members and three blocks:
       step         0    1    2    3
       member 0     0    1    2               its part of the chain of block 0, 1, 2
       member 1          0    1    2          goes on with it, and ends it */
static het_result heti_run_chain(const het_unit_call *c, const het_node *n, const het_op *op, float *to) {
    const het_team *t = c->team;
    const het_linear_args *a = &op->u.linear;
    const int forward = op->kind == HET_OP_LINEAR_FORWARD;
    const int64_t width = forward ? a->part[0].out : a->in, rounds = forward ? 1 : a->parts, first = t->view->row_begin,
                  blocks = heti_max(1, heti_min(8, heti_view_rows(t->view) / 16)), last = rounds * t->members - 1;
    float *chain = c->tensor[n->core[1]];
    het_box have[HETRAIN_MAX_TEAM], want[HETRAIN_MAX_TEAM];
    for (int64_t step = 0; step < blocks + last; step++)
        for (int64_t j = 0; j < rounds; j++) {
            const int64_t place = j * t->members + t->member;
            const het_box own = heti_chain_block(c, step - place, blocks, width);
            if (own.row_begin < own.row_end)
                HETI_TRY(heti_run_link(c, op, j, &own, chain, place > 0, place == last));
            for (int64_t m = 0; m < t->members; m++) {
                const int64_t from = j * t->members + m, before = m > 0 ? from - 1 : from + t->members - 1;
                have[m] = heti_chain_block(c, from < last ? step - from : -1, blocks, width);
                want[m] = heti_chain_block(c, before < last ? step - before : -1, blocks, width);
            }
            HETI_TRY(t->move(c, chain + (have[t->member].row_begin - first) * width, have, width,
                             chain + (want[t->member].row_begin - first) * width, want, width));
        }
    return heti_move_across(c, width, HETI_IN_LAST, chain, HETI_IN_ROWS, to);
}

/* Of a linear node whose x the team has divided, its result's gradient of all rows, which the
   products for x and for weights read. */
static het_result heti_gather_gradient(const het_unit_call *c, const het_node *n) {
    return heti_move_across(c, c->info->program->value[n->y[0]].own, HETI_IN_ROWS,
                            heti_rows_of(c, n->y[0], HETI_GRADIENT), HETI_IN_ALL, c->tensor[n->core[0]]);
}

/* A linear node whose result the team has divided (spreads > 0), or whose x. */
static het_result heti_run_divided(const het_unit_call *c, const het_node *n, het_op *op, int spreads) {
    het_linear_args *a = &op->u.linear;
    float *all = c->tensor[n->core[0]];
    if (op->kind == HET_OP_LINEAR_FORWARD && spreads < 0) return heti_run_chain(c, n, op, a->part[0].y);
    if (op->kind == HET_OP_LINEAR_BACKWARD_INPUT && spreads > 0) return heti_run_chain(c, n, op, a->dx);
    if (op->kind == HET_OP_LINEAR_FORWARD)
        HETI_TRY(heti_move_across(c, a->in, HETI_IN_ROWS, heti_rows_of(c, n->x[0], HETI_VALUE), HETI_IN_ALL, all));
    if (op->kind == HET_OP_LINEAR_BACKWARD_INPUT) HETI_TRY(heti_gather_gradient(c, n));
    if (spreads > 0) a->x = all;
    else a->part[0].dy = all;
    if (spreads < 0 && c->team->member > 0) a->part[0].dbias = NULL; /* the bias is whole, and one adds to it */
    return heti_unit_run(c, op);
}

static het_result heti_node_run(const het_unit_call *c, const het_node *n, het_op *op) {
    const int spreads = heti_spreads(c->info->program, n);
    const int shared = n->kind == HET_NODE_ATTENTION && c->team && heti_divided_value(c->info->program, n) < 0;
    if (spreads) return heti_run_divided(c, n, op, spreads);
    return shared ? heti_run_core(c, n, op) : heti_unit_run(c, op);
}

static het_result heti_node_forward(const het_unit_call *c, const het_node *n) {
    const int of = n->kind == HET_NODE_LINEAR ? n->option : HETI_FACTOR_NONE;
    const het_program *p = c->info->program;
    het_op op;
    memset(&op, 0, sizeof op);
    if (n->kind == HET_NODE_LOSS && c->logits) return HET_OK; /* they are wanted themselves */
    (void)heti_node_op(c, n, HETI_FORWARD, NULL, &op);
    if (op.kind == HET_OP_DROPOUT_FORWARD && op.u.dropout.x == op.u.dropout.y && !(op.u.dropout.probability > 0.0f))
        return HET_OK;
    if (of == HETI_FACTOR_B) {
        het_linear_part *y = &op.u.linear.part[0];
        float *sum = y->y;
        y->y = c->tensor[p->scratch];
        HETI_TRY(heti_unit_run(c, &op));
        return heti_unit_move(c, 1, n->y[0], HETI_VALUE, sum, y->y);
    }
    HETI_TRY(heti_node_run(c, n, &op));
    return of == HETI_FACTOR_A ? heti_unit_scale(c, n, HETI_VALUE) : HET_OK;
}

static het_result heti_forward_nodes(const het_unit_call *c) {
    const het_program *p = c->info->program;
    het_op op;
    for (int i = 0; i < p->nodes; i++) {
        const het_node *n = &p->node[i];
        if (i + 1 < p->nodes && heti_fused_op(c, n, n + 1, HETI_FORWARD, &op)) {
            HETI_TRY(heti_unit_run(c, &op));
            i++;
        } else HETI_TRY(heti_node_forward(c, n));
    }
    return HET_OK;
}

/* What is known of the values' gradients on the way back. What a residual or a copy hands on needs
   no op: it waits, as an address, for the op that writes the gradient, or for its use. In
   out = x + f(norm(x)), say, the gradient of `out` waits for x. Then f's nodes run, and the norm's
   op, which writes the gradient of x, adds what waits as it writes. */
typedef struct heti_pending {
    float *waiting[HETRAIN_MAX_VALUES];
    int written[HETRAIN_MAX_VALUES], wanted[HETRAIN_MAX_VALUES];
} heti_pending;

/* The gradient is read now, or leaves the unit. */
static het_result heti_settle(const het_unit_call *c, heti_pending *flow, int value) {
    float *to = heti_rows_of(c, value, HETI_GRADIENT), *from = flow->waiting[value];
    const int written = flow->written[value];
    flow->waiting[value] = NULL;
    flow->written[value] = 1;
    if (!from) return HET_OK;
    return heti_unit_move(c, written, value, HETI_GRADIENT, to, from);
}

/* Whether any of a node's parameters is trained. */
static int heti_trains_node(const het_unit_call *c, const het_node *n) {
    for (int i = 0; i < 3; i++)
        if ((n->weight[i] >= 0 && c->gradient[n->weight[i]].sum) || (n->bias[i] >= 0 && c->gradient[n->bias[i]].sum))
            return 1;
    return 0;
}

/* Whose gradients anybody takes: input streams', unless they are unread, and those of what is made
   from such or by trained parameters. Of the first layer with factors behind frozen ones no product
   has a dx, for instance. */
static void heti_find_wanted(const het_unit_call *c, int *wanted) {
    const het_program *p = c->info->program;
    for (int i = 0; i < p->values; i++) wanted[i] = p->value[i].in >= 0 && !c->unread;
    for (int i = 0; i < p->nodes; i++) {
        const het_node *n = &p->node[i];
        int any = heti_trains_node(c, n);
        for (int j = 0; j < n->inputs; j++) any |= wanted[n->x[j]];
        for (int j = 0; j < n->outputs; j++) wanted[n->y[j]] |= any;
    }
}

/* Whether both halves of a norm's way back are one op, which backward_input runs. op: either. */
static int heti_joined_norm(const het_unit_call *c, const het_node *n, const int *wanted, het_op op) {
    op.kind = HET_OP_NORM_BACKWARD;
    return c->joined && (n->kind == HET_NODE_NORM || n->kind == HET_NODE_HEAD_NORM) && wanted[n->x[0]] &&
           heti_trains_node(c, n) && heti_supports(c->device, op);
}

/* Writes the gradients of a node's inputs, or adds to them where others have written them: then the
   op writes to scratch, one input behind the other. Inputs behind heti_writes(n) get the result's
   gradient as it is, without an op. Nothing is done where nobody takes any of them. */
static het_result heti_node_backward(const het_unit_call *c, const het_node *n, heti_pending *flow) {
    const het_program *p = c->info->program;
    float *dx[4] = { NULL }, *next = p->scratch < 0 ? NULL : c->tensor[p->scratch];
    het_op op;
    int i, adds[4] = { 0 }, wanted = 0;
    if (n->kind == HET_NODE_LINEAR && n->option == HETI_FACTOR_A) HETI_TRY(heti_unit_scale(c, n, HETI_GRADIENT));
    for (i = 0; i < n->inputs; i++) wanted |= flow->wanted[n->x[i]];
    if (!wanted) return heti_spreads(p, n) < 0 && heti_trains_node(c, n) ? heti_gather_gradient(c, n) : HET_OK;
    for (i = 0; i < heti_writes(n); i++) {
        adds[i] = flow->written[n->x[i]];
        dx[i] = adds[i] ? next : heti_rows_of(c, n->x[i], HETI_GRADIENT);
        if (adds[i]) next += heti_value_floats(c, n->x[i], HETI_GRADIENT);
        flow->written[n->x[i]] = 1;
    }
    if (!(c->d_out_bf16 && n->x[0] == p->takes) && heti_node_op(c, n, HETI_BACKWARD_INPUT, dx, &op)) {
        if (n->kind == HET_NODE_NORM && !adds[0]) { /* it adds what waits as it writes */
            op.u.norm.residual = flow->waiting[n->x[0]];
            flow->waiting[n->x[0]] = NULL;
            op.u.norm.dx_bf16 = n == p->node ? c->d_in_bf16 : NULL;
        }
        if (heti_joined_norm(c, n, flow->wanted, op)) op.kind = HET_OP_NORM_BACKWARD;
        HETI_TRY(heti_node_run(c, n, &op));
    }
    for (i = 0; i < heti_writes(n); i++)
        if (adds[i])
            HETI_TRY(heti_unit_move(c, 1, n->x[i], HETI_GRADIENT, heti_rows_of(c, n->x[i], HETI_GRADIENT), dx[i]));
    for (; n->outputs > 0 && i < n->inputs; i++) { /* the gradient of the result is that of the input */
        float **waiting = &flow->waiting[n->x[i]], *gradient = heti_rows_of(c, n->y[0], HETI_GRADIENT);
        if (!flow->wanted[n->x[i]]) continue;
        if (*waiting) HETI_TRY(heti_unit_move(c, 1, n->x[i], HETI_GRADIENT, gradient, *waiting));
        *waiting = gradient;
    }
    return HET_OK;
}

static het_result heti_backward_nodes(const het_unit_call *c) {
    const het_program *p = c->info->program;
    heti_pending flow = HETI_ZEROS;
    het_op op;
    heti_find_wanted(c, flow.wanted);
    for (int i = 0; i < p->values; i++) {
        const het_value *v = &p->value[i];
        if (v->out < 0) continue;
        flow.written[i] = 1;
        if (v->tensor[HETI_GRADIENT] >= 0) /* kept longer than the stream's gradient is there */
            HETI_TRY(heti_unit_move(c, 0, i, HETI_GRADIENT, heti_rows_of(c, i, HETI_GRADIENT), c->d_out[v->out]));
    }
    for (int i = p->nodes - 1; i >= 0; i--) {
        const het_node *n = &p->node[i];
        for (int j = 0; j < n->outputs; j++) HETI_TRY(heti_settle(c, &flow, n->y[j]));
        if (i > 0 && heti_fused_op(c, n - 1, n, HETI_BACKWARD_INPUT, &op) && flow.wanted[n->x[0]]) {
            HETI_TRY(heti_unit_run(c, &op));
            flow.written[p->node[--i].x[0]] = 1;
        } else HETI_TRY(heti_node_backward(c, n, &flow));
    }
    for (int i = 0; i < p->values; i++)
        if (p->value[i].in >= 0) HETI_TRY(heti_settle(c, &flow, i));
    return HET_OK;
}

/* Makes a value again that was not kept until here; once a call, where `made` says by node. */
static het_result heti_make_again(const het_unit_call *c, int value, int *made) {
    const het_program *p = c->info->program;
    const int maker = p->value[value].node;
    if (c->info->is_loss) return HET_OK; /* the same call has made it */
    if (maker < 0 || made[maker] || !heti_again(c->info, &p->node[maker]) || heti_is_kept(p, value)) return HET_OK;
    made[maker] = 1;
    for (int i = 0; i < p->node[maker].inputs; i++) HETI_TRY(heti_make_again(c, p->node[maker].x[i], made));
    return heti_node_forward(c, &p->node[maker]);
}

HETRAIN_API het_result het_program_backward_weight(const het_unit_call *c) {
    const het_program *p = c->info->program;
    int made[HETRAIN_MAX_NODES] = { 0 }, wanted[HETRAIN_MAX_VALUES], i;
    heti_find_wanted(c, wanted);
    for (i = p->nodes - 1; i >= 0; i--) {
        const het_node *n = &p->node[i];
        het_op op;
        if (!heti_trains_node(c, n)) continue;
        (void)heti_node_op(c, n, HETI_BACKWARD_WEIGHT, NULL, &op);
        if (heti_joined_norm(c, n, wanted, op)) continue;
        if (n->inputs > 0 && heti_spreads(p, n) < 1) HETI_TRY(heti_make_again(c, n->x[0], made));
        HETI_TRY(heti_node_run(c, n, &op));
    }
    return HET_OK;
}

/* Rows [begin, end) of the micro-batch, which are granules [g, behind), through a loss unit:
   forward and, in training, both ways back, so that no logits but these exist. The unit's tensors
   lie at the workspace's front. The first granules may overwrite a gradient, later ones add. */
static het_result heti_loss_rows(const het_unit_call *c, int64_t begin, int64_t end, int64_t g, int64_t behind) {
    const int64_t first = begin - c->view->row_begin;
    het_unit_call own = *c;
    het_view view = *c->view;
    const size_t used = heti_loss_tensors(c->info, HETI_CAST(char *, c->workspace), own.tensor);
    own.view = &view;
    view.row_begin = begin;
    view.row_end = end;
    view.granule_begin = g;
    view.granule_end = behind;
    own.rows = end - begin;
    own.joined = 1;
    own.workspace = HETI_CAST(char *, c->workspace) + used;
    own.workspace_size -= used;
    if (c->row_loss) own.row_loss += first;
    if (c->logits) own.tensor[c->info->program->value[c->info->program->logits].tensor[HETI_VALUE]] = c->logits;
    for (int64_t i = 0; i < c->info->in_streams; i++) {
        own.in[i] += first * heti_stream_floats(c->info, c->info->in_width[i]);
        if (c->d_in[i]) own.d_in[i] += first * heti_stream_floats(c->info, c->info->in_width[i]);
    }
    if (c->d_in_bf16) own.d_in_bf16 += first * c->info->in_width[0];
    for (int64_t i = 0; i < c->info->parameters && g > c->view->granule_begin; i++)
        own.gradient[i].beta = 1; /* the first granules have written */
    HETI_TRY(heti_forward_nodes(&own));
    if (!c->training) return HET_OK;
    HETI_TRY(heti_backward_nodes(&own));
    return het_program_backward_weight(&own);
}

HETRAIN_API het_result het_program_backward_input(const het_unit_call *c) {
    const het_view *v = c->view;
    const int64_t *start = v->host_granule_start;
    int64_t next;
    if (!c->info->is_loss) return heti_backward_nodes(c);
    if (c->logits)
        return heti_loss_rows(c, v->row_begin + c->logits_from, v->row_end, v->granule_begin, v->granule_begin + 1);
    for (int64_t g = v->granule_begin; g < v->granule_end; g = next) {
        for (next = g + 1; next < v->granule_end && start[next + 1] - start[g] <= c->info->loss_rows;) next++;
        HETI_TRY(heti_loss_rows(c, start[g], start[next], g, next));
    }
    return HET_OK;
}

HETRAIN_API het_result het_program_forward(const het_unit_call *call) {
    return call->info->is_loss ? HET_OK : heti_forward_nodes(call);
}

/* ---- embed: tokens (and learned positions) to the residual stream ---- */

static het_result heti_embed_describe(const het_unit *unit, het_unit_info *info) {
    const het_model_desc *m = unit->model;
    het_program *p = het_program_begin(unit, info);
    const int e = het_node_embedding(p, heti_role_name(m, HETI_ROLE_EMBED),
                                     m->position == HET_LEARNED ? heti_role_name(m, HETI_ROLE_POSITIONS) : NULL);
    het_node_output(p, het_node_residual(p, -1, e)); /* dropout alone */
    return het_program_end(p);
}

/* ---- layers ---- */

/* y[i] = x W^T (+ b) for `count` matrices of the roles `first`, first + 1, ... */
static void heti_layer(het_program *p, int x, int first, int count, int *y) {
    const het_model_desc *m = p->unit->model;
    const int64_t q = m->heads * m->head_size, k = m->kv_heads * m->head_size;
    het_matrix matrix[3];
    for (int i = 0; i < count; i++) {
        const int role = first + i, qkv = role <= HETI_ROLE_V;
        const int residual = role == HETI_ROLE_ATTENTION_OUT || role == HETI_ROLE_DOWN;
        matrix[i].name = heti_role_name(m, role);
        matrix[i].out = role == HETI_ROLE_Q ? q : qkv ? k : residual ? m->width : m->mlp_width;
        matrix[i].bias = heti_yes(qkv ? m->qkv_bias : m->linear_bias);
        matrix[i].init_std = m->init_std;
        if (residual && m->family == HET_GPT2) /* they start smaller (GPT-2 paper, section 2.3) */
            matrix[i].init_std = HETI_CAST(float, HETI_CAST(double, m->init_std) /
                                                  sqrt(2.0 * HETI_CAST(double, m->layers)));
        matrix[i].low_rank = (m->lora_targets & heti_roles[role].target) != 0;
    }
    het_node_linears(p, x, count, matrix, y);
}

/* ---- attention ----
     h = norm(x)                                           x, h [n][D]
     q = h Wq^T, k = h Wk^T, v = h Wv^T                    q [n][H E]; k, v [n][K E]; biases, factors if any
     q, k = norm of each head; q, k = rotated              as the model says
     o = softmax(q k^T / sqrt(E)) v                        [n][H E]; query head i reads key head i K / H
     out = x + dropout(o Wo^T)                             [n][D]
   With parallel residuals (NeoX) x goes out as well, as stream 0: the MLP reads the same x. */
static het_result heti_attention_describe(const het_unit *unit, het_unit_info *info) {
    const het_model_desc *m = unit->model;
    het_program *p = het_program_begin(unit, info);
    const int x = het_node_input(p, 0, m->width), h = het_node_norm(p, x, heti_role_name(m, HETI_ROLE_ATTENTION_NORM));
    int qkv[3], y;
    heti_layer(p, h, HETI_ROLE_Q, 3, qkv);
    int q = qkv[0], k = qkv[1];
    if (heti_yes(m->qk_norm)) {
        q = het_node_head_norm(p, q, heti_role_name(m, HETI_ROLE_Q_NORM));
        k = het_node_head_norm(p, k, heti_role_name(m, HETI_ROLE_K_NORM));
    }
    if (m->position == HET_ROTARY) {
        q = het_node_rotary(p, q);
        k = het_node_rotary(p, k);
    }
    const int o = het_node_attention(p, q, k, qkv[2]);
    heti_layer(p, o, HETI_ROLE_ATTENTION_OUT, 1, &y);
    const int out = het_node_residual(p, x, y);
    if (heti_yes(m->parallel)) het_node_output(p, x);
    het_node_output(p, out);
    return het_program_end(p);
}

/* ---- mlp ----
     h = norm(x)                                           x, h [n][D]
     u = gelu(h Wup^T), or silu(h Wgate^T) (h Wup^T)       [n][F]
     out = x + dropout(u Wdown^T)                          [n][D]
   With parallel residuals the sum is taken with stream 1, attention's. */
static het_result heti_mlp_describe(const het_unit *unit, het_unit_info *info) {
    const het_model_desc *m = unit->model;
    const int gated = m->activation == HET_SWIGLU;
    het_program *p = het_program_begin(unit, info);
    const int x = het_node_input(p, 0, m->width), rest = heti_yes(m->parallel) ? het_node_input(p, 1, m->width) : x;
    const int h = het_node_norm(p, x, heti_role_name(m, HETI_ROLE_MLP_NORM));
    int up[2], u, y;
    heti_layer(p, h, gated ? HETI_ROLE_GATE : HETI_ROLE_UP, 1 + gated, up);
    u = het_node_activation(p, m->activation, up[0], up[gated]);
    heti_layer(p, u, HETI_ROLE_DOWN, 1, &y);
    het_node_output(p, het_node_residual(p, rest, y));
    return het_program_end(p);
}

/* ---- head: loss = cross-entropy(norm(x) W^T), W [V][D], the embedding's where they are tied ----
   A local head has both to itself, and passes x on. */

static het_result heti_describe_head(const het_unit *unit, het_unit_info *info, int local) {
    const het_model_desc *m = unit->model;
    const char *norm = local ? "local_head.#.norm" : heti_role_name(m, HETI_ROLE_FINAL_NORM),
               *name = local ? "local_head.#" : heti_role_name(m, heti_yes(m->tied) ? HETI_ROLE_EMBED : HETI_ROLE_HEAD);
    het_program *p = het_program_begin(unit, info);
    const int x = het_node_input(p, 0, m->width);
    het_node_loss(p, het_node_linear(p, het_node_norm(p, x, norm), name, m->vocab, m->init_std));
    if (local) het_node_output(p, x);
    for (int64_t i = 0; i < info->parameters; i++) info->parameter[i].adapter = local;
    return het_program_end(p);
}

static het_result heti_head_describe(const het_unit *unit, het_unit_info *info) {
    return heti_describe_head(unit, info, 0);
}

static het_result heti_local_head_describe(const het_unit *unit, het_unit_info *info) {
    return heti_describe_head(unit, info, 1);
}

/* ---- the chain ---- */

/* het_unit_embed() and so on. */
#define HETI_UNIT(name) \
    static const het_unit_iface heti_unit_##name = { \
        HETRAIN_UNIT_VERSION, #name, heti_##name##_describe, het_program_forward, het_program_backward_input, \
        het_program_backward_weight }; \
    HETRAIN_API const het_unit_iface *het_unit_##name(void) { return &heti_unit_##name; }
HETI_UNIT(embed)
HETI_UNIT(attention)
HETI_UNIT(mlp)
HETI_UNIT(head)
HETI_UNIT(local_head)

static int64_t heti_unit_count(const het_model_desc *m) { return 2 * m->layers + 2 + heti_local_heads(m); }

/* Behind embed come groups of local_loss layers, each but the last with its head. */
static het_unit heti_model_unit(const het_model_desc *model, int64_t index) {
    const int64_t every = model->local_loss > 0 ? heti_min(model->local_loss, model->layers) : model->layers,
                  group = (index - 1) / (2 * every + 1), within = (index - 1) % (2 * every + 1);
    het_unit unit = HETI_ZEROS;
    unit.iface = index == 0 ? &heti_unit_embed : index + 1 == heti_unit_count(model) ? &heti_unit_head :
                 within == 2 * every ? &heti_unit_local_head : within % 2 ? &heti_unit_mlp : &heti_unit_attention;
    unit.model = model;
    unit.layer = index == 0 ? 0 : unit.iface == &heti_unit_head ? model->layers :
                 group * every + heti_min(within / 2, every - 1);
    return unit;
}

HETRAIN_API het_result het_model_units(const het_model_desc *model, het_unit *units, int64_t capacity, int64_t *count,
                                       het_error *error) {
    const char *where = "het_model_units";
    HETI_REFUSE(!model || !count || (!units && capacity != 0), "model, units and count must not be NULL");
    HETI_REFUSE(model->layers < 1 || model->layers > INT32_MAX / 4,
                "layers is %d; complete the model with het_model_complete first", model->layers);
    const int64_t needed = heti_unit_count(model);
    if (units && capacity < needed)
        return heti_fail(error, HET_ERR_LIMIT, "%s: room for %d units, the model has %d", where, capacity, needed);
    for (int64_t u = 0; u < needed && units; u++) units[u] = heti_model_unit(model, u);
    *count = needed;
    return HET_OK;
}

/* =================================================================================================
   >>plans  Plans and schedules in memory, shares of micro-batches, what makes a plan valid.
   ============================================================================================== */

/* ---- schedules and plans as blocks of memory ---- */

static void heti_schedule_layout(heti_arena *arena, int64_t ranks, int64_t pipelines, int64_t actions,
                                 het_schedule **schedule) {
    het_schedule *to = HETI_TAKE(arena, het_schedule, 1), s = HETI_ZEROS;
    s.ranks = ranks;
    s.pipelines = pipelines;
    s.micro_batches = HETI_TAKE(arena, int64_t, pipelines);
    s.start = HETI_TAKE(arena, int64_t, ranks < 0 ? ranks : heti_min(ranks, INT64_MAX - 1) + 1);
    s.action = HETI_TAKE(arena, het_action, actions);
    s.size = arena->size;
    if (to == NULL) return;
    *to = s;
    *schedule = to;
}

HETRAIN_API het_result het_schedule_new(int64_t ranks, int64_t pipelines, int64_t actions,
                                        const het_allocator *allocator, const char *where, het_schedule **schedule,
                                        het_error *error) {
    het_allocator chosen;
    heti_arena arena = HETI_ZEROS;
    HETI_REFUSE(!schedule, "schedule is NULL");
    *schedule = NULL;
    HETI_TRY(heti_choose_allocator(allocator, &chosen, where, error));
    HETI_TAKE_ALL(&arena, &chosen, where, error, heti_schedule_layout(&arena, ranks, pipelines, actions, schedule));
    (*schedule)->allocator = chosen;
    return HET_OK;
}

/* Empty lists with room for so many actions of the same micro-batches. */
static het_result heti_schedule_like(const het_schedule *from, int64_t actions, const het_allocator *allocator,
                                     const char *where, het_schedule **schedule, het_error *error) {
    HETI_TRY(het_schedule_new(from->ranks, from->pipelines, actions, allocator, where, schedule, error));
    HETI_COPY((*schedule)->micro_batches, from->micro_batches, from->pipelines);
    return HET_OK;
}

HETRAIN_API void het_schedule_free(het_schedule *schedule) {
    if (schedule != NULL) heti_free(&schedule->allocator, schedule, schedule->size);
}

/* The arrays of a plan: type, name, count and what there is beside that. */
#define HETI_PLAN_ARRAYS(X) \
    X(het_stage, stage, stages, 0) X(int64_t, first_stage, pipelines, 1) X(double, share, pipelines, 0) \
    X(double, state_share, ranks, 0) X(double, slice_share, slices, 0) X(het_team_member, member, members, 0) \
    X(int64_t, near, ranks, 0) X(uint8_t, keeper, ranks, 0) X(uint8_t, cut, units, 0)

static void heti_plan_layout(heti_arena *arena, const het_plan *shape, het_plan **plan) {
    het_plan *to = HETI_TAKE(arena, het_plan, 1), p = *shape;
#define HETI_TAKE_ARRAY(type, array, count, more) \
    p.array = HETI_TAKE(arena, type, heti_min(shape->count, INT64_MAX - 1) + more);
    HETI_PLAN_ARRAYS(HETI_TAKE_ARRAY)
#undef HETI_TAKE_ARRAY
    p.size = arena->size;
    if (to == NULL) return;
    *to = p;
    *plan = to;
}

HETRAIN_API het_result het_plan_new(const het_plan *shape, const het_allocator *allocator, const char *where,
                                    het_plan **plan, het_error *error) {
    het_allocator chosen;
    heti_arena arena = HETI_ZEROS;
    if (plan) *plan = NULL;
    HETI_REFUSE(!shape || !plan, "shape or plan is NULL");
    HETI_TRY(heti_choose_allocator(allocator, &chosen, where, error));
    HETI_TAKE_ALL(&arena, &chosen, where, error, heti_plan_layout(&arena, shape, plan));
    (*plan)->allocator = chosen;
    return HET_OK;
}

HETRAIN_API het_result het_plan_copy(const het_plan *from, const het_allocator *allocator, const char *where,
                                     het_plan **plan, het_error *error) {
    HETI_TRY(het_plan_new(from, allocator, where, plan, error));
#define HETI_COPY_ARRAY(type, array, count, more) \
    if (from->array) HETI_COPY((*plan)->array, from->array, from->count + more);
    HETI_PLAN_ARRAYS(HETI_COPY_ARRAY)
#undef HETI_COPY_ARRAY
    return HET_OK;
}

HETRAIN_API void het_plan_free(het_plan *plan) {
    if (plan != NULL) heti_free(&plan->allocator, plan, plan->size);
}

/* ---- teams ---- */

HETRAIN_API const het_team_member *het_plan_team(const het_plan *plan, int64_t rank, int64_t *count) {
    const het_team_member *member = plan->member;
    int64_t first = rank >= 0 && rank < plan->members && member[rank].rank == rank ? rank : 0, end; /* mostly there */
    while (first < plan->members && member[first].rank != rank) first++;
    *count = 1;
    if (first == plan->members) return NULL;
    for (end = first + 1; end < plan->members && member[end].leader == member[first].leader;) end++;
    while (first > 0 && member[first - 1].leader == member[first].leader) first--;
    *count = end - first;
    return &member[first];
}

/* Whose stages a rank runs: its own, or its leader's. */
static int64_t heti_leader(const het_plan *plan, int64_t rank) {
    int64_t count;
    const het_team_member *team = het_plan_team(plan, rank, &count);
    return team ? team->leader : rank;
}

/* Whether a rank, or its team, has a stage. */
static int heti_has_stages(const het_plan *plan, int64_t rank) {
    const int64_t leader = heti_leader(plan, rank);
    int64_t s = leader < plan->stages && plan->stage[leader].rank == leader ? leader : 0; /* mostly there */
    while (s < plan->stages && plan->stage[s].rank != leader) s++;
    return s < plan->stages;
}

static int64_t heti_team_size(const het_plan *plan, int64_t leader) {
    int64_t count;
    (void)het_plan_team(plan, leader, &count);
    return count;
}

static int64_t heti_team_rank(const het_plan *plan, int64_t leader, int64_t member) {
    int64_t count;
    const het_team_member *team = het_plan_team(plan, leader, &count);
    return team ? team[member].rank : leader;
}

HETRAIN_API int het_plan_backward(const het_plan *plan, int64_t stage) {
    const het_stage *s = &plan->stage[stage];
    const int first = stage == plan->first_stage[s->pipeline];
    int64_t u = s->unit_end - 1;
    if (!plan->cut) return first ? 1 : 2;
    while (u >= s->unit_begin && plan->cut[u] == HET_CUT_NONE) u--;
    if (u < s->unit_begin) return 0;
    return first || plan->cut[s->unit_begin - 1] ? 1 : 2;
}

/* Whether a stage gets a gradient from the one behind it. */
static int heti_gets_gradient(const het_plan *plan, int64_t stage) {
    return stage + 1 < plan->first_stage[plan->stage[stage].pipeline + 1] && het_plan_backward(plan, stage + 1) == 2;
}

static int heti_keeps(const het_plan *plan, int64_t rank) { return plan->keeper != NULL && plan->keeper[rank] != 0; }

/* ---- an action in its list and in its plan ---- */

/* A rank's list lies from here to where the next rank's begins. */
static const het_action *heti_list_of(const het_schedule *s, int64_t rank) { return s->action + s->start[rank]; }

/* Number of its stage. */
static int64_t heti_stage_at(const het_plan *plan, const het_action *a) {
    return plan->first_stage[a->pipeline] + a->stage;
}

/* The rank of the stage `by` further along; -1: there is none. */
static int64_t heti_rank_at(const het_plan *plan, const het_action *a, int64_t by) {
    const int64_t stage = heti_stage_at(plan, a) + by;
    if (stage < plan->first_stage[a->pipeline] || stage >= plan->first_stage[a->pipeline + 1]) return -1;
    return plan->stage[stage].rank;
}

/* Whether it makes the gradient of its stage's input. */
static int heti_goes_back(const het_action *a) { return a->kind == HET_ACTION_B || a->kind == HET_ACTION_I; }

/* The rank that an F gets its input from or (gives) hands its output to, a B or I its gradient; -1:
   there is none. */
static int64_t heti_neighbour(const het_plan *plan, const het_action *a, int gives) {
    const int forward = a->kind == HET_ACTION_F;
    const int64_t stage = heti_stage_at(plan, a);
    if (!forward && (!heti_goes_back(a) || !(gives ? het_plan_backward(plan, stage) == 2
                                                   : heti_gets_gradient(plan, stage))))
        return -1;
    return heti_rank_at(plan, a, forward == gives ? 1 : -1);
}

/* What its slice recomputes (het_recompute). */
static int32_t heti_recompute_of(const het_plan *plan, const het_action *a) {
    const het_stage *stage = &plan->stage[heti_stage_at(plan, a)];
    return HETI_CAST(uint32_t, a->slice) < 64 && (stage->keep >> a->slice & 1) != 0 ? 0 : stage->recompute;
}

/* Whether some slices of a stage recompute and others do not; an action's is one of the former. */
static int heti_is_mixed(const het_stage *stage) { return stage->keep != 0 && stage->recompute != HET_RECOMPUTE_NONE; }
static int heti_is_lean(const het_plan *plan, const het_action *a) {
    return plan->stage[heti_stage_at(plan, a)].keep != 0 && heti_recompute_of(plan, a) != 0;
}

/* ---- shares ---- */

/* What a pipeline should get of `micro_batches`; the sum of shares is total, 0: all alike. */
static double heti_divide_quota(const het_plan *plan, int64_t pipeline, double total, int64_t micro_batches) {
    if (total > 0) return HETI_CAST(double, micro_batches) * (plan->share[pipeline] / total);
    return HETI_CAST(double, micro_batches) / HETI_CAST(double, plan->pipelines);
}

/* Whole parts first. The rest goes one each to those that lack most of their quota; what lacks less
   than 2^-30 more lacks the same, so that rounding of the shares decides nothing. */
HETRAIN_API void het_plan_micro_batches(const het_plan *plan, int64_t micro_batches, int64_t *counts) {
    const double near = 9.3132257461547852e-10; /* 2^-30 */
    double total = 0;
    int64_t left = micro_batches;
    for (int64_t p = 0; p < plan->pipelines; p++) total += plan->share[p];
    for (int64_t p = 0; p < plan->pipelines; p++) {
        counts[p] = heti_min(left, HETI_CAST(int64_t, heti_divide_quota(plan, p, total, micro_batches) + near));
        left -= counts[p];
    }
    for (; left > 0; left--) {
        double most = -HETI_DINFINITY;
        int64_t best = 0;
        for (int64_t p = 0; p < plan->pipelines; p++) {
            const double quota = heti_divide_quota(plan, p, total, micro_batches);
            if (!(quota > 0.0) || !(quota - HETI_CAST(double, counts[p]) > most + near)) continue;
            most = quota - HETI_CAST(double, counts[p]);
            best = p;
        }
        counts[best]++;
    }
}

/* The most of `rows` that a share has: cuts move to the next granule. */
static int64_t heti_share_rows(int64_t rows, double share, int64_t granule) {
    return heti_min(rows, HETI_CAST(int64_t, HETI_CAST(double, rows) * share) + 2 + granule);
}

/* How much of a micro-batch the largest slice can hold: of one with rows in the last n alone, which
   has fewer than (n + 1) slice_tokens, too. One sequence has granules of one length, but for its
   last one: heti_cut_batch then never takes more of them than a share has, rounded up. */
static int64_t heti_largest_slice(const het_plan *plan, int64_t tokens, int64_t sequences, int64_t granule) {
    int64_t most = 0, rows;
    double total = 0.0, largest = 0.0;
    if (plan->slices == 1) return tokens;
    for (int64_t n = 1; n <= plan->slices; n++) {
        const double share = plan->slice_share[plan->slices - n], few = HETI_CAST(double, plan->slice_tokens) *
                             HETI_CAST(double, n + 1);
        total += share;
        if (share > largest) largest = share;
        if (n < plan->slices && plan->slice_tokens == 0) continue;
        rows = n == plan->slices || few > HETI_CAST(double, tokens) ? tokens : HETI_CAST(int64_t, few);
        if (sequences != 1) rows = heti_share_rows(rows, largest / total, granule);
        else {
            const double granules = HETI_CAST(double, rows) / HETI_CAST(double, granule) * (largest / total);
            rows = heti_min(rows, (HETI_CAST(int64_t, granules - 1e-6) + 1) * granule);
        }
        most = heti_max(most, rows);
    }
    return most;
}

HETRAIN_API void het_plan_rows(const het_plan *plan, int64_t rank, int64_t tokens, int64_t sequences, int64_t granule,
                               het_team_limits *limits) {
    const het_team_member *team, *own;
    double all = 0.0, before = 0.0, group = 0.0;
    memset(limits, 0, sizeof *limits);
    own = team = het_plan_team(plan, rank, &limits->members);
    limits->rows = limits->group_rows = heti_largest_slice(plan, tokens, sequences, granule);
    limits->kept_rows = tokens;
    limits->groups = 1;
    if (limits->members == 1) return;
    while (own->rank != rank) own++;
    limits->member = own - team;
    limits->plan = team->columns ? team : NULL;
    limits->groups = team[limits->members - 1].group + 1;
    for (const het_team_member *m = team; m < team + limits->members; m++) {
        all += m->share;
        if (m->group < own->group) before += m->share;
        if (m->group == own->group) group += m->share;
        if (m->group == own->group && m != own) limits->heads = own->heads;
    }
    limits->rows = heti_share_rows(limits->rows, own->share / all, granule);
    limits->group_rows = heti_share_rows(limits->group_rows, group / all, granule);
    if (own->group + 1 < limits->groups) limits->kept_rows = heti_share_rows(tokens, (before + group) / all, granule);
}

HETRAIN_API void het_tree_grow(het_tree_place *place, int64_t count, const double *seconds) {
    double heard[HETRAIN_TREE_MOST] = { 0.0 };
    int64_t at[HETRAIN_TREE_MOST], i, j, k; /* at: which row of `seconds` it has */
    place[0].from = -1;
    for (i = 0; i < count && seconds; i++) at[i] = i;
    for (k = 1; k < count; k++) {
        double first = HETI_DINFINITY;
        int64_t from = (k - 1) / HETRAIN_TREE_MOST, to = k, rank;
        for (j = k; j < count && seconds; j++)
            for (i = 0; i < k; i++) {
                const double time = heard[i] + seconds[at[i] * count + at[j]];
                if (!(time < first)) continue;
                first = time;
                from = i;
                to = j;
            }
        rank = place[to].rank;
        place[to].rank = place[k].rank;
        place[k].rank = rank;
        place[k].from = place[from].rank;
        if (!seconds) continue;
        i = at[to];
        at[to] = at[k];
        at[k] = i;
        heard[k] = first;
    }
}

/* ---- what makes a plan valid ---- */

#define HETI_PLANS_COUNT INT64_C(0x7fffffff) /* most units, ranks, micro-batches: actions hold int32 */
#define HETI_MOST_UPDATES INT64_C(65536)

/* The most that a stage has; where none has more than 1 a step is synchronous. */
static int64_t heti_updates(const het_plan *plan) {
    int64_t most = 1;
    for (int64_t i = 0; i < plan->stages && plan->updates > most; i++)
        most = heti_max(most, plan->stage[i].updates > 0 ? plan->stage[i].updates : plan->updates);
    return most;
}

/* Of how many updates in a row owners take gradients at once: a rank's list may be so far ahead. */
static int64_t heti_window(const het_plan *plan) {
    return heti_max(1, heti_min(plan->staleness, heti_updates(plan)));
}

/* A pipeline's stages hold every unit once, in order. */
static het_result heti_plan_check_chain(const het_plan *plan, int64_t p, const char *where, het_error *error) {
    int64_t next = 0;
    for (int64_t i = plan->first_stage[p]; i < plan->first_stage[p + 1]; i++) {
        const het_stage *stage = &plan->stage[i];
        const int64_t number = i - plan->first_stage[p], begin = stage->unit_begin, end = stage->unit_end;
        HETI_REFUSE(begin >= end, "pipeline %d, stage %d is empty: units [%d, %d)", p, number, begin, end);
        HETI_REFUSE(begin > next, "pipeline %d: unit %d is not held: stage %d begins at unit %d", p, next, number,
                    begin);
        HETI_REFUSE(begin < 0 || end > plan->units, "pipeline %d, stage %d: units [%d, %d) of a chain of %d", p, number,
                    begin, end, plan->units);
        HETI_REFUSE(begin < next, "pipeline %d: unit %d is held twice, by stage %d", p, begin, number);
        HETI_REFUSE(stage->recompute < HET_RECOMPUTE_NONE || stage->recompute > HET_RECOMPUTE_STAGE,
                    "pipeline %d, stage %d: recompute is %i; 0 is none, 1 unit by unit, 2 the stage", p, number,
                    stage->recompute);
        const int64_t some = stage->recompute_units, most = stage->recompute == HET_RECOMPUTE_UNIT ? end - begin : 0;
        HETI_REFUSE(some < 0 || some > most, "pipeline %d, stage %d: %d of %d units recompute", p, number, some, most);
        HETI_REFUSE(plan->slices < 64 && stage->keep >> plan->slices != 0,
                    "pipeline %d, stage %d: keep is 0x%x; there are %d slices", p, number, stage->keep, plan->slices);
        HETI_REFUSE(stage->store < 0, "pipeline %d, stage %d: store is %i", p, number, stage->store);
        HETI_REFUSE(stage->updates < 0 || stage->updates > heti_max(plan->updates, 1), "pipeline %d, stage %d: %i "
                    "updates of a step's %d", p, number, stage->updates, heti_max(plan->updates, 1));
        next = end;
    }
    return next < plan->units ?
        heti_invalid(error, where, "pipeline %d: unit %d is not held by any stage", p, next) : HET_OK;
}

/* What every user of a plan relies on: numbers in range, stages pipeline by pipeline on ranks that
   exist, and where the plan has cuts of units that exist. */
static het_result heti_plan_check_shape(const het_plan *plan, const char *where, het_error *error) {
    HETI_REFUSE(plan == NULL, "plan is NULL");
    HETI_REFUSE(plan->stage == NULL || plan->first_stage == NULL, "the plan's stages must not be NULL");
    HETI_REFUSE(plan->members < 0 || (plan->members > 0 && !plan->member), "%d members of teams at %s", plan->members,
                plan->member ? "an address" : "NULL");
    HETI_REFUSE(plan->ranks < 1 || plan->ranks > INT32_MAX || plan->pipelines < 1 || plan->pipelines > INT32_MAX ||
                plan->stages > INT32_MAX || plan->slices < 1 || plan->slices > INT32_MAX,
                "%d ranks, %d pipelines, %d stages, %d slices; each must be from 1 to 2^31 - 1", plan->ranks,
                plan->pipelines, plan->stages, plan->slices);
    HETI_REFUSE(plan->first_stage[0] != 0 || plan->first_stage[plan->pipelines] != plan->stages,
                "pipelines hold stages %d to %d, the plan has %d", plan->first_stage[0],
                plan->first_stage[plan->pipelines], plan->stages);
    for (int64_t p = 0; p < plan->pipelines; p++)
        HETI_REFUSE(plan->first_stage[p + 1] <= plan->first_stage[p], "pipeline %d has no stage", p);
    for (int64_t p = 0; p < plan->pipelines; p++)
        for (int64_t s = plan->first_stage[p]; s < plan->first_stage[p + 1]; s++)
            HETI_REFUSE(plan->stage[s].rank < 0 || plan->stage[s].rank >= plan->ranks || plan->stage[s].pipeline != p,
                        "pipeline %d, stage %d: is of pipeline %d, on rank %d; there are %d ranks", p,
                        s - plan->first_stage[p], plan->stage[s].pipeline, plan->stage[s].rank, plan->ranks);
    HETI_REFUSE(plan->updates < 0 || plan->updates > HETI_MOST_UPDATES || plan->staleness < 0,
                "%d updates of weights in a step, at most %d late; at most %d updates, and not negative", plan->updates,
                plan->staleness, HETI_MOST_UPDATES);
    HETI_REFUSE(plan->slice_tokens < 0, "slice_tokens is %d; 0 is none", plan->slice_tokens);
    HETI_REFUSE(memchr(plan->schedule, 0, sizeof plan->schedule) == NULL, "the schedule's name has no end");
    for (int64_t p = 0; p < plan->pipelines && plan->cut; p++) HETI_TRY(heti_plan_check_chain(plan, p, where, error));
    return HET_OK;
}

/* Shares are in [1e-30, 1e30], so that sums and quotients stay finite, or some 0 where `zeros`. */
static het_result heti_plan_check_shares(const double *share, int64_t count, int zeros, const char *what,
                                         const char *where, het_error *error) {
    int64_t used = 0;
    HETI_REFUSE(share == NULL, "the plan's shares of %s are NULL", what);
    for (int64_t i = 0; i < count; i++) {
        const int is_zero = zeros && share[i] <= 0.0 && share[i] >= 0.0;
        HETI_REFUSE(!is_zero && !(share[i] >= 1e-30 && share[i] <= 1e30),
                    "of the shares of %s, number %d is %g, not %sfrom 1e-30 to 1e30", what, i, share[i],
                    zeros ? "0 or " : "");
        used += !is_zero;
    }
    return used > 0 ? HET_OK : heti_invalid(error, where, "the shares of all %d %s are 0", count, what);
}

/* Member i, behind those of its team before it. */
static het_result heti_plan_check_member(const het_plan *plan, int64_t i, const char *where, het_error *error) {
    const het_team_member *m = &plan->member[i], *before = i > 0 && m[-1].leader == m->leader ? m - 1 : NULL,
                          *behind = i + 1 < plan->members && m[1].leader == m->leader ? m + 1 : NULL;
    const int shares = (before && before->group == m->group) || (behind && behind->group == m->group);
    HETI_REFUSE(m->rank < 0 || m->rank >= plan->ranks, "the team of rank %d: rank %d; there are %d ranks", m->leader,
                m->rank, plan->ranks);
    for (int64_t k = 0; k < i; k++)
        HETI_REFUSE(plan->member[k].rank == m->rank || (!before && plan->member[k].leader == m->leader),
                    "rank %d is in the team of rank %d and in that of rank %d", m->rank, plan->member[k].leader,
                    m->leader);
    HETI_REFUSE(!before && m->rank != m->leader, "the team of rank %d begins with rank %d", m->leader, m->rank);
    HETI_REFUSE(before ? m->group < before->group || m->group > before->group + 1 : m->group != 0,
                "the team of rank %d: rank %d is in group %d; groups follow each other from 0 on", m->leader, m->rank,
                m->group);
    HETI_REFUSE((before && m->columns != before->columns) || (m->columns != 0 && (m->columns != 1 || m->group > 0)),
                "the team of rank %d: rank %d is in group %d and has columns %d; a team by columns is one group, and "
                "all its members are in it", m->leader, m->rank, m->group, m->columns);
    HETI_REFUSE(m->heads < shares || m->heads > INT32_MAX, "the team of rank %d: rank %d has %d key/value heads",
                m->leader, m->rank, m->heads);
    return HET_OK;
}

static het_result heti_plan_check_teams(const het_plan *plan, const char *where, het_error *error) {
    int64_t count;
    for (int64_t i = 0; i < plan->members; i += count) {
        const het_team_member *team = &plan->member[i];
        double share[HETRAIN_MAX_TEAM];
        for (count = 0; i + count < plan->members && team[count].leader == team->leader; count++) {
            HETI_TRY(heti_plan_check_member(plan, i + count, where, error));
            if (count == HETRAIN_MAX_TEAM)
                return heti_fail(error, HET_ERR_LIMIT, "%s: the team of rank %d has more than %i members", where,
                                 team->leader, HETRAIN_MAX_TEAM);
            share[count] = team[count].share;
        }
        HETI_TRY(heti_plan_check_shares(share, count, 1, "members of a team", where, error));
    }
    for (int64_t s = 0; s < plan->stages; s++)
        HETI_REFUSE(heti_leader(plan, plan->stage[s].rank) != plan->stage[s].rank, "pipeline %d: rank %d has a stage, "
                    "but does not lead the team it is in", plan->stage[s].pipeline, plan->stage[s].rank);
    return HET_OK;
}

static het_result heti_plan_check_keepers(const het_plan *plan, const char *where, het_error *error) {
    HETI_REFUSE(plan->shard < HET_SHARD_DEFAULT || plan->shard > HET_SHARD_WEIGHTS, "the plan's shard is %i",
                plan->shard);
    for (int64_t r = 0; r < plan->ranks; r++) {
        HETI_REFUSE(plan->near && plan->near[r] < 0, "rank %d is near set %d", r, plan->near[r]);
        if (!heti_keeps(plan, r)) continue;
        HETI_REFUSE(heti_has_stages(plan, r) || heti_team_size(plan, r) > 1, "rank %d is a keeper and has a stage", r);
        HETI_REFUSE(!(plan->state_share[r] > 0.0), "keeper %d has no share of the state", r);
    }
    return HET_OK;
}

HETRAIN_API het_result het_plan_check(const het_plan *plan, const char *where, het_error *error) {
    HETI_TRY(heti_plan_check_shape(plan, where, error));
    for (int64_t p = 0; p < plan->pipelines; p++) HETI_TRY(heti_plan_check_chain(plan, p, where, error));
    /* behind a unit with a backward pass all have one, up to a cut; the last unit makes the loss */
    for (int64_t u = 0; u < plan->units && plan->cut; u++)
        HETI_REFUSE(plan->cut[u] > HET_CUT_NONE || (plan->cut[u] != HET_CUT_NOWHERE && u + 1 == plan->units) ||
                    (plan->cut[u] == HET_CUT_NONE && u > 0 && plan->cut[u - 1] == HET_CUT_NOWHERE),
                    "unit %d cannot be cut in way %i: behind the last unit there is nothing, and behind a unit with a "
                    "backward pass only a cut ends it", u, plan->cut[u]);
    HETI_TRY(heti_plan_check_shares(plan->share, plan->pipelines, 1, "pipelines", where, error));
    HETI_TRY(heti_plan_check_shares(plan->state_share, plan->ranks, 1, "ranks", where, error));
    HETI_TRY(heti_plan_check_shares(plan->slice_share, plan->slices, 0, "slices", where, error));
    HETI_TRY(heti_plan_check_keepers(plan, where, error));
    return heti_plan_check_teams(plan, where, error);
}

/* =================================================================================================
   >>schedule  Lists of actions: the player that makes, proves and completes them.

   Everything here is linear in the number of actions (a heap aside), whatever they say: tables are
   as large as the forward passes that really are in the lists. An entry is one (pipeline, stage,
   micro-batch, slice); a stage counts through all pipelines.
   ============================================================================================== */

/* ---- actions as text ---- */

/* By kind, behind a stage's number. */
static const char *const heti_action_names[] = { "F", "B", "I", "W", "PUT", "TAKE", "SEND_F", "RECV_F", "SEND_B",
                                                "RECV_B", "REDUCE", "VERDICT", "STEP", "GATHER" };

typedef struct heti_action_text { char text[80]; } heti_action_text;

/* "2F3.1@1/0", without the parentheses of a pair. */
static const char *heti_action_print(heti_action_text *t, const het_action *a) {
    static const char *const heti_marks[3] = { ".%i", "@%i", "/%i" };
    const int32_t mark[3] = { a->slice, a->pipeline, a->version }; /* slice: of REDUCE, STEP and GATHER 0 */
    const int of_stage = a->kind < HET_ACTION_REDUCE;
    heti_text to = heti_text_in(t->text, sizeof t->text);
    if (of_stage) heti_text_write(&to, "%i", a->stage);
    heti_text_write(&to, "%s", a->kind >= 0 && a->kind <= HET_ACTION_GATHER ? heti_action_names[a->kind] : "?");
    if (a->kind == HET_ACTION_COMMIT) return t->text;
    heti_text_write(&to, "%i", of_stage ? a->micro_batch : a->stage);
    for (int i = 0; i < 3; i++)
        if (mark[i] != 0) heti_text_write(&to, heti_marks[i], mark[i]);
    return t->text;
}

/* ---- the player ----
   Lists are made, proved and completed by one loop. A free rank is asked what it begins; what it
   began ends in the order of time; whoever may then go on is asked again. Each action begins and
   ends once, through a heap of the ranks that work: n log ranks for n actions. */

typedef struct heti_busy { int64_t until, rank; } heti_busy;

typedef struct heti_player {
    int64_t now, working, asked;
    heti_busy *busy;               /* [ranks] heap of those that work */
    int64_t *ask;                  /* [ranks] those that may be able to begin something */
    uint8_t *taken;                /* [ranks] 1: works or stands in `ask`; nobody need wake it */
} heti_player;

static void heti_player_layout(heti_player *player, heti_arena *arena, int64_t ranks) {
    player->busy = HETI_TAKE(arena, heti_busy, ranks);
    player->ask = HETI_TAKE(arena, int64_t, ranks);
    player->taken = HETI_TAKE(arena, uint8_t, ranks);
}

static void heti_player_wake(heti_player *player, int64_t rank) {
    if (player->taken[rank]) return;
    player->taken[rank] = 1;
    player->ask[player->asked++] = rank;
}

/* The earliest end first, on a tie the last rank. */
static int heti_busy_earlier(const heti_busy *a, const heti_busy *b) {
    return a->until != b->until ? a->until < b->until : a->rank > b->rank;
}

static void heti_player_push(heti_player *player, int64_t rank, int64_t cost) {
    heti_busy *heap = player->busy, busy;
    int64_t i = player->working++;
    busy.until = player->now + cost;
    busy.rank = rank;
    for (; i > 0 && heti_busy_earlier(&busy, &heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = busy;
}

static int64_t heti_player_pop(heti_player *player) {
    heti_busy *heap = player->busy;
    const heti_busy first = heap[0], last = heap[--player->working];
    int64_t i = 0;
    for (int64_t child = 1; child < player->working; child = 2 * i + 1) {
        if (child + 1 < player->working && heti_busy_earlier(&heap[child + 1], &heap[child])) child++;
        if (!heti_busy_earlier(&heap[child], &last)) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return first.rank;
}

/* begin: how long what a rank begins takes; 0: it waits, or has come to its end. together: all ends
   of one moment come before all begins of it. */
static void heti_player_run(heti_player *player, int64_t ranks, int64_t (*begin)(void *user, int64_t rank),
                            void (*end)(void *user, int64_t rank), void *user, int together) {
    int64_t rank, cost;
    memset(player->taken, 0, HETI_CAST(size_t, ranks));
    player->now = 0;
    for (rank = 0; rank < ranks; rank++) heti_player_wake(player, rank);
    for (;;) {
        while (player->asked > 0) {
            rank = player->ask[--player->asked];
            player->taken[rank] = 0;
            cost = begin(user, rank);
            if (cost == 0) continue;
            player->taken[rank] = 1;
            heti_player_push(player, rank, cost);
        }
        if (player->working == 0) return;
        player->now = player->busy[0].until;
        do {
            rank = heti_player_pop(player);
            player->taken[rank] = 0;
            end(user, rank);
            heti_player_wake(player, rank);
        } while (together && player->working > 0 && player->busy[0].until == player->now);
    }
}

static int64_t heti_action_cost(int32_t kind) {
    return kind == HET_ACTION_B ? 2 : 1;
}

/* ---- lists by a rule ---- */

enum { HETI_PLAY_F = 0, HETI_PLAY_I = 1, HETI_PLAY_W = 2 };

typedef struct heti_rule_play {
    het_play play;
    const het_rule *rule;
    heti_player player;
    het_schedule *lists;                /* with room for 3 actions an item */
    int64_t *end;                       /* [ranks] a rank's list so far, in it */
    heti_arena arena;
} heti_rule_play;

HETRAIN_API int het_play_ready(const het_play *play, int64_t s, int32_t kind) {
    const het_play_stage *stage = &play->stage[s];
    const int64_t slices = play->plan->slices;
    int64_t i = stage->begun[HETI_PLAY_F];
    if (kind == HET_ACTION_F) return i < stage->items && (stage->before == 0 || stage[-1].done[HETI_PLAY_F] > i);
    if (kind == HET_ACTION_W) return stage->begun[HETI_PLAY_W] < stage->done[HETI_PLAY_I];
    i = stage->begun[HETI_PLAY_I];
    if (i >= stage->items || stage->backward == 0) return 0;
    if (stage->behind > 0) return stage[1].done[HETI_PLAY_I] > i;
    return stage->done[HETI_PLAY_F] >= (i / slices + 1) * slices; /* all forwards of its micro-batch */
}

static int heti_rule_what(int32_t kind) {
    return kind == HET_ACTION_F ? HETI_PLAY_F : kind == HET_ACTION_W ? HETI_PLAY_W : HETI_PLAY_I;
}

/* The stage's next action of that kind. */
static void heti_rule_add(heti_rule_play *m, het_action *to, int64_t s, int32_t kind, int32_t overlap) {
    const int64_t slices = m->play.plan->slices;
    het_play_stage *stage = &m->play.stage[s];
    const int64_t item = stage->begun[heti_rule_what(kind)]++;
    to->kind = kind;
    to->overlap = overlap;
    to->pipeline = HETI_CAST(int32_t, stage->pipeline);
    to->stage = HETI_CAST(int32_t, stage->before);
    to->micro_batch = HETI_CAST(int32_t, item / slices);
    to->slice = HETI_CAST(int32_t, kind == HET_ACTION_F ? item % slices : slices - 1 - item % slices);
    if (kind == HET_ACTION_B) stage->begun[HETI_PLAY_W]++;
}

static int64_t heti_rule_begin(void *user, int64_t rank) {
    heti_rule_play *m = HETI_CAST(heti_rule_play *, user);
    int64_t stage[2], cost = 0;
    int32_t kind[2];
    const int count = m->rule->choose(m->rule->user, &m->play, rank, stage, kind);
    for (int i = 0; i < count; i++) {
        if (i > 1 || stage[i] < 0 || stage[i] >= m->play.plan->stages ||
            m->play.plan->stage[stage[i]].rank != rank || (i > 0 && heti_rule_what(kind[0]) == heti_rule_what(kind[1])))
            return 0;
        const het_play_stage *at = &m->play.stage[stage[i]];
        HETRAIN_ASSERT(het_play_ready(&m->play, stage[i], kind[i]));
        if (at->begun[heti_rule_what(kind[i])] >= at->items) return 0;
    }
    for (int i = 0; i < count; i++) {
        heti_rule_add(m, &m->lists->action[m->end[rank]++], stage[i], kind[i], i + 1 < count);
        cost += heti_action_cost(kind[i]);
    }
    return cost;
}

/* Of what a rank worked on: its list's last action, or pair. */
static void heti_rule_end(void *user, int64_t rank) {
    heti_rule_play *m = HETI_CAST(heti_rule_play *, user);
    const het_plan *plan = m->play.plan;
    const het_action *end = m->lists->action + m->end[rank], *a = end - 1;
    if (a > m->lists->action + m->lists->start[rank] && a[-1].overlap) a--;
    for (; a < end; a++) {
        const int64_t s = heti_stage_at(plan, a);
        het_play_stage *stage = &m->play.stage[s];
        stage->done[heti_rule_what(a->kind)]++;
        if (a->kind == HET_ACTION_B) stage->done[HETI_PLAY_W]++;
        if (a->kind == HET_ACTION_F && stage->after > 0) heti_player_wake(&m->player, plan->stage[s + 1].rank);
        if (stage->before == 0 || a->kind == HET_ACTION_W || (a->kind == HET_ACTION_F && stage[-1].backward)) continue;
        for (int what = HETI_PLAY_I; what <= HETI_PLAY_W && a->kind == HET_ACTION_F; what++)
            stage[-1].begun[what] = ++stage[-1].done[what];
        heti_player_wake(&m->player, plan->stage[s - 1].rank);
    }
}

static void heti_rule_layout(heti_rule_play *m) {
    const het_plan *plan = m->play.plan;
    m->play.stage = HETI_TAKE(&m->arena, het_play_stage, plan->stages);
    m->play.rank_start = HETI_TAKE(&m->arena, int64_t, plan->ranks + 1);
    m->play.rank_stage = HETI_TAKE(&m->arena, int64_t, plan->stages);
    m->end = HETI_TAKE(&m->arena, int64_t, plan->ranks);
    heti_player_layout(&m->player, &m->arena, plan->ranks);
}

/* Which stages a rank has: counted, then filled from the back. */
static void heti_index_stages(const het_plan *plan, int64_t *start, int64_t *stage) {
    for (int64_t i = 0; i < plan->stages; i++) start[plan->stage[i].rank]++;
    for (int64_t i = 0; i < plan->ranks; i++) start[i + 1] += start[i];
    for (int64_t i = plan->stages - 1; i >= 0; i--) stage[--start[plan->stage[i].rank]] = i;
}

/* Stages, and where each rank's list begins. */
static void heti_rule_stages(heti_rule_play *m) {
    const het_plan *plan = m->play.plan;
    int64_t *start = m->lists->start;
    heti_index_stages(plan, m->play.rank_start, m->play.rank_stage);
    for (int64_t s = 0; s < plan->stages; s++) {
        const int64_t p = plan->stage[s].pipeline;
        het_play_stage *stage = &m->play.stage[s];
        stage->pipeline = p;
        stage->before = s - plan->first_stage[p];
        stage->after = plan->first_stage[p + 1] - 1 - s;
        stage->backward = het_plan_backward(plan, s);
        while (stage->behind < stage->after && (!stage->backward || heti_gets_gradient(plan, s + stage->behind)))
            stage->behind++;
        stage->items = m->play.counts[p] * plan->slices;
        start[plan->stage[s].rank + 1] += 3 * stage->items;
    }
    for (int64_t r = 0; r < plan->ranks; r++) {
        start[r + 1] += start[r];
        m->end[r] = start[r];
    }
}

static het_result heti_rule_lists(heti_rule_play *m, const het_allocator *allocator, const char *where,
                                  het_error *error) {
    const het_plan *plan = m->play.plan;
    het_schedule *lists = m->lists;
    int64_t at = 0;
    HETI_TAKE_ALL(&m->arena, allocator, where, error, heti_rule_layout(m));
    heti_rule_stages(m);
    if (m->rule->start != NULL) HETI_TRY(m->rule->start(m->rule->user, &m->play, error));
    heti_player_run(&m->player, plan->ranks, heti_rule_begin, heti_rule_end, m, 1);
    HETI_COPY(lists->micro_batches, m->play.counts, plan->pipelines);
    for (int64_t r = 0; r < plan->ranks; r++) { /* next to each other */
        const int64_t count = m->end[r] - lists->start[r];
        memmove(lists->action + at, lists->action + lists->start[r], HETI_CAST(size_t, count) * sizeof *lists->action);
        lists->start[r] = at;
        at += count;
    }
    lists->start[plan->ranks] = at;
    return HET_OK;
}

HETRAIN_API het_result het_schedule_play(const het_plan *plan, const int64_t *counts, const het_rule *rule,
                                         const het_allocator *allocator, het_schedule **schedule, het_error *error) {
    const char *where = "het_schedule_play";
    het_allocator chosen;
    heti_rule_play m = HETI_ZEROS;
    het_result result;
    int64_t items = 0;
    if (schedule != NULL) *schedule = NULL;
    HETI_REFUSE(plan == NULL || counts == NULL || rule == NULL || rule->choose == NULL || schedule == NULL,
                "plan, counts, rule and schedule must not be NULL");
    if (rule->where != NULL) where = rule->where;
    m.play.plan = plan;
    m.play.counts = counts;
    m.rule = rule;
    HETI_TRY(heti_choose_allocator(allocator, &chosen, where, error));
    HETI_TRY(heti_plan_check_shape(plan, where, error));
    for (int64_t p = 0; p < plan->pipelines; p++) {
        HETI_REFUSE(counts[p] < 0 || counts[p] > INT32_MAX / plan->slices, "pipeline %d gets %d micro-batches of %d "
                    "slices; at least 0, together below 2^31", p, counts[p], plan->slices);
        items += counts[p] * plan->slices * (plan->first_stage[p + 1] - plan->first_stage[p]);
    }
    HETI_TRY(het_schedule_new(plan->ranks, plan->pipelines, 3 * items, &chosen, where, schedule, error));
    m.lists = *schedule;
    result = heti_rule_lists(&m, &chosen, where, error);
    heti_arena_end(&m.arena, &chosen);
    if (result == HET_OK) result = het_schedule_store(plan, schedule, error);
    if (result == HET_OK) return HET_OK;
    het_schedule_free(*schedule);
    *schedule = NULL;
    return result;
}

/* ---- lists of a plan without `make` ---- */

/* het_rule.choose: 1F1B on a rank with one stage, which keeps one micro-batch for itself and one
   for each stage behind it, up to a cut; on one with several, all forwards before all backwards. */
static int heti_plain_choose(void *user, const het_play *play, int64_t rank, int64_t stage[2], int32_t kind[2]) {
    const het_plan *plan = play->plan;
    const int64_t first = play->rank_start[rank], stages = play->rank_start[rank + 1] - first;
    int64_t backward = -1, forwards = 0;
    (void)user;
    for (int64_t i = first; i < first + stages; i++) {
        const int64_t s = play->rank_stage[i];
        const het_play_stage *at = &play->stage[s];
        const int64_t open = at->begun[HETI_PLAY_F] - at->done[HETI_PLAY_I];
        forwards += at->items - at->begun[HETI_PLAY_F];
        stage[0] = s;
        kind[0] = HET_ACTION_F;
        if (het_play_ready(play, s, HET_ACTION_F) && (stages > 1 || open < at->behind + plan->slices)) return 1;
        if (het_play_ready(play, s, HET_ACTION_B)) backward = s;
    }
    stage[0] = backward;
    kind[0] = HET_ACTION_B;
    return backward >= 0 && (forwards == 0 || stages == 1);
}

/* ---- what check and complete know about a schedule ---- */

/* A plan, lists of its ranks and pipelines, and room for what comes back. */
static het_result heti_schedule_arguments(const het_plan *plan, const het_schedule *s, const void *output,
                                          const char *where, het_error *error) {
    HETI_TRY(heti_plan_check_shape(plan, where, error));
    HETI_REFUSE(!s || !output || !s->micro_batches || !s->start || !s->action,
                "the schedule, one of its arrays or the output is NULL");
    HETI_REFUSE(s->ranks != plan->ranks || s->pipelines != plan->pipelines, "the schedule has %d ranks and %d "
                "pipelines, the plan %d and %d", s->ranks, s->pipelines, plan->ranks, plan->pipelines);
    for (int64_t p = 0; p < s->pipelines; p++)
        HETI_REFUSE(s->micro_batches[p] < 0 || s->micro_batches[p] > HETI_PLANS_COUNT, "pipeline %d: %d micro-batches",
                    p, s->micro_batches[p]);
    for (int64_t r = 0; r < s->ranks; r++)
        HETI_REFUSE(s->start[0] != 0 || s->start[r + 1] < s->start[r] || s->start[r + 1] > INT64_MAX / 64,
                    "rank %d: its list begins at %d and ends at %d", r, s->start[r], s->start[r + 1]);
    return HET_OK;
}

/* A stage, counted through all pipelines. */
typedef struct heti_listed_stage {
    int64_t forwards;              /* F met */
    int64_t entry;                 /* its first one */
    int64_t kept;                  /* slices on the device, where PUT and TAKE are placed */
    int64_t last, last_time;       /* its last backward action, or F where it has none, ends before this
                                      position, at this time */
    int64_t sharing;               /* stages of its pipeline on its rank */
} heti_listed_stage;

/* A block; behind all blocks one that stands for VERDICT, which all ranks hold. */
typedef struct heti_listed_block {
    int64_t holders, ranks;        /* lists with it; ranks that hold it: a team's list is of several */
    int64_t stamp;                 /* that of the lists: it is one of the rank listed last */
    int64_t behind;                /* its last use on that rank lies before this position */
    int64_t when;                  /* its last use on any rank ends then */
    unsigned happened;             /* bit k: the action of kind k did, on one rank */
    int64_t arrived, first, met;   /* ranks that wait for it: how many, the last one; updates that nothing waits for */
    double shares;                 /* of state, of its holders */
    int64_t open;                  /* of the rank listed last: the update with gradients not reduced yet; -1: none */
    int64_t reduced, stepped, gathered; /* updates up to the last REDUCE, STEP and GATHER */
    int64_t updates;               /* up to the last with gradients */
} heti_listed_block;

/* An update of a block: lists with its REDUCE, STEP and GATHER, how many of them have come to it,
   and on the rank listed last: whether it was gathered, whether an F uses what it makes, behind
   which position its last gradient lies (0: it has none). */
typedef struct heti_listed_update {
    int64_t lists[HET_ACTION_GATHER + 1], came[HET_ACTION_GATHER + 1], gathered, used, behind;
} heti_listed_update;

typedef struct heti_listed_rank {
    int64_t at;                    /* position in its list */
    int64_t open;                  /* no receive before this position still waits for its message; in `to`: the
                                      last F, B, I or W */
    int64_t next;                  /* who waits for the same block */
    int64_t length;                /* actions of `to` */
    double peak;
} heti_listed_rank;

enum { HETI_LISTS_OF_NONE = -2, HETI_LISTS_OF_ALL = -1 };

typedef struct heti_lists {
    const het_plan *plan;
    const het_blocks *blocks;      /* NULL: one block a unit */
    const het_schedule *schedule;
    int64_t whose;                 /* HETI_LISTS_OF_NONE: nothing is completed; of all ranks, or of this one */
    int64_t actions;               /* of all ranks' complete lists */
    het_schedule *to;              /* what is completed; NULL: nothing is */
    het_schedule *placed;          /* compute lists with REDUCE, STEP and GATHER of several updates */
    int64_t placed_count;          /* actions of it */
    het_error *error;
    const char *where;
    het_allocator allocator;
    heti_arena arrays;
    int64_t block_count, uses;     /* blocks; (block, unit) pairs */
    int32_t transfers;             /* the lists have SEND and RECV */
    int32_t only;                  /* the kind of action that is played; 0: all */
    int64_t entries;
    heti_listed_stage *stage;      /* [stages] */
    heti_listed_block *block;      /* [blocks + 1] */
    heti_listed_rank *rank;        /* [ranks] */
    int64_t *rank_start, *rank_stage;  /* [ranks + 1], [stages] stages of a rank */
    int64_t *unit_start, *unit_block;  /* [units + 1], [uses] blocks of a unit */
    int64_t *held, held_count, stamp;  /* [blocks] blocks of the rank listed last */
    int64_t updates;               /* 1, or het_plan.updates */
    heti_listed_update *update;    /* [blocks x updates], where there are several */
    int32_t *version;              /* [entries] F's, likewise */
    uint16_t *seen;                /* [entries] bit k: the action of kind k happened */
    heti_player player;
} heti_lists;

/* Of REDUCE, VERDICT, STEP or GATHER. */
static heti_listed_block *heti_lists_block(const heti_lists *l, const het_action *a) {
    return &l->block[a->kind == HET_ACTION_COMMIT ? l->block_count : a->stage];
}

/* Of REDUCE, STEP or GATHER, of lists with several updates; VERDICT has one of its own. */
static heti_listed_update *heti_lists_update(const heti_lists *l, const het_action *a) {
    return &l->update[(a->kind == HET_ACTION_COMMIT ? l->block_count : a->stage) * l->updates + a->version];
}

static int64_t heti_lists_entry(const heti_lists *l, const het_action *a) {
    return l->stage[heti_stage_at(l->plan, a)].entry + a->micro_batch * l->plan->slices + a->slice;
}

/* The same micro-batch and slice `by` stages further along, as an action of another kind. */
static het_action heti_lists_other(const het_action *a, int32_t kind, int32_t by) {
    het_action b = *a;
    b.kind = kind;
    b.stage += by;
    b.overlap = 0;
    b.version = kind <= HET_ACTION_W ? a->version : 0;
    return b;
}

/* Whether the action of a kind has happened to an action's slice. */
static int heti_lists_has(const heti_lists *l, const het_action *a, int32_t kind) {
    return (l->seen[heti_lists_entry(l, a)] >> kind) & 1;
}

static int heti_makes_gradients(const het_action *a) { return heti_goes_back(a) || a->kind == HET_ACTION_W; }

/* Of B and I either will do. */
static int heti_lists_happened(const heti_lists *l, const het_action *a) {
    if (!heti_goes_back(a)) return heti_lists_has(l, a, a->kind);
    return (l->seen[heti_lists_entry(l, a)] & (1u << HET_ACTION_B | 1u << HET_ACTION_I)) != 0;
}

/* TAKE undoes PUT. */
static void heti_lists_mark(const heti_lists *l, const het_action *a) {
    uint16_t *seen = &l->seen[heti_lists_entry(l, a)];
    *seen = HETI_CAST(uint16_t, a->kind == HET_ACTION_TAKE ? *seen & ~(1u << HET_ACTION_PUT) : *seen | 1u << a->kind);
}

/* What is wrong with an action of the lists. */
static het_result heti_lists_fail(const heti_lists *l, const het_action *a, const char *what) {
    const het_schedule *s = l->schedule;
    const int64_t rank = heti_last_start(s->start, 0, s->ranks, a - s->action);
    heti_action_text text;
    return heti_invalid(l->error, l->where, "rank %d, position %d (%s): %s", rank,
                        HETI_CAST(int64_t, a - heti_list_of(s, rank)), heti_action_print(&text, a), what);
}

/* `what` of another action. */
static het_result heti_lists_fail_for(const heti_lists *l, const het_action *a, const char *what, het_action other) {
    heti_action_text text;
    char both[160];
    (void)heti_format(both, sizeof both, "%s %s", what, heti_action_print(&text, &other));
    return heti_lists_fail(l, a, both);
}

static het_result heti_lists_missing(const heti_lists *l, int64_t rank, het_action a) {
    heti_action_text text;
    return heti_invalid(l->error, l->where, "rank %d: %s is missing", rank, heti_action_print(&text, &a));
}

/* REDUCE, STEP or GATHER of an update of a block, VERDICT. */
static het_action heti_block_action(int32_t kind, int64_t block, int64_t update) {
    het_action a = HETI_ZEROS;
    a.kind = kind;
    a.stage = HETI_CAST(int32_t, block);
    a.version = HETI_CAST(int32_t, update);
    return a;
}

/* ---- shapes and ranges, before anything is indexed by them ---- */

static het_result heti_lists_check_blocks(heti_lists *l, const char *where, het_error *error) {
    const het_blocks *b = l->blocks;
    l->block_count = l->uses = l->plan->units;
    if (b == NULL) return HET_OK;
    HETI_REFUSE(b->count < 0 || b->count > HETI_PLANS_COUNT || b->start == NULL || (b->unit == NULL && b->count > 0) ||
                b->start[0] != 0, "het_blocks: %d blocks", b->count);
    for (int64_t block = 0; block < b->count; block++) {
        HETI_REFUSE(b->start[block + 1] <= b->start[block], "block %d is used by no unit", block);
        for (int64_t i = b->start[block]; i < b->start[block + 1]; i++)
            HETI_REFUSE(b->unit[i] < 0 || b->unit[i] >= l->plan->units ||
                        (i > b->start[block] && b->unit[i] <= b->unit[i - 1]),
                        "block %d: unit %d, of %d units, or not ascending", block, b->unit[i], l->plan->units);
    }
    l->block_count = b->count;
    l->uses = b->count > 0 ? b->start[b->count] : 0;
    return HET_OK;
}

/* What is wrong with one action, whatever comes before it and wherever it stands; NULL: nothing. */
static const char *heti_lists_wrong(const heti_lists *l, int64_t rank, const het_action *a, int last) {
    const int next = a->kind == HET_ACTION_SEND_F || a->kind == HET_ACTION_RECV_B;
    const int previous = a->kind == HET_ACTION_RECV_F || a->kind == HET_ACTION_SEND_B;
    if (a->kind < 0 || a->kind > HET_ACTION_GATHER) return "unknown kind of action";
    if (a->version < 0 || a->version >= l->updates || (a->version > 0 && a->kind > HET_ACTION_W &&
        (a->kind < HET_ACTION_REDUCE || a->kind == HET_ACTION_COMMIT)))
        return "the plan has no such version of the weights";
    if (a->overlap != 0 && (a->kind != HET_ACTION_F || last || a[1].overlap || !heti_goes_back(&a[1])))
        return "a pair is an F and the B or I behind it";
    if (a->kind >= HET_ACTION_REDUCE && a->kind != HET_ACTION_COMMIT && (a->stage < 0 || a->stage >= l->block_count))
        return "there is no such block";
    if (a->kind >= HET_ACTION_REDUCE) return l->schedule->complete ? NULL : "the schedule's `complete` is 0";
    if (a->pipeline < 0 || a->pipeline >= l->schedule->pipelines) return "there is no such pipeline";
    if (heti_rank_at(l->plan, a, 0) < 0) return "there is no such stage";
    if (a->micro_batch < 0 || a->micro_batch >= l->schedule->micro_batches[a->pipeline])
        return "there is no such micro-batch";
    if (a->slice < 0 || a->slice >= l->plan->slices) return "there is no such slice";
    if (a->kind >= HET_ACTION_B && a->kind <= HET_ACTION_TAKE && !het_plan_backward(l->plan, heti_stage_at(l->plan, a)))
        return "nothing is trained there: its stage has only forward actions";
    if (heti_rank_at(l->plan, a, 0) != rank || (!next && !previous)) return NULL;
    if (heti_rank_at(l->plan, a, next ? 1 : -1) < 0) return "there is no stage on the other side";
    if (heti_rank_at(l->plan, a, next ? 1 : -1) == rank) return "the stage on the other side is on the same rank";
    if (a->kind >= HET_ACTION_SEND_B && het_plan_backward(l->plan, heti_stage_at(l->plan, a) + next) < 2)
        return "no gradient crosses the cut between these stages";
    return NULL;
}

/* All actions; counts the forward passes of each stage. */
static het_result heti_lists_check_actions(heti_lists *l) {
    const het_schedule *s = l->schedule;
    l->transfers = s->complete != 0;
    for (int64_t r = 0; r < s->ranks; r++)
        for (const het_action *a = heti_list_of(s, r), *end = heti_list_of(s, r + 1); a < end; a++) {
            const char *wrong = heti_lists_wrong(l, r, a, a + 1 == end);
            if (wrong != NULL) return heti_lists_fail(l, a, wrong);
            if (a->kind >= HET_ACTION_REDUCE && l->updates > 1) heti_lists_update(l, a)->lists[a->kind]++;
            if (a->kind >= HET_ACTION_REDUCE) continue;
            if (heti_rank_at(l->plan, a, 0) != r) {
                char elsewhere[64];
                (void)heti_format(elsewhere, sizeof elsewhere, "the plan has this stage on rank %d",
                                  heti_rank_at(l->plan, a, 0));
                return heti_lists_fail(l, a, elsewhere);
            }
            if (a->kind == HET_ACTION_F) l->stage[heti_stage_at(l->plan, a)].forwards++;
            if (a->kind >= HET_ACTION_SEND_F) l->transfers = 1;
        }
    return HET_OK;
}

/* The number-th micro-batch and slice of a stage. */
static het_action heti_lists_forward(const heti_lists *l, int64_t stage, int64_t number) {
    const int64_t p = l->plan->stage[stage].pipeline;
    het_action a = heti_block_action(HET_ACTION_F, stage - l->plan->first_stage[p], 0);
    a.pipeline = HETI_CAST(int32_t, p);
    a.micro_batch = HETI_CAST(int32_t, number / l->plan->slices);
    a.slice = HETI_CAST(int32_t, number % l->plan->slices);
    return a;
}

/* Stage g has fewer forward passes than entries: the first missing is below their number + 1. */
static het_result heti_lists_first_missing(heti_lists *l, int64_t g) {
    const het_schedule *s = l->schedule;
    const int64_t rank = l->plan->stage[g].rank;
    int64_t first = 0;
    for (const het_action *a = heti_list_of(s, rank); a < heti_list_of(s, rank + 1); a++) {
        const int64_t entry = a->micro_batch * l->plan->slices + a->slice;
        if (a->kind == HET_ACTION_F && heti_stage_at(l->plan, a) == g && entry <= l->stage[g].forwards)
            l->seen[entry] = 1;
    }
    while (l->seen[first]) first++;
    return heti_lists_missing(l, rank, heti_lists_forward(l, g, first));
}

/* No forward pass is missing, so there are no more entries than actions. */
static het_result heti_lists_check_forwards(heti_lists *l) {
    for (int64_t g = 0; g < l->plan->stages; g++) {
        const int64_t needed = l->schedule->micro_batches[l->plan->stage[g].pipeline] * l->plan->slices;
        if (l->stage[g].forwards < needed) return heti_lists_first_missing(l, g);
        l->stage[g].entry = l->entries;
        l->entries += needed;
    }
    return HET_OK;
}

/* ---- tables ---- */

static void heti_lists_layout(heti_lists *l) {
    heti_arena *a = &l->arrays;
    const het_plan *plan = l->plan;
    l->stage = HETI_TAKE(a, heti_listed_stage, plan->stages);
    l->block = HETI_TAKE(a, heti_listed_block, l->block_count + 1);
    l->rank = HETI_TAKE(a, heti_listed_rank, plan->ranks);
    l->rank_start = HETI_TAKE(a, int64_t, plan->ranks + 1);
    l->rank_stage = HETI_TAKE(a, int64_t, plan->stages);
    l->unit_start = HETI_TAKE(a, int64_t, plan->units + 1);
    l->unit_block = HETI_TAKE(a, int64_t, l->uses);
    l->held = HETI_TAKE(a, int64_t, l->block_count);
    l->seen = HETI_TAKE(a, uint16_t, l->schedule->start[plan->ranks] + 1);
    l->update = HETI_TAKE(a, heti_listed_update, l->updates > 1 ? (l->block_count + 1) * l->updates : 0);
    l->version = HETI_TAKE(a, int32_t, l->updates > 1 ? l->schedule->start[plan->ranks] + 1 : 0);
    heti_player_layout(&l->player, a, heti_max(plan->ranks, l->block_count));
}

/* Which stages a rank has, which blocks a unit uses; how many stages of a pipeline share a rank. */
static void heti_lists_index(heti_lists *l) {
    const het_plan *plan = l->plan;
    const het_blocks *blocks = l->blocks;
    int64_t *unit = l->unit_start;
    heti_index_stages(plan, l->rank_start, l->rank_stage);
    for (int64_t i = 0; i < l->uses; i++) unit[blocks ? blocks->unit[i] : i]++;
    for (int64_t i = 0; i < plan->units; i++) unit[i + 1] += unit[i];
    for (int64_t i = l->uses - 1, b = l->block_count - 1; i >= 0; i--) {
        while (blocks && i < blocks->start[b]) b--;
        l->unit_block[--unit[blocks ? blocks->unit[i] : i]] = blocks ? b : i;
    }
    for (int64_t p = 0; p < plan->pipelines; p++) {
        const int64_t begin = plan->first_stage[p], end = plan->first_stage[p + 1];
        for (int64_t i = begin; i < end; i++) l->rank[plan->stage[i].rank].at++;
        for (int64_t i = begin; i < end; i++) l->stage[i].sharing = l->rank[plan->stage[i].rank].at;
        for (int64_t i = begin; i < end; i++) l->rank[plan->stage[i].rank].at = 0;
    }
}

/* The blocks of a rank into `held`, and behind which position its last use lies. */
static void heti_lists_blocks_of(heti_lists *l, int64_t rank) {
    l->held_count = 0;
    l->stamp++;
    for (int64_t i = l->rank_start[rank]; i < l->rank_start[rank + 1]; i++) {
        const int64_t g = l->rank_stage[i];
        for (int64_t unit = l->plan->stage[g].unit_begin; unit < l->plan->stage[g].unit_end; unit++) {
            for (int64_t k = l->unit_start[unit]; k < l->unit_start[unit + 1]; k++) {
                heti_listed_block *block = &l->block[l->unit_block[k]];
                if (block->stamp != l->stamp) l->held[l->held_count++] = l->unit_block[k];
                block->behind = heti_max(block->stamp == l->stamp ? block->behind : 0, l->stage[g].last);
                block->when = heti_max(block->when, l->stage[g].last_time);
                block->stamp = l->stamp;
            }
        }
    }
    for (int64_t i = 0; i < l->block_count && heti_keeps(l->plan, rank); i++) {
        l->block[i].behind = 0;
        l->block[i].stamp = l->stamp;
        l->held[l->held_count++] = i;
    }
}

/* ---- one rank's list: what must come before what ---- */

/* What an action may need. All but the last is on its own rank. */
enum { HETI_WANTS_SLICE = 0, HETI_WANTS_FORWARD = 1, HETI_WANTS_STAGE = 2, HETI_WANTS_MESSAGE = 3 };

/* F needs the slice before, B and I the slice after. Both need what the neighbour stage made, on
   its own rank, or RECV; and on another rank its SEND or, in lists without transfers, what makes
   it. B, I, W, SEND, PUT and TAKE need what they work on. 0: nothing of this sort. */
static int heti_lists_wants(const heti_lists *l, const het_action *a, int sort, het_action *wanted, int64_t *rank) {
    static const int32_t heti_works_on[] = { /* by kind, F to RECV_B; -1: what comes from elsewhere */
        -1, HET_ACTION_F, HET_ACTION_F, HET_ACTION_I, HET_ACTION_F, HET_ACTION_PUT, HET_ACTION_F, -1, HET_ACTION_I,
        -1 };
    const int backward = heti_goes_back(a);
    const int32_t by = backward ? 1 : -1, makes = backward ? HET_ACTION_B : HET_ACTION_F;
    int same;
    if (sort == HETI_WANTS_FORWARD) {
        *wanted = heti_lists_other(a, heti_works_on[a->kind], 0);
        return heti_works_on[a->kind] >= 0;
    }
    if (a->kind != HET_ACTION_F && !backward) return 0;
    if (sort == HETI_WANTS_SLICE) {
        *wanted = heti_lists_other(a, makes, 0);
        wanted->slice += by;
        return wanted->slice >= 0 && wanted->slice < l->plan->slices;
    }
    *rank = heti_neighbour(l->plan, a, 0);
    same = *rank == heti_rank_at(l->plan, a, 0);
    if (*rank < 0 || (same ? sort != HETI_WANTS_STAGE : sort == HETI_WANTS_STAGE && !l->transfers)) return 0;
    if (same || !l->transfers) *wanted = heti_lists_other(a, makes, by);
    else if (sort == HETI_WANTS_MESSAGE)
        *wanted = heti_lists_other(a, backward ? HET_ACTION_SEND_B : HET_ACTION_SEND_F, by);
    else *wanted = heti_lists_other(a, backward ? HET_ACTION_RECV_B : HET_ACTION_RECV_F, 0);
    return 1;
}

/* It comes once only, not B beside I or W; B, I and W of what is on the device, PUT of what is
   needed; and what it needs from its own rank has come before. */
static het_result heti_lists_check_order(const heti_lists *l, const het_action *a) {
    const int32_t other = a->kind == HET_ACTION_B ? HET_ACTION_I : HET_ACTION_B;
    het_action wanted;
    int64_t whose;
    if (heti_lists_has(l, a, a->kind)) return heti_lists_fail(l, a, "comes twice");
    if (heti_makes_gradients(a) && heti_lists_has(l, a, other))
        return heti_lists_fail_for(l, a, "comes beside", heti_lists_other(a, other, 0));
    if (a->kind <= HET_ACTION_W && heti_lists_has(l, a, HET_ACTION_PUT))
        return heti_lists_fail_for(l, a, "must come after", heti_lists_other(a, HET_ACTION_TAKE, 0));
    if (a->kind == HET_ACTION_PUT && (l->seen[heti_lists_entry(l, a)] & (1u << HET_ACTION_B | 1u << HET_ACTION_W)))
        return heti_lists_fail(l, a, "its backward has used up what it puts");
    for (int sort = 0; sort < HETI_WANTS_MESSAGE; sort++)
        if (heti_lists_wants(l, a, sort, &wanted, &whose) && !heti_lists_happened(l, &wanted))
            return heti_lists_fail_for(l, a, "must come after", wanted);
    return HET_OK;
}

/* A rank's compute actions and transfers; the most activations it keeps on the device, in
   micro-batches: of a stage without a backward pass only while its F runs. Of a pair both count,
   and neither may need the other. */
static het_result heti_lists_check_rank(heti_lists *l, int64_t rank, double slices) {
    const het_action *list = heti_list_of(l->schedule, rank), *end = heti_list_of(l->schedule, rank + 1), *next, *a;
    double *peak = &l->rank[rank].peak, kept = 0.0;
    int64_t number = 0;
    for (; list < end; list = next) {
        next = list + 1 + (list->overlap != 0);
        if (list->kind >= HET_ACTION_REDUCE) continue;
        for (a = list; a < next; a++) HETI_TRY(heti_lists_check_order(l, a));
        for (a = list; a < next; a++) {
            const int64_t g = heti_stage_at(l->plan, a);
            const double weight = l->plan->slice_share[a->slice] / slices / HETI_CAST(double, l->stage[g].sharing);
            heti_lists_mark(l, a);
            if (a->kind == HET_ACTION_F || a->kind == HET_ACTION_TAKE) {
                kept = number++ > 0 ? kept + weight : weight; /* from 0, so that rounding errors do not pile up */
                *peak = kept > *peak ? kept : *peak;
            }
            if (a->kind == HET_ACTION_B || a->kind == HET_ACTION_W || a->kind == HET_ACTION_PUT ||
                (a->kind == HET_ACTION_F && !het_plan_backward(l->plan, g))) {
                kept -= weight;
                number--;
                if (a->kind != HET_ACTION_PUT) l->stage[g].last = a + 1 - heti_list_of(l->schedule, rank);
            }
        }
    }
    return HET_OK;
}

/* Every entry has its backward and its transfers. */
static het_result heti_lists_check_entry(const heti_lists *l, const het_action *a, int64_t stage) {
    const unsigned seen = l->seen[heti_lists_entry(l, a)];
    const int64_t rank = l->plan->stage[stage].rank;
    const int split = (seen >> HET_ACTION_I & 1u) != 0;
    unsigned needed = 1u << HET_ACTION_F;
    if (het_plan_backward(l->plan, stage))
        needed |= split ? 1u << HET_ACTION_I | 1u << HET_ACTION_W : 1u << HET_ACTION_B;
    for (int32_t kind = HET_ACTION_SEND_F; kind <= HET_ACTION_RECV_B && l->transfers; kind++) {
        const het_action made = heti_lists_other(a, kind < HET_ACTION_SEND_B ? HET_ACTION_F : HET_ACTION_B, 0);
        const int64_t other = heti_neighbour(l->plan, &made, kind == HET_ACTION_SEND_F || kind == HET_ACTION_SEND_B);
        if (other >= 0 && other != rank) needed |= 1u << kind;
    }
    for (int32_t kind = 0; kind <= HET_ACTION_RECV_B; kind++)
        if (((needed & ~seen) >> kind & 1u) != 0) return heti_lists_missing(l, rank, heti_lists_other(a, kind, 0));
    return HET_OK;
}

static het_result heti_lists_check_entries(const heti_lists *l) {
    for (int64_t g = 0; g < l->plan->stages; g++)
        for (int64_t i = 0; i < l->schedule->micro_batches[l->plan->stage[g].pipeline] * l->plan->slices; i++) {
            const het_action a = heti_lists_forward(l, g, i);
            HETI_TRY(heti_lists_check_entry(l, &a, g));
        }
    return HET_OK;
}

/* ---- what is recorded where lists are completed ----
   An action enters its rank's list when it starts, a SEND when its producer ends. So all these are
   parts of one global order, which even sends that wait until their receives have been reached can
   follow: a RECV waits for nobody, and enters at that moment or earlier, before what its rank works
   on or has worked on last, so that the message travels meanwhile. */

static int heti_is_recorded(const heti_lists *l, int64_t rank) {
    return l->whose == rank || l->whose == HETI_LISTS_OF_ALL;
}

static void heti_complete_add(heti_lists *l, int64_t rank, het_action a) {
    if (!heti_is_recorded(l, rank)) return;
    HETRAIN_ASSERT(l->rank[rank].length < l->to->start[rank + 1] - l->to->start[rank]);
    l->to->action[l->to->start[rank] + l->rank[rank].length++] = a;
}

/* What the action made goes to another rank. */
static void heti_complete_transfer(heti_lists *l, int64_t rank, int64_t taker, const het_action *a) {
    const int forward = a->kind == HET_ACTION_F;
    het_action *list = l->to->action + l->to->start[taker];
    const int64_t at = l->rank[taker].open, behind = l->rank[taker].length - at;
    heti_complete_add(l, rank, heti_lists_other(a, forward ? HET_ACTION_SEND_F : HET_ACTION_SEND_B, 0));
    if (!heti_is_recorded(l, taker)) return;
    HETRAIN_ASSERT(behind >= 0 && l->rank[taker].length < l->to->start[taker + 1] - l->to->start[taker]);
    memmove(list + at + 1, list + at, HETI_CAST(size_t, behind) * sizeof *list);
    list[at] = heti_lists_other(a, forward ? HET_ACTION_RECV_F : HET_ACTION_RECV_B, forward ? 1 : -1);
    l->rank[taker].length++;
    l->rank[taker].open++;
}

/* ---- the play: does it come to its end? ----
   Every rank does its list in order. Where lists are completed F, I and W take 1, B 2; otherwise
   nothing takes time. A RECV waits for nobody, a SEND until its RECV has been reached, F, B and I
   for what another rank makes, VERDICT for all ranks. A second and a third play look at nothing but
   REDUCE and at nothing but GATHER, which wait for all holders of their block: then their orders
   agree on all ranks. */

static const het_action *heti_play_head(const heti_lists *l, int64_t rank) {
    const het_action *a = heti_list_of(l->schedule, rank) + l->rank[rank].at;
    return a < heti_list_of(l->schedule, rank + 1) ? a : NULL;
}

/* What stands on the other side of a transfer, and its rank. */
static het_action heti_play_partner(const heti_lists *l, const het_action *a, int64_t *rank) {
    const int32_t by = a->kind == HET_ACTION_SEND_F || a->kind == HET_ACTION_RECV_B ? 1 : -1;
    *rank = heti_rank_at(l->plan, a, by);
    return heti_lists_other(a, a->kind ^ 1, by); /* SEND_F 6, RECV_F 7, SEND_B 8, RECV_B 9 */
}

static int heti_action_same(const het_action *a, const het_action *b) {
    return a->kind == b->kind && a->stage == b->stage && a->micro_batch == b->micro_batch && a->slice == b->slice &&
        a->pipeline == b->pipeline;
}

/* The first receive that the rank has reached whose message from `from` has not left; NULL: there
   is none. Messages of one rank to another keep their order. */
static const het_action *heti_play_expected(const heti_lists *l, int64_t rank, int64_t from) {
    const het_action *list = heti_list_of(l->schedule, rank);
    int64_t whose = -1;
    for (int64_t i = l->rank[rank].open; i < l->rank[rank].at; i++) {
        const int receives = list[i].kind == HET_ACTION_RECV_F || list[i].kind == HET_ACTION_RECV_B;
        const het_action send = receives ? heti_play_partner(l, &list[i], &whose) : list[i];
        if (receives && !heti_lists_happened(l, &send)) {
            if (whose == from) return &list[i];
        } else if (i == l->rank[rank].open) l->rank[rank].open++;
    }
    return NULL;
}

/* 1: the SEND or RECV at the head of a list happened, 0: it must wait. */
static int heti_play_transfer(heti_lists *l, int64_t rank, const het_action *a) {
    int64_t whose;
    const het_action partner = heti_play_partner(l, a, &whose);
    if (a->kind == HET_ACTION_SEND_F || a->kind == HET_ACTION_SEND_B) {
        const het_action *expected = heti_play_expected(l, whose, rank);
        if (expected == NULL || !heti_action_same(expected, &partner)) return 0;
    }
    heti_lists_mark(l, a);
    heti_player_wake(&l->player, whose);
    return 1;
}

/* The rank joins those that wait for a block, or for VERDICT. The last holder lets all go on. */
static void heti_play_meet(heti_lists *l, int64_t rank, heti_listed_block *block) {
    l->player.taken[rank] = 1;
    l->rank[rank].next = block->arrived > 0 ? block->first : -1;
    block->first = rank;
    if (++block->arrived < block->holders) return;
    for (rank = block->first; rank >= 0; rank = l->rank[rank].next) {
        l->rank[rank].at++;
        l->player.taken[rank] = 0;
        heti_player_wake(&l->player, rank);
    }
}

/* What REDUCE, STEP or GATHER waits for, wherever the block's owners stand in their lists
   (heti_try_steps): its update, REDUCE for the one that had its place. That needs all its
   gradients, all readers of the version before, the update before. NULL: it is made; otherwise the
   update whose REDUCEs or GATHERs, *kind, are missing. */
static const heti_listed_update *heti_update_wants(const heti_lists *l, const het_action *a, int32_t *kind) {
    const heti_listed_update *u = &l->update[a->stage * l->updates];
    const int64_t version = a->version - (a->kind == HET_ACTION_REDUCE ? heti_window(l->plan) : 0);
    for (int64_t v = l->block[a->stage].met; v <= version; l->block[a->stage].met = v++) {
        *kind = HET_ACTION_REDUCE;
        if (u[v].came[*kind] < u[v].lists[*kind]) return &u[v];
        *kind = HET_ACTION_GATHER;
        if (v < version && u[v].came[*kind] < u[v].lists[*kind]) return &u[v];
    }
    return NULL;
}

/* 1: REDUCE, STEP or GATHER of one of several updates happened, 0: it must wait. */
static int heti_play_update(heti_lists *l, int64_t rank, const het_action *a) {
    int32_t kind;
    heti_listed_update *u = heti_lists_update(l, a);
    if (heti_update_wants(l, a, &kind) != NULL) return 0;
    const int last = ++u->came[a->kind] == u->lists[a->kind]; /* what others wait for */
    for (int64_t r = 0; r < l->plan->ranks && last; r++) if (r != rank) heti_player_wake(&l->player, r);
    return 1;
}

/* Begins the compute action, or pair, at the head of a list, if everything needed is there. */
static int64_t heti_play_compute(heti_lists *l, int64_t rank, const het_action *a) {
    const int64_t width = 1 + (a->overlap != 0);
    het_action wanted;
    int64_t whose, cost = 0;
    for (int64_t i = 0; i < width; i++) {
        if (heti_lists_wants(l, &a[i], HETI_WANTS_MESSAGE, &wanted, &whose) && !heti_lists_happened(l, &wanted))
            return 0;
        cost += heti_action_cost(a[i].kind);
    }
    l->rank[rank].open = l->to != NULL ? l->rank[rank].length : l->rank[rank].open;
    for (int64_t i = 0; i < width && l->to != NULL; i++) heti_complete_add(l, rank, a[i]);
    return cost;
}

/* What the rank worked on is done. Where lists are completed its transfers come now. */
static void heti_play_end(void *user, int64_t rank) {
    heti_lists *l = HETI_CAST(heti_lists *, user);
    const het_action *a = heti_play_head(l, rank);
    const int64_t width = 1 + (a->overlap != 0);
    for (; a < heti_play_head(l, rank) + width; a++) {
        const int64_t taker = heti_neighbour(l->plan, a, 1), stage = heti_stage_at(l->plan, a);
        heti_lists_mark(l, a);
        if (a->kind != HET_ACTION_F || !het_plan_backward(l->plan, stage)) l->stage[stage].last_time = l->player.now;
        if (taker < 0 || taker == rank) continue;
        heti_player_wake(&l->player, taker);
        if (l->to != NULL) heti_complete_transfer(l, rank, taker, a);
    }
    l->rank[rank].at += width;
}

/* Where nothing is recorded compute actions take no time; PUT and TAKE never do. */
static int64_t heti_play_begin(void *user, int64_t rank) {
    heti_lists *l = HETI_CAST(heti_lists *, user);
    const het_action *a;
    while ((a = heti_play_head(l, rank)) != NULL) {
        const int meets = a->kind == (l->only != 0 ? l->only : HET_ACTION_COMMIT);
        if (a->kind <= HET_ACTION_W && l->only == 0) {
            const int64_t cost = heti_play_compute(l, rank, a);
            if (cost == 0 || l->to != NULL) return cost;
            heti_play_end(l, rank);
            continue;
        }
        if (a->kind >= HET_ACTION_REDUCE && l->updates > 1 && !meets && !heti_play_update(l, rank, a)) return 0;
        if (a->kind >= HET_ACTION_SEND_F && a->kind <= HET_ACTION_RECV_B && l->only == 0 &&
            !heti_play_transfer(l, rank, a)) return 0;
        if (l->to != NULL) heti_complete_add(l, rank, *a);
        if (meets) {
            heti_play_meet(l, rank, heti_lists_block(l, a));
            return 0;
        }
        l->rank[rank].at++;
    }
    return 0;
}

/* What the head of a blocked rank waits for, and whose it is (-1: everybody's VERDICT). */
static het_action heti_play_blocker(const heti_lists *l, int64_t rank, int64_t *whose) {
    const het_action *a = heti_play_head(l, rank);
    het_action wanted = *a;
    *whose = -1;
    if (a->kind == HET_ACTION_COMMIT) return wanted;
    if (a->kind >= HET_ACTION_REDUCE) {
        const heti_listed_update *u = heti_update_wants(l, a, &wanted.kind);
        if (u != NULL) wanted.version = HETI_CAST(int32_t, (u - l->update) % l->updates);
        return wanted;
    }
    if (a->kind >= HET_ACTION_SEND_F) return heti_play_partner(l, a, whose);
    if (!heti_lists_wants(l, a, HETI_WANTS_MESSAGE, &wanted, whose) || heti_lists_happened(l, &wanted))
        (void)heti_lists_wants(l, a + 1, HETI_WANTS_MESSAGE, &wanted, whose);
    return wanted;
}

/* The chain of waiting from the first blocked rank on, as far as a message goes. */
static het_result heti_play_stuck(const heti_lists *l) {
    char chain[200];
    heti_text t = heti_text_in(chain, sizeof chain);
    heti_action_text text;
    int64_t rank = 0, whose, i, first;
    while (heti_play_head(l, rank) == NULL || heti_play_head(l, rank)->kind == HET_ACTION_COMMIT) rank++;
    first = rank;
    for (i = 0; i < 3 && rank >= 0 && heti_play_head(l, rank) != NULL && (i == 0 || rank != first); i++, rank = whose) {
        const het_action wanted = heti_play_blocker(l, rank, &whose);
        heti_text_write(&t, "%srank %d, position %d (%s) waits for ", i > 0 ? "; " : "", rank, l->rank[rank].at,
                        heti_action_print(&text, heti_play_head(l, rank)));
        heti_text_write(&t, "%s", heti_action_print(&text, &wanted));
        if (whose >= 0) heti_text_write(&t, " of rank %d", whose);
        if (wanted.kind == HET_ACTION_RECV_F || wanted.kind == HET_ACTION_RECV_B) {
            const het_action *before = heti_play_expected(l, whose, rank);
            if (before != NULL) heti_text_write(&t, " behind %s", heti_action_print(&text, before));
        }
    }
    return heti_invalid(l->error, l->where, "deadlock: %s", chain);
}

/* only: 0, HET_ACTION_REDUCE or HET_ACTION_GATHER. */
static het_result heti_play(heti_lists *l, int32_t only) {
    int64_t r;
    HETI_CLEAR(l->seen, l->entries);
    for (r = 0; r < l->plan->ranks; r++) l->rank[r].at = l->rank[r].open = 0;
    for (r = 0; r <= l->block_count; r++) l->block[r].arrived = l->block[r].met = 0;
    for (r = 0; l->updates > 1 && r < l->block_count * l->updates; r++)
        memset(l->update[r].came, 0, sizeof l->update[r].came);
    l->only = only;
    heti_player_run(&l->player, l->plan->ranks, heti_play_begin, heti_play_end, l, 0);
    for (r = 0; r < l->plan->ranks && heti_play_head(l, r) == NULL; r++) {}
    if (r == l->plan->ranks) return HET_OK;
    if (only == 0) return heti_play_stuck(l);
    return heti_lists_fail(l, heti_play_head(l, r), "its order among these does not agree with other ranks");
}

/* ---- the end of the step: REDUCE, VERDICT, STEP, GATHER ---- */

/* One REDUCE, VERDICT, STEP or GATHER of a rank's list. */
static het_result heti_tail_action(const heti_lists *l, const het_action *list, const het_action *a) {
    heti_listed_block *block = heti_lists_block(l, a);
    const int verdict = l->block[l->block_count].happened != 0;
    if (block->stamp != l->stamp) return heti_lists_fail(l, a, "the rank does not hold this block");
    if ((block->happened >> a->kind & 1u) != 0) return heti_lists_fail(l, a, "comes twice");
    if (a->kind == HET_ACTION_REDUCE && verdict) return heti_lists_fail(l, a, "must come before VERDICT");
    if (a->kind == HET_ACTION_REDUCE && a - list < block->behind)
        return heti_lists_fail_for(l, a, "must come after the block's last use,", list[block->behind - 1]);
    if (a->kind == HET_ACTION_STEP && !verdict) return heti_lists_fail(l, a, "must come after VERDICT");
    if (a->kind == HET_ACTION_GATHER && block->ranks == 1)
        return heti_lists_fail(l, a, "the block has only this holder");
    if (a->kind == HET_ACTION_GATHER && (block->happened >> HET_ACTION_STEP & 1u) == 0)
        return heti_lists_fail(l, a, "must come after its STEP");
    block->happened |= 1u << a->kind;
    return HET_OK;
}

static het_result heti_tail_rank(heti_lists *l, int64_t rank) {
    const het_action *list = heti_list_of(l->schedule, rank), *a;
    heti_listed_block *verdict = &l->block[l->block_count];
    heti_lists_blocks_of(l, rank);
    for (int64_t i = 0; i < l->held_count; i++) l->block[l->held[i]].happened = 0;
    verdict->happened = 0;
    verdict->stamp = l->stamp;
    for (a = list; a < heti_list_of(l->schedule, rank + 1); a++)
        if (a->kind >= HET_ACTION_REDUCE) HETI_TRY(heti_tail_action(l, list, a));
    if (verdict->happened == 0) return heti_lists_missing(l, rank, heti_block_action(HET_ACTION_COMMIT, 0, 0));
    for (int64_t i = 0; i < l->held_count; i++) {
        const heti_listed_block *block = &l->block[l->held[i]];
        for (int32_t kind = HET_ACTION_REDUCE; kind <= HET_ACTION_GATHER; kind++) {
            const int needed = kind != HET_ACTION_COMMIT && (kind != HET_ACTION_GATHER || block->ranks > 1);
            if (needed && (block->happened >> kind & 1u) == 0)
                return heti_lists_missing(l, rank, heti_block_action(kind, l->held[i], 0));
        }
    }
    return HET_OK;
}

/* ---- complete ---- */

/* How many actions a rank's list gets. F, B and I have their transfers on both sides. */
static int64_t heti_complete_count(heti_lists *l, int64_t rank) {
    const het_action *list = heti_list_of(l->schedule, rank), *end = heti_list_of(l->schedule, rank + 1);
    int64_t count = end - list;
    for (const het_action *a = list; a < end; a++) {
        const int64_t taker = heti_neighbour(l->plan, a, 1), giver = heti_neighbour(l->plan, a, 0);
        count += (taker >= 0 && taker != rank) + (giver >= 0 && giver != rank);
    }
    if (l->updates > 1) return count;
    heti_lists_blocks_of(l, rank);
    for (int64_t i = 0; i < l->held_count; i++) count += l->block[l->held[i]].ranks > 1 ? 3 : 2;
    return count + 1;
}

/* Empty lists with room for what the play records, and for what comes behind. */
static het_result heti_complete_room(heti_lists *l) {
    const int64_t ranks = l->plan->ranks;
    int64_t total = 0;
    for (int64_t r = 0; r < ranks; r++) {
        const int64_t count = heti_complete_count(l, r);
        l->actions += count;
        total += l->rank[r].length = heti_is_recorded(l, r) ? count : 0;
    }
    HETI_TRY(heti_schedule_like(l->schedule, total, &l->allocator, l->where, &l->to, l->error));
    for (int64_t r = 0; r < ranks; r++) {
        l->to->start[r + 1] = l->to->start[r] + l->rank[r].length;
        l->rank[r].length = 0;
    }
    l->to->complete = 1;
    return HET_OK;
}

/* Sorts the rank's blocks by number or, before that, by when their last use ends anywhere. */
static void heti_complete_sort(heti_lists *l, int by_time) {
    l->player.now = 0;
    for (int64_t i = 0; i < l->held_count; i++)
        heti_player_push(&l->player, -l->held[i], by_time ? l->block[l->held[i]].when : 0);
    for (int64_t i = 0; i < l->held_count; i++) l->held[i] = -heti_player_pop(&l->player);
}

/* Where the stages' last backward actions, or forward ones where there are no others, and their
   SENDs end in the rank's list. */
static void heti_complete_last(heti_lists *l, int64_t rank) {
    const het_action *list = l->to->action + l->to->start[rank];
    int64_t end;
    for (int64_t i = 0; i < l->rank[rank].length; i++) {
        if (list[i].kind != HET_ACTION_B && list[i].kind != HET_ACTION_W &&
            (list[i].kind != HET_ACTION_F || het_plan_backward(l->plan, heti_stage_at(l->plan, &list[i])))) continue;
        for (end = i + 1 + (list[i].overlap != 0); end < l->rank[rank].length && (list[end].kind == HET_ACTION_SEND_F ||
             list[end].kind == HET_ACTION_SEND_B); end++) {}
        l->stage[heti_stage_at(l->plan, &list[i])].last = end;
    }
}

/* The rank's REDUCEs, in one order on all ranks; each as early as its block's last use and the one
   before it allow: moved in from the back. Then VERDICT, then STEP and GATHER by number. */
static void heti_complete_tail(heti_lists *l, int64_t rank) {
    het_action *to = l->to->action + l->to->start[rank];
    int64_t i, behind = 0, from = l->rank[rank].length - 1, last;
    heti_lists_blocks_of(l, rank);
    last = from + l->held_count;
    heti_complete_sort(l, 1);
    for (i = 0; i < l->held_count; i++)
        l->block[l->held[i]].behind = behind = heti_max(l->block[l->held[i]].behind, behind);
    for (i = l->held_count - 1; i >= 0; last--) {
        if (l->block[l->held[i]].behind > from) to[last] = heti_block_action(HET_ACTION_REDUCE, l->held[i--], 0);
        else to[last] = to[from--];
    }
    l->rank[rank].length += l->held_count;
    heti_complete_add(l, rank, heti_block_action(HET_ACTION_COMMIT, 0, 0));
    heti_complete_sort(l, 0);
    for (i = 0; i < l->held_count; i++) {
        heti_complete_add(l, rank, heti_block_action(HET_ACTION_STEP, l->held[i], 0));
        if (l->block[l->held[i]].ranks > 1)
            heti_complete_add(l, rank, heti_block_action(HET_ACTION_GATHER, l->held[i], 0));
    }
}

static het_result heti_lists_compute_only(const heti_lists *l, const char *wrong) {
    for (const het_action *a = l->schedule->action; a < heti_list_of(l->schedule, l->schedule->ranks); a++)
        if (a->kind >= HET_ACTION_SEND_F) return heti_lists_fail(l, a, wrong);
    return HET_OK;
}

/* ---- several updates ---- */

/* Whether the rank owns some of a block, and so has its STEPs. */
static int heti_lists_owns(const heti_lists *l, int64_t rank, const heti_listed_block *block) {
    return !(block->shares > 0.0) || l->plan->state_share[rank] > 0.0;
}

/* The next block, *i: behind which, that units of an action's stage use; of a backward action those
   with gradients from it: I makes those of units with a loss, W the others. -1: no more. */
static int64_t heti_stage_block(const heti_lists *l, const het_action *a, int64_t *i) {
    const het_stage *stage = &l->plan->stage[heti_stage_at(l->plan, a)];
    const int64_t start = l->unit_start[stage->unit_begin];
    int64_t u = heti_last_start(l->unit_start, stage->unit_begin, stage->unit_end, start + *i);
    for (; u < stage->unit_end; u++) {
        const int loss = u + 1 == l->plan->units || (l->plan->cut && l->plan->cut[u] == HET_CUT_BEHIND);
        if (start + *i >= l->unit_start[u + 1]) continue;
        if (a->kind == (loss ? HET_ACTION_W : HET_ACTION_I)) *i = l->unit_start[u + 1] - start;
        else return l->unit_block[start + (*i)++];
    }
    return -1;
}

/* The rank's blocks, behind which position each one's last gradient of an update is; none done. */
static void heti_updates_start(heti_lists *l, int64_t rank) {
    const het_action *list = heti_list_of(l->schedule, rank);
    heti_lists_blocks_of(l, rank);
    l->block[l->block_count].happened = 0;
    for (int64_t i = 0; i < l->held_count; i++) {
        heti_listed_block *block = &l->block[l->held[i]];
        block->open = -1;
        block->reduced = block->stepped = block->gathered = block->updates = 0;
        for (int64_t u = 0; u < l->updates; u++) {
            heti_listed_update *update = &l->update[l->held[i] * l->updates + u];
            update->gathered = update->used = update->behind = 0;
            if (update->lists[HET_ACTION_REDUCE] > 0) block->updates = u + 1;
        }
    }
    for (const het_action *a = list; a < heti_list_of(l->schedule, rank + 1); a++) {
        const int makes = heti_makes_gradients(a), looks = makes || (a->kind <= HET_ACTION_W && a->version > 0);
        for (int64_t k = 0, b; looks && (b = heti_stage_block(l, a, &k)) >= 0;) {
            heti_listed_update *update = &l->update[b * l->updates];
            if (makes) update[a->version].behind = a - list + 1;
            else update[a->version - 1].used = 1;
        }
    }
}

/* F uses what was gathered, or a sole holder predicts; of a micro-batch all slices use the same. */
static het_result heti_updates_forward(heti_lists *l, const het_action *a) {
    het_action first = *a;
    first.slice = 0;
    l->version[heti_lists_entry(l, a)] = a->version;
    if (l->version[heti_lists_entry(l, &first)] != a->version)
        return heti_lists_fail(l, a, "another slice of its micro-batch uses another version");
    for (int64_t k = 0, b; a->version > 0 && (b = heti_stage_block(l, a, &k)) >= 0;) {
        const heti_listed_block *block = &l->block[b];
        if (l->update[b * l->updates + a->version - 1].gathered) continue;
        if (block->holders == 1 && block->gathered < a->version) continue; /* it predicts */
        return heti_lists_fail_for(l, a, "predicts no block of several ranks (tied, copied): must follow",
                                   heti_block_action(HET_ACTION_GATHER, b, a->version - 1));
    }
    return HET_OK;
}

/* The gradients of one update at a time, and no more behind its REDUCE. */
static het_result heti_updates_backward(heti_lists *l, int64_t rank, const het_action *a) {
    const int32_t used = l->version[heti_lists_entry(l, a)];
    if (used > a->version)
        return heti_lists_fail(l, a, "its forward pass used what this update, or a later one, makes");
    if (l->plan->staleness > 0 && a->version - used > l->plan->staleness)
        return heti_invalid(l->error, l->where, "rank %d, position %d: the gradient of micro-batch %i joins update %i "
                            "and was made with version %i; the plan's staleness is %d", rank,
                            HETI_CAST(int64_t, a - heti_list_of(l->schedule, rank)), a->micro_batch, a->version, used,
                            l->plan->staleness);
    for (int64_t k = 0, b; (b = heti_stage_block(l, a, &k)) >= 0;) {
        heti_listed_block *block = &l->block[b];
        const het_action reduce = heti_block_action(HET_ACTION_REDUCE, b, block->open >= 0 ? block->open : a->version);
        if (a->version < block->reduced) return heti_lists_fail_for(l, a, "must come before", reduce);
        if (block->open >= 0 && block->open != a->version)
            return heti_lists_fail_for(l, a, "must come after", reduce);
        if (block->holders == 1 && block->stepped < block->reduced)
            return heti_lists_fail_for(l, a, "must come after", heti_block_action(HET_ACTION_STEP, b, block->stepped));
        block->open = a->version;
        if (used > 0 && !l->update[b * l->updates + used - 1].gathered)
            return heti_lists_fail_for(l, a, "must come after", heti_block_action(HET_ACTION_GATHER, b, used - 1));
    }
    return HET_OK;
}

/* One REDUCE, STEP, GATHER or VERDICT. */
static het_result heti_updates_action(heti_lists *l, int64_t rank, const het_action *a) {
    heti_listed_block *block = heti_lists_block(l, a);
    heti_listed_update *update = heti_lists_update(l, a);
    if (a->kind == HET_ACTION_COMMIT) {
        block->happened = 1;
        return a + 1 == heti_list_of(l->schedule, rank + 1) ? HET_OK : heti_lists_fail(l, a, "must be the last action");
    }
    if (block->stamp != l->stamp) return heti_lists_fail(l, a, "the rank does not hold this block");
    if (a->kind == HET_ACTION_REDUCE) {
        if (block->open != a->version || a - heti_list_of(l->schedule, rank) < update->behind)
            return heti_lists_fail(l, a, "its gradients are not all there, or it has none");
        block->open = -1;
        block->reduced = a->version + 1;
    } else if (a->kind == HET_ACTION_STEP) {
        if (a->version != block->stepped++ || !heti_lists_owns(l, rank, block))
            return heti_lists_fail(l, a, "comes twice, too early, or the rank owns nothing of this block");
    } else {
        if (a->version < block->gathered || heti_keeps(l->plan, rank))
            return heti_lists_fail(l, a, "comes behind that of a later update, or to a keeper");
        if (heti_lists_owns(l, rank, block) && block->stepped != a->version + 1)
            return heti_lists_fail(l, a, "must come between its STEP and the next");
        block->gathered = a->version + 1;
        update->gathered = 1;
    }
    return HET_OK;
}

/* A rank's list; at its end everything was reduced, and every holder has the newest version. */
static het_result heti_updates_rank(heti_lists *l, int64_t rank) {
    if (heti_team_size(l->plan, rank) > 1)
        return heti_fail(l->error, HET_ERR_UNSUPPORTED, "%s: rank %d leads a team; only ranks that are alone update "
                                                        "weights several times a step", l->where, rank);
    heti_updates_start(l, rank);
    for (const het_action *a = heti_list_of(l->schedule, rank); a < heti_list_of(l->schedule, rank + 1); a++) {
        if (a->kind == HET_ACTION_F) HETI_TRY(heti_updates_forward(l, a));
        if (heti_makes_gradients(a)) HETI_TRY(heti_updates_backward(l, rank, a));
        if (a->kind >= HET_ACTION_REDUCE) HETI_TRY(heti_updates_action(l, rank, a));
    }
    if (!l->block[l->block_count].happened)
        return heti_lists_missing(l, rank, heti_block_action(HET_ACTION_COMMIT, 0, 0));
    for (int64_t i = 0; i < l->held_count; i++) {
        const int64_t b = l->held[i], updates = l->block[b].updates;
        const heti_listed_block *block = &l->block[b];
        if (block->open >= 0)
            return heti_lists_missing(l, rank, heti_block_action(HET_ACTION_REDUCE, b, block->open));
        if (heti_lists_owns(l, rank, block) && block->stepped < updates)
            return heti_lists_missing(l, rank, heti_block_action(HET_ACTION_STEP, b, block->stepped));
        if (!heti_keeps(l->plan, rank) && block->gathered < updates)
            return heti_lists_missing(l, rank, heti_block_action(HET_ACTION_GATHER, b, updates - 1));
    }
    return HET_OK;
}

/* Where lists are completed REDUCE comes right behind the last gradient of its update. Before it,
   and before the first F that wants a version, stand the STEPs that either waits for, which a rank
   does as soon as it may (heti_try_steps), and GATHERs of the versions that it will use; the others
   come at the end. STEP of a block with one holder comes right behind REDUCE. */

static void heti_updates_add(heti_lists *l, het_action a) {
    if (l->placed) {
        l->placed->action[l->placed_count] = a;
        if (a.kind > HET_ACTION_REDUCE && a.kind != HET_ACTION_COMMIT) heti_lists_update(l, &a)->lists[a.kind]++;
    }
    l->placed_count++;
}

/* STEPs of a block up to `version`, and GATHERs, unless gradients that they want are to come. */
static void heti_updates_bring(heti_lists *l, int64_t rank, int64_t b, int64_t version, int64_t position) {
    heti_listed_block *block = &l->block[b];
    const heti_listed_update *update = &l->update[b * l->updates];
    for (int64_t u = block->stepped; u < version; u++)
        if (update[u].behind > position) return;
    for (; block->stepped < version; block->stepped++) {
        const int last = block->stepped + 1 == block->updates;
        if (heti_lists_owns(l, rank, block)) heti_updates_add(l, heti_block_action(HET_ACTION_STEP, b, block->stepped));
        if (!heti_keeps(l->plan, rank) && (update[block->stepped].used || last))
            heti_updates_add(l, heti_block_action(HET_ACTION_GATHER, b, block->stepped));
    }
}

static void heti_updates_place_rank(heti_lists *l, int64_t rank) {
    const het_action *list = heti_list_of(l->schedule, rank);
    const int64_t count = heti_list_of(l->schedule, rank + 1) - list;
    heti_updates_start(l, rank);
    for (int64_t i = 0; i < count; i++) {
        const het_action *a = &list[i];
        for (int64_t k = 0, b; a->kind == HET_ACTION_F && a->version > 0 && (b = heti_stage_block(l, a, &k)) >= 0;)
            heti_updates_bring(l, rank, b, a->version, i);
        heti_updates_add(l, *a);
        for (int64_t k = 0, b; heti_makes_gradients(a) && (b = heti_stage_block(l, a, &k)) >= 0;) {
            if (l->update[b * l->updates + a->version].behind != i + 1 || l->block[b].reduced > a->version) continue;
            heti_updates_bring(l, rank, b, a->version + 1 - heti_window(l->plan), i + 1);
            heti_updates_add(l, heti_block_action(HET_ACTION_REDUCE, b, a->version));
            l->block[b].reduced = a->version + 1;
            int64_t version = a->version + 1; /* and those behind it without gradients */
            while (version < l->block[b].updates && l->update[b * l->updates + version].behind == 0) version++;
            if (l->block[b].holders == 1) heti_updates_bring(l, rank, b, version, i + 1);
        }
    }
    for (int64_t u = 1; u <= l->updates; u++)
        for (int64_t i = 0; i < l->held_count; i++)
            if (u <= l->block[l->held[i]].updates) heti_updates_bring(l, rank, l->held[i], u, count);
    heti_updates_add(l, heti_block_action(HET_ACTION_COMMIT, 0, 0));
}

/* The lists with them: counted, then written. They are what is completed from now on. */
static het_result heti_updates_place(heti_lists *l) {
    const het_schedule *s = l->schedule;
    for (int64_t r = 0; r < s->ranks; r++) {
        heti_updates_start(l, r);
        for (int64_t i = 0; i < l->held_count; i++)
            for (int64_t u = 0; u < l->updates; u++) {
                heti_listed_update *update = &l->update[l->held[i] * l->updates + u];
                update->lists[HET_ACTION_REDUCE] += update->behind > 0;
            }
    }
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) HETI_TRY(heti_schedule_like(s, l->placed_count, &l->allocator, l->where, &l->placed, l->error));
        l->placed_count = 0;
        for (int64_t r = 0; r < s->ranks; r++) {
            heti_updates_place_rank(l, r);
            if (pass == 1) l->placed->start[r + 1] = l->placed_count;
        }
    }
    l->schedule = l->placed;
    return HET_OK;
}

/* ---- check and complete ---- */

static het_result heti_lists_prove(heti_lists *l) {
    const int completes = l->whose != HETI_LISTS_OF_NONE;
    double slices = 0.0;
    if (completes) HETI_TRY(heti_lists_compute_only(l, "only compute actions can be completed"));
    for (int64_t i = 0; i < l->plan->slices; i++) slices += l->plan->slice_share[i];
    for (int64_t i = 0; i < l->plan->ranks; i++) HETI_TRY(heti_lists_check_rank(l, i, slices));
    HETI_TRY(heti_lists_check_entries(l));
    if (!l->schedule->complete && l->updates > 1) HETI_TRY(heti_updates_place(l));
    for (int64_t i = 0; i < l->plan->ranks && (l->schedule->complete || l->updates > 1); i++)
        HETI_TRY(l->updates > 1 ? heti_updates_rank(l, i) : heti_tail_rank(l, i));
    if (completes) HETI_TRY(heti_complete_room(l));
    HETI_TRY(heti_play(l, 0));
    if (l->updates > 1) return HET_OK; /* REDUCE, STEP and GATHER were played as they wait */
    for (int64_t i = 0; i < l->plan->ranks && completes; i++) {
        if (heti_is_recorded(l, i)) heti_complete_last(l, i);
        heti_lists_blocks_of(l, i); /* after all of them `when` is known */
    }
    for (int64_t i = 0; i < l->plan->ranks; i++)
        if (heti_is_recorded(l, i)) heti_complete_tail(l, i);
    if (!l->schedule->complete) return HET_OK;
    HETI_TRY(heti_play(l, HET_ACTION_REDUCE));
    return heti_play(l, HET_ACTION_GATHER);
}

/* Tables for a schedule whose numbers are all in range, its proof, and complete lists of `whose` in
   l->to. heti_lists_end in any case. */
static het_result heti_lists_run(heti_lists *l, const het_plan *plan, const het_blocks *blocks,
                                 const het_schedule *schedule, const het_allocator *allocator, int64_t whose,
                                 const char *where, het_error *error) {
    memset(l, 0, sizeof *l);
    l->plan = plan;
    l->blocks = blocks;
    l->schedule = schedule;
    l->whose = whose;
    l->where = where;
    l->error = error;
    HETI_TRY(heti_choose_allocator(allocator, &l->allocator, where, error));
    HETI_TRY(heti_lists_check_blocks(l, where, error));
    HETI_REFUSE(!plan->state_share || !plan->slice_share, "the plan's shares of ranks or slices are NULL");
    for (int64_t i = 0; i < plan->pipelines; i++) HETI_TRY(heti_plan_check_chain(plan, i, where, error));
    l->updates = heti_updates(plan);
    HETI_TAKE_ALL(&l->arrays, &l->allocator, where, error, heti_lists_layout(l));
    HETI_TRY(heti_lists_check_actions(l));
    HETI_TRY(heti_lists_check_forwards(l));
    heti_lists_index(l);
    for (int64_t i = 0; i < plan->ranks; i++) {
        const int64_t ranks = heti_team_size(plan, i);
        heti_lists_blocks_of(l, i);
        for (int64_t k = 0; k < l->held_count; k++) {
            l->block[l->held[k]].holders++;
            l->block[l->held[k]].ranks += ranks;
            l->block[l->held[k]].shares += plan->state_share[i];
        }
    }
    l->block[l->block_count].holders = plan->ranks;
    return heti_lists_prove(l);
}

static void heti_lists_end(heti_lists *l) {
    het_schedule_free(l->placed);
    heti_arena_end(&l->arrays, &l->allocator);
}

HETRAIN_API het_result het_schedule_check(const het_plan *plan, const het_blocks *blocks, const het_schedule *schedule,
                                          double *peak, het_error *error) {
    heti_lists l;
    het_result result;
    HETI_TRY(heti_schedule_arguments(plan, schedule, schedule, "het_schedule_check", error));
    result = heti_lists_run(&l, plan, blocks, schedule, &schedule->allocator, HETI_LISTS_OF_NONE, "het_schedule_check",
                            error);
    for (int64_t i = 0; result == HET_OK && peak != NULL && i < plan->ranks; i++) peak[i] = l.rank[i].peak;
    heti_lists_end(&l);
    return result;
}

/* het_schedule_complete, of one rank's list alone or HETI_LISTS_OF_ALL. bytes: what all take. */
static het_result heti_complete(const het_plan *plan, const het_blocks *blocks, const het_schedule *compute,
                                int64_t whose, const het_allocator *allocator, het_schedule **schedule, size_t *bytes,
                                het_error *error) {
    const char *where = "het_schedule_complete";
    heti_lists l;
    heti_arena all = HETI_ZEROS;
    het_result result;
    if (schedule != NULL) *schedule = NULL;
    HETI_TRY(heti_schedule_arguments(plan, compute, schedule, where, error));
    result = heti_lists_run(&l, plan, blocks, compute, allocator, whose, where, error);
    heti_schedule_layout(&all, plan->ranks, plan->pipelines, l.actions, schedule);
    *bytes = all.used;
    heti_lists_end(&l);
    if (result == HET_OK) *schedule = l.to;
    else het_schedule_free(l.to);
    return result;
}

HETRAIN_API het_result het_schedule_complete(const het_plan *plan, const het_blocks *blocks,
                                             const het_schedule *compute, const het_allocator *allocator,
                                             het_schedule **schedule, het_error *error) {
    size_t bytes;
    return heti_complete(plan, blocks, compute, HETI_LISTS_OF_ALL, allocator, schedule, &bytes, error);
}

/* ---- PUT and TAKE ---- */

/* The most slices of the action's stage that stay on the device; INT64_MAX: all do. */
static int64_t heti_store_most(const heti_lists *l, const het_action *a) {
    const int64_t stage = heti_stage_at(l->plan, a), store = l->plan->stage[stage].store;
    return store > 0 && het_plan_backward(l->plan, stage) ? store * l->plan->slices : INT64_MAX;
}

/* PUT or TAKE of an action's slice. */
static void heti_store_move(heti_lists *l, int64_t rank, const het_action *a, int32_t kind) {
    het_action *to = &l->to->action[l->to->start[rank + 1]++];
    *to = heti_lists_other(a, kind, 0);
    heti_lists_mark(l, to);
    l->stage[heti_stage_at(l->plan, a)].kept += kind == HET_ACTION_TAKE ? 1 : -1;
}

/* A rank's actions [list, end), without those that are replaced. A slice takes its place when its F
   begins, and gives it back when its B or W ends; what comes next is taken where there is one. What
   an F or I leaves too much is put, unless the next actions work on it. */
static void heti_store_rank(heti_lists *l, int64_t rank, het_action *list, const het_action *end) {
    const het_action *a, *b, *next, *last, *same;
    het_action *to = list;
    for (b = list; b < end; b++)
        if ((b->kind != HET_ACTION_PUT && b->kind != HET_ACTION_TAKE) || heti_store_most(l, b) == INT64_MAX) *to++ = *b;
    l->to->start[rank + 1] = l->to->start[rank];
    for (a = list, end = to; a < end; a = next) {
        next = a + 1 + (a->overlap != 0);
        last = next < end ? next + 1 + (next->overlap != 0) : end;
        for (b = a; b < last; b++) {
            int64_t *kept = &l->stage[heti_stage_at(l->plan, b)].kept;
            if (heti_lists_has(l, b, HET_ACTION_PUT) && (b < next || *kept <= heti_store_most(l, b)))
                heti_store_move(l, rank, b, HET_ACTION_TAKE);
            *kept += b < next && b->kind == HET_ACTION_F;
        }
        for (b = a; b < next; b++) {
            l->to->action[l->to->start[rank + 1]++] = *b;
            l->stage[heti_stage_at(l->plan, b)].kept -= b->kind == HET_ACTION_B || b->kind == HET_ACTION_W;
        }
        for (b = a; b < next; b++) {
            for (same = next; same < last && heti_lists_entry(l, same) != heti_lists_entry(l, b);) same++;
            if ((b->kind == HET_ACTION_F || b->kind == HET_ACTION_I) && same == last &&
                l->stage[heti_stage_at(l->plan, b)].kept > heti_store_most(l, b))
                heti_store_move(l, rank, b, HET_ACTION_PUT);
        }
    }
}

/* Lists that are proved, with PUT and TAKE, in l->to. */
static het_result heti_store_lists(heti_lists *l, het_schedule *from) {
    l->where = "het_schedule_store";
    l->schedule = from; /* with several updates others were proved in its place */
    HETI_TRY(heti_lists_compute_only(l, "only compute lists get PUT and TAKE"));
    /* an F or I and what is put behind it and taken again: three for one */
    HETI_TRY(heti_schedule_like(from, 3 * from->start[from->ranks], &from->allocator, l->where, &l->to, l->error));
    HETI_CLEAR(l->seen, l->entries);
    for (int64_t i = 0; i < from->ranks; i++)
        heti_store_rank(l, i, from->action + from->start[i], from->action + from->start[i + 1]);
    return HET_OK;
}

HETRAIN_API het_result het_schedule_store(const het_plan *plan, het_schedule **schedule, het_error *error) {
    het_schedule *from = schedule ? *schedule : NULL;
    heti_lists l;
    het_result result;
    int64_t stored = 0;
    HETI_TRY(heti_schedule_arguments(plan, from, from, "het_schedule_store", error));
    for (int64_t i = 0; i < plan->stages; i++) stored += plan->stage[i].store > 0;
    if (stored == 0) return HET_OK;
    result = heti_lists_run(&l, plan, NULL, from, &from->allocator, HETI_LISTS_OF_NONE, "het_schedule_check", error);
    if (result == HET_OK) result = heti_store_lists(&l, from);
    heti_lists_end(&l);
    if (result != HET_OK) return result;
    *schedule = l.to;
    het_schedule_free(from);
    return HET_OK;
}

/* ---- what lists need ---- */

/* What of a schedule is followed: left, slices of a micro-batch that are in flight or to come,
   those of a stage from base[stage] on; apart, 1: the stage has an I. */
typedef struct heti_followed {
    const het_plan *plan;
    const het_schedule *schedule;
    int64_t *base, *left;
    uint8_t *apart;
    int64_t blocks, longest;                    /* blocks named; actions of the longest list */
    int32_t *version, *wanted, *queue, *first, *end; /* see heti_follow_versions */
    heti_arena arena;
} heti_followed;

/* A rank's list, all its stages at once. */
static het_result heti_follow(const heti_followed *f, int64_t rank, int forwards, het_needs *needs, het_error *error) {
    const int complete = f->schedule->complete;
    int64_t slots[2] = { 0, 0 }, *const most[2] = { &needs->slots, &needs->lean };
    int64_t places = 0, batch_slots = 0, chains = 0, messages = 0;
    for (const het_action *a = heti_list_of(f->schedule, rank); a < heti_list_of(f->schedule, rank + 1); a++) {
        const int forward = a->kind == HET_ACTION_F, backward = heti_goes_back(a);
        int64_t stage, *left;
        int lean;
        if (forwards && !forward && a->kind != HET_ACTION_RECV_F) continue;
        if (a->kind == HET_ACTION_RECV_F || a->kind == HET_ACTION_RECV_B)
            needs->messages = heti_max(needs->messages, ++messages);
        if (a->kind > HET_ACTION_TAKE && (a->kind != HET_ACTION_GATHER || a->stage >= 0)) continue;
        if (a->kind < 0 || a->pipeline < 0 || a->pipeline >= f->plan->pipelines || heti_rank_at(f->plan, a, 0) < 0 ||
            a->micro_batch < 0 || a->micro_batch >= f->schedule->micro_batches[a->pipeline])
            return heti_fail(error, HET_ERR_INVALID, "het_schedule_needs: rank %d, action %d: no such pipeline, stage "
                             "or micro-batch", rank, HETI_CAST(int64_t, a - heti_list_of(f->schedule, rank)));
        lean = heti_is_lean(f->plan, a);
        if (forward || a->kind == HET_ACTION_TAKE) *most[lean] = heti_max(*most[lean], ++slots[lean]);
        if (a->kind == HET_ACTION_TAKE) places--;
        if (a->kind == HET_ACTION_PUT) {
            needs->places = heti_max(needs->places, ++places);
            slots[lean]--;
        }
        if (a->kind > HET_ACTION_W && a->kind <= HET_ACTION_TAKE) continue;
        stage = heti_stage_at(f->plan, a);
        left = &f->left[f->base[stage] + a->micro_batch];
        if (a->kind == HET_ACTION_I) f->apart[stage] = 1;
        if (forward && a->slice == 0) {
            needs->batch_slots = heti_max(needs->batch_slots, ++batch_slots);
            *left = f->plan->slices;
            if (f->version) f->version[f->base[stage] + a->micro_batch] = a->version;
        }
        if (backward && a->slice == f->plan->slices - 1) needs->chains = heti_max(needs->chains, ++chains);
        if (complete && heti_neighbour(f->plan, a, 0) >= 0) messages--;
        if (complete && heti_neighbour(f->plan, a, 1) == rank)
            needs->messages = heti_max(needs->messages, ++messages);
        if (a->kind == HET_ACTION_B || a->kind == HET_ACTION_W || forwards ||
            (forward && !het_plan_backward(f->plan, stage))) {
            slots[lean]--;
            if (--*left > 0) continue;
            batch_slots--;
            chains -= !forward;
        }
    }
    return HET_OK;
}

/* Versions of a block's weights that a rank has at most at once, behind a GATHER: the newest, and
   those from the oldest on that later actions use. wanted[i]: the oldest that actions from i on
   use; queue, of each block: those there are, from `first` to `end`. */
static void heti_follow_versions(const heti_followed *f, int64_t rank, het_needs *needs) {
    const het_action *list = heti_list_of(f->schedule, rank), *behind = heti_list_of(f->schedule, rank + 1), *a;
    const int64_t updates = heti_updates(f->plan);
    f->wanted[behind - list] = INT32_MAX;
    for (a = behind; a > list;) {
        a--;
        const int32_t version = a->kind > HET_ACTION_W ? INT32_MAX :
            f->version[f->base[heti_stage_at(f->plan, a)] + a->micro_batch], later = f->wanted[a + 1 - list];
        f->wanted[a - list] = version < later ? version : later;
    }
    HETI_CLEAR(f->first, f->blocks);
    HETI_CLEAR(f->end, f->blocks);
    for (a = list; a < behind; a++)
        if (a->kind == HET_ACTION_GATHER) f->end[a->stage] = 1;
    for (int64_t b = 0; b < f->blocks; b++) f->queue[b * (updates + 1)] = 0;
    for (a = list; a < behind; a++) {
        int32_t *queue = &f->queue[a->stage * (updates + 1)], *first = &f->first[a->stage], *end = &f->end[a->stage];
        for (int64_t b = 0; a->kind == HET_ACTION_F && b < f->blocks; b++)
            needs->predicts |= f->end[b] > 0 && f->queue[b * (updates + 1) + f->end[b] - 1] < a->version;
        if (a->kind != HET_ACTION_GATHER) continue;
        while (*first < *end && queue[*first] < f->wanted[a - list]) ++*first;
        if (*end <= updates) queue[(*end)++] = a->version + 1;
        needs->versions = heti_max(needs->versions, *end - *first);
    }
}

static void heti_follow_layout(heti_followed *f) {
    int64_t cells = 0;
    f->base = HETI_TAKE(&f->arena, int64_t, f->plan->stages);
    f->apart = HETI_TAKE(&f->arena, uint8_t, f->plan->stages);
    for (int64_t s = 0; s < f->plan->stages; s++) {
        if (f->arena.base) f->base[s] = cells;
        cells += f->schedule->micro_batches[f->plan->stage[s].pipeline];
    }
    f->left = HETI_TAKE(&f->arena, int64_t, cells);
    if (heti_updates(f->plan) == 1) return;
    f->version = HETI_TAKE(&f->arena, int32_t, cells);
    f->wanted = HETI_TAKE(&f->arena, int32_t, f->longest + 1);
    f->queue = HETI_TAKE(&f->arena, int32_t, f->blocks * (heti_updates(f->plan) + 1));
    f->first = HETI_TAKE(&f->arena, int32_t, f->blocks);
    f->end = HETI_TAKE(&f->arena, int32_t, f->blocks);
}

HETRAIN_API het_result het_schedule_needs(const het_plan *plan, const het_schedule *schedule, int64_t first,
                                          int64_t count, int forwards, const het_allocator *allocator, het_needs *needs,
                                          het_error *error) {
    const char *where = "het_schedule_needs";
    het_allocator own;
    heti_followed f = HETI_ZEROS;
    het_result result = HET_OK;
    int64_t i;
    HETI_TRY(heti_schedule_arguments(plan, schedule, needs, where, error));
    HETI_REFUSE(first < 0 || count < 0 || count > plan->ranks - first, "%d ranks from number %d on; the plan has %d",
                count, first, plan->ranks);
    HETI_TRY(heti_choose_allocator(allocator, &own, where, error));
    f.plan = plan;
    f.schedule = schedule;
    for (i = 0; i < schedule->ranks; i++) f.longest = heti_max(f.longest, schedule->start[i + 1] - schedule->start[i]);
    for (i = 0; i < schedule->start[schedule->ranks]; i++)
        if (schedule->action[i].kind == HET_ACTION_GATHER) f.blocks = heti_max(f.blocks, schedule->action[i].stage + 1);
    HETI_TAKE_ALL(&f.arena, &own, where, error, heti_follow_layout(&f));
    HETI_CLEAR(needs, count);
    for (i = 0; i < count && result == HET_OK; i++) {
        result = heti_follow(&f, first + i, forwards, &needs[i], error);
        needs[i].versions = 1;
        if (result == HET_OK && heti_updates(plan) > 1 && !forwards) heti_follow_versions(&f, first + i, &needs[i]);
    }
    for (int64_t s = 0; s < plan->stages; s++) { /* bit 0: a stage without an I, bit 1: one with */
        const int64_t rank = plan->stage[s].rank;
        if (rank >= first && rank < first + count && het_plan_backward(plan, s))
            needs[rank - first].split |= f.apart[s] ? 2 : 1;
    }
    for (i = 0; i < count; i++) needs[i].split = needs[i].split == 3 ? 1 : needs[i].split == 2 ? 2 : 0;
    heti_arena_end(&f.arena, &own);
    return result;
}

/* =================================================================================================
   >>structs  What a context consists of.

   The context holds what all ranks share: the description, the chain of units, the tables of
   parameters and blocks, the plan, the schedule. A rank holds one device and what lies on it. Every
   local rank has a thread of its own, but for the only one without transport: the caller's.
   ============================================================================================== */

/* One trainable array. Its weight, gradient and state lie at `offset` within its block. */
typedef struct heti_parameter {
    het_parameter_desc desc;  /* of the first unit with it; divide -1: others divide it in another way */
    int64_t count, block, offset; /* elements; offset is a multiple of 16 */
    int64_t next;             /* of its block; -1: it is the last one */
    int64_t first_unit, last_unit; /* that use it */
    int64_t weight_offset;    /* in the block's weights, floats: offset where all of them are floats */
    int32_t frozen, uses, hidden;
    int32_t rounded;          /* some unit takes them rounded where they are beside the floats */
    het_dtype type;           /* of its weights in memory */
    int32_t exponent; /* all |term| < 2^exponent in the last accepted step (>>verdict) */
} heti_parameter;

/* Who has a block: its holders are the ranks with a stage that has one of its units, and keepers.
   Holder i owns the elements [cut[i], cut[i + 1]): it updates them and keeps their optimizer state.
   It holds weights between steps (heti_held): all of them or, where they are sharded, what it owns
   or its part of what its near set holds. Members of a team by columns hold what they own and,
   beside it, what they use: a box of each parameter (heti_box_of). Blocks that are alike
   (heti_find_alike) differ in `cut` and `held` alone, the other tables are those of the first. */
typedef struct heti_owners {
    int64_t first_alike;
    int64_t holders;
    int64_t *holder;          /* [holders] ranks, cluster by cluster, ascending in each */
    int64_t *by_rank;         /* [holders] numbers of holders, their ranks ascending */
    int64_t *cut;             /* [holders + 1] */
    int64_t *held;            /* [2 holders] where there are near sets: of each a range that it holds */
    int64_t clusters;         /* of holders: their first ranks ascend */
    int64_t *cluster;         /* [clusters + 1] numbers of holders, then `holders` */
    int64_t *group;           /* [clusters] into heti_share.group, whose members they are; -1: none */
} heti_owners;

/* Where a unit's tensor lives: with the slice or with the micro-batch it belongs to, with this from
   its first backward action on (chain), or in the region all units share because it is needed only
   while one unit, or stage, works; or there is one of it on the rank, for all micro-batches.
   Gathered: each slice's rows are with it, all rows in the shared region while the unit works. */
typedef enum heti_region {
    HETI_REGION_NONE, HETI_REGION_SLICE, HETI_REGION_BATCH, HETI_REGION_CHAIN, HETI_REGION_SHARED, HETI_REGION_RANK,
    HETI_REGION_GATHERED, HETI_REGIONS
} heti_region;

/* A unit on a rank, as part of one stage. */
typedef struct heti_placed {
    het_unit_info info;                       /* described with the rank's device */
    heti_region region[HETRAIN_MAX_UNIT_TENSORS];
    size_t offset[HETRAIN_MAX_UNIT_TENSORS];  /* bytes from the region's start */
    /* of the input and output streams, bytes from the start of the slice's slot or, where the stage
       is `apart`, of the shared region: but for what comes into the stage */
    size_t in_offset[HETRAIN_MAX_STREAMS], out_offset[HETRAIN_MAX_STREAMS];
    size_t end;                               /* of its part of the slot */
    /* all rows of what is gathered, one tensor behind the other: in the shared region; for
       het_infer where the chains are */
    size_t gathered, inferred;
    size_t workspace;                         /* begins here in the shared region, behind its tensors there */
    int32_t recompute;
} heti_placed;

/* A stage on a rank. Where its neighbours are on the same rank, streams are handed over like
   messages, without a transfer. One some of whose slices recompute stands there twice: for those
   that keep all, and for those that are lean, in slots of their own. */
typedef struct heti_stage {
    int64_t planned, unit_begin, unit_end; /* planned: its number in the plan */
    int64_t number;           /* of the rank's stages, the same for both */
    int32_t lean;
    heti_placed *unit;        /* [unit_end - unit_begin] */
    int32_t fused;            /* every backward of it is B */
    int32_t gathers;          /* what later slices of a micro-batch read, keys and values, lies with the slices,
                                 so that there is room for the rows in flight, not for all rows of every
                                 micro-batch of which a slice is; copies bring it together for each call */
    int32_t whole, apart;     /* it recomputes as a whole; and nothing between its units is kept */
} heti_stage;

/* A (stage, micro-batch) in flight: its view, and what is carried along its sequences. */
typedef struct heti_batch_slot {
    int64_t stage, micro_batch;              /* heti_stage.number; -1: free */
    int64_t version;                         /* of the weights that it uses */
    int64_t slices;                          /* in flight, or still to come */
    int64_t chain;                           /* of heti_part.chain_count; -1: none yet */
    het_view view;                           /* whole micro-batch; its arrays are the ones below */
    int64_t *sequence_start, *granule_start; /* host copies */
    int32_t *device_token, *device_target, *device_position, *device_sequence_of;
    float *device_weight;
    int64_t *device_sequence_start, *device_granule_start, *device_sample_id;
    char *memory;                            /* device */
} heti_batch_slot;

/* A (stage, micro-batch, slice) in flight: streams and kept tensors. Also a place on the host. */
typedef struct heti_slot {
    heti_batch_slot *batch_slot;             /* of its stage and micro-batch; NULL: free */
    int64_t slice;
    char *memory;                            /* device */
    het_event *moved;                        /* the last copy to the host or back is over; NULL: it always is */
    int64_t moving;                          /* number of that copy, until it has been waited for; 0: none */
} heti_slot;

/* Ranks whose devices reach each other: the holders of a cluster, the members of a team, or those
   of a lane, on which one of two neighbouring stages sends to the other. */
typedef enum heti_group_kind { HETI_GROUP_CLUSTER, HETI_GROUP_LANE, HETI_GROUP_TEAM, HETI_GROUPS } heti_group_kind;
typedef struct heti_communicator {
    heti_group_kind kind;
    int64_t members;
    const int64_t *member;    /* [members] ranks; of a lane: those that send, then those that receive */
} heti_communicator;

/* A rank's end of a group, with a queue of its own: waiting for members holds up nothing else. */
typedef struct heti_endpoint {
    int64_t group, member;    /* into heti_share.group; the rank's number in it */
    het_communicator *handle;        /* NULL: not joined */
    int32_t joined, aborted;
    het_queue *queue;
    het_event *event;         /* of a cluster: what an op works on is there */
    int64_t given, finished;  /* ops */
    const char *op;           /* the last one given, for messages */
} heti_endpoint;

/* One side of a transfer between two ranks. */
typedef struct heti_post {
    struct heti_post *next;
    int64_t from, to;
    int32_t channel, receives;
    void *data;
    size_t size;
    double ready;             /* when an emulated link lets it be seen */
    int32_t state;            /* atomic: heti_post_state */
    int32_t remote;
    het_request request;      /* of the transport, where remote */
    heti_endpoint *end;            /* op number `ticket` of it belongs to the message as well; NULL: none does */
    int64_t ticket;
} heti_post;
typedef enum heti_post_state { HETI_POST_IDLE = 0, HETI_POST_STARTED = 1, HETI_POST_DONE = 2 } heti_post_state;

/* What travels between stages: an envelope, then the rows of each stream. On a lane only the
   envelope passes through the host. */
typedef struct heti_envelope {
    int64_t step, size;
    het_action action;        /* the one that consumes it */
} heti_envelope;
typedef struct heti_message {
    het_action action;        /* as in the envelope; kind -1: the message is free */
    heti_post *post;          /* [heti_part.crossings] */
    het_record *record;       /* of its RECV */
    char *data;               /* of each crossing an envelope and its rows, one behind the other */
    heti_endpoint *end;       /* the lane its rows take; NULL: the host */
    int64_t ticket;           /* of their op there */
    char *rows;               /* device memory, laid out as `data`; NULL: the rank has no lanes */
    het_event *event;         /* `rows` hold what is sent, or may be received into again */
} heti_message;

#define HETI_FLOW_WINDOW 4    /* large pieces under way at most, and small ones: a link's latency is met once */
#define HETI_FLOW_SMALL 16    /* for so many */
#define HETI_FLOW_PIECE (1 << 22) /* elements of one at most */
#define HETI_FLOW_CHUNK (HETRAIN_FLOW_WINDOW / HETI_FLOW_WINDOW) /* the same where all holders have all of a block */
#define HETI_JOINS (2 * HETRAIN_TREE_MOST + 2) /* up, to processes and to ranks below, to one without work */
#define HETI_ENVELOPE 64       /* bytes before a message's rows */

/* What ranks that hold the same blocks send each other, because one of them, the driver, comes to
   something in its list: terms of a gradient to their owners behind a backward call, or the sums at
   its REDUCE; weights to the driver before a call; new weights to those who hold them at an owner's
   GATHER. All ranks know all lists: sender and receiver walk over the same pieces, and there is
   nothing to agree upon. */
typedef enum heti_flow_kind { HETI_FLOW_SUMS, HETI_FLOW_WEIGHTS, HETI_FLOW_GATHER, HETI_FLOWS } heti_flow_kind;

/* Elements [first, first + count) of a block, of weights floats, in a call. */
typedef struct heti_flow_piece {
    int64_t action, unit, left;       /* of the driver's list, or place in the order of blocks; of the chain;
                                         units of the pass behind it */
    int32_t pass;                     /* the action's kind or, of a stage that it first recomputes, F */
    int64_t call;                     /* the how manieth of the driver's calls that have something to send */
    int64_t moved, block, parameter;  /* the block of a REDUCE or GATHER; of the piece; -1: all of the block */
    int64_t route;                    /* the cluster whose holders own it (heti_route) */
    int64_t first, count, end;        /* of those there are; count 0: there is nothing more */
    int64_t elements;                 /* of them that travel: those in a box, where one is used */
} heti_flow_piece;

/* One direction of one kind between the rank and another one. */
typedef struct heti_flow {
    heti_flow_kind kind;
    int32_t receives;                 /* sums that come are added, all else is stored */
    int64_t peer;
    heti_flow_piece next, *under_way; /* to be posted; [slots] number k is at k mod slots */
    heti_post *post;                  /* [slots] */
    int64_t begun, ended;
    char *data;                       /* on the host, room for `slots` pieces; NULL: they lie where they are */
    int64_t slots;
    size_t slot;                      /* bytes of one */
} heti_flow;

/* A block's REDUCE or GATHER. */
typedef struct heti_move {
    het_record *record;               /* NULL: the rank has not come to it */
    int64_t begun;                    /* 1: a piece was posted since, or its group was given it */
    int64_t ticket;                   /* of the last op of the rank's group that it needs; 0: none is given */
    int64_t reached;                  /* nanoseconds into the step when the rank last came to it; 0: never */
    int64_t ready;                    /* when the last rank did, as VERDICT has told all */
} heti_move;
typedef struct heti_flows {
    heti_flow *flow;                  /* [flows] of each kind both ways with each rank with which this one
                                         shares flows of a block (heti_share_flows) */
    int64_t flows;
    heti_move *move;                  /* [2 blocks] REDUCEs, then GATHERs */
    int64_t *order;                   /* [2 blocks] blocks, as they are reduced, as they are gathered */
    int64_t *start;                   /* [ranks + 1] ranges of an op */
    int64_t turn;                     /* place in `order` of the block that is the group's */
    int64_t wanted, ended;            /* REDUCEs and GATHERs of groups that the rank has come to, that are over */
    float *buffer[2][2];              /* device, of sums and of weights: terms that call number c adds are in
                                         [c % 2] until they are sent, weights that it uses while it runs */
    int64_t floats[2];                /* of a buffer: what all blocks of a unit take there, a term 2 */
    int64_t call[HETI_FLOWS];         /* of the rank's own, over in this job */
    int32_t came;                     /* 1: something came or went for which an update may have waited */
    int64_t piece[2];                 /* doubles of terms, floats of weights that travel together at most */
    int64_t pieces[2], part;          /* so many of either a peer sends at most; elements in the mean */
} heti_flows;

/* Work that has come before (>>exec, device graphs). key 0, 0: a free place; graph NULL: once. */
typedef struct heti_graph {
    uint64_t key[2];
    int64_t used;             /* heti_part.works when it came last */
    het_graph *graph;
} heti_graph;

/* Counts what goes through the user's allocator, so that the plan can be exact. */
typedef struct heti_counter { het_allocator inner; size_t live; } heti_counter;

/* What one of a context's threads is in: the callback, if it is one with a name, and the call on
   the context that it was refused. */
typedef struct heti_inside { const char *callback; het_error refused; } heti_inside;

/* What the plan decides of a rank: its stages, the places of what is in flight, its messages and
   reductions, the map of its memory and the records of its last step. */
typedef struct heti_part {
    heti_arena stages, host;             /* of stages, units, programs and ends; of all other tables and buffers */
    het_memory sizes;
    int64_t stage_count, batch_slot_count, slot_count, message_count, placed_count, actions;
    int64_t numbers;                     /* planned stages */
    int64_t lean_count;                  /* the last slots, for lean slices */
    int64_t chain_count;                 /* micro-batches that go backward at once */
    int32_t gathers;                     /* some of its stages may */
    heti_stage *stage;
    heti_placed *placed;
    het_program *program;                /* [placed_count], where heti_has_programs */
    heti_batch_slot *batch_slot;
    heti_slot *slot;
    heti_slot *place;                    /* [place_count] on the host, for activations */
    int64_t place_count, moves;          /* copies to them and back so far */
    size_t place_bytes;                  /* of each */
    char *places;                        /* their memory; NULL: het_host.store has it */
    heti_message *message;               /* [message_count + 2] incoming, then two that leave */
    heti_message *outgoing;              /* those */
    int64_t next_outgoing;
    size_t message_bytes;
    int64_t crossings;                   /* of a message, at most: members of a neighbouring stage */
    int64_t tokens;                      /* of a micro-batch of its pipelines, at most */
    het_team_limits limits;              /* of it in the team */
    het_team team;                       /* of the present slice; members 1: the rank is alone */
    int64_t *team_row;                   /* [members + 1] */
    het_view team_view;
    heti_post *exchange;                 /* [2 members] */
    char *exchange_data[2];              /* what leaves, what comes; device memory where the team is a group */
    size_t exchange_bytes;               /* of each */
    heti_graph *graph;                   /* [graphs] */
    int64_t graphs, works;               /* graphs 0: nothing is kept; works: pieces of work so far that could be */
    heti_flows flow;
    int64_t ends, ends_of[HETI_GROUPS];  /* groups it is a member of; how many of them of each kind */
    heti_endpoint *end;                  /* [ends + 1] in the order of heti_share.group; the last: no group, but
                                            the queue of copies to the host, where the device has queues */
    size_t lane_bytes;                   /* rows of the largest message that takes a lane;
                                            message_bytes: of one that passes through the host */
    size_t queue_bytes;                  /* of the host that their queues and events took */
    const het_action *action;            /* [actions] its list */
    het_record *record;                  /* [actions] of the last run */
    int64_t records;
    /* device memory: one block, cut up by heti_layout */
    char *memory;
    int64_t *weight_at, *own_at;         /* [blocks] floats from `weights` to where the block's weights would
                                            begin, of what is held and of what is owned; HETI_NOWHERE:
                                            not here */
    int64_t *box_at, *box_sum_at;        /* [blocks] floats from `weights`, `gradients` to the boxes of a block
                                            and to their sums; HETI_NOWHERE: it is used whole, it is summed
                                            where it is owned */
    int64_t versions;                    /* of boxes, one behind the other; more than 1 with several updates */
    int32_t predicts;                    /* 1: behind them one of predicted weights */
    int64_t *version;                    /* [blocks x versions] which one lies there, -1: none */
    int64_t *rounded_at;                 /* [parameters] its weights in bf16, elements from `rounded`;
                                            HETI_NOWHERE: there are none */
    int32_t *fresh;                      /* [blocks] 1: they are the weights, rounded */
    int64_t *gathered;                   /* [blocks] how many came so far; the newest lies at this mod `versions` */
    int64_t *stepped, *given;            /* [blocks] updates done in this job; GATHERs of the version before that have
                                            gone */
    int64_t *arrived;                    /* [blocks x heti_window] REDUCEs that have come of an update not done */
    int64_t *state_at;                   /* [blocks] elements from `state` to where the block's would begin */
    int64_t *sum_at;                     /* [parameters] floats from `gradients` to its sum, or to
                                            where element 0 would be if the rank sums only what it
                                            owns; HETI_NOWHERE: not trained here */
    int64_t weight_elements, rounded_elements, sum_floats, state_elements;
    uint16_t *rounded;
    float *weights, *state[4], *cosine, *sine, *logits;
    float *expanded;                     /* weights of one unit that are kept as int8, as floats */
    int64_t expanded_floats;
    float *gradients;
    uint32_t *maximum;
    int32_t *exponent;
    int32_t *empty;                      /* host: [parameters] 1: nothing is in its sum yet */
    double *grid;
    het_step_scalars *scalars;
    het_sum *loss, *squares;             /* squares: until VERDICT the losses of cuts, which nobody reads */
    char *shared;                        /* of the unit whose turn it is: tensors, then workspace */
    char *kept;                          /* what is there once for all micro-batches */
    char *chains;                        /* [chain_count][chain_bytes] */
    size_t shared_bytes, slot_bytes, lean_bytes, batch_slot_bytes, chain_bytes, kept_bytes, made_bytes;
    float *gradient_stream[2][HETRAIN_MAX_STREAMS], *spare_stream[HETRAIN_MAX_STREAMS];
    float *whole_stream[HETRAIN_MAX_STREAMS];  /* a team's leader's, all rows of a slice (het_host.hook_whole) */
    int64_t stream_floats[HETRAIN_MAX_STREAMS]; /* widest */
    /* host staging */
    int32_t *host_token, *host_target, *host_position, *host_sequence_of;
    float *host_weight;
    int64_t *host_sample_id;
    double *staging;                     /* HETI_STAGING elements: chunks of parameters on their way in or out */
    int64_t *joined;                     /* what VERDICT joins, and what comes in */
} heti_part;

typedef struct heti_rank {
    het_ctx *ctx;
    int64_t rank, local;                 /* among all ranks, in this process */
    het_device_desc desc;
    het_device device;
    int32_t takes_beta, takes_final;     /* of gradients whose products write them */
    int32_t takes_int8;                  /* weights of products */
    int32_t together;                    /* parameters that its device squares or updates by one op, at most */
    het_queue *queue;                    /* NULL where the device has none */
    het_event *event;
    het_event *loaded;                   /* what the host arrays of a micro-batch were copied from
                                            is free again; awaited before they are filled */
    het_error error;                     /* of the present job */
    heti_inside inside;                  /* of its thread, if it has one */
    size_t opened;                       /* bytes of the host that the device took */
    heti_part *part;                     /* in the share in use (heti_part_of) */
    int32_t capturing;                   /* what the device is given now is kept and does not run */
    het_record *present;                 /* the record of the action being run */
    het_record unrecorded;               /* stands in for it outside steps: the timeline stays the last step's */
    double began, slept_for;             /* of the job; processor time up to which slowing down has been slept off */
    double silent_since;                 /* 0: answers */
    const het_action *doing;             /* NULL: nothing of its list */
    het_step_scalars host_scalars;       /* of the job, on their way to the device */
    heti_post *join;                     /* [HETI_JOINS] of its place in the tree: [0] up, then down to those below */
#ifdef HETI_THREADS
    pthread_t thread;
#endif
    heti_signal wake;                    /* a message or a job has come; with ctx->threads.lock */
    uint32_t events;                     /* under ctx->threads.lock: counts them */
    int32_t threaded;
} heti_rank;
#define HETI_STAGING 16384
#define HETI_MOST_RANKS (INT64_C(1) << 24)
#define HETI_NOWHERE INT64_MIN

/* What the local ranks do together. */
typedef enum heti_job {
    HETI_JOB_NONE, HETI_JOB_STEP, HETI_JOB_GRADIENTS, HETI_JOB_EVALUATE, HETI_JOB_INFER, HETI_JOB_VERIFY, HETI_JOB_END
} heti_job;

/* First those that work, then the first ranks of processes without work. */
typedef struct heti_tree {
    het_tree_place *place;               /* [working + watching] */
    int64_t working, watching;
    int64_t speaker;                     /* the local rank that leaves behind what comes of a job */
} heti_tree;

/* Where a slice of a micro-batch begins: its first granule, and that granule's first row. */
typedef struct heti_border { int64_t granule, row; } heti_border;

/* Elements of a block. */
typedef struct heti_span { int64_t first, end; } heti_span;

/* An update of a block: ranks with its REDUCE and its GATHER; the weight of the targets that it is
   made from in the present job. */
typedef struct heti_counted_update { int64_t reduces, gathers; double weight; } heti_counted_update;

/* What a plan decides. het_create builds one, het_replan a second one beside it, and then they
   change places (heti_swap_shares). */
typedef struct heti_share {
    het_plan *plan;
    het_schedule *schedule;
    size_t schedule_bytes;               /* of all ranks' lists */
    het_limits limits;                   /* het_desc's while it is in use */
    int64_t keepers;
    int32_t near;                        /* 1: weights are sharded, and there are several near sets */
    int32_t boxes;                       /* 1: some blocks are used apart from what is owned (heti_is_boxed) */
    int64_t updates;                     /* of weights in a step, where it trains */
    heti_counted_update *update;         /* [block_count x updates], where there are several */
    heti_arena arena;                    /* of what is below */
    heti_owners *owners;                 /* [block_count] */
    int64_t groups;
    heti_communicator *group;                   /* [groups] */
    heti_tree tree;                      /* of heti_join */
    heti_part *part;                     /* [local_count] */
    int64_t *tokens, *limiter;           /* [pipelines] of a micro-batch, at most; the rank that takes no more */
    int64_t *first_batch, *batch_count;  /* [pipelines] of the present job */
    heti_border *cut;                       /* [max_micro_batches][slices + 1 + slices x members] of
                                               the present job: where slices begin, and in each
                                               where each member of a team does */
    int64_t *granule_start;              /* [max_tokens + 1] scratch */
} heti_share;

/* The present job of the ranks: written before they start, read by them. */
typedef struct heti_task {
    heti_job job;
    const het_batch *batches;
    double weight;                       /* of all targets */
    int64_t tokens, granules;
    int64_t past, count;                 /* HETI_JOB_INFER: tokens kept, new ones */
    const int32_t *token;
    /* what the ranks leave behind: written by tree.speaker */
    int64_t different;                   /* HETI_JOB_VERIFY: the first parameter whose copies are not equal, -1: none */
    het_sum loss;
    het_step_scalars scalars;
} heti_task;

/* What a step is judged by (>>verdict). */
typedef struct heti_measures {
    uint32_t *maximum;                   /* [parameters] bits of the largest |term| */
    int32_t *maximum_rank;               /* [parameters] the lowest rank that met it */
    int32_t *exponent, *saved_exponent;  /* [parameters] of this attempt, before the first one */
    double *grid;                        /* [parameters] */
    het_loss_history recent;
    double spike_loss, spike_norm;       /* where a step's mean loss and gradient norm begin to be a
                                            spike; spike_norm 0: they are not judged */
} heti_measures;

/* What a context is made for. An estimate asks for nothing of what only a job uses. */
typedef enum heti_purpose { HETI_TO_TRAIN, HETI_TO_ESTIMATE, HETI_TO_DESCRIBE } heti_purpose;

/* Which ranks there are, and how other processes are reached. */
typedef struct heti_world {
    int64_t ranks, first_rank, local_count;
    heti_arena arena;                    /* of process_first */
    int64_t *process_first;              /* [processes + 1] rank number each process begins with */
    int64_t processes, process;
    uint64_t *place;                     /* [ranks] hash of where its device is; 0: it is in no group */
    int64_t *tokens;                     /* [ranks] het_device_desc.max_tokens; 0: no limit of its own */
    het_transport transport;             /* iface NULL: this process is the world */
    het_request request;                 /* of heti_broadcast */
} heti_world;

/* What is trained: units described without a device, the table of their parameters, blocks. */
typedef struct heti_chain {
    int64_t unit_count, parameter_count, block_count, use_count;
    int64_t parameters;                  /* elements */
    heti_arena units;                    /* of `unit` */
    het_described_unit *unit;
    uint8_t *recompute;                  /* what desc.layout.recompute_unit points to */
    heti_parameter *parameter;
    int64_t *name, names;                /* [names] 1 + the parameter with the name that is hashed there; 0: none */
    het_described_block *block;
    int64_t *use, *use_start;            /* units, block by block; [block_count + 1] where a block's begin */
} heti_chain;

/* The links that are emulated. */
typedef struct heti_emulated {
    het_link *link;                      /* [link_count] */
    double *link_free;                   /* [2 link_count] when each direction is free again; under lock */
} heti_emulated;

typedef struct heti_threads {
    heti_mutex lock;
    heti_signal finished;                /* the caller waits for ranks */
    uint32_t job_number, running;        /* under lock */
    int32_t has_lock;
    heti_post **posted;                  /* [local_count] started and not yet matched, by destination; under lock */
} heti_threads;

struct het_ctx {
    het_error error;
    uint64_t base;                       /* fingerprint of the weights loaded, 0: unknown */
    /* the first three are atomic; stop: a rank failed, stepping: one has begun to update weights */
    int32_t cancelled, stop, stepping, failed, torn;
    const char *call;                    /* atomic: the public one under way; NULL: none */
    heti_fp fp;                          /* the floating-point mode that it puts back */
    heti_purpose purpose;
    int64_t estimated;                   /* the local rank that an estimate is for; -1: none, all have lists */
    const char *held;                    /* the callback, and whose, that was given the context
                                            between two calls; NULL: none */
    heti_inside *inside, inside_caller;  /* of the caller's thread */
    heti_counter counter;
    het_allocator allocator;             /* counts, then calls the user's */
    het_desc desc;
    heti_arena host;                     /* the tables all ranks share */
    heti_chain chain;
    het_description description;         /* of the chain, for who asked for no more (het_describe) */
    heti_share share;                    /* in use */
    heti_world world;
    heti_emulated emulated;
    heti_rank *rank;                     /* [local_count] */
    het_device_desc *device;             /* [local_count] */
    het_traffic *traffic;                /* [local_count][ranks], of messages that local ranks send */
    heti_post *join;                     /* [local_count][HETI_JOINS] */
    int64_t slots;                       /* optimizer state slots */
    int64_t step;
    int32_t has_gradient;                /* the last job made one: memory that others compute in may hold it */
    int64_t inferred;                    /* tokens whose keys and values het_infer has left */
    heti_measures verdict;
    heti_task task;
    heti_threads threads;
};

/* Whether the present job has gradients. */
static int heti_trains(const het_ctx *ctx) {
    return ctx->task.job == HETI_JOB_STEP || ctx->task.job == HETI_JOB_GRADIENTS;
}

static void *heti_counted_alloc(void *user, size_t size, size_t align) {
    heti_counter *counter = HETI_CAST(heti_counter *, user);
    void *p = counter->inner.alloc(counter->inner.user, size, align);
    if (p) counter->live += size;
    return p;
}

static void heti_counted_free(void *user, void *pointer, size_t size) {
    heti_counter *counter = HETI_CAST(heti_counter *, user);
    if (!pointer) return;
    counter->live -= size;
    counter->inner.free(counter->inner.user, pointer, size);
}

static void heti_set_call(het_ctx *ctx, const char *call) { HETI_ATOMIC_STORE(&ctx->call, call); }

static int64_t heti_process_of(const het_ctx *ctx, int64_t rank) {
    return heti_last_start(ctx->world.process_first, 0, ctx->world.processes, rank);
}

/* The emulated link between two ranks; NULL: there is none. */
static het_link *heti_link_between(const het_ctx *ctx, int64_t a, int64_t b) {
    for (int64_t i = 0; i < ctx->desc.emulate.link_count; i++) {
        het_link *l = &ctx->emulated.link[i];
        if ((l->from == a && l->to == b) || (l->from == b && l->to == a)) return l;
    }
    return NULL;
}

/* A rank of this process; NULL: another one has it. */
static heti_rank *heti_local_rank(const het_ctx *ctx, int64_t rank) {
    const int64_t i = rank - ctx->world.first_rank;
    return i >= 0 && i < ctx->world.local_count ? &ctx->rank[i] : NULL;
}

/* =================================================================================================
   >>optim  Learning rate, AdamW, Muon.
   ============================================================================================== */

/* The rate of an update counted from 0, `updates` a step: that of a run of as many steps. */
static double heti_rate(const het_optimizer_desc *o, int64_t update, int64_t updates) {
    const double rate = HETI_CAST(double, o->learning_rate), lowest = HETI_CAST(double, o->minimum_rate),
                 at = HETI_CAST(double, update), steps = HETI_CAST(double, updates),
                 warmup = HETI_CAST(double, o->warmup_steps) * steps, total = HETI_CAST(double, o->total_steps) * steps;
    double x;
    if (at < warmup) return rate * ((at + 1.0) / warmup);
    if (o->schedule == HET_LR_CONSTANT) return rate;
    if (at >= total) return lowest;
    if (o->schedule == HET_LR_WSD) {
        const double start = 0.8 * total;
        return at < start ? rate : fma(rate - lowest, 1.0 - sqrt((at - start) / (total - start)), lowest);
    }
    x = (at - warmup) / (total - warmup);
    x = o->schedule == HET_LR_LINEAR ? 1.0 - x : 0.5 * (1.0 + heti_cos(3.14159265358979323846 * x));
    return fma(rate - lowest, x, lowest);
}

HETRAIN_API double het_learning_rate(const het_optimizer_desc *desc, int64_t step) {
    het_desc d = HETI_ZEROS;
    if (desc) d.optimizer = *desc;
    heti_desc_fallbacks(&d);
    return heti_rate(&d.optimizer, heti_max(step, 0), 1);
}

HETRAIN_API int32_t het_optimizer_slots(const het_optimizer_desc *desc) {
    if (!desc) return het_adamw()->slots;
    return (desc->iface ? desc->iface : het_adamw())->slots +
           (desc->feedback_change > 0.0f ? 2 : desc->feedback > 0.0f);
}

#define HETI_TOGETHER 16 /* parameters that are squared or updated by one op, at most */

static int heti_feeds_back(const het_optimizer_desc *d) { return d->feedback > 0.0f || d->feedback_change > 0.0f; }

static het_result heti_adamw_update(const het_optimizer_call *call) {
    const het_optimizer_desc *d = call->desc;
    het_adamw_args list[HETI_TOGETHER], *to = list;
    for (const het_optimizer_call *c = call; c; c = c->next, to++) {
        const het_adamw_args a = { c->scalars, c->gradient, c->count, c->weight, c->state[0], c->state[1], d->beta1,
                                   d->beta2, d->epsilon, c->decay, c->weight_bf16, c->next ? to + 1 : NULL };
        *to = a;
    }
    return heti_run_op(call->device, call->queue, HETI_OP(ADAMW, list));
}

/* With betas of 1 the state stays what it is. */
static het_result heti_adamw_predict(const het_optimizer_call *call) {
    const het_adamw_args a = { call->scalars, call->gradient, call->count, call->weight, call->state[0],
                               call->state[1], 1.0f, 1.0f, call->desc->epsilon, 0.0f, NULL, NULL };
    return heti_run_op(call->device, call->queue, HETI_OP(ADAMW, &a));
}

static const het_optimizer_iface heti_adamw = {
    "adamw", 2, { "m", "v", NULL, NULL }, 0, heti_adamw_update, NULL, heti_adamw_predict
};
HETRAIN_API const het_optimizer_iface *het_adamw(void) { return &heti_adamw; }

/* What Muon needs beside a matrix, in the call's workspace. */
typedef struct heti_muon {
    const het_optimizer_call *call;
    int64_t rows, columns; /* of x; rows <= columns */
    float *x, *y, *a, *b;  /* x, y [rows][columns]; a, b [rows][rows] */
    het_sum *squares;
    void *scratch;         /* of the ops */
} heti_muon;

/* The products of a round: A = X X^T and B = A A^T, a linear's y = x w^T; Y = B X, its dx. */
static het_op heti_muon_product(const heti_muon *k, int product) {
    het_op op = heti_blank_op(product < 2 ? HET_OP_LINEAR_FORWARD : HET_OP_LINEAR_BACKWARD_INPUT, 0);
    het_linear_args *a = &op.u.linear;
    a->compute = k->call->compute;
    a->rows = a->part[0].out = k->rows;
    a->in = product == 1 ? k->rows : k->columns;
    a->parts = 1;
    a->x = a->part[0].w = product == 1 ? k->a : k->x;
    a->part[0].y = product == 1 ? k->b : k->a;
    a->part[0].dy = k->b;
    a->dx = k->y;
    a->workspace = k->scratch;
    return op;
}

/* Lays the workspace out; returns its bytes. */
static size_t heti_muon_start(heti_muon *k, const het_optimizer_call *call) {
    const het_sum_squares_args norm = { NULL, call->rows * call->columns, NULL, NULL, NULL };
    size_t scratch = heti_op_workspace(call->device, HETI_OP(SUM_SQUARES, &norm));
    heti_arena arena = { HETI_CAST(char *, call->workspace), 0, 0, 0, 0 };
    memset(k, 0, sizeof *k);
    k->call = call;
    k->rows = heti_min(call->rows, call->columns);
    k->columns = heti_max(call->rows, call->columns);
    for (int i = 0; i < 3; i++)
        scratch = heti_max_size(scratch, heti_op_workspace(call->device, heti_muon_product(k, i)));
    k->x = HETI_TAKE(&arena, float, norm.count);
    k->y = HETI_TAKE(&arena, float, norm.count);
    k->a = HETI_TAKE(&arena, float, k->rows * k->rows);
    k->b = HETI_TAKE(&arena, float, k->rows * k->rows);
    k->squares = HETI_TAKE(&arena, het_sum, 1);
    k->scratch = HETI_TAKE_BYTES(&arena, scratch);
    return arena.overflow ? SIZE_MAX : arena.used;
}

static het_result heti_muon_run(const heti_muon *k, het_op op) {
    return heti_run_op(k->call->device, k->call->queue, op);
}

/* y *= factor (squares: of the norm's inverse), then y += x where there is one. */
static het_result heti_muon_mix(const heti_muon *k, int64_t columns, float *y, float factor, const float *x,
                                const het_sum *squares) {
    const het_elements_args e = { k->rows * columns, y, x, factor, squares };
    HETI_TRY(heti_muon_run(k, HETI_OP(SCALE, &e)));
    return x ? heti_muon_run(k, HETI_OP(ADD, &e)) : HET_OK;
}

/* x = x / (|x| + 1e-7), and then its singular values come to lie between about 0.7 and 1.2. */
static het_result heti_muon_orthogonalise(const heti_muon *k) {
    const het_gradient x = { k->x, 0, 0, 0, NULL, NULL };
    const het_sum_squares_args norm = { &x, k->rows * k->columns, k->squares, k->scratch, NULL };
    const het_copy_args clear = { k->squares, NULL, sizeof *k->squares, 1, 0, 0 };
    HETI_TRY(heti_muon_run(k, HETI_OP(CLEAR, &clear)));
    HETI_TRY(heti_muon_run(k, HETI_OP(SUM_SQUARES, &norm)));
    HETI_TRY(heti_muon_mix(k, k->columns, k->x, 1.0f, NULL, k->squares));
    for (int i = 0; i < 5; i++) {
        HETI_TRY(heti_muon_run(k, heti_muon_product(k, 0)));
        HETI_TRY(heti_muon_run(k, heti_muon_product(k, 1)));
        HETI_TRY(heti_muon_mix(k, k->rows, k->a, -4.7750f, NULL, NULL));
        HETI_TRY(heti_muon_mix(k, k->rows, k->b, 2.0315f, k->a, NULL));
        HETI_TRY(heti_muon_run(k, heti_muon_product(k, 2)));
        HETI_TRY(heti_muon_mix(k, k->columns, k->x, 3.4445f, k->y, NULL));
    }
    return HET_OK;
}

static het_result heti_muon_update(const het_optimizer_call *call) {
    const het_optimizer_desc *d = call->desc;
    const float rate = d->matrix_rate > 0.0f ? d->matrix_rate / d->learning_rate : 1.0f;
    heti_muon k;
    if (!call->hidden) return heti_adamw_update(call);
    (void)heti_muon_start(&k, call);
    const het_muon_args a = { call->scalars, call->gradient, call->rows, call->columns, call->weight, call->state[0],
                              k.x, d->momentum, rate, call->decay, 0.2f * sqrtf(HETI_CAST(float, k.columns)) };
    HETI_TRY(heti_muon_run(&k, HETI_OP(MUON_MOMENTUM, &a)));
    HETI_TRY(heti_muon_orthogonalise(&k));
    return heti_muon_run(&k, HETI_OP(MUON_UPDATE, &a));
}

static size_t heti_muon_workspace(const het_optimizer_call *call) {
    heti_muon k;
    return call->hidden ? heti_muon_start(&k, call) : 0;
}

static const het_optimizer_iface heti_muon_iface = {
    "muon", 2, { "m", "v", NULL, NULL }, 1, heti_muon_update, heti_muon_workspace, NULL
};
HETRAIN_API const het_optimizer_iface *het_muon(void) { return &heti_muon_iface; }

/* =================================================================================================
   >>device_calls  What a rank asks of its device. Errors end up in rank->error.
   ============================================================================================== */

static heti_stage *heti_stage_of(const heti_rank *r, const het_action *a) {
    const heti_part *part = r->part;
    const int64_t planned = heti_stage_at(r->ctx->share.plan, a);
    const int lean = heti_is_lean(r->ctx->share.plan, a);
    for (int64_t s = 0; s < part->stage_count; s++)
        if (part->stage[s].planned == planned && part->stage[s].lean == lean) return &part->stage[s];
    return NULL;
}

/* Why a device, or something else that tells it in `text`, failed. */
static const char *heti_reason(const char *text, het_result result) {
    return text && text[0] ? text : het_result_text(result);
}

/* An error of a rank: in which step or, where no job runs, in which call, and what. */
static het_result heti_rank_fail(heti_rank *r, het_result code, const char *format, ...) {
    char whole[2048];
    heti_text text = heti_text_in(whole, sizeof whole);
    if (r->ctx->task.job == HETI_JOB_NONE) heti_text_write(&text, "%s: rank %d: ", r->ctx->call, r->rank);
    else heti_text_write(&text, "rank %d, step %d: ", r->rank, r->ctx->step + 1);
    HETI_FORMAT(&text, format);
    return het_error_put(&r->error, code, whole);
}

static het_result heti_device_fail(heti_rank *r, het_result result, const char *what) {
    const char *text = heti_reason(r->device.iface->last_error(r->device.self), result);
    if (r->error.code != HET_OK) return result;
    if (r->ctx->world.ranks == 1 && r->ctx->task.job != HETI_JOB_NONE)
        return heti_fail(&r->error, result, "step %d: %s: %s", r->ctx->step + 1, what, text);
    return heti_rank_fail(r, result, "%s: %s", what, text);
}
#define HETI_DEVICE(r, call, what) do { const het_result heti_device_result = (call); \
    if (heti_device_result != HET_OK) return heti_device_fail((r), heti_device_result, (what)); } while (0)

static het_result heti_rank_op(heti_rank *r, het_op op, const char *what) {
    HETI_DEVICE(r, heti_run_op(&r->device, r->queue, op), what);
    return HET_OK;
}

static het_result heti_copy_on(heti_rank *r, het_queue *queue, het_op_kind kind, void *to, const void *from,
                               size_t bytes, const char *what) {
    const het_copy_args a = { to, from, bytes, 1, 0, 0 };
    if (bytes == 0) return HET_OK;
    HETI_DEVICE(r, heti_run_op(&r->device, queue, heti_make_op(kind, &a, sizeof a)), what);
    return HET_OK;
}

static het_result heti_copy(heti_rank *r, het_op_kind kind, void *to, const void *from, size_t bytes,
                            const char *what) {
    return heti_copy_on(r, r->queue, kind, to, from, bytes, what);
}

static het_result heti_copy_in(heti_rank *r, void *to, const void *from, int64_t count, size_t size) {
    return heti_copy(r, HET_OP_COPY_IN, to, from, HETI_CAST(size_t, count) * size, "copy to the device");
}

/* NULL: it has happened. */
static het_result heti_await_event(heti_rank *r, het_event *event) {
    const double deadline = r->ctx->desc.layout.stall_deadline;
    if (!event) return HET_OK;
    HETI_DEVICE(r, r->device.iface->queues->event_sync(r->device.self, event, deadline), "waiting for the device");
    return HET_OK;
}

/* Waits until everything given to the device has run. In a step that is: at its end, where the
   verdict and the loss come home; and for what leaves or enters host memory between ranks: messages
   of stages, chunks of reductions and gathers, the scalars of the verdict. */
static het_result heti_sync(heti_rank *r) {
    if (r->event) HETI_DEVICE(r, r->device.iface->queues->event_record(r->device.self, r->queue, r->event), "event");
    return heti_await_event(r, r->event);
}

/* `to` holds what is copied after the next heti_sync. */
static het_result heti_copy_out_later(heti_rank *r, void *to, const void *from, int64_t count, size_t size) {
    return heti_copy(r, HET_OP_COPY_OUT, to, from, HETI_CAST(size_t, count) * size, "copy from the device");
}

static het_result heti_copy_out(heti_rank *r, void *to, const void *from, int64_t count, size_t size) {
    HETI_TRY(heti_copy_out_later(r, to, from, count, size));
    return heti_sync(r);
}

/* Which of a parameter's elements [*first, *first + *count) are in [low, high) of its block. */
static int heti_clip(const heti_parameter *p, int64_t low, int64_t high, int64_t *first, int64_t *count) {
    const int64_t begin = heti_max(p->offset + *first, low), end = heti_min(p->offset + *first + *count, high);
    *first = begin - p->offset;
    *count = end - begin;
    return *count > 0;
}

/* Floats of memory that the first `elements` of a weight take. Ranges begin at multiples of 1,024,
   so with blocks of int8. */
static int64_t heti_weight_floats(het_dtype type, int64_t elements) {
    if (type == HET_INT8)
        return heti_ceil_div(elements, HETRAIN_INT8_BLOCK) * HETI_CAST(int64_t, sizeof(het_int8_block) / sizeof(float));
    return type == HET_BF16 ? (elements + 1) / 2 : elements;
}

/* Element `element` of a weight that the rank holds or owns; at: weight_at or own_at. */
static float *heti_weight(const heti_rank *r, const heti_parameter *p, const int64_t *at, int64_t element) {
    return r->part->weights + at[p->block] + p->weight_offset + heti_weight_floats(p->type, element);
}

/* A block of int8. scale = max / 127 cut to 16 significant bits: scale q is exact, and of these
   values comes the same block again. Not finite: all of it is NaN. */
static void heti_int8_of(const float *from, int64_t count, het_int8_block *to) {
    uint32_t top = 0;
    memset(to, 0, sizeof *to);
    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = heti_float_bits(from[i]) & 0x7fffffffu;
        if (bits > top) top = bits;
    }
    to->scale = heti_bits_float(top);
    if (top >= 0x7f800000u) return;
    to->scale = heti_bits_float(heti_float_bits(to->scale / 127.0f) & 0xffffff00u);
    if (to->scale < HETI_MIN_NORMAL) to->scale = 0.0f;
    for (int64_t i = 0; i < count && to->scale > 0.0f; i++) to->q[i] = HETI_CAST(int8_t, rintf(from[i] / to->scale));
}

#define HETI_NARROW 2048 /* values a time between float and another type */
typedef union heti_narrow {
    uint16_t half[HETI_NARROW];
    het_int8_block block[HETI_NARROW / HETRAIN_INT8_BLOCK];
} heti_narrow;

/* The first `count` values of a weight from `from` or, where it is NULL, to `to`. */
static void heti_convert(het_dtype type, heti_narrow *narrow, int64_t count, const float *from, float *to) {
    const int64_t step = type == HET_INT8 ? HETRAIN_INT8_BLOCK : 1, blocks = heti_ceil_div(count, HETRAIN_INT8_BLOCK);
    const het_expand_args all = { 1, count, 0, 0, blocks, narrow->block, to };
    if (type == HET_INT8 && !from) heti_expand(&all, 0, blocks);
    for (int64_t i = 0; i < count && (type != HET_INT8 || from); i += step)
        if (type == HET_INT8) heti_int8_of(from + i, heti_min(step, count - i), &narrow->block[i / step]);
        else if (from) narrow->half[i] = heti_bf16_of(from[i]);
        else to[i] = heti_bf16_value(narrow->half[i]);
}

/* `count` elements of a weight from the host (`from`) to where a rank has them (`at`) or, where
   `from` is NULL, back to `to`; of int8 they begin with a block. */
static het_result heti_move_weight(heti_rank *r, het_dtype type, void *at, int64_t count, const float *from,
                                   float *to) {
    heti_narrow narrow;
    if (type == HET_F32) {
        HETI_TRY(from ? heti_copy_in(r, at, from, count, sizeof *from) : heti_copy_out(r, to, at, count, sizeof *to));
        return heti_sync(r);
    }
    for (int64_t done = 0, n; done < count; done += n) {
        char *where = HETI_CAST(char *, at) + HETI_CAST(size_t, heti_weight_floats(type, done)) * sizeof(float);
        const size_t size = type == HET_INT8 ? sizeof narrow.block[0] : sizeof narrow.half[0];
        n = heti_min(HETI_NARROW, count - done);
        const int64_t units = type == HET_INT8 ? heti_ceil_div(n, HETRAIN_INT8_BLOCK) : n;
        if (from) heti_convert(type, &narrow, n, from + done, NULL);
        HETI_TRY(from ? heti_copy_in(r, where, &narrow, units, size) : heti_copy_out(r, &narrow, where, units, size));
        HETI_TRY(heti_sync(r));
        if (!from) heti_convert(type, &narrow, n, NULL, to + done);
    }
    return HET_OK;
}

static het_result heti_clear(heti_rank *r, void *to, int64_t count, size_t size) {
    return heti_copy(r, HET_OP_CLEAR, to, NULL, HETI_CAST(size_t, count) * size, "clear");
}

/* =================================================================================================
   >>messages  Messages between ranks, waiting, failing.

   A message has two posts: the sender's and the receiver's. Between ranks of one process whoever
   posts second copies from buffer to buffer; nothing else moves data, so there is no thread in
   between. To another process the transport carries it. Messages of one (from, to, channel) keep
   their order. An emulated link lets a message be seen when its latency and its turn on the link
   are over.

   Waiting is one loop, heti_wait: it advances the rank's own reductions, looks at the stop flag,
   at cancellation and at the life of the other ranks, and sleeps until a message comes. The first
   rank that fails puts its error into the context and stops the others.
   ============================================================================================== */

typedef enum heti_channel {
    HETI_CHANNEL_STAGE = 0, HETI_CHANNEL_JOIN = 1, HETI_CHANNEL_FLOW = 2 /* ... 4 */, HETI_CHANNEL_SPREAD = 5,
        HETI_CHANNEL_TEAM = 6, HETI_CHANNELS = HETRAIN_CALLERS_CHANNEL + 1
} heti_channel;
/* a transport's channel number holds the channel and both ranks' places in their processes */
#define HETI_PROCESS_RANKS 1024

static uint32_t heti_remote_channel(const het_ctx *ctx, const heti_post *post) {
    const int64_t from = post->from - ctx->world.process_first[heti_process_of(ctx, post->from)];
    const int64_t to = post->to - ctx->world.process_first[heti_process_of(ctx, post->to)];
    return HETI_CAST(uint32_t, post->channel + HETI_CHANNELS * (from + HETI_PROCESS_RANKS * to));
}

/* Wakes a local rank; under ctx->threads.lock. */
static void heti_wake(het_ctx *ctx, int64_t local) {
    HETI_ATOMIC_STORE(&ctx->rank[local].events, ctx->rank[local].events + 1);
    HETI_SIGNAL(&ctx->rank[local].wake);
}

static void heti_wake_all(het_ctx *ctx) {
    for (int64_t i = 0; i < ctx->world.local_count; i++) heti_wake(ctx, i);
    HETI_SIGNAL(&ctx->threads.finished);
}

/* The other processes need not wait for this one. */
static void heti_call_off(het_ctx *ctx, het_result result) {
    const het_transport *transport = &ctx->world.transport;
    if (transport->iface) transport->iface->abort(transport->self, result, ctx->error.text);
}

/* The context's error becomes this rank's, unless another was first; then everybody stops. */
static void heti_raise(heti_rank *r) {
    het_ctx *ctx = r->ctx;
    HETI_LOCK(ctx);
    if (!ctx->stop) {
        ctx->error = r->error;
        heti_call_off(ctx, ctx->error.code);
    }
    HETI_ATOMIC_STORE(&ctx->stop, 1);
    heti_wake_all(ctx);
    HETI_UNLOCK(ctx);
}

static het_result heti_check_cancel(const het_ctx *ctx, het_error *error) {
    if (HETI_ATOMIC_LOAD(&ctx->stop)) return HET_ERR_TRANSPORT; /* the reason is in the context */
    if (!HETI_ATOMIC_LOAD(&ctx->cancelled)) return HET_OK;
    return heti_fail(error, HET_ERR_CANCELLED, "step %d: cancelled", ctx->step + 1);
}

/* Whether another process has failed; its text says why. */
static het_result heti_check_aborted(const het_ctx *ctx, het_error *error) {
    const het_transport_iface *iface = ctx->world.transport.iface;
    char text[sizeof error->text];
    int64_t process;
    if (!iface || iface->aborted(ctx->world.transport.self, &process, text, sizeof text) == HET_OK) return HET_OK;
    return heti_fail(error, HET_ERR_TRANSPORT, "process %d failed: %s", process, text);
}

/* Whether everybody this rank may have been waiting for, `waited` seconds, is still there. A
   process that has nothing left to do may have said goodbye already: its silence counts once this
   rank has waited for as long. */
static het_result heti_check_world(heti_rank *r, double waited) {
    het_ctx *ctx = r->ctx;
    const het_transport *transport = &ctx->world.transport;
    const double now = heti_now(), deadline = ctx->desc.layout.deadline;
    for (int64_t i = 0; i < ctx->world.local_count; i++) {
        heti_action_text at;
        HETI_LOCK(ctx);
        const double since = ctx->rank[i].silent_since;
        if (since > 0.0) (void)heti_action_print(&at, ctx->rank[i].doing);
        HETI_UNLOCK(ctx);
        if (since > 0.0 && now - since > deadline)
            return heti_fail(&r->error, HET_ERR_TRANSPORT,
                             "rank %d, step %d, action %s: no sign of life for %g s; the deadline is %g s",
                             ctx->world.first_rank + i, ctx->step + 1, at.text, now - since, deadline);
    }
    HETI_TRY(heti_check_aborted(ctx, &r->error));
    for (int64_t i = 0; i < ctx->world.processes; i++) {
        const double silence = i == ctx->world.process ? 0.0 : transport->iface->silence(transport->self, i);
        if (silence > deadline && waited > deadline)
            return heti_fail(&r->error, HET_ERR_TRANSPORT, "process %d (ranks %d to %d), step %d: no sign of life for "
                             "%g s; the deadline is %g s", i, ctx->world.process_first[i],
                             ctx->world.process_first[i + 1] - 1, ctx->step + 1, silence, deadline);
    }
    return HET_OK;
}

/* ---- posting ---- */

/* When a message that starts now can be seen, and the link it takes until then. */
static double heti_link_time(het_ctx *ctx, int64_t from, int64_t to, size_t size) {
    const double now = heti_now();
    const het_link *l = heti_link_between(ctx, from, to);
    double *release = l ? &ctx->emulated.link_free[2 * (l - ctx->emulated.link) + (l->from == to)] : NULL;
    if (!l) return 0.0;
    if (*release < now) *release = now;
    if (l->bandwidth > 0.0) *release += HETI_CAST(double, size) / l->bandwidth;
    return *release + l->latency;
}

/* Both posts of a message within the process are there: the second one to come copies. */
static het_result heti_deliver(heti_rank *r, heti_post *send, heti_post *receive) {
    het_ctx *ctx = r->ctx;
    const int64_t from = send->from, to = send->to;
    if (send->size != receive->size)
        return heti_fail(&r->error, HET_ERR_TRANSPORT, "step %d: rank %d sends %u bytes, rank %d expects %u",
                         ctx->step + 1, send->from, HETI_CAST(uint64_t, send->size), receive->to,
                         HETI_CAST(uint64_t, receive->size));
    memcpy(receive->data, send->data, send->size);
    HETI_LOCK(ctx);
    const double ready = heti_link_time(ctx, from, to, send->size);
    send->ready = receive->ready = ready;
    HETI_ATOMIC_STORE(&send->state, HETI_POST_DONE); /* from here on the other rank may use its post again */
    HETI_ATOMIC_STORE(&receive->state, HETI_POST_DONE);
    heti_wake(ctx, from - ctx->world.first_rank);
    heti_wake(ctx, to - ctx->world.first_rank);
    HETI_UNLOCK(ctx);
    return HET_OK;
}

/* Takes the first post that matches out of its destination's list, or waits at the list's end. */
static het_result heti_post_local(heti_rank *r, heti_post *post) {
    het_ctx *ctx = r->ctx;
    heti_post **at = &ctx->threads.posted[post->to - ctx->world.first_rank], *other;
    HETI_LOCK(ctx);
    while ((other = *at) != NULL && (other->receives == post->receives || other->from != post->from ||
                                     other->channel != post->channel)) at = &other->next;
    *at = other ? other->next : post;
    HETI_UNLOCK(ctx);
    if (!other) return HET_OK;
    return post->receives ? heti_deliver(r, other, post) : heti_deliver(r, post, other);
}

/* Counts what a rank sends `peer`. */
static void heti_count_sent(heti_rank *r, int64_t peer, heti_channel channel, int64_t bytes) {
    het_traffic *traffic = &r->ctx->traffic[r->local * r->ctx->world.ranks + peer];
    if (channel == HETI_CHANNEL_STAGE) {
        traffic->transfers++;
        traffic->transfer_bytes += bytes - HETI_ENVELOPE;
    } else if (channel == HETI_CHANNEL_TEAM) {
        traffic->exchanges++;
        traffic->exchange_bytes += bytes;
    } else if (channel >= HETI_CHANNEL_FLOW && channel < HETI_CHANNEL_SPREAD) {
        traffic->reductions++;
        traffic->reduction_bytes += bytes;
    }
}

/* Starts one side of a message between this rank and `peer`. */
static het_result heti_start_post(heti_rank *r, heti_post *post, int receives, int64_t peer, heti_channel channel,
                                  void *data, size_t size) {
    het_ctx *ctx = r->ctx;
    const het_transport_iface *iface = ctx->world.transport.iface;
    post->next = NULL;
    post->from = receives ? peer : r->rank;
    post->to = receives ? r->rank : peer;
    post->channel = HETI_CAST(int32_t, channel);
    post->receives = receives;
    post->data = data;
    post->size = size;
    post->end = NULL;
    post->remote = !heti_local_rank(ctx, peer);
    HETI_ATOMIC_STORE(&post->state, HETI_POST_STARTED);
    if (!receives) heti_count_sent(r, peer, channel, HETI_CAST(int64_t, size));
    if (!post->remote) return heti_post_local(r, post);
    const int64_t process = heti_process_of(ctx, peer);
    const het_result result = receives
        ? iface->irecv(ctx->world.transport.self, process, heti_remote_channel(ctx, post), data, size, &post->request)
        : iface->isend(ctx->world.transport.self, process, heti_remote_channel(ctx, post), data, size, &post->request);
    if (result == HET_OK) return HET_OK;
    post->state = HETI_POST_IDLE;
    return heti_rank_fail(r, result, "%s: %s", iface->name, iface->last_error(ctx->world.transport.self));
}

/* What a group made of its end's last op. */
static het_result heti_group_result(heti_rank *r, const heti_endpoint *end, het_result result) {
    const het_communicators *groups = &r->ctx->desc.layout.communicators;
    const heti_communicator *group = &r->ctx->share.group[end->group];
    if (result == HET_OK) return HET_OK;
    return heti_rank_fail(r, result, "%s %s, ranks %d%s%d: %s", groups->iface->name, end->op, group->member[0],
                          group->kind == HETI_GROUP_LANE ? " to " : " ... ", group->member[group->members - 1],
                          heti_reason(groups->iface->last_error(groups->self, end->handle), result));
}

/* Whether a post's buffer is the rank's again. */
static het_result heti_test_post(heti_rank *r, heti_post *post, int *done) {
    const het_transport_iface *iface = r->ctx->world.transport.iface;
    int32_t finished = 0;
    *done = !post->end || post->end->finished >= post->ticket; /* heti_progress asks how far it is */
    if (*done) post->end = NULL;
    if (!*done || HETI_ATOMIC_LOAD(&post->state) == HETI_POST_IDLE) return HET_OK;
    if (!post->remote) {
        *done = HETI_ATOMIC_LOAD(&post->state) == HETI_POST_DONE && (post->ready <= 0.0 || heti_now() >= post->ready);
        if (*done) post->state = HETI_POST_IDLE;
        return HET_OK;
    }
    const het_result result = iface->test(r->ctx->world.transport.self, &post->request, &finished);
    if (result != HET_OK || finished) post->state = HETI_POST_IDLE;
    if (result != HET_OK)
        return heti_rank_fail(r, HET_ERR_TRANSPORT, "message between ranks %d and %d: %s", post->from, post->to,
                              iface->last_error(r->ctx->world.transport.self));
    *done = finished != 0;
    return HET_OK;
}

static het_result heti_progress(heti_rank *r);

/* The first of the rank's ends that has ops under way; NULL: none has. */
static const heti_endpoint *heti_busy_end(const heti_part *part) {
    for (int64_t i = 0; i < part->ends; i++)
        if (part->end[i].finished < part->end[i].given) return &part->end[i];
    return NULL;
}

static int heti_is_slow(const heti_rank *r) { return r->desc.speed > 0.0 && r->desc.speed < 1.0; }

/* Sleeps until something has happened since event number `seen`, at most until an emulated link
   delivers, behind `now`, `post` or the oldest of a flow, or the next look at the world. Waking up
   takes long, and most waits are short: a wait's first moment, up to `awake`, is spent looking. */
static void heti_sleep(heti_rank *r, uint32_t seen, double now, const heti_post *post, double awake) {
    het_ctx *ctx = r->ctx;
    const double looked = heti_is_slow(r) ? heti_thread_time() : 0.0;
    while (HETI_ATOMIC_LOAD(&r->events) == seen && heti_now() < awake) /* to yield would cost a time slice */
        if (ctx->world.processes > 1) return;
    r->slept_for += heti_is_slow(r) ? heti_thread_time() - looked : 0.0; /* looking is no work */
    double until = now + (ctx->world.processes > 1 || heti_busy_end(r->part) ? 50e-6 : 0.05); /* these wake nobody */
    for (int64_t i = -1; i < r->part->flow.flows; i++) {
        const heti_flow *f = i < 0 ? NULL : &r->part->flow.flow[i];
        if (f) post = f->begun > f->ended ? &f->post[f->ended % f->slots] : NULL;
        if (post && !post->remote && HETI_ATOMIC_LOAD(&post->state) == HETI_POST_DONE && post->ready > now)
            until = post->ready < until ? post->ready : until;
    }
    const double most = until - heti_now();
    HETI_LOCK(ctx);
    if (r->events == seen && !ctx->stop && most > 0.0) heti_wait_signal(&r->wake, &ctx->threads.lock, most);
    HETI_UNLOCK(ctx);
}

/* Pieces are under way, or still to come. */
static int heti_flow_left(const heti_flow *f) { return f->begun > f->ended || f->next.count > 0; }

/* Whom the rank's reductions wait for; -1: nobody. */
static int64_t heti_reduction_peer(const heti_rank *r) {
    const heti_part *part = r->part;
    const heti_endpoint *end = heti_busy_end(part);
    for (int64_t i = 0; i < part->flow.flows; i++)
        if (heti_flow_left(&part->flow.flow[i])) return part->flow.flow[i].peer;
    return end ? r->ctx->share.group[end->group].member[end->member == 0] : -1;
}

/* Waits for a post, or with NULL until `ready` says so of the rank's reductions. `what` is for the
   message of a rank that waits too long. */
static het_result heti_wait(heti_rank *r, heti_post *post, int (*ready)(const heti_rank *r), const char *what) {
    double start = heti_now();
    const double awake = start + (heti_is_slow(r) && r->ctx->world.processes > 1 ? 0.0 : 50e-6); /* looks are work */
    double looked = start;
    for (;;) {
        const uint32_t seen = HETI_ATOMIC_LOAD(&r->events);
        const double now = heti_now();
        HETI_TRY(heti_progress(r));
        int done = !post && ready(r);
        if (post) HETI_TRY(heti_test_post(r, post, &done));
        if (done) return HET_OK;
        HETI_TRY(heti_check_cancel(r->ctx, &r->error));
        if (now - looked > 0.04) {
            if (now - looked > 1.0 + 0.1 * r->ctx->desc.layout.deadline) start = now; /* it was stopped itself */
            looked = now;
            HETI_TRY(heti_check_world(r, now - start));
            if (now - start > r->ctx->desc.layout.stall_deadline)
                return heti_rank_fail(r, HET_ERR_TRANSPORT, "waited %g s for %s of rank %d; the stall deadline is %g s",
                                      now - start, what, !post ? heti_reduction_peer(r) : post->receives ? post->from
                                      : post->to, r->ctx->desc.layout.stall_deadline);
        }
        heti_sleep(r, seen, now, post, awake);
    }
}

/* ---- between processes, outside a step: all make the same calls in the same order ---- */

/* What went wrong on a rank that the caller's thread was using becomes the context's error. */
static het_result heti_move_error(het_ctx *ctx, const heti_rank *r) {
    ctx->error = r->error;
    ctx->failed = 1;
    return ctx->error.code;
}

/* After an abort: until the transport has let go of a request's buffer. */
static void heti_drain(het_ctx *ctx, het_request *request) {
    int32_t done = 0;
    while (!done && ctx->world.transport.iface->test(ctx->world.transport.self, request, &done) == HET_OK) HETI_YIELD();
}

static void heti_drain_post(het_ctx *ctx, heti_post *post) {
    if (post->remote && post->state == HETI_POST_STARTED) heti_drain(ctx, &post->request);
    post->state = HETI_POST_IDLE;
}

/* One turn of waiting for `what` outside a step, since since[0]; the last turn was at since[1]. */
static het_result heti_wait_turn(het_ctx *ctx, double since[2], const char *what) {
    const het_transport_iface *iface = ctx->world.transport.iface;
    const double now = heti_now(), deadline = ctx->desc.layout.deadline;
    if (now - since[1] > 1.0 + 0.1 * deadline) since[0] = now; /* see heti_wait, heti_check_world */
    since[1] = now;
    HETI_TRY(heti_check_cancel(ctx, &ctx->error));
    HETI_TRY(heti_check_aborted(ctx, &ctx->error));
    for (int64_t i = 0; i < ctx->world.processes && now - since[0] > deadline; i++)
        if (i != ctx->world.process && iface->silence(ctx->world.transport.self, i) > deadline)
            return heti_fail(&ctx->error, HET_ERR_TRANSPORT, "process %d: no sign of life for %g s", i, deadline);
    if (now - since[0] > ctx->desc.layout.stall_deadline)
        return heti_fail(&ctx->error, HET_ERR_TRANSPORT, "waited %g s for %s; the stall deadline is %g s",
                         now - since[0], what, ctx->desc.layout.stall_deadline);
    HETI_YIELD();
    return HET_OK;
}

/* Waits for a request that began with `result`. open: 1 behind an error: it has not ended. */
static het_result heti_transport_wait(het_ctx *ctx, het_request *request, het_result result, int *open) {
    const het_transport *transport = &ctx->world.transport;
    double since[2] = { heti_now(), heti_now() };
    int32_t done = 0;
    *open = 1;
    while (result == HET_OK && !done) {
        if (transport->iface->test(transport->self, request, &done) != HET_OK) result = HET_ERR_TRANSPORT;
        else if (!done) HETI_TRY(heti_wait_turn(ctx, since, "another process"));
    }
    *open = 0;
    if (result == HET_OK) return HET_OK;
    HETI_TRY(heti_check_aborted(ctx, &ctx->error)); /* because another process failed, or why the transport says */
    return heti_fail(&ctx->error, result, "%s: %s", transport->iface->name,
                     transport->iface->last_error(transport->self));
}

/* Process `from` gives its bytes to those of the processes [first, end) that are not itself. */
static het_result heti_spread_to(het_ctx *ctx, int64_t from, int64_t first, int64_t end, void *data, size_t size) {
    const het_transport_iface *iface = ctx->world.transport.iface;
    const uint32_t channel = HETI_CHANNEL_SPREAD;
    for (int64_t i = first; i < end; i++) {
        if (i == from || (from != ctx->world.process && i != ctx->world.process)) continue;
        memset(&ctx->world.request, 0, sizeof ctx->world.request);
        het_result result = from == ctx->world.process
            ? iface->isend(ctx->world.transport.self, i, channel, data, size, &ctx->world.request)
            : iface->irecv(ctx->world.transport.self, from, channel, data, size, &ctx->world.request);
        int open;
        result = heti_transport_wait(ctx, &ctx->world.request, result, &open);
        if (result == HET_OK) continue;
        heti_call_off(ctx, result);
        ctx->failed = 1;
        if (open) heti_drain(ctx, &ctx->world.request);
        return result;
    }
    return HET_OK;
}

/* To all. */
static het_result heti_broadcast(het_ctx *ctx, int64_t from, void *data, size_t size) {
    return heti_spread_to(ctx, from, 0, ctx->world.processes, data, size);
}

/* ---- the threads of ranks ---- */

static void heti_run_rank(heti_rank *r);

#ifdef HETI_THREADS
/* The life of a rank's thread: wait for a job, do it, say so. */
static void *heti_rank_thread(void *arg) {
    heti_rank *r = HETI_CAST(heti_rank *, arg);
    het_ctx *ctx = r->ctx;
    uint32_t seen = 0;
    heti_fp saved;
    heti_fp_enter(&saved);
    for (;;) {
        HETI_LOCK(ctx);
        while (ctx->threads.job_number == seen) (void)pthread_cond_wait(&r->wake, &ctx->threads.lock);
        seen = ctx->threads.job_number;
        HETI_UNLOCK(ctx);
        if (ctx->task.job == HETI_JOB_END) break;
        heti_run_rank(r);
        HETI_LOCK(ctx);
        ctx->threads.running--;
        (void)pthread_cond_broadcast(&ctx->threads.finished);
        HETI_UNLOCK(ctx);
    }
    heti_fp_leave(&saved);
    return NULL;
}

static void heti_start_job(het_ctx *ctx, heti_job job) {
    HETI_LOCK(ctx);
    ctx->task.job = job;
    ctx->threads.job_number++;
    for (int64_t i = 0; i < ctx->world.local_count; i++) ctx->threads.running += ctx->rank[i].threaded != 0;
    heti_wake_all(ctx);
    HETI_UNLOCK(ctx);
}

/* Until no rank's thread works any more, where they have threads. */
static void heti_await_job(het_ctx *ctx) {
    HETI_LOCK(ctx);
    while (ctx->threads.running > 0) (void)pthread_cond_wait(&ctx->threads.finished, &ctx->threads.lock);
    HETI_UNLOCK(ctx);
}

/* A thread a rank, where there is more than one or a transport. */
static het_result heti_begin_threads(het_ctx *ctx) {
    pthread_condattr_t how;
    if (pthread_mutex_init(&ctx->threads.lock, NULL) != 0)
        return heti_fail(&ctx->error, HET_ERR_OOM, "%s: no mutex", ctx->call);
    ctx->threads.has_lock = 1;
    (void)pthread_cond_init(&ctx->threads.finished, NULL);
    (void)pthread_condattr_init(&how);
    HETI_BY_CLOCK(&how);
    for (int64_t i = 0; i < ctx->world.local_count; i++) (void)pthread_cond_init(&ctx->rank[i].wake, &how);
    (void)pthread_condattr_destroy(&how);
    for (int64_t i = 0; i < ctx->world.local_count && (ctx->world.local_count > 1 || ctx->world.transport.iface); i++) {
        if (pthread_create(&ctx->rank[i].thread, NULL, heti_rank_thread, &ctx->rank[i]) != 0)
            return heti_fail(&ctx->error, HET_ERR_OOM, "%s: the system has no thread for rank %d", ctx->call,
                             ctx->rank[i].rank);
        ctx->rank[i].threaded = 1;
    }
    return HET_OK;
}

static void heti_end_threads(het_ctx *ctx) {
    if (!ctx->threads.has_lock) return;
    heti_start_job(ctx, HETI_JOB_END);
    for (int64_t i = 0; i < ctx->world.local_count; i++) {
        if (ctx->rank[i].threaded) (void)pthread_join(ctx->rank[i].thread, NULL);
        (void)pthread_cond_destroy(&ctx->rank[i].wake);
    }
    (void)pthread_cond_destroy(&ctx->threads.finished);
    (void)pthread_mutex_destroy(&ctx->threads.lock);
}
#else
static void heti_start_job(het_ctx *ctx, heti_job job) { ctx->task.job = job; }
static void heti_await_job(het_ctx *ctx) { (void)ctx; }
static het_result heti_begin_threads(het_ctx *ctx) { (void)ctx; return HET_OK; }
static void heti_end_threads(het_ctx *ctx) { (void)ctx; }
#endif

/* =================================================================================================
   >>communicator  Devices that reach each other without the host: finding out who can, joining,
                   order with the ops of the device, leaving.

   Ranks whose devices are at different places can be members of one group (>>communicator_api).
   Three uses: the holders of a block that reach each other are a cluster, inside of which ops
   reduce and gather (>>moves); the members of a team exchange pieces of tensors (heti_team_move),
   where all reach each other; and neighbouring stages, all of whose ranks do, have a lane each way:
   the order of their messages, which het_schedule_check has proved, is the order of the lane's ops,
   and nothing else is ordered. Groups are joined one after the other, in the order in which all
   processes know them. An op waits for what it works on by an event of the device; that it has run
   is polled where the rank looks after its messages (heti_wait), so that the host waits under its
   deadlines and hears of other ranks' failures, and the device's own queue never stands behind an
   op that may not come. Scalars of the verdict, what is sharded and whatever is done outside a step
   pass through the host, as does all between ranks that are in no group together.
   ============================================================================================== */

/* The number of such a group in a share; share->groups: it has none. */
static int64_t heti_group_number(const heti_share *share, const heti_communicator *like) {
    int64_t g;
    for (g = 0; g < share->groups; g++) {
        const heti_communicator *group = &share->group[g];
        if (group->kind == like->kind && group->members == like->members &&
            memcmp(group->member, like->member, HETI_CAST(size_t, like->members) * sizeof *like->member) == 0) break;
    }
    return g;
}

/* A rank's end of a group, or of the lane between two ranks; NULL: it has none. */
static heti_endpoint *heti_endpoint_of(const heti_part *part, int64_t group) {
    for (int64_t i = 0; i < part->ends; i++)
        if (part->end[i].group == group) return &part->end[i];
    return NULL;
}

/* The ranks of a lane from the stages of one leader to those of another; how many. */
static int64_t heti_lane_members(const het_plan *plan, int64_t from, int64_t to, int64_t *rank) {
    const int64_t senders = heti_team_size(plan, from), members = senders + heti_team_size(plan, to);
    for (int64_t i = 0; i < members; i++)
        rank[i] = i < senders ? heti_team_rank(plan, from, i) : heti_team_rank(plan, to, i - senders);
    return members;
}

static heti_endpoint *heti_lane_end(const heti_rank *r, int64_t from, int64_t to) {
    int64_t rank[2 * HETRAIN_MAX_TEAM];
    const heti_communicator lane = { HETI_GROUP_LANE, heti_lane_members(r->ctx->share.plan, from, to, rank), rank };
    return heti_endpoint_of(r->part, heti_group_number(&r->ctx->share, &lane));
}

/* What the processes tell each other of their groups, and of each rank's place and limit. */
static het_result heti_find_places(het_ctx *ctx) {
    const het_communicators *groups = &ctx->desc.layout.communicators;
    const uint64_t own = groups->iface ? het_xxh64(groups->iface->name, strlen(groups->iface->name),
                                                   groups->iface->id_bytes) : 0;
    for (int64_t i = 0; groups->iface && i < ctx->world.local_count; i++) {
        const heti_rank *r = &ctx->rank[i];
        const int64_t links = ctx->desc.emulate.link_count;
        char text[HETRAIN_COMMUNICATOR_PLACE];
        int64_t l;
        for (l = 0; l < links && ctx->emulated.link[l].from != r->rank && ctx->emulated.link[l].to != r->rank; l++) {}
        if (!r->queue || l < links) continue;
        memset(text, 0, sizeof text);
        const het_result result = groups->iface->place(groups->self, &r->device, text, sizeof text);
        if (result != HET_OK)
            return heti_fail(&ctx->error, result, "%s: %s place of rank %d: %s", ctx->call, groups->iface->name,
                             r->rank, groups->iface->last_error(groups->self, NULL));
        text[sizeof text - 1] = 0;
        if (text[0]) ctx->world.place[r->rank] = het_xxh64(text, strlen(text), 0) | 1;
    }
    for (int64_t i = 0; i < ctx->world.processes; i++) {
        const int64_t first = ctx->world.process_first[i], ranks = ctx->world.process_first[i + 1] - first;
        uint64_t other = own;
        HETI_TRY(heti_broadcast(ctx, i, &other, sizeof other));
        if (own != 0 && other != 0 && own != other)
            return heti_fail(&ctx->error, HET_ERR_INVALID,
                             "process %d has groups by another provider than process %d, or another version of it", i,
                             ctx->world.process);
        HETI_TRY(heti_broadcast(ctx, i, ctx->world.place + first, HETI_CAST(size_t, ranks) * sizeof *ctx->world.place));
        HETI_TRY(heti_broadcast(ctx, i, ctx->world.tokens + first,
                                HETI_CAST(size_t, ranks) * sizeof *ctx->world.tokens));
    }
    return HET_OK;
}

/* A fresh identity of a group, from its first member's process to all. */
static het_result heti_make_identity(het_ctx *ctx, const heti_communicator *group,
                                     unsigned char id[HETRAIN_COMMUNICATOR_ID]) {
    const het_communicators *groups = &ctx->desc.layout.communicators;
    const int64_t process = heti_process_of(ctx, group->member[0]);
    struct { int64_t code; unsigned char id[HETRAIN_COMMUNICATOR_ID]; } made = HETI_ZEROS;
    if (process == ctx->world.process) made.code = groups->iface->identity(groups->self, made.id);
    HETI_TRY(heti_broadcast(ctx, process, &made, sizeof made));
    memcpy(id, made.id, sizeof made.id);
    if (made.code == HET_OK) return HET_OK;
    return heti_fail(&ctx->error, HETI_CAST(het_result, made.code),
                     "%s: rank %d, identity of its group with rank %d: %s", ctx->call, group->member[0],
                     group->member[group->members - 1], process == ctx->world.process
                         ? groups->iface->last_error(groups->self, NULL) : "its process has the reason");
}

static het_result heti_join_fail(het_ctx *ctx, const heti_rank *r, const heti_endpoint *end, het_result result,
                                 const char *op) {
    const het_communicators *groups = &ctx->desc.layout.communicators;
    const heti_communicator *group = &ctx->share.group[end->group];
    (void)heti_fail(&ctx->error, result, "%s: rank %d, %s %s, ranks %d ... %d: %s", ctx->call, r->rank,
                    groups->iface->name, op, group->member[0], group->member[group->members - 1],
                    heti_reason(groups->iface->last_error(groups->self, end->handle), result));
    ctx->failed |= ctx->world.processes > 1; /* others wait for this member, and hear of an abort alone */
    if (ctx->failed) heti_call_off(ctx, result);
    return result;
}

/* Ops of a group that are under way at most on a rank, the same in all processes: messages of a
   lane, no more than the longest list has actions; one exchange of a team; one block's of a
   cluster, one for each of the block's clusters. */
static int64_t heti_ops_of(const het_ctx *ctx, const heti_share *share, int64_t g) {
    const int64_t *start = share->schedule->start;
    int64_t most = 1;
    for (int64_t i = 0; i < share->plan->ranks && share->group[g].kind == HETI_GROUP_LANE; i++)
        most = heti_max(most, start[i + 1] - start[i] + 2);
    for (const heti_owners *o = share->owners; o < share->owners + ctx->chain.block_count; o++)
        for (int64_t c = 0; c < o->clusters; c++)
            if (o->group[c] == g) most = heti_max(most, o->clusters);
    return most;
}

/* All local members of a group join it: in the first round they begin to, then they are asked. */
static het_result heti_join_group(het_ctx *ctx, int64_t g, const unsigned char *id) {
    const het_communicators *groups = &ctx->desc.layout.communicators;
    const heti_communicator *group = &ctx->share.group[g];
    double since[2] = { heti_now(), heti_now() };
    char what[80];
    (void)heti_format(what, sizeof what, "the group of ranks %d ... %d to form", group->member[0],
                      group->member[group->members - 1]);
    for (int64_t round = 0, missing = 1; missing > 0; round++) {
        if (round > 1) HETI_TRY(heti_wait_turn(ctx, since, what));
        for (int64_t i = missing = 0; i < ctx->world.local_count; i++) {
            const heti_rank *r = &ctx->rank[i];
            heti_endpoint *end = heti_endpoint_of(r->part, g);
            if (!end || end->joined) continue;
            const het_result result = round > 0 ? groups->iface->joined(groups->self, end->handle, &end->joined)
                : groups->iface->join(groups->self, &r->device, id, group->members, end->member,
                                      heti_ops_of(ctx, &ctx->share, g), group->kind != HETI_GROUP_CLUSTER,
                                      &end->handle);
            if (result != HET_OK && round == 0) end->handle = NULL;
            if (result != HET_OK) return heti_join_fail(ctx, r, end, result, round > 0 ? "joined" : "join");
            missing += !end->joined;
        }
    }
    return HET_OK;
}

/* The groups of the share in use, but for those that the share `aside`, if there is one, has as
   well and for as many ops (heti_keep_groups); all processes know which. */
static het_result heti_join_groups(het_ctx *ctx, const heti_share *aside) {
    for (int64_t g = 0; g < ctx->share.groups; g++) {
        unsigned char id[HETRAIN_COMMUNICATOR_ID];
        const int64_t old = aside ? heti_group_number(aside, &ctx->share.group[g]) : 0;
        if (aside && old < aside->groups && heti_ops_of(ctx, aside, old) >= heti_ops_of(ctx, &ctx->share, g)) continue;
        HETI_TRY(heti_make_identity(ctx, &ctx->share.group[g], id));
        HETI_TRY(heti_join_group(ctx, g, id));
    }
    return HET_OK;
}

/* How many queues a rank's part has: its ends', and that of copies to the host. */
static int64_t heti_queue_count(const heti_part *part) { return part->ends + (part->place_count > 0); }

/* Number i of the events of a rank's part, of its queues, of messages on lanes, of slots that are
   copied; NULL: there are no more. */
static het_event **heti_event_of(heti_part *part, int64_t i) {
    const int64_t queues = heti_queue_count(part),
                  messages = part->ends_of[HETI_GROUP_LANE] > 0 ? part->message_count + 2 : 0;
    if (i < queues) return &part->end[i].event;
    if (i < queues + messages) return &part->message[i - queues].event;
    i -= queues + messages;
    return part->place_count > 0 && i < part->slot_count ? &part->slot[i].moved : NULL;
}

static het_result heti_open_ends(heti_rank *r) {
    heti_part *part = r->part;
    const het_queue_iface *queues = r->device.iface->queues;
    const size_t live = r->ctx->counter.live;
    het_result result = HET_OK;
    het_event **event;
    for (int64_t i = 0; queues && result == HET_OK && i < heti_queue_count(part); i++)
        result = queues->create(r->device.self, &part->end[i].queue);
    for (int64_t i = 0; queues && result == HET_OK && (event = heti_event_of(part, i)) != NULL; i++)
        result = queues->event_create(r->device.self, event);
    part->queue_bytes = r->ctx->counter.live - live;
    if (result == HET_OK) return HET_OK;
    return heti_fail(&r->ctx->error, result, "%s: rank %d, queue of a group or of copies: %s", r->ctx->call, r->rank,
                     heti_reason(r->device.iface->last_error(r->device.self), result));
}

/* Ends what is under way in a rank's groups: in all, or in those that are not joined. */
static void heti_abort_ends(const het_communicators *groups, heti_part *part, int all) {
    for (int64_t i = 0; part->end && i < part->ends; i++) {
        heti_endpoint *end = &part->end[i];
        if (!end->handle || end->aborted || (end->joined && !all)) continue;
        groups->iface->abort(groups->self, end->handle);
        end->aborted = 1;
    }
}

/* Leaves a rank's groups. */
static void heti_leave_ends(const het_communicators *groups, heti_part *part) {
    for (int64_t i = 0; part->end && i < part->ends; i++)
        if (part->end[i].handle) groups->iface->leave(groups->self, part->end[i].handle);
}

/* Gives back the queues and events of a rank's part. Nothing uses them any more: the groups are
   left, and either the rank's own queue has been waited for or its memory is given back. */
static void heti_close_ends(heti_rank *r, heti_part *part) {
    const het_queue_iface *queues = r->device.iface->queues;
    het_event **event;
    if (!part->end || !part->host.base) return; /* its tables were never made */
    for (int64_t i = 0; i < heti_queue_count(part); i++)
        if (part->end[i].queue) queues->destroy(r->device.self, part->end[i].queue);
    for (int64_t i = 0; (event = heti_event_of(part, i)) != NULL; i++)
        if (*event) queues->event_destroy(r->device.self, *event);
}

/* Lets an end's queue wait for an event of the rank's own queue; NULL: for all it was given. */
static het_result heti_order_end(heti_rank *r, heti_endpoint *end, het_event *event) {
    const het_queue_iface *queues = r->device.iface->queues;
    if (!event) {
        event = end->event;
        HETI_DEVICE(r, queues->event_record(r->device.self, r->queue, event), "event");
    }
    HETI_DEVICE(r, queues->event_wait(r->device.self, end->queue, event), "wait for an event");
    return HET_OK;
}

/* Gives an end pieces to send and to receive, behind `event` of the rank's own queue as above. */
static het_result heti_give_pieces(heti_rank *r, heti_endpoint *end, het_event *event, const char *op,
                                   const het_communicator_piece *out, const het_communicator_piece *in) {
    const het_communicators *groups = &r->ctx->desc.layout.communicators;
    HETI_TRY(heti_order_end(r, end, event));
    end->op = op;
    HETI_TRY(heti_group_result(r, end, groups->iface->exchange(groups->self, end->handle, end->queue, out, in)));
    end->given++;
    return HET_OK;
}

/* =================================================================================================
   >>build  From a description to a context: one way, from top to bottom.

   A description is completed and checked. Its units are a chain, their parameters a table, sorted
   into blocks. A plan says which ranks hold a block and who owns which part of it; the schedule is
   completed with transfers and reductions. From that follow a rank's stages, what it has in flight
   at once, and maps of its device memory and of its host tables: what of it the plan decides is
   heti_share and heti_part, and a replan takes the same way from the plan on. Everything is sized
   here, before the first step. heti_layout walks over all device memory of a rank twice: once to
   count, once to hand out pointers; het_memory_estimate stops after counting. Host tables come from
   one block each in the same way.
   ============================================================================================== */

/* ---- the description: defaults, checks ---- */

HETRAIN_API void het_desc_defaults(het_desc *desc) {
    if (!desc) return;
    (void)heti_model_complete(&desc->model, "het_desc_defaults", NULL); /* het_create names a bad field */
    if (desc->limits.max_tokens == 0)
        desc->limits.max_tokens = desc->model.context >= 0 && desc->model.context <= INT64_MAX / 4
                                      ? 4 * desc->model.context : INT64_MAX;
    if (desc->limits.max_sequences == 0) desc->limits.max_sequences = desc->limits.max_tokens;
    heti_desc_fallbacks(desc);
    if (!desc->optimizer.iface) desc->optimizer.iface = het_adamw();
    if (!desc->host.allocator.alloc && !desc->host.allocator.free) heti_default_allocator(&desc->host.allocator);
}

static het_result heti_check_range(het_error *e, const char *field, int64_t value, int64_t lowest, int64_t highest) {
    if (value >= lowest && value <= highest) return HET_OK;
    return heti_fail(e, HET_ERR_INVALID, "het_desc.%s is %d; it must be from %d to %d", field, value, lowest, highest);
}

/* Slower ones would sleep for longer than any deadline. */
static int heti_is_speed(double speed) { return speed >= 1e-3 && speed <= 1.0; }
static int heti_link_is_time(const het_link *l) {
    return l->latency >= 0.0 && l->latency <= 3600.0 && (l->bandwidth == 0.0 || l->bandwidth >= 1.0);
}

/* Checks a completed description. */
static het_result heti_check_desc(het_error *e, const het_desc *d) {
    const het_communicator_iface *communicators = d->layout.communicators.iface;
    if (d->start_canary != 0 || d->end_canary != 0)
        return heti_fail(e, HET_ERR_INVALID, "het_desc was not zeroed: canaries are %x and %x",
                         HETI_CAST(uint64_t, d->start_canary), HETI_CAST(uint64_t, d->end_canary));
    if (!d->host.allocator.alloc || !d->host.allocator.free)
        return heti_fail(e, HET_ERR_INVALID, "het_desc.host.allocator needs both alloc and free%s",
                         d->host.allocator.alloc || d->host.allocator.free ? ""
                             : " (there is no default one in this build)");
    HETI_TRY(heti_desc_check_fields(d, e));
    if (d->streams == HET_BF16 && d->dtype != HET_BF16)
        return heti_fail(e, HET_ERR_INVALID, "het_desc.streams is bf16, het_desc.dtype is f32; it must be bf16, too");
    if (!d->host.store.put != !d->host.store.get)
        return heti_fail(e, HET_ERR_INVALID, "het_desc.host.store needs both put and get");
    if (d->layout.device_count > 1 && !d->layout.devices)
        return heti_fail(e, HET_ERR_INVALID, "het_desc.layout.device_count is %d and devices is NULL",
                         d->layout.device_count);
#ifndef HETI_THREADS
    if (d->layout.device_count > 1 || d->layout.transport.iface)
        return heti_fail(e, HET_ERR_UNSUPPORTED,
                         "het_desc.layout.device_count is %d; this build has no threads and drives one device",
                         d->layout.device_count);
#endif
    if (d->units) HETI_TRY(heti_check_range(e, "unit_count", d->unit_count, 2, 1 << 20));
    else if (d->unit_count)
        return heti_fail(e, HET_ERR_INVALID, "het_desc.unit_count is %d, units is NULL", d->unit_count);
    if (d->layout.transport.iface && d->layout.transport.iface->version != HETRAIN_TRANSPORT_VERSION)
        return heti_fail(e, HET_ERR_INVALID, "transport table has version %d, this is %i",
                         HETI_CAST(int64_t, d->layout.transport.iface->version), HETRAIN_TRANSPORT_VERSION);
    if (communicators && communicators->version != HETRAIN_COMMUNICATOR_VERSION)
        return heti_fail(e, HET_ERR_INVALID, "het_desc.layout.communicators: the table has version %d, this is %i",
                         HETI_CAST(int64_t, communicators->version), HETRAIN_COMMUNICATOR_VERSION);
    if (communicators && (communicators->id_bytes < 1 || communicators->id_bytes > HETRAIN_COMMUNICATOR_ID))
        return heti_fail(e, HET_ERR_INVALID,
                         "het_desc.layout.communicators: an identity of %u bytes; they have 1 to %i",
                         HETI_CAST(uint64_t, communicators->id_bytes), HETRAIN_COMMUNICATOR_ID);
    HETI_TRY(heti_check_range(e, "optimizer.iface->slots", d->optimizer.iface->slots, 0, 4));
    HETI_TRY(heti_check_range(e, "optimizer.iface->slots and feedback's", het_optimizer_slots(&d->optimizer), 0, 4));
    for (int32_t s = 0; s < d->optimizer.iface->slots; s++)
        if (!d->optimizer.iface->slot_name[s])
            return heti_fail(e, HET_ERR_INVALID, "het_desc.optimizer.iface: state slot %i has no name", s);
    if (d->emulate.link_count > 0 && !d->emulate.links)
        return heti_fail(e, HET_ERR_INVALID, "het_desc.emulate.link_count is %d, links is NULL", d->emulate.link_count);
    return HET_OK;
}

/* The longest granule of the rule: 512 tokens, or `granule` whole sequences of at most 512 each. */
static int64_t heti_longest_granule(const het_desc *desc) {
    const int64_t whole = heti_min(desc->model.context, 512);
    return heti_min(desc->limits.max_tokens, heti_max(512, desc->granule > INT64_MAX / 512 ? desc->limits.max_tokens :
                                               desc->granule * whole));
}

/* ---- the ranks ---- */

/* Which ranks there are: those of this process, or of the transport's processes in turn. */
static het_result heti_find_ranks(het_ctx *ctx) {
    heti_world *w = &ctx->world;
    const het_transport_iface *iface = w->transport.iface;
    w->local_count = ctx->desc.layout.device_count;
    w->processes = 1;
    if (iface) {
        if (w->local_count > HETI_PROCESS_RANKS)
            return heti_fail(&ctx->error, HET_ERR_LIMIT, "%d ranks in one process; with a transport %i are the most",
                             w->local_count, HETI_PROCESS_RANKS);
        w->processes = iface->processes(w->transport.self);
        w->process = iface->process(w->transport.self);
        if (w->processes < 1 || w->process < 0 || w->process >= w->processes)
            return heti_fail(&ctx->error, HET_ERR_TRANSPORT, "%s: this is process %d of %d", iface->name, w->process,
                             w->processes);
    }
    HETI_TAKE_ALL(&w->arena, &ctx->allocator, ctx->call, &ctx->error,
                  w->process_first = HETI_TAKE(&w->arena, int64_t, w->processes + 1));
    for (int64_t i = 0; i < w->processes; i++) {
        int64_t count = w->local_count;
        HETI_TRY(heti_broadcast(ctx, i, &count, sizeof count));
        w->process_first[i + 1] = w->process_first[i] + count;
    }
    w->first_rank = w->process_first[w->process];
    w->ranks = w->process_first[w->processes];
    return HET_OK;
}

static het_result heti_open_queue(heti_rank *r) {
    const het_queue_iface *queues = r->device.iface->queues;
    het_result result;
    if (!queues) return HET_OK;
    result = queues->create(r->device.self, &r->queue);
    if (result == HET_OK) result = queues->event_create(r->device.self, &r->event);
    if (result == HET_OK) result = queues->event_create(r->device.self, &r->loaded);
    if (result == HET_OK) return HET_OK;
    return heti_fail(&r->ctx->error, result, "device %d: %s", r->local,
                     heti_reason(r->device.iface->last_error(r->device.self), result));
}

/* Whether the device writes (`final`) gradients of max_tokens rows without reading them. */
static int32_t heti_takes_gradients(const heti_rank *r, int32_t final) {
    const het_gradient dw = { NULL, final, 0, final, NULL, NULL };
    het_op op = heti_blank_op(HET_OP_LINEAR_BACKWARD_WEIGHT, 0);
    op.u.linear.rows = r->ctx->desc.limits.max_tokens;
    op.u.linear.parts = 1;
    op.u.linear.part[0].dw = &dw;
    return heti_supports(&r->device, op);
}

/* An op without which the description is refused: where `asked`. */
static het_result heti_need_op(heti_rank *r, int asked, het_op op, const char *field, const char *name) {
    if (!asked || heti_supports(&r->device, op)) return HET_OK;
    return heti_fail(&r->ctx->error, HET_ERR_UNSUPPORTED, "%s: device %s has no `%s`", field, r->desc.iface->name,
                     name);
}

/* What a device may lack. */
static het_result heti_ask_device(heti_rank *r) {
    const het_desc *desc = &r->ctx->desc;
    const int trains = r->ctx->slots > 0, muon = trains && desc->optimizer.iface == het_muon();
    const uint16_t weight = 0;
    const het_int8_block block = { 0.0f, { 0 } };
    het_op linear = heti_blank_op(HET_OP_LINEAR_FORWARD, 0), update = heti_blank_op(HET_OP_ADAMW, 0),
           squares = heti_blank_op(HET_OP_SUM_SQUARES, 0);
    linear.u.linear.parts = 1;
    linear.u.linear.part[0].w_bf16 = &weight;
    HETI_TRY(heti_need_op(r, desc->model.lora_rank > 0 || muon, heti_blank_op(HET_OP_SCALE, 0),
                          muon ? "het_desc.optimizer, Muon" : "het_desc.model.lora_rank", "scale"));
    HETI_TRY(heti_need_op(r, desc->weights == HET_BF16, linear, "het_desc.weights is bf16", "part[0].w_bf16"));
    HETI_TRY(heti_need_op(r, desc->weights == HET_INT8, heti_blank_op(HET_OP_EXPAND, 0),
                          "het_desc.weights is int8", "expand"));
    HETI_TRY(heti_need_op(r, muon, heti_blank_op(HET_OP_MUON_MOMENTUM, 0), "het_desc.optimizer, Muon", "muon"));
    HETI_TRY(heti_need_op(r, trains && heti_feeds_back(&desc->optimizer), heti_blank_op(HET_OP_FEEDBACK, 0),
                          "het_desc.optimizer.feedback", "feedback"));
    update.u.adamw.next = &update.u.adamw;
    squares.u.sum_squares.next = &squares.u.sum_squares;
    r->together = desc->optimizer.iface == het_adamw() && heti_supports(&r->device, update) &&
                  heti_supports(&r->device, squares) ? HETI_TOGETHER : 1;
    r->takes_beta = !r->desc.iface->queues && heti_takes_gradients(r, 0);
    r->takes_final = r->takes_beta && heti_takes_gradients(r, 1);
    linear.u.linear.part[0].w_bf16 = NULL;
    linear.u.linear.part[0].w_int8 = &block;
    r->takes_int8 = heti_supports(&r->device, linear);
    return HET_OK;
}

static het_result heti_open_device(heti_rank *r) {
    het_ctx *ctx = r->ctx;
    het_device_config config = HETI_ZEROS;
    het_error why = HETI_ZEROS;
    het_result result;
    char field[64];
    if (!r->desc.iface) r->desc.iface = het_cpu_device();
    if (r->desc.threads == 0) r->desc.threads = 1;
    (void)heti_format(field, sizeof field, "layout.devices[%d].threads", r->local);
    HETI_TRY(heti_check_range(&ctx->error, field, r->desc.threads, 1, 4096));
    (void)heti_format(field, sizeof field, "layout.devices[%d].max_tokens", r->local);
    HETI_TRY(heti_check_range(&ctx->error, field, r->desc.max_tokens, 0, HETI_CAST(int64_t, HETI_MOST)));
    ctx->world.tokens[r->rank] = r->desc.max_tokens;
    if (r->desc.speed == 0.0) r->desc.speed = 1.0;
    if (!heti_is_speed(r->desc.speed))
        return heti_fail(&ctx->error, HET_ERR_INVALID,
                         "het_desc.layout.devices[%d].speed is %g; it must be from 0.001 to 1", r->local,
                         r->desc.speed);
    if (r->desc.iface->version != HETRAIN_DEVICE_VERSION)
        return heti_fail(&ctx->error, HET_ERR_INVALID, "device table has version %d, this is %i",
                         HETI_CAST(int64_t, r->desc.iface->version), HETRAIN_DEVICE_VERSION);
    if (!r->desc.allocator.alloc != !r->desc.allocator.free)
        return heti_fail(&ctx->error, HET_ERR_INVALID, "het_desc.layout.devices[%d].allocator needs both alloc and "
                         "free", r->local);
    config.allocator = r->desc.allocator.alloc ? &r->desc.allocator : &ctx->allocator;
    config.parallel = &ctx->desc.host.parallel;
    config.threads = r->desc.threads;
    config.isa = r->desc.isa;
    config.fast = ctx->desc.reduce == HET_REDUCE_FAST;
    config.ordinal = r->desc.ordinal;
    config.error = &why;
    r->device.iface = r->desc.iface;
    result = r->device.iface->create(&config, &r->device.self);
    if (result != HET_OK) {
        r->device.self = NULL;
        return heti_fail(&ctx->error, result, "rank %d, device %s:%i with %i threads and instruction set %i could not "
                         "be created%s%s", r->rank, r->device.iface->name, config.ordinal & 255, config.threads,
                         config.isa, why.text[0] ? ": " : "", why.text);
    }
    HETI_TRY(heti_ask_device(r));
    return heti_open_queue(r);
}

/* The ranks of this process, their devices opened. */
static het_result heti_open_ranks(het_ctx *ctx) {
    for (int64_t i = 0; i < ctx->world.local_count; i++) {
        heti_rank *r = &ctx->rank[i];
        const size_t live = ctx->counter.live;
        r->ctx = ctx;
        r->local = i;
        r->rank = ctx->world.first_rank + i;
        r->join = ctx->join + i * HETI_JOINS;
        if (ctx->desc.layout.devices) r->desc = ctx->desc.layout.devices[i];
        HETI_TRY(heti_open_device(r));
        r->opened = ctx->counter.live - live;
        ctx->device[i] = r->desc;
    }
    ctx->desc.layout.devices = ctx->device;
    return HET_OK;
}

/* ---- the chain, parameters and blocks ---- */

/* The units of the model, or the caller's. */
static het_result heti_open_chain(het_ctx *ctx) {
    heti_chain *chain = &ctx->chain;
    HETI_TAKE_ALL(&chain->units, &ctx->allocator, ctx->call, &ctx->error,
                  chain->unit = HETI_TAKE(&chain->units, het_described_unit, chain->unit_count));
    for (int64_t u = 0; u < chain->unit_count; u++) {
        het_unit *unit = &chain->unit[u].unit;
        char where[80];
        *unit = ctx->desc.units ? ctx->desc.units[u] : heti_model_unit(&ctx->desc.model, u);
        if (!unit->model) unit->model = &ctx->desc.model;
        (void)heti_format(where, sizeof where, "unit %d: its model, which het_model_complete has not seen", u);
        HETI_TRY(heti_model_check(unit->model, 1, where, &ctx->error));
    }
    return HET_OK;
}

/* Whether a unit takes the description's streams. Teams move floats. */
static het_result heti_check_streams(het_ctx *ctx, int64_t index, het_unit_info *info) {
    int64_t odd = 0;
    if (info->streams != HET_BF16) return HET_OK;
    info->teams = 0;
    for (int64_t s = 0; s < info->out_streams; s++) odd |= info->out_width[s] % 8;
    if (!info->device || (info->values == HET_BF16 && !odd)) return HET_OK;
    return heti_fail(&ctx->error, HET_ERR_UNSUPPORTED, "het_desc.streams is bf16, which unit %d (%s) on device %s "
                     "does not take: %s", index, ctx->chain.unit[index].unit.iface->name, info->device->iface->name,
                     info->why ? info->why : odd ? "a width is no multiple of 8" : "it takes floats");
}

/* Asks a unit of the chain to describe itself on a rank (NULL: parameters only), behind the unit
   before it, within what the plan, if there is one, gives the rank. program: room for one. */
static het_result heti_describe(het_ctx *ctx, int64_t index, const heti_rank *r, het_program *program,
                                het_unit_info *info) {
    const het_unit *unit = &ctx->chain.unit[index].unit;
    const het_unit_info *before = index > 0 ? &ctx->chain.unit[index - 1].info : NULL;
    char where[64] = "";
    het_result result;
    memset(info, 0, sizeof *info);
    info->max_tokens = r && r->part ? r->part->tokens : ctx->desc.limits.max_tokens;
    info->max_granule_tokens = heti_min(heti_longest_granule(&ctx->desc), info->max_tokens);
    info->max_sequences = ctx->desc.limits.max_sequences;
    info->compute = ctx->desc.dtype;
    info->streams = ctx->desc.streams;
    info->slices = ctx->share.plan ? ctx->share.plan->slices : ctx->desc.layout.plan ? ctx->desc.layout.plan->slices :
                   ctx->desc.limits.max_slices;
    info->device = r ? &r->device : NULL;
    info->program = program;
    info->team = r && r->part && r->part->team.members > 1 ? &r->part->limits : NULL;
    if (before) {
        info->in_streams = before->out_streams;
        for (int64_t s = 0; s < before->out_streams; s++) info->in_width[s] = before->out_width[s];
    }
    if (!unit->iface || unit->iface->version != HETRAIN_UNIT_VERSION)
        return heti_fail(&ctx->error, HET_ERR_INVALID, "unit %d: its table has version %d, this is %i", index,
                         unit->iface ? HETI_CAST(int64_t, unit->iface->version) : INT64_C(-1), HETRAIN_UNIT_VERSION);
    result = unit->iface->describe(unit, info);
    if (r) (void)heti_format(where, sizeof where, " on rank %d (%s)", r->rank, r->device.iface->name);
    if (result != HET_OK)
        return heti_fail(&ctx->error, result, "unit %d (%s): describe failed%s behind a unit that gives %d streams of "
                         "width %d%s%s; so far %d parameters, the last %s, and %d tensors", index, unit->iface->name,
                         where, info->in_streams, info->in_streams ? info->in_width[0] : INT64_C(0),
                         info->why ? ": " : "", info->why ? info->why : "", info->parameters,
                         info->parameters > 0 ? info->parameter[info->parameters - 1].name : "none", info->tensors);
    if (info->parameters < 0 || info->parameters > HETRAIN_MAX_UNIT_PARAMETERS || info->tensors < 0 ||
        info->tensors > HETRAIN_MAX_UNIT_TENSORS || info->out_streams < 0 || info->out_streams > HETRAIN_MAX_STREAMS)
        return heti_fail(&ctx->error, HET_ERR_INVALID, "unit %d (%s): %d parameters, %d tensors, %d streams; the most "
                         "are %i, %i, %i", index, unit->iface->name, info->parameters, info->tensors, info->out_streams,
                         HETRAIN_MAX_UNIT_PARAMETERS, HETRAIN_MAX_UNIT_TENSORS, HETRAIN_MAX_STREAMS);
    return heti_check_streams(ctx, index, info);
}

/* What a call of the optimizer says of a parameter before memory is there. */
static het_optimizer_call heti_optimizer_call(const heti_rank *r, const heti_parameter *p) {
    const het_optimizer_call call = { &r->device, NULL, NULL, NULL, p->count, p->desc.rows, p->desc.columns, NULL,
                                      { NULL, NULL, NULL, NULL }, 0.0f, &r->ctx->desc.optimizer, p->hidden,
                                      r->ctx->desc.dtype, NULL, NULL, NULL };
    return call;
}

/* Scratch of what VERDICT and STEP do with a parameter. */
static size_t heti_step_workspace(const heti_rank *r, int64_t parameter) {
    const heti_parameter *p = &r->ctx->chain.parameter[parameter];
    const het_optimizer_iface *optimizer = r->ctx->desc.optimizer.iface;
    const het_optimizer_call call = heti_optimizer_call(r, p);
    const het_sum_squares_args a = { NULL, p->count, NULL, NULL, NULL };
    return heti_max_size(heti_op_workspace(&r->device, HETI_OP(SUM_SQUARES, &a)),
                         optimizer->workspace && !p->frozen ? optimizer->workspace(&call) : 0);
}

/* Which parameter has a name; where none has, the next new one. */
static int64_t heti_find_parameter(heti_chain *chain, const char *name) {
    uint64_t at = het_xxh64(name, strlen(name), 0) % HETI_CAST(uint64_t, chain->names);
    while (chain->name[at] > 0 && strcmp(chain->parameter[chain->name[at] - 1].desc.name, name) != 0)
        at = (at + 1) % HETI_CAST(uint64_t, chain->names);
    if (chain->name[at] == 0) chain->name[at] = chain->parameter_count + 1;
    return chain->name[at] - 1;
}

/* Adds one use of a parameter; a name seen before with the same shape is the same parameter. */
static het_result heti_add_parameter(het_ctx *ctx, int64_t unit, const het_parameter_desc *p, int64_t *index) {
    heti_parameter *to;
    const int hidden = p->product && p->rows > 1 && p->columns > 1 && !ctx->chain.unit[unit].info.is_loss;
    size_t count, bytes;
    *index = heti_find_parameter(&ctx->chain, p->name);
    to = &ctx->chain.parameter[*index];
    if (p->divide < 0 || p->divide > 3 || p->piece < 0 || (p->piece > 0 && (p->divide == 1 ? p->rows : p->columns) %
        p->piece != 0) || (p->divide == 3 && (p->grid[0] < 1 || p->grid[1] < 1 || p->grid[2] < 1 || p->grid[3] < 1 ||
        p->rows % p->grid[0] != 0 || p->columns % p->grid[1] != 0)))
        return heti_fail(&ctx->error, HET_ERR_INVALID, "unit %d: parameter %s, %d x %d, cannot be divided so: divide "
                         "is %i, piece %i", unit, p->name, p->rows, p->columns, p->divide, p->piece);
    if (p->rows < 1 || p->columns < 1 || !heti_mul(HETI_CAST(size_t, p->rows), HETI_CAST(size_t, p->columns), &count) ||
        !heti_mul(count, 64, &bytes))
        return heti_fail(&ctx->error, HET_ERR_INVALID, "unit %d: parameter %s has shape %d x %d", unit, p->name,
                         p->rows, p->columns);
    if (*index < ctx->chain.parameter_count) {
        if (to->desc.rows != p->rows || to->desc.columns != p->columns)
            return heti_fail(&ctx->error, HET_ERR_INVALID, "unit %d: parameter %s is %d x %d here and %d x %d in an "
                             "earlier unit", unit, p->name, p->rows, p->columns, to->desc.rows, to->desc.columns);
        if (to->desc.divide != p->divide || to->desc.by_heads != p->by_heads || to->desc.piece != p->piece ||
            memcmp(to->desc.grid, p->grid, sizeof p->grid) != 0) to->desc.divide = -1;
        to->last_unit = unit;
        if (!p->bf16 && to->type == HET_BF16) to->type = HET_F32;
        to->desc.int8 = to->desc.int8 && p->int8;
        to->hidden = to->hidden && hidden;
        to->rounded |= p->rounded;
        return HET_OK;
    }
    ctx->chain.parameter_count++;
    to->desc = *p;
    to->count = HETI_CAST(int64_t, count);
    ctx->chain.parameters += to->count;
    to->first_unit = to->last_unit = unit;
    to->exponent = HETRAIN_NO_EXPONENT;
    to->hidden = hidden;
    to->rounded = p->rounded;
    to->frozen = ctx->desc.inference == HET_YES || (ctx->desc.model.lora_rank > 0 && !p->adapter) ||
                 (ctx->desc.frozen && ctx->desc.frozen(ctx->desc.host.user, to->desc.name) != 0);
    to->type = to->frozen && (ctx->desc.weights == HET_INT8 ? p->columns > 1 && !p->adapter : p->bf16) ?
               ctx->desc.weights : HET_F32;
    return HET_OK;
}

/* A unit's output streams are its input streams. */
static int heti_passes_on(const het_unit_info *info) {
    int64_t s = 0;
    while (s < info->in_streams && s < info->out_streams && info->in_width[s] == info->out_width[s]) s++;
    return s > 0 && s == info->in_streams && s == info->out_streams;
}

static het_result heti_build_chain(het_ctx *ctx) {
    int64_t frozen = 0;
    for (int64_t u = 0; u < ctx->chain.unit_count; u++) {
        het_described_unit *unit = &ctx->chain.unit[u];
        for (int64_t p = 0; p < unit->info.parameters; p++) {
            unit->info.parameter[p].name[sizeof unit->info.parameter[p].name - 1] = 0;
            HETI_TRY(heti_add_parameter(ctx, u, &unit->info.parameter[p], &unit->parameter[p]));
        }
        if (u == ctx->chain.unit_count - 1 ? !unit->info.is_loss || unit->info.out_streams > 0 :
            unit->info.is_loss && !heti_passes_on(&unit->info))
            return heti_fail(&ctx->error, HET_ERR_INVALID, "unit %d (%s): the last unit of the chain makes the loss "
                             "and writes no stream; another one with a loss passes its input streams on", u,
                             unit->unit.iface->name);
    }
    for (int64_t p = 0; p < ctx->chain.parameter_count; p++) frozen += ctx->chain.parameter[p].frozen;
    if (frozen > 0 && frozen == ctx->chain.parameter_count && ctx->desc.inference != HET_YES)
        return heti_fail(&ctx->error, HET_ERR_INVALID, "%s: all %d parameters are frozen, so nothing is trained; "
                         "het_desc.inference is HET_YES where that is meant", ctx->call, frozen);
    return HET_OK;
}

/* Parameters into blocks, in table order, and places in them. Those of one have one first unit. */
static void heti_build_blocks(het_ctx *ctx) {
    heti_chain *chain = &ctx->chain;
    for (int64_t p = 0; p < chain->parameter_count; p++) {
        heti_parameter *parameter = &chain->parameter[p];
        const int64_t *like = chain->unit[parameter->first_unit].parameter;
        het_described_block *block = chain->block + chain->block_count;
        int64_t *use = chain->use + chain->use_count, uses = 0;
        for (int64_t u = parameter->first_unit, i; u <= parameter->last_unit; u++) {
            const het_described_unit *unit = &chain->unit[u];
            for (i = 0; i < unit->info.parameters && unit->parameter[i] != p; i++) {}
            if (i < unit->info.parameters) use[uses++] = u;
        }
        for (; *like != p; like++) {
            block = &chain->block[chain->parameter[*like].block];
            if (block->frozen == parameter->frozen && block->uses == uses && memcmp(chain->use + block->first_use, use,
                HETI_CAST(size_t, uses) * sizeof *use) == 0) break;
            block = chain->block + chain->block_count;
        }
        parameter->block = block - chain->block;
        parameter->uses = HETI_CAST(int32_t, uses);
        if (parameter->block == chain->block_count) {
            block->parameter = -1;
            block->frozen = parameter->frozen;
            block->first_use = chain->use_count;
            block->uses = uses;
            chain->use_start[++chain->block_count] = chain->use_count += uses;
        }
        parameter->offset = block->elements;
        block->elements += heti_ceil_div(parameter->count, 16) * 16;
        parameter->weight_offset = block->weight_floats;
        block->weight_floats += heti_ceil_div(heti_weight_floats(parameter->type, parameter->count), 16) * 16;
    }
    for (int64_t p = chain->parameter_count - 1; p >= 0; p--) {
        int64_t *first = &chain->block[chain->parameter[p].block].parameter;
        chain->parameter[p].next = *first;
        *first = p;
    }
}

/* All units, on a rank or none, and how many parameters they use. */
static het_result heti_describe_chain(het_ctx *ctx, const heti_rank *r, int64_t *uses) {
    *uses = 0;
    for (int64_t u = 0; u < ctx->chain.unit_count; u++) {
        het_described_unit *unit = &ctx->chain.unit[u];
        HETI_TRY(heti_describe(ctx, u, r, &unit->program, &unit->info));
        *uses += unit->info.parameters;
    }
    return HET_OK;
}

/* All units once more, with a rank's device. */
static het_result heti_describe_units(heti_rank *r) {
    het_ctx *ctx = r->ctx;
    int64_t uses;
    HETI_TRY(heti_describe_chain(ctx, r, &uses));
    for (int64_t u = 0; u < ctx->chain.unit_count; u++) {
        het_unit_info *info = &ctx->chain.unit[u].info;
        for (int64_t p = 0; p < info->parameters; p++) {
            const int64_t parameter = ctx->chain.unit[u].parameter[p];
            const size_t bytes = heti_step_workspace(r, parameter);
            het_described_block *block = &ctx->chain.block[ctx->chain.parameter[parameter].block];
            info->workspace = heti_max_size(info->workspace, bytes);
            block->workspace = heti_max_size(block->workspace, bytes);
        }
    }
    return HET_OK;
}

/* The tables all ranks share, as far as they do not depend on the plan. */
static void heti_layout_tables(het_ctx *ctx, int64_t uses) {
    heti_arena *arena = &ctx->host;
    ctx->chain.recompute = HETI_TAKE(arena, uint8_t, ctx->desc.layout.recompute_unit ? ctx->chain.unit_count : 0);
    ctx->chain.parameter = HETI_TAKE(arena, heti_parameter, uses);
    ctx->chain.names = 2 * uses;
    ctx->chain.name = HETI_TAKE(arena, int64_t, ctx->chain.names);
    ctx->chain.block = HETI_TAKE(arena, het_described_block, uses);
    ctx->chain.use = HETI_TAKE(arena, int64_t, uses);
    ctx->chain.use_start = HETI_TAKE(arena, int64_t, uses + 1);
    ctx->verdict.maximum = HETI_TAKE(arena, uint32_t, uses);
    ctx->verdict.maximum_rank = HETI_TAKE(arena, int32_t, uses);
    ctx->verdict.exponent = HETI_TAKE(arena, int32_t, uses);
    ctx->verdict.saved_exponent = HETI_TAKE(arena, int32_t, uses);
    ctx->verdict.grid = HETI_TAKE(arena, double, uses);
    ctx->emulated.link = HETI_TAKE(arena, het_link, ctx->desc.emulate.link_count);
    ctx->emulated.link_free = HETI_TAKE(arena, double, 2 * ctx->desc.emulate.link_count);
    ctx->rank = HETI_TAKE(arena, heti_rank, ctx->world.local_count);
    ctx->device = HETI_TAKE(arena, het_device_desc, ctx->world.local_count);
    ctx->world.place = HETI_TAKE(arena, uint64_t, ctx->world.ranks);
    ctx->world.tokens = HETI_TAKE(arena, int64_t, ctx->world.ranks);
    ctx->threads.posted = HETI_TAKE(arena, heti_post *, ctx->world.local_count);
    if (ctx->purpose == HETI_TO_ESTIMATE) arena->asked = arena->used;
    ctx->traffic = HETI_TAKE(arena, het_traffic, ctx->world.local_count * ctx->world.ranks);
    ctx->join = HETI_TAKE(arena, heti_post, ctx->world.local_count * HETI_JOINS);
}

static het_result heti_build_tables(het_ctx *ctx) {
    int64_t uses;
    HETI_TRY(heti_open_chain(ctx));
    HETI_TRY(heti_describe_chain(ctx, NULL, &uses));
    HETI_TAKE_ALL(&ctx->host, &ctx->allocator, ctx->call, &ctx->error, heti_layout_tables(ctx, uses));
    HETI_TRY(heti_build_chain(ctx));
    heti_build_blocks(ctx);
    if (ctx->desc.layout.recompute_unit) {
        HETI_COPY(ctx->chain.recompute, ctx->desc.layout.recompute_unit, ctx->chain.unit_count);
        ctx->desc.layout.recompute_unit = ctx->chain.recompute;
    }
    for (int64_t i = 0; i < ctx->desc.emulate.link_count; i++) {
        const het_link *link = &ctx->desc.emulate.links[i];
        if (!heti_link_is_time(link))
            return heti_fail(&ctx->error, HET_ERR_INVALID, "het_desc.emulate.links[%d]: latency %g s and %g bytes/s; "
                             "at most 3600 s, and 0 or at least 1 byte/s", i, link->latency, link->bandwidth);
        if (heti_min(link->from, link->to) < 0 || heti_max(link->from, link->to) >= ctx->world.ranks ||
            link->from == link->to)
            return heti_fail(&ctx->error, HET_ERR_INVALID, "het_desc.emulate.links[%d] joins ranks %d and %d of %d", i,
                             link->from, link->to, ctx->world.ranks);
        ctx->emulated.link[i] = *link;
    }
    ctx->desc.emulate.links = ctx->emulated.link;
    return HET_OK;
}

/* ---- the plan: holders and owners of blocks, groups, the tree of a join ---- */

/* One pipeline of one stage on every rank. */
static het_result heti_plain_plan(het_ctx *ctx) {
    het_plan shape = HETI_ZEROS, *plan = NULL;
    int64_t i;
    shape.units = ctx->chain.unit_count;
    shape.ranks = shape.pipelines = shape.stages = ctx->world.ranks;
    shape.slices = heti_max(ctx->desc.limits.max_slices, 1);
    HETI_TRY(het_plan_new(&shape, &ctx->allocator, ctx->call, &plan, &ctx->error));
    for (i = 0; i < ctx->world.ranks; i++) {
        plan->stage[i].pipeline = plan->stage[i].rank = plan->first_stage[i] = i;
        plan->stage[i].unit_end = ctx->chain.unit_count;
        plan->share[i] = plan->state_share[i] = 1.0;
    }
    plan->first_stage[i] = i;
    for (i = 0; i < shape.slices; i++) plan->slice_share[i] = 1.0;
    ctx->share.plan = plan;
    return HET_OK;
}

/* Whether attention or rotations of a unit that is a program have not so many key/value heads. */
static int heti_other_heads(const het_described_unit *u, int64_t heads) {
    const het_program *p = &u->program;
    int other = 0;
    for (int i = 0; i < p->nodes; i++) {
        const het_node *n = &p->node[i];
        other |= n->kind == HET_NODE_ROTARY && u->unit.model->kv_heads != heads;
        other |= n->kind == HET_NODE_ATTENTION && p->value[n->x[1]].width != heads * u->unit.model->head_size;
    }
    return other;
}

/* Whether attention in some of these units, whose model may be its own, looks ahead. */
static int heti_is_bidirectional(const het_ctx *ctx, int64_t begin, int64_t end) {
    int is = ctx->desc.model.causal == HET_NO;
    for (int64_t u = begin; u < end; u++)
        for (int i = 0; i < ctx->chain.unit[u].program.nodes; i++)
            is |= ctx->chain.unit[u].program.node[i].kind == HET_NODE_ATTENTION &&
                ctx->chain.unit[u].unit.model->causal == HET_NO;
    return is;
}

/* Whether a team can share the units of a stage as it is to. */
static het_result heti_check_stage_team(het_ctx *ctx, const het_stage *stage) {
    const het_model_desc *model = &ctx->desc.model;
    int64_t count, heads = 0;
    const het_team_member *team = het_plan_team(ctx->share.plan, stage->rank, &count);
    const int several = count > 1 && team[count - 1].group > 0;
    for (int64_t u = stage->unit_begin; count > 1 && u < stage->unit_end; u++)
        if (!ctx->chain.unit[u].info.teams)
            return heti_fail(&ctx->error, HET_ERR_UNSUPPORTED, "%s: the team of rank %d shares unit %d (%s), %s",
                             ctx->call, stage->rank, u, ctx->chain.unit[u].unit.iface->name,
                             ctx->desc.streams == HET_BF16 ? "and het_desc.streams is bf16: teams move floats"
                                 : "which does not know teams");
    for (int64_t i = 0; i < ctx->chain.parameter_count && count > 1 && team->columns; i++) {
        const het_parameter_desc *p = &ctx->chain.parameter[i].desc;
        const int64_t pieces = p->divide % 3 ? (p->divide == 1 ? p->rows : p->columns) / heti_max(1, p->piece) : count;
        if (p->divide < 0)
            return heti_fail(&ctx->error, HET_ERR_UNSUPPORTED, "%s: the team of rank %d is by columns, and units "
                             "divide parameter %s in different ways", ctx->call, stage->rank, p->name);
        if (pieces < count)
            return heti_fail(&ctx->error, HET_ERR_UNSUPPORTED, "%s: the team of rank %d divides parameter %s in %d "
                             "pieces among %d members", ctx->call, stage->rank, p->name, pieces, count);
    }
    if (several && heti_is_bidirectional(ctx, stage->unit_begin, stage->unit_end))
        return heti_fail(&ctx->error, HET_ERR_UNSUPPORTED, "%s: the team of rank %d divides the rows of attention; a "
                         "bidirectional model's can be divided by heads only", ctx->call, stage->rank);
    if (several && ctx->share.plan->slices > 1)
        return heti_fail(&ctx->error, HET_ERR_UNSUPPORTED,
                         "%s: the team of rank %d divides the rows of attention, and micro-batches have %d slices; "
                         "with slices heads can be divided", ctx->call, stage->rank, ctx->share.plan->slices);
    for (int64_t i = 0; i < count && count > 1; i++) {
        heads += team[i].heads;
        if (i + 1 < count && team[i].group == team[i + 1].group) continue;
        if (heads != 0 && heads != model->kv_heads) /* 0: a member that is alone in its group has all */
            return heti_invalid(&ctx->error, ctx->call, "the team of rank %d: group %d has %d key/value heads, the "
                                "model has %d", stage->rank, team[i].group, heads, model->kv_heads);
        for (int64_t u = stage->unit_begin; heads != 0 && u < stage->unit_end; u++)
            if (heti_other_heads(&ctx->chain.unit[u], heads))
                return heti_fail(&ctx->error, HET_ERR_UNSUPPORTED, "%s: the team of rank %d divides %d key/value "
                                 "heads, unit %d (%s) has others", ctx->call, stage->rank, heads, u,
                                 ctx->chain.unit[u].unit.iface->name);
        heads = 0;
    }
    return HET_OK;
}

static het_result heti_take_plan(het_ctx *ctx) {
    const het_plan *plan = ctx->desc.layout.plan;
    if (!plan) return heti_plain_plan(ctx);
    HETI_TRY(het_plan_check(plan, ctx->call, &ctx->error));
    if (plan->units != ctx->chain.unit_count || plan->ranks != ctx->world.ranks)
        return heti_fail(&ctx->error, HET_ERR_INVALID, "the plan is for %d units on %d ranks; here are %d units and %d "
                         "ranks", plan->units, plan->ranks, ctx->chain.unit_count, ctx->world.ranks);
    HETI_TRY(het_plan_copy(plan, &ctx->allocator, ctx->call, &ctx->share.plan, &ctx->error));
    for (int64_t s = 0; s < plan->stages; s++) {
        if (ctx->desc.inference == HET_YES) ctx->share.plan->stage[s].keep = 0;
        HETI_TRY(heti_check_stage_team(ctx, &plan->stage[s]));
    }
    return HET_OK;
}

/* The cut of unit u. *backs: whether a unit between the cut before it and u has a backward pass. */
static het_cut heti_cut_at(const het_ctx *ctx, int64_t u, int *backs) {
    const het_unit_info *info = &ctx->chain.unit[u].info;
    const int last = u + 1 == ctx->chain.unit_count;
    for (int64_t p = 0; p < info->parameters; p++)
        *backs |= !ctx->chain.parameter[ctx->chain.unit[u].parameter[p]].frozen;
    if (!*backs && !last) return HET_CUT_NONE;
    if (info->is_loss) *backs = 0;
    return info->is_loss && !last ? HET_CUT_BEHIND : HET_CUT_NOWHERE;
}

/* The plan's cuts as the model has them; for inference, which has no backward pass, as they are. */
static het_result heti_take_cuts(het_ctx *ctx) {
    uint8_t *cut = ctx->share.plan->cut;
    int given = 0, backs = 0;
    for (int64_t u = 0; u < ctx->chain.unit_count; u++) given |= cut[u];
    for (int64_t u = 0; u < ctx->chain.unit_count && ctx->desc.inference != HET_YES; u++) {
        const het_cut own = heti_cut_at(ctx, u, &backs);
        if (given && cut[u] != own)
            return heti_invalid(&ctx->error, ctx->call, "unit %d (%s): the plan's cut is %i, the model's %i", u,
                                ctx->chain.unit[u].unit.iface->name, cut[u], own);
        cut[u] = HETI_CAST(uint8_t, own);
    }
    return HET_OK;
}

/* Several updates a step: their gradients are judged by no verdict, so that none can be clipped. */
static het_result heti_take_updates(het_ctx *ctx) {
    const het_plan *plan = ctx->share.plan;
    ctx->share.updates = ctx->desc.inference == HET_YES ? 1 : heti_updates(plan);
    if (ctx->share.updates == 1) return HET_OK;
    ctx->share.boxes = 1;
    if (plan->shard != HET_SHARD_STATE)
        return heti_fail(&ctx->error, HET_ERR_UNSUPPORTED, "%s: with %d updates a step only the optimizer's state can "
                         "be divided, not gradients or weights", ctx->call, ctx->share.updates);
    if (ctx->desc.optimizer.clip > 0.0f || ctx->desc.guard.spike > 0.0 || ctx->desc.guard.skip_bad_steps == HET_YES)
        return heti_fail(&ctx->error, HET_ERR_UNSUPPORTED, "%s: with %d updates a step nothing waits for the norm of "
                         "a whole gradient: clip must be negative, spike and skip_bad_steps off", ctx->call,
                         ctx->share.updates);
    return HET_OK;
}

/* What of the model is divided, and by whom. */
static het_result heti_take_shard(het_ctx *ctx) {
    het_plan *plan = ctx->share.plan;
    if (ctx->desc.layout.shard != HET_SHARD_DEFAULT) plan->shard = ctx->desc.layout.shard;
    if (plan->shard == HET_SHARD_DEFAULT) plan->shard = HET_SHARD_STATE;
    for (int64_t r = 0; r < plan->ranks; r++) {
        ctx->share.keepers += heti_keeps(plan, r);
        ctx->share.near |= plan->shard == HET_SHARD_WEIGHTS && plan->near[r] != plan->near[0];
    }
    for (int64_t r = 0; r < plan->members; r++) ctx->share.boxes |= plan->member[r].columns != 0;
    HETI_TRY(heti_take_updates(ctx));
    if (ctx->share.boxes && plan->shard == HET_SHARD_WEIGHTS)
        return heti_fail(&ctx->error, HET_ERR_UNSUPPORTED, "%s: a team by columns has its part of the weights at hand; "
                         "state and gradients can be divided beside it, not weights", ctx->call);
    if (ctx->desc.reduce == HET_REDUCE_EXACT) return HET_OK;
    if (plan->shard >= HET_SHARD_GRADIENTS || ctx->share.keepers > 0 || ctx->share.boxes)
        return heti_fail(&ctx->error, HET_ERR_UNSUPPORTED,
                         "%s: %s need reduce = exact: fast sums depend on the order in which they come", ctx->call,
                         ctx->share.keepers > 0 ? "keepers" : ctx->share.updates > 1 ? "several updates a step" :
                         ctx->share.boxes ? "teams by columns" : "sharded gradients and weights");
    return HET_OK;
}

/* Whether one of the units [begin, end) uses a block. */
static int heti_used_within(const het_ctx *ctx, int64_t b, int64_t begin, int64_t end) {
    const int64_t *use = ctx->chain.use + ctx->chain.block[b].first_use;
    for (int64_t i = 0; i < ctx->chain.block[b].uses; i++)
        if (use[i] >= begin && use[i] < end) return 1;
    return 0;
}

static int heti_stage_uses(const het_ctx *ctx, int64_t b, int64_t s) {
    return heti_used_within(ctx, b, ctx->share.plan->stage[s].unit_begin, ctx->share.plan->stage[s].unit_end);
}

/* The place nearest to `target` where a block may be cut: a multiple of 1,024 elements from a
   parameter's start (het_sum_squares_args), or that start if the optimizer wants whole matrices. */
static int64_t heti_cut_near(const het_ctx *ctx, int64_t block, int64_t target) {
    const int64_t end = ctx->chain.block[block].elements;
    int64_t best = 0;
    for (int64_t p = ctx->chain.block[block].parameter; p >= 0; p = ctx->chain.parameter[p].next) {
        const heti_parameter *parameter = &ctx->chain.parameter[p];
        int64_t inside = target - parameter->offset, cut;
        if (inside < 0 || (ctx->desc.optimizer.iface->whole_matrices && !ctx->chain.block[block].frozen)) inside = 0;
        inside = (inside + 512) / 1024 * 1024;
        cut = inside >= parameter->count ? end : parameter->offset + inside;
        if (heti_abs(cut - target) < heti_abs(best - target)) best = cut;
    }
    return heti_abs(end - target) < heti_abs(best - target) ? end : best;
}

/* What all holders of a block, or those of a near set, have shared out among them. */
typedef struct heti_division { double total, ranks; int64_t last, end; } heti_division;

/* What owners are built with. [ranks], where not said otherwise: */
typedef struct heti_building {
    int64_t *table;                      /* room for their tables */
    int64_t *set;                        /* the first rank of its near set */
    uint8_t *holds;                      /* 1: a holder of the present block */
    heti_division *division;             /* by the first rank of a set; [0]: of all holders */
    double *owed[2];                     /* what rounding gave it too little, of what all divide, or its set */
} heti_building;

/* Divides a block by state_share, evenly where all are 0: among its holders, into `cut`, or among
   those of each near set that have stages, into `held`. `owed` goes on to the next block. */
static void heti_divide_block(const het_ctx *ctx, int64_t b, const heti_building *with, int near) {
    const het_plan *plan = ctx->share.plan;
    const heti_owners *owners = &ctx->share.owners[b];
    const int64_t elements = ctx->chain.block[b].elements;
    HETI_CLEAR(with->division, near ? plan->ranks : 1);
    for (int64_t i = 0; i < owners->holders; i++) {
        const int64_t rank = owners->holder[i];
        heti_division *d = &with->division[near ? with->set[rank] : 0];
        if (near && heti_keeps(plan, rank)) continue;
        if (plan->state_share[rank] > 0.0 || !(d->total > 0.0)) d->last = i; /* the last one that gets anything */
        d->total += plan->state_share[rank];
        d->ranks += 1.0;
    }
    for (int64_t i = 0; i < owners->holders; i++) {
        const int64_t rank = owners->holder[i];
        heti_division *d = &with->division[near ? with->set[rank] : 0];
        int64_t *range = near ? owners->held + 2 * i : owners->cut + i;
        if (near && heti_keeps(plan, rank)) continue; /* it holds nothing */
        const double share = d->total > 0.0 ? plan->state_share[rank] / d->total : 1.0 / d->ranks,
                     wanted = HETI_CAST(double, elements) * share + with->owed[near][rank];
        range[0] = d->end;
        if (i == d->last) d->end = elements;
        else if (i < d->last && share > 0.0 && wanted > 0.0)
            d->end = heti_max(d->end, heti_cut_near(ctx, b, heti_min(d->end + HETI_CAST(int64_t, wanted), elements)));
        range[1] = d->end;
        with->owed[near][rank] = wanted - HETI_CAST(double, range[1] - range[0]);
    }
}

/* ---- what members of a team by columns use ---- */

/* Rows and columns of a parameter that a rank uses. */
static het_box heti_box_of(const het_ctx *ctx, int64_t rank, const het_parameter_desc *p) {
    int64_t count, member = 0, range[2];
    const het_team_member *team = het_plan_team(ctx->share.plan, rank, &count);
    het_box box = { 0, p->rows, 0, p->columns };
    if (count == 1 || !team->columns || p->divide < 1) return box; /* alone, also as a team of one */
    while (team[member].rank != rank) member++;
    if (p->divide == 3) {
        const int64_t rows = p->rows / p->grid[0], row = member / p->grid[2] % p->grid[0] * rows,
                      columns = p->columns / p->grid[1], column = member / p->grid[3] % p->grid[1] * columns;
        const het_box part = { row, row + rows, column, column + columns };
        return part;
    }
    heti_member_columns(team, count, member, p->by_heads, p->piece, p->divide == 1 ? p->rows : p->columns, range);
    if (p->divide == 1) { box.row_begin = range[0]; box.row_end = range[1]; }
    else { box.column_begin = range[0]; box.column_end = range[1]; }
    return box;
}

/* Whether a team by columns divides some parameter of a block. */
static int heti_is_divided(const het_ctx *ctx, int64_t b) {
    for (int64_t p = ctx->chain.block[b].parameter; p >= 0; p = ctx->chain.parameter[p].next)
        if (ctx->chain.parameter[p].desc.divide > 0) return 1;
    return 0;
}

/* Whether what a rank uses of a block is apart from what it owns: parts of matrices, versions. */
static int heti_is_boxed(const het_ctx *ctx, int64_t rank, int64_t b) {
    int64_t count = 1;
    const het_team_member *team = ctx->share.boxes ? het_plan_team(ctx->share.plan, rank, &count) : NULL;
    if (ctx->share.updates > 1) return !ctx->chain.block[b].frozen && !heti_keeps(ctx->share.plan, rank);
    return count > 1 && team->columns && heti_is_divided(ctx, b);
}

/* A weight that is kept as int8, its elements in a box: rows of whole blocks, `from` the first. */
static het_expand_args heti_expansion(const heti_parameter *p, const het_box *box, const void *from, float *y) {
    const int64_t columns = p->desc.columns;
    const int whole = box->column_end - box->column_begin == columns;
    het_expand_args a;
    a.rows = whole ? 1 : box->row_end - box->row_begin;
    a.width = whole ? (box->row_end - box->row_begin) * columns : box->column_end - box->column_begin;
    a.first = box->row_begin * columns + box->column_begin;
    a.step = columns;
    a.blocks = a.width + (whole || columns % HETRAIN_INT8_BLOCK == 0 ? a.first % HETRAIN_INT8_BLOCK
                                                                    : HETRAIN_INT8_BLOCK - 1);
    a.blocks = heti_ceil_div(a.blocks, HETRAIN_INT8_BLOCK);
    a.from = HETI_CAST(const het_int8_block *, from);
    a.y = y;
    return a;
}

/* Where a parameter's box begins among a rank's of its block, in floats; -1: how many all take. */
static int64_t heti_box_place(const het_ctx *ctx, int64_t rank, int64_t b, int64_t parameter) {
    int64_t sum = 0;
    for (int64_t p = ctx->chain.block[b].parameter; p >= 0 && p != parameter; p = ctx->chain.parameter[p].next) {
        const heti_parameter *at = &ctx->chain.parameter[p];
        const het_box box = heti_box_of(ctx, rank, &at->desc);
        const het_expand_args a = heti_expansion(at, &box, NULL, NULL);
        const int64_t width = at->type == HET_INT8 ? a.blocks * HETRAIN_INT8_BLOCK : a.width;
        sum += heti_ceil_div(heti_weight_floats(at->type, a.rows * width), 16) * 16; /* as block.elements */
    }
    return sum;
}

/* Elements of a block that follow each other in the block and in what a rank uses of it. */
typedef struct heti_box_run {
    int64_t first, count, place;         /* place: in floats */
    int32_t half;                        /* 1: they begin in the middle of that float, of bf16 */
    int32_t boxed;                       /* the rank uses a box of each parameter; now of this one: */
    int64_t parameter;
    het_box box;
    int64_t box_place;
} heti_box_run;

static heti_box_run heti_runs_from(int64_t first) {
    heti_box_run run = HETI_ZEROS;
    run.first = first;
    return run;
}

/* The next run of the present box before element `end`. */
static int heti_next_in_box(const heti_parameter *p, int64_t end, heti_box_run *run) {
    const het_box *box = &run->box;
    const int64_t width = box->column_end - box->column_begin, whole = width == p->desc.columns,
                  at = heti_max(run->first + run->count - p->offset, 0);
    int64_t row = at / p->desc.columns, column = at % p->desc.columns, stop;
    if (row < box->row_begin) row = box->row_begin, column = 0;
    if (column >= box->column_end) row++, column = 0;
    column = heti_max(column, box->column_begin);
    stop = p->offset + (whole ? box->row_end * p->desc.columns : row * p->desc.columns + box->column_end);
    if (row >= box->row_end || p->offset + row * p->desc.columns + column >= end) return 0;
    run->first = p->offset + row * p->desc.columns + column;
    run->count = heti_min(end, stop) - run->first;
    run->place = (row - box->row_begin) * width + column - box->column_begin;
    if (p->type == HET_INT8) {
        const het_expand_args a = heti_expansion(p, box, NULL, NULL);
        const int64_t line = a.rows > 1 ? row - box->row_begin : 0;
        run->place = (line * a.blocks + (run->first - p->offset) / HETRAIN_INT8_BLOCK -
                      (a.first + line * a.step) / HETRAIN_INT8_BLOCK) * HETRAIN_INT8_BLOCK;
    }
    run->half = p->type == HET_BF16 && run->place % 2 != 0;
    run->place = run->box_place + heti_weight_floats(p->type, run->place - run->half);
    return 1;
}

/* The next run of what a rank uses of a block behind the one before, before element `end`; all of
   it at once where it uses the block whole. */
static int heti_next_run(const het_ctx *ctx, int64_t rank, int64_t b, int64_t end, heti_box_run *run) {
    int64_t next = run->count == 0 ? ctx->chain.block[b].parameter : ctx->chain.parameter[run->parameter].next;
    if (run->count == 0) run->boxed = heti_is_boxed(ctx, rank, b);
    if (!run->boxed) {
        run->place = run->first += run->count;
        run->count = end - run->first;
        return run->count > 0;
    }
    if (run->count > 0 && heti_next_in_box(&ctx->chain.parameter[run->parameter], end, run)) return 1;
    for (; next >= 0; next = ctx->chain.parameter[next].next) {
        const heti_parameter *p = &ctx->chain.parameter[next];
        if (p->offset + p->count <= run->first + run->count) continue;
        if (p->offset >= end) return 0;
        run->parameter = next;
        run->box = heti_box_of(ctx, rank, &p->desc);
        run->box_place = heti_box_place(ctx, rank, b, next);
        if (heti_next_in_box(p, end, run)) return 1;
    }
    return 0;
}

/* Whether a rank reaches ranks [count] without the host: all are somewhere, not at its place. */
static int heti_reaches(const het_ctx *ctx, int64_t rank, const int64_t *other, int64_t count) {
    const uint64_t *place = ctx->world.place;
    for (int64_t i = 0; i < count; i++)
        if (place[rank] == 0 || place[other[i]] == 0 || place[other[i]] == place[rank]) return 0;
    return 1;
}

/* Whether each of several ranks reaches all others. */
static int heti_all_reach(const het_ctx *ctx, const int64_t *rank, int64_t count) {
    int64_t i = 1;
    while (i < count && heti_reaches(ctx, rank[i], rank, i)) i++;
    return count > 1 && i == count;
}

/* Whether what goes from stage to stage between those of two leaders takes a lane. */
static int heti_on_lane(const het_ctx *ctx, int64_t from, int64_t to) {
    int64_t rank[2 * HETRAIN_MAX_TEAM];
    return from != to && heti_all_reach(ctx, rank, heti_lane_members(ctx->share.plan, from, to, rank));
}

/* Whether ranks have only parts of a block's weights, which calls fetch, or of its gradient
   (HETI_FLOW_SUMS), whose terms calls send. */
static int heti_is_sharded(const het_ctx *ctx, heti_flow_kind kind, int64_t b) {
    const int weights = kind == HETI_FLOW_WEIGHTS;
    return ctx->share.plan->shard >= (weights ? HET_SHARD_WEIGHTS : HET_SHARD_GRADIENTS) &&
           (weights || !ctx->chain.block[b].frozen) && ctx->share.owners[b].holders > 1;
}

/* Whether a rank is of the cluster of ranks [count]: their devices reach each other without the
   host, or all are of one process, whose ranks are [process[0], process[1]). */
static int heti_is_of_cluster(const het_ctx *ctx, int64_t rank, const int64_t *other, int64_t count,
                              const int64_t *process) {
    if (ctx->world.place[other[0]] != 0) return heti_reaches(ctx, rank, other, count);
    return ctx->world.place[rank] == 0 && process[0] <= rank && rank < process[1];
}

/* Gives the ranks, ascending in by_rank for now, their clusters: each takes the first one that it
   is of, and its number instead of the rank, below 0 until all have one. Where all are alone, more
   than HETRAIN_DIRECT make as many clusters as each has ranks. */
static void heti_find_clusters(const het_ctx *ctx, int64_t b, heti_owners *owners) {
    const int64_t holders = owners->holders;
    int64_t *rank = owners->by_rank, taken = 0, i;
    int apart = heti_is_sharded(ctx, HETI_FLOW_WEIGHTS, b); /* they have unlike parts: each sends to each */
    const int spread = heti_process_of(ctx, rank[0]) != heti_process_of(ctx, rank[holders - 1]);
    for (i = 0; i < holders; i++) apart |= heti_keeps(ctx->share.plan, rank[i]) || heti_is_boxed(ctx, rank[i], b);
    for (int64_t next = 0; next < holders; next++) {
        const int64_t first = taken;
        if (rank[next] < 0) continue; /* has one */
        const int alone = apart || (!spread && ctx->world.place[rank[next]] == 0);
        const int64_t *process = &ctx->world.process_first[heti_process_of(ctx, rank[next])];
        owners->cluster[owners->clusters++] = first;
        for (i = next; i < holders && (i == next || !alone); i++) {
            if (rank[i] < 0 || (i > next && !heti_is_of_cluster(ctx, rank[i], owners->holder + first, taken - first,
                                                                process))) continue;
            owners->holder[taken] = rank[i];
            rank[i] = -1 - taken++;
        }
    }
    if (owners->clusters == holders && holders > HETRAIN_DIRECT && !apart) {
        while (owners->clusters > 1 && (owners->clusters - 1) * (owners->clusters - 1) >= holders) owners->clusters--;
        for (i = 0; i < owners->clusters; i++) owners->cluster[i] = i * holders / owners->clusters;
    }
    owners->cluster[owners->clusters] = holders;
    for (i = 0; i < holders; i++) rank[i] = -1 - rank[i];
}

/* A block before this one, and near it, that the same stages use, that is trained or not and
   divided or not as it is: it has the same holders, clusters and groups. b: there is none. */
static int64_t heti_find_alike(const het_ctx *ctx, int64_t b) {
    const int64_t stages = ctx->share.plan->stages;
    for (int64_t near = b - 1; near >= 0 && near >= b - 8; near--) {
        int64_t s = 0;
        if (ctx->chain.block[near].frozen != ctx->chain.block[b].frozen ||
            heti_is_divided(ctx, near) != heti_is_divided(ctx, b)) continue;
        while (s < stages && heti_stage_uses(ctx, b, s) == heti_stage_uses(ctx, near, s)) s++;
        if (s == stages) return near;
    }
    return b;
}

/* Who has a block that no earlier one is like. */
static void heti_find_holders(const het_ctx *ctx, int64_t b, heti_owners *owners, heti_building *with) {
    const het_plan *plan = ctx->share.plan;
    owners->by_rank = with->table; /* ranks, ascending, until they have their clusters */
    for (int64_t i = 0; i < plan->ranks; i++) with->holds[i] = heti_keeps(plan, i) && !ctx->chain.block[b].frozen;
    for (int64_t s = 0; s < plan->stages; s++)
        for (int64_t i = heti_stage_uses(ctx, b, s) ? heti_team_size(plan, plan->stage[s].rank) : 0; i > 0; i--)
            with->holds[heti_team_rank(plan, plan->stage[s].rank, i - 1)] = 1;
    for (int64_t i = 0; i < plan->ranks; i++)
        if (with->holds[i]) owners->by_rank[owners->holders++] = i;
    owners->holder = owners->by_rank + owners->holders;
    owners->cluster = owners->holder + owners->holders;
    owners->group = owners->cluster + owners->holders + 1;
    with->table = owners->group + owners->holders;
    heti_find_clusters(ctx, b, owners);
}

/* Holders of every block, and who owns which part. */
static void heti_build_holders(het_ctx *ctx, heti_building *with) {
    const het_plan *plan = ctx->share.plan;
    for (int64_t r = 0; r < plan->ranks && ctx->share.near; r++) {
        int64_t before = r - 1;
        while (before >= 0 && plan->near[before] != plan->near[r]) before--;
        with->set[r] = before >= 0 ? with->set[before] : r;
    }
    for (int64_t b = 0; b < ctx->chain.block_count; b++) {
        heti_owners *owners = &ctx->share.owners[b];
        const int64_t alike = heti_find_alike(ctx, b);
        owners->first_alike = b;
        if (alike < b) *owners = ctx->share.owners[alike];
        else heti_find_holders(ctx, b, owners, with);
        owners->cut = with->table;
        with->table += owners->holders + 1;
        heti_divide_block(ctx, b, with, 0);
        if (!ctx->share.near || !heti_is_sharded(ctx, HETI_FLOW_WEIGHTS, b)) continue;
        owners->held = with->table;
        with->table += 2 * owners->holders;
        heti_divide_block(ctx, b, with, 1);
    }
}

/* The group of these members, a new one where there is none yet. */
static int64_t heti_find_group(het_ctx *ctx, heti_group_kind kind, const int64_t *member, int64_t members) {
    const heti_communicator group = { kind, members, member };
    const int64_t g = heti_group_number(&ctx->share, &group);
    if (g == ctx->share.groups) ctx->share.group[ctx->share.groups++] = group;
    return g;
}

/* The groups of a plan, in the same order in all processes: clusters of blocks that are trained and
   teams whose devices reach each other, lanes between the stages of pipelines. */
static void heti_find_groups(het_ctx *ctx, heti_building *with) {
    const het_plan *plan = ctx->share.plan;
    const int trains = ctx->desc.inference != HET_YES;
    int64_t count;
    for (int64_t b = 0; b < ctx->chain.block_count; b++) {
        het_described_block *block = &ctx->chain.block[b];
        heti_owners *owners = &ctx->share.owners[b];
        for (int64_t c = 0; c < owners->clusters && owners->first_alike == b; c++) {
            const int64_t *member = owners->holder + owners->cluster[c],
                          members = owners->cluster[c + 1] - owners->cluster[c];
            owners->group[c] = members > 1 && trains && !block->frozen && heti_reaches(ctx, member[0], member + 1, 1)
                                   ? heti_find_group(ctx, HETI_GROUP_CLUSTER, member, members) : -1;
        }
    }
    for (int64_t s = 0; s + 1 < plan->stages; s++) {
        const het_stage *stage = &plan->stage[s];
        const int64_t leader[2] = { stage->rank, stage[1].rank };
        if (stage->pipeline != stage[1].pipeline || !heti_on_lane(ctx, leader[0], leader[1])) continue;
        for (int back = 0; back <= trains; back++, with->table += count) {
            count = heti_lane_members(plan, leader[back], leader[1 - back], with->table);
            (void)heti_find_group(ctx, HETI_GROUP_LANE, with->table, count);
        }
    }
    for (const het_team_member *team = plan->member; team < plan->member + plan->members; team += count) {
        (void)het_plan_team(plan, team->leader, &count);
        for (int64_t i = 0; i < count; i++) with->table[i] = team[i].rank;
        if (heti_all_reach(ctx, with->table, count)) (void)heti_find_group(ctx, HETI_GROUP_TEAM, with->table, count);
        with->table += count;
    }
}

/* Whether a rank has something of the model. */
static int heti_works(const het_ctx *ctx, int64_t rank) {
    return heti_keeps(ctx->share.plan, rank) || heti_has_stages(ctx->share.plan, rank);
}

/* A rank's place in the tree; NULL: it has none. */
static const het_tree_place *heti_tree_place_of(const het_ctx *ctx, int64_t rank) {
    for (int64_t k = 0; k < ctx->share.tree.working + ctx->share.tree.watching; k++)
        if (ctx->share.tree.place[k].rank == rank) return &ctx->share.tree.place[k];
    return NULL;
}

/* The first rank of a process that works; -1: none does. */
static int64_t heti_first_working(const het_ctx *ctx, int64_t process) {
    for (int64_t r = ctx->world.process_first[process]; r < ctx->world.process_first[process + 1]; r++)
        if (heti_works(ctx, r)) return r;
    return -1;
}

/* How many working ranks hear from a rank. */
static int64_t heti_below(const het_ctx *ctx, int64_t rank) {
    int64_t count = 0;
    for (int64_t k = 0; k < ctx->share.tree.working; k++) count += ctx->share.tree.place[k].from == rank;
    return count;
}

/* The tree of the plan as far as this process needs it: the first of each process, the others of
   this one, the processes without work. Links between processes are not emulated, and nothing tells
   all processes alike what they take. */
static void heti_build_tree(het_ctx *ctx) {
    heti_tree *t = &ctx->share.tree;
    double seconds[HETRAIN_TREE_MOST * HETRAIN_TREE_MOST];
    int64_t r;
    const int64_t own = heti_first_working(ctx, ctx->world.process);
    for (int64_t p = 0; p < ctx->world.processes; p++)
        if ((r = heti_first_working(ctx, p)) >= 0) t->place[t->working++].rank = r;
    het_tree_grow(t->place, t->working, NULL);
    if (own >= 0) {
        het_tree_place *place = t->place + t->working;
        int64_t count = 0, known;
        for (r = own; r < ctx->world.first_rank + ctx->world.local_count; r++)
            if (heti_works(ctx, r)) place[count++].rank = r;
        known = count <= HETRAIN_TREE_MOST ? count : 0;
        for (int64_t i = 0; i < known * known; i++) { /* of a word there and one back (heti_link_time) */
            const het_link *l = heti_link_between(ctx, place[i / known].rank, place[i % known].rank);
            seconds[i] = l ? 2.0 * (1e-6 + l->latency) : 2e-6;
        }
        het_tree_grow(place, count, known > 0 ? seconds : NULL);
        memmove(place, place + 1, HETI_CAST(size_t, count - 1) * sizeof *place); /* the first one has its place */
        t->working += count - 1;
    }
    for (int64_t p = 0; p < ctx->world.processes; p++)
        if (heti_first_working(ctx, p) < 0) t->place[t->working + t->watching++].rank = ctx->world.process_first[p];
    het_tree_grow(t->place + t->working, t->watching, NULL);
    t->place[t->working].from = t->place[0].rank;
    while (!heti_tree_place_of(ctx, ctx->world.first_rank + t->speaker)) t->speaker++;
}

/* Of a micro-batch in heti_share.cut. */
static int64_t heti_borders(const het_plan *plan) { return plan->slices + 1 + plan->slices * plan->members; }

/* Tables whose sizes the plan decides. */
static void heti_layout_share(het_ctx *ctx, heti_building *with) {
    heti_share *share = &ctx->share;
    const het_plan *plan = share->plan;
    /* tables: of teams, of all blocks and beside that of those that differ, of lanes */
    int64_t tables = plan->members, different = 0, places = 0;
    for (int64_t b = 0; b < ctx->chain.block_count; b++) {
        int64_t holders = share->keepers;
        const int differs = heti_find_alike(ctx, b) == b;
        for (int64_t s = 0; s < plan->stages; s++)
            holders += heti_stage_uses(ctx, b, s) ? heti_team_size(plan, plan->stage[s].rank) : 0;
        tables += (share->near ? 3 : 1) * holders + 1 + differs * (4 * holders + 1);
        different += differs * holders;
    }
    for (int64_t i = 0; i < ctx->world.ranks; i++) places += ctx->world.place[i] != 0;
    for (int64_t s = 0; s < plan->stages && places > 1; s++) tables += 4 * heti_team_size(plan, plan->stage[s].rank);
    share->owners = HETI_TAKE(&share->arena, heti_owners, ctx->chain.block_count);
    with->table = HETI_TAKE(&share->arena, int64_t, tables);
    share->group = HETI_TAKE(&share->arena, heti_communicator,
                             places > 1 ? different / 2 + 2 * plan->stages + plan->members / 2 : 0);
    for (int i = 0; i < 2; i++) with->owed[i] = HETI_TAKE(&share->arena, double, plan->ranks);
    with->set = HETI_TAKE(&share->arena, int64_t, share->near ? plan->ranks : 0);
    with->holds = HETI_TAKE(&share->arena, uint8_t, plan->ranks);
    with->division = HETI_TAKE(&share->arena, heti_division, share->near ? plan->ranks : 1);
    share->tree.place = HETI_TAKE(&share->arena, het_tree_place, ctx->world.processes + ctx->world.local_count + 1);
    share->update = HETI_TAKE(&share->arena, heti_counted_update,
                              share->updates > 1 ? ctx->chain.block_count * share->updates : 0);
    share->tokens = HETI_TAKE(&share->arena, int64_t, plan->pipelines);
    share->limiter = HETI_TAKE(&share->arena, int64_t, plan->pipelines);
    share->first_batch = HETI_TAKE(&share->arena, int64_t, plan->pipelines);
    share->batch_count = HETI_TAKE(&share->arena, int64_t, plan->pipelines);
    share->part = HETI_TAKE(&share->arena, heti_part, ctx->world.local_count);
    if (ctx->purpose == HETI_TO_ESTIMATE) /* heti_part_of */
        share->arena.asked = share->arena.used - HETI_CAST(size_t, ctx->world.local_count - 1) * sizeof *share->part;
    share->cut = HETI_TAKE(&share->arena, heti_border, ctx->desc.limits.max_micro_batches * heti_borders(plan));
    share->granule_start = HETI_TAKE(&share->arena, int64_t, ctx->desc.limits.max_tokens + 1);
}

/* Pipelines take micro-batches that all their ranks take. */
static void heti_find_limits(het_ctx *ctx) {
    const het_plan *plan = ctx->share.plan;
    for (int64_t p = 0; p < plan->pipelines; p++) ctx->share.tokens[p] = ctx->desc.limits.max_tokens;
    for (int64_t rank = 0; rank < ctx->world.ranks; rank++) {
        const int64_t limit = ctx->world.tokens[rank], leader = limit > 0 ? heti_leader(plan, rank) : -1;
        for (int64_t s = 0; s < plan->stages && limit > 0; s++) {
            const int64_t p = plan->stage[s].pipeline;
            if (plan->stage[s].rank != leader || limit >= ctx->share.tokens[p]) continue;
            ctx->share.tokens[p] = limit;
            ctx->share.limiter[p] = rank;
        }
    }
}

/* What a share decides of a local rank; NULL: nothing yet, or an estimate is for another one. */
static heti_part *heti_part_of(const het_ctx *ctx, const heti_share *share, int64_t local) {
    if (!share->part || ctx->purpose != HETI_TO_ESTIMATE) return share->part ? &share->part[local] : NULL;
    return ctx->estimated == local ? share->part : NULL;
}

static het_result heti_build_owners(het_ctx *ctx) {
    heti_building with;
    HETI_TAKE_ALL(&ctx->share.arena, &ctx->allocator, ctx->call, &ctx->error, heti_layout_share(ctx, &with));
    for (int64_t i = 0; i < ctx->world.local_count; i++) ctx->rank[i].part = heti_part_of(ctx, &ctx->share, i);
    heti_build_holders(ctx, &with);
    heti_build_tree(ctx);
    heti_find_groups(ctx, &with);
    heti_find_limits(ctx);
    return HET_OK;
}

/* ---- the schedule ---- */

/* Lists with every B as het_desc.layout.backward says: whole, as I and W next to each other, or
   with all W at the end: of several updates before what may use, or join, a later one. */
static het_result heti_copy_schedule(het_ctx *ctx, const het_schedule *from, het_schedule **to) {
    const int fused = ctx->desc.layout.backward == HET_BACKWARD_FUSED,
              deferred = ctx->desc.layout.backward == HET_BACKWARD_DEFERRED;
    het_action *action;
    int64_t n = 0;
    HETI_TRY(heti_schedule_like(from, 2 * from->start[from->ranks], &ctx->allocator, ctx->call, to, &ctx->error));
    action = (*to)->action;
    for (int64_t r = 0; r < from->ranks; r++) {
        const int64_t end = from->start[r + 1];
        int64_t held = from->start[r]; /* W from here on are still to come, of update `update` and later ones */
        int32_t update = INT32_MAX;
        for (int64_t i = held; i < end; i++) {
            const int splits = !fused && from->action[i].kind == HET_ACTION_B;
            action[n] = from->action[i];
            if (splits) action[n].kind = HET_ACTION_I;
            if (splits && action[n].version < update) update = action[n].version;
            n++;
            const het_action *next = &from->action[i + 1]; /* alone, or the first of a pair, which stays one */
            if (deferred && i + 1 < end && next->version <= update &&
                (!next->overlap || i + 2 >= end || next[1].version <= update)) continue;
            for (; held <= i; held++)
                if (!fused && from->action[held].kind == HET_ACTION_B) {
                    action[n] = from->action[held];
                    action[n++].kind = HET_ACTION_W;
                }
            update = INT32_MAX;
        }
        (*to)->start[r + 1] = n;
    }
    return HET_OK;
}

/* The lists of all ranks, in an estimate that of its rank, for the most micro-batches; a step with
   fewer leaves out the actions of those that are not there. */
static het_result heti_take_schedule(het_ctx *ctx) {
    const het_plan *plan = ctx->share.plan;
    const int64_t whose = ctx->estimated < 0 ? HETI_CAST(int64_t, HETI_LISTS_OF_ALL)
                                             : heti_leader(plan, ctx->world.first_rank + ctx->estimated);
    const het_blocks blocks = { ctx->chain.block_count, ctx->chain.use_start, ctx->chain.use };
    const het_rule plain = { ctx->call, NULL, NULL, heti_plain_choose };
    const het_schedule *from = ctx->desc.layout.schedule;
    het_schedule *made = NULL, *compute = NULL;
    het_result result;
    int64_t sum = 0;
    het_plan_micro_batches(plan, ctx->desc.limits.max_micro_batches, ctx->share.batch_count);
    if (from && from->complete) result = heti_invalid(&ctx->error, ctx->call, "the schedule is complete already");
    else if (from != NULL) result = het_schedule_check(plan, NULL, from, NULL, &ctx->error);
    else if (plan->make != NULL) {
        result = plan->make(plan, ctx->share.batch_count, &ctx->allocator, &made, &ctx->error);
        if (result > HET_OK)
            result = heti_fail(&ctx->error, HET_ERR_CALLBACK, "%s: het_plan.make failed with result %i", ctx->call,
                               HETI_CAST(int, result));
        if (result == HET_OK) result = heti_schedule_arguments(plan, made, made, ctx->call, &ctx->error);
    }
    else if (plan->schedule[0] != 0)
        result = heti_invalid(&ctx->error, ctx->call, "het_plan.make is NULL, nothing makes schedule '%s'",
                              plan->schedule);
    else result = het_schedule_play(plan, ctx->share.batch_count, &plain, &ctx->allocator, &made, &ctx->error);
    if (from == NULL) from = made;
    for (int64_t p = 0; result == HET_OK && p < from->pipelines; p++) sum += from->micro_batches[p];
    if (result == HET_OK && (from->pipelines != plan->pipelines || sum != ctx->desc.limits.max_micro_batches))
        result = heti_invalid(&ctx->error, ctx->call, "the schedule has %d pipelines and %d micro-batches; the plan "
                              "has %d, max_micro_batches is %d", from->pipelines, sum, plan->pipelines,
                              ctx->desc.limits.max_micro_batches);
    if (result == HET_OK) result = heti_copy_schedule(ctx, from, &compute);
    if (result == HET_OK) result = het_schedule_store(plan, &compute, &ctx->error);
    if (result == HET_OK)
        result = heti_complete(plan, &blocks, compute, whose, &ctx->allocator, &ctx->share.schedule,
                               &ctx->share.schedule_bytes, &ctx->error);
    if (result == HET_OK && whose == HETI_LISTS_OF_ALL)
        result = het_schedule_check(plan, &blocks, ctx->share.schedule, NULL, &ctx->error);
    het_schedule_free(made);
    het_schedule_free(compute);
    return result;
}

/* ---- a rank's stages, and what is in flight at once ---- */

/* Whether the rank has programs of its own: a team divides heads, and devices of several kinds may
   differ in what they take as bf16. */
static int heti_has_programs(const heti_rank *r) {
    return r->part->team.members > 1 || (r->ctx->desc.dtype == HET_BF16 && r->ctx->world.local_count > 1);
}

/* The rank's stages from the plan, in its order; only counted where there is no room for them. */
static void heti_find_stages(heti_rank *r) {
    heti_part *part = r->part;
    const het_plan *plan = r->ctx->share.plan;
    const int64_t leader = heti_leader(plan, r->rank);
    part->stage_count = part->placed_count = part->numbers = 0;
    for (int64_t i = 0; i < 2 * plan->stages; i++) {
        const int64_t s = i / 2, lean = i % 2;
        const het_stage *from = &plan->stage[s];
        heti_stage none, *to = part->stage ? &part->stage[part->stage_count] : &none;
        if (from->rank != leader || lean > heti_is_mixed(from)) continue;
        to->unit = part->placed ? part->placed + part->placed_count : NULL;
        part->stage_count++;
        part->placed_count += from->unit_end - from->unit_begin;
        part->numbers += !lean;
        to->planned = s;
        to->number = part->numbers - 1;
        to->lean = HETI_CAST(int32_t, lean);
        to->unit_begin = from->unit_begin;
        to->unit_end = from->unit_end;
        to->fused = 1;
        /* not where a slice leaves the device before later ones have come, ends with its F, or
           slots are of two kinds */
        to->gathers = part->gathers && from->store == 0 && !heti_is_mixed(from) && het_plan_backward(plan, s);
    }
}

/* What het_plan_rows says of a rank; of rank -1, which is in no team, how much of a micro-batch the
   largest slice can hold. */
static het_team_limits heti_rank_rows(const het_ctx *ctx, int64_t rank, int64_t tokens) {
    het_team_limits limits;
    het_plan_rows(ctx->share.plan, rank, tokens, ctx->desc.limits.max_sequences, heti_longest_granule(&ctx->desc),
                  &limits);
    return limits;
}

static int64_t heti_slice_rows(const het_ctx *ctx, int64_t most) { return heti_rank_rows(ctx, -1, most).rows; }

/* Whether a team's leader shows its hook the rows of all members. */
static int heti_shows_whole(const heti_rank *r) {
    return r->ctx->desc.host.hook && r->ctx->desc.host.hook_whole == HET_YES && r->part->team.members > 1;
}

static void heti_layout_stages(heti_rank *r) {
    heti_part *part = r->part;
    part->stage = HETI_TAKE(&part->stages, heti_stage, part->stage_count);
    part->placed = HETI_TAKE(&part->stages, heti_placed, part->placed_count);
    part->program = HETI_TAKE(&part->stages, het_program, heti_has_programs(r) ? part->placed_count : 0);
    part->end = HETI_TAKE(&part->stages, heti_endpoint, part->ends + 1);
}

/* Units of the rank's stages, described with its device, and the most bytes of an exchange. */
static het_result heti_place_units(heti_rank *r) {
    heti_part *part = r->part;
    het_ctx *ctx = r->ctx;
    const het_layout *layout = &ctx->desc.layout;
    for (int64_t i = 0; i < part->actions; i++)
        if (part->action[i].kind == HET_ACTION_I) heti_stage_of(r, &part->action[i])->fused = 0;
    for (int64_t s = 0; s < part->stage_count; s++) {
        heti_stage *stage = &part->stage[s];
        const het_stage *planned = &ctx->share.plan->stage[stage->planned];
        const int again = planned->recompute != HET_RECOMPUTE_NONE && (stage->lean || !heti_is_mixed(planned));
        const int64_t some = planned->recompute_units, last = some > 0 ? stage->unit_begin + some : stage->unit_end;
        stage->whole = ctx->desc.inference != HET_YES && again && planned->recompute == HET_RECOMPUTE_STAGE;
        stage->apart = stage->whole && stage->fused;
        for (int64_t u = stage->unit_begin; u < stage->unit_end; u++) {
            heti_placed *unit = &stage->unit[u - stage->unit_begin];
            /* all ranks', and already there, where it is not the rank's own */
            het_program *program = heti_has_programs(r) ? &part->program[unit - part->placed]
                                                        : &ctx->chain.unit[u].program;
            HETI_TRY(heti_describe(ctx, u, r, program, &unit->info));
            unit->recompute = stage->whole || (ctx->desc.inference != HET_YES && !unit->info.is_loss &&
                                               (layout->recompute_unit ? layout->recompute_unit[u] != 0
                                                : (again && u < last) || layout->recompute == HET_YES));
            part->exchange_bytes = heti_max_size(part->exchange_bytes, unit->info.exchange);
            for (int64_t i = 0; i < HETRAIN_MAX_STREAMS && heti_shows_whole(r) && !r->device.iface->host_memory; i++) {
                const int64_t out = i < unit->info.out_streams ? unit->info.out_width[i] : 0,
                              in = i < unit->info.in_streams ? unit->info.in_width[i] : 0;
                part->exchange_bytes = heti_max_size(part->exchange_bytes,
                    HETI_CAST(size_t, heti_slice_rows(ctx, part->tokens) * heti_max(out, in)) * sizeof(float));
            }
        }
    }
    return HET_OK;
}

/* Whether the device can go on with the chains of a team by columns. */
static het_result heti_check_chains(heti_rank *r) {
    het_linear_args a = HETI_ZEROS;
    a.parts = a.continues = 1;
    if (!r->part->limits.plan || (heti_supports(&r->device, HETI_OP(LINEAR_FORWARD, &a)) &&
                                  heti_supports(&r->device, HETI_OP(LINEAR_BACKWARD_INPUT, &a))))
        return HET_OK;
    return heti_fail(&r->ctx->error, HET_ERR_UNSUPPORTED, "%s: rank %d is in a team by columns, and its device %s "
                     "cannot go on with a product that another one began", r->ctx->call, r->rank,
                     r->device.iface->name);
}

static het_result heti_team_move(const het_unit_call *c, float *from, const het_box *have, int64_t from_width,
                                 float *to, const het_box *want, int64_t to_width);

/* The rank's place in its team, and how many rows of a micro-batch and a slice it can have; a rank
   without stages, which has none, those of het_limits. */
static void heti_find_team(heti_rank *r) {
    heti_part *part = r->part;
    het_team *team = &part->team;
    const het_plan *plan = r->ctx->share.plan;
    team->plan = het_plan_team(plan, r->rank, &team->members);
    part->tokens = 0;
    for (int64_t s = 0; s < plan->stages; s++)
        if (plan->stage[s].rank == (team->plan ? team->plan->leader : r->rank))
            part->tokens = heti_max(part->tokens, r->ctx->share.tokens[plan->stage[s].pipeline]);
    if (part->tokens == 0) part->tokens = r->ctx->desc.limits.max_tokens;
    part->limits = heti_rank_rows(r->ctx, r->rank, part->tokens);
    team->member = part->limits.member;
    team->view = &part->team_view;
    team->move = heti_team_move;
    team->self = r;
    for (int64_t i = 0; i < team->members && team->plan; i++)
        part->limits.node[i] = heti_process_of(r->ctx, team->plan[i].rank);
}

/* Bytes of `rows` rows of the streams into unit `unit`, out of the one before. */
static size_t heti_stream_bytes(const het_ctx *ctx, int64_t unit, int64_t rows) {
    const het_unit_info *info = &ctx->chain.unit[unit - 1].info;
    int64_t floats = 0;
    for (int64_t s = 0; s < info->out_streams; s++) floats += heti_stream_floats(info, info->out_width[s]);
    return HETI_CAST(size_t, rows) * HETI_CAST(size_t, floats) * sizeof(float);
}

/* What a stage of the rank and its neighbour exchange: the most messages at once, and bytes of the
   largest one's rows, through the host or on a lane. */
static void heti_count_messages(heti_rank *r) {
    heti_part *part = r->part;
    const het_plan *plan = r->ctx->share.plan;
    const int64_t leader = heti_leader(plan, r->rank);
    part->crossings = 1;
    for (int64_t s = 0; s + 1 < plan->stages; s++) {
        const int64_t from = plan->stage[s].rank, to = plan->stage[s + 1].rank;
        size_t *most = heti_on_lane(r->ctx, from, to) ? &part->lane_bytes : &part->message_bytes;
        if (plan->stage[s].pipeline != plan->stage[s + 1].pipeline || (from != leader && to != leader)) continue;
        *most = heti_max_size(*most, heti_stream_bytes(r->ctx, plan->stage[s].unit_end, part->limits.rows));
        part->crossings = heti_max(part->crossings, heti_team_size(plan, from == leader ? to : from));
    }
}

/* Place of a rank among a block's holders; -1: not one. */
static int64_t heti_holder_of(const heti_owners *owners, int64_t rank) {
    int64_t low = 0, high = owners->holders;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (owners->holder[owners->by_rank[middle]] < rank) low = middle + 1;
        else high = middle;
    }
    return low < owners->holders && owners->holder[owners->by_rank[low]] == rank ? owners->by_rank[low] : -1;
}

/* The elements of a block whose weights holder i holds between steps. */
static heti_span heti_held(const het_ctx *ctx, int64_t b, int64_t i) {
    const heti_owners *o = &ctx->share.owners[b];
    const int64_t *ends = o->held ? o->held + 2 * i : o->cut + i, rank = o->holder[i];
    const heti_span all = { 0, ctx->chain.block[b].elements }, part = { ends[0], ends[1] };
    return o->held || heti_is_sharded(ctx, HETI_FLOW_WEIGHTS, b) || heti_keeps(ctx->share.plan, rank) ||
           heti_is_boxed(ctx, rank, b) ? part : all;
}

/* The next block behind number `after` (-1: the first) that a unit uses and whose calls have flows
   of a kind; -1: there is none. */
static int64_t heti_next_flowing(const het_ctx *ctx, heti_flow_kind kind, int64_t unit, int64_t after) {
    int64_t next = -1;
    for (int64_t i = 0; i < ctx->chain.unit[unit].info.parameters; i++) {
        const int64_t b = ctx->chain.parameter[ctx->chain.unit[unit].parameter[i]].block;
        if (b > after && (next < 0 || b < next) && heti_is_sharded(ctx, kind, b)) next = b;
    }
    return next;
}

/* Where such a block of a unit begins in a buffer of them all; b = -1: how large that is. */
static int64_t heti_flow_place(const het_ctx *ctx, heti_flow_kind kind, int64_t unit, int64_t b) {
    int64_t sum = 0;
    for (int64_t other = heti_next_flowing(ctx, kind, unit, -1); other >= 0 && other != b;
         other = heti_next_flowing(ctx, kind, unit, other))
        sum += kind == HETI_FLOW_WEIGHTS ? ctx->chain.block[other].weight_floats : 2 * ctx->chain.block[other].elements;
    return sum;
}

/* Whether a call makes floats of a parameter's weight. */
static int heti_expands(const heti_rank *r, const heti_parameter *p) {
    return p->type == HET_INT8 && !(p->desc.int8 && r->takes_int8 && !heti_is_boxed(r->ctx, r->rank, p->block));
}

/* Where the weight of a unit's parameter number i begins among those that a call expands, in
   floats; with i = -1, how many they are together. */
static int64_t heti_expanded_place(const heti_rank *r, int64_t unit, int64_t i) {
    const het_described_unit *u = &r->ctx->chain.unit[unit];
    int64_t sum = 0;
    for (int64_t k = 0; k < u->info.parameters && k != i; k++) {
        const heti_parameter *p = &r->ctx->chain.parameter[u->parameter[k]];
        const het_box box = heti_box_of(r->ctx, r->rank, &p->desc);
        if (heti_expands(r, p))
            sum += heti_ceil_div((box.row_end - box.row_begin) * (box.column_end - box.column_begin), 16) * 16;
    }
    return sum;
}

/* Where an element of a block, at which it may be cut, lies among its weights: floats. */
static int64_t heti_weight_place(const het_ctx *ctx, int64_t b, int64_t element) {
    const heti_parameter *p = &ctx->chain.parameter[ctx->chain.block[b].parameter];
    if (element == ctx->chain.block[b].elements) return ctx->chain.block[b].weight_floats;
    while (p->next >= 0 && ctx->chain.parameter[p->next].offset <= element) p = &ctx->chain.parameter[p->next];
    return p->weight_offset + heti_weight_floats(p->type, element - p->offset);
}

/* The cluster that a holder is in. */
static int64_t heti_cluster_of(const heti_owners *o, int64_t holder) {
    return heti_last_start(o->cluster, 0, o->clusters, holder);
}

/* Through which holder of its own cluster goes what a holder has for another. Sums go to it and
   from there to their owner, new weights from their owner to it and from there to the others. */
static int64_t heti_via(const heti_owners *o, int64_t holder, int64_t other) {
    const int64_t c = heti_cluster_of(o, holder), d = heti_cluster_of(o, other), *own = o->cluster + c,
                  *far = o->cluster + d;
    return *own + HETRAIN_COLLECTOR(own[1] - *own, c, other - *far, far[1] - *far, d);
}

/* Elements of a block that a holder has to do with as a collector of its cluster: of those that the
   holders of cluster `route` own what it collects (heti_via), in its own cluster what it owns. */
static void heti_collected(const heti_owners *o, int64_t holder, int64_t route, int64_t *first, int64_t *end) {
    const int64_t *own = o->cluster + heti_cluster_of(o, holder), *of = o->cluster + route,
                  size = own[1] - *own, owners = of[1] - *of, number = holder - *own,
                  up = size - 1 - (o->clusters * size + (of - own)) % size; /* quotients are rounded up */
    *first = o->cut[*of + (number * owners + up) / size];
    *end = o->cut[*of + ((number + 1) * owners + up) / size];
}

/* Of these, sums that come from a holder, or new weights that go to it, but by no group. */
static void heti_route(const heti_owners *o, int64_t from, int64_t to, int64_t route, int64_t *first, int64_t *end) {
    const int64_t own = heti_cluster_of(o, to), far = heti_cluster_of(o, from);
    const int passes = from == to ? route == own : own == far ? o->group[own] < 0 :
                       route == own && heti_via(o, from, to) == from;
    *first = *end = 0;
    if (passes) heti_collected(o, to, route, first, end);
}

/* Whether something of a block moves at its REDUCE and GATHER: several ranks hold it, or one has
   boxes of it beside what it owns. */
static int heti_is_shared(const het_ctx *ctx, int64_t b) {
    const heti_owners *owners = &ctx->share.owners[b];
    return !ctx->chain.block[b].frozen && (owners->holders > 1 || heti_is_boxed(ctx, owners->holder[0], b));
}

/* Whether something of a block, the first of those alike, flows between two ranks. */
static int heti_share_flows(const het_ctx *ctx, int64_t b, int64_t rank, int64_t other) {
    const heti_owners *o = &ctx->share.owners[b];
    const int64_t i = o->first_alike == b ? heti_holder_of(o, rank) : -1, k = i < 0 ? -1 : heti_holder_of(o, other);
    if (k < 0 || i == k) return 0;
    if (heti_is_sharded(ctx, HETI_FLOW_SUMS, b) || heti_is_sharded(ctx, HETI_FLOW_WEIGHTS, b)) return 1;
    const int64_t c = heti_cluster_of(o, i);
    if (!heti_is_shared(ctx, b)) return 0;
    if (c == heti_cluster_of(o, k)) return o->group[c] < 0;
    return heti_via(o, i, k) == i || heti_via(o, k, i) == k;
}

/* The flows with ranks that share a block's with this one, written to `flow` unless it is NULL. */
static int64_t heti_find_flows(const heti_rank *r, heti_flow *flow) {
    int64_t count = 0, b;
    for (int64_t peer = 0; peer < r->ctx->world.ranks; peer++) {
        for (b = 0; b < r->ctx->chain.block_count && !heti_share_flows(r->ctx, b, r->rank, peer); b++) {}
        for (int32_t i = 0; i < 2 * HETI_FLOWS && b < r->ctx->chain.block_count; i++, count++) {
            if (!flow) continue;
            flow[count].kind = HETI_CAST(heti_flow_kind, i / 2);
            flow[count].receives = i % 2;
            flow[count].peer = peer;
        }
    }
    return count;
}

/* Where the rank has what it uses of a block: version number `place` of its boxes. */
static float *heti_boxes_at(const heti_rank *r, int64_t b, int64_t place) {
    const int64_t size = place > 0 ? heti_box_place(r->ctx, r->rank, b, -1) : 0;
    return r->part->weights + r->part->box_at[b] + place * size;
}

/* The one that came, or comes, as number `gathered`. */
static float *heti_boxes(const heti_rank *r, int64_t b, int64_t gathered) {
    return heti_boxes_at(r, b, gathered % r->part->versions);
}

/* Which place has what a call uses as a version, `versions`: none, it is predicted. Outside of
   steps of several updates there is only version 0, the newest. */
static int64_t heti_version_place(const heti_rank *r, int64_t b, int64_t version) {
    const heti_part *part = r->part;
    int64_t place = 0;
    if (r->ctx->task.job != HETI_JOB_STEP) version = 0;
    while (place < part->versions && part->version[b * part->versions + place] != version) place++;
    return place;
}

/* Whether holder i of a block owns or, of weights, holds or uses some of elements [low, high). */
static int heti_has_some(const het_ctx *ctx, int64_t b, int64_t i, int weights, int64_t low, int64_t high) {
    const heti_owners *owners = &ctx->share.owners[b];
    const heti_span held = heti_held(ctx, b, i);
    heti_box_run run = heti_runs_from(low);
    if (heti_max(owners->cut[i], low) < heti_min(owners->cut[i + 1], high)) return 1;
    return weights && (heti_max(held.first, low) < heti_min(held.end, high) ||
                       (heti_is_boxed(ctx, owners->holder[i], b) &&
                        heti_next_run(ctx, owners->holder[i], b, high, &run)));
}

/* Of a weight's elements [first, first + count) those that the rank has. */
static het_result heti_write_weight(heti_rank *r, const heti_parameter *p, int64_t first, int64_t count,
                                    const float *from) {
    const heti_owners *owners = &r->ctx->share.owners[p->block];
    const int64_t i = heti_holder_of(owners, r->rank);
    const heti_span held = heti_held(r->ctx, p->block, i);
    int64_t f = first, n = count;
    heti_box_run run = heti_runs_from(p->offset + first);
    r->part->fresh[p->block] = 0;
    if (heti_clip(p, held.first, held.end, &f, &n))
        HETI_TRY(heti_move_weight(r, p->type, heti_weight(r, p, r->part->weight_at, f), n, from + (f - first), NULL));
    f = first;
    n = count;
    if (r->ctx->share.near && heti_clip(p, owners->cut[i], owners->cut[i + 1], &f, &n))
        HETI_TRY(heti_move_weight(r, p->type, heti_weight(r, p, r->part->own_at, f), n, from + (f - first), NULL));
    while (r->part->box_at[p->block] != HETI_NOWHERE &&
           heti_next_run(r->ctx, r->rank, p->block, p->offset + first + count, &run)) {
        const int64_t unit = p->type == HET_INT8 ? HETRAIN_INT8_BLOCK : 1, /* whole blocks are written */
                      low = (run.first - p->offset) / unit * unit,
                      high = heti_ceil_div(run.first - p->offset + run.count, unit) * unit;
        void *at = heti_boxes(r, p->block, r->part->gathered[p->block]) + run.place;
        if (run.half) at = HETI_CAST(uint16_t *, at) + 1;
        HETI_TRY(heti_move_weight(r, p->type, at, heti_min(high, p->count) - low, from + (low - first), NULL));
    }
    return HET_OK;
}

/* Whether holders of a block have all of it, and its gradient where they add to it. */
static int heti_holds_all(const het_ctx *ctx) {
    return ctx->share.plan->shard < HET_SHARD_GRADIENTS && !ctx->share.keepers && !ctx->share.boxes;
}

/* Bytes on the host of a piece of flow number i of a rank. */
static size_t heti_flow_data(const heti_rank *r, int64_t i) {
    const int sums = i / 2 % HETI_FLOWS == HETI_FLOW_SUMS;
    if (i / 2 % HETI_FLOWS == HETI_FLOW_WEIGHTS && r->ctx->share.plan->shard != HET_SHARD_WEIGHTS) return 0;
    if (r->device.iface->host_memory && !(sums && i % 2) && !r->ctx->share.boxes) return 0;
    return HETI_CAST(size_t, r->part->flow.piece[!sums]) * (sums ? sizeof(double) : sizeof(float));
}

/* Pieces of a flow that are under way at most: of blocks that go all at once, as many as fit, or
   about a quarter of all. */
static int64_t heti_flow_slots(const heti_rank *r, int64_t i) {
    const heti_flows *flow = &r->part->flow;
    const int kind = i / 2 % HETI_FLOWS != HETI_FLOW_SUMS;
    if (!heti_holds_all(r->ctx)) return heti_flow_data(r, i) > 0 ? 1 : HETI_FLOW_WINDOW;
    if (heti_flow_data(r, i) == 0) return HETI_FLOW_SMALL;
    return heti_min(HETI_FLOW_SMALL, heti_min(flow->pieces[kind], heti_max(flow->part / HETRAIN_FLOW_WINDOW,
                                              HETRAIN_FLOW_WINDOW / flow->piece[kind])));
}

/* Elements that travel together at most. Boxes are packed. */
static int64_t heti_most_piece(const het_ctx *ctx) {
    return ctx->share.boxes ? 1 << 16 : heti_holds_all(ctx) ? HETI_FLOW_CHUNK : HETI_FLOW_PIECE;
}

/* For how many holders of another cluster one collects at most; 0: all are alone, or a group moves
   what is inside of clusters. */
static int64_t heti_reach(const heti_owners *o) {
    int64_t most = 0, least = 0;
    for (int64_t c = 0; c < o->clusters; c++) {
        const int64_t size = o->cluster[c + 1] - o->cluster[c];
        most = heti_max(most, size);
        if (size > 1 && o->group[c] < 0) least = least > 0 ? heti_min(least, size) : size;
    }
    return least > 0 ? heti_ceil_div(most, least) : 0;
}

/* What the rank's flows need: peers and buffers. */
static void heti_count_flows(heti_rank *r) {
    const het_ctx *ctx = r->ctx;
    heti_flows *flow = &r->part->flow;
    flow->flows = heti_find_flows(r, NULL);
    for (int64_t s = 0; s < r->part->stage_count; s++)
        for (int64_t u = r->part->stage[s].unit_begin; u < r->part->stage[s].unit_end; u++) {
            flow->floats[0] = heti_max(flow->floats[0], heti_flow_place(ctx, HETI_FLOW_SUMS, u, -1));
            flow->floats[1] = heti_max(flow->floats[1], heti_flow_place(ctx, HETI_FLOW_WEIGHTS, u, -1));
            r->part->expanded_floats = heti_max(r->part->expanded_floats, heti_expanded_place(r, u, -1));
        }
    for (int64_t b = 0; b < ctx->chain.block_count && flow->flows > 0; b++) {
        const heti_owners *owners = &ctx->share.owners[b];
        const int moves = heti_is_shared(ctx, b) && (owners->clusters > 1 || owners->group[0] < 0),
                  sums = moves || heti_is_sharded(ctx, HETI_FLOW_SUMS, b);
        const int64_t reach = heti_reach(owners), ranges[2] = { reach > 0 ? owners->clusters : 1, 1 };
        int64_t most[2] = { 0, 0 };
        if (sums) flow->part += ctx->chain.block[b].elements / owners->holders;
        if (moves || heti_is_sharded(ctx, HETI_FLOW_WEIGHTS, b)) most[1] = ctx->chain.block[b].weight_floats;
        for (int64_t i = 0; i < owners->holders && sums && ctx->desc.inference != HET_YES; i++)
            most[0] = heti_max(most[0], heti_max(1, reach) * (owners->cut[i + 1] - owners->cut[i]));
        for (int i = 0; i < 2; i++) {
            flow->piece[i] = heti_max(flow->piece[i], heti_min(most[i], heti_most_piece(ctx)));
            flow->pieces[i] += heti_ceil_div(most[i], heti_most_piece(ctx)) * ranges[i];
        }
    }
}

/* The ends a rank has; they are only counted while there is no room for them. */
static void heti_find_ends(heti_rank *r) {
    heti_part *part = r->part;
    int64_t m;
    part->ends = 0;
    HETI_CLEAR(part->ends_of, HETI_GROUPS);
    for (int64_t g = 0; g < r->ctx->share.groups; g++) {
        const heti_communicator *group = &r->ctx->share.group[g];
        heti_endpoint none, *end = part->end ? &part->end[part->ends] : &none;
        for (m = 0; m < group->members && group->member[m] != r->rank; m++) {}
        if (m == group->members) continue;
        end->group = g;
        end->member = m;
        part->ends++;
        part->ends_of[group->kind]++;
    }
}

/* Whether an F wants weights of its stage that are not there yet: het_needs.predicts looks at all
   blocks of the rank. */
static int heti_uses_early(const het_ctx *ctx, int64_t leader) {
    const het_schedule *s = ctx->share.schedule;
    for (int64_t b = 0; b < ctx->chain.block_count; b++) {
        int32_t newest = 0;
        for (int64_t i = s->start[leader]; i < s->start[leader + 1] && !ctx->chain.block[b].frozen; i++) {
            const het_action *a = &s->action[i];
            if (a->kind == HET_ACTION_GATHER && a->stage == b) newest = a->version + 1;
            if (a->kind == HET_ACTION_F && a->version > newest &&
                heti_stage_uses(ctx, b, heti_stage_at(ctx->share.plan, a))) return 1;
        }
    }
    return 0;
}

static het_result heti_count_needs(heti_rank *r) {
    heti_part *part = r->part;
    het_ctx *ctx = r->ctx;
    const int64_t leader = heti_leader(ctx->share.plan, r->rank);
    het_needs needs;
    HETI_TRY(het_schedule_needs(ctx->share.plan, ctx->share.schedule, leader, 1, ctx->desc.inference == HET_YES,
                                &ctx->allocator, &needs, &ctx->error));
    heti_find_team(r);
    HETI_TRY(heti_check_chains(r));
    part->gathers = ctx->share.plan->slices > 1 && ctx->desc.inference != HET_YES && part->team.members == 1 &&
                    HETI_CAST(double, needs.slots) * HETI_CAST(double, part->limits.rows) <
                    HETI_CAST(double, needs.batch_slots) * HETI_CAST(double, part->tokens);
    heti_find_stages(r);
    heti_find_ends(r);
    HETI_TAKE_ALL(&part->stages, &ctx->allocator, ctx->call, &ctx->error, heti_layout_stages(r));
    heti_find_stages(r);
    heti_find_ends(r);
    HETI_TRY(heti_place_units(r));
    /* one more where the next F begins while a PUT runs; het_infer keeps one of each stage */
    part->versions = ctx->share.updates > 1 ? needs.versions : 1;
    part->predicts = ctx->share.updates > 1 && needs.predicts && heti_uses_early(ctx, leader);
    if (part->predicts && (!ctx->desc.optimizer.iface->predict || heti_feeds_back(&ctx->desc.optimizer)))
        return heti_fail(&ctx->error, HET_ERR_UNSUPPORTED, "%s: rank %d uses weights before they are made, and "
                         "optimizer %s predicts none%s", ctx->call, r->rank, ctx->desc.optimizer.iface->name,
                         heti_feeds_back(&ctx->desc.optimizer) ? " with feedback" : "");
    part->lean_count = needs.lean + (needs.lean > 0 && needs.places > 0 && r->queue);
    part->slot_count = heti_max(needs.slots + (needs.places > 0 && r->queue), part->numbers) + part->lean_count;
    part->place_count = needs.places;
    part->batch_slot_count = heti_max(needs.batch_slots, part->numbers);
    part->chain_count = heti_max(needs.chains, part->numbers);
    part->message_count = needs.messages;
    heti_count_messages(r);
    heti_count_flows(r);
    return HET_OK;
}

/* ---- a rank's device memory: sums of gradients ---- */

/* Whether the rank's products may write into sums that are not cleared before. */
static int heti_fills_sums(const heti_rank *r) {
    return r->takes_beta && (r->part->flow.flows == 0 || heti_holds_all(r->ctx)) && r->ctx->share.updates == 1;
}

/* Whether one call of a product makes all of a parameter's gradient in a step. */
static int heti_is_whole(const heti_rank *r, int64_t parameter) {
    const het_ctx *ctx = r->ctx;
    const heti_parameter *p = &ctx->chain.parameter[parameter];
    return p->desc.product == 2 && p->uses == 1 && ctx->share.owners[p->block].holders == 1 && heti_fills_sums(r)
        && ctx->desc.limits.max_micro_batches == 1 && ctx->share.plan->slices == 1;
}

/* Whether it sums and rounds it as well (het_gradient.final). */
static int heti_is_final(const heti_rank *r, int64_t parameter) {
    return heti_is_whole(r, parameter) && r->ctx->desc.reduce == HET_REDUCE_EXACT && r->takes_final;
}

/* Whether the sum lies where activations were: when a unit's weights have their turn, those of the
   units behind are used up. */
static int heti_is_late(const heti_rank *r, int64_t parameter) {
    return heti_is_whole(r, parameter) && r->part->slot_count == 1;
}

/* Floats that an element of a parameter's sum takes on this rank, and all of them. */
static int64_t heti_sum_width(const heti_rank *r, int64_t p) {
    return r->ctx->desc.reduce != HET_REDUCE_EXACT || heti_is_final(r, p) ? 1 : 2;
}

static int64_t heti_sum_floats(const heti_rank *r, int64_t p) {
    return heti_ceil_div(r->ctx->chain.parameter[p].count, 16) * 16 * heti_sum_width(r, p);
}

/* Sums that a block's owners have for updates in a row; of one holder's block all are its own. */
static int64_t heti_windows(const het_ctx *ctx, int64_t b) {
    return ctx->share.updates > 1 && ctx->share.owners[b].holders > 1 ? heti_window(ctx->share.plan) : 1;
}

/* Places for the sums of a trained block, where they are sharded, or of a keeper, for the owned
   part; from the first of them, `sum_floats` floats. Not for late ones. Where nobody else has the
   block, vectors are behind matrices: those that share their x are one. */
static void heti_layout_sums(heti_rank *r, int64_t b) {
    heti_part *part = r->part;
    const heti_owners *owners = &r->ctx->share.owners[b];
    const int64_t place = heti_holder_of(owners, r->rank), width = r->ctx->desc.reduce == HET_REDUCE_EXACT ? 2 : 1;
    const int sharded = heti_is_sharded(r->ctx, HETI_FLOW_SUMS, b) || heti_keeps(r->ctx->share.plan, r->rank) ||
                        part->box_at[b] != HETI_NOWHERE;
    const int sole = owners->holders == 1 && !sharded && r->ctx->share.updates == 1;
    int64_t p, at = part->sum_floats - (sharded ? width * owners->cut[place] : 0);
    for (int vectors = 0; vectors <= sole; vectors++)
        for (p = r->ctx->chain.block[b].parameter; p >= 0; p = r->ctx->chain.parameter[p].next) {
            if (sole && (r->ctx->chain.parameter[p].desc.columns == 1) != vectors) continue;
            part->sum_at[p] = at;
            if (!heti_is_late(r, p)) at += heti_sum_floats(r, p);
        }
    part->sum_floats = sharded ? part->sum_floats + heti_windows(r->ctx, b) * width *
                                     (owners->cut[place + 1] - owners->cut[place]) : at;
    if (part->box_at[b] == HETI_NOWHERE || heti_is_sharded(r->ctx, HETI_FLOW_SUMS, b) ||
        (r->ctx->share.updates > 1 && owners->holders == 1))
        return;
    part->box_sum_at[b] = part->sum_floats;
    part->sum_floats += width * heti_box_place(r->ctx, r->rank, b, -1);
}

/* Late sums of a stage fill its slot from the end, as its activations do from the start: when unit
   i makes its own, there are the activations of units 0 .. i and the sums of i, i + 1 ... Returns
   the bytes of a slot for both. */
static size_t heti_layout_late_sums(heti_rank *r, const heti_stage *stage, heti_arena *activations) {
    heti_arena sums = HETI_ZEROS;
    size_t bytes = activations->used, both;
    for (int64_t u = stage->unit_end - 1; u >= stage->unit_begin; u--) {
        for (int64_t q = 0; q < r->ctx->chain.unit[u].info.parameters; q++) {
            const int64_t p = r->ctx->chain.unit[u].parameter[q];
            if (r->part->sum_at[p] == HETI_NOWHERE || !heti_is_late(r, p)) continue;
            (void)heti_reserve(&sums, heti_sum_floats(r, p), sizeof(float));
            r->part->sum_at[p] = -HETI_CAST(int64_t, sums.used / sizeof(float)); /* from the end of the slot, for now */
        }
        if (heti_add(stage->unit[u - stage->unit_begin].end, sums.used, &both)) bytes = heti_max_size(bytes, both);
        else sums.overflow = 1;
    }
    activations->overflow |= sums.overflow;
    return bytes;
}

/* Places for elements [low, high) of a block among the rank's weights; returns its begin. */
static int64_t heti_layout_weights(heti_rank *r, int64_t b, int64_t low, int64_t high) {
    const int64_t from = heti_weight_place(r->ctx, b, low), at = r->part->weight_elements - from;
    r->part->weight_elements += heti_weight_place(r->ctx, b, high) - from;
    return at;
}

/* Whether the rank has all of a parameter. */
static int heti_has_copy(const heti_rank *r, int64_t parameter) {
    const int64_t b = r->ctx->chain.parameter[parameter].block;
    return r->part->weight_at[b] != HETI_NOWHERE && !heti_is_sharded(r->ctx, HETI_FLOW_WEIGHTS, b) &&
           r->part->box_at[b] == HETI_NOWHERE && !heti_keeps(r->ctx->share.plan, r->rank);
}

/* Weights in bf16 beside those that products take: matrices first, so that those of a block that
   share their x lie side by side, then biases. Each begins at 16 bytes and has the rows of 0 behind
   it that het_linear_part.w_bf16 wants. Of what a call fetches, or uses as a box, its ops round. */
static void heti_layout_rounded(heti_rank *r) {
    heti_part *part = r->part;
    const het_ctx *ctx = r->ctx;
    const int rounds = ctx->desc.dtype == HET_BF16 && heti_supports(&r->device, heti_blank_op(HET_OP_ROUND, 0));
    part->rounded_elements = 0;
    for (int64_t p = 0; p < ctx->chain.parameter_count; p++) part->rounded_at[p] = HETI_NOWHERE;
    for (int vectors = 0; rounds && vectors < 2; vectors++)
        for (int64_t i = 0; i < ctx->chain.parameter_count; i++) {
            const heti_parameter *p = &ctx->chain.parameter[i];
            if (!p->rounded || p->type != HET_F32 || (p->desc.columns == 1) != vectors || !heti_has_copy(r, i))
                continue;
            part->rounded_at[i] = part->rounded_elements;
            part->rounded_elements += heti_ceil_div(p->desc.rows, 8) * 8 * p->desc.columns;
        }
}

/* Gives a block its place among weights, gradients and, for the owned part, state. */
static void heti_layout_blocks(heti_rank *r) {
    heti_part *part = r->part;
    part->weight_elements = part->sum_floats = part->state_elements = 0;
    for (int64_t p = 0; p < r->ctx->chain.parameter_count; p++) part->sum_at[p] = HETI_NOWHERE;
    for (int64_t b = 0; b < r->ctx->chain.block_count; b++) {
        const het_described_block *block = &r->ctx->chain.block[b];
        const heti_owners *owners = &r->ctx->share.owners[b];
        const int64_t place = heti_holder_of(owners, r->rank);
        part->weight_at[b] = part->own_at[b] = part->box_at[b] = part->box_sum_at[b] = HETI_NOWHERE;
        if (place < 0) continue;
        const heti_span held = heti_held(r->ctx, b, place);
        part->weight_at[b] = part->own_at[b] = heti_layout_weights(r, b, held.first, held.end);
        if (r->ctx->share.near && heti_is_sharded(r->ctx, HETI_FLOW_WEIGHTS, b))
            part->own_at[b] = heti_layout_weights(r, b, owners->cut[place], owners->cut[place + 1]);
        if (heti_is_boxed(r->ctx, r->rank, b)) {
            part->box_at[b] = part->weight_elements;
            part->weight_elements += (part->versions + part->predicts) * heti_box_place(r->ctx, r->rank, b, -1);
        }
        if (block->frozen) continue;
        heti_layout_sums(r, b);
        part->state_at[b] = part->state_elements - owners->cut[place];
        part->state_elements += owners->cut[place + 1] - owners->cut[place];
    }
    heti_layout_rounded(r);
}

/* ---- a rank's device memory: activations, and all of it ---- */

/* A tensor is in the shared region if nobody reads it after its unit's present turn. A turn of the
   backward pass is: recompute, I and, when fused, W. With slices, other slices' turns come between,
   so what is carried along a sequence stays with the slices or the micro-batch. Without slices a
   stage that recomputes all has keys and values of its own, where het_infer finds them as well; but
   what a team has exchanged is not exchanged again. */
static heti_region heti_place(const heti_rank *r, const heti_stage *stage, const heti_placed *unit, het_keep keep) {
    const het_ctx *ctx = r->ctx;
    const int fused = stage->fused, sliced = ctx->share.plan->slices > 1;
    if (ctx->desc.inference == HET_YES) {
        if (keep == HET_KEEP_GRADIENT || keep == HET_KEEP_MICRO_BATCH_GRADIENT) return HETI_REGION_NONE;
        return keep == HET_KEEP_MICRO_BATCH ? HETI_REGION_BATCH : HETI_REGION_SHARED;
    }
    switch (keep) {
    case HET_KEEP_CALL: return HETI_REGION_SHARED;
    case HET_KEEP_INPUT: return unit->recompute ? HETI_REGION_SHARED : HETI_REGION_SLICE;
    case HET_KEEP_WEIGHT: return unit->recompute && fused ? HETI_REGION_SHARED : HETI_REGION_SLICE;
    case HET_KEEP_GRADIENT: return fused ? HETI_REGION_SHARED : HETI_REGION_SLICE;
    /* also the keys and values that het_infer continues */
    case HET_KEEP_MICRO_BATCH:
        return sliced ? stage->gathers ? HETI_REGION_GATHERED : HETI_REGION_BATCH
                      : stage->apart && r->part->team.members == 1 ? HETI_REGION_RANK : HETI_REGION_SLICE;
    case HET_KEEP_MICRO_BATCH_GRADIENT:
        return sliced ? HETI_REGION_CHAIN : fused ? HETI_REGION_SHARED : HETI_REGION_SLICE;
    default: return HETI_REGION_SLICE;
    }
}

/* The stage's unit that has written what comes into unit i: cuts pass it on. NULL: none has. */
static const heti_placed *heti_writer(const heti_stage *stage, int64_t i) {
    while (i > 0 && stage->unit[i - 1].info.is_loss) i--;
    return i > 0 ? &stage->unit[i - 1] : NULL;
}

/* Streams of a stage's unit. When nothing is kept, two buffers take turns. */
static void heti_layout_streams(heti_rank *r, const heti_stage *stage, int64_t i, heti_arena *arena) {
    heti_part *part = r->part;
    heti_arena *slot = &arena[HETI_REGION_SLICE],
               *between = &arena[stage->apart ? HETI_REGION_SHARED : HETI_REGION_SLICE];
    heti_placed *unit = &stage->unit[i];
    const heti_placed *before = r->ctx->desc.inference == HET_YES ? heti_writer(stage, i) : NULL,
                      *other = before ? heti_writer(stage, before - stage->unit) : NULL;
    for (int64_t s = 0; s < unit->info.in_streams; s++) {
        const int64_t floats = heti_stream_floats(&unit->info, unit->info.in_width[s]);
        unit->in_offset[s] = i ? stage->unit[i - 1].out_offset[s] : slot->used;
        if (i == 0) (void)heti_reserve(slot, part->limits.rows, HETI_CAST(size_t, floats) * sizeof(float));
        part->stream_floats[s] = heti_max(part->stream_floats[s], floats);
    }
    for (int64_t s = 0; s < unit->info.out_streams; s++) {
        const int64_t floats = heti_stream_floats(&unit->info, unit->info.out_width[s]);
        const int reuse = other && s < other->info.out_streams && other->info.out_width[s] == unit->info.out_width[s];
        unit->out_offset[s] = unit->info.is_loss ? unit->in_offset[s] : reuse ? other->out_offset[s] : between->used;
        if (!reuse && !unit->info.is_loss)
            (void)heti_reserve(between, part->limits.rows, HETI_CAST(size_t, floats) * sizeof(float));
        part->stream_floats[s] = heti_max(part->stream_floats[s], floats);
    }
}

static size_t heti_tensor_row(const het_tensor_desc *tensor) {
    return HETI_CAST(size_t, tensor->width) * sizeof(float);
}

/* Offsets of a unit's tensors: those that last from forward to backward, or all others. */
static void heti_layout_tensors(heti_rank *r, const heti_stage *stage, heti_placed *unit, int lasts,
                                heti_arena *arena) {
    const het_team_limits *limits = &r->part->limits;
    for (int64_t t = 0; t < unit->info.tensors; t++) {
        const het_tensor_desc *tensor = &unit->info.tensor[t];
        const heti_region region = heti_place(r, stage, unit, tensor->keep);
        const int gathers = region == HETI_REGION_GATHERED;
        heti_arena *in = &arena[gathers ? HETI_REGION_SLICE : region];
        if (lasts != (tensor->keep == HET_KEEP_INPUT || tensor->keep == HET_KEEP_WEIGHT ||
                      tensor->keep == HET_KEEP_MICRO_BATCH)) continue;
        unit->region[t] = region;
        if (region == HETI_REGION_NONE) continue;
        unit->offset[t] = in->used;
        (void)heti_reserve(in, tensor->keep >= HET_KEEP_MICRO_BATCH && !gathers ? limits->kept_rows
                           : tensor->group ? limits->group_rows : limits->rows, heti_tensor_row(tensor));
        if (gathers) /* all rows, as heti_call_prepare has them */
            (void)heti_reserve(&arena[region], r->part->tokens, heti_tensor_row(tensor));
    }
}

/* Offsets of a stage's streams and tensors. Of the shared region every unit takes all, but for what
   the units before it have recomputed where the stage recomputes as a whole: that of the units
   behind it is used up when its turn comes. An update between two units has its scratch behind. */
static int heti_layout_stage(heti_rank *r, heti_stage *stage) {
    heti_part *part = r->part;
    heti_arena arena[HETI_REGIONS];
    size_t made = 0, *slot = stage->lean ? &part->lean_bytes : &part->slot_bytes;
    memset(arena, 0, sizeof arena);
    arena[HETI_REGION_RANK].used = part->kept_bytes;
    for (int64_t i = 0; i < stage->unit_end - stage->unit_begin; i++) {
        heti_placed *unit = &stage->unit[i];
        arena[HETI_REGION_SHARED].used = made;
        unit->inferred = arena[HETI_REGION_GATHERED].used;
        heti_layout_streams(r, stage, i, arena);
        heti_layout_tensors(r, stage, unit, 1, arena);
        if (stage->whole) made = arena[HETI_REGION_SHARED].used;
        unit->gathered = arena[HETI_REGION_SHARED].used;
        (void)HETI_TAKE_BYTES(&arena[HETI_REGION_SHARED], arena[HETI_REGION_GATHERED].used - unit->inferred);
        heti_layout_tensors(r, stage, unit, 0, arena);
        unit->end = arena[HETI_REGION_SLICE].used;
        unit->workspace = arena[HETI_REGION_SHARED].used;
        (void)HETI_TAKE_BYTES(&arena[HETI_REGION_SHARED], unit->info.workspace);
        part->shared_bytes = heti_max_size(part->shared_bytes, arena[HETI_REGION_SHARED].used);
    }
    *slot = heti_max_size(*slot, heti_layout_late_sums(r, stage, &arena[HETI_REGION_SLICE]));
    part->batch_slot_bytes = heti_max_size(part->batch_slot_bytes, arena[HETI_REGION_BATCH].used);
    part->chain_bytes = heti_max_size(part->chain_bytes, heti_max_size(arena[HETI_REGION_CHAIN].used,
                                                                       arena[HETI_REGION_GATHERED].used));
    part->kept_bytes = arena[HETI_REGION_RANK].used;
    if (r->ctx->share.updates > 1) part->made_bytes = heti_max_size(part->made_bytes, made);
    for (int i = 1; i < HETI_REGIONS; i++) arena->overflow |= arena[i].overflow;
    return !arena->overflow;
}

static int heti_layout_activations(heti_rank *r) {
    heti_part *part = r->part;
    int fits = 1;
    part->kept_bytes = 0; /* a sum; all others are maxima, and the same each time */
    for (int64_t s = 0; s < part->stage_count; s++) fits &= heti_layout_stage(r, &part->stage[s]);
    for (int64_t p = 0; p < r->ctx->chain.parameter_count; p++)
        if (part->sum_at[p] != HETI_NOWHERE)
            part->shared_bytes = heti_max_size(part->shared_bytes, part->made_bytes + heti_step_workspace(r, p));
    return fits;
}

static void heti_layout_slots(heti_rank *r, heti_arena *arena) {
    heti_part *part = r->part;
    const int64_t rows = part->tokens, sequences = r->ctx->desc.limits.max_sequences;
    for (int64_t i = 0; i < part->batch_slot_count; i++) {
        heti_batch_slot *batch_slot = &part->batch_slot[i];
        het_view *view = &batch_slot->view;
        view->token = batch_slot->device_token = HETI_TAKE(arena, int32_t, rows);
        view->target = batch_slot->device_target = HETI_TAKE(arena, int32_t, rows);
        view->position = batch_slot->device_position = HETI_TAKE(arena, int32_t, rows);
        view->sequence_of = batch_slot->device_sequence_of = HETI_TAKE(arena, int32_t, rows);
        view->weight = batch_slot->device_weight = HETI_TAKE(arena, float, rows);
        view->sequence_start = batch_slot->device_sequence_start = HETI_TAKE(arena, int64_t, sequences + 1);
        view->sample_id = batch_slot->device_sample_id = HETI_TAKE(arena, int64_t, sequences);
        view->granule_start = batch_slot->device_granule_start = HETI_TAKE(arena, int64_t, rows + 1);
        batch_slot->memory = HETI_TAKE_BYTES(arena, part->batch_slot_bytes);
    }
    part->chains = HETI_CAST(char *, heti_reserve(arena, part->chain_count, part->chain_bytes));
    for (int64_t i = 0; i < part->slot_count; i++)
        part->slot[i].memory = HETI_TAKE_BYTES(arena, i < part->slot_count - part->lean_count ? part->slot_bytes
                                                                                              : part->lean_bytes);
}

/* Positions of the longest sequence that the rank can have. */
static int64_t heti_rotary_rows(const heti_rank *r) {
    const het_model_desc *model = &r->ctx->desc.model;
    return model->position == HET_ROTARY ? heti_min(model->context, r->part->tokens) : 0;
}

/* Cuts up the device's block, or counts it when base is NULL. */
static het_result heti_layout(heti_rank *r, char *base) {
    heti_part *part = r->part;
    const het_desc *desc = &r->ctx->desc;
    const int trains = desc->inference != HET_YES;
    const int64_t half = heti_rotary_size(&desc->model) / 2, rows = part->limits.rows;
    const int64_t table = heti_rotary_rows(r) * half;
    heti_arena arena = HETI_ZEROS;
    size_t mark = 0, sums;
    arena.base = base;
#define HETI_MARK(field) do { part->sizes.field = arena.used - mark; mark = arena.used; } while (0)
    heti_layout_blocks(r);
    part->weights = HETI_TAKE(&arena, float, part->weight_elements);
    part->rounded = HETI_TAKE(&arena, uint16_t, part->rounded_elements);
    for (int64_t s = 0; s < 2; s++) part->flow.buffer[1][s] = HETI_TAKE(&arena, float, part->flow.floats[1]);
    part->expanded = HETI_TAKE(&arena, float, part->expanded_floats);
    part->cosine = HETI_TAKE(&arena, float, table);
    part->sine = HETI_TAKE(&arena, float, table);
    HETI_MARK(weights);
    sums = mark;
    part->gradients = HETI_TAKE(&arena, float, part->sum_floats);
    for (int64_t s = 0; s < 2; s++) part->flow.buffer[0][s] = HETI_TAKE(&arena, float, part->flow.floats[0]);
    part->maximum = HETI_TAKE(&arena, uint32_t, r->ctx->chain.parameter_count);
    part->exponent = HETI_TAKE(&arena, int32_t, r->ctx->chain.parameter_count);
    part->grid = HETI_TAKE(&arena, double, r->ctx->chain.parameter_count);
    HETI_MARK(gradients);
    for (int64_t s = 0; s < r->ctx->slots; s++) part->state[s] = HETI_TAKE(&arena, float, part->state_elements);
    HETI_MARK(optimizer);
    if (!heti_layout_activations(r)) arena.overflow = 1;
    heti_layout_slots(r, &arena);
    for (int64_t p = 0; p < r->ctx->chain.parameter_count; p++) /* behind the only slot */
        if (part->sum_at[p] != HETI_NOWHERE && heti_is_late(r, p))
            part->sum_at[p] += HETI_CAST(int64_t, (arena.used - sums) / sizeof(float));
    part->kept = HETI_TAKE_BYTES(&arena, part->kept_bytes);
    for (int64_t s = 0; s < HETRAIN_MAX_STREAMS; s++) {
        const int64_t whole = part->team.member == 0 && heti_shows_whole(r) ? heti_slice_rows(r->ctx, part->tokens) : 0;
        float **const stream[] = { &part->gradient_stream[0][s], &part->gradient_stream[1][s], &part->spare_stream[s],
                                   &part->whole_stream[s] };
        for (int i = 0; i < 4; i++)
            *stream[i] = HETI_CAST(float *, heti_reserve(&arena, i == 3 ? whole : trains ? rows : 0,
                                                         HETI_CAST(size_t, part->stream_floats[s]) * sizeof(float)));
    }
    for (int64_t s = 0; part->ends_of[HETI_GROUP_LANE] > 0 && s < part->message_count + 2; s++)
        part->message[s].rows = HETI_TAKE_BYTES(&arena, part->lane_bytes +
                                                        HETI_CAST(size_t, part->crossings - 1) * HETI_ENVELOPE);
    for (int64_t i = 0; part->ends_of[HETI_GROUP_TEAM] > 0 && i < 2; i++)
        part->exchange_data[i] = HETI_TAKE_BYTES(&arena, part->exchange_bytes);
    HETI_MARK(activations);
    part->shared = HETI_TAKE_BYTES(&arena, part->shared_bytes);
    part->logits = HETI_TAKE(&arena, float, desc->model.vocab);
    part->scalars = HETI_TAKE(&arena, het_step_scalars, 1);
    part->loss = HETI_TAKE(&arena, het_sum, 1);
    part->squares = HETI_TAKE(&arena, het_sum, 1);
    HETI_MARK(workspace);
#undef HETI_MARK
    part->sizes.device = arena.used;
    if (arena.overflow)
        return heti_fail(&r->ctx->error, HET_ERR_INVALID, "memory: a size does not fit into %d bits",
                         HETI_CAST(int64_t, sizeof(size_t) * 8));
    return HET_OK;
}

/* ---- a rank's host memory ---- */

/* Places for device graphs: enough for steps and evaluations of one shape. 0 where the device has
   no graphs, or where a hook, a unit that is no program, an optimizer of the user's, sharded
   gradients or a team have something to do on the host in between. */
static int64_t heti_graph_places(const heti_rank *r) {
    const het_ctx *ctx = r->ctx;
    if (!r->device.iface->graphs || ctx->desc.host.hook || ctx->desc.inference == HET_YES ||
        (r->part->flow.flows > 0 && !heti_holds_all(ctx)) || r->part->team.members > 1 || ctx->share.updates > 1)
        return 0;
    if (ctx->desc.optimizer.iface != het_adamw() && ctx->desc.optimizer.iface != het_muon()) return 0;
    for (int64_t u = 0; u < ctx->chain.unit_count; u++)
        if (ctx->chain.unit[u].unit.iface->forward != het_program_forward) return 0;
    return 2 * r->part->actions + 16;
}

/* What messages, exchanges and flows of a rank need on the host. */
static void heti_layout_buffers(heti_rank *r, heti_arena *arena) {
    heti_part *part = r->part;
    const int64_t messages = part->message_count + (r->ctx->world.ranks > 1 ? 2 : 0);
    heti_post *posts = HETI_TAKE(arena, heti_post, messages * part->crossings);
    size_t mark = arena->used;
    for (int64_t i = 0; i < part->flow.flows; i++) {
        const int64_t slots = heti_flow_slots(r, i);
        const size_t bytes = heti_flow_data(r, i);
        char *data = HETI_TAKE_BYTES(arena, HETI_CAST(size_t, slots) * bytes);
        const size_t tables = arena->used;
        heti_post *post = HETI_TAKE(arena, heti_post, slots);
        heti_flow_piece *under_way = HETI_TAKE(arena, heti_flow_piece, slots);
        mark += arena->used - tables;
        if (!arena->base) continue;
        part->flow.flow[i].post = post;
        part->flow.flow[i].under_way = under_way;
        part->flow.flow[i].slots = slots;
        part->flow.flow[i].slot = bytes;
        if (bytes > 0) part->flow.flow[i].data = data;
    }
    for (int64_t i = 0; i < messages; i++) {
        char *data = HETI_TAKE(arena, char, part->crossings * HETI_ENVELOPE + HETI_CAST(int64_t, part->message_bytes));
        if (!arena->base) continue;
        part->message[i].post = posts + i * part->crossings;
        part->message[i].action.kind = -1;
        part->message[i].data = data;
    }
    for (int64_t i = 0; part->ends_of[HETI_GROUP_TEAM] == 0 && i < 2; i++)
        part->exchange_data[i] = HETI_TAKE_BYTES(arena, part->exchange_bytes);
    part->sizes.communication = arena->used - mark;
}

/* Host tables, staging and buffers of a rank. */
static void heti_layout_host(heti_rank *r, heti_arena *arena) {
    heti_part *part = r->part;
    const het_ctx *ctx = r->ctx;
    const int64_t rows = part->tokens, sequences = ctx->desc.limits.max_sequences;
    int64_t **const of_blocks[] = { &part->weight_at, &part->own_at, &part->box_at, &part->box_sum_at, &part->state_at,
                                    &part->gathered, &part->stepped, &part->given };
    for (int i = 0; i < HETI_COUNT(of_blocks); i++) *of_blocks[i] = HETI_TAKE(arena, int64_t, ctx->chain.block_count);
    part->batch_slot = HETI_TAKE(arena, heti_batch_slot, part->batch_slot_count);
    part->slot = HETI_TAKE(arena, heti_slot, part->slot_count);
    part->place = HETI_TAKE(arena, heti_slot, part->place_count);
    part->message = HETI_TAKE(arena, heti_message, part->message_count + 2);
    if (arena->base) part->outgoing = part->message + part->message_count;
    part->team.row = part->team_row = HETI_TAKE(arena, int64_t, part->team.members + 1);
    part->exchange = HETI_TAKE(arena, heti_post, 2 * part->team.members);
    part->version = HETI_TAKE(arena, int64_t, ctx->chain.block_count * part->versions);
    part->rounded_at = HETI_TAKE(arena, int64_t, ctx->chain.parameter_count);
    part->fresh = HETI_TAKE(arena, int32_t, ctx->chain.block_count);
    part->arrived = HETI_TAKE(arena, int64_t, ctx->chain.block_count * heti_window(ctx->share.plan));
    part->sum_at = HETI_TAKE(arena, int64_t, ctx->chain.parameter_count);
    part->flow.flow = HETI_TAKE(arena, heti_flow, part->flow.flows);
    part->flow.move = HETI_TAKE(arena, heti_move, 2 * ctx->chain.block_count);
    part->flow.order = HETI_TAKE(arena, int64_t, 2 * ctx->chain.block_count);
    if (ctx->purpose == HETI_TO_ESTIMATE) arena->asked = arena->used;
    part->record = HETI_TAKE(arena, het_record, part->actions);
    part->graphs = heti_graph_places(r);
    part->graph = HETI_TAKE(arena, heti_graph, part->graphs);
    part->flow.start = HETI_TAKE(arena, int64_t, ctx->share.groups > 0 ? ctx->world.ranks + 1 : 0);
    for (int64_t i = 0; i < part->batch_slot_count; i++) {
        int64_t *start = HETI_TAKE(arena, int64_t, sequences + 1), *granule = HETI_TAKE(arena, int64_t, rows + 1);
        if (!arena->base) continue;
        part->batch_slot[i].view.host_sequence_start = part->batch_slot[i].sequence_start = start;
        part->batch_slot[i].view.host_granule_start = part->batch_slot[i].granule_start = granule;
    }
    part->host_token = HETI_TAKE(arena, int32_t, rows);
    part->host_target = HETI_TAKE(arena, int32_t, rows);
    part->host_position = HETI_TAKE(arena, int32_t, rows);
    part->host_sequence_of = HETI_TAKE(arena, int32_t, rows);
    part->host_weight = HETI_TAKE(arena, float, rows);
    part->host_sample_id = HETI_TAKE(arena, int64_t, sequences);
    part->staging = HETI_TAKE(arena, double, HETI_STAGING);
    part->joined = HETI_TAKE(arena, int64_t, (1 + heti_below(ctx, r->rank)) *
                             heti_max(2 * HETI_SUM_INTEGERS + ctx->chain.parameter_count +
                                      heti_max(ctx->chain.parameter_count, 2 * ctx->chain.block_count),
                                      ctx->world.ranks));
    part->empty = HETI_TAKE(arena, int32_t, ctx->chain.parameter_count);
    heti_layout_buffers(r, arena);
}

/* A stage's part of a slot. */
static size_t heti_stage_bytes(const heti_stage *stage) {
    return stage->unit[stage->unit_end - stage->unit_begin - 1].end;
}

/* The places on the host: each as large as the largest stage that comes there. */
static het_result heti_open_places(heti_rank *r) {
    heti_part *part = r->part;
    het_ctx *ctx = r->ctx;
    for (int64_t i = 0; i < part->actions && part->place_count > 0; i++)
        if (part->action[i].kind == HET_ACTION_PUT)
            part->place_bytes = heti_max_size(part->place_bytes, heti_stage_bytes(heti_stage_of(r, &part->action[i])));
    if (!heti_mul(part->place_bytes, HETI_CAST(size_t, part->place_count), &part->sizes.stored))
        return heti_invalid(&ctx->error, ctx->call, "rank %d: %d activations on the host are too much", r->rank,
                            part->place_count);
    if (part->sizes.stored == 0 || ctx->desc.host.store.put || ctx->purpose == HETI_TO_ESTIMATE) return HET_OK;
    part->places = HETI_CAST(char *, heti_alloc(&ctx->allocator, part->sizes.stored));
    if (!part->places)
        return heti_fail(&ctx->error, HET_ERR_OOM, "%s: rank %d: no memory for %b of activations on the host",
                         ctx->call, r->rank, HETI_CAST(uint64_t, part->sizes.stored));
    for (int64_t i = 0; i < part->place_count; i++)
        part->place[i].memory = part->places + HETI_CAST(size_t, i) * part->place_bytes;
    return HET_OK;
}

/* Everything of a rank that the plan decides, but its device memory. */
static het_result heti_map_rank(heti_rank *r) {
    heti_part *part = r->part;
    het_ctx *ctx = r->ctx;
    const int64_t leader = heti_leader(ctx->share.plan, r->rank), *start = ctx->share.schedule->start;
    part->action = ctx->share.schedule->action + start[leader];
    part->actions = start[leader + 1] - start[leader];
    HETI_TRY(heti_count_needs(r));
    HETI_TAKE_ALL(&part->host, &ctx->allocator, ctx->call, &ctx->error, heti_layout_host(r, &part->host));
    (void)heti_find_flows(r, part->flow.flow);
    HETI_TRY(heti_open_ends(r));
    HETI_TRY(heti_layout(r, NULL));
    HETI_TRY(heti_open_places(r));
    part->sizes.parameters = ctx->chain.parameters;
    if (r->desc.memory_limit && part->sizes.device + part->sizes.communication > r->desc.memory_limit)
        return heti_fail(&ctx->error, HET_ERR_LIMIT, "rank %d, device %s: needs %b and %b for messages, %b more than "
                                                     "its memory_limit of %b", r->rank, r->device.iface->name,
                         HETI_CAST(uint64_t, part->sizes.device), HETI_CAST(uint64_t, part->sizes.communication),
                         HETI_CAST(uint64_t, part->sizes.device + part->sizes.communication - r->desc.memory_limit),
                         HETI_CAST(uint64_t, r->desc.memory_limit));
    return HET_OK;
}

/* Bytes on the host of ranks [begin, end); what all ranks share counts for the first one. */
static void heti_count_host(het_ctx *ctx, int64_t begin, int64_t end) {
    const int trains = ctx->desc.inference != HET_YES, adapts = ctx->desc.model.lora_rank > 0;
    size_t saved = 0, shared = sizeof *ctx + ctx->world.arena.size + ctx->chain.units.size + ctx->host.size +
           ctx->share.arena.size + ctx->share.plan->size + ctx->share.schedule_bytes;
    for (int64_t i = begin; i < end; i++) {
        heti_rank *r = &ctx->rank[i];
        r->part->sizes.host = r->opened + r->part->queue_bytes + r->part->stages.size + r->part->host.size +
            (i == 0 ? shared : 0) + (ctx->desc.host.store.put ? 0 : r->part->sizes.stored);
    }
    for (int64_t i = 0; i < ctx->chain.parameter_count && trains && ctx->world.first_rank == 0; i++) {
        const heti_parameter *p = &ctx->chain.parameter[i];
        const int64_t arrays = (!adapts || p->desc.adapter) + (p->frozen ? 0 : ctx->slots);
        saved += HETI_CAST(size_t, arrays * p->count) * sizeof(float);
    }
    if (begin == 0) ctx->rank[0].part->sizes.saving = saved;
}

static heti_counted_update *heti_update_at(const het_ctx *ctx, int64_t b, int64_t update) {
    return &ctx->share.update[b * ctx->share.updates + update];
}

/* How many ranks have REDUCE and GATHER of each of several updates. */
static void heti_count_updates(het_ctx *ctx) {
    const het_schedule *s = ctx->share.schedule;
    for (int64_t i = 0; ctx->share.updates > 1 && i < s->start[s->ranks]; i++) {
        const het_action *a = &s->action[i];
        if (a->kind == HET_ACTION_REDUCE) heti_update_at(ctx, a->stage, a->version)->reduces++;
        if (a->kind == HET_ACTION_GATHER) heti_update_at(ctx, a->stage, a->version)->gathers++;
    }
}

/* How many updates a block has. */
static int64_t heti_updates_of_block(const het_ctx *ctx, int64_t b) {
    int64_t updates = ctx->share.updates;
    while (updates > 0 && heti_update_at(ctx, b, updates - 1)->reduces == 0) updates--;
    return updates;
}

/* Whether the present job makes several updates. Then whoever comes to GATHER fetches a version,
   instead of its owners' giving it away. */
static int heti_updates_often(const het_ctx *ctx) {
    return ctx->share.updates > 1 && ctx->task.job == HETI_JOB_STEP;
}

/* Plan, schedule and what they decide, but for device memory, from those of ctx->desc. */
static het_result heti_build_share(het_ctx *ctx) {
    HETI_TRY(heti_take_plan(ctx));
    HETI_TRY(heti_take_cuts(ctx));
    HETI_TRY(heti_take_shard(ctx));
    if (ctx->share.plan->slices > 1 && heti_is_bidirectional(ctx, 0, ctx->chain.unit_count))
        return heti_fail(&ctx->error, HET_ERR_INVALID, "%s: the plan (or, without one, het_desc.limits.max_slices) has "
                         "%d slices, but a bidirectional model cannot be sliced", ctx->call, ctx->share.plan->slices);
    if (ctx->share.plan->slices > ctx->desc.limits.max_tokens)
        return heti_fail(&ctx->error, HET_ERR_LIMIT, "%s: %d slices of a micro-batch; with max_tokens %d it has at "
                         "most as many granules", ctx->call, ctx->share.plan->slices, ctx->desc.limits.max_tokens);
    HETI_TRY(heti_build_owners(ctx));
    HETI_TRY(heti_take_schedule(ctx));
    heti_count_updates(ctx);
    ctx->desc.layout.plan = ctx->share.plan;
    ctx->desc.layout.schedule = NULL;
    return HET_OK;
}

/* Ranks [begin, end) of this process, and what the host has for them. */
static het_result heti_map_ranks(het_ctx *ctx, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) HETI_TRY(heti_map_rank(&ctx->rank[i]));
    heti_count_host(ctx, begin, end);
    return HET_OK;
}

/* ---- initial weights: a function of (seed, parameter, element) ---- */

/* Values (2 u - 1) bound, u in [0, 1), from element `first` of a stream on. */
static void heti_init_uniform(uint64_t seed, uint64_t stream, int64_t first, int64_t count, float bound, float *to) {
    uint32_t bits[4];
    for (int64_t i = 0; i < count; i++) {
        if (i % 4 == 0) heti_philox(seed, HETI_CAST(uint64_t, (first + i) / 4), stream, bits);
        to[i] = (2.0f * heti_uniform(bits[i % 4]) - 1.0f) * bound;
    }
}

/* The rank's own device where it draws in the host's memory, or one made for that. */
static het_result heti_open_drawer(heti_rank *r, het_device *drawer) {
    het_device_config config = HETI_ZEROS;
    *drawer = r->device;
    if (drawer->iface->host_memory && !drawer->iface->queues && heti_supports(drawer, heti_blank_op(HET_OP_NORMAL, 0)))
        return HET_OK;
    config.allocator = &r->ctx->allocator;
    config.parallel = &r->ctx->desc.host.parallel;
    config.threads = r->desc.threads;
    drawer->iface = het_cpu_device();
    return drawer->iface->create(&config, &drawer->self);
}

/* Elements [first, first + count) of a parameter, drawn into the staging memory. */
static het_result heti_init_piece(heti_rank *r, const het_device *drawer, const heti_parameter *p, uint64_t stream,
                                  int64_t first, int64_t count) {
    float *to = HETI_CAST(float *, HETI_CAST(void *, r->part->staging));
    const het_normal_args a = { r->ctx->desc.seed, stream, first, count, p->desc.init_std, to };
    if (p->desc.init == HET_INIT_NORMAL) {
        HETI_TRY(heti_run_op(drawer, NULL, HETI_OP(NORMAL, &a)));
    } else if (p->desc.init == HET_INIT_UNIFORM) {
        heti_init_uniform(r->ctx->desc.seed, stream, first, count, p->desc.init_std, to);
    } else {
        for (int64_t i = 0; i < count; i++) to[i] = p->desc.init == HET_INIT_ONE ? 1.0f : 0.0f;
    }
    return heti_write_weight(r, p, first, count, to);
}

static het_result heti_init_weights(heti_rank *r) {
    het_ctx *ctx = r->ctx;
    het_device drawer;
    het_result result = heti_open_drawer(r, &drawer);
    int64_t number[2] = { 0, 0 }; /* of parameters and of factors: without adapters the others start the same */
    int64_t n;
    if (result != HET_OK) return heti_fail(&r->error, result, "no device to draw the first weights on");
    for (int64_t p = 0; p < ctx->chain.parameter_count; p++) {
        const heti_parameter *parameter = &ctx->chain.parameter[p];
        const int factor = parameter->desc.adapter != 0;
        const uint64_t stream = HETI_CAST(uint64_t, number[factor]++) + (factor ? UINT64_C(1) << 32 : 0);
        const int64_t holder = heti_holder_of(&ctx->share.owners[parameter->block], r->rank);
        if (holder < 0) continue;
        for (int64_t first = 0; result == HET_OK && first < parameter->count; first += n) {
            n = heti_min(2 * HETI_STAGING, parameter->count - first);
            if (heti_has_some(ctx, parameter->block, holder, 1, parameter->offset + first,
                              parameter->offset + first + n))
                result = heti_init_piece(r, &drawer, parameter, stream, first, n);
        }
    }
    if (drawer.self != r->device.self) drawer.iface->destroy(drawer.self);
    return result;
}

/* cosine, sine [T][rotary / 2] of position * frequency, an angle in float as PyTorch has it. */
static het_result heti_init_rotary(heti_rank *r) {
    heti_part *part = r->part;
    const het_model_desc *model = &r->ctx->desc.model;
    const int64_t half = heti_rotary_size(model) / 2;
    float *inverse = HETI_CAST(float *, HETI_CAST(void *, part->staging)), *cosine = inverse + half,
          *sine = cosine + half;
    if (3 * half > 2 * HETI_STAGING)
        return heti_fail(&r->error, HET_ERR_UNSUPPORTED, "head_size %d is too large for rotary positions",
                         model->head_size);
    heti_rotary_frequencies(model, inverse);
    for (int64_t t = 0; t < heti_rotary_rows(r); t++) {
        for (int64_t i = 0; i < half; i++) {
            const double angle = HETI_CAST(double, HETI_CAST(float, t) * inverse[i]);
            cosine[i] = HETI_CAST(float, heti_cos(angle));
            sine[i] = HETI_CAST(float, heti_sin(angle));
        }
        HETI_TRY(heti_copy_in(r, part->cosine + t * half, cosine, half, sizeof(float)));
        HETI_TRY(heti_copy_in(r, part->sine + t * half, sine, half, sizeof(float)));
        HETI_TRY(heti_sync(r));
    }
    return HET_OK;
}

/* The device's block, with everything in it that is neither weight nor state. */
static het_result heti_open_memory(heti_rank *r) {
    heti_part *part = r->part;
    part->memory = HETI_CAST(char *, r->device.iface->alloc(r->device.self, part->sizes.device));
    if (!part->memory) {
        const char *text = r->device.iface->last_error(r->device.self);
        return heti_fail(&r->error, HET_ERR_OOM, "rank %d, device %s: no memory for %b%s%s", r->rank,
                         r->device.iface->name, HETI_CAST(uint64_t, part->sizes.device), text && text[0] ? ": " : "",
                         text ? text : "");
    }
    HETI_TRY(heti_layout(r, part->memory));
    for (int64_t s = 0; s < r->ctx->slots; s++)
        HETI_TRY(heti_clear(r, part->state[s], part->state_elements, sizeof(float)));
    HETI_TRY(heti_clear(r, part->gradients, part->sum_floats, sizeof *part->gradients));
    HETI_TRY(heti_clear(r, part->rounded, part->rounded_elements, sizeof *part->rounded)); /* rows behind matrices */
    return heti_init_rotary(r);
}

/* What every rank of this process does. The first one's error becomes the context's. */
static het_result heti_for_ranks(het_ctx *ctx, het_result (*call)(heti_rank *r)) {
    het_result result = HET_OK;
    for (int64_t i = 0; i < ctx->world.local_count && result == HET_OK; i++) {
        memset(&ctx->rank[i].error, 0, sizeof ctx->rank[i].error);
        result = call(&ctx->rank[i]);
        if (result != HET_OK) ctx->error = ctx->rank[i].error;
    }
    return result;
}

/* ---- the context ---- */

static void heti_close_memory(heti_rank *r, heti_part *part) {
    if (!part->memory) return; /* no graph either: an estimate has no room for their table */
    for (int64_t i = 0; i < part->graphs; i++) {
        if (part->graph[i].graph) r->device.iface->graphs->destroy(r->device.self, r->queue, part->graph[i].graph);
        memset(&part->graph[i], 0, sizeof part->graph[i]);
    }
    r->device.iface->free(r->device.self, part->memory, part->sizes.device);
    part->memory = NULL;
}

static void heti_release_rank(heti_rank *r) {
    const het_device_iface *iface = r->device.iface;
    if (!r->device.self) return;
    if (r->event) iface->queues->event_destroy(r->device.self, r->event);
    if (r->loaded) iface->queues->event_destroy(r->device.self, r->loaded);
    if (r->queue) iface->queues->destroy(r->device.self, r->queue);
    iface->destroy(r->device.self);
}

/* Leaves a share's groups, and gives back what it has on devices. */
static void heti_close_share(het_ctx *ctx, heti_share *share) {
    heti_part *part;
    for (int64_t i = 0; i < ctx->world.local_count; i++)
        if ((part = heti_part_of(ctx, share, i)) != NULL)
            heti_abort_ends(&ctx->desc.layout.communicators, part, ctx->failed != 0);
    for (int64_t i = 0; i < ctx->world.local_count; i++)
        if ((part = heti_part_of(ctx, share, i)) != NULL) heti_leave_ends(&ctx->desc.layout.communicators, part);
    for (int64_t i = 0; i < ctx->world.local_count; i++) {
        if ((part = heti_part_of(ctx, share, i)) == NULL) continue;
        heti_close_memory(&ctx->rank[i], part);
        heti_close_ends(&ctx->rank[i], part);
    }
}

/* What it has on the host. Behind a failure a device may write there until it is destroyed. */
static void heti_free_share(het_ctx *ctx, heti_share *share) {
    heti_part *part;
    for (int64_t i = 0; i < ctx->world.local_count; i++) {
        if ((part = heti_part_of(ctx, share, i)) == NULL) continue;
        if (part->places) heti_free(&ctx->allocator, part->places, part->sizes.stored);
        heti_arena_end(&part->stages, &ctx->allocator);
        heti_arena_end(&part->host, &ctx->allocator);
    }
    het_schedule_free(share->schedule);
    het_plan_free(share->plan);
    heti_arena_end(&share->arena, &ctx->allocator);
}

/* Releases whatever a context has got so far. It comes from the user's allocator directly. */
static void heti_release(het_ctx *ctx) {
    heti_end_threads(ctx);
    heti_close_share(ctx, &ctx->share);
    for (int64_t i = 0; ctx->rank && i < ctx->world.local_count; i++) heti_release_rank(&ctx->rank[i]);
    heti_free_share(ctx, &ctx->share);
    heti_arena_end(&ctx->host, &ctx->allocator);
    heti_arena_end(&ctx->chain.units, &ctx->allocator);
    heti_arena_end(&ctx->world.arena, &ctx->allocator);
    ctx->counter.inner.free(ctx->counter.inner.user, ctx, sizeof *ctx);
}

/* XXH64 of the parameters' names and shapes, and of the plan's shares and the schedule's lists. */
static void heti_hash_agreed(const het_ctx *ctx, uint64_t *parameters, uint64_t *plan_and_schedule) {
    const het_plan *plan = ctx->share.plan;
    const het_schedule *schedule = ctx->share.schedule;
    heti_xxh64 state;
    heti_xxh64_start(&state, 0);
#define HETI_HASH(from, count) heti_xxh64_add(&state, (from), HETI_CAST(size_t, (count)) * sizeof *(from))
    for (int64_t i = 0; i < ctx->chain.parameter_count; i++) {
        const heti_parameter *p = &ctx->chain.parameter[i];
        HETI_HASH(p->desc.name, strlen(p->desc.name));
        HETI_HASH(&p->desc.rows, 1);
        HETI_HASH(&p->desc.columns, 1);
        HETI_HASH(&p->frozen, 1);
        HETI_HASH(&p->type, 1);
    }
    *parameters = heti_xxh64_end(&state);
    heti_xxh64_start(&state, 0);
    HETI_HASH(plan->share, plan->pipelines);
    HETI_HASH(plan->state_share, plan->ranks);
    HETI_HASH(plan->slice_share, plan->slices);
    for (int64_t s = 0; s < plan->stages; s++) {
        /* slices that recompute as a whole; others need not know of units */
        const uint64_t whole = plan->stage[s].recompute == HET_RECOMPUTE_STAGE ? ~plan->stage[s].keep : 0;
        HETI_HASH(&whole, 1);
    }
    HETI_HASH(&plan->slice_tokens, 1);
    HETI_HASH(plan->member, plan->members);
    HETI_HASH(&plan->shard, 1);
    if (ctx->share.near) HETI_HASH(plan->near, plan->ranks);
    HETI_HASH(plan->keeper, plan->ranks);
    HETI_HASH(schedule->start, schedule->ranks + 1);
    HETI_HASH(schedule->action, schedule->start[schedule->ranks]);
#undef HETI_HASH
    *plan_and_schedule = heti_xxh64_end(&state);
}

/* All processes must mean the same run: model, options and schedule. As one text of them all, so
   that an error can name what differs. */
static het_result heti_agree(het_ctx *ctx) {
    enum { SIZE = 2048 };
    char own[SIZE] = "", other[SIZE], text[80];
    uint64_t parameters, plan;
    het_result result = HET_OK;
    size_t at;
    heti_text mine = heti_text_in(own, SIZE);
    heti_hash_agreed(ctx, &parameters, &plan);
    heti_desc_agreed(&ctx->desc, &mine);
    heti_text_write(&mine, ",optimizer=%s,hetrain=%i,parameters=%x,plan_and_schedule=%x",
                    ctx->desc.optimizer.iface->name, HETRAIN_VERSION, parameters, plan);
    for (int64_t i = 0; i < ctx->world.processes; i++) { /* all of them, so that each finds what differs by itself */
        memcpy(other, own, SIZE);
        HETI_TRY(heti_broadcast(ctx, i, other, SIZE));
        other[SIZE - 1] = 0;
        for (at = 0; own[at] && own[at] == other[at]; at++) {}
        if (result != HET_OK || own[at] == other[at]) continue;
        while (at > 0 && own[at - 1] != ',') at--; /* where the setting begins */
        other[at + strcspn(other + at, ",")] = 0;
        (void)heti_format(text, sizeof text, "%s", own + at);
        text[strcspn(text, ",")] = 0;
        result = heti_fail(&ctx->error, HET_ERR_INVALID,
                           "process %d was given %s, process %d %s: model, plan and options must be the same in all", i,
                           other + at, ctx->world.process, text);
    }
    return result;
}

/* Nobody shall train 90 times slower without knowing. */
static void heti_tell_kernels(const het_ctx *ctx) {
    const het_logger *logger = &ctx->desc.host.logger;
    int64_t i = 0;
    if (!logger->log || het_cpu_device() != &heti_ref_iface) return;
    while (i < ctx->world.local_count && ctx->rank[i].device.iface != &heti_ref_iface) i++;
    if (i < ctx->world.local_count)
        logger->log(logger->user, HET_LOG_WARNING, HET_OK,
                    "reference kernels: put hetrain_cpu.h beside hetrain.h, about 90 times faster");
}

/* All that a context is made for. On failure ctx->error says why, and heti_release cleans up. */
static het_result heti_prepare(het_ctx *ctx, const het_desc *desc) {
    ctx->desc = *desc;
    ctx->world.transport = desc->layout.transport;
    ctx->chain.unit_count = desc->units ? desc->unit_count : heti_unit_count(&desc->model);
    ctx->slots = desc->inference == HET_YES ? 0 : het_optimizer_slots(&desc->optimizer);
    ctx->share.limits = desc->limits;
    HETI_TRY(heti_find_ranks(ctx));
    HETI_TRY(heti_build_tables(ctx));
    if (ctx->world.ranks > 1 && ctx->chain.parameter_count > 2 * HETI_STAGING)
        return heti_fail(&ctx->error, HET_ERR_LIMIT, "%d parameters; %i is the most of several ranks",
                         ctx->chain.parameter_count, 2 * HETI_STAGING);
    ctx->desc.units = NULL; /* copied */
    HETI_TRY(heti_open_ranks(ctx));
    if (ctx->purpose == HETI_TO_DESCRIBE) return heti_describe_units(&ctx->rank[0]);
    HETI_TRY(heti_find_places(ctx));
    HETI_TRY(heti_build_share(ctx));
    if (ctx->purpose != HETI_TO_TRAIN) return HET_OK;
    HETI_TRY(heti_map_ranks(ctx, 0, ctx->world.local_count));
    heti_tell_kernels(ctx);
    HETI_TRY(heti_for_ranks(ctx, heti_open_memory));
    HETI_TRY(heti_for_ranks(ctx, heti_init_weights));
    HETI_TRY(heti_begin_threads(ctx));
    if (ctx->world.transport.iface) HETI_TRY(heti_agree(ctx));
    return heti_join_groups(ctx, NULL);
}

#ifndef HETRAIN_NO_BIT_PROMISE
/* What (1 + 2^-52)^2 has beside 1 + 2^-51; sums a little above half a bit, and one below. */
static int heti_fma_rounds_once(void) {
    const volatile double x = 1.0 + 2.220446049250313e-16, whole = 9007199254740992.0;
    const volatile float y = 1.0f + 1.1920929e-7f, z = (2.0f - y) * 5.9604645e-8f, wholef = 16777216.0f;
    return fma(x, x, 1.0 - 2.0 * x) > 0.0 && fma(x, x, whole) > whole && fmaf(y, y, wholef) > wholef &&
           fmaf(y, z, y) <= y;
}
#endif

/* In the floating-point mode of a call that computes. */
static het_result heti_new_context(const het_desc *desc, heti_purpose purpose, int64_t estimated, const char *call,
                                   het_ctx **ctx, het_error *error) {
    het_desc full = HETI_ZEROS;
    het_ctx *c;
    het_result result;
#ifndef HETRAIN_NO_BIT_PROMISE
    if (!heti_fma_rounds_once()) /* MinGW's does not */
        return heti_fail(error, HET_ERR_UNSUPPORTED, "fma of the C library rounds more than once, which breaks equal "
                         "bits; compile with -O1 -mfma, or define HETRAIN_NO_BIT_PROMISE");
#endif
    if (desc) full = *desc;
    if (full.start_canary == 0 && full.end_canary == 0) HETI_TRY(heti_model_complete(&full.model, call, error));
    het_desc_defaults(&full);
    HETI_TRY(heti_check_desc(error, &full));
    c = HETI_CAST(het_ctx *, full.host.allocator.alloc(full.host.allocator.user, sizeof(het_ctx), 64));
    if (!c) return heti_fail(error, HET_ERR_OOM, "no memory for %b", HETI_CAST(uint64_t, sizeof(het_ctx)));
    memset(c, 0, sizeof *c);
    c->counter.inner = full.host.allocator;
    c->allocator.alloc = heti_counted_alloc;
    c->allocator.free = heti_counted_free;
    c->allocator.user = &c->counter;
    c->call = call;
    c->inside = &c->inside_caller;
    c->purpose = purpose;
    c->estimated = estimated;
    result = heti_prepare(c, &full);
    if (result != HET_OK) {
        if (c->error.code == HET_OK) (void)heti_fail(&c->error, result, "%s", het_result_text(result));
        if (error) *error = c->error;
        c->failed = 1;
        heti_call_off(c, result);
        heti_release(c);
        return result;
    }
    *ctx = c;
    return HET_OK;
}

/* An error begins with the name of the call. */
static void heti_put_call(het_error *error, const char *call) {
    const het_error why = *error;
    const size_t length = strlen(call);
    if (strncmp(why.text, call, length) == 0 && why.text[length] == ':') return;
    (void)heti_fail(error, why.code, "%s: %s", call, why.text);
}

/* A context that has come as far as its purpose asks: het_create, het_memory_estimate and
   het_describe start here. */
static het_result heti_new(const het_desc *desc, heti_purpose purpose, int64_t estimated, const char *call,
                           het_ctx **ctx, het_error *error) {
    heti_fp fp;
    het_error own;
    het_result result;
    *ctx = NULL;
    if (!error) error = &own;
    memset(error, 0, sizeof *error);
    heti_fp_enter(&fp);
    result = heti_new_context(desc, purpose, estimated, call, ctx, error);
    heti_fp_leave(&fp);
    if (result != HET_OK) heti_put_call(error, call);
    if (result == HET_OK || !desc || desc->start_canary != 0 || desc->end_canary != 0) return result;
    if (purpose == HETI_TO_TRAIN && desc->host.logger.log)
        desc->host.logger.log(desc->host.logger.user, HET_LOG_ERROR, result, error->text);
    if (desc->layout.transport.iface && desc->layout.transport.iface->version == HETRAIN_TRANSPORT_VERSION)
        desc->layout.transport.iface->abort(desc->layout.transport.self, result, error->text); /* the others wait */
    return result;
}

static het_result heti_create(const het_desc *desc, const char *call, het_ctx **ctx, het_error *error) {
    const het_result result = heti_new(desc, HETI_TO_TRAIN, -1, call, ctx, error);
    if (result == HET_OK) heti_set_call(*ctx, NULL);
    return result;
}

HETRAIN_API het_result het_create(const het_desc *desc, het_ctx **ctx, het_error *error) {
    if (!ctx) return heti_fail(error, HET_ERR_INVALID, "het_create: ctx is NULL");
    return heti_create(desc, "het_create", ctx, error);
}

HETRAIN_API het_result het_memory_estimate(const het_desc *desc, int64_t rank, het_memory *memory, het_error *error) {
    heti_fp fp;
    het_ctx *ctx;
    het_result result;
    if (!memory) return heti_fail(error, HET_ERR_INVALID, "het_memory_estimate: memory is NULL");
    result = heti_new(desc, HETI_TO_ESTIMATE, rank, "het_memory_estimate", &ctx, error);
    if (result != HET_OK) return result;
    heti_fp_enter(&fp);
    if (rank >= 0 && rank < ctx->world.local_count) result = heti_map_ranks(ctx, rank, rank + 1);
    else result = heti_fail(&ctx->error, HET_ERR_INVALID, "het_memory_estimate: rank %d of %d", rank,
                            ctx->world.local_count);
    heti_fp_leave(&fp);
    if (result == HET_OK) *memory = ctx->rank[rank].part->sizes;
    else if (error) {
        *error = ctx->error;
        heti_put_call(error, ctx->call);
    }
    heti_release(ctx);
    return result;
}

static het_result heti_describe_for(const het_desc *desc, const char *call, het_description **description,
                                    het_error *error) {
    het_description *d;
    het_ctx *ctx;
    het_desc one = HETI_ZEROS;
    *description = NULL;
    if (desc) one = *desc;
    one.layout.device_count = 1;
    one.layout.transport.iface = NULL;
    one.layout.communicators.iface = NULL;
    one.layout.plan = NULL;
    one.layout.schedule = NULL;
    one.emulate.link_count = 0;
    HETI_TRY(heti_new(&one, HETI_TO_DESCRIBE, -1, call, &ctx, error));
    *description = d = &ctx->description;
    d->ctx = ctx;
    ctx->inside->callback = "het_description.ctx"; /* a call that asks for more than there is, is refused there */
    d->desc = ctx->desc;
    d->units = ctx->chain.unit_count;
    d->blocks = ctx->chain.block_count;
    d->uses = ctx->chain.use_count;
    d->unit = ctx->chain.unit;
    d->block = ctx->chain.block;
    d->use = ctx->chain.use;
    return HET_OK;
}

HETRAIN_API het_result het_describe(const het_desc *desc, het_description **description, het_error *error) {
    if (!description) return heti_fail(error, HET_ERR_INVALID, "het_describe: description is NULL");
    return heti_describe_for(desc, "het_describe", description, error);
}

HETRAIN_API het_result het_plan_cuts(const het_desc *desc, het_plan *plan, het_error *error) {
    het_description *d;
    het_result result = HET_OK;
    int backs = 0;
    if (!plan || !plan->cut) return heti_fail(error, HET_ERR_INVALID, "het_plan_cuts: the plan or its cut is NULL");
    HETI_TRY(heti_describe_for(desc, "het_plan_cuts", &d, error));
    if (plan->units != d->units)
        result = heti_fail(error, HET_ERR_INVALID, "het_plan_cuts: the plan is for %d units, the model has %d",
                           plan->units, d->units);
    for (int64_t u = 0; u < d->units && result == HET_OK; u++)
        plan->cut[u] = HETI_CAST(uint8_t, heti_cut_at(d->ctx, u, &backs));
    het_description_free(d);
    return result;
}

HETRAIN_API void het_description_free(het_description *description) {
    if (description) heti_release(description->ctx);
}

/* =================================================================================================
   >>batch  The micro-batches of a job: checks, granules, slices, who runs which.
   ============================================================================================== */

#define HETI_GRANULE_TOKENS 512

/* Appends a bound to `count` ones, where there is room; without `start` they are only counted. */
static void heti_put_bound(int64_t *start, int64_t capacity, int64_t *count, int64_t bound) {
    if (start && *count < capacity) start[*count] = bound;
    ++*count;
}

/* Sequences a granule by rule: for equal lengths the largest divisor of their number with at most
   512 tokens together (1 where one is longer), 0 where lengths differ: then granules are filled up
   to 512 tokens. */
static int64_t heti_granule_group(const int64_t *sequence_start, int64_t sequences) {
    if (sequences == 0) return 0;
    const int64_t length = sequence_start[1] - sequence_start[0];
    for (int64_t s = 1; s < sequences; s++)
        if (sequence_start[s + 1] - sequence_start[s] != length) return 0;
    if (length == 0) return 0;
    int64_t group = heti_max(1, heti_min(sequences, HETI_GRANULE_TOKENS / length));
    while (sequences % group != 0) group--;
    return group;
}

/* One walk over the sequences. A granule is closed before a sequence that does not fit (or is the
   first of the next group), and before and after one that is cut. Empty sequences count in groups
   of fixed size, but a granule without tokens is never made. */
HETRAIN_API het_result het_granules(const int64_t *sequence_start, int64_t sequences, int64_t fixed, int64_t *start,
                                    int64_t capacity, int64_t *granules) {
    int64_t group, count = 0, begin, held = 0; /* the granule being filled: its first token, its sequences */
    if (sequence_start == NULL || granules == NULL || sequences < 0 || fixed < 0 || sequence_start[0] < 0)
        return HET_ERR_INVALID;
    for (int64_t s = 0; s < sequences; s++)
        if (sequence_start[s + 1] < sequence_start[s]) return HET_ERR_INVALID;
    group = fixed > 0 ? fixed : heti_granule_group(sequence_start, sequences);
    begin = sequence_start[0];
    heti_put_bound(start, capacity, &count, begin);
    for (int64_t s = 0; s < sequences; s++) {
        int64_t first = sequence_start[s], end = sequence_start[s + 1];
        int is_long = end - first > HETI_GRANULE_TOKENS;
        int is_full = group > 0 ? held == group : end - begin > HETI_GRANULE_TOKENS;
        if (is_long || is_full) {
            if (first > begin) heti_put_bound(start, capacity, &count, first);
            begin = first;
            held = 0;
        }
        held++;
        if (!is_long) continue;
        for (held = 0; begin < end; heti_put_bound(start, capacity, &count, begin))
            begin += heti_min(HETI_GRANULE_TOKENS, end - begin);
    }
    if (sequence_start[sequences] > begin) heti_put_bound(start, capacity, &count, sequence_start[sequences]);
    if (start != NULL && count > capacity) return HET_ERR_LIMIT;
    *granules = count - 1;
    return HET_OK;
}

static het_result heti_check_bounds(het_ctx *ctx, int64_t index, const char *name, const int64_t *start, int64_t count,
                                    int64_t tokens) {
    for (int64_t i = 0; i <= count; i++) {
        const int64_t lowest = i == 0 ? 0 : start[i - 1], highest = i == 0 ? 0 : tokens;
        if (start[i] < lowest || start[i] > highest || (i == count && start[i] != tokens))
            return heti_fail(&ctx->error, HET_ERR_DATA, "micro-batch %d: %s[%d] is %d; bounds must rise from 0 to %d",
                             index, name, i, start[i], tokens);
    }
    return HET_OK;
}

static het_result heti_check_tokens(het_ctx *ctx, int64_t index, const het_batch *b) {
    const int64_t vocab = ctx->desc.model.vocab;
    for (int64_t i = 0; i < b->tokens; i++) {
        if (b->token[i] < 0 || b->token[i] >= vocab)
            return heti_fail(&ctx->error, HET_ERR_DATA, "micro-batch %d: token[%d] is %i; the vocabulary has %d", index,
                             i, b->token[i], vocab);
        if (b->target[i] < -1 || b->target[i] >= vocab)
            return heti_fail(&ctx->error, HET_ERR_DATA, "micro-batch %d: target[%d] is %i; the vocabulary has %d",
                             index, i, b->target[i], vocab);
        if (b->weight && (!heti_is_finite(HETI_CAST(double, b->weight[i])) || b->weight[i] < 0.0f))
            return heti_fail(&ctx->error, HET_ERR_DATA, "micro-batch %d: weight[%d] is %g", index, i,
                             HETI_CAST(double, b->weight[i]));
    }
    return HET_OK;
}

/* A granule is whole sequences or a piece of one, and fits what one call of the head can hold. */
static int heti_granule_fits(const het_batch *b, int64_t begin, int64_t end, int64_t *sequence) {
    int64_t s = *sequence;
    while (s < b->sequences && b->sequence_start[s + 1] <= begin) s++;
    *sequence = s;
    if (begin == end || end <= b->sequence_start[s + 1]) return 1;
    if (begin != b->sequence_start[s]) return 0;
    while (b->sequence_start[s] < end) s++;
    return b->sequence_start[s] == end;
}

static het_result heti_check_granules(het_ctx *ctx, int64_t index, const het_batch *b) {
    int64_t sequence = 0;
    if (b->granules == 0) return HET_OK;
    if (b->granules < 0 || b->granules > ctx->desc.limits.max_tokens || !b->granule_start)
        return heti_fail(&ctx->error, HET_ERR_INVALID, "micro-batch %d: granules is %d, must be 0 .. %d (max_tokens); "
                         "granule_start is %s", index, b->granules, ctx->desc.limits.max_tokens,
                         b->granule_start ? "given" : "NULL");
    HETI_TRY(heti_check_bounds(ctx, index, "granule_start", b->granule_start, b->granules, b->tokens));
    for (int64_t g = 0; g < b->granules; g++)
        if (!heti_granule_fits(b, b->granule_start[g], b->granule_start[g + 1], &sequence))
            return heti_fail(&ctx->error, HET_ERR_DATA, "micro-batch %d: granule %d, tokens %d to %d, is neither "
                             "whole sequences nor a piece of one", index, g, b->granule_start[g],
                             b->granule_start[g + 1]);
    return HET_OK;
}

static het_result heti_check_batch(het_ctx *ctx, int64_t index, const het_batch *b) {
    const het_limits *limits = &ctx->desc.limits;
    if (b->tokens < 0 || b->sequences < 0 || !b->sequence_start || (b->tokens > 0 && (!b->token || !b->target)))
        return heti_fail(&ctx->error, HET_ERR_INVALID, "micro-batch %d: %d tokens, %d sequences; token, target and "
                         "sequence_start must not be NULL", index, b->tokens, b->sequences);
    if (b->tokens > limits->max_tokens)
        return heti_fail(&ctx->error, HET_ERR_LIMIT, "micro-batch %d: %d tokens, max_tokens is %d", index, b->tokens,
                         limits->max_tokens);
    if (b->sequences > limits->max_sequences)
        return heti_fail(&ctx->error, HET_ERR_LIMIT, "micro-batch %d: %d sequences, max_sequences is %d", index,
                         b->sequences, limits->max_sequences);
    HETI_TRY(heti_check_bounds(ctx, index, "sequence_start", b->sequence_start, b->sequences, b->tokens));
    for (int64_t s = 0; s < b->sequences; s++)
        if (b->sequence_start[s + 1] - b->sequence_start[s] > ctx->desc.model.context)
            return heti_fail(&ctx->error, HET_ERR_LIMIT,
                             "micro-batch %d: sequence %d has %d tokens, the model's context is %d", index, s,
                             b->sequence_start[s + 1] - b->sequence_start[s], ctx->desc.model.context);
    HETI_TRY(heti_check_granules(ctx, index, b));
    return heti_check_tokens(ctx, index, b);
}

/* Granule bounds of a micro-batch into start[max_tokens + 1]. */
static het_result heti_batch_granules(het_ctx *ctx, const het_batch *b, int64_t *start, int64_t *granules) {
    if (b->granules > 0) {
        *granules = b->granules;
        HETI_COPY(start, b->granule_start, b->granules + 1);
        return HET_OK;
    }
    return het_granules(b->sequence_start, b->sequences, ctx->desc.granule, start, ctx->desc.limits.max_tokens + 1,
                        granules);
}

/* Weights that a failed load left half written must not be used; loading again mends them. */
static het_result heti_check_torn(het_ctx *ctx) {
    if (!ctx->torn) return HET_OK;
    return heti_fail(&ctx->error, HET_ERR_STATE, "%s: a load that failed midway left the weights or the state "
                     "incomplete; load them again", ctx->call);
}

/* Adds the weights of the targets of rows [begin, end) of a micro-batch. */
static void heti_sum_weights(const het_batch *b, int64_t begin, int64_t end, het_sum *sum) {
    for (int64_t i = begin; i < end; i++)
        if (b->target[i] >= 0) heti_sum_add(sum, b->weight ? HETI_CAST(double, b->weight[i]) : 1.0);
}

/* Checks the micro-batches of a call and adds up weights and tokens, before any is run. info: 0. */
static het_result heti_check_step(het_ctx *ctx, const het_batch *batches, int64_t count, het_step_info *info) {
    heti_task *task = &ctx->task;
    het_sum sum = HETI_ZEROS;
    memset(task, 0, sizeof *task);
    HETI_TRY(heti_check_torn(ctx));
    if (!batches || count < 1)
        return heti_fail(&ctx->error, HET_ERR_INVALID, "%s: %d micro-batches at %s", ctx->call, count,
                         batches ? "an address" : "NULL");
    for (int64_t m = 0; m < count; m++) {
        const het_batch *b = &batches[m];
        HETI_TRY(heti_check_batch(ctx, m, b));
        heti_sum_weights(b, 0, b->tokens, &sum);
        task->tokens += b->tokens;
    }
    info->step = ctx->step;
    info->tokens = task->tokens;
    info->weight = task->weight = heti_sum_value(&sum);
    if (task->weight > 0.0) return HET_OK;
    return heti_fail(&ctx->error, HET_ERR_DATA, "%s: no target with a weight above 0 among %d tokens", ctx->call,
                     task->tokens);
}

/* The first of the granules [begin, end) at or behind what `before` of `total` shares get of their
   tokens. One formula for a share's end and the next one's begin, so that no granule is lost. */
static heti_border heti_cut(const int64_t *start, int64_t begin, int64_t end, double before, double total) {
    const double tokens = before * (HETI_CAST(double, start[end] - start[begin]) / total);
    heti_border border = { begin, start[begin] };
    while (border.granule < end && HETI_CAST(double, border.row - start[begin]) < tokens)
        border.row = start[++border.granule];
    return border;
}

/* Where the members of the teams begin in a slice. */
static void heti_cut_teams(const het_plan *plan, const int64_t *start, int64_t begin, int64_t end, heti_border *cut) {
    double before = 0.0, total = 0.0;
    for (int64_t i = 0; i < plan->members; i++) {
        const het_team_member *m = &plan->member[i], *behind = plan->member + plan->members;
        if (i == 0 || m->leader != m[-1].leader) {
            before = total = 0.0;
            for (const het_team_member *k = m; k < behind && k->leader == m->leader; k++) total += k->share;
        }
        cut[i] = heti_cut(start, begin, end, before, total);
        before += m->share;
    }
}

/* The granules of micro-batch m of the job, which falls to pipeline p, where that takes it. */
static het_result heti_find_granules(het_ctx *ctx, int64_t p, int64_t m, int64_t *granules) {
    const heti_share *share = &ctx->share;
    const het_batch *b = &ctx->task.batches[m];
    const int64_t *start = share->granule_start;
    HETI_TRY(heti_batch_granules(ctx, b, share->granule_start, granules));
    if (heti_max(b->tokens, *granules) > share->tokens[p]) /* there is room for one granule a token */
        return heti_fail(&ctx->error, HET_ERR_LIMIT, "micro-batch %d: %d %s; it falls to pipeline %d, and max_tokens "
                         "of rank %d there is %d", m, heti_max(b->tokens, *granules), b->tokens < *granules ?
                         "granules" : "tokens", p, share->limiter[p], share->tokens[p]);
    for (int64_t g = 0; g < *granules; g++)
        if (start[g + 1] - start[g] > heti_longest_granule(&ctx->desc))
            return heti_fail(&ctx->error, HET_ERR_LIMIT, "micro-batch %d: granule %d has %d tokens, the longest "
                             "planned is %d", m, g, start[g + 1] - start[g], heti_longest_granule(&ctx->desc));
    return HET_OK;
}

/* Cuts micro-batch m of the job, which is pipeline p's, into granules and these into slices; the
   last ones, where it has few tokens. */
static het_result heti_cut_batch(het_ctx *ctx, int64_t p, int64_t m) {
    const het_plan *plan = ctx->share.plan;
    heti_border *cut = ctx->share.cut + m * heti_borders(plan);
    int64_t *start = ctx->share.granule_start, granules, first = 0, i;
    const int64_t most = heti_slice_rows(ctx, ctx->share.tokens[p]);
    double before = 0.0, total = 0.0;
    HETI_TRY(heti_find_granules(ctx, p, m, &granules));
    if (plan->slice_tokens > 0)
        first = heti_min(plan->slices - 1, heti_max(0, plan->slices - start[granules] / plan->slice_tokens));
    for (i = first; i < plan->slices; i++) total += plan->slice_share[i];
    for (i = 0; i < plan->slices; i++) {
        cut[i] = heti_cut(start, 0, granules, before, total);
        if (i >= first) before += plan->slice_share[i];
        while (i > 0 && cut[i].row - cut[i - 1].row > most && cut[i].granule > cut[i - 1].granule + 1)
            cut[i].row = start[--cut[i].granule];
    }
    cut[i].granule = granules;
    cut[i].row = start[granules];
    for (i = 0; i < plan->slices; i++) {
        if (cut[i + 1].row - cut[i].row > most)
            return heti_fail(&ctx->error, HET_ERR_LIMIT, "micro-batch %d: slice %d has %d tokens, the longest planned "
                             "is %d: with max_sequences 1 that of granules of %d", m, i, cut[i + 1].row - cut[i].row,
                             most, heti_longest_granule(&ctx->desc));
        heti_cut_teams(plan, start, cut[i].granule, cut[i + 1].granule, cut + plan->slices + 1 + i * plan->members);
    }
    ctx->task.granules += granules;
    return HET_OK;
}

/* Shares the micro-batches of a job, never more than the schedule has, out among the pipelines;
   those of one follow each other. */
static het_result heti_deal(het_ctx *ctx, const het_batch *batches, int64_t count) {
    heti_share *share = &ctx->share;
    const het_schedule *schedule = share->schedule;
    int64_t left = 0, m = 0;
    ctx->task.batches = batches;
    het_plan_micro_batches(share->plan, count, share->batch_count);
    for (int64_t p = 0; p < share->plan->pipelines; p++) {
        left += heti_max(0, share->batch_count[p] - schedule->micro_batches[p]);
        share->batch_count[p] = heti_min(share->batch_count[p], schedule->micro_batches[p]);
    }
    for (int64_t p = 0; p < share->plan->pipelines; p++) {
        const int64_t more = heti_min(left, schedule->micro_batches[p] - share->batch_count[p]);
        share->batch_count[p] += more;
        left -= more;
        share->first_batch[p] = m;
        for (const int64_t end = m + share->batch_count[p]; m < end; m++) HETI_TRY(heti_cut_batch(ctx, p, m));
    }
    return HET_OK;
}

/* Number of the micro-batch that a compute action, a SEND or a RECV is about. */
static int64_t heti_batch_of(const het_ctx *ctx, const het_action *a) {
    return ctx->share.first_batch[a->pipeline] + a->micro_batch;
}

/* Where the slices of its micro-batch begin, and the members of teams in them. */
static const heti_border *heti_cuts_of(const het_ctx *ctx, const het_action *a) {
    return ctx->share.cut + heti_batch_of(ctx, a) * heti_borders(ctx->share.plan);
}

/* The rows that a member of the team of rank `leader` has of an action's slice. */
static void heti_member_rows(const het_ctx *ctx, const het_action *a, int64_t leader, int64_t member,
                             heti_border border[2]) {
    const het_plan *plan = ctx->share.plan;
    const heti_border *cut = heti_cuts_of(ctx, a);
    int64_t count, first;
    const het_team_member *team = het_plan_team(plan, leader, &count);
    border[0] = cut[a->slice];
    border[1] = cut[a->slice + 1];
    if (!team) return;
    first = plan->slices + 1 + a->slice * plan->members + (team - plan->member);
    border[0] = cut[first + member];
    if (member + 1 < count) border[1] = cut[first + member + 1];
}

/* What of a view lies between two borders. */
static het_view heti_between(const het_view *whole, heti_border begin, heti_border end) {
    het_view v = *whole;
    v.granule_begin = begin.granule;
    v.granule_end = end.granule;
    v.row_begin = begin.row;
    v.row_end = end.row;
    return v;
}

/* The rank's rows of an action's slice, and its team's. */
static het_view heti_slice(heti_rank *r, const het_view *whole, const het_action *a) {
    heti_part *part = r->part;
    const heti_border *cut = heti_cuts_of(r->ctx, a) + a->slice;
    het_view own = *whole;
    for (int64_t m = 0; m < part->team.members; m++) {
        heti_border border[2];
        heti_member_rows(r->ctx, a, heti_leader(r->ctx->share.plan, r->rank), m, border);
        part->team_row[m] = border[0].row;
        part->team_row[m + 1] = border[1].row;
        if (m == part->team.member) own = heti_between(whole, border[0], border[1]);
    }
    part->team_view = heti_between(whole, cut[0], cut[1]);
    return own;
}

static int heti_goes_forward(const het_action *a) {
    return a->kind == HET_ACTION_F || a->kind == HET_ACTION_SEND_F || a->kind == HET_ACTION_RECV_F;
}

/* How many of a micro-batch's slices have rows, and the last that has; an only slice is that. */
static int64_t heti_slices_with_rows(const het_ctx *ctx, const het_action *a, int64_t *last) {
    const heti_border *cut = heti_cuts_of(ctx, a);
    int64_t count = 0;
    for (int64_t k = 0; k < ctx->share.plan->slices; k++)
        if (cut[k + 1].row > cut[k].row) { count++; *last = k; }
    return heti_max(count, 1);
}

/* Whether the present job runs an action: those of micro-batches that are not there, and of slices
   without rows, are left out, by everybody. */
static int heti_takes_part(const het_ctx *ctx, const het_action *a) {
    const int computes = a->kind <= HET_ACTION_RECV_B;
    if (computes && a->micro_batch >= ctx->share.batch_count[a->pipeline]) return 0;
    if (computes && ctx->share.plan->slices > 1) {
        const heti_border *cut = heti_cuts_of(ctx, a) + a->slice;
        if (cut[1].row == cut[0].row) return 0;
    }
    if (ctx->task.job == HETI_JOB_STEP) return 1;
    if (ctx->task.job == HETI_JOB_GRADIENTS)
        return a->kind != HET_ACTION_STEP && a->kind != HET_ACTION_GATHER &&
               (a->kind != HET_ACTION_REDUCE || ctx->share.updates < 2); /* else heti_verdict reduces */
    return heti_goes_forward(a) && (ctx->task.job == HETI_JOB_EVALUATE || ctx->task.job == HETI_JOB_INFER);
}

/* =================================================================================================
   >>flow  What holders of a block send each other piece by piece: sums to their owners and new
           weights back, terms of gradients and weights of which a rank has only a part (ZeRO-2,
           ZeRO-3), and what keepers sum and update.

   A flow is one direction of one kind between two ranks. heti_next_piece says which elements travel
   next; heti_advance_flow posts them, up to a window at once, and copies or adds what has come.
   The backward call of a unit adds to a buffer that was cleared before, and what is in it
   afterwards is sent to the owners, who add it to their parts: exact sums have no order
   (DETERMINISM), so that it may come at any time. Weights that are sharded come into a buffer
   before the call that uses them, those of the next call while it computes; they do not change
   before VERDICT, so that their holders send ahead. There are two buffers of each kind, and one for
   terms from each peer, as large as a piece: a rank that computes takes what has come between its
   units only, and what comes then should be all there is of a block. Else sums go to the owners
   at REDUCE, and new weights come at GATHER from their owners to all who hold them (>>moves), in
   the order of heti_order_moves, all on their way at once, through a window of pieces from each
   peer. Float sums are added in one order (heti_is_next). Every rank knows all lists of actions,
   and so which pieces it gets from whom in which order. Whoever waits goes on sending and
   receiving, so that nobody waits for ever.
   Bytes, for a block of E elements of which a rank owns or holds a share s: a backward call sends
   8 (1 - s) E, a call that uses weights receives 4 (1 - s) E.
   ============================================================================================== */

/* Where element `element` of a parameter's gradient is summed. */
static void *heti_sum_at(const heti_rank *r, int64_t parameter, int64_t element) {
    return r->part->gradients + r->part->sum_at[parameter] + element * heti_sum_width(r, parameter);
}

/* Which of the sums that owners have of a block is update u's: the last one's, which stays, 0. */
static int64_t heti_window_of(const heti_rank *r, int64_t b, int64_t u) {
    return heti_max(0, heti_updates_of_block(r->ctx, b) - 1 - u) % heti_windows(r->ctx, b);
}

/* How many elements of a block the rank owns. */
static int64_t heti_owned_count(const heti_rank *r, int64_t b) {
    const heti_owners *owners = &r->ctx->share.owners[b];
    const int64_t i = heti_holder_of(owners, r->rank);
    return i < 0 ? 0 : owners->cut[i + 1] - owners->cut[i];
}

/* From where the owned part of a block's gradient is summed to where update u's is, in floats. */
static int64_t heti_window_at(const heti_rank *r, int64_t b, int64_t u) {
    return heti_updates_often(r->ctx) ? 2 * heti_window_of(r, b, u) * heti_owned_count(r, b) : 0;
}

/* The same of a block that several ranks hold, of update u. */
static void *heti_block_sum_at(const heti_rank *r, int64_t b, int64_t element, int64_t u) {
    return HETI_CAST(float *, heti_sum_at(r, r->ctx->chain.block[b].parameter, element)) + heti_window_at(r, b, u);
}

static int heti_is_trained(const heti_rank *r, int64_t b) {
    return r->part->sum_at[r->ctx->chain.block[b].parameter] != HETI_NOWHERE;
}

/* Zeros for a sum into which nothing was written. */
static het_result heti_fill_sum(heti_rank *r, int64_t parameter) {
    const int64_t floats = r->ctx->chain.parameter[parameter].count * heti_sum_width(r, parameter);
    if (!r->part->empty[parameter]) return HET_OK;
    r->part->empty[parameter] = 0;
    return heti_clear(r, heti_sum_at(r, parameter, 0), floats, sizeof(float));
}

/* Of a block. */
static het_result heti_fill_sums(heti_rank *r, int64_t b) {
    for (int64_t p = r->ctx->chain.block[b].parameter; p >= 0; p = r->ctx->chain.parameter[p].next)
        HETI_TRY(heti_fill_sum(r, p));
    return HET_OK;
}

/* sum += term, both `count` doubles or floats on the host. */
static void heti_add_elements(void *sum, const void *term, int64_t count, size_t element) {
    double *wide = HETI_CAST(double *, sum);
    float *narrow = HETI_CAST(float *, sum);
    if (element == sizeof(double))
        for (int64_t i = 0; i < count; i++) wide[i] += HETI_CAST(const double *, term)[i];
    else
        for (int64_t i = 0; i < count; i++) narrow[i] += HETI_CAST(const float *, term)[i];
}

/* The same into device memory, where the host does not see it by way of the staging memory. The
   term is on the host, and may be overwritten, or (own) in device memory as well. */
static het_result heti_add_terms(heti_rank *r, void *sum, void *term, int64_t count, size_t element, int own) {
    const int64_t room = own ? HETI_STAGING / 2 : HETI_STAGING;
    double *scratch = r->part->staging;
    char *to = HETI_CAST(char *, sum), *from = HETI_CAST(char *, term);
    int64_t at, n;
    if (r->device.iface->host_memory) {
        if (own) HETI_TRY(heti_sync(r));
        heti_add_elements(sum, term, count, element);
        return HET_OK;
    }
    for (at = 0; at < count; at += n, to += HETI_CAST(size_t, n) * element, from += HETI_CAST(size_t, n) * element) {
        void *added = own ? HETI_CAST(void *, scratch + room) : from;
        n = heti_min(room, count - at);
        if (own) HETI_TRY(heti_copy_out_later(r, added, from, n, element));
        HETI_TRY(heti_copy_out(r, scratch, to, n, element));
        heti_add_elements(added, scratch, n, element);
        HETI_TRY(heti_copy_in(r, to, added, n, element));
        HETI_TRY(heti_sync(r));
    }
    return HET_OK;
}

/* 0: the job is generation, which the last group of a team does. */
static int heti_infers(const het_ctx *ctx, int64_t rank) {
    int64_t count, i = 0;
    const het_team_member *team = het_plan_team(ctx->share.plan, rank, &count);
    while (team && team[i].rank != rank) i++;
    return ctx->task.job != HETI_JOB_INFER || !team || team[i].group == team[count - 1].group;
}

/* ---- calls of units: those of a pass of an action, F, B, I or W ---- */

/* Whether an action's first pass is F once more: whoever fetches weights knows it of all ranks. */
static int heti_recomputes_whole(const het_ctx *ctx, const het_action *a) {
    return heti_goes_back(a) && heti_recompute_of(ctx->share.plan, a) == HET_RECOMPUTE_STAGE;
}

/* Whether unit `unit` has added its parameters' gradients when a pass's call of it is over. */
static int heti_adds_gradients(const het_ctx *ctx, int32_t pass, int64_t unit) {
    if (pass == HET_ACTION_B) return 1;
    return pass == (ctx->chain.unit[unit].info.is_loss ? HET_ACTION_I : HET_ACTION_W);
}

/* Which weights a pass's call of a unit uses: 0: none, 1: vectors, from which a program's W
   makes values again, 2: all. */
static int heti_uses_weights(const het_ctx *ctx, int32_t pass, int64_t unit) {
    const het_described_unit *u = &ctx->chain.unit[unit];
    const int program = u->unit.iface->forward == het_program_forward;
    if (pass == HET_ACTION_F)
        return program && u->info.is_loss && (heti_trains(ctx) || u->info.out_streams > 0) ? 0 : 2;
    if (pass == HET_ACTION_W) return u->info.is_loss ? 0 : program && u->program.factors == 0 ? 1 : 2;
    return 2;
}

/* Whose list a flow follows. */
static int64_t heti_driver(const heti_rank *r, const heti_flow *f) {
    const int32_t fetched = f->kind == HETI_FLOW_WEIGHTS || (f->kind == HETI_FLOW_GATHER && heti_updates_often(r->ctx));
    return fetched == f->receives ? r->rank : f->peer;
}

/* Whether something moves at a block's REDUCE, or GATHER. */
static int heti_is_moved(const het_ctx *ctx, int gather, int64_t b) {
    return heti_is_shared(ctx, b) && (gather || !heti_is_sharded(ctx, HETI_FLOW_SUMS, b));
}

/* Whether an action is such a one. */
static int heti_has_moves(const het_ctx *ctx, const het_action *a) {
    if (a->kind != HET_ACTION_REDUCE && a->kind != HET_ACTION_GATHER) return 0;
    return heti_is_moved(ctx, a->kind == HET_ACTION_GATHER, a->stage);
}

/* Whether something of a kind flows because of an action, of a pass's call of a unit. */
static int heti_has_flow(const het_ctx *ctx, heti_flow_kind kind, const het_action *a, int32_t pass, int64_t unit) {
    if (a->kind == HET_ACTION_REDUCE || a->kind == HET_ACTION_GATHER)
        return kind == (a->kind == HET_ACTION_REDUCE ? HETI_FLOW_SUMS : HETI_FLOW_GATHER) && heti_has_moves(ctx, a);
    if (a->kind > HET_ACTION_W || kind == HETI_FLOW_GATHER) return 0;
    if (pass != HET_ACTION_F && ctx->share.plan->cut[unit] == HET_CUT_NONE) return 0;
    if (!(kind == HETI_FLOW_SUMS ? heti_adds_gradients(ctx, pass, unit) : heti_uses_weights(ctx, pass, unit)))
        return 0;
    return heti_next_flowing(ctx, kind, unit, -1) >= 0;
}

/* Whether pieces of a kind go through the blocks as they become ready (heti_order_moves), not
   through a list of actions. */
static int heti_goes_by_blocks(const het_ctx *ctx, heti_flow_kind kind) {
    if (heti_updates_often(ctx) || kind == HETI_FLOW_WEIGHTS) return 0;
    return kind == HETI_FLOW_GATHER || ctx->share.plan->shard < HET_SHARD_GRADIENTS;
}

/* Moves to the next block that is reduced or gathered; 0: there is none. */
static int heti_next_moved(const heti_rank *r, heti_flow_kind kind, heti_flow_piece *p) {
    const int64_t blocks = r->ctx->chain.block_count;
    const int gather = kind == HETI_FLOW_GATHER;
    const heti_job job = r->ctx->task.job;
    while (++p->action < (job == HETI_JOB_STEP || (job == HETI_JOB_GRADIENTS && !gather) ? blocks : 0)) {
        p->moved = r->part->flow.order[gather * blocks + p->action];
        if (heti_is_moved(r->ctx, gather, p->moved)) return 1;
    }
    return 0;
}

/* Moves to the next call of a rank that has something to send; 0: there is none. */
static int heti_next_call(const het_ctx *ctx, heti_flow_kind kind, int64_t driver, heti_flow_piece *p) {
    const het_plan *plan = ctx->share.plan;
    const het_schedule *s = ctx->share.schedule;
    const int64_t end = s->start[heti_leader(plan, driver) + 1];
    do {
        if (p->left > 0) {
            p->left--;
            p->unit += p->pass == HET_ACTION_F ? 1 : -1;
        } else {
            const int more = p->unit >= 0 && p->pass != s->action[p->action].kind; /* it was recomputed */
            if (!more)
                for (p->action++; p->action < end && !heti_takes_part(ctx, &s->action[p->action]); p->action++) {}
            if (p->action >= end) return 0;
            p->unit = -1;
            const het_action *a = &s->action[p->action];
            p->moved = a->stage;
            if (a->kind > HET_ACTION_W) continue;
            const het_stage *stage = &plan->stage[plan->first_stage[a->pipeline] + a->stage];
            p->pass = more || !heti_recomputes_whole(ctx, a) ? a->kind : HETI_CAST(int32_t, HET_ACTION_F);
            p->unit = p->pass == HET_ACTION_F ? stage->unit_begin : stage->unit_end - 1;
            p->left = stage->unit_end - stage->unit_begin - 1;
        }
    } while (!heti_has_flow(ctx, kind, &s->action[p->action], p->pass, p->unit));
    return 1;
}

/* What one rank sends another of a block: of terms elements that the receiver owns, of weights
   floats that the sender holds; at its REDUCE and GATHER what takes this way (heti_route). */
static void heti_flow_range(const het_ctx *ctx, heti_flow_kind kind, int64_t sender, int64_t receiver,
                            heti_flow_piece *p) {
    const het_plan *plan = ctx->share.plan;
    const heti_owners *owners = &ctx->share.owners[p->block];
    const int64_t from = heti_holder_of(owners, sender), to = heti_holder_of(owners, receiver);
    p->first = p->end = 0;
    if (from < 0 || to < 0) return;
    if (kind == HETI_FLOW_SUMS && heti_keeps(plan, sender)) return; /* it has made none */
    if (kind == HETI_FLOW_WEIGHTS && ctx->share.near && plan->near[sender] != plan->near[receiver]) return;
    if (p->unit < 0) {
        if (kind == HETI_FLOW_SUMS) heti_route(owners, from, to, p->route, &p->first, &p->end);
        else heti_route(owners, to, from, p->route, &p->first, &p->end);
    } else {
        const heti_span sent = heti_held(ctx, p->block, from);
        p->first = kind == HETI_FLOW_WEIGHTS ? sent.first : owners->cut[to];
        p->end = kind == HETI_FLOW_WEIGHTS ? sent.end : owners->cut[to + 1];
    }
    if (kind == HETI_FLOW_SUMS || (kind == HETI_FLOW_GATHER && heti_is_boxed(ctx, receiver, p->block))) return;
    if (kind == HETI_FLOW_GATHER) {
        const heti_span held = heti_held(ctx, p->block, to);
        p->first = heti_max(p->first, held.first);
        p->end = heti_min(p->end, held.end);
    }
    if (p->parameter >= 0) { /* of a vector alone */
        const heti_parameter *vector = &ctx->chain.parameter[p->parameter];
        p->first = heti_max(p->first, vector->offset);
        p->end = heti_min(p->end, vector->offset + (vector->count + 15) / 16 * 16);
    }
    if (p->first >= p->end) return;
    p->first = heti_weight_place(ctx, p->block, p->first);
    p->end = heti_weight_place(ctx, p->block, p->end);
}

/* Moves to the next route of a block or, where a call uses only vectors, to the next of these, to
   the next block of the present call; 0: there is none. */
static int heti_next_range(const het_ctx *ctx, heti_flow_kind kind, heti_flow_piece *p) {
    const int vectors = kind == HETI_FLOW_WEIGHTS && heti_uses_weights(ctx, p->pass, p->unit) == 1;
    for (;;) {
        for (p->parameter++; vectors && p->block >= 0 && p->parameter < ctx->chain.parameter_count; p->parameter++) {
            const heti_parameter *v = &ctx->chain.parameter[p->parameter];
            if (v->block == p->block && v->desc.columns == 1) return 1;
        }
        p->parameter = -1;
        if (p->unit < 0 && p->block >= 0 && ++p->route < ctx->share.owners[p->block].clusters) return 1;
        p->route = 0;
        if (p->unit < 0) p->block = p->block < 0 ? p->moved : -1;
        else p->block = heti_next_flowing(ctx, kind, p->unit, p->block);
        if (p->block < 0 || !vectors) return p->block >= 0;
    }
}

/* Whose boxes a flow's pieces are made of: terms and sums come from them, new weights go there. */
static int64_t heti_piece_user(const heti_rank *r, const heti_flow *f) {
    return (f->kind == HETI_FLOW_SUMS) == f->receives ? f->peer : r->rank;
}

/* Elements of a piece that travel: those that its user uses. */
static int64_t heti_piece_elements(const het_ctx *ctx, int64_t user, const heti_flow_piece *p) {
    heti_box_run run = heti_runs_from(p->first);
    int64_t sum = 0;
    if (!heti_is_boxed(ctx, user, p->block)) return p->count;
    while (heti_next_run(ctx, user, p->block, p->first + p->count, &run)) sum += run.count;
    return sum;
}

/* Moves to the next piece of a flow; count 0: there is none. */
static void heti_next_piece(const heti_rank *r, heti_flow *f) {
    const het_ctx *ctx = r->ctx;
    const int64_t sender = f->receives ? f->peer : r->rank, receiver = f->receives ? r->rank : f->peer,
                  most = heti_most_piece(ctx);
    heti_flow_piece *p = &f->next;
    do {
        p->first += p->count;
        while ((p->count = heti_min(most, p->end - p->first)) <= 0) {
            p->count = 0;
            if (p->call >= 0 && heti_next_range(ctx, f->kind, p)) {
                heti_flow_range(ctx, f->kind, sender, receiver, p);
                continue;
            }
            if (heti_goes_by_blocks(ctx, f->kind) ? !heti_next_moved(r, f->kind, p)
                                                  : !heti_next_call(ctx, f->kind, heti_driver(r, f), p)) return;
            p->call++;
            p->block = -1;
        }
        p->elements = heti_piece_elements(ctx, heti_piece_user(r, f), p);
    } while (p->elements == 0);
}

/* What comes before the first piece of a list behind action number `action`. */
static heti_flow_piece heti_before_pieces(int64_t action) {
    heti_flow_piece p = HETI_ZEROS;
    p.action = action;
    p.unit = p.call = p.block = p.moved = p.parameter = -1;
    return p;
}

/* The first pieces of a job. */
static void heti_begin_flows(heti_rank *r) {
    heti_flows *flow = &r->part->flow;
    HETI_CLEAR(flow->call, HETI_FLOWS);
    flow->turn = flow->wanted = flow->ended = 0;
    for (heti_move *move = flow->move; move < flow->move + 2 * r->ctx->chain.block_count; move++) {
        move->record = NULL;
        move->begun = move->ticket = 0;
    }
    for (heti_flow *f = flow->flow; f < flow->flow + flow->flows; f++) {
        const int64_t driver = heti_driver(r, f);
        const int64_t start = r->ctx->share.schedule->start[heti_leader(r->ctx->share.plan, driver)];
        f->next = heti_before_pieces((heti_goes_by_blocks(r->ctx, f->kind) ? 0 : start) - 1);
        if (heti_infers(r->ctx, driver)) heti_next_piece(r, f);
    }
}

/* Where a block of a unit begins among what call number `call` adds, or has fetched. */
static float *heti_call_block(const heti_rank *r, heti_flow_kind kind, int64_t call, int64_t unit, int64_t b) {
    return r->part->flow.buffer[kind][call % 2] + heti_flow_place(r->ctx, kind, unit, b);
}

/* The sums of a block's boxes, where they lie apart. */
static double *heti_box_sums(const heti_rank *r, int64_t b) {
    return HETI_CAST(double *, HETI_CAST(void *, r->part->gradients + r->part->box_sum_at[b]));
}

/* The update that a piece belongs to. */
static int64_t heti_piece_update(const heti_rank *r, const heti_flow_piece *p) {
    return heti_updates_often(r->ctx) ? r->ctx->share.schedule->action[p->action].version : 0;
}

/* Where a run of a piece of `kind` lies on this rank, which sends or receives it. */
static void *heti_piece_at(const heti_rank *r, heti_flow_kind kind, int receives, const heti_flow_piece *p,
                           const heti_box_run *run) {
    const heti_part *part = r->part;
    if (p->unit >= 0 && receives == (kind == HETI_FLOW_WEIGHTS))
        return heti_call_block(r, kind, p->call, p->unit, p->block) + run->place * (kind == HETI_FLOW_SUMS ? 2 : 1);
    if (kind == HETI_FLOW_SUMS && !receives && part->box_sum_at[p->block] != HETI_NOWHERE)
        return heti_box_sums(r, p->block) + run->place;
    if (kind == HETI_FLOW_SUMS) return heti_block_sum_at(r, p->block, run->first, heti_piece_update(r, p));
    if (kind == HETI_FLOW_GATHER && receives && part->box_at[p->block] != HETI_NOWHERE)
        return heti_boxes(r, p->block, part->gathered[p->block] + (r->ctx->share.updates > 1)) + run->place;
    return part->weights + run->first +
           (kind == HETI_FLOW_GATHER && !receives ? part->own_at : part->weight_at)[p->block];
}

static size_t heti_flow_element(const heti_rank *r, heti_flow_kind kind) {
    return kind == HETI_FLOW_SUMS && r->ctx->desc.reduce == HET_REDUCE_EXACT ? sizeof(double) : sizeof(float);
}

/* Where piece number `number` passes through the host; NULL: it travels from where it lies. */
static char *heti_piece_data(const heti_flow *f, int64_t number) {
    return f->data ? f->data + HETI_CAST(size_t, number % f->slots) * f->slot : NULL;
}

static heti_move *heti_move_of(const heti_rank *r, int gather, int64_t b) {
    return &r->part->flow.move[gather * r->ctx->chain.block_count + b];
}

/* A piece between `data` and where its runs lie. */
static het_result heti_copy_runs(heti_rank *r, const heti_flow *f, const heti_flow_piece *p, char *data) {
    const size_t size = heti_flow_element(r, f->kind);
    heti_box_run run = heti_runs_from(p->first);
    while (heti_next_run(r->ctx, heti_piece_user(r, f), p->block, p->first + p->count, &run)) {
        void *at = heti_piece_at(r, f->kind, f->receives, p, &run);
        if (!f->receives) HETI_TRY(heti_copy_out(r, data, at, run.count, size));
        else if (f->kind == HETI_FLOW_SUMS) HETI_TRY(heti_add_terms(r, at, data, run.count, size, 0));
        else HETI_TRY(heti_copy_in(r, at, data, run.count, size));
        data += HETI_CAST(size_t, run.count) * size;
    }
    return f->receives ? heti_sync(r) : HET_OK;
}

/* The oldest piece of a flow that has not come or left; count 0: there is none. */
static const heti_flow_piece *heti_oldest_piece(const heti_flow *f) {
    return f->begun > f->ended ? &f->under_way[f->ended % f->slots] : &f->next;
}

/* A flow is behind the last element of a piece that another has at the same place in its list. */
static int heti_is_behind(const heti_flow *f, const heti_flow_piece *p) {
    const heti_flow_piece *at = heti_oldest_piece(f);
    if (at->count == 0 || at->action != p->action) return at->count == 0 || at->action > p->action;
    return at->route != p->route ? at->route > p->route : at->first >= p->first + p->count;
}

/* The rank's end of the group of its cluster of a block; NULL: it has none. */
static heti_endpoint *heti_cluster_end(const heti_rank *r, int64_t b) {
    const heti_owners *o = &r->ctx->share.owners[b];
    const int64_t i = heti_holder_of(o, r->rank);
    return i < 0 ? NULL : heti_endpoint_of(r->part, o->group[heti_cluster_of(o, i)]);
}

/* What a collector passes on to another rank has come: to one outside of its cluster sums from all
   inside, to one inside new weights from their owners outside. */
static int heti_has_come(const heti_rank *r, heti_flow_kind kind, int64_t to, const heti_flow_piece *p) {
    const heti_owners *o = &r->ctx->share.owners[p->block];
    if (o->clusters == o->holders) return 1;
    const int64_t own = heti_cluster_of(o, heti_holder_of(o, r->rank)),
                  from = kind == HETI_FLOW_SUMS ? own : p->route;
    if (own == (kind == HETI_FLOW_GATHER ? from : heti_cluster_of(o, heti_holder_of(o, to))))
        return 1;
    for (const heti_flow *f = r->part->flow.flow; f < r->part->flow.flow + r->part->flow.flows; f++) {
        if (f->kind != kind || !f->receives || heti_is_behind(f, p)) continue;
        const int64_t peer = heti_holder_of(o, f->peer);
        if (peer >= 0 && heti_cluster_of(o, peer) == from) return 0;
    }
    return 1;
}

/* Whether sums of a REDUCE may be sent, or may come: the rank has come to its own, before which it
   may not have any, its group has done with them, and what others add to them is there. */
static int heti_may_reduce(const heti_rank *r, const heti_flow *f) {
    const heti_flow_piece *p = &f->next;
    const heti_endpoint *end = heti_cluster_end(r, p->block);
    const heti_move *move = heti_move_of(r, 0, p->block);
    if (f->receives && !heti_holds_all(r->ctx)) return 1;
    if (!move->record) return 0;
    if (end && (move->ticket == 0 || end->finished < move->ticket)) return 0;
    return f->receives || heti_has_come(r, HETI_FLOW_SUMS, f->peer, p);
}

/* Whether the next piece may be sent, or may come. Of several updates an owner takes the terms of
   those that it has sums for, and gives away the version that it has made last. */
static int heti_may_begin(const heti_rank *r, const heti_flow *f) {
    const heti_flow_piece *p = &f->next;
    const int64_t over = r->part->flow.call[f->kind];
    if (p->unit < 0 && f->kind == HETI_FLOW_SUMS && !heti_updates_often(r->ctx)) return heti_may_reduce(r, f);
    if (heti_updates_often(r->ctx) && f->receives && f->kind == HETI_FLOW_SUMS)
        return heti_piece_update(r, p) < r->part->stepped[p->block] + heti_windows(r->ctx, p->block);
    if (heti_updates_often(r->ctx) && !f->receives && f->kind == HETI_FLOW_GATHER)
        return r->part->stepped[p->block] == heti_piece_update(r, p) + 1;
    if (heti_updates_often(r->ctx)) return p->call < over;
    if (f->kind == HETI_FLOW_WEIGHTS) return !f->receives || p->call <= over + 1; /* two buffers */
    /* new weights lie where the old ones do, which are used until the rank comes to its REDUCE */
    if (f->receives)
        return f->kind != HETI_FLOW_GATHER || p->unit >= 0 || heti_move_of(r, 0, p->block)->record ||
               heti_move_of(r, 1, p->block)->record;
    return p->unit < 0 ? heti_move_of(r, 1, p->block)->record && heti_has_come(r, f->kind, f->peer, p) : p->call < over;
}

/* The record of the REDUCE or GATHER that a piece belongs to, of several updates the one that it is
   sent by or fetched by; NULL: it is one of another rank, one to come, or of a unit's call. */
static het_record *heti_piece_record(const heti_rank *r, const heti_flow *f, const heti_flow_piece *p) {
    const heti_part *part = r->part;
    const int32_t kind = f->kind == HETI_FLOW_SUMS ? HET_ACTION_REDUCE : HET_ACTION_GATHER;
    if (p->unit >= 0) return NULL;
    if (!heti_updates_often(r->ctx)) return heti_move_of(r, kind == HET_ACTION_GATHER, p->block)->record;
    for (int64_t i = part->records; heti_driver(r, f) == r->rank && i >= 0; i--) {
        het_record *record = &part->record[i];
        if (i < part->actions && record->action.stage == p->block && record->action.kind == kind &&
            record->action.version == heti_piece_update(r, p))
            return record;
    }
    return NULL;
}

/* The first piece of a REDUCE or GATHER is given to a link: its record begins. */
static void heti_begin_record(heti_rank *r, const heti_flow *f) {
    het_record *record = heti_updates_often(r->ctx) ? NULL : heti_piece_record(r, f, &f->next);
    heti_move *move = heti_move_of(r, f->kind == HETI_FLOW_GATHER, f->next.block);
    if (record && !move->begun) record->start = record->end = heti_now() - r->began;
    move->begun = record != NULL;
}

/* How many ranks' gradients of update u of a block have come. */
static int64_t *heti_arrived(const heti_rank *r, int64_t b, int64_t u) {
    return &r->part->arrived[b * heti_window(r->ctx->share.plan) + heti_window_of(r, b, u)];
}

/* Whether the oldest piece under way may be taken: of an element's float sums those of the ranks
   behind this one come first. */
static int heti_is_next(const heti_rank *r, const heti_flow *f) {
    const int64_t ranks = r->ctx->world.ranks, turn = (f->peer - r->rank + ranks) % ranks;
    if (!f->receives || f->kind != HETI_FLOW_SUMS || r->ctx->desc.reduce == HET_REDUCE_EXACT) return 1;
    for (const heti_flow *g = r->part->flow.flow; g < r->part->flow.flow + r->part->flow.flows; g++)
        if (g->receives && g->kind == f->kind && (g->peer - r->rank + ranks) % ranks < turn &&
            !heti_is_behind(g, heti_oldest_piece(f))) return 0;
    return 1;
}

/* A piece has left, or come. */
static het_result heti_end_piece(heti_rank *r, heti_flow *f) {
    const int64_t number = f->ended++;
    const heti_flow_piece *p = &f->under_way[number % f->slots], *next = heti_oldest_piece(f);
    het_record *record = heti_piece_record(r, f, p);
    char *data = heti_piece_data(f, number);
    if (heti_updates_often(r->ctx) && heti_driver(r, f) == f->peer &&
        (next->count == 0 || next->action != p->action)) { /* all of the peer's action */
        ++*(f->receives ? heti_arrived(r, p->block, heti_piece_update(r, p)) : &r->part->given[p->block]);
        r->part->flow.came = 1;
    }
    if (record) {
        if (!f->receives || heti_updates_often(r->ctx))
            record->bytes += p->elements * HETI_CAST(int64_t, heti_flow_element(r, f->kind));
        record->end = heti_now() - r->began;
    }
    return f->receives && data ? heti_copy_runs(r, f, p, data) : HET_OK;
}

/* Takes what has come or gone and posts what is next, as far as it goes without waiting. */
static het_result heti_advance_flow(heti_rank *r, heti_flow *f) {
    const heti_channel channel = HETI_CAST(heti_channel, HETI_CHANNEL_FLOW + HETI_CAST(int, f->kind));
    for (;;) {
        const int64_t slot = f->begun % f->slots;
        heti_box_run whole = heti_runs_from(f->next.first);
        char *data = heti_piece_data(f, f->begun);
        int done = 1;
        while (f->begun > f->ended && heti_is_next(r, f)) {
            HETI_TRY(heti_test_post(r, &f->post[f->ended % f->slots], &done));
            if (!done) break;
            HETI_TRY(heti_end_piece(r, f));
        }
        if (f->begun - f->ended == f->slots || f->next.count == 0 || !heti_may_begin(r, f)) return HET_OK;
        if (data && !f->receives) HETI_TRY(heti_copy_runs(r, f, &f->next, data));
        whole.place = whole.first;
        f->under_way[slot] = f->next;
        f->begun++;
        heti_begin_record(r, f);
        HETI_TRY(heti_start_post(r, &f->post[slot], f->receives, f->peer, channel,
                                 data ? data : heti_piece_at(r, f->kind, f->receives, &f->next, &whole),
                                 HETI_CAST(size_t, f->next.elements) * heti_flow_element(r, f->kind)));
        heti_next_piece(r, f);
    }
}

/* All pieces of a kind's calls up to the rank's own, less `back`, have come, or terms have left. */
static int heti_flowed_until(const heti_rank *r, heti_flow_kind kind, int64_t back) {
    const int receives = kind != HETI_FLOW_SUMS;
    for (const heti_flow *f = r->part->flow.flow; f < r->part->flow.flow + r->part->flow.flows; f++) {
        const heti_flow_piece *p = heti_oldest_piece(f);
        if (f->kind != kind || f->receives != receives || p->count == 0) continue;
        if (p->call <= r->part->flow.call[kind] - back) return 0;
    }
    return 1;
}

/* What the buffer of the next call that adds terms held before is sent. */
static int heti_terms_free(const heti_rank *r) { return heti_flowed_until(r, HETI_FLOW_SUMS, 2); }

/* The weights of the next call that uses any are there. */
static int heti_weights_there(const heti_rank *r) { return heti_flowed_until(r, HETI_FLOW_WEIGHTS, 0); }

/* The rank's own part of what flows because of an action, of a pass's call of a unit: terms and
   sums of what it owns itself, weights that it holds itself. What lies where it belongs stays. */
static het_result heti_keep_own(heti_rank *r, heti_flow_kind kind, const het_action *a, int32_t pass, int64_t unit) {
    const char *what = kind == HETI_FLOW_WEIGHTS ? "copy of weights" : "copy of new weights";
    heti_flow_piece p = heti_before_pieces(a - r->ctx->share.schedule->action);
    p.moved = a->stage;
    p.unit = unit;
    p.pass = pass;
    p.call = r->part->flow.call[kind];
    while (heti_next_range(r->ctx, kind, &p)) {
        heti_flow_range(r->ctx, kind, r->rank, r->rank, &p);
        for (heti_box_run run = heti_runs_from(p.first); heti_next_run(r->ctx, r->rank, p.block, p.end, &run);) {
            void *from = heti_piece_at(r, kind, 0, &p, &run), *to = heti_piece_at(r, kind, 1, &p, &run);
            if (from == to) continue;
            if (kind == HETI_FLOW_SUMS) HETI_TRY(heti_add_terms(r, to, from, run.count, sizeof(double), 1));
            else HETI_TRY(heti_copy(r, HET_OP_COPY, to, from, HETI_CAST(size_t, run.count) * sizeof(float), what));
        }
    }
    return HET_OK;
}

/* The rank has come to the REDUCE or GATHER of a block. */
static het_result heti_start_flow(heti_rank *r, const het_action *a) {
    const heti_flow_kind kind = a->kind == HET_ACTION_GATHER ? HETI_FLOW_GATHER : HETI_FLOW_SUMS;
    if (!heti_has_flow(r->ctx, kind, a, a->kind, -1)) return HET_OK;
    if (kind == HETI_FLOW_SUMS || !heti_updates_often(r->ctx)) r->part->flow.call[kind]++;
    HETI_TRY(heti_keep_own(r, kind, a, a->kind, -1));
    if (heti_cluster_end(r, a->stage) && (kind == HETI_FLOW_SUMS || r->ctx->share.owners[a->stage].clusters == 1))
        return HET_OK; /* its queue comes behind the rank's own */
    return heti_sync(r);
}

/* Where the next call of a unit finds a version of its parameter number i, as it lies in memory. */
static float *heti_call_weight(const heti_rank *r, int64_t unit, int64_t i, int64_t version) {
    const int64_t parameter = r->ctx->chain.unit[unit].parameter[i];
    const heti_parameter *p = &r->ctx->chain.parameter[parameter];
    if (r->part->box_at[p->block] != HETI_NOWHERE)
        return heti_boxes_at(r, p->block, heti_version_place(r, p->block, version)) +
               heti_box_place(r->ctx, r->rank, p->block, parameter);
    if (!heti_is_sharded(r->ctx, HETI_FLOW_WEIGHTS, p->block)) return heti_weight(r, p, r->part->weight_at, 0);
    return heti_call_block(r, HETI_FLOW_WEIGHTS, r->part->flow.call[HETI_FLOW_WEIGHTS], unit, p->block) +
           p->weight_offset;
}

/* Before a unit's call: all weights that it uses are in a buffer, int8 as floats in another. */
static het_result heti_open_weights(heti_rank *r, const het_action *a, int32_t pass, int64_t unit) {
    const het_described_unit *u = &r->ctx->chain.unit[unit];
    if (r->part->flow.floats[1] > 0 && heti_has_flow(r->ctx, HETI_FLOW_WEIGHTS, a, pass, unit)) {
        HETI_TRY(heti_wait(r, NULL, heti_weights_there, "weights"));
        HETI_TRY(heti_keep_own(r, HETI_FLOW_WEIGHTS, a, pass, unit));
    }
    for (int64_t i = 0; i < u->info.parameters && heti_uses_weights(r->ctx, pass, unit) == 2; i++) {
        const heti_parameter *p = &r->ctx->chain.parameter[u->parameter[i]];
        const het_box box = heti_box_of(r->ctx, r->rank, &p->desc);
        if (!heti_expands(r, p)) continue;
        het_expand_args expand = heti_expansion(p, &box, heti_call_weight(r, unit, i, 0),
                                                r->part->expanded + heti_expanded_place(r, unit, i));
        HETI_TRY(heti_rank_op(r, HETI_OP(EXPAND, &expand), "expand"));
    }
    return HET_OK;
}

/* Behind it: the buffer may be filled again. */
static het_result heti_close_weights(heti_rank *r, const het_action *a, int32_t pass, int64_t unit) {
    if (r->part->flow.floats[1] == 0 || !heti_has_flow(r->ctx, HETI_FLOW_WEIGHTS, a, pass, unit)) return HET_OK;
    if (r->device.iface->host_memory) HETI_TRY(heti_sync(r));
    r->part->flow.call[HETI_FLOW_WEIGHTS]++;
    return HET_OK;
}

/* Before a unit's backward call that adds gradients: zeros where it adds to what may be empty, and
   in the buffer of what is sharded. */
static het_result heti_open_gradients(heti_rank *r, int64_t unit) {
    const het_described_unit *u = &r->ctx->chain.unit[unit];
    for (int64_t i = 0; i < u->info.parameters; i++)
        if (!u->info.parameter[i].product) HETI_TRY(heti_fill_sum(r, u->parameter[i]));
    if (heti_next_flowing(r->ctx, HETI_FLOW_SUMS, unit, -1) < 0) return HET_OK;
    HETI_TRY(heti_wait(r, NULL, heti_terms_free, "a gradient's receive"));
    return heti_clear(r, r->part->flow.buffer[HETI_FLOW_SUMS][r->part->flow.call[HETI_FLOW_SUMS] % 2],
                      heti_flow_place(r->ctx, HETI_FLOW_SUMS, unit, -1), sizeof(float));
}

/* Behind it: the own part is added, the others may leave. `rows`: of the call. */
static het_result heti_close_gradients(heti_rank *r, const het_action *a, int64_t unit, int64_t rows) {
    const het_described_unit *u = &r->ctx->chain.unit[unit];
    heti_part *part = r->part;
    for (int64_t i = 0; i < u->info.parameters && rows > 0; i++)
        if (u->info.parameter[i].product) part->empty[u->parameter[i]] = 0;
    if (heti_next_flowing(r->ctx, HETI_FLOW_SUMS, unit, -1) >= 0) {
        HETI_TRY(heti_keep_own(r, HETI_FLOW_SUMS, a, a->kind, unit));
        HETI_TRY(heti_sync(r)); /* the buffer is what it will be */
        part->flow.call[HETI_FLOW_SUMS]++;
    }
    return r->capturing ? HET_OK : heti_progress(r);
}

/* =================================================================================================
   >>moves  REDUCE and GATHER of blocks: their order, what groups do of them, what goes on beside
            computation; joining of a step's scalars.

   Each holder of a block owns a part of it. A cluster are holders that reach each other without the
   host (>>communicator); those of one process, where several processes have some; or, where more
   than HETRAIN_DIRECT are alone, as many as there are clusters. Of m in a cluster and K in all each
   sends the others (m - 1) / m of the block's sums, then owners in other clusters (1 / m - 1 / K)
   (heti_via); new weights come back this way. That is (K - 1) / K of the block, as around a ring,
   but a link's latency is met twice, without clusters once, where a ring meets it K - 1 times. From
   a cluster to others go once the parts that these own. What a collector passes on it has first
   added to its own sums, or put into its own weights. A group's ops take the place of the messages
   inside of its cluster: a reduce-scatter, or an all-gather, for each cluster's owners, one block
   after the other in one order that all ranks share. In exact mode a sum has no order
   (DETERMINISM); in fast mode the plan fixes it.
   ============================================================================================== */

/* What a rank's group moves of a block, for all clusters' owners. */
static het_result heti_give_block(heti_rank *r, heti_endpoint *end, int gather, int64_t b) {
    const heti_owners *o = &r->ctx->share.owners[b];
    const heti_communicator *group = &r->ctx->share.group[end->group];
    const int64_t element = HETI_CAST(int64_t, heti_flow_element(r, gather ? HETI_FLOW_GATHER : HETI_FLOW_SUMS)),
                  own = heti_holder_of(o, r->rank) - end->member;
    const het_communicators *groups = &r->ctx->desc.layout.communicators;
    int64_t *start = r->part->flow.start;
    HETI_TRY(heti_order_end(r, end, NULL));
    end->op = gather ? "all_gather" : "reduce_scatter";
    for (int64_t c = 0; c < o->clusters; c++) {
        for (int64_t m = 0; m < group->members; m++) heti_collected(o, own + m, c, &start[m], &start[m + 1]);
        if (start[0] == start[group->members]) continue;
        for (int64_t m = 0; m < group->members; m++) {
            const int64_t owner = gather ? end->member : m, bytes = (start[owner + 1] - start[owner]) * element;
            if (bytes == 0 || m == end->member) continue;
            heti_count_sent(r, group->member[m], HETI_CHANNEL_FLOW, bytes);
            heti_move_of(r, gather, b)->record->bytes += bytes;
        }
        HETI_TRY(heti_group_result(r, end, gather
            ? groups->iface->all_gather(groups->self, end->handle, end->queue,
                                        r->part->weights + r->part->weight_at[b], start, HET_COMMUNICATOR_F32)
            : groups->iface->reduce_scatter(groups->self, end->handle, end->queue, heti_block_sum_at(r, b, 0, 0), start,
                                            element == sizeof(double) ? HET_COMMUNICATOR_F64 : HET_COMMUNICATOR_F32)));
        end->given++;
    }
    return HET_OK;
}

/* New weights that a rank collects for its group have come from other clusters' owners. */
static int heti_has_collected(const heti_rank *r, int64_t place, int64_t b) {
    heti_flow_piece p = heti_before_pieces(place);
    p.block = b;
    for (p.first = INT64_MAX; p.route < r->ctx->share.owners[b].clusters; p.route++)
        if (!heti_has_come(r, HETI_FLOW_GATHER, r->rank, &p)) return 0;
    return 1;
}

/* Gives its group the block whose turn it is, and goes on to the next when that is done. */
static het_result heti_advance_group(heti_rank *r) {
    heti_flows *flow = &r->part->flow;
    const int64_t blocks = r->ctx->chain.block_count;
    for (; r->part->ends_of[HETI_GROUP_CLUSTER] > 0 && flow->turn < 2 * blocks; flow->turn++) {
        const int gather = flow->turn >= blocks;
        const int64_t b = flow->order[flow->turn];
        heti_endpoint *end = heti_cluster_end(r, b);
        heti_move *move = heti_move_of(r, gather, b);
        if (!end || !heti_is_moved(r->ctx, gather, b)) continue;
        if (!move->record || (gather && !heti_has_collected(r, flow->turn - blocks, b))) return HET_OK;
        if (move->ticket == 0) {
            if (!move->begun) move->record->start = heti_now() - r->began;
            move->begun = 1;
            HETI_TRY(heti_give_block(r, end, gather, b));
            move->ticket = end->given;
        }
        if (end->finished < move->ticket) return HET_OK;
        move->record->end = heti_now() - r->began;
        flow->ended++;
    }
    return HET_OK;
}

/* The order of reductions, and that of gathers: in which all their ranks were ready for them in the
   step before. VERDICT has told all ranks the same times, so that all have one order. Where times
   are equal, or not known, reductions come from the last block to the first. */
static void heti_order_moves(heti_rank *r) {
    const int64_t blocks = r->ctx->chain.block_count;
    heti_flows *flow = &r->part->flow;
    for (int64_t i = 0; i < 2 * blocks; i++) {
        const int32_t gather = i >= blocks;
        const int64_t b = gather ? i - blocks : blocks - 1 - i;
        const heti_move *move = flow->move + gather * blocks;
        int64_t *order = flow->order + gather * blocks, k = i - gather * blocks;
        for (; k > 0 && move[order[k - 1]].ready > move[b].ready; k--) order[k] = order[k - 1];
        order[k] = b;
    }
}

static int heti_moves_began(const heti_rank *r, const het_action *a) {
    return heti_has_moves(r->ctx, a) && heti_move_of(r, a->kind == HET_ACTION_GATHER, a->stage)->record;
}

/* The rank has come to a REDUCE or GATHER, or comes to it early. */
static het_result heti_start_moves(heti_rank *r, const het_action *a, het_record *record) {
    heti_move *move = heti_move_of(r, a->kind == HET_ACTION_GATHER, a->stage);
    if (!heti_has_moves(r->ctx, a)) return HET_OK;
    move->record = record;
    move->reached = HETI_CAST(int64_t, (heti_now() - r->began) * 1e9) + 1;
    r->part->flow.wanted += heti_cluster_end(r, a->stage) != NULL;
    return heti_start_flow(r, a);
}

static het_result heti_try_steps(heti_rank *r);

/* Takes what has come and gives what is next of groups and flows, without waiting. */
static het_result heti_progress(heti_rank *r) {
    const het_communicators *groups = &r->ctx->desc.layout.communicators;
    heti_part *part = r->part;
    for (heti_endpoint *end = part->end; end < part->end + part->ends; end++)
        if (end->finished < end->given)
            HETI_TRY(heti_group_result(r, end, groups->iface->test(groups->self, end->handle, &end->finished)));
    for (int moved = 1; moved;) { /* what one flow took, or an update, is what another waits for */
        moved = 0;
        for (heti_flow *f = part->flow.flow; f < part->flow.flow + part->flow.flows; f++) {
            const int64_t before = f->begun + f->ended;
            HETI_TRY(heti_advance_flow(r, f));
            moved |= f->begun + f->ended != before;
        }
        if (part->flow.came) HETI_TRY(heti_try_steps(r));
    }
    return heti_advance_group(r);
}

/* Nothing is missing of what the rank has started but flows of a kind. */
static int heti_over(const heti_rank *r, int64_t but) {
    const heti_part *part = r->part;
    for (const heti_flow *f = part->flow.flow; f < part->flow.flow + part->flow.flows; f++)
        if (f->kind != but && heti_flow_left(f)) return 0;
    return part->flow.ended == part->flow.wanted;
}
static int heti_reduced(const heti_rank *r) { return heti_over(r, HETI_FLOW_GATHER); }
static int heti_flowed(const heti_rank *r) { return heti_over(r, HETI_FLOWS); }

/* ---- joining: the same integers on all ranks that work ----
   A rank that no stage names holds nothing and takes no part. The first ranks that work of each
   process are a tree, and below each the others of its process. Values go up and down again.
   Processes without work have a tree of their own, whose first one hears the outcome from the root;
   only they wait for each other. */

static het_result heti_start_join(heti_rank *r, heti_post *post, int receives, int64_t peer, int64_t *values,
                                  int64_t count) {
    return heti_start_post(r, post, receives, peer, HETI_CHANNEL_JOIN, values,
                           HETI_CAST(size_t, count) * sizeof *values);
}

/* Those below the rank have what it told them last. */
static het_result heti_told(heti_rank *r) {
    for (heti_post *p = r->join + 1; p < r->join + HETI_JOINS && HETI_ATOMIC_LOAD(&p->state); p++)
        HETI_TRY(heti_wait(r, p, NULL, "a receive"));
    return HET_OK;
}

/* The first `sums` integers of all ranks that work added up, of the others the largest, in `joined`
   of all ranks of the tree. It may be written again when those below have been told (heti_told). */
static het_result heti_join(heti_rank *r, int64_t sums, int64_t count) {
    const heti_tree *t = &r->ctx->share.tree;
    const het_tree_place *place = heti_tree_place_of(r->ctx, r->rank);
    const int64_t from = place ? place->from : -1;
    int64_t *own = r->part->joined, *other = own, below = 0, i;
    for (int64_t k = 0; k < t->working; k++)
        if (t->place[k].from == r->rank)
            HETI_TRY(heti_start_join(r, &r->join[++below], 1, t->place[k].rank, other += count, count));
    for (int64_t k = 1; k <= below; k++) {
        HETI_TRY(heti_wait(r, &r->join[k], NULL, "the verdict"));
        other = own + k * count;
        for (i = 0; i < sums; i++) own[i] += other[i];
        for (; i < count; i++) own[i] = heti_max(own[i], other[i]);
    }
    for (int receives = 0; receives < 2 && from >= 0; receives++) { /* up, unless it only watches, and down */
        if (!receives && place >= t->place + t->working) continue;
        HETI_TRY(heti_start_join(r, &r->join[0], receives, from, own, count));
        HETI_TRY(heti_wait(r, &r->join[0], NULL, "the verdict"));
    }
    for (int64_t k = below = 0; k < t->working + t->watching; k++)
        if (t->place[k].from == r->rank)
            HETI_TRY(heti_start_join(r, &r->join[++below], 0, t->place[k].rank, own, count));
    return HET_OK;
}

/* =================================================================================================
   >>exec  Micro-batches into places, units into calls, actions into work.

   A step is a list of actions a rank; heti_execute runs any such list. F and B walk over the units
   of a stage for one slice of one micro-batch. What a stage makes for its neighbour becomes a
   message; what it needs from it is one. Everything else a rank does between two actions is moving
   its reductions on.
   ============================================================================================== */

/* ---- micro-batches into their places ---- */

/* Brings rows [first, n) of a micro-batch to the device, once the one loaded last has left the host
   arrays. What is computed on that may still run. */
static het_result heti_load_batch(heti_rank *r, heti_batch_slot *batch_slot, const het_batch *b, int64_t first) {
    heti_part *part = r->part;
    const int64_t rows = b->tokens - first;
    het_view *v = &batch_slot->view;
    HETI_TRY(heti_await_event(r, r->loaded));
    HETI_COPY(batch_slot->sequence_start, b->sequence_start, b->sequences + 1);
    HETI_TRY(heti_batch_granules(r->ctx, b, batch_slot->granule_start, &v->granules));
    for (int64_t s = 0; s < b->sequences; s++)
        for (int64_t i = heti_max(first, b->sequence_start[s]); i < b->sequence_start[s + 1]; i++) {
            part->host_position[i - first] = HETI_CAST(int32_t, i - b->sequence_start[s]);
            part->host_sequence_of[i - first] = HETI_CAST(int32_t, s);
        }
    for (int64_t i = 0; i < rows; i++) part->host_weight[i] = b->weight ? b->weight[i] : 1.0f;
    for (int64_t i = 0; i < b->sequences; i++) part->host_sample_id[i] = b->sample_id ? b->sample_id[i] : i;
    if (rows > 0) HETI_COPY(part->host_token, b->token, rows); /* else it may be NULL, which memcpy does not take */
    if (rows > 0) HETI_COPY(part->host_target, b->target, rows);
    /* elements [begin, end) of an array of the view, the first of which stand at `from` */
#define HETI_BRING(array, from, begin, end) \
    HETI_TRY(heti_copy_in(r, batch_slot->device_##array + (begin), (from), (end) - (begin), sizeof *(from)))
    HETI_BRING(token, part->host_token, first, b->tokens);
    HETI_BRING(target, part->host_target, first, b->tokens);
    HETI_BRING(position, part->host_position, first, b->tokens);
    HETI_BRING(sequence_of, part->host_sequence_of, first, b->tokens);
    HETI_BRING(weight, part->host_weight, first, b->tokens);
    HETI_BRING(sample_id, part->host_sample_id, 0, b->sequences);
    HETI_BRING(sequence_start, batch_slot->sequence_start, 0, b->sequences + 1);
    HETI_BRING(granule_start, batch_slot->granule_start, 0, v->granules + 1);
#undef HETI_BRING
    v->tokens = b->tokens;
    v->sequences = b->sequences;
    if (r->loaded) HETI_DEVICE(r, r->device.iface->queues->event_record(r->device.self, r->queue, r->loaded), "event");
    return HET_OK;
}

static heti_batch_slot *heti_find_batch_slot(heti_rank *r, int64_t stage, int64_t micro_batch) {
    heti_part *part = r->part;
    for (int64_t i = 0; i < part->batch_slot_count; i++)
        if (part->batch_slot[i].stage == stage && (stage < 0 || part->batch_slot[i].micro_batch == micro_batch))
            return &part->batch_slot[i];
    return NULL;
}

/* Of `count` slots or places the one with this slice of a micro-batch; with NULL a free one, of
   those that a PUT has left the one left first. */
static heti_slot *heti_find_slot(heti_slot *slot, int64_t count, const heti_batch_slot *batch_slot, int64_t slice) {
    heti_slot *found = NULL;
    for (int64_t i = 0; i < count; i++) {
        heti_slot *s = &slot[i];
        if (s->batch_slot == batch_slot && (batch_slot ? s->slice == slice : !found || s->moving < found->moving))
            found = s;
    }
    return found;
}

/* That of a slice of an action's micro-batch; NULL: there is none. */
static heti_slot *heti_slot_of(heti_rank *r, const heti_stage *stage, const het_action *a, int64_t slice) {
    const heti_batch_slot *batch_slot = heti_find_batch_slot(r, stage->number, a->micro_batch);
    return batch_slot ? heti_find_slot(r->part->slot, r->part->slot_count, batch_slot, slice) : NULL;
}

/* A free slot for a stage's slices; NULL: there is none. */
static heti_slot *heti_free_slot(heti_part *part, const heti_stage *stage) {
    const int64_t full = part->slot_count - part->lean_count;
    return heti_find_slot(part->slot + stage->lean * full, stage->lean ? part->lean_count : full, NULL, 0);
}

/* What is computed from now on comes behind the last copy to or from the slot. */
static het_result heti_await_moved(heti_rank *r, heti_slot *slot) {
    if (slot->moving > 0 && slot->moved)
        HETI_DEVICE(r, r->device.iface->queues->event_wait(r->device.self, r->queue, slot->moved), "wait for an event");
    slot->moving = 0;
    return HET_OK;
}

/* Room for the chains of a micro-batch that has none yet. */
static void heti_take_chain(heti_part *part, heti_batch_slot *batch_slot) {
    for (int64_t i = 0; batch_slot->chain < 0 && i < part->chain_count; i++) {
        int taken = 0;
        for (int64_t k = 0; k < part->batch_slot_count; k++)
            taken |= part->batch_slot[k].stage >= 0 && part->batch_slot[k].chain == i;
        if (!taken) batch_slot->chain = i;
    }
}

/* Places for activations of a slice going forward; the first with rows loads its micro-batch. */
static het_result heti_open_slot(heti_rank *r, const heti_stage *stage, const het_action *a, heti_slot **slot) {
    heti_batch_slot *batch_slot = heti_find_batch_slot(r, stage->number, a->micro_batch);
    const int loads = !batch_slot;
    int64_t last = 0;
    if (loads) batch_slot = heti_find_batch_slot(r, -1, 0);
    *slot = heti_free_slot(r->part, stage);
    if (!batch_slot || !*slot)
        return heti_rank_fail(r, HET_ERR_STATE, "no place for the activations of micro-batch %d, slice %d",
                              HETI_CAST(int64_t, a->micro_batch), HETI_CAST(int64_t, a->slice));
    if (loads) {
        HETI_TRY(heti_load_batch(r, batch_slot, &r->ctx->task.batches[heti_batch_of(r->ctx, a)], 0));
        batch_slot->stage = stage->number;
        batch_slot->micro_batch = a->micro_batch;
        batch_slot->version = a->version;
        batch_slot->chain = -1;
        batch_slot->slices = heti_slices_with_rows(r->ctx, a, &last);
    }
    (*slot)->slice = a->slice;
    (*slot)->batch_slot = batch_slot;
    return heti_await_moved(r, *slot);
}

static void heti_close_slot(heti_slot *slot) {
    if (--slot->batch_slot->slices == 0) slot->batch_slot->stage = -1;
    slot->batch_slot = NULL;
}

/* Of a micro-batch that only goes forward: where later slices read them, behind the last one. */
static void heti_close_slots(heti_rank *r, const heti_stage *stage, const het_action *a) {
    const heti_batch_slot *batch_slot = heti_find_batch_slot(r, stage->number, a->micro_batch);
    int64_t last = 0;
    (void)heti_slices_with_rows(r->ctx, a, &last);
    if (stage->gathers && a->slice < last) return;
    for (int64_t i = 0; i < r->part->slot_count; i++)
        if (r->part->slot[i].batch_slot == batch_slot) heti_close_slot(&r->part->slot[i]);
}

static void heti_free_slots(heti_rank *r) {
    heti_part *part = r->part;
    for (int64_t i = 0; i < part->batch_slot_count; i++) part->batch_slot[i].stage = -1;
    for (int64_t i = 0; i < part->slot_count; i++) part->slot[i].batch_slot = NULL;
    for (int64_t i = 0; i < part->place_count; i++) part->place[i].batch_slot = NULL;
}

/* ---- calling units ---- */

static float *heti_at(char *base, size_t offset) { return HETI_CAST(float *, HETI_CAST(void *, base + offset)); }

/* A parameter's gradient, summed in `sum`. */
static het_gradient heti_gradient_in(const heti_rank *r, int64_t parameter, void *sum) {
    const het_gradient g = { sum, r->ctx->desc.reduce == HET_REDUCE_EXACT, 1, heti_is_final(r, parameter),
                             r->part->grid + parameter, r->part->maximum + parameter };
    return g;
}

/* Where a unit's next backward call adds the gradient of one of its parameters. */
static void *heti_call_sum(const heti_rank *r, int64_t unit, int64_t parameter) {
    const heti_parameter *p = &r->ctx->chain.parameter[parameter];
    const int boxed = r->part->box_at[p->block] != HETI_NOWHERE;
    const int64_t place = boxed ? heti_box_place(r->ctx, r->rank, p->block, parameter) : p->offset;
    if (r->part->sum_at[parameter] == HETI_NOWHERE) return NULL;
    if (heti_is_sharded(r->ctx, HETI_FLOW_SUMS, p->block))
        return heti_call_block(r, HETI_FLOW_SUMS, r->part->flow.call[HETI_FLOW_SUMS], unit, p->block) + 2 * place;
    return r->part->box_sum_at[p->block] != HETI_NOWHERE ? HETI_CAST(void *, heti_box_sums(r, p->block) + place)
                                                         : heti_sum_at(r, parameter, 0);
}

/* Everything a unit's call needs except the gradient streams. */
static void heti_call_prepare(heti_rank *r, const heti_stage *stage, int64_t index, const heti_slot *slot,
                              const het_view *view, het_unit_call *c) {
    heti_part *part = r->part;
    const heti_placed *placed = &stage->unit[index - stage->unit_begin];
    const het_described_unit *unit = &r->ctx->chain.unit[index];
    char *from = stage->apart && heti_writer(stage, index - stage->unit_begin) ? part->shared : slot->memory,
         *to = placed->info.is_loss ? from : stage->apart ? part->shared : slot->memory,
         *chain = part->chains + HETI_CAST(size_t, heti_max(slot->batch_slot->chain, 0)) * part->chain_bytes,
         *whole = r->ctx->task.job == HETI_JOB_INFER ? chain + placed->inferred : part->shared + placed->gathered,
         *const base[] = { NULL, slot->memory, slot->batch_slot->memory, chain, part->shared, part->kept, whole };
    size_t gathered = 0;
    memset(c, 0, sizeof *c);
    c->unit = &unit->unit;
    c->info = &placed->info;
    c->device = &r->device;
    c->queue = r->queue;
    c->index = index;
    c->view = view;
    c->scalars = part->scalars;
    c->compute = r->ctx->desc.dtype;
    c->training = heti_trains(r->ctx);
    /* nobody shares the calls of a member that generates alone: it has all rows */
    if (part->team.members > 1 && (r->ctx->task.job != HETI_JOB_INFER || part->limits.heads > 0)) c->team = &part->team;
    c->rows = view->row_end - view->row_begin;
    for (int64_t i = 0; i < placed->info.in_streams; i++) c->in[i] = heti_at(from, placed->in_offset[i]);
    for (int64_t i = 0; i < placed->info.out_streams; i++) c->out[i] = heti_at(to, placed->out_offset[i]);
    for (int64_t i = 0; i < placed->info.tensors; i++) {
        const heti_region region = placed->region[i];
        if (region == HETI_REGION_NONE) continue;
        c->tensor[i] = heti_at(base[region], region == HETI_REGION_GATHERED ? gathered : placed->offset[i]);
        if (region == HETI_REGION_GATHERED)
            gathered += heti_round_up(HETI_CAST(size_t, part->tokens) * heti_tensor_row(&placed->info.tensor[i]),
                                      HETI_ALIGNMENT);
    }
    for (int64_t i = 0; i < placed->info.parameters; i++) {
        const heti_parameter *p = &r->ctx->chain.parameter[unit->parameter[i]];
        float *weight = heti_call_weight(r, index, i, slot->batch_slot->version);
        if (p->type == HET_BF16) c->weight_bf16[i] = HETI_CAST(const uint16_t *, HETI_CAST(void *, weight));
        else if (heti_expands(r, p)) c->weight[i] = part->expanded + heti_expanded_place(r, index, i);
        else if (p->type == HET_INT8) c->weight_int8[i] = HETI_CAST(const het_int8_block *, HETI_CAST(void *, weight));
        else c->weight[i] = weight;
        if (part->rounded_at[unit->parameter[i]] != HETI_NOWHERE)
            c->weight_bf16[i] = part->rounded + part->rounded_at[unit->parameter[i]];
        c->gradient[i] = heti_gradient_in(r, unit->parameter[i], heti_call_sum(r, index, unit->parameter[i]));
        if (unit->info.parameter[i].product) c->gradient[i].beta = !part->empty[unit->parameter[i]];
    }
    c->cosine = part->cosine;
    c->sine = part->sine;
    c->workspace = part->shared + placed->workspace;
    c->workspace_size = part->shared_bytes - placed->workspace;
    c->loss = index + 1 < r->ctx->chain.unit_count ? part->squares : part->loss;
}

/* The thread that this is: a rank's, or the caller's. */
static heti_inside *heti_inside_of(const het_ctx *ctx) {
#ifdef HETI_THREADS
    for (int64_t i = 0; i < ctx->world.local_count; i++)
        if (ctx->rank[i].threaded && pthread_equal(ctx->rank[i].thread, pthread_self())) return &ctx->rank[i].inside;
#endif
    return ctx->inside;
}

static het_result heti_call_hook(heti_rank *r, het_hook_info *info) {
    het_ctx *ctx = r->ctx;
    heti_inside *inside = heti_inside_of(ctx);
    inside->callback = "het_desc.host.hook";
    const het_result result = ctx->desc.host.hook(ctx->desc.host.user, info);
    inside->callback = NULL;
    if (result == HET_OK) return HET_OK;
    return heti_rank_fail(r, result, "the hook failed at unit %d (%s), micro-batch %d", info->unit, info->unit_name,
                          info->micro_batch);
}

/* The rows of all members to the leader, who shows them, and back. */
static het_result heti_hook_whole(heti_rank *r, const het_unit_call *c, het_hook_info *info) {
    const het_team *t = c->team;
    float *mine[HETRAIN_MAX_STREAMS];
    for (int64_t s = 0; s < info->streams; s++) {
        mine[s] = info->stream[s];
        info->stream[s] = r->part->whole_stream[s];
        HETI_TRY(heti_move_across(c, info->width[s], HETI_IN_ROWS, mine[s], HETI_IN_FIRST, info->stream[s]));
    }
    info->row = t->row[0];
    info->rows = t->row[t->members] - t->row[0];
    if (t->member == 0) HETI_TRY(heti_call_hook(r, info));
    for (int64_t s = 0; s < info->streams; s++)
        HETI_TRY(heti_move_across(c, info->width[s], HETI_IN_FIRST, info->stream[s], HETI_IN_ROWS, mine[s]));
    return HET_OK;
}

static het_result heti_hook(heti_rank *r, het_direction direction, const het_unit_call *c, const het_action *a) {
    het_ctx *ctx = r->ctx;
    het_hook_info info;
    const int forward = direction == HET_FORWARD;
    if (!ctx->desc.host.hook) return HET_OK;
    memset(&info, 0, sizeof info);
    info.direction = direction;
    info.again = c->again;
    info.rank = r->rank;
    info.step = ctx->step;
    info.unit = c->index;
    info.micro_batch = heti_batch_of(ctx, a);
    info.slice = a->slice;
    info.rows = c->rows;
    info.row = c->view->row_begin;
    info.unit_name = c->unit->iface->name;
    info.device = &r->device;
    info.streams = forward ? c->info->out_streams : c->info->in_streams;
    for (int64_t s = 0; s < info.streams; s++) {
        info.stream[s] = forward ? c->out[s] : c->d_in[s];
        info.width[s] = forward ? c->info->out_width[s] : c->info->in_width[s];
    }
    info.type = c->info->streams;
    if (c->team && heti_shows_whole(r) && ctx->task.job != HETI_JOB_INFER) return heti_hook_whole(r, c, &info);
    return heti_call_hook(r, &info);
}

/* Speed s < 1: sleeps (1 / s - 1) times the processor time its thread used, but for looking. */
static void heti_slow_down(heti_rank *r) {
    if (!heti_is_slow(r)) return;
    const double slower = 1.0 / r->desc.speed - 1.0, used = heti_thread_time() - r->slept_for;
    double rest = used * slower;
    if (rest < 1e-4) return;
    for (rest += heti_now(); heti_now() < rest && !HETI_ATOMIC_LOAD(&r->ctx->stop) &&
                             !HETI_ATOMIC_LOAD(&r->ctx->cancelled);) {
        const double left = rest - heti_now();
        HETI_LOCK(r->ctx);
        heti_wait_signal(&r->wake, &r->ctx->threads.lock, left < 0.05 ? left : 0.05); /* het_cancel wakes nobody */
        HETI_UNLOCK(r->ctx);
    }
    r->slept_for += used + (heti_now() - rest) / slower; /* what it slept too long it sleeps less next */
}

/* Between two units: whether to go on. The rank's reductions move on. */
static het_result heti_poll(heti_rank *r) {
    if (r->capturing) return HET_OK; /* it moves on once the graph is under way */
    heti_slow_down(r);
    HETI_TRY(heti_check_cancel(r->ctx, &r->error));
    return heti_progress(r);
}

/* ---- device graphs ----
   Work is the part of an action that only gives ops to the device: the units of F, B, I and W, the
   squares of VERDICT, an update of STEP. Which ops, with which addresses and values, depends on the
   action, the places of its activations and the shape of the micro-batch alone: what changes from
   step to step is in device memory. So the second time that work comes the device keeps it as a
   graph, and from then on repeats it in one call. The first time is not kept: that is when devices
   choose algorithms and load kernels. */

typedef struct heti_work {
    const het_action *action;
    const heti_stage *stage;  /* NULL where there is no micro-batch: VERDICT, STEP */
    const heti_slot *slot;
    const het_view *view;     /* the slice */
} heti_work;
typedef het_result (*heti_work_call)(heti_rank *r, const heti_work *work);

/* Two hashes of all that decides what work gives to the device. */
static void heti_work_key(heti_rank *r, const heti_work *work, uint64_t key[2]) {
    const het_action *a = work->action;
    const het_view *v = work->view;
    int64_t fact[15] = { a->kind, a->stage /* STEP: the block */, a->pipeline, a->slice, heti_trains(r->ctx) };
    if (v) {
        const int64_t shape[10] = {
            work->slot - r->part->slot, work->slot->batch_slot - r->part->batch_slot, v->tokens, v->sequences,
            v->granules, v->row_begin, v->row_end, v->granule_begin, v->granule_end, work->slot->batch_slot->chain
        };
        HETI_COPY(fact + 5, shape, 10);
    }
    for (uint64_t i = 0; i < 2; i++) {
        key[i] = het_xxh64(fact, sizeof fact, i + 1);
        if (!v) continue;
        for (int64_t k = 0; work->stage->gathers && k <= a->slice; k++) {
            const heti_slot *piece = heti_slot_of(r, work->stage, a, k);
            key[i] = het_xxh64(&piece, sizeof piece, key[i]);
        }
        key[i] = het_xxh64(v->host_sequence_start, HETI_CAST(size_t, v->sequences + 1) * sizeof *v->host_sequence_start,
                           key[i]);
        key[i] = het_xxh64(v->host_granule_start, HETI_CAST(size_t, v->granules + 1) * sizeof *v->host_granule_start,
                           key[i]);
    }
}

/* The place of work that has come before, marked as used. Otherwise NULL, and the work is noted in
   the place of what was used longest ago. A graph counts as used eight rounds of the table later
   than it was, and does not go before. */
static heti_graph *heti_find_graph(heti_rank *r, const uint64_t key[2]) {
    heti_part *part = r->part;
    const int64_t grace = 8 * part->graphs;
    heti_graph *victim = part->graph;
    part->works++;
    for (int64_t i = 0; i < part->graphs; i++) {
        heti_graph *g = &part->graph[i];
        if (g->key[0] == key[0] && g->key[1] == key[1]) {
            g->used = part->works;
            return g;
        }
        if (g->used + (g->graph ? grace : 0) < victim->used + (victim->graph ? grace : 0)) victim = g;
    }
    if (victim->graph && part->works - victim->used < grace) return NULL;
    if (victim->graph) r->device.iface->graphs->destroy(r->device.self, r->queue, victim->graph);
    HETI_COPY(victim->key, key, 2);
    victim->used = part->works;
    victim->graph = NULL;
    return NULL;
}

/* Does the work, or repeats it. */
static het_result heti_do_work(heti_rank *r, const heti_work *work, heti_work_call call) {
    const het_graph_iface *graphs = r->device.iface->graphs;
    uint64_t key[2];
    if (work->stage) HETI_TRY(heti_poll(r));
    if (r->part->graphs == 0 || r->ctx->task.job == HETI_JOB_INFER) return call(r, work);
    heti_work_key(r, work, key);
    heti_graph *g = heti_find_graph(r, key);
    if (!g) return call(r, work);
    if (!g->graph) {
        HETI_DEVICE(r, graphs->capture_begin(r->device.self, r->queue), "keeping work as a graph");
        r->capturing = 1;
        const het_result result = call(r, work);
        r->capturing = 0;
        if (result != HET_OK) {
            (void)graphs->capture_end(r->device.self, r->queue, NULL);
            return result;
        }
        HETI_DEVICE(r, graphs->capture_end(r->device.self, r->queue, &g->graph), "keeping work as a graph");
    }
    HETI_DEVICE(r, graphs->launch(r->device.self, r->queue, g->graph), "repeating a graph");
    return HET_OK;
}

/* What a unit's call reads of earlier slices: before it, the rows that its queries see, to row
   `end`, from the slices into the whole; behind it (stores) the slice's own rows to the slice. */
static het_result heti_gather(heti_rank *r, const heti_work *work, const het_unit_call *c, int64_t end, int stores) {
    const het_ctx *ctx = r->ctx;
    const heti_placed *placed = &work->stage->unit[c->index - work->stage->unit_begin];
    const heti_border *cut = heti_cuts_of(ctx, work->action);
    int64_t first = c->view->row_begin;
    if (!work->stage->gathers || ctx->task.job == HETI_JOB_INFER) return HET_OK;
    if (!stores) first = c->unit->iface->forward == het_program_forward ? heti_first_key(c, first) : 0;
    for (int64_t t = 0; t < c->info->tensors; t++)
        for (int64_t k = 0; placed->region[t] == HETI_REGION_GATHERED && k <= work->action->slice; k++) {
            const int64_t from = heti_max(first, cut[k].row), to = heti_min(end, cut[k + 1].row);
            const size_t row = heti_tensor_row(&c->info->tensor[t]);
            char *whole = HETI_CAST(char *, HETI_CAST(void *, c->tensor[t])) + HETI_CAST(size_t, from) * row, *piece;
            if (from >= to) continue;
            piece = heti_slot_of(r, work->stage, work->action, k)->memory + placed->offset[t] +
                    HETI_CAST(size_t, from - cut[k].row) * row;
            HETI_TRY(heti_copy(r, HET_OP_COPY, stores ? piece : whole, stores ? whole : piece,
                               HETI_CAST(size_t, to - from) * row, "copy of what slices keep"));
        }
    return HET_OK;
}

/* The units of a stage forward over one slice, in B and I once more. Outside training the loss is
   made at once: nothing comes back. */
static het_result heti_forward(heti_rank *r, const heti_work *work) {
    const heti_stage *stage = work->stage;
    het_unit_call c;
    for (int64_t u = stage->unit_begin; u < stage->unit_end; u++) {
        HETI_TRY(heti_poll(r));
        heti_call_prepare(r, stage, u, work->slot, work->view, &c);
        c.again = work->action->kind != HET_ACTION_F;
        HETI_TRY(heti_open_weights(r, work->action, HET_ACTION_F, u));
        HETI_TRY(heti_gather(r, work, &c, c.view->row_begin, 0));
        HETI_DEVICE(r, c.unit->iface->forward(&c), c.unit->iface->name);
        if (!c.again) HETI_TRY(heti_gather(r, work, &c, c.view->row_end, 1));
        /* what cuts pass on of the stage's input the hook has changed before */
        if (!c.again || heti_writer(stage, u - stage->unit_begin + 1))
            HETI_TRY(heti_hook(r, HET_FORWARD, &c, work->action));
        if (r->ctx->task.job == HETI_JOB_INFER) {
            c.logits = r->part->logits;
            c.logits_from = c.rows - 1;
        }
        if (!c.training && c.info->is_loss && c.info->out_streams == 0)
            HETI_DEVICE(r, c.unit->iface->backward_input(&c), c.unit->iface->name);
        HETI_TRY(heti_close_weights(r, work->action, HET_ACTION_F, u));
    }
    return HET_OK;
}

static het_result heti_clear_kept(heti_rank *r, const het_unit_call *c) {
    const int64_t rows = heti_min(c->view->tokens, r->part->limits.kept_rows);
    for (int64_t t = 0; t < c->info->tensors; t++)
        if (c->info->tensor[t].keep == HET_KEEP_MICRO_BATCH_GRADIENT && c->info->values != HET_BF16)
            HETI_TRY(heti_clear(r, c->tensor[t], rows * c->info->tensor[t].width, sizeof(float)));
    return HET_OK;
}

/* A unit that recomputes runs its forward again, into the same tensors; its output streams are
   still there and stay untouched. */
static het_result heti_recompute(heti_rank *r, const het_unit_call *c) {
    het_unit_call again = *c;
    again.again = 1;
    for (int64_t s = 0; s < c->info->out_streams; s++) again.out[s] = r->part->spare_stream[s];
    HETI_DEVICE(r, c->unit->iface->forward(&again), c->unit->iface->name);
    return HET_OK;
}

static void heti_open_record(const heti_rank *r, het_record *record, const het_action *a) {
    record->action = *a;
    record->rank = HETI_CAST(int32_t, r->rank);
    record->bytes = 0;
    record->exchange = 0.0;
    record->start = record->end = heti_now() - r->began;
}

/* Behind unit u of a stage: REDUCEs that only the rest of the stage's pass and messages stand
   before begin at once, where no unit below uses their blocks (PyTorch DDP, arXiv 2006.15704). */
static het_result heti_reduce_early(heti_rank *r, const heti_stage *stage, int64_t u) {
    const het_ctx *ctx = r->ctx;
    heti_part *part = r->part;
    het_record *record = &part->record[part->records];
    if (r->capturing || heti_updates_often(ctx)) return HET_OK;
    for (const het_action *a = r->doing + 1; a < part->action + part->actions; a++) {
        if (!heti_takes_part(ctx, a)) continue;
        record++;
        if (a->kind < HET_ACTION_SEND_F || a->kind > HET_ACTION_REDUCE) break;
        if (!heti_has_moves(ctx, a) || heti_moves_began(r, a) || heti_used_within(ctx, a->stage, stage->unit_begin, u))
            continue;
        HETI_TRY(heti_fill_sums(r, a->stage));
        heti_open_record(r, record, a);
        HETI_TRY(heti_start_moves(r, a, record));
    }
    return HET_OK;
}

/* Whether unit u rounds the gradient that it gives for the unit below, whose forward does not run
   in between, nor a hook that may change it. */
static int heti_rounds_gradient(const heti_rank *r, const heti_stage *stage, int64_t u) {
    const heti_placed *at = &stage->unit[u - stage->unit_begin];
    return u > stage->unit_begin && r->ctx->share.plan->cut[u - 1] == HET_CUT_NOWHERE && !r->ctx->desc.host.hook &&
        at->info.streams != HET_BF16 && at->info.values == HET_BF16 && at->info.program->gives &&
        at[-1].info.values == HET_BF16 && at[-1].info.program->takes >= 0 && !at[-1].recompute;
}

/* The units of a stage last to first over one slice: recompute, I, and in B W as well; or W alone.
   Where the stage recomputes as a whole all units' forwards come before. The gradient of a boundary
   lives in one of two buffers that take turns; that of the stage's output is in the first of
   them. Rounded, it lies in the halves of the stream that only recomputing fills. */
static het_result heti_backward(heti_rank *r, const heti_work *work) {
    const heti_stage *stage = work->stage;
    const het_action *a = work->action;
    const int inputs = a->kind != HET_ACTION_W, weights = a->kind != HET_ACTION_I;
    het_unit_call c;
    const int64_t half = r->part->limits.rows * r->part->stream_floats[0];
    uint16_t *rounded = NULL;
    int64_t last = 0;
    int now = 0;
    (void)heti_slices_with_rows(r->ctx, a, &last);
    if (heti_recomputes_whole(r->ctx, a)) HETI_TRY(heti_forward(r, work));
    for (int64_t u = stage->unit_end - 1; u >= stage->unit_begin; u--) {
        const int adds = heti_adds_gradients(r->ctx, a->kind, u), from = now;
        now = 1 - now;
        if (r->ctx->share.plan->cut[u] == HET_CUT_NONE) continue;
        HETI_TRY(heti_poll(r));
        heti_call_prepare(r, stage, u, work->slot, work->view, &c);
        if (c.info->is_loss && !inputs) continue;
        for (int64_t s = 0; s < c.info->out_streams && inputs && !c.info->is_loss; s++)
            c.d_out[s] = r->part->gradient_stream[from][s];
        for (int64_t s = 0; s < c.info->in_streams && inputs; s++) c.d_in[s] = r->part->gradient_stream[now][s];
        HETI_TRY(heti_open_weights(r, a, a->kind, u));
        if (inputs) HETI_TRY(heti_gather(r, work, &c, c.view->row_end, 0));
        if (inputs && !stage->whole && stage->unit[u - stage->unit_begin].recompute) HETI_TRY(heti_recompute(r, &c));
        if (inputs && a->slice == last) HETI_TRY(heti_clear_kept(r, &c));
        if (adds) HETI_TRY(heti_open_gradients(r, u));
        c.joined = inputs && weights;
        c.unread = u > 0 && r->ctx->share.plan->cut[u - 1] != HET_CUT_NOWHERE && !r->ctx->desc.host.hook;
        c.d_out_bf16 = c.joined && c.info->streams == HET_BF16 ?
            HETI_CAST(uint16_t *, HETI_CAST(void *, c.d_out[0])) : rounded;
        rounded = c.joined && heti_rounds_gradient(r, stage, u) ?
            HETI_CAST(uint16_t *, HETI_CAST(void *, r->part->spare_stream[0])) + now * half : NULL;
        c.d_in_bf16 = rounded;
        if (inputs) HETI_DEVICE(r, c.unit->iface->backward_input(&c), c.unit->iface->name);
        if (weights && !c.info->is_loss) HETI_DEVICE(r, c.unit->iface->backward_weight(&c), c.unit->iface->name);
        HETI_TRY(heti_close_weights(r, a, a->kind, u));
        if (inputs) HETI_TRY(heti_hook(r, HET_BACKWARD, &c, a));
        if (adds) HETI_TRY(heti_close_gradients(r, a, u, c.rows));
        HETI_TRY(heti_reduce_early(r, stage, u));
    }
    return HET_OK;
}

/* ---- what goes from stage to stage ---- */

/* What crosses a border between stages because of an action. */
typedef struct heti_passage {
    het_action key;              /* the RECV that brings it: by that its message and envelope are known */
    int64_t peer;                /* leader of the neighbouring stage; -1: there is none */
    int64_t unit;                /* it is the streams into this unit */
} heti_passage;

/* What leaves a stage, or comes: of F and of its SEND and RECV forward, of all others backward. */
static heti_passage heti_passage_of(const heti_rank *r, const het_action *a, const heti_stage *stage, int leaves) {
    const int forward = heti_goes_forward(a), further = forward ? 1 : -1;
    const het_action computes = heti_lists_other(a, forward ? HET_ACTION_F : HET_ACTION_B, 0);
    heti_passage p;
    p.peer = heti_neighbour(r->ctx->share.plan, &computes, leaves);
    p.unit = forward == leaves ? stage->unit_end : stage->unit_begin;
    p.key = heti_lists_other(a, forward ? HET_ACTION_RECV_F : HET_ACTION_RECV_B, leaves ? further : 0);
    return p;
}

/* A passage between the rank and one member of the neighbouring stage: the rows that both have. */
typedef struct heti_crossing {
    int64_t member, rank;        /* the other one */
    int64_t first, rows;         /* the first of the rank's rows, how many */
    size_t at, size;             /* in the message's data: its envelope, and the rows behind it */
} heti_crossing;

/* The crossing behind *x, behind member -1 the first; 0: there are no more. One without rows takes
   no message, and is passed over, unless neither side is a team. */
static int heti_next_crossing(const heti_rank *r, const heti_passage *p, heti_crossing *x) {
    const het_plan *plan = r->ctx->share.plan;
    const int64_t leader = heti_leader(plan, r->rank), team = heti_team_size(plan, p->peer);
    const int inside = p->peer == leader;
    heti_border own[2], other[2];
    heti_member_rows(r->ctx, &p->key, leader, r->part->team.member, own);
    x->at = x->member < 0 ? 0 : x->at + x->size;
    for (x->member++; x->member < (inside ? 1 : team); x->member++) {
        heti_member_rows(r->ctx, &p->key, p->peer, inside ? r->part->team.member : x->member, other);
        x->rank = inside ? r->rank : heti_team_rank(plan, p->peer, x->member);
        x->first = heti_max(other[0].row - own[0].row, 0);
        x->rows = heti_max(heti_min(own[1].row, other[1].row) - own[0].row - x->first, 0);
        x->size = HETI_ENVELOPE + heti_stream_bytes(r->ctx, p->unit, x->rows);
        if (x->rows > 0 || inside || (team == 1 && r->part->team.members == 1)) return 1;
    }
    return 0;
}

/* A crossing's envelope, on the host: before its rows or, where they take a lane, before the next
   envelope. */
static char *heti_envelope_at(const heti_message *message, const heti_crossing *x) {
    return message->data + (message->end ? HETI_CAST(size_t, x->member) * HETI_ENVELOPE : x->at);
}

/* A crossing's rows of the streams into unit `unit`, between the device and a message: its data on
   the host or, on a lane, its rows in device memory. */
static het_result heti_copy_rows(heti_rank *r, heti_message *message, int packs, float *const *stream, int64_t unit,
                                 const heti_crossing *x) {
    const het_op_kind kind = message->end ? HET_OP_COPY : packs ? HET_OP_COPY_OUT : HET_OP_COPY_IN;
    const char *what = message->end ? "copy of a message" : packs ? "copy from the device" : "copy to the device";
    const het_unit_info *info = &r->ctx->chain.unit[unit - 1].info;
    char *at = message->end ? message->rows + x->at : message->data + x->at + HETI_ENVELOPE;
    for (int64_t s = 0; s < info->out_streams; s++) {
        const int64_t floats = heti_stream_floats(info, info->out_width[s]);
        const size_t bytes = HETI_CAST(size_t, x->rows * floats) * sizeof(float);
        void *const there = stream[s] + x->first * floats;
        HETI_TRY(heti_copy(r, kind, packs ? at : there, packs ? there : at, bytes, what));
        at += bytes;
    }
    if (!message->end) return heti_sync(r);
    HETI_DEVICE(r, r->device.iface->queues->event_record(r->device.self, r->queue, message->event), "event");
    return HET_OK;
}

/* Of `count` messages that of an action; key NULL: a free one. */
static heti_message *heti_find_message(heti_message *message, int64_t count, const het_action *key) {
    for (; count > 0; count--, message++)
        if (key ? heti_action_same(&message->action, key) : message->action.kind < 0) return message;
    return NULL;
}

static het_result heti_new_message(heti_rank *r, const het_action *key, heti_message **message) {
    *message = heti_find_message(r->part->message, r->part->message_count, NULL);
    if (!*message)
        return heti_rank_fail(r, HET_ERR_STATE, "more than the %d messages that were planned", r->part->message_count);
    (*message)->action = *key;
    (*message)->end = NULL;
    return HET_OK;
}

static het_result heti_await_message(heti_rank *r, heti_message *message, const char *what) {
    for (int64_t i = 0; i < r->part->crossings; i++) HETI_TRY(heti_wait(r, &message->post[i], NULL, what));
    return HET_OK;
}

/* A stage has made rows for its neighbour: on the same rank they are handed over at once, otherwise
   SEND follows and finds them in the outgoing message made here. */
static het_result heti_hand_over(heti_rank *r, const het_action *a, const heti_stage *stage, float *const *stream) {
    heti_part *part = r->part;
    const heti_passage p = heti_passage_of(r, a, stage, 1);
    heti_crossing x;
    heti_message *message;
    heti_envelope envelope;
    if (p.peer < 0) return HET_OK;
    if (p.peer == heti_leader(r->ctx->share.plan, r->rank)) {
        HETI_TRY(heti_new_message(r, &p.key, &message));
    } else {
        message = &part->outgoing[part->next_outgoing];
        part->next_outgoing = 1 - part->next_outgoing;
        HETI_TRY(heti_await_message(r, message, "a receive"));
        message->action = p.key;
        message->end = heti_lane_end(r, heti_leader(r->ctx->share.plan, r->rank), p.peer);
    }
    memset(&envelope, 0, sizeof envelope);
    envelope.step = r->ctx->step;
    envelope.action = p.key;
    for (x.member = -1; heti_next_crossing(r, &p, &x);) {
        envelope.size = HETI_CAST(int64_t, x.size);
        memcpy(heti_envelope_at(message, &x), &envelope, sizeof envelope);
        HETI_TRY(heti_copy_rows(r, message, 1, stream, p.unit, &x));
    }
    return HET_OK;
}

/* Starts one side of a message: a post for each crossing and, on a lane, an op for all rows. */
static het_result heti_start_message(heti_rank *r, heti_message *message, int receives, const heti_passage *p) {
    het_record *record = r->present;
    heti_endpoint *end = message->end;
    het_communicator_piece piece[2][2 * HETRAIN_MAX_TEAM] = HETI_ZEROS; /* out, in */
    const int64_t first = receives ? 0 : r->part->team.members; /* of those on the other side */
    heti_crossing x;
    for (x.member = -1; heti_next_crossing(r, p, &x);) {
        het_communicator_piece *rows = &piece[receives][first + x.member];
        const int64_t bytes = HETI_CAST(int64_t, x.size) - HETI_ENVELOPE;
        record->bytes += bytes;
        HETI_TRY(heti_start_post(r, &message->post[x.member], receives, x.rank, HETI_CHANNEL_STAGE,
                                 heti_envelope_at(message, &x), end ? HETI_ENVELOPE : x.size));
        if (!end) continue;
        rows->data = message->rows + x.at;
        rows->bytes = HETI_CAST(size_t, bytes);
        if (!receives) r->ctx->traffic[r->local * r->ctx->world.ranks + x.rank].transfer_bytes += bytes;
    }
    if (!end) return HET_OK;
    if (record->bytes > 0)
        HETI_TRY(heti_give_pieces(r, end, message->event, receives ? "receive" : "send", piece[0], piece[1]));
    message->ticket = end->given;
    return HET_OK;
}

/* From now on a message is over when its rows have taken the lane as well. */
static void heti_await_lane(const heti_rank *r, heti_message *message, const heti_passage *p) {
    heti_crossing x;
    for (x.member = -1; message->end && heti_next_crossing(r, p, &x);) {
        message->post[x.member].end = message->end;
        message->post[x.member].ticket = message->ticket;
    }
}

static het_result heti_send(heti_rank *r, const het_action *a, const heti_stage *stage) {
    const heti_passage p = heti_passage_of(r, a, stage, 1);
    heti_message *message = heti_find_message(r->part->outgoing, 2, &p.key);
    if (!message) return heti_rank_fail(r, HET_ERR_STATE, "a send of what is not made yet");
    HETI_TRY(heti_start_message(r, message, 0, &p));
    message->action.kind = -1;
    heti_await_lane(r, message, &p);
    return HET_OK;
}

static het_result heti_receive(heti_rank *r, const het_action *a, const heti_stage *stage) {
    const heti_passage p = heti_passage_of(r, a, stage, 0);
    heti_message *message;
    HETI_TRY(heti_new_message(r, &p.key, &message));
    message->record = r->present;
    message->end = heti_lane_end(r, p.peer, heti_leader(r->ctx->share.plan, r->rank));
    return heti_start_message(r, message, 1, &p);
}

/* The envelope of a crossing is that of the action that takes it. */
static het_result heti_check_envelope(heti_rank *r, const heti_message *message, const het_action *key,
                                      const heti_crossing *x) {
    heti_envelope envelope;
    memcpy(&envelope, heti_envelope_at(message, x), sizeof envelope);
    if (envelope.step != r->ctx->step || !heti_action_same(&envelope.action, key))
        return heti_rank_fail(r, HET_ERR_TRANSPORT, "rank %d sent what belongs to step %d, stage %i, micro-batch %i "
                              "instead of stage %i, micro-batch %i", x->rank, envelope.step + 1, envelope.action.stage,
                              envelope.action.micro_batch, key->stage, key->micro_batch);
    if (envelope.size == HETI_CAST(int64_t, x->size)) return HET_OK;
    return heti_rank_fail(r, HET_ERR_TRANSPORT, "rank %d sends a message of %d bytes, expected are %u", x->rank,
                          envelope.size, HETI_CAST(uint64_t, x->size));
}

/* Waits for what a compute action needs from a neighbouring stage and brings it to the device. */
static het_result heti_receive_rows(heti_rank *r, const het_action *a, const heti_stage *stage, float *const *stream) {
    const heti_passage p = heti_passage_of(r, a, stage, 0);
    const double start = heti_now() - r->began;
    const char *what = heti_goes_forward(a) ? "an activation" : "a gradient";
    const int away = p.peer != heti_leader(r->ctx->share.plan, r->rank);
    heti_crossing x;
    if (p.peer < 0) return HET_OK;
    heti_message *message = heti_find_message(r->part->message, r->part->message_count, &p.key);
    if (!message)
        return heti_rank_fail(r, HET_ERR_STATE, "micro-batch %d needs a message of rank %d that no action receives",
                              HETI_CAST(int64_t, a->micro_batch), p.peer);
    if (away) HETI_TRY(heti_await_message(r, message, what));
    for (x.member = -1; heti_next_crossing(r, &p, &x);) HETI_TRY(heti_check_envelope(r, message, &p.key, &x));
    heti_await_lane(r, message, &p); /* the envelopes are right: now the rows */
    if (message->end) HETI_TRY(heti_await_message(r, message, what));
    message->action.kind = -1;
    r->present->start = heti_now() - r->began;
    if (away) {
        message->record->start = start;
        message->record->end = r->present->start;
    }
    for (x.member = -1; heti_next_crossing(r, &p, &x);) HETI_TRY(heti_copy_rows(r, message, 0, stream, p.unit, &x));
    return HET_OK;
}

/* ---- what goes from member to member of a team ---- */

static het_box heti_both(const het_box *a, const het_box *b) {
    const int64_t row = heti_max(a->row_begin, b->row_begin), column = heti_max(a->column_begin, b->column_begin);
    const het_box box = { row, heti_max(row, heti_min(a->row_end, b->row_end)),
                          column, heti_max(column, heti_min(a->column_end, b->column_end)) };
    return box;
}

/* Part of a tensor on the device. Rows apart, or where the host has to see them, pass through
   `data`. */
typedef struct heti_piece {
    char *first;                 /* its first element on the device */
    size_t row, step, rows;      /* bytes of a row, and from one to the next; how many */
    char *data;                  /* what is sent, or where it comes */
} heti_piece;

/* The rank's end of the group of its team; NULL: it is none, and all passes through the host. */
static heti_endpoint *heti_team_end(const heti_rank *r) {
    heti_endpoint *end = r->part->end;
    if (r->part->ends_of[HETI_GROUP_TEAM] == 0) return NULL;
    while (r->ctx->share.group[end->group].kind != HETI_GROUP_TEAM) end++;
    return end;
}

static heti_piece heti_piece_of(const heti_rank *r, const het_box *part, const het_box *whole, float *at,
                                int64_t width, char **data) {
    heti_piece p;
    at += (part->row_begin - whole->row_begin) * width + part->column_begin - whole->column_begin;
    p.first = HETI_CAST(char *, HETI_CAST(void *, at));
    p.row = HETI_CAST(size_t, part->column_end - part->column_begin) * sizeof(float);
    p.step = HETI_CAST(size_t, width) * sizeof(float);
    p.rows = p.row > 0 ? HETI_CAST(size_t, part->row_end - part->row_begin) : 0;
    p.data = p.first;
    const size_t bytes = p.row * p.rows;
    if (bytes == 0 || ((r->device.iface->host_memory || heti_team_end(r)) && (p.row == p.step || p.rows == 1)))
        return p;
    p.data = *data;
    if (*data != NULL) *data += bytes;
    return p;
}

/* The rows of a piece, `step` bytes from one to the next there and here: inside the device one
   copy, to and from the host one a row. */
static het_result heti_copy_piece(heti_rank *r, const heti_piece *p, het_op_kind kind, char *to, size_t to_step,
                                  const char *from, size_t from_step) {
    const int whole = p->row == to_step && p->row == from_step;
    const size_t bytes = whole ? p->row * p->rows : p->row, rows = whole && p->rows > 0 ? 1 : p->rows,
                 at_once = kind == HET_OP_COPY ? rows : 1;
    for (size_t i = 0; to != from && i < rows; i += at_once) {
        const het_copy_args a = { to + i * to_step, from + i * from_step, bytes, at_once, to_step, from_step };
        if (bytes > 0) HETI_TRY(heti_rank_op(r, heti_make_op(kind, &a, sizeof a), "copy of an exchange"));
    }
    return HET_OK;
}

/* The team is a group: one op moves all that the member has to do with. */
static het_result heti_exchange(heti_rank *r, heti_endpoint *end, const heti_piece *piece) {
    het_communicator_piece moved[2][HETRAIN_MAX_TEAM];
    heti_post *post = r->part->exchange;
    int64_t peer = -1;
    for (int64_t i = 0; i < 2 * r->part->team.members; i++) {
        const size_t bytes = piece[i].row * piece[i].rows;
        moved[i % 2][i / 2].data = piece[i].data;
        moved[i % 2][i / 2].bytes = bytes;
        if (bytes == 0) continue;
        peer = r->part->team.plan[i / 2].rank;
        if (i % 2 == 0) heti_count_sent(r, peer, HETI_CHANNEL_TEAM, HETI_CAST(int64_t, bytes));
    }
    if (peer < 0) return HET_OK;
    HETI_TRY(heti_give_pieces(r, end, NULL, "exchange", moved[0], moved[1]));
    post->from = post->to = peer; /* the last of those for whom it waits */
    post->end = end;
    post->ticket = end->given;
    return heti_wait(r, post, NULL, "an exchange");
}

/* het_team.move. */
static het_result heti_team_move(const het_unit_call *c, float *from, const het_box *have, int64_t from_width,
                                 float *to, const het_box *want, int64_t to_width) {
    const het_team *t = c->team;
    heti_rank *r = HETI_CAST(heti_rank *, t->self);
    const double start = heti_now();
    const int64_t pieces = 2 * t->members;
    heti_endpoint *end = heti_team_end(r);
    const int inside = end || r->device.iface->host_memory; /* the device sees what is sent, and what comes */
    char *data[2] = { r->part->exchange_data[0], r->part->exchange_data[1] }, *none = NULL;
    heti_piece piece[2 * HETRAIN_MAX_TEAM], *own = &piece[2 * t->member]; /* of a member: what it gets, what it sends */
    for (int64_t i = 0; i < pieces; i++) {
        const int comes = HETI_CAST(int, i % 2), mine = i / 2 == t->member;
        const het_box *all = comes ? &want[t->member] : &have[t->member],
                      part = heti_both(all, comes ? &have[i / 2] : &want[i / 2]);
        piece[i] = heti_piece_of(r, &part, all, comes ? to : from, comes ? to_width : from_width,
                                 mine ? &none : &data[comes]);
        if (HETI_CAST(size_t, data[comes] - r->part->exchange_data[comes]) > r->part->exchange_bytes)
            return heti_rank_fail(r, HET_ERR_STATE, "an exchange has %u bytes of room, and more to move",
                                  HETI_CAST(uint64_t, r->part->exchange_bytes));
        if (!comes && !mine)
            HETI_TRY(heti_copy_piece(r, &piece[i], inside ? HET_OP_COPY : HET_OP_COPY_OUT, piece[i].data,
                                     piece[i].row, piece[i].first, piece[i].step));
    }
    HETI_TRY(heti_copy_piece(r, own, HET_OP_COPY, own[1].first, own[1].step, own[0].first, own[0].step));
    own[0].rows = own[1].rows = 0;
    if (!end) HETI_TRY(heti_sync(r));
    heti_slow_down(r); /* what it sends was computed at its own speed */
    if (end) HETI_TRY(heti_exchange(r, end, piece));
    for (int64_t i = 0; i < pieces && !end; i++)
        if (piece[i].rows > 0)
            HETI_TRY(heti_start_post(r, &r->part->exchange[i], i % 2 == 1, t->plan[i / 2].rank, HETI_CHANNEL_TEAM,
                                     piece[i].data, piece[i].row * piece[i].rows));
    for (int64_t i = 0; i < pieces && !end; i++)
        HETI_TRY(heti_wait(r, &r->part->exchange[i], NULL, "an exchange"));
    for (int64_t i = 1; i < pieces; i += 2)
        HETI_TRY(heti_copy_piece(r, &piece[i], inside ? HET_OP_COPY : HET_OP_COPY_IN, piece[i].first,
                                 piece[i].step, piece[i].data, piece[i].row));
    r->present->exchange += heti_now() - start;
    return end ? HET_OK : heti_sync(r);
}

/* ---- inference: one pipeline's stages, over rows [past, past + count) of one sequence ---- */

/* The places that keep a stage's keys and values between calls. */
static het_result heti_open_inference(heti_rank *r, int64_t stage, heti_slot **slot) {
    const heti_task *task = &r->ctx->task;
    const int64_t end = task->past + task->count, sequence[2] = { 0, end }, granule[2] = { task->past, end };
    heti_batch_slot *batch_slot = &r->part->batch_slot[stage];
    het_batch b = HETI_ZEROS;
    b.tokens = end;
    b.sequences = b.granules = 1;
    b.sequence_start = sequence;
    b.granule_start = granule;
    b.token = b.target = task->token;
    HETI_TRY(heti_load_batch(r, batch_slot, &b, task->past));
    batch_slot->stage = batch_slot->chain = stage;
    *slot = &r->part->slot[stage];
    (*slot)->batch_slot = batch_slot;
    return HET_OK;
}

/* ---- actions ---- */

static het_result heti_predict(heti_rank *r, const het_action *a, const heti_stage *stage);

static het_result heti_run_forward(heti_rank *r, const het_action *a, const heti_stage *stage) {
    het_ctx *ctx = r->ctx;
    heti_slot *slot;
    het_view view;
    heti_work work = { a, stage, NULL, &view };
    het_unit_call c;
    if (ctx->task.job == HETI_JOB_INFER) HETI_TRY(heti_open_inference(r, stage->number, &slot));
    else HETI_TRY(heti_open_slot(r, stage, a, &slot));
    view = heti_slice(r, &slot->batch_slot->view, a);
    heti_call_prepare(r, stage, stage->unit_begin, slot, &view, &c);
    HETI_TRY(heti_receive_rows(r, a, stage, c.in));
    work.slot = slot;
    HETI_TRY(heti_predict(r, a, stage));
    HETI_TRY(heti_do_work(r, &work, heti_forward));
    heti_call_prepare(r, stage, stage->unit_end - 1, slot, &view, &c);
    HETI_TRY(heti_hand_over(r, a, stage, c.out));
    if (ctx->task.job == HETI_JOB_EVALUATE || (heti_trains(ctx) && !het_plan_backward(ctx->share.plan, stage->planned)))
        heti_close_slots(r, stage, a);
    return HET_OK;
}

static het_result heti_run_backward(heti_rank *r, const het_action *a, const heti_stage *stage) {
    heti_part *part = r->part;
    heti_slot *slot = heti_slot_of(r, stage, a, a->slice);
    /* the buffer with the gradient of the stage's input (heti_backward) */
    const int64_t last = (stage->unit_end - stage->unit_begin) % 2;
    het_view view;
    const heti_work work = { a, stage, slot, &view };
    if (!slot)
        return heti_rank_fail(r, HET_ERR_STATE, "backward of micro-batch %d, slice %d before its forward",
                              HETI_CAST(int64_t, a->micro_batch), HETI_CAST(int64_t, a->slice));
    HETI_TRY(heti_await_moved(r, slot));
    heti_take_chain(part, slot->batch_slot);
    view = heti_slice(r, &slot->batch_slot->view, a);
    if (a->kind != HET_ACTION_W) HETI_TRY(heti_receive_rows(r, a, stage, part->gradient_stream[0]));
    HETI_TRY(heti_do_work(r, &work, heti_backward));
    if (a->kind != HET_ACTION_W) HETI_TRY(heti_hand_over(r, a, stage, part->gradient_stream[last]));
    if (a->kind != HET_ACTION_I) heti_close_slot(slot);
    return HET_OK;
}

/* A slot's activations into place number `place` of het_host.store or out of it: at once, through
   the staging chunk where the host does not see the device's memory. */
static het_result heti_call_store(heti_rank *r, const het_action *a, const heti_slot *slot, int64_t place,
                                  size_t bytes) {
    const het_store *store = &r->ctx->desc.host.store;
    const int takes = a->kind == HET_ACTION_TAKE, seen = r->device.iface->host_memory != 0;
    heti_inside *inside = heti_inside_of(r->ctx);
    heti_action_text text;
    size_t n;
    for (size_t at = 0; at < bytes; at += n) {
        char *there = slot->memory + at, *here = seen ? there : HETI_CAST(char *, HETI_CAST(void *, r->part->staging));
        n = seen || bytes - at < HETI_STAGING * sizeof(double) ? bytes - at : HETI_STAGING * sizeof(double);
        HETI_TRY(heti_sync(r));
        if (!takes && !seen) HETI_TRY(heti_copy_out(r, here, there, HETI_CAST(int64_t, n), 1));
        inside->callback = takes ? "het_desc.host.store.get" : "het_desc.host.store.put";
        const het_result result = takes ? store->get(store->user, r->rank, place, at, here, n)
                                        : store->put(store->user, r->rank, place, at, here, n);
        inside->callback = NULL;
        if (result != HET_OK)
            return heti_rank_fail(r, result, "%s: het_desc.host.store.%s failed at place %d, byte %u: %s",
                                  heti_action_print(&text, a), takes ? "get" : "put", place, HETI_CAST(uint64_t, at),
                                  het_result_text(result));
        if (takes && !seen) HETI_TRY(heti_copy_in(r, there, here, HETI_CAST(int64_t, n), 1));
    }
    return heti_sync(r);
}

/* PUT or TAKE. Where the device has queues the copy is made on one of its own, behind what was
   given to the device so far and beside what comes; copies keep their order, and who computes in
   the slot next waits for this one (heti_await_moved). */
static het_result heti_move_slot(heti_rank *r, const het_action *a, const heti_stage *stage) {
    heti_part *part = r->part;
    heti_endpoint *copies = &part->end[part->ends];
    const int takes = a->kind == HET_ACTION_TAKE;
    heti_batch_slot *batch_slot = heti_find_batch_slot(r, stage->number, a->micro_batch);
    heti_slot *slot = takes ? heti_free_slot(part, stage) : heti_slot_of(r, stage, a, a->slice),
              *place = heti_find_slot(part->place, part->place_count, takes ? batch_slot : NULL, a->slice),
              *from = takes ? place : slot, *to = takes ? slot : place;
    const size_t bytes = heti_stage_bytes(stage);
    if (!batch_slot || !slot || !place)
        return heti_rank_fail(r, HET_ERR_STATE, "no %s for the activations of micro-batch %i, slice %i",
                              slot ? "place" : "slot", a->micro_batch, a->slice);
    r->present->bytes = HETI_CAST(int64_t, bytes);
    if (!part->places) {
        HETI_TRY(heti_await_moved(r, slot));
        HETI_TRY(heti_call_store(r, a, slot, place - part->place, bytes));
    } else {
        if (r->queue) HETI_TRY(heti_order_end(r, copies, NULL));
        HETI_TRY(heti_copy_on(r, copies->queue, takes ? HET_OP_COPY_IN : HET_OP_COPY_OUT, to->memory, from->memory,
                              bytes, "copy of activations"));
        if (r->queue)
            HETI_DEVICE(r, r->device.iface->queues->event_record(r->device.self, copies->queue, slot->moved), "event");
        slot->moving = ++part->moves;
    }
    to->slice = a->slice;
    to->batch_slot = batch_slot;
    from->batch_slot = NULL;
    return HET_OK;
}

/* Walks over the parts of a block's parameters that the rank owns. */
typedef struct heti_owned { int64_t next, parameter, first, count, state; } heti_owned;

static int heti_next_owned(const heti_rank *r, int64_t b, heti_owned *o) {
    const heti_owners *owners = &r->ctx->share.owners[b];
    const int64_t i = heti_holder_of(owners, r->rank), low = owners->cut[i], high = owners->cut[i + 1];
    while (o->next >= 0) {
        const heti_parameter *p = &r->ctx->chain.parameter[o->next];
        o->parameter = o->next;
        o->next = p->next;
        o->first = 0;
        o->count = p->count;
        if (!heti_clip(p, low, high, &o->first, &o->count)) continue;
        o->state = r->part->state_at[b] + p->offset + o->first;
        return 1;
    }
    return 0;
}

/* As it is read: final sums are floats. */
static het_gradient heti_owned_gradient(const heti_rank *r, const heti_owned *o) {
    const int64_t b = r->ctx->chain.parameter[o->parameter].block;
    float *sum = HETI_CAST(float *, heti_sum_at(r, o->parameter, o->first)) + heti_window_at(r, b, r->part->stepped[b]);
    het_gradient g = heti_gradient_in(r, o->parameter, sum);
    g.exact = g.exact && !g.final;
    g.final = 0;
    return g;
}

/* The next parts that the rank's device takes by one op, and their gradients; returns how many. */
static int heti_next_together(const heti_rank *r, int64_t b, heti_owned *o, heti_owned *own, het_gradient *g) {
    int n = 0;
    for (; n < r->together && heti_next_owned(r, b, o); n++) {
        own[n] = *o;
        g[n] = heti_owned_gradient(r, o);
    }
    return n;
}

/* Squared norm of the rank's own parts. */
static het_result heti_square(heti_rank *r, const heti_work *work) {
    heti_part *part = r->part;
    heti_owned o, own[HETI_TOGETHER];
    het_gradient g[HETI_TOGETHER];
    het_sum_squares_args list[HETI_TOGETHER];
    (void)work;
    HETI_TRY(heti_clear(r, part->squares, 1, sizeof *part->squares));
    for (int64_t b = 0; b < r->ctx->chain.block_count; b++) {
        o.next = r->ctx->chain.block[b].parameter;
        for (int n = 0; heti_is_trained(r, b) && (n = heti_next_together(r, b, &o, own, g)) > 0;) {
            for (int i = 0; i < n; i++) {
                const het_sum_squares_args a = { &g[i], own[i].count, part->squares, part->shared,
                                                 i + 1 < n ? &list[i + 1] : NULL };
                list[i] = a;
            }
            HETI_TRY(heti_rank_op(r, HETI_OP(SUM_SQUARES, &list[0]), "gradient norm"));
        }
    }
    return HET_OK;
}

/* Loss, squares and maxima of all ranks together, in every rank's device memory, and when blocks
   were ready to be reduced and gathered. Below a maximum's bits travels which rank it is of. */
static het_result heti_join_scalars(heti_rank *r) {
    heti_part *part = r->part;
    const int64_t limbs = HETI_SUM_INTEGERS, parameters = r->ctx->chain.parameter_count,
                  moves = 2 * r->ctx->chain.block_count;
    uint32_t *maximum = HETI_CAST(uint32_t *, HETI_CAST(void *, part->staging));
    int64_t *ready = part->joined + 2 * limbs + parameters;
    if (r->ctx->world.ranks == 1) return HET_OK;
    HETI_TRY(heti_copy_out_later(r, part->joined, part->loss, limbs, sizeof(int64_t)));
    HETI_TRY(heti_copy_out_later(r, part->joined + limbs, part->squares, limbs, sizeof(int64_t)));
    HETI_TRY(heti_copy_out(r, maximum, part->maximum, parameters, sizeof *maximum));
    for (int64_t p = 0; p < parameters; p++)
        part->joined[2 * limbs + p] = HETI_CAST(int64_t, maximum[p]) * HETI_MOST_RANKS + HETI_MOST_RANKS - 1 - r->rank;
    for (int64_t i = 0; i < moves; i++) ready[i] = part->flow.move[i].reached;
    HETI_TRY(heti_join(r, 2 * limbs, 2 * limbs + parameters + moves));
    for (int64_t i = 0; i < moves; i++) part->flow.move[i].ready = ready[i];
    for (int64_t p = 0; p < parameters; p++) {
        maximum[p] = HETI_CAST(uint32_t, part->joined[2 * limbs + p] / HETI_MOST_RANKS);
        if (r->local != r->ctx->share.tree.speaker) continue;
        r->ctx->verdict.maximum_rank[p] =
            HETI_CAST(int32_t, HETI_MOST_RANKS - 1 - part->joined[2 * limbs + p] % HETI_MOST_RANKS);
    }
    HETI_TRY(heti_copy_in(r, part->loss, part->joined, limbs, sizeof(int64_t)));
    HETI_TRY(heti_copy_in(r, part->squares, part->joined + limbs, limbs, sizeof(int64_t)));
    HETI_TRY(heti_copy_in(r, part->maximum, maximum, parameters, sizeof *maximum));
    return heti_sync(r);
}

static het_result heti_verdict(heti_rank *r, const het_action *action) {
    heti_part *part = r->part;
    const heti_work work = { action, NULL, NULL, NULL };
    const het_verdict_args a = { part->scalars, r->ctx->chain.parameter_count, part->maximum, part->exponent,
                                 r->ctx->desc.reduce == HET_REDUCE_EXACT, part->squares, part->loss };
    /* it has nothing to update, and another one hears for its process */
    if (!heti_tree_place_of(r->ctx, r->rank)) return HET_OK;
    /* REDUCEs of several updates are those of updates: gradients alone are reduced here */
    for (int64_t b = 0; r->ctx->share.updates > 1 && b < r->ctx->chain.block_count; b++) {
        const het_action reduce = heti_block_action(HET_ACTION_REDUCE, b, 0);
        if (heti_updates_often(r->ctx) || heti_holder_of(&r->ctx->share.owners[b], r->rank) < 0) continue;
        HETI_TRY(heti_fill_sums(r, b));
        HETI_TRY(heti_start_moves(r, &reduce, r->present));
    }
    HETI_TRY(heti_wait(r, NULL, heti_reduced, "a reduction"));
    for (int64_t p = 0; p < r->ctx->chain.parameter_count; p++) HETI_TRY(heti_fill_sum(r, p));
    HETI_TRY(heti_do_work(r, &work, heti_square));
    HETI_TRY(heti_join_scalars(r));
    return heti_rank_op(r, HETI_OP(VERDICT, &a), "verdict");
}

/* ---- weights in bf16 beside the floats ----
   Products of a job read them; weights change behind all of these. A sole owner's AdamW writes
   both. Where others update parts of a block, or another optimizer does, or weights came from the
   host, they are rounded when the next job begins. */

/* Whether a block's update leaves them as fresh as they were. */
static int heti_rounds_update(const heti_rank *r, int64_t b) {
    const het_optimizer_desc *d = &r->ctx->desc.optimizer;
    return r->ctx->share.owners[b].holders == 1 && d->iface == het_adamw() && !heti_feeds_back(d);
}

static het_result heti_round_weights(heti_rank *r) {
    heti_part *part = r->part;
    for (int64_t i = 0; i < r->ctx->chain.parameter_count; i++) {
        const heti_parameter *p = &r->ctx->chain.parameter[i];
        if (part->rounded_at[i] == HETI_NOWHERE || part->fresh[p->block]) continue;
        void *const to = part->rounded + part->rounded_at[i];
        const het_elements_args a = { p->count, HETI_CAST(float *, to), heti_weight(r, p, part->weight_at, 0), 0.0f,
                                      NULL };
        HETI_TRY(heti_rank_op(r, HETI_OP(ROUND, &a), "rounding weights"));
    }
    for (int64_t b = 0; b < r->ctx->chain.block_count; b++) part->fresh[b] = 1;
    return HET_OK;
}

static het_optimizer_call heti_owned_call(const heti_rank *r, const heti_owned *o, const het_gradient *g) {
    const heti_parameter *parameter = &r->ctx->chain.parameter[o->parameter];
    const float decay = r->ctx->desc.optimizer.weight_decay;
    het_optimizer_call call = heti_optimizer_call(r, parameter);
    call.queue = r->queue;
    call.scalars = r->part->scalars;
    call.gradient = g;
    call.count = o->count;
    call.workspace = r->part->shared + r->part->made_bytes;
    call.weight = heti_weight(r, parameter, r->part->own_at, o->first);
    for (int64_t s = 0; s < r->ctx->slots; s++) call.state[s] = r->part->state[s] + o->state;
    call.decay = parameter->desc.decay && decay > 0.0f ? decay : 0.0f;
    if (heti_rounds_update(r, parameter->block) && r->part->rounded_at[o->parameter] != HETI_NOWHERE)
        call.weight_bf16 = r->part->rounded + r->part->rounded_at[o->parameter] + o->first;
    return call;
}

/* Before the optimizer's updates (begins) and after them. */
static het_result heti_feed_back(heti_rank *r, const het_optimizer_call *call, int count, int begins) {
    const het_optimizer_desc *d = &r->ctx->desc.optimizer;
    for (int i = 0; i < count && heti_feeds_back(d); i++) {
        float *const *slot = &call[i].state[d->iface->slots];
        const het_feedback_args a = { call[i].scalars, call[i].count, call[i].weight, slot[0],
                                      d->feedback_change > 0.0f ? slot[1] : NULL, d->feedback, d->feedback_change,
                                      begins };
        if (call[i].gradient->sum) HETI_TRY(heti_rank_op(r, HETI_OP(FEEDBACK, &a), "feedback"));
    }
    return HET_OK;
}

/* The rank's parts of the block that is the action's stage. */
static het_result heti_update(heti_rank *r, const heti_work *work) {
    const het_optimizer_iface *optimizer = r->ctx->desc.optimizer.iface;
    heti_owned o, own[HETI_TOGETHER];
    het_gradient g[HETI_TOGETHER];
    het_optimizer_call list[HETI_TOGETHER];
    o.next = r->ctx->chain.block[work->action->stage].parameter;
    for (int n; (n = heti_next_together(r, work->action->stage, &o, own, g)) > 0;) {
        for (int i = 0; i < n; i++) {
            list[i] = heti_owned_call(r, &own[i], &g[i]);
            list[i].next = i + 1 < n ? &list[i + 1] : NULL;
        }
        HETI_TRY(heti_feed_back(r, list, n, 1));
        HETI_DEVICE(r, optimizer->update(&list[0]), optimizer->name);
        HETI_TRY(heti_feed_back(r, list, n, 0));
    }
    return HET_OK;
}

/* ---- several updates ----
   A block's update u goes through its owners: each takes what the ranks with a REDUCE of it have
   summed, updates its part (version u + 1), and gives it to those with a GATHER of it before it
   goes on to update u + 1. When that happens changes no bit, since what a rank computes with are
   copies that only its own list replaces. So an owner updates as soon as it may, between two
   units; at STEP it waits. */

/* The rates of update number `count` of all, where a step makes `updates`. */
static void heti_set_rates(heti_rank *r, int64_t count, int64_t updates) {
    const het_optimizer_desc *o = &r->ctx->desc.optimizer;
    het_step_scalars *s = &r->host_scalars;
    s->learning_rate = HETI_CAST(float, heti_rate(o, count - 1, updates));
    s->bias_correction1 = HETI_CAST(float, 1.0 - heti_powi(HETI_CAST(double, o->beta1), count));
    s->bias_correction2 = HETI_CAST(float, 1.0 - heti_powi(HETI_CAST(double, o->beta2), count));
}

/* The scalars of a block's update number `count`: terms, weighed for the step, take `weight`. */
static het_result heti_set_update_scalars(heti_rank *r, int64_t b, int64_t count, double weight, float rates) {
    het_step_scalars *s = &r->host_scalars;
    heti_set_rates(r, count, heti_updates_of_block(r->ctx, b));
    s->learning_rate *= rates;
    s->clip_scale = HETI_CAST(float, r->ctx->task.weight / weight);
    s->verdict = HET_VERDICT_ACCEPT;
    HETI_TRY(heti_copy_in(r, r->part->scalars, s, 1, sizeof *s));
    return heti_sync(r);
}

/* The next update of the rank's part of a block. Sums of the last one stay, for the norm. */
static het_result heti_step_block(heti_rank *r, int64_t b) {
    heti_part *part = r->part;
    const heti_owners *owners = &r->ctx->share.owners[b];
    const int64_t u = part->stepped[b];
    const het_action a = heti_block_action(HET_ACTION_STEP, b, 0);
    const heti_work work = { &a, NULL, NULL, NULL };
    HETI_ATOMIC_STORE(&r->ctx->stepping, 1);
    if (heti_update_at(r->ctx, b, u)->weight > 0.0) {
        HETI_TRY(heti_set_update_scalars(r, b, r->ctx->step * heti_updates_of_block(r->ctx, b) + u + 1,
                                         heti_update_at(r->ctx, b, u)->weight, 1.0f));
        HETI_TRY(heti_update(r, &work));
    }
    part->stepped[b]++;
    *heti_arrived(r, b, u) = part->given[b] = 0;
    part->flow.came = 1;
    if (u + heti_windows(r->ctx, b) >= heti_updates_of_block(r->ctx, b)) return heti_sync(r);
    HETI_TRY(heti_clear(r, heti_block_sum_at(r, b, owners->cut[heti_holder_of(owners, r->rank)], u),
                        heti_owned_count(r, b), sizeof(double)));
    return heti_sync(r);
}

/* What version `version` of a block, whose only holder the rank is, may come to be. */
static het_result heti_predict_block(heti_rank *r, int64_t b, int64_t version) {
    heti_part *part = r->part;
    const int64_t updates = r->ctx->step * heti_updates_of_block(r->ctx, b) + part->stepped[b];
    heti_owned o;
    HETI_TRY(heti_set_update_scalars(r, b, heti_max(updates, 1), 1.0, HETI_CAST(float, version - part->stepped[b])));
    for (o.next = r->ctx->chain.block[b].parameter; heti_next_owned(r, b, &o);) {
        const heti_parameter *p = &r->ctx->chain.parameter[o.parameter];
        const het_gradient g = heti_owned_gradient(r, &o);
        het_optimizer_call call = heti_owned_call(r, &o, &g);
        call.weight = heti_boxes_at(r, b, part->versions) + heti_box_place(r->ctx, r->rank, b, o.parameter);
        HETI_TRY(heti_copy(r, HET_OP_COPY, call.weight, heti_weight(r, p, part->own_at, 0),
                           HETI_CAST(size_t, p->count) * sizeof(float), "copy of weights"));
        if (updates > 0)
            HETI_DEVICE(r, r->ctx->desc.optimizer.iface->predict(&call), r->ctx->desc.optimizer.iface->name);
    }
    return HET_OK;
}

/* Before F: what it uses of its stage and is not there. */
static het_result heti_predict(heti_rank *r, const het_action *a, const heti_stage *stage) {
    if (!heti_updates_often(r->ctx) || !r->part->predicts) return HET_OK;
    for (int64_t b = 0; b < r->ctx->chain.block_count; b++) {
        if (!heti_is_trained(r, b) || heti_version_place(r, b, a->version) < r->part->versions) continue;
        if (heti_used_within(r->ctx, b, stage->unit_begin, stage->unit_end))
            HETI_TRY(heti_predict_block(r, b, a->version));
    }
    return HET_OK;
}

/* All updates that wait for nothing. */
static het_result heti_try_steps(heti_rank *r) {
    heti_part *part = r->part;
    while (part->flow.came) {
        part->flow.came = 0;
        for (int64_t b = 0; b < r->ctx->chain.block_count; b++) {
            const int64_t u = part->stepped[b];
            if (heti_owned_count(r, b) == 0 || !heti_is_trained(r, b) || u == heti_updates_of_block(r->ctx, b) ||
                *heti_arrived(r, b, u) < heti_update_at(r->ctx, b, u)->reduces ||
                (u > 0 && part->given[b] < heti_update_at(r->ctx, b, u - 1)->gathers))
                continue;
            HETI_TRY(heti_step_block(r, b));
        }
    }
    return HET_OK;
}

/* Whether what the present action waits for has happened. STEP: the update; REDUCE: the one that
   had its place here, then what it sends has left; GATHER: likewise, and what it fetches came. */
static int heti_stepped(const heti_rank *r) {
    const het_action *a = r->doing;
    const int64_t ahead = a->kind == HET_ACTION_REDUCE ? heti_windows(r->ctx, a->stage) : 0;
    return heti_owned_count(r, a->stage) == 0 || !heti_is_trained(r, a->stage) ||
           r->part->stepped[a->stage] > a->version - ahead;
}
static int heti_terms_left(const heti_rank *r) { return heti_flowed_until(r, HETI_FLOW_SUMS, 1); }
static int heti_version_there(const heti_rank *r) {
    return heti_stepped(r) && heti_flowed_until(r, HETI_FLOW_GATHER, 1);
}

/* REDUCE and GATHER of one of several updates. */
static het_result heti_move_update(heti_rank *r, const het_action *a) {
    heti_part *part = r->part;
    const int64_t b = a->stage;
    const int gather = a->kind == HET_ACTION_GATHER;
    if (!heti_is_trained(r, b)) return HET_OK;
    part->flow.call[HETI_FLOW_GATHER] += gather;
    HETI_TRY(heti_wait(r, NULL, gather ? heti_version_there : heti_stepped, gather ? "weights" : "an update"));
    HETI_TRY(heti_start_flow(r, a)); /* of new weights the own part */
    if (gather) {
        part->gathered[b]++;
        part->version[b * part->versions + part->gathered[b] % part->versions] = a->version + 1;
        part->given[b]++;
    } else {
        HETI_TRY(heti_wait(r, NULL, heti_terms_left, "an owner's receive"));
        if (part->box_sum_at[b] != HETI_NOWHERE) {
            HETI_TRY(heti_clear(r, heti_box_sums(r, b), heti_box_place(r->ctx, r->rank, b, -1), sizeof(double)));
            HETI_TRY(heti_sync(r));
        }
        ++*heti_arrived(r, b, a->version);
    }
    part->flow.came = 1;
    return heti_try_steps(r);
}

/* Before a job the newest version of every block is version 0. */
static void heti_begin_updates(heti_rank *r) {
    heti_part *part = r->part;
    for (int64_t b = 0; b < r->ctx->chain.block_count; b++) {
        part->stepped[b] = part->given[b] = 0;
        for (int64_t i = 0; i < part->versions; i++) part->version[b * part->versions + i] = -1;
        part->version[b * part->versions + part->gathered[b] % part->versions] = 0;
    }
    HETI_CLEAR(part->arrived, r->ctx->chain.block_count * heti_window(r->ctx->share.plan));
    part->flow.came = heti_updates_often(r->ctx); /* an update without gradients waits for nothing */
}

static het_result heti_run_action(heti_rank *r, const het_action *a) {
    const heti_stage *stage = a->kind <= HET_ACTION_RECV_B ? heti_stage_of(r, a) : NULL;
    const heti_work work = { a, NULL, NULL, NULL };
    if (a->kind >= HET_ACTION_STEP && heti_is_trained(r, a->stage) && !heti_rounds_update(r, a->stage))
        r->part->fresh[a->stage] = 0;
    switch (a->kind) {
    case HET_ACTION_F: return heti_run_forward(r, a, stage);
    case HET_ACTION_B: case HET_ACTION_I: case HET_ACTION_W: return heti_run_backward(r, a, stage);
    case HET_ACTION_PUT: case HET_ACTION_TAKE: return heti_move_slot(r, a, stage);
    case HET_ACTION_SEND_F: case HET_ACTION_SEND_B: return heti_send(r, a, stage);
    case HET_ACTION_RECV_F: case HET_ACTION_RECV_B: return heti_receive(r, a, stage);
    case HET_ACTION_REDUCE:
        if (heti_updates_often(r->ctx)) return heti_move_update(r, a);
        HETI_TRY(heti_fill_sums(r, a->stage));
        break;
    case HET_ACTION_COMMIT: return heti_verdict(r, a);
    case HET_ACTION_STEP:
        if (heti_updates_often(r->ctx)) return heti_wait(r, NULL, heti_stepped, "the gradients of an update");
        return heti_is_trained(r, a->stage) ? heti_do_work(r, &work, heti_update) : HET_OK;
    case HET_ACTION_GATHER:
        if (heti_updates_often(r->ctx)) return heti_move_update(r, a);
        break;
    default:
        return heti_fail(&r->error, HET_ERR_UNSUPPORTED, "rank %d: action of kind %i", r->rank, a->kind);
    }
    return heti_start_moves(r, a, r->present);
}

#ifdef HETI_THREADS
/* het_desc.emulate.test_hang: as if its machine were gone, until another rank notices. */
static het_result heti_fall_silent(heti_rank *r) {
    het_ctx *ctx = r->ctx;
    const double since = heti_now();
    HETI_LOCK(ctx);
    r->silent_since = since;
    while (!ctx->stop && !HETI_ATOMIC_LOAD(&ctx->cancelled) && heti_now() - since < 20.0 * ctx->desc.layout.deadline)
        heti_wait_signal(&r->wake, &ctx->threads.lock, 0.05);
    HETI_UNLOCK(ctx);
    return heti_rank_fail(r, HET_ERR_TRANSPORT, "fell silent, and no other rank noticed");
}
#endif

static het_result heti_execute(heti_rank *r) {
    heti_part *part = r->part;
    het_ctx *ctx = r->ctx;
    const int recorded = heti_trains(ctx);
    if (recorded) part->records = 0;
    for (int64_t i = 0; i < part->actions; i++) {
        const het_action *a = &part->action[i];
        het_record *record = recorded ? &part->record[part->records] : &r->unrecorded;
        if (!heti_takes_part(ctx, a) || !heti_infers(ctx, r->rank)) continue;
        r->doing = a;
        if (heti_moves_began(r, a)) {
            part->records++;
            continue;
        }
#ifdef HETI_THREADS
        if (ctx->desc.emulate.test_hang && ctx->desc.emulate.test_hang(ctx->desc.host.user, r->rank, ctx->step, i))
            return heti_fall_silent(r);
#endif
        if (a->kind == HET_ACTION_STEP) HETI_ATOMIC_STORE(&ctx->stepping, 1);
        heti_open_record(r, record, a);
        r->present = record;
        HETI_TRY(heti_run_action(r, a));
        heti_slow_down(r);
        if (a->kind != HET_ACTION_REDUCE && a->kind != HET_ACTION_GATHER) record->end = heti_now() - r->began;
        if (recorded) part->records++;
        HETI_TRY(heti_progress(r));
    }
    r->doing = NULL;
    HETI_TRY(heti_wait(r, NULL, heti_flowed, "a reduction"));
    for (int64_t i = 0; i < 2 && ctx->world.ranks > 1; i++)
        HETI_TRY(heti_await_message(r, &part->outgoing[i], "a receive"));
    return HET_OK;
}

/* ---- jobs: what the caller has its ranks do together ---- */

static het_result heti_set_scalars(heti_rank *r) {
    het_ctx *ctx = r->ctx;
    const float clip = ctx->desc.optimizer.clip;
    het_step_scalars *s = &r->host_scalars; /* the job before has waited for its copy */
    memset(s, 0, sizeof *s);
    heti_set_rates(r, ctx->step + 1, 1);
    s->seed = ctx->desc.seed;
    s->step = HETI_CAST(uint64_t, ctx->step);
    s->inverse_weight = HETI_CAST(float, 1.0 / ctx->task.weight);
    s->clip_scale = 1.0f;
    s->maximum_norm = clip > 0.0f ? HETI_CAST(double, clip) : 0.0;
    s->spike_loss = ctx->verdict.spike_loss * ctx->task.weight;
    s->spike_norm = ctx->task.job == HETI_JOB_STEP ? ctx->verdict.spike_norm : 0.0;
    return heti_copy_in(r, r->part->scalars, s, 1, sizeof *s);
}

/* Clears a step's sums, or marks them as empty where products may write first, and sets grids. */
static het_result heti_begin_sums(heti_rank *r) {
    heti_part *part = r->part;
    het_ctx *ctx = r->ctx;
    const int may_be_empty = heti_fills_sums(r);
    int64_t p;
    HETI_TRY(heti_copy_in(r, part->exponent, ctx->verdict.exponent, ctx->chain.parameter_count,
                          sizeof *part->exponent));
    HETI_TRY(heti_copy_in(r, part->grid, ctx->verdict.grid, ctx->chain.parameter_count, sizeof *part->grid));
    for (p = 0; p < ctx->chain.parameter_count; p++) part->empty[p] = may_be_empty && part->sum_at[p] != HETI_NOWHERE;
    if (!may_be_empty) HETI_TRY(heti_clear(r, part->gradients, part->sum_floats, sizeof *part->gradients));
    return heti_clear(r, part->maximum, ctx->chain.parameter_count, sizeof *part->maximum);
}

static het_result heti_read_values(het_ctx *ctx, int64_t index, het_array what, int64_t first, int64_t count,
                                   float *to);

/* Whether the rank computes with a box of a parameter that divides nothing, and stays. */
static int heti_boxes_whole(const heti_rank *r, int64_t parameter) {
    const heti_parameter *p = &r->ctx->chain.parameter[parameter];
    const het_box box = heti_box_of(r->ctx, r->rank, &p->desc);
    return r->part->box_at[p->block] != HETI_NOWHERE && !heti_is_sharded(r->ctx, HETI_FLOW_WEIGHTS, p->block) &&
           (box.row_end - box.row_begin) * (box.column_end - box.column_begin) == p->count;
}

/* Such a box, or what the rank holds of the parameter, at an element. */
static float *heti_copy_at(const heti_rank *r, int64_t parameter, int64_t element) {
    const heti_parameter *p = &r->ctx->chain.parameter[parameter];
    if (!heti_boxes_whole(r, parameter)) return heti_weight(r, p, r->part->weight_at, element);
    return heti_boxes(r, p->block, r->part->gathered[p->block]) + heti_weight_floats(p->type, element) +
           heti_box_place(r->ctx, r->rank, p->block, parameter);
}

/* XXH64 of a weight that a rank has all of or, where r is NULL, from its owners. */
static het_result heti_hash_weight(het_ctx *ctx, heti_rank *r, int64_t index, uint64_t *hash) {
    const heti_parameter *p = &ctx->chain.parameter[index];
    float *values = HETI_CAST(float *, HETI_CAST(void *, (r ? r : ctx->rank)->part->staging));
    heti_xxh64 state;
    heti_xxh64_start(&state, 0);
    for (int64_t first = 0, n; first < p->count; first += n) {
        n = heti_min(2 * HETI_STAGING, p->count - first);
        HETI_TRY(r ? heti_move_weight(r, p->type, heti_copy_at(r, index, first), n, NULL, values)
                   : heti_read_values(ctx, index, HET_WEIGHT, first, n, values));
        heti_xxh64_add(&state, values, HETI_CAST(size_t, n) * sizeof *values);
    }
    *hash = heti_xxh64_end(&state);
    return HET_OK;
}

/* Largest and smallest hash of every parameter's copies, as largest hash and largest complement; of
   the first where they differ, every rank's. */
static het_result heti_compare_replicas(heti_rank *r) {
    const int64_t parameters = r->ctx->chain.parameter_count;
    int64_t *joined = r->part->joined, p;
    uint64_t *hash = HETI_CAST(uint64_t *, HETI_CAST(void *, joined)); /* the same memory */
    if (!heti_tree_place_of(r->ctx, r->rank)) return HET_OK;
    for (p = 0; p < parameters; p++) {
        joined[p] = joined[parameters + p] = INT64_MIN;
        if (!heti_has_copy(r, p) && !heti_boxes_whole(r, p)) continue;
        HETI_TRY(heti_hash_weight(r->ctx, r, p, &hash[p]));
        joined[parameters + p] = -1 - joined[p];
    }
    HETI_TRY(heti_join(r, 0, 2 * parameters));
    for (p = 0; p < parameters && (joined[p] == -1 - joined[parameters + p] || /* or nobody has a copy */
         (joined[p] == INT64_MIN && joined[parameters + p] == INT64_MIN)); p++) {}
    if (r->local == r->ctx->share.tree.speaker) r->ctx->task.different = p < parameters ? p : -1;
    if (p == parameters) return HET_OK;
    HETI_TRY(heti_told(r));
    HETI_CLEAR(joined, r->ctx->world.ranks);
    if (heti_has_copy(r, p) || heti_boxes_whole(r, p)) HETI_TRY(heti_hash_weight(r->ctx, r, p, &hash[r->rank]));
    return heti_join(r, r->ctx->world.ranks, r->ctx->world.ranks);
}

/* A rank's part of a job. One of the local ranks leaves behind what the caller wants to know. */
static het_result heti_run_job(heti_rank *r) {
    heti_part *part = r->part;
    het_ctx *ctx = r->ctx;
    const int trains = heti_trains(ctx);
    r->began = heti_now();
    r->slept_for = heti_thread_time();
    HETI_TRY(heti_set_scalars(r));
    HETI_TRY(heti_clear(r, part->loss, 1, sizeof *part->loss));
    HETI_TRY(heti_clear(r, part->squares, 1, sizeof *part->squares));
    if (trains) HETI_TRY(heti_begin_sums(r));
    if (trains) heti_order_moves(r);
    heti_begin_updates(r);
    heti_begin_flows(r);
    HETI_TRY(heti_round_weights(r));
    HETI_TRY(heti_execute(r));
    if (ctx->task.job == HETI_JOB_VERIFY) HETI_TRY(heti_compare_replicas(r));
    if (ctx->task.job == HETI_JOB_EVALUATE && ctx->world.ranks > 1) {
        const int64_t limbs = HETI_SUM_INTEGERS;
        HETI_TRY(heti_copy_out(r, part->joined, part->loss, limbs, sizeof(int64_t)));
        HETI_TRY(heti_join(r, limbs, limbs));
        HETI_TRY(heti_copy_in(r, part->loss, part->joined, limbs, sizeof(int64_t)));
    }
    HETI_TRY(heti_told(r));
    if (r->local == ctx->share.tree.speaker && ctx->task.job != HETI_JOB_VERIFY) {
        HETI_TRY(heti_copy_out_later(r, &ctx->task.loss, part->loss, 1, sizeof ctx->task.loss));
        HETI_TRY(heti_copy_out_later(r, &ctx->task.scalars, part->scalars, 1, sizeof ctx->task.scalars));
        if (trains)
            HETI_TRY(heti_copy_out_later(r, ctx->verdict.maximum, part->maximum, ctx->chain.parameter_count,
                                         sizeof *part->maximum));
    }
    return heti_sync(r);
}

static void heti_run_rank(heti_rank *r) {
    heti_action_text text;
    r->doing = NULL;
    const het_result result = heti_run_job(r);
    if (result == HET_OK) return;
    if (r->error.code == HET_OK) (void)heti_rank_fail(r, result, "%s", het_result_text(result));
    if (r->doing && r->ctx->world.ranks > 1) {
        const het_error error = r->error;
        (void)heti_fail(&r->error, error.code, "%s (rank %d, action %s, number %d of its list)", error.text, r->rank,
                        heti_action_print(&text, r->doing), HETI_CAST(int64_t, r->doing - r->part->action));
    }
    heti_raise(r);
    heti_abort_ends(&r->ctx->desc.layout.communicators, r->part, 1);
}

/* Nobody outside writes into this rank's buffers any more. */
static void heti_drain_rank(heti_rank *r) {
    heti_part *part = r->part;
    for (int64_t m = 0; m < part->message_count + (r->ctx->world.ranks > 1 ? 2 : 0); m++)
        for (int64_t i = 0; i < part->crossings; i++) heti_drain_post(r->ctx, &part->message[m].post[i]);
    for (int64_t m = 0; m < 2 * part->team.members; m++) heti_drain_post(r->ctx, &part->exchange[m]);
    for (int64_t k = 0; k < HETI_JOINS; k++) heti_drain_post(r->ctx, &r->join[k]);
    for (const heti_flow *f = part->flow.flow; f < part->flow.flow + part->flow.flows; f++)
        for (int64_t k = 0; k < f->slots; k++) heti_drain_post(r->ctx, &f->post[k]);
}

/* Has all local ranks do a job and waits until none touches memory any more. */
static het_result heti_run(het_ctx *ctx, heti_job job) {
    ctx->stepping = 0;
    if (job != HETI_JOB_INFER) ctx->inferred = 0; /* activations go over its keys */
    if (job != HETI_JOB_VERIFY) ctx->has_gradient = job == HETI_JOB_STEP || job == HETI_JOB_GRADIENTS;
    for (int64_t i = 0; i < ctx->world.local_count; i++) {
        memset(&ctx->rank[i].error, 0, sizeof ctx->rank[i].error);
        memset(&ctx->rank[i].inside, 0, sizeof ctx->rank[i].inside);
        if (job != HETI_JOB_INFER || ctx->task.past == 0) heti_free_slots(&ctx->rank[i]);
    }
    heti_start_job(ctx, job);
    if (ctx->rank[0].threaded) heti_await_job(ctx);
    else heti_run_rank(&ctx->rank[0]);
    if (!ctx->stop) return HET_OK;
    ctx->failed = 1;
    for (int64_t i = 0; i < ctx->world.local_count; i++) heti_drain_rank(&ctx->rank[i]);
    if (ctx->stepping) ctx->torn = 3;
    return ctx->error.code;
}

/* =================================================================================================
   >>verdict  A step, and what becomes of it: the grid of its exact sums, exponents, spikes, bad
              steps.
   ============================================================================================== */

/* c = 1.5 2^52 q with q = 2^(x + 6 + ceil(log2 n) - 51): (t + c) - c rounds t to a multiple of q,
   and n such terms add up exactly. */
static double heti_grid_of(int32_t exponent, int64_t terms) {
    int log2_terms = 0;
    if (exponent == HETRAIN_NO_EXPONENT) exponent = 0; /* measured only; the step is repeated */
    while (log2_terms < 62 && (INT64_C(1) << log2_terms) < terms) log2_terms++;
    return ldexp(1.5, exponent + 6 + log2_terms - 51 + 52);
}

static int32_t heti_largest_exponent(const het_ctx *ctx) {
    int32_t most = HETRAIN_NO_EXPONENT;
    for (int64_t p = 0; p < ctx->chain.parameter_count; p++)
        if (ctx->chain.parameter[p].exponent > most) most = ctx->chain.parameter[p].exponent;
    return most;
}

/* Where weights are updated before a step's verdict it cannot be repeated: terms may grow 2^10
   times as far before sums lose the promise that they have no order. What had no gradient yet, as
   half of low-rank factors, takes the largest exponent; what is 2^24 times smaller than the largest
   may have been no more than rounding, so none is taken as smaller. */
#define HETI_UPDATES_HEADROOM 10
#define HETI_UPDATES_SMALL 24

static void heti_set_grid(het_ctx *ctx, heti_job job) {
    const int32_t most = heti_largest_exponent(ctx);
    const int several = job == HETI_JOB_STEP && ctx->share.updates > 1 && most != HETRAIN_NO_EXPONENT;
    for (int64_t p = 0; p < ctx->chain.parameter_count; p++) {
        const heti_parameter *parameter = &ctx->chain.parameter[p];
        int32_t exponent = parameter->exponent;
        if (several && exponent == HETRAIN_NO_EXPONENT) exponent = most;
        if (several && exponent < most - HETI_UPDATES_SMALL) exponent = most - HETI_UPDATES_SMALL;
        if (several) exponent += HETI_UPDATES_HEADROOM;
        ctx->verdict.exponent[p] = exponent;
        ctx->verdict.grid[p] = heti_grid_of(exponent, ctx->task.granules * parameter->uses);
    }
}

/* Exponents from an attempt's maxima: those too small or unknown (repeat), or all (accepted). */
static void heti_set_exponents(het_ctx *ctx, int repeat) {
    for (int64_t p = 0; p < ctx->chain.parameter_count; p++) {
        heti_parameter *parameter = &ctx->chain.parameter[p];
        int x;
        if (parameter->frozen || ctx->verdict.maximum[p] == 0) continue;
        /* the maximum is f 2^x, 1/2 <= f < 1 */
        (void)frexp(HETI_CAST(double, heti_bits_float(ctx->verdict.maximum[p])), &x);
        if (!repeat || parameter->exponent == HETRAIN_NO_EXPONENT || x > parameter->exponent + 6)
            parameter->exponent = x;
    }
}

/* The middle of `count` values, of an even number the mean of the two in the middle. Sorts them. */
static double heti_median(double *value, int64_t count) {
    int64_t k;
    for (int64_t i = 1; i < count; i++) {
        const double x = value[i];
        for (k = i; k > 0 && value[k - 1] > x; k--) value[k] = value[k - 1];
        value[k] = x;
    }
    return 0.5 * (value[(count - 1) / 2] + value[count / 2]);
}

/* Where values begin to be far outside of HETRAIN_LOSS_HISTORY earlier ones (het_guard.spike). */
static double heti_spike_limit(const double *recent, double factor) {
    double value[HETRAIN_LOSS_HISTORY], median;
    memcpy(value, recent, sizeof value);
    median = heti_median(value, HETRAIN_LOSS_HISTORY);
    for (int64_t i = 0; i < HETRAIN_LOSS_HISTORY; i++) value[i] = fabs(recent[i] - median);
    return fma(1.4826 * factor, heti_median(value, HETRAIN_LOSS_HISTORY), median);
}

static void heti_set_spike(het_ctx *ctx) {
    heti_measures *v = &ctx->verdict;
    const int judged = ctx->desc.guard.spike > 0.0 && v->recent.count == HETRAIN_LOSS_HISTORY;
    v->spike_loss = judged ? heti_spike_limit(v->recent.loss, ctx->desc.guard.spike) : 0.0;
    v->spike_norm = judged ? heti_spike_limit(v->recent.norm, ctx->desc.guard.spike) + 2.3e-308 : 0.0; /* not 0 */
}

static void heti_remember(het_loss_history *recent, double loss, double norm) {
    if (recent->count == HETRAIN_LOSS_HISTORY) {
        recent->count--;
        memmove(recent->loss, recent->loss + 1, sizeof recent->loss - sizeof loss);
        memmove(recent->norm, recent->norm + 1, sizeof recent->norm - sizeof norm);
    }
    recent->loss[recent->count] = loss;
    recent->norm[recent->count++] = norm;
}

/* The parameter with the first term that is not finite or, where all are, whose terms have grown
   most since the last accepted step; -1: none. */
static int64_t heti_find_culprit(const het_ctx *ctx) {
    int64_t found = -1;
    double most = -HETI_DINFINITY;
    for (int64_t p = 0; p < ctx->chain.parameter_count; p++) {
        const uint32_t maximum = ctx->verdict.maximum[p];
        const int32_t before = ctx->verdict.saved_exponent[p];
        if (maximum >= 0x7f800000u) return p;
        if (maximum == 0 || before == HETRAIN_NO_EXPONENT) continue;
        const double grown = ldexp(HETI_CAST(double, heti_bits_float(maximum)), -before);
        if (grown > most) most = grown, found = p;
    }
    return found;
}

/* What is wrong with a step that was not accepted; the parameter, unit and rank that show it. */
static het_result heti_name_bad_step(het_ctx *ctx, const het_step_info *info) {
    const heti_measures *v = &ctx->verdict;
    const int spike = ctx->task.scalars.verdict == HET_VERDICT_SPIKE, by_loss = spike && info->loss > v->spike_loss;
    const int64_t p = heti_find_culprit(ctx);
    const int infinite = p >= 0 && v->maximum[p] >= 0x7f800000u;
    char what[112] = "loss or gradient norm is not finite", where[128] = "";
    if (spike)
        (void)heti_format(what, sizeof what, "%s %g is above %g, the median of %i steps + %g deviations",
                          by_loss ? "loss" : "gradient norm", by_loss ? info->loss : info->gradient_norm,
                          by_loss ? v->spike_loss : v->spike_norm, HETRAIN_LOSS_HISTORY, ctx->desc.guard.spike);
    if (infinite) (void)heti_format(what, sizeof what, "the gradient of %s is not finite",
                                    ctx->chain.parameter[p].desc.name);
    if (p >= 0) {
        const int64_t unit = ctx->chain.use[ctx->chain.block[ctx->chain.parameter[p].block].first_use];
        (void)heti_format(where, sizeof where, "%s%s; unit %d (%s), rank %d",
                          infinite ? "" : "; most of all grew the gradient of ",
                          infinite ? "" : ctx->chain.parameter[p].desc.name, unit,
                          ctx->chain.unit[unit].unit.iface->name, HETI_CAST(int64_t, v->maximum_rank[p]));
    }
    return heti_fail(&ctx->error, spike ? HET_ERR_SPIKE : HET_ERR_NOT_FINITE, spike ? "step %d: %s%s" :
                     "step %d: %s%s (loss %g)", ctx->step + 1, what, where, info->loss);
}

static void heti_tell(het_ctx *ctx, het_log_level level, het_result result) {
    if (!ctx->desc.host.logger.log) return;
    ctx->inside->callback = "het_desc.host.logger";
    ctx->desc.host.logger.log(ctx->desc.host.logger.user, level, result, ctx->error.text);
    ctx->inside->callback = NULL;
}

/* Runs the lists once. */
static het_result heti_attempt(het_ctx *ctx, heti_job job, het_step_info *info) {
    heti_set_grid(ctx, job);
    HETI_TRY(heti_run(ctx, job));
    info->loss = heti_sum_value(&ctx->task.loss) / ctx->task.weight;
    info->gradient_norm = ctx->task.scalars.gradient_norm;
    return HET_OK;
}

/* Until the verdict is final: at most twice. */
static het_result heti_attempts(het_ctx *ctx, heti_job job, het_step_info *info) {
    for (int attempt = 0; attempt < 2; attempt++) {
        HETI_TRY(heti_attempt(ctx, job, info));
        info->repeated = attempt;
        if (ctx->task.scalars.verdict != HET_VERDICT_REPEAT) return HET_OK;
        heti_set_exponents(ctx, 1);
    }
    ctx->failed = 1;
    return heti_fail(&ctx->error, HET_ERR_STATE,
                     "step %d: the second attempt asked for a third; the device is not deterministic", ctx->step + 1);
}

/* What each of several updates of a block is made from: rows, by the pass that adds the gradients
   of the block's first unit. */
static void heti_weigh_updates(het_ctx *ctx) {
    const het_schedule *s = ctx->share.schedule;
    const het_plan *plan = ctx->share.plan;
    for (int64_t i = 0; i < ctx->chain.block_count * ctx->share.updates; i++) ctx->share.update[i].weight = 0.0;
    for (int64_t i = 0; i < s->start[s->ranks]; i++) {
        const het_action *a = &s->action[i];
        het_sum sum = HETI_ZEROS;
        if (!heti_makes_gradients(a) || a->micro_batch >= ctx->share.batch_count[a->pipeline]) continue;
        const heti_border *cut = heti_cuts_of(ctx, a) + a->slice;
        heti_sum_weights(&ctx->task.batches[heti_batch_of(ctx, a)], cut[0].row, cut[1].row, &sum);
        for (int64_t b = 0; b < ctx->chain.block_count; b++) {
            const het_stage *stage = &plan->stage[plan->first_stage[a->pipeline] + a->stage];
            const int64_t unit = ctx->chain.use[ctx->chain.block[b].first_use];
            if (unit >= stage->unit_begin && unit < stage->unit_end && heti_adds_gradients(ctx, a->kind, unit))
                heti_update_at(ctx, b, a->version)->weight += heti_sum_value(&sum);
        }
    }
}

/* A step of several updates. The first one of all measures its gradients before anything is
   updated. One that is not accepted has updated weights nevertheless. */
static het_result heti_updates_step(het_ctx *ctx, het_step_info *info) {
    if (heti_largest_exponent(ctx) == HETRAIN_NO_EXPONENT) {
        HETI_TRY(heti_attempts(ctx, HETI_JOB_GRADIENTS, info));
        if (ctx->task.scalars.verdict != HET_VERDICT_ACCEPT) return HET_OK;
        heti_set_exponents(ctx, 0);
    }
    heti_weigh_updates(ctx);
    HETI_TRY(heti_attempt(ctx, HETI_JOB_STEP, info));
    if (ctx->task.scalars.verdict == HET_VERDICT_ACCEPT) return HET_OK;
    ctx->failed = 1;
    ctx->torn = 3;
    if (ctx->task.scalars.verdict != HET_VERDICT_REPEAT) return heti_name_bad_step(ctx, info);
    const int64_t p = heti_find_culprit(ctx);
    return heti_fail(&ctx->error, HET_ERR_NOT_FINITE, "step %d: gradients grew more than %d-fold in one step of %d "
                     "updates, most of all %s", ctx->step + 1, INT64_C(1) << (HETI_UPDATES_HEADROOM + 6),
                     ctx->share.updates, p >= 0 ? ctx->chain.parameter[p].desc.name : "in the first step");
}

static het_result heti_step(het_ctx *ctx, const het_batch *batches, int64_t count, het_step_info *out, int update) {
    het_step_info info = HETI_ZEROS;
    int64_t p;
    if (ctx->desc.inference == HET_YES)
        return heti_fail(&ctx->error, HET_ERR_STATE, "%s: the context was made for inference", ctx->call);
    if (count > ctx->desc.limits.max_micro_batches)
        return heti_fail(&ctx->error, HET_ERR_LIMIT, "%s: %d micro-batches, max_micro_batches is %d", ctx->call, count,
                         ctx->desc.limits.max_micro_batches);
    HETI_TRY(heti_check_step(ctx, batches, count, &info));
    for (p = 0; p < ctx->chain.parameter_count; p++) ctx->verdict.saved_exponent[p] = ctx->chain.parameter[p].exponent;
    heti_set_spike(ctx);
    HETI_TRY(heti_deal(ctx, batches, count));
    if (update && ctx->share.updates > 1) HETI_TRY(heti_updates_step(ctx, &info));
    else HETI_TRY(heti_attempts(ctx, update ? HETI_JOB_STEP : HETI_JOB_GRADIENTS, &info));
    info.learning_rate = het_learning_rate(&ctx->desc.optimizer, ctx->step);
    if (ctx->task.scalars.verdict == HET_VERDICT_ACCEPT && update) {
        heti_set_exponents(ctx, 0);
        heti_remember(&ctx->verdict.recent, info.loss, info.gradient_norm);
        if (ctx->desc.model.lora_rank == 0) ctx->base = 0; /* else factors alone are trained */
    } else for (p = 0; p < ctx->chain.parameter_count; p++) /* a step that did not happen leaves no history */
        ctx->chain.parameter[p].exponent = ctx->verdict.saved_exponent[p];
    if (ctx->task.scalars.verdict != HET_VERDICT_ACCEPT) { /* an error or, where it is skipped, a line in the log */
        const het_result result = heti_name_bad_step(ctx, &info);
        if (ctx->desc.guard.skip_bad_steps != HET_YES || !update) return result;
        heti_tell(ctx, HET_LOG_WARNING, result);
        memset(&ctx->error, 0, sizeof ctx->error);
        info.skipped = 1;
    }
    if (update) ctx->step++;
    if (out) *out = info;
    return HET_OK;
}

/* =================================================================================================
   >>context  The public calls of the step loop: check, set the floating-point mode, do, restore.
   ============================================================================================== */

/* Loss of micro-batches without gradients, as many at a time as the schedule has. */
static het_result heti_evaluate(het_ctx *ctx, const het_batch *batches, int64_t count, het_step_info *out) {
    het_step_info info = HETI_ZEROS;
    het_sum loss = HETI_ZEROS;
    HETI_TRY(heti_check_step(ctx, batches, count, &info));
    for (int64_t first = 0, n; first < count; first += n) {
        n = heti_min(count - first, ctx->desc.limits.max_micro_batches);
        HETI_TRY(heti_deal(ctx, batches + first, n));
        HETI_TRY(heti_run(ctx, HETI_JOB_EVALUATE));
        heti_sum_join(&loss, &ctx->task.loss);
    }
    info.loss = heti_sum_value(&loss) / info.weight;
    if (out) *out = info;
    return HET_OK;
}

/* The pipeline that generates: of those with lists the one that takes most tokens, the first. */
static int64_t heti_infer_pipeline(const het_ctx *ctx) {
    const heti_share *share = &ctx->share;
    int64_t pipeline = 0, most = 0;
    for (int64_t p = share->plan->pipelines - 1; p >= 0; p--) {
        if (share->schedule->micro_batches[p] == 0 || share->tokens[p] < most) continue;
        most = share->tokens[p];
        pipeline = p;
    }
    return pipeline;
}

/* The most tokens that het_infer can take at once: what the last member of each team has room for,
   in all processes alike. */
static int64_t heti_infer_rows(const het_ctx *ctx, int64_t pipeline) {
    const het_plan *plan = ctx->share.plan;
    const int64_t tokens = ctx->share.tokens[pipeline];
    int64_t most = heti_slice_rows(ctx, tokens);
    for (int64_t i = 0; i < plan->members; i++)
        if (i + 1 == plan->members || plan->member[i + 1].leader != plan->member[i].leader)
            most = heti_min(most, heti_rank_rows(ctx, plan->member[i].rank, tokens).rows);
    return most;
}

static het_result heti_check_infer(het_ctx *ctx, int64_t pipeline, const int32_t *token, int64_t count, int64_t past,
                                   const float *logits) {
    const int ahead = heti_is_bidirectional(ctx, 0, ctx->chain.unit_count);
    const int64_t held = heti_min(ctx->share.tokens[pipeline], ctx->desc.model.context),
                  most = ahead ? heti_min(held, heti_infer_rows(ctx, pipeline)) : held;
    HETI_TRY(heti_check_torn(ctx));
    if (!token || !logits || count < 1 || past < 0)
        return heti_fail(&ctx->error, HET_ERR_INVALID,
                         "het_infer: %d tokens after %d, at least 1 after 0; or token or logits NULL", count, past);
    if (ahead && past > 0)
        return heti_fail(&ctx->error, HET_ERR_INVALID,
                         "het_infer: past is %d, but a bidirectional model sees whole sequences only", past);
    if (count > most || past > most - count)
        return heti_fail(&ctx->error, HET_ERR_LIMIT, "het_infer: %d tokens after %d; the context holds %d", count, past,
                         most);
    if (past > ctx->inferred)
        return heti_fail(&ctx->error, HET_ERR_STATE,
                         "het_infer: past is %d, but only %d tokens of this sequence are kept", past, ctx->inferred);
    for (int64_t i = 0; i < count; i++)
        if (token[i] < 0 || token[i] >= ctx->desc.model.vocab)
            return heti_fail(&ctx->error, HET_ERR_DATA, "het_infer: token[%d] is %d; the vocabulary has %d", i,
                             HETI_CAST(int64_t, token[i]), ctx->desc.model.vocab);
    return HET_OK;
}

/* Generation's only micro-batch is one slice of one granule, all of it a team's last member's. */
static het_result heti_infer(het_ctx *ctx, const int32_t *token, int64_t count, int64_t past, float *logits) {
    const int64_t pipeline = heti_infer_pipeline(ctx), most = heti_infer_rows(ctx, pipeline),
                  vocab = ctx->desc.model.vocab;
    HETI_TRY(heti_check_infer(ctx, pipeline, token, count, past, logits));
    for (int64_t p = 0; p < ctx->share.plan->pipelines; p++) {
        ctx->share.batch_count[p] = p == pipeline;
        ctx->share.first_batch[p] = 0;
    }
    ctx->task.weight = 1.0;
    for (int64_t first = 0; first < count; first += ctx->task.count) {
        ctx->task.past = past + first;
        ctx->task.count = heti_min(most, count - first);
        ctx->task.token = token + first;
        const heti_border begin = { 0, ctx->task.past }, end = { 1, ctx->task.past + ctx->task.count };
        for (int64_t i = 0; i < heti_borders(ctx->share.plan); i++)
            ctx->share.cut[i] = i > 0 && i <= ctx->share.plan->slices ? end : begin;
        HETI_TRY(heti_run(ctx, HETI_JOB_INFER));
    }
    int64_t rank = ctx->share.plan->stage[ctx->share.plan->first_stage[pipeline + 1] - 1].rank; /* has the head */
    rank = heti_team_rank(ctx->share.plan, rank, heti_team_size(ctx->share.plan, rank) - 1);
    heti_rank *head = heti_local_rank(ctx, rank);
    const het_result result = head ? heti_copy_out(head, logits, head->part->logits, vocab, sizeof *logits) : HET_OK;
    if (result != HET_OK) return heti_move_error(ctx, head);
    HETI_TRY(heti_broadcast(ctx, heti_process_of(ctx, rank), logits, HETI_CAST(size_t, vocab) * sizeof *logits));
    ctx->inferred = past + count;
    return HET_OK;
}

/* Refuses a call from a callback of another one that is under way, or (held) one that would take
   the context away from its user. */
static het_result heti_refuse(het_ctx *ctx, const char *function, const char *held) {
    const char *running = HETI_ATOMIC_LOAD(&ctx->call);
    if (!running && !held) return HET_OK;
    heti_inside *inside = heti_inside_of(ctx);
    if (!running)
        return heti_fail(&inside->refused, HET_ERR_STATE, "%s: refused inside %s is using the context", function, held);
    return heti_fail(&inside->refused, HET_ERR_STATE, "%s: refused inside %s: %s is using the context", function,
                     inside->callback ? inside->callback : "a callback", running);
}

/* Start of every call that computes. A context that failed answers only queries and het_destroy. */
static het_result heti_enter(het_ctx *ctx, const char *function) {
    if (!ctx) return HET_ERR_INVALID;
    HETI_TRY(heti_refuse(ctx, function, NULL));
    if (ctx->failed) return HET_ERR_STATE; /* the first error stays in het_last_error */
    ctx->error.code = HET_OK;
    ctx->error.text[0] = 0;
    memset(ctx->inside, 0, sizeof *ctx->inside);
    heti_set_call(ctx, function);
    ctx->task.job = HETI_JOB_NONE;
    heti_fp_enter(&ctx->fp);
    return HET_OK;
}

/* The end of a call whose result is the same on all processes. */
static het_result heti_leave_together(het_ctx *ctx, het_result result) {
    heti_fp_leave(&ctx->fp);
    if (result != HET_OK) heti_tell(ctx, HET_LOG_ERROR, result);
    heti_set_call(ctx, NULL);
    return result;
}

static void heti_fail_all(het_ctx *ctx, het_result result) {
    if (ctx->error.code == HET_OK) (void)heti_fail(&ctx->error, result, "%s", het_result_text(result));
    if (!ctx->world.transport.iface) return;
    ctx->failed = 1; /* the others would wait for this process */
    heti_call_off(ctx, result);
}

static het_result heti_leave(het_ctx *ctx, het_result result) {
    if (result != HET_OK) heti_fail_all(ctx, result);
    return heti_leave_together(ctx, result);
}

HETRAIN_API void het_destroy(het_ctx *ctx) {
    if (!ctx || heti_refuse(ctx, "het_destroy", ctx->held) != HET_OK) return;
    heti_set_call(ctx, "het_destroy");
    heti_release(ctx);
}

HETRAIN_API const char *het_last_error(const het_ctx *ctx) {
    if (!ctx) return "";
    const heti_inside *inside = heti_inside_of(ctx);
    if (inside->refused.code != HET_OK && (HETI_ATOMIC_LOAD(&ctx->call) || ctx->held)) return inside->refused.text;
    return inside == ctx->inside ? ctx->error.text : "";
}
HETRAIN_API const het_desc *het_get_desc(const het_ctx *ctx) { return ctx ? &ctx->desc : NULL; }
HETRAIN_API int64_t het_get_step(const het_ctx *ctx) { return ctx ? ctx->step : 0; }
HETRAIN_API void het_cancel(het_ctx *ctx) { if (ctx) HETI_ATOMIC_STORE(&ctx->cancelled, 1); }

HETRAIN_API void het_get_memory(const het_ctx *ctx, int64_t rank, het_memory *memory) {
    if (!memory) return;
    memset(memory, 0, sizeof *memory);
    if (!ctx || rank < 0 || rank >= ctx->world.local_count) return;
    if (ctx->rank[rank].part) *memory = ctx->rank[rank].part->sizes; /* NULL inside a replan's first allocations */
}

HETRAIN_API void het_get_timeline(const het_ctx *ctx, int64_t rank, het_timeline *timeline) {
    if (!timeline) return;
    memset(timeline, 0, sizeof *timeline);
    if (!ctx || rank < 0 || rank >= ctx->world.local_count || HETI_ATOMIC_LOAD(&ctx->call)) return;
    timeline->ranks = ctx->world.ranks;
    timeline->records = ctx->rank[rank].part->records;
    timeline->record = ctx->rank[rank].part->record;
    timeline->traffic = ctx->traffic + rank * ctx->world.ranks;
}

HETRAIN_API het_result het_step(het_ctx *ctx, const het_batch *batches, int64_t count, het_step_info *info) {
    HETI_TRY(heti_enter(ctx, "het_step"));
    return heti_leave(ctx, heti_step(ctx, batches, count, info, 1));
}

HETRAIN_API het_result het_gradients(het_ctx *ctx, const het_batch *batches, int64_t count, het_step_info *info) {
    HETI_TRY(heti_enter(ctx, "het_gradients"));
    return heti_leave(ctx, heti_step(ctx, batches, count, info, 0));
}

HETRAIN_API het_result het_evaluate(het_ctx *ctx, const het_batch *batches, int64_t count, het_step_info *info) {
    HETI_TRY(heti_enter(ctx, "het_evaluate"));
    return heti_leave(ctx, heti_evaluate(ctx, batches, count, info));
}

HETRAIN_API het_result het_infer(het_ctx *ctx, const int32_t *token, int64_t count, int64_t past, float *logits) {
    HETI_TRY(heti_enter(ctx, "het_infer"));
    return heti_leave(ctx, heti_infer(ctx, token, count, past, logits));
}

/* ---- parameters ---- */

HETRAIN_API int64_t het_parameter_count(const het_ctx *ctx) { return ctx ? ctx->chain.parameter_count : 0; }

HETRAIN_API het_result het_parameter_get_info(const het_ctx *ctx, int64_t index, het_parameter_info *info) {
    if (!ctx || !info || index < 0 || index >= ctx->chain.parameter_count) return HET_ERR_INVALID;
    const heti_parameter *p = &ctx->chain.parameter[index];
    info->name = p->desc.name;
    info->rows = p->desc.rows;
    info->columns = p->desc.columns;
    info->count = p->count;
    info->decay = p->desc.decay;
    info->frozen = p->frozen;
    info->uses = p->uses;
    info->exponent = p->exponent;
    info->adapter = p->desc.adapter;
    info->type = p->type;
    info->expanded = p->type == HET_INT8 && !(p->desc.int8 && ctx->rank[0].takes_int8);
    return HET_OK;
}

/* Whether a parameter has such an array: frozen ones have neither state nor gradient. */
static int heti_has_values(const het_ctx *ctx, int64_t index, het_array what) {
    if (what == HET_WEIGHT || what == HET_GRADIENT) return 1;
    return !ctx->chain.parameter[index].frozen && what >= HET_MOMENT0 &&
           HETI_CAST(int64_t, what) - HET_MOMENT0 < ctx->slots;
}

/* Who owns a parameter's element `first`, and in *count how many from there on. */
static int64_t heti_owner_of(const heti_owners *owners, const heti_parameter *p, int64_t first, int64_t *count) {
    const int64_t i = heti_last_start(owners->cut, 0, owners->holders, p->offset + first);
    *count = heti_min(p->count, owners->cut[i + 1] - p->offset) - first;
    return owners->holder[i];
}

/* Elements [first, first + count) of a local rank, which owns them, to the host. A gradient is the
   step's, as float, without clipping. */
static het_result heti_read_local(heti_rank *r, int64_t index, het_array what, int64_t first, int64_t count,
                                  float *to) {
    heti_part *part = r->part;
    const heti_parameter *p = &r->ctx->chain.parameter[index];
    if (what == HET_WEIGHT)
        return heti_move_weight(r, p->type, heti_weight(r, p, part->own_at, first), count, NULL, to);
    if (what != HET_GRADIENT)
        return heti_copy_out(r, to, part->state[what - HET_MOMENT0] + part->state_at[p->block] + p->offset + first,
                             count, sizeof *to);
    if (heti_sum_width(r, index) == 1) return heti_copy_out(r, to, heti_sum_at(r, index, first), count, sizeof *to);
    for (int64_t done = 0, n; done < count; done += n) {
        n = heti_min(HETI_STAGING, count - done);
        HETI_TRY(heti_copy_out(r, part->staging, heti_sum_at(r, index, first + done), n, sizeof(double)));
        for (int64_t i = 0; i < n; i++) to[done + i] = HETI_CAST(float, part->staging[i]);
    }
    return HET_OK;
}

/* Elements [first, first + count) of an array, from wherever they are. */
static het_result heti_read_values(het_ctx *ctx, int64_t index, het_array what, int64_t first, int64_t count,
                                   float *to) {
    const heti_parameter *p = &ctx->chain.parameter[index];
    if (what == HET_GRADIENT && p->frozen) {
        HETI_CLEAR(to, count);
        return HET_OK;
    }
    for (int64_t done = 0, n; done < count; done += n) {
        const int64_t rank = heti_owner_of(&ctx->share.owners[p->block], p, first + done, &n);
        heti_rank *r = heti_local_rank(ctx, rank);
        n = heti_min(n, count - done);
        if (r && heti_read_local(r, index, what, first + done, n, to + done) != HET_OK) return heti_move_error(ctx, r);
        HETI_TRY(heti_broadcast(ctx, heti_process_of(ctx, rank), to + done, HETI_CAST(size_t, n) * sizeof *to));
    }
    return HET_OK;
}

/* Writes elements [first, first + count) of a weight or moment on all ranks that have some. */
static het_result heti_write_values(het_ctx *ctx, int64_t index, het_array what, int64_t first, int64_t count,
                                    const float *from) {
    const heti_parameter *p = &ctx->chain.parameter[index];
    const heti_owners *owners = &ctx->share.owners[p->block];
    for (int64_t i = 0; i < owners->holders; i++) {
        heti_rank *r = heti_local_rank(ctx, owners->holder[i]);
        int64_t f = first, n = count;
        het_result result = HET_OK;
        if (!r) continue;
        if (what == HET_WEIGHT) result = heti_write_weight(r, p, first, count, from);
        else if (heti_clip(p, owners->cut[i], owners->cut[i + 1], &f, &n))
            result = heti_copy_in(r, r->part->state[what - HET_MOMENT0] + r->part->state_at[p->block] + p->offset + f,
                                  from + (f - first), n, sizeof *from);
        if (result != HET_OK || heti_sync(r) != HET_OK) return heti_move_error(ctx, r);
    }
    return HET_OK;
}

static het_result heti_check_parameter(het_ctx *ctx, int64_t index, het_array what, const void *buffer) {
    if (index < 0 || index >= ctx->chain.parameter_count || !buffer)
        return heti_fail(&ctx->error, HET_ERR_INVALID, "%s: parameter %d of %d, buffer %s", ctx->call, index,
                         ctx->chain.parameter_count, buffer ? "given" : "NULL");
    if (heti_has_values(ctx, index, what)) return HET_OK;
    return heti_fail(&ctx->error, HET_ERR_INVALID, "%s: parameter %s has no array number %d", ctx->call,
                     ctx->chain.parameter[index].desc.name, HETI_CAST(int64_t, what));
}

HETRAIN_API het_result het_parameter_read(het_ctx *ctx, int64_t index, het_array what, float *to) {
    HETI_TRY(heti_enter(ctx, "het_parameter_read"));
    het_result result = heti_check_parameter(ctx, index, what, to);
    if (result == HET_OK && what == HET_GRADIENT && !ctx->has_gradient) /* for no process */
        return heti_leave_together(ctx, heti_fail(&ctx->error, HET_ERR_STATE, "het_parameter_read: no gradient of %s: "
                                                  "the last call that computed was neither het_step nor het_gradients",
                                                  ctx->chain.parameter[index].desc.name));
    if (result == HET_OK) result = heti_read_values(ctx, index, what, 0, ctx->chain.parameter[index].count, to);
    return heti_leave(ctx, result);
}

HETRAIN_API het_result het_parameter_write(het_ctx *ctx, int64_t index, het_array what, const float *from) {
    HETI_TRY(heti_enter(ctx, "het_parameter_write"));
    het_result result = heti_check_parameter(ctx, index, what, from);
    if (result == HET_OK && what == HET_GRADIENT)
        result = heti_fail(&ctx->error, HET_ERR_INVALID, "het_parameter_write: gradients of %s cannot be written",
                           ctx->chain.parameter[index].desc.name);
    if (result == HET_OK && what == HET_WEIGHT && !ctx->chain.parameter[index].desc.adapter) ctx->base = 0;
    if (result == HET_OK && what == HET_WEIGHT) ctx->inferred = 0; /* kept keys are those of other weights */
    if (result == HET_OK) result = heti_write_values(ctx, index, what, 0, ctx->chain.parameter[index].count, from);
    return heti_leave(ctx, result);
}

HETRAIN_API void het_set_base(het_ctx *ctx, uint64_t fingerprint) {
    if (ctx && !ctx->failed && heti_refuse(ctx, "het_set_base", NULL) == HET_OK) ctx->base = fingerprint;
}

HETRAIN_API uint64_t het_get_base(const het_ctx *ctx) { return ctx ? ctx->base : 0; }

HETRAIN_API int32_t het_get_status(const het_ctx *ctx) {
    return ctx ? ctx->torn | (ctx->failed ? HET_FAILED : 0) : HET_FAILED;
}

static het_result heti_check_parts(het_ctx *ctx, int32_t parts) {
    if (parts < 1 || parts > (HET_WEIGHTS_INCOMPLETE | HET_STATE_INCOMPLETE))
        return heti_fail(&ctx->error, HET_ERR_INVALID, "%s: parts %i, must be 1 .. 3", ctx->call, parts);
    if ((parts & HET_STATE_INCOMPLETE) && ctx->desc.inference == HET_YES)
        return heti_fail(&ctx->error, HET_ERR_STATE, "%s: an inference context has no state", ctx->call);
    return HET_OK;
}

HETRAIN_API het_result het_restore_begin(het_ctx *ctx, int32_t parts) {
    HETI_TRY(heti_enter(ctx, "het_restore_begin"));
    const het_result result = heti_check_parts(ctx, parts);
    if (result == HET_OK) ctx->torn |= parts;
    return heti_leave(ctx, result);
}

static het_result heti_check_recent(het_error *error, const het_loss_history *recent) {
    if (!recent) return HET_OK;
    if (recent->count < 0 || recent->count > HETRAIN_LOSS_HISTORY)
        return heti_fail(error, HET_ERR_INVALID, "het_restore_end: %d recent steps, must be 0 .. %d", recent->count,
                         HETI_CAST(int64_t, HETRAIN_LOSS_HISTORY));
    for (int64_t i = 0; i < recent->count; i++)
        if (!heti_is_finite(recent->loss[i]) || !(recent->norm[i] >= 0.0 && heti_is_finite(recent->norm[i])))
            return heti_fail(error, HET_ERR_INVALID, "het_restore_end: recent step %d has loss %g and gradient norm %g",
                             i, recent->loss[i], recent->norm[i]);
    return HET_OK;
}

static het_result heti_restore_end(het_ctx *ctx, int32_t parts, int64_t step, const int32_t *exponents,
                                   const het_loss_history *recent) {
    HETI_TRY(heti_check_parts(ctx, parts));
    if (parts & HET_STATE_INCOMPLETE) {
        if (step < 0 || step > INT64_MAX / 2 / HETI_MOST_UPDATES || !exponents) /* updates are counted on */
            return heti_fail(&ctx->error, HET_ERR_INVALID, "het_restore_end: step %d, must be 0 .. 2^46 - 1; "
                             "exponents %s", step, exponents ? "given" : "NULL");
        HETI_TRY(heti_check_recent(&ctx->error, recent));
        for (int64_t p = 0; p < ctx->chain.parameter_count; p++)
            if (exponents[p] != HETRAIN_NO_EXPONENT && (exponents[p] < -200 || exponents[p] > 200))
                return heti_fail(&ctx->error, HET_ERR_INVALID, "het_restore_end: the exponent of %s is %i, must be "
                                 "-200 .. 200", ctx->chain.parameter[p].desc.name, exponents[p]);
        for (int64_t p = 0; p < ctx->chain.parameter_count; p++) ctx->chain.parameter[p].exponent = exponents[p];
        ctx->step = step;
        memset(&ctx->verdict.recent, 0, sizeof ctx->verdict.recent);
        if (recent) ctx->verdict.recent = *recent;
    }
    ctx->torn &= ~parts;
    return HET_OK;
}

HETRAIN_API het_result het_restore_end(het_ctx *ctx, int32_t parts, int64_t step, const int32_t *exponents,
                                       const het_loss_history *recent) {
    HETI_TRY(heti_enter(ctx, "het_restore_end"));
    return heti_leave(ctx, heti_restore_end(ctx, parts, step, exponents, recent));
}

HETRAIN_API void het_get_loss_history(const het_ctx *ctx, het_loss_history *recent) {
    if (ctx && recent) *recent = ctx->verdict.recent;
}

HETRAIN_API het_result het_fail(het_ctx *ctx, het_result code, const char *text) {
    const int told = code != HET_OK && text;
    het_error own; /* the text may be the context's, which ends here */
    (void)heti_fail(&own, told ? code : HET_ERR_INVALID, "%s", told ? text : "het_fail: no code, or no text");
    HETI_TRY(heti_enter(ctx, "het_fail"));
    return heti_leave(ctx, heti_fail(&ctx->error, own.code, "%s", own.text));
}

/* The first rank that holds all of a weight; -1: none does. */
static int64_t heti_whole_holder(const het_ctx *ctx, const heti_parameter *p) {
    const heti_owners *owners = &ctx->share.owners[p->block];
    for (int64_t i = 0; i < owners->holders; i++) {
        const heti_span held = heti_held(ctx, p->block, i);
        if (held.first <= p->offset && held.end >= p->offset + p->count) return owners->holder[i];
    }
    return -1;
}

static het_result heti_hash_all(het_ctx *ctx, uint64_t *hash) {
    unsigned char digest[8];
    heti_xxh64 all;
    heti_xxh64_start(&all, 0);
    for (int64_t p = 0; p < ctx->chain.parameter_count; p++) {
        const int64_t holder = heti_whole_holder(ctx, &ctx->chain.parameter[p]);
        heti_rank *r = heti_local_rank(ctx, holder);
        uint64_t value = 0;
        if (r && heti_hash_weight(ctx, r, p, &value) != HET_OK) return heti_move_error(ctx, r);
        HETI_TRY(holder < 0 ? heti_hash_weight(ctx, NULL, p, &value)
                            : heti_broadcast(ctx, heti_process_of(ctx, holder), &value, sizeof value));
        for (int i = 0; i < 8; i++) digest[i] = HETI_CAST(unsigned char, (value >> (8 * i)) & 255u);
        heti_xxh64_add(&all, digest, sizeof digest);
    }
    *hash = heti_xxh64_end(&all);
    return HET_OK;
}

HETRAIN_API het_result het_hash(het_ctx *ctx, uint64_t *hash) {
    HETI_TRY(heti_enter(ctx, "het_hash"));
    if (!hash) return heti_leave(ctx, heti_fail(&ctx->error, HET_ERR_INVALID, "het_hash: hash is NULL"));
    return heti_leave(ctx, heti_hash_all(ctx, hash));
}

/* Which ranks have which copy: those that have what most have, and the others. */
static het_result heti_name_replicas(het_ctx *ctx, int64_t parameter) {
    const heti_owners *owners = &ctx->share.owners[ctx->chain.parameter[parameter].block];
    const int64_t *hash = ctx->rank[ctx->share.tree.speaker].part->joined;
    char list[2][48];
    heti_text text[2];
    int64_t most = 0, first = 0;
    for (int other = 0; other < 2; other++) text[other] = heti_text_in(list[other], sizeof list[other]);
    for (int64_t i = 0; i < owners->holders; i++) {
        int64_t equal = 0;
        if (hash[owners->holder[owners->by_rank[i]]] == 0) continue; /* it has no whole copy */
        for (int64_t k = 0; k < owners->holders; k++)
            equal += hash[owners->holder[k]] == hash[owners->holder[owners->by_rank[i]]];
        if (equal > most) first = owners->by_rank[i];
        most = heti_max(most, equal);
    }
    for (int64_t i = 0; i < owners->holders; i++) {
        const int64_t rank = owners->holder[owners->by_rank[i]];
        if (hash[rank] == 0) continue;
        heti_text *t = &text[hash[rank] != hash[owners->holder[first]]];
        if (t->length + 16 < t->capacity) heti_text_write(t, t->length > 0 ? ", %d" : "%d", rank);
        else if (t->length + 5 < t->capacity) heti_text_write(t, ", ...");
    }
    ctx->failed = 1;
    return heti_fail(&ctx->error, HET_ERR_DEVICE, "step %d: copies of %s (block %d) differ: rank %s against rank %s",
                     ctx->step, ctx->chain.parameter[parameter].desc.name, ctx->chain.parameter[parameter].block,
                     list[0], list[1]);
}

static het_result heti_verify(het_ctx *ctx) {
    HETI_TRY(heti_check_torn(ctx));
    if (ctx->world.ranks == 1) return HET_OK;
    ctx->task.weight = 1.0;
    HETI_TRY(heti_run(ctx, HETI_JOB_VERIFY));
    return ctx->task.different < 0 ? HET_OK : heti_name_replicas(ctx, ctx->task.different);
}

HETRAIN_API het_result het_verify(het_ctx *ctx) {
    HETI_TRY(heti_enter(ctx, "het_verify"));
    return heti_leave(ctx, heti_verify(ctx));
}

/* ---- another plan ----
   A second share is built whole, but for device memory, beside the one in use, which stays intact.
   Then weights and state go to the host, and from there to those who hold them now. */

/* The share in use and the one aside change places. */
static void heti_swap_shares(het_ctx *ctx, heti_share *aside) {
    const heti_share used = ctx->share;
    int64_t i;
    ctx->share = *aside;
    *aside = used;
    ctx->desc.layout.plan = ctx->share.plan;
    ctx->desc.limits = ctx->share.limits;
    for (i = 0; i < ctx->world.local_count; i++) ctx->rank[i].part = heti_part_of(ctx, &ctx->share, i);
}

/* What one owner has of a parameter's weight or moment, at most 2 HETI_STAGING elements. */
typedef struct heti_extent { int64_t parameter, first, count, rank; het_array array; } heti_extent;

/* The next extent of blocks with such owners; all zeros come before the first. */
static int heti_next_extent(const het_ctx *ctx, const heti_owners *by_block, heti_extent *extent) {
    const heti_parameter *p = &ctx->chain.parameter[extent->parameter];
    const het_array next = extent->array == HET_WEIGHT ? HET_MOMENT0 : HETI_CAST(het_array, extent->array + 1);
    if (extent->count > 0 && heti_has_values(ctx, extent->parameter, next)) {
        extent->array = next;
        return 1;
    }
    extent->array = HET_WEIGHT;
    extent->first += extent->count;
    if (extent->first == p->count) {
        extent->first = 0;
        if (++extent->parameter == ctx->chain.parameter_count) return 0;
        p++;
    }
    extent->rank = heti_owner_of(&by_block[p->block], p, extent->first, &extent->count);
    extent->count = heti_min(2 * HETI_STAGING, extent->count);
    return 1;
}

/* The elements that local ranks own; with `to` they are copied there. */
static het_result heti_stage_extents(het_ctx *ctx, float *to, int64_t *count) {
    heti_extent extent = HETI_ZEROS;
    for (*count = 0; heti_next_extent(ctx, ctx->share.owners, &extent); ) {
        heti_rank *r = heti_local_rank(ctx, extent.rank);
        if (!r) continue;
        if (to) {
            memset(&r->error, 0, sizeof r->error);
            if (heti_read_local(r, extent.parameter, extent.array, extent.first, extent.count, to + *count) != HET_OK)
                return heti_move_error(ctx, r);
        }
        *count += extent.count;
    }
    return HET_OK;
}

/* Whether a rank of a process holds some of an extent by the share in use. */
static int heti_wants_extent(const het_ctx *ctx, int64_t process, const heti_extent *extent) {
    const heti_parameter *p = &ctx->chain.parameter[extent->parameter];
    const heti_owners *owners = &ctx->share.owners[p->block];
    const int64_t low = p->offset + extent->first;
    for (int64_t i = 0; i < owners->holders; i++)
        if (heti_process_of(ctx, owners->holder[i]) == process &&
            heti_has_some(ctx, p->block, i, extent->array == HET_WEIGHT, low, low + extent->count))
            return 1;
    return 0;
}

/* Extents staged by their owners `from` go to their holders in the share in use. Every process
   walks over all of them. */
static het_result heti_deliver_extents(het_ctx *ctx, const heti_owners *from, float *staged) {
    heti_extent extent = HETI_ZEROS;
    while (heti_next_extent(ctx, from, &extent)) {
        const int local = heti_local_rank(ctx, extent.rank) != NULL;
        float *data = local ? staged : HETI_CAST(float *, HETI_CAST(void *, ctx->rank[0].part->staging));
        for (int64_t q = 0; q < ctx->world.processes; q++)
            if (heti_wants_extent(ctx, q, &extent))
                HETI_TRY(heti_spread_to(ctx, heti_process_of(ctx, extent.rank), q, q + 1, data,
                                        HETI_CAST(size_t, extent.count) * sizeof *data));
        if (heti_wants_extent(ctx, ctx->world.process, &extent))
            HETI_TRY(heti_write_values(ctx, extent.parameter, extent.array, extent.first, extent.count, data));
        if (local) staged += extent.count;
    }
    return HET_OK;
}

/* All processes get the same result: that of the first one that failed. */
static het_result heti_vote(het_ctx *ctx, het_result result) {
    het_error own = HETI_ZEROS, first = HETI_ZEROS, other;
    if (result != HET_OK && ctx->error.code == HET_OK)
        (void)heti_fail(&ctx->error, result, "%s: %s", ctx->call, het_result_text(result));
    if (result != HET_OK) own = ctx->error;
    for (int64_t i = 0; i < ctx->world.processes; i++) {
        other = own;
        /* one that has heard of a failure may be gone already */
        if (heti_broadcast(ctx, i, &other, sizeof other) != HET_OK) {
            if (first.code == HET_OK) first = own.code != HET_OK ? own : ctx->error;
            break;
        }
        if (first.code == HET_OK) first = other;
    }
    first.text[sizeof first.text - 1] = 0;
    ctx->error = first;
    return first.code;
}

/* Groups that both shares have go over to the one in use, but for those joined anew. */
static void heti_keep_groups(het_ctx *ctx, heti_share *aside) {
    for (int64_t i = 0; i < ctx->world.local_count; i++)
        for (int64_t k = 0; k < ctx->share.part[i].ends; k++) {
            heti_endpoint *end = &ctx->share.part[i].end[k];
            const int64_t g = heti_group_number(aside, &ctx->share.group[end->group]);
            heti_endpoint *from = heti_endpoint_of(&aside->part[i], g);
            if (!from || end->handle) continue;
            end->handle = from->handle;
            end->given = from->given;
            end->finished = from->finished;
            end->joined = from->joined;
            from->handle = NULL;
        }
}

/* The share aside comes into use: the other's device memory goes before its own comes. */
static het_result heti_take_over(het_ctx *ctx, heti_share *aside) {
    for (int64_t i = 0; i < ctx->world.local_count; i++) heti_close_memory(&ctx->rank[i], ctx->rank[i].part);
    heti_swap_shares(ctx, aside);
    ctx->has_gradient = 0;
    return heti_vote(ctx, heti_for_ranks(ctx, heti_open_memory));
}

/* From here on only `staged` leads back. */
static het_result heti_change_over(het_ctx *ctx, heti_share *aside, float *staged) {
    const het_result result = heti_take_over(ctx, aside);
    if (result == HET_OK) {
        heti_keep_groups(ctx, aside);
        return heti_deliver_extents(ctx, aside->owners, staged);
    }
    const het_error why = ctx->error;
    if (heti_take_over(ctx, aside) != HET_OK || heti_deliver_extents(ctx, ctx->share.owners, staged) != HET_OK) {
        ctx->failed = 1;
        return heti_fail(&ctx->error, result,
                         "het_replan: %s; nor did the old plan find its memory again: weights and state are lost",
                         why.text);
    }
    ctx->error = why;
    return result;
}

/* Builds the share that `d` asks for, with tables and host memory but without device memory. */
static het_result heti_build_other(het_ctx *ctx, const het_replan_desc *d) {
    HETI_TRY(heti_check_torn(ctx));
    if (d->start_canary != 0 || d->end_canary != 0)
        return heti_fail(&ctx->error, HET_ERR_INVALID, "het_replan_desc was not zeroed: canaries are %x and %x",
                         HETI_CAST(uint64_t, d->start_canary), HETI_CAST(uint64_t, d->end_canary));
    HETI_TRY(heti_desc_check_fields(&ctx->desc, &ctx->error));
    ctx->desc.layout.plan = d->plan;
    ctx->desc.layout.schedule = d->schedule;
    HETI_TRY(heti_build_share(ctx));
    return heti_map_ranks(ctx, 0, ctx->world.local_count);
}

/* `together`: set once all processes know the same result. */
static het_result heti_replan(het_ctx *ctx, const het_replan_desc *d, int *together) {
    heti_share aside = HETI_ZEROS; /* first the new one, once it is built the old one */
    heti_arena staging = HETI_ZEROS;
    float *staged = NULL;
    int64_t floats;
    HETI_TRY(heti_stage_extents(ctx, NULL, &floats));
    (void)HETI_TAKE(&staging, float, floats + 1);
    het_result result = heti_arena_start(&staging, &ctx->allocator, ctx->call, &ctx->error);
    if (result == HET_OK) staged = HETI_TAKE(&staging, float, floats);
    aside.limits = ctx->desc.limits;
    if (d->max_tokens != 0) aside.limits.max_tokens = d->max_tokens;
    if (d->max_sequences != 0) aside.limits.max_sequences = d->max_sequences;
    if (d->max_micro_batches != 0) aside.limits.max_micro_batches = d->max_micro_batches;
    heti_swap_shares(ctx, &aside);
    if (result == HET_OK) result = heti_build_other(ctx, d);
    result = heti_vote(ctx, result);
    *together = !ctx->failed;
    if (result == HET_OK && ctx->world.transport.iface) {
        result = heti_agree(ctx);
        *together = result == HET_OK;
    }
    if (result == HET_OK && ctx->share.groups > 0) {
        result = heti_vote(ctx, heti_join_groups(ctx, &aside));
        *together = !ctx->failed;
    }
    heti_swap_shares(ctx, &aside);
    if (result == HET_OK) result = heti_stage_extents(ctx, staged, &floats);
    if (result == HET_OK) {
        ctx->inferred = 0;
        result = heti_change_over(ctx, &aside, staged);
    }
    if (ctx->failed) *together = 0;
    heti_close_share(ctx, &aside);
    heti_free_share(ctx, &aside);
    heti_arena_end(&staging, &ctx->allocator);
    ctx->desc.layout.schedule = NULL;
    return result;
}

HETRAIN_API het_result het_replan(het_ctx *ctx, const het_replan_desc *desc) {
    het_replan_desc none = HETI_ZEROS;
    int together = 0;
    HETI_TRY(heti_enter(ctx, "het_replan"));
    const het_result result = heti_replan(ctx, desc ? desc : &none, &together);
    return together ? heti_leave_together(ctx, result) : heti_leave(ctx, result);
}

HETRAIN_API het_result het_set_speed(het_ctx *ctx, int64_t rank, double speed) {
    het_result result = HET_OK;
    HETI_TRY(heti_enter(ctx, "het_set_speed"));
    if (rank < 0 || rank >= ctx->world.local_count || !heti_is_speed(speed))
        result = heti_fail(&ctx->error, HET_ERR_INVALID,
                           "het_set_speed: rank %d of %d, speed %g; it must be from 0.001 to 1", rank,
                           ctx->world.local_count, speed);
    else ctx->rank[rank].desc.speed = ctx->device[rank].speed = speed;
    return heti_leave(ctx, result);
}

HETRAIN_API het_result het_set_link(het_ctx *ctx, const het_link *link) {
    het_result result = HET_OK;
    HETI_TRY(heti_enter(ctx, "het_set_link"));
    het_link *emulated = link ? heti_link_between(ctx, link->from, link->to) : NULL;
    if (!link) result = heti_fail(&ctx->error, HET_ERR_INVALID, "het_set_link: link is NULL");
    else if (!emulated)
        result = heti_fail(&ctx->error, HET_ERR_INVALID, "het_set_link: ranks %d and %d have no emulated link "
                           "(het_desc.emulate.links)", link->from, link->to);
    else if (!heti_link_is_time(link))
        result = heti_fail(&ctx->error, HET_ERR_INVALID, "het_set_link: latency %g s and %g bytes/s; at most "
                           "3600 s, and 0 or at least 1 byte/s", link->latency, link->bandwidth);
    else emulated->latency = link->latency, emulated->bandwidth = link->bandwidth;
    return heti_leave(ctx, result);
}

HETRAIN_API het_result het_broadcast(het_ctx *ctx, int64_t process, void *data, size_t size) {
    het_result result;
    HETI_TRY(heti_enter(ctx, "het_broadcast"));
    if (process < 0 || process >= ctx->world.processes || (!data && size > 0))
        result = heti_fail(&ctx->error, HET_ERR_INVALID, "het_broadcast: process %d of %d, %u bytes at %s", process,
                           ctx->world.processes, HETI_CAST(uint64_t, size), data ? "an address" : "NULL");
    else result = size > 0 ? heti_broadcast(ctx, process, data, size) : HET_OK;
    return heti_leave(ctx, result);
}

/* =================================================================================================
   >>data  Token files, windows, the order of samples.
   A token file is never held in memory: open reads it once, block by block, to check every token;
   then each window is one positioned read. Windows start T tokens apart and hold T + 1 tokens, so
   each token is predicted once. Sample number i of the run (counted over steps, micro-batches and
   sequences) is window P(i mod W) of the W training windows, where P is the permutation of epoch i
   / W: the order is a function of (seed, sample number), there is no position to save, and any
   split of a step into micro-batches sees the same samples.
   ============================================================================================== */

/* One allocation holds the struct and every array. Slot `slots` is the one for held-out windows. B:
   sequences, T: length. */
struct het_data {
    het_data_desc desc;      /* completed */
    size_t size;             /* of the allocation */
    het_data_info info;
    uint64_t first;          /* offset of the first token in the file */
    int64_t limit;           /* tokens are below it: the vocabulary, then what all were below when it was opened */
    size_t token_bytes, raw_size;
    unsigned char *raw;      /* [slots + 1][raw_size] what was read: a window, or a block while checking */
    int32_t *token, *target; /* [slots + 1][B T] */
    int64_t *sample_id;      /* [slots + 1][B] */
    int64_t *sequence_start; /* [B + 1] 0, T, 2 T, ... */
    int64_t *granule_start;  /* [slots + 1][granule_limit + 1] */
    int64_t granule_limit;
};

#define HETI_DATA_BLOCK 65536 /* bytes a read while checking */

/* Checks `count` stored tokens, the file's from `number` on, into `to` where it is given. */
static het_result heti_data_convert(het_data *data, const unsigned char *from, int64_t number, int64_t count,
                                    int32_t *to, het_error *error) {
    const size_t size = data->token_bytes;
    for (int64_t i = 0; i < count; i++, from += size) {
        const int64_t token = size == 1 ? *from : size == 2 ? heti_load_u16(from) : heti_load_u32(from);
        if (token >= data->limit)
            return heti_fail(error, HET_ERR_DATA, "%s: token %d at offset %u (token number %d) is not below %d%s",
                             heti_reader_name(&data->desc.reader), token,
                             data->first + HETI_CAST(uint64_t, number + i) * size, number + i, data->limit,
                             data->limit < data->desc.vocab ? ": the file has been changed" : ", the vocabulary");
        if (token > data->info.largest_token) data->info.largest_token = token;
        if (to != NULL) to[i] = HETI_CAST(int32_t, token);
    }
    return HET_OK;
}

/* Reads `count` tokens from token `number` on into `raw`, a slot's part of data->raw. */
static het_result heti_data_read(het_data *data, int64_t number, int64_t count, unsigned char *raw, het_error *error) {
    return heti_read(&data->desc.reader, data->first + HETI_CAST(uint64_t, number) * data->token_bytes, raw,
                     HETI_CAST(size_t, count) * data->token_bytes, error);
}

/* Tokens [first, first + count) of the file: checked, and converted where `to` is given. Read into
   the owner's slot, as held-out ones: other threads may be filling theirs. */
static het_result heti_data_tokens(het_data *data, int64_t first, int64_t count, int32_t *to, het_error *error) {
    unsigned char *raw = data->raw + HETI_CAST(size_t, data->desc.slots) * data->raw_size;
    const int64_t block = HETI_CAST(int64_t, data->raw_size / data->token_bytes);
    for (int64_t done = 0, some; done < count; done += some) {
        some = heti_min(block, count - done);
        HETI_TRY(heti_data_read(data, first + done, some, raw, error));
        HETI_TRY(heti_data_convert(data, raw, first + done, some, to != NULL ? to + done : NULL, error));
    }
    return HET_OK;
}

#define HETI_LLMC_HEADER 1024 /* 256 int32: magic, version, tokens, zeros */

/* llm.c's headers: 20240520, version 1, uint16 tokens; 20240801, version 7, uint32 tokens. */
static het_result heti_data_header(het_data *data, const unsigned char *header, size_t size, het_error *error) {
    const char *name = heti_reader_name(&data->desc.reader);
    uint32_t magic = heti_load_u32(header), version = heti_load_u32(header + 4), wanted = magic == 20240520 ? 1 : 7;
    if (size >= 12 && magic != 20240520 && magic != 20240801)
        return heti_fail(error, HET_ERR_FORMAT,
                         "%s: magic %u at offset 0 is not that of a token file, 20240520 or 20240801", name,
                         HETI_CAST(uint64_t, magic));
    if (size < HETI_LLMC_HEADER)
        return heti_fail(error, HET_ERR_FORMAT, "%s: %u bytes are too few for the header of 1024", name,
                         data->desc.reader.size);
    if (version != wanted)
        return heti_fail(error, HET_ERR_FORMAT, "%s: version %u at offset 4, where magic %u has version %u", name,
                         HETI_CAST(uint64_t, version), HETI_CAST(uint64_t, magic), HETI_CAST(uint64_t, wanted));
    const uint64_t tokens = heti_load_u32(header + 8); /* an int32: a negative number reads as too many */
    data->token_bytes = magic == 20240520 ? 2 : 4;
    const uint64_t expected = HETI_LLMC_HEADER + tokens * data->token_bytes;
    if (tokens > INT32_MAX || expected != data->desc.reader.size)
        return heti_fail(error, HET_ERR_FORMAT, "%s: the header's %u tokens (offset 8) make a file of %u "
                                                "bytes, it has %u", name, tokens, expected, data->desc.reader.size);
    data->info.format = HET_DATA_LLMC;
    data->info.tokens = HETI_CAST(int64_t, tokens);
    data->first = HETI_LLMC_HEADER;
    return HET_OK;
}

/* Format, size of a token, where tokens begin, how many there are. llm.c numbers its files by date,
   so any other file of its family (weights, tokenizer, evaluation) is refused here instead of being
   read as bytes. */
static het_result heti_data_detect(het_data *data, het_error *error) {
    const het_data_format format = data->desc.format;
    unsigned char header[HETI_LLMC_HEADER] = { 0 };
    uint64_t size = data->desc.reader.size;
    const char *name = heti_reader_name(&data->desc.reader);
    size_t head = size < HETI_LLMC_HEADER ? HETI_CAST(size_t, size) : HETI_LLMC_HEADER;
    if (size == 0) return heti_fail(error, HET_ERR_DATA, "%s: the file is empty", name);
    if (size > INT64_MAX) return heti_fail(error, HET_ERR_DATA, "%s: %u bytes are too many", name, size);
    if (format == HET_DATA_AUTO || format == HET_DATA_LLMC) {
        HETI_TRY(heti_read(&data->desc.reader, 0, header, head, error));
        const int is_dated = head >= 12 && heti_load_u32(header) >= 20240000 && heti_load_u32(header) < 20300000;
        if (format == HET_DATA_LLMC || is_dated) return heti_data_header(data, header, head, error);
    }
    data->info.format = format == HET_DATA_UINT16 ? HET_DATA_UINT16 : HET_DATA_BYTES;
    data->token_bytes = format == HET_DATA_UINT16 ? 2 : 1;
    if (size % data->token_bytes != 0)
        return heti_fail(error, HET_ERR_FORMAT, "%s: %u bytes are not a whole number of uint16 tokens", name, size);
    data->info.tokens = HETI_CAST(int64_t, size / data->token_bytes);
    return HET_OK;
}

/* W = floor((tokens - 1) / T) windows, of which the last round(share W) are held back: at least
   one, and never all. A product and a sum that must round alike everywhere, hence the
   floating-point mode and heti_round. */
static het_result heti_data_split(het_data *data, het_error *error) {
    const float held_out = data->desc.held_out;
    int64_t windows = (data->info.tokens - 1) / data->desc.length, held = 0;
    heti_fp saved;
    if (windows < 1)
        return heti_fail(error, HET_ERR_DATA, "%s: %d tokens are too few for one window of %d",
                         heti_reader_name(&data->desc.reader), data->info.tokens, data->desc.length + 1);
    if (held_out > 0) {
        heti_fp_enter(&saved);
        held = HETI_CAST(int64_t, floor(heti_round(HETI_CAST(double, held_out) * HETI_CAST(double, windows)) + 0.5));
        heti_fp_leave(&saved);
        held = heti_min(heti_max(held, 1), windows - 1);
    }
    data->info.windows = windows - held;
    data->info.held_out = held;
    return HET_OK;
}

/* Cuts the arrays of *data out of the arena (which only counts while it has no memory). */
static void heti_data_arrays(het_data *data, heti_arena *arena) {
    int64_t batches = data->desc.slots + 1, rows = data->desc.sequences * data->desc.length;
    int64_t window = (data->desc.length + 1) * HETI_CAST(int64_t, data->token_bytes);
    if (data->desc.sequences > INT64_MAX / data->desc.length / batches) { arena->overflow = 1; return; }
    data->raw_size = HETI_CAST(size_t, heti_max(window, HETI_DATA_BLOCK));
    if (data->raw_size > SIZE_MAX / HETI_CAST(size_t, batches)) { arena->overflow = 1; return; }
    data->raw = HETI_TAKE(arena, unsigned char, batches * HETI_CAST(int64_t, data->raw_size));
    data->token = HETI_TAKE(arena, int32_t, batches * rows);
    data->target = HETI_TAKE(arena, int32_t, batches * rows);
    data->sample_id = HETI_TAKE(arena, int64_t, batches * data->desc.sequences);
    data->sequence_start = HETI_TAKE(arena, int64_t, data->desc.sequences + 1);
    data->granule_limit = data->desc.sequences * heti_ceil_div(data->desc.length, HETI_GRANULE_TOKENS);
    data->granule_start = HETI_TAKE(arena, int64_t, batches * (data->granule_limit + 1));
}

/* The open data: a copy of *plan with its arrays. NULL: out of memory, or sizes beyond it. */
static het_data *heti_data_make(het_data *plan) {
    heti_arena arena = HETI_ZEROS;
    (void)HETI_TAKE(&arena, het_data, 1);
    heti_data_arrays(plan, &arena);
    if (heti_arena_start(&arena, &plan->desc.allocator, "het_data_open", NULL) != HET_OK) return NULL;
    plan->size = arena.size;
    het_data *data = HETI_TAKE(&arena, het_data, 1);
    *data = *plan;
    heti_data_arrays(data, &arena);
    for (int64_t s = 0; s <= data->desc.sequences; s++) data->sequence_start[s] = s * data->desc.length;
    return data;
}

/* The default of a setting that is 0; within [1, 2^31), so that products below fit 63 bits. */
static het_result heti_data_setting(het_error *error, const char *name, int64_t fallback, int64_t *value) {
    if (*value == 0) *value = fallback;
    if (*value >= 1 && *value <= INT32_MAX) return HET_OK;
    return heti_fail(error, HET_ERR_INVALID, "het_data_open: %s %d is not between 1 and %i", name, *value, INT32_MAX);
}

/* Copies the description into *plan with its defaults, and checks it. */
static het_result heti_data_settings(const het_data_desc *desc, het_data *plan, het_error *error) {
    het_data_desc *d = &plan->desc;
    memset(plan, 0, sizeof *plan);
    if (desc == NULL) return heti_fail(error, HET_ERR_INVALID, "het_data_open: desc is NULL");
    if (desc->start_canary != 0 || desc->end_canary != 0)
        return heti_fail(error, HET_ERR_INVALID,
                         "het_data_open: a canary of the description is not 0: clear the struct before filling it");
    if (desc->reader.read == NULL) return heti_fail(error, HET_ERR_INVALID, "het_data_open: reader.read is NULL");
    if (HETI_CAST(int, desc->format) < HET_DATA_AUTO || desc->format > HET_DATA_LLMC)
        return heti_fail(error, HET_ERR_INVALID, "het_data_open: format %i is unknown", desc->format);
    *d = *desc;
    HETI_TRY(heti_data_setting(error, "vocab", 256, &d->vocab));
    plan->limit = d->vocab;
    HETI_TRY(heti_data_setting(error, "length", 128, &d->length));
    HETI_TRY(heti_data_setting(error, "sequences", 4, &d->sequences));
    HETI_TRY(heti_data_setting(error, "slots", 8, &d->slots));
    /* by rule: once the lengths are known */
    HETI_TRY(heti_data_setting(error, "granule", INT32_MAX, &d->granule));
    if (d->held_out == 0) d->held_out = 0.05f;
    if (!(d->held_out < 1))
        return heti_fail(error, HET_ERR_INVALID, "het_data_open: held_out %g is not below 1",
                         HETI_CAST(double, d->held_out));
    return heti_choose_allocator(&desc->allocator, &d->allocator, "het_data_open", error);
}

/* Everything that can be refused without memory is refused before any is asked for. */
HETRAIN_API het_result het_data_open(const het_data_desc *desc, het_data **opened, het_error *error) {
    het_data plan, *data;
    if (opened == NULL) return heti_fail(error, HET_ERR_INVALID, "het_data_open: data is NULL");
    *opened = NULL;
    HETI_TRY(heti_data_settings(desc, &plan, error));
    HETI_TRY(heti_data_detect(&plan, error));
    HETI_TRY(heti_data_split(&plan, error));
    data = heti_data_make(&plan);
    if (data == NULL)
        return heti_fail(error, HET_ERR_OOM, "het_data_open: no memory for %d slots of %d x %d tokens", plan.desc.slots,
                         plan.desc.sequences, plan.desc.length);
    if (desc->granule == 0) data->desc.granule = heti_granule_group(data->sequence_start, data->desc.sequences);
    /* a bad token is found now and not in the middle of a run */
    const het_result result = heti_data_tokens(data, 0, data->info.tokens, NULL, error);
    data->limit = data->info.largest_token + 1;
    if (result == HET_OK) *opened = data;
    else het_data_close(data);
    return result;
}

HETRAIN_API void het_data_close(het_data *data) {
    if (data != NULL) heti_free(&data->desc.allocator, data, data->size);
}

HETRAIN_API void het_data_get_info(const het_data *data, het_data_info *info) {
    if (info) memset(info, 0, sizeof *info);
    if (info && data) *info = data->info;
}

/* The training window of a sample. Epoch e's permutation has the key Philox(seed, e, "data"). */
static int64_t heti_data_window(const het_data *data, int64_t sample) {
    uint32_t key[4];
    heti_philox(data->desc.seed, HETI_CAST(uint64_t, sample / data->info.windows), 0x64617461, key);
    return HETI_CAST(int64_t, heti_permute(HETI_CAST(uint64_t, sample % data->info.windows),
                                           HETI_CAST(uint64_t, data->info.windows),
                                           HETI_CAST(uint64_t, key[1]) << 32 | key[0]));
}

/* Puts window `window` into sequence b of a slot: token[0 .. T) = window[0 .. T), target[0 .. T) =
   window[1 .. T + 1). Tokens are checked again, because the file may have changed since open:
   whatever arrives, no index leaves the vocabulary. */
static het_result heti_data_fill(het_data *data, int64_t slot, int64_t b, int64_t window, int64_t sample,
                                 het_error *error) {
    int64_t length = data->desc.length, number = window * length, row = (slot * data->desc.sequences + b) * length;
    unsigned char *raw = data->raw + HETI_CAST(size_t, slot) * data->raw_size;
    HETI_TRY(heti_data_read(data, number, length + 1, raw, error));
    HETI_TRY(heti_data_convert(data, raw, number, length, data->token + row, error));
    HETI_TRY(heti_data_convert(data, raw + data->token_bytes, number + 1, length, data->target + row, error));
    data->sample_id[slot * data->desc.sequences + b] = sample;
    return HET_OK;
}

/* *batch = the first `sequences` sequences of a slot, n = sequences T tokens. The bounds of
   sequences are the same for every slot. */
static het_result heti_data_show(const het_data *data, int64_t slot, int64_t sequences, het_batch *batch) {
    int64_t *granule_start = data->granule_start + slot * (data->granule_limit + 1);
    memset(batch, 0, sizeof *batch);
    batch->tokens = sequences * data->desc.length;
    batch->sequences = sequences;
    batch->token = data->token + slot * data->desc.sequences * data->desc.length;
    batch->target = data->target + slot * data->desc.sequences * data->desc.length;
    batch->sequence_start = data->sequence_start;
    batch->sample_id = data->sample_id + slot * data->desc.sequences;
    batch->granule_start = granule_start;
    return het_granules(data->sequence_start, sequences, data->desc.granule, granule_start, data->granule_limit + 1,
                        &batch->granules);
}

HETRAIN_API het_result het_data_batch(het_data *data, int64_t step, int64_t micro_batch, int64_t micro_batches,
                                      int64_t slot, het_batch *batch, het_error *error) {
    if (data == NULL || batch == NULL)
        return heti_fail(error, HET_ERR_INVALID, "het_data_batch: data or batch is NULL");
    if (micro_batches < 1 || micro_batch < 0 || micro_batch >= micro_batches)
        return heti_fail(error, HET_ERR_INVALID, "het_data_batch: micro_batch %d is not in [0, %d)", micro_batch,
                         micro_batches);
    if (slot < 0 || slot >= data->desc.slots)
        return heti_fail(error, HET_ERR_INVALID, "het_data_batch: slot %d is not in [0, %d)", slot, data->desc.slots);
    const int64_t most = INT64_MAX / data->desc.sequences; /* (step micro_batches + micro_batch + 1) B must fit */
    if (step < 0 || micro_batches > most || step > most / micro_batches - 1)
        return heti_fail(error, HET_ERR_INVALID, "het_data_batch: step %d of %d micro-batches is out of range", step,
                         micro_batches);
    const int64_t sample = (step * micro_batches + micro_batch) * data->desc.sequences; /* the first of B */
    for (int64_t b = 0; b < data->desc.sequences; b++)
        HETI_TRY(heti_data_fill(data, slot, b, heti_data_window(data, sample + b), sample + b, error));
    return heti_data_show(data, slot, data->desc.sequences, batch);
}

HETRAIN_API het_result het_data_held_out(het_data *data, int64_t first, het_batch *batch, het_error *error) {
    if (data == NULL || batch == NULL)
        return heti_fail(error, HET_ERR_INVALID, "het_data_held_out: data or batch is NULL");
    if (first < 0) return heti_fail(error, HET_ERR_INVALID, "het_data_held_out: first %d is negative", first);
    const int64_t sequences = heti_min(data->desc.sequences, heti_max(0, data->info.held_out - first));
    for (int64_t b = 0; b < sequences; b++) {
        const int64_t window = data->info.windows + first + b;
        HETI_TRY(heti_data_fill(data, data->desc.slots, b, window, window, error));
    }
    return heti_data_show(data, data->desc.slots, sequences, batch);
}

HETRAIN_API het_result het_data_tokens(het_data *data, int64_t first, int64_t count, int32_t *to, het_error *error) {
    if (data == NULL || to == NULL) return heti_fail(error, HET_ERR_INVALID, "het_data_tokens: data or to is NULL");
    if (first < 0 || count < 0 || first > data->info.tokens || count > data->info.tokens - first)
        return heti_fail(error, HET_ERR_INVALID, "het_data_tokens: %d tokens from number %d on; the file has %d", count,
                         first, data->info.tokens);
    return heti_data_tokens(data, first, count, to, error);
}

/* =================================================================================================
   >>train  One call that trains, drawing of tokens, files.
   het_train and its helpers use only the public API, and heti_fail for their messages: copy them
   into a program and change them there.
   ============================================================================================== */

typedef struct heti_train {
    het_train_desc desc; /* completed */
    het_data *data;
    het_ctx *ctx;
    het_batch *batch;    /* [micro_batches] */
    het_error *error;
} heti_train;

/* What data and context have in common is given once: the other takes it over where it is 0. */
static het_result heti_train_settings(het_train_desc *d, het_error *error) {
    if (d->start_canary != 0 || d->end_canary != 0)
        return heti_fail(error, HET_ERR_INVALID,
                         "het_train: a canary of the description is not 0: clear the struct before filling it");
    if (d->steps < 0 || d->evaluate_batches < 0)
        return heti_fail(error, HET_ERR_INVALID, "het_train: steps is %d, evaluate_batches %d; neither may be negative",
                         d->steps, d->evaluate_batches);
    if (d->micro_batches < 0 || d->micro_batches > 1 << 20)
        return heti_fail(error, HET_ERR_INVALID, "het_train: micro_batches is %d; it must be from 1 to 1048576",
                         d->micro_batches);
    HETI_TRY(het_model_complete(&d->context.model, error));
    if (d->steps == 0) d->steps = 100;
    if (d->micro_batches == 0) d->micro_batches = 1;
    if (d->evaluate_batches == 0) d->evaluate_batches = 8;
    if (d->data.vocab == 0) d->data.vocab = d->context.model.vocab;
    if (d->data.length == 0) d->data.length = d->context.model.context;
    if (d->data.sequences == 0) d->data.sequences = 4;
    if (d->data.slots == 0) d->data.slots = d->micro_batches;
    if (d->data.granule == 0) d->data.granule = d->context.granule;
    if (d->data.seed == 0) d->data.seed = d->context.seed;
    if (d->data.allocator.alloc == NULL && d->data.allocator.free == NULL)
        d->data.allocator = d->context.host.allocator;
    if (d->context.granule == 0) d->context.granule = d->data.granule;
    if (d->context.limits.max_micro_batches == 0) d->context.limits.max_micro_batches = d->micro_batches;
    if (d->context.optimizer.total_steps == 0) d->context.optimizer.total_steps = d->steps;
    return HET_OK;
}

/* Mean loss over the first evaluate_batches B held-out windows, weighted by target weights as one
   big batch would be; NaN where there are none. One micro-batch at a time: evaluation needs no more
   memory than training. */
static het_result heti_train_evaluate(heti_train *t, double *loss) {
    double sum = 0, weight = 0;
    for (int64_t i = 0; i < t->desc.evaluate_batches; i++) {
        het_batch batch;
        het_step_info info = HETI_ZEROS; /* compilers do not see that het_evaluate fills it */
        HETI_TRY(het_data_held_out(t->data, i * t->desc.data.sequences, &batch, t->error));
        if (batch.tokens == 0) break;
        const het_result result = het_evaluate(t->ctx, &batch, 1, &info);
        if (result != HET_OK) return heti_fail(t->error, result, "%s", het_last_error(t->ctx));
        sum = fma(info.loss, info.weight, sum);
        weight += info.weight;
    }
    *loss = weight > 0 ? sum / weight : HETI_CAST(double, NAN);
    return HET_OK;
}

/* One step: windows, update, evaluation where it is due, the caller's callback. */
static het_result heti_train_step(heti_train *t, int64_t step) {
    const het_train_desc *d = &t->desc;
    het_step_info info;
    double validation_loss = HETI_CAST(double, NAN);
    for (int64_t m = 0; m < d->micro_batches; m++)
        HETI_TRY(het_data_batch(t->data, step, m, d->micro_batches, m, &t->batch[m], t->error));
    het_result result = het_step(t->ctx, t->batch, d->micro_batches, &info);
    if (result != HET_OK) return heti_fail(t->error, result, "%s", het_last_error(t->ctx));
    if ((d->evaluate_every > 0 && (step + 1) % d->evaluate_every == 0) ||
        (d->evaluate_every >= 0 && step + 1 == d->steps))
        HETI_TRY(heti_train_evaluate(t, &validation_loss));
    if (d->progress == NULL) return HET_OK;
    t->ctx->held = "het_train_desc.progress: het_train";
    result = d->progress(d->user, t->ctx, &info, validation_loss);
    t->ctx->held = NULL;
    return result == HET_OK ? HET_OK : heti_fail(t->error, result, "het_train: stopped by the progress callback");
}

/* Makes the context and runs the loop. On failure the caller destroys t->ctx, if it was made. */
static het_result heti_train_run(heti_train *t) {
    size_t size = HETI_CAST(size_t, t->desc.micro_batches) * sizeof *t->batch;
    het_result result = HET_OK;
    HETI_TRY(heti_create(&t->desc.context, "het_train", &t->ctx, t->error));
    const het_allocator *allocator = &het_get_desc(t->ctx)->host.allocator;
    t->batch = HETI_CAST(het_batch *, allocator->alloc(allocator->user, size, 64));
    if (t->batch == NULL)
        return heti_fail(t->error, HET_ERR_OOM, "het_train: no memory for the micro-batches of a step");
    for (int64_t step = 0; step < t->desc.steps && result == HET_OK; step++) result = heti_train_step(t, step);
    allocator->free(allocator->user, t->batch, size);
    return result;
}

/* The context keeps nothing of data and description, so both end here. */
HETRAIN_API het_result het_train(const het_train_desc *desc, het_ctx **ctx, het_error *error) {
    heti_train t = HETI_ZEROS;
    if (ctx == NULL) return heti_fail(error, HET_ERR_INVALID, "het_train: ctx is NULL");
    *ctx = NULL;
    if (desc == NULL) return heti_fail(error, HET_ERR_INVALID, "het_train: desc is NULL");
    t.desc = *desc;
    t.error = error;
    HETI_TRY(heti_train_settings(&t.desc, error));
    HETI_TRY(het_data_open(&t.desc.data, &t.data, error));
    /* open has checked length and sequences: their product fits */
    het_limits *limits = &t.desc.context.limits;
    if (limits->max_tokens == 0) limits->max_tokens = t.desc.data.length * t.desc.data.sequences;
    if (limits->max_sequences == 0) limits->max_sequences = t.desc.data.sequences;
    const het_result result = heti_train_run(&t);
    het_data_close(t.data);
    if (result == HET_OK) *ctx = t.ctx;
    else het_destroy(t.ctx);
    return result;
}

/* Keeps the largest values of p[0 .. count) that together are worth at least `wanted` and clears
   the others; a value is worth itself, or 1 (by_number). Equal values at the border stay in order
   of index. The border is found by halving the range of bit patterns, which rise with the value for
   floats >= 0: 31 passes, no sorting, no memory. */
static void heti_sample_keep(float *p, int64_t count, double wanted, int by_number) {
    uint32_t low = 0, high = 0x7f800000u; /* keeping all >= low is enough, keeping all >= high is not */
    double kept = 0;
    float border;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        double worth = 0;
        border = heti_bits_float(middle);
        for (int64_t i = 0; i < count; i++) worth += p[i] < border ? 0.0 : by_number ? 1.0 : HETI_CAST(double, p[i]);
        if (worth >= wanted) low = middle;
        else high = middle;
    }
    border = heti_bits_float(low);
    for (int64_t i = 0; i < count; i++) kept += p[i] > border ? by_number ? 1.0 : HETI_CAST(double, p[i]) : 0.0;
    for (int64_t i = 0; i < count; i++) {
        if (p[i] > border) continue;
        if (p[i] < border || kept >= wanted) { p[i] = 0; continue; }
        kept += by_number ? 1.0 : HETI_CAST(double, p[i]);
    }
}

/* A chain over ascending indices, in double. */
static double heti_sample_total(const float *p, int64_t count) {
    double total = 0;
    for (int64_t i = 0; i < count; i++) total += HETI_CAST(double, p[i]);
    return total;
}

/* Index drawn with probability p[i] / total. */
static int64_t heti_sample_draw(const float *p, int64_t count, uint64_t seed, uint64_t number) {
    uint32_t bits[4];
    int64_t last = 0;
    heti_philox(seed, number, 0x73616d70, bits); /* "samp" */
    double left = heti_round(heti_uniform_double(bits[0], bits[1]) * heti_sample_total(p, count));
    for (int64_t i = 0; i < count; i++) {
        if (!(p[i] > 0)) continue;
        last = i;
        left -= HETI_CAST(double, p[i]);
        if (left < 0) break;
    }
    return last;
}

/* Probabilities are left unnormalised: p = exp((l - max) / temperature), the largest is 1. */
HETRAIN_API int32_t het_sample(const float *logits, int64_t vocab, float temperature, int64_t top_k, float top_p,
                               uint64_t seed, uint64_t number, float *scratch) {
    heti_fp saved;
    int64_t best = 0;
    if (logits == NULL || vocab < 1 || vocab > INT32_MAX || (temperature > 0 && scratch == NULL)) return -1;
    for (int64_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best] || logits[best] != logits[best]) best = i;
    /* or all are NaN, or one is infinite */
    if (!(temperature > 0) || !(logits[best] - logits[best] <= 0)) return HETI_CAST(int32_t, best);
    heti_fp_enter(&saved);
    for (int64_t i = 0; i < vocab; i++) { /* exp((l - max) / temperature); NaN counts as 0 */
        float p = heti_expf((logits[i] - logits[best]) / temperature);
        scratch[i] = p > 0 ? p : 0;
    }
    if (top_k > 0 && top_k < vocab) heti_sample_keep(scratch, vocab, HETI_CAST(double, top_k), 1);
    if (top_p > 0 && top_p < 1)
        heti_sample_keep(scratch, vocab, heti_round(HETI_CAST(double, top_p) * heti_sample_total(scratch, vocab)), 0);
    best = heti_sample_draw(scratch, vocab, seed, number);
    heti_fp_leave(&saved);
    return HETI_CAST(int32_t, best);
}

#ifndef HETRAIN_NO_STDIO

/* C99's fseek takes a long: where that has 32 bits, but not on Windows, files end at 2 GiB. */
#ifdef _WIN32
typedef int64_t heti_offset;
static int heti_file_seek(FILE *file, heti_offset offset, int from) { return _fseeki64(file, offset, from); }
static heti_offset heti_file_tell(FILE *file) { return _ftelli64(file); }
/* rename does not replace there; 1 + 8: MOVEFILE_REPLACE_EXISTING, MOVEFILE_WRITE_THROUGH */
extern __declspec(dllimport) int __stdcall MoveFileExA(const char *from, const char *to, unsigned long how);
static int heti_file_rename(const char *from, const char *to) { return MoveFileExA(from, to, 1 + 8) == 0; }
#else
typedef long heti_offset;
static int heti_file_seek(FILE *file, heti_offset offset, int from) { return fseek(file, offset, from); }
static heti_offset heti_file_tell(FILE *file) { return ftell(file); }
static int heti_file_rename(const char *from, const char *to) { return rename(from, to); }
#endif

/* A het_reader.read over a FILE. Every read seeks: two readers of one file need two FILEs. */
static int64_t heti_file_read(void *user, uint64_t offset, void *to, size_t size) {
    FILE *file = HETI_CAST(FILE *, user);
    heti_offset at = HETI_CAST(heti_offset, offset);
    if (at < 0 || HETI_CAST(uint64_t, at) != offset || heti_file_seek(file, at, SEEK_SET) != 0) return -1;
    const size_t got = fread(to, 1, size, file);
    return ferror(file) ? -1 : HETI_CAST(int64_t, got);
}

/* A het_writer.write over a FILE. */
static int heti_file_write(void *user, const void *from, size_t size) { /* user NULL: nowhere */
    return user != NULL && size > 0 && fwrite(from, 1, size, HETI_CAST(FILE *, user)) != size;
}

/* ": No such file or directory", where the system says why: two texts. */
#define HETI_FILE_WHY errno != 0 ? ": " : "", errno != 0 ? strerror(errno) : ""

/* reader->user is the FILE, so nothing is allocated. */
HETRAIN_API het_result het_reader_open(const char *path, het_reader *reader, het_error *error) {
    char byte;
    int64_t size = -1;
    if (path == NULL || reader == NULL)
        return heti_fail(error, HET_ERR_INVALID, "het_reader_open: path or reader is NULL");
    memset(reader, 0, sizeof *reader);
    errno = 0;
    FILE *file = fopen(path, "rb");
    if (file == NULL) return heti_fail(error, HET_ERR_IO, "%s: cannot be opened%s%s", path, HETI_FILE_WHY);
    /* directories open, but do not read; pipes read, but do not seek */
    if ((fread(&byte, 1, 1, file) == 1 || !ferror(file)) && heti_file_seek(file, 0, SEEK_END) == 0)
        size = heti_file_tell(file);
    if (size < 0) {
        (void)heti_fail(error, HET_ERR_IO, "%s: is not a file that can be read at any place%s%s", path, HETI_FILE_WHY);
        (void)fclose(file);
        return HET_ERR_IO;
    }
    reader->read = heti_file_read;
    reader->user = file;
    reader->size = HETI_CAST(uint64_t, size);
    reader->name = path;
    return HET_OK;
}

HETRAIN_API void het_reader_close(het_reader *reader) {
    if (reader == NULL || reader->user == NULL) return;
    (void)fclose(HETI_CAST(FILE *, reader->user));
    memset(reader, 0, sizeof *reader);
}

/* Errors of the file itself; what `save` reports is in the context already. */
static het_result heti_file_fail(het_ctx *ctx, const char *what, const char *path) {
    (void)heti_fail(&ctx->error, HET_ERR_IO, "het_save_file: cannot %s %s%s%s", what, path, HETI_FILE_WHY);
    heti_tell(ctx, HET_LOG_ERROR, HET_ERR_IO);
    return HET_ERR_IO;
}

#define HETI_PATH_LIMIT 4096

static het_result heti_file_done(het_ctx *ctx, FILE *file, const char *temporary, const char *path, het_result result) {
    const int written = fflush(file) == 0 && !ferror(file), closed = fclose(file) == 0;
    if (result == HET_OK && !(written && closed)) result = heti_file_fail(ctx, "write", temporary);
    if (result == HET_OK && heti_file_rename(temporary, path) != 0)
        result = heti_file_fail(ctx, "rename a new file to", path);
    if (result != HET_OK) (void)remove(temporary);
    return result;
}

/* A reader of `path` finds the old file or the new one, never a part. C99 cannot force the bytes to
   the disk: after a power cut either may be found, and a program that needs more syncs on its own
   through a het_writer. */
HETRAIN_API het_result het_save_file(het_ctx *ctx, const char *path,
                                     het_result (*save)(het_ctx *ctx, const het_writer *to)) {
    char temporary[HETI_PATH_LIMIT], done = 1;
    HETI_TRY(heti_enter(ctx, "het_save_file"));
    if (path == NULL || save == NULL)
        return heti_leave(ctx, heti_fail(&ctx->error, HET_ERR_INVALID, "het_save_file: %s is NULL",
                                         path == NULL ? "path" : "save"));
    const size_t length = strlen(path);
    if (length > sizeof temporary - sizeof ".tmp")
        return heti_leave(ctx, heti_fail(&ctx->error, HET_ERR_IO, "het_save_file: more than 4091 bytes: %s", path));
    (void)heti_leave_together(ctx, HET_OK); /* `save` may call */
    errno = 0;
    memcpy(temporary, path, length);
    memcpy(temporary + length, ".tmp", sizeof ".tmp");
    FILE *file = ctx->world.process == 0 ? fopen(temporary, "wb") : NULL;
    const het_writer writer = { heti_file_write, file, temporary };
    const char *const held = ctx->held; /* het_train's progress may save */
    het_result result = HET_OK;
    if (ctx->world.process == 0 && file == NULL) result = heti_file_fail(ctx, "open", temporary);
    if (result == HET_OK) {
        ctx->held = "save: het_save_file";
        result = het_error_put(NULL, save(ctx, &writer), NULL); /* none above 0 */
        ctx->held = held;
    }
    if (file != NULL) result = heti_file_done(ctx, file, temporary, path, result);
    if (result != HET_OK) heti_fail_all(ctx, result);
    return result == HET_OK && ctx->world.transport.iface ? het_broadcast(ctx, 0, &done, 1) : result;
}

#endif /* HETRAIN_NO_STDIO */

#ifdef __cplusplus
}
#endif
#define HETRAIN_IMPLEMENTATION_DONE
#endif /* HETRAIN_IMPLEMENTATION */

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
