/* accuracy.c */
#include "modes.h"

void modes_accuracy(struct modes *modes)
{
    (void)modes;
}
