/* watch.c - asks one URL of Consul's agent again and again: see consul/watch.h. */
#include "backends/consul/watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_ROOM 80

int consul_watch_init(struct consul_watch *watch, struct consul_http *http, struct weir *limiter,
                      const struct consul_watch_settings *settings)
{
    *watch = (struct consul_watch){ .is = *settings, .limiter = limiter };
    consul_pace_init(&watch->pace, watch->is.is_urgent);
    if (watch->is.url && consul_call_init(&watch->call, http) == WEIR_OK)
        return WEIR_OK;
    consul_watch_free(watch);
    return WEIR_ENOMEM;
}

void consul_watch_free(struct consul_watch *watch)
{
    consul_call_free(&watch->call);
    free(watch->is.url);
    watch->is.url = NULL;
}

/* ---- Asking ---- */

/* libcurl copies the URL. */
static void watch_ask(struct consul_watch *watch)
{
    const int64_t wait_us = watch->call.http->config->wait_us;
    struct consul_request request = { .method = "GET", .url = watch->is.url };
    char *url = NULL;
    if (watch->index > 0) {
        size_t room = strlen(watch->is.url) + INDEX_ROOM;
        url = malloc(room);
        if (url) {
            snprintf(url, room, "%s&index=%" PRIu64 "&wait=%" PRId64 "ms", watch->is.url, watch->index, wait_us / 1000);
            request.url = url;
            request.hold_us = wait_us + wait_us / 16; /* agents add this so that they do not all answer together */
            request.same_connection = true;
        }
    }
    consul_call_begin(&watch->call, &request);
    free(url);
}

/* ---- What came ---- */

/* Note a failure. `why` is empty if the limiter has been told already. */
static void watch_failed(struct consul_watch *watch, int64_t now_us, const char *why)
{
    if (*why)
        follow_failed(watch->limiter, watch->is.followed, "Consul at %s, %s: %s", watch->call.http->config->where,
                      watch->is.what, why);
    watch->index = 0;
    watch->due_us = consul_pace_failed(&watch->pace, now_us);
}

/* Note a failure with the usual meaning of its status. The agent's own text may be anything, so it is not logged. */
static void watch_failed_status(struct consul_watch *watch, int64_t now_us, long status)
{
    char why[96];
    const char *hint = status == 403   ? ": the token lacks the permission"
                       : status == 429 ? ": too many requests"
                       : status == 500 ? ": it has no leader or has failed"
                                       : "";
    snprintf(why, sizeof why, "it answered with status %ld%s", status, hint);
    watch_failed(watch, now_us, why);
}

static void watch_answered(struct consul_watch *watch, int64_t now_us)
{
    char why[LOG_LINE_SIZE / 2] = "";
    struct consul_call *call = &watch->call;
    bool is_none = watch->is.may_be_none && call->status == 404;
    if (call->status != 200 && !is_none) {
        watch_failed_status(watch, now_us, call->status);
        return;
    }
    bool is_new = call->index > watch->index && watch->index > 0;
    if (watch->is.same_is_good && call->index > 0 && call->index == watch->index) {
        follow_confirmed(watch->limiter, watch->is.followed);
    } else if (watch->is.answered(watch->is.user, call->body ? call->body : "", is_none ? 0 : call->len,
                                  (struct message){ why, sizeof why }) != WEIR_OK) {
        watch_failed(watch, now_us, why);
        return;
    }
    if (watch->is.poll_us > 0) {
        consul_pace_answered(&watch->pace, call->asked_us, now_us, true);
        watch->due_us = call->asked_us + watch->is.poll_us;
        return;
    }
    watch->index = call->index >= watch->index ? call->index : 0;
    watch->due_us = consul_pace_answered(&watch->pace, call->asked_us, now_us, is_new);
}

/* Ask again without the index. This is not a failure: nothing was sent. */
static void watch_reconnects(struct consul_watch *watch, int64_t now_us)
{
    watch->index = 0;
    watch->due_us = now_us;
}

int64_t consul_watch_turn(struct consul_watch *watch, int64_t now_us)
{
    struct consul_call *call = &watch->call;
    if (call->state == CONSUL_ANSWERED)
        watch_answered(watch, now_us);
    else if (call->state == CONSUL_FAILED && call->reconnects)
        watch_reconnects(watch, now_us);
    else if (call->state == CONSUL_FAILED)
        watch_failed(watch, now_us, call->why);
    if (call->state != CONSUL_UNDER_WAY)
        consul_call_reset(call);
    if (call->state == CONSUL_IDLE && now_us >= watch->due_us)
        watch_ask(watch);
    if (call->state == CONSUL_UNDER_WAY)
        return INT64_MAX; /* no turn until it has ended */
    return call->state == CONSUL_IDLE ? watch->due_us : now_us;
}
