/* http.h - a decision as the header fields of an HTTP response. Included by weir.h.
 *
 *     struct weir_http_field fields[WEIR_HTTP_MAX_FIELDS];
 *     int n = weir_http_fields(&request, &decision, WEIR_HTTP_RETRY_AFTER | WEIR_HTTP_RATELIMIT, fields,
 *                              WEIR_HTTP_MAX_FIELDS);
 *     for (int i = 0; i < n; i++)
 *         evhttp_add_header(response, fields[i].name, fields[i].value);
 *
 * The function fills an array of the caller, on its stack or in its pool. It neither allocates nor calls back. Each
 * element holds its value, so the caller can copy and keep it separately.
 *
 * Seconds  All times here are whole seconds, rounded up, so that no client returns too early: a client that waits for
 *          Retry-After is admitted, if no other request took permits.
 * Secrets  A field contains the limit's name and its numbers. It never contains the key (weir does not send the
 *          draft's parameter pk) or the number of instances. Send only Retry-After to clients that must not learn a
 *          limit's numbers.
 * Source   RFC 9110, section 10.2.3; draft-ietf-httpapi-ratelimit-headers-10, whose fields are lists of strings with
 *          parameters as in RFC 9651.
 */
#ifndef WEIR_HTTP_H
#define WEIR_HTTP_H

#ifndef WEIR_H
#error "include <weir/weir.h>"
#endif

/* The fields to write, in any combination; they are written in this order. They contain
 *
 *     q  the largest cost that a fresh key admits: the limit of a window, the burst and debt of a token bucket, the
 *        capacity of a leaky bucket, less what weir_options.strict holds back. It is not the rate, because a client may
 *        have all of q left.
 *     w  how long the policy takes to provide q permits: the period if q is the limit; else q permits at `limit` a
 *        period. So q per w never exceeds the rate. A w below a second is sent as 1, which makes clients slower than
 *        necessary.
 *     r  what was left after the decision (weir_decision.remaining). It is 0 in a denial, even if a smaller cost would
 *        be admitted, because the rest was not enough for such a request. If the cost can never be admitted, r is
 *        what is left.
 *     t  when to come again. In a denial, retry_after_us. If an admitted request has left nothing, the wait for one
 *        permit; in Redis that of a sliding window, and of permits of an outage, is an upper bound. Otherwise
 *        reset_after_us, after which no permits are in use. It is omitted if there is nothing to wait for.
 *
 * A limit on requests in flight (WEIR_CONCURRENCY) has neither w nor t, because a permit comes back as soon as a request
 * ends. Its q has the draft's unit: "export";q=2;qu="concurrent-requests".
 *
 * q and w describe the whole policy in force, so they are equal on every instance and in every response. r and t come
 * from the decision, whatever its source. If an instance counts by a share, they describe that share, and all instances
 * together have at least as much. With WEIR_BY_FAIL_OPEN, which counts nothing, r is the whole limit. */
enum weir_http_which {
    /* Retry-After: 12
     * In a denial, except one with WEIR_NEVER or of a limit on requests in flight. Never 0, never before t. */
    WEIR_HTTP_RETRY_AFTER = 1,
    /* RateLimit-Policy: "login";q=5;w=60 */
    WEIR_HTTP_RATELIMIT_POLICY = 2,
    /* RateLimit: "login";r=0;t=12 */
    WEIR_HTTP_RATELIMIT = 4,
    /* X-RateLimit-Limit: 5, X-RateLimit-Remaining: 0, X-RateLimit-Reset: 12
     * These are q, r and t; without t there is no Reset. */
    WEIR_HTTP_X_RATELIMIT = 8,
    /* The same, but Reset is a Unix time in seconds: t after request->now_us, or after now by the limiter's clock if that
     * is 0. In local and machine mode, for sliding windows, and for windows and intervals with WEIR_ALIGN_EPOCH, it
     * does not depend on when the fields are written, because it is the time at which the request's key gets its
     * permits back. Otherwise pass the time of the decision if they are written later. (Both variants are in use, and clients cannot tell them
     * apart.) Not together with WEIR_HTTP_X_RATELIMIT. */
    WEIR_HTTP_X_RATELIMIT_UNIX = 16
};

#define WEIR_HTTP_MAX_FIELDS 6   /* most fields of one decision, whatever `which` is */
#define WEIR_HTTP_VALUE_SIZE 192 /* bytes; no value is truncated */

struct weir_http_field {
    const char *name; /* as written above; static storage. HTTP/2 and HTTP/3 need it in lower case */
    size_t name_len;
    size_t value_len;
    char value[WEIR_HTTP_VALUE_SIZE]; /* printable ASCII, NUL-terminated */
};

/* Write the header fields of `decision`, the answer to `request`, to the `room` elements of `fields`, and return
 * their number. `which` is one or more of enum weir_http_which. The number is 0 for an admitted request if only
 * Retry-After is requested.
 *
 * For weir_try_all() pass the request that binds, &requests[decision.bound_by]. If all requests are admitted and leave
 * something, t is when all their keys have no permits in use. To report the other policies too, call this for each of them with
 * WEIR_HTTP_RATELIMIT_POLICY alone: RateLimit-Policy and RateLimit may appear more than once in a response.
 *
 * WEIR_EINVAL if weir_try() would refuse the request, if the decision cannot be an answer (a quantity or time below 0
 * or out of range), if `which` has an unknown bit, or if there are more fields than `room`. This never
 * asks Redis or a backend of yours. In local and machine mode it looks at the key for a Unix time, or if the decision left nothing. q and w
 * come from the policy as weir_limit_policy_for() returns it. */
WEIR_API int weir_http_fields(const struct weir_request *request, const struct weir_decision *decision, unsigned which,
                              struct weir_http_field *fields, size_t room);

#endif
