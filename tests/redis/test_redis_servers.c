/* test_redis_servers.c - servers that forget, load, are busy or locked, foreign data in them, and passwords: faults
 * D1 to D10 of distributed mode. */
#include "redis_place.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

struct load {
    weir_limit *limit;
    atomic_bool done;
    _Atomic int64_t allowed, denied, errors, other_sources;
};

static void *take_until_done(void *argument)
{
    struct load *load = argument;
    struct weir_decision decision;
    while (!atomic_load(&load->done)) {
        if (weir_try(load->limit, weir_key_text("key"), 1, &decision) != WEIR_OK)
            atomic_fetch_add(&load->errors, 1);
        else if (decision.source != WEIR_BY_REDIS)
            atomic_fetch_add(&load->other_sources, 1);
        else
            atomic_fetch_add(decision.allowed ? &load->allowed : &load->denied, 1);
    }
    return NULL;
}

static void *take_five_hundred(void *argument)
{
    struct load *load = argument;
    struct weir_decision decision;
    for (int i = 0; i < 500; i++)
        must_succeed(weir_try(load->limit, weir_key_text("key"), 1, &decision));
    return NULL;
}

/* ---- A log hook that blocks ---- */

struct blocked {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool may_return, is_called; /* under the mutex */
};

static void block(void *user, enum weir_log_level level, const char *line)
{
    struct blocked *blocked = user;
    pthread_mutex_lock(&blocked->mutex);
    blocked->is_called = true;
    pthread_cond_broadcast(&blocked->changed);
    while (!blocked->may_return)
        pthread_cond_wait(&blocked->changed, &blocked->mutex);
    pthread_mutex_unlock(&blocked->mutex);
}

static bool is_called(struct blocked *blocked)
{
    pthread_mutex_lock(&blocked->mutex);
    const bool is_called = blocked->is_called;
    pthread_mutex_unlock(&blocked->mutex);
    return is_called;
}

TEST(calls_fail_and_succeed_again_while_the_log_hook_blocks, 60)
{
    struct blocked blocked = { .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
    struct weir_decision decision;
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, WEIR_SECOND / 20);
    options.log = block;
    options.user = &blocked;
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    taken_by_redis(limit, "key", 1);
    redis_server_kill(&place.server);
    while (!is_called(&blocked)) /* the test ends here if a call waits for the hook */
        ck_assert_int_lt(weir_try(limit, weir_key_text("key"), 1, &decision), 0);
    for (int i = 0; i < 10; i++)
        ck_assert_int_lt(weir_try(limit, weir_key_text("key"), 1, &decision), 0);
    must(redis_server_restart(&place.server) == 0, place.server.daemon.error);
    recover(limit, "key");
    pthread_mutex_lock(&blocked.mutex);
    blocked.may_return = true;
    pthread_cond_broadcast(&blocked.changed);
    pthread_mutex_unlock(&blocked.mutex);
    weir_close(limiter);
}

/* ---- Servers that forget ---- */

/* With --full: for a minute. */
TEST(scripts_flushed_under_load_are_never_missed_by_a_caller, 30)
{
    struct crew crew;
    struct load load = { .limit = NULL };
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, 5 * WEIR_SECOND);
    LIMITER(limiter, &options);
    load.limit = limit_of(limiter, "limit", UNREFILLED);
    crew_start(&crew, 12, take_until_done, &load);
    for (int64_t i = full_or(6000, 200); i > 0; i--) {
        place_ask(&place, "SCRIPT", "FLUSH");
        sleep_us(10000);
    }
    atomic_store(&load.done, true);
    crew_join(&crew);
    ck_assert_int_eq(load.errors, 0);
    ck_assert_int_eq(load.other_sources, 0);
    struct weir_decision left = peeked(load.limit, "key", 1);
    ck_assert_int_eq(left.limit - left.remaining, load.allowed);
    ck_assert_int_gt(load.allowed, 200);
    ck_assert_int_eq(place_log_lines(&place), 0);
}

TEST(after_a_restart_the_server_is_used_without_another_error, 60)
{
    struct crew crew;
    struct load load = { .limit = NULL };
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, 20 * WEIR_SECOND);
    weir *limiter = limiter_of(&options);
    load.limit = limit_of(limiter, "limit", UNREFILLED);
    for (int i = 0;; i++) {
        crew_start(&crew, 12, take_five_hundred, &load);
        crew_join(&crew);
        if (i == 3)
            break;
        redis_server_kill(&place.server);
        struct weir_decision decision;
        ck_assert_int_lt(weir_try(load.limit, weir_key_text("key"), 1, &decision), 0);
        must(redis_server_restart(&place.server) == 0, place.server.daemon.error);
        printf("after a restart Redis decides again in %lld us\n", (long long)recover(load.limit, "key"));
    }
    weir_close(limiter);
    asker_close(&place.asker);
}

TEST(each_loss_of_all_data_admits_at_most_one_extra_burst, 30)
{
    enum { LOSSES = 20 };
    struct crew crew;
    struct load load = { .limit = NULL };
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, 5 * WEIR_SECOND);
    LIMITER(limiter, &options);
    load.limit = limit_of(limiter, "limit", FIFTY_AN_HOUR);
    crew_start(&crew, 4, take_until_done, &load);
    for (int i = 0; i < LOSSES; i++) {
        sleep_us(20000);
        place_ask(&place, "FLUSHALL");
    }
    for (int64_t until_us = wire_now_us() + RECOVERY_MOST_US; load.allowed <= 50 && wire_now_us() < until_us;)
        sleep_us(1000);
    atomic_store(&load.done, true);
    crew_join(&crew);
    ck_assert_int_le(load.allowed, 50 * (LOSSES + 1));
    ck_assert_int_gt(load.allowed, 50);
    ck_assert_int_eq(load.errors, 0);
}

/* ---- Servers that cannot, for now ---- */

struct oracle {
    const char *says; /* to script calls; NULL: a correct answer */
    pthread_mutex_t lock;
};

static void oracle_set(struct oracle *oracle, const char *says)
{
    pthread_mutex_lock(&oracle->lock);
    oracle->says = says;
    pthread_mutex_unlock(&oracle->lock);
}

static bool oracle_answer(void *user, const struct fake_request *request, struct fake_reply *reply)
{
    struct oracle *oracle = user;
    if (!fake_request_is(request, "EVALSHA"))
        return false;
    unsigned char answer[TRUTH_LEN];
    pthread_mutex_lock(&oracle->lock);
    if (oracle->says != NULL)
        fake_say_text(reply, oracle->says);
    else
        fake_say_bulk(reply, answer, truth_about(request, answer));
    pthread_mutex_unlock(&oracle->lock);
    return true;
}

static const char *const passing[] = {
    "-LOADING Redis is loading the dataset in memory\r\n",
    "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
    "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
    "-CLUSTERDOWN The cluster is down\r\n",
    "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n",
    "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    "-READONLY You can't write against a read only replica.\r\n",
    "-MISCONF Redis is configured to save RDB snapshots, but it is currently unable to persist to disk.\r\n",
    "-NOREPLICAS Not enough good replicas to write.\r\n",
};

TEST_EACH(a_transient_redis_error_is_one_outage_that_ends_by_itself, sizeof passing / sizeof passing[0], 30)
{
    CLOSED_BY(place_close) struct place place;
    struct oracle oracle = { .lock = PTHREAD_MUTEX_INITIALIZER };
    struct fake_redis *fake = fake_redis_start(oracle_answer, &oracle);
    place_open_bare(&place);
    struct weir_options options = place_options(&place, 60 * WEIR_SECOND); /* which no call waits for */
    options.redis_url = fake_redis_url(fake);
    options.on_failure = WEIR_FAIL_OPEN;
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "limit", FIFTY_AN_HOUR);
    recover(limit, "key");
    ck_assert(taken(limit, "key", 1).source == WEIR_BY_REDIS);
    int64_t connections = fake_redis_counts(fake).connections;
    oracle_set(&oracle, passing[_i]);
    for (int i = 0; i < 5; i++) {
        struct timed timed = timed_try(limit, "key", 1);
        ck_assert_int_eq(timed.status, WEIR_OK);
        ck_assert_int_eq(timed.decision.source, WEIR_BY_FAIL_OPEN);
        ck_assert_int_lt(timed.took_us, options.timeout_us);
    }
    ck_assert_uint_eq(stats_of(limiter).outages, 1);
    const bool renews = strncmp(passing[_i], "-READONLY", 9) == 0; /* soon, because another thread connects */
    const int64_t until_us = wire_now_us() + RECOVERY_MOST_US;
    while (renews && fake_redis_counts(fake).connections <= connections && wire_now_us() < until_us)
        sched_yield();
    ck_assert(!renews || fake_redis_counts(fake).connections > connections);
    oracle_set(&oracle, NULL);
    taken_by_redis(limit, "key", 1);
    weir_close(limiter);
    fake_redis_stop(fake);
}

/* Send a request that keeps the server busy; its reply is read when it ends. */
static void begin_to_ask(struct place *place, const char *request)
{
    ck_assert_int_eq(write(place->asker.fd, request, strlen(request)), (ssize_t)strlen(request));
}

TEST(a_server_busy_with_a_script_is_an_outage_until_the_script_ends, 30)
{
    static const char *const config[] = { "--lua-time-limit", "20", NULL };
    CLOSED_BY(asker_close) struct asker other;
    char reply[256];
    PLACE(place, false, config);
    struct weir_options options = place_options(&place, 50000);
    options.on_failure = WEIR_FAIL_CLOSED;
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "limit", FIFTY_AN_HOUR);
    recover(limit, "key");
    begin_to_ask(&place, "*3\r\n$4\r\nEVAL\r\n$17\r\nwhile true do end\r\n$1\r\n0\r\n");
    struct weir_decision decision;
    do
        must_succeed(weir_peek(limit, weir_key_text("key"), 1, &decision));
    while (decision.source == WEIR_BY_REDIS); /* the script has not begun */
    const int64_t until_us = wire_now_us() + 300000;
    while (wire_now_us() < until_us) {
        struct timed timed = timed_try(limit, "key", 1);
        ck_assert_int_eq(timed.status, WEIR_OK);
        ck_assert_int_eq(timed.decision.source, WEIR_BY_FAIL_CLOSED);
        ck_assert(!timed.decision.allowed);
        ck_assert_int_eq(timed.decision.retry_after_us, WEIR_SECOND);
        ck_assert_int_le(timed.took_us, call_most_us(options.timeout_us));
        sleep_us(1000);
    }
    must(asker_open(&other, place.server.socket) == 0, other.error);
    asker_ask(&other, reply, sizeof reply, "SCRIPT", "KILL", NULL);
    ck_assert_str_eq(reply, "OK");
    ck_assert(taken_by_redis(limit, "key", 1).allowed);
}

/* NULL pauses all clients; WRITE, since Redis 6.2, those that write, which includes every script that may. */
static const char *const paused[] = { NULL, "WRITE" };

TEST_EACH(client_pause_is_an_outage_until_the_pause_ends, sizeof paused / sizeof paused[0], 30)
{
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, 20000);
    options.on_failure = WEIR_FAIL_OPEN;
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "limit", FIFTY_AN_HOUR);
    recover(limit, "key");
    const int64_t began_us = wire_now_us();
    const bool is_paused = strcmp(place_ask(&place, "CLIENT", "PAUSE", paused[_i] ? "30000" : "2000", paused[_i]),
                                  "OK") == 0;
    if (!is_paused) {
        ck_assert_ptr_nonnull(paused[_i]);
        printf("not tried: CLIENT PAUSE %s: %s\n", paused[_i], place_reply);
    }
    for (int i = 0; is_paused && i < 50; i++) {
        struct timed timed = timed_try(limit, "key", 1);
        if (!paused[_i] && wire_now_us() - began_us >= 2 * WEIR_SECOND)
            break; /* a busy machine: the pause may be over */
        ck_assert_int_eq(timed.status, WEIR_OK);
        ck_assert_int_eq(timed.decision.source, WEIR_BY_FAIL_OPEN);
        ck_assert_int_le(timed.took_us, call_most_us(options.timeout_us));
    }
    if (is_paused && paused[_i] != NULL)
        ck_assert_str_eq(place_ask(&place, "CLIENT", "UNPAUSE"), "OK");
    recover(limit, "key");
}

/* ---- Foreign data ---- */

static void assert_not_ours(weir_limit *limit, const char *what)
{
    struct weir_decision decision;
    ck_assert_msg(weir_try(limit, weir_key_text("key"), 1, &decision) == WEIR_ESTATE, "take: %s", what);
    ck_assert_msg(weir_peek(limit, weir_key_text("key"), 1, &decision) == WEIR_ESTATE, "peek: %s", what);
    ck_assert_msg(weir_refund(limit, weir_key_text("key"), 1) == WEIR_ESTATE, "refund: %s", what);
}

TEST(foreign_data_is_logged_and_left_unchanged, 30)
{
    static const char *const others[][4] = { { "LPUSH", "weir:limit:{key}", "a", NULL },
                                             { "SADD", "weir:limit:{key}", "a", NULL },
                                             { "SET", "weir:limit:{key}", "", NULL },
                                             { "SET", "weir:limit:{key}", "50", NULL } };
    struct chance chance = chance_make(10);
    char bytes[1024];
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, 5 * WEIR_SECOND);
    options.on_failure = WEIR_FAIL_OPEN; /* must not cover this error */
    LIMITER(limiter, &options);
    weir_limit *limit = NULL;
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        static const char *const policies[KIND_COUNT] = {
            "token_bucket limit=50 period=1h", "token_bucket limit=50 period=1h refill=interval",
            "fixed_window limit=50 period=1h", "sliding_window limit=50 period=1h", "leaky_bucket limit=50 period=1h"
        };
        limit = limit_of(limiter, "limit", policies[kind]);
        for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
            place_ask(&place, "DEL", "weir:limit:{key}");
            place_ask(&place, others[i][0], others[i][1], others[i][2]);
            assert_not_ours(limit, others[i][0]);
            ck_assert_str_eq(place_ask(&place, "EXISTS", "weir:limit:{key}"), "1");
            ck_assert_int_eq(taken(limit, "another", 1).source, WEIR_BY_REDIS);
        }
        for (int i = 0; i < 300; i++) {
            size_t lens[] = { 3, 16, (size_t)chance_between(&chance, 0, i % 3 ? 60 : 1024) };
            const char *words[] = { "SET", "weir:limit:{key}", bytes };
            for (size_t j = 0; j < lens[2]; j++)
                bytes[j] = (char)chance_next(&chance);
            if (lens[2] > 0 && chance_one_in(&chance, 2))
                bytes[0] = "TLIFS"[chance_between(&chance, 0, 4)];
            ck_assert_int_eq(asker_ask_words(&place.asker, place_reply, sizeof place_reply, 3, words, lens), 2);
            assert_not_ours(limit, "random bytes");
            ck_assert_int_eq(asker_ask(&place.asker, place_reply, sizeof place_reply, "GET", words[1], NULL),
                             (ssize_t)lens[2]);
            ck_assert_mem_eq(place_reply, bytes, lens[2]);
        }
    }
    place_ask(&place, "DEL", "weir:limit:{key}");
    ck_assert_int_eq(taken(limit, "key", 1).remaining, 49);
}

/* ---- Passwords ---- */

static const char marker[] = "s3cret-marker";

static void assert_shut_out(struct place *place, const char *url)
{
    struct weir_options options = place_options(place, 5 * WEIR_SECOND);
    struct weir_decision decision;
    options.redis_url = url;
    LIMITER(limiter, &options);
    int status = weir_try(limit_of(limiter, "limit", FIFTY_AN_HOUR), weir_key_text("key"), 1, &decision);
    ck_assert_msg(status == WEIR_EIO || status == WEIR_ETIME, "%s: %s", url, weir_strerror(status));
}

static void assert_let_in(struct place *place, const char *url, const char *file)
{
    struct weir_options options = place_options(place, 5 * WEIR_SECOND);
    options.redis_url = url;
    options.redis_password_file = file;
    LIMITER(limiter, &options);
    struct weir_decision decision = taken(limit_of(limiter, "limit", FIFTY_AN_HOUR), "key", 1);
    ck_assert_int_eq(decision.source, WEIR_BY_REDIS);
}

TEST(a_correct_password_is_accepted_and_a_wrong_one_is_never_logged, 30)
{
    static const char *const config[] = { "--requirepass", "op:en/sesame", NULL };
    char url[256], file[128], tcp_url[64], unix_url[128];
    PLACE(place, false, config);
    snprintf(tcp_url, sizeof tcp_url, "redis://127.0.0.1:%d", place.server.port);
    snprintf(unix_url, sizeof unix_url, "unix://%s", place.server.socket);
    snprintf(url, sizeof url, "redis://:op%%3aen%%2Fsesame@127.0.0.1:%d/3", place.server.port);
    assert_let_in(&place, url, NULL);
    snprintf(url, sizeof url, "unix://:op%%3Aen%%2fsesame@%s?db=3", place.server.socket);
    assert_let_in(&place, url, NULL);
    snprintf(file, sizeof file, "%s/password", place.server.daemon.dir);
    FILE *written = fopen(file, "we");
    ck_assert_ptr_nonnull(written);
    fputs("op:en/sesame\nand a second line\n", written);
    fclose(written);
    assert_let_in(&place, tcp_url, file);
    setenv("WEIR_REDIS_PASSWORD", "op:en/sesame", 1);
    assert_let_in(&place, unix_url, NULL);
    unsetenv("WEIR_REDIS_PASSWORD");
    ck_assert_int_eq(place_log_lines(&place), 0);

    place_ask(&place, "AUTH", "op:en/sesame");
    place_ask(&place, "SELECT", "3");
    ck_assert_str_eq(place_ask(&place, "EXISTS", "weir:limit:{key}"), "1");

    snprintf(url, sizeof url, "redis://:%s@127.0.0.1:%d", marker, place.server.port);
    assert_shut_out(&place, url);
    ck_assert_msg(place_logged(&place, "WRONGPASS") || place_logged(&place, "AUTH") || place_logged(&place, "password"),
                  "%s", place.log);
    assert_shut_out(&place, unix_url);
    ck_assert_msg(place_logged(&place, "NOAUTH") || place_logged(&place, "password"), "%s", place.log);
    ck_assert_msg(!place_logged(&place, marker) && !place_logged(&place, "sesame"), "%s", place.log);
}

/* ---- Passwords in memory ---- */

enum { VEILED_LEN = 24, BEFORE_LEN = 40 };

/* The end of a password, stored as complements, so that the process does not hold it itself. Freed memory may lose
 * the bytes before it. */
static unsigned char veiled[VEILED_LEN];

/* Write the password to the server and to a file in a separate process, which needs it in the clear. */
static void tell_password(const struct place *place, const char *path)
{
    const pid_t child = fork();
    if (child == 0) {
        struct asker asker;
        char rule[1 + BEFORE_LEN + VEILED_LEN + 1] = ">", reply[64] = "";
        memset(rule + 1, 'x', BEFORE_LEN);
        for (int i = 0; i < VEILED_LEN; i++)
            rule[1 + BEFORE_LEN + i] = (char)~veiled[i];
        FILE *file = fopen(path, "we");
        bool told = file != NULL && fprintf(file, "%s\n", rule + 1) > 0 && fclose(file) == 0;
        told = told && asker_open(&asker, place->server.socket) == 0 &&
               asker_ask(&asker, reply, sizeof reply, "ACL", "SETUSER", "veiled", "on", rule, "~*", "+@all", NULL) > 0;
        _exit(told && strcmp(reply, "OK") == 0 ? 0 : 1);
    }
    int status = -1;
    ck_assert(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static bool is_it(const unsigned char *bytes)
{
    int same = 0;
    while (same < VEILED_LEN && (unsigned char)~bytes[same] == veiled[same])
        same++;
    return same == VEILED_LEN;
}

/* Count the password in this process's writable memory, without the copies made here. It uses read(), because another
 * thread may unmap memory meanwhile. */
static int times_in_memory(void)
{
    static unsigned char copy[65536];
    const uintptr_t own = (uintptr_t)copy;
    char line[512], kind[5];
    int times = 0, memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    unsigned long begin, end;
    FILE *maps = fopen("/proc/self/maps", "re");
    ck_assert(maps != NULL && memory >= 0);
    while (fgets(line, sizeof line, maps) != NULL) {
        if (sscanf(line, "%lx-%lx %4s", &begin, &end, kind) != 3 || strncmp(kind, "rw", 2) != 0)
            continue;
        for (uintptr_t at = begin; at < end; at += sizeof copy - (VEILED_LEN - 1)) {
            const size_t most = end - at < sizeof copy ? end - at : sizeof copy;
            const ssize_t len = pread(memory, copy, most, (off_t)at);
            for (ssize_t i = 0; i + VEILED_LEN <= len; i++)
                times += (at + (size_t)i < own || at + (size_t)i >= own + sizeof copy) && is_it(copy + i);
        }
    }
    memset(copy, 0, sizeof copy);
    fclose(maps);
    close(memory);
    return times;
}

/* Use a limiter with a new password over several connections. `rehearses`: do not look for the password. */
static void use_password(struct chance *chance, bool rehearses)
{
    char path[160], url[160];
    for (int i = 0; i < VEILED_LEN; i++)
        veiled[i] = (unsigned char)~chance_between(chance, 'a', 'z');
    PLACE(place, false, NULL);
    snprintf(path, sizeof path, "%s/password", place.server.daemon.dir);
    snprintf(url, sizeof url, "unix://veiled@%s", place.server.socket);
    tell_password(&place, path);
    struct weir_options options = place_options(&place, 5 * WEIR_SECOND);
    options.redis_url = url;
    options.redis_password_file = path;
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    for (int i = 0; i < 3; i++) { /* also over new connections, which send it again */
        recover(limit, "key");
        for (int64_t until_us = wire_now_us() + RECOVERY_MOST_US; !rehearses && times_in_memory() != 1; sleep_us(1000))
            must(wire_now_us() < until_us, "it is there once, when all connections are made");
        place_ask(&place, "CLIENT", "KILL", "USER", "veiled");
    }
    weir_close(limiter);
    ck_assert(rehearses || times_in_memory() == 0);
}

/* Instrumentation keeps copies of freed memory. The dynamic loader saves vector registers on the stack when a function
 * of a library is called for the first time, and a password may be in them; so all functions are called once before. */
TEST_EACH(a_password_from_a_file_is_kept_once_and_wiped_on_close, INSTRUMENTED ? 0 : 1, 60)
{
    struct chance chance = chance_make((uint64_t)wire_now_us());
    use_password(&chance, true);
    use_password(&chance, false);
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    return suite_run(tests());
}
