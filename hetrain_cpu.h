/* hetrain_cpu.h: the CPU device of hetrain

   het_cpu_device() with inner loops for AVX2, AVX-512 and NEON and a pool of threads, 30 to 100
   times as fast as the reference device, whose bits it has (hetrain.h, >>reference). Put this file
   beside hetrain.h: its implementation includes it, and no program needs to. Without it
   het_cpu_device() is the reference device.

   The inner loops are one body of source, compiled once per instruction set: this file includes
   itself (HETI_ISA_PASS: 1 plain C, 2 AVX2, 3 AVX-512, 4 AVX-512 with bf16 products, 5 NEON). The
   device takes the best that the machine has when it is created. Products in bf16 can also be made
   in the matrix registers of Intel's AMX (het_isa says when).

   Contents
       >>pool       threads
       >>tables     what one instruction set offers
       >>registers  what one register of each can do
       >>vector     sixteen floats at a time (once per instruction set)
       >>product    matrix products (once per instruction set)
       >>rows       norms, attention, activations, ... (once per instruction set)
       >>cpu        state, sharing out, linear ops
       >>cpu_rows   all other ops, the table

   License: as hetrain.h. */
#ifndef HETI_ISA_PASS
#ifndef HETI_CAST
#error "hetrain_cpu.h: hetrain.h includes this file by itself"
#endif

#if !defined(HETRAIN_NO_SIMD) && (defined(__GNUC__) || defined(__clang__))
#if defined(__x86_64__)
#define HETI_HAVE_X86 1
#elif defined(__aarch64__)
#define HETI_HAVE_NEON 1
#endif
#endif

#if defined(HETI_HAVE_X86)
#include <immintrin.h>
#if defined(__linux__) && defined(__LP64__) && !defined(__CUDACC__) && \
    (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#define HETI_HAVE_AMX 1
#include <cpuid.h>
#endif
#elif defined(HETI_HAVE_NEON)
#include <arm_neon.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* =================================================================================================
   >>pool  The pool of threads.
   threads - 1 workers and the caller take task numbers from one counter. One 32-bit word holds the
   state of a job: how many workers are inside it, whether it is open, and its number. A worker
   enters by adding 1 to the word while it is open; the caller closes it when the counter has run
   out, then waits for those inside. So nobody waits for a worker that never woke up, and a worker
   that misses a job (or sees a number that has wrapped around) costs time, not correctness. Waiting
   spins briefly, yielding now and then, and sleeps in the end. Sleeping is safe from lost wake-ups
   because both sides first write, then look, sequentially consistent: the caller opens the job,
   then looks for sleepers; a worker counts itself as a sleeper, then looks at the job. Leaving a
   job mirrors this.
   Without threads, or without GNU atomics, the pool is a loop: threads never change a bit.
   ============================================================================================== */

typedef struct heti_pool heti_pool;

#ifndef HETI_THREADS

static het_result heti_pool_create(const het_allocator *allocator, int32_t threads, heti_pool **pool) {
    (void)allocator, (void)threads;
    *pool = NULL;
    return HET_OK;
}
static void heti_pool_destroy(heti_pool *pool) { (void)pool; }
static void heti_pool_run(void *pool, int64_t count, het_task task, void *arg) {
    (void)pool;
    for (int64_t i = 0; i < count; i++) task(arg, i);
}

#else

#define HETI_POOL_MAX_THREADS 4096
#define HETI_POOL_INSIDE 0x7fffu /* of the state: workers inside */
#define HETI_POOL_OPEN 0x8000u   /* the job takes workers; the bits above are its number */
#define HETI_POOL_ROUND (INT64_C(1) << 30) /* tasks per job, so that the counter needs 32 bits */
#define HETI_POOL_LOOKS 5000 /* some 150 us on a Zen 4 */
#define HETI_POOL_PAUSES 100 /* between two yields, which leave the processor to who has work */

struct heti_pool {
    het_allocator allocator;
    size_t size;              /* of this allocation: the pool and its threads */
    int32_t workers;
    pthread_t *thread;        /* [workers] */
    pthread_mutex_t turn;     /* held by the caller whose job runs */
    pthread_mutex_t lock;     /* around the two sleeps */
    pthread_cond_t job, done; /* workers sleep on job, the caller on done */
    uint32_t sleepers, waiting, stop; /* atomic: workers asleep, the caller is asleep, the pool ends */
    het_task task;            /* these four are written while no worker is inside */
    void *arg;
    int64_t first;
    uint32_t count;
    char apart1[64];          /* the two words everybody writes get cache lines of their own */
    uint32_t state;           /* atomic */
    char apart2[64];
    uint32_t next;            /* atomic: the next task number */
};

/* Pauses or yields between looks; 0 when it is time to sleep. */
static int heti_pool_spin(int *looks) {
    if (*looks >= HETI_POOL_LOOKS) return 0;
    if (++*looks % HETI_POOL_PAUSES == 0) {
        (void)sched_yield();
        return 1;
    }
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
    return 1;
}

/* Takes task numbers until there are none. The counter passes `count` by one a thread at most. */
static void heti_pool_work(heti_pool *pool) {
    for (;;) {
        uint32_t i = HETI_ATOMIC_ADD(&pool->next, 1u);
        if (i >= pool->count) return;
        pool->task(pool->arg, pool->first + HETI_CAST(int64_t, i));
    }
}

/* Whether the state shows a job that a worker who last saw job number `seen` can enter. */
static int heti_pool_has_job(uint32_t state, uint32_t seen) {
    return (state & HETI_POOL_OPEN) != 0 && state >> 16 != seen;
}

/* Waits for a job to enter or for the end; returns the state seen. */
static uint32_t heti_pool_await(heti_pool *pool, uint32_t seen) {
    uint32_t state;
    int looks = 0;
    do {
        state = HETI_ATOMIC_LOAD(&pool->state);
        if (heti_pool_has_job(state, seen) || HETI_ATOMIC_LOAD(&pool->stop) != 0) return state;
    } while (heti_pool_spin(&looks));
    (void)pthread_mutex_lock(&pool->lock);
    (void)HETI_ATOMIC_ADD(&pool->sleepers, 1u);
    for (;;) {
        state = HETI_ATOMIC_LOAD(&pool->state);
        if (heti_pool_has_job(state, seen) || HETI_ATOMIC_LOAD(&pool->stop) != 0) break;
        (void)pthread_cond_wait(&pool->job, &pool->lock);
    }
    (void)HETI_ATOMIC_ADD(&pool->sleepers, 0u - 1u);
    (void)pthread_mutex_unlock(&pool->lock);
    return state;
}

/* The life of a worker: wait, enter, work, leave; the last to leave a closed job wakes the caller
   if it sleeps. */
static void *heti_pool_worker(void *arg) {
    heti_pool *pool = HETI_CAST(heti_pool *, arg);
    heti_fp saved;
    uint32_t seen = 0;
    heti_fp_enter(&saved);
    for (;;) {
        uint32_t state = heti_pool_await(pool, seen);
        if (HETI_ATOMIC_LOAD(&pool->stop) != 0) break;
        /* fails where the job was closed or another worker entered in between: look again */
        if (!HETI_ATOMIC_REPLACE(&pool->state, &state, state + 1)) continue;
        seen = state >> 16;
        heti_pool_work(pool);
        state = HETI_ATOMIC_ADD(&pool->state, 0u - 1u) - 1;
        if ((state & (HETI_POOL_OPEN | HETI_POOL_INSIDE)) == 0 && HETI_ATOMIC_LOAD(&pool->waiting) != 0) {
            (void)pthread_mutex_lock(&pool->lock);
            (void)pthread_cond_signal(&pool->done);
            (void)pthread_mutex_unlock(&pool->lock);
        }
    }
    heti_fp_leave(&saved);
    return NULL;
}

/* Lets up to `wanted` sleeping workers look at the state. */
static void heti_pool_wake(heti_pool *pool, uint32_t wanted) {
    if (HETI_ATOMIC_LOAD(&pool->sleepers) == 0) return;
    (void)pthread_mutex_lock(&pool->lock);
    if (wanted >= HETI_ATOMIC_LOAD(&pool->sleepers)) {
        (void)pthread_cond_broadcast(&pool->job);
    } else {
        for (; wanted > 0; wanted--) (void)pthread_cond_signal(&pool->job);
    }
    (void)pthread_mutex_unlock(&pool->lock);
}

/* Closes the job and waits until the last worker has left it. */
static void heti_pool_close(heti_pool *pool) {
    int looks = 0;
    (void)__atomic_fetch_and(&pool->state, ~HETI_POOL_OPEN, __ATOMIC_SEQ_CST);
    do {
        if ((HETI_ATOMIC_LOAD(&pool->state) & HETI_POOL_INSIDE) == 0) return;
    } while (heti_pool_spin(&looks));
    (void)pthread_mutex_lock(&pool->lock);
    HETI_ATOMIC_STORE(&pool->waiting, 1u);
    while ((HETI_ATOMIC_LOAD(&pool->state) & HETI_POOL_INSIDE) != 0) (void)pthread_cond_wait(&pool->done, &pool->lock);
    HETI_ATOMIC_STORE(&pool->waiting, 0u);
    (void)pthread_mutex_unlock(&pool->lock);
}

/* A het_parallel.run. Callers on several threads take turns. A task must not call it again on the
   same pool. */
static void heti_pool_run(void *user, int64_t count, het_task task, void *arg) {
    heti_pool *pool = HETI_CAST(heti_pool *, user);
    int64_t i;
    if (count <= 1 || pool->workers == 0) {
        for (i = 0; i < count; i++) task(arg, i);
        return;
    }
    (void)pthread_mutex_lock(&pool->turn);
    for (i = 0; i < count; i += HETI_POOL_ROUND) {
        pool->task = task;
        pool->arg = arg;
        pool->first = i;
        pool->count = HETI_CAST(uint32_t, heti_min(count - i, HETI_POOL_ROUND));
        HETI_ATOMIC_STORE(&pool->next, 0u);
        /* the next number, open; it was closed and empty */
        (void)HETI_ATOMIC_ADD(&pool->state, 0x10000u | HETI_POOL_OPEN);
        heti_pool_wake(pool, pool->count - 1);
        heti_pool_work(pool);
        heti_pool_close(pool);
    }
    (void)pthread_mutex_unlock(&pool->turn);
}

/* Ends the workers that were started and frees everything; `made` of the four locks exist. */
static void heti_pool_tear_down(heti_pool *pool, int made) {
    het_allocator allocator = pool->allocator;
    int32_t i;
    HETI_ATOMIC_STORE(&pool->stop, 1u);
    if (pool->workers > 0) heti_pool_wake(pool, HETI_POOL_MAX_THREADS);
    for (i = 0; i < pool->workers; i++) (void)pthread_join(pool->thread[i], NULL);
    if (made > 3) (void)pthread_cond_destroy(&pool->done);
    if (made > 2) (void)pthread_cond_destroy(&pool->job);
    if (made > 1) (void)pthread_mutex_destroy(&pool->lock);
    if (made > 0) (void)pthread_mutex_destroy(&pool->turn);
    heti_free(&allocator, pool, pool->size);
}

static void heti_pool_destroy(heti_pool *pool) {
    if (pool != NULL) heti_pool_tear_down(pool, 4);
}

/* HET_ERR_OOM also where the system has no more threads. */
static het_result heti_pool_create(const het_allocator *allocator, int32_t threads, heti_pool **made_pool) {
    heti_pool *pool;
    size_t size;
    int32_t i;
    int made = 0;
    *made_pool = NULL;
    if (threads < 1 || threads > HETI_POOL_MAX_THREADS) return HET_ERR_INVALID;
    size = sizeof *pool + HETI_CAST(size_t, threads) * sizeof *pool->thread;
    pool = HETI_CAST(heti_pool *, heti_alloc(allocator, size));
    if (pool == NULL) return HET_ERR_OOM;
    memset(pool, 0, size);
    pool->allocator = *allocator;
    pool->size = size;
    pool->thread = HETI_CAST(pthread_t *, HETI_CAST(void *, pool + 1));
    if (pthread_mutex_init(&pool->turn, NULL) == 0) made = 1;
    if (made == 1 && pthread_mutex_init(&pool->lock, NULL) == 0) made = 2;
    if (made == 2 && pthread_cond_init(&pool->job, NULL) == 0) made = 3;
    if (made == 3 && pthread_cond_init(&pool->done, NULL) == 0) made = 4;
    for (i = 0; made == 4 && i < threads - 1; i++) {
        if (pthread_create(&pool->thread[i], NULL, heti_pool_worker, pool) != 0) break;
        pool->workers++;
    }
    if (made < 4 || pool->workers < threads - 1) {
        heti_pool_tear_down(pool, made);
        return HET_ERR_OOM;
    }
    *made_pool = pool;
    return HET_OK;
}

#endif /* HETI_THREADS */

/* =================================================================================================
   >>tables  What one instruction set offers to the CPU device.
   Each pass ends in const tables of the types below; the CPU device chooses a pair of them at run
   time.
   ============================================================================================== */

/* Products cut k and the packed rows into blocks of these sizes; a tile is at most TILE_ROWS x
   TILE_COLUMNS. A packed panel of PRODUCT_K x TILE_COLUMNS floats (48 KiB, half of it as pairs of
   bf16) streams from the first two caches, packed rows from the second. */
#define HETI_PRODUCT_K 384
#define HETI_PRODUCT_ROWS 240
#define HETI_WEIGHT_ROWS 256 /* whole granules of about so many: x is packed for them, and stays near */
#define HETI_TILE_ROWS 12
#define HETI_TILE_COLUMNS 32

/* An operand of a product: element (line, k) is at data[line * line_stride + k * k_stride]. Lines
   are rows of A or columns of B. */
typedef struct heti_operand {
    const float *data;
    const uint16_t *bf16; /* in place of data, which is NULL then; or a matrix of int8, from element `at` on */
    const het_int8_block *int8;
    int64_t at, line_stride, k_stride;
} heti_operand;

static HETI_UNUSED heti_operand heti_make_operand(const float *data, int64_t line_stride, int64_t k_stride) {
    const heti_operand operand = { data, NULL, NULL, 0, line_stride, k_stride };
    return operand;
}

static HETI_UNUSED void heti_move_operand(heti_operand *operand, int64_t lines, int64_t k) {
    const int64_t by = lines * operand->line_stride + k * operand->k_stride;
    if (operand->int8 != NULL) operand->at += by;
    else if (operand->bf16 != NULL) operand->bf16 += by;
    else operand->data += by;
}

/* Tiles of A: element (i, k) of a tile at data[i * line + k * step], the next tile `tile` floats
   further. Packed: line 1, step a tile's height. */
typedef struct heti_tiles {
    const float *data;
    int64_t line, step, tile;
} heti_tiles;

static HETI_UNUSED heti_tiles heti_make_tiles(const float *data, int64_t line, int64_t step, int64_t tile) {
    const heti_tiles tiles = { data, line, step, tile };
    return tiles;
}

/* A block of an operand. */
typedef struct heti_block {
    heti_operand from;
    int64_t lines, k;
} heti_block;

/* Memory to be fetched ahead, a little at a time between multiplications: columns of FETCH_BYTES,
   each down all rows before the next, `pace` rows a turn. */
typedef struct heti_walk {
    const char *column; /* byte 63 of the present one's first row */
    int64_t stride, pace;
    int64_t columns, turns, turn; /* columns left, turns of a column, its next */
} heti_walk;

#define HETI_FETCH_BYTES 128

/* A walk over rows of `length` bytes that is done in about `turns` turns. Tiles make one each, so
   it does without slow divisions. Rows may start amid a cache line: that of their first byte came
   with the columns to the left, that of their last must be fetched. */
static HETI_UNUSED heti_walk heti_walk_over(const void *from, int64_t stride, int64_t length, int64_t rows,
                                            int64_t turns) {
    heti_walk walk;
    walk.columns = rows > 0 && turns > 0 ? (length + HETI_FETCH_BYTES - 1) / HETI_FETCH_BYTES : 0;
    walk.column = HETI_CAST(const char *, from);
    if (walk.columns > 0) walk.column += 63;
    walk.stride = stride;
    for (walk.pace = 1; walk.pace * turns < walk.columns * rows;) walk.pace++;
    walk.turns = rows;
    if (walk.pace > 1) walk.turns = HETI_CAST(uint32_t, rows + walk.pace - 1) / HETI_CAST(uint32_t, walk.pace);
    walk.turn = 0;
    return walk;
}

static HETI_UNUSED heti_walk heti_no_walk(void) { return heti_walk_over(NULL, 0, 0, 0, 0); }

static HETI_UNUSED heti_walk heti_block_walk(const heti_block *block, int64_t turns) {
    const heti_operand *from = &block->from;
    if (from->data == NULL) return heti_no_walk(); /* narrow weights are not fetched */
    if (from->k_stride == 1)
        return heti_walk_over(from->data, 4 * from->line_stride, 4 * block->k, block->lines, turns);
    return heti_walk_over(from->data, 4 * from->k_stride, 4 * block->lines, block->k, turns);
}

/* Turns of a walk that go straight down a column; pace 0: nothing is fetched. */
typedef struct heti_stretch {
    const char *at;
    int64_t step, pace, turns;
} heti_stretch;

/* The next `turns` or fewer. */
static HETI_UNUSED heti_stretch heti_walk_on(heti_walk *walk, int64_t turns) {
    heti_stretch stretch;
    stretch.at = walk->column;
    stretch.step = walk->stride;
    stretch.pace = walk->columns > 0 ? walk->pace : 0;
    stretch.turns = turns;
    if (stretch.pace == 0) return stretch;
    stretch.at += walk->turn * walk->pace * walk->stride;
    if (turns > walk->turns - walk->turn) stretch.turns = walk->turns - walk->turn;
    walk->turn += stretch.turns;
    if (walk->turn < walk->turns) return stretch;
    walk->turn = 0;
    walk->column += HETI_FETCH_BYTES;
    walk->columns--;
    return stretch;
}

/* What a tile fetches for those after it, in this order. */
#define HETI_WALKS 3
#define HETI_STRETCHES 8

/* `turns` turns of walk[HETI_WALKS], one after the other; to[HETI_STRETCHES] ends with a stretch of
   none. */
static HETI_UNUSED void heti_walk_all(heti_walk *walk, int64_t turns, heti_stretch *to) {
    heti_walk nothing = heti_no_walk();
    int i = 0;
    for (; turns > 0; turns -= to[i++].turns) {
        heti_walk *next = walk;
        for (int w = 1; w < HETI_WALKS; w++) next += next->columns == 0;
        to[i] = heti_walk_on(i == HETI_STRETCHES - 2 ? &nothing : next, turns);
    }
    to[i].turns = 0;
}

/* Lines of k as they are packed, two to a word where bf16 lies in pairs. */
static HETI_UNUSED int64_t heti_packed_k(int64_t k, int pairs) { return pairs ? (k + 1) / 2 : k; }

/* How often a chain over k fetches. */
static HETI_UNUSED int64_t heti_fetches(int64_t k, int pairs) { return heti_packed_k(k, pairs) / 8; }

/* Where the weight gradient of one part goes: c[line][column] of `columns` floats or doubles a
   row. */
typedef struct heti_weight_sum {
    void *sum;
    int64_t columns;
    int32_t exact;
    int32_t empty;      /* what stands in c counts as 0 */
    int32_t final, last; /* het_gradient.final: sums are kept until the last granule */
    double grid;        /* c of (t + c) - c */
    double *kept;       /* [tile_rows][tile_columns] */
    uint32_t maximum;   /* largest bits of |term| so far; exact only */
} heti_weight_sum;

/* Where chains go: c[i][j], its rows c_row floats apart, from +0 or, continued, from what stands
   there; at their end bias[j], or NULL, is added. */
typedef struct heti_chains {
    float *c;
    int64_t c_row;
    int continued;
    const float *bias;
} heti_chains;

static HETI_UNUSED heti_chains heti_make_chains(float *c, int64_t c_row, int continued, const float *bias) {
    const heti_chains to = { c, c_row, continued, bias };
    return to;
}

/* Packed operands, in tiles of `tile` lines: [line / tile][pitch][tile], lines beyond the last are
   0: heti_packed(lines, pitch, tile) floats. bf16 operands are rounded on the way; where bf16_pairs
   is 1 they lie two to a word, the even k in the high half, and an odd last k is joined by 0. Of
   each pitch the first heti_packed_k(k, pairs) are written. Tiles go on with walk[HETI_WALKS]. */
typedef struct heti_product_kernels {
    int64_t tile_rows, tile_columns; /* of A's and of B's tiles */
    int64_t block_k, block_rows;     /* of k, so that a panel has at most PANEL_FLOATS words; of gradients' rows */
    int32_t bf16_pairs;
    void (*prepare)(int begin);      /* NULL, or what a thread calls before and after products */
    /* tiles of A, which `panel` and `weight` may want in an order of their own; then those of B */
    void (*pack_rows)(int64_t tile, int64_t lines, int64_t k, const heti_operand *from, int bf16, float *to,
                      int64_t pitch);
    void (*pack)(int64_t tile, int64_t lines, int64_t k, const heti_operand *from, int bf16, float *to, int64_t pitch);
    /* to[m][n], n <= tile_columns: chains over k of tiles of rows and the panel b, packed here into
       `packed` (where b is NULL it is packed already). Goes on with the walk `next` meanwhile. */
    void (*panel)(int64_t m, int64_t n, int64_t k, heti_tiles a, const heti_operand *b, float *packed, heti_chains to,
                  int bf16, heti_walk *next);
    /* The same chain of one packed tile of m rows is one granule's term of c = to->sum + offset and
       is added there. */
    void (*weight)(int64_t m, int64_t n, int64_t k, const float *a, const float *b, heti_weight_sum *to, int64_t offset,
                   int bf16, heti_walk *walk);
    /* Bias gradient: the term is the chain of adds over k rows of dy, for `count` columns. */
    void (*bias)(int64_t count, int64_t k, const float *dy, int64_t dy_row, heti_weight_sum *to, int64_t offset);
} heti_product_kernels;

static HETI_UNUSED int64_t heti_packed(int64_t lines, int64_t pitch, int64_t tile) {
    return (lines + tile - 1) / tile * tile * pitch;
}

/* Bytes of `pack` that HETI_K(product)(m, n, k, ...) needs, whatever the instruction set. */
static HETI_UNUSED size_t heti_product_pack(int64_t m, int64_t n, int64_t k) {
    int64_t rows = (m < HETI_PRODUCT_ROWS ? m : HETI_PRODUCT_ROWS) + HETI_TILE_ROWS;
    int64_t depth = (k < HETI_PRODUCT_K ? k : HETI_PRODUCT_K) + 1;
    (void)n;
    return HETI_CAST(size_t, (rows + HETI_TILE_COLUMNS) * depth) * sizeof(float);
}

/* ---- rows ---- */
/* A block of attention is at most ATTENTION_ROWS rows, in the forward so few that ATTENTION_SCORES
   hold all their scores, but not fewer than half (rows of up to 2,700 keys are made once); the
   backward takes ATTENTION_KEYS keys at a time. None of them changes a bit. */
#define HETI_ATTENTION_ROWS 192
#define HETI_ATTENTION_KEYS 192
#define HETI_ATTENTION_SCORES 262144

/* Floats from one row of scores to the next: an odd number of cache lines, so that columns meet all
   sets of a cache. */
static HETI_UNUSED int64_t heti_score_stride(int64_t keys) { return ((keys + 15) / 16 | 1) * 16; }

/* Rows of dy to be added to entries of an embedding. key[granule's rows]: entry << 32 | row of the
   slice, sorted inside each granule. */
typedef struct heti_scatter {
    const het_view *view;
    const het_gradient *gradient;
    int64_t width;
    const float *dy;     /* [rows][width] */
    const uint64_t *key; /* [rows] */
    float *term;         /* [width], exact only */
} heti_scatter;

/* A kernel over a range of independent outputs. args: the op's public struct, or the one named;
   partial: what the range adds up by itself, zero at first, joined without order. */
typedef void (*heti_range_kernel)(const void *args, int64_t begin, int64_t end, void *partial);

/* An op that is one kernel; the last of a list has none. */
typedef struct heti_range_op {
    het_op_kind kind;
    const char *name; /* in messages */
    heti_range_kernel kernel;
    int64_t unit;     /* rows of one; 0: runs over columns */
    int64_t work;     /* an element's, against that of an addition */
} heti_range_op;

typedef struct heti_row_kernels {
    const heti_range_op *ops;
    heti_range_kernel dropout;                           /* rows */
    heti_range_kernel sum;                               /* elements; het_dropout_args: y = a + x */
    heti_range_kernel scatter;                           /* columns; heti_scatter; partial: uint32_t, maximum */
    /* rows [begin, end) of the pairs (query, head) of one sequence and key/value head, queries of
       the slice descending, heads ascending */
    void (*attention_forward)(const het_attention_args *a, int64_t sequence, int64_t kv_head, int64_t begin,
                              int64_t end, void *workspace);
    void (*attention_backward)(const het_attention_args *a, int64_t sequence, int64_t kv_head, void *workspace);
} heti_row_kernels;

/* Bytes of workspace of one attention kernel: gathered rows, sums, scores, packed operands. */
static HETI_UNUSED size_t heti_attention_bytes(int64_t head_size) {
    const size_t gathered = HETI_CAST(size_t, HETI_ATTENTION_ROWS * (3 * head_size + 16) + HETI_ATTENTION_SCORES) *
                 sizeof(float);
    const size_t pack = heti_product_pack(HETI_PRODUCT_ROWS, HETI_ATTENTION_SCORES, HETI_PRODUCT_K > head_size ?
                                          HETI_PRODUCT_K : head_size);
    return (gathered + pack + 63) / 64 * 64;
}

/* =================================================================================================
   >>registers  One hardware register (C: floats, CD: doubles, CU: bits, WIDTH floats) of every
                instruction set, and how a pass over >>vector to >>rows names what it makes of them.
   HETI_K(name) is the pass's own name, HETI_I(NAME) the macro of its instruction set.
   ============================================================================================== */

/* ---- plain C: a register is one float ---- */

#define HETI_PLAIN_WIDTH 1
#define HETI_PLAIN_C float
#define HETI_PLAIN_CD double
#define HETI_PLAIN_CU uint32_t
#define HETI_PLAIN_EACH(...) for (int i = 0; i < 16; i++) { __VA_ARGS__ }
#define HETI_PLAIN_DEACH(...) for (int i = 0; i < 8; i++) { __VA_ARGS__ }
#define HETI_PLAIN_LOAD(p) (*(p))
#define HETI_PLAIN_STORE(p, v) (*(p) = (v))
#define HETI_PLAIN_SET(x) (x)
#define HETI_PLAIN_BARRIER(v) v = heti_round_f(v);
#define HETI_PLAIN_FMA(a, b, c) fmaf(a, b, c)
#define HETI_PLAIN_FNMA(a, b, c) fmaf(-(a), b, c)
#define HETI_PLAIN_SQRT(a) sqrtf(a)
#define HETI_PLAIN_MAX(a, b) ((a) > (b) ? (a) : (b))
#define HETI_PLAIN_MIN(a, b) ((a) < (b) ? (a) : (b))
#define HETI_PLAIN_ABS(a) fabsf(a)
#define HETI_PLAIN_LT(a, b, x, y) ((a) < (b) ? (x) : (y))
#define HETI_PLAIN_BITS(a) heti_float_bits(a)
#define HETI_PLAIN_UMAX(a, b) ((a) > (b) ? (a) : (b))
#define HETI_PLAIN_UZERO() 0u
#define HETI_PLAIN_DLOAD(p) (*(p))
#define HETI_PLAIN_DSTORE(p, v) (*(p) = (v))
#define HETI_PLAIN_DSET(x) (x)
#define HETI_PLAIN_DFMA(a, b, c) fma(a, b, c)
#define HETI_PLAIN_SCALE(p, t) heti_bits_float(heti_float_bits(p) + (heti_float_bits(t) << 23))
#define HETI_PLAIN_BF16(a) \
    heti_bits_float((heti_float_bits(a) + 0x7fffu + (heti_float_bits(a) >> 16 & 1u)) & 0xffff0000u)
#define HETI_PLAIN_TILE_M 4
#define HETI_PLAIN_TILE_SHORT 2
#define HETI_PLAIN_TILE_V 1
/* calls keep the plain kernels small: inlining them takes the compiler longer than all others
   together */
#define HETI_PLAIN_IN static HETI_UNUSED

/* ---- AVX2 and FMA: two registers of 8 floats ---- */

#define HETI_AVX2_WIDTH 8
#define HETI_AVX2_C __m256
#define HETI_AVX2_CD __m256d
#define HETI_AVX2_CU __m256i
#define HETI_AVX2_LOAD(p) _mm256_loadu_ps(p)
#define HETI_AVX2_STORE(p, v) _mm256_storeu_ps(p, v)
#define HETI_AVX2_SET(x) _mm256_set1_ps(x)
#define HETI_AVX2_BARRIER(v) __asm__("" : "+x"(v));
#define HETI_AVX2_FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define HETI_AVX2_FNMA(a, b, c) _mm256_fnmadd_ps(a, b, c)
#define HETI_AVX2_SQRT(a) _mm256_sqrt_ps(a)
#define HETI_AVX2_MAX(a, b) _mm256_max_ps(a, b)
#define HETI_AVX2_MIN(a, b) _mm256_min_ps(a, b)
#define HETI_AVX2_ABS(a) _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a)
#define HETI_AVX2_LT(a, b, x, y) _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ))
#define HETI_AVX2_BITS(a) _mm256_castps_si256(a)
#define HETI_AVX2_UMAX(a, b) _mm256_max_epu32(a, b)
#define HETI_AVX2_UZERO() _mm256_setzero_si256()
#define HETI_AVX2_DLOAD(p) _mm256_loadu_pd(p)
#define HETI_AVX2_DSTORE(p, v) _mm256_storeu_pd(p, v)
#define HETI_AVX2_DSET(x) _mm256_set1_pd(x)
#define HETI_AVX2_DFMA(a, b, c) _mm256_fmadd_pd(a, b, c)
#define HETI_AVX2_SCALE(p, t) _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), \
    _mm256_slli_epi32(_mm256_castps_si256(t), 23)))
#define HETI_AVX2_BF16(a) _mm256_castsi256_ps(_mm256_and_si256(_mm256_set1_epi32(-65536), \
    _mm256_add_epi32(_mm256_castps_si256(a), \
    _mm256_add_epi32(_mm256_set1_epi32(0x7fff), _mm256_and_si256(_mm256_set1_epi32(1), \
                                                                 _mm256_srli_epi32(_mm256_castps_si256(a), 16))))))
#define HETI_AVX2_EACH HETI_EACH_2
#define HETI_AVX2_DEACH HETI_EACH_2
#define HETI_AVX2_HALF(a, h) a.c[h]
#define HETI_AVX2_TILE_M 6
#define HETI_AVX2_TILE_SHORT 2
#define HETI_AVX2_TILE_V 1
#define HETI_AVX2_IN static HETI_INLINE HETI_TARGET

/* ---- AVX-512: one register ---- */

/* Masks of all lanes: g++ 12 takes the undefined register behind the unmasked forms of some
   intrinsics for a mistake of ours (GCC bug 105593). The instructions are the same. */
#define HETI_SIXTEEN HETI_CAST(__mmask16, 0xffff)
#define HETI_EIGHT HETI_CAST(__mmask8, 0xff)
#define HETI_AVX512_WIDTH 16
#define HETI_AVX512_C __m512
#define HETI_AVX512_CD __m512d
#define HETI_AVX512_CU __m512i
#define HETI_AVX512_LOAD(p) _mm512_loadu_ps(p)
#define HETI_AVX512_STORE(p, v) _mm512_storeu_ps(p, v)
#define HETI_AVX512_SET(x) _mm512_set1_ps(x)
#define HETI_AVX512_BARRIER(v) __asm__("" : "+v"(v));
#define HETI_AVX512_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define HETI_AVX512_FNMA(a, b, c) _mm512_fnmadd_ps(a, b, c)
#define HETI_AVX512_SQRT(a) _mm512_maskz_sqrt_ps(HETI_SIXTEEN, a)
#define HETI_AVX512_MAX(a, b) _mm512_maskz_max_ps(HETI_SIXTEEN, a, b)
#define HETI_AVX512_MIN(a, b) _mm512_maskz_min_ps(HETI_SIXTEEN, a, b)
#define HETI_AVX512_ABS(a) _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a)
#define HETI_AVX512_LT(a, b, x, y) _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x)
#define HETI_AVX512_BITS(a) _mm512_castps_si512(a)
#define HETI_AVX512_UMAX(a, b) _mm512_maskz_max_epu32(HETI_SIXTEEN, a, b)
#define HETI_AVX512_UZERO() _mm512_setzero_si512()
#define HETI_AVX512_DLOAD(p) _mm512_loadu_pd(p)
#define HETI_AVX512_DSTORE(p, v) _mm512_storeu_pd(p, v)
#define HETI_AVX512_DSET(x) _mm512_set1_pd(x)
#define HETI_AVX512_DFMA(a, b, c) _mm512_fmadd_pd(a, b, c)
#define HETI_AVX512_SCALE(p, t) _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), \
    _mm512_maskz_slli_epi32(HETI_SIXTEEN, _mm512_castps_si512(t), 23)))
#define HETI_AVX512_BF16(a) _mm512_castsi512_ps(_mm512_and_si512(_mm512_set1_epi32(-65536), \
    _mm512_add_epi32(_mm512_castps_si512(a), \
    _mm512_add_epi32(_mm512_set1_epi32(0x7fff), _mm512_and_si512(_mm512_set1_epi32(1), \
    _mm512_maskz_srli_epi32(HETI_SIXTEEN, _mm512_castps_si512(a), 16))))))
#define HETI_AVX512_EACH HETI_EACH_1
#define HETI_AVX512_DEACH HETI_EACH_1
#define HETI_AVX512_HALF(a, h) _mm512_extractf32x8_ps(a.c[0], h)
#define HETI_AVX512_TILE_M 12
#define HETI_AVX512_TILE_SHORT 4
#define HETI_AVX512_TILE_V 2
#define HETI_AVX512_IN static HETI_INLINE HETI_TARGET

/* ---- NEON of AArch64: four registers of 4 floats ---- */

#define HETI_NEON_WIDTH 4
#define HETI_NEON_C float32x4_t
#define HETI_NEON_CD float64x2_t
#define HETI_NEON_CU uint32x4_t
#define HETI_NEON_LOAD(p) vld1q_f32(p)
#define HETI_NEON_STORE(p, v) vst1q_f32(p, v)
#define HETI_NEON_SET(x) vdupq_n_f32(x)
#define HETI_NEON_BARRIER(v) __asm__("" : "+w"(v));
#define HETI_NEON_FMA(a, b, c) vfmaq_f32(c, a, b)
#define HETI_NEON_FNMA(a, b, c) vfmsq_f32(c, a, b)
#define HETI_NEON_SQRT(a) vsqrtq_f32(a)
#define HETI_NEON_MAX(a, b) vbslq_f32(vcgtq_f32(a, b), a, b)
#define HETI_NEON_MIN(a, b) vbslq_f32(vcltq_f32(a, b), a, b)
#define HETI_NEON_ABS(a) vabsq_f32(a)
#define HETI_NEON_LT(a, b, x, y) vbslq_f32(vcltq_f32(a, b), x, y)
#define HETI_NEON_BITS(a) vreinterpretq_u32_f32(a)
#define HETI_NEON_UMAX(a, b) vmaxq_u32(a, b)
#define HETI_NEON_UZERO() vdupq_n_u32(0)
#define HETI_NEON_DLOAD(p) vld1q_f64(p)
#define HETI_NEON_DSTORE(p, v) vst1q_f64(p, v)
#define HETI_NEON_DSET(x) vdupq_n_f64(x)
#define HETI_NEON_DFMA(a, b, c) vfmaq_f64(c, a, b)
#define HETI_NEON_SCALE(p, t) vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(p), \
    vshlq_n_u32(vreinterpretq_u32_f32(t), 23)))
#define HETI_NEON_BF16(a) vreinterpretq_f32_u32(vandq_u32(vdupq_n_u32(0xffff0000u), \
    vaddq_u32(vreinterpretq_u32_f32(a), vaddq_u32(vdupq_n_u32(0x7fff), \
    vandq_u32(vdupq_n_u32(1), vshrq_n_u32(vreinterpretq_u32_f32(a), 16))))))
#define HETI_NEON_EACH HETI_EACH_4
#define HETI_NEON_DEACH HETI_EACH_4
#define HETI_NEON_TILE_M 6
#define HETI_NEON_TILE_SHORT 2
#define HETI_NEON_TILE_V 1
#define HETI_NEON_IN static HETI_INLINE HETI_TARGET

/* ---- in every pass ---- */

/* HETI_EACH(statements): once for every register of a HETI_V, with i a constant. HETI_DEACH: of a
   HETI_D. */
#define HETI_EACH(...) HETI_I(EACH)(__VA_ARGS__)
#define HETI_DEACH(...) HETI_I(DEACH)(__VA_ARGS__)
#define HETI_EACH_1(...) { enum { i = 0 }; __VA_ARGS__ }
#define HETI_EACH_2(...) HETI_EACH_1(__VA_ARGS__) { enum { i = 1 }; __VA_ARGS__ }
#define HETI_EACH_4(...) HETI_EACH_2(__VA_ARGS__) { enum { i = 2 }; __VA_ARGS__ } { enum { i = 3 }; __VA_ARGS__ }

/* HETI_FN: a kernel. It must not take or return HETI_V and the like by value (gcc 12 clears half of
   a vector struct that a real function returns: it puts vzeroupper before the return). HETI_IN:
   always inlined, may. */
#define HETI_FN static HETI_UNUSED HETI_TARGET
#define HETI_IN HETI_I(IN)

/* HETI_UNROLL: loops whose counts are constants and whose indexes must become constants
   (registers). HETI_ROLLED: not to be unrolled. */
#if defined(__clang__)
#define HETI_UNROLL _Pragma("clang loop unroll(full)")
#define HETI_ROLLED _Pragma("clang loop unroll(disable)")
#elif defined(__GNUC__)
#define HETI_UNROLL _Pragma("GCC unroll 32")
#define HETI_ROLLED _Pragma("GCC unroll 1")
#else
#define HETI_UNROLL
#define HETI_ROLLED
#endif

#if defined(__GNUC__) || defined(__clang__)
#define HETI_PREFETCH(p) __builtin_prefetch(p)
/* What was read through pointer p before is read again: kept in registers over a long loop it would
   push out what the loop needs. */
#define HETI_FORGET(p) __asm__("" : "+r"(p))
#else
#define HETI_PREFETCH(p) ((void)0)
#define HETI_FORGET(p) ((void)0)
#endif

/* Calls of a pass's functions. */
#define HETI_V HETI_K(v)
#define HETI_U HETI_K(u)
#define HETI_D HETI_K(d)
#define HETI_LOAD(p) HETI_K(load)(p)
#define HETI_STORE(p, a) HETI_K(store)(p, a)
#define HETI_SET(x) HETI_K(set)(x)
#define HETI_ZERO() HETI_K(set)(0.0f)
#define HETI_ADD(a, b) HETI_K(add)(a, b)
#define HETI_SUB(a, b) HETI_K(sub)(a, b)
#define HETI_MUL(a, b) HETI_K(mul)(a, b)
#define HETI_FMA(a, b, c) HETI_K(fma)(a, b, c)
#define HETI_FNMA(a, b, c) HETI_K(fnma)(a, b, c)
#define HETI_DIV(a, b) HETI_K(div)(a, b)
#define HETI_SQRT(a) HETI_K(sqrt)(a)
#define HETI_MAX(a, b) HETI_K(max)(a, b)
#define HETI_MIN(a, b) HETI_K(min)(a, b)
#define HETI_ABS(a) HETI_K(abs)(a)
#define HETI_NEG(a) HETI_K(neg)(a)
#define HETI_LT(a, b, x, y) HETI_K(lt)(a, b, x, y)
#define HETI_DLOAD(p) HETI_K(dload)(p)
#define HETI_DSTORE(p, a) HETI_K(dstore)(p, a)
#define HETI_DSET(x) HETI_K(dset)(x)
#define HETI_DADD(a, b) HETI_K(dadd)(a, b)
#define HETI_DSUB(a, b) HETI_K(dsub)(a, b)
#define HETI_DFMA(a, b, c) HETI_K(dfma)(a, b, c)
#define HETI_BITS_ZERO() HETI_K(bits_zero)()
#define HETI_BITS_MAX(u, a) HETI_K(bits_max)(u, a)
#define HETI_LOAD_PART(p, n) HETI_K(load_part)(p, n)
#define HETI_STORE_PART(p, a, n) HETI_K(store_part)(p, a, n)
#define HETI_FIRST(n, x, y) HETI_K(first)(n, x, y)
#define HETI_SUM(a) HETI_K(sum)(a)
#define HETI_TOP(a) HETI_K(top)(a)
#define HETI_DSUM(a) HETI_K(dsum)(a)
#define HETI_DLOW(a) HETI_K(dlow)(a)
#define HETI_DHIGH(a) HETI_K(dhigh)(a)
#define HETI_FLOATS(low, high) HETI_K(floats)(low, high)
#define HETI_BITS_TOP(u) HETI_K(bits_top)(u)

/* Tile of C: HETI_TILE_M rows of HETI_TILE_V vectors. Accumulators, one row of B and a broadcast
   element of A fit the registers. What is left over is taken in short tiles of HETI_TILE_SHORT
   rows. */
#define HETI_TILE_M HETI_I(TILE_M)
#define HETI_TILE_SHORT HETI_I(TILE_SHORT)
#define HETI_TILE_V HETI_I(TILE_V)
#define HETI_TILE_N (16 * HETI_TILE_V)
#define HETI_DWIDTH HETI_CAST(int, sizeof(HETI_I(CD)) / sizeof(double))
#define HETI_PAIRS(bf16) (HETI_ISA_PASS == 4 && (bf16)) /* of bf16, in packed operands */

#ifdef __cplusplus
}
#endif
#endif /* not a pass */
/* =================================================================================================
   >>vector  Sixteen floats at a time, the same bits on every instruction set.
   Everything from here to the end of >>rows is compiled once per HETI_ISA_PASS. HETI_V is as many
   registers as make 16 floats, HETI_D 8 doubles, HETI_U the bits of 16 floats. Sums over lanes
   follow one tree whatever the width: (i, i+8), (i, i+4), (i, i+2), (i, i+1).
   ============================================================================================== */
#ifdef HETI_ISA_PASS

#if HETI_ISA_PASS == 1
#define HETI_K(name) heti_plain_##name
#define HETI_I(name) HETI_PLAIN_##name
#define HETI_TARGET
#elif HETI_ISA_PASS == 2
#define HETI_K(name) heti_avx2_##name
#define HETI_I(name) HETI_AVX2_##name
#define HETI_TARGET __attribute__((target("avx2,fma")))
#elif HETI_ISA_PASS == 3
#define HETI_K(name) heti_avx512_##name
#define HETI_I(name) HETI_AVX512_##name
#define HETI_TARGET __attribute__((target("avx2,fma,avx512f,avx512dq,avx512bw,avx512vl")))
#elif HETI_ISA_PASS == 4
#define HETI_K(name) heti_avx512_bf16_##name
#define HETI_I(name) HETI_AVX512_##name
#define HETI_TARGET __attribute__((target("avx2,fma,avx512f,avx512dq,avx512bw,avx512vl,avx512bf16")))
#else
#define HETI_K(name) heti_neon_##name
#define HETI_I(name) HETI_NEON_##name
#define HETI_TARGET
#endif

typedef struct HETI_K(v) { HETI_I(C) c[64 / sizeof(HETI_I(C))]; } HETI_K(v);
typedef struct HETI_K(u) { HETI_I(CU) c[64 / sizeof(HETI_I(CU))]; } HETI_K(u);
typedef struct HETI_K(d) { HETI_I(CD) c[64 / sizeof(HETI_I(CD))]; } HETI_K(d);

/* ---- element by element ---- */

#define HETI_MAP(type, each, name, parameters, value) \
    HETI_IN type HETI_K(name) parameters { type r; each(r.c[i] = value;) return r; }
HETI_MAP(HETI_V, HETI_EACH, load, (const float *p), HETI_I(LOAD)(p + i * HETI_I(WIDTH)))
HETI_MAP(HETI_V, HETI_EACH, set, (float x), HETI_I(SET)(x))
HETI_MAP(HETI_V, HETI_EACH, add, (HETI_V a, HETI_V b), a.c[i] + b.c[i])
HETI_MAP(HETI_V, HETI_EACH, sub, (HETI_V a, HETI_V b), a.c[i] - b.c[i])
HETI_MAP(HETI_V, HETI_EACH, fma, (HETI_V a, HETI_V b, HETI_V c), HETI_I(FMA)(a.c[i], b.c[i], c.c[i]))
HETI_MAP(HETI_V, HETI_EACH, fnma, (HETI_V a, HETI_V b, HETI_V c), HETI_I(FNMA)(a.c[i], b.c[i], c.c[i]))
HETI_MAP(HETI_V, HETI_EACH, div, (HETI_V a, HETI_V b), a.c[i] / b.c[i])
HETI_MAP(HETI_V, HETI_EACH, sqrt, (HETI_V a), HETI_I(SQRT)(a.c[i]))
HETI_MAP(HETI_V, HETI_EACH, max, (HETI_V a, HETI_V b), HETI_I(MAX)(a.c[i], b.c[i]))
HETI_MAP(HETI_V, HETI_EACH, min, (HETI_V a, HETI_V b), HETI_I(MIN)(a.c[i], b.c[i]))
HETI_MAP(HETI_V, HETI_EACH, abs, (HETI_V a), HETI_I(ABS)(a.c[i]))
HETI_MAP(HETI_V, HETI_EACH, neg, (HETI_V a), -a.c[i])
HETI_MAP(HETI_V, HETI_EACH, lt, (HETI_V a, HETI_V b, HETI_V x, HETI_V y), HETI_I(LT)(a.c[i], b.c[i], x.c[i], y.c[i]))
HETI_MAP(HETI_D, HETI_DEACH, dload, (const double *p), HETI_I(DLOAD)(p + i * HETI_DWIDTH))
HETI_MAP(HETI_D, HETI_DEACH, dset, (double x), HETI_I(DSET)(x))
HETI_MAP(HETI_D, HETI_DEACH, dadd, (HETI_D a, HETI_D b), a.c[i] + b.c[i])
HETI_MAP(HETI_D, HETI_DEACH, dsub, (HETI_D a, HETI_D b), a.c[i] - b.c[i])
HETI_MAP(HETI_D, HETI_DEACH, dfma, (HETI_D a, HETI_D b, HETI_D c), HETI_I(DFMA)(a.c[i], b.c[i], c.c[i]))
HETI_MAP(HETI_U, HETI_EACH, bits_zero, (void), HETI_I(UZERO)())

/* The compiler must not make the product part of an addition behind it. */
HETI_IN HETI_V HETI_K(mul)(HETI_V a, HETI_V b) {
    HETI_V r;
    HETI_EACH(r.c[i] = a.c[i] * b.c[i]; HETI_I(BARRIER)(r.c[i])) return r;
}
HETI_IN void HETI_K(store)(float *p, HETI_V a) { HETI_EACH(HETI_I(STORE)(p + i * HETI_I(WIDTH), a.c[i]);) }
HETI_IN void HETI_K(dstore)(double *p, HETI_D a) {
    HETI_DEACH(HETI_I(DSTORE)(p + i * HETI_DWIDTH, a.c[i]);)
}
HETI_IN HETI_U HETI_K(bits_max)(HETI_U u, HETI_V a) {
    HETI_EACH(u.c[i] = HETI_I(UMAX)(u.c[i], HETI_I(BITS)(HETI_I(ABS)(a.c[i])));) return u;
}

/* ---- what differs by more than a name: parts of a register, sums over lanes, conversions ---- */

#if HETI_ISA_PASS == 1

HETI_IN HETI_V HETI_K(load_part)(const float *p, int64_t n) {
    HETI_V r;
    HETI_EACH(r.c[i] = i < n ? p[i] : 0.0f;) return r;
}
HETI_IN void HETI_K(store_part)(float *p, HETI_V a, int64_t n) { HETI_EACH(if (i < n) p[i] = a.c[i];) }
HETI_IN HETI_V HETI_K(first)(int64_t n, HETI_V x, HETI_V y) { HETI_EACH(if (i >= n) x.c[i] = y.c[i];) return x; }
HETI_IN float HETI_K(sum)(HETI_V a) {
    for (int half = 8; half > 0; half /= 2) for (int i = 0; i < half; i++) a.c[i] += a.c[i + half];
    return a.c[0];
}
HETI_IN float HETI_K(top)(HETI_V a) {
    for (int half = 8; half > 0; half /= 2) for (int i = 0; i < half; i++) a.c[i] = HETI_I(MAX)(a.c[i], a.c[i + half]);
    return a.c[0];
}
HETI_IN double HETI_K(dsum)(HETI_D a) {
    for (int half = 4; half > 0; half /= 2) for (int i = 0; i < half; i++) a.c[i] += a.c[i + half];
    return a.c[0];
}
HETI_IN HETI_D HETI_K(dlow)(HETI_V a) { HETI_D r; HETI_DEACH(r.c[i] = HETI_CAST(double, a.c[i]);) return r; }
HETI_IN HETI_D HETI_K(dhigh)(HETI_V a) { HETI_D r; HETI_DEACH(r.c[i] = HETI_CAST(double, a.c[i + 8]);) return r; }
HETI_IN HETI_V HETI_K(floats)(HETI_D low, HETI_D high) {
    HETI_V r;
    HETI_DEACH(r.c[i] = HETI_CAST(float, low.c[i]); r.c[i + 8] = HETI_CAST(float, high.c[i]);)
    return r;
}
HETI_IN uint32_t HETI_K(bits_top)(HETI_U u) {
    for (int i = 1; i < 16; i++) u.c[0] = HETI_I(UMAX)(u.c[0], u.c[i]);
    return u.c[0];
}
/* Exponent e (as floats) and mantissa in [2/3, 4/3) of normal positive numbers: a = mantissa
   2^e. */
HETI_IN HETI_V HETI_K(split)(HETI_V a, HETI_V *mantissa) {
    HETI_V r;
    HETI_EACH(r.c[i] = heti_splitf(a.c[i], &mantissa->c[i]);) return r;
}

#elif HETI_ISA_PASS == 2 || HETI_ISA_PASS == 3 || HETI_ISA_PASS == 4

#if HETI_ISA_PASS == 2
/* All ones in lanes < n of register `chunk`. */
HETI_IN __m256i HETI_K(lanes)(int64_t n, int chunk) {
    __m256i lane = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(8 * chunk));
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n < 16 ? HETI_CAST(int, n) : 16), lane);
}
HETI_IN HETI_V HETI_K(load_part)(const float *p, int64_t n) {
    HETI_V r;
    HETI_EACH(r.c[i] = _mm256_maskload_ps(p + 8 * i, HETI_K(lanes)(n, i));)
    return r;
}
HETI_IN void HETI_K(store_part)(float *p, HETI_V a, int64_t n) {
    HETI_EACH(_mm256_maskstore_ps(p + 8 * i, HETI_K(lanes)(n, i), a.c[i]);)
}
HETI_IN HETI_V HETI_K(first)(int64_t n, HETI_V x, HETI_V y) {
    HETI_EACH(x.c[i] = _mm256_blendv_ps(y.c[i], x.c[i], _mm256_castsi256_ps(HETI_K(lanes)(n, i)));)
    return x;
}
HETI_IN __m256i HETI_K(uhalves)(HETI_U u) { return _mm256_max_epu32(u.c[0], u.c[1]); }
HETI_IN HETI_D HETI_K(widen)(__m256 a) {
    HETI_D r;
    r.c[0] = _mm256_cvtps_pd(_mm256_castps256_ps128(a));
    r.c[1] = _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1));
    return r;
}
HETI_IN __m256 HETI_K(narrow)(HETI_D a) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(a.c[0])), _mm256_cvtpd_ps(a.c[1]), 1);
}
HETI_IN HETI_V HETI_K(floats)(HETI_D low, HETI_D high) {
    HETI_V r;
    r.c[0] = HETI_K(narrow)(low);
    r.c[1] = HETI_K(narrow)(high);
    return r;
}
HETI_IN __m256d HETI_K(dhalves)(HETI_D a) { return _mm256_add_pd(a.c[0], a.c[1]); }
HETI_IN HETI_V HETI_K(split)(HETI_V a, HETI_V *mantissa) {
    HETI_V r;
    HETI_EACH(
        __m256i bits = _mm256_castps_si256(a.c[i]);
        __m256i e = _mm256_srai_epi32(_mm256_sub_epi32(bits, _mm256_set1_epi32(HETI_TWO_THIRDS)), 23);
        mantissa->c[i] = _mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(e, 23)));
        r.c[i] = _mm256_cvtepi32_ps(e);)
    return r;
}
#else
HETI_IN __mmask16 HETI_K(lanes)(int64_t n) {
    return HETI_CAST(__mmask16, n >= 16 ? 0xffff : n <= 0 ? 0 : (1 << n) - 1);
}
HETI_IN HETI_V HETI_K(load_part)(const float *p, int64_t n) {
    HETI_V r;
    r.c[0] = _mm512_maskz_loadu_ps(HETI_K(lanes)(n), p);
    return r;
}
HETI_IN void HETI_K(store_part)(float *p, HETI_V a, int64_t n) { _mm512_mask_storeu_ps(p, HETI_K(lanes)(n), a.c[0]); }
HETI_IN HETI_V HETI_K(first)(int64_t n, HETI_V x, HETI_V y) {
    x.c[0] = _mm512_mask_blend_ps(HETI_K(lanes)(n), y.c[0], x.c[0]);
    return x;
}
HETI_IN __m256i HETI_K(uhalves)(HETI_U u) {
    return _mm256_max_epu32(_mm512_maskz_extracti64x4_epi64(HETI_EIGHT, u.c[0], 0),
                            _mm512_maskz_extracti64x4_epi64(HETI_EIGHT, u.c[0], 1));
}
HETI_IN HETI_D HETI_K(widen)(__m256 a) { HETI_D r; r.c[0] = _mm512_maskz_cvtps_pd(HETI_EIGHT, a); return r; }
HETI_IN HETI_V HETI_K(floats)(HETI_D low, HETI_D high) {
    HETI_V r;
    r.c[0] = _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_maskz_cvtpd_ps(HETI_EIGHT, low.c[0])),
                                _mm512_maskz_cvtpd_ps(HETI_EIGHT, high.c[0]), 1);
    return r;
}
HETI_IN __m256d HETI_K(dhalves)(HETI_D a) {
    return _mm256_add_pd(_mm512_maskz_extractf64x4_pd(HETI_EIGHT, a.c[0], 0), _mm512_maskz_extractf64x4_pd(HETI_EIGHT,
        a.c[0], 1));
}
HETI_IN HETI_V HETI_K(split)(HETI_V a, HETI_V *mantissa) {
    HETI_V r;
    __m512i bits = _mm512_castps_si512(a.c[0]);
    __m512i e = _mm512_maskz_srai_epi32(HETI_SIXTEEN, _mm512_sub_epi32(bits, _mm512_set1_epi32(HETI_TWO_THIRDS)), 23);
    mantissa->c[0] = _mm512_castsi512_ps(_mm512_sub_epi32(bits, _mm512_maskz_slli_epi32(HETI_SIXTEEN, e, 23)));
    r.c[0] = _mm512_maskz_cvtepi32_ps(HETI_SIXTEEN, e);
    return r;
}
#endif
HETI_IN HETI_D HETI_K(dlow)(HETI_V a) { return HETI_K(widen)(HETI_I(HALF)(a, 0)); }
HETI_IN HETI_D HETI_K(dhigh)(HETI_V a) { return HETI_K(widen)(HETI_I(HALF)(a, 1)); }
HETI_IN float HETI_K(sum)(HETI_V a) {
    __m256 eight = _mm256_add_ps(HETI_I(HALF)(a, 0), HETI_I(HALF)(a, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
HETI_IN float HETI_K(top)(HETI_V a) {
    __m256 eight = _mm256_max_ps(HETI_I(HALF)(a, 0), HETI_I(HALF)(a, 1));
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
HETI_IN double HETI_K(dsum)(HETI_D a) {
    __m256d four = HETI_K(dhalves)(a);
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}
HETI_IN uint32_t HETI_K(bits_top)(HETI_U u) {
    __m256i eight = HETI_K(uhalves)(u);
    __m128i four = _mm_max_epu32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    __m128i two = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
    return HETI_CAST(uint32_t, _mm_cvtsi128_si32(_mm_max_epu32(two, _mm_shuffle_epi32(two, 0xb1))));
}

#elif HETI_ISA_PASS == 5

HETI_IN HETI_V HETI_K(load_part)(const float *p, int64_t n) {
    float part[16] = { 0.0f };
    for (int64_t j = 0; j < 16 && j < n; j++) part[j] = p[j];
    return HETI_LOAD(part);
}
HETI_IN void HETI_K(store_part)(float *p, HETI_V a, int64_t n) {
    float part[16];
    HETI_STORE(part, a);
    for (int64_t j = 0; j < 16 && j < n; j++) p[j] = part[j];
}
HETI_IN HETI_V HETI_K(first)(int64_t n, HETI_V x, HETI_V y) {
    const int32_t step[4] = { 0, 1, 2, 3 };
    int32x4_t lane = vld1q_s32(step), count = vdupq_n_s32(n < 16 ? HETI_CAST(int32_t, n) : 16);
    HETI_EACH(x.c[i] = vbslq_f32(vcltq_s32(vaddq_s32(lane, vdupq_n_s32(4 * i)), count), x.c[i], y.c[i]);)
    return x;
}
HETI_IN float HETI_K(sum)(HETI_V a) {
    float32x4_t four = vaddq_f32(vaddq_f32(a.c[0], a.c[2]), vaddq_f32(a.c[1], a.c[3]));
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
HETI_IN float HETI_K(top)(HETI_V a) {
    float part[4];
    HETI_I(STORE)(part, HETI_I(MAX)(HETI_I(MAX)(a.c[0], a.c[2]), HETI_I(MAX)(a.c[1], a.c[3])));
    for (int half = 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) part[i] = part[i] > part[i + half] ? part[i] : part[i + half];
    return part[0];
}
HETI_IN double HETI_K(dsum)(HETI_D a) {
    float64x2_t two = vaddq_f64(vaddq_f64(a.c[0], a.c[2]), vaddq_f64(a.c[1], a.c[3]));
    return vgetq_lane_f64(two, 0) + vgetq_lane_f64(two, 1);
}
HETI_IN HETI_D HETI_K(widen)(float32x4_t low, float32x4_t high) {
    HETI_D r;
    r.c[0] = vcvt_f64_f32(vget_low_f32(low));
    r.c[1] = vcvt_high_f64_f32(low);
    r.c[2] = vcvt_f64_f32(vget_low_f32(high));
    r.c[3] = vcvt_high_f64_f32(high);
    return r;
}
HETI_IN HETI_D HETI_K(dlow)(HETI_V a) { return HETI_K(widen)(a.c[0], a.c[1]); }
HETI_IN HETI_D HETI_K(dhigh)(HETI_V a) { return HETI_K(widen)(a.c[2], a.c[3]); }
HETI_IN HETI_V HETI_K(floats)(HETI_D low, HETI_D high) {
    HETI_V r;
    r.c[0] = vcvt_high_f32_f64(vcvt_f32_f64(low.c[0]), low.c[1]);
    r.c[1] = vcvt_high_f32_f64(vcvt_f32_f64(low.c[2]), low.c[3]);
    r.c[2] = vcvt_high_f32_f64(vcvt_f32_f64(high.c[0]), high.c[1]);
    r.c[3] = vcvt_high_f32_f64(vcvt_f32_f64(high.c[2]), high.c[3]);
    return r;
}
HETI_IN uint32_t HETI_K(bits_top)(HETI_U u) {
    return vmaxvq_u32(vmaxq_u32(vmaxq_u32(u.c[0], u.c[1]), vmaxq_u32(u.c[2], u.c[3])));
}
HETI_IN HETI_V HETI_K(split)(HETI_V a, HETI_V *mantissa) {
    HETI_V r;
    HETI_EACH(
        int32x4_t bits = vreinterpretq_s32_f32(a.c[i]);
        int32x4_t e = vshrq_n_s32(vsubq_s32(bits, vdupq_n_s32(HETI_TWO_THIRDS)), 23);
        mantissa->c[i] = vreinterpretq_f32_s32(vsubq_s32(bits, vshlq_n_s32(e, 23)));
        r.c[i] = vcvtq_f32_s32(e);)
    return r;
}

#endif

/* A term in double, rounded to a multiple of the parameter's step, so that sums are exact. */
HETI_IN HETI_D HETI_K(on_grid)(HETI_D term, double grid) {
    return HETI_DSUB(HETI_DADD(term, HETI_DSET(grid)), HETI_DSET(grid));
}

/* sum[j] += (a[j] + grid) - grid in double for j < n. An empty sum counts as 0. */
HETI_IN void HETI_K(grid_add)(double *sum, HETI_V a, double grid, int64_t n, int empty) {
    if (n >= 16) {
        const HETI_D low = HETI_K(on_grid)(HETI_DLOW(a), grid), high = HETI_K(on_grid)(HETI_DHIGH(a), grid);
        HETI_DSTORE(sum, empty ? low : HETI_DADD(HETI_DLOAD(sum), low));
        HETI_DSTORE(sum + 8, empty ? high : HETI_DADD(HETI_DLOAD(sum + 8), high));
    } else {
        float part[16];
        HETI_STORE(part, a);
        for (int64_t j = 0; j < n; j++) sum[j] = (empty ? 0.0 : sum[j]) + ((HETI_CAST(double, part[j]) + grid) - grid);
    }
}

/* to[j] = float(sum[j] + ((a[j] + grid) - grid)) for j < n; `sum` has all 16. */
HETI_IN void HETI_K(grid_end)(float *to, const double *sum, HETI_V a, double grid, int64_t n, int empty) {
    HETI_D low = HETI_K(on_grid)(HETI_DLOW(a), grid), high = HETI_K(on_grid)(HETI_DHIGH(a), grid);
    if (!empty) {
        low = HETI_DADD(HETI_DLOAD(sum), low);
        high = HETI_DADD(HETI_DLOAD(sum + 8), high);
    }
    if (n >= 16) HETI_STORE(to, HETI_FLOATS(low, high));
    else if (n > 0) HETI_STORE_PART(to, HETI_FLOATS(low, high), n);
}

/* ---- exp, log, sigmoid, erf: the formulas and coefficients of heti_expf and so on (>>math), lane
   by lane ---- */

/* c[0] + c[1] x + ... + c[count - 1] x^(count - 1), by Horner's rule. */
HETI_IN HETI_V HETI_K(polynomial)(HETI_V x, const float *c, int count) {
    HETI_V y = HETI_SET(c[count - 1]);
    HETI_UNROLL
    for (int i = count - 2; i >= 0; i--) y = HETI_FMA(y, x, HETI_SET(c[i]));
    return y;
}

HETI_IN HETI_V HETI_K(exp)(HETI_V x) {
    /* its low bits: n = nearest integer to x / ln 2 */
    HETI_V shifted = HETI_FMA(x, HETI_SET(HETI_LOG2_E), HETI_SET(HETI_SHIFT));
    HETI_V n = HETI_SUB(shifted, HETI_SET(HETI_SHIFT));
    HETI_V r = HETI_FNMA(n, HETI_SET(HETI_LN2_LOW), HETI_FNMA(n, HETI_SET(HETI_LN2_HIGH), x));
    HETI_V tail = HETI_K(polynomial)(r, heti_exp_coefficient, HETI_COUNT(heti_exp_coefficient));
    HETI_V y, scaled;
    y = HETI_ADD(HETI_FMA(tail, HETI_MUL(r, r), r), HETI_SET(1.0f));
    HETI_EACH(scaled.c[i] = HETI_I(SCALE)(y.c[i], shifted.c[i]);) /* y 2^n */
    y = HETI_LT(x, HETI_SET(HETI_EXP_HIGH), scaled, HETI_ADD(x, HETI_SET(INFINITY)));
    return HETI_LT(x, HETI_SET(HETI_EXP_LOW), HETI_ZERO(), y);
}

HETI_IN HETI_V HETI_K(log)(HETI_V x) {
    HETI_V small = HETI_SET(HETI_MIN_NORMAL), infinity = HETI_SET(INFINITY), m, f, tail, y;
    HETI_V e = HETI_K(split)(HETI_LT(x, small, HETI_MUL(x, HETI_SET(8388608.0f)), x), &m); /* 2^23 */
    e = HETI_ADD(e, HETI_LT(x, small, HETI_SET(-23.0f), HETI_ZERO()));
    f = HETI_SUB(m, HETI_SET(1.0f));
    tail = HETI_K(polynomial)(f, heti_log_coefficient, HETI_COUNT(heti_log_coefficient));
    tail = HETI_FMA(tail, HETI_MUL(f, f), HETI_MUL(e, HETI_SET(HETI_LN2_LOW)));
    y = HETI_FMA(e, HETI_SET(HETI_LN2_HIGH), HETI_ADD(f, tail));
    y = HETI_LT(x, infinity, y, x);
    return HETI_LT(HETI_ZERO(), HETI_ABS(x), HETI_LT(x, HETI_ZERO(), HETI_SET(NAN), y), HETI_LT(HETI_ABS(x), infinity,
        HETI_NEG(infinity), x));
}

/* 1 / (1 + exp(-x)): 2.4 units in the last place */
HETI_IN HETI_V HETI_K(sigmoid)(HETI_V x) {
    HETI_V one = HETI_SET(1.0f);
    return HETI_DIV(one, HETI_ADD(one, HETI_K(exp)(HETI_NEG(x))));
}

HETI_IN HETI_V HETI_K(erf)(HETI_V x) {
    HETI_V size = HETI_ABS(x), one = HETI_SET(1.0f);
    HETI_V inner = HETI_K(polynomial)(HETI_MUL(x, x), heti_erf_inner, HETI_COUNT(heti_erf_inner));
    HETI_V outer = HETI_K(polynomial)(HETI_MIN(HETI_SET(4.0f), size), heti_erf_outer, HETI_COUNT(heti_erf_outer));
    outer = HETI_SUB(one, HETI_K(exp)(HETI_NEG(outer)));
    outer = HETI_LT(x, HETI_ZERO(), HETI_NEG(outer), outer);
    return HETI_LT(size, one, HETI_FMA(x, inner, x), outer);
}
/* =================================================================================================
   >>product  Matrix products whose every element is one chain of fused multiply-adds over k
              ascending.
   After Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008): operands
   are packed into the order in which a register tile of C eats them (the small products of
   attention read A where it lies); the tile stays in registers over a block of k, and from block to
   block in C itself as f32, so that blocking, tile shape, register width and threads cannot change
   a bit.
   ============================================================================================== */

/* ---- packing ---- */

/* HETI_I(WIDTH) k, contiguous, of n <= HETI_I(WIDTH) lines become to[k][line] of `width` lines, a
   constant; lines >= n are 0. */
#if HETI_ISA_PASS == 1
HETI_IN void HETI_K(transpose)(const float *from, int64_t line_stride, int64_t n, int64_t width, float *to,
                               int64_t to_stride) {
    (void)line_stride;
    (void)width;
    (void)to_stride;
    to[0] = n > 0 ? from[0] : 0.0f;
}
#elif HETI_ISA_PASS == 2
HETI_IN void HETI_K(transpose)(const float *from, int64_t line_stride, int64_t n, int64_t width, float *to,
                               int64_t to_stride) {
    __m256 r[8], s[8];
    HETI_UNROLL
    for (int i = 0; i < 8; i++) r[i] = i < n ? _mm256_loadu_ps(from + i * line_stride) : _mm256_setzero_ps();
    HETI_UNROLL
    for (int i = 0; i < 8; i += 2) { /* s[4 h + j]: lines 0..3 of half h, k = j and j + 4 */
        s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    HETI_UNROLL
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(s[i], s[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(s[i], s[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0xee);
    }
    HETI_UNROLL
    for (int i = 0; i < 4; i++) {
        s[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        s[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    HETI_UNROLL
    for (int i = 0; i < 8; i++) {
        const __m128 high = _mm256_extractf128_ps(s[i], 1);
        if (width == 8) {
            _mm256_storeu_ps(to + i * to_stride, s[i]);
        } else { /* a copy of part of s[i] would go through memory */
            _mm_storeu_ps(to + i * to_stride, _mm256_castps256_ps128(s[i]));
            HETI_COPY(to + i * to_stride + 4, &high, width - 4);
        }
    }
}
#elif HETI_ISA_PASS == 5
HETI_IN void HETI_K(transpose)(const float *from, int64_t line_stride, int64_t n, int64_t width, float *to,
                               int64_t to_stride) {
    float32x4_t r[4], s[4];
    HETI_UNROLL
    for (int i = 0; i < 4; i++) r[i] = i < n ? vld1q_f32(from + i * line_stride) : vdupq_n_f32(0.0f);
    s[0] = vtrn1q_f32(r[0], r[1]); /* k = 0 and 2 of lines 0, 1 */
    s[1] = vtrn2q_f32(r[0], r[1]);
    s[2] = vtrn1q_f32(r[2], r[3]);
    s[3] = vtrn2q_f32(r[2], r[3]);
    r[0] = vcombine_f32(vget_low_f32(s[0]), vget_low_f32(s[2]));
    r[1] = vcombine_f32(vget_low_f32(s[1]), vget_low_f32(s[3]));
    r[2] = vcombine_f32(vget_high_f32(s[0]), vget_high_f32(s[2]));
    r[3] = vcombine_f32(vget_high_f32(s[1]), vget_high_f32(s[3]));
    HETI_UNROLL
    for (int i = 0; i < 4; i++) HETI_COPY(to + i * to_stride, &r[i], width);
}
#else
/* Line i in r[i] becomes k = i in r[i]. */
HETI_IN void HETI_K(turn)(__m512 *r) {
    __m512 s[16];
    HETI_UNROLL
    for (int i = 0; i < 16; i += 2) {
        s[i] = _mm512_maskz_unpacklo_ps(HETI_SIXTEEN, r[i], r[i + 1]);
        s[i + 1] = _mm512_maskz_unpackhi_ps(HETI_SIXTEEN, r[i], r[i + 1]);
    }
    HETI_UNROLL
    for (int i = 0; i < 16; i += 4) { /* r[4 g + j]: lines 4 g .. 4 g + 3, k = j, j + 4, j + 8, j + 12 */
        r[i] = _mm512_shuffle_ps(s[i], s[i + 2], 0x44);
        r[i + 1] = _mm512_shuffle_ps(s[i], s[i + 2], 0xee);
        r[i + 2] = _mm512_shuffle_ps(s[i + 1], s[i + 3], 0x44);
        r[i + 3] = _mm512_shuffle_ps(s[i + 1], s[i + 3], 0xee);
    }
    HETI_UNROLL
    for (int i = 0; i < 4; i++) { /* s: lines 0 .. 7 and 8 .. 15, k = i, i + 8 and i + 4, i + 12 */
        s[i] = _mm512_maskz_shuffle_f32x4(HETI_SIXTEEN, r[i], r[i + 4], 0x88);
        s[i + 4] = _mm512_maskz_shuffle_f32x4(HETI_SIXTEEN, r[i], r[i + 4], 0xdd);
        s[i + 8] = _mm512_maskz_shuffle_f32x4(HETI_SIXTEEN, r[i + 8], r[i + 12], 0x88);
        s[i + 12] = _mm512_maskz_shuffle_f32x4(HETI_SIXTEEN, r[i + 8], r[i + 12], 0xdd);
    }
    HETI_UNROLL
    for (int i = 0; i < 8; i++) r[i] = _mm512_maskz_shuffle_f32x4(HETI_SIXTEEN, s[i], s[i + 8], 0x88);
    HETI_UNROLL
    for (int i = 0; i < 8; i++) r[i + 8] = _mm512_maskz_shuffle_f32x4(HETI_SIXTEEN, s[i], s[i + 8], 0xdd);
}

HETI_IN void HETI_K(transpose)(const float *from, int64_t line_stride, int64_t n, int64_t width, float *to,
                               int64_t to_stride) {
    __m512 r[16];
    HETI_UNROLL
    for (int i = 0; i < 16; i++) r[i] = i < n ? _mm512_loadu_ps(from + i * line_stride) : _mm512_setzero_ps();
    HETI_K(turn)(r);
    HETI_UNROLL
    for (int i = 0; i < 16; i++) _mm512_mask_storeu_ps(to + i * to_stride, HETI_K(lanes)(width), r[i]);
}
#endif

/* to[k][tile] of one tile of lines; tile is a constant. */
HETI_IN void HETI_K(gather)(int64_t tile, int64_t lines, int64_t k, const heti_operand *from, float *to) {
    int64_t j = 0;
    if (from->line_stride == 1 && lines >= tile)
        for (; j < k; j++)
            HETI_COPY(to + j * tile, from->data + j * from->k_stride, tile);
    for (; from->k_stride == 1 && j + HETI_I(WIDTH) <= k; j += HETI_I(WIDTH)) {
        HETI_UNROLL
        for (int64_t line = 0; line < tile; line += HETI_I(WIDTH)) {
            const float *p = from->data + line * from->line_stride + j;
            const int64_t width = heti_min(HETI_I(WIDTH), tile - line);
            if (lines >= tile) HETI_K(transpose)(p, from->line_stride, width, width, to + j * tile + line, tile);
            else HETI_K(transpose)(p, from->line_stride, lines - line, width, to + j * tile + line, tile);
        }
    }
    for (; j < k; j++)
        for (int64_t line = 0; line < tile; line++)
            to[j * tile + line] = line < lines ? from->data[line * from->line_stride + j * from->k_stride] : 0.0f;
}

HETI_IN HETI_V HETI_K(bf16)(HETI_V x) {
    HETI_V size = HETI_ABS(x), r;
    HETI_EACH(r.c[i] = HETI_I(BF16)(x.c[i]);)
    r = HETI_LT(size, HETI_SET(INFINITY), r, HETI_ADD(x, x)); /* infinite stays, NaN becomes quiet */
    return HETI_LT(size, HETI_SET(HETI_MIN_NORMAL), HETI_ZERO(), r);
}

/* Rounds n floats to bf16 in place. */
HETI_FN void HETI_K(round_bf16)(int64_t n, float *p) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) HETI_STORE(p + i, HETI_K(bf16)(HETI_LOAD(p + i)));
    if (i < n) HETI_STORE_PART(p + i, HETI_K(bf16)(HETI_LOAD_PART(p + i, n - i)), n - i);
}

/* Some lines and k of an operand in bf16 or int8 as floats in `to`, which has room for most_lines x
   most_k. */
HETI_IN void HETI_K(unfold)(int64_t lines, int64_t k, int64_t most_lines, int64_t most_k, heti_operand *part,
                                 float *to) {
    const int by_line = part->k_stride == 1;
    const int64_t rows = by_line ? lines : k, columns = by_line ? k : lines,
                  stride = by_line ? part->line_stride : part->k_stride;
    const int64_t pitch = by_line ? most_k : most_lines;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            to[r * pitch + c] = part->int8 != NULL ? heti_int8_value(part->int8, part->at + r * stride + c)
                                                   : heti_bf16_value(part->bf16[r * stride + c]);
    part->data = to;
    part->bf16 = NULL;
    part->int8 = NULL;
    part->line_stride = by_line ? pitch : 1;
    part->k_stride = by_line ? 1 : pitch;
}

#if HETI_ISA_PASS == 4
/* Floats to pairs of bf16, `low` before `high`. The instruction rounds as HETI_K(bf16) does, but
   for a zero's sign, which no chain from +0 shows. */
HETI_IN __m512i HETI_K(narrow)(__m512 low, __m512 high) {
    const __m512bh both = _mm512_cvtne2ps_pbh(high, low);
    __m512i r;
    memcpy(&r, &both, sizeof r);
    return r;
}

/* Pairs of up to 16 lines and 32 contiguous k, the even k in the high halves: a line a register,
   missing lines are 0. */
HETI_IN void HETI_K(line_pairs)(const heti_operand *from, int64_t lines, int64_t k, __m512 *r) {
    const __mmask16 low = HETI_K(lanes)(k), high = HETI_K(lanes)(k - 16);
    HETI_UNROLL
    for (int i = 0; i < 16; i++) {
        const float *p = from->data + i * from->line_stride;
        r[i] = _mm512_setzero_ps();
        if (i >= lines) continue;
        r[i] = _mm512_castsi512_ps(_mm512_maskz_rol_epi32(HETI_SIXTEEN, HETI_K(narrow)(_mm512_maskz_loadu_ps(low, p),
                                                                                       _mm512_maskz_loadu_ps(high,
                                                                                           p + 16)), 16));
    }
}

/* pairs[k / 2][tile] of them; lines that are missing in `width` are 0. */
HETI_IN void HETI_K(pair_lines)(const heti_operand *from, int64_t lines, int64_t k, int64_t width, float *to,
                                int64_t tile) {
    const __mmask16 all = HETI_K(lanes)(width);
    __m512 r[16];
    HETI_K(line_pairs)(from, lines, k, r);
    HETI_K(turn)(r);
    HETI_UNROLL
    for (int i = 0; i < 16; i++)
        if (2 * i < k) _mm512_mask_storeu_ps(to + i * tile, all, r[i]);
}

/* The same where lines are contiguous: two k are made, then interleaved. */
HETI_IN void HETI_K(pair_columns)(const heti_operand *from, int64_t lines, int64_t k, int64_t width, float *to,
                                  int64_t tile) {
    const __m512i order = _mm512_set_epi32(0x000f001f, 0x000e001e, 0x000d001d, 0x000c001c, 0x000b001b, 0x000a001a,
                                           0x00090019, 0x00080018, 0x00070017, 0x00060016, 0x00050015, 0x00040014,
                                               0x00030013, 0x00020012, 0x00010011, 0x00000010);
    const __mmask16 some = HETI_K(lanes)(lines), all = HETI_K(lanes)(width);
    const float *p = from->data;
    for (int64_t j = 0; j < k; j += 2, p += 2 * from->k_stride, to += tile) {
        const __m512 odd = j + 1 < k ? _mm512_maskz_loadu_ps(some, p + from->k_stride) : _mm512_setzero_ps();
        const __m512i pair = HETI_K(narrow)(_mm512_maskz_loadu_ps(some, p), odd);
        _mm512_mask_storeu_ps(to, all, _mm512_castsi512_ps(_mm512_permutexvar_epi16(order, pair)));
    }
}

/* The pairs of up to 16 lines and 32 k of any operand, a line a register. */
HETI_IN void HETI_K(pair_rows)(const heti_operand *from, int64_t lines, int64_t k, __m512 *r) {
    float turned[16 * 16];
    if (from->k_stride == 1) {
        HETI_K(line_pairs)(from, lines, k, r);
        return;
    }
    HETI_K(pair_columns)(from, lines, k, 16, turned, 16);
    HETI_UNROLL
    for (int i = 0; i < 16; i++) r[i] = 2 * i < k ? _mm512_loadu_ps(turned + 16 * i) : _mm512_setzero_ps();
    HETI_K(turn)(r);
}

/* A tile of up to 32 k. */
HETI_FN void HETI_K(pack_pairs)(int64_t tile, int64_t lines, int64_t k, const heti_operand *from, float *to) {
    float wide[16 * 32];
    for (int64_t i = 0; i < tile; i += 16) {
        const int64_t count = heti_min(heti_min(16, tile - i), lines - i);
        heti_operand part = *from;
        heti_move_operand(&part, i, 0);
        if (part.data == NULL) HETI_K(unfold)(count, k, 16, 32, &part, wide);
        if (from->k_stride == 1) HETI_K(pair_lines)(&part, count, k, tile - i, to + i, tile);
        else HETI_K(pair_columns)(&part, count, k, tile - i, to + i, tile);
    }
}
#define HETI_PACK_PAIRS(tile, lines, k, from, to) HETI_K(pack_pairs)(tile, lines, k, from, to)
#else
#define HETI_PACK_PAIRS(tile, lines, k, from, to) ((void)0)
#endif

/* A tile of up to 16 k. */
HETI_FN void HETI_K(pack_floats)(int64_t tile, int64_t lines, int64_t k, const heti_operand *from, int bf16,
                                 float *to) {
    float wide[16 * HETI_TILE_COLUMNS];
    heti_operand part = *from;
    if (part.data == NULL) HETI_K(unfold)(lines, k, HETI_TILE_COLUMNS, 16, &part, wide);
    if (tile == HETI_TILE_M) HETI_K(gather)(HETI_TILE_M, lines, k, &part, to);
    else HETI_K(gather)(HETI_TILE_N, lines, k, &part, to);
    if (bf16) HETI_K(round_bf16)(k * tile, to);
}

HETI_IN const char *HETI_K(fetch)(const char *at, int64_t step, int64_t pace) {
    for (int64_t i = 0; i < pace; i++, at += step) {
        HETI_PREFETCH(at);
        HETI_PREFETCH(at + 64);
    }
    return at;
}

/* What to fetch while `across` lines from `begin` on are packed, `depth` k at a time. Where k is
   contiguous, the next tile's lines; where lines are, and one column of fetches holds them, the k
   to come. */
HETI_FN heti_walk HETI_K(pack_walk)(const heti_operand *from, int64_t begin, int64_t across, int64_t lines, int64_t k,
                                    int64_t depth) {
    heti_block next;
    next.from = *from;
    next.lines = lines;
    next.k = k;
    if (from->line_stride == 1 && lines * 4 <= HETI_FETCH_BYTES && k > depth) {
        heti_move_operand(&next.from, 0, depth);
        next.k -= depth;
    } else if (from->k_stride == 1 && begin + across < lines) {
        heti_move_operand(&next.from, begin + across, 0);
        next.lines = heti_min(across, lines - begin - across);
    } else return heti_no_walk();
    return heti_block_walk(&next, (next.k + depth - 1) / depth);
}

/* Goes through the operand as it lies in memory: where lines are contiguous, through all tiles of
   some k before the next k, of so few that their cache lines stay in the first cache until the next
   tile whatever the stride. */
HETI_FN void HETI_K(pack)(int64_t tile, int64_t lines, int64_t k, const heti_operand *from, int bf16, float *to,
                          int64_t pitch) {
    const int64_t depth = HETI_PAIRS(bf16) && from->k_stride == 1 ? 32 : 16,
                  across = from->line_stride == 1 ? lines : tile;
    for (int64_t begin = 0; begin < lines; begin += across) {
        heti_walk ahead = HETI_K(pack_walk)(from, begin, across, lines, k, depth);
        for (int64_t j = 0; j < k; j += depth) {
            const heti_stretch stretch = heti_walk_on(&ahead, 1);
            (void)HETI_K(fetch)(stretch.at, stretch.step, stretch.pace);
            for (int64_t line = begin; line < heti_min(begin + across, lines); line += tile) {
                float *place = to + line * pitch + heti_packed_k(j, HETI_PAIRS(bf16)) * tile;
                heti_operand part = *from;
                heti_move_operand(&part, line, j);
                if (HETI_PAIRS(bf16))
                    HETI_PACK_PAIRS(tile, heti_min(tile, lines - line), heti_min(depth, k - j), &part, place);
                else
                    HETI_K(pack_floats)(tile, heti_min(tile, lines - line), heti_min(depth, k - j), &part, bf16, place);
            }
        }
    }
}

/* ---- the tile ---- */

typedef struct HETI_K(tile) { HETI_V row[HETI_TILE_M][HETI_TILE_V]; } HETI_K(tile);

/* One k: the outer product of a column of A's tile, whose lines are a_line floats apart, and a row
   of B's panel. */
HETI_IN void HETI_K(step)(HETI_K(tile) *c, int rows, const float *a, int64_t a_line, const float *b) {
    HETI_V column[HETI_TILE_V];
    HETI_UNROLL
    for (int v = 0; v < HETI_TILE_V; v++) column[v] = HETI_LOAD(b + 16 * v);
    HETI_UNROLL
    for (int i = 0; i < HETI_TILE_M; i++) {
        if (i >= rows) continue;
        HETI_V element = HETI_SET(a[i * a_line]);
        HETI_UNROLL
        for (int v = 0; v < HETI_TILE_V; v++) c->row[i][v] = HETI_FMA(element, column[v], c->row[i][v]);
    }
}

#if HETI_ISA_PASS == 4
/* Two k: the instruction adds the product of the high halves, then that of the low halves, each
   rounded as an fma (found equal to two fmas on Sapphire Rapids wherever no subnormal number
   occurs). */
HETI_IN void HETI_K(pair_step)(HETI_K(tile) *c, int rows, const float *a, const float *b) {
    __m512bh column[HETI_TILE_V];
    HETI_UNROLL
    for (int v = 0; v < HETI_TILE_V; v++) memcpy(&column[v], b + 16 * v, sizeof column[v]);
    HETI_UNROLL
    for (int i = 0; i < HETI_TILE_M; i++) {
        if (i >= rows) continue;
        HETI_V pair = HETI_SET(a[i]);
        __m512bh element;
        memcpy(&element, &pair, sizeof element);
        HETI_UNROLL
        for (int v = 0; v < HETI_TILE_V; v++)
            c->row[i][v].c[0] = _mm512_dpbf16_ps(c->row[i][v].c[0], element, column[v]);
    }
}
#define HETI_PAIR_STEP(c, rows, a, b) HETI_K(pair_step)(c, rows, a, b)
#else
#define HETI_PAIR_STEP(c, rows, a, b) ((void)0)
#endif

/* Where chains take their operands: element (i, k) of A is at a[i * a_line + k * a_step]; B is
   packed, and A too where a_line is 1. */
typedef struct HETI_K(feed) {
    const float *a, *b;
    int64_t a_line, a_step;
} HETI_K(feed);

HETI_IN HETI_K(feed) HETI_K(make_feed)(const float *a, int64_t a_line, int64_t a_step, const float *b) {
    const HETI_K(feed) from = { a, b, a_line, a_step };
    return from;
}

/* The next `count` k, or pairs of k. */
HETI_IN void HETI_K(steps)(HETI_K(tile) *c, int rows, int64_t count, HETI_K(feed) *from, int pairs) {
    HETI_ROLLED
    for (int64_t j = 0; j < count; j++, from->a += from->a_step, from->b += HETI_TILE_N) {
        if (pairs) HETI_PAIR_STEP(c, rows, from->a, from->b);
        else HETI_K(step)(c, rows, from->a, from->a_line, from->b);
    }
}

/* Continues the chains of the first `rows` of a tile over `count` k, or pairs. Every 8 of them it
   fetches a little of what comes next: spread like this the fetches hide behind the
   multiplications, all at once they would stop them. What to fetch is made out beforehand, since a
   core of two fused multiply-adds a cycle has hardly an instruction to spare in between. */
HETI_IN void HETI_K(counted_chain)(HETI_K(tile) *c, int rows, int64_t count, HETI_K(feed) from, int pairs,
                                   const heti_stretch *ahead) {
    for (; ahead->turns > 0; ahead++) {
        const float *end = from.a + 8 * ahead->turns * from.a_step;
        const char *at = ahead->at;
        HETI_ROLLED
        while (from.a != end) {
            at = HETI_K(fetch)(at, ahead->step, ahead->pace);
            HETI_K(steps)(c, rows, 8, &from, pairs);
        }
    }
    HETI_K(steps)(c, rows, count % 8, &from, pairs);
}

HETI_IN void HETI_K(chain)(HETI_K(tile) *c, int rows, int64_t k, HETI_K(feed) from, int bf16,
                           const heti_stretch *ahead) {
    if (HETI_PAIRS(bf16)) HETI_K(counted_chain)(c, rows, heti_packed_k(k, 1), from, 1, ahead);
    else HETI_K(counted_chain)(c, rows, k, from, 0, ahead);
}

/* Whole rows of a tile of C in memory. */
HETI_IN void HETI_K(tile_chain)(int rows, int64_t k, HETI_K(feed) from, const heti_chains *to, int bf16,
                                heti_walk *walk) {
    heti_stretch ahead[HETI_STRETCHES];
    HETI_K(tile) t;
    heti_walk_all(walk, heti_fetches(k, HETI_PAIRS(bf16)), ahead);
    HETI_UNROLL
    for (int i = 0; i < HETI_TILE_M; i++) {
        if (i >= rows) continue;
        HETI_UNROLL
        for (int v = 0; v < HETI_TILE_V; v++)
            t.row[i][v] = to->continued ? HETI_LOAD(to->c + i * to->c_row + 16 * v) : HETI_ZERO();
    }
    HETI_K(chain)(&t, rows, k, from, bf16, ahead);
    HETI_FORGET(to);
    float *const c = to->c;
    const int64_t c_row = to->c_row;
    HETI_UNROLL
    for (int i = 0; i < HETI_TILE_M; i++) {
        if (i >= rows || to->bias == NULL) continue;
        HETI_UNROLL
        for (int v = 0; v < HETI_TILE_V; v++) t.row[i][v] = HETI_ADD(t.row[i][v], HETI_LOAD(to->bias + 16 * v));
    }
    HETI_UNROLL
    for (int i = 0; i < HETI_TILE_M; i++) {
        if (i >= rows) continue;
        HETI_UNROLL
        for (int v = 0; v < HETI_TILE_V; v++) HETI_STORE(c + i * c_row + 16 * v, t.row[i][v]);
    }
}

/* Strides that are known are constants: packed tiles, and tiles that are read where they lie, with
   lines or k contiguous. */
HETI_FN void HETI_K(tile_float)(int64_t k, const heti_tiles *a, const float *b, const heti_chains *to, int bf16,
                                heti_walk *walk) {
    if (a->line == 1 && a->step == HETI_TILE_M)
        HETI_K(tile_chain)(HETI_TILE_M, k, HETI_K(make_feed)(a->data, 1, HETI_TILE_M, b), to, bf16, walk);
    else if (a->line == 1) HETI_K(tile_chain)(HETI_TILE_M, k, HETI_K(make_feed)(a->data, 1, a->step, b), to, 0, walk);
    else HETI_K(tile_chain)(HETI_TILE_M, k, HETI_K(make_feed)(a->data, a->line, 1, b), to, 0, walk);
}

/* Rows and columns that fill no tile: short tiles, in a buffer where they are not whole. */
HETI_FN void HETI_K(tile_edge)(int64_t m, int64_t n, int64_t k, const heti_tiles *a, const float *b,
                               const heti_chains *to, int bf16, heti_walk *walk) {
    float edge[HETI_TILE_SHORT * HETI_TILE_N], bias[HETI_TILE_N] = { 0.0f }, *c = to->c;
    if (to->bias != NULL) HETI_COPY(bias, to->bias, n);
    for (int64_t i = 0; i < m; i += HETI_TILE_SHORT, c += HETI_TILE_SHORT * to->c_row) {
        const int64_t rows = heti_min(HETI_TILE_SHORT, m - i);
        const int whole = rows == HETI_TILE_SHORT && n == HETI_TILE_N;
        const heti_chains part = heti_make_chains(whole ? c : edge, whole ? to->c_row : HETI_TILE_N, to->continued,
                                                  to->bias != NULL ? bias : NULL);
        if (!whole) memset(edge, 0, sizeof edge);
        for (int64_t r = 0; !whole && to->continued && r < rows; r++)
            HETI_COPY(edge + r * HETI_TILE_N, c + r * to->c_row, n);
        HETI_K(tile_chain)(HETI_TILE_SHORT, k, HETI_K(make_feed)(a->data + i * a->line, a->line, a->step, b), &part,
                           bf16, walk);
        for (int64_t r = 0; !whole && r < rows; r++)
            HETI_COPY(c + r * to->c_row, edge + r * HETI_TILE_N, n);
    }
}

/* A term of an exact sum, rows < m, columns < n of the tile, is added to a sum that lies in memory,
   or to one that is kept for the `last` term, which makes floats of it. Returns the largest
   bits. */
HETI_IN HETI_U HETI_K(tile_add)(const HETI_K(tile) *t, int64_t m, int64_t n, const heti_weight_sum *to, int64_t offset,
                                int last, int empty) {
    float *const end = HETI_CAST(float *, to->sum) + offset;
    double *const sum = to->final ? to->kept : HETI_CAST(double *, to->sum) + offset;
    const int64_t end_row = to->columns, row = to->final ? HETI_TILE_N : end_row;
    const double grid = to->grid;
    HETI_U maximum = HETI_BITS_ZERO();
    if (to->final && !last) n = HETI_TILE_N;
    HETI_UNROLL
    for (int i = 0; i < HETI_TILE_M; i++) {
        if (i >= m) continue;
        HETI_UNROLL
        for (int v = 0; v < HETI_TILE_V; v++) {
            double *const at = sum + i * row + 16 * v;
            maximum = HETI_BITS_MAX(maximum, t->row[i][v]);
            if (last) HETI_K(grid_end)(end + i * end_row + 16 * v, at, t->row[i][v], grid, n - 16 * v, empty);
            else HETI_K(grid_add)(at, t->row[i][v], grid, n - 16 * v, empty);
        }
    }
    return maximum;
}

/* The cases apart, so that each is a constant. */
HETI_IN HETI_U HETI_K(tile_sum)(const HETI_K(tile) *t, int64_t m, int64_t n, const heti_weight_sum *to,
                                int64_t offset) {
    if (to->final && to->last)
        return to->empty ? HETI_K(tile_add)(t, m, n, to, offset, 1, 1) : HETI_K(tile_add)(t, m, n, to, offset, 1, 0);
    return to->empty ? HETI_K(tile_add)(t, m, n, to, offset, 0, 1) : HETI_K(tile_add)(t, m, n, to, offset, 0, 0);
}

HETI_FN void HETI_K(tile_exact)(int64_t m, int64_t n, int64_t k, const float *a, const float *b, heti_weight_sum *to,
                                int64_t offset, int bf16, heti_walk *walk) {
    heti_stretch ahead[HETI_STRETCHES];
    HETI_K(tile) t;
    uint32_t top;
    heti_walk_all(walk, heti_fetches(k, HETI_PAIRS(bf16)), ahead);
    HETI_UNROLL
    for (int i = 0; i < HETI_TILE_M; i++) {
        HETI_UNROLL
        for (int v = 0; v < HETI_TILE_V; v++) t.row[i][v] = HETI_ZERO();
    }
    HETI_K(chain)(&t, HETI_TILE_M, k, HETI_K(make_feed)(a, 1, HETI_TILE_M, b), bf16, ahead);
    top = HETI_BITS_TOP(HETI_K(tile_sum)(&t, m, n, to, offset));
    if (top > to->maximum) to->maximum = top;
}

HETI_FN void HETI_K(panel)(int64_t m, int64_t n, int64_t k, heti_tiles a, const heti_operand *b, float *packed,
                           heti_chains to, int bf16, heti_walk *next) {
    const int64_t turns = heti_fetches(k, HETI_PAIRS(bf16)) / 2; /* half of them for c, half for `next` */
    heti_walk walk[HETI_WALKS];
    if (b != NULL) HETI_K(pack)(HETI_TILE_N, n, k, b, bf16, packed, heti_packed_k(k, HETI_PAIRS(bf16)));
    walk[1] = *next;
    walk[2] = heti_no_walk();
    for (int64_t i = 0; i < m; i += HETI_TILE_M, a.data += a.tile, to.c += HETI_TILE_M * to.c_row) {
        const int64_t rows = heti_min(HETI_TILE_M, m - i);
        walk[0] = heti_walk_over(to.c + HETI_TILE_M * to.c_row, 4 * to.c_row, 4 * n,
                                 heti_min(HETI_TILE_M, m - i - rows), turns);
        if (rows == HETI_TILE_M && n == HETI_TILE_N) HETI_K(tile_float)(k, &a, packed, &to, bf16, walk);
        else HETI_K(tile_edge)(rows, n, k, &a, packed, &to, bf16, walk);
    }
    *next = walk[1];
}

HETI_FN void HETI_K(weight)(int64_t m, int64_t n, int64_t k, const float *a, const float *b, heti_weight_sum *to,
                            int64_t offset, int bf16, heti_walk *walk) {
    if (to->exact) {
        HETI_K(tile_exact)(m, n, k, a, b, to, offset, bf16, walk);
    } else {
        const heti_tiles tile = heti_make_tiles(a, 1, HETI_TILE_M, 0);
        const heti_chains chains = heti_make_chains(HETI_CAST(float *, to->sum) + offset, to->columns, !to->empty,
                                                    NULL);
        if (m == HETI_TILE_M && n == HETI_TILE_N) HETI_K(tile_float)(k, &tile, b, &chains, bf16, walk);
        else HETI_K(tile_edge)(m, n, k, &tile, b, &chains, bf16, walk);
    }
}

HETI_FN void HETI_K(bias)(int64_t count, int64_t k, const float *dy, int64_t dy_row, heti_weight_sum *to,
                          int64_t offset) {
    HETI_U maximum = HETI_BITS_ZERO();
    uint32_t top;
    for (int64_t i = 0; i < count; i += 32) {
        HETI_V chain[2];
        for (int v = 0; v < 2; v++)
            chain[v] = to->exact ? HETI_ZERO() : HETI_LOAD_PART(HETI_CAST(float *, to->sum) + offset + i + 16 * v,
                                                                count - i - 16 * v);
        if (count - i >= 32) {
            for (int64_t j = 0; j < k; j++) {
                HETI_UNROLL
                for (int v = 0; v < 2; v++) chain[v] = HETI_ADD(chain[v], HETI_LOAD(dy + j * dy_row + i + 16 * v));
            }
        } else {
            for (int64_t j = 0; j < k; j++)
                for (int v = 0; v < 2; v++)
                    chain[v] = HETI_ADD(chain[v], HETI_LOAD_PART(dy + j * dy_row + i + 16 * v, count - i - 16 * v));
        }
        for (int v = 0; v < 2; v++) {
            const int64_t n = count - i - 16 * v;
            if (n <= 0) break;
            maximum = HETI_BITS_MAX(maximum, chain[v]);
            if (to->exact)
                HETI_K(grid_add)(HETI_CAST(double *, to->sum) + offset + i + 16 * v, chain[v], to->grid, n, 0);
            else HETI_STORE_PART(HETI_CAST(float *, to->sum) + offset + i + 16 * v, chain[v], n);
        }
    }
    top = HETI_BITS_TOP(maximum);
    if (to->exact && top > to->maximum) to->maximum = top;
}

/* ---- a product on one thread, for the kernels of >>rows ---- */

/* How many of `deep` k from l on a strip needs of the panel at column j. */
HETI_IN int64_t HETI_K(needed)(const int64_t *columns, const int64_t *depth, int64_t strip, int64_t j, int64_t l,
                               int64_t deep) {
    if (columns != NULL && columns[strip] <= j) return 0;
    return depth != NULL ? heti_max(0, heti_min(depth[strip] - l, deep)) : deep;
}

/* c[m][n] = chain over k ascending of a[i][k] b[k][j], from +0 or, continued, from c. Lines of a
   are rows, lines of b columns. Rows are taken in strips of TILE_ROWS: where `columns` is given,
   only the first columns[strip] of a strip are wanted, and where `depth` is, only its first
   depth[strip] k matter; neither grows from strip to strip. In f32 whole strips of `a`, whose lines
   or k are contiguous, are read where they lie. pack: heti_product_pack(m, n, k) bytes. */
HETI_FN void HETI_K(product)(int64_t m, int64_t n, int64_t k, heti_operand a, heti_operand b, float *c, int64_t c_row,
                             int continued, int bf16, const int64_t *columns, const int64_t *depth, float *pack) {
    heti_walk nothing = heti_no_walk();
    if (k == 0 && !continued)
        for (int64_t i = 0; i < m; i++) HETI_CLEAR(c + i * c_row, n);
    for (int64_t i = 0; i < m; i += HETI_PRODUCT_ROWS) {
        const int64_t rows = heti_min(HETI_PRODUCT_ROWS, m - i),
                      unpacked = bf16 ? 0 : rows / HETI_TILE_ROWS * HETI_TILE_ROWS;
        for (int64_t l = 0; l < k; l += HETI_PRODUCT_K) {
            const int64_t deep = heti_min(HETI_PRODUCT_K, k - l);
            float *panel = pack + heti_packed(rows - unpacked, deep, HETI_TILE_M);
            heti_operand from = a;
            heti_move_operand(&from, i + unpacked, l);
            HETI_K(pack)(HETI_TILE_M, rows - unpacked, deep, &from, bf16, pack, deep);
            for (int64_t j = 0; j < n; j += HETI_TILE_N) {
                const int64_t wide = heti_min(HETI_TILE_N, n - j);
                /* of the panel; NULL once they are packed, as far as the first strip needs them */
                heti_operand lying = b, *lines = &lying;
                heti_move_operand(&lying, j, l);
                for (int64_t r = 0, next; r < rows; r = next) {
                    const int64_t end = r < unpacked ? unpacked : rows;
                    const int64_t needed = HETI_K(needed)(columns, depth, (i + r) / HETI_TILE_ROWS, j, l, deep);
                    next = heti_min(r + HETI_TILE_ROWS, end); /* strips that need as much meet the panel together */
                    while (next < end && HETI_K(needed)(columns, depth, (i + next) / HETI_TILE_ROWS, j, l,
                                                        deep) == needed)
                        next = heti_min(next + HETI_TILE_ROWS, end);
                    if (needed == 0) continue;
                    from = a;
                    heti_move_operand(&from, i + r, l);
                    HETI_K(panel)(next - r, wide, needed,
                                  r < unpacked ? heti_make_tiles(from.data, from.line_stride, from.k_stride,
                                                                 HETI_TILE_M * from.line_stride)
                                               : heti_make_tiles(pack + (r - unpacked) * deep, 1, HETI_TILE_M,
                                                                 HETI_TILE_M * deep),
                                  lines, panel, heti_make_chains(c + (i + r) * c_row + j, c_row, continued || l > 0,
                                                                 NULL), bf16, &nothing);
                    lines = NULL;
                }
            }
        }
    }
}

static const heti_product_kernels HETI_K(product_kernels) = {
    HETI_TILE_M, HETI_TILE_N, HETI_PRODUCT_K, HETI_WEIGHT_ROWS, HETI_ISA_PASS == 4, NULL, HETI_K(pack), HETI_K(pack),
    HETI_K(panel), HETI_K(weight), HETI_K(bias)
};

#if HETI_ISA_PASS == 4 && defined(HETI_HAVE_AMX)
/* ---- products of bf16 in the matrix registers (AMX, Intel's Software Developer's Manual, 3.2,
   TDPBF16PS) ----
   C is made in blocks of 32 x 32: four registers of 16 x 16 floats, between two of A (16 rows of 16
   pairs of k) and two of B (16 pairs of k of 16 columns). One instruction adds, of 32 k, the even
   ones' chain and the odd ones', each an fma from +0, to one another and then to C: other bits than
   those of pairs, equal wherever the product is cut in multiples of 32 k. */

#define HETI_AMX_FN static HETI_UNUSED __attribute__((target( \
    "avx2,fma,avx512f,avx512dq,avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16")))
#define HETI_AMX_ROWS 32

/* Registers 0 to 3 are C, 4 and 5 A, 6 and 7 B, of 2 `words` k. It clears them. */
HETI_AMX_FN void HETI_K(amx_shape)(int64_t words) {
    struct { uint8_t palette, start, zero[14]; uint16_t row_bytes[16]; uint8_t rows[16]; } shape;
    memset(&shape, 0, sizeof shape);
    shape.palette = 1;
    for (int i = 0; i < 8; i++) {
        shape.row_bytes[i] = HETI_CAST(uint16_t, i == 4 || i == 5 ? 4 * words : 64);
        shape.rows[i] = HETI_CAST(uint8_t, i >= 6 ? words : 16);
    }
    __asm__ volatile("" : : "r"(&shape) : "memory"); /* gcc's intrinsic owns up to reading 8 bytes */
    _tile_loadconfig(&shape);
}

/* The shape of 16 words is that of all but the last k of a product. */
HETI_AMX_FN void HETI_K(amx_prepare)(int begin) {
    if (begin) HETI_K(amx_shape)(16);
    else _tile_release();
}

/* `count` times 2 `words` k of c[32][32], or of its first 16 rows. */
HETI_AMX_FN void HETI_K(amx_span)(int tall, int64_t count, int64_t words, const float *a, const float *b, float *c,
                                  int64_t c_row, int continued) {
    const size_t row = HETI_CAST(size_t, 4 * c_row), a_row = HETI_CAST(size_t, 4 * words);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (continued) {
        _tile_loadd(0, c, row);
        _tile_loadd(1, c + 16, row);
        if (tall) _tile_loadd(2, c + 16 * c_row, row);
        if (tall) _tile_loadd(3, c + 16 * c_row + 16, row);
    }
    for (; count > 0; count--, a += HETI_AMX_ROWS * words, b += HETI_TILE_N * words) {
        _tile_loadd(6, b, 4 * HETI_TILE_N);
        _tile_loadd(7, b + 16, 4 * HETI_TILE_N);
        _tile_loadd(4, a, a_row);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (!tall) continue;
        _tile_loadd(5, a + 16 * words, a_row);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, row);
    _tile_stored(1, c + 16, row);
    if (tall) _tile_stored(2, c + 16 * c_row, row);
    if (tall) _tile_stored(3, c + 16 * c_row + 16, row);
}

/* A whole block. */
HETI_AMX_FN void HETI_K(amx_block)(int64_t m, int64_t k, const float *a, const float *b, float *c, int64_t c_row,
                                   int continued) {
    const int64_t whole = k / 32, rest = heti_packed_k(k % 32, 1);
    HETI_K(amx_span)(m > 16, whole, 16, a, b, c, c_row, continued);
    if (rest == 0) return;
    HETI_K(amx_shape)(rest);
    HETI_K(amx_span)(m > 16, 1, rest, a + whole * 16 * HETI_AMX_ROWS, b + whole * 16 * HETI_TILE_N, c, c_row, 1);
    HETI_K(amx_shape)(16);
}

/* The same of m x n of a block, with the bias. */
HETI_AMX_FN void HETI_K(amx_tile)(int64_t m, int64_t n, int64_t k, const float *a, const float *b,
                                  const heti_chains *to) {
    const int whole = m == HETI_AMX_ROWS && n == HETI_TILE_N;
    float edge[HETI_AMX_ROWS * HETI_TILE_N], *c = whole ? to->c : edge;
    const int64_t c_row = whole ? to->c_row : HETI_TILE_N;
    for (int64_t i = 0; !whole && to->continued && i < m; i++) HETI_COPY(edge + i * c_row, to->c + i * to->c_row, n);
    HETI_K(amx_block)(m, k, a, b, c, c_row, to->continued);
    for (int64_t i = 0; i < m && (!whole || to->bias != NULL); i++)
        for (int64_t j = 0; j < n; j += 16) {
            HETI_V sum = HETI_LOAD(c + i * c_row + j);
            if (to->bias != NULL) sum = HETI_ADD(sum, HETI_LOAD_PART(to->bias + j, n - j));
            HETI_STORE_PART(to->c + i * to->c_row + j, sum, n - j);
        }
}

HETI_AMX_FN void HETI_K(amx_panel)(int64_t m, int64_t n, int64_t k, heti_tiles a, const heti_operand *b, float *packed,
                                   heti_chains to, int bf16, heti_walk *next) {
    (void)next;
    if (b != NULL) HETI_K(pack)(HETI_TILE_N, n, k, b, bf16, packed, heti_packed_k(k, 1));
    for (int64_t i = 0; i < m; i += HETI_AMX_ROWS, a.data += a.tile, to.c += HETI_AMX_ROWS * to.c_row)
        HETI_K(amx_tile)(heti_min(HETI_AMX_ROWS, m - i), n, k, a.data, packed, &to);
}

/* A term of an exact sum comes back to as many registers as others' tiles have. */
HETI_AMX_FN void HETI_K(amx_weight)(int64_t m, int64_t n, int64_t k, const float *a, const float *b,
                                    heti_weight_sum *to, int64_t offset, int bf16, heti_walk *walk) {
    float term[HETI_AMX_ROWS * HETI_TILE_N];
    const heti_chains sums = heti_make_chains(HETI_CAST(float *, to->sum) + offset, to->columns, !to->empty, NULL);
    heti_weight_sum part = *to;
    (void)bf16;
    (void)walk;
    if (to->exact) HETI_K(amx_block)(m, k, a, b, term, HETI_TILE_N, 0);
    else HETI_K(amx_tile)(m, n, k, a, b, &sums);
    for (int64_t i = 0; i < m && to->exact; i += HETI_TILE_M, part.kept += HETI_TILE_M * HETI_TILE_N) {
        HETI_K(tile) t;
        uint32_t top;
        HETI_COPY(t.row[0], term + i * HETI_TILE_N, heti_min(HETI_TILE_M, HETI_AMX_ROWS - i) * HETI_TILE_V);
        top = HETI_BITS_TOP(HETI_K(tile_sum)(&t, heti_min(HETI_TILE_M, m - i), n, &part, offset + i * to->columns));
        if (top > to->maximum) to->maximum = top;
    }
}

/* Tiles of A: [k / 32][32 lines][16 words], the last of fewer words. */
HETI_FN void HETI_K(amx_pack_rows)(int64_t tile, int64_t lines, int64_t k, const heti_operand *from, int bf16,
                                   float *to, int64_t pitch) {
    (void)bf16;
    for (int64_t line = 0; line < heti_ceil_div(lines, tile) * tile; line += 16)
        for (int64_t j = 0; j < k; j += 32) {
            const int64_t count = heti_max(0, heti_min(16, lines - line)), deep = heti_min(32, k - j),
                          words = heti_packed_k(deep, 1);
            float *place = to + line / tile * tile * pitch + j / 2 * tile + line % tile * words, wide[16 * 32];
            heti_operand part = *from;
            __m512 r[16];
            heti_move_operand(&part, heti_min(line, lines), j);
            if (part.data == NULL) HETI_K(unfold)(count, deep, 16, 32, &part, wide);
            HETI_K(pair_rows)(&part, count, deep, r);
            HETI_UNROLL
            for (int i = 0; i < 16; i++) _mm512_mask_storeu_ps(place + i * words, HETI_K(lanes)(words), r[i]);
        }
}

static const heti_product_kernels heti_amx_product_kernels = {
    HETI_AMX_ROWS, HETI_TILE_N, 2 * HETI_PRODUCT_K, 4 * HETI_WEIGHT_ROWS, 1, HETI_K(amx_prepare),
    HETI_K(amx_pack_rows), HETI_K(pack), HETI_K(amx_panel), HETI_K(amx_weight), HETI_K(bias)
};
#endif

/* The rows section follows; then every macro of the pass is forgotten. */
/* =================================================================================================
   >>rows  Kernels over rows or columns: norms, rotary, activations, attention, embedding, dropout,
           cross-entropy, gradients, AdamW.

   Each is single-threaded and works on a range [begin, end) of independent outputs (rows, columns
   or elements), so that the caller may cut the work anywhere. `args` is the op's public struct, or
   the private one named in the table; `partial` is what this range adds up by itself (a maximum, a
   loss), joined by the caller without order. Sums along a row use 16 lanes by element index (one
   vector accumulator) and the fixed tree; sums over tokens are f32 chains, one output column a
   lane.
   ============================================================================================== */

/* The last vector of a row may have fewer than 16 elements left: missing lanes are 0 and are not
   stored. */
HETI_IN HETI_V HETI_K(get)(const float *from, int64_t left) {
    return left >= 16 ? HETI_LOAD(from) : HETI_LOAD_PART(from, left);
}
HETI_IN void HETI_K(put)(float *to, HETI_V v, int64_t left) {
    if (left >= 16) HETI_STORE(to, v);
    else HETI_STORE_PART(to, v, left);
}
HETI_IN HETI_V HETI_K(keep)(int64_t left, HETI_V v, HETI_V other) {
    return left >= 16 ? v : HETI_FIRST(left, v, other);
}

/* One granule's term of `count` elements, rounded to the parameter's grid and added; *top: largest
   bits of |term|. */
HETI_FN void HETI_K(add_term)(const het_gradient *gradient, int64_t offset, const float *term, int64_t count,
                              uint32_t *top) {
    double *sum = HETI_CAST(double *, gradient->sum) + offset;
    const double grid = *gradient->grid;
    HETI_U bits = HETI_BITS_ZERO();
    for (int64_t i = 0; i < count; i += 16) {
        HETI_V v = HETI_K(get)(term + i, count - i);
        HETI_K(grid_add)(sum + i, v, grid, count - i < 16 ? count - i : 16, 0);
        bits = HETI_BITS_MAX(bits, v);
    }
    uint32_t largest = HETI_BITS_TOP(bits);
    if (largest > *top) *top = largest;
}

/* ---- norms: xhat = (x - mean) rstd with mean = 0 for RMSNorm; y = xhat gain + bias ---- */

HETI_FN void HETI_K(norm_forward)(const void *args, int64_t begin, int64_t end, void *partial) {
    const het_norm_args *a = HETI_CAST(const het_norm_args *, args);
    const int64_t width = a->width;
    const float count = HETI_CAST(float, width);
    (void)partial;
    for (int64_t r = begin; r < end; r++) {
        const float *x = a->x + r * width;
        float *y = a->y + r * width;
        float mean = 0.0f;
        if (a->kind != HET_RMSNORM) {
            HETI_V sum = HETI_ZERO();
            for (int64_t j = 0; j < width; j += 16) sum = HETI_ADD(sum, HETI_K(get)(x + j, width - j));
            mean = HETI_SUM(sum) / count;
            a->mean[r] = mean;
        }
        const HETI_V means = HETI_SET(mean);
        HETI_V square = HETI_ZERO();
        for (int64_t j = 0; j < width; j += 16) {
            HETI_V d = HETI_K(keep)(width - j, HETI_SUB(HETI_K(get)(x + j, width - j), means), HETI_ZERO());
            square = HETI_FMA(d, d, square);
        }
        const float rstd = 1.0f / sqrtf(HETI_SUM(square) / count + a->epsilon);
        const HETI_V rstds = HETI_SET(rstd);
        a->rstd[r] = rstd;
        for (int64_t j = 0; j < width; j += 16) {
            const int64_t left = width - j;
            HETI_V xhat = HETI_MUL(HETI_SUB(HETI_K(get)(x + j, left), means), rstds);
            HETI_V gain = HETI_K(get)(a->gain + j, left);
            HETI_K(put)(y + j, a->bias != NULL ? HETI_FMA(xhat, gain, HETI_K(get)(a->bias + j, left)) : HETI_MUL(xhat,
                gain), left);
        }
    }
}

/* With g = dy gain: dx = rstd (g - mean(g) - xhat mean(g xhat)); RMSNorm lacks mean(g). */
HETI_FN void HETI_K(norm_backward_input)(const void *args, int64_t begin, int64_t end, void *partial) {
    const het_norm_args *a = HETI_CAST(const het_norm_args *, args);
    const int layer = a->kind != HET_RMSNORM;
    const int64_t width = a->width;
    const float count = HETI_CAST(float, width);
    (void)partial;
    for (int64_t r = begin; r < end; r++) {
        const float *x = a->x + r * width, *dy = a->dy + r * width;
        const HETI_V means = HETI_SET(layer ? a->mean[r] : 0.0f), rstds = HETI_SET(a->rstd[r]);
        HETI_V sum = HETI_ZERO(), product = HETI_ZERO();
        for (int64_t j = 0; j < width; j += 16) {
            const int64_t left = width - j;
            HETI_V g = HETI_MUL(HETI_K(get)(dy + j, left), HETI_K(get)(a->gain + j, left)); /* 0 in missing lanes */
            HETI_V xhat = HETI_K(keep)(left, HETI_MUL(HETI_SUB(HETI_K(get)(x + j, left), means), rstds), HETI_ZERO());
            sum = HETI_ADD(sum, g);
            product = HETI_FMA(g, xhat, product);
        }
        const HETI_V mean_g = HETI_SET(layer ? HETI_SUM(sum) / count : 0.0f),
                     mean_gx = HETI_SET(HETI_SUM(product) / count);
        for (int64_t j = 0; j < width; j += 16) {
            const int64_t left = width - j;
            HETI_V g = HETI_MUL(HETI_K(get)(dy + j, left), HETI_K(get)(a->gain + j, left));
            HETI_V xhat = HETI_MUL(HETI_SUB(HETI_K(get)(x + j, left), means), rstds);
            HETI_V t = HETI_FNMA(xhat, mean_gx, HETI_SUB(g, mean_g));
            HETI_V dx = a->residual != NULL ? HETI_FMA(rstds, t, HETI_K(get)(a->residual + r * width + j, left)) :
                   HETI_MUL(rstds, t);
            HETI_K(put)(a->dx + r * width + j, dx, left);
        }
    }
}

/* dgain += sum of dy xhat, dbias += sum of dy over rows, columns [begin, end). Exact: terms are
   made in the workspace, [2][width]; fast: the chains run on in the sums themselves. partial:
   uint32_t[2], maxima of dgain and dbias. */
HETI_FN void HETI_K(norm_backward_weight)(const void *args, int64_t begin, int64_t end, void *partial) {
    const het_norm_args *a = HETI_CAST(const het_norm_args *, args);
    const het_gradient *gradient[2] = { a->dgain, a->dbias };
    uint32_t *top = HETI_CAST(uint32_t *, partial);
    float *term[2] = { NULL, NULL };
    for (int p = 0; p < 2; p++)
        if (heti_ref_trains(gradient[p]))
            term[p] = gradient[p]->exact ? HETI_CAST(float *, a->workspace) + p * a->width :
            HETI_CAST(float *, gradient[p]->sum);
    for (int64_t g = a->view->granule_begin; g < a->view->granule_end; g++) {
        const int64_t first = heti_granule_row(a->view, g), last = heti_granule_row(a->view, g + 1);
        for (int p = 0; p < 2; p++)
            if (term[p] != NULL && gradient[p]->exact)
                HETI_CLEAR(term[p] + begin, end - begin);
        for (int64_t r = first * a->rows_per_token; r < last * a->rows_per_token; r++) {
            const float *x = a->x + r * a->width, *dy = a->dy + r * a->width;
            const HETI_V means = HETI_SET(a->kind != HET_RMSNORM ? a->mean[r] : 0.0f), rstds = HETI_SET(a->rstd[r]);
            for (int64_t j = begin; j < end; j += 16) {
                HETI_V d = HETI_K(get)(dy + j, end - j);
                if (term[0] != NULL) {
                    HETI_V xhat = HETI_MUL(HETI_SUB(HETI_K(get)(x + j, end - j), means), rstds);
                    HETI_K(put)(term[0] + j, HETI_FMA(d, xhat, HETI_K(get)(term[0] + j, end - j)), end - j);
                }
                if (term[1] != NULL) HETI_K(put)(term[1] + j, HETI_ADD(HETI_K(get)(term[1] + j, end - j), d), end - j);
            }
        }
        for (int p = 0; p < 2; p++)
            if (term[p] != NULL && gradient[p]->exact)
                HETI_K(add_term)(gradient[p], begin, term[p] + begin, end - begin, &top[p]);
    }
}

/* ---- rotary: (y0, y1) = (x0 c - x1 s, x1 c + x0 s); the transpose has -s ---- */

HETI_IN void HETI_K(rotate)(const het_rotary_args *a, int64_t begin, int64_t end, float sign) {
    const int64_t half = a->rotary / 2, stride = a->heads * a->head_size;
    const HETI_V signs = HETI_SET(sign);
    for (int64_t r = begin; r < end; r++) {
        const int64_t position = a->view->position[a->view->row_begin + r];
        const float *cosine = a->cosine + position * half, *sine = a->sine + position * half;
        for (int64_t h = 0; h < a->heads; h++) {
            const float *x = a->x + r * stride + h * a->head_size;
            float *y = a->y + r * stride + h * a->head_size;
            for (int64_t i = 0; i < half; i += 16) {
                const int64_t left = half - i;
                HETI_V c = HETI_K(get)(cosine + i, left), s = HETI_MUL(signs, HETI_K(get)(sine + i, left));
                HETI_V x0 = HETI_K(get)(x + i, left), x1 = HETI_K(get)(x + half + i, left);
                HETI_K(put)(y + i, HETI_FNMA(x1, s, HETI_MUL(x0, c)), left);
                HETI_K(put)(y + half + i, HETI_FMA(x0, s, HETI_MUL(x1, c)), left);
            }
            if (y != x) HETI_COPY(y + 2 * half, x + 2 * half, a->head_size - 2 * half);
        }
    }
}
HETI_FN void HETI_K(rotary_forward)(const void *args, int64_t begin, int64_t end, void *partial) {
    (void)partial;
    HETI_K(rotate)(HETI_CAST(const het_rotary_args *, args), begin, end, 1.0f);
}
HETI_FN void HETI_K(rotary_backward)(const void *args, int64_t begin, int64_t end, void *partial) {
    (void)partial;
    HETI_K(rotate)(HETI_CAST(const het_rotary_args *, args), begin, end, -1.0f);
}

/* ---- activations ---- */

/* tanh GELU (arXiv 1606.08415) as x sigmoid(2u), 2u = x (c0 + c1 x^2), c0 = 2 sqrt(2/pi), c1 =
   0.044715 c0. Beyond |x| = 20 the sigmoid is 0 or 1, so u is taken at the clamped x, which keeps
   its square finite. Returns the sigmoid; *slope = d(2u)/dx. */
HETI_IN HETI_V HETI_K(gelu_gate)(HETI_V x, HETI_V *slope) {
    const HETI_V c0 = HETI_SET(1.5957691216057308f), c1 = HETI_SET(0.071354816272600251f);
    HETI_V z = HETI_MIN(HETI_SET(20.0f), HETI_MAX(HETI_SET(-20.0f), x)); /* a NaN stays: it is the second operand */
    HETI_V square = HETI_MUL(z, z);
    *slope = HETI_FMA(HETI_MUL(HETI_SET(3.0f), c1), square, c0);
    return HETI_K(sigmoid)(HETI_MUL(z, HETI_FMA(c1, square, c0)));
}
/* erf GELU: x Phi(x), Phi = (1 + erf(x / sqrt 2)) / 2. */
HETI_IN HETI_V HETI_K(normal_cdf)(HETI_V x) {
    const HETI_V half = HETI_SET(0.5f);
    return HETI_FMA(half, HETI_K(erf)(HETI_MUL(x, HETI_SET(0.70710678118654752f))), half);
}

HETI_FN void HETI_K(activation_forward)(const void *args, int64_t begin, int64_t end, void *partial) {
    const het_activation_args *a = HETI_CAST(const het_activation_args *, args);
    (void)partial;
    for (int64_t i = begin; i < end; i += 16) {
        const int64_t left = end - i;
        HETI_V x = HETI_K(get)(a->a + i, left), slope, y;
        if (a->kind == HET_SWIGLU) y = HETI_MUL(HETI_MUL(x, HETI_K(sigmoid)(x)), HETI_K(get)(a->b + i, left));
        else if (a->kind == HET_GELU_ERF) y = HETI_MUL(x, HETI_K(normal_cdf)(x));
        else y = HETI_MUL(x, HETI_K(gelu_gate)(x, &slope));
        HETI_K(put)(a->y + i, y, left);
    }
}

/* SwiGLU: da = dy b s (1 + a (1 - s)), db = dy a s; tanh GELU: dy s (1 + x (1 - s) d(2u)/dx); erf
   GELU: dy (Phi + x phi). */
HETI_FN void HETI_K(activation_backward)(const void *args, int64_t begin, int64_t end, void *partial) {
    const het_activation_args *a = HETI_CAST(const het_activation_args *, args);
    const HETI_V one = HETI_SET(1.0f);
    (void)partial;
    for (int64_t i = begin; i < end; i += 16) {
        const int64_t left = end - i;
        HETI_V x = HETI_K(get)(a->a + i, left), dy = HETI_K(get)(a->dy + i, left), slope, dx;
        if (a->kind == HET_SWIGLU) {
            HETI_V s = HETI_K(sigmoid)(x), b = HETI_K(get)(a->b + i, left);
            dx = HETI_MUL(HETI_MUL(dy, b), HETI_MUL(s, HETI_FMA(x, HETI_SUB(one, s), one)));
            HETI_K(put)(a->db + i, HETI_MUL(dy, HETI_MUL(x, s)), left);
        } else if (a->kind == HET_GELU_ERF) {
            HETI_V bell = HETI_K(exp)(HETI_MUL(HETI_SET(-0.5f), HETI_MUL(x, x)));
            dx = HETI_MUL(dy, HETI_FMA(HETI_MUL(x, HETI_SET(0.39894228040143268f)), bell, HETI_K(normal_cdf)(x)));
        } else {
            HETI_V s = HETI_K(gelu_gate)(x, &slope);
            dx = HETI_MUL(dy, HETI_MUL(s, HETI_FMA(HETI_MUL(x, HETI_SUB(one, s)), slope, one)));
        }
        HETI_K(put)(a->da + i, dx, left);
    }
}

/* ---- attention ----
   A block is up to HETI_ATTENTION_ROWS rows of one sequence and one key/value head. Rows are the
   pairs (query, head of the group), queries descending, heads ascending: dK and dV are then chains
   over the rows of a block and over blocks in their order. Scores exist for one block of rows and
   one block of keys at a time. A row of the block sees keys [first, last) of its sequence; what it
   does not see has P = 0 and dS = 0, and rows that see nothing of a key block are left out of its
   products. Zeros are made +0 at the end (x + 0): a masked zero can turn a -0 (an underflow) into
   +0, and which masked keys a row meets depends on the blocking. */

typedef struct HETI_K(attention) {
    const het_attention_args *a;
    int64_t group;              /* heads that share the key/value head */
    int64_t origin;             /* row of the micro-batch where the sequence starts */
    int64_t begin, end;         /* queries of the slice, counted from the start of the sequence;
                                   keys [0, end) are written */
    int64_t head;               /* first query head of the group */
    int64_t query_stride, key_stride;
    const float *k, *v;         /* key 0 of the sequence, this key/value head */
    int64_t rows;               /* rows of the present block */
    float *q, *o, *scores, *pack; /* o: o or dq */
    /* query in the sequence; (row of the slice) * heads + head */
    int64_t query[HETI_ATTENTION_ROWS], row[HETI_ATTENTION_ROWS];
    int64_t keys[HETI_ATTENTION_ROWS / HETI_TILE_ROWS];      /* that a strip of rows meets of the present keys, */
    /* and rows that a strip of keys meets; those after them see nothing of each other */
    int64_t queries[HETI_ATTENTION_KEYS / HETI_TILE_ROWS];
} HETI_K(attention);

HETI_IN void HETI_K(attention_begin)(HETI_K(attention) *t, const het_attention_args *a, int64_t sequence,
                                     int64_t kv_head, void *workspace) {
    const het_view *view = a->view;
    const int64_t size = HETI_ATTENTION_ROWS * a->head_size;
    t->a = a;
    t->group = a->heads / a->kv_heads;
    t->origin = view->sequence_start[sequence];
    t->begin = heti_max(t->origin, view->row_begin) - t->origin;
    t->end = heti_min(view->sequence_start[sequence + 1], view->row_end) - t->origin;
    t->head = kv_head * t->group;
    t->query_stride = a->heads * a->head_size;
    t->key_stride = a->kv_heads * a->head_size;
    t->k = a->k + t->origin * t->key_stride + kv_head * a->head_size;
    t->v = a->v + t->origin * t->key_stride + kv_head * a->head_size;
    t->q = HETI_CAST(float *, workspace);
    t->o = t->q + size;
    t->scores = t->o + size;
}

HETI_IN void HETI_K(attention_sees)(const HETI_K(attention) *t, int64_t query, int64_t *first, int64_t *last) {
    heti_sees(t->a, t->end, query, first, last);
}

/* Rows [from, from + rows) of the slice's rows of this group: q' = round(q scale) and, for the
   backward, `d_o` gathered; o cleared. */
HETI_IN void HETI_K(attention_gather)(HETI_K(attention) *t, int64_t from, int64_t rows, float *d_o) {
    const het_attention_args *a = t->a;
    const int64_t size = a->head_size;
    const HETI_V scale = HETI_SET(a->scale);
    t->rows = rows;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t query = t->end - 1 - (from + i) / t->group;
        t->query[i] = query;
        t->row[i] = (t->origin + query - a->view->row_begin) * a->heads + t->head + (from + i) % t->group;
        const float *q = a->q + t->row[i] * size;
        for (int64_t j = 0; j < size; j += 16)
            HETI_K(put)(t->q + i * size + j, HETI_MUL(HETI_K(get)(q + j, size - j), scale), size - j);
        if (d_o != NULL) HETI_COPY(d_o + i * size, a->d_o + t->row[i] * size, size);
    }
    HETI_CLEAR(t->o, rows * size);
}

/* Rows [*top, *top + *count) of the block that see something of keys [from, to): queries descend,
   so they are one run. t->keys: how many of the keys each strip of them meets, in sixteens, so that
   what is left out is the same for every tile and for pairs. */
HETI_IN void HETI_K(attention_rows)(HETI_K(attention) *t, int64_t from, int64_t to, int64_t *top, int64_t *count) {
    int64_t first, last, begin = 0, end = t->rows;
    while (begin < end && (HETI_K(attention_sees)(t, t->query[begin], &first, &last), first >= to)) begin++;
    while (end > begin && (HETI_K(attention_sees)(t, t->query[end - 1], &first, &last), last <= from)) end--;
    *top = begin;
    *count = end - begin;
    for (int64_t i = begin; i < end; i += HETI_TILE_ROWS) {
        HETI_K(attention_sees)(t, t->query[i], &first, &last);
        t->keys[(i - begin) / HETI_TILE_ROWS] = heti_min((last - from + 15) / 16 * 16, to - from);
    }
}

/* Lanes of the 16 keys at `key` that lie in [first, last); the others become `other`. */
HETI_IN HETI_V HETI_K(attention_mask)(HETI_V v, int64_t key, int64_t first, int64_t last, HETI_V other) {
    if (last - key < 16) v = HETI_FIRST(last - key, v, other);
    return first > key ? HETI_FIRST(first - key, other, v) : v;
}

/* scores[i][j] = x[i] . keys[j] for rows [top, top + count) of x and keys [from, to) of k or v. */
HETI_IN void HETI_K(attention_scores)(const HETI_K(attention) *t, const float *x, const float *keys, int64_t top,
                                      int64_t count, int64_t from, int64_t to, float *scores, int64_t stride) {
    const int64_t size = t->a->head_size;
    HETI_K(product)(count, to - from, size, heti_make_operand(x + top * size, size, 1),
                    heti_make_operand(keys + from * t->key_stride, t->key_stride, 1), scores + top * stride, stride, 0,
                    t->a->compute == HET_BF16,
                    t->keys, NULL, t->pack);
}

/* o[i] continues over keys [from, to): o[i] += weights[i][j] keys[j]. */
HETI_IN void HETI_K(attention_mix)(const HETI_K(attention) *t, const float *weights, int64_t stride, const float *keys,
                                   int64_t top, int64_t count, int64_t from, int64_t to) {
    const int64_t size = t->a->head_size;
    HETI_K(product)(count, size, to - from, heti_make_operand(weights + top * stride, stride, 1),
                    heti_make_operand(keys + from * t->key_stride, 1, t->key_stride), t->o + top * size, size, 1,
                    t->a->compute == HET_BF16, NULL,
                    t->keys, t->pack);
}

/* d[j] of keys [from, to) continues over rows [top, top + count): d[j] += weights[i][j] x[i]. */
HETI_IN void HETI_K(attention_gradient)(const HETI_K(attention) *t, const float *weights, int64_t stride,
                                        const float *x, int64_t top, int64_t count, int64_t from, int64_t to,
                                                     float *d) {
    const int64_t size = t->a->head_size;
    HETI_K(product)(to - from, size, count, heti_make_operand(weights + top * stride, 1, stride),
                    heti_make_operand(x + top * size, 1, size), d + from * t->key_stride, t->key_stride, 1,
                        t->a->compute == HET_BF16, NULL, t->queries, t->pack);
}

/* One row of scores of keys [from, to) becomes exp(s - m), 0 where not seen; lane sums go on in
   `sum`. from is a multiple of 16. */
HETI_IN HETI_V HETI_K(attention_exp)(float *s, int64_t from, int64_t to, int64_t first, int64_t last, HETI_V m,
                                     HETI_V sum) {
    for (int64_t key = from; key < to; key += 16) {
        HETI_V p = HETI_ZERO();
        if (key < last && key + 16 > first) {
            p = HETI_K(attention_mask)(HETI_K(exp)(HETI_SUB(HETI_LOAD(s + key - from), m)), key, first, last, p);
            sum = HETI_ADD(sum, p);
        }
        HETI_STORE(s + key - from, p);
    }
    return sum;
}

/* One block of rows. Where all its keys fit the scores are made once; else once for the maximum and
   once for the exponentials. */
HETI_IN void HETI_K(attention_forward_block)(HETI_K(attention) *t, float *m, float *sum) {
    int64_t lowest, highest, first, last, top, count;
    HETI_K(attention_sees)(t, t->query[t->rows - 1], &lowest, &last);
    HETI_K(attention_sees)(t, t->query[0], &first, &highest);
    lowest -= lowest % 16;
    const int64_t room = HETI_ATTENTION_SCORES / t->rows / 16 * 16 - 16, whole = highest - lowest <= room;
    const int64_t keys = whole ? highest - lowest : room, stride = heti_score_stride(keys);
    for (int64_t i = 0; i < t->rows; i++) m[i] = -INFINITY;
    HETI_CLEAR(sum, t->rows * 16);
    for (int pass = 0; pass < 2; pass++)
        for (int64_t from = lowest; from < highest; from += keys) {
            const int64_t to = heti_min(from + keys, highest);
            HETI_K(attention_rows)(t, from, to, &top, &count);
            if (pass == 0 || !whole) HETI_K(attention_scores)(t, t->q, t->k, top, count, from, to, t->scores, stride);
            for (int64_t i = top; i < top + count; i++) {
                float *s = t->scores + i * stride;
                HETI_K(attention_sees)(t, t->query[i], &first, &last);
                if (pass == 1) {
                    HETI_STORE(sum + 16 * i, HETI_K(attention_exp)(s, from, to, first, last, HETI_SET(m[i]),
                                                                   HETI_LOAD(sum + 16 * i)));
                    continue;
                }
                HETI_V largest = HETI_SET(m[i]);
                for (int64_t key = heti_max(from, first - first % 16); key < heti_min(to, last); key += 16)
                    largest = HETI_MAX(largest, HETI_K(attention_mask)(HETI_LOAD(s + key - from), key, first,
                                                                       heti_min(to, last), largest));
                m[i] = HETI_TOP(largest);
            }
            if (pass == 1) HETI_K(attention_mix)(t, t->scores, stride, t->v, top, count, from, to);
        }
}

/* Rows [begin, end) of the rows (query, head) of one sequence and key/value head that lie in the
   slice, in block order. */
HETI_FN void HETI_K(attention_forward)(const het_attention_args *a, int64_t sequence, int64_t kv_head, int64_t begin,
                                       int64_t end, void *workspace) {
    HETI_K(attention) block, *t = &block;
    float m[HETI_ATTENTION_ROWS];
    const int64_t size = a->head_size;
    HETI_K(attention_begin)(t, a, sequence, kv_head, workspace);
    float *sum = t->scores + HETI_ATTENTION_SCORES;
    t->pack = sum + 16 * HETI_ATTENTION_ROWS;
    /* of a block, at most */
    const int64_t keys = a->window > 0 ? heti_min(t->end, a->window + HETI_ATTENTION_ROWS) : t->end;
    const int64_t room = HETI_ATTENTION_SCORES / (keys + 32) / HETI_TILE_ROWS * HETI_TILE_ROWS;
    const int64_t rows = heti_max(HETI_ATTENTION_ROWS / 2, heti_min(HETI_ATTENTION_ROWS, room));
    for (int64_t from = begin; from < end; from += rows) {
        HETI_K(attention_gather)(t, from, heti_min(rows, end - from), NULL);
        HETI_K(attention_forward_block)(t, m, sum);
        for (int64_t i = 0; i < t->rows; i++) {
            const float l = HETI_SUM(HETI_LOAD(sum + 16 * i));
            const HETI_V ls = HETI_SET(l);
            for (int64_t j = 0; j < size; j += 16) {
                HETI_V o = HETI_ADD(HETI_K(get)(t->o + i * size + j, size - j), HETI_ZERO());
                HETI_K(put)(a->o + t->row[i] * size + j, HETI_DIV(o, ls), size - j);
            }
            a->maximum[t->row[i]] = m[i];
            a->sum[t->row[i]] = l;
        }
    }
}

/* scores hold S and ds holds dP = do v^T of keys [from, to); they become P = exp(S - m) / l and dS
   = P (dP - d). */
HETI_IN void HETI_K(attention_derive)(const HETI_K(attention) *t, const float *delta, int64_t i, int64_t from,
                                      int64_t to, float *s, float *ds) {
    const HETI_V m = HETI_SET(t->a->maximum[t->row[i]]), l = HETI_SET(t->a->sum[t->row[i]]), d = HETI_SET(delta[i]),
                 zero = HETI_ZERO();
    int64_t first, last;
    HETI_K(attention_sees)(t, t->query[i], &first, &last);
    for (int64_t key = from; key < to; key += 16, s += 16, ds += 16) {
        HETI_V p = zero, g = zero;
        if (key < last && key + 16 > first) {
            p = HETI_DIV(HETI_K(exp)(HETI_SUB(HETI_LOAD(s), m)), l);
            g = HETI_MUL(p, HETI_SUB(HETI_LOAD(ds), d));
            if (key < first || key + 16 > last) {
                p = HETI_K(attention_mask)(p, key, first, last, zero);
                g = HETI_K(attention_mask)(g, key, first, last, zero);
            }
        }
        HETI_STORE(s, p);
        HETI_STORE(ds, g);
    }
}

/* One block of rows against keys [from, to). dk and dv continue over the rows; o holds the chains
   of dq. */
HETI_IN void HETI_K(attention_backward_block)(HETI_K(attention) *t, const float *d_o, const float *delta, float *dk,
                                              float *dv, int64_t from, int64_t to) {
    const int64_t stride = heti_score_stride(HETI_ATTENTION_KEYS);
    float *s = t->scores, *ds = s + HETI_ATTENTION_ROWS * stride;
    int64_t top, count, seeing, first, last;
    HETI_K(attention_rows)(t, from, to, &top, &count);
    seeing = count;
    for (int64_t key = from; key < to; key += HETI_TILE_ROWS) {
        while (seeing > 0 && (HETI_K(attention_sees)(t, t->query[top + seeing - 1], &first, &last), last <= key))
            seeing--;
        t->queries[(key - from) / HETI_TILE_ROWS] = heti_min((seeing + 15) / 16 * 16, count);
    }
    HETI_K(attention_scores)(t, t->q, t->k, top, count, from, to, s, stride);
    HETI_K(attention_scores)(t, d_o, t->v, top, count, from, to, ds, stride);
    for (int64_t i = top; i < top + count; i++)
        HETI_K(attention_derive)(t, delta, i, from, to, s + i * stride, ds + i * stride);
    HETI_K(attention_gradient)(t, s, stride, d_o, top, count, from, to, dv);
    HETI_K(attention_gradient)(t, ds, stride, t->q, top, count, from, to, dk);
    HETI_K(attention_mix)(t, ds, stride, t->k, top, count, from, to);
}

HETI_FN void HETI_K(attention_backward)(const het_attention_args *a, int64_t sequence, int64_t kv_head,
                                        void *workspace) {
    HETI_K(attention) block, *t = &block;
    float delta[HETI_ATTENTION_ROWS];
    const int64_t size = a->head_size;
    HETI_K(attention_begin)(t, a, sequence, kv_head, workspace);
    float *d_o = t->scores + HETI_ATTENTION_SCORES, *dk = a->dk + (t->k - a->k), *dv = a->dv + (t->v - a->v);
    t->pack = d_o + HETI_ATTENTION_ROWS * size;
    const int64_t rows = (t->end - t->begin) * t->group;
    int64_t lowest, highest, first, last, least = t->end;
    for (int64_t from = 0; from < rows; from += HETI_ATTENTION_ROWS) {
        HETI_K(attention_gather)(t, from, heti_min(HETI_ATTENTION_ROWS, rows - from), d_o);
        for (int64_t i = 0; i < t->rows; i++) { /* d = do . o, 16 lanes */
            HETI_V sum = HETI_ZERO();
            for (int64_t j = 0; j < size; j += 16)
                sum = HETI_FMA(HETI_K(get)(d_o + i * size + j, size - j), HETI_K(get)(a->o + t->row[i] * size + j,
                    size - j), sum);
            delta[i] = HETI_SUM(sum);
        }
        HETI_K(attention_sees)(t, t->query[t->rows - 1], &lowest, &last);
        HETI_K(attention_sees)(t, t->query[0], &first, &highest);
        least = heti_min(least, lowest);
        for (int64_t key = lowest; key < highest; key += HETI_ATTENTION_KEYS)
            HETI_K(attention_backward_block)(t, d_o, delta, dk, dv, key, heti_min(key + HETI_ATTENTION_KEYS, highest));
        for (int64_t i = 0; i < t->rows; i++)
            for (int64_t j = 0; j < size; j += 16) {
                HETI_V dq = HETI_ADD(HETI_K(get)(t->o + i * size + j, size - j), HETI_ZERO());
                HETI_K(put)(a->dq + t->row[i] * size + j, HETI_MUL(HETI_SET(a->scale), dq), size - j);
            }
    }
    for (int64_t key = least; key < t->end; key++)
        for (int64_t j = 0; j < size; j += 16) {
            float *x = dk + key * t->key_stride + j, *y = dv + key * t->key_stride + j;
            HETI_K(put)(x, HETI_ADD(HETI_K(get)(x, size - j), HETI_ZERO()), size - j);
            HETI_K(put)(y, HETI_ADD(HETI_K(get)(y, size - j), HETI_ZERO()), size - j);
        }
}

/* ---- embedding ---- */

HETI_FN void HETI_K(embedding_forward)(const void *args, int64_t begin, int64_t end, void *partial) {
    const het_embedding_args *a = HETI_CAST(const het_embedding_args *, args);
    (void)partial;
    for (int64_t r = begin; r < end; r++) {
        const int64_t token = a->view->token[a->view->row_begin + r] * a->width;
        const float *position = a->positions != NULL ? a->positions + a->view->position[a->view->row_begin + r] *
                     a->width : NULL;
        for (int64_t j = 0; j < a->width; j += 16) {
            const int64_t left = a->width - j;
            float wide[16];
            HETI_V y;
            for (int64_t i = 0; a->table == NULL && i < 16; i++)
                wide[i] = i >= left ? 0.0f : a->table_bf16 != NULL ? heti_bf16_value(a->table_bf16[token + j + i])
                                                                   : heti_int8_value(a->table_int8, token + j + i);
            y = HETI_K(get)(a->table != NULL ? a->table + token + j : wide, left);
            HETI_K(put)(a->y + r * a->width + j, position != NULL ? HETI_ADD(y, HETI_K(get)(position + j, left)) : y,
                        left);
        }
    }
}

/* Rows of dy are added to the entries their keys name, columns [begin, end): heti_scatter. partial:
   uint32_t, the largest |term|. */
HETI_FN void HETI_K(scatter)(const void *args, int64_t begin, int64_t end, void *partial) {
    const heti_scatter *a = HETI_CAST(const heti_scatter *, args);
    for (int64_t g = a->view->granule_begin; g < a->view->granule_end; g++) {
        const int64_t last = heti_granule_row(a->view, g + 1);
        for (int64_t i = heti_granule_row(a->view, g), next; i < last; i = next) {
            const int64_t entry = HETI_CAST(int64_t, a->key[i] >> 32) * a->width;
            next = i + 1;
            while (next < last && a->key[next] >> 32 == a->key[i] >> 32) next++;
            float *chain = a->gradient->exact ? a->term : HETI_CAST(float *, a->gradient->sum) + entry;
            for (int64_t j = begin; j < end; j += 16) {
                HETI_V sum = a->gradient->exact ? HETI_ZERO() : HETI_K(get)(chain + j, end - j);
                for (int64_t p = i; p < next; p++)
                    sum = HETI_ADD(sum, HETI_K(get)(a->dy + HETI_CAST(int64_t, a->key[p] & 0xffffffffu) * a->width + j,
                                                    end - j));
                HETI_K(put)(chain + j, sum, end - j);
            }
            if (a->gradient->exact)
                HETI_K(add_term)(a->gradient, entry + begin, a->term + begin, end - begin,
                                 HETI_CAST(uint32_t *, partial));
        }
    }
}

/* ---- dropout: columns are dropped by number (>>reference) ---- */

/* heti_philox for 16 counters low, low + 1, ..., side by side: uniform numbers of 64 columns. low +
   15 stays in the low 32 bits' range. */
HETI_FN void HETI_K(uniforms)(uint64_t key, uint64_t low, uint64_t high, float uniform[64]) {
    uint32_t c0[16], c1[16], c2[16], c3[16], key0 = HETI_CAST(uint32_t, key & 0xffffffffu),
             key1 = HETI_CAST(uint32_t, key >> 32);
    for (int i = 0; i < 16; i++) {
        c0[i] = HETI_CAST(uint32_t, (low & 0xffffffffu) + HETI_CAST(uint32_t, i));
        c1[i] = HETI_CAST(uint32_t, low >> 32);
        c2[i] = HETI_CAST(uint32_t, high & 0xffffffffu);
        c3[i] = HETI_CAST(uint32_t, high >> 32);
    }
    for (int round = 0; round < 10; round++, key0 += UINT32_C(0x9E3779B9), key1 += UINT32_C(0xBB67AE85)) {
        for (int i = 0; i < 16; i++) {
            const uint64_t a = UINT64_C(0xD2511F53) * c0[i], b = UINT64_C(0xCD9E8D57) * c2[i];
            c0[i] = HETI_CAST(uint32_t, b >> 32) ^ c1[i] ^ key0;
            c1[i] = HETI_CAST(uint32_t, b & 0xffffffffu);
            c2[i] = HETI_CAST(uint32_t, a >> 32) ^ c3[i] ^ key1;
            c3[i] = HETI_CAST(uint32_t, a & 0xffffffffu);
        }
    }
    for (int i = 0; i < 16; i++) {
        uniform[4 * i] = heti_uniform(c0[i]);
        uniform[4 * i + 1] = heti_uniform(c1[i]);
        uniform[4 * i + 2] = heti_uniform(c2[i]);
        uniform[4 * i + 3] = heti_uniform(c3[i]);
    }
}

HETI_FN void HETI_K(dropout)(const void *args, int64_t begin, int64_t end, void *partial) {
    const het_dropout_args *a = HETI_CAST(const het_dropout_args *, args);
    const HETI_V probability = HETI_SET(a->probability), scale = HETI_SET(1.0f / (1.0f - a->probability));
    (void)partial;
    for (int64_t r = begin; r < end; r++) {
        const int64_t row = a->view->row_begin + r;
        const uint64_t position = HETI_CAST(uint64_t, a->view->position[row]) << 32, key = heti_dropout_key(a, row);
        const float *x = a->x + r * a->width, *other = a->a != NULL ? a->a + r * a->width : NULL;
        float uniform[64];
        for (int64_t j = 0; j < a->width; j += 16) {
            const int64_t left = a->width - j;
            if (j % 64 == 0)
                HETI_K(uniforms)(key, position + HETI_CAST(uint64_t, j / 4), HETI_CAST(uint64_t, a->site), uniform);
            HETI_V kept = HETI_LT(HETI_LOAD(uniform + j % 64), probability, HETI_ZERO(), scale),
                   v = HETI_K(get)(x + j, left);
            HETI_K(put)(a->y + r * a->width + j, other != NULL ? HETI_FMA(v, kept, HETI_K(get)(other + j, left)) :
                        HETI_MUL(v, kept), left);
        }
    }
}

/* ---- loss: rows of softmax cross-entropy. partial: het_sum ---- */

/* m = max of the row, l = sum of exp(x - m); with `store` the row becomes its exponentials. */
HETI_IN float HETI_K(softmax_sum)(float *x, int64_t count, int store, float *maximum) {
    HETI_V top = HETI_SET(-INFINITY), sum = HETI_ZERO();
    for (int64_t j = 0; j < count; j += 16)
        top = HETI_MAX(top, HETI_K(keep)(count - j, HETI_K(get)(x + j, count - j), top));
    *maximum = HETI_TOP(top);
    const HETI_V m = HETI_SET(*maximum);
    for (int64_t j = 0; j < count; j += 16) {
        HETI_V e = HETI_K(keep)(count - j, HETI_K(exp)(HETI_SUB(HETI_K(get)(x + j, count - j), m)), HETI_ZERO());
        sum = HETI_ADD(sum, e);
        if (store) HETI_K(put)(x + j, e, count - j);
    }
    return HETI_SUM(sum);
}

HETI_FN void HETI_K(cross_entropy)(const void *args, int64_t begin, int64_t end, void *partial) {
    const het_cross_entropy_args *a = HETI_CAST(const het_cross_entropy_args *, args);
    for (int64_t r = begin; r < end; r++) {
        float *x = a->logits + r * a->vocab, m;
        const int64_t target = a->target[r];
        if (target < 0) {
            if (a->gradient) HETI_CLEAR(x, a->vocab);
            if (a->row_loss != NULL) a->row_loss[r] = 0.0f;
            continue;
        }
        const float logit = x[target], l = HETI_K(softmax_sum)(x, a->vocab, a->gradient, &m);
        const double loss = heti_log(HETI_CAST(double, l)) + HETI_CAST(double, m) - HETI_CAST(double, logit);
        heti_sum_add(HETI_CAST(het_sum *, partial), heti_round(HETI_CAST(double, a->weight[r]) * loss));
        if (a->row_loss != NULL) a->row_loss[r] = HETI_CAST(float, loss);
        if (!a->gradient) continue;
        const float scale = a->weight[r] * a->scalars->inverse_weight, inverse = 1.0f / l;
        const float hit = heti_round_f(x[target] * inverse) - 1.0f;
        for (int64_t j = 0; j < a->vocab; j += 16) {
            HETI_V p = HETI_MUL(HETI_K(get)(x + j, a->vocab - j), HETI_SET(inverse));
            HETI_K(put)(x + j, HETI_MUL(p, HETI_SET(scale)), a->vocab - j);
        }
        x[target] = hit * scale;
    }
}

/* ---- elementwise: gradients and the optimizer ---- */

HETI_FN void HETI_K(sum_arrays)(const void *args, int64_t begin, int64_t end, void *partial) {
    const het_dropout_args *a = HETI_CAST(const het_dropout_args *, args);
    (void)partial;
    for (int64_t i = begin; i < end; i += 16)
        HETI_K(put)(a->y + i, HETI_ADD(HETI_K(get)(a->a + i, end - i), HETI_K(get)(a->x + i, end - i)), end - i);
}

HETI_FN void HETI_K(scale_array)(const void *args, int64_t begin, int64_t end, void *partial) {
    const het_elements_args *a = HETI_CAST(const het_elements_args *, args);
    const HETI_V factor = HETI_SET(heti_scale_factor(a));
    (void)partial;
    for (int64_t i = begin; i < end; i += 16)
        HETI_K(put)(a->y + i, HETI_MUL(HETI_K(get)(a->y + i, end - i), factor), end - i);
}

HETI_FN void HETI_K(expand)(const void *args, int64_t begin, int64_t end, void *partial) {
    (void)partial;
    heti_expand(HETI_CAST(const het_expand_args *, args), begin, end);
}

HETI_FN void HETI_K(accumulate)(const void *args, int64_t begin, int64_t end, void *partial) {
    const het_accumulate_args *a = HETI_CAST(const het_accumulate_args *, args);
    if (!heti_ref_trains(a->gradient)) return;
    if (a->gradient->exact) {
        HETI_K(add_term)(a->gradient, a->offset + begin, a->term + begin, end - begin, HETI_CAST(uint32_t *, partial));
        return;
    }
    float *sum = HETI_CAST(float *, a->gradient->sum) + a->offset;
    for (int64_t i = begin; i < end; i += 16)
        HETI_K(put)(sum + i, HETI_ADD(HETI_K(get)(sum + i, end - i), HETI_K(get)(a->term + i, end - i)), end - i);
}

/* 16 elements of a gradient as floats. */
HETI_IN HETI_V HETI_K(gradient_get)(const het_gradient *gradient, int64_t i, int64_t left) {
    if (!gradient->exact) return HETI_K(get)(HETI_CAST(const float *, gradient->sum) + i, left);
    const double *sum = HETI_CAST(const double *, gradient->sum) + i;
    if (left >= 16) return HETI_FLOATS(HETI_DLOAD(sum), HETI_DLOAD(sum + 8));
    double part[16] = { 0.0 };
    HETI_COPY(part, sum, left);
    return HETI_FLOATS(HETI_DLOAD(part), HETI_DLOAD(part + 8));
}

/* Blocks [begin, end) of 1,024 elements: squares in 16 double lanes by element index, joined by the
   tree; partial: het_sum. */
HETI_FN void HETI_K(sum_squares)(const void *args, int64_t begin, int64_t end, void *partial) {
    const het_sum_squares_args *a = HETI_CAST(const het_sum_squares_args *, args);
    if (!heti_ref_trains(a->gradient)) return;
    for (int64_t block = begin; block < end; block++) {
        const int64_t last = heti_min(a->count, (block + 1) * 1024);
        HETI_D low = HETI_DSET(0.0), high = HETI_DSET(0.0);
        for (int64_t i = block * 1024; i < last; i += 16) {
            HETI_V g = HETI_K(gradient_get)(a->gradient, i, last - i);
            low = HETI_DFMA(HETI_DLOW(g), HETI_DLOW(g), low);
            high = HETI_DFMA(HETI_DHIGH(g), HETI_DHIGH(g), high);
        }
        heti_sum_add(HETI_CAST(het_sum *, partial), HETI_DSUM(HETI_DADD(low, high)));
    }
}

/* The order of het_adamw_args, products that are added as fma: m = fma(beta1, m, round((1 - beta1)
   g)),
   v = fma(beta2, v, round((1 - beta2) round(g g))), w = w - (lr decay) w, w = w - lr u with u = (m
   / c1) / (sqrt(v / c2) + eps). */
HETI_FN void HETI_K(adamw)(const void *args, int64_t begin, int64_t end, void *partial) {
    const het_adamw_args *a = HETI_CAST(const het_adamw_args *, args);
    const het_step_scalars *s = a->scalars;
    const HETI_V beta1 = HETI_SET(a->beta1), rest1 = HETI_SET(1.0f - a->beta1), beta2 = HETI_SET(a->beta2),
                 rest2 = HETI_SET(1.0f - a->beta2);
    const HETI_V c1 = HETI_SET(s->bias_correction1), c2 = HETI_SET(s->bias_correction2), epsilon = HETI_SET(a->epsilon);
    const HETI_V rate = HETI_SET(s->learning_rate), shrink = HETI_SET(s->learning_rate * a->decay),
                 clip = HETI_SET(s->clip_scale);
    (void)partial;
    if (s->verdict != HET_VERDICT_ACCEPT || !heti_ref_trains(a->gradient)) return;
    for (int64_t i = begin; i < end; i += 16) {
        const int64_t left = end - i;
        HETI_V g = HETI_MUL(HETI_K(gradient_get)(a->gradient, i, left), clip);
        HETI_V m = HETI_FMA(beta1, HETI_K(get)(a->m + i, left), HETI_MUL(rest1, g));
        HETI_V v = HETI_FMA(beta2, HETI_K(get)(a->v + i, left), HETI_MUL(rest2, HETI_MUL(g, g)));
        HETI_V w = HETI_K(get)(a->w + i, left);
        w = HETI_FNMA(shrink, w, w);
        w = HETI_FNMA(rate, HETI_DIV(HETI_DIV(m, c1), HETI_ADD(HETI_SQRT(HETI_DIV(v, c2)), epsilon)), w);
        HETI_K(put)(a->m + i, m, left);
        HETI_K(put)(a->v + i, v, left);
        HETI_K(put)(a->w + i, w, left);
    }
}

HETI_FN void HETI_K(muon_momentum)(const void *args, int64_t begin, int64_t end, void *partial) {
    (void)partial;
    heti_muon_rows(HETI_CAST(const het_muon_args *, args), 0, begin, end);
}
HETI_FN void HETI_K(muon_update)(const void *args, int64_t begin, int64_t end, void *partial) {
    (void)partial;
    heti_muon_rows(HETI_CAST(const het_muon_args *, args), 1, begin, end);
}

/* As the reference device has it. */
HETI_FN void HETI_K(feedback)(const void *args, int64_t begin, int64_t end, void *partial) {
    const het_feedback_args *a = HETI_CAST(const het_feedback_args *, args);
    const HETI_V factor = HETI_SET(a->factor), change = HETI_SET(a->change);
    (void)partial;
    for (int64_t i = begin; i < end && a->scalars->verdict == HET_VERDICT_ACCEPT; i += 16) {
        HETI_V e = HETI_K(get)(a->e + i, end - i), plain = HETI_K(get)(a->w + i, end - i);
        if (a->begins) plain = HETI_ADD(plain, e);
        HETI_V u = HETI_SUB(e, plain), w = a->begins ? plain : HETI_FNMA(factor, u, plain);
        if (!a->begins && a->last != NULL) {
            w = HETI_FNMA(change, HETI_SUB(u, HETI_K(get)(a->last + i, end - i)), w);
            HETI_K(put)(a->last + i, u, end - i);
        }
        HETI_K(put)(a->w + i, w, end - i);
        HETI_K(put)(a->e + i, a->begins ? plain : HETI_SUB(plain, w), end - i);
    }
}

/* ---- normal numbers: 32 at a time, as the reference device has them (>>reference) ---- */

HETI_FN void HETI_K(normal_group)(const het_normal_args *a, int64_t group, float to[32]) {
    float u[16], angle[16], cosine[16], sine[16];
    uint32_t quarter[16];
    HETI_V radius, x, square, c, s;
    heti_normal_words(a, group, u, angle, quarter);
    radius = HETI_MUL(HETI_SET(a->std), HETI_SQRT(HETI_MUL(HETI_SET(-2.0f), HETI_K(log)(HETI_LOAD(u)))));
    x = HETI_MUL(HETI_SET(1.57079632679489662f), HETI_LOAD(angle));
    square = HETI_MUL(x, x);
    s = HETI_FMA(square, HETI_SET(1.0f / 362880.0f), HETI_SET(-1.0f / 5040.0f));
    s = HETI_FMA(square, s, HETI_SET(1.0f / 120.0f));
    s = HETI_FMA(square, s, HETI_SET(-1.0f / 6.0f));
    s = HETI_FMA(HETI_MUL(x, square), s, x);
    c = HETI_FMA(square, HETI_SET(1.0f / 40320.0f), HETI_SET(-1.0f / 720.0f));
    c = HETI_FMA(square, c, HETI_SET(1.0f / 24.0f));
    c = HETI_FMA(square, c, HETI_SET(-0.5f));
    c = HETI_FMA(square, c, HETI_SET(1.0f));
    HETI_STORE(cosine, HETI_MUL(radius, c));
    HETI_STORE(sine, HETI_MUL(radius, s));
    for (int i = 0; i < 16; i++) heti_normal_turn(quarter[i], cosine[i], sine[i], &to[i], &to[16 + i]);
}

HETI_FN void HETI_K(normal)(const void *args, int64_t begin, int64_t end, void *partial) {
    const het_normal_args *a = HETI_CAST(const het_normal_args *, args);
    (void)partial;
    for (int64_t group = begin; group < end; group++) {
        float value[32];
        HETI_K(normal_group)(a, group, value);
        HETI_COPY(a->to + 32 * group, value, heti_min(32, a->count - 32 * group));
    }
}

static const heti_range_op HETI_K(range_ops)[] = {
    { HET_OP_NORM_FORWARD, "norm", HETI_K(norm_forward), 1, 4 },
    { HET_OP_NORM_BACKWARD_INPUT, "norm", HETI_K(norm_backward_input), 1, 4 },
    { HET_OP_NORM_BACKWARD_WEIGHT, "norm_backward_weight", HETI_K(norm_backward_weight), 0, 1 },
    { HET_OP_ROTARY_FORWARD, "rotary", HETI_K(rotary_forward), 1, 1 },
    { HET_OP_ROTARY_BACKWARD, "rotary", HETI_K(rotary_backward), 1, 1 },
    { HET_OP_ACTIVATION_FORWARD, "activation", HETI_K(activation_forward), 16, 4 },
    { HET_OP_ACTIVATION_BACKWARD, "activation", HETI_K(activation_backward), 16, 4 },
    { HET_OP_EMBEDDING_FORWARD, "embedding", HETI_K(embedding_forward), 1, 1 },
    { HET_OP_CROSS_ENTROPY, "cross_entropy", HETI_K(cross_entropy), 1, 4 },
    { HET_OP_ACCUMULATE, "accumulate", HETI_K(accumulate), 16, 1 },
    { HET_OP_SUM_SQUARES, "sum_squares", HETI_K(sum_squares), 1, 1 },
    { HET_OP_ADAMW, "adamw", HETI_K(adamw), 16, 4 },
    { HET_OP_MUON_MOMENTUM, "muon", HETI_K(muon_momentum), 1, 4 },
    { HET_OP_MUON_UPDATE, "muon", HETI_K(muon_update), 1, 4 },
    { HET_OP_FEEDBACK, "feedback", HETI_K(feedback), 16, 1 },
    { HET_OP_NORMAL, "normal", HETI_K(normal), 1, 4 },
    { HET_OP_SCALE, "scale", HETI_K(scale_array), 16, 1 },
    { HET_OP_EXPAND, "expand", HETI_K(expand), 1, 1 },
    { HET_OP_CLEAR, NULL, NULL, 0, 0 }
};
static const heti_row_kernels HETI_K(row_kernels) = {
    HETI_K(range_ops), HETI_K(dropout), HETI_K(sum_arrays), HETI_K(scatter), HETI_K(attention_forward),
    HETI_K(attention_backward)
};

/* The next pass defines these anew. */
#undef HETI_K
#undef HETI_I
#undef HETI_TARGET
#undef HETI_MAP
#undef HETI_PACK_PAIRS
#undef HETI_PAIR_STEP
#endif /* HETI_ISA_PASS */
/* =================================================================================================
   >>cpu  The CPU device: one pass over the kernels per instruction set, state, memory, linear ops.
   ============================================================================================== */
#ifndef HETI_ISA_PASS
#ifdef __cplusplus
extern "C" {
#endif

#define HETI_ISA_PASS 1
#include HETRAIN_CPU
#undef HETI_ISA_PASS
#ifdef HETI_HAVE_X86
#define HETI_ISA_PASS 2
#include HETRAIN_CPU
#undef HETI_ISA_PASS
#define HETI_ISA_PASS 3
#include HETRAIN_CPU
#undef HETI_ISA_PASS
#define HETI_ISA_PASS 4
#include HETRAIN_CPU
#undef HETI_ISA_PASS
#endif
#ifdef HETI_HAVE_NEON
#define HETI_ISA_PASS 5
#include HETRAIN_CPU
#undef HETI_ISA_PASS
#endif

typedef struct heti_cpu {
    heti_host host;         /* first: memory is the host's */
    het_device_config config;
    het_parallel parallel;  /* the caller's, or the pool's */
    heti_pool *pool;        /* NULL where the caller gave a parallel-for */
    const heti_product_kernels *product, *bf16_product;
    const heti_row_kernels *rows;
    het_error error;
} heti_cpu;

/* ---- which kernels ---- */

typedef struct heti_kernels {
    het_isa isa;
    const heti_product_kernels *product, *bf16_product;
    const heti_row_kernels *rows;
} heti_kernels;
#define HETI_KERNELS(isa, name, bf16) \
    { isa, &heti_##name##_product_kernels, &heti_##bf16##_product_kernels, &heti_##name##_row_kernels }

/* Those of this build, the best first. */
static const heti_kernels heti_built[] = {
#ifdef HETI_HAVE_AMX
    HETI_KERNELS(HET_ISA_AMX, avx512, amx),
#endif
#ifdef HETI_HAVE_X86
    HETI_KERNELS(HET_ISA_AVX512_BF16, avx512_bf16, avx512_bf16), HETI_KERNELS(HET_ISA_AVX512, avx512, avx512),
    HETI_KERNELS(HET_ISA_AVX2, avx2, avx2),
#endif
#ifdef HETI_HAVE_NEON
    HETI_KERNELS(HET_ISA_NEON, neon, neon),
#endif
    HETI_KERNELS(HET_ISA_PLAIN, plain, plain)
};

#ifdef HETI_HAVE_AMX
/* Whether a processor with AVX-512 has AMX (its manual, 2A, CPUID 7: bits 22 and 24 of EDX), and
   Linux lets this process use it from now on: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA),
   which libc has no word for. */
static int heti_amx_begin(void) {
    unsigned a, b, c, d;
    long status;
    __cpuid_count(7, 0, a, b, c, d);
    if ((~d & (1u << 22 | 1u << 24)) != 0) return 0;
    __asm__ volatile("syscall" : "=a"(status) : "0"(158L), "D"(0x1023L), "S"(18L) : "rcx", "r11", "memory");
    return status == 0;
}
#endif

/* Whether this machine has an instruction set of the build. */
static int heti_cpu_has(het_isa isa) {
#ifdef HETI_HAVE_X86
    int avx2, avx512;
    __builtin_cpu_init();
    avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    if (isa == HET_ISA_AVX512_BF16) return avx512 && __builtin_cpu_supports("avx512bf16");
#ifdef HETI_HAVE_AMX
    if (isa == HET_ISA_AMX) return avx512 && __builtin_cpu_supports("avx512bf16") && heti_amx_begin();
#endif
    if (isa == HET_ISA_AVX512) return avx512;
    if (isa == HET_ISA_AVX2) return avx2;
#endif
    (void)isa;
    return 1;
}

/* The bf16 dot product runs at half the multiply-add rate on Intel's cores (108, not 217 GFLOP/s,
   Sapphire Rapids): rounded floats in float products are as fast. On AMD's it runs at twice that
   rate. Matrix registers have bits of their own. */
static int heti_cpu_avoids(het_isa isa, int fast) {
    if (isa == HET_ISA_AMX) return !fast;
#ifdef HETI_HAVE_X86
    __builtin_cpu_init();
    return isa == HET_ISA_AVX512_BF16 && __builtin_cpu_is("intel");
#else
    (void)isa;
    return 0;
#endif
}

/* The kernels of `isa`, AUTO: the best this machine has. 0: there are none. */
static int heti_cpu_choose(het_isa isa, heti_cpu *cpu) {
    const heti_kernels *k = heti_built, *end = heti_built + HETI_COUNT(heti_built);
    const int fast = cpu->config.fast;
    while (k < end && ((isa == HET_ISA_AUTO ? heti_cpu_avoids(k->isa, fast) : isa != k->isa) || !heti_cpu_has(k->isa)))
        k++;
    if (k == end) return 0;
    cpu->config.isa = k->isa;
    cpu->product = k->product;
    cpu->bf16_product = k->bf16_product;
    cpu->rows = k->rows;
    return 1;
}

static het_result heti_cpu_create(const het_device_config *config, void **self) {
    const char *const name[] = { HETRAIN_ISA_NAMES };
    heti_cpu kernels, *cpu;
    het_result result = HET_OK;
    HETI_TRY(heti_host_check(config));
    memset(&kernels, 0, sizeof kernels);
    kernels.config = *config;
    if (!heti_cpu_choose(config->isa, &kernels))
        return heti_fail(config->error, HET_ERR_UNSUPPORTED, "this processor, system or build has no %s",
                         config->isa <= HET_ISA_AMX ? name[config->isa] : "such set");
    cpu = HETI_CAST(heti_cpu *, heti_alloc(config->allocator, sizeof *cpu));
    if (cpu == NULL) return HET_ERR_OOM;
    *cpu = kernels;
    cpu->host.allocator = *config->allocator;
    cpu->parallel = *config->parallel;
    if (cpu->parallel.run == NULL) {
        result = heti_pool_create(&cpu->host.allocator, config->threads, &cpu->pool);
        cpu->parallel.run = heti_pool_run;
        cpu->parallel.user = cpu->pool;
    }
    if (result == HET_OK) *self = cpu;
    else heti_free(config->allocator, cpu, sizeof *cpu);
    return result;
}

static void heti_cpu_destroy(void *self) {
    heti_cpu *cpu = HETI_CAST(heti_cpu *, self);
    const het_allocator allocator = cpu->host.allocator;
    heti_pool_destroy(cpu->pool);
    heti_free(&allocator, cpu, sizeof *cpu);
}

static const char *heti_cpu_last_error(void *self) { return HETI_CAST(heti_cpu *, self)->error.text; }

/* ---- threads ----
   Work is a number of units. As many runners as there are threads take pieces of them until none
   are left, half of a fair share of what is left at a time: whoever starts late or is slow does
   less, and nobody waits long for the last piece. Runners have numbers for what each needs
   alone. */

typedef void (*heti_cpu_work)(void *arg, int64_t runner, int64_t begin, int64_t end);

typedef struct heti_cpu_job {
    heti_cpu_work work;
    void *arg;
    int64_t runners, units, least; /* no piece is smaller than that, but the last */
    int64_t next;                  /* atomic: units before are taken */
    int vector;                    /* kernels use AVX registers */
} heti_cpu_job;

/* From -O2 on gcc ends AVX functions with vzeroupper by itself. Below, registers left dirty would
   make all SSE code that follows, the user's too, many times slower. */
#ifdef HETI_HAVE_X86
__attribute__((target("avx"))) static void heti_cpu_clear_upper(void) { _mm256_zeroupper(); }
#else
static void heti_cpu_clear_upper(void) {}
#endif

static int heti_cpu_take(heti_cpu_job *job, int64_t *begin, int64_t *end) {
    *begin = HETI_ATOMIC_LOAD(&job->next);
    do {
        const int64_t left = job->units - *begin, share = job->runners > 1 ? left / (2 * job->runners) : left;
        if (left <= 0) return 0;
        *end = *begin + heti_min(left, heti_max(share, job->least));
    } while (!HETI_ATOMIC_REPLACE(&job->next, begin, *end));
    return 1;
}

static void heti_cpu_task(void *arg, int64_t runner) {
    heti_cpu_job *job = HETI_CAST(heti_cpu_job *, arg);
    int64_t begin, end;
    heti_fp fp;
    heti_fp_enter(&fp); /* the threads may be the user's */
    while (heti_cpu_take(job, &begin, &end)) job->work(job->arg, runner, begin, end);
    if (job->vector) heti_cpu_clear_upper();
    heti_fp_leave(&fp);
}

/* Does `units` units of work on at most `runners` of the context's threads, `least` or more at a
   time. Returns how many runners there were. */
static int64_t heti_cpu_run(heti_cpu *cpu, int64_t runners, int64_t units, int64_t least, heti_cpu_work work,
                            void *arg) {
    heti_cpu_job job;
    job.work = work;
    job.arg = arg;
#ifdef HETI_NO_ATOMICS
    runners = 1;
#endif
    job.runners = heti_max(1, heti_min(runners, units / least));
    job.units = units;
    job.least = least;
    job.next = 0;
    job.vector = cpu->config.isa != HET_ISA_PLAIN;
    if (job.runners > 1) cpu->parallel.run(cpu->parallel.user, job.runners, heti_cpu_task, &job);
    else heti_cpu_task(&job, 0);
    return job.runners;
}

#define HETI_MOVE_UNIT 65536 /* bytes */

typedef struct heti_move_job { char *to; const char *from; int64_t size; } heti_move_job;

static void heti_move_work(void *arg, int64_t runner, int64_t begin, int64_t end) {
    const heti_move_job *job = HETI_CAST(const heti_move_job *, arg);
    const int64_t first = begin * HETI_MOVE_UNIT;
    const size_t size = HETI_CAST(size_t, heti_min(job->size, end * HETI_MOVE_UNIT) - first);
    (void)runner;
    if (job->from != NULL) memcpy(job->to + first, job->from + first, size);
    else memset(job->to + first, 0, size);
}

/* Copies, or where `from` is NULL clears: one thread does not fill the memory's bandwidth. */
static void heti_cpu_move(heti_cpu *cpu, void *to, const void *from, size_t size) {
    heti_move_job job = { HETI_CAST(char *, to), HETI_CAST(const char *, from), HETI_CAST(int64_t, size) };
    (void)heti_cpu_run(cpu, cpu->config.threads, heti_ceil_div(job.size, HETI_MOVE_UNIT), 8, heti_move_work, &job);
}

/* The largest term of a call goes into the parameter's maximum: each runner's is `step` after the
   one before's. */
static void heti_join_top(const het_gradient *gradient, const uint32_t *top, int64_t step, int64_t runners) {
    if (!heti_ref_trains(gradient) || !gradient->exact) return;
    for (int64_t r = 0; r < runners; r++)
        if (top[r * step] > *gradient->maximum) *gradient->maximum = top[r * step];
}

/* ---- linear: y = x W^T + b and dx = sum of dy W ----
   Activations are packed once for all threads, a chunk of rows and k at a time; then every runner
   packs one narrow panel of a weight, which stays in its first caches, and runs it down the packed
   rows. Weights are never written to memory in another order. */

/* rows x PRODUCT_K floats stay in a thread's second cache, twice as many pairs; whole tiles of any
   height */
#define HETI_LINEAR_ROWS 600
#define HETI_PANEL_FLOATS (HETI_PRODUCT_K * HETI_TILE_COLUMNS)

/* output[o] (columns) = chain over the k of every source s of source[s].data[row][k] weight(o,
   s)[k][column]. Forward has one source and an output per part, backward_input a source per part
   and one output. */
typedef struct heti_linear_output {
    float *c;
    const float *bias;
    int64_t columns;
} heti_linear_output;

typedef struct heti_linear_job {
    const heti_product_kernels *kernels;
    int bf16, pairs; /* pairs: of bf16, in packed operands */
    int64_t outputs, sources;
    heti_linear_output output[3];
    heti_operand weight[3][3]; /* [output][source]; lines are columns of the output */
    heti_operand source[3];    /* lines are rows */
    int64_t source_k[3];
    int64_t panels;            /* of all outputs */
    int64_t row_step;          /* rows of one unit of work, a multiple of tile_rows */
    float *packed, *panel;     /* [rows / tile_rows][pitch][tile_rows], [runners][HETI_PANEL_FLOATS] */
    int64_t row_begin, rows;             /* being computed, */
    int64_t present, chunk_begin, chunk, pitch; /* over these k of this source; pitch: chunk as packed */
    int first, last;           /* chunk of all: starts from +0 unless `continues`, adds the bias */
    int continues;
} heti_linear_job;

/* Units: tiles of rows. */
static void heti_linear_pack_work(void *arg, int64_t runner, int64_t begin, int64_t end) {
    const heti_linear_job *job = HETI_CAST(const heti_linear_job *, arg);
    const int64_t tile = job->kernels->tile_rows;
    heti_operand from = job->source[job->present];
    (void)runner;
    heti_move_operand(&from, job->row_begin + begin * tile, job->chunk_begin);
    job->kernels->pack_rows(tile, heti_min(end * tile, job->rows) - begin * tile, job->chunk, &from, job->bf16,
                            job->packed + begin * tile * job->pitch, job->pitch);
}

/* The block of weights that a panel needs at k floats into the chunk; returns the output and its
   first column. */
static const heti_linear_output *heti_linear_block(const heti_linear_job *job, int64_t panel, int64_t k,
                                                   heti_block *block, int64_t *column) {
    const int64_t wide = job->kernels->tile_columns;
    const heti_linear_output *output = job->output;
    for (; panel >= heti_ceil_div(output->columns, wide); output++) panel -= heti_ceil_div(output->columns, wide);
    *column = panel * wide;
    block->lines = heti_min(wide, output->columns - *column);
    block->k = heti_min(job->kernels->block_k, job->chunk - k);
    block->from = job->weight[output - job->output][job->present];
    heti_move_operand(&block->from, *column, job->chunk_begin + k);
    return output;
}

/* Rows [row, row + rows) of one panel over one block of k; `ahead` is the panel after it, or
   negative. */
static void heti_linear_panel(const heti_linear_job *job, int64_t row, int64_t rows, int64_t panel, int64_t ahead,
                              int64_t k, float *packed_panel) {
    const heti_product_kernels *kernels = job->kernels;
    const int64_t tile = kernels->tile_rows;
    const float *a = job->packed + row * job->pitch + heti_packed_k(k, job->pairs) * tile;
    const heti_linear_output *output;
    heti_walk next = heti_no_walk();
    heti_block block;
    heti_chains to;
    int64_t column;
    if (ahead >= 0) {
        (void)heti_linear_block(job, ahead, k, &block, &column);
        next = heti_block_walk(&block, heti_ceil_div(rows, tile) * heti_fetches(block.k, job->pairs));
    }
    output = heti_linear_block(job, panel, k, &block, &column);
    to = heti_make_chains(output->c + (job->row_begin + row) * output->columns + column, output->columns, !job->first ||
                          k > 0, NULL);
    if (job->last && k + block.k == job->chunk && output->bias != NULL) to.bias = output->bias + column;
    kernels->panel(rows, block.lines, block.k, heti_make_tiles(a, 1, tile, tile * job->pitch), &block.from,
                   packed_panel, to, job->bf16, &next);
}

/* Units: all panels of the first row_step rows, of the next, and so on. */
static void heti_linear_work(void *arg, int64_t runner, int64_t unit, int64_t end) {
    const heti_linear_job *job = HETI_CAST(const heti_linear_job *, arg);
    float *packed_panel = job->panel + runner * HETI_PANEL_FLOATS;
    if (job->kernels->prepare != NULL) job->kernels->prepare(1);
    while (unit < end) {
        const int64_t row = unit / job->panels * job->row_step, rows = heti_min(job->row_step, job->rows - row);
        const int64_t panel_begin = unit % job->panels, panel_end = heti_min(job->panels, panel_begin + end - unit);
        for (int64_t k = 0; k < job->chunk; k += job->kernels->block_k)
            for (int64_t panel = panel_begin; panel < panel_end; panel++)
                heti_linear_panel(job, row, rows, panel, panel + 1 < panel_end ? panel + 1 : -1, k, packed_panel);
        unit += panel_end - panel_begin;
    }
    if (job->kernels->prepare != NULL) job->kernels->prepare(0);
}

static const heti_product_kernels *heti_cpu_product(const heti_cpu *cpu, het_dtype compute) {
    return compute == HET_BF16 ? cpu->bf16_product : cpu->product;
}

/* Lines of a tile of A, whatever the instruction set, if it is one of vectors. */
static int64_t heti_linear_tile(const heti_product_kernels *kernels) {
    return heti_max(HETI_TILE_ROWS, kernels->tile_rows);
}

/* The most rows that are packed at a time, over PRODUCT_K. Fewer rows are packed over more k, which
   saves threads a meeting, but only as much of them as half of that: what was packed too early has
   left the cache. */
static int64_t heti_linear_most(const heti_cpu *cpu, het_dtype compute) {
    const int64_t pairs = compute == HET_BF16 && cpu->bf16_product->bf16_pairs ? 2 : 1,
                  tile = heti_linear_tile(heti_cpu_product(cpu, compute));
    return pairs * HETI_LINEAR_ROWS * HETI_CAST(int64_t, cpu->config.threads) / tile * tile;
}

/* The rows at row_begin, over all k of all sources. */
static void heti_linear_rows(heti_cpu *cpu, heti_linear_job *job, int64_t most) {
    const int64_t tile = job->kernels->tile_rows, block = job->kernels->block_k, whole = heti_linear_tile(job->kernels),
                  rows = heti_ceil_div(job->rows, whole) * whole,
                  chunk = heti_max(1, most * HETI_PRODUCT_K / 2 / rows / block) * block;
    /* units, so that the last ones are short */
    const int64_t threads = cpu->config.threads, wanted = threads > 1 ? 8 * threads : 1;
    const int64_t blocks = heti_max(heti_ceil_div(wanted, job->panels), heti_ceil_div(job->rows * threads, most));
    job->row_step = heti_ceil_div(heti_ceil_div(job->rows, blocks), tile) * tile;
    for (int64_t s = 0; s < job->sources; s++) {
        job->present = s;
        for (job->chunk_begin = 0; job->chunk_begin < job->source_k[s]; job->chunk_begin += chunk) {
            job->chunk = heti_min(chunk, job->source_k[s] - job->chunk_begin);
            job->pitch = heti_packed_k(job->chunk, job->pairs);
            job->first = s == 0 && job->chunk_begin == 0 && !job->continues;
            job->last = s == job->sources - 1 && job->chunk_begin + job->chunk == job->source_k[s];
            (void)heti_cpu_run(cpu, threads, heti_ceil_div(job->rows, tile), 1, heti_linear_pack_work, job);
            (void)heti_cpu_run(cpu, threads, heti_ceil_div(job->rows, job->row_step) * job->panels, 1, heti_linear_work,
                               job);
        }
    }
}

static void heti_linear_run(heti_cpu *cpu, heti_linear_job *job, const het_linear_args *a) {
    const int64_t most = heti_linear_most(cpu, a->compute), step = heti_ceil_div(a->rows, heti_ceil_div(a->rows, most));
    job->kernels = heti_cpu_product(cpu, a->compute);
    const int64_t tile = job->kernels->tile_rows;
    job->bf16 = a->compute == HET_BF16;
    job->continues = a->continues;
    job->pairs = job->bf16 && job->kernels->bf16_pairs;
    job->panel = HETI_CAST(float *, a->workspace);
    job->packed = job->panel + cpu->config.threads * HETI_PANEL_FLOATS;
    job->panels = 0;
    for (int64_t o = 0; o < job->outputs; o++)
        job->panels += heti_ceil_div(job->output[o].columns, job->kernels->tile_columns);
    for (job->row_begin = 0; job->row_begin < a->rows; job->row_begin += job->rows) {
        job->rows = heti_min(heti_ceil_div(step, tile) * tile, a->rows - job->row_begin);
        heti_linear_rows(cpu, job, most);
    }
}

static het_result heti_linear_check(heti_cpu *cpu, const char *op, const het_linear_args *a) {
    int valid = a->rows >= 0 && a->in > 0 && a->parts >= 1 && a->parts <= 3;
    for (int64_t p = 0; valid && p < a->parts; p++) valid = a->part[p].out > 0;
    if (valid) return HET_OK;
    return heti_fail(&cpu->error, HET_ERR_INVALID, "cpu %s: impossible shape, %d rows, in %d, %d parts", op, a->rows,
                     a->in, a->parts);
}

/* Forward, or backward for inputs. */
static het_result heti_cpu_linear(heti_cpu *cpu, const het_linear_args *a, int forward) {
    heti_linear_job job;
    HETI_TRY(heti_linear_check(cpu, forward ? "linear_forward" : "linear_backward_input", a));
    if (a->rows == 0) return HET_OK;
    memset(&job, 0, sizeof job);
    job.outputs = forward ? a->parts : 1;
    job.sources = forward ? 1 : a->parts;
    if (forward) {
        job.source[0] = heti_make_operand(a->x, a->in, 1);
        job.source_k[0] = a->in;
    } else {
        job.output[0].c = a->dx;
        job.output[0].columns = a->in;
    }
    for (int64_t p = 0; p < a->parts; p++) {
        const het_linear_part *part = &a->part[p];
        heti_operand *weight = forward ? &job.weight[p][0] : &job.weight[0][p];
        *weight = heti_make_operand(part->w, forward ? a->in : 1, forward ? 1 : a->in);
        if (part->w == NULL) weight->bf16 = part->w_bf16, weight->int8 = part->w_bf16 == NULL ? part->w_int8 : NULL;
        if (forward) {
            job.output[p].c = part->y;
            job.output[p].bias = part->bias;
            job.output[p].columns = part->out;
        } else {
            job.source[p] = heti_make_operand(part->dy, part->out, 1);
            job.source_k[p] = part->out;
        }
    }
    heti_linear_run(cpu, &job, a);
    return HET_OK;
}

/* ---- linear: dW = dy^T x ----
   The big thing here is the gradient itself. x is packed once for all threads; a runner takes lines
   of the gradients (outputs), packs a few tiles of dy and runs them over all panels of x, granule
   by granule while the tile of the sum is in the first cache. */

#define HETI_WEIGHT_FLOATS 98304 /* packed dy of a runner, unless one tile is larger: a share of the second cache */
/* at a time: their rows of the sum are so many pages, which neighbouring columns meet again */
#define HETI_WEIGHT_TILES 8

typedef struct heti_weight_job {
    const heti_product_kernels *kernels;
    const het_linear_args *args;
    int bf16, pairs;
    int64_t granule_begin, granule_end; /* of the group of granules being computed */
    int first;              /* no group was computed before: dw with beta 0 are still empty */
    int64_t tokens, pitch;  /* in the group; pitch: as packed */
    int64_t first_row;      /* the group's first row of the slice */
    int64_t tiles;          /* tiles of lines, of all parts */
    float *packed_x;        /* [in / tile_columns][pitch][tile_columns], of the pitch one granule after the other */
    float *packed_dy;       /* [runners][runner_floats], [tiles][pitch][tile_rows] */
    int64_t runner_floats;
    uint32_t *maximum;      /* [runners][6]: dw and dbias of each part */
} heti_weight_job;

/* Units: panels of x. */
static void heti_weight_pack_work(void *arg, int64_t runner, int64_t begin, int64_t end) {
    const heti_weight_job *job = HETI_CAST(const heti_weight_job *, arg);
    const het_linear_args *a = job->args;
    const int64_t wide = job->kernels->tile_columns;
    float *to = job->packed_x + begin * wide * job->pitch;
    (void)runner;
    for (int64_t g = job->granule_begin; g < job->granule_end; g++) {
        const int64_t row = heti_granule_row(a->view, g), k = heti_granule_row(a->view, g + 1) - row;
        const heti_operand from = heti_make_operand(a->x + row * a->in + begin * wide, 1, a->in);
        job->kernels->pack(wide, heti_min(end * wide, a->in) - begin * wide, k, &from, job->bf16, to, job->pitch);
        to += heti_packed_k(k, job->pairs) * wide;
    }
}

/* Nothing is summed where there is no gradient. */
static void heti_weight_sum_start(heti_weight_sum *sum, const het_gradient *gradient, int64_t columns,
                                  uint32_t maximum) {
    memset(sum, 0, sizeof *sum);
    if (!heti_ref_trains(gradient)) return;
    sum->sum = gradient->sum;
    sum->columns = columns;
    sum->exact = gradient->exact;
    sum->final = gradient->exact && gradient->final;
    sum->grid = gradient->exact ? *gradient->grid : 0.0;
    sum->maximum = maximum;
}

/* Rows whose granules are taken together: all of a call that makes a final sum. */
static int64_t heti_weight_rows(const heti_product_kernels *kernels, const het_linear_args *a) {
    for (int64_t p = 0; p < a->parts; p++)
        if (a->part[p].dw != NULL && a->part[p].dw->exact && a->part[p].dw->final) return a->rows;
    return kernels->block_rows;
}

/* Lines [line, line + lines) of dy. */
static heti_walk heti_weight_walk(const heti_weight_job *job, const het_linear_part *part, int64_t line, int64_t lines,
                                  int64_t turns) {
    return heti_walk_over(part->dy + job->first_row * part->out + line, 4 * part->out, 4 * lines,
                          lines > 0 ? job->tokens : 0, turns);
}

/* The tile of dw after that of (line, column), down the block's lines, then in the next columns. */
static heti_walk heti_weight_sums_walk(const heti_weight_job *job, const heti_weight_sum *dw, int64_t begin,
                                       int64_t end, int64_t line, int64_t column, int64_t turns) {
    const int64_t tile = job->kernels->tile_rows, wide = job->kernels->tile_columns,
                  size = dw->exact && !dw->final ? 8 : 4;
    line += tile;
    if (line >= end) {
        line = begin;
        column += wide;
    }
    return heti_walk_over(HETI_CAST(const char *, dw->sum) + (line * dw->columns + column) * size, dw->columns * size,
                          heti_min(wide, dw->columns - column) * size, column < dw->columns ? heti_min(tile,
                              end - line) : 0, turns);
}

/* The panel of x after that of `column`. Every block of lines goes through all of packed x, which
   may be more than the second cache holds. */
static heti_walk heti_weight_panel_walk(const heti_weight_job *job, int64_t column, int64_t turns) {
    const int64_t wide = job->kernels->tile_columns, next = column + wide < job->args->in ? column + wide : 0;
    return heti_walk_over(job->packed_x + next * job->pitch, HETI_FETCH_BYTES, HETI_FETCH_BYTES,
                          heti_ceil_div(4 * wide * job->pitch, HETI_FETCH_BYTES), turns);
}

/* Lines [line, line + lines) of dw, which fit the runner's buffer, and dbias, over the granules of
   the group. `ahead` lines come next. Of the fetches of a tile three eighths go to the tile of dw
   after it, one half to the next panel of x, the rest to the next lines of dy. */
static void heti_weight_block(const heti_weight_job *job, const het_linear_part *part, int64_t line, int64_t lines,
                              int64_t ahead, float *packed_dy, heti_weight_sum *dw, heti_weight_sum *dbias) {
    const het_linear_args *a = job->args;
    const int64_t tile = job->kernels->tile_rows, wide = job->kernels->tile_columns;
    const int64_t tiles = heti_ceil_div(lines, tile), fetches = job->pitch / 8;
    const int empty = job->first && part->dw != NULL && part->dw->beta == 0;
    heti_walk walk[HETI_WALKS];
    int64_t before = 0;
    for (int64_t g = job->granule_begin; g < job->granule_end; g++) {
        const int64_t row = heti_granule_row(a->view, g), k = heti_granule_row(a->view, g + 1) - row;
        const heti_operand from = heti_make_operand(part->dy + row * part->out + line, 1, part->out);
        if (dw->sum != NULL)
            job->kernels->pack_rows(tile, lines, k, &from, job->bf16, packed_dy + before * tile, job->pitch);
        if (dbias->sum != NULL && k > 0) job->kernels->bias(lines, k, from.data, part->out, dbias, line);
        before += heti_packed_k(k, job->pairs);
    }
    if (dw->sum == NULL) return;
    walk[2] = heti_weight_walk(job, part, line + lines, ahead, heti_ceil_div(a->in, wide) * tiles * fetches / 8);
    for (int64_t column = 0; column < a->in; column += wide) {
        walk[1] = heti_weight_panel_walk(job, column, tiles * fetches / 2);
        for (int64_t i = 0; i < lines; i += tile) {
            walk[0] = heti_weight_sums_walk(job, dw, line, line + lines, line + i, column, fetches * 3 / 8);
            dw->empty = empty;
            before = 0;
            for (int64_t g = job->granule_begin; g < job->granule_end; g++) {
                const int64_t k = heti_granule_row(a->view, g + 1) - heti_granule_row(a->view, g);
                const float *dy = packed_dy + i * job->pitch + before * tile,
                             *x = job->packed_x + column * job->pitch + before * wide;
                if (k == 0) continue;
                before += heti_packed_k(k, job->pairs);
                dw->last = before == job->pitch;
                job->kernels->weight(heti_min(tile, lines - i), heti_min(wide, a->in - column), k, dy, x, dw,
                                     (line + i) * a->in + column, job->bf16, walk);
                dw->empty = 0; /* the next granule adds */
            }
        }
    }
}

/* Lines [line, line + lines) of one part's dw and dbias. */
static void heti_weight_lines(const heti_weight_job *job, const het_linear_part *part, int64_t line, int64_t lines,
                              float *packed_dy, uint32_t *maximum) {
    const int64_t tile = job->kernels->tile_rows;
    const int64_t step = heti_min(HETI_WEIGHT_TILES, heti_max(1, HETI_WEIGHT_FLOATS / (tile * job->pitch))) * tile;
    double kept[HETI_TILE_COLUMNS * HETI_TILE_COLUMNS]; /* no tile has more rows */
    heti_weight_sum dw, dbias;
    heti_weight_sum_start(&dw, part->dw, job->args->in, maximum[0]);
    heti_weight_sum_start(&dbias, part->dbias, 1, maximum[1]);
    dw.kept = kept;
    for (int64_t i = 0; i < lines; i += step) {
        const int64_t here = heti_min(step, lines - i);
        heti_weight_block(job, part, line + i, here, heti_min(step, lines - i - here), packed_dy, &dw, &dbias);
    }
    maximum[0] = dw.maximum;
    maximum[1] = dbias.maximum;
}

/* Units: tiles of lines, of all parts. */
static void heti_weight_work(void *arg, int64_t runner, int64_t begin, int64_t end) {
    const heti_weight_job *job = HETI_CAST(const heti_weight_job *, arg);
    const int64_t tile = job->kernels->tile_rows;
    int64_t before = 0;
    if (job->kernels->prepare != NULL) job->kernels->prepare(1);
    for (int64_t p = 0; p < job->args->parts; p++) {
        const het_linear_part *part = &job->args->part[p];
        const int64_t tiles = heti_ceil_div(part->out, tile), from = heti_max(begin - before, 0),
                      to = heti_min(end - before, tiles);
        if (from < to)
            heti_weight_lines(job, part, from * tile, heti_min(to * tile, part->out) - from * tile,
                              job->packed_dy + runner * job->runner_floats, job->maximum + 6 * runner + 2 * p);
        before += tiles;
    }
    if (job->kernels->prepare != NULL) job->kernels->prepare(0);
}

/* Enough for any group of granules among these rows: WEIGHT_TILES tiles, or what WEIGHT_FLOATS take
   of them, or one. */
static int64_t heti_weight_runner_floats(int64_t tile, int64_t rows) {
    return (heti_max(heti_min(HETI_WEIGHT_FLOATS, HETI_WEIGHT_TILES * tile * rows), tile * rows) + 15) / 16 * 16;
}

/* Without any token a sum with beta 0 is 0. */
static void heti_weight_clear(heti_cpu *cpu, const het_gradient *dw, int64_t count) {
    if (!heti_ref_trains(dw) || dw->beta != 0) return;
    heti_cpu_move(cpu, dw->sum, NULL, HETI_CAST(size_t, count) * (dw->exact && !dw->final ? 8 : 4));
}

static het_result heti_cpu_linear_backward_weight(heti_cpu *cpu, const het_linear_args *a) {
    heti_weight_job job;
    const het_view *view = a->view;
    const int64_t threads = cpu->config.threads, most = heti_weight_rows(heti_cpu_product(cpu, a->compute), a);
    HETI_TRY(heti_linear_check(cpu, "linear_backward_weight", a));
    memset(&job, 0, sizeof job);
    job.kernels = heti_cpu_product(cpu, a->compute);
    job.args = a;
    job.bf16 = a->compute == HET_BF16;
    job.pairs = job.bf16 && job.kernels->bf16_pairs;
    job.runner_floats = heti_weight_runner_floats(heti_linear_tile(job.kernels), a->rows);
    job.packed_dy = HETI_CAST(float *, a->workspace);
    job.packed_x = job.packed_dy + threads * job.runner_floats;
    job.maximum = HETI_CAST(uint32_t *, a->workspace) + threads * job.runner_floats + heti_packed(a->in, a->rows,
        HETI_TILE_COLUMNS);
    HETI_CLEAR(job.maximum, 6 * threads);
    for (int64_t p = 0; p < a->parts; p++) job.tiles += heti_ceil_div(a->part[p].out, job.kernels->tile_rows);
    job.first = 1;
    job.granule_end = view->granule_begin;
    while (job.granule_end < view->granule_end) {
        job.granule_begin = job.granule_end;
        job.first_row = heti_granule_row(view, job.granule_begin);
        job.tokens = job.pitch = 0;
        do {
            const int64_t k = heti_granule_row(view, job.granule_end + 1) - heti_granule_row(view, job.granule_end);
            job.granule_end++;
            job.tokens += k;
            job.pitch += heti_packed_k(k, job.pairs);
        } while (job.granule_end < view->granule_end &&
                 heti_granule_row(view, job.granule_end + 1) - job.first_row <= most);
        if (job.tokens == 0) continue;
        (void)heti_cpu_run(cpu, threads, heti_ceil_div(a->in, job.kernels->tile_columns), 1, heti_weight_pack_work,
                           &job);
        (void)heti_cpu_run(cpu, threads, job.tiles, 1, heti_weight_work, &job);
        job.first = 0;
    }
    for (int64_t p = 0; p < a->parts; p++) {
        if (job.first) heti_weight_clear(cpu, a->part[p].dw, a->part[p].out * a->in);
        heti_join_top(a->part[p].dw, job.maximum + 2 * p, 6, threads);
        heti_join_top(a->part[p].dbias, job.maximum + 2 * p + 1, 6, threads);
    }
    return HET_OK;
}

/* Bytes of op's workspace, one of the three linear ones. */
static size_t heti_linear_workspace_of(const heti_cpu *cpu, het_op_kind kind, const het_linear_args *a) {
    const int64_t tile = heti_linear_tile(heti_cpu_product(cpu, a->compute));
    int64_t floats, k = a->in;
    if (kind == HET_OP_LINEAR_BACKWARD_WEIGHT) {
        floats = cpu->config.threads * (heti_weight_runner_floats(tile, a->rows) + 6) + heti_packed(a->in, a->rows,
            HETI_TILE_COLUMNS);
    } else {
        if (kind == HET_OP_LINEAR_BACKWARD_INPUT)
            for (int64_t p = k = 0; p < a->parts; p++) k = heti_max(k, a->part[p].out);
        floats = heti_min(heti_ceil_div(a->rows, tile) * tile * k, heti_linear_most(cpu, a->compute) * HETI_PRODUCT_K);
        floats += cpu->config.threads * HETI_PANEL_FLOATS;
    }
    return HETI_CAST(size_t, floats) * sizeof(float);
}
/* =================================================================================================
   >>cpu_rows  The CPU device: all ops but the linear ones, and its table.

   Most ops are a row of heti_ranges: they cut their independent outputs (rows, or columns where
   they sum over tokens) into ranges and call one kernel of the instruction set's table on each.
   What ranges add up by themselves (a maximum, a loss) lies in `partial`, one a runner, joined
   afterwards by operations without order. So neither the number of threads nor where the cuts fall
   changes a bit.
   ============================================================================================== */

#define HETI_MAX_RUNNERS 128
#define HETI_RANGE_WORK 16384 /* elements below which a range is not worth its start */

typedef union heti_partial {
    uint32_t top[2];
    het_sum sum;
} heti_partial;
#define HETI_PARTIAL HETI_CAST(int64_t, sizeof(heti_partial) / sizeof(uint32_t)) /* from one's top to the next one's */

typedef struct heti_range_job {
    heti_range_kernel kernel;
    const void *args;
    int64_t count, unit;
    heti_partial *partial; /* [runners] or NULL */
} heti_range_job;

static void heti_range_work(void *arg, int64_t runner, int64_t begin, int64_t end) {
    const heti_range_job *job = HETI_CAST(const heti_range_job *, arg);
    job->kernel(job->args, begin * job->unit, heti_min(job->count, end * job->unit), job->partial != NULL ?
                job->partial + runner : NULL);
}

/* Runs a kernel over [0, count), cut at multiples of `unit`; `work` elements stand behind one of
   the count. Returns the number of runners, at most HETI_MAX_RUNNERS. */
static int64_t heti_range_run(heti_cpu *cpu, heti_range_kernel kernel, const void *args, int64_t count, int64_t unit,
                              int64_t work, heti_partial *partial) {
    heti_range_job job = { kernel, args, count, unit, partial };
    const int64_t runners = heti_min(cpu->config.threads, HETI_MAX_RUNNERS);
    if (partial != NULL) HETI_CLEAR(partial, runners);
    return heti_cpu_run(cpu, runners, heti_ceil_div(count, unit), heti_ceil_div(HETI_RANGE_WORK,
        heti_max(1, unit * work)), heti_range_work, &job);
}

static het_result heti_cpu_shape(heti_cpu *cpu, const char *op, int valid, int64_t rows, int64_t width) {
    if (valid) return HET_OK;
    return heti_fail(&cpu->error, HET_ERR_INVALID, "cpu %s: impossible shape, %d rows of %d", op, rows, width);
}

/* Columns of one unit: kernels over columns read all rows, so a thread's columns lie together.
   Fewer than a page of a row (width 768, two threads) took two threads twice as long as one. */
static int64_t heti_column_unit(const heti_cpu *cpu, int64_t width) {
    return heti_max(1024, heti_ceil_div(width, 16 * HETI_CAST(int64_t, cpu->config.threads)) * 16);
}

/* ---- ops that are one kernel ---- */

/* What an op runs over, and where what its ranges add up goes. */
typedef struct heti_range {
    int64_t rows, width; /* elements are rows of width 1 */
    int valid;
    const het_gradient *gradient[2];
    het_sum *sum;
} heti_range;

static heti_range heti_make_range(int valid, int64_t rows, int64_t width) {
    const heti_range e = { rows, width, valid && rows >= 0 && width > 0, { NULL, NULL }, NULL };
    return e;
}

static heti_range heti_range_of(const het_op *op) {
    const het_norm_args *norm = &op->u.norm;
    const het_rotary_args *rotary = &op->u.rotary;
    const het_cross_entropy_args *loss = &op->u.cross_entropy;
    heti_range e;
    switch (op->kind) {
    case HET_OP_NORM_FORWARD:
    case HET_OP_NORM_BACKWARD_INPUT: return heti_make_range(1, norm->rows, norm->width);
    case HET_OP_NORM_BACKWARD_WEIGHT:
        e = heti_make_range(norm->rows_per_token > 0, norm->rows, norm->width);
        e.gradient[0] = norm->dgain;
        e.gradient[1] = norm->dbias;
        return e;
    case HET_OP_ROTARY_FORWARD:
    case HET_OP_ROTARY_BACKWARD:
        return heti_make_range(rotary->rotary >= 0 && rotary->rotary <= rotary->head_size, rotary->rows,
                                rotary->heads * rotary->head_size);
    case HET_OP_EMBEDDING_FORWARD: return heti_make_range(1, op->u.embedding.rows, op->u.embedding.width);
    case HET_OP_CROSS_ENTROPY:
        e = heti_make_range(1, loss->rows, loss->vocab);
        e.sum = loss->loss;
        return e;
    case HET_OP_ACCUMULATE:
        e = heti_make_range(1, op->u.accumulate.count, 1);
        e.gradient[0] = op->u.accumulate.gradient;
        return e;
    case HET_OP_SUM_SQUARES:
        e = heti_make_range(1, heti_ceil_div(op->u.sum_squares.count, 1024), 1024);
        e.sum = op->u.sum_squares.sum;
        return e;
    case HET_OP_ADAMW: return heti_make_range(1, op->u.adamw.count, 1);
    case HET_OP_MUON_MOMENTUM:
    case HET_OP_MUON_UPDATE: return heti_make_range(1, op->u.muon.rows, op->u.muon.columns);
    case HET_OP_NORMAL: return heti_make_range(1, heti_ceil_div(op->u.normal.count, 32), 32);
    case HET_OP_FEEDBACK: return heti_make_range(1, op->u.feedback.count, 1);
    case HET_OP_SCALE: return heti_make_range(1, op->u.elements.count, 1);
    case HET_OP_EXPAND:
        return heti_make_range(1, op->u.expand.rows * op->u.expand.blocks, HETRAIN_INT8_BLOCK);
    default: return heti_make_range(1, op->u.activation.count, 1);
    }
}

static het_result heti_cpu_range(heti_cpu *cpu, const het_op *op) {
    const heti_range_op *row = cpu->rows->ops;
    const heti_range e = heti_range_of(op);
    heti_partial partial[HETI_MAX_RUNNERS];
    int64_t runners;
    while (row->kernel != NULL && row->kind != op->kind) row++;
    if (row->kernel == NULL)
        return heti_fail(&cpu->error, HET_ERR_UNSUPPORTED, "cpu: op %d", HETI_CAST(int64_t, op->kind));
    HETI_TRY(heti_cpu_shape(cpu, row->name, e.valid, e.rows, e.width));
    if (row->unit > 0)
        runners = heti_range_run(cpu, row->kernel, &op->u, e.rows, row->unit, row->work * e.width, partial);
    else runners = heti_range_run(cpu, row->kernel, &op->u, e.width, heti_column_unit(cpu, e.width), e.rows, partial);
    for (int i = 0; i < 2; i++) heti_join_top(e.gradient[i], &partial->top[i], HETI_PARTIAL, runners);
    for (int64_t r = 0; r < runners && e.sum != NULL; r++) heti_sum_join(e.sum, &partial[r].sum);
    return HET_OK;
}

/* ---- attention ----
   A unit is (sequence, key/value head), in the forward also a block of rows: different units write
   different rows of o, dq, dk, dv. Each runner has a piece of the workspace. With a bias a unit is
   a sequence, and plain loops. */

typedef struct heti_attention_job {
    const heti_row_kernels *rows;
    const het_attention_args *a;
    size_t bytes;
    int backward;
} heti_attention_job;

/* The units [begin, end); returns how many there are altogether, and only that where `workspace` is
   NULL. */
static int64_t heti_attention_units(const heti_attention_job *job, int64_t begin, int64_t end, void *workspace) {
    const het_attention_args *a = job->a;
    int64_t unit = 0;
    for (int64_t s = 0; s < a->view->sequences; s++) {
        if (a->bias != NULL) {
            if (workspace != NULL && unit >= begin && unit < end) heti_ref_attend_sequence(a, s, job->backward);
            unit++;
            continue;
        }
        const int64_t first = heti_max(a->view->host_sequence_start[s], a->view->row_begin);
        const int64_t last = heti_min(a->view->host_sequence_start[s + 1], a->view->row_end);
        const int64_t rows = (last - first) * (a->heads / a->kv_heads),
                      step = job->backward ? rows : HETI_ATTENTION_ROWS;
        for (int64_t head = 0; rows > 0 && head < a->kv_heads; head++) {
            for (int64_t from = 0; from < rows; from += step, unit++) {
                if (workspace == NULL || unit < begin || unit >= end) continue;
                if (job->backward) job->rows->attention_backward(a, s, head, workspace);
                else job->rows->attention_forward(a, s, head, from, heti_min(rows, from + step), workspace);
            }
        }
    }
    return unit;
}

static void heti_attention_work(void *arg, int64_t runner, int64_t begin, int64_t end) {
    const heti_attention_job *job = HETI_CAST(const heti_attention_job *, arg);
    (void)heti_attention_units(job, begin, end, HETI_CAST(char *, job->a->workspace) + HETI_CAST(size_t, runner) *
                               job->bytes);
}

static het_result heti_cpu_attention(heti_cpu *cpu, const het_attention_args *a, int backward) {
    heti_attention_job job;
    int64_t runners;
    HETI_TRY(heti_cpu_shape(cpu, "attention", a->kv_heads > 0 && a->heads > 0 && a->heads % a->kv_heads == 0 &&
                            a->head_size > 0 && a->window >= 0
                            && (a->causal || (a->view->row_begin == 0 && a->view->row_end == a->view->tokens)),
                            a->view->row_end - a->view->row_begin, a->heads * a->head_size));
    job.rows = cpu->rows;
    job.a = a;
    job.bytes = heti_attention_bytes(a->head_size);
    job.backward = backward;
    runners = heti_min(cpu->config.threads, HETI_CAST(int64_t, a->workspace_size / job.bytes));
    (void)heti_cpu_run(cpu, runners, heti_attention_units(&job, 0, 0, NULL), 1, heti_attention_work, &job);
    return HET_OK;
}

/* ---- embedding ---- */

/* Merge sort, bottom up. Keys are distinct (the row is part of them). */
static void heti_sort_keys(uint64_t *key, uint64_t *spare, int64_t count) {
    uint64_t *from = key, *to = spare;
    for (int64_t width = 1; width < count; width *= 2) {
        for (int64_t begin = 0; begin < count; begin += 2 * width) {
            const int64_t middle = heti_min(begin + width, count), end = heti_min(begin + 2 * width, count);
            int64_t left = begin, right = middle;
            for (int64_t i = begin; i < end; i++)
                to[i] = left < middle && (right >= end || from[left] < from[right]) ? from[left++] : from[right++];
        }
        uint64_t *last = from;
        from = to;
        to = last;
    }
    if (from != key) HETI_COPY(key, from, count);
}

/* Workspace: keys [rows], a second array of them for the sort, one term [width]. id: [n], entry of
   each token of the micro-batch. */
static void heti_cpu_scatter(heti_cpu *cpu, const het_embedding_args *a, const het_gradient *gradient,
                             const int32_t *id) {
    const het_view *view = a->view;
    heti_partial partial[HETI_MAX_RUNNERS];
    heti_scatter scatter;
    uint64_t *key = HETI_CAST(uint64_t *, a->workspace), *spare = key + a->rows;
    if (!heti_ref_trains(gradient)) return;
    for (int64_t r = 0; r < a->rows; r++)
        key[r] = HETI_CAST(uint64_t, id[view->row_begin + r]) << 32 | HETI_CAST(uint64_t, r);
    for (int64_t g = view->granule_begin; g < view->granule_end; g++) {
        const int64_t first = heti_granule_row(view, g), last = heti_granule_row(view, g + 1);
        heti_sort_keys(key + first, spare, last - first);
    }
    scatter.view = view;
    scatter.gradient = gradient;
    scatter.width = a->width;
    scatter.dy = a->dy;
    scatter.key = key;
    scatter.term = HETI_CAST(float *, HETI_CAST(void *, spare + a->rows));
    heti_join_top(gradient, partial->top, HETI_PARTIAL,
                  heti_range_run(cpu, cpu->rows->scatter, &scatter, a->width, heti_column_unit(cpu, a->width),
                                 2 * a->rows, partial));
}

static het_result heti_cpu_embedding_backward_weight(heti_cpu *cpu, const het_embedding_args *a) {
    HETI_TRY(heti_cpu_shape(cpu, "embedding", a->rows >= 0 && a->width > 0, a->rows, a->width));
    heti_cpu_scatter(cpu, a, a->dtable, a->view->token);
    heti_cpu_scatter(cpu, a, a->dpositions, a->view->position);
    return HET_OK;
}

/* ---- dropout: y = a + drop(x), or y = drop(x) where `a` is NULL ---- */

static het_result heti_cpu_dropout(heti_cpu *cpu, const het_dropout_args *a) {
    const int64_t count = a->rows * a->width;
    HETI_TRY(heti_cpu_shape(cpu, "dropout", a->rows >= 0 && a->width > 0, a->rows, a->width));
    if (a->probability > 0.0f) (void)heti_range_run(cpu, cpu->rows->dropout, a, a->rows, 1, 8 * a->width, NULL);
    else if (a->a != NULL) (void)heti_range_run(cpu, cpu->rows->sum, a, count, 16, 1, NULL);
    else if (a->y != a->x) heti_cpu_move(cpu, a->y, a->x, HETI_CAST(size_t, count) * sizeof(float));
    return HET_OK;
}

static het_result heti_cpu_dropout_backward(heti_cpu *cpu, const het_dropout_args *a) {
    het_dropout_args alone = *a;
    alone.a = NULL;
    return heti_cpu_dropout(cpu, &alone);
}

/* y += x */
static het_result heti_cpu_add(heti_cpu *cpu, const het_elements_args *a) {
    het_dropout_args sum;
    memset(&sum, 0, sizeof sum);
    sum.rows = a->count;
    sum.width = 1;
    sum.a = sum.y = a->y;
    sum.x = a->x;
    return heti_cpu_dropout(cpu, &sum);
}

/* ---- the table ---- */

static het_result heti_cpu_op(void *self, het_queue *queue, const het_op *op) {
    heti_cpu *cpu = HETI_CAST(heti_cpu *, self);
    switch (op->kind) {
    case HET_OP_LINEAR_FORWARD: return heti_cpu_linear(cpu, &op->u.linear, 1);
    case HET_OP_LINEAR_BACKWARD_INPUT: return heti_cpu_linear(cpu, &op->u.linear, 0);
    case HET_OP_LINEAR_BACKWARD_WEIGHT: return heti_cpu_linear_backward_weight(cpu, &op->u.linear);
    case HET_OP_ATTENTION_FORWARD: return heti_cpu_attention(cpu, &op->u.attention, 0);
    case HET_OP_ATTENTION_BACKWARD: return heti_cpu_attention(cpu, &op->u.attention, 1);
    case HET_OP_EMBEDDING_BACKWARD_WEIGHT: return heti_cpu_embedding_backward_weight(cpu, &op->u.embedding);
    case HET_OP_DROPOUT_FORWARD: return heti_cpu_dropout(cpu, &op->u.dropout);
    case HET_OP_DROPOUT_BACKWARD: return heti_cpu_dropout_backward(cpu, &op->u.dropout);
    case HET_OP_ADD: return heti_cpu_add(cpu, &op->u.elements);
    case HET_OP_CLEAR: heti_cpu_move(cpu, op->u.copy.to, NULL, op->u.copy.size); return HET_OK;
    case HET_OP_VERDICT:
    case HET_OP_COPY_IN:
    case HET_OP_COPY_OUT:
    case HET_OP_COPY: return heti_ref_run(self, queue, op);
    default: return heti_cpu_range(cpu, op);
    }
}

static size_t heti_cpu_workspace(void *self, const het_op *op) {
    const heti_cpu *cpu = HETI_CAST(const heti_cpu *, self);
    switch (op->kind) {
    case HET_OP_LINEAR_FORWARD:
    case HET_OP_LINEAR_BACKWARD_INPUT:
    case HET_OP_LINEAR_BACKWARD_WEIGHT: return heti_linear_workspace_of(cpu, op->kind, &op->u.linear);
    case HET_OP_NORM_BACKWARD_WEIGHT: return HETI_CAST(size_t, 2 * op->u.norm.width) * sizeof(float);
    case HET_OP_EMBEDDING_BACKWARD_WEIGHT:
        return HETI_CAST(size_t, 2 * op->u.embedding.rows) * sizeof(uint64_t) +
            HETI_CAST(size_t, op->u.embedding.width) * sizeof(float);
    case HET_OP_ATTENTION_FORWARD:
    case HET_OP_ATTENTION_BACKWARD:
        return HETI_CAST(size_t, cpu->config.threads) * heti_attention_bytes(op->u.attention.head_size);
    default: return 0;
    }
}

/* All ops but those of heti_joins. A final sum keeps all terms in packed rows. */
#define HETI_FINAL_ROWS 1024
static int32_t heti_cpu_supports(void *self, const het_op *op) {
    const het_gradient *dw = op->kind == HET_OP_LINEAR_BACKWARD_WEIGHT ? op->u.linear.part[0].dw : NULL;
    (void)self;
    if (op->bf16 || heti_joins(op)) return 0;
    return dw == NULL || !dw->final || op->u.linear.rows <= HETI_FINAL_ROWS;
}

static const het_device_iface heti_cpu_iface = {
    HETRAIN_DEVICE_VERSION, "cpu", 1, heti_cpu_create, heti_cpu_destroy, heti_cpu_last_error, heti_host_alloc,
    heti_host_free, heti_cpu_supports, heti_cpu_workspace, heti_cpu_op, NULL, NULL
};

HETRAIN_API const het_device_iface *het_cpu_device(void) { return &heti_cpu_iface; }

#ifdef __cplusplus
}
#endif
#endif /* not a pass */
