/* http.c - requests to Consul's agent, over libcurl: see consul/http.h. */
#include "backends/consul/http.h"

#include "core/ground/clock.h"

#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#define TOKEN_HEADER "X-Consul-Token: "
#define INDEX_HEADER "X-Consul-Index:"
#define FIRST_SIZE 4096
#define PROBE_IDLE_S 5L
#define PROBE_EVERY_S 2L
#define SILENCE_MOST_MS 10000U   /* a connection whose other end's TCP is silent for longer is dead */
#define WAIT_MOST_US WEIR_MINUTE /* longest single wait: libcurl has milliseconds in an int */

/* ---- Making ---- */

static CURLcode prepared;

static void http_prepare(void)
{
    prepared = curl_global_init(CURL_GLOBAL_DEFAULT);
}

static void wipe_headers(struct curl_slist *headers)
{
    for (struct curl_slist *line = headers; line; line = line->next)
        explicit_bzero(line->data, strlen(line->data));
}

static void free_headers(struct curl_slist *headers)
{
    wipe_headers(headers);
    curl_slist_free_all(headers);
}

/* Return the headers of a request, the token among them. libcurl keeps a copy of each line; this one is wiped. NULL:
 * out of memory. */
static struct curl_slist *make_headers(const struct consul_config *config)
{
    char token[CONSUL_TOKEN_MAX + 1], line[sizeof TOKEN_HEADER + CONSUL_TOKEN_MAX];
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    consul_config_token(config, token);
    if (headers && token[0]) {
        snprintf(line, sizeof line, TOKEN_HEADER "%s", token);
        struct curl_slist *longer = curl_slist_append(headers, line);
        explicit_bzero(line, sizeof line);
        if (!longer)
            curl_slist_free_all(headers);
        headers = longer;
    }
    explicit_bzero(token, sizeof token);
    return headers;
}

int consul_http_init(struct consul_http *http, const struct consul_config *config)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, http_prepare);
    if (prepared != CURLE_OK)
        return WEIR_ENOMEM; /* it fails only without memory, unless libcurl is half installed */
    *http = (struct consul_http){ .config = config, .multi = curl_multi_init() };
    return http->multi ? WEIR_OK : WEIR_ENOMEM;
}

void consul_http_wipe(struct consul_http *http)
{
    for (struct consul_call *call = http->calls; call; call = call->next)
        wipe_headers(call->headers);
}

void consul_http_free(struct consul_http *http)
{
    curl_multi_cleanup(http->multi);
    *http = (struct consul_http){ 0 };
}

/* ---- What libcurl calls ---- */

/* Open a socket, unless the request needs the connection of the last answer. An index is valid only on the
 * connection that brought it. Behind a new one there may be a restarted agent with a lower index, which would
 * hold the query for the whole wait, whatever changes. libcurl would otherwise replace a closed connection by
 * itself. */
static curl_socket_t http_open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct consul_call *call = user;
    (void)purpose;
    if (call->same_connection) {
        call->reconnects = true;
        return CURL_SOCKET_BAD;
    }
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    const unsigned silence_ms = SILENCE_MOST_MS;
    if (fd >= 0) /* without it the system's timeout applies; a Unix socket needs none */
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence_ms, sizeof silence_ms);
    return fd;
}

static void answer_begins(struct consul_call *call)
{
    if (call->began)
        return;
    call->began = true;
    int64_t due_us = clock_boot_us() + call->http->config->timeout_us;
    if (due_us < call->due_us)
        call->due_us = due_us;
}

static uint64_t http_read_index(const char *text, size_t len)
{
    uint64_t index = 0;
    while (len > 0 && (*text == ' ' || *text == '\t'))
        text++, len--;
    for (; len > 0 && *text >= '0' && *text <= '9'; text++, len--)
        if (__builtin_mul_overflow(index, 10, &index) || __builtin_add_overflow(index, *text - '0', &index))
            return 0;
    while (len > 0 && strchr(" \t\r\n", *text))
        text++, len--;
    return len == 0 ? index : 0;
}

static size_t http_read_header(char *line, size_t one, size_t len, void *user)
{
    struct consul_call *call = user;
    (void)one;
    answer_begins(call);
    call->header_len += len;
    if (call->header_len > CONSUL_HEADERS_MAX) {
        call->too_large = true;
        return 0;
    }
    size_t name_len = strlen(INDEX_HEADER);
    if (len > name_len && strncasecmp(line, INDEX_HEADER, name_len) == 0)
        call->index = http_read_index(line + name_len, len - name_len);
    return len;
}

static size_t http_read_body(char *bytes, size_t one, size_t len, void *user)
{
    struct consul_call *call = user;
    (void)one;
    answer_begins(call);
    if (len > CONSUL_BODY_MAX - call->len) {
        call->too_large = true;
        return 0;
    }
    if (call->len + len > call->size) {
        size_t size = call->size ? call->size : FIRST_SIZE;
        while (size < call->len + len)
            size *= 2;
        char *body = realloc(call->body, size);
        if (!body) {
            call->no_memory = true;
            return 0;
        }
        call->body = body;
        call->size = size;
    }
    memcpy(call->body + call->len, bytes, len);
    call->len += len;
    return len;
}

/* ---- A call ---- */

static void http_set_limits(CURL *easy, const struct consul_config *config)
{
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    /* A query is held for minutes. Without probes a lost connection would go unnoticed. */
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, PROBE_IDLE_S);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, PROBE_EVERY_S);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L); /* do not wait for a resolver that hangs */
#endif
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L); /* an id may be ".." */
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)((config->timeout_us + 999) / 1000));
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
}

/* Trust only the configured CA, not those in the system's folder. A libcurl whose TLS has no such folder reports
 * that. */
static bool http_set_ca(CURL *easy, const char *file)
{
    CURLcode no_folder = curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    return (no_folder == CURLE_OK || no_folder == CURLE_NOT_BUILT_IN || no_folder == CURLE_UNKNOWN_OPTION) &&
           curl_easy_setopt(easy, CURLOPT_CAINFO, file) == CURLE_OK;
}

/* Set the socket, CA, certificate and key. The empty password keeps OpenSSL from asking for one on the terminal. */
static bool http_set_place(CURL *easy, const struct consul_config *config)
{
    return (!config->socket_path ||
            curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, config->socket_path) == CURLE_OK) &&
           (!config->ca_file || http_set_ca(easy, config->ca_file)) &&
           (!config->cert_file || curl_easy_setopt(easy, CURLOPT_SSLCERT, config->cert_file) == CURLE_OK) &&
           curl_easy_setopt(easy, CURLOPT_KEYPASSWD, "") == CURLE_OK &&
           (!config->key_file || curl_easy_setopt(easy, CURLOPT_SSLKEY, config->key_file) == CURLE_OK);
}

int consul_call_init(struct consul_call *call, struct consul_http *http)
{
    *call = (struct consul_call){ .http = http, .easy = curl_easy_init(), .connections = curl_share_init() };
    if (!call->easy || !call->connections ||
        curl_share_setopt(call->connections, CURLSHOPT_SHARE, CURL_LOCK_DATA_CONNECT) != CURLSHE_OK ||
        curl_easy_setopt(call->easy, CURLOPT_SHARE, call->connections) != CURLE_OK) {
        consul_call_free(call);
        return WEIR_ENOMEM;
    }
    http_set_limits(call->easy, http->config);
    curl_easy_setopt(call->easy, CURLOPT_PRIVATE, call);
    curl_easy_setopt(call->easy, CURLOPT_ERRORBUFFER, call->why);
    curl_easy_setopt(call->easy, CURLOPT_OPENSOCKETFUNCTION, http_open_socket);
    curl_easy_setopt(call->easy, CURLOPT_OPENSOCKETDATA, call);
    curl_easy_setopt(call->easy, CURLOPT_HEADERFUNCTION, http_read_header);
    curl_easy_setopt(call->easy, CURLOPT_HEADERDATA, call);
    curl_easy_setopt(call->easy, CURLOPT_WRITEFUNCTION, http_read_body);
    curl_easy_setopt(call->easy, CURLOPT_WRITEDATA, call);
    if (!http_set_place(call->easy, http->config)) {
        consul_call_free(call);
        return WEIR_ENOMEM;
    }
    call->next = http->calls;
    http->calls = call;
    return WEIR_OK;
}

void consul_call_free(struct consul_call *call)
{
    if (!call->http)
        return;
    consul_call_reset(call);
    for (struct consul_call **link = &call->http->calls; *link; link = &(*link)->next) {
        if (*link == call) {
            *link = call->next;
            break;
        }
    }
    curl_easy_cleanup(call->easy);
    curl_share_cleanup(call->connections);
    free_headers(call->headers);
    *call = (struct consul_call){ 0 };
}

void consul_call_reset(struct consul_call *call)
{
    if (call->state == CONSUL_UNDER_WAY)
        curl_multi_remove_handle(call->http->multi, call->easy); /* this closes the connection, too */
    free(call->body);
    call->body = NULL;
    call->len = call->size = call->header_len = 0;
    call->status = 0;
    call->index = 0;
    call->began = call->reconnects = call->too_large = call->no_memory = false;
    call->state = CONSUL_IDLE;
}

/* End a call with a failure. The other end may have contributed to the text, so only its printable characters are
 * kept. */
static void http_fail(struct consul_call *call, const char *why)
{
    char printable[sizeof call->why];
    size_t i = 0;
    for (; i < sizeof printable - 1 && why[i]; i++)
        printable[i] = why[i] >= ' ' && why[i] <= '~' ? why[i] : '?';
    printable[i] = '\0';
    memcpy(call->why, printable, i + 1);
    call->state = CONSUL_FAILED;
}

void consul_call_begin(struct consul_call *call, const struct consul_request *request)
{
    assert(call->state == CONSUL_IDLE);
    call->asked_us = clock_boot_us();
    call->due_us = call->asked_us + request->hold_us + call->http->config->timeout_us;
    call->same_connection = request->same_connection;
    call->why[0] = '\0';
    bool is_get = strcmp(request->method, "GET") == 0;
    struct curl_slist *before = call->headers; /* freed last: consul_http_wipe() may find it in the child of a fork */
    call->headers = make_headers(call->http->config);
    curl_easy_setopt(call->easy, CURLOPT_HTTPHEADER, call->headers);
    free_headers(before);
    bool is_set = call->headers && curl_easy_setopt(call->easy, CURLOPT_URL, request->url) == CURLE_OK;
    if (is_get) {
        is_set = is_set && curl_easy_setopt(call->easy, CURLOPT_HTTPGET, 1L) == CURLE_OK;
    } else {
        const char *body = request->body ? request->body : "";
        is_set = is_set && curl_easy_setopt(call->easy, CURLOPT_POSTFIELDS, body) == CURLE_OK &&
                 curl_easy_setopt(call->easy, CURLOPT_POSTFIELDSIZE, (long)strlen(body)) == CURLE_OK &&
                 curl_easy_setopt(call->easy, CURLOPT_CUSTOMREQUEST, request->method) == CURLE_OK;
    }
    if (!is_set || curl_multi_add_handle(call->http->multi, call->easy) != CURLM_OK)
        http_fail(call, "out of memory");
    else
        call->state = CONSUL_UNDER_WAY;
}

/* ---- All calls ---- */

static void http_finish(struct consul_call *call, CURLcode code)
{
    curl_multi_remove_handle(call->http->multi, call->easy);
    if (code == CURLE_OK) {
        curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &call->status);
        call->state = CONSUL_ANSWERED;
    } else if (call->too_large) {
        char why[64];
        snprintf(why, sizeof why, "the answer has more than %d bytes%s",
                 call->header_len > CONSUL_HEADERS_MAX ? CONSUL_HEADERS_MAX : CONSUL_BODY_MAX,
                 call->header_len > CONSUL_HEADERS_MAX ? " of headers" : "");
        http_fail(call, why);
    } else {
        http_fail(call, call->no_memory ? "out of memory" : call->why[0] ? call->why : curl_easy_strerror(code));
    }
}

static void http_give_up_late(struct consul_http *http, int64_t now_us)
{
    for (struct consul_call *call = http->calls; call; call = call->next) {
        if (call->state != CONSUL_UNDER_WAY || now_us < call->due_us)
            continue;
        curl_multi_remove_handle(http->multi, call->easy);
        http_fail(call, call->began ? "the answer was incomplete in time" : "no answer in time");
    }
}

/* Let libcurl work. True if a call ended. */
static bool http_collect(struct consul_http *http)
{
    int running, left;
    bool any = false;
    CURLMsg *message;
    curl_multi_perform(http->multi, &running);
    while ((message = curl_multi_info_read(http->multi, &left))) {
        struct consul_call *call;
        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &call);
        http_finish(call, message->data.result);
        any = true;
    }
    return any;
}

/* Wait for calls. libcurl uses CLOCK_MONOTONIC, which stops while the system sleeps; the thread's timer does not. */
static void wait_for_calls(struct consul_http *http, struct follow_thread *thread, int64_t due_us, int64_t wait_us)
{
    struct curl_waitfd fds[2];
    if (thread) {
        follow_thread_time(thread, due_us);
        fds[0] = (struct curl_waitfd){ .fd = thread->wake_fd, .events = CURL_WAIT_POLLIN };
        fds[1] = (struct curl_waitfd){ .fd = thread->timer_fd, .events = CURL_WAIT_POLLIN };
    }
    if (wait_us > WAIT_MOST_US)
        wait_us = WAIT_MOST_US;
    curl_multi_poll(http->multi, fds, thread ? 2 : 0, (int)((wait_us + 999) / 1000), NULL);
}

void consul_http_turn(struct consul_http *http, struct follow_thread *thread, int64_t due_us)
{
    bool any = http_collect(http); /* first: libcurl has not sent new requests yet */
    for (struct consul_call *call = http->calls; call; call = call->next)
        if (call->state == CONSUL_UNDER_WAY && call->due_us < due_us)
            due_us = call->due_us;
    int64_t wait_us = due_us - clock_boot_us();
    if (!any && wait_us > 0) {
        wait_for_calls(http, thread, due_us, wait_us);
        http_collect(http);
    }
    http_give_up_late(http, clock_boot_us());
}
