/* test_follow_dns.c - a limiter follows the addresses behind a name: lists, failures, a resolver that hangs, forks. */
#include "follow_stage.h"

#include "backends/follow/sources.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* The addresses of the name; any thread may change them. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    const char *addresses[6]; /* in digits, up to the first NULL */
    int error;
    bool hangs;
    int asked;
} dns = { .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static int look_up(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    if (hints->ai_flags & AI_NUMERICHOST)
        return EAI_NONAME; /* a name is not an address */
    ck_assert_str_eq(host, "peers.example");
    pthread_mutex_lock(&dns.mutex);
    dns.asked++;
    pthread_cond_broadcast(&dns.changed);
    while (dns.hangs)
        pthread_cond_wait(&dns.changed, &dns.mutex);
    int error = dns.error;
    struct addrinfo **link = found;
    *found = NULL;
    for (int i = 0; !error && dns.addresses[i]; i++, link = &(*link)->ai_next) {
        const struct addrinfo digits = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
        error = getaddrinfo(dns.addresses[i], service, &digits, link);
    }
    pthread_mutex_unlock(&dns.mutex);
    return error;
}

static void free_found(struct addrinfo *found)
{
    while (found) { /* each was found alone */
        struct addrinfo *next = found->ai_next;
        found->ai_next = NULL;
        freeaddrinfo(found);
        found = next;
    }
}

/* True once the resolver has been asked that often. */
static int dns_say(int error, bool hangs, const char *const addresses[])
{
    pthread_mutex_lock(&dns.mutex);
    dns.error = error;
    dns.hangs = hangs;
    for (int i = 0; i < 6; i++)
        dns.addresses[i] = NULL;
    for (int i = 0; addresses && addresses[i]; i++)
        dns.addresses[i] = addresses[i];
    const int asked = dns.asked;
    pthread_cond_broadcast(&dns.changed);
    pthread_mutex_unlock(&dns.mutex);
    return asked;
}

/* True once the resolver has been asked more often than that. */
static void await_question(int asked)
{
    pthread_mutex_lock(&dns.mutex);
    while (dns.asked == asked)
        pthread_cond_wait(&dns.changed, &dns.mutex);
    pthread_mutex_unlock(&dns.mutex);
}

static int start_dns(const struct weir_options *options, struct weir *limiter)
{
    return peers_dns_follow_by(options, limiter,
                               &(struct resolve_target){ .look_up = look_up, .free_found = free_found });
}

static weir *open_dns(const char *id)
{
    struct stage stage;
    struct weir_backend *memory;
    weir *limiter;
    stage_options(&stage);
    stage.peers = (struct weir_peers){ .size = sizeof stage.peers, .dns = "peers.example", .poll_us = POLL_US };
    stage.peers.hold_down_us = POLL_US;
    stage.peers.id = id;
    must_succeed(options_read(&stage.options, &stage.read));
    must_succeed(options_read_followed(&stage.read, &stage.read_peers, &stage.read_consul));
    must_succeed(memory_open(&stage.read, &memory));
    must_succeed(limiter_make(&stage.read, memory, NULL, start_dns, &limiter));
    return limiter;
}

TEST(dns_counts_the_addresses_behind_a_name, 60)
{
    static const char *const three[] = { "2001:db8::2", "2001:db8::1", "2001:db8::2", "2001:db8::3", NULL };
    static const char *const two[] = { "10.0.0.2", "10.0.0.1", NULL };
    static const char *const others[] = { "10.0.0.3", "10.0.0.4", "10.0.0.5", NULL };
    dns_say(0, false, three);
    weir *limiter = open_dns(NULL);
    must_succeed(weir_await_ready(limiter, 30 * WEIR_SECOND));
    assert_share(limiter, 1, 3);
    ck_assert_int_eq(peers_now(limiter).rank, -1);
    struct expected expected = { .limiter = limiter, .total = 2 };
    dns_say(0, false, two);
    await(has_share, &expected, "a share of 1 in 2");
    weir_close(limiter);

    dns_say(0, false, three);
    limiter = open_dns("2001:0DB8:0::3"); /* however it is written */
    must_succeed(weir_await_ready(limiter, 30 * WEIR_SECOND));
    ck_assert_int_eq(peers_now(limiter).rank, 2);
    dns_say(0, false, others); /* this one is not among them */
    expected = (struct expected){ .limiter = limiter, .says = "this instance, 2001:db8::3, is not among the 3 peers" };
    await(has_failed_so, &expected, "a list without this instance");
    assert_share(limiter, 1, 3);
    weir_close(limiter);
}

/* The kind of answer, and the share that follows from it with and without an address of this instance. */
TEST(an_instance_with_addresses_of_both_families_counts_once, 60)
{
    static const struct {
        const char *const addresses[6];
        const char *id;
        int64_t instances, rank;
    } cases[] = {
        { { "10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2" }, NULL, 2, -1 },
        { { "10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2" }, "10.0.0.2", 2, 1 },
        { { "10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2" }, "2001:db8::1", 2, 0 },
        { { "10.0.0.1", "10.0.0.2", "2001:db8::1" }, NULL, 2, -1 },                            /* the larger family */
        { { "10.0.0.1", "2001:db8::1", "2001:db8::2" }, NULL, 2, -1 },                         /* whichever that is */
        { { "10.0.0.1", "2001:db8::1", "2001:db8::2" }, "10.0.0.1", 1, 0 },                    /* or this instance's */
        { { "10.0.0.1", "10.0.0.1", "10.0.0.1", "2001:db8::1", "2001:db8::2" }, NULL, 2, -1 }, /* each once */
        { { "10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2" }, "::ffff:10.0.0.2", 2, 1 }, /* IPv4, mapped */
        { { "10.0.0.1", "::ffff:10.0.0.1", "::ffff:10.0.0.2" }, "10.0.0.2", 2, 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dns_say(0, false, cases[i].addresses);
        weir *limiter = open_dns(cases[i].id);
        must_succeed(weir_await_ready(limiter, 30 * WEIR_SECOND));
        ck_assert_int_eq(peers_now(limiter).instances, cases[i].instances);
        ck_assert_int_eq(peers_now(limiter).rank, cases[i].rank);
        weir_close(limiter);
    }
}

static weir *open_dns_that_hangs(void)
{
    const int asked = dns_say(0, true, NULL);
    weir *limiter = open_dns("10.0.0.1");
    await_question(asked);
    return limiter;
}

TEST(a_failing_or_hanging_dns_lookup_is_logged_and_delays_no_caller, 60)
{
    static const char *const two[] = { "10.0.0.2", "10.0.0.1", NULL };
    dns_say(0, false, two);
    weir *limiter = open_dns("10.0.0.1");
    must_succeed(weir_await_ready(limiter, 30 * WEIR_SECOND));
    struct expected expected = { .limiter = limiter, .says = "peers.example: the host's name is not resolved: " };
    dns_say(EAI_NONAME, false, NULL);
    await(has_failed_so, &expected, "a name that is not there");
    dns_say(0, false, NULL); /* a name without an address */
    expected.failures = peers_now(limiter).failures + 2;
    await(has_failed, &expected, "a name without an address");
    const int asked = dns_say(0, true, two);
    await_question(asked);
    expected.failures = peers_now(limiter).failures + 3;
    await(has_failed, &expected, "no answer, and again none");
    ck_assert_str_eq(peers_now(limiter).last_error, "peers.example: no answer in time");
    assert_share(limiter, 1, 2);
    pthread_mutex_lock(&dns.mutex);
    ck_assert_int_eq(dns.asked, asked + 1); /* one that hangs is not asked twice */
    pthread_mutex_unlock(&dns.mutex);
    weir_close(limiter); /* while it hangs */
    dns_say(0, false, NULL);
}

/* Return 0, or the number of the process that lost a descriptor that it had opened itself. A daemon closes all
 * descriptors, so it reuses the numbers that its parent's limiter had, and it may fork again. */
static _Noreturn void be_daemon(weir *limiter)
{
    enum { FILES = 20, FIRST = 3 };
    int status = 0;
    alarm(30);
    closefrom(FIRST);
    for (int i = 0; i < FILES; i++)
        if (memfd_create("own", MFD_CLOEXEC) != FIRST + i)
            _exit(1);
    const pid_t child = fork();
    weir_close(limiter);
    for (int i = 0; i < FILES; i++)
        if (fcntl(FIRST + i, F_GETFD) < 0)
            _exit(child == 0 ? 3 : 2);
    if (child != 0)
        must(waitpid(child, &status, 0) == child, "a daemon forks");
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 4);
}

TEST(a_forked_child_that_closed_all_descriptors_keeps_its_later_ones, 60)
{
    struct answer answer = { .n = 2 };
    char path[] = "/tmp/weir-policies-XXXXXX";
    close(mkstemp(path));
    for (int i = 0; i < 3; i++) {
        struct weir_options options = WEIR_OPTIONS_INIT;
        weir *limiter;
        options.policy_file = path;
        options.follow_policy_file = true;
        if (i == 0)
            limiter = open_list(&answer);
        else if (i == 1)
            limiter = open_dns_that_hangs();
        else
            must_succeed(weir_open(&options, &limiter));
        const pid_t child = fork();
        int status;
        if (child == 0)
            be_daemon(limiter);
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_msg(status == 0, "limiter %d: the child ended with status %#x", i, (unsigned)status);
        weir_close(limiter);
    }
    unlink(path);
    dns_say(0, false, NULL);
}

TEST(a_forked_child_can_close_while_dns_hangs_in_its_parent, 60)
{
    weir *limiter = open_dns_that_hangs();
    assert_child_can_close(limiter);
    weir_close(limiter);
    dns_say(0, false, NULL);
}

TEST(the_system_resolver_accepts_a_numeric_address, 60)
{
    struct weir_peers peers = { .size = sizeof peers, .dns = "127.0.0.1", .id = "127.0.0.1", .poll_us = POLL_US };
    weir *limiter;
    peers.hold_down_us = POLL_US;
    must_succeed(weir_open(OPTIONS(.peers = &peers), &limiter));
    must_succeed(weir_await_ready(limiter, 30 * WEIR_SECOND));
    assert_share(limiter, 1, 1);
    ck_assert_int_eq(peers_now(limiter).instances, 1);
    weir_close(limiter);
}
