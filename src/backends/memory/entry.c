/* entry.c - waits for a record that another thread is changing. */
#include "backends/memory/entry.h"

#include "backends/shared/wait_briefly.h"

void record_hold(struct record *record)
{
    uint64_t word = record_word(record) & ~WORD_BUSY;
    for (int tries = 0; !record_claim(record, &word); tries++) {
        word &= ~WORD_BUSY;
        wait_briefly(tries);
    }
}
