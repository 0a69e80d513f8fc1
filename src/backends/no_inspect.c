/* no_inspect.c - the inspector of a build without Redis, which has nothing to inspect. */
#include "core/limiter/options.h"

int weir_inspect_open(const struct weir_options *options, weir_inspector **out)
{
    struct weir_options read;
    (void)out;
    log_forget();
    int error = options_read(options, &read);
    if (!error) {
        const struct log log = { read.log, read.user };
        log_line(&log, WEIR_LOG_ERROR, "this build of weir has no Redis, so there is nothing to inspect");
        error = WEIR_EINVAL;
    }
    return log_conclude(error);
}

void weir_inspect_close(weir_inspector *inspector)
{
    (void)inspector;
}

int weir_inspect_key(weir_inspector *inspector, const char *limit, struct weir_key key, struct weir_inspected *out)
{
    (void)inspector, (void)limit, (void)key, (void)out;
    return WEIR_EINVAL;
}

int weir_inspect_keys(weir_inspector *inspector, const char *limit, const char *pattern,
                      int (*visit)(void *user, const struct weir_inspected *key), void *user)
{
    (void)inspector, (void)limit, (void)pattern, (void)visit, (void)user;
    return WEIR_EINVAL;
}

int weir_inspect_reset(weir_inspector *inspector, const char *limit, struct weir_key key, bool *existed)
{
    (void)inspector, (void)limit, (void)key, (void)existed;
    return WEIR_EINVAL;
}
