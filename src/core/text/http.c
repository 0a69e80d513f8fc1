/* http.c - a decision as HTTP header fields: first the values (q, w, r, t of weir/http.h), then their text.
 *
 * A limit's name has only letters, digits, '.', '_' and '-' (policy_name_check()), so between quotation marks it is a
 * string of RFC 9651 without any escaping. The other rules of that RFC limit ranges, which are far wider than needed
 * here: integers of up to 15 digits.
 */
#include "core/ground/arith.h"
#include "core/limiter/request.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

__extension__ typedef unsigned __int128 wide;

enum {
    X_RATELIMIT = WEIR_HTTP_X_RATELIMIT | WEIR_HTTP_X_RATELIMIT_UNIX, /* one of them */
    ALL = WEIR_HTTP_RETRY_AFTER | WEIR_HTTP_RATELIMIT_POLICY | WEIR_HTTP_RATELIMIT | X_RATELIMIT,
    NUMBER_LEN = 16 /* more digits than any number here has */
};
_Static_assert(WEIR_HTTP_VALUE_SIZE > sizeof "\"\";q=;w=" + WEIR_MAX_NAME_LEN + 2 * NUMBER_LEN, "every value fits");

struct http_values {
    int64_t retry_s; /* 0: no Retry-After */
    int64_t q, w_s;
    int64_t r;
    int64_t t_s;     /* 0: none */
    int64_t reset_s; /* X-RateLimit-Reset */
};

static int64_t seconds_up(int64_t us)
{
    return div_up(us, WEIR_SECOND);
}

/* ---- Values ---- */

static int64_t window_us(const struct weir_policy *policy, int64_t permits)
{
    const wide limit = (wide)policy->limit;
    switch (policy->algorithm) {
    case WEIR_FIXED_WINDOW:
    case WEIR_SLIDING_WINDOW:
    case WEIR_CONCURRENCY: return policy->period_us;
    case WEIR_TOKEN_BUCKET:
        if (policy->refill == WEIR_INTERVAL)
            return div_up(permits, policy->limit) * policy->period_us;
        break;
    case WEIR_LEAKY_BUCKET: break;
    }
    /* At most WEIR_MAX_FILL_US, or the policy would not be in force. */
    return (int64_t)(((wide)permits * (wide)policy->period_us + limit - 1) / limit);
}

/* Return the permits of the policy that a fresh key is not admitted with, because `strict` subtracts them. */
static int64_t held_back(const struct weir *limiter, const struct weir_policy *policy)
{
    struct weir_plan plan;
    if (!limiter->leases.strict)
        return 0;
    plan_at_share(policy, &share_whole, &plan);
    return lease_reserve(&limiter->leases, &plan);
}

static int values_of_policy(const struct weir_request *request, struct http_values *values)
{
    struct weir_policy policy;
    int error = weir_limit_policy_for(request->limit, request->key, &policy);
    if (error)
        return error;
    values->q = plan_size(&policy, &share_whole) - held_back(request->limit->limiter, &policy);
    values->w_s = seconds_up(window_us(&policy, values->q));
    return WEIR_OK;
}

static int values_of_decision(const struct weir_request *request, const struct weir_decision *decision,
                              bool reset_is_unix, struct http_values *values)
{
    int64_t reset_from_us = reset_is_unix ? request->now_us : 0;
    int error = reset_is_unix && reset_from_us == 0 ? read_clock(request->limit->limiter, &reset_from_us) : WEIR_OK;
    if (error)
        return error;
    const bool comes_again = !decision->allowed && decision->retry_after_us != WEIR_NEVER;
    const int64_t t_us = comes_again ? max_of(1, decision->retry_after_us) : decision->reset_after_us;
    values->t_s = seconds_up(t_us);
    values->retry_s = comes_again ? values->t_s : 0;
    values->r = comes_again ? 0 : decision->remaining;
    values->reset_s = seconds_up(reset_from_us + t_us);
    return WEIR_OK;
}

/* ---- Text ---- */

__attribute__((format(printf, 4, 5))) static void fields_add(struct weir_http_field *fields, int *n, const char *name,
                                                             const char *format, ...)
{
    struct weir_http_field *field = &fields[(*n)++];
    va_list arguments;
    va_start(arguments, format);
    const int len = vsnprintf(field->value, sizeof field->value, format, arguments);
    va_end(arguments);
    assert(len > 0 && (size_t)len < sizeof field->value);
    field->name = name;
    field->name_len = strlen(name);
    field->value_len = (size_t)len;
}

/* Write the fields; there is room for WEIR_HTTP_MAX_FIELDS. */
static int fields_write(const char *limit_name, const struct http_values *values, unsigned which,
                        struct weir_http_field *fields)
{
    int n = 0;
    if (which & WEIR_HTTP_RETRY_AFTER && values->retry_s > 0)
        fields_add(fields, &n, "Retry-After", "%" PRId64, values->retry_s);
    if (which & WEIR_HTTP_RATELIMIT_POLICY)
        fields_add(fields, &n, "RateLimit-Policy", "\"%s\";q=%" PRId64 ";w=%" PRId64, limit_name, values->q,
                   values->w_s);
    if (which & WEIR_HTTP_RATELIMIT && values->t_s > 0)
        fields_add(fields, &n, "RateLimit", "\"%s\";r=%" PRId64 ";t=%" PRId64, limit_name, values->r, values->t_s);
    else if (which & WEIR_HTTP_RATELIMIT)
        fields_add(fields, &n, "RateLimit", "\"%s\";r=%" PRId64, limit_name, values->r);
    if (which & X_RATELIMIT) {
        fields_add(fields, &n, "X-RateLimit-Limit", "%" PRId64, values->q);
        fields_add(fields, &n, "X-RateLimit-Remaining", "%" PRId64, values->r);
        if (values->t_s > 0)
            fields_add(fields, &n, "X-RateLimit-Reset", "%" PRId64, values->reset_s);
    }
    return n;
}

/* ---- Arguments ---- */

static int http_check_request(const struct weir_request *request)
{
    int error = check_arguments(request->limit, request->key, request->cost);
    if (!error && (request->now_us < 0 || request->now_us > WEIR_MAX_TIME_US))
        error = refuse_range(request->limit->limiter, "request->now_us", request->now_us, 0, WEIR_MAX_TIME_US);
    return error;
}

static int http_check_decision(const struct weir *limiter, const struct weir_decision *decision)
{
    const struct {
        const char *name;
        int64_t value, min, max;
    } ranges[] = {
        { "decision->remaining", decision->remaining, 0, 2 * WEIR_MAX_PERMITS },
        { "decision->retry_after_us", decision->retry_after_us, WEIR_NEVER, WEIR_MAX_TIME_US },
        { "decision->reset_after_us", decision->reset_after_us, 0, WEIR_MAX_TIME_US },
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (ranges[i].value < ranges[i].min || ranges[i].value > ranges[i].max)
            return refuse_range(limiter, ranges[i].name, ranges[i].value, ranges[i].min, ranges[i].max);
    return WEIR_OK;
}

static int http_check_which(const struct weir *limiter, unsigned which)
{
    if (which == 0 || which & ~(unsigned)ALL || (which & X_RATELIMIT) == X_RATELIMIT) {
        log_line(&limiter->log, WEIR_LOG_WARNING,
                 "which must be some of enum weir_http_which, and one at most of the two for X-RateLimit, not 0x%x",
                 which);
        return WEIR_EINVAL;
    }
    return WEIR_OK;
}

static int http_check(const struct weir_request *request, const struct weir_decision *decision, unsigned which,
                      const struct weir_http_field *fields)
{
    if (!request || !request->limit)
        return WEIR_EINVAL;
    const struct weir *limiter = request->limit->limiter;
    int error = http_check_request(request);
    if (!error && (!decision || !fields))
        error = refuse_null(limiter, decision ? "fields" : "decision");
    if (!error)
        error = http_check_which(limiter, which);
    return error ? error : http_check_decision(limiter, decision);
}

int weir_http_fields(const struct weir_request *request, const struct weir_decision *decision, unsigned which,
                     struct weir_http_field *fields, size_t room)
{
    struct http_values values = { 0 };
    int error = http_check(request, decision, which, fields);
    if (!error && which & (WEIR_HTTP_RATELIMIT_POLICY | X_RATELIMIT))
        error = values_of_policy(request, &values);
    if (!error)
        error = values_of_decision(request, decision, which & WEIR_HTTP_X_RATELIMIT_UNIX, &values);
    if (error)
        return error;

    struct weir_http_field written[WEIR_HTTP_MAX_FIELDS];
    const int n = fields_write(request->limit->name, &values, which, written);
    if (room < (size_t)n)
        return refuse_range(request->limit->limiter, "room", (int64_t)room, n, WEIR_HTTP_MAX_FIELDS);
    memcpy(fields, written, (size_t)n * sizeof *fields);
    return n;
}
