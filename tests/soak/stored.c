/* stored.c - checks the keys in Redis at the end: each has a time to live, and not too long a one. */
#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The slowest limit is idle after 2 s. Clocks may add 2 s, and the room of docs/design/scripts.md 1.5 s. */
#define TTL_MOST_MS 6500

/* A note beside a key lives as long as an outage lasted, an hour at most, and 10 s: lua/settle.lua. */
#define NOTE_TTL_MOST_MS (3600 * 1000 + 10 * 1000)

static bool is_note(const char *key)
{
    const size_t len = strlen(key);
    return len > 3 && strcmp(key + len - 3, "}:i") == 0;
}

static void look_at(struct run *run, const char *socket, const char *key)
{
    char reply[64];
    if (place_ask_at(socket, &run->place, reply, sizeof reply, "PTTL", key, NULL) < 0) {
        run_mishap(run, "%s", run->place.error);
        return;
    }
    const long long left_ms = atoll(reply);
    if (left_ms == -1)
        run_mishap(run, "%s has no time to live", key);
    else if (left_ms > (is_note(key) ? NOTE_TTL_MOST_MS : TTL_MOST_MS))
        run_mishap(run, "%s lives for %lld ms more", key, left_ms);
}

static int64_t look_into(struct run *run, const char *socket)
{
    static char page[1 << 20];
    char cursor[32] = "0", *at, *line;
    int64_t keys = 0;
    do {
        if (place_ask_at(socket, &run->place, page, sizeof page, "SCAN", cursor, "COUNT", "100", NULL) < 0) {
            run_mishap(run, "%s", run->place.error);
            return keys;
        }
        at = page;
        line = strsep(&at, "\n");
        snprintf(cursor, sizeof cursor, "%s", line != NULL ? line : "0");
        for (; (line = strsep(&at, "\n")) != NULL; keys += *line != '\0')
            if (*line != '\0')
                look_at(run, socket, line);
    } while (strcmp(cursor, "0") != 0);
    return keys;
}

int64_t stored_check(struct run *run)
{
    if (run->place.ledger->planted & PLANT_IMMORTAL &&
        place_ask(&run->place, NULL, 0, "SET", "weir:mode-4:planted:{key}", "1") < 0)
        run_mishap(run, "%s", run->place.error);
    int64_t keys = look_into(run, run->place.redis.socket);
    for (int node = 0; run->place.with_cluster && node < run->place.cluster.n; node++)
        keys += look_into(run, run->place.cluster.nodes[node].server.socket);
    return keys;
}
