/* hetrain_tokenizer.h 0.2.0: text to tokens and back. A companion of hetrain.h that uses only its
   public API. Needs hetrain.h and hetrain_text.h beside it.

   USE
       #define HETRAIN_IMPLEMENTATION           in one source file of the program, before the
                                                includes; the other files include them without.
       #define HETRAIN_TOKENIZER_IMPLEMENTATION
       #include "hetrain.h"
       #include "hetrain_tokenizer.h"
   The two implementations may stand in one file or in two. Needs libc; no libm, no threads, no
   stdio.

   WHAT IT DOES
   A tokenizer is Hugging Face's tokenizer.json of the byte-level BPE family: GPT-2, Llama 3, Qwen 2
   to 3, GPT-NeoX and what was made like them. It is read, or trained from text, and gives the ids
   that Hugging Face's `tokenizers` gives.

       het_tokenizer_read(json, size, NULL, &tokenizer, &error)                                       a file's text
       het_tokenizer_encode(tokenizer, NULL, text, length, token, capacity, &count, &error)           text -> ids
       het_tokenizer_decode(tokenizer, token, count, HET_NO, to, size, &length, &error)               ids -> bytes
   programs/tokenize.c is the same as a program.

   WHAT IT DOES NOT DO
   Of tokenizers: no WordPiece, no Unigram, no BPE over characters (SentencePiece's); of ways to cut
   a text into words those of GPT-2, Llama 3 and Qwen 2 alone, and of normalizers NFC. Anything else
   in a file is an error that names its place: a tokenizer that is nearly the right one would spoil
   a training run without a word.

   OPTIONS   (macros, defined before the include)
       HETRAIN_TOKENIZER_IMPLEMENTATION  one file of the program has it, and gets the code
       HETRAIN_STATIC                    as in hetrain.h: all functions static, a private copy
       HETRAIN_NO_DEFAULT_ALLOCATOR      no malloc: calls that allocate must get an allocator

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
       >>tokenizer_api   het_tokenizer_read het_tokenizer_write het_tokenizer_free
                         het_tokenizer_get_info het_tokenizer_get_token het_tokenizer_spell
                         het_tokenizer_get_merge het_tokenizer_find het_tokenizer_encode
                         het_tokenizer_decode het_tokenizer_train

   CONTENTS   (tags to search for)
   public API:
       >>tokenizer_api   tokenizer.json: reading, training, encoding, decoding
   implementation:
       >>unicode         UTF-8, general categories, canonical composition
       >>split           text into words
       >>match           added tokens in a text
       >>tokenizer       a tokenizer in memory, what stands in tokenizer.json
       >>encode          text to ids
       >>decode          ids to text, questions about tokens
       >>learn           training
*/

#ifndef HETRAIN_TOKENIZER_H
#define HETRAIN_TOKENIZER_H

#ifndef HETRAIN_H
#include "hetrain.h"
#endif
#include "hetrain_text.h"

#ifdef __cplusplus
extern "C" {
#endif

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
                                                               size_t capacity, size_t *length, het_error *error);
/* Learns merges from text, in which special tokens bound words: again and again the commonest pair
   of neighbours, of equals the one with the lower left id, then the lower right. Fewer than
   desc->vocab ids come out where no pair is left that was met min_count times. n log n in the text.
   Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_tokenizer_train(const het_tokenizer_desc *desc, const char *text,
                                                              size_t length, het_tokenizer **tokenizer,
                                                              het_error *error);

#ifdef __cplusplus
}
#endif
#endif /* HETRAIN_TOKENIZER_H ---- end of the API: to use hetrain_tokenizer.h you need nothing below ---- */
#if defined(HETRAIN_TOKENIZER_IMPLEMENTATION) && !defined(HETRAIN_TOKENIZER_IMPLEMENTATION_DONE)

#define HETI_T_WANTED
#include "hetrain_text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* =================================================================================================
   >>unicode  UTF-8, the classes of characters that patterns ask for, and canonical composition
              (NFC, Unicode Standard Annex 15).
   ============================================================================================== */

/* NUMBER: general categories Nd and Nl, OTHER_NUMBER: No. WORD: what regular expressions call \w
   beyond L, Nd and Nl. */
typedef enum heti_k_class {
    HETI_K_OTHER = 0, HETI_K_LETTER = 1, HETI_K_NUMBER = 2, HETI_K_OTHER_NUMBER = 3, HETI_K_WORD = 4, HETI_K_SPACE = 5
} heti_k_class;

#define HETI_K_CHANGES 256u /* alone it is not in NFC */
#define HETI_K_JOINS 512u   /* it may change places or compose with what stands before it */

/* ---- tables made by tests/oracle/unicode_tables.py ---- */
/* Unicode 16.0.0. (first code point << 3 | heti_k_class) of every run of one class. */
static const uint32_t heti_k_classes[2011] = {
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
/* (first code point << 10 | HETI_K_JOINS | HETI_K_CHANGES | canonical combining class) of every
   run; 120 marks newer than Unicode 9 are left out. */
static const uint32_t heti_k_normals[678] = {
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
static const uint32_t heti_k_decompositions[2060][3] = {
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
/* Places in heti_k_decompositions of what composes again, ascending by (first, second). */
static const uint16_t heti_k_compositions[940] = {
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
static uint32_t heti_k_point_before(const unsigned char *text, size_t at, size_t *size) {
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
static uint32_t heti_k_run(const uint32_t *run, size_t count, uint32_t point, int bits) {
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

static heti_k_class heti_k_class_of(uint32_t point) {
    if (point < 0x80) {
        if ((point | 32u) - 'a' < 26u) return HETI_K_LETTER;
        if (point - '0' < 10u) return HETI_K_NUMBER;
        if (point == ' ' || point - 9u < 5u) return HETI_K_SPACE;
        return point == '_' ? HETI_K_WORD : HETI_K_OTHER;
    }
    if (point == HETI_T_INVALID) return HETI_K_OTHER;
    return HETI_T_CAST(heti_k_class, heti_k_run(heti_k_classes, sizeof heti_k_classes / sizeof heti_k_classes[0], point,
                                                3));
}

static uint32_t heti_k_normal_of(uint32_t point) {
    if (point < 0x300 || point == HETI_T_INVALID) return 0;
    return heti_k_run(heti_k_normals, sizeof heti_k_normals / sizeof heti_k_normals[0], point, 10);
}

/* ---- NFC ---- */

/* the first of 19 * 21 * 28 syllables, composed by arithmetic (The Unicode Standard, 3.12) */
#define HETI_K_HANGUL 0xAC00u
#define HETI_K_SYLLABLES 11172u

/* Full canonical decomposition of a code point, appended to `to` as (class << 24 | code point); at
   most 4 (checked when the tables are made: 18 is the limit of NFKD). Returns how many. */
static size_t heti_k_decompose(uint32_t point, uint32_t *to) {
    const size_t count = sizeof heti_k_decompositions / sizeof heti_k_decompositions[0];
    size_t low = 0, high = count, made;
    if (point - HETI_K_HANGUL < HETI_K_SYLLABLES) {
        const uint32_t index = point - HETI_K_HANGUL;
        to[0] = 0x1100u + index / 588u;
        to[1] = 0x1161u + index % 588u / 28u;
        if (index % 28u == 0) return 2;
        to[2] = 0x11A7u + index % 28u;
        return 3;
    }
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (heti_k_decompositions[middle][0] < point) low = middle + 1;
        else high = middle;
    }
    if (low == count || heti_k_decompositions[low][0] != point) {
        to[0] = (heti_k_normal_of(point) & 255u) << 24 | point;
        return 1;
    }
    made = heti_k_decompose(heti_k_decompositions[low][1], to);
    if (heti_k_decompositions[low][2] != 0) made += heti_k_decompose(heti_k_decompositions[low][2], to + made);
    return made;
}

/* What two code points compose to, or 0. */
static uint32_t heti_k_compose(uint32_t first, uint32_t second) {
    size_t low = 0, high = sizeof heti_k_compositions / sizeof heti_k_compositions[0];
    const size_t count = high;
    if (first - 0x1100u < 19u && second - 0x1161u < 21u)
        return HETI_K_HANGUL + ((first - 0x1100u) * 21u + second - 0x1161u) * 28u;
    if (first - HETI_K_HANGUL < HETI_K_SYLLABLES && (first - HETI_K_HANGUL) % 28u == 0 && second - 0x11A8u < 27u)
        return first + second - 0x11A7u;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const uint32_t *entry = heti_k_decompositions[heti_k_compositions[middle]];
        if (entry[1] < first || (entry[1] == first && entry[2] < second)) low = middle + 1;
        else high = middle;
    }
    if (low == count) return 0;
    return heti_k_decompositions[heti_k_compositions[low]][1] == first &&
           heti_k_decompositions[heti_k_compositions[low]][2] == second
        ? heti_k_decompositions[heti_k_compositions[low]][0] : 0;
}

/* Sorts value[0 .. count) by its bits from `shift` up, equal ones in their order: runs of 1, 2, 4,
   ... are merged into spare and copied back. */
static void heti_k_sort(uint32_t *value, uint32_t *spare, size_t count, int shift) {
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
static size_t heti_k_recompose(uint32_t *point, uint32_t *spare, size_t count) {
    size_t i, begin = 0, starter = count, made = 0;
    uint32_t last = 0;
    for (i = 0; i <= count; i++) {
        if (i < count && point[i] >> 24 != 0) continue;
        if (i - begin > 1) heti_k_sort(point + begin, spare, i - begin, 24);
        begin = i + 1;
    }
    for (i = 0; i < count; i++) {
        const uint32_t kind = point[i] >> 24, both =
            starter < made && (made == starter + 1 || last < kind) ? heti_k_compose(point[starter],
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
static size_t heti_k_normal_run(const unsigned char *text, size_t length, size_t at, int *plain) {
    size_t size, end;
    const uint32_t first = heti_k_normal_of(heti_t_point(text, length, at, &size));
    end = at + size;
    *plain = (first & HETI_K_CHANGES) == 0;
    while (end < length && text[end] >= 0xCC) { /* below lie the code points up to U+02FF, which never join */
        if ((heti_k_normal_of(heti_t_point(text, length, end, &size)) & HETI_K_JOINS) == 0) break;
        end += size;
        *plain = 0;
    }
    return end;
}

/* Appends the NFC of text to `to`. `points` is room for code points. */
static het_result heti_k_nfc(const unsigned char *text, size_t length, heti_t_list *to, heti_t_list *points,
                             const het_allocator *allocator, het_error *error) {
    size_t at = 0, begin = 0;
    while (at < length) {
        int plain;
        size_t end = heti_k_normal_run(text, length, at, &plain), count = 0, size, i, room;
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
            count += heti_k_decompose(c, point + count);
        }
        count = heti_k_recompose(point, point + (end - at) * 2, count);
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
static int heti_k_byte_of_letter(uint32_t point) {
    if (point >= 324) return -1;
    if (point >= 256)
        return HETI_T_CAST(int, point <= 288 ? point - 256 : point == 289 ? 127 : point <= 322 ? point - 162 : 173);
    return heti_t_letter_of_byte(HETI_T_CAST(unsigned char, point)) == point ? HETI_T_CAST(int, point) : -1;
}

/* Turns letters of the alphabet into bytes, in place, and returns their number; if some character
   is none of it, changes nothing and returns `length`, with *whole 0. */
static size_t heti_k_unspell(char *text, size_t length, int *whole) {
    const unsigned char *from = HETI_T_CAST(const unsigned char *, HETI_T_CAST(const void *, text));
    size_t at, size, made = 0;
    *whole = 0;
    for (at = 0; at < length; at += size)
        if (heti_k_byte_of_letter(heti_t_point(from, length, at, &size)) < 0) return length;
    for (at = 0; at < length; at += size) {
        const int byte = heti_k_byte_of_letter(heti_t_point(from, length, at, &size));
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

typedef struct heti_k_words { const unsigned char *text; size_t length; } heti_k_words;

/* L, N, white space, or anything else (what \w adds is nothing to these patterns). */
static heti_k_class heti_k_kind(const heti_k_words *w, size_t at, size_t *size) {
    const heti_k_class kind = heti_k_class_of(heti_t_point(w->text, w->length, at, size));
    return kind == HETI_K_OTHER_NUMBER ? HETI_K_NUMBER : kind == HETI_K_WORD ? HETI_K_OTHER : kind;
}

/* The end of the run of one kind, of at most `most` characters; *last is where its last character
   begins. */
static size_t heti_k_run_end(const heti_k_words *w, size_t at, heti_k_class kind, size_t most, size_t *last) {
    size_t size;
    *last = at;
    for (; at < w->length && most > 0 && heti_k_kind(w, at, &size) == kind; at += size, most--) *last = at;
    return at;
}

/* Behind 's 't 're 've 'm 'll 'd, or `at` if none stands there. Without regard to case U+017F, the
   long s, is an s. */
static size_t heti_k_contraction(const heti_k_words *w, size_t at, int any_case) {
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
static size_t heti_k_space_end(const heti_k_words *w, size_t at) {
    size_t last;
    const size_t end = heti_k_run_end(w, at, HETI_K_SPACE, SIZE_MAX, &last);
    return end == w->length || last == at ? end : last;
}

static size_t heti_k_word_gpt2(const heti_k_words *w, size_t at) {
    size_t size, last, end = heti_k_contraction(w, at, 0);
    const size_t from = at + (w->text[at] == ' ' && at + 1 < w->length);
    const heti_k_class kind = heti_k_kind(w, from, &size);
    if (end > at) return end;
    return kind == HETI_K_SPACE ? heti_k_space_end(w, at) : heti_k_run_end(w, from, kind, SIZE_MAX, &last);
}

static int heti_k_is_newline(unsigned char c) { return c == '\n' || c == '\r'; }

static size_t heti_k_word_llama3(const heti_k_words *w, size_t at, size_t digits) {
    size_t size, next, last, end = heti_k_contraction(w, at, 1);
    const heti_k_class kind = heti_k_kind(w, at, &size);
    const size_t from = at + (w->text[at] == ' ');
    if (end > at) return end;
    if (kind == HETI_K_LETTER) return heti_k_run_end(w, at, kind, SIZE_MAX, &last);
    if (kind == HETI_K_NUMBER) return heti_k_run_end(w, at, kind, digits, &last);
    if (!heti_k_is_newline(w->text[at]) && at + size < w->length && heti_k_kind(w, at + size, &next) == HETI_K_LETTER)
        return heti_k_run_end(w, at + size, HETI_K_LETTER, SIZE_MAX, &last);
    if (from < w->length && heti_k_kind(w, from, &next) == HETI_K_OTHER) {
        end = heti_k_run_end(w, from, HETI_K_OTHER, SIZE_MAX, &last);
        while (end < w->length && heti_k_is_newline(w->text[end])) end++;
        return end;
    }
    end = heti_k_run_end(w, at, HETI_K_SPACE, SIZE_MAX, &last);
    for (next = end; next > at; next--) /* up to the last line break, if there is one */
        if (heti_k_is_newline(w->text[next - 1])) return next;
    return end == w->length || last == at ? end : last;
}

static size_t heti_k_word_end(const heti_k_words *w, het_split split, size_t at) {
    if (split == HET_SPLIT_LLAMA3) return heti_k_word_llama3(w, at, 3);
    if (split == HET_SPLIT_QWEN2) return heti_k_word_llama3(w, at, 1);
    return split == HET_SPLIT_WHOLE ? w->length : heti_k_word_gpt2(w, at);
}

/* =================================================================================================
   >>match  Added tokens in a text, the leftmost and of those the longest (Aho and Corasick,
            Communications of the ACM 18, 1975, on patterns and
   text read backwards: the longest pattern that ends at a byte then is the longest that begins
   there). Linear whatever the tokens are.
   ============================================================================================== */

/* The smallest power of two that leaves a table of `count` entries at least half empty. */
static size_t heti_k_slots(size_t count) {
    size_t slots = 16;
    while (slots / 2 < count && slots <= SIZE_MAX / 4) slots *= 2;
    return slots;
}

/* Keys come from files that somebody may have made to collide: the seed is a hash of the whole
   file. (The mixing constants are splitmix64's.) */
static uint64_t heti_k_mix(uint64_t key, uint64_t seed) {
    key = (key ^ seed) * UINT64_C(0xBF58476D1CE4E5B9);
    key = (key ^ (key >> 29)) * UINT64_C(0x94D049BB133111EB);
    return key ^ (key >> 32);
}

typedef struct heti_k_matcher {
    uint64_t *key;                    /* [slots] node << 8 | byte of an edge, plus 1; 0: free */
    int32_t *child;                   /* [slots] where it leads */
    int32_t *fail, *out;              /* [nodes] node of the longest proper suffix; entry of the
                                         longest pattern that ends here, or -1 */
    size_t slots, nodes;
    int32_t root[256];                /* edges of node 0, or 0 */
} heti_k_matcher;

/* A match: where it begins, and which added token it is. */
typedef struct heti_k_found { size_t at; int32_t added, unused; } heti_k_found;

static size_t heti_k_match_slot(const heti_k_matcher *m, uint64_t key) {
    size_t slot = HETI_T_CAST(size_t, heti_k_mix(key, 0)) & (m->slots - 1);
    while (m->key[slot] != 0 && m->key[slot] != key) slot = (slot + 1) & (m->slots - 1);
    return slot;
}

/* The child of `node` by `byte`, 0: none (node 0 is nobody's child). */
static int32_t heti_k_match_child(const heti_k_matcher *m, int32_t node, unsigned char byte) {
    size_t slot;
    if (node == 0) return m->root[byte];
    slot = heti_k_match_slot(m, (HETI_T_CAST(uint64_t, node) << 8 | byte) + 1);
    return m->key[slot] != 0 ? m->child[slot] : 0;
}

static int32_t heti_k_match_step(const heti_k_matcher *m, int32_t node, unsigned char byte) {
    int32_t next;
    while ((next = heti_k_match_child(m, node, byte)) == 0 && node != 0) node = m->fail[node];
    return next;
}

/* The child of `node` by `byte`, made if it is not there. All nodes nearer to the root exist, so
   its suffix is known. */
static int32_t heti_k_match_extend(heti_k_matcher *m, int32_t node, unsigned char byte) {
    int32_t next = heti_k_match_child(m, node, byte), made;
    if (next != 0) return next;
    made = HETI_T_CAST(int32_t, m->nodes++);
    m->fail[made] = node == 0 ? 0 : heti_k_match_step(m, m->fail[node], byte);
    m->out[made] = m->out[m->fail[made]];
    if (node == 0) m->root[byte] = made;
    else {
        const uint64_t key = (HETI_T_CAST(uint64_t, node) << 8 | byte) + 1;
        const size_t slot = heti_k_match_slot(m, key);
        m->key[slot] = key;
        m->child[slot] = made;
    }
    return made;
}

/* All matches, of any length, as the longest one at each byte that has one; the last one in the
   text first. */
static het_result heti_k_match_all(const heti_k_matcher *m, const unsigned char *text, size_t length,
                                   heti_t_list *found, const het_allocator *allocator, het_error *error) {
    size_t at;
    int32_t node = 0;
    heti_k_found hit;
    memset(&hit, 0, sizeof hit);
    if (m->nodes <= 1) return HET_OK;
    for (at = length; at-- > 0;) {
        node = heti_k_match_step(m, node, text[at]);
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
typedef struct heti_k_token {
    uint32_t bytes, length;           /* in het_tokenizer.bytes */
    int32_t id;
    uint8_t spelled;                  /* 1: the file's text is the bytes' in the alphabet; 0: it is
                                         the bytes themselves */
    uint8_t is_added, special, unused;
} heti_k_token;

typedef struct heti_k_added {
    uint32_t content, content_length; /* in het_tokenizer.bytes: as it stands in the file */
    uint32_t pattern, pattern_length; /* what is looked for: the same, or its NFC */
    int32_t id;
    uint8_t special, normalized, lstrip, rstrip, single_word, unused[3];
} heti_k_added;

struct het_tokenizer {
    het_tokenizer_info info;
    het_allocator allocator;
    size_t size;                      /* of the block */
    uint64_t seed;                    /* of the hash tables */
    char *json, *bytes, *scratch;     /* scratch: for the texts of one merge, while reading */
    size_t json_length, bytes_used, bytes_size, scratch_size;
    heti_k_token *token;              /* [model_tokens + added] */
    int64_t model_tokens;
    int32_t *place;                   /* [vocab] of an id in token, -1: none */
    uint32_t *slot;                   /* [slots] hash of bytes -> place in token + 1, model's
                                         tokens; of content -> model_tokens + added + 1 */
    size_t slots;
    uint64_t *pair;                   /* [pair_slots] left id << 32 | right id, plus 1; 0: free */
    uint32_t *rank;                   /* [pair_slots] of the merge */
    size_t pair_slots;
    int32_t *left, *right, *joined;   /* [merges] ids */
    heti_k_added *added;              /* [added] */
    heti_k_matcher matcher[2];        /* in the text as it is; in normalized text */
    int32_t *wrap;                    /* prefix, suffix */
    int32_t byte_id[256];             /* -1: the vocabulary lacks it */
    size_t longest;                   /* bytes of the model's longest token */
};

/* ---- looking up ---- */

typedef enum heti_k_key { HETI_K_KEY_BYTES = 0, HETI_K_KEY_TEXT = 1, HETI_K_KEY_ADDED = 2 } heti_k_key;

/* The slot of a model's token by bytes or text, or of an added token by content: where it is, or
   would be. */
static size_t heti_k_slot(const het_tokenizer *t, heti_k_key kind, const char *text, size_t length) {
    size_t slot = HETI_T_CAST(size_t, het_xxh64(text, length, t->seed + HETI_T_CAST(uint64_t, kind))) & (t->slots - 1);
    for (; t->slot[slot] != 0; slot = (slot + 1) & (t->slots - 1)) {
        const size_t place = t->slot[slot] - 1, models = HETI_T_CAST(size_t, t->model_tokens);
        if (place >= models) {
            const heti_k_added *a = &t->added[place - models];
            if (kind == HETI_K_KEY_ADDED && a->content_length == length && memcmp(t->bytes + a->content, text,
                length) == 0)
                break;
        } else {
            const heti_k_token *e = &t->token[place];
            if (kind == (e->spelled ? HETI_K_KEY_BYTES : HETI_K_KEY_TEXT) && e->length == length &&
                memcmp(t->bytes + e->bytes, text, length) == 0)
                break;
        }
    }
    return slot;
}

/* Place in `token` of what the model writes as text[0 .. length), or -1. text may be changed. */
static int64_t heti_k_model_place(const het_tokenizer *t, char *text, size_t length) {
    int spelled;
    const size_t bytes = heti_k_unspell(text, length, &spelled);
    return HETI_T_CAST(int64_t, t->slot[heti_k_slot(t, spelled ? HETI_K_KEY_BYTES : HETI_K_KEY_TEXT, text, bytes)]) - 1;
}

static size_t heti_k_pair_slot(const het_tokenizer *t, uint64_t key) {
    size_t slot = HETI_T_CAST(size_t, heti_k_mix(key, t->seed)) & (t->pair_slots - 1);
    while (t->pair[slot] != 0 && t->pair[slot] != key) slot = (slot + 1) & (t->pair_slots - 1);
    return slot;
}

static uint64_t heti_k_pair_key(int32_t left, int32_t right) {
    return (HETI_T_CAST(uint64_t, left) << 32 | HETI_T_CAST(uint64_t, right)) + 1;
}

/* ---- reading parts of the file ---- */

typedef struct heti_k_source {
    const char *text;
    size_t length;
    het_error *error;
} heti_k_source;

/* An error at a byte of the file. */
static het_result heti_k_bad(const heti_k_source *s, het_result code, size_t at, const char *format, ...) {
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
static het_result heti_k_json(const heti_k_source *s, const het_json *j) {
    return j->rule == NULL ? HET_OK : heti_k_bad(s, HET_ERR_FORMAT, j->rule_at, "%s", j->rule);
}

/* The place of a word in a list that | separates; -1: it is not there. Behind a word of the list
   may stand a !. */
static int heti_k_place_of(const char *list, const char *word, size_t length) {
    int place;
    for (place = 0; *list != 0; place++) {
        const size_t end = strcspn(list, "|"), own = strcspn(list, "!|");
        if (own == length && memcmp(list, word, length) == 0) return place;
        list += end + (list[end] == '|');
    }
    return -1;
}

/* Takes the object at *j. value[i] becomes a cursor at the value of the i-th of `names`, its text
   NULL where that is not given. A name with a ! must be given. Other names, and equal ones, are
   errors. */
static het_result heti_k_fields(const heti_k_source *s, het_json *j, const char *where, const char *names,
                                het_json *value) {
    const size_t at = j->at;
    const char *name;
    char key[64];
    size_t length;
    int i = 0;
    for (name = names; name != NULL; name = strchr(name + 1, '|')) memset(&value[i++], 0, sizeof *value);
    if (!het_json_enter(j, HET_JSON_OBJECT)) return heti_k_json(s, j);
    while (het_json_next(j, key, sizeof key, &length)) {
        const size_t shown = heti_t_shown(length, sizeof key);
        i = length < sizeof key ? heti_k_place_of(names, key, length) : -1;
        if (i < 0) return heti_k_bad(s, HET_ERR_UNSUPPORTED, j->at, "%s has an unknown key %q", where, key, shown);
        if (value[i].text != NULL)
            return heti_k_bad(s, HET_ERR_FORMAT, j->at, "%s has the key %q twice", where, key, shown);
        value[i] = *j;
        het_json_skip(j);
    }
    HETI_T_TRY(heti_k_json(s, j));
    for (i = 0, name = names; *name != 0; i++) {
        length = strcspn(name, "!|");
        if (name[length] == '!' && value[i].text == NULL)
            return heti_k_bad(s, HET_ERR_FORMAT, at, "%s lacks %q", where, name, length);
        name += strcspn(name, "|");
        name += *name == '|';
    }
    return HET_OK;
}

/* A value that is not there counts as null. */
static int heti_k_is_null(const het_json *value) {
    het_json j = *value;
    return value->text == NULL || het_json_peek(&j) == HET_JSON_NULL;
}

/* *flag: a boolean; `otherwise` where it is not there. */
static het_result heti_k_flag(const heti_k_source *s, const het_json *value, int otherwise, int *flag) {
    het_json j = *value;
    *flag = otherwise;
    if (value->text == NULL) return HET_OK;
    het_json_boolean(&j, flag);
    return heti_k_json(s, &j);
}

/* A string, cut to what fits. */
static het_result heti_k_string(const heti_k_source *s, const het_json *value, char *to, size_t capacity,
                                size_t *length) {
    het_json j = *value;
    het_json_string(&j, to, capacity, length);
    return heti_k_json(s, &j);
}

/* The value of the key "type" of the object at *at, which must be one of `words`, separated by |;
   *which: 0 for the first. */
static het_result heti_k_type(const heti_k_source *s, const het_json *at, const char *where, const char *words,
                              int *which) {
    char key[64], type[64];
    size_t length, shown = 0;
    het_json j = *at;
    type[0] = 0;
    if (!het_json_enter(&j, HET_JSON_OBJECT)) return heti_k_json(s, &j);
    while (het_json_next(&j, key, sizeof key, &length)) {
        if (heti_t_is(key, length, "type")) {
            het_json_string(&j, type, sizeof type, &shown);
            break;
        }
        het_json_skip(&j);
    }
    HETI_T_TRY(heti_k_json(s, &j));
    *which = shown < sizeof type ? heti_k_place_of(words, type, shown) : -1;
    if (*which >= 0) return HET_OK;
    return heti_k_bad(s, HET_ERR_UNSUPPORTED, j.at, "%s of type %q; what is supported: %s", where, type,
                       heti_t_shown(shown, sizeof type), words);
}

/* The value must be null or not there. */
static het_result heti_k_only_null(const heti_k_source *s, const het_json *value, const char *where) {
    if (heti_k_is_null(value)) return HET_OK;
    return heti_k_bad(s, HET_ERR_UNSUPPORTED, value->at, "%s is set, and only null is supported", where);
}

/* ---- normalizer, pre_tokenizer, decoder ---- */

static het_result heti_k_read_normalizer(const heti_k_source *s, const het_json *value, het_tokenizer_info *info) {
    het_json j = *value, field[1];
    int which;
    if (heti_k_is_null(value)) return HET_OK;
    HETI_T_TRY(heti_k_type(s, value, "normalizer", "NFC", &which));
    info->nfc = 1;
    return heti_k_fields(s, &j, "normalizer", "type", field);
}

/* ByteLevel as a pre-tokenizer, decoder or post-processor. *regex: its own pattern is used. */
static het_result heti_k_read_byte_level(const heti_k_source *s, const het_json *value, const char *where,
                                         int *prefix_space, int *regex) {
    het_json j = *value, field[4];
    int which, trim;
    HETI_T_TRY(heti_k_type(s, value, where, "ByteLevel", &which));
    HETI_T_TRY(heti_k_fields(s, &j, where, "type|add_prefix_space|trim_offsets|use_regex", field));
    HETI_T_TRY(heti_k_flag(s, &field[1], 1, prefix_space));
    HETI_T_TRY(heti_k_flag(s, &field[2], 1, &trim));
    return heti_k_flag(s, &field[3], 1, regex);
}

/* The patterns that words are cut by, as tokenizer.json writes them. */
typedef struct heti_k_cutting { het_split split; const char *pattern; } heti_k_cutting;
static const heti_k_cutting heti_k_cuttings[3] = {
    { HET_SPLIT_GPT2, "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+" },
    { HET_SPLIT_LLAMA3, "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
      "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" },
    { HET_SPLIT_QWEN2, "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
      "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" }
};

static het_result heti_k_read_pattern(const heti_k_source *s, const het_json *value, het_split *split) {
    het_json j = *value, field[1];
    char text[256];
    size_t length, i;
    HETI_T_TRY(heti_k_fields(s, &j, "pre_tokenizer's Split's pattern", "Regex!", field));
    HETI_T_TRY(heti_k_string(s, &field[0], text, sizeof text, &length));
    for (i = 0; i < 3; i++) {
        if (!heti_t_is(text, length < sizeof text ? length : 0, heti_k_cuttings[i].pattern)) continue;
        *split = heti_k_cuttings[i].split;
        return HET_OK;
    }
    return heti_k_bad(s, HET_ERR_UNSUPPORTED, field[0].at,
                      "pre_tokenizer's Split has a pattern other than GPT-2's, Llama 3's and Qwen 2's: %q", text,
                      heti_t_shown(length, sizeof text));
}

/* Every character belongs to a match, so matches kept apart (Isolated) and everything else removed
   (Removed, inverted) are the same. */
static het_result heti_k_read_split(const heti_k_source *s, const het_json *value, het_split *split) {
    het_json j = *value, field[4];
    char behavior[32];
    size_t length;
    int which, invert;
    HETI_T_TRY(heti_k_type(s, value, "first of pre_tokenizer's Sequence", "Split", &which));
    HETI_T_TRY(heti_k_fields(s, &j, "pre_tokenizer's Split", "type|pattern!|behavior!|invert", field));
    HETI_T_TRY(heti_k_read_pattern(s, &field[1], split));
    HETI_T_TRY(heti_k_string(s, &field[2], behavior, sizeof behavior, &length));
    HETI_T_TRY(heti_k_flag(s, &field[3], 0, &invert));
    if (length < sizeof behavior && (heti_t_is(behavior, length, "Isolated") ||
                                     (invert && heti_t_is(behavior, length, "Removed"))))
        return HET_OK;
    return heti_k_bad(s, HET_ERR_UNSUPPORTED, field[2].at,
                      "pre_tokenizer's Split has the behavior %q, not Isolated or Removed inverted", behavior,
                      heti_t_shown(length, sizeof behavior));
}

/* ByteLevel, or a Sequence of Split and ByteLevel without its pattern. */
static het_result heti_k_read_pre_tokenizer(const heti_k_source *s, const het_json *value, het_tokenizer_info *info) {
    const size_t at = value->at;
    het_json j = *value, field[2], item[2];
    int which, prefix_space, regex, count = 0;
    if (heti_k_is_null(value))
        return heti_k_bad(s, HET_ERR_UNSUPPORTED, at, "pre_tokenizer is null: not a byte-level tokenizer");
    HETI_T_TRY(heti_k_type(s, value, "pre_tokenizer", "ByteLevel|Sequence", &which));
    if (which == 0) {
        HETI_T_TRY(heti_k_read_byte_level(s, value, "pre_tokenizer", &prefix_space, &regex));
        info->split = regex ? HET_SPLIT_GPT2 : HET_SPLIT_WHOLE;
        info->prefix_space = prefix_space;
        return HET_OK;
    }
    HETI_T_TRY(heti_k_fields(s, &j, "pre_tokenizer", "type|pretokenizers!", field));
    j = field[1];
    het_json_enter(&j, HET_JSON_ARRAY);
    while (het_json_next(&j, NULL, 0, NULL)) {
        if (count < 2) item[count] = j;
        count++;
        het_json_skip(&j);
    }
    HETI_T_TRY(heti_k_json(s, &j));
    if (count != 2)
        return heti_k_bad(s, HET_ERR_UNSUPPORTED, field[1].at,
                          "pre_tokenizer's Sequence has %d members; what is supported: Split, ByteLevel",
                          HETI_T_CAST(int64_t, count));
    HETI_T_TRY(heti_k_read_split(s, &item[0], &info->split));
    HETI_T_TRY(heti_k_read_byte_level(s, &item[1], "second of pre_tokenizer's Sequence", &prefix_space, &regex));
    if (!regex && !prefix_space) return HET_OK;
    return heti_k_bad(s, HET_ERR_UNSUPPORTED, item[1].at,
                      "ByteLevel behind Split has %s true, and only false is supported",
                      regex ? "use_regex" : "add_prefix_space");
}

static het_result heti_k_read_decoder(const heti_k_source *s, const het_json *value) {
    int prefix_space, regex;
    if (heti_k_is_null(value))
        return heti_k_bad(s, HET_ERR_UNSUPPORTED, value->at, "decoder is null: not a byte-level tokenizer");
    return heti_k_read_byte_level(s, value, "decoder", &prefix_space, &regex);
}

/* ---- post_processor: what stands before and behind a text ---- */

#define HETI_K_WRAP 64 /* ids a template may put around a text */

typedef struct heti_k_wrap {
    int given, prefixes, count;
    int32_t id[HETI_K_WRAP];
    size_t at[HETI_K_WRAP];          /* byte of the file, for messages */
} heti_k_wrap;

/* The ids of one special token of a template, from its table {"<s>": {"id": "<s>", "ids": [1],
   "tokens": ["<s>"]}, ...}. */
static het_result heti_k_read_template_ids(const heti_k_source *s, const het_json *table, const het_json *name,
                                           heti_k_wrap *wrap) {
    char wanted[256], key[256];
    size_t length, key_length;
    const size_t at = name->at;
    int64_t id;
    het_json j = *table, field[3];
    HETI_T_TRY(heti_k_string(s, name, wanted, sizeof wanted, &length));
    if (length >= sizeof wanted)
        return heti_k_bad(s, HET_ERR_LIMIT, at, "a template's token of %d bytes; the most are 255",
                          HETI_T_CAST(int64_t, length));
    het_json_enter(&j, HET_JSON_OBJECT);
    while (het_json_next(&j, key, sizeof key, &key_length)) {
        if (key_length != length || memcmp(key, wanted, length) != 0) { het_json_skip(&j); continue; }
        HETI_T_TRY(heti_k_fields(s, &j, "a template's special token", "id|ids!|tokens", field));
        j = field[1];
        het_json_enter(&j, HET_JSON_ARRAY);
        while (het_json_next(&j, NULL, 0, NULL)) {
            if (wrap->count == HETI_K_WRAP)
                return heti_k_bad(s, HET_ERR_LIMIT, j.at, "a template of more than %d ids",
                                   HETI_T_CAST(int64_t, HETI_K_WRAP));
            wrap->at[wrap->count] = j.at;
            if (!het_json_integer(&j, &id)) break;
            if (id < 0 || id > INT32_MAX - 1) id = INT32_MAX; /* never an id: refused when the vocabulary is known */
            wrap->id[wrap->count++] = HETI_T_CAST(int32_t, id);
        }
        return heti_k_json(s, &j);
    }
    HETI_T_TRY(heti_k_json(s, &j));
    return heti_k_bad(s, HET_ERR_FORMAT, at, "the template's token %q is not among its special_tokens", wanted, length);
}

/* One piece of the template "single": {"Sequence": {"id": "A", "type_id": 0}} or {"SpecialToken":
   {"id": "<s>", "type_id": 0}}. */
static het_result heti_k_read_template_piece(const heti_k_source *s, het_json *piece, const het_json *table,
                                             heti_k_wrap *wrap, int *sequences) {
    const size_t at = piece->at;
    het_json field[2], part[2], j;
    char name[2];
    size_t length;
    HETI_T_TRY(heti_k_fields(s, piece, "a template's piece", "Sequence|SpecialToken", field));
    if ((field[0].text != NULL) == (field[1].text != NULL))
        return heti_k_bad(s, HET_ERR_FORMAT, at, "a template's piece is not one of Sequence and SpecialToken");
    j = field[0].text != NULL ? field[0] : field[1];
    HETI_T_TRY(heti_k_fields(s, &j, "a template's piece", "id!|type_id", part));
    if (field[1].text != NULL) return heti_k_read_template_ids(s, table, &part[0], wrap);
    HETI_T_TRY(heti_k_string(s, &part[0], name, sizeof name, &length));
    if (!heti_t_is(name, length < sizeof name ? length : 0, "A") || ++*sequences > 1)
        return heti_k_bad(s, HET_ERR_UNSUPPORTED, at, "the template \"single\" has a sequence other than one A");
    wrap->prefixes = wrap->count;
    return HET_OK;
}

static het_result heti_k_read_template(const heti_k_source *s, const het_json *value, heti_k_wrap *wrap) {
    const size_t at = value->at;
    het_json j = *value, field[4];
    int sequences = 0;
    if (wrap->given) return heti_k_bad(s, HET_ERR_UNSUPPORTED, at, "post_processor has a second template");
    wrap->given = 1;
    HETI_T_TRY(heti_k_fields(s, &j, "post_processor's template", "type|single!|pair|special_tokens!", field));
    j = field[1];
    het_json_enter(&j, HET_JSON_ARRAY);
    while (het_json_next(&j, NULL, 0, NULL)) HETI_T_TRY(heti_k_read_template_piece(s, &j, &field[3], wrap, &sequences));
    HETI_T_TRY(heti_k_json(s, &j));
    if (sequences == 1) return HET_OK;
    return heti_k_bad(s, HET_ERR_FORMAT, field[1].at, "the template \"single\" has no sequence A");
}

static het_result heti_k_read_processor(const heti_k_source *s, const het_json *value, int outermost,
                                        heti_k_wrap *wrap) {
    het_json j = *value, field[2];
    int which, prefix_space, regex;
    HETI_T_TRY(heti_k_type(s, value, "post_processor", outermost ? "ByteLevel|TemplateProcessing|Sequence" :
                           "ByteLevel|TemplateProcessing", &which));
    if (which == 0) return heti_k_read_byte_level(s, value, "post_processor", &prefix_space, &regex);
    if (which == 1) return heti_k_read_template(s, value, wrap);
    HETI_T_TRY(heti_k_fields(s, &j, "post_processor", "type|processors!", field));
    j = field[1];
    het_json_enter(&j, HET_JSON_ARRAY);
    while (het_json_next(&j, NULL, 0, NULL)) {
        HETI_T_TRY(heti_k_read_processor(s, &j, 0, wrap));
        het_json_skip(&j);
    }
    return heti_k_json(s, &j);
}

/* ---- model and added tokens: sizes ---- */

/* Cursors at what the tables are made of, and how large they become. */
typedef struct heti_k_parts {
    het_json vocab, merges, added;
    size_t tokens, token_bytes, merge_count, merge_bytes, added_count, added_bytes;
    int64_t largest;
    int needs_bytes;                  /* the model has a way with bytes that lack a token which is not done here */
    size_t needs_bytes_at;
    heti_k_wrap wrap;
} heti_k_parts;

#define HETI_K_GAPS 65536 /* ids that may have no token */

static het_result heti_k_count_vocab(const heti_k_source *s, heti_k_parts *p) {
    het_json j = p->vocab;
    size_t length;
    int64_t id;
    p->largest = -1;
    het_json_enter(&j, HET_JSON_OBJECT);
    while (het_json_next(&j, NULL, 0, &length)) {
        const size_t at = j.at;
        if (!het_json_integer(&j, &id)) break;
        if (id < 0 || id > INT32_MAX - 1 - HETI_K_GAPS)
            return heti_k_bad(s, HET_ERR_FORMAT, at, "model.vocab has the id %d", id);
        p->tokens++;
        p->token_bytes += length;
        if (id > p->largest) p->largest = id;
    }
    HETI_T_TRY(heti_k_json(s, &j));
    if (p->largest < HETI_T_CAST(int64_t, p->tokens) + HETI_K_GAPS) return HET_OK;
    return heti_k_bad(s, HET_ERR_LIMIT, p->vocab.at,
                      "model.vocab has the id %d with %d tokens; at most %d ids may have none", p->largest,
                      HETI_T_CAST(int64_t, p->tokens), HETI_T_CAST(int64_t, HETI_K_GAPS));
}

/* A merge is "left right" or ["left", "right"]. */
static het_result heti_k_count_merges(const heti_k_source *s, heti_k_parts *p) {
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
            HETI_T_TRY(heti_k_json(s, &j));
            if (parts != 2)
                return heti_k_bad(s, HET_ERR_FORMAT, at, "model.merges[%d] has %d texts, not 2",
                                   HETI_T_CAST(int64_t, p->merge_count), HETI_T_CAST(int64_t, parts));
        }
        if (total > p->merge_bytes) p->merge_bytes = total;
        p->merge_count++;
    }
    return heti_k_json(s, &j);
}

static het_result heti_k_read_added_fields(const heti_k_source *s, het_json *j, het_json field[7]) {
    return heti_k_fields(s, j, "an added token",
                         "id!|content!|single_word!|lstrip!|rstrip!|normalized!|special!", field);
}

static het_result heti_k_count_added(const heti_k_source *s, heti_k_parts *p) {
    het_json j = p->added, field[7];
    size_t length;
    if (p->added.text == NULL) return HET_OK;
    het_json_enter(&j, HET_JSON_ARRAY);
    while (het_json_next(&j, NULL, 0, NULL)) {
        HETI_T_TRY(heti_k_read_added_fields(s, &j, field));
        HETI_T_TRY(heti_k_string(s, &field[1], NULL, 0, &length));
        p->added_count++;
        p->added_bytes += length;
    }
    return heti_k_json(s, &j);
}

static het_result heti_k_read_model(const heti_k_source *s, const het_json *value, het_tokenizer_info *info,
                                    heti_k_parts *p) {
    static const char *const heti_k_affixes[2] = { "continuing_subword_prefix", "end_of_word_suffix" };
    het_json j = *value, field[10];
    char word[16];
    size_t length;
    double dropout = 0;
    int i, which, fuse, fallback;
    HETI_T_TRY(heti_k_fields(s, &j, "model", "type|dropout|unk_token|continuing_subword_prefix|end_of_word_suffix|"
                             "fuse_unk|byte_fallback|ignore_merges|vocab!|merges!", field));
    /* files before 2020 have no type */
    if (field[0].text != NULL) HETI_T_TRY(heti_k_type(s, value, "model", "BPE", &which));
    if (!heti_k_is_null(&field[1])) {
        j = field[1];
        het_json_real(&j, &dropout);
        HETI_T_TRY(heti_k_json(s, &j));
        if (dropout > 0 || dropout < 0)
            return heti_k_bad(s, HET_ERR_UNSUPPORTED, field[1].at, "model.dropout is not 0");
    }
    for (i = 0; i < 2; i++) {
        if (heti_k_is_null(&field[3 + i])) continue;
        HETI_T_TRY(heti_k_string(s, &field[3 + i], word, sizeof word, &length));
        if (length > 0)
            return heti_k_bad(s, HET_ERR_UNSUPPORTED, field[3 + i].at, "model.%s %q is not supported",
                              heti_k_affixes[i], word, heti_t_shown(length, sizeof word));
    }
    HETI_T_TRY(heti_k_flag(s, &field[5], 0, &fuse));
    HETI_T_TRY(heti_k_flag(s, &field[6], 0, &fallback));
    HETI_T_TRY(heti_k_flag(s, &field[7], 0, &i));
    info->ignore_merges = i;
    if (!heti_k_is_null(&field[2])) HETI_T_TRY(heti_k_string(s, &field[2], word, sizeof word, &length));
    p->needs_bytes = !heti_k_is_null(&field[2]) || fallback;
    p->needs_bytes_at = fallback ? field[6].at : field[2].at;
    p->vocab = field[8];
    p->merges = field[9];
    HETI_T_TRY(heti_k_count_vocab(s, p));
    return heti_k_count_merges(s, p);
}

/* Everything but the tables. */
static het_result heti_k_read_parts(const heti_k_source *s, het_tokenizer_info *info, heti_k_parts *p) {
    het_json j = het_json_start(s->text, s->length), field[9];
    char version[8];
    size_t length;
    HETI_T_TRY(heti_k_fields(s, &j, "the file", "version|truncation|padding|added_tokens|normalizer|pre_tokenizer|"
                             "post_processor|decoder|model", field));
    if (!het_json_end(&j)) return heti_k_json(s, &j);
    if (field[0].text != NULL) {
        HETI_T_TRY(heti_k_string(s, &field[0], version, sizeof version, &length));
        if (!heti_t_is(version, length < sizeof version ? length : 0, "1.0"))
            return heti_k_bad(s, HET_ERR_UNSUPPORTED, field[0].at, "version %q, not \"1.0\"", version,
                               heti_t_shown(length, sizeof version));
    }
    if (field[8].text == NULL) return heti_k_bad(s, HET_ERR_FORMAT, 0, "the file lacks \"model\"");
    HETI_T_TRY(heti_k_only_null(s, &field[1], "truncation"));
    HETI_T_TRY(heti_k_only_null(s, &field[2], "padding"));
    HETI_T_TRY(heti_k_read_normalizer(s, &field[4], info));
    HETI_T_TRY(heti_k_read_model(s, &field[8], info, p));
    HETI_T_TRY(heti_k_read_pre_tokenizer(s, &field[5], info));
    if (!heti_k_is_null(&field[6])) HETI_T_TRY(heti_k_read_processor(s, &field[6], 1, &p->wrap));
    HETI_T_TRY(heti_k_read_decoder(s, &field[7]));
    p->added = field[3];
    return heti_k_count_added(s, p);
}

/* ---- model and added tokens: tables ---- */

static void heti_k_cut(het_tokenizer *t, const heti_k_parts *p, heti_t_arena *arena) {
    const size_t entries = p->tokens + p->added_count, ids = HETI_T_CAST(size_t, p->largest + 1),
                 longest = t->info.nfc ? 3 : 1;
    int i;
    /* NFC has at most 3 times the bytes */
    t->bytes_size = p->token_bytes + 1 + p->added_bytes * (1 + 2 * longest) + p->added_count + 1;
    t->scratch_size = p->merge_bytes + 2;
    t->slots = heti_k_slots(entries);
    t->pair_slots = heti_k_slots(p->merge_count);
    t->json = HETI_T_TAKE(arena, char, t->json_length);
    t->bytes = HETI_T_TAKE(arena, char, t->bytes_size);
    t->scratch = HETI_T_TAKE(arena, char, 2 * t->scratch_size);
    t->token = HETI_T_TAKE(arena, heti_k_token, entries);
    t->place = HETI_T_TAKE(arena, int32_t, ids > entries ? ids : entries);
    t->slot = HETI_T_TAKE(arena, uint32_t, t->slots);
    t->pair = HETI_T_TAKE(arena, uint64_t, t->pair_slots);
    t->rank = HETI_T_TAKE(arena, uint32_t, t->pair_slots);
    t->left = HETI_T_TAKE(arena, int32_t, p->merge_count);
    t->right = HETI_T_TAKE(arena, int32_t, p->merge_count);
    t->joined = HETI_T_TAKE(arena, int32_t, p->merge_count);
    t->added = HETI_T_TAKE(arena, heti_k_added, p->added_count);
    t->wrap = HETI_T_TAKE(arena, int32_t, HETI_K_WRAP);
    for (i = 0; i < 2; i++) {
        heti_k_matcher *m = &t->matcher[i];
        const size_t nodes = 1 + p->added_bytes * (i == 1 ? longest : 1);
        m->slots = heti_k_slots(nodes);
        m->key = HETI_T_TAKE(arena, uint64_t, m->slots);
        m->child = HETI_T_TAKE(arena, int32_t, m->slots);
        m->fail = HETI_T_TAKE(arena, int32_t, nodes);
        m->out = HETI_T_TAKE(arena, int32_t, nodes);
    }
}

/* Enters a token's id. */
static het_result heti_k_place(het_tokenizer *t, const heti_k_source *s, size_t at, int64_t entry, int64_t id) {
    if (t->place[id] >= 0)
        return heti_k_bad(s, HET_ERR_FORMAT, at, "model.vocab has the id %d twice", id);
    t->token[entry].id = HETI_T_CAST(int32_t, id);
    t->place[id] = HETI_T_CAST(int32_t, entry);
    if (id >= t->info.vocab) t->info.vocab = id + 1;
    return HET_OK;
}

static het_result heti_k_fill_vocab(het_tokenizer *t, const heti_k_source *s, const heti_k_parts *p) {
    het_json j = p->vocab;
    size_t length, slot;
    int64_t entry = 0, id;
    int spelled, byte;
    het_json_enter(&j, HET_JSON_OBJECT);
    while (het_json_next(&j, t->bytes + t->bytes_used, t->bytes_size - t->bytes_used, &length)) {
        heti_k_token *e = &t->token[entry];
        char *text = t->bytes + t->bytes_used;
        const size_t at = j.at, bytes = heti_k_unspell(text, length, &spelled);
        memset(e, 0, sizeof *e);
        e->bytes = HETI_T_CAST(uint32_t, t->bytes_used);
        e->length = HETI_T_CAST(uint32_t, bytes);
        e->spelled = HETI_T_CAST(uint8_t, spelled);
        if (bytes > t->longest) t->longest = bytes;
        slot = heti_k_slot(t, spelled ? HETI_K_KEY_BYTES : HETI_K_KEY_TEXT, text, bytes);
        if (t->slot[slot] != 0)
            return heti_k_bad(s, HET_ERR_FORMAT, at, "model.vocab has the token %q twice", text, bytes);
        if (!het_json_integer(&j, &id)) break;
        HETI_T_TRY(heti_k_place(t, s, at, entry, id));
        t->slot[slot] = HETI_T_CAST(uint32_t, entry + 1);
        t->bytes_used += bytes;
        entry++;
    }
    for (byte = 0; byte < 256; byte++) {
        const char c = HETI_T_CAST(char, HETI_T_CAST(unsigned char, byte));
        slot = heti_k_slot(t, HETI_K_KEY_BYTES, &c, 1);
        t->byte_id[byte] = t->slot[slot] != 0 ? t->token[t->slot[slot] - 1].id : -1;
        if (t->byte_id[byte] < 0 && p->needs_bytes)
            return heti_k_bad(s, HET_ERR_UNSUPPORTED, p->needs_bytes_at,
                              "unk_token or byte_fallback with a model.vocab that lacks byte %d",
                              HETI_T_CAST(int64_t, byte));
    }
    return heti_k_json(s, &j);
}

/* The two texts of a merge, one behind the other in t->scratch. *length 0: a comment of a
   merges.txt. */
static het_result heti_k_read_merge(het_tokenizer *t, const heti_k_source *s, het_json *j, size_t index,
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
        HETI_T_TRY(heti_k_json(s, j));
    } else {
        het_json_string(j, t->scratch, t->scratch_size, &total);
        HETI_T_TRY(heti_k_json(s, j));
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
    return heti_k_bad(s, HET_ERR_FORMAT, at, "model.merges[%d] is not two tokens with a space between",
                       HETI_T_CAST(int64_t, index));
}

/* The id of scratch[from .. from + length). */
static het_result heti_k_merge_id(het_tokenizer *t, const heti_k_source *s, size_t at, size_t index, size_t from,
                                  size_t length, int32_t *id) {
    char *copy = t->scratch + t->scratch_size;
    int64_t entry;
    memcpy(copy, t->scratch + from, length);
    entry = heti_k_model_place(t, copy, length);
    if (entry >= 0) {
        *id = t->token[entry].id;
        return HET_OK;
    }
    return heti_k_bad(s, HET_ERR_FORMAT, at, "model.merges[%d]: %q is not in model.vocab",
                       HETI_T_CAST(int64_t, index), t->scratch + from, length);
}

static het_result heti_k_fill_merges(het_tokenizer *t, const heti_k_source *s, const heti_k_parts *p) {
    het_json j = p->merges;
    size_t length[2], index, rank = 0, slot;
    het_json_enter(&j, HET_JSON_ARRAY);
    for (index = 0; het_json_next(&j, NULL, 0, NULL); index++) {
        const size_t at = j.at;
        uint64_t key;
        HETI_T_TRY(heti_k_read_merge(t, s, &j, index, length));
        if (length[0] == 0) continue;
        HETI_T_TRY(heti_k_merge_id(t, s, at, index, 0, length[0], &t->left[rank]));
        HETI_T_TRY(heti_k_merge_id(t, s, at, index, length[0], length[1], &t->right[rank]));
        HETI_T_TRY(heti_k_merge_id(t, s, at, index, 0, length[0] + length[1], &t->joined[rank]));
        key = heti_k_pair_key(t->left[rank], t->right[rank]);
        slot = heti_k_pair_slot(t, key);
        if (t->pair[slot] != 0)
            return heti_k_bad(s, HET_ERR_FORMAT, at, "model.merges[%d] joins %q again",
                               HETI_T_CAST(int64_t, index), t->scratch, length[0] + length[1]);
        t->pair[slot] = key;
        t->rank[slot] = HETI_T_CAST(uint32_t, rank++);
    }
    t->info.merges = HETI_T_CAST(int64_t, rank);
    return heti_k_json(s, &j);
}

/* What is looked for, and what it decodes to. */
static het_result heti_k_added_texts(het_tokenizer *t, heti_k_added *a, heti_k_token *e, het_error *error) {
    heti_t_list normal = { NULL, 0, 0 }, points = { NULL, 0, 0 };
    het_result result = HET_OK;
    int spelled;
    a->pattern = a->content;
    a->pattern_length = a->content_length;
    if (a->normalized && t->info.nfc) {
        const void *content = t->bytes + a->content;
        const unsigned char *text = HETI_T_CAST(const unsigned char *, content);
        result = heti_k_nfc(text, a->content_length, &normal, &points, &t->allocator, error);
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
    e->length = HETI_T_CAST(uint32_t, heti_k_unspell(t->bytes + t->bytes_used, a->pattern_length, &spelled));
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
static het_result heti_k_fill_added(het_tokenizer *t, const heti_k_source *s, const heti_k_parts *p) {
    het_json j = p->added, field[7], number;
    int64_t index = 0, id, wanted, next = t->model_tokens;
    size_t length;
    if (p->added.text == NULL) return HET_OK;
    het_json_enter(&j, HET_JSON_ARRAY);
    for (; het_json_next(&j, NULL, 0, NULL); index++) {
        heti_k_added *a = &t->added[index];
        const size_t at = j.at;
        int64_t entry;
        size_t slot;
        int flag[5], i;
        char *content = t->bytes + t->bytes_used;
        HETI_T_TRY(heti_k_read_added_fields(s, &j, field));
        HETI_T_TRY(heti_k_string(s, &field[1], content, t->bytes_size - t->bytes_used, &length));
        for (i = 0; i < 5; i++) HETI_T_TRY(heti_k_flag(s, &field[2 + i], 0, &flag[i]));
        memset(a, 0, sizeof *a);
        a->content = HETI_T_CAST(uint32_t, t->bytes_used);
        a->content_length = HETI_T_CAST(uint32_t, length);
        a->single_word = HETI_T_CAST(uint8_t, flag[0]);
        a->lstrip = HETI_T_CAST(uint8_t, flag[1]);
        a->rstrip = HETI_T_CAST(uint8_t, flag[2]);
        a->normalized = HETI_T_CAST(uint8_t, flag[3]);
        a->special = HETI_T_CAST(uint8_t, flag[4]);
        t->bytes_used += length;
        slot = heti_k_slot(t, HETI_K_KEY_ADDED, content, length);
        if (length == 0 || t->slot[slot] != 0)
            return heti_k_bad(s, HET_ERR_FORMAT, at, "added_tokens[%d] %q %s", index, content, length,
                               length == 0 ? "has no text" : "comes twice");
        t->slot[slot] = HETI_T_CAST(uint32_t, t->model_tokens + index + 1);
        memcpy(content + length, content, length); /* heti_k_model_place may change its text; the room is there */
        entry = heti_k_model_place(t, content + length, length);
        wanted = entry >= 0 ? t->token[entry].id : next++;
        number = field[0];
        if (!het_json_integer(&number, &id)) return heti_k_json(s, &number);
        if (id != wanted || (entry < 0 && t->place[id] >= 0))
            return heti_k_bad(s, HET_ERR_FORMAT, at, "added_tokens[%d] %q has the id %d; %s %d", index, content, length,
                              id, id != wanted ? "by its place it is" : "so has a token of model.vocab:", wanted);
        a->id = HETI_T_CAST(int32_t, id);
        entry = t->model_tokens + index;
        HETI_T_TRY(heti_k_added_texts(t, a, &t->token[entry], s->error));
        t->place[id] = HETI_T_CAST(int32_t, entry);
        if (id >= t->info.vocab) t->info.vocab = id + 1;
    }
    t->info.added = index;
    return heti_k_json(s, &j);
}

/* One automaton over the added tokens, level by level, so that each node's suffix is there before
   it. at, active: [added]. */
static het_result heti_k_fill_matcher(het_tokenizer *t, const heti_k_source *s, int which, int32_t *at,
                                      int32_t *active) {
    heti_k_matcher *m = &t->matcher[which];
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
            const heti_k_added *a = &t->added[index];
            int32_t node = heti_k_match_extend(m, at[index],
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

static het_result heti_k_fill_wrap(het_tokenizer *t, const heti_k_source *s, const heti_k_wrap *wrap) {
    int i;
    for (i = 0; i < wrap->count; i++) {
        t->wrap[i] = wrap->id[i];
        if (wrap->id[i] >= t->info.vocab || t->place[wrap->id[i]] < 0)
            return heti_k_bad(s, HET_ERR_FORMAT, wrap->at[i], "a template's id that no token has");
    }
    t->info.prefix = t->wrap;
    t->info.prefixes = wrap->prefixes;
    t->info.suffix = t->wrap + wrap->prefixes;
    t->info.suffixes = wrap->count - wrap->prefixes;
    return HET_OK;
}

/* The block is there, and everything in it 0. */
static het_result heti_k_fill(het_tokenizer *t, const heti_k_source *s, const heti_k_parts *p) {
    heti_t_list room = { NULL, 0, 0 };
    het_result result;
    int32_t *at;
    size_t i;
    const size_t entries = p->tokens + p->added_count, ids = HETI_T_CAST(size_t, p->largest + 1);
    memcpy(t->json, s->text, s->length);
    t->seed = het_xxh64(s->text, s->length, 0);
    t->model_tokens = HETI_T_CAST(int64_t, p->tokens);
    for (i = 0; i < (ids > entries ? ids : entries); i++) t->place[i] = -1;
    HETI_T_TRY(heti_k_fill_vocab(t, s, p));
    HETI_T_TRY(heti_k_fill_merges(t, s, p));
    HETI_T_TRY(heti_k_fill_added(t, s, p));
    for (i = 0; i < HETI_T_CAST(size_t, t->info.vocab); i++) t->info.tokens += t->place[i] >= 0;
    HETI_T_TRY(heti_t_list_room(&room, p->added_count * 2 * sizeof *at + 1, &t->allocator, s->error));
    at = HETI_T_CAST(int32_t *, HETI_T_CAST(void *, room.data));
    result = heti_k_fill_matcher(t, s, 0, at, at + p->added_count);
    if (result == HET_OK) result = heti_k_fill_matcher(t, s, 1, at, at + p->added_count);
    heti_t_list_free(&room, &t->allocator);
    return result == HET_OK ? heti_k_fill_wrap(t, s, &p->wrap) : result;
}

HETRAIN_API het_result het_tokenizer_read(const char *text, size_t length, const het_allocator *allocator,
                                          het_tokenizer **tokenizer, het_error *error) {
    heti_k_source s;
    heti_k_parts parts;
    heti_t_arena arena = { NULL, 0, 0 };
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
    HETI_T_TRY(heti_k_read_parts(&s, &sizes.info, &parts));
    (void)heti_t_take(&arena, 1, sizeof sizes);
    heti_k_cut(&sizes, &parts, &arena);
    sizes.size = arena.used;
    arena.base = arena.used == SIZE_MAX ? NULL : HETI_T_CAST(char *, sizes.allocator.alloc(sizes.allocator.user,
        sizes.size, 16));
    if (arena.base == NULL)
        return heti_t_fail(error, HET_ERR_OOM, "the allocator gave no %d bytes", HETI_T_CAST(int64_t, sizes.size));
    memset(arena.base, 0, sizes.size);
    arena.used = 0;
    t = HETI_T_CAST(het_tokenizer *, heti_t_take(&arena, 1, sizeof sizes));
    *t = sizes;
    heti_k_cut(t, &parts, &arena);
    result = heti_k_fill(t, &s, &parts);
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

#define HETI_K_NONE 0xFFFFFFFFu

typedef struct heti_k_symbol {
    int32_t id;
    uint32_t before, after;           /* its neighbours, or NONE */
    uint32_t rank;                    /* of the merge with the one after it, or NONE */
} heti_k_symbol;

typedef struct heti_k_encoder {
    const het_tokenizer *t;
    het_allocator allocator;
    het_error *error;
    /* what is done with a word */
    het_result (*word)(struct heti_k_encoder *e, const unsigned char *text, size_t length);
    void *user;
    int special;                      /* texts of special tokens become ids */
    int32_t *to;
    int64_t capacity, count;
    size_t at;                        /* where the present piece of text begins, for messages */
    const unsigned char *text;        /* the whole text */
    heti_t_list points, normal, spaced, found[2], symbols, heap;
    uint64_t *entry;                  /* the heap: [entries] */
    size_t entries;
} heti_k_encoder;

static void heti_k_emit(heti_k_encoder *e, int32_t id) {
    if (e->count < e->capacity) e->to[e->count] = id;
    e->count++;
}

/* ---- a heap of integers, the least on top ---- */

static void heti_k_heap_push(heti_k_encoder *e, uint64_t value) {
    size_t at = e->entries++;
    for (; at > 0 && e->entry[(at - 1) / 2] > value; at = (at - 1) / 2) e->entry[at] = e->entry[(at - 1) / 2];
    e->entry[at] = value;
}

static uint64_t heti_k_heap_pop(heti_k_encoder *e) {
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
static void heti_k_pair_up(heti_k_encoder *e, heti_k_symbol *symbol, uint32_t at) {
    heti_k_symbol *x = &symbol[at];
    x->rank = HETI_K_NONE;
    if (x->after != HETI_K_NONE) {
        const size_t slot = heti_k_pair_slot(e->t, heti_k_pair_key(x->id, symbol[x->after].id));
        if (e->t->pair[slot] == 0) return;
        x->rank = e->t->rank[slot];
        heti_k_heap_push(e, HETI_T_CAST(uint64_t, x->rank) << 32 | at);
    }
}

static void heti_k_merge_all(heti_k_encoder *e, heti_k_symbol *symbol) {
    while (e->entries > 0) {
        const uint64_t top = heti_k_heap_pop(e);
        const uint32_t at = HETI_T_CAST(uint32_t, top & 0xFFFFFFFFu);
        heti_k_symbol *x = &symbol[at], *gone;
        if (x->rank != top >> 32) continue;
        gone = &symbol[x->after];
        x->id = e->t->joined[x->rank];
        x->after = gone->after;
        if (x->after != HETI_K_NONE) symbol[x->after].before = at;
        gone->rank = HETI_K_NONE;
        heti_k_pair_up(e, symbol, at);
        if (x->before != HETI_K_NONE) heti_k_pair_up(e, symbol, x->before);
    }
}

static het_result heti_k_encode_word(heti_k_encoder *e, const unsigned char *text, size_t length) {
    const het_tokenizer *t = e->t;
    heti_k_symbol *symbol;
    size_t i;
    uint32_t at;
    if (t->info.ignore_merges && length <= t->longest) {
        const uint32_t entry = t->slot[heti_k_slot(t, HETI_K_KEY_BYTES,
                                                   HETI_T_CAST(const char *, HETI_T_CAST(const void *, text)), length)];
        if (entry != 0) { heti_k_emit(e, t->token[entry - 1].id); return HET_OK; }
    }
    if (length >= INT32_MAX)
        return heti_t_fail(e->error, HET_ERR_LIMIT, "het_tokenizer_encode: a word of %d bytes",
                           HETI_T_CAST(int64_t, length));
    HETI_T_TRY(heti_t_list_room(&e->symbols, length * sizeof *symbol, &e->allocator, e->error));
    HETI_T_TRY(heti_t_list_room(&e->heap, length * 2 * sizeof *e->entry, &e->allocator, e->error));
    symbol = HETI_T_ITEMS(e->symbols, heti_k_symbol);
    e->entry = HETI_T_ITEMS(e->heap, uint64_t);
    for (i = 0; i < length; i++) {
        symbol[i].id = t->byte_id[text[i]];
        symbol[i].before = i > 0 ? HETI_T_CAST(uint32_t, i - 1) : HETI_K_NONE;
        symbol[i].after = i + 1 < length ? HETI_T_CAST(uint32_t, i + 1) : HETI_K_NONE;
        if (symbol[i].id < 0)
            return heti_t_fail(e->error, HET_ERR_DATA, "het_tokenizer_encode: the text behind byte %d has a byte %d, "
                                                       "which has no token", HETI_T_CAST(int64_t, e->at),
                                                       HETI_T_CAST(int64_t, text[i]));
    }
    for (i = 0; i < length; i++) heti_k_pair_up(e, symbol, HETI_T_CAST(uint32_t, i));
    heti_k_merge_all(e, symbol);
    for (at = 0; at != HETI_K_NONE; at = symbol[at].after) heti_k_emit(e, symbol[at].id);
    return HET_OK;
}

/* ---- pieces of text between added tokens ---- */

static het_result heti_k_encode_words(heti_k_encoder *e, const unsigned char *text, size_t length) {
    heti_k_words w;
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
        end = heti_k_word_end(&w, e->t->info.split, at);
        HETI_T_TRY(e->word(e, w.text + at, end - at));
    }
    return HET_OK;
}

static int heti_k_is_word(uint32_t point) {
    const heti_k_class kind = heti_k_class_of(point);
    return kind == HETI_K_LETTER || kind == HETI_K_NUMBER || kind == HETI_K_WORD;
}

/* An added token that must be a word of its own may not touch a character of one. */
static int heti_k_touches(const unsigned char *text, size_t length, size_t begin, size_t end) {
    size_t size;
    return (begin > 0 && heti_k_is_word(heti_k_point_before(text, begin, &size)))
        || (end < length && heti_k_is_word(heti_t_point(text, length, end, &size)));
}

/* White space before `at` back to `least`, or behind it. */
static size_t heti_k_strip_left(const unsigned char *text, size_t at, size_t least) {
    size_t size;
    while (at > least && heti_k_class_of(heti_k_point_before(text, at, &size)) == HETI_K_SPACE) at -= size;
    return at;
}

static size_t heti_k_strip_right(const unsigned char *text, size_t length, size_t at) {
    size_t size;
    while (at < length && heti_k_class_of(heti_t_point(text, length, at, &size)) == HETI_K_SPACE) at += size;
    return at;
}

static het_result heti_k_encode_text(heti_k_encoder *e, int level, const unsigned char *text, size_t length);

/* What lies between two added tokens: goes through the next level. Level 0 is the text as it is, 1
   normalized text, and then come words. */
static het_result heti_k_encode_piece(heti_k_encoder *e, int level, const unsigned char *text, size_t length) {
    if (length == 0) return HET_OK;
    if (level == 1) return heti_k_encode_words(e, text, length);
    e->at = HETI_T_CAST(size_t, text - e->text);
    if (!e->t->info.nfc) return heti_k_encode_text(e, 1, text, length);
    e->normal.used = 0;
    HETI_T_TRY(heti_k_nfc(text, length, &e->normal, &e->points, &e->allocator, e->error));
    return heti_k_encode_text(e, 1, HETI_T_CAST(const unsigned char *, HETI_T_CAST(const void *, e->normal.data)),
                              e->normal.used);
}

/* Added tokens become ids; those that want white space on a side take it with them, though not what
   the token before has taken. `spaces` is where the white space ends that was last looked through,
   so that none is looked through twice. */
static het_result heti_k_encode_text(heti_k_encoder *e, int level, const unsigned char *text, size_t length) {
    heti_t_list *found = &e->found[level];
    size_t done = 0, from = 0, spaces = 0, i;
    found->used = 0;
    HETI_T_TRY(heti_k_match_all(&e->t->matcher[level], text, length, found, &e->allocator, e->error));
    for (i = HETI_T_COUNT(*found, heti_k_found); i-- > 0;) {
        const heti_k_found *hit = &HETI_T_ITEMS(*found, const heti_k_found)[i];
        const heti_k_added *a = &e->t->added[hit->added];
        size_t begin = hit->at, end = begin + a->pattern_length;
        if (begin < from) continue;
        from = end;
        if ((a->special && !e->special) || (a->single_word && heti_k_touches(text, length, begin, end))) continue;
        if (a->lstrip) begin = heti_k_strip_left(text, begin, done < begin ? done : begin);
        if (a->lstrip && begin < done) begin = done;
        if (a->rstrip) spaces = end = end < spaces ? spaces : heti_k_strip_right(text, length, end);
        if (done < begin) HETI_T_TRY(heti_k_encode_piece(e, level, text + done, begin - done));
        if (e->word == heti_k_encode_word) heti_k_emit(e, a->id);
        done = end;
    }
    return done < length ? heti_k_encode_piece(e, level, text + done, length - done) : HET_OK;
}

static het_result heti_k_encoder_start(heti_k_encoder *e, const het_tokenizer *t, const char *text,
                                       const het_allocator *allocator, het_error *error) {
    memset(e, 0, sizeof *e);
    e->t = t;
    e->error = error;
    e->word = heti_k_encode_word;
    e->special = 1;
    e->text = HETI_T_CAST(const unsigned char *, HETI_T_CAST(const void *, text));
    return heti_t_choose(allocator, &e->allocator, error, "het_tokenizer_encode");
}

static void heti_k_encoder_end(heti_k_encoder *e) {
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
    heti_k_encoder e;
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
    HETI_T_TRY(heti_k_encoder_start(&e, tokenizer, text, &d.allocator, error));
    e.special = d.special != HET_NO;
    e.to = to;
    e.capacity = capacity;
    for (i = 0; d.wrap != HET_NO && i < tokenizer->info.prefixes; i++) heti_k_emit(&e, tokenizer->info.prefix[i]);
    result = heti_k_encode_text(&e, 0, e.text, length);
    for (i = 0; d.wrap != HET_NO && i < tokenizer->info.suffixes; i++) heti_k_emit(&e, tokenizer->info.suffix[i]);
    heti_k_encoder_end(&e);
    if (result == HET_OK) *count = e.count;
    return result;
}

/* =================================================================================================
   >>decode  Ids to bytes, and what can be asked of a tokenizer.
   ============================================================================================== */

static const heti_k_token *heti_k_token_of(const het_tokenizer *t, int32_t id) {
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
        if (heti_k_token_of(tokenizer, token[i]) == NULL)
            return heti_t_fail(error, HET_ERR_DATA, "het_tokenizer_decode: token[%d] is %d, an id without a token", i,
                               HETI_T_CAST(int64_t, token[i]));
    for (i = 0; i < count; i++) {
        const heti_k_token *e = heti_k_token_of(tokenizer, token[i]);
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
    const heti_k_token *e = heti_k_token_of(tokenizer, id);
    if (e == NULL) return 0;
    token->bytes = tokenizer->bytes + e->bytes;
    token->length = e->length;
    token->added = e->is_added;
    token->special = e->special;
    return 1;
}

HETRAIN_API size_t het_tokenizer_spell(const het_tokenizer *tokenizer, int32_t id, char *to, size_t capacity) {
    const heti_k_token *e = heti_k_token_of(tokenizer, id);
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
    uint32_t entry = tokenizer->slot[heti_k_slot(tokenizer, HETI_K_KEY_ADDED, bytes, length)];
    if (entry != 0) return tokenizer->added[entry - 1 - HETI_T_CAST(size_t, tokenizer->model_tokens)].id;
    entry = tokenizer->slot[heti_k_slot(tokenizer, HETI_K_KEY_BYTES, bytes, length)];
    if (entry == 0) entry = tokenizer->slot[heti_k_slot(tokenizer, HETI_K_KEY_TEXT, bytes, length)];
    return entry != 0 ? tokenizer->token[entry - 1].id : -1;
}

/* =================================================================================================
   >>learn  Training of byte-level BPE (Sennrich, Haddow, Birch, ACL 2016). Equal words are counted
            once. Every pair of neighbours knows how often it
   is met and, in a list, where; joining the commonest touches only those places. Counts in the heap
   may be out of date: one that is wrong when it comes to the top goes back with the right one.
   ============================================================================================== */

/* Texts, each once, numbered as they came. */
typedef struct heti_k_set {
    heti_t_list bytes, entry, slot;   /* entry: heti_k_item; slot: uint32_t index + 1 */
    size_t count, slots;
} heti_k_set;

typedef struct heti_k_item { size_t at, length; int64_t count; } heti_k_item;

static heti_k_item *heti_k_items(const heti_k_set *set) {
    return HETI_T_ITEMS(set->entry, heti_k_item);
}

static size_t heti_k_set_slot(const heti_k_set *set, const void *text, size_t length) {
    const uint32_t *slot = HETI_T_ITEMS(set->slot, const uint32_t);
    size_t at = HETI_T_CAST(size_t, het_xxh64(text, length, 0)) & (set->slots - 1);
    for (; slot[at] != 0; at = (at + 1) & (set->slots - 1)) {
        const heti_k_item *item = &heti_k_items(set)[slot[at] - 1];
        if (item->length == length && memcmp(set->bytes.data + item->at, text, length) == 0) break;
    }
    return at;
}

/* Doubles the table of a set. */
static het_result heti_k_set_grow(heti_k_set *set, const het_allocator *allocator, het_error *error) {
    uint32_t *slot;
    size_t i;
    set->slots = set->slots == 0 ? 1024 : set->slots * 2;
    set->slot.used = 0;
    HETI_T_TRY(heti_t_list_room(&set->slot, set->slots * sizeof *slot, allocator, error));
    memset(set->slot.data, 0, set->slots * sizeof *slot);
    slot = HETI_T_ITEMS(set->slot, uint32_t);
    for (i = 0; i < set->count; i++) {
        const heti_k_item *item = &heti_k_items(set)[i];
        slot[heti_k_set_slot(set, set->bytes.data + item->at, item->length)] = HETI_T_CAST(uint32_t, i + 1);
    }
    return HET_OK;
}

/* *index: of a text, which is added if it is new; its count goes up by 1. */
static het_result heti_k_set_add(heti_k_set *set, const void *text, size_t length, size_t *index,
                                 const het_allocator *allocator, het_error *error) {
    heti_k_item item;
    uint32_t *slot;
    if (set->count * 2 >= set->slots) {
        if (set->count > INT32_MAX / 2)
            return heti_t_fail(error, HET_ERR_LIMIT, "het_tokenizer_train: more than 2^30 different words");
        HETI_T_TRY(heti_k_set_grow(set, allocator, error));
    }
    slot = HETI_T_ITEMS(set->slot, uint32_t) + heti_k_set_slot(set, text, length);
    if (*slot == 0) {
        item.at = set->bytes.used;
        item.length = length;
        item.count = 0;
        HETI_T_TRY(heti_t_list_add(&set->bytes, text, length, allocator, error));
        HETI_T_TRY(heti_t_list_add(&set->entry, &item, sizeof item, allocator, error));
        *slot = HETI_T_CAST(uint32_t, ++set->count);
    }
    *index = *slot - 1;
    heti_k_items(set)[*index].count++;
    return HET_OK;
}

static void heti_k_set_free(heti_k_set *set, const het_allocator *allocator) {
    heti_t_list_free(&set->bytes, allocator);
    heti_t_list_free(&set->entry, allocator);
    heti_t_list_free(&set->slot, allocator);
}

/* One byte of one of the different words, later what it was joined into. */
typedef struct heti_k_place { int32_t id; uint32_t before, after, word; } heti_k_place_in_word;

typedef struct heti_k_pair {
    uint64_t key;                     /* left id << 32 | right id */
    int64_t count;
    uint32_t first, step;             /* head of its list of places; the last step that made it commoner */
    int32_t joined, unused;           /* it is among the merges: its places may come back when
                                         another pair spells the same token */
} heti_k_pair;

typedef struct heti_k_node { uint32_t place, next; } heti_k_node;

typedef struct heti_k_candidate { int64_t count; uint64_t key; } heti_k_candidate;

typedef struct heti_k_learner {
    het_allocator allocator;
    het_error *error;
    heti_k_set words, tokens;         /* tokens: their ids are their numbers */
    heti_t_list places, pairs, slots, nodes, heap, touched, sorted, merges, json;
    size_t place_count, pair_count, slot_count, node_count, entries;
    uint32_t step;
} heti_k_learner;

static het_result heti_k_count_word(heti_k_encoder *e, const unsigned char *text, size_t length) {
    heti_k_learner *l = HETI_T_CAST(heti_k_learner *, e->user);
    size_t index;
    return heti_k_set_add(&l->words, text, length, &index, &l->allocator, l->error);
}

/* ---- pairs ---- */

static size_t heti_k_learn_slot(const heti_k_learner *l, uint64_t key) {
    const uint32_t *slot = HETI_T_ITEMS(l->slots, const uint32_t);
    size_t at = HETI_T_CAST(size_t, heti_k_mix(key, 0)) & (l->slot_count - 1);
    while (slot[at] != 0 && HETI_T_ITEMS(l->pairs, const heti_k_pair)[slot[at] - 1].key != key)
        at = (at + 1) & (l->slot_count - 1);
    return at;
}

static het_result heti_k_learn_grow(heti_k_learner *l) {
    size_t i;
    l->slot_count = l->slot_count == 0 ? 1024 : l->slot_count * 2;
    l->slots.used = 0;
    HETI_T_TRY(heti_t_list_room(&l->slots, l->slot_count * sizeof(uint32_t), &l->allocator, l->error));
    memset(l->slots.data, 0, l->slot_count * sizeof(uint32_t));
    for (i = 0; i < l->pair_count; i++)
        HETI_T_ITEMS(l->slots, uint32_t)[heti_k_learn_slot(l, HETI_T_ITEMS(l->pairs, heti_k_pair)[i].key)] =
        HETI_T_CAST(uint32_t, i + 1);
    return HET_OK;
}

/* The pair that begins at a place is met `change` times more. */
static het_result heti_k_learn_count(heti_k_learner *l, uint32_t at, int64_t change) {
    const heti_k_place_in_word *place = HETI_T_ITEMS(l->places, const heti_k_place_in_word);
    const uint64_t key = HETI_T_CAST(uint64_t, place[at].id) << 32 | HETI_T_CAST(uint64_t, place[place[at].after].id);
    heti_k_pair *pair, fresh;
    heti_k_node node;
    uint32_t *slot;
    if (l->pair_count * 2 >= l->slot_count) HETI_T_TRY(heti_k_learn_grow(l));
    slot = HETI_T_ITEMS(l->slots, uint32_t) + heti_k_learn_slot(l, key);
    if (*slot == 0) {
        fresh.key = key;
        fresh.count = 0;
        fresh.first = HETI_K_NONE;
        fresh.step = HETI_K_NONE;
        fresh.joined = fresh.unused = 0;
        HETI_T_TRY(heti_t_list_add(&l->pairs, &fresh, sizeof fresh, &l->allocator, l->error));
        *slot = HETI_T_CAST(uint32_t, ++l->pair_count);
    }
    pair = HETI_T_ITEMS(l->pairs, heti_k_pair) + (*slot - 1);
    pair->count += change;
    if (change < 0) return HET_OK;
    node.place = at;
    node.next = pair->first;
    pair->first = HETI_T_CAST(uint32_t, l->node_count++);
    if (pair->step != l->step) {
        pair->step = l->step;
        HETI_T_TRY(heti_t_list_add(&l->touched, slot, sizeof *slot, &l->allocator, l->error));
    }
    if (l->node_count >= HETI_K_NONE)
        return heti_t_fail(l->error, HET_ERR_LIMIT, "het_tokenizer_train: different words of more than 2^30 bytes");
    return heti_t_list_add(&l->nodes, &node, sizeof node, &l->allocator, l->error);
}

/* ---- the heap: the commonest on top, of equals the lowest pair ---- */

static int heti_k_is_before(const heti_k_candidate *a, const heti_k_candidate *b) {
    return a->count > b->count || (a->count == b->count && a->key < b->key);
}

static het_result heti_k_candidate_push(heti_k_learner *l, int64_t count, uint64_t key) {
    heti_k_candidate c, *heap;
    size_t at = l->entries;
    c.count = count;
    c.key = key;
    l->heap.used = l->entries * sizeof c;
    HETI_T_TRY(heti_t_list_add(&l->heap, &c, sizeof c, &l->allocator, l->error));
    heap = HETI_T_ITEMS(l->heap, heti_k_candidate);
    l->entries++;
    for (; at > 0 && heti_k_is_before(&c, &heap[(at - 1) / 2]); at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = c;
    return HET_OK;
}

static heti_k_candidate heti_k_candidate_pop(heti_k_learner *l) {
    heti_k_candidate *heap = HETI_T_ITEMS(l->heap, heti_k_candidate);
    const heti_k_candidate top = heap[0], last = heap[--l->entries];
    size_t at = 0, child;
    for (; (child = 2 * at + 1) < l->entries; at = child) {
        if (child + 1 < l->entries && heti_k_is_before(&heap[child + 1], &heap[child])) child++;
        if (!heti_k_is_before(&heap[child], &last)) break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return top;
}

/* Pairs that became commoner in this step go into the heap. */
static het_result heti_k_learn_queue(heti_k_learner *l) {
    const size_t count = HETI_T_COUNT(l->touched, uint32_t);
    size_t i;
    for (i = 0; i < count; i++) {
        const uint32_t number = HETI_T_ITEMS(l->touched, const uint32_t)[i];
        const heti_k_pair *pair = &HETI_T_ITEMS(l->pairs, const heti_k_pair)[number - 1];
        if (pair->count > 0) HETI_T_TRY(heti_k_candidate_push(l, pair->count, pair->key));
    }
    l->touched.used = 0;
    l->step++;
    return HET_OK;
}

/* ---- learning ---- */

/* The different words as places, and their pairs counted. A byte's id is that of its letter:
   letters come in the order of their code points. */
static het_result heti_k_learn_start(heti_k_learner *l, const int32_t *byte_id) {
    size_t w, i;
    heti_k_place_in_word place;
    if (l->words.bytes.used > INT32_MAX / 2)
        return heti_t_fail(l->error, HET_ERR_LIMIT,
                           "het_tokenizer_train: different words of %d bytes; the most are 2^30",
                           HETI_T_CAST(int64_t, l->words.bytes.used));
    for (w = 0; w < l->words.count; w++) {
        const heti_k_item *item = &heti_k_items(&l->words)[w];
        for (i = 0; i < item->length; i++) {
            const uint32_t at = HETI_T_CAST(uint32_t, l->place_count++);
            place.id = byte_id[HETI_T_CAST(unsigned char, l->words.bytes.data[item->at + i])];
            place.before = i > 0 ? at - 1 : HETI_K_NONE;
            place.after = i + 1 < item->length ? at + 1 : HETI_K_NONE;
            place.word = HETI_T_CAST(uint32_t, w);
            HETI_T_TRY(heti_t_list_add(&l->places, &place, sizeof place, &l->allocator, l->error));
        }
    }
    for (i = 0; i < l->place_count; i++) {
        const heti_k_place_in_word *p = HETI_T_ITEMS(l->places, const heti_k_place_in_word) + i;
        if (p->after != HETI_K_NONE)
            HETI_T_TRY(heti_k_learn_count(l, HETI_T_CAST(uint32_t, i), heti_k_items(&l->words)[p->word].count));
    }
    return heti_k_learn_queue(l);
}

/* Joins a place with the one after it. */
static het_result heti_k_learn_join(heti_k_learner *l, uint32_t at, int32_t id) {
    heti_k_place_in_word *place = HETI_T_ITEMS(l->places, heti_k_place_in_word);
    const int64_t count = heti_k_items(&l->words)[place[at].word].count;
    const uint32_t gone = place[at].after;
    if (place[at].before != HETI_K_NONE) HETI_T_TRY(heti_k_learn_count(l, place[at].before, -count));
    if (place[gone].after != HETI_K_NONE) HETI_T_TRY(heti_k_learn_count(l, gone, -count));
    place[at].id = id;
    place[at].after = place[gone].after;
    place[gone].id = -1;
    if (place[at].after != HETI_K_NONE) place[place[at].after].before = at;
    if (place[at].before != HETI_K_NONE) HETI_T_TRY(heti_k_learn_count(l, place[at].before, count));
    if (place[at].after != HETI_K_NONE) HETI_T_TRY(heti_k_learn_count(l, at, count));
    return HET_OK;
}

/* Joins a pair wherever it is, from left to right: "aaa" is "aa", "a". Its list has the places in
   no useful order. */
static het_result heti_k_learn_step(heti_k_learner *l, heti_k_pair *pair, int32_t id) {
    const int32_t left = HETI_T_CAST(int32_t, pair->key >> 32), right = HETI_T_CAST(int32_t, pair->key & 0xFFFFFFFFu);
    const size_t number = HETI_T_CAST(size_t, pair - HETI_T_ITEMS(l->pairs, heti_k_pair));
    uint32_t node, *sorted;
    size_t count = 0, i;
    l->sorted.used = 0;
    for (node = pair->first; node != HETI_K_NONE; node = HETI_T_ITEMS(l->nodes, const heti_k_node)[node].next) {
        HETI_T_TRY(heti_t_list_add(&l->sorted, &HETI_T_ITEMS(l->nodes, const heti_k_node)[node].place, sizeof node,
                                   &l->allocator, l->error));
        count++;
    }
    pair->first = HETI_K_NONE;
    HETI_T_TRY(heti_t_list_room(&l->sorted, count * sizeof node, &l->allocator, l->error));
    sorted = HETI_T_ITEMS(l->sorted, uint32_t);
    heti_k_sort(sorted, sorted + count, count, 0);
    for (i = 0; i < count; i++) {
        const heti_k_place_in_word *place = HETI_T_ITEMS(l->places, const heti_k_place_in_word);
        const heti_k_place_in_word *p = &place[HETI_T_ITEMS(l->sorted, const uint32_t)[i]];
        if (p->id != left || p->after == HETI_K_NONE || place[p->after].id != right) continue;
        HETI_T_TRY(heti_k_learn_join(l, HETI_T_ITEMS(l->sorted, const uint32_t)[i], id));
    }
    HETI_T_ITEMS(l->pairs, heti_k_pair)[number].count = 0;
    return heti_k_learn_queue(l);
}

/* The text of a joined token, and its id. */
static het_result heti_k_learn_token(heti_k_learner *l, uint64_t key, int32_t *id) {
    const heti_k_item left = heti_k_items(&l->tokens)[key >> 32], right = heti_k_items(&l->tokens)[key & 0xFFFFFFFFu];
    size_t index;
    l->json.used = 0;
    HETI_T_TRY(heti_t_list_add(&l->json, l->tokens.bytes.data + left.at, left.length, &l->allocator, l->error));
    HETI_T_TRY(heti_t_list_add(&l->json, l->tokens.bytes.data + right.at, right.length, &l->allocator, l->error));
    HETI_T_TRY(heti_k_set_add(&l->tokens, l->json.data, l->json.used, &index, &l->allocator, l->error));
    *id = HETI_T_CAST(int32_t, index);
    return HET_OK;
}

static het_result heti_k_learn_all(heti_k_learner *l, int64_t vocab, int64_t min_count) {
    while (HETI_T_CAST(int64_t, l->tokens.count) < vocab && l->entries > 0) {
        const heti_k_candidate top = heti_k_candidate_pop(l);
        const uint32_t number = HETI_T_ITEMS(l->slots, const uint32_t)[heti_k_learn_slot(l, top.key)];
        heti_k_pair *pair = &HETI_T_ITEMS(l->pairs, heti_k_pair)[number - 1];
        int32_t id = 0;
        if (pair->count != top.count) {
            if (pair->count > 0) HETI_T_TRY(heti_k_candidate_push(l, pair->count, pair->key));
            continue;
        }
        if (top.count < min_count) break;
        HETI_T_TRY(heti_k_learn_token(l, top.key, &id));
        if (!pair->joined) HETI_T_TRY(heti_t_list_add(&l->merges, &top.key, sizeof top.key, &l->allocator, l->error));
        pair->joined = 1;
        HETI_T_TRY(heti_k_learn_step(l, pair, id));
    }
    return HET_OK;
}

/* ---- tokenizer.json from what was learnt ---- */

/* A token in quotes, spelled in the alphabet (special ones consist of letters that stand for
   themselves). */
static void heti_k_json_token(heti_t_text *t, const heti_k_learner *l, size_t index) {
    const heti_k_item item = heti_k_items(&l->tokens)[index];
    size_t i, k, size;
    char letter[4];
    heti_t_char(t, '"');
    for (i = 0; i < item.length; i++) {
        const unsigned char byte = HETI_T_CAST(unsigned char, l->tokens.bytes.data[item.at + i]);
        if (byte == '"' || byte == '\\') heti_t_char(t, '\\');
        size = heti_t_utf8(heti_t_letter_of_byte(byte), letter);
        for (k = 0; k < size; k++) heti_t_char(t, letter[k]);
    }
    heti_t_char(t, '"');
}

static void heti_k_json_pre_tokenizer(heti_t_text *t, het_split split) {
    const int cut = split == HET_SPLIT_LLAMA3 ? 1 : split == HET_SPLIT_QWEN2 ? 2 : 0;
    if (cut > 0)
        heti_t_format(t, "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":%j},"
                      "\"behavior\":\"Isolated\",\"invert\":false},", heti_k_cuttings[cut].pattern);
    heti_t_format(t, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":%s}%s",
                  cut > 0 || split == HET_SPLIT_WHOLE ? "false" : "true", cut > 0 ? "]}" : "");
}

static void heti_k_json_file(heti_t_text *t, const heti_k_learner *l, const het_tokenizer_desc *d) {
    size_t i;
    heti_t_put(t, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n\"added_tokens\":[");
    for (i = 0; HETI_T_CAST(int64_t, i) < d->specials; i++) {
        heti_t_format(t, "%s{\"id\":%u,\"content\":", i > 0 ? ",\n" : "", HETI_T_CAST(uint64_t, i));
        heti_k_json_token(t, l, i);
        heti_t_put(t, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"
                      "\"special\":true}");
    }
    heti_t_format(t, "],\n\"normalizer\":%s,\n\"pre_tokenizer\":",
                  d->nfc == HET_YES ? "{\"type\":\"NFC\"}" : "null");
    heti_k_json_pre_tokenizer(t, d->split);
    heti_t_put(t, ",\n\"post_processor\":null,\n\"decoder\":"
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},\n"
        "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
        "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
        "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,\"vocab\":{\n");
    for (i = 0; i < l->tokens.count; i++) {
        if (i > 0) heti_t_char(t, ',');
        heti_k_json_token(t, l, i);
        heti_t_format(t, ":%u", HETI_T_CAST(uint64_t, i));
    }
    heti_t_put(t, "},\n\"merges\":[");
    for (i = 0; i < HETI_T_COUNT(l->merges, uint64_t); i++) {
        const uint64_t key = HETI_T_ITEMS(l->merges, const uint64_t)[i];
        heti_t_put(t, i > 0 ? ",[" : "[");
        heti_k_json_token(t, l, HETI_T_CAST(size_t, key >> 32));
        heti_t_char(t, ',');
        heti_k_json_token(t, l, HETI_T_CAST(size_t, key & 0xFFFFFFFFu));
        heti_t_char(t, ']');
    }
    heti_t_put(t, "]}}\n");
}

/* The tokenizer that has what was learnt so far. */
static het_result heti_k_learnt(heti_k_learner *l, const het_tokenizer_desc *d, het_tokenizer **tokenizer) {
    heti_t_text t = heti_t_text_in(NULL, 0);
    heti_k_json_file(&t, l, d);
    l->json.used = 0;
    HETI_T_TRY(heti_t_list_room(&l->json, t.length + 1, &l->allocator, l->error));
    t = heti_t_text_in(l->json.data, t.length + 1);
    heti_k_json_file(&t, l, d);
    return het_tokenizer_read(l->json.data, t.length, &l->allocator, tokenizer, l->error);
}

/* Special tokens, then the 256 bytes. */
static het_result heti_k_learn_alphabet(heti_k_learner *l, const het_tokenizer_desc *d, int32_t byte_id[256]) {
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
        HETI_T_TRY(heti_k_set_add(&l->tokens, text, length, &index, &l->allocator, l->error));
        if (HETI_T_CAST(int64_t, index) < i)
            return heti_t_fail(l->error, HET_ERR_INVALID, "het_tokenizer_train: special[%d] %q comes twice", i, text,
                               length);
    }
    for (letter = 0; letter < 324; letter++) {
        const int byte = heti_k_byte_of_letter(letter);
        const unsigned char c = HETI_T_CAST(unsigned char, byte);
        if (byte < 0) continue;
        HETI_T_TRY(heti_k_set_add(&l->tokens, &c, 1, &index, &l->allocator, l->error));
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
static het_result heti_k_learn(heti_k_learner *l, const het_tokenizer_desc *d, const char *text, size_t length,
                               het_tokenizer **tokenizer) {
    heti_k_encoder e;
    het_tokenizer *bare = NULL;
    int32_t byte_id[256];
    het_result result;
    HETI_T_TRY(heti_k_learn_alphabet(l, d, byte_id));
    HETI_T_TRY(heti_k_learnt(l, d, &bare));
    result = heti_k_encoder_start(&e, bare, text, &l->allocator, l->error);
    e.word = heti_k_count_word;
    e.user = l;
    if (result == HET_OK) result = heti_k_encode_text(&e, 0, e.text, length);
    heti_k_encoder_end(&e);
    het_tokenizer_free(bare);
    if (result != HET_OK) return result;
    HETI_T_TRY(heti_k_learn_start(l, byte_id));
    HETI_T_TRY(heti_k_learn_all(l, d->vocab, d->min_count));
    return heti_k_learnt(l, d, tokenizer);
}

HETRAIN_API het_result het_tokenizer_train(const het_tokenizer_desc *desc, const char *text, size_t length,
                                           het_tokenizer **tokenizer, het_error *error) {
    static const char *const heti_k_end_of_text[1] = { "<|endoftext|>" };
    het_tokenizer_desc d;
    heti_k_learner l;
    het_result result;
    if (desc == NULL || (text == NULL && length > 0) || tokenizer == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_tokenizer_train: a pointer is NULL");
    d = *desc;
    if (d.specials == 0) { d.special = heti_k_end_of_text; d.specials = 1; }
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
    result = heti_k_learn(&l, &d, text, length, tokenizer);
    heti_k_set_free(&l.words, &l.allocator);
    heti_k_set_free(&l.tokens, &l.allocator);
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

#ifdef __cplusplus
}
#endif
#define HETRAIN_TOKENIZER_IMPLEMENTATION_DONE
#endif /* HETRAIN_TOKENIZER_IMPLEMENTATION */

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
