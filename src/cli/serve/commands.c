/* commands.c - the commands of weir serve. */
#include "cli/serve/client.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/serve/metrics.h"

#define WORDS_ANY RESP_WORDS_MAX

enum command_flag {
    IS_OPEN = 1,      /* needs no password */
    IS_IMMEDIATE = 2, /* is carried out inside of a transaction, too, when it comes */
    IS_LARGE = 4      /* has a long reply: not in a transaction, whose replies may all have to wait */
};

struct command {
    const char *name;
    size_t least, most; /* words, the name included */
    unsigned flags;     /* of enum command_flag */
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

/* ---- What Redis clients ask of a server ---- */

/* True if the client asks for this section: INFO may name some. */
static bool wants_section(const struct resp_command *command, const char *section)
{
    bool wants = command->count == 1;
    for (size_t i = 1; i < command->count; i++)
        wants = wants || span_is_like(command->words[i], section) || span_is_like(command->words[i], "default") ||
                span_is_like(command->words[i], "all") || span_is_like(command->words[i], "everything");
    return wants;
}

/* Some clients use a server only if it tells role:master. */
static void run_info(struct client *client, const struct resp_command *command)
{
    struct weir_stats stats = { .size = sizeof stats };
    char figures[200];
    struct output text = { NULL, 0, 0, 0, false };
    const int error = weir_stats_read(client->server->limiter, &stats);
    if (error) {
        output_error(client_reply(client), "ERR %s", weir_strerror(error));
        return;
    }
    if (wants_section(command, "server"))
        output_text(&text, "# Server\r\nweir_version:"), output_text(&text, weir_version()),
            output_text(&text, "\r\nredis_mode:standalone\r\n");
    if (wants_section(command, "replication"))
        output_text(&text, "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n");
    snprintf(figures, sizeof figures, "# Stats\r\nallowed:%llu\r\ndenied:%llu\r\nfallbacks:%llu\r\nkeys:%lld\r\n",
             (unsigned long long)stats.allowed, (unsigned long long)stats.denied, (unsigned long long)stats.fallbacks,
             (long long)stats.keys);
    if (wants_section(command, "stats"))
        output_text(&text, figures);
    if (text.failed)
        output_error(client_reply(client), "ERR out of memory");
    else
        output_bulk(client_reply(client), (struct span){ text.end ? text.data : "", text.end });
    output_free(&text);
}

static void run_command(struct client *client, const struct resp_command *command);
static void run_multi(struct client *client, const struct resp_command *command);
static void run_exec(struct client *client, const struct resp_command *command);
static void run_discard(struct client *client, const struct resp_command *command);
static void run_watch(struct client *client, const struct resp_command *command);
static void run_unwatch(struct client *client, const struct resp_command *command);

static const struct command commands[] = {
    { "CL.THROTTLE", 5, 6, 0, run_throttle,
      THROTTLE_ERROR " Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]" },
    { "WEIR.TRY", 3, 4, 0, run_try, NULL },
    { "WEIR.PEEK", 3, 4, 0, run_peek, NULL },
    { "WEIR.TRYALL", 4, WORDS_ANY, 0, run_try_all, NULL },
    { "WEIR.RESET", 3, 3, 0, run_reset, NULL },
    { "WEIR.CHARGE", 3, 4, 0, run_charge, NULL },
    { "WEIR.RESERVE", 3, 4, 0, run_reserve, NULL },
    { "WEIR.SETTLE", 5, 5, 0, run_settle, NULL },
    { "WEIR.RELEASE", 4, 4, 0, run_release, NULL },
    { "WEIR.RENEW", 4, 4, 0, run_renew, NULL },
    { "WEIR.STATS", 1, 1, IS_LARGE, run_stats, NULL },
    { "WEIR.TOP", 1, 2, IS_LARGE, run_top, NULL },
    { "PING", 1, 2, 0, run_ping, NULL },
    { "ECHO", 2, 2, 0, run_echo, NULL },
    { "SELECT", 2, 2, 0, run_select, NULL },
    { "HELLO", 1, WORDS_ANY, IS_OPEN, run_hello, NULL },
    { "AUTH", 2, 3, IS_OPEN, run_auth, NULL },
    { "QUIT", 1, WORDS_ANY, IS_OPEN | IS_IMMEDIATE, run_quit, NULL },
    { "INFO", 1, WORDS_ANY, IS_LARGE, run_info, NULL },
    { "COMMAND", 1, WORDS_ANY, IS_LARGE, run_command, NULL },
    { "CLIENT", 2, WORDS_ANY, 0, run_client, NULL },
    { "MULTI", 1, 1, IS_IMMEDIATE, run_multi, NULL },
    { "EXEC", 1, 1, IS_IMMEDIATE, run_exec, NULL },
    { "DISCARD", 1, 1, IS_IMMEDIATE, run_discard, NULL },
    { "WATCH", 2, WORDS_ANY, IS_IMMEDIATE, run_watch, NULL },
    { "UNWATCH", 1, 1, 0, run_unwatch, NULL },
};

#define COMMANDS (sizeof commands / sizeof *commands)

/* Return the command of that name, or NULL. */
static const struct command *command_find(struct span name)
{
    for (size_t i = 0; i < COMMANDS; i++)
        if (span_is_like(name, commands[i].name))
            return &commands[i];
    return NULL;
}

/* Put what COMMAND says of a command: name, arity, flags, and the places of keys, of which Redis would know. */
static void put_command(struct output *output, const struct command *entry, int version)
{
    if (!entry) {
        output_null(output, version);
        return;
    }
    char name[32];
    size_t len = strlen(entry->name);
    for (size_t i = 0; i < len; i++)
        name[i] = (char)tolower((unsigned char)entry->name[i]);
    output_array(output, 6);
    output_bulk(output, (struct span){ name, len });
    output_integer(output, entry->least == entry->most ? (int64_t)entry->least : -(int64_t)entry->least);
    output_array(output, 0);
    for (int i = 0; i < 3; i++)
        output_integer(output, 0);
}

/* COMMAND, and its subcommands COUNT, INFO, LIST and DOCS, of which the last has no text. */
static void run_command(struct client *client, const struct resp_command *command)
{
    struct output *output = client_reply(client);
    const struct span sub = command->count > 1 ? command->words[1] : span_of("");
    if (span_is_like(sub, "COUNT") && command->count == 2) {
        output_integer(output, COMMANDS);
    } else if (span_is_like(sub, "DOCS")) {
        output_map(output, 0, client->version);
    } else if (command->count == 1 || (span_is_like(sub, "INFO") && command->count == 2)) {
        output_array(output, COMMANDS);
        for (size_t i = 0; i < COMMANDS; i++)
            put_command(output, &commands[i], client->version);
    } else if (span_is_like(sub, "INFO")) {
        output_array(output, command->count - 2);
        for (size_t i = 2; i < command->count; i++)
            put_command(output, command_find(command->words[i]), client->version);
    } else if (span_is_like(sub, "LIST") && command->count == 2) {
        output_array(output, COMMANDS);
        for (size_t i = 0; i < COMMANDS; i++)
            output_bulk(output, span_of(commands[i].name));
    } else {
        char shown[64];
        span_show(sub, shown, sizeof shown);
        output_error(output, "ERR unknown subcommand or wrong number of arguments for '%s'", shown);
    }
}

/* ---- Transactions ----
 *
 * MULTI begins one; commands queue until EXEC carries them out in order, with one reply for all, or DISCARD drops them.
 * Other clients' commands run between them only where one of them waits for Redis. */

static void transaction_end(struct client *client)
{
    output_free(&client->queued);
    client->queued_count = 0;
    client->is_queueing = client->is_spoiled = false;
}

static void run_multi(struct client *client, const struct resp_command *command)
{
    (void)command;
    if (client->is_queueing) {
        output_error(client_reply(client), "ERR MULTI calls can not be nested");
        return;
    }
    client->is_queueing = true;
    output_simple(client_reply(client), "OK");
}

static void run_discard(struct client *client, const struct resp_command *command)
{
    (void)command;
    if (!client->is_queueing) {
        output_error(client_reply(client), "ERR DISCARD without MULTI");
        return;
    }
    transaction_end(client);
    output_simple(client_reply(client), "OK");
}

static void run_exec(struct client *client, const struct resp_command *command)
{
    static struct resp_command next; /* one thread, and no EXEC inside of EXEC */
    (void)command;
    if (!client->is_queueing) {
        output_error(client_reply(client), "ERR EXEC without MULTI");
        return;
    }
    if (client->is_spoiled) {
        transaction_end(client);
        output_error(client_reply(client), "EXECABORT Transaction discarded because of previous errors.");
        return;
    }
    struct output queued = client->queued;
    output_array(client_reply(client), client->queued_count);
    client->queued = (struct output){ NULL, 0, 0, 0, false };
    transaction_end(client);
    for (size_t at = 0; at < queued.end; at += next.bytes) {
        resp_read((struct span){ queued.data + at, queued.end - at }, &next);
        command_find(next.words[0])->run(client, &next);
        client_count_reply(client);
    }
    output_free(&queued);
}

/* WATCH watches nothing: a client cannot read a key's state and write it back, so EXEC has no write to refuse. */
static void run_watch(struct client *client, const struct resp_command *command)
{
    (void)command;
    if (client->is_queueing)
        output_error(client_reply(client), "ERR WATCH inside MULTI is not allowed");
    else
        output_simple(client_reply(client), "OK");
}

static void run_unwatch(struct client *client, const struct resp_command *command)
{
    (void)command;
    output_simple(client_reply(client), "OK");
}

/* Keep a command until EXEC. */
static void command_queue(struct client *client, const struct command *entry, const struct resp_command *command)
{
    struct output *queued = &client->queued;
    if (entry->flags & IS_LARGE) {
        client->is_spoiled = true;
        output_error(client_reply(client), "ERR %s is not allowed in a transaction", entry->name);
        return;
    }
    if (client->queued_count == CLIENT_WAITING_MAX || queued->end >= CLIENT_WAITING_HIGH) {
        client->is_spoiled = true;
        output_error(client_reply(client), "ERR a transaction has at most %d commands and %d KiB", CLIENT_WAITING_MAX,
                     CLIENT_WAITING_HIGH >> 10);
        return;
    }
    output_array(queued, command->count);
    for (size_t i = 0; i < command->count; i++)
        output_bulk(queued, command->words[i]);
    client->output.failed = client->output.failed || queued->failed;
    client->queued_count++;
    output_simple(client_reply(client), "QUEUED");
}

/* ---- Carrying out ---- */

bool command_is_foreign(const struct resp_command *command)
{
    const struct span first = command->words[0], last = command->words[command->count - 1];
    if (span_is_like(first, "POST") || span_is_like(first, "Host:"))
        return true;
    bool is_foreign = last.len > 5 && span_is_like(span_slice(last, 0, 5), "HTTP/");
    for (size_t i = 0; i < first.len; i++)
        is_foreign = is_foreign || (!isalnum((unsigned char)first.data[i]) && first.data[i] != '.');
    return command->is_inline && is_foreign;
}

void command_run(struct client *client, const struct resp_command *command)
{
    const struct command *entry = command_find(command->words[0]);
    if (command_is_foreign(command)) {
        struct server *server = client->server;
        if (server->http_said_us == 0 || server->now_us - server->http_said_us >= WEIR_MINUTE) {
            complain(
                "a client does not speak Redis's protocol, for example HTTP: its connection is closed. A web page may have "
                "tried to give commands; --password-file refuses it altogether");
            server->http_said_us = server->now_us;
        }
        client->is_ending = true;
        return;
    }
    client->server->commands++;
    if (!client->is_authenticated && !(entry && entry->flags & IS_OPEN)) {
        output_error(client_reply(client), "NOAUTH Authentication required.");
    } else if (!entry) {
        char shown[64];
        span_show(command->words[0], shown, sizeof shown);
        output_error(client_reply(client), "ERR unknown command '%s'", shown);
        client->is_spoiled = client->is_queueing;
    } else if (command->count < entry->least || command->count > entry->most) {
        if (entry->usage)
            output_error(client_reply(client), "%s", entry->usage);
        else
            output_error(client_reply(client), "ERR wrong number of arguments for '%s' command", entry->name);
        client->is_spoiled = client->is_queueing;
    } else if (client->is_queueing && !(entry->flags & IS_IMMEDIATE)) {
        command_queue(client, entry, command);
    } else {
        entry->run(client, command);
    }
}
