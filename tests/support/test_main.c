/* test_main.c - the main() of each test program that defines none of its own. */
#include "support.h"

int main(void)
{
    return suite_run(tests());
}
