/* gap.c */
#include "modes.h"

void modes_gap(struct modes *modes)
{
    (void)modes;
}
