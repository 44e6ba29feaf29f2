/* Boundaries that no gradient crosses: local losses and frozen layers in front, in every layout. The bits of one rank, gradients of each
   group's own loss, messages and bytes counted, nobody idle after the fill. */
#include "support.h"

#include "hetrain_files.h"
#include "hetrain_plan.h"

#define STEPS 3

typedef struct layout { const char *plan, *schedule; int64_t ranks, slices; } layout;

static het_model_desc local_model(het_family family, int64_t layers, int64_t every)
{
    het_model_desc model = support_model(family);
    model.layers = layers;
    model.local_loss = every;
    return model;
}

static void check_layout(const support_result *base, support_run *run, const layout *l, const char *blocks)
{
    char what[400];
    support_run_ranks(run, l->ranks);
    support_run_plan(run, l->plan, l->schedule, l->slices);
    snprintf(what, sizeof what, "%s, %s, %d slices, family %d, local_loss %d, %s", l->plan, l->schedule ? l->schedule : "", (int)l->slices,
             (int)run->desc.model.family, (int)run->desc.model.local_loss, blocks);
    support_train_same(base, run, blocks, what);
}

/* ---- bits ---- */

/* Between stages and inside them: with 3 layers and a head behind each the chain is e am h am h am H, 9 units and the head. */
static void layouts_do_not_show(void **state)
{
    static const layout layouts[] = {
        { "pp", "1f1b", 2, 1 }, { "pp", "1f1b", 4, 2 }, { "pp", "gpipe", 3, 1 }, { "pp", "zb-h1", 3, 2 }, { "pp", "zb-v", 4, 1 }, { "pp", "v-half", 3, 1 },
        { "pp", "v-min", 2, 1 }, { "pp", "dualpipev", 3, 1 }, { "pp", "interleaved", 3, 1 }, { "pp", "bidirectional", 2, 1 }, { "pp", "greedy", 4, 1 },
        { "pp", "timed", 3, 1 }, { "pp", "terapipe", 2, 3 }, { "pp", "sliced-1f1b", 3, 2 }, { "dp2xpp2", "1f1b", 4, 1 }, { "dp", NULL, 2, 1 },
        { "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,4],\"recompute\":true},{\"rank\":1,\"units\":[4,7]},{\"rank\":2,\"units\":[7,10]}]}]}",
          "1f1b", 3, 1 },
        { "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,3]},{\"rank\":1,\"units\":[3,4]},{\"rank\":2,\"units\":[4,10],\"recompute\":true}]}]}",
          "zb-h1", 3, 1 },
        { "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,5],\"store\":1},{\"rank\":1,\"units\":[5,10]}]}]}", "gpipe", 2, 1 },
        { "pp2xcp2", "1f1b", 4, 1 }, { "hp2", NULL, 2, 1 }, { "pp2xtp2", "1f1b", 4, 1 },
    };
    static const het_family families[] = { HET_GPT2, HET_LLAMA, HET_NEOX };
    size_t i, k;
    (void)state;
    for (i = 0; i < sizeof families / sizeof families[0]; i++) {
        het_model_desc model = local_model(families[i], 3, 1);
        support_result base;
        support_run run;
        model.dropout = i == 1 ? 0.1f : 0.0f;
        support_run_start(&run, &model, STEPS, "17|5,0,9|48|30,2");
        base = support_train(&run, "01|23");
        for (k = 0; k < sizeof layouts / sizeof layouts[0]; k++) {
            run.desc.layout.shard = (het_shard)(1 + k % 3);
            if (strstr(layouts[k].plan, "tp") != NULL) run.desc.layout.shard = HET_SHARD_STATE;
            check_layout(&base, &run, &layouts[k], k % 2 ? "0|1|2|3" : "01|2|3");
        }
        support_run_end(&run);
    }
}

/* ---- frozen layers in front ---- */

/* The embedding and the first two of 4 layers: units 0 to 4. */
static int frozen_front(void *user, const char *name)
{
    (void)user;
    return strstr(name, "embed") != NULL || strstr(name, ".0.") != NULL || strstr(name, ".1.") != NULL;
}

static const char frozen_stages[] = "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,3]},{\"rank\":1,\"units\":[3,5]},"
                                    "{\"rank\":2,\"units\":[5,8]},{\"rank\":3,\"units\":[8,10]}]}]}";

static void frozen_start(support_run *run)
{
    het_model_desc model = support_model(HET_LLAMA);
    model.layers = 4;
    support_run_start(run, &model, STEPS, "17|5,0,9|48|30,2");
    run->desc.frozen = frozen_front;
}

/* Stages in front have no backward action and get no gradient. The bits stay. */
static void frozen_layers_have_only_forwards(void **state)
{
    static const layout layouts[] = {
        { frozen_stages, "1f1b", 4, 1 }, { frozen_stages, "gpipe", 4, 2 }, { frozen_stages, "zb-h1", 4, 1 }, { frozen_stages, "greedy", 4, 1 },
        { frozen_stages, "timed", 4, 1 }, { "pp", "interleaved", 2, 1 }, { "pp", "zb-v", 4, 1 }, { "pp", "v-half", 2, 1 }, { "pp", "v-min", 3, 2 },
        { "pp", "dualpipev", 4, 1 }, { "pp", "dualpipev", 2, 1 }, { "pp", "bidirectional", 4, 1 }, { "pp2xcp2", "1f1b", 4, 1 }, { "dp2xpp2", "1f1b", 4, 1 },
    };
    support_result base;
    support_run run;
    size_t k;
    (void)state;
    frozen_start(&run);
    base = support_train(&run, "01|23");
    for (k = 0; k < sizeof layouts / sizeof layouts[0]; k++) {
        run.desc.layout.shard = (het_shard)(1 + k % 3);
        check_layout(&base, &run, &layouts[k], "0|1|2|3");
    }
    support_run_end(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_do_not_show),
        cmocka_unit_test(frozen_layers_have_only_forwards),
    };
    return cmocka_run_group_tests_name("cuts", tests, NULL, NULL);
}
