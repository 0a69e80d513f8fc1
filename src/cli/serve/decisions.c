/* decisions.c - the commands of weir serve that ask a limit. */
#include "cli/serve/client.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Decisions ---- */

/* Return the seconds that redis-cell gives for a time: whole ones, and one more for a rest of a millisecond or more. */
static int64_t throttle_seconds(int64_t us)
{
    return us / WEIR_SECOND + (us % WEIR_SECOND >= 1000);
}

#define DECISION_INTEGERS 8

static void put_integers(struct output *output, const struct weir_decision *decision)
{
    output_integer(output, decision->allowed);
    output_integer(output, decision->limit);
    output_integer(output, decision->remaining);
    output_integer(output, decision->retry_after_us);
    output_integer(output, decision->reset_after_us);
    output_integer(output, decision->delay_us);
    output_integer(output, decision->would_deny);
    output_integer(output, decision->bound_by);
}

static void put_decision(struct output *output, const struct weir_decision *decision, enum answer answer)
{
    if (answer != ANSWER_TRY) {
        const bool limited = !decision->allowed && answer != ANSWER_LOOK;
        const bool waits = limited && decision->retry_after_us != WEIR_NEVER;
        output_array(output, 5);
        output_integer(output, limited);
        output_integer(output, decision->limit);
        output_integer(output, decision->remaining);
        output_integer(output, waits ? throttle_seconds(decision->retry_after_us) : -1);
        output_integer(output, throttle_seconds(decision->reset_after_us));
        return;
    }
    output_array(output, DECISION_INTEGERS);
    put_integers(output, decision);
}

/* A reservation is one text for clients: its permits and their time in decimal, the slot's id in hexadecimal and, if the
 * policy has a candidate, when that charged. */
#define RESERVATION_FORMAT "%" PRId64 ":%" PRId64 ":%" PRIx64
#define RESERVATION_SIZE 88

static int reservation_print(const struct weir_reservation *reservation, char text[RESERVATION_SIZE])
{
    const int len = snprintf(text, RESERVATION_SIZE, RESERVATION_FORMAT, reservation->permits, reservation->at_us,
                             reservation->id);
    const size_t rest = RESERVATION_SIZE - (size_t)len;
    return reservation->candidate_us == 0 ? len
                                          : len + snprintf(text + len, rest, ":c%" PRId64, reservation->candidate_us);
}

static void put_reservation(struct output *output, const struct weir_reservation *reservation)
{
    char text[RESERVATION_SIZE];
    const int len = reservation_print(reservation, text);
    output_bulk(output, (struct span){ text, (size_t)len });
}

/* Read that text. False: it is none that weir wrote. */
static bool reservation_read(struct span word, struct weir_reservation *out)
{
    char text[RESERVATION_SIZE], again[RESERVATION_SIZE];
    if (word.len >= sizeof text)
        return false;
    memcpy(text, word.data, word.len);
    text[word.len] = '\0';
    out->candidate_us = 0;
    if (sscanf(text, "%" SCNd64 ":%" SCNd64 ":%" SCNx64 ":c%" SCNd64, &out->permits, &out->at_us, &out->id,
               &out->candidate_us) < 3)
        return false;
    reservation_print(out, again);
    return strcmp(text, again) == 0 && out->permits >= -1 && out->permits <= WEIR_MAX_PERMITS &&
           out->at_us >= -WEIR_MAX_TIME_US && out->at_us <= WEIR_MAX_TIME_US && out->candidate_us >= -1 &&
           out->candidate_us <= WEIR_MAX_TIME_US;
}

/* Put the answer to an op. */
static void put_op(struct output *output, int status, const struct weir_op *op, enum answer answer)
{
    if (status != WEIR_OK) {
        output_error(output, "%s %s", status == WEIR_ETIME ? "TIMEOUT" : "ERR", weir_strerror(status));
    } else if (op->verb == WEIR_OP_RESERVE || op->verb == WEIR_OP_RENEW) {
        output_array(output, DECISION_INTEGERS + 1);
        put_integers(output, &op->decision);
        put_reservation(output, &op->reservation);
    } else if (op->verb == WEIR_OP_SETTLE || op->verb == WEIR_OP_CHARGE || op->verb == WEIR_OP_RESET) {
        output_simple(output, "OK");
    } else {
        put_decision(output, &op->decision, answer);
    }
}

/* Complete a request that waited. Runs in weir_dispatch(). */
static void request_done(struct weir_op *op, int status)
{
    struct waiting *waiting = op->user;
    struct client *client = waiting->client;
    put_op(&waiting->text, status, op, waiting->answer);
    if (waiting->set)
        waiting->set->waiting--;
    waiting->is_ready = true;
    client_is_due(client);
}

static void waiting_append(struct client *client, struct waiting *waiting)
{
    if (client->last)
        client->last->next = waiting;
    else
        client->first = waiting;
    client->last = waiting;
    client->waiting_count++;
    client->waiting_bytes += waiting->bytes;
}

struct output *client_reply(struct client *client)
{
    if (!client->first)
        return &client->output;
    struct waiting *waiting = calloc(1, sizeof *waiting);
    if (!waiting) {
        client->output.failed = true;
        return &client->output;
    }
    waiting->client = client;
    waiting->is_ready = true;
    waiting_append(client, waiting);
    return &waiting->text;
}

void client_collect(struct client *client)
{
    while (client->first && client->first->is_ready) {
        struct waiting *waiting = client->first;
        client->first = waiting->next;
        if (!client->first)
            client->last = NULL;
        client->waiting_count--;
        client->waiting_bytes -= waiting->bytes;
        if (client->watch.fd >= 0)
            output_put(&client->output, waiting->text.data + waiting->text.begin,
                       waiting->text.end - waiting->text.begin);
        client->output.failed = client->output.failed || waiting->text.failed;
        output_free(&waiting->text);
        free(waiting);
    }
}

/* Return a reply that may wait, with copies of the op, its requests and their keys; NULL: no memory. */
static struct waiting *waiting_make(const struct weir_op *op)
{
    size_t bytes = op->n * sizeof *op->requests + (op->n == 0 ? op->request.key.len : 0);
    for (size_t i = 0; i < op->n; i++)
        bytes += op->requests[i].key.len;
    struct waiting *waiting = calloc(1, sizeof *waiting + bytes);
    if (!waiting)
        return NULL;
    char *key = (char *)(waiting->requests + op->n);
    waiting->bytes = bytes;
    waiting->op = *op;
    waiting->op.requests = waiting->requests;
    for (size_t i = 0; i < op->n; i++) {
        waiting->requests[i] = op->requests[i];
        waiting->requests[i].key.data = memcpy(key, op->requests[i].key.data, op->requests[i].key.len);
        key += op->requests[i].key.len;
    }
    if (op->n == 0)
        waiting->op.request.key.data = memcpy(key, op->request.key.data, op->request.key.len);
    return waiting;
}

/* Make a request without blocking: the reply may wait for Redis. `set`: of a CL.THROTTLE, or NULL. */
static void request_make(struct client *client, const struct weir_op *op, enum answer answer, struct throttle_set *set)
{
    struct waiting *waiting = waiting_make(op);
    if (!waiting) {
        output_error(client_reply(client), "ERR out of memory");
        return;
    }
    waiting->client = client;
    waiting->answer = answer;
    waiting->op.done = request_done;
    waiting->op.user = waiting;
    const int result = weir_submit(client->server->limiter, &waiting->op);
    if (result == 1) {
        waiting->set = set;
        if (set)
            set->waiting++;
        waiting_append(client, waiting);
        return;
    }
    put_op(client_reply(client), result, &waiting->op, answer);
    free(waiting);
}

/* ---- Arguments ---- */

/* Read an integer with or without a sign. */
static bool span_integer(struct span word, int64_t *out)
{
    const bool is_negative = word.len > 1 && word.data[0] == '-',
               is_signed = is_negative || (word.len > 1 && word.data[0] == '+');
    if (!span_number(is_signed ? span_slice(word, 1, word.len) : word, out))
        return false;
    *out = is_negative ? -*out : *out;
    return true;
}

/* Read a number of a command; `code` begins the error. False after that. */
static bool word_number_or(struct client *client, const char *code, struct span word, int64_t *out)
{
    char shown[64];
    if (span_integer(word, out))
        return true;
    span_show(word, shown, sizeof shown);
    output_error(client_reply(client), "%s Couldn't parse as integer: %s", code, shown);
    return false;
}

static bool word_number(struct client *client, struct span word, int64_t *out)
{
    return word_number_or(client, "ERR", word, out);
}

/* Return the limit of that name, or NULL after an error. */
static weir_limit *word_limit(struct client *client, struct span word)
{
    char name[WEIR_MAX_NAME_LEN + 1], shown[64];
    weir_limit *limit = NULL;
    if (word.len < sizeof name && !memchr(word.data, 0, word.len)) {
        memcpy(name, word.data, word.len);
        name[word.len] = '\0';
        limit = weir_limit_find(client->server->limiter, name);
    }
    if (!limit) {
        span_show(word, shown, sizeof shown);
        output_error(client_reply(client), "ERR there is no limit '%s'", shown);
    }
    return limit;
}

/* Check a key and a cost, of that name. INT64_MAX as the most: it has been used already, and is never too large. False after an
 * error. */
static bool request_is_good(struct client *client, struct span key, const char *name, int64_t cost, int64_t most)
{
    if (key.len < 1 || key.len > WEIR_MAX_KEY_LEN)
        output_error(client_reply(client), "ERR the key must have 1 to %d bytes, not %zu", WEIR_MAX_KEY_LEN, key.len);
    else if (cost < 1 && most == INT64_MAX)
        output_error(client_reply(client), "ERR the %s must be 1 or more, not %lld", name, (long long)cost);
    else if (cost < 1 || cost > most)
        output_error(client_reply(client), "ERR the %s must be 1 to %lld, not %lld", name, (long long)most,
                     (long long)cost);
    else
        return true;
    return false;
}

#define ADDRESS_KEY_SIZE 48 /* as weir_key_address() needs */

/* Return the key to ask about. With --address-bits, `room` gets the prefix of a key that is an address. */
static struct weir_key request_key(const struct client *client, struct span word, char room[ADDRESS_KEY_SIZE])
{
    const struct address_bits *bits = &client->server->bits;
    const struct weir_key key = weir_key(word.data, word.len);
    if (bits->ipv4 == 0)
        return key;
    const int len = weir_key_address_text(key, bits->ipv4, bits->ipv6, room, ADDRESS_KEY_SIZE);
    return len > 0 ? weir_key(room, (size_t)len) : key;
}

/* Read "limit key [cost]" from word `at` on; the cost is 1 to `most`. The request may keep its key in `room`. False after
 * an error. */
static bool read_request(struct client *client, const struct resp_command *command, size_t at, int64_t most,
                         struct weir_request *out, char room[ADDRESS_KEY_SIZE])
{
    *out = (struct weir_request){ .cost = 1 };
    const struct span key = command->words[at + 1];
    if ((at + 2 < command->count && !word_number(client, command->words[at + 2], &out->cost)) ||
        !request_is_good(client, key, "cost", out->cost, most))
        return false;
    out->key = request_key(client, key, room);
    out->limit = word_limit(client, command->words[at]);
    return out->limit != NULL;
}

/* ---- weir's commands ---- */

void run_try(struct client *client, const struct resp_command *command)
{
    struct weir_request request;
    char room[ADDRESS_KEY_SIZE];
    if (read_request(client, command, 1, WEIR_MAX_PERMITS, &request, room))
        request_make(client, &(struct weir_op){ .request = request }, ANSWER_TRY, NULL);
}

void run_peek(struct client *client, const struct resp_command *command)
{
    struct weir_request request;
    char room[ADDRESS_KEY_SIZE];
    if (read_request(client, command, 1, WEIR_MAX_PERMITS, &request, room))
        request_make(client, &(struct weir_op){ .request = request, .verb = WEIR_OP_PEEK }, ANSWER_TRY, NULL);
}

void run_try_all(struct client *client, const struct resp_command *command)
{
    struct weir_request requests[WEIR_MAX_ALL];
    char rooms[WEIR_MAX_ALL][ADDRESS_KEY_SIZE];
    const size_t n = (command->count - 1) / 3;
    if ((command->count - 1) % 3 != 0 || n > WEIR_MAX_ALL) {
        output_error(client_reply(client), "ERR WEIR.TRYALL takes 1 to %d times: limit key cost", WEIR_MAX_ALL);
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (!read_request(client, command, 1 + 3 * i, WEIR_MAX_PERMITS, &requests[i], rooms[i]))
            return;
    request_make(client, &(struct weir_op){ .requests = requests, .n = n, .verb = WEIR_OP_TRY_ALL }, ANSWER_TRY, NULL);
}

void run_reset(struct client *client, const struct resp_command *command)
{
    struct weir_request request;
    char room[ADDRESS_KEY_SIZE];
    if (read_request(client, command, 1, WEIR_MAX_PERMITS, &request, room))
        request_make(client, &(struct weir_op){ .request = request, .verb = WEIR_OP_RESET }, ANSWER_TRY, NULL);
}

void run_charge(struct client *client, const struct resp_command *command)
{
    struct weir_request request;
    char room[ADDRESS_KEY_SIZE];
    if (read_request(client, command, 1, INT64_MAX, &request, room))
        request_make(client, &(struct weir_op){ .request = request, .verb = WEIR_OP_CHARGE }, ANSWER_TRY, NULL);
}

/* A reservation is a text behind a decision; WEIR.SETTLE, WEIR.RELEASE and WEIR.RENEW bring it back. */
void run_reserve(struct client *client, const struct resp_command *command)
{
    struct weir_request request;
    char room[ADDRESS_KEY_SIZE];
    if (read_request(client, command, 1, WEIR_MAX_PERMITS, &request, room))
        request_make(client, &(struct weir_op){ .request = request, .verb = WEIR_OP_RESERVE }, ANSWER_TRY, NULL);
}

/* Read "limit key reservation", which these commands begin with. False after an error. */
static bool read_reservation(struct client *client, const struct resp_command *command, struct weir_op *op,
                             char room[ADDRESS_KEY_SIZE])
{
    const struct span key = command->words[2];
    if (!request_is_good(client, key, "cost", 1, 1))
        return false;
    if (!reservation_read(command->words[3], &op->reservation)) {
        output_error(client_reply(client), "ERR that is no reservation of WEIR.RESERVE");
        return false;
    }
    op->request.key = request_key(client, key, room);
    op->request.limit = word_limit(client, command->words[1]);
    return op->request.limit != NULL;
}

/* WEIR.SETTLE limit key reservation actual */
void run_settle(struct client *client, const struct resp_command *command)
{
    struct weir_op op = { .verb = WEIR_OP_SETTLE };
    char room[ADDRESS_KEY_SIZE];
    int64_t *actual = &op.request.cost;
    if (!word_number(client, command->words[4], actual) || !read_reservation(client, command, &op, room))
        return;
    if (*actual < 0)
        output_error(client_reply(client), "ERR the cost must be 0 or more, not %lld", (long long)*actual);
    else
        request_make(client, &op, ANSWER_TRY, NULL);
}

/* WEIR.RELEASE limit key reservation */
void run_release(struct client *client, const struct resp_command *command)
{
    struct weir_op op = { .verb = WEIR_OP_SETTLE };
    char room[ADDRESS_KEY_SIZE];
    if (read_reservation(client, command, &op, room))
        request_make(client, &op, ANSWER_TRY, NULL);
}

/* WEIR.RENEW limit key reservation; one without permits takes 1. */
void run_renew(struct client *client, const struct resp_command *command)
{
    struct weir_op op = { .verb = WEIR_OP_RENEW };
    char room[ADDRESS_KEY_SIZE];
    if (!read_reservation(client, command, &op, room))
        return;
    op.request.cost = op.reservation.permits > 0 ? op.reservation.permits : 1;
    request_make(client, &op, ANSWER_TRY, NULL);
}

/* redis-cell's command: CL.THROTTLE key max_burst count period [quantity]; a quantity of 0 only looks. */
void run_throttle(struct client *client, const struct resp_command *command)
{
    int64_t numbers[4] = { 0, 0, 0, 1 };
    struct fault fault;
    for (size_t i = 2; i < command->count; i++)
        if (!word_number_or(client, THROTTLE_ERROR, command->words[i], &numbers[i - 2]))
            return;
    if (numbers[1] == 0 || numbers[2] == 0) {
        output_error(client_reply(client), THROTTLE_ERROR " Zero rates are not supported");
        return;
    }
    const struct span key = command->words[1];
    if (!request_is_good(client, key, "quantity", numbers[3] == 0 ? 1 : numbers[3], WEIR_MAX_PERMITS))
        return;
    struct server *server = client->server;
    struct throttle_set *set = throttle_get(&server->throttle, server->limiter, numbers[0], numbers[1], numbers[2],
                                            server->now_us, &fault);
    if (!set) {
        output_error(client_reply(client), "ERR %s", fault.text);
        return;
    }
    const bool looks = numbers[3] == 0;
    char room[ADDRESS_KEY_SIZE];
    const struct weir_request request = { .limit = set->limit,
                                          .key = request_key(client, key, room),
                                          .cost = looks ? 1 : numbers[3] };
    request_make(client, &(struct weir_op){ .request = request, .verb = looks ? WEIR_OP_PEEK : WEIR_OP_TRY },
                 looks ? ANSWER_LOOK : ANSWER_THROTTLE, set);
}
