/* test_policy_watch.c - a followed policy file: however it is changed, its policies are soon in force.
 *
 * Each wait ends with its event and fails only after half a minute, so no test depends on speed. To show that a change
 * has no effect, a test makes a second change and waits for that.
 */
#include "support.h"

#include <weir/backend.h>

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A private folder, and a limiter that follows <folder>/limits.conf or another path in it. */
struct stage {
    char folder[64];
    char path[PATH_MAX];
    weir *limiter;
    weir_limit *limit; /* "api" */
    pthread_mutex_t mutex;
    char last_line[512]; /* under the mutex */
};

static void note_line(void *user, enum weir_log_level level, const char *line)
{
    struct stage *stage = user;
    pthread_mutex_lock(&stage->mutex);
    snprintf(stage->last_line, sizeof stage->last_line, "%s", line);
    pthread_mutex_unlock(&stage->mutex);
}

static void run_in(const struct stage *stage, const char *command)
{
    char line[PATH_MAX + 200];
    snprintf(line, sizeof line, "cd '%s' && %s", stage->folder, command);
    must(system(line) == 0, command);
}

static void stage_make(struct stage *stage)
{
    memset(stage, 0, sizeof *stage);
    pthread_mutex_init(&stage->mutex, NULL);
    snprintf(stage->folder, sizeof stage->folder, "/tmp/weir-test-watch-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(stage->folder));
    snprintf(stage->path, sizeof stage->path, "%s/limits.conf", stage->folder);
}

static int stage_open(struct stage *stage)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    const struct weir_policy policy = policy_of("fixed_window limit=10 period=1h");
    options.policy_file = stage->path;
    options.follow_policy_file = true;
    options.log = note_line;
    options.user = stage;
    int error = weir_open(&options, &stage->limiter);
    if (!error)
        error = weir_limit_define(stage->limiter, "api", &policy, &stage->limit);
    return error;
}

static void stage_close(struct stage *stage)
{
    weir_close(stage->limiter);
    run_in(stage, "cd / && rm -r \"$OLDPWD\"");
    pthread_mutex_destroy(&stage->mutex);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

/* Write a file with `api` of that size and an override "gold" ten times as large. */
static void write_size(const char *path, int64_t size)
{
    char text[200];
    snprintf(text, sizeof text,
             "api = fixed_window limit=%lld period=1h\napi/gold = fixed_window limit=%lld period=1h\n", (long long)size,
             (long long)size * 10);
    write_file(path, text);
}

/* Replace the file in one step, so that no reader sees half of it. */
static void replace_size(struct stage *stage, int64_t size)
{
    char other[PATH_MAX + 8];
    snprintf(other, sizeof other, "%s.new", stage->path);
    write_size(other, size);
    ck_assert_int_eq(rename(other, stage->path), 0);
}

static void begin(struct stage *stage)
{
    stage_make(stage);
    write_size(stage->path, 20);
    must_succeed(stage_open(stage));
    must_succeed(weir_await_ready(stage->limiter, WEIR_MINUTE));
}

/* ---- Waiting ---- */

static struct weir_follow_stats file_stats(struct stage *stage)
{
    return follow_stats_of(stage->limiter, WEIR_FOLLOW_POLICY_FILE);
}

static void a_moment(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
}

enum { PATIENCE = 15000 }; /* moments */

static int64_t size_of(struct stage *stage, const char *key)
{
    return peeked(stage->limit, key, 1).limit;
}

/* True if the limit has this size and its override ten times that. */
static void await_size(struct stage *stage, int64_t size)
{
    for (int i = 0; i < PATIENCE && (size_of(stage, "key") != size || size_of(stage, "gold") != size * 10); i++)
        a_moment();
    ck_assert_int_eq(size_of(stage, "key"), size);
    ck_assert_int_eq(size_of(stage, "gold"), size * 10);
}

/* Wait until that many changes are counted; they are in force by then. */
static void assert_changes(struct stage *stage, uint64_t n)
{
    for (int i = 0; i < PATIENCE && file_stats(stage).changes < n; i++)
        a_moment();
    ck_assert_uint_eq(file_stats(stage).changes, n);
}

/* Wait for this failure. Others may come first: the file may be read between two steps of a command. */
static void await_failure(struct stage *stage, uint64_t before, const char *sentence)
{
    struct weir_follow_stats stats = file_stats(stage);
    for (int i = 0; i < PATIENCE && (stats.failures == before || !strstr(stats.last_error, sentence)); i++) {
        a_moment();
        stats = file_stats(stage);
    }
    ck_assert_uint_gt(stats.failures, before);
    ck_assert_msg(strstr(stats.last_error, sentence) != NULL, "%s", stats.last_error);
}

/* Wait until the log's last line contains the text. */
static void await_line(struct stage *stage, const char *text)
{
    bool has = false;
    for (int i = 0; i < PATIENCE && !has; i++) {
        if (i > 0)
            a_moment();
        pthread_mutex_lock(&stage->mutex);
        has = strstr(stage->last_line, text) != NULL;
        pthread_mutex_unlock(&stage->mutex);
    }
    must(has, text);
}

/* ---- Ways to change a file ---- */

TEST(a_file_that_is_replaced_by_rename_is_read_again, 60)
{
    CLOSED_BY(stage_close) struct stage stage;
    begin(&stage);
    ck_assert_int_eq(size_of(&stage, "key"), 20);
    for (int64_t size = 21; size < 31; size++) {
        replace_size(&stage, size);
        await_size(&stage, size);
    }
    assert_changes(&stage, 10);
    ck_assert_uint_eq(file_stats(&stage).failures, 0);
}

TEST(a_file_that_is_written_in_place_is_read_again_once_it_is_closed, 60)
{
    CLOSED_BY(stage_close) struct stage stage;
    begin(&stage);
    const int64_t lines = 2;
    for (int64_t size = 21; size < 26; size++) {
        FILE *file = fopen(stage.path, "w"); /* empty from here on: a file without policies */
        ck_assert_ptr_nonnull(file);
        for (int64_t line = 0; line < lines; line++) {
            fprintf(file, "api%s = fixed_window limit=%lld period=1h\n", line ? "/gold" : "",
                    (long long)(line ? 10 * size : size));
            fflush(file);
            nanosleep(&(struct timespec){ .tv_nsec = 60000000 }, NULL); /* longer than weir waits for quiet */
        }
        fclose(file);
        await_size(&stage, size);
    }
    assert_changes(&stage, 5); /* never half of the file */
    ck_assert_uint_eq(file_stats(&stage).failures, 0);
}

TEST(a_deleted_file_keeps_its_policies_until_it_is_created_again, 60)
{
    CLOSED_BY(stage_close) struct stage stage;
    begin(&stage);
    ck_assert_int_eq(unlink(stage.path), 0);
    await_failure(&stage, 0, "limits.conf: No such file or directory");
    await_size(&stage, 20);
    ck_assert_uint_eq(file_stats(&stage).changes, 0);
    write_size(stage.path, 21);
    await_size(&stage, 21);
    ck_assert_int_eq(unlink(stage.path), 0);
    await_failure(&stage, file_stats(&stage).failures, "No such file");
    write_size(stage.path, 21); /* the same again */
    const uint64_t answers = file_stats(&stage).answers;
    for (int i = 0; i < PATIENCE && file_stats(&stage).answers == answers; i++)
        a_moment();
    ck_assert_uint_gt(file_stats(&stage).answers, answers);
    await_size(&stage, 21);
}

TEST(a_link_that_is_swapped_as_kubernetes_does_it_is_followed, 60)
{
    CLOSED_BY(stage_close) struct stage stage;
    char path[PATH_MAX + 32];
    stage_make(&stage);
    run_in(&stage, "mkdir v20 && ln -s v20 ..data && ln -s ..data/limits.conf limits.conf");
    snprintf(path, sizeof path, "%s/v20/limits.conf", stage.folder);
    write_size(path, 20);
    must_succeed(stage_open(&stage));
    await_size(&stage, 20);
    for (int64_t size = 21; size < 26; size++) {
        char command[200];
        snprintf(command, sizeof command, "mkdir v%lld", (long long)size);
        run_in(&stage, command);
        snprintf(path, sizeof path, "%s/v%lld/limits.conf", stage.folder, (long long)size);
        write_size(path, size);
        snprintf(command, sizeof command, "ln -s v%lld ..data_tmp && mv -T ..data_tmp ..data && rm -r v%lld",
                 (long long)size, (long long)size - 1);
        run_in(&stage, command);
        await_size(&stage, size);
    }
    snprintf(path, sizeof path, "%s/v25/limits.conf", stage.folder);
    write_size(path, 30); /* in the folder that the links point to now */
    await_size(&stage, 30);
}

TEST(a_file_behind_a_link_to_another_folder_is_followed, 60)
{
    CLOSED_BY(stage_close) struct stage stage;
    char target[PATH_MAX + 32], other[PATH_MAX + 32];
    stage_make(&stage);
    run_in(&stage, "mkdir elsewhere && ln -s elsewhere/real.conf limits.conf");
    snprintf(target, sizeof target, "%s/elsewhere/real.conf", stage.folder);
    snprintf(other, sizeof other, "%s/elsewhere/real.conf.new", stage.folder);
    write_size(target, 20);
    must_succeed(stage_open(&stage));
    await_size(&stage, 20);
    write_size(other, 21);
    ck_assert_int_eq(rename(other, target), 0);
    await_size(&stage, 21);
    write_size(target, 22);
    await_size(&stage, 22);
}

TEST(a_folder_that_is_replaced_is_watched_again, 60)
{
    CLOSED_BY(stage_close) struct stage stage;
    stage_make(&stage);
    run_in(&stage, "mkdir conf");
    snprintf(stage.path, sizeof stage.path, "%s/conf/limits.conf", stage.folder);
    write_size(stage.path, 20);
    must_succeed(stage_open(&stage));
    await_size(&stage, 20);
    run_in(&stage, "rm -r conf");
    await_failure(&stage, 0, "No such file");
    run_in(&stage, "mkdir conf");
    write_size(stage.path, 21);
    await_size(&stage, 21);
    run_in(&stage, "mv conf old && mkdir conf"); /* the watched folder has another name now */
    write_size(stage.path, 22);
    await_size(&stage, 22);
}

TEST(a_relative_path_keeps_referring_to_the_folder_at_opening, 60)
{
    CLOSED_BY(stage_close) struct stage stage;
    stage_make(&stage);
    write_size(stage.path, 20);
    char before[PATH_MAX], whole[PATH_MAX];
    ck_assert_ptr_nonnull(getcwd(before, sizeof before));
    ck_assert_int_eq(chdir(stage.folder), 0);
    memcpy(whole, stage.path, sizeof whole);
    snprintf(stage.path, sizeof stage.path, "limits.conf");
    must_succeed(stage_open(&stage));
    ck_assert_int_eq(chdir("/"), 0);
    write_size(whole, 21);
    await_size(&stage, 21);
    ck_assert_int_eq(chdir(before), 0);
}

/* ---- What is wrong with it ---- */

TEST(a_bad_line_keeps_all_previous_policies, 60)
{
    CLOSED_BY(stage_close) struct stage stage;
    begin(&stage);
    write_file(stage.path, "api = fixed_window limit=30 period=1h\nother = fixed_window limit=31 period=1h\n"
                           "api/x y = fixed_window limit=32 period=1h\n");
    await_failure(&stage, 0, "limits.conf:3: column 1: pattern: byte 2 must be written %20");
    await_size(&stage, 20);
    ck_assert_ptr_null(weir_limit_find(stage.limiter, "other"));
    await_line(&stage, "limits.conf:3:");
    replace_size(&stage, 21);
    await_size(&stage, 21);
    ck_assert_uint_eq(file_stats(&stage).failures, 1);
    assert_changes(&stage, 1);
}

/* Each edit is bad in its own way; a good one in between makes the first mistake news again. */
TEST(each_new_mistake_is_logged, 60)
{
    static const struct {
        const char *text, *line;
    } edits[] = {
        { "api = fixed_window limit=30 period=1hour\n", "\"period=1hour\"" },
        { "api = fixed_window limit=0 period=1h\n", "\"limit=0\"" },
        { "api = fixed_window limt=30 period=1h\n", "\"limt=30\"" },
        { NULL, "policy file: known again" },
        { "api = fixed_window limt=30 period=1h\n", "\"limt=30\"" },
        { NULL, "policy file: known again" },
        { "api = fixed_window limit=30\n", "period=... is missing" },
    };
    CLOSED_BY(stage_close) struct stage stage;
    begin(&stage);
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        if (edits[i].text)
            write_file(stage.path, edits[i].text);
        else
            replace_size(&stage, 21);
        await_line(&stage, edits[i].line);
    }
    await_size(&stage, 21);
}

/* As `: >limits.conf; cat new >>limits.conf` does it: the file is empty and closed in between. If this thread was held
 * up there, the empty file may have been a change. */
TEST(a_file_that_is_empty_for_a_moment_ends_no_policy, 60)
{
    CLOSED_BY(stage_close) struct stage stage;
    uint64_t changes = 0, pauses = 0;
    begin(&stage);
    for (int64_t size = 21; size < 31; size++) {
        struct timespec before, after;
        clock_gettime(CLOCK_MONOTONIC, &before);
        write_file(stage.path, "");
        nanosleep(&(struct timespec){ .tv_nsec = 30000000 }, NULL);
        write_size(stage.path, size);
        clock_gettime(CLOCK_MONOTONIC, &after);
        pauses += (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 >= 100;
        await_size(&stage, size);
        changes++;
    }
    ck_assert_uint_ge(file_stats(&stage).changes, changes);
    ck_assert_uint_le(file_stats(&stage).changes, changes + pauses);
}

TEST(policies_removed_from_the_file_fall_back_to_those_of_the_code, 60)
{
    CLOSED_BY(stage_close) struct stage stage;
    begin(&stage);
    write_file(stage.path, "# nothing\n");
    for (int i = 0; i < PATIENCE && size_of(&stage, "key") != 10; i++)
        a_moment();
    ck_assert_int_eq(size_of(&stage, "key"), 10);
    ck_assert_int_eq(size_of(&stage, "gold"), 10);
    ck_assert_uint_eq(file_stats(&stage).failures, 0);
}

TEST(a_folder_or_pipe_in_place_of_the_file_is_a_failure_and_not_read, 60)
{
    CLOSED_BY(stage_close) struct stage stage;
    begin(&stage);
    run_in(&stage, "rm limits.conf && mkdir limits.conf");
    await_failure(&stage, 0, "");
    await_size(&stage, 20);
    const uint64_t failures = file_stats(&stage).failures;
    run_in(&stage, "rmdir limits.conf && mkfifo limits.conf"); /* no process will ever write to it */
    await_failure(&stage, failures, "limits.conf: not a file");
    run_in(&stage, "rm limits.conf");
    write_size(stage.path, 21);
    await_size(&stage, 21);
}

TEST(a_file_may_have_overrides_of_limits_that_code_defines_later, 60)
{
    CLOSED_BY(stage_close) struct stage stage;
    stage_make(&stage);
    write_file(stage.path, "api/gold = fixed_window limit=200 period=1h\n");
    must_succeed(stage_open(&stage));
    ck_assert_int_eq(size_of(&stage, "key"), 10);
    ck_assert_int_eq(size_of(&stage, "gold"), 200);
}

TEST(a_bad_policy_file_makes_weir_open_fail, 60)
{
    CLOSED_BY(stage_close) struct stage stage;
    stage_make(&stage);
    write_file(stage.path, "api = leaky\n");
    ck_assert_int_eq(stage_open(&stage), WEIR_EINVAL);
    await_line(&stage, "limits.conf:1:");
    ck_assert_ptr_null(stage.limiter);
    ck_assert_int_eq(unlink(stage.path), 0);
    ck_assert_int_eq(stage_open(&stage), WEIR_EIO);
}

/* ---- Without memory ---- */

static atomic_bool memory_fails;

/* The linker redirects aligned_alloc(), which allocates limits, to this function. */
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return atomic_load(&memory_fails) ? NULL : __real_aligned_alloc(alignment, size);
}

TEST(a_file_is_read_again_after_memory_ran_out, 90)
{
    CLOSED_BY(stage_close) struct stage stage;
    begin(&stage);
    const uint64_t answers = file_stats(&stage).answers;
    atomic_store(&memory_fails, true);
    write_file(stage.path, "api = fixed_window limit=21 period=1h\napi/gold = fixed_window limit=210 period=1h\n"
                           "new = fixed_window limit=22 period=1h\n");
    await_failure(&stage, 0, "out of memory for 3 policies");
    await_failure(&stage, 1, "out of memory for 3 policies"); /* read again, and still not in force */
    ck_assert_ptr_null(weir_limit_find(stage.limiter, "new"));
    ck_assert_uint_eq(file_stats(&stage).answers, answers);
    atomic_store(&memory_fails, false);
    for (int i = 0; i < PATIENCE && !weir_limit_find(stage.limiter, "new"); i++)
        a_moment();
    ck_assert_ptr_nonnull(weir_limit_find(stage.limiter, "new"));
    await_size(&stage, 21);
    await_line(&stage, "policy file: known again");
}

/* ---- Without inotify ---- */

static bool inotify_fails;

/* The linker redirects inotify_init1() to this function. */
int __real_inotify_init1(int flags);
int __wrap_inotify_init1(int flags);
int __wrap_inotify_init1(int flags)
{
    if (!inotify_fails)
        return __real_inotify_init1(flags);
    errno = EMFILE;
    return -1;
}

TEST(without_inotify_the_file_is_checked_every_two_seconds, 60)
{
    struct stage stage;
    inotify_fails = true;
    begin(&stage);
    await_line(&stage, "checked only every 2 s, without inotify: Too many open files");
    write_size(stage.path, 21);
    await_size(&stage, 21);
    stage_close(&stage);
    inotify_fails = false;
}

TEST(an_unchanged_file_is_confirmed_and_never_becomes_stale, 60)
{
    CLOSED_BY(stage_close) struct stage stage;
    begin(&stage);
    const uint64_t answers = file_stats(&stage).answers;
    for (int i = 0; i < PATIENCE && file_stats(&stage).answers < answers + 2; i++)
        a_moment();
    const struct weir_follow_stats stats = file_stats(&stage);
    ck_assert_uint_ge(stats.answers, answers + 2);
    ck_assert_uint_eq(stats.changes, 0);
    ck_assert_int_ge(stats.age_us, 0);
    ck_assert_int_lt(stats.age_us, WEIR_MINUTE);
}

struct busy {
    struct stage *stage;
    atomic_bool is_over;
};

static void *make_files(void *user)
{
    struct busy *busy = user;
    char path[PATH_MAX];
    for (int i = 0; !atomic_load(&busy->is_over); i++) {
        snprintf(path, sizeof path, "%s/other-%d", busy->stage->folder, i % 4);
        write_file(path, "x");
        nanosleep(&(struct timespec){ .tv_nsec = 3000000 }, NULL);
    }
    return NULL;
}

TEST(constant_changes_in_the_folder_do_not_delay_a_change_of_the_file, 60)
{
    CLOSED_BY(stage_close) struct stage stage;
    struct busy busy = { .stage = &stage };
    pthread_t thread;
    begin(&stage);
    ck_assert_int_eq(pthread_create(&thread, NULL, make_files, &busy), 0);
    for (int64_t size = 21; size < 24; size++) {
        replace_size(&stage, size);
        await_size(&stage, size);
    }
    atomic_store(&busy.is_over, true);
    pthread_join(thread, NULL);
    assert_changes(&stage, 3);
}
