/* policy_file.c - reads a policy file: one `name = policy` per line, `#` comments, each name at most once.
 *
 * A name is a limit's, or `<limit>/<pattern>`. Two patterns of a limit are the same if they match the same keys,
 * however they are written.
 */
#include "core/ground/cancel.h"
#include "core/ground/uthash_config.h"
#include "core/policy/pattern.h"
#include "core/policy/policy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct name_seen {
    int line;
    UT_hash_handle hh; /* by the bytes of the name */
    unsigned char bytes[];
};

struct file_reader {
    struct name_seen *names;
    int number;
    char error[LOG_LINE_SIZE];
    struct weir_policy policy;
    const char *name, *pattern; /* into the line; `pattern` is NULL if there is none */
};

static bool file_is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Cut white space off the end; return where the rest begins. */
static char *trim(char *text)
{
    size_t len = strlen(text);
    while (len > 0 && file_is_space(text[len - 1]))
        text[--len] = '\0';
    while (file_is_space(*text))
        text++;
    return text;
}

/* Write the bytes that identify a name: the limit's, and after a byte that no limit's name contains, the pattern's kind
 * and bytes. Return their number. */
#define NAME_BYTES (WEIR_MAX_NAME_LEN + 1 + WEIR_MAX_PATTERN_LEN)
static size_t name_bytes(const struct limit_name *name, unsigned char *bytes)
{
    const size_t len = strlen(name->limit);
    memcpy(bytes, name->limit, len);
    if (!name->is_override)
        return len;
    bytes[len] = name->pattern.is_prefix ? '*' : '/';
    memcpy(bytes + len + 1, name->pattern.bytes, name->pattern.len);
    return len + 1 + name->pattern.len;
}

/* Remember a name. WEIR_OK if it is new, WEIR_EINVAL if it is not, or WEIR_ENOMEM. */
static int remember_name(struct file_reader *reader, const struct limit_name *name)
{
    unsigned char bytes[NAME_BYTES];
    const size_t len = name_bytes(name, bytes);
    struct name_seen *seen;
    HASH_FIND(hh, reader->names, bytes, len, seen);
    if (seen)
        return message_refuse((struct message){ reader->error, sizeof reader->error },
                              "\"%s%s%.200s\" is defined already on line %d", reader->name, reader->pattern ? "/" : "",
                              reader->pattern ? reader->pattern : "", seen->line);
    seen = malloc(sizeof *seen + len);
    if (!seen)
        return WEIR_ENOMEM;
    seen->line = reader->number;
    memcpy(seen->bytes, bytes, len);
    HASH_ADD_KEYPTR(hh, reader->names, seen->bytes, len, seen);
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

/* Read one line. Return 1 if it is empty. Otherwise WEIR_OK with name and policy, WEIR_EINVAL with error, or
 * WEIR_ENOMEM. */
static int policy_read_line(struct file_reader *reader, char *line, size_t len)
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
    char *slash = strchr(name, '/');
    if (slash)
        *slash = '\0';
    reader->name = name;
    reader->pattern = slash ? slash + 1 : NULL;
    char sentence[LOG_LINE_SIZE - 32];
    struct limit_name read;
    if (limit_name_make(name, reader->pattern, &read, (struct message){ sentence, sizeof sentence }) != WEIR_OK)
        return message_refuse(error, "column %d: %s", (int)(name - line) + 1, sentence);
    const char *text = equals + 1;
    int result = policy_read(text, (int)(text - line) + 1, &reader->policy, error);
    return result == WEIR_OK ? remember_name(reader, &read) : result;
}

/* True if the path names a descriptor that the caller opened. The caller must know what it is and whether it ends. */
static bool is_open_already(const char *path)
{
    return strcmp(path, "/dev/stdin") == 0 || strncmp(path, "/dev/fd/", 8) == 0 ||
           strncmp(path, "/proc/self/fd/", 14) == 0;
}

/* Open the file; return NULL with a sentence if it cannot be read. Opening a named pipe without a writer would block,
 * and a device may never end. So open it without blocking and then check its kind: checking first would leave time for
 * the file to be replaced. */
static FILE *policy_open_file(const char *path, struct message sentence)
{
    struct stat stat_now;
    if (!*path) {
        message_write(sentence, "the path of the policy file is empty");
        return NULL;
    }
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &stat_now) != 0) {
        message_write(sentence, "%s: %s", path, strerror(errno));
    } else if (S_ISDIR(stat_now.st_mode)) {
        message_write(sentence, "%s: %s", path, strerror(EISDIR));
    } else if (!S_ISREG(stat_now.st_mode) && !is_open_already(path)) {
        message_write(sentence, "%s: neither a file nor standard input", path);
    } else {
        FILE *file = fcntl(fd, F_SETFL, 0) == 0 ? fdopen(fd, "r") : NULL; /* reads may block */
        if (file)
            return file;
        message_write(sentence, "%s: %s", path, strerror(errno));
    }
    if (fd >= 0)
        close(fd);
    return NULL;
}

int weir_policy_file_read(const char *path, int (*visit)(void *user, const struct weir_policy_line *line), void *user,
                          char *message, size_t message_size)
{
    struct message sentence = { message, message_size };
    if (!path || !visit)
        return message_refuse(sentence, "%s must not be NULL", path ? "visit" : "path");
    CANCEL_DISABLED; /* the file is open while `visit` runs */
    FILE *file = policy_open_file(path, sentence);
    if (!file)
        return WEIR_EIO;

    struct file_reader reader = { 0 };
    char *line = NULL;
    size_t size = 0;
    int result = WEIR_OK;
    bool any_bad = false;
    ssize_t len;
    errno = 0;
    while (result == WEIR_OK && (len = getline(&line, &size, file)) >= 0) {
        reader.number++;
        int read = policy_read_line(&reader, line, (size_t)len);
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
            .pattern = bad ? NULL : reader.pattern,
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
