/* found.h: what the planner found, as the table that a person wants and as JSON. */
#ifndef PROGRAMS_FOUND_H
#define PROGRAMS_FOUND_H

#include "common.h"
#include "hetrain_search.h"

/* "0-4, 9r, 11s2" of a rank's stages, r where they are recomputed unit by unit, R as a whole, s2 where all but 2 micro-batches wait on the host,
   "0-4, 40% of rows" of a team's member.
   Returns the rank's pipeline, and its first stage within it; -1: it is idle. */
static inline int64_t found_units(const het_plan *plan, int64_t rank, int64_t *stage_number, char *to, size_t capacity) {
    int64_t g, pipeline = -1, count, i;
    const het_team_member *team = het_plan_team(plan, rank, &count);
    double share = 0, all = 0;
    size_t at = 0;
    to[0] = 0;
    for (i = 0; i < count && team != NULL; i++) all += team[i].share, share += team[i].rank == rank ? team[i].share : 0;
    if (team != NULL) rank = team->leader;
    for (g = 0; g < plan->stages && at + 48 < capacity; g++) {
        const het_stage *stage = &plan->stage[g];
        if (stage->rank != rank) continue;
        if (pipeline < 0) *stage_number = g - plan->first_stage[stage->pipeline];
        pipeline = stage->pipeline;
        at += (size_t)snprintf(to + at, capacity - at, "%s%lld", at > 0 ? ", " : "", (long long)stage->unit_begin);
        if (stage->unit_end > stage->unit_begin + 1) at += (size_t)snprintf(to + at, capacity - at, "-%lld", (long long)stage->unit_end - 1);
        if (stage->recompute) at += (size_t)snprintf(to + at, capacity - at, stage->recompute == HET_RECOMPUTE_STAGE ? "R" : "r");
        if (stage->recompute_units > 0) at += (size_t)snprintf(to + at, capacity - at, "%d", (int)stage->recompute_units);
        if (stage->store > 0) at += (size_t)snprintf(to + at, capacity - at, "s%d", (int)stage->store);
    }
    if (team != NULL && pipeline >= 0 && at < capacity) snprintf(to + at, capacity - at, ", %.0f%% of rows", 100 * share / all);
    return pipeline;
}

/* ", the last of 2, in 4 slices", or "" where all micro-batches are alike and in one piece. */
static inline const char *found_last(const het_found *f, char to[80]) {
    const int64_t rest = f->plan->step.granules % f->granules;
    int length = 0;
    to[0] = 0;
    if (rest > 0) length = snprintf(to, 80, ", the last of %lld", (long long)rest);
    if (f->plan->slices > 1) snprintf(to + length, 80 - (size_t)length, ", in %lld slices", (long long)f->plan->slices);
    return to;
}

/* What ranks divide, as a plan's file says it. */
static inline const char *found_shard(const het_plan *plan) {
    return plan->shard == HET_SHARD_WEIGHTS ? "weights" : plan->shard == HET_SHARD_GRADIENTS ? "gradients" : "state";
}

static inline int found_keeps(const het_plan *plan, int64_t rank) { return plan->keeper != NULL && plan->keeper[rank] != 0; }

/* The state share of a rank, 0 where it is idle and so has no state; `all`: of all ranks, or 1 for the share as it is. */
static inline double found_state(const het_plan *plan, int64_t rank, double all) {
    int64_t stage, pipeline;
    char units[128];
    pipeline = found_units(plan, rank, &stage, units, sizeof units);
    return pipeline >= 0 || found_keeps(plan, rank) ? plan->state_share[rank] / all : 0;
}

static inline double found_states(const het_plan *plan) {
    double sum = 0;
    int64_t r;
    for (r = 0; r < plan->ranks; r++) sum += found_state(plan, r, 1);
    return sum > 0 ? sum : 1;
}

/* ", weights divided", or "" where only the state is. */
static inline const char *found_divided(const het_plan *plan) {
    int64_t r;
    for (r = 1; plan->near != NULL && r < plan->ranks; r++)
        if (plan->near[r] != plan->near[0]) return ", weights divided among near ranks";
    return plan->shard == HET_SHARD_WEIGHTS ? ", weights divided" : plan->shard == HET_SHARD_GRADIENTS ? ", gradients divided" : "";
}

/* Ranks at work beside each other are slower or faster: which, and how much, a plan decides, and a bound for all plans takes the shorter time. */
static inline int found_disturbed(const het_profile *profile) {
    int64_t i;
    for (i = 0; i < profile->devices; i++)
        if (memcmp(profile->device[i].alone, profile->device[i].together, (size_t)profile->kinds * sizeof *profile->device[i].alone) != 0) return 1;
    return 0;
}

static inline void found_table(const het_search *s, const het_profile *profile, const het_cluster *cluster, double seconds) {
    const het_found *best = &s->found[0];
    const het_plan *plan = best->plan;
    const double states = found_states(plan);
    char last[80];
    int64_t r, i;
    printf("%s on %s: %.3f ms a step, simulated: %s, %lld micro-batches of %lld granules%s%s\n", profile->model, cluster->name[0] != 0 ? cluster->name
        : "these devices", 1e3 * best->seconds, plan->schedule, (long long)best->micro_batches, (long long)best->granules,
            found_last(best, last), found_divided(plan));
    printf("where it goes: %s\n", best->why);
    printf("no plan can take less than %.3f ms (%s%s): this one is %.1f %% above that; %lld plans simulated and %lld ruled out in %.1f s%s\n\n",
        1e3 * s->bound, s->bound_by, found_disturbed(profile) ? ", as if no rank slowed another" : "", 100 * s->distance, (long long)s->evaluations,
        (long long)s->skipped, seconds,
        s->exhaustive ? ", which is all there are" : "");
    printf("%4s %-16s %8s %5s  %-20s %13s %7s %7s %9s %9s %6s\n", "rank", "device", "pipeline", "stage", "units", "micro-batches", "busy %", "idle %",
        "memory", "limit", "state");
    for (r = 0; r < plan->ranks; r++) {
        const het_rank_time *t = &s->simulation->rank[r];
        char units[128], needs[16], limit[16] = "-", share[32];
        int64_t stage = 0, pipeline = found_units(plan, r, &stage, units, sizeof units);
        bytes_text(best->memory[r], needs);
        if (cluster->device[r].memory > 0) bytes_text(cluster->device[r].memory, limit);
        if (pipeline < 0) {
            printf("%4lld %-16.16s     %s", (long long)r, cluster->device[r].name, found_keeps(plan, r) ? "" : "idle\n");
            if (found_keeps(plan, r)) printf("%-64s %9s %9s %5.1f%%\n", "keeper", needs, limit, 100 * found_state(plan, r, states));
            continue;
        }
        snprintf(share, sizeof share, "%.0f of %lld", plan->share[pipeline], (long long)best->micro_batches);
        printf("%4lld %-16.16s %8lld %5lld  %-20s %13s %7.1f %7.1f %9s %9s %5.1f%%\n", (long long)r, cluster->device[r].name, (long long)pipeline,
            (long long)stage, units, share, 100 * t->busy / s->simulation->makespan, 100 * t->idle / s->simulation->makespan, needs, limit,
            100 * found_state(plan, r, states));
    }
    if (s->found_count > 1) printf("\nwhat loses to it:\n");
    for (i = 1; i < s->found_count; i++) {
        const het_found *other = &s->found[i];
        printf("%+7.1f %%  %lld %s, %lld stages, %s, %lld micro-batches of %lld%s%s: %s\n", 100 * (other->seconds / best->seconds - 1),
            (long long)other->plan->pipelines, other->plan->pipelines == 1 ? "pipeline" : "pipelines", (long long)other->plan->stages,
            other->plan->schedule, (long long)other->micro_batches, (long long)other->granules, found_last(other, last), found_divided(other->plan),
            other->why);
    }
}

static inline void found_json(const het_search *s, const het_cluster *cluster) {
    const double states = found_states(s->found[0].plan);
    int64_t i, r;
    printf("{\"seconds\":%.17g,\"bound\":%.17g,\"bound_by\":\"%s\",\"distance\":%.17g,"
        "\"exhaustive\":%s,\"evaluations\":%lld,\"skipped\":%lld,\"found\":[",
        s->found[0].seconds, s->bound, s->bound_by, s->distance, s->exhaustive ? "true" : "false", (long long)s->evaluations, (long long)s->skipped);
    for (i = 0; i < s->found_count; i++) {
        const het_found *f = &s->found[i];
        printf("%s{\"seconds\":%.17g,\"schedule\":\"%s\",\"shard\":\"%s\",\"pipelines\":%lld,\"stages\":%lld,"
            "\"micro_batches\":%lld,\"granules\":%lld,\"slices\":%lld,\"work\":%.17g,"
            "\"fill\":%.17g,\"transfers\":%.17g,\"update\":%.17g,\"why\":\"%s\"}", i > 0 ? "," : "",
            f->seconds, f->plan->schedule, found_shard(f->plan),
            (long long)f->plan->pipelines, (long long)f->plan->stages, (long long)f->micro_batches, (long long)f->granules,
            (long long)f->plan->slices, f->work, f->fill, f->transfers, f->update, f->why);
    }
    printf("],\"ranks\":[");
    for (r = 0; r < cluster->ranks; r++) {
        const het_rank_time *t = &s->simulation->rank[r];
        char units[128];
        int64_t stage = 0, pipeline = found_units(s->found[0].plan, r, &stage, units, sizeof units);
        printf("%s{\"pipeline\":%lld,\"units\":\"%s\",\"micro_batches\":%.0f,"
            "\"busy\":%.17g,\"idle\":%.17g,\"memory\":%.0f,\"limit\":%.0f,\"state\":%.6g,\"keeper\":%s}",
            r > 0 ? "," : "", (long long)pipeline, units, pipeline < 0 ? 0 : s->found[0].plan->share[pipeline], t->busy, t->idle,
            s->found[0].memory[r], cluster->device[r].memory, found_state(s->found[0].plan, r, states),
            found_keeps(s->found[0].plan, r) ? "true" : "false");
    }
    printf("]}\n");
}

#endif
