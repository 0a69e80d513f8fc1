/* metrics.h - the figures of weir serve as text, and the port on which a Prometheus server reads them. */
#ifndef WEIR_CLI_SERVE_METRICS_H
#define WEIR_CLI_SERVE_METRICS_H

#include <weir/weir.h>

struct client;

/* Return the text that a function prints, which the caller frees, and its length; NULL: out of memory. `print` returns
 * as weir_stats_print() does. */
char *metrics_text(weir *limiter, int (*print)(weir *limiter, char *text, size_t size), size_t *len);

/* Print the counters of the limiter and of its limits. */
int metrics_print(weir *limiter, char *text, size_t size);

/* Answer the HTTP request that a client of the metrics port has sent, and end the client. False: it is not complete. */
bool metrics_answer(struct client *client);

#endif
