/* decide.c - decides for one key: the short way (short.c), or else under its stripe's lock; and by on_full if the key
 * finds no room.
 *
 * The first admitted request of a key adds it; a denied one leaves no trace. The key goes when nothing in it is used
 * any more. */
#include "backends/machine/visit.h"

#include "core/ground/arith.h"
#include "core/limiter/limiter.h"
#include "core/limiter/overrides.h"
#include "core/limiter/request.h"

#include <inttypes.h>

#define DECIDE_SWEEPS 4 /* buckets swept by an insertion */

/* How a visit ended. */
struct end {
    enum room room;
    int64_t soonest_us; /* with ROOM_FULL: as stripe_make_room() says */
};

static bool is_worth_storing(const struct weir_backend_request *request, const struct weir_decision *decision)
{
    return request->verb != WEIR_REFUND && request->verb != WEIR_RESET && decision->allowed &&
           (request->cost > 0 || decision->ahead > 0);
}

/* Add a key whose first request was admitted; *out is that decision. Without room nothing was taken after all. */
static int decide_add(struct visit *visit, const int64_t *state, struct weir_decision *out, struct end *end)
{
    struct machine *machine = visit->machine;
    const struct page *page = visit->plan;
    int error = WEIR_OK;
    bool has_room;
    if (!machine->keep_idle)
        error = stripe_sweep(visit, visit->now_us - WEIR_CLOCK_SLACK_US, DECIDE_SWEEPS);
    if (!error)
        error = stripe_make_room(visit, cells_for(page->words, visit->len), true, &has_room, &end->soonest_us);
    if (error)
        return error;
    if (!has_room) {
        end->room = ROOM_FULL;
        if (machine->on_full != WEIR_FULL_ALLOW)
            out->reset_after_us = 0;
        return WEIR_OK;
    }
    stripe_note(visit->stripe, visit->now_us + out->reset_after_us);
    return visit_add(visit, visit->number, page, state, NULL);
}

/* Decide for a key that is not there. */
__attribute__((noinline)) static int decide_missing(struct visit *visit, struct weir_decision *out, struct end *end)
{
    int64_t state[STATE_MAX_WORDS];
    const struct weir_backend_request *request = visit->request;
    if (request->verb == WEIR_REFUND && request->ahead == 0 && visit->machine->on_full == WEIR_FULL_SHARE &&
        !visit->is_overflow) {
        end->room = ROOM_FULL; /* the permits may have come from the shared state */
        return WEIR_OK;
    }
    visit_decide_absent(request, &visit->plan->text.plan, state, out);
    if (!is_worth_storing(request, out))
        return WEIR_OK;
    if (request->verb != WEIR_PEEK)
        return decide_add(visit, state, out, end);
    bool has_room;
    const uint32_t cells = cells_for(visit->plan->words, visit->len);
    const int error = stripe_make_room(visit, cells, false, &has_room, &end->soonest_us);
    end->room = !error && !has_room ? ROOM_FULL : ROOM_OK;
    return error;
}

/* Decide for a key that is there. */
static int decide_found(struct visit *visit, struct weir_decision *out, struct end *end)
{
    const enum weir_verb verb = visit->request->verb;
    int error = WEIR_OK;
    if (verb == WEIR_RESET) {
        error = visit_remove(visit);
        return error ? error : decide_missing(visit, out, end);
    }
    if (__builtin_expect(visit->page != visit->plan, 0)) {
        if (verb == WEIR_PEEK)
            return visit_peek(visit, out);
        enum room room;
        error = visit_carry(visit, &room);
        if (!error && room == ROOM_FULL && verb == WEIR_TAKE) {
            end->room = ROOM_FULL;
            error = visit_peek(visit, out);
            if (!error && !out->allowed)
                end->room = ROOM_OK;
            return error;
        }
        if (error)
            return error;
        if (visit->first == 0)
            return decide_missing(visit, out, end);
    }
    return visit_decide(visit, out);
}

uint64_t machine_damages(const struct machine *machine)
{
    uint64_t damages = 0;
    for (uint64_t i = 0; i < machine->file.facts.stripes; i++)
        damages += atomic_load_explicit(&machine_stripe(machine, i)->damages, memory_order_relaxed);
    return damages;
}

void machine_tell(struct machine *machine)
{
    const uint64_t damages = machine_damages(machine);
    uint64_t told = atomic_load_explicit(&machine->told, memory_order_relaxed);
    if (damages != told && !guard_is_lost(machine->file.guard) &&
        atomic_compare_exchange_strong_explicit(&machine->told, &told, damages, memory_order_relaxed,
                                                memory_order_relaxed))
        log_line(&machine->log, WEIR_LOG_WARNING,
                 "shared: the file was found damaged, %" PRIu64 " times so far: states that cannot be right count as"
                 " used up, and keys that cannot be read begin anew; find out which program writes to it",
                 damages);
}

bool machine_is_gone(struct machine *machine)
{
    if (!file_is_gone(&machine->file))
        return false;
    if (!atomic_exchange_explicit(&machine->told_gone, true, memory_order_relaxed))
        log_line(&machine->log, WEIR_LOG_WARNING,
                 "shared: %s was removed or replaced while it is in use: processes that open it from now on count apart"
                 " from this one; restart all programs that use it, and see to it that nothing removes it (systemd does"
                 " unless RemoveIPC=no)",
                 machine->file.path);
    return true;
}

void machine_watch(struct machine *machine, int64_t now_us)
{
    const int64_t last_us = atomic_load_explicit(&machine->watched_us, memory_order_relaxed);
    if (now_us >= last_us && now_us - last_us < WATCH_EVERY_US)
        return;
    atomic_store_explicit(&machine->watched_us, now_us, memory_order_relaxed);
    machine_is_gone(machine);
}

int machine_lost(struct machine *machine)
{
    if (!atomic_exchange_explicit(&machine->told_lost, true, memory_order_relaxed))
        log_line(&machine->log, WEIR_LOG_ERROR,
                 "shared: the file was truncated while it was in use, or its disk fails: all calls fail now; stop the"
                 " programs that use it, remove it, and start them again");
    return WEIR_EIO;
}

/* Decide under the stripe's lock, which the caller has. */
static int decide_inside(struct visit *visit, struct weir_decision *out, struct end *end)
{
    *end = (struct end){ .soonest_us = INT64_MAX };
    const int error = visit_find(visit);
    if (error)
        return error;
    return visit->first ? decide_found(visit, out, end) : decide_missing(visit, out, end);
}

/* Decide for one key, whose stripe the caller has not locked. */
static int decide_locked(struct machine *machine, const struct weir_backend_request *request, bool is_overflow,
                         struct weir_decision *out, struct end *end)
{
    struct machine_stripe *stripe = machine_stripe_of(machine, request->hash);
    struct visit visit = { .machine = machine,
                           .stripe = stripe,
                           .limit = &request->limit->secret,
                           .request = request,
                           .now_us = request->now_us,
                           .len = request->key.len,
                           .is_overflow = is_overflow };
    for (int repairs = 0;;) {
        uint64_t turn;
        int error = book_number(&machine->book, request, &visit.number, &turn);
        if (error)
            return error;
        if (__builtin_expect(visit.number == 0, 0)) {
            end->room = ROOM_FULL;
            return WEIR_OK;
        }
        error = stripe_enter(machine, stripe);
        if (error)
            return error;
        if (__builtin_expect(book_file_turn(&machine->book) != turn, 0)) {
            book_renew(&machine->book);
            stripe_leave(stripe);
            continue;
        }
        visit.plan = book_page(&machine->book, visit.number);
        error = visit.plan ? decide_inside(&visit, out, end) : WEIR_ESTATE;
        const bool again = error == WEIR_ESTATE && repairs++ < 1;
        if (__builtin_expect(again, 0)) {
            const int failed = stripe_repair(machine, stripe);
            error = failed ? failed : error;
        }
        if (__builtin_expect(!error, 1))
            visit_leave(&visit);
        stripe_leave(stripe);
        if (__builtin_expect(again, 0))
            machine_tell(machine);
        if (!again || error != WEIR_ESTATE)
            return error == WEIR_ESTATE ? WEIR_EIO : error;
    }
}

/* ---- No room ---- */

struct weir_backend_request machine_overflow_request(const struct weir_backend_request *request,
                                                     uint64_t key[MACHINE_SHARED_KEY_WORDS])
{
    struct weir_backend_request shared = *request;
    const struct weir_limit *limit = request->limit;
    key[0] = limit->secret.k0; /* a key that no caller can name */
    key[1] = limit->secret.k1;
    key[2] = limit->override ? limit->override->hash : 0;
    shared.key = weir_key(key, MACHINE_SHARED_KEY_WORDS * sizeof *key);
    shared.hash = key_hash(limit, shared.key);
    shared.hint = NULL;
    return shared;
}

void machine_deny_full(const struct weir_backend_request *request, int64_t soonest_us, struct weir_decision *out)
{
    out->allowed = request->cost == 0;
    out->remaining = 0;
    out->ahead = 0;
    out->delay_us = 0;
    out->retry_after_us = out->allowed ? 0 : soonest_us == INT64_MAX ? 1 : max_of(1, soonest_us - request->now_us);
    out->source = WEIR_BY_FULL;
}

/* Decide what concerns a reservation that was made of the shared state, wherever the key is now. */
__attribute__((noinline)) static int decide_shared(struct machine *machine, const struct weir_backend_request *request,
                                                   struct weir_decision *out)
{
    uint64_t key[MACHINE_SHARED_KEY_WORDS];
    struct weir_backend_request shared = machine_overflow_request(request, key);
    struct end end;
    shared.ahead = request->verb == WEIR_CHARGE ? 0 : -request->ahead;
    const int error = decide_locked(machine, &shared, true, out, &end);
    if (error)
        return error;
    if (end.room == ROOM_FULL && request->verb == WEIR_RENEW)
        machine_deny_full(request, INT64_MAX, out);
    else if (end.room == ROOM_FULL)
        *out = (struct weir_decision){ .allowed = true, .ahead = request->verb == WEIR_CHARGE ? request->cost : 0 };
    out->source = WEIR_BY_FULL;
    return WEIR_OK;
}

/* Decide by on_full for a key that found no room; *out is as decide_locked() left it. */
__attribute__((noinline)) static int decide_full(struct machine *machine, const struct weir_backend_request *request,
                                                 struct end *end, struct weir_decision *out)
{
    int error = WEIR_OK;
    enum weir_on_full on_full = machine->on_full;
    if (request->verb == WEIR_TAKE)
        atomic_fetch_add_explicit(&machine->full, 1, memory_order_relaxed);
    if (on_full == WEIR_FULL_SHARE) {
        uint64_t key[MACHINE_SHARED_KEY_WORDS];
        const struct weir_backend_request shared = machine_overflow_request(request, key);
        struct end shared_end;
        error = decide_locked(machine, &shared, true, out, &shared_end);
        on_full = !error && shared_end.room == ROOM_FULL ? WEIR_FULL_DENY : on_full;
    }
    if (!error && request->verb == WEIR_CHARGE && on_full != WEIR_FULL_SHARE) { /* it can't be denied, only lost */
        out->source = WEIR_BY_FULL;
        out->ahead = request->cost;
        return WEIR_OK;
    }
    if (request->reservation && on_full != WEIR_FULL_SHARE)
        request->reservation->at_us = 0;
    if (!error && on_full == WEIR_FULL_DENY && (request->verb <= WEIR_PEEK || request->verb == WEIR_RENEW))
        machine_deny_full(request, end->soonest_us, out);
    else if (!error)
        out->source = WEIR_BY_FULL;
    return error;
}

/* Decide again for a limit whose plan found no room among the rules; forget some first. */
__attribute__((noinline)) static int decide_without_rule(struct machine *machine,
                                                         const struct weir_backend_request *request, struct end *end,
                                                         struct weir_decision *out)
{
    if (machine_forget_rules(machine)) {
        const int error = decide_locked(machine, request, false, out, end);
        if (error || end->room == ROOM_OK || end->soonest_us != 0)
            return error;
    }
    int64_t state[STATE_MAX_WORDS];
    struct weir_plan plan;
    weir_request_plan(request, &plan);
    visit_decide_absent(request, &plan, state, out);
    return WEIR_OK;
}

int machine_decide_one(struct machine *machine, const struct weir_backend_request *request, struct weir_decision *out)
{
    struct end end = { .soonest_us = 0 };
    if (__builtin_expect(request->ahead < 0, 0))
        return decide_shared(machine, request, out);
    if (__builtin_expect(machine_decide_short(machine, request, out), 1))
        return WEIR_OK;
    machine_watch(machine, request->now_us);
    int error = decide_locked(machine, request, false, out, &end);
    if (__builtin_expect(error || end.room == ROOM_OK, 1))
        return error;
    if (end.soonest_us == 0)
        error = decide_without_rule(machine, request, &end, out);
    return error || end.room == ROOM_OK ? error : decide_full(machine, request, &end, out);
}
