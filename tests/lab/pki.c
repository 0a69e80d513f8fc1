/* pki.c - certificates for a test, by OpenSSL. */
#include "pki.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdio.h>

static bool add_extension(X509 *certificate, X509 *issuer, int id, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, id, value);
    bool added = extension && X509_add_ext(certificate, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return added;
}

static FILE *open_file(const char *dir, const char *name, const char *kind, const char *mode)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.%s", dir, name, kind);
    return fopen(path, mode);
}

static X509 *load_certificate(const char *dir, const char *name)
{
    FILE *file = open_file(dir, name, "pem", "re");
    X509 *certificate = file ? PEM_read_X509(file, NULL, NULL, NULL) : NULL;
    if (file)
        fclose(file);
    return certificate;
}

static EVP_PKEY *load_key(const char *dir, const char *name)
{
    FILE *file = open_file(dir, name, "key", "re");
    EVP_PKEY *key = file ? PEM_read_PrivateKey(file, NULL, NULL, NULL) : NULL;
    if (file)
        fclose(file);
    return key;
}

static bool save(const char *dir, const char *name, X509 *certificate, EVP_PKEY *key)
{
    FILE *pem = open_file(dir, name, "pem", "we"), *secret = open_file(dir, name, "key", "we");
    bool saved = pem && secret && PEM_write_X509(pem, certificate) == 1 &&
                 PEM_write_PrivateKey(secret, key, NULL, NULL, 0, NULL, NULL) == 1;
    if (pem)
        saved = fclose(pem) == 0 && saved;
    if (secret)
        saved = fclose(secret) == 0 && saved;
    return saved;
}

static bool fill(X509 *certificate, EVP_PKEY *key, X509 *issuer, const struct pki_wish *wish)
{
    static long serial = 1;
    X509_NAME *name = X509_get_subject_name(certificate);
    bool filled = X509_set_version(certificate, X509_VERSION_3) == 1 &&
                  ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial++) == 1 &&
                  X509_gmtime_adj(X509_getm_notBefore(certificate), wish->from_seconds) &&
                  X509_gmtime_adj(X509_getm_notAfter(certificate), wish->to_seconds) &&
                  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)wish->name, -1, -1, 0) ==
                      1 &&
                  X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) == 1 &&
                  X509_set_pubkey(certificate, key) == 1;
    filled = filled && add_extension(certificate, issuer, NID_basic_constraints,
                                     wish->issuer ? "critical,CA:FALSE" : "critical,CA:TRUE");
    return filled && (!wish->hosts || add_extension(certificate, issuer, NID_subject_alt_name, wish->hosts));
}

int pki_issue(const char *dir, const struct pki_wish *wish)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    X509 *issuer = wish->issuer ? load_certificate(dir, wish->issuer) : certificate;
    EVP_PKEY *signer = wish->issuer ? load_key(dir, wish->issuer) : key;
    bool issued = key && certificate && issuer && signer && fill(certificate, key, issuer, wish) &&
                  X509_sign(certificate, signer, EVP_sha256()) > 0 && save(dir, wish->name, certificate, key);
    if (wish->issuer) {
        X509_free(issuer);
        EVP_PKEY_free(signer);
    }
    X509_free(certificate);
    EVP_PKEY_free(key);
    return issued ? 0 : -1;
}

int pki_lock(const char *dir, const char *name, const char *passphrase)
{
    EVP_PKEY *key = load_key(dir, name);
    FILE *file = key ? open_file(dir, name, "key", "we") : NULL;
    char words[64];
    snprintf(words, sizeof words, "%s", passphrase);
    bool locked = file && PEM_write_PrivateKey(file, key, EVP_aes_128_cbc(), NULL, 0, NULL, words) == 1;
    if (file)
        locked = fclose(file) == 0 && locked;
    EVP_PKEY_free(key);
    return locked ? 0 : -1;
}
