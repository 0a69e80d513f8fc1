/* cluster_speaker.c - a fake node of a Redis Cluster with scripted replies: see cluster_speaker.h. */
#include "cluster_speaker.h"

#include <weir/backend.h>

#include <stdio.h>

/* Return `says` with the word PORT replaced by a number. */
static void say_with_port(struct fake_reply *reply, const char *says, int number)
{
    const char *port = strstr(says, "PORT");
    char line[256];
    if (port == NULL)
        snprintf(line, sizeof line, "%s\r\n", says);
    else
        snprintf(line, sizeof line, "%.*s%d%s\r\n", (int)(port - says), says, number, port + 4);
    fake_say_text(reply, line);
}

static void say_decision(struct speaker *speaker, const struct fake_request *request, struct fake_reply *reply)
{
    unsigned char answer[TRUTH_LEN];
    const char *decides = atomic_load(&speaker->decides);
    const int64_t calls = atomic_fetch_add(&speaker->calls, 1), delay_us = atomic_load(&speaker->delay_us);
    atomic_fetch_add(&speaker->takes, verb_asked(request) == WEIR_TAKE);
    if (delay_us > 0)
        sleep_us(delay_us);
    if (decides == NULL || calls < atomic_load(&speaker->truths)) {
        fake_say_bulk(reply, answer, truth_about(request, answer));
        return;
    }
    if (decides[0] != '\0')
        say_with_port(reply, decides, speaker->to != 0 ? speaker->to : (int)(1 + calls % 65535));
}

static bool speak(void *user, const struct fake_request *request, struct fake_reply *reply)
{
    struct speaker *speaker = user;
    if (fake_request_is(request, "CLUSTER")) {
        atomic_fetch_add(&speaker->maps, 1);
        const char *map = atomic_load(&speaker->is_later) ? speaker->later : speaker->map;
        if (map[0] != '\0')
            fake_say_text(reply, map);
    } else if (fake_request_is(request, "ASKING")) {
        atomic_fetch_add(&speaker->asked, 1);
        fake_say_text(reply, speaker->asking != NULL ? speaker->asking : "+OK\r\n");
    } else if (fake_request_is(request, "EVALSHA")) {
        say_decision(speaker, request, reply);
    } else {
        return false;
    }
    return true;
}

void speaker_start(struct speaker *speaker)
{
    speaker->fake = fake_redis_start_port(speak, speaker);
    must(speaker->fake != NULL, "a fake starts");
    speaker->port = fake_redis_port(speaker->fake);
}

void map_to(struct speaker *speaker, int port)
{
    snprintf(speaker->map, sizeof speaker->map, "*1\r\n*3\r\n" ALL "*3\r\n" HOST ":%d\r\n" ID, port);
}

void map_halves(char map[static 512], int bar, int foo)
{
    snprintf(map, 512,
             "*2\r\n*3\r\n:0\r\n:9999\r\n*3\r\n" HOST ":%d\r\n" ID "*3\r\n:10000\r\n:16383\r\n*3\r\n" HOST ":%d\r\n" ID,
             bar, foo);
}

struct weir_options speaker_options(struct place *place, int64_t timeout_us, const struct speaker *first,
                                    const struct speaker *second)
{
    static char url[128];
    int len = snprintf(url, sizeof url, "redis-cluster://127.0.0.1:%d", first->port);
    if (second != NULL)
        snprintf(url + len, sizeof url - (size_t)len, ",127.0.0.1:%d", second->port);
    place_open_bare(place);
    struct weir_options options = place_options(place, timeout_us);
    options.redis_url = url;
    return options;
}
