/* consul.c - follows Consul on a thread of its own: see consul.h.
 *
 * The thread has up to three errands, none of which waits for another: to watch the instances of the service, to keep
 * this one registered among them, and to watch the policies. Each takes turns when something came for it or is due,
 * and all wait in one place, for the agent, the time and the limiter's end. How old what is known may get is told by
 * core/follow/follow.h, whose turns are taken here too.
 */
#include "backends/consul/consul.h"

#include "backends/consul/answer.h"
#include "backends/consul/register.h"
#include "backends/consul/watch.h"
#include "backends/shared/follow_thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All of it the thread's, once it runs. */
struct consul {
    struct follower follower;
    struct weir *limiter;
    struct consul_config config;
    struct consul_http http;
    struct follow_thread thread;

    bool has_peers, joins, has_policies;
    char *service, *id, *weight_meta, *join_address; /* NULL: none */
    char *prefix;                                    /* of policies, no '/' at its end */
    char *peers_what, *policies_what;
    struct consul_watch peers, policies;
    struct consul_register join;
};

/* ---- Answers ---- */

static int take_peers(void *user, const char *body, size_t len, struct message message)
{
    struct consul *consul = user;
    struct consul_peers peers;
    int error = consul_peers_read(body, len, consul->weight_meta, &peers, message);
    if (error)
        return error;
    bool is_there = false;
    for (size_t i = 0; i < peers.n && !is_there; i++)
        is_there = strcmp(peers.peers[i].id, consul->id) == 0;
    follow_peers(consul->limiter, peers.peers, peers.n, consul->id);
    consul_peers_free(&peers);
    if (consul->joins)
        consul_register_seen(&consul->join, is_there, clock_boot_us());
    return WEIR_OK;
}

static int take_policies(void *user, const char *body, size_t len, struct message message)
{
    struct consul *consul = user;
    struct consul_policies policies = { 0 };
    int error = len > 0 ? consul_policies_read(body, len, consul->prefix, &policies, message) : WEIR_OK;
    if (error)
        return error;
    error = follow_policies(consul->limiter, WEIR_FOLLOW_CONSUL_POLICIES, policies.entries, policies.n);
    consul_policies_free(&policies);
    return error; /* which it has told */
}

/* ---- The thread ---- */

static int64_t sooner(int64_t a_us, int64_t b_us)
{
    return a_us < b_us ? a_us : b_us;
}

/* Give every errand its turn; when the first of them is due again. The list of instances goes before the
 * registration, which is told whether it is there, and begins after the first one: a list without this instance would
 * be of no use. */
static int64_t turn(struct consul *consul)
{
    int64_t now_us = clock_boot_us(), due_us = INT64_MAX;
    if (consul->has_policies)
        due_us = consul_watch_turn(&consul->policies, now_us);
    if (!consul->has_peers)
        return due_us;
    due_us = sooner(due_us, consul_watch_turn(&consul->peers, now_us));
    if (consul->joins) {
        due_us = sooner(due_us, consul_register_turn(&consul->join, now_us));
        if (consul->peers.due_us == INT64_MAX && consul_register_tried(&consul->join))
            due_us = consul->peers.due_us = now_us;
    }
    if (now_us >= follow_peers_due_us(consul->limiter))
        follow_peers_turn(consul->limiter);
    return sooner(due_us, follow_peers_due_us(consul->limiter));
}

static void *run(void *user)
{
    struct consul *consul = user;
    while (!follow_thread_ends(&consul->thread))
        consul_http_turn(&consul->http, &consul->thread, turn(consul));
    if (consul->joins)
        consul_register_leave(&consul->join);
    return NULL;
}

/* ---- Beginning and end ---- */

/* What belongs to libcurl and what does not: the latter is safe to free in the child of a fork. */
static void free_ours(struct consul *consul)
{
    consul_config_free(&consul->config);
    free(consul->service);
    free(consul->id);
    free(consul->weight_meta);
    free(consul->join_address);
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
    free_ours(consul);
    free(consul);
}

static void end(struct follower *follower)
{
    struct consul *consul = (struct consul *)follower;
    if (follow_thread_end(&consul->thread)) {
        consul_free(consul);
    } else { /* libcurl's part is half-way through something, and its connections are the parent's */
        consul_http_wipe(&consul->http);
        free_ours(consul);
    }
}

/* libcurl's connections cannot be closed without it, and stay open. */
static void abandon(struct follower *follower)
{
    follow_thread_abandon(&((struct consul *)follower)->thread);
}

/* A copy, or NULL for NULL; *failed is set if there is no memory. */
static char *copy(const char *text, bool *failed)
{
    char *own = text ? strdup(text) : NULL;
    *failed = *failed || (text && !own);
    return own;
}

static char *describe(const char *what, const char *name, bool *failed)
{
    char *text;
    if (asprintf(&text, "%s %s", what, name) >= 0)
        return text;
    *failed = true;
    return NULL;
}

static int copy_texts(struct consul *consul, const struct weir_options *options)
{
    bool failed = false;
    if (consul->has_peers) {
        const struct weir_peers *peers = options->peers;
        consul->service = copy(peers->service, &failed);
        consul->id = copy(peers->id, &failed);
        consul->weight_meta = copy(peers->weight_meta, &failed);
        consul->join_address = copy(peers->join_address, &failed);
        consul->peers_what = describe("instances of", peers->service, &failed);
    }
    if (consul->has_policies) {
        consul->prefix = copy(options->consul_policies, &failed);
        for (size_t len = consul->prefix ? strlen(consul->prefix) : 0; len > 0 && consul->prefix[len - 1] == '/'; len--)
            consul->prefix[len - 1] = '\0';
        consul->policies_what = describe("policies under", options->consul_policies, &failed);
    }
    return failed ? WEIR_ENOMEM : WEIR_OK;
}

static int init_peers(struct consul *consul, const struct weir_options *options)
{
    struct weir_peers peers = *options->peers;
    peers.service = consul->service;
    peers.id = consul->id;
    peers.weight_meta = consul->weight_meta;
    peers.join_address = consul->join_address;
    const struct consul_watch_settings settings = {
        .followed = WEIR_FOLLOW_PEERS,
        .what = consul->peers_what,
        .url = consul_url(&consul->config, "/v1/health/service/", consul->service, false, "passing"),
        .poll_us = peers.poll_us,
        .is_urgent = true,
        .answered = take_peers,
        .user = consul,
    };
    int error = consul_watch_init(&consul->peers, &consul->http, consul->limiter, &settings);
    if (!error && consul->joins) {
        consul->peers.due_us = INT64_MAX; /* see turn() */
        error = consul_register_init(&consul->join, &consul->http, consul->limiter, &peers,
                                     options->weight ? options->weight : 1);
    }
    return error;
}

static int init_policies(struct consul *consul)
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
        .answered = take_policies,
        .user = consul,
    };
    free(folder);
    return consul_watch_init(&consul->policies, &consul->http, consul->limiter, &settings);
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
        error = copy_texts(consul, options);
    if (!error && consul->has_peers)
        error = init_peers(consul, options);
    if (!error && consul->has_policies)
        error = init_policies(consul);
    if (error)
        message_write(message, "option consul: %s", weir_strerror(error));
    return error;
}

int consul_follow(const struct weir_options *options, struct weir *limiter)
{
    char sentence[LOG_LINE_SIZE] = "out of memory";
    struct consul *consul = calloc(1, sizeof *consul);
    int error = WEIR_ENOMEM;
    if (consul) {
        consul->follower.end = end;
        consul->follower.abandon = abandon;
        consul->limiter = limiter;
        consul->has_peers = options->peers && options->peers->service;
        consul->joins = consul->has_peers && options->peers->join;
        consul->has_policies = options->consul_policies;
        error = consul_init(consul, options, (struct message){ sentence, sizeof sentence });
    }
    if (!error) {
        error = follow_thread_start(&consul->thread, run, consul);
        snprintf(sentence, sizeof sentence, "a thread for Consul: %s", weir_strerror(error));
    }
    if (error) {
        log_line(&limiter->log, WEIR_LOG_ERROR, "%s", sentence);
        if (consul)
            consul_free(consul);
        return error;
    }
    follow_add(limiter, &consul->follower);
    return WEIR_OK;
}
