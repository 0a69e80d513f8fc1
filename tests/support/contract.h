/* contract.h - what every backend must do, as a suite that runs on whatever opens a limiter. */
#ifndef WEIR_TESTS_CONTRACT_H
#define WEIR_TESTS_CONTRACT_H

#include "support.h"

enum contract_part {
    CONTRACT_COUNTS = 1, /* arguments, names, keys, verbs, several at once: a backend whose permits never come back
                          * can do it */
    CONTRACT_TIME = 2,   /* the algorithms, by the clock of the options */
    CONTRACT_WAITS = 4,  /* weir_acquire(); without now_us in the options by real time */
    CONTRACT_ALL = 7
};

struct contract_backend {
    const char *name;
    unsigned parts; /* of enum contract_part */
    int (*open)(const struct weir_options *options, weir **out);
    bool sources_vary; /* the same decision may be made by one source or another */
};

/* Add those parts to the suite, one case for each test. At most 8 backends; `backend` must outlive the run. */
void contract_add(Suite *suite, const struct contract_backend *backend);

#endif
