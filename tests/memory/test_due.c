/* test_due.c - the order in which entries become due, compared with a plain list of their times. */
#include "support.h"

#include "backends/memory/due.h"

enum { ENTRIES = 300 };

/* Entries of which only the links matter, and when each is due; 0: it is not filed. */
static alignas(struct entry) char room[ENTRIES][sizeof(struct entry)];
static int64_t times_us[ENTRIES];
static struct due due;
static int64_t filed, fruitless;

static struct entry *entry_of(int number)
{
    return (struct entry *)(void *)room[number];
}

static void file(int number, int64_t time_us)
{
    times_us[number] = time_us;
    due_file(&due, entry_of(number), time_us);
    filed++;
}

/* Take out all entries that are due, as a sweep does. */
static void take_due(int64_t now_us)
{
    struct entry *entry;
    int64_t soonest_us = INT64_MAX;
    while ((entry = due_first(&due, now_us))) {
        const int number = (int)(((char *)entry - room[0]) / (ptrdiff_t)sizeof room[0]);
        must(times_us[number] != 0 && due_has(entry), "it is filed");
        if (times_us[number] > now_us) {
            due_file(&due, entry, times_us[number]);
            fruitless++;
        } else {
            due_remove(entry);
            times_us[number] = 0;
        }
    }
    for (int i = 0; i < ENTRIES; i++) {
        must((times_us[i] != 0) == due_has(entry_of(i)), "no entry is lost");
        must(times_us[i] == 0 || times_us[i] > now_us, "each that is due is found");
        soonest_us = times_us[i] != 0 && times_us[i] < soonest_us ? times_us[i] : soonest_us;
    }
    must(due_soonest_us(&due) <= soonest_us && due_soonest_us(&due) > now_us, "a lower bound");
    must(soonest_us < INT64_MAX || due_soonest_us(&due) == INT64_MAX, "or none");
}

TEST(entries_are_due_at_their_times_even_if_the_clock_steps_back, 60)
{
    struct chance chance = chance_make(0);
    int64_t now_us = INT64_C(1700000000) * WEIR_SECOND;
    for (int64_t i = 0; i < steps_or(INSTRUMENTED ? 100000 : 1000000); i++) {
        const int number = (int)chance_between(&chance, 0, ENTRIES - 1);
        switch (chance_between(&chance, 0, 9)) {
        case 0:
            due_remove(entry_of(number));
            times_us[number] = 0;
            break;
        case 1:
        case 2:
            now_us += chance_magnitude(&chance, WEIR_HOUR);
            take_due(now_us);
            break;
        case 3:
            if (chance_one_in(&chance, 10))
                now_us -= chance_magnitude(&chance, WEIR_HOUR);
            break;
        default: file(number, now_us + chance_magnitude(&chance, WEIR_DAY));
        }
    }
    file(0, WEIR_MAX_TIME_US + INT64_C(150) * 366 * WEIR_DAY); /* the latest, and an unknown one */
    file(1, INT64_MAX);
    due_file(&due, entry_of(2), 0);
    ck_assert_ptr_eq(due_first(&due, INT64_MAX), entry_of(2));
    ck_assert_int_gt(fruitless, 0);
    ck_assert_int_lt(fruitless, DUE_LEVELS * filed);
}
