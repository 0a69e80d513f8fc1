/* test_twins.c - the scripts and the core agree: the same random calls leave the same states, to the last field.
 *
 * A mirror (mirror.h) holds what the memory backend would hold for each key. The test makes each script call on a
 * private server and in the mirror, and compares the time and the charged permits in the reply; the state that each
 * key's requests found; the stored bytes, including former states; their time to live; and that all other keys kept
 * their bytes. Limits switch among a few plans, so that former states under all kinds of plans occur. WEIR_TEST_STEPS
 * is the number of requests, at least REQUESTS_LEAST; 10^8 take a quarter of an hour.
 */
#include "backends/redis/flight/state.h"
#include "core/ground/arith.h"
#include "mirror.h"
#include "scripts.h"
#include "support.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/time.h>

enum { REQUESTS_LEAST = 200000, REQUESTS = 1000000 }; /* with fewer, hardly any finds a former state */
enum { SLOTS = 5, SLOT_KEYS = 4, KEYS = SLOTS * SLOT_KEYS, ALL_MOST = 8, ITEMS_MOST = 4, IN_FLIGHT = 24, PLANS = 3 };
#define WEEK_MS (7 * WEIR_DAY / 1000)
#define GRACE_MS (WEIR_CLOCK_SLACK_US / 1000)
/* A key's life is rounded where it is written and by PTTL. Redis 6.0 counts it from the write: on a busy machine that
 * may be late after TIME. */
#define LATE_MS 1000

/* `times` equal requests; or one that charges in advance, sent as an item for its cost and another for the rest; or a
 * refund or renewal of what was charged at `since_us`. */
struct item {
    enum weir_verb verb;
    int64_t cost, times, ahead, since_us;
    uint32_t spread;
};

/* A key of a call, and what must be stored afterwards. */
struct visit {
    int key;
    struct weir_plan plan;
    struct item items[ITEMS_MOST];
    int n_items;
    bool found, stored, written;
    int64_t found_state[STATE_MAX_WORDS];
    struct origin found_origin; /* zeros: none */
    struct mirror after;
    int64_t life_ms;
};

/* A script call. */
struct turn {
    bool all;
    int n;
    int64_t now_us, charged;
    struct visit visits[ALL_MOST];
};

struct walk {
    struct chance chance;
    struct scripts scripts;
    int episode;
    int64_t now_us, grace_ms;
    struct weir_plan plans[SLOTS][PLANS]; /* among which a limit switches */
    int current[SLOTS];                   /* the one in force */
    struct mirror mirrors[KEYS];          /* after the last call that was sent */
    struct {
        size_t len;
        unsigned char bytes[MIRROR_BYTES_MAX];
        int64_t most_ms; /* the key lives for */
        bool returned;   /* since there was nothing: its time to live may be longer than its state needs */
    } seen[KEYS];        /* stored after the last checked call; 0: nothing */
    struct turn turns[IN_FLIGHT];
    int64_t requests, settled, granted, overdrawn, beyond_top, counts[REDIS_SCRIPT_COUNT];
    /* counted by the algorithms of the state and of the former state */
    int64_t formers[REDIS_SCRIPT_COUNT][REDIS_SCRIPT_COUNT];
    int64_t formers_in_all; /* in calls for groups */
    int64_t with_origin;
    int64_t formers_alone; /* while the current state was unused */
    int64_t with_room;     /* written states of buckets with room in their time to live */
    int64_t in_short[2];   /* short answers, by whether they admit */
    int64_t renewed[2];    /* renewals, by whether they were allowed */
    char where[600];
};

static const char *where(struct walk *walk, const struct turn *turn, const struct visit *visit, const char *what)
{
    const struct weir_plan *plan = &visit->plan;
    int len = snprintf(walk->where, sizeof walk->where,
                       "%s: episode %d, request %" PRId64 ", %skey %d at %" PRId64 ", plan %s %d %d %d p %" PRId64
                       " q %" PRId64 " tick %" PRId64 " limit %" PRId64 " period %" PRId64 " size %" PRId64 ":",
                       what, walk->episode, walk->requests, turn->all ? "all-or-nothing, " : "", visit->key,
                       turn->now_us, redis_scripts[redis_script_of(plan)].name, plan->refill, plan->align, plan->blocks,
                       plan->p, plan->q, plan->tick_us, plan->limit, plan->period_us, plan->size);
    for (int i = 0; i < visit->n_items && len < (int)sizeof walk->where; i++)
        len += snprintf(walk->where + len, sizeof walk->where - (size_t)len,
                        " verb %d cost %" PRId64 " times %" PRId64 " ahead %" PRId64 " spread %" PRIu32,
                        (int)visit->items[i].verb, visit->items[i].cost, visit->items[i].times, visit->items[i].ahead,
                        visit->items[i].spread);
    return walk->where;
}

static void agree(bool holds, struct walk *walk, const struct turn *turn, const struct visit *visit, const char *what)
{
    if (!holds)
        ck_abort_msg("%s", where(walk, turn, visit, what));
}

/* ---- Chance ---- */

static int64_t cost_by_chance(struct chance *chance, const struct weir_plan *plan, int64_t most)
{
    switch (chance_between(chance, 0, 5)) {
    case 0:
    case 1: return 1;
    case 2: return chance_between(chance, 1, 5);
    case 3: return min_of(most, max_of(1, plan->size + chance_between(chance, -2, 2)));
    case 4: return chance_between(chance, 1, plan->size);
    default: return chance_magnitude(chance, most);
    }
}

static struct item ahead_by_chance(struct chance *chance, const struct weir_plan *plan)
{
    return (struct item){ .verb = WEIR_TAKE,
                          .cost = chance_one_in(chance, 3) ? 0 : cost_by_chance(chance, plan, WEIR_MAX_PERMITS),
                          .times = 1,
                          .ahead = cost_by_chance(chance, plan, WEIR_MAX_PERMITS),
                          .spread = chance_one_in(chance, 8) ? (uint32_t)chance_between(chance, 1, WEIR_MAX_SPREAD)
                                                             : (uint32_t)chance_between(chance, 1, 6) };
}

static struct item return_by_chance(struct chance *chance, const struct weir_plan *plan, int64_t now_us)
{
    const int64_t cost = cost_by_chance(chance, plan, WEIR_MAX_PERMITS);
    return (struct item){ .verb = WEIR_REFUND,
                          .cost = cost,
                          .times = 1,
                          .since_us = max_of(1, now_us - chance_magnitude(chance, 2 * plan_fill_us(plan, 0))) };
}

static struct item item_by_chance(struct chance *chance, const struct weir_plan *plan, int64_t now_us)
{
    struct item item = { .verb = WEIR_TAKE, .cost = cost_by_chance(chance, plan, WEIR_MAX_PERMITS), .times = 1 };
    if (chance_one_in(chance, 5))
        return ahead_by_chance(chance, plan);
    switch (chance_between(chance, 0, 15)) {
    case 0:
    case 1: item.verb = WEIR_PEEK; break;
    case 2:
    case 3: item.verb = WEIR_REFUND; break;
    case 5:
    case 7:
        item = return_by_chance(chance, plan, now_us);
        item.verb = chance_one_in(chance, 2) ? WEIR_REFUND : WEIR_RENEW;
        return item;
    case 4: item.verb = chance_one_in(chance, 3) ? WEIR_RESET : WEIR_TAKE; break;
    case 6:
        item.verb = WEIR_CHARGE;
        if (!chance_one_in(chance, 10)) /* little, so that most keys admit something now and then */
            item.cost = chance_between(chance, 1, min_of(WEIR_MAX_PERMITS, plan->size));
        break;
    default: break;
    }
    if (chance_one_in(chance, 12))
        item.times = chance_one_in(chance, 400) ? REDIS_MAX_TIMES : chance_between(chance, 2, 40);
    return item;
}

/* Advance the time by about what the plan refills in, step back within the slack or beyond it, or jump anywhere. */
static void time_by_chance(struct walk *walk, const struct weir_plan *plan)
{
    struct chance *chance = &walk->chance;
    int64_t fill_us = plan_fill_us(plan, 0), now_us = walk->now_us;
    switch (chance_between(chance, 0, 15)) {
    case 0:
    case 1:
    case 2: now_us += chance_between(chance, 0, 3); break;
    case 3:
    case 4:
    case 5: now_us += chance_magnitude(chance, 2 * fill_us); break;
    case 6: now_us += chance_between(chance, 0, fill_us / plan->size + 1); break;
    case 7: now_us += chance_between(chance, 0, fill_us); break;
    case 8: now_us -= chance_between(chance, 1, WEIR_CLOCK_SLACK_US); break;
    case 9:
        if (chance_one_in(chance, 2))
            now_us -= WEIR_CLOCK_SLACK_US + chance_between(chance, -1, 1);
        else if (chance_one_in(chance, 4))
            now_us -= chance_magnitude(chance, chance_one_in(chance, 2) ? fill_us : 10 * WEIR_SECOND);
        break;
    case 10:
        if (chance_one_in(chance, 40))
            now_us = chance_between(chance, 0, WEIR_MAX_TIME_US);
        break;
    default: break;
    }
    walk->now_us = max_of(0, min_of(now_us, WEIR_MAX_TIME_US));
}

/* ---- A call ---- */

static size_t key_name(const struct walk *walk, int key, char name[32])
{
    return (size_t)snprintf(name, 32, "w%d:{%d}", walk->episode, key);
}

/* Return a plan of any kind, or one like `other` with other numbers, whose states can be carried over exactly. */
static struct weir_plan plan_beside(struct chance *chance, const struct weir_plan *other)
{
    struct weir_plan plan = *other;
    if (chance_one_in(chance, 2))
        return plan_by_chance(chance, (int)chance_between(chance, 0, KIND_COUNT - 1));
    plan.size = max_of(1, plan.size + chance_between(chance, -plan.size / 2, plan.size / 2));
    if (plan.p == 0 && plan.refill != WEIR_INTERVAL)
        plan.limit = plan.size;
    else if (plan.p == 0)
        plan.limit = max_of(plan.limit, chance_magnitude(chance, plan.size));
    else if (plan.size <= other->size) /* slower, in other units */
        plan.p = max_of(1, plan.p - plan.p / 3), plan.q = max_of(1, plan.q - plan.q / 4);
    for (; plan.p > 0 && plan.p % 2 == 0 && plan.q % 2 == 0; plan.p /= 2) /* a fraction in lowest terms */
        plan.q /= 2;
    const int64_t units = mul_capped(plan.size, plan.q);
    const bool drains = plan.p > 0 ? div_up(units, plan.p) <= WEIR_MAX_FILL_US / plan.tick_us
                                   : plan_fill_us(&plan, 0) <= WEIR_MAX_FILL_US;
    return units <= EXACT_MAX && drains ? plan : *other;
}

static void turn_by_chance(struct walk *walk, struct turn *turn)
{
    struct chance *chance = &walk->chance;
    int slot = (int)chance_between(chance, 0, SLOTS - 1);
    if (chance_one_in(chance, 40))
        walk->plans[slot][chance_between(chance, 0, PLANS - 1)] = plan_beside(
            chance, &walk->plans[slot][chance_between(chance, 0, PLANS - 1)]);
    if (chance_one_in(chance, 8))
        walk->current[slot] = (int)chance_between(chance, 0, PLANS - 1);
    turn->all = chance_one_in(chance, 4);
    turn->n = turn->all ? (int)chance_between(chance, 1, ALL_MOST) : (int)chance_between(chance, 1, SLOT_KEYS);
    const bool alike = chance_one_in(chance, 4);            /* one take for each key, all equal, */
    const bool settles = alike && chance_one_in(chance, 3); /* but from some key on returns */
    if (alike && !turn->all && chance_one_in(chance, 2))
        turn->n = 1;
    int first = (int)chance_between(chance, 0, KEYS - 1);
    for (int i = 0; i < turn->n; i++) {
        struct visit *visit = &turn->visits[i];
        visit->key = turn->all ? (first + i * 7) % KEYS : slot * SLOT_KEYS + (first + i) % SLOT_KEYS;
        visit->plan = walk->plans[visit->key / SLOT_KEYS][walk->current[visit->key / SLOT_KEYS]];
        visit->n_items = turn->all ? 1 : (int)chance_between(chance, 1, ITEMS_MOST);
        for (int j = 0; j < visit->n_items; j++)
            visit->items[j] = item_by_chance(chance, &visit->plan, walk->now_us);
        if (alike && !turn->all) {
            visit->n_items = 1;
            if (settles && (chance_one_in(chance, 2) || (i > 0 && turn->visits[i - 1].items[0].since_us > 0)))
                visit->items[0] = return_by_chance(chance, &visit->plan, walk->now_us);
            else if (i == 0)
                visit->items[0] = (struct item){ .cost = cost_by_chance(chance, &visit->plan, visit->plan.size),
                                                 .times = 1 };
            else
                visit->items[0] = turn->visits[0].items[0];
        }
        if (turn->all)
            visit->items[0] = (struct item){
                .cost = cost_by_chance(chance, &visit->plan, WEIR_MAX_ALL * WEIR_MAX_PERMITS), .times = 1
            };
    }
}

static size_t item_write(const struct item *item, bool more, unsigned char *out)
{
    size_t len = 0;
    if (item->since_us > 0) {
        redis_item_write(out, item->verb == WEIR_RENEW ? WEIR_RENEW : REDIS_RETURN, more, item->cost, item->since_us);
        return REDIS_ITEM_SIZE;
    }
    if (item->ahead == 0 || item->cost > 0) {
        redis_item_write(out + len, (int)item->verb, more || item->ahead > 0, item->cost, item->times);
        len += REDIS_ITEM_SIZE;
    }
    if (item->ahead > 0) {
        redis_item_write(out + len, item->cost > 0 ? REDIS_LEASE_IF_TAKEN : REDIS_LEASE, more, item->ahead,
                         item->spread);
        len += REDIS_ITEM_SIZE;
    }
    return len;
}

/* Make a call, except for its time. */
static void call_make(struct walk *walk, const struct turn *turn, struct call *call)
{
    char name[32];
    unsigned char stamp[REDIS_STAMP_MAX], items[2 * ALL_MOST * ITEMS_MOST * REDIS_ITEM_SIZE];
    size_t at = 0;
    enum redis_script_id script = turn->all ? REDIS_TRY_ALL : redis_script_of(&turn->visits[0].plan);
    walk->counts[script]++;
    call_begin(call, script, turn->n);
    for (int i = 0; i < turn->n; i++)
        call_word(call, name, key_name(walk, turn->visits[i].key, name));
    for (int i = 0; i < (turn->all ? turn->n : 1); i++)
        call_word(call, stamp, redis_stamp_write(&turn->visits[i].plan, stamp));
    for (int i = 0; i < turn->n; i++) {
        const struct visit *visit = &turn->visits[i];
        for (int j = 0; j < visit->n_items; j++)
            at += item_write(&visit->items[j], j + 1 < visit->n_items, items + at);
    }
    (turn->all ? call_tail : call_items)(call, items, at);
}

/* Make one take or settlement by the shorter script, as weir does. Return false if it is not for this call. */
static bool single_make(struct walk *walk, const struct turn *turn, struct call *call)
{
    char name[32];
    unsigned char argument[REDIS_SETTLE_SIZE];
    const struct visit *visit = &turn->visits[0];
    const struct item *item = &visit->items[0];
    const bool settles = (item->since_us > 0 && item->verb == WEIR_REFUND) || item->verb == WEIR_CHARGE;
    if (turn->all || turn->n != 1 || visit->n_items != 1 || item->times > 1 || item->ahead != 0 ||
        !(settles || item->verb == WEIR_TAKE))
        return false;
    const size_t len = settles ? redis_settle_write(&visit->plan, item->cost, item->since_us, "echo", argument)
                               : redis_take_write(&visit->plan, item->cost, "echo", argument);
    if (len == 0)
        return false;
    walk->counts[REDIS_BUCKET_SINGLE]++;
    walk->settled += settles;
    call_begin(call, REDIS_BUCKET_SINGLE, 1);
    call_word(call, name, key_name(walk, visit->key, name));
    call_word(call, argument, len);
    return true;
}

/* Send the call, then GET and PTTL for each key. */
static void turn_send(struct walk *walk, const struct turn *turn, bool tell_time)
{
    static struct call call;
    char name[32];
    if (tell_time || !single_make(walk, turn, &call))
        call_make(walk, turn, &call);
    if (tell_time)
        call_number(&call, turn->now_us);
    call_send(&walk->scripts, &call);
    for (int i = 0; i < turn->n; i++) {
        key_name(walk, turn->visits[i].key, name);
        words_send(&walk->scripts, 2, (const char *[]){ "GET", name });
        words_send(&walk->scripts, 2, (const char *[]){ "PTTL", name });
    }
}

/* ---- What is expected ---- */

static bool item_in_mirror(struct mirror *mirror, const struct weir_plan *plan, const struct item *item, int64_t now_us,
                           struct weir_decision *out)
{
    if (item->ahead > 0)
        return mirror_take_ahead(mirror, plan, item->cost, item->ahead, item->spread, now_us, out);
    if (item->verb == WEIR_RENEW)
        return mirror_renew(mirror, plan, item->cost, item->since_us, now_us, out);
    if (item->since_us > 0)
        return mirror_return(mirror, plan, item->cost, item->since_us, now_us, out);
    return mirror_decide(mirror, plan, item->verb, item->cost, now_us, out);
}

static void item_in_library(const struct weir_plan *plan, int64_t *state, struct origin *origin,
                            const struct item *item, int64_t now_us, struct weir_decision *out)
{
    origin_look(origin, plan, state, now_us);
    if (item->ahead > 0)
        state_take_ahead(plan, state, now_us, item->cost, item->ahead, item->spread, out);
    else if (item->verb == WEIR_RENEW)
        state_renew(plan, state, origin, now_us, item->since_us, item->cost, out);
    else if (item->since_us > 0)
        state_return(plan, state, origin, now_us, item->since_us, item->cost, out);
    else
        library_decide(plan, state, item->verb, item->cost, now_us, out);
}

/* Apply one key's requests to the mirror, and as the library will decide them from the state that the script found. */
static void expect_each(struct walk *walk, struct turn *turn, struct visit *visit, int64_t *library_state)
{
    struct origin origin = visit->found_origin;
    walk->with_origin += origin.until_us > 0;
    struct mirror *mirror = &walk->mirrors[visit->key];
    for (int j = 0; j < visit->n_items; j++) {
        const struct item *item = &visit->items[j];
        for (int64_t k = 0; k < item->times; k++) {
            struct weir_decision in_mirror, in_library;
            if (item_in_mirror(mirror, &visit->plan, item, turn->now_us, &in_mirror))
                visit->written = true;
            item_in_library(&visit->plan, library_state, &origin, item, turn->now_us, &in_library);
            if (memcmp(&in_mirror, &in_library, sizeof in_mirror) != 0)
                assert_decision_is(&in_library, &in_mirror, where(walk, turn, visit, "the core disagrees with itself"));
            if ((item->verb == WEIR_TAKE || item->verb == WEIR_RENEW) && in_mirror.allowed)
                turn->charged += item->cost + in_mirror.ahead;
            if (item->verb == WEIR_CHARGE)
                turn->charged += item->cost - in_mirror.ahead;
            walk->renewed[in_mirror.allowed] += item->verb == WEIR_RENEW;
            walk->granted += item->verb == WEIR_TAKE && in_mirror.ahead > 0;
            walk->overdrawn += item->verb == WEIR_CHARGE && in_mirror.remaining == 0;
            walk->beyond_top += item->verb == WEIR_CHARGE && in_mirror.ahead > 0;
        }
    }
    walk->requests += visit->n_items;
}

static void expect_all(struct walk *walk, struct turn *turn)
{
    struct mirror *mirrors[ALL_MOST];
    struct weir_plan plans[ALL_MOST];
    int64_t costs[ALL_MOST];
    bool written[ALL_MOST];
    int64_t cost = 0;
    for (int i = 0; i < turn->n; i++) {
        mirrors[i] = &walk->mirrors[turn->visits[i].key];
        plans[i] = turn->visits[i].plan;
        costs[i] = turn->visits[i].items[0].cost;
        cost += costs[i];
    }
    if (mirror_try_all(mirrors, plans, costs, (size_t)turn->n, turn->now_us, written))
        turn->charged = cost;
    for (int i = 0; i < turn->n; i++)
        turn->visits[i].written = written[i];
    walk->requests += turn->n;
}

static void former_count(struct walk *walk, const struct turn *turn, const struct mirror *after)
{
    if (!after->has_former)
        return;
    walk->formers[redis_script_of(&after->own.plan)][redis_script_of(&after->former.plan)]++;
    walk->formers_in_all += turn->all;
    walk->formers_alone += state_fresh_at_us(&after->own.plan, after->own.state) == 0;
}

static void turn_expect(struct walk *walk, struct turn *turn)
{
    static int64_t library_states[ALL_MOST][STATE_MAX_WORDS];
    turn->charged = 0;
    for (int i = 0; i < turn->n; i++) {
        struct visit *visit = &turn->visits[i];
        visit->written = false;
        visit->found = mirror_found(&walk->mirrors[visit->key], &visit->plan, turn->now_us, visit->found_state,
                                    &visit->found_origin);
        if (visit->found)
            memcpy(library_states[i], visit->found_state, state_words(&visit->plan) * sizeof(int64_t));
        else
            state_charge(&visit->plan, library_states[i], turn->now_us, 0);
        if (!turn->all)
            expect_each(walk, turn, visit, library_states[i]);
    }
    if (turn->all)
        expect_all(walk, turn);
    for (int i = 0; i < turn->n; i++) {
        struct visit *visit = &turn->visits[i];
        mirror_copy(&visit->after, &walk->mirrors[visit->key]);
        former_count(walk, turn, &visit->after);
        if (visit->after.stored && visit->written)
            visit->life_ms = div_up(max_of(0, mirror_fresh_at_us(&visit->after) - turn->now_us), 1000) + walk->grace_ms;
    }
}

/* ---- What happened ---- */

static int64_t number_at(const unsigned char *bytes)
{
    int64_t number = 0;
    for (int i = 6; i >= 0; i--)
        number = number * 256 + bytes[i];
    return number;
}

/* Where an answer has the states that the call met, and what it says else. */
struct heard {
    int64_t now_us, charged;
    size_t at, len;
    bool is_short; /* of bucket_single */
    bool leaves;   /* it has the state that the call has left instead */
};

static bool answer_read(const struct turn *turn, const redisReply *reply, struct heard *heard)
{
    const unsigned char *bytes = (const unsigned char *)reply->str;
    *heard = (struct heard){ .at = REDIS_HEAD_SIZE, .len = answer_len(reply) };
    const enum redis_script_id script = redis_script_of(&turn->visits[0].plan);
    const bool single = turn->n == 1 && !turn->all && (script == REDIS_TOKEN_BUCKET || script == REDIS_LEAKY_BUCKET);
    if (single && heard->len == REDIS_LEFT_SIZE) {
        const struct item *item = &turn->visits[0].items[0];
        int64_t state[STATE_MAX_WORDS];
        heard->is_short = heard->leaves = redis_left_read(&turn->visits[0].plan, bytes, state);
        heard->now_us = state[1];
        heard->charged = item->verb == WEIR_REFUND ? 0 : item->cost;
        heard->at = heard->len;
        return heard->leaves;
    }
    if (single && redis_denial_is_short(bytes, heard->len)) {
        heard->at = 0;
        heard->is_short = redis_time_read(bytes + REDIS_BUCKET_STATE_SIZE, heard->len - REDIS_BUCKET_STATE_SIZE,
                                          &heard->now_us);
        heard->len = REDIS_BUCKET_STATE_SIZE;
        return heard->is_short;
    }
    if (heard->len > REDIS_HEAD_SIZE) {
        heard->now_us = number_at(bytes);
        heard->charged = number_at(bytes + 7);
    }
    return heard->len > REDIS_HEAD_SIZE;
}

static void check_answer(struct walk *walk, struct turn *turn, const redisReply *reply)
{
    const unsigned char *bytes = (const unsigned char *)reply->str;
    struct heard heard;
    agree(answer_read(turn, reply, &heard), walk, turn, &turn->visits[0], reply->str);
    const size_t len = heard.len;
    size_t at = heard.at;
    agree(heard.now_us == turn->now_us, walk, turn, &turn->visits[0], "another time");
    if (heard.leaves) {
        const struct visit *visit = &turn->visits[0];
        int64_t state[STATE_MAX_WORDS];
        agree(redis_left_read(&visit->plan, bytes, state) && visit->after.stored == (state[0] > 0) &&
                  (state[0] == 0 || memcmp(state, visit->after.own.state, 2 * sizeof *state) == 0),
              walk, turn, visit, "left another state");
    }
    for (int i = 0; i < turn->n && !heard.leaves; i++) {
        const struct visit *visit = &turn->visits[i];
        int64_t state[STATE_MAX_WORDS];
        enum redis_found found = REDIS_FOREIGN;
        struct origin origin = { 0 };
        at += redis_origin_read(bytes + at, len - at, &origin);
        agree(turn->all || memcmp(&origin, &visit->found_origin, sizeof origin) == 0, walk, turn, visit,
              "found another origin");
        int taken_len = redis_state_read(&visit->plan, bytes + at, len - at, state, &found);
        agree(taken_len > 0, walk, turn, visit, "found what is not a state");
        agree(found == (visit->found ? REDIS_STATE : REDIS_FRESH), walk, turn, visit, "found a state or none");
        agree(!visit->found || memcmp(state, visit->found_state, state_words(&visit->plan) * sizeof *state) == 0, walk,
              turn, visit, "found another state");
        at += (size_t)taken_len;
    }
    agree(at == len, walk, turn, &turn->visits[0], "the answer is longer");
    agree(heard.charged == turn->charged, walk, turn, &turn->visits[0], "charged other permits");
}

static bool has_return(const struct visit *visit)
{
    bool found = false;
    for (int i = 0; i < visit->n_items; i++)
        found = found || visit->items[i].since_us > 0;
    return found;
}

/* A key with room may live longer by its room; only by the server's clock does a script give any. A return may leave
 * the time to live as it is. */
static void check_stored(struct walk *walk, const struct turn *turn, const struct visit *visit, const redisReply *got,
                         int64_t life_ms)
{
    unsigned char bytes[MIRROR_BYTES_MAX], stored[MIRROR_BYTES_MAX];
    const size_t len = mirror_bytes(&visit->after, bytes);
    agree((got->type == REDIS_REPLY_STRING) == visit->after.stored, walk, turn, visit, "stored or not");
    if (len > 0) {
        agree(got->len == len, walk, turn, visit, "stored more or fewer bytes");
        memcpy(stored, got->str, len);
        const bool has_room = mirror_leave_room(stored, len);
        const int64_t room_ms = has_room ? mirror_room_ms(&visit->after.own.plan) : 0;
        agree(memcmp(stored, bytes, len) == 0, walk, turn, visit, "stored other bytes");
        agree(!has_room || walk->grace_ms == GRACE_MS, walk, turn, visit, "room by a caller's time");
        agree(life_ms > 0, walk, turn, visit, "lives for ever");
        int64_t *most_ms = &walk->seen[visit->key].most_ms;
        bool *returned = &walk->seen[visit->key].returned;
        *returned = walk->seen[visit->key].len > 0 && (*returned || has_return(visit));
        if (visit->written) {
            const int64_t before_ms = has_room && *returned ? *most_ms : 0;
            *most_ms = max_of(before_ms, visit->life_ms + room_ms + LATE_MS);
            agree(life_ms > visit->life_ms - 5000 && life_ms <= *most_ms, walk, turn, visit, "lives too long");
        }
        walk->with_room += has_room && visit->written;
    }
    if (!visit->written)
        agree(walk->seen[visit->key].len == len &&
                  (len == 0 || memcmp(walk->seen[visit->key].bytes, got->str, len) == 0),
              walk, turn, visit, "written though nothing changed");
    walk->seen[visit->key].len = len;
    if (len > 0)
        memcpy(walk->seen[visit->key].bytes, got->str, len);
}

static void turn_check_keys(struct walk *walk, const struct turn *turn)
{
    for (int i = 0; i < turn->n; i++) {
        redisReply *got = reply_next(&walk->scripts);
        redisReply *life = reply_next(&walk->scripts);
        check_stored(walk, turn, &turn->visits[i], got, life->integer);
        freeReplyObject(got);
        freeReplyObject(life);
    }
}

static void turn_check(struct walk *walk, struct turn *turn)
{
    redisReply *reply = reply_next(&walk->scripts);
    check_answer(walk, turn, reply);
    freeReplyObject(reply);
    turn_check_keys(walk, turn);
}

/* ---- Random walks ---- */

static void episode_begin(struct walk *walk)
{
    struct chance *chance = &walk->chance;
    freeReplyObject(ASK(&walk->scripts, "FLUSHALL"));
    walk->episode++;
    for (int i = 0; i < SLOTS; i++) {
        walk->plans[i][0] = plan_by_chance(chance, (i + walk->episode) % KIND_COUNT);
        for (int j = 1; j < PLANS; j++)
            walk->plans[i][j] = plan_beside(chance, &walk->plans[i][j - 1]);
        walk->current[i] = 0;
    }
    for (int i = 0; i < KEYS; i++) {
        walk->mirrors[i].stored = walk->mirrors[i].has_former = false;
        walk->seen[i].len = 0;
    }
    switch (chance_between(chance, 0, 5)) {
    case 0: walk->now_us = chance_between(chance, 0, 5 * WEIR_SECOND); break;
    case 1: walk->now_us = WEIR_MAX_TIME_US - chance_magnitude(chance, WEIR_MAX_FILL_US); break;
    default: walk->now_us = INT64_C(1790000000123456) + chance_between(chance, 0, WEIR_DAY);
    }
}

static void walk_open(struct walk *walk, uint64_t stream)
{
    memset(walk, 0, sizeof *walk);
    walk->chance = chance_make(stream);
    scripts_open(&walk->scripts);
}

static void walk_close(struct walk *walk, int64_t calls_least)
{
    for (int i = 0; i < REDIS_SCRIPT_COUNT; i++)
        must(walk->counts[i] >= calls_least || i == REDIS_SETTLE /* test_idle.c */ ||
                 i == REDIS_SLOTS /* the contract */ || (i == REDIS_BUCKET_SINGLE && walk->grace_ms != GRACE_MS),
             "hardly any call of some script: the test says little");
    must(walk->granted >= calls_least, "hardly anything was charged ahead: the test says little");
    must(walk->renewed[0] >= calls_least && walk->renewed[1] >= calls_least,
         "hardly any renewal: the test says little");
    must(walk->overdrawn >= calls_least / 10, "hardly any key was overdrawn: the test says little");
    must(walk->formers_in_all >= calls_least, "hardly any former state in all or nothing: the test says little");
    must(walk->with_origin >= calls_least, "hardly any state made from another: the test says little");
    must(walk->formers_alone >= calls_least / 10, "hardly any former state alone: the test says little");
    scripts_close(&walk->scripts);
}

static void must_have_met_formers(const struct walk *walk, int64_t least)
{
    for (int i = REDIS_TOKEN_BUCKET; i <= REDIS_SLIDING_WINDOW; i++)
        for (int j = REDIS_TOKEN_BUCKET; j <= REDIS_SLIDING_WINDOW; j++)
            must(walk->formers[i][j] >= least, "hardly any former state of some algorithm: the test says little");
}

/* Delete idle keys in Redis and in the mirror: their next decisions must be the same. */
static void forget_by_chance(struct walk *walk, const struct turn *turn)
{
    for (int i = 0; i < turn->n; i++) {
        const struct visit *visit = &turn->visits[i];
        struct mirror *mirror = &walk->mirrors[visit->key], kept, fresh = { .stored = false, .has_former = false };
        if (!mirror->stored || !chance_one_in(&walk->chance, 4) || mirror_fresh_at_us(mirror) > turn->now_us)
            continue;
        mirror_copy(&kept, mirror);
        mirror->stored = mirror->has_former = false;
        for (int j = 0; j < visit->n_items; j++) {
            struct weir_decision before, after;
            item_in_mirror(&kept, &visit->plan, &visit->items[j], turn->now_us, &before);
            item_in_mirror(&fresh, &visit->plan, &visit->items[j], turn->now_us, &after);
            if (memcmp(&before, &after, sizeof before) != 0)
                assert_decision_is(&after, &before, where(walk, turn, visit, "an idle key is not fresh"));
        }
        char name[32];
        key_name(walk, visit->key, name);
        words_send(&walk->scripts, 2, (const char *[]){ "DEL", name });
        walk->turns[turn - walk->turns].visits[i].stored = true;
    }
}

static void turns_play(struct walk *walk)
{
    for (int t = 0; t < IN_FLIGHT; t++) {
        struct turn *turn = &walk->turns[t];
        turn_by_chance(walk, turn);
        time_by_chance(walk, &turn->visits[0].plan);
        turn->now_us = walk->now_us;
        for (int i = 0; i < turn->n; i++)
            turn->visits[i].stored = false;
        forget_by_chance(walk, turn);
        turn_expect(walk, turn);
        turn_send(walk, turn, true);
    }
    for (int t = 0; t < IN_FLIGHT; t++) {
        struct turn *turn = &walk->turns[t];
        for (int i = 0; i < turn->n; i++)
            if (turn->visits[i].stored) {
                walk->seen[turn->visits[i].key].len = 0;
                freeReplyObject(reply_next(&walk->scripts));
            }
        turn_check(walk, turn);
    }
}

static int64_t requests_asked(void)
{
    return max_of(REQUESTS_LEAST, steps_or(REQUESTS));
}

TEST(scripts_decide_as_the_core_does, 60.0 + (double)requests_asked() / 5000)
{
    static struct walk walk;
    walk_open(&walk, 1);
    walk.grace_ms = GRACE_MS + WEEK_MS;
    int64_t steps = requests_asked();
    for (int64_t round = 0; walk.requests < steps; round++) {
        if (round % 25 == 0)
            episode_begin(&walk);
        turns_play(&walk);
    }
    must_have_met_formers(&walk, steps / 4000);
    walk_close(&walk, steps / 1000);
}

static int64_t clock_us(void)
{
    struct timeval time;
    gettimeofday(&time, NULL);
    return time.tv_sec * WEIR_SECOND + time.tv_usec;
}

/* A key that has expired in Redis since is idle. */
static void forget_expired(struct walk *walk, const struct turn *turn, const redisReply *reply)
{
    struct heard heard;
    agree(answer_read(turn, reply, &heard), walk, turn, &turn->visits[0], reply->str);
    size_t at = heard.at;
    for (int i = 0; i < turn->n && at < heard.len; i++) {
        const struct visit *visit = &turn->visits[i];
        struct mirror *mirror = &walk->mirrors[visit->key];
        if (reply->str[at] == 0 && mirror->stored && mirror_fresh_at_us(mirror) + WEIR_CLOCK_SLACK_US <= turn->now_us) {
            mirror->stored = mirror->has_former = false;
            walk->seen[visit->key].len = 0;
        }
        int64_t state[STATE_MAX_WORDS];
        enum redis_found found;
        struct origin origin;
        at += redis_origin_read((const unsigned char *)reply->str + at, heard.len - at, &origin);
        int len = redis_state_read(&visit->plan, (const unsigned char *)reply->str + at, heard.len - at, state, &found);
        agree(len > 0, walk, turn, visit, "found what is not a state");
        at += (size_t)len;
    }
}

TEST(without_a_given_time_scripts_decide_by_redis_time, 60.0 + (double)requests_asked() / 5000)
{
    static struct walk walk;
    walk_open(&walk, 2);
    walk.grace_ms = GRACE_MS;
    int64_t last_us = clock_us(), steps = requests_asked() / 20;
    for (int64_t round = 0; walk.requests < steps; round++) {
        struct turn *turn = &walk.turns[0];
        if (round % 500 == 0)
            episode_begin(&walk);
        walk.now_us = clock_us(); /* what is given back was charged about now */
        turn_by_chance(&walk, turn);
        turn_send(&walk, turn, false);
        redisReply *reply = reply_next(&walk.scripts);
        struct heard heard;
        agree(answer_read(turn, reply, &heard), &walk, turn, &turn->visits[0], reply->str);
        turn->now_us = heard.now_us;
        walk.in_short[heard.charged > 0] += heard.is_short;
        agree(turn->now_us >= last_us - WEIR_SECOND && turn->now_us <= clock_us() + WEIR_SECOND, &walk, turn,
              &turn->visits[0], "not the server's time");
        last_us = turn->now_us;
        forget_expired(&walk, turn, reply);
        turn_expect(&walk, turn);
        check_answer(&walk, turn, reply);
        freeReplyObject(reply);
        turn_check_keys(&walk, turn);
    }
    must(walk.with_room >= steps / 100, "hardly any key had room: the test says little");
    must(walk.in_short[0] >= steps / 2000 && walk.in_short[1] >= steps / 2000,
         "hardly any take was decided in short: the test says little");
    must(walk.settled >= steps / 1000, "hardly any settlement went by the shorter script: the test says little");
    walk_close(&walk, steps / 1000);
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    return suite_run(tests());
}
