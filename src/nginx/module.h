/* module.h - the nginx module: its configuration, and what its files share.
 *
 *     directives.c  reads the configuration.
 *     options.c     reads its block weir_options.
 *     check.c       finds what is wrong with the whole of it.
 *     module.c      opens a limiter in each worker and closes it; describes the module to nginx.
 *     gate.c        lets requests pass or wait, or denies them.
 *     call.c        asks the limiter for one request.
 *     answer.c      writes header fields, variables and log lines.
 *     metrics.c     writes the page of weir_metrics.
 *
 * The module uses weir's public API alone. Everything here runs on a worker's only thread, except the log hook and
 * the groups that a thread pool decides (call.c).
 */
#ifndef NGINX_MODULE_H
#define NGINX_MODULE_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_http.h>
#include <ngx_thread_pool.h>

#include <weir/weir.h>

struct nginx_metrics;

/* Where a directive or an option stands, for error messages. */
struct nginx_place {
    ngx_str_t file;
    ngx_uint_t line; /* 0: it is not given */
};

/* weir_limit. */
struct nginx_limit {
    char *name;
    struct weir_policy policy;
    struct nginx_place place;
};

/* A part of a key. */
struct nginx_part {
    ngx_http_complex_value_t text;
    int ipv4_bits, ipv6_bits; /* of an address that stands for its network; -1: the text itself is the part */
};

#define NEVER_DELAY INT64_MAX

/* A parameter list of `weir` or `weir_charge`: which limit, and each request's key and cost. */
struct nginx_use {
    char *name;
    ngx_array_t parts;              /* of struct nginx_part: the key's */
    ngx_http_complex_value_t *cost; /* NULL: 1 */
    int64_t fixed_cost;             /* a cost without variables; 0: it has some */
    int64_t undelayed;              /* permits that a leaky bucket's queue may have without a delay: of `delay`, or
                                     * NEVER_DELAY of `nodelay`; 0: neither is given */
    bool is_charge;                 /* it is a `weir_charge` */
    struct nginx_place place;
    weir_limit *limit; /* of this worker's limiter; NULL without one */
    bool holds;        /* the limit is on requests in flight: its permit is released with the request */
};

#define MAX_OPTIONS 64 /* of weir_option_at() */

/* Why a limiter cannot be opened, and the directive that is to blame. */
struct nginx_fault {
    const char *directive; /* NULL: none is */
    struct nginx_place place;
    char text[512];
};

/* The configuration of http {}, and what a worker makes of it. */
struct nginx_main {
    struct weir_options options;
    ngx_array_t limits;                     /* of struct nginx_limit */
    ngx_array_t uses;                       /* of struct nginx_use *: all of them */
    struct nginx_place mode, redis, block;  /* weir_mode, weir_redis, weir_options */
    struct nginx_place places[MAX_OPTIONS]; /* the options', in the order of weir_option_at() */
    ngx_str_t values[MAX_OPTIONS];
    bool is_used;                           /* http {} has a directive that needs a limiter */
    bool decides;                           /* a location has `weir` */
    bool decides_late;                      /* a location has "weir_after_auth on" */
    bool charges;                           /* a location has `weir_charge` */
    bool shows_metrics;                     /* a location has `weir_metrics` */
    ngx_thread_pool_t *threads;             /* decides groups in the modes over Redis */
    struct nginx_metrics *metrics;
    int memory;           /* the memory that workers share in machine mode without a file, see module.c; else -1 */
    char memory_path[32]; /* by which a worker opens it */

    weir *limiter;            /* of this worker; NULL: it could not be opened, and requests that need it fail */
    ngx_connection_t *events; /* of weir_event_fd(); NULL in machine mode */
    size_t waiting;           /* calls that wait for an answer */
    bool is_closing;          /* answers no longer resume requests */
};

/* The configuration of a location. */
struct nginx_location {
    ngx_array_t *uses;    /* of struct nginx_use *: its `weir` directives; NULL: none */
    ngx_array_t *charges; /* the same of `weir_charge` */
    bool is_off;          /* "weir off": none, even if the surrounding block has some */
    ngx_uint_t status;    /* of the response to a denied request */
    ngx_uint_t headers;   /* enum weir_http_which, 0: none */
    ngx_uint_t log_level;
    ngx_flag_t dry_run;
    ngx_flag_t after_auth; /* decide when access has been granted, so that keys may use what that has set */
};

extern ngx_module_t ngx_http_weir_module;

/* ---- directives.c, options.c ---- */

extern ngx_command_t nginx_commands[];

void *nginx_make_main(ngx_conf_t *cf);
void *nginx_make_location(ngx_conf_t *cf);
char *nginx_merge_location(ngx_conf_t *cf, void *parent, void *child);

/* Read the block weir_options, and single options that have a directive of the same meaning. Handlers of directives. */
char *nginx_read_options(ngx_conf_t *cf, ngx_command_t *command, void *conf);
char *nginx_read_mode(ngx_conf_t *cf, ngx_command_t *command, void *conf);

/* Return where the directive stands that is being read. */
static inline struct nginx_place nginx_place_of(const ngx_conf_t *cf)
{
    return (struct nginx_place){ cf->conf_file->file.name, cf->conf_file->line };
}

/* Say in *fault that weir_open() has failed with weir_last_message(), and which option or directive is to blame. */
void nginx_blame_option(const struct nginx_main *main, struct nginx_fault *fault);

/* ---- check.c ---- */

/* Check the configuration of http {}, without the memory or the files that workers count in. NGX_ERROR if it cannot
 * work, with a line in the log that names the directive, the file and the line. */
ngx_int_t nginx_check(ngx_conf_t *cf, struct nginx_main *main);

/* Open a limiter with the configuration's limits, and find those that the uses name. NULL if that fails. */
weir *nginx_open(struct nginx_main *main, const struct weir_options *options, struct nginx_fault *fault);

/* True if weir decides in memory, so that no request waits. */
static inline bool nginx_is_immediate(const struct nginx_main *main)
{
    return main->options.mode == WEIR_MACHINE;
}

/* ---- call.c ---- */

enum nginx_call_state { CALL_WAITS, CALL_ANSWERED, CALL_APPLIED };

/* The outcome for a request: the values of $weir_status. */
enum nginx_outcome {
    OUTCOME_NONE,
    OUTCOME_PASSED,
    OUTCOME_WOULD_REJECT, /* passed, but a shadow limit would have denied it */
    OUTCOME_DELAYED,
    OUTCOME_DELAYED_DRY_RUN,
    OUTCOME_REJECTED,
    OUTCOME_REJECTED_DRY_RUN,
    OUTCOME_ERROR,
    OUTCOME_ERROR_DRY_RUN
};

/* The question of one request, and the answer. It outlives its request if that ends while the call waits. */
struct nginx_call {
    ngx_http_request_t *request; /* NULL: it has ended, or there is none */
    struct nginx_main *main;
    void (*answered)(struct nginx_call *call); /* runs after `status` and `decision` have been set */
    enum nginx_call_state state;
    int status; /* enum weir_error */
    struct weir_decision decision;
    enum nginx_outcome outcome;
    ngx_event_t keeps; /* a timer: a worker that shuts down waits for it */
    ngx_thread_task_t task;
    struct nginx_call *self;       /* for the task */
    size_t under_way;              /* ops of which no request waits for the answer, and the function that starts them */
    ngx_event_t renews;            /* a timer: see call_hold() */
    size_t renewing;               /* renewals that have no answer yet */
    bool has_ended;                /* call_end() has been called, and waits for those answers */
    bool has_lapsed;               /* the log knows that a renewal has been denied */
    size_t n;                      /* number of ops */
    struct weir_op *ops;           /* behind this struct; each with its key behind all of them */
    const struct nginx_use **uses; /* of the ops, in their order */
};

/* Make a call of the request for those uses whose key is not empty. Return NGX_OK, and the caller owns *out;
 * NGX_DECLINED if all keys are empty; or an HTTP status: 400 for a cost out of range, else 500. */
ngx_int_t call_make(ngx_http_request_t *request, struct nginx_main *main, const ngx_array_t *uses, bool is_charge,
                    struct nginx_call **out);

/* Decide. True if `status` and `decision` are set; false if `answered` will run. */
bool call_decide(struct nginx_call *call);

/* Charge the costs, which have been used, and free the call then. */
void call_charge(struct nginx_call *call);

/* Return how long the request has to wait: the delay of a leaky bucket, less what `delay` or `nodelay` spare it. A
 * delay below a millisecond, which is as exact as nginx's timers are, is none. If several leaky buckets apply, the
 * decision has the longest delay, and the one that spares least counts. */
int64_t call_delay_us(const struct nginx_call *call);

/* Keep the permits of limits on requests in flight until call_end(): renew them each third of their hold. */
void call_hold(struct nginx_call *call);

/* Give back the permits of limits on requests in flight, and free the call then. For calls that do not wait. */
void call_end(struct nginx_call *call);

/* Make it the request's call, which ends with the request. `cleanup` is one of the request's pool. */
void call_attach(struct nginx_call *call, ngx_http_request_t *request, ngx_pool_cleanup_t *cleanup);

/* Return the request's call, NULL without one. */
struct nginx_call *call_find(ngx_http_request_t *request);

/* ---- gate.c ---- */

ngx_int_t nginx_gate(ngx_http_request_t *request);         /* handler of the phase preaccess */
ngx_int_t nginx_late_gate(ngx_http_request_t *request);    /* of the phase precontent, for weir_after_auth */
ngx_int_t nginx_charge_phase(ngx_http_request_t *request); /* and of the phase log */

/* ---- answer.c ---- */

ngx_int_t nginx_add_variables(ngx_conf_t *cf);

/* Add the header fields for the answer. NGX_OK or NGX_ERROR. */
ngx_int_t answer_add_fields(ngx_http_request_t *request, const struct nginx_call *call);

/* Write a line about a request that is denied or delayed, or whose decision failed. */
void answer_log(ngx_http_request_t *request, const struct nginx_call *call);

/* ---- metrics.c ---- */

/* Make the memory in which workers show their counters to each other. NGX_OK or NGX_ERROR. */
ngx_int_t metrics_make(ngx_cycle_t *cycle, struct nginx_main *main, ngx_uint_t workers);

/* Publish this worker's counters every second. */
void metrics_start(ngx_cycle_t *cycle, struct nginx_main *main);

ngx_int_t metrics_page(ngx_http_request_t *request); /* content handler */

#endif
