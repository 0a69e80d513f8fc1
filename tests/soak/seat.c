/* seat.c - a limiter of one mode in one of the soak's processes, and the threads that call it. */
#include "seat.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TIDE_US = 400000, PATIENCE_US = 20000000, SMALL_KEYS = 4096, FILE_KEYS = 16384 };

static int64_t own_clock(void *user)
{
    const struct seat *seat = user;
    return now_us() + atomic_load(&seat->ledger->clock_offset_us);
}

static void log_line(void *user, enum weir_log_level level, const char *line)
{
    const struct seat *seat = user;
    if (seat->ledger->tells)
        fprintf(stderr, "process %d: %s: log %d: %s\n", seat->process, soak_modes[seat->mode].name, (int)level, line);
}

/* ---- The threads ---- */

/* Demand comes in tides, by turns far above the limits and below them: at low tide buckets fill up, and leases grow
 * and are released. */
static void *worker_run(void *argument)
{
    struct worker *worker = argument;
    struct seat *seat = worker->seat;
    while (!atomic_load(&seat->halted)) {
        const bool ebbs = now_us() / TIDE_US % 4 == 3;
        call_any(worker);
        pause_us(draw_below(&worker->chance, (int)seat->ledger->pace_us) * (ebbs ? 8 : 1));
    }
    return NULL;
}

/* Wait until no submitted request is under way; false if that takes too long. */
static bool await_sent(struct seat *seat)
{
    for (int64_t end_us = now_us() + PATIENCE_US; now_us() < end_us; pause_us(1000)) {
        bool busy = false;
        weir_dispatch(seat->limiter);
        for (int i = 0; i < WORKERS * SENT; i++)
            busy = busy || atomic_load(&seat->workers[i / SENT].sent[i % SENT].busy);
        if (!busy)
            return true;
    }
    return false;
}

/* ---- The limiter ---- */

static struct weir_options options_of(struct seat *seat)
{
    const struct soak_mode *mode = &soak_modes[seat->mode];
    static char prefixes[MODES][24];
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.mode = mode->mode;
    options.log = log_line;
    options.user = seat;
    options.now_us = mode->own_clock ? own_clock : NULL;
    options.max_keys = mode->small ? SMALL_KEYS : 0;
    options.policy_file = seat->ledger->policy_file;
    options.follow_policy_file = true;
    if (mode->place == PLACE_FILE) {
        options.shared = seat->ledger->counts_file;
        options.max_keys = FILE_KEYS;
    }
    if (mode_asks_redis(seat->mode)) {
        snprintf(prefixes[seat->mode], sizeof prefixes[0], "weir:mode-%d:", seat->mode);
        options.redis_prefix = prefixes[seat->mode];
        options.redis_url = mode->place == PLACE_REDIS ? seat->ledger->redis_url : seat->ledger->cluster_url;
        options.on_failure = mode->on_failure;
        /* The judge knows no outage of a single process, such as a busy machine brings. Begun cold, all of them
         * together admit what one bucket does. */
        options.outage_cold = true;
        options.strict = mode->strict;
        options.lease_life_us = mode->mode == WEIR_HYBRID ? LEASE_LIFE_US : 0;
        options.instances = PROCESSES;
        options.rank = seat->process;
    }
    return options;
}

static int limiter_open(struct seat *seat)
{
    const struct soak_mode *mode = &soak_modes[seat->mode];
    const char id[] = { (char)('a' + seat->process), '\0' };
    struct weir_consul consul = { .size = sizeof consul, .address = seat->ledger->consul };
    struct weir_peers peers = { .size = sizeof peers, .service = "soak", .id = id };
    struct weir_options options = options_of(seat);
    options.peers = mode->by_share ? &peers : NULL;
    options.consul = mode->by_share ? &consul : NULL;
    int error = weir_open(&options, &seat->limiter);
    for (int limit = 0; limit < LIMITS && error == WEIR_OK; limit++)
        error = weir_limit_define(seat->limiter, soak_limits[limit].name, &soak_policies[limit], &seat->limits[limit]);
    for (int i = 0; i < LIMITS * NAMED_KEYS && error == WEIR_OK; i++) {
        char text[24];
        snprintf(text, sizeof text, "key-%d", i % NAMED_KEYS);
        error = weir_key_resolve(seat->limits[i / NAMED_KEYS], weir_key_text(text),
                                 &seat->handles[i / NAMED_KEYS][i % NAMED_KEYS]);
    }
    if (error == WEIR_OK && mode->event_fd && weir_event_fd(seat->limiter) < 0)
        error = WEIR_EIO;
    return error;
}

int seat_open(struct seat *seat, struct ledger *ledger, int process, int mode)
{
    memset(seat, 0, sizeof *seat);
    seat->ledger = ledger;
    seat->process = process;
    seat->mode = mode;
    int error = limiter_open(seat);
    if (error == WEIR_OK)
        return 0;
    seat_close(seat);
    complain(ledger, process, "%s cannot be opened: %s", soak_modes[mode].name, weir_strerror(error));
    return -1;
}

void seat_close(struct seat *seat)
{
    for (int i = 0; i < LIMITS * NAMED_KEYS; i++)
        weir_handle_free(seat->handles[i / NAMED_KEYS][i % NAMED_KEYS]);
    weir_close(seat->limiter);
}

static void workers_end(struct seat *seat, int n)
{
    atomic_store(&seat->halted, true);
    for (int i = 0; i < n; i++)
        pthread_join(seat->workers[i].thread, NULL);
}

int seat_start(struct seat *seat)
{
    for (int i = 0; i < WORKERS; i++) {
        struct worker *worker = &seat->workers[i];
        worker->seat = seat;
        worker->number = i;
        worker->chance = seat->ledger->seed + (uint64_t)now_us() +
                         (uint64_t)((seat->process * MODES + seat->mode) * WORKERS + i);
        if (pthread_create(&worker->thread, NULL, worker_run, worker) != 0) {
            workers_end(seat, i);
            complain(seat->ledger, seat->process, "no thread could be started");
            return -1;
        }
    }
    return 0;
}

/* ---- Its end ---- */

static bool agrees(struct seat *seat, const char *what, uint64_t told, int64_t seen)
{
    if (told == (uint64_t)seen)
        return true;
    atomic_fetch_add(&seat_tally(seat)->unlike, 1);
    complain(seat->ledger, seat->process, "%s: weir_stats.%s is %" PRIu64 ", and callers saw %" PRId64,
             soak_modes[seat->mode].name, what, told, seen);
    return false;
}

int seat_end(struct seat *seat)
{
    struct weir_stats stats = { .size = sizeof stats };
    workers_end(seat, WORKERS);
    bool good = await_sent(seat);
    if (!good)
        complain(seat->ledger, seat->process, "%s: what was submitted is never done", soak_modes[seat->mode].name);
    if (weir_stats_read(seat->limiter, &stats) != WEIR_OK)
        complain(seat->ledger, seat->process, "%s: its stats cannot be read", soak_modes[seat->mode].name);
    if (good) {
        good = agrees(seat, "allowed", stats.allowed, atomic_load(&seat->allowed)) &&
               agrees(seat, "denied", stats.denied, atomic_load(&seat->denied)) &&
               agrees(seat, "errors", stats.errors, atomic_load(&seat->errors)) &&
               agrees(seat, "fallbacks", stats.fallbacks, atomic_load(&seat->fallbacks));
        atomic_fetch_add(&seat_tally(seat)->limiters, 1);
    }
    return good ? 0 : -1;
}
