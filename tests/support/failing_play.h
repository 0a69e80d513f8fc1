/* failing_play.h - what a limiter is put through while a system call fails: opened, asked in every way, closed.
 *
 * Whatever fails, each call answers as weir.h says: WEIR_EIO, WEIR_ETIME or WEIR_ENOMEM, with a line in the log, or by
 * the fallback that the options ask for, which the decision tells. No permit is admitted beyond the limit, and none is
 * lost but what an error or a fallback may stand for. Once the failure is over the same limiter decides right again.
 * Then it is closed, while the calls fail once more.
 */
#ifndef WEIR_TESTS_FAILING_PLAY_H
#define WEIR_TESTS_FAILING_PLAY_H

#include "failing_runs.h"

struct failing_mode {
    struct weir_options options; /* but for log and user */
    const char *policy;          /* of the limit, by weir_limit_define(); NULL: the options bring it */
    int64_t limit;               /* what is admitted of it here, once all is followed; 0: what weir_limit_info() says */
    int begins_with;             /* requests before all others, one by one */
    bool has_event_fd;           /* what is submitted is answered by weir_dispatch() */
    bool leases;                 /* permits are leased, and may be lost with their lease */

    bool in_child; /* opened in the parent of the process that asks; not under a sanitizer */

    /* In this process, before the limiter is opened and after it is closed, with no call watched; NULL: nothing. What
     * they set up is to be found by the options. */
    void (*begin)(struct failing_run *run, struct weir_options *options);
    void (*end)(struct failing_run *run);

    /* The policy changes while calls fail; NULL: it does not. `limit` is of the new one. */
    void (*change)(struct failing_run *run);
};

/* Play it under that name; the test fails if anything is to blame, or if nothing could be made to fail. */
void failing_play_mode(const char *name, const struct failing_mode *mode, struct failing_sum *out);

#endif
