/* place.h - where the soak takes place: a Redis behind a proxy, perhaps a cluster, Consul's stand-in, a policy file, and
 * the processes. All of it is private, and ends with the thread that started it.
 */
#ifndef SOAK_PLACE_H
#define SOAK_PLACE_H

#include "judge.h"

#include "cluster.h"
#include "fake_consul.h"
#include "fproxy.h"
#include "redis_server.h"

struct place {
    struct ledger *ledger;
    int ledger_fd;
    struct judge *judge;
    struct redis_server redis;
    struct fproxy *proxy;
    struct cluster cluster;
    bool with_cluster;
    struct fake_consul *consul;
    uint64_t consul_index;
    struct daemon folder; /* of the policy file: nothing runs in it */
    int policies;         /* how often the file has been written */
    pid_t pids[PROCESSES];
    int lives[PROCESSES];
    int64_t since_us[PROCESSES]; /* when each became ready */
    char error[600];             /* after a -1, why */
};

/* All but the processes. 0, or -1 with a sentence in place->error and nothing left behind. */
int place_start(struct place *place, struct ledger *ledger, int ledger_fd, bool with_cluster);
void place_stop(struct place *place);

/* Nothing is done to anybody any more; errors have an excuse for a moment yet. */
void place_calms_down(struct place *place);

/* Take what the processes have written down, and hand it to the judge. */
void place_take(struct place *place);

/* Start a process, and wait until its limiters know what they follow. -1 as above. */
int place_process_start(struct place *place, int process);
int place_process_await(struct place *place, int process);
/* Wait until the process has done the last reopening that was wanted. */
int place_process_await_reopened(struct place *place, int process);
/* As by kill -9. */
void place_process_kill(struct place *place, int process);
/* Wait for its end, which ledger->over brings: its exit status, or -1 with a sentence. */
int place_process_end(struct place *place, int process);
/* Whether all that were started run. -1: the number of one that does not is in the sentence. */
int place_processes_run(struct place *place);

/* What Consul says: the processes, but for `without` (-1: all), and so many others that do not exist. */
void place_list(struct place *place, int without, int others);

enum place_policies { POLICIES_LARGE, POLICIES_SMALL, POLICIES_BROKEN };
int place_policies(struct place *place, enum place_policies policies);

/* Ask Redis, not by the proxy, a command of text words up to a NULL: the length of its answer, or -1 as above. */
#define place_ask(place, reply, size, ...) place_ask_at((place)->redis.socket, place, reply, size, __VA_ARGS__, NULL)
ssize_t place_ask_at(const char *socket, struct place *place, char *reply, size_t size, ...) __attribute__((sentinel));

/* Redis is killed and started again, with what it saved or without it. */
int place_redis_restart(struct place *place, bool keeps);

int place_fail(struct place *place, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
