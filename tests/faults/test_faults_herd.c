/* test_faults_herd.c - when denied clients return, and what passes around a window's edge: faults B11 and B12 of
 * tests/tools/faults.conf.
 */
#include "support.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { CLIENTS = 10000, MOMENTS = 100 };

TEST(separate_windows_per_key_spread_returning_clients, 30)
{
    static int64_t first_us[CLIENTS];
    static int back[MOMENTS];
    struct chance chance = chance_make(1);
    char key[16];
    int most = 0;
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=1 period=1h");
    const int64_t start_us = scene.now_us;
    for (int i = 0; i < CLIENTS; i++)
        first_us[i] = start_us + WEIR_HOUR * i / CLIENTS;
    for (int i = 0; i < CLIENTS; i++) { /* in the order of time; each tries again a little later */
        scene.now_us = first_us[i];
        snprintf(key, sizeof key, "%d", i);
        must(taken(limit, key, 1).allowed, "the first of a window is admitted");
        const struct weir_decision denied = taken(limit, key, 1);
        must(!denied.allowed && denied.retry_after_us == WEIR_HOUR, "denied until its own window ends");
    }
    scene.now_us = start_us + WEIR_HOUR - 1;
    for (int i = 0; i < CLIENTS; i++) { /* all at one moment, as after an outage of the clients */
        snprintf(key, sizeof key, "%d", (int)((i + chance_between(&chance, 0, CLIENTS - 1)) % CLIENTS));
        const int client = atoi(key);
        const struct weir_decision denied = taken(limit, key, 1);
        must(!denied.allowed, "no window has ended");
        must(scene.now_us + denied.retry_after_us == first_us[client] + WEIR_HOUR, "told its own window's end");
        const int moment = (int)((denied.retry_after_us - 1) * MOMENTS / WEIR_HOUR);
        back[moment]++;
        most = back[moment] > most ? back[moment] : most;
    }
    printf("the fullest moment has %.2f times the mean of those who come back\n", most / (CLIENTS / (double)MOMENTS));
    ck_assert_int_le(most, 3 * CLIENTS / MOMENTS);
}

/* The admissions of the last period, as a queue of times. */
struct period {
    int64_t at_us[1 << 16], now_us, period_us;
    int first, n;
};

static int admitted_now(struct period *period)
{
    period->at_us[period->n++] = period->now_us;
    while (period->at_us[period->first] <= period->now_us - period->period_us)
        period->first++;
    return period->n - period->first;
}

TEST(a_fixed_window_admits_at_most_twice_its_limit_in_any_period, 30)
{
    enum { LIMIT = 50, WINDOWS = 400 };
    static const char *const policies[] = { "fixed_window limit=50 period=1s",
                                            "fixed_window limit=50 period=1s align=epoch" };
    static struct period period;
    struct chance chance = chance_make(2);
    for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
        int worst = 0;
        OPEN_SCENE(scene, NULL);
        weir_limit *limit = scene_define_text(&scene, "limit", policies[p]);
        period = (struct period){ .period_us = WEIR_SECOND };
        for (int i = 0; i < 10 * WINDOWS; i++) {
            /* Take all permits at the end of a window and again at the start of the next, or at random times. */
            const struct weir_decision seen = taken(limit, "key", 1);
            if (seen.allowed) {
                period.now_us = scene.now_us;
                const int sum = admitted_now(&period);
                worst = sum > worst ? sum : worst;
                continue;
            }
            const bool to_the_end = chance_one_in(&chance, 2);
            scene.now_us += to_the_end ? seen.retry_after_us : chance_between(&chance, 1, 2 * WEIR_SECOND);
            if (to_the_end && chance_one_in(&chance, 2)) {
                must(taken(limit, "key", 1).allowed, "a window begins");
                period.now_us = scene.now_us;
                admitted_now(&period);
                scene.now_us += WEIR_SECOND - 1 - (p == 1 ? scene.now_us % WEIR_SECOND : 0);
            }
        }
        printf("%s: the worst period saw %d\n", policies[p], worst);
        ck_assert_int_le(worst, 2 * LIMIT);
        ck_assert_int_gt(worst, 3 * LIMIT / 2); /* the test tried to exceed the limit */
    }
}
