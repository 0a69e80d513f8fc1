/* serve_resp.c - commands of the Redis protocol, as weir serve reads them.
 *
 * The input is what a client sends. Properties:
 *
 *     - reading reads no byte behind the input, and words lie in order in it or, of a line, in the command's own text
 *     - a command that is whole stays the same when more bytes follow, and is partial or broken when some are missing
 *     - what is partial may become a command: it is shorter than RESP_COMMAND_MAX
 *     - the words, written as an array of bulk strings, are read back
 *     - an error line has no control bytes, whatever is in it
 */
#include "fuzz.h"

#include "cli/serve/resp.h"

#include <stdlib.h>
#include <string.h>

static void check_words(const struct resp_command *command, const char *begin, size_t size)
{
    const char *end = command->is_inline ? command->text : begin;
    const char *last = command->is_inline ? command->text + sizeof command->text : begin + command->bytes;
    fuzz_must(command->bytes >= 1 && command->bytes <= size, "a command has bytes of the input");
    for (size_t i = 0; i < command->count; i++) {
        fuzz_must(command->words[i].data >= end, "words are in order");
        end = command->words[i].data + command->words[i].len;
        fuzz_must(end <= last, "and within the command");
    }
}

static void check_again(const struct resp_command *command)
{
    static struct resp_command again;
    struct output output = { NULL, 0, 0, 0, false };
    output_array(&output, command->count);
    for (size_t i = 0; i < command->count; i++)
        output_bulk(&output, command->words[i]);
    const struct span text = { output.data, output.end };
    if (text.len <= RESP_COMMAND_MAX) {
        fuzz_must(resp_read(text, &again) == RESP_COMMAND && again.bytes == text.len && again.count == command->count,
                  "the words are read back");
        for (size_t i = 0; i < again.count; i++)
            fuzz_must(again.words[i].len == command->words[i].len &&
                          memcmp(again.words[i].data, command->words[i].data, again.words[i].len) == 0,
                      "each as it was");
    }
    output_free(&output);
}

static void check_error(const char *data, size_t size)
{
    struct output output = { NULL, 0, 0, 0, false };
    output_error(&output, "ERR %.*s", (int)(size < 600 ? size : 600), data);
    fuzz_must(output.end >= 7 && output.data[0] == '-' && memcmp(output.data + output.end - 2, "\r\n", 2) == 0,
              "an error is a line");
    for (size_t i = 0; i + 2 < output.end; i++)
        fuzz_must((unsigned char)output.data[i] >= ' ' && output.data[i] != 0x7f, "without control bytes");
    output_free(&output);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct resp_command command, other;
    char *text = malloc(size ? size : 1); /* so that a sanitizer sees its end */
    fuzz_must(text != NULL, "there is memory");
    memcpy(text, data, size);
    size_t at = 0;
    enum resp_result result = RESP_COMMAND;
    while (at < size && (result = resp_read((struct span){ text + at, size - at }, &command)) == RESP_COMMAND) {
        check_words(&command, text + at, size - at);
        check_again(&command);
        const size_t bytes = command.bytes, count = command.count;
        fuzz_must(resp_read((struct span){ text + at, bytes }, &other) == RESP_COMMAND && other.bytes == bytes &&
                      other.count == count,
                  "nothing behind a command changes it");
        fuzz_must(resp_read((struct span){ text + at, bytes - 1 }, &other) != RESP_COMMAND,
                  "without its last byte it is none");
        at += bytes;
    }
    fuzz_must(result != RESP_PARTIAL || size - at <= RESP_COMMAND_MAX + RESP_LINE_MAX, "what is partial has a bound");
    fuzz_must(result != RESP_BROKEN || command.fault, "a fault has a name");
    check_error(text, size);
    free(text);
    return 0;
}
