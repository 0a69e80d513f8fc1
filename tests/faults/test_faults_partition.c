/* test_faults_partition.c - a silent network partition between callers and Redis: faults E1 and D8 of
 * tests/tools/faults.conf.
 *
 * Neither end of a connection notices: packets vanish in a router between them (lab/parted.h), in one or in both
 * directions. Calls must end in time. Redis must have charged the permits of all answers, plus those of the calls
 * without an answer, and must decide again once packets pass. Callers on the server's side must not be affected.
 */
#include "redis_place.h"

#include "parted.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TIMEOUT_US = 50000, CALLERS = 8, SILENT_US = 1500000 };

struct side {
    weir_limit *limit;
    atomic_bool done;
    _Atomic int64_t calls, admitted, errors, longest_us;
};

static void *calls_all_the_while(void *argument)
{
    struct side *side = argument;
    while (!atomic_load(&side->done)) {
        const struct timed timed = timed_try(side->limit, "key", 1);
        must(timed.status == WEIR_OK || timed.status == WEIR_ETIME || timed.status == WEIR_EIO,
             "an outcome that may be");
        atomic_fetch_add(&side->calls, 1);
        atomic_fetch_add(&side->errors, timed.status != WEIR_OK);
        atomic_fetch_add(&side->admitted, timed.status == WEIR_OK && timed.decision.allowed);
        if (timed.took_us > atomic_load(&side->longest_us))
            atomic_store(&side->longest_us, timed.took_us);
        sleep_us(500);
    }
    return NULL;
}

static int64_t charged(weir_limit *limit)
{
    const struct weir_decision seen = peeked(limit, "key", 1);
    return seen.limit - seen.remaining;
}

static const struct {
    const char *name;
    enum parted_way way;
} ways[] = { { "both ways", PARTED_BOTH },
             { "no request arrives", PARTED_TO_THERE },
             { "no answer returns", PARTED_TO_HERE } };

/* A server in the other network, reached by its port there and by its socket from anywhere. */
static void place_open_there(struct place *place, struct parted *parted, char *url, size_t size)
{
    static const char *const config[] = { "--bind", "0.0.0.0", "--protected-mode", "no", NULL };
    must(parted_open(parted) == 0, parted->error);
    must(parted_go_there(parted) == 0, parted->error);
    place_open(place, false, config);
    must(parted_come_back(parted) == 0, parted->error);
    snprintf(url, size, "redis://%s" PARTED_THERE ":%d", place->server.login, place->server.port);
}

TEST_EACH(a_silent_partition_blocks_no_caller_and_charges_none_twice, sizeof ways / sizeof ways[0], 60)
{
    struct place place;
    struct parted parted;
    struct crew crew_here, crew_there;
    struct side here = { .limit = NULL }, there = { .limit = NULL };
    char url[128];
    place_open_there(&place, &parted, url, sizeof url);
    struct weir_options options = place_options(&place, 5 * WEIR_SECOND); /* so that a busy machine causes no fault */
    weir *limiter_there = limiter_of(&options);
    options.timeout_us = TIMEOUT_US;
    options.redis_url = url;
    weir *limiter_here = limiter_of(&options);
    here.limit = limit_of(limiter_here, "limit", UNREFILLED);
    there.limit = limit_of(limiter_there, "limit", UNREFILLED);
    recover(here.limit, "key");
    recover(there.limit, "key");
    crew_start(&crew_here, CALLERS, calls_all_the_while, &here);
    crew_start(&crew_there, 1, calls_all_the_while, &there);
    sleep_us(300000);

    must(parted_silence(&parted, ways[_i].way) == 0, parted.error);
    sleep_us(300000);
    const int64_t admitted_before = atomic_load(&here.admitted), there_before = atomic_load(&there.admitted);
    const int64_t calls_before = atomic_load(&here.calls);
    sleep_us(SILENT_US);
    for (const int64_t until_us = wire_now_us() + RECOVERY_MOST_US; wire_now_us() < until_us; sleep_us(1000))
        if (atomic_load(&here.calls) - calls_before > 100 && atomic_load(&there.admitted) > there_before)
            break;
    const int64_t admitted_silent = atomic_load(&here.admitted) - admitted_before;
    const int64_t calls_silent = atomic_load(&here.calls) - calls_before;
    const int64_t there_silent = atomic_load(&there.admitted) - there_before;
    must(parted_silence(&parted, 0) == 0, parted.error);
    const int64_t healed_us = recover(here.limit, "key");
    sleep_us(300000);
    atomic_store(&here.done, true);
    atomic_store(&there.done, true);
    crew_join(&crew_here);
    crew_join(&crew_there);

    const int64_t told = here.admitted + there.admitted, all = charged(there.limit);
    printf("%s: the longest call took %" PRId64 " us beyond its timeout; %" PRId64
           " calls in the silence; Redis decides "
           "again %" PRId64 " us after it; %" PRId64 " permits were charged, %" PRId64 " of them told, %" PRId64
           " calls failed\n",
           ways[_i].name, here.longest_us - TIMEOUT_US, calls_silent, healed_us, all, told, here.errors);
    ck_assert_int_le(here.longest_us, call_most_us(TIMEOUT_US));
    ck_assert_int_eq(admitted_silent, 0);
    ck_assert_int_gt(calls_silent, 100); /* they do not wait for each other */
    ck_assert_int_gt(there_silent, 0);
    ck_assert_int_eq(there.errors, 0);
    ck_assert_int_ge(all, told);
    ck_assert_int_le(all, told + here.errors);
    ck_assert_int_gt(here.errors, 0);
    weir_close(limiter_here);
    weir_close(limiter_there);
    place_close(&place);
    parted_close(&parted);
}

/* True if namespaces do not work here. Tries in a child because this process must keep its own. */
static bool parted_missing(void)
{
    struct parted parted;
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        if (parted_open(&parted) == 0)
            _exit(0);
        printf("skipped: %s\n", parted.error);
        fflush(stdout);
        _exit(77);
    }
    return child < 0 || waitpid(child, &status, 0) != child || status != 0;
}

int main(void)
{
    if (redis_server_missing() || parted_missing())
        return 77;
    return suite_run(tests());
}
