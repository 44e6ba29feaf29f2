/* What late gradients buy, measured: contexts run their lists as they do in training, but behind each unit the rank sleeps for what the
   unit would take on its device (het_host.hook). What the machine's own processors do beside hardly matters, and updates take nearly nothing.
   Two virtual workers of two ranks, of which rank 0 is twice as fast as the others, 18 units that take alike: worker A has 12 and 6, worker B
   9 and 9, so that B takes 1.5 times as long for a micro-batch. B is slowed down 3 times for a third of the updates, in one piece or every
   third one; shares are those of the mean speeds where it comes and goes, and once in one piece. A step an update with 1f1b, against all
   updates in one step and gradients one update late, or three.
   Floors, of n_w micro-batches an update that take t_w(i) in update i on each of a worker's ranks: synchronous, which fills and drains, sum
   over i of max over w of (n_w + 1) t_w(i); late max over w of sum over i of n_w t_w(i), and one t_w to fill. What is left of their ratio
   without the fills, sum of maxima over maximum of sums, is 1 in one long piece: the slow worker's own time is all there is.
   hogbatch: two devices of speeds 3 and 1, micro-batches likewise, the state divided or all on the fast one: the part of the step that each
   spends in F and B. An owner takes and gives what it owns between two units. */
#ifndef BENCH_LATE_H
#define BENCH_LATE_H

enum { LATE_UPDATES = 12, LATE_UNITS = 18, LATE_ROUNDS = 32 };
#define LATE_UNIT 0.002 /* seconds of a forward on a device of speed 1; a backward takes twice that */

typedef struct late {
    double unit[4], owed[4];       /* seconds of a forward on each rank; that a rank slept too short, or too long */
    double busy[4];                /* (=) seconds of F and B in the last step */
    int64_t ranks, batches[2];     /* of a worker: the first one's come first; an update's micro-batches */
    unsigned slow;                 /* bits: updates in which the second worker takes three times as long */
    int64_t from, updates;         /* of a step; the step that counts as the first one; -1: nobody sleeps */
    double seconds;
} late;

static het_result late_sleep(void *user, const het_hook_info *info) {
    late *l = (late *)user;
    const int worker = info->rank >= l->ranks;
    const int64_t batch = info->micro_batch - (worker ? l->batches[0] * l->updates : 0);
    const int64_t update = (info->step - l->from) * l->updates + batch / l->batches[worker];
    const double seconds = l->unit[info->rank] * (info->direction == HET_FORWARD ? 1 : 2) * (worker && l->slow >> update & 1 ? 3 : 1);
    const double begin = seconds_now(), wanted = seconds + l->owed[info->rank];
    struct timespec nap = { 0, (long)(wanted * 1e9) };
    if (l->from < 0) return HET_OK;
    if (wanted > 0) (void)nanosleep(&nap, NULL);
    l->owed[info->rank] = wanted - (seconds_now() - begin);
    return HET_OK;
}

/* LATE_UPDATES updates, l->updates a step. */
static int late_run(ranks_bench *r, late *l, const char *plan) {
    const int64_t count = (l->batches[0] + l->batches[1]) * l->updates;
    runner *run = ranks_next(r, "late", l->unit[3] > 0 ? 4 : 2, NULL, 1);
    int status = 0;
    r->count = count;
    r->description.optimizer.clip = -1.0f, r->description.host.hook = late_sleep, r->description.host.user = l;
    l->from = -1;
    if ((status = ranks_create(r, run, plan, NULL)) == 0 && het_step(run->ctx, r->batch, count, NULL) != HET_OK)
        status = fail(FAILED, "%s", het_last_error(run->ctx));
    l->from = 1;
    l->seconds = seconds_now();
    for (int64_t u = 0; u < LATE_UPDATES && status == 0; u += l->updates)
        if (het_step(run->ctx, r->batch, count, NULL) != HET_OK) status = fail(FAILED, "%s", het_last_error(run->ctx));
    l->seconds = seconds_now() - l->seconds;
    for (int64_t rank = 0; rank < run->devices && status == 0; rank++) {
        het_timeline t;
        het_get_timeline(run->ctx, rank, &t);
        for (int64_t i = 0; i < t.records; i++)
            if (t.record[i].action.kind <= HET_ACTION_W) l->busy[rank] += t.record[i].end - t.record[i].start;
    }
    ranks_stop(r);
    return status;
}

static int late_slowed(ranks_bench *r, const char *name, int64_t a, int64_t b, unsigned slow, int64_t rounds) {
    static const char shape[] = "{\"pipelines\":[{\"share\":%d,\"stages\":[{\"rank\":0,\"units\":[0,12]},{\"rank\":1,\"units\":[12,18]}]},"
                                "{\"share\":%d,\"stages\":[{\"rank\":2,\"units\":[0,9]},{\"rank\":3,\"units\":[9,18]}]}],\"schedule\":\"1f1b\",%s}";
    const double t[2] = { 3 * 6 * LATE_UNIT, 3 * 9 * LATE_UNIT };
    double floor[2] = { 0, 0 }, maxima = 0, sum[2] = { 0, 0 }, seconds[3][LATE_ROUNDS], ratio[2][LATE_ROUNDS];
    char plan[400], more[60];
    int status = 0;
    for (int i = 0; i < LATE_UPDATES; i++) {
        const double own = (double)a * t[0], other = (double)b * t[1] * (slow >> i & 1 ? 3 : 1);
        maxima += own > other ? own : other;
        floor[0] += fmax(own + t[0], other + other / (double)b);
        sum[0] += own, sum[1] += other;
    }
    floor[1] = fmax(sum[0] + t[0], sum[1] + t[1]);
    for (int64_t round = 0; round < rounds && status == 0; round++) {
        for (int k = 0; k < 3 && status == 0; k++) { /* D = 0, 1, 3 */
            late l = { { LATE_UNIT / 2, LATE_UNIT, LATE_UNIT, LATE_UNIT }, { 0 }, { 0 }, 2, { a, b }, slow, 0, k ? LATE_UPDATES : 1, 0 };
            snprintf(more, sizeof more, "\"updates\":%d,\"staleness\":%d", (int)l.updates, k == 2 ? 3 : k);
            snprintf(plan, sizeof plan, shape, (int)a, (int)b, more);
            status = late_run(r, &l, plan);
            seconds[k][round] = l.seconds;
            if (k > 0) ratio[k - 1][round] = seconds[0][round] / seconds[k][round];
        }
    }
    if (status != 0) return status;
    printf("{\"name\":\"late\",\"slow\":\"%s\",\"updates\":%d,\"rounds\":%lld", name, LATE_UPDATES, (long long)rounds);
    print_spread_of("synchronous_s", 1, seconds[0], rounds);
    printf(",\"floor_s\":%.4f", floor[0]);
    print_spread_of("late_s", 1, seconds[1], rounds);
    print_spread_of("late_3_s", 1, seconds[2], rounds);
    printf(",\"floor_late_s\":%.4f", floor[1]);
    print_spread_of("ratio", 1, ratio[0], rounds);
    print_spread_of("ratio_3", 1, ratio[1], rounds);
    printf(",\"ratio_at_best\":%.4f,\"without_fills\":%.4f}\n", floor[0] / floor[1], maxima / fmax(sum[0], sum[1]));
    fflush(stdout);
    return 0;
}

static int late_hogbatch(ranks_bench *r, const char *state, int64_t rounds) {
    static const char shape[] = "{\"pipelines\":[{\"share\":3,\"stages\":[{\"rank\":0,\"units\":[0,18]}]},"
                                "{\"stages\":[{\"rank\":1,\"units\":[0,18]}]}],\"state_shares\":[%s],\"schedule\":\"hogbatch\",\"updates\":%d}";
    double busy[2][LATE_ROUNDS];
    char plan[400];
    int status = 0;
    for (int64_t round = 0; round < rounds && status == 0; round++) {
        late l = { { LATE_UNIT, 3 * LATE_UNIT }, { 0 }, { 0 }, 1, { 3, 1 }, 0, 0, LATE_UPDATES, 0 };
        snprintf(plan, sizeof plan, shape, state, 2 * LATE_UPDATES);
        status = late_run(r, &l, plan);
        for (int k = 0; k < 2; k++) busy[k][round] = l.busy[k] / l.seconds;
    }
    if (status != 0) return status;
    printf("{\"name\":\"hogbatch\",\"state_shares\":\"%s\",\"updates_each\":%d,\"rounds\":%lld", state, LATE_UPDATES, (long long)rounds);
    print_spread_of("busy_fast", 1, busy[0], rounds);
    print_spread_of("busy_slow", 1, busy[1], rounds);
    printf("}\n");
    fflush(stdout);
    return 0;
}

static int bench_late(bench *b) {
    const int64_t rounds = b->set.repetitions < LATE_ROUNDS ? b->set.repetitions : LATE_ROUNDS;
    ranks_bench r;
    int status = ranks_prepare(&r, b, "llama:layers=8,width=16,heads=1,vocab=64,context=16", 1, 16, 7 * LATE_UPDATES);
    if (status == 0) status = late_slowed(&r, "a third of the time, in one piece", 3, 2, 0x0f0, rounds);
    if (status == 0) status = late_slowed(&r, "every third update", 5, 2, 0x924, rounds);
    if (status == 0) status = late_slowed(&r, "a third of the time, in one piece; shares of mean speeds", 5, 2, 0x0f0, rounds);
    for (int k = 0; k < 2 && status == 0; k++) status = late_hogbatch(&r, k == 0 ? "3,1" : "1,0", rounds);
    ranks_end(&r);
    return status;
}

#endif
