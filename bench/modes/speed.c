/* speed.c - decisions a second in each mode: by callers, algorithm and keys, and the cost of a denial.
 *
 * Callers wait for each decision before the next, a closed loop: the rows show what a mode can sustain, not the latency
 * of requests at random times (pace.c). All loads are measured in turns, in one go, so that all figures can be
 * compared. The callers share the main thread's processor and a private Redis has another, unless a row says otherwise.
 *
 * A hybrid limiter that was idle for a while has no leases. It therefore runs before each of its repetitions for the
 * life of two leases: the first ones are small. Most rows have few keys because of a feedback: the more requests a
 * caller makes, the more of them leases answer, which makes it faster. With some 1,000 keys the outcome varies more;
 * one row has them, under a limit whose leases live as briefly as the defaults let them. Local and hybrid decisions are
 * timed 64 at a time; otherwise reading the clock would be half of the time measured.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "modes/lookup.h"
#include "modes/turns.h"
#include "redis/pool.h"
#include "redis/user_store.h"

#define FEW_KEYS 100
#define USUAL_KEYS 1000
#define USUAL_LEASE_MS 50 /* the default for a burst of a second: 5 % of it refill in that time */
#define MANY_KEYS 100000
#define QUICK_MANY_KEYS 10000
#define BATCH 64
#define TIMED_AT_ONCE 64
#define SPREAD_CALLERS 8
#define LENGTH 0.6 /* of a repetition, relative to those of the other parts: there are many loads */
#define LEAD_SECONDS 0.2

enum { STREAM_ONE, STREAM_FEW, STREAM_USUAL, STREAM_MANY, STREAM_UNIFORM, STREAMS };

#define TOKEN offsetof(struct side, kinds[KIND_TOKEN])

struct side { /* a mode's limits, all in one limiter */
    struct remote kinds[KINDS], denying, usual;
};

struct row { /* the same load in each mode, and a floor: see turns_report() */
    int loads[MODES + 1];
    const char *floor;
};

struct speed {
    struct modes *modes;
    uint64_t many_keys;
    int callers_len;
    int callers[LIST_MAX];
    struct side sides[MODES];
    struct stream streams[STREAMS];
    struct pool pings;
    struct lookup *lookup;
    struct turns turns;
    struct row by_callers[LIST_MAX], spread, batch, usual, by_kind[KINDS], by_keys[STREAMS], denied;
};

/* ---- Limits and keys ---- */

static const char *const KIND_TITLES[KINDS] = { "token bucket", "interval refill", "fixed window", "sliding window",
                                                "leaky bucket" };

/* Fill the measured keys. In Redis, one mode's filling serves the other. */
static void speed_fill(const struct speed *speed, const struct side *side, bool fills_store)
{
    const struct modes *modes = speed->modes;
    for (int kind = 0; kind < KINDS; kind++) {
        uint64_t keys = kind == KIND_TOKEN ? speed->many_keys : FEW_KEYS;
        if (!modes->bench->kinds[kind] && kind != KIND_TOKEN)
            continue;
        if (fills_store)
            user_store_remember(modes->store, kind_name((enum kind)kind), keys);
        remote_fill(&side->kinds[kind], keys, turns_fill[kind]);
    }
    if (fills_store)
        user_store_remember(modes->store, "deny", FEW_KEYS);
    remote_fill(&side->denying, FEW_KEYS, 1);
}

static bool open_side(struct speed *speed, enum weir_mode mode, bool fills_store)
{
    struct side *side = &speed->sides[mode];
    struct remote *first = &side->kinds[KIND_TOKEN];
    if (!modes_open(speed->modes, mode, kind_name(KIND_TOKEN), &turns_policies[KIND_TOKEN], first))
        return false;
    for (int kind = KIND_TOKEN + 1; kind < KINDS; kind++)
        side->kinds[kind] = remote_define(first, kind_name((enum kind)kind), &turns_policies[kind]);
    side->denying = remote_define(first, "deny", &turns_denying);
    side->usual = remote_define(first, "usual", &turns_usual);
    bench_progress("speed: filling keys, %s", modes_names[mode]);
    speed_fill(speed, side, fills_store);
    return true;
}

/* ---- Rows ---- */

/* `limit`: its offset in struct side. */
static struct row add_row(struct speed *speed, const struct load *like, size_t limit)
{
    struct row row = { .loads = { -1, -1, -1, -1 } };
    for (int mode = 0; mode < MODES; mode++) {
        struct load load = *like;
        if (!speed->modes->is_chosen[mode])
            continue;
        load.subject = (char *)&speed->sides[mode] + limit;
        if (load.step == 0)
            load.step = mode == WEIR_DISTRIBUTED ? 1 : TIMED_AT_ONCE;
        if (mode == WEIR_HYBRID)
            load.lead_seconds = LEAD_SECONDS;
        row.loads[mode] = turns_add(&speed->turns, &load);
    }
    return row;
}

static struct row add_callers(struct speed *speed, int callers)
{
    const struct stream *stream = &speed->streams[STREAM_FEW];
    const struct load like = { .call = remote_call, .threads = callers, .stream = stream };
    struct row row = add_row(speed, &like, TOKEN);
    if (callers <= speed->pings.connections_len) {
        const struct load ping = {
            .call = pool_call, .subject = &speed->pings, .threads = callers, .step = 1, .stream = stream
        };
        row.loads[MODES] = turns_add(&speed->turns, &ping);
        row.floor = callers > 1 ? "PINGs, a connection each" : "PINGs on one connection";
    }
    return row;
}

static struct row add_keys(struct speed *speed, const struct stream *stream)
{
    const struct load like = { .call = remote_call, .threads = 1, .stream = stream };
    const struct load lookup = {
        .call = lookup_call, .subject = speed->lookup, .threads = 1, .step = TIMED_AT_ONCE, .stream = stream
    };
    struct row row = add_row(speed, &like, TOKEN);
    row.loads[MODES] = turns_add(&speed->turns, &lookup);
    row.floor = "clock, mutex and lookup";
    return row;
}

static void add_rows(struct speed *speed)
{
    const struct stream *few = &speed->streams[STREAM_FEW];
    struct load like = { .call = remote_call, .threads = 1, .stream = few };
    const struct load usual = { .call = remote_call, .threads = 1, .stream = &speed->streams[STREAM_USUAL] };
    struct load batch = { .call = remote_call_batch, .threads = 1, .step = BATCH, .stream = few };
    struct load spread = { .call = remote_call, .threads = SPREAD_CALLERS, .stream = few, .is_spread = true };
    for (int i = 0; i < speed->callers_len; i++)
        speed->by_callers[i] = add_callers(speed, speed->callers[i]);
    if (measure_processors() > 1)
        speed->spread = add_row(speed, &spread, TOKEN);
    speed->batch = add_row(speed, &batch, TOKEN);
    speed->usual = add_row(speed, &usual, offsetof(struct side, usual));
    for (int i = 0; i < STREAMS; i++)
        if (i != STREAM_USUAL)
            speed->by_keys[i] = add_keys(speed, &speed->streams[i]);
    for (int kind = 0; kind < KINDS; kind++)
        if (speed->modes->bench->kinds[kind])
            speed->by_kind[kind] = kind == KIND_TOKEN ? speed->by_keys[STREAM_FEW]
                                                      : add_row(speed, &like, offsetof(struct side, kinds[kind]));
    speed->denied = add_row(speed, &like, offsetof(struct side, denying));
}

/* ---- The part of the table ---- */

static void speed_report(const struct speed *speed, const struct row *row, const struct turns_look *look,
                         const char *figure)
{
    turns_report(speed->modes, &speed->turns, figure, row->loads, look, row->floor);
}

static void report_callers(const struct speed *speed)
{
    char figure[64], heading[96];
    snprintf(heading, sizeof heading, "Throughput, %d keys zipf: callers share one processor, a private Redis %s",
             FEW_KEYS, measure_processors() > 1 ? "has another" : "as well");
    report_heading(speed->modes->bench->report, heading);
    for (int i = 0; i < speed->callers_len; i++) {
        const int callers = speed->callers[i];
        snprintf(figure, sizeof figure, "decisions/s, %d caller%s", callers, callers > 1 ? "s" : "");
        speed_report(speed, &speed->by_callers[i], &turns_per_second, figure);
    }
    snprintf(figure, sizeof figure, "decisions/s, %d callers on all processors", SPREAD_CALLERS);
    if (measure_processors() > 1)
        speed_report(speed, &speed->spread, &turns_per_second, figure);
    snprintf(figure, sizeof figure, "decisions/s, 1 caller, batches of %d", BATCH);
    speed_report(speed, &speed->batch, &turns_per_second, figure);
    snprintf(figure, sizeof figure, "decisions/s, 1 caller, %d,000 keys, leases of %d ms", USUAL_KEYS / 1000,
             USUAL_LEASE_MS);
    speed_report(speed, &speed->usual, &turns_per_second, figure);
}

static void name_stream(const struct speed *speed, int stream, char *out, size_t size)
{
    const unsigned long long keys = speed->many_keys;
    const bool is_round = keys % 1000 == 0;
    if (stream == STREAM_ONE)
        snprintf(out, size, "one hot key");
    else if (stream == STREAM_FEW)
        snprintf(out, size, "%d keys, zipf", FEW_KEYS);
    else
        snprintf(out, size, "%llu%s keys, %s", is_round ? keys / 1000 : keys, is_round ? ",000" : "",
                 stream == STREAM_MANY ? "zipf" : "all alike");
}

static void report_costs(const struct speed *speed)
{
    char figure[48];
    report_heading(speed->modes->bench->report, "Wall time of a decision, 1 caller, ns");
    for (int i = 0; i < STREAMS; i++) {
        if (i == STREAM_USUAL)
            continue;
        name_stream(speed, i, figure, sizeof figure);
        speed_report(speed, &speed->by_keys[i], &turns_ns, figure);
    }
    for (int kind = 0; kind < KINDS; kind++)
        if (speed->modes->bench->kinds[kind]) {
            snprintf(figure, sizeof figure, "%d keys, zipf, %s", FEW_KEYS, KIND_TITLES[kind]);
            speed_report(speed, &speed->by_kind[kind], &turns_ns, figure);
        }
    snprintf(figure, sizeof figure, "%d keys, zipf, a denial", FEW_KEYS);
    speed_report(speed, &speed->denied, &turns_ns, figure);
}

static void speed_choose(struct speed *speed, struct modes *modes)
{
    static const int usual[] = { 1, 8, 64 };
    const struct bench *bench = modes->bench;
    speed->modes = modes;
    speed->many_keys = bench->keys > 0 ? bench->keys : bench->is_quick ? QUICK_MANY_KEYS : MANY_KEYS;
    if (speed->many_keys < FEW_KEYS)
        speed->many_keys = FEW_KEYS;
    speed->callers_len = bench->threads_len > 0 ? bench->threads_len : (int)(sizeof usual / sizeof usual[0]);
    memcpy(speed->callers, bench->threads_len > 0 ? bench->threads : usual, (size_t)speed->callers_len * sizeof(int));
}

static void speed_prepare(struct speed *speed)
{
    struct modes *modes = speed->modes;
    const uint64_t keys[STREAMS] = { 1, FEW_KEYS, USUAL_KEYS, speed->many_keys, speed->many_keys };
    int most = 0;
    for (int i = 0; i < speed->callers_len; i++)
        most = speed->callers[i] > most ? speed->callers[i] : most;
    for (int i = 0; i < STREAMS; i++)
        stream_make(&speed->streams[i], keys[i], i == STREAM_UNIFORM ? SKEW_UNIFORM : SKEW_ZIPF);
    speed->lookup = lookup_open(speed->many_keys);
    if (modes->is_chosen[WEIR_DISTRIBUTED] && store_can_be_asked(modes->store))
        pool_open(&speed->pings, modes->store, POOL_PING, most);
}

static void speed_finish(struct speed *speed)
{
    for (int mode = 0; mode < MODES; mode++)
        if (speed->sides[mode].kinds[KIND_TOKEN].weir)
            remote_close(&speed->sides[mode].kinds[KIND_TOKEN]);
    for (int i = 0; i < STREAMS; i++)
        stream_free(&speed->streams[i]);
    lookup_close(speed->lookup);
    pool_close(&speed->pings);
}

void modes_speed(struct modes *modes)
{
    static struct speed speed;
    bool fills_store = true;
    speed_choose(&speed, modes);
    speed_prepare(&speed);
    for (int mode = 0; mode < MODES; mode++) {
        if (!modes->is_chosen[mode])
            continue;
        if (!open_side(&speed, (enum weir_mode)mode, mode != WEIR_LOCAL && fills_store))
            turns_give_up(modes, (enum weir_mode)mode);
        fills_store = fills_store && mode == WEIR_LOCAL;
    }
    add_rows(&speed);
    bench_progress("speed: %d loads in turns", speed.turns.n);
    turns_measure(modes, &speed.turns, LENGTH * modes->bench->seconds);
    report_callers(&speed);
    report_costs(&speed);
    speed_finish(&speed);
}
