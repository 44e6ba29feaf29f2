/* --islands: this process is one island of several (hetrain_outer.h), with devices and a plan of its own; the transport that --world or a launcher
   gives is theirs. With --island-world that one connects the processes of an island, of which the first meets the other islands. Over TCP islands
   that died and were started again come back. Not part of hetrain. */
#ifndef PROGRAMS_ISLANDS_H
#define PROGRAMS_ISLANDS_H

#include "connect.h"
#include "hetrain_outer.h"

typedef struct islands {
    int64_t count, island;        /* 1, 0 */
    int64_t every;                /* steps between two joins */
    het_transport transport;      /* MPI's; over TCP one that is open, and not the outer step's yet, or no longer */
    het_transport now;            /* as it was opened last */
    int waits;                    /* the last step's join, for whoever goes on */
    int leaves;                   /* it was stopped within a join: `transport` is still to be closed */
    int follows;                  /* this process is not the first of its island */
    connect_place place;          /* over TCP, to meet again; processes 0: over MPI; `stopped`: whether to wait no longer */
    connect_secret secret;
    het_logger logger;
    het_outer *outer;
    double tokens;                /* trained since the last join of a fragment, all of them together */
    void *saved;                  /* [saved_size] the checkpoint's ISLANDS_FILE, NULL: none */
    size_t saved_size;
} islands;

#define ISLANDS_FILE "islands.bin"

static inline int islands_stopped(const islands *all) { return all->place.stopped != NULL && all->place.stopped(all->place.user); }

/* Whether this island is stopped, as its first process sees it. */
static inline int islands_are_stopped(const islands *all, het_ctx *ctx) {
    int32_t stopped = islands_stopped(all);
    return het_broadcast(ctx, 0, &stopped, sizeof stopped) == HET_OK && stopped;
}

/* Over TCP, later: where, and as what. Who is started waits for a day, as the others may be far from their next join. */
static inline void islands_prepare(islands *all, const connect_place *place, const connect_secret *secret, const het_logger *logger) {
    all->place = *place, all->secret = *secret, all->logger = *logger;
    all->place.seconds = 24 * 3600;
    all->count = place->processes, all->island = place->process;
}

/* The others wait for it as het_tcp_desc says. */
static inline het_result islands_meet(islands *all, het_error *error) {
    const connect_place place = all->place;
    all->place.seconds = 0;
    return connect_open(&place, &all->secret, &all->logger, &all->transport, error);
}

static inline het_result islands_open(void *user, het_transport *transport, het_error *error) {
    islands *all = (islands *)user;
    het_result result = HET_OK;
    if (islands_stopped(all)) return het_error_put(error, HET_ERR_CANCELLED, "it was stopped");
    if (all->transport.iface == NULL) result = islands_meet(all, error);
    if (result == HET_OK) *transport = all->now = all->transport;
    memset(&all->transport, 0, sizeof all->transport);
    return result;
}

/* That others hear of it takes up to five seconds: of an island that is stopped it is closed behind what it saves, by islands_leave. */
static inline void islands_close(void *user, het_transport *transport) {
    islands *all = (islands *)user;
    het_error error;
    all->now.iface = NULL;
    all->leaves = islands_stopped(all);
    if (all->leaves) all->transport = *transport;
    else (void)het_tcp_close(transport, &error);
}

static inline void islands_leave(islands *all) {
    het_error error;
    if (all->leaves) (void)het_tcp_close(&all->transport, &error);
}

/* Others may still be far from the join that a stopped island waits for: it leaves, as one that died. */
static inline void islands_pause(void *user) {
    const struct timespec t = { 0, 200000 };
    const het_transport *now = &((islands *)user)->now;
    if (now->iface != NULL && islands_stopped((islands *)user)) now->iface->abort(now->self, HET_ERR_CANCELLED, "an island was stopped");
    (void)nanosleep(&t, NULL);
}

/* What a checkpoint has of the outer step, to be kept in memory until islands_start. lost: it may be without. */
static inline int islands_load(islands *all, const het_saved *saved, int lost) {
    het_error error = { HET_OK, "" };
    het_result result;
    if (all->follows) return 0;
    result = het_checkpoint_file(saved, ISLANDS_FILE, NULL, 0, &all->saved_size, &error);
    if (result != HET_ERR_LIMIT && lost) return 0;
    if (result != HET_ERR_LIMIT)
        return fail(BAD_INPUT, "--islands: %s has no " ISLANDS_FILE ", the outer step's momentum; --force-resume starts without", saved->path);
    all->saved = malloc(all->saved_size);
    if (all->saved == NULL) return fail(FAILED, "--islands: no memory for %llu bytes", (unsigned long long)all->saved_size);
    result = het_checkpoint_file(saved, ISLANDS_FILE, all->saved, all->saved_size, &all->saved_size, &error);
    return result == HET_OK ? 0 : fail(status_of(result), "--islands: %s", error.text);
}

/* An island that comes late goes on at the step where the others are: as if it had trained until there, without momentum. */
static inline het_result islands_catch_up(const islands *all, het_ctx *ctx) {
    const int64_t rounds = het_outer_get_info(all->outer)->rounds, parameters = het_parameter_count(ctx);
    int32_t *exponent;
    het_result result;
    int64_t p;
    if (rounds == 0 || !het_outer_get_info(all->outer)->adopted) return HET_OK;
    if ((exponent = (int32_t *)malloc((size_t)parameters * sizeof *exponent)) == NULL) return HET_ERR_OOM;
    for (p = 0; p < parameters; p++) exponent[p] = HETRAIN_NO_EXPONENT;
    result = het_restore_begin(ctx, HET_STATE_INCOMPLETE);
    if (result == HET_OK) result = het_restore_end(ctx, HET_STATE_INCOMPLETE, rounds * all->every, exponent, NULL);
    free(exponent);
    return result;
}

/* After a step; joins where it is time to. One that is stopped while it waits makes that join when it goes on. */
static inline het_result islands_step(islands *all, het_ctx *ctx, int64_t done, int64_t tokens) {
    het_result result;
    all->tokens += (double)tokens;
    if (done % all->every != 0) return het_outer_poll(all->outer);
    if (het_outer_get_info(all->outer)->rounds * all->every >= done) return HET_OK; /* it was behind, and took part in two rounds at once */
    result = het_outer_join(all->outer, all->tokens);
    if (result != HET_OK && islands_are_stopped(all, ctx) && het_outer_get_info(all->outer)->joins >= 0) {
        result = HET_OK;
        all->waits = het_outer_get_info(all->outer)->rounds * all->every < done;
    }
    if (!all->waits) all->tokens = 0;
    return result;
}

/* steps: of the whole run. */
static inline het_result islands_start(islands *all, het_outer_desc *desc, het_ctx *ctx, int64_t steps, het_error *error) {
    het_result result;
    desc->islands = all->count, desc->island = all->island;
    desc->rounds = steps / all->every;
    if (desc->pace == 0) desc->run = (uint64_t)desc->rounds; /* as many everywhere */
    if (het_get_desc(ctx)->model.lora_rank > 0) desc->run ^= het_get_base(ctx); /* factors of the same weights */
    desc->pause = islands_pause, desc->user = all;
    desc->state = all->saved, desc->state_size = all->saved_size;
    if (all->place.processes > 1) desc->open = islands_open, desc->close = islands_close;
    else desc->transport = all->now = all->transport;
    result = het_outer_create(desc, ctx, &all->outer, error);
    free(all->saved), all->saved = NULL;
    all->place.seconds = 0; /* also where it has met nobody yet, behind its last join */
    if (result == HET_OK) all->tokens = het_outer_get_info(all->outer)->trained;
    if (result == HET_OK && (result = islands_catch_up(all, ctx)) != HET_OK) result = het_error_put(error, result, het_last_error(ctx));
    if (result != HET_OK || all->tokens <= 0 || het_get_step(ctx) % all->every != 0) return result;
    result = islands_step(all, ctx, het_get_step(ctx), 0); /* the join that it was stopped in */
    if (result != HET_OK) (void)het_error_put(error, result, het_outer_error(all->outer));
    return result;
}

#endif
