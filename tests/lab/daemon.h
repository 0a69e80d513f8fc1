/* daemon.h - a private server's process for a test or a benchmark, and its working folder.
 *
 * The process and its folder end with the thread that started it, so a crashing test leaves nothing. Start it from a
 * thread that lives as long as the test.
 */
#ifndef WEIR_LAB_DAEMON_H
#define WEIR_LAB_DAEMON_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* True if a folder of PATH has this program. */
bool daemon_in_path(const char *program);

/* Split a command at its blanks, in place, into at most `most` words; return how many. */
size_t daemon_words(char *command, char **words, size_t most);

/* Return a port of 127.0.0.1 that was free a moment ago, together with the one `away` above it; 0 if there is none.
 * It lies below the system's ephemeral ports (32,768 on Linux), so that a restarted server finds it free. Another
 * process may take it first; the caller then tries again. */
int daemon_port_free(int away);

/* Return a port of 127.0.0.1 that refuses connections for as long as this process lives; 0 if there is none. */
int daemon_port_closed(void);

struct daemon {
    pid_t pid;       /* 0: not running */
    int watch_fd;    /* open as long as the folder is needed; 0: none */
    char dir[80];    /* in scratch_parent(); empty: none */
    char error[512]; /* the reason after a -1 */
};

/* Return -1 and store the sentence in daemon->error. */
int daemon_fail(struct daemon *daemon, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Make the folder weir-<name>-XXXXXX. Return 0, or -1 with a sentence in daemon->error. */
int daemon_folder_make(struct daemon *daemon, const char *name);
void daemon_folder_remove(struct daemon *daemon);

/* Run words[0] in the folder, or the file `or_else` (NULL: none) if there is no such program, with its output in the
 * folder's file `log`; wait until ready(user) is true. Return 0, or -1 with a sentence in daemon->error and nothing
 * running. */
int daemon_run(struct daemon *daemon, char *const *words, const char *or_else, bool (*ready)(void *user), void *user);

void daemon_stop(struct daemon *daemon); /* orderly, after some seconds by force; it need not be running */
void daemon_kill(struct daemon *daemon); /* kill -9; it need not be running */

/* Pause it (SIGSTOP) and resume it: it keeps its connections but answers nothing. daemon_pause() returns once it has
 * stopped. */
void daemon_pause(const struct daemon *daemon);
void daemon_resume(const struct daemon *daemon);

#endif
