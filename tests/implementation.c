/* The implementations that programs and tests are linked with: all, or one of two parts, which compile at the same time. */
#ifndef companions_alone
#define HETRAIN_IMPLEMENTATION
#include "hetrain.h"
#endif
#ifndef engine_alone
#define HETRAIN_TEXT_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#define HETRAIN_SEARCH_IMPLEMENTATION
#define HETRAIN_TOKENIZER_IMPLEMENTATION
#define HETRAIN_FILES_IMPLEMENTATION
#include "hetrain_search.h"
#include "hetrain_tokenizer.h"
#include "hetrain_files.h"
#endif
