/* settings.c - the options of weir serve, from the command line and from a file.
 *
 * A line of the file is an option's name without its dashes, and its value. The file comes before the command line,
 * whose options take its place; addresses add up.
 */
#include "cli/serve/settings.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define DEFAULT_LISTEN "127.0.0.1:7379"
#define DEFAULT_CLIENTS 10000
#define CLIENTS_MAX 1000000
#define IDLE_MAX 31536000 /* a year, in seconds */
#define CONFIG_MAX 65536  /* bytes of the file */

const char SERVE_HELP[] =
    "Usage: weir serve [-f FILE] [--listen HOST:PORT] [--unix PATH] [OPTION]...\n"
    "\n"
    "Serve limits to programs in any language that has a Redis client. Commands:\n"
    "\n"
    "  CL.THROTTLE key max_burst count period [quantity]   as redis-cell\n"
    "  WEIR.TRY limit key [cost]       take permits of a limit of FILE\n"
    "  WEIR.TRYALL limit key cost ...  of several, all or nothing\n"
    "  WEIR.PEEK limit key [cost]      look without taking\n"
    "  WEIR.RESET limit key            make the key fresh\n"
    "  WEIR.CHARGE limit key [cost]    charge what has been used already\n"
    "  WEIR.RESERVE limit key [cost]   take permits that WEIR.SETTLE corrects\n"
    "  WEIR.SETTLE limit key reservation actual\n"
    "  WEIR.RELEASE limit key reservation\n"
    "  WEIR.RENEW limit key reservation\n"
    "  WEIR.STATS                      counters in the Prometheus text format\n"
    "  WEIR.TOP [count]                the keys that are denied most\n"
    "\n"
    "      --config FILE      more options, one a line: a name without its dashes, and the value. SIGHUP reads the file\n"
    "                         again for the password, TLS, --max-clients and --idle-timeout\n"
    "  -f, --policies FILE    the limits; read again whenever the file changes\n"
    "      --listen HOST:PORT where to listen (default: " DEFAULT_LISTEN "); may be repeated. Port 0 means any.\n"
    "                         An address that other machines reach needs --password-file\n"
    "      --unix PATH        listen on a Unix socket; may be repeated\n"
    "      --password-file FILE\n"
    "                         clients must log in (AUTH) with the first line of FILE\n"
    "      --tls-cert FILE    clients on TCP must speak TLS: the server's certificate, and those above it, in PEM\n"
    "      --tls-key FILE     its private key\n"
    "      --tls-ca FILE      clients must have a certificate that one of these authorities has signed\n"
    "      --max-clients N    connections at a time (default: 10000)\n"
    "      --idle-timeout S   disconnect clients that are silent for S seconds; 0: never (default)\n"
    "      --max-keys N       keys in memory (default: 1000000)\n"
    "      --address-bits V4/V6\n"
    "                         a key that is an address counts by its first bits, as in 32/64: IPv6 clients by /64\n"
    "      --top-keys N       count the N keys that are denied most, for WEIR.TOP: 1 to 1024 (default: none)\n"
    "      --control PATH     a Unix socket for weir stats, weir top, weir watch, weir peek, weir reset and weir reload\n"
    "      --metrics HOST:PORT\n"
    "                         serve the counters to Prometheus servers, by HTTP at /metrics\n"
    "      --on-failure HOW   local (default), open, closed or error: the answer while Redis is away\n" STORE_ANY_MODE_HELP
    "      --redis URL        where Redis is, as for weir try\n"
    "      --redis-password-file FILE\n"
    "                         a file whose first line is the password; without it, the environment variable\n"
    "                         WEIR_REDIS_PASSWORD\n" STORE_TLS_HELP "      --redis-prefix PREFIX\n"
    "                         the beginning of all keys in Redis (default: weir:)\n"
    "      --redis-replicas N how many replicas must acknowledge a charge, 0 to 16 (default: 0)\n"
    "      --instances N      how many servers share the limits (default: 1)\n"
    "      --rank N           this server's place among them, 0 to their number less 1 (default: 0)\n"
    "      --lease-life TIME  hybrid: no lease lives longer\n"
    "      --lease-excess N   hybrid: leases may exceed a token bucket by N percent of its burst (default: 5)\n"
    "      --lease-max N      hybrid: the most permits of a key that a server leases in advance\n"
    "      --strict           hybrid: never exceed a limit\n"
    "      --percent-seed N   chooses the keys of limits with percent=; the same in all servers (default: random)\n"
    "  -h, --help             print this text\n"
    "\n"
    "Exit status: 0 ended by SIGTERM or SIGINT, 1 failed, 2 wrong usage.\n";

enum option_code {
    LISTEN = 256,
    UNIX,
    PASSWORD,
    MAX_CLIENTS,
    MAX_KEYS,
    ADDRESS_BITS,
    TOP_KEYS,
    CONTROL,
    METRICS,
    ON_FAILURE,
    INSTANCES,
    RANK,
    TLS_CERT,
    TLS_KEY,
    TLS_CA,
    CONFIG,
    IDLE_TIMEOUT
};

/* ---- Options ---- */

static int add_address(struct settings *settings, const char *text, enum address_kind kind)
{
    if (settings->address_count == LISTEN_MAX)
        return usage_error("serve", "at most %d addresses can be listened on", LISTEN_MAX);
    settings->addresses[settings->address_count++] = (struct address){ text, kind };
    return EXIT_OK;
}

static int read_range(const char *name, const char *value, int64_t least, int64_t most, int64_t *out)
{
    if (span_number(span_of(value), out) && *out >= least && *out <= most)
        return EXIT_OK;
    return usage_error("serve", "%s '%s' is not a whole number from %lld to %lld", name, value, (long long)least,
                       (long long)most);
}

static int read_number(const char *name, const char *value, int64_t most, int64_t *out)
{
    return read_range(name, value, 1, most, out);
}

/* Read "24/64". */
static int read_address_bits(const char *value, struct address_bits *out)
{
    const struct span text = span_of(value);
    const size_t slash = span_find(text, '/');
    int64_t ipv4, ipv6;
    if (slash == text.len || !span_number(span_slice(text, 0, slash), &ipv4) || ipv4 < 1 || ipv4 > 32 ||
        !span_number(span_slice(text, slash + 1, text.len), &ipv6) || ipv6 < 1 || ipv6 > 128)
        return usage_error("serve",
                           "--address-bits '%s' is not the bits of IPv4, 1 to 32, and of IPv6, 1 to 128, as in "
                           "32/64",
                           value);
    *out = (struct address_bits){ (int)ipv4, (int)ipv6 };
    return EXIT_OK;
}

static int settings_read_option(struct settings *settings, int code, const char *value)
{
    switch (code) {
    case 'f': settings->store.options.policy_file = value; return EXIT_OK;
    case LISTEN: return add_address(settings, value, ADDRESS_TCP);
    case UNIX: return add_address(settings, value, ADDRESS_UNIX);
    case METRICS: return add_address(settings, value, ADDRESS_METRICS);
    case PASSWORD: settings->password_file = value; return EXIT_OK;
    case TLS_CERT: settings->tls_cert = value; return EXIT_OK;
    case TLS_KEY: settings->tls_key = value; return EXIT_OK;
    case CONFIG: settings->config = value; return EXIT_OK;
    case TLS_CA: settings->tls_ca = value; return EXIT_OK;
    case MAX_CLIENTS: return read_number("--max-clients", value, CLIENTS_MAX, &settings->max_clients);
    case IDLE_TIMEOUT: return read_range("--idle-timeout", value, 0, IDLE_MAX, &settings->idle_s);
    case MAX_KEYS: return store_set(&settings->store, "serve", "max-keys", value);
    case ADDRESS_BITS: return read_address_bits(value, &settings->bits);
    case CONTROL: settings->store.options.control_socket = value; return EXIT_OK;
    case TOP_KEYS: return store_set(&settings->store, "serve", "top-keys", value);
    case INSTANCES: return store_set(&settings->store, "serve", "instances", value);
    case RANK: return store_set(&settings->store, "serve", "rank", value);
    case ON_FAILURE: return store_set(&settings->store, "serve", "on-failure", value);
    default: return store_read_option(&settings->store, "serve", code, value);
    }
}

static const struct option options[] = {
    { "config", required_argument, NULL, CONFIG },
    { "policies", required_argument, NULL, 'f' },
    { "listen", required_argument, NULL, LISTEN },
    { "unix", required_argument, NULL, UNIX },
    { "password-file", required_argument, NULL, PASSWORD },
    { "tls-cert", required_argument, NULL, TLS_CERT },
    { "tls-key", required_argument, NULL, TLS_KEY },
    { "tls-ca", required_argument, NULL, TLS_CA },
    { "max-clients", required_argument, NULL, MAX_CLIENTS },
    { "idle-timeout", required_argument, NULL, IDLE_TIMEOUT },
    { "max-keys", required_argument, NULL, MAX_KEYS },
    { "address-bits", required_argument, NULL, ADDRESS_BITS },
    { "top-keys", required_argument, NULL, TOP_KEYS },
    { "control", required_argument, NULL, CONTROL },
    { "metrics", required_argument, NULL, METRICS },
    { "on-failure", required_argument, NULL, ON_FAILURE },
    { "mode", required_argument, NULL, STORE_ANY_MODE },
    { "shared", required_argument, NULL, STORE_SHARED },
    STORE_REDIS_OPTIONS,
    { "redis-replicas", required_argument, NULL, STORE_REPLICAS },
    { "instances", required_argument, NULL, INSTANCES },
    { "rank", required_argument, NULL, RANK },
    { "lease-life", required_argument, NULL, STORE_LEASE_LIFE },
    { "lease-excess", required_argument, NULL, STORE_LEASE_EXCESS },
    { "lease-max", required_argument, NULL, STORE_LEASE_MAX },
    { "strict", no_argument, NULL, STORE_STRICT },
    STORE_PERCENT_SEED_OPTION,
    { "help", no_argument, NULL, 'h' },
    { NULL, 0, NULL, 0 },
};

/* ---- The command line ---- */

static int read_command_line(struct settings *settings, int argc, char **argv, bool *wants_help)
{
    int code;
    opterr = 0;
    optind = 0; /* glibc then begins anew */
    while ((code = getopt_long(argc, argv, ":f:h", options, NULL)) != -1) {
        if (code == '?' || code == ':')
            return option_error("serve", code, argv);
        const int result = code == 'h' ? EXIT_OK : settings_read_option(settings, code, optarg);
        *wants_help = *wants_help || code == 'h';
        if (result != EXIT_OK)
            return result;
    }
    if (optind < argc)
        return usage_error("serve", "unexpected argument '%s'", argv[optind]);
    return EXIT_OK;
}

/* ---- The file ---- */

static int read_text(struct settings *settings)
{
    FILE *file = fopen(settings->config, "re");
    size_t len = 0;
    settings->text = file ? calloc(1, CONFIG_MAX + 1) : NULL;
    if (settings->text)
        len = fread(settings->text, 1, CONFIG_MAX + 1, file);
    const bool failed = !file || !settings->text || ferror(file);
    const int error = errno;
    if (file)
        fclose(file);
    if (failed) {
        complain("%s: %s", settings->config, strerror(error));
        return EXIT_FAILED;
    }
    if (len > CONFIG_MAX || memchr(settings->text, 0, len)) {
        complain("%s: the file must be text of at most %d bytes", settings->config, CONFIG_MAX);
        return EXIT_FAILED;
    }
    return EXIT_OK;
}

/* Take a line of the file, without its end. */
static int read_line(struct settings *settings, char *line, size_t number)
{
    static const char blanks[] = " \t\r";
    char *name = line + strspn(line, blanks), *value = name + strcspn(name, blanks);
    if (*name == '\0' || *name == '#')
        return EXIT_OK;
    if (*value)
        *value++ = '\0';
    value += strspn(value, blanks);
    for (size_t len = strlen(value); len > 0 && strchr(blanks, value[len - 1]); len--)
        value[len - 1] = '\0';
    const struct option *option = options;
    while (option->name && strcmp(option->name, name) != 0)
        option++;
    const bool is_known = option->name && option->val != 'h' && option->val != CONFIG;
    if (is_known && (*value != '\0') == (option->has_arg == required_argument) &&
        settings_read_option(settings, option->val, value) == EXIT_OK)
        return EXIT_OK;
    if (!is_known)
        complain("%s:%zu: there is no option '%s' here", settings->config, number, span_shown(span_of(name)).text);
    else if ((*value != '\0') != (option->has_arg == required_argument))
        complain("%s:%zu: option '%s' %s", settings->config, number, name, *value ? "takes no value" : "needs a value");
    else
        complain("%s:%zu: this line cannot be used", settings->config, number);
    return EXIT_FAILED;
}

static int read_file(struct settings *settings)
{
    int result = read_text(settings);
    size_t number = 0;
    for (char *line = settings->text, *next; result == EXIT_OK && line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        result = read_line(settings, line, ++number);
    }
    return result;
}

/* ---- Both ---- */

static int settings_check(struct settings *settings)
{
    bool has_address = false;
    for (size_t i = 0; i < settings->address_count; i++)
        has_address = has_address || settings->addresses[i].kind != ADDRESS_METRICS;
    if (!settings->tls_cert != !settings->tls_key || (settings->tls_ca && !settings->tls_cert))
        return usage_error("serve", "--tls-cert and --tls-key need each other, and --tls-ca needs both");
    const struct weir_options *own = &settings->store.options;
    if (own->rank >= (own->instances ? own->instances : 1))
        return usage_error("serve", "--rank %lld must be less than --instances", (long long)own->rank);
    if (!has_address && add_address(settings, DEFAULT_LISTEN, ADDRESS_TCP) != EXIT_OK)
        return EXIT_ERROR;
    return store_check(&settings->store, "serve");
}

int settings_read(struct settings *out, int argc, char **argv, bool *wants_help)
{
    *out = (struct settings){ .max_clients = DEFAULT_CLIENTS };
    int result = read_command_line(out, argc, argv, wants_help);
    if (result == EXIT_OK && out->config && !*wants_help) { /* again, behind the file */
        *out = (struct settings){ .max_clients = DEFAULT_CLIENTS, .config = out->config };
        result = read_file(out);
        if (result == EXIT_OK)
            result = read_command_line(out, argc, argv, wants_help);
    }
    return result != EXIT_OK || *wants_help ? result : settings_check(out);
}

void settings_free(struct settings *settings)
{
    free(settings->text);
    settings->text = NULL;
}

static bool is_same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

void settings_compare(const struct settings *running, const struct settings *read)
{
    const struct weir_options *a = &running->store.options, *b = &read->store.options;
    bool is_equal =
        running->bits.ipv4 == read->bits.ipv4 && running->bits.ipv6 == read->bits.ipv6 &&
        running->address_count == read->address_count && !running->tls_cert == !read->tls_cert &&
        is_same(a->policy_file, b->policy_file) && is_same(a->control_socket, b->control_socket) &&
        is_same(a->shared, b->shared) && is_same(a->redis_url, b->redis_url) &&
        is_same(a->redis_password_file, b->redis_password_file) && is_same(a->redis_ca_file, b->redis_ca_file) &&
        is_same(a->redis_cert_file, b->redis_cert_file) && is_same(a->redis_key_file, b->redis_key_file) &&
        is_same(a->redis_prefix, b->redis_prefix) && a->mode == b->mode && a->max_keys == b->max_keys &&
        a->top_keys == b->top_keys && a->on_failure == b->on_failure && a->redis_replicas == b->redis_replicas &&
        a->instances == b->instances && a->rank == b->rank && a->lease_life_us == b->lease_life_us &&
        a->lease_excess == b->lease_excess && a->lease_max == b->lease_max && a->strict == b->strict &&
        a->percent_seed == b->percent_seed;
    for (size_t i = 0; is_equal && i < running->address_count; i++)
        is_equal = is_same(running->addresses[i].text, read->addresses[i].text) &&
                   running->addresses[i].kind == read->addresses[i].kind;
    if (!is_equal)
        complain(
            "%s: only password-file, tls-cert, tls-key, tls-ca, max-clients and idle-timeout change immediately; restart "
            "the server for the others",
            read->config);
}
