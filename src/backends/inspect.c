/* inspect.c - the API of an inspector: opens the kind that the mode asks for, and passes calls on. */
#include "backends/machine/machine.h"
#include "backends/shared/inspect_kind.h"
#include "core/ground/cancel.h"
#include "core/limiter/options.h"

#ifdef WEIR_REDIS
#include "backends/redis/inspect/inspector.h"
#endif

static const struct inspect_kind *kind_of(const weir_inspector *inspector)
{
    return *(const struct inspect_kind *const *)(const void *)inspector; /* its first member */
}

static int inspector_refuse(const struct weir_options *options, const char *sentence)
{
    const struct log log = { options->log, options->user };
    log_line(&log, WEIR_LOG_ERROR, "%s", sentence);
    return WEIR_EINVAL;
}

static int inspector_open(const struct weir_options *options, weir_inspector **out)
{
    struct weir_options read;
    const int error = options_read(options, &read);
    if (error)
        return error;
    if (!out)
        return inspector_refuse(&read, "out must not be NULL");
    if (read.mode == WEIR_LOCAL)
        return inspector_refuse(&read,
                                "option mode is WEIR_LOCAL: only keys in Redis or a shared file can be inspected");
    if (read.mode == WEIR_MACHINE)
        return machine_inspect_open(&read, out);
#ifdef WEIR_REDIS
    return redis_inspect_open(&read, out);
#else
    return inspector_refuse(&read, "this build of weir has no Redis, so there is nothing to inspect in it");
#endif
}

int weir_inspect_open(const struct weir_options *options, weir_inspector **out)
{
    CANCEL_DISABLED;
    log_forget();
    return log_conclude(inspector_open(options, out));
}

void weir_inspect_close(weir_inspector *inspector)
{
    CANCEL_DISABLED;
    if (inspector)
        kind_of(inspector)->close(inspector);
}

int weir_inspect_key(weir_inspector *inspector, const char *limit, struct weir_key key, struct weir_inspected *out)
{
    CANCEL_DISABLED;
    if (!inspector || !out)
        return WEIR_EINVAL;
    log_forget();
    return log_conclude(kind_of(inspector)->key(inspector, limit, key, out));
}

int weir_inspect_keys(weir_inspector *inspector, const char *limit, const char *pattern,
                      int (*visit)(void *user, const struct weir_inspected *key), void *user)
{
    bool is_all;
    return weir_inspect_some(inspector, limit, pattern, INT64_MAX, &is_all, visit, user);
}

int weir_inspect_some(weir_inspector *inspector, const char *limit, const char *pattern, int64_t most, bool *is_all,
                      int (*visit)(void *user, const struct weir_inspected *key), void *user)
{
    CANCEL_DISABLED;
    if (!inspector || !is_all)
        return WEIR_EINVAL;
    *is_all = false;
    log_forget();
    return log_conclude(kind_of(inspector)->some(inspector, limit, pattern, most, is_all, visit, user));
}

int weir_inspect_reset(weir_inspector *inspector, const char *limit, struct weir_key key, bool *existed)
{
    CANCEL_DISABLED;
    bool ignored;
    if (!inspector)
        return WEIR_EINVAL;
    log_forget();
    return log_conclude(kind_of(inspector)->reset(inspector, limit, key, existed ? existed : &ignored));
}
