/* register.c - keeps this instance registered with Consul's agent: see consul/register.h. */
#include "backends/consul/register.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GONE_LEAST_US WEIR_MINUTE /* the least that Consul accepts */

/* ---- Checks ---- */

/* Refuse text that is not UTF-8, because JSON has no other. json_string_nocheck() accepts any bytes, so if it
 * succeeds, the failure of json_string() was not for lack of memory. */
static int register_check_text(const char *name, const char *text, struct message message)
{
    json_t *any = text ? json_string_nocheck(text) : NULL, *good = text ? json_string(text) : NULL;
    const bool is_good = !text || good, has_memory = !text || any;
    json_decref(any);
    json_decref(good);
    if (!is_good && has_memory)
        return message_refuse(message, "option %s must be UTF-8 with peers.join", name);
    if (is_good)
        return WEIR_OK;
    message_write(message, "option %s: out of memory", name);
    return WEIR_ENOMEM;
}

/* Refuse an id that Consul could not deregister. The id is in the path of a URL, which the agent cleans: it
 * answers a path that it would change with 301, and not with what was asked. */
static int register_check_id(const char *id, struct message message)
{
    for (const char *at = id; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            return message_refuse(
                message, "option peers.id has a control character at byte %td, which peers.join does not allow",
                at - id + 1);
    for (const char *part = id, *end;; part = end + 1) {
        end = strchrnul(part, '/');
        const size_t len = (size_t)(end - part);
        const bool is_empty = len == 0 && *end; /* an id may end in '/' */
        if (is_empty || (len == 1 && part[0] == '.') || (len == 2 && memcmp(part, "..", 2) == 0))
            return message_refuse(message,
                                  "option peers.id has \"%.*s\" where it is parted by '/': with peers.join no part may "
                                  "be empty, \".\" or \"..\", or Consul could not deregister it",
                                  (int)len, part);
        if (!*end)
            return WEIR_OK;
    }
}

int consul_register_check(const struct weir_peers *peers, struct message message)
{
    int error = register_check_text("peers.id", peers->id, message);
    if (!error)
        error = register_check_id(peers->id, message);
    if (!error)
        error = register_check_text("peers.service", peers->service, message);
    if (!error)
        error = register_check_text("peers.weight_meta", peers->weight_meta, message);
    return error ? error : register_check_text("peers.join_address", peers->join_address, message);
}

/* ---- Making ---- */

static json_t *duration(int64_t us)
{
    return json_sprintf("%" PRId64 "ms", us / 1000);
}

/* Return "service:<id>", the check's name in the agent. NULL: out of memory. */
static char *register_check_name(const char *id)
{
    char *text;
    return asprintf(&text, "service:%s", id) < 0 ? NULL : text;
}

static int register_set(json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value); /* -1 if value is NULL */
}

static char *make_body(const struct weir_peers *peers, int64_t weight, const char *check)
{
    const int64_t ttl_us = peers->ttl_us;
    json_t *body = json_object(), *checks = json_object(), *weights = json_object();
    char *text = NULL;
    int failed = register_set(checks, "CheckID", json_string(check)) | register_set(checks, "TTL", duration(ttl_us)) |
                 register_set(checks, "Status", json_string("passing")) |
                 register_set(checks, "DeregisterCriticalServiceAfter",
                              duration(ttl_us > GONE_LEAST_US ? ttl_us : GONE_LEAST_US)) |
                 register_set(weights, "Passing", json_integer(weight)) |
                 register_set(weights, "Warning", json_integer(1)) | register_set(body, "ID", json_string(peers->id)) |
                 register_set(body, "Name", json_string(peers->service));
    if (peers->join_address)
        failed |= register_set(body, "Address", json_string(peers->join_address));
    if (peers->join_port)
        failed |= register_set(body, "Port", json_integer(peers->join_port));
    if (peers->weight_meta)
        failed |= register_set(body, "Meta", json_pack("{s:o}", peers->weight_meta, json_sprintf("%" PRId64, weight)));
    failed |= register_set(body, "Weights", weights) | register_set(body, "Check", checks);
    if (!failed)
        text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    return text;
}

int consul_register_init(struct consul_register *join, struct consul_http *http, struct weir *limiter,
                         const struct weir_peers *peers, int64_t weight)
{
    const struct consul_config *config = http->config;
    *join = (struct consul_register){ .limiter = limiter, .renew_us = peers->ttl_us / 3 };
    consul_pace_init(&join->pace, false);
    char *check = register_check_name(peers->id);
    if (check) {
        join->register_url = consul_url(config, "/v1/agent/service/register", "", false, "");
        join->renew_url = consul_url(config, "/v1/agent/check/pass/", check, false, "");
        join->deregister_url = consul_url(config, "/v1/agent/service/deregister/", peers->id, false, "");
        join->body = make_body(peers, weight, check);
    }
    free(check);
    if (join->register_url && join->renew_url && join->deregister_url && join->body &&
        consul_call_init(&join->call, http) == WEIR_OK)
        return WEIR_OK;
    consul_register_free(join);
    return WEIR_ENOMEM;
}

void consul_register_free(struct consul_register *join)
{
    consul_call_free(&join->call);
    free(join->register_url);
    free(join->renew_url);
    free(join->deregister_url);
    free(join->body);
    *join = (struct consul_register){ 0 };
}

/* ---- Turns ---- */

static void register_ask(struct consul_register *join)
{
    const struct consul_request renewal = { .method = "PUT", .url = join->renew_url };
    const struct consul_request registration = { .method = "PUT", .url = join->register_url, .body = join->body };
    consul_call_begin(&join->call, join->is_registered ? &renewal : &registration);
    join->may_be_known = true;
}

static void register_failed(struct consul_register *join, int64_t now_us, const char *why)
{
    follow_failed(join->limiter, WEIR_FOLLOW_PEERS, "Consul at %s, %s this instance: %s",
                  join->call.http->config->where, join->is_registered ? "renewing" : "registering", why);
    join->is_registered = false;
    join->due_us = consul_pace_failed(&join->pace, now_us);
}

static void register_failed_status(struct consul_register *join, int64_t now_us, long status)
{
    char why[96];
    bool is_forgotten = join->is_registered && join->pace.failures == 0 && (status == 404 || status == 500);
    snprintf(why, sizeof why, "it answered with status %ld%s", status,
             status == 403 ? ": the token lacks the permission" : "");
    register_failed(join, now_us, why);
    if (is_forgotten)
        join->due_us = now_us;
}

static void register_answered(struct consul_register *join, int64_t now_us)
{
    if (join->call.status != 200) {
        register_failed_status(join, now_us, join->call.status);
        return;
    }
    if (!join->is_registered && join->is_missing)
        join->missing_us = consul_pace_failed(&join->pace, now_us);
    else if (join->is_registered && !join->is_missing)
        join->pace.failures = 0;
    join->is_registered = true;
    join->due_us = join->call.asked_us + join->renew_us;
}

bool consul_register_tried(const struct consul_register *join)
{
    return join->is_registered || join->pace.failures > 0;
}

void consul_register_seen(struct consul_register *join, bool is_there, int64_t now_us)
{
    if (!is_there && !join->is_missing && join->is_registered)
        join->missing_us = consul_pace_failed(&join->pace, now_us);
    join->is_missing = !is_there;
}

int64_t consul_register_turn(struct consul_register *join, int64_t now_us)
{
    struct consul_call *call = &join->call;
    if (call->state == CONSUL_ANSWERED)
        register_answered(join, now_us);
    else if (call->state == CONSUL_FAILED)
        register_failed(join, now_us, call->why);
    if (call->state != CONSUL_UNDER_WAY)
        consul_call_reset(call);
    if (call->state == CONSUL_IDLE && join->is_registered && join->is_missing && now_us >= join->missing_us) {
        join->is_registered = false;
        join->due_us = now_us;
    }
    if (call->state == CONSUL_IDLE && now_us >= join->due_us)
        register_ask(join);
    if (call->state == CONSUL_UNDER_WAY)
        return INT64_MAX;
    if (call->state != CONSUL_IDLE)
        return now_us;
    return join->is_registered && join->is_missing && join->missing_us < join->due_us ? join->missing_us : join->due_us;
}

void consul_register_leave(struct consul_register *join)
{
    const struct consul_request farewell = { .method = "PUT", .url = join->deregister_url };
    if (!join->may_be_known)
        return;
    consul_call_reset(&join->call);
    int64_t due_us = clock_boot_us() + CONSUL_LEAVE_US;
    consul_call_begin(&join->call, &farewell);
    if (due_us < join->call.due_us)
        join->call.due_us = due_us;
    while (join->call.state == CONSUL_UNDER_WAY)
        consul_http_turn(join->call.http, NULL, due_us);
    if (join->call.state != CONSUL_ANSWERED || join->call.status != 200)
        log_line(&join->limiter->log, WEIR_LOG_WARNING,
                 "Consul at %s did not confirm that this instance was deregistered; its check will expire",
                 join->call.http->config->where);
}
