/* judge.h - holds what was admitted of each key against its limit and what is allowed beyond it (allow.h).
 *
 * It goes by the times of the calls alone (lab/envelope.h): a call was decided at some instant between its start and its
 * end, and counts against a stretch of time only if it lies wholly within it. What it finds was really too much.
 *
 * A stretch of time may be as long as the run. Of a limit whose permits flow back only the level of the bucket is kept
 * of what is older than HOLD_US: a moment in which no call of the key was under way divides the calls into those before
 * and those after it, and how full a bucket would have been at that moment, at worst, is all that those after it depend
 * on. That is exact. Windows forget by themselves.
 */
#ifndef SOAK_JUDGE_H
#define SOAK_JUDGE_H

#include "allow.h"

struct judge;

/* Dies for want of memory, with a sentence. */
struct judge *judge_make(bool forgives); /* false: whatever is done, nothing is allowed for it */
void judge_free(struct judge *judge);    /* NULL is ignored */

/* A record of a process. What the fallback admitted while Redis is gone for all counts, see allow.h; what it admitted
 * else is held against its share alone. */
void judge_take(void *judge, int process, const struct record *record);

/* Something has been done that allows more; end_us INT64_MAX: it is being done. */
void judge_allow(struct judge *judge, const struct allowance *allowance);

/* For these modes, a bit each, Redis is gone for all from now on; and it may be back. */
void judge_gone(struct judge *judge, uint32_t modes, int64_t at_us);
void judge_back(struct judge *judge, int64_t at_us);

/* What has been going on, allowances with no end, is over. */
void judge_over(struct judge *judge, int64_t end_us);

/* Judge what has come in since; now and then, and with `last` once all is over. `over_max`: of weir_limit_info. */
void judge_turn(struct judge *judge, int64_t at_us, bool last, _Atomic int64_t (*over_max)[LIMITS]);

/* The greatest excess over what was allowed so far, in permits: above 0 is a failure. And of what, in words. */
double judge_worst(const struct judge *judge, int mode, int limit);
const char *judge_worst_key(const struct judge *judge, int mode, int limit);

int64_t judge_keys(const struct judge *judge);     /* that it has seen */
int64_t judge_too_late(const struct judge *judge); /* records that came too late to be judged */

#endif
