/* inspect.c - the inspector of a shared file, which looks at keys in it and clears them. */
#include "backends/machine/inspector.h"
#include "backends/machine/machine.h"
#include "core/ground/key_hash.h"
#include "core/policy/policy.h"

#include <stdio.h>
#include <stdlib.h>

/* Look at a key, or remove it, under its stripe's lock. */
static int inspect_inside(struct visit *visit, bool remove, struct weir_inspected *out)
{
    int error = visit_find(visit);
    if (error || !visit->first)
        return error;
    error = inspect_tell(visit, out);
    return error || !remove ? error : visit_remove(visit);
}

static int inspect_locked(struct visit *visit, bool remove, struct weir_inspected *out)
{
    struct machine *machine = visit->machine;
    int error = stripe_enter(machine, visit->stripe);
    if (error)
        return error;
    book_renew(&machine->book);
    error = inspect_inside(visit, remove, out);
    if (error == WEIR_ESTATE && stripe_repair(machine, visit->stripe) == WEIR_OK)
        error = inspect_inside(visit, remove, out);
    if (!error)
        visit_leave(visit);
    stripe_leave(visit->stripe);
    return error;
}

static int inspect_visit(struct file_inspector *inspector, const char *limit, struct weir_key key, bool remove,
                         struct weir_inspected *out)
{
    char sentence[LOG_LINE_SIZE];
    struct machine *machine = inspector->machine;
    if (!limit || policy_state_name_check(limit, (struct message){ sentence, sizeof sentence }) != WEIR_OK)
        return inspect_refuse(inspector, limit ? sentence : "limit must not be NULL");
    if (!key.data || key.len < 1 || key.len > WEIR_MAX_KEY_LEN)
        return inspect_refuse(inspector, "key must have 1 to 65536 bytes");
    if (out->size != sizeof *out)
        return inspect_refuse(inspector, "size is not that of struct weir_inspected");
    *out = (struct weir_inspected){ .size = sizeof *out, .key = key };
    snprintf(out->limit, sizeof out->limit, "%s", limit);
    const struct hash_secret secret = hash_secret_of(&machine->file.facts.secret, limit);
    const struct weir_backend_request request = { .key = key, .hash = key_hash_by(&secret, key.data, key.len) };
    struct visit visit = { .machine = machine,
                           .stripe = machine_stripe_of(machine, request.hash),
                           .now_us = clock_now_us(&inspector->clock),
                           .len = key.len,
                           .limit = &secret,
                           .request = &request };
    int error = inspect_locked(&visit, remove, out);
    if (!error && (remove || out->found == WEIR_FOUND_NOTHING))
        error = machine_flight_look(machine, &request, visit.now_us, remove, out);
    if (guard_is_lost(machine->file.guard))
        return machine_lost(machine);
    if (error || remove || out->found != WEIR_FOUND_NOTHING || rules_have_limit(&machine->file, &secret))
        return error;
    snprintf(
        sentence, sizeof sentence,
        "the file knows no limit \"%s\": check its name; a limit is known once a process has asked for a key of it",
        limit);
    return inspect_refuse(inspector, sentence);
}

static int inspect_key(weir_inspector *opaque, const char *limit, struct weir_key key, struct weir_inspected *out)
{
    return inspect_visit((struct file_inspector *)(void *)opaque, limit, key, false, out);
}

static int inspect_reset(weir_inspector *opaque, const char *limit, struct weir_key key, bool *existed)
{
    struct weir_inspected found = { .size = sizeof found };
    const int error = inspect_visit((struct file_inspector *)(void *)opaque, limit, key, true, &found);
    *existed = !error && found.found == WEIR_FOUND_STATE;
    return error;
}

static int inspect_some(weir_inspector *opaque, const char *limit, const char *pattern, int64_t most, bool *is_all,
                        int (*visit)(void *user, const struct weir_inspected *key), void *user)
{
    return inspect_file_some((struct file_inspector *)(void *)opaque, limit, pattern, most, is_all, visit, user);
}

static void inspect_close(weir_inspector *opaque)
{
    struct file_inspector *inspector = (struct file_inspector *)(void *)opaque;
    inspector->machine->backend.ops->destroy(&inspector->machine->backend);
    free(inspector);
}

static const struct inspect_kind inspect_file = {
    .close = inspect_close, .key = inspect_key, .some = inspect_some, .reset = inspect_reset
};

int machine_inspect_open(const struct weir_options *options, weir_inspector **out)
{
    struct weir_options existing = *options;
    struct weir_backend *backend;
    struct file_inspector *inspector = calloc(1, sizeof *inspector);
    if (!inspector)
        return WEIR_ENOMEM;
    *inspector = (struct file_inspector){ .kind = &inspect_file, .log = { options->log, options->user } };
    existing.max_keys = 0;
    const int error = options->shared ? machine_open(&existing, &backend)
                                      : inspect_refuse(inspector, "option shared must name the file to inspect");
    if (error) {
        free(inspector);
        return error;
    }
    inspector->machine = (struct machine *)backend;
    clock_init(&inspector->clock, options->now_us, options->user);
    inspector->clock.epoch_us = inspector->machine->file.facts.epoch_us;
    *out = (weir_inspector *)(void *)inspector;
    return WEIR_OK;
}
