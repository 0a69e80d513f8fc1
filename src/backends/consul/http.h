/* http.h - requests to Consul's agent: several at once on one thread, each with its own end in time and size.
 *
 *     idle -> under way -> answered | failed -> idle (whoever asked has looked at it)
 *
 * Over libcurl's multi interface. Nothing that comes from the other end is trusted: more than CONSUL_BODY_MAX or
 * CONSUL_HEADERS_MAX bytes end a request as they come in, redirects are not followed, and an answer that has begun
 * must be whole within the timeout. Times are those of clock_boot_us(). All belongs to one thread at a time.
 */
#ifndef BACKENDS_CONSUL_HTTP_H
#define BACKENDS_CONSUL_HTTP_H

#include "backends/consul/config.h"
#include "backends/shared/follow_thread.h"

#include <curl/curl.h>

#define CONSUL_BODY_MAX (1 << 20)
#define CONSUL_HEADERS_MAX (1 << 16)

enum consul_call_state { CONSUL_IDLE, CONSUL_UNDER_WAY, CONSUL_ANSWERED, CONSUL_FAILED };

struct consul_http {
    const struct consul_config *config;
    CURLM *multi;
    struct curl_slist *headers; /* holds the token */
    struct consul_call *calls;
};

/* One who asks, one request at a time. */
struct consul_call {
    enum consul_call_state state;
    struct consul_http *http;
    struct consul_call *next;
    CURL *easy;
    CURLSH *connections;      /* its own: another's, idle, would be taken for the one of the last answer */
    int64_t asked_us, due_us; /* when it was begun, and when it will be given up */
    bool same_connection;     /* of the request */
    bool began;               /* the answer */
    size_t header_len;

    /* ANSWERED */
    long status;
    uint64_t index; /* X-Consul-Index; 0: none, or not a number */
    char *body;     /* `len` bytes */
    size_t len, size;

    /* FAILED */
    bool reconnects; /* a connection would have had to be made, and same_connection was asked for: nothing was sent */
    bool too_large, no_memory;
    char why[CURL_ERROR_SIZE]; /* half a sentence, printable */
};

struct consul_request {
    const char *method; /* "GET" or "PUT" */
    const char *url;
    const char *body;     /* JSON, as long as the request is under way; NULL: none */
    int64_t hold_us;      /* how long the agent may hold it, beside the timeout */
    bool same_connection; /* fail rather than connect */
};

/* WEIR_OK, or WEIR_ENOMEM; `config` must stay. The first call in a process prepares libcurl, for good. */
int consul_http_init(struct consul_http *http, const struct consul_config *config);
void consul_http_free(struct consul_http *http);

/* The token is nowhere in `http` afterwards; nothing is freed, closed or sent. */
void consul_http_wipe(struct consul_http *http);

/* Prepare a call of `http`, which must stay where it is: WEIR_OK or WEIR_ENOMEM. To be freed before `http`. */
int consul_call_init(struct consul_call *call, struct consul_http *http);
void consul_call_free(struct consul_call *call);

/* Begin; only an idle call. It may have failed when this returns. */
void consul_call_begin(struct consul_call *call, const struct consul_request *request);

/* Give it up, or forget what came: it is idle then. */
void consul_call_reset(struct consul_call *call);

/* Wait until something happens to a call, `thread` (NULL: none) is to end, or due_us has come; and go on with all calls
 * as far as that goes. Without a thread, time that the system sleeps is not waited for. */
void consul_http_turn(struct consul_http *http, struct follow_thread *thread, int64_t due_us);

#endif
