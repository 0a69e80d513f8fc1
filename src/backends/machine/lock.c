/* lock.c - waits for a lock whose owner may have died. */
#include "backends/machine/lock.h"

#include "backends/shared/wait_briefly.h"
#include "core/ground/clock.h"

#include <errno.h>

enum lock_end lock_wait(struct machine_file *file, _Atomic uint64_t *word, int64_t *patience_us)
{
    const int code = errno;
    int64_t began_us = 0;
    enum lock_end end = LOCK_TIMEOUT;
    for (int tries = 0;; tries++) {
        uint64_t owner = atomic_load_explicit(word, memory_order_relaxed);
        if (owner == 0 && atomic_compare_exchange_strong_explicit(word, &owner, file->owner, memory_order_acquire,
                                                                  memory_order_relaxed)) {
            end = LOCK_TAKEN;
            break;
        }
        if (tries >= WAIT_SPINS && owner != 0 && !file_owner_lives(file, owner) &&
            atomic_compare_exchange_strong_explicit(word, &owner, file->owner, memory_order_acquire,
                                                    memory_order_relaxed)) {
            end = LOCK_INHERITED;
            break;
        }
        if (tries >= WAIT_SPINS + WAIT_YIELDS) {
            const int64_t now_us = clock_monotonic_us();
            began_us = began_us ? began_us : now_us;
            if (now_us - began_us >= *patience_us)
                break;
        }
        wait_briefly(tries < WAIT_SPINS + WAIT_YIELDS ? tries : WAIT_SPINS + WAIT_YIELDS);
    }
    if (began_us != 0) {
        atomic_fetch_add_explicit(&file->waits, 1, memory_order_relaxed);
        *patience_us -= clock_monotonic_us() - began_us;
    }
    errno = code;
    return end;
}
