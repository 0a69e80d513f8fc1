/* contract.h - what every backend must do, as tests that run on any backend. */
#ifndef WEIR_TESTS_CONTRACT_H
#define WEIR_TESTS_CONTRACT_H

#include "support.h"

enum contract_part {
    CONTRACT_COUNTS = 1, /* arguments, names, keys, verbs, groups: needs no backend whose permits come back */
    CONTRACT_TIME = 2,   /* the algorithms, by the clock of the options */
    CONTRACT_WAITS = 4,  /* weir_acquire(); in real time if the options have no now_us */
    CONTRACT_ALL = 7
};

struct contract_backend {
    const char *name;
    unsigned parts; /* of enum contract_part */
    int (*open)(const struct weir_options *options, weir **out);
    bool sources_vary; /* the same decision may have different sources */
};

/* Add the backend's parts to the suite, one case for each test. At most 8 backends; `backend` must outlive the run. */
void contract_add(Suite *suite, const struct contract_backend *backend);

#endif
