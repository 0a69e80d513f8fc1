/* book.h - this process's copies of the plans under which states were written, and what its limits are bound to.
 *
 * A key names its rule: a plan of a limit, and that of its former state if it has one. Rules are in the file (rules.h),
 * so that every process can read every state. A limit is identified by the secret of its hashes, which is made from its
 * name and the file's secret.
 *
 * A process decides by its own copy of a rule, a page, which it makes once and checks, so later damage in the file does
 * no harm. Each limit and override notes the page of its plan in force, so a decision finds it without a search. Pages
 * have as many levels as the file's rules. A process makes room for a level before it uses it: when it adds a rule, or
 * with a stripe's lock before it looks at keys, which may name rules of that level.
 *
 * Rules are forgotten when the table is full and the file cannot grow: with all stripes locked, those that no key names.
 * The file's rules_turn then rises. A thread compares it with the turn at which it looked up its rule's number, once it
 * has the stripe's lock or has read a key's pair.
 *
 * Locks, outer first:
 *
 *     stripes, in the order of their numbers
 *     header->rules_lock    which rules the file has
 *     book->mutex           this process's copies. No thread waits for another process while it has it
 */
#ifndef BACKENDS_MACHINE_BOOK_H
#define BACKENDS_MACHINE_BOOK_H

#include "backends/machine/rules.h"
#include "backends/shared/readers.h"
#include "core/algorithm/level.h"
#include "core/ground/lock.h"
#include "core/limiter/limiter.h"

/* A checked copy. (c) while the turn lasts, and as long as a reader that began in it stays. What a decision for a known
 * key reads comes first. */
struct page {
    _Atomic uint64_t copied;  /* (a) page_copied() of the turn; another number: the page is not that of a rule */
    uint32_t number;          /* of the rule; (c) once there was a copy */
    bool slides, has_summary; /* a sliding window; and its pair is a summary, see stored.h */
    /* A token bucket with greedy refill and a tick of 1 us, whose size is a cost that the API allows, and no former
     * state. */
    bool is_plain;
    size_t anchor_at;         /* of the pair, see pair.h */
    int64_t top, last_anchor; /* a sound state holds no more than these, state_is_sound() */
    struct level_known known; /* with is_plain */
    int64_t near;             /* with is_plain: the units in use beyond which less than 1 / FIGURES_NEAR is left */
    size_t rest_words, words; /* of the state in the file behind the key; of both states, whole */
    struct machine_rule_text text;
    const struct weir_plan *former;         /* of the text, or NULL */
    int64_t former_top, former_last_anchor; /* the same of the former state */
};

/* (m) mutex, (a) atomic, (c) constant */
struct book {
    struct machine_file *file; /* (c) */
    int64_t patience_us;       /* (c) */
    struct readers readers;    /* threads without a stripe's lock that use copies */
    struct lock mutex;
    _Atomic uint64_t turn;                       /* (a) written under the mutex: the file's when the copies were made */
    struct page *_Atomic levels[MACHINE_LEVELS]; /* (a) by number; NULL: not made yet */
    struct weir_limit *bound;                    /* (m) limits and overrides that have been bound, by next_bound */
};

/* WEIR_OK or WEIR_ENOMEM. */
int book_open(struct book *book, struct machine_file *file, int64_t patience_us);
void book_close(struct book *book);

/* Make room for the copies of all rules that the file has. WEIR_OK, or WEIR_ENOMEM: keys may name rules that cannot be
 * copied, so the caller must not look at keys. */
int book_reach(struct book *book);

/* Find or add the request's rule. *number is 0 if there is no room for it; *turn is the turn for which it holds. The
 * caller holds no lock. WEIR_OK, WEIR_ETIME or WEIR_ENOMEM. */
int book_number(struct book *book, const struct weir_backend_request *request, uint32_t *number, uint64_t *turn);

/* The same for a rule with a former plan. The caller holds a stripe's lock. */
int book_number_of(struct book *book, const struct weir_backend_request *request, const struct weir_plan *plan,
                   const struct weir_plan *former, uint32_t *number);

/* Return the copy of a rule, or NULL: there is no such rule. The caller holds a stripe's lock. */
const struct page *book_page(struct book *book, uint32_t number);

/* Return the file's turn; the caller holds a stripe's lock, or has read a key's pair. */
static inline uint64_t book_file_turn(const struct book *book)
{
    return atomic_load_explicit(&file_header(book->file)->rules_turn, memory_order_acquire);
}

/* True if the file may have grown since this process made room for copies; the same. */
static inline bool book_is_behind(const struct book *book)
{
    const uint64_t word = atomic_load_explicit(&file_header(book->file)->levels, memory_order_acquire);
    const unsigned levels = machine_levels_told(word);
    return word != 0 && (levels == 0 || !atomic_load_explicit(&book->levels[levels - 1], memory_order_acquire));
}

/* Drop all copies if the turns differ. The caller holds a stripe's lock. */
void book_renew(struct book *book);

/* Forget the rules in the file that are not marked: marks[number - 1]. Return how many. The caller holds all
 * stripes. It waits for *patience_us at most, as stripe_enter_within() does. */
uint64_t book_forget(struct book *book, const uint8_t *marks, int64_t *patience_us);

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
