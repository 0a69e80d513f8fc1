/* pace.c */
#include "modes.h"

void modes_pace(struct modes *modes)
{
    (void)modes;
}
