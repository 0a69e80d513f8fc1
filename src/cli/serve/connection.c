/* connection.c - the commands that a Redis client sends about its connection: login, protocol, name, database. */
#include "cli/serve/client.h"

#include <stdlib.h>
#include <string.h>

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

void run_auth(struct client *client, const struct resp_command *command)
{
    const bool has_user = command->count == 3;
    if (log_in(client, has_user ? command->words[1] : span_of("default"), command->words[has_user ? 2 : 1]))
        output_simple(client_reply(client), "OK");
}

/* Give the connection a name; an empty one takes it away. False after an error. */
static bool set_name(struct client *client, struct span name)
{
    if (name.len >= sizeof client->name) {
        output_error(client_reply(client), "ERR a client's name has at most %zu bytes", sizeof client->name - 1);
        return false;
    }
    for (size_t i = 0; i < name.len; i++)
        if (name.data[i] < '!' || name.data[i] > '~') {
            output_error(client_reply(client),
                         "ERR Client names cannot contain spaces, newlines or special characters.");
            return false;
        }
    memcpy(client->name, name.data, name.len);
    client->name[name.len] = '\0';
    return true;
}

void run_hello(struct client *client, const struct resp_command *command)
{
    int64_t version = client->version;
    struct span name = { NULL, 0 };
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
            name = command->words[i + 1];
            i += 2;
        } else {
            output_error(client_reply(client), "ERR Syntax error in HELLO");
            return;
        }
    }
    if (!client->is_authenticated) {
        output_error(client_reply(client), "NOAUTH HELLO must be called with the client already authenticated");
        return;
    }
    if (name.data && !set_name(client, name))
        return;
    client->version = (int)version;
    struct output *output = client_reply(client);
    output_map(output, 6, client->version);
    output_bulk(output, span_of("server")), output_bulk(output, span_of("weir"));
    output_bulk(output, span_of("version")), output_bulk(output, span_of(weir_version()));
    output_bulk(output, span_of("proto")), output_integer(output, version);
    output_bulk(output, span_of("id")), output_integer(output, client->id);
    output_bulk(output, span_of("mode")), output_bulk(output, span_of("standalone"));
    output_bulk(output, span_of("role")), output_bulk(output, span_of("master"));
}

void run_ping(struct client *client, const struct resp_command *command)
{
    if (command->count > 1)
        output_bulk(client_reply(client), command->words[1]);
    else
        output_simple(client_reply(client), "PONG");
}

void run_echo(struct client *client, const struct resp_command *command)
{
    output_bulk(client_reply(client), command->words[1]);
}

/* There is one database, 0, which clients select unasked. */
void run_select(struct client *client, const struct resp_command *command)
{
    int64_t number;
    if (!span_number(command->words[1], &number))
        output_error(client_reply(client), "ERR value is not an integer or out of range");
    else if (number != 0)
        output_error(client_reply(client), "ERR DB index is out of range");
    else
        output_simple(client_reply(client), "OK");
}

void run_quit(struct client *client, const struct resp_command *command)
{
    (void)command;
    output_simple(client_reply(client), "OK");
    client->is_ending = true;
}

/* True if a subcommand is `name` with that many words. */
static bool is_subcommand(const struct resp_command *command, const char *name, size_t words)
{
    return command->count == words && span_is_like(command->words[1], name);
}

void run_client(struct client *client, const struct resp_command *command)
{
    char shown[64];
    if (is_subcommand(command, "ID", 2)) {
        output_integer(client_reply(client), client->id);
    } else if (is_subcommand(command, "GETNAME", 2)) {
        if (client->name[0])
            output_bulk(client_reply(client), span_of(client->name));
        else
            output_null(client_reply(client), client->version);
    } else if (is_subcommand(command, "SETNAME", 3)) {
        if (set_name(client, command->words[2]))
            output_simple(client_reply(client), "OK");
    } else if (is_subcommand(command, "SETINFO", 4)) { /* of the client's library: nothing here shows it */
        if (span_is_like(command->words[2], "LIB-NAME") || span_is_like(command->words[2], "LIB-VER")) {
            output_simple(client_reply(client), "OK");
        } else {
            span_show(command->words[2], shown, sizeof shown);
            output_error(client_reply(client), "ERR Unrecognized option '%s'", shown);
        }
    } else if (is_subcommand(command, "NO-EVICT", 3) || is_subcommand(command, "NO-TOUCH", 3)) {
        /* True of each connection anyway: keys are not the client's to evict or to touch. */
        if (span_is_like(command->words[2], "ON") || span_is_like(command->words[2], "OFF"))
            output_simple(client_reply(client), "OK");
        else
            output_error(client_reply(client), "ERR syntax error");
    } else {
        span_show(command->words[1], shown, sizeof shown);
        output_error(client_reply(client), "ERR unknown subcommand or wrong number of arguments for '%s'", shown);
    }
}
