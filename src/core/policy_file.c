/* policy_file.c - reads a policy file: one `name = policy` a line, `#` comments, a name at most once. */
#include "core/policy.h"
#include "core/uthash_config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct name_seen {
    int line;
    UT_hash_handle hh; /* by name */
    char name[];
};

struct file_reader {
    struct name_seen *names;
    int number;
    char error[LOG_LINE_SIZE];
    struct weir_policy policy;
    const char *name; /* into the line */
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Cuts white space off the end, and returns where the rest begins. */
static char *trim(char *text)
{
    size_t len = strlen(text);
    while (len > 0 && is_space(text[len - 1]))
        text[--len] = '\0';
    while (is_space(*text))
        text++;
    return text;
}

/* WEIR_OK if the name is new, WEIR_EINVAL if it is not, WEIR_ENOMEM. */
static int remember_name(struct file_reader *reader, const char *name)
{
    struct name_seen *seen;
    HASH_FIND_STR(reader->names, name, seen);
    if (seen)
        return message_refuse((struct message){ reader->error, sizeof reader->error },
                              "\"%s\" is defined already on line %d", name, seen->line);
    size_t len = strlen(name);
    seen = malloc(sizeof *seen + len + 1);
    if (!seen)
        return WEIR_ENOMEM;
    seen->line = reader->number;
    memcpy(seen->name, name, len + 1);
    HASH_ADD_KEYPTR(hh, reader->names, seen->name, len, seen);
    if (!seen->hh.tbl) {
        free(seen);
        return WEIR_ENOMEM;
    }
    return WEIR_OK;
}

static void forget_names(struct file_reader *reader)
{
    struct name_seen *seen, *next;
    HASH_ITER(hh, reader->names, seen, next) {
        HASH_DEL(reader->names, seen);
        free(seen);
    }
}

/* 1: nothing stands on the line. Else WEIR_OK with name and policy, WEIR_EINVAL with error, or WEIR_ENOMEM. */
static int read_line(struct file_reader *reader, char *line, size_t len)
{
    struct message error = { reader->error, sizeof reader->error };
    if (memchr(line, '\0', len))
        return message_refuse(error, "column %zu: a NUL byte", strlen(line) + 1);
    char *comment = strchr(line, '#');
    if (comment)
        *comment = '\0';
    char *name = trim(line);
    if (!*name)
        return 1;

    char *equals = strchr(name, '=');
    if (!equals)
        return message_refuse(error, "column %d: `name = policy` is expected", (int)(name - line) + 1);
    *equals = '\0';
    name = trim(name);
    char sentence[LOG_LINE_SIZE - 32];
    if (policy_name_check(name, (struct message){ sentence, sizeof sentence }) != WEIR_OK)
        return message_refuse(error, "column %d: %s", (int)(name - line) + 1, sentence);
    reader->name = name;
    const char *text = equals + 1;
    int result = policy_read(text, (int)(text - line) + 1, &reader->policy, error);
    return result == WEIR_OK ? remember_name(reader, name) : result;
}

int weir_policy_file_read(const char *path, int (*visit)(void *user, const struct weir_policy_line *line), void *user,
                          char *message, size_t message_size)
{
    struct message sentence = { message, message_size };
    if (!path || !visit)
        return message_refuse(sentence, "%s must not be NULL", path ? "visit" : "path");
    FILE *file = fopen(path, "re");
    if (!file) {
        message_write(sentence, "%s: %s", path, strerror(errno));
        return WEIR_EIO;
    }

    struct file_reader reader = { 0 };
    char *line = NULL;
    size_t size = 0;
    int result = WEIR_OK;
    bool any_bad = false;
    ssize_t len;
    errno = 0;
    while (result == WEIR_OK && (len = getline(&line, &size, file)) >= 0) {
        reader.number++;
        int read = read_line(&reader, line, (size_t)len);
        if (read == 1)
            continue;
        if (read == WEIR_ENOMEM) {
            result = WEIR_ENOMEM;
            break;
        }
        bool bad = read != WEIR_OK;
        any_bad = any_bad || bad;
        const struct weir_policy_line visited = {
            .number = reader.number,
            .name = bad ? NULL : reader.name,
            .policy = bad ? NULL : &reader.policy,
            .error = bad ? reader.error : NULL,
        };
        result = visit(user, &visited);
        errno = 0;
    }
    if (result == WEIR_OK && !feof(file)) {
        result = errno == ENOMEM ? WEIR_ENOMEM : WEIR_EIO;
        message_write(sentence, "%s: %s", path, strerror(errno));
    } else if (result == WEIR_ENOMEM) {
        message_write(sentence, "%s: out of memory", path);
    } else if (result == WEIR_OK && any_bad) {
        result = message_refuse(sentence, "%s: not every line is a policy", path);
    }
    free(line);
    forget_names(&reader);
    fclose(file);
    return result;
}
