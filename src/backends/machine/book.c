/* book.c - looks up rules, copies them, adds them to the file and forgets them. */
#include "backends/machine/bound.h"

#include "backends/machine/pair.h"
#include "core/algorithm/sliding_window.h"
#include "core/algorithm/top.h"
#include "core/limiter/figures.h"

#include <stdlib.h>

_Static_assert(sizeof(struct machine_rule_text) == 16 + 8 + 2 * sizeof(struct weir_plan) + WEIR_MAX_NAME_LEN + 8,
               "no padding, of which a checksum would be made");

int book_open(struct book *book, const struct machine_file *file, int64_t patience_us)
{
    book->file = file;
    book->patience_us = patience_us;
    book->pages = calloc(file->facts.rules, sizeof *book->pages);
    book->is_copied = calloc(file->facts.rules, sizeof *book->is_copied);
    if (!book->pages || !book->is_copied) {
        free(book->pages);
        free((void *)book->is_copied);
        return WEIR_ENOMEM;
    }
    lock_init(&book->mutex);
    readers_init(&book->readers);
    book->turn = book_file_turn(book);
    return WEIR_OK;
}

void book_close(struct book *book)
{
    for (size_t i = 0; i < BOOK_BUCKETS; i++)
        for (struct binding *binding = book->bindings[i], *next; binding; binding = next) {
            next = binding->next;
            free(binding);
        }
    lock_destroy(&book->mutex);
    free(book->pages);
    free((void *)book->is_copied);
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
    if (page->former) {
        page->words += state_words(page->former);
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
    memcpy(page->text.name, limit->of->name, strnlen(limit->of->name, WEIR_MAX_NAME_LEN));
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

/* True if `number` has a rule whose text is as it was written. */
static bool rule_read(const struct book *book, uint32_t number, struct machine_rule_text *out)
{
    const struct machine_rule *rule = &file_rules(book->file)[number - 1];
    if (atomic_load_explicit(&rule->use, memory_order_acquire) != RULE_USED)
        return false;
    memcpy(out, &rule->text, sizeof *out);
    return machine_sum(out, sizeof *out) == rule->sum;
}

/* Drop all copies and numbers if rules have been forgotten since they were made. */
static void book_catch_up(struct book *book) REQUIRES(book->mutex)
{
    const uint64_t turn = book_file_turn(book);
    if (turn == atomic_load_explicit(&book->turn, memory_order_relaxed))
        return;
    for (size_t i = 0; i < BOOK_BUCKETS; i++)
        for (struct binding *binding = book->bindings[i]; binding; binding = binding->next)
            atomic_store_explicit(&binding->bound, 0, memory_order_relaxed);
    memset((void *)book->is_copied, 0, book->file->facts.rules);
    atomic_store_explicit(&book->turn, turn, memory_order_release);
    readers_wait(&book->readers); /* copies will be overwritten */
}

void book_renew(struct book *book)
{
    lock_take(&book->mutex);
    book_catch_up(book);
    lock_give(&book->mutex);
}

static void book_copy(struct book *book, uint32_t number) REQUIRES(book->mutex)
{
    struct page *page = &book->pages[number - 1];
    if (atomic_load_explicit(&book->is_copied[number - 1], memory_order_relaxed) ||
        !rule_read(book, number, &page->text))
        return;
    page_complete(page);
    atomic_store_explicit(&book->is_copied[number - 1], 1, memory_order_release);
}

__attribute__((noinline)) static const struct page *book_page_anew(struct book *book, uint32_t number)
{
    lock_take(&book->mutex);
    book_catch_up(book);
    book_copy(book, number);
    lock_give(&book->mutex);
    return atomic_load_explicit(&book->is_copied[number - 1], memory_order_acquire) ? &book->pages[number - 1] : NULL;
}

const struct page *book_page(struct book *book, uint32_t number)
{
    if (number - 1 >= book->file->facts.rules)
        return NULL;
    if (__builtin_expect(atomic_load_explicit(&book->is_copied[number - 1], memory_order_acquire) != 0, 1))
        return &book->pages[number - 1];
    return book_page_anew(book, number);
}

/* ---- The file's rules ---- */

static bool text_is(const struct machine_rule_text *a, const struct machine_rule_text *b)
{
    return a->limit.k0 == b->limit.k0 && a->limit.k1 == b->limit.k1 && a->has_former == b->has_former &&
           a->plan.fingerprint == b->plan.fingerprint && a->former.fingerprint == b->former.fingerprint;
}

/* Find a rule, or add it. Rules lie at the hash of their fingerprints or after it. */
static uint32_t book_find_or_add(struct book *book, const struct machine_rule_text *text) REQUIRES(book->mutex)
{
    struct machine_rule *rules = file_rules(book->file);
    const uint64_t n = book->file->facts.rules;
    const uint64_t from = machine_sum(
        &(uint64_t[]){ text->limit.k0, (uint64_t)text->plan.fingerprint, (uint64_t)text->former.fingerprint },
        3 * sizeof(uint64_t));
    uint32_t unused = 0;
    for (uint64_t i = 0; i < n; i++) {
        const uint32_t number = (uint32_t)((from + i) % n) + 1;
        const uint64_t use = atomic_load_explicit(&rules[number - 1].use, memory_order_acquire);
        struct machine_rule_text there;
        if (use == RULE_USED && rule_read(book, number, &there) && text_is(&there, text))
            return number;
        if (use != RULE_USED && unused == 0)
            unused = number;
        if (use == RULE_NEVER)
            break;
    }
    if (unused == 0)
        return 0;
    memcpy(&rules[unused - 1].text, text, sizeof *text);
    rules[unused - 1].sum = machine_sum(text, sizeof *text);
    atomic_store_explicit(&rules[unused - 1].use, RULE_USED, memory_order_release);
    return unused;
}

static uint32_t book_enter(struct book *book, const struct machine_rule_text *text) REQUIRES(book->mutex)
{
    struct machine_header *header = file_header(book->file);
    if (lock_enter(book->file, &header->rules_lock, book->patience_us) == LOCK_TIMEOUT)
        return 0;
    const uint32_t number = book_find_or_add(book,
                                             text); /* a dead owner left each rule used or unused: nothing to do */
    lock_leave(&header->rules_lock);
    return number;
}

uint32_t book_number_of(struct book *book, const struct weir_backend_request *request, const struct weir_plan *plan,
                        const struct weir_plan *former)
{
    struct page page;
    page_fill(&page, request->limit, plan, former);
    lock_take(&book->mutex);
    const uint32_t number = book_enter(book, &page.text);
    lock_give(&book->mutex);
    return number;
}

bool book_has_limit(struct book *book, const struct hash_secret *limit)
{
    struct machine_header *header = file_header(book->file);
    struct machine_rule_text text;
    if (lock_enter(book->file, &header->rules_lock, book->patience_us) == LOCK_TIMEOUT)
        return true;
    bool has = false;
    for (uint64_t i = 0; i < book->file->facts.rules && !has; i++)
        has = rule_read(book, (uint32_t)i + 1, &text) && text.limit.k0 == limit->k0 && text.limit.k1 == limit->k1;
    lock_leave(&header->rules_lock);
    return has;
}

uint64_t book_forget(struct book *book, const uint8_t *marks)
{
    struct machine_header *header = file_header(book->file);
    struct machine_rule *rules = file_rules(book->file);
    uint64_t forgotten = 0;
    lock_take(&book->mutex);
    if (lock_enter(book->file, &header->rules_lock, book->patience_us) != LOCK_TIMEOUT) {
        atomic_fetch_add_explicit(&header->rules_turn, 1, memory_order_release); /* before any number is free */
        for (uint64_t i = 0; i < book->file->facts.rules; i++)
            if (!marks[i] && atomic_load_explicit(&rules[i].use, memory_order_relaxed) == RULE_USED) {
                atomic_store_explicit(&rules[i].use, RULE_FORGOTTEN, memory_order_release);
                forgotten++;
            }
        lock_leave(&header->rules_lock);
    }
    book_catch_up(book);
    lock_give(&book->mutex);
    return forgotten;
}

/* ---- The rule of a request ---- */

static struct binding *book_bind(struct book *book, const struct weir_limit *limit) REQUIRES(book->mutex)
{
    struct binding *binding = book_binding(book, limit);
    if (binding || !(binding = malloc(sizeof *binding)))
        return binding;
    struct binding *_Atomic *bucket = book_bucket(book, limit);
    *binding = (struct binding){ .limit = limit, .next = atomic_load_explicit(bucket, memory_order_relaxed) };
    atomic_store_explicit(bucket, binding, memory_order_release);
    return binding;
}

__attribute__((noinline)) static uint32_t book_number_anew(struct book *book,
                                                           const struct weir_backend_request *request, uint64_t *turn)
{
    struct page page;
    struct weir_plan plan;
    lock_take(&book->mutex);
    book_catch_up(book);
    *turn = atomic_load_explicit(&book->turn, memory_order_relaxed);
    struct binding *binding = book_bind(book, request->limit);
    if (binding && !binding_holds(binding, request->limit)) {
        atomic_store_explicit(&binding->bound, 0, memory_order_relaxed);
        atomic_store_explicit(&binding->secret, request->limit->secret.k0, memory_order_relaxed);
    }
    const uint64_t version = weir_request_plan(request, &plan);
    page_fill(&page, request->limit, &plan, NULL);
    const uint32_t number = book_enter(book, &page.text);
    if (binding && number && version > atomic_load_explicit(&binding->bound, memory_order_relaxed) >> BOOK_NUMBER_BITS)
        atomic_store_explicit(&binding->bound, version << BOOK_NUMBER_BITS | number, memory_order_release);
    lock_give(&book->mutex);
    return number;
}

uint32_t book_number(struct book *book, const struct weir_backend_request *request, uint64_t *turn)
{
    const uint32_t number = book_bound(book, request->limit, request->plan_version, turn);
    return __builtin_expect(number != 0, 1) ? number : book_number_anew(book, request, turn);
}
