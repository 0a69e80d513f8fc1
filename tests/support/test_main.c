/* test_main.c - the main() of each test program that defines none. */
#include "support.h"

int main(void)
{
    return suite_run(tests());
}
