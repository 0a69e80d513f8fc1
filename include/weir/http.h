/* http.h - a decision as the header fields of an HTTP response. Included by weir.h.
 *
 *     struct weir_http_field fields[WEIR_HTTP_MAX_FIELDS];
 *     int n = weir_http_fields(&request, &decision, WEIR_HTTP_RETRY_AFTER | WEIR_HTTP_RATELIMIT, fields,
 *                              WEIR_HTTP_MAX_FIELDS);
 *     for (int i = 0; i < n; i++)
 *         evhttp_add_header(response, fields[i].name, fields[i].value);
 *
 * Every server sets header fields one by one and has a memory of its own for them. So this fills the caller's array, on
 * its stack or in its pool, and neither allocates nor calls back; each element holds its own value, so that it can be
 * copied and kept by itself.
 *
 * Seconds  All times here are whole seconds, rounded up, so that nobody who goes by them comes early: a client that
 *          waits for Retry-After is admitted then, if nobody else took anything.
 * Secrets  A field holds the limit's name and its numbers, never the key (the draft's parameter pk is not sent), nor
 *          how many instances there are. Those who may not know a limit's numbers are to be sent Retry-After alone.
 * Source   RFC 9110, section 10.2.3; draft-ietf-httpapi-ratelimit-headers-10, whose fields are lists of strings with
 *          parameters as in RFC 9651.
 */
#ifndef WEIR_HTTP_H
#define WEIR_HTTP_H

#ifndef WEIR_H
#error "include <weir/weir.h>"
#endif

/* Which fields to write: any of them together; they come in this order. In what follows
 *
 *     q  is the largest cost that a fresh key is admitted with: limit of a window, burst and debt of a token bucket,
 *        capacity of a leaky one; less what weir_options.strict holds back. Not the rate, for a client may have all of
 *        q left, and would be shown more than all.
 *     w  is how long the policy takes to give q permits: the period, where q is the limit; else q permits at `limit` a
 *        period. So q in w is never more than the rate. A w below a second is told as 1, and those who go by it go
 *        slower than they could.
 *     r  is what was left after the decision, weir_decision.remaining; but 0 if it is a denial, even where a smaller
 *        cost would be admitted, for what is left was not enough for such a request. A cost that never can be admitted
 *        says nothing about others: then it is what is left.
 *     t  is when to come again: retry_after_us of a denial, else reset_after_us, when all that was used is back. Where
 *        there is nothing to wait for it is not sent.
 *
 * q and w are those of the whole policy in force, the same from every instance and in every response. r and t are the
 * decision's: where an instance counts by a share of its own they are of that share, and all instances together have no
 * less. They are told as the decision has them, whoever decided; of WEIR_BY_FAIL_OPEN, which counts nothing, r is the
 * whole limit. */
enum weir_http_which {
    /* Retry-After: 12
     * Of a denial, but for WEIR_NEVER: then there is none. Never 0, never before t. */
    WEIR_HTTP_RETRY_AFTER = 1,
    /* RateLimit-Policy: "login";q=5;w=60 */
    WEIR_HTTP_RATELIMIT_POLICY = 2,
    /* RateLimit: "login";r=0;t=12 */
    WEIR_HTTP_RATELIMIT = 4,
    /* X-RateLimit-Limit: 5, X-RateLimit-Remaining: 0, X-RateLimit-Reset: 12
     * These are q, r and t; without t there is no Reset. */
    WEIR_HTTP_X_RATELIMIT = 8,
    /* The same, but Reset is the time that is t from now, in seconds of Unix time by request->now_us or the limiter's
     * clock. (Both are in use, and nothing tells a client which it is.) Not together with WEIR_HTTP_X_RATELIMIT. */
    WEIR_HTTP_X_RATELIMIT_UNIX = 16
};

#define WEIR_HTTP_MAX_FIELDS 6   /* as many as there are at most, whatever is asked for */
#define WEIR_HTTP_VALUE_SIZE 192 /* bytes; no value is cut */

struct weir_http_field {
    const char *name; /* as written above; static storage. HTTP/2 and 3 want it in lower case */
    size_t name_len;
    size_t value_len;
    char value[WEIR_HTTP_VALUE_SIZE]; /* printable ASCII, NUL-terminated */
};

/* Write the fields of `decision`, the answer to `request`, to `fields`, which have room for `room`. `which` is one or
 * more of enum weir_http_which. Returns how many there are: 0 where an admitted request is to have a Retry-After.
 *
 * Of weir_try_all() `request` is the one that binds, &requests[decision.bound_by]; t, where all are admitted, is when
 * all of them are as good as new. The policies of the others can be told as well, each by a call of its own with
 * WEIR_HTTP_RATELIMIT_POLICY alone: RateLimit-Policy may stand more than once in a response, as may RateLimit.
 *
 * WEIR_EINVAL if the request could not have been asked, the decision cannot be an answer (a quantity or time below 0,
 * or beyond all ranges), `which` has a bit that is not known, or there are more fields than `room`. The backend is not
 * asked; for q and w the policy is read as by weir_limit_policy(). */
WEIR_API int weir_http_fields(const struct weir_request *request, const struct weir_decision *decision, unsigned which,
                              struct weir_http_field *fields, size_t room);

#endif
