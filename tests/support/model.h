/* model.h - a second, slow and exact implementation of the semantics, with which tests compare the library.
 *
 * One state is one key of one limit and is kept for ever. The model does not compute the waits (retry_after,
 * reset_after, delay): it searches for the first microsecond at which their definition holds. It shares nothing with
 * the library except the types of weir.h.
 */
#ifndef WEIR_TESTS_MODEL_H
#define WEIR_TESTS_MODEL_H

#include <weir/weir.h>

__extension__ typedef __int128 wide; /* holds every product in here: the largest are below 2^117 */

/* One instance's share of a limit. `weights` may be NULL: then they are known only if all weigh the same. */
struct model_share {
    int64_t instances, rank, weight, total;
    const int64_t *weights;
};
extern const struct model_share model_alone; /* the only instance: the whole of every limit */

/* What a policy means to one instance. Two policies that mean the same compare equal with model_rule_same(). */
struct model_rule {
    enum weir_algorithm algorithm;
    enum weir_refill refill;
    enum weir_align align;
    int64_t size;            /* the largest cost that a fresh key admits */
    wide permits, period_us; /* `permits` come back each period; in lowest terms where only the rate counts */
    int64_t tick_us;         /* greedy, leaky: time counts in steps of this; otherwise 1 */
    int64_t blocks;          /* sliding window; period_us is then one block's length */
    bool lifted, zeroed;     /* the share's part of a burst was 0 and became 1; of a window, and stayed 0 */
};

enum { MODEL_BLOCKS = WEIR_MAX_BLOCKS + 1 };

struct model_block {
    int64_t id;   /* floor(time / length) */
    int64_t used; /* permits, never 0 */
};

/* What of earlier permits is in a use that was made of one under another rule; until_us 0: it was not. */
struct model_origin {
    wide made_us, from_us, edge_us, rate, rate_us, rest, held, until_us;
};

/* The permits used under one rule. */
struct model_use {
    bool fresh;             /* none: only `rule` means something, and only beside a former use */
    struct model_rule rule; /* under which it was written */
    struct model_origin origin;
    int64_t anchor_us;
    wide used; /* greedy, leaky: in units of 1/period_us permit; interval, fixed window: permits */
    int block_count;
    struct model_block blocks[MODEL_BLOCKS]; /* sliding window, oldest first */
};

struct model_state {
    struct model_use own;    /* decides */
    struct model_use former; /* under an earlier rule, and more than the current rule can hold; or fresh */
};

enum model_verb { MODEL_TAKE, MODEL_PEEK, MODEL_REFUND, MODEL_RESET, MODEL_CHARGE };

/* Write the rule of `policy` for this share. False if the semantics refuse the policy. */
bool model_rule_make(const struct weir_policy *policy, const struct model_share *share, struct model_rule *rule);
bool model_rule_same(const struct model_rule *a, const struct model_rule *b);

void model_state_init(struct model_state *state);

/* Set the state as if all permits of the rule had been taken at `since_us`. */
void model_state_cool(struct model_state *state, const struct model_rule *rule, int64_t since_us);

/* True if no permit of the state is in use at `now_us` under the rules that wrote it. */
bool model_state_is_idle(const struct model_state *state, int64_t now_us);

/* True if the state has a former use, which may have drained by now. */
bool model_state_has_former(const struct model_state *state);

/* Return how long the former use stays larger than the own one from `now_us` on; 0 if it is not larger. */
int64_t model_state_even_us(const struct model_state *state, int64_t now_us);

/* Decide one request at `now_us`; the decision's source is WEIR_BY_MEMORY. */
void model_decide(struct model_state *state, const struct model_rule *rule, enum model_verb verb, int64_t cost,
                  int64_t now_us, struct weir_decision *out);

/* Give back permits that were charged at `since_us`, above 0, and not used; or give them back and take them again. */
void model_return(struct model_state *state, const struct model_rule *rule, int64_t cost, int64_t since_us,
                  int64_t now_us, struct weir_decision *out);
void model_renew(struct model_state *state, const struct model_rule *rule, int64_t cost, int64_t since_us,
                 int64_t now_us, struct weir_decision *out);

/* Return when the permits that the state was charged with just now count as charged. */
int64_t model_noted_us(const struct model_state *state, int64_t now_us);

struct model_request {
    struct model_state *state;
    const struct model_rule *rule;
    int64_t cost;
};

/* Decide several requests, all or nothing. The costs of requests that share a state add up. */
void model_decide_all(const struct model_request *requests, size_t n, int64_t now_us, struct weir_decision *out);

#endif
