/* visit.h - the machine backend, and a request's visit to its key under the stripe's lock.
 *
 * The files build on one another in this order, each on those above it:
 *
 *     layout.h    what is in the file
 *     file.c      makes, checks, maps and shares it
 *     lock.h      a lock that outlives its owner
 *     journal.h   changes that happen as a whole
 *     pair.h      two words that change as one, enough for a known key
 *     cells.c     keys made of cells
 *     rules.c     the plans under which states were written
 *     book.c      this process's copies of them, and the limits bound to these
 *     stored.h    a state as the file has it
 *     repair.c    looks through a stripe, and makes a damaged one whole
 *     visit.c     finds, reads, writes, adds and removes a key
 *     room.c      drops idle keys, and rules that no key names
 *     state.c     what a key's states decide; another plan of its limit
 *     rehome.c    moves a busy key to its home
 *     short.c     decides for a known key without a lock
 *     take.c      does that for the commonest request
 *     decide.c    decides for one key
 *     all.c       decides for a group: all or nothing
 *     in_flight.c decides about slots
 *     machine.c   the vtable
 *
 * A state has the same content as in the memory backend, and the same functions change it. So one process decides here
 * as in local mode, equal in every field. During a rollout, processes may have different plans of a limit. A key is
 * then carried over each time a request comes under the other plan, as core/algorithm/former.c defines for one plan at
 * a time.
 */
#ifndef BACKENDS_MACHINE_VISIT_H
#define BACKENDS_MACHINE_VISIT_H

#include "backends/machine/book.h"
#include "backends/machine/cells.h"
#include "core/algorithm/former.h"
#include "core/ground/forks.h"
#include "core/limiter/own_ops.h"
#include "core/policy/pattern.h"

/* (c) constant after open, (a) atomic */
struct machine {
    struct weir_backend backend;
    struct machine_file file;     /* (c) but for forks */
    struct machine_shape shape;   /* (c) */
    unsigned char *stripes;       /* (c) */
    uint64_t stripe_bytes;        /* (c) */
    uint32_t stripe_mask;         /* (c) */
    bool is_crowded;              /* (c) in a full file, many keys are not in their homes */
    enum weir_on_full on_full;    /* (c) */
    bool keep_idle;               /* (c) */
    int64_t patience_us;          /* (c) */
    struct log log;               /* (c) */
    _Atomic uint64_t full;        /* (a) decisions by on_full */
    _Atomic uint64_t told;        /* (a) damages that have been logged */
    _Atomic bool told_lost;       /* (a) the loss of the file has been logged */
    _Atomic bool told_gone;       /* (a) that its name is gone, too */
    _Atomic int64_t watched_us;   /* (a) when its name was looked at last */
    _Atomic int64_t collected_us; /* (a) when the last search found no rule to forget; 0: it found some */
    struct book book;
    struct slots slots; /* (c) but for what a thread writes under the lock of the file's slots */
    struct forks_watcher forks;
    _Atomic bool is_open; /* (a) the book can be used */
    bool forks_open;      /* the watcher's: is_open as this fork began */
};

enum room { ROOM_OK = 0, ROOM_FULL };

#define MACHINE_SHARED_KEY_WORDS 3 /* of the key that keys without room share */
#define MACHINE_SHARED_PART 64     /* 1 / this of a stripe's cells is for states that keys without room share */

/* A key in the file, and the request for it, if any. While `first` is not 0, `page` is that of the key's rule, and the
 * key is held, unless visit_step() found it. */
struct visit {
    struct machine *machine;
    struct machine_stripe *stripe;
    int64_t now_us;
    size_t len; /* of the key */
    uint32_t bucket;
    uint32_t first, before; /* the key's first cell, and that of the key before it in the bucket; 0: none */
    uint32_t rule;          /* the key's */
    const struct page *page;
    const struct hash_secret *limit; /* of the limit's hashes. NULL: a sweep, which has no use for these */
    const struct weir_backend_request *request;
    uint32_t number;         /* the request's rule */
    const struct page *plan; /* its page */
    bool is_overflow;        /* the request is for the key that keys without room share */
};

static inline struct machine_stripe *machine_stripe(const struct machine *machine, uint64_t number)
{
    return (struct machine_stripe *)(void *)(machine->stripes + number * machine->stripe_bytes);
}

static inline struct machine_stripe *machine_stripe_of(const struct machine *machine, uint64_t hash)
{
    return machine_stripe(machine, hash >> 32 & machine->stripe_mask);
}

/* Make room for copies of all rules that keys may name. The caller has a stripe's lock, and will look at its keys.
 * WEIR_OK or WEIR_ENOMEM. */
static inline int machine_reach(struct machine *machine)
{
    return __builtin_expect(book_is_behind(&machine->book), 0) ? book_reach(&machine->book) : WEIR_OK;
}

/* Fetch the home of a bucket's key; and the bucket, where many keys are not in their homes. Nothing is read here: a
 * processor reads its clock only when earlier reads have ended. The lines are fetched to be read: a fetch to write
 * would take them from processes that deny requests for the same key, and saves nothing where requests are admitted. */
static inline void machine_fetch(const struct machine *machine, const struct machine_stripe *stripe, uint32_t bucket)
{
    const struct machine_shape *shape = &machine->shape;
    const uint64_t *words = (const uint64_t *)(const void *)stripe;
    __builtin_prefetch(words + cell_at(shape, bucket_home(bucket)));
    if (machine->is_crowded)
        __builtin_prefetch(words + shape->bucket_word + bucket / 2);
}

/* ---- repair.c ---- */

/* True if every key of the stripe can be reached and read. */
bool stripe_check(struct machine *machine, struct machine_stripe *stripe);

/* List the free cells of a new stripe. The caller has its lock. WEIR_OK, or WEIR_ENOMEM with the stripe as it was. */
int stripe_begin(struct machine *machine, struct machine_stripe *stripe);

/* Make a damaged stripe whole: drop the keys whose cells cannot be read. The caller and the errors are as above. */
int stripe_repair(struct machine *machine, struct machine_stripe *stripe);

/* Take the stripe's lock, and finish what a dead process began. WEIR_OK, WEIR_ETIME or WEIR_ENOMEM. The first one waits
 * for machine->patience_us at most; the other one for *patience_us, from which the time that it waits is subtracted. */
int stripe_enter(struct machine *machine, struct machine_stripe *stripe);
int stripe_enter_within(struct machine *machine, struct machine_stripe *stripe, int64_t *patience_us);
void stripe_leave(struct machine_stripe *stripe);

/* ---- visit.c; WEIR_ESTATE: the stripe is damaged ---- */

/* Find the request's key, and hold it. */
int visit_find(struct visit *visit);

/* Release the key, if there is one: decisions without the stripe's lock may use it again. */
void visit_leave(struct visit *visit);

/* Go to the key in *cell, which has `steps` keys of its bucket before it, and set *cell to that of the next key, or to
 * 0. visit->before is not set. */
int visit_step(struct visit *visit, uint32_t *cell, uint32_t steps);

/* Return the hash of the visit's key, which is copied to `bytes` for that. 0: its chain is damaged. */
uint64_t visit_hash(const struct visit *visit, int64_t *bytes);

/* Read the state, or the former state. A full state replaces one that is not sound, which counts as damage. */
int visit_read(const struct visit *visit, int64_t *state);
int visit_read_former(const struct visit *visit, int64_t *state);

/* Return when both states become fresh if they are not used again; in *error, what visit_read() returned. */
int64_t visit_fresh_at_us(const struct visit *visit, int *error);

/* Write the state, and the former one unless `former` is NULL. */
int visit_write(const struct visit *visit, const int64_t *state, const int64_t *former);

/* Add the request's key under a rule, with its states, and hold it. The stripe has room. */
int visit_add(struct visit *visit, uint32_t number, const struct page *page, const int64_t *state,
              const int64_t *former);

/* Put the key under another rule, with its states in new cells, for which the stripe has room. */
int visit_replace(struct visit *visit, uint32_t number, const struct page *page, const int64_t *state,
                  const int64_t *former);

/* Remove the key. */
int visit_remove(struct visit *visit);

/* ---- room.c ---- */

/* Drop idle keys of the visit's stripe among the next `steps` buckets: those fresh since `at_us`. */
int stripe_sweep(const struct visit *visit, int64_t at_us, unsigned steps);

/* Note when a key that was added becomes idle. */
void stripe_note(struct machine_stripe *stripe, int64_t fresh_at_us);

/* Free `cells` cells for the request, by dropping idle keys. Without `drop`, only look whether they are free, or an
 * idle key could go. *soonest_us is after now: no key becomes idle before it, unless permits are refunded, or not all
 * keys were examined. Any other key may be gone afterwards, so find the request's key again. */
int stripe_make_room(struct visit *visit, uint32_t cells, bool drop, bool *has_room, int64_t *soonest_us);

/* Forget the rules that no key names. The caller holds no lock. False: there were none. */
bool machine_forget_rules(struct machine *machine);

/* ---- state.c ---- */

/* Bring the key under the request's plan as core/algorithm/former.c defines it. The key may be gone afterwards. *room
 * is ROOM_FULL if it would need another number of cells, or another rule, for which there is no room; then nothing has
 * changed. */
int visit_carry(struct visit *visit, enum room *room);

/* Peek at a key that may be under another plan, as if it had been carried over. */
int visit_peek(struct visit *visit, struct weir_decision *out);

/* Decide by the plan that the key is under. The key may be gone afterwards. */
int visit_decide(struct visit *visit, struct weir_decision *out);

/* Decide for a key that does not exist, and leave its state in `state`. */
void visit_decide_absent(const struct weir_backend_request *request, const struct weir_plan *plan, int64_t *state,
                         struct weir_decision *out);

/* ---- decide.c ---- */

struct weir_backend_request machine_overflow_request(const struct weir_backend_request *request,
                                                     uint64_t key[MACHINE_SHARED_KEY_WORDS]);
void machine_deny_full(const struct weir_backend_request *request, int64_t soonest_us, struct weir_decision *out);
int machine_decide_one(struct machine *machine, const struct weir_backend_request *request, struct weir_decision *out);

/* ---- short.c ---- */

/* Decide the short way, see short.h. False: the request needs another way, or the key is held; nothing has changed. */
bool machine_decide_short(struct machine *machine, const struct weir_backend_request *request,
                          struct weir_decision *out);

/* ---- rehome.c ---- */

/* Move a known key to its home if it is elsewhere, unless another thread has the stripe's lock. With `of_rival`, even a
 * key of the same home has to make way. The caller holds no lock, and is not a reader of the book. */
void machine_rehome(struct machine *machine, const struct weir_limit *limit, struct weir_key key, uint64_t hash,
                    bool of_rival);

#define REHOME_BITS 4 /* a key that is not at home is due for a move in one of 2^this decisions that change it */

static inline uint64_t rehome_chance(uint64_t reads)
{
    return reads * UINT64_C(0x9e3779b97f4a7c15);
}

/* True if a decision that has changed a key elsewhere should move it; `reads` is from readers_leave(). */
static inline bool rehome_is_due(uint64_t reads)
{
    return rehome_chance(reads) >> (64 - REHOME_BITS) == 0;
}

/* Move the key if rehome_is_due(). */
void machine_rehome_some(struct machine *machine, const struct weir_limit *limit, struct weir_key key, uint64_t hash,
                         uint64_t reads);

/* Return how many damages have been found; or log that number if it has risen. The caller holds no lock. */
uint64_t machine_damages(const struct machine *machine);
void machine_tell(struct machine *machine);

#define WATCH_EVERY_US 1000000

/* True if the file's name is gone, or leads to another file. Tells the log once. The second one looks for that only if
 * its last look was WATCH_EVERY_US ago or more. */
bool machine_is_gone(struct machine *machine);
void machine_watch(struct machine *machine, int64_t now_us);

/* Tell the log once that the file was truncated, and return WEIR_EIO. */
int machine_lost(struct machine *machine);

/* ---- take.c ---- */

/* Implement own_ops->try_key() and try_handle(). */
int machine_try(struct weir_limit *limit, struct weir_key key, int64_t cost, int64_t now_us, struct weir_decision *out);
int machine_try_handle(weir_handle *handle, int64_t cost, int64_t now_us, struct weir_decision *out);

/* ---- all.c ---- */

int machine_decide_all(struct machine *machine, const struct weir_backend_request *requests, size_t n,
                       struct weir_decision *out);

/* ---- in_flight.c: slots. WEIR_ETIME if the lock cannot be had ---- */

/* Find the area of slots in the file. */
void machine_flight_view(struct machine *machine);

/* Make it whole, as the file's only user. */
void machine_flight_look_through(struct machine *machine);

int machine_flight_decide(struct machine *machine, const struct weir_backend_request *request,
                          struct weir_decision *out);

/* Decide a group, some of whose requests are about slots. */
int machine_flight_all(struct machine *machine, const struct weir_backend_request *requests, size_t n,
                       struct weir_decision *out);

/* Return how many keys have slots; 0 if the lock cannot be had. */
int64_t machine_flight_keys(struct machine *machine);

/* Look at a request's key for an inspector, and clear it if `remove`. */
int machine_flight_look(struct machine *machine, const struct weir_backend_request *request, int64_t now_us,
                        bool remove, struct weir_inspected *out);

/* Visit the keys that have slots, as weir_inspect_keys(). Without the lock. */
int machine_flight_walk(struct machine *machine, const char *limit, const struct pattern *pattern, int64_t now_us,
                        int (*visit)(void *user, const struct weir_inspected *key), void *user);

#endif
