/* test_machine.c - the backend contract on a shared file; and one process decides there as in local mode, byte for
 * byte.
 */
#include "contract/contract.h"
#include "core/ground/arith.h"

#include <inttypes.h>
#include <stdio.h>

/* The suite opens many limiters, so their files are small. */
static int open_machine(const struct weir_options *options, weir **out)
{
    struct weir_options own = *options;
    own.mode = WEIR_MACHINE;
    own.max_keys = own.max_keys ? own.max_keys : 100000;
    own.timeout_us = WEIR_HOUR; /* a thread that is preempted with a lock may get no processor for long */
    return weir_open(&own, out);
}

static const struct contract_backend machine = { "machine", CONTRACT_ALL, open_machine, .sources_vary = false };

/* ---- Twins ---- */

enum { TWIN_LIMITS = 6, TWIN_KEYS = 12, TWIN_ALL = 5 };

/* The same limits in local mode and in a file. */
struct twins {
    struct chance chance;
    struct scene local, machine;
    struct weir_limit *limits[TWIN_LIMITS][2];
    char where[256];
};

static void twins_open(struct twins *twins, uint64_t stream)
{
    twins->chance = chance_make(stream);
    scene_open(&twins->local, OPTIONS(.keep_idle = true, .max_keys = 5000));
    scene_open(&twins->machine, OPTIONS(.mode = WEIR_MACHINE, .keep_idle = true, .max_keys = 5000));
}

static void twins_close(struct twins *twins)
{
    scene_close(&twins->local);
    scene_close(&twins->machine);
}

static struct weir_policy twin_policy(struct chance *chance)
{
    for (;;) {
        const enum kind kind = (enum kind)chance_between(chance, 0, KIND_COUNT - 1);
        struct weir_policy policy = policy_by_chance(chance, kind);
        if (policy.blocks > 40 && !chance_one_in(chance, 20))
            policy.blocks = (int32_t)chance_between(chance, 1, 40);
        if (weir_policy_check(&policy, NULL, 0) == WEIR_OK)
            return policy;
    }
}

static void twins_define(struct twins *twins, int i)
{
    char name[16];
    const struct weir_policy policy = twin_policy(&twins->chance);
    snprintf(name, sizeof name, "limit%d", i);
    twins->limits[i][0] = scene_define(&twins->local, name, &policy);
    twins->limits[i][1] = scene_define(&twins->machine, name, &policy);
}

/* Every length: one cell, several, and more than fit on a page. */
static struct weir_key twin_key(struct chance *chance)
{
    static char bytes[TWIN_KEYS][3000];
    const int number = (int)chance_between(chance, 0, TWIN_KEYS - 1);
    const size_t len = number < 8 ? (size_t)number * 6 + 2 : (size_t)number * 250;
    memset(bytes[number], 'a' + number, sizeof bytes[number]);
    return weir_key(bytes[number], len);
}

static void twins_agree(struct twins *twins, int errors[2], const struct weir_decision decisions[2], const char *what)
{
    snprintf(twins->where, sizeof twins->where, "%s at %" PRId64, what, twins->local.now_us);
    must(errors[0] == errors[1], twins->where);
    if (errors[0] == WEIR_OK)
        assert_decision_is(&decisions[1], &decisions[0], twins->where);
}

static void twins_step_one(struct twins *twins)
{
    struct chance *chance = &twins->chance;
    const int i = (int)chance_between(chance, 0, TWIN_LIMITS - 1);
    const struct weir_key key = twin_key(chance);
    const int64_t cost = chance_one_in(chance, 3) ? chance_magnitude(chance, 1000000) : chance_between(chance, 1, 9);
    const int64_t verb = chance_between(chance, 0, 19), actual = chance_between(chance, 0, cost + 2);
    const bool settles = chance_one_in(chance, 2);
    struct weir_decision decisions[2];
    struct weir_reservation reservations[2];
    int errors[2];
    memset(decisions, 0, sizeof decisions);
    for (int twin = 0; twin < 2; twin++) {
        weir_limit *limit = twins->limits[i][twin];
        switch (verb) {
        case 0: errors[twin] = weir_refund(limit, key, cost); break;
        case 1: errors[twin] = weir_charge(limit, key, cost); break;
        case 2:
            errors[twin] = chance_one_in(&(struct chance){ twins->chance.state }, 3) ? weir_reset(limit, key) : 0;
            break;
        case 3:
        case 4:
            errors[twin] = weir_reserve(limit, key, cost, &decisions[twin], &reservations[twin]);
            if (errors[twin] == WEIR_OK && decisions[twin].allowed && settles)
                errors[twin] = weir_settle(limit, key, &reservations[twin], actual);
            break;
        case 5:
        case 6:
        case 7: errors[twin] = weir_peek(limit, key, cost, &decisions[twin]); break;
        default: errors[twin] = weir_try(limit, key, cost, &decisions[twin]);
        }
    }
    twins_agree(twins, errors, decisions, "one");
    for (int twin = 0; twin < 2; twin++) /* whatever the verb did, both keys look alike */
        errors[twin] = weir_peek(twins->limits[i][twin], key, 1, &decisions[twin]);
    twins_agree(twins, errors, decisions, "a peek after it");
}

static void twins_step_all(struct twins *twins)
{
    struct chance *chance = &twins->chance;
    struct weir_request requests[2][TWIN_LIMITS];
    struct weir_decision decisions[2];
    int errors[2];
    const int n = (int)chance_between(chance, 2, TWIN_ALL), from = (int)chance_between(chance, 0, TWIN_LIMITS - 1);
    memset(decisions, 0, sizeof decisions);
    for (int i = 0; i < n; i++) {
        const struct weir_key key = twin_key(chance);
        const int64_t cost = chance_between(chance, 1, 4);
        for (int twin = 0; twin < 2; twin++)
            requests[twin][i] = (struct weir_request){ .limit = twins->limits[(from + i) % TWIN_LIMITS][twin],
                                                       .key = key,
                                                       .cost = cost };
    }
    errors[0] = weir_try_all(twins->local.limiter, requests[0], (size_t)n, &decisions[0]);
    errors[1] = weir_try_all(twins->machine.limiter, requests[1], (size_t)n, &decisions[1]);
    twins_agree(twins, errors, decisions, "all");
}

static void twins_pass_time(struct twins *twins)
{
    struct chance *chance = &twins->chance;
    int64_t step_us = chance_magnitude(chance, chance_one_in(chance, 50) ? WEIR_DAY : 10 * WEIR_SECOND);
    if (chance_one_in(chance, 10))
        step_us = -chance_magnitude(chance, 5 * WEIR_SECOND);
    twins->local.now_us = twins->machine.now_us = max_of(0, twins->local.now_us + step_us);
}

TEST_EACH(one_process_decides_in_a_shared_file_as_in_local_mode, 8, 60)
{
    static struct twins twins;
    twins_open(&twins, (uint64_t)_i);
    for (int i = 0; i < TWIN_LIMITS; i++)
        twins_define(&twins, i);
    for (int64_t steps = steps_or(200000) / 8; steps > 0; steps--) {
        if (chance_one_in(&twins.chance, 150))
            twins_define(&twins, (int)chance_between(&twins.chance, 0, TWIN_LIMITS - 1));
        if (chance_one_in(&twins.chance, 2))
            twins_pass_time(&twins);
        if (chance_one_in(&twins.chance, 6))
            twins_step_all(&twins);
        else
            twins_step_one(&twins);
    }
    ck_assert_int_eq(stats_of(twins.local.limiter).keys, stats_of(twins.machine.limiter).keys);
    twins_close(&twins);
}

int main(void)
{
    contract_add(tests(), &machine);
    return suite_run(tests());
}
