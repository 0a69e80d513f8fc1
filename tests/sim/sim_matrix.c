/* sim_matrix.c - what hybrid mode admits against one ideal bucket. */
#include "sim.h"

int matrix(void)
{
    return 0;
}
