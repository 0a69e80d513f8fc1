/* inspected.c - connects an inspector, and prints the keys that it has looked at. */
#include "cli/inspected.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/times.h"

enum { SHOWN_KEY_SIZE = 600 };

/* True if the files that the options name can be read. */
static bool files_are_readable(const struct store *store)
{
    const char *const files[] = { store->options.redis_password_file, store->options.redis_ca_file, store->options.redis_cert_file, store->options.redis_key_file };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (files[i] && access(files[i], R_OK) != 0)
            return false;
    return true;
}

weir_inspector *inspected_connect(const struct store *store, int *code)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    weir_inspector *inspector;
    store_options(store, &options);
    options.log = NULL; /* the reason is printed once */
    options.quiet = true;
    const int error = weir_inspect_open(&options, &inspector);
    if (error == WEIR_OK)
        return inspector;
    *code = inspected_conclude(error);
    if (!files_are_readable(store)) /* wrong use, and no failure of Redis */
        *code = EXIT_ERROR;
    return NULL;
}

int inspected_conclude(int error)
{
    if (error != WEIR_OK)
        complain("%s", weir_last_message());
    return error == WEIR_OK ? EXIT_OK : error == WEIR_EINVAL ? EXIT_ERROR : EXIT_FAILED;
}

static void policy_text(const struct weir_inspected_state *state, char text[WEIR_POLICY_TEXT_SIZE])
{
    if (weir_policy_print(&state->policy, text, WEIR_POLICY_TEXT_SIZE) != WEIR_OK)
        snprintf(text, WEIR_POLICY_TEXT_SIZE, "unknown");
}

static void key_text(const struct weir_inspected *key, char shown[SHOWN_KEY_SIZE])
{
    span_show((struct span){ key->key.data, key->key.len }, shown, SHOWN_KEY_SIZE - 3);
    if (key->is_cut)
        strcat(shown, "...");
}

/* ---- JSON ---- */

static const char *found_name(enum weir_found found)
{
    return found == WEIR_FOUND_STATE ? "state" : found == WEIR_FOUND_FOREIGN ? "foreign" : "nothing";
}

static void print_state_json(const struct weir_inspected_state *state)
{
    char text[WEIR_POLICY_TEXT_SIZE];
    const struct weir_decision *next = &state->decision;
    policy_text(state, text);
    fputs("\"policy\":", stdout);
    json_put_string(span_of(text));
    printf(",\"used\":%lld,\"size\":%lld,\"remaining\":%lld,\"allowed\":%s,\"would_deny\":%s,"
           "\"retry_after_us\":%lld,\"reset_after_us\":%lld",
           (long long)state->used, (long long)next->limit, (long long)next->remaining, next->allowed ? "true" : "false",
           next->would_deny ? "true" : "false", (long long)next->retry_after_us, (long long)next->reset_after_us);
}

static void print_slots_json(const struct weir_inspected *key)
{
    printf("\"policy\":\"concurrency\",\"used\":%lld,\"slots\":%lld,\"first_slot_us\":%lld,\"reset_after_us\":%lld",
           (long long)key->state.used, (long long)key->slots, (long long)key->first_slot_us,
           (long long)key->state.decision.reset_after_us);
}

void inspected_json(const struct weir_inspected *key)
{
    fputs("{\"limit\":", stdout);
    json_put_string(span_of(key->limit));
    fputs(",\"key\":", stdout);
    json_put_string((struct span){ key->key.data, key->key.len });
    printf(",\"is_cut\":%s,\"found\":\"%s\"", key->is_cut ? "true" : "false", found_name(key->found));
    if (key->found == WEIR_FOUND_STATE) {
        putchar(',');
        if (key->slots > 0)
            print_slots_json(key);
        else
            print_state_json(&key->state);
    }
    if (key->has_former) {
        fputs(",\"former\":{", stdout);
        print_state_json(&key->former);
        putchar('}');
    }
    putchar('}');
}

/* ---- For people ---- */

/* Print when a request for one permit would be allowed. */
static void print_next(const char *allowed, const struct weir_decision *next)
{
    char time[TIME_TEXT_SIZE];
    duration_print(next->retry_after_us, time);
    if (next->would_deny)
        printf("allowed, because the limit is a shadow; an enforced one would deny it");
    else if (next->allowed)
        fputs(allowed, stdout);
    else if (next->retry_after_us == WEIR_NEVER)
        fputs("never allowed: this instance's share of the limit is 0", stdout);
    else
        printf("denied for %s", time);
}

static void print_former(const struct weir_inspected *key)
{
    char text[WEIR_POLICY_TEXT_SIZE];
    policy_text(&key->former, text);
    printf("also       %s, %lld of %lld permits: instances disagree on the policy, or did until lately\n", text,
           (long long)key->former.used, (long long)key->former.decision.limit);
}

/* Print how many slots are held, and for how long. */
static void print_slots(const struct weir_inspected *key)
{
    char first[TIME_TEXT_SIZE], last[TIME_TEXT_SIZE];
    duration_print(key->first_slot_us, first);
    duration_print(key->state.decision.reset_after_us, last);
    printf("%lld slots with %lld permits, held for %s to %s unless they are released", (long long)key->slots,
           (long long)key->state.used, first, last);
}

void inspected_peek(const struct weir_inspected *key, bool json)
{
    const struct weir_inspected_state *state = &key->state;
    char text[WEIR_POLICY_TEXT_SIZE], shown[SHOWN_KEY_SIZE], time[TIME_TEXT_SIZE];
    if (json) {
        inspected_json(key);
        putchar('\n');
        return;
    }
    key_text(key, shown);
    printf("limit      %s\nkey        %s\n", key->limit, shown);
    if (key->found == WEIR_FOUND_NOTHING)
        puts("used       nothing: all permits are there");
    if (key->found != WEIR_FOUND_STATE)
        return;
    if (key->slots > 0) {
        fputs("in flight  ", stdout);
        print_slots(key);
        putchar('\n');
        return;
    }
    policy_text(state, text);
    time[0] = '\0';
    if (state->decision.reset_after_us > 0)
        duration_print(state->decision.reset_after_us, time);
    printf("policy     %s\nused       %lld of %lld permits\nremaining  %lld\na request  ", text, (long long)state->used,
           (long long)state->decision.limit, (long long)state->decision.remaining);
    print_next("allowed", &state->decision);
    printf("\nidle       %s%s\n", state->decision.reset_after_us > 0 ? "in " : "now", time);
    if (key->has_former)
        print_former(key);
}

void inspected_line(const struct weir_inspected *key)
{
    const struct weir_inspected_state *state = &key->state;
    char shown[SHOWN_KEY_SIZE];
    key_text(key, shown);
    if (key->found != WEIR_FOUND_STATE) {
        printf("%s/%s: not a value of weir's", key->limit, shown);
        return;
    }
    if (key->slots > 0) {
        printf("%s/%s: ", key->limit, shown);
        print_slots(key);
        return;
    }
    printf("%s/%s: %lld of %lld permits used, ", key->limit, shown, (long long)state->used,
           (long long)state->decision.limit);
    print_next("not denied", &state->decision);
    if (key->has_former)
        fputs(", under two policies", stdout);
}
