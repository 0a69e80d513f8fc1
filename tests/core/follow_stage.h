/* follow_stage.h - a limiter that follows its peers: by a source that is the test, or by a list function. */
#ifndef WEIR_TESTS_FOLLOW_STAGE_H
#define WEIR_TESTS_FOLLOW_STAGE_H

#include "fake.h"

#include "backends/memory/memory.h"
#include "core/api/life.h"
#include "core/follow/follow.h"
#include "core/limiter/options.h"

#include <unistd.h>

enum { HOLD_US = 2000000, STALE_US = 300000000, POLL_US = 100000 };

static const struct weir_peer abcd[] = { { "a", 1 }, { "b", 1 }, { "c", 1 }, { "d", 1 } };

/* ---- A limiter whose source is the test, with a clock that the test sets ---- */

static int64_t boot_us = 1000;

static inline int64_t boot_in_hand(void)
{
    return boot_us;
}

static inline int start_nothing(const struct weir_options *options, struct weir *limiter)
{
    limiter->follow->now_us = boot_in_hand;
    return WEIR_OK;
}

static inline int64_t list_nothing(void *user, struct weir_peer *peers, size_t room)
{
    return -1;
}

struct stage {
    struct scene scene;
    struct fake fake;
    struct weir_peers peers;
    struct weir_options options, read;
    struct weir_peers read_peers;
    struct weir_consul read_consul;
};

static inline void stage_options(struct stage *stage)
{
    *stage = (struct stage){ .options = WEIR_OPTIONS_INIT };
    stage->peers = (struct weir_peers){ .size = sizeof stage->peers, .list = list_nothing, .id = "b" };
    stage->peers.hold_down_us = HOLD_US;
    stage->peers.poll_us = POLL_US;
    stage->options.peers = &stage->peers;
}

static int64_t instances_told;

static inline void hear_instances(struct weir_backend *backend, int64_t count)
{
    instances_told = count;
}

/* Open with the options of stage_options() and the test. With `fake`, all instances count in the fake backend, and
 * memory is its fallback. */
static inline void stage_open(struct stage *stage, bool fake)
{
    struct weir_backend *memory;
    scene_init(&stage->scene, &stage->options);
    must_succeed(options_read(&stage->options, &stage->read));
    must_succeed(options_read_followed(&stage->read, &stage->read_peers, &stage->read_consul));
    must_succeed(memory_open(&stage->read, &memory));
    if (fake) {
        fake_init(&stage->fake);
        stage->fake.ops.shared = true;
        stage->fake.ops.instances = hear_instances;
    }
    must_succeed(limiter_make(&stage->read, fake ? &stage->fake.base : memory, fake ? memory : NULL, start_nothing,
                              &stage->scene.limiter));
}

static inline void stage_end(struct stage *stage)
{
    scene_close(&stage->scene);
}

static inline void tell(struct stage *stage, size_t n)
{
    follow_peers(stage->scene.limiter, abcd, n, "b");
}

static inline void pass(struct stage *stage, int64_t us)
{
    boot_us += us;
    follow_peers_turn(stage->scene.limiter);
}

static inline struct weir_follow_stats peers_now(weir *limiter)
{
    return follow_stats_of(limiter, WEIR_FOLLOW_PEERS);
}

static inline void assert_share(weir *limiter, int64_t weight, int64_t total)
{
    struct weir_stats stats = stats_of(limiter);
    ck_assert_int_eq(stats.share_weight, weight);
    ck_assert_int_eq(stats.share_total, total);
}

/* ---- A limiter with a list function ---- */

/* The answer of a list function; any thread may change it. */
struct answer {
    _Atomic int64_t n;
    _Atomic int calls;
};

static inline int64_t list_by_answer(void *user, struct weir_peer *peers, size_t room)
{
    struct answer *answer = user;
    atomic_fetch_add(&answer->calls, 1);
    const int64_t n = atomic_load(&answer->n);
    for (int64_t i = 0; i < n && i < 4; i++)
        peers[i] = abcd[i];
    return n > 4 ? (int64_t)room + 1 : n;
}

static inline weir *open_list(struct answer *answer)
{
    struct weir_peers peers = { .size = sizeof peers, .list = list_by_answer, .poll_us = POLL_US };
    char id[] = "b";
    weir *limiter;
    peers.id = id;
    peers.hold_down_us = POLL_US;
    must_succeed(weir_open(OPTIONS(.peers = &peers, .user = answer), &limiter));
    id[0] = '?'; /* weir has copied it, and the structs on this stack */
    return limiter;
}

/* ---- What other threads do in time ---- */

static inline void await(bool (*holds)(void *user), void *user, const char *what)
{
    for (int i = 0; i < 20000; i++) {
        if (holds(user))
            return;
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    ck_abort_msg("in vain: %s", what);
}

struct expected {
    weir *limiter;
    int64_t total;
    uint64_t failures;
    const char *says;
};

static inline bool has_share(void *user)
{
    const struct expected *expected = user;
    return stats_of(expected->limiter).share_total == expected->total;
}

static inline bool has_failed(void *user)
{
    const struct expected *expected = user;
    return peers_now(expected->limiter).failures >= expected->failures;
}

/* Wait for this reason: a machine that pauses causes failures with other reasons. */
static inline bool has_failed_so(void *user)
{
    const struct expected *expected = user;
    return strstr(peers_now(expected->limiter).last_error, expected->says) != NULL;
}

/* Check that a forked child can close the limiter. */
static inline void assert_child_can_close(weir *limiter)
{
    const pid_t child = fork();
    if (child == 0) {
        alarm(30);
        weir_close(limiter);
        _exit(0);
    }
    assert_child_succeeds(child);
}

#endif
