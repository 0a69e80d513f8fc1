/* settle_place.c - instances beside a shared store: see settle_place.h. */
#include "settle_place.h"

#include "core/outage/failure.h"
#include "core/outage/outage.h"

#include <stdio.h>

int64_t now_us;
const char *const ten = "token_bucket limit=10 period=10s";

static int64_t common_clock(void *user)
{
    return now_us;
}

void place_join(struct place *place, struct remote *remote, const struct weir_options *options, const char *policy)
{
    struct weir_options own = WEIR_OPTIONS_INIT;
    if (options)
        own = *options;
    own.now_us = common_clock;
    own.outage_cold = true;
    own.timeout_us = own.timeout_us ? own.timeout_us : 10 * WEIR_SECOND;
    if (!place->cable.remote)
        cable_init(&place->cable, remote);
    must_succeed(weir_open_backend(&own, &place->cable.base, &place->limiter));
    place->limit = limit_of(place->limiter, "limit", policy);
}

void place_leave(struct place *place)
{
    weir_close(place->limiter);
}

void cable_by(struct cable *cable, struct remote *remote, enum way way)
{
    cable_init(cable, remote);
    atomic_store(&cable->later, way == LATER);
    if (way == EAGER_TELLING || way == LAZY_TELLING)
        cable_tell_idle(cable, &now_us);
    if (way != EAGER && way != EAGER_TELLING)
        cable->ops.watch = NULL;
    if (way == LAZY || way == LAZY_TELLING) {
        cable->ops.submit = NULL;
        cable->ops.shut = NULL;
    }
}

struct place *place_open(enum way way, const struct weir_options *options, const char *policy)
{
    static struct place place;
    memset(&place, 0, sizeof place);
    now_us = INT64_C(1) << 40; /* a multiple of what an outage's beginning is rounded up to */
    remote_init(&place.remote);
    cable_by(&place.cable, &place.remote, way);
    place_join(&place, &place.remote, options, policy);
    return &place;
}

void place_close(struct place *place)
{
    weir_close(place->limiter);
    remote_free(&place->remote);
}

void place_end(struct place **place)
{
    place_close(*place);
}

struct weir_decision try_in(struct place *place, const char *key, int64_t cost)
{
    return taken(place->limit, key, cost);
}

void keys_admit(struct place *place, int count)
{
    for (int i = 0; i < count; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        must(try_in(place, key, 1).allowed, "time makes permits");
    }
}

void outage_admits(struct place *place, const char *key, int64_t wait_us, int64_t cost)
{
    cable_set(&place->cable, CABLE_CUT);
    struct weir_decision decision = try_in(place, key, 1);
    must(!decision.allowed && decision.source == WEIR_BY_FALLBACK, "an outage begins cold");
    now_us += wait_us;
    must(try_in(place, key, cost).allowed, "time makes permits");
}

void outage_passes(struct place *place, const char *key, int64_t wait_us, int64_t cost)
{
    outage_admits(place, key, wait_us, cost);
    cable_set(&place->cable, CABLE_WELL);
}

void __real_settle_outage_over(struct weir *limiter, uint32_t tag, int64_t since_us, int64_t until_us);
void __wrap_settle_outage_over(struct weir *limiter, uint32_t tag, int64_t since_us, int64_t until_us);

/* Check, in all tests, that an outage has ended before weir counts its permits. */
void __wrap_settle_outage_over(struct weir *limiter, uint32_t tag, int64_t since_us, int64_t until_us)
{
    struct outage_id outage;
    must(!outage_read(limiter, &outage), "what is admitted in the next outage is not counted to the one that ends");
    __real_settle_outage_over(limiter, tag, since_us, until_us);
}

/* ---- Submitted requests, and callers in threads ---- */

static void note_done(struct weir_op *op, int status)
{
    struct asked *asked = op->user;
    asked->done++;
    asked->status = status;
}

int submit_in(struct place *place, const char *key, struct asked *asked)
{
    memset(asked, 0, sizeof *asked);
    asked->op.request = (struct weir_request){ place->limit, weir_key_text(key), 1, 0 };
    asked->op.done = note_done;
    asked->op.user = asked;
    return weir_submit(place->limiter, &asked->op);
}

static void *caller_try(void *argument)
{
    struct caller *caller = argument;
    caller->error = weir_try(caller->place->limit, weir_key_text("a"), 1, &caller->decision);
    return NULL;
}

void caller_start(struct caller *caller, struct place *place)
{
    *caller = (struct caller){ .place = place };
    must(pthread_create(&caller->thread, NULL, caller_try, caller) == 0, "a thread");
}
