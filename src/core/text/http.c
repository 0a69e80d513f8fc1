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
_Static_assert(WEIR_HTTP_VALUE_SIZE > sizeof "\"\";q=;w=" + WEIR_MAX_NAME_LEN + 2 * NUMBER_LEN &&
                   WEIR_HTTP_VALUE_SIZE > sizeof "\"\";q=;qu=\"concurrent-requests\"" + WEIR_MAX_NAME_LEN + NUMBER_LEN,
               "every value fits");

struct http_values {
    int64_t retry_s; /* 0: no Retry-After */
    int64_t q, w_s;  /* w_s is 0 of a limit on requests in flight, and of deny */
    int64_t r;
    int64_t t_s;     /* 0: none */
    int64_t reset_s; /* X-RateLimit-Reset */
};

static int64_t seconds_up(int64_t us)
{
    return div_up(us, WEIR_SECOND);
}

/* ---- Values ---- */

/* Return how long the policy takes to provide permits, rounded up or down. */
static int64_t provide_us(const struct weir_policy *policy, int64_t permits, bool up)
{
    const wide limit = (wide)policy->limit;
    switch (policy->algorithm) {
    case WEIR_FIXED_WINDOW:
    case WEIR_SLIDING_WINDOW:
    case WEIR_CONCURRENCY: return up ? policy->period_us : 0;
    case WEIR_TOKEN_BUCKET:
        if (policy->refill == WEIR_INTERVAL)
            return (up ? div_up(permits, policy->limit) : permits / policy->limit) * policy->period_us;
        break;
    case WEIR_LEAKY_BUCKET: break;
    case WEIR_UNLIMITED:
    case WEIR_DENY: return 0;
    }
    /* At most WEIR_MAX_FILL_US, or the policy would not be in force. */
    return (int64_t)(((wide)permits * (wide)policy->period_us + (up ? limit - 1 : 0)) / limit);
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

static void values_of_policy(const struct weir_request *request, const struct weir_policy *policy,
                             struct http_values *values)
{
    if (policy_is_fixed(policy))
        return; /* q is 0 */
    values->q = plan_size(policy, &share_whole) - held_back(request->limit->limiter, policy);
    values->w_s = policy->algorithm == WEIR_CONCURRENCY ? 0 : seconds_up(provide_us(policy, values->q, true));
}

/* Look at the key at `now_us`. False if that would ask Redis or a backend of the user's. */
static bool look(const struct weir_request *request, const struct weir_decision *decision, int64_t cost, int64_t now_us,
                 struct weir_decision *out)
{
    struct weir *limiter = request->limit->limiter;
    if (decision->source != WEIR_BY_MEMORY || limiter->can_block)
        return false;
    const struct weir_backend_request peek = backend_request(request->limit, request->key, cost, now_us, WEIR_PEEK);
    return limiter->backend->ops->decide(limiter->backend, &peek, 1, false, INT64_MAX, out) == WEIR_OK;
}

/* Return the wait for one permit after a decision that has left none. In memory the key's state tells. Elsewhere it
 * follows from the time at which all permits are back: the last of them is a permit, and the others take as long as the
 * policy needs for them. Of a sliding window and of a fallback's permits, which come back otherwise, that time is an
 * upper bound. */
static int64_t next_permit_us(const struct weir_request *request, const struct weir_decision *decision,
                              const struct weir_policy *policy, int64_t now_us)
{
    struct weir_decision next;
    if (look(request, decision, 1, now_us, &next) && next.retry_after_us > 0)
        return next.retry_after_us;
    if (decision->source == WEIR_BY_FALLBACK)
        return decision->reset_after_us;
    return max_of(1, decision->reset_after_us - provide_us(policy, max_of(0, decision->limit - 1), false));
}

/* Return the time of which all times are multiples at which a key's permits come back; 0: they come at any time. */
static int64_t grid_us(const struct weir_policy *policy)
{
    if (policy->algorithm == WEIR_SLIDING_WINDOW)
        return div_up(policy->period_us, policy->blocks ? policy->blocks : POLICY_DEFAULT_BLOCKS);
    return policy->align == WEIR_ALIGN_EPOCH ? policy->period_us : 0;
}

/* Return the Unix time that is t from the decision. The clock may have gone on since then, and may differ from the
 * one that decided. A window that ends at a multiple of a known time tells which time is meant. */
static int64_t reset_at_us(int64_t now_us, int64_t t_us, const struct weir_policy *policy, enum weir_source source)
{
    const int64_t at_us = now_us + t_us, grid = grid_us(policy);
    if (grid == 0 || source >= WEIR_BY_FALLBACK)
        return at_us;
    return (at_us + grid / 2) / grid * grid;
}

static int values_of_decision(const struct weir_request *request, const struct weir_decision *decision,
                              const struct weir_policy *policy, bool reset_is_unix, struct http_values *values)
{
    const bool comes_again = !decision->allowed && decision->retry_after_us != WEIR_NEVER;
    const bool left_none = decision->allowed && decision->remaining == 0 && decision->reset_after_us > 0;
    values->r = comes_again ? 0 : decision->remaining;
    if (policy->algorithm == WEIR_CONCURRENCY) /* a permit comes back when a request ends, which may be at any time */
        return WEIR_OK;
    int64_t now_us = request->now_us;
    int error = now_us == 0 && (reset_is_unix || left_none) ? read_clock(request->limit->limiter, &now_us) : WEIR_OK;
    if (error)
        return error;
    int64_t t_us = decision->reset_after_us;
    if (comes_again)
        t_us = max_of(1, decision->retry_after_us);
    else if (left_none)
        t_us = next_permit_us(request, decision, policy, now_us);
    values->t_s = seconds_up(t_us);
    values->retry_s = comes_again ? values->t_s : 0;
    values->reset_s = values->t_s;
    if (reset_is_unix) {
        struct weir_decision now; /* in memory the state tells how much of t is left when the fields are written */
        if (request->now_us == 0 && look(request, decision, comes_again ? request->cost : 1, now_us, &now)) {
            const int64_t left_us = comes_again || left_none ? now.retry_after_us : now.reset_after_us;
            t_us = left_us > 0 ? min_of(t_us, left_us) : t_us;
        }
        values->reset_s = seconds_up(reset_at_us(now_us, t_us, policy, decision->source));
    }
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
    if (which & WEIR_HTTP_RATELIMIT_POLICY && values->q == 0)
        fields_add(fields, &n, "RateLimit-Policy", "\"%s\";q=0", limit_name);
    else if (which & WEIR_HTTP_RATELIMIT_POLICY && values->w_s == 0)
        fields_add(fields, &n, "RateLimit-Policy", "\"%s\";q=%" PRId64 ";qu=\"concurrent-requests\"", limit_name,
                   values->q);
    else if (which & WEIR_HTTP_RATELIMIT_POLICY)
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
    struct weir_policy policy;
    int error = http_check(request, decision, which, fields);
    if (!error && which == WEIR_HTTP_RETRY_AFTER && decision->allowed)
        return 0;
    if (!error) /* of the half that binds the key, if there are two */
        error = weir_limit_policy(backend_request(request->limit, request->key, 1, 0, WEIR_PEEK).limit, &policy);
    if (!error)
        error = values_of_decision(request, decision, &policy, which & WEIR_HTTP_X_RATELIMIT_UNIX, &values);
    if (error)
        return error;
    values_of_policy(request, &policy, &values);

    if (decision->source == WEIR_BY_POLICY && decision->limit > 0)
        return 0; /* without a limit there is no quota to name */
    struct weir_http_field written[WEIR_HTTP_MAX_FIELDS];
    const int n = fields_write(request->limit->name, &values, which, written);
    if (room < (size_t)n)
        return refuse_range(request->limit->limiter, "room", (int64_t)room, n, WEIR_HTTP_MAX_FIELDS);
    memcpy(fields, written, (size_t)n * sizeof *fields);
    return n;
}
