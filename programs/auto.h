/* auto.h: --plan auto. From devices, emulated links and a measured connection to what the planner takes. */
#ifndef AUTO_H
#define AUTO_H

#include "found.h"
#include "layout.h"
#include "profile.h"

enum { AUTO_GROUPS = 2 * LAYOUT_RANKS };

typedef struct auto_planner {
    het_profile *profile;
    het_cluster cluster;                 /* of the arrays below */
    het_cluster_device device[LAYOUT_RANKS];
    het_group group[AUTO_GROUPS];
    het_search_desc search;
    const char *schedule[1];
    het_search *found;
    char profile_path[1200], cluster_path[1200]; /* files with what the search began from; "": not written */
} auto_planner;

static inline void planner_end(auto_planner *p) {
    het_search_free(p->found);
    het_profile_free(p->profile);
    p->found = NULL, p->profile = NULL;
}

/* ---- the cluster ---- */

/* Seconds of a message of 64 KiB: what decides which ranks are near each other. */
static inline double auto_distance(const het_link_cost *link) { return link->latency + (link->bandwidth > 0 ? 65536 / link->bandwidth : 0); }

/* Ranks joined into groups, the nearest first; a group is as far apart as its two farthest members. Nodes 0 .. n - 1 are ranks, then groups. */
typedef struct auto_tree {
    int64_t ranks, nodes, top[LAYOUT_RANKS], tops; /* top: what is not yet part of a group */
    int64_t left[AUTO_GROUPS], right[AUTO_GROUPS], first_process[AUTO_GROUPS];
    int one_process[AUTO_GROUPS];
    het_link_cost between[AUTO_GROUPS];           /* the farthest two members */
    het_link_cost link[LAYOUT_RANKS][LAYOUT_RANKS];
} auto_tree;

static inline void auto_farthest(const auto_tree *t, int64_t a, int64_t b, het_link_cost *most) {
    if (a >= t->ranks) {
        auto_farthest(t, t->left[a], b, most);
        auto_farthest(t, t->right[a], b, most);
    } else if (b >= t->ranks) auto_farthest(t, b, a, most);
    else if (auto_distance(&t->link[a][b]) > auto_distance(most)) *most = t->link[a][b];
}

static inline void auto_join(auto_tree *t) {
    while (t->tops > 1) {
        int64_t i, k, a = 0, b = 1, node = t->nodes++;
        double least = -1;
        for (i = 0; i < t->tops; i++)
            for (k = i + 1; k < t->tops; k++) {
                het_link_cost far = { 0, 0 };
                auto_farthest(t, t->top[i], t->top[k], &far);
                if (least >= 0 && auto_distance(&far) >= least) continue;
                least = auto_distance(&far), a = i, b = k;
            }
        memset(&t->between[node], 0, sizeof t->between[node]);
        t->left[node] = t->top[a], t->right[node] = t->top[b];
        auto_farthest(t, t->left[node], t->right[node], &t->between[node]);
        t->first_process[node] = t->first_process[t->left[node]];
        t->one_process[node] = t->one_process[t->left[node]] && t->one_process[t->right[node]] &&
                               t->first_process[t->left[node]] == t->first_process[t->right[node]];
        t->top[a] = node;
        t->top[b] = t->top[--t->tops];
    }
}

/* Groups of a node, parents first. Nodes whose members are as far apart as those of the group around them are part of it. `process`: inside a
   group that is a process already. */
static inline void auto_groups(auto_planner *p, const auto_tree *t, int64_t node, int64_t parent, int process, int many) {
    const int makes_process = many && !process && t->one_process[node];
    int64_t here = parent;
    if (parent < 0 || makes_process ||
        (node >= t->ranks && auto_distance(&t->between[node]) < (1 - 1e-9) * (p->group[parent].latency + (p->group[parent].bandwidth > 0 ?
        65536 / p->group[parent].bandwidth : 0)))) {
        het_group *g = &p->group[here = p->cluster.groups++];
        memset(g, 0, sizeof *g);
        if (parent < 0) snprintf(g->name, sizeof g->name, "%s", p->cluster.name);
        else snprintf(g->name, sizeof g->name, makes_process ? "process %d" : "group %d", (int)(makes_process ? t->first_process[node] : here));
        g->parent = parent, g->process = makes_process;
        if (node >= t->ranks) g->latency = t->between[node].latency, g->bandwidth = t->between[node].bandwidth;
    }
    if (node < t->ranks) p->device[node].group = here;
    else {
        auto_groups(p, t, t->left[node], here, process || makes_process, many);
        auto_groups(p, t, t->right[node], here, process || makes_process, many);
    }
}

/* Ranks of all processes; the links that the profile knows, emulated ones on top. between: of different processes. */
static inline int planner_cluster(auto_planner *p, const layout *l, int64_t processes, const het_link_cost *between) {
    auto_tree *t = (auto_tree *)calloc(1, sizeof *t);
    int64_t r, k;
    if (t == NULL) return fail(FAILED, "out of memory");
    t->ranks = t->nodes = t->tops = l->world;
    for (r = 0; r < l->world; r++) {
        const het_device_desc *d = &l->all[r];
        size_t name;
        t->top[r] = r, t->one_process[r] = 1;
        t->first_process[r] = l->process_of[r];
        for (k = 0; k < l->world; k++) {
            if (l->process_of[r] != l->process_of[k]) t->link[r][k] = *between;
            else if (p->profile->links > 0) {
                t->link[r][k].latency = p->profile->link[0].latency;
                t->link[r][k].bandwidth = p->profile->link[0].bandwidth;
            }
        }
        memset(&p->device[r], 0, sizeof p->device[r]);
        het_device_name(d, p->device[r].profile, sizeof p->device[r].profile);
        het_device_name(d, p->device[r].name, sizeof p->device[r].name);
        name = strlen(p->device[r].name);
        if (d->speed > 0 && d->speed < 1) snprintf(p->device[r].name + name, sizeof p->device[r].name - name, "@%g", d->speed);
        name = strlen(p->device[r].name);
        if (d->max_tokens > 0) snprintf(p->device[r].name + name, sizeof p->device[r].name - name, "#%lld", (long long)d->max_tokens);
        p->device[r].max_tokens = (double)d->max_tokens;
        p->device[r].speed = d->speed > 0 ? d->speed : 1;
        /* estimates leave out what rounding to 64 bytes adds */
        p->device[r].memory = d->memory_limit > 0 ? 0.99 * (double)d->memory_limit - 16384 : 0;
        if (d->memory_limit > 0 && p->device[r].memory < 1) p->device[r].memory = 1;
    }
    for (k = 0; k < l->links; k++) {
        const het_link *e = &l->link[k];
        if (e->from >= l->world || e->to >= l->world || l->process_of[e->from] != l->process_of[e->to]) continue;
        t->link[e->from][e->to].latency = e->latency, t->link[e->from][e->to].bandwidth = e->bandwidth;
        t->link[e->to][e->from] = t->link[e->from][e->to];
    }
    auto_join(t);
    p->cluster.ranks = l->world, p->cluster.groups = 0;
    p->cluster.device = p->device, p->cluster.group = p->group;
    p->cluster.wires = processes == 1; /* threads, and emulated links, have one a pair */
    snprintf(p->cluster.name, sizeof p->cluster.name, "--devices");
    auto_groups(p, t, t->nodes - 1, -1, 0, processes > 1);
    free(t);
    return 0;
}

/* Beside the plan PATH or PATH.json: PATH and `end`. */
static inline const char *planner_beside(char to[1200], const char *plan, const char *end) {
    snprintf(to, 1200, "%.*s%s", (int)(strlen(plan) - (ends_with(plan, ".json") ? 5 : 0)), plan, end);
    return to;
}

/* PATH.cluster.json, and PATH.profile.json if the profile is in no file of its own (`profile`, a list). */
static inline int planner_write(auto_planner *p, const char *plan, const char *profile) {
    write_target t;
    het_writer writer;
    int status = 0;
    if (strlen(plan) > 1000) return fail(BAD_INPUT, "--save-plan: path too long");
    planner_beside(p->cluster_path, plan, ".cluster.json");
    if (profile != NULL) snprintf(p->profile_path, sizeof p->profile_path, "%.1199s", profile);
    else {
        status = profile_write("--save-plan", planner_beside(p->profile_path, plan, ".profile.json"), p->profile);
    }
    if (status != 0 || (status = target_open(&t, "--save-plan", p->cluster_path)) != 0) return status;
    writer = target_writer(&t);
    return target_end(&t, het_cluster_write(&p->cluster, &writer), NULL);
}

/* ---- the search ---- */

/* Looks for the best plan of a step of `granules` times `sequences` of `length` tokens. schedule: the only one tried; NULL: all of a good set;
   "timed": the same, and lists made for the times of what is found. shard: the most that may be divided; default: weights where memory is capped.
   slices: of a micro-batch at most. now: 0 only describes it. */
static inline int planner_search(auto_planner *p, int64_t granules, int64_t sequences, int64_t length, const char *schedule,
                                 het_shard shard, int64_t slices, double seconds, int now) {
    het_error error = { HET_OK, "" };
    het_result result;
    int64_t r;
    memset(&p->search, 0, sizeof p->search);
    p->search.profile = p->profile, p->search.cluster = &p->cluster;
    p->search.granules = granules, p->search.granule_sequences = sequences, p->search.granule_tokens = sequences * length;
    p->search.granule_pairs = (double)sequences * (double)length * ((double)length + 1) / 2;
    if (schedule != NULL) p->schedule[0] = schedule, p->search.schedules = p->schedule, p->search.schedule_count = 1;
    p->search.shard = shard, p->search.slices = slices, p->search.seconds = seconds, p->search.clock = profile_now;
    for (r = 0; r < p->cluster.ranks; r++)
        if (p->device[r].memory > 0) { /* where memory is capped activations may wait on the host, and weights be divided */
            p->search.store = HET_YES;
            if (shard == HET_SHARD_DEFAULT) p->search.shard = HET_SHARD_WEIGHTS;
        }
    if (!now) return 0;
    p->search.evaluations = 1000000000; /* time ends it; while training, evaluations may end it before */
    result = het_plan_search(&p->search, &p->found, &error);
    p->search.evaluations = 0;
    if (result == HET_OK) return 0;
    return fail(BAD_INPUT, "%s: %s", strstr(error.text, "schedule '") != NULL ? "--schedule" : "--plan auto", error.text);
}

#endif
