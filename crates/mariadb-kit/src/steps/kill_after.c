/* Loaded before everything else into a server that is to be killed (see mod.rs): each call that
   changes files is a step. As soon as the file named by KILL_AFTER is there, steps are counted, and
   before the one of the number that is in the file the process kills itself, as a power button
   would not: SIGKILL. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_long left;

static void arm(void)
{
  const char *path = getenv("KILL_AFTER");
  char text[20] = "";
  int file = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY) : -1;
  if (file < 0)
    return;
  if (syscall(SYS_read, file, text, sizeof text - 1) > 0 && syscall(SYS_unlink, path) == 0)
    atomic_store(&left, atol(text));
  syscall(SYS_close, file);
}

static void step(void)
{
  arm();
  if (atomic_load(&left) > 0 && atomic_fetch_sub(&left, 1) == 1)
    kill(getpid(), SIGKILL);
}

#define STEP(type, name, parameters, arguments)                              \
  type name parameters                                                       \
  {                                                                          \
    static type(*real) parameters;                                           \
    if (!real)                                                               \
      real = (type(*) parameters)dlsym(RTLD_NEXT, #name);                    \
    step();                                                                  \
    return real arguments;                                                   \
  }

STEP(int, rename, (const char *from, const char *to), (from, to))
STEP(int, unlink, (const char *path), (path))
STEP(int, fsync, (int file), (file))
STEP(int, fdatasync, (int file), (file))
STEP(ssize_t, write, (int file, const void *bytes, size_t length), (file, bytes, length))
STEP(ssize_t, pwrite64, (int file, const void *bytes, size_t length, off64_t at), (file, bytes, length, at))
