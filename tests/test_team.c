/* Teams: a stage run by several unequal ranks, by rows with attention by context, by heads or both. The bits are those of one rank, and
   messages and bytes what the formulas say. */
#include "support.h"

#include "hetrain_files.h"

#define STEPS 3

typedef struct layout { const char *plan, *schedule; int64_t ranks, slices; } layout;

static const layout layouts[] = {
    { "cp2", NULL, 2, 1 }, { "cp:5,3,2", NULL, 3, 1 }, { "cp:1,0,2", NULL, 3, 1 },
    { "hp2", NULL, 2, 1 }, { "hp:3,1", NULL, 2, 1 }, { "hp2", NULL, 2, 3 },
    { "pp2xcp2", "1f1b", 4, 1 }, { "dp2xhp2", NULL, 4, 1 }, { "pp2xhp2", "zb-h1", 4, 2 }, { "dp2xcp2", NULL, 4, 1 },
    { "pp2xcp2", "gpipe", 4, 1 }, { "pp2xcp2", "zb-v", 4, 1 },
};

static void run_layout(const support_result *base, support_run *run, const layout *l, const char *blocks)
{
    char what[200];
    support_run_ranks(run, l->ranks);
    support_run_plan(run, l->plan, l->schedule, l->slices);
    snprintf(what, sizeof what, "%s, %s, %d slices, family %d, %s", l->plan, l->schedule ? l->schedule : "", (int)l->slices,
             (int)run->desc.model.family, blocks);
    support_train_same(base, run, blocks, what);
}

static void every_layout(het_family family, const char *data, const char *blocks)
{
    het_model_desc model = support_deep_model(family);
    support_result base;
    support_run run;
    size_t i;
    if (strcmp(data, SUPPORT_LONG) == 0) model.context = 1200;
    support_run_start(&run, &model, STEPS, data);
    base = support_train(&run, blocks);
    for (i = 0; i < sizeof layouts / sizeof layouts[0]; i++) run_layout(&base, &run, &layouts[i], blocks);
    support_run_end(&run);
}

static void teams_have_the_bits_of_one_rank(void **state)
{
    static const het_family families[] = { HET_GPT2, HET_LLAMA, HET_QWEN3, HET_NEOX };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof families / sizeof families[0]; i++) {
        every_layout(families[i], SUPPORT_SHORT, "012|345");
        every_layout(families[i], SUPPORT_LONG, "01|2");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(teams_have_the_bits_of_one_rank) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
