/* metrics.c - the page of weir_metrics: the counters of all workers in Prometheus's text format.
 *
 * Each worker writes its own page, with a label `worker`, into a slot of memory that all workers share, once a second.
 * A worker that is asked merges the slots: a family of samples may appear only once on a page, so the samples of all
 * workers stand together. All workers have the same families in the same order.
 */
#include "nginx/module.h"

#include <stdatomic.h>
#include <sys/mman.h>

#define PUBLISH_MS 1000
#define SLOT_SIZE(limits) (65536 + 4096 * (limits)) /* far more than a page with counters of any size takes */

/* A worker's page. `version` is odd while the worker writes it; a reader that saw it change tries again. */
struct metrics_slot {
    atomic_uint version;
    size_t len;
    char text[];
};

struct nginx_metrics {
    char *memory;
    size_t slot_size, workers;
    ngx_event_t timer;
};

static struct metrics_slot *slot_of(const struct nginx_metrics *metrics, size_t worker)
{
    return (struct metrics_slot *)(void *)(metrics->memory + worker * metrics->slot_size);
}

static void metrics_free(void *data)
{
    struct nginx_metrics *metrics = data;
    munmap(metrics->memory, metrics->workers * metrics->slot_size);
}

ngx_int_t metrics_make(ngx_cycle_t *cycle, struct nginx_main *main, ngx_uint_t workers)
{
    struct nginx_metrics *metrics = ngx_pcalloc(cycle->pool, sizeof *metrics);
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(cycle->pool, 0);
    if (!metrics || !cleanup)
        return NGX_ERROR;
    metrics->workers = workers;
    metrics->slot_size = (SLOT_SIZE(main->uses.nelts + main->limits.nelts) + 4095) & ~(size_t)4095;
    metrics->memory = mmap(NULL, workers * metrics->slot_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                           0);
    if (metrics->memory == MAP_FAILED) {
        ngx_log_error(NGX_LOG_EMERG, cycle->log, ngx_errno, "weir: no memory for weir_metrics");
        return NGX_ERROR;
    }
    cleanup->handler = metrics_free;
    cleanup->data = metrics;
    main->metrics = metrics;
    return NGX_OK;
}

/* ---- Writing ---- */

/* Write this worker's page into its slot; nothing if it does not fit. */
static void publish(const struct nginx_main *main)
{
    const struct nginx_metrics *metrics = main->metrics;
    struct metrics_slot *slot = slot_of(metrics, ngx_worker);
    const size_t room = metrics->slot_size - sizeof *slot;
    char number[NGX_INT_T_LEN + 1];
    *ngx_sprintf((u_char *)number, "%ui", ngx_worker) = '\0';
    const struct weir_label label = { "worker", number };
    struct weir_stats stats = { .size = sizeof stats };
    if (weir_stats_read(main->limiter, &stats) != WEIR_OK)
        return;
    /* The version is odd before the first byte changes, and even after the last one has. */
    const unsigned version = atomic_load_explicit(&slot->version, memory_order_relaxed);
    atomic_store_explicit(&slot->version, version | 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    int len = weir_stats_print(&stats, &label, 1, slot->text, room);
    int more = len >= 0 && (size_t)len < room
                   ? weir_limit_stats_print(main->limiter, &label, 1, slot->text + len, room - (size_t)len)
                   : -1;
    slot->len = more >= 0 && (size_t)len + (size_t)more < room ? (size_t)len + (size_t)more : 0;
    atomic_store_explicit(&slot->version, (version | 1) + 1, memory_order_release);
}

static void publish_again(ngx_event_t *event)
{
    publish(event->data);
    if (!ngx_exiting)
        ngx_add_timer(event, PUBLISH_MS);
}

void metrics_start(ngx_cycle_t *cycle, struct nginx_main *main)
{
    ngx_event_t *timer = &main->metrics->timer;
    publish(main);
    timer->handler = publish_again;
    timer->data = main;
    timer->log = cycle->log;
    timer->cancelable = 1; /* a worker that shuts down does not wait for it */
    ngx_add_timer(timer, PUBLISH_MS);
}

/* ---- Reading ---- */

/* A copy of a worker's page, and how far it has been merged. */
struct page {
    const char *at, *end;
};

/* Copy a worker's page. Empty if it has none, or writes it again and again. */
static struct page read_slot(const struct nginx_metrics *metrics, size_t worker, ngx_pool_t *pool)
{
    const struct metrics_slot *slot = slot_of(metrics, worker);
    const size_t room = metrics->slot_size - sizeof *slot;
    char *copy = ngx_pnalloc(pool, room);
    for (int tries = 0; copy && tries < 3; tries++) {
        const unsigned version = atomic_load_explicit(&slot->version, memory_order_acquire);
        const size_t len = slot->len;
        if (version % 2 != 0 || len > room)
            continue;
        memcpy(copy, slot->text, len);
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&slot->version, memory_order_relaxed) == version)
            return (struct page){ copy, copy + len };
    }
    return (struct page){ NULL, NULL };
}

/* Return the end of the line at `at`, behind its line feed. */
static const char *line_end(const char *at, const char *end)
{
    const char *feed = memchr(at, '\n', (size_t)(end - at));
    return feed ? feed + 1 : end;
}

static u_char *append(u_char *to, const char *from, const char *end)
{
    return ngx_cpymem(to, from, (size_t)(end - from));
}

/* Append the page's next family: its head if `with_head`, and its samples. */
static u_char *append_family(u_char *to, struct page *page, bool with_head)
{
    const char *at = page->at;
    while (at < page->end && *at == '#')
        at = line_end(at, page->end);
    if (with_head)
        to = append(to, page->at, at);
    const char *samples = at;
    while (at < page->end && *at != '#')
        at = line_end(at, page->end);
    page->at = at;
    return append(to, samples, at);
}

/* True if the next families of both pages have the same name. */
static bool same_family(const struct page *a, const struct page *b)
{
    const size_t len = (size_t)(line_end(a->at, a->end) - a->at);
    return b->at < b->end && (size_t)(b->end - b->at) >= len && memcmp(a->at, b->at, len) == 0;
}

static ngx_int_t merge(const struct nginx_metrics *metrics, ngx_pool_t *pool, ngx_str_t *out)
{
    struct page *pages = ngx_palloc(pool, metrics->workers * sizeof *pages);
    size_t len = 0, first = ngx_worker;
    for (size_t i = 0; pages && i < metrics->workers; i++) {
        pages[i] = read_slot(metrics, i, pool);
        len += (size_t)(pages[i].end - pages[i].at);
    }
    out->data = pages ? ngx_pnalloc(pool, len + 1) : NULL;
    if (!out->data)
        return NGX_ERROR;
    u_char *to = out->data;
    while (pages[first].at < pages[first].end) {
        const struct page family = pages[first];
        to = append_family(to, &pages[first], true);
        for (size_t i = 0; i < metrics->workers; i++)
            if (i != first && same_family(&family, &pages[i]))
                to = append_family(to, &pages[i], false);
    }
    out->len = (size_t)(to - out->data);
    return NGX_OK;
}

ngx_int_t metrics_page(ngx_http_request_t *request)
{
    const struct nginx_main *main = ngx_http_get_module_main_conf(request, ngx_http_weir_module);
    ngx_str_t text;
    if (!(request->method & (NGX_HTTP_GET | NGX_HTTP_HEAD)))
        return NGX_HTTP_NOT_ALLOWED;
    ngx_int_t status = ngx_http_discard_request_body(request);
    if (status != NGX_OK)
        return status;
    if (!main->limiter)
        return NGX_HTTP_SERVICE_UNAVAILABLE;
    publish(main);
    if (merge(main->metrics, request->pool, &text) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    ngx_str_set(&request->headers_out.content_type, "text/plain; version=0.0.4");
    request->headers_out.content_type_len = request->headers_out.content_type.len;
    request->headers_out.status = NGX_HTTP_OK;
    request->headers_out.content_length_n = (off_t)text.len;
    status = ngx_http_send_header(request);
    if (status == NGX_ERROR || status > NGX_OK || request->header_only)
        return status;
    ngx_buf_t *body = ngx_calloc_buf(request->pool);
    if (!body)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    body->pos = text.data;
    body->last = text.data + text.len;
    body->memory = text.len > 0;
    body->last_buf = 1;
    body->last_in_chain = 1;
    ngx_chain_t chain = { .buf = body, .next = NULL };
    return ngx_http_output_filter(request, &chain);
}
