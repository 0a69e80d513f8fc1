/* log.c */
#include "modes.h"

void modes_log(struct modes *modes)
{
    (void)modes;
}
