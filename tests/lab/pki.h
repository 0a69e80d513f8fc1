/* pki.h - certificates for a test: authorities of its own, and what they vouch for, good and bad. */
#ifndef WEIR_LAB_PKI_H
#define WEIR_LAB_PKI_H

/* What to issue: <dir>/<name>.pem and <dir>/<name>.key, with a key of its own. */
struct pki_wish {
    const char *name;
    const char *issuer;            /* the name of one issued before; NULL: it is an authority, by its own word */
    const char *hosts;             /* as in "DNS:localhost,IP:127.0.0.1"; NULL: none */
    long from_seconds, to_seconds; /* valid from and to, seconds from now */
};

/* 0, or -1. */
int pki_issue(const char *dir, const struct pki_wish *wish);

/* Encrypt the key of one that was issued before. 0, or -1. */
int pki_lock(const char *dir, const char *name, const char *passphrase);

#endif
