/* replicated.c - a Redis primary and its replica with a proxy between them: see replicated.h. */
#include "replicated.h"

#include "asker.h"

#include <stdio.h>
#include <string.h>

#define READY_MOST_MS "8000" /* less than the asker's timeout */

static int fail(struct replicated *both, const char *what, const char *why)
{
    snprintf(both->error, sizeof both->error, "%s: %s", what, why);
    return -1;
}

/* Full copies start immediately, and go over the connection itself. */
static const char *const primary_words[] = { "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", NULL };

static const char *const uses[] = { "redis_replicas", NULL };

static int start_replica(struct replicated *both)
{
    const char *const words[] = {
        "--replicaof", "127.0.0.1", both->proxy_port, "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay",
        "0",           NULL
    };
    memcpy(both->replica_words, words, sizeof words);
    snprintf(both->proxy_port, sizeof both->proxy_port, "%d", fproxy_port(both->link));
    if (redis_server_start_for(&both->replica, REDIS_SERVER_UNIX_AND_PORT, both->replica_words, uses) != 0)
        return fail(both, "a replica", both->replica.daemon.error);
    return 0;
}

int replicated_start(struct replicated *both)
{
    *both = (struct replicated){ 0 };
    if (redis_server_start_for(&both->primary, REDIS_SERVER_UNIX_AND_PORT, primary_words, uses) != 0)
        return fail(both, "a primary", both->primary.daemon.error);
    int error = 0;
    both->link = fproxy_start(both->primary.socket);
    if (both->link == NULL) {
        error = fail(both, "a proxy", "it does not start");
    } else {
        fproxy_pass_bytes(both->link);
        error = start_replica(both);
    }
    if (error == 0 && !replicated_await(both))
        error = fail(both, "a replica", "it does not follow its primary");
    if (error != 0)
        replicated_stop(both);
    return error;
}

void replicated_stop(struct replicated *both)
{
    redis_server_kill(&both->replica); /* it may be paused, and has nothing to save */
    redis_server_stop(&both->replica);
    fproxy_stop(both->link);
    both->link = NULL;
    redis_server_kill(&both->primary);
    redis_server_stop(&both->primary);
}

/* Wait twice: a replica that has just got its copy may acknowledge before it is sent the writes since, which then
 * takes up to a second. */
bool replicated_await(struct replicated *both)
{
    struct asker asker;
    char reply[32];
    int had = 0;
    if (asker_open(&asker, both->primary.socket) == 0)
        while (had < 2 && asker_ask(&asker, reply, sizeof reply, "SET", "awaited", "1", NULL) > 0 &&
               asker_count(&asker, "WAIT", "1", READY_MOST_MS, NULL) == 1)
            had++;
    asker_close(&asker);
    return had == 2;
}

int replicated_promote(struct replicated *both)
{
    fproxy_freeze(both->link, true); /* before the primary dies, or its last writes might pass */
    redis_server_kill(&both->primary);
    return replicated_part(both);
}

int replicated_part(struct replicated *both)
{
    fproxy_freeze(both->link, true);
    fproxy_cut(both->link, true);
    return replicated_part_in_silence(both);
}

int replicated_part_in_silence(struct replicated *both)
{
    struct asker asker;
    char reply[64];
    fproxy_freeze(both->link, true);
    int error = 0;
    if (asker_open(&asker, both->replica.socket) != 0 ||
        asker_ask(&asker, reply, sizeof reply, "REPLICAOF", "NO", "ONE", NULL) < 0)
        error = fail(both, "the promotion", asker.error);
    asker_close(&asker);
    return error;
}
