/* findings.h - the options of weir suggest, and the limits that it found. */
#ifndef WEIR_CLI_FINDINGS_H
#define WEIR_CLI_FINDINGS_H

#include "cli/replay/input_options.h"
#include "cli/replay/search.h"

#define SUGGEST_TEXT_SIZE 160

enum { MAX_ALGORITHMS = 4, MAX_PERIODS = 8, CURVE_POINTS = 9, DECIDERS_SHOWN = 3 };

struct suggest {
    struct input_options input;
    const char *algorithms[MAX_ALGORITHMS], *periods[MAX_PERIODS];
    int64_t periods_us[MAX_PERIODS];
    size_t algorithm_count, period_count, top;
    int64_t requests_ppm, clients_ppm; /* parts per million that may be denied */
    bool json;
    const char *html; /* NULL: no page */
};

struct found {
    uint64_t limit;
    struct outcome outcome;
};

struct findings {
    struct rows *rows;
    struct search search;
    struct outcome most;
    struct found found[MAX_ALGORITHMS][MAX_PERIODS];
    size_t period; /* of the curve */
    struct found curve[CURVE_POINTS];
    size_t curve_count;
    bool is_by_clients;  /* the bound on clients is what the next smaller limit would exceed */
    uint64_t same_until; /* the largest limit that denies as many clients as the suggested one */
    uint32_t *requests_by_key, *denied_by_key;
    uint32_t *below_by_key; /* denied by the next smaller limit */
    /* Clients that limit would deny more of, those with most requests first: they decide. */
    uint32_t deciders[DECIDERS_SHOWN];
    size_t decider_count, deciders_shown;
};

/* Suggest limits with the default bounds, for a command that was given none. Return an exit status. */
int suggest_instead(const struct suggest *asked, int argc, char **argv);

#endif
