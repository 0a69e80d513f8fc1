/* input_options.h - the options that say how an input is read, for replay and suggest. */
#ifndef WEIR_CLI_INPUT_OPTIONS_H
#define WEIR_CLI_INPUT_OPTIONS_H

#include <getopt.h>

#include "cli/replay/input/load.h"

/* getopt_long()'s codes. Commands number their options from 256, store.h those of a store from 1024. */
enum input_option {
    INPUT_KEY = 512,
    INPUT_TIME,
    INPUT_COST,
    INPUT_FORMAT,
    INPUT_LOG_FORMAT,
    INPUT_TIME_UNIT,
    INPUT_TIME_FORMAT,
    INPUT_YEAR,
    INPUT_LENIENT
};

#define INPUT_OPTIONS                                                                                         \
    { "key", required_argument, NULL, INPUT_KEY }, { "time", required_argument, NULL, INPUT_TIME },           \
        { "cost", required_argument, NULL, INPUT_COST }, { "format", required_argument, NULL, INPUT_FORMAT }, \
        { "log-format", required_argument, NULL, INPUT_LOG_FORMAT },                                          \
        { "time-unit", required_argument, NULL, INPUT_TIME_UNIT },                                            \
        { "time-format", required_argument, NULL, INPUT_TIME_FORMAT },                                        \
        { "year", required_argument, NULL, INPUT_YEAR },                                                      \
    {                                                                                                         \
        "lenient", no_argument, NULL, INPUT_LENIENT                                                           \
    }

struct input_options {
    struct load_options load;
    const char *key, *cost; /* of the limits without their own; NULL: the usual ones */
    char *const *files;
    size_t file_count;
    int64_t stdin_at; /* where the standard input stood */
};

/* The help on these options. */
#define INPUT_HELP                                                                                                       \
    "Input:\n"                                                                                                           \
    "      --format FORMAT    auto (default: by the first 200 lines), json, logfmt, csv, tsv, combined, common,\n"       \
    "                         haproxy or another one, see weir-replay(1)\n"                                              \
    "      --log-format TEXT  the format as nginx's log_format or Apache's LogFormat has it\n"                           \
    "      --key KEY          the key: a field such as client (default), path, user or method; a path such as\n"         \
    "                         request.client_ip in JSON; in CSV a name, or a number from 1. user+path is both;\n"        \
    "                         client/24/64 an address's prefix; x_forwarded_for#2 the second of several, #-1 the last\n" \
    "      --time FIELD       CSV, JSON, logfmt: the field with the time\n"                                              \
    "      --cost FIELD       the field with the permits that a request takes (default: 1; in CSV cost, or 1)\n"         \
    "      --time-unit UNIT   of whole-number times: us, ms, s or ns (default: by their size or the field's name)\n"     \
    "      --time-format F    the times' format for strptime, such as '%d.%m.%Y %H:%M:%S'\n"                             \
    "      --year YEAR        the year of the first line, for times without one, as in syslog (default: 2000)\n"         \
    "      --lenient          report even if fewer than 95 % of the rows fit the format; the exit status stays 1\n"

/* True if this is one of the codes above. */
bool input_option_is(int code);

/* Take an option. Return EXIT_OK, or EXIT_ERROR after a complaint. */
int input_option_read(struct input_options *input, const char *command, int code, const char *value);

/* Take the files, which are stdin if there are none, and check the options. Return EXIT_OK, or EXIT_ERROR after a
 * complaint. */
int input_options_check(struct input_options *input, const char *command, int argc, char **argv);

/* Make the next input_read() begin at the start again. False, without any change, if not all inputs are files. */
bool input_repeat(const struct input_options *input);

/* Read all files. Return EXIT_OK, FEED_AGAIN, or after a complaint EXIT_FAILED or EXIT_ERROR. `do_fit` becomes true if
 * enough rows fit; without that, EXIT_OK means that the options are lenient. */
int input_read(const struct input_options *input, struct loader *load, bool *do_fit);

#endif
