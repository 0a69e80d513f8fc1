/* survey.c - visits keys, and adds them up. */
#include "cli/survey/survey.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/inspected.h"

#define NEAR_PART 10 /* of a limit: with less than this part left, a key is near */

int survey_open(struct survey *survey)
{
    survey->top = calloc(survey->top_room + 1, sizeof *survey->top);
    if (survey->top)
        return EXIT_OK;
    return out_of_memory();
}

static void top_free(struct weir_inspected *key)
{
    free((void *)(uintptr_t)key->key.data);
    key->key.data = NULL;
}

static void survey_forget(struct survey *survey)
{
    for (size_t i = 0; i < survey->top_count; i++)
        top_free(&survey->top[i]);
    survey->top_count = survey->limit_count = 0;
    survey->keys = survey->foreign = survey->unlisted = 0;
    survey->is_all = survey->has_no_memory = false;
}

void survey_close(struct survey *survey)
{
    survey_forget(survey);
    free(survey->limits);
    free(survey->top);
}

/* ---- The keys that must wait longest ---- */

/* Return the part of the limit that is in use, as a number to compare. */
static double top_use(const struct weir_inspected *key)
{
    return (double)key->state.used / (double)key->state.decision.limit;
}

/* Compare the bytes of keys and then their limits, so that rounds of weir watch choose alike among equals. */
static int top_compare_names(const struct weir_inspected *a, const struct weir_inspected *b)
{
    const size_t len = a->key.len < b->key.len ? a->key.len : b->key.len;
    const int order = memcmp(a->key.data, b->key.data, len);
    if (order != 0)
        return order;
    return a->key.len != b->key.len ? (a->key.len > b->key.len) - (a->key.len < b->key.len)
                                    : strcmp(a->limit, b->limit);
}

/* True if `a` comes before `b`: it must wait longer, or neither must and more of it is in use. */
static bool top_precedes(const struct weir_inspected *a, const struct weir_inspected *b)
{
    const int64_t wait_a = a->state.decision.retry_after_us, wait_b = b->state.decision.retry_after_us;
    const double use_a = top_use(a), use_b = top_use(b);
    if (wait_a != wait_b)
        return wait_a > wait_b;
    return use_a > use_b || (use_a >= use_b && top_compare_names(a, b) < 0);
}

/* Let the key at `at` sink below those that precede it less; the least is on top. */
static void top_sink(struct survey *survey, size_t at)
{
    struct weir_inspected *top = survey->top;
    const struct weir_inspected sinking = top[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child + 1 < survey->top_count && top_precedes(&top[child], &top[child + 1]))
            child++;
        if (child >= survey->top_count || !top_precedes(&sinking, &top[child]))
            break;
        top[at] = top[child];
        at = child;
    }
    top[at] = sinking;
}

static void top_rise(struct survey *survey, size_t at)
{
    struct weir_inspected *top = survey->top;
    const struct weir_inspected rising = top[at];
    for (; at > 0 && top_precedes(&top[(at - 1) / 2], &rising); at = (at - 1) / 2)
        top[at] = top[(at - 1) / 2];
    top[at] = rising;
}

static bool top_has(const struct survey *survey, const struct weir_inspected *key)
{
    for (size_t i = 0; i < survey->top_count; i++)
        if (top_compare_names(&survey->top[i], key) == 0)
            return true;
    return false;
}

static void top_offer(struct survey *survey, const struct weir_inspected *key)
{
    const bool is_full = survey->top_count == survey->top_room;
    if (survey->top_room == 0 || (is_full && !top_precedes(key, &survey->top[0])) || top_has(survey, key))
        return;
    void *bytes = malloc(key->key.len);
    if (!bytes) {
        survey->has_no_memory = true;
        return;
    }
    struct weir_inspected kept = *key;
    kept.key.data = memcpy(bytes, key->key.data, key->key.len);
    if (is_full)
        top_free(&survey->top[0]);
    survey->top[is_full ? 0 : survey->top_count++] = kept;
    if (is_full)
        top_sink(survey, 0);
    else
        top_rise(survey, survey->top_count - 1);
}

static int top_compare(const void *a, const void *b)
{
    return top_precedes(a, b) ? -1 : top_precedes(b, a);
}

/* ---- Limits ---- */

/* Return where the limit's row is, or would be. */
static size_t limit_place(const struct survey *survey, const char *name)
{
    size_t from = 0, to = survey->limit_count;
    while (from < to) {
        const size_t middle = (from + to) / 2;
        if (strcmp(survey->limits[middle].name, name) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static bool limits_grow(struct survey *survey)
{
    const size_t room = survey->limit_room ? 2 * survey->limit_room : 64;
    struct survey_limit *limits = realloc(survey->limits, room * sizeof *limits);
    if (!limits) {
        survey->has_no_memory = true;
        return false;
    }
    survey->limits = limits;
    survey->limit_room = room;
    return true;
}

/* Return the limit's row, made if it is missing; NULL: there is no room. */
static struct survey_limit *limit_row(struct survey *survey, const char *name)
{
    const size_t at = limit_place(survey, name);
    if (at < survey->limit_count && strcmp(survey->limits[at].name, name) == 0)
        return &survey->limits[at];
    if (survey->limit_count == SURVEY_LIMITS || (survey->limit_count == survey->limit_room && !limits_grow(survey)))
        return NULL;
    struct survey_limit *row = &survey->limits[at];
    memmove(row + 1, row, (survey->limit_count++ - at) * sizeof *row);
    *row = (struct survey_limit){ .keys = 0 };
    memcpy(row->name, name, strlen(name) + 1);
    return row;
}

static void limit_add(struct survey_limit *row, const struct weir_inspected *key)
{
    const struct weir_decision *next = &key->state.decision;
    char policy[WEIR_POLICY_TEXT_SIZE];
    if (weir_policy_print(&key->state.policy, policy, sizeof policy) != WEIR_OK)
        policy[0] = '\0';
    if (row->keys++ == 0)
        memcpy(row->policy, policy, sizeof policy);
    row->is_mixed = row->is_mixed || strcmp(row->policy, policy) != 0;
    row->denied += !next->allowed;
    row->near += next->allowed && next->remaining * NEAR_PART < next->limit;
    row->disagreed += key->has_former;
    row->permits += (uint64_t)key->state.used;
}

/* ---- The survey ---- */

static int survey_visit(void *user, const struct weir_inspected *key)
{
    struct survey *survey = user;
    if (key->found != WEIR_FOUND_STATE) {
        survey->foreign++;
        return WEIR_OK;
    }
    if (key->slots > 0) /* how full the limit is, only its policy knows */
        return WEIR_OK;
    struct survey_limit *row = limit_row(survey, key->limit);
    survey->keys++;
    survey->unlisted += row == NULL;
    if (row)
        limit_add(row, key);
    top_offer(survey, key);
    return survey->has_no_memory ? 1 : WEIR_OK;
}

int survey_take(struct survey *survey)
{
    survey_forget(survey);
    const int error = weir_inspect_some(survey->inspector, survey->limit, NULL, survey->scan, &survey->is_all,
                                        survey_visit, survey);
    if (survey->has_no_memory)
        return out_of_memory();
    qsort(survey->top, survey->top_count, sizeof *survey->top, top_compare);
    return inspected_conclude(error);
}
