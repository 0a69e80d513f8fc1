/* test_faults_storm.c - many processes whose server dies and returns: fault E3 of tests/tools/faults.conf.
 *
 * All connect through one proxy. While the server is down it accepts and immediately closes each connection and records
 * its time. A process that loses a good connection retries immediately, then after random pauses that grow from
 * PAUSE_LEAST_US to a second. Callers open no connections while Redis is down.
 */
#include "redis_place.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PROCESSES = 200,
    PAUSE_LEAST_US = 10000, /* REDIS_PAUSE_MIN_US */
    CALL_PAUSE_US = 20000,
    GROWN_US = 2000000, /* pauses have their full length by then */
    OUTAGE_US = 4000000,
    TIMES_MOST = 8192
};

struct crowd { /* in shared memory */
    char url[96];
    atomic_bool begun, over;
    _Atomic int64_t up_since_us[PROCESSES]; /* since when Redis decides for it; 0: it does not */
    _Atomic int64_t wrong;
};

/* Run one process: ask repeatedly, whether Redis or the fallback decides. */
static int ask_until_over(struct crowd *crowd, int number)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct weir_policy policy = { .algorithm = WEIR_FIXED_WINDOW, .limit = 1000000, .period_us = 366 * WEIR_DAY };
    weir *limiter;
    weir_limit *limit;
    while (!atomic_load(&crowd->begun))
        sleep_us(10000);
    options.mode = WEIR_DISTRIBUTED;
    options.redis_url = crowd->url;
    options.on_failure = WEIR_FAIL_LOCAL;
    options.timeout_us = WEIR_SECOND; /* many processes start on few processors */
    if (weir_open(&options, &limiter) != WEIR_OK || weir_limit_define(limiter, "limit", &policy, &limit) != WEIR_OK)
        return 1;
    while (!atomic_load(&crowd->over)) {
        struct weir_decision decision;
        const int status = weir_try(limit, weir_key_text("key"), 1, &decision);
        const bool is_up = status == WEIR_OK && decision.source == WEIR_BY_REDIS;
        atomic_fetch_add(&crowd->wrong, status != WEIR_OK);
        if (!is_up)
            atomic_store(&crowd->up_since_us[number], 0);
        else if (atomic_load(&crowd->up_since_us[number]) == 0)
            atomic_store(&crowd->up_since_us[number], wire_now_us());
        sleep_us(CALL_PAUSE_US);
    }
    weir_close(limiter);
    return 0;
}

/* Before this process has threads. */
static struct crowd *crowd_make(pid_t pids[PROCESSES])
{
    struct crowd *crowd = mmap(NULL, sizeof *crowd, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(crowd != MAP_FAILED, "shared memory");
    fflush(NULL);
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        must(pids[i] >= 0, "a process");
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            signal(SIGALRM, SIG_DFL); /* Check uses it */
            _exit(ask_until_over(crowd, i));
        }
    }
    return crowd;
}

/* Return for how many processes Redis decides, and since when for the last one. */
static int up_of(const struct crowd *crowd, int64_t *last_us)
{
    int up = 0;
    *last_us = 0;
    for (int i = 0; i < PROCESSES; i++) {
        const int64_t since_us = atomic_load(&crowd->up_since_us[i]);
        up += since_us != 0;
        *last_us = since_us > *last_us ? since_us : *last_us;
    }
    return up;
}

static int64_t await_all(const struct crowd *crowd, int up)
{
    int64_t last_us;
    for (const int64_t late_us = wire_now_us() + 3 * RECOVERY_MOST_US; up_of(crowd, &last_us) != up; sleep_us(5000))
        if (wire_now_us() > late_us)
            ck_abort_msg("Redis decides for %d processes, not %d", up_of(crowd, &last_us), up);
    return last_us;
}

/* Return the most of these ordered times in any span of that length. */
static int most_within(const int64_t *times_us, int n, int64_t stretch_us)
{
    int most = 0;
    for (int first = 0, last = 0; last < n; last++) {
        while (times_us[last] - times_us[first] >= stretch_us)
            first++;
        most = last - first + 1 > most ? last - first + 1 : most;
    }
    return most;
}

TEST(two_hundred_processes_reconnect_to_a_server_spread_over_time, 120)
{
    static int64_t times_us[TIMES_MOST];
    static pid_t pids[PROCESSES];
    struct place place;
    struct crowd *crowd = crowd_make(pids);
    place_open(&place, true, NULL);
    snprintf(crowd->url, sizeof crowd->url, "%s", place.proxy_url);
    atomic_store(&crowd->begun, true);
    await_all(crowd, PROCESSES);

    const int64_t before = fproxy_counts(place.proxy).connections, killed_us = wire_now_us();
    redis_server_kill(&place.server);
    sleep_us(OUTAGE_US);
    const int64_t back_us = wire_now_us();
    const int made = (int)(fproxy_counts(place.proxy).connections - before);
    must(made <= TIMES_MOST, "all times are kept");
    const int n = fproxy_connection_times(place.proxy, times_us, made);
    int grown = 0;
    while (grown < n && times_us[grown] - killed_us < GROWN_US)
        grown++;
    const int at_once = most_within(times_us, n, PAUSE_LEAST_US), in_a_second = most_within(times_us, n, WEIR_SECOND);
    const int grown_in_a_second = most_within(times_us + grown, n - grown, WEIR_SECOND);
    must(redis_server_restart(&place.server) == 0, place.server.daemon.error);
    const int64_t until_up = fproxy_counts(place.proxy).connections; /* without the server's start-up time */
    const int64_t returned_us = await_all(crowd, PROCESSES) - back_us;
    const int64_t after = fproxy_counts(place.proxy).connections - until_up;

    printf(
        "%d processes: %d connections in an outage of %d ms, %d in its busiest second, %d in %d ms, %d in any second "
        "once pauses have grown\nall are back %" PRId64 " us after the server began to start, by %" PRId64
        " connections\n",
        (int)PROCESSES, n, OUTAGE_US / 1000, in_a_second, at_once, PAUSE_LEAST_US / 1000, grown_in_a_second,
        returned_us, after);
    ck_assert_int_ge(n, PROCESSES);
    ck_assert_int_le(at_once, 2 * PROCESSES); /* for the good connection and for a lane */
    ck_assert_int_le(grown_in_a_second, 5 * PROCESSES);
    ck_assert_int_le(after, 4 * PROCESSES);
    ck_assert_int_eq(atomic_load(&crowd->wrong), 0);

    atomic_store(&crowd->over, true);
    for (int i = 0; i < PROCESSES; i++) {
        assert_child_succeeds(pids[i]);
    }
    asker_close(&place.asker);
    place_close(&place);
    munmap(crowd, sizeof *crowd);
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    return suite_run(tests());
}
