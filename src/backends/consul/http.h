/* http.h - requests to Consul's agent: several at a time on one thread, each bounded in time and size.
 *
 *     idle -> under way -> answered | failed -> idle (after the result was read)
 *
 * Uses libcurl's multi interface. The other end is not trusted: a request ends when more than CONSUL_BODY_MAX or
 * CONSUL_HEADERS_MAX bytes arrive, redirects are not followed, and an answer must be complete within the timeout
 * after its first byte. Times are clock_boot_us(). Everything belongs to one thread at a time. */
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
    struct consul_call *calls;
};

/* A caller of the agent, with one request at a time. */
struct consul_call {
    enum consul_call_state state;
    struct consul_http *http;
    struct consul_call *next;
    CURL *easy;
    struct curl_slist *headers; /* of the latest request; hold the token */
    CURLSH *connections;        /* private: an idle connection of another call could pass for the last answer's */
    int64_t asked_us, due_us;   /* when it began, and when it will be given up */
    bool same_connection;       /* the request's */
    bool began;                 /* the answer has begun */
    size_t header_len;

    /* ANSWERED */
    long status;
    uint64_t index; /* X-Consul-Index; 0: missing, or not a number */
    char *body;     /* `len` bytes */
    size_t len, size;

    /* FAILED */
    bool reconnects; /* same_connection was set, but a new one would be needed: nothing was sent */
    bool too_large, no_memory;
    char why[CURL_ERROR_SIZE]; /* the reason, printable */
};

struct consul_request {
    const char *method; /* "GET" or "PUT" */
    const char *url;
    const char *body;     /* JSON, kept while the request is under way; NULL: none */
    int64_t hold_us;      /* time that the agent may hold it in addition to the timeout */
    bool same_connection; /* fail rather than connect */
};

/* Prepare; `config` must stay. The first call in a process initialises libcurl for good. WEIR_OK or WEIR_ENOMEM. */
int consul_http_init(struct consul_http *http, const struct consul_config *config);
void consul_http_free(struct consul_http *http);

/* Wipe the token from all calls. Nothing is freed, closed or sent. */
void consul_http_wipe(struct consul_http *http);

/* Prepare a call, which must stay in place and be freed before `http`. WEIR_OK or WEIR_ENOMEM. */
int consul_call_init(struct consul_call *call, struct consul_http *http);
void consul_call_free(struct consul_call *call);

/* Begin an idle call. It may have failed when this returns. */
void consul_call_begin(struct consul_call *call, const struct consul_request *request);

/* Give the call up, or forget its result: it is idle then. */
void consul_call_reset(struct consul_call *call);

/* Wait until a call makes progress, `thread` (NULL: none) must end, or due_us has come, and work on all calls.
 * Without a thread, time during system sleep does not count. */
void consul_http_turn(struct consul_http *http, struct follow_thread *thread, int64_t due_us);

#endif
