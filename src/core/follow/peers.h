/* peers.h - which share is in force while instances come and go: pure functions of what was reported, and when.
 *
 * A view is the share by one answer. It is current until the next answer that differs, and still holds for one
 * hold-down after that. The least share of all views that hold is in force (share.h). So a smaller share takes effect
 * immediately, a larger one after a hold-down.
 *
 * The parts of all instances then never add up to more than the whole, provided that each instance learns of every
 * change within less than a hold-down. At a time t each of them holds the view that was true at t - hold_down: it
 * learned of that view before t, and of the view's end not before t - hold_down. By one and the same view the parts add
 * up to the whole. An instance that is not in that view has joined since, and still holds its very first view: a share
 * of 0.
 *
 * The first view is 1/floor_instances instead if the caller has set that. A view that was not confirmed for
 * max_stale_us continues to hold, together with a floor: 1/floor_instances, or else the least of all answers. Times are
 * microseconds of one clock that never steps back.
 */
#ifndef CORE_FOLLOW_PEERS_H
#define CORE_FOLLOW_PEERS_H

#include "core/policy/share.h"

/* The most views that hold together. If there are more, two that end in the same seventh of a hold-down are merged into
 * one, which is at most as large as either and ends with the later one. So none outlives its end by more than
 * hold_down_us / (PEERS_VIEWS - 2). */
#define PEERS_VIEWS 9

struct peers_rules {
    int64_t hold_down_us;
    int64_t max_stale_us;
    int64_t floor_instances; /* 0: none given */
};

struct peers_view {
    struct share share; /* its weights belong to the view; free() them */
    int64_t until_us;   /* it holds before this time; the current view: INT64_MAX */
    bool is_first;      /* from before the first answer, or merged with one that is */
};

struct peers {
    struct peers_rules rules;
    struct peers_view views[PEERS_VIEWS]; /* in the order of their ends: the last is the current one */
    size_t count;                         /* 1 or more */
    int64_t answered_us;                  /* the last good answer; -1: none yet */
    bool is_stale;                        /* the last good answer is too old */
    struct peers_view floor; /* holds too; until_us is 0 if there is none, INT64_MAX while the answer is stale */
    struct share least;      /* of all answers, without remainders; total 0: none yet */
};

void peers_begin(struct peers *peers, const struct peers_rules *rules);
void peers_end(struct peers *peers);

/* Compute the share of a list, in any order. `self` is this instance's id, or NULL if it is not known: then without
 * remainders. Return WEIR_OK, with weights that the caller frees, or WEIR_ENOMEM, or WEIR_EINVAL with a sentence. The
 * list must have 1 to SHARE_MAX_INSTANCES entries, no id twice, and `self` unless that is NULL. Ids have 1 to
 * PEERS_ID_MAX bytes, weights are 1 to SHARE_MAX_WEIGHT. */
#define PEERS_ID_MAX 255
int peers_read(const struct weir_peer *list, size_t n, const char *self, struct share *out, struct message message);

/* Take a good answer, and ownership of its weights. True if it differs from the one before. */
bool peers_hear(struct peers *peers, const struct share *share, int64_t now_us);

/* Take the same answer as the last good one, which must exist. */
void peers_confirm(struct peers *peers, int64_t now_us);

/* True if the view from before the first answer no longer holds. */
bool peers_is_settled(const struct peers *peers);

/* Drop views that have ended, and check the age of what is known. True if anything has changed. */
bool peers_turn(struct peers *peers, int64_t now_us);

/* Return when that is next due without another answer; INT64_MAX: never. */
int64_t peers_due_us(const struct peers *peers);

/* Write all shares that hold to `chain`, linked, with the least w/W first. They use the weights of the views. */
#define PEERS_SHARES (PEERS_VIEWS + 1)
void peers_in_force(const struct peers *peers, struct share chain[PEERS_SHARES]);

#endif
