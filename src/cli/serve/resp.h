/* resp.h - the Redis serialization protocol: splits commands, and writes replies.
 *
 * A command is an array of bulk strings, or a line of words ("inline"). Versions 2 and 3 differ in maps and in null
 * only. (Redis documentation, "Redis serialization protocol specification".)
 */
#ifndef WEIR_CLI_SERVE_RESP_H
#define WEIR_CLI_SERVE_RESP_H

#include "cli/span.h"

#define RESP_WORDS_MAX 256 /* words of a command: WEIR.TRYALL with 64 requests has 193 */
#define RESP_COMMAND_MAX \
    (160 << 10)            /* bytes of a command as sent: a key of 64 KiB is the longest word that means much */
#define RESP_LINE_MAX 4096 /* bytes of an inline command, and of a number's line far more than needed */

enum resp_result {
    RESP_COMMAND, /* a whole command */
    RESP_PARTIAL, /* it may become one when more bytes have come */
    RESP_BROKEN   /* it is none: the connection must be closed after an error */
};

struct resp_command {
    struct span words[RESP_WORDS_MAX]; /* in the input, or in `text` */
    size_t count;                      /* 0: an empty line or array, which has no reply */
    size_t bytes;                      /* of the input, of which the command is the beginning */
    const char *fault;                 /* RESP_BROKEN: why */
    bool is_inline;                    /* it came as a line of words */
    char text[RESP_LINE_MAX];          /* the words of a line, without their quotes */
};

/* Split the command at the beginning of the input. */
enum resp_result resp_read(struct span input, struct resp_command *out);

/* Bytes to be sent. It has no bound: the caller stops carrying out commands at CLIENT_OUTPUT_HIGH. */
struct output {
    char *data;
    size_t begin, end, size;
    bool failed; /* no memory: the connection must be closed */
};

void output_free(struct output *output);
void output_put(struct output *output, const char *data, size_t len);
void output_text(struct output *output, const char *text);

/* Put a reply, or the head of an array or a map, whose elements follow. */
void output_simple(struct output *output, const char *text);
void output_integer(struct output *output, int64_t value);
void output_bulk(struct output *output, struct span bytes);
void output_array(struct output *output, size_t count);
void output_map(struct output *output, size_t pairs, int version);
void output_null(struct output *output, int version);

/* Put an error, "-CODE sentence". Control characters of the sentence become blanks. */
__attribute__((format(printf, 2, 3))) void output_error(struct output *output, const char *format, ...);

#endif
