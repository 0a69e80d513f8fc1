/* redis_state.c - parsing of stored states.
 *
 * The input is a policy, a way to make the state, and bytes. Properties:
 *
 *     - bytes are accepted as a state exactly if state_bytes.c writes the result as the same bytes. So each state has
 *       one encoding, and only states are accepted; a prefix of one is refused; bytes after it do not matter
 *     - a refusal writes nothing
 *     - an accepted state can be decided on, and the result is written and read back unchanged
 */
#include "fuzz.h"
#include "state_bytes.h"

#include "backends/redis/flight/state.h"
#include "core/algorithm/algorithm.h"
#include "core/algorithm/top.h"
#include "core/ground/arith.h"
#include "core/policy/plan.h"

#include <stdlib.h>
#include <string.h>

/* ---- Properties ---- */

/* Read bytes that end where a sanitizer watches; a refusal must leave the state unchanged. */
static int read_state(const struct weir_plan *plan, const unsigned char *bytes, size_t len, int64_t *state,
                      enum redis_found *found)
{
    int64_t before[STATE_MAX_WORDS];
    unsigned char *copy = malloc(len ? len : 1);
    fuzz_must(copy, "there is memory");
    memcpy(copy, bytes, len);
    memcpy(before, state, sizeof before);
    const int used = redis_state_read(plan, copy, len, state, found);
    fuzz_must(used == -1 || (used >= 1 && (size_t)used <= len), "it takes no more than there is");
    fuzz_must(used > 0 || memcmp(before, state, sizeof before) == 0, "what is refused writes nothing");
    free(copy);
    return used;
}

static void check_beginnings(const struct weir_plan *plan, const unsigned char *bytes, int used)
{
    int64_t state[STATE_MAX_WORDS] = { 0 };
    enum redis_found found;
    for (int len = used > 64 ? used - 64 : 0; len < used; len++)
        fuzz_must(read_state(plan, bytes, (size_t)len, state, &found) == -1, "no beginning of a state is one");
}

/* Decide from the state, then write it and read it back. */
static void check_use(const struct weir_plan *plan, int64_t *state, struct feed *feed)
{
    unsigned char bytes[REDIS_STATE_MAX];
    int64_t again[STATE_MAX_WORDS] = { 0 };
    enum redis_found found;
    for (int i = 0; i < 3; i++) {
        struct weir_decision decision;
        const int64_t now_us = feed_between(feed, 0, WEIR_MAX_TIME_US);
        const int64_t cost = feed_magnitude(feed, WEIR_MAX_PERMITS);
        int64_t at_us = now_us;
        const int64_t used = state_used(plan, state, &at_us);
        fuzz_must(used >= 0 && used <= state_top(plan) && at_us >= now_us, "what is used is in its range");
        state_decide(plan, state, now_us, cost, feed_byte(feed) & 1 ? WEIR_REFUND : WEIR_TAKE, &decision);
        fuzz_must(decision.limit == plan->size && decision.remaining >= 0 && decision.remaining <= plan->size &&
                      decision.reset_after_us >= 0 && decision.retry_after_us >= WEIR_NEVER && decision.delay_us >= 0,
                  "a decision is in its ranges");
        if (state_fresh_at_us(plan, state) == 0)
            return; /* an unused state is not stored */
        const size_t len = state_bytes(plan, state, bytes);
        fuzz_must(read_state(plan, bytes, len, again, &found) == (int)len && found == REDIS_STATE, "it is read back");
        unsigned char rewritten[REDIS_STATE_MAX];
        fuzz_must(state_bytes(plan, again, rewritten) == len && memcmp(bytes, rewritten, len) == 0, "unchanged");
    }
}

static void check_bytes(const struct weir_plan *plan, const unsigned char *bytes, size_t len, struct feed *feed)
{
    int64_t state[STATE_MAX_WORDS] = { 0 };
    unsigned char written[REDIS_STATE_MAX];
    enum redis_found found = REDIS_FRESH;
    const int used = read_state(plan, bytes, len, state, &found);
    if (used < 0)
        return;
    if (found != REDIS_STATE) {
        const bool is_said = used == 1 && bytes[0] == (found == REDIS_FOREIGN);
        const bool is_bucket = bytes[0] == 'T' || bytes[0] == 'L';
        fuzz_must(is_said || (is_bucket && used == 40 && found == REDIS_FOREIGN),
                  "a byte 0 or 1 says that there is no state, or a bucket's is impossible");
        return;
    }
    fuzz_must(state_bytes(plan, state, written) == (size_t)used && memcmp(written, bytes, (size_t)used) == 0,
              "a state is written as it was read");
    check_beginnings(plan, bytes, used);
    check_use(plan, state, feed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct feed feed = feed_of(data, size);
    const struct weir_policy policy = feed_policy(&feed);
    struct weir_plan plan;
    if (weir_policy_check(&policy, NULL, 0) != WEIR_OK ||
        plan_make(&policy, &share_whole, &plan, (struct message){ NULL, 0 }) != WEIR_OK)
        return 0;
    unsigned char bytes[REDIS_STAMP_MAX + 512];
    const uint8_t choice = feed_byte(&feed);
    size_t len = choice & 1 ? redis_stamp_write(&plan, bytes) : 0; /* random bytes would rarely have a valid one */
    size_t rest;
    char *more = feed_bytes(&feed, 255, &rest);
    memcpy(bytes + len, more, rest);
    free(more);
    check_bytes(&plan, bytes, len + rest, &feed);

    int64_t state[STATE_MAX_WORDS] = { 0 };
    state_charge(&plan, state, feed_between(&feed, 0, WEIR_MAX_TIME_US), feed_magnitude(&feed, WEIR_MAX_PERMITS));
    check_use(&plan, state, &feed);
    return 0;
}
