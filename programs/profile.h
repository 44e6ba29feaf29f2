/* Profiles in the programs: measuring the devices of a description, files. */
#ifndef PROGRAMS_PROFILE_H
#define PROGRAMS_PROFILE_H

#include "common.h"
#include "files.h"
#include "hetrain_search.h"

static inline double profile_now(void *user) { (void)user; return seconds_now(); }

/* The devices of `desc` at sequences of `length` tokens; about `seconds` a kind of device. */
static inline int profile_measure(const char *option_name, const het_desc *desc, const char *model, int64_t length, double seconds,
                                  het_profile **profile) {
    het_measure_desc measure;
    het_error error = { HET_OK, "" };
    het_result result;
    memset(&measure, 0, sizeof measure);
    measure.desc = desc, measure.model = model, measure.length = length, measure.seconds = seconds, measure.now = profile_now;
    result = het_profile_measure(&measure, profile, &error);
    return result == HET_OK ? 0 : fail(status_of(result), "%s: %s", option_name, error.text);
}

static inline int profile_write(const char *option_name, const char *path, const het_profile *profile) {
    write_target t;
    het_writer writer;
    const int status = target_open(&t, option_name, path);
    if (status != 0) return status;
    writer = target_writer(&t);
    return target_end(&t, het_profile_write(profile, &writer), NULL);
}

static inline int profile_read(const char *option_name, const char *path, het_profile **profile) {
    het_error error = { HET_OK, "" };
    het_result result;
    size_t length;
    char *text = read_small_file(path, &length);
    *profile = NULL;
    if (text == NULL) return fail(BAD_INPUT, "%s %s: %s", option_name, path, small_file_error());
    result = het_profile_read(text, length, NULL, profile, &error);
    free(text);
    return result == HET_OK ? 0 : fail(status_of(result), "%s %s: %s", option_name, path, error.text);
}

/* FILE or FILE,FILE,...: of one model; a device or link that comes again replaces the earlier one. */
static inline int profile_read_list(const char *option_name, const char *list, het_profile **profile) {
    char path[1024];
    het_profile *next, *merged;
    het_error error = { HET_OK, "" };
    *profile = NULL;
    for (;;) {
        const size_t length = strcspn(list, ",");
        int status;
        if (length == 0 || length >= sizeof path) return fail(BAD_INPUT, "%s: a file name of %lld characters", option_name, (long long)length);
        memcpy(path, list, length);
        path[length] = 0;
        if ((status = profile_read(option_name, path, &next)) != 0) return status;
        merged = next;
        if (*profile != NULL) {
            const het_result result = het_profile_merge(*profile, next, NULL, &merged, &error);
            het_profile_free(next);
            if (result != HET_OK) return fail(status_of(result), "%s %s: %s", option_name, path, error.text);
            het_profile_free(*profile);
        }
        *profile = merged;
        if (list[length] == 0) return 0;
        list += length + 1;
    }
}

/* Granules of other sizes have other costs. tokens: of the longest. */
static inline int profile_check_granule(const char *option_name, const char *path, const het_profile *profile, int64_t tokens) {
    if (profile->granule == 0 || (2 * tokens <= 3 * profile->granule && 3 * tokens >= 2 * profile->granule)) return 0;
    return fail(BAD_INPUT, "%s %s: was measured with granules of %lld tokens, here they have %lld (--granule, --length)", option_name, path,
                (long long)profile->granule, (long long)tokens);
}

/* Whether the times of a profile hold for what `desc` describes: its model, and its type and sums, if they are not 0. Measured profiles say
   their granule; of one written by hand only the number of units is compared. */
static inline int profile_check(const char *option_name, const char *path, const het_profile *profile, const het_desc *desc,
                                const char *model) {
    static const char *const types[] = { "", "f32", "bf16" }, *const sums[] = { "", "exact", "fast" };
    het_desc like = *desc;
    het_profile *described = NULL, *both = NULL;
    het_error error = { HET_OK, "" };
    het_result result;
    if (desc->dtype != 0 && desc->dtype != profile->dtype)
        return fail(BAD_INPUT, "%s %s: was measured with --dtype %s, this is %s", option_name, path, types[profile->dtype], types[desc->dtype]);
    if (desc->reduce != 0 && desc->reduce != profile->reduce)
        return fail(BAD_INPUT, "%s %s: was measured with --reduce %s, this is %s", option_name, path, sums[profile->reduce], sums[desc->reduce]);
    if (profile->units != model_units(&desc->model))
        return fail(BAD_INPUT, "%s %s: is of %lld units (model \"%s\"); --model %s has %lld", option_name, path, (long long)profile->units,
                    profile->model, model, (long long)model_units(&desc->model));
    if (profile->granule == 0) return 0;
    like.layout.devices = NULL, like.layout.device_count = 0; /* bytes are the same on all */
    like.dtype = profile->dtype, like.reduce = profile->reduce;
    result = het_profile_describe(&like, profile->model, NULL, &described, &error);
    if (result == HET_OK) result = het_profile_merge(described, profile, NULL, &both, &error);
    het_profile_free(described);
    het_profile_free(both);
    return result == HET_OK ? 0 : fail(status_of(result), "%s %s: is of model \"%s\", not of --model %s (%s)", option_name, path, profile->model,
                                       model, error.text);
}

#endif
