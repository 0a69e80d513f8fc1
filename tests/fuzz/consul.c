/* consul.c - answers of Consul's agent: the instances of a service, and the policies under a prefix.
 *
 * The input is a byte that selects where weights come from, and a JSON text, which is decoded as both. Properties:
 *
 *     - decoded values survive being encoded as JSON and decoded again
 *     - weights are in range, ids are not empty; policies pass weir_policy_check(); an entry has a policy or an error
 *     - a refusal gives a sentence without control bytes, and writes nothing
 */
#include "fuzz.h"

#include "backends/consul/answer.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_refusal(int error, const char *sentence, const void *out, size_t size)
{
    fuzz_must(error == WEIR_EINVAL && *sentence, "a refusal says why");
    for (const char *at = sentence; *at; at++)
        fuzz_must((unsigned char)*at >= ' ' && *at != 0x7f, "a sentence has no control bytes");
    for (size_t i = 0; i < size; i++)
        fuzz_must(((const unsigned char *)out)[i] == 0xa5, "a refusal writes nothing");
}

/* ---- Instances ---- */

static char *peers_json(const struct consul_peers *peers, const char *weight_meta)
{
    json_t *root = json_array();
    for (size_t i = 0; i < peers->n; i++) {
        const struct weir_peer *peer = &peers->peers[i];
        char digits[24];
        snprintf(digits, sizeof digits, "%d", (int)peer->weight);
        json_t *entry = weight_meta
                            ? json_pack("{s:{s:s, s:{s:s}}}", "Service", "ID", peer->id, "Meta", weight_meta, digits)
                            : json_pack("{s:{s:s, s:{s:I}}}", "Service", "ID", peer->id, "Weights", "Passing",
                                        (json_int_t)peer->weight);
        fuzz_must(entry && json_array_append_new(root, entry) == 0, "an id is UTF-8");
    }
    char *text = json_dumps(root, JSON_COMPACT);
    fuzz_must(text, "there is memory");
    json_decref(root);
    return text;
}

static void check_peers(const char *body, size_t len, const char *weight_meta)
{
    char sentence[512] = "";
    struct message message = { sentence, sizeof sentence };
    struct consul_peers peers, again;
    memset(&peers, 0xa5, sizeof peers);
    const int error = consul_peers_read(body, len, weight_meta, &peers, message);
    if (error) {
        check_refusal(error, sentence, &peers, sizeof peers);
        return;
    }
    char *text = peers_json(&peers, weight_meta);
    fuzz_must(consul_peers_read(text, strlen(text), weight_meta, &again, message) == WEIR_OK, "%s is read: %s", text,
              sentence);
    fuzz_must(again.n == peers.n, "as many instances come back");
    for (size_t i = 0; i < peers.n; i++)
        fuzz_must(*peers.peers[i].id && strcmp(peers.peers[i].id, again.peers[i].id) == 0 &&
                      peers.peers[i].weight >= 1 && peers.peers[i].weight <= 65535 &&
                      peers.peers[i].weight == again.peers[i].weight,
                  "each instance comes back");
    free(text);
    consul_peers_free(&again);
    consul_peers_free(&peers);
}

/* ---- Policies ---- */

static void base64(const char *text, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t len = strlen(text);
    for (size_t i = 0; i < len; i += 3) {
        const unsigned b = i + 1 < len ? (unsigned char)text[i + 1] : 0,
                       c = i + 2 < len ? (unsigned char)text[i + 2] : 0;
        const unsigned bits = (unsigned)(unsigned char)text[i] << 16 | b << 8 | c;
        *out++ = digits[bits >> 18];
        *out++ = digits[bits >> 12 & 63];
        *out++ = digits[bits >> 6 & 63];
        *out++ = digits[bits & 63];
        if (i + 2 >= len)
            out[-1] = '=';
        if (i + 1 >= len)
            out[-2] = '=';
    }
    *out = '\0';
}

/* Encode the entry as Consul would, and decode it again. */
static void check_entry(const struct policy_entry *entry, const char *prefix)
{
    char text[256], value[400], sentence[512] = "";
    struct message message = { sentence, sizeof sentence };
    struct consul_policies again;
    fuzz_must(weir_policy_print(&entry->policy, text, sizeof text) == WEIR_OK, "a policy that is read is good");
    base64(text, value);
    char *key = NULL;
    fuzz_must(asprintf(&key, "%s/%s%s%s", prefix, entry->name, entry->pattern ? "/" : "",
                       entry->pattern ? entry->pattern : "") > 0,
              "there is memory");
    json_t *root = json_pack("[{s:s, s:s}]", "Key", key, "Value", value);
    fuzz_must(root, "a key is UTF-8");
    char *body = json_dumps(root, JSON_COMPACT);
    fuzz_must(body && consul_policies_read(body, strlen(body), prefix, &again, message) == WEIR_OK, "%s is read: %s",
              body, sentence);
    fuzz_must(again.n == 1 && !again.entries[0].error && strcmp(again.entries[0].name, entry->name) == 0 &&
                  !again.entries[0].pattern == !entry->pattern &&
                  (!entry->pattern || strcmp(again.entries[0].pattern, entry->pattern) == 0) &&
                  strcmp(again.entries[0].where, entry->where) == 0 &&
                  fuzz_same_policy(&again.entries[0].policy, &entry->policy),
              "\"%s\" comes back", key);
    consul_policies_free(&again);
    free(body);
    json_decref(root);
    free(key);
}

static void check_policies(const char *body, size_t len)
{
    char sentence[512] = "";
    struct consul_policies policies;
    memset(&policies, 0xa5, sizeof policies);
    const int error = consul_policies_read(body, len, "weir", &policies, (struct message){ sentence, sizeof sentence });
    if (error) {
        check_refusal(error, sentence, &policies, sizeof policies);
        return;
    }
    for (size_t i = 0; i < policies.n; i++) {
        const struct policy_entry *entry = &policies.entries[i];
        fuzz_must(entry->name && strncmp(entry->where, "Consul's weir/", 14) == 0, "an entry has its name and place");
        for (const char *at = entry->error ? entry->error : ""; *at; at++)
            fuzz_must((unsigned char)*at >= ' ' && *at != 0x7f, "an error has no control bytes");
        if (!entry->error)
            check_entry(entry, "weir");
    }
    consul_policies_free(&policies);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const char *body = (const char *)data + 1;
    check_peers(body, size - 1, data[0] & 1 ? "w" : NULL);
    check_policies(body, size - 1);
    return 0;
}
