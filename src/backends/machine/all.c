/* all.c - decides for a group in one step: all or nothing.
 *
 * It locks the stripes of all keys, in the order of their numbers. First each request peeks. If all are admitted and
 * there is room for the missing keys, each takes; otherwise none does. A process that dies among the takes has charged
 * some of them: no more than this one decision's cost. */
#include "backends/machine/visit.h"

#include "core/ground/arith.h"
#include "core/limiter/limiter.h"

enum all_room { ALL_HAS_ROOM, ALL_FULL, ALL_DENIED };

struct all {
    struct machine *machine;
    const struct weir_backend_request *requests;
    size_t n;
    uint32_t numbers[WEIR_MAX_ALL];
    uint8_t full[WEIR_MAX_ALL]; /* enum all_room: on_full decides for this request, or denies it */
    uint64_t keys[WEIR_MAX_ALL][3];
    uint64_t turn;
    int64_t soonest_us;
    size_t short_of; /* the first request that found no room; n: none */
};

/* Return the caller's request, or machine_overflow_request() of one that found no room. */
static struct weir_backend_request all_request(struct all *all, size_t i)
{
    return all->full[i] ? machine_overflow_request(&all->requests[i], all->keys[i]) : all->requests[i];
}

static struct machine_stripe *all_stripe(struct all *all, size_t i)
{
    const struct weir_backend_request request = all_request(all, i);
    return machine_stripe_of(all->machine, request.hash);
}

/* Return the next stripe of the group, in the order of their numbers; NULL: there is none. */
static struct machine_stripe *all_after(struct all *all, struct machine_stripe *last)
{
    struct machine_stripe *next = NULL;
    for (size_t i = 0; i < all->n; i++) {
        struct machine_stripe *stripe = all_stripe(all, i);
        if ((!last || stripe > last) && (!next || stripe < next))
            next = stripe;
    }
    return next;
}

/* Give back the locks of all stripes before `end`; NULL: of all. */
static void all_leave(struct all *all, const struct machine_stripe *end)
{
    for (struct machine_stripe *stripe = all_after(all, NULL); stripe && stripe != end; stripe = all_after(all, stripe))
        stripe_leave(stripe);
}

static int all_enter(struct all *all)
{
    int64_t patience_us = all->machine->patience_us;
    for (struct machine_stripe *stripe = all_after(all, NULL); stripe; stripe = all_after(all, stripe)) {
        const int error = stripe_enter_within(all->machine, stripe, &patience_us);
        if (error) {
            all_leave(all, stripe);
            return error;
        }
    }
    return WEIR_OK;
}

/* Look up the rules. *short_of tells of a request that found no room for its own. */
static int all_bind(struct all *all)
{
    for (size_t i = 0; i < all->n; i++) {
        uint64_t turn;
        const int error = book_number(&all->machine->book, &all->requests[i], &all->numbers[i], &turn);
        if (error)
            return error;
        if (i == 0)
            all->turn = turn;
        all->short_of = i;
        if (all->numbers[i] == 0 && all->full[i] == ALL_HAS_ROOM)
            return WEIR_OK;
    }
    all->short_of = all->n;
    return WEIR_OK;
}

/* Visit the key of a request, which `request` has room for. A request without a rule visits none. */
static int all_visit(struct all *all, size_t i, struct weir_backend_request *request, struct visit *visit)
{
    *request = all_request(all, i);
    *visit = (struct visit){ .machine = all->machine,
                             .stripe = machine_stripe_of(all->machine, request->hash),
                             .limit = &request->limit->secret,
                             .request = request,
                             .now_us = request->now_us,
                             .len = request->key.len,
                             .number = all->numbers[i],
                             .is_overflow = all->full[i] != ALL_HAS_ROOM };
    if (visit->number == 0)
        return WEIR_OK;
    visit->plan = book_page(&all->machine->book, visit->number);
    return visit->plan ? visit_find(visit) : WEIR_ESTATE;
}

/* Return the permits that earlier requests of the group take from the same shared state. */
static int64_t all_shared_before(const struct all *all, size_t i)
{
    int64_t cost = 0;
    for (size_t j = 0; all->full[i] && all->machine->on_full == WEIR_FULL_SHARE && j < i; j++)
        if (all->full[j] && all->requests[j].limit == all->requests[i].limit)
            cost += all->requests[j].cost;
    return cost;
}

static void all_decide_absent(const struct weir_backend_request *request, struct weir_decision *out)
{
    int64_t state[STATE_MAX_WORDS];
    struct weir_plan plan;
    weir_request_plan(request, &plan);
    visit_decide_absent(request, &plan, state, out);
}

/* Bring the key of a request under its plan, and peek. */
static int all_peek_one(struct all *all, size_t i, struct weir_decision *out)
{
    struct weir_backend_request request;
    struct visit visit;
    enum room room = ROOM_OK;
    int error = all_visit(all, i, &request, &visit);
    if (!error && visit.first && visit.page != visit.plan)
        error = visit_carry(&visit, &room);
    if (room == ROOM_FULL && all->short_of == all->n)
        all->short_of = i;
    request.verb = WEIR_PEEK;
    request.reservation = NULL;
    request.cost += all_shared_before(all, i);
    if (!error && visit.first)
        error = visit_peek(&visit, out);
    else if (!error)
        all_decide_absent(&request, out);
    if (!error && all->full[i] == ALL_DENIED)
        machine_deny_full(&request, all->soonest_us, out);
    else if (!error && all->full[i])
        out->source = WEIR_BY_FULL;
    return error;
}

/* Write the rebase of each state, if one is due: the only change that a denied request makes. */
static int all_rebase(struct all *all)
{
    int error = WEIR_OK;
    for (size_t i = 0; i < all->n && !error; i++) {
        struct weir_backend_request request;
        struct weir_decision never;
        struct visit visit;
        error = all_visit(all, i, &request, &visit);
        if (error || !visit.first)
            continue;
        request.cost = visit.page->text.plan.size + 1;
        request.reservation = NULL;
        error = visit_decide(&visit, &never);
    }
    return error;
}

/* Find room for all missing keys of request i's stripe. */
static int all_room_for(struct all *all, size_t i, bool *has_room)
{
    struct weir_backend_request request;
    struct visit visit;
    uint32_t cells = 0;
    struct machine_stripe *stripe = all_stripe(all, i);
    for (size_t j = 0; j < all->n; j++) {
        if (all_stripe(all, j) != stripe || (all->full[j] && all->machine->on_full == WEIR_FULL_ALLOW))
            continue;
        const int error = all_visit(all, j, &request, &visit);
        if (error)
            return error;
        if (!visit.first && visit.plan)
            cells += cells_for(visit.plan->words, visit.len);
    }
    int error = all_visit(all, i, &request, &visit);
    *has_room = cells == 0;
    if (!error && cells > 0)
        error = stripe_make_room(&visit, cells, true, has_room, &all->soonest_us);
    return error;
}

/* Find room for all missing keys; *short_of is a request that lacks it. */
static int all_make_room(struct all *all)
{
    for (size_t i = 0; i < all->n && all->short_of == all->n; i++) {
        bool has_room;
        const int error = all_room_for(all, i, &has_room);
        if (error)
            return error;
        if (!has_room)
            all->short_of = i;
    }
    return WEIR_OK;
}

/* Take. There is room, and all were admitted, so nothing can fail but a damaged stripe. */
static int all_take(struct all *all, struct weir_decision *out)
{
    int error = WEIR_OK;
    for (size_t i = 0; i < all->n && !error; i++) {
        int64_t state[STATE_MAX_WORDS];
        struct weir_backend_request request;
        struct visit visit;
        const uint8_t source = out[i].source;
        error = all_visit(all, i, &request, &visit);
        if (!error && visit.first) {
            error = visit_decide(&visit, &out[i]);
        } else if (!error && visit.plan && (all->full[i] == ALL_HAS_ROOM || all->machine->on_full == WEIR_FULL_SHARE)) {
            visit_decide_absent(&request, &visit.plan->text.plan, state, &out[i]);
            stripe_note(visit.stripe, visit.now_us + out[i].reset_after_us);
            error = visit_add(&visit, visit.number, visit.plan, state, NULL);
        } else if (!error) {
            all_decide_absent(&request, &out[i]);
            if (request.reservation)
                request.reservation->at_us = 0;
        }
        out[i].source = source;
    }
    return error;
}

/* Decide with all stripes locked. *short_of tells of missing room: nothing was taken then. */
static int all_decide(struct all *all, struct weir_decision *out)
{
    bool allowed = true;
    int error = WEIR_OK;
    for (size_t i = 0; i < all->n && !error; i++) {
        error = all_peek_one(all, i, &out[i]);
        allowed = allowed && !error && out[i].allowed;
    }
    if (!error && !allowed) {
        all->short_of = all->n;
        return all_rebase(all);
    }
    if (!error)
        error = all_make_room(all);
    return error || all->short_of < all->n ? error : all_take(all, out);
}

/* Release the keys that the group has visited. A damaged one stays held until it is repaired. */
static void all_release(struct all *all)
{
    for (size_t i = 0; i < all->n; i++) {
        struct weir_backend_request request;
        struct visit visit;
        if (all_visit(all, i, &request, &visit) == WEIR_OK)
            visit_leave(&visit);
    }
}

/* Repair all stripes of the group, because one of them is damaged. */
static int all_repair(struct all *all)
{
    int error = WEIR_OK;
    for (struct machine_stripe *stripe = all_after(all, NULL); stripe && !error; stripe = all_after(all, stripe))
        if (!stripe_check(all->machine, stripe))
            error = stripe_repair(all->machine, stripe);
    return error;
}

/* Count the decisions by on_full that mattered: all of them in an admission, the denying ones in a denial. */
static void all_count_full(const struct all *all, const struct weir_decision *out)
{
    uint64_t full = 0, denied = 0, full_denied = 0;
    for (size_t i = 0; i < all->n; i++) {
        full += all->full[i] != ALL_HAS_ROOM;
        denied += !out[i].allowed;
        full_denied += all->full[i] && !out[i].allowed;
    }
    atomic_fetch_add_explicit(&all->machine->full, denied > 0 ? full_denied : full, memory_order_relaxed);
}

/* Enter, decide and leave. WEIR_ESTATE: a stripe was damaged, and is whole now. */
static int all_turn(struct all *all, struct weir_decision *out, bool *is_late)
{
    int error = all_enter(all);
    if (error)
        return error;
    *is_late = book_file_turn(&all->machine->book) != all->turn;
    if (*is_late)
        book_renew(&all->machine->book);
    else
        error = all_decide(all, out);
    if (!error && !*is_late)
        all_release(all);
    const int failed = error == WEIR_ESTATE ? all_repair(all) : WEIR_OK;
    error = failed ? failed : error;
    all_leave(all, NULL);
    return error;
}

int machine_decide_all(struct machine *machine, const struct weir_backend_request *requests, size_t n,
                       struct weir_decision *out)
{
    struct all all = { .machine = machine, .requests = requests, .n = n, .soonest_us = INT64_MAX };
    for (int repairs = 0;;) {
        bool is_late = false;
        int error = all_bind(&all);
        if (error)
            return error;
        if (all.short_of == n || machine_forget_rules(machine)) {
            if (all.short_of < n)
                continue; /* some rules were forgotten */
            error = all_turn(&all, out, &is_late);
            if (is_late || (error == WEIR_ESTATE && repairs++ < 1))
                continue;
            if (error)
                return error == WEIR_ESTATE ? WEIR_EIO : error;
            if (all.short_of == n) {
                all_count_full(&all, out);
                return WEIR_OK;
            }
        }
        const bool is_denied = machine->on_full == WEIR_FULL_DENY || all.full[all.short_of] != ALL_HAS_ROOM ||
                               (machine->on_full == WEIR_FULL_SHARE && all.numbers[all.short_of] == 0);
        all.full[all.short_of] = is_denied ? ALL_DENIED : ALL_FULL;
    }
}
