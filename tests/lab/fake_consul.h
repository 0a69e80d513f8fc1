/* fake_consul.h - a stand-in for Consul's agent with scripted answers, as bad as a test needs.
 *
 * It holds pages, each a path with a status, an index and a body. A GET with an index waits until the page's index is
 * greater, as in Consul; a PUT is answered immediately. A path without a page gets 404. Each path has a way in which
 * its answers are sent. All requests are recorded. It runs on a dedicated thread; any thread may call these
 * functions.
 */
#ifndef WEIR_LAB_FAKE_CONSUL_H
#define WEIR_LAB_FAKE_CONSUL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fake_place { FAKE_ON_TCP, FAKE_ON_UNIX };

enum fake_way {
    FAKE_CHUNKED,   /* as Consul does */
    FAKE_PLAIN,     /* with Content-Length */
    FAKE_AT_ONCE,   /* without waiting for a greater index */
    FAKE_AND_CLOSE, /* the same, then the connection ends */
    FAKE_NO_INDEX,  /* no X-Consul-Index */
    FAKE_BAD_INDEX, /* an index that is no number */
    FAKE_HANGS,     /* nothing, forever */
    FAKE_CLOSES,    /* nothing, and the connection ends */
    FAKE_RESETS,    /* the same, by RST */
    FAKE_TRUNCATED, /* half of the body, then the connection ends */
    FAKE_SHUTS,     /* the same, but the fake keeps reading */
    FAKE_STALLS,    /* half of the body, then nothing */
    FAKE_DRIPS,     /* one byte every 20 ms */
    FAKE_ENDLESS,   /* the body again and again, in chunks */
    FAKE_HEADERS,   /* header lines again and again */
    FAKE_NOISE      /* not HTTP */
};

struct fake_asked {
    int64_t at_us;      /* CLOCK_MONOTONIC */
    int64_t connection; /* 1, 2, 3, ... */
    char target[1024];  /* "GET /v1/...?..." */
    char head[2048];    /* all header lines, truncated */
    char body[2048];    /* truncated */
};

struct fake_consul;

/* Return NULL on failure, with a perror line. */
struct fake_consul *fake_consul_start(enum fake_place place);
void fake_consul_stop(struct fake_consul *fake);
const char *fake_consul_address(const struct fake_consul *fake); /* http://127.0.0.1:... or unix://... */

/* Cut all connections and accept none until `listens` is true again. */
void fake_consul_listen(struct fake_consul *fake, bool listens);

/* Drop all packets on existing connections, like a cut cable; new connections work. */
void fake_consul_cut_cable(struct fake_consul *fake);

/* `path` excludes the query. The body is copied. */
void fake_consul_page(struct fake_consul *fake, const char *path, int status, uint64_t index, const char *body);
void fake_consul_page_of(struct fake_consul *fake, const char *path, int status, uint64_t index, const char *body,
                         size_t len);

/* Set how the next `times` answers of a page are sent (-1: all); after them FAKE_CHUNKED. */
void fake_consul_way(struct fake_consul *fake, const char *path, enum fake_way way, int times);

/* Of the requests whose target begins with `target`: return how many came, and the `i`th from 0. */
int fake_consul_count(struct fake_consul *fake, const char *target);
bool fake_consul_asked(struct fake_consul *fake, const char *target, int i, struct fake_asked *out);

/* Wait until `n` of them have come; false after 20 s. */
bool fake_consul_await(struct fake_consul *fake, const char *target, int n);

int fake_consul_connections(struct fake_consul *fake);

/* Return when the page last answered a waiting query, on CLOCK_MONOTONIC. */
int64_t fake_consul_told_us(struct fake_consul *fake, const char *path);

#endif
