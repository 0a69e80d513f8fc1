/* instance.c - one instance of a service: a limiter with the limits of the command line. */
#include "cli/replay/instance.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

/* A limiter must never run out of room; the number of rows and keys is bounded already. */
#define ALL_THE_ROOM (INT64_C(1) << 50)
#define MAX_KEYS (INT64_C(1) << 31)

int instance_failed(const char *what, int error)
{
    complain("%s: %s", what, weir_strerror(error));
    return EXIT_FAILED;
}

int instance_options(struct weir_options *options, const struct policies *policies, size_t keys)
{
    size_t halves = policies->count; /* a candidate has states of its own */
    for (size_t i = 0; i < policies->count; i++)
        halves += policies->all[i].policy.candidate.limit > 0;
    for (size_t i = 0; i < policies->override_count; i++)
        halves += policies->overrides[i].policy.candidate.limit > 0;
    const int64_t states = (int64_t)keys * (int64_t)halves;
    options->keep_idle = true;
    options->max_keys = states < 1 ? 1 : states;
    options->max_bytes = ALL_THE_ROOM;
    if (states <= MAX_KEYS)
        return EXIT_OK;
    complain("%lld keys are more than the 2^31 that a limiter can hold", (long long)states);
    return EXIT_FAILED;
}

static bool name_is_taken(const struct policies *policies, size_t before, const char *name)
{
    for (size_t i = 0; i < before; i++)
        if (strcmp(policies->all[i].name, name) == 0)
            return true;
    return false;
}

/* Choose the name of a limit: the policy's own, because percent= chooses keys by it. It may have none, or one that an
 * earlier policy has. */
static void instance_name(const struct policies *policies, size_t number, char name[WEIR_MAX_NAME_LEN + 1])
{
    const char *own = policies->all[number].name;
    if (own[0] && !name_is_taken(policies, number, own)) {
        memcpy(name, own, strlen(own) + 1);
        return;
    }
    snprintf(name, WEIR_MAX_NAME_LEN + 1, "policy-%zu", number + 1);
    for (int i = 2; name_is_taken(policies, policies->count, name); i++)
        snprintf(name, WEIR_MAX_NAME_LEN + 1, "policy-%zu.%d", number + 1, i);
}

int instance_open(struct instance *instance, const struct weir_options *options, const struct policies *policies)
{
    *instance = (struct instance){ .limit_count = policies->count, .policies = policies };
    int error = weir_open(options, &instance->limiter);
    if (error != WEIR_OK)
        return instance_failed("cannot open a limiter", error);
    for (size_t i = 0; i < policies->count; i++) {
        char name[WEIR_MAX_NAME_LEN + 1];
        instance_name(policies, i, name);
        error = weir_limit_define(instance->limiter, name, &policies->all[i].policy, &instance->limits[i]);
        if (error == WEIR_OK)
            error = policies_override(policies, i, instance->limiter, name);
        if (error != WEIR_OK)
            return instance_failed(policies->all[i].text, error);
    }
    return EXIT_OK;
}

void instance_close(struct instance *instance)
{
    weir_close(instance->limiter);
    instance->limiter = NULL;
}

struct weir_request instance_request(const struct instance *instance, const struct rows *rows, const struct row *row,
                                     size_t limit)
{
    const struct named_policy *policy = &instance->policies->all[limit];
    struct span key = rows_key(rows, rows_key_of(rows, row, policy->key_kind));
    return (struct weir_request){ instance->limits[limit], weir_key(key.data, key.len),
                                  rows_cost_of(rows, row, policy->cost_kind), 0 };
}

/* A limit does not apply to a request that costs it nothing: return how many limits it costs something. */
static size_t requests_make(const struct instance *instance, const struct rows *rows, const struct row *row,
                            struct weir_request *out, size_t *limits)
{
    size_t count = 0;
    for (size_t i = 0; i < instance->limit_count; i++) {
        out[count] = instance_request(instance, rows, row, i);
        limits[count] = i;
        count += out[count].cost > 0;
    }
    return count;
}

/* Decide a request that costs nothing: it is admitted, and shows what the first limit has left. */
static int decide_free(const struct instance *instance, const struct rows *rows, const struct row *row,
                       struct weir_decision *out)
{
    const struct weir_request request = instance_request(instance, rows, row, 0);
    const int error = weir_peek(request.limit, request.key, 1, out);
    out->allowed = true;
    out->retry_after_us = out->delay_us = 0;
    return error == WEIR_OK ? EXIT_OK : instance_failed("cannot decide", error);
}

int instance_decide(const struct instance *instance, const struct rows *rows, const struct row *row,
                    struct weir_decision *out)
{
    struct weir_request requests[WEIR_MAX_ALL];
    size_t limits[WEIR_MAX_ALL];
    const size_t count = requests_make(instance, rows, row, requests, limits);
    if (count == 0)
        return decide_free(instance, rows, row, out);
    const int error = count == 1 ? weir_try(requests[0].limit, requests[0].key, requests[0].cost, out)
                                 : weir_try_all(instance->limiter, requests, count, out);
    return error == WEIR_OK ? EXIT_OK : instance_failed("cannot decide", error);
}

int instance_reserve(const struct instance *instance, const struct rows *rows, const struct row *row,
                     struct weir_decision *out, struct weir_reservation *reservations)
{
    struct weir_request requests[WEIR_MAX_ALL];
    struct weir_reservation made[WEIR_MAX_ALL];
    size_t limits[WEIR_MAX_ALL];
    const size_t count = requests_make(instance, rows, row, requests, limits);
    memset(reservations, 0, instance->limit_count * sizeof *reservations);
    if (count == 0)
        return decide_free(instance, rows, row, out);
    const int error = weir_reserve_all(instance->limiter, requests, count, out, made);
    for (size_t i = 0; i < count && error == WEIR_OK; i++)
        reservations[limits[i]] = made[i];
    return error == WEIR_OK ? EXIT_OK : instance_failed("cannot decide", error);
}
