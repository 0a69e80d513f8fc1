/* settings.h - the options of weir serve. */
#ifndef WEIR_CLI_SERVE_SETTINGS_H
#define WEIR_CLI_SERVE_SETTINGS_H

#include "cli/serve/listen.h"
#include "cli/store.h"

enum address_kind { ADDRESS_TCP, ADDRESS_UNIX, ADDRESS_METRICS };

struct address {
    const char *text;
    enum address_kind kind;
};

struct settings {
    struct store store;
    const char *password_file, *tls_cert, *tls_key, *tls_ca;
    int64_t max_clients;
    int64_t idle_s; /* 0: clients may be silent for ever */
    struct address_bits bits;
    struct address addresses[LISTEN_MAX];
    size_t address_count;
    const char *config; /* the file; NULL: none */
    char *text;         /* its content, to which the strings above point */
};

/* Read the file that --config names, and the options. The caller frees the settings, also after an error. Return
 * EXIT_OK, or an exit code after a complaint. */
int settings_read(struct settings *out, int argc, char **argv, bool *wants_help);
void settings_free(struct settings *settings);

/* Complain about each setting that a running server cannot change, if it differs. */
void settings_compare(const struct settings *running, const struct settings *read);

#endif
