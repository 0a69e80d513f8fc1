/* denied.h - remembers the last denial of a thread by a handle, and denies by it once more.
 *
 * Until it is over, a denial of one permit changes only with the time: the waits become shorter, and nothing remains.
 * So the next request by that handle needs no arithmetic, as long as the word of the record says that the state is the
 * same. A tick is 1 us here, so what is remembered is exactly what would be computed: with v units in use, of which x
 * may stay, and e us later,
 *
 *     ceil((v - e*p - x) / p) = ceil((v - x) / p) - e
 *
 * A thread remembers one denial, of a key that has a cell, and only the second one in a row by the same handle.
 * Otherwise threads that are denied by many handles would write down each denial for nothing.
 *
 * It is not a read in the sense of readers.h: it may last longer than memory stays what it is. Why it is safe:
 *
 * - The word is the same. Then nothing has changed since: every change raises its count, also one of the key that the
 *   record serves. No count wraps around within DENIED_MOST_US of the limiter's clock. At a caller's time that stands
 *   still, the bound is that of a thread that sleeps during a read (memory/entry.h).
 * - The cell's memory has gone back to the system: it is unmapped, or its words count anew. cells_lost has been raised
 *   before that. The thread compares it twice. Before it reads the word, so that it reads no unmapped memory. And after
 *   that: a thread that reads a word that counts anew (acquire) also sees that cells_lost was raised.
 * - The limiter has been closed, and a new limit or handle has the same address. Closing raises cells_lost, too.
 * - The handle has been freed, and a new one has the same address. Limit and key are compared.
 * - The limit has been redefined or renamed. The version of its plan has changed, before its figures are touched.
 * - The limit has got an override or a shadow. Both are compared, as in every short way.
 * - The process has forked. The child has a copy of all that its only thread remembers.
 */
#ifndef BACKENDS_MEMORY_DENIED_H
#define BACKENDS_MEMORY_DENIED_H

#include "backends/memory/look_take.h"
#include "core/limiter/take.h"

/* A thread that is always denied computes a denial this often, and so takes part in sweeping idle keys. */
#define DENIED_MOST_US 1000

struct denial {
    const struct weir_handle *handle; /* by which a denial was computed last; only compared. NULL: none */
    struct weir_limit *limit;
    const struct record *record; /* in a cell */
    uint64_t word, version;      /* of the record, of the limit's plan */
    uint64_t cells_lost;
    uint64_t key[2];
    int64_t from_us, lasts_us;
    int64_t retry_us, reset_us; /* times; the decision has the waits for them */
    int64_t size;
    struct figures *figures; /* the thread's block of the limit */
};

extern _Thread_local struct denial denied_own __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Note that a request by a handle was denied. The denial that is remembered stays: its limit and key are compared. */
static inline void denied_note(const struct weir_handle *handle)
{
    denied_own.handle = handle;
}

/* Remember the decision of a request at `now_us` by that handle if it is a denial for one permit. The caller is inside
 * readers_enter(), and has been since it found the record. */
static inline void denied_renew(const struct weir_handle *handle, const struct table *table, const struct look *look,
                                struct figures *figures, int64_t cost, int64_t now_us, const struct weir_decision *out)
{
    struct denial *own = &denied_own;
    own->handle = out->allowed ? NULL : handle;
    if (out->allowed || cost != 1 || handle->limit->limiter->top_keys || now_us > WEIR_MAX_TIME_US - DENIED_MOST_US ||
        !cells_has(&table->cells, look->record))
        return;
    *own = (struct denial){
        .handle = handle,
        .limit = handle->limit,
        .record = look->record,
        .word = look->word,
        .version = rule_version(look->rule),
        .cells_lost = atomic_load_explicit(&cells_lost, memory_order_acquire),
        .from_us = now_us,
        .lasts_us = min_of(out->retry_after_us, DENIED_MOST_US),
        .retry_us = now_us + out->retry_after_us,
        .reset_us = now_us + out->reset_after_us,
        .size = out->limit,
        .figures = figures,
    };
    memcpy(own->key, handle->bytes, sizeof own->key);
}

/* True if the state is still that of the denial and the handle asks for it. */
__attribute__((always_inline)) static inline bool denied_holds(const struct denial *own,
                                                               const struct weir_handle *handle)
{
    struct weir_limit *limit = handle->limit;
    uint64_t key[2];
    if (__builtin_expect(limit != own->limit || handle->key.len != sizeof key, 0))
        return false;
    memcpy(key, handle->bytes, sizeof key);
    return __builtin_expect(((key[0] ^ own->key[0]) | (key[1] ^ own->key[1])) == 0 &&
                                atomic_load_explicit(&cells_lost, memory_order_acquire) == own->cells_lost &&
                                record_word(own->record) == own->word &&
                                atomic_load_explicit(&cells_lost, memory_order_relaxed) == own->cells_lost &&
                                plan_cell_version(&limit->plan) == own->version && !limit_is_special(limit),
                            1);
}

/* Deny a request by what the thread remembers, and count the answer. False: it must be decided otherwise. */
__attribute__((always_inline)) static inline bool denied_again(const struct weir_handle *handle, int64_t cost,
                                                               int64_t now_us, struct weir_decision *out)
{
    struct denial *own = &denied_own;
    __asm__("" : "+r"(own)); /* otherwise the compiler finds it anew for each field */
    if (__builtin_expect(cost == 1 && out, 1) &&
        (now_us != 0 || __builtin_expect(clock_counts_us(&handle->limit->limiter->clock, &now_us), 1)) &&
        __builtin_expect((uint64_t)now_us - (uint64_t)own->from_us < (uint64_t)own->lasts_us, 1) &&
        denied_holds(own, handle)) {
        figures_add(&own->figures->singles[WEIR_BY_MEMORY][false], 1);
        *out = (struct weir_decision){ .limit = own->size,
                                       .retry_after_us = own->retry_us - now_us,
                                       .reset_after_us = own->reset_us - now_us };
        return true;
    }
    return false;
}

#endif
