/* redis_place.c - what the fault tests share: see redis_place.h. */
#include "redis_place.h"

#include "backends/redis/flight/state.h"
#include "core/ground/hook_queue.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

char place_reply[65536];

static void place_log(void *user, enum weir_log_level level, const char *line)
{
    struct place *place = user;
    pthread_mutex_lock(&place->log_lock);
    int len = snprintf(place->log + place->log_len, sizeof place->log - place->log_len, "%s\n", line);
    place->log_len += (size_t)len < sizeof place->log - place->log_len ? (size_t)len : 0;
    pthread_mutex_unlock(&place->log_lock);
    atomic_fetch_add(&place->log_lines, 1);
}

int place_log_lines(struct place *place)
{
    hook_queue_settle(&(struct log){ place_log, place });
    return atomic_load(&place->log_lines);
}

bool place_logged(struct place *place, const char *text)
{
    place_log_lines(place);
    pthread_mutex_lock(&place->log_lock);
    bool logged = strstr(place->log, text) != NULL;
    pthread_mutex_unlock(&place->log_lock);
    return logged;
}

void place_open_bare(struct place *place)
{
    memset(place, 0, sizeof *place);
    place->asker.fd = -1;
    pthread_mutex_init(&place->log_lock, NULL);
}

void place_open(struct place *place, bool with_proxy, const char *const *config)
{
    place_open_bare(place);
    if (redis_server_start(&place->server, REDIS_SERVER_UNIX_AND_PORT, config) != 0)
        ck_abort_msg("%s", place->server.daemon.error);
    if (with_proxy) {
        place->proxy = fproxy_start(place->server.socket);
        must(place->proxy != NULL, "a proxy starts");
        snprintf(place->proxy_url, sizeof place->proxy_url, "redis://%s127.0.0.1:%d", place->server.login,
                 fproxy_port(place->proxy));
    }
    must(asker_open(&place->asker, place->server.socket) == 0, place->asker.error);
}

void place_close(struct place *place)
{
    asker_close(&place->asker);
    fproxy_stop(place->proxy);
    redis_server_stop(&place->server);
    pthread_mutex_destroy(&place->log_lock);
}

struct weir_options place_options(struct place *place, int64_t timeout_us)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.mode = WEIR_DISTRIBUTED;
    options.redis_url = place->proxy != NULL ? place->proxy_url : place->server.url;
    options.on_failure = WEIR_FAIL_ERROR;
    options.timeout_us = timeout_us;
    options.log = place_log;
    options.user = place;
    return options;
}

const char *place_asked(struct place *place, ssize_t len)
{
    if (len < 0)
        ck_abort_msg("asking the server: %s", place->asker.error);
    return place_reply;
}

int64_t place_info(struct place *place, const char *section, const char *name)
{
    const char *found = strstr(place_ask(place, "INFO", section), name);
    return found == NULL ? 0 : strtoll(found + strlen(name), NULL, 10);
}

/* ---- Time without a processor ---- */

enum { LIMITER_THREADS = 4, TASKS_MOST = 128 };

/* The system's files on the threads of the latest limiters, for which callers may wait. Open until the process ends. */
static atomic_int limiter_files[LIMITER_THREADS] = { -1, -1, -1, -1 };
static unsigned limiter_files_opened;

/* Write the threads of this process into `tasks`; return their number. */
static int tasks_now(int tasks[TASKS_MOST])
{
    int n = 0;
    const struct dirent *entry;
    DIR *folder = opendir("/proc/self/task");
    while (folder != NULL && n < TASKS_MOST && (entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.')
            tasks[n++] = atoi(entry->d_name);
    if (folder != NULL)
        closedir(folder);
    return n;
}

static void watch_new_tasks(const int *before, int before_n)
{
    int tasks[TASKS_MOST];
    for (int n = tasks_now(tasks), i = 0; i < n; i++) {
        bool is_new = true;
        for (int j = 0; j < before_n; j++)
            is_new = is_new && before[j] != tasks[i];
        char path[64];
        snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", tasks[i]);
        if (is_new)
            atomic_store(&limiter_files[limiter_files_opened++ % LIMITER_THREADS], open(path, O_RDONLY | O_CLOEXEC));
    }
}

/* Return how long a thread was ready but not running; 0 if the system cannot say. */
static int64_t told_by(int file)
{
    char text[64];
    const ssize_t len = file < 0 ? 0 : pread(file, text, sizeof text - 1, 0);
    if (len <= 0)
        return 0;
    text[len] = '\0';
    const char *second = strchr(text, ' ');
    return second == NULL ? 0 : strtoll(second, NULL, 10) / 1000;
}

static int64_t kept_from_running_us(void)
{
    static _Thread_local int own = -1;
    if (own == -1)
        own = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    int64_t sum = told_by(own);
    for (int i = 0; i < LIMITER_THREADS; i++)
        sum += told_by(atomic_load(&limiter_files[i]));
    return sum;
}

weir *limiter_of(const struct weir_options *options)
{
    weir *limiter = NULL;
    int before[TASKS_MOST];
    const int before_n = tasks_now(before);
    int error = weir_open(options, &limiter);
    watch_new_tasks(before, before_n);
    if (error != WEIR_OK)
        ck_abort_msg("weir_open: %s\n%s", weir_strerror(error), ((struct place *)options->user)->log);
    return limiter;
}

struct timed timed_try(weir_limit *limit, const char *key, int64_t cost)
{
    struct timed timed = { 0 };
    const int64_t kept_us = kept_from_running_us(), began_us = wire_now_us();
    timed.status = weir_try(limit, weir_key_text(key), cost, &timed.decision);
    timed.took_us = wire_now_us() - began_us;
    timed.kept_us = kept_from_running_us() - kept_us;
    if (timed.kept_us < 0) /* a thread has ended */
        timed.kept_us = 0;
    timed.kept_us = timed.kept_us < timed.took_us ? timed.kept_us : timed.took_us;
    timed.took_us -= timed.kept_us;
    return timed;
}

int64_t recover(weir_limit *limit, const char *key)
{
    struct weir_decision decision;
    int64_t began_us = wire_now_us(), took_us = 0;
    int status;
    do {
        status = weir_peek(limit, weir_key_text(key), 1, &decision);
        took_us = wire_now_us() - began_us;
        if (status == WEIR_OK && decision.source == WEIR_BY_REDIS)
            return took_us;
        sleep_us(1000);
    } while (took_us < RECOVERY_MOST_US);
    ck_abort_msg("Redis does not decide again: %s", weir_strerror(status));
    return took_us;
}

struct weir_decision taken_by_redis(weir_limit *limit, const char *key, int64_t cost)
{
    struct weir_decision decision = { .source = WEIR_BY_FALLBACK };
    const int64_t until_us = wire_now_us() + RECOVERY_MOST_US;
    int status;
    do {
        recover(limit, key);
        status = weir_try(limit, weir_key_text(key), cost, &decision);
        if (status == WEIR_OK && decision.source == WEIR_BY_REDIS)
            return decision;
    } while (wire_now_us() < until_us);
    ck_abort_msg("Redis does not decide: %s", weir_strerror(status));
    return decision;
}

void assert_child_takes_too(weir *limiter, weir_limit *limit, const char *key)
{
    const pid_t child = fork();
    if (child == 0) {
        struct weir_decision decision;
        bool good = true;
        for (int i = 0; i < 50; i++)
            good = good && weir_try(limit, weir_key_text(key), 1, &decision) == WEIR_OK;
        weir_close(limiter);
        _exit(good ? 0 : 1);
    }
    for (int i = 0; i < 50; i++)
        taken(limit, key, 1);
    assert_child_succeeds(child);
}

void assert_refused(struct place *place, weir_limit *limit, const char *says)
{
    for (int64_t until_us = wire_now_us() + 20 * WEIR_SECOND; !place_logged(place, says); sleep_us(1000)) {
        ck_assert_int_ne(timed_try(limit, "key", 1).status, WEIR_OK);
        if (wire_now_us() > until_us)
            ck_abort_msg("not \"%s\" but: %s", says, place->log);
    }
}

void sleep_us(int64_t us)
{
    const struct timespec time = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 };
    nanosleep(&time, NULL);
}

int64_t resident_bytes(void)
{
    long long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file != NULL && fscanf(file, "%lld %lld", &total, &resident) != 2)
        resident = 0;
    if (file != NULL)
        fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

static bool is_single_script(const struct fake_request *request)
{
    return request->n == 5; /* a key and one argument */
}

const char *echo_asked(const struct fake_request *request)
{
    const size_t end = is_single_script(request) ? REDIS_TAKE_SIZE : request->lens[request->n - 1];
    return request->words[request->n - 1] + end - ECHO_LEN;
}

static bool is_take_script(const struct fake_request *request)
{
    return is_single_script(request) && request->lens[4] == REDIS_TAKE_SIZE;
}

/* Return what follows the counts: the first item. */
static const char *item_asked(const struct fake_request *request)
{
    return request->words[request->n - 1] + REDIS_COUNTS_SIZE;
}

int verb_asked(const struct fake_request *request)
{
    if (is_single_script(request))
        return is_take_script(request) ? WEIR_TAKE : WEIR_REFUND;
    return item_asked(request)[0];
}

static int64_t number_asked(const char *bytes, int n)
{
    int64_t number = 0;
    while (n-- > 0)
        number = number << 8 | (unsigned char)bytes[n];
    return number;
}

/* Return the cost of the first request. That of a take follows from its units and those of a permit, q in its stamp. */
static int64_t cost_asked(const struct fake_request *request)
{
    const char *argument = request->words[request->n - 1];
    if (!is_take_script(request))
        return number_asked(item_asked(request) + 1, 5);
    double units;
    memcpy(&units, argument + REDIS_TAKE_SIZE - REDIS_ECHO_SIZE - sizeof units, sizeof units);
    return (int64_t)units / number_asked(argument + 8, 7);
}

size_t truth_about(const struct fake_request *request, unsigned char answer[TRUTH_LEN])
{
    const int64_t now_us = INT64_C(1790000000123456);
    const int64_t charged = verb_asked(request) == WEIR_TAKE ? cost_asked(request) : 0;
    memset(answer, 0, TRUTH_LEN);
    for (int i = 0; i < 7; i++) {
        answer[i] = (unsigned char)(now_us >> 8 * i);
        answer[7 + i] = (unsigned char)(charged >> 8 * i);
    }
    memcpy(answer + TRUTH_LEN - ECHO_LEN, echo_asked(request), ECHO_LEN);
    return TRUTH_LEN;
}
