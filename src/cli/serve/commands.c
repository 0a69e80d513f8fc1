/* commands.c - the commands of weir serve. */
#include "cli/serve/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/serve/metrics.h"

#define WORDS_ANY RESP_WORDS_MAX

struct command {
    const char *name;
    size_t least, most; /* words, the name included */
    bool is_open;       /* it needs no password */
    void (*run)(struct client *client, const struct resp_command *command);
    const char *usage; /* the error about the number of words; NULL: that of Redis */
};

/* ---- Figures ---- */

/* Reply with the text that a function prints. */
static void reply_text(struct client *client, int (*print)(weir *limiter, char *text, size_t size))
{
    size_t len;
    char *text = metrics_text(client->server->limiter, print, &len);
    if (text)
        output_bulk(client_reply(client), (struct span){ text, len });
    else
        output_error(client_reply(client), "ERR out of memory");
    free(text);
}

static void run_stats(struct client *client, const struct resp_command *command)
{
    (void)command;
    reply_text(client, metrics_print);
}

static void run_top(struct client *client, const struct resp_command *command)
{
    static struct weir_top_key top[WEIR_MAX_TOP_KEYS]; /* one thread */
    int64_t count = 10;
    if (command->count > 1 && (!span_number(command->words[1], &count) || count < 1 || count > WEIR_MAX_TOP_KEYS)) {
        output_error(client_reply(client), "ERR the count must be a whole number from 1 to %d", WEIR_MAX_TOP_KEYS);
        return;
    }
    if (!client->server->counts_top_keys) {
        output_error(client_reply(client), "ERR WEIR.TOP needs the option --top-keys");
        return;
    }
    const int n = weir_top_keys_read(client->server->limiter, top, (size_t)count, false);
    struct output *output = client_reply(client);
    output_array(output, n > 0 ? (size_t)n : 0);
    for (int i = 0; i < n; i++) {
        const size_t len = top[i].key_len < WEIR_TOP_KEY_SIZE ? top[i].key_len : WEIR_TOP_KEY_SIZE;
        output_array(output, 4);
        output_bulk(output, span_of(weir_limit_name(top[i].limit)));
        output_bulk(output, (struct span){ (const char *)top[i].key, len });
        output_integer(output, (int64_t)top[i].denied);
        output_integer(output, (int64_t)top[i].error);
    }
}

/* ---- What Redis clients send besides ---- */

/* True if the words are equal. Takes the same time for every position at which they differ. */
static bool password_is(struct span word, const char *password)
{
    unsigned char differs = word.len != strlen(password);
    for (size_t i = 0; i < word.len; i++)
        differs |= (unsigned char)(word.data[i] ^ password[i % (strlen(password) + 1)]);
    return !differs;
}

/* Log in with the password in `word`. False after an error. */
static bool log_in(struct client *client, struct span user, struct span word)
{
    const char *password = client->server->password;
    if (!password)
        output_error(client_reply(client), "ERR AUTH called without any password configured for the server");
    else if (!span_is(user, "default") || !password_is(word, password))
        output_error(client_reply(client), "WRONGPASS invalid username-password pair or user is disabled.");
    else
        return client->is_authenticated = true;
    return false;
}

static void run_auth(struct client *client, const struct resp_command *command)
{
    const bool has_user = command->count == 3;
    if (log_in(client, has_user ? command->words[1] : span_of("default"), command->words[has_user ? 2 : 1]))
        output_simple(client_reply(client), "OK");
}

static void run_hello(struct client *client, const struct resp_command *command)
{
    int64_t version = client->version;
    if (command->count > 1 && (!span_number(command->words[1], &version) || version < 2 || version > 3)) {
        output_error(client_reply(client), "NOPROTO unsupported protocol version");
        return;
    }
    for (size_t i = 2; i < command->count;) {
        const size_t left = command->count - i;
        if (span_is_like(command->words[i], "AUTH") && left >= 3) {
            if (!log_in(client, command->words[i + 1], command->words[i + 2]))
                return;
            i += 3;
        } else if (span_is_like(command->words[i], "SETNAME") && left >= 2) {
            i += 2;
        } else {
            output_error(client_reply(client), "ERR Syntax error in HELLO");
            return;
        }
    }
    struct output *output = client_reply(client);
    if (!client->is_authenticated) {
        output_error(output, "NOAUTH HELLO must be called with the client already authenticated");
        return;
    }
    client->version = (int)version;
    output_map(output, 4, client->version);
    output_bulk(output, span_of("server")), output_bulk(output, span_of("weir"));
    output_bulk(output, span_of("version")), output_bulk(output, span_of(weir_version()));
    output_bulk(output, span_of("proto")), output_integer(output, version);
    output_bulk(output, span_of("mode")), output_bulk(output, span_of("standalone"));
}

static void run_ping(struct client *client, const struct resp_command *command)
{
    if (command->count > 1)
        output_bulk(client_reply(client), command->words[1]);
    else
        output_simple(client_reply(client), "PONG");
}

static void run_ok(struct client *client, const struct resp_command *command)
{
    (void)command;
    output_simple(client_reply(client), "OK");
}

static void run_quit(struct client *client, const struct resp_command *command)
{
    run_ok(client, command);
    client->is_ending = true;
}

/* Clients ask what commands there are and can do without an answer. */
static void run_command(struct client *client, const struct resp_command *command)
{
    (void)command;
    output_array(client_reply(client), 0);
}

static int print_info(weir *limiter, char *text, size_t size)
{
    struct weir_stats stats = { .size = sizeof stats };
    const int error = weir_stats_read(limiter, &stats);
    return error ? error
                 : snprintf(text, size,
                            "# Server\r\nweir_version:%s\r\n# Stats\r\nallowed:%llu\r\ndenied:%llu\r\n"
                            "fallbacks:%llu\r\nkeys:%lld\r\n",
                            weir_version(), (unsigned long long)stats.allowed, (unsigned long long)stats.denied,
                            (unsigned long long)stats.fallbacks, (long long)stats.keys);
}

static void run_info(struct client *client, const struct resp_command *command)
{
    (void)command;
    reply_text(client, print_info);
}

static const struct command commands[] = {
    { "CL.THROTTLE", 5, 6, false, run_throttle,
      THROTTLE_ERROR " Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]" },
    { "WEIR.TRY", 3, 4, false, run_try, NULL },
    { "WEIR.PEEK", 3, 4, false, run_peek, NULL },
    { "WEIR.TRYALL", 4, WORDS_ANY, false, run_try_all, NULL },
    { "WEIR.RESET", 3, 3, false, run_reset, NULL },
    { "WEIR.CHARGE", 3, 4, false, run_charge, NULL },
    { "WEIR.RESERVE", 3, 4, false, run_reserve, NULL },
    { "WEIR.SETTLE", 6, 6, false, run_settle, NULL },
    { "WEIR.RENEW", 5, 5, false, run_renew, NULL },
    { "WEIR.STATS", 1, 1, false, run_stats, NULL },
    { "WEIR.TOP", 1, 2, false, run_top, NULL },
    { "PING", 1, 2, false, run_ping, NULL },
    { "HELLO", 1, WORDS_ANY, true, run_hello, NULL },
    { "AUTH", 2, 3, true, run_auth, NULL },
    { "QUIT", 1, WORDS_ANY, true, run_quit, NULL },
    { "INFO", 1, WORDS_ANY, false, run_info, NULL },
    { "COMMAND", 1, WORDS_ANY, false, run_command, NULL },
    { "CLIENT", 2, WORDS_ANY, false, run_ok, NULL }, /* SETNAME, SETINFO: nothing here depends on them */
};

void command_run(struct client *client, const struct resp_command *command)
{
    const struct span name = command->words[0];
    char shown[64];
    client->server->commands++;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (!span_is_like(name, commands[i].name))
            continue;
        if (!client->is_authenticated && !commands[i].is_open)
            output_error(client_reply(client), "NOAUTH Authentication required.");
        else if (command->count >= commands[i].least && command->count <= commands[i].most)
            commands[i].run(client, command);
        else if (commands[i].usage)
            output_error(client_reply(client), "%s", commands[i].usage);
        else
            output_error(client_reply(client), "ERR wrong number of arguments for '%s' command", commands[i].name);
        return;
    }
    span_show(name, shown, sizeof shown);
    if (client->is_authenticated)
        output_error(client_reply(client), "ERR unknown command '%s'", shown);
    else
        output_error(client_reply(client), "NOAUTH Authentication required.");
}
