/* Ends with 0 where a program may set the base of its GS segment. Firefox cannot run without; gVisor does not let it. */
#include <asm/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void)
{
    return syscall(SYS_arch_prctl, ARCH_SET_GS, 0UL) == 0 ? 0 : 1;
}
