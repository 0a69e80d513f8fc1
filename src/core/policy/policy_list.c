/* policy_list.c - collects the lines of a policy file. */
#include "core/policy/policy_list.h"

#include <stdio.h>
#include <stdlib.h>

struct reading {
    const char *path;
    struct message message;
    struct policy_list list;
    int error; /* of the first bad line */
};

void policy_list_free(struct policy_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free((void *)(uintptr_t)list->entries[i].name); /* the other texts are in the same allocation */
    free(list->entries);
    *list = (struct policy_list){ .count = 0 };
}

static bool list_make_room(struct policy_list *list)
{
    if (list->count < list->room)
        return true;
    const size_t room = list->room ? 2 * list->room : 16;
    struct policy_entry *entries = realloc(list->entries, room * sizeof *entries);
    if (!entries)
        return false;
    list->entries = entries;
    list->room = room;
    return true;
}

static bool list_add(struct reading *reading, const struct weir_policy_line *line)
{
    struct policy_list *list = &reading->list;
    const size_t name_size = strlen(line->name) + 1;
    const size_t pattern_size = line->pattern ? strlen(line->pattern) + 1 : 0;
    const size_t where_size = strlen(reading->path) + 16;
    char *texts = list_make_room(list) ? malloc(name_size + pattern_size + where_size) : NULL;
    if (!texts)
        return false;
    memcpy(texts, line->name, name_size);
    if (line->pattern)
        memcpy(texts + name_size, line->pattern, pattern_size);
    char *where = texts + name_size + pattern_size;
    snprintf(where, where_size, "%s:%d", reading->path, line->number);
    list->entries[list->count++] = (struct policy_entry){
        .name = texts,
        .pattern = line->pattern ? texts + name_size : NULL,
        .policy = *line->policy,
        .where = where,
    };
    return true;
}

static int list_visit(void *user, const struct weir_policy_line *line)
{
    struct reading *reading = user;
    if (line->error)
        return reading->error = message_refuse(reading->message, "%s:%d: %s", reading->path, line->number, line->error);
    if (!list_add(reading, line)) {
        message_write(reading->message, "%s: out of memory", reading->path);
        return reading->error = WEIR_ENOMEM;
    }
    return WEIR_OK;
}

int policy_list_read(const char *path, struct policy_list *out, struct message message)
{
    struct reading reading = { .path = path, .message = message };
    int error = weir_policy_file_read(path, list_visit, &reading, message.text, message.size);
    if (reading.error)
        error = reading.error;
    if (error)
        policy_list_free(&reading.list);
    else
        *out = reading.list;
    return error;
}
