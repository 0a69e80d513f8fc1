/* suite.c - collects the contract's tests, adds them to a suite for each backend, and holds what the parts share. */
#include "contract/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BACKENDS_MOST = 8, CONTRACT_MOST = 96 };

static const struct contract_backend *backends[BACKENDS_MOST];
static int backend_count;

static struct contract_test {
    unsigned part;
    const char *name;
    const TTest *test;
    double timeout_seconds;
} contract[CONTRACT_MOST];
static int contract_count;

/* Check keeps the names of its cases by address. */
static char titles[BACKENDS_MOST][CONTRACT_MOST][160];

void contract_has(unsigned part, const char *name, const TTest *test, double timeout_seconds)
{
    if (contract_count == CONTRACT_MOST)
        abort();
    contract[contract_count++] = (struct contract_test){ part, name, test, timeout_seconds };
}

void contract_add(Suite *suite, const struct contract_backend *backend)
{
    if (backend_count == BACKENDS_MOST)
        abort();
    const int index = backend_count++;
    backends[index] = backend;
    for (int i = 0; i < contract_count; i++) {
        const struct contract_test *test = &contract[i];
        if (!(backend->parts & test->part))
            continue;
        snprintf(titles[index][i], sizeof titles[index][i], "%s: %s", backend->name, test->name);
        TCase *alone = tcase_create(titles[index][i]);
        tcase_set_timeout(alone, test->timeout_seconds);
        tcase_add_loop_test(alone, test->test, index, index + 1);
        suite_add_tcase(suite, alone);
    }
}

const struct contract_backend *contract_backend(int number)
{
    return backends[number];
}

void open_backend(struct scene *scene, int backend)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    scene_init(scene, &options);
    must_succeed(backends[backend]->open(&options, &scene->limiter));
}

struct weir_reservation reserved(weir_limit *limit, const char *key, int64_t estimate, bool allowed)
{
    struct weir_decision decision;
    struct weir_reservation reservation;
    must_succeed(weir_reserve(limit, weir_key_text(key), estimate, &decision, &reservation));
    ck_assert_int_eq(decision.allowed, allowed);
    ck_assert_int_eq(reservation.permits, allowed ? estimate : -1);
    return reservation;
}

void complete(struct weir_op *op, int status)
{
    struct completion *completion = op->user;
    atomic_store(&completion->status, status);
    atomic_fetch_add(&completion->runs, 1);
}

void submit_and_wait(weir *limiter, struct weir_op *op)
{
    struct completion completion = { 0, 0 };
    op->done = complete;
    op->user = &completion;
    int result = weir_submit(limiter, op);
    ck_assert(result == WEIR_OK || result == 1);
    while (result == 1 && atomic_load(&completion.runs) == 0)
        nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    ck_assert_int_eq(atomic_load(&completion.runs), result);
    ck_assert_int_eq(atomic_load(&completion.status), WEIR_OK);
}
