/* daemon.h - a private server's process for a test or a benchmark, and the folder that it works in.
 *
 * The process ends with the thread that started it, whatever becomes of that, and its folder goes with it: a test that
 * crashes leaves nothing. So start it from a thread that lives as long as the test does.
 */
#ifndef WEIR_LAB_DAEMON_H
#define WEIR_LAB_DAEMON_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Whether a folder of PATH has such a program. */
bool daemon_in_path(const char *program);

/* Split a command at its blanks, in place, into at most `most` words; how many. */
size_t daemon_words(char *command, char **words, size_t most);

/* A port of 127.0.0.1 that was free a moment ago, and so was the one `away` above it; 0 if there is none. Systems deal
 * out others (from 32,768 on by Linux), so that a server which starts again finds it free; but another process that
 * asks for one may be quicker, so the caller tries again. */
int daemon_port_free(int away);

/* A port of 127.0.0.1 at which nobody listens for as long as this process lives; 0 if there is none. */
int daemon_port_closed(void);

struct daemon {
    pid_t pid;       /* 0: not running */
    int watch_fd;    /* open for as long as the folder is wanted; 0: none */
    char dir[80];    /* in $TMPDIR, or else /tmp; empty: none */
    char error[512]; /* after a -1, why */
};

/* -1, with the sentence in daemon->error. */
int daemon_fail(struct daemon *daemon, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Make the folder weir-<name>-XXXXXX. 0, or -1 with a sentence in daemon->error. */
int daemon_folder_make(struct daemon *daemon, const char *name);
void daemon_folder_remove(struct daemon *daemon);

/* Run words[0], or if there is no such program the file `or_else` (NULL: none), in the folder, with its output in the
 * file `log` there, and wait until ready(user) is true. 0, or -1 with a sentence in daemon->error and nothing
 * running. */
int daemon_run(struct daemon *daemon, char *const *words, const char *or_else, bool (*ready)(void *user), void *user);

void daemon_stop(struct daemon *daemon); /* in an orderly way, by force after some seconds; not running is fine */
void daemon_kill(struct daemon *daemon); /* as by kill -9; not running is fine */

/* Stop it where it is (SIGSTOP) and let it go on: it holds its connections, but answers nothing. pause returns once it
 * has stopped. */
void daemon_pause(const struct daemon *daemon);
void daemon_resume(const struct daemon *daemon);

#endif
