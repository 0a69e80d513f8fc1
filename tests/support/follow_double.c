/* follow_double.c - stands in for core/follow/follow.c: see follow_double.h. */
#include "follow_double.h"

#include "support.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

enum { TOLD_MOST = 2048, PATIENCE_S = 60 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t came = PTHREAD_COND_INITIALIZER;
static struct told all[TOLD_MOST];
static int told_n;
static struct follower *added;
static int lacks_memory;

void told_reset(void)
{
    pthread_mutex_lock(&lock);
    told_n = 0;
    added = NULL;
    lacks_memory = 0;
    pthread_mutex_unlock(&lock);
}

static void write_down(enum weir_followed what, const char *text)
{
    pthread_mutex_lock(&lock);
    must(told_n < TOLD_MOST, "a source tells too much");
    all[told_n] = (struct told){ .at_us = clock_monotonic_us(), .what = what };
    snprintf(all[told_n].text, sizeof all[told_n].text, "%s", text);
    told_n++;
    pthread_cond_broadcast(&came);
    pthread_mutex_unlock(&lock);
}

/* ---- For tests ---- */

static struct told *find(enum weir_followed what, const char *beginning, int i)
{
    for (int j = 0; j < told_n; j++)
        if (all[j].what == what && strncmp(all[j].text, beginning, strlen(beginning)) == 0 && i-- == 0)
            return &all[j];
    return NULL;
}

int told_count(enum weir_followed what, const char *beginning)
{
    int n = 0;
    pthread_mutex_lock(&lock);
    while (find(what, beginning, n) != NULL)
        n++;
    pthread_mutex_unlock(&lock);
    return n;
}

struct told told_at(enum weir_followed what, const char *beginning, int i)
{
    pthread_mutex_lock(&lock);
    struct told *found = find(what, beginning, i);
    struct told copy = found != NULL ? *found : (struct told){ .at_us = -1 };
    pthread_mutex_unlock(&lock);
    ck_assert_msg(copy.at_us >= 0, "\"%s\" number %d was not told", beginning, i);
    return copy;
}

struct told told_await(enum weir_followed what, const char *beginning, int n)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&lock);
    int error = 0;
    while (find(what, beginning, n - 1) == NULL && error == 0)
        error = pthread_cond_timedwait(&came, &lock, &end);
    const char *last = told_n > 0 ? all[told_n - 1].text : "nothing";
    if (error != 0 && find(what, beginning, n - 1) == NULL)
        ck_abort_msg("\"%s\" was not told %d times; the last of %d was: %s", beginning, n, told_n, last);
    struct told copy = *find(what, beginning, n - 1);
    pthread_mutex_unlock(&lock);
    return copy;
}

bool told_anywhere(const char *text)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < told_n; i++)
        found = found || strstr(all[i].text, text) != NULL;
    pthread_mutex_unlock(&lock);
    return found;
}

void told_lack_memory(int times)
{
    pthread_mutex_lock(&lock);
    lacks_memory = times;
    pthread_mutex_unlock(&lock);
}

struct follower *told_follower(void)
{
    return added;
}

static bool found_no_memory(void)
{
    pthread_mutex_lock(&lock);
    bool lacks = lacks_memory > 0 && lacks_memory-- > 0;
    pthread_mutex_unlock(&lock);
    return lacks;
}

/* ---- For sources: in place of core/follow/follow.c ---- */

void __wrap_follow_add(struct weir *limiter, struct follower *follower);
void __wrap_follow_peers(struct weir *limiter, const struct weir_peer *peers, size_t n, const char *self);
int64_t __wrap_follow_peers_due_us(struct weir *limiter);
void __wrap_follow_peers_turn(struct weir *limiter);
int __wrap_follow_policies(struct weir *limiter, enum weir_followed what, const struct policy_entry *entries, size_t n);
void __wrap_follow_confirmed(struct weir *limiter, enum weir_followed what);
void __wrap_follow_failed(struct weir *limiter, enum weir_followed what, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

void __wrap_follow_add(struct weir *limiter, struct follower *follower)
{
    added = follower;
}

void __wrap_follow_peers(struct weir *limiter, const struct weir_peer *peers, size_t n, const char *self)
{
    char text[sizeof all[0].text];
    size_t len = (size_t)snprintf(text, sizeof text, "peers self=%s:", self != NULL ? self : "?");
    for (size_t i = 0; i < n && len < sizeof text; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, " %s=%lld", peers[i].id, (long long)peers[i].weight);
    write_down(WEIR_FOLLOW_PEERS, text);
}

int64_t __wrap_follow_peers_due_us(struct weir *limiter)
{
    return INT64_MAX;
}

void __wrap_follow_peers_turn(struct weir *limiter)
{
    write_down(WEIR_FOLLOW_PEERS, "turn");
}

int __wrap_follow_policies(struct weir *limiter, enum weir_followed what, const struct policy_entry *entries, size_t n)
{
    char text[sizeof all[0].text], policy[320];
    if (found_no_memory()) {
        write_down(what, "failed: out of memory");
        return WEIR_ENOMEM;
    }
    size_t len = (size_t)snprintf(text, sizeof text, "policies:");
    for (size_t i = 0; i < n && len < sizeof text; i++) {
        const struct policy_entry *entry = &entries[i];
        if (entry->error == NULL)
            weir_policy_print(&entry->policy, policy, sizeof policy);
        len += (size_t)snprintf(text + len, sizeof text - len, "%s %s%s%s%s%s (%s)", i > 0 ? ";" : "", entry->name,
                                entry->pattern != NULL ? "/" : "", entry->pattern != NULL ? entry->pattern : "",
                                entry->error != NULL ? " !" : "=", entry->error != NULL ? entry->error : policy,
                                entry->where);
    }
    write_down(what, text);
    return WEIR_OK;
}

void __wrap_follow_confirmed(struct weir *limiter, enum weir_followed what)
{
    write_down(what, "confirmed");
}

void __wrap_follow_failed(struct weir *limiter, enum weir_followed what, const char *format, ...)
{
    char text[sizeof all[0].text] = "failed: ";
    size_t len = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + len, sizeof text - len, format, arguments);
    va_end(arguments);
    write_down(what, text);
}
