/* test_key_address.c - keys of network addresses: one client has one key, however its address is written. */
#include "support.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

static const char *key_of_text(const char *text, int ipv4_bits, int ipv6_bits)
{
    static char key[49];
    const int len = weir_key_address_text(weir_key_text(text), ipv4_bits, ipv6_bits, key, sizeof key - 1);
    if (len < 0)
        return weir_strerror(len);
    key[len] = '\0';
    return key;
}

TEST(an_address_in_text_makes_one_key_however_it_is_written, 30)
{
    static const struct {
        const char *text;
        int ipv4_bits, ipv6_bits;
        const char *key;
    } cases[] = {
        { "192.0.2.7", 32, 64, "192.0.2.7" },
        { "192.0.2.7:40001", 32, 64, "192.0.2.7" },
        { "::ffff:192.0.2.7", 32, 64, "192.0.2.7" },
        { "::FFFF:c000:207", 32, 64, "192.0.2.7" },
        { "0:0:0:0:0:ffff:192.0.2.7", 32, 0, "192.0.2.7" },
        { "::ffff:192.0.2.7:40001", 32, 64, "192.0.2.7" },
        { "[::ffff:192.0.2.7]:40001", 32, 64, "192.0.2.7" },
        { "192.0.2.7", 24, 64, "192.0.2.0/24" },
        { "::ffff:192.0.2.7", 24, 64, "192.0.2.0/24" },
        { "192.0.2.255", 31, 64, "192.0.2.254/31" },
        { "192.0.2.7", 1, 64, "128.0.0.0/1" },
        { "192.0.2.7", 0, 64, "0.0.0.0/0" },
        { "2001:db8::1", 32, 128, "2001:db8::1" },
        { "2001:DB8:0:0:0:0:0:1", 32, 128, "2001:db8::1" },
        { "2001:db8:1:2:3:4:5:6", 32, 64, "2001:db8:1:2::/64" },
        { "2001:db8:1:ff77:3:4:5:6", 32, 52, "2001:db8:1:f000::/52" },
        { "2001:db8:1:ff77:3:4:5:6", 32, 50, "2001:db8:1:c000::/50" },
        { "2001:db8:1:2:3:4:5:6", 32, 127, "2001:db8:1:2:3:4:5:6/127" },
        { "2001:db8::1", 32, 0, "::/0" },
        { "[2001:db8::1]", 32, 128, "2001:db8::1" },
        { "[2001:db8::1]:443", 32, 128, "2001:db8::1" },
        { "2001:db8::1:443", 32, 128, "2001:db8::1:443" }, /* no port: it belongs to the address */
        { "fe80::1%eth0", 32, 128, "fe80::1" },
        { "[fe80::1%eth0]:80", 32, 128, "fe80::1" },
        { "fe80::1%eth0.100", 32, 128, "fe80::1" },
        { "::1", 32, 64, "::/64" },
        { "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 0, 128, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_str_eq(key_of_text(cases[i].text, cases[i].ipv4_bits, cases[i].ipv6_bits), cases[i].key);
}

TEST(what_is_not_an_address_is_refused, 30)
{
    static const char *const texts[] = {
        "-",
        "unix:",
        "localhost",
        "192.0.2",
        "192.0.2.7:",
        "192.0.2.7:http",
        "192.0.2.7:123456",
        "192.0.2.7:65536",
        "192.0.2.7:99999",
        "[2001:db8::1]:99999",
        "::1%eth0:1",
        "fe80::1%eth0.100:443",
        "192.0.2.7 ",
        " 192.0.2.7",
        "192.0.2.07",
        "192.0.2.7/24",
        "192.0.2.7%eth0",
        "[192.0.2.7]",
        "[2001:db8::1",
        "2001:db8::1]",
        "[2001:db8::1]443",
        "[2001:db8::1]:",
        "[]",
        "fe80::1%",
        "%eth0",
        ":",
        "::ffff:192.0.2",
        "192.0.2.7, 198.51.100.1",
    };
    char long_text[300], key[48] = "untouched";
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const struct weir_key text = weir_key_text(texts[i]);
        ck_assert_msg(weir_key_address_text(text, 32, 64, key, sizeof key) == WEIR_EINVAL, "%s", texts[i]);
    }
    memset(long_text, 'a', sizeof long_text);
    memcpy(long_text, "fe80::1%", 8);
    ck_assert_int_eq(weir_key_address_text(weir_key(long_text, sizeof long_text), 32, 64, key, sizeof key),
                     WEIR_EINVAL);
    ck_assert_int_eq(weir_key_address_text(weir_key("192.0.2.7\0x", 11), 32, 64, key, sizeof key), WEIR_EINVAL);
    ck_assert_int_eq(weir_key_address_text(weir_key("", 0), 32, 64, key, sizeof key), WEIR_EINVAL);
    ck_assert_int_eq(weir_key_address_text(weir_key(NULL, 0), 32, 64, key, sizeof key), WEIR_EINVAL);
    ck_assert_str_eq(key, "untouched");
}

/* The bytes may lie anywhere, such as in a caller's packed buffer. */
TEST(a_socket_address_makes_the_key_of_its_text, 30)
{
    static const char *const texts[] = { "192.0.2.7", "::ffff:192.0.2.7", "2001:db8:1:2:3:4:5:6", "::1" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        union {
            struct sockaddr any;
            struct sockaddr_in ipv4;
            struct sockaddr_in6 ipv6;
        } address = { .ipv6 = { .sin6_family = AF_INET6, .sin6_port = htons(40001), .sin6_scope_id = 2 } };
        if (inet_pton(AF_INET6, texts[i], &address.ipv6.sin6_addr) != 1) {
            address.ipv4 = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(40001) };
            ck_assert_int_eq(inet_pton(AF_INET, texts[i], &address.ipv4.sin_addr), 1);
        }
        for (int bits = 0; bits <= 32; bits += 8) {
            char key[49] = "";
            ck_assert_int_gt(weir_key_address(&address.any, bits, 4 * bits, key, sizeof key - 1), 0);
            ck_assert_str_eq(key, key_of_text(texts[i], bits, 4 * bits));
        }
    }
}

TEST(a_socket_address_of_another_family_is_refused, 30)
{
    const struct sockaddr_un path = { .sun_family = AF_UNIX, .sun_path = "/run/x" };
    const struct sockaddr_storage none = { .ss_family = AF_UNSPEC };
    char key[48] = "untouched";
    ck_assert_int_eq(weir_key_address((const struct sockaddr *)&path, 32, 64, key, sizeof key), WEIR_EINVAL);
    ck_assert_int_eq(weir_key_address((const struct sockaddr *)&none, 32, 64, key, sizeof key), WEIR_EINVAL);
    ck_assert_int_eq(weir_key_address(NULL, 32, 64, key, sizeof key), WEIR_EINVAL);
    ck_assert_str_eq(key, "untouched");
}

TEST(prefixes_and_room_are_checked, 30)
{
    const struct weir_key text = weir_key_text("192.0.2.7");
    char key[16] = "untouched";
    ck_assert_int_eq(weir_key_address_text(text, -1, 64, key, sizeof key), WEIR_EINVAL);
    ck_assert_int_eq(weir_key_address_text(text, 33, 64, key, sizeof key), WEIR_EINVAL);
    ck_assert_int_eq(weir_key_address_text(text, 32, -1, key, sizeof key), WEIR_EINVAL);
    ck_assert_int_eq(weir_key_address_text(text, 32, 129, key, sizeof key), WEIR_EINVAL);
    ck_assert_int_eq(weir_key_address_text(text, 32, 64, NULL, 1), WEIR_EINVAL);
    ck_assert_int_eq(weir_key_address_text(text, 32, 64, NULL, 0), 9);
    ck_assert_int_eq(weir_key_address_text(text, 32, 64, key, 8), 9);
    ck_assert_str_eq(key, "untouched");
}
