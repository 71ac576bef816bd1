/* Whether a mount answers: a call that hangs in the kernel cannot be taken back, and a thread in it keeps its process
 * from ending. So a child looks, and is left behind where it hangs. */
#include "railwright.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

/* 1: something was said of the path, an error as well; 0: nothing within `patience` seconds; negative: -errno. */
int rw_mount_answers(const char *path, double patience) {
  pid_t child = fork();
  if (child < 0) return -errno;
  if (!child) { /* other threads may hold any lock: only what is safe in a signal handler */
    struct stat told;
    struct statvfs room; /* asks the server, where attributes may come from the kernel's cache */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!stat(path, &told)) statvfs(path, &room);
    _exit(0);
  }
  struct timespec pause = {.tv_nsec = 100000};
  for (double until = rw_now() + patience;;) {
    pid_t ended = waitpid(child, NULL, WNOHANG);
    if (ended == child || (ended < 0 && errno != EINTR)) return 1;
    if (rw_now() > until) break;
    nanosleep(&pause, NULL);
    if (pause.tv_nsec < 20000000) pause.tv_nsec *= 2;
  }
  kill(child, SIGKILL);
  return waitpid(child, NULL, WNOHANG) == child ? 1 : 0;
}
