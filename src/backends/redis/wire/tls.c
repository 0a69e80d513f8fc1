/* tls.c - TLS for a connection to Redis, with OpenSSL, between the link's bytes and the socket's. */
#include "backends/redis/wire/tls.h"

#include "backends/shared/files.h"
#include "core/ground/forks.h"
#include "core/ground/lock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The fields that distinguish a file from another and from an earlier version; all 0: no file. */
struct tls_look {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec modified, changed;
};

/* Certificates and keys are rotated while a process runs. So each session looks whether their files have changed, and
 * if so reads them again. (c) constant, (m) mutex */
struct redis_tls_context {
    bool insecure;            /* (c) */
    char *files[3];           /* (c) the authorities', the certificate's, the key's; NULL: none */
    struct lock mutex;        /* also held for a fork, and while changed files are read */
    SSL_CTX *openssl;         /* (m) sessions hold it, too */
    struct tls_look looks[3]; /* (m) of the files that it was made of */
    struct forks_watcher forks;
};

struct redis_tls {
    SSL *openssl;
    BIO *came, *leaves; /* the session's: encrypted bytes, received and to be sent */
    char reason[96];
};

/* ---- The context ---- */

static int tls_refuse_file(struct message message, const char *option, const char *path)
{
    if (access(path, R_OK) != 0) {
        message_write(message, "%s \"%s\" cannot be read: %s", option, path, strerror(errno));
        return WEIR_EIO;
    }
    return message_refuse(message, "%s \"%s\" cannot be used: %s", option, path,
                          ERR_reason_error_string(ERR_peek_last_error()));
}

static int tls_trust(SSL_CTX *openssl, const struct weir_options *options, struct message message)
{
    if (options->redis_insecure)
        return WEIR_OK;
    SSL_CTX_set_verify(openssl, SSL_VERIFY_PEER, NULL);
    if (options->redis_ca_file)
        return SSL_CTX_load_verify_file(openssl, options->redis_ca_file) == 1
                   ? WEIR_OK
                   : tls_refuse_file(message, "redis_ca_file", options->redis_ca_file);
    if (SSL_CTX_set_default_verify_paths(openssl) == 1)
        return WEIR_OK;
    return message_refuse(message, "redis_ca_file is needed: the system's certificates cannot be loaded");
}

static int tls_identify(SSL_CTX *openssl, const struct weir_options *options, struct message message)
{
    if (!options->redis_cert_file && !options->redis_key_file)
        return WEIR_OK;
    if (!options->redis_cert_file || !options->redis_key_file)
        return message_refuse(message, "%s is needed with %s",
                              options->redis_cert_file ? "redis_key_file" : "redis_cert_file",
                              options->redis_cert_file ? "redis_cert_file" : "redis_key_file");
    if (SSL_CTX_use_certificate_chain_file(openssl, options->redis_cert_file) != 1)
        return tls_refuse_file(message, "redis_cert_file", options->redis_cert_file);
    if (SSL_CTX_use_PrivateKey_file(openssl, options->redis_key_file, SSL_FILETYPE_PEM) != 1)
        return tls_refuse_file(message, "redis_key_file", options->redis_key_file);
    return WEIR_OK;
}

/* OpenSSL would ask for the passphrase on the terminal. */
static int no_passphrase(char *text, int size, int is_for_writing, void *user)
{
    (void)text;
    (void)size;
    (void)is_for_writing;
    (void)user;
    return -1;
}

static int openssl_make(const struct weir_options *options, SSL_CTX **out, struct message message)
{
    SSL_CTX *openssl = SSL_CTX_new(TLS_client_method());
    int error = WEIR_OK;
    ERR_clear_error();
    if (!openssl || SSL_CTX_set_min_proto_version(openssl, TLS1_2_VERSION) != 1) {
        message_write(message, "out of memory");
        error = WEIR_ENOMEM;
    } else {
        SSL_CTX_set_options(openssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
        SSL_CTX_set_default_passwd_cb(openssl, no_passphrase);
        error = tls_trust(openssl, options, message);
    }
    if (!error)
        error = tls_identify(openssl, options, message);
    ERR_clear_error();
    if (error)
        SSL_CTX_free(openssl);
    else
        *out = openssl;
    return error;
}

static void tls_look(char *const files[3], struct tls_look looks[3])
{
    for (size_t i = 0; i < 3; i++) {
        struct stat now;
        looks[i] = (struct tls_look){ .size = 0 };
        if (files[i] && stat(files[i], &now) == 0)
            looks[i] = (struct tls_look){ now.st_dev, now.st_ino, now.st_size, now.st_mtim, now.st_ctim };
    }
}

static bool tls_looks_equal(const struct tls_look *a, const struct tls_look *b)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           a->modified.tv_sec == b->modified.tv_sec && a->modified.tv_nsec == b->modified.tv_nsec &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

/* Begin a session by the files as they are now. While they cannot be used, such as between the replacement of the
 * certificate and that of its key, use those from before. */
static SSL *tls_new_session(struct redis_tls_context *context)
{
    struct tls_look looks[3];
    bool is_same = true;
    tls_look(context->files, looks);
    lock_take(&context->mutex);
    for (size_t i = 0; i < 3; i++)
        is_same = is_same && tls_looks_equal(&looks[i], &context->looks[i]);
    SSL_CTX *fresh = NULL;
    const struct weir_options options = { .redis_ca_file = context->files[0],
                                          .redis_cert_file = context->files[1],
                                          .redis_key_file = context->files[2],
                                          .redis_insecure = context->insecure };
    if (!is_same && openssl_make(&options, &fresh, (struct message){ NULL, 0 }) == WEIR_OK) {
        SSL_CTX_free(context->openssl);
        context->openssl = fresh;
        memcpy(context->looks, looks, sizeof looks);
    }
    SSL *session = SSL_new(context->openssl);
    lock_give(&context->mutex);
    return session;
}

static void tls_forked(struct forks_watcher *watcher, enum forks_moment moment) UNCHECKED /* a fork's two sides */
{
    struct redis_tls_context *context = (struct redis_tls_context *)((char *)watcher -
                                                                     offsetof(struct redis_tls_context, forks));
    if (moment == FORKS_BEFORE)
        lock_take(&context->mutex);
    else
        lock_give(&context->mutex);
}

int redis_tls_context_make(const struct weir_options *options, struct redis_tls_context **out, struct message message)
{
    const char *const given[3] = { options->redis_ca_file, options->redis_cert_file, options->redis_key_file };
    struct redis_tls_context *context = calloc(1, sizeof *context);
    int error = WEIR_OK;
    if (!context) {
        message_write(message, "out of memory");
        return WEIR_ENOMEM;
    }
    context->insecure = options->redis_insecure;
    lock_init(&context->mutex);
    context->forks.told = tls_forked;
    forks_watch(&context->forks);
    for (size_t i = 0; i < 3 && !error; i++)
        error = given[i] ? path_absolute(given[i], &context->files[i]) : WEIR_OK;
    if (error) {
        message_write(message, "out of memory");
    } else {
        tls_look(context->files, context->looks); /* before they are read: a later change is then noticed */
        error = openssl_make(options, &context->openssl, message);
    }
    if (error)
        redis_tls_context_free(context);
    else
        *out = context;
    return error;
}

void redis_tls_context_free(struct redis_tls_context *context)
{
    if (!context)
        return;
    forks_forget(&context->forks);
    SSL_CTX_free(context->openssl);
    for (size_t i = 0; i < 3; i++)
        free(context->files[i]);
    lock_destroy(&context->mutex);
    free(context);
}

/* ---- A session ---- */

/* Tell OpenSSL the host that the certificate must match and, if it is a name, which certificate the server is to show
 * (SNI). An empty host would disable the check. */
static bool tls_expect_host(const struct redis_tls_context *context, const char *host, SSL *openssl)
{
    unsigned char address[sizeof(struct in6_addr)];
    const bool is_address = inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
    if (host[0] == '\0' || (!is_address && SSL_set_tlsext_host_name(openssl, host) != 1))
        return false;
    if (context->insecure)
        return true;
    SSL_set_hostflags(openssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return is_address ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(openssl), host) == 1
                      : SSL_set1_host(openssl, host) == 1;
}

struct redis_tls *redis_tls_begin(struct redis_tls_context *context, const char *host)
{
    struct redis_tls *tls = calloc(1, sizeof *tls);
    if (!tls)
        return NULL;
    tls->openssl = tls_new_session(context);
    tls->came = BIO_new(BIO_s_mem());
    tls->leaves = BIO_new(BIO_s_mem());
    if (!tls->openssl || !tls->came || !tls->leaves || !tls_expect_host(context, host, tls->openssl)) {
        BIO_free(tls->came);
        BIO_free(tls->leaves);
        SSL_free(tls->openssl);
        free(tls);
        ERR_clear_error();
        return NULL;
    }
    BIO_set_mem_eof_return(tls->came, -1); /* an empty buffer is not the end of the connection */
    SSL_set_bio(tls->openssl, tls->came, tls->leaves);
    SSL_set_connect_state(tls->openssl);
    return tls;
}

void redis_tls_end(struct redis_tls *tls)
{
    if (!tls)
        return;
    SSL_set_quiet_shutdown(tls->openssl, 1);
    SSL_free(tls->openssl); /* frees the BIOs, too */
    free(tls);
}

const char *redis_tls_reason(const struct redis_tls *tls)
{
    return tls->reason;
}

/* ---- Bytes ---- */

static int tls_fail(struct redis_tls *tls, const char *what)
{
    const bool checks = SSL_get_verify_mode(tls->openssl) !=
                        SSL_VERIFY_NONE; /* without verification the result explains nothing */
    const long verdict = checks ? SSL_get_verify_result(tls->openssl) : X509_V_OK;
    const unsigned long code = ERR_peek_last_error();
    const bool is_plain = code && ERR_GET_LIB(code) == ERR_LIB_SSL &&
                          ERR_GET_REASON(code) == SSL_R_WRONG_VERSION_NUMBER;
    const char *words = is_plain               ? "the server does not speak it: for a plain port use a redis:// URL"
                        : verdict != X509_V_OK ? X509_verify_cert_error_string(verdict)
                        : code                 ? ERR_reason_error_string(code)
                                               : NULL;
    snprintf(tls->reason, sizeof tls->reason, "TLS: %s", words ? words : what);
    ERR_clear_error();
    return -1;
}

static int tls_collect(struct redis_tls *tls, struct redis_bytes *sealed)
{
    const size_t len = BIO_ctrl_pending(tls->leaves);
    if (len == 0)
        return 0;
    char *room = redis_bytes_room(sealed, len);
    if (!room)
        return tls_fail(tls, "out of memory");
    const int got = BIO_read(tls->leaves, room, (int)len);
    sealed->len += got > 0 ? (size_t)got : 0;
    return 0;
}

/* True if OpenSSL only waits for more data. */
static bool tls_waits(const struct redis_tls *tls, int result)
{
    const int why = SSL_get_error(tls->openssl, result);
    return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE;
}

int redis_tls_shake_hands(struct redis_tls *tls, struct redis_bytes *sealed)
{
    ERR_clear_error();
    const int result = SSL_do_handshake(tls->openssl);
    if (result != 1 && !tls_waits(tls, result)) {
        tls_fail(tls, "the handshake failed");
        tls_collect(tls, sealed); /* the alert for the server */
        return -1;
    }
    return tls_collect(tls, sealed) != 0 ? -1 : result == 1;
}

int redis_tls_seal(struct redis_tls *tls, const void *data, size_t len, struct redis_bytes *sealed)
{
    size_t written = 0;
    ERR_clear_error();
    if (SSL_write_ex(tls->openssl, data, len, &written) != 1 || written != len)
        return tls_fail(tls, "cannot encrypt");
    return tls_collect(tls, sealed);
}

int redis_tls_feed(struct redis_tls *tls, const void *data, size_t len)
{
    return BIO_write(tls->came, data, (int)len) == (int)len ? 0 : tls_fail(tls, "out of memory");
}

int redis_tls_read(struct redis_tls *tls, void *data, size_t size, struct redis_bytes *sealed)
{
    size_t got = 0;
    ERR_clear_error();
    const int result = SSL_read_ex(tls->openssl, data, size, &got);
    if (result != 1 && SSL_get_error(tls->openssl, result) == SSL_ERROR_ZERO_RETURN) {
        snprintf(tls->reason, sizeof tls->reason, "the server closed the connection");
        return -1;
    }
    if (result != 1 && !tls_waits(tls, result))
        return tls_fail(tls, "cannot decrypt");
    return tls_collect(tls, sealed) != 0 ? -1 : (int)got;
}
