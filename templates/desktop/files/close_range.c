/* Older releases of gVisor refuse close_range with a last descriptor beyond INT_MAX, and GLib, which asks for "all of them" when it
   starts a program, then starts none. No descriptor is that large: asking for less closes the same ones. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>

int close_range(unsigned int first, unsigned int last, int flags)
{
    long answer = syscall(SYS_close_range, first, last, flags);
    if (answer < 0 && errno == EINVAL && last > INT_MAX && first <= INT_MAX)
        answer = syscall(SYS_close_range, first, (unsigned int)INT_MAX, flags);
    return (int)answer;
}
