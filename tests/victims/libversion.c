/* libversion.c - preloaded, gives any shared CPython a version that does not exist yet. */
const char *Py_GetVersion(void);

const char *Py_GetVersion(void)
{
    return "3.99.0 (unknown)";
}
