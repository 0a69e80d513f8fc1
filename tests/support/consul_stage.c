/* consul_stage.c - a source that follows a fake agent: see consul_stage.h. */
#include "consul_stage.h"

#include "backends/consul/consul.h"
#include "lab/scratch.h"

#include <curl/curl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_int curl_inits;

CURLcode __wrap_curl_global_init(long flags);
CURLcode __real_curl_global_init(long flags);

CURLcode __wrap_curl_global_init(long flags)
{
    curl_inits++;
    return __real_curl_global_init(flags);
}

int stage_curl_inits(void)
{
    return curl_inits;
}

static char ca_path[128] = "not set";

#undef curl_easy_setopt
CURLcode __wrap_curl_easy_setopt(CURL *easy, CURLoption option, ...);
CURLcode __real_curl_easy_setopt(CURL *easy, CURLoption option, ...);

/* Weir only sets pointers and longs, which have the same size: forward a word. */
CURLcode __wrap_curl_easy_setopt(CURL *easy, CURLoption option, ...)
{
    va_list arguments;
    va_start(arguments, option);
    void *value = va_arg(arguments, void *);
    va_end(arguments);
    if (option == CURLOPT_CAPATH)
        snprintf(ca_path, sizeof ca_path, "%s", value != NULL ? (const char *)value : "");
    return __real_curl_easy_setopt(easy, option, value);
}

const char *stage_ca_path(void)
{
    return ca_path;
}

static struct curl_slist *_Atomic headers; /* a follower's thread writes it */

struct curl_slist *__wrap_curl_slist_append(struct curl_slist *list, const char *line);
struct curl_slist *__real_curl_slist_append(struct curl_slist *list, const char *line);

struct curl_slist *__wrap_curl_slist_append(struct curl_slist *list, const char *line)
{
    struct curl_slist *all = __real_curl_slist_append(list, line);
    atomic_store(&headers, all);
    return all;
}

bool stage_headers_hold(const char *text)
{
    for (const struct curl_slist *line = atomic_load(&headers); line != NULL; line = line->next)
        if (strstr(line->data, text) != NULL)
            return true;
    return false;
}

static void hear(void *user, enum weir_log_level level, const char *line)
{
    struct consul_stage *stage = user;
    ck_assert_msg(stage->secret == NULL || strstr(line, stage->secret) == NULL, "a secret is logged: %s", line);
    snprintf(stage->last_line, sizeof stage->last_line, "%s", line);
    stage->log_lines++;
}

void stage_set(struct consul_stage *stage, enum fake_place place)
{
    static const char *const variables[] = { "CONSUL_HTTP_ADDR", "CONSUL_HTTP_TOKEN",  "CONSUL_HTTP_TOKEN_FILE",
                                             "CONSUL_CACERT",    "CONSUL_CLIENT_CERT", "CONSUL_CLIENT_KEY" };
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        unsetenv(variables[i]);
    told_reset();
    *stage = (struct consul_stage){ .fake = fake_consul_start(place) };
    ck_assert_ptr_nonnull(stage->fake);
    fake_consul_page(stage->fake, HEALTH, 200, 10, ONLY_A);
    stage->consul = (struct weir_consul){ .size = sizeof stage->consul,
                                          .address = fake_consul_address(stage->fake),
                                          .wait_us = 10 * WEIR_MINUTE,
                                          .timeout_us = 20 * WEIR_SECOND };
    stage->peers = (struct weir_peers){ .size = sizeof stage->peers, .service = "api", .id = "a" };
    struct weir_options options = WEIR_OPTIONS_INIT;
    stage->options = options;
    stage->options.peers = &stage->peers;
    stage->options.consul = &stage->consul;
    stage->options.log = hear;
    stage->options.user = stage;
}

int stage_try(struct consul_stage *stage)
{
    struct weir_options plain = WEIR_OPTIONS_INIT;
    plain.log = stage->options.log;
    plain.user = stage;
    must_succeed(weir_open(&plain, &stage->limiter));
    return consul_follow(&stage->options, stage->limiter);
}

void stage_start(struct consul_stage *stage)
{
    must_succeed(stage_try(stage));
    ck_assert_ptr_nonnull(told_follower());
}

void stage_stop_following(struct consul_stage *stage)
{
    struct follower *follower = told_follower();
    if (stage->limiter == NULL)
        return;
    if (follower != NULL)
        follower->end(follower);
    weir_close(stage->limiter);
    stage->limiter = NULL;
}

void stage_end(struct consul_stage *stage)
{
    stage_stop_following(stage);
    fake_consul_stop(stage->fake);
}

void stage_assert_gap(struct consul_stage *stage, const char *target, int from, int to, int64_t least_us)
{
    struct fake_asked before, after;
    ck_assert(fake_consul_asked(stage->fake, target, from, &before));
    ck_assert(fake_consul_asked(stage->fake, target, to, &after));
    ck_assert_int_ge(after.at_us - before.at_us, least_us);
}

/* ---- Files ---- */

void folder_make(struct folder *folder)
{
    snprintf(folder->dir, sizeof folder->dir, "%s/weir-consul-XXXXXX", scratch_parent());
    ck_assert_ptr_nonnull(mkdtemp(folder->dir));
}

static const char *folder_path(struct folder *folder, const char *name)
{
    snprintf(folder->path, sizeof folder->path, "%s/%s", folder->dir, name);
    return folder->path;
}

const char *folder_write(struct folder *folder, const char *name, const char *text)
{
    FILE *file = fopen(folder_path(folder, name), "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    ck_assert_int_eq(fclose(file), 0);
    return folder->path;
}

int folder_shell(const char *format, const char *dir)
{
    char command[1024];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(command, sizeof command, format, dir);
#pragma GCC diagnostic pop
    return system(command);
}

void folder_remove(struct folder *folder)
{
    ck_assert_int_eq(folder_shell("rm -r '%s'", folder->dir), 0);
}
