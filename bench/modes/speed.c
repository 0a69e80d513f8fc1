/* speed.c - decisions a second in each mode, of callers that wait for each decision before the next: a closed loop.
 *
 * The first rows are ordinary traffic: each request is for one of 20 limits of four kinds and one of 1,000 clients. The
 * last ones are the best case: one token bucket, few keys, and a burst so large that leases live for seconds. No limit
 * is reached, but in the row of denials. All loads are measured in turns, in one go, so that all figures can be
 * compared. The callers share the main thread's processor and a private Redis has another.
 *
 * A hybrid limiter that was idle for a while has no leases, so it runs before each of its repetitions. Decisions that
 * are made in memory are timed 64 at a time; otherwise reading the clock would be half of the time measured.
 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "modes/lookup.h"
#include "modes/modes.h"
#include "redis/pool.h"
#include "redis/user_store.h"

#define LIMITS 20
#define CLIENTS 1000
#define BEST_KEYS 100
#define BEST_RATE 20000000 /* permits a second: more than one caller can take */
#define BEST_FILL_S 40     /* the seconds in which that rate returns a filling: the keys stay in use */
#define TIMED_AT_ONCE 64
#define LENGTH 0.6 /* of a repetition, relative to those of the other parts: there are many loads */
#define LEAD_SECONDS 0.2

static const struct weir_policy best = { .limit = BEST_RATE, .period_us = WEIR_SECOND, .burst = CALLS_BURST };
static const struct weir_policy denying = { .limit = 1, .period_us = USER_STORE_LIFE_US };

struct side { /* a mode's limits, all in one limiter */
    struct remote best, denying, all;
    struct remote clients[LIMITS];
};

struct row { /* the same load in each mode, and a floor */
    char figure[48];
    int loads[MODES + 1];
    const char *floor;
    bool is_detail;
};

#define ROWS_MAX (LIST_MAX + 6)
#define LOADS_MAX (ROWS_MAX * (MODES + 1))

struct speed {
    struct modes *modes;
    int callers_len;
    int callers[LIST_MAX];
    struct side sides[MODES];
    struct stream clients, few;
    struct pool pings;
    struct lookup *lookup;
    struct load loads[LOADS_MAX];
    int loads_len;
    struct row rows[ROWS_MAX];
    int rows_len;
};

/* ---- Limits ---- */

/* Return the first mode that counts in Redis: the others there have the same keys. */
static enum weir_mode first_in_redis(const struct modes *modes)
{
    return modes->is_chosen[WEIR_DISTRIBUTED] ? WEIR_DISTRIBUTED : WEIR_HYBRID;
}

static bool open_side(struct speed *speed, enum weir_mode mode)
{
    static const char *const kinds[] = { "token_bucket", "fixed_window", "sliding_window", "leaky_bucket" };
    struct side *side = &speed->sides[mode];
    if (!modes_open(speed->modes, mode, "best", &best, &side->best))
        return false;
    for (int i = 0; i < LIMITS; i++) {
        struct weir_policy policy;
        char text[64], name[16];
        snprintf(text, sizeof text, "%s limit=%d period=50s", kinds[i % 4], 1000000 + i);
        snprintf(name, sizeof name, "limit-%d", i);
        bench_require(weir_policy_parse(text, &policy, NULL, 0), "weir_policy_parse");
        side->clients[i] = remote_define(&side->best, name, &policy);
        if (mode == first_in_redis(speed->modes))
            user_store_remember(speed->modes->store, name, CLIENTS);
    }
    side->all = remote_define(&side->best, "all", &best);
    side->denying = remote_define(&side->best, "deny", &denying);
    if (mode == first_in_redis(speed->modes)) {
        user_store_remember(speed->modes->store, "best", BEST_KEYS);
        user_store_remember(speed->modes->store, "deny", BEST_KEYS);
    }
    remote_fill(&side->best, BEST_KEYS, (int64_t)BEST_FILL_S * BEST_RATE);
    remote_fill(&side->denying, BEST_KEYS, 1);
    return true;
}

/* ---- Calls ---- */

/* Return the limit that a draw is for: its place in memory chooses. */
static const struct remote *limit_of(const struct side *side, const struct bench_key *draw)
{
    return &side->clients[(uintptr_t)draw / sizeof *draw % LIMITS];
}

static size_t call_one(void *subject, int thread, const struct bench_key *draws, size_t n)
{
    const struct side *side = subject;
    size_t failed = 0;
    for (size_t i = 0; i < n; i++)
        failed += remote_call((void *)limit_of(side, &draws[i]), thread, &draws[i], 1);
    return failed;
}

/* Ask for the client's limit and that of all clients together, in one decision. */
static size_t call_two(void *subject, int thread, const struct bench_key *draws, size_t n)
{
    const struct side *side = subject;
    struct weir_decision decisions[2];
    size_t failed = 0;
    (void)thread;
    for (size_t i = 0; i < n; i++) {
        const struct weir_request requests[2] = {
            { .limit = limit_of(side, &draws[i])->limit, .key = key_of(&draws[i]), .cost = 1 },
            { .limit = side->all.limit, .key = weir_key_text("all"), .cost = 1 }
        };
        const int status = weir_try_all(side->best.weir, requests, 2, decisions);
        if (status != WEIR_OK)
            load_complain("weir_try_all", weir_strerror(status));
        failed += status != WEIR_OK;
    }
    return failed;
}

/* ---- Rows ---- */

/* `subject`: its offset in struct side. */
static struct row *add_row(struct speed *speed, const char *figure, const struct load *like, size_t subject)
{
    struct row *row = &speed->rows[speed->rows_len++];
    *row = (struct row){ .loads = { -1, -1, -1, -1, -1 } };
    snprintf(row->figure, sizeof row->figure, "%s", figure);
    for (int mode = 0; mode < MODES; mode++) {
        struct load load = *like;
        if (!speed->modes->is_chosen[mode])
            continue;
        load.subject = (char *)&speed->sides[mode] + subject;
        load.step = mode == WEIR_DISTRIBUTED ? 1 : TIMED_AT_ONCE;
        if (mode == WEIR_HYBRID)
            load.lead_seconds = speed->modes->bench->is_quick ? 0.02 : LEAD_SECONDS;
        speed->loads[row->loads[mode] = speed->loads_len++] = load;
    }
    return row;
}

static void add_pings(struct speed *speed, struct row *row, int callers)
{
    const struct load ping = {
        .call = pool_call, .subject = &speed->pings, .threads = callers, .step = 1, .stream = &speed->clients
    };
    if (callers > speed->pings.connections_len)
        return;
    speed->loads[row->loads[MODES] = speed->loads_len++] = ping;
    row->floor = callers > 1 ? "PINGs, a connection each" : "PINGs on one connection";
}

static void add_rows(struct speed *speed)
{
    struct load clients = { .call = call_one, .threads = 1, .stream = &speed->clients };
    const struct load group = { .call = call_two, .threads = 1, .stream = &speed->clients };
    struct load few = { .call = remote_call, .threads = 1, .stream = &speed->few };
    const struct load lookup = {
        .call = lookup_call, .subject = speed->lookup, .threads = 1, .step = TIMED_AT_ONCE, .stream = &speed->few
    };
    char figure[48];
    for (int i = 0; i < speed->callers_len; i++) {
        clients.threads = speed->callers[i];
        snprintf(figure, sizeof figure, "%d caller%s", clients.threads, clients.threads > 1 ? "s" : "");
        add_pings(speed, add_row(speed, figure, &clients, 0), clients.threads);
    }
    add_row(speed, "1 caller, a group of two limits", &group, 0);
    add_row(speed, "1 caller, denied", &few, offsetof(struct side, denying))->is_detail = true;
    struct row *row = add_row(speed, "best case: 1 caller, 1 limit, 100 keys", &few, offsetof(struct side, best));
    speed->loads[row->loads[MODES] = speed->loads_len++] = lookup;
    row->floor = "clock, mutex and lookup";
    few.threads = speed->callers[speed->callers_len - 1];
    snprintf(figure, sizeof figure, "best case: %d callers, 1 limit, 100 keys", few.threads);
    add_row(speed, figure, &few, offsetof(struct side, best))->is_detail = true;
}

/* Return the decisions a second of the repetitions that no other program disturbed, or of all if each was. */
static struct sample speed_of(const struct load *load)
{
    const bool has_undisturbed = load->disturbed_len < load->per_second.n;
    struct sample sample = { 0 };
    for (int i = 0; i < load->per_second.n; i++)
        if (!has_undisturbed || !load->is_disturbed[i])
            sample_add(&sample, load->per_second.values[i]);
    return sample;
}

static void report_row_of(const struct speed *speed, const struct row *row)
{
    modes_row(speed->modes, row->figure);
    if (row->is_detail)
        report_detail(speed->modes->bench->report);
    for (int i = 0; i <= MODES; i++) {
        if (row->loads[i] < 0)
            continue;
        const struct load *load = &speed->loads[row->loads[i]];
        const struct sample sample = speed_of(load);
        char text[40];
        snprintf(text, sizeof text, "%llu failed", (unsigned long long)load->failed);
        if (i == MODES)
            modes_floor(speed->modes, &sample, row->floor);
        else if (load->failed > 0)
            modes_text(speed->modes, (enum weir_mode)i, text);
        else
            modes_figure(speed->modes, (enum weir_mode)i, &sample);
    }
}

static void speed_report(const struct speed *speed)
{
    const struct modes *modes = speed->modes;
    const struct report_curves curves = { .title = "Throughput of ordinary traffic",
                                          .x = "callers",
                                          .y = "decisions a second",
                                          .is_log_x = true,
                                          .is_log_y = true };
    const bool has_pings = speed->pings.connections_len > 0;
    report_heading(modes->bench->report,
                   "Throughput, decisions a second: 20 limits of four kinds, 1,000 clients by Zipf");
    for (int i = 0; i < speed->rows_len; i++)
        report_row_of(speed, &speed->rows[i]);
    modes_curves(modes, curves, has_pings ? "floor: PINGs" : NULL);
    for (int i = 0; i < speed->callers_len; i++) {
        double values[MODES + 1];
        int n = 0;
        for (int place = 0; place <= MODES; place++) {
            const int load = speed->rows[i].loads[place];
            const struct sample sample = load < 0 ? (struct sample){ .n = 0 } : speed_of(&speed->loads[load]);
            if (place == MODES || modes->is_chosen[place])
                values[n++] = sample.n > 0 ? sample_median(&sample) : NAN;
        }
        report_point(modes->bench->report, speed->callers[i], values);
    }
}

void modes_speed(struct modes *modes)
{
    static struct speed speed;
    static const int usual[] = { 1, 4, 16, 64 };
    const struct bench *bench = modes->bench;
    int most = 0;
    speed.modes = modes;
    speed.callers_len = bench->threads_len > 0 ? bench->threads_len : (int)(sizeof usual / sizeof usual[0]);
    memcpy(speed.callers, bench->threads_len > 0 ? bench->threads : usual, (size_t)speed.callers_len * sizeof(int));
    for (int i = 0; i < speed.callers_len; i++)
        most = speed.callers[i] > most ? speed.callers[i] : most;
    bench_step("throughput");
    stream_make(&speed.clients, CLIENTS);
    stream_make(&speed.few, BEST_KEYS);
    speed.lookup = lookup_open(BEST_KEYS);
    for (int mode = 0; mode < MODES; mode++)
        if (modes->is_chosen[mode])
            open_side(&speed, (enum weir_mode)mode);
    if (modes->is_chosen[WEIR_DISTRIBUTED] && store_can_be_asked(modes->store))
        pool_open(&speed.pings, modes->store, POOL_PING, most);
    add_rows(&speed);
    bench_progress("throughput: %d loads in turns", speed.loads_len);
    load_measure(speed.loads, speed.loads_len, bench->repeats, LENGTH * bench->seconds, modes->store);
    speed_report(&speed);
    for (int mode = 0; mode < MODES; mode++)
        if (speed.sides[mode].best.weir)
            remote_close(&speed.sides[mode].best);
    stream_free(&speed.clients);
    stream_free(&speed.few);
    lookup_close(speed.lookup);
    pool_close(&speed.pings);
}
