/* redis_user.h - a Redis user with the rights that docs/redis.md says it needs, and no more.
 *
 * docs/redis.md has them as commands, "    ACL SETUSER <name> <rules>", a line each. A line that ends with "# ..." is for
 * those who use what it says there. The tests make their users of these very lines, so that what is documented is what
 * is tried.
 */
#ifndef WEIR_LAB_REDIS_USER_H
#define WEIR_LAB_REDIS_USER_H

#include "asker.h"

#include <stddef.h>

enum { REDIS_USER_WORDS_MOST = 24 };

struct redis_user {
    size_t n;
    char *words[REDIS_USER_WORDS_MOST + 1]; /* its name and its rules, in `text`, up to a NULL */
    const char *password;                   /* one of the rules says it */
    size_t used;                            /* of `text` */
    char text[1024];
    char error[256]; /* after a -1, why */
};

/* Read the lines of `name`: those for all, and those whose "# ..." has one of `uses` in it, which ends with a NULL; NULL:
 * none. 0, or -1 with a sentence in user->error. */
int redis_user_read(struct redis_user *user, const char *name, const char *const *uses);

/* Take away the one rule that is `word`. 0, or -1 with a sentence in user->error: there is none. */
int redis_user_without(struct redis_user *user, const char *word);

/* Make the user of the server that is asked, or give the one that there is these rules. 0, or -1 with a sentence in
 * user->error. */
int redis_user_set(struct redis_user *user, struct asker *asker);

#endif
