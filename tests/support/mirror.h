/* mirror.h - what Redis must hold for a key: the memory backend's steps over the core's states, written once more.
 *
 * The scripts are held against this. It knows a plan by its stamp alone, as they do.
 */
#ifndef WEIR_TESTS_MIRROR_H
#define WEIR_TESTS_MIRROR_H

#include "backends/redis/flight/state.h"
#include "core/algorithm/algorithm.h"
#include "plans.h"

/* A state and the plan that it was written under. */
struct under_plan {
    struct weir_plan plan;
    bool has_origin;
    struct origin origin;
    int64_t state[STATE_MAX_WORDS];
};

/* What becomes of it is the rule of lua/meet.lua. */
struct mirror {
    bool stored, has_former; /* in `own` nothing may be used, if there is a former state */
    struct under_plan own, former;
    int64_t until_us; /* the former one is kept */
};

enum { MIRROR_BYTES_MAX = 10 + 2 * (REDIS_ORIGIN_SIZE + REDIS_STATE_MAX) };

/* Only what is used of it: a mirror may take 8 KiB. */
void mirror_copy(struct mirror *to, const struct mirror *from);

/* The bytes that must be stored; returns their number, 0 if nothing is. */
size_t mirror_bytes(const struct mirror *mirror, unsigned char out[MIRROR_BYTES_MAX]);

/* Turn the bytes of a bucket's state, or stamp alone, whose key has room in its time to live into those of one without.
 * False: they are no such bytes, and stay. */
bool mirror_leave_room(unsigned char *bytes, size_t len);

/* The longest room of a key under a greedy or leaky bucket's plan, in milliseconds. */
int64_t mirror_room_ms(const struct weir_plan *plan);

/* When nothing is in use in the state any more and the former one is forgotten. */
int64_t mirror_fresh_at_us(const struct mirror *mirror);

/* The state that requests under `plan` meet now, and its origin, or zeros: carried over if it is under another one.
 * False: a fresh one. */
bool mirror_found(const struct mirror *mirror, const struct weir_plan *plan, int64_t now_us, int64_t *state,
                  struct origin *origin);

/* Decide as the memory backend would; true if what is stored was written or removed. */
bool mirror_decide(struct mirror *mirror, const struct weir_plan *plan, enum weir_verb verb, int64_t cost,
                   int64_t now_us, struct weir_decision *out);

/* Take, and charge ahead of use what fits: as a take and a second one. */
bool mirror_take_ahead(struct mirror *mirror, const struct weir_plan *plan, int64_t cost, int64_t ahead,
                       uint32_t spread, int64_t now_us, struct weir_decision *out);

/* Give back permits that were charged at `since_us`, above 0, and never used: state_return(). */
bool mirror_return(struct mirror *mirror, const struct weir_plan *plan, int64_t cost, int64_t since_us, int64_t now_us,
                   struct weir_decision *out);

/* Give them back and take them again: state_renew(). */
bool mirror_renew(struct mirror *mirror, const struct weir_plan *plan, int64_t cost, int64_t since_us, int64_t now_us,
                  struct weir_decision *out);

/* All or nothing; written[i] as above. Returns whether all admit. */
bool mirror_try_all(struct mirror *const *mirrors, const struct weir_plan *plans, const int64_t *costs, size_t n,
                    int64_t now_us, bool *written);

/* Decide as the library does once a script has answered: over a state alone, one request after the other. */
void library_decide(const struct weir_plan *plan, int64_t *state, enum weir_verb verb, int64_t cost, int64_t now_us,
                    struct weir_decision *out);

#endif
