/* modes.c - the modes side by side: what each promises, and what its decisions cost. */
#include "remote.h"

#define MODES 3

enum use { USE_ONE, USE_MANY, USE_BATCH, USE_DENIAL, USES };

static const char *const MODE_NAMES[MODES] = { "local", "distributed", "hybrid" };
static const char *const PROMISES[MODES] = { "this instance's share", "exact over all instances",
                                             "within a stated bound over all instances" };
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

void bench_modes(struct bench *bench)
{
    const struct store *store = store_of(bench, "modes");
    static struct load loads[MODES * USES];
    struct pair pairs[MODES];
    int modes = 0;
    if (!store)
        return;
    store_section(bench, store, "modes",
                  "ns per decision (wall time over all decisions), token bucket through the public API; median "
                  "(min..max); callers on one processor, the server on another; a local one's 64 threads take turns");
    for (int mode = 0; mode < MODES && open_pair(&pairs[mode], (enum weir_mode)mode, store); mode++) {
        bench_progress("modes: filling, %s", MODE_NAMES[mode]);
        fill_pair(&pairs[mode], (enum weir_mode)mode, store);
        for (int use = 0; use < USES; use++) {
            loads[mode * USES + use] = load_of((enum use)use, &pairs[mode], store);
            if (mode == WEIR_LOCAL && use != USE_BATCH)
                loads[use].step = 64; /* or reading the clock would be half of what is measured */
        }
        modes = mode + 1;
    }
    bench_progress("modes: measuring");
    load_measure(loads, modes * USES, bench->repeats, bench->seconds, store);
    for (int mode = 0; mode < modes; mode++) {
        report_row(bench->report);
        report_text(bench->report, "mode", MODE_NAMES[mode]);
        report_text(bench->report, "promise", PROMISES[mode]);
        for (int use = 0; use < USES; use++)
            report_sample(bench->report, USE_NAMES[use], &loads[mode * USES + use].ns);
        remote_close(&pairs[mode].allow);
        remote_close(&pairs[mode].deny);
    }
    if (modes < MODES)
        remote_report_missing(bench);
    report_end_section(bench->report);
}
