/* Profiles in the example programs: measuring the devices of a description, files. */
#ifndef EXAMPLES_PROFILE_H
#define EXAMPLES_PROFILE_H

#include "common.h"
#include "hetrain_plan.h"

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
    FILE *file = fopen(path, "wb");
    het_writer writer = { file_write, NULL, NULL };
    het_result result;
    if (file == NULL) return fail(BAD_INPUT, "%s %s: %s", option_name, path, strerror(errno));
    writer.user = file, writer.name = path;
    result = het_profile_write(profile, &writer);
    if (fclose(file) != 0 && result == HET_OK) result = HET_ERR_IO;
    return result == HET_OK ? 0 : fail(FAILED, "%s %s: cannot be written", option_name, path);
}

static inline int profile_read(const char *option_name, const char *path, het_profile **profile) {
    het_error error = { HET_OK, "" };
    het_result result;
    size_t length;
    char *text = read_small_file(path, &length);
    *profile = NULL;
    if (text == NULL) return fail(BAD_INPUT, "%s %s: %s", option_name, path, strerror(errno));
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

#endif
