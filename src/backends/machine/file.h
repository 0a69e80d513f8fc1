/* file.h - the file in which all processes count: how it is made, found fit, shared and left.
 *
 * Locks on bytes far behind the file's end tell which processes use it (fcntl(2), "open file description locks"). The
 * kernel gives a lock back when the process has ended, however it ended, and no thread of it runs any more. Each
 * process has the byte of its slot; one byte is held while a process makes, enters or leaves the file.
 *
 * A lock belongs to the open file description, which a child of fork() shares with its parent as long as it has the
 * parent's descriptor or a mapping of it. So nothing of it may stay in the child, or else a parent that has died would
 * seem to live. The file is mapped through another description. The child opens the file anew, through /proc/self/fd,
 * takes a slot of its own, and closes the parent's descriptor then: in between, the file must not seem unused.
 * A program may close all descriptors. So each process has a page of the description mapped, which no child inherits.
 */
#ifndef BACKENDS_MACHINE_FILE_H
#define BACKENDS_MACHINE_FILE_H

#include "backends/machine/guard.h"
#include "backends/machine/layout.h"
#include "core/ground/log.h"

struct machine_file {
    int fd;                     /* -1: a child of fork() could not open the file anew */
    void *anchor;               /* a page that keeps the locks, also if the program closes fd; NULL: there is none */
    unsigned char *map;         /* (c) with room for all levels of rules, most of it behind the file's end */
    struct guard *guard;        /* (c) of the mapping; NULL: the memory has no name, and no process can truncate it */
    struct machine_facts facts; /* (c) a copy: what the file says later is not read */
    _Atomic unsigned levels;    /* of rules, which this process may touch; rises when it has seen the file grow */
    uint64_t owner;             /* this process, as a lock names it: turn and slot */
    _Atomic uint64_t waits;     /* (a) of threads of this process that slept because a lock was taken */
    char *path;                 /* (c) allocated; NULL: the file has no name */
    bool is_alone;              /* no other process used the file when it was opened */
};

#define FILE_PATIENCE_US INT64_C(1000000) /* file_open() waits for other processes that open it: so long, ... */
#define FILE_BYTES_PER_SECOND (32 << 20)  /* ... and a second more for so many bytes, which these may have to make */

/* Open or make the file. `shared` is a path, a name in /dev/shm, or NULL for memory that only children of fork() share.
 * With max_keys 0 the file must exist. `patience_us` is how long to wait at least for a process that is opening it.
 * WEIR_OK, or an error with a sentence in `why`; WEIR_ETIME names the process that it waited for. A fork meanwhile is
 * for file_drop_in_child(). With is_alone the caller must look through the file before it calls
 * file_entered(), which lets other processes in; without it, too. */
int file_open(const char *shared, int64_t max_keys, int64_t patience_us, struct machine_file *out, struct message why);
void file_entered(const struct machine_file *file);

/* Close it. Counts stay, unless the memory has no name. */
void file_close(struct machine_file *file);

/* Take a slot for this child of fork(). False: it cannot use the file. */
bool file_begin_in_child(struct machine_file *file);

/* Close the file in this child of fork(), whose parent was about to open or close it. */
void file_drop_in_child(struct machine_file *file);

/* True if the file's name is gone, or leads to another file by now. */
bool file_is_gone(const struct machine_file *file);

/* True unless the process that a lock names has ended. */
bool file_owner_lives(const struct machine_file *file, uint64_t owner);

static inline struct machine_header *file_header(const struct machine_file *file)
{
    return (struct machine_header *)(void *)file->map;
}

/* Look how many levels of rules the file has, which may have grown. */
void file_look(struct machine_file *file);

/* Let the file grow by the next level of rules. The caller has the rules' lock, and has looked since. False: it has
 * all, or there is no room for more. */
bool file_grow(struct machine_file *file);

static inline unsigned file_levels(const struct machine_file *file)
{
    return atomic_load_explicit(&file->levels, memory_order_acquire);
}

#endif
