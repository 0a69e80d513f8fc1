/* script_state.c - the scripts of lua/ with any bytes as a key's value, and any words as arguments.
 *
 * The input is a story: policies; stored values made of states, choices or damaged bytes; and calls at various times.
 * A plain reading of the same bytes (the layout of redis/flight/state.h, into a mirror) says what they are. Properties:
 *
 *     - no call ends in an error of Lua's, and only an invalid call is answered by an error, which changes nothing
 *     - the script accepts bytes as a state exactly if the plain reading does, which agrees with redis_state_read() on
 *       each state; other bytes and other types are reported and left alone
 *     - the mirror agrees with what the script returns, charges, stores, and gives as time to live
 */
#include "fuzz.h"
#include "plain_store.h"
#include "script_host.h"

#include "core/ground/arith.h"
#include "core/policy/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { PLANS = 3, ITEMS_MOST = 4, GRACE_MS = 2000, TOLD_GRACE_MS = 604802000 };

/* A key of the current call: its plain reading and the expected result. */
struct subject {
    int key;
    const struct weir_plan *plan;
    bool ours, written;
    bool found;
    int64_t found_state[STATE_MAX_WORDS];
    struct origin found_origin;
    struct mirror mirror;
};

static struct {
    struct feed feed;
    int64_t now_us;
    bool told; /* the call carries its time */
    struct weir_plan plans[PLANS];
    struct subject subjects[HOST_KEYS];
    int n;
} story;

/* ---- What is stored ---- */

static bool stored_read(const struct host_key *key, struct mirror *out)
{
    out->stored = out->has_former = false;
    return key->kind == HOST_NOTHING || (key->kind == HOST_STRING && plain_read(key->value, key->len, out));
}

static void charge_by_feed(struct under_plan *under)
{
    const int64_t since_us = feed_byte(&story.feed) & 1 ? feed_between(&story.feed, 0, WEIR_MAX_TIME_US)
                                                        : max_of(0, story.now_us - feed_byte(&story.feed) * 10000);
    under->plan = story.plans[feed_byte(&story.feed) % PLANS];
    state_charge(&under->plan, under->state, since_us, feed_magnitude(&story.feed, under->plan.size));
}

/* Change some bytes, and the length. */
static void damage(struct host_key *key)
{
    const int times = feed_byte(&story.feed) % 4;
    for (int i = 0; i < times && key->len > 0; i++) {
        const size_t at = (size_t)feed_between(&story.feed, 0, (int64_t)key->len - 1);
        key->value[at] = feed_byte(&story.feed);
    }
    const uint8_t end = feed_byte(&story.feed);
    if (end >= 240)
        key->len -= (size_t)min_of((int64_t)key->len, end - 239);
    else if (end >= 224)
        for (int i = 224; i <= end && key->len < HOST_VALUE_MAX; i++)
            key->value[key->len++] = feed_byte(&story.feed);
}

static void store_by_feed(struct host_key *key)
{
    static struct mirror made;
    const uint8_t choice = feed_byte(&story.feed);
    size_t len;
    key->kind = HOST_STRING;
    switch (choice % 8) {
    case 0: key->kind = HOST_NOTHING; return;
    case 1: {
        char *bytes = feed_bytes(&story.feed, 255, &len);
        memcpy(key->value, bytes, len);
        key->len = len;
        free(bytes);
        return;
    }
    case 2: key->kind = choice / 8 == 0 ? HOST_LIST : HOST_STRING; break;
    default: break;
    }
    made.stored = true;
    made.has_former = choice & 64;
    charge_by_feed(&made.own);
    if (made.has_former)
        charge_by_feed(&made.former);
    made.until_us = min_of(EXACT_MAX, story.now_us + feed_magnitude(&story.feed, WEIR_HOUR));
    if (made.has_former && choice & 128)
        state_charge(&made.own.plan, made.own.state, 0, 0);
    key->len = mirror_bytes(&made, key->value);
    key->life_ms = 0;
    if (choice & 8)
        damage(key);
}

/* ---- Calls ---- */

/* Move the clock. A key whose life is over by then, which Redis would drop, stays as one of unknown life. */
static void move_clock(void)
{
    const uint8_t choice = feed_byte(&story.feed);
    int64_t by_us = 0;
    switch (choice % 8) {
    case 0: by_us = feed_magnitude(&story.feed, 366 * WEIR_DAY); break;
    case 1: by_us = feed_byte(&story.feed); break;
    case 2: by_us = 100000 * feed_byte(&story.feed); break;
    case 3: by_us = -feed_magnitude(&story.feed, WEIR_CLOCK_SLACK_US + 1); break;
    case 4: by_us = -feed_magnitude(&story.feed, WEIR_MAX_PERIOD_US); break;
    case 5: by_us = feed_between(&story.feed, 0, WEIR_MAX_TIME_US) - story.now_us; break;
    default: break;
    }
    story.now_us = max_of(0, min_of(story.now_us + by_us, WEIR_MAX_TIME_US));
    for (int i = 0; i < HOST_KEYS; i++)
        if (host_keys[i].life_from_us > 0 && (story.now_us - host_keys[i].life_from_us) / 1000 >= host_keys[i].life_ms)
            host_keys[i].life_ms = 0;
}

/* The words after the fingerprints: the items, which end in an echo, and perhaps the time. */
struct tail {
    unsigned char items[REDIS_COUNTS_SIZE + 2 * HOST_KEYS * ITEMS_MOST * REDIS_RETURN_SIZE + REDIS_ECHO_SIZE];
    size_t len; /* of the items; tail_end() puts their word together */
    char time[24];
};

static void tail_end(struct tail *tail, bool packs)
{
    if (packs) {
        memmove(tail->items + REDIS_COUNTS_SIZE, tail->items, tail->len);
        tail->len = redis_items_pack(tail->items, tail->len / REDIS_ITEM_SIZE);
    }
    memcpy(tail->items + tail->len, "echo", REDIS_ECHO_SIZE);
    tail->len += REDIS_ECHO_SIZE;
    snprintf(tail->time, sizeof tail->time, "%" PRId64, story.now_us);
    host_now_us = story.told ? 0 : story.now_us;
}

static void put_item(struct tail *tail, int verb, bool more, int64_t cost, int64_t times)
{
    redis_item_write(tail->items + tail->len, verb, more, cost, times);
    tail->len += REDIS_ITEM_SIZE;
}

/* Choose the keys of a call, and read what is stored for them. */
static void begin_call(int n, const struct weir_plan *plan)
{
    const int first = feed_byte(&story.feed) % HOST_KEYS;
    story.n = n;
    for (int i = 0; i < n; i++) {
        struct subject *subject = &story.subjects[i];
        subject->key = (first + i) % HOST_KEYS;
        subject->plan = plan ? plan : &story.plans[feed_byte(&story.feed) % PLANS];
        subject->written = false;
        subject->ours = stored_read(&host_keys[subject->key], &subject->mirror);
        subject->found = subject->ours && mirror_found(&subject->mirror, subject->plan, story.now_us,
                                                       subject->found_state, &subject->found_origin);
        host_keys[subject->key].writes = host_keys[subject->key].lives = 0;
    }
}

/* Add a return or a renewal; return what it charges. */
static int64_t return_by_feed(struct tail *tail, struct subject *subject, bool more, bool renews, int64_t cost)
{
    struct weir_decision decision;
    const int64_t since_us = feed_byte(&story.feed) & 1
                                 ? feed_between(&story.feed, 1, WEIR_MAX_TIME_US)
                                 : max_of(1, story.now_us - feed_magnitude(&story.feed, WEIR_HOUR));
    put_item(tail, renews ? WEIR_RENEW : REDIS_RETURN, more, cost, since_us);
    if (!subject->ours)
        return 0;
    subject->written |= (renews ? mirror_renew : mirror_return)(&subject->mirror, subject->plan, cost, since_us,
                                                                story.now_us, &decision);
    return renews && decision.allowed ? cost : 0;
}

/* Add one item of a key, or the two of a charge in advance; return what it charges. */
static int64_t item_by_feed(struct tail *tail, struct subject *subject, bool more)
{
    static const enum weir_verb verbs[] = { WEIR_TAKE, WEIR_TAKE, WEIR_TAKE, WEIR_PEEK, WEIR_REFUND, WEIR_RESET };
    const uint8_t choice = feed_byte(&story.feed);
    enum weir_verb verb = verbs[choice % 6];
    int64_t cost = feed_magnitude(&story.feed, WEIR_MAX_PERMITS), charged = 0;
    struct weir_decision decision;
    if (choice >= 192) {
        const int64_t ahead = feed_magnitude(&story.feed, WEIR_MAX_PERMITS), spread = feed_byte(&story.feed) + 1;
        cost = choice & 8 ? 0 : cost;
        if (cost > 0)
            put_item(tail, WEIR_TAKE, true, cost, 1);
        put_item(tail, cost > 0 ? REDIS_LEASE_IF_TAKEN : REDIS_LEASE, more, ahead, spread);
        if (!subject->ours)
            return 0;
        subject->written |= mirror_take_ahead(&subject->mirror, subject->plan, cost, ahead, (uint32_t)spread,
                                              story.now_us, &decision);
        return decision.allowed ? cost + decision.ahead : 0;
    }
    if (verb == WEIR_REFUND && choice & 32)
        return return_by_feed(tail, subject, more, choice & 64, cost);
    if (verb == WEIR_RESET)
        cost = 1;
    const int64_t times = choice >= 160 ? feed_byte(&story.feed) + 1 : 1;
    put_item(tail, (int)verb, more, cost, times);
    for (int64_t i = 0; subject->ours && i < times; i++) {
        subject->written |= mirror_decide(&subject->mirror, subject->plan, verb, cost, story.now_us, &decision);
        charged += verb == WEIR_TAKE && decision.allowed ? cost : 0;
    }
    return charged;
}

static void expect_found(const struct subject *subject, const struct host_answer *answer, size_t end, size_t *at)
{
    int64_t state[STATE_MAX_WORDS];
    enum redis_found found;
    struct origin origin = { 0 };
    *at += redis_origin_read((const unsigned char *)answer->bytes + *at, end - *at, &origin);
    const int len = redis_state_read(subject->plan, (const unsigned char *)answer->bytes + *at, end - *at, state,
                                     &found);
    fuzz_must(len > 0, "the answer holds what a script may find");
    fuzz_must(subject->ours || found == REDIS_FOREIGN, "what is not a state is foreign");
    fuzz_must(!subject->ours || found != REDIS_FOREIGN, "what is a state is not foreign");
    fuzz_must(!subject->ours || subject->found == (found == REDIS_STATE), "what is fresh is fresh");
    fuzz_must(!subject->found || memcmp(state, subject->found_state, state_words(subject->plan) * sizeof *state) == 0,
              "the state that is found is the one that is there");
    *at += (size_t)len;
}

/* Compute what is stored now, and its time to live. */
static void expect_stored(struct subject *subject)
{
    static unsigned char bytes[MIRROR_BYTES_MAX], value[HOST_VALUE_MAX];
    const struct host_key *key = &host_keys[subject->key];
    if (!subject->ours) {
        fuzz_must(key->writes == 0, "what is not ours is left alone");
        return;
    }
    const size_t len = mirror_bytes(&subject->mirror, bytes);
    fuzz_must(subject->written || key->writes == 0, "a denial and a peek write nothing");
    fuzz_must(key->writes <= 1, "a key is written once");
    fuzz_must((key->kind == HOST_STRING) == subject->mirror.stored, "a state is stored exactly where one is left");
    if (!subject->mirror.stored)
        return;
    memcpy(value, key->value, key->len);
    const bool has_room = mirror_leave_room(value, key->len) && !story.told;
    fuzz_must(key->len == len && (!subject->written || memcmp(value, bytes, len) == 0),
              "the state that is stored is the mirror's");
    if (key->writes == 0 || key->life_ms == 0 || (key->life_from_us == 0 && !story.told)) /* by another clock */
        return;
    /* SETRANGE keeps the life that PSETEX gave. That may be long, because a return makes the key idle earlier, even
     * before now, and leaves the life as it is. */
    const bool is_new = key->lives > 0;
    const int64_t passed_us = story.told ? 0 : story.now_us - key->life_from_us;
    const int64_t life_us = key->life_ms * 1000 - passed_us;
    const int64_t idle_us = mirror_fresh_at_us(&subject->mirror) - story.now_us;
    const int64_t grace_ms = story.told ? TOLD_GRACE_MS : GRACE_MS;
    const int64_t least_us = (is_new ? max_of(0, idle_us) : idle_us) + 1000 * grace_ms;
    const int64_t room_us = has_room ? 1000 * mirror_room_ms(subject->plan) : 0;
    fuzz_must(life_us > least_us - 1000 && (!is_new || life_us <= least_us + 2000 + room_us),
              "it lives %" PRId64 " us, until it is fresh in %" PRId64 " us", life_us, idle_us);
}

/* Where an answer has the states, and what it says before them. */
struct heard {
    int64_t now_us, charged;
    size_t at, end; /* the rest is what it repeats of the call */
    bool leaves;    /* it has no state that was met */
};

/* Make the call by bucket_single if that script is for it; false: it is not, and no call is made. */
static bool call_single(const struct tail *tail, struct host_answer *answer, struct heard *heard)
{
    unsigned char argument[REDIS_SETTLE_SIZE];
    const unsigned char *item = tail->items + REDIS_COUNTS_SIZE;
    const bool returns = plain_number(tail->items + 2, 2) == 1;
    const size_t size = returns ? REDIS_RETURN_SIZE : REDIS_ITEM_SIZE;
    if (story.told || story.n != 1 || tail->len != REDIS_COUNTS_SIZE + size + REDIS_ECHO_SIZE || story.now_us % 4 == 0)
        return false;
    const int64_t cost = returns ? plain_double(item) : plain_number(item + 1, 7);
    const int64_t times = returns ? plain_double(item + 8) : plain_number(item + 8, 7);
    const bool takes = !returns && item[0] == WEIR_TAKE;
    if (!returns && !(takes && times == 1))
        return false;
    const struct subject *subject = &story.subjects[0];
    const unsigned char *echo = item + size;
    const size_t len = takes ? redis_take_write(subject->plan, cost, echo, argument)
                             : redis_settle_write(subject->plan, cost, times, echo, argument);
    if (len == 0)
        return false;
    *answer = host_call(REDIS_BUCKET_SINGLE, &subject->key, 1, &(struct host_word){ argument, len }, 1);
    const unsigned char *bytes = (const unsigned char *)answer->bytes;
    if (answer->is_error || answer->len <= REDIS_ECHO_SIZE)
        return true;
    if (answer->len == REDIS_LEFT_SIZE + REDIS_ECHO_SIZE) {
        int64_t state[STATE_MAX_WORDS];
        const int64_t *expected = subject->mirror.own.state;
        /* A state that is empty has no time; and a return does not ask the time, but tells that of the last change. */
        fuzz_must(redis_left_read(subject->plan, bytes, state) && state[0] == expected[0] &&
                      (state[0] == 0 || state[1] == expected[1]),
                  "the state that is left is the mirror's");
        *heard = (struct heard){ takes ? state[1] : story.now_us, takes ? cost : 0, REDIS_LEFT_SIZE, REDIS_LEFT_SIZE,
                                 true };
    } else if (redis_denial_is_short(bytes, answer->len - REDIS_ECHO_SIZE)) {
        *heard = (struct heard){ .end = REDIS_BUCKET_STATE_SIZE };
        fuzz_must(redis_time_read(bytes + heard->end, answer->len - REDIS_ECHO_SIZE - heard->end, &heard->now_us),
                  "a short denial ends with the time");
    }
    return true;
}

static void make_call(enum redis_script_id script, const struct tail *tail, int64_t charged)
{
    unsigned char stamps[HOST_KEYS][REDIS_STAMP_MAX];
    struct host_word words[HOST_WORDS];
    int keys[HOST_KEYS], n = 0;
    for (int i = 0; i < story.n; i++) {
        keys[i] = story.subjects[i].key;
        if (i == 0 || script == REDIS_TRY_ALL)
            words[n++] = (struct host_word){ stamps[i], redis_stamp_write(story.subjects[i].plan, stamps[i]) };
    }
    words[n++] = (struct host_word){ tail->items, tail->len };
    if (story.told)
        words[n++] = (struct host_word){ tail->time, strlen(tail->time) };
    struct host_answer answer;
    struct heard heard = { .end = 0 };
    if (script == REDIS_TRY_ALL || !call_single(tail, &answer, &heard))
        answer = host_call(script, keys, story.n, words, n);
    fuzz_must(!answer.is_error, "%s: %s", redis_scripts[script].name, answer.bytes);
    if (heard.end == 0) {
        fuzz_must(answer.len > REDIS_HEAD_SIZE + REDIS_ECHO_SIZE, "it has a head and an end");
        heard = (struct heard){ plain_number((const unsigned char *)answer.bytes, 7),
                                plain_number((const unsigned char *)answer.bytes + 7, 7), REDIS_HEAD_SIZE,
                                answer.len - REDIS_ECHO_SIZE, false };
    }
    fuzz_must(heard.now_us == story.now_us, "it tells the time");
    for (int i = 0; i < story.n && !heard.leaves; i++)
        expect_found(&story.subjects[i], &answer, heard.end, &heard.at);
    fuzz_must(heard.at == heard.end &&
                  memcmp(answer.bytes + answer.len - REDIS_ECHO_SIZE, "echo", REDIS_ECHO_SIZE) == 0,
              "it ends in the echo");
    fuzz_must(heard.charged == charged, "it charges %" PRId64, charged);
    for (int i = 0; i < story.n; i++)
        expect_stored(&story.subjects[i]);
}

static void call_each(uint8_t choice)
{
    struct tail tail = { .len = 0 };
    const struct weir_plan *plan = &story.plans[choice % PLANS];
    int64_t charged = 0;
    begin_call(choice / 16 % HOST_KEYS + 1, plan);
    for (int i = 0; i < story.n; i++) {
        const int items = choice & 128 ? feed_byte(&story.feed) % ITEMS_MOST + 1 : 1;
        for (int j = 0; j < items; j++)
            charged += item_by_feed(&tail, &story.subjects[i], j + 1 < items);
    }
    tail_end(&tail, true);
    make_call(redis_script_of(plan), &tail, charged);
}

static void call_all(uint8_t choice)
{
    struct tail tail = { .len = 0 };
    struct mirror *mirrors[HOST_KEYS];
    struct weir_plan plans[HOST_KEYS];
    int64_t costs[HOST_KEYS], charged = 0;
    bool written[HOST_KEYS], ours = true;
    begin_call(choice / 16 % HOST_KEYS + 1, NULL);
    for (int i = 0; i < story.n; i++) {
        struct subject *subject = &story.subjects[i];
        mirrors[i] = &subject->mirror;
        plans[i] = *subject->plan;
        costs[i] = feed_magnitude(&story.feed, WEIR_MAX_PERMITS);
        charged += costs[i];
        ours = ours && subject->ours;
        put_item(&tail, WEIR_TAKE, false, costs[i], 1);
    }
    tail_end(&tail, false);
    if (!ours || !mirror_try_all(mirrors, plans, costs, (size_t)story.n, story.now_us, written))
        charged = 0;
    for (int i = 0; ours && i < story.n; i++)
        story.subjects[i].written = written[i];
    make_call(REDIS_TRY_ALL, &tail, charged);
}

/* Send words that weir never sends: the script refuses them, or acts as if they were valid. */
static void call_wrongly(uint8_t choice)
{
    char *bytes[HOST_WORDS];
    struct host_word words[HOST_WORDS];
    unsigned char stamp[REDIS_STAMP_MAX];
    static const int keys[HOST_KEYS] = { 0, 1, 2, 3 };
    const struct weir_plan *plan = &story.plans[choice % PLANS];
    const enum redis_script_id script = choice & 128  ? REDIS_TRY_ALL
                                        : choice & 32 ? REDIS_BUCKET_SINGLE
                                                      : redis_script_of(plan);
    const int n = feed_byte(&story.feed) % HOST_WORDS;
    for (int i = 0; i < HOST_KEYS; i++)
        host_keys[i].writes = 0;
    for (int i = 0; i < n; i++) {
        size_t len;
        bytes[i] = feed_bytes(&story.feed, 80, &len);
        if (script == REDIS_BUCKET_SINGLE &&
            (len == REDIS_TAKE_SIZE || len == REDIS_CHARGE_SIZE || len == REDIS_SETTLE_SIZE))
            len--; /* the script trusts an argument of such a length */
        words[i] = (struct host_word){ bytes[i], len };
    }
    if (n > 0 && choice & 64)
        words[0] = (struct host_word){ stamp, redis_stamp_write(plan, stamp) };
    if (n > 1 && words[1].len >= REDIS_COUNTS_SIZE)
        bytes[1][2] = bytes[1][3] = 0; /* and the numbers of returns */
    host_now_us = story.now_us;
    const struct host_answer answer = host_call(script, keys, choice / 8 % HOST_KEYS + 1, words, n);
    fuzz_must(!answer.is_error || strncmp(answer.bytes, "WEIR ", 5) == 0, "it is refused by the script: %s",
              answer.bytes);
    fuzz_must(answer.is_error || answer.len >= REDIS_HEAD_SIZE + REDIS_ECHO_SIZE, "or has an answer");
    for (int i = 0; i < HOST_KEYS; i++)
        fuzz_must(!answer.is_error || host_keys[i].writes == 0, "what is refused has changed nothing");
    for (int i = 0; i < n; i++)
        free(bytes[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    story.feed = feed_of(data, size);
    story.now_us = INT64_C(1790000000123456);
    for (int i = 0; i < PLANS; i++) {
        const struct weir_policy policy = feed_policy(&story.feed);
        if (weir_policy_check(&policy, NULL, 0) != WEIR_OK ||
            plan_make(&policy, &share_whole, &story.plans[i], (struct message){ NULL, 0 }) != WEIR_OK)
            return 0;
    }
    for (int i = 0; i < HOST_KEYS; i++)
        store_by_feed(&host_keys[i]);
    while (!feed_is_over(&story.feed)) {
        const uint8_t choice = feed_byte(&story.feed);
        story.told = choice & 8;
        move_clock();
        switch (choice % 8) {
        case 0:
        case 1:
        case 2: call_all(choice); break;
        case 3: call_wrongly(choice); break;
        case 4: store_by_feed(&host_keys[choice / 8 % HOST_KEYS]); break;
        default: call_each(choice);
        }
    }
    host_tidy();
    return 0;
}
