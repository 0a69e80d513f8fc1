/* module.c - the module's life: the memory that workers share, and a limiter in each worker.
 *
 * In machine mode without a file, workers count in memory without a name. The master makes it and keeps its descriptor;
 * workers inherit that by fork(), open it anew through /proc and fill the memory with a table, as they would a file. A
 * new configuration takes the descriptor over, unless max_keys has changed. So a reload keeps the counts, as it keeps
 * the zones of limit_req, and old workers that still end requests count with the new ones.
 */
#include "nginx/module.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define DEFAULT_KEYS 100000 /* max_keys of that memory, unless the configuration says otherwise: 8 MB */

/* ---- The memory ---- */

/* Return the configuration that a reload replaces; NULL: there was none, or it did not load the module. */
static const struct nginx_main *former_main(const ngx_cycle_t *cycle)
{
    ngx_cycle_t *former = cycle->old_cycle;
    for (ngx_uint_t i = 0; former && !ngx_is_init_cycle(former) && former->modules[i]; i++)
        if (former->modules[i] == &ngx_http_weir_module)
            return ngx_http_cycle_get_module_main_conf(former, ngx_http_weir_module);
    return NULL;
}

static void memory_close(void *data)
{
    const struct nginx_main *main = data;
    close(main->memory);
}

/* Make the memory, or keep that of the former configuration if it has the right size. */
static ngx_int_t memory_make(ngx_conf_t *cf, struct nginx_main *main)
{
    const struct nginx_main *former = former_main(cf->cycle);
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(cf->cycle->pool, 0);
    if (!cleanup)
        return NGX_ERROR;
    main->options.max_keys = main->options.max_keys ? main->options.max_keys : DEFAULT_KEYS;
    main->memory = former && former->memory >= 0 && former->options.max_keys == main->options.max_keys
                       ? fcntl(former->memory, F_DUPFD_CLOEXEC, 0)
                       : memfd_create("weir", MFD_CLOEXEC);
    if (main->memory < 0 || fchmod(main->memory, 0600) != 0) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, ngx_errno, "weir: there is no memory that workers can share");
        return NGX_ERROR;
    }
    snprintf(main->memory_path, sizeof main->memory_path, "/proc/self/fd/%d", main->memory);
    main->options.shared = main->memory_path;
    cleanup->handler = memory_close;
    cleanup->data = main;
    return NGX_OK;
}

/* Let the workers' user open the memory. */
static void memory_give(ngx_cycle_t *cycle, const struct nginx_main *main)
{
    const ngx_core_conf_t *core = (ngx_core_conf_t *)ngx_get_conf(cycle->conf_ctx, ngx_core_module);
    if (geteuid() == 0 && fchown(main->memory, core->user, core->group) != 0)
        ngx_log_error(NGX_LOG_EMERG, cycle->log, ngx_errno, "weir: workers cannot use their memory");
}

/* ---- Configuration ---- */

static ngx_int_t add_handler(ngx_conf_t *cf, ngx_http_phases phase, ngx_http_handler_pt handler)
{
    ngx_http_core_main_conf_t *core = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    ngx_http_handler_pt *added = ngx_array_push(&core->phases[phase].handlers);
    if (!added)
        return NGX_ERROR;
    *added = handler;
    return NGX_OK;
}

static ngx_int_t configured(ngx_conf_t *cf)
{
    struct nginx_main *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    const bool is_used = main->uses.nelts > 0 || main->limits.nelts > 0 || main->shows_metrics;
    if (!is_used && main->mode.line == 0 && main->redis.line == 0 && main->block.line == 0)
        return NGX_OK; /* http {} does not use the module */
    if (nginx_check(cf, main) != NGX_OK)
        return NGX_ERROR;
    const bool is_run = !ngx_test_config && ngx_process != NGX_PROCESS_SIGNALLER;
    if (!is_used || !is_run)
        return NGX_OK;
    if ((nginx_is_immediate(main) && !main->options.shared && memory_make(cf, main) != NGX_OK) ||
        (main->decides && add_handler(cf, NGX_HTTP_PREACCESS_PHASE, nginx_gate) != NGX_OK) ||
        (main->decides_late && add_handler(cf, NGX_HTTP_PRECONTENT_PHASE, nginx_late_gate) != NGX_OK) ||
        (main->charges && add_handler(cf, NGX_HTTP_LOG_PHASE, nginx_charge_phase) != NGX_OK))
        return NGX_ERROR;
    main->is_used = true;
    ngx_str_t pool = ngx_string("default");
    if (nginx_is_immediate(main))
        return NGX_OK;
    main->threads = ngx_thread_pool_add(cf, &pool);
    return main->threads ? NGX_OK : NGX_ERROR;
}

/* ---- Workers ---- */

static ngx_uint_t count_workers(ngx_cycle_t *cycle)
{
    const ngx_core_conf_t *core = (ngx_core_conf_t *)ngx_get_conf(cycle->conf_ctx, ngx_core_module);
    return core->master && core->worker_processes > 0 ? (ngx_uint_t)core->worker_processes : 1;
}

/* Return the configuration, NULL if nothing uses the module. */
static struct nginx_main *used_main(ngx_cycle_t *cycle)
{
    struct nginx_main *main = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_weir_module);
    return main && main->is_used ? main : NULL;
}

/* The log hook. Any thread of weir may call it. */
static void log_line(void *user, enum weir_log_level level, const char *line)
{
    (void)user;
    static const ngx_uint_t levels[] = {
        [WEIR_LOG_ERROR] = NGX_LOG_ERR, [WEIR_LOG_WARNING] = NGX_LOG_WARN, [WEIR_LOG_INFO] = NGX_LOG_INFO
    };
    ngx_log_error(levels[level], ngx_cycle->log, 0, "weir: %s", line);
}

static void dispatch(ngx_event_t *event)
{
    const ngx_connection_t *events = event->data;
    const struct nginx_main *main = events->data;
    weir_dispatch(main->limiter);
}

/* Let nginx wait for weir's answers as for any connection. */
static ngx_int_t watch_answers(ngx_cycle_t *cycle, struct nginx_main *main)
{
    const int fd = weir_event_fd(main->limiter);
    if (fd < 0)
        return NGX_ERROR;
    main->events = ngx_get_connection(fd, cycle->log);
    if (!main->events)
        return NGX_ERROR;
    main->events->data = main;
    main->events->log = cycle->log;
    main->events->read->handler = dispatch;
    main->events->read->log = cycle->log;
    return ngx_add_event(main->events->read, NGX_READ_EVENT, 0);
}

static ngx_int_t made_cycle(ngx_cycle_t *cycle)
{
    struct nginx_main *main = used_main(cycle);
    if (main && main->memory >= 0)
        memory_give(cycle, main);
    return main && main->shows_metrics ? metrics_make(cycle, main, count_workers(cycle)) : NGX_OK;
}

static ngx_int_t start_worker(ngx_cycle_t *cycle)
{
    struct nginx_main *main = used_main(cycle);
    if (!main || (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE))
        return NGX_OK;
    struct weir_options options = main->options;
    options.log = log_line;
    if (!nginx_is_immediate(main)) { /* in memory the workers count as one */
        const int64_t workers = (int64_t)count_workers(cycle);
        options.instances = (options.instances ? options.instances : 1) * workers;
        options.rank = options.rank * workers + (int64_t)ngx_worker;
    }
    struct nginx_fault fault;
    main->limiter = nginx_open(main, &options, &fault);
    if (!main->limiter) { /* nginx would give up a worker that fails here: requests get an error instead */
        ngx_log_error(NGX_LOG_EMERG, cycle->log, 0, "weir: this worker cannot limit requests, so it refuses them: %s",
                      fault.text);
        return NGX_OK;
    }
    if (!nginx_is_immediate(main) && watch_answers(cycle, main) != NGX_OK)
        return NGX_ERROR;
    if (main->metrics)
        metrics_start(cycle, main);
    return NGX_OK;
}

/* Wait until charges and releases that are under way have been carried out, or given up by the limiter. */
static void await_answers(struct nginx_main *main)
{
    struct pollfd answer = { .fd = main->events->fd, .events = POLLIN };
    while (main->waiting > 0 && poll(&answer, 1, 1000) > 0)
        weir_dispatch(main->limiter);
}

static void stop_worker(ngx_cycle_t *cycle)
{
    struct nginx_main *main = used_main(cycle);
    if (!main || !main->limiter)
        return;
    main->is_closing = true;
    if (main->events) {
        await_answers(main);
        ngx_del_event(main->events->read, NGX_READ_EVENT, 0);
        ngx_free_connection(main->events);
        main->events->fd = (ngx_socket_t)-1; /* the limiter closes it */
    }
    weir_close(main->limiter);
    main->limiter = NULL;
}

/* ---- The module ---- */

static ngx_http_module_t http_module = {
    .preconfiguration = nginx_add_variables,
    .postconfiguration = configured,
    .create_main_conf = nginx_make_main,
    .create_loc_conf = nginx_make_location,
    .merge_loc_conf = nginx_merge_location,
};

ngx_module_t ngx_http_weir_module = {
    NGX_MODULE_V1,
    .ctx = &http_module,
    .commands = nginx_commands,
    .type = NGX_HTTP_MODULE,
    .init_module = made_cycle,
    .init_process = start_worker,
    .exit_process = stop_worker,
    NGX_MODULE_V1_PADDING,
};

/* The symbols that nginx looks up in a module's file. The gate must see the client's address as ngx_http_realip_module
 * leaves it, so it stands before that module: nginx runs the handlers of a phase from the last module to the first. */
__attribute__((visibility("default"))) extern ngx_module_t *ngx_modules[];
__attribute__((visibility("default"))) extern char *ngx_module_names[];
__attribute__((visibility("default"))) extern char *ngx_module_order[];
ngx_module_t *ngx_modules[] = { &ngx_http_weir_module, NULL };
char *ngx_module_names[] = { "ngx_http_weir_module", NULL };
char *ngx_module_order[] = { "ngx_http_weir_module", "ngx_http_realip_module", NULL };
