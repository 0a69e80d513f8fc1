/* follow.c - carries reports of sources into the limiter: shares, policies, and the state of what is followed. */
#include "core/follow/follow.h"

#include "core/follow/layers.h"
#include "core/ground/arith.h"
#include "core/limiter/events.h"
#include "core/limiter/inside.h"
#include "core/limiter/limits.h"
#include "core/outage/outage_span.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define SAY_US WEIR_MINUTE /* between two log lines about failures; a policy file fails only when it is changed */

static const char *const followed_names[FOLLOWED] = {
    [WEIR_FOLLOW_PEERS] = "peers",
    [WEIR_FOLLOW_CONSUL_POLICIES] = "policies in Consul",
    [WEIR_FOLLOW_POLICY_FILE] = "policy file",
};

/* ---- Beginning and end ---- */

bool follow_is_asked(const struct weir_options *options)
{
    return options->peers || options->consul_policies || options->follow_policy_file;
}

/* Return a share to use when there is no memory to copy `shares`: their least ratio, without remainders. It is never
 * larger for any number. */
static struct share floors_instead(const struct share *shares)
{
    const struct share *least = share_least(shares);
    return (struct share){
        .weight = least->weight,
        .total = least->total,
        .count = share_instances(shares),
        .floors_only = true,
    };
}

/* The consequences of a new share in force, to be handled without peers_mutex. */
struct placed {
    bool is_placed, splits, is_new;
    const struct weir_limit *unfit; /* a limit without exact arithmetic at it, or NULL */
    struct weir_event event;
};

/* Put the share into force. */
static struct placed put_into_force(struct weir *limiter, struct follow *follow) REQUIRES(follow->peers_mutex)
{
    struct placed placed = { .is_placed = true, .event.kind = WEIR_EVENT_SHARE };
    struct share chain[PEERS_SHARES];
    struct weir_limit *unfit;
    peers_in_force(&follow->peers, chain);
    if (limits_put_share(limiter, chain, &unfit, &placed.splits) != WEIR_OK) {
        const struct share floors = floors_instead(chain);
        limits_put_share(limiter, &floors, &unfit, &placed.splits); /* this needs no memory */
    }
    const struct weir_event_share share = { chain[0].weight, chain[0].total, share_instances(chain) };
    struct weir_event_share *last = &follow->last_share;
    placed.is_new = share.weight != last->weight || share.total != last->total || share.instances != last->instances;
    placed.event.share = *last = share;
    placed.unfit = unfit;
    return placed;
}

int follow_begin(struct weir *limiter, const struct weir_options *options)
{
    struct follow *follow = calloc(1, sizeof *follow);
    if (!follow)
        return WEIR_ENOMEM;
    if (lock_condition_init(&follow->changes) != 0) {
        free(follow);
        return WEIR_ENOMEM;
    }
    lock_init(&follow->mutex);
    lock_init(&follow->peers_mutex);
    follow->now_us = clock_boot_us;
    const bool is_on[FOLLOWED] = { options->peers, options->consul_policies, options->follow_policy_file };
    for (int what = 0; what < FOLLOWED; what++) {
        follow->followed[what] = (struct followed){
            .is_on = is_on[what],
            .answered_us = -1,
            .said_us = -1,
            .stats.rank = -1,
        };
    }
    limiter->follow = follow;
    follow->is_settled = !options->peers;
    limiter->share_varies = options->peers != NULL;
    if (options->peers) {
        const struct peers_rules rules = {
            .hold_down_us = options->peers->hold_down_us,
            .max_stale_us = options->peers->max_stale_us,
            .floor_instances = options->peers->floor_instances,
        };
        lock_take(&follow->peers_mutex);
        peers_begin(&follow->peers, &rules);
        put_into_force(limiter, follow); /* no outage lasts yet, and nothing has changed that would be reported */
        lock_give(&follow->peers_mutex);
    }
    return WEIR_OK;
}

void follow_add(struct weir *limiter, struct follower *follower)
{
    struct follow *follow = limiter->follow;
    lock_take(&follow->mutex); /* so that a fork finds the list consistent */
    follower->next = follow->followers;
    follow->followers = follower;
    lock_give(&follow->mutex);
}

void follow_close(struct weir *limiter)
{
    struct follow *follow = limiter->follow;
    lock_take(&follow->mutex);
    follow->closing = true;
    pthread_cond_broadcast(&follow->changes);
    lock_give(&follow->mutex);
    struct follower *follower;
    while ((follower = follow->followers)) {
        follow->followers = follower->next;
        follower->end(follower);
    }
}

void follow_free(struct weir *limiter)
{
    struct follow *follow = limiter->follow;
    if (!follow)
        return;
    peers_end(&follow->peers);
    pthread_cond_destroy(&follow->changes);
    lock_destroy(&follow->mutex);
    lock_destroy(&follow->peers_mutex);
    free(follow);
}

void follow_hold(struct follow *follow)
{
    lock_take(&follow->peers_mutex);
    lock_take(&follow->mutex);
}

void follow_go_on(struct follow *follow)
{
    lock_give(&follow->mutex);
    lock_give(&follow->peers_mutex);
}

/* The condition may still count a waiter that does not exist here. */
void follow_begin_in_child(struct follow *follow)
{
    lock_condition_init(&follow->changes);
    for (struct follower *follower = follow->followers; follower; follower = follower->next)
        follower->abandon(follower);
}

/* ---- How it goes ---- */

static bool is_ready(const struct follow *follow) REQUIRES(follow->mutex)
{
    for (int what = 0; what < FOLLOWED; what++)
        if (follow->followed[what].is_on && follow->followed[what].answered_us < 0)
            return false;
    return follow->is_settled;
}

/* Record a good answer, after its consequences are in force. */
static void follow_note_answer(struct weir *limiter, enum weir_followed what, int64_t now_us, bool changes)
{
    struct follow *follow = limiter->follow;
    struct followed *followed = &follow->followed[what];
    lock_take(&follow->mutex);
    followed->answered_us = now_us;
    followed->stats.answers++;
    followed->stats.changes += changes;
    const bool tells = followed->said;
    followed->fails = followed->said = false;
    pthread_cond_broadcast(&follow->changes);
    lock_give(&follow->mutex);
    if (tells)
        log_line(&limiter->log, WEIR_LOG_INFO, "%s: known again", followed_names[what]);
}

static void follow_note_error(struct followed *followed, const char *sentence)
{
    message_write((struct message){ followed->stats.last_error, sizeof followed->stats.last_error }, "%s", sentence);
}

void follow_failed(struct weir *limiter, enum weir_followed what, const char *format, ...)
{
    struct follow *follow = limiter->follow;
    struct followed *followed = &follow->followed[what];
    char sentence[sizeof followed->stats.last_error];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);

    const int64_t now_us = follow->now_us();
    lock_take(&follow->mutex);
    followed->stats.failures++;
    follow_note_error(followed, sentence);
    const bool is_new = !followed->fails || strcmp(sentence, followed->last_said) != 0;
    const bool tells = is_new && (what == WEIR_FOLLOW_POLICY_FILE || followed->said_us < 0 ||
                                  now_us - followed->said_us >= SAY_US);
    followed->fails = true;
    followed->said = followed->said || tells;
    if (tells) {
        followed->said_us = now_us;
        memcpy(followed->last_said, sentence, sizeof sentence);
    }
    lock_give(&follow->mutex);
    if (tells)
        log_line(&limiter->log, WEIR_LOG_WARNING, "%s: %s", followed_names[what], sentence);
}

/* ---- Peers ---- */

/* Record and report that the current share is in force. */
static void note_share(struct weir *limiter, struct placed *placed, bool is_settled)
{
    struct follow *follow = limiter->follow;
    if (placed->splits)
        outage_split(limiter);
    lock_take(&follow->mutex);
    follow->is_settled = is_settled;
    pthread_cond_broadcast(&follow->changes);
    lock_give(&follow->mutex);
    limits_tell_unfit(limiter, placed->unfit);
    if (placed->is_new || placed->splits)
        limiter->freed(limiter);
    if (placed->is_new)
        events_tell(limiter, &placed->event);
}

void follow_peers(struct weir *limiter, const struct weir_peer *peers, size_t n, const char *self)
{
    struct follow *follow = limiter->follow;
    char sentence[sizeof follow->followed->stats.last_error];
    struct share share;
    if (peers_read(peers, n, self, &share, (struct message){ sentence, sizeof sentence }) != WEIR_OK) {
        follow_failed(limiter, WEIR_FOLLOW_PEERS, "%s", sentence);
        return;
    }
    const int64_t rank = self ? share.rank : -1;
    lock_take(&follow->peers_mutex);
    const int64_t now_us = follow->now_us(); /* under the lock, so that the time of the rules never steps back */
    const bool turns = peers_turn(&follow->peers, now_us);
    const bool changes = peers_hear(&follow->peers, &share, now_us);
    struct placed placed = turns || changes ? put_into_force(limiter, follow) : (struct placed){ .is_placed = false };
    const bool is_settled = peers_is_settled(&follow->peers);
    lock_give(&follow->peers_mutex);

    lock_take(&follow->mutex);
    follow->followed[WEIR_FOLLOW_PEERS].stats.instances = (int64_t)n;
    follow->followed[WEIR_FOLLOW_PEERS].stats.rank = rank;
    lock_give(&follow->mutex);
    note_share(limiter, &placed, is_settled);
    follow_note_answer(limiter, WEIR_FOLLOW_PEERS, now_us, changes);
}

int64_t follow_peers_due_us(struct weir *limiter)
{
    struct follow *follow = limiter->follow;
    lock_take(&follow->peers_mutex);
    const int64_t due_us = peers_due_us(&follow->peers);
    lock_give(&follow->peers_mutex);
    return due_us;
}

void follow_peers_turn(struct weir *limiter)
{
    struct follow *follow = limiter->follow;
    lock_take(&follow->peers_mutex);
    const bool was_stale = follow->peers.is_stale;
    const bool turns = peers_turn(&follow->peers, follow->now_us());
    struct placed placed = turns ? put_into_force(limiter, follow) : (struct placed){ .is_placed = false };
    const bool is_settled = peers_is_settled(&follow->peers);
    const bool becomes_stale = follow->peers.is_stale && !was_stale;
    struct share chain[PEERS_SHARES];
    peers_in_force(&follow->peers, chain);
    lock_give(&follow->peers_mutex);
    if (placed.is_placed)
        note_share(limiter, &placed, is_settled);
    if (becomes_stale)
        log_line(&limiter->log, WEIR_LOG_WARNING,
                 "peers: not known for %lld s: the share is %lld/%lld until they are known again",
                 (long long)(follow->peers.rules.max_stale_us / WEIR_SECOND), (long long)chain[0].weight,
                 (long long)chain[0].total);
}

/* ---- Policies ---- */

int follow_policies(struct weir *limiter, enum weir_followed what, const struct policy_entry *entries, size_t n)
{
    struct follow *follow = limiter->follow;
    struct followed *followed = &follow->followed[what];
    struct layers_result result;
    if (layers_apply(limiter, what, entries, n, &result) != WEIR_OK) {
        follow_failed(limiter, what, "out of memory for %zu policies", n);
        return WEIR_ENOMEM;
    }
    if (result.refused > 0) {
        lock_take(&follow->mutex);
        followed->stats.refused += result.refused;
        follow_note_error(followed, result.sentence);
        lock_give(&follow->mutex);
        log_line(&limiter->log, WEIR_LOG_WARNING, "%s: %zu refused, the last of them: %s", followed_names[what],
                 result.refused, result.sentence);
    }
    follow_note_answer(limiter, what, follow->now_us(), result.changes > 0);
    return WEIR_OK;
}

void follow_confirmed(struct weir *limiter, enum weir_followed what)
{
    struct follow *follow = limiter->follow;
    if (what == WEIR_FOLLOW_PEERS) {
        follow_peers_turn(limiter);
        lock_take(&follow->peers_mutex);
        peers_confirm(&follow->peers, follow->now_us());
        lock_give(&follow->peers_mutex);
    }
    follow_note_answer(limiter, what, follow->now_us(), false);
}

/* ---- The caller's side ---- */

int follow_await_ready(struct weir *limiter, int64_t until_us)
{
    struct follow *follow = limiter->follow;
    const struct timespec until = clock_timespec(until_us);
    int woken = 0;
    lock_take(&follow->mutex);
    while (!follow->closing && !is_ready(follow) && woken != ETIMEDOUT)
        woken = pthread_cond_timedwait(&follow->changes, &follow->mutex.mutex, &until);
    const int result = follow->closing ? WEIR_ECLOSED : is_ready(follow) ? WEIR_OK : WEIR_ETIME;
    lock_give(&follow->mutex);
    return result;
}

int weir_follow_read(weir *limiter, enum weir_followed what, struct weir_follow_stats *out)
{
    if (!limiter || !out || out->size != sizeof *out || (unsigned)what >= FOLLOWED || !follow_is_on(limiter, what))
        return WEIR_EINVAL;
    struct follow *follow = limiter->follow;
    const struct followed *followed = &follow->followed[what];
    lock_take(&follow->mutex);
    struct weir_follow_stats read = followed->stats;
    const int64_t answered_us = followed->answered_us;
    lock_give(&follow->mutex);
    read.size = sizeof read;
    read.age_us = answered_us < 0 ? -1 : max_of(0, follow->now_us() - answered_us);
    *out = read;
    return WEIR_OK;
}
