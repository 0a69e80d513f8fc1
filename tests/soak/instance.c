/* instance.c - one of the soak's processes: a limiter of each mode, closed and reopened on demand. */
#include "seat.h"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    READY_US = 60000000,
    OPENINGS = 6,
    TENTH = 10, /* of a second, in turns */
    PLANT_BYTES = 262144,
    PLANT_EVERY_US = 100000
};

static struct seat seats[MODES];

static bool is_seated(const struct ledger *ledger, int mode)
{
    return soak_modes[mode].place != PLACE_CLUSTER || ledger->with_cluster;
}

static int open_all(struct ledger *ledger, int process)
{
    for (int mode = 0; mode < MODES; mode++)
        if (is_seated(ledger, mode) && seat_open(&seats[mode], ledger, process, mode) != 0)
            return -1;
    return 0;
}

static void close_all(const struct ledger *ledger)
{
    for (int mode = 0; mode < MODES; mode++)
        if (is_seated(ledger, mode))
            seat_close(&seats[mode]);
}

static int start_all(struct ledger *ledger, int process)
{
    int failed = 0;
    for (int mode = 0; mode < MODES && failed == 0; mode++)
        if (is_seated(ledger, mode))
            failed = seat_start(&seats[mode]);
    for (int mode = 0; mode < MODES && failed == 0; mode++)
        if (is_seated(ledger, mode) && weir_await_ready(seats[mode].limiter, READY_US) != WEIR_OK) {
            complain(ledger, process, "%s never knew what it follows", soak_modes[mode].name);
            failed = -1;
        }
    return failed;
}

static int end_all(const struct ledger *ledger)
{
    int failed = 0;
    for (int mode = 0; mode < MODES; mode++)
        if (is_seated(ledger, mode))
            failed = seat_end(&seats[mode]) != 0 ? -1 : failed;
    close_all(ledger);
    return failed;
}

/* Open and close the limiters several times before any request. Memory that malloc() returns again must be cleared,
 * which makes tables resident, and its pieces take some rounds to fit; then memory stays constant. */
static int open_until_flat(struct ledger *ledger, int process)
{
    for (int i = 0; i < OPENINGS; i++) {
        if (open_all(ledger, process) != 0)
            return -1;
        close_all(ledger);
    }
    return open_all(ledger, process);
}

/* 0 where another allocator replaces the C library's. */
static int64_t heap_bytes(void)
{
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    const struct mallinfo2 heap = mallinfo2();
    return (int64_t)(heap.uordblks + heap.hblkhd);
#else
    return 0;
#endif
}

static void *plant_thread(void *nothing)
{
    for (;;)
        pause();
    return nothing;
}

/* Leak on purpose, in the first process; as often however slow it is. */
static void plant(const struct ledger *ledger)
{
    static void *volatile lost;
    pthread_t thread;
    if (ledger->planted & PLANT_MEMORY && (lost = malloc(PLANT_BYTES)) != NULL)
        memset(lost, 1, PLANT_BYTES);
    if (ledger->planted & PLANT_DESCRIPTORS && open("/dev/null", O_RDONLY | O_CLOEXEC) < 0)
        abort();
    if (ledger->planted & PLANT_THREADS && pthread_create(&thread, NULL, plant_thread, NULL) == 0)
        pthread_detach(thread);
}

int instance_run(struct ledger *ledger, int process, int life)
{
    struct account *account = &ledger->accounts[process];
    int reopened = atomic_load(&ledger->reopen), turn = 0, failed = 0;
    int64_t plant_at_us = now_us();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    failed = open_until_flat(ledger, process) != 0 || start_all(ledger, process) != 0 ? -1 : 0;
    atomic_store(&account->reopened, reopened);
    if (failed == 0)
        atomic_store(&account->ready, life);
    while (failed == 0 && !atomic_load(&ledger->over)) {
        pause_us(10000);
        if (++turn % TENTH == 0)
            atomic_store(&account->heap_bytes, heap_bytes());
        for (; ledger->planted != 0 && process == 0 && plant_at_us < now_us(); plant_at_us += PLANT_EVERY_US)
            plant(ledger);
        if (atomic_load(&ledger->reopen) == reopened)
            continue;
        reopened = atomic_load(&ledger->reopen);
        failed = end_all(ledger) != 0 || open_all(ledger, process) != 0 || start_all(ledger, process) != 0 ? -1 : 0;
        atomic_store(&account->reopened, reopened);
    }
    if (failed != 0)
        return 1;
    return end_all(ledger) != 0;
}
