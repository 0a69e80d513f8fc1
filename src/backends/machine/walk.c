/* walk.c - visits keys of a shared file: all, or those of a limit or a pattern.
 *
 * The walk takes a stripe's lock for one bucket at a time, copies the keys in it, and lets the caller see them without
 * the lock. A bucket holds one key on average, so a decision waits for less than a microsecond. A key stays in its
 * bucket as long as it exists, so one that exists throughout is visited once.
 */
#include "backends/machine/inspector.h"
#include "core/limiter/limiter.h"
#include "core/policy/pattern.h"
#include "core/policy/policy.h"

#include <stdio.h>
#include <stdlib.h>

/* Which keys a walk visits, and those of the bucket that it is at. */
struct file_walk {
    struct machine *machine;
    const char *limit; /* NULL: any */
    int64_t left;      /* buckets that may still be looked at */
    bool is_all;       /* there were no more */
    bool has_pattern;
    struct hash_secret secret; /* the limit's */
    struct pattern pattern;
    size_t n, room;              /* keys, at most as many as a stripe has cells */
    struct weir_inspected *keys; /* the bytes of each are allocated */
};

/* Copy the bytes of a visit's key, which the caller frees. NULL in *out: no memory. */
static int walk_copy_key(const struct visit *visit, struct weir_key *out)
{
    const size_t words = key_words(visit->len);
    struct walk walk = walk_begin(visit->stripe, &visit->machine->shape, visit->first);
    int64_t *bytes = malloc(words * sizeof *bytes);
    *out = weir_key(bytes, visit->len);
    if (bytes && (!walk_skip(&walk, PAIR_WORDS) || !walk_read(&walk, bytes, words))) {
        free(bytes);
        return WEIR_ESTATE;
    }
    return bytes ? WEIR_OK : WEIR_ENOMEM;
}

/* True if the caller wants to see a key. The one that keys without room share has a secret for its name. */
static bool walk_wants(const struct file_walk *walk, const struct page *page, struct weir_key key)
{
    const struct hash_secret *secret = &page->text.limit;
    return (!walk->limit || (secret->k0 == walk->secret.k0 && secret->k1 == walk->secret.k1)) &&
           (!walk->has_pattern || pattern_matches(&walk->pattern, key, false)) &&
           !(key.len == MACHINE_SHARED_KEY_WORDS * sizeof(uint64_t) && memcmp(key.data, secret, sizeof *secret) == 0);
}

/* Add the key of a visit, unless it is idle or not wanted. */
static int walk_add(struct file_walk *walk, const struct visit *visit)
{
    int error = WEIR_OK;
    if (visit_fresh_at_us(visit, &error) <= visit->now_us || error)
        return error;
    if (walk->n == walk->room) {
        const size_t room = walk->room ? 2 * walk->room : 8;
        struct weir_inspected *keys = realloc(walk->keys, room * sizeof *keys);
        if (!keys)
            return WEIR_ENOMEM;
        walk->keys = keys;
        walk->room = room;
    }
    struct weir_inspected *key = &walk->keys[walk->n];
    *key = (struct weir_inspected){ .size = sizeof *key };
    error = walk_copy_key(visit, &key->key);
    if (error)
        return error;
    snprintf(key->limit, sizeof key->limit, "%.*s", WEIR_MAX_NAME_LEN, visit->page->text.name);
    if (walk_wants(walk, visit->page, key->key))
        error = inspect_tell(visit, key);
    if (key->found == WEIR_FOUND_STATE && !error)
        walk->n++;
    else
        free((void *)(uintptr_t)key->key.data);
    return error;
}

static void walk_forget(struct file_walk *walk)
{
    for (size_t i = 0; i < walk->n; i++)
        free((void *)(uintptr_t)walk->keys[i].key.data);
    walk->n = 0;
}

/* Copy the keys of a bucket, whose stripe is locked. */
static int walk_bucket(struct file_walk *walk, struct machine_stripe *stripe, uint32_t bucket, int64_t now_us)
{
    struct visit visit = { .machine = walk->machine, .stripe = stripe, .now_us = now_us, .bucket = bucket };
    uint32_t cell = bucket_first(stripe, &walk->machine->shape, bucket);
    int error = WEIR_OK;
    for (uint32_t steps = 0; cell != 0 && !error; steps++) {
        error = visit_step(&visit, &cell, steps);
        if (!error)
            error = walk_add(walk, &visit);
    }
    if (error)
        walk_forget(walk);
    return error;
}

static int walk_locked(struct file_walk *walk, struct machine_stripe *stripe, uint32_t bucket, int64_t now_us)
{
    struct machine *machine = walk->machine;
    int error = stripe_enter(machine, stripe);
    if (error)
        return error;
    book_renew(&machine->book);
    error = walk_bucket(walk, stripe, bucket, now_us);
    if (error == WEIR_ESTATE && stripe_repair(machine, stripe) == WEIR_OK)
        error = walk_bucket(walk, stripe, bucket, now_us);
    stripe_leave(stripe);
    return error;
}

static int walk_all(struct file_walk *walk, struct file_inspector *inspector,
                    int (*visit)(void *user, const struct weir_inspected *key), void *user)
{
    struct machine *machine = walk->machine;
    int error = WEIR_OK;
    for (uint64_t i = 0; i < machine->file.facts.stripes; i++)
        for (uint32_t bucket = 0; bucket < machine->shape.cells; bucket++) {
            walk->is_all = walk->left-- > 0;
            if (!walk->is_all)
                return WEIR_OK;
            error = walk_locked(walk, machine_stripe(machine, i), bucket, clock_now_us(&inspector->clock));
            if (guard_is_lost(machine->file.guard))
                error = machine_lost(machine);
            for (size_t k = 0; k < walk->n && !error; k++)
                error = visit(user, &walk->keys[k]);
            walk_forget(walk);
            if (error)
                return error;
        }
    return error;
}

int inspect_file_some(struct file_inspector *inspector, const char *limit, const char *pattern, int64_t most,
                      bool *is_all, int (*visit)(void *user, const struct weir_inspected *key), void *user)
{
    char sentence[LOG_LINE_SIZE];
    const struct message why = { sentence, sizeof sentence };
    struct file_walk walk = {
        .machine = inspector->machine, .limit = limit, .left = most, .has_pattern = pattern != NULL
    };
    if (!visit || most < 1)
        return inspect_refuse(inspector, visit ? "most must be 1 or more" : "visit must not be NULL");
    if ((limit && policy_state_name_check(limit, why) != WEIR_OK) ||
        (pattern && pattern_read(pattern, &walk.pattern, why) != WEIR_OK))
        return inspect_refuse(inspector, sentence);
    if (limit)
        walk.secret = hash_secret_of(&inspector->machine->file.facts.secret, limit);
    int error = walk_all(&walk, inspector, visit, user);
    if (!error && walk.is_all)
        error = machine_flight_walk(walk.machine, limit, pattern ? &walk.pattern : NULL,
                                    clock_now_us(&inspector->clock), visit, user);
    free(walk.keys);
    *is_all = !error && walk.is_all;
    return error;
}
