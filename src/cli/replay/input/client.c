/* client.c - what servers write as a client: a host name, an address, or an address with a port. */
#include "cli/replay/input/client.h"

#include <arpa/inet.h>
#include <string.h>

/* True for bytes of host names. Names that a resolver returned also contain underscores and asterisks. */
static bool is_host_name(struct span word)
{
    for (size_t i = 0; i < word.len; i++) {
        char byte = word.data[i], letter = (char)(byte | 0x20);
        if (!(letter >= 'a' && letter <= 'z') && !(byte >= '0' && byte <= '9') && byte != '.' && byte != '-' &&
            byte != '_' && byte != '*')
            return false;
    }
    return word.len > 0;
}

bool is_address(struct span word)
{
    char text[INET6_ADDRSTRLEN] = "";
    struct in6_addr address; /* large enough for both kinds */
    size_t len = span_find(word, '%');
    if (len >= sizeof text || memchr(word.data, '\0', len) ||
        (len < word.len && !is_host_name(span_slice(word, len + 1, word.len))))
        return false;
    memcpy(text, word.data, len);
    return (len == word.len && inet_pton(AF_INET, text, &address) == 1) || inet_pton(AF_INET6, text, &address) == 1;
}

bool is_client(struct span word)
{
    return is_host_name(word) || is_address(word) || span_is(word, "unix:");
}

struct span client_without_port(struct span word)
{
    size_t colon = span_find_last(word, ':');
    int64_t port;
    if (colon < word.len && colon > 0 && span_number(span_slice(word, colon + 1, word.len), &port) &&
        (span_find(word, ':') == colon || word.data[colon - 1] == ']' || word.data[0] != '['))
        word = span_slice(word, 0, colon);
    if (word.len > 2 && word.data[0] == '[' && word.data[word.len - 1] == ']')
        word = span_slice(word, 1, word.len - 1);
    return word;
}
