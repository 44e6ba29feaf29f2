/* The implementation the test programs are linked with. */
#define HETRAIN_IMPLEMENTATION
#include "hetrain.h"
