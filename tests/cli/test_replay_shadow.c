/* test_replay_shadow.c - weir replay reports what the same limits counted for the same requests in a service: an
 * enforced limit, a shadow, and one that is enforced for some keys; to the permit, in every mode.
 *
 * In hybrid mode two runs differ by when leases arrive. There the figures of each limit in a replay's report are
 * compared with the decisions of the same replay. */
#include "redis_server.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 6000, KEYS = 60, LIMITS = 3, SEED = 4242, REPORT_SIZE = 65536 };

static const char *const names[LIMITS] = { "wide", "tight", "partial" };
static const char *const policies[LIMITS] = { "token_bucket limit=30 period=1s burst=60",
                                              "fixed_window limit=10 period=1s shadow",
                                              "sliding_window limit=25 period=2s percent=40" };

struct row {
    int64_t time_us, cost;
    int key;
};

static struct row rows[ROWS];
static char folder[] = "/tmp/weir-replay-shadow.XXXXXX";

static FILE *file_make(const char *name, char path[64])
{
    snprintf(path, 64, "%s/%s", folder, name);
    FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    return file;
}

/* Generate the log: bursts and pauses of a few keys and many. */
static void make_log(char log[64])
{
    struct chance chance = chance_make(1);
    int64_t now_us = INT64_C(1790000000000000);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    FILE *file = file_make("log.csv", log);
    fputs("time_us,key,cost\n", file);
    for (int i = 0; i < ROWS; i++) {
        now_us += chance_one_in(&chance, 50) ? chance_between(&chance, 0, 3 * WEIR_SECOND)
                                             : chance_between(&chance, 0, 4000);
        rows[i] = (struct row){ now_us, chance_magnitude(&chance, 8), (int)chance_magnitude(&chance, KEYS) };
        fprintf(file, "%lld,key-%d,%lld\n", (long long)now_us, rows[i].key, (long long)rows[i].cost);
    }
    ck_assert_int_eq(fclose(file), 0);
}

/* Write a policy file of the limits from `first` on. */
static void make_limits(char path[64], int first, int n)
{
    FILE *file = file_make("limits", path);
    for (int i = first; i < first + n; i++)
        fprintf(file, "%s = %s\n", names[i], policies[i]);
    ck_assert_int_eq(fclose(file), 0);
}

static int64_t row_time(void *user)
{
    return *(const int64_t *)user;
}

/* Ask the rows as a service would, and read the figures of each limit. */
static void serve_log(const char *url, struct weir_limit_stats figures[LIMITS])
{
    int64_t now_us = rows[0].time_us;
    CLOSED_BY(limiter_close) weir *limiter = NULL;
    weir_limit *limits[LIMITS];
    must_succeed(weir_open(OPTIONS(.mode = url ? WEIR_DISTRIBUTED : WEIR_LOCAL, .redis_url = url,
                                   .by_local_clock = true, .on_failure = WEIR_FAIL_ERROR, .timeout_us = 5 * WEIR_SECOND,
                                   .now_us = row_time, .user = &now_us, .percent_seed = SEED),
                           &limiter));
    for (int i = 0; i < LIMITS; i++)
        limits[i] = limit_of(limiter, names[i], policies[i]);
    for (int i = 0; i < ROWS; i++) {
        struct weir_request requests[LIMITS];
        struct weir_decision decision;
        char key[16];
        snprintf(key, sizeof key, "key-%d", rows[i].key);
        now_us = rows[i].time_us;
        for (int j = 0; j < LIMITS; j++)
            requests[j] = (struct weir_request){ limits[j], weir_key_text(key), rows[i].cost, 0 };
        must_succeed(weir_try_all(limiter, requests, LIMITS, &decision));
    }
    for (int i = 0; i < LIMITS; i++) {
        figures[i].size = sizeof figures[i];
        must_succeed(weir_limit_stats_read(limits[i], &figures[i]));
    }
}

/* Return the number after `field` behind the limit's name in the report; NULL: of all limits together. */
static int64_t reported(const char *report, const char *limit, const char *field)
{
    char text[64] = "{";
    if (limit)
        snprintf(text, sizeof text, "\"name\":\"%s\"", limit);
    const char *at = strstr(report, text);
    ck_assert_msg(at != NULL, "no limit %s in %s", limit, report);
    snprintf(text, sizeof text, "\"%s\":", field);
    at = strstr(at, text);
    ck_assert_msg(at != NULL, "no %s in %s", field, report);
    return strtoll(at + strlen(text), NULL, 10);
}

static void run_replay(const char *mode, const char *url, const char *log, int first, int n, char report[REPORT_SIZE])
{
    char command[512], limits[64];
    make_limits(limits, first, n);
    snprintf(command, sizeof command, "'%s' replay --json --top 0 --percent-seed %d --mode %s %s%s -f %s %s",
             WEIR_PROGRAM, SEED, mode, url ? "--redis " : "", url ? url : "", limits, log);
    FILE *replay = popen(command, "re");
    ck_assert_ptr_nonnull(replay);
    report[fread(report, 1, REPORT_SIZE - 1, replay)] = '\0';
    ck_assert_msg(pclose(replay) == 0, "%s: %s", command, report);
}

static void assert_reported(const char *report, const char *mode, const char *limit, const char *field, int64_t counted)
{
    const int64_t says = reported(report, limit, field);
    ck_assert_msg(says == counted, "%s, limit %s: %s is %lld, not %lld", mode, limit, field, (long long)says,
                  (long long)counted);
}

static void assert_agrees(const char *mode, const char *url, const char *log)
{
    static char report[REPORT_SIZE];
    struct weir_limit_stats figures[LIMITS];
    serve_log(url, figures);
    run_replay(mode, url, log, 0, LIMITS, report);
    for (int i = 0; i < LIMITS; i++) {
        assert_reported(report, mode, names[i], "would_deny", (int64_t)figures[i].would_deny);
        assert_reported(report, mode, names[i], "permits", (int64_t)figures[i].permits);
        assert_reported(report, mode, names[i], "denied", (int64_t)figures[i].denied);
        ck_assert(figures[i].denied > 0 || i == 1); /* all but the shadow are enforced */
        ck_assert(figures[i].would_deny > 0 || i == 0);
    }
}

TEST(replay_reports_the_same_counts_as_a_service_in_every_mode, 120)
{
    static char report[REPORT_SIZE];
    char log[64], command[96];
    struct redis_server server;
    make_log(log);
    ck_assert_msg(redis_server_start(&server, REDIS_SERVER_UNIX, NULL) == 0, "%s", server.daemon.error);
    assert_agrees("local", NULL, log);
    assert_agrees("distributed", server.url, log);
    for (int i = 0; i < LIMITS; i++) { /* alone, so that the decisions are the limit's */
        run_replay("hybrid", server.url, log, i, 1, report);
        assert_reported(report, "hybrid", names[i], "would_deny", reported(report, NULL, "would_deny"));
        assert_reported(report, "hybrid", names[i], "denied", reported(report, NULL, "denied"));
        if (i == 0)
            assert_reported(report, "hybrid", names[i], "permits", reported(report, NULL, "permits_admitted"));
    }
    redis_server_stop(&server);
    snprintf(command, sizeof command, "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}
