/* bound.h - finds the rule of a request that the book knows already.
 *
 * It is inline, because most decisions do it.
 */
#ifndef BACKENDS_MACHINE_BOUND_H
#define BACKENDS_MACHINE_BOUND_H

#include "backends/machine/book.h"
#include "core/limiter/limiter.h"

#define BOOK_NUMBER_BITS 20

_Static_assert(MACHINE_MAX_RULES < 1 << BOOK_NUMBER_BITS, "a number fits");

static inline struct binding *_Atomic *book_bucket(struct book *book, const struct weir_limit *limit)
{
    return &book->bindings[((uintptr_t)limit / alignof(max_align_t) * UINT64_C(0x9e3779b97f4a7c15)) >> 54];
}

_Static_assert(BOOK_BUCKETS == 1 << (64 - 54), "the bits that book_bucket() takes");

static inline struct binding *book_binding(struct book *book, const struct weir_limit *limit)
{
    struct binding *binding = atomic_load_explicit(book_bucket(book, limit), memory_order_acquire);
    while (binding && binding->limit != limit)
        binding = binding->next;
    return binding;
}

/* True if the limit has not been renamed since. Nothing else uses a limit during that. */
static inline bool binding_holds(const struct binding *binding, const struct weir_limit *limit)
{
    return atomic_load_explicit(&binding->secret, memory_order_relaxed) == limit->secret.k0;
}

/* Return the number that a limit or an override is bound to, by this version of its plan or a later one; 0: none.
 * A late request decides by the later one. */
static inline uint32_t book_bound(struct book *book, const struct weir_limit *limit, uint64_t version, uint64_t *turn)
{
    *turn = atomic_load_explicit(&book->turn, memory_order_acquire);
    const struct binding *binding = book_binding(book, limit);
    if (__builtin_expect(!binding || !binding_holds(binding, limit), 0))
        return 0;
    const uint64_t bound = atomic_load_explicit(&binding->bound, memory_order_acquire);
    return __builtin_expect(bound >> BOOK_NUMBER_BITS >= version, 1) ? (uint32_t)bound & ((1 << BOOK_NUMBER_BITS) - 1)
                                                                     : 0;
}

/* Return a copy that has been made, or NULL. */
static inline const struct page *book_copied(const struct book *book, uint32_t number)
{
    return __builtin_expect(
               number != 0 && atomic_load_explicit(&book->is_copied[number - 1], memory_order_acquire) != 0, 1)
               ? &book->pages[number - 1]
               : NULL;
}

/* Return the copy of the request's rule, with its number and turn. NULL: book_number() or book_page() has not looked.
 * The caller is a reader. */
static inline const struct page *book_known(struct book *book, const struct weir_backend_request *request,
                                            uint32_t *number, uint64_t *turn)
{
    *number = book_bound(book, request->limit, request->plan_version, turn);
    return book_copied(book, *number);
}

/* The same for the rule by which a limit or an override decides now, if its page is plain. */
static inline const struct page *book_plain(struct book *book, struct weir_limit *limit, uint32_t *number,
                                            uint64_t *turn)
{
    *number = book_bound(book, limit, plan_cell_version(&limit->plan), turn);
    const struct page *page = book_copied(book, *number);
    return page && __builtin_expect(page->is_plain, 1) ? page : NULL;
}

#endif
