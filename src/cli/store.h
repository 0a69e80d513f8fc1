/* store.h - where a command keeps its counts: in this process, or in Redis (--mode distributed).
 *
 * What is asked of Redis is answered by Redis or is an error: a command that fell back to this process would say
 * something else than it was asked to find out. No password is ever printed.
 */
#ifndef WEIR_CLI_STORE_H
#define WEIR_CLI_STORE_H

#include <weir/weir.h>

#define STORE_PREFIX_SIZE 40

/* getopt_long()'s codes for the options that set a store; commands number their own from 256. */
enum store_option { STORE_MODE = 1024, STORE_REDIS, STORE_PASSWORD_FILE, STORE_PREFIX };

struct store {
    bool is_distributed;
    const char *redis_url, *password_file;
    const char *prefix; /* of the keys in Redis; NULL: the library's default */
    char run_prefix[STORE_PREFIX_SIZE];
};

/* Take an option of enum store_option; EXIT_OK, or EXIT_ERROR after a complaint. */
int store_read_option(struct store *store, const char *command, int code, const char *value);

/* After the last option: whether they go together. EXIT_OK, or EXIT_ERROR after a complaint. */
int store_check(const struct store *store, const char *command);

/* Give this run keys of its own, "weir:replay-<16 hex digits>:". EXIT_OK, or EXIT_FAILED after a complaint. */
int store_make_prefix(struct store *store);

/* Fill in where the counts are kept, what is done when Redis cannot be had (an error), and a log hook that says so. */
void store_options(const struct store *store, struct weir_options *options);

/* Whether Redis can be reached and asked, found out by a question that changes nothing: EXIT_OK, or after a complaint
 * EXIT_ERROR (the options are wrong) or EXIT_FAILED. Always EXIT_OK without Redis. */
int store_reach(const struct store *store);

/* "memory", "redis" and so on: who decided. */
const char *store_source_name(unsigned source);

/* From now on SIGINT, SIGTERM, SIGHUP and SIGPIPE are only noted, the first time each, so that there is time to remove
 * keys. store_signal() is what was noted last, or 0. Releasing them gives them their effect back, and this process the
 * one that was noted. */
void store_hold_signals(void);
int store_signal(void);
void store_release_signals(void);

#endif
