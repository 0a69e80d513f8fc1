/* consul.c - follows Consul on a separate thread: see consul.h.
 *
 * The thread has up to three jobs, none of which waits for another: it watches the instances of the service,
 * keeps this instance registered among them, and watches the policies. A job gets a turn when its answer has come
 * or its time is due. One poll waits for the agent, the time and the limiter's end together. The thread also does
 * the work that becomes due as the known peers get old (core/follow/follow.h). */
#include "backends/consul/consul.h"

#include "backends/consul/answer.h"
#include "backends/consul/register.h"
#include "backends/consul/watch.h"
#include "backends/shared/follow_thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Once the thread runs, all of it is the thread's. */
struct consul {
    struct follow_thread thread;
    struct consul_config config;
    struct consul_http http;

    bool has_peers, joins, has_policies;
    char *id, *weight_meta; /* NULL: none */
    char *prefix;           /* of policies, without '/' at its end */
    char *peers_what, *policies_what;
    struct consul_watch peers, policies;
    struct consul_register join;
};

/* ---- Answers ---- */

static int consul_take_peers(void *user, const char *body, size_t len, struct message message)
{
    struct consul *consul = user;
    struct consul_peers peers;
    int error = consul_peers_read(body, len, consul->weight_meta, &peers, message);
    if (error)
        return error;
    bool is_there = false;
    for (size_t i = 0; i < peers.n && !is_there; i++)
        is_there = strcmp(peers.peers[i].id, consul->id) == 0;
    follow_peers(consul->thread.limiter, peers.peers, peers.n, consul->id);
    consul_peers_free(&peers);
    if (consul->joins)
        consul_register_seen(&consul->join, is_there, clock_boot_us());
    return WEIR_OK;
}

static int consul_take_policies(void *user, const char *body, size_t len, struct message message)
{
    struct consul *consul = user;
    struct consul_policies policies = { 0 };
    int error = len > 0 ? consul_policies_read(body, len, consul->prefix, &policies, message) : WEIR_OK;
    if (error)
        return error;
    error = follow_policies(consul->thread.limiter, WEIR_FOLLOW_CONSUL_POLICIES, policies.entries, policies.n);
    consul_policies_free(&policies);
    return error; /* already logged */
}

/* ---- The thread ---- */

static int64_t consul_sooner(int64_t a_us, int64_t b_us)
{
    return a_us < b_us ? a_us : b_us;
}

/* Give each job its turn, and return when the first one is due again. The watch for instances comes before the
 * registration, which learns from it whether this instance is listed. It begins after the first registration: a
 * list without this instance would be useless. */
static int64_t consul_turn(struct consul *consul)
{
    int64_t now_us = clock_boot_us(), due_us = INT64_MAX;
    if (consul->has_policies)
        due_us = consul_watch_turn(&consul->policies, now_us);
    if (!consul->has_peers)
        return due_us;
    due_us = consul_sooner(due_us, consul_watch_turn(&consul->peers, now_us));
    if (consul->joins) {
        due_us = consul_sooner(due_us, consul_register_turn(&consul->join, now_us));
        if (consul->peers.due_us == INT64_MAX && consul_register_tried(&consul->join))
            due_us = consul->peers.due_us = now_us;
    }
    if (now_us >= follow_peers_due_us(consul->thread.limiter))
        follow_peers_turn(consul->thread.limiter);
    return consul_sooner(due_us, follow_peers_due_us(consul->thread.limiter));
}

static void *consul_run(void *user)
{
    struct consul *consul = user;
    while (!follow_thread_ends(&consul->thread))
        consul_http_turn(&consul->http, &consul->thread, consul_turn(consul));
    if (consul->joins)
        consul_register_leave(&consul->join);
    return NULL;
}

/* ---- Beginning and end ---- */

/* Free what does not belong to libcurl; this is safe in the child of a fork. */
static void consul_free_texts(struct consul *consul)
{
    consul_config_free(&consul->config);
    free(consul->id);
    free(consul->weight_meta);
    free(consul->prefix);
    free(consul->peers_what);
    free(consul->policies_what);
}

static void consul_free(struct consul *consul)
{
    if (consul->joins)
        consul_register_free(&consul->join);
    if (consul->has_peers)
        consul_watch_free(&consul->peers);
    if (consul->has_policies)
        consul_watch_free(&consul->policies);
    if (consul->http.multi)
        consul_http_free(&consul->http);
    consul_free_texts(consul);
    free(consul);
}

/* In a child of fork(), libcurl's memory may be half changed, and its connections are the parent's: both stay. */
static void consul_destroy(struct follow_thread *thread, bool ended)
{
    struct consul *consul = (struct consul *)thread;
    if (ended) {
        consul_free(consul);
    } else {
        consul_http_wipe(&consul->http);
        consul_free_texts(consul);
    }
}

/* Return a copy, or NULL for NULL. Sets *failed if there is no memory. */
static char *consul_copy(const char *text, bool *failed)
{
    char *own = text ? strdup(text) : NULL;
    *failed = *failed || (text && !own);
    return own;
}

static char *consul_describe(const char *what, const char *name, bool *failed)
{
    char *text;
    if (asprintf(&text, "%s %s", what, name) >= 0)
        return text;
    *failed = true;
    return NULL;
}

static int consul_copy_texts(struct consul *consul, const struct weir_options *options)
{
    bool failed = false;
    if (consul->has_peers) {
        const struct weir_peers *peers = options->peers;
        consul->id = consul_copy(peers->id, &failed);
        consul->weight_meta = consul_copy(peers->weight_meta, &failed);
        consul->peers_what = consul_describe("instances of", peers->service, &failed);
    }
    if (consul->has_policies) {
        consul->prefix = consul_copy(options->consul_policies, &failed);
        for (size_t len = consul->prefix ? strlen(consul->prefix) : 0; len > 0 && consul->prefix[len - 1] == '/'; len--)
            consul->prefix[len - 1] = '\0';
        consul->policies_what = consul_describe("policies under", options->consul_policies, &failed);
    }
    return failed ? WEIR_ENOMEM : WEIR_OK;
}

static int consul_init_peers(struct consul *consul, const struct weir_options *options)
{
    const struct weir_peers *peers = options->peers;
    const struct consul_watch_settings settings = {
        .followed = WEIR_FOLLOW_PEERS,
        .what = consul->peers_what,
        .url = consul_url(&consul->config, "/v1/health/service/", peers->service, false, "passing"),
        .poll_us = peers->poll_us,
        .is_urgent = true,
        .answered = consul_take_peers,
        .user = consul,
    };
    int error = consul_watch_init(&consul->peers, &consul->http, consul->thread.limiter, &settings);
    if (!error && consul->joins) {
        consul->peers.due_us = INT64_MAX; /* see consul_turn() */
        error = consul_register_init(&consul->join, &consul->http, consul->thread.limiter, peers,
                                     options->weight ? options->weight : 1);
    }
    return error;
}

static int consul_init_policies(struct consul *consul)
{
    char *folder;
    if (asprintf(&folder, "%s/", consul->prefix) < 0)
        return WEIR_ENOMEM;
    const struct consul_watch_settings settings = {
        .followed = WEIR_FOLLOW_CONSUL_POLICIES,
        .what = consul->policies_what,
        .url = consul_url(&consul->config, "/v1/kv/", folder, true, "recurse"),
        .may_be_none = true,
        .same_is_good = true,
        .answered = consul_take_policies,
        .user = consul,
    };
    free(folder);
    return consul_watch_init(&consul->policies, &consul->http, consul->thread.limiter, &settings);
}

static int consul_init(struct consul *consul, const struct weir_options *options, struct message message)
{
    if (consul->has_policies && options->consul_policies[0] == '/')
        return message_refuse(message, "option consul_policies must not begin with '/': Consul's keys do not");
    int error = consul->joins ? consul_register_check(options->peers, message) : WEIR_OK;
    if (!error)
        error = consul_config_read(options->consul, &consul->config, message);
    if (error)
        return error;
    error = consul_http_init(&consul->http, &consul->config);
    if (!error)
        error = consul_copy_texts(consul, options);
    if (!error && consul->has_peers)
        error = consul_init_peers(consul, options);
    if (!error && consul->has_policies)
        error = consul_init_policies(consul);
    if (error)
        message_write(message, "option consul: %s", weir_strerror(error));
    return error;
}

int consul_follow(const struct weir_options *options, struct weir *limiter)
{
    char sentence[LOG_LINE_SIZE] = "";
    struct consul *consul = calloc(1, sizeof *consul);
    if (!consul)
        return follow_thread_refuse(limiter, "Consul", WEIR_ENOMEM, NULL);
    consul->thread.limiter = limiter;
    consul->thread.destroy = consul_destroy;
    consul->has_peers = options->peers && options->peers->service;
    consul->joins = consul->has_peers && options->peers->join;
    consul->has_policies = options->consul_policies;
    const int error = consul_init(consul, options, (struct message){ sentence, sizeof sentence });
    if (!error)
        return follow_thread_start(&consul->thread, WEIR_OK, "Consul", consul_run);
    log_line(&limiter->log, WEIR_LOG_ERROR, "%s", sentence);
    consul_free(consul);
    return error;
}
