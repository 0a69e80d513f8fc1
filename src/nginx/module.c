/* module.c - the module's life: checking the configuration, and a limiter in each worker. */
#include "nginx/module.h"

#include <poll.h>

#define SHARED_KEYS 100000 /* max_keys of a limiter for all workers, unless the configuration says otherwise: 8 MB */

/* ---- The limiter ---- */

weir *nginx_open(struct nginx_main *main, const struct weir_options *options, const struct nginx_use **fault)
{
    weir *limiter;
    const struct nginx_limit *limits = main->limits.elts;
    struct nginx_use **uses = main->uses.elts;
    *fault = NULL;
    if (weir_open(options, &limiter) != WEIR_OK)
        return NULL;
    for (ngx_uint_t i = 0; i < main->limits.nelts; i++) {
        if (weir_limit_define(limiter, limits[i].name, &limits[i].policy, NULL) != WEIR_OK) {
            weir_close(limiter);
            return NULL;
        }
    }
    for (ngx_uint_t i = 0; i < main->uses.nelts; i++) {
        struct weir_policy policy;
        uses[i]->limit = weir_limit_find(limiter, uses[i]->name);
        if (!uses[i]->limit) {
            *fault = uses[i];
            weir_close(limiter);
            return NULL;
        }
        uses[i]->holds = weir_limit_policy(uses[i]->limit, &policy) == WEIR_OK && policy.algorithm == WEIR_CONCURRENCY;
    }
    return limiter;
}

/* True if weir decides in memory, so that no request waits. */
static bool is_immediate(const struct weir_options *options)
{
    return options->mode == WEIR_LOCAL || options->mode == WEIR_MACHINE;
}

/* Open a limiter and close it again, so that `nginx -t` and a reload find what is wrong. */
static ngx_int_t check(ngx_conf_t *cf, struct nginx_main *main)
{
    struct weir_options options = main->options;
    const struct nginx_use *fault;
    options.quiet = true;
    if (options.mode == WEIR_MACHINE && !options.shared) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "weir: weir_mode machine needs weir_options { shared FILE; }");
        return NGX_ERROR;
    }
    options.shared = NULL; /* the workers make the file: it must belong to their user */
    if (options.mode == WEIR_MACHINE && options.max_keys == 0)
        options.max_keys = 1;
    weir *limiter = nginx_open(main, &options, &fault);
    if (limiter) {
        weir_close(limiter);
        return NGX_OK;
    }
    if (fault) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "there is no limit \"%s\" in %V:%ui: define it by weir_limit or in the option policy_file",
                      fault->name, &fault->file, fault->line);
    } else {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "weir: %s", weir_last_message());
    }
    return NGX_ERROR;
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
    if (main->uses.nelts == 0 && main->limits.nelts == 0 && !main->shows_metrics)
        return NGX_OK; /* http {} does not use the module */
    if (check(cf, main) != NGX_OK ||
        (main->decides && add_handler(cf, NGX_HTTP_PREACCESS_PHASE, nginx_gate) != NGX_OK) ||
        (main->decides_late && add_handler(cf, NGX_HTTP_PRECONTENT_PHASE, nginx_late_gate) != NGX_OK) ||
        (main->charges && add_handler(cf, NGX_HTTP_LOG_PHASE, nginx_charge_phase) != NGX_OK))
        return NGX_ERROR;
    main->is_used = true;
    ngx_str_t pool = ngx_string("default");
    if (is_immediate(&main->options))
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

static void close_shared(void *data)
{
    struct nginx_main *main = data;
    weir_close(main->limiter);
    main->limiter = NULL;
}

/* Open the limiter in which all workers count in local mode. They get it by fork(). If that fails, each worker opens
 * a separate one: an error would end nginx, also in a reload. */
static void open_shared(ngx_cycle_t *cycle, struct nginx_main *main)
{
    struct weir_options options = main->options;
    const struct nginx_use *fault;
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(cycle->pool, 0);
    options.mode = WEIR_MACHINE;
    options.max_keys = options.max_keys ? options.max_keys : SHARED_KEYS;
    options.log = log_line;
    main->limiter = cleanup ? nginx_open(main, &options, &fault) : NULL;
    if (!main->limiter) {
        ngx_log_error(NGX_LOG_ERR, cycle->log, 0, "weir: workers cannot count together: %s", weir_last_message());
        return;
    }
    cleanup->handler = close_shared;
    cleanup->data = main;
}

static ngx_int_t made_cycle(ngx_cycle_t *cycle)
{
    struct nginx_main *main = used_main(cycle);
    if (main && main->options.mode == WEIR_LOCAL && count_workers(cycle) > 1 && !ngx_test_config)
        open_shared(cycle, main);
    return main && main->shows_metrics ? metrics_make(cycle, main, count_workers(cycle)) : NGX_OK;
}

static ngx_int_t start_worker(ngx_cycle_t *cycle)
{
    struct nginx_main *main = used_main(cycle);
    if (!main || (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE))
        return NGX_OK;
    if (main->limiter) { /* the master's */
        if (main->metrics)
            metrics_start(cycle, main);
        return NGX_OK;
    }
    struct weir_options options = main->options;
    options.log = log_line;
    if (options.mode != WEIR_MACHINE) { /* there the workers count as one */
        const int64_t workers = (int64_t)count_workers(cycle);
        options.instances = (options.instances ? options.instances : 1) * workers;
        options.rank = options.rank * workers + (int64_t)ngx_worker;
    }
    const struct nginx_use *fault;
    main->limiter = nginx_open(main, &options, &fault);
    if (!main->limiter) { /* nginx would give up a worker that fails here: requests get an error instead */
        ngx_log_error(NGX_LOG_EMERG, cycle->log, 0, "weir: this worker cannot limit requests, so it refuses them: %s",
                      fault ? "a limit is missing" : weir_last_message());
        return NGX_OK;
    }
    if (!is_immediate(&options) && watch_answers(cycle, main) != NGX_OK)
        return NGX_ERROR;
    if (options.mode == WEIR_LOCAL && options.instances > 1 && ngx_worker == 0)
        ngx_log_error(NGX_LOG_NOTICE, cycle->log, 0,
                      "weir: in local mode each worker counts separately, by 1/%L of every limit; with weir_mode machine"
                      " they count together",
                      options.instances);
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
