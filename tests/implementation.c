/* The implementations the test programs are linked with. */
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#define HETRAIN_SEARCH_IMPLEMENTATION
#define HETRAIN_TOKENIZER_IMPLEMENTATION
#define HETRAIN_FILES_IMPLEMENTATION
#include "hetrain.h"
#include "hetrain_search.h"
#include "hetrain_tokenizer.h"
#include "hetrain_files.h"
