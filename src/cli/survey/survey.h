/* survey.h - what the states in Redis or a shared file tell about limits and keys, for weir stats, top and watch.
 *
 * There are states, not counters: which keys have permits in use at this moment, and how many. A survey visits them. It
 * keeps a row for each limit, and the keys that must wait longest in a heap of fixed size. The server looks at `scan`
 * keys at most. A key that SCAN returns twice counts twice in the rows, and is in the heap once.
 */
#ifndef WEIR_CLI_SURVEY_H
#define WEIR_CLI_SURVEY_H

#include "cli/store.h"

#define SURVEY_LIMITS 10000 /* rows; keys of further limits only count in `unlisted` */

/* The keys of one limit. */
struct survey_limit {
    char name[WEIR_MAX_NAME_LEN + 1];
    char policy[WEIR_POLICY_TEXT_SIZE]; /* of the key seen first */
    bool is_mixed;                      /* other keys have another one: overrides, or instances that disagree */
    uint64_t keys, denied, near;        /* near: not denied, with less than a tenth of the limit left */
    uint64_t disagreed;                 /* under two policies */
    uint64_t permits;                   /* in use */
};

/* The question of a survey, and its answer. */
struct survey {
    weir_inspector *inspector;
    const char *limit; /* NULL: any */
    int64_t scan;      /* keys of any program that the server looks at, at most */
    size_t top_room;   /* the size of the heap, WEIR_MAX_TOP_KEYS at most */

    struct survey_limit *limits; /* by name */
    size_t limit_count, limit_room;
    uint64_t keys, foreign, unlisted;
    bool is_all;                /* there were no more than `scan` */
    struct weir_inspected *top; /* the first has the longest wait, or of those that need not wait the highest use */
    size_t top_count;
    bool has_no_memory;
};

/* Allocate. Return EXIT_OK, or EXIT_FAILED after a complaint. survey_close() frees, also after a failure. */
int survey_open(struct survey *survey);
void survey_close(struct survey *survey);

/* Look at all keys. Return EXIT_OK, or another exit status after a complaint. */
int survey_take(struct survey *survey);

/* Print a head and a line for each limit, for people. */
void survey_print_limits(const struct survey *survey);

/* Print a line for each key, after a text. */
void survey_print_top(const struct survey *survey, const char *before);

/* Print what was left out, a line each after a text; nothing if nothing was. */
void survey_print_rest(const struct survey *survey, const char *before);

/* Print members of a JSON object: "limits", "keys" (for the heap), and "is_all" with what was left out. */
void survey_json_limits(const struct survey *survey);
void survey_json_top(const struct survey *survey, const char *name);
void survey_json_rest(const struct survey *survey);

#endif
