/* in_flight.c - at most two exports of a user at a time, also if a process dies in the middle of one. An export that
 * takes longer than the hold renews its permit.
 *
 *     ann begins 1: allowed
 *     ann begins 2: allowed
 *     ann begins 3: denied, a permit comes back within 60 s
 *     bob begins 4: allowed
 *     ann ends 1
 *     ann begins 5: allowed
 *     2 dies
 *     5 goes on after 20 s
 *     5 goes on after 40 s
 *     5 goes on after 60 s
 *     66 s later
 *     ann begins 6: allowed
 *     ann begins 7: denied, a permit comes back within 54 s
 */
#include <stdio.h>
#include <stdlib.h>

#include <weir/weir.h>

static int64_t now_us; /* this program sets its clock, so that it need not wait */

static int64_t clock_us(void *user)
{
    (void)user;
    return now_us;
}

/* An export keeps its reservation until it ends. */
struct export
{
    const char *user;
    struct weir_reservation reservation;
};

static void begin(weir_limit *limit, int number, struct export *export, const char *user)
{
    struct weir_decision decision;
    export->user = user;
    if (weir_reserve(limit, weir_key_text(user), 1, &decision, &export->reservation) != WEIR_OK)
        exit(EXIT_FAILURE);
    if (decision.allowed)
        printf("%s begins %d: allowed\n", user, number);
    else
        printf("%s begins %d: denied, a permit comes back within %lld s\n", user, number,
               (long long)(decision.retry_after_us + 999999) / 1000000);
}

/* A long export calls this every third of the hold. */
static void go_on(weir_limit *limit, int number, struct export *export, int64_t seconds)
{
    struct weir_decision decision;
    if (weir_renew(limit, weir_key_text(export->user), 1, &decision, &export->reservation) != WEIR_OK)
        return; /* Redis is away: the permit keeps the hold that it has */
    if (!decision.allowed) {
        fprintf(stderr, "%d renewed too late: it must end\n", number);
        exit(EXIT_FAILURE);
    }
    printf("%d goes on after %lld s\n", number, (long long)seconds);
}

static void end(weir_limit *limit, int number, const struct export *export)
{
    if (weir_release(limit, weir_key_text(export->user), &export->reservation) != WEIR_OK)
        exit(EXIT_FAILURE);
    printf("%s ends %d\n", export->user, number);
}

int main(void)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct weir_policy policy;
    struct export exports[8];
    weir *limiter;
    weir_limit *limit;
    options.now_us = clock_us; /* a service leaves this out */
    now_us = 1700000000 * WEIR_SECOND;
    if (weir_policy_parse("concurrency limit=2 hold=1m", &policy, NULL, 0) != WEIR_OK ||
        weir_open(&options, &limiter) != WEIR_OK || weir_limit_define(limiter, "exports", &policy, &limit) != WEIR_OK) {
        fprintf(stderr, "%s\n", weir_last_message());
        return EXIT_FAILURE;
    }
    begin(limit, 1, &exports[1], "ann");
    begin(limit, 2, &exports[2], "ann");
    begin(limit, 3, &exports[3], "ann");
    begin(limit, 4, &exports[4], "bob");
    end(limit, 1, &exports[1]);
    begin(limit, 5, &exports[5], "ann");
    puts("2 dies"); /* its process never ends it: the permit comes back at the end of the hold */
    for (int64_t seconds = 20; seconds <= 60; seconds += 20) {
        now_us += 20 * WEIR_SECOND;
        go_on(limit, 5, &exports[5], seconds);
    }
    puts("66 s later");
    now_us += 6 * WEIR_SECOND;
    begin(limit, 6, &exports[6], "ann");
    begin(limit, 7, &exports[7], "ann");
    weir_close(limiter);
    return EXIT_SUCCESS;
}
