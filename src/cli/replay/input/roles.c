/* roles.c - which member of a record is the client, the time, the user, the method or the path. */
#include "cli/replay/input/roles.h"

#include <string.h>

#include "cli/replay/input/keys.h"

/* How much a name says. */
enum name_kind {
    ANYWHERE, /* in any object; a client's value must be an address or a host name */
    AT_TOP,   /* =: not inside another object; the value must be an address */
    ANY_TEXT, /* ?: not inside another object; the value may be any text */
    IN_TABLE  /* #: a column of a table; the value may be any text */
};

/* The usual names of each role, the best first. A name in two parts also stands for an object and its member:
 * sourceip is source.ip. */
static const char *const USUAL[ROLE_COUNT] = {
    [ROLE_TIME] =
        "=time timestamp =ts =t timeiso8601 timelocal starttime startutc edgestarttimestamp datetime eventtime "
        "requesttime requesttimeepoch requestreceivedtimestamp requesttimestamp startedat receivedat reqtimesec realtimetimestamp "
        "createdat logtime loggedat timegenerated msec =date tdate asctime epoch unixtime =instant =timeus "
        "=timems =times =timens =tsus =tsms =tss =tsns =timestampus =timestampms =timestamps =timestampns "
        "=dateus =datems =datens =datetimems",
    [ROLE_CLIENT] =
        "#key =client clientip clientipaddress clientaddr clientaddress clienthost remoteaddr remoteip "
        "remoteaddress remotehost cip sourceip sourceips sourceipaddress sourceaddress srcip srcaddr "
        "calleripaddress callerip downstreamremoteaddresswithoutport downstreamremoteaddress "
        "downstreamdirectremoteaddress realip userip visitorip peeraddr peeraddress peerip remote =fwd "
        "requestip cliip idorigh =ip ipaddress ipaddr =address =addr =peer =src =source xrealip httpxrealip trueclientip "
        "cfconnectingip xforwardedfor httpxforwardedfor ?client #user #userid #username #account #tenant "
        "#apikey",
    [ROLE_USER] = "?user userid remoteuser username clientusername csusername authuser ?account",
    [ROLE_METHOD] = "method requestmethod httpmethod clientrequestmethod csmethod",
    [ROLE_PATH] = "path uri requesturi requestpath clientrequesturi requesturl csuristem resourcepath url",
};

/* Take the next usual name of a role. False at the end. */
static bool usual_next(const char **at, struct span *out, enum name_kind *out_kind)
{
    static const char marks[] = "=?#";
    if (!**at)
        return false;
    const char *mark = strchr(marks, **at);
    *out_kind = mark ? (enum name_kind)(AT_TOP + (mark - marks)) : ANYWHERE;
    *at += mark != NULL;
    *out = (struct span){ *at, strcspn(*at, " ") };
    *at += out->len;
    *at += **at == ' ';
    return true;
}

enum role role_named(const char *name)
{
    static const char *const names[ROLE_COUNT] = { "time", "client", "user", "method", "path" };
    size_t i = 0;
    while (i < ROLE_COUNT && strcmp(name, names[i]) != 0)
        i++;
    return (enum role)i;
}

/* Write the letters and digits of a name in lower case; return their number. */
static size_t letters_of(struct span name, char *out, size_t size)
{
    size_t len = 0;
    for (size_t i = 0; i < name.len && len + 1 < size; i++) {
        const char byte = name.data[i], letter = (char)(byte | 0x20);
        if ((letter >= 'a' && letter <= 'z') || (byte >= '0' && byte <= '9'))
            out[len++] = byte >= 'A' && byte <= 'Z' ? letter : byte;
    }
    out[len] = '\0';
    return len;
}

bool role_names_match(struct span name, const char *other)
{
    char left[64], right[64];
    return letters_of(name, left, sizeof left) > 0 && letters_of(span_of(other), right, sizeof right) > 0 &&
           strcmp(left, right) == 0;
}

bool role_is_time(struct span name)
{
    char letters[64];
    letters_of(name, letters, sizeof letters);
    const char *at = USUAL[ROLE_TIME];
    struct span usual;
    enum name_kind kind;
    while (usual_next(&at, &usual, &kind))
        if (usual.len > 1 && span_is(usual, letters))
            return true;
    return false;
}

/* True if an object around the member describes another machine than the client. */
static bool is_foreign(const struct record *record, const struct member *member)
{
    static const char *const others[] = { "server",  "upstream", "destination",  "dest",       "host",    "target",
                                          "backend", "response", "resp_headers", "kubernetes", "process", "agent" };
    for (; member->parent; member = &record->objects[member->parent])
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            if (span_is_like(record->objects[member->parent].name, others[i]))
                return true;
    return false;
}

/* Count a value as a time. */
static void time_add(struct role_candidate *candidate, struct span value, char *example, size_t size)
{
    int64_t number;
    enum time_unit unit = TIME_BY_SIZE;
    const char *wrong;
    int64_t time_us;
    const struct span trimmed = span_trim(value);
    if (span_number(trimmed, &number)) {
        candidate->falls += number < candidate->last;
        candidate->last = number;
        if (!time_unit_of_size(number, &unit)) {
            if (!*example)
                span_show(value, example, size);
            candidate->units[TIME_BY_SIZE]++;
            return;
        }
        candidate->units[unit]++;
    } else if (time_is_clock(trimmed)) {
        candidate->clocks++;
        return;
    } else if (!time_read(trimmed, TIME_BY_SIZE, &time_us, &wrong) || !time_is_plausible(time_us)) {
        candidate->bad++;
        return;
    }
    candidate->good++;
}

void roles_add_asked(struct roles *roles, struct span value)
{
    time_add(&roles->asked, value, roles->example, sizeof roles->example);
}

static void note(char (*notes)[ROLES_PATH_SIZE], const struct record *record, size_t member)
{
    char path[ROLES_PATH_SIZE];
    record_path(record, member, path, sizeof path);
    for (size_t i = 0; i < 4 && strcmp(notes[i], path) != 0; i++)
        if (!notes[i][0]) {
            memcpy(notes[i], path, sizeof path);
            return;
        }
}

/* Return the first of several values with commas between them. */
static struct span first_of(struct span list)
{
    return span_slice(list, 0, span_find(list, ','));
}

/* Count the member as a candidate of a role, if its name is a usual one. */
static void candidate_add(struct roles *roles, enum role role, const struct record *record, size_t i, bool is_table)
{
    const struct member *member = &record->all[i];
    char own[64], both[128] = "", path[ROLES_PATH_SIZE];
    const size_t len = letters_of(member->name, own, sizeof own);
    const size_t point = span_find_last(member->name, '.');
    bool is_top = !member->parent && point == member->name.len;
    if (member->parent)
        letters_of(record->objects[member->parent].name, both, sizeof both - sizeof own);
    memcpy(both + strlen(both), own, len + 1);
    if (point < member->name.len)
        letters_of(span_slice(member->name, point + 1, member->name.len), own, sizeof own);
    const char *at = USUAL[role];
    struct span usual;
    enum name_kind kind;
    for (struct role_candidate *candidate = roles->all[role]; usual_next(&at, &usual, &kind); candidate++) {
        const bool is_own = span_is(usual, own) && (kind == ANYWHERE || is_top);
        if ((!is_own && (is_top || !span_is(usual, both))) || (kind == IN_TABLE && !is_table))
            continue;
        record_path(record, i, path, sizeof path);
        if (*candidate->path && strcmp(candidate->path, path) != 0)
            continue;
        memcpy(candidate->path, path, sizeof path);
        if (role == ROLE_TIME)
            time_add(candidate, member->value, roles->example, sizeof roles->example);
        else if (role == ROLE_CLIENT && (kind == ANYWHERE ? !key_is_client(member->value)
                                                          : kind == AT_TOP && !key_is_address(first_of(member->value))))
            candidate->bad++;
        else if (member->value.len && !span_is(member->value, "-"))
            candidate->good++;
    }
}

void roles_add(struct roles *roles, const struct record *record, bool is_table)
{
    roles->rows++;
    for (size_t i = 0; i < record->count; i++) {
        const struct member *member = &record->all[i];
        int64_t time_us;
        const char *wrong;
        for (int role = 0; role < ROLE_COUNT && !is_foreign(record, member); role++)
            candidate_add(roles, (enum role)role, record, i, is_table);
        if (!roles->date[0] && role_names_match(member->name, "date") && member->value.len == 10)
            record_path(record, i, roles->date, sizeof roles->date);
        if (key_is_address(member->value))
            note(roles->addresses, record, i);
        if (member->value.len >= 9 && time_read(member->value, TIME_BY_SIZE, &time_us, &wrong) &&
            time_is_plausible(time_us))
            note(roles->times, record, i);
    }
}

const struct role_candidate *roles_choose(const struct roles *roles, enum role role)
{
    const struct role_candidate *all = roles->all[role], *small = NULL;
    size_t most = 0;
    /* A time of day beside a date is the better half of the time. */
    for (size_t i = 0; i < ROLES_MAX_NAMES && role == ROLE_TIME && roles->date[0]; i++)
        if (all[i].clocks * 2 > roles->rows)
            return &all[i];
    for (size_t i = 0; i < ROLES_MAX_NAMES; i++)
        most = all[i].good > most ? all[i].good : most;
    for (size_t i = 0; i < ROLES_MAX_NAMES && most > 0; i++)
        if (all[i].good * 2 >= most && all[i].good >= all[i].bad)
            return &all[i];
    /* Whole numbers that are too small for a date count if the name says their unit and they do not go down. */
    for (size_t i = 0; i < ROLES_MAX_NAMES && role == ROLE_TIME && !small; i++)
        if (all[i].units[TIME_BY_SIZE] * 2 > roles->rows && all[i].falls * 10 <= roles->rows)
            small = &all[i];
    return small;
}
