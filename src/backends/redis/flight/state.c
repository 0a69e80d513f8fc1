/* state.c - plans, requests and states as the bytes that scripts read and return. */
#include "backends/redis/flight/state.h"

#include "core/algorithm/algorithm.h"
#include "core/algorithm/sliding_window.h"
#include "core/algorithm/top.h"
#include "core/ground/arith.h"

#include <assert.h>
#include <string.h>

enum redis_script_id redis_script_of(const struct weir_plan *plan)
{
    switch (plan->algorithm) {
    case WEIR_FIXED_WINDOW: return REDIS_FIXED_WINDOW;
    case WEIR_SLIDING_WINDOW: return REDIS_SLIDING_WINDOW;
    case WEIR_LEAKY_BUCKET: return REDIS_LEAKY_BUCKET;
    default: return plan->refill == WEIR_INTERVAL ? REDIS_INTERVAL_BUCKET : REDIS_TOKEN_BUCKET;
    }
}

/* ---- Numbers ---- */

unsigned char *redis_put_number(unsigned char *at, int bytes, int64_t value)
{
    assert(bytes == 8 || (value >= 0 && value >> (8 * bytes) == 0));
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)((uint64_t)value >> (8 * i));
    return at + bytes;
}

int64_t redis_get_number(const unsigned char **at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)(*at)[i] << (8 * i);
    *at += bytes;
    return (int64_t)value;
}

/* Write a number below 2^53 as a double, which scripts read faster than an integer. */
static unsigned char *put_double(unsigned char *at, int64_t value)
{
    assert(value >= 0 && value <= EXACT_MAX);
    const double number = (double)value;
    uint64_t bits;
    _Static_assert(sizeof number == sizeof bits, "a double as scripts read it");
    memcpy(&bits, &number, sizeof bits);
    for (int i = 0; i < 8; i++)
        at[i] = (unsigned char)(bits >> (8 * i));
    return at + 8;
}

/* ---- Writing ---- */

size_t redis_stamp_write(const struct weir_plan *plan, unsigned char out[REDIS_STAMP_MAX])
{
    static const char tags[] = { [REDIS_TOKEN_BUCKET] = 'T',
                                 [REDIS_LEAKY_BUCKET] = 'L',
                                 [REDIS_INTERVAL_BUCKET] = 'I',
                                 [REDIS_FIXED_WINDOW] = 'F',
                                 [REDIS_SLIDING_WINDOW] = 'S' };
    enum redis_script_id script = redis_script_of(plan);
    unsigned char *at = redis_put_number(out, 1, tags[script]);
    switch (script) {
    case REDIS_INTERVAL_BUCKET:
        at = redis_put_number(at, 1, plan->align);
        at = redis_put_number(at, 6, plan->limit);
        at = redis_put_number(at, 7, plan->period_us);
        break;
    case REDIS_FIXED_WINDOW:
        at = redis_put_number(at, 1, plan->align);
        at = redis_put_number(at, 7, plan->period_us);
        break;
    case REDIS_SLIDING_WINDOW:
        at = redis_put_number(at, 2, plan->blocks);
        at = redis_put_number(at, 7, plan->period_us);
        break;
    default:
        at = redis_put_number(at, 7, plan->p);
        at = redis_put_number(at, 7, plan->q);
        at = redis_put_number(at, 5, plan->tick_us);
    }
    return (size_t)(redis_put_number(at, 6, plan->size) - out);
}

void redis_item_write(unsigned char out[REDIS_ITEM_SIZE], int verb, bool more, int64_t cost, int64_t times)
{
    unsigned char *at = redis_put_number(out, 1, verb + (more ? REDIS_MORE : 0));
    at = redis_put_number(at, 7, cost);
    redis_put_number(at, 7, times);
}

/* If all items up to one are their keys' only items, that item's index is also its key's index. */
size_t redis_items_pack(unsigned char *bytes, size_t n)
{
    unsigned char *items = bytes + REDIS_COUNTS_SIZE;
    size_t same = 0, returns = 0;
    if (items[0] < REDIS_RETURN && items[0] != WEIR_RENEW)
        for (same = 1; same < n && memcmp(items + same * REDIS_ITEM_SIZE, items, REDIS_ITEM_SIZE) == 0; same++)
            ;
    while (same + returns < n && items[(same + returns) * REDIS_ITEM_SIZE] == REDIS_RETURN)
        returns++;
    redis_put_number(redis_put_number(bytes, 2, (int64_t)same), 2, (int64_t)returns);
    const size_t copies = same > 1 ? same - 1 : 0, others = (n - same - returns) * REDIS_ITEM_SIZE;
    unsigned char *noted = items + (same - copies) * REDIS_ITEM_SIZE, *rest = noted + returns * REDIS_RETURN_SIZE;
    memmove(noted, noted + copies * REDIS_ITEM_SIZE, (n - same) * REDIS_ITEM_SIZE);
    memmove(rest, noted + returns * REDIS_ITEM_SIZE, others);
    for (size_t i = returns; i-- > 0;) { /* from the last: each grows over the items behind it */
        const unsigned char *item = noted + i * REDIS_ITEM_SIZE + 1;
        const int64_t cost = redis_get_number(&item, 7), since_us = redis_get_number(&item, 7);
        put_double(put_double(noted + i * REDIS_RETURN_SIZE, cost), since_us);
    }
    return (size_t)(rest + others - bytes);
}

/* ---- One take from a bucket, or one settlement: lua/bucket_single.lua ---- */

/* Write the plan in half units, which a state with room has, or return false if they would be inexact. */
static bool plan_double(const struct weir_plan *plan, struct weir_plan *doubled)
{
    if (plan->p == 0 || plan->p > EXACT_MAX / 2 || mul_capped(plan->size, plan->q) > EXACT_MAX / 2)
        return false;
    *doubled = *plan;
    doubled->p *= 2;
    doubled->q *= 2;
    return true;
}

/* Return the microseconds of a block: `room` of lua/level.lua, by the same arithmetic. */
static int64_t level_room(int64_t full, int64_t drain)
{
    return (int64_t)((double)full / (double)drain / 4 + 1000000) + 1;
}

/* Write what every argument begins with, or return NULL if the script is not for this plan. */
static unsigned char *single_write(const struct weir_plan *plan, struct weir_plan *doubled, int64_t permits,
                                   const void *echo, unsigned char *out)
{
    if (plan->tick_us != 1 || !plan_double(plan, doubled))
        return NULL;
    const int64_t full = plan->size * doubled->q;
    unsigned char *at = out + redis_stamp_write(doubled, out);
    at = put_double(at, doubled->p);
    at = put_double(at, full);
    at = put_double(at, level_room(full, doubled->p) - 4);
    at = put_double(at, permits <= plan->size ? permits * doubled->q : full + 1);
    memcpy(at, echo, REDIS_ECHO_SIZE);
    return at + REDIS_ECHO_SIZE;
}

size_t redis_take_write(const struct weir_plan *plan, int64_t cost, const void *echo,
                        unsigned char out[REDIS_TAKE_SIZE])
{
    struct weir_plan doubled;
    return single_write(plan, &doubled, cost, echo, out) ? REDIS_TAKE_SIZE : 0;
}

size_t redis_settle_write(const struct weir_plan *plan, int64_t cost, int64_t since_us, const void *echo,
                          unsigned char out[REDIS_SETTLE_SIZE])
{
    struct weir_plan doubled;
    unsigned char *at = cost <= plan->size ? single_write(plan, &doubled, cost, echo, out) : NULL;
    if (!at)
        return 0;
    at = put_double(at, doubled.q);
    if (since_us > 0)
        at = put_double(at, since_us);
    return (size_t)(at - out);
}

void redis_ask_pack(int64_t permits, int64_t ago_us, const void *echo, unsigned char out[REDIS_ASK_SIZE])
{
    memcpy(redis_put_number(redis_put_number(out, 7, permits), 7, ago_us), echo, REDIS_ECHO_SIZE);
}

bool redis_left_read(const struct weir_plan *plan, const unsigned char bytes[REDIS_LEFT_SIZE], int64_t *state)
{
    const int64_t halves = redis_get_number(&bytes, 7), tick = redis_get_number(&bytes, 7);
    if (halves % 2 != 0 || halves / 2 > plan->size * plan->q || tick > WEIR_MAX_TIME_US)
        return false;
    state[0] = halves / 2;
    state[1] = tick;
    return true;
}

/* Return the number's digits; 0: there are none, or more than a time has. */
static size_t decimal_read(const unsigned char *bytes, size_t len, int64_t *number)
{
    size_t n = 0;
    *number = 0;
    for (; n < len && bytes[n] >= '0' && bytes[n] <= '9'; n++) {
        if (n == 15)
            return 0;
        *number = *number * 10 + (bytes[n] - '0');
    }
    return n;
}

bool redis_time_read(const unsigned char *text, size_t len, int64_t *now_us)
{
    int64_t seconds, micros;
    const size_t first = decimal_read(text, len, &seconds);
    if (first == 0 || first == len || text[first] != ' ')
        return false;
    const size_t second = decimal_read(text + first + 1, len - first - 1, &micros);
    if (second == 0 || first + 1 + second != len || seconds > WEIR_MAX_TIME_US / WEIR_SECOND || micros >= WEIR_SECOND)
        return false;
    *now_us = seconds * WEIR_SECOND + micros;
    return *now_us <= WEIR_MAX_TIME_US;
}

/* ---- Reading a stamp: the parts `plan` and `check` of lua/ ---- */

/* True if the stamp of a bucket says that the key has room in its time to live: see state.h. */
static bool plan_has_room(const struct weir_plan *plan)
{
    return plan->p > 0 && plan->p % 2 == 0 && plan->q % 2 == 0;
}

static bool level_stamp(const unsigned char *at, enum weir_algorithm algorithm, struct weir_plan *plan)
{
    plan->algorithm = (int32_t)algorithm;
    plan->p = redis_get_number(&at, 7);
    plan->q = redis_get_number(&at, 7);
    plan->tick_us = redis_get_number(&at, 5);
    plan->size = redis_get_number(&at, 6);
    const int64_t most = mul_capped(plan->size, plan->q);
    const bool is_sane = plan->p > 0 && plan->p <= EXACT_MAX && plan->tick_us > 0 && most > 0 && most <= EXACT_MAX &&
                         div_up(most, plan->p) <= WEIR_MAX_FILL_US / plan->tick_us;
    if (is_sane && plan_has_room(plan)) {
        plan->p /= 2;
        plan->q /= 2;
    }
    return is_sane;
}

static bool interval_stamp(const unsigned char *at, struct weir_plan *plan)
{
    plan->algorithm = WEIR_TOKEN_BUCKET;
    plan->refill = WEIR_INTERVAL;
    plan->align = (int32_t)redis_get_number(&at, 1);
    plan->limit = redis_get_number(&at, 6);
    plan->period_us = redis_get_number(&at, 7);
    plan->size = redis_get_number(&at, 6);
    return plan->align <= 1 && plan->limit > 0 && plan->period_us > 0 && plan->size > 0 &&
           div_up(plan->size, plan->limit) <= WEIR_MAX_FILL_US / plan->period_us;
}

static bool window_stamp(const unsigned char *at, enum weir_algorithm algorithm, struct weir_plan *plan)
{
    const bool slides = algorithm == WEIR_SLIDING_WINDOW;
    plan->algorithm = (int32_t)algorithm;
    if (slides)
        plan->blocks = (int32_t)redis_get_number(&at, 2);
    else
        plan->align = (int32_t)redis_get_number(&at, 1);
    plan->period_us = redis_get_number(&at, 7);
    plan->size = plan->limit = redis_get_number(&at, 6);
    return plan->period_us > 0 && plan->size > 0 && plan->align <= 1 &&
           plan->blocks <= (sliding_is_wide(plan) ? WEIR_MAX_WIDE_BLOCKS : WEIR_MAX_BLOCKS) &&
           (slides ? plan->blocks > 0 : true) && mul_capped(plan->blocks + 1, plan->period_us) <= WEIR_MAX_FILL_US;
}

size_t redis_stamp_read(const unsigned char *bytes, size_t len, struct weir_plan *plan)
{
    static const struct {
        char tag;
        uint8_t len;
    } stamps[] = { { 'T', 26 }, { 'L', 26 }, { 'I', 21 }, { 'F', 15 }, { 'S', 16 } };
    size_t kind = 0;
    while (kind < sizeof stamps / sizeof *stamps && (len == 0 || bytes[0] != stamps[kind].tag))
        kind++;
    if (kind == sizeof stamps / sizeof *stamps || len < stamps[kind].len)
        return 0;
    const unsigned char *at = bytes + 1;
    bool is_sane;
    *plan = (struct weir_plan){ 0 };
    switch (stamps[kind].tag) {
    case 'I': is_sane = interval_stamp(at, plan); break;
    case 'F': is_sane = window_stamp(at, WEIR_FIXED_WINDOW, plan); break;
    case 'S': is_sane = window_stamp(at, WEIR_SLIDING_WINDOW, plan); break;
    case 'L': is_sane = level_stamp(at, WEIR_LEAKY_BUCKET, plan); break;
    default: is_sane = level_stamp(at, WEIR_TOKEN_BUCKET, plan);
    }
    return is_sane ? stamps[kind].len : 0;
}

/* ---- Reading: each returns the length of the state's fields, or 0 if they are none ---- */

static size_t pair_state(const unsigned char *bytes, size_t len, int64_t most, int64_t latest, int64_t *state)
{
    if (len < REDIS_LEFT_SIZE)
        return 0;
    int64_t used = redis_get_number(&bytes, 7), anchor = redis_get_number(&bytes, 7);
    if (used < 1 || used > most || anchor > latest)
        return 0;
    state[0] = used;
    state[1] = anchor;
    return REDIS_LEFT_SIZE;
}

/* `bytes` begin with a stamp. Return true if it is the plan's with room. */
static bool stamp_has_room(const struct weir_plan *plan, const unsigned char *bytes)
{
    struct weir_plan doubled;
    unsigned char stamp[REDIS_STAMP_MAX];
    return plan_double(plan, &doubled) && memcmp(bytes, stamp, redis_stamp_write(&doubled, stamp)) == 0;
}

/* A bucket with room counts in half units, so an odd number of them is none of weir's. */
static size_t level_state(const struct weir_plan *plan, const unsigned char *bytes, size_t len, bool has_room,
                          int64_t *state)
{
    const int64_t halves = has_room ? 2 : 1;
    int64_t pair[2];
    const int64_t most = min_of(halves * state_top(plan), EXACT_MAX); /* a script cannot tell larger ones apart */
    const size_t state_len = pair_state(bytes, len, most, EXACT_MAX / plan->tick_us, pair);
    if (state_len == 0 || pair[0] % halves != 0)
        return 0;
    state[0] = pair[0] / halves;
    state[1] = pair[1];
    return state_len;
}

static size_t sliding_state(const struct weir_plan *plan, const unsigned char *bytes, size_t len, int64_t *state)
{
    if (len < 9)
        return 0;
    int64_t newest = redis_get_number(&bytes, 7), n = redis_get_number(&bytes, 2);
    const size_t width = sliding_is_wide(plan) ? 7 : 4;
    if (newest > EXACT_MAX / plan->period_us || n < 1 || n > plan->blocks + 1 || len < 9 + width * (size_t)n)
        return 0;
    const unsigned char *at = bytes;
    int64_t last = 0, sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += last = redis_get_number(&at, (int)width);
    if (last == 0 || sum > state_top(plan))
        return 0;
    memset(state, 0, state_words(plan) * sizeof *state);
    state[0] = newest;
    for (int64_t i = 0; i < n; i++)
        sliding_count_set(plan, state, i, redis_get_number(&bytes, (int)width));
    return 9 + width * (size_t)n;
}

size_t redis_origin_read(const unsigned char *bytes, size_t len, struct origin *out)
{
    int64_t words[ORIGIN_WORDS];
    if (len < REDIS_ORIGIN_SIZE || *bytes++ != 'O')
        return 0;
    for (size_t i = 0; i < ORIGIN_WORDS; i++)
        words[i] = redis_get_number(&bytes, 7);
    if (!origin_is_sound(words))
        return 0;
    memcpy(out, words, sizeof *out);
    return REDIS_ORIGIN_SIZE;
}

int redis_state_read(const struct weir_plan *plan, const unsigned char *bytes, size_t len, int64_t *state,
                     enum redis_found *found)
{
    if (len > 0 && bytes[0] <= 1) {
        *found = bytes[0] == 0 ? REDIS_FRESH : REDIS_FOREIGN;
        return 1;
    }
    unsigned char stamp[REDIS_STAMP_MAX];
    size_t stamp_len = redis_stamp_write(plan, stamp), state_len;
    if (len < stamp_len)
        return -1;
    const bool has_room = stamp_has_room(plan, bytes);
    if (!has_room && memcmp(bytes, stamp, stamp_len) != 0)
        return -1;
    bytes += stamp_len;
    len -= stamp_len;
    switch (redis_script_of(plan)) {
    case REDIS_INTERVAL_BUCKET:
    case REDIS_FIXED_WINDOW: state_len = pair_state(bytes, len, state_top(plan), EXACT_MAX, state); break;
    case REDIS_SLIDING_WINDOW: state_len = sliding_state(plan, bytes, len, state); break;
    default: state_len = level_state(plan, bytes, len, has_room, state);
    }
    if (state_len == 0 && (!has_room || len < REDIS_LEFT_SIZE))
        return -1;
    *found = state_len > 0 ? REDIS_STATE : REDIS_FOREIGN;
    return (int)(stamp_len + (state_len > 0 ? state_len : REDIS_LEFT_SIZE));
}
