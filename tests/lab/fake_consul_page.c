/* fake_consul_page.c - how a page of the fake agent is sent: whole, slowly, half, or forever. */
#include "fake_consul_page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DRIP_US = 20000 };

static void say(struct wire *wire, const char *text)
{
    wire_add(wire, text, strlen(text), 0);
}

static void say_chunk(struct wire *wire, const char *bytes, size_t len)
{
    char head[32];
    snprintf(head, sizeof head, "%zx\r\n", len);
    say(wire, head);
    wire_add(wire, bytes, len, 0);
    say(wire, "\r\n");
}

/* Print an answer's head; the way determines the index and the length of the body. */
static void print_head(const struct page *page, enum fake_way way, char *head, size_t size)
{
    char index[64] = "", length[64] = "Transfer-Encoding: chunked\r\n";
    if (way == FAKE_BAD_INDEX)
        snprintf(index, sizeof index, "X-Consul-Index: 12monkeys\r\n");
    else if (way != FAKE_NO_INDEX)
        snprintf(index, sizeof index, "X-Consul-Index: %llu\r\n", (unsigned long long)page->index);
    if (way == FAKE_PLAIN || way == FAKE_TRUNCATED || way == FAKE_SHUTS || way == FAKE_STALLS || way == FAKE_DRIPS)
        snprintf(length, sizeof length, "Content-Length: %zu\r\n", page->len);
    snprintf(head, size,
             "HTTP/1.1 %d Said\r\nContent-Type: application/json\r\n%s%sX-Consul-Knownleader: true\r\n%s\r\n",
             page->status, index, length, way == FAKE_AND_CLOSE ? "Connection: close\r\n" : "");
}

static void say_whole(struct wire *wire, const struct page *page, enum fake_way way)
{
    char head[512];
    print_head(page, way, head, sizeof head);
    say(wire, head);
    if (way == FAKE_PLAIN) {
        wire_add(wire, page->body, page->len, 0);
        return;
    }
    if (page->len > 0)
        say_chunk(wire, page->body, page->len);
    say(wire, "0\r\n\r\n");
    if (way == FAKE_AND_CLOSE)
        wire_end_at(wire, WIRE_CLOSES, 0);
}

static void say_half(struct wire *wire, const struct page *page, enum fake_way way)
{
    char head[512];
    print_head(page, way, head, sizeof head);
    say(wire, head);
    wire_add(wire, page->body, page->len / 2, 0);
    if (way == FAKE_TRUNCATED)
        wire_end_at(wire, WIRE_CLOSES, 0);
    else if (way == FAKE_SHUTS)
        wire_end_at(wire, WIRE_SHUTS, 0);
}

static void say_slowly(struct wire *wire, const struct page *page)
{
    char head[512];
    print_head(page, FAKE_DRIPS, head, sizeof head);
    int64_t now_us = wire_now_us(), head_us = (int64_t)strlen(head) * DRIP_US;
    wire_drip(wire, head, strlen(head), now_us, DRIP_US);
    wire_drip(wire, page->body, page->len, now_us + head_us, DRIP_US);
}

static void say_for_ever(struct wire *wire, const struct page *page, enum fake_way way)
{
    static const char line[] = "X-Filler: and so on and so on and so on and so on\r\n";
    char head[512];
    if (way == FAKE_HEADERS) {
        say(wire, "HTTP/1.1 200 OK\r\n");
        wire_repeat(wire, line, strlen(line));
        return;
    }
    char *chunk = malloc(page->len + 64);
    if (chunk == NULL)
        abort();
    int len = sprintf(chunk, "%zx\r\n", page->len);
    memcpy(chunk + len, page->body, page->len);
    memcpy(chunk + (size_t)len + page->len, "\r\n", 2);
    print_head(page, way, head, sizeof head);
    say(wire, head);
    wire_repeat(wire, chunk, (size_t)len + page->len + 2);
    free(chunk);
}

static enum fake_way next_way(struct page *page)
{
    enum fake_way way = page->way;
    if (page->times > 0 && --page->times == 0)
        page->way = FAKE_CHUNKED;
    return way;
}

void page_answer(struct wire *wire, struct page *page)
{
    enum fake_way way = next_way(page);
    switch (way) {
    case FAKE_HANGS: break;
    case FAKE_CLOSES: wire_end_at(wire, WIRE_CLOSES, 0); break;
    case FAKE_RESETS: wire_end_at(wire, WIRE_RESETS, 0); break;
    case FAKE_TRUNCATED:
    case FAKE_SHUTS:
    case FAKE_STALLS: say_half(wire, page, way); break;
    case FAKE_DRIPS: say_slowly(wire, page); break;
    case FAKE_ENDLESS:
    case FAKE_HEADERS: say_for_ever(wire, page, way); break;
    case FAKE_NOISE: say(wire, "SSH-2.0-OpenSSH_9.2p1 Debian\r\n\r\n"); break;
    default: say_whole(wire, page, way); break;
    }
}
