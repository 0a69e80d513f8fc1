/* options.c - prints docs/options.md: the options that have a name in text. The test options_page_is_up_to_date compares
 * the page with it; `build/release/tests/options_page >docs/options.md` writes it. */
#include <weir/weir.h>

#include <stdio.h>

int main(void)
{
    static const struct {
        enum weir_mode mode;
        const char *name;
    } modes[] = { { WEIR_LOCAL, "local" },
                  { WEIR_MACHINE, "machine" },
                  { WEIR_DISTRIBUTED, "distributed" },
                  { WEIR_HYBRID, "hybrid" } };
    printf("# Options by name\n"
           "\n"
           "`weir_options_set()` and `weir_options_parse()` take these names, and so does the nginx module's block\n"
           "`weir_options`. On the command line of `weir` a name has dashes: `--lease-life 1s`. `weir/options.h` says\n"
           "more about each field of `struct weir_options`: `timeout` is `timeout_us`, and `redis` is `redis_url`.\n"
           "An option that the mode does not use is ignored, and a line of the log says so.\n"
           "\n"
           "| name | value | modes | |\n"
           "| --- | --- | --- | --- |\n");
    for (size_t i = 0; weir_option_at(i); i++) {
        const struct weir_option *option = weir_option_at(i);
        char values[128];
        unsigned used = 0;
        weir_option_values(option, values, sizeof values);
        printf("| `%s` | %s | ", option->name, values);
        for (unsigned m = 0; m < 4; m++)
            used += (option->modes & 1u << modes[m].mode) != 0;
        if (used == 4)
            printf("all");
        for (unsigned m = 0, printed = 0; used < 4 && m < 4; m++)
            if (option->modes & 1u << modes[m].mode)
                printf("%s%s", printed++ > 0 ? ", " : "", modes[m].name);
        printf(" | %s |\n", option->text);
    }
    return 0;
}
