/* experts.h: a model whose MLPs are experts (hetrain_experts.h), by --experts or as its config.json says. Include it after common.h. */
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
    return end == NULL || (*end == 0 && end[-1] != '=');
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

/* A config.json becomes that of the model without experts, in place: keys that het_model_from_json would refuse, or that mean something else in
   Qwen3-MoE, get names it steps over. */
static inline void experts_hide(char *text) {
    static const char *const keys[] = { "\"num_experts\"", "\"num_local_experts\"", "\"architectures\"", "\"use_sliding_window\"",
                                       "\"layer_types\"" };
    char *at;
    size_t i;
    for (i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if ((at = strstr(text, keys[i])) != NULL) at[1] = '_';
    at = strstr(text, "\"model_type\"");
    if (at != NULL && (at = strchr(at, ':')) != NULL && (at = strstr(at, "_moe\"")) != NULL) memcpy(at, "\"    ", 5);
}

/* What Qwen3-MoE reads otherwise than Qwen3: a window is every layer's, whatever max_window_layers is, and heads are the width's parts unless
   head_dim is there. */
typedef struct experts_attention {
    int64_t window, head_size; /* 0: none; not said */
    int slides;                /* use_sliding_window */
} experts_attention;

/* One key of a config.json: Qwen3-MoE's, and ours for what that does not have. */
static inline void experts_config_key(het_json *j, const char *key, het_experts *e, experts_attention *a) {
    int64_t step = 1;
    double real = 0;
    int yes = 0;
    if (strcmp(key, "num_experts") == 0 || strcmp(key, "num_local_experts") == 0) het_json_integer(j, &e->experts);
    else if (het_json_peek(j) == HET_JSON_NULL) het_json_null(j), a->window = strcmp(key, "sliding_window") == 0 ? 0 : a->window;
    else if (strcmp(key, "use_sliding_window") == 0) het_json_boolean(j, &a->slides);
    else if (strcmp(key, "sliding_window") == 0) het_json_integer(j, &a->window);
    else if (strcmp(key, "head_dim") == 0) het_json_integer(j, &a->head_size);
    else if (strcmp(key, "num_experts_per_tok") == 0) het_json_integer(j, &e->used);
    else if (strcmp(key, "moe_intermediate_size") == 0) het_json_integer(j, &e->width);
    else if (strcmp(key, "norm_topk_prob") == 0) het_json_boolean(j, &yes), e->renormalize = yes ? HET_YES : HET_NO;
    else if (strcmp(key, "router_aux_loss_coef") == 0) het_json_real(j, &real), e->auxiliary = (float)real;
    else if (strcmp(key, "hetrain_capacity") == 0) het_json_real(j, &real), e->capacity = (float)real;
    else if (strcmp(key, "hetrain_drop") == 0) het_json_skip(j), e->drop = HET_DROP_PROBABILITY;
    else if (strcmp(key, "hetrain_route") == 0) het_json_skip(j), e->route = HET_ROUTE_HASH;
    else if (strcmp(key, "decoder_sparse_step") == 0) het_json_integer(j, &step);
    else if (strcmp(key, "mlp_only_layers") == 0)
        step -= het_json_enter(j, HET_JSON_ARRAY) && het_json_next(j, NULL, 0, NULL);
    else het_json_skip(j);
    if (step != 1) het_json_fail(j, "experts in some layers alone are not supported");
}

/* What a config.json says of experts; without num_experts, or num_local_experts as transformers 5 writes it, there are none. */
static inline int experts_of_config(const char *option_name, const char *path, const char *text, size_t length, het_experts *e,
                                    experts_attention *a) {
    het_json j = het_json_start(text, length);
    char key[64];
    size_t key_length;
    memset(e, 0, sizeof *e);
    memset(a, 0, sizeof *a);
    if (strstr(text, "\"num_experts\"") == NULL && strstr(text, "\"num_local_experts\"") == NULL) return 0;
    /* transformers' defaults of sliding_window, norm_topk_prob and num_experts_per_tok */
    a->window = 4096, e->renormalize = HET_NO, e->used = 8;
    het_json_enter(&j, HET_JSON_OBJECT);
    while (het_json_next(&j, key, sizeof key, &key_length)) experts_config_key(&j, key, e, a);
    if (j.rule != NULL) return fail(BAD_INPUT, "%s %s: byte %lld: %s", option_name, path, (long long)j.rule_at, j.rule);
    return 0;
}

/* The model of a config.json whose text this changes, with experts or, 0 of them, without. path: for messages. */
static inline int model_with_experts(const char *option_name, const char *path, char *text, size_t length, het_model_desc *model, het_experts *e) {
    het_error error = { HET_OK, "" };
    het_result result = HET_OK;
    experts_attention own;
    const int status = experts_of_config(option_name, path, text, length, e, &own);
    if (e->experts > 0) experts_hide(text);
    if (status == 0) result = het_model_from_json(text, length, model, &error);
    if (status == 0 && result == HET_OK && own.slides) model->window = own.window;
    if (status == 0 && result == HET_OK && e->experts > 0 && model->family == HET_QWEN3 && own.head_size == 0)
        model->head_size = model->width / model->heads;
    return result == HET_OK ? status : fail(status_of(result), "%s %s: %s", option_name, path, error.text);
}

/* As model_from_spec, of a model with experts too. */
static inline int model_or_experts(const char *option_name, const char *spec, het_model_desc *model, het_experts *e) {
    size_t length = 0;
    int status;
    char *text = config_text(option_name, spec, &length, &status);
    memset(e, 0, sizeof *e);
    if (text != NULL) status = model_with_experts(option_name, spec, text, length, model, e);
    else if (status == 0) status = model_from_spec(option_name, spec, model);
    free(text);
    return status;
}

/* --init FILE|DIR: the weights' path, and the model beside them unless --model says otherwise. Shapes of experts are looked at when the weights are
   loaded. */
static inline int model_from_init(const char *init, const char *spec, het_model_desc *model, het_experts *e, char *weights, size_t capacity) {
    char config[1024];
    int status = weights_of_init(init, spec, weights, capacity, config);
    if (status == 0) status = model_or_experts(spec != NULL ? "--model" : "--init", spec != NULL ? spec : config, model, e);
    return status != 0 || e->experts > 0 ? status : model_fits("--init", weights, model);
}

/* Units of the description, whose devices are known. spec: of --experts, NULL: it was --init. */
static inline int experts_start(experts_model *m, const char *spec, het_desc *desc) {
    const int64_t units = model_units(&desc->model);
    het_error error = { HET_OK, "" };
    if (m->settings.experts == 0) return 0;
    if ((m->units = (het_unit *)calloc((size_t)units, sizeof *m->units)) == NULL) return fail(FAILED, "out of memory");
    if (het_experts_units(desc, &m->settings, m->units, units, &error) == HET_OK) return 0;
    return fail(BAD_INPUT, "%s%s: %s", spec != NULL ? "--experts " : "--init", spec != NULL ? spec : "", behind_name(error.text, "experts"));
}

/* What config.json says of them, to be `base` of what is saved, and freed; NULL: the model has none, or there is no memory. Qwen3-MoE's keys, and its
   model_type where transformers computes the same, else keys of ours too. */
static inline char *experts_json(const experts_model *m, const het_model_desc *model, size_t *length) {
    const het_experts *e = &m->settings;
    const int theirs = e->route != HET_ROUTE_HASH && !(e->capacity > 0),
              renormalizes = e->renormalize == HET_YES || (e->renormalize == HET_DEFAULT && e->used > 1);
    char *text = e->experts > 0 ? (char *)malloc(1024) : NULL, own[112] = "";
    if (text == NULL) return NULL;
    if (e->capacity > 0)
        snprintf(own, sizeof own, ", \"hetrain_capacity\": %.9g%s", (double)e->capacity,
                 e->drop == HET_DROP_PROBABILITY ? ", \"hetrain_drop\": \"probability\"" : "");
    if (e->route == HET_ROUTE_HASH) strcat(own, ", \"hetrain_route\": \"hash\"");
    *length = (size_t)snprintf(text, 1024, "{\"model_type\": \"%sqwen3_moe\", \"num_experts\": %lld, \"num_experts_per_tok\": %lld, "
                               "\"moe_intermediate_size\": %lld, \"norm_topk_prob\": %s, \"router_aux_loss_coef\": %.9g, \"decoder_sparse_step\": 1, "
                               "\"mlp_only_layers\": [], \"bos_token_id\": null, \"eos_token_id\": null%s}", theirs ? "" : "hetrain_",
                               (long long)e->experts, (long long)e->used, (long long)(e->width > 0 ? e->width : model->mlp_width),
                               renormalizes ? "true" : "false", (double)e->auxiliary, own);
    return text;
}

#endif
