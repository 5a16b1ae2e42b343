/* Counts what a process does to files under a folder, and kills it before, halfway through or after one of them.

   Preloaded (LD_PRELOAD), so that SQLite, DuckDB and Python are all seen. "Halfway" is of writes: half of the bytes. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { BEFORE, AFTER, HALFWAY };

static char under[4096];
static long seen, target;
static int moment;

void kills_at(const char *folder, long number, int how) {
    snprintf(under, sizeof under, "%s", folder);
    seen = 0;
    target = number;
    moment = how;
}

long kills_seen(void) { return seen; }

static int within(int at, const char *path) {
    char full[4096];
    if (!under[0]) return 0;
    if (path && path[0] == '/') return !strncmp(path, under, strlen(under));
    char link[64];
    if (path && at == AT_FDCWD) {
        if (!getcwd(full, sizeof full)) return 0;
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        ssize_t length = readlink(link, full, sizeof full - 1);
        if (length < 0) return 0;
        full[length] = 0;
    }
    return !strncmp(full, under, strlen(under));
}

static void strike(void) { kill(getpid(), SIGKILL); }

/* Whether this is the operation, and the process outlives its beginning. */
static int now(int at, const char *path) {
    if (!within(at, path)) return 0;
    if (++seen != target) return 0;
    if (moment == BEFORE) strike();
    return 1;
}

#define REAL(name) \
    static typeof(&name) real; \
    if (!real) real = (typeof(&name))dlsym(RTLD_NEXT, #name)
#define DO(at, path, call) \
    int hit = now(at, path); \
    typeof(call) result = call; \
    if (hit) strike(); \
    return result
#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
        DO(AT_FDCWD, path, real(path, flags, mode)); \
    }
#define OPENAT(name) \
    int name(int at, const char *path, int flags, ...) { \
        REAL(name); \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
        DO(at, path, real(at, path, flags, mode)); \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int fd, const void *from, size_t size) {
    REAL(write);
    int hit = now(fd, NULL);
    ssize_t result = real(fd, from, hit && moment == HALFWAY ? size / 2 : size);
    if (hit) strike();
    return result;
}
ssize_t pwrite(int fd, const void *from, size_t size, off_t where) {
    REAL(pwrite);
    int hit = now(fd, NULL);
    ssize_t result = real(fd, from, hit && moment == HALFWAY ? size / 2 : size, where);
    if (hit) strike();
    return result;
}
ssize_t pwrite64(int fd, const void *from, size_t size, off64_t where) {
    REAL(pwrite64);
    int hit = now(fd, NULL);
    ssize_t result = real(fd, from, hit && moment == HALFWAY ? size / 2 : size, where);
    if (hit) strike();
    return result;
}
int fsync(int fd) { REAL(fsync); DO(fd, NULL, real(fd)); }
int fdatasync(int fd) { REAL(fdatasync); DO(fd, NULL, real(fd)); }
int ftruncate(int fd, off_t size) { REAL(ftruncate); DO(fd, NULL, real(fd, size)); }
int ftruncate64(int fd, off64_t size) { REAL(ftruncate64); DO(fd, NULL, real(fd, size)); }
int fchmod(int fd, mode_t mode) { REAL(fchmod); DO(fd, NULL, real(fd, mode)); }
int rename(const char *from, const char *to) { REAL(rename); DO(AT_FDCWD, to, real(from, to)); }
int renameat(int at, const char *from, int other, const char *to) {
    REAL(renameat);
    DO(other, to, real(at, from, other, to));
}
int unlink(const char *path) { REAL(unlink); DO(AT_FDCWD, path, real(path)); }
int unlinkat(int at, const char *path, int flags) { REAL(unlinkat); DO(at, path, real(at, path, flags)); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); DO(AT_FDCWD, path, real(path, mode)); }
int mkdirat(int at, const char *path, mode_t mode) { REAL(mkdirat); DO(at, path, real(at, path, mode)); }
int rmdir(const char *path) { REAL(rmdir); DO(AT_FDCWD, path, real(path)); }
