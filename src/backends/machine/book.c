/* book.c - copies rules, binds limits to them, and has them added to the file and forgotten. */
#include "backends/machine/bound.h"

#include "backends/machine/pair.h"
#include "core/algorithm/former.h"
#include "core/algorithm/sliding_window.h"
#include "core/algorithm/top.h"
#include "core/limiter/figures.h"

#include <stdlib.h>

int book_open(struct book *book, struct machine_file *file, int64_t patience_us)
{
    book->file = file;
    book->patience_us = patience_us;
    book->turn = book_file_turn(book);
    lock_init(&book->mutex);
    readers_init(&book->readers);
    const int error = book_reach(book);
    if (error)
        book_close(book);
    return error;
}

void book_close(struct book *book)
{
    lock_destroy(&book->mutex);
    for (unsigned level = 0; level < MACHINE_LEVELS; level++)
        free(atomic_load_explicit(&book->levels[level], memory_order_relaxed));
}

/* ---- Copies ---- */

static int64_t plan_last_anchor(const struct weir_plan *plan)
{
    if (plan->p > 0)
        return WEIR_MAX_TIME_US / plan->tick_us;
    return plan->algorithm == WEIR_SLIDING_WINDOW ? WEIR_MAX_TIME_US / plan->period_us : WEIR_MAX_TIME_US;
}

static void page_complete(struct page *page)
{
    const struct machine_rule_text *text = &page->text;
    page->former = text->has_former ? &text->former : NULL;
    page->slides = text->plan.algorithm == WEIR_SLIDING_WINDOW;
    page->has_summary = page->slides && !sliding_is_wide(&text->plan);
    page->rest_words = page->has_summary ? ((size_t)text->plan.blocks + 1) / 2
                       : page->slides    ? sliding_window_words(&text->plan) - PAIR_WORDS
                                         : 0;
    page->words = PAIR_WORDS + page->rest_words;
    page->anchor_at = state_time_at(&text->plan);
    page->top = state_top(&text->plan);
    page->last_anchor = plan_last_anchor(&text->plan);
    page->is_plain = !page->former && text->plan.algorithm == WEIR_TOKEN_BUCKET && text->plan.refill == WEIR_GREEDY &&
                     text->plan.tick_us == 1 && text->plan.size <= WEIR_MAX_PERMITS;
    if (page->is_plain) {
        page->known = level_known_of(&text->plan);
        page->near = page->known.top - div_up(text->plan.size, FIGURES_NEAR) * text->plan.q;
    }
    page->words += behind_words(page->former);
    if (page->former && behind_has_former(page->former)) {
        page->former_top = state_top(page->former);
        page->former_last_anchor = plan_last_anchor(page->former);
    }
}

void page_fill(struct page *page, const struct weir_limit *limit, const struct weir_plan *plan,
               const struct weir_plan *former)
{
    memset(page, 0, sizeof *page);
    page->text.limit = limit->secret;
    page->text.has_former = former != NULL;
    page->text.plan = *plan;
    if (former)
        page->text.former = *former;
    memcpy(page->text.name, limit->name, strnlen(limit->name, WEIR_MAX_NAME_LEN));
    page_complete(page);
}

bool state_is_sound(const struct weir_plan *plan, int64_t top, int64_t last_anchor, const int64_t *state)
{
    if (plan->algorithm != WEIR_SLIDING_WINDOW)
        return state_is_small(top, last_anchor, state);
    uint64_t sum = 0;
    for (size_t i = 1; i < sliding_window_words(plan); i++) {
        const uint64_t counts = (uint64_t)state[i];
        if (sliding_is_wide(plan) && counts > (uint64_t)top)
            return false;
        sum += sliding_is_wide(plan) ? counts : state_counts(counts);
    }
    return state_is_large(top, last_anchor, state[0], sum);
}

/* Return what page->copied is in a turn. A page of zeros is no copy. */
static uint64_t page_copied(uint64_t turn)
{
    return turn << 1 | 1;
}

int book_reach(struct book *book)
{
    file_look(book->file);
    for (unsigned level = 0; level < file_levels(book->file); level++) {
        struct page *none = NULL;
        if (atomic_load_explicit(&book->levels[level], memory_order_acquire))
            continue;
        struct page *pages = calloc((size_t)MACHINE_FIRST_RULES << level, sizeof *pages); /* touched when used */
        if (!pages)
            return WEIR_ENOMEM;
        if (!atomic_compare_exchange_strong_explicit(&book->levels[level], &none, pages, memory_order_acq_rel,
                                                     memory_order_relaxed))
            free(pages); /* another thread was faster */
    }
    return WEIR_OK;
}

/* Return the page for a number, or NULL: the file has no such place. */
static struct page *book_place(const struct book *book, uint32_t number)
{
    uint32_t place;
    if (number - 1 >= MACHINE_MAX_RULES)
        return NULL;
    const unsigned level = rules_level(number, &place);
    struct page *pages = atomic_load_explicit(&book->levels[level], memory_order_acquire);
    return pages ? &pages[place] : NULL;
}

static bool page_is_of(const struct page *page, uint64_t turn)
{
    return atomic_load_explicit(&page->copied, memory_order_acquire) == page_copied(turn);
}

/* Drop all copies and bonds if rules have been forgotten since they were made. */
static void book_catch_up(struct book *book) REQUIRES(book->mutex)
{
    const uint64_t turn = book_file_turn(book);
    if (turn == atomic_load_explicit(&book->turn, memory_order_relaxed))
        return;
    for (struct weir_limit *limit = book->bound; limit; limit = limit->next_bound) {
        atomic_store_explicit(&limit->bound_version, 0, memory_order_relaxed);
        atomic_store_explicit(&limit->bound, NULL, memory_order_relaxed);
    }
    atomic_store_explicit(&book->turn, turn, memory_order_release);
    readers_wait(&book->readers); /* copies will be overwritten */
}

void book_renew(struct book *book)
{
    lock_take(&book->mutex);
    book_catch_up(book);
    lock_give(&book->mutex);
}

/* Return the copy of a rule, made if need be, or NULL. */
static const struct page *book_copy(struct book *book, uint32_t number) REQUIRES(book->mutex)
{
    struct page *page = book_place(book, number);
    const uint64_t turn = atomic_load_explicit(&book->turn, memory_order_relaxed);
    if (!page || page_is_of(page, turn))
        return page;
    if (!rules_read(book->file, number, &page->text))
        return NULL;
    page_complete(page);
    if (page->number == 0) /* it never changes, and may be read at any time from then on */
        page->number = number;
    atomic_store_explicit(&page->copied, page_copied(turn), memory_order_release);
    return page;
}

__attribute__((noinline)) static const struct page *book_page_anew(struct book *book, uint32_t number)
{
    lock_take(&book->mutex);
    book_catch_up(book);
    const struct page *page = book_copy(book, number);
    lock_give(&book->mutex);
    return page;
}

const struct page *book_page(struct book *book, uint32_t number)
{
    const struct page *page = book_place(book, number);
    if (!page)
        return NULL;
    return __builtin_expect(page_is_of(page, atomic_load_explicit(&book->turn, memory_order_acquire)), 1)
               ? page
               : book_page_anew(book, number);
}

/* ---- Numbers ---- */

/* Add a rule to the file, which grows if need be. The caller has the rules' lock. */
static int book_add(struct book *book, const struct machine_rule_text *text, uint32_t *number)
{
    for (;;) {
        const int error = book_reach(book);
        if (error)
            return error;
        *number = rules_find(book->file, text); /* another thread or process may have added it */
        if (*number == 0)
            *number = rules_add(book->file, text);
        if (*number != 0 || !file_grow(book->file))
            return WEIR_OK;
    }
}

static int book_find_or_add(struct book *book, const struct machine_rule_text *text, uint32_t *number)
{
    struct machine_header *header = file_header(book->file);
    int64_t patience_us = book->patience_us;
    *number = rules_find(book->file, text);
    if (*number != 0)
        return WEIR_OK;
    if (lock_enter(book->file, &header->rules_lock, &patience_us) == LOCK_TIMEOUT)
        return WEIR_ETIME;
    const int error = book_add(book, text, number); /* a dead owner left each place used or free: nothing to do */
    lock_leave(&header->rules_lock);
    return error;
}

/* Find a rule in the file, or add it; there is room for its copy then. */
static int book_enter(struct book *book, const struct machine_rule_text *text, uint32_t *number)
{
    const int error = book_find_or_add(book, text, number);
    return error || *number == 0 || book_place(book, *number) ? error : book_reach(book);
}

int book_number_of(struct book *book, const struct weir_backend_request *request, const struct weir_plan *plan,
                   const struct weir_plan *former, uint32_t *number)
{
    struct page page;
    page_fill(&page, request->limit, plan, former);
    return book_enter(book, &page.text, number);
}

uint64_t book_forget(struct book *book, const uint8_t *marks, int64_t *patience_us)
{
    struct machine_header *header = file_header(book->file);
    uint64_t forgotten = 0;
    if (lock_enter(book->file, &header->rules_lock, patience_us) != LOCK_TIMEOUT) {
        file_look(book->file);
        atomic_fetch_add_explicit(&header->rules_turn, 1, memory_order_release); /* before any number is free */
        forgotten = rules_forget(book->file, marks);
        lock_leave(&header->rules_lock);
    }
    book_renew(book);
    return forgotten;
}

/* ---- The rule of a request ---- */

/* Bind the request's limit to the rule of a number, which was found at that turn for that version of its plan. */
static void book_bind(struct book *book, const struct weir_backend_request *request, uint64_t version, uint32_t number,
                      uint64_t turn) REQUIRES(book->mutex)
{
    struct weir_limit *limit = request->limit;
    if (atomic_load_explicit(&book->turn, memory_order_relaxed) != turn ||
        atomic_load_explicit(&limit->bound_version, memory_order_relaxed) >= version)
        return;
    const struct page *page = book_copy(book, number);
    if (!page)
        return;
    if (!limit->is_bound) {
        limit->is_bound = true;
        limit->next_bound = book->bound;
        book->bound = limit;
    }
    atomic_store_explicit(&limit->bound, page, memory_order_release);
    atomic_store_explicit(&limit->bound_version, version, memory_order_release);
}

__attribute__((noinline)) static int book_number_anew(struct book *book, const struct weir_backend_request *request,
                                                      uint32_t *number, uint64_t *turn)
{
    struct page page;
    struct weir_plan plan;
    book_renew(book);
    *turn = atomic_load_explicit(&book->turn, memory_order_acquire);
    const uint64_t version = weir_request_plan(request, &plan);
    page_fill(&page, request->limit, &plan, NULL);
    const int error = book_enter(book, &page.text, number);
    if (error || *number == 0)
        return error;
    lock_take(&book->mutex);
    book_catch_up(book);
    book_bind(book, request, version, *number, *turn);
    lock_give(&book->mutex);
    return WEIR_OK;
}

int book_number(struct book *book, const struct weir_backend_request *request, uint32_t *number, uint64_t *turn)
{
    const struct page *page = book_bound(book, request->limit, request->plan_version, turn);
    if (__builtin_expect(!page, 0))
        return book_number_anew(book, request, number, turn);
    *number = page->number;
    return WEIR_OK;
}
