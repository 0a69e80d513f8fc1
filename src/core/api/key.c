/* key.c - makes one key of several parts, and of a network address. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <weir/weir.h>

int weir_key_join(const struct weir_key *parts, size_t n, void *out, size_t size)
{
    if (!parts || n == 0 || (!out && size > 0))
        return WEIR_EINVAL;
    size_t len = 0;
    char prefix[24] = "";
    for (size_t i = 0; i < n; i++) { /* no sum here overflows: each part is checked before it is added */
        if (parts[i].len > WEIR_MAX_KEY_LEN || len > WEIR_MAX_KEY_LEN || (parts[i].len > 0 && !parts[i].data))
            return WEIR_EINVAL;
        const int digits = n > 1 ? snprintf(prefix, sizeof prefix, "%zu:", parts[i].len) : 0;
        len += (size_t)digits + parts[i].len + (n > 1);
    }
    if (len == 0 || len > WEIR_MAX_KEY_LEN)
        return WEIR_EINVAL;
    if (len > size)
        return (int)len;
    char *at = out;
    for (size_t i = 0; i < n; i++) {
        const int digits = n > 1 ? snprintf(prefix, sizeof prefix, "%zu:", parts[i].len) : 0;
        memcpy(at, prefix, (size_t)digits);
        at += digits;
        if (parts[i].len > 0)
            memcpy(at, parts[i].data, parts[i].len);
        at += parts[i].len;
        if (n > 1)
            *at++ = ',';
    }
    return (int)len;
}

/* ---- Addresses ---- */

#define IPV4_BITS 32
#define IPV6_BITS 128

/* An address in network order; an IPv4-mapped one is IPv4. */
struct address {
    bool is_ipv4;
    unsigned char bytes[sizeof(struct in6_addr)];
};

static struct address address_of_ipv6(const struct in6_addr *from)
{
    struct address address = { .is_ipv4 = IN6_IS_ADDR_V4MAPPED(from) };
    if (address.is_ipv4)
        memcpy(address.bytes, from->s6_addr + sizeof(struct in6_addr) - sizeof(struct in_addr), sizeof(struct in_addr));
    else
        memcpy(address.bytes, from->s6_addr, sizeof *from);
    return address;
}

static bool is_port(const char *text, size_t len)
{
    const long most = 65535;
    return len >= 1 && len <= 5 && strspn(text, "0123456789") >= len && strtol(text, NULL, 10) <= most;
}

/* Read "[ADDRESS]" or "ADDRESS", with or without a zone and a port. A port after an address without brackets needs a
 * dot in the address, because a bare IPv6 address ends in a colon and digits, too. */
static bool address_read(struct weir_key key, struct address *out)
{
    char text[128]; /* the longest address has 45 bytes; the rest is for a zone */
    struct in6_addr ipv6;
    if (!key.data || key.len == 0 || key.len >= sizeof text || memchr(key.data, 0, key.len))
        return false;
    memcpy(text, key.data, key.len);
    text[key.len] = '\0';

    char *begin = text, *end = text + key.len;
    const bool has_brackets = *begin == '[';
    char *colon = NULL;
    if (has_brackets) {
        begin++;
        char *bracket = strchr(begin, ']');
        if (!bracket || (bracket + 1 < end && bracket[1] != ':'))
            return false;
        colon = bracket + 1 < end ? bracket + 1 : NULL;
        *bracket = '\0';
    } else if (strrchr(begin, '.') && !strchr(begin, '%')) { /* a dot may also stand in a zone */
        colon = strchr(strrchr(begin, '.'), ':');
    }
    if (colon && !is_port(colon + 1, (size_t)(end - colon - 1)))
        return false;
    if (colon)
        *colon = '\0';

    *out = (struct address){ .is_ipv4 = true };
    if (!has_brackets && inet_pton(AF_INET, begin, out->bytes) == 1)
        return true;
    char *zone = strchr(begin, '%');
    if (zone && (zone[1] == '\0' || strchr(zone, ':'))) /* behind a zone a port needs brackets */
        return false;
    if (zone)
        *zone = '\0';
    if (inet_pton(AF_INET6, begin, &ipv6) != 1)
        return false;
    *out = address_of_ipv6(&ipv6);
    return true;
}

/* Write the address without the bits after the prefix, and the prefix's length if that leaves any out. */
static int address_write(struct address address, int ipv4_bits, int ipv6_bits, void *out, size_t size)
{
    char text[INET6_ADDRSTRLEN + sizeof "/128"];
    const int bits = address.is_ipv4 ? ipv4_bits : ipv6_bits, all = address.is_ipv4 ? IPV4_BITS : IPV6_BITS;
    for (int i = 0; i < all / 8; i++) {
        const int kept = bits - 8 * i;
        if (kept < 8)
            address.bytes[i] &= (unsigned char)(kept <= 0 ? 0 : 0xff << (8 - kept));
    }
    inet_ntop(address.is_ipv4 ? AF_INET : AF_INET6, address.bytes, text, INET6_ADDRSTRLEN);
    size_t len = strlen(text);
    if (bits < all)
        len += (size_t)snprintf(text + len, sizeof text - len, "/%d", bits);
    if (len <= size)
        memcpy(out, text, len);
    return (int)len;
}

static bool address_arguments_are_good(int ipv4_bits, int ipv6_bits, const void *out, size_t size)
{
    return ipv4_bits >= 0 && ipv4_bits <= IPV4_BITS && ipv6_bits >= 0 && ipv6_bits <= IPV6_BITS && (out || size == 0);
}

int weir_key_address(const struct sockaddr *address, int ipv4_bits, int ipv6_bits, void *out, size_t size)
{
    struct address read = { .is_ipv4 = true };
    if (!address || !address_arguments_are_good(ipv4_bits, ipv6_bits, out, size))
        return WEIR_EINVAL;
    if (address->sa_family == AF_INET) {
        memcpy(read.bytes, (const char *)address + offsetof(struct sockaddr_in, sin_addr), sizeof(struct in_addr));
    } else if (address->sa_family == AF_INET6) {
        struct in6_addr ipv6;
        memcpy(&ipv6, (const char *)address + offsetof(struct sockaddr_in6, sin6_addr), sizeof ipv6);
        read = address_of_ipv6(&ipv6);
    } else {
        return WEIR_EINVAL;
    }
    return address_write(read, ipv4_bits, ipv6_bits, out, size);
}

int weir_key_address_text(struct weir_key text, int ipv4_bits, int ipv6_bits, void *out, size_t size)
{
    struct address read;
    if (!address_arguments_are_good(ipv4_bits, ipv6_bits, out, size) || !address_read(text, &read))
        return WEIR_EINVAL;
    return address_write(read, ipv4_bits, ipv6_bits, out, size);
}
