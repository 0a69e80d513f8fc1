/* reach.c - finds the server that has a slot, by the URL, a sentinel or a cluster's map, and connects to it. */
#include "backends/redis/inspect/inspector.h"

#include <string.h>

static bool hear_primary(void *user, const struct redis_wire_scalar *scalar)
{
    char(*words)[REDIS_HOST_MAX + 1] = user; /* host and port */
    if (scalar->depth != 1 || scalar->place[0] > 1 || !scalar->text || scalar->len > REDIS_HOST_MAX)
        return false;
    memcpy(words[scalar->place[0]], scalar->text, scalar->len);
    words[scalar->place[0]][scalar->len] = '\0';
    return true;
}

static bool inspect_is_with(const struct weir_inspector *inspector, const struct redis_node_name *name)
{
    return redis_link_is_fresh(&inspector->talk.link) && redis_node_name_is(&inspector->talk.with, name);
}

int inspect_open_node(struct weir_inspector *inspector, const struct redis_node_name *name)
{
    if (inspect_is_with(inspector, name))
        return WEIR_OK;
    return redis_talk_open(&inspector->talk, name->host, name->port, REDIS_GREET_SERVER, inspect_why(inspector));
}

/* Ask one sentinel for the primary. */
static int inspect_ask_sentinel(struct weir_inspector *inspector, const struct redis_host *host)
{
    struct redis_talk *talk = &inspector->talk;
    const struct message why = inspect_why(inspector);
    char words[2][REDIS_HOST_MAX + 1] = { "", "" };
    struct redis_reply reply;
    int error = redis_talk_open(talk, host->name, host->port, REDIS_GREET_SENTINEL, why);
    if (error)
        return error;
    redis_wire_show_lists(&talk->link.wire, hear_primary, words);
    redis_bytes_words(&talk->link.out, 0, "SENTINEL", "get-master-addr-by-name", inspector->target.service, NULL);
    error = redis_talk_hear(talk, "SENTINEL", &reply, why);
    if (!error && reply.kind == REDIS_REPLY_IS_NIL) {
        message_write(why, "the sentinel at %s:%d does not know the service of redis_url", host->name, host->port);
        return WEIR_EIO;
    }
    if (!error && reply.kind == REDIS_REPLY_IS_ERROR) {
        redis_reply_refusal(&reply, "SENTINEL", why.text, why.size);
        return WEIR_EIO;
    }
    if (!error && !redis_node_name_read(&inspector->primary, words[0], strlen(words[0]), words[1], strlen(words[1]))) {
        message_write(why, "the sentinel at %s:%d names no valid address", host->name, host->port);
        return WEIR_EIO;
    }
    return error;
}

static int inspect_open_named(struct weir_inspector *inspector)
{
    if (inspector->primary.port != 0 && inspect_is_with(inspector, &inspector->primary))
        return WEIR_OK;
    int error = WEIR_EIO;
    for (size_t i = 0; i < inspector->target.host_count; i++) {
        error = inspect_ask_sentinel(inspector, &inspector->target.hosts[i]);
        if (!error)
            return inspect_open_node(inspector, &inspector->primary);
    }
    return error;
}

int inspect_read_map(struct weir_inspector *inspector)
{
    struct redis_talk *talk = &inspector->talk;
    const struct message why = inspect_why(inspector);
    int error = WEIR_EIO;
    for (size_t i = 0; i < inspector->target.host_count; i++) {
        const struct redis_host *host = &inspector->target.hosts[i];
        struct redis_reply reply;
        const char *refused;
        error = redis_talk_open(talk, host->name, host->port, REDIS_GREET_SERVER, why);
        if (error)
            continue;
        redis_map_begin(inspector->map);
        redis_wire_show_lists(&talk->link.wire, redis_map_visit, inspector->map);
        redis_bytes_words(&talk->link.out, 0, "CLUSTER", "SLOTS", NULL);
        error = redis_talk_hear_kind(talk, "CLUSTER SLOTS", REDIS_REPLY_IS_LIST, &reply, why);
        if (!error && !redis_map_end(inspector->map, &refused)) {
            message_write(why, "the node at %s:%d gives no map of the slots: %s", host->name, host->port, refused);
            error = WEIR_EIO;
        }
        for (size_t node = 0; !error && node < inspector->map->node_count; node++)
            if (inspector->map->nodes[node].host[0] == '\0') /* "": the host of the node that has answered */
                memcpy(inspector->map->nodes[node].host, talk->with.host, sizeof talk->with.host);
        if (!error)
            return WEIR_OK;
    }
    redis_map_begin(inspector->map);
    return error;
}

int inspect_open_slot(struct weir_inspector *inspector, unsigned slot)
{
    const struct redis_target *target = &inspector->target;
    if (target->service)
        return inspect_open_named(inspector);
    if (!target->is_cluster) {
        if (redis_link_is_fresh(&inspector->talk.link))
            return WEIR_OK;
        return redis_talk_open(&inspector->talk, target->host, target->port, REDIS_GREET_SERVER,
                               inspect_why(inspector));
    }
    int error = inspector->map->owner[slot] == REDIS_NOBODY ? inspect_read_map(inspector) : WEIR_OK;
    if (error)
        return error;
    if (inspector->map->owner[slot] == REDIS_NOBODY) {
        message_write(inspect_why(inspector), "no node of the redis cluster serves the key's slot");
        return WEIR_EIO;
    }
    return inspect_open_node(inspector, &inspector->map->nodes[inspector->map->owner[slot]]);
}
