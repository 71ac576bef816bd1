/* Tests whether a mount responds. A call that hangs in the kernel cannot be cancelled, and a thread in it keeps its
 * process from exiting. So a child makes the call, and is abandoned if it hangs. */
#include "railwright.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

/* Returns 1 for any answer about the path, even an error; 0 for none within `patience` seconds; -errno on failure. */
int rw_mount_answers(const char *path, double patience) {
  pid_t child = fork();
  if (child < 0) return -errno;
  if (!child) { /* other threads may hold any lock: only async-signal-safe calls */
    struct stat told;
    struct statvfs room; /* asks the server, while attributes may come from the kernel's cache */
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
