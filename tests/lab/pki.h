/* pki.h - certificates for a test: private authorities and the certificates that they issue, valid and invalid. */
#ifndef WEIR_LAB_PKI_H
#define WEIR_LAB_PKI_H

/* What to issue: <dir>/<name>.pem and <dir>/<name>.key, with a new key. */
struct pki_wish {
    const char *name;
    const char *issuer;            /* the name of an earlier one; NULL: a self-signed authority */
    const char *hosts;             /* as in "DNS:localhost,IP:127.0.0.1"; NULL: none */
    long from_seconds, to_seconds; /* validity, in seconds from now */
};

/* Return 0 or -1. */
int pki_issue(const char *dir, const struct pki_wish *wish);

/* Encrypt the key of an issued certificate. Return 0 or -1. */
int pki_lock(const char *dir, const char *name, const char *passphrase);

#endif
