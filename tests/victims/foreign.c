/* foreign.c - calls libforeign, whose functions have names of dftracer's interface. */
void foreign_calls(void);

int main(void)
{
    foreign_calls();
    return 0;
}
