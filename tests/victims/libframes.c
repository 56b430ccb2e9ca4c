/* libframes.c - functions with names, one in the other, that call back. Each does something after its call, so that its
 * frame is there during it.
 */
#define OUT __attribute__((noinline))

OUT int frames_outer(int (*inside)(void));
OUT int frames_middle(int (*inside)(void));
OUT int frames_inner(int (*inside)(void));

int frames_inner(int (*inside)(void))
{
    return inside() + 1;
}

int frames_middle(int (*inside)(void))
{
    return frames_inner(inside) + 10;
}

int frames_outer(int (*inside)(void))
{
    return frames_middle(inside) + 100;
}
