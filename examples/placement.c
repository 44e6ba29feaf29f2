/* Which ranks sample and which train: successive halving over all placements (HetRL, 2025), beside looking at every one in full. For 200 drawn sets
   of unequal ranks and costs the plan found must take at most 5 % more than the best.
     placement [WRITE TRAIN SPEED SPEED ...]      seconds to write a sample and to train on it at speed 1, and ranks' speeds: their best placement,
                                                  as examples/grpo.c takes it */
#define HETRAIN_IMPLEMENTATION
#include "hetrain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 64, MOST = 8 };
typedef struct problem { int ranks; double cost[2], speed[MOST]; } problem; /* cost: to write, to train on */

/* Seconds of a round of `count` samples: one behind the other to who is free first. train: ranks by bits. */
static double round_seconds(const problem *p, int train, int count) {
    double free_at[2][MOST], end[2] = { 0, 0 };
    int role, i, r;
    memset(free_at, 0, sizeof free_at);
    for (role = 0; role < 2; role++)
        for (i = 0; i < count; i++) {
            int best = -1;
            for (r = 0; r < p->ranks; r++)
                if ((train >> r & 1) == role && (best < 0 || free_at[role][r] + p->cost[role] / p->speed[r] <
                                                 free_at[role][best] + p->cost[role] / p->speed[best]))
                    best = r;
            free_at[role][best] += p->cost[role] / p->speed[best];
            if (free_at[role][best] > end[role]) end[role] = free_at[role][best];
        }
    return end[0] + end[1]; /* on policy: first all samples, then the step */
}

/* Every rung looks at the better half of the last one's placements with twice the samples. *looked: samples simulated. */
static int halve(const problem *p, int *looked) {
    int alive[1 << MOST], count = (1 << p->ranks) - 2, of = SAMPLES / 8, i, k;
    double seconds[1 << MOST];
    for (i = 0; i < count; i++) alive[i] = i + 1;
    for (*looked = 0; count > 1; count = (count + 1) / 2, of = of < SAMPLES ? 2 * of : of)
        for (i = 0, *looked += count * of; i < count; i++) {
            const int now = alive[i];
            const double t = round_seconds(p, now, of);
            for (k = i; k > 0 && t < seconds[k - 1]; k--) alive[k] = alive[k - 1], seconds[k] = seconds[k - 1];
            alive[k] = now, seconds[k] = t;
        }
    return alive[0];
}

static double uniform(uint64_t *state) {
    const uint64_t h = het_xxh64(state, sizeof *state, 7);
    ++*state;
    return (double)(h >> 11) / 9007199254740992.0;
}

int main(int argc, char **argv) {
    uint64_t state = 1;
    double worst = 1;
    int round, r, looked = 0, all = 0, at = 0;
    problem p;
    memset(&p, 0, sizeof p);
    if (argc > 1) {
        if (argc < 5 || argc > 3 + MOST) return fprintf(stderr, "placement [WRITE TRAIN SPEED SPEED ...]: 2 to %d speeds\n", (int)MOST), 2;
        for (at = 1; at < argc; at++) {
            char *end;
            const double number = strtod(argv[at], &end);
            if (*end != 0 || !(number > 0 && number <= 1e9))
                return fprintf(stderr, "placement: argument %d, %s: not a number above 0, at most 1e9\n", at, argv[at]), 2;
            if (at < 3) p.cost[at - 1] = number;
            else p.speed[p.ranks++] = number;
        }
        at = halve(&p, &looked);
        for (r = 0; r < p.ranks; r++) putchar('0' + (at >> r & 1));
        putchar('\n');
        return 0;
    }
    for (round = 0; round < 200; round++) {
        double best = 1e300, found;
        int placement, some;
        p.ranks = 3 + (int)(uniform(&state) * (MOST - 2));
        for (r = 0; r < 2; r++) p.cost[r] = 0.2 + uniform(&state);
        for (r = 0; r < p.ranks; r++) p.speed[r] = 0.1 + 0.9 * uniform(&state);
        for (placement = 1; placement < (1 << p.ranks) - 1; placement++) {
            const double t = round_seconds(&p, placement, SAMPLES);
            best = t < best ? t : best;
            all += SAMPLES;
        }
        found = round_seconds(&p, halve(&p, &some), SAMPLES) / best;
        worst = found > worst ? found : worst;
        looked += some;
    }
    printf("200 sets of 3 to %d ranks: successive halving within %.1f %% of the best placement, with %.0f %% of the samples simulated\n", (int)MOST,
           100 * (worst - 1), 100.0 * looked / all);
    return worst <= 1.05 ? 0 : 1;
}
