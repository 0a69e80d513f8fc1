/* options.c - the command line of weir-bench: see options.h. */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_KEYS UINT64_C(100000000)
#define MAX_SECONDS 60.0

static const char HELP[] =
    "usage: weir-bench [options]\n"
    "\n"
    "Measures local, distributed, hybrid and machine mode side by side. Distributed and hybrid mode run on a private\n"
    "redis-server. Takes less than 3 minutes.\n"
    "\n"
    "  --quick            short repetitions and few keys: shows that everything runs; the figures mean little\n"
    "  --modes LIST       some of local, distributed, hybrid, machine; default all\n"
    "  --redis URL        measure on this server instead: redis://host:port, or any other URL that weir accepts. All keys\n"
    "                     begin with weir-bench: and are removed. Measurements that would stop the server, or need its\n"
    "                     process, are left out\n"
    "  --instances N      processes that share a limit, 2 to 16; default 3\n"
    "  --log FILE         also replay a log in each mode: an access log (Common or Combined Log Format) or CSV; gzip\n"
    "                     works. CSV without a header row has the columns time_us,key,cost\n"
    "  --speed X          replay the log at X times its own pace, 0.001 to 1000000; default: so that it takes\n"
    "                     10 seconds\n"
    "  --policy POLICY    the policy for each client of the log; default\n"
    "                     '" OPTIONS_LOG_POLICY "'\n"
    "  --results DIR      write the results into this folder: results.html, table.txt and results.json\n"
    "  --json FILE        write the JSON to this file instead of results.json in that folder\n"
    "  --repeat N         repetitions of each measurement, 1 to 99; default 5\n"
    "  --seconds S        length of a repetition; default 0.08, or 0.1 for a single section\n"
    "\n"
    "For those who change weir:\n"
    "\n"
    "  --only LIST        some of these sections, or all:\n"
    "                     modes       the table above\n"
    "                     processes   one machine, four processes: machine mode beside local mode; alone, it adds a\n"
    "                                 million keys and the other algorithms\n"
    "                     server      what a decision costs Redis, by script and by decisions in a call\n"
    "                     callers     threads that wait for Redis, beside a pool of blocking connections\n"
    "                     one-caller  hybrid mode for a caller that asks again as soon as it is answered\n"
    "  --threads LIST     numbers of callers for the modes, such as 1,2,4; default 1,4,16,64\n"
    "  --keys N           the largest number of keys of a section, such as 10k or 1M; default 100k\n"
    "  --help             print this text\n";

__attribute__((format(printf, 1, 2), noreturn)) static void options_refuse(const char *format, ...)
{
    va_list arguments;
    fputs("weir-bench: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputs("\nTry weir-bench --help.\n", stderr);
    exit(2);
}

/* Read a whole number in [min, max]; `k` or `M` after it means thousands or millions. */
static uint64_t parse_number(const char *option, const char *text, uint64_t min, uint64_t max)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    uint64_t scale = *end == 'k' ? 1000 : *end == 'M' ? 1000000 : 1;
    end += scale > 1;
    if (!isdigit((unsigned char)*text) || *end || errno || number > max / scale || number * scale < min)
        options_refuse("%s: '%s' is not a whole number from %llu to %llu", option, text, (unsigned long long)min,
                       (unsigned long long)max);
    return number * scale;
}

static double parse_real(const char *option, const char *text, double min, double max)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end || !(number >= min && number <= max))
        options_refuse("%s: '%s' is not a number from %g to %.0f", option, text, min, max);
    return number;
}

/* Cut the next word off a list; NULL at its end. */
static char *options_next_word(char **list, const char *option)
{
    char *word = strsep(list, ",");
    if (word && !*word)
        options_refuse("%s: an empty word in the list", option);
    return word;
}

static void parse_threads(struct bench *bench, char *list)
{
    char *word;
    for (bench->threads_len = 0; (word = options_next_word(&list, "--threads")); bench->threads_len++) {
        if (bench->threads_len == LIST_MAX)
            options_refuse("--threads: more than %d numbers", LIST_MAX);
        bench->threads[bench->threads_len] = (int)parse_number("--threads", word, 1, MEASURE_MAX_THREADS);
    }
}

static void parse_modes(struct bench *bench, char *list)
{
    static const char *const names[] = {
        [WEIR_LOCAL] = "local", [WEIR_DISTRIBUTED] = "distributed", [WEIR_HYBRID] = "hybrid", [WEIR_MACHINE] = "machine"
    };
    memset(bench->modes, 0, sizeof bench->modes);
    for (char *word; (word = options_next_word(&list, "--modes"));) {
        int mode = 0;
        while (mode < 4 && strcmp(word, names[mode]) != 0)
            mode++;
        if (mode == 4)
            options_refuse("--modes: '%s' is none of local, distributed, hybrid, machine", word);
        bench->modes[mode] = true;
    }
}

/* Mark the sections of the list as chosen; return how many there are. */
static int parse_sections(struct options *options, char *list)
{
    int chosen_len = 0;
    bool is_all = strcmp(list, "all") == 0;
    for (int i = 0; i < options->sections_len; i++)
        options->is_chosen[i] = is_all;
    if (is_all)
        return options->sections_len;
    for (char *word; (word = options_next_word(&list, "--only"));) {
        int i = 0;
        while (i < options->sections_len && strcmp(word, options->sections[i].name) != 0)
            i++;
        if (i == options->sections_len)
            options_refuse("--only: '%s' is not a section", word);
        chosen_len += !options->is_chosen[i];
        options->is_chosen[i] = true;
    }
    return chosen_len;
}

static void options_check_policy(const char *text)
{
    struct weir_policy policy;
    char message[200];
    if (weir_policy_parse(text, &policy, message, sizeof message) != WEIR_OK)
        options_refuse("--policy: %s", message);
}

static void make_results(const char *folder)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        options_refuse("--results: cannot make the folder %s: %s", folder, strerror(errno));
}

enum {
    QUICK = 256,
    ONLY,
    MODES_LIST, /* this to POLICY only affect section modes */
    REDIS,
    INSTANCES,
    LOG,
    SPEED,
    POLICY,
    RESULTS,
    THREADS,
    KEYS,
    REPEAT,
    SECONDS,
    JSON,
    HELP_TEXT
};

static const struct option OPTIONS[] = {
    /* in the order of the codes */
    { "quick", no_argument, NULL, QUICK },
    { "only", required_argument, NULL, ONLY },
    { "modes", required_argument, NULL, MODES_LIST },
    { "redis", required_argument, NULL, REDIS },
    { "instances", required_argument, NULL, INSTANCES },
    { "log", required_argument, NULL, LOG },
    { "speed", required_argument, NULL, SPEED },
    { "policy", required_argument, NULL, POLICY },
    { "results", required_argument, NULL, RESULTS },
    { "threads", required_argument, NULL, THREADS },
    { "keys", required_argument, NULL, KEYS },
    { "repeat", required_argument, NULL, REPEAT },
    { "seconds", required_argument, NULL, SECONDS },
    { "json", required_argument, NULL, JSON },
    { "help", no_argument, NULL, HELP_TEXT },
    { NULL, 0, NULL, 0 },
};

struct given {               /* options that the sections need not know */
    int sections_len;        /* the number of sections that --only names */
    const char *modes_alone; /* the last option that only affects section modes */
};

static void parse_option(struct options *options, int option, char *value, struct given *given)
{
    struct bench *bench = &options->bench;
    switch (option) {
    case QUICK: bench->is_quick = true; break;
    case ONLY: given->sections_len = parse_sections(options, value); break;
    case MODES_LIST: parse_modes(bench, value); break;
    case REDIS: bench->redis_url = value; break;
    case INSTANCES: bench->instances = (int)parse_number("--instances", value, 2, BENCH_MAX_INSTANCES); break;
    case LOG: bench->log = value; break;
    case SPEED: bench->log_speed = parse_real("--speed", value, 0.001, 1e6); break;
    case POLICY: bench->log_policy = value; break;
    case RESULTS: bench->results = value; break;
    case THREADS: parse_threads(bench, value); break;
    case KEYS: bench->keys = parse_number("--keys", value, 1, MAX_KEYS); break;
    case REPEAT: bench->repeats = (int)parse_number("--repeat", value, 1, MEASURE_MAX_REPEATS); break;
    case SECONDS: bench->seconds = parse_real("--seconds", value, 0.001, MAX_SECONDS); break;
    case JSON: options->json = value; break;
    case HELP_TEXT: fputs(HELP, stdout); exit(fflush(stdout) == 0 ? 0 : 2);
    default: fputs("Try weir-bench --help.\n", stderr); exit(2); /* getopt has printed the error */
    }
    if (option >= MODES_LIST && option <= POLICY)
        given->modes_alone = OPTIONS[option - QUICK].name;
}

void options_parse(struct options *options, int argc, char **argv)
{
    struct given given = { 0 };
    struct bench *bench = &options->bench;
    int option;
    *bench = (struct bench){ .repeats = 5, .modes = { true, true, true, true }, .instances = 3 };
    while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1)
        parse_option(options, option, optarg, &given);
    if (optind < argc)
        options_refuse("'%s' is not an option", argv[optind]);
    bench->is_alone = given.sections_len == 1;
    for (int i = 0; given.sections_len == 0 && i < options->sections_len; i++)
        options->is_chosen[i] = options->sections[i].is_usual;
    if (given.modes_alone && !options->is_chosen[0])
        options_refuse("--%s goes with section modes, which --only leaves out", given.modes_alone);
    if ((bench->log_speed != 0 || bench->log_policy) && !bench->log)
        options_refuse("%s goes with --log FILE", bench->log_policy ? "--policy" : "--speed");
    bench->log_policy = bench->log_policy ? bench->log_policy : OPTIONS_LOG_POLICY;
    options_check_policy(bench->log_policy);
    if (bench->results)
        make_results(bench->results);
    if (bench->seconds == 0)
        bench->seconds = bench->is_quick ? 0.01 : bench->is_alone ? 0.1 : 0.08;
}
