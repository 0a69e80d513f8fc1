/* place.h - the soak's servers and processes: a Redis behind a proxy, perhaps a cluster, Consul's stand-in, a policy
 * file, and the processes. All are private, and end with the thread that started them. */
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
    struct daemon folder; /* holds the policy file; no process runs in it */
    int policies;         /* how often the file has been written */
    pid_t pids[PROCESSES];
    int lives[PROCESSES];
    int64_t since_us[PROCESSES]; /* when each became ready */
    char error[600];             /* the reason after a -1 */
};

/* Start all but the processes. Return 0, or -1 with a sentence in place->error and nothing left behind. */
int place_start(struct place *place, struct ledger *ledger, int ledger_fd, bool with_cluster);
void place_stop(struct place *place);

/* No fault is active any more; errors are excused for a moment longer. */
void place_calms_down(struct place *place);

/* Take the processes' records and pass them to the judge. */
void place_take(struct place *place);

/* Start a process, and wait until its limiters know what they follow. -1 as above. */
int place_process_start(struct place *place, int process);
int place_process_await(struct place *place, int process);
/* Wait until the process has done the last requested reopening. */
int place_process_await_reopened(struct place *place, int process);
/* kill -9. */
void place_process_kill(struct place *place, int process);
/* Wait for its end, which ledger->over causes. Return its exit status, or -1 with a sentence. */
int place_process_end(struct place *place, int process);
/* Check that all started processes run. -1: the sentence names one that does not. */
int place_processes_run(struct place *place);

/* Make Consul list the processes, except `without` (-1: all), plus `others` that do not exist. */
void place_list(struct place *place, int without, int others);

enum place_policies { POLICIES_LARGE, POLICIES_SMALL, POLICIES_BROKEN };
int place_policies(struct place *place, enum place_policies policies);

/* Send Redis a command of text words up to a NULL, not through the proxy. Return its answer's length, or -1 as above.
 */
#define place_ask(place, reply, size, ...) place_ask_at((place)->redis.socket, place, reply, size, __VA_ARGS__, NULL)
ssize_t place_ask_at(const char *socket, struct place *place, char *reply, size_t size, ...) __attribute__((sentinel));

/* Kill Redis and start it again, with its saved data or without. */
int place_redis_restart(struct place *place, bool keeps);

int place_fail(struct place *place, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
