/* failing_runs.c - see failing_runs.h. */
#include "failing_runs.h"

#include "core/ground/clock.h"

#include <check.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef UNDER_ASAN
#include <sanitizer/lsan_interface.h>
#endif

#if defined(UNDER_TSAN) || defined(UNDER_ASAN)
enum { OCCURRENCES = 1 };
#else
enum { OCCURRENCES = 2 };
#endif

enum { RUNS_MOST = 4096, DESCRIPTORS_MOST = 1024, THREADS_WAIT_MS = 2000, PROCESSOR_MOST_MS = 400 };

static int64_t number_from(const char *variable, int64_t otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? strtoll(text, NULL, 10) : otherwise;
}

/* Instrumented code is slow. */
static int64_t patience(void)
{
    return number_from("CK_TIMEOUT_MULTIPLIER", 1);
}

/* ---- In the process of a run ---- */

void run_blame(struct failing_run *run, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(run->blame, sizeof run->blame, format, arguments);
    va_end(arguments);
    _exit(0);
}

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void take_log(void)
{
    pthread_mutex_lock(&log_lock);
}

static void give_log(void)
{
    pthread_mutex_unlock(&log_lock);
}

void run_log(void *user, enum weir_log_level level, const char *line)
{
    struct failing_run *run = user;
    take_log();
    const size_t len = strlen(run->log);
    snprintf(run->log + len, sizeof run->log - len, "%s\n", line);
    give_log();
    atomic_fetch_add(&run->lines, 1);
}

/* Return how many entries except "." and ".." a folder of numbers has; set those below DESCRIPTORS_MOST in `has`. */
static int entries(const char *path, bool has[DESCRIPTORS_MOST])
{
    int count = 0;
    DIR *folder = opendir(path);
    if (!folder)
        return -1;
    const struct dirent *entry;
    while ((entry = readdir(folder))) {
        const long number = strtol(entry->d_name, NULL, 10);
        if (entry->d_name[0] == '.' || (has && number == dirfd(folder)))
            continue;
        count++;
        if (has && number < DESCRIPTORS_MOST)
            has[number] = true;
    }
    closedir(folder);
    return count;
}

static void *nothing(void *user)
{
    return user;
}

static int64_t now_ms(void)
{
    return clock_monotonic_us() / 1000;
}

static void a_moment(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/* Detached threads, such as one that resolves a name, may still be ending. */
static void look_at_threads(struct failing_run *run, int before)
{
    const int64_t until_ms = now_ms() + THREADS_WAIT_MS;
    int now;
    while ((now = entries("/proc/self/task", NULL)) > before && now_ms() < until_ms)
        a_moment();
    if (now > before)
        run_blame(run, "%d threads are left", now - before);
}

int64_t run_processor_most_ms(void)
{
    return PROCESSOR_MOST_MS * (patience() > 1 ? 3 : 1);
}

/* A retry loop without a pause uses a processor as long as the failure lasts. */
static void look_at_time(struct failing_run *run)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    run->processor_ms = (int64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000 +
                        (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000;
    if (run->processor_ms > run_processor_most_ms())
        run_blame(run, "it took the processor for %lld ms", (long long)run->processor_ms);
}

static void look_at_descriptors(struct failing_run *run, const bool before[DESCRIPTORS_MOST])
{
    bool after[DESCRIPTORS_MOST] = { false };
    entries("/proc/self/fd", after);
    for (int fd = 0; fd < DESCRIPTORS_MOST; fd++) {
        char path[64], target[128] = "";
        if (after[fd] == before[fd])
            continue;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (after[fd] && readlink(path, target, sizeof target - 1) < 0)
            strcpy(target, "unknown");
        run_blame(run, "descriptor %d is %s: %s", fd, after[fd] ? "left open" : "gone", target);
    }
}

static _Noreturn void play(struct failing_run *run)
{
    bool before[DESCRIPTORS_MOST] = { false };
    pthread_t thread; /* a process's first thread also creates what a sanitizer needs */
    if (pthread_create(&thread, NULL, nothing, NULL) == 0)
        pthread_join(thread, NULL);
    const int threads = entries("/proc/self/task", NULL);
    entries("/proc/self/fd", before);
    pthread_atfork(take_log, give_log, give_log); /* a scene may fork while a thread logs */
    calls_watch(&run->record, run->number > 0 ? &run->plan : NULL);
    run->scene->play(run);
    calls_forget();
    look_at_time(run);
    look_at_threads(run, threads);
    look_at_descriptors(run, before);
#ifdef UNDER_ASAN
    if (__lsan_do_recoverable_leak_check())
        run_blame(run, "memory is left, see above");
#endif
    _exit(0);
}

/* ---- In the waiting process ---- */

struct child {
    pid_t pid; /* 0: none */
    struct failing_run *run;
    int64_t until_ms;
};

static void child_start(struct child *child, struct failing_run *run)
{
    const double seconds = run->scene->seconds_most * (double)patience();
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0)
        play(run);
    ck_assert_int_gt(pid, 0);
    *child = (struct child){ .pid = pid, .run = run, .until_ms = now_ms() + (int64_t)(seconds * 1000) };
}

static void blame_child(const struct child *child, const char *what, int number)
{
    char *blame = child->run->blame;
    if (blame[0] == '\0')
        snprintf(blame, sizeof child->run->blame, "%s %d", what, number);
}

/* True if the run has ended. */
static bool child_look(struct child *child)
{
    int status;
    const pid_t ended = waitpid(child->pid, &status, WNOHANG);
    ck_assert_int_ge(ended, 0);
    if (ended == 0 && now_ms() < child->until_ms)
        return false;
    if (ended == 0) {
        kill(child->pid, SIGKILL);
        waitpid(child->pid, &status, 0);
        blame_child(child, "it hangs, after seconds:", (int)child->run->scene->seconds_most);
    } else if (WIFSIGNALED(status)) {
        blame_child(child, "it ended by signal", WTERMSIG(status));
    } else if (WEXITSTATUS(status) != 0) {
        blame_child(child, "it ended with status", WEXITSTATUS(status));
    }
    child->pid = 0;
    return true;
}

static void play_all(struct failing_run *runs, size_t count)
{
    enum { CHILDREN_MOST = 64 };
    struct child children[CHILDREN_MOST] = { { 0 } };
    const size_t at_once = (size_t)runs->scene->at_once;
    size_t begun = 0, left = count;
    ck_assert_uint_le(at_once, CHILDREN_MOST);
    while (left > 0) {
        for (size_t i = 0; i < at_once; i++) {
            if (children[i].pid && child_look(&children[i]))
                left--;
            if (!children[i].pid && begun < count)
                child_start(&children[i], &runs[begun++]);
        }
        a_moment();
    }
}

/* A pause of the machine may count as the run's time: repeat a slow run alone. */
static void play_long_ones_again(struct failing_run *runs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (runs[i].processor_ms <= run_processor_most_ms())
            continue;
        runs[i] = (struct failing_run){ .scene = runs[i].scene, .number = runs[i].number, .plan = runs[i].plan };
        play_all(&runs[i], 1);
    }
}

/* ---- Trials ---- */

struct trials {
    struct failing_run *runs;
    size_t count;
};

static void add(struct trials *trials, const struct call_site *site, size_t form, int64_t nth, bool stubborn)
{
    ck_assert_uint_lt(trials->count, RUNS_MOST);
    struct failing_run *run = &trials->runs[trials->count];
    run->scene = trials->runs->scene;
    run->number = (int)trials->count++;
    run->plan = (struct calls_plan){ .site = *site, .form = form, .nth = nth, .stubborn = stubborn };
}

static void add_all(struct trials *trials, const struct call_site *site)
{
    const int64_t occurrences = number_from("WEIR_TEST_OCCURRENCES", OCCURRENCES);
    for (size_t form = 0; form < call_form_count; form++) {
        if (call_forms[form].call != site->call)
            continue;
        for (int64_t nth = 1; nth <= site->times && nth <= occurrences; nth++)
            add(trials, site, form, nth, false);
        if (!call_forms[form].passes)
            add(trials, site, form, 1, true);
    }
}

/* True if the site is in a library, not in this program. */
static bool is_elsewhere(const struct call_site *site)
{
    Dl_info from, here;
    return dladdr((void *)site->address, &from) != 0 && dladdr((void *)&call_names, &here) != 0 &&
           from.dli_fbase != here.dli_fbase;
}

/* ---- Results ---- */

static void describe(const struct failing_run *run, char *text, size_t size)
{
    const struct calls_plan *plan = &run->plan;
    Dl_info from;
    if (run->number == 0) {
        snprintf(text, size, "%s, nothing fails", run->scene->name);
        return;
    }
    const bool known = dladdr((void *)plan->site.address, &from) != 0;
    const char *file = known ? strrchr(from.dli_fname, '/') : NULL;
    snprintf(text, size, "%s, %s: %s, time %lld%s, from %s+0x%llx, %s", run->scene->name, call_names[plan->site.call],
             call_forms[plan->form].name, (long long)plan->nth, plan->stubborn ? " and ever after" : "",
             file ? file + 1 : "?", (unsigned long long)(plan->site.address - (known ? (uintptr_t)from.dli_fbase : 0)),
             plan->site.by_watcher ? "the caller's thread" : "another thread");
}

static void print_blame(const struct failing_run *run, bool quietly, struct failing_sum *sum)
{
    char what[300];
    describe(run, what, sizeof what);
    snprintf(sum->blame, sizeof sum->blame, "%s", run->blame);
    sum->blamed++;
    if (!quietly)
        printf("BLAMED  %s\n        %s\n        %lld errors, %lld fallbacks, log:\n%s\n", what, run->blame,
               (long long)run->errors, (long long)run->fallbacks, run->log);
}

static void print_table(const struct failing_run *runs, size_t count)
{
    printf("%-26s %-18s %6s %8s %8s %10s %10s %10s\n", "scene", "call", "runs", "failed", "errors", "fallbacks",
           "log alone", "unnoticed");
    for (int call = 0; call < CALL_COUNT; call++) {
        int tried = 0, failed = 0, errors = 0, fallbacks = 0, told = 0, unnoticed = 0;
        for (size_t i = 1; i < count; i++) {
            const struct failing_run *run = &runs[i];
            if ((int)run->plan.site.call != call)
                continue;
            tried++;
            if (run->record.failed == 0)
                continue;
            failed++;
            errors += run->errors > 0;
            fallbacks += run->fallbacks > 0;
            const bool is_borne = run->errors == 0 && run->fallbacks == 0;
            told += is_borne && atomic_load(&run->lines) > 0;
            unnoticed += is_borne && atomic_load(&run->lines) == 0;
        }
        if (tried > 0)
            printf("%-26s %-18s %6d %8d %8d %10d %10d %10d\n", runs->scene->name, call_names[call], tried, failed,
                   errors, fallbacks, told, unnoticed);
    }
}

void failing_play(const struct failing_scene *scene, bool expects_blame, struct failing_sum *out)
{
    const size_t size = RUNS_MOST * sizeof(struct failing_run);
    struct failing_run *runs = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                                    0);
    ck_assert_ptr_ne(runs, MAP_FAILED);
    const int64_t began_ms = now_ms();
    int64_t processor_ms = 0;
    struct trials trials = { .runs = runs, .count = 1 };
    *out = (struct failing_sum){ .runs = 0 };
    runs[0].scene = scene;
    play_all(runs, 1);
    play_long_ones_again(runs, 1);
    for (size_t i = 0; i < runs[0].record.site_count; i++) {
        const struct call_site *site = &runs[0].record.sites[i];
        const bool elsewhere = is_elsewhere(site);
        if (!elsewhere || site->call != CALL_THREAD_SET) /* OpenSSL leaks if it fails */
            add_all(&trials, site);
        out->elsewhere += elsewhere;
    }
    if (runs[0].blame[0] == '\0' && trials.count > 1) {
        play_all(runs + 1, trials.count - 1);
        play_long_ones_again(runs + 1, trials.count - 1);
    }
    for (size_t i = 0; i < trials.count; i++) {
        out->reached += runs[i].record.failed > 0;
        processor_ms = runs[i].processor_ms > processor_ms ? runs[i].processor_ms : processor_ms;
        if (runs[i].blame[0] != '\0')
            print_blame(&runs[i], expects_blame, out);
    }
    out->runs = (int64_t)trials.count - 1;
    if (!expects_blame)
        print_table(runs, trials.count);
    printf("%s: %lld runs, %zu places, %.1f s, of the processor %lld ms at most, %lld blamed\n", scene->name,
           (long long)out->runs, runs[0].record.site_count, (double)(now_ms() - began_ms) / 1000,
           (long long)processor_ms, (long long)out->blamed);
    fflush(stdout);
    munmap(runs, size);
}
