/* health.h - what an engine knows about its server: the gate, the doubts, the counts, and what the log says of them.
 *
 * All functions may run on any thread.
 */
#ifndef BACKENDS_REDIS_ENGINE_HEALTH_H
#define BACKENDS_REDIS_ENGINE_HEALTH_H

#include "backends/redis/engine/engine.h"

/* Keep the words for the next weir_ping(). */
void redis_note(const struct redis_config *config, const char *format, ...) __attribute__((format(printf, 2, 3)));

void redis_engine_set_gate(struct redis_engine *engine, enum redis_gate gate);

static inline bool redis_engine_is_down(const struct redis_engine *engine)
{
    return atomic_load_explicit(&engine->gate, memory_order_acquire) == REDIS_GATE_DOWN;
}

/* An answer was late. After REDIS_BREAK_TIMEOUTS in a row, close the gate. */
void redis_engine_late(struct redis_engine *engine);

/* Count a timeout and return why to close the connection. `by_replicas`: they were late, and the server is healthy.
 * `blame`: otherwise, count the answer as late. */
const char *redis_engine_timed_out(struct redis_engine *engine, bool by_replicas, bool blame);

/* Note how a request has ended, as evidence of the server's health. A server that refuses to charge may still
 * answer denials and peeks, so only a charge proves that it has recovered. */
void redis_engine_failed(struct redis_engine *engine);
void redis_engine_decided(struct redis_engine *engine, bool has_charged);

static inline void redis_engine_ended(struct redis_engine *engine, const struct redis_flight_request *aboard,
                                      int status)
{
    const struct weir_decision *decision = &aboard->decision;
    const enum weir_verb verb = aboard->request.verb;
    if (status == WEIR_ETIME && !aboard->changed)
        redis_note(engine->config, "redis cannot be used: no answer in time");
    if (status == WEIR_EIO || status == WEIR_EIO_UNDONE || status == WEIR_ETIME)
        redis_engine_failed(engine);
    else if (status == WEIR_OK && atomic_load_explicit(&engine->doubt_us, memory_order_relaxed) != 0)
        redis_engine_decided(engine, verb == WEIR_TAKE ? decision->allowed || decision->ahead > 0 : verb != WEIR_PEEK);
}

/* The time at which the I/O thread calls redis_engine_retry(), INT64_MAX: never. That reports a server that has refused
 * writes as back, also once after a connection: a refusal may reach the core after the report. */
int64_t redis_engine_retry_us(const struct redis_engine *engine);
void redis_engine_retry(struct redis_engine *engine);

/* Write a flight to this link and send what the link takes now. False: out of memory, and the link is closed. On the
 * thread that works the link. */
bool redis_engine_take_off(struct redis_engine *engine, struct redis_flight *flight, struct redis_link *link);

/* A flight has landed: note what its answers say about the server, and log an error or missing replicas, at most one
 * line a second each. The link's thread handles flight->read_only. */
void redis_engine_landed(struct redis_engine *engine, const struct redis_flight *flight);

/* True if a line that may come once a second is due; *at_us, its last time, is then set to now. */
bool redis_line_is_due(_Atomic int64_t *at_us);

/* Log, at most once a second, why a lane's connection was lost with requests under way. */
void redis_engine_say_lost(struct redis_engine *engine, const char *reason);

/* Implement ops->reachable_us(), ops->well_us() and ops->stats(). */
int64_t redis_engine_reachable_us(const struct redis_engine *engine);
int64_t redis_engine_well_us(const struct redis_engine *engine);
void redis_engine_stats(const struct redis_engine *engine, struct weir_stats *add);

#endif
