/* decide.h - the decisions of the memory backend, one key at a time or several as one step. */
#ifndef BACKENDS_MEMORY_DECIDE_H
#define BACKENDS_MEMORY_DECIDE_H

#include "backends/memory/table.h"
#include "core/algorithm/algorithm.h"
#include "core/ground/forks.h"
#include "core/limiter/own_ops.h"

#define SWEEP_STEPS 2 /* entries that an insertion, and each of several requests at once, tries for idle ones */
#define ROOM_TRIES 4  /* how often a new key makes room before it is turned away */

struct memory {
    struct weir_backend backend;
    enum weir_on_full on_full; /* (c) */
    bool keep_idle;            /* (c) */
    _Atomic uint64_t full;     /* (a) answers by on_full */
    struct table table;
    struct forks_watcher forks; /* forks.c's; told is NULL if it does not watch */
};

static inline int weir_error_of(enum table_error error)
{
    return error == TABLE_OK ? WEIR_OK : WEIR_ENOMEM;
}

/* As ops->decide(). */
int memory_decide(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                  int64_t deadline_us, struct weir_decision *out);

/* All or nothing; no lock is held. */
int memory_decide_all(struct memory *memory, const struct weir_backend_request *requests, size_t n,
                      struct weir_decision *out);

/* memory/debt.c: see struct own_ops. */
int64_t memory_debt(struct weir_backend *backend, const struct weir_backend_request *request);
int64_t memory_pay(struct weir_backend *backend, const struct weir_backend_request *request, int64_t permits);
bool memory_debtors(struct weir_backend *backend, uint32_t tag, uint64_t *place, size_t most,
                    bool (*visit)(void *user, uint32_t limit_id, struct weir_key key), void *user);

/* What both are made of. Entries are claimed throughout. */

/* Drop idle keys among the next `steps` entries of a shard; any of its entries may be gone then. */
void memory_sweep(struct memory *memory, struct shard *shard, int64_t now_us, unsigned steps) REQUIRES(shard->mutex);

/* The state of a key that is not there: fresh, or cold if the request stands in for a backend that failed. */
void missing_state(const struct weir_backend_request *request, const struct weir_plan *plan, int64_t *state);

/* Decide for a key that is not there; `state` is left as the decision makes it. */
void decide_absent(const struct weir_backend_request *request, const struct weir_plan *plan, int64_t *state,
                   struct weir_decision *out);

/* Decide for one that is, by the plan that it was written under. False: nothing is used in it any more, and it is gone.
 */
bool decide_entry(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                  struct entry *entry, struct weir_decision *out) REQUIRES(shard->mutex);

/* The same, asked by a peek. */
void peek_entry(struct memory *memory, const struct weir_backend_request *request, const struct entry *entry,
                struct weir_decision *out);

/* memory/carry.c: of entries that are, or have been, under another plan than their limit's. */

/* Bring an entry under the plan of the request's limit, as core/algorithm/former.c says, and let go of a former state in which
 * nothing is used. *entry may move, or become NULL if nothing is used in it. One that was written under a later plan
 * than the limit is seen to have is left there: late requests are decided by that rule's plan, too. TABLE_NO_MEMORY:
 * nothing changed. */
enum table_error carry_entry(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                             struct entry **entry) REQUIRES(shard->mutex);

/* A peek at an entry that is not known to be under the limit's plan: as if it were carried over. */
void peek_carried(struct memory *memory, const struct weir_backend_request *request, struct entry *entry,
                  struct weir_decision *out);

/* The state of an entry with a former one was changed by this decision; as decide_entry(). */
bool former_changed(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                    struct entry *entry, const struct weir_decision *decision) REQUIRES(shard->mutex);

/* All keys of a limit that find no room have this one in common; no caller's key is kept in the overflow shard. */
struct weir_backend_request overflow_request(const struct weir_backend_request *request);

/* The answer to a new key that would have been admitted, had there been room. No lock is held. */
enum table_error decide_full(struct memory *memory, const struct weir_backend_request *request, int64_t soonest_us,
                             struct weir_decision *out);

#endif
