/* judge.h - compares what was admitted of each key with its limit and with what faults allow beyond it (allow.h).
 *
 * It uses only the times of the calls (lab/envelope.h): a call was decided at some instant between its start and its
 * end, and counts in a stretch of time only if it lies wholly within it. So a reported excess is real.
 *
 * A stretch of time may be as long as the run. For a limit that refills continuously, calls older than HOLD_US are
 * replaced by the bucket's level: a moment without a call under way separates earlier calls from later ones, and the
 * later ones depend only on the highest level that the bucket can have had at that moment. That is exact. Windows
 * forget by themselves.
 */
#ifndef SOAK_JUDGE_H
#define SOAK_JUDGE_H

#include "allow.h"

struct judge;

/* Exits with a sentence if there is no memory. */
struct judge *judge_make(bool forgives); /* false: no fault allows anything */
void judge_free(struct judge *judge);    /* NULL is ignored */

/* Add a process's record. Permits of a bucket that a fallback admitted count while Redis is gone for all, see
 * allow.h; otherwise they are compared with that fallback's share alone. */
void judge_take(void *judge, int process, const struct record *record);

/* A fault allows more; end_us INT64_MAX: it is still active. */
void judge_allow(struct judge *judge, const struct allowance *allowance);

/* For these modes, a bit each, no instance reaches Redis from now on; and it may be back. */
void judge_gone(struct judge *judge, uint32_t modes, int64_t at_us);
void judge_back(struct judge *judge, int64_t at_us);

/* End all allowances that have no end yet. */
void judge_over(struct judge *judge, int64_t end_us);

/* Judge the new records, now and then, and with `last` at the end. `over_max` is weir_limit_info's. */
void judge_turn(struct judge *judge, int64_t at_us, bool last, _Atomic int64_t (*over_max)[LIMITS]);

/* Return the greatest excess so far, in permits: above 0 is a failure. Return its key, in words. */
double judge_worst(const struct judge *judge, int mode, int limit);
const char *judge_worst_key(const struct judge *judge, int mode, int limit);

int64_t judge_keys(const struct judge *judge);     /* seen so far */
int64_t judge_too_late(const struct judge *judge); /* records that came too late to be judged */

#endif
