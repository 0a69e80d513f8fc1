/* speed.c - decisions a second in each mode. */
#include "modes.h"

enum use { USE_ONE, USE_MANY, USE_BATCH, USE_DENIAL, USES };

static const char *const USE_NAMES[USES] = { "1 thread ns", "64 threads ns", "batch of 64 ns", "denial ns" };
static const struct weir_policy DENYING = { .limit = 1, .period_us = WEIR_DAY };

struct pair { /* a mode's limiters */
    struct remote allow, deny;
};

static bool open_pair(struct pair *pair, enum weir_mode mode, const struct store *store)
{
    const struct weir_policy *policy = &calls_policies[KIND_TOKEN];
    if (mode == WEIR_LOCAL) {
        remote_open_local(&pair->allow, CALLS_LIMIT, policy);
        remote_open_local(&pair->deny, "deny", &DENYING);
        return true;
    }
    const struct weir_options options = remote_options(mode);
    if (!remote_open(&pair->allow, store, &options, CALLS_LIMIT, policy))
        return false;
    if (remote_open(&pair->deny, store, &options, "deny", &DENYING))
        return true;
    remote_close(&pair->allow);
    return false;
}

/* Brings every key into the state in which it is measured: live, and used up where denials are. */
static void fill_pair(const struct pair *pair, enum weir_mode mode, const struct store *store)
{
    struct bench_key keys[64];
    struct weir_decision decision;
    for (uint64_t i = 0; i < store->keys; i += 64) {
        size_t n = store->keys - i < 64 ? (size_t)(store->keys - i) : 64;
        for (size_t place = 0; place < n; place++) {
            key_write(i + place, &keys[place]);
            if (mode == WEIR_LOCAL) /* the server's are filled already */
                weir_try(pair->allow.limit, weir_key(&keys[place], KEY_LEN), CALLS_FILL, &decision);
        }
        remote_call_batch((void *)(uintptr_t)&pair->deny, 0, keys, n);
    }
}

static struct load load_of(enum use use, struct pair *pair, const struct store *store)
{
    return (struct load){ .call = use == USE_BATCH ? remote_call_batch : remote_call,
                          .subject = use == USE_DENIAL ? &pair->deny : &pair->allow,
                          .threads = use == USE_MANY ? 64 : 1,
                          .step = use == USE_BATCH ? 64 : 1,
                          .stream = &store->stream };
}

void modes_speed(struct modes *modes)
{
    (void)modes;
}
