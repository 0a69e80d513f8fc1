/* clf.c - one line of an access log in Common or Combined Log Format.
 *
 * Real logs contain users with spaces, and requests with spaces and bare quotes, because clients send anything. So the
 * user ends where the date begins, and the request ends at the first quote that a status and a size follow.
 *
 * A virtual host or a syslog prefix before the client would become the client of every row. Such lines are refused, and
 * so are lines that stand in quotation marks as a whole.
 */
#include "cli/replay/input/clf.h"

#include <arpa/inet.h>
#include <string.h>

#include "cli/times.h"

static bool is_client(struct span word);
static bool are_ident_and_user(struct span ident, struct span user);
static size_t date_begin(struct span line, size_t from);
static struct span request_part(struct span request, enum clf_key which);
static bool tail_follows(struct span line, size_t at);

bool clf_key_read(struct span name, enum clf_key *out)
{
    static const char *const names[] = {
        [CLF_CLIENT] = "client", [CLF_PATH] = "path", [CLF_USER] = "user", [CLF_METHOD] = "method"
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (span_is(name, names[i])) {
            *out = (enum clf_key)i;
            return true;
        }
    return false;
}

bool clf_read(struct span line, enum clf_key which, int64_t *out_time_us, struct span *out_key, struct fault *fault)
{
    size_t client_end = span_find(line, ' ');
    size_t open = date_begin(line, client_end);
    if (client_end == 0 || open == line.len)
        return fault_say(fault, "is not in Common Log Format: no client and [date]");
    struct span client = span_slice(line, 0, client_end);
    if (!is_client(client))
        return fault_set(fault, "client", client, "is not a host name or an address");
    size_t close = open + span_find(span_slice(line, open, line.len), ']');
    if (close == line.len)
        return fault_say(fault, "is not in Common Log Format: the [date] is not closed");

    struct span date = span_slice(line, open + 1, close);
    const char *wrong;
    int64_t time_us;
    if (!time_read(date, TIME_MICROSECONDS, &time_us, &wrong))
        return fault_set(fault, "time", date, wrong);

    struct span who = span_trim(span_slice(line, client_end, open)); /* ident and user */
    size_t ident_end = span_find(who, ' ');
    if (ident_end == who.len)
        return fault_say(fault, "is not in Common Log Format: no user before the [date]");
    struct span user = span_trim(span_slice(who, ident_end, who.len));
    if (!are_ident_and_user(span_slice(who, 0, ident_end), user))
        return fault_set(fault, "client", client,
                         "is followed by more than an ident and a user, so it is not the client");

    if (close + 2 >= line.len || line.data[close + 1] != ' ' || line.data[close + 2] != '"')
        return fault_say(fault, "is not in Common Log Format: no \"request\" after the [date]");
    size_t request = close + 3, end = request;
    while (end < line.len && !(line.data[end] == '"' && tail_follows(line, end + 1)))
        end++;
    if (end == line.len)
        return fault_say(fault, "is not in Common Log Format: no status and size after the \"request\"");

    *out_time_us = time_us;
    *out_key = which == CLF_CLIENT ? client
               : which == CLF_USER ? user
                                   : request_part(span_slice(line, request, end), which);
    return true;
}

/* True for bytes of host names. Names that a resolver returned also contain underscores and asterisks. */
static bool is_host_name(struct span word)
{
    for (size_t i = 0; i < word.len; i++) {
        char byte = word.data[i], letter = (char)(byte | 0x20);
        if (!(letter >= 'a' && letter <= 'z') && !(byte >= '0' && byte <= '9') && (!byte || !strchr("-._*", byte)))
            return false;
    }
    return word.len > 0;
}

/* True for an IPv4 or IPv6 address. An IPv6 one may have a zone, as in fe80::1%eth0. */
static bool is_address(struct span word)
{
    char text[INET6_ADDRSTRLEN] = "";
    struct in6_addr address; /* large enough for both kinds */
    size_t len = span_find(word, '%');
    if (len >= sizeof text || memchr(word.data, '\0', len) ||
        (len < word.len && !is_host_name(span_slice(word, len + 1, word.len))))
        return false;
    memcpy(text, word.data, len);
    return (len == word.len && inet_pton(AF_INET, text, &address) == 1) || inet_pton(AF_INET6, text, &address) == 1;
}

/* True for what servers write as a client. nginx writes "unix:" for each client of a Unix socket. */
static bool is_client(struct span word)
{
    return is_host_name(word) || is_address(word) || span_is(word, "unix:");
}

/* True if these are an ident and a user, rather than the end of a prefix, a client, an ident and a user. A user may
 * have several words, but then none of them is "-", and the ident is "-". */
static bool are_ident_and_user(struct span ident, struct span user)
{
    size_t end = span_find(user, ' ');
    if (end == user.len)
        return !is_address(ident);
    for (; user.len; user = span_trim(span_slice(user, end, user.len)), end = span_find(user, ' '))
        if (span_is(span_slice(user, 0, end), "-"))
            return false;
    return span_is(ident, "-");
}

/* Return where the first "[" after a space is; line.len if there is none. */
static size_t date_begin(struct span line, size_t from)
{
    for (size_t at = from; at + 1 < line.len; at += 1 + span_find(span_slice(line, at + 1, line.len), ' '))
        if (line.data[at] == ' ' && line.data[at + 1] == '[')
            return at + 1;
    return line.len;
}

/* True if a space, a status of three digits or "-", a space, a size of digits or "-" follow, and then the end or a
 * space. */
static bool tail_follows(struct span line, size_t at)
{
    struct span tail = span_slice(line, at, line.len);
    if (!tail.len || tail.data[0] != ' ')
        return false;
    tail = span_slice(tail, 1, tail.len);
    size_t status_end = span_find(span_slice(tail, 0, tail.len < 4 ? tail.len : 4), ' ');
    if (status_end == tail.len || tail.data[status_end] != ' ')
        return false;
    struct span status = span_slice(tail, 0, status_end), size = span_slice(tail, status_end + 1, tail.len);
    size = span_slice(size, 0, span_find(size, ' '));
    int64_t number;
    return (span_is(status, "-") || (status.len == 3 && span_number(status, &number))) &&
           (span_is(size, "-") || span_number(size, &number));
}

static struct span request_part(struct span request, enum clf_key which)
{
    size_t method_end = span_find(request, ' ');
    struct span part = span_slice(request, 0, method_end);
    if (which == CLF_PATH) {
        part = span_slice(request, method_end < request.len ? method_end + 1 : method_end, request.len);
        size_t last = span_find_last(part, ' ');
        if (last < part.len && part.len - last > 6 && memcmp(part.data + last, " HTTP/", 6) == 0)
            part = span_slice(part, 0, last);
        part = span_slice(part, 0, span_find(part, '?'));
    }
    return part.len ? part : span_of("-");
}

bool clf_likely(struct span line)
{
    int64_t time_us;
    struct span key;
    struct fault fault;
    if (clf_read(line, CLF_CLIENT, &time_us, &key, &fault))
        return true;
    for (size_t i = 0; i + 13 < line.len; i++) {
        const char *at = line.data + i;
        if (memcmp(at, " HTTP/1.", 8) == 0 || memcmp(at, " HTTP/2.", 8) == 0)
            return true;
        if (at[0] == '[' && at[3] == '/' && at[7] == '/' && at[12] == ':') /* [01/Jul/1995: */
            return true;
    }
    return false;
}
