/* wire.h - one end of a connection whose bytes are sent at set times, and the limits of Redis messages in a stream.
 *
 * Nothing here blocks, locks or reads a clock; the loops of fproxy and fake_redis do.
 */
#ifndef WEIR_LAB_WIRE_H
#define WEIR_LAB_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum wire_end {
    WIRE_GOES_ON,
    WIRE_SHUTS, /* it sends no more bytes; the connection stays */
    WIRE_CLOSES,
    WIRE_RESETS /* TCP: RST, dropping unread bytes */
};

struct wire_chunk;

struct wire {
    int fd;    /* -1: closed */
    bool shut; /* the peer sends no more */
    char *in;  /* received and not used yet: in[0..in_len) */
    size_t in_len, in_size;
    struct wire_chunk *first, *last; /* to be sent, in this order */
};

int64_t wire_now_us(void); /* CLOCK_MONOTONIC */

void wire_init(struct wire *wire, int fd);             /* takes over fd and makes it non-blocking */
void wire_close(struct wire *wire, enum wire_end end); /* WIRE_CLOSES or WIRE_RESETS; also if closed */

/* Send bytes at `due_us` or later, after all that was added earlier. */
void wire_add(struct wire *wire, const void *bytes, size_t len, int64_t due_us);
/* Send one byte every `step_us`, from due_us on. */
void wire_drip(struct wire *wire, const void *bytes, size_t len, int64_t due_us, int64_t step_us);
/* Send the same bytes again and again, until the peer hangs up. */
void wire_repeat(struct wire *wire, const void *bytes, size_t len);
/* End it after all that was added before. */
void wire_end_at(struct wire *wire, enum wire_end end, int64_t due_us);

/* Return its events for poll(); lower *due_us to the time of its next sending. */
short wire_events(const struct wire *wire, int64_t now_us, int64_t *due_us);
/* Read available bytes into `in`, or note that the peer has shut. An error closes it. */
void wire_read(struct wire *wire);
void wire_write(struct wire *wire, int64_t now_us);
void wire_use(struct wire *wire, size_t len); /* in[0..len) has been used */

/* ---- Messages ---- */

/* Return the length of the first whole message of bytes[0..len), which may be a request; 0: incomplete, -1: not a
 * message. */
ssize_t resp_span(const char *bytes, size_t len);

/* True if they begin with an empty line, which is no command and gets no answer. */
bool resp_is_empty_line(const char *bytes, size_t len);

/* Split a whole request, an array of bulk strings, into words that point into `bytes`. Return how many, at most
 * `most`. */
size_t resp_words(const char *bytes, size_t len, size_t most, const char **words, size_t *lens);

#endif
