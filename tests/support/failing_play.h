/* failing_play.h - open a limiter, ask it in every way and close it, all while a system call fails.
 *
 * Each call must answer as weir.h says: with WEIR_EIO, WEIR_ETIME or WEIR_ENOMEM and a line in the log, or with a
 * decision of the fallback that names its source. The limiter admits no permit beyond the limit and loses only those
 * that an error or a fallback can explain. After the failure it decides correctly again. Then the play closes it while
 * the calls fail once more.
 */
#ifndef WEIR_TESTS_FAILING_PLAY_H
#define WEIR_TESTS_FAILING_PLAY_H

#include "failing_runs.h"

struct failing_mode {
    struct weir_options options; /* except log and user */
    const char *policy;          /* for weir_limit_define(); NULL: the options define the limit */
    int64_t limit;               /* permits that this instance may admit in the end; 0: as weir_limit_info() says */
    int begins_with;             /* single requests before all others */
    bool has_event_fd;           /* weir_dispatch() answers submitted requests */
    bool leases;                 /* hybrid: permits may be lost with their lease */

    bool in_child; /* a forked child asks the limiter that its parent opened; not under a sanitizer */

    /* Called before the limiter opens and after it closes, while no call is watched; NULL: nothing. begin() may put
     * what it sets up into the options. */
    void (*begin)(struct failing_run *run, struct weir_options *options);
    void (*end)(struct failing_run *run);

    /* Change the policy while calls fail; NULL: never. `limit` is then of the new policy. */
    void (*change)(struct failing_run *run);
};

/* Play the mode; fail the test on any blame, or if no call could be made to fail. */
void failing_play_mode(const char *name, const struct failing_mode *mode, struct failing_sum *out);

#endif
