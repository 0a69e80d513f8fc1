/* arrears.h - remembers of which keys the fallback admitted permits that Redis has not been charged for, unless
 * options.outage_adds is set. docs/design/outages.md has the rule and its bound.
 *
 * A debt (settle.h) shrinks while the key's bucket drains in the fallback. If other instances kept the key in use in
 * Redis all that time, nothing came back there for it. So all permits that the fallback admitted are noted here. A
 * charge removes them, and so does time for which the key lay idle in Redis. Until they are gone, the outages of a
 * key count as one: in the next outage it gets no more than what that one makes beyond them.
 *
 * Keys share slots by their hash. A slot is one word, so it needs no lock: 18 other bits of the hash, 15 of the
 * outage, 31 of permits. A key that takes another one's slot ends what was noted of that one. Permits of a limit whose
 * size is 2^30 or more are noted in units of less than size / 2^29, what is added rounded up and what is taken off
 * rounded down. A redefinition to a size of another magnitude changes the unit.
 */
#ifndef CORE_OUTAGE_ARREARS_H
#define CORE_OUTAGE_ARREARS_H

#include "core/outage/outage.h"

#define ARREARS_SLOTS 16384 /* 256 KiB */
#define ARREARS_TRIES 64    /* a power of two */

/* All (a) */
struct arrears {
    atomic_bool is_used; /* something has been noted; until then no decision looks for it */
    _Atomic uint64_t slots[ARREARS_SLOTS];
    _Atomic int64_t counted_us[ARREARS_SLOTS]; /* up to when idle time has been counted, on CLOCK_MONOTONIC */
    _Atomic int64_t tried_us[ARREARS_TRIES];   /* the last charge, on CLOCK_MONOTONIC, by the hash of the key */
};

/* Return the permits noted of a request's key; 0 with outage_adds. Never blocks. */
int64_t arrears_of(const struct weir *limiter, const struct weir_backend_request *request);

/* True if any of the requests' keys has some. */
static inline bool arrears_any(const struct weir *limiter, const struct weir_backend_request *requests, size_t n)
{
    const struct arrears *arrears = limiter->outage->arrears;
    if (!arrears || !atomic_load_explicit(&arrears->is_used, memory_order_relaxed))
        return false;
    for (size_t i = 0; i < n; i++)
        if (arrears_of(limiter, &requests[i]) > 0)
            return true;
    return false;
}

/* Note permits that the fallback has admitted with a request. Not for a limit on requests in flight: its permits end
 * with their requests, or with their holds. */
void arrears_note(struct weir *limiter, const struct weir_backend_request *request, int64_t permits);

/* True if the fallback must deny a request, because of what is noted of its key from an outage that an answer has
 * ended. The request's cold_since_us is that of the outage that lasts. */
bool arrears_forbid(const struct weir *limiter, const struct weir_backend_request *request);

/* `permits` of a key have been charged, or are given up. */
void arrears_pay(struct weir *limiter, const struct weir_backend_request *of, int64_t permits);

/* True if more than the key's debts, `owed`, is noted of it, and the time for which the key lay idle in the backend
 * during the last outage has not been counted. Then the backend must say it before it decides for the key again. */
bool arrears_must_ask(const struct weir *limiter, const struct weir_backend_request *of, int64_t owed);

/* Make a charge ask for that time: own_ops.idles. Return false, with `charge` untouched, if it must not. */
bool arrears_ask(const struct weir *limiter, struct weir_backend_request *charge, int64_t owed);

/* Such a charge was answered, and what it has charged is not paid yet: take off what has drained in the backend. */
void arrears_forgive(struct weir *limiter, const struct weir_backend_request *charge, int64_t owed,
                     const struct weir_decision *decision);

/* Forget all. No other thread uses them. */
void arrears_clear(struct weir *limiter);

/* Make a charge for a key without debts one for its arrears, unless a charge for them was made a moment ago or, by
 * chance, of another key. It takes only a small part of what Redis has left, so that it denies the key nothing. Return
 * false, with `charge` untouched, if it is not to be made. */
bool arrears_charge(struct weir *limiter, struct weir_backend_request *charge);

#endif
