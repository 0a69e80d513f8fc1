/* metrics.c - prints figures, and answers a Prometheus server over HTTP/1.0: one request a connection. */
#include "cli/serve/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/serve/client.h"

#define REQUEST_MAX 8192 /* bytes of a request: its line and its fields */

char *metrics_text(weir *limiter, int (*print)(weir *limiter, char *text, size_t size), size_t *len)
{
    size_t size = 16384;
    for (int tries = 0; tries < 8; tries++) { /* the text may grow between two calls */
        char *text = malloc(size);
        const int printed = text ? print(limiter, text, size) : WEIR_ENOMEM;
        if (printed >= 0 && (size_t)printed < size) {
            *len = (size_t)printed;
            return text;
        }
        free(text);
        if (printed < 0)
            break;
        size = (size_t)printed + 1024;
    }
    return NULL;
}

int metrics_print(weir *limiter, char *text, size_t size)
{
    struct weir_stats stats = { .size = sizeof stats };
    int error = weir_stats_read(limiter, &stats);
    const int len = error ? error : weir_stats_print(&stats, NULL, 0, text, size);
    if (len < 0)
        return len;
    const size_t used = (size_t)len < size ? (size_t)len : size;
    const int more = weir_limit_stats_print(limiter, NULL, 0, text + used, size - used);
    return more < 0 ? more : len + more;
}

/* ---- HTTP ---- */

static void put_response(struct output *output, const char *status, const char *type, const char *body, size_t len)
{
    char head[160];
    snprintf(head, sizeof head, "HTTP/1.0 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
             status, type, len);
    output_text(output, head);
    output_put(output, body, len);
}

static void put_refusal(struct output *output, const char *status)
{
    put_response(output, status, "text/plain", status, strlen(status));
}

/* True if the request line is for this path, with or without a query. */
static bool asks_for(struct span line, const char *method_and_path)
{
    const size_t len = strlen(method_and_path);
    return line.len > len && memcmp(line.data, method_and_path, len) == 0 &&
           (line.data[len] == ' ' || line.data[len] == '?');
}

bool metrics_answer(struct client *client)
{
    const struct span input = { client->input, client->input_len };
    struct output *output = &client->output;
    const bool is_whole = memmem(input.data, input.len, "\r\n\r\n", 4) || memmem(input.data, input.len, "\n\n", 2);
    if (!is_whole && input.len <= REQUEST_MAX)
        return false;
    client->is_ending = true;
    if (!is_whole || input.len > REQUEST_MAX) {
        put_refusal(output, "431 Request Header Fields Too Large");
    } else if (input.len < 4 || memcmp(input.data, "GET ", 4) != 0) {
        put_refusal(output, "405 Method Not Allowed");
    } else if (!asks_for(input, "GET /metrics")) {
        put_refusal(output, "404 Not Found");
    } else {
        size_t len;
        char *text = metrics_text(client->server->limiter, metrics_print, &len);
        if (text)
            put_response(output, "200 OK", "text/plain; version=0.0.4", text, len);
        else
            put_refusal(output, "500 Internal Server Error");
        free(text);
    }
    client->input_len = 0;
    return true;
}
