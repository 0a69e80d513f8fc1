/* test_machine_boot.c - the clock of a shared file after a restart of the machine.
 *
 * The header names the boot in which the file was last opened first, and the time at which that boot began. A test
 * writes another one there while no process uses the file. The next process then finds what it would find after a
 * restart. All limiters use the system's clock.
 */
#include "backends/machine/layout.h"
#include "shared_file.h"
#include "support.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static struct machine_facts facts_read(void)
{
    struct machine_facts facts;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    must(fd >= 0, "the file is opened");
    must(pread(fd, &facts, sizeof facts, 0) == sizeof facts, "the header is read");
    close(fd);
    return facts;
}

/* Let the clock have been `ahead_us` ahead of the system's, in this boot or in an earlier one. */
static void facts_change(int64_t ahead_us, bool other_boot)
{
    struct machine_facts facts = facts_read();
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    facts.epoch_us += ahead_us;
    facts.boot[0] ^= other_boot;
    facts.sum = machine_sum(&facts, offsetof(struct machine_facts, sum));
    must(fd >= 0 && pwrite(fd, &facts, sizeof facts, 0) == sizeof facts, "the header is written");
    close(fd);
}

static weir_limit *open_limit(weir **limiter, const char *policy_text)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    const struct weir_policy policy = policy_of(policy_text);
    weir_limit *limit;
    options.mode = WEIR_MACHINE;
    options.shared = path;
    options.max_keys = 100;
    options.timeout_us = WEIR_HOUR;
    must(weir_open(&options, limiter) == WEIR_OK, weir_last_message());
    must_succeed(weir_limit_define(*limiter, "limit", &policy, &limit));
    return limit;
}

/* Return the system's time at which this boot began. */
static int64_t booted_us(void)
{
    struct timespec boot, now;
    clock_gettime(CLOCK_REALTIME, &now);
    clock_gettime(CLOCK_BOOTTIME, &boot);
    return (now.tv_sec - boot.tv_sec) * WEIR_SECOND + now.tv_nsec / 1000 - boot.tv_nsec / 1000;
}

/* The time of the file's clock, less that of the system: 0, apart from what passes between two calls. */
static int64_t ahead_us(void)
{
    return facts_read().epoch_us - booted_us();
}

static bool is_about(int64_t us, int64_t expected_us)
{
    return us > expected_us - 10 * WEIR_MINUTE && us < expected_us + 10 * WEIR_MINUTE;
}

TEST(within_one_boot_the_files_clock_ignores_changes_of_the_system_clock, 20)
{
    weir *limiter;
    folder_make();
    open_limit(&limiter, "fixed_window limit=10 period=1h");
    ck_assert(is_about(ahead_us(), 0));
    weir_close(limiter);
    facts_change(2 * WEIR_HOUR, false); /* as if the system's clock had been set back */
    open_limit(&limiter, "fixed_window limit=10 period=1h");
    ck_assert(is_about(ahead_us(), 2 * WEIR_HOUR));
    weir_close(limiter);
    folder_remove();
}

TEST(after_a_reboot_the_files_clock_follows_the_system_clock, 20)
{
    weir *limiter;
    folder_make();
    weir_limit *limit = open_limit(&limiter, "fixed_window limit=10 period=1d");
    ck_assert(taken(limit, "a", 10).allowed);
    weir_close(limiter);

    /* The states are of an earlier boot, and the clock is right. */
    facts_change(0, true);
    limit = open_limit(&limiter, "fixed_window limit=10 period=1d");
    ck_assert(is_about(ahead_us(), 0));
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 0);
    weir_close(limiter);

    /* An hour behind, in an earlier boot: an hour more has passed since. */
    facts_change(-WEIR_HOUR, false);
    limit = open_limit(&limiter, "fixed_window limit=10 period=1d");
    must_succeed(weir_reset(limit, weir_key_text("a")));
    ck_assert(taken(limit, "a", 10).allowed);
    weir_close(limiter);
    facts_change(0, true);
    limit = open_limit(&limiter, "fixed_window limit=10 period=1d");
    ck_assert(is_about(ahead_us(), 0));
    ck_assert(is_about(peeked(limit, "a", 1).retry_after_us, 23 * WEIR_HOUR));
    weir_close(limiter);
    folder_remove();
}

TEST(a_clock_set_back_by_a_reboot_admits_no_extra_permits, 20)
{
    static const char *const policies[] = { "fixed_window limit=10 period=1h", "token_bucket limit=10 period=1h",
                                            "leaky_bucket limit=10 period=1h", "sliding_window limit=10 period=1h" };
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        weir *limiter;
        folder_make();
        weir_limit *limit = open_limit(&limiter, policies[i]);
        weir_close(limiter);
        facts_change(WEIR_DAY, false);
        limit = open_limit(&limiter, policies[i]); /* a day ahead */
        ck_assert(taken(limit, "a", 10).allowed);
        weir_close(limiter);
        facts_change(0, true);
        limit = open_limit(&limiter, policies[i]); /* right again, so a day back */
        ck_assert(is_about(ahead_us(), 0));
        const struct weir_decision decision = taken(limit, "a", 10);
        ck_assert_msg(!decision.allowed && decision.remaining <= 1, "%s", policies[i]);
        ck_assert_msg(decision.retry_after_us <= 2 * WEIR_HOUR, "%s: %" PRId64, policies[i], decision.retry_after_us);
        weir_close(limiter);
        folder_remove();
    }
}

TEST(only_a_process_without_peers_on_the_file_rereads_the_system_clock, 20)
{
    weir *first, *second;
    folder_make();
    open_limit(&first, "fixed_window limit=10 period=1h");
    const struct machine_facts before = facts_read();
    facts_change(WEIR_HOUR, true); /* of no consequence: a process has the file */
    open_limit(&second, "fixed_window limit=10 period=1h");
    ck_assert(is_about(ahead_us(), WEIR_HOUR));
    weir_close(second);
    weir_close(first);
    open_limit(&first, "fixed_window limit=10 period=1h");
    const struct machine_facts after = facts_read();
    ck_assert(is_about(ahead_us(), 0));
    ck_assert_mem_eq(before.boot, after.boot, sizeof before.boot);
    weir_close(first);
    folder_remove();
}
