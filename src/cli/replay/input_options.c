/* input_options.c - the options that say how an input is read, for replay and suggest. */
#include "cli/replay/input_options.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/replay/input/formats.h"

bool input_option_is(int code)
{
    return code >= INPUT_KEY && code <= INPUT_LENIENT;
}

int input_option_read(struct input_options *input, const char *command, int code, const char *value)
{
    struct load_options *load = &input->load;
    int64_t number;
    switch ((enum input_option)code) {
    case INPUT_KEY: input->key = value; break;
    case INPUT_COST: input->cost = value; break;
    case INPUT_TIME: load->time = value; break;
    case INPUT_TIME_FORMAT: load->time_format = value; break;
    case INPUT_LOG_FORMAT: load->log_format = value; break;
    case INPUT_LENIENT: load->is_lenient = true; break;
    case INPUT_FORMAT:
        if (strcmp(value, "auto") != 0 && !load_format_exists(value))
            return usage_error(command, "--format '%s' is not one of auto, csv, tsv, json, %s", value, FORMAT_NAMES);
        load->format = strcmp(value, "auto") == 0 ? NULL : value;
        break;
    case INPUT_YEAR:
        if (!span_number(span_of(value), &number) || number < 1970 || number > 2254)
            return usage_error(command, "--year '%s' is not from 1970 to 2254", value);
        load->year = (int)number;
        break;
    case INPUT_TIME_UNIT:
        if (!time_unit_read(span_of(value), &load->unit))
            return usage_error(command, "--time-unit '%s' is not one of us, ms, s, ns", value);
        load->has_unit = true;
        break;
    }
    return EXIT_OK;
}

int input_options_check(struct input_options *input, const char *command, int argc, char **argv)
{
    static char standard_input[] = "-";
    static char *const only_stdin[] = { standard_input };
    if (input->load.format && input->load.log_format)
        return usage_error(command, "--format and --log-format cannot be combined");
    input->stdin_at = lseek(STDIN_FILENO, 0, SEEK_CUR);
    input->files = argv + optind;
    input->file_count = (size_t)(argc - optind);
    if (input->file_count == 0) {
        if (isatty(STDIN_FILENO))
            return usage_error(command, "no FILE to read");
        input->files = only_stdin;
        input->file_count = 1;
    }
    return EXIT_OK;
}

bool input_repeat(const struct input_options *input)
{
    struct stat about;
    bool is_stdin = false;
    for (size_t i = 0; i < input->file_count; i++) {
        const bool is_dash = strcmp(input->files[i], "-") == 0;
        is_stdin = is_stdin || is_dash;
        if ((is_dash ? fstat(STDIN_FILENO, &about) : stat(input->files[i], &about)) != 0 || !S_ISREG(about.st_mode))
            return false;
    }
    return !is_stdin || lseek(STDIN_FILENO, (off_t)input->stdin_at, SEEK_SET) >= 0;
}

int input_read(const struct input_options *input, struct loader *load, bool *do_fit)
{
    int code = EXIT_OK;
    for (size_t i = 0; i < input->file_count && code == EXIT_OK; i++)
        code = load_file(load, input->files[i]);
    *do_fit = code == EXIT_OK && load_finish(load);
    return code == EXIT_OK && !*do_fit && !input->load.is_lenient ? EXIT_FAILED : code;
}
