/* roles.h - which member of a record is the client, the time, the user, the method or the path.
 *
 * Producers name members in many ways: client_ip, clientIp, remote-addr, source.ip. Names are compared by their letters
 * and digits, without case. The first lines of an input decide; then the same member is taken in every line.
 */
#ifndef WEIR_CLI_ROLES_H
#define WEIR_CLI_ROLES_H

#include "cli/replay/input/record.h"
#include "cli/times.h"

enum role { ROLE_TIME, ROLE_CLIENT, ROLE_USER, ROLE_METHOD, ROLE_PATH, ROLE_COUNT };

#define ROLES_PATH_SIZE 128
#define ROLES_MAX_NAMES 64

struct role_candidate {
    char path[ROLES_PATH_SIZE]; /* empty: not seen */
    size_t good, bad;           /* lines whose value can have the role, and others */
    size_t units[TIME_UNITS];   /* of times: lines by the unit that their size suggests */
    size_t clocks;              /* of times: lines with a time of day alone */
    int64_t last;               /* of times that are whole numbers, */
    size_t falls;               /* and how often they went down */
};

/* What the first lines say. */
struct roles {
    size_t rows, around;         /* lines, and those with a time around them */
    struct role_candidate asked; /* the time that the user chose */
    struct role_candidate all[ROLE_COUNT][ROLES_MAX_NAMES];
    char date[ROLES_PATH_SIZE];    /* the path of a date alone, for a time of day beside it */
    char example[ROLES_PATH_SIZE]; /* of a time that is too small to tell its unit */
    /* Members that look like an address or a time, for a person who must choose. */
    char addresses[4][ROLES_PATH_SIZE], times[4][ROLES_PATH_SIZE];
};

/* Return the role of that name, such as "client"; ROLE_COUNT if there is none. */
enum role role_named(const char *name);

/* Count what the members of one line may be. `is_table`: they are columns, so names that say little count too. */
void roles_add(struct roles *roles, const struct record *record, bool is_table);

/* Count a value of the time that the user chose. */
void roles_add_asked(struct roles *roles, struct span value);

/* Return the member that has the role; NULL if there is none. */
const struct role_candidate *roles_choose(const struct roles *roles, enum role role);

/* True if two names are equal by their letters and digits. */
bool role_names_match(struct span name, const char *other);

/* True if this name is a usual one for a time. */
bool role_is_time(struct span name);

#endif
