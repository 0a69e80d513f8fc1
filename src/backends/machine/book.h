/* book.h - the plans under which states in the file were written, and this process's copy of them.
 *
 * A key names its rule: a plan of a limit, and that of its former state if it has one. Rules are in the file, so that
 * every process can read every state. A limit is identified by the secret of its hashes, which is made from its name
 * and the file's secret.
 *
 * A process decides by its own copy of a rule, which it makes once and checks, so later damage in the file does no
 * harm. For each limit and override it remembers the number of the rule in force, by the version of the plan.
 *
 * Rules are forgotten when the table is full: with all stripes locked, those that no key names. The file's rules_turn
 * then rises. A thread compares it with the turn at which it looked up its rule's number, once it has the stripe's lock
 * or has read a key's pair.
 *
 * Locks, outer first:
 *
 *     stripes, in the order of their numbers
 *     book->mutex           this process's copies
 *     header->rules_lock    which rules the file has
 */
#ifndef BACKENDS_MACHINE_BOOK_H
#define BACKENDS_MACHINE_BOOK_H

#include "backends/machine/lock.h"
#include "backends/shared/readers.h"
#include "core/algorithm/level.h"
#include "core/ground/lock.h"

/* A checked copy. (c) while the turn lasts, and as long as a reader that began in it stays */
struct page {
    struct machine_rule_text text;
    const struct weir_plan *former;         /* of the text, or NULL */
    size_t rest_words, words;               /* of the state in the file behind the key; of both states, whole */
    size_t anchor_at;                       /* of the pair, see pair.h */
    bool slides, has_summary;               /* a sliding window; and its pair is a summary, see stored.h */
    int64_t top, last_anchor;               /* a sound state holds no more than these, state_is_sound() */
    int64_t former_top, former_last_anchor; /* the same of the former state */
    /* A token bucket with greedy refill and a tick of 1 us, whose size is a cost that the API allows, and no former
     * state. */
    bool is_plain;
    struct level_known known; /* with is_plain */
    int64_t near;             /* with is_plain: the units in use beyond which less than 1 / FIGURES_NEAR is left */
};

#define BOOK_BUCKETS 1024

/* The number of the rule by which a limit or an override decides. (c) but `bound` */
struct binding {
    const struct weir_limit *limit;
    struct binding *next;
    _Atomic uint64_t secret; /* half of the limit's, which changes when the limit is renamed */
    _Atomic uint64_t bound;  /* the number, and the version of the plan above BOOK_NUMBER_BITS; 0: none */
};

/* (m) mutex, (a) atomic, (c) constant */
struct book {
    const struct machine_file *file; /* (c) */
    int64_t patience_us;             /* (c) */
    struct readers readers;          /* threads without a stripe's lock that use copies */
    struct lock mutex;
    _Atomic uint64_t turn;      /* (a) written under the mutex: the file's when the copies were made */
    struct page *pages;         /* (c) by number, less one */
    _Atomic uint8_t *is_copied; /* (a) */
    struct binding *_Atomic bindings[BOOK_BUCKETS]; /* (a) readers; (m) writers */
};

/* WEIR_OK or WEIR_ENOMEM. */
int book_open(struct book *book, const struct machine_file *file, int64_t patience_us);
void book_close(struct book *book);

/* Return the number of the request's rule, or 0: there is no room for one, or the lock could not be taken. *turn is the
 * turn for which that holds. The caller holds no lock. */
uint32_t book_number(struct book *book, const struct weir_backend_request *request, uint64_t *turn);

/* Return the number of a rule with a former plan; 0 as above. The caller holds a stripe's lock. */
uint32_t book_number_of(struct book *book, const struct weir_backend_request *request, const struct weir_plan *plan,
                        const struct weir_plan *former);

/* True if the file has a rule of a limit, or its lock could not be taken. The caller holds no lock. */
bool book_has_limit(struct book *book, const struct hash_secret *limit);

/* Return the copy of a rule, or NULL: there is no such rule. The caller holds a stripe's lock. */
const struct page *book_page(struct book *book, uint32_t number);

/* Return the file's turn; the caller holds a stripe's lock, or has read a key's pair. */
static inline uint64_t book_file_turn(const struct book *book)
{
    return atomic_load_explicit(&file_header(book->file)->rules_turn, memory_order_acquire);
}

/* Drop all copies if the turns differ. The caller holds a stripe's lock. */
void book_renew(struct book *book);

/* Forget the rules in the file that are not marked: marks[number - 1]. Return how many. The caller holds all
 * stripes. */
uint64_t book_forget(struct book *book, const uint8_t *marks);

/* Fill a copy from a text that book_page() has not seen: of a plan that found no room. */
void page_fill(struct page *page, const struct weir_limit *limit, const struct weir_plan *plan,
               const struct weir_plan *former);

/* Return the plan of a plain page: the compiler leaves out what a tick of 1 us does not need. */
__attribute__((always_inline)) static inline const struct weir_plan *page_plain_plan(const struct page *page)
{
    assume(page->text.plan.tick_us == 1);
    return &page->text.plan;
}

/* True if a state of two words can be one that its plan has led to. */
static inline bool state_is_small(int64_t top, int64_t last_anchor, const int64_t *state)
{
    return (uint64_t)state[0] <= (uint64_t)top && (uint64_t)state[1] <= (uint64_t)last_anchor;
}

/* Return the sum of the two counts in a word of a sliding window. */
static inline uint64_t state_counts(uint64_t word)
{
    return (word >> 32) + (uint32_t)word;
}

/* The same for a sliding window, by its first word and the sum of its counts. */
static inline bool state_is_large(int64_t top, int64_t last_anchor, int64_t anchor, uint64_t sum)
{
    return (uint64_t)anchor <= (uint64_t)last_anchor && sum <= (uint64_t)top;
}

/* The same for any plan: the algorithms may then read the state. */
bool state_is_sound(const struct weir_plan *plan, int64_t top, int64_t last_anchor, const int64_t *state);

#endif
