/* fake_consul.h - an agent of Consul's that answers what the test tells it to, as badly as the test wants.
 *
 * It holds pages, each a path with a status, an index and a body. A GET with an index waits until the page's is
 * greater, as Consul's does; PUTs are answered at once. What has no page is answered 404. The way in which answers go
 * out is set for each path. All requests are recorded. It runs on one thread of its own; every function here may be
 * called from any.
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
    FAKE_AND_CLOSE, /* likewise, and the connection ends after it */
    FAKE_NO_INDEX,  /* no X-Consul-Index */
    FAKE_BAD_INDEX, /* one that is no number */
    FAKE_HANGS,     /* nothing, for ever */
    FAKE_CLOSES,    /* nothing, and the connection ends */
    FAKE_RESETS,    /* likewise, by RST */
    FAKE_TRUNCATED, /* half of the body, then the connection ends */
    FAKE_SHUTS,     /* likewise, but we still listen */
    FAKE_STALLS,    /* half of the body, then nothing */
    FAKE_DRIPS,     /* one byte every 20 ms */
    FAKE_ENDLESS,   /* the body again and again, in chunks */
    FAKE_HEADERS,   /* header lines again and again */
    FAKE_NOISE      /* what is no HTTP */
};

struct fake_asked {
    int64_t at_us;      /* CLOCK_MONOTONIC */
    int64_t connection; /* 1, 2, 3, ... */
    char target[1024];  /* "GET /v1/...?..." */
    char head[2048];    /* all header lines, cut to fit */
    char body[2048];    /* likewise */
};

struct fake_consul;

/* NULL if it cannot be had (a perror line says why). */
struct fake_consul *fake_consul_start(enum fake_place place);
void fake_consul_stop(struct fake_consul *fake);
const char *fake_consul_address(const struct fake_consul *fake); /* http://127.0.0.1:... or unix://... */

/* Everything that is connected is cut off and, until `listens` again, nobody is let in. */
void fake_consul_listen(struct fake_consul *fake, bool listens);

/* From now on no packet reaches those who are connected, as if a cable were cut; others may come. */
void fake_consul_cut_cable(struct fake_consul *fake);

/* `path` without the query. The body is copied. */
void fake_consul_page(struct fake_consul *fake, const char *path, int status, uint64_t index, const char *body);
void fake_consul_page_of(struct fake_consul *fake, const char *path, int status, uint64_t index, const char *body,
                         size_t len);

/* How the next `times` answers of a page go out (-1: all); after them FAKE_CHUNKED. */
void fake_consul_way(struct fake_consul *fake, const char *path, enum fake_way way, int times);

/* Of the requests whose target begins with `target`: how many came, and the `i`th of them from 0. */
int fake_consul_count(struct fake_consul *fake, const char *target);
bool fake_consul_asked(struct fake_consul *fake, const char *target, int i, struct fake_asked *out);

/* Wait until `n` of them have come; false after 20 s. */
bool fake_consul_await(struct fake_consul *fake, const char *target, int n);

int fake_consul_connections(struct fake_consul *fake);

/* When the page's answer to a query that waited last was written, CLOCK_MONOTONIC. */
int64_t fake_consul_told_us(struct fake_consul *fake, const char *path);

#endif
