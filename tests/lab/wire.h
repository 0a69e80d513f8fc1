/* wire.h - one end of a connection whose bytes go out at set times, and where Redis' messages begin and end in a
 * stream.
 *
 * Nothing here blocks, locks or takes a time by itself: the loops of fproxy and fake_redis do.
 */
#ifndef WEIR_LAB_WIRE_H
#define WEIR_LAB_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum wire_end {
    WIRE_GOES_ON,
    WIRE_SHUTS, /* no more bytes from us; the connection stays */
    WIRE_CLOSES,
    WIRE_RESETS /* TCP: RST, whatever was still to be read */
};

struct wire_chunk;

struct wire {
    int fd;    /* -1: closed */
    bool shut; /* the peer sends no more */
    char *in;  /* what came and has not been used: in[0..in_len) */
    size_t in_len, in_size;
    struct wire_chunk *first, *last; /* what goes out, in this order */
};

int64_t wire_now_us(void); /* CLOCK_MONOTONIC */

void wire_init(struct wire *wire, int fd);             /* owns fd, which it makes non-blocking */
void wire_close(struct wire *wire, enum wire_end end); /* WIRE_CLOSES or WIRE_RESETS; also a closed one */

/* Send bytes no earlier than `due_us` and not before what was added earlier. */
void wire_add(struct wire *wire, const void *bytes, size_t len, int64_t due_us);
/* One byte every `step_us`, from due_us on. */
void wire_drip(struct wire *wire, const void *bytes, size_t len, int64_t due_us, int64_t step_us);
/* The same bytes again and again, until the peer hangs up. */
void wire_repeat(struct wire *wire, const void *bytes, size_t len);
/* End it once all that was added before is out. */
void wire_end_at(struct wire *wire, enum wire_end end, int64_t due_us);

/* poll()'s events for it; lowers *due_us to the time at which it has something to send. */
short wire_events(const struct wire *wire, int64_t now_us, int64_t *due_us);
/* Read what there is into `in`, or note that the peer has shut. An error closes it. */
void wire_read(struct wire *wire);
void wire_write(struct wire *wire, int64_t now_us);
void wire_use(struct wire *wire, size_t len); /* in[0..len) is done with */

/* ---- Messages ---- */

/* The length of the first whole message of bytes[0..len) (a request is one too), 0: more is needed, -1: it is none. */
ssize_t resp_span(const char *bytes, size_t len);

/* Whether they begin with an empty line, which is no command, and has no answer. */
bool resp_is_empty_line(const char *bytes, size_t len);

/* The words of a request that is whole: an array of bulks. How many, at most `most`; words[] point into `bytes`. */
size_t resp_words(const char *bytes, size_t len, size_t most, const char **words, size_t *lens);

#endif
