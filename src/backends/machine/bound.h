/* bound.h - finds the rule of a request that the book knows already.
 *
 * It is inline, because most decisions do it. A limit notes the version of the plan that it is bound to after the page,
 * so a thread that reads the version first finds the page of that plan or of a later one. When rules are forgotten,
 * both are cleared before the book's turn rises; a thread that reads one of before and one of after finds, once it has
 * read the key's pair, that the file's turn is not the one that it began with.
 */
#ifndef BACKENDS_MACHINE_BOUND_H
#define BACKENDS_MACHINE_BOUND_H

#include "backends/machine/book.h"

/* Return the page that a limit or an override is bound to, by this version of its plan or a later one; NULL: none.
 * A late request decides by the later one. What the page says but its number is for readers. */
static inline const struct page *book_bound(struct book *book, const struct weir_limit *limit, uint64_t version,
                                            uint64_t *turn)
{
    *turn = atomic_load_explicit(&book->turn, memory_order_acquire);
    return __builtin_expect(atomic_load_explicit(&limit->bound_version, memory_order_acquire) >= version, 1)
               ? atomic_load_explicit(&limit->bound, memory_order_acquire)
               : NULL;
}

/* Return the page of the rule by which a limit or an override decides now, if it is plain. The same. */
static inline const struct page *book_plain(struct book *book, struct weir_limit *limit, uint64_t *turn)
{
    const struct page *page = book_bound(book, limit, plan_cell_version(&limit->plan), turn);
    return page && __builtin_expect(page->is_plain, 1) ? page : NULL;
}

#endif
