/* Several updates of the weights in a step: lists, what versions they use, bits in every layout, and against a loop of het_gradients. */
#include "support.h"

#include "hetrain_plan.h"

#define STEPS 3

typedef struct layout { const char *plan, *schedule; int64_t ranks, slices; } layout;

static void run_start(support_run *run, const layout *l, const het_model_desc *model, int64_t updates, int64_t staleness)
{
    support_run_start(run, model, STEPS, "17|5,0,9|48|30,2");
    run->desc.optimizer.clip = -1.0f;

    support_run_ranks(run, l->ranks);
    support_run_plan(run, l->plan, l->schedule, l->slices);
    run->plan->updates = updates;
    run->plan->staleness = staleness;
}

/* Versions by distance do not depend on the layout, but pipelines deal micro-batches out: `order` is that of one rank which has the same
   ones in each update as the layout has of 0|1|2|3. */
static void layouts_do_not_show(void **state)
{
    static const struct { layout l; const char *order; int64_t updates, staleness; } cases[] = {
        { { "pp", "1f1b", 2, 1 }, "0|1|2|3", 2, 1 }, { { "pp", "2bw", 3, 1 }, "0|1|2|3", 2, 0 }, { { "pp", "gpipe", 2, 1 }, "0|1|2|3", 2, 1 },
        { { "pp", "zb-h1", 3, 1 }, "0|1|2|3", 4, 3 }, { { "pp", "1f1b", 2, 2 }, "0|1|2|3", 2, 1 }, { { "pp", "interleaved", 2, 1 }, "0|1|2|3", 2, 1 },
        { { "pp", "zb-v", 2, 1 }, "0|1|2|3", 2, 1 }, { { "pp", "1f1b", 1, 1 }, "0|1|2|3", 4, 0 }, { { "dp", "1f1b", 2, 1 }, "0|2|1|3", 2, 0 },
        { { "dp", "1f1b", 2, 1 }, "0|2|1|3", 2, 1 }, { { "dp", "gpipe", 2, 1 }, "0|2|1|3", 2, 1 }, { { "dp2xpp2", "1f1b", 4, 1 }, "0|2|1|3", 2, 1 },
        { { "dp", "1f1b", 4, 1 }, "0|1|2|3", 1, 0 },
    };
    static const het_family families[] = { HET_LLAMA, HET_GPT2 };
    size_t i, f;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (f = 0; f < 2; f++) {
            const het_model_desc model = support_model(families[f]);
            const layout alone = { "pp", cases[i].staleness > 0 || cases[i].l.schedule[0] == '2' ? "gpipe" : "1f1b", 1, 1 };
            support_run run, one;
            support_result base;
            char what[80];
            if (f == 1 && strcmp(cases[i].l.schedule, "zb-v") == 0) continue; /* the tied matrix is on a rank twice: its updates would mix */
            snprintf(what, sizeof what, "%s %s of %d ranks, %d updates", cases[i].l.plan, cases[i].l.schedule, (int)cases[i].l.ranks, (int)cases[i].updates);
            run_start(&one, &alone, &model, cases[i].updates, cases[i].staleness > 0 ? cases[i].staleness : cases[i].l.schedule[0] == '2');
            base = support_train(&one, cases[i].order);
            run_start(&run, &cases[i].l, &model, cases[i].updates, cases[i].staleness);
            support_train_same(&base, &run, "0|1|2|3", what);
            support_run_end(&run);
            support_run_end(&one);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_do_not_show),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
