/* peers.h - which share is in force while instances come and go: pure functions of what was heard, and when.
 *
 * A view is a share by one answer. It is current from then until the next answer that says otherwise, and holds for a
 * hold-down longer. What is in force is the least by all views that hold (share.h): so less at once, more when a
 * hold-down has passed. The parts of all instances then never add up to more than the whole, if each hears of every
 * change within less than a hold-down: at a time t each of them holds the view that was the truth at t - hold_down, for
 * it heard of that before t, and of its end not before t - hold_down; and by one and the same view the parts add up to
 * the whole. An instance that is not in that view has joined since, and holds its first view of all: nothing.
 *
 * That first view is 1/floor_instances instead where the caller says so. What has not been confirmed for max_stale_us
 * holds on, and beside it a floor: 1/floor_instances, or else the least of all answers. Times are in microseconds on
 * one clock, which does not step back.
 */
#ifndef CORE_FOLLOW_PEERS_H
#define CORE_FOLLOW_PEERS_H

#include "core/policy/share.h"

/* How many hold at once. Of more, two that end in the same seventh of a hold-down become one, which is no more than
 * either and ends with the later: so none outlives its end by more than hold_down_us / (PEERS_VIEWS - 2). */
#define PEERS_VIEWS 9

struct peers_rules {
    int64_t hold_down_us;
    int64_t max_stale_us;
    int64_t floor_instances; /* 0: none given */
};

struct peers_view {
    struct share share; /* its weights are the view's own, in malloc()ed memory */
    int64_t until_us;   /* holds before that; the current one: INT64_MAX */
    bool is_first;      /* from before the first answer, or in part so */
};

struct peers {
    struct peers_rules rules;
    struct peers_view views[PEERS_VIEWS]; /* by their ends: the last is the current one */
    size_t count;                         /* 1 or more */
    int64_t answered_us;                  /* the last good answer; -1: none yet */
    bool is_stale;                        /* that was too long ago */
    struct peers_view floor;              /* holds as well; until_us 0: there is none; INT64_MAX: while it is stale */
    struct share least;                   /* of all answers, floors only; total 0: none yet */
};

void peers_begin(struct peers *peers, const struct peers_rules *rules);
void peers_end(struct peers *peers);

/* The share that a list comes to, in any order; `self` is this one's id, or NULL if that is not known: then floors
 * only. WEIR_OK, with weights that the caller frees; WEIR_ENOMEM; or WEIR_EINVAL with a sentence: the list is empty or
 * lacks `self`, has more than SHARE_MAX_INSTANCES or an id twice, an id that is empty or longer than PEERS_ID_MAX, or a
 * weight that is not 1 to SHARE_MAX_WEIGHT. */
#define PEERS_ID_MAX 255
int peers_read(const struct weir_peer *list, size_t n, const char *self, struct share *out, struct message message);

/* A good answer; owns its weights from then on. Returns whether it says anything else than the one before. */
bool peers_hear(struct peers *peers, const struct share *share, int64_t now_us);

/* The same answer as the last good one, which there must have been. */
void peers_confirm(struct peers *peers, int64_t now_us);

/* Whether the view from before the first answer holds no more. */
bool peers_is_settled(const struct peers *peers);

/* Views whose end has come hold no more, and what is known may get too old. Returns whether anything has changed. */
bool peers_turn(struct peers *peers, int64_t now_us);

/* When that will be, if nothing is heard before; INT64_MAX: never. */
int64_t peers_due_us(const struct peers *peers);

/* All that hold, as a chain in `chain` that uses their weights; the first has the least w/W. */
#define PEERS_SHARES (PEERS_VIEWS + 1)
void peers_in_force(const struct peers *peers, struct share chain[PEERS_SHARES]);

#endif
