/* redis_user.c - a Redis user with the rights that docs/redis.md lists: see redis_user.h. */
#include "redis_user.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int fail(struct redis_user *user, const char *what, const char *name)
{
    snprintf(user->error, sizeof user->error, "%s: %s of the user %s", WEIR_RIGHTS_PAGE, what, name);
    return -1;
}

static bool is_for(const char *comment, const char *const *uses)
{
    for (; comment != NULL && uses != NULL && *uses != NULL; uses++)
        if (strstr(comment, *uses) != NULL)
            return true;
    return comment == NULL;
}

static int take_words(struct redis_user *user, const char *name, const char *line)
{
    const size_t len = strlen(line);
    char *rest = user->text + user->used, *word;
    if (len >= sizeof user->text - user->used)
        return fail(user, "too long are the lines", name);
    memcpy(rest, line, len + 1);
    user->used += len + 1;
    while ((word = strsep(&rest, " \n")) != NULL) {
        if (*word == '\0')
            continue;
        if (user->n == REDIS_USER_WORDS_MOST)
            return fail(user, "too many are the rules", name);
        if (*word == '>')
            user->password = word + 1;
        user->words[user->n++] = word;
    }
    return 0;
}

int redis_user_read(struct redis_user *user, const char *name, const char *const *uses)
{
    char line[512], start[64];
    bool found = false;
    *user = (struct redis_user){ 0 };
    int error = take_words(user, name, name);
    snprintf(start, sizeof start, "    ACL SETUSER %s ", name);
    FILE *page = fopen(WEIR_RIGHTS_PAGE, "re");
    if (page == NULL)
        return fail(user, "cannot be read for the lines", name);
    while (error == 0 && fgets(line, sizeof line, page) != NULL) {
        if (strncmp(line, start, strlen(start)) != 0)
            continue;
        char *comment = strchr(line, '#');
        found = found || comment == NULL;
        if (!is_for(comment, uses))
            continue;
        if (comment != NULL)
            *comment = '\0';
        error = take_words(user, name, line + strlen(start));
    }
    fclose(page);
    if (error == 0 && (!found || user->password == NULL))
        return fail(user, "there is no line with the rules and a password", name);
    return error;
}

int redis_user_without(struct redis_user *user, const char *word)
{
    size_t kept = 0;
    for (size_t i = 0; i < user->n; i++)
        if (strcmp(user->words[i], word) != 0)
            user->words[kept++] = user->words[i];
    if (kept + 1 != user->n)
        return fail(user, word, "not the right");
    user->n = kept;
    user->words[kept] = NULL;
    return 0;
}

int redis_user_set(struct redis_user *user, struct asker *asker)
{
    const char *words[REDIS_USER_WORDS_MOST + 2] = { "ACL", "SETUSER" };
    size_t lens[REDIS_USER_WORDS_MOST + 2] = { 3, 7 };
    char reply[128] = "";
    for (size_t i = 0; i < user->n; i++) {
        words[2 + i] = user->words[i];
        lens[2 + i] = strlen(user->words[i]);
    }
    if (asker_ask_words(asker, reply, sizeof reply, 2 + user->n, words, lens) < 0)
        return fail(user, asker->error, "on the way to the server");
    return strcmp(reply, "OK") == 0 ? 0 : fail(user, reply, "so says the server");
}
