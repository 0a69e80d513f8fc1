/* tls.c - TLS towards the clients of weir serve, with OpenSSL. */
#include "cli/serve/tls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#ifdef WEIR_CLI_TLS

#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

struct tls_context {
    SSL_CTX *ssl;
};

struct tls {
    SSL *ssl;
    bool waits_to_send;
};

/* Complain with the first error, which is the cause: later ones only say which call met it. */
static struct tls_context *refuse(struct tls_context *context, const char *option, const char *file)
{
    const unsigned long error = ERR_peek_error();
    const char *reason = ERR_SYSTEM_ERROR(error) ? strerror(ERR_GET_REASON(error)) : ERR_reason_error_string(error);
    complain("%s cannot use %s: %s", option, file, reason ? reason : "unknown reason");
    tls_close(context);
    return NULL;
}

/* A server that waits for a passphrase serves no client. */
static int no_passphrase(char *out, int size, int is_writing, void *user)
{
    (void)out, (void)size, (void)is_writing, (void)user;
    return -1;
}

struct tls_context *tls_open(const char *cert_file, const char *key_file, const char *ca_file)
{
    struct tls_context *context = malloc(sizeof *context);
    SSL_CTX *ssl = SSL_CTX_new(TLS_server_method());
    if (!context || !ssl) {
        free(context);
        SSL_CTX_free(ssl);
        complain("out of memory");
        return NULL;
    }
    context->ssl = ssl;
    ERR_clear_error();
    SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION);
    SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_default_passwd_cb(ssl, no_passphrase);
    if (SSL_CTX_use_certificate_chain_file(ssl, cert_file) != 1)
        return refuse(context, "--tls-cert", cert_file);
    if (SSL_CTX_use_PrivateKey_file(ssl, key_file, SSL_FILETYPE_PEM) != 1 || SSL_CTX_check_private_key(ssl) != 1)
        return refuse(context, "--tls-key", key_file);
    if (!ca_file)
        return context;
    if (SSL_CTX_load_verify_locations(ssl, ca_file, NULL) != 1)
        return refuse(context, "--tls-ca", ca_file);
    SSL_CTX_set_client_CA_list(ssl, SSL_load_client_CA_file(ca_file));
    SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return context;
}

void tls_close(struct tls_context *context)
{
    if (!context)
        return;
    SSL_CTX_free(context->ssl);
    free(context);
}

struct tls *tls_begin(struct tls_context *context, int fd)
{
    struct tls *tls = calloc(1, sizeof *tls);
    if (!tls)
        return NULL;
    tls->ssl = SSL_new(context->ssl);
    if (!tls->ssl || SSL_set_fd(tls->ssl, fd) != 1) {
        SSL_free(tls->ssl);
        free(tls);
        return NULL;
    }
    SSL_set_accept_state(tls->ssl);
    return tls;
}

void tls_end(struct tls *tls)
{
    if (!tls)
        return;
    ERR_clear_error();
    if (SSL_is_init_finished(tls->ssl))
        SSL_shutdown(tls->ssl);
    SSL_free(tls->ssl);
    free(tls);
}

/* Turn what SSL_read() or SSL_write() returned into what recv() or send() would have returned. */
static ssize_t tls_result(struct tls *tls, int result)
{
    tls->waits_to_send = false;
    if (result > 0)
        return result;
    switch (SSL_get_error(tls->ssl, result)) {
    case SSL_ERROR_ZERO_RETURN: return 0;
    case SSL_ERROR_WANT_WRITE:
        tls->waits_to_send = true;
        errno = EAGAIN;
        return -1;
    case SSL_ERROR_WANT_READ: errno = EAGAIN; return -1;
    default: errno = EPROTO; return -1;
    }
}

ssize_t tls_recv(struct tls *tls, void *data, size_t size)
{
    ERR_clear_error();
    return tls_result(tls, SSL_read(tls->ssl, data, size < INT_MAX ? (int)size : INT_MAX));
}

ssize_t tls_send(struct tls *tls, const void *data, size_t len)
{
    ERR_clear_error();
    return tls_result(tls, SSL_write(tls->ssl, data, len < INT_MAX ? (int)len : INT_MAX));
}

bool tls_has_input(const struct tls *tls)
{
    return SSL_pending(tls->ssl) > 0;
}

bool tls_waits_to_send(const struct tls *tls)
{
    return tls->waits_to_send;
}

#else

struct tls_context *tls_open(const char *cert_file, const char *key_file, const char *ca_file)
{
    (void)cert_file, (void)key_file, (void)ca_file;
    complain("this build of weir has no TLS");
    return NULL;
}

void tls_close(struct tls_context *context)
{
    (void)context;
}

struct tls *tls_begin(struct tls_context *context, int fd)
{
    (void)context, (void)fd;
    return NULL;
}

void tls_end(struct tls *tls)
{
    (void)tls;
}

ssize_t tls_recv(struct tls *tls, void *data, size_t size)
{
    (void)tls, (void)data, (void)size;
    errno = EPROTO;
    return -1;
}

ssize_t tls_send(struct tls *tls, const void *data, size_t len)
{
    (void)tls, (void)data, (void)len;
    errno = EPROTO;
    return -1;
}

bool tls_has_input(const struct tls *tls)
{
    (void)tls;
    return false;
}

bool tls_waits_to_send(const struct tls *tls)
{
    (void)tls;
    return false;
}

#endif
