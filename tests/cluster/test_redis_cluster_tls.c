/* test_redis_cluster_tls.c - a cluster with TLS and a password: weir verifies every node's certificate and follows
 * redirects over TLS, as the user that docs/redis.md creates. */
#include "cluster_place.h"
#include "pki.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DAYS (24L * 3600)

static struct cluster common;
static char certificates[64], files[8][96];
static const char *words[9];

static const struct pki_wish wishes[] = {
    { "ca", NULL, NULL, -DAYS, 30 * DAYS },
    { "other-ca", NULL, NULL, -DAYS, 30 * DAYS },
    { "good", "ca", "IP:127.0.0.1", -DAYS, 30 * DAYS },
};

static const char *file_of(int which, const char *name, const char *kind)
{
    snprintf(files[which], sizeof files[which], "%s/%s.%s", certificates, name, kind);
    return files[which];
}

static void make_certificates(void)
{
    snprintf(certificates, sizeof certificates, "/tmp/weir-pki-XXXXXX");
    must(mkdtemp(certificates) != NULL, "a folder for certificates");
    for (size_t i = 0; i < sizeof wishes / sizeof wishes[0]; i++)
        must(pki_issue(certificates, &wishes[i]) == 0, wishes[i].name);
    const char *const line[] = { "--tls-cert-file",
                                 file_of(0, "good", "pem"),
                                 "--tls-key-file",
                                 file_of(1, "good", "key"),
                                 "--tls-ca-cert-file",
                                 file_of(2, "ca", "pem"),
                                 "--tls-auth-clients",
                                 "no",
                                 NULL };
    memcpy(words, line, sizeof line);
}

static void remove_certificates(void)
{
    for (size_t i = 0; i < sizeof wishes / sizeof wishes[0]; i++) {
        unlink(file_of(3, wishes[i].name, "pem"));
        unlink(file_of(3, wishes[i].name, "key"));
    }
    rmdir(certificates);
}

static struct weir_options secured_options(struct place *place, const char *user_info, const char *authority)
{
    static char url[256];
    struct weir_options options = cluster_options(place, &common, PATIENT_US);
    cluster_url(&common, 0, 2, user_info, url, sizeof url);
    options.redis_url = url;
    options.redis_ca_file = file_of(4, authority, "pem");
    return options;
}

TEST(all_primaries_and_redirect_targets_are_reached_by_tls, 60)
{
    CLOSED_BY(place_close) struct place place;
    char key[LOAD_KEY_SIZE];
    struct weir_options options = secured_options(&place, NULL, "ca");
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "secured", UNREFILLED);
    for (int primary = 0; primary < 3; primary++) {
        key_of(&common, primary, 0, key);
        unsigned slot = cluster_key_slot(key);
        ck_assert_int_eq(taken(limit, key, 1).source, WEIR_BY_REDIS);
        cluster_good(&common, cluster_slot_move(&common, slot, (cluster_owner(&common, slot) + 1) % 3));
        struct weir_decision decision = taken(limit, key, 1);
        ck_assert(decision.source == WEIR_BY_REDIS && decision.limit - decision.remaining == 2);
    }
    ck_assert_msg(place_log_lines(&place) == 0, "%s", place.log);
}

TEST(untrusted_nodes_and_wrong_passwords_are_logged, 60)
{
    static const struct {
        const char *user_info, *authority, *says;
    } rows[] = {
        { ":s3cret-marker@", "other-ca", "TLS: self-signed certificate in certificate chain" },
        { ":s3cret-marker-not@", "ca", "WRONGPASS" },
        { "", "ca", "NOAUTH" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CLOSED_BY(place_close) struct place place;
        struct weir_options options = secured_options(&place, rows[i].user_info, rows[i].authority);
        options.timeout_us = WEIR_SECOND;
        LIMITER(limiter, &options);
        weir_limit *limit = limit_of(limiter, "secured", UNREFILLED);
        assert_refused(&place, limit, rows[i].says);
        ck_assert_msg(!place_logged(&place, "marker"), "%s", place.log);
    }
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    make_certificates();
    const struct cluster_wish wish = { .tls = true, .password = "s3cret-marker", .server_words = words };
    const int status = suite_on_cluster(tests(), &common, &wish);
    remove_certificates();
    return status;
}
