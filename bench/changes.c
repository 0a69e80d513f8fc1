/* changes.c */
#include "modes.h"

void modes_changes(struct modes *modes)
{
    (void)modes;
}
