/* hetrain_files.h 0.2.0: files that other programs made or read. A companion of hetrain.h that uses
   only its public API. Needs hetrain.h and hetrain_text.h beside it.

   USE
       #define HETRAIN_IMPLEMENTATION           in one source file of the program, before the
                                                includes; the other files include them without.
       #define HETRAIN_FILES_IMPLEMENTATION
       #include "hetrain.h"
       #include "hetrain_files.h"
   The two implementations may stand in one file or in two. Needs libc; no libm, no threads. A
   program that saves what it trained copies these three.

   WHAT IT DOES
   A safetensors file is a table of named tensors and their data. Reading proves every rule of the
   format before it gives out anything.

       het_safetensors_read(&reader, 0, NULL, &file, &error)  the table of a file
       het_safetensors_get(file, &reader, het_safetensors_find(file, name, length), 0, count, to, &error)
   An adapter is what het_model_desc.lora_rank adds to a model, in the two files of PEFT.

       het_adapter_from_json(json, size, &desc.model, base, sizeof base, &error)  then het_create, het_load_weights,
       het_adapter_load(ctx, &reader, &error)                                     factors on top of weights
   programs/generate.c, evaluate.c and merge.c use them.

   A checkpoint is a directory that a run can die on: written beside, synced, renamed, checked byte
   by byte before it is loaded.

       het_checkpoint_reserve(checkpoint, ctx, option, options, NULL, 0, &error)  memory, before the first step
       het_checkpoint_take(checkpoint, ctx, option, options, NULL, 0, &error)     a copy, between two steps
       het_checkpoint_write(checkpoint, &error)                                   on any thread
       het_checkpoint_find(&disk, "run", NULL, &saved, &error)                    the newest good one
       het_checkpoint_load(saved, ctx, HET_NO, &error)                            on any plan
   programs/train.c is the same as a program.

   OPTIONS   (macros, defined before the include)
       HETRAIN_FILES_IMPLEMENTATION      one file of the program has it, and gets the code
       HETRAIN_STATIC                    as in hetrain.h: all functions static, a private copy
       HETRAIN_NO_DEFAULT_ALLOCATOR      no malloc: calls that allocate must get an allocator
       HETRAIN_NO_STDIO                  no stdio.h; no het_folder_open
       HETRAIN_ASSERT(condition)         ((void)0): checks of the header's own reasoning, never of
                                         arguments

   MEMORY, ERRORS, THREADS
   What a call allocates for itself it gives back before it returns. Every call that can fail
   returns a het_result; *error names the file, its byte, the tensor or key, the value and the
   limit. Outputs are written only on success. No state is kept between calls. Nothing is printed
   and nothing exits.

   DETERMINISM
   A function's output depends on its arguments alone.

   FUNCTIONS
       >>safetensors_api het_element_name het_element_bits het_safetensors_read het_safetensors_make
                         het_safetensors_write het_safetensors_free het_safetensors_find
                         het_safetensors_value het_safetensors_get het_safetensors_put
       >>folder_api      het_folder_is_name het_folder_open het_folder_close
       >>weights_api     het_tensor_count het_tensor_get_info het_tensor_read het_tensor_write
                         het_save_weights het_save_state het_load_weights het_load_state
                         het_model_from_json het_model_to_json het_model_to_config
                         het_ends_from_json het_save_folder het_load_folder het_model_from_folder
                         het_model_fits het_model_fits_folder
       >>adapter_api     het_adapter_from_json het_adapter_to_json het_adapter_load het_adapter_save
                         het_adapter_merge
       >>checkpoint_api  het_checkpoint_create het_checkpoint_destroy het_checkpoint_reserve
                         het_checkpoint_bytes het_checkpoint_take het_checkpoint_write
                         het_checkpoint_export het_checkpoint_find het_checkpoint_free
                         het_checkpoint_option het_checkpoint_file het_checkpoint_load
       >>gguf_api        het_save_gguf (with hetrain_tokenizer.h)

   CONTENTS   (tags to search for)
   public API:
       >>safetensors_api tables of tensors in a file: reading, making, writing
       >>folder_api      files beside each other
       >>weights_api     weights, state, config.json, directories of Hugging Face
       >>checkpoint_api  runs that survive: checkpoints on disk
       >>adapter_api     low-rank factors: PEFT's files, merging
       >>gguf_api        models for llama.cpp
   implementation:
       >>config          includes and compiler differences
       >>safetensors     tables of tensors
       >>config_json     settings of a model in config.json
       >>folder          directories by way of the C library
       >>weights         weights and state of a context
       >>directory       directories of Hugging Face, shards
       >>gguf            models for llama.cpp
       >>adapter         low-rank factors
       >>checkpoint      writing, finding and loading checkpoints
*/

#ifndef HETRAIN_FILES_H
#define HETRAIN_FILES_H

#ifndef HETRAIN_H
#include "hetrain.h"
#endif
#include "hetrain_text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- >>safetensors_api: tables of tensors in a file ---------------------------------------------
   A safetensors file is a u64 N, N bytes of JSON and the data, little-endian
   (github.com/huggingface/safetensors). The JSON gives every tensor a type, a shape and its bytes
   within the data, and "__metadata__" pairs of text. het_safetensors_read proves the whole table
   first: N is at most 100,000,000 and inside the file; the JSON is strict (RFC 8259, UTF-8, no
   deeper than 32) with nothing behind it but white space; a tensor has dtype, shape and
   data_offsets exactly once (other keys are stepped over), at most 8 dimensions below 2^48, a
   product that does not overflow, and as many bytes as type and shape need; the tensors fill the
   data from the first byte to the last without gap or overlap; no name comes twice or has more than
   255 bytes. Stricter than the reference are depth, dimensions and names. Tensors without elements
   are legal. Time n log n in the tensors; memory at most 7 times the JSON beside the JSON
   itself. */

/* Types in the order of the reference, which is how its writer sorts. (name in the file, bits of an
   element) */
#define HETRAIN_ELEMENTS(X) \
    X(BOOL, 8) X(F4, 4) X(F6_E2M3, 6) X(F6_E3M2, 6) X(U8, 8) X(I8, 8) X(F8_E5M2, 8) X(F8_E4M3, 8) X(F8_E8M0, 8) \
    X(F8_E4M3FNUZ, 8) X(F8_E5M2FNUZ, 8) X(I16, 16) X(U16, 16) X(F16, 16) X(BF16, 16) X(I32, 32) X(U32, 32) \
    X(F32, 32) X(C64, 64) X(F64, 64) X(I64, 64) X(U64, 64)
#define HETRAIN_ELEMENT_ENUM(name, bits) HET_ELEMENT_##name,
typedef enum het_element { HETRAIN_ELEMENTS(HETRAIN_ELEMENT_ENUM) HET_ELEMENTS } het_element;
#undef HETRAIN_ELEMENT_ENUM

#define HETRAIN_FILE_DIMENSIONS 8
typedef struct het_safetensor {
    const char *name;                 /* followed by a 0, and may hold others */
    size_t name_length;               /* 0 .. 255 */
    het_element element;
    int32_t rank;                     /* 0: a scalar */
    int64_t shape[HETRAIN_FILE_DIMENSIONS];
    uint64_t begin, end;              /* its bytes, counted from the first of the data */
    uint64_t at;                      /* byte of the file where its description stands; 0 where the table was made */
    int64_t number;                   /* of its description, in the file or in the list that the table was made from */
} het_safetensor;

typedef struct het_pair {             /* of the metadata; both are followed by a 0, and may hold others */
    const char *key, *value;
    size_t key_length, value_length;
} het_pair;

typedef struct het_safetensors {
    int64_t tensors, pairs;
    const het_safetensor *tensor;     /* [tensors] in the order of their data */
    const int64_t *by_name;           /* [tensors] numbers in tensor[], in the order of names' bytes */
    const het_pair *pair;             /* [pairs] as they stand in the file. Where a key comes twice the last counts */
    uint64_t data;                    /* first byte of the data in the file: 8 + N */
    uint64_t size;                    /* bytes of the file */
    het_allocator allocator;          /* of this struct, its arrays and texts: one block of `block` bytes */
    size_t block;
} het_safetensors;

/* as in the file; NULL: no such type. Threads: any. */
HETRAIN_API const char *het_element_name(het_element element);
HETRAIN_API int64_t het_element_bits(het_element element);            /* 0: no such type. Threads: any. */

/* Reads and checks the table of a file, not its data; from->size is believed. most: tensors
   accepted, 0: 65,536. allocator NULL: malloc. HET_ERR_FORMAT: the error names the byte of the
   file, the tensor and the rule. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_safetensors_read(const het_reader *from, int64_t most,
                                                               const het_allocator *allocator, het_safetensors **file,
                                                               het_error *error);
/* The table of a file to be written: of tensor[tensors] the names, types and shapes count. They are
   put in order as the reference does, by type, the last in the list above first, then by name, and
   get their places. The texts are copied. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_safetensors_make(const het_safetensor *tensor, int64_t tensors,
                                                               const het_pair *pair, int64_t pairs,
                                                               const het_allocator *allocator, het_safetensors **file,
                                                               het_error *error);
/* Writes what comes before the data: 8 + N bytes, a multiple of 8, as the reference writes them.
   The data of all tensors, in the order of the table, make the rest of the file. Only for tables
   from het_safetensors_make. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_safetensors_write(const het_safetensors *file, const het_writer *to,
                                                                het_error *error);
HETRAIN_API void het_safetensors_free(het_safetensors *file);         /* NULL is fine. Threads: any. */
/* The tensor of this name, or NULL. log n. Threads: any. */
HETRAIN_API const het_safetensor *het_safetensors_find(const het_safetensors *file, const char *name, size_t length);
/* The value of a metadata key, its length (may be NULL); NULL: there is none. Threads: any. */
HETRAIN_API const char *het_safetensors_value(const het_safetensors *file, const char *key, size_t *length);
/* Elements [first, first + count) of an F32, F16 or BF16 tensor as floats, exact. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_safetensors_get(const het_safetensors *file, const het_reader *from,
                                                              const het_safetensor *tensor, int64_t first,
                                                              int64_t count, float *to, het_error *error);
/* Writes floats as elements of type F32, F16 or BF16, rounded to nearest even (F16: beyond 65,504
   to infinity, as torch does). Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_safetensors_put(const het_writer *to, het_element element,
                                                              const float *from, int64_t count, het_error *error);

/* ---- >>folder_api: files beside each other ------------------------------------------------------
   What reads or writes several files does it through a table of four calls; het_folder_open fills
   one for a directory. */
typedef struct het_folder {
    /* A file of the folder for reading. HET_ERR_IO: it cannot be opened. close takes what open
       gave. */
    het_result (*open)(void *user, const char *name, het_reader *reader, het_error *error);
    void (*close)(void *user, het_reader *reader);
    /* A new file. finish takes what create gave: keep 1 puts it in place of one of that name, 0
       removes it. */
    het_result (*create)(void *user, const char *name, het_writer *writer, het_error *error);
    het_result (*finish)(void *user, het_writer *writer, int keep, het_error *error);
    void *user;
} het_folder;

/* 1: a name that a file of another may have in a folder: 1 to 255 bytes, printable, no / \ or :,
   and it does not begin with a dot. Threads: any. */
HETRAIN_API int het_folder_is_name(const char *name, size_t length);
#ifndef HETRAIN_NO_STDIO
/* The directory `path`, which must exist and is copied. New files are written as NAME.tmp and
   renamed. allocator NULL: malloc. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_folder_open(const char *path, const het_allocator *allocator,
                                                          het_folder *folder, het_error *error);
HETRAIN_API void het_folder_close(het_folder *folder);                /* Threads: any. */
#endif

/* ---- >>weights_api: weights and state of a context ----------------------------------------------
   Weights lie in files under the names, shapes and layouts of Hugging Face: GPT-2's matrices
   transposed (Conv1D) with q, k and v side by side, NeoX's q, k and v head by head; Llama's and
   Qwen's as they are, q and k in the order of transformers' rotary positions. State holds the
   optimizer's slots, "<parameter>/<slot>", the weights of local heads, which are no part of the
   model's (het_model_desc.local_loss), and in the metadata step, seed, granule, exponents of
   the exact sums, recent steps (het_loss_history) and options: what decides the bits of the next
   step. Weights and state loaded into a context of the same description continue bit for bit, on
   any plan. Errors are the context's: het_last_error. With several processes all make the same
   calls; a writer that keeps nothing will do on all but one. */

typedef struct het_tensor_info {
    char name[96];
    int32_t rank;
    int64_t shape[4];
    int64_t count;
} het_tensor_info;
HETRAIN_API int64_t het_tensor_count(const het_ctx *ctx);             /* Threads: owner. */
/* Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_tensor_get_info(const het_ctx *ctx, int64_t index, het_tensor_info *info);
/* Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_tensor_read(het_ctx *ctx, int64_t index, het_array what, float *to);
/* Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_tensor_write(het_ctx *ctx, int64_t index, het_array what,
                                                           const float *from);

/* One safetensors file each. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_save_weights(het_ctx *ctx, const het_writer *to); /* f32 */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_save_state(het_ctx *ctx, const het_writer *to);
/* F32, F16 and BF16 tensors are read. Here and in the other calls that load, all values must be
   finite (HET_ERR_DATA names tensor, element and value) unless het_desc.guard.nonfinite says
   otherwise. Buffers that older versions of transformers saved are stepped over. Where a tied
   model's file holds a head as well, it must be the embedding once more. Nothing is changed unless
   the whole file fits the model; if reading then fails midway, the context refuses to compute until
   a load has succeeded. het_load_weights and het_load_folder set the fingerprint (het_set_base):
   XXH64 of each tensor's name and of its values as F32, each the seed of the next, in the model's
   order; types and files that hold the same values give the same. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_load_weights(het_ctx *ctx, const het_reader *from);
HETRAIN_API HETRAIN_MUST_CHECK het_result het_load_state(het_ctx *ctx, const het_reader *from);

/* Settings of a model from a Hugging Face config.json. HET_ERR_UNSUPPORTED: the model needs
   something that is not done here. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_model_from_json(const char *text, size_t length, het_model_desc *model,
                                                              het_error *error);
/* Writes a config.json; *length gets the bytes needed (without the final 0), also when capacity is
   too small (HET_ERR_LIMIT). A model that transformers has no class for gets a model_type that it
   refuses ("hetrain_gpt2"). Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_model_to_json(const het_model_desc *model, char *text, size_t capacity,
                                                            size_t *length);
/* The same for weights of this type, with the keys of `base`, the config.json that the model came
   from, which do not describe it: ids of special tokens, settings of generation and whatever else
   there is. base NULL: none. HET_ERR_FORMAT: base is no JSON object. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_model_to_config(const het_model_desc *model, het_element element,
                                                              const char *base, size_t base_length, char *text,
                                                              size_t capacity, size_t *length);
/* The tokens that end a text: eos_token_id, a number or a list, of a generation_config.json or
   config.json. *count: how many differ and are in [0, vocab), all of them in id; above capacity:
   there are more, and id has the first. Ids beyond the vocabulary are never drawn. HET_ERR_FORMAT:
   no JSON object, the key twice, or what is no id. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_ends_from_json(const char *text, size_t length, int64_t vocab,
                                                             int32_t *id, int64_t capacity, int64_t *count,
                                                             het_error *error);

typedef struct het_save_desc {
    uint32_t start_canary;
    het_element element;              /* F32 (0), F16 or BF16. A value that F16 cannot hold is an error */
    uint64_t shard_bytes;             /* of tensors in a file at most, if one tensor is not larger; 0: one file.
                                         At most 10,000 files; not beside a model.safetensors */
    const char *base;                 /* [base_length] config.json that the model came from, for
                                         het_model_to_config; NULL: none */
    size_t base_length;
    const het_allocator *allocator;   /* of what is needed while the call runs, all its pieces
                                         together at most 8 bytes for each element of the largest
                                         tensor, or 16 of a parameter that is several of them
                                         (experts), 2 KiB for each tensor, base_length and 64 KiB;
                                         NULL: the context's */
    uint32_t end_canary;
} het_save_desc;
/* A directory as transformers has it: config.json and model.safetensors, or shards and
   model.safetensors.index.json. A file is left in place until the new one is written; shards over
   shards do not load until all are. folder NULL: this process takes part and writes nothing. desc
   NULL: defaults. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_save_folder(het_ctx *ctx, const het_folder *folder,
                                                          const het_save_desc *desc);
/* Weights from such a directory. Every tensor of every shard must be in the index under the name of
   its file. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_load_folder(het_ctx *ctx, const het_folder *folder);
/* The settings in its config.json. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_model_from_folder(const het_folder *folder, het_model_desc *model,
                                                                het_error *error);
/* Holds a model's sizes against the shapes of its matrices in a file or such a directory, before
   het_create takes memory for it: every layer must have them, once. HET_ERR_FORMAT: the error names
   the key of config.json, its value, the tensor and its shape; HET_ERR_UNSUPPORTED: the weights are
   quantised. Takes memory for the tables of the files alone, time for their tensors. allocator
   NULL: malloc. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_model_fits(const het_model_desc *model, const het_reader *from,
                                                         const het_allocator *allocator, het_error *error);
HETRAIN_API HETRAIN_MUST_CHECK het_result het_model_fits_folder(const het_model_desc *model, const het_folder *folder,
                                                                const het_allocator *allocator, het_error *error);

/* ---- >>adapter_api: low-rank adapters in PEFT's layout ------------------------------------------
   The factors of het_model_desc.lora_rank as two files: adapter_config.json, and
   adapter_model.safetensors with the tensors base_model.model.MODULE.lora_A.weight [r][in] and
   .lora_B.weight [out][r]. GPT-2 and NeoX have q, k and v in one module; a context has factors for
   each, so that module is written with rank 3 r and 3 alpha: the three A below each other, the
   three B as blocks along the diagonal. A file where the module has rank r, one A for all three, is
   read too: each of the three begins with it. */

/* Sets lora_rank, lora_alpha and lora_targets of a model and completes it. base: gets
   base_model_name_or_path with a 0 behind, cut to capacity; may be NULL. HET_ERR_UNSUPPORTED: no
   plain LoRA, ranks that differ, single layers, modules not of layers' matrices. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_adapter_from_json(const char *text, size_t length, het_model_desc *model,
                                                                char *base, size_t capacity, het_error *error);
/* The adapter_config.json of a model; base: name or path of that it belongs to. *length: the bytes
   needed, without the final 0, also when capacity is too small (HET_ERR_LIMIT). Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_adapter_to_json(const het_model_desc *model, const char *base, char *text,
                                                              size_t capacity, size_t *length);
/* F32, F16 and BF16 tensors. Nothing is changed unless the whole file fits the context's model, and
   its metadata base_fingerprint, if it has one, the context's weights (HET_ERR_INVALID;
   het_set_base(ctx, 0) before allows any); if it cannot be read once more then, the error says that
   factors are partly overwritten. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_adapter_load(het_ctx *ctx, const het_reader *from, het_error *error);
/* In f32. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_adapter_save(het_ctx *ctx, const het_writer *to, het_error *error);
/* W becomes W + (alpha / r) B A, rounded once, and B becomes 0: the model stays what it was, and
   its own weights say it all. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_adapter_merge(het_ctx *ctx, het_error *error);

/* ---- >>checkpoint_api: runs that survive --------------------------------------------------------
   A checkpoint is a directory step-00000123 with model.safetensors (of a model with low-rank
   factors adapter_model.safetensors instead, which goes on top of weights loaded before) and
   config.json, as transformers and PEFT read them, optimizer.safetensors, and state.json: step,
   seed, granule, exponents of the exact sums, the caller's options, and the XXH64 (seed 0) of every
   MiB of the other files; its own last line is the XXH64 of what stands before. None of it depends
   on plan, schedule, ranks or processes. A new one is written as saving.tmp, synced, renamed,
   and then named in the file `latest`; older ones go afterwards. So a directory called step-... is
   whole whatever happens while it is written, and one that a disk has damaged later is found out
   before anything is loaded.
   het_checkpoint_take copies weights and state at a step boundary; het_checkpoint_write, on any
   thread, brings them to disk meanwhile. */

/* File work (programs/disk.h has it for POSIX). Calls give 0 or the system's number of an error;
   `again` is that of a call that was interrupted and may be repeated (at most 100 times), `exists`
   what rename gives where a directory with files stands. Paths are the directory given, '/' and
   names. */
typedef struct het_disk {
    /* writing 1: a new, empty file in place of any other */
    int (*open)(void *user, const char *path, int writing, void **file);
    int (*size)(void *user, void *file, uint64_t *size);
    /* *done 0: the end; else 1 .. size */
    int (*read)(void *user, void *file, uint64_t offset, void *to, size_t size, size_t *done);
    /* appends 1 .. size bytes */
    int (*write)(void *user, void *file, const void *from, size_t size, size_t *done);
    /* returns when the bytes outlast a loss of power */
    int (*sync)(void *user, void *file);
    int (*close)(void *user, void *file);                                    /* called once, whatever it gives */
    int (*sync_directory)(void *user, const char *path);                     /* so do names that appeared or went */
    int (*rename)(void *user, const char *from, const char *to);             /* in one step; a file `to` is replaced */
    int (*remove)(void *user, const char *path);                             /* a file, or an empty directory */
    int (*make_directory)(void *user, const char *path);
    /* until each gives nonzero, which it gives */
    int (*list)(void *user, const char *path, int (*each)(void *list, const char *name), void *list);
    const char *(*text)(void *user, int number);                             /* for messages */
    /* [capacity] the path that links lead to from this one, there or not, itself where it is none;
       a file is put in place of that. NULL: links are replaced */
    int (*follow)(void *user, const char *path, char *to, size_t capacity);
    int again, absent, exists;                                               /* POSIX: EINTR, ENOENT, EEXIST */
    void *user;
} het_disk;

typedef struct het_checkpoint het_checkpoint;
typedef struct het_checkpoint_desc {
    uint32_t start_canary;
    const het_disk *disk;             /* required, copied */
    const char *directory;            /* of the checkpoints; must exist. Required, copied, at most 1,000 bytes */
    int64_t keep;                     /* checkpoints kept: 2 */
    const char *base;                 /* [base_length] config.json that the model came from, for
                                         het_model_to_config; NULL: none. Not copied */
    size_t base_length;
    het_allocator allocator;
    uint32_t end_canary;
} het_checkpoint_desc;

/* Memory for one checkpoint is taken by het_checkpoint_reserve, or else at the first
   het_checkpoint_take, and kept. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_checkpoint_create(const het_checkpoint_desc *desc,
                                                                het_checkpoint **checkpoint, het_error *error);
HETRAIN_API void het_checkpoint_destroy(het_checkpoint *checkpoint);  /* NULL is fine. Threads: any. */
#define HETRAIN_CHECKPOINT_FILES 16
/* a file of the caller's own, as tokenizer.json */
typedef struct het_beside {
    const char *name;
    const void *data;                 /* [size] */
    size_t size;
    int32_t is_state;                 /* 1: to go on with, as optimizer.safetensors, and not exported */
} het_beside;
/* Takes all the memory that saving this context will need, from the checkpoint's allocator, and
   writes to all of it: in process 0 weights and state as they are in files, their texts, and the
   largest tensor once or twice more; in others the last alone. het_checkpoint_take and
   het_checkpoint_write then allocate nothing, unless option values are longer by more than 2 KiB
   together or files beside are other ones. HET_ERR_OOM: the error says how many bytes are missing.
   With several processes all make this call. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_checkpoint_reserve(het_checkpoint *checkpoint, het_ctx *ctx,
                                                                 const het_pair *option, int64_t options,
                                                                 const het_beside *beside, int64_t files,
                                                                 het_error *error);
/* of that memory, now held. Threads: any, none in the calls above. */
HETRAIN_API size_t het_checkpoint_bytes(const het_checkpoint *checkpoint);
/* Copies the context as it is. option[options]: what the caller wants to find again, each key once
   and at most 255 bytes; in a text that is not UTF-8, bytes that are not plain text become '?'.
   beside[files]: at most 13. With several processes all make this call; process 0 alone gets the
   copy. Not while another thread writes. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_checkpoint_take(het_checkpoint *checkpoint, het_ctx *ctx,
                                                              const het_pair *option, int64_t options,
                                                              const het_beside *beside, int64_t files,
                                                              het_error *error);
/* Writes what was taken last; where nothing was, nothing. Touches no context and allocates nothing.
   Whatever it returns, earlier checkpoints are as they were, or, if the new one has got its place,
   may have gone as `keep` says. Checkpoints of later steps belong to a run that was left, and go.
   Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_checkpoint_write(het_checkpoint *checkpoint, het_error *error);
/* Writes the files of what was taken last, but for those of its state and state.json, into the
   directory itself. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_checkpoint_export(het_checkpoint *checkpoint, het_error *error);

typedef struct het_saved_file {
    const char *name;
    uint64_t size;
    const uint64_t *hash;             /* [size / 1 MiB, rounded up] */
} het_saved_file;

typedef struct het_saved {            /* a checkpoint on disk */
    const char *path;                 /* its directory */
    int64_t step;                     /* steps done */
    int64_t options;
    const het_pair *option;           /* [options] */
    int64_t files;
    het_saved_file file[HETRAIN_CHECKPOINT_FILES]; /* [files] all but state.json */
    const char *damaged;              /* a line for each checkpoint that was preferred to this one
                                         but is not good; "": none */
    het_disk disk;
    het_allocator allocator;          /* of this struct and all above: one block of `block` bytes */
    size_t block;
} het_saved;

/* Finds the newest good checkpoint and proves every byte of it. directory: a checkpoint, or what
   holds checkpoints; then the one in `latest` comes first, then those of fewer steps, then others.
   HET_ERR_IO: there is none; HET_ERR_FORMAT: none is good, *error says what is wrong with the
   first. allocator NULL: malloc. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_checkpoint_find(const het_disk *disk, const char *directory,
                                                              const het_allocator *allocator, het_saved **saved,
                                                              het_error *error);
HETRAIN_API void het_checkpoint_free(het_saved *saved);               /* NULL is fine. Threads: any. */
/* The value of an option, NULL: there is none. Threads: any. */
HETRAIN_API const char *het_checkpoint_option(const het_saved *saved, const char *key);
/* The bytes of a file, as config.json; *length: how many it has, also where capacity is too small
   (HET_ERR_LIMIT). Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_checkpoint_file(const het_saved *saved, const char *name, void *to,
                                                              size_t capacity, size_t *length, het_error *error);
/* Weights, state and step into a context of the same model, on any plan; every byte is proven once
   more as it is read. Training goes on bit for bit: options of the context that decide what is
   trained must be what they were when it was saved, or HET_ERR_INVALID names one, its value then
   and now, and so must the weights that factors lie on; other_options HET_YES (default: no) takes
   them as they are. Nothing is changed unless both files fit. With several processes all make this
   call. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_checkpoint_load(const het_saved *saved, het_ctx *ctx,
                                                              het_choice other_options, het_error *error);

/* ---- >>gguf_api: models for llama.cpp -----------------------------------------------------------
   There where hetrain_tokenizer.h is included before this header, declarations and code. */
#ifdef HETRAIN_TOKENIZER_H

/* What a GGUF file gets beside the weights. */
typedef struct het_gguf_desc {
    uint32_t start_canary;
    het_element element;              /* of matrices: F32 (0), F16 or BF16; vectors and learned
                                         positions are F32. What F16 cannot hold is an error */
    const het_tokenizer *tokenizer;   /* NULL: tokens are bytes where the vocabulary is 256, else the file has none */
    const char *name;                 /* general.name; NULL: none */
    const int32_t *end;               /* [ends] tokens that end a text: eos_token_id, if the
                                         tokenizer appends none, and eot_token_id. Without any
                                         llama.cpp ends a text at token 11, its default */
    int64_t ends;
    uint32_t end_canary;
} het_gguf_desc;
/* A GGUF file, version 3, for llama.cpp (github.com/ggml-org/ggml, docs/gguf.md): the architectures
   gpt2, llama, qwen2, qwen3 and gptneox, rows of llama's q and k in pairs (2i, 2i + 1) of rotary
   columns, Llama 3.1's scaling as rope_freqs. Low-rank factors are left out: merge them first.
   HET_ERR_UNSUPPORTED: llama.cpp has no such model, or the tokenizer does what it cannot; the error
   names the setting. Not in a GGUF are NFC, which llama.cpp leaves out, and erf: its gptneox takes
   the tanh form of GELU. to NULL: this
   process takes part and writes nothing. desc NULL: defaults. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_save_gguf(het_ctx *ctx, const het_writer *to, const het_gguf_desc *desc);
#endif

#ifdef __cplusplus
}
#endif
#endif /* HETRAIN_FILES_H ---- end of the API: to use hetrain_files.h you need nothing below ---- */
/* =================================================================================================
   >>config  Compiler differences, in one place.
   ============================================================================================== */
#if defined(HETRAIN_FILES_IMPLEMENTATION) && !defined(HETRAIN_FILES_IMPLEMENTATION_DONE)

#define HETI_T_WANTED
#include "hetrain_text.h"
#include <math.h>
#ifndef HETRAIN_NO_STDIO
#include <stdio.h>
#endif
#ifndef HETRAIN_ASSERT
#define HETRAIN_ASSERT(condition) ((void)0)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Errors of a caller, of a file, and of what is not done here. */
#define HETI_F_BAD(error, ...) heti_t_fail((error), HET_ERR_INVALID, __VA_ARGS__)
#define HETI_F_WRONG(error, ...) heti_t_fail((error), HET_ERR_FORMAT, __VA_ARGS__)
#define HETI_F_UNKNOWN(error, ...) heti_t_fail((error), HET_ERR_UNSUPPORTED, __VA_ARGS__)

/* =================================================================================================
   >>safetensors  Tables of tensors: proving, making and writing them, elements to floats and back.

   The header is walked twice: the first walk checks its grammar and counts, so that everything fits
   into one block; the second fills it. Then the tensors are sorted by place, where each must begin
   at the byte at which the one before ended. Nothing is believed before it is proven.
   ============================================================================================== */

#define HETI_F_HEADER_LIMIT 100000000
#define HETI_F_TENSOR_LIMIT 65536
#define HETI_F_MODEL_TENSORS 1000000 /* about as many as a header has room for: a layer may have 512 experts */
#define HETI_F_DIMENSION_LIMIT (INT64_C(1) << 48)

typedef struct heti_f_element { const char *name; int64_t bits; } heti_f_element;
#define HETI_F_ELEMENT(name, bits) { #name, bits },
static const heti_f_element heti_f_elements[HET_ELEMENTS] = { HETRAIN_ELEMENTS(HETI_F_ELEMENT) };
#undef HETI_F_ELEMENT

HETRAIN_API const char *het_element_name(het_element element) {
    const int64_t index = HETI_T_CAST(int64_t, element);
    return index >= 0 && index < HET_ELEMENTS ? heti_f_elements[index].name : NULL;
}

HETRAIN_API int64_t het_element_bits(het_element element) {
    const int64_t index = HETI_T_CAST(int64_t, element);
    return index >= 0 && index < HET_ELEMENTS ? heti_f_elements[index].bits : 0;
}

/* ---- bytes ---- */

static const char *heti_f_reader_name(const het_reader *from) { return from->name != NULL ? from->name : "(memory)"; }

/* All `size` bytes at `offset`. */
static het_result heti_f_read(const het_reader *from, uint64_t offset, void *to, size_t size, het_error *error) {
    char *at = HETI_T_CAST(char *, to);
    while (size > 0) {
        const int64_t got = from->read(from->user, offset, at, size);
        if (got <= 0 || HETI_T_CAST(uint64_t, got) > size)
            return heti_t_fail(error, HET_ERR_IO, "%s: reading %z bytes at offset %u failed (%d)",
                               heti_f_reader_name(from), size, offset, got);
        at += got;
        offset += HETI_T_CAST(uint64_t, got);
        size -= HETI_T_CAST(size_t, got);
    }
    return HET_OK;
}

static het_result heti_f_write(const het_writer *to, const void *from, size_t size, het_error *error) {
    if (size == 0 || to->write(to->user, from, size) == 0) return HET_OK;
    return heti_t_fail(error, HET_ERR_IO, "%s: writing %z bytes failed", to->name != NULL ? to->name : "(memory)",
                       size);
}

/* Little-endian numbers of 1 to 8 bytes. */
static uint64_t heti_f_little(const unsigned char *from, int bytes) {
    uint64_t value = 0;
    while (bytes > 0) value = value << 8 | from[--bytes];
    return value;
}

static void heti_f_store(unsigned char *to, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++, value >>= 8) to[i] = HETI_T_CAST(unsigned char, value & 255u);
}

/* ---- a table in one block ---- */

static int heti_f_name_order(const char *a, size_t a_length, const char *b, size_t b_length) {
    const int order = memcmp(a, b, a_length < b_length ? a_length : b_length);
    return order != 0 ? order : a_length < b_length ? -1 : a_length > b_length;
}

typedef enum heti_f_sorting { HETI_F_BY_PLACE, HETI_F_BY_NAME, HETI_F_BY_TYPE } heti_f_sorting;

static int heti_f_before(const het_safetensor *tensor, int64_t a, int64_t b, heti_f_sorting by) {
    const het_safetensor *s = &tensor[a], *t = &tensor[b];
    if (by == HETI_F_BY_PLACE) {
        if (s->begin != t->begin) return s->begin < t->begin;
        return s->end != t->end ? s->end < t->end : a < b;
    }
    if (by == HETI_F_BY_TYPE && s->element != t->element) return s->element > t->element;
    const int order = heti_f_name_order(s->name, s->name_length, t->name, t->name_length);
    return order != 0 ? order < 0 : a < b;
}

/* Numbers of tensors in order: heap sort (J. W. J. Williams 1964), n log n on every input; linear
   where they are in order, as they mostly are. */
static void heti_f_order(const het_safetensor *tensor, int64_t *order, int64_t count, heti_f_sorting by) {
    int64_t start = count / 2, end = count, i;
    for (i = 0; i < count; i++) order[i] = i;
    for (i = 1; i < count && heti_f_before(tensor, i - 1, i, by); i++) {}
    if (i >= count) return;
    while (end > 1) {
        int64_t root, child, moved;
        if (start > 0) {
            moved = order[--start];
        } else {
            moved = order[--end];
            order[end] = order[0];
        }
        for (root = start; (child = 2 * root + 1) < end; root = child) {
            if (child + 1 < end && heti_f_before(tensor, order[child], order[child + 1], by)) child++;
            if (!heti_f_before(tensor, moved, order[child], by)) break;
            order[root] = order[child];
        }
        order[root] = moved;
    }
}

/* Texts that are read, one behind the other, a 0 behind each. Before there is a block for them they
   pass through a few bytes and are only counted. */
typedef struct heti_f_texts {
    char *at;                         /* where the next text goes */
    size_t left, bytes;               /* room there; of all texts so far */
    int kept;
} heti_f_texts;

/* The text at the next place, which moves behind it and its 0, but for what is only counted. */
static const char *heti_f_texts_step(heti_f_texts *x, size_t length) {
    char *text = x->at;
    x->bytes += length + 1;
    if (!x->kept) return text;
    HETRAIN_ASSERT(length < x->left);
    x->at += length + 1;
    x->left -= length + 1;
    return text;
}

/* Copies a text into the block, a 0 behind it. */
static const char *heti_f_texts_add(heti_f_texts *x, const char *from, size_t length) {
    if (x->kept && length > 0) memcpy(x->at, from, length);
    if (x->kept) x->at[length] = 0;
    return heti_f_texts_step(x, length);
}

/* The object of texts at the cursor, behind *pairs others. most: bytes of a key. */
static void heti_f_texts_pairs(heti_f_texts *x, het_json *j, size_t most, het_pair *pair, int64_t *pairs) {
    het_pair p;
    het_json_enter(j, HET_JSON_OBJECT);
    for (; het_json_next(j, x->at, x->left, &p.key_length); ++*pairs) {
        if (p.key_length > most) het_json_fail(j, "the name of an option is longer than 255 bytes");
        p.key = heti_f_texts_step(x, p.key_length);
        if (!het_json_string(j, x->at, x->left, &p.value_length)) return;
        p.value = heti_f_texts_step(x, p.value_length);
        if (x->kept) pair[*pairs] = p;
    }
}

/* How much there is of everything, then the block while it is filled. */
typedef struct heti_f_table {
    int64_t tensors, pairs;
    heti_f_texts texts;
    het_safetensors *file;
    het_safetensor *tensor;
    int64_t *by_name;
    het_pair *pair;
} heti_f_table;

static void heti_f_table_cut(void *self, heti_t_arena *arena) {
    heti_f_table *t = HETI_T_CAST(heti_f_table *, self);
    t->file = HETI_T_TAKE(arena, het_safetensors, 1);
    t->tensor = HETI_T_TAKE(arena, het_safetensor, t->tensors);
    t->by_name = HETI_T_TAKE(arena, int64_t, t->tensors);
    t->pair = HETI_T_TAKE(arena, het_pair, t->pairs);
    t->texts.at = HETI_T_TAKE(arena, char, t->texts.bytes);
    t->texts.left = t->texts.bytes;
}

static het_result heti_f_table_start(heti_f_table *t, const het_allocator *allocator, het_error *error) {
    heti_t_arena arena;
    if (heti_t_arrays(&arena, 0, heti_f_table_cut, t, allocator, "", NULL) != HET_OK)
        return heti_t_fail(error, HET_ERR_OOM, "%z bytes for a table of %d tensors: out of memory", arena.used,
                           t->tensors);
    t->texts.kept = 1;
    const het_safetensors file = { t->tensors, t->pairs, t->tensor, t->by_name, t->pair, 0, 0, *allocator, arena.size };
    *t->file = file;
    return HET_OK;
}

HETRAIN_API void het_safetensors_free(het_safetensors *file) {
    if (file == NULL) return;
    const het_allocator allocator = file->allocator;
    allocator.free(allocator.user, file, file->block);
}

/* Sorts by name. A tensor whose name came before, or NULL. */
static const het_safetensor *heti_f_table_names(heti_f_table *t) {
    heti_f_order(t->tensor, t->by_name, t->tensors, HETI_F_BY_NAME);
    for (int64_t i = 1; i < t->tensors; i++) {
        const het_safetensor *a = &t->tensor[t->by_name[i - 1]], *b = &t->tensor[t->by_name[i]];
        if (heti_f_name_order(a->name, a->name_length, b->name, b->name_length) != 0) continue;
        return a->at > b->at ? a : b;
    }
    return NULL;
}

/* Bytes that type and shape need; the text of the rule they break, or NULL. An empty tensor is one
   with an empty dimension, and its others are checked all the same. */
static const char *heti_f_tensor_bytes(const het_safetensor *t, uint64_t *bytes) {
    uint64_t elements = 1;
    const uint64_t bits = HETI_T_CAST(uint64_t, heti_f_elements[t->element].bits);
    for (int i = 0; i < t->rank; i++) {
        const uint64_t dimension = HETI_T_CAST(uint64_t, t->shape[i]);
        if (dimension != 0 && elements > HETI_T_CAST(uint64_t, INT64_MAX) / dimension)
            return "the product of the dimensions overflows";
        elements *= dimension;
    }
    if (elements > HETI_T_CAST(uint64_t, INT64_MAX) / bits) return "the size in bits overflows";
    if (elements * bits % 8 != 0) return "type and shape give no whole number of bytes";
    *bytes = elements * bits / 8;
    return NULL;
}

/* ---- reading ---- */

typedef struct heti_f_header {
    const het_reader *from;
    het_error *error;
    char *text;                       /* [size] the file up to its data; the JSON begins at byte 8 */
    size_t size;
} heti_f_header;

/* file: byte n: "tensor": what. t NULL: no tensor. */
static het_result heti_f_header_bad(const heti_f_header *h, uint64_t at, const het_safetensor *t, const char *format,
                                    ...) {
    va_list arguments;
    if (h->error == NULL) return HET_ERR_FORMAT;
    (void)HETI_F_WRONG(h->error, "%s: byte %u: ", heti_f_reader_name(h->from), at);
    heti_t_text text = heti_t_text_behind(h->error->text, sizeof h->error->text);
    if (t != NULL) heti_t_format(&text, "%q: ", t->name, t->name_length);
    va_start(arguments, format);
    heti_t_format_list(&text, format, arguments);
    va_end(arguments);
    return HET_ERR_FORMAT;
}

static het_result heti_f_header_json(const heti_f_header *h, const het_json *j, const het_safetensor *t) {
    return j->rule == NULL ? HET_OK : heti_f_header_bad(h, j->rule_at, t, "%s", j->rule);
}

/* "shape" at the cursor. */
static het_result heti_f_header_shape(const heti_f_header *h, het_json *j, het_safetensor *t) {
    int64_t value = 0;
    het_json_enter(j, HET_JSON_ARRAY);
    while (het_json_next(j, NULL, 0, NULL)) {
        const size_t at = j->at;
        if (!het_json_integer(j, &value)) break;
        if (value < 0 || value >= HETI_F_DIMENSION_LIMIT)
            return heti_f_header_bad(h, at, t, "dimension %i is %d, must be 0 .. 2^48 - 1", t->rank, value);
        if (t->rank == HETRAIN_FILE_DIMENSIONS) return heti_f_header_bad(h, at, t, "more than 8 dimensions");
        t->shape[t->rank++] = value;
    }
    return heti_f_header_json(h, j, t);
}

/* "data_offsets" at the cursor. */
static het_result heti_f_header_offsets(const heti_f_header *h, het_json *j, het_safetensor *t) {
    const size_t at = j->at;
    const int32_t depth = j->depth;
    int64_t value = 0;
    int count = 0;
    het_json_enter(j, HET_JSON_ARRAY);
    for (; het_json_next(j, NULL, 0, NULL) && het_json_integer(j, &value) && count < 2 && value >= 0; count++)
        *(count == 0 ? &t->begin : &t->end) = HETI_T_CAST(uint64_t, value);
    HETI_T_TRY(heti_f_header_json(h, j, t));
    if (count == 2 && j->depth == depth) return HET_OK;
    return heti_f_header_bad(h, at, t, "data_offsets must be two integers that are not negative");
}

static het_result heti_f_header_type(const heti_f_header *h, het_json *j, het_safetensor *t) {
    const size_t at = j->at;
    char type[24];
    size_t length = 0;
    if (!het_json_string(j, type, sizeof type, &length)) return heti_f_header_json(h, j, t);
    for (int i = 0; i < HET_ELEMENTS; i++) {
        if (!heti_t_is(type, length, heti_f_elements[i].name)) continue;
        t->element = HETI_T_CAST(het_element, i);
        return HET_OK;
    }
    return heti_f_header_bad(h, at, t, "unknown dtype %q", type, heti_t_shown(length, sizeof type));
}

/* {"dtype": ..., "shape": [...], "data_offsets": [begin, end]} at the cursor. */
static het_result heti_f_header_tensor(const heti_f_header *h, het_json *j, het_safetensor *t) {
    static const char *const heti_f_keys[] = { "dtype", "shape", "data_offsets", NULL };
    uint64_t bytes = 0;
    int seen = 0, i;
    t->at = j->at;
    het_json_enter(j, HET_JSON_OBJECT);
    while ((i = heti_t_key(j, heti_f_keys)) >= 0) {
        if (((seen >> i) & 1) != 0) return heti_f_header_bad(h, j->at, t, "%s occurs twice", heti_f_keys[i]);
        seen |= 1 << i;
        if (i == 0) HETI_T_TRY(heti_f_header_type(h, j, t));
        else if (i == 1) HETI_T_TRY(heti_f_header_shape(h, j, t));
        else HETI_T_TRY(heti_f_header_offsets(h, j, t));
    }
    HETI_T_TRY(heti_f_header_json(h, j, t));
    for (i = 0; i < 3; i++)
        if (((seen >> i) & 1) == 0) return heti_f_header_bad(h, t->at, t, "lacks \"%s\"", heti_f_keys[i]);
    const char *rule = heti_f_tensor_bytes(t, &bytes);
    if (rule != NULL) return heti_f_header_bad(h, t->at, t, "%s", rule);
    if (t->begin > t->end || t->end - t->begin != bytes)
        return heti_f_header_bad(h, t->at, t, "dtype and shape need %u bytes, data_offsets are [%u, %u]", bytes,
                                 t->begin, t->end);
    return HET_OK;
}

/* One walk. Without a block only grammar, and how much there is of everything; then texts go into
   the block, descriptions into `list`, in the order of the header. */
static het_result heti_f_header_walk(const heti_f_header *h, int64_t most, heti_f_table *t, het_safetensor *list) {
    heti_f_texts *x = &t->texts;
    het_json j = het_json_start(h->text, h->size);
    size_t length = 0;
    int metadata = 0;
    j.at = 8;
    t->tensors = t->pairs = 0;
    het_json_enter(&j, HET_JSON_OBJECT);
    while (het_json_next(&j, x->at, x->left, &length)) {
        if (heti_t_is(x->at, length, "__metadata__")) { /* overwritten by the next text */
            if (metadata++) return heti_f_header_bad(h, j.at, NULL, "__metadata__ occurs twice");
            if (het_json_peek(&j) == HET_JSON_NULL) het_json_null(&j);
            else heti_f_texts_pairs(x, &j, SIZE_MAX, t->pair, &t->pairs);
            continue;
        }
        if (length > 255)
            return heti_f_header_bad(h, j.at, NULL, "the name %q~ has %z bytes, the limit is 255", x->at, x->left - 1,
                                     length);
        if (t->tensors == most) return heti_f_header_bad(h, j.at, NULL, "more than %d tensors", most);
        if (list == NULL) {
            (void)heti_f_texts_step(x, length);
            het_json_skip(&j);
        } else {
            het_safetensor *own = &list[t->tensors];
            memset(own, 0, sizeof *own);
            own->number = t->tensors;
            own->name = heti_f_texts_step(x, length);
            own->name_length = length;
            HETI_T_TRY(heti_f_header_tensor(h, &j, own));
        }
        t->tensors++;
    }
    het_json_end(&j);
    return heti_f_header_json(h, &j, NULL);
}

/* Puts the descriptions into the order of their data, which must be without gap or overlap and end
   where the file ends. */
static het_result heti_f_header_place(const heti_f_header *h, heti_f_table *t, const het_safetensor *list) {
    const uint64_t data = h->from->size - h->size;
    uint64_t end = 0;
    heti_f_order(list, t->by_name, t->tensors, HETI_F_BY_PLACE);
    for (int64_t i = 0; i < t->tensors; i++) {
        const het_safetensor *s = &list[t->by_name[i]];
        if (s->begin != end)
            return heti_f_header_bad(h, s->at, s, "its data start at byte %u, those before them end at %u", s->begin,
                                     end);
        if (s->end > data)
            return heti_f_header_bad(h, s->at, s, "its data end at byte %u, the file holds %u bytes of data", s->end,
                                     data);
        end = s->end;
        t->tensor[i] = *s;
    }
    if (end != data)
        return heti_f_header_bad(h, h->size + end, NULL, "%u bytes follow the data of the last tensor", data - end);
    const het_safetensor *twice = heti_f_table_names(t);
    return twice == NULL ? HET_OK : heti_f_header_bad(h, twice->at, twice, "the name occurs twice");
}

/* From the text of the header to the table. */
static het_result heti_f_header_table(const heti_f_header *h, int64_t most, const het_allocator *allocator,
                                      het_safetensors **file) {
    heti_f_table t = HETI_T_ZEROS;
    char key[16];
    het_result result;
    t.texts.at = key;
    t.texts.left = sizeof key;
    HETI_T_TRY(heti_f_header_walk(h, most, &t, NULL));
    t.texts.bytes += 16; /* "__metadata__" as a key passes through */
    HETI_T_TRY(heti_f_table_start(&t, allocator, h->error));
    const size_t bytes = HETI_T_CAST(size_t, t.tensors) * sizeof(het_safetensor) + 1; /* at most 3 times the header */
    het_safetensor *list = HETI_T_CAST(het_safetensor *, allocator->alloc(allocator->user, bytes, 16));
    if (list == NULL)
        result = heti_t_fail(h->error, HET_ERR_OOM, "%z bytes for descriptions of %d tensors: out of memory", bytes - 1,
                             t.tensors);
    else result = heti_f_header_walk(h, most, &t, list);
    if (result == HET_OK) result = heti_f_header_place(h, &t, list);
    if (list != NULL) allocator->free(allocator->user, list, bytes);
    if (result != HET_OK) {
        het_safetensors_free(t.file);
        return result;
    }
    t.file->data = h->size;
    t.file->size = h->from->size;
    *file = t.file;
    return HET_OK;
}

HETRAIN_API het_result het_safetensors_read(const het_reader *from, int64_t most, const het_allocator *allocator,
                                            het_safetensors **file, het_error *error) {
    heti_f_header h = { from, error, NULL, 0 };
    het_allocator own;
    unsigned char bytes[8];
    uint64_t size;
    if (from == NULL || from->read == NULL || file == NULL || most < 0)
        return HETI_F_BAD(error, "het_safetensors_read: the reader, its read or file is NULL, or most is negative");
    HETI_T_TRY(heti_t_choose(allocator, &own, error, "het_safetensors_read"));
    if (from->size < 8)
        return HETI_F_WRONG(error, "%s: %u bytes are too few for a safetensors file", heti_f_reader_name(from),
                            from->size);
    HETI_T_TRY(heti_f_read(from, 0, bytes, sizeof bytes, error));
    size = heti_f_little(bytes, 8);
    if (size > HETI_F_HEADER_LIMIT || size > from->size - 8)
        return HETI_F_WRONG(error, "%s: byte 0: a header of %u bytes is over %u: the file is cut, or of another format",
                            heti_f_reader_name(from), size, from->size - 8 < HETI_F_HEADER_LIMIT ? from->size - 8 :
                            HETI_T_CAST(uint64_t, HETI_F_HEADER_LIMIT));
    h.size = 8 + HETI_T_CAST(size_t, size);
    h.text = HETI_T_CAST(char *, own.alloc(own.user, h.size, 16));
    if (h.text == NULL) return heti_t_fail(error, HET_ERR_OOM, "%u bytes for a header: out of memory", size);
    het_result result = heti_f_read(from, 8, h.text + 8, h.size - 8, error);
    if (result == HET_OK) result = heti_f_header_table(&h, most > 0 ? most : HETI_F_TENSOR_LIMIT, &own, file);
    own.free(own.user, h.text, h.size);
    return result;
}

HETRAIN_API const het_safetensor *het_safetensors_find(const het_safetensors *file, const char *name, size_t length) {
    int64_t low = 0, high = file->tensors;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const het_safetensor *t = &file->tensor[file->by_name[middle]];
        const int order = heti_f_name_order(t->name, t->name_length, name, length);
        if (order == 0) return t;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

HETRAIN_API const char *het_safetensors_value(const het_safetensors *file, const char *key, size_t *length) {
    for (int64_t i = file->pairs; i-- > 0;) {
        if (!heti_t_is(file->pair[i].key, file->pair[i].key_length, key)) continue;
        if (length != NULL) *length = file->pair[i].value_length;
        return file->pair[i].value;
    }
    return NULL;
}

/* ---- making and writing ---- */

static int heti_f_is_utf8(const char *text, size_t length) {
    const unsigned char *bytes = HETI_T_CAST(const unsigned char *, HETI_T_CAST(const void *, text));
    size_t size;
    for (size_t at = 0; at < length; at += size)
        if (heti_t_point(bytes, length, at, &size) == HETI_T_INVALID) return 0;
    return 1;
}

static void heti_f_text_header(heti_t_text *text, const het_safetensors *file) {
    heti_t_char(text, '{');
    for (int64_t i = 0; i < file->pairs; i++) {
        const het_pair *p = &file->pair[i];
        heti_t_put(text, i == 0 ? "\"__metadata__\":{" : ",");
        heti_t_json(text, p->key, p->key_length);
        heti_t_char(text, ':');
        heti_t_json(text, p->value, p->value_length);
    }
    if (file->pairs > 0) heti_t_char(text, '}');
    for (int64_t i = 0; i < file->tensors; i++) {
        const het_safetensor *t = &file->tensor[i];
        if (i > 0 || file->pairs > 0) heti_t_char(text, ',');
        heti_t_json(text, t->name, t->name_length);
        heti_t_format(text, ":{\"dtype\":\"%s\",\"shape\":[", heti_f_elements[t->element].name);
        for (int k = 0; k < t->rank; k++) heti_t_format(text, k > 0 ? ",%d" : "%d", t->shape[k]);
        heti_t_format(text, "],\"data_offsets\":[%u,%u]}", t->begin, t->end);
    }
    heti_t_char(text, '}');
    while (text->length % 8 != 0) heti_t_char(text, ' ');
}

/* One tensor of the list that a table is made from. */
static het_result heti_f_made_check(const het_safetensor *t, int64_t number, het_error *error) {
    static const char heti_f_who[] = "het_safetensors_make";
    uint64_t bytes = 0;
    if (t->name == NULL || t->name_length > 255 || !heti_f_is_utf8(t->name, t->name_length) ||
        heti_t_is(t->name, t->name_length, "__metadata__"))
        return HETI_F_BAD(error, "%s: tensor %d: its name must be 0 .. 255 bytes of UTF-8, and not __metadata__",
                          heti_f_who, number);
    if (het_element_bits(t->element) == 0 || t->rank < 0 || t->rank > HETRAIN_FILE_DIMENSIONS)
        return HETI_F_BAD(error, "%s: tensor %q: type %d, rank %d", heti_f_who, t->name, t->name_length,
                          HETI_T_CAST(int64_t, t->element), HETI_T_CAST(int64_t, t->rank));
    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] < 0 || t->shape[i] >= HETI_F_DIMENSION_LIMIT)
            return HETI_F_BAD(error, "%s: tensor %q: dimension %d is %d, must be 0 .. 2^48 - 1", heti_f_who, t->name,
                              t->name_length, HETI_T_CAST(int64_t, i), t->shape[i]);
    const char *rule = heti_f_tensor_bytes(t, &bytes);
    return rule == NULL ? HET_OK : HETI_F_BAD(error, "%s: tensor %q: %s", heti_f_who, t->name, t->name_length, rule);
}

/* Copies the list in its order and gives every tensor its place. */
static het_result heti_f_made_fill(heti_f_table *t, const het_safetensor *tensor, const het_pair *pair,
                                   het_error *error) {
    het_safetensors *file = t->file;
    heti_t_text text = heti_t_text_in(NULL, 0);
    uint64_t end = 0;
    heti_f_order(tensor, t->by_name, t->tensors, HETI_F_BY_TYPE);
    for (int64_t i = 0; i < t->tensors; i++) {
        het_safetensor *own = &t->tensor[i];
        uint64_t bytes = 0;
        *own = tensor[t->by_name[i]];
        (void)heti_f_tensor_bytes(own, &bytes);
        own->name = heti_f_texts_add(&t->texts, own->name, own->name_length);
        own->number = t->by_name[i];
        own->at = 0;
        own->begin = end;
        if (bytes > HETI_T_CAST(uint64_t, INT64_MAX) / 2 - end)
            return heti_t_fail(error, HET_ERR_LIMIT, "het_safetensors_make: 2^62 bytes of data or more");
        own->end = end += bytes;
    }
    for (int64_t i = 0; i < t->pairs; i++) {
        t->pair[i] = pair[i];
        t->pair[i].key = heti_f_texts_add(&t->texts, pair[i].key, pair[i].key_length);
        t->pair[i].value = heti_f_texts_add(&t->texts, pair[i].value, pair[i].value_length);
    }
    const het_safetensor *twice = heti_f_table_names(t);
    if (twice != NULL)
        return HETI_F_BAD(error, "het_safetensors_make: tensor %q occurs twice", twice->name, twice->name_length);
    heti_f_text_header(&text, file);
    if (text.length > HETI_F_HEADER_LIMIT)
        return heti_t_fail(error, HET_ERR_LIMIT, "het_safetensors_make: a header of %z bytes is over 100000000",
                           text.length);
    file->data = 8 + text.length;
    file->size = file->data + end;
    return HET_OK;
}

HETRAIN_API het_result het_safetensors_make(const het_safetensor *tensor, int64_t tensors, const het_pair *pair,
                                            int64_t pairs, const het_allocator *allocator, het_safetensors **file,
                                            het_error *error) {
    static const char heti_f_who[] = "het_safetensors_make";
    heti_f_table t = HETI_T_ZEROS;
    het_allocator own;
    t.tensors = tensors;
    t.pairs = pairs;
    if (file == NULL || tensors < 0 || pairs < 0 || (tensor == NULL && tensors > 0) || (pair == NULL && pairs > 0))
        return HETI_F_BAD(error, "%s: a pointer is NULL, or a count is negative", heti_f_who);
    HETI_T_TRY(heti_t_choose(allocator, &own, error, heti_f_who));
    for (int64_t i = 0; i < tensors; i++) {
        HETI_T_TRY(heti_f_made_check(&tensor[i], i, error));
        t.texts.bytes += tensor[i].name_length + 1;
    }
    for (int64_t i = 0; i < pairs; i++) {
        const het_pair *p = &pair[i];
        if (p->key == NULL || p->value == NULL || !heti_f_is_utf8(p->key, p->key_length) ||
            !heti_f_is_utf8(p->value, p->value_length))
            return HETI_F_BAD(error, "%s: pair %d of the metadata is NULL or not UTF-8", heti_f_who, i);
        t.texts.bytes += p->key_length + p->value_length + 2;
    }
    HETI_T_TRY(heti_f_table_start(&t, &own, error));
    const het_result result = heti_f_made_fill(&t, tensor, pair, error);
    if (result == HET_OK) *file = t.file;
    else het_safetensors_free(t.file);
    return result;
}

HETRAIN_API het_result het_safetensors_write(const het_safetensors *file, const het_writer *to, het_error *error) {
    if (file == NULL || to == NULL || to->write == NULL)
        return HETI_F_BAD(error, "het_safetensors_write: the table, the writer or its write is NULL");
    const size_t size = HETI_T_CAST(size_t, file->data);
    char *bytes = HETI_T_CAST(char *, file->allocator.alloc(file->allocator.user, size + 1, 16));
    if (bytes == NULL) return heti_t_fail(error, HET_ERR_OOM, "%u bytes for a header: out of memory", file->data);
    heti_t_text text = heti_t_text_in(bytes + 8, size - 7); /* one more than is written: a text keeps room for a 0 */
    heti_f_text_header(&text, file);
    heti_f_store(HETI_T_CAST(unsigned char *, HETI_T_CAST(void *, bytes)), file->data - 8, 8);
    const het_result result = heti_f_write(to, bytes, size, error);
    file->allocator.free(file->allocator.user, bytes, size + 1);
    return result;
}

/* ---- elements ---- */

/* IEEE half to float, exact; subnormals are mantissa 2^-24. */
static uint32_t heti_f_bits_of_half(uint32_t half) {
    const uint32_t sign = (half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 31u, mantissa = half & 1023u;
    if (exponent == 31) return sign | 0x7F800000u | mantissa << 13;
    if (exponent == 0) {
        if (mantissa == 0) return sign;
        for (exponent = 1; (mantissa & 1024u) == 0; exponent--) mantissa <<= 1; /* wraps below 0; 112 is added */
        mantissa &= 1023u;
    }
    return sign | (exponent + 112u) << 23 | mantissa << 13;
}

/* The upper bits of `bits` without the lowest `drop`, to nearest even. A carry runs into the
   exponent, as it should. */
static uint32_t heti_f_round_bits(uint32_t bits, int drop) {
    return (bits + (UINT32_C(1) << (drop - 1)) - 1 + ((bits >> drop) & 1u)) >> drop;
}

static uint32_t heti_f_half_of_bits(uint32_t bits) {
    const uint32_t sign = (bits >> 16) & 0x8000u, size = bits & 0x7FFFFFFFu;
    if (size > 0x7F800000u) return sign | 0x7E00u; /* not a number */
    if (size >= 0x477FF000u) return sign | 0x7C00u; /* 65520 and more */
    if (size >= 0x38800000u) return sign | heti_f_round_bits(size - 0x38000000u, 13); /* 2^-14 and more: normal */
    const uint32_t exponent = size >> 23;
    if (exponent < 102) return sign; /* below 2^-25 */
    return sign | heti_f_round_bits((size & 0x7FFFFFu) | 0x800000u, HETI_T_CAST(int, 126 - exponent));
}

static uint32_t heti_f_bf16_of_bits(uint32_t bits) {
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (bits >> 16) | 0x40u; /* stays not a number */
    return heti_f_round_bits(bits, 16) & 0xFFFFu;
}

static int heti_f_is_float(het_element element) {
    return element == HET_ELEMENT_F32 || element == HET_ELEMENT_F16 || element == HET_ELEMENT_BF16;
}

#define HETI_F_INFINITE UINT32_C(0x7F800000) /* the exponent of what is not finite */

/* Elements of the file, at the end of to's memory, become floats from its start: what is written
   never passes what is still to be read. Returns the number of the first that is not finite; count:
   all are. */
static int64_t heti_f_floats(het_element element, float *to, int64_t count) {
    const int size = element == HET_ELEMENT_F32 ? 4 : 2;
    uint32_t most = 0;
    const unsigned char *from = HETI_T_CAST(const unsigned char *, HETI_T_CAST(const void *, to)) + count * (4 - size);
    int64_t i;
    for (i = 0; i < count; i++) {
        uint32_t bits = HETI_T_CAST(uint32_t, heti_f_little(from + i * size, size));
        if (element == HET_ELEMENT_F16) bits = heti_f_bits_of_half(bits);
        else if (element == HET_ELEMENT_BF16) bits <<= 16;
        memcpy(to + i, &bits, sizeof bits);
        bits &= HETI_F_INFINITE;
        if (bits > most) most = bits;
    }
    for (i = most < HETI_F_INFINITE ? count : 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, to + i, sizeof bits);
        if ((bits & HETI_F_INFINITE) == HETI_F_INFINITE) break;
    }
    return i;
}

/* Elements [first, first + count) of a tensor as floats. name NULL: of any value; else all must be
   finite, and that is the tensor's name for the error. */
static het_result heti_f_get(const het_safetensors *file, const het_reader *from, const het_safetensor *tensor,
                             int64_t first, int64_t count, float *to, const char *name, het_error *error) {
    if (file == NULL || from == NULL || from->read == NULL || tensor == NULL || to == NULL || first < 0 || count < 0)
        return HETI_F_BAD(error, "het_safetensors_get: a pointer is NULL, or first or count is negative");
    if (!heti_f_is_float(tensor->element))
        return HETI_F_UNKNOWN(error, "%s: tensor %q has dtype %s, must be F32, F16 or BF16", heti_f_reader_name(from),
                              tensor->name, tensor->name_length, heti_f_elements[tensor->element].name);
    const int64_t size = heti_f_elements[tensor->element].bits / 8;
    const uint64_t elements = (tensor->end - tensor->begin) / HETI_T_CAST(uint64_t, size);
    if (HETI_T_CAST(uint64_t, first) > elements ||
        HETI_T_CAST(uint64_t, count) > elements - HETI_T_CAST(uint64_t, first))
        return HETI_F_BAD(error, "het_safetensors_get: %d elements from %d of tensor %q, which has %u", count, first,
                          tensor->name, tensor->name_length, elements);
    const uint64_t offset = file->data + tensor->begin + HETI_T_CAST(uint64_t, first * size);
    char *end = HETI_T_CAST(char *, HETI_T_CAST(void *, to)) + count * (4 - size); /* what is read ends as the floats */
    HETI_T_TRY(heti_f_read(from, offset, end, HETI_T_CAST(size_t, count * size), error));
    const int64_t bad = heti_f_floats(tensor->element, to, count);
    if (bad == count || name == NULL) return HET_OK;
    return heti_t_fail(error, HET_ERR_DATA, "%s: byte %u: tensor %s: element %d is %s, not finite",
                       heti_f_reader_name(from), offset + HETI_T_CAST(uint64_t, bad * size), name, bad,
                       to[bad] > 0.0f ? "inf" : to[bad] < 0.0f ? "-inf" : "nan");
}

HETRAIN_API het_result het_safetensors_get(const het_safetensors *file, const het_reader *from,
                                           const het_safetensor *tensor, int64_t first, int64_t count, float *to,
                                           het_error *error) {
    return heti_f_get(file, from, tensor, first, count, to, NULL, error);
}

HETRAIN_API het_result het_safetensors_put(const het_writer *to, het_element element, const float *from, int64_t count,
                                           het_error *error) {
    unsigned char bytes[4096];
    int64_t n;
    const int size = element == HET_ELEMENT_F32 ? 4 : 2;
    if (to == NULL || to->write == NULL || (from == NULL && count > 0) || count < 0 || !heti_f_is_float(element))
        return HETI_F_BAD(error, "het_safetensors_put: a pointer is NULL, count is negative, or the type is not F32, "
                          "F16 or BF16");
    for (int64_t done = 0; done < count; done += n) {
        n = count - done < 1024 ? count - done : 1024;
        for (int64_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, from + done + i, sizeof bits);
            if (element == HET_ELEMENT_F16) bits = heti_f_half_of_bits(bits);
            else if (element == HET_ELEMENT_BF16) bits = heti_f_bf16_of_bits(bits);
            heti_f_store(bytes + i * size, bits, size);
        }
        HETI_T_TRY(heti_f_write(to, bytes, HETI_T_CAST(size_t, n * size), error));
    }
    return HET_OK;
}

/* =================================================================================================
   >>config_json  Settings of a model as Hugging Face's config.json has them.

   One table says which key is which setting in which family. Reading notes where in the text each
   setting stands, so that keys can contradict and "hetrain" can override each other; then the model
   gets the defaults of transformers, and over them what the file says.
   ============================================================================================== */

/* keys that need more than copying; what those before HETI_F_SAID say is kept by these numbers */
typedef enum heti_f_special {
    HETI_F_USE_WINDOW, HETI_F_WINDOW, HETI_F_WINDOW_LAYERS, HETI_F_ATTENTION_BIAS, HETI_F_MLP_BIAS, HETI_F_ROPE_TYPE,
    HETI_F_LAYER_TYPES, HETI_F_ACT, HETI_F_SAID, HETI_F_COPY = HETI_F_SAID, HETI_F_ROPE, HETI_F_ARCHITECTURES,
    HETI_F_MODEL_TYPE, HETI_F_OWN
} heti_f_special;

enum {
    HETI_F_IN_GPT2 = 1, HETI_F_IN_LLAMA = 2, HETI_F_IN_QWEN2 = 4, HETI_F_IN_QWEN3 = 8, HETI_F_IN_NEOX = 16,
    HETI_F_IN_ROPE = 32, HETI_F_IN_ROTARY = 30, HETI_F_IN_GATED = 14, HETI_F_IN_QWEN = 12, HETI_F_IN_ALL = 31
};

typedef struct heti_f_config_key {
    const char *key;
    int families;                     /* HETI_F_IN_ bits; HETI_F_IN_ROPE: inside rope_scaling and rope_parameters */
    int written;                      /* for these families */
    heti_f_special special;
    const char *setting;              /* HETI_F_COPY */
    het_json_kind kind;
} heti_f_config_key;

/* Where a setting has several keys, those present must agree. */
static const heti_f_config_key heti_f_config_keys[] = {
    { "model_type", HETI_F_IN_ALL, 0, HETI_F_MODEL_TYPE, NULL, HET_JSON_STRING },
    { "architectures", HETI_F_IN_ALL, 0, HETI_F_ARCHITECTURES, NULL, HET_JSON_ARRAY },
    { "hetrain", HETI_F_IN_ALL, 0, HETI_F_OWN, NULL, HET_JSON_OBJECT },
    { "n_layer", HETI_F_IN_GPT2, HETI_F_IN_GPT2, HETI_F_COPY, "layers", HET_JSON_NUMBER },
    { "num_hidden_layers", HETI_F_IN_ALL, HETI_F_IN_ROTARY, HETI_F_COPY, "layers", HET_JSON_NUMBER },
    { "n_embd", HETI_F_IN_GPT2, HETI_F_IN_GPT2, HETI_F_COPY, "width", HET_JSON_NUMBER },
    { "hidden_size", HETI_F_IN_ALL, HETI_F_IN_ROTARY, HETI_F_COPY, "width", HET_JSON_NUMBER },
    { "n_head", HETI_F_IN_GPT2, HETI_F_IN_GPT2, HETI_F_COPY, "heads", HET_JSON_NUMBER },
    { "num_attention_heads", HETI_F_IN_ALL, HETI_F_IN_ROTARY, HETI_F_COPY, "heads", HET_JSON_NUMBER },
    { "num_key_value_heads", HETI_F_IN_GATED, HETI_F_IN_GATED, HETI_F_COPY, "kv_heads", HET_JSON_NUMBER },
    { "head_dim", HETI_F_IN_GATED, HETI_F_IN_GATED, HETI_F_COPY, "head_size", HET_JSON_NUMBER },
    { "n_inner", HETI_F_IN_GPT2, HETI_F_IN_GPT2, HETI_F_COPY, "mlp_width", HET_JSON_NUMBER },
    { "intermediate_size", HETI_F_IN_ROTARY, HETI_F_IN_ROTARY, HETI_F_COPY, "mlp_width", HET_JSON_NUMBER },
    { "vocab_size", HETI_F_IN_ALL, HETI_F_IN_ALL, HETI_F_COPY, "vocab", HET_JSON_NUMBER },
    { "n_positions", HETI_F_IN_GPT2, HETI_F_IN_GPT2, HETI_F_COPY, "context", HET_JSON_NUMBER },
    { "n_ctx", HETI_F_IN_GPT2, 0, HETI_F_COPY, "context", HET_JSON_NUMBER },
    { "max_position_embeddings", HETI_F_IN_ALL, HETI_F_IN_ROTARY, HETI_F_COPY, "context", HET_JSON_NUMBER },
    { "layer_norm_epsilon", HETI_F_IN_GPT2, HETI_F_IN_GPT2, HETI_F_COPY, "norm_epsilon", HET_JSON_NUMBER },
    { "layer_norm_eps", HETI_F_IN_NEOX, HETI_F_IN_NEOX, HETI_F_COPY, "norm_epsilon", HET_JSON_NUMBER },
    { "rms_norm_eps", HETI_F_IN_GATED, HETI_F_IN_GATED, HETI_F_COPY, "norm_epsilon", HET_JSON_NUMBER },
    { "initializer_range", HETI_F_IN_ALL, HETI_F_IN_ALL, HETI_F_COPY, "init_std", HET_JSON_NUMBER },
    { "tie_word_embeddings", HETI_F_IN_ALL, HETI_F_IN_ALL, HETI_F_COPY, "tied", HET_JSON_BOOL },
    { "use_parallel_residual", HETI_F_IN_NEOX, HETI_F_IN_NEOX, HETI_F_COPY, "parallel", HET_JSON_BOOL },
    { "rotary_pct", HETI_F_IN_NEOX, HETI_F_IN_NEOX, HETI_F_COPY, "rotary_fraction", HET_JSON_NUMBER },
    { "partial_rotary_factor", HETI_F_IN_GATED | HETI_F_IN_ROPE, 0, HETI_F_COPY, "rotary_fraction", HET_JSON_NUMBER },
    { "rotary_emb_base", HETI_F_IN_NEOX, HETI_F_IN_NEOX, HETI_F_COPY, "rotary_theta", HET_JSON_NUMBER },
    { "rope_theta", HETI_F_IN_GATED | HETI_F_IN_ROPE, HETI_F_IN_GATED, HETI_F_COPY, "rotary_theta", HET_JSON_NUMBER },
    { "factor", HETI_F_IN_ROPE, HETI_F_IN_ROPE, HETI_F_COPY, "rotary_factor", HET_JSON_NUMBER },
    { "low_freq_factor", HETI_F_IN_ROPE, HETI_F_IN_ROPE, HETI_F_COPY, "rotary_low", HET_JSON_NUMBER },
    { "high_freq_factor", HETI_F_IN_ROPE, HETI_F_IN_ROPE, HETI_F_COPY, "rotary_high", HET_JSON_NUMBER },
    { "original_max_position_embeddings", HETI_F_IN_ROTARY | HETI_F_IN_ROPE, HETI_F_IN_ROPE, HETI_F_COPY,
     "rotary_original", HET_JSON_NUMBER },
    { "rope_type", HETI_F_IN_ROPE, 0, HETI_F_ROPE_TYPE, NULL, HET_JSON_STRING },
    { "type", HETI_F_IN_ROPE, 0, HETI_F_ROPE_TYPE, NULL, HET_JSON_STRING },
    { "rope_scaling", HETI_F_IN_ROTARY, 0, HETI_F_ROPE, NULL, HET_JSON_OBJECT },
    { "rope_parameters", HETI_F_IN_ROTARY, 0, HETI_F_ROPE, NULL, HET_JSON_OBJECT },
    { "activation_function", HETI_F_IN_GPT2, 0, HETI_F_ACT, NULL, HET_JSON_STRING },
    { "hidden_act", HETI_F_IN_ROTARY, 0, HETI_F_ACT, NULL, HET_JSON_STRING },
    { "use_sliding_window", HETI_F_IN_ALL, 0, HETI_F_USE_WINDOW, NULL, HET_JSON_BOOL },
    { "sliding_window", HETI_F_IN_QWEN, 0, HETI_F_WINDOW, NULL, HET_JSON_NUMBER },
    { "max_window_layers", HETI_F_IN_QWEN, 0, HETI_F_WINDOW_LAYERS, NULL, HET_JSON_NUMBER },
    { "layer_types", HETI_F_IN_ALL, 0, HETI_F_LAYER_TYPES, NULL, HET_JSON_ARRAY },
    { "attention_bias", HETI_F_IN_ROTARY, 0, HETI_F_ATTENTION_BIAS, NULL, HET_JSON_BOOL },
    { "mlp_bias", HETI_F_IN_LLAMA, 0, HETI_F_MLP_BIAS, NULL, HET_JSON_BOOL }
};
#define HETI_F_CONFIG_KEYS HETI_T_CAST(int, sizeof heti_f_config_keys / sizeof heti_f_config_keys[0])

/* Keys of models that compute something else: only a neutral value, which leaves the model as it
   is, is read. null is neutral everywhere, a list is where each of its elements is. Numbers come
   from the model: its sizes, or 1 / sqrt(E), the scale of attention's scores. */
typedef enum heti_f_neutral {
    HETI_F_IS_NONE /* false, 0, "", [], {} */, HETI_F_IS_ONE /* 1 or true */, HETI_F_IS_HEAD_SIZE, HETI_F_IS_HEADS,
    HETI_F_IS_KV_HEADS, HETI_F_IS_SCALE, HETI_F_IS_WIDE /* a window that holds the context */
} heti_f_neutral;
/* a blank before and behind every key */
typedef struct heti_f_foreign { int families; heti_f_neutral neutral; const char *keys; } heti_f_foreign;
static const heti_f_foreign heti_f_foreigns[] = {
    { HETI_F_IN_ALL, HETI_F_IS_NONE,
      " quantization_config quantization compression_config pruned_heads add_cross_attention is_encoder_decoder "
      "alibi use_alibi scale_attn_by_inverse_layer_idx use_bidirectional_attention scale_embedding scale_depth "
      "attn_temperature_tuning use_logn_attn use_mup clip_qkv attn_logit_softcapping attn_logit_softcap "
      "final_logit_softcapping logits_soft_cap num_experts num_local_experts n_routed_experts n_shared_experts "
      "moe_num_experts vision_config multi_query parallel_attn apply_residual_connection_post_layernorm "
      "use_post_norm attn_output_gate rope_interleave rope_interleaved attention_chunk_size per_layer_config " },
    { HETI_F_IN_ALL, HETI_F_IS_ONE,
      " scale_attn_weights is_causal logit_scale logits_scale logits_scaling lm_head_multiplier embedding_multiplier "
      "embedding_scale scale_emb residual_multiplier residual_scale mlp_multipliers key_multiplier "
      "attention_in_multiplier attention_out_multiplier do_layer_norm_before rope_ratio " },
    { HETI_F_IN_ALL, HETI_F_IS_SCALE, " attention_multiplier softmax_scale " },
    { HETI_F_IN_ALL, HETI_F_IS_HEAD_SIZE, " query_pre_attn_scalar " },
    { HETI_F_IN_ALL, HETI_F_IS_KV_HEADS, " num_kv_heads n_head_kv " },
    { HETI_F_IN_ALL - HETI_F_IN_QWEN3, HETI_F_IS_NONE, " use_qk_norm qk_norm qk_layernorm " },
    { HETI_F_IN_QWEN3, HETI_F_IS_ONE, " use_qk_norm qk_norm qk_layernorm " },
    { HETI_F_IN_ALL - HETI_F_IN_QWEN, HETI_F_IS_WIDE, " sliding_window " },
    { HETI_F_IN_ALL - HETI_F_IN_NEOX, HETI_F_IS_NONE, " use_parallel_residual " },
    { HETI_F_IN_ROTARY, HETI_F_IS_ONE, " use_rope no_rope_layers " },
    { HETI_F_IN_ROTARY, HETI_F_IS_NONE, " no_rope_layer_interval " },
    { HETI_F_IN_GPT2, HETI_F_IS_NONE, " use_rope rotary_dim " },
    { HETI_F_IN_GATED, HETI_F_IS_ONE, " rotary_pct " },
    { HETI_F_IN_GATED, HETI_F_IS_HEAD_SIZE, " rotary_dim " },
    { HETI_F_IN_QWEN, HETI_F_IS_NONE, " mlp_bias " },
    { HETI_F_IN_GPT2 | HETI_F_IN_NEOX, HETI_F_IS_HEAD_SIZE, " head_dim " },
    { HETI_F_IN_GPT2 | HETI_F_IN_NEOX, HETI_F_IS_HEADS, " num_key_value_heads " }
};

/* Words that are values of a key, and what they say. The first of an activation is written;
   transformers' gelu_fast and gelu_pytorch_tanh are the same formula as gelu_new. */
enum { HETI_F_ROPE_DEFAULT = 0, HETI_F_ROPE_LLAMA3 = 1, HETI_F_ALL_FULL = 0, HETI_F_ALL_SLIDING = 1 };
typedef struct heti_f_word {
    heti_f_special special;
    int families;
    const char *word;
    int value, untold;                /* untold: errors do not list it */
} heti_f_word;
static const heti_f_word heti_f_words[] = {
    { HETI_F_ACT, HETI_F_IN_GPT2 | HETI_F_IN_NEOX, "gelu_new", HET_GELU_TANH, 0 },
    { HETI_F_ACT, HETI_F_IN_GPT2 | HETI_F_IN_NEOX, "gelu_fast", HET_GELU_TANH, 0 },
    { HETI_F_ACT, HETI_F_IN_GPT2 | HETI_F_IN_NEOX, "gelu_pytorch_tanh", HET_GELU_TANH, 0 },
    { HETI_F_ACT, HETI_F_IN_GPT2 | HETI_F_IN_NEOX, "gelu", HET_GELU_ERF, 0 },
    { HETI_F_ACT, HETI_F_IN_GPT2 | HETI_F_IN_NEOX, "gelu_python", HET_GELU_ERF, 1 },
    { HETI_F_ACT, HETI_F_IN_GATED, "silu", HET_SWIGLU, 0 }, { HETI_F_ACT, HETI_F_IN_GATED, "swish", HET_SWIGLU, 1 },
    { HETI_F_ROPE_TYPE, HETI_F_IN_ALL, "default", HETI_F_ROPE_DEFAULT, 0 },
    { HETI_F_ROPE_TYPE, HETI_F_IN_ALL, "llama3", HETI_F_ROPE_LLAMA3, 0 },
    { HETI_F_LAYER_TYPES, HETI_F_IN_ALL, "full_attention", HETI_F_ALL_FULL, 0 },
    { HETI_F_LAYER_TYPES, HETI_F_IN_ALL, "sliding_attention", HETI_F_ALL_SLIDING, 0 }
};
#define HETI_F_WORDS HETI_T_CAST(int, sizeof heti_f_words / sizeof heti_f_words[0])

/* The class with a head is written; the one without, whose name has Model in place of the last 11
   letters, is read too. */
typedef struct heti_f_family {
    const char *type, *name, *architecture, *gguf; /* gguf: llama.cpp's name of the architecture */
} heti_f_family;
static const heti_f_family heti_f_families[] = { /* in the order of het_family, the first is HET_GPT2 */
    { "gpt2", "gpt2", "GPT2LMHeadModel", "gpt2" }, { "llama", "llama", "LlamaForCausalLM", "llama" },
    { "qwen2", "qwen2", "Qwen2ForCausalLM", "qwen2" }, { "qwen3", "qwen3", "Qwen3ForCausalLM", "qwen3" },
    { "gpt_neox", "neox", "GPTNeoXForCausalLM", "gptneox" }
};
#define HETI_F_FAMILIES HETI_T_CAST(int, sizeof heti_f_families / sizeof heti_f_families[0])

static const heti_f_family *heti_f_family_of(const het_model_desc *m) { return &heti_f_families[m->family - HET_GPT2]; }
/* HETI_F_IN_ bit of its family */
static int heti_f_in(const het_model_desc *m) { return 1 << (m->family - HET_GPT2); }

/* The setting of this name as a model has it. Returns its number; -1: there is none. */
static int64_t heti_f_setting(const het_model_desc *model, const char *name, het_setting *s) {
    for (int64_t n = 0; het_model_get(model, n, s); n++)
        if (strcmp(s->name, name) == 0) return n;
    return -1;
}

/* The key that is written for a setting. */
static const char *heti_f_key_of(int in, const char *setting) {
    for (int i = 0; i < HETI_F_CONFIG_KEYS; i++)
        if ((heti_f_config_keys[i].written & in) != 0 && strcmp(heti_f_config_keys[i].setting, setting) == 0)
            return heti_f_config_keys[i].key;
    return setting;
}

typedef struct heti_f_value { char text[64]; } heti_f_value;

/* Texts here are shorter than the room there is. */
static void heti_f_copy(char *to, size_t capacity, const char *from, size_t length) {
    if (length > capacity - 1) length = capacity - 1;
    memcpy(to, from, length);
    to[length] = 0;
}

/* ---- read ---- */

#define HETI_F_SETTINGS 40

typedef struct heti_f_config {
    het_json json;
    het_error *error;
    het_result result;                /* of HETI_F_STOP */
    int in;                           /* HETI_F_IN_ bit of the family */
    het_model_desc model;
    size_t at[HETI_F_SETTINGS];       /* by number: where the value of a setting stands, 0: nowhere */
    int64_t said[HETI_F_SAID];        /* by heti_f_special: choices as 0 and 1, words as the value
                                         they have in their table; -1: absent */
    int rope_types, rope_scales;      /* keys seen that name a type, and that would need one */
    int as_many;                      /* kv_heads as heads: its key is null */
    size_t own;                       /* where the value of "hetrain" stands, 0: nowhere */
    size_t rope, rope_size;           /* where the first of two rope objects stands, and its bytes */
} heti_f_config;

/* An error beside the syntax of c->json. It stops the cursor, so that what follows does nothing,
   and is the result unless there was one before. */
#define HETI_F_STOP(c, code, ...)                                                                                 \
    do {                                                                                                          \
        if ((c)->json.rule == NULL) (c)->result = heti_t_fail((c)->error, (code), __VA_ARGS__);                   \
        (void)het_json_fail(&(c)->json, "");                                                                      \
    } while (0)

static const char heti_f_config_where[] = "het_model_from_json";
#define HETI_F_CONFIG_BAD(c, ...) HETI_F_STOP((c), HET_ERR_FORMAT, "het_model_from_json: " __VA_ARGS__)

static het_result heti_f_config_result(const heti_f_config *c) {
    return c->result != HET_OK ? c->result : heti_t_json_result(&c->json, heti_f_config_where, c->error);
}

static void heti_f_config_unsupported(heti_f_config *c, const char *key, const char *value, const char *known) {
    HETI_F_STOP(c, HET_ERR_UNSUPPORTED, "%s: %s %q is not supported%s%s", heti_f_config_where, key, value,
                strlen(value), known[0] != 0 ? "; supported: " : "", known);
}

/* Takes a number, string, true, false or null as text of at most capacity - 1 bytes; arrays and
   objects are an error. */
static het_json_kind heti_f_scalar(het_json *j, char *to, size_t capacity) {
    const het_json_kind kind = het_json_peek(j);
    const size_t start = j->at;
    size_t length = 0;
    to[0] = 0;
    if (kind == HET_JSON_STRING) {
        het_json_string(j, to, capacity, &length);
        if (length != strlen(to)) het_json_fail(j, "a string is too long here");
    } else if (kind == HET_JSON_ARRAY || kind == HET_JSON_OBJECT) {
        het_json_fail(j, "a plain value was expected");
    } else if (het_json_skip(j)) {
        heti_f_copy(to, capacity, j->text + start, j->at - start);
        if (j->at - start >= capacity) het_json_fail(j, "a number is too long here");
    }
    return j->rule != NULL ? HET_JSON_ERROR : kind;
}


/* A cursor at the value that stands at byte `at`. */
static het_json heti_f_config_at(const heti_f_config *c, size_t at) {
    het_json j = c->json;
    j.at = at;
    j.depth = 0;
    return j;
}

/* That value as text. */
static heti_f_value heti_f_config_value(const heti_f_config *c, size_t at) {
    het_json j = heti_f_config_at(c, at);
    heti_f_value value;
    (void)heti_f_scalar(&j, value.text, sizeof value.text);
    return value;
}

/* That value as it stands in the file, cut. */
static heti_f_value heti_f_raw(const heti_f_config *c, size_t at) {
    static const char *const heti_f_method[] = { "quant_method", NULL };
    het_json j = heti_f_config_at(c, at);
    heti_f_value shown;
    if (het_json_peek(&j) == HET_JSON_OBJECT) het_json_enter(&j, HET_JSON_OBJECT);
    /* of how weights are quantised the method's name */
    while (j.depth > 0 && heti_t_key(&j, heti_f_method) >= 0) {
        at = j.at;
        het_json_skip(&j);
    }
    j.at = at;
    (void)het_json_skip(&j);
    heti_f_copy(shown.text, 48, c->json.text + at, j.at - at);
    return shown;
}

/* Two values of a setting are the same: as numbers, or else letter by letter. */
static int heti_f_same_value(const char *a, const char *b) {
    het_json j = het_json_start(a, strlen(a)), k = het_json_start(b, strlen(b));
    double x = 0.0, y = 0.0;
    if (strcmp(a, b) == 0) return 1;
    return het_json_real(&j, &x) && het_json_end(&j) && het_json_real(&k, &y) && het_json_end(&k) && x >= y && x <= y;
}

/* Notes where the value of a setting stands. */
static void heti_f_config_copy(heti_f_config *c, const heti_f_config_key *k) {
    heti_f_value value;
    het_setting s;
    const int64_t n = heti_f_setting(&c->model, k->setting, &s);
    het_json_kind kind = het_json_peek(&c->json);
    const size_t at = c->json.at;
    kind = heti_f_scalar(&c->json, value.text, sizeof value.text);
    if (kind == HET_JSON_NULL) c->as_many |= strcmp(k->setting, "kv_heads") == 0;
    if (kind == HET_JSON_NULL) return;
    if (kind != k->kind) HETI_F_CONFIG_BAD(c, "byte %z: %s has a value of the wrong type", at, k->key);
    if (c->at[n] == 0) c->at[n] = at;
    const heti_f_value before = heti_f_config_value(c, c->at[n]);
    if (!heti_f_same_value(before.text, value.text))
        HETI_F_CONFIG_BAD(c, "byte %z: %s %s contradicts an earlier key, which gave %s", at, k->key, value.text,
                          before.text);
}

/* A choice or a number that is not negative. */
static void heti_f_config_say(heti_f_config *c, const heti_f_config_key *k) {
    int64_t *said = &c->said[k->special];
    int truth = 0;
    if (het_json_peek(&c->json) == HET_JSON_NULL && het_json_null(&c->json))
        *said = k->special == HETI_F_WINDOW ? 0 : *said; /* none, where an absent one is transformers' default */
    else if (k->kind == HET_JSON_NUMBER && het_json_integer(&c->json, said) && *said < 0)
        het_json_fail(&c->json, "a number that is not negative was expected");
    else if (k->kind == HET_JSON_BOOL && het_json_boolean(&c->json, &truth)) *said = truth;
}

static void heti_f_config_architecture(heti_f_config *c, const char *value) {
    const char *known = heti_f_family_of(&c->model)->architecture;
    const size_t stem = strlen(known) - strlen("ForCausalLM");
    const int headless = strncmp(value, known, stem) == 0 && strcmp(value + stem, "Model") == 0;
    if (!headless && strcmp(value, known) != 0) heti_f_config_unsupported(c, "architectures", value, known);
}

/* One word of a key. What was said before must be the same. */
static void heti_f_config_word(heti_f_config *c, const heti_f_config_key *k, const char *value) {
    const heti_f_word *w = heti_f_words, *end = w + HETI_F_WORDS;
    int64_t *said = &c->said[k->special];
    char known[80];
    heti_t_text t = heti_t_text_in(known, sizeof known);
    for (; w < end; w++) {
        if (w->special != k->special || (w->families & c->in) == 0) continue;
        if (strcmp(w->word, value) == 0) break;
        if (!w->untold) heti_t_format(&t, t.length > 0 ? ", %s" : "%s", w->word);
    }
    if (w == end) heti_f_config_unsupported(c, k->key, value, known);
    else if (*said >= 0 && *said != w->value && k->special == HETI_F_LAYER_TYPES)
        heti_f_config_unsupported(c, k->key, "that differ between layers", "");
    else if (*said >= 0 && *said != w->value)
        HETI_F_CONFIG_BAD(c, "%s %s contradicts an earlier one", k->key, value);
    else *said = w->value;
    c->rope_types += k->special == HETI_F_ROPE_TYPE;
}

/* A word, a list of words, or null. */
static void heti_f_config_words(heti_f_config *c, const heti_f_config_key *k) {
    const int list = k->kind == HET_JSON_ARRAY;
    heti_f_value value;
    if (het_json_peek(&c->json) == HET_JSON_NULL && het_json_null(&c->json)) return;
    if (list) het_json_enter(&c->json, HET_JSON_ARRAY);
    for (int i = 0; list ? het_json_next(&c->json, NULL, 0, NULL) : i == 0; i++) {
        (void)heti_f_scalar(&c->json, value.text, sizeof value.text);
        if (k->special == HETI_F_ARCHITECTURES) heti_f_config_architecture(c, value.text);
        else heti_f_config_word(c, k, value.text);
    }
}

static void heti_f_config_object(heti_f_config *c, int in);
static int heti_f_config_is_neutral(heti_f_config *c, heti_f_neutral neutral);

/* rope_scaling or rope_parameters. Where both say something transformers reads the first alone, so
   they must be the same. What scales the frequencies means nothing without a type. */
static void heti_f_config_rope_object(heti_f_config *c, const char *key) {
    const het_json start = c->json;
    if (heti_f_config_is_neutral(c, HETI_F_IS_NONE)) return;
    c->json = start;
    heti_f_config_object(c, HETI_F_IN_ROPE);
    const size_t size = c->json.at - start.at;
    if (c->rope != 0 && (size != c->rope_size || memcmp(start.text + start.at, start.text + c->rope, size) != 0))
        heti_f_config_unsupported(c, key, heti_f_raw(c, start.at).text, "what the other rope settings say");
    c->rope = start.at;
    c->rope_size = size;
    if (c->rope_types == 0 && c->rope_scales > 0)
        heti_f_config_unsupported(c, key, heti_f_raw(c, start.at).text, "with rope_type default or llama3");
}

static void heti_f_config_take(heti_f_config *c, const heti_f_config_key *k) {
    if (k->special == HETI_F_OWN) c->own = c->json.at;
    if (k->special == HETI_F_OWN || k->special == HETI_F_MODEL_TYPE) /* read after, and before, everything else */
        het_json_skip(&c->json);
    else if (k->special == HETI_F_COPY) heti_f_config_copy(c, k);
    else if (k->special == HETI_F_ROPE) heti_f_config_rope_object(c, k->key);
    else if (k->kind == HET_JSON_NUMBER || k->kind == HET_JSON_BOOL) heti_f_config_say(c, k);
    else heti_f_config_words(c, k);
}

/* The object at the cursor: top level (in: the family) or the rope settings. Unknown keys are
   stepped over. */
static void heti_f_config_object(heti_f_config *c, int in) {
    uint64_t seen = 0;
    char key[64];
    size_t length = 0;
    het_json_enter(&c->json, HET_JSON_OBJECT);
    while (het_json_next(&c->json, key, sizeof key, &length)) {
        int i;
        for (i = 0; i < HETI_F_CONFIG_KEYS; i++)
            if ((heti_f_config_keys[i].families & in) != 0 && heti_t_is(key, length, heti_f_config_keys[i].key)) break;
        if (i == HETI_F_CONFIG_KEYS) {
            if (in == HETI_F_IN_ROPE && het_json_peek(&c->json) == HET_JSON_OBJECT)
                heti_f_config_unsupported(c, "rope settings by layer type:", key, "");
            c->rope_scales += in == HETI_F_IN_ROPE;
            het_json_skip(&c->json);
            continue;
        }
        if (((seen >> i) & 1) != 0) HETI_F_CONFIG_BAD(c, "byte %z: %s occurs twice", c->json.at, key);
        seen |= UINT64_C(1) << i;
        c->rope_scales += in == HETI_F_IN_ROPE && strncmp(key, "rope_t", 6) != 0 && strncmp(key, "partial", 7) != 0;
        heti_f_config_take(c, &heti_f_config_keys[i]);
    }
}

/* First pass: the family, which says what the other keys mean, and the syntax of the whole text. */
static void heti_f_config_family(heti_f_config *c) {
    static const char *const heti_f_keys[] = { "model_type", NULL };
    char type[64] = "";
    const char *base = type;
    int count = 0;
    het_json_enter(&c->json, HET_JSON_OBJECT);
    while (heti_t_key(&c->json, heti_f_keys) >= 0)
        if (het_json_peek(&c->json) != HET_JSON_STRING) het_json_skip(&c->json);
        else count += heti_f_scalar(&c->json, type, sizeof type) == HET_JSON_STRING;
    het_json_end(&c->json);
    if (count != 1)
        HETI_F_CONFIG_BAD(c, "%s", count > 0 ? "model_type occurs twice" : "model_type is missing");
    if (strncmp(type, "hetrain_", 8) == 0) base = type + 8;
    for (int i = 0; i < HETI_F_FAMILIES; i++)
        if (strcmp(heti_f_families[i].type, base) == 0) c->model.family = HETI_T_CAST(het_family, HET_GPT2 + i);
    if (c->model.family < HET_GPT2)
        heti_f_config_unsupported(c, "model_type", type, "gpt2, llama, qwen2, qwen3, gpt_neox");
    else c->in = heti_f_in(&c->model);
}

/* Where the value of a setting stands. */
static size_t *heti_f_config_place(heti_f_config *c, const char *setting) {
    het_setting s;
    return &c->at[heti_f_setting(&c->model, setting, &s)];
}

/* What several keys decide together. */
static void heti_f_config_window(heti_f_config *c) {
    const int64_t types = c->said[HETI_F_LAYER_TYPES], window = c->said[HETI_F_WINDOW];
    const int64_t layers_full = c->said[HETI_F_WINDOW_LAYERS] < 0 ? 28 : c->said[HETI_F_WINDOW_LAYERS];
    int sliding = (c->in & HETI_F_IN_QWEN) != 0 && c->said[HETI_F_USE_WINDOW] > 0 && window != 0;
    het_json j = heti_f_config_at(c, *heti_f_config_place(c, "layers"));
    int64_t layers = 0;
    (void)het_json_integer(&j, &layers); /* what is no integer is refused later */
    if (types == HETI_F_ALL_SLIDING && !sliding)
        HETI_F_CONFIG_BAD(c, "layer_types says sliding_attention, use_sliding_window does not");
    if (types == HETI_F_ALL_FULL) sliding = 0;
    if (!sliding || (types < 0 && layers_full >= layers)) return;
    if (types < 0 && layers_full > 0)
        heti_f_config_unsupported(c, "max_window_layers", "between 1 and the number of layers", "");
    c->model.window = window < 0 ? 4096 : window; /* as 28 above a default of transformers */
}

static void heti_f_config_biases(heti_f_config *c) {
    const int attention = c->said[HETI_F_ATTENTION_BIAS] > 0, mlp = c->said[HETI_F_MLP_BIAS] > 0;
    if (c->in == HETI_F_IN_NEOX && c->said[HETI_F_ATTENTION_BIAS] == 0)
        heti_f_config_unsupported(c, "attention_bias", "false", "true");
    if (c->in == HETI_F_IN_QWEN3 && attention) heti_f_config_unsupported(c, "attention_bias", "true", "false");
    if (c->in != HETI_F_IN_LLAMA) return;
    if (attention != mlp)
        heti_f_config_unsupported(c, "attention_bias unlike", "mlp_bias", "both true, both false");
    c->model.qkv_bias = c->model.linear_bias = attention ? HET_YES : HET_NO;
}

static void heti_f_config_rope(heti_f_config *c) {
    static const char *const heti_f_scaling[] = { "rotary_factor", "rotary_low", "rotary_high", "rotary_original" };
    const size_t part = *heti_f_config_place(c, "rotary_fraction");
    const heti_f_value fraction = heti_f_config_value(c, part);
    if ((c->in & HETI_F_IN_GATED) != 0 && part != 0 && !heti_f_same_value(fraction.text, "1"))
        heti_f_config_unsupported(c, "partial_rotary_factor", fraction.text, "1");
    for (int i = 0; i < 4; i++) {
        if (c->said[HETI_F_ROPE_TYPE] != HETI_F_ROPE_LLAMA3) *heti_f_config_place(c, heti_f_scaling[i]) = 0;
        else if (i < 3 && *heti_f_config_place(c, heti_f_scaling[i]) == 0)
            HETI_F_CONFIG_BAD(c, "rope_type llama3 needs factor, low_freq_factor and high_freq_factor");
    }
}

/* Absent keys mean what transformers' configuration classes mean, which is not always this
   library's default. */
static void heti_f_config_defaults(heti_f_config *c) {
    static const char *const heti_f_needed[] = { "layers", "width", "heads", "vocab", "context", "mlp_width" };
    het_model_desc *m = &c->model;
    for (int i = 0; i < (c->in == HETI_F_IN_GPT2 ? 5 : 6); i++)
        if (*heti_f_config_place(c, heti_f_needed[i]) == 0)
            HETI_F_CONFIG_BAD(c, "%s is missing", heti_f_key_of(c->in, heti_f_needed[i]));
    if ((c->in & HETI_F_IN_QWEN) != 0 && !c->as_many) m->kv_heads = 32;
    if (c->in == HETI_F_IN_QWEN3) m->head_size = 128;
    m->norm_epsilon = (c->in & HETI_F_IN_GATED) != 0 ? 1e-6f : 1e-5f;
    m->rotary_theta = 10000.0f;
    if (c->said[HETI_F_ACT] >= 0) m->activation = HETI_T_CAST(het_activation, c->said[HETI_F_ACT]);
    heti_f_config_window(c);
    heti_f_config_biases(c);
    heti_f_config_rope(c);
}

/* "hetrain": {setting: value}, what het_model_to_json adds where Hugging Face has no key. It
   overrides. */
static void heti_f_config_own(heti_f_config *c) {
    uint64_t given = 0;
    char key[32];
    heti_f_value value;
    het_setting s;
    size_t length = 0;
    c->json = heti_f_config_at(c, c->own);
    het_json_enter(&c->json, HET_JSON_OBJECT);
    while (het_json_next(&c->json, key, sizeof key, &length)) {
        const int64_t n = length < sizeof key ? heti_f_setting(&c->model, key, &s) : -1;
        if (n < 0 || ((given >> n) & 1) != 0) {
            HETI_F_CONFIG_BAD(c, "byte %z: %s key %q in \"hetrain\"", c->json.at, n < 0 ? "unknown" : "repeated", key,
                              heti_t_shown(length, sizeof key));
            return;
        }
        given |= UINT64_C(1) << n;
        c->at[n] = c->json.at;
        (void)heti_f_scalar(&c->json, value.text, sizeof value.text);
    }
}

/* What the file says goes over the defaults; then the model is completed. */
static het_result heti_f_config_model(heti_f_config *c) {
    het_error why;
    for (int64_t n = 0; n < HETI_F_SETTINGS; n++) {
        const heti_f_value value = heti_f_config_value(c, c->at[n]);
        if (c->at[n] != 0) HETI_T_TRY(het_model_put(&c->model, n, value.text, heti_f_config_where, c->error));
    }
    if (c->said[HETI_F_ROPE_TYPE] == HETI_F_ROPE_LLAMA3 && *heti_f_config_place(c, "rotary_original") == 0)
        c->model.rotary_original = c->model.context;
    if (het_model_complete(&c->model, &why) == HET_OK) return HET_OK;
    return heti_t_fail(c->error, why.code, "%s%s", heti_f_config_where, why.text + sizeof "het_model_complete" - 1);
}

/* The value at the cursor is neutral; the cursor steps over it. */
static int heti_f_config_is_neutral(heti_f_config *c, heti_f_neutral neutral) {
    const het_model_desc *m = &c->model;
    char text[8];
    size_t length = 1;
    const double wanted[] = { 0.0, 1.0, HETI_T_CAST(double, m->head_size), HETI_T_CAST(double, m->heads),
                              HETI_T_CAST(double, m->kv_heads) }; /* by heti_f_neutral */
    double value = 0.0;
    int truth = 0, all = 1;
    switch (het_json_peek(&c->json)) {
    case HET_JSON_NULL: return het_json_null(&c->json);
    case HET_JSON_BOOL: return het_json_boolean(&c->json, &truth) && (truth != 0) == (neutral == HETI_F_IS_ONE);
    case HET_JSON_STRING: return het_json_string(&c->json, text, sizeof text, &length) && length == 0;
    case HET_JSON_OBJECT:
        het_json_enter(&c->json, HET_JSON_OBJECT);
        for (length = 0; het_json_next(&c->json, NULL, 0, NULL); length++) het_json_skip(&c->json);
        return length == 0;
    case HET_JSON_ARRAY:
        het_json_enter(&c->json, HET_JSON_ARRAY);
        while (het_json_next(&c->json, NULL, 0, NULL)) all &= heti_f_config_is_neutral(c, neutral);
        return all;
    case HET_JSON_NUMBER:
    case HET_JSON_ERROR:
    default: break;
    }
    (void)het_json_real(&c->json, &value);
    if (neutral == HETI_F_IS_WIDE)
        return value <= 0.0 || value >= HETI_T_CAST(double, m->context) || c->said[HETI_F_USE_WINDOW] == 0;
    if (neutral == HETI_F_IS_SCALE) { /* value^2 E = 1, but for the digits that a file has */
        value *= value * HETI_T_CAST(double, m->head_size);
        return value > 1.0 - 1e-5 && value < 1.0 + 1e-5;
    }
    return value >= wanted[neutral] && value <= wanted[neutral];
}

/* Once more over the top level: what else there is must leave the model as it is. */
static void heti_f_config_foreign(heti_f_config *c) {
    const int foreigns = HETI_T_CAST(int, sizeof heti_f_foreigns / sizeof heti_f_foreigns[0]);
    char key[64] = " "; /* and a blank behind, as in the table */
    size_t length = 0, at;
    int i;
    c->json = het_json_start(c->json.text, c->json.length);
    het_json_enter(&c->json, HET_JSON_OBJECT);
    while (het_json_next(&c->json, key + 1, sizeof key - 2, &length)) {
        const size_t end = strlen(key);
        memcpy(key + end, " ", 2);
        for (i = 0; i < foreigns; i++)
            if ((heti_f_foreigns[i].families & c->in) != 0 && end == length + 1 &&
                strstr(heti_f_foreigns[i].keys, key) != NULL)
                break;
        at = c->json.at;
        if (i == foreigns) {
            het_json_skip(&c->json);
        } else if (!heti_f_config_is_neutral(c, heti_f_foreigns[i].neutral)) {
            key[end] = 0;
            heti_f_config_unsupported(c, key + 1, heti_f_raw(c, at).text, "");
        }
    }
}

HETRAIN_API het_result het_model_from_json(const char *text, size_t length, het_model_desc *model, het_error *error) {
    heti_f_config c = HETI_T_ZEROS;
    if (text == NULL || model == NULL)
        return HETI_F_BAD(error, "%s: %s is NULL", heti_f_config_where, text == NULL ? "text" : "model");
    memset(c.said, -1, sizeof c.said);
    c.json = het_json_start(text, length);
    c.error = error;
    heti_f_config_family(&c);
    HETI_T_TRY(heti_f_config_result(&c));
    c.json = het_json_start(text, length);
    heti_f_config_object(&c, c.in);
    heti_f_config_defaults(&c);
    if (c.own != 0) heti_f_config_own(&c);
    HETI_T_TRY(heti_f_config_result(&c));
    HETI_T_TRY(heti_f_config_model(&c));
    heti_f_config_foreign(&c);
    HETI_T_TRY(heti_f_config_result(&c));
    *model = c.model;
    return HET_OK;
}

/* ---- written ---- */

static void heti_f_text_pair(heti_t_text *t, const char *key, const char *value) {
    heti_t_format(t, ",\n  \"%s\": %s", key, value);
}

/* A setting as JSON, by its name: choices are true and false. */
static void heti_f_text_setting(heti_t_text *t, const char *key, const het_model_desc *m, const char *name) {
    het_setting s;
    (void)heti_f_setting(m, name, &s);
    heti_f_text_pair(t, key, "");
    if (s.kind == HET_SETTING_WORD) heti_t_put(t, s.integer == HET_YES ? "true" : "false");
    else heti_t_setting_text(t, &s);
}

/* The keys that are written in `in`, as ",\n  key: value". */
static void heti_f_text_keys(heti_t_text *t, const het_model_desc *m, int in) {
    const heti_f_config_key *k = heti_f_config_keys;
    for (; k < heti_f_config_keys + HETI_F_CONFIG_KEYS; k++)
        if ((k->written & in) != 0) heti_f_text_setting(t, k->key, m, k->setting);
}

/* Keys that are no plain copy of a setting. */
static void heti_f_text_specials(heti_t_text *t, const het_model_desc *m, int in) {
    const char *bias = m->qkv_bias == HET_YES && m->linear_bias == HET_YES ? "true" : "false";
    for (const heti_f_word *w = heti_f_words; w->special == HETI_F_ACT; w++) {
        if (w->value != HETI_T_CAST(int, m->activation) || (w->families & in) == 0) continue;
        heti_f_text_pair(t, in == HETI_F_IN_GPT2 ? "activation_function" : "hidden_act", "");
        heti_t_format(t, "%j", w->word);
        break;
    }
    if ((in & HETI_F_IN_ROTARY) != 0 && m->rotary_factor > 0.0f) {
        heti_f_text_pair(t, "rope_scaling", "{\n  \"rope_type\": \"llama3\"");
        heti_f_text_keys(t, m, HETI_F_IN_ROPE);
        heti_t_char(t, '}');
    } else if ((in & HETI_F_IN_ROTARY) != 0) {
        heti_f_text_pair(t, "rope_scaling", "null");
    }
    if ((in & HETI_F_IN_QWEN) != 0) {
        heti_f_text_pair(t, "use_sliding_window", m->window > 0 ? "true" : "false");
        if (m->window > 0) heti_f_text_setting(t, "sliding_window", m, "window");
        else heti_f_text_pair(t, "sliding_window", "null");
        heti_f_text_pair(t, "max_window_layers", "0");
    }
    if (in == HETI_F_IN_LLAMA) {
        heti_f_text_pair(t, "attention_bias", bias);
        heti_f_text_pair(t, "mlp_bias", bias);
    }
    /* where transformers has places for dropout like ours; reading ignores it */
    if (in == HETI_F_IN_GPT2) heti_f_text_setting(t, "resid_pdrop", m, "dropout");
    if (in == HETI_F_IN_GPT2) heti_f_text_setting(t, "embd_pdrop", m, "dropout");
    if (in == HETI_F_IN_NEOX) heti_f_text_setting(t, "hidden_dropout", m, "dropout");
    heti_f_text_pair(t, in == HETI_F_IN_GPT2 ? "attn_pdrop" : "attention_dropout", "0.0");
}

/* Keys that are written, or said otherwise, and so are not taken over from another config.json. */
static const char heti_f_own_keys[] =
    " torch_dtype dtype use_cache resid_pdrop embd_pdrop attn_pdrop attention_dropout hidden_dropout ";

/* The keys of a config.json that do not describe the model, as they stand there. */
static void heti_f_text_others(heti_t_text *t, const char *base, size_t base_length) {
    het_json j = het_json_start(base, base_length);
    char key[96] = " ";
    size_t length = 0, start;
    int i;
    het_json_enter(&j, HET_JSON_OBJECT);
    while (het_json_next(&j, key + 1, sizeof key - 2, &length)) {
        for (i = 0; i < HETI_F_CONFIG_KEYS && !heti_t_is(key + 1, length, heti_f_config_keys[i].key); i++) {}
        start = j.at;
        het_json_skip(&j);
        if (i < HETI_F_CONFIG_KEYS || strlen(key) != length + 1) continue;
        memcpy(key + length + 1, " ", 2);
        if (strstr(heti_f_own_keys, key) != NULL) continue;
        heti_t_put(t, ",\n  ");
        heti_t_json(t, key + 1, length);
        heti_t_put(t, ": ");
        for (; start < j.at; start++) heti_t_char(t, base[start]);
    }
}

/* What base has for a key or its other name, a plain value; "": it has none. */
static void heti_f_base_says(const char *base, size_t base_length, const char *key, const char *other, char to[64]) {
    const char *const keys[] = { key, other, NULL };
    het_json j = het_json_start(base, base_length);
    to[0] = 0;
    het_json_enter(&j, HET_JSON_OBJECT);
    while (base != NULL && heti_t_key(&j, keys) >= 0) (void)heti_f_scalar(&j, to, 64);
}

/* The whole text up to the closing brace. With experts in base, under either of transformers' keys,
   it is that of a model with experts, one of transformers where base says so. */
static void heti_f_text_config(heti_t_text *t, const het_model_desc *m, const char *prefix, het_element element,
                               const char *base, size_t base_length) {
    const heti_f_family *family = heti_f_family_of(m);
    const int in = heti_f_in(m);
    char number[64], type[64];
    heti_f_base_says(base, base_length, "num_experts", "num_local_experts", number);
    heti_f_base_says(base, base_length, "model_type", NULL, type);
    const int experts = number[0] > '0' && number[0] <= '9';
    const int theirs = experts && in == HETI_F_IN_QWEN3 && strcmp(type, "qwen3_moe") == 0;
    heti_t_format(t, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s%s%s\"",
                  theirs ? "Qwen3MoeForCausalLM" : family->architecture, experts && !theirs ? "hetrain_" : prefix,
                  family->type, experts ? "_moe" : "");
    heti_f_text_keys(t, m, in);
    heti_f_text_specials(t, m, in);
    heti_f_text_pair(t, "use_cache", "true");
    heti_f_text_pair(t, "torch_dtype", element == HET_ELEMENT_BF16 ? "\"bfloat16\"" :
                     element == HET_ELEMENT_F16 ? "\"float16\"" : "\"float32\"");
    if (base != NULL) {
        heti_f_text_others(t, base, base_length);
    } else if (in != HETI_F_IN_GPT2 || m->vocab <= 50256) { /* its end of text is transformers' default */
        heti_f_text_pair(t, "bos_token_id", "null");
        heti_f_text_pair(t, "eos_token_id", "null");
    }
}

/* Setting number n of a model is not that of `back`, what was read of it; NULL: it could not be. */
static int heti_f_setting_lost(const het_model_desc *m, const het_model_desc *back, int64_t n) {
    het_setting s, other;
    if (back == NULL || !het_model_get(m, n, &s) || !het_model_get(back, n, &other)) return 1;
    return s.integer != other.integer || s.real < other.real || s.real > other.real;
}

/* Writes the text as transformers would, reads it back, and puts every setting that did not survive
   into "hetrain". If one of them changes what the model computes, model_type becomes "hetrain_...",
   which transformers refuses rather than compute something else. */
HETRAIN_API het_result het_model_to_config(const het_model_desc *model, het_element element, const char *base,
                                           size_t base_length, char *text, size_t capacity, size_t *length) {
    het_json j = het_json_start(base, base != NULL ? base_length : 0);
    char plain[4096];
    heti_t_text t = heti_t_text_in(plain, sizeof plain);
    het_model_desc m, back;
    const het_model_desc *read = &back;
    het_setting s;
    int own = 0, foreign = 0;
    if (model == NULL || length == NULL || (text == NULL && capacity > 0)) return HET_ERR_INVALID;
    m = *model;
    if (base != NULL && (het_json_peek(&j) != HET_JSON_OBJECT || !het_json_skip(&j) || !het_json_end(&j)))
        return HET_ERR_FORMAT;
    HETI_T_TRY(het_model_complete(&m, NULL));
    heti_f_text_config(&t, &m, "", element, NULL, 0);
    heti_t_put(&t, "\n}\n");
    if (t.length >= sizeof plain) return HET_ERR_LIMIT;
    if (het_model_from_json(plain, t.length, &back, NULL) != HET_OK) read = NULL;
    for (int64_t n = 0; het_model_get(&m, n, &s); n++)
        foreign |= strcmp(s.name, "dropout") != 0 && strcmp(s.name, "local_loss") != 0 &&
            heti_f_setting_lost(&m, read, n);
    t = heti_t_text_in(text, capacity);
    heti_f_text_config(&t, &m, foreign ? "hetrain_" : "", element, base, j.length);
    for (int64_t n = 0; het_model_get(&m, n, &s); n++) {
        if (!heti_f_setting_lost(&m, read, n)) continue;
        heti_t_format(&t, own++ == 0 ? ",\n  \"hetrain\": {\"%s\": " : ", \"%s\": ", s.name);
        if (s.kind == HET_SETTING_WORD) heti_t_format(&t, "%j", s.word);
        else heti_t_setting_text(&t, &s);
    }
    heti_t_put(&t, own > 0 ? "}\n}\n" : "\n}\n");
    *length = t.length;
    return t.length < capacity ? HET_OK : HET_ERR_LIMIT;
}

HETRAIN_API het_result het_model_to_json(const het_model_desc *model, char *text, size_t capacity, size_t *length) {
    return het_model_to_config(model, HET_ELEMENT_F32, NULL, 0, text, capacity, length);
}

/* The same of the model's own weights: factors have files of their own, local heads are state. */
static het_result heti_f_own_config(const het_ctx *ctx, het_element element, const char *base, size_t base_length,
                                    char *text, size_t capacity, size_t *length) {
    het_model_desc model = het_get_desc(ctx)->model;
    model.lora_rank = model.lora_targets = model.local_loss = 0;
    model.lora_alpha = 0.0f;
    return het_model_to_config(&model, element, base, base_length, text, capacity, length);
}

/* One id of eos_token_id. */
static void heti_f_end_add(het_json *j, int64_t vocab, int32_t *id, int64_t capacity, int64_t *count) {
    int64_t value = 0;
    if (!het_json_integer(j, &value) || value < 0 || value >= vocab || value > INT32_MAX) return;
    for (int64_t i = 0; i < *count && i < capacity; i++)
        if (id[i] == value) return;
    if (*count < capacity) id[*count] = HETI_T_CAST(int32_t, value);
    ++*count;
}

HETRAIN_API het_result het_ends_from_json(const char *text, size_t length, int64_t vocab, int32_t *id, int64_t capacity,
                                          int64_t *count, het_error *error) {
    static const char *const heti_f_keys[] = { "eos_token_id", NULL };
    int64_t ends = 0;
    int times = 0;
    if (text == NULL || count == NULL || capacity < 0 || (id == NULL && capacity > 0))
        return HETI_F_BAD(error, "het_ends_from_json: a pointer is NULL, or capacity is negative");
    het_json j = het_json_start(text, length);
    het_json_enter(&j, HET_JSON_OBJECT);
    while (heti_t_key(&j, heti_f_keys) >= 0) {
        const het_json_kind kind = het_json_peek(&j);
        if (times++ > 0) het_json_fail(&j, "eos_token_id occurs twice");
        if (kind == HET_JSON_NULL) het_json_skip(&j);
        else if (kind != HET_JSON_ARRAY) heti_f_end_add(&j, vocab, id, capacity, &ends);
        else if (het_json_enter(&j, HET_JSON_ARRAY))
            while (het_json_next(&j, NULL, 0, NULL)) heti_f_end_add(&j, vocab, id, capacity, &ends);
    }
    het_json_end(&j);
    if (j.rule != NULL) return HETI_F_WRONG(error, "byte %z: %s", j.rule_at, j.rule);
    *count = ends;
    return HET_OK;
}

/* =================================================================================================
   >>folder  Directories by way of the C library.
   ============================================================================================== */

HETRAIN_API int het_folder_is_name(const char *name, size_t length) {
    if (length < 1 || length > 255 || name[0] == '.') return 0;
    for (size_t i = 0; i < length; i++)
        if (name[i] < ' ' || name[i] > '~' || name[i] == '/' || name[i] == '\\' || name[i] == ':') return 0;
    return 1;
}

#ifndef HETRAIN_NO_STDIO

typedef struct heti_f_directory {
    het_allocator allocator;
    size_t size;                      /* of this struct and what follows it */
    char path[1];                     /* ended by a 0 */
} heti_f_directory;

/* What a reader or writer of a directory points to. */
typedef struct heti_f_stream {
    het_reader inner;                 /* of the file, while it is read */
    FILE *file;                       /* while it is written */
    const char *temporary;            /* its path meanwhile: .tmp behind the other */
    size_t size;                      /* of this struct with its paths */
    char path[1];
} heti_f_stream;

static het_result heti_f_stream_make(const heti_f_directory *d, const char *name, heti_f_stream **made,
                                     het_error *error) {
    const size_t length = strlen(name), path = strlen(d->path) + length + 2, paths = 2 * path + 4;
    const size_t size = sizeof(heti_f_stream) + paths;
    *made = NULL;
    if (!het_folder_is_name(name, length))
        return HETI_F_BAD(error, "%s: %q is no name for a file in it", d->path, name, length);
    heti_f_stream *s = HETI_T_CAST(heti_f_stream *, d->allocator.alloc(d->allocator.user, size, 16));
    if (s == NULL) return heti_t_fail(error, HET_ERR_OOM, "%s/%s: out of memory", d->path, name);
    memset(s, 0, size);
    s->size = size;
    s->temporary = s->path + path;
    heti_t_text t = heti_t_text_in(s->path, paths);
    heti_t_format(&t, "%s/%s", d->path, name);
    heti_t_char(&t, 0);
    heti_t_format(&t, "%s/%s.tmp", d->path, name);
    *made = s;
    return HET_OK;
}

static void heti_f_stream_free(const heti_f_directory *d, heti_f_stream *s) {
    d->allocator.free(d->allocator.user, s, s->size);
}

static int64_t heti_f_stream_read(void *user, uint64_t offset, void *to, size_t size) {
    const heti_f_stream *s = HETI_T_CAST(const heti_f_stream *, user);
    return s->inner.read(s->inner.user, offset, to, size);
}

static het_result heti_f_directory_open(void *user, const char *name, het_reader *reader, het_error *error) {
    const heti_f_directory *d = HETI_T_CAST(const heti_f_directory *, user);
    heti_f_stream *s;
    HETI_T_TRY(heti_f_stream_make(d, name, &s, error));
    const het_result result = het_reader_open(s->path, &s->inner, error);
    if (result != HET_OK) {
        heti_f_stream_free(d, s);
        return result;
    }
    *reader = s->inner;
    reader->read = heti_f_stream_read;
    reader->user = s;
    return HET_OK;
}

static void heti_f_directory_close(void *user, het_reader *reader) {
    heti_f_stream *s = HETI_T_CAST(heti_f_stream *, reader->user);
    het_reader_close(&s->inner);
    heti_f_stream_free(HETI_T_CAST(const heti_f_directory *, user), s);
    memset(reader, 0, sizeof *reader);
}

#ifdef _WIN32 /* rename does not replace there; 1 + 8: MOVEFILE_REPLACE_EXISTING, MOVEFILE_WRITE_THROUGH */
extern __declspec(dllimport) int __stdcall MoveFileExA(const char *from, const char *to, unsigned long how);
static int heti_f_rename(const char *from, const char *to) { return MoveFileExA(from, to, 1 + 8) == 0; }
#else
static int heti_f_rename(const char *from, const char *to) { return rename(from, to); }
#endif

static int heti_f_stream_write(void *user, const void *from, size_t size) {
    return fwrite(from, 1, size, HETI_T_CAST(heti_f_stream *, user)->file) != size;
}

static het_result heti_f_directory_create(void *user, const char *name, het_writer *writer, het_error *error) {
    const heti_f_directory *d = HETI_T_CAST(const heti_f_directory *, user);
    heti_f_stream *s;
    HETI_T_TRY(heti_f_stream_make(d, name, &s, error));
    s->file = fopen(s->temporary, "wb");
    if (s->file == NULL) {
        (void)heti_t_fail(error, HET_ERR_IO, "%s: cannot be opened for writing", s->temporary);
        heti_f_stream_free(d, s);
        return HET_ERR_IO;
    }
    const het_writer made = { heti_f_stream_write, s, s->temporary };
    *writer = made;
    return HET_OK;
}

static het_result heti_f_directory_finish(void *user, het_writer *writer, int keep, het_error *error) {
    heti_f_stream *s = HETI_T_CAST(heti_f_stream *, writer->user);
    het_result result = HET_OK;
    int good = fflush(s->file) == 0 && !ferror(s->file);
    good &= fclose(s->file) == 0;
    if (keep && !good) result = heti_t_fail(error, HET_ERR_IO, "%s: cannot be written", s->temporary);
    if (keep && good && heti_f_rename(s->temporary, s->path) != 0)
        result = heti_t_fail(error, HET_ERR_IO, "%s: cannot be renamed to it", s->path);
    if (!keep || result != HET_OK) (void)remove(s->temporary);
    heti_f_stream_free(HETI_T_CAST(const heti_f_directory *, user), s);
    memset(writer, 0, sizeof *writer);
    return result;
}

HETRAIN_API het_result het_folder_open(const char *path, const het_allocator *allocator, het_folder *folder,
                                       het_error *error) {
    het_allocator own;
    if (path == NULL || folder == NULL || path[0] == 0)
        return HETI_F_BAD(error, "het_folder_open: path or folder is NULL, or path is empty");
    HETI_T_TRY(heti_t_choose(allocator, &own, error, "het_folder_open"));
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    const size_t size = sizeof(heti_f_directory) + length;
    heti_f_directory *d = HETI_T_CAST(heti_f_directory *, own.alloc(own.user, size, 16));
    if (d == NULL) return heti_t_fail(error, HET_ERR_OOM, "het_folder_open: %s: out of memory", path);
    d->allocator = own;
    d->size = size;
    memcpy(d->path, path, length);
    d->path[length] = 0;
    const het_folder made = { heti_f_directory_open, heti_f_directory_close, heti_f_directory_create,
                              heti_f_directory_finish, d };
    *folder = made;
    return HET_OK;
}

HETRAIN_API void het_folder_close(het_folder *folder) {
    if (folder == NULL || folder->user == NULL) return;
    heti_f_directory *d = HETI_T_CAST(heti_f_directory *, folder->user);
    const het_allocator allocator = d->allocator;
    allocator.free(allocator.user, d, d->size);
    memset(folder, 0, sizeof *folder);
}

#endif /* HETRAIN_NO_STDIO */

/* =================================================================================================
   >>weights  Parameters as tensors of Hugging Face files; weights and state, one file or many.

   The context keeps every matrix as [out][in] and q, k, v apart. Files differ in two families:
   GPT-2 stores its matrices [in][out] (Conv1D) and q, k, v side by side in c_attn; NeoX stores
   query_key_value as [H][3][E][D]. A tensor of a file therefore is one parameter, or three. The
   parameter table is walked and names are recognised, so parameters of a user's own units appear
   under their own names.
   ============================================================================================== */

#define HETI_F_STATE_VERSION "3"

/* ---- names ---- */

/* Which models have a matrix, in every layer. NeoX's q, k and v are one where they have equally
   many heads. */
typedef enum heti_f_need {
    HETI_F_MAY, HETI_F_MUST, HETI_F_GATED, HETI_F_LEARNED, HETI_F_EQUAL, HETI_F_UNEQUAL
} heti_f_need;
enum { HETI_F_QKV = HET_LORA_Q + HET_LORA_K + HET_LORA_V };

/* What a family's parameters are called: here and by Hugging Face, without .weight and .bias, # the
   layer; by llama.cpp, NULL: not at all. Which targets of low-rank factors they are. The sizes of
   the matrix in a file (heti_f_size_of), NULL: it is a vector. The first of a family is its
   embedding. */
typedef struct heti_f_named {
    int families;
    const char *name, *gguf;
    int64_t targets;
    heti_f_need need;
    const char *sizes;
} heti_f_named;
static const heti_f_named heti_f_names[] = {
    { HETI_F_IN_GPT2, "transformer.wte", "token_embd", 0, HETI_F_MUST, "VD" },
    { HETI_F_IN_GPT2, "transformer.wpe", "position_embd", 0, HETI_F_LEARNED, "CD" },
    { HETI_F_IN_GPT2, "transformer.h.#.ln_1", "blk.#.attn_norm", 0, HETI_F_MAY, NULL },
    { HETI_F_IN_GPT2, "transformer.h.#.attn.c_attn", "blk.#.attn_qkv", HETI_F_QKV, HETI_F_MUST, "DT" },
    { HETI_F_IN_GPT2, "transformer.h.#.attn.c_proj", "blk.#.attn_output", HET_LORA_O, HETI_F_MUST, "QD" },
    { HETI_F_IN_GPT2, "transformer.h.#.ln_2", "blk.#.ffn_norm", 0, HETI_F_MAY, NULL },
    { HETI_F_IN_GPT2, "transformer.h.#.mlp.c_gate", NULL, HET_LORA_GATE, HETI_F_GATED, "DF" },
    { HETI_F_IN_GPT2, "transformer.h.#.mlp.c_fc", "blk.#.ffn_up", HET_LORA_UP, HETI_F_MUST, "DF" },
    { HETI_F_IN_GPT2, "transformer.h.#.mlp.c_proj", "blk.#.ffn_down", HET_LORA_DOWN, HETI_F_MUST, "FD" },
    { HETI_F_IN_GPT2, "transformer.ln_f", "output_norm", 0, HETI_F_MAY, NULL },
    { HETI_F_IN_GATED, "model.embed_tokens", "token_embd", 0, HETI_F_MUST, "VD" },
    { HETI_F_IN_GATED, "model.embed_positions", NULL, 0, HETI_F_LEARNED, "CD" },
    { HETI_F_IN_GATED, "model.layers.#.input_layernorm", "blk.#.attn_norm", 0, HETI_F_MAY, NULL },
    { HETI_F_IN_GATED, "model.layers.#.self_attn.q_proj", "blk.#.attn_q", HET_LORA_Q, HETI_F_MUST, "QD" },
    { HETI_F_IN_GATED, "model.layers.#.self_attn.k_proj", "blk.#.attn_k", HET_LORA_K, HETI_F_MUST, "KD" },
    { HETI_F_IN_GATED, "model.layers.#.self_attn.v_proj", "blk.#.attn_v", HET_LORA_V, HETI_F_MUST, "KD" },
    { HETI_F_IN_GATED, "model.layers.#.self_attn.q_norm", "blk.#.attn_q_norm", 0, HETI_F_MAY, NULL },
    { HETI_F_IN_GATED, "model.layers.#.self_attn.k_norm", "blk.#.attn_k_norm", 0, HETI_F_MAY, NULL },
    { HETI_F_IN_GATED, "model.layers.#.self_attn.o_proj", "blk.#.attn_output", HET_LORA_O, HETI_F_MUST, "DQ" },
    { HETI_F_IN_GATED, "model.layers.#.post_attention_layernorm", "blk.#.ffn_norm", 0, HETI_F_MAY, NULL },
    { HETI_F_IN_GATED, "model.layers.#.mlp.gate_proj", "blk.#.ffn_gate", HET_LORA_GATE, HETI_F_GATED, "FD" },
    { HETI_F_IN_GATED, "model.layers.#.mlp.up_proj", "blk.#.ffn_up", HET_LORA_UP, HETI_F_MUST, "FD" },
    { HETI_F_IN_GATED, "model.layers.#.mlp.down_proj", "blk.#.ffn_down", HET_LORA_DOWN, HETI_F_MUST, "DF" },
    { HETI_F_IN_GATED, "model.norm", "output_norm", 0, HETI_F_MAY, NULL },
    { HETI_F_IN_NEOX, "gpt_neox.embed_in", "token_embd", 0, HETI_F_MUST, "VD" },
    { HETI_F_IN_NEOX, "gpt_neox.embed_positions", NULL, 0, HETI_F_LEARNED, "CD" },
    { HETI_F_IN_NEOX, "gpt_neox.layers.#.input_layernorm", "blk.#.attn_norm", 0, HETI_F_MAY, NULL },
    { HETI_F_IN_NEOX, "gpt_neox.layers.#.attention.query_key_value", "blk.#.attn_qkv", HETI_F_QKV, HETI_F_EQUAL, "TD" },
    { HETI_F_IN_NEOX, "gpt_neox.layers.#.attention.query_key_value.q", NULL, 0, HETI_F_UNEQUAL, "QD" },
    { HETI_F_IN_NEOX, "gpt_neox.layers.#.attention.query_key_value.k", NULL, 0, HETI_F_UNEQUAL, "KD" },
    { HETI_F_IN_NEOX, "gpt_neox.layers.#.attention.query_key_value.v", NULL, 0, HETI_F_UNEQUAL, "KD" },
    { HETI_F_IN_NEOX, "gpt_neox.layers.#.attention.dense", "blk.#.attn_output", HET_LORA_O, HETI_F_MUST, "DQ" },
    { HETI_F_IN_NEOX, "gpt_neox.layers.#.post_attention_layernorm", "blk.#.ffn_norm", 0, HETI_F_MAY, NULL },
    { HETI_F_IN_NEOX, "gpt_neox.layers.#.mlp.dense_h_to_4h_gate", NULL, HET_LORA_GATE, HETI_F_GATED, "FD" },
    { HETI_F_IN_NEOX, "gpt_neox.layers.#.mlp.dense_h_to_4h", "blk.#.ffn_up", HET_LORA_UP, HETI_F_MUST, "FD" },
    { HETI_F_IN_NEOX, "gpt_neox.layers.#.mlp.dense_4h_to_h", "blk.#.ffn_down", HET_LORA_DOWN, HETI_F_MUST, "DF" },
    { HETI_F_IN_NEOX, "gpt_neox.final_layer_norm", "output_norm", 0, HETI_F_MAY, NULL },
    { HETI_F_IN_ALL - HETI_F_IN_NEOX, "lm_head", "output", 0, HETI_F_MAY, "VD" },
    { HETI_F_IN_NEOX, "embed_out", "output", 0, HETI_F_MAY, "VD" }
};
enum { HETI_F_NAMES = sizeof heti_f_names / sizeof heti_f_names[0] };

/* 1: the name is `pattern`, in which # stands for *layer (else 0). */
static int heti_f_is_called(const char *name, size_t length, const char *pattern, int64_t *layer) {
    const char *mark = strchr(pattern, '#');
    const size_t before = mark != NULL ? HETI_T_CAST(size_t, mark - pattern) : 0;
    size_t i = before;
    *layer = 0;
    if (mark == NULL) return heti_t_is(name, length, pattern);
    if (length <= before || memcmp(name, pattern, before) != 0) return 0;
    for (; i < length && name[i] >= '0' && name[i] <= '9' && *layer < 100000000; i++)
        *layer = *layer * 10 + name[i] - '0';
    return i > before && (name[before] != '0' || i == before + 1) && heti_t_is(name + i, length - i, mark + 1);
}

/* A name without the family's prefix, as files of models without a head have it, and GPT-2's of the
   hub. NULL: it has none. */
static const char *heti_f_bare(const char *name) {
    static const char *const heti_f_prefixes[] = { "transformer.", "model.", "gpt_neox." };
    for (int i = 0; i < 3; i++) {
        const size_t length = strlen(heti_f_prefixes[i]);
        if (strncmp(name, heti_f_prefixes[i], length) == 0) return name + length;
    }
    return NULL;
}

/* The row of a name without its last part, with bare 1 also of one without the prefix. NULL: there
   is none. */
static const heti_f_named *heti_f_row_of(int in, int bare, const char *name, size_t length, int64_t *layer) {
    while (length > 0 && name[--length] != '.') {}
    for (const heti_f_named *row = heti_f_names; row < heti_f_names + HETI_F_NAMES; row++) {
        const char *short_name = bare ? heti_f_bare(row->name) : NULL;
        if ((row->families & in) == 0) continue;
        if (heti_f_is_called(name, length, row->name, layer)) return row;
        if (short_name != NULL && heti_f_is_called(name, length, short_name, layer)) return row;
    }
    return NULL;
}

/* ---- tensors of files ---- */

/* A tensor of a file and the parameters that hold its values: one, or those of q, k and v. Their
   rows lie below each other, with their columns side by side where it is diagonal. */
typedef struct heti_f_stored {
    char name[192];
    int32_t rank;
    int64_t shape[4];
    int64_t count;
    int transposed;                   /* [columns][rows] */
    int diagonal;                     /* 0 where the columns of one part meet the rows of another */
    int64_t head;                     /* rows of a head: those of q, k and v alternate; 0: all rows of
                                         q, then of k, then of v */
    int parts;                        /* 1, or 3: q, k, v */
    int64_t part[3], rows[3];         /* indexes of parameters, and their rows */
    int64_t columns;                  /* of each */
    int64_t stack, first;             /* tensors that lie in its one parameter, 0: it is no stack; its first element */
    het_array what;
} heti_f_stored;

/* A parameter "x.0-7.y" is 8 tensors of files, x.0.y to x.7.y, one below the other. Returns how
   many, 0: it is no stack; "0-7" is name[*at .. *end). */
static int64_t heti_f_stack(const char *name, int64_t *at, int64_t *end) {
    const char *dot, *digit;
    int64_t last = 0;
    for (dot = strstr(name, ".0-"); dot != NULL; dot = strstr(dot + 1, ".0-"), last = 0) {
        for (digit = dot + 3; *digit >= '0' && *digit <= '9' && last < 100000; digit++)
            last = 10 * last + (*digit - '0');
        *at = dot + 1 - name;
        *end = digit - name;
        if (digit > dot + 3 && *digit == '.') return last + 1;
    }
    return 0;
}

static int heti_f_ends_with(const char *text, size_t length, const char *end) {
    const size_t tail = strlen(end);
    return length >= tail && memcmp(text + length - tail, end, tail) == 0;
}

/* One of the `ends`, which a NULL ends. */
static int heti_f_ends_with_one(const het_safetensor *t, const char *const *ends) {
    while (*ends != NULL && !heti_f_ends_with(t->name, t->name_length, *ends)) ends++;
    return *ends != NULL;
}

/* The parameter at `index`, or with rows 0 where there is none. */
static het_parameter_info heti_f_parameter(const het_ctx *ctx, int64_t index) {
    het_parameter_info info = HETI_T_ZEROS;
    if (index < 0 || index >= het_parameter_count(ctx) || het_parameter_get_info(ctx, index, &info) != HET_OK)
        info.rows = 0;
    return info;
}

/* The parameter called `name` in the same unit as parameter p, or -1. */
static int64_t heti_f_neighbour(const het_ctx *ctx, int64_t p, const char *name) {
    for (int64_t i = p - HETRAIN_MAX_UNIT_PARAMETERS; i < p + HETRAIN_MAX_UNIT_PARAMETERS; i++) {
        const het_parameter_info info = heti_f_parameter(ctx, i);
        if (info.rows > 0 && strcmp(info.name, name) == 0) return i;
    }
    return -1;
}

/* Which third (0 q, 1 k, 2 v) of a joint tensor parameter p is, a weight, bias or factor B, with
   all three in s->part and s->rows; -1: none. */
static int heti_f_third(const het_ctx *ctx, int64_t p, heti_f_stored *s) {
    static const char heti_f_letters[] = "qkv";
    const het_model_desc *model = &het_get_desc(ctx)->model;
    const het_parameter_info own = heti_f_parameter(ctx, p);
    const char *end = strstr(own.name, ".lora_B.weight"), *letter = NULL;
    const heti_f_named *row = NULL;
    char name[96];
    int64_t layer;
    if (end == NULL) end = strrchr(own.name, '.');
    if (end != NULL && end - own.name >= 2 && end[-2] == '.') letter = strchr(heti_f_letters, end[-1]);
    if (letter != NULL)
        row = heti_f_row_of(heti_f_in(model), 0, own.name, HETI_T_CAST(size_t, end - own.name), &layer);
    if (row == NULL || row->targets != HETI_F_QKV || strlen(own.name) >= sizeof name) return -1;
    for (int i = 0; i < 3; i++) {
        memcpy(name, own.name, strlen(own.name) + 1);
        name[end - own.name - 1] = heti_f_letters[i];
        s->part[i] = heti_f_neighbour(ctx, p, name);
        const het_parameter_info other = heti_f_parameter(ctx, s->part[i]);
        s->rows[i] = other.rows;
        if (other.rows == 0 || other.columns != own.columns) return -1;
        if (model->family == HET_NEOX && (other.rows != own.rows || own.rows % model->head_size != 0)) return -1;
    }
    return HETI_T_CAST(int, letter - heti_f_letters);
}

/* The row of one of a family's matrices, else NULL. */
static const heti_f_named *heti_f_matrix(int in, const het_parameter_info *p) {
    int64_t layer;
    const heti_f_named *row = heti_f_row_of(in, 0, p->name, strlen(p->name), &layer);
    return row != NULL && row->sizes != NULL && heti_f_ends_with(p->name, strlen(p->name), ".weight") ? row : NULL;
}

static void heti_f_stored_plain(const het_parameter_info *own, int64_t p, heti_f_stored *s) {
    memset(s, 0, sizeof *s);
    heti_f_copy(s->name, sizeof s->name, own->name, strlen(own->name));
    s->parts = 1;
    s->part[0] = p;
    s->rows[0] = own->rows;
    s->columns = own->columns;
    s->rank = own->columns == 1 && heti_f_matrix(HETI_F_IN_ALL, own) == NULL ? 1 : 2;
    s->shape[0] = own->rows;
    if (s->rank == 2) s->shape[1] = own->columns;
    s->count = own->count;
}

/* Makes *s of three parts, those of `joint` or the parameters `before` them, with these rows. */
static void heti_f_stored_join(const het_ctx *ctx, heti_f_stored *s, const heti_f_stored *joint, int64_t before) {
    s->parts = 3;
    s->shape[0] = 0;
    for (int i = 0; i < 3; i++) {
        s->part[i] = joint->part[i] - before;
        s->rows[i] = heti_f_parameter(ctx, s->part[i]).rows;
        s->shape[0] += s->rows[i];
    }
    s->count = s->shape[0] * s->columns;
}

/* Fills *s with tensor number i of those that start at parameter p, and returns how many do; 0: p
   is the k or v of an earlier one, an adapter's factor or a local head's. */
static int64_t heti_f_stored_at(const het_ctx *ctx, int64_t p, int64_t i, heti_f_stored *s) {
    const het_model_desc *model = &het_get_desc(ctx)->model;
    const het_parameter_info own = heti_f_parameter(ctx, p);
    int64_t at, end;
    const int64_t stack = heti_f_stack(own.name, &at, &end);
    const heti_f_named *matrix = heti_f_matrix(HETI_F_IN_GPT2, &own);
    heti_f_stored joint;
    const int third = heti_f_third(ctx, p, &joint);
    if (third > 0 || own.adapter) return 0; /* they are no part of the model's own weights */
    heti_f_stored_plain(&own, p, s);
    /* GPT-2's are [in][out], but for the embeddings (q, k and v: heti_f_third) */
    s->transposed = model->family == HET_GPT2 && matrix != NULL && matrix->targets != 0;
    if (third == 0) {
        char *letter = strrchr(s->name, '.') - 2;
        memmove(letter, letter + 2, strlen(letter + 2) + 1);
        heti_f_stored_join(ctx, s, &joint, 0);
        s->transposed = model->family == HET_GPT2;
        s->head = model->family == HET_NEOX ? model->head_size : 0;
    }
    if (s->transposed && s->rank == 2) {
        s->shape[1] = s->shape[0];
        s->shape[0] = s->columns;
    }
    if (stack > 0 && own.rows % stack == 0) {
        heti_t_text t = heti_t_text_in(s->name, sizeof s->name);
        heti_t_put(&t, own.name);
        s->name[t.length = HETI_T_CAST(size_t, at)] = 0;
        heti_t_format(&t, "%d%s", i, own.name + end);
        s->stack = stack;
        s->count = own.count / stack;
        s->first = i * s->count;
        s->shape[0] = own.rows / stack;
    }
    return s->stack > 0 ? s->stack : 1;
}

/* Fills s with the tensors of PEFT's module whose first factor A is parameter p; 0: none is. GPT-2
   and NeoX have q, k and v in one module: A is theirs below each other, B theirs along the
   diagonal. */
static int heti_f_factors_at(const het_ctx *ctx, int64_t p, heti_f_stored s[2]) {
    const het_model_desc *model = &het_get_desc(ctx)->model;
    const het_parameter_info own = heti_f_parameter(ctx, p);
    heti_f_stored joint;
    char module[96];
    if (!own.adapter || !heti_f_ends_with(own.name, strlen(own.name), ".lora_A.weight")) return 0;
    const int third = heti_f_third(ctx, p + 1, &joint);
    if (third > 0) return 0;
    const size_t length = strlen(own.name) - strlen(".lora_A.weight") - (third == 0 ? 2 : 0);
    heti_f_copy(module, sizeof module, own.name, length);
    for (int i = 0; i < 2; i++) {
        const het_parameter_info factor = heti_f_parameter(ctx, p + i);
        heti_t_text name;
        heti_f_stored_plain(&factor, p + i, &s[i]);
        name = heti_t_text_in(s[i].name, sizeof s[i].name);
        heti_t_format(&name, "base_model.model.%s.lora_%s.weight", module, i == 0 ? "A" : "B");
        s[i].rank = 2;
        s[i].shape[1] = s[i].columns;
        if (third != 0) continue;
        heti_f_stored_join(ctx, &s[i], &joint, 1 - i);
        s[i].diagonal = i;
        s[i].head = i == 1 && model->family == HET_NEOX ? model->head_size : 0;
        if (i == 1) s[i].shape[1] *= 3;
        s[i].count = s[i].shape[0] * s[i].shape[1];
    }
    return 1;
}

static int heti_f_is_plain(const heti_f_stored *s) { return s->parts == 1 && !s->transposed && s->stack == 0; }

static uint64_t heti_f_stored_bytes(const heti_f_stored *s, het_element element) {
    return HETI_T_CAST(uint64_t, s->count * (heti_f_elements[element].bits / 8));
}

/* The row of the file where a row of a part stands. */
static int64_t heti_f_stored_row(const heti_f_stored *s, int64_t part, int64_t row) {
    if (s->head > 0) return (row / s->head * 3 + part) * s->head + row % s->head;
    for (int64_t i = 0; i < part; i++) row += s->rows[i];
    return row;
}

/* Copies one part, [rows][columns], into its place in the file's layout or (to_file 0) out of it.
   */
static void heti_f_stored_move(const heti_f_stored *s, int part, float *values, float *file, int to_file) {
    const int64_t width = s->diagonal ? s->parts * s->columns : s->columns, step = s->transposed ? s->count / width : 1;
    for (int64_t row = 0; row < s->rows[part]; row++) {
        const int64_t there = heti_f_stored_row(s, part, row);
        float *at = file + (s->transposed ? there : there * width + (s->diagonal ? part * s->columns : 0));
        float *own = values + row * s->columns;
        for (int64_t column = 0; column < s->columns; column++) {
            if (to_file) at[column * step] = own[column];
            else own[column] = at[column * step];
        }
    }
}

/* Floats that one part may need beside the tensor itself. */
static int64_t heti_f_stored_largest(const heti_f_stored *s) {
    int64_t most = 0;
    for (int i = 0; i < s->parts && !heti_f_is_plain(s); i++) most = s->rows[i] > most ? s->rows[i] : most;
    return most * s->columns;
}

/* The tensor from the context into `values` as the file has it or, write 1, from there into the
   context; scratch: heti_f_stored_largest floats. write 2: the tensors of a stack come one behind
   the other with the same scratch, and the last takes them all there. */
static het_result heti_f_stored_pass(het_ctx *ctx, const heti_f_stored *s, int write, het_array what, float *values,
                                     float *scratch) {
    if (heti_f_is_plain(s))
        return write ? het_parameter_write(ctx, s->part[0], what, values)
                     : het_parameter_read(ctx, s->part[0], what, values);
    if (s->diagonal && !write) HETI_T_CLEAR(values, s->count);
    for (int i = 0; i < s->parts; i++) {
        if (!write || (write == 1 && s->stack > 0)) HETI_T_TRY(het_parameter_read(ctx, s->part[i], what, scratch));
        if (s->stack == 0) heti_f_stored_move(s, i, scratch, values, !write);
        else if (write) HETI_T_COPY(scratch + s->first, values, s->count);
        else HETI_T_COPY(values, scratch + s->first, s->count);
        if (write == 1 || (write == 2 && s->first + s->count >= s->stack * s->count))
            HETI_T_TRY(het_parameter_write(ctx, s->part[i], what, scratch));
    }
    return HET_OK;
}

/* ---- tensors one by one ---- */

/* Calls with a context need one that has not failed. */
static het_result heti_f_ready(const het_ctx *ctx) {
    return ctx == NULL ? HET_ERR_INVALID : (het_get_status(ctx) & HET_FAILED) != 0 ? HET_ERR_STATE : HET_OK;
}

/* An error of ours becomes the context's; one that it reported itself left no text in *error. */
static het_result heti_f_report(het_ctx *ctx, het_result result, const het_error *error) {
    if (result == HET_OK || error->text[0] == 0) return result;
    return het_fail(ctx, result, error->text);
}

/* All there is of a public function with a context: `call`, which leaves its errors in `error`. */
#define HETI_F_REPORTED(ctx, call)                                                                                \
    het_error error = { HET_OK, "" };                                                                             \
    HETI_T_TRY(heti_f_ready(ctx));                                                                                \
    return heti_f_report(ctx, call, &error)

/* Where calls with a context get memory for the time they run. */
static const het_allocator *heti_f_own(const het_ctx *ctx) { return &het_get_desc(ctx)->host.allocator; }

/* count times size bytes; NULL: there are none, and the error says so. */
static void *heti_f_memory(const het_allocator *a, size_t count, size_t size, const char *what, het_error *error) {
    void *to = count <= SIZE_MAX / size - 1 ? a->alloc(a->user, count * size + 1, 64) : NULL;
    if (to == NULL)
        (void)heti_t_fail(error, HET_ERR_OOM, "%z %s: out of memory", count, what);
    return to;
}

static void heti_f_memory_free(const het_allocator *a, void *pointer, size_t count, size_t size) {
    if (pointer != NULL) a->free(a->user, pointer, count * size + 1);
}

/* to: `count` elements, cleared, or that is the end of the call. */
#define HETI_F_NEW(to, type, a, count, what, error)                                                               \
    do {                                                                                                          \
        (to) = HETI_T_CAST(type *, heti_f_memory((a), (count), sizeof(type), (what), (error)));                   \
        if ((to) == NULL) return HET_ERR_OOM;                                                                     \
        HETI_T_CLEAR((to), (count));                                                                              \
    } while (0)

static het_result heti_f_floats_of(const het_allocator *a, int64_t count, float **to, het_error *error) {
    *to = HETI_T_CAST(float *, heti_f_memory(a, HETI_T_CAST(size_t, count), sizeof **to, "floats for a tensor", error));
    return *to != NULL ? HET_OK : HET_ERR_OOM;
}

static void heti_f_floats_free(const het_allocator *a, float *pointer, int64_t count) {
    heti_f_memory_free(a, pointer, HETI_T_CAST(size_t, count), sizeof *pointer);
}

/* Tensor number `index` in table order; 0: there is none. */
static int heti_f_stored_find(const het_ctx *ctx, int64_t index, heti_f_stored *s) {
    int64_t count;
    for (int64_t p = 0; p < het_parameter_count(ctx); p++, index -= count) {
        count = heti_f_stored_at(ctx, p, 0, s);
        if (index < count) return heti_f_stored_at(ctx, p, index, s) > 0;
    }
    return 0;
}

HETRAIN_API int64_t het_tensor_count(const het_ctx *ctx) {
    heti_f_stored s;
    int64_t count = 0;
    for (int64_t p = 0; ctx != NULL && p < het_parameter_count(ctx); p++) count += heti_f_stored_at(ctx, p, 0, &s);
    return count;
}

HETRAIN_API het_result het_tensor_get_info(const het_ctx *ctx, int64_t index, het_tensor_info *info) {
    heti_f_stored s;
    if (ctx == NULL || info == NULL || index < 0 || !heti_f_stored_find(ctx, index, &s)) return HET_ERR_INVALID;
    heti_f_copy(info->name, sizeof info->name, s.name, strlen(s.name));
    info->rank = s.rank;
    memcpy(info->shape, s.shape, sizeof info->shape);
    info->count = s.count;
    return HET_OK;
}

/* Tensor `index` out of the context, from NULL, or into it. */
static het_result heti_f_tensor_pass(het_ctx *ctx, const char *function, int64_t index, het_array what,
                                     const float *from, float *to, het_error *error) {
    heti_f_stored s;
    const int write = from != NULL, given = write || to != NULL;
    float *values;
    if (!given || index < 0 || !heti_f_stored_find(ctx, index, &s))
        return HETI_F_BAD(error, "%s: tensor %d of %d, buffer %s", function, index, het_tensor_count(ctx), given ?
                          "given" : "NULL");
    if (write && heti_f_is_plain(&s)) return het_parameter_write(ctx, s.part[0], what, from);
    const int64_t copied = write ? s.count : 0, count = copied + heti_f_stored_largest(&s);
    HETI_T_TRY(heti_f_floats_of(heti_f_own(ctx), count, &values, error));
    if (write) HETI_T_COPY(values, from, copied);
    const het_result result = heti_f_stored_pass(ctx, &s, write, what, write ? values : to, values + copied);
    heti_f_floats_free(heti_f_own(ctx), values, count);
    return result;
}

HETRAIN_API het_result het_tensor_read(het_ctx *ctx, int64_t index, het_array what, float *to) {
    HETI_F_REPORTED(ctx, heti_f_tensor_pass(ctx, "het_tensor_read", index, what, NULL, to, &error));
}

HETRAIN_API het_result het_tensor_write(het_ctx *ctx, int64_t index, het_array what, const float *from) {
    HETI_F_REPORTED(ctx, heti_f_tensor_pass(ctx, "het_tensor_write", index, what, from, NULL, &error));
}

/* ---- state's metadata ---- */

/* With zeros in front, where it has fewer digits. */
static void heti_f_text_padded(heti_t_text *t, uint64_t value, int digits) {
    uint64_t least = 1;
    for (int i = 1; i < digits; i++) least *= 10;
    for (; least > value && least > 1; least /= 10) heti_t_char(t, '0');
    heti_t_unsigned(t, value);
}

/* The fewest digits that read back as the same float. */
static void heti_f_text_float(heti_t_text *t, float value) {
    double x = HETI_T_CAST(double, value);
    int exponent = 0;
    uint64_t number = 0;
    if (!(x >= -3.5e38 && x <= 3.5e38)) {
        heti_t_put(t, x > 0.0 ? "inf" : x < 0.0 ? "-inf" : "nan");
        return;
    }
    x = heti_t_sign(t, x);
    if (x > 0.0) number = heti_t_shortest_float(x, &exponent);
    if (exponent < 0 && exponent >= -12) {
        uint64_t unit = 1;
        for (int i = exponent; i < 0; i++) unit *= 10;
        heti_t_format(t, "%u.", number / unit);
        heti_f_text_padded(t, number % unit, -exponent);
        return;
    }
    heti_t_unsigned(t, number);
    if (exponent != 0) heti_t_format(t, "e%d", HETI_T_CAST(int64_t, exponent));
}

static heti_f_value heti_f_hex_of(uint64_t value) {
    heti_f_value hex;
    heti_t_text t = heti_t_text_in(hex.text, sizeof hex.text);
    heti_t_hex(&t, value);
    return hex;
}

/* The key of a pair of metadata, a 0 before and behind it; its value follows. */
static void heti_f_text_key(heti_t_text *t, const char *key) {
    heti_t_char(t, 0);
    heti_t_put(t, key);
    heti_t_char(t, 0);
}

static void heti_f_text_meta(heti_t_text *t, const char *key, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    heti_f_text_key(t, key);
    heti_t_format_list(t, format, arguments);
    va_end(arguments);
}

static void heti_f_text_meta_float(heti_t_text *t, const char *key, float value) {
    heti_f_text_key(t, key);
    heti_f_text_float(t, value);
}

/* What every file has: transformers' mark, and hetrain's, by which its files are known. */
static void heti_f_text_made(heti_t_text *t, const het_ctx *ctx) {
    (void)ctx;
    heti_f_text_meta(t, "format", "pt");
    heti_f_text_meta(t, "hetrain_version", "%d", HETI_T_CAST(int64_t, HETRAIN_VERSION));
}

/* Factors are of use on the weights that they were trained on: these have a fingerprint. */
static const char heti_f_base_key[] = "base_fingerprint";
static void heti_f_text_factors(heti_t_text *t, const het_ctx *ctx) {
    heti_f_text_made(t, ctx);
    if (het_get_base(ctx) != 0) heti_f_text_meta(t, heti_f_base_key, "%s", heti_f_hex_of(het_get_base(ctx)).text);
}

/* A hash of names and shapes in table order, the order of the exponents. */
static int64_t heti_f_table_hash(const het_ctx *ctx) {
    char line[160];
    uint64_t hash = 0;
    for (int64_t i = 0; i < het_parameter_count(ctx); i++) {
        const het_parameter_info own = heti_f_parameter(ctx, i);
        heti_t_text t = heti_t_text_in(line, sizeof line);
        heti_t_format(&t, "%s %d %d", own.name, own.rows, own.columns);
        hash = het_xxh64(line, t.length < sizeof line ? t.length : sizeof line, hash);
    }
    return HETI_T_CAST(int64_t, hash & HETI_T_CAST(uint64_t, INT64_MAX));
}

/* Everything that decides the bits of the next step and that shapes of tensors do not show. */
static void heti_f_text_options(heti_t_text *t, const het_ctx *ctx) {
    static const char *const heti_f_dtypes[] = { "default", "f32", "bf16", "int8" }, *const heti_f_reduces[] = {
        "default", "exact", "fast" };
    static const char *const heti_f_schedules[] = { "default", "cosine", "linear", "constant", "wsd" };
    const het_desc *d = het_get_desc(ctx);
    const het_optimizer_desc *a = &d->optimizer;
    const int feedback = het_optimizer_slots(a) > a->iface->slots;
    het_model_desc model = d->model;
    het_setting s;
    heti_f_text_meta(t, "seed", "%u", d->seed);
    heti_f_text_meta(t, "granule", "%d", d->granule);
    heti_f_text_meta(t, "units", "%d", d->unit_count);
    heti_f_text_meta(t, "warmup_steps", "%d", a->warmup_steps);
    heti_f_text_meta(t, "total_steps", "%d", a->total_steps);
    heti_f_text_meta(t, "dtype", d->streams == HET_BF16 ? "bf16 with streams" : heti_f_dtypes[d->dtype]);
    heti_f_text_meta(t, "weights", heti_f_dtypes[d->weights]);
    heti_f_text_meta(t, "reduce", heti_f_reduces[d->reduce]);
    heti_f_text_meta(t, "schedule", heti_f_schedules[a->schedule]);
    heti_f_text_meta(t, "optimizer", "%s%s", a->iface->name, feedback ? " with feedback" : "");
    if (d->layout.plan != NULL && d->layout.plan->updates > 1)
        heti_t_format(t, ", %d updates a step", d->layout.plan->updates);
    heti_f_text_meta(t, "parameters", "%d", heti_f_table_hash(ctx));
    heti_f_text_meta_float(t, "learning_rate", a->learning_rate);
    heti_f_text_meta_float(t, "minimum_rate", a->minimum_rate);
    heti_f_text_meta_float(t, "beta1", a->beta1);
    heti_f_text_meta_float(t, "beta2", a->beta2);
    heti_f_text_meta_float(t, "epsilon", a->epsilon);
    heti_f_text_meta_float(t, "weight_decay", a->weight_decay);
    heti_f_text_meta_float(t, "clip", a->clip);
    if (a->iface == het_muon()) heti_f_text_meta_float(t, "matrix_rate", a->matrix_rate);
    if (a->iface == het_muon()) heti_f_text_meta_float(t, "momentum", a->momentum);
    if (feedback) heti_f_text_meta_float(t, "feedback", a->feedback);
    if (a->feedback_change > 0) heti_f_text_meta_float(t, "feedback_change", a->feedback_change);
    heti_f_text_meta_float(t, "spike", HETI_T_CAST(float, d->guard.spike));
    t->result = het_model_complete(&model, NULL);
    if (t->result != HET_OK) return;
    heti_f_text_meta(t, "model.family", heti_f_family_of(&model)->name);
    for (int i = 0; het_model_get(&model, i, &s); i++) {
        if (model.local_loss == 0 && strcmp(s.name, "local_loss") == 0) continue; /* older states have none */
        heti_t_char(t, 0);
        heti_t_format(t, "model.%s", s.name);
        heti_t_char(t, 0);
        heti_t_setting_text(t, &s);
    }
}

static void heti_f_text_state(heti_t_text *t, const het_ctx *ctx) {
    het_loss_history recent;
    heti_f_text_made(t, ctx);
    heti_f_text_meta(t, "hetrain_state", HETI_F_STATE_VERSION);
    heti_f_text_meta(t, "step", "%d", het_get_step(ctx));
    heti_f_text_options(t, ctx);
    heti_f_text_key(t, "exponents"); /* "n,-3,12": one a parameter, n where there is none yet */
    for (int64_t i = 0; i < het_parameter_count(ctx); i++) {
        const int32_t x = heti_f_parameter(ctx, i).exponent;
        if (i > 0) heti_t_char(t, ',');
        if (x == HETRAIN_NO_EXPONENT) heti_t_char(t, 'n');
        else heti_t_integer(t, x);
    }
    /* the bits of recent steps' losses and gradient norms, 16 hexadecimal digits each, in turn */
    het_get_loss_history(ctx, &recent);
    heti_f_text_key(t, "recent");
    for (int64_t i = 0; i < 2 * recent.count; i++) {
        uint64_t bits;
        memcpy(&bits, i % 2 == 0 ? &recent.loss[i / 2] : &recent.norm[i / 2], sizeof bits);
        heti_t_hex(t, bits);
    }
}

typedef struct heti_f_pairs {
    const het_allocator *allocator;
    heti_t_list text, list;           /* keys and values; het_pair[] of them */
} heti_f_pairs;

/* What `write` writes of a context as pairs. */
static het_result heti_f_pairs_open(heti_f_pairs *p, const het_ctx *ctx,
                                    void (*write)(heti_t_text *t, const het_ctx *ctx), const het_allocator *allocator,
                                    het_error *error) {
    heti_t_text t = heti_t_text_in(NULL, 0);
    size_t at = 1; /* behind the 0 before the first key */
    memset(p, 0, sizeof *p);
    p->allocator = allocator;
    write(&t, ctx);
    if (t.result != HET_OK)
        return heti_t_fail(error, HET_ERR_LIMIT, "the settings of the model are too long a text");
    HETI_T_TRY(heti_t_list_room(&p->text, t.length + 1, allocator, error));
    t = heti_t_text_in(p->text.data, p->text.size);
    write(&t, ctx);
    while (at < t.length) {
        het_pair pair;
        pair.key = p->text.data + at;
        pair.key_length = strlen(pair.key);
        pair.value = pair.key + pair.key_length + 1;
        pair.value_length = strlen(pair.value);
        at += pair.key_length + pair.value_length + 2;
        HETI_T_TRY(heti_t_list_add(&p->list, &pair, sizeof pair, allocator, error));
    }
    return HET_OK;
}

static void heti_f_pairs_close(heti_f_pairs *p) {
    heti_t_list_free(&p->text, p->allocator);
    heti_t_list_free(&p->list, p->allocator);
}

/* ---- the list of a file's tensors ---- */

typedef enum heti_f_contents {
    HETI_F_FACTORS = 0, HETI_F_WEIGHTS = HET_WEIGHTS_INCOMPLETE, HETI_F_STATE = HET_STATE_INCOMPLETE
} heti_f_contents;

/* Stacks that are read once while their tensors are saved: gate, up and down of a layer. */
enum { HETI_F_STACKS = 3 };

typedef struct heti_f_inventory {
    het_ctx *ctx;
    het_error *error;
    const het_allocator *allocator;   /* of the arrays, and of what is needed beside them */
    heti_f_pairs pairs;               /* the metadata, to be saved */
    heti_f_stored *stored;            /* [count] in table order */
    size_t count, capacity;
    float *values;                    /* [floats] the largest tensor, behind it the largest part, or stacks */
    int64_t floats, largest;
    int64_t held[HETI_F_STACKS];      /* 1 + the parameters whose stacks are there; 0: none */
    int64_t turn;                     /* whose place the next one gets */
} heti_f_inventory;

static het_result heti_f_inventory_fill(heti_f_inventory *all, heti_f_contents contents) {
    const het_ctx *ctx = all->ctx;
    const het_optimizer_iface *optimizer = het_get_desc(ctx)->optimizer.iface;
    const int32_t slots = het_optimizer_slots(&het_get_desc(ctx)->optimizer);
    heti_f_stored first;
    for (int64_t p = 0; p < het_parameter_count(ctx); p++) {
        const het_parameter_info own = heti_f_parameter(ctx, p);
        const size_t length = strlen(own.name);
        const int factor = heti_f_ends_with(own.name, length, ".lora_A.weight") ||
                           heti_f_ends_with(own.name, length, ".lora_B.weight");
        const int64_t tensors = contents == HETI_F_WEIGHTS ? heti_f_stored_at(ctx, p, 0, &first) : 0;
        for (int64_t i = 0; i < tensors; i++) (void)heti_f_stored_at(ctx, p, i, &all->stored[all->count++]);
        if (contents == HETI_F_FACTORS)
            all->count += 2 * HETI_T_CAST(size_t, heti_f_factors_at(ctx, p, &all->stored[all->count]));
        if (contents == HETI_F_STATE && own.adapter && !factor) /* a local head's weights */
            heti_f_stored_plain(&own, p, &all->stored[all->count++]);
        for (int slot = 0; slot < slots && contents == HETI_F_STATE && !own.frozen; slot++) {
            const char *of = slot < optimizer->slots ? optimizer->slot_name[slot] :
                             slot == optimizer->slots ? "feedback" : "update";
            heti_f_stored *s = &all->stored[all->count++];
            heti_t_text name;
            heti_f_stored_plain(&own, p, s);
            s->what = HETI_T_CAST(het_array, HET_MOMENT0 + slot);
            name = heti_t_text_behind(s->name, sizeof s->name);
            heti_t_format(&name, "/%s", of);
            if (name.length > 95)
                return heti_t_fail(all->error, HET_ERR_LIMIT, "the name %s/%s is longer than 95 bytes", own.name, of);
        }
    }
    return HET_OK;
}

/* To be closed whatever is returned. */
static het_result heti_f_inventory_open(het_ctx *ctx, heti_f_contents contents, int saving,
                                        const het_allocator *a, heti_f_inventory *all, het_error *error) {
    const int slots = contents == HETI_F_STATE ? het_optimizer_slots(&het_get_desc(ctx)->optimizer) + 1 : 1;
    memset(all, 0, sizeof *all);
    all->ctx = ctx;
    all->error = error;
    all->allocator = a;
    if (saving)
        HETI_T_TRY(heti_f_pairs_open(&all->pairs, ctx, contents == HETI_F_STATE ? heti_f_text_state :
                                     contents == HETI_F_FACTORS ? heti_f_text_factors : heti_f_text_made, a, error));
    all->capacity = HETI_T_CAST(size_t, contents == HETI_F_WEIGHTS ? het_tensor_count(ctx) :
                                het_parameter_count(ctx) * slots);
    HETI_F_NEW(all->stored, heti_f_stored, a, all->capacity, "descriptions of tensors", error);
    HETI_T_TRY(heti_f_inventory_fill(all, contents));
    for (size_t i = 0; i < all->count; i++) {
        const heti_f_stored *t = &all->stored[i];
        const int64_t room = heti_f_stored_largest(t) * (saving && t->stack > 0 ? HETI_F_STACKS : 1);
        all->largest = t->count > all->largest ? t->count : all->largest;
        all->floats = room > all->floats ? room : all->floats;
    }
    all->floats += all->largest;
    return heti_f_floats_of(a, all->floats, &all->values, error);
}

static void heti_f_inventory_close(heti_f_inventory *all) {
    heti_f_memory_free(all->allocator, all->stored, all->capacity, sizeof *all->stored);
    heti_f_floats_free(all->allocator, all->values, all->floats);
    heti_f_pairs_close(&all->pairs);
}

/* ---- saving ---- */

/* Finite values that F16 cannot hold are refused. */
static het_result heti_f_holds(het_element element, const float *values, int64_t count, const char *name,
                               het_error *error) {
    for (int64_t i = 0; i < count && element == HET_ELEMENT_F16; i++)
        if ((values[i] >= 65520.0f || values[i] <= -65520.0f) && values[i] - values[i] >= 0.0f)
            return heti_t_fail(error, HET_ERR_DATA, "tensor %s: element %d is beyond F16; save as F32 or BF16", name,
                               i);
    return HET_OK;
}

/* A tensor into all->values. */
static het_result heti_f_save_read(heti_f_inventory *all, const heti_f_stored *s) {
    const int64_t room = (all->floats - all->largest) / HETI_F_STACKS;
    float *at = all->values + all->largest;
    int64_t i = 0;
    if (s->stack == 0) {
        HETI_T_CLEAR(all->held, HETI_F_STACKS); /* its parts may take their place */
        return heti_f_stored_pass(all->ctx, s, 0, s->what, all->values, at);
    }
    while (i < HETI_F_STACKS && all->held[i] != s->part[0] + 1) i++;
    if (i == HETI_F_STACKS) {
        i = all->turn++ % HETI_F_STACKS;
        all->held[i] = 0;
        HETI_T_TRY(het_parameter_read(all->ctx, s->part[0], s->what, at + i * room));
        all->held[i] = s->part[0] + 1;
    }
    HETI_T_COPY(all->values, at + i * room + s->first, s->count);
    return HET_OK;
}

static het_result heti_f_save_tensor(heti_f_inventory *all, size_t i, het_element element, const het_writer *to) {
    const heti_f_stored *s = &all->stored[i];
    HETI_T_TRY(heti_f_save_read(all, s));
    HETI_T_TRY(heti_f_holds(element, all->values, s->count, s->name, all->error));
    return to == NULL ? HET_OK : het_safetensors_put(to, element, all->values, s->count, all->error);
}

/* Tensors [first, last) of the list as a file. to NULL: nothing is written. size not NULL: it gets
   the file's, and no tensor is read. */
static het_result heti_f_save_some(heti_f_inventory *all, size_t first, size_t last, het_element element,
                                   const het_writer *to, uint64_t *size) {
    const het_pair *pair = HETI_T_ITEMS(all->pairs.list, const het_pair);
    const size_t pairs = HETI_T_COUNT(all->pairs.list, het_pair);
    het_safetensors *file = NULL;
    het_safetensor *list;
    HETI_F_NEW(list, het_safetensor, all->allocator, last - first, "descriptions of tensors", all->error);
    for (size_t i = first; i < last; i++) {
        het_safetensor *t = &list[i - first];
        t->name = all->stored[i].name;
        t->name_length = strlen(t->name);
        t->element = element;
        t->rank = all->stored[i].rank;
        memcpy(t->shape, all->stored[i].shape, sizeof all->stored[i].shape);
    }
    het_result result = het_safetensors_make(list, HETI_T_CAST(int64_t, last - first), pair,
                                             HETI_T_CAST(int64_t, pairs), all->allocator, &file, all->error);
    if (result == HET_OK && size != NULL) *size = file->size;
    if (result == HET_OK && to != NULL) result = het_safetensors_write(file, to, all->error);
    for (size_t i = 0; result == HET_OK && size == NULL && i < last - first; i++)
        result = heti_f_save_tensor(all, first + HETI_T_CAST(size_t, file->tensor[i].number), element, to);
    het_safetensors_free(file);
    heti_f_memory_free(all->allocator, list, last - first, sizeof *list);
    return result;
}

/* A type for weights; 0 becomes F32. */
static het_result heti_f_element_check(het_element *element, const char *function, het_error *error) {
    const int64_t value = HETI_T_CAST(int64_t, *element);
    if (value == 0) *element = HET_ELEMENT_F32;
    return heti_f_is_float(*element) ? HET_OK : HETI_F_BAD(error, "%s: element %d must be F32, F16 or BF16", function,
                                                           value);
}

/* A context whose `contents` can be saved or loaded. */
static het_result heti_f_context_check(const het_ctx *ctx, const char *function, heti_f_contents contents, int saving,
                                       het_error *error) {
    heti_f_stored s[2];
    if (ctx == NULL) return HETI_F_BAD(error, "%s: the context is NULL", function);
    const int32_t condition = het_get_status(ctx);
    for (int64_t p = 0; contents == HETI_F_FACTORS && p < het_parameter_count(ctx); p++)
        if (heti_f_factors_at(ctx, p, s)) return HET_OK;
    if (contents == HETI_F_FACTORS)
        return heti_t_fail(error, HET_ERR_STATE, "%s: the context's model has no factors (lora_rank is %d)", function,
                           het_get_desc(ctx)->model.lora_rank);
    if (saving && condition != 0)
        return heti_t_fail(error, HET_ERR_STATE, "%s: a load failed halfway: %s are torn; load them again", function,
                           (condition & HET_WEIGHTS_INCOMPLETE) != 0 ? "weights" : "states");
    if (contents == HETI_F_STATE && het_get_desc(ctx)->inference == HET_YES)
        return heti_t_fail(error, HET_ERR_STATE, "%s: an inference context has no state", function);
    return HET_OK;
}

/* All memory is the allocator's, NULL: the context's. to NULL: *size gets the size of the file, and
   no tensor is read. */
static het_result heti_f_save(het_ctx *ctx, const char *function, heti_f_contents contents,
                              const het_allocator *allocator, const het_writer *to, uint64_t *size, het_error *error) {
    heti_f_inventory all;
    if (size == NULL && (to == NULL || to->write == NULL))
        return HETI_F_BAD(error, "%s: the writer or its write is NULL", function);
    HETI_T_TRY(heti_f_context_check(ctx, function, contents, 1, error));
    if (allocator == NULL) allocator = heti_f_own(ctx);
    het_result result = heti_f_inventory_open(ctx, contents, 1, allocator, &all, error);
    if (result == HET_OK) result = heti_f_save_some(&all, 0, all.count, HET_ELEMENT_F32, to, size);
    heti_f_inventory_close(&all);
    return result;
}

HETRAIN_API het_result het_save_weights(het_ctx *ctx, const het_writer *to) {
    HETI_F_REPORTED(ctx, heti_f_save(ctx, "het_save_weights", HETI_F_WEIGHTS, NULL, to, NULL, &error));
}

HETRAIN_API het_result het_save_state(het_ctx *ctx, const het_writer *to) {
    HETI_F_REPORTED(ctx, heti_f_save(ctx, "het_save_state", HETI_F_STATE, NULL, to, NULL, &error));
}

/* ---- loading: one file or several, as one table ---- */

typedef struct heti_f_part {
    het_reader from;
    het_safetensors *file;
    unsigned char *used;              /* [tensors + 1] of the file: the model or the index has it */
} heti_f_part;

typedef struct heti_f_saved {
    het_ctx *ctx;
    het_error *error;
    heti_f_part *part;
    size_t parts;
    heti_f_contents contents;
    int how;                          /* HETI_F_LOAD_ bits */
    const heti_f_inventory *all;      /* what the context has of it; of factors A and B of each module in turn */
} heti_f_saved;
/* A state of other options may be loaded; it is only looked at whether the file fits. */
enum { HETI_F_LOAD_ANY = 1, HETI_F_LOAD_LOOK = 2 };

typedef struct heti_f_located { const heti_f_part *part; const het_safetensor *tensor; } heti_f_located;

/* Reads the table of a file into *part, whose reader is set. */
static het_result heti_f_part_open(const het_ctx *ctx, heti_f_part *part, het_error *error) {
    HETI_T_TRY(het_safetensors_read(&part->from, HETI_F_MODEL_TENSORS, heti_f_own(ctx), &part->file, error));
    const size_t flags = HETI_T_CAST(size_t, part->file->tensors) + 1;
    HETI_F_NEW(part->used, unsigned char, heti_f_own(ctx), flags, "flags", error);
    return HET_OK;
}

static void heti_f_part_close(const het_ctx *ctx, heti_f_part *part) {
    if (part->used != NULL)
        heti_f_memory_free(heti_f_own(ctx), part->used, HETI_T_CAST(size_t, part->file->tensors) + 1, 1);
    het_safetensors_free(part->file);
}

/* file: byte n: "tensor": what */
static het_result heti_f_located_fail(const heti_f_saved *f, const heti_f_located *at, het_result code,
                                      const char *what) {
    return heti_t_fail(f->error, code, "%s: byte %u: %q: %s", heti_f_reader_name(&at->part->from), at->tensor->at,
                       at->tensor->name, at->tensor->name_length, what);
}

static unsigned char *heti_f_used(const heti_f_located *at) {
    return &at->part->used[at->tensor - at->part->file->tensor];
}

/* The next tensor behind *at that nothing has used; *at without a part: the first. 0: there is
   none. */
static int heti_f_unused(const heti_f_saved *f, heti_f_located *at) {
    size_t i = at->part != NULL ? HETI_T_CAST(size_t, at->part - f->part) : 0;
    int64_t k = at->part != NULL ? at->tensor - at->part->file->tensor + 1 : 0;
    for (; i < f->parts; i++, k = 0) {
        at->part = &f->part[i];
        while (k < at->part->file->tensors && at->part->used[k] != 0) k++;
        at->tensor = &at->part->file->tensor[k];
        if (k < at->part->file->tensors) return 1;
    }
    return 0;
}

/* A whole tensor of a name that the context knows; one that is not finite is refused unless the
   context takes it. */
static het_result heti_f_get_all(const heti_f_saved *f, const heti_f_located *at, int64_t count, float *to) {
    return heti_f_get(at->part->file, &at->part->from, at->tensor, 0, count, to,
                      het_get_desc(f->ctx)->guard.nonfinite == HET_YES ? NULL : at->tensor->name, f->error);
}

/* The tensor called `name`, or so without the family's prefix. */
static int heti_f_find(const heti_f_saved *f, const char *name, heti_f_located *found) {
    const char *bare = heti_f_bare(name);
    for (size_t i = 0; i < f->parts; i++) {
        found->part = &f->part[i];
        found->tensor = het_safetensors_find(f->part[i].file, name, strlen(name));
        if (found->tensor == NULL && bare != NULL)
            found->tensor = het_safetensors_find(f->part[i].file, bare, strlen(bare));
        if (found->tensor != NULL) return 1;
    }
    return 0;
}

/* Adds `before`, a shape and `behind` to the text that is in to[capacity], and returns it. */
static const char *heti_f_shape(char *to, size_t capacity, const char *before, const int64_t *shape, int32_t rank,
                                const char *behind) {
    heti_t_text t = heti_t_text_behind(to, capacity);
    heti_t_format(&t, "%s[", before);
    for (int i = 0; i < rank; i++) heti_t_format(&t, i > 0 ? ", %d" : "%d", shape[i]);
    heti_t_format(&t, "]%s", behind);
    return to;
}

static het_result heti_f_fits(const heti_f_saved *f, const heti_f_located *at, const int64_t *shape, int32_t rank) {
    const het_safetensor *t = at->tensor;
    const int state = f->contents == HETI_F_STATE;
    char text[240] = "";
    if (!heti_f_is_float(t->element) || (state && t->element != HET_ELEMENT_F32))
        return HETI_F_UNKNOWN(f->error, "%s: byte %u: %q: dtype %s, must be F32%s", heti_f_reader_name(&at->part->from),
                              t->at, t->name, t->name_length, heti_f_elements[t->element].name, state ? "" :
                              ", F16 or BF16");
    if (t->rank == rank && memcmp(t->shape, shape, HETI_T_CAST(size_t, rank) * sizeof *shape) == 0) return HET_OK;
    (void)heti_f_shape(text, sizeof text, "has shape ", t->shape, t->rank, ", ");
    return heti_f_located_fail(f, at, HET_ERR_FORMAT,
                               heti_f_shape(text, sizeof text, "the model has ", shape, rank, ""));
}

/* Buffers that older transformers saved. */
static int heti_f_may_ignore(const het_safetensor *t) {
    static const char *const heti_f_buffers[] = {
        ".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias", "rotary_emb.inv_freq", NULL
    };
    return heti_f_ends_with_one(t, heti_f_buffers);
}

/* The head's own tensor in a file for a model whose head is the embedding must be the embedding
   [V][D] once more, else it is the file of another model: compared bit by bit after conversion to
   float. 1: *at is such a tensor. */
static int heti_f_is_tied_head(const het_model_desc *model, const het_safetensor *t) {
    return model->tied == HET_YES && (heti_t_is(t->name, t->name_length, "lm_head.weight") ||
                                      heti_t_is(t->name, t->name_length, "embed_out.weight"));
}

static het_result heti_f_check_head(const heti_f_saved *f, const heti_f_located *head) {
    const heti_f_named *row = heti_f_names;
    char name[64];
    heti_t_text t = heti_t_text_in(name, sizeof name);
    float a[1024], b[1024];
    heti_f_located embedding;
    int64_t count, elements = 1;
    while ((row->families & heti_f_in(&het_get_desc(f->ctx)->model)) == 0) row++;
    heti_t_format(&t, "%s.weight", row->name);
    if (!heti_f_find(f, name, &embedding))
        return heti_f_located_fail(f, head, HET_ERR_FORMAT, "the model has no such tensor");
    HETI_T_TRY(heti_f_fits(f, head, embedding.tensor->shape, embedding.tensor->rank));
    for (int i = 0; i < embedding.tensor->rank; i++) elements *= embedding.tensor->shape[i];
    for (int64_t first = 0; first < elements; first += count) {
        count = elements - first < 1024 ? elements - first : 1024;
        HETI_T_TRY(het_safetensors_get(embedding.part->file, &embedding.part->from, embedding.tensor, first, count, a,
                                       f->error));
        HETI_T_TRY(het_safetensors_get(head->part->file, &head->part->from, head->tensor, first, count, b, f->error));
        if (memcmp(a, b, HETI_T_CAST(size_t, count) * sizeof a[0]) == 0) continue;
        return heti_f_located_fail(f, head, HET_ERR_FORMAT,
                                   "differs from the embedding, but the model is tied: its head is its embedding");
    }
    return HET_OK;
}

/* Of what quantised weights are kept in: GPTQ, AWQ, bitsandbytes, compressed-tensors, fp8. */
static int heti_f_is_quantised(const het_safetensor *t) {
    static const char *const heti_f_ends[] = {
        ".qweight", ".qzeros", ".g_idx", ".scales", ".SCB", ".absmax", ".quant_map", ".nested_absmax", ".weight_packed",
        ".weight_scale", ".weight_scale_inv", NULL
    };
    return heti_f_ends_with_one(t, heti_f_ends) || strstr(t->name, ".quant_state.") != NULL;
}

static het_result heti_f_refuse_quantised(const het_safetensor *t, het_error *error) {
    return HETI_F_UNKNOWN(error, "tensor %q is of type %s: quantised weights are not supported", t->name,
                          t->name_length, heti_f_elements[t->element].name);
}

/* Everything the context has must be in the file, once, in the right shape, and nothing else. */
static het_result heti_f_check(const heti_f_saved *f) {
    const het_model_desc *model = &het_get_desc(f->ctx)->model;
    const int weights = f->contents == HETI_F_WEIGHTS;
    heti_f_located at = { NULL, NULL };
    char text[128] = "";
    while (weights && heti_f_unused(f, &at))
        if (heti_f_is_quantised(at.tensor)) return heti_f_refuse_quantised(at.tensor, f->error);
    for (size_t i = 0; i < f->all->count; i++) {
        const heti_f_stored *s = &f->all->stored[i];
        if (!heti_f_find(f, s->name, &at))
            return HETI_F_WRONG(f->error, "%s: tensor %s %s", heti_f_reader_name(&f->part[0].from), s->name,
                                heti_f_shape(text, sizeof text, "", s->shape, s->rank, " is missing"));
        HETI_T_TRY(heti_f_fits(f, &at, s->shape, s->rank));
        *heti_f_used(&at) = 1;
    }
    at.part = NULL;
    while (heti_f_unused(f, &at)) {
        if (weights && heti_f_may_ignore(at.tensor)) continue;
        if (!weights || !heti_f_is_tied_head(model, at.tensor))
            return heti_f_located_fail(f, &at, HET_ERR_FORMAT, heti_f_shape(text, sizeof text,
                "the model has no such tensor (shape ", at.tensor->shape, at.tensor->rank, ")"));
        HETI_T_TRY(heti_f_check_head(f, &at));
    }
    return HET_OK;
}

/* Loading failed midway: the context refuses to compute, and the error says so. */
static het_result heti_f_torn(const heti_f_saved *f, het_result result) {
    const char *text = f->error->text[0] != 0 ? f->error->text : het_last_error(f->ctx);
    char why[sizeof f->error->text];
    if ((het_get_status(f->ctx) & HET_FAILED) != 0) return result;
    heti_f_copy(why, sizeof why, text, strlen(text));
    return heti_t_fail(f->error, result, "%s; %s are partly overwritten, load them again", why, f->contents ==
                       HETI_F_WEIGHTS ? "weights" : f->contents == HETI_F_STATE ? "states" : "factors");
}

/* The file fits: from here on only reading can fail, and then the context says that it is torn.
   Weights get the fingerprint of their base. */
static het_result heti_f_load_all(const heti_f_saved *f) {
    float *values = f->all->values;
    het_result result = HET_OK;
    heti_f_located at;
    uint64_t base = 0;
    HETI_T_TRY(het_restore_begin(f->ctx, HETI_T_CAST(int32_t, f->contents)));
    for (size_t i = 0; i < f->all->count && result == HET_OK; i++) {
        const heti_f_stored *s = &f->all->stored[i];
        if (!heti_f_find(f, s->name, &at)) return HET_ERR_STATE;
        result = heti_f_get_all(f, &at, s->count, values);
        if (result == HET_OK && f->contents == HETI_F_WEIGHTS)
            base = het_xxh64(values, HETI_T_CAST(size_t, s->count) * sizeof *values,
                             het_xxh64(s->name, strlen(s->name), base));
        if (result == HET_OK) result = heti_f_stored_pass(f->ctx, s, 2, s->what, values, values + s->count);
    }
    if (result == HET_OK && f->contents == HETI_F_WEIGHTS) het_set_base(f->ctx, base);
    return result == HET_OK ? HET_OK : heti_f_torn(f, result);
}

/* ---- loading: state's metadata ---- */

static het_result heti_f_state_value(const heti_f_saved *f, const char *key, const char **value) {
    const het_safetensors *file = f->part[0].file;
    size_t length = 0;
    int times = 0;
    for (int64_t i = 0; i < file->pairs; i++) times += heti_t_is(file->pair[i].key, file->pair[i].key_length, key);
    *value = het_safetensors_value(file, key, &length);
    if (times == 1 && strlen(*value) == length) return HET_OK;
    return HETI_F_WRONG(f->error, "%s: metadata has no %s, or has it twice: is it a state of hetrain?",
                        heti_f_reader_name(&f->part[0].from), key);
}

/* Every option of the context must be the file's. */
static het_result heti_f_state_options(const heti_f_saved *f) {
    const char *value;
    heti_f_pairs pairs;
    HETI_T_TRY(heti_f_state_value(f, "hetrain_state", &value));
    if (strcmp(value, HETI_F_STATE_VERSION) != 0)
        return HETI_F_UNKNOWN(f->error, "%s: state version %q, this build reads " HETI_F_STATE_VERSION,
                              heti_f_reader_name(&f->part[0].from), value, strlen(value));
    if ((f->how & HETI_F_LOAD_ANY) != 0) return HET_OK;
    het_result result = heti_f_pairs_open(&pairs, f->ctx, heti_f_text_options, heti_f_own(f->ctx), f->error);
    for (size_t i = 0; result == HET_OK && i < HETI_T_COUNT(pairs.list, het_pair); i++) {
        const het_pair *own = &HETI_T_ITEMS(pairs.list, const het_pair)[i];
        result = heti_f_state_value(f, own->key, &value);
        if (result == HET_OK && strcmp(value, own->value) != 0)
            result = HETI_F_BAD(f->error, "%s: %s is %q in the file and %s in the context",
                                heti_f_reader_name(&f->part[0].from), own->key, value, strlen(value), own->value);
    }
    heti_f_pairs_close(&pairs);
    return result;
}

/* A decimal integer that ends at one of `ends` or with the text; 0: it does not. */
static int heti_f_decimal(const char *text, const char *ends, int64_t *value) {
    const size_t length = strcspn(text, ends);
    het_json j = het_json_start(text, length);
    return length > 0 && text[0] != ' ' && het_json_integer(&j, value) && j.at == length;
}

static het_result heti_f_state_exponents(const heti_f_saved *f, int32_t *to) {
    const int64_t parameters = het_parameter_count(f->ctx);
    const char *text;
    int64_t p, value;
    HETI_T_TRY(heti_f_state_value(f, "exponents", &text));
    for (p = 0; p < parameters; p++) {
        value = HETRAIN_NO_EXPONENT;
        if (!(text[0] == 'n' && (text[1] == ',' || text[1] == 0)) && (!heti_f_decimal(text, ",", &value) ||
                                                                      value < -200 || value > 200))
            break;
        to[p] = HETI_T_CAST(int32_t, value);
        text += strcspn(text, ",");
        if (text[0] == 0) break;
        text++;
    }
    if (p == parameters - 1 && text[0] == 0) return HET_OK;
    return HETI_F_WRONG(f->error, "%s: the metadata exponents are not %d numbers, or number %d is wrong",
                        heti_f_reader_name(&f->part[0].from), parameters, p);
}

/* 1: text begins with 16 hexadecimal digits. */
static int heti_f_bits_of(const char *text, uint64_t *bits) {
    static const char heti_f_digits[] = "0123456789abcdef";
    int i;
    for (*bits = 0, i = 0; i < 16; i++) {
        const char *digit = text[i] != 0 ? strchr(heti_f_digits, text[i]) : NULL;
        if (digit == NULL) return 0;
        *bits = *bits << 4 | HETI_T_CAST(uint64_t, digit - heti_f_digits);
    }
    return 1;
}

static het_result heti_f_state_recent(const heti_f_saved *f, het_loss_history *recent) {
    const char *text;
    uint64_t bits;
    size_t i;
    HETI_T_TRY(heti_f_state_value(f, "recent", &text));
    memset(recent, 0, sizeof *recent);
    const size_t count = strlen(text) / 16;
    if (strlen(text) % 32 == 0 && count <= 2 * HETRAIN_LOSS_HISTORY) {
        for (i = 0; i < count && heti_f_bits_of(text + 16 * i, &bits); i++) {
            if ((bits >> 52 & 2047u) == 2047 || (i % 2 != 0 && bits >> 63 != 0)) break; /* inf, nan; a norm below 0 */
            memcpy(i % 2 == 0 ? &recent->loss[i / 2] : &recent->norm[i / 2], &bits, sizeof bits);
        }
        recent->count = HETI_T_CAST(int64_t, count / 2);
        if (i == count) return HET_OK;
    }
    return HETI_F_WRONG(f->error, "%s: the metadata recent are not up to %d finite numbers",
                        heti_f_reader_name(&f->part[0].from), HETI_T_CAST(int64_t, 2 * HETRAIN_LOSS_HISTORY));
}

static het_result heti_f_state_step(const heti_f_saved *f, int64_t *step) {
    const char *value;
    HETI_T_TRY(heti_f_state_value(f, "step", &value));
    if (heti_f_decimal(value, "", step) && *step >= 0 && *step < INT64_C(1) << 46) return HET_OK;
    return HETI_F_WRONG(f->error, "%s: step is %q, must be an integer from 0 to 2^46 - 1",
                        heti_f_reader_name(&f->part[0].from), value, strlen(value));
}

static het_result heti_f_load_factors(const heti_f_saved *f);

/* Everything but the tables, which are open. exponents: room for the parameters'. */
static het_result heti_f_load_open(const heti_f_saved *f, int32_t *exponents) {
    const int state = f->contents == HETI_F_STATE;
    int64_t step = 0;
    het_loss_history recent;
    if (f->contents == HETI_F_FACTORS) return heti_f_load_factors(f);
    if (state) {
        HETI_T_TRY(heti_f_state_options(f));
        HETI_T_TRY(heti_f_state_recent(f, &recent));
        HETI_T_TRY(heti_f_state_step(f, &step));
        HETI_T_TRY(heti_f_state_exponents(f, exponents));
    }
    HETI_T_TRY(heti_f_check(f));
    if ((f->how & HETI_F_LOAD_LOOK) != 0) return HET_OK;
    HETI_T_TRY(heti_f_load_all(f));
    return het_restore_end(f->ctx, HETI_T_CAST(int32_t, f->contents), step, exponents, state ? &recent : NULL);
}

static het_result heti_f_load_tables(heti_f_saved *f) {
    const size_t parameters = HETI_T_CAST(size_t, het_parameter_count(f->ctx));
    heti_f_inventory all;
    int32_t *exponents;
    HETI_F_NEW(exponents, int32_t, heti_f_own(f->ctx), parameters, "exponents", f->error);
    het_result result = heti_f_inventory_open(f->ctx, f->contents, 0, heti_f_own(f->ctx), &all, f->error);
    f->all = &all;
    if (result == HET_OK) result = heti_f_load_open(f, exponents);
    heti_f_inventory_close(&all);
    heti_f_memory_free(heti_f_own(f->ctx), exponents, parameters, sizeof *exponents);
    return result;
}

static het_result heti_f_load(het_ctx *ctx, const char *function, heti_f_contents contents, const het_reader *from,
                              int how, het_error *error) {
    heti_f_part part = HETI_T_ZEROS;
    heti_f_saved f = { ctx, error, &part, 1, contents, how, NULL };
    if (from == NULL || from->read == NULL)
        return HETI_F_BAD(error, "%s: the reader%s is NULL", function, contents == HETI_F_FACTORS ? "" :
                          " or its read");
    HETI_T_TRY(heti_f_context_check(ctx, function, contents, 0, error));
    part.from = *from;
    het_result result = heti_f_part_open(ctx, &part, error);
    if (result == HET_OK) result = heti_f_load_tables(&f);
    heti_f_part_close(ctx, &part);
    return result;
}

HETRAIN_API het_result het_load_weights(het_ctx *ctx, const het_reader *from) {
    HETI_F_REPORTED(ctx, heti_f_load(ctx, "het_load_weights", HETI_F_WEIGHTS, from, 0, &error));
}

HETRAIN_API het_result het_load_state(het_ctx *ctx, const het_reader *from) {
    HETI_F_REPORTED(ctx, heti_f_load(ctx, "het_load_state", HETI_F_STATE, from, 0, &error));
}

/* =================================================================================================
   >>directory  Directories as transformers has them: config.json, one safetensors file or shards
                with an index.

   model.safetensors.index.json is {"metadata": {"total_size": bytes}, "weight_map": {tensor:
   file}}. Names of files in it come from somebody else, so they may not lead out of the directory.
   ============================================================================================== */

#define HETI_F_TEXT_LIMIT 100000000
#define HETI_F_SHARD_LIMIT 10000
static const char heti_f_one_file[] = "model.safetensors", heti_f_index_file[] = "model.safetensors.index.json",
    heti_f_config_file[] = "config.json";

/* The text of a file in an empty list, which is to be freed whatever is returned. */
static het_result heti_f_folder_get(const het_folder *folder, const char *name, const het_allocator *a, heti_t_list *to,
                                    het_error *error) {
    het_reader from;
    het_result result;
    HETI_T_TRY(folder->open(folder->user, name, &from, error));
    if (from.size > HETI_F_TEXT_LIMIT) {
        result = HETI_F_WRONG(error, "%s: %u bytes, the limit is 100000000", heti_f_reader_name(&from), from.size);
    } else {
        to->used = HETI_T_CAST(size_t, from.size);
        to->size = to->used + 1;
        to->data = HETI_T_CAST(char *, a->alloc(a->user, to->size, 16));
        result = to->data != NULL ? heti_f_read(&from, 0, to->data, to->used, error)
                                  : heti_t_fail(error, HET_ERR_OOM, "%s: %u bytes: out of memory",
                                                heti_f_reader_name(&from), from.size);
    }
    folder->close(folder->user, &from);
    return result;
}

static het_result heti_f_folder_check(const het_folder *folder, const char *function, het_error *error) {
    if (folder != NULL && folder->open != NULL && folder->close != NULL && folder->create != NULL &&
        folder->finish != NULL)
        return HET_OK;
    return HETI_F_BAD(error, "%s: the folder or one of its calls is NULL", function);
}

HETRAIN_API het_result het_model_from_folder(const het_folder *folder, het_model_desc *model, het_error *error) {
    heti_t_list text = { NULL, 0, 0 };
    het_allocator own;
    HETI_T_TRY(heti_f_folder_check(folder, "het_model_from_folder", error));
    HETI_T_TRY(heti_t_choose(NULL, &own, error, heti_f_config_file));
    het_result result = heti_f_folder_get(folder, heti_f_config_file, &own, &text, error);
    if (result == HET_OK) result = het_model_from_json(text.data, text.used, model, error);
    heti_t_list_free(&text, &own);
    return result;
}

/* ---- shards in ---- */

/* next: the names whose hashes go on with 0 and with 1, 0: there is none */
typedef struct heti_f_shard_name { char text[256]; size_t next[2]; } heti_f_shard_name;

typedef struct heti_f_index {
    const het_folder *folder;
    heti_f_saved saved;
    heti_t_list text;                 /* of the index, where there is one */
    heti_t_list names;                /* heti_f_shard_name[] */
    het_allocator allocator;
} heti_f_index;

static het_result heti_f_index_fail(const heti_f_index *x, size_t at, const char *name, size_t length,
                                    const char *what) {
    return HETI_F_WRONG(x->saved.error, "%s: byte %z: %q: %s", heti_f_index_file, at, name, length, what);
}

/* The number of the shard called `name`, or how many there are: then the next one added must be it.
   The names are a trie over the bits of their hashes. */
static size_t heti_f_index_shard(const heti_f_index *x, const char *name, size_t length) {
    heti_f_shard_name *names = HETI_T_ITEMS(x->names, heti_f_shard_name);
    const size_t count = HETI_T_COUNT(x->names, heti_f_shard_name);
    uint64_t hash = het_xxh64(name, length, 0);
    size_t i = 0;
    for (; i < count && strcmp(names[i].text, name) != 0; hash = hash >> 1 | hash << 63) {
        size_t *next = &names[i].next[hash & 1];
        i = *next = *next > 0 ? *next : count;
    }
    return i;
}

/* One tensor of the map. check 0: its file is entered into the list; 1: all files are open, and the
   tensor must be in its file. */
static het_result heti_f_index_entry(heti_f_index *x, het_json *j, const char *tensor, size_t tensor_length,
                                     int check) {
    heti_f_shard_name name = HETI_T_ZEROS;
    heti_f_located found;
    size_t length = 0, shard;
    const size_t at = j->at;
    if (!het_json_string(j, name.text, sizeof name.text, &length)) return HET_OK; /* told at the end */
    if (!het_folder_is_name(name.text, length))
        return heti_f_index_fail(x, at, name.text, heti_t_shown(length, sizeof name.text),
                                 "is no name of a file in this directory");
    shard = heti_f_index_shard(x, name.text, length);
    if (!check) {
        if (shard < x->names.used / sizeof name) return HET_OK;
        if (shard == HETI_F_SHARD_LIMIT) return heti_f_index_fail(x, at, name.text, length, "more than 10000 files");
        return heti_t_list_add(&x->names, &name, sizeof name, &x->allocator, x->saved.error);
    }
    found.part = &x->saved.part[shard];
    found.tensor = tensor_length < 256 ? het_safetensors_find(found.part->file, tensor, tensor_length) : NULL;
    if (found.tensor == NULL)
        return heti_f_index_fail(x, at, tensor, heti_t_shown(tensor_length, 256),
                                 "is not in the file that the index names");
    if (*heti_f_used(&found)) return heti_f_index_fail(x, at, tensor, tensor_length, "occurs twice");
    *heti_f_used(&found) = 1;
    return HET_OK;
}

/* Walks "weight_map". */
static het_result heti_f_index_walk(heti_f_index *x, int check) {
    static const char *const heti_f_keys[] = { "weight_map", NULL };
    het_json j = het_json_start(x->text.data, x->text.used);
    char key[256];
    size_t length = 0;
    int maps = 0;
    het_json_enter(&j, HET_JSON_OBJECT);
    while (heti_t_key(&j, heti_f_keys) >= 0) {
        if (maps++ > 0) het_json_fail(&j, "weight_map occurs twice");
        het_json_enter(&j, HET_JSON_OBJECT);
        while (het_json_next(&j, key, sizeof key, &length)) HETI_T_TRY(heti_f_index_entry(x, &j, key, length, check));
    }
    het_json_end(&j);
    HETI_T_TRY(heti_t_json_result(&j, heti_f_index_file, x->saved.error));
    if (x->names.used > 0) return HET_OK;
    return HETI_F_WRONG(x->saved.error, "%s: weight_map is missing or empty", heti_f_index_file);
}

/* The list of a folder's files: the one file, or those of the index, whose text then is there. To
   be closed whatever is returned. */
static het_result heti_f_index_start(heti_f_index *x, het_ctx *ctx, const het_folder *folder,
                                     const het_allocator *allocator, het_error *error) {
    het_error first = { HET_OK, "" };
    heti_f_shard_name one = HETI_T_ZEROS;
    het_reader from;
    memset(x, 0, sizeof *x);
    x->folder = folder;
    x->allocator = *allocator;
    x->saved.ctx = ctx;
    x->saved.error = error;
    x->saved.contents = HETI_F_WEIGHTS;
    het_result result = folder->open(folder->user, heti_f_one_file, &from, &first);
    if (result == HET_OK) {
        folder->close(folder->user, &from);
        memcpy(one.text, heti_f_one_file, sizeof heti_f_one_file);
        return heti_t_list_add(&x->names, &one, sizeof one, allocator, error);
    }
    if (result != HET_ERR_IO) return heti_t_fail(error, result, "%s", first.text);
    result = heti_f_folder_get(folder, heti_f_index_file, allocator, &x->text, error);
    if (result == HET_ERR_IO && x->text.size == 0)
        return heti_t_fail(error, result, "%s; nor is there an index of shards", first.text);
    return result == HET_OK ? heti_f_index_walk(x, 0) : result;
}

static void heti_f_index_close(heti_f_index *x) {
    for (size_t i = 0; i < x->saved.parts; i++) {
        heti_f_part_close(x->saved.ctx, &x->saved.part[i]);
        x->folder->close(x->folder->user, &x->saved.part[i].from);
    }
    heti_f_memory_free(&x->allocator, x->saved.part, HETI_T_COUNT(x->names, heti_f_shard_name), sizeof(heti_f_part));
    heti_t_list_free(&x->names, &x->allocator);
    heti_t_list_free(&x->text, &x->allocator);
}

/* Opens the files of the list; what is open is counted in saved.parts. Every tensor of every file
   must be in the map, where there is one. The flags are then cleared for the model. */
static het_result heti_f_load_index(heti_f_index *x) {
    const heti_f_shard_name *names = HETI_T_ITEMS(x->names, const heti_f_shard_name);
    const size_t shards = HETI_T_COUNT(x->names, heti_f_shard_name);
    heti_f_located at = { NULL, NULL };
    HETI_F_NEW(x->saved.part, heti_f_part, &x->allocator, shards, "files", x->saved.error);
    for (size_t i = 0; i < shards; i++) {
        HETI_T_TRY(x->folder->open(x->folder->user, names[i].text, &x->saved.part[i].from, x->saved.error));
        x->saved.parts++;
        HETI_T_TRY(heti_f_part_open(x->saved.ctx, &x->saved.part[i], x->saved.error));
    }
    if (x->text.data != NULL) {
        HETI_T_TRY(heti_f_index_walk(x, 1));
        if (heti_f_unused(&x->saved, &at))
            return heti_f_located_fail(&x->saved, &at, HET_ERR_FORMAT, "is not in model.safetensors.index.json");
        for (size_t i = 0; i < x->saved.parts; i++)
            memset(x->saved.part[i].used, 0, HETI_T_CAST(size_t, x->saved.part[i].file->tensors) + 1);
    }
    return heti_f_load_tables(&x->saved);
}

static het_result heti_f_load_folder(het_ctx *ctx, const het_folder *folder, het_error *error) {
    heti_f_index x;
    HETI_T_TRY(heti_f_folder_check(folder, "het_load_folder", error));
    het_result result = heti_f_index_start(&x, ctx, folder, heti_f_own(ctx), error);
    if (result == HET_OK) result = heti_f_load_index(&x);
    heti_f_index_close(&x);
    return result;
}

HETRAIN_API het_result het_load_folder(het_ctx *ctx, const het_folder *folder) {
    HETI_F_REPORTED(ctx, heti_f_load_folder(ctx, folder, &error));
}

/* ---- a model held against shapes ---- */

/* Letters of sizes, and the settings of which they are the fault; L: layers. */
static const char heti_f_sizes[] = "VCDFKQTL";
static const char *const heti_f_size_settings[] = { "vocab", "context", "width", "mlp_width", "kv_heads", "heads",
                                                   "heads", "layers" };

typedef struct heti_f_sizing {
    het_model_desc model;
    int64_t seen[HETI_F_NAMES];       /* how many matrices of each there are */
    het_allocator allocator;
    het_error *error;
} heti_f_sizing;

static het_setting heti_f_size_setting(const het_model_desc *m, char size) {
    het_setting s;
    (void)heti_f_setting(m, heti_f_size_settings[strchr(heti_f_sizes, size) - heti_f_sizes], &s);
    return s;
}

/* Sizes of K, Q and T, which is Q + 2 K, count heads. */
static int heti_f_is_heads(char size) { return size == 'K' || size == 'Q' || size == 'T'; }

static int64_t heti_f_size_of(const het_model_desc *m, char size) {
    const int64_t value = heti_f_size_setting(m, size).integer;
    return (value + (size == 'T' ? 2 * m->kv_heads : 0)) * (heti_f_is_heads(size) ? m->head_size : 1);
}

/* "num_attention_heads 4 of size 8: tensor ...": a size is its key of config.json and its value. */
static het_result heti_f_sizing_fail(const heti_f_sizing *s, char size, const char *name, size_t length,
                                     const char *what) {
    char key[80];
    heti_t_text t = heti_t_text_in(key, sizeof key);
    const het_setting setting = heti_f_size_setting(&s->model, size);
    heti_t_format(&t, "%s %d", heti_f_key_of(heti_f_in(&s->model), setting.name), setting.integer);
    if (heti_f_is_heads(size)) heti_t_format(&t, " of size %d", s->model.head_size);
    return HETI_F_WRONG(s->error, "%s: tensor %q %s", key, name, length, what);
}

static het_result heti_f_sizing_tensor(heti_f_sizing *s, const het_safetensor *t) {
    char text[240] = "";
    int64_t layer = 0, shape[2];
    int d;
    const heti_f_named *row = heti_f_row_of(heti_f_in(&s->model), 1, t->name, t->name_length, &layer);
    if (heti_f_is_quantised(t)) return heti_f_refuse_quantised(t, s->error);
    if (row == NULL || row->sizes == NULL || !heti_f_ends_with(t->name, t->name_length, ".weight")) return HET_OK;
    if (!heti_f_is_float(t->element)) return heti_f_refuse_quantised(t, s->error);
    if (layer >= s->model.layers) return heti_f_sizing_fail(s, 'L', t->name, t->name_length, "is of a layer beyond");
    for (d = 0; d < 2; d++) shape[d] = heti_f_size_of(&s->model, row->sizes[d]);
    s->seen[row - heti_f_names]++;
    if (t->rank == 2 && t->shape[0] == shape[0] && t->shape[1] == shape[1]) return HET_OK;
    d = t->rank == 2 && t->shape[0] == shape[0];
    (void)heti_f_shape(text, sizeof text, "has shape ", t->shape, t->rank, ", not ");
    return heti_f_sizing_fail(s, row->sizes[d], t->name, t->name_length,
                              heti_f_shape(text, sizeof text, "", shape, 2, ""));
}

static het_result heti_f_sizing_file(heti_f_sizing *s, const het_reader *from) {
    het_safetensors *file = NULL;
    het_result result = het_safetensors_read(from, HETI_F_MODEL_TENSORS, &s->allocator, &file, s->error);
    for (int64_t i = 0; result == HET_OK && i < file->tensors; i++) result = heti_f_sizing_tensor(s, &file->tensor[i]);
    het_safetensors_free(file);
    return result;
}

static het_result heti_f_sizing_start(heti_f_sizing *s, const char *function, const het_model_desc *model,
                                      const het_allocator *allocator, het_error *error) {
    memset(s, 0, sizeof *s);
    s->error = error;
    if (model == NULL) return HETI_F_BAD(error, "%s: model is NULL", function);
    HETI_T_TRY(heti_t_choose(allocator, &s->allocator, error, function));
    s->model = *model;
    return het_model_complete(&s->model, error);
}

/* What no tensor has confirmed. A file may have a tensor with and without the prefix before its
   name: then there are too many. */
static het_result heti_f_sizing_end(const heti_f_sizing *s) {
    const het_model_desc *m = &s->model;
    const int needed[] = { 0, 1, m->activation == HET_SWIGLU, m->position == HET_LEARNED, m->heads == m->kv_heads,
                           m->heads != m->kv_heads }; /* by heti_f_need */
    char text[64], name[64];
    for (int i = 0; i < HETI_F_NAMES; i++) {
        const heti_f_named *row = &heti_f_names[i];
        const int layers = strchr(row->name, '#') != NULL;
        heti_t_text t = heti_t_text_in(text, sizeof text), n = heti_t_text_in(name, sizeof name);
        if ((row->families & heti_f_in(m)) == 0 || s->seen[i] == (layers ? m->layers : 1) || !needed[row->need])
            continue;
        if (layers) heti_t_format(&t, "is there in %d layers", s->seen[i]);
        else heti_t_put(&t, s->seen[i] > 0 ? "is there twice" : "is missing");
        heti_t_format(&n, "%s.weight", row->name);
        return heti_f_sizing_fail(s, layers ? 'L' : row->sizes[0], name, n.length, text);
    }
    return HET_OK;
}

HETRAIN_API het_result het_model_fits(const het_model_desc *model, const het_reader *from,
                                      const het_allocator *allocator, het_error *error) {
    heti_f_sizing s;
    HETI_T_TRY(heti_f_sizing_start(&s, "het_model_fits", model, allocator, error));
    if (from == NULL || from->read == NULL)
        return HETI_F_BAD(error, "het_model_fits: the reader or its read is NULL");
    HETI_T_TRY(heti_f_sizing_file(&s, from));
    return heti_f_sizing_end(&s);
}

HETRAIN_API het_result het_model_fits_folder(const het_model_desc *model, const het_folder *folder,
                                             const het_allocator *allocator, het_error *error) {
    heti_f_sizing s;
    heti_f_index x;
    het_reader from;
    HETI_T_TRY(heti_f_folder_check(folder, "het_model_fits_folder", error));
    HETI_T_TRY(heti_f_sizing_start(&s, "het_model_fits_folder", model, allocator, error));
    het_result result = heti_f_index_start(&x, NULL, folder, &s.allocator, error);
    for (size_t i = 0; result == HET_OK && i < HETI_T_COUNT(x.names, heti_f_shard_name); i++) {
        result = folder->open(folder->user, HETI_T_ITEMS(x.names, const heti_f_shard_name)[i].text, &from, error);
        if (result != HET_OK) break;
        result = heti_f_sizing_file(&s, &from);
        folder->close(folder->user, &from);
    }
    heti_f_index_close(&x);
    return result == HET_OK ? heti_f_sizing_end(&s) : result;
}

/* ---- shards out ---- */

typedef struct heti_f_export {
    const het_folder *folder;         /* NULL: nothing is written */
    het_save_desc desc;
    heti_f_inventory all;
    int64_t shards;
} heti_f_export;

/* The first tensor behind the shard that begins at `first`. */
static size_t heti_f_export_end(const heti_f_export *e, size_t first) {
    uint64_t bytes = 0;
    size_t i;
    for (i = first; i < e->all.count; i++) {
        bytes += heti_f_stored_bytes(&e->all.stored[i], e->desc.element);
        if (i > first && e->desc.shard_bytes > 0 && bytes > e->desc.shard_bytes) break;
    }
    return i;
}

/* model-00001-of-00002.safetensors, or model.safetensors where there is one. */
static void heti_f_export_name(const heti_f_export *e, int64_t shard, char name[64]) {
    heti_t_text t = heti_t_text_in(name, 64);
    heti_t_put(&t, "model");
    for (int i = 0; i < 2 && e->shards > 1; i++) {
        heti_t_put(&t, i == 0 ? "-" : "-of-");
        heti_f_text_padded(&t, HETI_T_CAST(uint64_t, i == 0 ? shard + 1 : e->shards), 5);
    }
    heti_t_put(&t, ".safetensors");
}

/* Creates a file, has it written and keeps it if that went well: a text, or for NULL the tensors
   [first, last). */
static het_result heti_f_export_file(heti_f_export *e, const char *name, const char *text, size_t size,
                                     size_t first, size_t last) {
    het_writer own, *to = e->folder != NULL ? &own : NULL;
    het_result result, finished;
    if (to != NULL) HETI_T_TRY(e->folder->create(e->folder->user, name, to, e->all.error));
    if (text == NULL)
        result = heti_f_save_some(&e->all, first, last, e->desc.element, to, NULL);
    else result = to != NULL ? heti_f_write(to, text, size, e->all.error) : HET_OK;
    if (to == NULL) return result;
    finished = e->folder->finish(e->folder->user, to, result == HET_OK, result == HET_OK ? e->all.error : NULL);
    return result != HET_OK ? result : finished;
}

/* The text of the index. */
static void heti_f_export_index(const heti_f_export *e, heti_t_text *t) {
    char name[64];
    uint64_t bytes = 0;
    size_t last;
    int64_t shard = 0;
    for (size_t i = 0; i < e->all.count; i++) bytes += heti_f_stored_bytes(&e->all.stored[i], e->desc.element);
    heti_t_format(t, "{\n  \"metadata\": {\n    \"total_size\": %u\n  },\n  \"weight_map\": {", bytes);
    for (size_t first = 0; first < e->all.count; first = last, shard++) {
        last = heti_f_export_end(e, first);
        heti_f_export_name(e, shard, name);
        for (size_t i = first; i < last; i++)
            heti_t_format(t, i == 0 ? "\n    %j: %j" : ",\n    %j: %j", e->all.stored[i].name, name);
    }
    heti_t_put(t, "\n  }\n}\n");
}

static het_result heti_f_export_weights(heti_f_export *e) {
    static const char heti_f_unfinished[] = "{\"weight_map\": {}}\n"; /* nobody loads shards of two saves */
    heti_t_text t = heti_t_text_in(NULL, 0);
    size_t last;
    int64_t shard = 0;
    char *index, name[64];
    het_reader old;
    het_error missing;
    for (size_t first = 0; first < e->all.count; first = heti_f_export_end(e, first)) e->shards++;
    if (e->shards > HETI_F_SHARD_LIMIT) /* of het_load_folder too */
        return heti_t_fail(e->all.error, HET_ERR_LIMIT, "het_save_folder: %d files, the limit is 10000", e->shards);
    if (e->shards > 1 && e->folder && e->folder->open(e->folder->user, heti_f_one_file, &old, &missing) == HET_OK) {
        e->folder->close(e->folder->user, &old);
        return HETI_F_BAD(e->all.error, "het_save_folder: %s is there, and would be read in place of %d files",
                          heti_f_one_file, e->shards);
    }
    if (e->shards > 1)
        HETI_T_TRY(heti_f_export_file(e, heti_f_index_file, heti_f_unfinished, sizeof heti_f_unfinished - 1, 0, 0));
    for (size_t first = 0; first < e->all.count; first = last, shard++) {
        last = heti_f_export_end(e, first);
        heti_f_export_name(e, shard, name);
        HETI_T_TRY(heti_f_export_file(e, name, NULL, 0, first, last));
    }
    if (e->shards < 2) return HET_OK;
    heti_f_export_index(e, &t);
    const size_t size = t.length;
    HETI_F_NEW(index, char, e->all.allocator, size, "bytes for an index", e->all.error);
    t = heti_t_text_in(index, size + 1);
    heti_f_export_index(e, &t);
    const het_result result = heti_f_export_file(e, heti_f_index_file, index, size, 0, 0);
    heti_f_memory_free(e->all.allocator, index, size, 1);
    return result;
}

static het_result heti_f_save_folder(het_ctx *ctx, const het_folder *folder, const het_save_desc *desc,
                                     het_error *error) {
    het_allocator allocator;
    heti_f_export e = HETI_T_ZEROS;
    het_save_desc *d = &e.desc;
    char *config;
    size_t length;
    if (desc != NULL) *d = *desc;
    e.folder = folder;
    if (folder != NULL) HETI_T_TRY(heti_f_folder_check(folder, "het_save_folder", error));
    if (d->start_canary != 0 || d->end_canary != 0)
        return HETI_F_BAD(error,
                          "het_save_folder: a canary of het_save_desc is not 0: clear the struct before filling it");
    if (d->allocator == NULL) d->allocator = heti_f_own(ctx);
    HETI_T_TRY(heti_t_choose(d->allocator, &allocator, error, "het_save_folder"));
    HETI_T_TRY(heti_f_context_check(ctx, "het_save_folder", HETI_F_WEIGHTS, 1, error));
    HETI_T_TRY(heti_f_element_check(&d->element, "het_save_folder", error));
    if (heti_f_own_config(ctx, d->element, d->base, d->base_length, NULL, 0, &length) != HET_ERR_LIMIT)
        return HETI_F_WRONG(error, "het_save_folder: the model has no config.json, or base is no JSON object");
    HETI_F_NEW(config, char, &allocator, length, "bytes for config.json", error);
    het_result result = heti_f_own_config(ctx, d->element, d->base, d->base_length, config, length + 1, &length);
    if (result == HET_OK) result = heti_f_inventory_open(ctx, HETI_F_WEIGHTS, 1, &allocator, &e.all, error);
    if (result == HET_OK) result = heti_f_export_weights(&e);
    if (result == HET_OK) result = heti_f_export_file(&e, heti_f_config_file, config, length, 0, 0);
    heti_f_inventory_close(&e.all);
    heti_f_memory_free(&allocator, config, length, 1);
    return result;
}

HETRAIN_API het_result het_save_folder(het_ctx *ctx, const het_folder *folder, const het_save_desc *desc) {
    HETI_F_REPORTED(ctx, heti_f_save_folder(ctx, folder, desc, &error));
}

/* =================================================================================================
   >>gguf  Models for llama.cpp (github.com/ggml-org/ggml, docs/gguf.md; names of keys and tensors:
           gguf-py/gguf/constants.py).

   "GGUF", u32 version 3, u64 tensors, u64 pairs; pairs of key, u32 type and value; descriptions of
   tensors: name, u32 rank, u64 sizes with the columns first, u32 type, u64 offset; zeros up to a
   multiple of 32, and the data, each tensor filled up likewise. Strings are u64 and bytes.
   ============================================================================================== */
#ifdef HETRAIN_TOKENIZER_H

#define HETI_F_GGUF_ALIGN 32

/* Types of values that are written, and their numbers. */
typedef enum heti_f_gguf_type {
    HETI_F_GGUF_U32 = 4, HETI_F_GGUF_I32 = 5, HETI_F_GGUF_F32 = 6, HETI_F_GGUF_BOOL = 7, HETI_F_GGUF_STRING = 8,
        HETI_F_GGUF_ARRAY = 9
} heti_f_gguf_type;

/* Types of tokens. */
enum { HETI_F_GGUF_NORMAL = 1, HETI_F_GGUF_CONTROL = 3, HETI_F_GGUF_USER = 4, HETI_F_GGUF_UNUSED = 5 };

/* A tensor of the file: rows of 1 or 3 parameters below each other; of 0: the divisors of rotary
   frequencies. */
typedef struct heti_f_gguf_tensor {
    char name[64];
    heti_f_stored stored;             /* its parameters, their rows and columns, and count */
    het_element element;
    int paired;                       /* rows of each head as column pairs (2i, 2i + 1) instead of (i, i + E/2) */
} heti_f_gguf_tensor;

typedef struct heti_f_gguf {
    het_ctx *ctx;
    const het_model_desc *model;
    const char *architecture;
    het_gguf_desc desc;
    het_tokenizer_info info;
    het_error *error;
    het_result result;                /* the first error; nothing is added behind it */
    heti_t_list head, tensors;        /* bytes before the data; heti_f_gguf_tensor[] */
    uint64_t pairs;
} heti_f_gguf;

/* ---- what stands before the data ---- */

static void heti_f_gguf_add(heti_f_gguf *g, const void *from, size_t size) {
    if (g->result == HET_OK)
        g->result = heti_t_list_add(&g->head, from, size, heti_f_own(g->ctx), g->error);
}

static void heti_f_gguf_number(heti_f_gguf *g, uint64_t value, int bytes) {
    unsigned char little[8];
    heti_f_store(little, value, bytes);
    heti_f_gguf_add(g, little, HETI_T_CAST(size_t, bytes));
}

static void heti_f_gguf_string(heti_f_gguf *g, const char *text, size_t length) {
    heti_f_gguf_number(g, length, 8);
    heti_f_gguf_add(g, text, length);
}

/* A key, behind the architecture's name where it begins with a dot, and the type of its value. */
static void heti_f_gguf_key(heti_f_gguf *g, const char *key, heti_f_gguf_type type) {
    const size_t before = key[0] == '.' ? strlen(g->architecture) : 0;
    heti_f_gguf_number(g, before + strlen(key), 8);
    heti_f_gguf_add(g, g->architecture, before);
    heti_f_gguf_add(g, key, strlen(key));
    heti_f_gguf_number(g, HETI_T_CAST(uint64_t, type), 4);
    g->pairs++;
}

static void heti_f_gguf_value(heti_f_gguf *g, const char *key, heti_f_gguf_type type, uint64_t value) {
    heti_f_gguf_key(g, key, type);
    heti_f_gguf_number(g, value, type == HETI_F_GGUF_BOOL ? 1 : 4);
}

static void heti_f_gguf_u32(heti_f_gguf *g, const char *key, int64_t value) {
    if (g->result == HET_OK && (value < 0 || value > INT64_C(0xFFFFFFFF)))
        g->result = heti_t_fail(g->error, HET_ERR_LIMIT, "het_save_gguf: %s%s is %d, the limit is 4294967295",
                                g->architecture, key, value);
    heti_f_gguf_value(g, key, HETI_F_GGUF_U32, HETI_T_CAST(uint64_t, value));
}

static void heti_f_gguf_f32(heti_f_gguf *g, const char *key, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    heti_f_gguf_value(g, key, HETI_F_GGUF_F32, bits);
}

static void heti_f_gguf_text(heti_f_gguf *g, const char *key, const char *value) {
    heti_f_gguf_key(g, key, HETI_F_GGUF_STRING);
    heti_f_gguf_string(g, value, strlen(value));
}

static void heti_f_gguf_array(heti_f_gguf *g, const char *key, heti_f_gguf_type type, int64_t count) {
    heti_f_gguf_key(g, key, HETI_F_GGUF_ARRAY);
    heti_f_gguf_number(g, HETI_T_CAST(uint64_t, type), 4);
    heti_f_gguf_number(g, HETI_T_CAST(uint64_t, count), 8);
}

/* ---- which models llama.cpp has ---- */

static het_result heti_f_gguf_refuse(const heti_f_gguf *g, const char *setting, const char *wanted) {
    return HETI_F_UNKNOWN(g->error, "het_save_gguf: %s: llama.cpp's %s has only %s", setting, g->architecture, wanted);
}

/* What a setting must be in llama.cpp's models, one of the words of `values`, and how that is
   called. */
typedef struct heti_f_gguf_rule { int families; const char *setting, *values, *wanted; } heti_f_gguf_rule;
static const heti_f_gguf_rule heti_f_gguf_rules[] = {
    { HETI_F_IN_ALL, "causal", " yes ", "yes" },
    { HETI_F_IN_ALL, "window", " 0 ", "0" },
    { HETI_F_IN_GATED, "norm", " rmsnorm ", "RMSNorm" },
    { HETI_F_IN_GPT2 | HETI_F_IN_NEOX, "norm", " layernorm ", "LayerNorm" },
    { HETI_F_IN_GATED, "activation", " swiglu ", "SwiGLU" },
    { HETI_F_IN_GPT2, "activation", " gelu_tanh ", "GELU" },
    { HETI_F_IN_NEOX, "activation", " gelu_tanh gelu_erf ", "GELU" },
    { HETI_F_IN_ROTARY, "position", " rotary ", "rotary ones" },
    { HETI_F_IN_GPT2, "position", " learned ", "learned ones" },
    { HETI_F_IN_ALL - HETI_F_IN_NEOX, "parallel", " no ", "no" },
    { HETI_F_IN_GATED, "rotary_fraction", " 1.0 ", "1" },
    { HETI_F_IN_ALL - HETI_F_IN_QWEN3, "qk_norm", " no ", "no" },
    { HETI_F_IN_QWEN3, "qk_norm", " yes ", "yes" },
    { HETI_F_IN_GPT2 | HETI_F_IN_NEOX, "qkv_bias", " yes ", "yes" },
    { HETI_F_IN_GPT2 | HETI_F_IN_NEOX, "linear_bias", " yes ", "yes" },
    { HETI_F_IN_QWEN, "linear_bias", " no ", "no" },
    { HETI_F_IN_ALL - HETI_F_IN_LLAMA, "rotary_factor", " 0.0 ", "0" }
};

static het_result heti_f_gguf_model(const heti_f_gguf *g) {
    const het_model_desc *m = g->model;
    const int in = heti_f_in(m);
    char text[64];
    for (size_t i = 0; i < sizeof heti_f_gguf_rules / sizeof heti_f_gguf_rules[0]; i++) {
        const heti_f_gguf_rule *rule = &heti_f_gguf_rules[i];
        heti_t_text value = heti_t_text_in(text, sizeof text);
        het_setting s;
        (void)heti_f_setting(m, rule->setting, &s);
        heti_t_char(&value, ' ');
        heti_t_setting_text(&value, &s);
        heti_t_char(&value, ' ');
        if ((rule->families & in) != 0 && strstr(rule->values, text) == NULL)
            return heti_f_gguf_refuse(g, rule->setting, rule->wanted);
    }
    if ((in & (HETI_F_IN_GPT2 | HETI_F_IN_NEOX)) != 0 && m->kv_heads != m->heads)
        return heti_f_gguf_refuse(g, "kv_heads", "as many as heads");
    if ((in & (HETI_F_IN_GPT2 | HETI_F_IN_NEOX | HETI_F_IN_QWEN2)) != 0 && m->heads * m->head_size != m->width)
        return heti_f_gguf_refuse(g, "head_size", "width / heads");
    return HET_OK;
}

/* The ways to cut text by the names llama.cpp knows them by; its llama-bpe ignores merges where a
   word is a token, dbrx cuts alike and does not. */
static const char *heti_f_gguf_split(const het_tokenizer_info *info) {
    if (info->split == HET_SPLIT_LLAMA3) return info->ignore_merges ? "llama-bpe" : "dbrx";
    if (info->ignore_merges) return NULL;
    return info->split == HET_SPLIT_QWEN2 ? "qwen2" : info->split == HET_SPLIT_GPT2 ? "gpt-2" : NULL;
}

static het_result heti_f_gguf_tokenizer(const heti_f_gguf *g) {
    const het_tokenizer_info *info = &g->info;
    for (int64_t i = 0; i < g->desc.ends; i++)
        if (g->desc.end == NULL || g->desc.end[i] < 0 || g->desc.end[i] >= g->model->vocab)
            return HETI_F_BAD(g->error, "het_save_gguf: end[%d] is %d, must be 0 .. %d", i, HETI_T_CAST(int64_t,
                              g->desc.end != NULL ? g->desc.end[i] : -1), g->model->vocab - 1);
    if (g->desc.tokenizer == NULL) return HET_OK;
    if (info->vocab > g->model->vocab)
        return HETI_F_BAD(g->error, "het_save_gguf: the tokenizer has %d ids, the model's vocabulary is %d",
                          info->vocab, g->model->vocab);
    if (heti_f_gguf_split(info) == NULL || info->prefix_space)
        return HETI_F_UNKNOWN(g->error, "het_save_gguf: the tokenizer %s, for which llama.cpp has no name",
                              info->prefix_space ? "puts a space before a text" : info->split == HET_SPLIT_WHOLE ?
                              "does not cut text into words" : "ignores merges and cuts text as GPT-2 or Qwen 2 do");
    if (info->prefixes > 1 || info->suffixes > 1)
        return HETI_F_UNKNOWN(g->error, "het_save_gguf: the tokenizer puts %d ids before and %d behind a text, GGUF "
                              "knows one each", info->prefixes, info->suffixes);
    return HET_OK;
}

/* ---- pairs ---- */

static void heti_f_gguf_settings(heti_f_gguf *g) {
    const het_model_desc *m = g->model;
    const het_element element = g->desc.element;
    heti_f_gguf_text(g, "general.architecture", g->architecture);
    heti_f_gguf_u32(g, "hetrain.version", HETRAIN_VERSION);
    if (g->desc.name != NULL) heti_f_gguf_text(g, "general.name", g->desc.name);
    heti_f_gguf_u32(g, "general.alignment", HETI_F_GGUF_ALIGN);
    heti_f_gguf_u32(g, "general.file_type", element == HET_ELEMENT_F16 ? 1 : element == HET_ELEMENT_BF16 ? 32 : 0);
    heti_f_gguf_u32(g, ".vocab_size", m->vocab);
    heti_f_gguf_u32(g, ".context_length", m->context);
    heti_f_gguf_u32(g, ".embedding_length", m->width);
    heti_f_gguf_u32(g, ".block_count", m->layers);
    heti_f_gguf_u32(g, ".feed_forward_length", m->mlp_width);
    heti_f_gguf_u32(g, ".attention.head_count", m->heads);
    heti_f_gguf_u32(g, ".attention.head_count_kv", m->kv_heads);
    heti_f_gguf_u32(g, ".attention.key_length", m->head_size);
    heti_f_gguf_u32(g, ".attention.value_length", m->head_size);
    heti_f_gguf_f32(g, m->norm == HET_RMSNORM ? ".attention.layer_norm_rms_epsilon" : ".attention.layer_norm_epsilon",
                    m->norm_epsilon);
    /* transformers' int(E fraction); the small term undoes the rounding of fraction to float */
    if (m->position == HET_ROTARY) {
        const double size = HETI_T_CAST(double, m->head_size);
        heti_f_gguf_u32(g, ".rope.dimension_count",
                        HETI_T_CAST(int64_t, size * (HETI_T_CAST(double, m->rotary_fraction) + 1e-7)));
        heti_f_gguf_f32(g, ".rope.freq_base", m->rotary_theta);
    }
    if (m->family == HET_NEOX)
        heti_f_gguf_value(g, ".use_parallel_residual", HETI_F_GGUF_BOOL, m->parallel == HET_YES);
}

/* One string of tokens as tokenizer.json spells them, a blank between two: the 0 behind each is cut
   off again. */
static void heti_f_gguf_spelled(heti_f_gguf *g, const int32_t *id, int count) {
    const het_tokenizer *t = g->desc.tokenizer;
    size_t length = HETI_T_CAST(size_t, count - 1);
    for (int i = 0; i < count; i++) length += het_tokenizer_spell(t, id[i], NULL, 0);
    heti_f_gguf_number(g, length, 8);
    if (g->result == HET_OK) g->result = heti_t_list_room(&g->head, length + 1, heti_f_own(g->ctx), g->error);
    for (int i = 0; i < count && g->result == HET_OK; i++) {
        if (i > 0) g->head.data[g->head.used++] = ' ';
        g->head.used += het_tokenizer_spell(t, id[i], g->head.data + g->head.used, g->head.size - g->head.used);
    }
}

/* Rows of the embedding without a token get names that no text gives. */
static void heti_f_gguf_token(heti_f_gguf *g, int32_t id) {
    char text[32];
    heti_t_text t = heti_t_text_in(text, sizeof text);
    const size_t length = g->desc.tokenizer != NULL ? het_tokenizer_spell(g->desc.tokenizer, id, NULL, 0) : 0;
    if (g->desc.tokenizer == NULL) {
        heti_f_gguf_string(g, text, heti_t_utf8(heti_t_letter_of_byte(HETI_T_CAST(unsigned char, id)), text));
    } else if (length == 0) {
        heti_t_format(&t, "[PAD%d]", HETI_T_CAST(int64_t, id));
        heti_f_gguf_string(g, text, t.length);
    } else {
        heti_f_gguf_spelled(g, &id, 1);
    }
}

static uint64_t heti_f_gguf_token_type(const heti_f_gguf *g, int32_t id) {
    het_token token;
    if (g->desc.tokenizer == NULL) return HETI_F_GGUF_NORMAL;
    if (!het_tokenizer_get_token(g->desc.tokenizer, id, &token)) return HETI_F_GGUF_UNUSED;
    return !token.added ? HETI_F_GGUF_NORMAL : token.special ? HETI_F_GGUF_CONTROL : HETI_F_GGUF_USER;
}

static void heti_f_gguf_vocabulary(heti_f_gguf *g) {
    const het_tokenizer_info *info = &g->info;
    const int64_t vocab = g->model->vocab, ends = g->desc.ends;
    const int32_t *end = g->desc.end, *eos = info->suffixes > 0 ? info->suffix : end;
    int64_t other = 0;
    int32_t merge[2];
    if (g->desc.tokenizer == NULL && vocab != 256) {
        heti_f_gguf_text(g, "tokenizer.ggml.model", "no_vocab");
        return;
    }
    heti_f_gguf_text(g, "tokenizer.ggml.model", "gpt2");
    heti_f_gguf_text(g, "tokenizer.ggml.pre", g->desc.tokenizer != NULL ? heti_f_gguf_split(info) : "gpt-2");
    heti_f_gguf_array(g, "tokenizer.ggml.tokens", HETI_F_GGUF_STRING, vocab);
    for (int64_t i = 0; i < vocab && g->result == HET_OK; i++) heti_f_gguf_token(g, HETI_T_CAST(int32_t, i));
    heti_f_gguf_array(g, "tokenizer.ggml.token_type", HETI_F_GGUF_I32, vocab);
    for (int64_t i = 0; i < vocab; i++) heti_f_gguf_number(g, heti_f_gguf_token_type(g, HETI_T_CAST(int32_t, i)), 4);
    heti_f_gguf_array(g, "tokenizer.ggml.merges", HETI_F_GGUF_STRING, info->merges);
    for (int64_t i = 0; i < info->merges && g->result == HET_OK; i++)
        if (het_tokenizer_get_merge(g->desc.tokenizer, i, &merge[0], &merge[1])) heti_f_gguf_spelled(g, merge, 2);
    if (info->prefixes > 0) heti_f_gguf_u32(g, "tokenizer.ggml.bos_token_id", info->prefix[0]);
    if (info->suffixes > 0 || ends > 0) heti_f_gguf_u32(g, "tokenizer.ggml.eos_token_id", eos[0]);
    while (other < ends && end[other] == eos[0]) other++;
    if (other < ends) heti_f_gguf_u32(g, "tokenizer.ggml.eot_token_id", end[other]);
    heti_f_gguf_value(g, "tokenizer.ggml.add_bos_token", HETI_F_GGUF_BOOL, info->prefixes > 0);
    heti_f_gguf_value(g, "tokenizer.ggml.add_eos_token", HETI_F_GGUF_BOOL, info->suffixes > 0);
}

/* ---- tensors ---- */

/* Their name for a parameter, 0: none. */
static int heti_f_gguf_name(const char *own, char *to, size_t capacity) {
    heti_t_text t = heti_t_text_in(to, capacity);
    int64_t layer = 0;
    const heti_f_named *row = heti_f_row_of(HETI_F_IN_ALL, 0, own, strlen(own), &layer);
    if (row == NULL || row->gguf == NULL) return 0;
    for (const char *from = row->gguf; *from != 0; from++)
        if (*from == '#') heti_t_integer(&t, layer);
        else heti_t_char(&t, *from);
    heti_t_put(&t, strrchr(own, '.'));
    return 1;
}

static void heti_f_gguf_tensor_add(heti_f_gguf *g, const heti_f_gguf_tensor *t) {
    if (g->result == HET_OK)
        g->result = heti_t_list_add(&g->tensors, t, sizeof *t, heti_f_own(g->ctx), g->error);
}

/* The tensor that starts at parameter p. */
static void heti_f_gguf_tensor_of(heti_f_gguf *g, int64_t p) {
    heti_f_gguf_tensor t = HETI_T_ZEROS;
    const char *own = t.stored.name;
    if (g->result != HET_OK || !heti_f_stored_at(g->ctx, p, 0, &t.stored)) return;
    if (!heti_f_gguf_name(own, t.name, sizeof t.name)) {
        g->result = HETI_F_UNKNOWN(g->error, "het_save_gguf: llama.cpp's %s has no tensor for %s", g->architecture,
                                   own);
        return;
    }
    t.element = t.stored.rank == 2 && strcmp(t.name, "position_embd.weight") != 0 ? g->desc.element : HET_ELEMENT_F32;
    t.paired = g->model->family == HET_LLAMA &&
               (strstr(own, ".self_attn.q_proj.") != NULL || strstr(own, ".self_attn.k_proj.") != NULL);
    heti_f_gguf_tensor_add(g, &t);
    /* gptneox asks for a head */
    if (g->model->family == HET_NEOX && g->model->tied == HET_YES && strcmp(t.name, "token_embd.weight") == 0) {
        heti_f_copy(t.name, sizeof t.name, "output.weight", 13);
        heti_f_gguf_tensor_add(g, &t);
    }
}

static void heti_f_gguf_tensors(heti_f_gguf *g) {
    heti_f_gguf_tensor t = HETI_T_ZEROS;
    for (int64_t p = 0; p < het_parameter_count(g->ctx); p++) heti_f_gguf_tensor_of(g, p);
    if (g->model->rotary_factor <= 0.0f) return;
    heti_f_copy(t.name, sizeof t.name, "rope_freqs.weight", 17);
    t.stored.rank = 1;
    t.stored.count = g->model->head_size / 2;
    t.stored.columns = 1;
    t.element = HET_ELEMENT_F32;
    heti_f_gguf_tensor_add(g, &t);
}

static uint64_t heti_f_gguf_rest(uint64_t size) {
    return (HETI_F_GGUF_ALIGN - size % HETI_F_GGUF_ALIGN) % HETI_F_GGUF_ALIGN;
}

static void heti_f_gguf_descriptions(heti_f_gguf *g) {
    const heti_f_gguf_tensor *tensor = HETI_T_ITEMS(g->tensors, const heti_f_gguf_tensor);
    const size_t count = HETI_T_COUNT(g->tensors, heti_f_gguf_tensor);
    uint64_t offset = 0;
    for (size_t i = 0; i < count; i++) {
        const heti_f_gguf_tensor *t = &tensor[i];
        heti_f_gguf_string(g, t->name, strlen(t->name));
        heti_f_gguf_number(g, HETI_T_CAST(uint64_t, t->stored.rank), 4);
        if (t->stored.rank == 2) heti_f_gguf_number(g, HETI_T_CAST(uint64_t, t->stored.columns), 8);
        heti_f_gguf_number(g, HETI_T_CAST(uint64_t, t->stored.count / t->stored.columns), 8);
        heti_f_gguf_number(g, t->element == HET_ELEMENT_F16 ? 1 : t->element == HET_ELEMENT_BF16 ? 30 : 0, 4);
        heti_f_gguf_number(g, offset, 8);
        offset += heti_f_stored_bytes(&t->stored, t->element);
        offset += heti_f_gguf_rest(offset);
    }
    for (size_t i = HETI_T_CAST(size_t, heti_f_gguf_rest(g->head.used)); i > 0; i--) heti_f_gguf_number(g, 0, 1);
    if (g->result != HET_OK) return;
    heti_f_store(HETI_T_CAST(unsigned char *, HETI_T_CAST(void *, g->head.data)) + 8, count, 8);
    heti_f_store(HETI_T_CAST(unsigned char *, HETI_T_CAST(void *, g->head.data)) + 16, g->pairs, 8);
}

/* ---- data ---- */

/* x with x^n = 1 / theta, theta >= 1, by halving [0, 1] until nothing lies between its ends. */
static double heti_f_gguf_root(double theta, int64_t n) {
    double low = 0.0, high = 1.0;
    for (;;) {
        const double middle = 0.5 * (low + high);
        double power = 1.0, square = middle;
        if (middle <= low || middle >= high) return high;
        for (int64_t k = n; k > 0; k >>= 1, square *= square) power *= (k & 1) != 0 ? square : 1.0;
        if (power * theta < 1.0) low = middle;
        else high = middle;
    }
}

/* What llama.cpp divides the frequency theta^(-2i/E) by, for Llama 3.1's scaling: 1 for wavelengths
   below original / high, factor above original / low, between them 1 / ((1 - s) / factor + s) with
   s = (original / wavelength - low) / (high - low). */
static void heti_f_gguf_divisors(const het_model_desc *m, float *to) {
    const double pi2 = 6.283185307179586, factor = HETI_T_CAST(double, m->rotary_factor),
                 original = HETI_T_CAST(double, m->rotary_original);
    const double low = HETI_T_CAST(double, m->rotary_low), high = HETI_T_CAST(double, m->rotary_high);
    const double root = heti_f_gguf_root(HETI_T_CAST(double, m->rotary_theta), m->head_size / 2);
    double frequency = 1.0;
    for (int64_t i = 0; i < m->head_size / 2; i++, frequency *= root) {
        const double turns = original * frequency / pi2; /* original / wavelength */
        const double s = (turns - low) / (high - low);
        to[i] = HETI_T_CAST(float, turns > high ? 1.0 : turns < low ? factor : 1.0 / ((1.0 - s) / factor + s));
    }
}

/* Row `row` of the file in the parameter, of heads with E rows: pair i is rows 2i and 2i + 1 there,
   i and i + E/2 here. */
static int64_t heti_f_gguf_row(const het_model_desc *m, int64_t row) {
    const int64_t size = m->head_size, inside = row % size;
    return row - inside + inside % 2 * (size / 2) + inside / 2;
}

static het_result heti_f_gguf_part(const heti_f_gguf *g, const heti_f_gguf_tensor *t, const float *values,
                                   int64_t count, const het_writer *to) {
    const int64_t columns = t->stored.columns;
    HETI_T_TRY(heti_f_holds(t->element, values, count, t->name, g->error));
    if (to == NULL) return HET_OK;
    if (!t->paired) return het_safetensors_put(to, t->element, values, count, g->error);
    for (int64_t i = 0; i < count / columns; i++)
        HETI_T_TRY(het_safetensors_put(to, t->element, values + heti_f_gguf_row(g->model, i) * columns, columns,
                                       g->error));
    return HET_OK;
}

static het_result heti_f_gguf_tensor_data(const heti_f_gguf *g, const heti_f_gguf_tensor *t, float *values,
                                          const het_writer *to) {
    static const unsigned char heti_f_zeros[HETI_F_GGUF_ALIGN] = { 0 };
    for (int i = 0; i < t->stored.parts; i++) {
        HETI_T_TRY(het_parameter_read(g->ctx, t->stored.part[i], HET_WEIGHT, values));
        HETI_T_TRY(heti_f_gguf_part(g, t, values, t->stored.rows[i] * t->stored.columns, to));
    }
    if (t->stored.parts == 0) {
        heti_f_gguf_divisors(g->model, values);
        HETI_T_TRY(heti_f_gguf_part(g, t, values, t->stored.count, to));
    }
    const uint64_t rest = heti_f_gguf_rest(heti_f_stored_bytes(&t->stored, t->element));
    return to == NULL ? HET_OK : heti_f_write(to, heti_f_zeros, HETI_T_CAST(size_t, rest), g->error);
}

static het_result heti_f_gguf_data(const heti_f_gguf *g, const het_writer *to) {
    const heti_f_gguf_tensor *tensor = HETI_T_ITEMS(g->tensors, const heti_f_gguf_tensor);
    const size_t count = HETI_T_COUNT(g->tensors, heti_f_gguf_tensor);
    int64_t largest = 0;
    float *values;
    het_result result = HET_OK;
    for (size_t i = 0; i < count; i++)
        if (tensor[i].stored.count > largest) largest = tensor[i].stored.count;
    HETI_T_TRY(heti_f_floats_of(heti_f_own(g->ctx), largest, &values, g->error));
    if (to != NULL) result = heti_f_write(to, g->head.data, g->head.used, g->error);
    for (size_t i = 0; result == HET_OK && i < count; i++) result = heti_f_gguf_tensor_data(g, &tensor[i], values, to);
    heti_f_floats_free(heti_f_own(g->ctx), values, largest);
    return result;
}

static het_result heti_f_save_gguf(het_ctx *ctx, const het_writer *to, const het_gguf_desc *desc, het_error *error) {
    heti_f_gguf g = HETI_T_ZEROS;
    if (to != NULL && to->write == NULL)
        return HETI_F_BAD(error, "het_save_gguf: the writer's write is NULL");
    HETI_T_TRY(heti_f_context_check(ctx, "het_save_gguf", HETI_F_WEIGHTS, 1, error));
    g.ctx = ctx;
    g.error = error;
    g.model = &het_get_desc(ctx)->model;
    g.architecture = heti_f_family_of(g.model)->gguf;
    if (desc != NULL) g.desc = *desc;
    if (g.desc.start_canary != 0 || g.desc.end_canary != 0 || g.desc.ends < 0)
        return HETI_F_BAD(error, "het_save_gguf: a canary of het_gguf_desc is not 0 or ends is negative: clear the "
                          "struct first");
    HETI_T_TRY(heti_f_element_check(&g.desc.element, "het_save_gguf", error));
    if (g.desc.tokenizer != NULL) het_tokenizer_get_info(g.desc.tokenizer, &g.info);
    HETI_T_TRY(heti_f_gguf_model(&g));
    HETI_T_TRY(heti_f_gguf_tokenizer(&g));
    heti_f_gguf_add(&g, "GGUF\3\0\0\0", 8); /* magic, version */
    heti_f_gguf_number(&g, 0, 8); /* tensors and pairs, when they are counted */
    heti_f_gguf_number(&g, 0, 8);
    heti_f_gguf_settings(&g);
    heti_f_gguf_vocabulary(&g);
    heti_f_gguf_tensors(&g);
    heti_f_gguf_descriptions(&g);
    if (g.result == HET_OK) g.result = heti_f_gguf_data(&g, to);
    heti_t_list_free(&g.head, heti_f_own(ctx));
    heti_t_list_free(&g.tensors, heti_f_own(ctx));
    return g.result;
}

HETRAIN_API het_result het_save_gguf(het_ctx *ctx, const het_writer *to, const het_gguf_desc *desc) {
    HETI_F_REPORTED(ctx, heti_f_save_gguf(ctx, to, desc, &error));
}

#endif /* HETRAIN_TOKENIZER_H */

/* =================================================================================================
   >>adapter  Low-rank adapters in PEFT's layout (github.com/huggingface/peft).

   The context's parameters say what there is: every factor is marked, an A is followed by its B,
   and the name before ".lora_A.weight" is the module's, but for q, k and v of GPT-2 and NeoX, whose
   module is the name without the letter.
   ============================================================================================== */

/* What a matrix is called within its layer, and to PEFT. */
static const char *heti_f_module_name(const heti_f_named *row) { return strchr(row->name, '#') + 2; }

/* ---- adapter_config.json ---- */

/* of q, k and v in one; of all others */
typedef struct heti_f_patterns { int64_t other; double joint, least, most; } heti_f_patterns;
typedef struct heti_f_peft {
    const het_model_desc *model;
    het_json json;
    int64_t rank, targets;
    int64_t named[HETI_F_NAMES];      /* in how many layers they were named one by one */
    double alpha;
    heti_f_patterns ranks, alphas;
    char *base;
    size_t capacity;
    het_error *error;
    het_result result;                /* of HETI_F_STOP */
} heti_f_peft;

#define HETI_F_PEFT_BAD(p, code, ...) HETI_F_STOP((p), (code), "adapter_config.json: " __VA_ARGS__)

/* Whether a module of this name is meant by `target`: the name or its last parts. */
static int heti_f_meant(const char *name, const char *target, size_t length) {
    const size_t whole = strlen(name);
    if (length > whole || memcmp(name + whole - length, target, length) != 0) return 0;
    return length == whole || name[whole - length - 1] == '.';
}

/* The targets meant by one of target_modules or by a key of a pattern, of which there must be one.
   A full name means one layer alone: that is counted, unless named is NULL. */
static int64_t heti_f_peft_module(heti_f_peft *p, const char name[96], size_t length, const char *where,
                                  int64_t *named) {
    int64_t targets = 0, layer;
    for (int i = 0; i < HETI_F_NAMES && strlen(name) == length; i++) {
        const heti_f_named *row = &heti_f_names[i];
        if ((row->families & heti_f_in(p->model)) == 0 || row->targets == 0) continue;
        const int whole = heti_f_is_called(name, length, row->name, &layer);
        if (!whole && !heti_f_meant(heti_f_module_name(row), name, length)) continue;
        targets |= row->targets;
        if (named != NULL) named[i] += whole;
    }
    if (targets == 0)
        HETI_F_PEFT_BAD(p, HET_ERR_UNSUPPORTED, "%s: %q is no matrix of this family's layers", where, name,
                        heti_t_shown(length, 96));
    return targets;
}

/* A list of modules, or "all-linear". */
static void heti_f_peft_modules(heti_f_peft *p) {
    char name[96];
    size_t length = 0;
    if (het_json_peek(&p->json) == HET_JSON_STRING) {
        if (het_json_string(&p->json, name, sizeof name, &length) && heti_t_is(name, length, "all-linear"))
            p->targets = HET_LORA_ALL;
        else HETI_F_PEFT_BAD(p, HET_ERR_UNSUPPORTED, "target_modules is a pattern; a list of names is needed");
        return;
    }
    het_json_enter(&p->json, HET_JSON_ARRAY);
    while (het_json_next(&p->json, NULL, 0, NULL))
        if (het_json_string(&p->json, name, sizeof name, &length))
            p->targets |= heti_f_peft_module(p, name, length, "target_modules", p->named);
}

/* rank_pattern and alpha_pattern: numbers for some of the modules. */
static void heti_f_peft_pattern(heti_f_peft *p, const char *where, heti_f_patterns *found) {
    char name[96];
    size_t length = 0;
    double value = 0;
    if (het_json_peek(&p->json) == HET_JSON_NULL && het_json_null(&p->json)) return;
    het_json_enter(&p->json, HET_JSON_OBJECT);
    while (het_json_next(&p->json, name, sizeof name, &length)) {
        const int64_t targets = heti_f_peft_module(p, name, length, where, NULL);
        if (!het_json_real(&p->json, &value)) break;
        if (targets == HETI_F_QKV) { found->joint = value; continue; }
        if (found->other == 0 || value < found->least) found->least = value;
        if (found->other == 0 || value > found->most) found->most = value;
        found->other = 1;
    }
}

/* A setting that would change what is computed may be there only as null, false, "none", [] or
   {}. */
static void heti_f_peft_unset(heti_f_peft *p, const char *key) {
    const het_json_kind kind = het_json_peek(&p->json);
    char text[8];
    size_t length = 0;
    int set = 0;
    if (kind == HET_JSON_STRING) {
        set = het_json_string(&p->json, text, sizeof text, &length) && !heti_t_is(text, length, "none");
    } else if (kind == HET_JSON_ARRAY || kind == HET_JSON_OBJECT) {
        het_json_enter(&p->json, kind);
        while (het_json_next(&p->json, NULL, 0, NULL)) set |= het_json_skip(&p->json);
    } else if (kind == HET_JSON_BOOL) {
        het_json_boolean(&p->json, &set);
    } else {
        set = het_json_skip(&p->json) && kind != HET_JSON_NULL;
    }
    if (set) HETI_F_PEFT_BAD(p, HET_ERR_UNSUPPORTED, "%s is set; plain low-rank factors are read", key);
}

/* Keys that are read, by these numbers, and behind them those that must be unset. */
enum { HETI_F_PEFT_TYPE, HETI_F_PEFT_RANK, HETI_F_PEFT_ALPHA, HETI_F_PEFT_MODULES, HETI_F_PEFT_RANKS,
      HETI_F_PEFT_ALPHAS, HETI_F_PEFT_BASE, HETI_F_PEFT_START };
static const char *const heti_f_peft_keys[] = {
    "peft_type", "r", "lora_alpha", "target_modules", "rank_pattern", "alpha_pattern", "base_model_name_or_path",
    "init_lora_weights", "bias", "use_rslora", "use_dora", "modules_to_save", "layers_to_transform", "exclude_modules",
    "layer_replication", "lora_bias", "use_qalora", "use_bdlora", "trainable_token_indices", "target_parameters",
    "alora_invocation_tokens", "kasa_config", "arrow_config", NULL
};

/* How the factors began. Words that are not here (pissa, corda, olora, loftq) mean that a part of
   the weights went into them, which PEFT takes off the weights each time it loads the factors. */
static void heti_f_peft_start(heti_f_peft *p) {
    static const char *const heti_f_plain[] = { "gaussian", "eva", "orthogonal", "mica", "lora_ga", NULL };
    const het_json_kind kind = het_json_peek(&p->json);
    char word[24];
    size_t length = 0;
    int i = 0;
    if (kind == HET_JSON_NULL) het_json_null(&p->json);
    else if (kind != HET_JSON_STRING) het_json_boolean(&p->json, &i);
    else if (het_json_string(&p->json, word, sizeof word, &length))
        while (heti_f_plain[i] != NULL && !heti_t_is(word, length, heti_f_plain[i])) i++;
    if (heti_f_plain[i] == NULL)
        HETI_F_PEFT_BAD(p, HET_ERR_UNSUPPORTED, "init_lora_weights is %q: weights change, too", word,
                        heti_t_shown(length, sizeof word));
}

static void heti_f_peft_value(heti_f_peft *p, int key) {
    char text[16];
    size_t size = 0;
    switch (key) {
    case HETI_F_PEFT_TYPE:
        if (het_json_string(&p->json, text, sizeof text, &size) && !heti_t_is(text, size, "LORA"))
            HETI_F_PEFT_BAD(p, HET_ERR_UNSUPPORTED, "peft_type is %q, known is \"LORA\"", text,
                            heti_t_shown(size, sizeof text));
        break;
    case HETI_F_PEFT_RANK: het_json_integer(&p->json, &p->rank); break;
    case HETI_F_PEFT_ALPHA: het_json_real(&p->json, &p->alpha); break;
    case HETI_F_PEFT_MODULES: heti_f_peft_modules(p); break;
    case HETI_F_PEFT_RANKS: heti_f_peft_pattern(p, heti_f_peft_keys[key], &p->ranks); break;
    case HETI_F_PEFT_ALPHAS: heti_f_peft_pattern(p, heti_f_peft_keys[key], &p->alphas); break;
    case HETI_F_PEFT_BASE:
        if (p->base == NULL || het_json_peek(&p->json) != HET_JSON_STRING) het_json_skip(&p->json);
        else het_json_string(&p->json, p->base, p->capacity, &size);
        break;
    case HETI_F_PEFT_START: heti_f_peft_start(p); break;
    default: heti_f_peft_unset(p, heti_f_peft_keys[key]); break;
    }
}

static int heti_f_real_is(double a, double b) { return a >= b && a <= b; }
/* a float's digits */
static int heti_f_real_near(double a, double b) { return a >= b * (1 - 1e-6) && a <= b * (1 + 1e-6); }

/* One rank and one scale for all; q, k and v in one module may have three times the rank, with
   three times alpha. */
static void heti_f_peft_check(heti_f_peft *p) {
    const double rank = HETI_T_CAST(double, p->rank), joint = p->ranks.joint > 0 ? p->ranks.joint : rank;
    const double joint_alpha = p->alphas.joint > 0 ? p->alphas.joint : p->alpha;
    if (p->rank < 1 || !(p->alpha > 0))
        HETI_F_PEFT_BAD(p, HET_ERR_FORMAT, "r is %d; r and lora_alpha must be there and above 0", p->rank);
    if (p->targets == 0) HETI_F_PEFT_BAD(p, HET_ERR_FORMAT, "target_modules is missing or empty");
    for (int i = 0; i < HETI_F_NAMES; i++)
        if (p->named[i] != 0 && p->named[i] != p->model->layers)
            HETI_F_PEFT_BAD(p, HET_ERR_UNSUPPORTED, "target_modules names %s in %d layers of %d",
                            heti_f_module_name(&heti_f_names[i]), p->named[i], p->model->layers);
    if ((p->ranks.other && !(heti_f_real_is(p->ranks.least, rank) && heti_f_real_is(p->ranks.most, rank))) ||
        (!heti_f_real_is(joint, rank) && !heti_f_real_is(joint, 3 * rank)))
        HETI_F_PEFT_BAD(p, HET_ERR_UNSUPPORTED, "rank_pattern: not all modules have rank %d", p->rank);
    if ((p->alphas.other && !(heti_f_real_is(p->alphas.least, p->alpha) && heti_f_real_is(p->alphas.most, p->alpha))) ||
        !heti_f_real_near(joint_alpha * rank, p->alpha * joint))
        HETI_F_PEFT_BAD(p, HET_ERR_UNSUPPORTED, "alpha_pattern: not all modules have the same alpha / r");
}

HETRAIN_API het_result het_adapter_from_json(const char *text, size_t length, het_model_desc *model, char *base,
                                             size_t capacity, het_error *error) {
    heti_f_peft p = HETI_T_ZEROS;
    int key;
    if (text == NULL || model == NULL || (base == NULL && capacity > 0))
        return HETI_F_BAD(error, "het_adapter_from_json: a pointer is NULL");
    het_model_desc changed = *model;
    HETI_T_TRY(het_model_complete(&changed, error));
    p.model = &changed;
    p.base = capacity > 0 ? base : NULL;
    p.capacity = capacity;
    p.error = error;
    if (p.base != NULL) p.base[0] = 0;
    p.json = het_json_start(text, length);
    het_json_enter(&p.json, HET_JSON_OBJECT);
    while ((key = heti_t_key(&p.json, heti_f_peft_keys)) >= 0) heti_f_peft_value(&p, key);
    het_json_end(&p.json);
    heti_f_peft_check(&p);
    if (p.result != HET_OK) return p.result;
    HETI_T_TRY(heti_t_json_result(&p.json, "adapter_config.json", error));
    changed.lora_rank = p.rank;
    changed.lora_alpha = HETI_T_CAST(float, p.alpha);
    changed.lora_targets = p.targets;
    HETI_T_TRY(het_model_complete(&changed, error));
    *model = changed;
    return HET_OK;
}

/* A number from 1e-6 to 1e10 with at most 15 digits behind the point, which is more than a float
   has. */
static void heti_f_text_real(heti_t_text *text, double value) {
    const uint64_t whole = HETI_T_CAST(uint64_t, value);
    uint64_t rest = HETI_T_CAST(uint64_t, (value - HETI_T_CAST(double, whole)) * 1e15 + 0.5);
    int digits = 15;
    heti_t_unsigned(text, whole + rest / UINT64_C(1000000000000000));
    rest %= UINT64_C(1000000000000000);
    if (rest == 0) return;
    for (; rest % 10 == 0; rest /= 10) digits--;
    heti_t_char(text, '.');
    heti_f_text_padded(text, rest, digits);
}

HETRAIN_API het_result het_adapter_to_json(const het_model_desc *model, const char *base, char *text, size_t capacity,
                                           size_t *length) {
    const char *three = NULL, *comma = "";
    if (model == NULL || length == NULL || (text == NULL && capacity > 0) || model->lora_rank < 1)
        return HET_ERR_INVALID;
    het_model_desc m = *model;
    HETI_T_TRY(het_model_complete(&m, NULL));
    model = &m;
    heti_t_text to = heti_t_text_in(text, capacity);
    heti_t_put(&to, "{\n  \"peft_type\": \"LORA\",\n  \"task_type\": \"CAUSAL_LM\",\n");
    heti_t_put(&to, "  \"base_model_name_or_path\": ");
    heti_t_format(&to, base != NULL ? "%j" : "null", base);
    heti_t_format(&to, ",\n  \"r\": %d,\n  \"lora_alpha\": ", model->lora_rank);
    heti_f_text_real(&to, HETI_T_CAST(double, model->lora_alpha));
    heti_t_put(&to, ",\n  \"target_modules\": [");
    for (const heti_f_named *row = heti_f_names; row < heti_f_names + HETI_F_NAMES; row++) {
        if ((row->families & heti_f_in(model)) == 0 || (model->lora_targets & row->targets) == 0) continue;
        heti_t_format(&to, "%s%j", comma, heti_f_module_name(row));
        comma = ", ";
        if (row->targets == HETI_F_QKV) three = heti_f_module_name(row);
    }
    heti_t_put(&to, "],\n  \"rank_pattern\": {");
    if (three != NULL) heti_t_format(&to, "%j: %d", three, 3 * model->lora_rank);
    heti_t_put(&to, "},\n  \"alpha_pattern\": {");
    if (three != NULL) {
        heti_t_format(&to, "%j: ", three);
        heti_f_text_real(&to, 3 * HETI_T_CAST(double, model->lora_alpha));
    }
    heti_t_put(&to, "},\n  \"lora_dropout\": 0.0,\n  \"bias\": \"none\",\n  \"use_rslora\": false,\n"
               "  \"use_dora\": false,\n  \"modules_to_save\": null,\n  \"layers_to_transform\": null,\n"
               "  \"inference_mode\": true,\n");
    heti_t_format(&to, "  \"fan_in_fan_out\": %s\n}\n", model->family == HET_GPT2 ? "true" : "false");
    *length = to.length;
    return to.length < capacity ? HET_OK : HET_ERR_LIMIT;
}

/* ---- adapter_model.safetensors ---- */

/* An error that the context reported itself left no text in *own; others become the context's. */
static het_result heti_f_told(het_ctx *ctx, het_result result, const het_error *own, het_error *error) {
    if (heti_f_report(ctx, result, own) == HET_OK) return HET_OK;
    return heti_t_fail(error, result, "%s", own->text[0] != 0 ? own->text : het_last_error(ctx));
}

/* The file's tensors of a module s, and their rank R: that of the factors, or with three pairs
   three times that. */
static het_result heti_f_module_find(const heti_f_saved *f, const heti_f_stored s[2], heti_f_located at[2],
                                     int64_t *rank) {
    const int64_t own = s[0].rows[0];
    for (int i = 0; i < 2; i++) {
        if (!heti_f_find(f, s[i].name, &at[i]))
            return HETI_F_WRONG(f->error, "adapter: tensor %s is missing", s[i].name);
        if (!heti_f_is_float(at[i].tensor->element))
            return HETI_F_UNKNOWN(f->error, "adapter: byte %u: tensor %s is of type %s; F32, F16 and BF16 are read",
                                  at[i].tensor->at, s[i].name, het_element_name(at[i].tensor->element));
        *heti_f_used(&at[i]) = 1;
    }
    *rank = at[0].tensor->rank == 2 ? at[0].tensor->shape[0] : 0;
    if (*rank != own && *rank != s[0].parts * own)
        return HETI_F_WRONG(f->error, "adapter: byte %u: tensor %s has rank %d; here it is %d", at[0].tensor->at,
                            s[0].name, *rank, own);
    for (int i = 0; i < 2; i++) {
        const int64_t rows = i == 0 ? *rank : s[1].shape[0], columns = i == 0 ? s[0].columns : *rank;
        const het_safetensor *t = at[i].tensor;
        if (t->rank != 2 || t->shape[0] != rows || t->shape[1] != columns)
            return HETI_F_WRONG(f->error, "adapter: byte %u: tensor %s is %d x %d; it must be %d x %d", t->at,
                                s[i].name, t->rank > 0 ? t->shape[0] : 0, t->rank > 1 ? t->shape[1] : 0, rows, columns);
    }
    return HET_OK;
}

/* Off the diagonal the blocks of B must be 0. */
static het_result heti_f_module_apart(const heti_f_saved *f, const heti_f_stored *b, int64_t rank) {
    for (int64_t part = 0; part < b->parts; part++)
        for (int64_t row = 0; row < b->rows[part]; row++)
            for (int64_t k = 0; k < rank; k++) {
                const int64_t there = heti_f_stored_row(b, part, row);
                if (k / b->columns != part && !heti_f_real_is(HETI_T_CAST(double, f->all->values[there * rank + k]), 0))
                    return HETI_F_UNKNOWN(f->error,
                                          "adapter: tensor %s: q, k and v share factors (row %d, column %d is not 0)",
                                          b->name, there, k);
            }
    return HET_OK;
}

/* One module: with `write` 0 only looked at. Where three pairs have one A, each gets it. */
static het_result heti_f_module_load(const heti_f_saved *f, const heti_f_stored s[2], int write) {
    float *values = f->all->values;
    heti_f_located at[2];
    int64_t rank = 0;
    HETI_T_TRY(heti_f_module_find(f, s, at, &rank));
    const int shared = rank != s[0].shape[0];
    for (int i = 0; i < 2; i++) {
        heti_f_stored own = s[i];
        HETI_T_TRY(heti_f_get_all(f, &at[i], at[i].tensor->shape[0] * at[i].tensor->shape[1], values));
        if (i == 1 && !shared) HETI_T_TRY(heti_f_module_apart(f, &own, rank));
        if (shared) own.diagonal = 0;
        for (int k = 0; k < own.parts && write && shared && i == 0; k++)
            HETI_T_TRY(het_parameter_write(f->ctx, own.part[k], HET_WEIGHT, values));
        if (write && (!shared || i == 1))
            HETI_T_TRY(heti_f_stored_pass(f->ctx, &own, 1, HET_WEIGHT, values, values + s[i].count));
    }
    return HET_OK;
}

/* Where both fingerprints are known they must agree. */
static het_result heti_f_factors_known(const heti_f_saved *f) {
    size_t length;
    const char *was = het_safetensors_value(f->part[0].file, heti_f_base_key, &length);
    const heti_f_value now = heti_f_hex_of(het_get_base(f->ctx));
    if (was == NULL || het_get_base(f->ctx) == 0 || (length == 16 && memcmp(was, now.text, 16) == 0)) return HET_OK;
    return heti_t_fail(f->error, HET_ERR_INVALID, "the factors were trained on other base weights: those have "
                                                  "fingerprint %q, the loaded ones %s", was, length, now.text);
}

/* HETI_F_LOAD_ANY: whatever weights the factors were trained on. Every tensor of the file must be
   one of a module. */
static het_result heti_f_load_factors(const heti_f_saved *f) {
    const int passes = (f->how & HETI_F_LOAD_LOOK) == 0 ? 2 : 1;
    heti_f_located at = { NULL, NULL };
    if ((f->how & HETI_F_LOAD_ANY) == 0) HETI_T_TRY(heti_f_factors_known(f));
    for (int write = 0; write < passes; write++) {
        for (size_t i = 0; i < f->all->count; i += 2) {
            const het_result result = heti_f_module_load(f, &f->all->stored[i], write);
            if (result != HET_OK) return write ? heti_f_torn(f, result) : result;
        }
        if (heti_f_unused(f, &at))
            return HETI_F_WRONG(f->error, "adapter: byte %u: tensor %q: the model has no such factor", at.tensor->at,
                                at.tensor->name, at.tensor->name_length);
    }
    return HET_OK;
}

HETRAIN_API het_result het_adapter_load(het_ctx *ctx, const het_reader *from, het_error *error) {
    het_error own = { HET_OK, "" };
    return heti_f_told(ctx, heti_f_load(ctx, "het_adapter_load", HETI_F_FACTORS, from, 0, &own), &own, error);
}

HETRAIN_API het_result het_adapter_save(het_ctx *ctx, const het_writer *to, het_error *error) {
    het_error own = { HET_OK, "" };
    return heti_f_told(ctx, heti_f_save(ctx, "het_adapter_save", HETI_F_FACTORS, NULL, to, NULL, &own), &own, error);
}

/* ---- merging ---- */

/* W += s B A, for the A that is parameter number p; a, b and w: room for the three. */
static het_result heti_f_adapter_add(het_ctx *ctx, int64_t p, int64_t base, float *a, float *b, float *w) {
    const het_model_desc *model = &het_get_desc(ctx)->model;
    const double scale = HETI_T_CAST(double, model->lora_alpha) / HETI_T_CAST(double, model->lora_rank);
    const het_parameter_info first = heti_f_parameter(ctx, p), second = heti_f_parameter(ctx, p + 1);
    const int64_t rank = first.rows, columns = first.columns;
    HETI_T_TRY(het_parameter_read(ctx, p, HET_WEIGHT, a));
    HETI_T_TRY(het_parameter_read(ctx, p + 1, HET_WEIGHT, b));
    HETI_T_TRY(het_parameter_read(ctx, base, HET_WEIGHT, w));
    for (int64_t i = 0; i < second.rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            double sum = 0;
            for (int64_t k = 0; k < rank; k++) /* exact products: whether they are fused with the sum changes nothing */
                sum += HETI_T_CAST(double, b[i * rank + k]) * HETI_T_CAST(double, a[k * columns + j]);
            w[i * columns + j] = HETI_T_CAST(float, fma(scale, sum, HETI_T_CAST(double, w[i * columns + j])));
        }
    HETI_T_TRY(het_parameter_write(ctx, base, HET_WEIGHT, w));
    HETI_T_CLEAR(b, second.count);
    return het_parameter_write(ctx, p + 1, HET_WEIGHT, b);
}

static het_result heti_f_adapter_merge(het_ctx *ctx, float *factors, int64_t largest, het_error *error) {
    for (int64_t p = 0; p < het_parameter_count(ctx); p++) {
        const het_parameter_info info = heti_f_parameter(ctx, p);
        char name[96]; /* of the matrix, which is in the same unit */
        heti_t_text t = heti_t_text_in(name, sizeof name);
        if (!info.adapter || !heti_f_ends_with(info.name, strlen(info.name), ".lora_A.weight")) continue;
        heti_t_format(&t, "%p.weight", info.name, strlen(info.name) - strlen(".lora_A.weight"));
        const int64_t base = heti_f_neighbour(ctx, p, name);
        if (base < 0)
            return heti_t_fail(error, HET_ERR_STATE, "het_adapter_merge: factor %s belongs to no matrix", info.name);
        HETI_T_TRY(heti_f_adapter_add(ctx, p, base, factors, factors + largest, factors + 2 * largest));
    }
    return HET_OK;
}

HETRAIN_API het_result het_adapter_merge(het_ctx *ctx, het_error *error) {
    het_error own = { HET_OK, "" };
    int64_t p, largest[2] = { 0, 0 }; /* of the model's own parameters and of the factors */
    float *room = NULL;
    HETI_T_TRY(heti_f_context_check(ctx, "het_adapter_merge", HETI_F_FACTORS, 1, error));
    for (p = 0; p < het_parameter_count(ctx); p++) {
        const het_parameter_info info = heti_f_parameter(ctx, p);
        if (info.count > largest[info.adapter != 0]) largest[info.adapter != 0] = info.count;
    }
    if (heti_f_floats_of(heti_f_own(ctx), largest[0] + 2 * largest[1], &room, NULL) != HET_OK)
        return heti_t_fail(error, HET_ERR_OOM, "het_adapter_merge: no memory for %d numbers", largest[0]);
    const het_result result = heti_f_adapter_merge(ctx, room, largest[1], &own);
    heti_f_floats_free(heti_f_own(ctx), room, largest[0] + 2 * largest[1]);
    return heti_f_told(ctx, result, &own, error);
}

/* =================================================================================================
   >>checkpoint  Runs that survive: a context as files, written so that no moment of death leaves
                 less than there was, and read with suspicion.

   Order of a write: saving.tmp is filled, each file synced, then the directory; an older directory
   of the same step steps aside as step-N.old; saving.tmp becomes step-N, and the directory above is
   synced; `latest` is replaced in the same manner; only then older ones go, by way of removing.tmp,
   so that a name step-... never stands for a part.
   ============================================================================================== */

#define HETI_F_SAVED_BLOCK (HETI_T_CAST(size_t, 1) << 20)
#define HETI_F_SAVED_DIRECTORY 1000
#define HETI_F_STATE_TAIL 33              /* bytes of: , newline "checksum":"16 digits"} newline */
#define HETI_F_STATE_LIMIT (HETI_T_CAST(size_t, 1) << 28)
#define HETI_F_DISK_TRIES 100

/* The files that every checkpoint has, in the order in which it has them; what is beside them
   follows. */
enum { HETI_F_SAVED_WEIGHTS = 0, HETI_F_SAVED_OPTIMIZER = 1, HETI_F_SAVED_CONFIG = 2, HETI_F_SAVED_OWN = 3 };
/* Behind the files: state.json up to the list of files; room for the whole of it; for the hash of
   each block of each file, in order; for what making the files takes. */
enum { HETI_F_SAVED_HEAD = HETRAIN_CHECKPOINT_FILES, HETI_F_SAVED_TEXT, HETI_F_SAVED_HASH, HETI_F_SAVED_WORK,
      HETI_F_SAVED_BLOBS };
static const char heti_f_saved_adapter[] = "adapter_model.safetensors";
static const char *const heti_f_saved_names[HETI_F_SAVED_OWN] = { heti_f_one_file, "optimizer.safetensors",
                                                                 heti_f_config_file };

/* Memory handed out from one block, of which nothing comes back before the next file: no call of
   the allocator behind it unless more is needed. */
typedef struct heti_f_pool { heti_t_list *block; const het_allocator *beyond; } heti_f_pool;
enum { HETI_F_POOL_HEAD = 64 };           /* bytes in front of each piece: the first is 1 where the
                                             piece is of the block */

static void *heti_f_pool_alloc(void *user, size_t size, size_t align) {
    const heti_f_pool *pool = HETI_T_CAST(heti_f_pool *, user);
    heti_t_list *b = pool->block;
    const size_t at = b->used;
    (void)align; /* at most 64 */
    if (size > SIZE_MAX / 2 - at) return NULL;
    b->used = at + (HETI_F_POOL_HEAD + size + 63) / 64 * 64;
    const int own = b->used <= b->size;
    char *piece = own ? b->data + at :
        HETI_T_CAST(char *, pool->beyond->alloc(pool->beyond->user, HETI_F_POOL_HEAD + size, 64));
    if (piece == NULL) return NULL;
    piece[0] = HETI_T_CAST(char, own);
    return piece + HETI_F_POOL_HEAD;
}

static void heti_f_pool_free(void *user, void *pointer, size_t size) {
    const heti_f_pool *pool = HETI_T_CAST(heti_f_pool *, user);
    char *piece = HETI_T_CAST(char *, pointer) - HETI_F_POOL_HEAD;
    if (piece[0] == 0) pool->beyond->free(pool->beyond->user, piece, HETI_F_POOL_HEAD + size);
}

struct het_checkpoint {
    het_disk disk;
    het_allocator allocator;
    int64_t keep, step;
    const char *base, *call;          /* the call that runs, for error texts */
    size_t base_length;
    int taken, files;
    heti_t_list blob[HETI_F_SAVED_BLOBS];
    char name[HETRAIN_CHECKPOINT_FILES][64];
    int is_state[HETRAIN_CHECKPOINT_FILES];
    char directory[HETI_F_SAVED_DIRECTORY + 1];
};

/* ---- file work ---- */

typedef struct heti_f_path { char text[HETI_F_SAVED_DIRECTORY + 100]; } heti_f_path;

/* directory/name; names are short. "": the directory. */
static heti_f_path heti_f_path_of(const char *directory, const char *name) {
    heti_f_path path;
    heti_t_text t = heti_t_text_in(path.text, sizeof path.text);
    heti_t_format(&t, name[0] != 0 ? "%s/%s" : "%s", directory, name);
    return path;
}

static het_result heti_f_disk_fail(const het_disk *d, const char *what, const char *path, int number,
                                   het_error *error) {
    return heti_t_fail(error, HET_ERR_IO, "cannot %s %s: %s", what, path, d->text != NULL ? d->text(d->user, number) :
                       "error of the disk");
}

/* number = call, repeated while it is interrupted. */
#define HETI_F_DISK(d, number, call)                                                                              \
    do {                                                                                                          \
        int heti_f_tries = 0;                                                                                     \
        do (number) = (call);                                                                                     \
        while ((number) != 0 && (number) == (d)->again && ++heti_f_tries < HETI_F_DISK_TRIES);                    \
    } while (0)

/* The same; any other number is an error: cannot WHAT PATH. */
#define HETI_F_DISK_TRY(d, call, what, path, error)                                                               \
    do {                                                                                                          \
        int heti_f_number;                                                                                        \
        HETI_F_DISK(d, heti_f_number, call);                                                                      \
        if (heti_f_number != 0) return heti_f_disk_fail(d, what, path, heti_f_number, error);                     \
    } while (0)

static het_result heti_f_disk_write(const het_disk *d, void *file, const char *path, const char *from, size_t size,
                                    het_error *error) {
    while (size > 0) {
        size_t done = 0;
        HETI_F_DISK_TRY(d, d->write(d->user, file, from, size, &done), "write", path, error);
        if (done == 0 || done > size)
            return heti_t_fail(error, HET_ERR_IO, "cannot write %s: %z bytes taken of %z", path, done, size);
        from += done;
        size -= done;
    }
    return HET_OK;
}

static het_result heti_f_disk_read(const het_disk *d, void *file, const char *path, uint64_t offset, char *to,
                                   size_t size, het_error *error) {
    while (size > 0) {
        size_t done = 0;
        HETI_F_DISK_TRY(d, d->read(d->user, file, offset, to, size, &done), "read", path, error);
        if (done == 0 || done > size)
            return HETI_F_WRONG(error, "%s: ends at byte %u, %z more are missing", path, offset, size);
        to += done;
        offset += done;
        size -= done;
    }
    return HET_OK;
}

static size_t heti_f_blocks(uint64_t size) {
    return HETI_T_CAST(size_t, (size + HETI_F_SAVED_BLOCK - 1) / HETI_F_SAVED_BLOCK);
}

/* Bytes of the block that begins at byte `at` of a file. */
static size_t heti_f_block_size(uint64_t size, uint64_t at) {
    return size - at < HETI_F_SAVED_BLOCK ? HETI_T_CAST(size_t, size - at) : HETI_F_SAVED_BLOCK;
}

/* A new file with these bytes, synced. hash NULL, or room for one of each block. */
static het_result heti_f_disk_put(const het_disk *d, const char *path, const heti_t_list *from, uint64_t *hash,
                                  het_error *error) {
    void *file = NULL;
    het_result result = HET_OK;
    size_t part;
    int number;
    HETI_F_DISK_TRY(d, d->open(d->user, path, 1, &file), "make", path, error);
    for (size_t at = 0; at < from->used && result == HET_OK; at += part) {
        part = heti_f_block_size(from->used, at);
        if (hash != NULL) hash[at / HETI_F_SAVED_BLOCK] = het_xxh64(from->data + at, part, 0);
        result = heti_f_disk_write(d, file, path, from->data + at, part, error);
    }
    if (result == HET_OK) {
        HETI_F_DISK(d, number, d->sync(d->user, file));
        if (number != 0) result = heti_f_disk_fail(d, "sync", path, number, error);
    }
    number = d->close(d->user, file);
    return result == HET_OK && number != 0 ? heti_f_disk_fail(d, "close", path, number, error) : result;
}

static het_result heti_f_disk_sync(const het_disk *d, const char *path, het_error *error) {
    HETI_F_DISK_TRY(d, d->sync_directory(d->user, path), "sync", path, error);
    return HET_OK;
}

static het_result heti_f_disk_rename(const het_disk *d, const char *from, const char *to, het_error *error) {
    HETI_F_DISK_TRY(d, d->rename(d->user, from, to), "rename", from, error);
    return HET_OK;
}

/* Keeps one name of a list: what is to be removed is asked for one by one. */
typedef struct heti_f_one_name { char name[256]; } heti_f_one_name;
static int heti_f_keep_name(void *list, const char *name) {
    heti_f_one_name *one = HETI_T_CAST(heti_f_one_name *, list);
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strlen(name) >= sizeof one->name) return 0;
    memcpy(one->name, name, strlen(name) + 1);
    return -1;
}

/* Removes a directory of files, if it is there. Of a link to one, as of a file, only that goes. */
static het_result heti_f_disk_clear(const het_disk *d, const char *path, het_error *error) {
    int number, listed;
    for (;;) {
        heti_f_one_name one;
        one.name[0] = 0;
        HETI_F_DISK(d, number, d->remove(d->user, path));
        if (number == 0 || number == d->absent) return HET_OK;
        HETI_F_DISK(d, listed, d->list(d->user, path, heti_f_keep_name, &one));
        if (listed != 0 && listed != -1) return heti_f_disk_fail(d, "list", path, listed, error);
        if (one.name[0] == 0) return heti_f_disk_fail(d, "remove", path, number, error);
        const heti_f_path file = heti_f_path_of(path, one.name);
        HETI_F_DISK_TRY(d, d->remove(d->user, file.text), "remove", file.text, error);
    }
}

/* ---- names ---- */

/* step-00000123 */
static heti_f_value heti_f_step_name(int64_t step, const char *behind) {
    heti_f_value name;
    heti_t_text t = heti_t_text_in(name.text, sizeof name.text);
    heti_t_put(&t, "step-");
    heti_f_text_padded(&t, HETI_T_CAST(uint64_t, step), 8);
    heti_t_put(&t, behind);
    return name;
}

/* The step of such a name, -1: it is another. *old: it has ".old" behind. */
static int64_t heti_f_step_of(const char *name, int *old) {
    int64_t step = 0;
    if (strncmp(name, "step-", 5) != 0) return -1;
    const size_t digits = strspn(name + 5, "0123456789");
    if (digits < 8 || digits > 18 || (digits > 8 && name[5] == '0')) return -1;
    for (size_t i = 0; i < digits; i++) step = 10 * step + (name[5 + i] - '0');
    *old = strcmp(name + 5 + digits, ".old") == 0;
    return name[5 + digits] == 0 || *old ? step : -1;
}

/* ---- taking ---- */

/* Appends what fits and counts the rest. */
static int heti_f_blob_write(void *user, const void *from, size_t size) {
    heti_t_list *blob = HETI_T_CAST(heti_t_list *, user);
    if (blob->used <= blob->size && size <= blob->size - blob->used) memcpy(blob->data + blob->used, from, size);
    blob->used += size;
    return 0;
}

static int64_t heti_f_process(const het_ctx *ctx) {
    const het_transport *t = &het_get_desc(ctx)->layout.transport;
    return t->iface != NULL ? t->iface->process(t->self) : 0;
}

/* What a checkpoint has beside the state. */
static heti_f_contents heti_f_trained(const het_ctx *ctx) {
    return het_get_desc(ctx)->model.lora_rank > 0 ? HETI_F_FACTORS : HETI_F_WEIGHTS;
}

/* A file of the context in its blob, or with `size` how large it is. */
static het_result heti_f_take_file(het_checkpoint *c, het_ctx *ctx, int which, int keeps, uint64_t *size,
                                   het_error *error) {
    const heti_f_contents contents = which == HETI_F_SAVED_OPTIMIZER ? HETI_F_STATE : heti_f_trained(ctx);
    heti_t_list nothing = { NULL, 0, 0 }, *blob = keeps ? &c->blob[which] : &nothing;
    heti_f_pool pool = { &c->blob[HETI_F_SAVED_WORK], &c->allocator };
    const het_allocator own = { heti_f_pool_alloc, heti_f_pool_free, &pool };
    const het_writer to = { heti_f_blob_write, blob, c->name[which] };
    het_result result;
    pool.block->used = blob->used = 0;
    if (which == HETI_F_SAVED_CONFIG) {
        result = heti_f_own_config(ctx, HET_ELEMENT_F32, c->base, c->base_length, blob->data, blob->size, &blob->used);
        if (size != NULL) *size = blob->used;
        if (result == HET_OK || (result == HET_ERR_LIMIT && blob->size == 0)) return HET_OK; /* only its length */
        return heti_t_fail(error, result, "checkpoint: the model has no config.json");
    }
    result = heti_f_save(ctx, c->call, contents, &own, &to, size, error);
    return result == HET_OK || error == NULL || error->text[0] != 0 ? result : heti_t_fail(error, result, "%s",
        het_last_error(ctx));
}

static void heti_f_text_option(heti_t_text *t, const char *value, size_t length) {
    if (heti_f_is_utf8(value, length)) {
        heti_t_json(t, value, length);
        return;
    }
    heti_t_char(t, '"');
    for (size_t i = 0; i < length; i++) {
        const int plain = value[i] >= ' ' && value[i] <= '~' && value[i] != '"' && value[i] != '\\';
        heti_t_char(t, HETI_T_CAST(char, plain ? value[i] : '?'));
    }
    heti_t_char(t, '"');
}

/* state.json up to the list of files. */
static void heti_f_text_head(heti_t_text *t, const het_ctx *ctx, const het_pair *option, int64_t options) {
    const het_desc *d = het_get_desc(ctx);
    heti_t_format(t, "{\"format\":1,\n\"version\":%d,\n\"step\":%d,\n\"seed\":\"%u\",\n\"granule\":%d,\n",
                  HETI_T_CAST(int64_t, HETRAIN_VERSION), het_get_step(ctx), d->seed, d->granule);
    heti_t_put(t, "\"exponents\":{");
    for (int64_t i = 0; i < het_parameter_count(ctx); i++) {
        het_parameter_info info;
        if (het_parameter_get_info(ctx, i, &info) != HET_OK) continue;
        heti_t_format(t, i > 0 ? ",\n%j:" : "\n%j:", info.name);
        if (info.exponent == HETRAIN_NO_EXPONENT) heti_t_put(t, "null");
        else heti_t_integer(t, info.exponent);
    }
    heti_t_put(t, "},\n\"options\":{");
    for (int64_t i = 0; i < options; i++) {
        heti_t_put(t, i > 0 ? ",\n" : "\n");
        heti_f_text_option(t, option[i].key, option[i].key_length);
        heti_t_char(t, ':');
        heti_f_text_option(t, option[i].value, option[i].value_length);
    }
    heti_t_char(t, '}');
}

/* The whole of state.json into its blob; without room only its length. The hashes are those of the
   blocks. */
static size_t heti_f_state_text(const het_checkpoint *c, const uint64_t *hash) {
    heti_t_text t = heti_t_text_in(c->blob[HETI_F_SAVED_TEXT].data, c->blob[HETI_F_SAVED_TEXT].size);
    for (size_t i = 0; i < c->blob[HETI_F_SAVED_HEAD].used; i++) heti_t_char(&t, c->blob[HETI_F_SAVED_HEAD].data[i]);
    heti_t_put(&t, ",\n\"files\":{");
    for (size_t i = 0; i < HETI_T_CAST(size_t, c->files); i++) {
        heti_t_format(&t, "%s\n%j:{\"size\":%z,\"xxh64\":[", i > 0 ? "," : "", c->name[i], c->blob[i].used);
        for (size_t k = 0; k < heti_f_blocks(c->blob[i].used); k++) {
            heti_t_put(&t, k > 0 ? ",\"" : "\"");
            heti_t_hex(&t, hash != NULL ? *hash++ : 0);
            heti_t_char(&t, '"');
        }
        heti_t_put(&t, "]}");
    }
    heti_t_char(&t, '}');
    return t.length;
}

static void heti_f_state_tail(char *to, const void *text, size_t length) {
    heti_t_text t = heti_t_text_in(to, HETI_F_STATE_TAIL + 1);
    heti_t_put(&t, ",\n\"checksum\":\"");
    heti_t_hex(&t, het_xxh64(text, length, 0));
    heti_t_put(&t, "\"}\n");
}

/* Bytes that each blob needs; of files also into `used`. Numbers in headers may have more digits at
   another step: that is the rest. */
static het_result heti_f_room_needs(het_checkpoint *c, het_ctx *ctx, int keeps, const het_pair *option, int64_t options,
                                    const het_beside *beside, size_t need[HETI_F_SAVED_BLOBS], het_error *error) {
    const size_t rest = 4096 + 64 * HETI_T_CAST(size_t, het_parameter_count(ctx));
    heti_t_text head = heti_t_text_in(NULL, 0);
    size_t work = 0, blocks = 0;
    memset(need, 0, HETI_F_SAVED_BLOBS * sizeof *need);
    for (int i = 0; i < c->files; i++) {
        uint64_t size = i >= HETI_F_SAVED_OWN ? beside[i - HETI_F_SAVED_OWN].size : 0;
        const het_result result = i < HETI_F_SAVED_OWN ? heti_f_take_file(c, ctx, i, 0, &size, error) : HET_OK;
        if (result == HET_ERR_OOM)
            return heti_t_fail(error, result, "memory for saving: at least %z bytes are missing, which making %s "
                               "takes: the allocator gave less", c->blob[HETI_F_SAVED_WORK].used, c->name[i]);
        if (result != HET_OK) return result;
        if (size > SIZE_MAX / 4)
            return heti_t_fail(error, HET_ERR_LIMIT, "checkpoint: %s has %u bytes", c->name[i], size);
        if (c->blob[HETI_F_SAVED_WORK].used > work) work = c->blob[HETI_F_SAVED_WORK].used;
        c->blob[i].used = HETI_T_CAST(size_t, size);
        if (keeps) need[i] = c->blob[i].used + 1;
        blocks += heti_f_blocks(size) + 1;
    }
    need[HETI_F_SAVED_WORK] = work;
    if (keeps) {
        heti_f_text_head(&head, ctx, option, options);
        c->blob[HETI_F_SAVED_HEAD].used = 0;
        need[HETI_F_SAVED_HEAD] = head.length + 1;
        need[HETI_F_SAVED_HASH] = blocks * sizeof(uint64_t);
        need[HETI_F_SAVED_TEXT] = head.length + heti_f_state_text(c, NULL) + HETI_F_STATE_TAIL + 1;
    }
    for (int i = 0; i < HETI_F_SAVED_BLOBS; i++)
        if (need[i] <= c->blob[i].size) need[i] = 0; /* it is there */
        else need[i] += i == HETI_F_SAVED_WEIGHTS || (i >= HETI_F_SAVED_CONFIG && i < HETI_F_SAVED_HEAD) ? 0 : rest;
    return HET_OK;
}

/* Room for a whole checkpoint. All of it is written to once, so that a system that promises more
   memory than it has shows that now. */
static het_result heti_f_room(het_checkpoint *c, het_ctx *ctx, int keeps, const het_pair *option, int64_t options,
                              const het_beside *beside, het_error *error) {
    const het_allocator *a = &c->allocator;
    size_t need[HETI_F_SAVED_BLOBS], missing = 0;
    HETI_T_TRY(heti_f_room_needs(c, ctx, keeps, option, options, beside, need, error));
    for (int i = 0; i < HETI_F_SAVED_BLOBS; i++) missing += need[i];
    for (int i = 0; i < HETI_F_SAVED_BLOBS; i++) {
        heti_t_list *blob = &c->blob[i];
        if (need[i] == 0) continue;
        if (blob->data != NULL) a->free(a->user, blob->data, blob->size);
        blob->size = 0;
        blob->data = HETI_T_CAST(char *, a->alloc(a->user, need[i], 64));
        if (blob->data == NULL)
            return heti_t_fail(error, HET_ERR_OOM, "memory for saving: %z bytes are missing, of which the "
                               "allocator gave no %z", missing, need[i]);
        blob->size = need[i];
        memset(blob->data, 0, blob->size);
        missing -= need[i];
    }
    return HET_OK;
}

static het_result heti_f_path_check(const char *directory, const char *function, het_error *error) {
    if (directory[0] != 0 && strlen(directory) <= HETI_F_SAVED_DIRECTORY) return HET_OK;
    return heti_t_fail(error, HET_ERR_LIMIT, "%s: a directory's name of %z bytes, must have 1 to %i", function,
                       strlen(directory), HETI_F_SAVED_DIRECTORY);
}

HETRAIN_API het_result het_checkpoint_create(const het_checkpoint_desc *desc, het_checkpoint **checkpoint,
                                             het_error *error) {
    het_allocator allocator;
    if (checkpoint != NULL) *checkpoint = NULL;
    if (desc == NULL || checkpoint == NULL || desc->start_canary != 0 || desc->end_canary != 0 || desc->disk == NULL ||
        desc->directory == NULL || desc->keep < 0)
        return heti_t_fail(error, HET_ERR_INVALID, "het_checkpoint_create: %s", desc == NULL ||
                           checkpoint == NULL ? "an argument is NULL" :
                           desc->start_canary != 0 || desc->end_canary != 0 ? "the description was not cleared" :
                           desc->keep < 0 ? "keep is below 0" : "disk or directory is NULL");
    HETI_T_TRY(heti_f_path_check(desc->directory, "het_checkpoint_create", error));
    HETI_T_TRY(heti_t_choose(&desc->allocator, &allocator, error, "het_checkpoint_create"));
    het_checkpoint *c = HETI_T_CAST(het_checkpoint *, allocator.alloc(allocator.user, sizeof *c, 64));
    if (c == NULL)
        return heti_t_fail(error, HET_ERR_OOM, "het_checkpoint_create: the allocator gave no %z bytes", sizeof *c);
    memset(c, 0, sizeof *c);
    c->disk = *desc->disk;
    c->allocator = allocator;
    c->keep = desc->keep > 0 ? desc->keep : 2;
    c->base = desc->base;
    c->base_length = desc->base_length;
    memcpy(c->directory, desc->directory, strlen(desc->directory) + 1);
    *checkpoint = c;
    return HET_OK;
}

HETRAIN_API void het_checkpoint_destroy(het_checkpoint *checkpoint) {
    if (checkpoint == NULL) return;
    const het_allocator a = checkpoint->allocator;
    for (int i = 0; i < HETI_F_SAVED_BLOBS; i++) heti_t_list_free(&checkpoint->blob[i], &a);
    a.free(a.user, checkpoint, sizeof *checkpoint);
}

/* Names of files, which must be good and different. */
static het_result heti_f_take_names(het_checkpoint *c, const het_ctx *ctx, const char *function,
                                    const het_beside *beside, int64_t files, het_error *error) {
    for (int64_t i = 0; i < HETI_F_SAVED_OWN + files; i++) {
        const char *name = i >= HETI_F_SAVED_OWN ? beside[i - HETI_F_SAVED_OWN].name : heti_f_saved_names[i];
        if (i == HETI_F_SAVED_WEIGHTS && heti_f_trained(ctx) == HETI_F_FACTORS) name = heti_f_saved_adapter;
        if (name == NULL || !het_folder_is_name(name, strlen(name)) || strlen(name) >= sizeof c->name[0] ||
            strcmp(name, "state.json") == 0)
            return HETI_F_BAD(error, "%s: file %d is called %s, no name for one of at most 63 bytes", function,
                              i - HETI_F_SAVED_OWN, name != NULL ? name : "NULL");
        heti_f_copy(c->name[i], sizeof c->name[0], name, strlen(name));
        c->is_state[i] = i >= HETI_F_SAVED_OWN ? beside[i - HETI_F_SAVED_OWN].is_state : i == HETI_F_SAVED_OPTIMIZER;
        for (int64_t k = 0; k < i; k++)
            if (strcmp(c->name[k], name) == 0)
                return HETI_F_BAD(error, "%s: two files are called %s", function, name);
    }
    c->files = HETI_F_SAVED_OWN + HETI_T_CAST(int, files);
    return HET_OK;
}

/* What taking begins with, and all there is of reserving. One process may have no memory where
   others have: all hear of that of process 0. */
static het_result heti_f_reserve(const char *function, het_checkpoint *c, het_ctx *ctx, const het_pair *option,
                                 int64_t options, const het_beside *beside, int64_t files, het_error *error) {
    if (error != NULL) memset(error, 0, sizeof *error);
    if (c == NULL || ctx == NULL || options < 0 || (option == NULL && options > 0) || (beside == NULL && files > 0))
        return heti_t_fail(error, HET_ERR_INVALID, "%s: %s", function, options < 0 ? "options is below 0" :
                           "an argument is NULL");
    if (files < 0 || files > HETRAIN_CHECKPOINT_FILES - HETI_F_SAVED_OWN)
        return heti_t_fail(error, HET_ERR_LIMIT, "%s: %d files beside, must be 0 to 13", function, files);
    for (int64_t i = 0; i < options; i++) /* what could not be read again */
        if (option[i].key == NULL || option[i].value == NULL || option[i].key_length > 255)
            return HETI_F_BAD(error, "%s: option %d has a key of %z bytes, must be 0 to 255, or key or value is NULL",
                              function, i, option[i].key_length);
    for (int64_t i = 0; i < files; i++)
        if (beside[i].data == NULL && beside[i].size > 0)
            return HETI_F_BAD(error, "%s: data of file %d beside is NULL", function, i);
    if ((het_get_status(ctx) & HET_FAILED) != 0)
        return heti_t_fail(error, HET_ERR_STATE, "%s: the context has failed", function);
    c->taken = 0;
    c->call = function;
    HETI_T_TRY(heti_f_take_names(c, ctx, function, beside, files, error));
    const het_result result = heti_f_room(c, ctx, heti_f_process(ctx) == 0, option, options, beside, error);
    int32_t failed = result != HET_OK;
    if (het_broadcast(ctx, 0, &failed, sizeof failed) != HET_OK && result == HET_OK)
        return heti_t_fail(error, HET_ERR_TRANSPORT, "%s", het_last_error(ctx));
    return failed && result == HET_OK ? heti_t_fail(error, HET_ERR_OOM, "memory for saving: process 0 has too little") :
        result;
}

HETRAIN_API het_result het_checkpoint_reserve(het_checkpoint *checkpoint, het_ctx *ctx, const het_pair *option,
                                              int64_t options, const het_beside *beside, int64_t files,
                                              het_error *error) {
    return heti_f_reserve("het_checkpoint_reserve", checkpoint, ctx, option, options, beside, files, error);
}

HETRAIN_API size_t het_checkpoint_bytes(const het_checkpoint *checkpoint) {
    size_t bytes = 0;
    for (int i = 0; checkpoint != NULL && i < HETI_F_SAVED_BLOBS; i++) bytes += checkpoint->blob[i].size;
    return bytes;
}

HETRAIN_API het_result het_checkpoint_take(het_checkpoint *checkpoint, het_ctx *ctx, const het_pair *option,
                                           int64_t options, const het_beside *beside, int64_t files, het_error *error) {
    het_checkpoint *c = checkpoint;
    het_error own;
    if (error == NULL) error = &own;
    HETI_T_TRY(heti_f_reserve("het_checkpoint_take", c, ctx, option, options, beside, files, error));
    const int keeps = heti_f_process(ctx) == 0;
    for (int i = 0; i < HETI_F_SAVED_OWN; i++) HETI_T_TRY(heti_f_take_file(c, ctx, i, keeps, NULL, error));
    c->step = het_get_step(ctx);
    if (!keeps) return HET_OK;
    for (int i = HETI_F_SAVED_OWN; i < c->files; i++)
        if (c->blob[i].used > 0) memcpy(c->blob[i].data, beside[i - HETI_F_SAVED_OWN].data, c->blob[i].used);
    heti_t_text head = heti_t_text_in(c->blob[HETI_F_SAVED_HEAD].data, c->blob[HETI_F_SAVED_HEAD].size);
    heti_f_text_head(&head, ctx, option, options);
    c->blob[HETI_F_SAVED_HEAD].used = head.length;
    c->taken = 1;
    return HET_OK;
}

/* ---- writing ---- */

static het_result heti_f_write_files(het_checkpoint *c, const char *directory, het_error *error) {
    uint64_t *hash = HETI_T_ITEMS(c->blob[HETI_F_SAVED_HASH], uint64_t), *first = hash;
    heti_t_list *text = &c->blob[HETI_F_SAVED_TEXT];
    heti_f_path path;
    for (int i = 0; i < c->files; i++) {
        path = heti_f_path_of(directory, c->name[i]);
        HETI_T_TRY(heti_f_disk_put(&c->disk, path.text, &c->blob[i], hash, error));
        hash += heti_f_blocks(c->blob[i].used);
    }
    text->used = heti_f_state_text(c, first);
    heti_f_state_tail(text->data + text->used, text->data, text->used);
    text->used += HETI_F_STATE_TAIL;
    path = heti_f_path_of(directory, "state.json");
    HETI_T_TRY(heti_f_disk_put(&c->disk, path.text, text, NULL, error));
    return heti_f_disk_sync(&c->disk, directory, error);
}

/* Behind links: FILE.tmp with these bytes, then renamed to FILE. */
static het_result heti_f_write_beside(const het_checkpoint *c, const char *name, const heti_t_list *from,
                                      het_error *error) {
    const het_disk *d = &c->disk;
    const heti_f_path own = heti_f_path_of(c->directory, name);
    heti_f_path a, b = own;
    if (d->follow != NULL)
        HETI_F_DISK_TRY(d, d->follow(d->user, own.text, b.text, sizeof b.text - sizeof ".tmp"), "follow", own.text,
                        error);
    a = b;
    memcpy(a.text + strlen(a.text), ".tmp", sizeof ".tmp");
    het_result result = heti_f_disk_put(d, a.text, from, NULL, error);
    if (result == HET_OK) result = heti_f_disk_rename(d, a.text, b.text, error);
    if (result != HET_OK) (void)d->remove(d->user, a.text);
    char *slash = strrchr(b.text, '/');
    if (result != HET_OK || slash == NULL || strcmp(own.text, b.text) == 0) return result;
    slash[slash == b.text] = 0;
    return heti_f_disk_sync(d, b.text, error);
}

/* Takes a directory out of the way for good, if it is there. */
static het_result heti_f_discard(const het_checkpoint *c, const char *name, het_error *error) {
    const heti_f_path from = heti_f_path_of(c->directory, name),
                      to = heti_f_path_of(c->directory, "removing.tmp");
    int number;
    HETI_T_TRY(heti_f_disk_clear(&c->disk, to.text, error));
    HETI_F_DISK(&c->disk, number, c->disk.rename(c->disk.user, from.text, to.text));
    if (number == c->disk.absent) return HET_OK;
    if (number != 0) return heti_f_disk_fail(&c->disk, "rename", from.text, number, error);
    HETI_T_TRY(heti_f_disk_sync(&c->disk, c->directory, error));
    return heti_f_disk_clear(&c->disk, to.text, error);
}

/* Of the names of a directory, one that `keep` does not spare: a step aside, a later one, or the
   oldest of too many. */
typedef struct heti_f_prune { int64_t step, oldest, count; heti_f_value found; } heti_f_prune;
static int heti_f_prune_name(void *list, const char *name) {
    heti_f_prune *p = HETI_T_CAST(heti_f_prune *, list);
    int old = 0;
    const int64_t step = heti_f_step_of(name, &old);
    if (step < 0) return 0;
    if (old || step > p->step) {
        p->found = heti_f_step_name(step, old ? ".old" : "");
        return -1;
    }
    p->count++;
    if (p->oldest < 0 || step < p->oldest) p->oldest = step;
    return 0;
}

static het_result heti_f_prune_all(const het_checkpoint *c, het_error *error) {
    for (;;) {
        heti_f_prune p = { c->step, -1, 0, { "" } };
        int number;
        HETI_F_DISK(&c->disk, number, (p.count = 0, p.oldest = -1, c->disk.list(c->disk.user, c->directory,
            heti_f_prune_name, &p)));
        if (number != 0 && number != -1) return heti_f_disk_fail(&c->disk, "list", c->directory, number, error);
        if (number == 0) {
            if (p.count <= c->keep) return HET_OK;
            p.found = heti_f_step_name(p.oldest, "");
        }
        HETI_T_TRY(heti_f_discard(c, p.found.text, error));
    }
}

static het_result heti_f_write_checkpoint(het_checkpoint *c, het_error *error) {
    const het_disk *d = &c->disk;
    heti_f_value name = heti_f_step_name(c->step, ""), aside = heti_f_step_name(c->step, ".old");
    const heti_f_path saving = heti_f_path_of(c->directory, "saving.tmp"),
                      target = heti_f_path_of(c->directory, name.text),
                      old = heti_f_path_of(c->directory, aside.text);
    const heti_t_list marker = { name.text, strlen(name.text), strlen(name.text) };
    int number;
    HETI_T_TRY(heti_f_disk_clear(d, saving.text, error));
    HETI_F_DISK_TRY(d, d->make_directory(d->user, saving.text), "make", saving.text, error);
    HETI_T_TRY(heti_f_write_files(c, saving.text, error));
    HETI_F_DISK(d, number, d->rename(d->user, saving.text, target.text));
    if (number != 0) { /* one of the same step is there; an older one that stepped aside before it may be, too */
        if (number != d->exists) return heti_f_disk_fail(d, "rename", saving.text, number, error);
        HETI_T_TRY(heti_f_discard(c, aside.text, error));
        HETI_T_TRY(heti_f_disk_rename(d, target.text, old.text, error));
        const het_result moved = heti_f_disk_rename(d, saving.text, target.text, error);
        if (moved != HET_OK) {
            (void)heti_f_disk_rename(d, old.text, target.text, NULL); /* as it was */
            return moved;
        }
    }
    HETI_T_TRY(heti_f_disk_sync(d, c->directory, error));
    HETI_T_TRY(heti_f_write_beside(c, "latest", &marker, error));
    HETI_T_TRY(heti_f_disk_sync(d, c->directory, error));
    return heti_f_prune_all(c, error);
}

HETRAIN_API het_result het_checkpoint_write(het_checkpoint *checkpoint, het_error *error) {
    if (checkpoint == NULL) return HETI_F_BAD(error, "het_checkpoint_write: checkpoint is NULL");
    if (!checkpoint->taken) return HET_OK;
    const het_result result = heti_f_write_checkpoint(checkpoint, error);
    if (result == HET_OK) return HET_OK;
    const heti_f_path saving = heti_f_path_of(checkpoint->directory, "saving.tmp"); /* a full disk gets the room back */
    (void)heti_f_disk_clear(&checkpoint->disk, saving.text, NULL);
    return result;
}

HETRAIN_API het_result het_checkpoint_export(het_checkpoint *checkpoint, het_error *error) {
    if (checkpoint == NULL) return HETI_F_BAD(error, "het_checkpoint_export: checkpoint is NULL");
    if (!checkpoint->taken) return HET_OK;
    for (int i = 0; i < checkpoint->files; i++)
        if (!checkpoint->is_state[i])
            HETI_T_TRY(heti_f_write_beside(checkpoint, checkpoint->name[i], &checkpoint->blob[i], error));
    return heti_f_disk_sync(&checkpoint->disk, checkpoint->directory, error);
}

/* ---- finding ---- */

typedef struct heti_f_seeker {
    const het_disk *disk;
    const het_allocator *allocator;
    const char *directory;
    heti_t_list found;                /* heti_f_offer */
    heti_t_list damaged;              /* text */
    char *block;                      /* HETI_F_SAVED_BLOCK bytes */
    int64_t latest;                   /* step in the marker, -1: none */
} heti_f_seeker;

typedef struct heti_f_offer { int64_t step; int old, self; } heti_f_offer;

/* Opens a file for reading. */
static het_result heti_f_disk_open(const het_disk *d, const char *path, void **file, uint64_t *size, het_error *error) {
    int number;
    HETI_F_DISK_TRY(d, d->open(d->user, path, 0, file), "open", path, error);
    HETI_F_DISK(d, number, d->size(d->user, *file, size));
    if (number == 0) return HET_OK;
    (void)d->close(d->user, *file);
    return heti_f_disk_fail(d, "read", path, number, error);
}

/* The whole of a small file, with a 0 behind, in an empty list, which is to be freed whatever is
   returned. */
static het_result heti_f_disk_get(const het_disk *d, const char *path, size_t limit, const het_allocator *a,
                                  heti_t_list *to, het_error *error) {
    void *file = NULL;
    uint64_t bytes = 0;
    het_result result;
    HETI_T_TRY(heti_f_disk_open(d, path, &file, &bytes, error));
    to->used = HETI_T_CAST(size_t, bytes);
    to->size = to->used + 1;
    if (bytes <= limit) to->data = HETI_T_CAST(char *, a->alloc(a->user, to->size, 16));
    if (bytes > limit)
        result = HETI_F_WRONG(error, "%s: has %u bytes, at most %z are expected", path, bytes, limit);
    else if (to->data == NULL)
        result = heti_t_fail(error, HET_ERR_OOM, "%s: the allocator gave no %u bytes", path, bytes + 1);
    else result = heti_f_disk_read(d, file, path, 0, to->data, to->used, error);
    (void)d->close(d->user, file);
    if (to->data != NULL) to->data[to->used] = 0;
    return result;
}

static int heti_f_seek_name(void *list, const char *name) {
    heti_f_seeker *s = HETI_T_CAST(heti_f_seeker *, list);
    heti_f_offer one;
    one.self = 0;
    one.step = heti_f_step_of(name, &one.old);
    if (one.step < 0) return 0;
    return heti_t_list_add(&s->found, &one, sizeof one, s->allocator, NULL) == HET_OK ? 0 : -1;
}

/* The candidates of a directory, and what `latest` says. */
static het_result heti_f_seek(heti_f_seeker *s, het_error *error) {
    const heti_f_path self = heti_f_path_of(s->directory, "state.json"),
                      marker = heti_f_path_of(s->directory, "latest");
    const heti_f_offer one = { 0, 0, 1 };
    heti_t_list text = { NULL, 0, 0 };
    void *file = NULL;
    int number, old = 0;
    HETI_F_DISK(s->disk, number, s->disk->open(s->disk->user, self.text, 0, &file));
    if (number == 0) {
        (void)s->disk->close(s->disk->user, file);
        return heti_t_list_add(&s->found, &one, sizeof one, s->allocator, error);
    }
    HETI_F_DISK(s->disk, number, (s->found.used = 0, s->disk->list(s->disk->user, s->directory, heti_f_seek_name, s)));
    if (number == -1)
        return heti_t_fail(error, HET_ERR_OOM, "%s: the allocator gave no room for its names", s->directory);
    if (number != 0) return heti_f_disk_fail(s->disk, "list", s->directory, number, error);
    if (heti_f_disk_get(s->disk, marker.text, 64, s->allocator, &text, error) == HET_OK)
        s->latest = heti_f_step_of(text.data, &old);
    heti_t_list_free(&text, s->allocator);
    return HET_OK;
}

/* A rank: smaller comes first. */
static int heti_f_offer_before(const heti_f_seeker *s, const heti_f_offer *a, const heti_f_offer *b) {
    const int a_later = s->latest >= 0 && a->step > s->latest, b_later = s->latest >= 0 && b->step > s->latest;
    if (a_later != b_later) return b_later;
    return a->step != b->step ? a->step > b->step : a->old < b->old;
}

/* ---- proving ---- */

/* A file of a checkpoint while it is read, block by block. */
typedef struct heti_f_proven {
    const het_saved *saved;
    const het_saved_file *file;
    void *handle;
    char *block;                      /* [HETI_F_SAVED_BLOCK] */
    uint64_t number;                  /* of the block in memory; UINT64_MAX: none */
    heti_f_path path;
    het_error error;                  /* of the reader */
} heti_f_proven;

/* Opens a file, which must have its size. */
static het_result heti_f_proven_open(heti_f_proven *p, const het_saved *saved, int64_t file, char *block,
                                     het_error *error) {
    uint64_t size = 0;
    memset(p, 0, sizeof *p);
    p->saved = saved;
    p->file = &saved->file[file];
    p->block = block;
    p->number = UINT64_MAX;
    p->path = heti_f_path_of(saved->path, p->file->name);
    HETI_T_TRY(heti_f_disk_open(&saved->disk, p->path.text, &p->handle, &size, error));
    if (size == p->file->size) return HET_OK;
    (void)saved->disk.close(saved->disk.user, p->handle);
    return HETI_F_WRONG(error, "%s: has %u bytes, state.json says %u", p->path.text, size, p->file->size);
}

/* Reads a block and proves it. */
static het_result heti_f_proven_block(heti_f_proven *p, uint64_t number, het_error *error) {
    const uint64_t at = number * HETI_F_SAVED_BLOCK, said = p->file->hash[number];
    const size_t size = heti_f_block_size(p->file->size, at);
    HETI_T_TRY(heti_f_disk_read(&p->saved->disk, p->handle, p->path.text, at, p->block, size, error));
    const uint64_t hash = het_xxh64(p->block, size, 0);
    if (hash == said) return HET_OK;
    return HETI_F_WRONG(error, "%s: bytes %u to %u: XXH64 is %s, state.json says %s", p->path.text, at, at + size - 1,
                        heti_f_hex_of(hash).text, heti_f_hex_of(said).text);
}

static het_result heti_f_prove(const het_saved *saved, char *block, het_error *error) {
    heti_f_proven p;
    het_result result = HET_OK;
    for (int64_t i = 0; i < saved->files && result == HET_OK; i++) {
        HETI_T_TRY(heti_f_proven_open(&p, saved, i, block, error));
        for (uint64_t k = 0; k < heti_f_blocks(p.file->size) && result == HET_OK; k++)
            result = heti_f_proven_block(&p, k, error);
        (void)saved->disk.close(saved->disk.user, p.handle);
    }
    return result;
}

/* ---- state.json ---- */

/* What is read from it, first to count, then into the block. */
typedef struct heti_f_state {
    het_saved saved, *block;
    het_pair *pair;
    uint64_t *hash;
    heti_f_texts texts;
    size_t hashes;
    int64_t format;
} heti_f_state;

static void heti_f_state_cut(void *self, heti_t_arena *arena) {
    heti_f_state *s = HETI_T_CAST(heti_f_state *, self);
    s->block = HETI_T_TAKE(arena, het_saved, 1);
    s->saved.option = s->pair = HETI_T_TAKE(arena, het_pair, s->saved.options);
    s->hash = HETI_T_TAKE(arena, uint64_t, s->hashes);
    s->texts.at = HETI_T_TAKE(arena, char, s->texts.bytes);
    s->texts.left = s->texts.bytes;
}

static void heti_f_state_hash(heti_f_state *s, het_json *j) {
    char text[20];
    size_t length = 0;
    uint64_t hash = 0;
    if (!het_json_string(j, text, sizeof text, &length)) return;
    if (length != 16 || !heti_f_bits_of(text, &hash))
        het_json_fail(j, "a checksum is not 16 lower-case hexadecimal digits");
    else if (s->texts.kept) s->hash[s->hashes] = hash;
    s->hashes++;
}

static void heti_f_state_file(heti_f_state *s, het_json *j, const char *name) {
    static const char *const heti_f_keys[] = { "size", "xxh64", NULL };
    const size_t first = s->hashes;
    het_saved_file *file = &s->saved.file[s->saved.files];
    int64_t size = -1;
    int i;
    het_json_enter(j, HET_JSON_OBJECT);
    while ((i = heti_t_key(j, heti_f_keys)) >= 0)
        if (i == 0) het_json_integer(j, &size);
        else if (het_json_enter(j, HET_JSON_ARRAY))
            while (het_json_next(j, NULL, 0, NULL)) heti_f_state_hash(s, j);
    if (j->rule == NULL && (size < 0 || s->hashes - first != heti_f_blocks(HETI_T_CAST(uint64_t, size))))
        het_json_fail(j, "a file needs its size and the checksum of every MiB");
    file->name = name;
    file->size = HETI_T_CAST(uint64_t, size);
    file->hash = s->texts.kept ? s->hash + first : NULL;
}

/* Every checkpoint has weights of one kind, the optimizer's state and config.json. No name comes
   twice. */
static void heti_f_state_files(heti_f_state *s, het_json *j) {
    char key[64], seen[HETRAIN_CHECKPOINT_FILES][64];
    int64_t *files = &s->saved.files;
    size_t length = 0;
    int needed = 0;
    het_json_enter(j, HET_JSON_OBJECT);
    for (*files = 0; het_json_next(j, key, sizeof key, &length); ++*files) {
        if (*files == HETRAIN_CHECKPOINT_FILES) het_json_fail(j, "more than 16 files");
        else if (length >= sizeof key || !het_folder_is_name(key, length))
            het_json_fail(j, "not a name for a file of a checkpoint");
        for (int64_t i = 0; i < *files && j->rule == NULL; i++)
            if (strcmp(seen[i], key) == 0) het_json_fail(j, "a file comes twice");
        if (j->rule != NULL) return;
        memcpy(seen[*files], key, length + 1);
        for (int i = 0; i < HETI_F_SAVED_OWN; i++)
            if (strcmp(key, heti_f_saved_names[i]) == 0 || (i == 0 && strcmp(key, heti_f_saved_adapter) == 0))
                needed += 1 << 4 * i;
        heti_f_state_file(s, j, heti_f_texts_add(&s->texts, key, length));
    }
    if (needed != 0x111) het_json_fail(j, "lacks config.json, optimizer.safetensors or weights");
}

static void heti_f_state_walk(heti_f_state *s, het_json *j) {
    static const char *const heti_f_keys[] = { "format", "step", "options", "files", NULL };
    int i, seen = 0;
    s->saved.options = 0;
    s->hashes = 0;
    het_json_enter(j, HET_JSON_OBJECT);
    while ((i = heti_t_key(j, heti_f_keys)) >= 0) {
        if (((seen >> i) & 1) != 0) het_json_fail(j, "a key comes twice");
        seen |= 1 << i;
        if (i == 0) het_json_integer(j, &s->format);
        else if (i == 1) het_json_integer(j, &s->saved.step);
        else if (i == 2) heti_f_texts_pairs(&s->texts, j, 255, s->pair, &s->saved.options);
        else heti_f_state_files(s, j);
        if (i == 0 && j->rule == NULL && s->format != 1)
            het_json_fail(j, "the format of the checkpoint is not 1, which this version reads");
    }
    het_json_end(j);
    if (j->rule == NULL && seen != 15) het_json_fail(j, "lacks format, step, options or files");
    if (j->rule == NULL && s->saved.step < 0) het_json_fail(j, "step is negative");
}

/* state.json as a het_saved, for the checkpoint `path`. */
static het_result heti_f_state_read(const heti_f_seeker *s, const char *path, const char *text, size_t size,
                                    het_saved **saved, het_error *error) {
    heti_f_state state = HETI_T_ZEROS;
    heti_t_arena arena;
    het_json j = het_json_start(text, size), again = j;
    char tail[HETI_F_STATE_TAIL + 1];
    const size_t length = size - HETI_F_STATE_TAIL;
    if (size < HETI_F_STATE_TAIL)
        return HETI_F_WRONG(error, "%s/state.json: %z bytes are too few", path, size);
    heti_f_state_tail(tail, text, length);
    if (memcmp(tail, text + length, HETI_F_STATE_TAIL) != 0)
        return HETI_F_WRONG(error, "%s/state.json: its last line is not the checksum of what stands before", path);
    heti_f_state_walk(&state, &j);
    if (j.rule != NULL)
        return HETI_F_WRONG(error, "%s/state.json: byte %z: %s", path, j.rule_at, j.rule);
    state.texts.bytes += strlen(path) + s->damaged.used + 2;
    if (heti_t_arrays(&arena, 0, heti_f_state_cut, &state, s->allocator, "", NULL) != HET_OK)
        return heti_t_fail(error, HET_ERR_OOM, "%s: the allocator gave no %z bytes", path, arena.used);
    state.texts.kept = 1;
    heti_f_state_walk(&state, &again);
    state.saved.path = heti_f_texts_add(&state.texts, path, strlen(path));
    state.saved.damaged = heti_f_texts_add(&state.texts, s->damaged.data, s->damaged.used);
    state.saved.disk = *s->disk;
    state.saved.allocator = *s->allocator;
    state.saved.block = arena.size;
    *state.block = state.saved;
    *saved = state.block;
    return HET_OK;
}

static het_result heti_f_try_candidate(const heti_f_seeker *s, const heti_f_offer *one, het_saved **saved,
                                       het_error *error) {
    const heti_f_value name = heti_f_step_name(one->step, one->old ? ".old" : "");
    const heti_f_path path = heti_f_path_of(s->directory, one->self ? "" : name.text),
                      state = heti_f_path_of(path.text, "state.json");
    heti_t_list text = { NULL, 0, 0 };
    het_result result = heti_f_disk_get(s->disk, state.text, HETI_F_STATE_LIMIT, s->allocator, &text, error);
    if (result == HET_OK) result = heti_f_state_read(s, path.text, text.data, text.used, saved, error);
    heti_t_list_free(&text, s->allocator);
    if (result == HET_OK && !one->self && (*saved)->step != one->step)
        result = HETI_F_WRONG(error, "%s: state.json is of step %d", path.text, (*saved)->step);
    if (result == HET_OK) result = heti_f_prove(*saved, s->block, error);
    if (result != HET_OK) {
        het_checkpoint_free(*saved);
        *saved = NULL;
    }
    return result;
}

static het_result heti_f_find_checkpoint(heti_f_seeker *s, het_saved **saved, het_error *error) {
    size_t i, best;
    het_error first = { HET_OK, "" }, own = { HET_OK, "" };
    HETI_T_TRY(heti_f_seek(s, error));
    heti_f_offer *c = HETI_T_ITEMS(s->found, heti_f_offer);
    for (size_t left = HETI_T_COUNT(s->found, heti_f_offer); left > 0; left--) {
        for (best = 0, i = 1; i < left; i++)
            if (heti_f_offer_before(s, &c[i], &c[best])) best = i;
        const het_result result = heti_f_try_candidate(s, &c[best], saved, &own);
        if (result == HET_OK) return HET_OK;
        if (result == HET_ERR_OOM) return heti_t_fail(error, result, "%s", own.text);
        if (first.text[0] == 0) first = own;
        HETI_T_TRY(heti_t_list_add(&s->damaged, own.text, strlen(own.text), s->allocator, error));
        HETI_T_TRY(heti_t_list_add(&s->damaged, "\n", 1, s->allocator, error));
        c[best] = c[left - 1];
    }
    if (first.text[0] == 0)
        return heti_t_fail(error, HET_ERR_IO, "%s: holds no checkpoint: no state.json, no step-...", s->directory);
    return HETI_F_WRONG(error, "%s", first.text);
}

HETRAIN_API het_result het_checkpoint_find(const het_disk *disk, const char *directory, const het_allocator *allocator,
                                           het_saved **saved, het_error *error) {
    het_allocator own;
    heti_f_seeker s = { disk, &own, directory, { NULL, 0, 0 }, { NULL, 0, 0 }, NULL, -1 };
    if (saved != NULL) *saved = NULL;
    if (disk == NULL || directory == NULL || saved == NULL)
        return HETI_F_BAD(error, "het_checkpoint_find: an argument is NULL");
    HETI_T_TRY(heti_f_path_check(directory, "het_checkpoint_find", error));
    HETI_T_TRY(heti_t_choose(allocator, &own, error, "het_checkpoint_find"));
    s.block = HETI_T_CAST(char *, own.alloc(own.user, HETI_F_SAVED_BLOCK, 64));
    if (s.block == NULL)
        return heti_t_fail(error, HET_ERR_OOM, "het_checkpoint_find: the allocator gave no 1048576 bytes");
    const het_result result = heti_f_find_checkpoint(&s, saved, error);
    own.free(own.user, s.block, HETI_F_SAVED_BLOCK);
    heti_t_list_free(&s.found, &own);
    heti_t_list_free(&s.damaged, &own);
    return result;
}

HETRAIN_API void het_checkpoint_free(het_saved *saved) {
    if (saved != NULL) saved->allocator.free(saved->allocator.user, saved, saved->block);
}

HETRAIN_API const char *het_checkpoint_option(const het_saved *saved, const char *key) {
    for (int64_t i = 0; saved != NULL && key != NULL && i < saved->options; i++)
        if (strcmp(saved->option[i].key, key) == 0) return saved->option[i].value;
    return NULL;
}

/* ---- loading ---- */

/* Gives out only blocks that are proven. */
static int64_t heti_f_proven_read(void *user, uint64_t offset, void *to, size_t size) {
    heti_f_proven *p = HETI_T_CAST(heti_f_proven *, user);
    const uint64_t number = offset / HETI_F_SAVED_BLOCK, begin = number * HETI_F_SAVED_BLOCK;
    const size_t there = heti_f_block_size(p->file->size, begin);
    if (offset >= p->file->size) return 0;
    if (p->number != number) {
        p->number = UINT64_MAX;
        if (heti_f_proven_block(p, number, &p->error) != HET_OK) return -1;
        p->number = number;
    }
    const size_t at = HETI_T_CAST(size_t, offset - begin);
    if (size > there - at) size = there - at;
    memcpy(to, p->block + at, size);
    return HETI_T_CAST(int64_t, size);
}

static het_result heti_f_proven_named(const het_saved *saved, const char *name, heti_f_proven *p, het_reader *reader,
                                      het_error *error) {
    const het_allocator *a = &saved->allocator;
    int64_t i;
    for (i = 0; i < saved->files && strcmp(saved->file[i].name, name) != 0; i++) {}
    if (i == saved->files) return HETI_F_BAD(error, "%s: has no %s", saved->path, name);
    char *block = HETI_T_CAST(char *, a->alloc(a->user, HETI_F_SAVED_BLOCK, 64));
    if (block == NULL)
        return heti_t_fail(error, HET_ERR_OOM, "%s/%s: the allocator gave no 1048576 bytes", saved->path, name);
    const het_result result = heti_f_proven_open(p, saved, i, block, error);
    const het_reader from = { heti_f_proven_read, p, p->file->size, p->path.text };
    *reader = from;
    if (result != HET_OK) a->free(a->user, block, HETI_F_SAVED_BLOCK);
    return result;
}

static void heti_f_proven_close(heti_f_proven *p) {
    (void)p->saved->disk.close(p->saved->disk.user, p->handle);
    p->saved->allocator.free(p->saved->allocator.user, p->block, HETI_F_SAVED_BLOCK);
}

HETRAIN_API het_result het_checkpoint_file(const het_saved *saved, const char *name, void *to, size_t capacity,
                                           size_t *length, het_error *error) {
    heti_f_proven p;
    het_reader reader;
    het_result result;
    if (saved == NULL || name == NULL || length == NULL || (to == NULL && capacity > 0))
        return HETI_F_BAD(error, "het_checkpoint_file: an argument is NULL");
    HETI_T_TRY(heti_f_proven_named(saved, name, &p, &reader, error));
    *length = HETI_T_CAST(size_t, reader.size);
    if (capacity < *length)
        result = heti_t_fail(error, HET_ERR_LIMIT, "%s: has %u bytes, there is room for %z", p.path.text, reader.size,
                             capacity);
    else result = heti_f_read(&reader, 0, to, *length, error);
    if (p.error.text[0] != 0) result = heti_t_fail(error, p.error.code, "%s", p.error.text);
    heti_f_proven_close(&p);
    return result;
}

/* One of the two files that make a context. */
static het_result heti_f_load_saved(const het_saved *saved, het_ctx *ctx, heti_f_contents contents, int how,
                                    het_error *error) {
    const char *name = contents == HETI_F_FACTORS ? heti_f_saved_adapter :
        heti_f_saved_names[contents == HETI_F_STATE ? HETI_F_SAVED_OPTIMIZER : HETI_F_SAVED_WEIGHTS];
    heti_f_proven p;
    het_reader reader;
    het_error own = { HET_OK, "" };
    HETI_T_TRY(heti_f_proven_named(saved, name, &p, &reader, error));
    het_result result = heti_f_load(ctx, "het_checkpoint_load", contents, &reader, how, &own);
    if (p.error.text[0] != 0) own = p.error, result = p.error.code;
    heti_f_proven_close(&p);
    return heti_f_told(ctx, result, &own, error);
}

HETRAIN_API het_result het_checkpoint_load(const het_saved *saved, het_ctx *ctx, het_choice other_options,
                                           het_error *error) {
    const int how = other_options == HET_YES ? HETI_F_LOAD_ANY : 0;
    if (saved == NULL || ctx == NULL)
        return HETI_F_BAD(error, "het_checkpoint_load: an argument is NULL");
    if ((het_get_status(ctx) & HET_FAILED) != 0)
        return heti_t_fail(error, HET_ERR_STATE, "het_checkpoint_load: the context has failed");
    for (int look = HETI_F_LOAD_LOOK; look >= 0; look -= HETI_F_LOAD_LOOK) {
        HETI_T_TRY(heti_f_load_saved(saved, ctx, heti_f_trained(ctx), how | look, error));
        HETI_T_TRY(heti_f_load_saved(saved, ctx, HETI_F_STATE, how | look, error));
    }
    if (het_get_step(ctx) == saved->step) return HET_OK;
    return HETI_F_WRONG(error, "%s: state.json is of step %d, optimizer.safetensors of step %d", saved->path,
                        saved->step, het_get_step(ctx));
}

#ifdef __cplusplus
}
#endif
#define HETRAIN_FILES_IMPLEMENTATION_DONE
#endif /* HETRAIN_FILES_IMPLEMENTATION */

/* ---- changes ------------------------------------------------------------------------------------
   0.2.0  Names, files and drawers: CHANGELOG.md.
   0.1.0  The first version: safetensors, tokenizers.

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
