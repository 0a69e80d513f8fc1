/* share_processes.c - three processes with weights 3, 1 and 1 share a limit through a real Consul; then one is
 * killed.
 *
 * Shared memory records every admitted call of every process with its times, and again and again the share that each
 * process reports. Afterwards the exact meter (envelope.h) checks whether all processes together exceeded the limit,
 * or one of them its share. Then the shares are added up.
 *
 *     join      all three know each other and share 3/5, 1/5, 1/5
 *     steady    they admit ten seconds' worth of permits
 *     kill -9   the last one dies; after its TTL and a hold-down the others have 3/4 and 1/4
 *     carry     they admit two seconds' worth
 *
 * Nothing here asserts speed: waits are generous, and an excess is an excess on any machine. A share counts as in
 * force between two looks only if both saw the same value, and if they lie closer together than the hold-down, within
 * which a share cannot shrink and grow again.
 *
 * Exit status: 0 all correct; 1 a failure; 77 Consul is not installed.
 */
#include <weir/weir.h>

#include "consul_server.h"
#include "envelope.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    PROCESSES = 3,
    VICTIM = 2,
    LIMIT = 1000, /* permits, a second and as burst */
    ADMITS_MOST = 1 << 17,
    SPELLS_MOST = 256,
    STEADY_PERMITS = 10 * LIMIT,
    CARRY_PERMITS = 2 * LIMIT,
    PATIENCE_US = 40 * 1000 * 1000
};

static const int64_t weights[PROCESSES] = { 3, 1, 1 };
static const char *const ids[PROCESSES] = { "a", "b", "c" };

/* When a process dies, its bucket is full at the moment the others take over its part, so the test allows the second
 * that a bucket takes to fill. A live process that does not renew within the TTL counts as dead, so the TTL is far
 * longer than a busy machine delays a process. */
static const int64_t ttl_us = 5 * WEIR_SECOND, hold_down_us = 1500000;

struct spell { /* a time in which the share was proven constant */
    int64_t from_us, to_us;
    int64_t weight, total, part;
};

struct account { /* of one process */
    _Atomic int64_t n;
    struct admit admits[ADMITS_MOST];
    _Atomic int64_t weight_and_total; /* the current share: weight << 32 | total */
    _Atomic int spells_len;
    struct spell spells[SPELLS_MOST];
};

struct ledger { /* in shared memory */
    atomic_bool over;
    struct account accounts[PROCESSES];
};

struct member {
    struct account *account;
    const struct ledger *ledger;
    weir *limiter;
    weir_limit *limit;
};

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * WEIR_SECOND + now.tv_nsec / 1000;
}

static void pause_us(int64_t us)
{
    const struct timespec time = { .tv_sec = us / WEIR_SECOND, .tv_nsec = us % WEIR_SECOND * 1000 };
    nanosleep(&time, NULL);
}

/* ---- A process ---- */

static void log_line(void *user, enum weir_log_level level, const char *line)
{
    fprintf(stderr, "%s: log %d: %s\n", (const char *)user, (int)level, line);
}

static void *look_at_the_share(void *argument)
{
    struct member *member = argument;
    struct account *account = member->account;
    int64_t last_us = 0;
    while (!atomic_load(&member->ledger->over)) {
        struct weir_stats stats = { .size = sizeof stats };
        struct weir_limit_info info = { .size = sizeof info };
        int64_t start_us = now_us();
        if (weir_stats_read(member->limiter, &stats) != WEIR_OK || weir_limit_info(member->limit, &info) != WEIR_OK)
            abort();
        int n = atomic_load(&account->spells_len);
        struct spell *spell = &account->spells[n > 0 ? n - 1 : 0];
        if (n > 0 && start_us - last_us < hold_down_us && spell->weight == stats.share_weight &&
            spell->total == stats.share_total && spell->part == info.limit) {
            spell->to_us = start_us;
        } else if (n < SPELLS_MOST) {
            int64_t end_us = now_us();
            account->spells[n] = (struct spell){ end_us, end_us, stats.share_weight, stats.share_total, info.limit };
            atomic_store(&account->spells_len, n + 1);
        }
        last_us = now_us();
        atomic_store(&account->weight_and_total, stats.share_weight << 32 | stats.share_total);
        pause_us(1000);
    }
    return NULL;
}

static void take_all_there_is(struct member *member)
{
    struct account *account = member->account;
    while (!atomic_load(&member->ledger->over)) {
        struct weir_decision decision;
        int64_t start_us = now_us();
        if (weir_try(member->limit, weir_key_text("key"), 1, &decision) != WEIR_OK)
            abort();
        int64_t end_us = now_us(), n = atomic_load(&account->n);
        if (!decision.allowed) {
            pause_us(1000);
        } else if (n < ADMITS_MOST) {
            account->admits[n] = (struct admit){ start_us, end_us, 1 };
            atomic_store(&account->n, n + 1);
        }
    }
}

static int process_run(const struct consul_server *server, struct ledger *ledger, int number)
{
    struct weir_consul consul = { .size = sizeof consul, .address = server->address };
    struct weir_peers peers = { .size = sizeof peers,
                                .service = "share",
                                .id = ids[number],
                                .join = true,
                                .ttl_us = ttl_us,
                                .hold_down_us = hold_down_us };
    struct weir_options options = WEIR_OPTIONS_INIT;
    const struct weir_policy policy = { .limit = LIMIT, .period_us = WEIR_SECOND };
    struct member member = { .account = &ledger->accounts[number], .ledger = ledger };
    pthread_t looker;
    char name[] = { ids[number][0], '\0' };
    options.weight = weights[number];
    options.peers = &peers;
    options.consul = &consul;
    options.log = log_line;
    options.user = name;
    if (weir_open(&options, &member.limiter) != WEIR_OK ||
        weir_limit_define(member.limiter, "share", &policy, &member.limit) != WEIR_OK ||
        pthread_create(&looker, NULL, look_at_the_share, &member) != 0)
        return 1;
    take_all_there_is(&member);
    pthread_join(looker, NULL);
    weir_close(member.limiter);
    return 0;
}

static pid_t process_start(const struct consul_server *server, struct ledger *ledger, int number)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int status = process_run(server, ledger, number);
        fflush(NULL);
        _exit(status);
    }
    return pid;
}

/* ---- What happens ---- */

static bool share_is(const struct ledger *ledger, int number, int64_t weight, int64_t total)
{
    int64_t both = atomic_load(&ledger->accounts[number].weight_and_total);
    return (both & INT32_MAX) != 0 && (both >> 32) * total == (both & INT32_MAX) * weight;
}

static bool three_share(const struct ledger *ledger, int64_t permits)
{
    (void)permits;
    return share_is(ledger, 0, 3, 5) && share_is(ledger, 1, 1, 5) && share_is(ledger, 2, 1, 5);
}

static bool two_share(const struct ledger *ledger, int64_t permits)
{
    (void)permits;
    return share_is(ledger, 0, 3, 4) && share_is(ledger, 1, 1, 4);
}

static int64_t admitted(const struct ledger *ledger)
{
    int64_t sum = 0;
    for (int i = 0; i < PROCESSES; i++)
        sum += atomic_load(&ledger->accounts[i].n);
    return sum;
}

static bool has_admitted(const struct ledger *ledger, int64_t permits)
{
    return admitted(ledger) >= permits;
}

/* Wait for a condition and print how long it took. Only its arrival is asserted. */
static bool await(const char *what, const struct ledger *ledger, bool (*holds)(const struct ledger *, int64_t),
                  int64_t permits)
{
    int64_t start_us = now_us();
    while (!holds(ledger, permits)) {
        if (now_us() - start_us > PATIENCE_US) {
            printf("FAILED: %s: not after %d s\n", what, PATIENCE_US / 1000000);
            return false;
        }
        pause_us(1000);
    }
    printf("%s_ms %" PRId64 "\n", what, (now_us() - start_us) / 1000);
    return true;
}

struct times {
    int64_t steady_us, killed_us;
};

static bool run(const struct consul_server *server, struct ledger *ledger, struct times *times)
{
    pid_t pids[PROCESSES];
    bool good = true;
    for (int i = 0; i < PROCESSES; i++)
        pids[i] = process_start(server, ledger, i);
    good = await("join", ledger, three_share, 0);
    times->steady_us = now_us();
    good = good && await("steady", ledger, has_admitted, admitted(ledger) + STEADY_PERMITS);
    times->killed_us = now_us();
    if (pids[VICTIM] > 0) {
        kill(pids[VICTIM], SIGKILL);
        waitpid(pids[VICTIM], NULL, 0);
    }
    good = good && await("grow", ledger, two_share, 0) &&
           await("carry", ledger, has_admitted, admitted(ledger) + CARRY_PERMITS);
    atomic_store(&ledger->over, true);
    for (int i = 0; i < PROCESSES; i++) {
        int status = 0;
        if (i != VICTIM && pids[i] > 0)
            waitpid(pids[i], &status, 0);
        good = pids[i] > 0 && status == 0 && good;
    }
    return good;
}

/* ---- What came of it ---- */

/* Copy to `admits` the calls of processes first..last that began and ended within the time; return how many. */
static size_t collect(const struct ledger *ledger, int first, int last, int64_t from_us, int64_t to_us,
                      struct admit *admits)
{
    size_t n = 0;
    for (int p = first; p <= last; p++)
        for (int64_t i = 0; i < ledger->accounts[p].n; i++)
            if (ledger->accounts[p].admits[i].start_us >= from_us && ledger->accounts[p].admits[i].end_us <= to_us)
                admits[n++] = ledger->accounts[p].admits[i];
    return n;
}

/* Check all processes together over the whole time, and each one alone while all three ran. */
static bool admits_are_within(const struct ledger *ledger, const struct times *times)
{
    static struct admit admits[PROCESSES * ADMITS_MOST];
    size_t n = collect(ledger, 0, PROCESSES - 1, 0, INT64_MAX, admits);
    double most = envelope_burst(admits, n, LIMIT, WEIR_SECOND);
    bool good = most >= 0 && most <= LIMIT * (1 + 1e-6);
    printf("admitted %zu\nburst_worst %.3f\n", n, most);
    for (int p = 0; p < PROCESSES; p++) {
        int64_t part = LIMIT * weights[p] / 5;
        n = collect(ledger, p, p, times->steady_us, times->killed_us, admits);
        most = envelope_burst(admits, n, part, WEIR_SECOND);
        printf("steady_%s %zu\nburst_worst_%s %.3f\n", ids[p], n, ids[p], most);
        good = most >= 0 && most <= (double)part * (1 + 1e-6) && ledger->accounts[p].n < ADMITS_MOST && good;
    }
    if (!good)
        puts("FAILED: more was admitted than the limit says, or than was written down");
    return good;
}

/* Return the spell of at least two looks that covers the time, or NULL if none was proven. */
static const struct spell *spell_at(const struct account *account, int64_t time_us)
{
    for (int i = 0; i < account->spells_len; i++)
        if (account->spells[i].from_us < account->spells[i].to_us && account->spells[i].from_us <= time_us &&
            time_us <= account->spells[i].to_us)
            return &account->spells[i];
    return NULL;
}

/* The sum of shares changes only where a spell begins. */
static bool shares_are_within(const struct ledger *ledger, const struct times *times)
{
    double most = 0;
    int64_t most_part = 0, looks = 0;
    for (int p = 0; p < PROCESSES; p++)
        for (int i = 0; i < ledger->accounts[p].spells_len; i++) {
            double sum = 0;
            int64_t part = 0, time_us = ledger->accounts[p].spells[i].from_us;
            for (int q = 0; q < PROCESSES; q++) {
                const struct spell *spell = spell_at(&ledger->accounts[q], time_us);
                if (spell == NULL || (q == VICTIM && time_us >= times->killed_us))
                    continue;
                sum += (double)spell->weight / (double)spell->total;
                part += spell->part;
            }
            most = sum > most ? sum : most;
            most_part = part > most_part ? part : most_part;
            looks++;
        }
    printf("share_changes %" PRId64 "\nshares_most %.6f\nparts_most %" PRId64 "\n", looks, most, most_part);
    if (most <= 1 + 1e-9 && most_part <= LIMIT)
        return true;
    puts("FAILED: shares in force added up to more than the limit");
    return false;
}

int main(void)
{
    struct consul_server server;
    struct times times = { 0 };
    struct ledger *ledger = mmap(NULL, sizeof *ledger, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (consul_server_missing())
        return 77;
    if (ledger == MAP_FAILED || consul_server_start(&server, CONSUL_SERVER_OPEN) != 0) {
        fprintf(stderr, "share_processes: no shared memory, or no Consul: %s\n", server.daemon.error);
        return 1;
    }
    bool good = run(&server, ledger, &times);
    good = admits_are_within(ledger, &times) && good;
    good = shares_are_within(ledger, &times) && good;
    int64_t left;
    for (const int64_t until_us = now_us() + ttl_us / 2; (left = consul_server_passing(&server, "share", NULL)) != 0;) {
        if (now_us() > until_us) /* the agent has had time, and no check has failed yet */
            break;
        pause_us(1000);
    }
    if (left != 0)
        printf("FAILED: %" PRId64 " processes did not deregister\n", left);
    consul_server_stop(&server);
    return good && left == 0 ? 0 : 1;
}
