/* user_store.c - the server that --redis names: see user_store.h.
 *
 * All keys are under a prefix of this run. Each filling is remembered; the keys are removed when the program ends. A
 * thread waits for interrupts: it stops the threads that fill keys, removes the keys and ends the program.
 */
#include "redis/user_store.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/time.h>
#include <unistd.h>

#include "backends/redis/wire/url.h"
#include "redis/remote.h"

#define FILLINGS_MAX 64
#define REMOVERS 32
#define PATIENCE_S 5
#define LAST_CALLS_US 200000 /* calls under way at an interrupt have ended by then */

struct filling {
    char limit[WEIR_MAX_NAME_LEN + 1];
    uint64_t keys;
};

static struct store users;
static struct redis_target target;
static bool reached;
static pid_t owner; /* children forked later own nothing */
static sem_t interrupts;
static atomic_int interrupted; /* 0, or the signal's number */
static struct filling fillings[FILLINGS_MAX];
static atomic_int fillings_len;

/* ---- A direct connection ---- */

bool user_store_can_be_asked(void)
{
    return !target.is_tls && !target.service && !target.is_cluster;
}

/* Send a command of the login. False if the server refuses; its message becomes the connection's error. */
static bool ask_to_be_let_in(redisContext *connection, int words, const char **argv)
{
    redisReply *reply = redisCommandArgv(connection, words, argv, NULL);
    bool refused = !reply || reply->type == REDIS_REPLY_ERROR;
    if (refused && reply) {
        connection->err = REDIS_ERR_OTHER;
        snprintf(connection->errstr, sizeof connection->errstr, "%s", reply->str);
    }
    freeReplyObject(reply);
    return !refused;
}

redisContext *user_store_connect(void)
{
    const struct timeval patience = { .tv_sec = PATIENCE_S };
    redisContext *connection = target.is_unix ? redisConnectUnixWithTimeout(target.path, patience)
                                              : redisConnectWithTimeout(target.host, target.port, patience);
    if (!connection || connection->err)
        return connection;
    redisSetTimeout(connection, patience);
    char db[16];
    snprintf(db, sizeof db, "%d", target.db);
    const char *with_user[] = { "AUTH", target.user, target.password }, *without[] = { "AUTH", target.password };
    const char *select[] = { "SELECT", db };
    if ((!target.password ||
         (target.user ? ask_to_be_let_in(connection, 3, with_user) : ask_to_be_let_in(connection, 2, without))) &&
        target.db != 0)
        ask_to_be_let_in(connection, 2, select);
    return connection;
}

/* ---- What was filled, removed ---- */

struct remover { /* a thread that removes every REMOVERS-th key */
    weir_limit *limit;
    uint64_t first, keys, failed;
};

static void *user_store_remove_keys(void *argument)
{
    struct remover *remover = argument;
    struct bench_key key;
    for (uint64_t i = remover->first; i < remover->keys && remover->failed == 0; i += REMOVERS) {
        key_write(i, &key);
        remover->failed += weir_reset(remover->limit, key_of(&key)) != WEIR_OK;
    }
    return NULL;
}

static bool remove_filling(struct remote *remote, const struct filling *filling)
{
    static const struct weir_policy any = { .limit = 1, .period_us = WEIR_SECOND };
    struct remover removers[REMOVERS];
    pthread_t threads[REMOVERS];
    int started = 0;
    weir_limit *limit;
    bool removed = weir_limit_define(remote->weir, filling->limit, &any, &limit) == WEIR_OK;
    for (; removed && started < REMOVERS; started++) {
        removers[started] = (struct remover){ .limit = limit, .first = (uint64_t)started, .keys = filling->keys };
        if (pthread_create(&threads[started], NULL, user_store_remove_keys, &removers[started]) != 0)
            break;
    }
    removed = started == REMOVERS;
    while (started > 0) {
        pthread_join(threads[--started], NULL);
        removed = removed && removers[started].failed == 0;
    }
    return removed;
}

static void remove_all(void)
{
    const struct weir_options options = remote_options(WEIR_DISTRIBUTED);
    static const struct weir_policy any = { .limit = 1, .period_us = WEIR_SECOND };
    struct remote remote;
    int fillings_left = atomic_exchange(&fillings_len, 0);
    if (getpid() != owner || fillings_left == 0)
        return;
    bench_progress("removing keys under %s", users.prefix);
    bool removed = remote_open(&remote, &users, &options, "probe", &any);
    if (removed) {
        for (int i = 0; i < fillings_left; i++)
            removed = remove_filling(&remote, &fillings[i]) && removed;
        remote_close(&remote);
    }
    if (!removed)
        bench_say("--redis: keys under %s could not all be removed; they expire within %lld seconds", users.prefix,
                  (long long)(USER_STORE_LIFE_US / WEIR_SECOND));
}

void user_store_remember(const struct store *store, const char *limit, uint64_t keys)
{
    int n = atomic_load(&fillings_len);
    if (!store || !store->is_users)
        return;
    if (n == FILLINGS_MAX)
        bench_fail("more than %d fillings", FILLINGS_MAX);
    snprintf(fillings[n].limit, sizeof fillings[n].limit, "%s", limit);
    fillings[n].keys = keys;
    atomic_store(&fillings_len, n + 1);
}

/* ---- Interrupts ---- */

static void on_interrupt(int number)
{
    if (getpid() != owner || atomic_exchange(&interrupted, number) != 0)
        _exit(128 + number);
    sem_post(&interrupts);
}

static void *wait_for_interrupt(void *unused)
{
    while (sem_wait(&interrupts) != 0)
        continue;
    bench_say("interrupted; removing keys; a second interrupt leaves them to expire");
    usleep(LAST_CALLS_US);
    remove_all();
    _exit(128 + atomic_load(&interrupted));
    return unused;
}

void user_store_heed_interrupt(void)
{
    while (atomic_load_explicit(&interrupted, memory_order_relaxed) != 0)
        pause();
}

static void await_interrupts(void)
{
    const struct sigaction action = { .sa_handler = on_interrupt, .sa_flags = SA_RESTART };
    pthread_t thread;
    owner = getpid();
    if (sem_init(&interrupts, 0, 0) != 0 || pthread_create(&thread, NULL, wait_for_interrupt, NULL) != 0)
        bench_fail("--redis: cannot start the thread that waits for interrupts");
    pthread_detach(thread);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    atexit(remove_all);
}

/* ---- Reaching it ---- */

/* Write where the server is, without user and password. */
static void name_place(char *out, size_t size)
{
    const char *how = target.is_tls ? " over TLS" : "";
    const struct redis_host *first = &target.hosts[0];
    if (target.is_unix)
        snprintf(out, size, "at %s", target.path);
    else if (target.host)
        snprintf(out, size, strchr(target.host, ':') ? "at [%s]:%d%s" : "at %s:%d%s", target.host, target.port, how);
    else
        snprintf(out, size, "%s %s:%d%s", target.is_cluster ? "in the cluster of" : "by the sentinel", first->name,
                 first->port, how);
}

/* Check that its user may write: an answered peek does not show that. */
static void require_rights(struct remote *remote)
{
    struct weir_decision decision;
    int status = weir_try(remote->limit, weir_key_text("probe"), 1, &decision);
    if (status == WEIR_OK)
        status = weir_reset(remote->limit, weir_key_text("probe"));
    char sentence[256];
    if (status != WEIR_OK)
        remote_close(remote); /* which waits for the log */
    snprintf(sentence, sizeof sentence, "its user may not decide: %s: %s", weir_strerror(status), remote_complaint());
    if (status != WEIR_OK)
        bench_fail("--redis: %s", sentence);
}

static void reach(const char *url)
{
    static const struct weir_policy any = { .limit = 1, .period_us = WEIR_SECOND };
    struct weir_options options = remote_options(WEIR_DISTRIBUTED);
    char sentence[256], version[32], place[100];
    struct remote remote;
    uint32_t random;
    options.redis_url = url;
    if (strlen(url) >= sizeof users.url)
        bench_fail("--redis: the URL is too long");
    if (redis_target_read(&options, &target, (struct message){ sentence, sizeof sentence }) != WEIR_OK)
        bench_fail("--redis: %s", sentence);
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        bench_fail("--redis: no random numbers from the system");
    users.is_users = true;
    snprintf(users.url, sizeof users.url, "%s", url);
    snprintf(users.prefix, sizeof users.prefix, "weir-bench:%08x:", (unsigned)random);
    name_place(place, sizeof place);
    if (!remote_open(&remote, &users, &options, "probe", &any)) {
        snprintf(sentence, sizeof sentence, "nothing can be measured %s: %.120s", place, remote_complaint());
        bench_fail("--redis: %s", sentence);
    }
    require_rights(&remote);
    remote_close(&remote);
    store_version(&users, version, sizeof version);
    snprintf(users.about, sizeof users.about, "redis-server %s %s", version, place);
    bench_progress("measuring on %s, keys under %s", users.about, users.prefix);
    await_interrupts();
}

struct store *user_store(const char *url)
{
    if (!reached)
        reach(url);
    reached = true;
    return &users;
}

void bench_reach_redis(struct bench *bench)
{
    if (!bench->modes[WEIR_DISTRIBUTED] && !bench->modes[WEIR_HYBRID])
        bench_fail("--redis: none of the modes in --modes needs a server");
    user_store(bench->redis_url);
}
