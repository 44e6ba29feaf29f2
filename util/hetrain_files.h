/* hetrain_files.h 0.1.0: files that other programs made or read. A companion of hetrain.h that uses
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
   A tokenizer is Hugging Face's tokenizer.json of the byte-level BPE family: GPT-2, Llama 3, Qwen 2
   to 3, GPT-NeoX and what was made like them. It is read, or trained from text, and gives the ids
   that Hugging Face's `tokenizers` gives.

       het_tokenizer_read(json, size, NULL, &tokenizer, &error)                                       a file's text
       het_tokenizer_encode(tokenizer, NULL, text, length, token, capacity, &count, &error)           text -> ids
       het_tokenizer_decode(tokenizer, token, count, HET_NO, to, size, &length, &error)               ids -> bytes
   programs/tokenize.c is the same as a program.
   An adapter is what het_model_desc.lora_rank adds to a model, in the two files of PEFT. Questions
   are those of llm.c's evaluation files.

       het_adapter_from_json(json, size, &desc.model, base, sizeof base, &error)  then het_create, het_load_weights,
       het_adapter_load(ctx, &reader, &error)                                     factors on top of weights
       het_choices_read(&reader, vocab, NULL, &choices, &error)                   questions and answers
   programs/generate.c, evaluate.c and merge.c use them.

   A checkpoint is a directory that a run can die on: written beside, synced, renamed, checked byte
   by byte before it is loaded.

       het_checkpoint_reserve(checkpoint, ctx, option, options, NULL, 0, &error)  memory, before the first step
       het_checkpoint_take(checkpoint, ctx, option, options, NULL, 0, &error)     a copy, between two steps
       het_checkpoint_write(checkpoint, &error)                                   on any thread
       het_checkpoint_find(&disk, "run", NULL, &saved, &error)                    the newest good one
       het_checkpoint_load(saved, ctx, HET_NO, &error)                            on any plan
   programs/train.c is the same as a program.

   WHAT IT DOES NOT DO
   Of tokenizers: no WordPiece, no Unigram, no BPE over characters (SentencePiece's); of ways to cut
   a text into words those of GPT-2, Llama 3 and Qwen 2 alone, and of normalizers NFC. Anything else
   in a file is an error that names its place: a tokenizer that is nearly the right one would spoil
   a training run without a word.

   OPTIONS   (macros, defined before the include)
       macro                          default                     needed where, effect
       HETRAIN_FILES_IMPLEMENTATION   not defined                 implementation: one file has it
                                                                  and gets the code
       HETRAIN_STATIC                 not defined                 everywhere: all functions static,
                                                                  a private copy (hetrain.h defines
                                                                  what it means)
       HETRAIN_NO_STDIO               not defined                 everywhere: no stdio.h; no
                                                                  het_folder_open
       HETRAIN_NO_DEFAULT_ALLOCATOR   not defined                 implementation: no malloc; calls
                                                                  that allocate must get an
                                                                  allocator
       HETRAIN_ASSERT(condition)      ((void)0)                   implementation: checks of the
                                                                  header's own reasoning, never of
                                                                  arguments

   MEMORY, ERRORS, THREADS
   A tokenizer is one block from the allocator it was given (NULL: malloc). What is needed besides,
   while a call runs, grows with the text and is given back before it returns. Encoding: at most 64
   bytes for each byte of the longest word, 32 for each of the longest run of combining characters,
   9 for each of text to be normalized, 48 for each added token met. Training: in proportion to the
   bytes of the different words. Every call that can fail returns a het_result; *error names the
   byte of the file, the token, the value and the limit. Outputs are written only on success. A
   tokenizer is never changed, so any thread may make any call at any time. Nothing is printed and
   nothing exits.

   DETERMINISM
   A function's output depends on its arguments alone; training's too, ties included.

   FUNCTIONS
       >>safetensors_api het_element_name het_element_bits het_safetensors_read het_safetensors_make
       het_safetensors_write
                         het_safetensors_free het_safetensors_find het_safetensors_value
                         het_safetensors_get het_safetensors_put
       >>folder_api      het_folder_is_name het_folder_open het_folder_close
       >>weights_api     het_tensor_count het_tensor_get_info het_tensor_read het_tensor_write
                         het_save_weights het_save_state het_load_weights het_load_state
                         het_model_from_json het_model_to_json het_model_to_config
                         het_ends_from_json het_save_folder het_load_folder het_model_from_folder
                         het_model_fits het_model_fits_folder het_load_llmc het_model_from_llmc
       >>tokenizer_api   het_tokenizer_read het_tokenizer_write het_tokenizer_free
                         het_tokenizer_get_info het_tokenizer_get_token het_tokenizer_spell
                         het_tokenizer_get_merge het_tokenizer_find het_tokenizer_encode
                         het_tokenizer_decode het_tokenizer_train
       >>adapter_api     het_adapter_from_json het_adapter_to_json het_adapter_load het_adapter_save
                         het_adapter_merge
       >>choices_api     het_choices_read het_choices_free
       >>checkpoint_api  het_checkpoint_create het_checkpoint_destroy het_checkpoint_reserve
                         het_checkpoint_bytes het_checkpoint_take het_checkpoint_write
                         het_checkpoint_export het_checkpoint_find het_checkpoint_free
                         het_checkpoint_option het_checkpoint_file het_checkpoint_load
       >>gguf_api        het_save_gguf

   CONTENTS   (tags to search for)
   public API:
       >>safetensors_api tables of tensors in a file: reading, making, writing
       >>folder_api      files beside each other
       >>weights_api     weights, state, config.json, directories of Hugging Face
       >>tokenizer_api   tokenizer.json: reading, training, encoding, decoding
       >>checkpoint_api  runs that survive: checkpoints on disk
       >>adapter_api     low-rank factors: PEFT's files, merging
       >>choices_api     multiple-choice questions
       >>gguf_api        models for llama.cpp
   implementation:
       >>config          includes and compiler differences
       >>unicode         UTF-8, general categories, canonical composition
       >>split           text into words
       >>match           added tokens in a text
       >>tokenizer       a tokenizer in memory, what stands in tokenizer.json
       >>encode          text to ids
       >>decode          ids to text, questions about tokens
       >>learn           training
       >>safetensors     tables of tensors
       >>config_json     settings of a model in config.json
       >>folder          directories by way of the C library
       >>weights         weights and state of a context
       >>directory       directories of Hugging Face, shards
       >>llmc            GPT-2 weights of llm.c
       >>gguf            models for llama.cpp
       >>choices         multiple-choice questions
       >>adapter         low-rank factors
       >>checkpoint      writing, finding and loading checkpoints
*/

#ifndef HETRAIN_FILES_H
#define HETRAIN_FILES_H

#ifndef HETRAIN_H
#include "hetrain.h"
#endif

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
    X(BOOL, 8) X(F4, 4) X(F6_E2M3, 6) X(F6_E3M2, 6) X(U8, 8) X(I8, 8) X(F8_E5M2, 8) X(F8_E4M3, 8) X(F8_E8M0, \
        8) X(F8_E4M3FNUZ, 8) \
    X(F8_E5M2FNUZ, 8) X(I16, 16) X(U16, 16) X(F16, 16) X(BF16, 16) X(I32, 32) X(U32, 32) X(F32, 32) X(C64, 64) X(F64, \
        64) X(I64, 64) X(U64, 64)
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
                                                                   const het_allocator *allocator,
                                                                       het_safetensors **file, het_error *error);
/* Writes what comes before the data: 8 + N bytes, a multiple of 8, as the reference writes them.
   The data of all tensors, in the order of the table, make the rest of the file. Only for tables
   from het_safetensors_make. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_safetensors_write(const het_safetensors *file, const het_writer *to,
                                                                het_error *error);
HETRAIN_API void het_safetensors_free(het_safetensors *file);         /* NULL is fine. Threads: any. */
/* The tensor of this name, or NULL. log n. Threads: any. */
HETRAIN_API const het_safetensor *het_safetensors_find(const het_safetensors *file, const char *name, size_t length);
/* The value of a key of the metadata and its length (which may be NULL); NULL: there is none.
   Threads: any. */
HETRAIN_API const char *het_safetensors_value(const het_safetensors *file, const char *key, size_t *length);
/* Elements [first, first + count) of a tensor of type F32, F16 or BF16 as floats, which is exact.
   Threads: any. */
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
   optimizer's slots, "<parameter>/<slot>", and in the metadata step, seed, granule, exponents of
   the exact sums, recent steps (het_recent) and options: what decides the bits of the next step.
   Weights and state loaded into a context of the same description continue bit for bit, on any
   plan. Errors are the context's: het_last_error. With several processes all make the same calls; a
   writer that keeps nothing will do on all but one. */

typedef struct het_tensor_info {
    char name[96];
    int32_t rank;
    int64_t shape[4];
    int64_t count;
} het_tensor_info;
/* Threads: owner. */
HETRAIN_API int64_t het_tensor_count(const het_ctx *ctx);
/* Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_tensor_get_info(const het_ctx *ctx, int64_t index, het_tensor_info *info);
/* Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_tensor_read(het_ctx *ctx, int64_t index, het_what what, float *to);
/* Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_tensor_write(het_ctx *ctx, int64_t index, het_what what,
                                                           const float *from);

/* One safetensors file each. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_save_weights(het_ctx *ctx, const het_writer *to); /* f32 */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_save_state(het_ctx *ctx, const het_writer *to);
/* F32, F16 and BF16 tensors are read. Here and in the other calls that load, all values must be
   finite (HET_ERR_DATA names tensor, element and value) unless het_desc.nonfinite says otherwise.
   Buffers that older versions of transformers saved are stepped over. Where a tied model's file
   holds a head as well, it must be the embedding once more. Nothing is changed unless the whole
   file fits the model; if reading then fails midway, the context refuses to compute until a load
   has succeeded. het_load_weights and het_load_folder set the fingerprint (het_set_base): XXH64 of
   each tensor's name and of its values as F32, each the seed of the next, in the model's order;
   types and files that hold the same values give the same. Threads: owner. */
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
   config.json. *count: how many differ and are in [0, vocab), of which the first `capacity` are in
   id; ids beyond the vocabulary are never drawn. HET_ERR_FORMAT: no JSON object, the key twice, or
   what is no id. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_ends_from_json(const char *text, size_t length, int64_t vocab,
                                                             int32_t *id, int64_t capacity, int64_t *count,
                                                                      het_error *error);

typedef struct het_save_desc {
    uint32_t start_canary;
    het_element element;              /* F32 (0), F16 or BF16. A value that F16 cannot hold is an error */
    uint64_t shard_bytes;             /* of tensors in a file at most, if one tensor is not larger; 0: one file */
    const char *base;                 /* [base_length] config.json that the model came from, for
                                         het_model_to_config; NULL: none */
    size_t base_length;
    const het_allocator *allocator;   /* of what is needed while the call runs, all its pieces
                                         together at most 8 bytes for each element of the largest
                                         tensor, 2 KiB for each tensor, base_length and 64 KiB;
                                         NULL: the context's */
    uint32_t end_canary;
} het_save_desc;
/* A directory as transformers has it: config.json and model.safetensors, or shards and
   model.safetensors.index.json. The weights are left in place until the new ones are written.
   folder NULL: this process takes part and writes nothing. desc NULL: defaults. Threads: owner. */
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
/* GPT-2 weights as llm.c has them: number 20240326, version 3 or 5. Nothing is changed unless the
   file fits. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_load_llmc(het_ctx *ctx, const het_reader *from);
/* The settings in its header. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_model_from_llmc(const het_reader *from, het_model_desc *model,
                                                              het_error *error);

/* ---- >>tokenizer_api: tokenizer.json ------------------------------------------------------------
   Text becomes ids in five steps. 1: texts of added tokens are cut out (the leftmost, of those the
   longest). 2: what lies between is normalized, and cut again at added tokens that want to be
   looked for in normalized text. 3: it is cut into words. 4: a word is its bytes; of all pairs of
   neighbours the one that comes first in the list of merges is joined, the leftmost of equals,
   until no pair is in the list. 5: the ids of the post-processor's template come before and behind.
   Steps 1 to 4 take time in proportion to the text but for a logarithm of a word's length. Text is
   any bytes. One that is not part of valid UTF-8 (RFC 3629) is kept as it is and counts as a sign
   that is neither letter, digit nor white space, so that decoding what was encoded gives back every
   byte (but for NFC, and white space that an added token swallows). */

/* How text is cut into words. The published patterns are recognised in a file; any other is
   refused. L letters, N numbers, s white space.
   GPT2    's|'t|'re|'ve|'m|'ll|'d| ?L+| ?N+| ?[not s L N]+|s+ up to the last if more follows
   LLAMA3  contractions in either case|[not CR LF L N]?L+|N{1,3}| ?[not s L N]+[CR LF]*|s*[CR
           LF]+|s+ up to the last if more follows
   QWEN2   the same with N alone
   WHOLE   what lies between two added tokens is one word (ByteLevel with use_regex false) */
typedef enum het_split {
    HET_SPLIT_DEFAULT = 0 /* gpt2 */, HET_SPLIT_GPT2 = 1, HET_SPLIT_LLAMA3 = 2, HET_SPLIT_QWEN2 = 3, HET_SPLIT_WHOLE = 4
} het_split;

typedef struct het_tokenizer het_tokenizer;

typedef struct het_tokenizer_info {
    int64_t vocab;                    /* largest id + 1: the rows of an embedding */
    int64_t tokens;                   /* ids that have a token; fewer than vocab where the file leaves gaps */
    int64_t added, merges;
    het_split split;
    int32_t nfc, prefix_space, ignore_merges; /* ignore_merges: a word that is a token becomes that
                                                 token, whatever the merges say */
    int64_t prefixes, suffixes;
    const int32_t *prefix, *suffix;   /* [prefixes], [suffixes] ids put before and behind a text;
                                         owned by the tokenizer */
} het_tokenizer_info;

typedef struct het_token {
    const char *bytes;                /* what it decodes to, not ended by a 0; owned by the tokenizer */
    size_t length;
    int32_t added, special;
} het_token;

typedef struct het_encode_desc {
    uint32_t start_canary;
    het_choice wrap;                  /* with the ids of the post-processor's template: yes */
    het_choice special;               /* the text of a special token becomes its id: yes. No, for
                                         text from strangers: it is text like any other */
    het_allocator allocator;          /* of what is needed while the call runs */
    uint32_t end_canary;
} het_encode_desc;

typedef struct het_tokenizer_desc {   /* a tokenizer to be trained */
    uint32_t start_canary;
    int64_t vocab;                    /* ids: special ones, 256 bytes, the rest is joined from
                                         pairs. Required, at most 2^24 */
    int64_t min_count;                /* pairs met less often are left alone: 2 */
    het_split split;                  /* gpt2 */
    het_choice nfc;                   /* no */
    const char *const *special;       /* [specials] texts, each of 1 to 255 characters from ! to ~,
                                         all different. They come first: ids 0, 1, ... */
    int64_t specials;                 /* 0: one, "<|endoftext|>"; negative: none */
    het_allocator allocator;
    uint32_t end_canary;
} het_tokenizer_desc;

/* Reads the text of a tokenizer.json of up to 1 GiB. allocator NULL: malloc. HET_ERR_FORMAT: it is
   not one; HET_ERR_UNSUPPORTED: it asks for something that is not done here. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_tokenizer_read(const char *text, size_t length,
                                                             const het_allocator *allocator, het_tokenizer **tokenizer,
                                                                 het_error *error);
/* The text it was read from, byte by byte. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_tokenizer_write(const het_tokenizer *tokenizer, const het_writer *to);
HETRAIN_API void het_tokenizer_free(het_tokenizer *tokenizer);         /* NULL is fine. Threads: any. */
HETRAIN_API void het_tokenizer_get_info(const het_tokenizer *tokenizer, het_tokenizer_info *info); /* Threads: any. */
/* 1: id has a token, which is in *token; 0: it has none. Threads: any. */
HETRAIN_API int het_tokenizer_get_token(const het_tokenizer *tokenizer, int32_t id, het_token *token);
/* The token as the file writes it, with U+0120 for a space and so on, and a 0 behind; its length,
   which may exceed what fits; 0: no token. Threads: any. */
HETRAIN_API size_t het_tokenizer_spell(const het_tokenizer *tokenizer, int32_t id, char *to, size_t capacity);
/* 1: merge number `index` joins *left and *right; 0: there is none. Threads: any. */
HETRAIN_API int het_tokenizer_get_merge(const het_tokenizer *tokenizer, int64_t index, int32_t *left, int32_t *right);
/* The id of an added token with this text, else of the token that decodes to these bytes; -1: there
   is none. Threads: any. */
HETRAIN_API int32_t het_tokenizer_find(const het_tokenizer *tokenizer, const char *bytes, size_t length);
/* desc NULL: all defaults. *count: how many ids the text gives, which may be more than `capacity`:
   the first of them are in `to` then. Without NFC and prefix space a text gives at most one id a
   byte, beside the template's. HET_ERR_DATA: a byte of the text has no token. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_tokenizer_encode(const het_tokenizer *tokenizer,
                                                               const het_encode_desc *desc, const char *text,
                                                                   size_t length, int32_t *to, int64_t capacity,
                                                                       int64_t *count, het_error *error);
/* The bytes of `count` tokens; those that are special left out if skip_special is HET_YES (default:
   no). *length: how many, which may be more than `capacity`. HET_ERR_DATA: an id has no token.
   Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_tokenizer_decode(const het_tokenizer *tokenizer, const int32_t *token,
                                                               int64_t count, het_choice skip_special, char *to,
                                                                       size_t capacity, size_t *length,
                                                                           het_error *error);
/* Learns merges from text, in which special tokens bound words: again and again the commonest pair
   of neighbours, of equals the one with the lower left id, then the lower right. Fewer than
   desc->vocab ids come out where no pair is left that was met min_count times. n log n in the text.
   Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_tokenizer_train(const het_tokenizer_desc *desc, const char *text,
                                                              size_t length, het_tokenizer **tokenizer,
                                                                     het_error *error);

/* ---- >>adapter_api: low-rank adapters in PEFT's layout ------------------------------------------
   The factors of het_model_desc.lora_rank as two files: adapter_config.json, and
   adapter_model.safetensors with the tensors base_model.model.MODULE.lora_A.weight [r][in] and
   .lora_B.weight [out][r]. GPT-2 and NeoX have q, k and v in one module; a context has factors for
   each, so that module is written with rank 3 r and 3 alpha: the three A below each other, the
   three B as blocks along the diagonal. A file where the module has rank r, one A for all three, is
   read too: each of the three begins with it. */

/* Sets lora_rank, lora_alpha and lora_targets of a completed model. base: gets
   base_model_name_or_path with a 0 behind, cut to capacity; may be NULL. HET_ERR_UNSUPPORTED:
   another method than plain LoRA, ranks that differ, single layers, other modules than those of the
   layers' matrices. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_adapter_from_json(const char *text, size_t length, het_model_desc *model,
                                                                char *base, size_t capacity, het_error *error);
/* The adapter_config.json of a completed model; base: name or path of the model it belongs to.
   *length: the bytes needed, without the final 0, also when capacity is too small (HET_ERR_LIMIT).
   Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_adapter_to_json(const het_model_desc *model, const char *base, char *text,
                                                              size_t capacity, size_t *length);
/* F32, F16 and BF16 tensors. Nothing is changed unless the whole file fits the context's model, and
   its metadata base_fingerprint, if it has one, the context's weights (HET_ERR_INVALID;
   het_set_base(ctx, 0) before allows any). Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_adapter_load(het_ctx *ctx, const het_reader *from, het_error *error);
/* In f32. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_adapter_save(het_ctx *ctx, const het_writer *to, het_error *error);
/* W becomes W + (alpha / r) B A, rounded once, and B becomes 0: the model stays what it was, and
   its own weights say it all. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_adapter_merge(het_ctx *ctx, het_error *error);

/* ---- >>choices_api: multiple-choice questions ---------------------------------------------------
   llm.c's evaluation file (HellaSwag, MMLU): 256 int32, of which [0] is 20240522, [1] 1, [2] the
   number of questions, [3] the bytes of the longest; then uint16 for every question: 65535, its
   bytes, its number from 0, the right answer, the number of answers, the context's length, the
   context, and for each answer its length and tokens. Little-endian. */
typedef struct het_question {
    int64_t answers, right;           /* right < answers */
    const int32_t *token;             /* the context, then the answers one behind the other */
    const int64_t *start;             /* [answers + 1] into token: answer i is [start[i], start[i +
                                         1]); the context is [0, start[0]) */
} het_question;

typedef struct het_choices {
    int64_t questions;
    const het_question *question;     /* [questions] */
    int64_t most_answers, longest;    /* longest: tokens of a context with one of its answers */
    int32_t largest_token;
    het_allocator allocator;          /* of this struct and its arrays: one block of `block` bytes */
    size_t block;
} het_choices;

/* Reads a whole file and proves every number of it: a context and an answer have at least one
   token, every question ends where its bytes and the file say, and tokens are below vocab (0: not
   checked). The error names the question and the byte of the file. While the call runs the file's
   bytes are kept besides. allocator NULL: malloc. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_choices_read(const het_reader *from, int64_t vocab,
                                                           const het_allocator *allocator, het_choices **choices,
                                                               het_error *error);
HETRAIN_API void het_choices_free(het_choices *choices);              /* NULL is fine. Threads: any. */

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
typedef struct het_beside { const char *name; const void *data; size_t size; } het_beside;
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
/* Copies the context as it is. option[options]: what the caller wants to find again, each key once;
   in a value that is not UTF-8, bytes that are not plain text become '?'. beside[files]: at most
   13. With several processes all make this call; process 0 alone gets the copy. Not while another
   thread writes. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_checkpoint_take(het_checkpoint *checkpoint, het_ctx *ctx,
                                                              const het_pair *option, int64_t options,
                                                                  const het_beside *beside, int64_t files,
                                                                      het_error *error);
/* Writes what was taken last; where nothing was, nothing. Touches no context and allocates nothing.
   Whatever it returns, earlier checkpoints are as they were, or, if the new one has got its place,
   may have gone as `keep` says. Checkpoints of later steps belong to a run that was left, and go.
   Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_checkpoint_write(het_checkpoint *checkpoint, het_error *error);
/* Writes the files of what was taken last, but for optimizer.safetensors and state.json, into the
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
   them as they are. With several processes all make this call. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_checkpoint_load(const het_saved *saved, het_ctx *ctx,
                                                              het_choice other_options, het_error *error);

/* ---- >>gguf_api: models for llama.cpp -------------------------------------------------------- */
/* What a GGUF file gets beside the weights. */
typedef struct het_gguf_desc {
    uint32_t start_canary;
    het_element element;              /* of matrices: F32 (0), F16 or BF16; vectors and learned
                                         positions are F32. What F16 cannot hold is an error */
    const het_tokenizer *tokenizer;   /* NULL: tokens are bytes where the vocabulary is 256, else the file has none */
    const char *name;                 /* general.name; NULL: none */
    const int32_t *end;               /* [ends] tokens that end a text: the first becomes
                                         eos_token_id, the second eot_token_id */
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
#ifndef HETRAIN_NO_STDIO
#include <stdio.h>
#endif

#ifndef HETRAIN_ASSERT
#define HETRAIN_ASSERT(condition) ((void)0)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* =================================================================================================
   >>unicode  UTF-8, the classes of characters that patterns ask for, and canonical composition
              (NFC, Unicode Standard Annex 15).
   ============================================================================================== */

/* NUMBER: general categories Nd and Nl, OTHER_NUMBER: No. WORD: what regular expressions call \w
   beyond L, Nd and Nl. */
typedef enum heti_f_class {
    HETI_F_OTHER = 0, HETI_F_LETTER = 1, HETI_F_NUMBER = 2, HETI_F_OTHER_NUMBER = 3, HETI_F_WORD = 4, HETI_F_SPACE = 5
} heti_f_class;

#define HETI_F_CHANGES 256u /* alone it is not in NFC */
#define HETI_F_JOINS 512u   /* it may change places or compose with what stands before it */

/* ---- tables made by tests/oracle/unicode_tables.py ---- */
/* Unicode 16.0.0. (first code point << 3 | heti_f_class) of every run of one class. */
static const uint32_t heti_f_classes[2011] = {
    0x4D,0x70,0x105,0x108,0x182,0x1D0,0x209,0x2D8,0x2FC,0x300,0x309,0x3D8,0x42D,0x430,0x505,0x508,0x551,0x558,0x593,
    0x5A0,0x5A9,0x5B0,0x5CB,0x5D1,0x5D8,0x5E3,0x5F8,0x601,0x6B8,0x6C1,0x7B8,0x7C1,0x1610,0x1631,0x1690,0x1701,0x1728,
    0x1761,0x1768,0x1771,0x1778,0x1804,0x1B81,0x1BA8,0x1BB1,0x1BC0,0x1BD1,0x1BF0,0x1BF9,0x1C00,0x1C31,0x1C38,0x1C41,
    0x1C58,0x1C61,0x1C68,0x1C71,0x1D10,0x1D19,0x1FB0,0x1FB9,0x2410,0x241C,0x2451,0x2980,0x2989,0x2AB8,0x2AC9,0x2AD0,
    0x2B01,0x2C48,0x2C8C,0x2DF0,0x2DFC,0x2E00,0x2E0C,0x2E18,0x2E24,0x2E30,0x2E3C,0x2E40,0x2E81,0x2F58,0x2F79,0x2F98,
    0x3084,0x30D8,0x3101,0x325C,0x3302,0x3350,0x3371,0x3384,0x3389,0x36A0,0x36A9,0x36B4,0x36E8,0x36FC,0x3729,0x373C,
    0x3748,0x3754,0x3771,0x3782,0x37D1,0x37E8,0x37F9,0x3800,0x3881,0x388C,0x3891,0x3984,0x3A58,0x3A69,0x3D34,0x3D89,
    0x3D90,0x3E02,0x3E51,0x3F5C,0x3FA1,0x3FB0,0x3FD1,0x3FD8,0x3FEC,0x3FF0,0x4001,0x40B4,0x40D1,0x40DC,0x4121,0x412C,
    0x4141,0x414C,0x4170,0x4201,0x42CC,0x42E0,0x4301,0x4358,0x4381,0x4440,0x4449,0x4478,0x44BC,0x4501,0x4654,0x4710,
    0x471C,0x4821,0x49D4,0x49E9,0x49F4,0x4A81,0x4A8C,0x4AC1,0x4B14,0x4B20,0x4B32,0x4B80,0x4B89,0x4C0C,0x4C20,0x4C29,
    0x4C68,0x4C79,0x4C88,0x4C99,0x4D48,0x4D51,0x4D88,0x4D91,0x4D98,0x4DB1,0x4DD0,0x4DE4,0x4DE9,0x4DF4,0x4E28,0x4E3C,
    0x4E48,0x4E5C,0x4E71,0x4E78,0x4EBC,0x4EC0,0x4EE1,0x4EF0,0x4EF9,0x4F14,0x4F20,0x4F32,0x4F81,0x4F90,0x4FA3,0x4FD0,
    0x4FE1,0x4FE8,0x4FF4,0x4FF8,0x500C,0x5020,0x5029,0x5058,0x5079,0x5088,0x5099,0x5148,0x5151,0x5188,0x5191,0x51A0,
    0x51A9,0x51B8,0x51C1,0x51D0,0x51E4,0x51E8,0x51F4,0x5218,0x523C,0x5248,0x525C,0x5270,0x528C,0x5290,0x52C9,0x52E8,
    0x52F1,0x52F8,0x5332,0x5384,0x5391,0x53AC,0x53B0,0x540C,0x5420,0x5429,0x5470,0x5479,0x5490,0x5499,0x5548,0x5551,
    0x5588,0x5591,0x55A0,0x55A9,0x55D0,0x55E4,0x55E9,0x55F4,0x5630,0x563C,0x5650,0x565C,0x5670,0x5681,0x5688,0x5701,
    0x5714,0x5720,0x5732,0x5780,0x57C9,0x57D4,0x5800,0x580C,0x5820,0x5829,0x5868,0x5879,0x5888,0x5899,0x5948,0x5951,
    0x5988,0x5991,0x59A0,0x59A9,0x59D0,0x59E4,0x59E9,0x59F4,0x5A28,0x5A3C,0x5A48,0x5A5C,0x5A70,0x5AAC,0x5AC0,0x5AE1,
    0x5AF0,0x5AF9,0x5B14,0x5B20,0x5B32,0x5B80,0x5B89,0x5B93,0x5BC0,0x5C14,0x5C19,0x5C20,0x5C29,0x5C58,0x5C71,0x5C88,
    0x5C91,0x5CB0,0x5CC9,0x5CD8,0x5CE1,0x5CE8,0x5CF1,0x5D00,0x5D19,0x5D28,0x5D41,0x5D58,0x5D71,0x5DD0,0x5DF4,0x5E18,
    0x5E34,0x5E48,0x5E54,0x5E70,0x5E81,0x5E88,0x5EBC,0x5EC0,0x5F32,0x5F83,0x5F98,0x6004,0x6029,0x6068,0x6071,0x6088,
    0x6091,0x6148,0x6151,0x61D0,0x61E4,0x61E9,0x61F4,0x6228,0x6234,0x6248,0x6254,0x6270,0x62AC,0x62B8,0x62C1,0x62D8,
    0x62E9,0x62F0,0x6301,0x6314,0x6320,0x6332,0x6380,0x63C3,0x63F8,0x6401,0x640C,0x6420,0x6429,0x6468,0x6471,0x6488,
    0x6491,0x6548,0x6551,0x65A0,0x65A9,0x65D0,0x65E4,0x65E9,0x65F4,0x6628,0x6634,0x6648,0x6654,0x6670,0x66AC,0x66B8,
    0x66E9,0x66F8,0x6701,0x6714,0x6720,0x6732,0x6780,0x6789,0x679C,0x67A0,0x6804,0x6821,0x6868,0x6871,0x6888,0x6891,
    0x69DC,0x69E9,0x69F4,0x6A28,0x6A34,0x6A48,0x6A54,0x6A71,0x6A78,0x6AA1,0x6ABC,0x6AC3,0x6AF9,0x6B14,0x6B20,0x6B32,
    0x6B83,0x6BC8,0x6BD1,0x6C00,0x6C0C,0x6C20,0x6C29,0x6CB8,0x6CD1,0x6D90,0x6D99,0x6DE0,0x6DE9,0x6DF0,0x6E01,0x6E38,
    0x6E54,0x6E58,0x6E7C,0x6EA8,0x6EB4,0x6EB8,0x6EC4,0x6F00,0x6F32,0x6F80,0x6F94,0x6FA0,0x7009,0x718C,0x7191,0x71A4,
    0x71D8,0x7201,0x723C,0x7278,0x7282,0x72D0,0x7409,0x7418,0x7421,0x7428,0x7431,0x7458,0x7461,0x7520,0x7529,0x7530,
    0x7539,0x758C,0x7591,0x75A4,0x75E9,0x75F0,0x7601,0x7628,0x7631,0x7638,0x7644,0x7678,0x7682,0x76D0,0x76E1,0x7700,
    0x7801,0x7808,0x78C4,0x78D0,0x7902,0x7953,0x79A0,0x79AC,0x79B0,0x79BC,0x79C0,0x79CC,0x79D0,0x79F4,0x7A01,0x7A40,
    0x7A49,0x7B68,0x7B8C,0x7C28,0x7C34,0x7C41,0x7C6C,0x7CC0,0x7CCC,0x7DE8,0x7E34,0x7E38,0x8001,0x815C,0x81F9,0x8202,
    0x8250,0x8281,0x82B4,0x82D1,0x82F4,0x8309,0x8314,0x8329,0x833C,0x8371,0x838C,0x83A9,0x8414,0x8471,0x847C,0x8482,
    0x84D4,0x84F0,0x8501,0x8630,0x8639,0x8640,0x8669,0x8670,0x8681,0x87D8,0x87E1,0x9248,0x9251,0x9270,0x9281,0x92B8,
    0x92C1,0x92C8,0x92D1,0x92F0,0x9301,0x9448,0x9451,0x9470,0x9481,0x9588,0x9591,0x95B0,0x95C1,0x95F8,0x9601,0x9608,
    0x9611,0x9630,0x9641,0x96B8,0x96C1,0x9888,0x9891,0x98B0,0x98C1,0x9AD8,0x9AEC,0x9B00,0x9B4B,0x9BE8,0x9C01,0x9C80,
    0x9D01,0x9FB0,0x9FC1,0x9FF0,0xA009,0xB368,0xB379,0xB405,0xB409,0xB4D8,0xB501,0xB758,0xB772,0xB789,0xB7C8,0xB801,
    0xB894,0xB8B0,0xB8F9,0xB994,0xB9A8,0xBA01,0xBA94,0xBAA0,0xBB01,0xBB68,0xBB71,0xBB88,0xBB94,0xBBA0,0xBC01,0xBDA4,
    0xBEA0,0xBEB9,0xBEC0,0xBEE1,0xBEEC,0xBEF0,0xBF02,0xBF50,0xBF83,0xBFD0,0xC05C,0xC070,0xC07C,0xC082,0xC0D0,0xC101,
    0xC3C8,0xC401,0xC42C,0xC439,0xC54C,0xC551,0xC558,0xC581,0xC7B0,0xC801,0xC8F8,0xC904,0xC960,0xC984,0xC9E0,0xCA32,
    0xCA81,0xCB70,0xCB81,0xCBA8,0xCC01,0xCD60,0xCD81,0xCE50,0xCE82,0xCED3,0xCED8,0xD001,0xD0BC,0xD0E0,0xD101,0xD2AC,
    0xD2F8,0xD304,0xD3E8,0xD3FC,0xD402,0xD450,0xD482,0xD4D0,0xD539,0xD540,0xD584,0xD678,0xD804,0xD829,0xD9A4,0xDA29,
    0xDA68,0xDA82,0xDAD0,0xDB5C,0xDBA0,0xDC04,0xDC19,0xDD0C,0xDD71,0xDD82,0xDDD1,0xDF34,0xDFA0,0xE001,0xE124,0xE1C0,
    0xE202,0xE250,0xE269,0xE282,0xE2D1,0xE3F0,0xE401,0xE458,0xE481,0xE5D8,0xE5E9,0xE600,0xE684,0xE698,0xE6A4,0xE749,
    0xE76C,0xE771,0xE7A4,0xE7A9,0xE7BC,0xE7D1,0xE7D8,0xE801,0xEE04,0xF001,0xF8B0,0xF8C1,0xF8F0,0xF901,0xFA30,0xFA41,
    0xFA70,0xFA81,0xFAC0,0xFAC9,0xFAD0,0xFAD9,0xFAE0,0xFAE9,0xFAF0,0xFAF9,0xFBF0,0xFC01,0xFDA8,0xFDB1,0xFDE8,0xFDF1,
    0xFDF8,0xFE11,0xFE28,0xFE31,0xFE68,0xFE81,0xFEA0,0xFEB1,0xFEE0,0xFF01,0xFF68,0xFF91,0xFFA8,0xFFB1,0xFFE8,0x10005,
    0x10058,0x10064,0x10070,0x10145,0x10150,0x1017D,0x10180,0x101FC,0x10208,0x102A4,0x102A8,0x102FD,0x10300,0x10383,
    0x10389,0x10390,0x103A3,0x103D0,0x103F9,0x10403,0x10450,0x10481,0x104E8,0x10684,0x10788,0x10811,0x10818,0x10839,
    0x10840,0x10851,0x108A0,0x108A9,0x108B0,0x108C9,0x108F0,0x10921,0x10928,0x10931,0x10938,0x10941,0x10948,0x10951,
    0x10970,0x10979,0x109D0,0x109E1,0x10A00,0x10A29,0x10A50,0x10A71,0x10A78,0x10A83,0x10B02,0x10C19,0x10C2A,0x10C4B,
    0x10C50,0x12303,0x124E0,0x125B4,0x12753,0x12800,0x13BB3,0x13CA0,0x16001,0x16728,0x16759,0x1677C,0x16791,0x167A0,
    0x167EB,0x167F0,0x16801,0x16930,0x16939,0x16940,0x16969,0x16970,0x16981,0x16B40,0x16B79,0x16B80,0x16BFC,0x16C01,
    0x16CB8,0x16D01,0x16D38,0x16D41,0x16D78,0x16D81,0x16DB8,0x16DC1,0x16DF8,0x16E01,0x16E38,0x16E41,0x16E78,0x16E81,
    0x16EB8,0x16EC1,0x16EF8,0x16F04,0x17000,0x17179,0x17180,0x18005,0x18008,0x18029,0x1803A,0x18040,0x1810A,0x18154,
    0x18180,0x18189,0x181B0,0x181C2,0x181D9,0x181E8,0x18209,0x184B8,0x184CC,0x184D8,0x184E9,0x18500,0x18509,0x187D8,
    0x187E1,0x18800,0x18829,0x18980,0x18989,0x18C78,0x18C93,0x18CB0,0x18D01,0x18E00,0x18F81,0x19000,0x19103,0x19150,
    0x19243,0x19280,0x1928B,0x19300,0x19403,0x19450,0x1958B,0x19600,0x1A001,0x26E00,0x27001,0x52468,0x52681,0x527F0,
    0x52801,0x53068,0x53081,0x53102,0x53151,0x53160,0x53201,0x5337C,0x53398,0x533A4,0x533F0,0x533F9,0x534F4,0x53501,
    0x53732,0x53784,0x53790,0x538B9,0x53900,0x53911,0x53C48,0x53C59,0x53E70,0x53E81,0x53E90,0x53E99,0x53EA0,0x53EA9,
    0x53EE8,0x53F91,0x54014,0x54019,0x54034,0x54039,0x5405C,0x54061,0x5411C,0x54140,0x54164,0x54168,0x54183,0x541B0,
    0x54201,0x543A0,0x54404,0x54411,0x545A4,0x54630,0x54682,0x546D0,0x54704,0x54791,0x547C0,0x547D9,0x547E0,0x547E9,
    0x547FC,0x54802,0x54851,0x54934,0x54970,0x54981,0x54A3C,0x54AA0,0x54B01,0x54BE8,0x54C04,0x54C21,0x54D9C,0x54E08,
    0x54E79,0x54E82,0x54ED0,0x54F01,0x54F2C,0x54F31,0x54F82,0x54FD1,0x54FF8,0x55001,0x5514C,0x551B8,0x55201,0x5521C,
    0x55221,0x55264,0x55270,0x55282,0x552D0,0x55301,0x553B8,0x553D1,0x553DC,0x553F1,0x55584,0x55589,0x55594,0x555A9,
    0x555BC,0x555C9,0x555F4,0x55601,0x5560C,0x55611,0x55618,0x556D9,0x556F0,0x55701,0x5575C,0x55780,0x55791,0x557AC,
    0x557B8,0x55809,0x55838,0x55849,0x55878,0x55889,0x558B8,0x55901,0x55938,0x55941,0x55978,0x55981,0x55AD8,0x55AE1,
    0x55B50,0x55B81,0x55F1C,0x55F58,0x55F64,0x55F70,0x55F82,0x55FD0,0x56001,0x6BD20,0x6BD81,0x6BE38,0x6BE59,0x6BFE0,
    0x7C801,0x7D370,0x7D381,0x7D6D0,0x7D801,0x7D838,0x7D899,0x7D8C0,0x7D8E9,0x7D8F4,0x7D8F9,0x7D948,0x7D951,0x7D9B8,
    0x7D9C1,0x7D9E8,0x7D9F1,0x7D9F8,0x7DA01,0x7DA10,0x7DA19,0x7DA28,0x7DA31,0x7DD90,0x7DE99,0x7E9F0,0x7EA81,0x7EC80,
    0x7EC91,0x7EE40,0x7EF81,0x7EFE0,0x7F004,0x7F080,0x7F104,0x7F180,0x7F19C,0x7F1A8,0x7F26C,0x7F280,0x7F381,0x7F3A8,
    0x7F3B1,0x7F7E8,0x7F882,0x7F8D0,0x7F909,0x7F9D8,0x7F9FC,0x7FA00,0x7FA09,0x7FAD8,0x7FB31,0x7FDF8,0x7FE11,0x7FE40,
    0x7FE51,0x7FE80,0x7FE91,0x7FEC0,0x7FED1,0x7FEE8,0x80001,0x80060,0x80069,0x80138,0x80141,0x801D8,0x801E1,0x801F0,
    0x801F9,0x80270,0x80281,0x802F0,0x80401,0x807D8,0x8083B,0x809A0,0x80A02,0x80BAB,0x80BC8,0x80C53,0x80C60,0x80FEC,
    0x80FF0,0x81401,0x814E8,0x81501,0x81688,0x81704,0x8170B,0x817E0,0x81801,0x81903,0x81920,0x81969,0x81A0A,0x81A11,
    0x81A52,0x81A58,0x81A81,0x81BB4,0x81BD8,0x81C01,0x81CF0,0x81D01,0x81E20,0x81E41,0x81E80,0x81E8A,0x81EB0,0x82001,
    0x824F0,0x82502,0x82550,0x82581,0x826A0,0x826C1,0x827E0,0x82801,0x82940,0x82981,0x82B20,0x82B81,0x82BD8,0x82BE1,
    0x82C58,0x82C61,0x82C98,0x82CA1,0x82CB0,0x82CB9,0x82D10,0x82D19,0x82D90,0x82D99,0x82DD0,0x82DD9,0x82DE8,0x82E01,
    0x82FA0,0x83001,0x839B8,0x83A01,0x83AB0,0x83B01,0x83B40,0x83C01,0x83C30,0x83C39,0x83D88,0x83D91,0x83DD8,0x84001,
    0x84030,0x84041,0x84048,0x84051,0x841B0,0x841B9,0x841C8,0x841E1,0x841E8,0x841F9,0x842B0,0x842C3,0x84301,0x843B8,
    0x843CB,0x84401,0x844F8,0x8453B,0x84580,0x84701,0x84798,0x847A1,0x847B0,0x847DB,0x84801,0x848B3,0x848E0,0x84901,
    0x849D0,0x84C01,0x84DC0,0x84DE3,0x84DF1,0x84E03,0x84E80,0x84E93,0x85001,0x8500C,0x85020,0x8502C,0x85038,0x85064,
    0x85081,0x850A0,0x850A9,0x850C0,0x850C9,0x851B0,0x851C4,0x851D8,0x851FC,0x85203,0x85248,0x85301,0x853EB,0x853F8,
    0x85401,0x854EB,0x85500,0x85601,0x85640,0x85649,0x8572C,0x85738,0x8575B,0x85780,0x85801,0x859B0,0x85A01,0x85AB0,
    0x85AC3,0x85B01,0x85B98,0x85BC3,0x85C01,0x85C90,0x85D4B,0x85D80,0x86001,0x86248,0x86401,0x86598,0x86601,0x86798,
    0x867D3,0x86801,0x86924,0x86940,0x86982,0x869D0,0x86A02,0x86A51,0x86B30,0x86B4C,0x86B70,0x86B79,0x86C30,0x87303,
    0x873F8,0x87401,0x87550,0x8755C,0x87568,0x87581,0x87590,0x87611,0x87628,0x877E4,0x87801,0x878EB,0x87939,0x87940,
    0x87981,0x87A34,0x87A8B,0x87AA8,0x87B81,0x87C14,0x87C30,0x87D81,0x87E2B,0x87E60,0x87F01,0x87FB8,0x88004,0x88019,
    0x881C4,0x88238,0x88293,0x88332,0x88384,0x88389,0x8839C,0x883A9,0x883B0,0x883FC,0x88419,0x88584,0x885D8,0x88614,
    0x88618,0x88681,0x88748,0x88782,0x887D0,0x88804,0x88819,0x8893C,0x889A8,0x889B2,0x88A00,0x88A21,0x88A2C,0x88A39,
    0x88A40,0x88A81,0x88B9C,0x88BA0,0x88BB1,0x88BB8,0x88C04,0x88C19,0x88D9C,0x88E09,0x88E28,0x88E4C,0x88E68,0x88E74,
    0x88E82,0x88ED1,0x88ED8,0x88EE1,0x88EE8,0x88F0B,0x88FA8,0x89001,0x89090,0x89099,0x89164,0x891C0,0x891F4,0x891F9,
    0x8920C,0x89210,0x89401,0x89438,0x89441,0x89448,0x89451,0x89470,0x89479,0x894F0,0x894F9,0x89548,0x89581,0x896FC,
    0x89758,0x89782,0x897D0,0x89804,0x89820,0x89829,0x89868,0x89879,0x89888,0x89899,0x89948,0x89951,0x89988,0x89991,
    0x899A0,0x899A9,0x899D0,0x899DC,0x899E9,0x899F4,0x89A28,0x89A3C,0x89A48,0x89A5C,0x89A70,0x89A81,0x89A88,0x89ABC,
    0x89AC0,0x89AE9,0x89B14,0x89B20,0x89B34,0x89B68,0x89B84,0x89BA8,0x89C01,0x89C50,0x89C59,0x89C60,0x89C71,0x89C78,
    0x89C81,0x89DB0,0x89DB9,0x89DC4,0x89E08,0x89E14,0x89E18,0x89E2C,0x89E30,0x89E3C,0x89E58,0x89E64,0x89E89,0x89E94,
    0x89E99,0x89EA0,0x89F0C,0x89F18,0x8A001,0x8A1AC,0x8A239,0x8A258,0x8A282,0x8A2D0,0x8A2F4,0x8A2F9,0x8A310,0x8A401,
    0x8A584,0x8A621,0x8A630,0x8A639,0x8A640,0x8A682,0x8A6D0,0x8AC01,0x8AD7C,0x8ADB0,0x8ADC4,0x8AE08,0x8AEC1,0x8AEE4,
    0x8AEF0,0x8B001,0x8B184,0x8B208,0x8B221,0x8B228,0x8B282,0x8B2D0,0x8B401,0x8B55C,0x8B5C1,0x8B5C8,0x8B602,0x8B650,
    0x8B682,0x8B720,0x8B801,0x8B8D8,0x8B8EC,0x8B960,0x8B982,0x8B9D3,0x8B9E0,0x8BA01,0x8BA38,0x8C001,0x8C164,0x8C1D8,
    0x8C501,0x8C702,0x8C753,0x8C798,0x8C7F9,0x8C838,0x8C849,0x8C850,0x8C861,0x8C8A0,0x8C8A9,0x8C8B8,0x8C8C1,0x8C984,
    0x8C9B0,0x8C9BC,0x8C9C8,0x8C9DC,0x8C9F9,0x8CA04,0x8CA09,0x8CA14,0x8CA20,0x8CA82,0x8CAD0,0x8CD01,0x8CD40,0x8CD51,
    0x8CE8C,0x8CEC0,0x8CED4,0x8CF09,0x8CF10,0x8CF19,0x8CF24,0x8CF28,0x8D001,0x8D00C,0x8D059,0x8D19C,0x8D1D1,0x8D1DC,
    0x8D1F8,0x8D23C,0x8D240,0x8D281,0x8D28C,0x8D2E1,0x8D454,0x8D4D0,0x8D4E9,0x8D4F0,0x8D581,0x8D7C8,0x8DE01,0x8DF08,
    0x8DF82,0x8DFD0,0x8E001,0x8E048,0x8E051,0x8E17C,0x8E1B8,0x8E1C4,0x8E201,0x8E208,0x8E282,0x8E2D3,0x8E368,0x8E391,
    0x8E480,0x8E494,0x8E540,0x8E54C,0x8E5B8,0x8E801,0x8E838,0x8E841,0x8E850,0x8E859,0x8E98C,0x8E9B8,0x8E9D4,0x8E9D8,
    0x8E9E4,0x8E9F0,0x8E9FC,0x8EA31,0x8EA3C,0x8EA40,0x8EA82,0x8EAD0,0x8EB01,0x8EB30,0x8EB39,0x8EB48,0x8EB51,0x8EC54,
    0x8EC78,0x8EC84,0x8EC90,0x8EC9C,0x8ECC1,0x8ECC8,0x8ED02,0x8ED50,0x8F701,0x8F79C,0x8F7B8,0x8F804,0x8F811,0x8F81C,
    0x8F821,0x8F888,0x8F891,0x8F9A4,0x8F9D8,0x8F9F4,0x8FA18,0x8FA82,0x8FAD4,0x8FAD8,0x8FD81,0x8FD88,0x8FE03,0x8FEA8,
    0x90001,0x91CD0,0x92002,0x92378,0x92401,0x92A20,0x97C81,0x97F88,0x98001,0x9A180,0x9A204,0x9A209,0x9A23C,0x9A2B0,
    0x9A301,0xA1FD8,0xA2001,0xA3238,0xB0801,0xB08F4,0xB0982,0xB09D0,0xB4001,0xB51C8,0xB5201,0xB52F8,0xB5302,0xB5350,
    0xB5381,0xB55F8,0xB5602,0xB5650,0xB5681,0xB5770,0xB5784,0xB57A8,0xB5801,0xB5984,0xB59B8,0xB5A01,0xB5A20,0xB5A82,
    0xB5AD0,0xB5ADB,0xB5B10,0xB5B19,0xB5BC0,0xB5BE9,0xB5C80,0xB6A01,0xB6B68,0xB6B82,0xB6BD0,0xB7201,0xB7403,0xB74B8,
    0xB7801,0xB7A58,0xB7A7C,0xB7A81,0xB7A8C,0xB7C40,0xB7C7C,0xB7C99,0xB7D00,0xB7F01,0xB7F10,0xB7F19,0xB7F24,0xB7F28,
    0xB7F84,0xB7F90,0xB8001,0xC3FC0,0xC4001,0xC66B0,0xC67F9,0xC6848,0xD7F81,0xD7FA0,0xD7FA9,0xD7FE0,0xD7FE9,0xD7FF8,
    0xD8001,0xD8918,0xD8991,0xD8998,0xD8A81,0xD8A98,0xD8AA9,0xD8AB0,0xD8B21,0xD8B40,0xD8B81,0xD97E0,0xDE001,0xDE358,
    0xDE381,0xDE3E8,0xDE401,0xDE448,0xDE481,0xDE4D0,0xDE4EC,0xDE4F8,0xE6782,0xE67D0,0xE7804,0xE7970,0xE7984,0xE7A38,
    0xE8B2C,0xE8B50,0xE8B6C,0xE8B98,0xE8BDC,0xE8C18,0xE8C2C,0xE8C60,0xE8D54,0xE8D70,0xE9214,0xE9228,0xE9603,0xE96A0,
    0xE9703,0xE97A0,0xE9B03,0xE9BC8,0xEA001,0xEA2A8,0xEA2B1,0xEA4E8,0xEA4F1,0xEA500,0xEA511,0xEA518,0xEA529,0xEA538,
    0xEA549,0xEA568,0xEA571,0xEA5D0,0xEA5D9,0xEA5E0,0xEA5E9,0xEA620,0xEA629,0xEA830,0xEA839,0xEA858,0xEA869,0xEA8A8,
    0xEA8B1,0xEA8E8,0xEA8F1,0xEA9D0,0xEA9D9,0xEA9F8,0xEAA01,0xEAA28,0xEAA31,0xEAA38,0xEAA51,0xEAA88,0xEAA91,0xEB530,
    0xEB541,0xEB608,0xEB611,0xEB6D8,0xEB6E1,0xEB7D8,0xEB7E1,0xEB8A8,0xEB8B1,0xEB9A8,0xEB9B1,0xEBA78,0xEBA81,0xEBB78,
    0xEBB81,0xEBC48,0xEBC51,0xEBD48,0xEBD51,0xEBE18,0xEBE21,0xEBE60,0xEBE72,0xEC000,0xED004,0xED1B8,0xED1DC,0xED368,
    0xED3AC,0xED3B0,0xED424,0xED428,0xED4DC,0xED500,0xED50C,0xED580,0xEF801,0xEF8F8,0xEF929,0xEF958,0xF0004,0xF0038,
    0xF0044,0xF00C8,0xF00DC,0xF0110,0xF011C,0xF0128,0xF0134,0xF0158,0xF0181,0xF0370,0xF047C,0xF0480,0xF0801,0xF0968,
    0xF0984,0xF09B9,0xF09F0,0xF0A02,0xF0A50,0xF0A71,0xF0A78,0xF1481,0xF1574,0xF1578,0xF1601,0xF1764,0xF1782,0xF17D0,
    0xF2681,0xF2764,0xF2782,0xF27D0,0xF2E81,0xF2F74,0xF2F81,0xF2F8A,0xF2FD8,0xF3F01,0xF3F38,0xF3F41,0xF3F60,0xF3F69,
    0xF3F78,0xF3F81,0xF3FF8,0xF4001,0xF4628,0xF463B,0xF4684,0xF46B8,0xF4801,0xF4A24,0xF4A59,0xF4A60,0xF4A82,0xF4AD0,
    0xF638B,0xF6560,0xF656B,0xF6580,0xF658B,0xF65A8,0xF680B,0xF6970,0xF697B,0xF69F0,0xF7001,0xF7020,0xF7029,0xF7100,
    0xF7109,0xF7118,0xF7121,0xF7128,0xF7139,0xF7140,0xF7149,0xF7198,0xF71A1,0xF71C0,0xF71C9,0xF71D0,0xF71D9,0xF71E0,
    0xF7211,0xF7218,0xF7239,0xF7240,0xF7249,0xF7250,0xF7259,0xF7260,0xF7269,0xF7280,0xF7289,0xF7298,0xF72A1,0xF72A8,
    0xF72B9,0xF72C0,0xF72C9,0xF72D0,0xF72D9,0xF72E0,0xF72E9,0xF72F0,0xF72F9,0xF7300,0xF7309,0xF7318,0xF7321,0xF7328,
    0xF7339,0xF7358,0xF7361,0xF7398,0xF73A1,0xF73C0,0xF73C9,0xF73E8,0xF73F1,0xF73F8,0xF7401,0xF7450,0xF7459,0xF74E0,
    0xF7509,0xF7520,0xF7529,0xF7550,0xF7559,0xF75E0,0xF8803,0xF8868,0xF8984,0xF8A50,0xF8A84,0xF8B50,0xF8B84,0xF8C50,
    0xFDF82,0xFDFD0,0x100001,0x153700,0x153801,0x15B9D0,0x15BA01,0x15C0F0,0x15C101,0x167510,0x167581,0x175F08,0x175F81,
    0x1772F0,0x17C001,0x17D0F0,0x180001,0x189A58,0x189A81,0x191D80,0x700804,0x700F80,
};
/* (first code point << 10 | HETI_F_JOINS | HETI_F_CHANGES | canonical combining class) of every
   run; 120 marks newer than Unicode 9 are left out. */
static const uint32_t heti_f_normals[678] = {
    0xC02E6,0xC56E8,0xC5ADC,0xC6AE8,0xC6ED8,0xC72DC,0xC86CA,0xC8EDC,0xC9ECA,0xCA6DC,0xCD201,0xCE6DC,0xCF6E6,0xD03E6,
    0xD0AE6,0xD0FE6,0xD16F0,0xD1AE6,0xD1EDC,0xD2AE6,0xD36DC,0xD3C00,0xD42E6,0xD4EDC,0xD5EE6,0xD62E8,0xD66DC,0xD6EE6,
    0xD72E9,0xD76EA,0xD7EE9,0xD82EA,0xD8AE9,0xD8EE6,0xDC000,0xDD100,0xDD400,0xDF900,0xDFC00,0xE1D00,0xE2000,0x120EE6,
    0x122000,0x1646DC,0x164AE6,0x165ADC,0x165EE6,0x166ADE,0x166EDC,0x1672E6,0x168ADC,0x16A2E6,0x16AADC,0x16AEE6,
    0x16B6DE,0x16BAE4,0x16BEE6,0x16C20A,0x16C60B,0x16CA0C,0x16CE0D,0x16D20E,0x16D60F,0x16DA10,0x16DE11,0x16E212,
    0x16E613,0x16EE14,0x16F215,0x16F616,0x16F800,0x16FE17,0x170000,0x170618,0x170A19,0x170C00,0x1712E6,0x1716DC,
    0x171800,0x171E12,0x172000,0x1842E6,0x18621E,0x18661F,0x186A20,0x186C00,0x192E1B,0x19321C,0x19361D,0x193A1E,
    0x193E1F,0x194220,0x194621,0x194A22,0x194EE6,0x1956DC,0x195EE6,0x1972DC,0x1976E6,0x197EDC,0x198000,0x19C223,
    0x19C400,0x1B5AE6,0x1B7400,0x1B7EE6,0x1B8EDC,0x1B92E6,0x1B9400,0x1B9EE6,0x1BA400,0x1BAADC,0x1BAEE6,0x1BB6DC,
    0x1BB800,0x1C4624,0x1C4800,0x1CC2E6,0x1CC6DC,0x1CCAE6,0x1CD2DC,0x1CD6E6,0x1CDEDC,0x1CEAE6,0x1CEEDC,0x1CF6E6,
    0x1CFADC,0x1CFEE6,0x1D0ADC,0x1D0EE6,0x1D12DC,0x1D16E6,0x1D1ADC,0x1D1EE6,0x1D22DC,0x1D26E6,0x1D2C00,0x1FAEE6,
    0x1FCADC,0x1FCEE6,0x1FD000,0x205AE6,0x206800,0x206EE6,0x209000,0x2096E6,0x20A000,0x20A6E6,0x20B800,0x2166DC,
    0x217000,0x2352E6,0x238800,0x238EDC,0x2392E6,0x239ADC,0x239EE6,0x23A6DC,0x23AAE6,0x23B6DC,0x23C21B,0x23C61C,
    0x23CA1D,0x23CEE6,0x23DADC,0x23DEE6,0x23E6DC,0x23EEE6,0x240000,0x24F207,0x24F400,0x253609,0x253800,0x2546E6,
    0x254ADC,0x254EE6,0x255400,0x256100,0x258000,0x26F207,0x26F400,0x26FA00,0x26FC00,0x273609,0x273800,0x275E00,
    0x276000,0x277100,0x277800,0x277D00,0x278000,0x28CD00,0x28D000,0x28D900,0x28DC00,0x28F207,0x28F400,0x293609,
    0x293800,0x296500,0x297000,0x297900,0x297C00,0x2AF207,0x2AF400,0x2B3609,0x2B3800,0x2CF207,0x2CF400,0x2CFA00,
    0x2CFC00,0x2D3609,0x2D3800,0x2D5A00,0x2D6000,0x2D7100,0x2D7800,0x2EFA00,0x2EFC00,0x2F3609,0x2F3800,0x2F5E00,
    0x2F6000,0x313609,0x313800,0x315654,0x315A5B,0x315C00,0x32F207,0x32F400,0x330A00,0x330C00,0x333609,0x333800,
    0x335600,0x335C00,0x34FA00,0x34FC00,0x353609,0x353800,0x355E00,0x356000,0x372A09,0x372C00,0x373E00,0x374000,
    0x377E00,0x378000,0x38E267,0x38EA09,0x38EC00,0x39226B,0x393000,0x3AE276,0x3AE800,0x3B227A,0x3B3000,0x3C62DC,
    0x3C6800,0x3CD6DC,0x3CD800,0x3CDEDC,0x3CE000,0x3CE6D8,0x3CE800,0x3D0D00,0x3D1000,0x3D3500,0x3D3800,0x3D4900,
    0x3D4C00,0x3D5D00,0x3D6000,0x3D7100,0x3D7400,0x3DA500,0x3DA800,0x3DC681,0x3DCA82,0x3DCF00,0x3DD284,0x3DD700,
    0x3DD900,0x3DDC00,0x3DE100,0x3DE400,0x3DEA82,0x3DF800,0x3E0282,0x3E0700,0x3E0AE6,0x3E1209,0x3E1400,0x3E1AE6,
    0x3E2000,0x3E4D00,0x3E5000,0x3E7500,0x3E7800,0x3E8900,0x3E8C00,0x3E9D00,0x3EA000,0x3EB100,0x3EB400,0x3EE500,
    0x3EE800,0x3F1ADC,0x3F1C00,0x40BA00,0x40BC00,0x40DE07,0x40E000,0x40E609,0x40EC00,0x4236DC,0x423800,0x458600,
    0x45D800,0x46A200,0x470C00,0x4D76E6,0x4D8000,0x5C5209,0x5C5400,0x5CD209,0x5CD400,0x5F4A09,0x5F4C00,0x5F76E6,
    0x5F7800,0x62A6E4,0x62A800,0x64E6DE,0x64EAE6,0x64EEDC,0x64F000,0x685EE6,0x6862DC,0x686400,0x698209,0x698400,
    0x69D6E6,0x69F400,0x69FEDC,0x6A0000,0x6AC2E6,0x6AD6DC,0x6AEEE6,0x6AF6DC,0x6AF800,0x6CD207,0x6CD600,0x6CD800,
    0x6D1209,0x6D1400,0x6DAEE6,0x6DB2DC,0x6DB6E6,0x6DD000,0x6EAA09,0x6EB000,0x6F9A07,0x6F9C00,0x6FCA09,0x6FD000,
    0x70DE07,0x70E000,0x7342E6,0x734C00,0x735201,0x7356DC,0x736AE6,0x7372DC,0x7382E6,0x738400,0x738A01,0x73A400,
    0x73B6DC,0x73B800,0x73D2E6,0x73D400,0x73E2E6,0x73E800,0x7702E6,0x770ADC,0x770EE6,0x772ADC,0x772EE6,0x7736EA,
    0x773AD6,0x773EDC,0x7742CA,0x7746E6,0x77D800,0x77EEE6,0x77F2E9,0x77F6DC,0x77FAE6,0x77FEDC,0x780000,0x7DC500,
    0x7DC800,0x7DCD00,0x7DD000,0x7DD500,0x7DD800,0x7DDD00,0x7DE000,0x7DE500,0x7DE800,0x7DED00,0x7DF000,0x7DF500,
    0x7DF800,0x7EED00,0x7EF000,0x7EF900,0x7EFC00,0x7F2500,0x7F2800,0x7F2D00,0x7F3000,0x7F4D00,0x7F5000,0x7F6D00,
    0x7F7000,0x7F8D00,0x7F9000,0x7FAD00,0x7FB000,0x7FB900,0x7FC000,0x7FE500,0x7FE800,0x7FED00,0x7FF000,0x7FF500,
    0x7FF800,0x800100,0x800800,0x8342E6,0x834A01,0x8352E6,0x836201,0x836EE6,0x837400,0x8386E6,0x838800,0x839601,
    0x839EE6,0x83A2DC,0x83A6E6,0x83AA01,0x83B2DC,0x83C2E6,0x83C400,0x849900,0x849C00,0x84A900,0x84B000,0x8CA500,
    0x8CAC00,0xAB7100,0xAB7400,0xB3BEE6,0xB3C800,0xB5FE09,0xB60000,0xB782E6,0xB80000,0xC0AADA,0xC0AEE4,0xC0B2E8,
    0xC0B6DE,0xC0BAE0,0xC0C000,0xC26608,0xC26C00,0x299BEE6,0x299C000,0x299D2E6,0x299F800,0x29A7AE6,0x29A8000,0x29BC2E6,
    0x29BC800,0x2A01A09,0x2A01C00,0x2A31209,0x2A31400,0x2A382E6,0x2A3C800,0x2A4AEDC,0x2A4B800,0x2A54E09,0x2A55000,
    0x2A6CE07,0x2A6D000,0x2A70209,0x2A70400,0x2AAC2E6,0x2AAC400,0x2AACAE6,0x2AAD2DC,0x2AAD400,0x2AADEE6,0x2AAE400,
    0x2AAFAE6,0x2AB0000,0x2AB06E6,0x2AB0800,0x2ABDA09,0x2ABDC00,0x2AFB609,0x2AFB800,0x3E40100,0x3E83800,0x3E84100,
    0x3E84400,0x3E84900,0x3E84C00,0x3E85500,0x3E87C00,0x3E88100,0x3E88400,0x3E88900,0x3E88C00,0x3E89500,0x3E89C00,
    0x3E8A900,0x3E9B800,0x3E9C100,0x3EB6800,0x3EC7500,0x3EC7A1A,0x3EC7D00,0x3EC8000,0x3ECA900,0x3ECDC00,0x3ECE100,
    0x3ECF400,0x3ECF900,0x3ECFC00,0x3ED0100,0x3ED0800,0x3ED0D00,0x3ED1400,0x3ED1900,0x3ED3C00,0x3F882E6,0x3F89EDC,
    0x3F8BAE6,0x3F8C000,0x407F6DC,0x407F800,0x40B82DC,0x40B8400,0x40DDAE6,0x40DEC00,0x42836DC,0x4283800,0x4283EE6,
    0x4284000,0x428E2E6,0x428E601,0x428EADC,0x428EC00,0x428FE09,0x4290000,0x42B96E6,0x42B9ADC,0x42B9C00,0x4411A09,
    0x4411C00,0x441FE09,0x4420000,0x442E609,0x442EA07,0x442EC00,0x44402E6,0x4440C00,0x4449E00,0x444A000,0x444CE09,
    0x444D400,0x445CE07,0x445D000,0x4470209,0x4470400,0x4472A07,0x4472C00,0x448D609,0x448DA07,0x448DC00,0x44BA607,
    0x44BAA09,0x44BAC00,0x44CF207,0x44CF400,0x44CFA00,0x44CFC00,0x44D3609,0x44D3800,0x44D5E00,0x44D6000,0x44D9AE6,
    0x44DB400,0x44DC2E6,0x44DD400,0x4510A09,0x4510C00,0x4511A07,0x4511C00,0x452C200,0x452C400,0x452EA00,0x452EC00,
    0x452F600,0x452F800,0x4530A09,0x4530E07,0x4531000,0x456BE00,0x456C000,0x456FE09,0x4570207,0x4570400,0x458FE09,
    0x4590000,0x45ADA09,0x45ADE07,0x45AE000,0x45CAE09,0x45CB000,0x470FE09,0x4710000,0x5ABC201,0x5ABD400,0x5ACC2E6,
    0x5ACDC00,0x6F27A01,0x6F27C00,0x7457900,0x74596D8,0x7459E01,0x745A800,0x745B6E2,0x745BAD8,0x745CC00,0x745EEDC,
    0x7460C00,0x74616E6,0x7462ADC,0x7463000,0x746AAE6,0x746B800,0x746ED00,0x7470400,0x7490AE6,0x7491400,0x78002E6,
    0x7801C00,0x78022E6,0x7806400,0x7806EE6,0x7808800,0x7808EE6,0x7809400,0x7809AE6,0x780AC00,0x7A342DC,0x7A35C00,
    0x7A512E6,0x7A52A07,0x7A52C00,0xBE00100,0xBE87800,
};
/* Canonical decompositions without Hangul's: code point, first, second or 0; ascending. 21
   newer than Unicode 9 are left out. */
static const uint32_t heti_f_decompositions[2060][3] = {
    {0xC0,0x41,0x300},{0xC1,0x41,0x301},{0xC2,0x41,0x302},{0xC3,0x41,0x303},{0xC4,0x41,0x308},{0xC5,0x41,0x30A},
    {0xC7,0x43,0x327},{0xC8,0x45,0x300},{0xC9,0x45,0x301},{0xCA,0x45,0x302},{0xCB,0x45,0x308},{0xCC,0x49,0x300},
    {0xCD,0x49,0x301},{0xCE,0x49,0x302},{0xCF,0x49,0x308},{0xD1,0x4E,0x303},{0xD2,0x4F,0x300},{0xD3,0x4F,0x301},
    {0xD4,0x4F,0x302},{0xD5,0x4F,0x303},{0xD6,0x4F,0x308},{0xD9,0x55,0x300},{0xDA,0x55,0x301},{0xDB,0x55,0x302},
    {0xDC,0x55,0x308},{0xDD,0x59,0x301},{0xE0,0x61,0x300},{0xE1,0x61,0x301},{0xE2,0x61,0x302},{0xE3,0x61,0x303},
    {0xE4,0x61,0x308},{0xE5,0x61,0x30A},{0xE7,0x63,0x327},{0xE8,0x65,0x300},{0xE9,0x65,0x301},{0xEA,0x65,0x302},
    {0xEB,0x65,0x308},{0xEC,0x69,0x300},{0xED,0x69,0x301},{0xEE,0x69,0x302},{0xEF,0x69,0x308},{0xF1,0x6E,0x303},
    {0xF2,0x6F,0x300},{0xF3,0x6F,0x301},{0xF4,0x6F,0x302},{0xF5,0x6F,0x303},{0xF6,0x6F,0x308},{0xF9,0x75,0x300},
    {0xFA,0x75,0x301},{0xFB,0x75,0x302},{0xFC,0x75,0x308},{0xFD,0x79,0x301},{0xFF,0x79,0x308},{0x100,0x41,0x304},
    {0x101,0x61,0x304},{0x102,0x41,0x306},{0x103,0x61,0x306},{0x104,0x41,0x328},{0x105,0x61,0x328},{0x106,0x43,0x301},
    {0x107,0x63,0x301},{0x108,0x43,0x302},{0x109,0x63,0x302},{0x10A,0x43,0x307},{0x10B,0x63,0x307},{0x10C,0x43,0x30C},
    {0x10D,0x63,0x30C},{0x10E,0x44,0x30C},{0x10F,0x64,0x30C},{0x112,0x45,0x304},{0x113,0x65,0x304},{0x114,0x45,0x306},
    {0x115,0x65,0x306},{0x116,0x45,0x307},{0x117,0x65,0x307},{0x118,0x45,0x328},{0x119,0x65,0x328},{0x11A,0x45,0x30C},
    {0x11B,0x65,0x30C},{0x11C,0x47,0x302},{0x11D,0x67,0x302},{0x11E,0x47,0x306},{0x11F,0x67,0x306},{0x120,0x47,0x307},
    {0x121,0x67,0x307},{0x122,0x47,0x327},{0x123,0x67,0x327},{0x124,0x48,0x302},{0x125,0x68,0x302},{0x128,0x49,0x303},
    {0x129,0x69,0x303},{0x12A,0x49,0x304},{0x12B,0x69,0x304},{0x12C,0x49,0x306},{0x12D,0x69,0x306},{0x12E,0x49,0x328},
    {0x12F,0x69,0x328},{0x130,0x49,0x307},{0x134,0x4A,0x302},{0x135,0x6A,0x302},{0x136,0x4B,0x327},{0x137,0x6B,0x327},
    {0x139,0x4C,0x301},{0x13A,0x6C,0x301},{0x13B,0x4C,0x327},{0x13C,0x6C,0x327},{0x13D,0x4C,0x30C},{0x13E,0x6C,0x30C},
    {0x143,0x4E,0x301},{0x144,0x6E,0x301},{0x145,0x4E,0x327},{0x146,0x6E,0x327},{0x147,0x4E,0x30C},{0x148,0x6E,0x30C},
    {0x14C,0x4F,0x304},{0x14D,0x6F,0x304},{0x14E,0x4F,0x306},{0x14F,0x6F,0x306},{0x150,0x4F,0x30B},{0x151,0x6F,0x30B},
    {0x154,0x52,0x301},{0x155,0x72,0x301},{0x156,0x52,0x327},{0x157,0x72,0x327},{0x158,0x52,0x30C},{0x159,0x72,0x30C},
    {0x15A,0x53,0x301},{0x15B,0x73,0x301},{0x15C,0x53,0x302},{0x15D,0x73,0x302},{0x15E,0x53,0x327},{0x15F,0x73,0x327},
    {0x160,0x53,0x30C},{0x161,0x73,0x30C},{0x162,0x54,0x327},{0x163,0x74,0x327},{0x164,0x54,0x30C},{0x165,0x74,0x30C},
    {0x168,0x55,0x303},{0x169,0x75,0x303},{0x16A,0x55,0x304},{0x16B,0x75,0x304},{0x16C,0x55,0x306},{0x16D,0x75,0x306},
    {0x16E,0x55,0x30A},{0x16F,0x75,0x30A},{0x170,0x55,0x30B},{0x171,0x75,0x30B},{0x172,0x55,0x328},{0x173,0x75,0x328},
    {0x174,0x57,0x302},{0x175,0x77,0x302},{0x176,0x59,0x302},{0x177,0x79,0x302},{0x178,0x59,0x308},{0x179,0x5A,0x301},
    {0x17A,0x7A,0x301},{0x17B,0x5A,0x307},{0x17C,0x7A,0x307},{0x17D,0x5A,0x30C},{0x17E,0x7A,0x30C},{0x1A0,0x4F,0x31B},
    {0x1A1,0x6F,0x31B},{0x1AF,0x55,0x31B},{0x1B0,0x75,0x31B},{0x1CD,0x41,0x30C},{0x1CE,0x61,0x30C},{0x1CF,0x49,0x30C},
    {0x1D0,0x69,0x30C},{0x1D1,0x4F,0x30C},{0x1D2,0x6F,0x30C},{0x1D3,0x55,0x30C},{0x1D4,0x75,0x30C},{0x1D5,0xDC,0x304},
    {0x1D6,0xFC,0x304},{0x1D7,0xDC,0x301},{0x1D8,0xFC,0x301},{0x1D9,0xDC,0x30C},{0x1DA,0xFC,0x30C},{0x1DB,0xDC,0x300},
    {0x1DC,0xFC,0x300},{0x1DE,0xC4,0x304},{0x1DF,0xE4,0x304},{0x1E0,0x226,0x304},{0x1E1,0x227,0x304},{0x1E2,0xC6,0x304},
    {0x1E3,0xE6,0x304},{0x1E6,0x47,0x30C},{0x1E7,0x67,0x30C},{0x1E8,0x4B,0x30C},{0x1E9,0x6B,0x30C},{0x1EA,0x4F,0x328},
    {0x1EB,0x6F,0x328},{0x1EC,0x1EA,0x304},{0x1ED,0x1EB,0x304},{0x1EE,0x1B7,0x30C},{0x1EF,0x292,0x30C},
    {0x1F0,0x6A,0x30C},{0x1F4,0x47,0x301},{0x1F5,0x67,0x301},{0x1F8,0x4E,0x300},{0x1F9,0x6E,0x300},{0x1FA,0xC5,0x301},
    {0x1FB,0xE5,0x301},{0x1FC,0xC6,0x301},{0x1FD,0xE6,0x301},{0x1FE,0xD8,0x301},{0x1FF,0xF8,0x301},{0x200,0x41,0x30F},
    {0x201,0x61,0x30F},{0x202,0x41,0x311},{0x203,0x61,0x311},{0x204,0x45,0x30F},{0x205,0x65,0x30F},{0x206,0x45,0x311},
    {0x207,0x65,0x311},{0x208,0x49,0x30F},{0x209,0x69,0x30F},{0x20A,0x49,0x311},{0x20B,0x69,0x311},{0x20C,0x4F,0x30F},
    {0x20D,0x6F,0x30F},{0x20E,0x4F,0x311},{0x20F,0x6F,0x311},{0x210,0x52,0x30F},{0x211,0x72,0x30F},{0x212,0x52,0x311},
    {0x213,0x72,0x311},{0x214,0x55,0x30F},{0x215,0x75,0x30F},{0x216,0x55,0x311},{0x217,0x75,0x311},{0x218,0x53,0x326},
    {0x219,0x73,0x326},{0x21A,0x54,0x326},{0x21B,0x74,0x326},{0x21E,0x48,0x30C},{0x21F,0x68,0x30C},{0x226,0x41,0x307},
    {0x227,0x61,0x307},{0x228,0x45,0x327},{0x229,0x65,0x327},{0x22A,0xD6,0x304},{0x22B,0xF6,0x304},{0x22C,0xD5,0x304},
    {0x22D,0xF5,0x304},{0x22E,0x4F,0x307},{0x22F,0x6F,0x307},{0x230,0x22E,0x304},{0x231,0x22F,0x304},{0x232,0x59,0x304},
    {0x233,0x79,0x304},{0x340,0x300,0},{0x341,0x301,0},{0x343,0x313,0},{0x344,0x308,0x301},{0x374,0x2B9,0},
    {0x37E,0x3B,0},{0x385,0xA8,0x301},{0x386,0x391,0x301},{0x387,0xB7,0},{0x388,0x395,0x301},{0x389,0x397,0x301},
    {0x38A,0x399,0x301},{0x38C,0x39F,0x301},{0x38E,0x3A5,0x301},{0x38F,0x3A9,0x301},{0x390,0x3CA,0x301},
    {0x3AA,0x399,0x308},{0x3AB,0x3A5,0x308},{0x3AC,0x3B1,0x301},{0x3AD,0x3B5,0x301},{0x3AE,0x3B7,0x301},
    {0x3AF,0x3B9,0x301},{0x3B0,0x3CB,0x301},{0x3CA,0x3B9,0x308},{0x3CB,0x3C5,0x308},{0x3CC,0x3BF,0x301},
    {0x3CD,0x3C5,0x301},{0x3CE,0x3C9,0x301},{0x3D3,0x3D2,0x301},{0x3D4,0x3D2,0x308},{0x400,0x415,0x300},
    {0x401,0x415,0x308},{0x403,0x413,0x301},{0x407,0x406,0x308},{0x40C,0x41A,0x301},{0x40D,0x418,0x300},
    {0x40E,0x423,0x306},{0x419,0x418,0x306},{0x439,0x438,0x306},{0x450,0x435,0x300},{0x451,0x435,0x308},
    {0x453,0x433,0x301},{0x457,0x456,0x308},{0x45C,0x43A,0x301},{0x45D,0x438,0x300},{0x45E,0x443,0x306},
    {0x476,0x474,0x30F},{0x477,0x475,0x30F},{0x4C1,0x416,0x306},{0x4C2,0x436,0x306},{0x4D0,0x410,0x306},
    {0x4D1,0x430,0x306},{0x4D2,0x410,0x308},{0x4D3,0x430,0x308},{0x4D6,0x415,0x306},{0x4D7,0x435,0x306},
    {0x4DA,0x4D8,0x308},{0x4DB,0x4D9,0x308},{0x4DC,0x416,0x308},{0x4DD,0x436,0x308},{0x4DE,0x417,0x308},
    {0x4DF,0x437,0x308},{0x4E2,0x418,0x304},{0x4E3,0x438,0x304},{0x4E4,0x418,0x308},{0x4E5,0x438,0x308},
    {0x4E6,0x41E,0x308},{0x4E7,0x43E,0x308},{0x4EA,0x4E8,0x308},{0x4EB,0x4E9,0x308},{0x4EC,0x42D,0x308},
    {0x4ED,0x44D,0x308},{0x4EE,0x423,0x304},{0x4EF,0x443,0x304},{0x4F0,0x423,0x308},{0x4F1,0x443,0x308},
    {0x4F2,0x423,0x30B},{0x4F3,0x443,0x30B},{0x4F4,0x427,0x308},{0x4F5,0x447,0x308},{0x4F8,0x42B,0x308},
    {0x4F9,0x44B,0x308},{0x622,0x627,0x653},{0x623,0x627,0x654},{0x624,0x648,0x654},{0x625,0x627,0x655},
    {0x626,0x64A,0x654},{0x6C0,0x6D5,0x654},{0x6C2,0x6C1,0x654},{0x6D3,0x6D2,0x654},{0x929,0x928,0x93C},
    {0x931,0x930,0x93C},{0x934,0x933,0x93C},{0x958,0x915,0x93C},{0x959,0x916,0x93C},{0x95A,0x917,0x93C},
    {0x95B,0x91C,0x93C},{0x95C,0x921,0x93C},{0x95D,0x922,0x93C},{0x95E,0x92B,0x93C},{0x95F,0x92F,0x93C},
    {0x9CB,0x9C7,0x9BE},{0x9CC,0x9C7,0x9D7},{0x9DC,0x9A1,0x9BC},{0x9DD,0x9A2,0x9BC},{0x9DF,0x9AF,0x9BC},
    {0xA33,0xA32,0xA3C},{0xA36,0xA38,0xA3C},{0xA59,0xA16,0xA3C},{0xA5A,0xA17,0xA3C},{0xA5B,0xA1C,0xA3C},
    {0xA5E,0xA2B,0xA3C},{0xB48,0xB47,0xB56},{0xB4B,0xB47,0xB3E},{0xB4C,0xB47,0xB57},{0xB5C,0xB21,0xB3C},
    {0xB5D,0xB22,0xB3C},{0xB94,0xB92,0xBD7},{0xBCA,0xBC6,0xBBE},{0xBCB,0xBC7,0xBBE},{0xBCC,0xBC6,0xBD7},
    {0xC48,0xC46,0xC56},{0xCC0,0xCBF,0xCD5},{0xCC7,0xCC6,0xCD5},{0xCC8,0xCC6,0xCD6},{0xCCA,0xCC6,0xCC2},
    {0xCCB,0xCCA,0xCD5},{0xD4A,0xD46,0xD3E},{0xD4B,0xD47,0xD3E},{0xD4C,0xD46,0xD57},{0xDDA,0xDD9,0xDCA},
    {0xDDC,0xDD9,0xDCF},{0xDDD,0xDDC,0xDCA},{0xDDE,0xDD9,0xDDF},{0xF43,0xF42,0xFB7},{0xF4D,0xF4C,0xFB7},
    {0xF52,0xF51,0xFB7},{0xF57,0xF56,0xFB7},{0xF5C,0xF5B,0xFB7},{0xF69,0xF40,0xFB5},{0xF73,0xF71,0xF72},
    {0xF75,0xF71,0xF74},{0xF76,0xFB2,0xF80},{0xF78,0xFB3,0xF80},{0xF81,0xF71,0xF80},{0xF93,0xF92,0xFB7},
    {0xF9D,0xF9C,0xFB7},{0xFA2,0xFA1,0xFB7},{0xFA7,0xFA6,0xFB7},{0xFAC,0xFAB,0xFB7},{0xFB9,0xF90,0xFB5},
    {0x1026,0x1025,0x102E},{0x1B06,0x1B05,0x1B35},{0x1B08,0x1B07,0x1B35},{0x1B0A,0x1B09,0x1B35},{0x1B0C,0x1B0B,0x1B35},
    {0x1B0E,0x1B0D,0x1B35},{0x1B12,0x1B11,0x1B35},{0x1B3B,0x1B3A,0x1B35},{0x1B3D,0x1B3C,0x1B35},{0x1B40,0x1B3E,0x1B35},
    {0x1B41,0x1B3F,0x1B35},{0x1B43,0x1B42,0x1B35},{0x1E00,0x41,0x325},{0x1E01,0x61,0x325},{0x1E02,0x42,0x307},
    {0x1E03,0x62,0x307},{0x1E04,0x42,0x323},{0x1E05,0x62,0x323},{0x1E06,0x42,0x331},{0x1E07,0x62,0x331},
    {0x1E08,0xC7,0x301},{0x1E09,0xE7,0x301},{0x1E0A,0x44,0x307},{0x1E0B,0x64,0x307},{0x1E0C,0x44,0x323},
    {0x1E0D,0x64,0x323},{0x1E0E,0x44,0x331},{0x1E0F,0x64,0x331},{0x1E10,0x44,0x327},{0x1E11,0x64,0x327},
    {0x1E12,0x44,0x32D},{0x1E13,0x64,0x32D},{0x1E14,0x112,0x300},{0x1E15,0x113,0x300},{0x1E16,0x112,0x301},
    {0x1E17,0x113,0x301},{0x1E18,0x45,0x32D},{0x1E19,0x65,0x32D},{0x1E1A,0x45,0x330},{0x1E1B,0x65,0x330},
    {0x1E1C,0x228,0x306},{0x1E1D,0x229,0x306},{0x1E1E,0x46,0x307},{0x1E1F,0x66,0x307},{0x1E20,0x47,0x304},
    {0x1E21,0x67,0x304},{0x1E22,0x48,0x307},{0x1E23,0x68,0x307},{0x1E24,0x48,0x323},{0x1E25,0x68,0x323},
    {0x1E26,0x48,0x308},{0x1E27,0x68,0x308},{0x1E28,0x48,0x327},{0x1E29,0x68,0x327},{0x1E2A,0x48,0x32E},
    {0x1E2B,0x68,0x32E},{0x1E2C,0x49,0x330},{0x1E2D,0x69,0x330},{0x1E2E,0xCF,0x301},{0x1E2F,0xEF,0x301},
    {0x1E30,0x4B,0x301},{0x1E31,0x6B,0x301},{0x1E32,0x4B,0x323},{0x1E33,0x6B,0x323},{0x1E34,0x4B,0x331},
    {0x1E35,0x6B,0x331},{0x1E36,0x4C,0x323},{0x1E37,0x6C,0x323},{0x1E38,0x1E36,0x304},{0x1E39,0x1E37,0x304},
    {0x1E3A,0x4C,0x331},{0x1E3B,0x6C,0x331},{0x1E3C,0x4C,0x32D},{0x1E3D,0x6C,0x32D},{0x1E3E,0x4D,0x301},
    {0x1E3F,0x6D,0x301},{0x1E40,0x4D,0x307},{0x1E41,0x6D,0x307},{0x1E42,0x4D,0x323},{0x1E43,0x6D,0x323},
    {0x1E44,0x4E,0x307},{0x1E45,0x6E,0x307},{0x1E46,0x4E,0x323},{0x1E47,0x6E,0x323},{0x1E48,0x4E,0x331},
    {0x1E49,0x6E,0x331},{0x1E4A,0x4E,0x32D},{0x1E4B,0x6E,0x32D},{0x1E4C,0xD5,0x301},{0x1E4D,0xF5,0x301},
    {0x1E4E,0xD5,0x308},{0x1E4F,0xF5,0x308},{0x1E50,0x14C,0x300},{0x1E51,0x14D,0x300},{0x1E52,0x14C,0x301},
    {0x1E53,0x14D,0x301},{0x1E54,0x50,0x301},{0x1E55,0x70,0x301},{0x1E56,0x50,0x307},{0x1E57,0x70,0x307},
    {0x1E58,0x52,0x307},{0x1E59,0x72,0x307},{0x1E5A,0x52,0x323},{0x1E5B,0x72,0x323},{0x1E5C,0x1E5A,0x304},
    {0x1E5D,0x1E5B,0x304},{0x1E5E,0x52,0x331},{0x1E5F,0x72,0x331},{0x1E60,0x53,0x307},{0x1E61,0x73,0x307},
    {0x1E62,0x53,0x323},{0x1E63,0x73,0x323},{0x1E64,0x15A,0x307},{0x1E65,0x15B,0x307},{0x1E66,0x160,0x307},
    {0x1E67,0x161,0x307},{0x1E68,0x1E62,0x307},{0x1E69,0x1E63,0x307},{0x1E6A,0x54,0x307},{0x1E6B,0x74,0x307},
    {0x1E6C,0x54,0x323},{0x1E6D,0x74,0x323},{0x1E6E,0x54,0x331},{0x1E6F,0x74,0x331},{0x1E70,0x54,0x32D},
    {0x1E71,0x74,0x32D},{0x1E72,0x55,0x324},{0x1E73,0x75,0x324},{0x1E74,0x55,0x330},{0x1E75,0x75,0x330},
    {0x1E76,0x55,0x32D},{0x1E77,0x75,0x32D},{0x1E78,0x168,0x301},{0x1E79,0x169,0x301},{0x1E7A,0x16A,0x308},
    {0x1E7B,0x16B,0x308},{0x1E7C,0x56,0x303},{0x1E7D,0x76,0x303},{0x1E7E,0x56,0x323},{0x1E7F,0x76,0x323},
    {0x1E80,0x57,0x300},{0x1E81,0x77,0x300},{0x1E82,0x57,0x301},{0x1E83,0x77,0x301},{0x1E84,0x57,0x308},
    {0x1E85,0x77,0x308},{0x1E86,0x57,0x307},{0x1E87,0x77,0x307},{0x1E88,0x57,0x323},{0x1E89,0x77,0x323},
    {0x1E8A,0x58,0x307},{0x1E8B,0x78,0x307},{0x1E8C,0x58,0x308},{0x1E8D,0x78,0x308},{0x1E8E,0x59,0x307},
    {0x1E8F,0x79,0x307},{0x1E90,0x5A,0x302},{0x1E91,0x7A,0x302},{0x1E92,0x5A,0x323},{0x1E93,0x7A,0x323},
    {0x1E94,0x5A,0x331},{0x1E95,0x7A,0x331},{0x1E96,0x68,0x331},{0x1E97,0x74,0x308},{0x1E98,0x77,0x30A},
    {0x1E99,0x79,0x30A},{0x1E9B,0x17F,0x307},{0x1EA0,0x41,0x323},{0x1EA1,0x61,0x323},{0x1EA2,0x41,0x309},
    {0x1EA3,0x61,0x309},{0x1EA4,0xC2,0x301},{0x1EA5,0xE2,0x301},{0x1EA6,0xC2,0x300},{0x1EA7,0xE2,0x300},
    {0x1EA8,0xC2,0x309},{0x1EA9,0xE2,0x309},{0x1EAA,0xC2,0x303},{0x1EAB,0xE2,0x303},{0x1EAC,0x1EA0,0x302},
    {0x1EAD,0x1EA1,0x302},{0x1EAE,0x102,0x301},{0x1EAF,0x103,0x301},{0x1EB0,0x102,0x300},{0x1EB1,0x103,0x300},
    {0x1EB2,0x102,0x309},{0x1EB3,0x103,0x309},{0x1EB4,0x102,0x303},{0x1EB5,0x103,0x303},{0x1EB6,0x1EA0,0x306},
    {0x1EB7,0x1EA1,0x306},{0x1EB8,0x45,0x323},{0x1EB9,0x65,0x323},{0x1EBA,0x45,0x309},{0x1EBB,0x65,0x309},
    {0x1EBC,0x45,0x303},{0x1EBD,0x65,0x303},{0x1EBE,0xCA,0x301},{0x1EBF,0xEA,0x301},{0x1EC0,0xCA,0x300},
    {0x1EC1,0xEA,0x300},{0x1EC2,0xCA,0x309},{0x1EC3,0xEA,0x309},{0x1EC4,0xCA,0x303},{0x1EC5,0xEA,0x303},
    {0x1EC6,0x1EB8,0x302},{0x1EC7,0x1EB9,0x302},{0x1EC8,0x49,0x309},{0x1EC9,0x69,0x309},{0x1ECA,0x49,0x323},
    {0x1ECB,0x69,0x323},{0x1ECC,0x4F,0x323},{0x1ECD,0x6F,0x323},{0x1ECE,0x4F,0x309},{0x1ECF,0x6F,0x309},
    {0x1ED0,0xD4,0x301},{0x1ED1,0xF4,0x301},{0x1ED2,0xD4,0x300},{0x1ED3,0xF4,0x300},{0x1ED4,0xD4,0x309},
    {0x1ED5,0xF4,0x309},{0x1ED6,0xD4,0x303},{0x1ED7,0xF4,0x303},{0x1ED8,0x1ECC,0x302},{0x1ED9,0x1ECD,0x302},
    {0x1EDA,0x1A0,0x301},{0x1EDB,0x1A1,0x301},{0x1EDC,0x1A0,0x300},{0x1EDD,0x1A1,0x300},{0x1EDE,0x1A0,0x309},
    {0x1EDF,0x1A1,0x309},{0x1EE0,0x1A0,0x303},{0x1EE1,0x1A1,0x303},{0x1EE2,0x1A0,0x323},{0x1EE3,0x1A1,0x323},
    {0x1EE4,0x55,0x323},{0x1EE5,0x75,0x323},{0x1EE6,0x55,0x309},{0x1EE7,0x75,0x309},{0x1EE8,0x1AF,0x301},
    {0x1EE9,0x1B0,0x301},{0x1EEA,0x1AF,0x300},{0x1EEB,0x1B0,0x300},{0x1EEC,0x1AF,0x309},{0x1EED,0x1B0,0x309},
    {0x1EEE,0x1AF,0x303},{0x1EEF,0x1B0,0x303},{0x1EF0,0x1AF,0x323},{0x1EF1,0x1B0,0x323},{0x1EF2,0x59,0x300},
    {0x1EF3,0x79,0x300},{0x1EF4,0x59,0x323},{0x1EF5,0x79,0x323},{0x1EF6,0x59,0x309},{0x1EF7,0x79,0x309},
    {0x1EF8,0x59,0x303},{0x1EF9,0x79,0x303},{0x1F00,0x3B1,0x313},{0x1F01,0x3B1,0x314},{0x1F02,0x1F00,0x300},
    {0x1F03,0x1F01,0x300},{0x1F04,0x1F00,0x301},{0x1F05,0x1F01,0x301},{0x1F06,0x1F00,0x342},{0x1F07,0x1F01,0x342},
    {0x1F08,0x391,0x313},{0x1F09,0x391,0x314},{0x1F0A,0x1F08,0x300},{0x1F0B,0x1F09,0x300},{0x1F0C,0x1F08,0x301},
    {0x1F0D,0x1F09,0x301},{0x1F0E,0x1F08,0x342},{0x1F0F,0x1F09,0x342},{0x1F10,0x3B5,0x313},{0x1F11,0x3B5,0x314},
    {0x1F12,0x1F10,0x300},{0x1F13,0x1F11,0x300},{0x1F14,0x1F10,0x301},{0x1F15,0x1F11,0x301},{0x1F18,0x395,0x313},
    {0x1F19,0x395,0x314},{0x1F1A,0x1F18,0x300},{0x1F1B,0x1F19,0x300},{0x1F1C,0x1F18,0x301},{0x1F1D,0x1F19,0x301},
    {0x1F20,0x3B7,0x313},{0x1F21,0x3B7,0x314},{0x1F22,0x1F20,0x300},{0x1F23,0x1F21,0x300},{0x1F24,0x1F20,0x301},
    {0x1F25,0x1F21,0x301},{0x1F26,0x1F20,0x342},{0x1F27,0x1F21,0x342},{0x1F28,0x397,0x313},{0x1F29,0x397,0x314},
    {0x1F2A,0x1F28,0x300},{0x1F2B,0x1F29,0x300},{0x1F2C,0x1F28,0x301},{0x1F2D,0x1F29,0x301},{0x1F2E,0x1F28,0x342},
    {0x1F2F,0x1F29,0x342},{0x1F30,0x3B9,0x313},{0x1F31,0x3B9,0x314},{0x1F32,0x1F30,0x300},{0x1F33,0x1F31,0x300},
    {0x1F34,0x1F30,0x301},{0x1F35,0x1F31,0x301},{0x1F36,0x1F30,0x342},{0x1F37,0x1F31,0x342},{0x1F38,0x399,0x313},
    {0x1F39,0x399,0x314},{0x1F3A,0x1F38,0x300},{0x1F3B,0x1F39,0x300},{0x1F3C,0x1F38,0x301},{0x1F3D,0x1F39,0x301},
    {0x1F3E,0x1F38,0x342},{0x1F3F,0x1F39,0x342},{0x1F40,0x3BF,0x313},{0x1F41,0x3BF,0x314},{0x1F42,0x1F40,0x300},
    {0x1F43,0x1F41,0x300},{0x1F44,0x1F40,0x301},{0x1F45,0x1F41,0x301},{0x1F48,0x39F,0x313},{0x1F49,0x39F,0x314},
    {0x1F4A,0x1F48,0x300},{0x1F4B,0x1F49,0x300},{0x1F4C,0x1F48,0x301},{0x1F4D,0x1F49,0x301},{0x1F50,0x3C5,0x313},
    {0x1F51,0x3C5,0x314},{0x1F52,0x1F50,0x300},{0x1F53,0x1F51,0x300},{0x1F54,0x1F50,0x301},{0x1F55,0x1F51,0x301},
    {0x1F56,0x1F50,0x342},{0x1F57,0x1F51,0x342},{0x1F59,0x3A5,0x314},{0x1F5B,0x1F59,0x300},{0x1F5D,0x1F59,0x301},
    {0x1F5F,0x1F59,0x342},{0x1F60,0x3C9,0x313},{0x1F61,0x3C9,0x314},{0x1F62,0x1F60,0x300},{0x1F63,0x1F61,0x300},
    {0x1F64,0x1F60,0x301},{0x1F65,0x1F61,0x301},{0x1F66,0x1F60,0x342},{0x1F67,0x1F61,0x342},{0x1F68,0x3A9,0x313},
    {0x1F69,0x3A9,0x314},{0x1F6A,0x1F68,0x300},{0x1F6B,0x1F69,0x300},{0x1F6C,0x1F68,0x301},{0x1F6D,0x1F69,0x301},
    {0x1F6E,0x1F68,0x342},{0x1F6F,0x1F69,0x342},{0x1F70,0x3B1,0x300},{0x1F71,0x3AC,0},{0x1F72,0x3B5,0x300},
    {0x1F73,0x3AD,0},{0x1F74,0x3B7,0x300},{0x1F75,0x3AE,0},{0x1F76,0x3B9,0x300},{0x1F77,0x3AF,0},{0x1F78,0x3BF,0x300},
    {0x1F79,0x3CC,0},{0x1F7A,0x3C5,0x300},{0x1F7B,0x3CD,0},{0x1F7C,0x3C9,0x300},{0x1F7D,0x3CE,0},{0x1F80,0x1F00,0x345},
    {0x1F81,0x1F01,0x345},{0x1F82,0x1F02,0x345},{0x1F83,0x1F03,0x345},{0x1F84,0x1F04,0x345},{0x1F85,0x1F05,0x345},
    {0x1F86,0x1F06,0x345},{0x1F87,0x1F07,0x345},{0x1F88,0x1F08,0x345},{0x1F89,0x1F09,0x345},{0x1F8A,0x1F0A,0x345},
    {0x1F8B,0x1F0B,0x345},{0x1F8C,0x1F0C,0x345},{0x1F8D,0x1F0D,0x345},{0x1F8E,0x1F0E,0x345},{0x1F8F,0x1F0F,0x345},
    {0x1F90,0x1F20,0x345},{0x1F91,0x1F21,0x345},{0x1F92,0x1F22,0x345},{0x1F93,0x1F23,0x345},{0x1F94,0x1F24,0x345},
    {0x1F95,0x1F25,0x345},{0x1F96,0x1F26,0x345},{0x1F97,0x1F27,0x345},{0x1F98,0x1F28,0x345},{0x1F99,0x1F29,0x345},
    {0x1F9A,0x1F2A,0x345},{0x1F9B,0x1F2B,0x345},{0x1F9C,0x1F2C,0x345},{0x1F9D,0x1F2D,0x345},{0x1F9E,0x1F2E,0x345},
    {0x1F9F,0x1F2F,0x345},{0x1FA0,0x1F60,0x345},{0x1FA1,0x1F61,0x345},{0x1FA2,0x1F62,0x345},{0x1FA3,0x1F63,0x345},
    {0x1FA4,0x1F64,0x345},{0x1FA5,0x1F65,0x345},{0x1FA6,0x1F66,0x345},{0x1FA7,0x1F67,0x345},{0x1FA8,0x1F68,0x345},
    {0x1FA9,0x1F69,0x345},{0x1FAA,0x1F6A,0x345},{0x1FAB,0x1F6B,0x345},{0x1FAC,0x1F6C,0x345},{0x1FAD,0x1F6D,0x345},
    {0x1FAE,0x1F6E,0x345},{0x1FAF,0x1F6F,0x345},{0x1FB0,0x3B1,0x306},{0x1FB1,0x3B1,0x304},{0x1FB2,0x1F70,0x345},
    {0x1FB3,0x3B1,0x345},{0x1FB4,0x3AC,0x345},{0x1FB6,0x3B1,0x342},{0x1FB7,0x1FB6,0x345},{0x1FB8,0x391,0x306},
    {0x1FB9,0x391,0x304},{0x1FBA,0x391,0x300},{0x1FBB,0x386,0},{0x1FBC,0x391,0x345},{0x1FBE,0x3B9,0},
    {0x1FC1,0xA8,0x342},{0x1FC2,0x1F74,0x345},{0x1FC3,0x3B7,0x345},{0x1FC4,0x3AE,0x345},{0x1FC6,0x3B7,0x342},
    {0x1FC7,0x1FC6,0x345},{0x1FC8,0x395,0x300},{0x1FC9,0x388,0},{0x1FCA,0x397,0x300},{0x1FCB,0x389,0},
    {0x1FCC,0x397,0x345},{0x1FCD,0x1FBF,0x300},{0x1FCE,0x1FBF,0x301},{0x1FCF,0x1FBF,0x342},{0x1FD0,0x3B9,0x306},
    {0x1FD1,0x3B9,0x304},{0x1FD2,0x3CA,0x300},{0x1FD3,0x390,0},{0x1FD6,0x3B9,0x342},{0x1FD7,0x3CA,0x342},
    {0x1FD8,0x399,0x306},{0x1FD9,0x399,0x304},{0x1FDA,0x399,0x300},{0x1FDB,0x38A,0},{0x1FDD,0x1FFE,0x300},
    {0x1FDE,0x1FFE,0x301},{0x1FDF,0x1FFE,0x342},{0x1FE0,0x3C5,0x306},{0x1FE1,0x3C5,0x304},{0x1FE2,0x3CB,0x300},
    {0x1FE3,0x3B0,0},{0x1FE4,0x3C1,0x313},{0x1FE5,0x3C1,0x314},{0x1FE6,0x3C5,0x342},{0x1FE7,0x3CB,0x342},
    {0x1FE8,0x3A5,0x306},{0x1FE9,0x3A5,0x304},{0x1FEA,0x3A5,0x300},{0x1FEB,0x38E,0},{0x1FEC,0x3A1,0x314},
    {0x1FED,0xA8,0x300},{0x1FEE,0x385,0},{0x1FEF,0x60,0},{0x1FF2,0x1F7C,0x345},{0x1FF3,0x3C9,0x345},
    {0x1FF4,0x3CE,0x345},{0x1FF6,0x3C9,0x342},{0x1FF7,0x1FF6,0x345},{0x1FF8,0x39F,0x300},{0x1FF9,0x38C,0},
    {0x1FFA,0x3A9,0x300},{0x1FFB,0x38F,0},{0x1FFC,0x3A9,0x345},{0x1FFD,0xB4,0},{0x2000,0x2002,0},{0x2001,0x2003,0},
    {0x2126,0x3A9,0},{0x212A,0x4B,0},{0x212B,0xC5,0},{0x219A,0x2190,0x338},{0x219B,0x2192,0x338},{0x21AE,0x2194,0x338},
    {0x21CD,0x21D0,0x338},{0x21CE,0x21D4,0x338},{0x21CF,0x21D2,0x338},{0x2204,0x2203,0x338},{0x2209,0x2208,0x338},
    {0x220C,0x220B,0x338},{0x2224,0x2223,0x338},{0x2226,0x2225,0x338},{0x2241,0x223C,0x338},{0x2244,0x2243,0x338},
    {0x2247,0x2245,0x338},{0x2249,0x2248,0x338},{0x2260,0x3D,0x338},{0x2262,0x2261,0x338},{0x226D,0x224D,0x338},
    {0x226E,0x3C,0x338},{0x226F,0x3E,0x338},{0x2270,0x2264,0x338},{0x2271,0x2265,0x338},{0x2274,0x2272,0x338},
    {0x2275,0x2273,0x338},{0x2278,0x2276,0x338},{0x2279,0x2277,0x338},{0x2280,0x227A,0x338},{0x2281,0x227B,0x338},
    {0x2284,0x2282,0x338},{0x2285,0x2283,0x338},{0x2288,0x2286,0x338},{0x2289,0x2287,0x338},{0x22AC,0x22A2,0x338},
    {0x22AD,0x22A8,0x338},{0x22AE,0x22A9,0x338},{0x22AF,0x22AB,0x338},{0x22E0,0x227C,0x338},{0x22E1,0x227D,0x338},
    {0x22E2,0x2291,0x338},{0x22E3,0x2292,0x338},{0x22EA,0x22B2,0x338},{0x22EB,0x22B3,0x338},{0x22EC,0x22B4,0x338},
    {0x22ED,0x22B5,0x338},{0x2329,0x3008,0},{0x232A,0x3009,0},{0x2ADC,0x2ADD,0x338},{0x304C,0x304B,0x3099},
    {0x304E,0x304D,0x3099},{0x3050,0x304F,0x3099},{0x3052,0x3051,0x3099},{0x3054,0x3053,0x3099},{0x3056,0x3055,0x3099},
    {0x3058,0x3057,0x3099},{0x305A,0x3059,0x3099},{0x305C,0x305B,0x3099},{0x305E,0x305D,0x3099},{0x3060,0x305F,0x3099},
    {0x3062,0x3061,0x3099},{0x3065,0x3064,0x3099},{0x3067,0x3066,0x3099},{0x3069,0x3068,0x3099},{0x3070,0x306F,0x3099},
    {0x3071,0x306F,0x309A},{0x3073,0x3072,0x3099},{0x3074,0x3072,0x309A},{0x3076,0x3075,0x3099},{0x3077,0x3075,0x309A},
    {0x3079,0x3078,0x3099},{0x307A,0x3078,0x309A},{0x307C,0x307B,0x3099},{0x307D,0x307B,0x309A},{0x3094,0x3046,0x3099},
    {0x309E,0x309D,0x3099},{0x30AC,0x30AB,0x3099},{0x30AE,0x30AD,0x3099},{0x30B0,0x30AF,0x3099},{0x30B2,0x30B1,0x3099},
    {0x30B4,0x30B3,0x3099},{0x30B6,0x30B5,0x3099},{0x30B8,0x30B7,0x3099},{0x30BA,0x30B9,0x3099},{0x30BC,0x30BB,0x3099},
    {0x30BE,0x30BD,0x3099},{0x30C0,0x30BF,0x3099},{0x30C2,0x30C1,0x3099},{0x30C5,0x30C4,0x3099},{0x30C7,0x30C6,0x3099},
    {0x30C9,0x30C8,0x3099},{0x30D0,0x30CF,0x3099},{0x30D1,0x30CF,0x309A},{0x30D3,0x30D2,0x3099},{0x30D4,0x30D2,0x309A},
    {0x30D6,0x30D5,0x3099},{0x30D7,0x30D5,0x309A},{0x30D9,0x30D8,0x3099},{0x30DA,0x30D8,0x309A},{0x30DC,0x30DB,0x3099},
    {0x30DD,0x30DB,0x309A},{0x30F4,0x30A6,0x3099},{0x30F7,0x30EF,0x3099},{0x30F8,0x30F0,0x3099},{0x30F9,0x30F1,0x3099},
    {0x30FA,0x30F2,0x3099},{0x30FE,0x30FD,0x3099},{0xF900,0x8C48,0},{0xF901,0x66F4,0},{0xF902,0x8ECA,0},
    {0xF903,0x8CC8,0},{0xF904,0x6ED1,0},{0xF905,0x4E32,0},{0xF906,0x53E5,0},{0xF907,0x9F9C,0},{0xF908,0x9F9C,0},
    {0xF909,0x5951,0},{0xF90A,0x91D1,0},{0xF90B,0x5587,0},{0xF90C,0x5948,0},{0xF90D,0x61F6,0},{0xF90E,0x7669,0},
    {0xF90F,0x7F85,0},{0xF910,0x863F,0},{0xF911,0x87BA,0},{0xF912,0x88F8,0},{0xF913,0x908F,0},{0xF914,0x6A02,0},
    {0xF915,0x6D1B,0},{0xF916,0x70D9,0},{0xF917,0x73DE,0},{0xF918,0x843D,0},{0xF919,0x916A,0},{0xF91A,0x99F1,0},
    {0xF91B,0x4E82,0},{0xF91C,0x5375,0},{0xF91D,0x6B04,0},{0xF91E,0x721B,0},{0xF91F,0x862D,0},{0xF920,0x9E1E,0},
    {0xF921,0x5D50,0},{0xF922,0x6FEB,0},{0xF923,0x85CD,0},{0xF924,0x8964,0},{0xF925,0x62C9,0},{0xF926,0x81D8,0},
    {0xF927,0x881F,0},{0xF928,0x5ECA,0},{0xF929,0x6717,0},{0xF92A,0x6D6A,0},{0xF92B,0x72FC,0},{0xF92C,0x90CE,0},
    {0xF92D,0x4F86,0},{0xF92E,0x51B7,0},{0xF92F,0x52DE,0},{0xF930,0x64C4,0},{0xF931,0x6AD3,0},{0xF932,0x7210,0},
    {0xF933,0x76E7,0},{0xF934,0x8001,0},{0xF935,0x8606,0},{0xF936,0x865C,0},{0xF937,0x8DEF,0},{0xF938,0x9732,0},
    {0xF939,0x9B6F,0},{0xF93A,0x9DFA,0},{0xF93B,0x788C,0},{0xF93C,0x797F,0},{0xF93D,0x7DA0,0},{0xF93E,0x83C9,0},
    {0xF93F,0x9304,0},{0xF940,0x9E7F,0},{0xF941,0x8AD6,0},{0xF942,0x58DF,0},{0xF943,0x5F04,0},{0xF944,0x7C60,0},
    {0xF945,0x807E,0},{0xF946,0x7262,0},{0xF947,0x78CA,0},{0xF948,0x8CC2,0},{0xF949,0x96F7,0},{0xF94A,0x58D8,0},
    {0xF94B,0x5C62,0},{0xF94C,0x6A13,0},{0xF94D,0x6DDA,0},{0xF94E,0x6F0F,0},{0xF94F,0x7D2F,0},{0xF950,0x7E37,0},
    {0xF951,0x964B,0},{0xF952,0x52D2,0},{0xF953,0x808B,0},{0xF954,0x51DC,0},{0xF955,0x51CC,0},{0xF956,0x7A1C,0},
    {0xF957,0x7DBE,0},{0xF958,0x83F1,0},{0xF959,0x9675,0},{0xF95A,0x8B80,0},{0xF95B,0x62CF,0},{0xF95C,0x6A02,0},
    {0xF95D,0x8AFE,0},{0xF95E,0x4E39,0},{0xF95F,0x5BE7,0},{0xF960,0x6012,0},{0xF961,0x7387,0},{0xF962,0x7570,0},
    {0xF963,0x5317,0},{0xF964,0x78FB,0},{0xF965,0x4FBF,0},{0xF966,0x5FA9,0},{0xF967,0x4E0D,0},{0xF968,0x6CCC,0},
    {0xF969,0x6578,0},{0xF96A,0x7D22,0},{0xF96B,0x53C3,0},{0xF96C,0x585E,0},{0xF96D,0x7701,0},{0xF96E,0x8449,0},
    {0xF96F,0x8AAA,0},{0xF970,0x6BBA,0},{0xF971,0x8FB0,0},{0xF972,0x6C88,0},{0xF973,0x62FE,0},{0xF974,0x82E5,0},
    {0xF975,0x63A0,0},{0xF976,0x7565,0},{0xF977,0x4EAE,0},{0xF978,0x5169,0},{0xF979,0x51C9,0},{0xF97A,0x6881,0},
    {0xF97B,0x7CE7,0},{0xF97C,0x826F,0},{0xF97D,0x8AD2,0},{0xF97E,0x91CF,0},{0xF97F,0x52F5,0},{0xF980,0x5442,0},
    {0xF981,0x5973,0},{0xF982,0x5EEC,0},{0xF983,0x65C5,0},{0xF984,0x6FFE,0},{0xF985,0x792A,0},{0xF986,0x95AD,0},
    {0xF987,0x9A6A,0},{0xF988,0x9E97,0},{0xF989,0x9ECE,0},{0xF98A,0x529B,0},{0xF98B,0x66C6,0},{0xF98C,0x6B77,0},
    {0xF98D,0x8F62,0},{0xF98E,0x5E74,0},{0xF98F,0x6190,0},{0xF990,0x6200,0},{0xF991,0x649A,0},{0xF992,0x6F23,0},
    {0xF993,0x7149,0},{0xF994,0x7489,0},{0xF995,0x79CA,0},{0xF996,0x7DF4,0},{0xF997,0x806F,0},{0xF998,0x8F26,0},
    {0xF999,0x84EE,0},{0xF99A,0x9023,0},{0xF99B,0x934A,0},{0xF99C,0x5217,0},{0xF99D,0x52A3,0},{0xF99E,0x54BD,0},
    {0xF99F,0x70C8,0},{0xF9A0,0x88C2,0},{0xF9A1,0x8AAA,0},{0xF9A2,0x5EC9,0},{0xF9A3,0x5FF5,0},{0xF9A4,0x637B,0},
    {0xF9A5,0x6BAE,0},{0xF9A6,0x7C3E,0},{0xF9A7,0x7375,0},{0xF9A8,0x4EE4,0},{0xF9A9,0x56F9,0},{0xF9AA,0x5BE7,0},
    {0xF9AB,0x5DBA,0},{0xF9AC,0x601C,0},{0xF9AD,0x73B2,0},{0xF9AE,0x7469,0},{0xF9AF,0x7F9A,0},{0xF9B0,0x8046,0},
    {0xF9B1,0x9234,0},{0xF9B2,0x96F6,0},{0xF9B3,0x9748,0},{0xF9B4,0x9818,0},{0xF9B5,0x4F8B,0},{0xF9B6,0x79AE,0},
    {0xF9B7,0x91B4,0},{0xF9B8,0x96B8,0},{0xF9B9,0x60E1,0},{0xF9BA,0x4E86,0},{0xF9BB,0x50DA,0},{0xF9BC,0x5BEE,0},
    {0xF9BD,0x5C3F,0},{0xF9BE,0x6599,0},{0xF9BF,0x6A02,0},{0xF9C0,0x71CE,0},{0xF9C1,0x7642,0},{0xF9C2,0x84FC,0},
    {0xF9C3,0x907C,0},{0xF9C4,0x9F8D,0},{0xF9C5,0x6688,0},{0xF9C6,0x962E,0},{0xF9C7,0x5289,0},{0xF9C8,0x677B,0},
    {0xF9C9,0x67F3,0},{0xF9CA,0x6D41,0},{0xF9CB,0x6E9C,0},{0xF9CC,0x7409,0},{0xF9CD,0x7559,0},{0xF9CE,0x786B,0},
    {0xF9CF,0x7D10,0},{0xF9D0,0x985E,0},{0xF9D1,0x516D,0},{0xF9D2,0x622E,0},{0xF9D3,0x9678,0},{0xF9D4,0x502B,0},
    {0xF9D5,0x5D19,0},{0xF9D6,0x6DEA,0},{0xF9D7,0x8F2A,0},{0xF9D8,0x5F8B,0},{0xF9D9,0x6144,0},{0xF9DA,0x6817,0},
    {0xF9DB,0x7387,0},{0xF9DC,0x9686,0},{0xF9DD,0x5229,0},{0xF9DE,0x540F,0},{0xF9DF,0x5C65,0},{0xF9E0,0x6613,0},
    {0xF9E1,0x674E,0},{0xF9E2,0x68A8,0},{0xF9E3,0x6CE5,0},{0xF9E4,0x7406,0},{0xF9E5,0x75E2,0},{0xF9E6,0x7F79,0},
    {0xF9E7,0x88CF,0},{0xF9E8,0x88E1,0},{0xF9E9,0x91CC,0},{0xF9EA,0x96E2,0},{0xF9EB,0x533F,0},{0xF9EC,0x6EBA,0},
    {0xF9ED,0x541D,0},{0xF9EE,0x71D0,0},{0xF9EF,0x7498,0},{0xF9F0,0x85FA,0},{0xF9F1,0x96A3,0},{0xF9F2,0x9C57,0},
    {0xF9F3,0x9E9F,0},{0xF9F4,0x6797,0},{0xF9F5,0x6DCB,0},{0xF9F6,0x81E8,0},{0xF9F7,0x7ACB,0},{0xF9F8,0x7B20,0},
    {0xF9F9,0x7C92,0},{0xF9FA,0x72C0,0},{0xF9FB,0x7099,0},{0xF9FC,0x8B58,0},{0xF9FD,0x4EC0,0},{0xF9FE,0x8336,0},
    {0xF9FF,0x523A,0},{0xFA00,0x5207,0},{0xFA01,0x5EA6,0},{0xFA02,0x62D3,0},{0xFA03,0x7CD6,0},{0xFA04,0x5B85,0},
    {0xFA05,0x6D1E,0},{0xFA06,0x66B4,0},{0xFA07,0x8F3B,0},{0xFA08,0x884C,0},{0xFA09,0x964D,0},{0xFA0A,0x898B,0},
    {0xFA0B,0x5ED3,0},{0xFA0C,0x5140,0},{0xFA0D,0x55C0,0},{0xFA10,0x585A,0},{0xFA12,0x6674,0},{0xFA15,0x51DE,0},
    {0xFA16,0x732A,0},{0xFA17,0x76CA,0},{0xFA18,0x793C,0},{0xFA19,0x795E,0},{0xFA1A,0x7965,0},{0xFA1B,0x798F,0},
    {0xFA1C,0x9756,0},{0xFA1D,0x7CBE,0},{0xFA1E,0x7FBD,0},{0xFA20,0x8612,0},{0xFA22,0x8AF8,0},{0xFA25,0x9038,0},
    {0xFA26,0x90FD,0},{0xFA2A,0x98EF,0},{0xFA2B,0x98FC,0},{0xFA2C,0x9928,0},{0xFA2D,0x9DB4,0},{0xFA2E,0x90DE,0},
    {0xFA2F,0x96B7,0},{0xFA30,0x4FAE,0},{0xFA31,0x50E7,0},{0xFA32,0x514D,0},{0xFA33,0x52C9,0},{0xFA34,0x52E4,0},
    {0xFA35,0x5351,0},{0xFA36,0x559D,0},{0xFA37,0x5606,0},{0xFA38,0x5668,0},{0xFA39,0x5840,0},{0xFA3A,0x58A8,0},
    {0xFA3B,0x5C64,0},{0xFA3C,0x5C6E,0},{0xFA3D,0x6094,0},{0xFA3E,0x6168,0},{0xFA3F,0x618E,0},{0xFA40,0x61F2,0},
    {0xFA41,0x654F,0},{0xFA42,0x65E2,0},{0xFA43,0x6691,0},{0xFA44,0x6885,0},{0xFA45,0x6D77,0},{0xFA46,0x6E1A,0},
    {0xFA47,0x6F22,0},{0xFA48,0x716E,0},{0xFA49,0x722B,0},{0xFA4A,0x7422,0},{0xFA4B,0x7891,0},{0xFA4C,0x793E,0},
    {0xFA4D,0x7949,0},{0xFA4E,0x7948,0},{0xFA4F,0x7950,0},{0xFA50,0x7956,0},{0xFA51,0x795D,0},{0xFA52,0x798D,0},
    {0xFA53,0x798E,0},{0xFA54,0x7A40,0},{0xFA55,0x7A81,0},{0xFA56,0x7BC0,0},{0xFA57,0x7DF4,0},{0xFA58,0x7E09,0},
    {0xFA59,0x7E41,0},{0xFA5A,0x7F72,0},{0xFA5B,0x8005,0},{0xFA5C,0x81ED,0},{0xFA5D,0x8279,0},{0xFA5E,0x8279,0},
    {0xFA5F,0x8457,0},{0xFA60,0x8910,0},{0xFA61,0x8996,0},{0xFA62,0x8B01,0},{0xFA63,0x8B39,0},{0xFA64,0x8CD3,0},
    {0xFA65,0x8D08,0},{0xFA66,0x8FB6,0},{0xFA67,0x9038,0},{0xFA68,0x96E3,0},{0xFA69,0x97FF,0},{0xFA6A,0x983B,0},
    {0xFA6B,0x6075,0},{0xFA6C,0x242EE,0},{0xFA6D,0x8218,0},{0xFA70,0x4E26,0},{0xFA71,0x51B5,0},{0xFA72,0x5168,0},
    {0xFA73,0x4F80,0},{0xFA74,0x5145,0},{0xFA75,0x5180,0},{0xFA76,0x52C7,0},{0xFA77,0x52FA,0},{0xFA78,0x559D,0},
    {0xFA79,0x5555,0},{0xFA7A,0x5599,0},{0xFA7B,0x55E2,0},{0xFA7C,0x585A,0},{0xFA7D,0x58B3,0},{0xFA7E,0x5944,0},
    {0xFA7F,0x5954,0},{0xFA80,0x5A62,0},{0xFA81,0x5B28,0},{0xFA82,0x5ED2,0},{0xFA83,0x5ED9,0},{0xFA84,0x5F69,0},
    {0xFA85,0x5FAD,0},{0xFA86,0x60D8,0},{0xFA87,0x614E,0},{0xFA88,0x6108,0},{0xFA89,0x618E,0},{0xFA8A,0x6160,0},
    {0xFA8B,0x61F2,0},{0xFA8C,0x6234,0},{0xFA8D,0x63C4,0},{0xFA8E,0x641C,0},{0xFA8F,0x6452,0},{0xFA90,0x6556,0},
    {0xFA91,0x6674,0},{0xFA92,0x6717,0},{0xFA93,0x671B,0},{0xFA94,0x6756,0},{0xFA95,0x6B79,0},{0xFA96,0x6BBA,0},
    {0xFA97,0x6D41,0},{0xFA98,0x6EDB,0},{0xFA99,0x6ECB,0},{0xFA9A,0x6F22,0},{0xFA9B,0x701E,0},{0xFA9C,0x716E,0},
    {0xFA9D,0x77A7,0},{0xFA9E,0x7235,0},{0xFA9F,0x72AF,0},{0xFAA0,0x732A,0},{0xFAA1,0x7471,0},{0xFAA2,0x7506,0},
    {0xFAA3,0x753B,0},{0xFAA4,0x761D,0},{0xFAA5,0x761F,0},{0xFAA6,0x76CA,0},{0xFAA7,0x76DB,0},{0xFAA8,0x76F4,0},
    {0xFAA9,0x774A,0},{0xFAAA,0x7740,0},{0xFAAB,0x78CC,0},{0xFAAC,0x7AB1,0},{0xFAAD,0x7BC0,0},{0xFAAE,0x7C7B,0},
    {0xFAAF,0x7D5B,0},{0xFAB0,0x7DF4,0},{0xFAB1,0x7F3E,0},{0xFAB2,0x8005,0},{0xFAB3,0x8352,0},{0xFAB4,0x83EF,0},
    {0xFAB5,0x8779,0},{0xFAB6,0x8941,0},{0xFAB7,0x8986,0},{0xFAB8,0x8996,0},{0xFAB9,0x8ABF,0},{0xFABA,0x8AF8,0},
    {0xFABB,0x8ACB,0},{0xFABC,0x8B01,0},{0xFABD,0x8AFE,0},{0xFABE,0x8AED,0},{0xFABF,0x8B39,0},{0xFAC0,0x8B8A,0},
    {0xFAC1,0x8D08,0},{0xFAC2,0x8F38,0},{0xFAC3,0x9072,0},{0xFAC4,0x9199,0},{0xFAC5,0x9276,0},{0xFAC6,0x967C,0},
    {0xFAC7,0x96E3,0},{0xFAC8,0x9756,0},{0xFAC9,0x97DB,0},{0xFACA,0x97FF,0},{0xFACB,0x980B,0},{0xFACC,0x983B,0},
    {0xFACD,0x9B12,0},{0xFACE,0x9F9C,0},{0xFACF,0x2284A,0},{0xFAD0,0x22844,0},{0xFAD1,0x233D5,0},{0xFAD2,0x3B9D,0},
    {0xFAD3,0x4018,0},{0xFAD4,0x4039,0},{0xFAD5,0x25249,0},{0xFAD6,0x25CD0,0},{0xFAD7,0x27ED3,0},{0xFAD8,0x9F43,0},
    {0xFAD9,0x9F8E,0},{0xFB1D,0x5D9,0x5B4},{0xFB1F,0x5F2,0x5B7},{0xFB2A,0x5E9,0x5C1},{0xFB2B,0x5E9,0x5C2},
    {0xFB2C,0xFB49,0x5C1},{0xFB2D,0xFB49,0x5C2},{0xFB2E,0x5D0,0x5B7},{0xFB2F,0x5D0,0x5B8},{0xFB30,0x5D0,0x5BC},
    {0xFB31,0x5D1,0x5BC},{0xFB32,0x5D2,0x5BC},{0xFB33,0x5D3,0x5BC},{0xFB34,0x5D4,0x5BC},{0xFB35,0x5D5,0x5BC},
    {0xFB36,0x5D6,0x5BC},{0xFB38,0x5D8,0x5BC},{0xFB39,0x5D9,0x5BC},{0xFB3A,0x5DA,0x5BC},{0xFB3B,0x5DB,0x5BC},
    {0xFB3C,0x5DC,0x5BC},{0xFB3E,0x5DE,0x5BC},{0xFB40,0x5E0,0x5BC},{0xFB41,0x5E1,0x5BC},{0xFB43,0x5E3,0x5BC},
    {0xFB44,0x5E4,0x5BC},{0xFB46,0x5E6,0x5BC},{0xFB47,0x5E7,0x5BC},{0xFB48,0x5E8,0x5BC},{0xFB49,0x5E9,0x5BC},
    {0xFB4A,0x5EA,0x5BC},{0xFB4B,0x5D5,0x5B9},{0xFB4C,0x5D1,0x5BF},{0xFB4D,0x5DB,0x5BF},{0xFB4E,0x5E4,0x5BF},
    {0x1109A,0x11099,0x110BA},{0x1109C,0x1109B,0x110BA},{0x110AB,0x110A5,0x110BA},{0x1112E,0x11131,0x11127},
    {0x1112F,0x11132,0x11127},{0x1134B,0x11347,0x1133E},{0x1134C,0x11347,0x11357},{0x114BB,0x114B9,0x114BA},
    {0x114BC,0x114B9,0x114B0},{0x114BE,0x114B9,0x114BD},{0x115BA,0x115B8,0x115AF},{0x115BB,0x115B9,0x115AF},
    {0x1D15E,0x1D157,0x1D165},{0x1D15F,0x1D158,0x1D165},{0x1D160,0x1D15F,0x1D16E},{0x1D161,0x1D15F,0x1D16F},
    {0x1D162,0x1D15F,0x1D170},{0x1D163,0x1D15F,0x1D171},{0x1D164,0x1D15F,0x1D172},{0x1D1BB,0x1D1B9,0x1D165},
    {0x1D1BC,0x1D1BA,0x1D165},{0x1D1BD,0x1D1BB,0x1D16E},{0x1D1BE,0x1D1BC,0x1D16E},{0x1D1BF,0x1D1BB,0x1D16F},
    {0x1D1C0,0x1D1BC,0x1D16F},{0x2F800,0x4E3D,0},{0x2F801,0x4E38,0},{0x2F802,0x4E41,0},{0x2F803,0x20122,0},
    {0x2F804,0x4F60,0},{0x2F805,0x4FAE,0},{0x2F806,0x4FBB,0},{0x2F807,0x5002,0},{0x2F808,0x507A,0},{0x2F809,0x5099,0},
    {0x2F80A,0x50E7,0},{0x2F80B,0x50CF,0},{0x2F80C,0x349E,0},{0x2F80D,0x2063A,0},{0x2F80E,0x514D,0},{0x2F80F,0x5154,0},
    {0x2F810,0x5164,0},{0x2F811,0x5177,0},{0x2F812,0x2051C,0},{0x2F813,0x34B9,0},{0x2F814,0x5167,0},{0x2F815,0x518D,0},
    {0x2F816,0x2054B,0},{0x2F817,0x5197,0},{0x2F818,0x51A4,0},{0x2F819,0x4ECC,0},{0x2F81A,0x51AC,0},{0x2F81B,0x51B5,0},
    {0x2F81C,0x291DF,0},{0x2F81D,0x51F5,0},{0x2F81E,0x5203,0},{0x2F81F,0x34DF,0},{0x2F820,0x523B,0},{0x2F821,0x5246,0},
    {0x2F822,0x5272,0},{0x2F823,0x5277,0},{0x2F824,0x3515,0},{0x2F825,0x52C7,0},{0x2F826,0x52C9,0},{0x2F827,0x52E4,0},
    {0x2F828,0x52FA,0},{0x2F829,0x5305,0},{0x2F82A,0x5306,0},{0x2F82B,0x5317,0},{0x2F82C,0x5349,0},{0x2F82D,0x5351,0},
    {0x2F82E,0x535A,0},{0x2F82F,0x5373,0},{0x2F830,0x537D,0},{0x2F831,0x537F,0},{0x2F832,0x537F,0},{0x2F833,0x537F,0},
    {0x2F834,0x20A2C,0},{0x2F835,0x7070,0},{0x2F836,0x53CA,0},{0x2F837,0x53DF,0},{0x2F838,0x20B63,0},{0x2F839,0x53EB,0},
    {0x2F83A,0x53F1,0},{0x2F83B,0x5406,0},{0x2F83C,0x549E,0},{0x2F83D,0x5438,0},{0x2F83E,0x5448,0},{0x2F83F,0x5468,0},
    {0x2F840,0x54A2,0},{0x2F841,0x54F6,0},{0x2F842,0x5510,0},{0x2F843,0x5553,0},{0x2F844,0x5563,0},{0x2F845,0x5584,0},
    {0x2F846,0x5584,0},{0x2F847,0x5599,0},{0x2F848,0x55AB,0},{0x2F849,0x55B3,0},{0x2F84A,0x55C2,0},{0x2F84B,0x5716,0},
    {0x2F84C,0x5606,0},{0x2F84D,0x5717,0},{0x2F84E,0x5651,0},{0x2F84F,0x5674,0},{0x2F850,0x5207,0},{0x2F851,0x58EE,0},
    {0x2F852,0x57CE,0},{0x2F853,0x57F4,0},{0x2F854,0x580D,0},{0x2F855,0x578B,0},{0x2F856,0x5832,0},{0x2F857,0x5831,0},
    {0x2F858,0x58AC,0},{0x2F859,0x214E4,0},{0x2F85A,0x58F2,0},{0x2F85B,0x58F7,0},{0x2F85C,0x5906,0},{0x2F85D,0x591A,0},
    {0x2F85E,0x5922,0},{0x2F85F,0x5962,0},{0x2F860,0x216A8,0},{0x2F861,0x216EA,0},{0x2F862,0x59EC,0},{0x2F863,0x5A1B,0},
    {0x2F864,0x5A27,0},{0x2F865,0x59D8,0},{0x2F866,0x5A66,0},{0x2F867,0x36EE,0},{0x2F868,0x36FC,0},{0x2F869,0x5B08,0},
    {0x2F86A,0x5B3E,0},{0x2F86B,0x5B3E,0},{0x2F86C,0x219C8,0},{0x2F86D,0x5BC3,0},{0x2F86E,0x5BD8,0},{0x2F86F,0x5BE7,0},
    {0x2F870,0x5BF3,0},{0x2F871,0x21B18,0},{0x2F872,0x5BFF,0},{0x2F873,0x5C06,0},{0x2F874,0x5F53,0},{0x2F875,0x5C22,0},
    {0x2F876,0x3781,0},{0x2F877,0x5C60,0},{0x2F878,0x5C6E,0},{0x2F879,0x5CC0,0},{0x2F87A,0x5C8D,0},{0x2F87B,0x21DE4,0},
    {0x2F87C,0x5D43,0},{0x2F87D,0x21DE6,0},{0x2F87E,0x5D6E,0},{0x2F87F,0x5D6B,0},{0x2F880,0x5D7C,0},{0x2F881,0x5DE1,0},
    {0x2F882,0x5DE2,0},{0x2F883,0x382F,0},{0x2F884,0x5DFD,0},{0x2F885,0x5E28,0},{0x2F886,0x5E3D,0},{0x2F887,0x5E69,0},
    {0x2F888,0x3862,0},{0x2F889,0x22183,0},{0x2F88A,0x387C,0},{0x2F88B,0x5EB0,0},{0x2F88C,0x5EB3,0},{0x2F88D,0x5EB6,0},
    {0x2F88E,0x5ECA,0},{0x2F88F,0x2A392,0},{0x2F890,0x5EFE,0},{0x2F891,0x22331,0},{0x2F892,0x22331,0},
    {0x2F893,0x8201,0},{0x2F894,0x5F22,0},{0x2F895,0x5F22,0},{0x2F896,0x38C7,0},{0x2F897,0x232B8,0},{0x2F898,0x261DA,0},
    {0x2F899,0x5F62,0},{0x2F89A,0x5F6B,0},{0x2F89B,0x38E3,0},{0x2F89C,0x5F9A,0},{0x2F89D,0x5FCD,0},{0x2F89E,0x5FD7,0},
    {0x2F89F,0x5FF9,0},{0x2F8A0,0x6081,0},{0x2F8A1,0x393A,0},{0x2F8A2,0x391C,0},{0x2F8A3,0x6094,0},{0x2F8A4,0x226D4,0},
    {0x2F8A5,0x60C7,0},{0x2F8A6,0x6148,0},{0x2F8A7,0x614C,0},{0x2F8A8,0x614E,0},{0x2F8A9,0x614C,0},{0x2F8AA,0x617A,0},
    {0x2F8AB,0x618E,0},{0x2F8AC,0x61B2,0},{0x2F8AD,0x61A4,0},{0x2F8AE,0x61AF,0},{0x2F8AF,0x61DE,0},{0x2F8B0,0x61F2,0},
    {0x2F8B1,0x61F6,0},{0x2F8B2,0x6210,0},{0x2F8B3,0x621B,0},{0x2F8B4,0x625D,0},{0x2F8B5,0x62B1,0},{0x2F8B6,0x62D4,0},
    {0x2F8B7,0x6350,0},{0x2F8B8,0x22B0C,0},{0x2F8B9,0x633D,0},{0x2F8BA,0x62FC,0},{0x2F8BB,0x6368,0},{0x2F8BC,0x6383,0},
    {0x2F8BD,0x63E4,0},{0x2F8BE,0x22BF1,0},{0x2F8BF,0x6422,0},{0x2F8C0,0x63C5,0},{0x2F8C1,0x63A9,0},{0x2F8C2,0x3A2E,0},
    {0x2F8C3,0x6469,0},{0x2F8C4,0x647E,0},{0x2F8C5,0x649D,0},{0x2F8C6,0x6477,0},{0x2F8C7,0x3A6C,0},{0x2F8C8,0x654F,0},
    {0x2F8C9,0x656C,0},{0x2F8CA,0x2300A,0},{0x2F8CB,0x65E3,0},{0x2F8CC,0x66F8,0},{0x2F8CD,0x6649,0},{0x2F8CE,0x3B19,0},
    {0x2F8CF,0x6691,0},{0x2F8D0,0x3B08,0},{0x2F8D1,0x3AE4,0},{0x2F8D2,0x5192,0},{0x2F8D3,0x5195,0},{0x2F8D4,0x6700,0},
    {0x2F8D5,0x669C,0},{0x2F8D6,0x80AD,0},{0x2F8D7,0x43D9,0},{0x2F8D8,0x6717,0},{0x2F8D9,0x671B,0},{0x2F8DA,0x6721,0},
    {0x2F8DB,0x675E,0},{0x2F8DC,0x6753,0},{0x2F8DD,0x233C3,0},{0x2F8DE,0x3B49,0},{0x2F8DF,0x67FA,0},{0x2F8E0,0x6785,0},
    {0x2F8E1,0x6852,0},{0x2F8E2,0x6885,0},{0x2F8E3,0x2346D,0},{0x2F8E4,0x688E,0},{0x2F8E5,0x681F,0},{0x2F8E6,0x6914,0},
    {0x2F8E7,0x3B9D,0},{0x2F8E8,0x6942,0},{0x2F8E9,0x69A3,0},{0x2F8EA,0x69EA,0},{0x2F8EB,0x6AA8,0},{0x2F8EC,0x236A3,0},
    {0x2F8ED,0x6ADB,0},{0x2F8EE,0x3C18,0},{0x2F8EF,0x6B21,0},{0x2F8F0,0x238A7,0},{0x2F8F1,0x6B54,0},{0x2F8F2,0x3C4E,0},
    {0x2F8F3,0x6B72,0},{0x2F8F4,0x6B9F,0},{0x2F8F5,0x6BBA,0},{0x2F8F6,0x6BBB,0},{0x2F8F7,0x23A8D,0},{0x2F8F8,0x21D0B,0},
    {0x2F8F9,0x23AFA,0},{0x2F8FA,0x6C4E,0},{0x2F8FB,0x23CBC,0},{0x2F8FC,0x6CBF,0},{0x2F8FD,0x6CCD,0},{0x2F8FE,0x6C67,0},
    {0x2F8FF,0x6D16,0},{0x2F900,0x6D3E,0},{0x2F901,0x6D77,0},{0x2F902,0x6D41,0},{0x2F903,0x6D69,0},{0x2F904,0x6D78,0},
    {0x2F905,0x6D85,0},{0x2F906,0x23D1E,0},{0x2F907,0x6D34,0},{0x2F908,0x6E2F,0},{0x2F909,0x6E6E,0},{0x2F90A,0x3D33,0},
    {0x2F90B,0x6ECB,0},{0x2F90C,0x6EC7,0},{0x2F90D,0x23ED1,0},{0x2F90E,0x6DF9,0},{0x2F90F,0x6F6E,0},{0x2F910,0x23F5E,0},
    {0x2F911,0x23F8E,0},{0x2F912,0x6FC6,0},{0x2F913,0x7039,0},{0x2F914,0x701E,0},{0x2F915,0x701B,0},{0x2F916,0x3D96,0},
    {0x2F917,0x704A,0},{0x2F918,0x707D,0},{0x2F919,0x7077,0},{0x2F91A,0x70AD,0},{0x2F91B,0x20525,0},{0x2F91C,0x7145,0},
    {0x2F91D,0x24263,0},{0x2F91E,0x719C,0},{0x2F91F,0x243AB,0},{0x2F920,0x7228,0},{0x2F921,0x7235,0},{0x2F922,0x7250,0},
    {0x2F923,0x24608,0},{0x2F924,0x7280,0},{0x2F925,0x7295,0},{0x2F926,0x24735,0},{0x2F927,0x24814,0},
    {0x2F928,0x737A,0},{0x2F929,0x738B,0},{0x2F92A,0x3EAC,0},{0x2F92B,0x73A5,0},{0x2F92C,0x3EB8,0},{0x2F92D,0x3EB8,0},
    {0x2F92E,0x7447,0},{0x2F92F,0x745C,0},{0x2F930,0x7471,0},{0x2F931,0x7485,0},{0x2F932,0x74CA,0},{0x2F933,0x3F1B,0},
    {0x2F934,0x7524,0},{0x2F935,0x24C36,0},{0x2F936,0x753E,0},{0x2F937,0x24C92,0},{0x2F938,0x7570,0},
    {0x2F939,0x2219F,0},{0x2F93A,0x7610,0},{0x2F93B,0x24FA1,0},{0x2F93C,0x24FB8,0},{0x2F93D,0x25044,0},
    {0x2F93E,0x3FFC,0},{0x2F93F,0x4008,0},{0x2F940,0x76F4,0},{0x2F941,0x250F3,0},{0x2F942,0x250F2,0},
    {0x2F943,0x25119,0},{0x2F944,0x25133,0},{0x2F945,0x771E,0},{0x2F946,0x771F,0},{0x2F947,0x771F,0},{0x2F948,0x774A,0},
    {0x2F949,0x4039,0},{0x2F94A,0x778B,0},{0x2F94B,0x4046,0},{0x2F94C,0x4096,0},{0x2F94D,0x2541D,0},{0x2F94E,0x784E,0},
    {0x2F94F,0x788C,0},{0x2F950,0x78CC,0},{0x2F951,0x40E3,0},{0x2F952,0x25626,0},{0x2F953,0x7956,0},{0x2F954,0x2569A,0},
    {0x2F955,0x256C5,0},{0x2F956,0x798F,0},{0x2F957,0x79EB,0},{0x2F958,0x412F,0},{0x2F959,0x7A40,0},{0x2F95A,0x7A4A,0},
    {0x2F95B,0x7A4F,0},{0x2F95C,0x2597C,0},{0x2F95D,0x25AA7,0},{0x2F95E,0x25AA7,0},{0x2F95F,0x7AEE,0},
    {0x2F960,0x4202,0},{0x2F961,0x25BAB,0},{0x2F962,0x7BC6,0},{0x2F963,0x7BC9,0},{0x2F964,0x4227,0},{0x2F965,0x25C80,0},
    {0x2F966,0x7CD2,0},{0x2F967,0x42A0,0},{0x2F968,0x7CE8,0},{0x2F969,0x7CE3,0},{0x2F96A,0x7D00,0},{0x2F96B,0x25F86,0},
    {0x2F96C,0x7D63,0},{0x2F96D,0x4301,0},{0x2F96E,0x7DC7,0},{0x2F96F,0x7E02,0},{0x2F970,0x7E45,0},{0x2F971,0x4334,0},
    {0x2F972,0x26228,0},{0x2F973,0x26247,0},{0x2F974,0x4359,0},{0x2F975,0x262D9,0},{0x2F976,0x7F7A,0},
    {0x2F977,0x2633E,0},{0x2F978,0x7F95,0},{0x2F979,0x7FFA,0},{0x2F97A,0x8005,0},{0x2F97B,0x264DA,0},
    {0x2F97C,0x26523,0},{0x2F97D,0x8060,0},{0x2F97E,0x265A8,0},{0x2F97F,0x8070,0},{0x2F980,0x2335F,0},
    {0x2F981,0x43D5,0},{0x2F982,0x80B2,0},{0x2F983,0x8103,0},{0x2F984,0x440B,0},{0x2F985,0x813E,0},{0x2F986,0x5AB5,0},
    {0x2F987,0x267A7,0},{0x2F988,0x267B5,0},{0x2F989,0x23393,0},{0x2F98A,0x2339C,0},{0x2F98B,0x8201,0},
    {0x2F98C,0x8204,0},{0x2F98D,0x8F9E,0},{0x2F98E,0x446B,0},{0x2F98F,0x8291,0},{0x2F990,0x828B,0},{0x2F991,0x829D,0},
    {0x2F992,0x52B3,0},{0x2F993,0x82B1,0},{0x2F994,0x82B3,0},{0x2F995,0x82BD,0},{0x2F996,0x82E6,0},{0x2F997,0x26B3C,0},
    {0x2F998,0x82E5,0},{0x2F999,0x831D,0},{0x2F99A,0x8363,0},{0x2F99B,0x83AD,0},{0x2F99C,0x8323,0},{0x2F99D,0x83BD,0},
    {0x2F99E,0x83E7,0},{0x2F99F,0x8457,0},{0x2F9A0,0x8353,0},{0x2F9A1,0x83CA,0},{0x2F9A2,0x83CC,0},{0x2F9A3,0x83DC,0},
    {0x2F9A4,0x26C36,0},{0x2F9A5,0x26D6B,0},{0x2F9A6,0x26CD5,0},{0x2F9A7,0x452B,0},{0x2F9A8,0x84F1,0},
    {0x2F9A9,0x84F3,0},{0x2F9AA,0x8516,0},{0x2F9AB,0x273CA,0},{0x2F9AC,0x8564,0},{0x2F9AD,0x26F2C,0},{0x2F9AE,0x455D,0},
    {0x2F9AF,0x4561,0},{0x2F9B0,0x26FB1,0},{0x2F9B1,0x270D2,0},{0x2F9B2,0x456B,0},{0x2F9B3,0x8650,0},{0x2F9B4,0x865C,0},
    {0x2F9B5,0x8667,0},{0x2F9B6,0x8669,0},{0x2F9B7,0x86A9,0},{0x2F9B8,0x8688,0},{0x2F9B9,0x870E,0},{0x2F9BA,0x86E2,0},
    {0x2F9BB,0x8779,0},{0x2F9BC,0x8728,0},{0x2F9BD,0x876B,0},{0x2F9BE,0x8786,0},{0x2F9BF,0x45D7,0},{0x2F9C0,0x87E1,0},
    {0x2F9C1,0x8801,0},{0x2F9C2,0x45F9,0},{0x2F9C3,0x8860,0},{0x2F9C4,0x8863,0},{0x2F9C5,0x27667,0},{0x2F9C6,0x88D7,0},
    {0x2F9C7,0x88DE,0},{0x2F9C8,0x4635,0},{0x2F9C9,0x88FA,0},{0x2F9CA,0x34BB,0},{0x2F9CB,0x278AE,0},{0x2F9CC,0x27966,0},
    {0x2F9CD,0x46BE,0},{0x2F9CE,0x46C7,0},{0x2F9CF,0x8AA0,0},{0x2F9D0,0x8AED,0},{0x2F9D1,0x8B8A,0},{0x2F9D2,0x8C55,0},
    {0x2F9D3,0x27CA8,0},{0x2F9D4,0x8CAB,0},{0x2F9D5,0x8CC1,0},{0x2F9D6,0x8D1B,0},{0x2F9D7,0x8D77,0},{0x2F9D8,0x27F2F,0},
    {0x2F9D9,0x20804,0},{0x2F9DA,0x8DCB,0},{0x2F9DB,0x8DBC,0},{0x2F9DC,0x8DF0,0},{0x2F9DD,0x208DE,0},{0x2F9DE,0x8ED4,0},
    {0x2F9DF,0x8F38,0},{0x2F9E0,0x285D2,0},{0x2F9E1,0x285ED,0},{0x2F9E2,0x9094,0},{0x2F9E3,0x90F1,0},{0x2F9E4,0x9111,0},
    {0x2F9E5,0x2872E,0},{0x2F9E6,0x911B,0},{0x2F9E7,0x9238,0},{0x2F9E8,0x92D7,0},{0x2F9E9,0x92D8,0},{0x2F9EA,0x927C,0},
    {0x2F9EB,0x93F9,0},{0x2F9EC,0x9415,0},{0x2F9ED,0x28BFA,0},{0x2F9EE,0x958B,0},{0x2F9EF,0x4995,0},{0x2F9F0,0x95B7,0},
    {0x2F9F1,0x28D77,0},{0x2F9F2,0x49E6,0},{0x2F9F3,0x96C3,0},{0x2F9F4,0x5DB2,0},{0x2F9F5,0x9723,0},{0x2F9F6,0x29145,0},
    {0x2F9F7,0x2921A,0},{0x2F9F8,0x4A6E,0},{0x2F9F9,0x4A76,0},{0x2F9FA,0x97E0,0},{0x2F9FB,0x2940A,0},{0x2F9FC,0x4AB2,0},
    {0x2F9FD,0x29496,0},{0x2F9FE,0x980B,0},{0x2F9FF,0x980B,0},{0x2FA00,0x9829,0},{0x2FA01,0x295B6,0},{0x2FA02,0x98E2,0},
    {0x2FA03,0x4B33,0},{0x2FA04,0x9929,0},{0x2FA05,0x99A7,0},{0x2FA06,0x99C2,0},{0x2FA07,0x99FE,0},{0x2FA08,0x4BCE,0},
    {0x2FA09,0x29B30,0},{0x2FA0A,0x9B12,0},{0x2FA0B,0x9C40,0},{0x2FA0C,0x9CFD,0},{0x2FA0D,0x4CCE,0},{0x2FA0E,0x4CED,0},
    {0x2FA0F,0x9D67,0},{0x2FA10,0x2A0CE,0},{0x2FA11,0x4CF8,0},{0x2FA12,0x2A105,0},{0x2FA13,0x2A20E,0},
    {0x2FA14,0x2A291,0},{0x2FA15,0x9EBB,0},{0x2FA16,0x4D56,0},{0x2FA17,0x9EF9,0},{0x2FA18,0x9EFE,0},{0x2FA19,0x9F05,0},
    {0x2FA1A,0x9F0F,0},{0x2FA1B,0x9F16,0},{0x2FA1C,0x9F3B,0},{0x2FA1D,0x2A600,0},
};
/* Places in heti_f_decompositions of what composes again, ascending by (first, second). */
static const uint16_t heti_f_compositions[940] = {
    912,909,913,0,1,2,3,53,55,238,4,572,5,165,208,210,570,415,57,417,419,421,59,61,63,65,6,425,67,427,431,433,429,7,8,9,
    598,69,71,73,10,596,77,212,214,594,240,75,439,441,445,198,79,447,81,83,187,85,87,449,453,236,451,455,457,11,12,13,
    89,91,93,97,14,610,167,216,218,612,95,459,98,463,189,465,100,467,102,106,469,104,475,473,477,479,481,200,108,15,483,
    112,485,110,489,487,16,17,18,19,114,116,246,20,616,118,169,220,222,161,614,191,499,501,120,503,124,224,226,505,122,
    509,126,128,511,132,513,232,130,521,136,523,234,134,527,525,21,22,23,138,140,142,24,640,144,146,171,228,230,163,638,
    529,148,533,531,539,541,543,545,150,549,547,551,553,555,652,25,152,658,250,557,154,656,654,155,559,157,159,561,563,
    26,27,28,29,54,56,239,30,573,31,166,209,211,571,416,58,418,420,422,60,62,64,66,32,426,68,428,432,434,430,33,34,35,
    599,70,72,74,36,597,78,213,215,595,241,76,440,442,446,199,80,448,82,84,188,86,88,450,454,237,452,456,458,565,37,38,
    39,90,92,94,40,611,168,217,219,613,96,460,99,197,464,190,466,101,468,103,107,470,105,476,474,478,480,482,201,109,41,
    484,113,486,111,490,488,42,43,44,45,115,117,247,46,617,119,170,221,223,162,615,192,500,502,121,504,125,225,227,506,
    123,510,127,129,512,133,514,233,131,522,566,137,524,235,135,528,526,47,48,49,139,141,143,50,641,145,147,172,229,231,
    164,639,530,149,534,532,540,542,544,546,151,550,548,567,552,554,556,653,51,153,659,251,558,52,657,568,655,156,560,
    158,160,562,564,875,258,835,576,574,580,578,181,202,204,185,423,602,600,606,604,461,620,618,624,622,491,244,493,242,
    206,179,175,173,177,577,575,581,579,182,203,205,186,424,603,601,607,605,462,621,619,625,623,492,245,494,243,207,180,
    176,174,178,586,584,590,588,587,585,591,589,435,437,436,438,495,497,496,498,515,516,517,518,535,536,537,538,569,630,
    628,634,632,636,631,629,635,633,637,644,642,648,646,650,645,643,649,647,651,195,193,194,183,184,443,444,248,249,196,
    831,259,830,829,668,669,833,841,261,682,683,843,262,696,697,845,857,263,856,855,268,712,713,883,264,726,727,874,872,
    265,871,870,269,740,885,266,752,753,887,826,838,760,270,823,822,660,661,827,825,762,271,676,677,764,272,688,689,839,
    837,766,273,850,849,275,704,705,853,768,277,720,721,866,867,770,278,863,862,276,732,733,868,772,279,744,745,881,879,
    851,267,854,864,274,869,880,280,281,285,302,304,284,282,306,283,300,310,312,287,314,289,316,286,318,324,288,326,328,
    330,332,322,303,305,293,291,307,292,301,311,313,296,315,290,317,295,319,325,297,327,329,331,333,323,294,298,299,308,
    309,320,321,334,335,337,336,338,340,341,339,342,343,344,353,354,365,364,366,369,370,372,371,373,374,377,375,376,378,
    379,381,380,382,383,385,384,403,404,405,406,407,408,409,410,411,412,413,414,471,472,507,508,519,520,582,592,583,593,
    608,609,626,627,662,664,666,774,663,665,667,775,776,777,778,779,780,781,670,672,674,782,671,673,675,783,784,785,786,
    787,788,789,678,680,679,681,684,686,685,687,690,692,694,790,691,693,695,791,792,793,794,795,796,797,698,700,702,798,
    699,701,703,799,800,801,802,803,804,805,706,708,710,707,709,711,714,716,718,715,717,719,722,724,723,725,728,730,729,
    731,734,736,738,735,737,739,741,742,743,746,748,750,806,747,749,751,807,808,809,810,811,812,813,754,756,758,814,755,
    757,759,815,816,817,818,819,820,821,824,836,878,828,846,847,848,840,882,859,860,861,894,895,896,897,899,898,900,901,
    902,903,904,905,906,907,908,911,910,914,915,916,917,918,919,920,921,930,931,922,923,924,925,932,933,926,927,928,929,
    934,935,936,937,966,941,942,943,944,945,946,947,948,949,950,951,952,953,954,955,956,957,958,959,960,961,962,963,964,
    965,967,993,968,969,970,971,972,973,974,975,976,977,978,979,980,981,982,983,984,985,986,987,988,989,990,991,992,994,
    995,996,997,998,1493,1494,1495,1496,1497,1498,1499,1501,1500,1502,1503,1504,
};
/* ---- end of the tables ---- */

/* The code point that ends before text[at], at > 0. */
static uint32_t heti_f_point_before(const unsigned char *text, size_t at, size_t *size) {
    size_t back;
    for (back = 1; back <= 4 && back <= at; back++) {
        const uint32_t point = heti_t_point(text, at, at - back, size);
        if (*size == back && point != HETI_T_INVALID) return point;
    }
    *size = 1;
    return HETI_T_INVALID;
}

/* The value of the run that holds `point`: runs are (start << bits | value), ascending, the first
   implied one is 0. */
static uint32_t heti_f_run(const uint32_t *run, size_t count, uint32_t point, int bits) {
    size_t low = 0;
    while (count > 0) {
        const size_t half = count / 2;
        if (run[low + half] >> bits <= point) {
            low += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return low == 0 ? 0 : run[low - 1] & ((1u << bits) - 1u);
}

static heti_f_class heti_f_class_of(uint32_t point) {
    if (point < 0x80) {
        if ((point | 32u) - 'a' < 26u) return HETI_F_LETTER;
        if (point - '0' < 10u) return HETI_F_NUMBER;
        if (point == ' ' || point - 9u < 5u) return HETI_F_SPACE;
        return point == '_' ? HETI_F_WORD : HETI_F_OTHER;
    }
    if (point == HETI_T_INVALID) return HETI_F_OTHER;
    return HETI_T_CAST(heti_f_class, heti_f_run(heti_f_classes, sizeof heti_f_classes / sizeof heti_f_classes[0], point,
                                                3));
}

static uint32_t heti_f_normal_of(uint32_t point) {
    if (point < 0x300 || point == HETI_T_INVALID) return 0;
    return heti_f_run(heti_f_normals, sizeof heti_f_normals / sizeof heti_f_normals[0], point, 10);
}

/* ---- NFC ---- */

/* the first of 19 * 21 * 28 syllables, composed by arithmetic (The Unicode Standard, 3.12) */
#define HETI_F_HANGUL 0xAC00u
#define HETI_F_SYLLABLES 11172u

/* Full canonical decomposition of a code point, appended to `to` as (class << 24 | code point); at
   most 4 (checked when the tables are made: 18 is the limit of NFKD). Returns how many. */
static size_t heti_f_decompose(uint32_t point, uint32_t *to) {
    const size_t count = sizeof heti_f_decompositions / sizeof heti_f_decompositions[0];
    size_t low = 0, high = count, made;
    if (point - HETI_F_HANGUL < HETI_F_SYLLABLES) {
        const uint32_t index = point - HETI_F_HANGUL;
        to[0] = 0x1100u + index / 588u;
        to[1] = 0x1161u + index % 588u / 28u;
        if (index % 28u == 0) return 2;
        to[2] = 0x11A7u + index % 28u;
        return 3;
    }
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (heti_f_decompositions[middle][0] < point) low = middle + 1;
        else high = middle;
    }
    if (low == count || heti_f_decompositions[low][0] != point) {
        to[0] = (heti_f_normal_of(point) & 255u) << 24 | point;
        return 1;
    }
    made = heti_f_decompose(heti_f_decompositions[low][1], to);
    if (heti_f_decompositions[low][2] != 0) made += heti_f_decompose(heti_f_decompositions[low][2], to + made);
    return made;
}

/* What two code points compose to, or 0. */
static uint32_t heti_f_compose(uint32_t first, uint32_t second) {
    size_t low = 0, high = sizeof heti_f_compositions / sizeof heti_f_compositions[0];
    const size_t count = high;
    if (first - 0x1100u < 19u && second - 0x1161u < 21u)
        return HETI_F_HANGUL + ((first - 0x1100u) * 21u + second - 0x1161u) * 28u;
    if (first - HETI_F_HANGUL < HETI_F_SYLLABLES && (first - HETI_F_HANGUL) % 28u == 0 && second - 0x11A8u < 27u)
        return first + second - 0x11A7u;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const uint32_t *entry = heti_f_decompositions[heti_f_compositions[middle]];
        if (entry[1] < first || (entry[1] == first && entry[2] < second)) low = middle + 1;
        else high = middle;
    }
    if (low == count) return 0;
    return heti_f_decompositions[heti_f_compositions[low]][1] == first &&
           heti_f_decompositions[heti_f_compositions[low]][2] == second
        ? heti_f_decompositions[heti_f_compositions[low]][0] : 0;
}

/* Sorts value[0 .. count) by its bits from `shift` up, equal ones in their order: runs of 1, 2, 4,
   ... are merged into spare and copied back. */
static void heti_f_sort(uint32_t *value, uint32_t *spare, size_t count, int shift) {
    size_t width, begin;
    for (width = 1; width < count; width *= 2) {
        for (begin = 0; begin < count; begin += 2 * width) {
            const size_t middle = count - begin > width ? begin + width : count,
                         end = count - middle > width ? middle + width : count;
            size_t a = begin, b = middle, at = begin;
            while (a < middle || b < end) {
                if (b == end || (a < middle && value[a] >> shift <= value[b] >> shift)) spare[at++] = value[a++];
                else spare[at++] = value[b++];
            }
        }
        memcpy(value, spare, count * sizeof *value);
    }
}

/* Canonical order, then composition, in place; returns how many are left. A character composes with
   the last one of class 0 unless one between them has class 0, or its own class or a higher one. */
static size_t heti_f_recompose(uint32_t *point, uint32_t *spare, size_t count) {
    size_t i, begin = 0, starter = count, made = 0;
    uint32_t last = 0;
    for (i = 0; i <= count; i++) {
        if (i < count && point[i] >> 24 != 0) continue;
        if (i - begin > 1) heti_f_sort(point + begin, spare, i - begin, 24);
        begin = i + 1;
    }
    for (i = 0; i < count; i++) {
        const uint32_t kind = point[i] >> 24, both =
            starter < made && (made == starter + 1 || last < kind) ? heti_f_compose(point[starter],
                point[i] & 0x1FFFFFu) : 0;
        if (both != 0) { point[starter] = both; continue; }
        if (kind == 0) starter = made;
        last = kind;
        point[made++] = point[i];
    }
    return made;
}

/* Where the run ends that must be composed together: the first character and those behind it that
   may join. *plain: it is one, and stays as it is. */
static size_t heti_f_normal_run(const unsigned char *text, size_t length, size_t at, int *plain) {
    size_t size, end;
    const uint32_t first = heti_f_normal_of(heti_t_point(text, length, at, &size));
    end = at + size;
    *plain = (first & HETI_F_CHANGES) == 0;
    while (end < length && text[end] >= 0xCC) { /* below lie the code points up to U+02FF, which never join */
        if ((heti_f_normal_of(heti_t_point(text, length, end, &size)) & HETI_F_JOINS) == 0) break;
        end += size;
        *plain = 0;
    }
    return end;
}

/* Appends the NFC of text to `to`. `points` is room for code points. */
static het_result heti_f_nfc(const unsigned char *text, size_t length, heti_t_list *to, heti_t_list *points,
                             const het_allocator *allocator, het_error *error) {
    size_t at = 0, begin = 0;
    while (at < length) {
        int plain;
        size_t end = heti_f_normal_run(text, length, at, &plain), count = 0, size, i, room;
        uint32_t *point;
        if (plain && end < length) { at = end; continue; }
        if (plain) at = end;
        HETI_T_TRY(heti_t_list_add(to, text + begin, at - begin, allocator, error));
        begin = end;
        if (plain) break;
        room = (end - at) * 4 * sizeof *point; /* a code point of n bytes decomposes to at most 2 n */
        points->used = 0;
        HETI_T_TRY(heti_t_list_room(points, room, allocator, error));
        point = HETI_T_CAST(uint32_t *, HETI_T_CAST(void *, points->data));
        for (i = at; i < end; i += size) {
            const uint32_t c = heti_t_point(text, length, i, &size);
            if (c == HETI_T_INVALID) { point[count++] = 0x200000u | text[i]; continue; } /* bit 21: a byte */
            count += heti_f_decompose(c, point + count);
        }
        count = heti_f_recompose(point, point + (end - at) * 2, count);
        HETI_T_TRY(heti_t_list_room(to, count * 4, allocator, error));
        for (i = 0; i < count; i++) {
            const uint32_t c = point[i] & 0x3FFFFFu;
            if (c >= 0x200000u) to->data[to->used++] = HETI_T_CAST(char, HETI_T_CAST(unsigned char, c & 255u));
            else to->used += heti_t_utf8(c, to->data + to->used);
        }
        at = end;
    }
    return HET_OK;
}

/* ---- the alphabet of byte-level tokens: printable bytes of Latin-1 stand for themselves, the
   others for U+0100 and on, in their order
   (GPT-2's encoder.py) ---- */

/* -1: not of the alphabet. */
static int heti_f_byte_of_letter(uint32_t point) {
    if (point >= 324) return -1;
    if (point >= 256)
        return HETI_T_CAST(int, point <= 288 ? point - 256 : point == 289 ? 127 : point <= 322 ? point - 162 : 173);
    return heti_t_letter_of_byte(HETI_T_CAST(unsigned char, point)) == point ? HETI_T_CAST(int, point) : -1;
}

/* Turns letters of the alphabet into bytes, in place, and returns their number; if some character
   is none of it, changes nothing and returns `length`, with *whole 0. */
static size_t heti_f_unspell(char *text, size_t length, int *whole) {
    const unsigned char *from = HETI_T_CAST(const unsigned char *, HETI_T_CAST(const void *, text));
    size_t at, size, made = 0;
    *whole = 0;
    for (at = 0; at < length; at += size)
        if (heti_f_byte_of_letter(heti_t_point(from, length, at, &size)) < 0) return length;
    for (at = 0; at < length; at += size) {
        const int byte = heti_f_byte_of_letter(heti_t_point(from, length, at, &size));
        text[made++] = HETI_T_CAST(char, HETI_T_CAST(unsigned char, byte));
    }
    *whole = 1;
    return made;
}

/* =================================================================================================
   >>split  Where the word ends that begins at a byte. The patterns are alternatives tried in order;
            each needs at most the next character to know
   whether it matches, so every text has one reading and is read at most three times.
   ============================================================================================== */

typedef struct heti_f_words { const unsigned char *text; size_t length; } heti_f_words;

/* L, N, white space, or anything else (what \w adds is nothing to these patterns). */
static heti_f_class heti_f_kind(const heti_f_words *w, size_t at, size_t *size) {
    const heti_f_class kind = heti_f_class_of(heti_t_point(w->text, w->length, at, size));
    return kind == HETI_F_OTHER_NUMBER ? HETI_F_NUMBER : kind == HETI_F_WORD ? HETI_F_OTHER : kind;
}

/* The end of the run of one kind, of at most `most` characters; *last is where its last character
   begins. */
static size_t heti_f_run_end(const heti_f_words *w, size_t at, heti_f_class kind, size_t most, size_t *last) {
    size_t size;
    *last = at;
    for (; at < w->length && most > 0 && heti_f_kind(w, at, &size) == kind; at += size, most--) *last = at;
    return at;
}

/* Behind 's 't 're 've 'm 'll 'd, or `at` if none stands there. Without regard to case U+017F, the
   long s, is an s. */
static size_t heti_f_contraction(const heti_f_words *w, size_t at, int any_case) {
    unsigned char c[3] = { 0, 0, 0 };
    size_t i;
    for (i = 0; i < 3 && i < w->length - at; i++) {
        c[i] = w->text[at + i];
        if (any_case && c[i] >= 'A' && c[i] <= 'Z') c[i] = HETI_T_CAST(unsigned char, c[i] + 32);
    }
    if (c[0] != '\'') return at;
    if (c[1] == 's' || c[1] == 't' || c[1] == 'm' || c[1] == 'd') return at + 2;
    if ((c[1] == 'r' && c[2] == 'e') || (c[1] == 'v' && c[2] == 'e') || (c[1] == 'l' && c[2] == 'l')) return at + 3;
    return any_case && c[1] == 0xC5 && c[2] == 0xBF ? at + 3 : at;
}

/* White space that starts a word: all of it at the end of the text, otherwise all but the last
   character, which begins the next word. */
static size_t heti_f_space_end(const heti_f_words *w, size_t at) {
    size_t last;
    const size_t end = heti_f_run_end(w, at, HETI_F_SPACE, SIZE_MAX, &last);
    return end == w->length || last == at ? end : last;
}

static size_t heti_f_word_gpt2(const heti_f_words *w, size_t at) {
    size_t size, last, end = heti_f_contraction(w, at, 0);
    const size_t from = at + (w->text[at] == ' ' && at + 1 < w->length);
    const heti_f_class kind = heti_f_kind(w, from, &size);
    if (end > at) return end;
    return kind == HETI_F_SPACE ? heti_f_space_end(w, at) : heti_f_run_end(w, from, kind, SIZE_MAX, &last);
}

static int heti_f_is_newline(unsigned char c) { return c == '\n' || c == '\r'; }

static size_t heti_f_word_llama3(const heti_f_words *w, size_t at, size_t digits) {
    size_t size, next, last, end = heti_f_contraction(w, at, 1);
    const heti_f_class kind = heti_f_kind(w, at, &size);
    const size_t from = at + (w->text[at] == ' ');
    if (end > at) return end;
    if (kind == HETI_F_LETTER) return heti_f_run_end(w, at, kind, SIZE_MAX, &last);
    if (kind == HETI_F_NUMBER) return heti_f_run_end(w, at, kind, digits, &last);
    if (!heti_f_is_newline(w->text[at]) && at + size < w->length && heti_f_kind(w, at + size, &next) == HETI_F_LETTER)
        return heti_f_run_end(w, at + size, HETI_F_LETTER, SIZE_MAX, &last);
    if (from < w->length && heti_f_kind(w, from, &next) == HETI_F_OTHER) {
        end = heti_f_run_end(w, from, HETI_F_OTHER, SIZE_MAX, &last);
        while (end < w->length && heti_f_is_newline(w->text[end])) end++;
        return end;
    }
    end = heti_f_run_end(w, at, HETI_F_SPACE, SIZE_MAX, &last);
    for (next = end; next > at; next--) /* up to the last line break, if there is one */
        if (heti_f_is_newline(w->text[next - 1])) return next;
    return end == w->length || last == at ? end : last;
}

static size_t heti_f_word_end(const heti_f_words *w, het_split split, size_t at) {
    if (split == HET_SPLIT_LLAMA3) return heti_f_word_llama3(w, at, 3);
    if (split == HET_SPLIT_QWEN2) return heti_f_word_llama3(w, at, 1);
    return split == HET_SPLIT_WHOLE ? w->length : heti_f_word_gpt2(w, at);
}

/* =================================================================================================
   >>match  Added tokens in a text, the leftmost and of those the longest (Aho and Corasick,
            Communications of the ACM 18, 1975, on patterns and
   text read backwards: the longest pattern that ends at a byte then is the longest that begins
   there). Linear whatever the tokens are.
   ============================================================================================== */

/* The smallest power of two that leaves a table of `count` entries at least half empty. */
static size_t heti_f_slots(size_t count) {
    size_t slots = 16;
    while (slots / 2 < count && slots <= SIZE_MAX / 4) slots *= 2;
    return slots;
}

/* Keys come from files that somebody may have made to collide: the seed is a hash of the whole
   file. (The mixing constants are splitmix64's.) */
static uint64_t heti_f_mix(uint64_t key, uint64_t seed) {
    key = (key ^ seed) * UINT64_C(0xBF58476D1CE4E5B9);
    key = (key ^ (key >> 29)) * UINT64_C(0x94D049BB133111EB);
    return key ^ (key >> 32);
}

typedef struct heti_f_matcher {
    uint64_t *key;                    /* [slots] node << 8 | byte of an edge, plus 1; 0: free */
    int32_t *child;                   /* [slots] where it leads */
    int32_t *fail, *out;              /* [nodes] node of the longest proper suffix; entry of the
                                         longest pattern that ends here, or -1 */
    size_t slots, nodes;
    int32_t root[256];                /* edges of node 0, or 0 */
} heti_f_matcher;

/* A match: where it begins, and which added token it is. */
typedef struct heti_f_found { size_t at; int32_t added, unused; } heti_f_found;

static size_t heti_f_match_slot(const heti_f_matcher *m, uint64_t key) {
    size_t slot = HETI_T_CAST(size_t, heti_f_mix(key, 0)) & (m->slots - 1);
    while (m->key[slot] != 0 && m->key[slot] != key) slot = (slot + 1) & (m->slots - 1);
    return slot;
}

/* The child of `node` by `byte`, 0: none (node 0 is nobody's child). */
static int32_t heti_f_match_child(const heti_f_matcher *m, int32_t node, unsigned char byte) {
    size_t slot;
    if (node == 0) return m->root[byte];
    slot = heti_f_match_slot(m, (HETI_T_CAST(uint64_t, node) << 8 | byte) + 1);
    return m->key[slot] != 0 ? m->child[slot] : 0;
}

static int32_t heti_f_match_step(const heti_f_matcher *m, int32_t node, unsigned char byte) {
    int32_t next;
    while ((next = heti_f_match_child(m, node, byte)) == 0 && node != 0) node = m->fail[node];
    return next;
}

/* The child of `node` by `byte`, made if it is not there. All nodes nearer to the root exist, so
   its suffix is known. */
static int32_t heti_f_match_extend(heti_f_matcher *m, int32_t node, unsigned char byte) {
    int32_t next = heti_f_match_child(m, node, byte), made;
    if (next != 0) return next;
    made = HETI_T_CAST(int32_t, m->nodes++);
    m->fail[made] = node == 0 ? 0 : heti_f_match_step(m, m->fail[node], byte);
    m->out[made] = m->out[m->fail[made]];
    if (node == 0) m->root[byte] = made;
    else {
        const uint64_t key = (HETI_T_CAST(uint64_t, node) << 8 | byte) + 1;
        const size_t slot = heti_f_match_slot(m, key);
        m->key[slot] = key;
        m->child[slot] = made;
    }
    return made;
}

/* All matches, of any length, as the longest one at each byte that has one; the last one in the
   text first. */
static het_result heti_f_match_all(const heti_f_matcher *m, const unsigned char *text, size_t length,
                                   heti_t_list *found, const het_allocator *allocator, het_error *error) {
    size_t at;
    int32_t node = 0;
    heti_f_found hit;
    memset(&hit, 0, sizeof hit);
    if (m->nodes <= 1) return HET_OK;
    for (at = length; at-- > 0;) {
        node = heti_f_match_step(m, node, text[at]);
        if (node == 0 || m->out[node] < 0) continue;
        hit.at = at;
        hit.added = m->out[node];
        HETI_T_TRY(heti_t_list_add(found, &hit, sizeof hit, allocator, error));
    }
    return HET_OK;
}

/* =================================================================================================
   >>tokenizer  A tokenizer in memory, and how it gets there. tokenizer.json is walked several
                times: where its parts are, what they say, how
   large the tables are, and, when the block is there, into the tables. Nothing is taken for granted
   that a later step relies on.
   ============================================================================================== */

/* A token of the model, or an added one. Bytes are what it decodes to. */
typedef struct heti_f_token {
    uint32_t bytes, length;           /* in het_tokenizer.bytes */
    int32_t id;
    uint8_t spelled;                  /* 1: the file's text is the bytes' in the alphabet; 0: it is
                                         the bytes themselves */
    uint8_t is_added, special, unused;
} heti_f_token;

typedef struct heti_f_added {
    uint32_t content, content_length; /* in het_tokenizer.bytes: as it stands in the file */
    uint32_t pattern, pattern_length; /* what is looked for: the same, or its NFC */
    int32_t id;
    uint8_t special, normalized, lstrip, rstrip, single_word, unused[3];
} heti_f_added;

struct het_tokenizer {
    het_tokenizer_info info;
    het_allocator allocator;
    size_t size;                      /* of the block */
    uint64_t seed;                    /* of the hash tables */
    char *json, *bytes, *scratch;     /* scratch: for the texts of one merge, while reading */
    size_t json_length, bytes_used, bytes_size, scratch_size;
    heti_f_token *token;              /* [model_tokens + added] */
    int64_t model_tokens;
    int32_t *place;                   /* [vocab] of an id in token, -1: none */
    uint32_t *slot;                   /* [slots] hash of bytes -> place in token + 1, model's
                                         tokens; of content -> model_tokens + added + 1 */
    size_t slots;
    uint64_t *pair;                   /* [pair_slots] left id << 32 | right id, plus 1; 0: free */
    uint32_t *rank;                   /* [pair_slots] of the merge */
    size_t pair_slots;
    int32_t *left, *right, *joined;   /* [merges] ids */
    heti_f_added *added;              /* [added] */
    heti_f_matcher matcher[2];        /* in the text as it is; in normalized text */
    int32_t *wrap;                    /* prefix, suffix */
    int32_t byte_id[256];             /* -1: the vocabulary lacks it */
    size_t longest;                   /* bytes of the model's longest token */
};

/* ---- looking up ---- */

typedef enum heti_f_key { HETI_F_KEY_BYTES = 0, HETI_F_KEY_TEXT = 1, HETI_F_KEY_ADDED = 2 } heti_f_key;

/* The slot of a model's token by bytes or text, or of an added token by content: where it is, or
   would be. */
static size_t heti_f_slot(const het_tokenizer *t, heti_f_key kind, const char *text, size_t length) {
    size_t slot = HETI_T_CAST(size_t, het_xxh64(text, length, t->seed + HETI_T_CAST(uint64_t, kind))) & (t->slots - 1);
    for (; t->slot[slot] != 0; slot = (slot + 1) & (t->slots - 1)) {
        const size_t place = t->slot[slot] - 1, models = HETI_T_CAST(size_t, t->model_tokens);
        if (place >= models) {
            const heti_f_added *a = &t->added[place - models];
            if (kind == HETI_F_KEY_ADDED && a->content_length == length && memcmp(t->bytes + a->content, text,
                length) == 0)
                break;
        } else {
            const heti_f_token *e = &t->token[place];
            if (kind == (e->spelled ? HETI_F_KEY_BYTES : HETI_F_KEY_TEXT) && e->length == length &&
                memcmp(t->bytes + e->bytes, text, length) == 0)
                break;
        }
    }
    return slot;
}

/* Place in `token` of what the model writes as text[0 .. length), or -1. text may be changed. */
static int64_t heti_f_model_place(const het_tokenizer *t, char *text, size_t length) {
    int spelled;
    const size_t bytes = heti_f_unspell(text, length, &spelled);
    return HETI_T_CAST(int64_t, t->slot[heti_f_slot(t, spelled ? HETI_F_KEY_BYTES : HETI_F_KEY_TEXT, text, bytes)]) - 1;
}

static size_t heti_f_pair_slot(const het_tokenizer *t, uint64_t key) {
    size_t slot = HETI_T_CAST(size_t, heti_f_mix(key, t->seed)) & (t->pair_slots - 1);
    while (t->pair[slot] != 0 && t->pair[slot] != key) slot = (slot + 1) & (t->pair_slots - 1);
    return slot;
}

static uint64_t heti_f_pair_key(int32_t left, int32_t right) {
    return (HETI_T_CAST(uint64_t, left) << 32 | HETI_T_CAST(uint64_t, right)) + 1;
}

/* ---- reading parts of the file ---- */

typedef struct heti_f_source {
    const char *text;
    size_t length;
    het_error *error;
} heti_f_source;

/* An error at a byte of the file. */
static het_result heti_f_bad(const heti_f_source *s, het_result code, size_t at, const char *format, ...) {
    heti_t_text text;
    va_list arguments;
    if (s->error == NULL) return code;
    (void)heti_t_fail(s->error, code, "tokenizer: byte %d: ", HETI_T_CAST(int64_t, at));
    text = heti_t_text_behind(s->error->text, sizeof s->error->text);
    va_start(arguments, format);
    heti_t_format_list(&text, format, arguments);
    va_end(arguments);
    return code;
}

/* The first error of a cursor as a result. */
static het_result heti_f_json(const heti_f_source *s, const het_json *j) {
    return j->rule == NULL ? HET_OK : heti_f_bad(s, HET_ERR_FORMAT, j->rule_at, "%s", j->rule);
}

/* Takes the object at *j. value[i] becomes a cursor at the value of name[i], its text NULL where
   that is not given. Other names, and equal ones, are errors. */
static het_result heti_f_fields(const heti_f_source *s, het_json *j, const char *where, const char *const *name,
                                int count, het_json *value) {
    char key[64];
    size_t length;
    int i;
    memset(value, 0, HETI_T_CAST(size_t, count) * sizeof *value);
    if (!het_json_enter(j, HET_JSON_OBJECT)) return heti_f_json(s, j);
    while (het_json_next(j, key, sizeof key, &length)) {
        const size_t shown = heti_t_shown(length, sizeof key);
        for (i = 0; i < count && !heti_t_is(key, length, name[i]); i++) {}
        if (i == count)
            return heti_f_bad(s, HET_ERR_UNSUPPORTED, j->at, "%s has an unknown key %q", where, key, shown);
        if (value[i].text != NULL)
            return heti_f_bad(s, HET_ERR_FORMAT, j->at, "%s has the key %q twice", where, key, shown);
        value[i] = *j;
        het_json_skip(j);
    }
    return heti_f_json(s, j);
}

static het_result heti_f_missing(const heti_f_source *s, const het_json *value, size_t at, const char *where,
                                 const char *name) {
    if (value->text != NULL) return HET_OK;
    return heti_f_bad(s, HET_ERR_FORMAT, at, "%s lacks \"%s\"", where, name);
}

/* A value that is not there counts as null. */
static int heti_f_is_null(const het_json *value) {
    het_json j = *value;
    return value->text == NULL || het_json_peek(&j) == HET_JSON_NULL;
}

/* *flag: a boolean; `otherwise` where it is not there. */
static het_result heti_f_flag(const heti_f_source *s, const het_json *value, int otherwise, int *flag) {
    het_json j = *value;
    *flag = otherwise;
    if (value->text == NULL) return HET_OK;
    het_json_boolean(&j, flag);
    return heti_f_json(s, &j);
}

/* A string, cut to what fits. */
static het_result heti_f_string(const heti_f_source *s, const het_json *value, char *to, size_t capacity,
                                size_t *length) {
    het_json j = *value;
    het_json_string(&j, to, capacity, length);
    return heti_f_json(s, &j);
}

/* The value of the key "type" of the object at *at, which must be one of `words`, separated by |;
   *which: 0 for the first. */
static het_result heti_f_type(const heti_f_source *s, const het_json *at, const char *where, const char *words,
                              int *which) {
    char key[64], type[64];
    size_t length, shown = 0, word;
    het_json j = *at;
    const char *w;
    type[0] = 0;
    if (!het_json_enter(&j, HET_JSON_OBJECT)) return heti_f_json(s, &j);
    while (het_json_next(&j, key, sizeof key, &length)) {
        if (heti_t_is(key, length, "type")) {
            het_json_string(&j, type, sizeof type, &shown);
            break;
        }
        het_json_skip(&j);
    }
    HETI_T_TRY(heti_f_json(s, &j));
    for (*which = 0, w = words; *w != 0; w += word + (w[word] == '|'), ++*which) {
        word = strcspn(w, "|");
        if (word == shown && shown < sizeof type && memcmp(w, type, word) == 0) return HET_OK;
    }
    return heti_f_bad(s, HET_ERR_UNSUPPORTED, j.at, "%s of type %q; what is supported: %s", where, type,
                       heti_t_shown(shown, sizeof type), words);
}

/* The value must be null or not there. */
static het_result heti_f_only_null(const heti_f_source *s, const het_json *value, const char *where) {
    if (heti_f_is_null(value)) return HET_OK;
    return heti_f_bad(s, HET_ERR_UNSUPPORTED, value->at, "%s is set, and only null is supported", where);
}

/* ---- normalizer, pre_tokenizer, decoder ---- */

static het_result heti_f_read_normalizer(const heti_f_source *s, const het_json *value, het_tokenizer_info *info) {
    static const char *const heti_f_names[1] = { "type" };
    het_json j = *value, field[1];
    int which;
    if (heti_f_is_null(value)) return HET_OK;
    HETI_T_TRY(heti_f_type(s, value, "normalizer", "NFC", &which));
    info->nfc = 1;
    return heti_f_fields(s, &j, "normalizer", heti_f_names, 1, field);
}

/* ByteLevel as a pre-tokenizer, decoder or post-processor. *regex: its own pattern is used. */
static het_result heti_f_read_byte_level(const heti_f_source *s, const het_json *value, const char *where,
                                         int *prefix_space, int *regex) {
    static const char *const heti_f_names[4] = { "type", "add_prefix_space", "trim_offsets", "use_regex" };
    het_json j = *value, field[4];
    int which, trim;
    HETI_T_TRY(heti_f_type(s, value, where, "ByteLevel", &which));
    HETI_T_TRY(heti_f_fields(s, &j, where, heti_f_names, 4, field));
    HETI_T_TRY(heti_f_flag(s, &field[1], 1, prefix_space));
    HETI_T_TRY(heti_f_flag(s, &field[2], 1, &trim));
    return heti_f_flag(s, &field[3], 1, regex);
}

/* The pattern that words are cut by. */
static het_result heti_f_read_pattern(const heti_f_source *s, const het_json *value, het_split *split) {
    static const char *const heti_f_names[1] = { "Regex" };
    static const char *const heti_f_patterns[3] = {
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
    };
    static const het_split heti_f_splits[3] = { HET_SPLIT_GPT2, HET_SPLIT_LLAMA3, HET_SPLIT_QWEN2 };
    het_json j = *value, field[1];
    char text[256];
    size_t length, i;
    HETI_T_TRY(heti_f_fields(s, &j, "pre_tokenizer's Split's pattern", heti_f_names, 1, field));
    HETI_T_TRY(heti_f_missing(s, &field[0], value->at, "pre_tokenizer's Split's pattern", "Regex"));
    HETI_T_TRY(heti_f_string(s, &field[0], text, sizeof text, &length));
    for (i = 0; i < 3; i++) {
        if (!heti_t_is(text, length < sizeof text ? length : 0, heti_f_patterns[i])) continue;
        *split = heti_f_splits[i];
        return HET_OK;
    }
    return heti_f_bad(s, HET_ERR_UNSUPPORTED, field[0].at, "pre_tokenizer's Split has a pattern other than GPT-2's, "
                                                           "Llama 3's and Qwen 2's: %q", text,
                                                               heti_t_shown(length, sizeof text));
}

/* Every character belongs to a match, so matches kept apart (Isolated) and everything else removed
   (Removed, inverted) are the same. */
static het_result heti_f_read_split(const heti_f_source *s, const het_json *value, het_split *split) {
    static const char *const heti_f_names[4] = { "type", "pattern", "behavior", "invert" };
    const size_t at = value->at;
    het_json j = *value, field[4];
    char behavior[32];
    size_t length;
    int which, invert;
    HETI_T_TRY(heti_f_type(s, value, "first of pre_tokenizer's Sequence", "Split", &which));
    HETI_T_TRY(heti_f_fields(s, &j, "pre_tokenizer's Split", heti_f_names, 4, field));
    HETI_T_TRY(heti_f_missing(s, &field[1], at, "pre_tokenizer's Split", "pattern"));
    HETI_T_TRY(heti_f_missing(s, &field[2], at, "pre_tokenizer's Split", "behavior"));
    HETI_T_TRY(heti_f_read_pattern(s, &field[1], split));
    HETI_T_TRY(heti_f_string(s, &field[2], behavior, sizeof behavior, &length));
    HETI_T_TRY(heti_f_flag(s, &field[3], 0, &invert));
    if (length < sizeof behavior && (heti_t_is(behavior, length, "Isolated") ||
                                     (invert && heti_t_is(behavior, length, "Removed"))))
        return HET_OK;
    return heti_f_bad(s, HET_ERR_UNSUPPORTED, field[2].at, "pre_tokenizer's Split has the behavior %q, not Isolated or "
                                                           "Removed inverted", behavior,
                                                               heti_t_shown(length, sizeof behavior));
}

/* ByteLevel, or a Sequence of Split and ByteLevel without its pattern. */
static het_result heti_f_read_pre_tokenizer(const heti_f_source *s, const het_json *value, het_tokenizer_info *info) {
    static const char *const heti_f_names[2] = { "type", "pretokenizers" };
    const size_t at = value->at;
    het_json j = *value, field[2], item[2];
    int which, prefix_space, regex, count = 0;
    if (heti_f_is_null(value))
        return heti_f_bad(s, HET_ERR_UNSUPPORTED, at, "pre_tokenizer is null: not a byte-level tokenizer");
    HETI_T_TRY(heti_f_type(s, value, "pre_tokenizer", "ByteLevel|Sequence", &which));
    if (which == 0) {
        HETI_T_TRY(heti_f_read_byte_level(s, value, "pre_tokenizer", &prefix_space, &regex));
        info->split = regex ? HET_SPLIT_GPT2 : HET_SPLIT_WHOLE;
        info->prefix_space = prefix_space;
        return HET_OK;
    }
    HETI_T_TRY(heti_f_fields(s, &j, "pre_tokenizer", heti_f_names, 2, field));
    HETI_T_TRY(heti_f_missing(s, &field[1], at, "pre_tokenizer", "pretokenizers"));
    j = field[1];
    het_json_enter(&j, HET_JSON_ARRAY);
    while (het_json_next(&j, NULL, 0, NULL)) {
        if (count < 2) item[count] = j;
        count++;
        het_json_skip(&j);
    }
    HETI_T_TRY(heti_f_json(s, &j));
    if (count != 2)
        return heti_f_bad(s, HET_ERR_UNSUPPORTED, field[1].at,
                          "pre_tokenizer's Sequence has %d members; what is supported: Split, ByteLevel",
                          HETI_T_CAST(int64_t, count));
    HETI_T_TRY(heti_f_read_split(s, &item[0], &info->split));
    HETI_T_TRY(heti_f_read_byte_level(s, &item[1], "second of pre_tokenizer's Sequence", &prefix_space, &regex));
    if (!regex && !prefix_space) return HET_OK;
    return heti_f_bad(s, HET_ERR_UNSUPPORTED, item[1].at,
                      "ByteLevel behind Split has %s true, and only false is supported", regex ? "use_regex" :
                          "add_prefix_space");
}

static het_result heti_f_read_decoder(const heti_f_source *s, const het_json *value) {
    int prefix_space, regex;
    if (heti_f_is_null(value))
        return heti_f_bad(s, HET_ERR_UNSUPPORTED, value->at, "decoder is null: not a byte-level tokenizer");
    return heti_f_read_byte_level(s, value, "decoder", &prefix_space, &regex);
}

/* ---- post_processor: what stands before and behind a text ---- */

#define HETI_F_WRAP 64 /* ids a template may put around a text */

typedef struct heti_f_wrap {
    int given, prefixes, count;
    int32_t id[HETI_F_WRAP];
    size_t at[HETI_F_WRAP];          /* byte of the file, for messages */
} heti_f_wrap;

/* The ids of one special token of a template, from its table {"<s>": {"id": "<s>", "ids": [1],
   "tokens": ["<s>"]}, ...}. */
static het_result heti_f_read_template_ids(const heti_f_source *s, const het_json *table, const het_json *name,
                                           heti_f_wrap *wrap) {
    static const char *const heti_f_names[3] = { "id", "ids", "tokens" };
    char wanted[256], key[256];
    size_t length, key_length;
    const size_t at = name->at;
    int64_t id;
    het_json j = *table, field[3];
    HETI_T_TRY(heti_f_string(s, name, wanted, sizeof wanted, &length));
    if (length >= sizeof wanted)
        return heti_f_bad(s, HET_ERR_LIMIT, at, "a template's token of %d bytes; the most are 255",
                          HETI_T_CAST(int64_t, length));
    het_json_enter(&j, HET_JSON_OBJECT);
    while (het_json_next(&j, key, sizeof key, &key_length)) {
        if (key_length != length || memcmp(key, wanted, length) != 0) { het_json_skip(&j); continue; }
        HETI_T_TRY(heti_f_fields(s, &j, "a template's special token", heti_f_names, 3, field));
        HETI_T_TRY(heti_f_missing(s, &field[1], at, "a template's special token", "ids"));
        j = field[1];
        het_json_enter(&j, HET_JSON_ARRAY);
        while (het_json_next(&j, NULL, 0, NULL)) {
            if (wrap->count == HETI_F_WRAP)
                return heti_f_bad(s, HET_ERR_LIMIT, j.at, "a template of more than %d ids",
                                   HETI_T_CAST(int64_t, HETI_F_WRAP));
            wrap->at[wrap->count] = j.at;
            if (!het_json_integer(&j, &id)) break;
            if (id < 0 || id > INT32_MAX - 1) id = INT32_MAX; /* never an id: refused when the vocabulary is known */
            wrap->id[wrap->count++] = HETI_T_CAST(int32_t, id);
        }
        return heti_f_json(s, &j);
    }
    HETI_T_TRY(heti_f_json(s, &j));
    return heti_f_bad(s, HET_ERR_FORMAT, at, "the template's token %q is not among its special_tokens", wanted, length);
}

/* One piece of the template "single": {"Sequence": {"id": "A", "type_id": 0}} or {"SpecialToken":
   {"id": "<s>", "type_id": 0}}. */
static het_result heti_f_read_template_piece(const heti_f_source *s, het_json *piece, const het_json *table,
                                             heti_f_wrap *wrap, int *sequences) {
    static const char *const heti_f_names[2] = { "Sequence", "SpecialToken" };
    static const char *const heti_f_parts[2] = { "id", "type_id" };
    const size_t at = piece->at;
    het_json field[2], part[2], j;
    char name[2];
    size_t length;
    HETI_T_TRY(heti_f_fields(s, piece, "a template's piece", heti_f_names, 2, field));
    if ((field[0].text != NULL) == (field[1].text != NULL))
        return heti_f_bad(s, HET_ERR_FORMAT, at, "a template's piece is not one of Sequence and SpecialToken");
    j = field[0].text != NULL ? field[0] : field[1];
    HETI_T_TRY(heti_f_fields(s, &j, "a template's piece", heti_f_parts, 2, part));
    HETI_T_TRY(heti_f_missing(s, &part[0], at, "a template's piece", "id"));
    if (field[1].text != NULL) return heti_f_read_template_ids(s, table, &part[0], wrap);
    HETI_T_TRY(heti_f_string(s, &part[0], name, sizeof name, &length));
    if (!heti_t_is(name, length < sizeof name ? length : 0, "A") || ++*sequences > 1)
        return heti_f_bad(s, HET_ERR_UNSUPPORTED, at, "the template \"single\" has a sequence other than one A");
    wrap->prefixes = wrap->count;
    return HET_OK;
}

static het_result heti_f_read_template(const heti_f_source *s, const het_json *value, heti_f_wrap *wrap) {
    static const char *const heti_f_names[4] = { "type", "single", "pair", "special_tokens" };
    const size_t at = value->at;
    het_json j = *value, field[4];
    int sequences = 0;
    if (wrap->given) return heti_f_bad(s, HET_ERR_UNSUPPORTED, at, "post_processor has a second template");
    wrap->given = 1;
    HETI_T_TRY(heti_f_fields(s, &j, "post_processor's template", heti_f_names, 4, field));
    HETI_T_TRY(heti_f_missing(s, &field[1], at, "post_processor's template", "single"));
    HETI_T_TRY(heti_f_missing(s, &field[3], at, "post_processor's template", "special_tokens"));
    j = field[1];
    het_json_enter(&j, HET_JSON_ARRAY);
    while (het_json_next(&j, NULL, 0, NULL)) HETI_T_TRY(heti_f_read_template_piece(s, &j, &field[3], wrap, &sequences));
    HETI_T_TRY(heti_f_json(s, &j));
    if (sequences == 1) return HET_OK;
    return heti_f_bad(s, HET_ERR_FORMAT, field[1].at, "the template \"single\" has no sequence A");
}

static het_result heti_f_read_processor(const heti_f_source *s, const het_json *value, int outermost,
                                        heti_f_wrap *wrap) {
    static const char *const heti_f_names[2] = { "type", "processors" };
    het_json j = *value, field[2];
    int which, prefix_space, regex;
    HETI_T_TRY(heti_f_type(s, value, "post_processor", outermost ? "ByteLevel|TemplateProcessing|Sequence" :
                           "ByteLevel|TemplateProcessing", &which));
    if (which == 0) return heti_f_read_byte_level(s, value, "post_processor", &prefix_space, &regex);
    if (which == 1) return heti_f_read_template(s, value, wrap);
    HETI_T_TRY(heti_f_fields(s, &j, "post_processor", heti_f_names, 2, field));
    HETI_T_TRY(heti_f_missing(s, &field[1], value->at, "post_processor", "processors"));
    j = field[1];
    het_json_enter(&j, HET_JSON_ARRAY);
    while (het_json_next(&j, NULL, 0, NULL)) {
        HETI_T_TRY(heti_f_read_processor(s, &j, 0, wrap));
        het_json_skip(&j);
    }
    return heti_f_json(s, &j);
}

/* ---- model and added tokens: sizes ---- */

/* Cursors at what the tables are made of, and how large they become. */
typedef struct heti_f_parts {
    het_json vocab, merges, added;
    size_t tokens, token_bytes, merge_count, merge_bytes, added_count, added_bytes;
    int64_t largest;
    int needs_bytes;                  /* the model has a way with bytes that lack a token which is not done here */
    size_t needs_bytes_at;
    heti_f_wrap wrap;
} heti_f_parts;

#define HETI_F_GAPS 65536 /* ids that may have no token */

static het_result heti_f_count_vocab(const heti_f_source *s, heti_f_parts *p) {
    het_json j = p->vocab;
    size_t length;
    int64_t id;
    p->largest = -1;
    het_json_enter(&j, HET_JSON_OBJECT);
    while (het_json_next(&j, NULL, 0, &length)) {
        const size_t at = j.at;
        if (!het_json_integer(&j, &id)) break;
        if (id < 0 || id > INT32_MAX - 1 - HETI_F_GAPS)
            return heti_f_bad(s, HET_ERR_FORMAT, at, "model.vocab has the id %d", id);
        p->tokens++;
        p->token_bytes += length;
        if (id > p->largest) p->largest = id;
    }
    HETI_T_TRY(heti_f_json(s, &j));
    if (p->largest < HETI_T_CAST(int64_t, p->tokens) + HETI_F_GAPS) return HET_OK;
    return heti_f_bad(s, HET_ERR_LIMIT, p->vocab.at, "model.vocab has the id %d with %d tokens; at most %d "
                                                     "ids may have none", p->largest, HETI_T_CAST(int64_t, p->tokens),
                                                         HETI_T_CAST(int64_t, HETI_F_GAPS));
}

/* A merge is "left right" or ["left", "right"]. */
static het_result heti_f_count_merges(const heti_f_source *s, heti_f_parts *p) {
    het_json j = p->merges;
    size_t length, total;
    het_json_enter(&j, HET_JSON_ARRAY);
    while (het_json_next(&j, NULL, 0, NULL)) {
        const size_t at = j.at;
        int parts = 0;
        total = 0;
        if (het_json_peek(&j) == HET_JSON_STRING) het_json_string(&j, NULL, 0, &total);
        else {
            het_json_enter(&j, HET_JSON_ARRAY);
            while (het_json_next(&j, NULL, 0, NULL)) {
                if (!het_json_string(&j, NULL, 0, &length)) break;
                total += length;
                parts++;
            }
            HETI_T_TRY(heti_f_json(s, &j));
            if (parts != 2)
                return heti_f_bad(s, HET_ERR_FORMAT, at, "model.merges[%d] has %d texts, not 2",
                                   HETI_T_CAST(int64_t, p->merge_count), HETI_T_CAST(int64_t, parts));
        }
        if (total > p->merge_bytes) p->merge_bytes = total;
        p->merge_count++;
    }
    return heti_f_json(s, &j);
}

static const char *const heti_f_added_names[7] = { "id", "content", "single_word", "lstrip", "rstrip", "normalized",
                                                  "special" };

static het_result heti_f_read_added_fields(const heti_f_source *s, het_json *j, het_json field[7]) {
    const size_t at = j->at;
    int i;
    HETI_T_TRY(heti_f_fields(s, j, "an added token", heti_f_added_names, 7, field));
    for (i = 0; i < 7; i++) HETI_T_TRY(heti_f_missing(s, &field[i], at, "an added token", heti_f_added_names[i]));
    return HET_OK;
}

static het_result heti_f_count_added(const heti_f_source *s, heti_f_parts *p) {
    het_json j = p->added, field[7];
    size_t length;
    if (p->added.text == NULL) return HET_OK;
    het_json_enter(&j, HET_JSON_ARRAY);
    while (het_json_next(&j, NULL, 0, NULL)) {
        HETI_T_TRY(heti_f_read_added_fields(s, &j, field));
        HETI_T_TRY(heti_f_string(s, &field[1], NULL, 0, &length));
        p->added_count++;
        p->added_bytes += length;
    }
    return heti_f_json(s, &j);
}

static het_result heti_f_read_model(const heti_f_source *s, const het_json *value, het_tokenizer_info *info,
                                    heti_f_parts *p) {
    static const char *const heti_f_names[10] = { "type", "dropout", "unk_token", "continuing_subword_prefix",
                                                 "end_of_word_suffix", "fuse_unk",
                                                  "byte_fallback", "ignore_merges", "vocab", "merges" };
    const size_t at = value->at;
    het_json j = *value, field[10];
    char word[16];
    size_t length;
    double dropout = 0;
    int i, which, fuse, fallback;
    HETI_T_TRY(heti_f_fields(s, &j, "model", heti_f_names, 10, field));
    /* files before 2020 have no type */
    if (field[0].text != NULL) HETI_T_TRY(heti_f_type(s, value, "model", "BPE", &which));
    if (!heti_f_is_null(&field[1])) {
        j = field[1];
        het_json_real(&j, &dropout);
        HETI_T_TRY(heti_f_json(s, &j));
        if (dropout > 0 || dropout < 0)
            return heti_f_bad(s, HET_ERR_UNSUPPORTED, field[1].at, "model.dropout is not 0");
    }
    for (i = 3; i < 5; i++) {
        if (heti_f_is_null(&field[i])) continue;
        HETI_T_TRY(heti_f_string(s, &field[i], word, sizeof word, &length));
        if (length > 0)
            return heti_f_bad(s, HET_ERR_UNSUPPORTED, field[i].at, "model.%s %q is not supported",
                               heti_f_names[i], word, heti_t_shown(length, sizeof word));
    }
    HETI_T_TRY(heti_f_flag(s, &field[5], 0, &fuse));
    HETI_T_TRY(heti_f_flag(s, &field[6], 0, &fallback));
    HETI_T_TRY(heti_f_flag(s, &field[7], 0, &i));
    info->ignore_merges = i;
    if (!heti_f_is_null(&field[2])) HETI_T_TRY(heti_f_string(s, &field[2], word, sizeof word, &length));
    p->needs_bytes = !heti_f_is_null(&field[2]) || fallback;
    p->needs_bytes_at = fallback ? field[6].at : field[2].at;
    HETI_T_TRY(heti_f_missing(s, &field[8], at, "model", "vocab"));
    HETI_T_TRY(heti_f_missing(s, &field[9], at, "model", "merges"));
    p->vocab = field[8];
    p->merges = field[9];
    HETI_T_TRY(heti_f_count_vocab(s, p));
    return heti_f_count_merges(s, p);
}

/* Everything but the tables. */
static het_result heti_f_read_parts(const heti_f_source *s, het_tokenizer_info *info, heti_f_parts *p) {
    static const char *const heti_f_names[9] = { "version", "truncation", "padding", "added_tokens", "normalizer",
                                                "pre_tokenizer", "post_processor",
                                                 "decoder", "model" };
    het_json j = het_json_start(s->text, s->length), field[9];
    char version[8];
    size_t length;
    HETI_T_TRY(heti_f_fields(s, &j, "the file", heti_f_names, 9, field));
    if (!het_json_end(&j)) return heti_f_json(s, &j);
    if (field[0].text != NULL) {
        HETI_T_TRY(heti_f_string(s, &field[0], version, sizeof version, &length));
        if (!heti_t_is(version, length < sizeof version ? length : 0, "1.0"))
            return heti_f_bad(s, HET_ERR_UNSUPPORTED, field[0].at, "version %q, not \"1.0\"", version,
                               heti_t_shown(length, sizeof version));
    }
    HETI_T_TRY(heti_f_missing(s, &field[8], 0, "the file", "model"));
    HETI_T_TRY(heti_f_only_null(s, &field[1], "truncation"));
    HETI_T_TRY(heti_f_only_null(s, &field[2], "padding"));
    HETI_T_TRY(heti_f_read_normalizer(s, &field[4], info));
    HETI_T_TRY(heti_f_read_model(s, &field[8], info, p));
    HETI_T_TRY(heti_f_read_pre_tokenizer(s, &field[5], info));
    if (!heti_f_is_null(&field[6])) HETI_T_TRY(heti_f_read_processor(s, &field[6], 1, &p->wrap));
    HETI_T_TRY(heti_f_read_decoder(s, &field[7]));
    p->added = field[3];
    return heti_f_count_added(s, p);
}

/* ---- model and added tokens: tables ---- */

static void heti_f_cut(het_tokenizer *t, const heti_f_parts *p, heti_t_arena *arena) {
    const size_t entries = p->tokens + p->added_count, ids = HETI_T_CAST(size_t, p->largest + 1),
                 longest = t->info.nfc ? 3 : 1;
    int i;
    /* NFC has at most 3 times the bytes */
    t->bytes_size = p->token_bytes + 1 + p->added_bytes * (1 + 2 * longest) + p->added_count + 1;
    t->scratch_size = p->merge_bytes + 2;
    t->slots = heti_f_slots(entries);
    t->pair_slots = heti_f_slots(p->merge_count);
    t->json = HETI_T_TAKE(arena, char, t->json_length);
    t->bytes = HETI_T_TAKE(arena, char, t->bytes_size);
    t->scratch = HETI_T_TAKE(arena, char, 2 * t->scratch_size);
    t->token = HETI_T_TAKE(arena, heti_f_token, entries);
    t->place = HETI_T_TAKE(arena, int32_t, ids > entries ? ids : entries);
    t->slot = HETI_T_TAKE(arena, uint32_t, t->slots);
    t->pair = HETI_T_TAKE(arena, uint64_t, t->pair_slots);
    t->rank = HETI_T_TAKE(arena, uint32_t, t->pair_slots);
    t->left = HETI_T_TAKE(arena, int32_t, p->merge_count);
    t->right = HETI_T_TAKE(arena, int32_t, p->merge_count);
    t->joined = HETI_T_TAKE(arena, int32_t, p->merge_count);
    t->added = HETI_T_TAKE(arena, heti_f_added, p->added_count);
    t->wrap = HETI_T_TAKE(arena, int32_t, HETI_F_WRAP);
    for (i = 0; i < 2; i++) {
        heti_f_matcher *m = &t->matcher[i];
        const size_t nodes = 1 + p->added_bytes * (i == 1 ? longest : 1);
        m->slots = heti_f_slots(nodes);
        m->key = HETI_T_TAKE(arena, uint64_t, m->slots);
        m->child = HETI_T_TAKE(arena, int32_t, m->slots);
        m->fail = HETI_T_TAKE(arena, int32_t, nodes);
        m->out = HETI_T_TAKE(arena, int32_t, nodes);
    }
}

/* Enters a token's id. */
static het_result heti_f_place(het_tokenizer *t, const heti_f_source *s, size_t at, int64_t entry, int64_t id) {
    if (t->place[id] >= 0)
        return heti_f_bad(s, HET_ERR_FORMAT, at, "model.vocab has the id %d twice", id);
    t->token[entry].id = HETI_T_CAST(int32_t, id);
    t->place[id] = HETI_T_CAST(int32_t, entry);
    if (id >= t->info.vocab) t->info.vocab = id + 1;
    return HET_OK;
}

static het_result heti_f_fill_vocab(het_tokenizer *t, const heti_f_source *s, const heti_f_parts *p) {
    het_json j = p->vocab;
    size_t length, slot;
    int64_t entry = 0, id;
    int spelled, byte;
    het_json_enter(&j, HET_JSON_OBJECT);
    while (het_json_next(&j, t->bytes + t->bytes_used, t->bytes_size - t->bytes_used, &length)) {
        heti_f_token *e = &t->token[entry];
        char *text = t->bytes + t->bytes_used;
        const size_t at = j.at, bytes = heti_f_unspell(text, length, &spelled);
        memset(e, 0, sizeof *e);
        e->bytes = HETI_T_CAST(uint32_t, t->bytes_used);
        e->length = HETI_T_CAST(uint32_t, bytes);
        e->spelled = HETI_T_CAST(uint8_t, spelled);
        if (bytes > t->longest) t->longest = bytes;
        slot = heti_f_slot(t, spelled ? HETI_F_KEY_BYTES : HETI_F_KEY_TEXT, text, bytes);
        if (t->slot[slot] != 0)
            return heti_f_bad(s, HET_ERR_FORMAT, at, "model.vocab has the token %q twice", text, bytes);
        if (!het_json_integer(&j, &id)) break;
        HETI_T_TRY(heti_f_place(t, s, at, entry, id));
        t->slot[slot] = HETI_T_CAST(uint32_t, entry + 1);
        t->bytes_used += bytes;
        entry++;
    }
    for (byte = 0; byte < 256; byte++) {
        const char c = HETI_T_CAST(char, HETI_T_CAST(unsigned char, byte));
        slot = heti_f_slot(t, HETI_F_KEY_BYTES, &c, 1);
        t->byte_id[byte] = t->slot[slot] != 0 ? t->token[t->slot[slot] - 1].id : -1;
        if (t->byte_id[byte] < 0 && p->needs_bytes)
            return heti_f_bad(s, HET_ERR_UNSUPPORTED, p->needs_bytes_at,
                              "unk_token or byte_fallback with a model.vocab that lacks byte %d",
                              HETI_T_CAST(int64_t, byte));
    }
    return heti_f_json(s, &j);
}

/* The two texts of a merge, one behind the other in t->scratch. *length 0: a comment of a
   merges.txt. */
static het_result heti_f_read_merge(het_tokenizer *t, const heti_f_source *s, het_json *j, size_t index,
                                    size_t length[2]) {
    const size_t at = j->at;
    char *space;
    size_t total = 0;
    length[0] = length[1] = 0;
    if (het_json_peek(j) == HET_JSON_ARRAY) {
        het_json_enter(j, HET_JSON_ARRAY);
        (void)het_json_next(j, NULL, 0, NULL);
        het_json_string(j, t->scratch, t->scratch_size, &length[0]);
        (void)het_json_next(j, NULL, 0, NULL);
        het_json_string(j, t->scratch + length[0], t->scratch_size - length[0], &length[1]);
        (void)het_json_next(j, NULL, 0, NULL);
        HETI_T_TRY(heti_f_json(s, j));
    } else {
        het_json_string(j, t->scratch, t->scratch_size, &total);
        HETI_T_TRY(heti_f_json(s, j));
        if (total >= 8 && memcmp(t->scratch, "#version", 8) == 0) return HET_OK;
        space = HETI_T_CAST(char *, memchr(t->scratch, ' ', total));
        if (space != NULL) {
            length[0] = HETI_T_CAST(size_t, space - t->scratch);
            length[1] = total - length[0] - 1;
            memmove(space, space + 1, length[1]);
            if (memchr(space, ' ', length[1]) != NULL) length[0] = 0;
        }
    }
    if (length[0] > 0 && length[1] > 0) return HET_OK;
    return heti_f_bad(s, HET_ERR_FORMAT, at, "model.merges[%d] is not two tokens with a space between",
                       HETI_T_CAST(int64_t, index));
}

/* The id of scratch[from .. from + length). */
static het_result heti_f_merge_id(het_tokenizer *t, const heti_f_source *s, size_t at, size_t index, size_t from,
                                  size_t length, int32_t *id) {
    char *copy = t->scratch + t->scratch_size;
    int64_t entry;
    memcpy(copy, t->scratch + from, length);
    entry = heti_f_model_place(t, copy, length);
    if (entry >= 0) {
        *id = t->token[entry].id;
        return HET_OK;
    }
    return heti_f_bad(s, HET_ERR_FORMAT, at, "model.merges[%d]: %q is not in model.vocab",
                       HETI_T_CAST(int64_t, index), t->scratch + from, length);
}

static het_result heti_f_fill_merges(het_tokenizer *t, const heti_f_source *s, const heti_f_parts *p) {
    het_json j = p->merges;
    size_t length[2], index, rank = 0, slot;
    het_json_enter(&j, HET_JSON_ARRAY);
    for (index = 0; het_json_next(&j, NULL, 0, NULL); index++) {
        const size_t at = j.at;
        uint64_t key;
        HETI_T_TRY(heti_f_read_merge(t, s, &j, index, length));
        if (length[0] == 0) continue;
        HETI_T_TRY(heti_f_merge_id(t, s, at, index, 0, length[0], &t->left[rank]));
        HETI_T_TRY(heti_f_merge_id(t, s, at, index, length[0], length[1], &t->right[rank]));
        HETI_T_TRY(heti_f_merge_id(t, s, at, index, 0, length[0] + length[1], &t->joined[rank]));
        key = heti_f_pair_key(t->left[rank], t->right[rank]);
        slot = heti_f_pair_slot(t, key);
        if (t->pair[slot] != 0)
            return heti_f_bad(s, HET_ERR_FORMAT, at, "model.merges[%d] joins %q again",
                               HETI_T_CAST(int64_t, index), t->scratch, length[0] + length[1]);
        t->pair[slot] = key;
        t->rank[slot] = HETI_T_CAST(uint32_t, rank++);
    }
    t->info.merges = HETI_T_CAST(int64_t, rank);
    return heti_f_json(s, &j);
}

/* What is looked for, and what it decodes to. */
static het_result heti_f_added_texts(het_tokenizer *t, heti_f_added *a, heti_f_token *e, het_error *error) {
    heti_t_list normal = { NULL, 0, 0 }, points = { NULL, 0, 0 };
    het_result result = HET_OK;
    int spelled;
    a->pattern = a->content;
    a->pattern_length = a->content_length;
    if (a->normalized && t->info.nfc) {
        const unsigned char *text =
                             HETI_T_CAST(const unsigned char *, HETI_T_CAST(const void *, t->bytes + a->content));
        result = heti_f_nfc(text, a->content_length, &normal, &points, &t->allocator, error);
        if (result == HET_OK && (normal.used != a->content_length || memcmp(normal.data, text, normal.used) != 0)) {
            a->pattern = HETI_T_CAST(uint32_t, t->bytes_used);
            a->pattern_length = HETI_T_CAST(uint32_t, normal.used);
            memcpy(t->bytes + t->bytes_used, normal.data, normal.used);
            t->bytes_used += normal.used;
        }
        heti_t_list_free(&normal, &t->allocator);
        heti_t_list_free(&points, &t->allocator);
    }
    memset(e, 0, sizeof *e);
    e->bytes = HETI_T_CAST(uint32_t, t->bytes_used);
    memcpy(t->bytes + t->bytes_used, t->bytes + a->pattern, a->pattern_length);
    e->length = HETI_T_CAST(uint32_t, heti_f_unspell(t->bytes + t->bytes_used, a->pattern_length, &spelled));
    t->bytes_used += e->length;
    e->spelled = HETI_T_CAST(uint8_t, spelled);
    e->is_added = 1;
    e->special = a->special;
    e->id = a->id;
    return result;
}

/* Ids of added tokens are not free: one whose text is in the vocabulary has that id, the others
   follow the number of the model's tokens. Hugging Face's reader gives these ids whatever the file
   says, so a file that says otherwise means something else to each reader. */
static het_result heti_f_fill_added(het_tokenizer *t, const heti_f_source *s, const heti_f_parts *p) {
    het_json j = p->added, field[7], number;
    int64_t index = 0, id, wanted, next = t->model_tokens;
    size_t length;
    if (p->added.text == NULL) return HET_OK;
    het_json_enter(&j, HET_JSON_ARRAY);
    for (; het_json_next(&j, NULL, 0, NULL); index++) {
        heti_f_added *a = &t->added[index];
        const size_t at = j.at;
        int64_t entry;
        size_t slot;
        int flag[5], i;
        char *content = t->bytes + t->bytes_used;
        HETI_T_TRY(heti_f_read_added_fields(s, &j, field));
        HETI_T_TRY(heti_f_string(s, &field[1], content, t->bytes_size - t->bytes_used, &length));
        for (i = 0; i < 5; i++) HETI_T_TRY(heti_f_flag(s, &field[2 + i], 0, &flag[i]));
        memset(a, 0, sizeof *a);
        a->content = HETI_T_CAST(uint32_t, t->bytes_used);
        a->content_length = HETI_T_CAST(uint32_t, length);
        a->single_word = HETI_T_CAST(uint8_t, flag[0]);
        a->lstrip = HETI_T_CAST(uint8_t, flag[1]);
        a->rstrip = HETI_T_CAST(uint8_t, flag[2]);
        a->normalized = HETI_T_CAST(uint8_t, flag[3]);
        a->special = HETI_T_CAST(uint8_t, flag[4]);
        t->bytes_used += length;
        slot = heti_f_slot(t, HETI_F_KEY_ADDED, content, length);
        if (length == 0 || t->slot[slot] != 0)
            return heti_f_bad(s, HET_ERR_FORMAT, at, "added_tokens[%d] %q %s", index, content, length,
                               length == 0 ? "has no text" : "comes twice");
        t->slot[slot] = HETI_T_CAST(uint32_t, t->model_tokens + index + 1);
        memcpy(content + length, content, length); /* heti_f_model_place may change its text; the room is there */
        entry = heti_f_model_place(t, content + length, length);
        wanted = entry >= 0 ? t->token[entry].id : next++;
        number = field[0];
        if (!het_json_integer(&number, &id)) return heti_f_json(s, &number);
        if (id != wanted || (entry < 0 && t->place[id] >= 0))
            return heti_f_bad(s, HET_ERR_FORMAT, at, "added_tokens[%d] %q has the id %d; %s %d", index, content, length,
                              id, id != wanted ? "by its place it is" : "so has a token of model.vocab:", wanted);
        a->id = HETI_T_CAST(int32_t, id);
        entry = t->model_tokens + index;
        HETI_T_TRY(heti_f_added_texts(t, a, &t->token[entry], s->error));
        t->place[id] = HETI_T_CAST(int32_t, entry);
        if (id >= t->info.vocab) t->info.vocab = id + 1;
    }
    t->info.added = index;
    return heti_f_json(s, &j);
}

/* One automaton over the added tokens, level by level, so that each node's suffix is there before
   it. at, active: [added]. */
static het_result heti_f_fill_matcher(het_tokenizer *t, const heti_f_source *s, int which, int32_t *at,
                                      int32_t *active) {
    heti_f_matcher *m = &t->matcher[which];
    int32_t count = 0, left, i;
    size_t level = 0;
    m->nodes = 1;
    m->fail[0] = 0;
    m->out[0] = -1;
    for (i = 0; i < HETI_T_CAST(int32_t, t->info.added); i++) {
        at[i] = 0;
        if (t->added[i].normalized == which) active[count++] = i;
    }
    for (; count > 0; count = left, level++) {
        for (left = 0, i = 0; i < count; i++) {
            const int32_t index = active[i];
            const heti_f_added *a = &t->added[index];
            int32_t node = heti_f_match_extend(m, at[index],
                                               HETI_T_CAST(unsigned char, t->bytes[a->pattern + a->pattern_length - 1 -
                                                   level]));
            at[index] = node;
            if (level + 1 < a->pattern_length) { active[left++] = index; continue; }
            if (m->out[node] >= 0 && t->added[m->out[node]].pattern_length == a->pattern_length)
                return heti_t_fail(s->error, HET_ERR_FORMAT, "tokenizer: added_tokens[%d] and added_tokens[%d] %q are "
                    "the same when normalized", HETI_T_CAST(int64_t, m->out[node]), HETI_T_CAST(int64_t, index),
                    t->bytes + a->content, HETI_T_CAST(size_t, a->content_length));
            m->out[node] = index;
        }
    }
    return HET_OK;
}

static het_result heti_f_fill_wrap(het_tokenizer *t, const heti_f_source *s, const heti_f_wrap *wrap) {
    int i;
    for (i = 0; i < wrap->count; i++) {
        t->wrap[i] = wrap->id[i];
        if (wrap->id[i] >= t->info.vocab || t->place[wrap->id[i]] < 0)
            return heti_f_bad(s, HET_ERR_FORMAT, wrap->at[i], "a template's id that no token has");
    }
    t->info.prefix = t->wrap;
    t->info.prefixes = wrap->prefixes;
    t->info.suffix = t->wrap + wrap->prefixes;
    t->info.suffixes = wrap->count - wrap->prefixes;
    return HET_OK;
}

/* The block is there, and everything in it 0. */
static het_result heti_f_fill(het_tokenizer *t, const heti_f_source *s, const heti_f_parts *p) {
    heti_t_list room = { NULL, 0, 0 };
    het_result result;
    int32_t *at;
    size_t i;
    const size_t entries = p->tokens + p->added_count, ids = HETI_T_CAST(size_t, p->largest + 1);
    memcpy(t->json, s->text, s->length);
    t->seed = het_xxh64(s->text, s->length, 0);
    t->model_tokens = HETI_T_CAST(int64_t, p->tokens);
    for (i = 0; i < (ids > entries ? ids : entries); i++) t->place[i] = -1;
    HETI_T_TRY(heti_f_fill_vocab(t, s, p));
    HETI_T_TRY(heti_f_fill_merges(t, s, p));
    HETI_T_TRY(heti_f_fill_added(t, s, p));
    for (i = 0; i < HETI_T_CAST(size_t, t->info.vocab); i++) t->info.tokens += t->place[i] >= 0;
    HETI_T_TRY(heti_t_list_room(&room, p->added_count * 2 * sizeof *at + 1, &t->allocator, s->error));
    at = HETI_T_CAST(int32_t *, HETI_T_CAST(void *, room.data));
    result = heti_f_fill_matcher(t, s, 0, at, at + p->added_count);
    if (result == HET_OK) result = heti_f_fill_matcher(t, s, 1, at, at + p->added_count);
    heti_t_list_free(&room, &t->allocator);
    return result == HET_OK ? heti_f_fill_wrap(t, s, &p->wrap) : result;
}

HETRAIN_API het_result het_tokenizer_read(const char *text, size_t length, const het_allocator *allocator,
                                          het_tokenizer **tokenizer, het_error *error) {
    heti_f_source s;
    heti_f_parts parts;
    heti_t_arena arena = { NULL, 0 };
    het_tokenizer sizes, *t;
    het_result result;
    if (text == NULL || tokenizer == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_tokenizer_read: text or tokenizer is NULL");
    memset(&sizes, 0, sizeof sizes);
    memset(&parts, 0, sizeof parts);
    HETI_T_TRY(heti_t_choose(allocator, &sizes.allocator, error, "het_tokenizer_read"));
    if (length > (HETI_T_CAST(size_t, 1) << 30))
        return heti_t_fail(error, HET_ERR_LIMIT, "tokenizer: a file of %d bytes; the most are 1073741824",
                           HETI_T_CAST(int64_t, length));
    s.text = text;
    s.length = sizes.json_length = length;
    s.error = error;
    HETI_T_TRY(heti_f_read_parts(&s, &sizes.info, &parts));
    (void)heti_t_take(&arena, 1, sizeof sizes);
    heti_f_cut(&sizes, &parts, &arena);
    sizes.size = arena.used;
    arena.base = arena.used == SIZE_MAX ? NULL : HETI_T_CAST(char *, sizes.allocator.alloc(sizes.allocator.user,
        sizes.size, 16));
    if (arena.base == NULL)
        return heti_t_fail(error, HET_ERR_OOM, "the allocator gave no %d bytes", HETI_T_CAST(int64_t, sizes.size));
    memset(arena.base, 0, sizes.size);
    arena.used = 0;
    t = HETI_T_CAST(het_tokenizer *, heti_t_take(&arena, 1, sizeof sizes));
    *t = sizes;
    heti_f_cut(t, &parts, &arena);
    result = heti_f_fill(t, &s, &parts);
    if (result == HET_OK) *tokenizer = t;
    else het_tokenizer_free(t);
    return result;
}

HETRAIN_API het_result het_tokenizer_write(const het_tokenizer *tokenizer, const het_writer *to) {
    if (tokenizer == NULL || to == NULL || to->write == NULL) return HET_ERR_INVALID;
    return to->write(to->user, tokenizer->json, tokenizer->json_length) == 0 ? HET_OK : HET_ERR_IO;
}

HETRAIN_API void het_tokenizer_free(het_tokenizer *tokenizer) {
    het_allocator allocator;
    if (tokenizer == NULL) return;
    allocator = tokenizer->allocator;
    allocator.free(allocator.user, tokenizer, tokenizer->size);
}

/* =================================================================================================
   >>encode  Text to ids. A word is a chain of symbols; of its pairs that are merges the one of the
             lowest rank is taken from a heap. A pair's
   heap entry is (rank << 32 | place), so equal ranks come leftmost first; an entry whose symbol has
   another rank by now is passed over. Each merge takes one entry and adds at most two, so a word of
   n bytes has never more than 2 n of them: n log n, whatever the word.
   ============================================================================================== */

#define HETI_F_NONE 0xFFFFFFFFu

typedef struct heti_f_symbol {
    int32_t id;
    uint32_t before, after;           /* its neighbours, or NONE */
    uint32_t rank;                    /* of the merge with the one after it, or NONE */
} heti_f_symbol;

typedef struct heti_f_encoder {
    const het_tokenizer *t;
    het_allocator allocator;
    het_error *error;
    /* what is done with a word */
    het_result (*word)(struct heti_f_encoder *e, const unsigned char *text, size_t length);
    void *user;
    int special;                      /* texts of special tokens become ids */
    int32_t *to;
    int64_t capacity, count;
    size_t at;                        /* where the present piece of text begins, for messages */
    const unsigned char *text;        /* the whole text */
    heti_t_list points, normal, spaced, found[2], symbols, heap;
    uint64_t *entry;                  /* the heap: [entries] */
    size_t entries;
} heti_f_encoder;

static void heti_f_emit(heti_f_encoder *e, int32_t id) {
    if (e->count < e->capacity) e->to[e->count] = id;
    e->count++;
}

/* ---- a heap of integers, the least on top ---- */

static void heti_f_heap_push(heti_f_encoder *e, uint64_t value) {
    size_t at = e->entries++;
    for (; at > 0 && e->entry[(at - 1) / 2] > value; at = (at - 1) / 2) e->entry[at] = e->entry[(at - 1) / 2];
    e->entry[at] = value;
}

static uint64_t heti_f_heap_pop(heti_f_encoder *e) {
    const uint64_t top = e->entry[0], last = e->entry[--e->entries];
    size_t at = 0, child;
    for (; (child = 2 * at + 1) < e->entries; at = child) {
        if (child + 1 < e->entries && e->entry[child + 1] < e->entry[child]) child++;
        if (e->entry[child] >= last) break;
        e->entry[at] = e->entry[child];
    }
    e->entry[at] = last;
    return top;
}

/* Looks up the pair of the symbol at `at` and the one after it. */
static void heti_f_pair_up(heti_f_encoder *e, heti_f_symbol *symbol, uint32_t at) {
    heti_f_symbol *x = &symbol[at];
    x->rank = HETI_F_NONE;
    if (x->after != HETI_F_NONE) {
        const size_t slot = heti_f_pair_slot(e->t, heti_f_pair_key(x->id, symbol[x->after].id));
        if (e->t->pair[slot] == 0) return;
        x->rank = e->t->rank[slot];
        heti_f_heap_push(e, HETI_T_CAST(uint64_t, x->rank) << 32 | at);
    }
}

static void heti_f_merge_all(heti_f_encoder *e, heti_f_symbol *symbol) {
    while (e->entries > 0) {
        const uint64_t top = heti_f_heap_pop(e);
        const uint32_t at = HETI_T_CAST(uint32_t, top & 0xFFFFFFFFu);
        heti_f_symbol *x = &symbol[at], *gone;
        if (x->rank != top >> 32) continue;
        gone = &symbol[x->after];
        x->id = e->t->joined[x->rank];
        x->after = gone->after;
        if (x->after != HETI_F_NONE) symbol[x->after].before = at;
        gone->rank = HETI_F_NONE;
        heti_f_pair_up(e, symbol, at);
        if (x->before != HETI_F_NONE) heti_f_pair_up(e, symbol, x->before);
    }
}

static het_result heti_f_encode_word(heti_f_encoder *e, const unsigned char *text, size_t length) {
    const het_tokenizer *t = e->t;
    heti_f_symbol *symbol;
    size_t i;
    uint32_t at;
    if (t->info.ignore_merges && length <= t->longest) {
        const uint32_t entry = t->slot[heti_f_slot(t, HETI_F_KEY_BYTES,
                                                   HETI_T_CAST(const char *, HETI_T_CAST(const void *, text)), length)];
        if (entry != 0) { heti_f_emit(e, t->token[entry - 1].id); return HET_OK; }
    }
    if (length >= INT32_MAX)
        return heti_t_fail(e->error, HET_ERR_LIMIT, "het_tokenizer_encode: a word of %d bytes",
                           HETI_T_CAST(int64_t, length));
    HETI_T_TRY(heti_t_list_room(&e->symbols, length * sizeof *symbol, &e->allocator, e->error));
    HETI_T_TRY(heti_t_list_room(&e->heap, length * 2 * sizeof *e->entry, &e->allocator, e->error));
    symbol = HETI_T_CAST(heti_f_symbol *, HETI_T_CAST(void *, e->symbols.data));
    e->entry = HETI_T_CAST(uint64_t *, HETI_T_CAST(void *, e->heap.data));
    for (i = 0; i < length; i++) {
        symbol[i].id = t->byte_id[text[i]];
        symbol[i].before = i > 0 ? HETI_T_CAST(uint32_t, i - 1) : HETI_F_NONE;
        symbol[i].after = i + 1 < length ? HETI_T_CAST(uint32_t, i + 1) : HETI_F_NONE;
        if (symbol[i].id < 0)
            return heti_t_fail(e->error, HET_ERR_DATA, "het_tokenizer_encode: the text behind byte %d has a byte %d, "
                                                       "which has no token", HETI_T_CAST(int64_t, e->at),
                                                       HETI_T_CAST(int64_t, text[i]));
    }
    for (i = 0; i < length; i++) heti_f_pair_up(e, symbol, HETI_T_CAST(uint32_t, i));
    heti_f_merge_all(e, symbol);
    for (at = 0; at != HETI_F_NONE; at = symbol[at].after) heti_f_emit(e, symbol[at].id);
    return HET_OK;
}

/* ---- pieces of text between added tokens ---- */

static het_result heti_f_encode_words(heti_f_encoder *e, const unsigned char *text, size_t length) {
    heti_f_words w;
    size_t at = 0, end;
    w.text = text;
    w.length = length;
    if (e->t->info.prefix_space && text[0] != ' ') {
        e->spaced.used = 0;
        HETI_T_TRY(heti_t_list_add(&e->spaced, " ", 1, &e->allocator, e->error));
        HETI_T_TRY(heti_t_list_add(&e->spaced, text, length, &e->allocator, e->error));
        w.text = HETI_T_CAST(const unsigned char *, HETI_T_CAST(const void *, e->spaced.data));
        w.length = length + 1;
    }
    for (; at < w.length; at = end) {
        end = heti_f_word_end(&w, e->t->info.split, at);
        HETI_T_TRY(e->word(e, w.text + at, end - at));
    }
    return HET_OK;
}

static int heti_f_is_word(uint32_t point) {
    const heti_f_class kind = heti_f_class_of(point);
    return kind == HETI_F_LETTER || kind == HETI_F_NUMBER || kind == HETI_F_WORD;
}

/* An added token that must be a word of its own may not touch a character of one. */
static int heti_f_touches(const unsigned char *text, size_t length, size_t begin, size_t end) {
    size_t size;
    return (begin > 0 && heti_f_is_word(heti_f_point_before(text, begin, &size)))
        || (end < length && heti_f_is_word(heti_t_point(text, length, end, &size)));
}

/* White space before `at` back to `least`, or behind it. */
static size_t heti_f_strip_left(const unsigned char *text, size_t at, size_t least) {
    size_t size;
    while (at > least && heti_f_class_of(heti_f_point_before(text, at, &size)) == HETI_F_SPACE) at -= size;
    return at;
}

static size_t heti_f_strip_right(const unsigned char *text, size_t length, size_t at) {
    size_t size;
    while (at < length && heti_f_class_of(heti_t_point(text, length, at, &size)) == HETI_F_SPACE) at += size;
    return at;
}

static het_result heti_f_encode_text(heti_f_encoder *e, int level, const unsigned char *text, size_t length);

/* What lies between two added tokens: goes through the next level. Level 0 is the text as it is, 1
   normalized text, and then come words. */
static het_result heti_f_encode_piece(heti_f_encoder *e, int level, const unsigned char *text, size_t length) {
    if (length == 0) return HET_OK;
    if (level == 1) return heti_f_encode_words(e, text, length);
    e->at = HETI_T_CAST(size_t, text - e->text);
    if (!e->t->info.nfc) return heti_f_encode_text(e, 1, text, length);
    e->normal.used = 0;
    HETI_T_TRY(heti_f_nfc(text, length, &e->normal, &e->points, &e->allocator, e->error));
    return heti_f_encode_text(e, 1, HETI_T_CAST(const unsigned char *, HETI_T_CAST(const void *, e->normal.data)),
                              e->normal.used);
}

/* Added tokens become ids; those that want white space on a side take it with them, though not what
   the token before has taken. `spaces` is where the white space ends that was last looked through,
   so that none is looked through twice. */
static het_result heti_f_encode_text(heti_f_encoder *e, int level, const unsigned char *text, size_t length) {
    heti_t_list *found = &e->found[level];
    size_t done = 0, from = 0, spaces = 0, i;
    found->used = 0;
    HETI_T_TRY(heti_f_match_all(&e->t->matcher[level], text, length, found, &e->allocator, e->error));
    for (i = found->used / sizeof(heti_f_found); i-- > 0;) {
        const heti_f_found *hit = HETI_T_CAST(const heti_f_found *, HETI_T_CAST(const void *, found->data)) + i;
        const heti_f_added *a = &e->t->added[hit->added];
        size_t begin = hit->at, end = begin + a->pattern_length;
        if (begin < from) continue;
        from = end;
        if ((a->special && !e->special) || (a->single_word && heti_f_touches(text, length, begin, end))) continue;
        if (a->lstrip) begin = heti_f_strip_left(text, begin, done < begin ? done : begin);
        if (a->lstrip && begin < done) begin = done;
        if (a->rstrip) spaces = end = end < spaces ? spaces : heti_f_strip_right(text, length, end);
        if (done < begin) HETI_T_TRY(heti_f_encode_piece(e, level, text + done, begin - done));
        if (e->word == heti_f_encode_word) heti_f_emit(e, a->id);
        done = end;
    }
    return done < length ? heti_f_encode_piece(e, level, text + done, length - done) : HET_OK;
}

static het_result heti_f_encoder_start(heti_f_encoder *e, const het_tokenizer *t, const char *text,
                                       const het_allocator *allocator, het_error *error) {
    memset(e, 0, sizeof *e);
    e->t = t;
    e->error = error;
    e->word = heti_f_encode_word;
    e->special = 1;
    e->text = HETI_T_CAST(const unsigned char *, HETI_T_CAST(const void *, text));
    return heti_t_choose(allocator, &e->allocator, error, "het_tokenizer_encode");
}

static void heti_f_encoder_end(heti_f_encoder *e) {
    heti_t_list_free(&e->points, &e->allocator);
    heti_t_list_free(&e->normal, &e->allocator);
    heti_t_list_free(&e->spaced, &e->allocator);
    heti_t_list_free(&e->found[0], &e->allocator);
    heti_t_list_free(&e->found[1], &e->allocator);
    heti_t_list_free(&e->symbols, &e->allocator);
    heti_t_list_free(&e->heap, &e->allocator);
}

HETRAIN_API het_result het_tokenizer_encode(const het_tokenizer *tokenizer, const het_encode_desc *desc,
                                            const char *text, size_t length, int32_t *to, int64_t capacity,
                                                        int64_t *count, het_error *error) {
    heti_f_encoder e;
    het_encode_desc d;
    het_result result;
    int64_t i;
    memset(&d, 0, sizeof d);
    if (desc != NULL) d = *desc;
    if (tokenizer == NULL || (text == NULL && length > 0) || count == NULL || capacity < 0 ||
        (to == NULL && capacity > 0) || d.start_canary != 0
        || d.end_canary != 0 || d.wrap < HET_DEFAULT || d.wrap > HET_NO || d.special < HET_DEFAULT ||
        d.special > HET_NO)
        return heti_t_fail(error, HET_ERR_INVALID,
                           "het_tokenizer_encode: a pointer is NULL, capacity negative, or desc not cleared");
    HETI_T_TRY(heti_f_encoder_start(&e, tokenizer, text, &d.allocator, error));
    e.special = d.special != HET_NO;
    e.to = to;
    e.capacity = capacity;
    for (i = 0; d.wrap != HET_NO && i < tokenizer->info.prefixes; i++) heti_f_emit(&e, tokenizer->info.prefix[i]);
    result = heti_f_encode_text(&e, 0, e.text, length);
    for (i = 0; d.wrap != HET_NO && i < tokenizer->info.suffixes; i++) heti_f_emit(&e, tokenizer->info.suffix[i]);
    heti_f_encoder_end(&e);
    if (result == HET_OK) *count = e.count;
    return result;
}

/* =================================================================================================
   >>decode  Ids to bytes, and what can be asked of a tokenizer.
   ============================================================================================== */

static const heti_f_token *heti_f_token_of(const het_tokenizer *t, int32_t id) {
    if (id < 0 || id >= t->info.vocab || t->place[id] < 0) return NULL;
    return &t->token[t->place[id]];
}

HETRAIN_API het_result het_tokenizer_decode(const het_tokenizer *tokenizer, const int32_t *token, int64_t count,
                                            het_choice skip_special, char *to, size_t capacity, size_t *length,
                                                       het_error *error) {
    size_t made = 0;
    int64_t i;
    if (tokenizer == NULL || count < 0 || (token == NULL && count > 0) || (to == NULL && capacity > 0) ||
        length == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_tokenizer_decode: a pointer is NULL, or count is negative");
    for (i = 0; i < count; i++)
        if (heti_f_token_of(tokenizer, token[i]) == NULL)
            return heti_t_fail(error, HET_ERR_DATA, "het_tokenizer_decode: token[%d] is %d, an id without a token", i,
                               HETI_T_CAST(int64_t, token[i]));
    for (i = 0; i < count; i++) {
        const heti_f_token *e = heti_f_token_of(tokenizer, token[i]);
        if (e->special && skip_special == HET_YES) continue;
        if (made < capacity)
            memcpy(to + made, tokenizer->bytes + e->bytes, e->length < capacity - made ? e->length : capacity - made);
        made += e->length;
    }
    *length = made;
    return HET_OK;
}

HETRAIN_API void het_tokenizer_get_info(const het_tokenizer *tokenizer, het_tokenizer_info *info) {
    *info = tokenizer->info;
}

HETRAIN_API int het_tokenizer_get_token(const het_tokenizer *tokenizer, int32_t id, het_token *token) {
    const heti_f_token *e = heti_f_token_of(tokenizer, id);
    if (e == NULL) return 0;
    token->bytes = tokenizer->bytes + e->bytes;
    token->length = e->length;
    token->added = e->is_added;
    token->special = e->special;
    return 1;
}

HETRAIN_API size_t het_tokenizer_spell(const het_tokenizer *tokenizer, int32_t id, char *to, size_t capacity) {
    const heti_f_token *e = heti_f_token_of(tokenizer, id);
    char letter[4];
    size_t made = 0, i, k, size, length;
    const char *bytes;
    if (e == NULL) return 0;
    bytes = tokenizer->bytes + (e->is_added ? tokenizer->added[tokenizer->place[id] - tokenizer->model_tokens].content :
                                e->bytes);
    length = e->is_added ? tokenizer->added[tokenizer->place[id] - tokenizer->model_tokens].content_length : e->length;
    for (i = 0; i < length; i++) {
        letter[0] = bytes[i];
        size = e->spelled && !e->is_added ? heti_t_utf8(heti_t_letter_of_byte(HETI_T_CAST(unsigned char, bytes[i])),
                                                        letter) : 1;
        for (k = 0; k < size; k++, made++)
            if (made + 1 < capacity) to[made] = letter[k];
    }
    if (capacity > 0) to[made < capacity ? made : capacity - 1] = 0;
    return made;
}

HETRAIN_API int het_tokenizer_get_merge(const het_tokenizer *tokenizer, int64_t index, int32_t *left, int32_t *right) {
    if (index < 0 || index >= tokenizer->info.merges) return 0;
    *left = tokenizer->left[index];
    *right = tokenizer->right[index];
    return 1;
}

HETRAIN_API int32_t het_tokenizer_find(const het_tokenizer *tokenizer, const char *bytes, size_t length) {
    uint32_t entry = tokenizer->slot[heti_f_slot(tokenizer, HETI_F_KEY_ADDED, bytes, length)];
    if (entry != 0) return tokenizer->added[entry - 1 - HETI_T_CAST(size_t, tokenizer->model_tokens)].id;
    entry = tokenizer->slot[heti_f_slot(tokenizer, HETI_F_KEY_BYTES, bytes, length)];
    if (entry == 0) entry = tokenizer->slot[heti_f_slot(tokenizer, HETI_F_KEY_TEXT, bytes, length)];
    return entry != 0 ? tokenizer->token[entry - 1].id : -1;
}

/* =================================================================================================
   >>learn  Training of byte-level BPE (Sennrich, Haddow, Birch, ACL 2016). Equal words are counted
            once. Every pair of neighbours knows how often it
   is met and, in a list, where; joining the commonest touches only those places. Counts in the heap
   may be out of date: one that is wrong when it comes to the top goes back with the right one.
   ============================================================================================== */

/* Texts, each once, numbered as they came. */
typedef struct heti_f_set {
    heti_t_list bytes, entry, slot;   /* entry: heti_f_item; slot: uint32_t index + 1 */
    size_t count, slots;
} heti_f_set;

typedef struct heti_f_item { size_t at, length; int64_t count; } heti_f_item;

static heti_f_item *heti_f_items(const heti_f_set *set) {
    return HETI_T_CAST(heti_f_item *, HETI_T_CAST(void *, set->entry.data));
}

static size_t heti_f_set_slot(const heti_f_set *set, const void *text, size_t length) {
    const uint32_t *slot = HETI_T_CAST(const uint32_t *, HETI_T_CAST(const void *, set->slot.data));
    size_t at = HETI_T_CAST(size_t, het_xxh64(text, length, 0)) & (set->slots - 1);
    for (; slot[at] != 0; at = (at + 1) & (set->slots - 1)) {
        const heti_f_item *item = &heti_f_items(set)[slot[at] - 1];
        if (item->length == length && memcmp(set->bytes.data + item->at, text, length) == 0) break;
    }
    return at;
}

/* Doubles the table of a set. */
static het_result heti_f_set_grow(heti_f_set *set, const het_allocator *allocator, het_error *error) {
    uint32_t *slot;
    size_t i;
    set->slots = set->slots == 0 ? 1024 : set->slots * 2;
    set->slot.used = 0;
    HETI_T_TRY(heti_t_list_room(&set->slot, set->slots * sizeof *slot, allocator, error));
    memset(set->slot.data, 0, set->slots * sizeof *slot);
    slot = HETI_T_CAST(uint32_t *, HETI_T_CAST(void *, set->slot.data));
    for (i = 0; i < set->count; i++) {
        const heti_f_item *item = &heti_f_items(set)[i];
        slot[heti_f_set_slot(set, set->bytes.data + item->at, item->length)] = HETI_T_CAST(uint32_t, i + 1);
    }
    return HET_OK;
}

/* *index: of a text, which is added if it is new; its count goes up by 1. */
static het_result heti_f_set_add(heti_f_set *set, const void *text, size_t length, size_t *index,
                                 const het_allocator *allocator, het_error *error) {
    heti_f_item item;
    uint32_t *slot;
    if (set->count * 2 >= set->slots) {
        if (set->count > INT32_MAX / 2)
            return heti_t_fail(error, HET_ERR_LIMIT, "het_tokenizer_train: more than 2^30 different words");
        HETI_T_TRY(heti_f_set_grow(set, allocator, error));
    }
    slot = HETI_T_CAST(uint32_t *, HETI_T_CAST(void *, set->slot.data)) + heti_f_set_slot(set, text, length);
    if (*slot == 0) {
        item.at = set->bytes.used;
        item.length = length;
        item.count = 0;
        HETI_T_TRY(heti_t_list_add(&set->bytes, text, length, allocator, error));
        HETI_T_TRY(heti_t_list_add(&set->entry, &item, sizeof item, allocator, error));
        *slot = HETI_T_CAST(uint32_t, ++set->count);
    }
    *index = *slot - 1;
    heti_f_items(set)[*index].count++;
    return HET_OK;
}

static void heti_f_set_free(heti_f_set *set, const het_allocator *allocator) {
    heti_t_list_free(&set->bytes, allocator);
    heti_t_list_free(&set->entry, allocator);
    heti_t_list_free(&set->slot, allocator);
}

/* One byte of one of the different words, later what it was joined into. */
typedef struct heti_f_place { int32_t id; uint32_t before, after, word; } heti_f_place_in_word;

typedef struct heti_f_pair {
    uint64_t key;                     /* left id << 32 | right id */
    int64_t count;
    uint32_t first, step;             /* head of its list of places; the last step that made it commoner */
    int32_t joined, unused;           /* it is among the merges: its places may come back when
                                         another pair spells the same token */
} heti_f_pair;

typedef struct heti_f_node { uint32_t place, next; } heti_f_node;

typedef struct heti_f_candidate { int64_t count; uint64_t key; } heti_f_candidate;

typedef struct heti_f_learner {
    het_allocator allocator;
    het_error *error;
    heti_f_set words, tokens;         /* tokens: their ids are their numbers */
    heti_t_list places, pairs, slots, nodes, heap, touched, sorted, merges, json;
    size_t place_count, pair_count, slot_count, node_count, entries;
    uint32_t step;
} heti_f_learner;

#define HETI_F_ITEMS(type, list) HETI_T_CAST(type *, HETI_T_CAST(void *, (list).data))

static het_result heti_f_count_word(heti_f_encoder *e, const unsigned char *text, size_t length) {
    heti_f_learner *l = HETI_T_CAST(heti_f_learner *, e->user);
    size_t index;
    return heti_f_set_add(&l->words, text, length, &index, &l->allocator, l->error);
}

/* ---- pairs ---- */

static size_t heti_f_learn_slot(const heti_f_learner *l, uint64_t key) {
    const uint32_t *slot = HETI_F_ITEMS(const uint32_t, l->slots);
    size_t at = HETI_T_CAST(size_t, heti_f_mix(key, 0)) & (l->slot_count - 1);
    while (slot[at] != 0 && HETI_F_ITEMS(const heti_f_pair, l->pairs)[slot[at] - 1].key != key)
        at = (at + 1) & (l->slot_count - 1);
    return at;
}

static het_result heti_f_learn_grow(heti_f_learner *l) {
    size_t i;
    l->slot_count = l->slot_count == 0 ? 1024 : l->slot_count * 2;
    l->slots.used = 0;
    HETI_T_TRY(heti_t_list_room(&l->slots, l->slot_count * sizeof(uint32_t), &l->allocator, l->error));
    memset(l->slots.data, 0, l->slot_count * sizeof(uint32_t));
    for (i = 0; i < l->pair_count; i++)
        HETI_F_ITEMS(uint32_t, l->slots)[heti_f_learn_slot(l, HETI_F_ITEMS(heti_f_pair, l->pairs)[i].key)] =
        HETI_T_CAST(uint32_t, i + 1);
    return HET_OK;
}

/* The pair that begins at a place is met `change` times more. */
static het_result heti_f_learn_count(heti_f_learner *l, uint32_t at, int64_t change) {
    const heti_f_place_in_word *place = HETI_F_ITEMS(const heti_f_place_in_word, l->places);
    const uint64_t key = HETI_T_CAST(uint64_t, place[at].id) << 32 | HETI_T_CAST(uint64_t, place[place[at].after].id);
    heti_f_pair *pair, fresh;
    heti_f_node node;
    uint32_t *slot;
    if (l->pair_count * 2 >= l->slot_count) HETI_T_TRY(heti_f_learn_grow(l));
    slot = HETI_F_ITEMS(uint32_t, l->slots) + heti_f_learn_slot(l, key);
    if (*slot == 0) {
        fresh.key = key;
        fresh.count = 0;
        fresh.first = HETI_F_NONE;
        fresh.step = HETI_F_NONE;
        fresh.joined = fresh.unused = 0;
        HETI_T_TRY(heti_t_list_add(&l->pairs, &fresh, sizeof fresh, &l->allocator, l->error));
        *slot = HETI_T_CAST(uint32_t, ++l->pair_count);
    }
    pair = HETI_F_ITEMS(heti_f_pair, l->pairs) + (*slot - 1);
    pair->count += change;
    if (change < 0) return HET_OK;
    node.place = at;
    node.next = pair->first;
    pair->first = HETI_T_CAST(uint32_t, l->node_count++);
    if (pair->step != l->step) {
        pair->step = l->step;
        HETI_T_TRY(heti_t_list_add(&l->touched, slot, sizeof *slot, &l->allocator, l->error));
    }
    if (l->node_count >= HETI_F_NONE)
        return heti_t_fail(l->error, HET_ERR_LIMIT, "het_tokenizer_train: different words of more than 2^30 bytes");
    return heti_t_list_add(&l->nodes, &node, sizeof node, &l->allocator, l->error);
}

/* ---- the heap: the commonest on top, of equals the lowest pair ---- */

static int heti_f_is_before(const heti_f_candidate *a, const heti_f_candidate *b) {
    return a->count > b->count || (a->count == b->count && a->key < b->key);
}

static het_result heti_f_candidate_push(heti_f_learner *l, int64_t count, uint64_t key) {
    heti_f_candidate c, *heap;
    size_t at = l->entries;
    c.count = count;
    c.key = key;
    l->heap.used = l->entries * sizeof c;
    HETI_T_TRY(heti_t_list_add(&l->heap, &c, sizeof c, &l->allocator, l->error));
    heap = HETI_F_ITEMS(heti_f_candidate, l->heap);
    l->entries++;
    for (; at > 0 && heti_f_is_before(&c, &heap[(at - 1) / 2]); at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = c;
    return HET_OK;
}

static heti_f_candidate heti_f_candidate_pop(heti_f_learner *l) {
    heti_f_candidate *heap = HETI_F_ITEMS(heti_f_candidate, l->heap);
    const heti_f_candidate top = heap[0], last = heap[--l->entries];
    size_t at = 0, child;
    for (; (child = 2 * at + 1) < l->entries; at = child) {
        if (child + 1 < l->entries && heti_f_is_before(&heap[child + 1], &heap[child])) child++;
        if (!heti_f_is_before(&heap[child], &last)) break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return top;
}

/* Pairs that became commoner in this step go into the heap. */
static het_result heti_f_learn_queue(heti_f_learner *l) {
    const size_t count = l->touched.used / sizeof(uint32_t);
    size_t i;
    for (i = 0; i < count; i++) {
        const heti_f_pair *pair = HETI_F_ITEMS(const heti_f_pair, l->pairs) + (HETI_F_ITEMS(const uint32_t,
            l->touched)[i] - 1);
        if (pair->count > 0) HETI_T_TRY(heti_f_candidate_push(l, pair->count, pair->key));
    }
    l->touched.used = 0;
    l->step++;
    return HET_OK;
}

/* ---- learning ---- */

/* The different words as places, and their pairs counted. A byte's id is that of its letter:
   letters come in the order of their code points. */
static het_result heti_f_learn_start(heti_f_learner *l, const int32_t *byte_id) {
    size_t w, i;
    heti_f_place_in_word place;
    if (l->words.bytes.used > INT32_MAX / 2)
        return heti_t_fail(l->error, HET_ERR_LIMIT,
                           "het_tokenizer_train: different words of %d bytes; the most are 2^30",
                           HETI_T_CAST(int64_t, l->words.bytes.used));
    for (w = 0; w < l->words.count; w++) {
        const heti_f_item *item = &heti_f_items(&l->words)[w];
        for (i = 0; i < item->length; i++) {
            const uint32_t at = HETI_T_CAST(uint32_t, l->place_count++);
            place.id = byte_id[HETI_T_CAST(unsigned char, l->words.bytes.data[item->at + i])];
            place.before = i > 0 ? at - 1 : HETI_F_NONE;
            place.after = i + 1 < item->length ? at + 1 : HETI_F_NONE;
            place.word = HETI_T_CAST(uint32_t, w);
            HETI_T_TRY(heti_t_list_add(&l->places, &place, sizeof place, &l->allocator, l->error));
        }
    }
    for (i = 0; i < l->place_count; i++) {
        const heti_f_place_in_word *p = HETI_F_ITEMS(const heti_f_place_in_word, l->places) + i;
        if (p->after != HETI_F_NONE)
            HETI_T_TRY(heti_f_learn_count(l, HETI_T_CAST(uint32_t, i), heti_f_items(&l->words)[p->word].count));
    }
    return heti_f_learn_queue(l);
}

/* Joins a place with the one after it. */
static het_result heti_f_learn_join(heti_f_learner *l, uint32_t at, int32_t id) {
    heti_f_place_in_word *place = HETI_F_ITEMS(heti_f_place_in_word, l->places);
    const int64_t count = heti_f_items(&l->words)[place[at].word].count;
    const uint32_t gone = place[at].after;
    if (place[at].before != HETI_F_NONE) HETI_T_TRY(heti_f_learn_count(l, place[at].before, -count));
    if (place[gone].after != HETI_F_NONE) HETI_T_TRY(heti_f_learn_count(l, gone, -count));
    place[at].id = id;
    place[at].after = place[gone].after;
    place[gone].id = -1;
    if (place[at].after != HETI_F_NONE) place[place[at].after].before = at;
    if (place[at].before != HETI_F_NONE) HETI_T_TRY(heti_f_learn_count(l, place[at].before, count));
    if (place[at].after != HETI_F_NONE) HETI_T_TRY(heti_f_learn_count(l, at, count));
    return HET_OK;
}

/* Joins a pair wherever it is, from left to right: "aaa" is "aa", "a". Its list has the places in
   no useful order. */
static het_result heti_f_learn_step(heti_f_learner *l, heti_f_pair *pair, int32_t id) {
    const int32_t left = HETI_T_CAST(int32_t, pair->key >> 32), right = HETI_T_CAST(int32_t, pair->key & 0xFFFFFFFFu);
    const size_t number = HETI_T_CAST(size_t, pair - HETI_F_ITEMS(heti_f_pair, l->pairs));
    uint32_t node, *sorted;
    size_t count = 0, i;
    l->sorted.used = 0;
    for (node = pair->first; node != HETI_F_NONE; node = HETI_F_ITEMS(const heti_f_node, l->nodes)[node].next) {
        HETI_T_TRY(heti_t_list_add(&l->sorted, &HETI_F_ITEMS(const heti_f_node, l->nodes)[node].place, sizeof node,
                                   &l->allocator, l->error));
        count++;
    }
    pair->first = HETI_F_NONE;
    HETI_T_TRY(heti_t_list_room(&l->sorted, count * sizeof node, &l->allocator, l->error));
    sorted = HETI_F_ITEMS(uint32_t, l->sorted);
    heti_f_sort(sorted, sorted + count, count, 0);
    for (i = 0; i < count; i++) {
        const heti_f_place_in_word *place = HETI_F_ITEMS(const heti_f_place_in_word, l->places);
        const heti_f_place_in_word *p = &place[HETI_F_ITEMS(const uint32_t, l->sorted)[i]];
        if (p->id != left || p->after == HETI_F_NONE || place[p->after].id != right) continue;
        HETI_T_TRY(heti_f_learn_join(l, HETI_F_ITEMS(const uint32_t, l->sorted)[i], id));
    }
    HETI_F_ITEMS(heti_f_pair, l->pairs)[number].count = 0;
    return heti_f_learn_queue(l);
}

/* The text of a joined token, and its id. */
static het_result heti_f_learn_token(heti_f_learner *l, uint64_t key, int32_t *id) {
    const heti_f_item left = heti_f_items(&l->tokens)[key >> 32], right = heti_f_items(&l->tokens)[key & 0xFFFFFFFFu];
    size_t index;
    l->json.used = 0;
    HETI_T_TRY(heti_t_list_add(&l->json, l->tokens.bytes.data + left.at, left.length, &l->allocator, l->error));
    HETI_T_TRY(heti_t_list_add(&l->json, l->tokens.bytes.data + right.at, right.length, &l->allocator, l->error));
    HETI_T_TRY(heti_f_set_add(&l->tokens, l->json.data, l->json.used, &index, &l->allocator, l->error));
    *id = HETI_T_CAST(int32_t, index);
    return HET_OK;
}

static het_result heti_f_learn_all(heti_f_learner *l, int64_t vocab, int64_t min_count) {
    while (HETI_T_CAST(int64_t, l->tokens.count) < vocab && l->entries > 0) {
        const heti_f_candidate top = heti_f_candidate_pop(l);
        heti_f_pair *pair = HETI_F_ITEMS(heti_f_pair, l->pairs) + (HETI_F_ITEMS(const uint32_t,
            l->slots)[heti_f_learn_slot(l, top.key)] - 1);
        int32_t id = 0;
        if (pair->count != top.count) {
            if (pair->count > 0) HETI_T_TRY(heti_f_candidate_push(l, pair->count, pair->key));
            continue;
        }
        if (top.count < min_count) break;
        HETI_T_TRY(heti_f_learn_token(l, top.key, &id));
        if (!pair->joined) HETI_T_TRY(heti_t_list_add(&l->merges, &top.key, sizeof top.key, &l->allocator, l->error));
        pair->joined = 1;
        HETI_T_TRY(heti_f_learn_step(l, pair, id));
    }
    return HET_OK;
}

/* ---- tokenizer.json from what was learnt ---- */

static het_result heti_f_json_text(heti_f_learner *l, const char *text) {
    return heti_t_list_add(&l->json, text, strlen(text), &l->allocator, l->error);
}

static het_result heti_f_json_number(heti_f_learner *l, size_t value) {
    char digits[24];
    heti_t_text text = heti_t_text_in(digits, sizeof digits);
    heti_t_unsigned(&text, value);
    return heti_t_list_add(&l->json, digits, text.length, &l->allocator, l->error);
}

/* A token in quotes, spelled in the alphabet (special ones consist of letters that stand for
   themselves). */
static het_result heti_f_json_token(heti_f_learner *l, size_t index) {
    const heti_f_item item = heti_f_items(&l->tokens)[index];
    size_t i;
    char letter[4];
    HETI_T_TRY(heti_f_json_text(l, "\""));
    for (i = 0; i < item.length; i++) {
        const unsigned char byte = HETI_T_CAST(unsigned char, l->tokens.bytes.data[item.at + i]);
        if (byte == '"' || byte == '\\') HETI_T_TRY(heti_f_json_text(l, "\\"));
        HETI_T_TRY(heti_t_list_add(&l->json, letter, heti_t_utf8(heti_t_letter_of_byte(byte), letter), &l->allocator,
                                   l->error));
    }
    return heti_f_json_text(l, "\"");
}

static const char *heti_f_json_pre_tokenizer(het_split split) {
    switch (split) {
    case HET_SPLIT_LLAMA3:
        return "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
               "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "
               "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|"
               "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},"
               "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}]}";
    case HET_SPLIT_QWEN2:
        return "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
               "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "
               "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|"
               "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},"
               "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}]}";
    case HET_SPLIT_WHOLE:
        return "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}";
    default: return "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}";
    }
}

static het_result heti_f_json_file(heti_f_learner *l, const het_tokenizer_desc *d) {
    const size_t merges = l->merges.used / sizeof(uint64_t);
    size_t i;
    l->json.used = 0;
    HETI_T_TRY(heti_f_json_text(l, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n\"added_tokens\":["));
    for (i = 0; HETI_T_CAST(int64_t, i) < d->specials; i++) {
        HETI_T_TRY(heti_f_json_text(l, i > 0 ? ",\n{\"id\":" : "{\"id\":"));
        HETI_T_TRY(heti_f_json_number(l, i));
        HETI_T_TRY(heti_f_json_text(l, ",\"content\":"));
        HETI_T_TRY(heti_f_json_token(l, i));
        HETI_T_TRY(heti_f_json_text(l,
                                    ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                                    "\"normalized\":false,\"special\":true}"));
    }
    HETI_T_TRY(heti_f_json_text(l, d->nfc == HET_YES ? "],\n\"normalizer\":{\"type\":\"NFC\"}" :
                                "],\n\"normalizer\":null"));
    HETI_T_TRY(heti_f_json_text(l, ",\n\"pre_tokenizer\":"));
    HETI_T_TRY(heti_f_json_text(l, heti_f_json_pre_tokenizer(d->split)));
    HETI_T_TRY(heti_f_json_text(l, ",\n\"post_processor\":null,\n\"decoder\":"
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},\n"
        "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
        "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
        "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,\"vocab\":{\n"));
    for (i = 0; i < l->tokens.count; i++) {
        HETI_T_TRY(heti_f_json_text(l, i > 0 ? "," : ""));
        HETI_T_TRY(heti_f_json_token(l, i));
        HETI_T_TRY(heti_f_json_text(l, ":"));
        HETI_T_TRY(heti_f_json_number(l, i));
    }
    HETI_T_TRY(heti_f_json_text(l, "},\n\"merges\":["));
    for (i = 0; i < merges; i++) {
        const uint64_t key = HETI_F_ITEMS(const uint64_t, l->merges)[i];
        HETI_T_TRY(heti_f_json_text(l, i > 0 ? ",[" : "["));
        HETI_T_TRY(heti_f_json_token(l, HETI_T_CAST(size_t, key >> 32)));
        HETI_T_TRY(heti_f_json_text(l, ","));
        HETI_T_TRY(heti_f_json_token(l, HETI_T_CAST(size_t, key & 0xFFFFFFFFu)));
        HETI_T_TRY(heti_f_json_text(l, "]"));
    }
    return heti_f_json_text(l, "]}}\n");
}

/* Special tokens, then the 256 bytes. */
static het_result heti_f_learn_alphabet(heti_f_learner *l, const het_tokenizer_desc *d, int32_t byte_id[256]) {
    int64_t i;
    size_t index, k;
    uint32_t letter;
    for (i = 0; i < d->specials; i++) {
        const char *text = d->special[i];
        const size_t length = text != NULL ? strlen(text) : 0;
        for (k = 0; k < length && text[k] > ' ' && text[k] <= '~'; k++) {}
        if (length == 0 || length > 255 || k < length)
            return heti_t_fail(l->error, HET_ERR_INVALID,
                               "het_tokenizer_train: special[%d] is not 1 to 255 characters from ! to ~", i);
        HETI_T_TRY(heti_f_set_add(&l->tokens, text, length, &index, &l->allocator, l->error));
        if (HETI_T_CAST(int64_t, index) < i)
            return heti_t_fail(l->error, HET_ERR_INVALID, "het_tokenizer_train: special[%d] %q comes twice", i, text,
                               length);
    }
    for (letter = 0; letter < 324; letter++) {
        const int byte = heti_f_byte_of_letter(letter);
        const unsigned char c = HETI_T_CAST(unsigned char, byte);
        if (byte < 0) continue;
        HETI_T_TRY(heti_f_set_add(&l->tokens, &c, 1, &index, &l->allocator, l->error));
        byte_id[c] = HETI_T_CAST(int32_t, index);
    }
    if (d->vocab < HETI_T_CAST(int64_t, l->tokens.count) || d->vocab > (1 << 24))
        return heti_t_fail(l->error, HET_ERR_INVALID, "het_tokenizer_train: vocab %d is not from %d (bytes and special "
                                                      "tokens) to 16777216", d->vocab,
                                                      HETI_T_CAST(int64_t, l->tokens.count));
    return HET_OK;
}

/* A tokenizer without merges cuts the text into words; the one that is returned has what was
   learnt. */
static het_result heti_f_learn(heti_f_learner *l, const het_tokenizer_desc *d, const char *text, size_t length,
                               het_tokenizer **tokenizer) {
    heti_f_encoder e;
    het_tokenizer *bare = NULL;
    int32_t byte_id[256];
    het_result result;
    HETI_T_TRY(heti_f_learn_alphabet(l, d, byte_id));
    HETI_T_TRY(heti_f_json_file(l, d));
    HETI_T_TRY(het_tokenizer_read(l->json.data, l->json.used, &l->allocator, &bare, l->error));
    result = heti_f_encoder_start(&e, bare, text, &l->allocator, l->error);
    e.word = heti_f_count_word;
    e.user = l;
    if (result == HET_OK) result = heti_f_encode_text(&e, 0, e.text, length);
    heti_f_encoder_end(&e);
    het_tokenizer_free(bare);
    if (result != HET_OK) return result;
    HETI_T_TRY(heti_f_learn_start(l, byte_id));
    HETI_T_TRY(heti_f_learn_all(l, d->vocab, d->min_count));
    HETI_T_TRY(heti_f_json_file(l, d));
    return het_tokenizer_read(l->json.data, l->json.used, &l->allocator, tokenizer, l->error);
}

HETRAIN_API het_result het_tokenizer_train(const het_tokenizer_desc *desc, const char *text, size_t length,
                                           het_tokenizer **tokenizer, het_error *error) {
    static const char *const heti_f_end_of_text[1] = { "<|endoftext|>" };
    het_tokenizer_desc d;
    heti_f_learner l;
    het_result result;
    if (desc == NULL || (text == NULL && length > 0) || tokenizer == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_tokenizer_train: a pointer is NULL");
    d = *desc;
    if (d.specials == 0) { d.special = heti_f_end_of_text; d.specials = 1; }
    if (d.specials < 0) d.specials = 0;
    if (d.min_count == 0) d.min_count = 2;
    if (d.start_canary != 0 || d.end_canary != 0 || d.min_count < 1 || d.split < HET_SPLIT_DEFAULT ||
        d.split > HET_SPLIT_WHOLE || d.nfc < HET_DEFAULT
        || d.nfc > HET_NO || (d.specials > 0 && d.special == NULL))
        return heti_t_fail(error, HET_ERR_INVALID,
                           "het_tokenizer_train: split, nfc, min_count or special out of range, or desc not cleared");
    memset(&l, 0, sizeof l);
    l.error = error;
    HETI_T_TRY(heti_t_choose(&d.allocator, &l.allocator, error, "het_tokenizer_train"));
    result = heti_f_learn(&l, &d, text, length, tokenizer);
    heti_f_set_free(&l.words, &l.allocator);
    heti_f_set_free(&l.tokens, &l.allocator);
    heti_t_list_free(&l.places, &l.allocator);
    heti_t_list_free(&l.pairs, &l.allocator);
    heti_t_list_free(&l.slots, &l.allocator);
    heti_t_list_free(&l.nodes, &l.allocator);
    heti_t_list_free(&l.heap, &l.allocator);
    heti_t_list_free(&l.touched, &l.allocator);
    heti_t_list_free(&l.sorted, &l.allocator);
    heti_t_list_free(&l.merges, &l.allocator);
    heti_t_list_free(&l.json, &l.allocator);
    return result;
}

/* =================================================================================================
   >>safetensors  Tables of tensors: proving, making and writing them, elements to floats and back.

   The header is walked twice: the first walk checks its grammar and counts, so that everything fits
   into one block; the second fills it. Then the tensors are sorted by place, where each must begin
   at the byte at which the one before ended. Nothing is believed before it is proven.
   ============================================================================================== */

#define HETI_F_HEADER_LIMIT 100000000
#define HETI_F_TENSOR_LIMIT 65536
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
static const char *heti_f_writer_name(const het_writer *to) { return to->name != NULL ? to->name : "(memory)"; }

/* All `size` bytes at `offset`. */
static het_result heti_f_read(const het_reader *from, uint64_t offset, void *to, size_t size, het_error *error) {
    char *at = HETI_T_CAST(char *, to);
    while (size > 0) {
        const int64_t got = from->read(from->user, offset, at, size);
        if (got <= 0 || HETI_T_CAST(uint64_t, got) > size)
            return heti_t_fail(error, HET_ERR_IO, "%s: reading %u bytes at offset %u failed (%d)",
                               heti_f_reader_name(from), HETI_T_CAST(uint64_t, size), offset, got);
        at += got;
        offset += HETI_T_CAST(uint64_t, got);
        size -= HETI_T_CAST(size_t, got);
    }
    return HET_OK;
}

static het_result heti_f_write(const het_writer *to, const void *from, size_t size, het_error *error) {
    if (size == 0 || to->write(to->user, from, size) == 0) return HET_OK;
    return heti_t_fail(error, HET_ERR_IO, "%s: writing %u bytes failed", heti_f_writer_name(to),
                       HETI_T_CAST(uint64_t, size));
}

/* Little-endian numbers of 1 to 8 bytes. */
static uint64_t heti_f_little(const unsigned char *from, int bytes) {
    uint64_t value = 0;
    while (bytes > 0) value = value << 8 | from[--bytes];
    return value;
}

static void heti_f_store(unsigned char *to, uint64_t value, int bytes) {
    int i;
    for (i = 0; i < bytes; i++, value >>= 8) to[i] = HETI_T_CAST(unsigned char, value & 255u);
}

/* ---- a table in one block ---- */

static int heti_f_name_order(const char *a, size_t a_length, const char *b, size_t b_length) {
    const int order = memcmp(a, b, a_length < b_length ? a_length : b_length);
    return order != 0 ? order : a_length < b_length ? -1 : a_length > b_length;
}

typedef enum heti_f_sorting { HETI_F_BY_PLACE, HETI_F_BY_NAME, HETI_F_BY_TYPE } heti_f_sorting;

static int heti_f_before(const het_safetensor *tensor, int64_t a, int64_t b, heti_f_sorting by) {
    const het_safetensor *s = &tensor[a], *t = &tensor[b];
    int order;
    if (by == HETI_F_BY_PLACE) {
        if (s->begin != t->begin) return s->begin < t->begin;
        return s->end != t->end ? s->end < t->end : a < b;
    }
    if (by == HETI_F_BY_TYPE && s->element != t->element) return s->element > t->element;
    order = heti_f_name_order(s->name, s->name_length, t->name, t->name_length);
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

/* The block while it is filled. */
typedef struct heti_f_table {
    het_safetensors *file;
    het_safetensor *tensor;
    int64_t *by_name;
    het_pair *pair;
    char *text;                       /* where the next text goes */
    size_t left;
} heti_f_table;

static void heti_f_table_cut(heti_f_table *t, heti_t_arena *arena, int64_t tensors, int64_t pairs, size_t text) {
    t->file = HETI_T_TAKE(arena, het_safetensors, 1);
    t->tensor = HETI_T_TAKE(arena, het_safetensor, tensors);
    t->by_name = HETI_T_TAKE(arena, int64_t, tensors);
    t->pair = HETI_T_TAKE(arena, het_pair, pairs);
    t->text = HETI_T_TAKE(arena, char, text);
    t->left = text;
}

static het_result heti_f_table_start(heti_f_table *t, int64_t tensors, int64_t pairs, size_t text,
                                     const het_allocator *allocator, het_error *error) {
    heti_t_arena arena = { NULL, 0 };
    size_t block;
    heti_f_table_cut(t, &arena, tensors, pairs, text);
    block = arena.used;
    if (block != SIZE_MAX) arena.base = HETI_T_CAST(char *, allocator->alloc(allocator->user, block, 16));
    if (arena.base == NULL)
        return heti_t_fail(error, HET_ERR_OOM, "%u bytes for a table of %d tensors: out of memory",
                           HETI_T_CAST(uint64_t, block), tensors);
    arena.used = 0;
    heti_f_table_cut(t, &arena, tensors, pairs, text);
    memset(t->file, 0, sizeof *t->file);
    t->file->tensors = tensors;
    t->file->pairs = pairs;
    t->file->tensor = t->tensor;
    t->file->by_name = t->by_name;
    t->file->pair = t->pair;
    t->file->allocator = *allocator;
    t->file->block = block;
    return HET_OK;
}

/* Copies a text into the block, a 0 behind it. */
static const char *heti_f_table_text(heti_f_table *t, const char *from, size_t length) {
    char *to = t->text;
    HETRAIN_ASSERT(length < t->left);
    if (length > 0) memcpy(to, from, length);
    to[length] = 0;
    t->text += length + 1;
    t->left -= length + 1;
    return to;
}

HETRAIN_API void het_safetensors_free(het_safetensors *file) {
    het_allocator allocator;
    if (file == NULL) return;
    allocator = file->allocator;
    allocator.free(allocator.user, file, file->block);
}

/* Sorts by name; *twice: the number of a tensor whose name came before, or -1. */
static void heti_f_table_names(heti_f_table *t, int64_t *twice) {
    int64_t i;
    *twice = -1;
    heti_f_order(t->tensor, t->by_name, t->file->tensors, HETI_F_BY_NAME);
    for (i = 1; i < t->file->tensors; i++) {
        const het_safetensor *a = &t->tensor[t->by_name[i - 1]], *b = &t->tensor[t->by_name[i]];
        if (heti_f_name_order(a->name, a->name_length, b->name, b->name_length) != 0) continue;
        *twice = a->at > b->at ? t->by_name[i - 1] : t->by_name[i];
        return;
    }
}

/* Bytes that type and shape need; the text of the rule they break, or NULL. An empty tensor is one
   with an empty dimension, and its others are checked all the same. */
static const char *heti_f_tensor_bytes(const het_safetensor *t, uint64_t *bytes) {
    uint64_t elements = 1;
    const uint64_t bits = HETI_T_CAST(uint64_t, heti_f_elements[t->element].bits);
    int i;
    for (i = 0; i < t->rank; i++) {
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
    char *text;                       /* [size] */
    size_t size;
    int64_t tensors, pairs;
    size_t names;                     /* bytes of all texts, decoded, with a 0 behind each */
} heti_f_header;

/* file: byte n: "tensor": what. `at` counts from the start of the JSON; t NULL: no tensor. */
static het_result heti_f_header_bad(const heti_f_header *h, uint64_t at, const het_safetensor *t, const char *format,
                                    ...) {
    heti_t_text text;
    va_list arguments;
    if (h->error == NULL) return HET_ERR_FORMAT;
    (void)heti_t_fail(h->error, HET_ERR_FORMAT, "%s: byte %u: ", heti_f_reader_name(h->from), at + 8);
    text = heti_t_text_behind(h->error->text, sizeof h->error->text);
    if (t != NULL) {
        heti_t_quoted(&text, t->name, t->name_length);
        heti_t_char(&text, ':');
        heti_t_char(&text, ' ');
    }
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
            return heti_f_header_bad(h, at, t, "dimension %d is %d, must be 0 .. 2^48 - 1",
                                     HETI_T_CAST(int64_t, t->rank), value);
        if (t->rank == HETRAIN_FILE_DIMENSIONS) return heti_f_header_bad(h, at, t, "more than 8 dimensions");
        t->shape[t->rank++] = value;
    }
    return heti_f_header_json(h, j, t);
}

/* "data_offsets" at the cursor. */
static het_result heti_f_header_offsets(const heti_f_header *h, het_json *j, het_safetensor *t) {
    const size_t at = j->at;
    int64_t value = 0;
    int count = 0;
    het_json_enter(j, HET_JSON_ARRAY);
    while (het_json_next(j, NULL, 0, NULL)) {
        if (!het_json_integer(j, &value)) break;
        if (count == 2 || value < 0)
            return heti_f_header_bad(h, at, t, "data_offsets must be two integers that are not negative");
        if (count++ == 0) t->begin = HETI_T_CAST(uint64_t, value);
        else t->end = HETI_T_CAST(uint64_t, value);
    }
    if (j->rule == NULL && count != 2)
        return heti_f_header_bad(h, at, t, "data_offsets must be two integers that are not negative");
    return heti_f_header_json(h, j, t);
}

static het_result heti_f_header_type(const heti_f_header *h, het_json *j, het_safetensor *t) {
    const size_t at = j->at;
    char type[24];
    size_t length = 0;
    int i;
    if (!het_json_string(j, type, sizeof type, &length)) return heti_f_header_json(h, j, t);
    for (i = 0; i < HET_ELEMENTS; i++) {
        if (!heti_t_is(type, length, heti_f_elements[i].name)) continue;
        t->element = HETI_T_CAST(het_element, i);
        return HET_OK;
    }
    return heti_f_header_bad(h, at, t, "unknown dtype %q", type, heti_t_shown(length, sizeof type));
}

/* {"dtype": ..., "shape": [...], "data_offsets": [begin, end]} at the cursor. */
static het_result heti_f_header_tensor(const heti_f_header *h, het_json *j, het_safetensor *t) {
    static const char *const heti_f_keys[] = { "dtype", "shape", "data_offsets" };
    const char *rule;
    char key[24];
    size_t length = 0;
    uint64_t bytes = 0;
    int seen = 0, i;
    t->at = j->at;
    het_json_enter(j, HET_JSON_OBJECT);
    while (het_json_next(j, key, sizeof key, &length)) {
        for (i = 0; i < 3 && !heti_t_is(key, length, heti_f_keys[i]); i++) {}
        if (i < 3 && ((seen >> i) & 1) != 0) return heti_f_header_bad(h, j->at, t, "%s occurs twice", heti_f_keys[i]);
        seen |= 1 << i;
        if (i == 0) HETI_T_TRY(heti_f_header_type(h, j, t));
        else if (i == 1) HETI_T_TRY(heti_f_header_shape(h, j, t));
        else if (i == 2) HETI_T_TRY(heti_f_header_offsets(h, j, t));
        else het_json_skip(j);
    }
    HETI_T_TRY(heti_f_header_json(h, j, t));
    for (i = 0; i < 3; i++)
        if (((seen >> i) & 1) == 0) return heti_f_header_bad(h, t->at, t, "lacks \"%s\"", heti_f_keys[i]);
    rule = heti_f_tensor_bytes(t, &bytes);
    if (rule != NULL) return heti_f_header_bad(h, t->at, t, "%s", rule);
    if (t->begin > t->end || t->end - t->begin != bytes)
        return heti_f_header_bad(h, t->at, t, "dtype and shape need %u bytes, data_offsets are [%u, %u]", bytes,
                                 t->begin, t->end);
    return HET_OK;
}

/* First walk: grammar, and how much there is of everything. */
static het_result heti_f_header_count(heti_f_header *h, int64_t most) {
    het_json j = het_json_start(h->text, h->size);
    char key[16];
    size_t length = 0, value = 0;
    int metadata = 0;
    het_json_enter(&j, HET_JSON_OBJECT);
    while (het_json_next(&j, key, sizeof key, &length)) {
        if (!heti_t_is(key, length, "__metadata__")) {
            if (length > 255)
                return heti_f_header_bad(h, j.at, NULL, "the name %q~ has %d bytes, the limit is 255", key,
                                         sizeof key - 1, HETI_T_CAST(int64_t, length));
            if (h->tensors++ == most) return heti_f_header_bad(h, j.at, NULL, "more than %d tensors", most);
            h->names += length + 1;
            het_json_skip(&j);
            continue;
        }
        if (metadata++) return heti_f_header_bad(h, j.at, NULL, "__metadata__ occurs twice");
        if (het_json_peek(&j) == HET_JSON_NULL) {
            het_json_null(&j);
            continue;
        }
        het_json_enter(&j, HET_JSON_OBJECT);
        while (het_json_next(&j, NULL, 0, &length)) {
            if (!het_json_string(&j, NULL, 0, &value)) break;
            h->pairs++;
            h->names += length + value + 2;
        }
    }
    het_json_end(&j);
    return heti_f_header_json(h, &j, NULL);
}

/* Second walk: texts go into the block, descriptions into `list`, in the order of the header. */
static het_result heti_f_header_fill(const heti_f_header *h, heti_f_table *t, het_safetensor *list) {
    het_json j = het_json_start(h->text, h->size);
    char *key = t->text;
    size_t length = 0, value = 0;
    int64_t tensor = 0, pair = 0;
    het_json_enter(&j, HET_JSON_OBJECT);
    for (; het_json_next(&j, key, t->left, &length); key = t->text) {
        if (heti_t_is(key, length < t->left ? length : 0, "__metadata__")) { /* overwritten by the next text */
            if (het_json_peek(&j) == HET_JSON_NULL) {
                het_json_null(&j);
                continue;
            }
            het_json_enter(&j, HET_JSON_OBJECT);
            for (; het_json_next(&j, t->text, t->left, &length); pair++) {
                t->pair[pair].key = t->text;
                t->pair[pair].key_length = length;
                t->text += length + 1;
                t->left -= length + 1;
                het_json_string(&j, t->text, t->left, &value);
                t->pair[pair].value = t->text;
                t->pair[pair].value_length = value;
                t->text += value + 1;
                t->left -= value + 1;
            }
            continue;
        }
        memset(&list[tensor], 0, sizeof *list);
        list[tensor].number = tensor;
        list[tensor].name = key;
        list[tensor].name_length = length;
        t->text += length + 1;
        t->left -= length + 1;
        HETI_T_TRY(heti_f_header_tensor(h, &j, &list[tensor++]));
    }
    return HET_OK;
}

/* Puts the descriptions into the order of their data, which must be without gap or overlap and end
   where the file ends. */
static het_result heti_f_header_place(const heti_f_header *h, heti_f_table *t, const het_safetensor *list) {
    const uint64_t data = h->from->size - 8 - HETI_T_CAST(uint64_t, h->size);
    uint64_t end = 0;
    int64_t i, twice;
    heti_f_order(list, t->by_name, h->tensors, HETI_F_BY_PLACE);
    for (i = 0; i < h->tensors; i++) {
        const het_safetensor *s = &list[t->by_name[i]];
        if (s->begin != end)
            return heti_f_header_bad(h, s->at, s, "its data start at byte %u, those before them end at %u", s->begin,
                                     end);
        if (s->end > data)
            return heti_f_header_bad(h, s->at, s, "its data end at byte %u, the file holds %u bytes of data", s->end,
                                     data);
        end = s->end;
        t->tensor[i] = *s;
        t->tensor[i].at += 8;
    }
    if (end != data)
        return heti_f_header_bad(h, h->size + end, NULL, "%u bytes follow the data of the last tensor", data - end);
    heti_f_table_names(t, &twice);
    if (twice >= 0) return heti_f_header_bad(h, t->tensor[twice].at - 8, &t->tensor[twice], "the name occurs twice");
    return HET_OK;
}

/* From the text of the header to the table. */
static het_result heti_f_header_table(heti_f_header *h, int64_t most, const het_allocator *allocator,
                                      het_safetensors **file) {
    heti_f_table t;
    het_safetensor *list = NULL;
    size_t bytes;
    het_result result;
    HETI_T_TRY(heti_f_header_count(h, most));
    /* 16: "__metadata__" as a key passes through */
    HETI_T_TRY(heti_f_table_start(&t, h->tensors, h->pairs, h->names + 16, allocator, h->error));
    bytes = HETI_T_CAST(size_t, h->tensors) * sizeof *list; /* at most 3 times the header */
    if (bytes > 0) list = HETI_T_CAST(het_safetensor *, allocator->alloc(allocator->user, bytes, 16));
    if (bytes > 0 && list == NULL)
        result = heti_t_fail(h->error, HET_ERR_OOM, "%u bytes for descriptions of %d tensors: out of memory",
                             HETI_T_CAST(uint64_t, bytes), h->tensors);
    else result = heti_f_header_fill(h, &t, list);
    if (result == HET_OK) result = heti_f_header_place(h, &t, list);
    if (list != NULL) allocator->free(allocator->user, list, bytes);
    if (result != HET_OK) {
        het_safetensors_free(t.file);
        return result;
    }
    t.file->data = 8 + HETI_T_CAST(uint64_t, h->size);
    t.file->size = h->from->size;
    *file = t.file;
    return HET_OK;
}

HETRAIN_API het_result het_safetensors_read(const het_reader *from, int64_t most, const het_allocator *allocator,
                                            het_safetensors **file, het_error *error) {
    heti_f_header h;
    het_allocator own;
    unsigned char bytes[8];
    uint64_t size;
    het_result result;
    if (from == NULL || from->read == NULL || file == NULL || most < 0)
        return heti_t_fail(error, HET_ERR_INVALID,
                           "het_safetensors_read: the reader, its read or file is NULL, or most is negative");
    HETI_T_TRY(heti_t_choose(allocator, &own, error, "het_safetensors_read"));
    memset(&h, 0, sizeof h);
    h.from = from;
    h.error = error;
    if (from->size < 8)
        return heti_t_fail(error, HET_ERR_FORMAT, "%s: %u bytes are too few for a safetensors file",
                           heti_f_reader_name(from), from->size);
    HETI_T_TRY(heti_f_read(from, 0, bytes, sizeof bytes, error));
    size = heti_f_little(bytes, 8);
    if (size > HETI_F_HEADER_LIMIT || size > from->size - 8)
        return heti_t_fail(error, HET_ERR_FORMAT, "%s: byte 0: a header of %u bytes is over %u",
                           heti_f_reader_name(from), size, from->size - 8 < HETI_F_HEADER_LIMIT ? from->size - 8 :
                           HETI_T_CAST(uint64_t, HETI_F_HEADER_LIMIT));
    h.size = HETI_T_CAST(size_t, size);
    h.text = HETI_T_CAST(char *, own.alloc(own.user, h.size + 1, 16));
    if (h.text == NULL) return heti_t_fail(error, HET_ERR_OOM, "%u bytes for a header: out of memory", size);
    result = heti_f_read(from, 8, h.text, h.size, error);
    if (result == HET_OK) result = heti_f_header_table(&h, most > 0 ? most : HETI_F_TENSOR_LIMIT, &own, file);
    own.free(own.user, h.text, h.size + 1);
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
    int64_t i;
    for (i = file->pairs; i-- > 0;) {
        if (!heti_t_is(file->pair[i].key, file->pair[i].key_length, key)) continue;
        if (length != NULL) *length = file->pair[i].value_length;
        return file->pair[i].value;
    }
    return NULL;
}

/* ---- making and writing ---- */

static int heti_f_is_utf8(const char *text, size_t length) {
    const unsigned char *bytes = HETI_T_CAST(const unsigned char *, HETI_T_CAST(const void *, text));
    size_t at, size;
    for (at = 0; at < length; at += size)
        if (heti_t_point(bytes, length, at, &size) == HETI_T_INVALID) return 0;
    return 1;
}

static void heti_f_text_header(heti_t_text *text, const het_safetensors *file) {
    int64_t i;
    int k;
    heti_t_char(text, '{');
    if (file->pairs > 0) {
        heti_t_put(text, "\"__metadata__\":");
        for (i = 0; i < file->pairs; i++) {
            heti_t_char(text, i == 0 ? '{' : ',');
            heti_t_json(text, file->pair[i].key, file->pair[i].key_length);
            heti_t_char(text, ':');
            heti_t_json(text, file->pair[i].value, file->pair[i].value_length);
        }
        heti_t_char(text, '}');
    }
    for (i = 0; i < file->tensors; i++) {
        const het_safetensor *t = &file->tensor[i];
        if (i > 0 || file->pairs > 0) heti_t_char(text, ',');
        heti_t_json(text, t->name, t->name_length);
        heti_t_put(text, ":{\"dtype\":\"");
        heti_t_put(text, heti_f_elements[t->element].name);
        heti_t_put(text, "\",\"shape\":[");
        for (k = 0; k < t->rank; k++) {
            if (k > 0) heti_t_char(text, ',');
            heti_t_unsigned(text, HETI_T_CAST(uint64_t, t->shape[k]));
        }
        heti_t_put(text, "],\"data_offsets\":[");
        heti_t_unsigned(text, t->begin);
        heti_t_char(text, ',');
        heti_t_unsigned(text, t->end);
        heti_t_put(text, "]}");
    }
    heti_t_char(text, '}');
    while (text->length % 8 != 0) heti_t_char(text, ' ');
}

/* One tensor of the list that a table is made from. */
static het_result heti_f_made_check(const het_safetensor *t, int64_t number, het_error *error) {
    static const char heti_f_who[] = "het_safetensors_make";
    const char *rule;
    uint64_t bytes = 0;
    int i;
    if (t->name == NULL || t->name_length > 255 || !heti_f_is_utf8(t->name, t->name_length) ||
        heti_t_is(t->name, t->name_length, "__metadata__"))
        return heti_t_fail(error, HET_ERR_INVALID,
                           "%s: tensor %d: its name must be 0 .. 255 bytes of UTF-8, and not __metadata__", heti_f_who,
                           number);
    if (het_element_bits(t->element) == 0 || t->rank < 0 || t->rank > HETRAIN_FILE_DIMENSIONS)
        return heti_t_fail(error, HET_ERR_INVALID, "%s: tensor %q: type %d, rank %d", heti_f_who, t->name,
                           t->name_length, HETI_T_CAST(int64_t, t->element), HETI_T_CAST(int64_t, t->rank));
    for (i = 0; i < t->rank; i++)
        if (t->shape[i] < 0 || t->shape[i] >= HETI_F_DIMENSION_LIMIT)
            return heti_t_fail(error, HET_ERR_INVALID, "%s: tensor %q: dimension %d is %d, must be 0 .. 2^48 - 1",
                               heti_f_who, t->name, t->name_length, HETI_T_CAST(int64_t, i), t->shape[i]);
    rule = heti_f_tensor_bytes(t, &bytes);
    return rule == NULL ? HET_OK : heti_t_fail(error, HET_ERR_INVALID, "%s: tensor %q: %s", heti_f_who, t->name,
                                               t->name_length, rule);
}

/* Copies the list in its order and gives every tensor its place. */
static het_result heti_f_made_fill(heti_f_table *t, const het_safetensor *tensor, const het_pair *pair,
                                   het_error *error) {
    het_safetensors *file = t->file;
    heti_t_text text = heti_t_text_in(NULL, 0);
    uint64_t end = 0;
    int64_t i, twice;
    heti_f_order(tensor, t->by_name, file->tensors, HETI_F_BY_TYPE);
    for (i = 0; i < file->tensors; i++) {
        het_safetensor *own = &t->tensor[i];
        uint64_t bytes = 0;
        *own = tensor[t->by_name[i]];
        (void)heti_f_tensor_bytes(own, &bytes);
        own->name = heti_f_table_text(t, own->name, own->name_length);
        own->number = t->by_name[i];
        own->at = 0;
        own->begin = end;
        if (bytes > HETI_T_CAST(uint64_t, INT64_MAX) / 2 - end)
            return heti_t_fail(error, HET_ERR_LIMIT, "het_safetensors_make: 2^62 bytes of data or more");
        own->end = end += bytes;
    }
    for (i = 0; i < file->pairs; i++) {
        t->pair[i] = pair[i];
        t->pair[i].key = heti_f_table_text(t, pair[i].key, pair[i].key_length);
        t->pair[i].value = heti_f_table_text(t, pair[i].value, pair[i].value_length);
    }
    heti_f_table_names(t, &twice);
    if (twice >= 0)
        return heti_t_fail(error, HET_ERR_INVALID, "het_safetensors_make: tensor %q occurs twice",
                           t->tensor[twice].name, t->tensor[twice].name_length);
    heti_f_text_header(&text, file);
    if (text.length > HETI_F_HEADER_LIMIT)
        return heti_t_fail(error, HET_ERR_LIMIT, "het_safetensors_make: a header of %u bytes is over 100000000",
                           HETI_T_CAST(uint64_t, text.length));
    file->data = 8 + HETI_T_CAST(uint64_t, text.length);
    file->size = file->data + end;
    return HET_OK;
}

HETRAIN_API het_result het_safetensors_make(const het_safetensor *tensor, int64_t tensors, const het_pair *pair,
                                            int64_t pairs, const het_allocator *allocator, het_safetensors **file,
                                                    het_error *error) {
    static const char heti_f_who[] = "het_safetensors_make";
    heti_f_table t;
    het_allocator own;
    het_result result;
    size_t text = 0;
    int64_t i;
    if (file == NULL || tensors < 0 || pairs < 0 || (tensor == NULL && tensors > 0) || (pair == NULL && pairs > 0))
        return heti_t_fail(error, HET_ERR_INVALID, "%s: a pointer is NULL, or a count is negative", heti_f_who);
    HETI_T_TRY(heti_t_choose(allocator, &own, error, heti_f_who));
    for (i = 0; i < tensors; i++) {
        HETI_T_TRY(heti_f_made_check(&tensor[i], i, error));
        text += tensor[i].name_length + 1;
    }
    for (i = 0; i < pairs; i++) {
        const het_pair *p = &pair[i];
        if (p->key == NULL || p->value == NULL || !heti_f_is_utf8(p->key, p->key_length) ||
            !heti_f_is_utf8(p->value, p->value_length))
            return heti_t_fail(error, HET_ERR_INVALID, "%s: pair %d of the metadata is NULL or not UTF-8", heti_f_who,
                               i);
        text += p->key_length + p->value_length + 2;
    }
    HETI_T_TRY(heti_f_table_start(&t, tensors, pairs, text, &own, error));
    result = heti_f_made_fill(&t, tensor, pair, error);
    if (result == HET_OK) *file = t.file;
    else het_safetensors_free(t.file);
    return result;
}

HETRAIN_API het_result het_safetensors_write(const het_safetensors *file, const het_writer *to, het_error *error) {
    heti_t_text text;
    char *bytes;
    size_t size;
    het_result result;
    if (file == NULL || to == NULL || to->write == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_safetensors_write: the table, the writer or its write is NULL");
    size = HETI_T_CAST(size_t, file->data);
    bytes = HETI_T_CAST(char *, file->allocator.alloc(file->allocator.user, size + 1, 16));
    if (bytes == NULL) return heti_t_fail(error, HET_ERR_OOM, "%u bytes for a header: out of memory", file->data);
    text = heti_t_text_in(bytes + 8, size - 7); /* one more than is written: a text keeps room for a 0 */
    heti_f_text_header(&text, file);
    heti_f_store(HETI_T_CAST(unsigned char *, HETI_T_CAST(void *, bytes)), file->data - 8, 8);
    result = heti_f_write(to, bytes, size, error);
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
    uint32_t exponent;
    if (size > 0x7F800000u) return sign | 0x7E00u; /* not a number */
    if (size >= 0x477FF000u) return sign | 0x7C00u; /* 65520 and more */
    if (size >= 0x38800000u) return sign | heti_f_round_bits(size - 0x38000000u, 13); /* 2^-14 and more: normal */
    exponent = size >> 23;
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

/* `count` elements from a byte of a file on, as floats. tensor NULL: of any value; else all must be
   finite, and that is the name for the error. */
static het_result heti_f_read_floats(const het_reader *from, uint64_t offset, het_element element, float *to,
                                     int64_t count, const char *tensor, het_error *error) {
    const int64_t size = heti_f_elements[element].bits / 8;
    /* so that what is read ends where the floats do */
    char *end = HETI_T_CAST(char *, HETI_T_CAST(void *, to)) + count * (4 - size);
    int64_t bad;
    HETI_T_TRY(heti_f_read(from, offset, end, HETI_T_CAST(size_t, count * size), error));
    bad = heti_f_floats(element, to, count);
    if (bad == count || tensor == NULL) return HET_OK;
    return heti_t_fail(error, HET_ERR_DATA, "%s: byte %u: tensor %s: element %d is %s, not finite",
                       heti_f_reader_name(from), offset + HETI_T_CAST(uint64_t, bad * size), tensor, bad,
                           to[bad] > 0.0f ? "inf" : to[bad] < 0.0f ? "-inf" : "nan");
}

/* name: for heti_f_read_floats. */
static het_result heti_f_get(const het_safetensors *file, const het_reader *from, const het_safetensor *tensor,
                             int64_t first, int64_t count, float *to, const char *name, het_error *error) {
    uint64_t size, elements;
    if (file == NULL || from == NULL || from->read == NULL || tensor == NULL || to == NULL || first < 0 || count < 0)
        return heti_t_fail(error, HET_ERR_INVALID,
                           "het_safetensors_get: a pointer is NULL, or first or count is negative");
    if (!heti_f_is_float(tensor->element))
        return heti_t_fail(error, HET_ERR_UNSUPPORTED, "%s: tensor %q has dtype %s, must be F32, F16 or BF16",
                           heti_f_reader_name(from), tensor->name, tensor->name_length,
                           heti_f_elements[tensor->element].name);
    size = HETI_T_CAST(uint64_t, heti_f_elements[tensor->element].bits / 8);
    elements = (tensor->end - tensor->begin) / size;
    if (HETI_T_CAST(uint64_t, first) > elements ||
        HETI_T_CAST(uint64_t, count) > elements - HETI_T_CAST(uint64_t, first))
        return heti_t_fail(error, HET_ERR_INVALID, "het_safetensors_get: %d elements from %d of tensor "
                                                   "%q, which has %u", count, first, tensor->name, tensor->name_length,
                                                   elements);
    return heti_f_read_floats(from, file->data + tensor->begin + HETI_T_CAST(uint64_t, first) * size, tensor->element,
                              to, count, name, error);
}

HETRAIN_API het_result het_safetensors_get(const het_safetensors *file, const het_reader *from,
                                           const het_safetensor *tensor, int64_t first, int64_t count, float *to,
                                                                 het_error *error) {
    return heti_f_get(file, from, tensor, first, count, to, NULL, error);
}

/* A whole tensor of a name that the context knows; one that is not finite is refused unless the
   context takes it. */
static het_result heti_f_get_all(const het_ctx *ctx, const het_safetensors *file, const het_reader *from,
                                 const het_safetensor *tensor, int64_t count, float *to, het_error *error) {
    return heti_f_get(file, from, tensor, 0, count, to, het_get_desc(ctx)->nonfinite == HET_YES ? NULL : tensor->name,
                      error);
}

HETRAIN_API het_result het_safetensors_put(const het_writer *to, het_element element, const float *from, int64_t count,
                                           het_error *error) {
    unsigned char bytes[4096];
    int64_t done, i, n;
    const int size = element == HET_ELEMENT_F32 ? 4 : 2;
    if (to == NULL || to->write == NULL || (from == NULL && count > 0) || count < 0 || !heti_f_is_float(element))
        return heti_t_fail(error, HET_ERR_INVALID,
                           "het_safetensors_put: a pointer is NULL, count is negative, or the type is not "
                           "F32, F16 or BF16");
    for (done = 0; done < count; done += n) {
        n = count - done < 1024 ? count - done : 1024;
        for (i = 0; i < n; i++) {
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

   A list of settings, name and value as het_model_parse reads them, stands between: reading fills
   it from the file's keys and has het_model_parse check it; writing takes it from het_model_format.
   One table says which key is which setting in which family.
   ============================================================================================== */

typedef enum heti_f_special {
    HETI_F_COPY, HETI_F_ACT, HETI_F_ROPE, HETI_F_ROPE_TYPE, HETI_F_USE_WINDOW, HETI_F_WINDOW, HETI_F_WINDOW_LAYERS,
        HETI_F_LAYER_TYPES,
    /* keys that need more than copying */
    HETI_F_ATTENTION_BIAS, HETI_F_MLP_BIAS, HETI_F_ARCHITECTURES, HETI_F_MODEL_TYPE, HETI_F_OWN
} heti_f_special;

enum {
    HETI_F_IN_GPT2 = 1, HETI_F_IN_LLAMA = 2, HETI_F_IN_QWEN2 = 4, HETI_F_IN_QWEN3 = 8, HETI_F_IN_NEOX = 16,
        HETI_F_IN_ROPE = 32,
    HETI_F_IN_ROTARY = 30, HETI_F_IN_GATED = 14, HETI_F_IN_QWEN = 12, HETI_F_IN_ALL = 31
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
    { "partial_rotary_factor", HETI_F_IN_ROTARY | HETI_F_IN_ROPE, 0, HETI_F_COPY, "rotary_fraction", HET_JSON_NUMBER },
    { "rotary_emb_base", HETI_F_IN_NEOX, HETI_F_IN_NEOX, HETI_F_COPY, "rotary_theta", HET_JSON_NUMBER },
    { "rope_theta", HETI_F_IN_ROTARY | HETI_F_IN_ROPE, HETI_F_IN_GATED, HETI_F_COPY, "rotary_theta", HET_JSON_NUMBER },
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
        HETI_F_IS_KV_HEADS,
    HETI_F_IS_SCALE, HETI_F_IS_WIDE /* a window that holds the context */
} heti_f_neutral;
/* a blank before and behind every key */
typedef struct heti_f_foreign { int families; heti_f_neutral neutral; const char *keys; } heti_f_foreign;
static const heti_f_foreign heti_f_foreigns[] = {
    { HETI_F_IN_ALL, HETI_F_IS_NONE,
      " quantization_config quantization compression_config pruned_heads add_cross_attention is_encoder_decoder "
      "alibi use_alibi "
      "scale_attn_by_inverse_layer_idx use_bidirectional_attention scale_embedding scale_depth attn_temperature_tuning "
      "use_logn_attn "
      "use_mup clip_qkv attn_logit_softcapping attn_logit_softcap final_logit_softcapping logits_soft_cap num_experts "
      "num_local_experts "
      "n_routed_experts n_shared_experts moe_num_experts vision_config multi_query parallel_attn "
      "apply_residual_connection_post_layernorm "
      "use_post_norm attn_output_gate rope_interleave rope_interleaved attention_chunk_size " },
    { HETI_F_IN_ALL, HETI_F_IS_ONE,
      " scale_attn_weights is_causal logit_scale logits_scale logits_scaling lm_head_multiplier embedding_multiplier "
      "embedding_scale "
      "scale_emb residual_multiplier residual_scale mlp_multipliers key_multiplier attention_in_multiplier "
      "attention_out_multiplier "
      "do_layer_norm_before rope_ratio " },
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

/* Names of activations; the first of a kind is written. transformers' gelu_fast and
   gelu_pytorch_tanh are the same formula as gelu_new. */
typedef struct heti_f_act { const char *name, *setting; int families; } heti_f_act;
static const heti_f_act heti_f_acts[] = {
    { "gelu_new", "gelu_tanh", HETI_F_IN_GPT2 | HETI_F_IN_NEOX },
        { "gelu_fast", "gelu_tanh", HETI_F_IN_GPT2 | HETI_F_IN_NEOX },
    { "gelu_pytorch_tanh", "gelu_tanh", HETI_F_IN_GPT2 | HETI_F_IN_NEOX },
    { "gelu", "gelu_erf", HETI_F_IN_GPT2 | HETI_F_IN_NEOX },
    { "gelu_python", "gelu_erf", HETI_F_IN_GPT2 | HETI_F_IN_NEOX }, { "silu", "swiglu", HETI_F_IN_GATED },
    { "swish", "swiglu", HETI_F_IN_GATED }
};
#define HETI_F_ACTS HETI_T_CAST(int, sizeof heti_f_acts / sizeof heti_f_acts[0])

/* The class with a head is written; the one without, whose name ends after `stem` letters with
   Model, is read too. */
typedef struct heti_f_family { const char *type, *parse, *architecture; size_t stem; het_family family; } heti_f_family;
static const heti_f_family heti_f_families[] = {
    { "gpt2", "gpt2", "GPT2LMHeadModel", 4, HET_GPT2 }, { "llama", "llama", "LlamaForCausalLM", 5, HET_LLAMA },
    { "qwen2", "qwen2", "Qwen2ForCausalLM", 5, HET_QWEN2 }, { "qwen3", "qwen3", "Qwen3ForCausalLM", 5, HET_QWEN3 },
    { "gpt_neox", "neox", "GPTNeoXForCausalLM", 7, HET_NEOX }
};
#define HETI_F_FAMILIES HETI_T_CAST(int, sizeof heti_f_families / sizeof heti_f_families[0])

/* ---- a list of settings ---- */

#define HETI_F_SETTINGS 40
#define HETI_F_MODEL_TEXT 4096
typedef struct heti_f_setting { char name[32], value[64]; } heti_f_setting;
typedef struct heti_f_settings { heti_f_setting item[HETI_F_SETTINGS]; int count; } heti_f_settings;

/* The value of a setting; NULL: it is not in the list. */
static const char *heti_f_setting_of(const heti_f_settings *s, const char *name) {
    int i;
    for (i = 0; i < s->count; i++)
        if (strcmp(s->item[i].name, name) == 0) return s->item[i].value;
    return NULL;
}

static void heti_f_setting_drop(heti_f_settings *s, const char *name) {
    int i;
    for (i = 0; i < s->count && strcmp(s->item[i].name, name) != 0; i++) {}
    if (i < s->count) s->item[i] = s->item[--s->count];
}

/* Texts here are shorter than the room there is. */
static void heti_f_copy(char *to, size_t capacity, const char *from, size_t length) {
    if (length > capacity - 1) length = capacity - 1;
    memcpy(to, from, length);
    to[length] = 0;
}

static void heti_f_setting_put(heti_f_settings *s, const char *name, const char *value) {
    heti_f_setting_drop(s, name);
    if (s->count == HETI_F_SETTINGS) return;
    heti_f_copy(s->item[s->count].name, sizeof s->item[0].name, name, strlen(name));
    heti_f_copy(s->item[s->count++].value, sizeof s->item[0].value, value, strlen(value));
}

static void heti_f_setting_or(heti_f_settings *s, const char *name, const char *value) {
    if (heti_f_setting_of(s, name) == NULL) heti_f_setting_put(s, name, value);
}

/* Every setting of a model, as het_model_format writes them. */
static het_result heti_f_settings_of(heti_f_settings *s, const het_model_desc *model) {
    char text[HETI_F_MODEL_TEXT];
    const char *at;
    size_t length;
    s->count = 0;
    HETI_T_TRY(het_model_format(model, text, sizeof text, &length));
    for (at = text + strcspn(text, ":"); *at != 0;) {
        const size_t name = strcspn(++at, "="), value = strcspn(at + name + 1, ",");
        heti_f_setting *item = &s->item[s->count];
        if (s->count++ == HETI_F_SETTINGS) return HET_ERR_LIMIT;
        heti_f_copy(item->name, sizeof item->name, at, name);
        heti_f_copy(item->value, sizeof item->value, at + name + 1, value);
        at += name + 1 + value;
    }
    return HET_OK;
}

/* ---- read ---- */

typedef struct heti_f_config {
    het_json json;
    het_error *error;
    const heti_f_family *family;
    int in;                           /* HETI_F_IN_ bit of the family */
    heti_f_settings set;
    het_choice attention_bias, mlp_bias, use_window;
    int rope_type;                    /* 0 none seen, 1 default, 2 llama3 */
    int rope_types, rope_scales;      /* keys seen that name a type, and that would need one */
    int64_t window, window_layers;    /* -1: absent */
    int layer_types;                  /* 0 none seen, 1 all full, 2 all sliding */
    size_t own;                       /* offset of the value of "hetrain", 0: none */
} heti_f_config;

static const char heti_f_config_where[] = "het_model_from_json";

static het_result heti_f_config_syntax(heti_f_config *c) {
    if (c->json.rule == NULL) return HET_OK;
    return heti_t_fail(c->error, HET_ERR_FORMAT, "%s: byte %u: %s", heti_f_config_where,
                       HETI_T_CAST(uint64_t, c->json.rule_at), c->json.rule);
}

static het_result heti_f_config_unsupported(heti_f_config *c, const char *key, const char *value, const char *known) {
    return heti_t_fail(c->error, HET_ERR_UNSUPPORTED, "%s: %s %q is not supported%s%s", heti_f_config_where, key, value,
                       strlen(value), known[0] != 0 ? "; supported: " : "", known);
}

/* The value at byte `at` as it stands in the file, cut. */
typedef struct heti_f_shown_value { char text[48]; } heti_f_shown_value;
static heti_f_shown_value heti_f_raw(const heti_f_config *c, size_t at) {
    heti_f_shown_value shown;
    het_json j = c->json;
    char key[16];
    size_t length = 0;
    j.at = at;
    j.depth = 0;
    if (het_json_peek(&j) == HET_JSON_OBJECT) het_json_enter(&j, HET_JSON_OBJECT);
    /* of how weights are quantised the method's name */
    while (j.depth > 0 && het_json_next(&j, key, sizeof key, &length)) {
        (void)het_json_peek(&j);
        if (heti_t_is(key, length, "quant_method")) at = j.at;
        het_json_skip(&j);
    }
    j.at = at;
    (void)het_json_skip(&j);
    heti_f_copy(shown.text, sizeof shown.text, c->json.text + at, j.at - at);
    return shown;
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

/* Two values of a setting are the same: as numbers, or else letter by letter. */
static int heti_f_same_value(const char *a, const char *b) {
    het_json j = het_json_start(a, strlen(a)), k = het_json_start(b, strlen(b));
    double x = 0.0, y = 0.0;
    if (strcmp(a, b) == 0) return 1;
    return het_json_real(&j, &x) && het_json_end(&j) && het_json_real(&k, &y) && het_json_end(&k) && x >= y && x <= y;
}

/* Takes the value of a key into its setting. */
static het_result heti_f_config_copy(heti_f_config *c, const heti_f_config_key *k) {
    char value[64];
    const char *before = heti_f_setting_of(&c->set, k->setting);
    het_json_kind kind;
    size_t at;
    (void)het_json_peek(&c->json);
    at = c->json.at;
    kind = heti_f_scalar(&c->json, value, sizeof value);
    HETI_T_TRY(heti_f_config_syntax(c));
    if (kind == HET_JSON_NULL) return HET_OK;
    if (kind != k->kind)
        return heti_t_fail(c->error, HET_ERR_FORMAT, "%s: byte %u: %s has a value of the wrong type",
                           heti_f_config_where, HETI_T_CAST(uint64_t, at), k->key);
    if (before != NULL && !heti_f_same_value(before, value))
        return heti_t_fail(c->error, HET_ERR_FORMAT, "%s: byte %u: %s %s contradicts an earlier key, which gave %s",
                           heti_f_config_where, HETI_T_CAST(uint64_t, at), k->key, value, before);
    heti_f_setting_or(&c->set, k->setting, value);
    return HET_OK;
}

static het_result heti_f_config_choice(heti_f_config *c, het_choice *choice) {
    int truth = 0;
    if (het_json_peek(&c->json) == HET_JSON_NULL) het_json_null(&c->json);
    else if (het_json_boolean(&c->json, &truth)) *choice = truth ? HET_YES : HET_NO;
    return heti_f_config_syntax(c);
}

static het_result heti_f_config_count(heti_f_config *c, int64_t *count) {
    if (het_json_peek(&c->json) == HET_JSON_NULL) het_json_null(&c->json);
    else if (het_json_integer(&c->json, count) && *count < 0)
        het_json_fail(&c->json, "a number that is not negative was expected");
    return heti_f_config_syntax(c);
}

static het_result heti_f_config_activation(heti_f_config *c, const heti_f_config_key *k) {
    char value[64];
    int i;
    const het_json_kind kind = heti_f_scalar(&c->json, value, sizeof value);
    HETI_T_TRY(heti_f_config_syntax(c));
    if (kind == HET_JSON_NULL) return HET_OK;
    for (i = 0; i < HETI_F_ACTS; i++) {
        if (kind != HET_JSON_STRING || strcmp(heti_f_acts[i].name, value) != 0 ||
            (heti_f_acts[i].families & c->in) == 0)
            continue;
        heti_f_setting_put(&c->set, "activation", heti_f_acts[i].setting);
        return HET_OK;
    }
    return heti_f_config_unsupported(c, k->key, value, (c->in & HETI_F_IN_GATED) != 0 ? "silu" :
                                     "gelu_new, gelu_fast, gelu_pytorch_tanh, gelu");
}

static het_result heti_f_config_rope_type(heti_f_config *c, const heti_f_config_key *k) {
    char value[64];
    int type;
    const het_json_kind kind = heti_f_scalar(&c->json, value, sizeof value);
    HETI_T_TRY(heti_f_config_syntax(c));
    if (kind == HET_JSON_NULL) return HET_OK;
    type = strcmp(value, "default") == 0 ? 1 : strcmp(value, "llama3") == 0 ? 2 : 0;
    if (type == 0 || kind != HET_JSON_STRING) return heti_f_config_unsupported(c, k->key, value, "default, llama3");
    if (c->rope_type != 0 && c->rope_type != type)
        return heti_t_fail(c->error, HET_ERR_FORMAT, "%s: %s %s contradicts an earlier one", heti_f_config_where,
                           k->key, value);
    c->rope_type = type;
    c->rope_types++;
    return HET_OK;
}

static het_result heti_f_config_layer_types(heti_f_config *c) {
    if (het_json_peek(&c->json) == HET_JSON_NULL) {
        het_json_null(&c->json);
        return heti_f_config_syntax(c);
    }
    if (!het_json_enter(&c->json, HET_JSON_ARRAY)) return heti_f_config_syntax(c);
    while (het_json_next(&c->json, NULL, 0, NULL)) {
        char value[64];
        int type;
        if (heti_f_scalar(&c->json, value, sizeof value) == HET_JSON_ERROR) break;
        type = strcmp(value, "full_attention") == 0 ? 1 : strcmp(value, "sliding_attention") == 0 ? 2 : 0;
        if (type == 0) return heti_f_config_unsupported(c, "layer_types", value, "full_attention, sliding_attention");
        if (c->layer_types != 0 && c->layer_types != type)
            return heti_f_config_unsupported(c, "layer_types", "that differ between layers", "");
        c->layer_types = type;
    }
    return heti_f_config_syntax(c);
}

static het_result heti_f_config_architectures(heti_f_config *c) {
    const char *known = c->family->architecture;
    char value[64];
    const int none = het_json_peek(&c->json) == HET_JSON_NULL;
    if (none) het_json_null(&c->json);
    else het_json_enter(&c->json, HET_JSON_ARRAY);
    while (!none && het_json_next(&c->json, NULL, 0, NULL)) {
        if (heti_f_scalar(&c->json, value, sizeof value) == HET_JSON_ERROR) break;
        if (strcmp(value, known) == 0 || (strncmp(value, known, c->family->stem) == 0 && strcmp(value + c->family->stem,
            "Model") == 0))
            continue;
        return heti_f_config_unsupported(c, "architectures", value, known);
    }
    return heti_f_config_syntax(c);
}

static het_result heti_f_config_object(heti_f_config *c, int in);

/* rope_scaling or rope_parameters. What scales the frequencies means nothing without a type. */
static het_result heti_f_config_rope_object(heti_f_config *c, const char *key) {
    const int types = c->rope_types, scales = c->rope_scales;
    size_t at;
    if (het_json_peek(&c->json) != HET_JSON_OBJECT) {
        het_json_null(&c->json);
        return heti_f_config_syntax(c);
    }
    at = c->json.at;
    HETI_T_TRY(heti_f_config_object(c, HETI_F_IN_ROPE));
    if (c->rope_types > types || c->rope_scales == scales) return HET_OK;
    return heti_f_config_unsupported(c, key, heti_f_raw(c, at).text, "with rope_type default or llama3");
}

static het_result heti_f_config_take(heti_f_config *c, const heti_f_config_key *k) {
    switch (k->special) {
    case HETI_F_COPY: return heti_f_config_copy(c, k);
    case HETI_F_ACT: return heti_f_config_activation(c, k);
    case HETI_F_ROPE_TYPE: return heti_f_config_rope_type(c, k);
    case HETI_F_LAYER_TYPES: return heti_f_config_layer_types(c);
    case HETI_F_USE_WINDOW: return heti_f_config_choice(c, &c->use_window);
    case HETI_F_WINDOW: return heti_f_config_count(c, &c->window);
    case HETI_F_WINDOW_LAYERS: return heti_f_config_count(c, &c->window_layers);
    case HETI_F_ATTENTION_BIAS: return heti_f_config_choice(c, &c->attention_bias);
    case HETI_F_MLP_BIAS: return heti_f_config_choice(c, &c->mlp_bias);
    case HETI_F_ROPE: return heti_f_config_rope_object(c, k->key);
    case HETI_F_ARCHITECTURES: return heti_f_config_architectures(c);
    case HETI_F_OWN:
        (void)het_json_peek(&c->json);
        c->own = c->json.at;
        break;
    case HETI_F_MODEL_TYPE: break; /* read before everything else */
    default: break;
    }
    het_json_skip(&c->json);
    return heti_f_config_syntax(c);
}

/* The object at the cursor: top level (in: the family) or the rope settings. Unknown keys are
   stepped over. */
static het_result heti_f_config_object(heti_f_config *c, int in) {
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
                return heti_f_config_unsupported(c, "rope settings by layer type:", key, "");
            c->rope_scales += in == HETI_F_IN_ROPE;
            het_json_skip(&c->json);
            continue;
        }
        if (((seen >> i) & 1) != 0)
            return heti_t_fail(c->error, HET_ERR_FORMAT, "%s: byte %u: %s occurs twice", heti_f_config_where,
                               HETI_T_CAST(uint64_t, c->json.at), key);
        seen |= UINT64_C(1) << i;
        c->rope_scales += in == HETI_F_IN_ROPE && strncmp(key, "rope_t", 6) != 0 && strncmp(key, "partial", 7) != 0;
        HETI_T_TRY(heti_f_config_take(c, &heti_f_config_keys[i]));
    }
    return heti_f_config_syntax(c);
}

/* First pass: the family, which says what the other keys mean, and the syntax of the whole text. */
static het_result heti_f_config_family(heti_f_config *c) {
    char key[64], type[64] = "";
    const char *base = type;
    size_t length = 0;
    int i, count = 0;
    het_json_enter(&c->json, HET_JSON_OBJECT);
    while (het_json_next(&c->json, key, sizeof key, &length)) {
        if (heti_t_is(key, length, "model_type") && het_json_peek(&c->json) == HET_JSON_STRING) {
            (void)heti_f_scalar(&c->json, type, sizeof type);
            count++;
        } else {
            het_json_skip(&c->json);
        }
    }
    het_json_end(&c->json);
    HETI_T_TRY(heti_f_config_syntax(c));
    if (count != 1)
        return heti_t_fail(c->error, HET_ERR_FORMAT, "%s: %s", heti_f_config_where,
                           count > 0 ? "model_type occurs twice" : "model_type is missing");
    if (strncmp(type, "hetrain_", 8) == 0) base = type + 8;
    for (i = 0; i < HETI_F_FAMILIES; i++)
        if (strcmp(heti_f_families[i].type, base) == 0) c->family = &heti_f_families[i];
    if (c->family == NULL)
        return heti_f_config_unsupported(c, "model_type", type, "gpt2, llama, qwen2, qwen3, gpt_neox");
    c->in = 1 << (c->family->family - HET_GPT2);
    return HET_OK;
}

/* What several keys decide together. */
static het_result heti_f_config_window(heti_f_config *c) {
    const char *text = heti_f_setting_of(&c->set, "layers");
    const int64_t layers_full = c->window_layers < 0 ? 28 : c->window_layers; /* transformers' default */
    int sliding = (c->in & HETI_F_IN_QWEN) != 0 && c->use_window == HET_YES && c->window != 0;
    het_json j = het_json_start(text, strlen(text));
    int64_t layers = 0;
    char number[24];
    heti_t_text t;
    (void)het_json_integer(&j, &layers); /* what is no integer is refused later */
    if (c->layer_types == 2 && !sliding)
        return heti_t_fail(c->error, HET_ERR_FORMAT,
                           "%s: layer_types says sliding_attention, use_sliding_window does not", heti_f_config_where);
    if (c->layer_types == 1) sliding = 0;
    if (!sliding || (c->layer_types == 0 && layers_full >= layers)) return HET_OK;
    if (c->layer_types == 0 && layers_full > 0)
        return heti_f_config_unsupported(c, "max_window_layers", "between 1 and the number of layers", "");
    t = heti_t_text_in(number, sizeof number);
    heti_t_unsigned(&t, HETI_T_CAST(uint64_t, c->window < 0 ? 4096 : c->window)); /* likewise */
    heti_f_setting_put(&c->set, "window", number);
    return HET_OK;
}

static het_result heti_f_config_biases(heti_f_config *c) {
    const int attention = c->attention_bias == HET_YES, mlp = c->mlp_bias == HET_YES;
    if (c->in == HETI_F_IN_NEOX && c->attention_bias == HET_NO)
        return heti_f_config_unsupported(c, "attention_bias", "false", "true");
    if (c->in == HETI_F_IN_QWEN3 && attention) return heti_f_config_unsupported(c, "attention_bias", "true", "false");
    if (c->in != HETI_F_IN_LLAMA) return HET_OK;
    if (attention != mlp)
        return heti_f_config_unsupported(c, "attention_bias unlike", "mlp_bias", "both true, both false");
    heti_f_setting_put(&c->set, "qkv_bias", attention ? "yes" : "no");
    heti_f_setting_put(&c->set, "linear_bias", attention ? "yes" : "no");
    return HET_OK;
}

static het_result heti_f_config_rope(heti_f_config *c) {
    const char *part = heti_f_setting_of(&c->set, "rotary_fraction");
    if ((c->in & HETI_F_IN_GATED) != 0 && part != NULL && !heti_f_same_value(part, "1"))
        return heti_f_config_unsupported(c, "partial_rotary_factor", part, "1");
    if (c->rope_type != 2) {
        heti_f_setting_drop(&c->set, "rotary_factor");
        heti_f_setting_drop(&c->set, "rotary_low");
        heti_f_setting_drop(&c->set, "rotary_high");
        heti_f_setting_drop(&c->set, "rotary_original");
        return HET_OK;
    }
    if (heti_f_setting_of(&c->set, "rotary_factor") == NULL || heti_f_setting_of(&c->set, "rotary_low") == NULL ||
        heti_f_setting_of(&c->set, "rotary_high") == NULL)
        return heti_t_fail(c->error, HET_ERR_FORMAT,
                           "%s: rope_type llama3 needs factor, low_freq_factor and high_freq_factor",
                           heti_f_config_where);
    heti_f_setting_or(&c->set, "rotary_original", heti_f_setting_of(&c->set, "context"));
    return HET_OK;
}

/* Absent keys mean what transformers' configuration classes mean, which is not always this
   library's default. */
static het_result heti_f_config_finish(heti_f_config *c) {
    static const char *const heti_f_needed[] = { "layers", "width", "heads", "vocab", "context", "mlp_width" };
    int i, k;
    for (i = 0; i < (c->in == HETI_F_IN_GPT2 ? 5 : 6); i++) {
        if (heti_f_setting_of(&c->set, heti_f_needed[i]) != NULL) continue;
        for (k = 0; (heti_f_config_keys[k].written & c->in) == 0 || strcmp(heti_f_config_keys[k].setting,
            heti_f_needed[i]) != 0; k++) {}
        return heti_t_fail(c->error, HET_ERR_FORMAT, "%s: %s is missing", heti_f_config_where,
                           heti_f_config_keys[k].key);
    }
    if ((c->in & HETI_F_IN_QWEN) != 0) heti_f_setting_or(&c->set, "kv_heads", "32");
    if (c->in == HETI_F_IN_QWEN3) heti_f_setting_or(&c->set, "head_size", "128");
    heti_f_setting_or(&c->set, "norm_epsilon", (c->in & HETI_F_IN_GATED) != 0 ? "1e-6" : "1e-5");
    heti_f_setting_or(&c->set, "rotary_theta", "10000");
    HETI_T_TRY(heti_f_config_window(c));
    HETI_T_TRY(heti_f_config_biases(c));
    return heti_f_config_rope(c);
}

/* "hetrain": {setting: value}, what het_model_to_json adds where Hugging Face has no key. It
   overrides. */
static het_result heti_f_config_own(heti_f_config *c) {
    heti_f_settings known, given;
    het_model_desc none;
    char key[32], value[64];
    size_t length = 0;
    memset(&none, 0, sizeof none);
    HETI_T_TRY(heti_f_settings_of(&known, &none));
    given.count = 0;
    c->json.at = c->own;
    c->json.depth = 0;
    het_json_enter(&c->json, HET_JSON_OBJECT);
    while (het_json_next(&c->json, key, sizeof key, &length)) {
        const int unknown = length >= sizeof key || heti_f_setting_of(&known, key) == NULL;
        if (unknown || heti_f_setting_of(&given, key) != NULL)
            return heti_t_fail(c->error, HET_ERR_FORMAT, "%s: byte %u: %s key %q in \"hetrain\"", heti_f_config_where,
                               HETI_T_CAST(uint64_t, c->json.at), unknown ? "unknown" : "repeated", key,
                               heti_t_shown(length, sizeof key));
        (void)heti_f_scalar(&c->json, value, sizeof value);
        HETI_T_TRY(heti_f_config_syntax(c));
        heti_f_setting_put(&given, key, value);
        heti_f_setting_put(&c->set, key, value);
    }
    return heti_f_config_syntax(c);
}

/* The list of settings to a model; errors of het_model_parse are told as this function's. */
static het_result heti_f_config_model(heti_f_config *c, het_model_desc *model) {
    char text[HETI_F_MODEL_TEXT];
    heti_t_text t;
    het_error error;
    const char *why;
    het_result result;
    int i;
    t = heti_t_text_in(text, sizeof text);
    heti_t_put(&t, c->family->parse);
    for (i = 0; i < c->set.count; i++) {
        const char *value = c->set.item[i].value;
        heti_t_char(&t, i == 0 ? ':' : ',');
        heti_t_put(&t, c->set.item[i].name);
        heti_t_char(&t, '=');
        for (; *value != 0; value++) heti_t_char(&t, HETI_T_CAST(char, *value == ',' ? '?' : *value));
    }
    error.text[0] = 0;
    result = het_model_parse(text, model, &error);
    if (result == HET_OK) return HET_OK;
    why = strstr(error.text, ": ");
    return heti_t_fail(c->error, result, "%s: %s", heti_f_config_where, why != NULL ? why + 2 : error.text);
}

/* The value at the cursor is neutral; the cursor steps over it. */
static int heti_f_config_is_neutral(heti_f_config *c, heti_f_neutral neutral, const het_model_desc *m) {
    char text[8];
    size_t length = 1;
    double value = 0.0, wanted = 0.0;
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
        while (het_json_next(&c->json, NULL, 0, NULL)) all &= heti_f_config_is_neutral(c, neutral, m);
        return all;
    case HET_JSON_NUMBER:
    case HET_JSON_ERROR:
    default: break;
    }
    (void)het_json_real(&c->json, &value);
    if (neutral == HETI_F_IS_WIDE)
        return value <= 0.0 || value >= HETI_T_CAST(double, m->context) || c->use_window == HET_NO;
    if (neutral == HETI_F_IS_SCALE) { /* value^2 E = 1, but for the digits that a file has */
        value *= value * HETI_T_CAST(double, m->head_size);
        return value > 1.0 - 1e-5 && value < 1.0 + 1e-5;
    }
    if (neutral == HETI_F_IS_ONE) wanted = 1.0;
    if (neutral == HETI_F_IS_HEAD_SIZE) wanted = HETI_T_CAST(double, m->head_size);
    if (neutral == HETI_F_IS_HEADS) wanted = HETI_T_CAST(double, m->heads);
    if (neutral == HETI_F_IS_KV_HEADS) wanted = HETI_T_CAST(double, m->kv_heads);
    return value >= wanted && value <= wanted;
}

/* Once more over the top level: what else there is must leave the model as it is. */
static het_result heti_f_config_foreign(heti_f_config *c, const het_model_desc *m) {
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
            if ((heti_f_foreigns[i].families & c->in) != 0 && end == length + 1 && strstr(heti_f_foreigns[i].keys,
                key) != NULL)
                break;
        (void)het_json_peek(&c->json);
        at = c->json.at;
        if (i == foreigns) {
            het_json_skip(&c->json);
        } else if (!heti_f_config_is_neutral(c, heti_f_foreigns[i].neutral, m)) {
            key[end] = 0;
            return heti_f_config_unsupported(c, key + 1, heti_f_raw(c, at).text, "");
        }
    }
    return heti_f_config_syntax(c);
}

HETRAIN_API het_result het_model_from_json(const char *text, size_t length, het_model_desc *model, het_error *error) {
    heti_f_config c;
    het_model_desc read;
    if (text == NULL || model == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "%s: %s is NULL", heti_f_config_where, text == NULL ? "text" :
                           "model");
    memset(&c, 0, sizeof c);
    c.json = het_json_start(text, length);
    c.error = error;
    c.window = c.window_layers = -1;
    HETI_T_TRY(heti_f_config_family(&c));
    c.json = het_json_start(text, length);
    HETI_T_TRY(heti_f_config_object(&c, c.in));
    HETI_T_TRY(heti_f_config_finish(&c));
    if (c.own != 0) HETI_T_TRY(heti_f_config_own(&c));
    HETI_T_TRY(heti_f_config_model(&c, &read));
    HETI_T_TRY(heti_f_config_foreign(&c, &read));
    *model = read;
    return HET_OK;
}

/* ---- written ---- */

/* A value as JSON: numbers as they are, choices as true and false, other words as strings. */
static void heti_f_text_value(heti_t_text *t, const char *value, int choices) {
    const int number = (value[0] >= '0' && value[0] <= '9') || value[0] == '-';
    if (choices && strcmp(value, "yes") == 0) heti_t_put(t, "true");
    else if (choices && strcmp(value, "no") == 0) heti_t_put(t, "false");
    else if (number) heti_t_put(t, value);
    else heti_t_json(t, value, strlen(value));
}

static void heti_f_text_pair(heti_t_text *t, const char *key, const char *value) {
    heti_t_put(t, ",\n  \"");
    heti_t_put(t, key);
    heti_t_put(t, "\": ");
    heti_t_put(t, value);
}

/* The keys that are written in `in`, as ",\n  key: value". */
static void heti_f_text_keys(heti_t_text *t, const heti_f_settings *s, int in) {
    int i;
    for (i = 0; i < HETI_F_CONFIG_KEYS; i++) {
        if ((heti_f_config_keys[i].written & in) == 0) continue;
        heti_f_text_pair(t, heti_f_config_keys[i].key, "");
        heti_f_text_value(t, heti_f_setting_of(s, heti_f_config_keys[i].setting), 1);
    }
}

/* Keys that are no plain copy of a setting. */
static void heti_f_text_specials(heti_t_text *t, const heti_f_settings *s, const het_model_desc *m, int in) {
    const char *bias = m->qkv_bias == HET_YES && m->linear_bias == HET_YES ? "true" : "false",
                *act = heti_f_setting_of(s, "activation");
    int i;
    for (i = 0; i < HETI_F_ACTS && (strcmp(heti_f_acts[i].setting, act) != 0 ||
                                    (heti_f_acts[i].families & in) == 0); i++) {}
    if (i < HETI_F_ACTS) {
        heti_f_text_pair(t, in == HETI_F_IN_GPT2 ? "activation_function" : "hidden_act", "");
        heti_t_json(t, heti_f_acts[i].name, strlen(heti_f_acts[i].name));
    }
    if ((in & HETI_F_IN_ROTARY) != 0 && m->rotary_factor > 0.0f) {
        heti_f_text_pair(t, "rope_scaling", "{\n  \"rope_type\": \"llama3\"");
        heti_f_text_keys(t, s, HETI_F_IN_ROPE);
        heti_t_char(t, '}');
    } else if ((in & HETI_F_IN_ROTARY) != 0) {
        heti_f_text_pair(t, "rope_scaling", "null");
    }
    if ((in & HETI_F_IN_QWEN) != 0) {
        heti_f_text_pair(t, "use_sliding_window", m->window > 0 ? "true" : "false");
        heti_f_text_pair(t, "sliding_window", m->window > 0 ? heti_f_setting_of(s, "window") : "null");
        heti_f_text_pair(t, "max_window_layers", "0");
    }
    if (in == HETI_F_IN_LLAMA) {
        heti_f_text_pair(t, "attention_bias", bias);
        heti_f_text_pair(t, "mlp_bias", bias);
    }
}

/* Where transformers has places for dropout like ours. Reading ignores it: it is a setting of
   training. */
static void heti_f_text_dropout(heti_t_text *t, const heti_f_settings *s, int in) {
    static const char *const heti_f_gpt2[] = { "resid_pdrop", "embd_pdrop" },
        *const heti_f_neox[] = { "hidden_dropout" };
    const char *const *keys = in == HETI_F_IN_GPT2 ? heti_f_gpt2 : heti_f_neox;
    const int count = in == HETI_F_IN_GPT2 ? 2 : in == HETI_F_IN_NEOX;
    int i;
    for (i = 0; i < count; i++) heti_f_text_pair(t, keys[i], heti_f_setting_of(s, "dropout"));
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
        (void)het_json_peek(&j);
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

/* The whole text up to the closing brace. */
static void heti_f_text_config(heti_t_text *t, const heti_f_settings *s, const het_model_desc *m, const char *prefix,
                               het_element element, const char *base, size_t base_length) {
    const int in = 1 << (m->family - HET_GPT2);
    int i;
    for (i = 0; heti_f_families[i].family != m->family; i++) {}
    heti_t_put(t, "{\n  \"architectures\": [\"");
    heti_t_put(t, heti_f_families[i].architecture);
    heti_t_put(t, "\"],\n  \"model_type\": \"");
    heti_t_put(t, prefix);
    heti_t_put(t, heti_f_families[i].type);
    heti_t_char(t, '"');
    heti_f_text_keys(t, s, in);
    heti_f_text_specials(t, s, m, in);
    heti_f_text_dropout(t, s, in);
    /* GPT-2's own end of text is transformers' default */
    if (base == NULL && (in != HETI_F_IN_GPT2 || m->vocab <= 50256)) {
        heti_f_text_pair(t, "bos_token_id", "null");
        heti_f_text_pair(t, "eos_token_id", "null");
    }
    heti_f_text_pair(t, "use_cache", "true");
    heti_f_text_pair(t, "torch_dtype", element == HET_ELEMENT_BF16 ? "\"bfloat16\"" : element == HET_ELEMENT_F16 ?
                     "\"float16\"" : "\"float32\"");
    if (base != NULL) heti_f_text_others(t, base, base_length);
}

static int heti_f_setting_lost(const heti_f_setting *item, const heti_f_settings *back) {
    const char *value = heti_f_setting_of(back, item->name);
    return value == NULL || strcmp(item->value, value) != 0;
}

/* Writes the text as transformers would, reads it back, and puts every setting that did not survive
   into "hetrain". If one of them changes what the model computes, model_type becomes "hetrain_...",
   which transformers refuses rather than compute something else. */
static het_result heti_f_model_json(const het_model_desc *model, het_element element, const char *base,
                                    size_t base_length, char *text, size_t capacity, size_t *length) {
    het_json j = het_json_start(base, base_length);
    char plain[HETI_F_MODEL_TEXT];
    heti_f_settings set, back_set;
    heti_t_text t = heti_t_text_in(NULL, 0);
    het_model_desc m, back;
    int i, own = 0, foreign = 0;
    m = *model;
    if (base != NULL && (het_json_peek(&j) != HET_JSON_OBJECT || !het_json_skip(&j) || !het_json_end(&j)))
        return HET_ERR_FORMAT;
    HETI_T_TRY(het_model_complete(&m, NULL));
    HETI_T_TRY(heti_f_settings_of(&set, &m));
    t = heti_t_text_in(plain, sizeof plain);
    heti_f_text_config(&t, &set, &m, "", element, NULL, 0);
    heti_t_put(&t, "\n}\n");
    if (t.length >= sizeof plain) return HET_ERR_LIMIT;
    back_set.count = 0; /* what cannot be read back at all did not survive */
    if (het_model_from_json(plain, t.length, &back, NULL) == HET_OK) HETI_T_TRY(heti_f_settings_of(&back_set, &back));
    for (i = 0; i < set.count; i++)
        foreign |= strcmp(set.item[i].name, "dropout") != 0 && heti_f_setting_lost(&set.item[i], &back_set);
    t = heti_t_text_in(text, capacity);
    heti_f_text_config(&t, &set, &m, foreign ? "hetrain_" : "", element, base, base_length);
    for (i = 0; i < set.count; i++) {
        if (!heti_f_setting_lost(&set.item[i], &back_set)) continue;
        heti_t_put(&t, own++ == 0 ? ",\n  \"hetrain\": {\"" : ", \"");
        heti_t_put(&t, set.item[i].name);
        heti_t_put(&t, "\": ");
        heti_f_text_value(&t, set.item[i].value, 0);
    }
    heti_t_put(&t, own > 0 ? "}\n}\n" : "\n}\n");
    *length = t.length;
    return t.length < capacity ? HET_OK : HET_ERR_LIMIT;
}

HETRAIN_API het_result het_model_to_json(const het_model_desc *model, char *text, size_t capacity, size_t *length) {
    return het_model_to_config(model, HET_ELEMENT_F32, NULL, 0, text, capacity, length);
}

HETRAIN_API het_result het_model_to_config(const het_model_desc *model, het_element element, const char *base,
                                           size_t base_length, char *text, size_t capacity, size_t *length) {
    if (model == NULL || length == NULL || (text == NULL && capacity > 0)) return HET_ERR_INVALID;
    return heti_f_model_json(model, element, base, base_length, text, capacity, length);
}

/* One id of eos_token_id. */
static void heti_f_end_add(het_json *j, int64_t vocab, int32_t *id, int64_t capacity, int64_t *count) {
    int64_t value = 0, i;
    if (!het_json_integer(j, &value) || value < 0 || value >= vocab || value > INT32_MAX) return;
    for (i = 0; i < *count && i < capacity; i++)
        if (id[i] == value) return;
    if (*count < capacity) id[*count] = HETI_T_CAST(int32_t, value);
    ++*count;
}

HETRAIN_API het_result het_ends_from_json(const char *text, size_t length, int64_t vocab, int32_t *id, int64_t capacity,
                                          int64_t *count, het_error *error) {
    het_json j;
    char key[16];
    size_t key_length = 0;
    int64_t ends = 0;
    int times = 0;
    if (text == NULL || count == NULL || capacity < 0 || (id == NULL && capacity > 0))
        return heti_t_fail(error, HET_ERR_INVALID, "het_ends_from_json: a pointer is NULL, or capacity is negative");
    j = het_json_start(text, length);
    het_json_enter(&j, HET_JSON_OBJECT);
    while (het_json_next(&j, key, sizeof key, &key_length)) {
        const int ours = heti_t_is(key, key_length, "eos_token_id");
        const het_json_kind kind = het_json_peek(&j);
        if (ours && times++ > 0) het_json_fail(&j, "eos_token_id occurs twice");
        if (!ours || kind == HET_JSON_NULL) het_json_skip(&j);
        else if (kind != HET_JSON_ARRAY) heti_f_end_add(&j, vocab, id, capacity, &ends);
        else if (het_json_enter(&j, HET_JSON_ARRAY))
            while (het_json_next(&j, NULL, 0, NULL)) heti_f_end_add(&j, vocab, id, capacity, &ends);
    }
    het_json_end(&j);
    if (j.rule != NULL)
        return heti_t_fail(error, HET_ERR_FORMAT, "byte %u: %s", HETI_T_CAST(uint64_t, j.rule_at), j.rule);
    *count = ends;
    return HET_OK;
}

/* =================================================================================================
   >>folder  Directories by way of the C library.
   ============================================================================================== */

HETRAIN_API int het_folder_is_name(const char *name, size_t length) {
    size_t i;
    if (length < 1 || length > 255 || name[0] == '.') return 0;
    for (i = 0; i < length; i++)
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
    size_t size, length;              /* of this struct with its paths; of the path */
    char path[1];                     /* ended by a 0; behind it, while it is written, the same with .tmp */
} heti_f_stream;

static het_result heti_f_stream_make(const heti_f_directory *d, const char *name, heti_f_stream **made,
                                     het_error *error) {
    const size_t folder = strlen(d->path), length = strlen(name),
                 size = sizeof(heti_f_stream) + 2 * (folder + length + 2) + 4;
    heti_f_stream *s;
    *made = NULL;
    if (!het_folder_is_name(name, length))
        return heti_t_fail(error, HET_ERR_INVALID, "%s: %q is no name for a file in it", d->path, name, length);
    s = HETI_T_CAST(heti_f_stream *, d->allocator.alloc(d->allocator.user, size, 16));
    if (s == NULL) return heti_t_fail(error, HET_ERR_OOM, "%s/%s: out of memory", d->path, name);
    memset(s, 0, size);
    s->size = size;
    memcpy(s->path, d->path, folder);
    s->path[folder] = '/';
    memcpy(s->path + folder + 1, name, length);
    s->length = folder + 1 + length;
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
    het_result result;
    HETI_T_TRY(heti_f_stream_make(d, name, &s, error));
    result = het_reader_open(s->path, &s->inner, error);
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

static int heti_f_stream_write(void *user, const void *from, size_t size) {
    return fwrite(from, 1, size, HETI_T_CAST(heti_f_stream *, user)->file) != size;
}

static het_result heti_f_directory_create(void *user, const char *name, het_writer *writer, het_error *error) {
    const heti_f_directory *d = HETI_T_CAST(const heti_f_directory *, user);
    heti_f_stream *s;
    char *temporary;
    HETI_T_TRY(heti_f_stream_make(d, name, &s, error));
    temporary = s->path + s->length + 1;
    memcpy(temporary, s->path, s->length);
    memcpy(temporary + s->length, ".tmp", sizeof ".tmp");
    s->file = fopen(temporary, "wb");
    if (s->file == NULL) {
        (void)heti_t_fail(error, HET_ERR_IO, "%s: cannot be opened for writing", temporary);
        heti_f_stream_free(d, s);
        return HET_ERR_IO;
    }
    writer->write = heti_f_stream_write;
    writer->user = s;
    writer->name = temporary;
    return HET_OK;
}

static het_result heti_f_directory_finish(void *user, het_writer *writer, int keep, het_error *error) {
    heti_f_stream *s = HETI_T_CAST(heti_f_stream *, writer->user);
    const char *temporary = s->path + s->length + 1;
    het_result result = HET_OK;
    int good = fflush(s->file) == 0 && !ferror(s->file);
    good &= fclose(s->file) == 0;
    if (keep && !good) result = heti_t_fail(error, HET_ERR_IO, "%s: cannot be written", temporary);
#ifdef _WIN32
    if (keep && good) (void)remove(s->path); /* rename does not replace there */
#endif
    if (keep && good && rename(temporary, s->path) != 0)
        result = heti_t_fail(error, HET_ERR_IO, "%s: cannot be renamed to it", s->path);
    if (!keep || result != HET_OK) (void)remove(temporary);
    heti_f_stream_free(HETI_T_CAST(const heti_f_directory *, user), s);
    memset(writer, 0, sizeof *writer);
    return result;
}

HETRAIN_API het_result het_folder_open(const char *path, const het_allocator *allocator, het_folder *folder,
                                       het_error *error) {
    het_allocator own;
    heti_f_directory *d;
    size_t length, size;
    if (path == NULL || folder == NULL || path[0] == 0)
        return heti_t_fail(error, HET_ERR_INVALID, "het_folder_open: path or folder is NULL, or path is empty");
    HETI_T_TRY(heti_t_choose(allocator, &own, error, "het_folder_open"));
    length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    size = sizeof *d + length;
    d = HETI_T_CAST(heti_f_directory *, own.alloc(own.user, size, 16));
    if (d == NULL) return heti_t_fail(error, HET_ERR_OOM, "het_folder_open: %s: out of memory", path);
    d->allocator = own;
    d->size = size;
    memcpy(d->path, path, length);
    d->path[length] = 0;
    folder->open = heti_f_directory_open;
    folder->close = heti_f_directory_close;
    folder->create = heti_f_directory_create;
    folder->finish = heti_f_directory_finish;
    folder->user = d;
    return HET_OK;
}

HETRAIN_API void het_folder_close(het_folder *folder) {
    heti_f_directory *d;
    het_allocator allocator;
    if (folder == NULL || folder->user == NULL) return;
    d = HETI_T_CAST(heti_f_directory *, folder->user);
    allocator = d->allocator;
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

typedef enum heti_f_layout { HETI_F_PLAIN, HETI_F_TRANSPOSED, HETI_F_INTERLEAVED } heti_f_layout;

/* A tensor of a file and the parameters that hold its values. */
typedef struct heti_f_stored {
    char name[96];
    int32_t rank;
    int64_t shape[4];
    int64_t count;
    heti_f_layout layout;
    int parts;                        /* 1, or 3: q, k, v */
    int64_t part[3], rows[3];         /* indexes of parameters, and their rows */
    int64_t columns;
    het_what what;
} heti_f_stored;

static int heti_f_ends_with(const char *text, size_t length, const char *end) {
    const size_t tail = strlen(end);
    return length >= tail && memcmp(text + length - tail, end, tail) == 0;
}

/* The parameter at `index`, or with rows 0 where there is none. */
static het_parameter_info heti_f_parameter(const het_ctx *ctx, int64_t index) {
    het_parameter_info info;
    memset(&info, 0, sizeof info);
    if (index < 0 || index >= het_parameter_count(ctx) || het_parameter_get_info(ctx, index, &info) != HET_OK)
        info.rows = 0;
    return info;
}

/* The parameter called `name` in the same unit as parameter p, or -1. */
static int64_t heti_f_neighbour(const het_ctx *ctx, int64_t p, const char *name) {
    int64_t i;
    for (i = p - HETRAIN_MAX_UNIT_PARAMETERS; i < p + HETRAIN_MAX_UNIT_PARAMETERS; i++) {
        const het_parameter_info info = heti_f_parameter(ctx, i);
        if (info.rows > 0 && strcmp(info.name, name) == 0) return i;
    }
    return -1;
}

/* Which third (0 q, 1 k, 2 v) of a joint tensor parameter p is, with all three in s->part and
   s->rows; -1: none. */
static int heti_f_third(const het_ctx *ctx, int64_t p, heti_f_stored *s) {
    static const char heti_f_letters[] = "qkv";
    const het_model_desc *model = &het_get_desc(ctx)->model;
    const int neox = model->family == HET_NEOX, gpt2 = model->family == HET_GPT2;
    const het_parameter_info own = heti_f_parameter(ctx, p);
    const char *end = strrchr(own.name, '.');
    const char *letter = end != NULL && end - own.name >= 2 && end[-2] == '.' ? strchr(heti_f_letters, end[-1]) : NULL;
    char name[64];
    int i;
    if ((!neox && !gpt2) || letter == NULL || strlen(own.name) >= sizeof name) return -1;
    if (!heti_f_ends_with(own.name, HETI_T_CAST(size_t, end - own.name) - 2, neox ? ".attention.query_key_value" :
                          ".attn.c_attn"))
        return -1;
    for (i = 0; i < 3; i++) {
        het_parameter_info other;
        memcpy(name, own.name, strlen(own.name) + 1);
        name[end - own.name - 1] = heti_f_letters[i];
        s->part[i] = heti_f_neighbour(ctx, p, name);
        other = heti_f_parameter(ctx, s->part[i]);
        s->rows[i] = other.rows;
        if (other.rows == 0 || other.columns != own.columns) return -1;
        if (neox && (other.rows != own.rows || own.rows % model->head_size != 0)) return -1;
    }
    return HETI_T_CAST(int, letter - heti_f_letters);
}

/* GPT-2's matrices are stored [in][out], the embeddings are not. */
static int heti_f_is_conv1d(const het_ctx *ctx, const het_parameter_info *p) {
    const size_t length = strlen(p->name);
    if (het_get_desc(ctx)->model.family != HET_GPT2 || p->columns == 1 || strncmp(p->name, "transformer.h.", 14) != 0)
        return 0;
    return heti_f_ends_with(p->name, length, ".attn.c_proj.weight") || heti_f_ends_with(p->name, length,
        ".mlp.c_fc.weight") ||
           heti_f_ends_with(p->name, length, ".mlp.c_gate.weight") || heti_f_ends_with(p->name, length,
               ".mlp.c_proj.weight");
}

static void heti_f_stored_plain(const het_parameter_info *own, int64_t p, heti_f_stored *s) {
    memset(s, 0, sizeof *s);
    heti_f_copy(s->name, sizeof s->name, own->name, strlen(own->name));
    s->parts = 1;
    s->part[0] = p;
    s->rows[0] = own->rows;
    s->columns = own->columns;
    s->rank = own->columns == 1 ? 1 : 2;
    s->shape[0] = own->rows;
    if (s->rank == 2) s->shape[1] = own->columns;
    s->count = own->count;
}

/* Fills *s with the tensor that starts at parameter p; 0: p is the k or v of an earlier one, or an
   adapter's factor. */
static int heti_f_stored_at(const het_ctx *ctx, int64_t p, heti_f_stored *s) {
    const het_parameter_info own = heti_f_parameter(ctx, p);
    heti_f_stored joint;
    const int third = heti_f_third(ctx, p, &joint);
    if (third > 0 || own.adapter) return 0; /* factors are no part of the model's own weights */
    heti_f_stored_plain(&own, p, s);
    if (third == 0) {
        char *letter = strrchr(s->name, '.') - 2;
        memmove(letter, letter + 2, strlen(letter + 2) + 1);
        s->parts = 3;
        memcpy(s->part, joint.part, sizeof s->part);
        memcpy(s->rows, joint.rows, sizeof s->rows);
        s->shape[0] = s->rows[0] + s->rows[1] + s->rows[2];
        s->count = s->shape[0] * s->columns;
        s->layout = het_get_desc(ctx)->model.family == HET_GPT2 ? HETI_F_TRANSPOSED : HETI_F_INTERLEAVED;
    } else if (heti_f_is_conv1d(ctx, &own)) {
        s->layout = HETI_F_TRANSPOSED;
    }
    if (s->layout == HETI_F_TRANSPOSED && s->rank == 2) {
        s->shape[1] = s->shape[0];
        s->shape[0] = s->columns;
    }
    return 1;
}

/* Copies one part, [rows][columns], into its place in the file's layout or (to_file 0) out of it.
   Transposed: parts side by side, [columns][all rows]; interleaved: row h E + e of part j is row (h
   3 + j) E + e. */
static void heti_f_stored_move(const het_ctx *ctx, const heti_f_stored *s, int part, float *values, float *file,
                               int to_file) {
    const int64_t size = het_get_desc(ctx)->model.head_size, all_rows = s->count / s->columns;
    int64_t row, column, before = 0;
    int i;
    for (i = 0; i < part; i++) before += s->rows[i];
    for (row = 0; row < s->rows[part]; row++) {
        const int64_t step = s->layout == HETI_F_TRANSPOSED ? all_rows : 1;
        float *at = file + (s->layout == HETI_F_TRANSPOSED ? before + row :
                            ((row / size * 3 + part) * size + row % size) * s->columns);
        float *own = values + row * s->columns;
        for (column = 0; column < s->columns; column++) {
            if (to_file) at[column * step] = own[column];
            else own[column] = at[column * step];
        }
    }
}

/* Floats that one part may need beside the tensor itself. */
static int64_t heti_f_stored_largest(const heti_f_stored *s) {
    int64_t most = 0;
    int i;
    for (i = 0; i < s->parts && s->layout != HETI_F_PLAIN; i++) most = s->rows[i] > most ? s->rows[i] : most;
    return most * s->columns;
}

/* The tensor from the context into `values` as the file has it; scratch: heti_f_stored_largest
   floats. */
static het_result heti_f_stored_read(het_ctx *ctx, const heti_f_stored *s, het_what what, float *values,
                                     float *scratch) {
    int i;
    if (s->layout == HETI_F_PLAIN) return het_parameter_read(ctx, s->part[0], what, values);
    for (i = 0; i < s->parts; i++) {
        HETI_T_TRY(het_parameter_read(ctx, s->part[i], what, scratch));
        heti_f_stored_move(ctx, s, i, scratch, values, 1);
    }
    return HET_OK;
}

static het_result heti_f_stored_write(het_ctx *ctx, const heti_f_stored *s, het_what what, float *values,
                                      float *scratch) {
    int i;
    if (s->layout == HETI_F_PLAIN) return het_parameter_write(ctx, s->part[0], what, values);
    for (i = 0; i < s->parts; i++) {
        heti_f_stored_move(ctx, s, i, scratch, values, 0);
        HETI_T_TRY(het_parameter_write(ctx, s->part[i], what, scratch));
    }
    return HET_OK;
}

/* ---- tensors one by one ---- */

/* An error of ours becomes the context's; one that it reported itself left no text in *error. */
static het_result heti_f_report(het_ctx *ctx, het_result result, const het_error *error) {
    if (result == HET_OK || error->text[0] == 0) return result;
    return het_fail(ctx, result, error->text);
}

/* Where calls with a context get memory for the time they run. */
static const het_allocator *heti_f_own(const het_ctx *ctx) { return &het_get_desc(ctx)->allocator; }

static het_result heti_f_memory(const het_allocator *a, size_t count, size_t size, const char *what, void **to,
                                het_error *error) {
    *to = count <= SIZE_MAX / size - 1 ? a->alloc(a->user, count * size + 1, 64) : NULL;
    if (*to != NULL) return HET_OK;
    return heti_t_fail(error, HET_ERR_OOM, "%u %s: out of memory", HETI_T_CAST(uint64_t, count), what);
}

static void heti_f_memory_free(const het_allocator *a, void *pointer, size_t count, size_t size) {
    if (pointer != NULL) a->free(a->user, pointer, count * size + 1);
}

static het_result heti_f_floats_of(const het_allocator *a, int64_t count, float **to, het_error *error) {
    void *memory;
    HETI_T_TRY(heti_f_memory(a, HETI_T_CAST(size_t, count), sizeof **to, "floats for a tensor", &memory, error));
    *to = HETI_T_CAST(float *, memory);
    return HET_OK;
}

static void heti_f_floats_free(const het_allocator *a, float *pointer, int64_t count) {
    heti_f_memory_free(a, pointer, HETI_T_CAST(size_t, count), sizeof *pointer);
}

/* Tensor number `index` in table order; 0: there is none. */
static int heti_f_stored_find(const het_ctx *ctx, int64_t index, heti_f_stored *s) {
    int64_t p, seen = 0;
    for (p = 0; p < het_parameter_count(ctx); p++)
        if (heti_f_stored_at(ctx, p, s) && seen++ == index) return 1;
    return 0;
}

HETRAIN_API int64_t het_tensor_count(const het_ctx *ctx) {
    heti_f_stored s;
    int64_t p, count = 0;
    for (p = 0; ctx != NULL && p < het_parameter_count(ctx); p++) count += heti_f_stored_at(ctx, p, &s);
    return count;
}

HETRAIN_API het_result het_tensor_get_info(const het_ctx *ctx, int64_t index, het_tensor_info *info) {
    heti_f_stored s;
    if (ctx == NULL || info == NULL || index < 0 || !heti_f_stored_find(ctx, index, &s)) return HET_ERR_INVALID;
    memcpy(info->name, s.name, sizeof info->name);
    info->rank = s.rank;
    memcpy(info->shape, s.shape, sizeof info->shape);
    info->count = s.count;
    return HET_OK;
}

static het_result heti_f_tensor_check(const het_ctx *ctx, const char *function, int64_t index, const void *buffer,
                                      heti_f_stored *s, het_error *error) {
    if (buffer != NULL && index >= 0 && heti_f_stored_find(ctx, index, s)) return HET_OK;
    return heti_t_fail(error, HET_ERR_INVALID, "%s: tensor %d of %d, buffer %s", function, index, het_tensor_count(ctx),
                       buffer != NULL ? "given" : "NULL");
}

HETRAIN_API het_result het_tensor_read(het_ctx *ctx, int64_t index, het_what what, float *to) {
    heti_f_stored s;
    het_error error = { HET_OK, "" };
    float *scratch = NULL;
    het_result result;
    if (ctx == NULL) return HET_ERR_INVALID;
    if ((het_get_condition(ctx) & HET_FAILED) != 0) return HET_ERR_STATE;
    result = heti_f_tensor_check(ctx, "het_tensor_read", index, to, &s, &error);
    if (result == HET_OK) result = heti_f_floats_of(heti_f_own(ctx), heti_f_stored_largest(&s), &scratch, &error);
    if (result == HET_OK) result = heti_f_stored_read(ctx, &s, what, to, scratch);
    if (scratch != NULL) heti_f_floats_free(heti_f_own(ctx), scratch, heti_f_stored_largest(&s));
    return heti_f_report(ctx, result, &error);
}

HETRAIN_API het_result het_tensor_write(het_ctx *ctx, int64_t index, het_what what, const float *from) {
    heti_f_stored s;
    het_error error = { HET_OK, "" };
    float *values = NULL;
    int64_t count = 0;
    het_result result;
    if (ctx == NULL) return HET_ERR_INVALID;
    if ((het_get_condition(ctx) & HET_FAILED) != 0) return HET_ERR_STATE;
    result = heti_f_tensor_check(ctx, "het_tensor_write", index, from, &s, &error);
    if (result == HET_OK && s.layout == HETI_F_PLAIN) return het_parameter_write(ctx, s.part[0], what, from);
    if (result == HET_OK) {
        count = s.count + heti_f_stored_largest(&s);
        result = heti_f_floats_of(heti_f_own(ctx), count, &values, &error);
    }
    if (result == HET_OK) {
        memcpy(values, from, HETI_T_CAST(size_t, s.count) * sizeof *values);
        result = heti_f_stored_write(ctx, &s, what, values, values + s.count);
    }
    if (values != NULL) heti_f_floats_free(heti_f_own(ctx), values, count);
    return heti_f_report(ctx, result, &error);
}

/* ---- the list of a file's tensors ---- */

typedef enum heti_f_contents { HETI_F_WEIGHTS = HET_WEIGHTS_INCOMPLETE,
                              HETI_F_STATE = HET_STATE_INCOMPLETE } heti_f_contents;

typedef struct heti_f_inventory {
    const het_allocator *allocator;   /* of the arrays, and of what is needed beside them */
    heti_f_stored *stored;            /* [count] in table order */
    size_t count, capacity;
    float *values;                    /* [floats] the largest tensor and behind it its largest part */
    int64_t floats;
} heti_f_inventory;

static het_result heti_f_inventory_fill(const het_ctx *ctx, heti_f_contents contents, heti_f_inventory *all,
                                        het_error *error) {
    const het_optimizer_iface *optimizer = het_get_desc(ctx)->optimizer.iface;
    int64_t p;
    int slot;
    for (p = 0; p < het_parameter_count(ctx); p++) {
        const het_parameter_info own = heti_f_parameter(ctx, p);
        if (contents == HETI_F_WEIGHTS) {
            all->count += HETI_T_CAST(size_t, heti_f_stored_at(ctx, p, &all->stored[all->count]));
            continue;
        }
        for (slot = 0; slot < optimizer->slots && !own.frozen; slot++) {
            heti_f_stored *s = &all->stored[all->count++];
            const size_t length = strlen(own.name);
            heti_f_stored_plain(&own, p, s);
            s->name[length] = '/';
            heti_f_copy(s->name + length + 1, sizeof s->name - length - 1, optimizer->slot_name[slot],
                        strlen(optimizer->slot_name[slot]));
            s->what = HETI_T_CAST(het_what, HET_STATE0 + slot);
            if (length + 1 + strlen(optimizer->slot_name[slot]) >= sizeof s->name)
                return heti_t_fail(error, HET_ERR_LIMIT, "the name %s/%s is longer than 95 bytes", own.name,
                                   optimizer->slot_name[slot]);
        }
    }
    return HET_OK;
}

static het_result heti_f_inventory_open(const het_ctx *ctx, heti_f_contents contents, const het_allocator *a,
                                        heti_f_inventory *all, het_error *error) {
    const int slots = contents == HETI_F_STATE ? het_get_desc(ctx)->optimizer.iface->slots : 1;
    void *memory;
    size_t i;
    memset(all, 0, sizeof *all);
    all->allocator = a;
    all->capacity = HETI_T_CAST(size_t, het_parameter_count(ctx)) * HETI_T_CAST(size_t, slots);
    HETI_T_TRY(heti_f_memory(a, all->capacity, sizeof *all->stored, "descriptions of tensors", &memory, error));
    all->stored = HETI_T_CAST(heti_f_stored *, memory);
    HETI_T_TRY(heti_f_inventory_fill(ctx, contents, all, error));
    for (i = 0; i < all->count; i++) {
        const int64_t floats = all->stored[i].count + heti_f_stored_largest(&all->stored[i]);
        if (floats > all->floats) all->floats = floats;
    }
    return heti_f_floats_of(a, all->floats, &all->values, error);
}

static void heti_f_inventory_close(heti_f_inventory *all) {
    heti_f_memory_free(all->allocator, all->stored, all->capacity, sizeof *all->stored);
    if (all->values != NULL) heti_f_floats_free(all->allocator, all->values, all->floats);
}

/* ---- state's metadata ---- */

/* The fewest digits that read back as the same float. */
static void heti_f_text_float(heti_t_text *t, float value) {
    double x = HETI_T_CAST(double, value), back = 0.0, scaled;
    int exponent = 0, digits, i;
    uint64_t number = 0;
    if (!(x >= -3.5e38 && x <= 3.5e38)) {
        heti_t_put(t, x > 0.0 ? "inf" : x < 0.0 ? "-inf" : "nan");
        return;
    }
    if (x < 0.0) heti_t_char(t, '-');
    if (x < 0.0) x = -x;
    for (scaled = x; scaled >= 10.0; exponent++) scaled /= 10.0;
    for (; scaled > 0.0 && scaled < 1.0; exponent--) scaled *= 10.0;
    for (digits = 1; digits <= 9; digits++, scaled *= 10.0) {
        number = HETI_T_CAST(uint64_t, scaled + 0.5);
        back = heti_t_decimal(number, exponent - digits + 1);
        if (HETI_T_CAST(float, back) >= HETI_T_CAST(float, x) && HETI_T_CAST(float, back) <= HETI_T_CAST(float, x))
            break;
    }
    exponent -= digits < 9 ? digits - 1 : 8; /* value = number 10^exponent */
    if (exponent < 0 && exponent >= -12) {
        uint64_t unit = 1;
        for (i = exponent; i < 0; i++) unit *= 10;
        heti_t_unsigned(t, number / unit);
        heti_t_char(t, '.');
        for (unit /= 10; unit > 0; unit /= 10) heti_t_char(t, "0123456789"[number / unit % 10]);
        return;
    }
    heti_t_unsigned(t, number);
    if (exponent != 0) heti_t_format(t, "e%d", HETI_T_CAST(int64_t, exponent));
}

/* Pairs under construction: keys and values one behind the other, each ended by a 0. */
typedef struct heti_f_pairs {
    het_allocator allocator;
    het_error *error;
    heti_t_list text, list;           /* the second: het_pair[], once all is there */
    het_result result;
} heti_f_pairs;

static void heti_f_pairs_add(heti_f_pairs *p, const char *key, const char *value) {
    if (p->result == HET_OK) p->result = heti_t_list_add(&p->text, key, strlen(key) + 1, &p->allocator, p->error);
    if (p->result == HET_OK) p->result = heti_t_list_add(&p->text, value, strlen(value) + 1, &p->allocator, p->error);
}

static void heti_f_pairs_integer(heti_f_pairs *p, const char *key, int64_t value, int is_unsigned) {
    char text[24];
    heti_t_text t = heti_t_text_in(text, sizeof text);
    if (is_unsigned) heti_t_unsigned(&t, HETI_T_CAST(uint64_t, value));
    else heti_t_integer(&t, value);
    heti_f_pairs_add(p, key, text);
}

/* What every file has: transformers' mark, and hetrain's, by which its files are known. */
static void heti_f_pairs_made(heti_f_pairs *p) {
    heti_f_pairs_add(p, "format", "pt");
    heti_f_pairs_integer(p, "hetrain_version", het_version(), 0);
}

static void heti_f_pairs_float(heti_f_pairs *p, const char *key, float value) {
    char text[48];
    heti_t_text t = heti_t_text_in(text, sizeof text);
    heti_f_text_float(&t, value);
    heti_f_pairs_add(p, key, text);
}

/* A hash of names and shapes in table order, the order of the exponents. */
static void heti_f_pairs_table(heti_f_pairs *p, const het_ctx *ctx) {
    char line[160];
    uint64_t hash = 0;
    int64_t i;
    for (i = 0; i < het_parameter_count(ctx); i++) {
        const het_parameter_info own = heti_f_parameter(ctx, i);
        heti_t_text t = heti_t_text_in(line, sizeof line);
        heti_t_format(&t, "%s %d %d", own.name, own.rows, own.columns);
        hash = het_xxh64(line, t.length < sizeof line ? t.length : sizeof line, hash);
    }
    heti_f_pairs_integer(p, "parameters", HETI_T_CAST(int64_t, hash & HETI_T_CAST(uint64_t, INT64_MAX)), 0);
}

/* Everything that decides the bits of the next step and that shapes of tensors do not show. */
static void heti_f_pairs_options(heti_f_pairs *p, const het_ctx *ctx) {
    static const char *const heti_f_dtypes[] = { "default", "f32", "bf16" }, *const heti_f_reduces[] = { "default",
        "exact", "fast" };
    static const char *const heti_f_schedules[] = { "default", "cosine", "linear", "constant", "wsd" };
    const het_desc *d = het_get_desc(ctx);
    const het_optimizer_desc *a = &d->optimizer;
    heti_f_settings settings;
    char key[48] = "model.";
    int i;
    heti_f_pairs_integer(p, "seed", HETI_T_CAST(int64_t, d->seed), 1);
    heti_f_pairs_integer(p, "granule", d->granule, 0);
    heti_f_pairs_integer(p, "units", d->unit_count, 0);
    heti_f_pairs_integer(p, "warmup_steps", a->warmup_steps, 0);
    heti_f_pairs_integer(p, "total_steps", a->total_steps, 0);
    heti_f_pairs_add(p, "dtype", heti_f_dtypes[d->dtype]);
    heti_f_pairs_add(p, "weights", heti_f_dtypes[d->weights]);
    heti_f_pairs_add(p, "reduce", heti_f_reduces[d->reduce]);
    heti_f_pairs_add(p, "schedule", heti_f_schedules[a->schedule]);
    heti_f_pairs_add(p, "optimizer", a->iface->name);
    heti_f_pairs_table(p, ctx);
    heti_f_pairs_float(p, "learning_rate", a->learning_rate);
    heti_f_pairs_float(p, "minimum_rate", a->minimum_rate);
    heti_f_pairs_float(p, "beta1", a->beta1);
    heti_f_pairs_float(p, "beta2", a->beta2);
    heti_f_pairs_float(p, "epsilon", a->epsilon);
    heti_f_pairs_float(p, "weight_decay", a->weight_decay);
    heti_f_pairs_float(p, "clip", a->clip);
    heti_f_pairs_float(p, "spike", HETI_T_CAST(float, d->spike));
    if (p->result == HET_OK && heti_f_settings_of(&settings, &d->model) != HET_OK)
        p->result = heti_t_fail(p->error, HET_ERR_LIMIT, "the settings of the model are too long a text");
    if (p->result != HET_OK) return;
    heti_f_pairs_add(p, "model.family", heti_f_families[d->model.family - HET_GPT2].parse);
    for (i = 0; i < settings.count; i++) {
        heti_f_copy(key + 6, sizeof key - 6, settings.item[i].name, strlen(settings.item[i].name));
        heti_f_pairs_add(p, key, settings.item[i].value);
    }
}

/* "n,-3,12": one exponent a parameter, n where there is none yet. */
static void heti_f_pairs_exponents(heti_f_pairs *p, const het_ctx *ctx) {
    char number[16];
    int64_t i;
    if (p->result == HET_OK)
        p->result = heti_t_list_add(&p->text, "exponents", sizeof "exponents", &p->allocator, p->error);
    for (i = 0; i < het_parameter_count(ctx) && p->result == HET_OK; i++) {
        const int32_t x = heti_f_parameter(ctx, i).exponent;
        heti_t_text t = heti_t_text_in(number, sizeof number);
        if (i > 0) heti_t_char(&t, ',');
        if (x == HETRAIN_NO_EXPONENT) heti_t_char(&t, 'n');
        else heti_t_integer(&t, x);
        p->result = heti_t_list_add(&p->text, number, t.length, &p->allocator, p->error);
    }
    if (p->result == HET_OK) p->result = heti_t_list_add(&p->text, "", 1, &p->allocator, p->error);
}

/* The bits of the recent steps' losses and gradient norms, 16 hexadecimal digits each, in turn. */
static void heti_f_pairs_recent(heti_f_pairs *p, const het_ctx *ctx) {
    char text[2 * HETRAIN_RECENT * 16 + 1];
    het_recent recent;
    heti_t_text t;
    int64_t i;
    het_get_recent(ctx, &recent);
    t = heti_t_text_in(text, sizeof text);
    for (i = 0; i < 2 * recent.count; i++) {
        uint64_t bits;
        memcpy(&bits, i % 2 == 0 ? &recent.loss[i / 2] : &recent.norm[i / 2], sizeof bits);
        heti_t_hex(&t, bits);
    }
    heti_f_pairs_add(p, "recent", text);
}

/* Makes the list; the texts do not move any more. */
static het_result heti_f_pairs_finish(heti_f_pairs *p) {
    size_t at = 0;
    while (p->result == HET_OK && at < p->text.used) {
        het_pair pair;
        pair.key = p->text.data + at;
        pair.key_length = strlen(pair.key);
        pair.value = pair.key + pair.key_length + 1;
        pair.value_length = strlen(pair.value);
        at += pair.key_length + pair.value_length + 2;
        p->result = heti_t_list_add(&p->list, &pair, sizeof pair, &p->allocator, p->error);
    }
    return p->result;
}

static void heti_f_pairs_start(heti_f_pairs *p, const het_allocator *allocator, het_error *error) {
    memset(p, 0, sizeof *p);
    p->allocator = *allocator;
    p->error = error;
}

static void heti_f_pairs_free(heti_f_pairs *p) {
    heti_t_list_free(&p->text, &p->allocator);
    heti_t_list_free(&p->list, &p->allocator);
}

/* ---- saving ---- */

static het_result heti_f_save_tensor(het_ctx *ctx, const heti_f_inventory *all, const heti_f_stored *s,
                                     het_element element, const het_writer *to, het_error *error) {
    int64_t i;
    HETI_T_TRY(heti_f_stored_read(ctx, s, s->what, all->values, all->values + s->count));
    for (i = 0; i < s->count && element == HET_ELEMENT_F16; i++) {
        const float x = all->values[i];
        if ((x >= 65520.0f || x <= -65520.0f) && x - x >= 0.0f)
            return heti_t_fail(error, HET_ERR_DATA, "tensor %s: element %d is beyond F16; save as F32 or BF16", s->name,
                               i);
    }
    return to == NULL ? HET_OK : het_safetensors_put(to, element, all->values, s->count, error);
}

/* Tensors [first, last) of the list as a file. to NULL: nothing is written. size not NULL: it gets
   the file's, and no tensor is read. */
static het_result heti_f_save_some(het_ctx *ctx, const heti_f_inventory *all, size_t first, size_t last,
                                   const heti_f_pairs *pairs, het_element element, const het_writer *to, uint64_t *size,
                                                       het_error *error) {
    const het_pair *pair = HETI_T_CAST(const het_pair *, HETI_T_CAST(const void *, pairs->list.data));
    het_safetensors *file = NULL;
    het_safetensor *list;
    void *memory;
    size_t i;
    het_result result;
    HETI_T_TRY(heti_f_memory(all->allocator, last - first, sizeof *list, "descriptions of tensors", &memory, error));
    list = HETI_T_CAST(het_safetensor *, memory);
    memset(list, 0, (last - first) * sizeof *list);
    for (i = first; i < last; i++) {
        het_safetensor *t = &list[i - first];
        t->name = all->stored[i].name;
        t->name_length = strlen(t->name);
        t->element = element;
        t->rank = all->stored[i].rank;
        memcpy(t->shape, all->stored[i].shape, sizeof all->stored[i].shape);
    }
    result = het_safetensors_make(list, HETI_T_CAST(int64_t, last - first), pair,
                                  HETI_T_CAST(int64_t, pairs->list.used / sizeof *pair), all->allocator, &file, error);
    if (result == HET_OK && size != NULL) *size = file->size;
    if (result == HET_OK && to != NULL) result = het_safetensors_write(file, to, error);
    for (i = 0; result == HET_OK && size == NULL && i < last - first; i++)
        result = heti_f_save_tensor(ctx, all, &all->stored[first + HETI_T_CAST(size_t, file->tensor[i].number)],
                                    element, to, error);
    het_safetensors_free(file);
    heti_f_memory_free(all->allocator, list, last - first, sizeof *list);
    return result;
}

/* A context whose `contents` can be saved or loaded. */
static het_result heti_f_context_check(const het_ctx *ctx, const char *function, heti_f_contents contents, int saving,
                                       het_error *error) {
    const int32_t condition = het_get_condition(ctx);
    if (saving && condition != 0)
        return heti_t_fail(error, HET_ERR_STATE, "%s: a load failed halfway: %s are torn; load them again", function,
                           (condition & HET_WEIGHTS_INCOMPLETE) != 0 ? "weights" : "states");
    if (contents == HETI_F_STATE && het_get_desc(ctx)->inference == HET_YES)
        return heti_t_fail(error, HET_ERR_STATE, "%s: an inference context has no state", function);
    return HET_OK;
}

/* All memory is the allocator's. to NULL: *size gets the size of the file, and no tensor is
   read. */
static het_result heti_f_save(het_ctx *ctx, const char *function, heti_f_contents contents,
                              const het_allocator *allocator, const het_writer *to, uint64_t *size, het_error *error) {
    heti_f_inventory all;
    heti_f_pairs pairs;
    het_result result;
    if (size == NULL && (to == NULL || to->write == NULL))
        return heti_t_fail(error, HET_ERR_INVALID, "%s: the writer or its write is NULL", function);
    HETI_T_TRY(heti_f_context_check(ctx, function, contents, 1, error));
    heti_f_pairs_start(&pairs, allocator, error);
    heti_f_pairs_made(&pairs);
    if (contents == HETI_F_STATE) {
        heti_f_pairs_add(&pairs, "hetrain_state", HETI_F_STATE_VERSION);
        heti_f_pairs_integer(&pairs, "step", het_get_step(ctx), 0);
        heti_f_pairs_options(&pairs, ctx);
        heti_f_pairs_exponents(&pairs, ctx);
        heti_f_pairs_recent(&pairs, ctx);
    }
    result = heti_f_pairs_finish(&pairs);
    if (result == HET_OK) {
        result = heti_f_inventory_open(ctx, contents, allocator, &all, error);
        if (result == HET_OK)
            result = heti_f_save_some(ctx, &all, 0, all.count, &pairs, HET_ELEMENT_F32, to, size, error);
        heti_f_inventory_close(&all);
    }
    heti_f_pairs_free(&pairs);
    return result;
}

HETRAIN_API het_result het_save_weights(het_ctx *ctx, const het_writer *to) {
    het_error error = { HET_OK, "" };
    if (ctx == NULL) return HET_ERR_INVALID;
    if ((het_get_condition(ctx) & HET_FAILED) != 0) return HET_ERR_STATE;
    return heti_f_report(ctx, heti_f_save(ctx, "het_save_weights", HETI_F_WEIGHTS, heti_f_own(ctx), to, NULL, &error),
                         &error);
}

HETRAIN_API het_result het_save_state(het_ctx *ctx, const het_writer *to) {
    het_error error = { HET_OK, "" };
    if (ctx == NULL) return HET_ERR_INVALID;
    if ((het_get_condition(ctx) & HET_FAILED) != 0) return HET_ERR_STATE;
    return heti_f_report(ctx, heti_f_save(ctx, "het_save_state", HETI_F_STATE, heti_f_own(ctx), to, NULL, &error),
                         &error);
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
    int other_options;                /* 1: a state of other options may be loaded */
} heti_f_saved;

typedef struct heti_f_located { const heti_f_part *part; const het_safetensor *tensor; } heti_f_located;

/* Reads the table of a file into *part, whose reader is set. */
static het_result heti_f_part_open(const het_ctx *ctx, heti_f_part *part, het_error *error) {
    void *memory;
    HETI_T_TRY(het_safetensors_read(&part->from, 0, heti_f_own(ctx), &part->file, error));
    HETI_T_TRY(heti_f_memory(heti_f_own(ctx), HETI_T_CAST(size_t, part->file->tensors) + 1, 1, "flags", &memory,
                             error));
    part->used = HETI_T_CAST(unsigned char *, memory);
    memset(part->used, 0, HETI_T_CAST(size_t, part->file->tensors) + 1);
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

static void heti_f_use(const heti_f_located *at) {
    at->part->used[at->tensor - at->part->file->tensor] = 1;
}

/* The tensor called `name`: GPT-2 files of the hub have no "transformer." before their names. */
static int heti_f_find(const heti_f_saved *f, const char *name, heti_f_located *found) {
    size_t i;
    for (i = 0; i < f->parts; i++) {
        found->part = &f->part[i];
        found->tensor = het_safetensors_find(f->part[i].file, name, strlen(name));
        if (found->tensor == NULL && het_get_desc(f->ctx)->model.family == HET_GPT2 &&
            strncmp(name, "transformer.", 12) == 0)
            found->tensor = het_safetensors_find(f->part[i].file, name + 12, strlen(name) - 12);
        if (found->tensor != NULL) return 1;
    }
    return 0;
}

static void heti_f_text_shape(heti_t_text *t, const int64_t *shape, int32_t rank) {
    int i;
    heti_t_char(t, '[');
    for (i = 0; i < rank; i++) {
        if (i > 0) heti_t_put(t, ", ");
        heti_t_unsigned(t, HETI_T_CAST(uint64_t, shape[i]));
    }
    heti_t_char(t, ']');
}

/* `before`, a shape, and `behind` as one text; to: [capacity]. */
static const char *heti_f_shape(char *to, size_t capacity, const char *before, const int64_t *shape, int32_t rank,
                                const char *behind) {
    heti_t_text t = heti_t_text_in(to, capacity);
    heti_t_put(&t, before);
    heti_f_text_shape(&t, shape, rank);
    heti_t_put(&t, behind);
    to[t.length < capacity ? t.length : capacity - 1] = 0;
    return to;
}

static het_result heti_f_fits(const heti_f_saved *f, const heti_f_located *at, const int64_t *shape, int32_t rank,
                              heti_f_contents contents) {
    const het_safetensor *t = at->tensor;
    char in_file[96], wanted[96];
    char text[240];
    heti_t_text both = heti_t_text_in(text, sizeof text);
    if (!heti_f_is_float(t->element) || (contents == HETI_F_STATE && t->element != HET_ELEMENT_F32))
        return heti_t_fail(f->error, HET_ERR_UNSUPPORTED, "%s: byte %u: %q: dtype %s, must be F32%s",
                           heti_f_reader_name(&at->part->from), t->at, t->name, t->name_length,
                           heti_f_elements[t->element].name, contents == HETI_F_STATE ? "" : ", F16 or BF16");
    if (t->rank == rank && memcmp(t->shape, shape, HETI_T_CAST(size_t, rank) * sizeof *shape) == 0) return HET_OK;
    heti_t_put(&both, heti_f_shape(in_file, sizeof in_file, "has shape ", t->shape, t->rank, ", "));
    heti_t_put(&both, heti_f_shape(wanted, sizeof wanted, "the model has ", shape, rank, ""));
    return heti_f_located_fail(f, at, HET_ERR_FORMAT, text);
}

/* Buffers that older transformers saved. */
static int heti_f_may_ignore(const het_safetensor *t) {
    static const char *const heti_f_buffers[] = {
        ".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias", "rotary_emb.inv_freq"
    };
    size_t i;
    for (i = 0; i < sizeof heti_f_buffers / sizeof heti_f_buffers[0]; i++)
        if (heti_f_ends_with(t->name, t->name_length, heti_f_buffers[i])) return 1;
    return 0;
}

/* The head's own tensor in a file for a model whose head is the embedding must be the embedding
   [V][D] once more, else it is the file of another model: compared bit by bit after conversion to
   float. 1: *at is such a tensor. */
static int heti_f_is_tied_head(const het_model_desc *model, const het_safetensor *t) {
    return model->tied == HET_YES && (heti_t_is(t->name, t->name_length, "lm_head.weight") ||
                                      heti_t_is(t->name, t->name_length, "embed_out.weight"));
}

static het_result heti_f_check_head(const heti_f_saved *f, const heti_f_located *head) {
    const het_family family = het_get_desc(f->ctx)->model.family;
    float a[1024], b[1024];
    heti_f_located embedding;
    int64_t first, count, elements = 1;
    int i;
    if (!heti_f_find(f, family == HET_GPT2 ? "transformer.wte.weight" : family == HET_NEOX ?
                     "gpt_neox.embed_in.weight" : "model.embed_tokens.weight", &embedding))
        return heti_f_located_fail(f, head, HET_ERR_FORMAT, "the model has no such tensor");
    HETI_T_TRY(heti_f_fits(f, head, embedding.tensor->shape, embedding.tensor->rank, HETI_F_WEIGHTS));
    for (i = 0; i < embedding.tensor->rank; i++) elements *= embedding.tensor->shape[i];
    for (first = 0; first < elements; first += count) {
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
            ".weight_scale",
        ".weight_scale_inv"
    };
    size_t i;
    for (i = 0; i < sizeof heti_f_ends / sizeof heti_f_ends[0]; i++)
        if (heti_f_ends_with(t->name, t->name_length, heti_f_ends[i])) return 1;
    return strstr(t->name, ".quant_state.") != NULL;
}

static het_result heti_f_refuse_quantised(const het_safetensor *t, het_error *error) {
    return heti_t_fail(error, HET_ERR_UNSUPPORTED, "tensor %q is of type %s: quantised weights are not supported",
                       t->name, t->name_length, heti_f_elements[t->element].name);
}

/* Everything the context has must be in the file, once, in the right shape, and nothing else. */
static het_result heti_f_check(const heti_f_saved *f, const heti_f_inventory *all, heti_f_contents contents) {
    const het_model_desc *model = &het_get_desc(f->ctx)->model;
    heti_f_located at;
    char text[128];
    size_t i;
    int64_t k;
    for (i = 0; i < f->parts && contents == HETI_F_WEIGHTS; i++)
        for (k = 0; k < f->part[i].file->tensors; k++)
            if (heti_f_is_quantised(&f->part[i].file->tensor[k]))
                return heti_f_refuse_quantised(&f->part[i].file->tensor[k], f->error);
    for (i = 0; i < all->count; i++) {
        const heti_f_stored *s = &all->stored[i];
        if (!heti_f_find(f, s->name, &at))
            return heti_t_fail(f->error, HET_ERR_FORMAT, "%s: tensor %s %s", heti_f_reader_name(&f->part[0].from),
                               s->name, heti_f_shape(text, sizeof text, "", s->shape, s->rank, " is missing"));
        HETI_T_TRY(heti_f_fits(f, &at, s->shape, s->rank, contents));
        heti_f_use(&at);
    }
    for (i = 0; i < f->parts; i++) {
        at.part = &f->part[i];
        for (k = 0; k < at.part->file->tensors; k++) {
            at.tensor = &at.part->file->tensor[k];
            if (at.part->used[k] != 0 || (contents == HETI_F_WEIGHTS && heti_f_may_ignore(at.tensor))) continue;
            if (contents == HETI_F_WEIGHTS && heti_f_is_tied_head(model, at.tensor))
                HETI_T_TRY(heti_f_check_head(f, &at));
            else
                return heti_f_located_fail(f, &at, HET_ERR_FORMAT, heti_f_shape(text, sizeof text,
                    "the model has no such tensor (shape ", at.tensor->shape, at.tensor->rank, ")"));
        }
    }
    return HET_OK;
}

/* Loading failed midway: the context refuses to compute, and the error says so. */
static het_result heti_f_torn(const het_ctx *ctx, het_result result, heti_f_contents contents, het_error *error) {
    char why[sizeof error->text];
    const char *text;
    if ((het_get_condition(ctx) & HET_FAILED) != 0) return result;
    text = error->text[0] != 0 ? error->text : het_last_error(ctx);
    heti_f_copy(why, sizeof why, text, strlen(text));
    return heti_t_fail(error, result, "%s; %s are partly overwritten, load them again", why,
                       contents == HETI_F_WEIGHTS ? "weights" : "states");
}

/* The file fits: from here on only reading can fail, and then the context says that it is torn.
   Weights get the fingerprint of their base. */
static het_result heti_f_load_all(const heti_f_saved *f, const heti_f_inventory *all, heti_f_contents contents) {
    het_result result;
    heti_f_located at;
    uint64_t base = 0;
    size_t i;
    HETI_T_TRY(het_restore_begin(f->ctx, HETI_T_CAST(int32_t, contents)));
    result = HET_OK;
    for (i = 0; i < all->count && result == HET_OK; i++) {
        const heti_f_stored *s = &all->stored[i];
        if (!heti_f_find(f, s->name, &at)) return HET_ERR_STATE;
        result = heti_f_get_all(f->ctx, at.part->file, &at.part->from, at.tensor, s->count, all->values, f->error);
        if (result == HET_OK && contents == HETI_F_WEIGHTS)
            base = het_xxh64(all->values, HETI_T_CAST(size_t, s->count) * sizeof *all->values,
                             het_xxh64(s->name, strlen(s->name), base));
        if (result == HET_OK) result = heti_f_stored_write(f->ctx, s, s->what, all->values, all->values + s->count);
    }
    if (result == HET_OK && contents == HETI_F_WEIGHTS) het_set_base(f->ctx, base);
    return result == HET_OK ? HET_OK : heti_f_torn(f->ctx, result, contents, f->error);
}

/* ---- loading: state's metadata ---- */

static het_result heti_f_state_value(const heti_f_saved *f, const char *key, const char **value) {
    const het_safetensors *file = f->part[0].file;
    int64_t i;
    *value = NULL;
    for (i = 0; i < file->pairs; i++) {
        if (!heti_t_is(file->pair[i].key, file->pair[i].key_length, key)) continue;
        if (*value != NULL || strlen(file->pair[i].value) != file->pair[i].value_length) {
            *value = NULL;
            break;
        }
        *value = file->pair[i].value;
    }
    if (*value != NULL) return HET_OK;
    return heti_t_fail(f->error, HET_ERR_FORMAT, "%s: metadata has no %s, or has it twice: is it a state of hetrain?",
                       heti_f_reader_name(&f->part[0].from), key);
}

/* Every option of the context must be the file's. */
static het_result heti_f_state_options(const heti_f_saved *f) {
    const char *value;
    heti_f_pairs pairs;
    het_result result;
    size_t i;
    HETI_T_TRY(heti_f_state_value(f, "hetrain_state", &value));
    if (strcmp(value, HETI_F_STATE_VERSION) != 0)
        return heti_t_fail(f->error, HET_ERR_UNSUPPORTED, "%s: state version %q, "
                                                          "this build reads " HETI_F_STATE_VERSION,
                                                          heti_f_reader_name(&f->part[0].from), value, strlen(value));
    if (f->other_options) return HET_OK;
    heti_f_pairs_start(&pairs, heti_f_own(f->ctx), f->error);
    heti_f_pairs_options(&pairs, f->ctx);
    result = heti_f_pairs_finish(&pairs);
    for (i = 0; result == HET_OK && i < pairs.list.used; i += sizeof(het_pair)) {
        het_pair own;
        memcpy(&own, pairs.list.data + i, sizeof own);
        result = heti_f_state_value(f, own.key, &value);
        if (result == HET_OK && strcmp(value, own.value) != 0)
            result = heti_t_fail(f->error, HET_ERR_INVALID, "%s: %s is %q in the file and %s in the context",
                                 heti_f_reader_name(&f->part[0].from), own.key, value, strlen(value), own.value);
    }
    heti_f_pairs_free(&pairs);
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
    return heti_t_fail(f->error, HET_ERR_FORMAT, "%s: the metadata exponents are not %d numbers, or number %d is wrong",
                       heti_f_reader_name(&f->part[0].from), parameters, p);
}

/* 1: 16 hexadecimal digits, the bits of a double. */
static int heti_f_hex_double(const char *text, double *value) {
    static const char heti_f_digits[] = "0123456789abcdef";
    uint64_t bits = 0;
    int i;
    for (i = 0; i < 16; i++) {
        const char *digit = text[i] != 0 ? strchr(heti_f_digits, text[i]) : NULL;
        if (digit == NULL) return 0;
        bits = bits << 4 | HETI_T_CAST(uint64_t, digit - heti_f_digits);
    }
    memcpy(value, &bits, sizeof bits);
    return 1;
}

static het_result heti_f_state_recent(const heti_f_saved *f, het_recent *recent) {
    const char *text;
    size_t i, count;
    HETI_T_TRY(heti_f_state_value(f, "recent", &text));
    memset(recent, 0, sizeof *recent);
    count = strlen(text) / 16;
    if (strlen(text) % 32 == 0 && count <= 2 * HETRAIN_RECENT) {
        for (i = 0; i < count && heti_f_hex_double(text + 16 * i, i % 2 == 0 ? &recent->loss[i / 2] :
                                                   &recent->norm[i / 2]); i++) {}
        recent->count = HETI_T_CAST(int64_t, count / 2);
        if (i == count) return HET_OK;
    }
    return heti_t_fail(f->error, HET_ERR_FORMAT, "%s: the metadata recent are not the bits of up to %d numbers",
                       heti_f_reader_name(&f->part[0].from), HETI_T_CAST(int64_t, 2 * HETRAIN_RECENT));
}

static het_result heti_f_state_step(const heti_f_saved *f, int64_t *step) {
    const char *value;
    HETI_T_TRY(heti_f_state_value(f, "step", &value));
    if (heti_f_decimal(value, "", step) && *step >= 0) return HET_OK;
    return heti_t_fail(f->error, HET_ERR_FORMAT, "%s: step is %q, must be an integer that is not negative",
                       heti_f_reader_name(&f->part[0].from), value, strlen(value));
}

/* Everything but the tables, which are open. */
static het_result heti_f_load_open(const heti_f_saved *f, heti_f_contents contents, const heti_f_inventory *all,
                                   int32_t *exponents) {
    int64_t step = 0;
    het_recent recent;
    if (contents == HETI_F_STATE) {
        HETI_T_TRY(heti_f_state_options(f));
        HETI_T_TRY(heti_f_state_recent(f, &recent));
        HETI_T_TRY(heti_f_state_step(f, &step));
        HETI_T_TRY(heti_f_state_exponents(f, exponents));
    }
    HETI_T_TRY(heti_f_check(f, all, contents));
    HETI_T_TRY(heti_f_load_all(f, all, contents));
    return het_restore_end(f->ctx, HETI_T_CAST(int32_t, contents), step, exponents, contents == HETI_F_STATE ? &recent :
                           NULL);
}

static het_result heti_f_load_tables(const heti_f_saved *f, heti_f_contents contents) {
    const size_t parameters = HETI_T_CAST(size_t, het_parameter_count(f->ctx));
    heti_f_inventory all;
    void *memory = NULL;
    het_result result = heti_f_inventory_open(f->ctx, contents, heti_f_own(f->ctx), &all, f->error);
    if (result == HET_OK)
        result = heti_f_memory(all.allocator, parameters, sizeof(int32_t), "exponents", &memory, f->error);
    if (result == HET_OK) result = heti_f_load_open(f, contents, &all, HETI_T_CAST(int32_t *, memory));
    heti_f_memory_free(all.allocator, memory, parameters, sizeof(int32_t));
    heti_f_inventory_close(&all);
    return result;
}

static het_result heti_f_load(het_ctx *ctx, const char *function, heti_f_contents contents, const het_reader *from,
                              int other_options, het_error *error) {
    heti_f_saved f;
    heti_f_part part;
    het_result result;
    if (from == NULL || from->read == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "%s: the reader or its read is NULL", function);
    HETI_T_TRY(heti_f_context_check(ctx, function, contents, 0, error));
    memset(&part, 0, sizeof part);
    part.from = *from;
    f.ctx = ctx;
    f.error = error;
    f.part = &part;
    f.parts = 1;
    f.other_options = other_options;
    result = heti_f_part_open(ctx, &part, error);
    if (result == HET_OK) result = heti_f_load_tables(&f, contents);
    heti_f_part_close(ctx, &part);
    return result;
}

HETRAIN_API het_result het_load_weights(het_ctx *ctx, const het_reader *from) {
    het_error error = { HET_OK, "" };
    if (ctx == NULL) return HET_ERR_INVALID;
    if ((het_get_condition(ctx) & HET_FAILED) != 0) return HET_ERR_STATE;
    return heti_f_report(ctx, heti_f_load(ctx, "het_load_weights", HETI_F_WEIGHTS, from, 0, &error), &error);
}

HETRAIN_API het_result het_load_state(het_ctx *ctx, const het_reader *from) {
    het_error error = { HET_OK, "" };
    if (ctx == NULL) return HET_ERR_INVALID;
    if ((het_get_condition(ctx) & HET_FAILED) != 0) return HET_ERR_STATE;
    return heti_f_report(ctx, heti_f_load(ctx, "het_load_state", HETI_F_STATE, from, 0, &error), &error);
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

typedef struct heti_f_whole { het_allocator allocator; char *text; size_t size; } heti_f_whole;

/* The text of a file. */
static het_result heti_f_whole_open(const het_folder *folder, const char *name, const het_allocator *allocator,
                                    heti_f_whole *whole, het_error *error) {
    het_reader from;
    het_result result;
    memset(whole, 0, sizeof *whole);
    HETI_T_TRY(heti_t_choose(allocator, &whole->allocator, error, name));
    HETI_T_TRY(folder->open(folder->user, name, &from, error));
    if (from.size > HETI_F_TEXT_LIMIT) {
        result = heti_t_fail(error, HET_ERR_FORMAT, "%s: %u bytes, the limit is 100000000", heti_f_reader_name(&from),
                             from.size);
    } else {
        whole->size = HETI_T_CAST(size_t, from.size);
        whole->text = HETI_T_CAST(char *, whole->allocator.alloc(whole->allocator.user, whole->size + 1, 16));
        result = whole->text != NULL ? heti_f_read(&from, 0, whole->text, whole->size, error)
                                     : heti_t_fail(error, HET_ERR_OOM, "%s: %u bytes: out of memory",
                                                   heti_f_reader_name(&from), from.size);
    }
    folder->close(folder->user, &from);
    return result;
}

static void heti_f_whole_close(heti_f_whole *whole) {
    if (whole->text != NULL) whole->allocator.free(whole->allocator.user, whole->text, whole->size + 1);
    whole->text = NULL;
}

static het_result heti_f_folder_check(const het_folder *folder, const char *function, het_error *error) {
    if (folder != NULL && folder->open != NULL && folder->close != NULL && folder->create != NULL &&
        folder->finish != NULL)
        return HET_OK;
    return heti_t_fail(error, HET_ERR_INVALID, "%s: the folder or one of its calls is NULL", function);
}

HETRAIN_API het_result het_model_from_folder(const het_folder *folder, het_model_desc *model, het_error *error) {
    heti_f_whole whole;
    het_result result;
    HETI_T_TRY(heti_f_folder_check(folder, "het_model_from_folder", error));
    result = heti_f_whole_open(folder, heti_f_config_file, NULL, &whole, error);
    if (result == HET_OK) result = het_model_from_json(whole.text, whole.size, model, error);
    heti_f_whole_close(&whole);
    return result;
}

/* ---- shards in ---- */

typedef struct heti_f_shard_name { char text[256]; } heti_f_shard_name;

typedef struct heti_f_index {
    const het_folder *folder;
    heti_f_saved saved;
    heti_f_whole whole;
    heti_t_list names;                /* heti_f_shard_name[] */
    het_allocator allocator;
    size_t last;                      /* the shard found last: neighbours in the index mostly share one */
} heti_f_index;

static het_result heti_f_index_fail(const heti_f_index *x, size_t at, const char *name, size_t length,
                                    const char *what) {
    return heti_t_fail(x->saved.error, HET_ERR_FORMAT, "%s: byte %u: %q: %s", heti_f_index_file,
                       HETI_T_CAST(uint64_t, at), name, length, what);
}

/* The number of the shard called `name`, or how many there are. */
static size_t heti_f_index_shard(heti_f_index *x, const char *name) {
    const heti_f_shard_name *names = HETI_T_CAST(const heti_f_shard_name *, HETI_T_CAST(const void *, x->names.data));
    const size_t count = x->names.used / sizeof *names;
    size_t i;
    if (x->last < count && strcmp(names[x->last].text, name) == 0) return x->last;
    for (i = 0; i < count && strcmp(names[i].text, name) != 0; i++) {}
    if (i < count) x->last = i;
    return i;
}

/* One tensor of the map. check 0: its file is entered into the list; 1: all files are open, and the
   tensor must be in its file. */
static het_result heti_f_index_entry(heti_f_index *x, het_json *j, const char *tensor, size_t tensor_length,
                                     int check) {
    heti_f_shard_name name;
    heti_f_located found;
    size_t length = 0, shard, at;
    (void)het_json_peek(j);
    at = j->at;
    memset(&name, 0, sizeof name);
    if (!het_json_string(j, name.text, sizeof name.text, &length)) return HET_OK; /* told at the end */
    if (!het_folder_is_name(name.text, length))
        return heti_f_index_fail(x, at, name.text, heti_t_shown(length, sizeof name.text),
                                                                         "is no name of a file in this directory");
    shard = heti_f_index_shard(x, name.text);
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
    if (found.part->used[found.tensor - found.part->file->tensor] != 0)
        return heti_f_index_fail(x, at, tensor, tensor_length, "occurs twice");
    heti_f_use(&found);
    return HET_OK;
}

/* Walks "weight_map". */
static het_result heti_f_index_walk(heti_f_index *x, int check) {
    het_json j = het_json_start(x->whole.text, x->whole.size);
    char key[256];
    size_t length = 0;
    int maps = 0;
    het_json_enter(&j, HET_JSON_OBJECT);
    while (het_json_next(&j, key, sizeof key, &length)) {
        if (!heti_t_is(key, length, "weight_map")) {
            het_json_skip(&j);
            continue;
        }
        if (maps++ > 0) het_json_fail(&j, "weight_map occurs twice");
        het_json_enter(&j, HET_JSON_OBJECT);
        while (het_json_next(&j, key, sizeof key, &length)) HETI_T_TRY(heti_f_index_entry(x, &j, key, length, check));
    }
    het_json_end(&j);
    if (j.rule != NULL)
        return heti_t_fail(x->saved.error, HET_ERR_FORMAT, "%s: byte %u: %s", heti_f_index_file,
                           HETI_T_CAST(uint64_t, j.rule_at), j.rule);
    if (x->names.used > 0) return HET_OK;
    return heti_t_fail(x->saved.error, HET_ERR_FORMAT, "%s: weight_map is missing or empty", heti_f_index_file);
}

/* Opens the files of the list. What is open is counted in saved.parts. */
static het_result heti_f_index_open(heti_f_index *x) {
    size_t i, shards = x->names.used / sizeof(heti_f_shard_name);
    void *memory;
    het_result result;
    HETI_T_TRY(heti_f_memory(heti_f_own(x->saved.ctx), shards, sizeof(heti_f_part), "files", &memory, x->saved.error));
    x->saved.part = HETI_T_CAST(heti_f_part *, memory);
    memset(x->saved.part, 0, shards * sizeof(heti_f_part));
    for (i = 0; i < shards; i++) {
        const heti_f_shard_name *names =
                                 HETI_T_CAST(const heti_f_shard_name *, HETI_T_CAST(const void *, x->names.data));
        HETI_T_TRY(x->folder->open(x->folder->user, names[i].text, &x->saved.part[i].from, x->saved.error));
        x->saved.parts++;
        result = heti_f_part_open(x->saved.ctx, &x->saved.part[i], x->saved.error);
        if (result != HET_OK) return result;
    }
    return HET_OK;
}

/* Every tensor of every file must have been in the map. The flags are then cleared for the
   model. */
static het_result heti_f_index_complete(heti_f_index *x) {
    heti_f_located at;
    size_t i;
    int64_t k;
    for (i = 0; i < x->saved.parts; i++) {
        at.part = &x->saved.part[i];
        for (k = 0; k < at.part->file->tensors; k++) {
            at.tensor = &at.part->file->tensor[k];
            if (at.part->used[k] == 0)
                return heti_f_located_fail(&x->saved, &at, HET_ERR_FORMAT, "is not in model.safetensors.index.json");
        }
        memset(at.part->used, 0, HETI_T_CAST(size_t, at.part->file->tensors) + 1);
    }
    return HET_OK;
}

static het_result heti_f_load_index(heti_f_index *x) {
    HETI_T_TRY(heti_f_index_walk(x, 0));
    HETI_T_TRY(heti_f_index_open(x));
    HETI_T_TRY(heti_f_index_walk(x, 1));
    HETI_T_TRY(heti_f_index_complete(x));
    return heti_f_load_tables(&x->saved, HETI_F_WEIGHTS);
}

static het_result heti_f_load_shards(het_ctx *ctx, const het_folder *folder, het_error *error) {
    heti_f_index x;
    het_result result;
    size_t i;
    memset(&x, 0, sizeof x);
    x.folder = folder;
    x.allocator = het_get_desc(ctx)->allocator;
    x.saved.ctx = ctx;
    x.saved.error = error;
    result = heti_f_whole_open(folder, heti_f_index_file, &x.allocator, &x.whole, error);
    if (result == HET_OK) result = heti_f_load_index(&x);
    for (i = 0; i < x.saved.parts; i++) {
        heti_f_part_close(ctx, &x.saved.part[i]);
        folder->close(folder->user, &x.saved.part[i].from);
    }
    heti_f_memory_free(heti_f_own(ctx), x.saved.part, x.names.used / sizeof(heti_f_shard_name), sizeof(heti_f_part));
    heti_t_list_free(&x.names, &x.allocator);
    heti_f_whole_close(&x.whole);
    return result;
}

static het_result heti_f_load_folder(het_ctx *ctx, const het_folder *folder, het_error *error) {
    het_reader from;
    het_error first = { HET_OK, "" };
    het_result result;
    HETI_T_TRY(heti_f_folder_check(folder, "het_load_folder", error));
    result = folder->open(folder->user, heti_f_one_file, &from, &first);
    if (result == HET_OK) {
        result = heti_f_load(ctx, "het_load_folder", HETI_F_WEIGHTS, &from, 0, error);
        folder->close(folder->user, &from);
        return result;
    }
    if (result == HET_ERR_IO && folder->open(folder->user, heti_f_index_file, &from, error) == HET_OK) {
        folder->close(folder->user, &from);
        return heti_f_load_shards(ctx, folder, error);
    }
    return heti_t_fail(error, result, "%s%s", first.text, result == HET_ERR_IO ? "; nor is there an index of shards" :
                       "");
}

HETRAIN_API het_result het_load_folder(het_ctx *ctx, const het_folder *folder) {
    het_error error = { HET_OK, "" };
    if (ctx == NULL) return HET_ERR_INVALID;
    if ((het_get_condition(ctx) & HET_FAILED) != 0) return HET_ERR_STATE;
    return heti_f_report(ctx, heti_f_load_folder(ctx, folder, &error), &error);
}

/* ---- a model held against shapes ---- */

/* Sizes of a model. The order is that of heti_f_size_settings. */
typedef enum heti_f_size { HETI_F_V, HETI_F_C, HETI_F_D, HETI_F_F, HETI_F_K, HETI_F_Q, HETI_F_Q2K /* Q + 2 K */,
                          HETI_F_L } heti_f_size;
static const char *const heti_f_size_settings[] = { "vocab", "context", "width", "mlp_width", "kv_heads", "heads",
                                                   "heads", "layers" };

/* Matrices of weight files, # the layer, and which models have one in every layer. NeoX's q, k and
   v are one where they have equally many heads. */
typedef enum heti_f_need { HETI_F_MAY, HETI_F_MUST, HETI_F_IF_GATED, HETI_F_IF_LEARNED, HETI_F_IF_EQUAL,
                          HETI_F_IF_UNEQUAL } heti_f_need;
typedef struct heti_f_sized { int families; heti_f_need need; const char *name; heti_f_size size[2]; } heti_f_sized;
static const heti_f_sized heti_f_matrices[] = {
    { HETI_F_IN_GPT2, HETI_F_MUST, "transformer.wte.weight", { HETI_F_V, HETI_F_D } },
    { HETI_F_IN_GPT2, HETI_F_IF_LEARNED, "transformer.wpe.weight", { HETI_F_C, HETI_F_D } },
    { HETI_F_IN_GPT2, HETI_F_MUST, "transformer.h.#.attn.c_attn.weight", { HETI_F_D, HETI_F_Q2K } },
    { HETI_F_IN_GPT2, HETI_F_MUST, "transformer.h.#.attn.c_proj.weight", { HETI_F_Q, HETI_F_D } },
    { HETI_F_IN_GPT2, HETI_F_IF_GATED, "transformer.h.#.mlp.c_gate.weight", { HETI_F_D, HETI_F_F } },
    { HETI_F_IN_GPT2, HETI_F_MUST, "transformer.h.#.mlp.c_fc.weight", { HETI_F_D, HETI_F_F } },
    { HETI_F_IN_GPT2, HETI_F_MUST, "transformer.h.#.mlp.c_proj.weight", { HETI_F_F, HETI_F_D } },
    { HETI_F_IN_GATED, HETI_F_MUST, "model.embed_tokens.weight", { HETI_F_V, HETI_F_D } },
    { HETI_F_IN_GATED, HETI_F_IF_LEARNED, "model.embed_positions.weight", { HETI_F_C, HETI_F_D } },
    { HETI_F_IN_GATED, HETI_F_MUST, "model.layers.#.self_attn.q_proj.weight", { HETI_F_Q, HETI_F_D } },
    { HETI_F_IN_GATED, HETI_F_MUST, "model.layers.#.self_attn.k_proj.weight", { HETI_F_K, HETI_F_D } },
    { HETI_F_IN_GATED, HETI_F_MUST, "model.layers.#.self_attn.v_proj.weight", { HETI_F_K, HETI_F_D } },
    { HETI_F_IN_GATED, HETI_F_MUST, "model.layers.#.self_attn.o_proj.weight", { HETI_F_D, HETI_F_Q } },
    { HETI_F_IN_GATED, HETI_F_IF_GATED, "model.layers.#.mlp.gate_proj.weight", { HETI_F_F, HETI_F_D } },
    { HETI_F_IN_GATED, HETI_F_MUST, "model.layers.#.mlp.up_proj.weight", { HETI_F_F, HETI_F_D } },
    { HETI_F_IN_GATED, HETI_F_MUST, "model.layers.#.mlp.down_proj.weight", { HETI_F_D, HETI_F_F } },
    { HETI_F_IN_NEOX, HETI_F_MUST, "gpt_neox.embed_in.weight", { HETI_F_V, HETI_F_D } },
    { HETI_F_IN_NEOX, HETI_F_IF_LEARNED, "gpt_neox.embed_positions.weight", { HETI_F_C, HETI_F_D } },
    { HETI_F_IN_NEOX, HETI_F_IF_EQUAL, "gpt_neox.layers.#.attention.query_key_value.weight", { HETI_F_Q2K, HETI_F_D } },
    { HETI_F_IN_NEOX, HETI_F_IF_UNEQUAL, "gpt_neox.layers.#.attention.query_key_value.q.weight",
     { HETI_F_Q, HETI_F_D } },
    { HETI_F_IN_NEOX, HETI_F_IF_UNEQUAL, "gpt_neox.layers.#.attention.query_key_value.k.weight",
     { HETI_F_K, HETI_F_D } },
    { HETI_F_IN_NEOX, HETI_F_IF_UNEQUAL, "gpt_neox.layers.#.attention.query_key_value.v.weight",
     { HETI_F_K, HETI_F_D } },
    { HETI_F_IN_NEOX, HETI_F_MUST, "gpt_neox.layers.#.attention.dense.weight", { HETI_F_D, HETI_F_Q } },
    { HETI_F_IN_NEOX, HETI_F_IF_GATED, "gpt_neox.layers.#.mlp.dense_h_to_4h_gate.weight", { HETI_F_F, HETI_F_D } },
    { HETI_F_IN_NEOX, HETI_F_MUST, "gpt_neox.layers.#.mlp.dense_h_to_4h.weight", { HETI_F_F, HETI_F_D } },
    { HETI_F_IN_NEOX, HETI_F_MUST, "gpt_neox.layers.#.mlp.dense_4h_to_h.weight", { HETI_F_D, HETI_F_F } },
    { HETI_F_IN_ALL - HETI_F_IN_NEOX, HETI_F_MAY, "lm_head.weight", { HETI_F_V, HETI_F_D } },
    { HETI_F_IN_NEOX, HETI_F_MAY, "embed_out.weight", { HETI_F_V, HETI_F_D } }
};
enum { HETI_F_MATRICES = sizeof heti_f_matrices / sizeof heti_f_matrices[0] };

typedef struct heti_f_sizing {
    het_model_desc model;
    int in;                           /* HETI_F_IN_ bit of the family */
    int64_t seen[HETI_F_MATRICES];    /* how many of each there are */
    het_error *error;
} heti_f_sizing;

static int64_t heti_f_size_of(const het_model_desc *m, heti_f_size size) {
    switch (size) {
    case HETI_F_V: return m->vocab;
    case HETI_F_C: return m->context;
    case HETI_F_D: return m->width;
    case HETI_F_F: return m->mlp_width;
    case HETI_F_K: return m->kv_heads * m->head_size;
    case HETI_F_Q: return m->heads * m->head_size;
    case HETI_F_Q2K: return (m->heads + 2 * m->kv_heads) * m->head_size;
    case HETI_F_L:
    default: return m->layers;
    }
}

/* "num_attention_heads 4 of 8: ": the key of config.json behind a size, and its value. */
static void heti_f_text_size(heti_t_text *t, const heti_f_sizing *s, heti_f_size size) {
    const int heads = size == HETI_F_K || size == HETI_F_Q || size == HETI_F_Q2K;
    int i;
    for (i = 0; i < HETI_F_CONFIG_KEYS; i++)
        if ((heti_f_config_keys[i].written & s->in) != 0 && strcmp(heti_f_config_keys[i].setting,
                                                                   heti_f_size_settings[size]) == 0)
            break;
    heti_t_put(t, i < HETI_F_CONFIG_KEYS ? heti_f_config_keys[i].key : heti_f_size_settings[size]);
    heti_t_char(t, ' ');
    heti_t_unsigned(t,
                         HETI_T_CAST(
                                     uint64_t, size == HETI_F_K ? s->model.kv_heads : heads ? s->model.heads :
                                         heti_f_size_of(&s->model, size)));
    if (heads) heti_t_put(t, " of size ");
    if (heads) heti_t_unsigned(t, HETI_T_CAST(uint64_t, s->model.head_size));
    heti_t_put(t, ": ");
}

static het_result heti_f_sizing_fail(const heti_f_sizing *s, heti_f_size size, const char *name, size_t length,
                                     const char *what) {
    char key[80];
    heti_t_text t = heti_t_text_in(key, sizeof key);
    heti_f_text_size(&t, s, size);
    key[t.length < sizeof key ? t.length : sizeof key - 1] = 0;
    return heti_t_fail(s->error, HET_ERR_FORMAT, "%stensor %q %s", key, name, length, what);
}

/* 1: the tensor is called `pattern`, in which # stands for *layer (else 0). */
static int heti_f_is_called(const het_safetensor *t, const char *pattern, int64_t *layer) {
    const char *mark = strchr(pattern, '#');
    const size_t before = mark != NULL ? HETI_T_CAST(size_t, mark - pattern) : 0;
    size_t i = before;
    *layer = 0;
    if (mark == NULL) return heti_t_is(t->name, t->name_length, pattern);
    if (t->name_length <= before || memcmp(t->name, pattern, before) != 0) return 0;
    for (; i < t->name_length && t->name[i] >= '0' && t->name[i] <= '9' && *layer < 100000000; i++)
        *layer = *layer * 10 + t->name[i] - '0';
    return i > before && (t->name[before] != '0' || i == before + 1) && heti_t_is(t->name + i, t->name_length - i,
        mark + 1);
}

static het_result heti_f_sizing_tensor(heti_f_sizing *s, const het_safetensor *t) {
    char text[128];
    int64_t layer = 0, shape[2];
    int i, d;
    if (heti_f_is_quantised(t)) return heti_f_refuse_quantised(t, s->error);
    for (i = 0; i < HETI_F_MATRICES; i++) {
        const heti_f_sized *m = &heti_f_matrices[i];
        if ((m->families & s->in) == 0) continue;
        if (heti_f_is_called(t, m->name, &layer)) break;
        /* as files of the hub have it */
        if (strncmp(m->name, "transformer.", 12) == 0 && heti_f_is_called(t, m->name + 12, &layer)) break;
    }
    if (i == HETI_F_MATRICES) return HET_OK;
    if (!heti_f_is_float(t->element)) return heti_f_refuse_quantised(t, s->error);
    if (layer >= s->model.layers)
        return heti_f_sizing_fail(s, HETI_F_L, t->name, t->name_length, "is of a layer beyond");
    for (d = 0; d < 2; d++) shape[d] = heti_f_size_of(&s->model, heti_f_matrices[i].size[d]);
    s->seen[i]++;
    if (t->rank == 2 && t->shape[0] == shape[0] && t->shape[1] == shape[1]) return HET_OK;
    d = t->rank == 2 && t->shape[0] == shape[0];
    (void)heti_f_shape(text, sizeof text / 2, "has shape ", t->shape, t->rank, "");
    (void)heti_f_shape(text + strlen(text), sizeof text - strlen(text), ", not ", shape, 2, "");
    return heti_f_sizing_fail(s, heti_f_matrices[i].size[d], t->name, t->name_length, text);
}

static het_result heti_f_sizing_file(heti_f_sizing *s, const het_reader *from, const het_allocator *allocator) {
    het_safetensors *file = NULL;
    het_result result = het_safetensors_read(from, 0, allocator, &file, s->error);
    int64_t i;
    for (i = 0; result == HET_OK && i < file->tensors; i++) result = heti_f_sizing_tensor(s, &file->tensor[i]);
    het_safetensors_free(file);
    return result;
}

static het_result heti_f_sizing_start(heti_f_sizing *s, const het_model_desc *model, het_error *error) {
    memset(s, 0, sizeof *s);
    s->error = error;
    if (model == NULL) return heti_t_fail(error, HET_ERR_INVALID, "het_model_fits: model is NULL");
    s->model = *model;
    HETI_T_TRY(het_model_complete(&s->model, error));
    s->in = 1 << (s->model.family - HET_GPT2);
    return HET_OK;
}

static int heti_f_is_needed(const het_model_desc *m, heti_f_need need) {
    switch (need) {
    case HETI_F_MAY: return 0;
    case HETI_F_IF_GATED: return m->activation == HET_SWIGLU;
    case HETI_F_IF_LEARNED: return m->position == HET_LEARNED;
    case HETI_F_IF_EQUAL: return m->heads == m->kv_heads;
    case HETI_F_IF_UNEQUAL: return m->heads != m->kv_heads;
    case HETI_F_MUST:
    default: return 1;
    }
}

/* What no tensor has confirmed. A file may have a tensor with and without "transformer." before its
   name: then there are too many. */
static het_result heti_f_sizing_end(const heti_f_sizing *s) {
    char text[64];
    heti_t_text t;
    int i;
    for (i = 0; i < HETI_F_MATRICES; i++) {
        const heti_f_sized *m = &heti_f_matrices[i];
        const int layers = strchr(m->name, '#') != NULL;
        if ((m->families & s->in) == 0 || s->seen[i] == (layers ? s->model.layers : 1) ||
            !heti_f_is_needed(&s->model, m->need))
            continue;
        t = heti_t_text_in(text, sizeof text);
        if (layers) heti_t_put(&t, "is there in ");
        if (layers) heti_t_unsigned(&t, HETI_T_CAST(uint64_t, s->seen[i]));
        heti_t_put(&t, layers ? " layers" : s->seen[i] > 0 ? "is there twice" : "is missing");
        return heti_f_sizing_fail(s, layers ? HETI_F_L : m->size[0], m->name, strlen(m->name), text);
    }
    return HET_OK;
}

HETRAIN_API het_result het_model_fits(const het_model_desc *model, const het_reader *from,
                                      const het_allocator *allocator, het_error *error) {
    heti_f_sizing s;
    HETI_T_TRY(heti_f_sizing_start(&s, model, error));
    HETI_T_TRY(heti_f_sizing_file(&s, from, allocator));
    return heti_f_sizing_end(&s);
}

/* The files of an index, one after the other. */
static het_result heti_f_sizing_shards(heti_f_sizing *s, const het_folder *folder, const het_allocator *allocator) {
    heti_f_index x;
    het_reader from;
    het_result result;
    size_t i;
    memset(&x, 0, sizeof x);
    x.folder = folder;
    x.saved.error = s->error;
    HETI_T_TRY(heti_t_choose(allocator, &x.allocator, s->error, "het_model_fits_folder"));
    result = heti_f_whole_open(folder, heti_f_index_file, &x.allocator, &x.whole, s->error);
    if (result == HET_OK) result = heti_f_index_walk(&x, 0);
    for (i = 0; result == HET_OK && i < x.names.used / sizeof(heti_f_shard_name); i++) {
        const heti_f_shard_name *names =
                                 HETI_T_CAST(const heti_f_shard_name *, HETI_T_CAST(const void *, x.names.data));
        result = folder->open(folder->user, names[i].text, &from, s->error);
        if (result != HET_OK) break;
        result = heti_f_sizing_file(s, &from, &x.allocator);
        folder->close(folder->user, &from);
    }
    heti_t_list_free(&x.names, &x.allocator);
    heti_f_whole_close(&x.whole);
    return result;
}

HETRAIN_API het_result het_model_fits_folder(const het_model_desc *model, const het_folder *folder,
                                             const het_allocator *allocator, het_error *error) {
    heti_f_sizing s;
    het_reader from;
    HETI_T_TRY(heti_f_folder_check(folder, "het_model_fits_folder", error));
    HETI_T_TRY(heti_f_sizing_start(&s, model, error));
    if (folder->open(folder->user, heti_f_one_file, &from, NULL) == HET_OK) {
        const het_result result = heti_f_sizing_file(&s, &from, allocator);
        folder->close(folder->user, &from);
        HETI_T_TRY(result);
    } else {
        HETI_T_TRY(heti_f_sizing_shards(&s, folder, allocator));
    }
    return heti_f_sizing_end(&s);
}

/* ---- shards out ---- */

typedef struct heti_f_export {
    het_ctx *ctx;
    const het_folder *folder;         /* NULL: nothing is written */
    het_element element;
    uint64_t shard_bytes;
    heti_f_inventory all;
    heti_f_pairs pairs;
    int64_t shards;
    het_error *error;
} heti_f_export;

/* The first tensor behind the shard that begins at `first`. */
static size_t heti_f_export_end(const heti_f_export *e, size_t first) {
    const uint64_t size = HETI_T_CAST(uint64_t, heti_f_elements[e->element].bits / 8);
    uint64_t bytes = 0;
    size_t i;
    for (i = first; i < e->all.count; i++) {
        bytes += HETI_T_CAST(uint64_t, e->all.stored[i].count) * size;
        if (i > first && e->shard_bytes > 0 && bytes > e->shard_bytes) break;
    }
    return i;
}

/* model-00001-of-00002.safetensors, or model.safetensors where there is one. */
static void heti_f_export_name(const heti_f_export *e, int64_t shard, char name[64]) {
    heti_t_text t;
    int64_t unit;
    int i;
    t = heti_t_text_in(name, 64);
    heti_t_put(&t, "model");
    for (i = 0; i < 2 && e->shards > 1; i++) {
        heti_t_put(&t, i == 0 ? "-" : "-of-");
        for (unit = 10000; unit > 0; unit /= 10)
            heti_t_char(&t, "0123456789"[(i == 0 ? shard + 1 : e->shards) / unit % 10]);
    }
    heti_t_put(&t, ".safetensors");
}

/* Creates a file, has it written and keeps it if that went well. */
static het_result heti_f_export_text(const heti_f_export *e, const char *name, const char *text, size_t size) {
    het_writer to;
    het_result result, finished;
    if (e->folder == NULL) return HET_OK;
    HETI_T_TRY(e->folder->create(e->folder->user, name, &to, e->error));
    result = heti_f_write(&to, text, size, e->error);
    finished = e->folder->finish(e->folder->user, &to, result == HET_OK, result == HET_OK ? e->error : NULL);
    return result != HET_OK ? result : finished;
}

static het_result heti_f_export_shard(heti_f_export *e, int64_t shard, size_t first, size_t last) {
    het_writer to;
    het_result result, finished;
    char name[64];
    if (e->folder == NULL)
        return heti_f_save_some(e->ctx, &e->all, first, last, &e->pairs, e->element, NULL, NULL, e->error);
    heti_f_export_name(e, shard, name);
    HETI_T_TRY(e->folder->create(e->folder->user, name, &to, e->error));
    result = heti_f_save_some(e->ctx, &e->all, first, last, &e->pairs, e->element, &to, NULL, e->error);
    finished = e->folder->finish(e->folder->user, &to, result == HET_OK, result == HET_OK ? e->error : NULL);
    return result != HET_OK ? result : finished;
}

/* The text of the index. */
static void heti_f_export_index(const heti_f_export *e, heti_t_text *t) {
    char name[64];
    uint64_t bytes = 0;
    size_t i, first, last;
    int64_t shard = 0;
    for (i = 0; i < e->all.count; i++)
        bytes += HETI_T_CAST(uint64_t, e->all.stored[i].count) *
        HETI_T_CAST(uint64_t, heti_f_elements[e->element].bits / 8);
    heti_t_put(t, "{\n  \"metadata\": {\n    \"total_size\": ");
    heti_t_unsigned(t, bytes);
    heti_t_put(t, "\n  },\n  \"weight_map\": {");
    for (first = 0; first < e->all.count; first = last, shard++) {
        last = heti_f_export_end(e, first);
        heti_f_export_name(e, shard, name);
        for (i = first; i < last; i++) {
            heti_t_put(t, i == 0 ? "\n    " : ",\n    ");
            heti_t_json(t, e->all.stored[i].name, strlen(e->all.stored[i].name));
            heti_t_put(t, ": ");
            heti_t_json(t, name, strlen(name));
        }
    }
    heti_t_put(t, "\n  }\n}\n");
}

static het_result heti_f_export_weights(heti_f_export *e) {
    heti_t_text t = heti_t_text_in(NULL, 0);
    size_t first, last, size;
    int64_t shard = 0;
    void *memory;
    het_result result;
    for (first = 0; first < e->all.count; first = heti_f_export_end(e, first)) e->shards++;
    if (e->shards > 99999)
        return heti_t_fail(e->error, HET_ERR_LIMIT, "het_save_folder: %d files, the limit is 99999", e->shards);
    for (first = 0; first < e->all.count; first = last, shard++) {
        last = heti_f_export_end(e, first);
        HETI_T_TRY(heti_f_export_shard(e, shard, first, last));
    }
    if (e->shards < 2) return HET_OK;
    heti_f_export_index(e, &t);
    size = t.length;
    HETI_T_TRY(heti_f_memory(e->all.allocator, size, 1, "bytes for an index", &memory, e->error));
    t = heti_t_text_in(HETI_T_CAST(char *, memory), size + 1);
    heti_f_export_index(e, &t);
    result = heti_f_export_text(e, heti_f_index_file, t.to, size);
    heti_f_memory_free(e->all.allocator, memory, size, 1);
    return result;
}

static het_result heti_f_save_folder(het_ctx *ctx, const het_folder *folder, const het_save_desc *desc,
                                     het_error *error) {
    const het_allocator *allocator = desc != NULL && desc->allocator != NULL ? desc->allocator : heti_f_own(ctx);
    heti_f_export e;
    const char *base = desc != NULL ? desc->base : NULL;
    const size_t base_length = base != NULL ? desc->base_length : 0;
    het_model_desc model = het_get_desc(ctx)->model;
    char *config = NULL;
    void *memory;
    size_t length;
    het_result result;
    memset(&e, 0, sizeof e);
    e.ctx = ctx;
    e.folder = folder;
    e.error = error;
    if (folder != NULL) HETI_T_TRY(heti_f_folder_check(folder, "het_save_folder", error));
    if (desc != NULL && (desc->start_canary != 0 || desc->end_canary != 0))
        return heti_t_fail(error, HET_ERR_INVALID,
                           "het_save_folder: a canary of het_save_desc is not 0: clear the struct before filling it");
    HETI_T_TRY(heti_f_context_check(ctx, "het_save_folder", HETI_F_WEIGHTS, 1, error));
    e.element = desc == NULL || HETI_T_CAST(int64_t, desc->element) == 0 ? HET_ELEMENT_F32 : desc->element;
    e.shard_bytes = desc == NULL ? 0 : desc->shard_bytes;
    if (!heti_f_is_float(e.element))
        return heti_t_fail(error, HET_ERR_INVALID, "het_save_folder: element %d must be F32, F16 or BF16",
                           HETI_T_CAST(int64_t, e.element));
    model.lora_rank = model.lora_targets = 0; /* factors are no part of the weights */
    model.lora_alpha = 0.0f;
    if (heti_f_model_json(&model, e.element, base, base_length, NULL, 0, &length) != HET_ERR_LIMIT)
        return heti_t_fail(error, HET_ERR_FORMAT,
                           "het_save_folder: the model has no config.json, or base is no JSON object");
    HETI_T_TRY(heti_f_memory(allocator, length, 1, "bytes for config.json", &memory, error));
    config = HETI_T_CAST(char *, memory);
    result = heti_f_model_json(&model, e.element, base, base_length, config, length + 1, &length);
    heti_f_pairs_start(&e.pairs, allocator, error);
    heti_f_pairs_made(&e.pairs);
    if (result == HET_OK) result = heti_f_pairs_finish(&e.pairs);
    if (result == HET_OK) {
        result = heti_f_inventory_open(ctx, HETI_F_WEIGHTS, allocator, &e.all, error);
        if (result == HET_OK) result = heti_f_export_weights(&e);
        if (result == HET_OK) result = heti_f_export_text(&e, heti_f_config_file, config, length);
        heti_f_inventory_close(&e.all);
    }
    heti_f_memory_free(allocator, config, length, 1);
    heti_f_pairs_free(&e.pairs);
    return result;
}

HETRAIN_API het_result het_save_folder(het_ctx *ctx, const het_folder *folder, const het_save_desc *desc) {
    het_error error = { HET_OK, "" };
    if (ctx == NULL) return HET_ERR_INVALID;
    if ((het_get_condition(ctx) & HET_FAILED) != 0) return HET_ERR_STATE;
    return heti_f_report(ctx, heti_f_save_folder(ctx, folder, desc, &error), &error);
}

/* =================================================================================================
   >>llmc  GPT-2 weights as llm.c's train_gpt2.py writes them (github.com/karpathy/llm.c).

   256 int32: 20240326, version 3 (float) or 5 (bfloat16), T, V, L, H, C, Vp; then the parameters
   kind by kind, each over all layers, matrices as [out][in], wte with Vp >= V rows of which the
   last are padding.
   ============================================================================================== */

#define HETI_F_LLMC_HEADER 1024

typedef struct heti_f_llmc { int64_t context, vocab, layers, heads, width, rows; het_element element; } heti_f_llmc;

/* Kinds in the order of the file; # is the layer. The three of c_attn are one tensor there, q above
   k above v. */
typedef struct heti_f_llmc_kind { const char *name[3]; } heti_f_llmc_kind;
static const heti_f_llmc_kind heti_f_llmc_kinds[] = {
    { { "transformer.wte.weight", NULL, NULL } }, { { "transformer.wpe.weight", NULL, NULL } },
    { { "transformer.h.#.ln_1.weight", NULL, NULL } }, { { "transformer.h.#.ln_1.bias", NULL, NULL } },
    { { "transformer.h.#.attn.c_attn.q.weight", "transformer.h.#.attn.c_attn.k.weight",
       "transformer.h.#.attn.c_attn.v.weight" } },
    { { "transformer.h.#.attn.c_attn.q.bias", "transformer.h.#.attn.c_attn.k.bias",
       "transformer.h.#.attn.c_attn.v.bias" } },
    { { "transformer.h.#.attn.c_proj.weight", NULL, NULL } }, { { "transformer.h.#.attn.c_proj.bias", NULL, NULL } },
    { { "transformer.h.#.ln_2.weight", NULL, NULL } }, { { "transformer.h.#.ln_2.bias", NULL, NULL } },
    { { "transformer.h.#.mlp.c_fc.weight", NULL, NULL } }, { { "transformer.h.#.mlp.c_fc.bias", NULL, NULL } },
    { { "transformer.h.#.mlp.c_proj.weight", NULL, NULL } }, { { "transformer.h.#.mlp.c_proj.bias", NULL, NULL } },
    { { "transformer.ln_f.weight", NULL, NULL } }, { { "transformer.ln_f.bias", NULL, NULL } }
};
#define HETI_F_LLMC_KINDS HETI_T_CAST(int, sizeof heti_f_llmc_kinds / sizeof heti_f_llmc_kinds[0])

/* Reads the header and proves that the file has the size that it says. */
static het_result heti_f_llmc_open(const het_reader *from, heti_f_llmc *file, het_error *error) {
    static const char *const heti_f_names[] = { "context", "vocabulary", "layers", "heads", "width",
                                               "padded vocabulary" };
    static const int64_t heti_f_most[] = { 1 << 24, 1 << 24, 65536, 65536, 65536, 1 << 24 };
    unsigned char header[HETI_F_LLMC_HEADER];
    const char *name = heti_f_reader_name(from);
    uint64_t number[8], elements, width, wanted;
    int i;
    if (from->size < sizeof header)
        return heti_t_fail(error, HET_ERR_FORMAT, "%s: %u bytes, a header of llm.c has 1024", name, from->size);
    HETI_T_TRY(heti_f_read(from, 0, header, sizeof header, error));
    for (i = 0; i < 8; i++) number[i] = heti_f_little(header + 4 * i, 4);
    if (number[0] != 20240326)
        return heti_t_fail(error, HET_ERR_FORMAT, "%s: byte 0: %u is not 20240326, the number of llm.c's GPT-2 weights",
                           name, number[0]);
    if (number[1] != 3 && number[1] != 5)
        return heti_t_fail(error, HET_ERR_UNSUPPORTED, "%s: byte 4: version %u, must be 3 (float) or 5 (bfloat16)",
                           name, number[1]);
    for (i = 0; i < 6; i++)
        if (number[2 + i] < 1 || number[2 + i] > HETI_T_CAST(uint64_t, heti_f_most[i]))
            return heti_t_fail(error, HET_ERR_FORMAT, "%s: byte %d: %s %u, must be 1 .. %d", name,
                               HETI_T_CAST(int64_t, 8 + 4 * i), heti_f_names[i], number[2 + i], heti_f_most[i]);
    if (number[7] < number[3])
        return heti_t_fail(error, HET_ERR_FORMAT, "%s: byte 28: padded vocabulary %u is below the vocabulary %u", name,
                           number[7], number[3]);
    width = number[6];
    elements = (number[7] + number[2] + number[4] * (12 * width + 13) + 2) * width; /* below 2^61 */
    wanted = HETI_F_LLMC_HEADER + elements * (number[1] == 3 ? 4 : 2);
    if (from->size != wanted)
        return heti_t_fail(error, HET_ERR_FORMAT, "%s: %u bytes, its header asks for %u", name, from->size, wanted);
    file->context = HETI_T_CAST(int64_t, number[2]);
    file->vocab = HETI_T_CAST(int64_t, number[3]);
    file->layers = HETI_T_CAST(int64_t, number[4]);
    file->heads = HETI_T_CAST(int64_t, number[5]);
    file->width = HETI_T_CAST(int64_t, number[6]);
    file->rows = HETI_T_CAST(int64_t, number[7]);
    file->element = number[1] == 3 ? HET_ELEMENT_F32 : HET_ELEMENT_BF16;
    return HET_OK;
}

HETRAIN_API het_result het_model_from_llmc(const het_reader *from, het_model_desc *model, het_error *error) {
    heti_f_llmc file;
    het_model_desc m;
    het_error why = { HET_OK, "" };
    if (from == NULL || from->read == NULL || model == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_model_from_llmc: the reader, its read or model is NULL");
    HETI_T_TRY(heti_f_llmc_open(from, &file, error));
    memset(&m, 0, sizeof m);
    m.family = HET_GPT2;
    m.layers = file.layers;
    m.width = file.width;
    m.heads = file.heads;
    m.vocab = file.vocab;
    m.context = file.context;
    if (het_model_complete(&m, &why) != HET_OK)
        return heti_t_fail(error, HET_ERR_FORMAT, "%s: %s", heti_f_reader_name(from), why.text);
    *model = m;
    return HET_OK;
}

/* The settings must be the file's; dropout and the spread of initial weights are the context's own
   business. */
static het_result heti_f_llmc_fits(const het_ctx *ctx, const het_reader *from, het_error *error) {
    const het_model_desc *own = &het_get_desc(ctx)->model;
    het_model_desc model;
    heti_f_settings a, b;
    int i;
    HETI_T_TRY(het_model_from_llmc(from, &model, error));
    model.dropout = own->dropout;
    model.init_std = own->init_std;
    if (own->family != HET_GPT2)
        return heti_t_fail(error, HET_ERR_FORMAT, "%s: the file is a GPT-2, the context is not",
                           heti_f_reader_name(from));
    if (heti_f_settings_of(&a, &model) != HET_OK || heti_f_settings_of(&b, own) != HET_OK) return HET_ERR_LIMIT;
    for (i = 0; i < a.count; i++) {
        const char *value = heti_f_setting_of(&b, a.item[i].name);
        if (value == NULL || strcmp(value, a.item[i].value) == 0) continue;
        return heti_t_fail(error, HET_ERR_FORMAT, "%s: %s is %s in the file and %s in the context",
                           heti_f_reader_name(from), a.item[i].name, a.item[i].value, value);
    }
    return HET_OK;
}

/* The parameter of a kind and layer, or -1. */
static int64_t heti_f_llmc_parameter(const het_ctx *ctx, const char *pattern, int64_t layer) {
    const char *mark = strchr(pattern, '#');
    char name[96];
    heti_t_text t;
    int64_t p;
    t = heti_t_text_in(name, sizeof name);
    for (; *pattern != 0; pattern++) {
        if (pattern == mark) heti_t_unsigned(&t, HETI_T_CAST(uint64_t, layer));
        else heti_t_char(&t, *pattern);
    }
    for (p = het_parameter_count(ctx) - 1; p >= 0 && strcmp(heti_f_parameter(ctx, p).name, name) != 0; p--) {}
    return p;
}

/* Walks the file. values NULL: only asks whether the context has everything. *largest: elements of
   the largest parameter. */
static het_result heti_f_llmc_walk(het_ctx *ctx, const het_reader *from, const heti_f_llmc *file, float *values,
                                   int64_t *largest, het_error *error) {
    const uint64_t size = HETI_T_CAST(uint64_t, heti_f_elements[file->element].bits / 8);
    uint64_t offset = HETI_F_LLMC_HEADER;
    int64_t layer;
    int kind, part;
    for (kind = 0; kind < HETI_F_LLMC_KINDS; kind++) {
        const char *const *name = heti_f_llmc_kinds[kind].name;
        const int64_t layers = strchr(name[0], '#') != NULL ? file->layers : 1;
        for (layer = 0; layer < layers; layer++) {
            for (part = 0; part < 3 && name[part] != NULL; part++) {
                const int64_t p = heti_f_llmc_parameter(ctx, name[part], layer);
                const het_parameter_info own = heti_f_parameter(ctx, p);
                if (p < 0)
                    return heti_t_fail(error, HET_ERR_FORMAT, "%s: the context has no parameter %s of layer %d",
                                       heti_f_reader_name(from), name[part], layer);
                if (values == NULL) *largest = own.count > *largest ? own.count : *largest;
                else {
                    HETI_T_TRY(heti_f_read_floats(from, offset, file->element, values, own.count,
                                                  het_get_desc(ctx)->nonfinite == HET_YES ? NULL : own.name, error));
                    HETI_T_TRY(het_parameter_write(ctx, p, HET_WEIGHT, values));
                }
                offset += HETI_T_CAST(uint64_t, own.count) * size;
            }
        }
        if (kind == 0) offset += HETI_T_CAST(uint64_t, (file->rows - file->vocab) * file->width) * size;
    }
    if (offset == from->size) return HET_OK;
    return heti_t_fail(error, HET_ERR_FORMAT, "%s: %u bytes, the context's parameters end at %u",
                       heti_f_reader_name(from), from->size, offset);
}

static het_result heti_f_load_llmc(het_ctx *ctx, const het_reader *from, het_error *error) {
    heti_f_llmc file;
    float *values = NULL;
    int64_t largest = 0;
    het_result result;
    if (from == NULL || from->read == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_load_llmc: the reader or its read is NULL");
    HETI_T_TRY(heti_f_llmc_open(from, &file, error));
    HETI_T_TRY(heti_f_llmc_fits(ctx, from, error));
    HETI_T_TRY(heti_f_llmc_walk(ctx, from, &file, NULL, &largest, error));
    HETI_T_TRY(heti_f_floats_of(heti_f_own(ctx), largest, &values, error));
    result = het_restore_begin(ctx, HET_WEIGHTS_INCOMPLETE);
    if (result == HET_OK) {
        result = heti_f_llmc_walk(ctx, from, &file, values, &largest, error);
        if (result != HET_OK) result = heti_f_torn(ctx, result, HETI_F_WEIGHTS, error);
        else result = het_restore_end(ctx, HET_WEIGHTS_INCOMPLETE, 0, NULL, NULL);
    }
    heti_f_floats_free(heti_f_own(ctx), values, largest);
    return result;
}

HETRAIN_API het_result het_load_llmc(het_ctx *ctx, const het_reader *from) {
    het_error error = { HET_OK, "" };
    if (ctx == NULL) return HET_ERR_INVALID;
    if ((het_get_condition(ctx) & HET_FAILED) != 0) return HET_ERR_STATE;
    return heti_f_report(ctx, heti_f_load_llmc(ctx, from, &error), &error);
}

/* =================================================================================================
   >>gguf  Models for llama.cpp (github.com/ggml-org/ggml, docs/gguf.md; names of keys and tensors:
           gguf-py/gguf/constants.py).

   "GGUF", u32 version 3, u64 tensors, u64 pairs; pairs of key, u32 type and value; descriptions of
   tensors: name, u32 rank, u64 sizes with the columns first, u32 type, u64 offset; zeros up to a
   multiple of 32, and the data, each tensor filled up likewise. Strings are u64 and bytes.
   ============================================================================================== */

#define HETI_F_GGUF_ALIGN 32

/* Types of values that are written, and their numbers. */
typedef enum heti_f_gguf_type {
    HETI_F_GGUF_U32 = 4, HETI_F_GGUF_I32 = 5, HETI_F_GGUF_F32 = 6, HETI_F_GGUF_BOOL = 7, HETI_F_GGUF_STRING = 8,
        HETI_F_GGUF_ARRAY = 9
} heti_f_gguf_type;

/* Types of tokens. */
enum { HETI_F_GGUF_NORMAL = 1, HETI_F_GGUF_CONTROL = 3, HETI_F_GGUF_USER = 4, HETI_F_GGUF_UNUSED = 5 };

/* Names of the context's parameters without ".weight" or ".bias", and theirs; # is the layer. */
static const char *const heti_f_gguf_names[][2] = {
    { "transformer.wte", "token_embd" }, { "transformer.wpe", "position_embd" },
        { "transformer.h.#.ln_1", "blk.#.attn_norm" },
    { "transformer.h.#.attn.c_attn.q", "blk.#.attn_qkv" }, { "transformer.h.#.attn.c_proj", "blk.#.attn_output" },
    { "transformer.h.#.ln_2", "blk.#.ffn_norm" }, { "transformer.h.#.mlp.c_fc", "blk.#.ffn_up" },
    { "transformer.h.#.mlp.c_proj", "blk.#.ffn_down" },
    { "transformer.ln_f", "output_norm" }, { "lm_head", "output" },
    { "model.embed_tokens", "token_embd" }, { "model.layers.#.input_layernorm", "blk.#.attn_norm" },
    { "model.layers.#.self_attn.q_proj", "blk.#.attn_q" }, { "model.layers.#.self_attn.k_proj", "blk.#.attn_k" },
    { "model.layers.#.self_attn.v_proj", "blk.#.attn_v" }, { "model.layers.#.self_attn.q_norm", "blk.#.attn_q_norm" },
    { "model.layers.#.self_attn.k_norm", "blk.#.attn_k_norm" }, { "model.layers.#.self_attn.o_proj",
                                                                 "blk.#.attn_output" },
    { "model.layers.#.post_attention_layernorm", "blk.#.ffn_norm" }, { "model.layers.#.mlp.gate_proj",
                                                                      "blk.#.ffn_gate" },
    { "model.layers.#.mlp.up_proj", "blk.#.ffn_up" }, { "model.layers.#.mlp.down_proj", "blk.#.ffn_down" },
    { "model.norm", "output_norm" },
    { "gpt_neox.embed_in", "token_embd" }, { "gpt_neox.layers.#.input_layernorm", "blk.#.attn_norm" },
    { "gpt_neox.layers.#.attention.query_key_value.q", "blk.#.attn_qkv" }, { "gpt_neox.layers.#.attention.dense",
        "blk.#.attn_output" },
    { "gpt_neox.layers.#.post_attention_layernorm", "blk.#.ffn_norm" }, { "gpt_neox.layers.#.mlp.dense_h_to_4h",
        "blk.#.ffn_up" },
    { "gpt_neox.layers.#.mlp.dense_4h_to_h", "blk.#.ffn_down" }, { "gpt_neox.final_layer_norm", "output_norm" },
    { "embed_out", "output" }
};
#define HETI_F_GGUF_NAMES HETI_T_CAST(int, sizeof heti_f_gguf_names / sizeof heti_f_gguf_names[0])
static const char heti_f_gguf_embedding[] = "token_embd.weight", heti_f_gguf_positions[] = "position_embd.weight";

/* A tensor of the file: the rows of 1 or 3 parameters below each other; of 0: the divisors of
   rotary frequencies. */
typedef struct heti_f_gguf_tensor {
    char name[64];
    int parts, rank;
    int64_t part[3], part_rows[3], rows, columns;
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
        g->result = heti_t_list_add(&g->head, from, size, &het_get_desc(g->ctx)->allocator, g->error);
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

static void heti_f_gguf_u32(heti_f_gguf *g, const char *key, int64_t value) {
    if (g->result == HET_OK && (value < 0 || value > INT64_C(0xFFFFFFFF)))
        g->result = heti_t_fail(g->error, HET_ERR_LIMIT, "het_save_gguf: %s%s is %d, the limit is 4294967295",
                                g->architecture, key, value);
    heti_f_gguf_key(g, key, HETI_F_GGUF_U32);
    heti_f_gguf_number(g, HETI_T_CAST(uint64_t, value), 4);
}

static void heti_f_gguf_f32(heti_f_gguf *g, const char *key, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    heti_f_gguf_key(g, key, HETI_F_GGUF_F32);
    heti_f_gguf_number(g, bits, 4);
}

static void heti_f_gguf_bool(heti_f_gguf *g, const char *key, int value) {
    heti_f_gguf_key(g, key, HETI_F_GGUF_BOOL);
    heti_f_gguf_number(g, value != 0, 1);
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
    return heti_t_fail(g->error, HET_ERR_UNSUPPORTED, "het_save_gguf: %s: llama.cpp's %s has only %s", setting,
                       g->architecture, wanted);
}

static het_result heti_f_gguf_rotary(const heti_f_gguf *g) {
    const het_model_desc *m = g->model;
    if (m->norm != HET_RMSNORM) return heti_f_gguf_refuse(g, "norm", "RMSNorm");
    if (m->activation != HET_SWIGLU) return heti_f_gguf_refuse(g, "activation", "SwiGLU");
    if (m->position != HET_ROTARY) return heti_f_gguf_refuse(g, "position", "rotary ones");
    if (m->parallel == HET_YES) return heti_f_gguf_refuse(g, "parallel", "no");
    if (m->rotary_fraction < 1.0f) return heti_f_gguf_refuse(g, "rotary_fraction", "1");
    if (m->family != HET_QWEN3 && m->qk_norm == HET_YES) return heti_f_gguf_refuse(g, "qk_norm", "no");
    if (m->family == HET_QWEN3 && m->qk_norm != HET_YES) return heti_f_gguf_refuse(g, "qk_norm", "yes");
    if (m->family == HET_LLAMA) return HET_OK;
    if (m->linear_bias == HET_YES) return heti_f_gguf_refuse(g, "linear_bias", "no");
    if (m->rotary_factor > 0.0f) return heti_f_gguf_refuse(g, "rotary_factor", "0");
    if (m->family == HET_QWEN2 && m->heads * m->head_size != m->width)
        return heti_f_gguf_refuse(g, "head_size", "width / heads");
    return HET_OK;
}

static het_result heti_f_gguf_layernorm(const heti_f_gguf *g) {
    const het_model_desc *m = g->model;
    const int neox = m->family == HET_NEOX;
    if (m->norm != HET_LAYERNORM) return heti_f_gguf_refuse(g, "norm", "LayerNorm");
    if (m->activation != HET_GELU_TANH && (!neox || m->activation != HET_GELU_ERF))
        return heti_f_gguf_refuse(g, "activation", "GELU");
    if (m->position != (neox ? HET_ROTARY : HET_LEARNED))
        return heti_f_gguf_refuse(g, "position", neox ? "rotary ones" : "learned ones");
    if (!neox && m->parallel == HET_YES) return heti_f_gguf_refuse(g, "parallel", "no");
    if (m->qk_norm == HET_YES) return heti_f_gguf_refuse(g, "qk_norm", "no");
    if (m->qkv_bias != HET_YES) return heti_f_gguf_refuse(g, "qkv_bias", "yes");
    if (m->linear_bias != HET_YES) return heti_f_gguf_refuse(g, "linear_bias", "yes");
    if (m->rotary_factor > 0.0f) return heti_f_gguf_refuse(g, "rotary_factor", "0");
    if (m->kv_heads != m->heads) return heti_f_gguf_refuse(g, "kv_heads", "as many as heads");
    if (m->heads * m->head_size != m->width) return heti_f_gguf_refuse(g, "head_size", "width / heads");
    return HET_OK;
}

static het_result heti_f_gguf_model(const heti_f_gguf *g) {
    if (g->model->causal != HET_YES) return heti_f_gguf_refuse(g, "causal", "yes");
    if (g->model->window != 0) return heti_f_gguf_refuse(g, "window", "0");
    return g->model->family == HET_GPT2 || g->model->family == HET_NEOX ? heti_f_gguf_layernorm(g) :
        heti_f_gguf_rotary(g);
}

/* The ways to cut text by the names llama.cpp knows them by; its llama-bpe ignores merges where a
   word is a token, dbrx cuts alike and does not. */
static const char *heti_f_gguf_split(const het_tokenizer_info *info) {
    switch (info->split) {
    case HET_SPLIT_LLAMA3: return info->ignore_merges ? "llama-bpe" : "dbrx";
    case HET_SPLIT_QWEN2: return info->ignore_merges ? NULL : "qwen2";
    case HET_SPLIT_GPT2: return info->ignore_merges ? NULL : "gpt-2";
    case HET_SPLIT_DEFAULT:
    case HET_SPLIT_WHOLE: break;
    }
    return NULL;
}

static het_result heti_f_gguf_tokenizer(const heti_f_gguf *g) {
    const het_tokenizer_info *info = &g->info;
    int64_t i;
    for (i = 0; i < g->desc.ends; i++)
        if (g->desc.end == NULL || g->desc.end[i] < 0 || g->desc.end[i] >= g->model->vocab)
            return heti_t_fail(g->error, HET_ERR_INVALID, "het_save_gguf: end[%d] is %d, must be 0 .. %d", i,
                               HETI_T_CAST(int64_t, g->desc.end != NULL ? g->desc.end[i] : -1), g->model->vocab - 1);
    if (g->desc.tokenizer == NULL) return HET_OK;
    if (info->vocab > g->model->vocab)
        return heti_t_fail(g->error, HET_ERR_INVALID,
                           "het_save_gguf: the tokenizer has %d ids, the model's vocabulary is %d", info->vocab,
                           g->model->vocab);
    if (heti_f_gguf_split(info) == NULL || info->prefix_space)
        return heti_t_fail(g->error, HET_ERR_UNSUPPORTED, "het_save_gguf: the tokenizer %s, for which "
                                                          "llama.cpp has no name",
                                                          info->prefix_space ? "puts a space before a text" :
                                                          info->split == HET_SPLIT_WHOLE ?
                                                          "does not cut text into words"
                                              : "ignores merges and cuts text as GPT-2 or Qwen 2 do");
    if (info->prefixes > 1 || info->suffixes > 1)
        return heti_t_fail(g->error, HET_ERR_UNSUPPORTED, "het_save_gguf: the tokenizer puts %d ids before and %d "
                                                          "behind a text, GGUF knows one each", info->prefixes,
                                                          info->suffixes);
    return HET_OK;
}

/* ---- pairs ---- */

static void heti_f_gguf_settings(heti_f_gguf *g) {
    const het_model_desc *m = g->model;
    const het_element element = g->desc.element;
    heti_f_gguf_text(g, "general.architecture", g->architecture);
    heti_f_gguf_u32(g, "hetrain.version", het_version());
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
    if (m->family == HET_NEOX) heti_f_gguf_bool(g, ".use_parallel_residual", m->parallel == HET_YES);
}

/* Tokens as tokenizer.json spells them. Rows of the embedding without a token get names that no
   text gives. */
static void heti_f_gguf_token(heti_f_gguf *g, int32_t id) {
    char text[256];
    heti_t_text t;
    size_t length;
    if (g->desc.tokenizer == NULL) {
        heti_f_gguf_string(g, text, heti_t_utf8(heti_t_letter_of_byte(HETI_T_CAST(unsigned char, id)), text));
        return;
    }
    length = het_tokenizer_spell(g->desc.tokenizer, id, text, sizeof text);
    if (length >= sizeof text && g->result == HET_OK) { /* spelled in its place: the 0 behind it is cut off again */
        heti_f_gguf_number(g, length, 8);
        if (g->result == HET_OK)
            g->result = heti_t_list_room(&g->head, length + 1, &het_get_desc(g->ctx)->allocator, g->error);
        if (g->result == HET_OK)
            g->head.used += het_tokenizer_spell(g->desc.tokenizer, id, g->head.data + g->head.used, length + 1);
        return;
    }
    if (length == 0) {
        t = heti_t_text_in(text, sizeof text);
        heti_t_put(&t, "[PAD");
        heti_t_unsigned(&t, HETI_T_CAST(uint64_t, id));
        heti_t_char(&t, ']');
        length = t.length;
    }
    heti_f_gguf_string(g, text, length);
}

static uint64_t heti_f_gguf_token_type(const heti_f_gguf *g, int32_t id) {
    het_token token;
    if (g->desc.tokenizer == NULL) return HETI_F_GGUF_NORMAL;
    if (!het_tokenizer_get_token(g->desc.tokenizer, id, &token)) return HETI_F_GGUF_UNUSED;
    return !token.added ? HETI_F_GGUF_NORMAL : token.special ? HETI_F_GGUF_CONTROL : HETI_F_GGUF_USER;
}

/* "left right", a merge of the list. */
static void heti_f_gguf_merge(heti_f_gguf *g, int64_t index) {
    const het_allocator *allocator = &het_get_desc(g->ctx)->allocator;
    int32_t id[2] = { 0, 0 };
    size_t length[2];
    int i;
    if (!het_tokenizer_get_merge(g->desc.tokenizer, index, &id[0], &id[1])) return;
    for (i = 0; i < 2; i++) length[i] = het_tokenizer_spell(g->desc.tokenizer, id[i], NULL, 0);
    heti_f_gguf_number(g, length[0] + 1 + length[1], 8);
    for (i = 0; i < 2; i++) {
        if (g->result == HET_OK) g->result = heti_t_list_room(&g->head, length[i] + 1, allocator, g->error);
        if (g->result == HET_OK)
            g->head.used += het_tokenizer_spell(g->desc.tokenizer, id[i], g->head.data + g->head.used, length[i] + 1);
        if (i == 0) heti_f_gguf_add(g, " ", 1);
    }
}

static void heti_f_gguf_vocabulary(heti_f_gguf *g) {
    const het_tokenizer_info *info = &g->info;
    const int64_t vocab = g->model->vocab, ends = g->desc.ends;
    int64_t i;
    if (g->desc.tokenizer == NULL && vocab != 256) {
        heti_f_gguf_text(g, "tokenizer.ggml.model", "no_vocab");
        return;
    }
    heti_f_gguf_text(g, "tokenizer.ggml.model", "gpt2");
    heti_f_gguf_text(g, "tokenizer.ggml.pre", g->desc.tokenizer != NULL ? heti_f_gguf_split(info) : "gpt-2");
    heti_f_gguf_array(g, "tokenizer.ggml.tokens", HETI_F_GGUF_STRING, vocab);
    for (i = 0; i < vocab && g->result == HET_OK; i++) heti_f_gguf_token(g, HETI_T_CAST(int32_t, i));
    heti_f_gguf_array(g, "tokenizer.ggml.token_type", HETI_F_GGUF_I32, vocab);
    for (i = 0; i < vocab; i++) heti_f_gguf_number(g, heti_f_gguf_token_type(g, HETI_T_CAST(int32_t, i)), 4);
    heti_f_gguf_array(g, "tokenizer.ggml.merges", HETI_F_GGUF_STRING, info->merges);
    for (i = 0; i < info->merges && g->result == HET_OK; i++) heti_f_gguf_merge(g, i);
    if (info->prefixes > 0) heti_f_gguf_u32(g, "tokenizer.ggml.bos_token_id", info->prefix[0]);
    if (info->suffixes > 0 || ends > 0)
        heti_f_gguf_u32(g, "tokenizer.ggml.eos_token_id", info->suffixes > 0 ? info->suffix[0] : g->desc.end[0]);
    if (ends > 1) heti_f_gguf_u32(g, "tokenizer.ggml.eot_token_id", g->desc.end[1]);
    heti_f_gguf_bool(g, "tokenizer.ggml.add_bos_token", info->prefixes > 0);
    heti_f_gguf_bool(g, "tokenizer.ggml.add_eos_token", info->suffixes > 0);
}

/* ---- tensors ---- */

/* Their name for a parameter, 0: none. Layers are numbers between dots. */
static int heti_f_gguf_name(const char *own, char *to, size_t capacity) {
    char pattern[128];
    const char *suffix = strrchr(own, '.'), *digits = NULL;
    size_t length = 0, digit_count = 0;
    heti_t_text t;
    int i;
    if (suffix == NULL || strlen(own) >= sizeof pattern) return 0;
    for (; own < suffix; own++) {
        if (digits == NULL && *own >= '0' && *own <= '9' && own[-1] == '.') {
            for (digits = own; *own >= '0' && *own <= '9'; own++) digit_count++;
            pattern[length++] = '#';
        }
        if (own < suffix) pattern[length++] = *own;
    }
    pattern[length] = 0;
    for (i = 0; i < HETI_F_GGUF_NAMES && strcmp(heti_f_gguf_names[i][0], pattern) != 0; i++) {}
    if (i == HETI_F_GGUF_NAMES || digit_count > 10) return 0;
    t = heti_t_text_in(to, capacity);
    for (own = heti_f_gguf_names[i][1]; *own != 0; own++) {
        if (*own != '#') heti_t_char(&t, *own);
        else while (digit_count > 0) { heti_t_char(&t, *digits++); digit_count--; }
    }
    heti_t_put(&t, suffix);
    return 1;
}

static void heti_f_gguf_tensor_add(heti_f_gguf *g, const heti_f_gguf_tensor *t) {
    if (g->result == HET_OK)
        g->result = heti_t_list_add(&g->tensors, t, sizeof *t, &het_get_desc(g->ctx)->allocator, g->error);
}

/* The tensor that starts at parameter p. */
static void heti_f_gguf_tensor_of(heti_f_gguf *g, int64_t p) {
    const het_parameter_info own = heti_f_parameter(g->ctx, p);
    heti_f_gguf_tensor t;
    heti_f_stored joint;
    const int third = heti_f_third(g->ctx, p, &joint);
    int i;
    if (own.adapter || third > 0 || g->result != HET_OK) return;
    memset(&t, 0, sizeof t);
    if (!heti_f_gguf_name(own.name, t.name, sizeof t.name)) {
        g->result = heti_t_fail(g->error, HET_ERR_UNSUPPORTED, "het_save_gguf: llama.cpp's %s has no tensor for %s",
                                g->architecture, own.name);
        return;
    }
    t.parts = third == 0 ? 3 : 1;
    for (i = 0; i < t.parts; i++) {
        t.part[i] = third == 0 ? joint.part[i] : p;
        t.part_rows[i] = third == 0 ? joint.rows[i] : own.rows;
        t.rows += t.part_rows[i];
    }
    t.columns = own.columns;
    t.rank = own.columns == 1 ? 1 : 2;
    t.element = t.rank == 2 && strcmp(t.name, heti_f_gguf_positions) != 0 ? g->desc.element : HET_ELEMENT_F32;
    t.paired = g->model->family == HET_LLAMA && (strstr(own.name, ".self_attn.q_proj.") != NULL ||
                                                 strstr(own.name, ".self_attn.k_proj.") != NULL);
    heti_f_gguf_tensor_add(g, &t);
    /* gptneox asks for a head */
    if (g->model->family == HET_NEOX && g->model->tied == HET_YES && strcmp(t.name, heti_f_gguf_embedding) == 0) {
        heti_f_copy(t.name, sizeof t.name, "output.weight", 13);
        heti_f_gguf_tensor_add(g, &t);
    }
}

static void heti_f_gguf_tensors(heti_f_gguf *g) {
    heti_f_gguf_tensor t;
    int64_t p;
    for (p = 0; p < het_parameter_count(g->ctx); p++) heti_f_gguf_tensor_of(g, p);
    if (g->model->rotary_factor <= 0.0f) return;
    memset(&t, 0, sizeof t);
    heti_f_copy(t.name, sizeof t.name, "rope_freqs.weight", 17);
    t.rank = 1;
    t.rows = g->model->head_size / 2;
    t.columns = 1;
    t.element = HET_ELEMENT_F32;
    heti_f_gguf_tensor_add(g, &t);
}

static uint64_t heti_f_gguf_bytes(const heti_f_gguf_tensor *t) {
    return HETI_T_CAST(uint64_t, t->rows) * HETI_T_CAST(uint64_t, t->columns) *
        HETI_T_CAST(uint64_t, heti_f_elements[t->element].bits / 8);
}

static uint64_t heti_f_gguf_rest(uint64_t size) {
    return (HETI_F_GGUF_ALIGN - size % HETI_F_GGUF_ALIGN) % HETI_F_GGUF_ALIGN;
}

static void heti_f_gguf_descriptions(heti_f_gguf *g) {
    const heti_f_gguf_tensor *tensor =
                              HETI_T_CAST(const heti_f_gguf_tensor *, HETI_T_CAST(const void *, g->tensors.data));
    const size_t count = g->tensors.used / sizeof *tensor;
    uint64_t offset = 0;
    size_t i;
    for (i = 0; i < count; i++) {
        const heti_f_gguf_tensor *t = &tensor[i];
        heti_f_gguf_string(g, t->name, strlen(t->name));
        heti_f_gguf_number(g, HETI_T_CAST(uint64_t, t->rank), 4);
        if (t->rank == 2) heti_f_gguf_number(g, HETI_T_CAST(uint64_t, t->columns), 8);
        heti_f_gguf_number(g, HETI_T_CAST(uint64_t, t->rows), 8);
        heti_f_gguf_number(g, t->element == HET_ELEMENT_F16 ? 1 : t->element == HET_ELEMENT_BF16 ? 30 : 0, 4);
        heti_f_gguf_number(g, offset, 8);
        offset += heti_f_gguf_bytes(t);
        offset += heti_f_gguf_rest(offset);
    }
    for (i = HETI_T_CAST(size_t, heti_f_gguf_rest(g->head.used)); i > 0; i--) heti_f_gguf_number(g, 0, 1);
    if (g->result != HET_OK) return;
    memcpy(g->head.data, "GGUF", 4);
    heti_f_store(HETI_T_CAST(unsigned char *, HETI_T_CAST(void *, g->head.data)) + 4, 3, 4);
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
        int64_t k;
        if (middle <= low || middle >= high) return high;
        for (k = n; k > 0; k >>= 1, square *= square) power *= (k & 1) != 0 ? square : 1.0;
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
    int64_t i;
    for (i = 0; i < m->head_size / 2; i++, frequency *= root) {
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
    int64_t i;
    for (i = 0; i < count && t->element == HET_ELEMENT_F16; i++)
        if ((values[i] >= 65520.0f || values[i] <= -65520.0f) && values[i] - values[i] >= 0.0f)
            return heti_t_fail(g->error, HET_ERR_DATA, "tensor %s: element %d is beyond F16; save as F32 or BF16",
                               t->name, i);
    if (to == NULL) return HET_OK;
    if (!t->paired) return het_safetensors_put(to, t->element, values, count, g->error);
    for (i = 0; i < t->rows; i++)
        HETI_T_TRY(het_safetensors_put(to, t->element, values + heti_f_gguf_row(g->model, i) * t->columns, t->columns,
                                       g->error));
    return HET_OK;
}

static het_result heti_f_gguf_tensor_data(const heti_f_gguf *g, const heti_f_gguf_tensor *t, float *values,
                                          const het_writer *to) {
    static const unsigned char heti_f_zeros[HETI_F_GGUF_ALIGN] = { 0 };
    int i;
    for (i = 0; i < t->parts; i++) {
        HETI_T_TRY(het_parameter_read(g->ctx, t->part[i], HET_WEIGHT, values));
        HETI_T_TRY(heti_f_gguf_part(g, t, values, t->part_rows[i] * t->columns, to));
    }
    if (t->parts == 0) {
        heti_f_gguf_divisors(g->model, values);
        HETI_T_TRY(heti_f_gguf_part(g, t, values, t->rows, to));
    }
    return to == NULL ? HET_OK : heti_f_write(to, heti_f_zeros,
                                              HETI_T_CAST(size_t, heti_f_gguf_rest(heti_f_gguf_bytes(t))), g->error);
}

static het_result heti_f_gguf_data(const heti_f_gguf *g, const het_writer *to) {
    const heti_f_gguf_tensor *tensor =
                              HETI_T_CAST(const heti_f_gguf_tensor *, HETI_T_CAST(const void *, g->tensors.data));
    const size_t count = g->tensors.used / sizeof *tensor;
    int64_t largest = 0;
    float *values;
    het_result result = HET_OK;
    size_t i;
    for (i = 0; i < count; i++)
        largest = tensor[i].rows * tensor[i].columns > largest ? tensor[i].rows * tensor[i].columns : largest;
    HETI_T_TRY(heti_f_floats_of(heti_f_own(g->ctx), largest, &values, g->error));
    if (to != NULL) result = heti_f_write(to, g->head.data, g->head.used, g->error);
    for (i = 0; result == HET_OK && i < count; i++) result = heti_f_gguf_tensor_data(g, &tensor[i], values, to);
    heti_f_floats_free(heti_f_own(g->ctx), values, largest);
    return result;
}

static het_result heti_f_save_gguf(het_ctx *ctx, const het_writer *to, const het_gguf_desc *desc, het_error *error) {
    static const char *const heti_f_architectures[] = { "gpt2", "llama", "qwen2", "qwen3", "gptneox" };
    const het_allocator *allocator = &het_get_desc(ctx)->allocator;
    heti_f_gguf g;
    if (to != NULL && to->write == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_save_gguf: the writer's write is NULL");
    HETI_T_TRY(heti_f_context_check(ctx, "het_save_gguf", HETI_F_WEIGHTS, 1, error));
    memset(&g, 0, sizeof g);
    g.ctx = ctx;
    g.error = error;
    g.model = &het_get_desc(ctx)->model;
    g.architecture = heti_f_architectures[g.model->family - HET_GPT2];
    if (desc != NULL) g.desc = *desc;
    if (g.desc.start_canary != 0 || g.desc.end_canary != 0 || g.desc.ends < 0)
        return heti_t_fail(error, HET_ERR_INVALID,
                           "het_save_gguf: a canary of het_gguf_desc is not 0 or ends is negative: clear "
                           "the struct first");
    if (HETI_T_CAST(int64_t, g.desc.element) == 0) g.desc.element = HET_ELEMENT_F32;
    if (!heti_f_is_float(g.desc.element))
        return heti_t_fail(error, HET_ERR_INVALID, "het_save_gguf: element %d must be F32, F16 or BF16",
                           HETI_T_CAST(int64_t, g.desc.element));
    if (g.desc.tokenizer != NULL) het_tokenizer_get_info(g.desc.tokenizer, &g.info);
    HETI_T_TRY(heti_f_gguf_model(&g));
    HETI_T_TRY(heti_f_gguf_tokenizer(&g));
    heti_f_gguf_number(&g, 0, 8);
    heti_f_gguf_number(&g, 0, 8);
    heti_f_gguf_number(&g, 0, 8);
    heti_f_gguf_settings(&g);
    heti_f_gguf_vocabulary(&g);
    heti_f_gguf_tensors(&g);
    heti_f_gguf_descriptions(&g);
    if (g.result == HET_OK) g.result = heti_f_gguf_data(&g, to);
    heti_t_list_free(&g.head, allocator);
    heti_t_list_free(&g.tensors, allocator);
    return g.result;
}

HETRAIN_API het_result het_save_gguf(het_ctx *ctx, const het_writer *to, const het_gguf_desc *desc) {
    het_error error = { HET_OK, "" };
    if (ctx == NULL) return HET_ERR_INVALID;
    if ((het_get_condition(ctx) & HET_FAILED) != 0) return HET_ERR_STATE;
    return heti_f_report(ctx, heti_f_save_gguf(ctx, to, desc, &error), &error);
}

/* =================================================================================================
   >>choices  Multiple-choice questions. The words of the file are walked twice: once to prove and
              count them, once to copy them.
   ============================================================================================== */

typedef struct heti_f_quiz {
    const het_reader *from;
    const unsigned char *data;        /* the whole file */
    uint64_t words, at;               /* uint16 of the file; the next one, both counted from its first byte */
    int64_t vocab, question, questions;
    int64_t tokens, answers;          /* of all questions */
    het_choices *to;                  /* NULL: the first walk */
    het_question *list;
    int32_t *token;
    int64_t *start;
    het_error *error;
} heti_f_quiz;

static const char *heti_f_quiz_in(const het_reader *from) { return from->name != NULL ? from->name : "(memory)"; }

static uint32_t heti_f_quiz_u16(const unsigned char *at) {
    return HETI_T_CAST(uint32_t, at[0]) | HETI_T_CAST(uint32_t, at[1]) << 8;
}

static uint32_t heti_f_quiz_u32(const unsigned char *at) { return heti_f_quiz_u16(at) | heti_f_quiz_u16(at + 2) << 16; }

/* The next word; `rule` is what the file breaks where it ends too early. */
static het_result heti_f_quiz_word(heti_f_quiz *q, const char *what, int64_t *value) {
    if (q->at >= q->words)
        return heti_t_fail(q->error, HET_ERR_FORMAT, "%s: byte %d, question %d: the file ends before %s",
                           heti_f_quiz_in(q->from), HETI_T_CAST(int64_t, 2 * q->at), q->question, what);
    *value = HETI_T_CAST(int64_t, heti_f_quiz_u16(q->data + 2 * q->at));
    q->at++;
    return HET_OK;
}

/* The next word must be this. */
static het_result heti_f_quiz_is(heti_f_quiz *q, const char *what, int64_t wanted) {
    int64_t value = 0;
    HETI_T_TRY(heti_f_quiz_word(q, what, &value));
    if (value == wanted) return HET_OK;
    return heti_t_fail(q->error, HET_ERR_FORMAT, "%s: byte %d, question %d: %s is %d, not %d", heti_f_quiz_in(q->from),
                       HETI_T_CAST(int64_t, 2 * q->at - 2), q->question, what, value, wanted);
}

/* A length and so many tokens. */
static het_result heti_f_quiz_tokens(heti_f_quiz *q, const char *what, int64_t *length) {
    int64_t i, token = 0;
    HETI_T_TRY(heti_f_quiz_word(q, what, length));
    if (*length < 1)
        return heti_t_fail(q->error, HET_ERR_FORMAT, "%s: byte %d, question %d: %s has no tokens",
                           heti_f_quiz_in(q->from), HETI_T_CAST(int64_t, 2 * q->at - 2), q->question, what);
    for (i = 0; i < *length; i++) {
        HETI_T_TRY(heti_f_quiz_word(q, what, &token));
        if (q->vocab > 0 && token >= q->vocab)
            return heti_t_fail(q->error, HET_ERR_DATA, "%s: byte %d, question %d: token %d of %s; the "
                                                       "vocabulary has %d", heti_f_quiz_in(q->from),
                                                       HETI_T_CAST(int64_t, 2 * q->at - 2), q->question, token, what,
                                                       q->vocab);
        if (q->to == NULL) continue;
        q->token[q->tokens + i] = HETI_T_CAST(int32_t, token);
        if (q->token[q->tokens + i] > q->to->largest_token) q->to->largest_token = q->token[q->tokens + i];
    }
    q->tokens += *length;
    return HET_OK;
}

static het_result heti_f_quiz_question(heti_f_quiz *q) {
    const uint64_t begin = q->at;
    const int64_t first = q->tokens;
    int64_t bytes = 0, right = 0, answers = 0, length = 0, context, i;
    HETI_T_TRY(heti_f_quiz_is(q, "the mark", 65535));
    HETI_T_TRY(heti_f_quiz_word(q, "its bytes", &bytes));
    HETI_T_TRY(heti_f_quiz_is(q, "its number", q->question));
    HETI_T_TRY(heti_f_quiz_word(q, "the right answer", &right));
    HETI_T_TRY(heti_f_quiz_word(q, "the number of answers", &answers));
    if (answers < 1 || right >= answers)
        return heti_t_fail(q->error, HET_ERR_FORMAT, "%s: byte %d, question %d: answer %d is right, of %d",
                           heti_f_quiz_in(q->from), HETI_T_CAST(int64_t, 2 * q->at - 4), q->question, right, answers);
    HETI_T_TRY(heti_f_quiz_tokens(q, "the context", &context));
    if (q->to != NULL) {
        q->list[q->question].answers = answers;
        q->list[q->question].right = right;
        q->list[q->question].token = q->token + first;
        q->list[q->question].start = q->start + q->answers;
        q->start[q->answers] = context;
        if (answers > q->to->most_answers) q->to->most_answers = answers;
    }
    for (i = 0; i < answers; i++) {
        HETI_T_TRY(heti_f_quiz_tokens(q, "an answer", &length));
        if (q->to == NULL) continue;
        q->start[q->answers + i + 1] = q->tokens - first;
        if (context + length > q->to->longest) q->to->longest = context + length;
    }
    q->answers += answers + 1;
    if (HETI_T_CAST(uint64_t, bytes) == 2 * (q->at - begin)) return HET_OK;
    return heti_t_fail(q->error, HET_ERR_FORMAT, "%s: byte %d, question %d: it has %d bytes and says %d",
                       heti_f_quiz_in(q->from), HETI_T_CAST(int64_t, 2 * begin), q->question,
                           HETI_T_CAST(int64_t, 2 * (q->at - begin)), bytes);
}

static het_result heti_f_quiz_walk(heti_f_quiz *q) {
    uint64_t longest = 0;
    q->at = 512;
    q->tokens = q->answers = 0;
    for (q->question = 0; q->question < q->questions; q->question++) {
        const uint64_t begin = q->at;
        HETI_T_TRY(heti_f_quiz_question(q));
        if (q->at - begin > longest) longest = q->at - begin;
    }
    if (q->at != q->words)
        return heti_t_fail(q->error, HET_ERR_FORMAT, "%s: byte %d: %d bytes behind the last of %d questions",
                           heti_f_quiz_in(q->from), HETI_T_CAST(int64_t, 2 * q->at),
                           HETI_T_CAST(int64_t, 2 * (q->words - q->at)), q->questions);
    if (2 * longest == heti_f_quiz_u32(q->data + 12)) return HET_OK;
    return heti_t_fail(q->error, HET_ERR_FORMAT, "%s: byte 12: the longest question has %d bytes, the header says %d",
                       heti_f_quiz_in(q->from), HETI_T_CAST(int64_t, 2 * longest),
                           HETI_T_CAST(int64_t, heti_f_quiz_u32(q->data + 12)));
}

/* The second walk, into a block that the first one measured. */
static het_result heti_f_quiz_take(heti_f_quiz *q, const het_allocator *allocator, het_choices **choices) {
    const int64_t tokens = q->tokens, answers = q->answers;
    heti_t_arena arena;
    size_t size = 0;
    int pass;
    memset(&arena, 0, sizeof arena);
    for (pass = 0; pass < 2; pass++) {
        q->to = HETI_T_TAKE(&arena, het_choices, 1);
        q->list = HETI_T_TAKE(&arena, het_question, q->questions);
        q->start = HETI_T_TAKE(&arena, int64_t, answers);
        q->token = HETI_T_TAKE(&arena, int32_t, tokens);
        if (pass == 1) break;
        size = arena.used;
        arena.used = 0;
        arena.base = HETI_T_CAST(char *, size != SIZE_MAX ? allocator->alloc(allocator->user, size, 16) : NULL);
        if (arena.base == NULL)
            return heti_t_fail(q->error, HET_ERR_OOM, "%s: no memory for %d tokens", heti_f_quiz_in(q->from), tokens);
    }
    memset(q->to, 0, sizeof *q->to);
    q->to->questions = q->questions;
    q->to->question = q->list;
    q->to->allocator = *allocator;
    q->to->block = size;
    (void)heti_f_quiz_walk(q); /* as before */
    *choices = q->to;
    return HET_OK;
}

static het_result heti_f_quiz_header(heti_f_quiz *q, const unsigned char *header) {
    const uint32_t magic = heti_f_quiz_u32(header), version = heti_f_quiz_u32(header + 4);
    if (magic != 20240522)
        return heti_t_fail(q->error, HET_ERR_FORMAT, "%s: byte 0: the number is %d; an evaluation file "
                                                     "begins with 20240522", heti_f_quiz_in(q->from),
                                                     HETI_T_CAST(int64_t, magic));
    if (version != 1)
        return heti_t_fail(q->error, HET_ERR_UNSUPPORTED, "%s: byte 4: version %d, known is 1", heti_f_quiz_in(q->from),
                           HETI_T_CAST(int64_t, version));
    q->questions = HETI_T_CAST(int64_t, heti_f_quiz_u32(header + 8));
    if (q->questions >= 1 && q->questions <= 65536) return HET_OK; /* a question's number is a uint16 */
    return heti_t_fail(q->error, HET_ERR_FORMAT, "%s: byte 8: %d questions; there must be 1 to 65536",
                       heti_f_quiz_in(q->from), q->questions);
}

HETRAIN_API het_result het_choices_read(const het_reader *from, int64_t vocab, const het_allocator *allocator,
                                        het_choices **choices, het_error *error) {
    het_allocator a;
    heti_f_quiz q;
    het_result result;
    unsigned char *data;
    size_t size;
    if (from == NULL || from->read == NULL || choices == NULL || vocab < 0)
        return heti_t_fail(error, HET_ERR_INVALID, "het_choices_read: a pointer is NULL, or vocab %d is below 0",
                           vocab);
    HETI_T_TRY(heti_t_choose(allocator, &a, error, "het_choices_read"));
    memset(&q, 0, sizeof q);
    q.from = from;
    q.vocab = vocab;
    q.error = error;
    if (from->size < 1024 || from->size % 2 != 0 || from->size > SIZE_MAX / 2)
        return heti_t_fail(error, HET_ERR_FORMAT, "%s: %d bytes are no evaluation file: 1,024 bytes and 16-bit numbers",
                           heti_f_quiz_in(from), HETI_T_CAST(int64_t, from->size));
    size = HETI_T_CAST(size_t, from->size);
    data = HETI_T_CAST(unsigned char *, a.alloc(a.user, size, 16));
    if (data == NULL)
        return heti_t_fail(error, HET_ERR_OOM, "%s: the allocator gave no %d bytes", heti_f_quiz_in(from),
                           HETI_T_CAST(int64_t, size));
    q.data = data;
    q.words = from->size / 2;
    result = from->read(from->user, 0, data, size) == HETI_T_CAST(int64_t, size)
                 ? heti_f_quiz_header(&q, data)
                 : heti_t_fail(error, HET_ERR_IO, "%s: %d bytes could not be read", heti_f_quiz_in(from),
                               HETI_T_CAST(int64_t, size));
    if (result == HET_OK) result = heti_f_quiz_walk(&q);
    if (result == HET_OK) result = heti_f_quiz_take(&q, &a, choices);
    a.free(a.user, data, size);
    return result;
}

HETRAIN_API void het_choices_free(het_choices *choices) {
    if (choices != NULL) choices->allocator.free(choices->allocator.user, choices, choices->block);
}

/* =================================================================================================
   >>adapter  Low-rank adapters in PEFT's layout (github.com/huggingface/peft).

   The context's parameters say what there is: every factor is marked, an A is followed by its B,
   and the name before ".lora_A.weight" is the module's, but for q, k and v of GPT-2 and NeoX, whose
   module is the name without the letter.
   ============================================================================================== */

/* Modules of a layer: Hugging Face's names within it, and which targets they are. */
typedef struct heti_f_target { const char *name; int64_t targets; } heti_f_target;
static const heti_f_target heti_f_targets[3][8] = {
    { { "attn.c_attn", HET_LORA_Q + HET_LORA_K + HET_LORA_V }, { "attn.c_proj", HET_LORA_O },
     { "mlp.c_gate", HET_LORA_GATE },
      { "mlp.c_fc", HET_LORA_UP }, { "mlp.c_proj", HET_LORA_DOWN }, { NULL, 0 }, { NULL, 0 }, { NULL, 0 } },
    { { "self_attn.q_proj", HET_LORA_Q }, { "self_attn.k_proj", HET_LORA_K }, { "self_attn.v_proj", HET_LORA_V },
     { "self_attn.o_proj", HET_LORA_O },
      { "mlp.gate_proj", HET_LORA_GATE }, { "mlp.up_proj", HET_LORA_UP }, { "mlp.down_proj", HET_LORA_DOWN },
      { NULL, 0 } },
    { { "attention.query_key_value", HET_LORA_Q + HET_LORA_K + HET_LORA_V }, { "attention.dense", HET_LORA_O },
      { "mlp.dense_h_to_4h_gate", HET_LORA_GATE }, { "mlp.dense_h_to_4h", HET_LORA_UP },
      { "mlp.dense_4h_to_h", HET_LORA_DOWN }, { NULL, 0 },
      { NULL, 0 }, { NULL, 0 } }
};

static const char *const heti_f_layers[3] = { "transformer.h.", "model.layers.", "gpt_neox.layers." };

static int heti_f_peft_family(const het_model_desc *model) {
    return model->family == HET_NEOX ? 2 : model->family == HET_GPT2 ? 0 : 1;
}

static const heti_f_target *heti_f_family_targets(const het_model_desc *model) {
    return heti_f_targets[heti_f_peft_family(model)];
}

/* ---- adapter_config.json ---- */

/* of q, k and v in one; of all others */
typedef struct heti_f_patterns { int64_t other; double joint, least, most; } heti_f_patterns;
typedef struct heti_f_peft {
    const het_model_desc *model;
    het_json json;
    int64_t rank, targets;
    int64_t named[8];                 /* of the family's targets: in how many layers they were named one by one */
    double alpha;
    heti_f_patterns ranks, alphas;
    char *base;
    size_t capacity;
    het_error *error;
} heti_f_peft;

static const char heti_f_peft_name[] = "adapter_config.json";

static het_result heti_f_peft_syntax(const heti_f_peft *p) {
    if (p->json.rule == NULL) return HET_OK;
    return heti_t_fail(p->error, HET_ERR_FORMAT, "%s: byte %d: %s", heti_f_peft_name,
                       HETI_T_CAST(int64_t, p->json.rule_at), p->json.rule);
}

/* Whether a module of this name is meant by `target`: the name or its last parts. */
static int heti_f_meant(const char *name, const char *target, size_t length) {
    const size_t whole = strlen(name);
    if (length > whole || memcmp(name + whole - length, target, length) != 0) return 0;
    return length == whole || name[whole - length - 1] == '.';
}

/* What is behind "model.layers.7." and so on; NULL: it does not begin like that. */
static const char *heti_f_in_layer(const het_model_desc *model, const char *target) {
    const char *prefix = heti_f_layers[heti_f_peft_family(model)];
    const size_t length = strlen(prefix);
    const char *at = target + length;
    if (strncmp(target, prefix, length) != 0 || *at < '0' || *at > '9') return NULL;
    while (*at >= '0' && *at <= '9') at++;
    return *at == '.' ? at + 1 : NULL;
}

/* The targets meant by one of target_modules or by a key of a pattern; 0: none. A full name means
   one layer alone: that is counted. */
static int64_t heti_f_peft_targets(const het_model_desc *model, const char *target, size_t length, int64_t named[8]) {
    const heti_f_target *all = heti_f_family_targets(model);
    const char *inside = heti_f_in_layer(model, target);
    int64_t targets = 0;
    int i;
    for (i = 0; all[i].name != NULL; i++) {
        if (inside != NULL ? strcmp(all[i].name, inside) != 0 : !heti_f_meant(all[i].name, target, length)) continue;
        targets |= all[i].targets;
        named[i] += inside != NULL;
    }
    return targets;
}

static het_result heti_f_peft_module(heti_f_peft *p, const char *name, size_t length, const char *where,
                                     int64_t *targets, int64_t named[8]) {
    *targets = length < 96 && strlen(name) == length ? heti_f_peft_targets(p->model, name, length, named) : 0;
    if (*targets != 0) return HET_OK;
    return heti_t_fail(p->error, HET_ERR_UNSUPPORTED, "%s: %s: %q is no matrix of this family's layers",
                       heti_f_peft_name, where, name, length < 96 ? length : HETI_T_CAST(size_t, 95));
}

/* A list of modules, or "all-linear". */
static het_result heti_f_peft_modules(heti_f_peft *p) {
    char name[96];
    size_t length = 0;
    int64_t targets = 0;
    if (het_json_peek(&p->json) == HET_JSON_STRING) {
        if (het_json_string(&p->json, name, sizeof name, &length) && length == 10 &&
            memcmp(name, "all-linear", 10) == 0)
            p->targets = HET_LORA_ALL;
        else if (p->json.rule == NULL)
            return heti_t_fail(p->error, HET_ERR_UNSUPPORTED,
                               "%s: target_modules is a pattern; a list of names is needed", heti_f_peft_name);
        return heti_f_peft_syntax(p);
    }
    het_json_enter(&p->json, HET_JSON_ARRAY);
    while (het_json_next(&p->json, NULL, 0, NULL)) {
        if (!het_json_string(&p->json, name, sizeof name, &length)) break;
        HETI_T_TRY(heti_f_peft_module(p, name, length, "target_modules", &targets, p->named));
        p->targets |= targets;
    }
    return heti_f_peft_syntax(p);
}

/* rank_pattern and alpha_pattern: numbers for some of the modules. */
static het_result heti_f_peft_pattern(heti_f_peft *p, const char *where, heti_f_patterns *found) {
    const int64_t joint = HET_LORA_Q + HET_LORA_K + HET_LORA_V;
    char name[96];
    size_t length = 0;
    int64_t targets = 0, named[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
    double value = 0;
    if (het_json_peek(&p->json) == HET_JSON_NULL) {
        het_json_null(&p->json);
        return heti_f_peft_syntax(p);
    }
    het_json_enter(&p->json, HET_JSON_OBJECT);
    while (het_json_next(&p->json, name, sizeof name, &length)) {
        HETI_T_TRY(heti_f_peft_module(p, name, length, where, &targets, named));
        if (!het_json_real(&p->json, &value)) break;
        if (targets == joint) { found->joint = value; continue; }
        if (found->other == 0 || value < found->least) found->least = value;
        if (found->other == 0 || value > found->most) found->most = value;
        found->other = 1;
    }
    return heti_f_peft_syntax(p);
}

/* A setting that would change what is computed may be there only as null, false, "none", [] or
   {}. */
static het_result heti_f_peft_unset(heti_f_peft *p, const char *key) {
    char text[8];
    size_t length = 0;
    int truth = 0, set = 0;
    switch (het_json_peek(&p->json)) {
    case HET_JSON_BOOL:
        het_json_boolean(&p->json, &truth);
        set = truth;
        break;
    case HET_JSON_STRING:
        het_json_string(&p->json, text, sizeof text, &length);
        set = length != 4 || memcmp(text, "none", 4) != 0;
        break;
    case HET_JSON_ARRAY:
    case HET_JSON_OBJECT:
        het_json_enter(&p->json, het_json_peek(&p->json));
        while (het_json_next(&p->json, NULL, 0, NULL)) set |= het_json_skip(&p->json);
        break;
    case HET_JSON_NULL: het_json_null(&p->json); break;
    default: set = het_json_skip(&p->json); break;
    }
    HETI_T_TRY(heti_f_peft_syntax(p));
    return set ? heti_t_fail(p->error, HET_ERR_UNSUPPORTED, "%s: %s is set; plain low-rank factors are read",
                             heti_f_peft_name, key) : HET_OK;
}

static int heti_f_key_is(const char *key, size_t length, const char *name) {
    return strlen(name) == length && memcmp(key, name, length) == 0;
}

static het_result heti_f_peft_value(heti_f_peft *p, const char *key, size_t length) {
    static const char *const heti_f_unset[] = { "bias", "use_rslora", "use_dora", "modules_to_save",
                                               "layers_to_transform", "exclude_modules",
        "layer_replication", "lora_bias", "use_qalora", "use_bdlora", "trainable_token_indices", "target_parameters",
        "alora_invocation_tokens" };
    char text[16];
    size_t i, size = 0;
    if (heti_f_key_is(key, length, "peft_type")) {
        if (het_json_string(&p->json, text, sizeof text, &size) && (size != 4 || memcmp(text, "LORA", 4) != 0))
            return heti_t_fail(p->error, HET_ERR_UNSUPPORTED, "%s: peft_type is %q, known is \"LORA\"",
                               heti_f_peft_name, text, size < sizeof text ? size : sizeof text - 1);
    } else if (heti_f_key_is(key, length, "r")) {
        het_json_integer(&p->json, &p->rank);
    } else if (heti_f_key_is(key, length, "lora_alpha")) {
        het_json_real(&p->json, &p->alpha);
    } else if (heti_f_key_is(key, length, "target_modules")) {
        return heti_f_peft_modules(p);
    } else if (heti_f_key_is(key, length, "rank_pattern")) {
        return heti_f_peft_pattern(p, "rank_pattern", &p->ranks);
    } else if (heti_f_key_is(key, length, "alpha_pattern")) {
        return heti_f_peft_pattern(p, "alpha_pattern", &p->alphas);
    } else if (heti_f_key_is(key, length, "base_model_name_or_path") && p->base != NULL &&
               het_json_peek(&p->json) == HET_JSON_STRING) {
        het_json_string(&p->json, p->base, p->capacity, &size);
    } else {
        for (i = 0; i < sizeof heti_f_unset / sizeof heti_f_unset[0]; i++)
            if (heti_f_key_is(key, length, heti_f_unset[i])) return heti_f_peft_unset(p, heti_f_unset[i]);
        het_json_skip(&p->json);
    }
    return heti_f_peft_syntax(p);
}

static int heti_f_real_is(double a, double b) { return a >= b && a <= b; }
/* a float's digits */
static int heti_f_real_near(double a, double b) { return a >= b * (1 - 1e-6) && a <= b * (1 + 1e-6); }

/* One rank and one scale for all; q, k and v in one module may have three times the rank, with
   three times alpha. */
static het_result heti_f_peft_check(const heti_f_peft *p) {
    const double rank = HETI_T_CAST(double, p->rank), joint = p->ranks.joint > 0 ? p->ranks.joint : rank;
    const double joint_alpha = p->alphas.joint > 0 ? p->alphas.joint : p->alpha;
    int i;
    if (p->rank < 1 || !(p->alpha > 0))
        return heti_t_fail(p->error, HET_ERR_FORMAT, "%s: r is %d; r and lora_alpha must be there and above 0",
                           heti_f_peft_name, p->rank);
    if (p->targets == 0)
        return heti_t_fail(p->error, HET_ERR_FORMAT, "%s: target_modules is missing or empty", heti_f_peft_name);
    for (i = 0; i < 8; i++)
        if (p->named[i] != 0 && p->named[i] != p->model->layers)
            return heti_t_fail(p->error, HET_ERR_UNSUPPORTED, "%s: target_modules names %s in %d layers of %d",
                               heti_f_peft_name, heti_f_family_targets(p->model)[i].name, p->named[i],
                               p->model->layers);
    if ((p->ranks.other && !(heti_f_real_is(p->ranks.least, rank) && heti_f_real_is(p->ranks.most, rank))) ||
        (!heti_f_real_is(joint, rank) && !heti_f_real_is(joint, 3 * rank)))
        return heti_t_fail(p->error, HET_ERR_UNSUPPORTED, "%s: rank_pattern: not all modules have rank %d",
                           heti_f_peft_name, p->rank);
    if ((p->alphas.other && !(heti_f_real_is(p->alphas.least, p->alpha) && heti_f_real_is(p->alphas.most, p->alpha))) ||
        !heti_f_real_near(joint_alpha * rank, p->alpha * joint))
        return heti_t_fail(p->error, HET_ERR_UNSUPPORTED, "%s: alpha_pattern: not all modules have the same alpha / r",
                           heti_f_peft_name);
    return HET_OK;
}

HETRAIN_API het_result het_adapter_from_json(const char *text, size_t length, het_model_desc *model, char *base,
                                             size_t capacity, het_error *error) {
    heti_f_peft p;
    het_model_desc changed;
    char key[64];
    size_t key_length = 0;
    if (text == NULL || model == NULL || (base == NULL && capacity > 0))
        return heti_t_fail(error, HET_ERR_INVALID, "het_adapter_from_json: a pointer is NULL");
    memset(&p, 0, sizeof p);
    p.model = model;
    p.base = capacity > 0 ? base : NULL;
    p.capacity = capacity;
    p.error = error;
    if (p.base != NULL) p.base[0] = 0;
    p.json = het_json_start(text, length);
    het_json_enter(&p.json, HET_JSON_OBJECT);
    while (het_json_next(&p.json, key, sizeof key, &key_length)) {
        if (key_length < sizeof key) HETI_T_TRY(heti_f_peft_value(&p, key, key_length));
        else het_json_skip(&p.json);
    }
    het_json_end(&p.json);
    HETI_T_TRY(heti_f_peft_syntax(&p));
    HETI_T_TRY(heti_f_peft_check(&p));
    changed = *model;
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
    uint64_t rest = HETI_T_CAST(uint64_t, (value - HETI_T_CAST(double, whole)) * 1e15 + 0.5),
             place = UINT64_C(100000000000000);
    heti_t_unsigned(text, whole + rest / UINT64_C(1000000000000000));
    rest %= UINT64_C(1000000000000000);
    if (rest > 0) heti_t_char(text, '.');
    for (; rest > 0; place /= 10) {
        heti_t_char(text, "0123456789"[rest / place]);
        rest %= place;
    }
}

HETRAIN_API het_result het_adapter_to_json(const het_model_desc *model, const char *base, char *text, size_t capacity,
                                           size_t *length) {
    const int64_t joint = HET_LORA_Q + HET_LORA_K + HET_LORA_V;
    const heti_f_target *t;
    heti_t_text to;
    const char *three = NULL;
    int first = 1;
    if (model == NULL || length == NULL || (text == NULL && capacity > 0) || model->lora_rank < 1)
        return HET_ERR_INVALID;
    to = heti_t_text_in(text, capacity);
    heti_t_put(&to, "{\n  \"peft_type\": \"LORA\",\n  \"task_type\": \"CAUSAL_LM\",\n  \"base_model_name_or_path\": ");
    if (base != NULL) heti_t_json(&to, base, strlen(base));
    else heti_t_put(&to, "null");
    heti_t_put(&to, ",\n  \"r\": ");
    heti_t_unsigned(&to, HETI_T_CAST(uint64_t, model->lora_rank));
    heti_t_put(&to, ",\n  \"lora_alpha\": ");
    heti_f_text_real(&to, HETI_T_CAST(double, model->lora_alpha));
    heti_t_put(&to, ",\n  \"target_modules\": [");
    for (t = heti_f_family_targets(model); t->name != NULL; t++) {
        if ((model->lora_targets & t->targets) == 0) continue;
        heti_t_put(&to, first ? "\"" : ", \"");
        heti_t_put(&to, t->name);
        heti_t_put(&to, "\"");
        if (t->targets == joint) three = t->name;
        first = 0;
    }
    heti_t_put(&to, "],\n  \"rank_pattern\": {");
    if (three != NULL) {
        heti_t_json(&to, three, strlen(three));
        heti_t_put(&to, ": ");
        heti_t_unsigned(&to, 3 * HETI_T_CAST(uint64_t, model->lora_rank));
    }
    heti_t_put(&to, "},\n  \"alpha_pattern\": {");
    if (three != NULL) {
        heti_t_json(&to, three, strlen(three));
        heti_t_put(&to, ": ");
        heti_f_text_real(&to, 3 * HETI_T_CAST(double, model->lora_alpha));
    }
    heti_t_put(&to,
                    "},\n  \"lora_dropout\": "
                    "0.0,\n  \"bias\": \"none\",\n  \"use_rslora\": false,\n  \"use_dora\": false,\n");
    heti_t_put(&to, "  \"modules_to_save\": "
                         "null,\n  \"layers_to_transform\": "
                         "null,\n  \"inference_mode\": true,\n  \"fan_in_fan_out\": ");
    heti_t_put(&to, model->family == HET_GPT2 ? "true\n}\n" : "false\n}\n");
    *length = to.length;
    if (to.length >= capacity) return HET_ERR_LIMIT;
    return HET_OK;
}

/* ---- adapter_model.safetensors ---- */

/* A module of the file, and the factors of the context that it holds: one pair, or those of q, k
   and v. */
typedef struct heti_f_module {
    char name[2][192];                /* of the tensors A and B */
    int64_t parts, factor[3];         /* A's parameters; B's follow them */
    int64_t rank, in, out[3], all;    /* all: the sum of out */
    int64_t head;                     /* NeoX: rows of q, k and v of a head follow each other; 0:
                                         all rows of q, then of k, then of v */
} heti_f_module;

typedef struct heti_f_adapter {
    het_ctx *ctx;
    const het_model_desc *model;
    het_allocator allocator;
    float *a, *b, *own;               /* a file's tensors and a factor */
    size_t bytes;                     /* of the three, one block */
    het_error *error;
} heti_f_adapter;

static het_result heti_f_adapter_failed(const heti_f_adapter *x, het_result result) {
    return heti_t_fail(x->error, result, "%s", het_last_error(x->ctx));
}

static void heti_f_module_name(heti_f_module *m, const char *stem, size_t length) {
    int i;
    for (i = 0; i < 2; i++) {
        heti_t_text text;
        size_t c;
        text = heti_t_text_in(m->name[i], sizeof m->name[i]);
        heti_t_put(&text, "base_model.model.");
        for (c = 0; c < length; c++) heti_t_char(&text, stem[c]);
        heti_t_put(&text, i == 0 ? ".lora_A.weight" : ".lora_B.weight");
    }
}

/* The next module at parameter *cursor or behind; 0: there is none. */
static int heti_f_module_next(const heti_f_adapter *x, int64_t *cursor, heti_f_module *m) {
    static const char heti_f_end[] = ".lora_A.weight";
    het_parameter_info info;
    for (; het_parameter_get_info(x->ctx, *cursor, &info) == HET_OK; ++*cursor) {
        const size_t length = strlen(info.name), tail = sizeof heti_f_end - 1, stem = length > tail ? length - tail : 0;
        int64_t i;
        int joint;
        if (!info.adapter || stem == 0 || strcmp(info.name + stem, heti_f_end) != 0) continue;
        joint = (x->model->family == HET_GPT2 && stem > 9 && memcmp(info.name + stem - 9, ".c_attn.q", 9) == 0) ||
                (x->model->family == HET_NEOX && stem > 18 && memcmp(info.name + stem - 18, ".query_key_value.q",
                                                                     18) == 0);
        memset(m, 0, sizeof *m);
        m->parts = joint ? 3 : 1;
        m->rank = info.rows;
        m->in = info.columns;
        m->head = joint && x->model->family == HET_NEOX ? x->model->head_size : 0;
        heti_f_module_name(m, info.name, joint ? stem - 2 : stem);
        for (i = 0; i < m->parts; i++) {
            het_parameter_info b;
            m->factor[i] = *cursor + 2 * i;
            if (het_parameter_get_info(x->ctx, m->factor[i] + 1, &b) != HET_OK) return 0;
            m->out[i] = b.rows;
            m->all += b.rows;
        }
        *cursor += 2 * m->parts;
        return 1;
    }
    return 0;
}

/* Row of the file's B where row number `row` of a part stands. */
static int64_t heti_f_module_row(const heti_f_module *m, int64_t part, int64_t row) {
    int64_t before = 0, i;
    if (m->head > 0) return (row / m->head * 3 + part) * m->head + row % m->head;
    for (i = 0; i < part; i++) before += m->out[i];
    return before + row;
}

/* Room for the largest tensors. */
static het_result heti_f_adapter_start(heti_f_adapter *x, het_ctx *ctx, const het_allocator *allocator,
                                       const char *name, het_error *error) {
    heti_f_module m;
    heti_t_arena arena;
    int64_t cursor = 0, a = 0, b = 0;
    int pass;
    memset(x, 0, sizeof *x);
    if (ctx == NULL) return heti_t_fail(error, HET_ERR_INVALID, "%s: the context is NULL", name);
    x->ctx = ctx;
    x->model = &het_get_desc(ctx)->model;
    x->allocator = allocator != NULL ? *allocator : *heti_f_own(ctx);
    x->error = error;
    while (heti_f_module_next(x, &cursor, &m)) {
        if (m.parts * m.rank * m.in > a) a = m.parts * m.rank * m.in;
        if (m.all * m.parts * m.rank > b) b = m.all * m.parts * m.rank;
    }
    if (a == 0)
        return heti_t_fail(error, HET_ERR_STATE, "%s: the context's model has no factors (lora_rank is %d)", name,
                           x->model->lora_rank);
    memset(&arena, 0, sizeof arena);
    for (pass = 0; pass < 2; pass++) {
        x->a = HETI_T_TAKE(&arena, float, a);
        x->b = HETI_T_TAKE(&arena, float, b);
        x->own = HETI_T_TAKE(&arena, float, a > b ? a : b);
        if (pass == 1) break;
        x->bytes = arena.used;
        arena.used = 0;
        arena.base = HETI_T_CAST(char *, x->bytes != SIZE_MAX ? x->allocator.alloc(x->allocator.user, x->bytes,
            64) : NULL);
        if (arena.base == NULL) return heti_t_fail(error, HET_ERR_OOM, "%s: no memory for %d numbers", name, a + b);
    }
    return HET_OK;
}

static void heti_f_adapter_end(heti_f_adapter *x) {
    if (x->a != NULL) x->allocator.free(x->allocator.user, x->a, x->bytes);
}

/* The file's tensors of a module, and their rank R: that of the factors, or with three pairs three
   times that. */
static het_result heti_f_module_find(const heti_f_adapter *x, const het_safetensors *file, const heti_f_module *m,
                                     const het_safetensor *t[2], int64_t *rank) {
    int i;
    for (i = 0; i < 2; i++) {
        t[i] = het_safetensors_find(file, m->name[i], strlen(m->name[i]));
        if (t[i] == NULL) return heti_t_fail(x->error, HET_ERR_FORMAT, "adapter: tensor %s is missing", m->name[i]);
        if (t[i]->element != HET_ELEMENT_F32 && t[i]->element != HET_ELEMENT_F16 && t[i]->element != HET_ELEMENT_BF16)
            return heti_t_fail(x->error, HET_ERR_UNSUPPORTED,
                               "adapter: byte %d: tensor %s is of type %s; F32, F16 and BF16 are read",
                               HETI_T_CAST(int64_t, t[i]->at), m->name[i], het_element_name(t[i]->element));
    }
    *rank = t[0]->rank == 2 ? t[0]->shape[0] : 0;
    if (*rank != m->rank && (m->parts == 1 || *rank != m->parts * m->rank))
        return heti_t_fail(x->error, HET_ERR_FORMAT, "adapter: byte %d: tensor %s has rank %d; here it is %d",
                           HETI_T_CAST(int64_t, t[0]->at), m->name[0], *rank, m->rank);
    for (i = 0; i < 2; i++) {
        const int64_t rows = i == 0 ? *rank : m->all, columns = i == 0 ? m->in : *rank;
        if (t[i]->rank != 2 || t[i]->shape[0] != rows || t[i]->shape[1] != columns)
            return heti_t_fail(x->error, HET_ERR_FORMAT, "adapter: byte %d: tensor %s is %d x %d; it must be %d x %d",
                               HETI_T_CAST(int64_t, t[i]->at), m->name[i], t[i]->rank > 0 ? t[i]->shape[0] : 0,
                               t[i]->rank > 1 ? t[i]->shape[1] : 0,
                               rows, columns);
    }
    return HET_OK;
}

/* Off the diagonal the blocks of B must be 0. */
static het_result heti_f_module_apart(const heti_f_adapter *x, const heti_f_module *m, int64_t rank) {
    int64_t part, row, k;
    if (rank == m->rank) return HET_OK;
    for (part = 0; part < m->parts; part++)
        for (row = 0; row < m->out[part]; row++)
            for (k = 0; k < rank; k++) {
                const float value = x->b[heti_f_module_row(m, part, row) * rank + k];
                if (k / m->rank != part && !heti_f_real_is(HETI_T_CAST(double, value), 0))
                    return heti_t_fail(x->error, HET_ERR_UNSUPPORTED,
                                       "adapter: tensor %s: q, k and v share factors (row %d, column %d is not 0)",
                                       m->name[1], heti_f_module_row(m, part, row), k);
            }
    return HET_OK;
}

/* One module: with `write` 0 only looked at. */
static het_result heti_f_module_load(const heti_f_adapter *x, const het_safetensors *file, const het_reader *from,
                                     const heti_f_module *m, int write) {
    const het_safetensor *t[2];
    int64_t rank = 0, part, row, k;
    HETI_T_TRY(heti_f_module_find(x, file, m, t, &rank));
    HETI_T_TRY(heti_f_get_all(x->ctx, file, from, t[0], rank * m->in, x->a, x->error));
    HETI_T_TRY(heti_f_get_all(x->ctx, file, from, t[1], m->all * rank, x->b, x->error));
    HETI_T_TRY(heti_f_module_apart(x, m, rank));
    for (part = 0; part < m->parts && write; part++) {
        const int64_t shift = rank > m->rank ? part * m->rank : 0;
        het_result result = het_parameter_write(x->ctx, m->factor[part], HET_WEIGHT, x->a + shift * m->in);
        for (row = 0; row < m->out[part]; row++)
            for (k = 0; k < m->rank; k++)
                x->own[row * m->rank + k] = x->b[heti_f_module_row(m, part, row) * rank + shift + k];
        if (result == HET_OK) result = het_parameter_write(x->ctx, m->factor[part] + 1, HET_WEIGHT, x->own);
        if (result != HET_OK) return heti_f_adapter_failed(x, result);
    }
    return HET_OK;
}

/* Factors are of use on the weights that they were trained on: where both fingerprints are known
   they must agree. */
static const char heti_f_base_key[] = "base_fingerprint";
typedef struct heti_f_hex { char text[17]; } heti_f_hex;
static heti_f_hex heti_f_hex_of(uint64_t value) {
    heti_f_hex hex;
    heti_t_text t = heti_t_text_in(hex.text, sizeof hex.text);
    heti_t_hex(&t, value);
    return hex;
}

static het_result heti_f_adapter_known(const heti_f_adapter *x, const het_safetensors *file) {
    size_t length;
    const char *was = het_safetensors_value(file, heti_f_base_key, &length);
    const heti_f_hex now = heti_f_hex_of(het_get_base(x->ctx));
    if (was == NULL || het_get_base(x->ctx) == 0 || (length == 16 && memcmp(was, now.text, 16) == 0)) return HET_OK;
    return heti_t_fail(x->error, HET_ERR_INVALID, "the factors were trained on other base weights: those have "
                                                  "fingerprint %q, the loaded ones %s", was, length, now.text);
}

/* Every tensor of the file must be one of a module. */
static het_result heti_f_adapter_strange(const heti_f_adapter *x, const het_safetensors *file) {
    int64_t i;
    for (i = 0; i < file->tensors; i++) {
        const het_safetensor *t = &file->tensor[i];
        heti_f_module m;
        int64_t cursor = 0;
        int known = 0;
        while (!known && heti_f_module_next(x, &cursor, &m))
            known = strcmp(t->name, m.name[0]) == 0 || strcmp(t->name, m.name[1]) == 0;
        if (!known)
            return heti_t_fail(x->error, HET_ERR_FORMAT, "adapter: byte %d: tensor %q: the model has no such factor",
                               HETI_T_CAST(int64_t, t->at), t->name, t->name_length);
    }
    return HET_OK;
}

static het_result heti_f_adapter_read(const heti_f_adapter *x, const het_safetensors *file, const het_reader *from) {
    heti_f_module m;
    int64_t cursor, modules = 0;
    int write;
    for (write = 0; write < 2; write++) {
        cursor = 0;
        while (heti_f_module_next(x, &cursor, &m)) {
            HETI_T_TRY(heti_f_module_load(x, file, from, &m, write));
            modules += !write;
        }
        if (file->tensors != 2 * modules) return heti_f_adapter_strange(x, file);
    }
    return HET_OK;
}

/* any_base: whatever weights the factors were trained on. */
static het_result heti_f_adapter_load(het_ctx *ctx, const het_reader *from, int any_base, het_error *error) {
    heti_f_adapter x;
    het_safetensors *file = NULL;
    het_result result;
    if (from == NULL || from->read == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_adapter_load: the reader is NULL");
    result = heti_f_adapter_start(&x, ctx, NULL, "het_adapter_load", error);
    if (result == HET_OK) result = het_safetensors_read(from, 0, &x.allocator, &file, error);
    if (result == HET_OK && !any_base) result = heti_f_adapter_known(&x, file);
    if (result == HET_OK) result = heti_f_adapter_read(&x, file, from);
    het_safetensors_free(file);
    heti_f_adapter_end(&x);
    return result;
}

HETRAIN_API het_result het_adapter_load(het_ctx *ctx, const het_reader *from, het_error *error) {
    return heti_f_adapter_load(ctx, from, 0, error);
}

/* The tensor A (which = 0) or B (1) of a module, as the file has it, into x->a or x->b. */
static het_result heti_f_module_tensor(const heti_f_adapter *x, const heti_f_module *m, int which) {
    const int64_t rank = m->parts * m->rank;
    int64_t part, row, k;
    if (which == 1) memset(x->b, 0, HETI_T_CAST(size_t, m->all * rank) * sizeof *x->b);
    for (part = 0; part < m->parts; part++) {
        float *own = which == 0 ? x->a + part * m->rank * m->in : x->own;
        const het_result result = het_parameter_read(x->ctx, m->factor[part] + which, HET_WEIGHT, own);
        if (result != HET_OK) return heti_f_adapter_failed(x, result);
        for (row = 0; row < m->out[part] && which == 1; row++)
            for (k = 0; k < m->rank; k++)
                x->b[heti_f_module_row(m, part, row) * rank + part * m->rank + k] = x->own[row * m->rank + k];
    }
    return HET_OK;
}

/* Describes the tensors of module number `number` in the list. */
static void heti_f_module_describe(const heti_f_module *m, int64_t number, het_safetensor *list, char *names) {
    int which;
    for (which = 0; which < 2; which++) {
        het_safetensor *t = &list[2 * number + which];
        char *name = names + HETI_T_CAST(size_t, 2 * number + which) * sizeof m->name[0];
        memset(t, 0, sizeof *t);
        memcpy(name, m->name[which], sizeof m->name[0]);
        t->name = name;
        t->name_length = strlen(name);
        t->element = HET_ELEMENT_F32;
        t->rank = 2;
        t->shape[0] = which == 0 ? m->parts * m->rank : m->all;
        t->shape[1] = which == 0 ? m->in : m->parts * m->rank;
    }
}

/* The module of that number. */
static void heti_f_module_find_number(const heti_f_adapter *x, int64_t number, heti_f_module *m) {
    int64_t cursor = 0;
    while (heti_f_module_next(x, &cursor, m) && number-- > 0) {}
}

static het_result heti_f_adapter_write(const heti_f_adapter *x, const het_writer *to, uint64_t *size, int64_t modules,
                                       het_safetensor *list, char *names) {
    const uint64_t base = het_get_base(x->ctx);
    const heti_f_hex digits = heti_f_hex_of(base);
    heti_f_pairs pairs;
    het_safetensors *file = NULL;
    heti_f_module m;
    int64_t i, cursor = 0, number = 0;
    het_result result;
    while (heti_f_module_next(x, &cursor, &m)) heti_f_module_describe(&m, number++, list, names);
    heti_f_pairs_start(&pairs, &x->allocator, x->error);
    heti_f_pairs_made(&pairs);
    if (base != 0) heti_f_pairs_add(&pairs, heti_f_base_key, digits.text);
    result = heti_f_pairs_finish(&pairs);
    if (result == HET_OK)
        result = het_safetensors_make(list, 2 * modules,
                                      HETI_T_CAST(const het_pair *, HETI_T_CAST(const void *, pairs.list.data)),
                                      HETI_T_CAST(int64_t, pairs.list.used / sizeof(het_pair)), &x->allocator, &file,
                                      x->error);
    heti_f_pairs_free(&pairs);
    if (result != HET_OK) return result;
    if (size != NULL) *size = file->size;
    result = size == NULL ? het_safetensors_write(file, to, x->error) : HET_OK;
    for (i = 0; i < file->tensors && result == HET_OK && size == NULL; i++) {
        const het_safetensor *t = &file->tensor[i];
        const int which = t->number % 2 != 0;
        heti_f_module_find_number(x, t->number / 2, &m);
        result = heti_f_module_tensor(x, &m, which);
        if (result == HET_OK)
            result = het_safetensors_put(to, HET_ELEMENT_F32, which ? x->b : x->a, t->shape[0] * t->shape[1], x->error);
    }
    het_safetensors_free(file);
    return result;
}

/* All memory is the allocator's. to NULL: *size gets the size of the file, and no factor is
   read. */
static het_result heti_f_adapter_save(het_ctx *ctx, const het_allocator *allocator, const het_writer *to,
                                      uint64_t *size, het_error *error) {
    heti_f_adapter x;
    heti_f_module m;
    het_result result;
    int64_t cursor = 0, modules = 0;
    if (size == NULL && (to == NULL || to->write == NULL))
        return heti_t_fail(error, HET_ERR_INVALID, "het_adapter_save: the writer is NULL");
    result = heti_f_adapter_start(&x, ctx, allocator, "het_adapter_save", error);
    while (result == HET_OK && heti_f_module_next(&x, &cursor, &m)) modules++;
    if (result == HET_OK) {
        const size_t list = HETI_T_CAST(size_t, 2 * modules) * sizeof(het_safetensor),
                     names = HETI_T_CAST(size_t, 2 * modules) * sizeof m.name[0];
        char *block = HETI_T_CAST(char *, x.allocator.alloc(x.allocator.user, list + names, 16));
        if (block == NULL)
            result = heti_t_fail(error, HET_ERR_OOM, "het_adapter_save: no memory for the names of %d modules",
                                 modules);
        else {
            result = heti_f_adapter_write(&x, to, size, modules,
                                          HETI_T_CAST(het_safetensor *, HETI_T_CAST(void *, block)), block + list);
            x.allocator.free(x.allocator.user, block, list + names);
        }
    }
    heti_f_adapter_end(&x);
    return result;
}

HETRAIN_API het_result het_adapter_save(het_ctx *ctx, const het_writer *to, het_error *error) {
    return heti_f_adapter_save(ctx, NULL, to, NULL, error);
}

/* ---- merging ---- */

/* The parameter whose factor is called `factor`. */
static int64_t heti_f_adapter_base(const heti_f_adapter *x, const char *factor) {
    const size_t stem = strlen(factor) - 14;
    het_parameter_info info;
    int64_t p;
    for (p = 0; het_parameter_get_info(x->ctx, p, &info) == HET_OK; p++)
        if (strncmp(info.name, factor, stem) == 0 && strcmp(info.name + stem, ".weight") == 0) return p;
    return -1;
}

/* W += float(s B A), for the A that is parameter number p; w: room for W. */
static het_result heti_f_adapter_add(const heti_f_adapter *x, int64_t p, int64_t base, float *w) {
    const double scale = HETI_T_CAST(double, x->model->lora_alpha) / HETI_T_CAST(double, x->model->lora_rank);
    het_parameter_info a, b;
    het_result result = het_parameter_get_info(x->ctx, p, &a);
    int64_t i, j, k;
    if (result == HET_OK) result = het_parameter_get_info(x->ctx, p + 1, &b);
    if (result == HET_OK) result = het_parameter_read(x->ctx, p, HET_WEIGHT, x->a);
    if (result == HET_OK) result = het_parameter_read(x->ctx, p + 1, HET_WEIGHT, x->b);
    if (result == HET_OK) result = het_parameter_read(x->ctx, base, HET_WEIGHT, w);
    if (result != HET_OK) return heti_f_adapter_failed(x, result);
    for (i = 0; i < b.rows; i++)
        for (j = 0; j < a.columns; j++) {
            double sum = 0;
            for (k = 0; k < a.rows; k++) /* exact products: whether they are fused with the sum changes nothing */
                sum += HETI_T_CAST(double, x->b[i * a.rows + k]) * HETI_T_CAST(double, x->a[k * a.columns + j]);
            w[i * a.columns + j] += HETI_T_CAST(float, scale * sum);
        }
    result = het_parameter_write(x->ctx, base, HET_WEIGHT, w);
    memset(x->b, 0, HETI_T_CAST(size_t, b.count) * sizeof *x->b);
    if (result == HET_OK) result = het_parameter_write(x->ctx, p + 1, HET_WEIGHT, x->b);
    return result == HET_OK ? HET_OK : heti_f_adapter_failed(x, result);
}

HETRAIN_API het_result het_adapter_merge(het_ctx *ctx, het_error *error) {
    heti_f_adapter x;
    het_parameter_info info;
    int64_t p, base, largest = 0;
    float *w = NULL;
    het_result result = heti_f_adapter_start(&x, ctx, NULL, "het_adapter_merge", error);
    for (p = 0; result == HET_OK && het_parameter_get_info(ctx, p, &info) == HET_OK; p++)
        if (!info.adapter && info.count > largest) largest = info.count;
    if (result == HET_OK &&
        (w = HETI_T_CAST(float *, x.allocator.alloc(x.allocator.user, HETI_T_CAST(size_t, largest) * sizeof *w,
                                                    64))) == NULL)
        result = heti_t_fail(error, HET_ERR_OOM, "het_adapter_merge: no memory for %d numbers", largest);
    for (p = 0; result == HET_OK && het_parameter_get_info(ctx, p, &info) == HET_OK; p++) {
        const size_t length = strlen(info.name);
        if (!info.adapter || length < 14 || strcmp(info.name + length - 14, ".lora_A.weight") != 0) continue;
        base = heti_f_adapter_base(&x, info.name);
        result = base < 0 ? heti_t_fail(error, HET_ERR_STATE, "het_adapter_merge: factor %s belongs to no matrix",
                                        info.name)
                          : heti_f_adapter_add(&x, p, base, w);
    }
    if (w != NULL) x.allocator.free(x.allocator.user, w, HETI_T_CAST(size_t, largest) * sizeof *w);
    heti_f_adapter_end(&x);
    return result;
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
static const char heti_f_saved_model[] = "model.safetensors", heti_f_saved_adapter[] = "adapter_model.safetensors";
static const char *const heti_f_saved_names[HETI_F_SAVED_OWN] = { heti_f_saved_model, "optimizer.safetensors",
                                                                 "config.json" };

typedef struct heti_f_blob { unsigned char *data; size_t used, size; } heti_f_blob;

/* Memory handed out from one block, of which nothing comes back before the next file: no call of
   the allocator behind it unless more is needed. */
typedef struct heti_f_pool { heti_f_blob *block; const het_allocator *beyond; } heti_f_pool;
enum { HETI_F_POOL_HEAD = 64 };           /* bytes in front of each piece: the first is 1 where the
                                             piece is of the block */

static void *heti_f_pool_alloc(void *user, size_t size, size_t align) {
    const heti_f_pool *pool = HETI_T_CAST(heti_f_pool *, user);
    heti_f_blob *b = pool->block;
    unsigned char *piece;
    const size_t at = b->used;
    int own;
    (void)align; /* at most 64 */
    if (size > SIZE_MAX / 2 - at) return NULL;
    b->used = at + (HETI_F_POOL_HEAD + size + 63) / 64 * 64;
    own = b->used <= b->size;
    piece = own ? b->data + at : HETI_T_CAST(unsigned char *, pool->beyond->alloc(pool->beyond->user,
        HETI_F_POOL_HEAD + size, 64));
    if (piece == NULL) return NULL;
    piece[0] = HETI_T_CAST(unsigned char, own);
    return piece + HETI_F_POOL_HEAD;
}

static void heti_f_pool_free(void *user, void *pointer, size_t size) {
    const heti_f_pool *pool = HETI_T_CAST(heti_f_pool *, user);
    unsigned char *piece = HETI_T_CAST(unsigned char *, pointer) - HETI_F_POOL_HEAD;
    if (piece[0] == 0) pool->beyond->free(pool->beyond->user, piece, HETI_F_POOL_HEAD + size);
}

struct het_checkpoint {
    het_disk disk;
    het_allocator allocator;
    int64_t keep, step;
    const char *base;
    size_t base_length;
    int taken;
    int files;
    heti_f_blob blob[HETI_F_SAVED_BLOBS];
    char name[HETRAIN_CHECKPOINT_FILES][64];
    char directory[HETI_F_SAVED_DIRECTORY + 1];
};

/* ---- file work ---- */

typedef struct heti_f_path { char text[HETI_F_SAVED_DIRECTORY + 100]; } heti_f_path;

/* directory/a or directory/a/b; names are short. */
static heti_f_path heti_f_path_of(const char *directory, const char *a, const char *b) {
    heti_f_path path;
    heti_t_text t = heti_t_text_in(path.text, sizeof path.text);
    heti_t_put(&t, directory);
    if (a[0] != 0) {
        heti_t_char(&t, '/');
        heti_t_put(&t, a);
    }
    if (b[0] != 0) {
        heti_t_char(&t, '/');
        heti_t_put(&t, b);
    }
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

static het_result heti_f_disk_write(const het_disk *d, void *file, const char *path, const unsigned char *from,
                                    size_t size, het_error *error) {
    while (size > 0) {
        size_t done = 0;
        int number;
        HETI_F_DISK(d, number, d->write(d->user, file, from, size, &done));
        if (number != 0) return heti_f_disk_fail(d, "write", path, number, error);
        if (done == 0 || done > size)
            return heti_t_fail(error, HET_ERR_IO, "cannot write %s: %u bytes taken of %u", path,
                               HETI_T_CAST(uint64_t, done), HETI_T_CAST(uint64_t, size));
        from += done;
        size -= done;
    }
    return HET_OK;
}

static het_result heti_f_disk_read(const het_disk *d, void *file, const char *path, uint64_t offset, unsigned char *to,
                                   size_t size, het_error *error) {
    while (size > 0) {
        size_t done = 0;
        int number;
        HETI_F_DISK(d, number, d->read(d->user, file, offset, to, size, &done));
        if (number != 0) return heti_f_disk_fail(d, "read", path, number, error);
        if (done == 0 || done > size)
            return heti_t_fail(error, HET_ERR_FORMAT, "%s: ends at byte %u, %u more are missing", path, offset,
                               HETI_T_CAST(uint64_t, size));
        to += done;
        offset += done;
        size -= done;
    }
    return HET_OK;
}

/* A new file with these bytes, synced. hash NULL, or room for one of each block. */
static het_result heti_f_disk_put(const het_disk *d, const char *path, const heti_f_blob *from, uint64_t *hash,
                                  het_error *error) {
    void *file = NULL;
    het_result result = HET_OK;
    size_t at, part;
    int number;
    HETI_F_DISK(d, number, d->open(d->user, path, 1, &file));
    if (number != 0) return heti_f_disk_fail(d, "make", path, number, error);
    for (at = 0; at < from->used && result == HET_OK; at += part) {
        part = from->used - at < HETI_F_SAVED_BLOCK ? from->used - at : HETI_F_SAVED_BLOCK;
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
    int number;
    HETI_F_DISK(d, number, d->sync_directory(d->user, path));
    return number == 0 ? HET_OK : heti_f_disk_fail(d, "sync", path, number, error);
}

/* absent 1: it is fine if `from` is not there; *moved (or NULL) tells. */
static het_result heti_f_disk_rename(const het_disk *d, const char *from, const char *to, int absent, int *moved,
                                     het_error *error) {
    int number;
    HETI_F_DISK(d, number, d->rename(d->user, from, to));
    if (moved != NULL) *moved = number == 0;
    return number == 0 || (absent && number == d->absent) ? HET_OK : heti_f_disk_fail(d, "rename", from, number, error);
}

/* Keeps one name of a list: what is to be removed is asked for one by one. */
typedef struct heti_f_one_name { char name[256]; } heti_f_one_name;
static int heti_f_keep_name(void *list, const char *name) {
    heti_f_one_name *one = HETI_T_CAST(heti_f_one_name *, list);
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strlen(name) >= sizeof one->name) return 0;
    memcpy(one->name, name, strlen(name) + 1);
    return -1;
}

/* Removes a directory of files, if it is there. */
static het_result heti_f_disk_clear(const het_disk *d, const char *path, het_error *error) {
    int number;
    for (;;) {
        heti_f_one_name one;
        heti_f_path file;
        one.name[0] = 0;
        HETI_F_DISK(d, number, d->list(d->user, path, heti_f_keep_name, &one));
        if (number == d->absent) return HET_OK;
        if (number != 0 && number != -1) return heti_f_disk_fail(d, "list", path, number, error);
        if (one.name[0] == 0) break;
        file = heti_f_path_of(path, one.name, "");
        HETI_F_DISK(d, number, d->remove(d->user, file.text));
        if (number != 0) return heti_f_disk_fail(d, "remove", file.text, number, error);
    }
    HETI_F_DISK(d, number, d->remove(d->user, path));
    return number == 0 ? HET_OK : heti_f_disk_fail(d, "remove", path, number, error);
}

/* ---- names ---- */

typedef struct heti_f_step_name { char text[32]; } heti_f_step_name;

/* step-00000123 */
static heti_f_step_name heti_f_step_name_of(int64_t step, const char *behind) {
    heti_f_step_name name;
    heti_t_text t;
    int64_t limit;
    t = heti_t_text_in(name.text, sizeof name.text);
    heti_t_put(&t, "step-");
    for (limit = 10000000; limit > step && limit > 1; limit /= 10) heti_t_char(&t, '0');
    heti_t_unsigned(&t, HETI_T_CAST(uint64_t, step));
    heti_t_put(&t, behind);
    return name;
}

/* The step of such a name, -1: it is another. *old: it has ".old" behind. */
static int64_t heti_f_step_of(const char *name, int *old) {
    int64_t step = 0;
    size_t i, digits;
    if (strncmp(name, "step-", 5) != 0) return -1;
    digits = strspn(name + 5, "0123456789");
    if (digits < 8 || digits > 18 || (digits > 8 && name[5] == '0')) return -1;
    for (i = 0; i < digits; i++) step = 10 * step + (name[5 + i] - '0');
    *old = strcmp(name + 5 + digits, ".old") == 0;
    return name[5 + digits] == 0 || *old ? step : -1;
}

/* ---- taking ---- */

/* Appends what fits and counts the rest. */
static int heti_f_blob_write(void *user, const void *from, size_t size) {
    heti_f_blob *blob = HETI_T_CAST(heti_f_blob *, user);
    if (blob->used <= blob->size && size <= blob->size - blob->used) memcpy(blob->data + blob->used, from, size);
    blob->used += size;
    return 0;
}

static int64_t heti_f_process(const het_ctx *ctx) {
    const het_transport *t = &het_get_desc(ctx)->transport;
    return t->iface != NULL ? t->iface->process(t->self) : 0;
}

/* A file of the context in its blob, or with `size` how large it is. */
static het_result heti_f_take_file(het_checkpoint *c, het_ctx *ctx, int which, int keeps, uint64_t *size,
                                   het_error *error) {
    heti_f_blob nothing = { NULL, 0, 0 }, *blob = keeps ? &c->blob[which] : &nothing;
    heti_f_pool pool;
    het_allocator own;
    het_writer to;
    het_result result;
    pool.block = &c->blob[HETI_F_SAVED_WORK];
    pool.block->used = blob->used = 0;
    pool.beyond = &c->allocator;
    own.alloc = heti_f_pool_alloc;
    own.free = heti_f_pool_free;
    own.user = &pool;
    memset(&to, 0, sizeof to);
    to.write = heti_f_blob_write;
    to.user = blob;
    to.name = c->name[which];
    if (which == HETI_F_SAVED_OPTIMIZER)
        result = heti_f_save(ctx, "het_checkpoint_take", HETI_F_STATE, &own, &to, size, error);
    else if (het_get_desc(ctx)->model.lora_rank > 0) result = heti_f_adapter_save(ctx, &own, &to, size, error);
    else result = heti_f_save(ctx, "het_checkpoint_take", HETI_F_WEIGHTS, &own, &to, size, error);
    return result == HET_OK || error == NULL || error->text[0] != 0 ? result : heti_t_fail(error, result, "%s",
        het_last_error(ctx));
}

static void heti_f_text_option(heti_t_text *t, const char *value, size_t length) {
    size_t i;
    if (heti_f_is_utf8(value, length)) {
        heti_t_json(t, value, length);
        return;
    }
    heti_t_char(t, '"');
    for (i = 0; i < length; i++) {
        const int plain = value[i] >= ' ' && value[i] <= '~' && value[i] != '"' && value[i] != '\\';
        heti_t_char(t, HETI_T_CAST(char, plain ? value[i] : '?'));
    }
    heti_t_char(t, '"');
}

/* state.json up to the list of files. */
static void heti_f_text_head(heti_t_text *t, const het_ctx *ctx, const het_pair *option, int64_t options) {
    const het_desc *d = het_get_desc(ctx);
    int64_t i;
    heti_t_put(t, "{\"format\":1,\n\"version\":");
    heti_t_unsigned(t, HETI_T_CAST(uint64_t, het_version()));
    heti_t_put(t, ",\n\"step\":");
    heti_t_unsigned(t, HETI_T_CAST(uint64_t, het_get_step(ctx)));
    heti_t_put(t, ",\n\"seed\":\"");
    heti_t_unsigned(t, d->seed);
    heti_t_put(t, "\",\n\"granule\":");
    heti_t_unsigned(t, HETI_T_CAST(uint64_t, d->granule));
    heti_t_put(t, ",\n\"exponents\":{");
    for (i = 0; i < het_parameter_count(ctx); i++) {
        het_parameter_info info;
        if (het_parameter_get_info(ctx, i, &info) != HET_OK) continue;
        if (i > 0) heti_t_char(t, ',');
        heti_t_char(t, '\n');
        heti_t_json(t, info.name, strlen(info.name));
        heti_t_char(t, ':');
        if (info.exponent == HETRAIN_NO_EXPONENT) heti_t_put(t, "null");
        else heti_t_integer(t, info.exponent);
    }
    heti_t_put(t, "},\n\"options\":{");
    for (i = 0; i < options; i++) {
        heti_t_put(t, i > 0 ? ",\n" : "\n");
        heti_f_text_option(t, option[i].key, option[i].key_length);
        heti_t_char(t, ':');
        heti_f_text_option(t, option[i].value, option[i].value_length);
    }
    heti_t_char(t, '}');
}

static heti_t_text heti_f_text_over(const heti_f_blob *blob) {
    heti_t_text t = heti_t_text_in(HETI_T_CAST(char *, HETI_T_CAST(void *, blob->data)), blob->size);
    return t;
}

static size_t heti_f_blocks(uint64_t size) {
    return HETI_T_CAST(size_t, (size + HETI_F_SAVED_BLOCK - 1) / HETI_F_SAVED_BLOCK);
}

/* The whole of state.json into its blob; without room only its length. The hashes are those of the
   blocks. */
static size_t heti_f_state_text(const het_checkpoint *c, const uint64_t *hash) {
    heti_t_text t = heti_f_text_over(&c->blob[HETI_F_SAVED_TEXT]);
    size_t i, k;
    for (i = 0; i < c->blob[HETI_F_SAVED_HEAD].used; i++)
        heti_t_char(&t, HETI_T_CAST(char, c->blob[HETI_F_SAVED_HEAD].data[i]));
    heti_t_put(&t, ",\n\"files\":{");
    for (i = 0; i < HETI_T_CAST(size_t, c->files); i++) {
        heti_t_put(&t, i > 0 ? ",\n\"" : "\n\"");
        heti_t_put(&t, c->name[i]);
        heti_t_put(&t, "\":{\"size\":");
        heti_t_unsigned(&t, HETI_T_CAST(uint64_t, c->blob[i].used));
        heti_t_put(&t, ",\"xxh64\":[");
        for (k = 0; k < heti_f_blocks(c->blob[i].used); k++) {
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

/* config.json of the model without factors, which have a file of their own; to NULL: only its
   length. */
static het_result heti_f_take_config(const het_checkpoint *c, const het_ctx *ctx, heti_f_blob *to, size_t *length,
                                     het_error *error) {
    het_model_desc model = het_get_desc(ctx)->model;
    het_result result;
    model.lora_rank = model.lora_targets = 0;
    model.lora_alpha = 0.0f;
    result = het_model_to_config(&model, HET_ELEMENT_F32, c->base, c->base_length,
                                 to != NULL ? HETI_T_CAST(char *, HETI_T_CAST(void *, to->data)) : NULL,
                                 to != NULL ? to->size : 0, length);
    if (to == NULL && result == HET_ERR_LIMIT) return HET_OK;
    return result == HET_OK ? HET_OK : heti_t_fail(error, result, "checkpoint: the model has no config.json");
}

/* Bytes that each blob needs; of files also into `used`. Numbers in headers may have more digits at
   another step: that is the rest. */
static het_result heti_f_room_needs(het_checkpoint *c, het_ctx *ctx, int keeps, const het_pair *option, int64_t options,
                                    const het_beside *beside, size_t need[HETI_F_SAVED_BLOBS], het_error *error) {
    const size_t rest = 4096 + 64 * HETI_T_CAST(size_t, het_parameter_count(ctx));
    heti_t_text head = heti_t_text_in(NULL, 0);
    size_t work = 0, blocks = 0;
    int i;
    memset(need, 0, HETI_F_SAVED_BLOBS * sizeof *need);
    for (i = 0; i < c->files; i++) {
        uint64_t size = i >= HETI_F_SAVED_OWN ? beside[i - HETI_F_SAVED_OWN].size : 0;
        size_t length = 0;
        het_result result = HET_OK;
        if (i < HETI_F_SAVED_CONFIG) result = heti_f_take_file(c, ctx, i, 0, &size, error);
        if (i == HETI_F_SAVED_CONFIG) result = heti_f_take_config(c, ctx, NULL, &length, error);
        if (result == HET_ERR_OOM)
            return heti_t_fail(error, result, "memory for saving: at least %u bytes are missing, which making %s "
                                              "takes: the allocator gave less",
                                              HETI_T_CAST(uint64_t, c->blob[HETI_F_SAVED_WORK].used), c->name[i]);
        if (result != HET_OK) return result;
        if (i == HETI_F_SAVED_CONFIG) size = length;
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
    for (i = 0; i < HETI_F_SAVED_BLOBS; i++)
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
    int i;
    HETI_T_TRY(heti_f_room_needs(c, ctx, keeps, option, options, beside, need, error));
    for (i = 0; i < HETI_F_SAVED_BLOBS; i++) missing += need[i];
    for (i = 0; i < HETI_F_SAVED_BLOBS; i++) {
        heti_f_blob *blob = &c->blob[i];
        if (need[i] == 0) continue;
        if (blob->data != NULL) a->free(a->user, blob->data, blob->size);
        blob->size = 0;
        blob->data = HETI_T_CAST(unsigned char *, a->alloc(a->user, need[i], 64));
        if (blob->data == NULL)
            return heti_t_fail(error, HET_ERR_OOM, "memory for saving: %u bytes are missing, of which the "
                                                   "allocator gave no %u", HETI_T_CAST(uint64_t, missing),
                                                   HETI_T_CAST(uint64_t, need[i]));
        blob->size = need[i];
        memset(blob->data, 0, blob->size);
        missing -= need[i];
    }
    return HET_OK;
}

HETRAIN_API het_result het_checkpoint_create(const het_checkpoint_desc *desc, het_checkpoint **checkpoint,
                                             het_error *error) {
    het_allocator allocator;
    het_checkpoint *c;
    if (checkpoint != NULL) *checkpoint = NULL;
    if (desc == NULL || checkpoint == NULL || desc->start_canary != 0 || desc->end_canary != 0 || desc->disk == NULL ||
        desc->directory == NULL || desc->keep < 0)
        return heti_t_fail(error, HET_ERR_INVALID, "het_checkpoint_create: %s", desc == NULL ||
                           checkpoint == NULL ? "an argument is NULL" :
                           desc->start_canary != 0 || desc->end_canary != 0 ? "the description was not cleared" :
                           desc->keep < 0 ? "keep is below 0" : "disk or directory is NULL");
    if (desc->directory[0] == 0 || strlen(desc->directory) > HETI_F_SAVED_DIRECTORY)
        return heti_t_fail(error, HET_ERR_LIMIT, "het_checkpoint_create: a directory's name of %u bytes, "
                                                 "must have 1 to %u", HETI_T_CAST(uint64_t, strlen(desc->directory)),
                                                 HETI_T_CAST(uint64_t, HETI_F_SAVED_DIRECTORY));
    HETI_T_TRY(heti_t_choose(&desc->allocator, &allocator, error, "het_checkpoint_create"));
    c = HETI_T_CAST(het_checkpoint *, allocator.alloc(allocator.user, sizeof *c, 64));
    if (c == NULL)
        return heti_t_fail(error, HET_ERR_OOM, "het_checkpoint_create: the allocator gave no %u bytes",
                           HETI_T_CAST(uint64_t, sizeof *c));
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
    het_allocator a;
    int i;
    if (checkpoint == NULL) return;
    a = checkpoint->allocator;
    for (i = 0; i < HETI_F_SAVED_BLOBS; i++)
        if (checkpoint->blob[i].data != NULL) a.free(a.user, checkpoint->blob[i].data, checkpoint->blob[i].size);
    a.free(a.user, checkpoint, sizeof *checkpoint);
}

/* Names of files, which must be good and different. */
static het_result heti_f_take_names(het_checkpoint *c, const het_ctx *ctx, const char *function,
                                    const het_beside *beside, int64_t files, het_error *error) {
    int64_t i, k;
    for (i = 0; i < HETI_F_SAVED_OWN + files; i++) {
        const char *name = i >= HETI_F_SAVED_OWN ? beside[i - HETI_F_SAVED_OWN].name : heti_f_saved_names[i];
        if (i == HETI_F_SAVED_WEIGHTS && het_get_desc(ctx)->model.lora_rank > 0) name = heti_f_saved_adapter;
        if (name == NULL || !het_folder_is_name(name, strlen(name)) || strlen(name) >= sizeof c->name[0] ||
            strcmp(name, "state.json") == 0)
            return heti_t_fail(error, HET_ERR_INVALID, "%s: file %d is called %s, no name for one of at most 63 bytes",
                               function, i - HETI_F_SAVED_OWN, name != NULL ? name : "NULL");
        heti_f_copy(c->name[i], sizeof c->name[0], name, strlen(name));
        for (k = 0; k < i; k++)
            if (strcmp(c->name[k], name) == 0)
                return heti_t_fail(error, HET_ERR_INVALID, "%s: two files are called %s", function, name);
    }
    c->files = HETI_F_SAVED_OWN + HETI_T_CAST(int, files);
    return HET_OK;
}

/* What taking begins with, and all there is of reserving. One process may have no memory where
   others have: all hear of that of process 0. */
static het_result heti_f_reserve(const char *function, het_checkpoint *c, het_ctx *ctx, const het_pair *option,
                                 int64_t options, const het_beside *beside, int64_t files, het_error *error) {
    het_result result;
    int32_t failed;
    if (error != NULL) memset(error, 0, sizeof *error);
    if (c == NULL || ctx == NULL || options < 0 || (option == NULL && options > 0) || (beside == NULL && files > 0))
        return heti_t_fail(error, HET_ERR_INVALID, "%s: %s", function, options < 0 ? "options is below 0" :
                           "an argument is NULL");
    if (files < 0 || files > HETRAIN_CHECKPOINT_FILES - HETI_F_SAVED_OWN)
        return heti_t_fail(error, HET_ERR_LIMIT, "%s: %d files beside, must be 0 to 13", function, files);
    if ((het_get_condition(ctx) & HET_FAILED) != 0)
        return heti_t_fail(error, HET_ERR_STATE, "%s: the context has failed", function);
    c->taken = 0;
    HETI_T_TRY(heti_f_take_names(c, ctx, function, beside, files, error));
    result = heti_f_room(c, ctx, heti_f_process(ctx) == 0, option, options, beside, error);
    failed = result != HET_OK;
    if (het_spread(ctx, 0, &failed, sizeof failed) != HET_OK && result == HET_OK)
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
    int i;
    for (i = 0; checkpoint != NULL && i < HETI_F_SAVED_BLOBS; i++) bytes += checkpoint->blob[i].size;
    return bytes;
}

HETRAIN_API het_result het_checkpoint_take(het_checkpoint *checkpoint, het_ctx *ctx, const het_pair *option,
                                           int64_t options, const het_beside *beside, int64_t files, het_error *error) {
    het_checkpoint *c = checkpoint;
    het_error own;
    heti_t_text head;
    size_t length;
    int keeps, i;
    if (error == NULL) error = &own;
    HETI_T_TRY(heti_f_reserve("het_checkpoint_take", c, ctx, option, options, beside, files, error));
    keeps = heti_f_process(ctx) == 0;
    for (i = 0; i < HETI_F_SAVED_CONFIG; i++) HETI_T_TRY(heti_f_take_file(c, ctx, i, keeps, NULL, error));
    c->step = het_get_step(ctx);
    if (!keeps) return HET_OK;
    HETI_T_TRY(heti_f_take_config(c, ctx, &c->blob[HETI_F_SAVED_CONFIG], &length, error));
    for (i = HETI_F_SAVED_OWN; i < c->files; i++)
        if (c->blob[i].used > 0) memcpy(c->blob[i].data, beside[i - HETI_F_SAVED_OWN].data, c->blob[i].used);
    head = heti_f_text_over(&c->blob[HETI_F_SAVED_HEAD]);
    heti_f_text_head(&head, ctx, option, options);
    c->blob[HETI_F_SAVED_HEAD].used = head.length;
    c->taken = 1;
    return HET_OK;
}

/* ---- writing ---- */

static het_result heti_f_write_files(het_checkpoint *c, const char *directory, het_error *error) {
    uint64_t *hash = HETI_T_CAST(uint64_t *, HETI_T_CAST(void *, c->blob[HETI_F_SAVED_HASH].data)), *first = hash;
    heti_f_blob *text = &c->blob[HETI_F_SAVED_TEXT];
    heti_f_path path;
    int i;
    for (i = 0; i < c->files; i++) {
        path = heti_f_path_of(directory, c->name[i], "");
        HETI_T_TRY(heti_f_disk_put(&c->disk, path.text, &c->blob[i], hash, error));
        hash += heti_f_blocks(c->blob[i].used);
    }
    text->used = heti_f_state_text(c, first);
    heti_f_state_tail(HETI_T_CAST(char *, HETI_T_CAST(void *, text->data + text->used)), text->data, text->used);
    text->used += HETI_F_STATE_TAIL;
    path = heti_f_path_of(directory, "state.json", "");
    HETI_T_TRY(heti_f_disk_put(&c->disk, path.text, text, NULL, error));
    return heti_f_disk_sync(&c->disk, directory, error);
}

/* NAME.tmp with these bytes, then renamed to NAME. */
static het_result heti_f_write_beside(const het_checkpoint *c, const char *name, const heti_f_blob *from,
                                      het_error *error) {
    char temporary[80];
    heti_f_path a, b;
    het_result result;
    const size_t length = strlen(name);
    memcpy(temporary, name, length);
    memcpy(temporary + length, ".tmp", 5);
    a = heti_f_path_of(c->directory, temporary, "");
    b = heti_f_path_of(c->directory, name, "");
    result = heti_f_disk_put(&c->disk, a.text, from, NULL, error);
    if (result == HET_OK) result = heti_f_disk_rename(&c->disk, a.text, b.text, 0, NULL, error);
    if (result != HET_OK) (void)c->disk.remove(c->disk.user, a.text);
    return result;
}

/* Takes a directory out of the way for good, if it is there. */
static het_result heti_f_discard(const het_checkpoint *c, const char *name, het_error *error) {
    const heti_f_path from = heti_f_path_of(c->directory, name, ""),
                      to = heti_f_path_of(c->directory, "removing.tmp", "");
    int moved;
    HETI_T_TRY(heti_f_disk_clear(&c->disk, to.text, error));
    HETI_T_TRY(heti_f_disk_rename(&c->disk, from.text, to.text, 1, &moved, error));
    if (!moved) return HET_OK;
    HETI_T_TRY(heti_f_disk_sync(&c->disk, c->directory, error));
    return heti_f_disk_clear(&c->disk, to.text, error);
}

/* Of the names of a directory, one that `keep` does not spare: a step aside, a later one, or the
   oldest of too many. */
typedef struct heti_f_prune { int64_t step, oldest, count, keep; heti_f_step_name found; } heti_f_prune;
static int heti_f_prune_name(void *list, const char *name) {
    heti_f_prune *p = HETI_T_CAST(heti_f_prune *, list);
    int old = 0;
    const int64_t step = heti_f_step_of(name, &old);
    if (step < 0) return 0;
    if (old || step > p->step) {
        p->found = heti_f_step_name_of(step, old ? ".old" : "");
        return -1;
    }
    p->count++;
    if (p->oldest < 0 || step < p->oldest) p->oldest = step;
    return 0;
}

static het_result heti_f_prune_all(const het_checkpoint *c, het_error *error) {
    for (;;) {
        heti_f_prune p;
        int number;
        memset(&p, 0, sizeof p);
        p.step = c->step;
        p.oldest = -1;
        HETI_F_DISK(&c->disk, number, (p.count = 0, p.oldest = -1, c->disk.list(c->disk.user, c->directory,
            heti_f_prune_name, &p)));
        if (number != 0 && number != -1) return heti_f_disk_fail(&c->disk, "list", c->directory, number, error);
        if (number == 0) {
            if (p.count <= c->keep) return HET_OK;
            p.found = heti_f_step_name_of(p.oldest, "");
        }
        HETI_T_TRY(heti_f_discard(c, p.found.text, error));
    }
}

static het_result heti_f_write_checkpoint(het_checkpoint *c, het_error *error) {
    const het_disk *d = &c->disk;
    heti_f_step_name name = heti_f_step_name_of(c->step, ""), aside = heti_f_step_name_of(c->step, ".old");
    const heti_f_path saving = heti_f_path_of(c->directory, "saving.tmp", ""),
                      target = heti_f_path_of(c->directory, name.text, ""),
                      old = heti_f_path_of(c->directory, aside.text, "");
    heti_f_blob marker;
    int number;
    HETI_T_TRY(heti_f_disk_clear(d, saving.text, error));
    HETI_F_DISK(d, number, d->make_directory(d->user, saving.text));
    if (number != 0) return heti_f_disk_fail(d, "make", saving.text, number, error);
    HETI_T_TRY(heti_f_write_files(c, saving.text, error));
    HETI_F_DISK(d, number, d->rename(d->user, saving.text, target.text));
    if (number != 0) { /* one of the same step is there; an older one that stepped aside before it may be, too */
        if (number != d->exists) return heti_f_disk_fail(d, "rename", saving.text, number, error);
        HETI_T_TRY(heti_f_discard(c, aside.text, error));
        HETI_T_TRY(heti_f_disk_rename(d, target.text, old.text, 0, NULL, error));
        HETI_T_TRY(heti_f_disk_rename(d, saving.text, target.text, 0, NULL, error));
    }
    HETI_T_TRY(heti_f_disk_sync(d, c->directory, error));
    marker.data = HETI_T_CAST(unsigned char *, HETI_T_CAST(void *, name.text));
    marker.used = marker.size = strlen(name.text);
    HETI_T_TRY(heti_f_write_beside(c, "latest", &marker, error));
    HETI_T_TRY(heti_f_disk_sync(d, c->directory, error));
    return heti_f_prune_all(c, error);
}

HETRAIN_API het_result het_checkpoint_write(het_checkpoint *checkpoint, het_error *error) {
    het_result result;
    heti_f_path saving;
    if (checkpoint == NULL) return heti_t_fail(error, HET_ERR_INVALID, "het_checkpoint_write: checkpoint is NULL");
    if (!checkpoint->taken) return HET_OK;
    result = heti_f_write_checkpoint(checkpoint, error);
    if (result == HET_OK) return HET_OK;
    saving = heti_f_path_of(checkpoint->directory, "saving.tmp", ""); /* a full disk gets the room back */
    (void)heti_f_disk_clear(&checkpoint->disk, saving.text, NULL);
    return result;
}

HETRAIN_API het_result het_checkpoint_export(het_checkpoint *checkpoint, het_error *error) {
    int i;
    if (checkpoint == NULL) return heti_t_fail(error, HET_ERR_INVALID, "het_checkpoint_export: checkpoint is NULL");
    if (!checkpoint->taken) return HET_OK;
    for (i = 0; i < checkpoint->files; i++)
        if (i != HETI_F_SAVED_OPTIMIZER)
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
    het_result failed;                /* of the list of candidates */
    unsigned char *block;             /* HETI_F_SAVED_BLOCK bytes */
    int64_t latest;                   /* step in the marker, -1: none */
} heti_f_seeker;

typedef struct heti_f_offer { int64_t step; int old, self; } heti_f_offer;

/* The whole of a small file, with a 0 behind; absent 1: *size is SIZE_MAX where there is none. */
static het_result heti_f_disk_get(const het_disk *d, const char *path, size_t limit, int absent, const het_allocator *a,
                                  char **to, size_t *size, het_error *error) {
    void *file = NULL;
    uint64_t bytes = 0;
    het_result result = HET_OK;
    int number;
    *to = NULL;
    *size = SIZE_MAX;
    HETI_F_DISK(d, number, d->open(d->user, path, 0, &file));
    if (absent && number == d->absent) return HET_OK;
    if (number != 0) return heti_f_disk_fail(d, "open", path, number, error);
    HETI_F_DISK(d, number, d->size(d->user, file, &bytes));
    if (number != 0) result = heti_f_disk_fail(d, "read", path, number, error);
    else if (bytes > limit)
        result = heti_t_fail(error, HET_ERR_FORMAT, "%s: has %u bytes, at most %u are expected", path, bytes,
                             HETI_T_CAST(uint64_t, limit));
    if (result == HET_OK) {
        *size = HETI_T_CAST(size_t, bytes);
        *to = HETI_T_CAST(char *, a->alloc(a->user, *size + 1, 16));
        if (*to == NULL)
            result = heti_t_fail(error, HET_ERR_OOM, "%s: the allocator gave no %u bytes", path, bytes + 1);
        else
            result = heti_f_disk_read(d, file, path, 0, HETI_T_CAST(unsigned char *, HETI_T_CAST(void *, *to)), *size,
                                      error);
    }
    (void)d->close(d->user, file);
    if (result == HET_OK) (*to)[*size] = 0;
    else if (*to != NULL) a->free(a->user, *to, *size + 1), *to = NULL;
    return result;
}

static int heti_f_seek_name(void *list, const char *name) {
    heti_f_seeker *s = HETI_T_CAST(heti_f_seeker *, list);
    heti_f_offer one;
    one.self = 0;
    one.step = heti_f_step_of(name, &one.old);
    if (one.step >= 0) s->failed = heti_t_list_add(&s->found, &one, sizeof one, s->allocator, NULL);
    return s->failed == HET_OK ? 0 : -1;
}

/* The candidates of a directory, and what `latest` says. */
static het_result heti_f_seek(heti_f_seeker *s, het_error *error) {
    const heti_f_path self = heti_f_path_of(s->directory, "state.json", ""),
                      marker = heti_f_path_of(s->directory, "latest", "");
    heti_f_offer one;
    void *file = NULL;
    char *text;
    size_t size;
    int number, old = 0;
    s->latest = -1;
    HETI_F_DISK(s->disk, number, s->disk->open(s->disk->user, self.text, 0, &file));
    if (number == 0) {
        (void)s->disk->close(s->disk->user, file);
        one.step = 0;
        one.old = 0;
        one.self = 1;
        return heti_t_list_add(&s->found, &one, sizeof one, s->allocator, error);
    }
    HETI_F_DISK(s->disk, number, (s->found.used = 0, s->disk->list(s->disk->user, s->directory, heti_f_seek_name, s)));
    if (s->failed != HET_OK)
        return heti_t_fail(error, s->failed, "%s: the allocator gave no room for its names", s->directory);
    if (number != 0) return heti_f_disk_fail(s->disk, "list", s->directory, number, error);
    if (heti_f_disk_get(s->disk, marker.text, 64, 0, s->allocator, &text, &size, error) == HET_OK) {
        s->latest = heti_f_step_of(text, &old);
        s->allocator->free(s->allocator->user, text, size + 1);
    }
    return HET_OK;
}

/* A rank: smaller comes first. */
static int heti_f_offer_before(const heti_f_seeker *s, const heti_f_offer *a, const heti_f_offer *b) {
    const int a_later = s->latest >= 0 && a->step > s->latest, b_later = s->latest >= 0 && b->step > s->latest;
    if (a_later != b_later) return b_later;
    return a->step != b->step ? a->step > b->step : a->old < b->old;
}

/* ---- proving ---- */

static het_result heti_f_check_block(const het_saved_file *f, const char *path, uint64_t block,
                                     const unsigned char *bytes, size_t size, het_error *error) {
    const uint64_t hash = het_xxh64(bytes, size, 0);
    const heti_f_hex a = heti_f_hex_of(hash), b = heti_f_hex_of(f->hash[block]);
    if (hash == f->hash[block]) return HET_OK;
    return heti_t_fail(error, HET_ERR_FORMAT, "%s: bytes %u to %u: XXH64 is %s, state.json says %s", path,
                       block * HETI_F_SAVED_BLOCK, block * HETI_F_SAVED_BLOCK + size - 1, a.text, b.text);
}

/* Opens a file that must have this size. */
static het_result heti_f_open_saved(const het_disk *d, const het_saved_file *f, const char *path, void **file,
                                    het_error *error) {
    uint64_t size = 0;
    int number;
    HETI_F_DISK(d, number, d->open(d->user, path, 0, file));
    if (number != 0) return heti_f_disk_fail(d, "open", path, number, error);
    HETI_F_DISK(d, number, d->size(d->user, *file, &size));
    if (number == 0 && size == f->size) return HET_OK;
    (void)d->close(d->user, *file);
    if (number != 0) return heti_f_disk_fail(d, "read", path, number, error);
    return heti_t_fail(error, HET_ERR_FORMAT, "%s: has %u bytes, state.json says %u", path, size, f->size);
}

static het_result heti_f_prove(const heti_f_seeker *s, const het_saved *saved, het_error *error) {
    const het_disk *d = s->disk;
    het_result result = HET_OK;
    int64_t i;
    for (i = 0; i < saved->files && result == HET_OK; i++) {
        const het_saved_file *f = &saved->file[i];
        const heti_f_path path = heti_f_path_of(saved->path, f->name, "");
        void *file = NULL;
        uint64_t at;
        HETI_T_TRY(heti_f_open_saved(d, f, path.text, &file, error));
        for (at = 0; at < f->size && result == HET_OK; at += HETI_F_SAVED_BLOCK) {
            const size_t part =
                         HETI_T_CAST(size_t, f->size - at < HETI_F_SAVED_BLOCK ? f->size - at : HETI_F_SAVED_BLOCK);
            result = heti_f_disk_read(d, file, path.text, at, s->block, part, error);
            if (result == HET_OK)
                result = heti_f_check_block(f, path.text, at / HETI_F_SAVED_BLOCK, s->block, part, error);
        }
        (void)d->close(d->user, file);
    }
    return result;
}

/* ---- state.json ---- */

/* What is read from it, first to count (saved NULL), then into the block. */
typedef struct heti_f_state {
    het_saved *saved;
    het_pair *pair;
    uint64_t *hash;
    char *text;                       /* decoded strings, one behind the other */
    size_t pairs, hashes, bytes;
    int64_t step, format;
    int files;
} heti_f_state;

/* A string with a 0 behind it at s->text; returns its length. */
static size_t heti_f_state_string(heti_f_state *s, het_json *j, const char **to) {
    char *at = s->text != NULL ? s->text + s->bytes : NULL;
    size_t length = 0;
    het_json_string(j, at, at != NULL ? SIZE_MAX / 2 : 0, &length);
    if (to != NULL) *to = at;
    s->bytes += length + 1;
    return length;
}

static void heti_f_state_pairs(heti_f_state *s, het_json *j) {
    char key[256];
    size_t length = 0;
    het_json_enter(j, HET_JSON_OBJECT);
    while (het_json_next(j, key, sizeof key, &length)) {
        het_pair *p = s->pair != NULL ? &s->pair[s->pairs] : NULL;
        if (length >= sizeof key) het_json_fail(j, "the name of an option is longer than 255 bytes");
        if (j->rule != NULL) return;
        if (p != NULL) {
            memcpy(s->text + s->bytes, key, length + 1);
            p->key = s->text + s->bytes;
            p->key_length = length;
        }
        s->bytes += length + 1;
        length = heti_f_state_string(s, j, p != NULL ? &p->value : NULL);
        if (p != NULL) p->value_length = length;
        s->pairs++;
    }
}

static void heti_f_state_hash(heti_f_state *s, het_json *j) {
    char text[20];
    size_t length = 0, i;
    uint64_t hash = 0;
    if (!het_json_string(j, text, sizeof text, &length)) return;
    for (i = 0; i < length && length == 16; i++) {
        const char *digits = "0123456789abcdef", *digit = text[i] != 0 ? strchr(digits, text[i]) : NULL;
        if (digit == NULL) break;
        hash = hash << 4 | HETI_T_CAST(uint64_t, digit - digits);
    }
    if (i != 16) het_json_fail(j, "a checksum is not 16 lower-case hexadecimal digits");
    else if (s->hash != NULL) s->hash[s->hashes] = hash;
    s->hashes++;
}

static void heti_f_state_file(heti_f_state *s, het_json *j, const char *name) {
    char key[16];
    size_t length = 0;
    const size_t first = s->hashes;
    int64_t size = -1;
    het_json_enter(j, HET_JSON_OBJECT);
    while (het_json_next(j, key, sizeof key, &length)) {
        if (heti_t_is(key, length, "size")) het_json_integer(j, &size);
        else if (heti_t_is(key, length, "xxh64")) {
            het_json_enter(j, HET_JSON_ARRAY);
            while (het_json_next(j, NULL, 0, NULL)) heti_f_state_hash(s, j);
        } else het_json_skip(j);
    }
    if (j->rule == NULL && (size < 0 || s->hashes - first != heti_f_blocks(HETI_T_CAST(uint64_t, size))))
        het_json_fail(j, "a file needs its size and the checksum of every MiB");
    if (s->saved == NULL) return;
    s->saved->file[s->files].name = name;
    s->saved->file[s->files].size = HETI_T_CAST(uint64_t, size);
    s->saved->file[s->files].hash = s->hash + first;
}

/* Every checkpoint has weights of one kind, the optimizer's state and config.json. No name comes
   twice. */
static void heti_f_state_files(heti_f_state *s, het_json *j) {
    char key[64], seen[HETRAIN_CHECKPOINT_FILES][64];
    size_t length = 0;
    int i, needed = 0;
    het_json_enter(j, HET_JSON_OBJECT);
    for (s->files = 0; het_json_next(j, key, sizeof key, &length); s->files++) {
        char *name = s->text != NULL ? s->text + s->bytes : NULL;
        if (s->files == HETRAIN_CHECKPOINT_FILES) het_json_fail(j, "more than 16 files");
        else if (length >= sizeof key || !het_folder_is_name(key, length))
            het_json_fail(j, "not a name for a file of a checkpoint");
        for (i = 0; i < s->files && j->rule == NULL; i++)
            if (strcmp(seen[i], key) == 0) het_json_fail(j, "a file comes twice");
        if (j->rule != NULL) return;
        memcpy(seen[s->files], key, length + 1);
        if (name != NULL) memcpy(name, key, length + 1);
        s->bytes += length + 1;
        for (i = 0; i < HETI_F_SAVED_OWN; i++)
            if (strcmp(key, heti_f_saved_names[i]) == 0 || (i == 0 && strcmp(key, heti_f_saved_adapter) == 0))
                needed += 1 << 4 * i;
        heti_f_state_file(s, j, name);
    }
    if (needed != 0x111) het_json_fail(j, "lacks config.json, optimizer.safetensors or weights");
}

static void heti_f_state_walk(heti_f_state *s, het_json *j) {
    static const char *const heti_f_keys[] = { "format", "step", "options", "files" };
    char key[16];
    size_t length = 0;
    int i, seen = 0;
    s->pairs = s->hashes = s->bytes = 0;
    het_json_enter(j, HET_JSON_OBJECT);
    while (het_json_next(j, key, sizeof key, &length)) {
        for (i = 0; i < 4 && !heti_t_is(key, length, heti_f_keys[i]); i++) {}
        if (i < 4 && ((seen >> i) & 1) != 0) het_json_fail(j, "a key comes twice");
        seen |= 1 << i;
        if (i == 0) het_json_integer(j, &s->format);
        else if (i == 1) het_json_integer(j, &s->step);
        else if (i == 2) heti_f_state_pairs(s, j);
        else if (i == 3) heti_f_state_files(s, j);
        else het_json_skip(j);
        if (i == 0 && j->rule == NULL && s->format != 1)
            het_json_fail(j, "the format of the checkpoint is not 1, which this version reads");
    }
    het_json_end(j);
    if (j->rule == NULL && (seen & 15) != 15) het_json_fail(j, "lacks format, step, options or files");
    if (j->rule == NULL && s->step < 0) het_json_fail(j, "step is negative");
}

/* state.json as a het_saved, for the checkpoint `path`. */
static het_result heti_f_state_read(const heti_f_seeker *s, const char *path, const char *text, size_t size,
                                    het_saved **saved, het_error *error) {
    heti_f_state state;
    heti_t_arena arena;
    het_json j;
    int pass;
    char tail[HETI_F_STATE_TAIL + 1];
    const size_t path_size = strlen(path) + 1, length = size - HETI_F_STATE_TAIL;
    void *block = NULL;
    char *name = NULL, *damaged = NULL;
    if (size < HETI_F_STATE_TAIL)
        return heti_t_fail(error, HET_ERR_FORMAT, "%s/state.json: %u bytes are too few", path,
                           HETI_T_CAST(uint64_t, size));
    heti_f_state_tail(tail, text, length);
    if (memcmp(tail, text + length, HETI_F_STATE_TAIL) != 0)
        return heti_t_fail(error, HET_ERR_FORMAT,
                           "%s/state.json: its last line is not the checksum of what stands before", path);
    memset(&state, 0, sizeof state);
    memset(&arena, 0, sizeof arena);
    for (pass = 0; pass < 2; pass++) {
        j = het_json_start(text, size);
        heti_f_state_walk(&state, &j);
        if (j.rule != NULL)
            return heti_t_fail(error, HET_ERR_FORMAT, "%s/state.json: byte %u: %s", path,
                               HETI_T_CAST(uint64_t, j.rule_at), j.rule);
        if (pass == 1) break;
        for (;;) { /* sizes, then places */
            arena.used = 0;
            state.saved = HETI_T_TAKE(&arena, het_saved, 1);
            state.pair = HETI_T_TAKE(&arena, het_pair, state.pairs);
            state.hash = HETI_T_TAKE(&arena, uint64_t, state.hashes);
            state.text = HETI_T_TAKE(&arena, char, state.bytes + 1);
            name = HETI_T_TAKE(&arena, char, path_size);
            damaged = HETI_T_TAKE(&arena, char, s->damaged.used + 1);
            if (block != NULL) break;
            block = arena.used < SIZE_MAX ? s->allocator->alloc(s->allocator->user, arena.used, 64) : NULL;
            if (block == NULL)
                return heti_t_fail(error, HET_ERR_OOM, "%s: the allocator gave no %u bytes", path,
                                   HETI_T_CAST(uint64_t, arena.used));
            memset(block, 0, arena.used);
            arena.base = HETI_T_CAST(char *, block);
        }
    }
    memcpy(name, path, path_size);
    if (s->damaged.used > 0) memcpy(damaged, s->damaged.data, s->damaged.used);
    state.saved->path = name;
    state.saved->damaged = damaged;
    state.saved->step = state.step;
    state.saved->files = state.files;
    state.saved->options = HETI_T_CAST(int64_t, state.pairs);
    state.saved->option = state.pair;
    state.saved->disk = *s->disk;
    state.saved->allocator = *s->allocator;
    state.saved->block = arena.used;
    *saved = state.saved;
    return HET_OK;
}

static het_result heti_f_try_candidate(const heti_f_seeker *s, const heti_f_offer *one, het_saved **saved,
                                       het_error *error) {
    const heti_f_step_name name = heti_f_step_name_of(one->step, one->old ? ".old" : "");
    const heti_f_path path = heti_f_path_of(s->directory, one->self ? "" : name.text, ""),
                      state = heti_f_path_of(path.text, "state.json", "");
    char *text;
    size_t size;
    het_result result = heti_f_disk_get(s->disk, state.text, HETI_F_STATE_LIMIT, 0, s->allocator, &text, &size, error);
    if (result != HET_OK) return result;
    result = heti_f_state_read(s, path.text, text, size, saved, error);
    s->allocator->free(s->allocator->user, text, size + 1);
    if (result == HET_OK && !one->self && (*saved)->step != one->step)
        result = heti_t_fail(error, HET_ERR_FORMAT, "%s: state.json is of step %d", path.text, (*saved)->step);
    if (result == HET_OK) result = heti_f_prove(s, *saved, error);
    if (result != HET_OK) {
        het_checkpoint_free(*saved);
        *saved = NULL;
    }
    return result;
}

static het_result heti_f_find_checkpoint(heti_f_seeker *s, het_saved **saved, het_error *error) {
    heti_f_offer *c;
    size_t left, i, best;
    het_error first = { HET_OK, "" }, own = { HET_OK, "" };
    HETI_T_TRY(heti_f_seek(s, error));
    c = HETI_T_CAST(heti_f_offer *, HETI_T_CAST(void *, s->found.data));
    for (left = s->found.used / sizeof *c; left > 0; left--) {
        het_result result;
        for (best = 0, i = 1; i < left; i++)
            if (heti_f_offer_before(s, &c[i], &c[best])) best = i;
        result = heti_f_try_candidate(s, &c[best], saved, &own);
        if (result == HET_OK) return HET_OK;
        if (result == HET_ERR_OOM) return heti_t_fail(error, result, "%s", own.text);
        if (first.text[0] == 0) first = own;
        HETI_T_TRY(heti_t_list_add(&s->damaged, own.text, strlen(own.text), s->allocator, error));
        HETI_T_TRY(heti_t_list_add(&s->damaged, "\n", 1, s->allocator, error));
        c[best] = c[left - 1];
    }
    if (first.text[0] == 0)
        return heti_t_fail(error, HET_ERR_IO, "%s: holds no checkpoint: no state.json, no step-...", s->directory);
    return heti_t_fail(error, HET_ERR_FORMAT, "%s", first.text);
}

HETRAIN_API het_result het_checkpoint_find(const het_disk *disk, const char *directory, const het_allocator *allocator,
                                           het_saved **saved, het_error *error) {
    heti_f_seeker s;
    het_allocator own;
    het_result result;
    if (saved != NULL) *saved = NULL;
    if (disk == NULL || directory == NULL || saved == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_checkpoint_find: an argument is NULL");
    if (directory[0] == 0 || strlen(directory) > HETI_F_SAVED_DIRECTORY)
        return heti_t_fail(error, HET_ERR_LIMIT, "het_checkpoint_find: a directory's name of %u bytes, "
                                                 "must have 1 to %u", HETI_T_CAST(uint64_t, strlen(directory)),
                                                 HETI_T_CAST(uint64_t, HETI_F_SAVED_DIRECTORY));
    HETI_T_TRY(heti_t_choose(allocator, &own, error, "het_checkpoint_find"));
    memset(&s, 0, sizeof s);
    s.disk = disk;
    s.allocator = &own;
    s.directory = directory;
    s.block = HETI_T_CAST(unsigned char *, own.alloc(own.user, HETI_F_SAVED_BLOCK, 64));
    if (s.block == NULL)
        return heti_t_fail(error, HET_ERR_OOM, "het_checkpoint_find: the allocator gave no 1048576 bytes");
    result = heti_f_find_checkpoint(&s, saved, error);
    own.free(own.user, s.block, HETI_F_SAVED_BLOCK);
    heti_t_list_free(&s.found, &own);
    heti_t_list_free(&s.damaged, &own);
    return result;
}

HETRAIN_API void het_checkpoint_free(het_saved *saved) {
    if (saved != NULL) saved->allocator.free(saved->allocator.user, saved, saved->block);
}

HETRAIN_API const char *het_checkpoint_option(const het_saved *saved, const char *key) {
    int64_t i;
    for (i = 0; saved != NULL && key != NULL && i < saved->options; i++)
        if (strcmp(saved->option[i].key, key) == 0) return saved->option[i].value;
    return NULL;
}

/* ---- loading ---- */

/* A reader that gives out only blocks it has proven. */
typedef struct heti_f_proven {
    const het_saved *saved;
    const het_saved_file *file;
    void *handle;
    unsigned char *block;
    uint64_t number;                  /* of the block in memory; UINT64_MAX: none */
    heti_f_path path;
    het_error error;
} heti_f_proven;

static int64_t heti_f_proven_read(void *user, uint64_t offset, void *to, size_t size) {
    heti_f_proven *p = HETI_T_CAST(heti_f_proven *, user);
    const uint64_t number = offset / HETI_F_SAVED_BLOCK, begin = number * HETI_F_SAVED_BLOCK;
    size_t there, at;
    if (offset >= p->file->size) return 0;
    there =
        HETI_T_CAST(size_t, p->file->size - begin < HETI_F_SAVED_BLOCK ? p->file->size - begin : HETI_F_SAVED_BLOCK);
    if (p->number != number) {
        p->number = UINT64_MAX;
        if (heti_f_disk_read(&p->saved->disk, p->handle, p->path.text, begin, p->block, there, &p->error) != HET_OK)
            return -1;
        if (heti_f_check_block(p->file, p->path.text, number, p->block, there, &p->error) != HET_OK) return -1;
        p->number = number;
    }
    at = HETI_T_CAST(size_t, offset - begin);
    if (size > there - at) size = there - at;
    memcpy(to, p->block + at, size);
    return HETI_T_CAST(int64_t, size);
}

static het_result heti_f_proven_open(const het_saved *saved, const char *name, heti_f_proven *p, het_reader *reader,
                                     het_error *error) {
    int64_t i;
    memset(p, 0, sizeof *p);
    memset(reader, 0, sizeof *reader);
    for (i = 0; i < saved->files && strcmp(saved->file[i].name, name) != 0; i++) {}
    if (i == saved->files) return heti_t_fail(error, HET_ERR_INVALID, "%s: has no %s", saved->path, name);
    p->saved = saved;
    p->file = &saved->file[i];
    p->number = UINT64_MAX;
    p->path = heti_f_path_of(saved->path, p->file->name, "");
    p->block = HETI_T_CAST(unsigned char *, saved->allocator.alloc(saved->allocator.user, HETI_F_SAVED_BLOCK, 64));
    if (p->block == NULL)
        return heti_t_fail(error, HET_ERR_OOM, "%s: the allocator gave no 1048576 bytes", p->path.text);
    reader->read = heti_f_proven_read;
    reader->user = p;
    reader->size = p->file->size;
    reader->name = p->path.text;
    if (heti_f_open_saved(&saved->disk, p->file, p->path.text, &p->handle, error) == HET_OK) return HET_OK;
    saved->allocator.free(saved->allocator.user, p->block, HETI_F_SAVED_BLOCK);
    return error != NULL ? error->code : HET_ERR_IO;
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
        return heti_t_fail(error, HET_ERR_INVALID, "het_checkpoint_file: an argument is NULL");
    HETI_T_TRY(heti_f_proven_open(saved, name, &p, &reader, error));
    *length = HETI_T_CAST(size_t, reader.size);
    if (capacity < *length)
        result = heti_t_fail(error, HET_ERR_LIMIT, "%s: has %u bytes, there is room for %u", p.path.text, reader.size,
                             HETI_T_CAST(uint64_t, capacity));
    else result = heti_f_read(&reader, 0, to, *length, error);
    if (p.error.text[0] != 0) result = heti_t_fail(error, p.error.code, "%s", p.error.text);
    heti_f_proven_close(&p);
    return result;
}

/* One of the two files that make a context. */
static het_result heti_f_load_saved(const het_saved *saved, het_ctx *ctx, heti_f_contents contents, int other_options,
                                    het_error *error) {
    const int adapter = contents == HETI_F_WEIGHTS && het_get_desc(ctx)->model.lora_rank > 0;
    const char *name = contents == HETI_F_STATE ? heti_f_saved_names[HETI_F_SAVED_OPTIMIZER] : adapter ?
                heti_f_saved_adapter : heti_f_saved_model;
    heti_f_proven p;
    het_reader reader;
    het_error own = { HET_OK, "" };
    het_result result;
    HETI_T_TRY(heti_f_proven_open(saved, name, &p, &reader, error));
    result = adapter ? heti_f_adapter_load(ctx, &reader, other_options, &own)
                     : heti_f_load(ctx, "het_checkpoint_load", contents, &reader, other_options, &own);
    if (result != HET_OK) {
        if (p.error.text[0] != 0) own = p.error;
        result = heti_t_fail(error, result, "%s", own.text[0] != 0 ? own.text : het_last_error(ctx));
    }
    heti_f_proven_close(&p);
    return result;
}

HETRAIN_API het_result het_checkpoint_load(const het_saved *saved, het_ctx *ctx, het_choice other_options,
                                           het_error *error) {
    if (saved == NULL || ctx == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_checkpoint_load: an argument is NULL");
    if ((het_get_condition(ctx) & HET_FAILED) != 0)
        return heti_t_fail(error, HET_ERR_STATE, "het_checkpoint_load: the context has failed");
    HETI_T_TRY(heti_f_load_saved(saved, ctx, HETI_F_WEIGHTS, other_options == HET_YES, error));
    HETI_T_TRY(heti_f_load_saved(saved, ctx, HETI_F_STATE, other_options == HET_YES, error));
    if (het_get_step(ctx) == saved->step) return HET_OK;
    return heti_t_fail(error, HET_ERR_FORMAT, "%s: state.json is of step %d, optimizer.safetensors of step %d",
                       saved->path, saved->step, het_get_step(ctx));
}

#ifdef __cplusplus
}
#endif
#define HETRAIN_FILES_IMPLEMENTATION_DONE
#endif /* HETRAIN_FILES_IMPLEMENTATION */

/* ---- changes ------------------------------------------------------------------------------------
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
