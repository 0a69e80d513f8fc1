/* test_redis_url.c - Redis URLs that are accepted, those that are refused and how, and the sources of the password. */
#include "failing_alloc.h"
#include "support.h"

#include "backends/redis/wire/url.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TEN "1234567890"
#define FIFTY TEN TEN TEN TEN TEN
#define HUNDRED FIFTY FIFTY
#define TWO_HUNDRED_FIFTY HUNDRED HUNDRED FIFTY
#define HOSTS_4 "h,h,h,h"
#define HOSTS_16 HOSTS_4 "," HOSTS_4 "," HOSTS_4 "," HOSTS_4
#define SCHEMES \
    "redis://, rediss://, redis-sentinel://, rediss-sentinel://, redis-cluster://, rediss-cluster:// or unix://"
#define FIVE_HUNDRED TWO_HUNDRED_FIFTY TWO_HUNDRED_FIFTY

static char sentence[512];

static int read_target(const char *url, const char *password_file, struct redis_target *out)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = url;
    options.redis_password_file = password_file;
    sentence[0] = '\0';
    return redis_target_read(&options, out, (struct message){ sentence, sizeof sentence });
}

static void assert_text_is(const char *actual, const char *expected, const char *where)
{
    ck_assert_msg((!actual && !expected) || (actual && expected && strcmp(actual, expected) == 0),
                  "%s: \"%s\" is not \"%s\"", where, actual ? actual : "(none)", expected ? expected : "(none)");
}

static void clear_environment(void)
{
    unsetenv("WEIR_REDIS_PASSWORD");
    unsetenv("WEIR_REDIS_SENTINEL_PASSWORD");
}

/* ---- URLs ---- */

TEST(a_url_gives_host_port_path_user_password_and_db, 30)
{
    static const struct {
        const char *url;
        struct redis_target expected;
    } rows[] = {
        { "redis://localhost", { .host = "localhost", .port = 6379 } },
        { "redis://localhost/", { .host = "localhost", .port = 6379 } },
        { "redis://a_b-c.example.org:1/0", { .host = "a_b-c.example.org", .port = 1 } },
        { "redis://127.0.0.1:65535/65535", { .host = "127.0.0.1", .port = 65535, .db = 65535 } },
        { "redis://h:00080/007", { .host = "h", .port = 80, .db = 7 } },
        { "redis://[::1]", { .host = "::1", .port = 6379 } },
        { "redis://[2001:db8::7]:7000/3", { .host = "2001:db8::7", .port = 7000, .db = 3 } },
        { "redis://[fe80::1%25eth0]:7000", { .host = "fe80::1%eth0", .port = 7000 } },
        { "redis://[::ffff:192.0.2.1]/1", { .host = "::ffff:192.0.2.1", .port = 6379, .db = 1 } },
        { "redis://:pw@h", { .host = "h", .port = 6379, .password = "pw" } },
        { "redis://u:pw@h:1/2", { .host = "h", .port = 1, .user = "u", .password = "pw", .db = 2 } },
        { "redis://u:p:w@[::1]:1", { .host = "::1", .port = 1, .user = "u", .password = "p:w" } },
        { "redis://@h", { .host = "h", .port = 6379 } },
        { "redis://:@h", { .host = "h", .port = 6379 } },
        { "redis://u%3A%40%2F:%25%3f%0a@h", { .host = "h", .port = 6379, .user = "u:@/", .password = "%?\n" } },
        { "redis://u%c3%A9:p\xc3\xa9@h", { .host = "h", .port = 6379, .user = "u\xc3\xa9", .password = "p\xc3\xa9" } },
        { "unix:///run/redis.sock", { .is_unix = true, .path = "/run/redis.sock" } },
        { "unix:///run/redis.sock?db=9", { .is_unix = true, .path = "/run/redis.sock", .db = 9 } },
        { "unix://u:pw@/r", { .is_unix = true, .path = "/r", .user = "u", .password = "pw" } },
        { "unix://:pw@/r?db=65535", { .is_unix = true, .path = "/r", .password = "pw", .db = 65535 } },
        { "unix:///a%20b%3F%23%25", { .is_unix = true, .path = "/a b?#%" } },
        { "unix:///a:b[c]&d=e", { .is_unix = true, .path = "/a:b[c]&d=e" } },
    };
    clear_environment();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct redis_target *expected = &rows[i].expected;
        CLOSED_BY(redis_target_free) struct redis_target target;
        int error = read_target(rows[i].url, NULL, &target);
        ck_assert_msg(error == WEIR_OK, "%s: %s", rows[i].url, sentence);
        ck_assert_str_eq(sentence, "");
        ck_assert_msg(target.is_unix == expected->is_unix, "%s", rows[i].url);
        assert_text_is(target.host, expected->host, rows[i].url);
        assert_text_is(target.path, expected->path, rows[i].url);
        assert_text_is(target.user, expected->user, rows[i].url);
        assert_text_is(target.password, expected->password, rows[i].url);
        ck_assert_msg(target.port == expected->port && target.db == expected->db, "%s: port %d, db %d", rows[i].url,
                      target.port, target.db);
    }
}

TEST(a_url_of_sentinels_or_of_a_cluster_gives_each_host, 30)
{
    static const struct {
        const char *url;
        struct redis_target expected;
    } rows[] = {
        { "redis-sentinel://h/mymaster", { .service = "mymaster", .hosts = { { "h", 26379 } } } },
        { "redis-sentinel://a:1,b,c:65535/m?db=7",
          { .service = "m", .hosts = { { "a", 1 }, { "b", 26379 }, { "c", 65535 } }, .db = 7 } },
        { "redis-sentinel://[::1],[2001:db8::7]:7000,127.0.0.1/m",
          { .service = "m", .hosts = { { "::1", 26379 }, { "2001:db8::7", 7000 }, { "127.0.0.1", 26379 } } } },
        { "redis-sentinel://u:p%2Cw,@h,h/m",
          { .service = "m", .hosts = { { "h", 26379 }, { "h", 26379 } }, .user = "u", .password = "p,w," } },
        { "rediss-sentinel://:pw@h/a%2Fb%23%3f%20%C3%A9",
          { .service = "a/b#? \xc3\xa9", .hosts = { { "h", 26379 } }, .password = "pw", .is_tls = true } },
        { "redis-sentinel://h/[m]:1,x&db=2", { .service = "[m]:1,x&db=2", .hosts = { { "h", 26379 } } } },
        { "redis-cluster://h", { .is_cluster = true, .hosts = { { "h", 6379 } } } },
        { "redis-cluster://u:p%2Cw,@a:1,[::1],b:65535/",
          { .is_cluster = true,
            .hosts = { { "a", 1 }, { "::1", 6379 }, { "b", 65535 } },
            .user = "u",
            .password = "p,w," } },
        { "rediss-cluster://:pw@[fe80::1%25eth0]:7000,h",
          { .is_cluster = true,
            .hosts = { { "fe80::1%eth0", 7000 }, { "h", 6379 } },
            .password = "pw",
            .is_tls = true } },
    };
    clear_environment();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct redis_target *expected = &rows[i].expected;
        struct redis_target target;
        int error = read_target(rows[i].url, NULL, &target);
        ck_assert_msg(error == WEIR_OK, "%s: %s", rows[i].url, sentence);
        size_t count = 0;
        for (; count < REDIS_HOSTS_MAX && expected->hosts[count].name; count++) {
            assert_text_is(target.hosts[count].name, expected->hosts[count].name, rows[i].url);
            ck_assert_int_eq(target.hosts[count].port, expected->hosts[count].port);
        }
        ck_assert_uint_eq(target.host_count, count);
        assert_text_is(target.service, expected->service, rows[i].url);
        assert_text_is(target.user, expected->user, rows[i].url);
        assert_text_is(target.password, expected->password, rows[i].url);
        ck_assert(!target.host && !target.path && !target.is_unix && target.port == 0);
        ck_assert(!target.sentinel_user && !target.sentinel_password);
        ck_assert_msg(target.db == expected->db && target.is_tls == expected->is_tls &&
                          target.is_cluster == expected->is_cluster,
                      "%s", rows[i].url);
        redis_target_free(&target);
        ck_assert(!target.service && target.host_count == 0);
    }
    struct redis_target most;
    ck_assert_int_eq(read_target("redis-sentinel://" HOSTS_16 "/" TWO_HUNDRED_FIFTY "12345", NULL, &most), WEIR_OK);
    ck_assert_uint_eq(most.host_count, 16);
    ck_assert_uint_eq(strlen(most.service), 255);
    redis_target_free(&most);
    ck_assert_int_eq(read_target("redis-cluster://" HOSTS_16, NULL, &most), WEIR_OK);
    ck_assert_uint_eq(most.host_count, 16);
    redis_target_free(&most);
}

/* The marker is in every place of a secret, including those where a stray byte makes the parser take the secret for
 * something else. */
TEST(a_bad_url_is_refused_by_its_part_and_never_quoted, 30)
{
    static const struct {
        const char *url, *says;
    } rows[] = {
        { NULL, "redis_url is required" },
        { "", "redis_url is required" },
        { "SECRET", "must begin with " SCHEMES },
        { "localhost:6379", "must begin with " SCHEMES },
        { "http://:SECRET@h", "must begin with " SCHEMES },
        { "redis:/h", "must begin with " SCHEMES },
        { "redis:h", "must begin with " SCHEMES },
        { "REDIS://h", "must begin with " SCHEMES },
        { "rediss:h", "must begin with " SCHEMES },
        { "rediss://h?db=SECRET", "rediss:// takes no '?'" },
        { "redis-sentinel:h/name", "must begin with redis://" },
        { "rediss-sentinels://:SECRET@h/name", "must begin with redis://" },
        { "redis-sentinel://:SECRET@h", "the service's name is missing" },
        { "redis-sentinel://:SECRET@h/", "the service's name is missing" },
        { "redis-sentinel://:SECRET@h/?db=1", "the service's name is missing" },
        { "redis-sentinel://:SECRET@h?db=1", "the service's name is missing" },
        { "redis-sentinel://:SECRET@/name", "the host is missing" },
        { "redis-sentinel://:SECRET@h,/name", "the host is missing" },
        { "redis-sentinel://:SECRET@,h/name", "the host is missing" },
        { "redis-sentinel://:SECRET@h,,h/name", "the host is missing" },
        { "redis-sentinel://h:1,h:SECRET/name", "the port must be 1 to 65535" },
        { "redis-sentinel://h:1,h:0/name", "the port must be 1 to 65535" },
        { "redis-sentinel://[::1],[::1/name", "the bracket before the address is never closed" },
        { "redis-sentinel://[::1,::2]/name", "the bracket before the address is never closed" },
        { "redis-sentinel://[::1]h,h/name", "after the brackets a ':' and the port are expected" },
        { "redis-sentinel://" HOSTS_16 ",h/name", "there are more than 16 hosts" },
        { "redis-sentinel://:SECRET@h/name/3", "in the service's name a '/' is written %2F" },
        { "redis-sentinel://:SECRET@h/name#3", "in the service's name a '/' is written %2F and a '#' %23" },
        { "redis-sentinel://:SECRET@h/name%0", "a '%' in the service's name is not followed by two hex digits" },
        { "redis-sentinel://:SECRET@h/name%00", "%00 in the service's name" },
        { "redis-sentinel://:SECRET@h/" TWO_HUNDRED_FIFTY "123456", "the service's name is longer than 255 bytes" },
        { "redis-sentinel://h/name?", "after the '?' only db=N is known" },
        { "redis-sentinel://h/name?password=SECRET", "after the '?' only db=N is known" },
        { "redis-sentinel://h/name?db=65536", "the db must be 0 to 65535" },
        { "redis-sentinel://u:a/SECRET@h/name", "an '@' of a user, password or path is written %40" },
        { "redis-sentinel://u:SECRET@h,u:SECRET@h/name", "an '@' of a user, password or path is written %40" },
        { "redis-sentinel://SECRET@h/name", "redis_url has a user, but there is no password" },
        { "redis-cluster:h", "must begin with " SCHEMES },
        { "rediss-clusters://:SECRET@h", "must begin with " SCHEMES },
        { "redis-cluster://", "the host is missing" },
        { "redis-cluster://:SECRET@/", "the host is missing" },
        { "redis-cluster://:SECRET@h,", "the host is missing" },
        { "redis-cluster://h,,h", "the host is missing" },
        { "redis-cluster://h:1,h:SECRET", "the port must be 1 to 65535" },
        { "redis-cluster://[::1],[::1", "the bracket before the address is never closed" },
        { "redis-cluster://" HOSTS_16 ",h", "there are more than 16 hosts" },
        { "redis-cluster://:SECRET@h/0", "nothing may follow the hosts of redis-cluster://" },
        { "redis-cluster://:SECRET@h//", "nothing may follow the hosts of redis-cluster://" },
        { "rediss-cluster://h/?db=SECRET", "nothing may follow the hosts of redis-cluster://" },
        { "redis-cluster://h?db=0", "nothing may follow the hosts of redis-cluster://" },
        { "redis-cluster://h#SECRET", "nothing may follow the hosts of redis-cluster://" },
        { "redis-cluster://u:a/SECRET@h", "an '@' of a user, password or path is written %40" },
        { "redis-cluster://SECRET@h", "redis_url has a user, but there is no password" },
        { "redis://", "the host is missing" },
        { "redis:///3", "the host is missing" },
        { "redis://:6379", "the host is missing" },
        { "redis://:SECRET@", "the host is missing" },
        { "redis://:SECRET@:6379/0", "the host is missing" },
        { "redis://h%41", "the host may have letters" },
        { "redis://a,b", "the host may have letters" },
        { "redis://\xc3\xa9", "the host may have letters" },
        { "redis://::1", "the host is missing" },
        { "redis://h:", "the port must be 1 to 65535" },
        { "redis://h:0", "the port must be 1 to 65535" },
        { "redis://h:65536", "the port must be 1 to 65535" },
        { "redis://h:4294967297", "the port must be 1 to 65535" },
        { "redis://h:+1", "the port must be 1 to 65535" },
        { "redis://h:-1", "the port must be 1 to 65535" },
        { "redis://h:1:2", "the port must be 1 to 65535" },
        { "redis://h:SECRET", "the port must be 1 to 65535" },
        { "redis://[::1]:", "the port must be 1 to 65535" },
        { "redis://[::1", "the bracket before the address is never closed" },
        { "redis://[]", "the host in brackets is not an IPv6 address" },
        { "redis://[h]", "the host in brackets is not an IPv6 address" },
        { "redis://[127.0.0.1]", "the host in brackets is not an IPv6 address" },
        { "redis://[1::2::3]", "the host in brackets is not an IPv6 address" },
        { "redis://[fe80::1%25]", "the host in brackets is not an IPv6 address" },
        { "redis://[fe80::1%eth0]", "the host in brackets is not an IPv6 address" },
        { "redis://[fe80::1%25a%b]", "the host in brackets is not an IPv6 address" },
        { "redis://[::1]1", "after the brackets a ':' and the port are expected" },
        { "redis://[::1]x:1", "after the brackets a ':' and the port are expected" },
        { "redis://h/65536", "the db must be 0 to 65535" },
        { "redis://h/-1", "the db must be 0 to 65535" },
        { "redis://h/0/", "the db must be 0 to 65535" },
        { "redis://h//", "the db must be 0 to 65535" },
        { "redis://h/1x", "the db must be 0 to 65535" },
        { "redis://h/18446744073709551616", "the db must be 0 to 65535" },
        { "redis://h?db=1", "redis:// takes no '?' or '#'" },
        { "redis://h/1?timeout=1", "redis:// takes no '?' or '#'" },
        { "redis://h/1#x", "redis:// takes no '?' or '#'" },
        { "redis://:SECRET%@h", "a '%' in the password is not followed by two hex digits" },
        { "redis://:SECRET%4@h", "a '%' in the password is not followed by two hex digits" },
        { "redis://:%4gSECRET@h", "a '%' in the password is not followed by two hex digits" },
        { "redis://SECRET%-1:x@h", "a '%' in the user is not followed by two hex digits" },
        { "redis://:SECRET%00@h", "%00 in the password" },
        { "redis://SECRET%00:x@h", "%00 in the user" },
        { "redis://u:a/SECRET@h", "an '@' of a user, password or path is written %40" },
        { "redis://u:a?SECRET@h", "an '@' of a user, password or path is written %40" },
        { "redis://u:a#SECRET@h", "an '@' of a user, password or path is written %40" },
        { "redis://u:a@SECRET@h", "an '@' of a user, password or path is written %40" },
        { "redis://:SEC RET@h", "a blank or control byte is written %XX" },
        { "redis://:SECRET\n@h", "a blank or control byte is written %XX" },
        { "redis://:SECRET\x7f@h", "a blank or control byte is written %XX" },
        { " redis://:SECRET@h", "a blank or control byte is written %XX" },
        { "redis://SECRET@h", "redis_url has a user, but there is no password" },
        { "unix://", "the path of unix:// must begin with '/'" },
        { "unix://run/redis.sock", "the path of unix:// must begin with '/'" },
        { "unix://:SECRET@", "the path of unix:// must begin with '/'" },
        { "unix://?db=1", "the path of unix:// must begin with '/'" },
        { "unix:///r?", "after the '?' only db=N is known" },
        { "unix:///r?d=1", "after the '?' only db=N is known" },
        { "unix:///r?db", "after the '?' only db=N is known" },
        { "unix:///r?password=SECRET", "after the '?' only db=N is known" },
        { "unix:///r?db=", "the db must be 0 to 65535" },
        { "unix:///r?db=65536", "the db must be 0 to 65535" },
        { "unix:///r?db=1&db=2", "the db must be 0 to 65535" },
        { "unix:///r#x", "a '#' in the path is written %23" },
        { "unix:///r%0", "a '%' in the path is not followed by two hex digits" },
        { "unix:///r%00", "%00 in the path" },
        { "redis://:" FIVE_HUNDRED TEN "123@h", "the password is longer than 512 bytes" },
        { "redis://" FIVE_HUNDRED TEN "123:x@h", "the user is longer than 512 bytes" },
        { "redis://" TWO_HUNDRED_FIFTY "1234", "the host is longer than 253 bytes" },
        { "redis://[" TWO_HUNDRED_FIFTY "1234]", "the host in brackets is not an IPv6 address" },
        { "unix:///" HUNDRED "1234567", "the path is longer than 107 bytes" },
    };
    clear_environment();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct redis_target target = { .port = 4711 };
        int error = read_target(rows[i].url, NULL, &target);
        ck_assert_msg(error == WEIR_EINVAL, "%s: %d", rows[i].url, error);
        ck_assert_msg(target.port == 4711 && !target.host, "%s: the target was touched", rows[i].url);
        ck_assert_msg(strstr(sentence, rows[i].says), "%s: \"%s\" does not say \"%s\"", rows[i].url, sentence,
                      rows[i].says);
        ck_assert_msg(strncmp(sentence, "redis_url", 9) == 0, "%s", sentence);
        ck_assert_msg(!strstr(sentence, "SEC") && !strstr(sentence, TEN), "\"%s\" quotes a secret", sentence);
    }
}

TEST(a_url_with_parts_of_the_greatest_length_is_accepted, 30)
{
    struct redis_target target;
    clear_environment();
    ck_assert_int_eq(
        read_target("redis://" FIVE_HUNDRED TEN "12:" FIVE_HUNDRED TEN "12@" TWO_HUNDRED_FIFTY "123", NULL, &target),
        WEIR_OK);
    ck_assert_uint_eq(strlen(target.user), 512);
    ck_assert_uint_eq(strlen(target.password), 512);
    ck_assert_uint_eq(strlen(target.host), 253);
    redis_target_free(&target);
    ck_assert_int_eq(read_target("unix:///" HUNDRED "123%34%35%36", NULL, &target), WEIR_OK);
    ck_assert_uint_eq(strlen(target.path), 107);
    redis_target_free(&target);
}

TEST(freeing_a_redis_target_zeroes_it_and_may_be_repeated, 30)
{
    struct redis_target target;
    clear_environment();
    ck_assert_int_eq(read_target("redis://u:pw@h:1/2", NULL, &target), WEIR_OK);
    for (int times = 0; times < 2; times++) {
        redis_target_free(&target);
        ck_assert(!target.host && !target.path && !target.user && !target.password && !target.port && !target.db);
    }
}

/* Any bytes give a valid target or an error sentence; ASan checks that no byte past the text is read. */
TEST(random_urls_are_read_or_refused, 60)
{
    static const char *const pieces[] = { "redis://",
                                          "unix://",
                                          "redis-sentinel://",
                                          "redis-cluster://",
                                          ",",
                                          "rediss://",
                                          ":",
                                          "@",
                                          "/",
                                          "?db=",
                                          "#",
                                          "%",
                                          "%4",
                                          "%25",
                                          "[",
                                          "]",
                                          "::1",
                                          "h",
                                          "1",
                                          "65536",
                                          "\xff",
                                          "%00",
                                          "u" };
    enum { PIECES = sizeof pieces / sizeof pieces[0] };
    struct chance chance = chance_make(0);
    int64_t read = 0;
    clear_environment();
    for (int64_t i = 0, urls = steps_or(200000); i < urls; i++) {
        char text[192] = "";
        if (!chance_one_in(&chance, 8))
            strcpy(text, pieces[chance_between(&chance, 0, 3)]);
        for (int64_t j = chance_between(&chance, 0, 8); j > 0; j--)
            strcat(text, pieces[chance_between(&chance, 0, PIECES - 1)]);
        char *url = strdup(text); /* an exact copy */
        struct redis_target target;
        int error = read_target(url, NULL, &target);
        must(error == WEIR_OK || (error == WEIR_EINVAL && sentence[0]), "read, or refused with a sentence");
        if (error == WEIR_OK) {
            must(target.is_unix ? target.path && !target.host && target.path[0] == '/' : !target.path, "a path");
            must((target.host != NULL) == (!target.is_unix && !target.service && !target.is_cluster), "a host");
            must(target.host ? target.port >= 1 && target.port <= 65535 : target.port == 0, "a port in range");
            must((target.service || target.is_cluster) == (target.host_count > 0), "hosts of sentinels or a cluster");
            must(!target.is_cluster || (!target.service && target.db == 0), "a cluster has no more");
            for (size_t j = 0; j < target.host_count; j++)
                must(target.hosts[j].name && target.hosts[j].port >= 1 && target.hosts[j].port <= 65535,
                     "a host has a name and a port in range");
            must(target.db >= 0 && target.db <= REDIS_DB_MAX, "a db in range");
            must(!target.user || target.password, "a user has a password");
            redis_target_free(&target);
            read++;
        }
        free(url);
    }
    ck_assert_int_gt(read, 0);
}

/* ---- Passwords ---- */

static char folder[] = "/tmp/weir-test-url-XXXXXX";
static char file[sizeof folder + 16];

static void make_folder(void)
{
    clear_environment();
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/password", folder);
}

static void remove_folder(void)
{
    unlink(file);
    ck_assert_int_eq(rmdir(folder), 0);
}

static void write_file(const char *bytes, size_t len)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, bytes, len), (ssize_t)len);
    close(fd);
}

TEST(the_password_comes_from_the_url_then_the_file_then_the_environment, 30)
{
    static const struct {
        const char *url;
        bool has_file;
        const char *environment, *password;
    } rows[] = {
        { "redis://u:of-url@h", true, "of-env", "of-url" },
        { "redis://:of-url@h", false, "of-env", "of-url" },
        { "redis://u@h", true, "of-env", "of-file" },
        { "redis://u:@h", true, "of-env", "of-file" },
        { "redis://h", true, NULL, "of-file" },
        { "unix:///r", true, "of-env", "of-file" },
        { "redis://u@h", false, "of-env", "of-env" },
        { "unix://u@/r", false, "of-env", "of-env" },
        { "redis://h", false, "of-env", "of-env" },
        { "redis://h", false, "", NULL },
        { "redis://h", false, NULL, NULL },
    };
    make_folder();
    write_file("of-file\n", 8);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        clear_environment();
        if (rows[i].environment)
            setenv("WEIR_REDIS_PASSWORD", rows[i].environment, 1);
        CLOSED_BY(redis_target_free) struct redis_target target;
        ck_assert_msg(read_target(rows[i].url, rows[i].has_file ? file : NULL, &target) == WEIR_OK, "%s", sentence);
        assert_text_is(target.password, rows[i].password, rows[i].url);
    }
    remove_folder();
}

TEST(the_password_is_the_files_first_line_without_its_line_end, 30)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *password; /* NULL: refused */
        const char *says;
    } rows[] = {
        { "pw", 2, "pw", NULL },
        { "pw\n", 3, "pw", NULL },
        { "pw\r\n", 4, "pw", NULL },
        { "pw\r\r\n", 5, "pw", NULL },
        { "pw\nSECRET\n", 10, "pw", NULL },
        { " p w \n", 6, " p w ", NULL },
        { "p\rw\n", 4, "p\rw", NULL },
        { "%41\n", 4, "%41", NULL },
        { FIVE_HUNDRED TEN "12", 512, FIVE_HUNDRED TEN "12", NULL },
        { FIVE_HUNDRED TEN "12\r\n", 514, FIVE_HUNDRED TEN "12", NULL },
        { "", 0, NULL, "\" has an empty first line" },
        { "\n", 1, NULL, "\" has an empty first line" },
        { "\r\nSECRET", 8, NULL, "\" has an empty first line" },
        { "SEC\0RET\n", 8, NULL, "redis_password_file: the password has a NUL byte" },
        { FIVE_HUNDRED TEN "123", 513, NULL, "redis_password_file: the password is longer than 512 bytes" },
        { FIVE_HUNDRED FIVE_HUNDRED, 1000, NULL, "redis_password_file: the password is longer than 512 bytes" },
    };
    make_folder();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_file(rows[i].bytes, rows[i].len);
        struct redis_target target;
        int error = read_target("redis://h", file, &target);
        ck_assert_msg(error == (rows[i].password ? WEIR_OK : WEIR_EINVAL), "row %zu: %d, %s", i, error, sentence);
        if (error == WEIR_OK) {
            assert_text_is(target.password, rows[i].password, "file");
            redis_target_free(&target);
        } else {
            ck_assert_msg(strstr(sentence, rows[i].says), "\"%s\" does not say \"%s\"", sentence, rows[i].says);
            ck_assert_msg(!strstr(sentence, "SEC") && !strstr(sentence, TEN), "\"%s\" quotes a secret", sentence);
        }
    }
    remove_folder();
}

TEST(a_file_that_cannot_be_read_is_an_error_that_names_it, 30)
{
    struct redis_target target;
    make_folder();
    setenv("WEIR_REDIS_PASSWORD", "of-env", 1); /* an invalid source is not skipped */
    const struct {
        const char *path;
        int code;
    } rows[] = { { file, ENOENT }, { folder, EISDIR } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char says[256];
        snprintf(says, sizeof says, "redis_password_file \"%s\" cannot be read: %s", rows[i].path,
                 strerror(rows[i].code));
        ck_assert_int_eq(read_target("redis://h", rows[i].path, &target), WEIR_EIO);
        ck_assert_str_eq(sentence, says);
    }
    ck_assert_int_eq(read_target("redis://:pw@h", file, &target), WEIR_OK); /* not consulted */
    redis_target_free(&target);
    remove_folder();
}

TEST(a_password_in_the_environment_that_is_too_long_is_refused, 30)
{
    CLOSED_BY(redis_target_free) struct redis_target target;
    setenv("WEIR_REDIS_PASSWORD", FIVE_HUNDRED TEN "123", 1);
    ck_assert_int_eq(read_target("redis://h", NULL, &target), WEIR_EINVAL);
    ck_assert_str_eq(sentence, "WEIR_REDIS_PASSWORD: the password is longer than 512 bytes");
    setenv("WEIR_REDIS_PASSWORD", FIVE_HUNDRED TEN "12", 1);
    ck_assert_int_eq(read_target("redis://h", NULL, &target), WEIR_OK);
    ck_assert_uint_eq(strlen(target.password), 512);
}

/* ---- The sentinels' password ---- */

TEST(the_user_and_password_for_sentinels_are_separate, 30)
{
    static const struct {
        const char *url, *user;
        bool has_file;
        const char *environment, *expected_user, *expected_password;
    } rows[] = {
        { "redis-sentinel://su:spw@h/m", NULL, false, NULL, NULL, NULL },
        { "redis-sentinel://h/m", NULL, true, "of-env", NULL, "of-file" },
        { "redis-sentinel://su:spw@h/m", "watcher", true, "of-env", "watcher", "of-file" },
        { "redis-sentinel://h/m", "watcher", false, "of-env", "watcher", "of-env" },
        { "redis-sentinel://h/m", "", false, "of-env", NULL, "of-env" },
        { "redis-sentinel://h/m", NULL, false, "", NULL, NULL },
        { "redis://h", NULL, false, "of-env", NULL, NULL }, /* not consulted */
    };
    make_folder();
    write_file("of-file\n", 8);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir_options options = WEIR_OPTIONS_INIT;
        struct redis_target target;
        options.redis_url = rows[i].url;
        options.redis_sentinel_user = rows[i].user;
        options.redis_sentinel_password_file = rows[i].has_file ? file : NULL;
        clear_environment();
        if (rows[i].environment)
            setenv("WEIR_REDIS_SENTINEL_PASSWORD", rows[i].environment, 1);
        ck_assert_msg(redis_target_read(&options, &target, (struct message){ sentence, sizeof sentence }) == WEIR_OK,
                      "row %zu: %s", i, sentence);
        assert_text_is(target.sentinel_user, rows[i].expected_user, rows[i].url);
        assert_text_is(target.sentinel_password, rows[i].expected_password, rows[i].url);
        assert_text_is(target.user, strstr(rows[i].url, "su:") ? "su" : NULL, rows[i].url);
        assert_text_is(target.password, strstr(rows[i].url, "su:") ? "spw" : NULL, rows[i].url);
        redis_target_free(&target);
        ck_assert(!target.sentinel_user && !target.sentinel_password);
    }
    remove_folder();
}

TEST(a_bad_sentinel_password_is_refused_by_the_name_of_its_option, 30)
{
    static const struct {
        const char *url, *user, *file, *environment;
        int error;
        const char *says;
    } rows[] = {
        { "redis://h", "SECRET", NULL, NULL, WEIR_EINVAL, "redis_sentinel_user is for a redis_url that begins with" },
        { "unix:///r", "", NULL, NULL, WEIR_EINVAL, "redis_sentinel_user is for a redis_url that begins with" },
        { "redis-cluster://h", "u", NULL, NULL, WEIR_EINVAL,
          "redis_sentinel_user is for a redis_url that begins with" },
        { "redis://h", NULL, "/nowhere", NULL, WEIR_EINVAL, "redis_sentinel_password_file is for a redis_url" },
        { "redis-sentinel://h/m", NULL, "/nowhere", NULL, WEIR_EIO,
          "redis_sentinel_password_file \"/nowhere\" cannot be read" },
        { "redis-sentinel://h/m", "SECRET", NULL, NULL, WEIR_EINVAL,
          "redis_sentinel_user is given, but there is no password, no redis_sentinel_password_file, no "
          "WEIR_REDIS_SENTINEL_PASSWORD in the environment" },
        { "redis-sentinel://h/m", FIVE_HUNDRED TEN "123", NULL, "SECRET", WEIR_EINVAL,
          "redis_sentinel_user: the user is longer than 512 bytes" },
        { "redis-sentinel://h/m", NULL, NULL, FIVE_HUNDRED TEN "123", WEIR_EINVAL,
          "WEIR_REDIS_SENTINEL_PASSWORD: the password is longer than 512 bytes" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir_options options = WEIR_OPTIONS_INIT;
        struct redis_target target = { .port = 4711 };
        options.redis_url = rows[i].url;
        options.redis_sentinel_user = rows[i].user;
        options.redis_sentinel_password_file = rows[i].file;
        clear_environment();
        if (rows[i].environment)
            setenv("WEIR_REDIS_SENTINEL_PASSWORD", rows[i].environment, 1);
        int error = redis_target_read(&options, &target, (struct message){ sentence, sizeof sentence });
        ck_assert_msg(error == rows[i].error, "row %zu: %d", i, error);
        ck_assert_msg(strstr(sentence, rows[i].says), "row %zu: \"%s\"", i, sentence);
        ck_assert_msg(!strstr(sentence, "SECRET") && !strstr(sentence, TEN), "\"%s\" quotes a secret", sentence);
        ck_assert_int_eq(target.port, 4711);
    }
}

/* ---- Memory ---- */

/* Parse with allocation number `number` failing; return false if there are fewer. */
static bool read_without(int64_t number, const struct weir_options *options)
{
    struct redis_target target = { .port = 4711 };
    alloc_watch(number, false);
    sentence[0] = '\0';
    const int error = redis_target_read(options, &target, (struct message){ sentence, sizeof sentence });
    const bool failed = alloc_failed();
    if (!error)
        redis_target_free(&target);
    alloc_pause();
    ck_assert_int_eq(alloc_live_blocks(), 0);
    ck_assert_msg(error == (failed ? WEIR_ENOMEM : WEIR_OK), "allocation %lld of %s: %d, %s", (long long)number,
                  options->redis_url, error, sentence);
    ck_assert_msg(failed == (strstr(sentence, ": out of memory") != NULL), "%s", sentence);
    ck_assert(!strstr(sentence, "SECRET"));
    ck_assert(!failed || target.port == 4711);
    return failed;
}

TEST(a_target_without_memory_fails_and_leaks_nothing, 30)
{
    static const struct {
        const char *url, *user, *environment, *sentinel_environment;
        int64_t allocations;
    } rows[] = {
        { "redis://h", NULL, NULL, NULL, 1 },
        { "redis://user:SECRET@[::1]:7000/3", NULL, NULL, NULL, 3 },
        { "redis://user@h", NULL, "SECRET", NULL, 3 },
        { "unix://:SECRET@/run/redis.sock", NULL, NULL, NULL, 2 },
        { "redis-cluster://:SECRET@a,b,[::1],c", NULL, NULL, NULL, 5 },
        { "redis-sentinel://user:SECRET@a,[::1]/service", "user", NULL, "SECRET", 7 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir_options options = WEIR_OPTIONS_INIT;
        options.redis_url = rows[i].url;
        options.redis_sentinel_user = rows[i].user;
        clear_environment();
        if (rows[i].environment)
            setenv("WEIR_REDIS_PASSWORD", rows[i].environment, 1);
        if (rows[i].sentinel_environment)
            setenv("WEIR_REDIS_SENTINEL_PASSWORD", rows[i].sentinel_environment, 1);
        int64_t number = 1;
        while (read_without(number, &options))
            number++;
        ck_assert_msg(number == rows[i].allocations + 1, "%s: %lld", rows[i].url, (long long)number - 1);
    }
    clear_environment();
}
