/* test_consul_answer.c - decoding of the Consul agent's answers: valid ones, ones with an error in each field, and
 * randomly mutilated ones. */
#include "backends/consul/answer.h"
#include "consul_json.h"
#include "failing_alloc.h"
#include "support.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static const char *peers_error(const char *body, const char *weight_meta)
{
    static char sentence[512];
    struct consul_peers peers;
    sentence[0] = '\0';
    if (consul_peers_read(body, strlen(body), weight_meta, &peers, (struct message){ sentence, sizeof sentence }) ==
        WEIR_OK)
        consul_peers_free(&peers);
    return sentence;
}

static const char *policies_error(const char *body)
{
    static char sentence[512];
    struct consul_policies policies;
    sentence[0] = '\0';
    if (consul_policies_read(body, strlen(body), "weir", &policies, (struct message){ sentence, sizeof sentence }) ==
        WEIR_OK)
        consul_policies_free(&policies);
    return sentence;
}

/* ---- Instances ---- */

TEST(instances_have_an_id_and_a_weight, 30)
{
    static const char body[] = "[" INSTANCE("x-1", WEIGHS(65535)) "," INSTANCE("x-2", "") "," INSTANCE(
        "x-3", "\"Weights\":null,") "," INSTANCE("x-4", "\"Weights\":{},") "]";
    CLOSED_BY(consul_peers_free) struct consul_peers peers;
    must_succeed(consul_peers_read(body, strlen(body), NULL, &peers, (struct message){ NULL, 0 }));
    ck_assert_uint_eq(peers.n, 4);
    for (size_t i = 0; i < 4; i++) {
        char id[8];
        snprintf(id, sizeof id, "x-%zu", i + 1);
        ck_assert_str_eq(peers.peers[i].id, id);
        ck_assert_int_eq(peers.peers[i].weight, i == 0 ? 65535 : 1);
    }
}

TEST(an_empty_list_of_instances_is_valid, 30)
{
    CLOSED_BY(consul_peers_free) struct consul_peers peers;
    must_succeed(consul_peers_read("[]", 2, NULL, &peers, (struct message){ NULL, 0 }));
    ck_assert_uint_eq(peers.n, 0);
}

#define SERVICE(fields) "[{\"Service\":{" fields "}}]"

#define TWENTY_DIGITS "12345678901234567890"
#define HUNDRED_DIGITS TWENTY_DIGITS TWENTY_DIGITS TWENTY_DIGITS TWENTY_DIGITS TWENTY_DIGITS
#define FOUR_HUNDRED_DIGITS HUNDRED_DIGITS HUNDRED_DIGITS HUNDRED_DIGITS HUNDRED_DIGITS /* overflows a double */

TEST(every_field_of_an_instance_is_checked, 30)
{
    static const struct {
        const char *body, *meta, *sentence;
    } bad[] = {
        { "[1]", NULL, "entry 1 of the answer has no object Service" },
        { "[{}]", NULL, "entry 1 of the answer has no object Service" },
        { "[{\"Service\":[]}]", NULL, "entry 1 of the answer has no object Service" },
        { "[{\"Service\":{\"ID\":\"a\"}},{\"Service\":\"b\"}]", NULL, "entry 2 of the answer has no object Service" },
        { SERVICE(""), NULL, "entry 1 of the answer has no text Service.ID" },
        { SERVICE("\"ID\":null"), NULL, "no text Service.ID" },
        { SERVICE("\"ID\":\"\""), NULL, "no text Service.ID" },
        { SERVICE("\"ID\":[\"a\"]"), NULL, "no text Service.ID" },
        { SERVICE("\"ID\":\"a\\u0000b\""), NULL, "entry 1 of the answer has a NUL in Service.ID" },
        { SERVICE("\"ID\":\"\\u0000\""), NULL, "entry 1 of the answer has a NUL in Service.ID" },
        { SERVICE("\"ID\":\"a\",\"Meta\":{\"w\":\"7\\u00000\"}"), "w", "Service.Meta \"w\" is not a whole" },
        { SERVICE("\"ID\":\"a\",\"Weights\":3"), NULL, "instance \"a\": Service.Weights is not an object" },
        { SERVICE("\"ID\":\"a\",\"Weights\":{\"Passing\":\"3\"}"), NULL,
          "\"a\": Service.Weights.Passing is not a whole" },
        { SERVICE("\"ID\":\"a\",\"Weights\":{\"Passing\":3.0}"), NULL,
          "Passing is not a whole number from 1 to 65535" },
        { SERVICE("\"ID\":\"a\",\"Weights\":{\"Passing\":0}"), NULL, "Passing is not a whole number from 1 to 65535" },
        { SERVICE("\"ID\":\"a\",\"Weights\":{\"Passing\":-1}"), NULL, "Passing is not a whole" },
        { SERVICE("\"ID\":\"a\",\"Weights\":{\"Passing\":65536}"), NULL, "Passing is not a whole" },
        { SERVICE("\"ID\":\"a\",\"Weights\":{\"Passing\":1e5}"), NULL, "Passing is not a whole" },
        { SERVICE("\"ID\":\"a\",\"Weights\":{\"Passing\":99999999999999999999}"), NULL, "Passing is not a whole" },
        { SERVICE("\"ID\":\"a\",\"Weights\":{\"Passing\":1000000000000000000}"), NULL, "Passing is not a whole" },
        { SERVICE("\"ID\":\"a\",\"Weights\":{\"Passing\":1e0}"), NULL, "Passing is not a whole" },
        { SERVICE("\"ID\":\"a\",\"Weights\":{\"Passing\":1e999}"), NULL, "Passing is not a whole" },
        { SERVICE("\"ID\":\"a\",\"Weights\":{\"Passing\":0000000000000000000001}"), NULL, "is not JSON" },
        { SERVICE("\"ID\":\"a\",\"Flags\":" TWENTY_DIGITS "."), NULL, "is not JSON" },
        { SERVICE("\"ID\":\"a\",\"Flags\":" TWENTY_DIGITS ".e1"), NULL, "is not JSON" },
        { SERVICE("\"ID\":\"a\",\"Flags\":" TWENTY_DIGITS "e"), NULL, "is not JSON" },
        { SERVICE("\"ID\":\"a\",\"Weights\":{\"Passing\":" TWENTY_DIGITS ".0}"), NULL, "Passing is not a whole" },
        { SERVICE("\"ID\":\"a\",\"Meta\":[]"), "w", "instance \"a\": Service.Meta is not an object" },
        { SERVICE("\"ID\":\"a\",\"Meta\":{\"w\":7}"), "w", "\"a\": Service.Meta \"w\" is not a whole number from 1" },
        { SERVICE("\"ID\":\"a\",\"Meta\":{\"w\":\"\"}"), "w", "Service.Meta \"w\" is not a whole" },
        { SERVICE("\"ID\":\"a\",\"Meta\":{\"w\":\"0\"}"), "w", "Service.Meta \"w\" is not a whole" },
        { SERVICE("\"ID\":\"a\",\"Meta\":{\"w\":\"65536\"}"), "w", "Service.Meta \"w\" is not a whole" },
        { SERVICE("\"ID\":\"a\",\"Meta\":{\"w\":\"4294967297\"}"), "w", "Service.Meta \"w\" is not a whole" },
        { SERVICE("\"ID\":\"a\",\"Meta\":{\"w\":\" 7\"}"), "w", "Service.Meta \"w\" is not a whole" },
        { SERVICE("\"ID\":\"a\",\"Meta\":{\"w\":\"7x\"}"), "w", "Service.Meta \"w\" is not a whole" },
        { SERVICE("\"ID\":\"a\",\"Meta\":{\"w\":\"+7\"}"), "w", "Service.Meta \"w\" is not a whole" },
        { SERVICE("\"ID\":\"a\\u001b[2J\",\"Weights\":3"), NULL, "instance \"a?[2J\": Service.Weights" },
        { SERVICE("\"ID\":\"a\\u009b2J\xc2\x80\xc2\xa0\xc3\x9b\",\"Weights\":3"), NULL,
          "instance \"a??2J??\xc2\xa0\xc3\x9b\": Service.Weights" },
        { SERVICE("\"ID\":\"a\",\"ID\":7"), NULL, "no text Service.ID" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *sentence = peers_error(bad[i].body, bad[i].meta);
        ck_assert_msg(strstr(sentence, bad[i].sentence) != NULL, "%s: %s", bad[i].body, sentence);
    }
}

/* A strange health-check output must not keep the other instances from being read. */
TEST(fields_that_weir_does_not_read_may_hold_any_value, 30)
{
    static const char *const odd[] = {
        "\"Output\":\"a\\u0000b\"",
        "\"Output\":\"a\\\"1e999\\\\\"",
        "\"Output\":1,\"Output\":2",
        "\"Flags\":9223372036854775808",
        "\"Flags\":18446744073709551615",
        "\"Flags\":-18446744073709551615,\"More\":[123456789012345678901234567890,-1e999]",
        "\"Flags\":1e999",
        "\"Flags\":-1.5E+999",
        "\"Flags\":[1e-999,0.1,-0.25e1,0,9223372036854775807]",
        "\"Flags\":[" FOUR_HUNDRED_DIGITS ".5,-" FOUR_HUNDRED_DIGITS "e9," FOUR_HUNDRED_DIGITS ".25E+9]",
    };
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        char body[4096];
        struct consul_peers peers;
        CLOSED_BY(consul_policies_free) struct consul_policies policies;
        snprintf(body, sizeof body, "[{\"Service\":{%s,\"ID\":\"1e999\",\"Weights\":{\"Passing\":7}},%s}]", odd[i],
                 odd[i]);
        ck_assert_str_eq(peers_error(body, NULL), "");
        must_succeed(consul_peers_read(body, strlen(body), NULL, &peers, (struct message){ NULL, 0 }));
        ck_assert_str_eq(peers.peers[0].id, "1e999");
        ck_assert_int_eq(peers.peers[0].weight, 7);
        consul_peers_free(&peers);
        snprintf(body, sizeof body, "[{%s,\"Key\":\"weir/api/12345678901234567890\",\"Value\":" BUCKET "}]", odd[i]);
        ck_assert_str_eq(policies_error(body), "");
        must_succeed(consul_policies_read(body, strlen(body), "weir", &policies, (struct message){ NULL, 0 }));
        ck_assert_str_eq(policies.entries[0].pattern, "12345678901234567890");
    }
}

TEST(a_long_id_is_shortened_in_an_error, 30)
{
    char body[4096];
    snprintf(body, sizeof body, "[{\"Service\":{\"ID\":\"%03000d\",\"Weights\":1}}]", 7);
    ck_assert_uint_lt(strlen(peers_error(body, NULL)), 128);
}

/* ---- Shape ---- */

TEST(nesting_is_allowed_up_to_16, 30)
{
    char body[64];
    for (int depth = 1; depth <= 20; depth++) {
        memset(body, '[', (size_t)depth);
        memset(body + depth, ']', (size_t)depth);
        body[2 * depth] = '\0';
        const char *sentence = policies_error(body);
        ck_assert_msg((strstr(sentence, "nests deeper than 16") != NULL) == (depth > 16), "depth %d: %s", depth,
                      sentence);
    }
    ck_assert_str_eq(peers_error("[{\"Service\":{\"ID\":\"[[[[[[[[[[[[[[[[[[[[[[\\\"[[[\"}}]", NULL), "");
}

TEST(depth_and_number_of_objects_are_checked_before_they_are_created, 30)
{
    size_t len = 1 << 20;
    char *body = malloc(len + 1);
    ck_assert_ptr_nonnull(body);
    body[len] = '\0';
    memset(body, '[', len);
    ck_assert_str_eq(peers_error(body, NULL), "the answer nests deeper than 16");
    for (size_t i = 0; i + 1 < len; i += 3)
        memcpy(body + i, "{},", len - i < 3 ? len - i : 3);
    body[0] = '[';
    ck_assert_str_eq(peers_error(body, NULL), "the answer has more than 65536 objects and arrays");
    free(body);
}

TEST(answer_cut_off_anywhere_is_refused, 30)
{
    static const char body[] = A_AND_B;
    char sentence[256];
    for (size_t len = 0; len < strlen(body); len++) {
        struct consul_peers peers;
        char *part = malloc(len + 1); /* an exact copy, so that ASan sees a read past the end */
        memcpy(part, body, len);
        ck_assert_int_eq(consul_peers_read(part, len, NULL, &peers, (struct message){ sentence, sizeof sentence }),
                         WEIR_EINVAL);
        ck_assert_msg(strcmp(sentence, "the answer ends before its JSON does") == 0 ||
                          strstr(sentence, "the answer is not JSON, see line 1") == sentence, /* cut within a word */
                      "%zu bytes: %s", len, sentence);
        free(part);
    }
}

/* ---- Policies ---- */

TEST(policies_have_names_patterns_and_values, 30)
{
    static const char body[] = "[" KEY("weir/", "null") "," KEY("weir/api", BUCKET) "," KEY(
        "weir/api/", "\"\"") "," KEY("weir/api/10.*", BUCKET) "," KEY("weir/api/a/b/c", BUCKET) "]";
    CLOSED_BY(consul_policies_free) struct consul_policies policies;
    must_succeed(consul_policies_read(body, strlen(body), "weir", &policies, (struct message){ NULL, 0 }));
    ck_assert_uint_eq(policies.n, 3);
    static const char *const patterns[] = { NULL, "10.*", "a/b/c" };
    static const char *const wheres[] = { "Consul's weir/api", "Consul's weir/api/10.*", "Consul's weir/api/a/b/c" };
    for (size_t i = 0; i < 3; i++) {
        ck_assert_str_eq(policies.entries[i].name, "api");
        ck_assert_pstr_eq(policies.entries[i].pattern, patterns[i]);
        ck_assert_str_eq(policies.entries[i].where, wheres[i]);
        ck_assert_ptr_null(policies.entries[i].error);
        ck_assert_int_eq(policies.entries[i].policy.limit, 100);
    }
}

TEST(a_consul_key_that_ends_in_a_slash_is_a_folder_only_if_its_value_is_empty, 30)
{
    static const char body[] = "[" KEY("weir/", NONSENSE) "," KEY("weir/api/10/", BUCKET) "," KEY(
        "weir/api/11/", "null") "," KEY("weir/api/12/", "\"\"") "]";
    CLOSED_BY(consul_policies_free) struct consul_policies policies;
    must_succeed(consul_policies_read(body, strlen(body), "weir", &policies, (struct message){ NULL, 0 }));
    ck_assert_uint_eq(policies.n, 2);
    ck_assert_str_eq(policies.entries[0].where, "Consul's weir/");
    ck_assert_str_eq(policies.entries[0].error, "name must not be empty");
    ck_assert_str_eq(policies.entries[1].name, "api");
    ck_assert_str_eq(policies.entries[1].pattern, "10/");
    ck_assert_ptr_null(policies.entries[1].error);
}

TEST(a_value_that_is_not_a_policy_yields_an_entry_with_an_error, 30)
{
    static const struct {
        const char *body, *error;
    } bad[] = {
        { "[" KEY("weir/api", "null") "]", "there is no policy" },
        { "[" KEY("weir/api", "\"\"") "]", "column 1: \"\" is not an algorithm" },
        { "[" KEY("weir/api", NONSENSE) "]", "column 1: \"nonsense\" is not an algorithm" },
        { "[" KEY("weir/api", "\"dG9rZW4AYg==\"") "]", "column 6: a NUL byte" },
        { "[" KEY("weir/api", "\"GzJKCg==\"") "]", "column 1: \"\\x1b2J\" is not an algorithm" },
        { "[" KEY("weir/a b", BUCKET) "]", "byte 2 is not a letter" },
        { "[" KEY("weir//x", BUCKET) "]", "" },
        { "[" KEY("weir/api\\u0000x", BUCKET) "]", "the key has a NUL" },
        { "[" KEY("weir/api/10.*\\u0000x", BUCKET) "]", "the key has a NUL" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CLOSED_BY(consul_policies_free) struct consul_policies policies;
        must_succeed(
            consul_policies_read(bad[i].body, strlen(bad[i].body), "weir", &policies, (struct message){ NULL, 0 }));
        ck_assert_uint_eq(policies.n, 1);
        ck_assert_ptr_nonnull(policies.entries[0].error);
        ck_assert(!strstr(policies.entries[0].error, "NUL, and") || strcmp(policies.entries[0].name, "api") != 0);
        ck_assert_msg(strstr(policies.entries[0].error, bad[i].error) != NULL, "%s: %s", bad[i].body,
                      policies.entries[0].error);
    }
}

TEST(an_impossible_answer_from_consul_is_refused_as_a_whole, 30)
{
    static const char *const bad[][2] = {
        { "[7]", "entry 1 of the answer has no text Key" },
        { "[{\"Key\":7}]", "entry 1 of the answer has no text Key" },
        { "[" KEY("other/api", BUCKET) "]", "entry 1 of the answer is not under weir/" },
        { "[" KEY("weirder/api", BUCKET) "]", "entry 1 of the answer is not under weir/" },
        { "[" KEY("weir/a", BUCKET) "," KEY("weir", BUCKET) "]", "entry 2 of the answer is not under weir/" },
        { "[" KEY("weir/api", "7") "]", "a Value is not text" },
        { "[{\"Key\":\"weir/api\"}]", "a Value is not text" },
        { "[" KEY("weir/api", "\"YQ=\"") "]", "a Value is not base64" },
        { "[" KEY("weir/api", "\"YQ==YQ==\"") "]", "a Value is not base64" },
        { "[" KEY("weir/api", "\"====\"") "]", "a Value is not base64" },
        { "[" KEY("weir/api", "\"Y\xc3\xa9=\"") "]", "a Value is not base64" },
        { "[" KEY("weir/api", "\"YQ-_\"") "]", "a Value is not base64" },
        { "[" KEY("weir/api", "\"YQ\\u0000\\u0000\"") "]", "a Value is not base64" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(strstr(policies_error(bad[i][0]), bad[i][1]) != NULL, "%s: %s", bad[i][0],
                      policies_error(bad[i][0]));
}

/* Decode every length and every byte value; the encoder here is written independently from RFC 4648. */
TEST(base64_is_decoded_to_the_encoded_text, 60)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct chance chance = chance_make(1);
    for (int64_t step = steps_or(3000); step > 0; step--) {
        char text[64], encoded[128] = "", body[256];
        size_t len = (size_t)chance_between(&chance, 0, 40), at = 0;
        snprintf(text, sizeof text, "token_bucket limit=%lld period=1s",
                 (long long)chance_between(&chance, 1, 999999999));
        memset(text + strlen(text), ' ', sizeof text - strlen(text));
        len = len < 34 ? 42 : len + 8;
        for (size_t bit = 0; bit < 8 * len; bit += 6) {
            unsigned six = 0;
            for (size_t j = bit; j < bit + 6; j++)
                six = six << 1 | (j < 8 * len ? (unsigned)(unsigned char)text[j / 8] >> (7 - j % 8) & 1 : 0);
            encoded[at++] = digits[six];
        }
        while (at % 4 != 0)
            encoded[at++] = '=';
        snprintf(body, sizeof body, "[{\"Key\":\"weir/api\",\"Value\":\"%s\"}]", encoded);
        CLOSED_BY(consul_policies_free) struct consul_policies policies;
        must_succeed(consul_policies_read(body, strlen(body), "weir", &policies, (struct message){ NULL, 0 }));
        must(policies.n == 1 && policies.entries[0].error == NULL, "a policy as it was written");
        char expected[64];
        memcpy(expected, text, len);
        expected[len] = '\0';
        must(policies.entries[0].policy.limit == policy_of(expected).limit, "the limit as it was written");
    }
}

/* ---- Memory ---- */

/* Decode with allocation number `number` failing, and with `stubborn` all later ones as well. Return false if there
 * are fewer allocations. */
static bool read_without(int64_t number, bool stubborn, const char *body, bool of_peers)
{
    char sentence[256] = "";
    const struct message message = { sentence, sizeof sentence };
    struct consul_peers peers = { .n = 4711 };
    struct consul_policies policies = { .n = 4711 };
    alloc_watch(number, stubborn);
    const int error = of_peers ? consul_peers_read(body, strlen(body), "w", &peers, message)
                               : consul_policies_read(body, strlen(body), "weir", &policies, message);
    const bool failed = alloc_failed();
    if (!error && of_peers)
        consul_peers_free(&peers);
    else if (!error)
        consul_policies_free(&policies);
    alloc_pause();
    ck_assert_int_eq(alloc_live_blocks(), 0);
    /* jansson reports a word that it has no memory for as unreadable */
    const bool is_jansson = stubborn && strstr(sentence, "the answer is not JSON, see line 1, column ") == sentence;
    const int expected = !failed ? WEIR_OK : is_jansson ? WEIR_EINVAL : WEIR_ENOMEM;
    ck_assert_msg(error == expected, "allocation %lld of %s: %d, %s", (long long)number, body, error, sentence);
    ck_assert(is_jansson || strcmp(sentence, failed ? "out of memory" : "") == 0);
    ck_assert_uint_eq(of_peers ? peers.n : policies.n, failed ? 4711 : 0);
    return failed;
}

#define FOLDER_POLICY_AND_NONE                                                                                     \
    "[" KEY("weir/", "null") "," KEY("weir/api", BUCKET) "," KEY("weir/a/10.*", NONSENSE) "," KEY("weir/a\\u0000", \
                                                                                                  "7") "]"

TEST(an_answer_without_memory_for_it_is_dropped, 30)
{
    static const struct {
        const char *body;
        int64_t own, least_all;
    } rows[] = { { "[]", 2, 5 }, { A_AND_B, 2, 200 }, { FOLDER_POLICY_AND_NONE, 9, 50 } };
    for (int all = 0; all < 2; all++) {
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            int64_t number = 1;
            while (read_without(number, all, rows[i].body, i < 2))
                number++;
            ck_assert_msg(all ? number > rows[i].least_all : number == rows[i].own + 1, "%s: %lld", rows[i].body,
                          (long long)number - 1);
        }
        json_set_alloc_funcs(malloc, free); /* use this program's malloc, so that jansson's allocations fail too */
    }
}

/* ---- Anything ---- */

/* Change, cut, duplicate and swap bytes of a real answer. The decoder may accept or refuse it, but must not read past
 * its end and must return ordered results. */
static size_t mutilate(struct chance *chance, char *body, size_t len, size_t room)
{
    static const char marks[] = "[]{}\",:\\0123456789-eE.truefalsn \0\xff\x1b";
    for (int64_t n = chance_between(chance, 1, 6); n > 0 && len > 1; n--) {
        size_t at = (size_t)chance_between(chance, 0, (int64_t)len - 1);
        size_t span = (size_t)chance_magnitude(chance, (int64_t)(len - at));
        switch (chance_between(chance, 0, 4)) {
        case 0: body[at] = marks[chance_between(chance, 0, (int64_t)sizeof marks - 2)]; break;
        case 1: body[at] = (char)chance_between(chance, -128, 127); break;
        case 2:
            memmove(body + at, body + at + span, len - at - span);
            len -= span;
            break;
        case 3:
            if (len + span <= room) {
                memmove(body + at + span, body + at, len - at);
                len += span;
            }
            break;
        default: len = at; break;
        }
    }
    return len;
}

TEST(mutilated_answers_are_read_or_refused, 120)
{
    static const char peers_body[] = A_AND_B;
    static const char policies_body[] = "[" KEY("weir/", "null") "," KEY("weir/api", BUCKET) "," KEY("weir/api/10.*",
                                                                                                     NONSENSE) "]";
    enum { ROOM = 8192 };
    struct chance chance = chance_make(2);
    char body[ROOM], sentence[256];
    for (int64_t step = steps_or(40000); step > 0; step--) {
        bool of_peers = chance_one_in(&chance, 2);
        const char *from = of_peers ? peers_body : policies_body;
        size_t len = strlen(from);
        memcpy(body, from, len);
        len = mutilate(&chance, body, len, ROOM);
        char *exact = malloc(len > 0 ? len : 1);
        memcpy(exact, body, len);
        const struct message message = { sentence, sizeof sentence };
        sentence[0] = '\0';
        if (of_peers) {
            struct consul_peers peers;
            int error = consul_peers_read(exact, len, chance_one_in(&chance, 2) ? "w" : NULL, &peers, message);
            must(error == WEIR_OK || (error == WEIR_EINVAL && sentence[0] != '\0'), "read or refused");
            for (size_t i = 0; error == WEIR_OK && i < peers.n; i++)
                must(peers.peers[i].id[0] != '\0' && peers.peers[i].weight >= 1 && peers.peers[i].weight <= 65535,
                     "a peer in order");
            if (error == WEIR_OK)
                consul_peers_free(&peers);
        } else {
            struct consul_policies policies;
            int error = consul_policies_read(exact, len, "weir", &policies, message);
            must(error == WEIR_OK || (error == WEIR_EINVAL && sentence[0] != '\0'), "read or refused");
            for (size_t i = 0; error == WEIR_OK && i < policies.n; i++)
                must(policies.entries[i].name != NULL && policies.entries[i].where != NULL, "an entry in order");
            if (error == WEIR_OK)
                consul_policies_free(&policies);
        }
        free(exact);
    }
}
