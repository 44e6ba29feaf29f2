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
