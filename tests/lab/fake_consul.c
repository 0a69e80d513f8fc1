/* fake_consul.c - a stand-in for Consul's agent with scripted answers: see fake_consul.h. */
#include "fake_consul_page.h"
#include "scratch.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { GUESTS_MOST = 64, PAGES_MOST = 16, ASKED_MOST = 4096, POLL_MOST_MS = 1000, PATIENCE_S = 60 };

struct guest {
    struct wire wire;
    int64_t number;
    struct page *waits_for; /* NULL: nothing */
    uint64_t waits_from;
};

struct fake_consul {
    pthread_t thread;
    pthread_mutex_t lock; /* guards all fields below except `guests`, which only the loop uses */
    pthread_cond_t came;
    int wake, listener;
    bool listens, cuts_off, cuts_cable, ends;
    char dir[64], address[128], socket_path[108];
    struct page pages[PAGES_MOST];
    int page_count;
    struct fake_asked *asked;
    int asked_count, connections;
    struct guest guests[GUESTS_MOST];
    int guest_count;
};

/* ---- Requests ---- */

static struct page *find_page(struct fake_consul *fake, const char *path, size_t len)
{
    for (int i = 0; i < fake->page_count; i++)
        if (strlen(fake->pages[i].path) == len && memcmp(fake->pages[i].path, path, len) == 0)
            return &fake->pages[i];
    return NULL;
}

static void record(struct fake_consul *fake, const struct guest *guest, const char *head, size_t head_len,
                   const char *body, size_t body_len)
{
    if (fake->asked_count == ASKED_MOST) {
        fprintf(stderr, "fake_consul: more than %d requests\n", ASKED_MOST);
        abort();
    }
    struct fake_asked *asked = &fake->asked[fake->asked_count++];
    const char *line_end = memmem(head, head_len, "\r\n", 2);
    size_t line_len = (size_t)(line_end - head);
    const char *version = memmem(head, line_len, " HTTP/", 6);
    *asked = (struct fake_asked){ .at_us = wire_now_us(), .connection = guest->number };
    snprintf(asked->target, sizeof asked->target, "%.*s", (int)(version != NULL ? version - head : line_end - head),
             head);
    snprintf(asked->head, sizeof asked->head, "%.*s", (int)(head_len - line_len - 2), line_end + 2);
    snprintf(asked->body, sizeof asked->body, "%.*s", (int)body_len, body);
    pthread_cond_broadcast(&fake->came);
}

/* Answer, or let the request wait. `target` begins with the method. */
static void consider(struct fake_consul *fake, struct guest *guest, const char *target)
{
    const char *path = strchr(target, ' ') != NULL ? strchr(target, ' ') + 1 : target;
    struct page none = { .status = 404, .body = "", .len = 0 };
    struct page *page = find_page(fake, path, strcspn(path, "?"));
    const char *index = strstr(path, "index=");
    uint64_t from = index != NULL ? strtoull(index + strlen("index="), NULL, 10) : 0;
    bool waits = page != NULL && from > 0 && page->index <= from && page->way != FAKE_AT_ONCE &&
                 page->way != FAKE_AND_CLOSE && strncmp(target, "GET ", 4) == 0;
    if (waits) {
        guest->waits_for = page;
        guest->waits_from = from;
    } else {
        page_answer(&guest->wire, page != NULL ? page : &none);
    }
}

static size_t body_length(const char *head, size_t len)
{
    static const char name[] = "\r\nContent-Length:";
    for (size_t i = 0; i + strlen(name) < len; i++)
        if (strncasecmp(head + i, name, strlen(name)) == 0)
            return strtoull(head + i + strlen(name), NULL, 10);
    return 0;
}

static void guest_listen(struct fake_consul *fake, struct guest *guest)
{
    struct wire *wire = &guest->wire;
    while (guest->waits_for == NULL && wire->in_len > 0) {
        const char *end = memmem(wire->in, wire->in_len, "\r\n\r\n", 4);
        if (end == NULL)
            return;
        size_t head_len = (size_t)(end - wire->in) + 4, body_len = body_length(wire->in, head_len);
        if (wire->in_len < head_len + body_len)
            return;
        record(fake, guest, wire->in, head_len, wire->in + head_len, body_len);
        wire_use(wire, head_len + body_len);
        consider(fake, guest, fake->asked[fake->asked_count - 1].target);
    }
}

static void guest_tell(struct guest *guest)
{
    struct page *page = guest->waits_for;
    if (page == NULL || (page->index <= guest->waits_from && page->way != FAKE_AT_ONCE && page->way != FAKE_AND_CLOSE))
        return;
    guest->waits_for = NULL;
    page->told_us = wire_now_us();
    page_answer(&guest->wire, page);
}

/* ---- The loop ---- */

static void guest_let_in(struct fake_consul *fake)
{
    int fd = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    if (!fake->listens || fake->guest_count == GUESTS_MOST) {
        close(fd);
        return;
    }
    struct guest *guest = &fake->guests[fake->guest_count++];
    *guest = (struct guest){ .number = ++fake->connections };
    wire_init(&guest->wire, fd);
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* as Consul does; fails on a Unix socket */
}

/* Make the system drop all incoming packets, without any answer. */
static void guest_cut_cable(struct guest *guest)
{
    struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
    const struct sock_fprog program = { .len = 1, .filter = &nothing };
    if (setsockopt(guest->wire.fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0) {
        perror("fake_consul: SO_ATTACH_FILTER");
        abort();
    }
}

static void guest_turn(struct fake_consul *fake, struct guest *guest, short revents)
{
    struct wire *wire = &guest->wire;
    if (revents & (POLLIN | POLLHUP | POLLERR))
        wire_read(wire);
    if (fake->cuts_off || (wire->fd >= 0 && wire->shut)) {
        wire_close(wire, WIRE_CLOSES);
        return;
    }
    guest_tell(guest);
    guest_listen(fake, guest);
    wire_write(wire, wire_now_us());
}

static void guests_see_off(struct fake_consul *fake)
{
    for (int i = fake->guest_count - 1; i >= 0; i--)
        if (fake->guests[i].wire.fd < 0)
            fake->guests[i] = fake->guests[--fake->guest_count];
}

static void turn(struct fake_consul *fake, const struct pollfd *polled, int guests)
{
    pthread_mutex_lock(&fake->lock);
    for (int i = 0; i < guests; i++)
        guest_turn(fake, &fake->guests[i], polled[2 + i].revents);
    guests_see_off(fake);
    for (int i = 0; fake->cuts_cable && i < fake->guest_count; i++)
        guest_cut_cable(&fake->guests[i]);
    fake->cuts_off = fake->cuts_cable = false;
    if (polled[1].revents != 0)
        guest_let_in(fake);
    pthread_mutex_unlock(&fake->lock);
}

static bool ended(struct fake_consul *fake)
{
    pthread_mutex_lock(&fake->lock);
    bool ends = fake->ends;
    pthread_mutex_unlock(&fake->lock);
    return ends;
}

static void *loop(void *argument)
{
    struct fake_consul *fake = argument;
    struct pollfd polled[2 + GUESTS_MOST];
    while (!ended(fake)) {
        int64_t now_us = wire_now_us(), due_us = now_us + POLL_MOST_MS * 1000;
        int guests = fake->guest_count;
        memset(polled, 0, sizeof polled);
        polled[0] = (struct pollfd){ .fd = fake->wake, .events = POLLIN };
        polled[1] = (struct pollfd){ .fd = fake->listener, .events = POLLIN };
        for (int i = 0; i < guests; i++)
            polled[2 + i] = (struct pollfd){ .fd = fake->guests[i].wire.fd,
                                             .events = wire_events(&fake->guests[i].wire, now_us, &due_us) };
        const struct timespec wait = { .tv_sec = (due_us - now_us) / 1000000,
                                       .tv_nsec = (due_us - now_us) % 1000000 * 1000 };
        if (ppoll(polled, (nfds_t)(2 + guests), &wait, NULL) < 0)
            continue;
        uint64_t woken;
        if (polled[0].revents != 0 && read(fake->wake, &woken, sizeof woken) != sizeof woken)
            abort();
        turn(fake, polled, guests);
    }
    return NULL;
}

/* ---- Control ---- */

static bool open_unix(struct fake_consul *fake)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    snprintf(fake->dir, sizeof fake->dir, "%s/weir-fake-XXXXXX", scratch_parent());
    if (mkdtemp(fake->dir) == NULL)
        return false;
    snprintf(fake->socket_path, sizeof fake->socket_path, "%s/consul.sock", fake->dir);
    snprintf(fake->address, sizeof fake->address, "unix://%s", fake->socket_path);
    memcpy(name.sun_path, fake->socket_path, sizeof name.sun_path);
    fake->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return bind(fake->listener, (const struct sockaddr *)&name, sizeof name) == 0 && listen(fake->listener, 64) == 0;
}

static bool open_tcp(struct fake_consul *fake)
{
    struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof name;
    fake->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (bind(fake->listener, (const struct sockaddr *)&name, sizeof name) != 0 || listen(fake->listener, 64) != 0 ||
        getsockname(fake->listener, (struct sockaddr *)&name, &len) != 0)
        return false;
    snprintf(fake->address, sizeof fake->address, "http://127.0.0.1:%d", ntohs(name.sin_port));
    return true;
}

struct fake_consul *fake_consul_start(enum fake_place place)
{
    struct fake_consul *fake = calloc(1, sizeof *fake);
    if (fake == NULL)
        return NULL;
    fake->listens = true;
    fake->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fake->asked = malloc(ASKED_MOST * sizeof *fake->asked);
    pthread_mutex_init(&fake->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&fake->came, &attributes);
    pthread_condattr_destroy(&attributes);
    if (fake->wake < 0 || fake->asked == NULL || !(place == FAKE_ON_UNIX ? open_unix(fake) : open_tcp(fake)) ||
        pthread_create(&fake->thread, NULL, loop, fake) != 0) {
        perror("fake_consul");
        free(fake->asked);
        free(fake);
        return NULL;
    }
    return fake;
}

static void wake(struct fake_consul *fake)
{
    const uint64_t one = 1;
    if (write(fake->wake, &one, sizeof one) != sizeof one)
        abort();
}

void fake_consul_stop(struct fake_consul *fake)
{
    if (fake == NULL)
        return;
    pthread_mutex_lock(&fake->lock);
    fake->ends = true;
    pthread_mutex_unlock(&fake->lock);
    wake(fake);
    pthread_join(fake->thread, NULL);
    for (int i = 0; i < fake->guest_count; i++)
        wire_close(&fake->guests[i].wire, WIRE_CLOSES);
    for (int i = 0; i < fake->page_count; i++)
        free(fake->pages[i].body);
    close(fake->listener);
    close(fake->wake);
    if (fake->dir[0] != '\0') {
        unlink(fake->socket_path);
        rmdir(fake->dir);
    }
    pthread_cond_destroy(&fake->came);
    pthread_mutex_destroy(&fake->lock);
    free(fake->asked);
    free(fake);
}

const char *fake_consul_address(const struct fake_consul *fake)
{
    return fake->address;
}

void fake_consul_listen(struct fake_consul *fake, bool listens)
{
    pthread_mutex_lock(&fake->lock);
    fake->listens = listens;
    fake->cuts_off = true;
    pthread_mutex_unlock(&fake->lock);
    wake(fake);
}

void fake_consul_cut_cable(struct fake_consul *fake)
{
    pthread_mutex_lock(&fake->lock);
    fake->cuts_cable = true;
    pthread_mutex_unlock(&fake->lock);
    wake(fake);
}

/* Return this path's page, made if necessary; a new one answers 200 with an empty body. */
static struct page *page_of(struct fake_consul *fake, const char *path)
{
    struct page *page = find_page(fake, path, strlen(path));
    if (page != NULL)
        return page;
    if (fake->page_count == PAGES_MOST)
        abort();
    page = &fake->pages[fake->page_count++];
    *page = (struct page){ .status = 200, .body = calloc(1, 1) };
    snprintf(page->path, sizeof page->path, "%s", path);
    return page;
}

void fake_consul_page_of(struct fake_consul *fake, const char *path, int status, uint64_t index, const char *body,
                         size_t len)
{
    char *own = malloc(len + 1);
    if (own == NULL)
        abort();
    memcpy(own, body, len);
    own[len] = '\0';
    pthread_mutex_lock(&fake->lock);
    struct page *page = page_of(fake, path);
    free(page->body);
    page->status = status;
    page->index = index;
    page->body = own;
    page->len = len;
    pthread_mutex_unlock(&fake->lock);
    wake(fake);
}

void fake_consul_page(struct fake_consul *fake, const char *path, int status, uint64_t index, const char *body)
{
    fake_consul_page_of(fake, path, status, index, body, strlen(body));
}

void fake_consul_way(struct fake_consul *fake, const char *path, enum fake_way way, int times)
{
    pthread_mutex_lock(&fake->lock);
    struct page *page = page_of(fake, path);
    page->way = way;
    page->times = times;
    pthread_mutex_unlock(&fake->lock);
    wake(fake);
}

static int count(const struct fake_consul *fake, const char *target)
{
    int n = 0;
    for (int i = 0; i < fake->asked_count; i++)
        n += strncmp(fake->asked[i].target, target, strlen(target)) == 0;
    return n;
}

int fake_consul_count(struct fake_consul *fake, const char *target)
{
    pthread_mutex_lock(&fake->lock);
    int n = count(fake, target);
    pthread_mutex_unlock(&fake->lock);
    return n;
}

bool fake_consul_asked(struct fake_consul *fake, const char *target, int i, struct fake_asked *out)
{
    bool found = false;
    pthread_mutex_lock(&fake->lock);
    for (int j = 0; j < fake->asked_count && !found; j++) {
        found = strncmp(fake->asked[j].target, target, strlen(target)) == 0 && i-- == 0;
        if (found)
            *out = fake->asked[j];
    }
    pthread_mutex_unlock(&fake->lock);
    return found;
}

bool fake_consul_await(struct fake_consul *fake, const char *target, int n)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&fake->lock);
    int error = 0;
    while (count(fake, target) < n && error == 0)
        error = pthread_cond_timedwait(&fake->came, &fake->lock, &end);
    bool came = count(fake, target) >= n;
    pthread_mutex_unlock(&fake->lock);
    return came;
}

int fake_consul_connections(struct fake_consul *fake)
{
    pthread_mutex_lock(&fake->lock);
    int connections = fake->connections;
    pthread_mutex_unlock(&fake->lock);
    return connections;
}

int64_t fake_consul_told_us(struct fake_consul *fake, const char *path)
{
    pthread_mutex_lock(&fake->lock);
    struct page *page = find_page(fake, path, strlen(path));
    int64_t told_us = page != NULL ? page->told_us : 0;
    pthread_mutex_unlock(&fake->lock);
    return told_us;
}
