/* outage_span.c - begins and ends outages.
 *
 * An outage begins with the first failure after a success and ends with the next success. A process with little traffic
 * may see no success for a long time. So a failure also begins a new outage if the backend says that, to its knowledge,
 * it was in reach more than OUTAGE_GAP_US after the last failure.
 *
 * A backend may have parts that fail separately, as a cluster has. While it says that one of them is out of reach, the
 * outage lasts, whatever the others answer. When one part returns, or another fails, the outage ends and a new one
 * begins (outage_split()). So no key counts as cut off while it was not. The keys of parts that are still away begin
 * cold again, which costs them permits and gives none.
 *
 * An outage does not end either while the backend says that it is not well. A server that is full, or whose replicas
 * are missing, still denies but charges nothing; if its denials ended the outage, each one would make all keys begin
 * cold.
 */
#include "core/outage/outage_span.h"

#include "core/ground/arith.h"
#include "core/limiter/events.h"
#include "core/outage/releases.h"
#include "core/outage/returns_kept.h"
#include "core/outage/settle.h"

#define OUTAGE_LOG_US WEIR_SECOND

static const char *const log_action[] = {
    [WEIR_FAIL_LOCAL] = "deciding by this process's share",
    [WEIR_FAIL_OPEN] = "allowing everything",
    [WEIR_FAIL_CLOSED] = "denying everything",
};

/* ---- How much of open_for_us all outages together have used ---- */

static void open_begin(struct outage *outage, int64_t now_us) REQUIRES(outage->settle.mutex)
{
    const int64_t given_back_us = max_of(0, now_us - outage->over_us);
    const int64_t spent_us = atomic_load_explicit(&outage->open_spent_us, memory_order_relaxed);
    atomic_store_explicit(&outage->open_spent_us, max_of(0, spent_us - given_back_us), memory_order_relaxed);
}

static void open_end(struct outage *outage, int64_t since_us, int64_t now_us) REQUIRES(outage->settle.mutex)
{
    const int64_t spent_us = atomic_load_explicit(&outage->open_spent_us, memory_order_relaxed);
    const int64_t lasted_us = max_of(0, now_us - since_us);
    atomic_store_explicit(&outage->open_spent_us, min_of(outage->open_for_us, spent_us + lasted_us),
                          memory_order_relaxed);
    outage->over_us = now_us;
}

bool outage_open_is_spent(const struct outage *outage, int64_t lasts_us)
{
    const int64_t spent_us = atomic_load_explicit(&outage->open_spent_us, memory_order_relaxed);
    return outage->open_for_us > 0 && spent_us + lasts_us >= outage->open_for_us;
}

/* ---- Beginning and end ---- */

/* Do what follows from the end of an outage. The word no longer says that it lasts. */
static void outage_ended(struct weir *limiter, uint64_t word, int64_t now_us) REQUIRES(limiter->outage->settle.mutex)
{
    open_end(limiter->outage, outage_since_us(word), now_us);
    atomic_store_explicit(&limiter->outage->ended_us, clock_monotonic_us(), memory_order_relaxed);
    settle_outage_over(limiter, outage_number(word), outage_since_us(word), now_us);
}

/* End the outage if it lasts; return its word from before. */
static uint64_t outage_end(struct weir *limiter, int64_t now_us, bool is_answered)
{
    struct outage *outage = limiter->outage;
    lock_take(&limiter->outage->settle.mutex);
    const uint64_t word = atomic_load(&outage->word);
    if (word & OUTAGE_LASTS) {
        atomic_store(&outage->word, word & ~OUTAGE_LASTS);
        outage_ended(limiter, word, now_us);
        outage->answered += is_answered;
    }
    lock_give(&limiter->outage->settle.mutex);
    return word;
}

/* Begin the outage after that of `word`. If that one lasts, the clock has stepped back: it continues from `now_us`.
 * Return the new word. *logs: the caller must log it. */
static uint64_t outage_begin(struct weir *limiter, uint64_t word, bool lasts, int64_t now_us, bool *logs)
    REQUIRES(limiter->outage->settle.mutex)
{
    struct outage *outage = limiter->outage;
    const int64_t here_us = clock_monotonic_us();
    const int64_t failed_us = atomic_load_explicit(&outage->failed_us, memory_order_relaxed);
    const int64_t logged_us = atomic_load_explicit(&outage->logged_us, memory_order_relaxed);
    *logs = !lasts && (logged_us == 0 || here_us - logged_us >= OUTAGE_LOG_US);
    const uint64_t logged = lasts ? word & OUTAGE_LOGGED : *logs ? OUTAGE_LOGGED : 0;
    const uint64_t begun = outage_word(outage_number(word) + !lasts, now_us) | logged;
    if (!lasts && word & OUTAGE_LASTS) {
        /* No request saw the end of this outage, so it ended with its last failure. Clear the bit first, then count
         * what was admitted: after that, admissions count towards the next outage. */
        atomic_store(&outage->word, word & ~OUTAGE_LASTS);
        outage_ended(limiter, word, max_of(outage_since_us(word), now_us - (here_us - failed_us)));
        outage->answered++;
    }
    if (!lasts) {
        settle_outage_begins(limiter);
        atomic_store(&outage->is_split, outage->begun_answered == outage->answered);
        outage->begun_answered = outage->answered;
    }
    atomic_store(&outage->word, begun);
    atomic_store_explicit(&outage->failed_us, here_us, memory_order_relaxed);
    if (!lasts)
        atomic_store_explicit(&outage->begun_us, here_us, memory_order_relaxed);
    if (!lasts && !atomic_load(&outage->is_split))
        atomic_store_explicit(&outage->first_us, here_us, memory_order_relaxed);
    if (*logs)
        atomic_store_explicit(&outage->logged_us, here_us, memory_order_relaxed);
    if (!lasts)
        open_begin(limiter->outage, now_us);
    return begun;
}

/* Report the end of an outage, whose word this is, if its beginning was reported. Holds no mutex. */
static void outage_tell_end(struct weir *limiter, uint64_t word, int64_t now_us)
{
    struct weir_event event = { .kind = WEIR_EVENT_OUTAGE_ENDED };
    event.outage = (struct weir_event_outage){ .lasted_us = max_of(0, now_us - outage_since_us(word)) };
    if (word & OUTAGE_LASTS && word & OUTAGE_LOGGED)
        events_tell(limiter, &event);
}

/* Log and report an outage that has begun. */
static void outage_tell_begin(struct weir *limiter, int error)
{
    struct weir_event event = { .kind = WEIR_EVENT_OUTAGE_BEGAN };
    event.outage = (struct weir_event_outage){ .error = error };
    log_later(&limiter->log, WEIR_LOG_WARNING, "backend %s: %s; %s until it answers", limiter->backend->ops->name,
              error == WEIR_EIO ? "it cannot be used" : weir_strerror(error), log_action[limiter->on_failure]);
    events_tell(limiter, &event);
}

uint64_t outage_enter(struct weir *limiter, const struct weir_key *key, int64_t now_us, int error)
{
    struct outage *outage = limiter->outage;
    uint64_t word;
    bool lasts, logs;
    for (;;) {
        word = atomic_load_explicit(&outage->word, memory_order_relaxed);
        lasts = word & OUTAGE_LASTS && !outage_was_well_since(limiter, key);
        /* If the clock has stepped back by more than the slack, rebase the outage, as the state of a key is rebased. */
        if (lasts && outage_since_us(word) - now_us <= WEIR_CLOCK_SLACK_US) {
            atomic_store_explicit(&outage->failed_us, clock_monotonic_us(), memory_order_relaxed);
            return word;
        }
        lock_take(&limiter->outage->settle.mutex);
        if (atomic_load_explicit(&outage->word, memory_order_relaxed) == word)
            break;
        lock_give(&limiter->outage->settle.mutex); /* another thread was faster */
    }
    const uint64_t before = word;
    word = outage_begin(limiter, word, lasts, now_us, &logs);
    lock_give(&limiter->outage->settle.mutex);
    if (!lasts) {
        stats_add(&limiter->stats, STATS_OUTAGES, 1);
        outage_tell_end(limiter, before, now_us);
    }
    if (logs)
        outage_tell_begin(limiter, error);
    return word;
}

__attribute__((noinline)) void outage_over(struct weir *limiter, const struct weir_key *key, int64_t now_us)
{
    if (!(atomic_load_explicit(&limiter->outage->word, memory_order_relaxed) & OUTAGE_LASTS))
        return;
    if (outage_is_in_reach(limiter, key) && !outage_is_well(limiter))
        return; /* another part is away, or the backend answers but does not charge */
    const uint64_t word = outage_end(limiter, now_us, true);
    if (!(word & OUTAGE_LASTS))
        return;
    if (word & OUTAGE_LOGGED)
        log_later(&limiter->log, WEIR_LOG_INFO, "backend %s answers again", limiter->backend->ops->name);
    outage_tell_end(limiter, word, now_us);
    returns_send(limiter);
    if (settle_is_due(limiter))
        settle_all(limiter);
}

void outage_split(struct weir *limiter)
{
    if (!limiter->fallback)
        return;
    const int64_t now_us = outage_time(limiter, WEIR_OWN_CLOCK);
    outage_tell_end(limiter, outage_end(limiter, now_us, false), now_us);
}

void outage_begin_in_child(struct weir *limiter)
{
    returns_drop(limiter);
    releases_begin_in_child(limiter);
    settle_begin_in_child(limiter);
    limiter->outage->answered++; /* what the parent's fallback admitted is not owed here */
    if (limiter->outage->settle.is_on)
        atomic_fetch_and(&limiter->outage->word, ~OUTAGE_LASTS);
}
