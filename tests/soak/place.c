/* place.c - the soak's servers and processes: see place.h.
 *
 * Redis appends each change to its file before it answers (appendonly without fsync, because the machine itself does
 * not fail). So a kill -9 loses nothing unless the file is removed.
 */
#include "place.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PATIENCE_US = 90000000,
    GRACE_US = 3000000 /* probes of a dead Redis are up to a second apart, and machines are busy */
};
#define HEALTH "/v1/health/service/soak"

extern char **environ;

int place_fail(struct place *place, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(place->error, sizeof place->error, format, list);
    va_end(list);
    return -1;
}

/* ---- Followed sources ---- */

void place_list(struct place *place, int without, int others)
{
    char body[2048] = "[";
    size_t len = 1;
    for (int i = 0; i < PROCESSES + others; i++)
        if (i != without)
            len += (size_t)snprintf(body + len, sizeof body - len,
                                    "%s{\"Node\":{\"Node\":\"n\"},\"Service\":{\"ID\":\"%c\",\"Service\":\"soak\","
                                    "\"Weights\":{\"Passing\":1,\"Warning\":1}},\"Checks\":[]}",
                                    len > 1 ? "," : "", 'a' + i);
    snprintf(body + len, sizeof body - len, "]");
    fake_consul_page(place->consul, HEALTH, 200, ++place->consul_index, body);
}

/* Replace the file as an editor does: a new file takes its name. */
int place_policies(struct place *place, enum place_policies policies)
{
    char fresh[sizeof place->ledger->policy_file + 8];
    snprintf(fresh, sizeof fresh, "%s.new", place->ledger->policy_file);
    FILE *file = fopen(fresh, "we");
    if (file == NULL)
        return place_fail(place, "%s: %s", fresh, strerror(errno));
    fprintf(file, "# written %d times\n", ++place->policies);
    for (int limit = 0; limit < LIMITS; limit++)
        fprintf(file, "%s = %s\n", soak_limits[limit].name,
                policies == POLICIES_SMALL && soak_limits[limit].smaller != NULL ? soak_limits[limit].smaller
                                                                                 : soak_limits[limit].policy);
    if (policies == POLICIES_BROKEN)
        fprintf(file, "bucket = token_bucket limit=1000000 period=1s\nwindow = no policy at all\n");
    if (fclose(file) != 0 || rename(fresh, place->ledger->policy_file) != 0)
        return place_fail(place, "%s: %s", fresh, strerror(errno));
    return 0;
}

/* ---- Redis ---- */

ssize_t place_ask_at(const char *socket, struct place *place, char *reply, size_t size, ...)
{
    const char *words[16];
    size_t lens[16], n = 0;
    struct asker asker;
    va_list list;
    va_start(list, size);
    for (const char *word; n < 16 && (word = va_arg(list, const char *)) != NULL; n++) {
        words[n] = word;
        lens[n] = strlen(word);
    }
    va_end(list);
    ssize_t len = asker_open(&asker, socket);
    if (len == 0)
        len = asker_ask_words(&asker, reply, size, n, words, lens);
    if (len < 0)
        place_fail(place, "%s: %s", words[0], asker.error);
    asker_close(&asker);
    return len;
}

static int remove_saved(const char *path, const struct stat *about, int type, struct FTW *where)
{
    (void)about, (void)where;
    return type == FTW_F && strstr(path, "appendonly") != NULL ? remove(path) : 0;
}

int place_redis_restart(struct place *place, bool keeps)
{
    redis_server_kill(&place->redis);
    if (!keeps)
        nftw(place->redis.daemon.dir, remove_saved, 8, FTW_DEPTH | FTW_PHYS);
    if (redis_server_restart(&place->redis) != 0)
        return place_fail(place, "Redis: %s", place->redis.daemon.error);
    return 0;
}

/* ---- The processes ---- */

void place_calms_down(struct place *place)
{
    atomic_store(&place->ledger->trouble_until_us, now_us() + GRACE_US);
}

void place_take(struct place *place)
{
    for (int process = 0; process < PROCESSES; process++)
        ledger_take(place->ledger, process, false, judge_take, place->judge);
}

int place_process_start(struct place *place, int process)
{
    char number[16], life[16], program[] = "soak", option[] = "--process";
    char *const words[] = { program, option, number, life, NULL };
    posix_spawn_file_actions_t actions;
    snprintf(number, sizeof number, "%d", process);
    snprintf(life, sizeof life, "%d", ++place->lives[process]);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, place->ledger_fd, LEDGER_FD);
    int error = posix_spawn(&place->pids[process], "/proc/self/exe", &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
        place->pids[process] = 0;
        return place_fail(place, "process %d cannot be started: %s", process, strerror(error));
    }
    return 0;
}

static int await(struct place *place, int process, _Atomic int *number, int wanted)
{
    for (int64_t end_us = now_us() + PATIENCE_US; now_us() < end_us; pause_us(5000)) {
        if (atomic_load(number) == wanted)
            return 0;
        if (place_processes_run(place) != 0)
            return -1;
        place_take(place);
    }
    return place_fail(place, "process %d is never ready: %s", process, place->ledger->accounts[process].complaint);
}

int place_process_await(struct place *place, int process)
{
    if (await(place, process, &place->ledger->accounts[process].ready, place->lives[process]) != 0)
        return -1;
    place->since_us[process] = now_us();
    return 0;
}

int place_process_await_reopened(struct place *place, int process)
{
    return await(place, process, &place->ledger->accounts[process].reopened, atomic_load(&place->ledger->reopen));
}

static int wait_for(struct place *place, int process)
{
    int status = 0;
    while (waitpid(place->pids[process], &status, 0) < 0 && errno == EINTR)
        continue;
    place->pids[process] = 0;
    ledger_take(place->ledger, process, true, judge_take, place->judge);
    return status;
}

void place_process_kill(struct place *place, int process)
{
    if (place->pids[process] == 0)
        return;
    kill(place->pids[process], SIGKILL);
    wait_for(place, process);
}

int place_process_end(struct place *place, int process)
{
    siginfo_t ended = { .si_pid = 0 };
    if (place->pids[process] == 0)
        return place_fail(place, "process %d was not there", process);
    for (int64_t end_us = now_us() + PATIENCE_US; ended.si_pid == 0; pause_us(5000)) {
        ledger_take(place->ledger, process, false, judge_take, place->judge);
        if (waitid(P_PID, (id_t)place->pids[process], &ended, WEXITED | WNOHANG | WNOWAIT) != 0)
            break;
        if (now_us() > end_us) {
            place_process_kill(place, process);
            return place_fail(place, "process %d does not end", process);
        }
    }
    const int status = wait_for(place, process);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    return place_fail(place, "process %d ended by %s %d: %s", process, WIFSIGNALED(status) ? "signal" : "status",
                      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
                      place->ledger->accounts[process].complaint);
}

int place_processes_run(struct place *place)
{
    for (int process = 0; process < PROCESSES; process++) {
        siginfo_t ended = { .si_pid = 0 };
        if (place->pids[process] == 0)
            continue;
        waitid(P_PID, (id_t)place->pids[process], &ended, WEXITED | WNOHANG | WNOWAIT);
        if (ended.si_pid != 0)
            return place_process_end(place, process) == 0 ? place_fail(place, "process %d ended by itself", process)
                                                          : -1;
    }
    return 0;
}

/* ---- All of it ---- */

static int servers_start(struct place *place)
{
    static const char *const keeping[] = { "--appendonly", "yes", "--appendfsync", "no", NULL };
    static const struct cluster_wish wish = { .without_replica = true, .partial = true };
    struct ledger *ledger = place->ledger;
    if (redis_server_start(&place->redis, REDIS_SERVER_UNIX, keeping) != 0)
        return place_fail(place, "Redis: %s", place->redis.daemon.error);
    place->proxy = fproxy_start(place->redis.socket);
    if (place->proxy == NULL)
        return place_fail(place, "no proxy could be started");
    snprintf(ledger->redis_url, sizeof ledger->redis_url, "redis://%s127.0.0.1:%d", place->redis.login,
             fproxy_port(place->proxy));
    if (!place->with_cluster)
        return 0;
    if (cluster_start(&place->cluster, &wish) != 0) {
        place->with_cluster = false;
        return place_fail(place, "the cluster: %s", place->cluster.error);
    }
    cluster_url(&place->cluster, 0, 3, NULL, ledger->cluster_url, sizeof ledger->cluster_url);
    return 0;
}

int place_start(struct place *place, struct ledger *ledger, int ledger_fd, bool with_cluster)
{
    /* glibc would count memory in threads' caches as used */
    setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
    memset(place, 0, sizeof *place);
    place->ledger = ledger;
    place->ledger_fd = ledger_fd;
    atomic_store(&ledger->trouble_until_us, INT64_MAX); /* connections are made */
    place->with_cluster = ledger->with_cluster = with_cluster;
    place->judge = judge_make(!(ledger->planted & PLANT_NOTHING_ALLOWED));
    int failed = servers_start(place);
    if (failed == 0 && (place->consul = fake_consul_start(FAKE_ON_TCP)) == NULL)
        failed = place_fail(place, "no stand-in for Consul could be started");
    if (failed == 0 && daemon_folder_make(&place->folder, "soak") != 0)
        failed = place_fail(place, "%s", place->folder.error);
    if (failed == 0) {
        snprintf(ledger->consul, sizeof ledger->consul, "%s", fake_consul_address(place->consul));
        snprintf(ledger->policy_file, sizeof ledger->policy_file, "%s/policies", place->folder.dir);
        snprintf(ledger->counts_file, sizeof ledger->counts_file, "%s/counts", place->folder.dir);
        place_list(place, -1, 0);
        failed = place_policies(place, POLICIES_LARGE);
    }
    if (failed != 0)
        place_stop(place);
    return failed;
}

void place_stop(struct place *place)
{
    for (int process = 0; process < PROCESSES; process++)
        place_process_kill(place, process);
    fproxy_stop(place->proxy);
    redis_server_stop(&place->redis);
    if (place->with_cluster)
        cluster_stop(&place->cluster);
    if (place->consul != NULL)
        fake_consul_stop(place->consul);
    daemon_folder_remove(&place->folder);
    judge_free(place->judge);
    place->judge = NULL;
}
