/* dispatch.h - runs the `done` of submitted requests. */
#ifndef CORE_API_DISPATCH_H
#define CORE_API_DISPATCH_H

#include <weir/weir.h>

/* Run the caller's `done`, or leave it to weir_dispatch(). The op is no longer counted as inside: the limiter may be
 * freed right after this, unless another count keeps it open. */
void dispatch_op(weir *limiter, struct weir_op *op, int status);

#endif
