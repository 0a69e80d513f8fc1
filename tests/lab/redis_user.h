/* redis_user.h - a Redis user with exactly the rights that docs/redis.md lists.
 *
 * docs/redis.md has them as commands, "    ACL SETUSER <name> <rules>", one per line. A line that ends with "# ..." is
 * only for the use that it names. The tests make their users from these lines, so that the documentation is what is
 * tested.
 */
#ifndef WEIR_LAB_REDIS_USER_H
#define WEIR_LAB_REDIS_USER_H

#include "asker.h"

#include <stddef.h>

enum { REDIS_USER_WORDS_MOST = 40 };

struct redis_user {
    size_t n;
    char *words[REDIS_USER_WORDS_MOST + 1]; /* name and rules, in `text`, up to a NULL */
    const char *password;                   /* set by one of the rules */
    size_t used;                            /* of `text` */
    char text[1024];
    char error[256]; /* the reason after a -1 */
};

/* Read the lines of `name`: those for all, and those whose "# ..." contains one of `uses`, which ends with a NULL;
 * NULL: none. Return 0, or -1 with a sentence in user->error. */
int redis_user_read(struct redis_user *user, const char *name, const char *const *uses);

/* Remove the rule `word`. Return 0, or -1 with a sentence in user->error if it is missing. */
int redis_user_without(struct redis_user *user, const char *word);

/* Create the user on the asked server, or replace its rules. Return 0, or -1 with a sentence in user->error. */
int redis_user_set(struct redis_user *user, struct asker *asker);

#endif
