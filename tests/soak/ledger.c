/* ledger.c - the memory that the soak's processes share, and its rings of records. */
#include "soak.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

struct ledger *ledger_open(int fd)
{
    void *memory = mmap(NULL, sizeof(struct ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory != MAP_FAILED)
        return memory;
    perror("soak: shared memory");
    return NULL;
}

struct ledger *ledger_make(int *fd)
{
    *fd = memfd_create("soak", MFD_CLOEXEC);
    if (*fd < 0 || ftruncate(*fd, sizeof(struct ledger)) != 0) {
        perror("soak: shared memory");
        return NULL;
    }
    return ledger_open(*fd);
}

void ledger_write(struct ledger *ledger, int process, const struct record *record)
{
    struct account *account = &ledger->accounts[process];
    uint64_t place = atomic_fetch_add(&account->reserved, 1);
    while (place - atomic_load(&account->taken) >= RING) /* the judge is behind, or does not run */
        pause_us(1000);
    struct record *into = &account->ring[place % RING];
    into->end_us = record->end_us;
    into->key = record->key;
    into->cost = record->cost;
    into->mode = record->mode;
    into->limit = record->limit;
    into->kind = record->kind;
    into->source = record->source;
    atomic_store_explicit(&into->start_us, record->start_us, memory_order_release);
}

void ledger_take(struct ledger *ledger, int process, bool ended, ledger_taker *take, void *user)
{
    struct account *account = &ledger->accounts[process];
    uint64_t place = atomic_load(&account->taken), end = atomic_load(&account->reserved);
    for (; place != end; place++) {
        struct record *record = &account->ring[place % RING];
        if (atomic_load_explicit(&record->start_us, memory_order_acquire) != 0) {
            take(user, process, record);
            atomic_store_explicit(&record->start_us, 0, memory_order_relaxed);
        } else if (!ended) {
            break;
        }
        atomic_store(&account->taken, place + 1);
    }
}

void complain(struct ledger *ledger, int process, const char *format, ...)
{
    struct account *account = &ledger->accounts[process];
    if (atomic_fetch_add(&account->complaints, 1) > 0)
        return;
    va_list list;
    va_start(list, format);
    vsnprintf(account->complaint, sizeof account->complaint, format, list);
    va_end(list);
}
