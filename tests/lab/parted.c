/* parted.c - two places with a network between them that can fall silent: see parted.h. */
#include "parted.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((format(printf, 2, 3))) static int fail(struct parted *parted, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(parted->error, sizeof parted->error, format, list);
    va_end(list);
    return -1;
}

/* ---- Namespaces ---- */

static int enter(struct parted *parted, int namespace)
{
    return setns(namespace, CLONE_NEWNET) == 0 ? 0 : fail(parted, "setns: %s", strerror(errno));
}

int parted_go_there(struct parted *parted)
{
    return enter(parted, parted->there);
}

int parted_come_back(struct parted *parted)
{
    return enter(parted, parted->here);
}

/* Make a namespace, enter it, and return its descriptor. */
static int make_and_enter(struct parted *parted)
{
    if (unshare(CLONE_NEWNET) != 0)
        return fail(parted, "no network namespace: %s", strerror(errno));
    const int namespace = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    return namespace >= 0 ? namespace : fail(parted, "/proc/thread-self/ns/net: %s", strerror(errno));
}

static int write_file(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const ssize_t written = fd >= 0 ? write(fd, text, strlen(text)) : -1;
    if (fd >= 0)
        close(fd);
    return written == (ssize_t)strlen(text) ? 0 : -1;
}

/* Become root in a user namespace, if the kernel allows it. */
static int become_root(struct parted *parted)
{
    char map[64];
    const uid_t user = geteuid();
    if (user == 0)
        return 0;
    if (unshare(CLONE_NEWUSER) != 0)
        return fail(parted, "not root, and no namespace of users: %s", strerror(errno));
    snprintf(map, sizeof map, "0 %u 1", (unsigned)user);
    if (write_file("/proc/self/uid_map", map) != 0)
        return fail(parted, "/proc/self/uid_map: %s", strerror(errno));
    return 0;
}

/* ---- The network ---- */

/* Run `ip` with these words in the caller's namespace. */
__attribute__((format(printf, 2, 3))) static int ip(struct parted *parted, const char *format, ...)
{
    char words[200], command[256];
    va_list list;
    va_start(list, format);
    vsnprintf(words, sizeof words, format, list);
    va_end(list);
    snprintf(command, sizeof command, "PATH=$PATH:/usr/sbin:/sbin ip %s >/dev/null 2>&1", words);
    const int status = system(command); // NOLINT(cert-env33-c): all words are ours
    return status == 0 ? 0 : fail(parted, "ip %s: status %d", words, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

/* In the router, make a link to a place. Its end there gets the address <network>.2 and the default route
 * <network>.1. */
static int link_to(struct parted *parted, int place, const char *name, const char *network)
{
    if (ip(parted, "link add %s type veth peer name place netns /proc/%d/fd/%d", name, (int)getpid(), place) != 0 ||
        ip(parted, "address add %s.1/24 dev %s", network, name) != 0 || ip(parted, "link set %s up", name) != 0 ||
        enter(parted, place) != 0)
        return -1;
    if (ip(parted, "link set lo up") != 0 || ip(parted, "address add %s.2/24 dev place", network) != 0 ||
        ip(parted, "link set place up") != 0 || ip(parted, "route add default via %s.1", network) != 0)
        return -1;
    return enter(parted, parted->router);
}

/* Make it forward, without checking the return path. */
static int router_forwards(struct parted *parted)
{
    static const char *const settings[][2] = { { "/proc/sys/net/ipv4/ip_forward", "1" },
                                               { "/proc/sys/net/ipv4/conf/all/rp_filter", "0" },
                                               { "/proc/sys/net/ipv4/conf/to_here/rp_filter", "0" },
                                               { "/proc/sys/net/ipv4/conf/to_there/rp_filter", "0" } };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        if (write_file(settings[i][0], settings[i][1]) != 0)
            return fail(parted, "%s: %s", settings[i][0], strerror(errno));
    return 0;
}

int parted_open(struct parted *parted)
{
    *parted = (struct parted){ .here = -1, .router = -1, .there = -1 };
    if (become_root(parted) == 0 && (parted->here = make_and_enter(parted)) >= 0 &&
        (parted->there = make_and_enter(parted)) >= 0 && (parted->router = make_and_enter(parted)) >= 0 &&
        link_to(parted, parted->here, "to_here", "10.200.1") == 0 &&
        link_to(parted, parted->there, "to_there", "10.200.2") == 0 && router_forwards(parted) == 0 &&
        parted_come_back(parted) == 0)
        return 0;
    parted_close(parted);
    return -1;
}

void parted_close(struct parted *parted)
{
    const int namespaces[] = { parted->here, parted->router, parted->there };
    for (size_t i = 0; i < sizeof namespaces / sizeof namespaces[0]; i++)
        if (namespaces[i] >= 0)
            close(namespaces[i]);
    parted->here = parted->router = parted->there = -1;
}

static int swallow(struct parted *parted, bool silent, bool was_silent, const char *address)
{
    return silent == was_silent ? 0 : ip(parted, "route %s blackhole %s/32", silent ? "add" : "delete", address);
}

int parted_silence(struct parted *parted, enum parted_way way)
{
    if (enter(parted, parted->router) != 0)
        return -1;
    const enum parted_way was = parted->silent;
    int error = swallow(parted, way & PARTED_TO_THERE, was & PARTED_TO_THERE, PARTED_THERE);
    if (error == 0)
        error = swallow(parted, way & PARTED_TO_HERE, was & PARTED_TO_HERE, "10.200.1.2");
    parted->silent = way;
    return parted_come_back(parted) == 0 ? error : -1;
}
