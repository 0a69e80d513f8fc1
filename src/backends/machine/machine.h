/* machine.h - the machine backend: keeps the state of keys in a file that all processes of a machine map. */
#ifndef BACKENDS_MACHINE_MACHINE_H
#define BACKENDS_MACHINE_MACHINE_H

#include <weir/backend.h>

/* Open the file that checked options name, or make it. WEIR_OK, with a backend in *out that the caller destroys, or an
 * error with a line in the log. Children of fork() go on counting in it. */
int machine_open(const struct weir_options *options, struct weir_backend **out);

/* Do weir_inspect_open() with checked options of mode WEIR_MACHINE. The file must exist. */
int machine_inspect_open(const struct weir_options *options, weir_inspector **out);

#endif
