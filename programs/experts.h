/* experts.h: --experts, a model whose MLPs are experts (hetrain_experts.h). Include it after common.h. */
#ifndef PROGRAMS_EXPERTS_H
#define PROGRAMS_EXPERTS_H

#include "common.h"
#include "hetrain_experts.h"

typedef struct experts_model {
    het_experts settings; /* experts 0: the model has none */
    het_unit *units;
} experts_model;

/* One ",key=value" of --experts; 0: there is no such one. */
static inline int experts_key(const char *word, het_experts *e) {
    char *end = NULL;
    if (strncmp(word, "width=", 6) == 0) e->width = strtoll(word + 6, &end, 10);
    else if (strncmp(word, "capacity=", 9) == 0) e->capacity = strtof(word + 9, &end);
    else if (strncmp(word, "auxiliary=", 10) == 0) e->auxiliary = strtof(word + 10, &end);
    else if (strcmp(word, "drop=probability") == 0) e->drop = HET_DROP_PROBABILITY;
    else if (strcmp(word, "hash") == 0) e->route = HET_ROUTE_HASH, e->auxiliary = 0;
    else return 0;
    return end == NULL || *end == 0;
}

/* E,K[,key=value...] */
static inline int experts_read(const char *spec, het_experts *e) {
    char text[256], *word, *rest = NULL;
    int at = 0;
    long long experts = 0, used = 0;
    memset(e, 0, sizeof *e);
    e->auxiliary = 0.01f;
    if (strlen(spec) >= sizeof text || sscanf(spec, "%lld,%lld%n", &experts, &used, &at) != 2 || experts < 1 || used < 1 ||
        (spec[at] != 0 && spec[at] != ','))
        return fail(BAD_INPUT, "--experts %s: E,K: so many, of which a token uses K", spec);
    e->experts = experts, e->used = used;
    snprintf(text, sizeof text, "%s", spec + at);
    for (word = strtok_r(text, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest))
        if (!experts_key(word, e))
            return fail(BAD_INPUT, "--experts %s: '%s' is none of width=F, capacity=C, drop=probability, auxiliary=A, hash", spec, word);
    return 0;
}

/* A config.json becomes that of the model without experts, in place: keys that het_model_from_json would refuse get names it steps over. */
static inline void experts_hide(char *text) {
    static const char *const keys[] = { "\"num_experts\"", "\"architectures\"" };
    char *at;
    int i;
    for (i = 0; i < 2; i++)
        if ((at = strstr(text, keys[i])) != NULL) at[1] = '_';
    at = strstr(text, "\"model_type\"");
    if (at != NULL && (at = strchr(at, ':')) != NULL && (at = strstr(at, "_moe\"")) != NULL) memcpy(at, "\"    ", 5);
}

/* Units of the description, whose devices are known. spec: of --experts. */
static inline int experts_start(experts_model *m, const char *spec, het_desc *desc) {
    const int64_t units = model_units(&desc->model);
    het_error error = { HET_OK, "" };
    if (m->settings.experts == 0) return 0;
    if ((m->units = (het_unit *)calloc((size_t)units, sizeof *m->units)) == NULL) return fail(FAILED, "out of memory");
    if (het_experts_units(desc, &m->settings, m->units, units, &error) == HET_OK) return 0;
    return fail(BAD_INPUT, "--experts %s: %s", spec, behind_name(error.text, "experts"));
}

/* What config.json says of them, to be `base` of what is saved, and freed; NULL: the model has none, or there is no memory. Qwen3-MoE's keys, and its
   model_type where transformers computes the same. */
static inline char *experts_json(const experts_model *m, const het_model_desc *model, size_t *length) {
    const het_experts *e = &m->settings;
    const int theirs = e->route != HET_ROUTE_HASH && !(e->capacity > 0);
    char *text = e->experts > 0 ? (char *)malloc(1024) : NULL;
    if (text == NULL) return NULL;
    *length = (size_t)snprintf(text, 1024, "{\"model_type\": \"%sqwen3_moe\", \"num_experts\": %lld, \"num_experts_per_tok\": %lld, "
                               "\"moe_intermediate_size\": %lld, \"norm_topk_prob\": %s, \"router_aux_loss_coef\": %.9g, \"decoder_sparse_step\": 1, "
                               "\"mlp_only_layers\": [], \"bos_token_id\": null, \"eos_token_id\": null}", theirs ? "" : "hetrain_",
                               (long long)e->experts, (long long)e->used, (long long)(e->width > 0 ? e->width : model->mlp_width),
                               e->used > 1 ? "true" : "false", (double)e->auxiliary);
    return text;
}

#endif
