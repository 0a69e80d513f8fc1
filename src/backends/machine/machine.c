/* machine.c - the machine backend: its life, its counters, and the vtable. */
#include "backends/machine/machine.h"

#include "backends/machine/visit.h"

#include <inttypes.h>
#include <stdlib.h>

static int machine_decide(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                          int64_t deadline_us, struct weir_decision *out)
{
    struct machine *machine = (struct machine *)backend;
    (void)deadline_us; /* only a process that was stopped in the middle of a change makes it wait, see patience_us */
    if (__builtin_expect(machine->file.fd < 0, 0))
        return WEIR_EIO;
    int error = WEIR_OK;
    bool has_slots = false;
    for (size_t i = 0; all && i < n; i++)
        has_slots = has_slots || requests[i].slot;
    if (all)
        error = has_slots ? machine_flight_all(machine, requests, n, out)
                          : machine_decide_all(machine, requests, n, out);
    else
        for (size_t i = 0; i < n && !error; i++)
            error = __builtin_expect(requests[i].slot != 0, 0) ? machine_flight_decide(machine, &requests[i], &out[i])
                                                               : machine_decide_one(machine, &requests[i], &out[i]);
    return __builtin_expect(guard_is_lost(machine->file.guard), 0) ? machine_lost(machine) : error;
}

static void machine_stats(struct weir_backend *backend, struct weir_stats *add)
{
    struct machine *machine = (struct machine *)backend;
    add->full += atomic_load_explicit(&machine->full, memory_order_relaxed);
    for (uint64_t i = 0; i < machine->file.facts.stripes; i++) {
        const struct machine_stripe *stripe = machine_stripe(machine, i);
        add->evictions += atomic_load_explicit(&stripe->evictions, memory_order_relaxed);
        add->keys += word_low(atomic_load_explicit(&stripe->counts, memory_order_relaxed));
    }
    add->bytes += (int64_t)machine_level_at(&machine->file.facts, file_levels(&machine->file));
    add->lock_waits += atomic_load_explicit(&machine->file.waits, memory_order_relaxed);
    add->file_gone += machine_is_gone(machine);
    add->keys += machine_flight_keys(machine);
    machine_tell(machine);
}

static void machine_common(struct weir_backend *backend, struct hash_secret *secret, int64_t *epoch_us)
{
    const struct machine *machine = (const struct machine *)backend;
    *secret = machine->file.facts.secret;
    *epoch_us = machine->file.facts.epoch_us;
}

/* No thread changes this process's copies of rules during a fork. The stripes' locks need no care: the parent's threads
 * go on and give them back. */
static void machine_forked(struct forks_watcher *watcher, enum forks_moment moment) UNCHECKED
{
    struct machine *machine = (struct machine *)((char *)watcher - offsetof(struct machine, forks));
    if (moment == FORKS_BEFORE) {
        machine->forks_open = atomic_load_explicit(&machine->is_open, memory_order_acquire);
        if (machine->forks_open)
            lock_take(&machine->book.mutex);
        return;
    }
    if (machine->forks_open)
        lock_give(&machine->book.mutex);
    if (moment == FORKS_IN_CHILD && !machine->forks_open) {
        file_drop_in_child(&machine->file); /* the thread that was opening it does not exist here */
    } else if (moment == FORKS_IN_CHILD) {
        readers_init(&machine->book.readers);
        file_begin_in_child(&machine->file);
    }
}

static void machine_destroy(struct weir_backend *backend)
{
    struct machine *machine = (struct machine *)backend;
    file_close(&machine->file);
    forks_forget(&machine->forks);
    book_close(&machine->book);
    free(machine);
}

static void machine_fetch_key(struct weir_backend *backend, uint64_t hash)
{
    const struct machine *machine = (const struct machine *)backend;
    machine_fetch(machine, machine_stripe_of(machine, hash), bucket_of(&machine->shape, hash));
}

static const struct own_takes takes = {
    .fetch = machine_fetch_key,
    .try_key = machine_try,
    .try_handle = machine_try_handle,
};

static const struct own_ops machine_ops = {
    .base = {
        .size = OWN_OPS_SIZE,
        .name = "machine",
        .decide = machine_decide,
        .stats = machine_stats,
        .destroy = machine_destroy,
        .slots = true,
    },
    .takes = &takes,
    .common = machine_common,
};

/* Look through the file as its only user. After a restart no thread holds the locks, and a crash of the system may have
 * left anything in the file. */
static int machine_look_through(struct machine *machine)
{
    int error = WEIR_OK;
    atomic_store_explicit(&file_header(&machine->file)->rules_lock, 0, memory_order_relaxed);
    for (uint64_t i = 0; i < machine->file.facts.stripes && !error; i++) {
        struct machine_stripe *stripe = machine_stripe(machine, i);
        atomic_store_explicit(&stripe->lock, 0, memory_order_relaxed);
        atomic_store_explicit(&stripe->known_soonest_us, 0, memory_order_relaxed);
        if (stripe_load(stripe, COUNTS_WORD) == 0) /* it is new */
            error = stripe_begin(machine, stripe);
        else if (!journal_recover(stripe, &machine->shape) || !stripe_check(machine, stripe))
            error = stripe_repair(machine, stripe);
    }
    machine_flight_look_through(machine);
    return error;
}

static void machine_shape_of(struct machine *machine)
{
    const struct machine_facts *facts = &machine->file.facts;
    machine->stripes = machine->file.map + machine_stripes_at();
    machine->stripe_bytes = machine_stripe_bytes(facts);
    machine->stripe_mask = (uint32_t)facts->stripes - 1;
    machine->is_crowded = facts->cells * facts->stripes < 4 * facts->max_keys;
    machine->shape = (struct machine_shape){
        .bucket_word = sizeof(struct machine_stripe) / sizeof(uint64_t),
        .cell_word = machine_cells_at(facts) / sizeof(uint64_t),
        .words = machine_stripe_bytes(facts) / sizeof(uint64_t),
        .cells = (uint32_t)facts->cells,
    };
}

int machine_open(const struct weir_options *options, struct weir_backend **out)
{
    char sentence[LOG_LINE_SIZE];
    struct machine *machine = aligned_alloc(64, (sizeof *machine + 63) / 64 * 64);
    if (!machine)
        return WEIR_ENOMEM;
    memset(machine, 0, sizeof *machine);
    machine->backend.ops = &machine_ops.base;
    machine->on_full = options->on_full;
    machine->keep_idle = options->keep_idle;
    machine->patience_us = options->timeout_us;
    machine->log = (struct log){ options->log, options->user };
    machine->file.fd = -1;
    if (forks_ready() != 0) {
        free(machine);
        return WEIR_ENOMEM;
    }
    machine->forks.told = machine_forked;
    forks_watch(&machine->forks); /* before there is anything that a child must close */
    int error = file_open(options->shared, options->max_keys, options->timeout_us, &machine->file,
                          (struct message){ sentence, sizeof sentence });
    if (error) {
        log_line(&machine->log, WEIR_LOG_ERROR, "%s", sentence);
        forks_forget(&machine->forks);
        free(machine);
        return error;
    }
    machine_shape_of(machine);
    machine_flight_view(machine);
    error = book_open(&machine->book, &machine->file, machine->patience_us);
    if (error) {
        file_close(&machine->file);
        forks_forget(&machine->forks);
        free(machine);
        return error;
    }
    machine->told = machine_damages(machine);
    if (machine->file.is_alone)
        error = machine_look_through(machine);
    file_entered(&machine->file);
    if (error) {
        machine_destroy(&machine->backend);
        return error;
    }
    if (guard_is_lost(machine->file.guard)) {
        error = machine_lost(machine);
        machine_destroy(&machine->backend);
        return error;
    }
    machine_tell(machine);
    if (options->max_keys > 0 && machine->file.facts.max_keys != (uint64_t)options->max_keys)
        log_line(&machine->log, WEIR_LOG_INFO,
                 "shared: the file was made for %" PRIu64 " keys, which holds; option max_keys is %" PRId64,
                 machine->file.facts.max_keys, options->max_keys);
    atomic_store_explicit(&machine->is_open, true, memory_order_release);
    *out = &machine->backend;
    return WEIR_OK;
}
