/* entry.c - claims a record that another thread is changing; matches a summary and the state behind its entry. */
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

void entry_open(const struct rule *rule, struct entry *entry)
{
    int64_t summary[SUMMARY_WORDS], first[SUMMARY_WORDS];
    if (!rule_has_summary(rule))
        return;
    record_read(entry->record, 0, summary, SUMMARY_WORDS);
    entry_read(entry, 0, first, SUMMARY_WORDS);
    const bool rest_counts = sliding_summary_open(summary, first);
    entry_write(entry, 0, first, SUMMARY_WORDS);
    for (size_t i = SUMMARY_WORDS; !rest_counts && i < sliding_window_words(&rule->plan); i++)
        entry_write(entry, i, &(int64_t){ 0 }, 1);
}

void entry_close(const struct rule *rule, struct entry *entry)
{
    int64_t summary[SUMMARY_WORDS];
    if (!rule_has_summary(rule))
        return;
    sliding_summary_close(&rule->plan, entry_state(entry, 0), summary);
    record_write(entry->record, 0, summary, SUMMARY_WORDS);
}
